/* Unicode tables, regular expressions and the tokenizer: against the goldens of Hugging Face and llama.cpp, against damaged files,
 * and the rules that must hold for any text (streamed text equals whole text, time grows with the length and no faster). */
#include "../test.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/text.h"
#include "base/files.h"
#include "text/unicode.h"
#include "text/unicode_classes.h"
#include "text/normal_form.h"
#include "text/regex.h"
#include "text/regex_match.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/subword.h"
#include "tokenizer/decode.h"
#include "tokenizer/build.h"
#include "tokenizer/components.h"
#include "tokenizer/tokenizer_files.h"
#include "model/gguf_pre.h"

#define TOK_DATA "build/data/"

/* Opens the bytes of a tokenizer file; name: of the file. NULL: refused, with *r. */
static llm__tokenizer *tok_open_bytes(const char *bytes, size_t n, const char *name, llm_result *r) {
    llm__tokenizer *t = llm__tok_new();
    *r = t ? llm__tok_load(t, llm__s(bytes, n), name, NULL) : LLM_ERR_NOMEM;
    if (!*r) return t;
    llm__tokenizer_close(t);
    return NULL;
}

static llm__tokenizer *tok_open(const char *json) {
    llm_result r;
    return tok_open_bytes(json, strlen(json), "", &r);
}

/* Opens a folder or file. */
static llm_result tok_open_path(const char *path, llm__tokenizer **out) {
    llm__tokenizer *t = *out = llm__tok_new();
    const llm__place here = {NULL, 0};
    llm_result r = t ? llm__tok_load_path(t, &here, path, NULL) : LLM_ERR_NOMEM;
    if (r) llm__tokenizer_close(t), *out = NULL;
    return r;
}

/* 1 if a tokenizer.json is refused with the given result. */
static int tok_refused(const char *json, llm_result expected) {
    llm_result r;
    llm__tokenizer_close(tok_open_bytes(json, strlen(json), "", &r));
    if (r != expected) printf("  %d for %.120s\n", (int)r, json);
    return r == expected && llm_last_error()[0];
}

/* Encodes and compares with ids ended by -1. */
static int tok_ids(const llm__tokenizer *t, const char *text, int flags, const int32_t *want) {
    llm_tokens got;
    size_t n = 0;
    memset(&got, 0, sizeof got);
    llm_result r = llm__tokenizer_encode(t, text, strlen(text), flags, &got);
    while (want[n] >= 0) n++;
    int ok = !r && got.len == n && (!n || !memcmp(got.data, want, n * sizeof *want));
    for (size_t i = 0; !ok && i < got.len; i++) printf("%s%d", i ? ", " : "  got ", (int)got.data[i]);
    if (!ok) printf("\n");
    llm_tokens_free(&got);
    return ok;
}

/* Decodes, whole and streamed; the two must be equal and every streamed piece whole characters. */
static int tok_text(const llm__tokenizer *t, const int32_t *ids, size_t n, int flags, const char *want, size_t want_len) {
    llm_text whole, streamed;
    int ok = 1, len;
    memset(&whole, 0, sizeof whole);
    memset(&streamed, 0, sizeof streamed);
    struct llm_detok *d = llm__detok_open(t, flags);
    ok &= d && !llm__tokenizer_decode(t, ids, n, flags, 0, &whole);
    for (size_t i = 0; i < n && d; i++) {
        size_t from = streamed.len;
        ok &= !llm_detok_push(d, ids[i], &streamed);
        for (size_t at = from; at < streamed.len; at += (size_t)len) ok &= llm__utf8_get(streamed.data + at, streamed.len - at, &len) >= 0;
    }
    if (d) llm_detok_flush(d, &streamed);
    llm_detok_free(d);
    ok &= whole.len == streamed.len && (!whole.len || !memcmp(whole.data, streamed.data, whole.len));
    if (want) ok &= whole.len == want_len && (!want_len || !memcmp(whole.data, want, want_len));
    llm_text_free(&whole);
    llm_text_free(&streamed);
    return ok;
}

/* ---- Unicode ---- */

static void tok_test_unicode(void) {
    CHECK(llm__uni_cat('A') == LLM__LU && llm__uni_cat('a') == LLM__LL && llm__uni_cat(0x100) == LLM__LU && llm__uni_cat(0x101) == LLM__LL);
    CHECK(llm__uni_cat(0x139) == LLM__LU && llm__uni_cat(0x13A) == LLM__LL && llm__uni_cat(0x4E2D) == LLM__LO &&
          llm__uni_cat(0x378) == LLM__CN);
    CHECK(llm__uni_cat(0x10FFFF) == LLM__CN && llm__uni_cat(0xE000) == LLM__CO && llm__uni_cat(0x0301) == LLM__MN &&
          llm__uni_cat(0xBD) == LLM__NO);
    CHECK(llm__uni_space(0x85) && llm__uni_space(0x3000) && !llm__uni_space(0x1C) && !llm__uni_space(0x200B) && !llm__uni_space(0x180E));
    CHECK(llm__uni_case('Q', 1) == 'q' && llm__uni_case(0x17F, 2) == 's' && llm__uni_case(0x17F, 1) == 0x17F &&
          llm__uni_case(0x212A, 2) == 'k');
    CHECK(llm__uni_script(0x4E2D) == llm__uni_script_find(llm__s("Han", 3)) && llm__uni_script_find(llm__s("no such", 7)) < 0);
    /* clang-format off */
    static const struct { llm__uni_form form; const char *from, *to; } forms[] = {
        {LLM__NFC, "e\xCC\x81", "\xC3\xA9"}, {LLM__NFD, "\xC3\xA9", "e\xCC\x81"}, {LLM__NFKC, "\xEF\xAC\x81\xC2\xB2", "fi2"},
        {LLM__NFC, "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"}, {LLM__NFD, "\xED\x95\x9C",
            "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"},
        {LLM__NFC, "a\xCC\x81\xCC\xA3", "\xE1\xBA\xA1\xCC\x81"}, {LLM__NFC, "\xF0\x90\x97\x92\xCC\x87", "\xF0\x90\x97\x92\xCC\x87"},
            {LLM__NFKD, "abc", "abc"}};
    /* clang-format on */
    llm__uni_norm *m = LLM__NEW(llm__uni_norm, 1);
    if (CHECK(m != NULL)) llm__uni_norm_unpack(m);
    for (int i = 0; i < LLM__COUNT(forms) && m; i++) {
        llm_text out;
        memset(&out, 0, sizeof out);
        llm__uni_normalize(m, forms[i].form, llm__s(forms[i].from, strlen(forms[i].from)), &out);
        CHECK(!out.failed && !strcmp(out.data, forms[i].to));
        llm_text_free(&out);
    }
    LLM_FREE(m);
}

