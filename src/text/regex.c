#include "text/regex.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "text/unicode.h"
#include "text/unicode_tables.h"
#include "text/unicode_classes.h"

/* ---- The compiler ----
 * One pass of recursive descent; code is emitted as it is read, as the head of this section shows. An error is noted once, in the parser,
 * and moves to the end of the pattern; whoever goes on then finds nothing left to do. */

/* A pattern while it is read: what is left of it, the flags that hold here ((?i), (?s)), the program so far. */
typedef struct llm__rx_parser {
    const char *s;
    size_t n, at;
    llm__regex *re;
    int any_case, dot_all, depth;
    llm__rx_classes classes; /* what \d, \s, \w are here */
    const char *error;       /* what was expected; NULL: none so far */
    llm_result result;
} llm__rx_parser;

/* Notes the first error, and goes to the end of the pattern, which ends every loop. Always 0. */
static int llm__rx_fail(llm__rx_parser *p, llm_result r, const char *what) {
    if (!p->error) p->error = what, p->result = r;
    p->at = p->n;
    return 0;
}

/* The usual error: the pattern is malformed. */
static int llm__rx_bad(llm__rx_parser *p, const char *what) { return llm__rx_fail(p, LLM_ERR_FORMAT, what); }

/* The classes inside [^...] and (?!...), whose match shrinks where theirs grows. */
static llm__rx_classes llm__rx_opposite(llm__rx_classes c) {
    return c == LLM__RX_NARROWEST ? LLM__RX_WIDEST : c == LLM__RX_WIDEST ? LLM__RX_NARROWEST : LLM__RX_UNICODE;
}

/* The next byte, or -1 at the end. */
static int llm__rx_peek(const llm__rx_parser *p) { return p->at < p->n ? (unsigned char)p->s[p->at] : -1; }

/* Takes a text if it comes next. */
static int llm__rx_take(llm__rx_parser *p, const char *text) {
    size_t n = strlen(text);
    if (p->n - p->at < n || memcmp(p->s + p->at, text, n)) return 0;
    p->at += n;
    return 1;
}

/* Room for n more instructions, zeroed, at position `at`; what stands there moves up, which is how a SPLIT comes to stand before an
 * alternative that was compiled already. Returns the first of them, NULL if an error was noted; pointers into the code may dangle. */
static llm__rx_code *llm__rx_open(llm__rx_parser *p, size_t at, size_t n) {
    llm__regex *re = p->re;
    if (re->n + n > LLM__RX_MAX_CODE) llm__rx_fail(p, LLM_ERR_LIMIT, "a smaller pattern");
    else if (!llm__grow((void **)&re->code, &re->cap, re->n + n, sizeof *re->code)) llm__rx_fail(p, LLM_ERR_NOMEM, "memory");
    if (p->error) return NULL;
    memmove(re->code + at + n, re->code + at, (re->n - at) * sizeof *re->code);
    memset(re->code + at, 0, n * sizeof *re->code);
    re->n += n;
    return re->code + at;
}

/* Appends an instruction. */
static llm__rx_code *llm__rx_emit(llm__rx_parser *p, llm__rx_op op, int32_t x) {
    llm__rx_code *c = llm__rx_open(p, p->re->n, 1);
    if (c) c->op = (uint8_t)op, c->x = x;
    return c;
}

/* ---- Sets ----
 * A set is kept as the sorted code points where membership changes: c is in it if an odd number of them is at most c. [0-9a-f] has the
 * changes 48 58 97 103; three of them are at most 'c' (99), so it is in. Union, intersection and complement are one walk along two such
 * lists. While a pattern is read a set has memory of its own; its SET has it among the regex's. */

/* Appends a change, which lies behind all others. */
static void llm__set_push(llm__set *s, int32_t c) {
    s->failed |= !llm__grow((void **)&s->v, &s->cap, s->n + 1, sizeof *s->v);
    if (!s->failed) s->v[s->n++] = c;
}

LLM__PRIVATE void llm__set_combine(llm__set *s, const int32_t *other, size_t n, int keep) {
    llm__set out = {NULL, 0, 0, s->failed, s->work + s->n + n + 16};
    size_t i = 0, k = 0;
    for (int32_t c = 0; c < 0x110000 && !out.failed;) {
        while (i < s->n && s->v[i] <= c) i++;
        while (k < n && other[k] <= c) k++;
        if ((size_t)(keep >> ((i & 1) + 2 * (k & 1)) & 1) != (out.n & 1)) llm__set_push(&out, c);
        c = LLM__MIN(i < s->n ? s->v[i] : 0x110000, k < n ? other[k] : 0x110000);
    }
    LLM_FREE(s->v);
    *s = out;
}

/* The same with a set that is no longer needed, and is freed. */
static void llm__set_merge(llm__set *s, llm__set *other, int keep) {
    llm__set_combine(s, other->v, other->n, keep);
    s->failed |= other->failed;
    s->work += other->work;
    LLM_FREE(other->v);
}

