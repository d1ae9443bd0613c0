#include "chat/lexer.h"
#include "api/config.h"
#include "api/template.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/number.h"
#include "base/text.h"
#include "base/map.h"
#include "base/json.h"
#include "chat/template.h"
#include "chat/values.h"

static const char llm__tpl_words[] = "or and not in is true True false False none None if elif else endif for endfor set endset macro "
                                     "endmacro filter endfilter generation endgeneration break continue loop call endcall caller";

static const char *const llm__tpl_levels[] = {"O", "A", "!", "EN<>GLI", "+-", "~", "*/D%", "P"};

/* Moves on, counting lines. */
static void llm__lex_skip(llm__tpl *x, size_t n) {
    for (; n && x->source.n; n--, x->source = llm__str_from(x->source, 1)) x->line += x->source.p[0] == '\n';
}

static void llm__lex_spaces(llm__tpl *x) { llm__lex_skip(x, x->source.n - llm__tpl_trim(x->source, 1).n); }

/* The number of a word. Names are numbered as they are met; 16 bits are what a value's tag holds. */
static uint16_t llm__lex_number_of(llm__tpl *x, llm__str word) {
    llm__map *names = &x->made->names;
    int32_t id = llm__map_get(names, word);
    if (id < 0) {
        id = (int32_t)names->len + 1;
        if (id > UINT16_MAX) llm__tpl_fail(x, "too many different names");
        if (llm__map_put(names, word, id) < 0) llm__tpl_error(x, LLM_ERR_NOMEM, "out of memory");
    }
    return (uint16_t)id;
}

/* Adds a token with its value. */
static llm__tpl_token *llm__lex_push(llm__tpl *x, char type, llm__val v) {
    llm_template *t = x->made;
    if (t->n_tok == INT32_MAX || !llm__grow((void **)&t->tok, &t->cap_tok, t->n_tok + 1, sizeof *t->tok))
        llm__tpl_error(x, LLM_ERR_NOMEM, "out of memory");
    llm__tpl_token *k = &t->tok[t->n_tok++];
    memset(k, 0, sizeof *k);
    k->type = type;
    k->line = x->line;
    k->v = v;
    return k;
}

/* The end of a tag or comment. Consumes what closes it, `len` bytes, and the white space that belongs to it: all after '-'; with `trim` a
 * line feed, unless after '+'. */
static void llm__lex_close(llm__tpl *x, size_t len, char sign, int trim) {
    llm__lex_skip(x, len);
    if (sign == '-') llm__lex_spaces(x);
    else if (trim && sign != '+' && x->source.p[0] == '\n') llm__lex_skip(x, 1);
}

/* The text s before a tag, without the white space that the tag takes: all before '-'; for blocks and comments what stands between the
 * begin of their line and them, unless '+'. */
static llm__str llm__lex_before(llm__str s, char sign, int block) {
    if (sign == '-') return llm__tpl_trim(s, 2);
    if (sign == '+' || !block) return s;
    size_t start = s.n;
    while (start && s.p[start - 1] != '\n') start--;
    /* Where the text begins a line begins, unless something was consumed before it in the same line. */
    if ((start || s.p[-1] == '\n') && !llm__tpl_trim(llm__str_from(s, start), 1).n) s.n = start;
    return s;
}

/* The end of digits from i on. */
static size_t llm__lex_digits(const char *s, size_t i) {
    while (llm__tpl_digit(s[i])) i++;
    return i;
}

/* A number; a whole one may be of any length, and 007 is one. Behind a '.' stands an index (x.0.1), never a fraction; an e that no digit
 * follows is the begin of a name. */
static void llm__lex_number(llm__tpl *x) {
    const char *s = x->source.p;
    size_t i = llm__lex_digits(s, 0), e, whole = i;
    llm__val v = llm__v_float(0);
    if (s[i] == '.' && llm__tpl_digit(s[i + 1]) && s[-1] != '.') i = llm__lex_digits(s, i + 1);
    e = i + 1 + ((s[i] | 32) == 'e' && (s[i + 1] == '+' || s[i + 1] == '-'));
    if ((s[i] | 32) == 'e' && llm__tpl_digit(s[e])) i = llm__lex_digits(s, e);
    llm__str text = llm__s(s, i);
    while (i == whole && text.n > 1 && text.p[0] == '0') text = llm__str_from(text, 1);
    if (i == whole) v = llm__v_digits(text);
    else llm__parse_double(text.p, text.n, &v.as.f);
    llm__lex_push(x, i == whole ? 'i' : 'f', v);
    llm__lex_skip(x, i);
}

