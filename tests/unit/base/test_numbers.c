/* Numbers from text and back: against exact arithmetic on decimal digits, the C library, Python's repr, and in a locale with a comma. */
#include "../test.h"
#include "../comma.h"
#include "base/platform.h"
#include "base/number.h"

static uint64_t numbers_seed = 1;

static uint64_t numbers_random(void) {
    numbers_seed = numbers_seed * 6364136223846793005u + 1442695040888963407u;
    return numbers_seed >> 11 ^ numbers_seed << 31;
}

/* A positive double with any exponent, subnormal ones too. */
static double numbers_any(void) {
    uint64_t bits = numbers_random() % ((uint64_t)0x7FF << 52);
    double d;
    if (numbers_random() % 8 == 0) bits >>= numbers_random() % 12 + 52 - 11; /* small ones: few bits */
    memcpy(&d, &bits, sizeof d);
    return d;
}

static int numbers_reads(const char *s, double want) {
    double d;
    return llm__parse_double(s, strlen(s), &d) && d == want;
}

/* Halfway between two neighbours, written out to its last digit, is the even one's; a hair above and below it is not. A long double has the
 * 54 bits that this takes, so no rounding but the one under test is in it. */
static void numbers_halfway(void) {
    static char s[2400];
    int wrong = 0;
    for (int i = 0; i < (TEST_BRIEF ? 300 : 3000); i++) {
        double low = numbers_any(), high = nextafter(low, INFINITY), even;
        uint64_t bits;
        memcpy(&bits, &low, sizeof bits);
        even = bits % 2 ? high : low;
        if (high > 1e308) continue;
        int n = snprintf(s, sizeof s - 2, "%.1100Lf", ((long double)low + (long double)high) / 2);
        while (s[n - 1] == '0') n--; /* the last digit of a half is a 5 */
        s[n] = 0;
        wrong += !numbers_reads(s, even);
        strcpy(s + n, "1");
        wrong += !numbers_reads(s, high);
        s[n] = 0;
        if (s[n - 1] == '.')
            snprintf(s, sizeof s, "%.70Lf", nextafterl(((long double)low + (long double)high) / 2, 0)); /* a whole number */
        else s[n - 1]--, strcat(s, "9");
        wrong += !numbers_reads(s, low);
    }
    CHECK(wrong == 0);
}

/* Bit for bit as strtod in the locale C: digits with any exponent. */
static void numbers_as_strtod(void) {
    int wrong = 0;
    for (int i = 0; i < (TEST_BRIEF ? 20000 : 100000); i++) {
        char s[64];
        int k = 0, digits = 1 + (int)(numbers_random() % 25);
        double a, b = 7;
        for (int j = 0; j < digits; j++) s[k++] = (char)('0' + numbers_random() % 10);
        if (i & 1) s[k++] = '.', s[k++] = '5';
        k += snprintf(s + k, 10, "e%d", (int)(numbers_random() % 660) - 340);
        a = strtod(s, NULL);
        wrong += !llm__parse_double(s, (size_t)k, &b) || memcmp(&a, &b, 8) != 0;
    }
    CHECK(wrong == 0);
}

/* The significant digits of a text, and how many; without zeros at either end. */
static int numbers_digits(const char *s, char *out) {
    int n = 0;
    for (; *s && *s != 'e'; s++)
        if (*s >= '0' && *s <= '9' && (n || *s != '0')) out[n++] = *s;
    while (n && out[n - 1] == '0') n--;
    out[n] = 0;
    return n;
}

/* What is printed reads back, and no decimal with a digit less does: neither of the two around the number. */
static void numbers_shortest(double d) {
    char s[48], shorter[24], digits[48], at[48], exact[48];
    llm__format_double(d, s);
    int n = numbers_digits(s, digits);
    int ok = numbers_reads(s, d) && strspn(s, "0123456789.e+-") == strlen(s);
    for (int up = 0; up < 2 && n > 1; up++) {
        snprintf(exact, sizeof exact, "%.30e", d); /* cut after n - 1 digits, and one more at the last of them */
        int64_t cut = 0;
        for (int i = 0, k = 0; k < n - 1; i++)
            if (exact[i] != '.') cut = cut * 10 + (exact[i] - '0'), k++;
        snprintf(shorter, sizeof shorter, "%lld", (long long)(cut + up));
        snprintf(at, sizeof at, "%se%d", shorter, atoi(strchr(exact, 'e') + 1) - (n - 2));
        ok &= !numbers_reads(at, d);
    }
    if (!CHECK(ok)) printf("  %.17g as %s\n", d, s);
}

