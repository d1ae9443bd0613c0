/* Unicode, normal forms, regular expressions: against the standard's own rules and plain recognisers. */
#include "../test.h"
#include "base/alloc.h"
#include "base/text.h"
#include "text/unicode.h"
#include "text/unicode_classes.h"
#include "text/normal_form.h"
#include "text/regex.h"
#include "text/regex_match.h"

/* Categories of code points as UnicodeData.txt has them; scripts; what White_Space holds. */
static void text_test_classes(void) {
    static const struct {
        int32_t c;
        llm__cat cat;
    } cats[] = {{'A', LLM__LU},     {'a', LLM__LL},    {'5', LLM__ND},    {' ', LLM__ZS},    {'_', LLM__PC},    {'-', LLM__PD},
                {'(', LLM__PS},     {')', LLM__PE},    {'+', LLM__SM},    {'$', LLM__SC},    {'^', LLM__SK},    {0xA9, LLM__SO},
                {0xAB, LLM__PI},    {0xBB, LLM__PF},   {0x1C5, LLM__LT},  {0x2B0, LLM__LM},  {0x5D0, LLM__LO},  {0x300, LLM__MN},
                {0x903, LLM__MC},   {0x20DD, LLM__ME}, {0x2160, LLM__NL}, {0xB2, LLM__NO},   {0x2028, LLM__ZL}, {0x2029, LLM__ZP},
                {0, LLM__CC},       {0xAD, LLM__CF},   {0xE000, LLM__CO}, {0xD800, LLM__CS}, {0x378, LLM__CN},  {0x10FFFF, LLM__CN},
                {0x1F600, LLM__SO}, {0x4E00, LLM__LO}};
    int spaces = 0;
    for (int i = 0; i < LLM__COUNT(cats); i++)
        if (!CHECK(llm__uni_cat(cats[i].c) == cats[i].cat && llm__uni_in(cats[i].c, 1u << cats[i].cat)))
            printf("  U+%04X: %d\n", (unsigned)cats[i].c, (int)llm__uni_cat(cats[i].c));
    for (int32_t c = 0; c < 0x110000; c++) spaces += llm__uni_space(c);
    CHECK(spaces == 25 && llm__uni_space(0x85) && !llm__uni_space(0x200B) && !llm__uni_space(0x1C)); /* PropList.txt: 25 code points */
    CHECK(llm__uni_word('_') && llm__uni_word(0x661) && llm__uni_word(0x24B6) && !llm__uni_word(0xB2) && !llm__uni_word('-'));
    CHECK(llm__uni_script('a') == llm__uni_script_find(llm__lit("latin")) &&
          llm__uni_script(0x3B1) == llm__uni_script_find(llm__lit("Grek")) && llm__uni_script_find(llm__lit("Klingon")) == -1);
    CHECK(llm__uni_same_name(llm__lit("Old_Italic"), llm__lit("olditalic")) && !llm__uni_same_name(llm__lit("Han"), llm__lit("Hang")));
}

/* Case by pairs of whole blocks, and single ones that stand outside of them. */
static void text_test_case(void) {
    int wrong = 0;
    for (int32_t c = 'A'; c <= 'Z'; c++) wrong += llm__uni_case(c, 1) != c + 32;
    for (int32_t c = 0x391; c <= 0x3A9; c++) wrong += c != 0x3A2 && llm__uni_case(c, 1) != c + 32; /* Greek; U+03A2 is not assigned */
    for (int32_t c = 0x410; c <= 0x42F; c++) wrong += llm__uni_case(c, 1) != c + 32;               /* Cyrillic */
    for (int32_t c = 0x10400; c <= 0x10427; c++) wrong += llm__uni_case(c, 1) != c + 40;           /* Deseret */
    CHECK(!wrong);
    CHECK(llm__uni_case(0x212A, 1) == 'k' && llm__uni_case(0x17F, 2) == 's' && llm__uni_case(0x17F, 1) == 0x17F &&
          llm__uni_case(0x1E9E, 1) == 0xDF && llm__uni_case('5', 1) == '5');
    CHECK(llm__uni_lower_ascii('Q') == 'q' && llm__uni_lower_ascii('[') == '[');
}