/* A text literal; those that follow each other become one. */
static void llm__lex_string(llm__tpl *x) {
    llm_template *t = x->made;
    llm__str s = llm__str_from(x->source, 1);
    size_t n = 0;
    while (n < s.n && s.p[n] != s.p[-1]) n += s.p[n] == '\\' ? 2 : 1;
    if (n >= s.n) llm__tpl_fail(x, "a text literal without its end");
    const int more = t->n_tok && t->tok[t->n_tok - 1].type == 's';
    llm__tpl_token *k = more ? &t->tok[t->n_tok - 1] : llm__lex_push(x, 's', llm__v_str(llm__lit("")));
    char *to = (char *)llm__tpl_get(x, k->v.n + n + 1);
    memcpy(to, llm__v_s(k->v).p, k->v.n);
    memcpy(to + k->v.n, s.p, n);
    k->v = llm__v_str(llm__s(to, k->v.n + llm__unescape(to + k->v.n, n, 1)));
    llm__lex_skip(x, n + 2);
}

/* Letters, digits, '_' and all beyond ASCII: whether a name is good Unicode does not matter here. */
static int llm__lex_is_name(char c) { return (uint8_t)c >= 128 || c == '_' || llm__tpl_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'z'); }

/* A name, or an operator, with its level. Those of two characters have a letter of their own. */
static void llm__lex_word(llm__tpl *x) {
    static const char pairs[] = "==E!=N>=G<=L//D**P";
    llm__str s = llm__s(x->source.p, 1);
    char type = s.p[0] && strchr("+-/*%~[](){}<>=.:|,;", s.p[0]) ? s.p[0] : 0;
    uint16_t name = 0;
    for (int i = 0; pairs[i]; i += 3)
        if (pairs[i] == s.p[0] && pairs[i + 1] == s.p[1]) type = pairs[i + 2], s.n = 2;
    if (llm__lex_is_name(s.p[0])) {
        while (llm__lex_is_name(s.p[s.n])) s.n++;
        name = llm__lex_number_of(x, s);
        type = name <= LLM__W_IS ? "OA!I?"[name - 1] : 'n';
    }
    if (!type) llm__tpl_fail(x, "an unexpected character");
    llm__tpl_token *k = llm__lex_push(x, type, llm__v_str(s));
    k->name = name;
    for (int i = 0; i < LLM__COUNT(llm__tpl_levels); i++)
        if (strchr(llm__tpl_levels[i], type)) k->level = (uint8_t)(i + 1);
    llm__lex_skip(x, s.n);
}

/* Inside of a tag, up to its end and with the white space that belongs to it, or to the end of the text. */
static void llm__lex_tag(llm__tpl *x, int block) {
    for (int brackets = 0; llm__lex_spaces(x), x->source.n;) {
        const char *s = x->source.p, c = *s, close = block ? '%' : '}';
        /* The end of the tag, with its sign: -%}, +%}, -}}. A plus before }} would be an operator. */
        const size_t sign = c == '-' || (c == '+' && block);
        if (!brackets && s[sign] == close && s[sign + 1] == '}') {
            llm__lex_push(x, block ? 'b' : 'v', llm__v_str(llm__s(s, sign + 2)));
            llm__lex_close(x, sign + 2, sign ? c : 0, block);
            return;
        }
        brackets += (c && strchr("([{", c)) - (c && strchr(")]}", c));
        if (brackets < 0) llm__tpl_fail(x, "an unexpected character");
        if (llm__tpl_digit(c)) llm__lex_number(x);
        else if (c == '"' || c == '\'') llm__lex_string(x);
        else llm__lex_word(x);
    }
}

LLM__PRIVATE void llm__lex_all(llm__tpl *x) {
    llm__str word;
    for (const char *words = llm__tpl_words; llm__list_next(&words, " ", &word);) llm__lex_number_of(x, word);
    while (x->source.n) {
        const char *s = x->source.p;
        size_t to = 0;
        while (to < x->source.n && !(s[to] == '{' && s[to + 1] && strchr("{%#", s[to + 1]))) to++;
        const char kind = to < x->source.n ? s[to + 1] : 0, sign = kind ? s[to + 2] : 0;
        const llm__str text = kind ? llm__lex_before(llm__s(s, to), sign, kind != '{') : x->source;
        if (text.n) llm__lex_push(x, 'd', llm__v_str(text));
        llm__lex_skip(x, to);
        if (kind && kind != '#') llm__lex_push(x, kind == '{' ? 'V' : 'B', llm__v_str(llm__s(s + to, 2)));
        llm__lex_skip(x, kind ? 2 + (sign == '-' || sign == '+') : 0);
        if (kind == '#') {
            const int64_t end = llm__tpl_find(x->source, llm__lit("#}"), 1);
            if (end < 0) llm__tpl_fail(x, "a comment without its end");
            llm__lex_skip(x, (size_t)end);
            llm__lex_close(x, 2, end ? x->source.p[-1] : 0, 1);
        } else if (kind) {
            llm__lex_tag(x, kind == '%');
        }
    }
    llm__lex_push(x, 0, llm__v(LLM__V_UNSET));
}