/* ---- regular expressions ---- */

/* The matches as "from-to from-to". slow: with its memory from the start. */
static llm_text tok_matches(const char *pattern, const char *text, size_t n, int slow) {
    llm_text out;
    llm__regex *re;
    llm__rx_run run;
    size_t from, end;
    int found;
    memset(&out, 0, sizeof out);
    memset(&run, 0, sizeof run);
    if (llm__regex_open(pattern, strlen(pattern), &re)) {
        llm_text_str(&out, "error");
        return out;
    }
    llm__rx_begin(&run, re, text, n);
    if (slow) llm__rx_remember(&run);
    while ((found = llm__rx_next(&run, &from, &end)) > 0) {
        if (out.len) llm_text_str(&out, " ");
        llm_text_int(&out, (int64_t)from);
        llm_text_str(&out, "-");
        llm_text_int(&out, (int64_t)end);
    }
    llm_text_str(&out, found < 0 ? "!" : "");
    llm__rx_end(&run);
    llm__regex_close(re);
    return out;
}

static void tok_test_regex(void) {
    /* clang-format off */
    static const struct { const char *pattern, *text, *want; } cases[] = {
        {"a\\.", "axa.b", "2-4"}, /* an escaped point is a point */
        {"a|b", "cab", "1-2 2-3"}, {"a*", "baa", "0-0 1-3"}, {"a{2,3}?", "aaaa", "0-2 2-4"}, {"(a|ab)(c|bcd)", "abcd", "0-4"},
            {"(?>a|ab)c", "abc", ""},
        {"a++a", "aaa", ""}, {"a+?", "aa", "0-1 1-2"}, {"(?i:'s|'ll)", "'S 'lL '\xC5\xBF", "0-2 3-6 7-10"}, {"\\s+(?!\\S)|\\s+", "a  b ",
            "1-2 2-3 4-5"},
        {"(?=(\\d{3})+(?!\\d))", "1234567", "1-1 4-4"}, {"[a-z&&[^aeiou]]+", "hello", "0-1 2-4"}, {"[^\\W\\d]+", "a1b", "0-1 2-3"},
            {"\\p{Han}+", "a\xE4\xB8\xAD" "b", "1-4"},
        {"(?<=a)b", "abcb", "1-2"}, {"(?<!a)b", "abcb", "3-4"}, {"^a|b$", "ab", "0-1 1-2"}, {"\\ba", "a ba", "0-1"},
            {"(a*)*b", "aab", "0-3"}, {"(?:a?){3}a{3}", "aaaa", "0-4"},
        {"x{,2}", "xxx", "0-2 2-3"}, {"[]a]", "]a", "0-1 1-2"}, {"\\x{4E2D}|\\u0041", "A\xE4\xB8\xAD", "0-1 1-4"},
            {"[[:alpha:]_]+", "ab_1", "0-3"}, {"(a|b)*c", "abac", "0-4"},
        {"(?s).", "\n", "0-1"}, {".", "\n", ""}, {"(?i)k", "\xE2\x84\xAA", "0-3"}, {"[^a]", "a\xF0\x9F\x98\x80", "1-5"},
            {"[\\P{L}\\x{10FFFD}]+", "a\xF4\x8F\xBF\xBD", "1-5"}, {"[\\P{L}b-d]+", "abcde", "1-4"},
            {"\\z", "a", "1-1"}, {"\\w", "\xC2\xB2", "0-2"}, {"[\\w]", "\xC2\xB2", ""}, {"\\W", "\xC2\xB2$", "2-3"}, {"[[:punct:]]", "$!a", "0-1 1-2"},
            {"\\p{Punct}", "$!a", "1-2"}};
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(cases); i++)
        for (int slow = 0; slow < 2; slow++) {
            llm_text got = tok_matches(cases[i].pattern, cases[i].text, strlen(cases[i].text), slow);
            if (!CHECK(!strcmp(got.data ? got.data : "", cases[i].want))) printf("  %s slow %d: %s\n", cases[i].pattern, slow, got.data);
            llm_text_free(&got);
        }
    /* clang-format off */
    static const char *const bad[] = {"(", ")", "a)", "[", "[a", "*", "\\", "\\1", "(?<", "(?x)", "\\p{Nonsense}", "\\p{", "[b-a]",
        "a{5,2}", "a{2000}", "(?P<n", "\\q",
                                      "\\x{110000}", "\xFF", "(?#c)", "((((a{1000}){1000}){1000}){1000})"};
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(bad); i++) {
        llm__regex *re;
        if (!CHECK(llm__regex_open(bad[i], strlen(bad[i]), &re) != LLM_OK && !re)) printf("  accepted: %s\n", bad[i]);
    }
}

