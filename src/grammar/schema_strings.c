#include "grammar/schema_strings.h"
#include "api/config.h"
#include "api/json.h"
#include "api/grammar.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "base/json.h"
#include "text/regex.h"
#include "grammar/machine.h"
#include "grammar/finish.h"
#include "grammar/grammar_regex.h"
#include "grammar/schema.h"
#include "grammar/schema_values.h"

/* A key that is none of the n known ones (sorted JSON texts without their quotes): leaves the trie of the known at some byte, or ends
 * within it. Why: if "id" could be written as a free key too, its value would follow the schema of free keys, not its own, and the same key
 * could come twice. For the known keys id and in, with any = plain characters:
 *
 *   --+-- i --+-- (ends)                  the key i
 *     |       +-- d -- [all] any          idx, not id itself
 *     |       +-- n -- [all] any          int
 *     |       +-- [not d, n] any          ix
 *     +-- [not i] any                     name
 *
 * Free keys have no escapes, as \u0069d would be id again, and leave the trie at whole characters: by one that is not ASCII only where no
 * known key goes on so. s: those that agree in their first `at` bytes. */
static llm__gr_frag llm__js_other_key(llm__js *js, const llm__str *s, size_t n, size_t at, int depth) {
    llm__gr_build *b = js->b;
    llm__gr_frag any = llm__gr_repeat(b, llm__gr_chars(b, llm__gr_plain, LLM__COUNT(llm__gr_plain)), 0, -1), f = llm__gr_never;
    uint8_t leave[129]; /* 128: all that is not ASCII */
    llm__set left = LLM__ZERO;
    int ends = 0;
    if (!n) return any;
    if (depth > 200) return llm__gr_never;
    for (int c = 0; c <= 128; c++) leave[c] = c >= 0x20 && c != '"' && c != '\\';
    for (size_t i = 0, k; i < n; i = k) {
        if (s[i].n <= at) {
            ends = 1, k = i + 1;
            continue;
        }
        unsigned char c = (unsigned char)s[i].p[at];
        for (k = i + 1; k < n && s[k].n > at && (unsigned char)s[k].p[at] == c;) k++;
        leave[LLM__MIN(c, 128)] = 0;
        if (c != '\\' && c < 0x80)
            f = llm__gr_alt(b, f, llm__gr_seq(b, llm__gr_range(b, c, c), llm__js_other_key(js, s + i, k - i, at + 1, depth + 1)));
    }
    for (int c = 0; c <= 128; c++)
        if (leave[c]) llm__set_add(&left, c, c < 128 ? c : 0x10FFFF);
    f = llm__gr_alt(b, f, llm__gr_seq(b, llm__gr_set(b, &left), any));
    return ends || at == 0 ? f : llm__gr_alt(b, f, llm__gr_empty(b));
}

LLM__PRIVATE llm__gr_frag llm__js_quoted(llm__js *js, llm__gr_frag f) {
    return llm__gr_seq(js->b, llm__gr_word(js->b, "\""), llm__gr_seq(js->b, f, llm__gr_word(js->b, "\"")));
}

LLM__PRIVATE llm__gr_frag llm__js_other(llm__js *js, llm__gr_words *w) {
    llm__gr_words_sort(w, 1);
    llm__gr_frag f = js->b->failed ? llm__gr_never : llm__js_other_key(js, w->word, w->n, 0, 0);
    llm__gr_words_free(w);
    return f;
}

/* The same of the strings that are denied. */
static llm__gr_frag llm__js_other_string(llm__js *js, const llm__js_view *v) {
    llm__gr_words w = LLM__ZERO;
    for (int i = 0; i < v->n; i++)
        for (int at = llm__js_next_given(js, v, i, -1, 1); at >= 0 && !js->b->failed; at = llm__js_next_given(js, v, i, at, 1)) {
            if (llm_json_type_of(js->doc, at) != LLM_JSON_STRING) continue;
            llm_json_write(js->doc, at, &w.all);
            llm__gr_words_add(js->b, &w);
        }
    return llm__js_other(js, &w);
}

/* What `format` stands for: RFC 3339 (dates and times, without 29 February and leap seconds), ISO 8601 durations, RFC 4122, and safe
 * subsets of RFC 5321, 1123, 2673, 4291 and 3986: the shapes that every validator accepts. */
#define LLM__JS_DATE \
    "[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define LLM__JS_TIME "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define LLM__JS_LABEL "[A-Za-z0-9]{1,16}(?:-[A-Za-z0-9]{1,16}){0,2}"
