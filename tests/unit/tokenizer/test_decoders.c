/* Decoders, one at a time, whole and streamed: tokens and texts as the tests of Hugging Face's tokenizers have them. */
#include "../test.h"
#include "base/alloc.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_files.h"
#include "tokenizer/build.h"
#include "tokenizer/decode.h"
#include "tokenizer/encode.h"
#include "text/unicode_classes.h"

static int decoders_plain(int32_t c) { return c >= 32; }

/* A tokenizer of these tokens (with '|' between, their ids in order) and this decoder. */
static llm__tokenizer *decoders_open(const char *decoder, const char *tokens, int *n) {
    llm_text json;
    memset(&json, 0, sizeof json);
    llm_text_str(&json, "{\"decoder\":");
    llm_text_str(&json, decoder);
    llm_text_str(&json, ",\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"[UNK]\",\"vocab\":{\"[UNK]\":0");
    *n = 0;
    for (const char *at = tokens; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        llm_text_str(&json, ",");
        llm__text_quoted(&json, llm__s(at, strcspn(at, "|")), '"', 0, decoders_plain);
        llm_text_str(&json, ":");
        llm_text_int(&json, ++*n);
    }
    llm_text_str(&json, "}}}");
    llm__tokenizer *t = llm__tok_new();
    if (t && llm__tok_load(t, llm__s(json.data, json.len), "", NULL)) llm__tokenizer_close(t), t = NULL;
    llm_text_free(&json);
    return t;
}

/* 1 if the ids make the text, at once and one after the other, each in a stream that goes on from where the one before it was. */
static int decoders_give(const llm__tokenizer *t, const int32_t *ids, int n, const char *want) {
    llm_text whole, streamed;
    memset(&whole, 0, sizeof whole), memset(&streamed, 0, sizeof streamed);
    struct llm_detok *d[2] = {llm__detok_open(t, 0), llm__detok_open(t, 0)};
    int ok = d[0] && d[1] && !llm__tokenizer_decode(t, ids, (size_t)n, 0, 0, &whole);
    for (int i = 0; i < n && ok; i++) ok &= !llm_detok_push(d[i & 1], ids[i], &streamed) && !llm__detok_copy(d[~i & 1], d[i & 1]);
    if (ok) llm_detok_flush(d[n & 1], &streamed);
    llm_detok_free(d[0]), llm_detok_free(d[1]);
    ok &= llm__str_eq(llm__text_str(&whole), want) && llm__str_eq(llm__text_str(&streamed), want);
    if (!ok)
        printf("  \"%.*s\", streamed \"%.*s\"\n", (int)whole.len, whole.data ? whole.data : "", (int)streamed.len,
               streamed.data ? streamed.data : "");
    llm_text_free(&whole), llm_text_free(&streamed);
    return ok;
}

static void decoders_test_rows(void) {
    static const char *const rows[][3] = {
        {"{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}", "My</w>|na|me</w>|is</w>|Jo|hn</w>", "My name is John"},
        {"{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":false}", "My|na|##me|is|Jo|##hn", "My name is John"},
        {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\"}", "_My|_name|_is|_John", "My name is John"},
        {"{\"type\":\"Metaspace\",\"replacement\":\"-\",\"prepend_scheme\":\"never\"}", "-My|-name|-is|-John", " My name is John"},
        {"{\"type\":\"Fuse\"}", "My| na|me", "My name"},
        {"{\"type\":\"ByteFallback\"}", "<0xE5>|<0x8F>|<0xAB>|<0x61>| x",
         "\xE5\x8F\xAB"
         "a x"},
        {"{\"type\":\"Strip\",\"content\":\"H\",\"start\":1,\"stop\":0}", "Hey| friend!|HHH", "ey friend!HH"},
        {"{\"type\":\"Strip\",\"content\":\"y\",\"start\":0,\"stop\":1}", "Hey| friend!", "He friend!"},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"}", "hello|_hello", "hello hello"},
        {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"_+\"},\"content\":\"-\"}", "a__b|_|c___", "a-b-c-"},
        {"{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
         "_My|_name", "My name"},
    };
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        static const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8};
        int n = 0;
        llm__tokenizer *t = decoders_open(rows[i][0], rows[i][1], &n);
        if (!CHECK(t && decoders_give(t, ids, n, rows[i][2]))) printf("  %s\n", rows[i][0]);
        llm__tokenizer_close(t);
    }
}

/* CTC: what stands twice is written once, unless a pad is between; a delimiter is a space. */
static void decoders_test_ctc(void) {
    static const int32_t hello[] = {1, 1, 2, 3, 3, 4, 4, 1, 4, 5, 5, 5, 1, 1, 6, 1, 7, 5, 5, 8, 1, 1, 4, 4, 9, 1, 1};
    int n;
    llm__tokenizer *t = decoders_open("{\"type\":\"CTC\",\"pad_token\":\"<pad>\",\"word_delimiter_token\":\"/\",\"cleanup\":true}",
                                      "<pad>|h|e|l|o|/|w|r|d", &n);
    CHECK(t && n == 9 && decoders_give(t, hello, LLM__COUNT(hello), "hello world"));
    CHECK(t && decoders_give(t, hello + 2, 3, "he") && decoders_give(t, hello + 3, 2, "e"));
    llm__tokenizer_close(t);
}

static void decoders_test_strip(void) {
    const llm__str none = llm__s("", 0);
    CHECK(llm__str_eq(llm__strip(llm__lit(" \t a b "), 1, llm__uni_space, none), "a b ") &&
          llm__str_eq(llm__strip(llm__lit(" a b\xC2\x85 "), 2, llm__uni_space, none), " a b"));
    CHECK(llm__str_eq(llm__strip(llm__lit(" a "), 3, llm__uni_space, none), "a") && !llm__strip(llm__lit("  "), 3, llm__uni_space, none).n);
}

TEST_GROUP(decoders) {
    decoders_test_rows();
    decoders_test_ctc();
    decoders_test_strip();
}
