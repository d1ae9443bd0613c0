#include "base/text.h"
#include "api/linkage.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/number.h"

LLM__PRIVATE llm__str llm__s(const char *p, size_t n) {
    const llm__str s = {p, n};
    return s;
}

LLM__PRIVATE int llm__str_eq(llm__str a, const char *b) { return a.n == strlen(b) && !memcmp(a.p, b, a.n); }

LLM__PRIVATE int llm__str_same(llm__str a, llm__str b) { return a.n == b.n && !memcmp(a.p, b.p, a.n); }
LLM__PRIVATE llm__str llm__lit(const char *s) { return llm__s(s, strlen(s)); }

LLM__PRIVATE llm__str llm__str_from(llm__str s, size_t n) { return llm__s(s.p + n, s.n - n); }

LLM__PRIVATE int llm__starts(llm__str s, llm__str with) { return s.n >= with.n && !memcmp(s.p, with.p, with.n); }

LLM__PRIVATE int llm__str_order(llm__str a, llm__str b) {
    int order = memcmp(a.p, b.p, LLM__MIN(a.n, b.n));
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

/* The search for texts that are made to be slow to search: a hash of the wanted text is compared with that of each window of its length,
 * which follows from the one before by one byte in and one out (Karp & Rabin 1987). At most s.n bytes are wanted, and at least one. */
static const char *llm__str_find_rolling(llm__str s, llm__str wanted) {
    const uint64_t base = 0x9E3779B97F4A7C15u;
    uint64_t hash = 0, window = 0, top = 1; /* top: what the byte that leaves was multiplied by */
    for (size_t i = 0; i < wanted.n; i++) {
        hash = hash * base + (uint8_t)wanted.p[i];
        window = window * base + (uint8_t)s.p[i];
        if (i) top *= base;
    }
    for (size_t i = 0;; i++) {
        if (window == hash && !memcmp(s.p + i, wanted.p, wanted.n)) return s.p + i;
        if (i + wanted.n == s.n) return NULL;
        window = (window - top * (uint8_t)s.p[i]) * base + (uint8_t)s.p[i + wanted.n];
    }
}

/* From one first byte to the next, as long as comparing there costs little. (memmem does this, but only GNU's headers declare it.) */
LLM__PRIVATE const char *llm__str_find(llm__str s, llm__str wanted) {
    if (!wanted.n) return s.p;
    for (size_t spent = 0, most = 8 * s.n; s.n >= wanted.n; spent += wanted.n) {
        const char *at = (const char *)memchr(s.p, wanted.p[0], s.n - wanted.n + 1);
        if (!at || !memcmp(at, wanted.p, wanted.n)) return at;
        s = llm__str_from(s, (size_t)(at - s.p) + 1);
        if (spent > most && s.n >= wanted.n) return llm__str_find_rolling(s, wanted);
    }
    return NULL;
}

LLM__PRIVATE size_t llm__str_until(llm__str s, const char *stops) {
    size_t n = 0;
    while (n < s.n && !(s.p[n] && strchr(stops, s.p[n]))) n++;
    return n;
}

LLM__PRIVATE int llm__list_next(const char **words, const char *separator, llm__str *word) {
    *word = llm__s(*words, strcspn(*words, separator));
    *words += word->n + ((*words)[word->n] != 0);
    return word->n > 0;
}

LLM__PRIVATE int llm__word_index(const char *words, llm__str word) {
    llm__str w;
    for (int i = 0; llm__list_next(&words, " ", &w); i++)
        if (llm__str_same(w, word)) return i;
    return -1;
}

/* All other additions end here: limit, growth, failure. One byte more than len is always there, for the NUL. */
LLM_API void llm_text_add(llm_text *t, const char *bytes, size_t len) {
    if (t->failed) return;
    if (len > ((size_t)INT64_MAX >> 1) - t->len - 1 || (t->limit && t->len + len > t->limit) ||
        !llm__grow((void **)&t->data, &t->cap, t->len + len + 1, 1)) {
        t->failed = 1;
        return;
    }
    if (len) memcpy(t->data + t->len, bytes, len);
    t->len += len;
    t->data[t->len] = 0;
}

LLM_API void llm_text_str(llm_text *t, const char *zero_terminated) { llm_text_add(t, zero_terminated, strlen(zero_terminated)); }

LLM_API void llm_text_int(llm_text *t, int64_t value) {
    char s[24];
    llm_text_add(t, s, (size_t)snprintf(s, sizeof s, "%lld", (long long)value));
}

/* Python's repr without a trailing .0; JSON has no infinity and no NaN, so they become null. */
LLM_API void llm_text_num(llm_text *t, double value) {
    char s[40];
    int n = llm__format_double(value, s);
    if (value - value != 0) llm_text_str(t, "null");
    else llm_text_add(t, s, (size_t)(n > 2 && !strcmp(s + n - 2, ".0") ? n - 2 : n));
}

LLM_API void llm_text_free(llm_text *t) {
    LLM_FREE(t->data);
    memset(t, 0, sizeof *t);
}

LLM__PRIVATE llm__str llm__text_str(const llm_text *t) { return llm__s(t->data ? t->data : "", t->len); }

LLM__PRIVATE void llm__add_str(llm_text *out, llm__str s) { llm_text_add(out, s.p, s.n); }

LLM__PRIVATE int llm__shown(llm__str s) { return (int)LLM__MIN(s.n, (size_t)64); }

LLM__PRIVATE llm_text llm__text_none(void) {
    llm_text t = LLM__ZERO;
    return t;
}

/* The capacity doubles, so an answer of n tokens allocates about log2(n) times. */
LLM_API void llm_tokens_add(llm_tokens *t, int32_t id) {
    if (t->failed || !llm__grow((void **)&t->data, &t->cap, t->len + 1, sizeof *t->data)) t->failed = 1;
    else t->data[t->len++] = id;
}

LLM_API void llm_tokens_free(llm_tokens *t) {
    LLM_FREE(t->data);
    memset(t, 0, sizeof *t);
}

LLM__PRIVATE int llm__utf8_part(const char *p, size_t n, int *len) {
    const uint8_t *s = (const uint8_t *)p;
    const int more = s[0] < 0x80 ? 0 : s[0] < 0xC2 ? -1 : s[0] < 0xE0 ? 1 : s[0] < 0xF0 ? 2 : s[0] < 0xF5 ? 3 : -1;
    const int low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80, high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    for (*len = 1; *len <= more; ++*len) {
        if ((size_t)*len >= n) return -1;
        if (s[*len] < (*len == 1 ? low : 0x80) || s[*len] > (*len == 1 ? high : 0xBF)) return 0;
    }
    return more >= 0;
}

LLM__PRIVATE int32_t llm__utf8_get(const char *p, size_t n, int *len) {
    *len = 1;
    if ((signed char)*p >= 0) return *p;
    if (llm__utf8_part(p, n, len) != 1) return *len = 1, -1;
    int32_t c = *p & (0x7F >> *len);
    for (int i = 1; i < *len; i++) c = c << 6 | (p[i] & 0x3F);
    return c;
}

LLM__PRIVATE size_t llm__utf8_valid(const char *s, size_t n) {
    int len;
    size_t at = 0;
    while (at < n && llm__utf8_part(s + at, n - at, &len) == 1) at += (size_t)len;
    return at;
}

LLM__PRIVATE int llm__utf8_put(char *out, int32_t c) {
    if (c < 0x80) return out[0] = (char)c, 1;
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t lead[4] = {0, 0xC0, 0xE0, 0xF0};
    for (int i = more; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(lead[more] | c);
    return more + 1;
}

LLM__PRIVATE void llm__text_quoted(llm_text *t, llm__str s, char quote, int python, int (*plain)(int32_t c)) {
    static const char named[] = "\nn\rr\tt\bb\ff"; /* repr() knows the first three */
    llm_text_add(t, &quote, 1);
    for (size_t i = 0, from = 0; i <= s.n;) {
        int n = 1;
        const int32_t c = i < s.n ? llm__utf8_get(s.p + i, s.n - i, &n) : 0;
        const int sign = c == quote || c == '\\';
        if (c >= 32 && !sign && plain(c)) {
            i += (size_t)n;
            continue;
        }
        llm_text_add(t, s.p + from, i - from);
        if (i == s.n) break;
        char out[16];
        const char *name = c > 0 && c < 32 ? strchr(named, c) : NULL;
        const unsigned u = (unsigned)c, high = 0xD800 + ((u - 0x10000) >> 10), low = 0xDC00 + (u & 1023);
        if (name && python && name >= named + 6) name = NULL;
        if (c < 0) snprintf(out, sizeof out, "\xEF\xBF\xBD");
        else if (sign || name) snprintf(out, sizeof out, "\\%c", sign ? (char)c : name[1]);
        else if (!python && c >= 0x10000) snprintf(out, sizeof out, "\\u%04x\\u%04x", high & 0xFFFF, low);
        else snprintf(out, sizeof out, python && c < 256 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", u);
        llm_text_str(t, out);
        i += (size_t)n;
        from = i;
    }
    llm_text_add(t, &quote, 1);
}

/* DEL is escaped too: a terminal might act on it. */
static int llm__json_plain(int32_t c) { return c != 127; }

LLM_API void llm_text_json(llm_text *t, const char *bytes, size_t len) { llm__text_quoted(t, llm__s(bytes, len), '"', 0, llm__json_plain); }

LLM__PRIVATE int llm__base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

LLM__PRIVATE int llm__base64(llm__str s, llm_text *out) {
    if (s.n % 4) return 0;
    for (int pad = 0; pad < 2 && s.n && s.p[s.n - 1] == '='; pad++) s.n--;
    for (size_t i = 0; i < s.n; i += 4) {
        const size_t n = LLM__MIN(s.n - i, 4);
        uint32_t bits = 0;
        for (size_t k = 0; k < 4; k++) {
            const int digit = k < n ? llm__base64_digit(s.p[i + k]) : 0;
            if (digit < 0) return 0;
            bits = bits << 6 | (uint32_t)digit;
        }
        const char bytes[3] = {(char)(bits >> 16), (char)(bits >> 8 & 255), (char)(bits & 255)};
        llm_text_add(out, bytes, n - 1);
    }
    return 1;
}

LLM__PRIVATE int llm__ends_with(const char *s, const char *end) {
    return strlen(s) >= strlen(end) && !strcmp(s + strlen(s) - strlen(end), end);
}
