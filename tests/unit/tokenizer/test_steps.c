/* What comes before a tokenizer's model: normalizers and pre-tokenizers, one at a time, by the pieces that the documentation of Hugging
 * Face's tokenizers gives for them; the small functions that they are made of. */
#include "../test.h"
#include "base/alloc.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_files.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/encode.h"
#include "tokenizer/build.h"
#include "tokenizer/subword.h"

static int steps_plain(int32_t c) { return c >= 32; }

/* A tokenizer whose words are the expected pieces (with '|' between), and no others: it must find exactly these. */
static int steps_give(const char *normalizer, const char *cutter, const char *text, const char *pieces) {
    llm_text json, words[32];
    llm_tokens got;
    int n = 0, n_words = 0, right = 0;
    int32_t want[64];
    memset(&json, 0, sizeof json), memset(&got, 0, sizeof got), memset(words, 0, sizeof words);
    llm_text_str(&json, "{\"normalizer\":");
    llm_text_str(&json, normalizer ? normalizer : "null");
    llm_text_str(&json, ",\"pre_tokenizer\":");
    llm_text_str(&json, cutter ? cutter : "null");
    llm_text_str(&json, ",\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"[UNK]\",\"vocab\":{\"[UNK]\":0");
    for (const char *at = pieces; at && n < 64 && n_words < 31; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        const size_t len = strcspn(at, "|");
        int k = 0;
        while (k < n_words && !(words[k].len == len && !memcmp(words[k].data, at, len))) k++;
        want[n++] = k + 1;
        if (k < n_words) continue;
        llm_text_add(&words[n_words++], at, len);
        llm_text_str(&json, ",");
        llm__text_quoted(&json, llm__s(at, len), '"', 0, steps_plain);
        llm_text_str(&json, ":");
        llm_text_int(&json, n_words);
    }
    llm_text_str(&json, "}}}");
    llm__tokenizer *t = llm__tok_new();
    if (t && !llm__tok_load(t, llm__s(json.data, json.len), "", NULL) && !llm__tokenizer_encode(t, text, strlen(text), 0, &got))
        right = got.len == (size_t)n && !memcmp(got.data, want, (size_t)n * sizeof *want);
    if (!right)
        printf("  %s %s on \"%s\": %zu pieces, %d expected: %s\n", normalizer ? normalizer : "", cutter ? cutter : "", text, got.len, n,
               pieces);
    llm__tokenizer_close(t);
    llm_text_free(&json);
    llm_tokens_free(&got);
    for (int i = 0; i < n_words; i++) llm_text_free(&words[i]);
    return right;
}

static void steps_test_cutters(void) {
#define STEPS_SPLIT(behavior) "{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"" behavior "\",\"invert\":false}"
    static const char *const rows[][3] = {
        {STEPS_SPLIT("Removed"), "the-final--countdown", "the|final|countdown"},
        {STEPS_SPLIT("Isolated"), "the-final--countdown", "the|-|final|-|-|countdown"},
        {STEPS_SPLIT("MergedWithPrevious"), "the-final--countdown", "the-|final-|-|countdown"},
        {STEPS_SPLIT("MergedWithNext"), "the-final--countdown", "the|-final|-|-countdown"},
        {STEPS_SPLIT("Contiguous"), "the-final--countdown", "the|-|final|--|countdown"},
        {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a-z]+\"},\"behavior\":\"Removed\",\"invert\":true}", "ab1cd 2", "ab|cd"},
        {"{\"type\":\"Whitespace\"}", "Hello there! fine.", "Hello|there|!|fine|."},
        {"{\"type\":\"WhitespaceSplit\"}", " Hello  there!\n", "Hello|there!"},
        {"{\"type\":\"Punctuation\",\"behavior\":\"Isolated\"}", "Hello?!x", "Hello|?|!|x"},
        {"{\"type\":\"Digits\",\"individual_digits\":false}", "Call 911 please", "Call |911| please"},
        {"{\"type\":\"Digits\",\"individual_digits\":true}", "Call 911 please", "Call |9|1|1| please"},
        {"{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"x\"}", "axbxxc", "a|b|c"},
        {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\",\"split\":true}", "Hey my  x", "_Hey|_my|_|_x"},
        {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"never\",\"split\":false}", "Hey my", "Hey_my"},
        {"{\"type\":\"BertPreTokenizer\"}", "Hey  there, y'all", "Hey|there|,|y|'|all"},
        {"{\"type\":\"UnicodeScripts\"}",
         "\xE3\x81\xA9\xE3\x81\x93\xE3\x81\xA7\xE7\x94\x9F\xE3\x82\x8C\xE3\x80\x82"
         "Yes",
         "\xE3\x81\xA9\xE3\x81\x93\xE3\x81\xA7\xE7\x94\x9F\xE3\x82\x8C|\xE3\x80\x82|Yes"},
        {"{\"type\":\"UnicodeScripts\"}", "Apples are \xE3\x82\x8A\xE3\x82\x93\xE3\x81\x94 \xE6\x9E\x97\xE6\xAA\x8E",
         "Apples are |\xE3\x82\x8A\xE3\x82\x93\xE3\x81\x94 \xE6\x9E\x97\xE6\xAA\x8E"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{\"type\":\"Digits\",\"individual_digits\":true}]}",
         "a12 b", "a|1|2|b"},
    };
#undef STEPS_SPLIT
    for (int i = 0; i < LLM__COUNT(rows); i++) CHECK(steps_give(NULL, rows[i][0], rows[i][1], rows[i][2]));
}