/* A small generator, so that failures repeat. */
static uint32_t tok_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Appends random text: characters that matter to the patterns, and any code point. */
static void tok_random_text(uint32_t *state, llm_text *out, int n) {
    /* clang-format off */
    static const char *const parts[] = {"a", "B", "'s", "'LL", "'\xC5\xBF", " ", "  ", "\n", "\r\n", "\t", "1", "234", "\xC2\xBD", ".",
        "!?", "/", "\xE4\xB8\xAD", "\xC3\xA9", "e\xCC\x81", "\xC7\x85",
                                        "\xCA\xB0", "\xC2\xA0", "\xE3\x80\x80", "\xC2\x85", "\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD", "_",
                                            "<|x|>", "\xE2\x96\x81", "'d", "Ab", "\xCC\x81"};
    /* clang-format on */
    for (int i = 0; i < n; i++) {
        uint32_t c = tok_random(state) % 0x110000;
        if (tok_random(state) % 8 || (c >= 0xD800 && c < 0xE000)) llm_text_str(out, parts[tok_random(state) % LLM__COUNT(parts)]);
        else llm__uni_put(out, (int32_t)c);
    }
}

/* Every pattern of the tables finds the same with the memory as without; and the patterns of most models find what is known of them. */
static void tok_test_patterns(void) {
    /* clang-format off */
    static const struct { const char *pattern, *want; } known[] = { /* in "I'LL see 1234 x\n\n  (Ab) \u017F" */
        {LLM__RX_GPT2_TEXT "|\\s+", "0-1 1-2 2-4 4-8 8-13 13-15 15-18 18-20 20-22 22-23 23-26"},
        {LLM__RX_ANY_CASE "|" LLM__RX_WORD "|\\p{N}{1,3}|" LLM__RX_TAIL, "0-1 1-4 4-8 8-9 9-12 12-13 13-15 15-17 17-18 18-20 20-22 22-23 23-26"},
        {LLM__RX_CASED(LLM__RX_UPPER, LLM__RX_LOWER, LLM__RX_ANY_CASE "?", "\\p{N}{1,3}", "/"), "0-4 4-8 8-9 9-12 12-13 13-15 15-17 17-18 18-20 20-22 22-23 23-26"}};
    /* clang-format on */
    uint32_t state = 7;
    for (int i = 0; i < LLM__COUNT(known); i++) {
        static const char text[] = "I'LL see 1234 x\n\n  (Ab) \xC5\xBF";
        llm_text got = tok_matches(known[i].pattern, text, sizeof text - 1, 0);
        if (!CHECK(!strcmp(got.data, known[i].want))) printf("  %s: %s\n", known[i].pattern, got.data);
        llm_text_free(&got);
    }
    for (int i = 0; i < LLM__COUNT(llm__pres); i++)
        for (int k = 0; k < 40; k++) {
            llm_text s;
            memset(&s, 0, sizeof s);
            llm_text_str(&s, "");
            tok_random_text(&state, &s, 1 + (int)(tok_random(&state) % 30));
            llm_text fast = tok_matches(llm__pres[i].regex[0], s.data, s.len, 0),
                     slow = tok_matches(llm__pres[i].regex[0], s.data, s.len, 1);
            if (strcmp(fast.data, slow.data)) CHECK(!"a pattern finds something else when states are remembered");
            llm_text_free(&s);
            llm_text_free(&fast);
            llm_text_free(&slow);
        }
    CHECK(1);
}

/* Steps that a pattern takes on n characters, as a measure of time that no busy machine disturbs. */
static int64_t tok_steps(const char *pattern, const char *unit, size_t n) {
    llm__regex *re;
    llm__rx_run run;
    llm_text s;
    size_t from, end;
    memset(&run, 0, sizeof run);
    memset(&s, 0, sizeof s);
    for (size_t i = 0; i < n; i++) llm_text_str(&s, unit);
    if (llm__regex_open(pattern, strlen(pattern), &re)) return -1;
    llm__rx_begin(&run, re, s.data, s.len);
    int found;
    while ((found = llm__rx_next(&run, &from, &end)) > 0) {}
    int64_t steps = found < 0 ? -1 : run.steps;
    llm__rx_end(&run);
    llm__regex_close(re);
    llm_text_free(&s);
    return steps;
}

static void tok_test_linear(void) {
    /* clang-format off */
    static const char *const pattern[][2] = {{"(a+)+b", "a"}, {"(x+x+)+y", "x"}, {"(a|aa)+$", "a"}, {"\\s*[\\r\\n]+|\\s", " "},
        {"(?=(\\d{3})+(?!\\d))", "1"}, {"(.*)*b", "a"}, {"a*+b|a", "a"},
                                             {"\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))", "1"}, {LLM__RX_GPT2_TEXT, "ab "}};
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(pattern); i++) {
        int64_t one = tok_steps(pattern[i][0], pattern[i][1], 4000), two = tok_steps(pattern[i][0], pattern[i][1], 8000);
        if (!CHECK(one > 0 && two > 0 && two < one * 5 / 2))
            printf("  %s: %lld, %lld steps\n", pattern[i][0], (long long)one, (long long)two);
    }
}

/* ---- small tokenizers made here ---- */

#define TOK_BPE(vocab, merges, more) \
    "{\"added_tokens\":[" more "],\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}}"

