#include "grammar/tags.h"
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "grammar/machine.h"
#include "grammar/schema_rules.h"

/* doc and structures: the tags; trigger: n of them, shorter than LLM__GR_TRIGGER; space: as in llm__js. */
typedef struct llm__gr_tags {
    llm__gr_build *b;
    const llm_json *doc;
    int structures;
    llm__str *trigger;
    size_t n;
    const char *space;
    llm__gr_frag then; /* in >= 0: what follows the only trigger, instead of tags and more text */
} llm__gr_tags;

/* Appends a text in which every special token of the vocabulary stands as LLM__GR_SPECIAL and its name: a mark that is a token is that
 * token, not the letters it is shown as. */
static void llm__gr_marked(const llm__gr_build *b, llm__str s, llm_text *out) {
    const char sign = (char)LLM__GR_SPECIAL;
    for (size_t n; s.n; s = llm__str_from(s, n)) {
        n = b->g->tokenizer ? llm__special_at(b->g->tokenizer, s) : 0;
        if (n) llm_text_add(out, &sign, 1);
        else n = 1;
        llm_text_add(out, s.p, n);
    }
}

/* The machine of such a text. */
static llm__gr_frag llm__gr_mark(llm__gr_build *b, llm__str s) {
    LLM__SCOPED(llm_text_free) llm_text text = llm__text_none();
    llm__gr_marked(b, s, &text);
    if (text.failed) b->failed = llm__nomem();
    return b->failed ? llm__gr_never : llm__gr_text(b, llm__s(text.data, text.len));
}

/* Free text that has just seen `seen` bytes of trigger t, as a state of the triggers' Aho-Corasick automaton (1975), which is small enough
 * to be computed by comparing: the longest suffix of what was read that is a whole trigger, else the longest that is a beginning of one.
 * Returns the length of that suffix, and in *to the trigger (0, 0: none). seen < trigger[t].n, so `read` never holds more than 128. */
static size_t llm__gr_tags_next(const llm__gr_tags *x, size_t t, size_t seen, unsigned char c, size_t *to) {
    char read[256];
    memcpy(read, x->trigger[t].p, seen);
    read[seen++] = (char)c;
    for (int whole = 1; whole >= 0; whole--)
        for (size_t from = 0; from < seen; from++)
            for (size_t k = 0, n = seen - from; k < x->n; k++)
                if ((whole ? x->trigger[k].n == n : x->trigger[k].n > n) && !memcmp(x->trigger[k].p, read + from, n)) return *to = k, n;
    return *to = 0, 0;
}

/* The rest of one of the tags that begin with the trigger, of which the text has been read; its content, its end. */
static llm__gr_frag llm__gr_tags_content(const llm__gr_tags *x, llm__str trigger) {
    llm__gr_frag f = llm__gr_never;
    int found = 0;
    for (int at = llm_json_first(x->doc, x->structures); at >= 0 && !x->b->failed; at = llm_json_next(x->doc, at)) {
        llm__str begin = llm__json_text_at(x->doc, at, "begin"), end = llm__json_text_at(x->doc, at, "end");
        int schema = llm_json_find(x->doc, at, "schema");
        if (!begin.p || !end.p || schema < 0) {
            x->b->failed = llm__error(LLM_ERR_FORMAT, "structural tag: begin, schema and end expected in every structure");
            break;
        }
        LLM__SCOPED(llm_text_free) llm_text marked = llm__text_none();
        llm__gr_marked(x->b, begin, &marked);
        if (marked.failed) x->b->failed = llm__nomem();
        const llm__str whole = llm__s(marked.data, marked.len);
        if (x->b->failed || !llm__starts(whole, trigger)) continue;
        found = 1;
        llm__gr_frag one =
            llm__gr_seq(x->b, llm__gr_text(x->b, llm__str_from(whole, trigger.n)), llm__js_frag(x->b, x->doc, schema, x->space));
        f = llm__gr_alt(x->b, f, llm__gr_seq(x->b, one, llm__gr_mark(x->b, end)));
        if (x->b->failed) llm__error(x->b->failed, "structure \"%.80s\": %s", begin.p, llm_last_error());
    }
    if (!found && !x->b->failed)
        x->b->failed = llm__error(LLM_ERR_FORMAT, "structural tag: a structure that begins with the trigger \"%.*s\" expected",
                                  (int)trigger.n, trigger.p);
    return f;
}

/* No free text at all: one tag, or several with a separator between them. */
static llm__gr_frag llm__gr_tags_only(const llm__gr_tags *x) {
    llm__gr_frag f = llm__gr_tags_content(x, llm__nothing);
    if (llm__json_flag(x->doc, 0, "stop_after_first", 0) || x->b->failed) return f;
    llm__gr_frag separator = llm__gr_mark(x->b, llm__json_text_at(x->doc, 0, "separator"));
    llm__gr_frag more = llm__gr_seq(x->b, separator, llm__gr_tags_content(x, llm__nothing));
    return llm__gr_seq(x->b, f, llm__gr_repeat(x->b, more, 0, -1));
}

enum { LLM__GR_TRIGGERS = 32, LLM__GR_TRIGGER = 128 };

/* All ways on from one place of the automaton: a byte leads to another place, through a whole trigger to what it obliges to, or back to the
 * beginning. */