static void steps_test_normalizers(void) {
    static const char *const rows[][3] = {
        {"{\"type\":\"Lowercase\"}", "HELLO \xC3\x84\xCE\xA9", "hello \xC3\xA4\xCF\x89"},
        {"{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", " \t Hello there \n", "Hello there"},
        {"{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true}", " a ", " a"},
        {"{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":false}", " a ", "a "},
        {"{\"type\":\"NFD\"}", "\xC3\xA9", "e\xCC\x81"},
        {"{\"type\":\"NFC\"}", "e\xCC\x81", "\xC3\xA9"},
        {"{\"type\":\"NFKC\"}", "\xEF\xAC\x81\xE2\x91\xA0", "fi1"},
        {"{\"type\":\"NFKD\"}", "\xEF\xAC\x81\xC3\xA9", "fie\xCC\x81"},
        {"{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},{\"type\":\"StripAccents\"}]}", "\xC3\xA9\xC3\xBC", "eu"},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"e\"}", "banana", "benene"},
        {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}", "a   b c", "a b c"},
        {"{\"type\":\"Prepend\",\"prepend\":\"_\"}", "Hello", "_Hello"},
        {"{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":true}",
         "H\xC3\xA9llo\tX\x01", "hello x"},
        {"{\"type\":\"BertNormalizer\",\"clean_text\":false,\"handle_chinese_chars\":true,\"strip_accents\":false,\"lowercase\":false}",
         "A\xE6\xBC\xA2"
         "B",
         "A \xE6\xBC\xA2 B"},
    };
    for (int i = 0; i < LLM__COUNT(rows); i++) CHECK(steps_give(rows[i][0], NULL, rows[i][1], rows[i][2]));
}

/* SentencePiece's table of replacements, a double array: A becomes "a!", U+00E9 becomes e. A unit holds its byte, bit 8 if a value follows,
 * and above bit 9 what its number is combined with to reach the next. */
static void steps_test_charsmap(void) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", strings[] = "a!\0e";
    enum { UNITS = 196, BYTES = 4 + 4 * UNITS + sizeof strings };
    uint32_t unit[1 + UNITS] = {4 * UNITS};
    uint8_t bytes[BYTES + 2] = {0};
    llm_text json;
    memset(&json, 0, sizeof json);
    unit[1 + 'A'] = 'A' | 1 << 8 | 1 << 10; /* value at 'A' ^ 1 */
    unit[1 + ('A' ^ 1)] = 0x80000000u;      /* strings + 0 */
    unit[1 + 0xC3] = 0xC3;                  /* next at 0xC3 ^ 0xA9 */
    unit[1 + (0xC3 ^ 0xA9)] = 0xA9 | 1 << 8 | 1 << 10;
    unit[1 + (0xC3 ^ 0xA9 ^ 1)] = 0x80000003u; /* strings + 3 */
    for (int i = 0; i < 4 + 4 * UNITS; i++) bytes[i] = (uint8_t)(unit[i / 4] >> i % 4 * 8);
    memcpy(bytes + 4 + 4 * UNITS, strings, sizeof strings);
    llm_text_str(&json, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
    for (int i = 0; i < BYTES; i += 3) {
        const uint32_t three = (uint32_t)bytes[i] << 16 | (uint32_t)bytes[i + 1] << 8 | bytes[i + 2];
        for (int k = 0; k < 4; k++) llm_text_add(&json, i + k > BYTES ? "=" : &letters[three >> (18 - 6 * k) & 63], 1);
    }
    llm_text_str(&json, "\"}");
    CHECK(steps_give(json.data, NULL,
                     "xA\xC3\xA9\xC3\xAA"
                     "B",
                     "xa!e\xC3\xAA"
                     "B"));
    llm_text_free(&json);
}

/* What comes out of the heap is sorted, whatever went in. */
static void steps_test_heap(void) {
    llm__encode e;
    uint64_t last = 0, seed = 1;
    memset(&e, 0, sizeof e);
    for (int i = 0; i < 500; i++) seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407, llm__heap_push(&e, seed >> 40, i);
    CHECK(e.heap_n == 500);
    int sorted = 1;
    while (e.heap_n) {
        const llm__pair p = llm__heap_pop(&e);
        sorted &= p.key >= last;
        last = p.key;
    }
    CHECK(sorted && last > 0);
    LLM_FREE(e.heap);
}

static void steps_test_texts(void) {
    llm_text out;
    memset(&out, 0, sizeof out);
    llm__replace_all(llm__lit("aXbXXc"), llm__lit("X"), llm__lit("--"), &out);
    CHECK(out.len == 9 && !memcmp(out.data, "a--b----c", 9));
    out.len = 0;
    llm__replace_all(llm__lit("abc"), llm__lit(""), llm__lit("-"), &out);
    CHECK(out.len == 3 && !memcmp(out.data, "abc", 3));
    out.len = 0;
    llm__clean_utf8(llm__s("a\xFF\xC3\xA4\xE2\x82", 6), &out);
    CHECK(out.len >= 9 && !memcmp(out.data, "a\xEF\xBF\xBD\xC3\xA4\xEF\xBF\xBD", 9));
    llm_text_free(&out);
}

TEST_GROUP(steps) {
    steps_test_cutters();
    steps_test_normalizers();
    steps_test_charsmap();
    steps_test_heap();
    steps_test_texts();
}