static void tok_test_small(void) {
    static const int32_t blank[] = {0, 2, 1, -1}, word[] = {0, 1, -1}, byte[] = {0, 2, 1, -1}, ab[] = {3, 2, -1}, whole[] = {4, -1},
                         added[] = {3, 5, 0, -1}, plain[] = {0, 1, -1}, wp[] = {1, 2, 0, -1}, uni[] = {3, 1, 0, -1};
    llm__tokenizer *t = tok_open(TOK_BPE("\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"abc\":4", "\"a b\"", ""));
    CHECK(t && tok_ids(t, "abc", 0, ab));
    llm__tokenizer_close(t);
    t = tok_open(
        TOK_BPE("\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"abc\":4", "\"a b\",[\"ab\",\"c\"],[\"a\",\"b\"]", "")); /* both forms, a pair twice */
    CHECK(t && tok_ids(t, "abc", 0, whole));
    llm__tokenizer_close(t);
    t = tok_open(TOK_BPE("\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"<\":6,\"<x>\":5", "\"a b\"",
                         "{\"id\":5,\"content\":\"<x>\",\"special\":true,\"lstrip\":true,\"normalized\":false}"));
    CHECK(t && tok_ids(t, "ab  <x>a", LLM_TOK_PARSE_SPECIAL, added));
    CHECK(t && llm__tokenizer_is_special(t, 5) && llm__tokenizer_id(t, llm__s("<x>", 3)) == 5 &&
          llm__tokenizer_id(t, llm__s("no", 2)) == -1);
    CHECK(t && tok_text(t, added, 3, 0, "ab a", 4) && tok_text(t, added, 3, LLM_DETOK_KEEP_SPECIAL, "ab <x> a", 8));
    static const int32_t strange[] = {-5, 99, 4, 0};
    CHECK(t && tok_text(t, strange, 4, 0, "a", 1)); /* ids without a token add nothing */
    llm__tokenizer_close(t);
    /* White space that a token took is no second token; one that is a word by itself touches no joiner. */
    t = tok_open(TOK_BPE("\"a\":0,\"b\":1", "", "{\"id\":2,\"content\":\"  \",\"lstrip\":true,\"rstrip\":true}"));
    CHECK(t && tok_ids(t, "a     b", 0, blank));
    llm__tokenizer_close(t);
    t = tok_open(TOK_BPE("\"a\":0,\"b\":1", "", "{\"id\":2,\"content\":\"ab\",\"single_word\":true}"));
    CHECK(t &&
          tok_ids(t,
                  "\xE2\x80\x8D"
                  "ab",
                  0, word) &&
          tok_ids(t, "ab\xE2\x80\x8C", 0, word));
    llm__tokenizer_close(t);
    /* Some bytes have tokens: a character falls back if all of its bytes do. */
    t = tok_open(
        "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"b\",\"vocab\":{\"a\":0,\"b\":1,\"<0x21>\":2},\"merges\":[]}}");
    CHECK(t && tok_ids(t, "a!\xC3\xA9", 0, byte));
    llm__tokenizer_close(t);
    t = tok_open(
        "{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"normalizer\":{\"type\":\"BertNormalizer\"},\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},"
        "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":{\"[UNK]\":0,\"un\":1,\"##able\":2}}}");
    CHECK(t &&
          tok_ids(t,
                  "Un\xC3\xA1"
                  "ble xyz",
                  0, wp) &&
          tok_text(t, wp, 3, 0, "unable [UNK]", 12));
    llm__tokenizer_close(t);
    t = tok_open("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0],[\"b\",-1],[\"a\",-3],[\"aa\",-2]]}}");
    CHECK(t && tok_ids(t, "aabzz", 0, uni));
    llm__tokenizer_close(t);
    t = tok_open(TOK_BPE("\"a\":0,\"b\":1", "", ""));
    CHECK(t && tok_ids(t, "azb", 0, plain)); /* what is no token vanishes, as in the reference */
    llm__tokenizer_close(t);
}

/* Files that must be refused, each with a sentence. */
static void tok_test_hostile(void) {
    /* clang-format off */
    static const char *const format[] = {
        "{}", "[]", "{\"model\":{}}", TOK_BPE("", "", ""), TOK_BPE("\"a\":-1", "", ""), TOK_BPE("\"a\":1.5", "", ""),
            TOK_BPE("\"a\":\"x\"", "", ""), TOK_BPE("\"a\":0,\"b\":0", "", ""),
        TOK_BPE("\"a\":0,\"a\":1", "", ""), TOK_BPE("\"a\":0,\"b\":1", "\"a\"", ""), TOK_BPE("\"a\":0,\"b\":1", "\"a b c\"", ""),
            TOK_BPE("\"a\":0,\"b\":1", "\"a b\"", ""),
        TOK_BPE("\"a\":0,\"b\":1", "\"a x\"", ""), TOK_BPE("\"a\":0,\"b\":1", "[\"a\"]", ""), TOK_BPE("\"a\":0,\"b\":1", "5", ""),
            TOK_BPE("\"a\":0", "", "{\"id\":0,\"content\":\"x\"}"),
        TOK_BPE("\"a\":0", "", "{\"id\":1,\"content\":\"\"}"), TOK_BPE("\"a\":0", "", "{\"content\":\"x\"}"),
            TOK_BPE("\"a\":0", "", "{\"id\":1}"),
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}",
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":{\"a\":0},\"merges\":[]}}",
            "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{\"a\":0}}}",
        "{\"model\":{\"type\":\"BPE\",\"continuing_subword_prefix\":\"####\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]]}}",
            "{\"model\":{\"type\":\"Unigram\",\"unk_id\":7,\"vocab\":[[\"a\",0]]}}",
            "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\"]]}}",
        "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":{\"a\":0}}}",
            "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"\xE4\xB8\xAD\":0},\"merges\":[]}}",
        "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"////\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"}},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}"};
    /* clang-format on */
    static const char *const unsupported[] = {
        "{\"model\":{\"type\":\"Magic\",\"vocab\":{\"a\":0}}}",
        "{\"normalizer\":{\"type\":\"Magic\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
        "{\"pre_tokenizer\":{\"type\":\"Magic\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
        "{\"decoder\":{\"type\":\"Magic\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
        "{\"post_processor\":{\"type\":\"Magic\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a)\\\\1\"}},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}"};
    for (int i = 0; i < LLM__COUNT(format); i++) CHECK(tok_refused(format[i], LLM_ERR_FORMAT));
    for (int i = 0; i < LLM__COUNT(unsupported); i++) CHECK(tok_refused(unsupported[i], LLM_ERR_UNSUPPORTED));
    CHECK(tok_refused(TOK_BPE("\"a\":2147483647", "", ""), LLM_ERR_LIMIT)); /* one far id must not make a table of 2^31 */
    llm_text deep;
    memset(&deep, 0, sizeof deep);
    llm_text_str(&deep, "{\"normalizer\":");
    for (int i = 0; i < 40; i++) llm_text_str(&deep, "{\"type\":\"Sequence\",\"normalizers\":[");
    llm_text_str(&deep, "{\"type\":\"NFC\"}");
    for (int i = 0; i < 40; i++) llm_text_str(&deep, "]}");
    llm_text_str(&deep, ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    CHECK(tok_refused(deep.data, LLM_ERR_LIMIT));
    llm_text_free(&deep);
    llm__tokenizer *t = NULL;
    CHECK(tok_open_path("/nonexistent/tokenizer.json", &t) == LLM_ERR_IO && !t);
}

/* Opens bytes as a tokenizer.model. */
static llm_result tok_spm(const char *bytes, size_t n, llm__tokenizer **out) {
    llm_result r;
    *out = tok_open_bytes(bytes, n, "", &r);
    return r;
}

static void tok_test_spm(void) {
    /* <unk> (type 2), U+2581, a, b, U+2581a score 2, ab score 1; model_type 2 */
    static const char model[] = "\x0A\x09\x0A\x05<unk>\x18\x02"
                                "\x0A\x05\x0A\x03\xE2\x96\x81"
                                "\x0A\x03\x0A\x01"
                                "a"
                                "\x0A\x03\x0A\x01"
                                "b"
                                "\x0A\x0B\x0A\x04\xE2\x96\x81"
                                "a\x15\x00\x00\x00\x40"
                                "\x0A\x09\x0A\x02"
                                "ab\x15\x00\x00\x80\x3F"
                                "\x12\x02\x18\x02";
    static const int32_t want[] = {4, 3, 1, 0, -1};
    llm__tokenizer *t = NULL;
    size_t n = sizeof model - 1;
    CHECK(!tok_spm(model, n, &t) && tok_ids(t, "ab zz", 0, want) && tok_text(t, want, 3, 0, "ab ", 3));
    CHECK(tok_ids(t, "  ab   zz\xE2\x96\x81 ", 0,
                  want)); /* runs of spaces are one; at the ends none is left, nor a typed U+2581 at the last */
    CHECK(tok_ids(t, "   ", 0, want + 4));
    llm__tokenizer_close(t);
    for (size_t cut = 0; cut < n; cut++) { /* every truncation is refused or opens, and nothing else */
        char copy[256];
        memcpy(copy, model, cut);
        (void)tok_spm(copy, cut, &t);
        llm__tokenizer_close(t);
    }
    for (size_t bit = 0; bit < n * 8; bit++) {
        char copy[256];
        memcpy(copy, model, n);
        copy[bit / 8] = (char)(copy[bit / 8] ^ (1 << bit % 8));
        if (!tok_spm(copy, n, &t)) (void)tok_text(t, want, 4, 0, NULL, 0);
        llm__tokenizer_close(t);
    }
    CHECK(tok_spm("\x0A\xFF\xFF\xFF\xFF\x7F", 6, &t) == LLM_ERR_FORMAT);
    CHECK(tok_spm("\x0B\x0A\x01", 3, &t) == LLM_ERR_FORMAT);
    CHECK(tok_spm("\x0A\x0A\x0A\x03nan\x15\x00\x00\xC0\x7F", 12, &t) == LLM_ERR_FORMAT);
}

/* Unigram: V I I I as V I II or V II I, whose sums are equal but for how floats are rounded: SentencePiece's choice. */
static void tok_test_ties(void) {
    static const char model[] = "\x0A\x09\x0A\x05<unk>\x18\x02"
                                "\x0A\x0B\x0A\x04\xE2\x96\x81"
                                "V\x15\xCD\xCC\xCC\xBD"
                                "\x0A\x08\x0A\x01"
                                "I\x15\x00\x00\x10\xC1"
                                "\x0A\x09\x0A\x02"
                                "II\x15\x9A\x99\xB9\xC0";
    static const int32_t want[] = {1, 3, 2, -1};
    llm__tokenizer *t = NULL;
    CHECK(!tok_spm(model, sizeof model - 1, &t) && tok_ids(t, "VIII", 0, want));
    llm__tokenizer_close(t);
}

/* A user-defined token is kept whole: in "aba" it is ba (type 4), though ab could be merged. */
static void tok_test_user_defined(void) {
    static const char model[] = "\x0A\x09\x0A\x05<unk>\x18\x02"
                                "\x0A\x05\x0A\x03\xE2\x96\x81"
                                "\x0A\x03\x0A\x01"
                                "a"
                                "\x0A\x03\x0A\x01"
                                "b"
                                "\x0A\x06\x0A\x02"
                                "ba\x18\x04"
                                "\x0A\x09\x0A\x02"
                                "ab\x15\x00\x00\x80\x3F"
                                "\x12\x02\x18\x02";
    static const int32_t want[] = {1, 2, 4, -1};
    llm__tokenizer *t = NULL;
    CHECK(!tok_spm(model, sizeof model - 1, &t) && tok_ids(t, "aba", 0, want) && tok_text(t, want, 3, 0, "aba", 3));
    llm__tokenizer_close(t);
}

/* What only a family's pattern tells: Kimi cuts Chinese off, cl100k takes the white space at the end whole, others do neither. */
static void tok_test_rank_patterns(void) {
    /* clang-format off */
    static const struct { const char *name, *ranks, *text; int32_t want[5]; } cases[] = {
        {"x.tiktoken", "YQ== 0\n5A== 1\nuA== 2\nrQ== 3\nYeQ= 4\n", "a\xE4\xB8\xAD", {4, 2, 3, -1, 0}},
        {"kimi.tiktoken", "YQ== 0\n5A== 1\nuA== 2\nrQ== 3\nYeQ= 4\n", "a\xE4\xB8\xAD", {0, 1, 2, 3, -1}},
        {"x.tiktoken", "Cg== 0\nCQ== 1\nCgk= 2\n", "\n\t", {0, 1, -1, 0, 0}},
        {"cl100k.tiktoken", "Cg== 0\nCQ== 1\nCgk= 2\n", "\n\t", {2, -1, 0, 0, 0}}};
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(cases); i++) {
        llm_result r;
        llm__tokenizer *t = tok_open_bytes(cases[i].ranks, strlen(cases[i].ranks), cases[i].name, &r);
        CHECK(t && tok_ids(t, cases[i].text, 0, cases[i].want));
        llm__tokenizer_close(t);
    }
}

static void tok_test_ranks(void) {
    static const char ranks[] = "YQ== 0\nYg== 1\nYWI= 2\n";
    static const int32_t want[] = {2, 0, -1};
    static const char *const names[] = {"x.tiktoken", "qwen.tiktoken", "o200k"}; /* special tokens of a family lie far above these ids */
    static const char *const bad[] = {"YQ==\n",           "YQ== x\n",  "Y*== 0\n",        "YQ== 0\nYQ== 1\n",
                                      "YQ== 0\nYg== 0\n", "YQ== -1\n", "YQ== 99999999\n", " 5\n"};
    llm_result r;
    for (int i = 0; i < LLM__COUNT(names); i++) {
        llm__tokenizer *t = tok_open_bytes(ranks, sizeof ranks - 1, names[i], &r);
        CHECK(t && t->n_vocab == 3 && tok_ids(t, "aba", 0, want) && tok_text(t, want, 2, 0, "aba", 3));
        llm__tokenizer_close(t);
    }
    for (int i = 0; i < LLM__COUNT(bad); i++) CHECK(!tok_open_bytes(bad[i], strlen(bad[i]), "x.tiktoken", &r) && r);
    /* clang-format off */
    static const struct { const char *config; llm_result want; } configs[] = {
        {"{\"added_tokens_decoder\":{\"5\":{\"content\":\"<s>\"}},\"bos_token\":\"<s>\",\"add_bos_token\":true}", LLM_OK},
        {"{\"added_tokens_decoder\":{\"x\":{\"content\":\"<s>\"}}}", LLM_ERR_FORMAT}, /* no id: nothing may be read in front of the table */
        {"{\"added_tokens_decoder\":{\"-1\":{\"content\":\"<s>\"}}}", LLM_ERR_FORMAT},
        {"{\"added_tokens_decoder\":{\"5\":{}}}", LLM_ERR_FORMAT},
        {"{\"added_tokens_decoder\":{\"1\":{\"content\":\"a\"}}}", LLM_ERR_FORMAT},
        {"{\"added_tokens_decoder\":{\"900000\":{\"content\":\"<s>\"}}}", LLM_ERR_LIMIT}};
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(configs); i++) {
        llm_json *d = NULL;
        llm__tokenizer *t = llm__tok_new();
        CHECK(t && !llm_json_parse(configs[i].config, strlen(configs[i].config), NULL, &d));
        CHECK(t && llm__tok_load(t, llm__s(ranks, sizeof ranks - 1), "x.tiktoken", d) == configs[i].want);
        llm_json_free(d);
        llm__tokenizer_close(t);
    }
}

/* ---- goldens ---- */

static int tok_golden_ids(const llm__tokenizer *t, const llm_json *d, int row, const char *text, size_t n, const char *key, int flags) {
    int list = llm_json_find(d, row, key), same = 1;
    llm_tokens got;
    if (list < 0) list = llm_json_find(d, row, "ids");
    memset(&got, 0, sizeof got);
    same &= !llm__tokenizer_encode(t, text, n, flags, &got) && (int)got.len == llm_json_size(d, list);
    size_t i = 0;
    for (int v = llm_json_first(d, list); v >= 0 && same; v = llm_json_next(d, v), i++) {
        int64_t id;
        same &= llm_json_int(d, v, &id) && id == got.data[i];
    }
    llm_tokens_free(&got);
    return same;
}

/* One line of a golden: ids with and without special tokens, and the text back. */
static int tok_golden_row(const llm__tokenizer *t, const llm_json *d) {
    size_t n, len;
    const char *text = llm_json_str(d, llm_json_find(d, 0, "text"), &n), *decoded = llm_json_str(d, llm_json_find(d, 0, "decoded"), &len);
    int same = 1;
    llm_tokens ids;
    if (text) {
        same &= tok_golden_ids(t, d, 0, text, n, "ids", LLM_TOK_PARSE_SPECIAL);
        same &= tok_golden_ids(t, d, 0, text, n, "ids_special", LLM_TOK_PARSE_SPECIAL | LLM_TOK_ADD_SPECIAL);
        same &= tok_golden_ids(t, d, 0, text, n, "ids_plain", 0);
    }
    memset(&ids, 0, sizeof ids);
    for (int v = llm_json_first(d, llm_json_find(d, 0, "ids")); v >= 0; v = llm_json_next(d, v)) {
        int64_t id = -1;
        (void)llm_json_int(d, v, &id);
        llm_tokens_add(&ids, (int32_t)id);
    }
    same &= tok_text(t, ids.data, ids.len, LLM_DETOK_KEEP_SPECIAL, decoded, len);
    llm_tokens_free(&ids);
    return same;
}

static void tok_golden_file(const llm__tokenizer *t, const char *path) {
    llm__file f;
    int rows = 0, same = 0;
    if (!CHECK(!llm__file_open(path, 0, 0, &f))) return;
    const char *p = (const char *)f.data, *end = p + f.size;
    while (p < end) {
        const char *stop = (const char *)memchr(p, '\n', (size_t)(end - p));
        llm_json *d;
        if (!stop) stop = end;
        if (stop > p && !llm_json_parse(p, (size_t)(stop - p), NULL, &d)) {
            rows++;
            same += tok_golden_row(t, d);
            llm_json_free(d);
        }
        p = stop + 1;
    }
    if (!CHECK(rows > 0 && rows == same)) printf("  %s: %d of %d\n", path, same, rows);
    llm__file_close(&f);
}

static void tok_test_goldens(void) {
    static const char *const names[] = {"mistral7b", "llama3_form", "qwen3"};
    for (int i = 0; i < LLM__COUNT(names); i++) {
        char path[200];
        llm__tokenizer *t = NULL;
        snprintf(path, sizeof path, TOK_DATA "tokenizers/%s", names[i]);
        if (!CHECK(!tok_open_path(path, &t))) continue;
        snprintf(path, sizeof path, TOK_DATA "token_goldens/%s.jsonl", names[i]);
        tok_golden_file(t, path);
        snprintf(path, sizeof path, TOK_DATA "token_goldens/%s.decode.jsonl", names[i]);
        tok_golden_file(t, path);
        llm__tokenizer_close(t);
    }
}

/* llama.cpp's vocabularies: texts parted by a separator, ids a line each. */
static void tok_vocab_file(const char *name) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char path[200];
    llm_model *m = NULL;
    llm_model_config cfg;
    llm__file in, want;
    int same = 0, rows = 0;
    memset(&cfg, 0, sizeof cfg);
    cfg.vocab_only = 1;
    snprintf(path, sizeof path, TOK_DATA "vocabularies/%s.gguf", name);
    if (!CHECK(!llm_model_open(path, &cfg, &m))) return;
    snprintf(path, sizeof path, TOK_DATA "vocabularies/%s.gguf.inp", name);
    CHECK(!llm__file_open(path, 0, 0, &in));
    snprintf(path, sizeof path, TOK_DATA "vocabularies/%s.gguf.out", name);
    CHECK(!llm__file_open(path, 0, 0, &want));
    const char *p = (const char *)in.data, *end = p + in.size, *w = (const char *)want.data, *w_end = w + want.size;
    for (; p <= end; rows++) {
        const char *stop = p;
        while (stop < end && ((size_t)(end - stop) < sizeof separator - 1 || memcmp(stop, separator, sizeof separator - 1))) stop++;
        llm_tokens got;
        llm_text line;
        memset(&got, 0, sizeof got);
        memset(&line, 0, sizeof line);
        CHECK(!llm_tokenize(m, p, (size_t)(stop - p), 0, &got));
        for (size_t i = 0; i < got.len; i++) llm_text_str(&line, " "), llm_text_int(&line, got.data[i]);
        const char *w_stop = w < w_end ? (const char *)memchr(w, '\n', (size_t)(w_end - w)) : NULL;
        if (!w_stop) w_stop = w_end;
        size_t n = (size_t)(w_stop - w);
        while (n && w[n - 1] == ' ') n--;
        same += line.len == n && (!n || !memcmp(line.data, w, n));
        w = w_stop + 1;
        llm_tokens_free(&got);
        llm_text_free(&line);
        p = stop + sizeof separator - 1;
    }
    if (!CHECK(rows > 0 && same == rows)) printf("  %s: %d of %d\n", name, same, rows);
    llm__file_close(&in);
    llm__file_close(&want);
    llm_model_close(m);
}