LLM__PRIVATE void llm__set_add(llm__set *s, int32_t lo, int32_t hi) {
    const int32_t range[2] = {lo, hi + 1}, last = s->n ? s->v[s->n - 1] : -1;
    if (s->n % 2 || last > lo) {
        llm__set_combine(s, range, 2, LLM__SET_OR);
    } else if (last == lo) {
        s->v[s->n - 1] = hi + 1;
    } else {
        llm__set_push(s, lo);
        llm__set_push(s, hi + 1);
    }
}

/* Adds the runs of a Unicode table, `shift` of whose low bits are the value: of categories (a set of them), or of one script. */
static void llm__set_runs(llm__set *s, const uint32_t *run, int n, int shift, uint32_t cats, uint32_t script) {
    s->work += (size_t)n;
    for (int i = 0; i < n; i++) {
        int32_t c = (int32_t)(run[i] >> shift), end = i + 1 < n ? (int32_t)(run[i + 1] >> shift) : 0x110000;
        uint32_t value = run[i] & ((1u << shift) - 1);
        int cases = shift == 5 && value >= 30; /* upper and lower case in turn: one code point each */
        for (int32_t to; c < end; c = to) {
            to = cases ? c + 1 : end;
            if (shift == 5 ? cats >> llm__uni_cat_of(value, c) & 1 : value == script) llm__set_add(s, c, to - 1);
        }
    }
}

/* Adds a character and what differs from it only in case: its folded form and everything that folds to that. */
static void llm__set_add_any_case(llm__set *s, int32_t c) {
    const int32_t folded = llm__uni_case(c, 2);
    llm__set_add(s, folded, folded);
    for (int i = 0; i < LLM__COUNT(llm__uni_cases); i++) {
        const llm__uni_case_run *r = &llm__uni_cases[i];
        const int32_t other = folded - r->add;
        if ((r->which & 2) && other >= r->first && other <= r->last && (other - r->first) % r->stride == 0) llm__set_add(s, other, other);
    }
    s->work += LLM__COUNT(llm__uni_cases) / 2;
}

/* 1 if a set has a member from lo to hi. */
static int llm__set_meets(const llm__set *s, int32_t lo, int32_t hi) {
    const size_t at = s->n ? (size_t)llm__uni_find(s->v, (int)s->n, 4, 0, lo) : 0, next = at + (s->n && s->v[at] <= lo);
    return next % 2 || (next < s->n && s->v[next] <= hi);
}

/* The same for all members: first the folded forms, then everything that folds to a member. */
static void llm__set_any_case(llm__set *s) {
    for (int pass = 0; pass < 2; pass++) {
        llm__set others = LLM__ZERO; /* put in at once, as each takes a walk along the whole set */
        for (int i = 0; i < LLM__COUNT(llm__uni_cases); i++) {
            const llm__uni_case_run *r = &llm__uni_cases[i];
            const int32_t by = pass ? r->add : 0;
            others.work++;
            if (!(r->which & 2) || !llm__set_meets(s, r->first + by, r->last + by)) continue;
            for (int32_t c = r->first; c <= r->last; c += r->stride, others.work += 8) {
                int32_t member = pass ? c + r->add : c, other = pass ? c : c + r->add;
                if (llm__set_has(s->v, s->n, member) && !llm__set_has(s->v, s->n, other)) llm__set_add(&others, other, other);
            }
        }
        llm__set_merge(s, &others, LLM__SET_OR);
    }
}

/* Emits a SET and frees the set. \p{L} has 1,300 changes, most sets a handful. Equal sets are not shared: programs are small. */
static void llm__rx_emit_set(llm__rx_parser *p, llm__set s) {
    llm__regex *re = p->re;
    re->work += s.work;
    if (re->n_change + s.n > LLM__RX_MAX_CHANGES || re->work > LLM__RX_MAX_WORK)
        llm__rx_fail(p, LLM_ERR_LIMIT, "smaller character classes");
    else if (s.failed || !llm__grow((void **)&re->change, &re->change_cap, re->n_change + s.n + 1, sizeof *re->change))
        llm__rx_fail(p, LLM_ERR_NOMEM, "memory");
    llm__rx_code *c = llm__rx_emit(p, LLM__RX_SET, 0);
    for (size_t i = 0; c && i < s.n; i++) re->change[re->n_change + i] = s.v[i];
    for (int b = 0; c && b < 128; b++) c->ascii[b >> 5] |= (uint32_t)llm__set_has(s.v, s.n, b) << (b & 31);
    if (c) c->set = (uint32_t)re->n_change, c->set_n = (uint32_t)s.n, re->n_change += s.n;
    LLM_FREE(s.v);
}

