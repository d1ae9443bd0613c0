#include "grammar/gbnf.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "base/json.h"
#include "text/unicode_classes.h"
#include "text/regex.h"
#include "grammar/machine.h"
#include "grammar/grammar_regex.h"

typedef struct llm__gr_bnf {
    llm__gr_build *b;
    const char *s;
    size_t n, at;
    int depth;
    llm__map rules; /* name -> instruction */
} llm__gr_bnf;

/* Notes the first error, with the place, and goes to the end of the text, which ends every loop. */
static llm__gr_frag llm__bnf_bad(llm__gr_bnf *p, const char *expected) {
    if (!p->b->failed) p->b->failed = llm__error(LLM_ERR_FORMAT, "grammar: byte %zu: %s expected", p->at, expected);
    p->at = p->n;
    return llm__gr_never;
}

/* 1 if c may stand in the name of a rule. */
static int llm__bnf_name_char(int c) { return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '-' || c == '_'; }

/* Skips white space, line ends and comments (# to the end of the line). */
static void llm__bnf_space(llm__gr_bnf *p) {
    for (; p->at < p->n; p->at++) {
        if (p->s[p->at] == '#')
            while (p->at < p->n && p->s[p->at] != '\n') p->at++;
        if (p->at >= p->n || !strchr(" \t\r\n", p->s[p->at]) || !p->s[p->at]) break;
    }
}

/* The name that stands here; n 0: none. */
static llm__str llm__bnf_name(const llm__gr_bnf *p) {
    size_t end = p->at;
    while (end < p->n && llm__bnf_name_char((unsigned char)p->s[end])) end++;
    return llm__s(p->s + p->at, end - p->at);
}

/* 1 if `name ::=` stands here. */
static int llm__bnf_at_rule(const llm__gr_bnf *p) {
    size_t at = p->at + llm__bnf_name(p).n;
    if (at == p->at) return 0;
    while (at < p->n && (p->s[at] == ' ' || p->s[at] == '\t')) at++;
    return p->n - at >= 3 && !memcmp(p->s + at, "::=", 3);
}

/* The rule of a name, made when it is first used or defined, whichever comes first. */
static int32_t llm__bnf_rule(llm__gr_bnf *p, llm__str name) {
    int32_t rule = llm__map_get(&p->rules, name);
    if (rule >= 0 || p->b->failed) return rule;
    rule = llm__gr_rule(p->b);
    if (!p->b->failed && llm__map_put(&p->rules, name, rule) < 0) p->b->failed = llm__nomem();
    return rule;
}

/* One character of a literal or class, escapes understood; 0 after an error. \xHH, \uHHHH and \UHHHHHHHH are code points here. */
static int32_t llm__bnf_char(llm__gr_bnf *p) {
    static const char from[] = "nrt\"'\\[]-^/", to[] = "\n\r\t\"'\\[]-^/";
    int32_t c = llm__uni_next(llm__s(p->s, p->n), &p->at);
    if (c != '\\') return c;
    int kind = p->at < p->n ? p->s[p->at++] : 0, digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    const char *at = kind ? strchr(from, kind) : NULL;
    if (at) return to[at - from];
    if (!digits) return llm__bnf_bad(p, "an escape: n r t x u U or a quote, backslash or bracket"), 0;
    c = llm__hex_digits(p->s + p->at, p->n - p->at, (size_t)digits);
    if (c < 0 || c > 0x10FFFF) return llm__bnf_bad(p, "hexadecimal digits of a code point"), 0;
    p->at += (size_t)digits;
    return c;
}

/* A literal, behind its opening quote; takes the closing one. */
static llm__gr_frag llm__bnf_literal(llm__gr_bnf *p, char quote) {
    llm__gr_frag f = llm__gr_empty(p->b);
    char bytes[4];
    while (p->at < p->n && p->s[p->at] != quote && !p->b->failed) {
        int hex = p->at + 1 < p->n && p->s[p->at] == '\\' && p->s[p->at + 1] == 'x'; /* \xHH is a byte, all else code points */
        int32_t c = llm__bnf_char(p);
        bytes[0] = (char)c;
        f = llm__gr_seq(p->b, f, llm__gr_text(p->b, llm__s(bytes, hex ? 1 : (size_t)llm__utf8_put(bytes, c))));
    }
    if (p->at++ >= p->n) return llm__bnf_bad(p, "the closing quote");
    return f;
}

/* A class, behind its '['; takes the ']'. A '-' that is first or last stands for itself. */
static llm__gr_frag llm__bnf_class(llm__gr_bnf *p) {
    llm__set s = LLM__ZERO;
    int invert = p->at < p->n && p->s[p->at] == '^';
    p->at += (size_t)invert;
    for (int items = 0; p->at < p->n && p->s[p->at] != ']' && !p->b->failed; items++) {
        int32_t lo = llm__bnf_char(p), hi = lo;
        if (p->at + 1 < p->n && p->s[p->at] == '-' && p->s[p->at + 1] != ']') p->at++, hi = llm__bnf_char(p);
        if (hi < lo) llm__bnf_bad(p, "a range in ascending order");
        else if (items > 2048) llm__bnf_bad(p, "at most 2048 items in a class");
        else llm__set_add(&s, lo, hi);
    }
    if (p->at++ >= p->n) llm__bnf_bad(p, "']'");
    if (invert) llm__set_combine(&s, NULL, 0, LLM__SET_NOT);
    return llm__gr_set(p->b, &s);
}