static llm__uni_norm text_norm;

static int text_is(llm__uni_form form, llm__str s, llm__str want) {
    llm_text out;
    memset(&out, 0, sizeof out);
    llm__uni_normalize(&text_norm, form, s, &out);
    const int ok = out.len == want.n && !memcmp(out.data ? out.data : "", want.p, want.n);
    llm_text_free(&out);
    return ok;
}

/* Every Hangul syllable by the arithmetic of the standard (chapter 3.12): 19 * 21 * 28 of them. */
static void text_test_hangul(void) {
    int wrong = 0;
    for (int32_t i = 0; i < 19 * 21 * 28; i++) {
        char whole[4], parts[12];
        const int n = llm__utf8_put(whole, 0xAC00 + i);
        int m = llm__utf8_put(parts, 0x1100 + i / (21 * 28));
        m += llm__utf8_put(parts + m, 0x1161 + i / 28 % 21);
        if (i % 28) m += llm__utf8_put(parts + m, 0x11A7 + i % 28);
        wrong += !text_is(LLM__NFD, llm__s(whole, (size_t)n), llm__s(parts, (size_t)m)) ||
                 !text_is(LLM__NFC, llm__s(parts, (size_t)m), llm__s(whole, (size_t)n));
    }
    CHECK(!wrong);
}

/* Rows of UAX #15, and for every code point: what is decomposed composes to one form, which stays as it is (NFC of NFD is NFC). */
static void text_test_normal_forms(void) {
    static const struct {
        llm__uni_form form;
        const char *from, *to;
    } rows[] = {{LLM__NFC, "A\xCC\x8A", "\xC3\x85"},
                {LLM__NFC, "\xE2\x84\xAB", "\xC3\x85"},
                {LLM__NFD, "\xE1\xB9\xA9", "s\xCC\xA3\xCC\x87"},
                {LLM__NFC, "s\xCC\x87\xCC\xA3", "\xE1\xB9\xA9"},
                {LLM__NFD, "s\xCC\x87\xCC\xA3", "s\xCC\xA3\xCC\x87"},
                {LLM__NFKC, "\xE1\xBA\x9B\xCC\xA3", "\xE1\xB9\xA9"},
                {LLM__NFC, "\xE1\xBA\x9B\xCC\xA3", "\xE1\xBA\x9B\xCC\xA3"},
                {LLM__NFKD, "2\xE2\x81\xB5", "25"},
                {LLM__NFC, "\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC"},
                {LLM__NFC, "plain", "plain"},
                {LLM__NFC, "", ""}};
    int wrong = 0;
    for (int i = 0; i < LLM__COUNT(rows); i++)
        if (!CHECK(text_is(rows[i].form, llm__lit(rows[i].from), llm__lit(rows[i].to)))) printf("  %s\n", rows[i].from);
    for (int32_t c = 1; c < 0x30000; c++) {
        char s[4];
        llm_text d, both, once;
        if (c >= 0xD800 && c < 0xE000) continue;
        memset(&d, 0, sizeof d), memset(&both, 0, sizeof both), memset(&once, 0, sizeof once);
        const llm__str x = llm__s(s, (size_t)llm__utf8_put(s, c));
        llm__uni_normalize(&text_norm, LLM__NFD, x, &d);
        llm__uni_normalize(&text_norm, LLM__NFC, llm__text_str(&d), &both);
        llm__uni_normalize(&text_norm, LLM__NFC, x, &once);
        wrong += both.len != once.len || memcmp(both.data, once.data, once.len) ||
                 !text_is(LLM__NFC, llm__text_str(&once), llm__text_str(&once));
        llm_text_free(&d), llm_text_free(&both), llm_text_free(&once);
    }
    CHECK(!wrong && llm__uni_class(0x301) == 230 && llm__uni_class(0x323) == 220 && llm__uni_class('a') == 0 &&
          llm__uni_class(0x345) == 240);
}