static void llm__gr_tags_ways(const llm__gr_tags *x, const int32_t *at, size_t t, size_t seen) {
    llm__gr_build *b = x->b;
    uint32_t home[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int32_t place = at[t * LLM__GR_TRIGGER + seen];
    for (int c = 0; c < 256 && !b->failed; c++) {
        size_t to, n = llm__gr_tags_next(x, t, seen, (unsigned char)c, &to);
        if (!n) home[c >> 5] |= 1u << (c & 31);
        if (!n) continue;
        llm__gr_frag one = llm__gr_range(b, c, c);
        int whole = n == x->trigger[to].n;
        if (whole && x->then.in < 0) one = llm__gr_seq(b, one, llm__gr_tags_content(x, x->trigger[to]));
        llm__gr_goto(b, one, !whole ? at[to * LLM__GR_TRIGGER + n] : x->then.in >= 0 ? x->then.in : at[0]);
        llm__gr_way(b, place, one.in);
    }
    llm__gr_frag back = llm__gr_bytes(b, home);
    llm__gr_goto(b, back, at[0]);
    llm__gr_way(b, place, back.in);
}

/* The automaton: one place for every beginning of a trigger; equal beginnings share that of the first, and one that has another
 * trigger in it is never come to. Free text may end anywhere, unless x->then must come. First all places, as ways lead forwards and back,
 * then their ways. */
static llm__gr_frag llm__gr_watch(const llm__gr_tags *x) {
    llm__gr_build *b = x->b;
    llm__gr_frag f = llm__gr_empty(b);
    int32_t at[LLM__GR_TRIGGERS * LLM__GR_TRIGGER], end = x->then.in >= 0 ? -1 : f.out;
    memset(at, 0xFF, sizeof at);
    for (int pass = 0; pass < 2; pass++)
        for (size_t t = 0; t < x->n; t++)
            for (size_t seen = t ? 1 : 0; seen < x->trigger[t].n && !b->failed; seen++) {
                int32_t *place = &at[t * LLM__GR_TRIGGER + seen];
                size_t owner = t;
                if (seen) llm__gr_tags_next(x, t, seen - 1, (unsigned char)x->trigger[t].p[seen - 1], &owner);
                if (!pass) *place = owner == t ? llm__gr_add(b, LLM__GR_SPLIT, 0, end) : at[owner * LLM__GR_TRIGGER + seen];
                else if (owner == t) llm__gr_tags_ways(x, at, t, seen);
            }
    f.in = at[0];
    if (x->then.in >= 0) f.out = x->then.out;
    return b->failed ? llm__gr_never : f;
}

LLM__PRIVATE llm__gr_frag llm__gr_tags_frag(llm__gr_build *b, const llm_json *doc, const char *space) {
    llm__str trigger[LLM__GR_TRIGGERS];
    llm__gr_tags x = {b, doc, llm_json_find(doc, 0, "structures"), trigger, 0, space, {-1, -1}};
    LLM__SCOPED(llm_text_free) llm_text marks = llm__text_none();
    size_t end[LLM__GR_TRIGGERS + 1] = {0};
    int bad = llm_json_size(doc, x.structures) <= 0;
    if (llm__json_flag(doc, 0, "at_least_one", 0) && !bad) return llm__gr_tags_only(&x);
    for (int i = llm_json_first(doc, llm_json_find(doc, 0, "triggers")); i >= 0 && !bad; i = llm_json_next(doc, i)) {
        bad = x.n == LLM__GR_TRIGGERS;
        if (bad) break;
        llm__gr_marked(b, llm__json_text(doc, i), &marks);
        end[++x.n] = marks.len;
        bad = end[x.n] == end[x.n - 1] || end[x.n] - end[x.n - 1] >= LLM__GR_TRIGGER;
    }
    for (size_t i = 0; i < x.n && !marks.failed; i++) trigger[i] = llm__s(marks.data + end[i], end[i + 1] - end[i]);
    if (marks.failed) b->failed = llm__nomem();
    if (b->failed) return llm__gr_never;
    if (!bad && x.n) return llm__gr_watch(&x);
    b->failed = llm__error(LLM_ERR_FORMAT, "structural tag: structures, and at most %d triggers of 1 to %d bytes expected",
                           LLM__GR_TRIGGERS, LLM__GR_TRIGGER - 1);
    return llm__gr_never;
}

LLM__PRIVATE llm__gr_frag llm__gr_after(llm__gr_build *b, const char *marker, llm__gr_frag f) {
    LLM__SCOPED(llm_text_free) llm_text text = llm__text_none();
    llm__gr_marked(b, llm__lit(marker), &text);
    llm__str trigger = llm__s(text.data, text.len);
    llm__gr_tags x = {b, NULL, -1, &trigger, 1, NULL, f};
    if (text.failed) b->failed = llm__nomem();
    if (!b->failed && (!trigger.n || trigger.n >= LLM__GR_TRIGGER))
        b->failed = llm__error(LLM_ERR_ARG, "grammar: a marker of 1 to %d bytes expected", LLM__GR_TRIGGER - 1);
    return b->failed || f.in < 0 ? llm__gr_never : llm__gr_watch(&x);
}
