/* ============================================================================
 * >>numbers   Numbers and text, whatever the locale of the host program.
 * ============================================================================
 * strtod and printf follow the locale that the host program has chosen: under de_DE "0.7" reads as 0 and 0.7 is printed as "0,7". POSIX
 * 2008 has functions that take the locale from the caller, and the C libraries of Linux round correctly in both directions. So all doubles
 * are read by strtod_l and printed under uselocale, with the locale "C", here and nowhere else. (Reading the last bit right takes big
 * integers: Clinger, "How to read floating point numbers accurately", 1990. The C libraries have done that work.)
 *
 * Beside them stand the small tools that every later section is made of: llm__str (a view of bytes that live elsewhere), llm_text (bytes
 * that grow), UTF-8 in both directions, a keyed hash, and a map from byte strings to numbers. */

/* The locale "C". For glibc and musl it is a constant: nothing is allocated, and freeing it does nothing. */
static locale_t llm__c_locale(void) { return newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* Reads a number of exactly n bytes: digits with or without a point, a minus, an exponent. 0 if it is none, which "+1", "inf", "0x1" and "
 * 1" are not either; out of range gives infinity or zero. */
static int llm__parse_double(const char *s, size_t n, double *out) {
    char small[64], *copy = n < sizeof small ? small : (char *)LLM_MALLOC(n + 1), *end;
    if (!copy) return 0;
    memcpy(copy, s, n);
    copy[n] = 0; /* strtod_l wants an end */
    int ok = n && copy[0] != '+' && strspn(copy, "0123456789.eE+-") == n;
    if (ok) {
        locale_t c = llm__c_locale();
        double d = strtod_l(copy, &end, c);
        freelocale(c);
        ok = end == copy + n;
        if (ok) *out = d;
    }
    if (copy != small) LLM_FREE(copy);
    return ok;
}

/* Reads a decimal integer of exactly n bytes. 0 if it is none or does not fit 64 bits. */
static int llm__parse_int(const char *s, size_t n, int64_t *out) {
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

/* The value of a hexadecimal digit, or -1. */
static int llm__hex(char c) { return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1; }

/* printf's %.*e, %.*f or %.*g (`type`: the letter), with a point in every locale. Returns the length, as snprintf does. */
static int llm__print_double(char *out, size_t size, char type, int precision, double d) {
    const char format[5] = {'%', '.', '*', type, 0};
    locale_t c = llm__c_locale(), old = uselocale(c); /* of this thread only */
    int n = snprintf(out, size, format, precision, d);
    uselocale(old);
    freelocale(c);
    return n;
}

/* Python's repr of a float, the shortest text that reads back equal: 1.0, 0.1, 1e+22, 1e-07. `out` holds 40 bytes. Returns its length.
 * Every decimal of up to 15 digits survives the way through a double, and 17 digits tell any two apart, so 15, 16 and 17 are tried and
 * zeros at the end dropped: 0.1 is found with 15 digits, 0.1 + 0.2 takes 17, 0.30000000000000004. (Ryu, Adams 2018, finds the shortest
 * directly, with tables of 10 KB; here a number printed is a rare thing.) Subnormal numbers carry fewer: there the search begins with one. */
static int llm__format_double(double d, char *out) {
    double back = d;
    int digits = fabs(d) < 2.2250738585072014e-308 ? 1 : 15;
    if (d - d != 0) return snprintf(out, 40, "%s", d != d ? "nan" : d > 0 ? "inf" : "-inf");
    for (;; digits++) {
        int n = llm__print_double(out, 40, 'e', digits - 1, d);
        if (digits == 17 || (llm__parse_double(out, (size_t)n, &back) && back == d)) break;
    }
    const char *last = strchr(out, 'e');
    int exponent = (int)strtol(last + 1, NULL, 10);
    while (digits > 1 && *--last == '0') digits--;
    if (exponent < -4 || exponent >= 16) return llm__print_double(out, 40, 'e', digits - 1, d);
    return llm__print_double(out, 40, 'f', LLM__MAX(digits - 1 - exponent, 1), d);
}