static void tok_test_vocabs(void) {
    static const char *const names[] = {"deepseek-llm", "gpt-2", "llama-spm", "starcoder"};
    for (int i = 0; i < LLM__COUNT(names); i++) tok_vocab_file(names[i]);
}

/* With a byte-level vocabulary every text comes back as it was; and ids of any kind decode the same streamed and whole. */
static void tok_test_round_trip(void) {
    llm__tokenizer *t = NULL;
    uint32_t state = 11;
    int good = 1;
    if (!CHECK(!tok_open_path(TOK_DATA "tokenizers/llama3_form", &t))) return;
    for (int k = 0; k < 400; k++) {
        llm_text s;
        llm_tokens ids;
        memset(&s, 0, sizeof s);
        memset(&ids, 0, sizeof ids);
        llm_text_str(&s, "");
        tok_random_text(&state, &s, (int)(tok_random(&state) % 60));
        good &= !llm__tokenizer_encode(t, s.data, s.len, 0, &ids) && tok_text(t, ids.data, ids.len, 0, s.data, s.len);
        for (size_t i = 0; i < ids.len; i++) ids.data[i] = (int32_t)(tok_random(&state) % 128300);
        good &= tok_text(t, ids.data, ids.len, (int)(k & 1) * LLM_DETOK_KEEP_SPECIAL, NULL, 0);
        llm_tokens_free(&ids);
        llm_text_free(&s);
    }
    CHECK(good);
    for (int b = 0; b < 256; b++) { /* single bytes: what is no UTF-8 counts as U+FFFD */
        char c = (char)b;
        llm_tokens ids;
        memset(&ids, 0, sizeof ids);
        good &= !llm__tokenizer_encode(t, &c, 1, 0, &ids) && ids.len > 0 &&
                tok_text(t, ids.data, ids.len, 0, b < 128 ? &c : "\xEF\xBF\xBD", b < 128 ? 1 : 3);
        llm_tokens_free(&ids);
    }
    CHECK(good);
    llm__tokenizer_close(t);
}