/* All sets of eight code points combined with all others, against bits. */
static void text_test_sets(void) {
    static const int keeps[] = {LLM__SET_ONLY, LLM__SET_AND, LLM__SET_OR, LLM__SET_OR_NOT};
    int wrong = 0;
    for (int x = 0; x < 256; x++)
        for (int y = 0; y < 256; y += 3)
            for (int k = 0; k < 4; k++) {
                llm__set a = LLM__ZERO, b = LLM__ZERO;
                for (int c = 0; c < 8; c++) {
                    if (x >> c & 1) llm__set_add(&a, c, c);
                    if (y >> c & 1) llm__set_add(&b, c, c);
                }
                llm__set_combine(&a, b.v, b.n, keeps[k]);
                for (int c = 0; c < 8; c++) {
                    const int in = x >> c & 1, other = y >> c & 1;
                    wrong += llm__set_has(a.v, a.n, c) != (keeps[k] >> (in | other << 1) & 1);
                }
                LLM_FREE(a.v), LLM_FREE(b.v);
            }
    CHECK(!wrong);
}

/* What (?i) matches where c stands, alone and in a class: what folds to what c folds to, looked up one by one. What making the sets costs
 * is bounded. */
static void text_test_any_case(void) {
    static const int32_t some[] = {'a',   'K',   's',    '5',    0xB5,   0xDF,    0x1C5,   0x345,
                                   0x3C2, 0x3A3, 0x1E9E, 0x13A0, 0xAB70, 0x10428, 0x1E921, 0xFB06};
    static const int32_t blocks[][2] = {
        {0, 0x590},       {0x10A0, 0x1100}, {0x13A0, 0x1400},   {0x1C80, 0x2190},  {0x2C00, 0x2E00},
        {0xA640, 0xABC0}, {0xFB00, 0xFB10}, {0x10400, 0x10450}, {0x1E900, 0x1E944}}; /* of scripts that have cases */
    llm_text pattern = LLM__ZERO;
    llm__regex *re = NULL;
    for (int i = 0; i < LLM__COUNT(some); i++)
        for (int bracket = 0; bracket < 2; bracket++) {
            char text[40];
            int wrong = 0, members = 0;
            snprintf(text, sizeof text, bracket ? "(?i)[\\x{%x}]" : "(?i)\\x{%x}", (unsigned)some[i]);
            if (!CHECK(!llm__regex_open(text, strlen(text), &re))) continue;
            const int32_t *change = re->change + re->code[0].set;
            for (uint32_t k = 0; k < re->code[0].set_n; k += 2) members += change[k + 1] - change[k];
            for (int b = 0; b < LLM__COUNT(blocks); b++)
                for (int32_t c = blocks[b][0]; c < blocks[b][1]; c++) {
                    const int same = llm__uni_case(c, 2) == llm__uni_case(some[i], 2);
                    wrong += llm__set_has(change, re->code[0].set_n, c) != same;
                    members -= same;
                }
            if (!CHECK(!wrong && !members)) printf("  %s: %d wrong, %d more\n", text, wrong, members);
            llm__regex_close(re);
        }
    llm_text_str(&pattern, "(?i)");
    for (int i = 0; i < 10000; i++) llm_text_str(&pattern, "a");
    CHECK(!llm__regex_open(pattern.data, pattern.len, &re) && re->work < 3000000);
    llm__regex_close(re);
    pattern.len = 4;
    for (int i = 0; i < 1000; i++) llm_text_str(&pattern, i ? "&&\\p{Lu}" : "[\\w");
    llm_text_str(&pattern, "]");
    CHECK(llm__regex_open(pattern.data, pattern.len, &re) == LLM_ERR_LIMIT && strstr(llm_last_error(), "fewer items in a class"));
    llm_text_free(&pattern);
}

