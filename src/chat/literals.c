#include "chat/literals.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/text.h"
#include "text/unicode_classes.h"

enum { LLM__LITERAL_DEPTH = 64 };

typedef struct llm__literal {
    llm__str s; /* what is left to read */
    const char *quote;
    llm_text *out;
    int depth;
} llm__literal;

static int llm__literal_value(llm__literal *x);

LLM__PRIVATE int llm__tool_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static int llm__literal_digit(char c) { return c >= '0' && c <= '9'; }

static void llm__literal_skip(llm__literal *x) {
    while (x->s.n && llm__tool_space(x->s.p[0])) x->s = llm__str_from(x->s, 1);
}

/* Passes over a text that comes next, and white space before it; 0: it does not. */
static int llm__literal_eat(llm__literal *x, const char *text) {
    llm__literal_skip(x);
    if (!llm__starts(x->s, llm__lit(text))) return 0;
    x->s = llm__str_from(x->s, strlen(text));
    return 1;
}

/* The code point of n hexadecimal or octal digits, which are passed over; -1: there are fewer. */
static int32_t llm__literal_digits(llm__literal *x, size_t n, int base) {
    int32_t c = 0;
    if (x->s.n < n) return -1;
    for (size_t i = 0; i < n; i++) {
        const char *digits = "0123456789abcdef", *at = (const char *)memchr(digits, llm__uni_lower_ascii(x->s.p[i]), (size_t)base);
        if (!at) return -1;
        c = c * base + (int32_t)(at - digits);
    }
    x->s = llm__str_from(x->s, n);
    return c;
}

/* Behind a backslash. One before a letter that means nothing stays, as in Python. */
static int llm__literal_escape(llm__literal *x, llm_text *text) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = x->s.n ? x->s.p[0] : 0, *at = c ? strchr(from, c) : NULL;
    char bytes[4];
    int32_t code = -1;
    if (!c) return 0;
    x->s = llm__str_from(x->s, 1);
    if (c == '\n') return 1;
    if (at) return llm_text_add(text, to + (at - from), 1), 1;
    if (c >= '0' && c <= '7') code = c - '0';
    for (int i = 0; i < 2 && c >= '0' && c <= '7' && x->s.n && x->s.p[0] >= '0' && x->s.p[0] <= '7'; i++)
        code = 8 * code + llm__literal_digits(x, 1, 8);
    if (c == 'x' || c == 'u' || c == 'U') {
        code = llm__literal_digits(x, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
        if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return 0;
    }
    if (code >= 0) llm_text_add(text, bytes, (size_t)llm__utf8_put(bytes, code));
    else llm_text_add(text, "\\", 1), llm_text_add(text, &c, 1);
    return 1;
}

/* A text between quotes of Python; several that stand side by side are one. */
static int llm__literal_python(llm__literal *x, llm_text *text) {
    do {
        const char quote = x->s.p[0];
        x->s = llm__str_from(x->s, 1);
        while (x->s.n && x->s.p[0] != quote) {
            const char c = x->s.p[0];
            x->s = llm__str_from(x->s, 1);
            if (c != '\\') llm_text_add(text, &c, 1);
            else if (!llm__literal_escape(x, text)) return 0;
        }
        if (!x->s.n) return 0;
        x->s = llm__str_from(x->s, 1);
        llm__literal_skip(x);
    } while (x->s.n && (x->s.p[0] == '"' || x->s.p[0] == '\''));
    return 1;
}

/* A text, if one comes: 1, it is in *text; 0: something else comes; -1: it has no end. */
static int llm__literal_text(llm__literal *x, llm_text *text) {
    llm__literal_skip(x);
    llm_text_str(text, "");
    if (!x->quote) return x->s.n && (x->s.p[0] == '"' || x->s.p[0] == '\'') ? llm__literal_python(x, text) ? 1 : -1 : 0;
    if (!llm__literal_eat(x, x->quote)) return 0;
    const char *end = llm__str_find(x->s, llm__lit(x->quote));
    if (!end) return -1;
    llm_text_add(text, x->s.p, (size_t)(end - x->s.p));
    x->s = llm__str_from(x->s, (size_t)(end - x->s.p) + strlen(x->quote));
    return 1;
}

/* What stands up to one of the marks, without white space at its end. */
static llm__str llm__literal_bare(llm__literal *x, const char *marks) {
    size_t n = 0;
    llm__literal_skip(x);
    while (n < x->s.n && !strchr(marks, x->s.p[n] ? x->s.p[n] : ',')) n++;
    llm__str s = llm__s(x->s.p, n);
    x->s = llm__str_from(x->s, n);
    while (s.n && llm__tool_space(s.p[s.n - 1])) s.n--;
    return s;
}