/* A count in braces, -1 if there is none; more than 31 bits count as the most. */
static int32_t llm__bnf_count(llm__gr_bnf *p) {
    int64_t v = -1;
    for (; p->at < p->n && p->s[p->at] >= '0' && p->s[p->at] <= '9'; p->at++)
        v = LLM__MIN((v < 0 ? 0 : v) * 10 + p->s[p->at] - '0', INT32_MAX);
    llm__bnf_space(p);
    return (int32_t)v;
}

/* The quantifiers behind an item. A count makes one REPEAT, whatever its size. Several in a row apply one after the other: a{2}{3} is six
 * a, by two REPEATs, one within the other. */
static llm__gr_frag llm__bnf_repeat(llm__gr_bnf *p, llm__gr_frag f) {
    for (int times = 0; p->at < p->n && strchr("*+?{", p->s[p->at]) && p->s[p->at] && !p->b->failed; times++) {
        char c = p->s[p->at++];
        int32_t min = c == '+', max = c == '?' ? 1 : -1;
        if (times > 8) return llm__bnf_bad(p, "at most 8 quantifiers in a row");
        if (c == '{') {
            llm__bnf_space(p);
            min = max = llm__bnf_count(p);
            if (p->at < p->n && p->s[p->at] == ',') {
                p->at++;
                llm__bnf_space(p);
                max = llm__bnf_count(p);
                if (min < 0) min = max < 0 ? -1 : 0;
            }
            if (p->at >= p->n || p->s[p->at++] != '}' || min < 0 || (max >= 0 && max < min))
                return llm__bnf_bad(p, "{n}, {n,}, {n,m} or {,m}");
        }
        f = llm__gr_repeat(p->b, f, min, max);
        llm__bnf_space(p);
    }
    return f;
}

/* Alternatives up to ')', the next rule, or the end. A line end means nothing by itself: a rule goes on until the next one begins. */
static llm__gr_frag llm__bnf_alternatives(llm__gr_bnf *p) {
    llm__gr_build *b = p->b;
    llm__gr_frag all = llm__gr_never;
    if (++p->depth > 200) return llm__bnf_bad(p, "at most 200 nested groups");
    for (;;) {
        llm__gr_frag f = llm__gr_empty(b);
        for (llm__bnf_space(p); p->at < p->n && p->s[p->at] != '|' && p->s[p->at] != ')' && !b->failed && !llm__bnf_at_rule(p);
             llm__bnf_space(p)) {
            char c = p->s[p->at];
            llm__str name = llm__bnf_name(p);
            llm__gr_frag one = llm__gr_never;
            p->at += name.n ? name.n : 1;
            if (name.n) one = llm__gr_call(b, llm__bnf_rule(p, name));
            else if (c == '"' || c == '\'') one = llm__bnf_literal(p, c);
            else if (c == '[') one = llm__bnf_class(p);
            else if (c == '.') one = llm__gr_chars(b, llm__gr_all, 2);
            else if (c == '(') {
                one = llm__bnf_alternatives(p);
                if (p->at >= p->n || p->s[p->at++] != ')') return llm__bnf_bad(p, "')'");
            } else return p->at--, llm__bnf_bad(p, "a rule's name, a literal, a class, '.', '(' or '|'");
            llm__bnf_space(p);
            f = llm__gr_seq(b, f, llm__bnf_repeat(p, one));
        }
        all = llm__gr_alt(b, all, f);
        if (p->at >= p->n || p->s[p->at] != '|' || b->failed) break;
        p->at++;
    }
    p->depth--;
    return all;
}

LLM__PRIVATE llm__gr_frag llm__gr_bnf_frag(llm__gr_build *b, llm__str text) {
    llm__gr_bnf p = LLM__ZERO;
    p.b = b, p.s = text.p, p.n = text.n;
    for (llm__bnf_space(&p); p.at < p.n && !b->failed; llm__bnf_space(&p)) {
        if (!llm__bnf_at_rule(&p)) {
            llm__bnf_bad(&p, "a rule: name ::= ... (GBNF; Lark grammars are not understood)");
            break;
        }
        llm__str name = llm__bnf_name(&p);
        int32_t rule = llm__bnf_rule(&p, name);
        p.at += name.n;
        llm__bnf_space(&p);
        p.at += 3;
        if (!b->failed && b->g->op[rule].next >= 0) llm__bnf_bad(&p, "every rule once (this one is there already)");
        if (!b->failed) llm__gr_rule_is(b, rule, llm__bnf_alternatives(&p));
        if (!b->failed && p.at < p.n && p.s[p.at] == ')') llm__bnf_bad(&p, "'(' before ')'");
    }
    for (size_t i = 0; i < p.rules.cap && !b->failed; i++) {
        llm__str name = p.rules.slot[i].key;
        if (name.p && b->g->op[p.rules.slot[i].value].next < 0)
            b->failed =
                llm__error(LLM_ERR_FORMAT, "grammar: rule \"%.*s\" is used, but not there", (int)LLM__MIN(name.n, (size_t)100), name.p);
    }
    int32_t root = llm__map_get(&p.rules, llm__s("root", 4));
    if (root < 0 && !b->failed) b->failed = llm__error(LLM_ERR_FORMAT, "grammar: a rule named \"root\" expected");
    llm__map_free(&p.rules);
    return b->failed ? llm__gr_never : llm__gr_call(b, root);
}