/* What a property stands for: a set of categories, a script (-1: none), ranges of code points. */
typedef struct llm__rx_meaning {
    uint32_t cats;
    int script, n_ranges;
    const int32_t (*range)[2];
} llm__rx_meaning;

/* A category by one or two letters: L, Lu. 0: unknown. */
static uint32_t llm__rx_category(llm__str name) {
    static const char letters[] = "CnCcCfCoCsLlLmLoLtLuMcMeMnNdNlNoPcPdPePfPiPoPsScSkSmSoZlZpZs";
    uint32_t cats = 0;
    for (int i = 0; name.n && name.n <= 2 && i < 30; i++)
        if (letters[2 * i] == name.p[0] && (name.n == 1 || letters[2 * i + 1] == name.p[1])) cats |= 1u << i;
    return cats;
}

/* A property by one of the names that dialects have for it. 0: unknown. */
static int llm__rx_named(llm__str name, llm__rx_meaning *out) {
    static const int32_t hex[][2] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}, blank[][2] = {{9, 13}, {28, 31}, {0x85, 0x85}, {0xFEFF, 0xFEFF}};
    enum { LLM__RX_NO_RANGES, LLM__RX_SPACES, LLM__RX_CIRCLED, LLM__RX_HEX, LLM__RX_BLANK };
    static const struct {
        const int32_t (*range)[2];
        int n;
    } ranges[] = {{NULL, 0},
                  {llm__uni_spaces, LLM__COUNT(llm__uni_spaces)},
                  {llm__uni_circled, LLM__COUNT(llm__uni_circled)},
                  {hex, LLM__COUNT(hex)},
                  {blank, LLM__COUNT(blank)}};
    static const struct {
        const char *names; /* with blanks between */
        uint32_t cats;
        int ranges;
    } known[] = {{"Letter", LLM__CATS_L, LLM__RX_NO_RANGES},
                 {"Mark", LLM__CATS_M, LLM__RX_NO_RANGES},
                 {"Number", LLM__CATS_N, LLM__RX_NO_RANGES},
                 {"Punctuation Punct", LLM__CATS_P, LLM__RX_NO_RANGES},
                 {"PosixPunct", LLM__CATS_P | LLM__CATS_S, LLM__RX_NO_RANGES},
                 {"Symbol", LLM__CATS_S, LLM__RX_NO_RANGES},
                 {"Separator", LLM__CATS_Z, LLM__RX_NO_RANGES},
                 {"Other", LLM__CATS_C, LLM__RX_NO_RANGES},
                 {"Any", LLM__CATS_ALL, LLM__RX_NO_RANGES},
                 {"Digit DecimalNumber", 1u << LLM__ND, LLM__RX_NO_RANGES},
                 {"Alpha Alphabetic", LLM__CATS_L | 1u << LLM__NL, LLM__RX_NO_RANGES},
                 {"Alnum", LLM__CATS_L | 1u << LLM__NL | 1u << LLM__ND, LLM__RX_NO_RANGES},
                 {"Upper UppercaseLetter", 1u << LLM__LU, LLM__RX_NO_RANGES},
                 {"Lower LowercaseLetter", 1u << LLM__LL, LLM__RX_NO_RANGES},
                 {"Cntrl", 1u << LLM__CC, LLM__RX_NO_RANGES},
                 {"LC L&", 1u << LLM__LU | 1u << LLM__LL | 1u << LLM__LT, LLM__RX_NO_RANGES},
                 {"Space White_Space", 0, LLM__RX_SPACES},
                 {"AnySpace", LLM__CATS_Z, LLM__RX_BLANK},
                 {"Word", LLM__CATS_WORD, LLM__RX_CIRCLED},
                 {"AnyWord", LLM__CATS_WORD | LLM__CATS_N, LLM__RX_CIRCLED},
                 {"XDigit", 0, LLM__RX_HEX}};
    for (int i = 0; i < LLM__COUNT(known); i++) {
        llm__str one;
        for (const char *names = known[i].names; llm__list_next(&names, " ", &one);) {
            if (!llm__uni_same_name(name, one)) continue;
            out->cats = known[i].cats;
            out->range = ranges[known[i].ranges].range;
            out->n_ranges = ranges[known[i].ranges].n;
            return 1;
        }
    }
    return 0;
}

/* A property by a name: of a category, of a class, of a script, which may have "Script=" before it. 0: unknown. */
static int llm__rx_meaning_of(llm__str name, llm__rx_meaning *out) {
    static const char *const prefix[] = {"Script=", "sc=", "Is", "script="};
    out->script = -1;
    out->n_ranges = 0;
    if ((out->cats = llm__rx_category(name)) != 0 || llm__rx_named(name, out)) return 1;
    for (int i = 0; i < LLM__COUNT(prefix); i++)
        if (llm__starts(name, llm__lit(prefix[i]))) name = llm__str_from(name, strlen(prefix[i]));
    return (out->script = llm__uni_script_find(name)) >= 0;
}