/* Where a pattern first matches in a text: Oniguruma's answers (\h is a hexadecimal digit, ^ and $ are of lines). Start -1: nowhere. */
static void text_test_regex(void) {
    static const struct {
        const char *pattern, *text;
        int start, end;
    } rows[] = {{"a|ab", "xab", 1, 2},
                {"(?:a|ab)c", "abc", 0, 3},
                {"a*?b", "aab", 0, 3},
                {"a++a", "aaa", -1, -1},
                {"(?>a*)a", "aa", -1, -1},
                {"(?<=x)a", "axa", 2, 3},
                {"(?<!x)a", "xaa", 2, 3},
                {"a(?=b)", "aab", 1, 2},
                {"a(?!b)", "aba", 2, 3},
                {"^b", "a\nb", 2, 3},
                {"a$", "a\nb", 0, 1},
                {"\\Ab", "ab", -1, -1},
                {"b\\z", "b\n", -1, -1},
                {"b\\Z", "b\n", 0, 1},
                {"\\bfoo\\b", "afoo foo", 5, 8},
                {"\\Boo", "foo", 1, 3},
                {"[a-z&&[^b]]+", "bacb", 1, 3},
                {"[[:digit:]]{2,3}", "a12345", 1, 4},
                {"(?i)stra\\u00DFe",
                 "STRA\xC3\x9F"
                 "E",
                 0, 7},
                {"\\p{Lu}\\p{Ll}+", "aBcd", 1, 4},
                {"\\x{1F600}", "\xF0\x9F\x98\x80", 0, 4},
                {"[^\\s\\d]+", " 1ab ", 2, 4},
                {"\\h+", "xyz1Fg", 3, 5},
                {"(?i:A)b", "ab", 0, 2},
                {"(?i:A)b", "aB", -1, -1},
                {"x{0}y", "xy", 1, 2},
                {"(a?)*b", "aab", 0, 3}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm__regex *re = NULL;
        llm__rx_run run;
        size_t start = 0, end = 0;
        memset(&run, 0, sizeof run);
        if (!CHECK(!llm__regex_open(rows[i].pattern, strlen(rows[i].pattern), &re))) continue;
        llm__rx_begin(&run, re, rows[i].text, strlen(rows[i].text));
        const int found = llm__rx_next(&run, &start, &end);
        if (!CHECK(rows[i].start < 0 ? found == 0 : found == 1 && (int)start == rows[i].start && (int)end == rows[i].end))
            printf("  %s on %s: %d, %zu to %zu\n", rows[i].pattern, rows[i].text, found, start, end);
        llm__rx_end(&run);
        llm__regex_close(re);
    }
}

static void text_test_refused(void) {
    static const char *const bad[] = {"(", "a)", "[a", "*a", "a{2,1}", "\\", "\\1", "\\p{Nope}", "[b-a]", "a{1001}", "(?", "\\x{110000}"};
    llm__regex *re = NULL;
    for (int i = 0; i < LLM__COUNT(bad); i++) {
        if (!CHECK(llm__regex_open(bad[i], strlen(bad[i]), &re) && !re && llm_last_error()[0])) printf("  %s\n", bad[i]);
        llm__regex_close(re);
        re = NULL;
    }
    CHECK(!llm__regex_compile("^(?=a)b", 7, LLM__RX_NARROWEST, &re) && llm__rx_lead(re) > 0);
    llm__regex_close(re);
}

TEST_GROUP(text) {
    llm__uni_norm_unpack(&text_norm);
    text_test_classes();
    text_test_case();
    text_test_hangul();
    text_test_normal_forms();
    text_test_sets();
    text_test_any_case();
    text_test_regex();
    text_test_refused();
}
