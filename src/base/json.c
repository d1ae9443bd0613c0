#include "base/json.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "base/map.h"
#include "base/files.h"

#ifndef LLM_JSMN_H
#define LLM_JSMN_H <jsmn.h>
#endif
#if defined(JSMN_H) && !defined(JSMN_PARENT_LINKS)
#error "llm.h: jsmn.h was included before without JSMN_PARENT_LINKS; include llm.h first or define JSMN_STATIC, _STRICT, _PARENT_LINKS"
#endif
#ifndef JSMN_H
#define JSMN_STATIC
#define JSMN_STRICT
#define JSMN_PARENT_LINKS
#ifdef __has_include
#if !__has_include(LLM_JSMN_H)
#error "llm.h: jsmn.h is missing: run make deps, install libjsmn-dev, or define LLM_JSMN_H as its path in quotes"
#endif
#endif
#include LLM_JSMN_H
#endif

struct llm_json {
    char *text;
    jsmntok_t *tok; /* (n) type, start and end in text, size, parent */
    uint32_t *skip; /* (n) */
    int n;
};

/* The checker: where it stands, what it counted. */
typedef struct llm__json_check {
    const char *s;
    size_t n, at;
    int64_t tokens, max_tokens;
    const char *what; /* of the error: what was expected at byte `at` */
} llm__json_check;

/* Remembers what was expected. Returns 0, as all checks do that fail. */
static int llm__json_bad(llm__json_check *c, const char *expected) {
    c->what = expected;
    return 0;
}

/* Skips one byte if it is `b`. */
static int llm__json_take(llm__json_check *c, char b) {
    if (c->at >= c->n || c->s[c->at] != b) return 0;
    c->at++;
    return 1;
}

/* Skips the four characters that JSON calls white space. Returns the byte behind them; 0 at the end. */
static char llm__json_space(llm__json_check *c) {
    while (c->at < c->n && (c->s[c->at] == ' ' || c->s[c->at] == '\n' || c->s[c->at] == '\r' || c->s[c->at] == '\t')) c->at++;
    return c->at < c->n ? c->s[c->at] : 0;
}

LLM__PRIVATE int32_t llm__hex_digits(const char *s, size_t n, size_t digits) {
    uint32_t v = 0;
    for (size_t i = 0; i < digits; i++) {
        if (i >= n || llm__hex(s[i]) < 0 || v >= 1u << 27) return -1;
        v = v * 16 + (uint32_t)llm__hex(s[i]);
    }
    return (int32_t)v;
}

/* What follows a backslash. \u beyond the first 64K code points is a high and a low surrogate; alone neither has UTF-8. */
static int llm__json_check_escape(llm__json_check *c) {
    if (c->at >= c->n) return llm__json_bad(c, "an escape");
    if (!llm__json_take(c, 'u')) {
        if (!c->s[c->at] || !strchr("\"\\/bfnrt", c->s[c->at])) return llm__json_bad(c, "an escape that JSON has");
        c->at++;
        return 1;
    }
    int32_t v = llm__hex_digits(c->s + c->at, c->n - c->at, 4);
    if (v < 0) return llm__json_bad(c, "four hexadecimal digits");
    if (v >= 0xDC00 && v < 0xE000) return llm__json_bad(c, "a high surrogate first");
    c->at += 4;
    if (v < 0xD800 || v >= 0xE000) return 1;
    v = llm__json_take(c, '\\') && llm__json_take(c, 'u') ? llm__hex_digits(c->s + c->at, c->n - c->at, 4) : -1;
    if (v < 0xDC00 || v >= 0xE000) return llm__json_bad(c, "a low surrogate");
    c->at += 4;
    return 1;
}

/* A string from its quote to its quote: no raw control characters, valid UTF-8 only. */
static int llm__json_check_string(llm__json_check *c) {
    if (!llm__json_take(c, '"')) return llm__json_bad(c, "a string");
    c->tokens++;
    while (c->at < c->n) {
        unsigned char b = (unsigned char)c->s[c->at];
        int len = 1;
        if (b < 32) return llm__json_bad(c, "no control character in a string");
        if (b >= 128 && llm__utf8_get(c->s + c->at, c->n - c->at, &len) < 0) return llm__json_bad(c, "valid UTF-8");
        c->at += (size_t)len;
        if (b == '"') return 1;
        if (b == '\\' && !llm__json_check_escape(c)) return 0;
    }
    return llm__json_bad(c, "the end of a string");
}