/* Adds the code points below `end` that have a property, or all that have it not. 0: the property is unknown. */
static int llm__rx_property(llm__str name, int invert, int32_t end, llm__set *out) {
    const int32_t within[2] = {0, end};
    llm__rx_meaning m = LLM__ZERO;
    llm__set s = LLM__ZERO;
    if (!llm__rx_meaning_of(name, &m)) return 0;
    if (m.cats) llm__set_runs(&s, llm__uni_cats, LLM__COUNT(llm__uni_cats), 5, m.cats, 0);
    if (m.script >= 0) llm__set_runs(&s, llm__uni_scripts, LLM__COUNT(llm__uni_scripts), 8, 0, (uint32_t)m.script);
    for (int i = 0; i < m.n_ranges; i++) llm__set_add(&s, m.range[i][0], m.range[i][1]);
    llm__set_combine(&s, within, 2, LLM__SET_AND);
    llm__set_merge(out, &s, invert ? LLM__SET_OR_NOT : LLM__SET_OR);
    return 1;
}

/* A number of at most `most` digits in a base; -1 if there is none or it is too large. */
static int32_t llm__rx_number(llm__rx_parser *p, int base, int most) {
    int32_t v = 0;
    int digits = 0;
    for (; digits < most; digits++, p->at++) {
        int d = p->at < p->n ? llm__hex(p->s[p->at]) : -1;
        if (d < 0 || d >= base) break;
        if (v > 0x110000) return -1;
        v = v * base + d;
    }
    return digits ? v : -1;
}

/* After a backslash: 1 a code point in *c, 2 a property was added to `set`, 0 an error. */
static int llm__rx_escape(llm__rx_parser *p, int32_t *c, llm__set *set) {
    static const char from[] = "nrtfvae0", to[] = "\n\r\t\f\v\a\033";
    static const struct {
        char c;
        const char *property, *widest;
    } classes[] = {{'d', "Nd", "Nd"}, {'s', "space", "AnySpace"}, {'w', "word", "AnyWord"}, {'h', "xdigit", "xdigit"}};
    if (p->at >= p->n) return llm__rx_bad(p, "a character after the backslash");
    int32_t e = llm__uni_next(llm__s(p->s, p->n), &p->at);
    const char *at = e < 128 && e ? strchr(from, e) : NULL;
    int invert = e >= 'A' && e <= 'Z', widest = p->classes == (invert ? LLM__RX_NARROWEST : LLM__RX_WIDEST);
    int32_t class_end = p->classes == LLM__RX_UNICODE || widest ? 0x110000 : 128;
    *c = at ? to[at - from] : e;
    if (at) return 1;
    if (e == 'x' || e == 'u') {
        int brace = llm__rx_take(p, "{");
        *c = llm__rx_number(p, 16, brace ? 8 : e == 'x' ? 2 : 4);
        if (*c < 0 || *c > 0x10FFFF || (brace && !llm__rx_take(p, "}"))) return llm__rx_bad(p, "hexadecimal digits of a code point");
        return 1;
    }
    for (int i = 0; i < LLM__COUNT(classes); i++)
        if ((e | 32) == classes[i].c) {
            llm__rx_property(llm__lit(widest ? classes[i].widest : classes[i].property), invert, class_end, set);
            return 2;
        }
    if (e == 'p' || e == 'P') { /* one letter, or a name in braces */
        int brace = llm__rx_take(p, "{");
        size_t begin = p->at, end = begin + (begin < p->n);
        if (brace)
            for (end = begin; end < p->n && p->s[end] != '}';) end++;
        p->at = LLM__MIN(p->n, end + (size_t)brace);
        if (begin < end && p->s[begin] == '^') begin++, invert = !invert;
        if (begin < end && llm__rx_property(llm__s(p->s + begin, end - begin), invert, 0x110000, set)) return 2;
        return llm__rx_fail(p, LLM_ERR_UNSUPPORTED, "a known Unicode property");
    }
    if ((e >= '0' && e <= '9') || (e < 128 && (e | 32) >= 'a' && (e | 32) <= 'z'))
        return llm__rx_fail(p, LLM_ERR_UNSUPPORTED, "an escape that is known (no back-references)");
    return 1;
}

static llm__set llm__rx_class(llm__rx_parser *p);