/* Texts of control tokens, pieces of them, marks and what else comes: guarded, in two parts, they have the ids of plain text. What the guard
 * takes more seriously than LLM_TOK_PARSE_SPECIAL (a "<|" that is not special) is left out of the comparison. */
static void tok_guarded(const llm__tokenizer *t, const char *name) {
    static const char *const more[] = {"\xEF\xB7\x90", "<", "<|", "|>", " ", "hi", "\n", "\xC3\xA9", "</", "[", "a"};
    uint32_t state = 7;
    int good = 1, controls = 0;
    for (size_t i = 0; i < t->n_added; i++) controls += llm__added_controls(&t->added[i]);
    CHECK(controls > 0);
    for (int k = 0; k < 2000 && good; k++) {
        llm_text plain, guarded, back;
        llm_tokens want, got;
        memset(&plain, 0, sizeof plain);
        memset(&guarded, 0, sizeof guarded);
        memset(&back, 0, sizeof back);
        memset(&want, 0, sizeof want);
        memset(&got, 0, sizeof got);
        size_t done = 0;
        for (int i = 0; i < 8; i++) {
            const llm__added *a = &t->added[tok_random(&state) % t->n_added];
            size_t cut = tok_random(&state) % 2 ? tok_random(&state) % (a->text.n + 1) : 0, n = a->text.n - cut;
            const char *other = more[tok_random(&state) % LLM__COUNT(more)];
            if (!(a->flags & LLM__ADDED_SPECIAL) || tok_random(&state) % 2) llm_text_str(&plain, other);
            else llm_text_add(&plain, a->text.p + (tok_random(&state) % 2 ? cut : 0), n);
            if (i != 3) continue;
            llm__guard(t, llm__text_str(&plain), &guarded);
            done = plain.len;
        }
        llm__guard(t, llm__s(plain.data + done, plain.len - done), &guarded);
        llm__unguard(llm__text_str(&guarded), &back);
        good &= back.len == plain.len && !memcmp(back.data, plain.data, plain.len);
        good &= !llm__tokenizer_encode(t, plain.data, plain.len, 0, &want);
        good &= !llm__tokenizer_encode(t, guarded.data, guarded.len, LLM_TOK_PARSE_SPECIAL | LLM_TOK_GUARDED, &got);
        good &= want.len == got.len && !memcmp(want.data, got.data, got.len * sizeof *got.data);
        if (!good) printf("  %s: %s\n", name, plain.data);
        llm_text_free(&plain);
        llm_text_free(&guarded);
        llm_text_free(&back);
        llm_tokens_free(&want);
        llm_tokens_free(&got);
    }
    CHECK(good);
}