/* One digit or more. */
static int llm__json_digits(llm__json_check *c) {
    size_t from = c->at;
    while (c->at < c->n && c->s[c->at] >= '0' && c->s[c->at] <= '9') c->at++;
    return c->at > from;
}

/* A string, a word, or a number: -? (0 | [1-9][0-9]*) (. digits)? (e [+-]? digits)? */
static int llm__json_check_scalar(llm__json_check *c) {
    static const char *const word[3] = {"true", "false", "null"};
    if (c->at < c->n && c->s[c->at] == '"') return llm__json_check_string(c);
    c->tokens++;
    for (int i = 0; i < 3; i++) {
        size_t len = strlen(word[i]);
        if (c->n - c->at < len || memcmp(c->s + c->at, word[i], len)) continue;
        c->at += len;
        return 1;
    }
    /* What is none of these is taken for a number, and the first thing a number lacks is "a value". */
    llm__json_take(c, '-');
    if (!llm__json_take(c, '0') && !llm__json_digits(c)) return llm__json_bad(c, "a value");
    if (llm__json_take(c, '.') && !llm__json_digits(c)) return llm__json_bad(c, "digits after the point");
    if (!llm__json_take(c, 'e') && !llm__json_take(c, 'E')) return 1;
    if (!llm__json_take(c, '+')) llm__json_take(c, '-');
    return llm__json_digits(c) ? 1 : llm__json_bad(c, "digits of an exponent");
}

/* The key and colon before a member's value. */
static int llm__json_check_key(llm__json_check *c) {
    llm__json_space(c);
    if (!llm__json_check_string(c)) return 0;
    llm__json_space(c);
    return llm__json_take(c, ':') ? 1 : llm__json_bad(c, "':'");
}

/* One document. `stack` holds max_depth bytes: the brackets that are to close what is open. Every turn reads one value, or opens a
 * container and goes on with its first; then as many containers are closed as end there. */
static int llm__json_check_all(llm__json_check *c, char *stack, int max_depth) {
    for (int depth = 0;;) {
        char b = llm__json_space(c);
        if (c->tokens > c->max_tokens) return llm__json_bad(c, "fewer values");
        if (b == '[' || b == '{') {
            if (depth == max_depth) return llm__json_bad(c, "shallower nesting");
            stack[depth++] = b == '[' ? ']' : '}';
            c->tokens++;
            c->at++;
            int empty = llm__json_space(c) == stack[depth - 1];
            if (!empty && b == '{' && !llm__json_check_key(c)) return 0;
            if (!empty) continue;
        } else if (!llm__json_check_scalar(c)) {
            return 0;
        }
        while (depth && llm__json_space(c) == stack[depth - 1]) c->at++, depth--;
        /* The last bracket is closed: only white space may follow. A NUL is no end. */
        if (!depth) return llm__json_space(c) || c->at < c->n ? llm__json_bad(c, "the end of the text") : 1;
        if (!llm__json_take(c, ',')) return llm__json_bad(c, stack[depth - 1] == ']' ? "',' or ']'" : "',' or '}'");
        if (stack[depth - 1] == '}' && !llm__json_check_key(c)) return 0;
    }
}

LLM__PRIVATE size_t llm__unescape(char *s, size_t n, int python) {
    static const char names[] = "nrtbf\\\"'/", values[] = "\n\r\t\b\f\\\"'/";
    size_t to = 0;
    for (size_t i = 0; i < n;) {
        const char e = s[i] == '\\' && i + 1 < n ? s[i + 1] : 0;
        const char *name = e && !(python && e == '/') ? strchr(names, e) : NULL;
        const size_t digits = e == 'u' ? 4 : python && e == 'x' ? 2 : python && e == 'U' ? 8 : 0;
        int32_t c = digits ? llm__hex_digits(s + i + 2, n - i - 2, digits) : -1;
        const int high = c >= 0xD800 && c < 0xDC00, low = c >= 0xDC00 && c < 0xE000;
        if (name) {
            s[to++] = values[name - names];
            i += 2;
        } else if (c >= 0 && c < 0x110000) {
            i += 2 + digits;
            /* In JSON a high surrogate is never alone; in Python it has no UTF-8. */
            if (python && (high || low)) c = 0xFFFD;
            else if (high) c = 0x10000 + ((c - 0xD800) << 10) + (llm__hex_digits(s + i + 2, 4, 4) - 0xDC00), i += 6;
            to += (size_t)llm__utf8_put(s + to, c);
        } else if (e == '\n' && python) {
            i += 2;
        } else {
            s[to++] = s[i++];
        }
    }
    return to;
}