static void numbers_print(void) {
    /* clang-format off */
    static const struct { double v; const char *s; } python[] = {
        {0.1, "0.1"}, {1e22, "1e+22"}, {1e-7, "1e-07"}, {-0.0, "-0.0"}, {1e15, "1000000000000000.0"}, {1e16, "1e+16"}, {2.0 / 3, "0.6666666666666666"}, {0.1 + 0.2, "0.30000000000000004"},
        {5e-324, "5e-324"}, {1.5e-310, "1.5e-310"}, {2.2250738585072014e-308, "2.2250738585072014e-308"}, {0, "0.0"}, {-1e300 * 1e300, "-inf"}, {1e300 * 1e300, "inf"}, {9007199254740993.0, "9007199254740992.0"},
        {0.0001, "0.0001"}, {0.00001, "1e-05"}, {123456789012345680.0, "1.2345678901234568e+17"}, {-1.7976931348623157e308, "-1.7976931348623157e+308"}, {1e23, "1e+23"},
        {0x1p-44, "5.684341886080802e-14"}, {-0x1p-44, "-5.684341886080802e-14"}, {0x1p-1017, "7.120236347223045e-307"}, {0x1p-791, "7.678447687145631e-239"}, {0x1p-1022, "2.2250738585072014e-308"}, {0x1p1023, "8.98846567431158e+307"}};
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(python); i++) {
        char s[40];
        int n = llm__format_double(python[i].v, s);
        if (!CHECK(!strcmp(s, python[i].s) && n == (int)strlen(s))) printf("  %s, %s expected\n", s, python[i].s);
    }
    for (int e = -1074; e < 1024; e++) numbers_shortest(ldexp(1, e));
    for (int i = 0; i < (TEST_BRIEF ? 2000 : 10000); i++) numbers_shortest(numbers_any());
}

static void numbers_none(void) {
    static const char *const none[] = {"", "-", ".", "+1", "1e", "1e+", "e5", "inf", "nan", "0x1", " 1", "1 ", "1,5", "--1", "1.2.3"};
    char long_number[1000];
    double d;
    for (int i = 0; i < LLM__COUNT(none); i++) {
        d = 7;
        CHECK(!llm__parse_double(none[i], strlen(none[i]), &d) && d == 7);
    }
    memset(long_number, '3', sizeof long_number);
    long_number[1] = '.';
    CHECK(llm__parse_double(long_number, sizeof long_number, &d) && d == 10.0 / 3);
    CHECK(llm__parse_double("12x", 2, &d) && d == 12 && llm__parse_double("1e999", 5, &d) && d > 1e308 && llm__parse_double("-.5", 3, &d) &&
          d == -0.5);
}

/* Whole numbers around both ends of 64 bits, and hexadecimal digits: all bytes. */
static void numbers_whole(void) {
    int64_t v;
    CHECK(llm__parse_int("-9223372036854775808", 20, &v) && v == INT64_MIN);
    CHECK(llm__parse_int("9223372036854775807", 19, &v) && v == INT64_MAX && llm__parse_int("-0", 2, &v) && v == 0);
    for (int i = 0; i < 100; i++) { /* 92233720368547758NN and its negative: strtoll tells by errno */
        char s[32];
        for (int negative = 0; negative < 2; negative++) {
            int n = snprintf(s, sizeof s, "%s92233720368547758%02d", negative ? "-" : "", i);
            errno = 0;
            long long want = strtoll(s, NULL, 10);
            int fits = !errno, ok = llm__parse_int(s, (size_t)n, &v);
            CHECK(ok == fits && (!ok || v == want));
        }
    }
    CHECK(!llm__parse_int("9223372036854775808", 19, &v) && !llm__parse_int("99999999999999999999", 20, &v) && !llm__parse_int("", 0, &v) &&
          !llm__parse_int("-", 1, &v) && !llm__parse_int("1x", 2, &v) && !llm__parse_int("+1", 2, &v));
    for (int c = 0; c < 256; c++) {
        const char *digits = "0123456789abcdefABCDEF", *at = c ? strchr(digits, c) : NULL;
        CHECK(llm__hex((char)c) == (at ? (int)(at - digits) - (at - digits > 15 ? 6 : 0) : -1));
    }
}

/* ---- A host program whose locale writes 0,5 ---- */

static void numbers_everywhere(void) {
    llm_text t = {0};
    llm_json *doc = NULL;
    char s[40];
    double d = 0;
    CHECK(llm__parse_double("0.75", 4, &d) && d == 0.75 && !llm__parse_double("0,75", 4, &d));
    CHECK(llm__format_double(0.75, s) == 4 && !strcmp(s, "0.75") && llm__format_double(1.5e300, s) == 8 && !strcmp(s, "1.5e+300"));
    CHECK(!llm_json_parse("[-2.5e-1]", 9, NULL, &doc) && llm_json_num(doc, llm_json_first(doc, 0), &d) && d == -0.25);
    llm_json_free(doc);
    llm_text_format(&t, "%f", 1234567.5);
    CHECK(t.len == 9 && !memcmp(t.data, "1234567.5", 9));
    llm_text_free(&t);
}

/* Numbers look and read as everywhere, whether the host has chosen the locale for the thread or for all; and its choice is left to it. */
static void numbers_locale(void) {
    char comma[8];
    locale_t german = comma_locale();
    numbers_everywhere();
    if (!german) {
        SKIP("localedef, which makes a locale with a comma, is not there");
        return;
    }
    locale_t old = uselocale(german);
    snprintf(comma, sizeof comma, "%.1f", 0.5);
    if (CHECK(!strcmp(comma, "0,5"))) numbers_everywhere();
    CHECK(uselocale((locale_t)0) == german);
    snprintf(comma, sizeof comma, "%.1f", 0.5);
    CHECK(!strcmp(comma, "0,5"));
    uselocale(old);
    freelocale(german);
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) return; /* of the whole program: where it is installed */
    snprintf(comma, sizeof comma, "%.1f", 0.5);
    if (CHECK(!strcmp(comma, "0,5"))) numbers_everywhere();
    setlocale(LC_NUMERIC, "C");
}

TEST_GROUP(numbers) {
    numbers_halfway();
    numbers_as_strtod();
    numbers_print();
    numbers_none();
    numbers_whole();
    numbers_locale();
}