/* Control tokens come from the template alone. */
static void tok_test_guard(void) {
    static const char *const names[] = {"tokenizers/mistral7b", "tokenizers/llama3_form", "tokenizers/qwen3"};
    static const int32_t typed[] = {5, 0, 1, 2, 6, 3, 5, -1}; /* <s> < s > </s> x <s> */
    llm__tokenizer *t = tok_open(
        "{\"added_tokens\": [{\"id\": 5, \"content\": \"<s>\", \"special\": true}, {\"id\": 6, \"content\": \"</s>\","
        "\"special\": false}, {\"id\": 7, \"content\": \"ss\", \"special\": true}], \"model\": {\"type\": \"BPE\", \"vocab\": {\"<\": 0, "
        "\"s\": 1, \">\": 2, \"x\": 3, \"/\": 4}, \"merges\": []}}");
    if (CHECK(t != NULL)) {
        llm_text text;
        memset(&text, 0, sizeof text);
        llm_text_str(&text, "<s>");
        llm__guard(t, llm__s("<s></s>x", 8), &text);
        llm_text_str(&text, "<s>");
        CHECK(tok_ids(t, text.data, LLM_TOK_PARSE_SPECIAL | LLM_TOK_GUARDED, typed));
        llm_text_free(&text);
    }
    llm__tokenizer_close(t);
    for (int i = 0; i < LLM__COUNT(names); i++) {
        char path[200];
        snprintf(path, sizeof path, TOK_DATA "%s", names[i]);
        t = NULL;
        if (CHECK(!tok_open_path(path, &t))) tok_guarded(t, names[i]);
        llm__tokenizer_close(t);
    }
}