enum { LLM__JSON_KEY_MAX = 4096 }; /* bytes of a key, where keys are unique */

/* Refuses objects that have a key twice: a gateway in front may have read the other one. Keys are compared decoded: "\\u0061" is "a". One
 * with a NUL would look like a shorter one. */
static llm_result llm__json_unique(const llm_json *d) {
    for (int i = 0; i < d->n; i++) {
        if (d->tok[i].type != JSMN_OBJECT || !d->tok[i].size) continue;
        LLM__SCOPED(llm__map_free) llm__map seen = LLM__ZERO;
        seen.seed = llm__seed(d);
        /* More keys than any request has: the walk below is linear, but every key is hashed. */
        if (d->tok[i].size > 4096) return llm__error(LLM_ERR_LIMIT, "JSON: an object has %d keys, at most 4096 expected", d->tok[i].size);
        for (int v = llm_json_first(d, i); v >= 0; v = llm_json_next(d, v)) {
            llm__str key = llm__s(NULL, 0);
            key.p = llm_json_key(d, v, &key.n);
            if (key.n > LLM__JSON_KEY_MAX || memchr(key.p, 0, key.n))
                return llm__error(LLM_ERR_LIMIT, "JSON: a key %s, at most %d bytes without NUL expected",
                                  key.n > LLM__JSON_KEY_MAX ? "that is too long" : "with a NUL in it", LLM__JSON_KEY_MAX);
            int put = llm__map_put(&seen, key, v);
            if (put < 0) return llm__nomem();
            if (!put) return llm__error(LLM_ERR_FORMAT, "JSON: duplicate key \"%.*s\"", (int)LLM__MIN(key.n, (size_t)64), key.p);
        }
    }
    return LLM_OK;
}

/* Tokens of checked text, by jsmn; decodes the strings and fills in skip. Backwards: what is inside is done before what is around it. */
static llm_result llm__json_tokens(llm_json *d, size_t len, int64_t count) {
    jsmn_parser parser;
    jsmn_init(&parser);
    d->n = (int)count;
    d->tok = LLM__NEW(jsmntok_t, count);
    d->skip = LLM__NEW(uint32_t, count);
    if (!d->tok || !d->skip) return llm__nomem();
    if (jsmn_parse(&parser, d->text, len + 1, d->tok, (unsigned)count) != (int)count)
        return llm__error(LLM_ERR_FORMAT, "JSON: cannot be read");
    for (int i = d->n - 1; i >= 0; i--) {
        jsmntok_t *t = &d->tok[i];
        d->skip[i] = LLM__MAX(d->skip[i], (uint32_t)i + 1);
        if (t->parent >= 0) d->skip[t->parent] = LLM__MAX(d->skip[t->parent], d->skip[i]);
        if (t->type != JSMN_STRING) continue;
        size_t n = (size_t)(t->end - t->start);
        if (memchr(d->text + t->start, '\\', n)) t->end = t->start + (int)llm__unescape(d->text + t->start, n, 0);
        d->text[t->end] = 0;
    }
    return LLM_OK;
}

/* Check, copy, tokenize, decode. The caller frees the text it gave whenever it likes. The stack of brackets is on the C stack: 4096 is what
 * bounds the depth, and llm_json_write's recursion with it. */