/* A number as JSON has it: without a sign, zeros or underscores that JSON does not know. 0: it is none. */
static int llm__literal_number(llm__str s, llm_text *out) {
    size_t i = 0, whole = 0, digits = 0;
    const size_t from = out->len;
    if (i < s.n && (s.p[i] == '-' || s.p[i] == '+') && s.p[i++] == '-') llm_text_add(out, "-", 1);
    for (; i < s.n && (llm__literal_digit(s.p[i]) || (s.p[i] == '_' && digits)); i++) {
        digits += s.p[i] != '_';
        if (s.p[i] == '_' || (s.p[i] == '0' && !whole)) continue;
        llm_text_add(out, s.p + i, 1), whole++;
    }
    if (!whole) llm_text_add(out, "0", 1);
    if (i < s.n && s.p[i] == '.') {
        const size_t point = i++;
        while (i < s.n && llm__literal_digit(s.p[i])) i++, digits++;
        if (i > point + 1) llm_text_add(out, s.p + point, i - point);
        else llm_text_add(out, ".0", 2);
    }
    if (digits && i < s.n && (s.p[i] == 'e' || s.p[i] == 'E')) {
        const size_t e = i++;
        if (i < s.n && (s.p[i] == '-' || s.p[i] == '+')) i++;
        const size_t first = i;
        while (i < s.n && llm__literal_digit(s.p[i])) i++;
        if (i == first) digits = 0;
        llm_text_add(out, s.p + e, i - e);
    }
    if (digits && i == s.n) return 1;
    if (!out->failed) out->len = from;
    return 0;
}

/* A word: a number, true, false, none in any spelling. Gemma's other words are texts. */
static int llm__literal_word(llm__literal *x) {
    static const char *const words[] = {"true", "false", "null", "none", "nil"};
    const llm__str s = llm__literal_bare(x, ",:]})");
    for (int i = 0; i < LLM__COUNT(words); i++) {
        size_t n = strlen(words[i]), same = 0;
        while (same < n && n == s.n && llm__uni_lower_ascii(s.p[same]) == words[i][same]) same++;
        if (same == n) return llm_text_str(x->out, words[LLM__MIN(i, 2)]), 1;
    }
    if (llm__literal_number(s, x->out)) return 1;
    if (x->quote) llm_text_json(x->out, s.p, s.n);
    return x->quote != NULL;
}

/* Members up to `end`: key, colon (between) and value, which are written as JSON. bare: a key may be any word, else a text or a number. */
static int llm__literal_members(llm__literal *x, const char *between, const char *end, int bare) {
    int n = 0;
    llm_text_str(x->out, "{");
    for (; !(end[0] ? llm__literal_eat(x, end) : (llm__literal_skip(x), !x->s.n)); n++) {
        LLM__SCOPED(llm_text_free) llm_text key = llm__text_none();
        const int text = llm__literal_text(x, &key);
        const llm__str word = text ? llm__s(key.data, key.len) : llm__literal_bare(x, "=:,()[]{}'\"");
        const int named = word.n && (bare || llm__literal_digit(word.p[0]) || word.p[0] == '-');
        if (text < 0 || (!text && !named) || !llm__literal_eat(x, between)) return 0;
        llm_text_format(x->out, n ? ", %Q: " : "%Q: ", word.p, word.n);
        x->out->failed |= key.failed;
        if (!llm__literal_value(x)) return 0;
        if (!llm__literal_eat(x, ",") && !(end[0] ? llm__starts(x->s, llm__lit(end)) : !x->s.n)) return 0;
    }
    llm_text_str(x->out, "}");
    return 1;
}

/* Values up to `end`, a comma behind the last or not: a list, or a tuple, which JSON has no other form for. */
static int llm__literal_list(llm__literal *x, const char *end) {
    llm_text_str(x->out, "[");
    for (int n = 0; !llm__literal_eat(x, end); n++) {
        if (n) llm_text_str(x->out, ", ");
        if (!llm__literal_value(x)) return 0;
        if (!llm__literal_eat(x, ",") && !llm__starts(x->s, llm__lit(end))) return 0;
    }
    llm_text_str(x->out, "]");
    return 1;
}

/* Any value; 0: it is none, or one that is too deep. */
static int llm__literal_value(llm__literal *x) {
    LLM__SCOPED(llm_text_free) llm_text text = llm__text_none();
    const int is = llm__literal_text(x, &text);
    int ok = is > 0;
    if (is > 0) llm_text_json(x->out, text.data, text.len);
    x->out->failed |= text.failed;
    if (is || x->depth == LLM__LITERAL_DEPTH) return ok;
    x->depth++;
    if (llm__literal_eat(x, "{")) ok = llm__literal_members(x, ":", "}", x->quote != NULL);
    else if (llm__literal_eat(x, "[")) ok = llm__literal_list(x, "]");
    else if (!x->quote && llm__literal_eat(x, "(")) ok = llm__literal_list(x, ")");
    else ok = llm__literal_word(x);
    x->depth--;
    return ok;
}

LLM__PRIVATE int llm__literal_arguments(llm__str s, const char *quote, llm_text *out) {
    llm__literal x = {s, quote, out, 0};
    return llm__literal_members(&x, quote ? ":" : "=", "", 1);
}

LLM__PRIVATE int llm__literal_list_or_dict(llm__str s, llm_text *out) {
    llm__literal x = {s, NULL, out, 0};
    llm__literal_skip(&x);
    if (!llm__starts(x.s, llm__lit("[")) && !llm__starts(x.s, llm__lit("{"))) return 0;
    return llm__literal_value(&x) && (llm__literal_skip(&x), !x.s.n);
}