/* How many tokens of a text of a and one of b tokens are kept in `room` places, by tokenizers 0.23.3 (truncation "longest_first"): a digit of
 * the first and one of the second, for b and then room from 0 up. */
static void tok_test_pair(void) {
    static const char *const kept[] = {"00000000000000000000000000"
                                       "00010101010101010101010101"
                                       "00010202020202020202020202"
                                       "00010203030303030303030303"
                                       "00010203040404040404040404"
                                       "00010203040505050505050505"
                                       "00010203040506060606060606",
                                       "00101010101010101010101010"
                                       "00011111111111111111111111"
                                       "00011112121212121212121212"
                                       "00011112131313131313131313"
                                       "00011112131414141414141414"
                                       "00011112131415151515151515"
                                       "00011112131415161616161616",
                                       "00102020202020202020202020"
                                       "00101121212121212121212121"
                                       "00011112222222222222222222"
                                       "00011112222323232323232323"
                                       "00011112222324242424242424"
                                       "00011112222324252525252525"
                                       "00011112222324252626262626",
                                       "00102030303030303030303030"
                                       "00101121313131313131313131"
                                       "00101121223232323232323232"
                                       "00011112222333333333333333"
                                       "00011112222333343434343434"
                                       "00011112222333343535353535"
                                       "00011112222333343536363636",
                                       "00102030404040404040404040"
                                       "00101121314141414141414141"
                                       "00101121223242424242424242"
                                       "00101121223233434343434343"
                                       "00011112222333344444444444"
                                       "00011112222333344445454545"
                                       "00011112222333344445464646",
                                       "00102030405050505050505050"
                                       "00101121314151515151515151"
                                       "00101121223242525252525252"
                                       "00101121223233435353535353"
                                       "00101121223233434454545454"
                                       "00011112222333344445555555"
                                       "00011112222333344445555656",
                                       "00102030405060606060606060"
                                       "00101121314151616161616161"
                                       "00101121223242526262626262"
                                       "00101121223233435363636363"
                                       "00101121223233434454646464"
                                       "00101121223233434454556565"
                                       "00011112222333344445555666"};
    int wrong = 0;
    for (size_t a = 0; a <= 6; a++)
        for (size_t b = 0; b <= 6; b++)
            for (size_t room = 0; room <= 12; room++) {
                const char *want = kept[a] + 2 * (13 * b + room);
                size_t first = a, second = b;
                llm__pair_cut(&first, &second, room);
                wrong += first != (size_t)(want[0] - '0') || second != (size_t)(want[1] - '0');
            }
    CHECK(!wrong);
}

TEST_GROUP(tokenizer) {
    tok_test_unicode();
    tok_test_regex();
    tok_test_patterns();
    tok_test_linear();
    tok_test_small();
    tok_test_hostile();
    tok_test_spm();
    tok_test_ranks();
    tok_test_ties();
    tok_test_user_defined();
    tok_test_rank_patterns();
    tok_test_goldens();
    tok_test_vocabs();
    tok_test_round_trip();
    tok_test_guard();
    tok_test_pair();
}