LLM_API llm_result llm_json_parse(const char *text, size_t len, const llm_json_limits *limits, llm_json **out) {
    int max_depth = limits && limits->max_depth > 0 ? LLM__MIN(limits->max_depth, 4096) : 512;
    char stack[4096];
    llm__json_check c = {text, len, 0, 0, limits && limits->max_tokens > 0 ? limits->max_tokens : 64 << 20, NULL};
    *out = NULL;
    if (len > (size_t)INT32_MAX - 1) return llm__error(LLM_ERR_LIMIT, "JSON: %zu bytes, at most 2 GiB expected", len);
    if (!llm__json_check_all(&c, stack, max_depth)) {
        if (!strcmp(c.what, "shallower nesting"))
            return llm__error(LLM_ERR_LIMIT, "JSON: byte %zu: nesting deeper than %d", c.at, max_depth);
        return llm__error(c.tokens > c.max_tokens ? LLM_ERR_LIMIT : LLM_ERR_FORMAT, "JSON: byte %zu: %s expected", c.at, c.what);
    }
    llm_json *d = LLM__NEW(llm_json, 1);
    if (!d) return llm__nomem();
    d->text = (char *)LLM_MALLOC(len + 2);
    if (d->text) memcpy(d->text, text, len), memcpy(d->text + len, " ", 2); /* strict jsmn wants something behind a lone number */
    llm_result r = d->text ? llm__json_tokens(d, len, c.tokens) : llm__nomem();
    if (!r && limits && limits->unique_keys) r = llm__json_unique(d);
    if (r) llm_json_free(d);
    else *out = d;
    return r;
}

LLM_API void llm_json_free(llm_json *doc) {
    if (!doc) return;
    LLM_FREE(doc->text);
    LLM_FREE(doc->tok);
    LLM_FREE(doc->skip);
    LLM_FREE(doc);
}
LLM__PRIVATE void llm__json_drop(llm_json **doc) { llm_json_free(*doc); } /* for LLM__SCOPED */

/* jsmn tells containers and strings apart; the other values are told by their first character, as the checker has seen to the rest. */
LLM_API llm_json_type llm_json_type_of(const llm_json *doc, int node) {
    if (!doc || node < 0) return LLM_JSON_ABSENT;
    const jsmntok_t *t = &doc->tok[node];
    if (t->type != JSMN_PRIMITIVE)
        return t->type == JSMN_OBJECT ? LLM_JSON_OBJECT : t->type == JSMN_ARRAY ? LLM_JSON_ARRAY : LLM_JSON_STRING;
    char c = doc->text[t->start];
    return c == 'n' ? LLM_JSON_NULL : c == 't' || c == 'f' ? LLM_JSON_BOOL : LLM_JSON_NUMBER;
}

/* jsmn counts in `size` the values of a container; of a key it is 1. */
LLM_API int llm_json_size(const llm_json *doc, int node) {
    llm_json_type type = llm_json_type_of(doc, node);
    return type == LLM_JSON_OBJECT || type == LLM_JSON_ARRAY ? doc->tok[node].size : 0;
}

/* A member's key stands between an object and its first value, hence the 2. */
LLM_API int llm_json_first(const llm_json *doc, int node) {
    if (!llm_json_size(doc, node)) return -1;
    return doc->tok[node].type == JSMN_OBJECT ? node + 2 : node + 1;
}

/* The key token of a member's value, or -1. */
static int llm__json_key_of(const llm_json *doc, int node) {
    int p = node > 0 ? doc->tok[node].parent : -1;
    return p >= 0 && doc->tok[p].type == JSMN_STRING ? p : -1;
}

/* Behind a value's subtree stands the next element, or the next member's key, unless the parent ends there. */
LLM_API int llm_json_next(const llm_json *doc, int node) {
    if (node <= 0) return -1;
    int key = llm__json_key_of(doc, node), parent = doc->tok[key >= 0 ? key : node].parent;
    uint32_t s = doc->skip[node];
    if (parent < 0 || s >= doc->skip[parent]) return -1;
    return (int)s + (key >= 0);
}