static const struct {
    const char *names;
    int most;            /* characters of a match; at least there is one. -1: a pattern beside it says what it is */
    const char *pattern; /* NULL: any string */
} llm__js_formats[] = {
    {"password byte binary textarea multiline int32 int64 float double path file-path directory-path json-string", 0, NULL},
    {"guid cuid cuid2 ulid xid ksuid nanoid e164 base64url cidrv4 cidrv6 mac emoji", -1, NULL}, /* zod's, which sends a pattern with each */
    {"base64", 244, "^(?:[A-Za-z0-9+/]{4}){0,60}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"},
    {"date", 10, "^" LLM__JS_DATE "$"},
    {"time", 21, "^" LLM__JS_TIME "$"},
    {"date-time", 32, "^" LLM__JS_DATE "T" LLM__JS_TIME "$"},
    {"duration", 12,
     "^P(?:[0-9]{1,4}W|[0-9]{1,4}Y(?:[0-9]{1,2}M(?:[0-9]{1,2}D)?)?|[0-9]{1,2}M(?:[0-9]{1,2}D)?|[0-9]{1,3}D"
     "|T(?:[0-9]{1,3}H(?:[0-9]{1,2}M(?:[0-9]{1,2}S)?)?|[0-9]{1,3}M(?:[0-9]{1,2}S)?|[0-9]{1,4}S))$"},
    {"uuid", 36, "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"uuid4", 36, "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"},
    {"email idn-email", 217, "^[A-Za-z0-9_+-]{1,30}(?:\\.[A-Za-z0-9_+-]{1,16}){0,2}@" LLM__JS_LABEL "(?:\\." LLM__JS_LABEL "){1,2}$"},
    {"hostname idn-hostname", 203, "^" LLM__JS_LABEL "(?:\\." LLM__JS_LABEL "){0,3}$"},
    {"ipv4", 15, "^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])$"},
    {"ipv6", 39, "^(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
    {"uri url iri uri-reference iri-reference", 513,
     "^[a-z][a-z0-9+.-]{0,15}://[A-Za-z0-9.-]{1,60}(?::[0-9]{1,4})?(?:/"
     "[A-Za-z0-9._~!$&'()*+,;=:@-]{0,40}){0,8}(?:\\?[A-Za-z0-9._~!$&'()*+,;=:@/-]{0,100})?$"}};

/* ---- strings of which several things are said ----
 * A pattern beside a format, two patterns, look-ahead at a pattern's beginning: each becomes a machine of its own, and what all of them let
 * through is found by running them side by side. A place stands for the states that they are in together:
 *
 *   ^(?!0)[0-9]+$ of length 2      (1, 1, 1) --[1-9]--> (dead, 2, 2) --[0-9]--> (dead, 2, 3)
 *                                  the end: what is denied is dead, the others accept
 *
 * In the worst case there are as many as the product of the machines' sizes, mostly as many as the largest has (Rabin & Scott 1959).
 * ^(?=X)Y is Y that begins with X, ^(?!X)Y is Y that does not. A machine does not know a character that is spelt unusually (\u0061), so the
 * one that counts characters asks for the usual spelling; it is always there. */

enum { LLM__JS_PARTS = 12, LLM__JS_PRODUCT = 1 << 13 };

typedef struct llm__js_part { /* a regex, or from: the body of a look-ahead at its beginning */
    llm__regex *re;           /* NULL: what counts; shared by the parts of one pattern, the last of which has from 0 */
    int32_t from, lead, deny;
    int owner; /* the member and keyword that says it */
    const char *said;
    llm_grammar *g;
} llm__js_part;

typedef struct llm__js_parts {
    llm__js_part part[LLM__JS_PARTS + 1];
    int n;
    uint8_t like[256]; /* of each byte the first one that leads every machine to the same states */
} llm__js_parts;

static void llm__js_parts_free(llm__js_parts *p) {
    for (int i = 0; i <= p->n; i++) {
        if (!p->part[i].from) llm__regex_close(p->part[i].re);
        if (p->part[i].g) llm__grammar_free(p->part[i].g);
    }
}

/* An error of a pattern or format, told with the pointer to its keyword. */
static llm__gr_frag llm__js_part_refused(llm__js *js, const llm__js_part *part, llm_result r) {
    char why[512];
    snprintf(why, sizeof why, "%.400s", llm_last_error());
    js->b->failed = r == LLM_ERR_NOMEM ? r : LLM_OK;
    return js->b->failed ? llm__gr_never : llm__js_refuse(js, r, part->owner, part->said, why);
}

/* One more regex. Its last part is added in any case, so that what was compiled is freed. */
static void llm__js_part_add(llm__js *js, llm__js_parts *p, llm__js_part last, llm__str pattern) {
    last.re = llm__gr_regex_read(js->b, pattern, LLM__RX_NARROWEST);
    if (last.re) last.lead = llm__rx_lead(last.re);
    for (int32_t pc = 1; pc < last.lead && p->n < LLM__JS_PARTS - 1; pc += last.re->code[pc].x) {
        llm__js_part *look = &p->part[p->n++];
        *look = last;
        look->from = pc + 1, look->lead = 0, look->deny = last.re->code[pc].mode & LLM__RX_NOT;
    }
    p->part[p->n++] = last;
    if (js->b->failed) (void)llm__js_part_refused(js, &last, js->b->failed);
    else if (p->n == LLM__JS_PARTS) llm__js_refuse(js, LLM_ERR_LIMIT, last.owner, last.said, "less beside a pattern or format expected");
}

/* Makes the machines. */
static void llm__js_parts_make(llm__js *js, llm__js_parts *p, int64_t min, int64_t max) {
    for (int i = 0; i <= p->n && !js->b->failed; i++) {
        llm__gr_build one;
        llm__js_part *part = &p->part[i];
        if ((part->g = llm__grammar_new(&one, js->b->g->fuel)) == NULL) {
            js->b->failed = one.failed;
            return;
        }
        llm__gr_frag f =
            part->re ? llm__gr_program_frag(&one, part->re, part->from, part->lead, LLM__GR_IN_JSON, 0, -1)
                     : llm__gr_repeat(&one, llm__gr_json_set(&one, llm__gr_all, LLM__COUNT(llm__gr_all)), (int32_t)min, (int32_t)max);
        llm__grammar_finish(&one, llm__gr_alt(&one, f, llm__gr_range(&one, 1, 0))); /* even if nothing keeps it */
        if (one.failed) (void)llm__js_part_refused(js, part, one.failed);
    }
    for (int c = 0, d; c < 256 && !js->b->failed; c++) {
        for (d = 0; d < c; d++) {
            int i = 0;
            while (i <= p->n && p->part[i].g->class_of[c] == p->part[i].g->class_of[d]) i++;
            if (i > p->n) break;
        }
        p->like[c] = (uint8_t)d;
    }
}

/* The ways from one place: the states after each byte are looked up in `seen`, and new ones become places. */
static void llm__js_product_ways(llm__js *js, const llm__js_parts *p, llm__map *seen, int32_t *state, int32_t *op, int32_t at) {
    llm__gr_build *b = js->b;
    const size_t n = (size_t)p->n + 1;
    int32_t target[256];
    for (int c = 0; c < 256 && !b->failed; c++) {
        int32_t *to = state + seen->len * n, alive = 1;
        if (p->like[c] < c) {
            target[c] = target[p->like[c]];
            continue;
        }
        (void)llm__gr_spend(b, n + 2);
        const llm__str key = llm__s((const char *)to, n * sizeof *to);
        for (size_t i = 0; i < n; i++) {
            to[i] = llm__gr_step(p->part[i].g, state[(size_t)at * n + i], (uint8_t)c);
            alive &= to[i] || p->part[i].deny;
        }
        target[c] = alive ? llm__map_get(seen, key) : -1;
        if (!alive || target[c] >= 0) continue;
        target[c] = (int32_t)seen->len;
        op[target[c]] = llm__gr_add(b, LLM__GR_SPLIT, 0, -1);
        if (seen->len == LLM__JS_PRODUCT - 1) /* the last place is where states are looked up */
            llm__js_refuse(js, LLM_ERR_LIMIT, p->part[0].owner, p->part[0].said, "so much cannot be enforced together");
        else if (llm__map_put(seen, key, target[c]) < 0) b->failed = llm__nomem();
    }
    for (int c = 0; c < 256 && !b->failed; c++) {
        uint32_t set[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        const int32_t to = target[c];
        for (int k = c; k < 256 && to >= 0; k++)
            if (target[k] == to) set[k >> 5] |= 1u << (k & 31), target[k] = -1;
        if (to < 0) continue;
        llm__gr_frag one = llm__gr_bytes(b, set);
        llm__gr_goto(b, one, op[to]);
        llm__gr_way(b, op[at], one.in);
    }
}

/* What all parts let through, min to max characters of it. */
static llm__gr_frag llm__js_product(llm__js *js, llm__js_parts *p, int64_t min, int64_t max) {
    llm__gr_build *b = js->b;
    const size_t n = (size_t)p->n + 1;
    LLM__SCOPED(llm__drop) int32_t *state = LLM__NEW(int32_t, LLM__JS_PRODUCT * n), *op = LLM__NEW(int32_t, LLM__JS_PRODUCT);
    LLM__SCOPED(llm__map_free) llm__map seen = LLM__ZERO;
    llm__gr_frag f = llm__gr_empty(b);
    if ((!state || !op) && !b->failed) b->failed = llm__nomem();
    llm__js_parts_make(js, p, min, max);
    if (b->failed) return llm__gr_never;
    for (size_t i = 0; i < n; i++) state[i] = 1;
    f.in = op[0] = llm__gr_add(b, LLM__GR_SPLIT, 0, -1);
    if (llm__map_put(&seen, llm__s((const char *)state, n * sizeof *state), 0) < 0) b->failed = llm__nomem();
    for (int32_t at = 0; at < (int32_t)seen.len && !b->failed; at++) {
        int accept = 1;
        for (size_t i = 0; i < n; i++) accept &= p->part[i].g->state[state[(size_t)at * n + i]].accept == !p->part[i].deny;
        if (accept) b->g->op[op[at]].next = f.out;
        llm__js_product_ways(js, p, &seen, state, op, at);
    }
    for (size_t i = 0; i < n && !b->failed; i++)
        if (p->part[i].g->failed)
            llm__js_refuse(js, LLM_ERR_LIMIT, p->part[0].owner, p->part[0].said, "patterns that take less time expected");
    return b->failed ? llm__gr_never : f;
}

LLM__PRIVATE llm__gr_frag llm__js_string(llm__js *js, const llm__js_view *v) {
    llm__gr_build *b = js->b;
    int64_t min = llm__js_count(js, v, "minLength", 0, 0), max = llm__js_count(js, v, "maxLength", 1, -1);
    LLM__SCOPED(llm__js_parts_free) llm__js_parts p = LLM__ZERO;
    int denied = -1;
    for (int i = 0; i < 2 * v->n && !b->failed; i++) {
        llm__js_part part = {NULL, 0, 0, 0, v->node[i / 2], i & 1 ? "format" : "pattern", NULL};
        int at = llm__js_find(js, v, i / 2, part.said), known = 0;
        llm__str one = llm__json_text(js->doc, at);
        if (llm__js_find_not(js, v, i / 2, "enum") >= 0 || llm__js_find_not(js, v, i / 2, "const") >= 0) denied = v->node[i / 2];
        if (at < 0) continue;
        if (!one.p) return llm__js_refuse(js, LLM_ERR_FORMAT, part.owner, part.said, "a string expected");
        while (i & 1 && known < LLM__COUNT(llm__js_formats) && llm__word_index(llm__js_formats[known].names, one) < 0) known++;
        if (known == LLM__COUNT(llm__js_formats) || (i & 1 && llm__js_formats[known].most < 0 && llm__js_find(js, v, i / 2, "pattern") < 0))
            return llm__js_refuse(js, LLM_ERR_UNSUPPORTED, part.owner, part.said, "this format is not known");
        if (i & 1 && !llm__js_formats[known].pattern) continue;
        if (i & 1) one = llm__lit(llm__js_formats[known].pattern);
        if (i & 1 && min < 2) min = 0; /* lengths that the pattern keeps by itself */
        if (i & 1 && max >= llm__js_formats[known].most) max = -1;
        llm__js_part_add(js, &p, part, one);
    }
    if (b->failed || (max >= 0 && min > max)) return llm__gr_never;
    if (denied >= 0 && (p.n || min || max >= 0))
        return llm__js_refuse(js, LLM_ERR_UNSUPPORTED, denied, NULL, "cannot be denied beside a pattern or a length");
    if (p.n > 1) return llm__js_quoted(js, llm__js_product(js, &p, min, max));
    llm__gr_frag f = p.n           ? llm__gr_program_frag(b, p.part[0].re, 0, 0, LLM__GR_IN_JSON, min, max)
                     : denied >= 0 ? llm__js_other_string(js, v)
                                   : llm__gr_repeat(b, llm__gr_json_char(b), (int32_t)min, (int32_t)max);
    if (p.n && b->failed) return llm__js_part_refused(js, &p.part[0], b->failed);
    return llm__js_quoted(js, f);
}