/* One item of a class: [:name:], a nested class, a set, a character or a range. */
static void llm__rx_class_item(llm__rx_parser *p, llm__set *out) {
    int32_t c = 0, to;
    if (llm__rx_take(p, "[:")) {
        int invert = llm__rx_take(p, "^");
        size_t from = p->at;
        while (p->at < p->n && p->s[p->at] != ':') p->at++;
        llm__str name = llm__s(p->s + from, p->at - from);
        if (llm__str_eq(name, "punct")) name = llm__lit("PosixPunct");
        if (!llm__rx_property(name, invert, 0x110000, out) || !llm__rx_take(p, ":]")) llm__rx_bad(p, "a known class name");
        return;
    }
    if (llm__rx_take(p, "[")) {
        llm__set inner = llm__rx_class(p);
        llm__set_merge(out, &inner, LLM__SET_OR);
        return;
    }
    if (!llm__rx_take(p, "\\")) c = llm__uni_next(llm__s(p->s, p->n), &p->at);
    else if (llm__rx_take(p, "b")) c = 8;
    else if (llm__rx_escape(p, &c, out) != 1) return;
    to = c;
    size_t left = p->n - p->at;
    if (left > 1 && p->s[p->at] == '-' && p->s[p->at + 1] != ']' && memcmp(p->s + p->at, "-&&", LLM__MIN(left, (size_t)3))) {
        p->at++;
        if (!llm__rx_take(p, "\\")) to = llm__uni_next(llm__s(p->s, p->n), &p->at);
        else if (llm__rx_escape(p, &to, out) != 1) llm__rx_bad(p, "a character at the end of a range");
        if (to < c) llm__rx_bad(p, "a range in ascending order");
    }
    if (!p->error) llm__set_add(out, c, to);
}

/* A class, after its '['; takes the ']'. The set is the caller's. A ']' that comes first is a character. && cuts what is before with what
 * is after, and binds weaker than writing items side by side. Case is folded before ^ inverts, so that (?i)[^k] excludes U+212A too. */
static llm__set llm__rx_class(llm__rx_parser *p) {
    llm__set all = LLM__ZERO, part = LLM__ZERO; /* the parts before the last &&, the part under way */
    int invert = llm__rx_take(p, "^"), how = LLM__SET_OR;
    const llm__rx_classes outside = p->classes;
    if (invert) p->classes = llm__rx_opposite(outside);
    if (++p->depth > LLM__RX_MAX_DEPTH) llm__rx_fail(p, LLM_ERR_LIMIT, "shallower nesting");
    for (int items = 0, close = 0; p->at < p->n && !close; items++) {
        close = items && p->s[p->at] == ']';
        if (items > 4096 || all.work + part.work > LLM__RX_MAX_WORK) llm__rx_fail(p, LLM_ERR_LIMIT, "fewer items in a class");
        if (!close && !llm__rx_take(p, "&&")) {
            llm__rx_class_item(p, &part);
            continue;
        }
        if (p->any_case) llm__set_any_case(&part);
        llm__set_merge(&all, &part, how);
        how = LLM__SET_AND;
        memset(&part, 0, sizeof part);
    }
    if (!llm__rx_take(p, "]")) llm__rx_bad(p, "']'");
    if (invert) llm__set_combine(&all, NULL, 0, LLM__SET_NOT);
    p->classes = outside;
    p->depth--;
    LLM_FREE(part.v);
    return all;
}

static int llm__rx_alternatives(llm__rx_parser *p);

/* Flags "i", "m", "s", "-i" after "(?". 1: a colon followed, so they hold for this group only. */
static int llm__rx_flags(llm__rx_parser *p) {
    int on = 1;
    for (int c; (c = llm__rx_peek(p)) >= 0;) {
        p->at++;
        if (c == '-') on = 0;
        else if (c == 'i') p->any_case = on;
        else if (c == 'm' || c == 's') p->dot_all = on;
        else if (c == ':') return 1;
        else if (c == ')') return 0;
        else break;
    }
    return llm__rx_fail(p, LLM_ERR_UNSUPPORTED, "a kind of group that is known");
}

/* A group, after its '('. Nothing is captured, so a plain or named group leaves no trace in the program; LOOK and ATOMIC enclose their
 * body, which ends in MATCH. Flags that a group sets end with it. Returns its least length: 0 or 1, all that loops need to know. */