static llm__str llm__json_view(const llm_json *doc, int node, jsmntype_t type) {
    if (!doc || node < 0 || doc->tok[node].type != type) return llm__s(NULL, 0);
    return llm__s(doc->text + doc->tok[node].start, (size_t)(doc->tok[node].end - doc->tok[node].start));
}
LLM__PRIVATE llm__str llm__json_key(const llm_json *doc, int node) { return llm__json_view(doc, llm__json_key_of(doc, node), JSMN_STRING); }
LLM__PRIVATE llm__str llm__json_text(const llm_json *doc, int node) { return llm__json_view(doc, node, JSMN_STRING); }
LLM__PRIVATE size_t llm__json_bytes(const llm_json *doc, int node) {
    return doc && node >= 0 && node < doc->n ? (size_t)(doc->tok[node].end - doc->tok[node].start) : 0;
}

LLM__PRIVATE size_t llm__json_memory(const llm_json *doc) {
    return doc ? sizeof *doc + (size_t)doc->tok[0].end + 2 + (size_t)doc->n * (sizeof *doc->tok + sizeof *doc->skip) : 0;
}

LLM__PRIVATE llm__str llm__json_raw(const llm_json *doc, int node) { return llm__json_view(doc, node, JSMN_PRIMITIVE); }

/* A view as the API gives it. */
static const char *llm__json_given(llm__str s, size_t *len) {
    if (len) *len = s.n;
    return s.p;
}
LLM_API const char *llm_json_key(const llm_json *doc, int node, size_t *len) { return llm__json_given(llm__json_key(doc, node), len); }
LLM_API const char *llm_json_str(const llm_json *doc, int node, size_t *len) { return llm__json_given(llm__json_text(doc, node), len); }
LLM_API const char *llm_json_raw(const llm_json *doc, int node, size_t *len) { return llm__json_given(llm__json_raw(doc, node), len); }

LLM__PRIVATE int llm__json_member(const llm_json *doc, int object, llm__str key) {
    int v = llm_json_type_of(doc, object) == LLM_JSON_OBJECT ? llm_json_first(doc, object) : -1;
    while (v >= 0 && !llm__str_same(llm__json_key(doc, v), key)) v = llm_json_next(doc, v);
    return v;
}

LLM_API int llm_json_find(const llm_json *doc, int object, const char *key) { return llm__json_member(doc, object, llm__lit(key)); }

LLM__PRIVATE llm__str llm__json_text_at(const llm_json *d, int object, const char *key) {
    return llm__json_text(d, llm_json_find(d, object, key));
}

LLM__PRIVATE int llm__json_flag(const llm_json *d, int object, const char *key, int otherwise) {
    int v;
    return llm_json_bool(d, llm_json_find(d, object, key), &v) ? v : otherwise;
}

LLM__PRIVATE int64_t llm__json_whole(const llm_json *d, int node, int64_t otherwise) {
    int64_t v;
    return llm_json_int(d, node, &v) ? v : otherwise;
}

/* The text of the number is kept, not its value: most numbers are read as what they are wanted for, once or never. */
LLM_API int llm_json_num(const llm_json *doc, int node, double *out) {
    double d;
    llm__str s = llm__json_raw(doc, node);
    if (llm_json_type_of(doc, node) != LLM_JSON_NUMBER || !llm__parse_double(s.p, s.n, &d)) return 0;
    if (d - d != 0) return 0; /* 1e999 is JSON, but no double */
    *out = d;
    return 1;
}

/* 3 and 3.0 are whole numbers; 1e2 is refused, as most clients that write it mean a mistake. */
LLM_API int llm_json_int(const llm_json *doc, int node, int64_t *out) {
    size_t n;
    double d;
    const char *s = llm_json_raw(doc, node, &n);
    if (!s || llm__parse_int(s, n, out)) return s != NULL;
    if (!llm_json_num(doc, node, &d) || d != floor(d) || fabs(d) > 9007199254740992.0 || memchr(s, 'e', n) || memchr(s, 'E', n)) return 0;
    if (!memchr(s, '.', n)) return 0; /* a whole number that 64 bits do not hold */
    *out = (int64_t)d;
    return 1;
}

LLM_API int llm_json_bool(const llm_json *doc, int node, int *out) {
    if (llm_json_type_of(doc, node) != LLM_JSON_BOOL) return 0;
    *out = doc->text[doc->tok[node].start] == 't';
    return 1;
}

