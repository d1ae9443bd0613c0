#include "base/number.h"
#include "base/platform.h"
#include "base/alloc.h"

LLM__PRIVATE locale_t llm__c_locale_begin(locale_t *c) {
    *c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return uselocale(*c);
}

LLM__PRIVATE void llm__c_locale_end(locale_t c, locale_t old) {
    uselocale(old);
    if (c) freelocale(c); /* 0: there was no memory for it, and the thread's own was used */
}

LLM__PRIVATE int llm__parse_double(const char *s, size_t n, double *out) {
    char small[64], *copy = n < sizeof small ? small : (char *)LLM_MALLOC(n + 1), *end;
    if (!copy) return 0;
    memcpy(copy, s, n);
    copy[n] = 0; /* strtod wants an end */
    int ok = n && copy[0] != '+' && strspn(copy, "0123456789.eE+-") == n;
    if (ok) {
        locale_t c, old = llm__c_locale_begin(&c);
        double d = strtod(copy, &end);
        llm__c_locale_end(c, old);
        ok = end == copy + n;
        if (ok) *out = d;
    }
    if (copy != small) LLM_FREE(copy);
    return ok;
}

LLM__PRIVATE int llm__parse_int(const char *s, size_t n, int64_t *out) {
    int negative = n && s[0] == '-';
    /* -2^63 has no positive counterpart, so the digits are counted up without a sign, to a bound that is one higher for it. */
    uint64_t v = 0, top = (uint64_t)INT64_MAX + (uint64_t)negative;
    if (n == (size_t)negative) return 0;
    for (size_t i = (size_t)negative; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return 0;
        uint64_t digit = (uint64_t)(s[i] - '0');
        /* v * 10 + digit > top, without overflow */
        if (v > (top - digit) / 10) return 0;
        v = v * 10 + digit;
    }
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return 1;
}

LLM__PRIVATE int llm__hex(char c) { return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1; }

/* printf's %.*e, %.*f or %.*g (`type`: the letter), with a point in every locale. Returns the length, as snprintf does. */
static int llm__print_double(char *out, size_t size, char type, int precision, double d) {
    const char format[5] = {'%', '.', '*', type, 0};
    locale_t c, old = llm__c_locale_begin(&c);
    int n = snprintf(out, size, format, precision, d);
    llm__c_locale_end(c, old);
    return n;
}

LLM__PRIVATE int llm__format_double(double d, char *out) {
    double back = d;
    int digits = fabs(d) < 2.2250738585072014e-308 ? 1 : 15;
    if (d - d != 0) return snprintf(out, 40, "%s", d != d ? "nan" : d > 0 ? "inf" : "-inf");
    for (;; digits++) {
        int n = llm__print_double(out, 40, 'e', digits - 1, d);
        if (digits == 17 || (llm__parse_double(out, (size_t)n, &back) && back == d)) break;
        /* Below a power of two the doubles stand twice as close: the nearest of 16 digits may read as another one, and the next one up
         * read back. It is never of the kind without exponent, where powers of two are exact. */
        char *digit = strchr(out, 'e') - 1;
        if (digits == 16 && *digit < '9' && (++*digit, llm__parse_double(out, (size_t)n, &back)) && back == d) return n;
    }
    const char *last = strchr(out, 'e');
    int exponent = (int)strtol(last + 1, NULL, 10);
    while (digits > 1 && *--last == '0') digits--;
    if (exponent < -4 || exponent >= 16) return llm__print_double(out, 40, 'e', digits - 1, d);
    return llm__print_double(out, 40, 'f', LLM__MAX(digits - 1 - exponent, 1), d);
}