static int llm__rx_group(llm__rx_parser *p) {
    static const struct {
        const char *text;
        llm__rx_op op;
        uint8_t mode;
    } kinds[] = {{"?=", LLM__RX_LOOK, 0},
                 {"?!", LLM__RX_LOOK, LLM__RX_NOT},
                 {"?<=", LLM__RX_LOOK, LLM__RX_BEHIND},
                 {"?<!", LLM__RX_LOOK, LLM__RX_BEHIND | LLM__RX_NOT},
                 {"?>", LLM__RX_ATOMIC, 0},
                 {"?:", LLM__RX_MATCH, 0}};
    int any_case = p->any_case, dot_all = p->dot_all, kind = -1, least;
    const llm__rx_classes outside = p->classes;
    size_t from = p->re->n;
    if (++p->depth > LLM__RX_MAX_DEPTH) return llm__rx_fail(p, LLM_ERR_LIMIT, "shallower nesting");
    for (int i = 0; kind < 0 && i < LLM__COUNT(kinds); i++)
        if (llm__rx_take(p, kinds[i].text)) kind = i;
    if (kind < 0 && (llm__rx_take(p, "?<") || llm__rx_take(p, "?P<"))) { /* a named group */
        while (p->at < p->n && p->s[p->at] != '>') p->at++;
        if (!llm__rx_take(p, ">")) return llm__rx_bad(p, "'>'");
    } else if (kind < 0 && llm__rx_take(p, "?") && !llm__rx_flags(p)) { /* (?i) holds up to the end of the group around it */
        p->depth--;
        return 0;
    }
    int special = kind >= 0 && kinds[kind].op != LLM__RX_MATCH;
    if (special && llm__rx_emit(p, kinds[kind].op, 0)) p->re->code[from].mode = kinds[kind].mode;
    if (special && kinds[kind].mode & LLM__RX_NOT) p->classes = llm__rx_opposite(outside);
    least = llm__rx_alternatives(p);
    p->classes = outside;
    if (special && llm__rx_emit(p, LLM__RX_MATCH, 0)) {
        p->re->code[from].x = (int32_t)(p->re->n - from);
        if (kinds[kind].op == LLM__RX_LOOK) least = 0;
    }
    if (!llm__rx_take(p, ")")) llm__rx_bad(p, "')'");
    p->any_case = any_case;
    p->dot_all = dot_all;
    p->depth--;
    return least;
}

/* One thing that a quantifier may follow: a group, an edge, a class, an escape, a character. Returns its least length: 0 or 1. */
static int llm__rx_atom(llm__rx_parser *p) {
    static const struct {
        char c;
        llm__rx_op op;
    } edges[] = {{'A', LLM__RX_TEXT_BEGIN},
                 {'z', LLM__RX_TEXT_END},
                 {'Z', LLM__RX_TEXT_END_LINE},
                 {'b', LLM__RX_WORD_EDGE},
                 {'B', LLM__RX_NO_WORD_EDGE}};
    static const int32_t latin[] = {0xB2, 0xB4, 0xB9, 0xBA, 0xBC, 0xBF}; /* Latin-1's numbers: to Oniguruma \w has them, [\w] has not */
    int32_t c = llm__uni_next(llm__s(p->s, p->n), &p->at);
    if (c == '(') return llm__rx_group(p);
    if (c == '^' || c == '$') return llm__rx_emit(p, c == '^' ? LLM__RX_LINE_BEGIN : LLM__RX_LINE_END, 0), 0;
    if (c == '*' || c == '+' || c == '?') return llm__rx_bad(p, "something to repeat");
    for (int i = 0; c == '\\' && i < LLM__COUNT(edges); i++)
        if (llm__rx_peek(p) == edges[i].c) return p->at++, llm__rx_emit(p, edges[i].op, 0), 0;
    int kind = c == '[' || c == '.' ? 2 : 1;
    llm__set s = LLM__ZERO;
    if (c == '[') s = llm__rx_class(p);
    else if (c == '\\') kind = llm__rx_escape(p, &c, &s);
    else if (c == '.') llm__set_add(&s, 0, p->dot_all ? 0x10FFFF : '\n' - 1), llm__set_add(&s, '\n' + 1, 0x10FFFF);
    if (kind == 2 && c == 'w' && p->classes == LLM__RX_UNICODE) llm__set_combine(&s, latin, LLM__COUNT(latin), LLM__SET_OR);
    if (kind == 2 && c == 'W' && p->classes == LLM__RX_UNICODE) llm__set_combine(&s, latin, LLM__COUNT(latin), LLM__SET_ONLY);
    if (kind == 1 && p->any_case) llm__set_add_any_case(&s, c);
    else if (kind == 1) llm__set_add(&s, c, c);
    llm__rx_emit_set(p, s);
    return 1;
}

/* Appends a copy of the n instructions from `block` on. */
static void llm__rx_copy(llm__rx_parser *p, size_t block, size_t n) {
    llm__rx_code *to = llm__rx_open(p, p->re->n, n);
    if (to && n) memcpy(to, p->re->code + block, n * sizeof *to);
}

/* Makes the instruction at `at` a SPLIT between going on and leaving; the preferred way comes first. */
static void llm__rx_set_split(llm__rx_parser *p, size_t at, size_t on, size_t out, int lazy) {
    if (p->error) return;
    p->re->code[at].op = LLM__RX_SPLIT;
    p->re->code[at].x = (int32_t)(lazy ? out : on) - (int32_t)at;
    p->re->code[at].y = (int32_t)(lazy ? on : out) - (int32_t)at;
}

/* Makes block*, of the block at `at` up to the end: SPLIT block JUMP. One that may match nothing would loop for ever, so its begin is kept
 * in a register (MARK), and a turn that did not move (CHECK) leaves the loop. */