/* Descends: llm_json_parse lets no document be deeper than 4096. */
LLM_API void llm_json_write(const llm_json *doc, int node, llm_text *out) {
    llm_json_type type = llm_json_type_of(doc, node);
    llm__str raw = llm__json_raw(doc, node), s = llm__json_text(doc, node);
    const int object = type == LLM_JSON_OBJECT;
    if (raw.p) llm_text_add(out, raw.p, raw.n);
    if (s.p) llm_text_json(out, s.p, s.n);
    if (!object && type != LLM_JSON_ARRAY) return;
    llm_text_str(out, object ? "{" : "[");
    for (int first = llm_json_first(doc, node), i = first; i >= 0; i = llm_json_next(doc, i)) {
        s = llm__json_key(doc, i);
        if (i != first) llm_text_str(out, ",");
        if (s.p) llm_text_json(out, s.p, s.n), llm_text_str(out, ":");
        llm_json_write(doc, i, out);
    }
    llm_text_str(out, object ? "}" : "]");
}

LLM__PRIVATE void llm__text_pattern(llm_text *t, const char *pattern, va_list args) {
    for (const char *p = pattern; *p; p++) {
        size_t plain = strcspn(p, "%'"), n;
        const char *s;
        llm_text_add(t, p, plain);
        p += plain;
        if (!*p) break;
        if (*p == '\'') {
            llm_text_add(t, "\"", 1);
            continue;
        }
        switch (*++p) {
        case 'd': llm_text_int(t, va_arg(args, int)); break;
        case 'l': llm_text_int(t, va_arg(args, int64_t)); break;
        case 's': llm_text_str(t, va_arg(args, const char *)); break;
        case 'b': llm_text_str(t, va_arg(args, int) ? "true" : "false"); break;
        case 'f': {
            double x = va_arg(args, double);
            llm_text_num(t, x - x == 0 ? x : x > 0 ? 9999 : -9999);
            break;
        }
        case 'q':
            s = va_arg(args, const char *);
            if (s) llm_text_json(t, s, strlen(s));
            else llm_text_str(t, "null");
            break;
        case 'Q':
            s = va_arg(args, const char *);
            n = va_arg(args, size_t);
            llm_text_json(t, s ? s : "", s ? n : 0);
            break;
        case 'i': {
            const int32_t *ids = va_arg(args, const int32_t *);
            n = va_arg(args, size_t);
            for (size_t i = 0; i < n; i++) llm_text_str(t, i ? "," : "["), llm_text_int(t, ids[i]);
            llm_text_str(t, n ? "]" : "[]");
            break;
        }
        case 'j': {
            const llm_json *doc = va_arg(args, const llm_json *);
            int node = va_arg(args, int);
            if (node < 0) llm_text_str(t, "null");
            else llm_json_write(doc, node, t);
            break;
        }
        case 't': {
            llm_text *piece = va_arg(args, llm_text *);
            t->failed |= piece->failed;
            if (piece->len) llm_text_add(t, piece->data, piece->len);
            llm_text_free(piece);
            break;
        }
        case ',':
            if (t->len && !strchr("[{", t->data[t->len - 1])) llm_text_str(t, ",");
            break;
        default: llm_text_add(t, p, 1);
        }
    }
}

LLM_API void llm_text_format(llm_text *t, const char *pattern, ...) {
    va_list args;
    va_start(args, pattern);
    llm__text_pattern(t, pattern, args);
    va_end(args);
}

/* Code points of UTF-8 text: text_offset and sentence_length count them, as Python's len() does in the servers they come from. */
LLM_API int64_t llm_text_chars(const char *bytes, size_t len) {
    int64_t n = 0;
    for (size_t i = 0; i < len; i++) n += ((unsigned char)bytes[i] & 0xC0) != 0x80; /* every byte but the following ones of a sequence */
    return n;
}

LLM__PRIVATE llm_result llm__json_file(const char *path, size_t limit, llm_json **out) {
    LLM__SCOPED(llm__file_close) llm__file f;
    *out = NULL;
    llm_result r = llm__file_open(path, limit, 1, &f);
    if (r) return r;
    r = llm_json_parse((const char *)f.data, f.size, NULL, out);
    return r ? llm__error(r, "%s: %s", path, llm_last_error()) : LLM_OK;
}