static void llm__rx_star(llm__rx_parser *p, size_t at, int empty, int lazy) {
    int reg = p->re->n_regs;
    if (empty && reg >= LLM__RX_MAX_REGS) llm__rx_fail(p, LLM_ERR_LIMIT, "fewer nested loops");
    llm__rx_code *c = llm__rx_open(p, at, empty ? 2 : 1);
    if (c && empty) {
        c[1].op = LLM__RX_MARK;
        c[1].x = reg;
        p->re->n_regs++;
        if ((c = llm__rx_emit(p, LLM__RX_CHECK, reg)) != NULL) c->y = 2;
    }
    llm__rx_emit(p, LLM__RX_JUMP, (int32_t)at - (int32_t)p->re->n);
    llm__rx_set_split(p, at, at + 1, p->re->n, lazy);
}

/* Repeats what was emitted since `from`: one SET becomes a LOOP, unless lazy; else the block is copied as often as it must match, and a
 * loop or a chain of SPLITs follows. least: the block's least length.
 *
 *     (ab)*        0 SPLIT 1 or 4   1 a   2 b   3 JUMP 0
 *     (ab)+        0 a   1 b   2 SPLIT 0 or 3
 *     (ab){1,3}    0 a   1 b   2 SPLIT 3 or 8   3 a   4 b   5 SPLIT 6 or 8   6 a   7 b */
static void llm__rx_repeat(llm__rx_parser *p, size_t from, int least, int min, int max, int mode) {
    llm__regex *re = p->re;
    size_t n = re->n - from, block = from;
    int lazy = mode == LLM__RX_LAZY;
    if (n == 1 && !lazy && re->code[from].op == LLM__RX_SET) {
        llm__rx_code *c = &re->code[from];
        c->op = LLM__RX_LOOP;
        c->mode = (uint8_t)mode;
        c->min = min;
        c->max = max;
        return;
    }
    if (mode == LLM__RX_POSSESSIVE && llm__rx_open(p, block++, 1)) re->code[from].op = LLM__RX_ATOMIC;
    for (int i = 1; i < min; i++) llm__rx_copy(p, block, n);
    if (max < 0 && min && least) { /* one that takes at least one character goes back to itself */
        llm__rx_emit(p, LLM__RX_SPLIT, 0);
        llm__rx_set_split(p, re->n - 1, re->n - 1 - n, re->n, lazy);
    } else if (max < 0) {
        if (min) llm__rx_copy(p, block, n);
        llm__rx_star(p, re->n - n, !least, lazy);
    } else if (!max) {
        re->n = block;
    }
    /* Each of the turns that may be left out leaves to the end of all, so that one decision ends the chain. */
    for (int i = min; i < max && !p->error; i++) {
        if (i) llm__rx_copy(p, block, n);
        size_t at = re->n - n;
        llm__rx_open(p, at, 1);
        llm__rx_set_split(p, at, at + 1, at + (size_t)(max - i) * (n + 1), lazy);
        block += !i;
    }
    if (mode == LLM__RX_POSSESSIVE && llm__rx_emit(p, LLM__RX_MATCH, 0)) re->code[from].x = (int32_t)(re->n - from);
}

/* A quantifier, if one stands here: *min, *max (-1: any number) and *mode. A brace that does not make a count is a plain character, as in
 * Oniguruma; a + after a count repeats it and is not possessive. 0: none, or an error was noted. */
static int llm__rx_quantifier(llm__rx_parser *p, int *min, int *max, int *mode) {
    int c = llm__rx_peek(p);
    size_t from = p->at;
    if (c != '*' && c != '+' && c != '?' && c != '{') return 0;
    p->at++;
    *min = c == '+';
    *max = c == '?' ? 1 : -1;
    if (c == '{') {
        *min = *max = llm__rx_number(p, 10, 9);
        if (llm__rx_take(p, ",")) *max = llm__rx_number(p, 10, 9);
        if (!llm__rx_take(p, "}") || (*min < 0 && *max < 0)) return p->at = from, 0; /* a plain brace */
        *min = LLM__MAX(*min, 0);
        if (*min > LLM__RX_MAX_COUNT || *max > LLM__RX_MAX_COUNT) return llm__rx_fail(p, LLM_ERR_LIMIT, "a smaller count");
        if (*max >= 0 && *max < *min) return llm__rx_bad(p, "a count in ascending order");
    }
    *mode = llm__rx_take(p, "?") ? LLM__RX_LAZY : c != '{' && llm__rx_take(p, "+") ? LLM__RX_POSSESSIVE : LLM__RX_GREEDY;
    return 1;
}

/* Alternatives up to ')' or the end: SPLIT first JUMP SPLIT second JUMP ... last. Returns the least length of any: 0 or 1. */
static int llm__rx_alternatives(llm__rx_parser *p) {
    int least = 1;
    int32_t jumps = -1; /* those to patch: each x is the one before */
    for (;;) {
        size_t start = p->re->n;
        int sum = 0;
        while (p->at < p->n && p->s[p->at] != '|' && p->s[p->at] != ')') {
            size_t from = p->re->n;
            int one = llm__rx_atom(p), min = 0, max = 0, mode = 0;
            for (int times = 0; !p->error && llm__rx_quantifier(p, &min, &max, &mode); times++) {
                if (times && p->classes != LLM__RX_UNICODE) llm__rx_bad(p, "fewer quantifiers in a row");
                else if (times > 8) llm__rx_fail(p, LLM_ERR_LIMIT, "fewer quantifiers in a row");
                else if (p->re->n > from) llm__rx_repeat(p, from, one, min, max, mode);
                one = one && min;
            }
            sum |= one;
        }
        least &= sum;
        if (!llm__rx_take(p, "|")) break;
        /* Another one follows: a SPLIT in front of this one, a JUMP behind it, whose target is not known yet. Distances inside do not
         * change. */
        if (!llm__rx_open(p, start, 1) || !llm__rx_emit(p, LLM__RX_JUMP, jumps)) break;
        jumps = (int32_t)p->re->n - 1;
        llm__rx_set_split(p, start, start + 1, p->re->n, 0);
    }
    while (!p->error && jumps >= 0) {
        int32_t next = p->re->code[jumps].x;
        p->re->code[jumps].x = (int32_t)p->re->n - jumps;
        jumps = next;
    }
    return least;
}

/* Fills code[].first, a data-flow analysis: what can come first at an instruction is what it takes itself, or, if it may take nothing,
 * what can come first at those that follow. Backwards, so that what follows is mostly known; again until nothing changes, for the sake of
 * jumps back. Edges and look-arounds count as if they held. The sets only grow, so it ends. */
static void llm__rx_find_first(llm__regex *re) {
    for (int changed = 1; changed;) {
        changed = 0;
        for (size_t pc = re->n; pc-- > 0;) {
            llm__rx_code *c = &re->code[pc];
            int op = c->op, jumps = op == LLM__RX_SPLIT || op == LLM__RX_JUMP || op == LLM__RX_LOOK;
            int consumes = op == LLM__RX_SET || op == LLM__RX_MATCH || (op == LLM__RX_LOOP && c->min);
            const llm__rx_code *next = c + (jumps ? c->x : 1), *other = op == LLM__RX_SPLIT || op == LLM__RX_CHECK ? c + c->y : next;
            for (int i = 0; i < 4; i++) {
                uint32_t first = op == LLM__RX_MATCH ? UINT32_MAX : c->ascii[i];
                if (!consumes) first |= next->first[i] | other->first[i];
                changed |= first != c->first[i];
                c->first[i] = first;
            }
        }
    }
}

LLM__PRIVATE void llm__regex_close(llm__regex *re) {
    if (!re) return;
    LLM_FREE(re->code);
    LLM_FREE(re->change);
    LLM_FREE(re);
}

LLM__PRIVATE llm_result llm__regex_compile(const char *pattern, size_t len, llm__rx_classes classes, llm__regex **out) {
    llm__rx_parser p = LLM__ZERO;
    *out = NULL;
    p.s = pattern;
    p.n = len;
    p.classes = classes;
    if (len > LLM__RX_MAX_PATTERN) return llm__error(LLM_ERR_LIMIT, "regex: %zu bytes, at most %d expected", len, LLM__RX_MAX_PATTERN);
    size_t valid = llm__utf8_valid(pattern, len);
    if (valid < len) return llm__error(LLM_ERR_FORMAT, "regex: byte %zu: valid UTF-8 expected", valid);
    llm__regex *re = p.re = LLM__NEW(llm__regex, 1);
    if (!re) return llm__nomem();
    llm__rx_alternatives(&p);
    if (!p.error && p.at < p.n) llm__rx_bad(&p, "'(' before ')'");
    llm__rx_emit(&p, LLM__RX_MATCH, 0);
    if (p.error) {
        llm__regex_close(re);
        return p.result == LLM_ERR_NOMEM
                   ? llm__nomem()
                   : llm__error(p.result, "regex \"%.*s\": %s expected", (int)LLM__MIN(len, (size_t)60), pattern, p.error);
    }
    llm__rx_find_first(re);
    *out = re;
    return LLM_OK;
}

LLM__PRIVATE int32_t llm__rx_lead(const llm__regex *re) {
    int32_t pc = re->n && (re->code[0].op == LLM__RX_LINE_BEGIN || re->code[0].op == LLM__RX_TEXT_BEGIN);
    while (pc && re->code[pc].op == LLM__RX_LOOK && !(re->code[pc].mode & LLM__RX_BEHIND)) pc += re->code[pc].x;
    return pc;
}

LLM__PRIVATE llm_result llm__regex_open(const char *pattern, size_t len, llm__regex **out) {
    return llm__regex_compile(pattern, len, LLM__RX_UNICODE, out);
}
