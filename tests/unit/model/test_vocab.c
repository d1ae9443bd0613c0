/* Vocabularies of GGUF files, made here: each kind of tokenizer.ggml.model, its special ids and frame, and what is refused. */
#include "../gguf.h"
#include "model/gguf_vocab.h"
#include "model/source.h"
#include "tokenizer/build.h"
#include "tokenizer/subword.h"
#include "tokenizer/tokenizer.h"

typedef struct vocab_token {
    const char *text;
    float score;
    int type;
} vocab_token;

/* Keys of a vocabulary; `more` adds keys of its own and says how many. */
static llm_text vocab_keys(const char *model, const vocab_token *v, int n, const char *const *merges, int n_merges,
                           int (*more)(llm_text *t)) {
    llm_text extra = LLM__ZERO;
    const int n_more = more ? more(&extra) : 0;
    llm_text t = gguf_head(3, 0, (uint64_t)(4 + (n_merges > 0) + n_more));
    gguf_kv_str(&t, "tokenizer.ggml.model", model);
    gguf_kv_array(&t, "tokenizer.ggml.tokens", LLM__GGUF_STR, (uint64_t)n);
    for (int i = 0; i < n; i++) gguf_str(&t, v[i].text);
    gguf_kv_array(&t, "tokenizer.ggml.scores", LLM__GGUF_F32, (uint64_t)n);
    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &v[i].score, 4);
        gguf_u(&t, bits, 4);
    }
    gguf_kv_array(&t, "tokenizer.ggml.token_type", LLM__GGUF_I32, (uint64_t)n);
    for (int i = 0; i < n; i++) gguf_u(&t, (uint64_t)v[i].type, 4);
    if (n_merges) gguf_kv_array(&t, "tokenizer.ggml.merges", LLM__GGUF_STR, (uint64_t)n_merges);
    for (int i = 0; i < n_merges; i++) gguf_str(&t, merges[i]);
    if (extra.len) llm_text_add(&t, extra.data, extra.len);
    llm_text_free(&extra);
    return t;
}

/* Reads it; NULL: refused. The tokenizer keeps nothing of the file. */
static llm__tokenizer *vocab_open(llm_text file, llm_result *r) {
    llm__gguf keys = LLM__ZERO;
    llm__tensors none = LLM__ZERO;
    llm_model_config cfg;
    llm__source s;
    memset(&s, 0, sizeof s), memset(&cfg, 0, sizeof cfg);
    CHECK(!llm__gguf_parse("v.gguf", (const uint8_t *)file.data, file.len, &keys, &none));
    s.path = "v.gguf", s.gguf = &keys;
    *r = llm__source_tokenizer(&s, &cfg);
    CHECK(s.vocab_gguf == &keys);
    llm__gguf_free(&keys), llm__tensors_free(&none), llm_text_free(&file);
    if (*r) llm__tokenizer_close(s.tokenizer);
    return *r ? NULL : s.tokenizer;
}

static const char *vocab_ids(const llm__tokenizer *t, const char *text, int flags) {
    static char out[200];
    llm_tokens ids = LLM__ZERO;
    size_t n = 0;
    out[0] = 0;
    if (llm__tokenizer_encode(t, text, strlen(text), flags, &ids)) return llm_last_error();
    for (size_t i = 0; i < ids.len && n < sizeof out - 12; i++) n += (size_t)snprintf(out + n, 12, "%s%d", i ? " " : "", (int)ids.data[i]);
    llm_tokens_free(&ids);
    return out;
}

static int vocab_is(const llm__tokenizer *t, const char *text, int flags, const char *want) {
    const char *got = t ? vocab_ids(t, text, flags) : "";
    const int ok = t && !strcmp(got, want);
    if (!ok) printf("  \"%s\": %s, %s expected\n", text, got, want);
    return ok;
}

/* ---- SentencePiece's BPE ---- */

static const vocab_token vocab_llama[] = {{"<unk>", 0, 2},
                                          {"<s>", 0, 3},
                                          {"</s>", 0, 3},
                                          {"<0x41>", 0, 6},
                                          {"<0xC3>", 0, 6},
                                          {"<0xA4>", 0, 6},
                                          {"\xE2\x96\x81", -3, 1},
                                          {"a", -4, 1},
                                          {"b", -5, 1},
                                          {"ab", -2, 1},
                                          {"\xE2\x96\x81"
                                           "ab",
                                           -1, 1},
                                          {"<|im_end|>", 0, 1},
                                          {"<tool>", 0, 4},
                                          {"ba", -6, 1}};

static int vocab_more_llama(llm_text *t) {
    gguf_kv(t, "tokenizer.ggml.eos_token_id", LLM__GGUF_U32, 11, 4);
    gguf_kv(t, "tokenizer.ggml.add_eos_token", LLM__GGUF_BOOL, 1, 1);
    return 2;
}
static int vocab_more_no_prefix(llm_text *t) { return gguf_kv(t, "tokenizer.ggml.add_space_prefix", LLM__GGUF_BOOL, 0, 1), 1; }

static void vocab_test_llama(void) {
    llm_result r;
    const int n = LLM__COUNT(vocab_llama);
    llm__tokenizer *t = vocab_open(vocab_keys("llama", vocab_llama, n, NULL, 0, NULL), &r);
    CHECK(!r && vocab_is(t, "ab ab", 0, "10 10") && vocab_is(t, "a\xC3\xA4", 0, "6 7 4 5") && vocab_is(t, "A", 0, "6 3"));
    CHECK(t && t->bos_id == 1 && t->eos_id == 2 && t->unk_id == 0 && vocab_is(t, "ab", LLM_TOK_ADD_SPECIAL, "1 10"));
    CHECK(t && t->token[11].type & LLM__TOKEN_SPECIAL &&
          vocab_is(t, "<|im_end|>", LLM_TOK_PARSE_SPECIAL, "11"));           /* control, whatever the file says */
    CHECK(vocab_is(t, "<tool>", 0, "12") && vocab_is(t, "bab", 0, "6 8 9")); /* ab before ba, by their scores */
    llm__tokenizer_close(t);
    t = vocab_open(vocab_keys("llama", vocab_llama, n, NULL, 0, vocab_more_llama), &r);
    CHECK(!r && t->eos_id == 11 && vocab_is(t, "ab", LLM_TOK_ADD_SPECIAL, "1 10 11"));
    llm__tokenizer_close(t);
    t = vocab_open(vocab_keys("llama", vocab_llama, n, NULL, 0, vocab_more_no_prefix), &r);
    CHECK(!r && vocab_is(t, "ab ab", 0, "9 10"));
    llm__tokenizer_close(t);
}

/* ---- BPE over bytes ---- */

static const vocab_token vocab_gpt2[] = {{"a", 0, 1},
                                         {"b", 0, 1},
                                         {"\xC4\xA0", 0, 1},
                                         {"\xC4\xA0"
                                          "a",
                                          0, 1},
                                         {"ab", 0, 1},
                                         {"\xC4\xA0"
                                          "ab",
                                          0, 1},
                                         {"1", 0, 1},
                                         {"<|endoftext|>", 0, 3}};
static const char *const vocab_merges[] = {"a b", "\xC4\xA0 a", "\xC4\xA0 ab"};

static int vocab_more_pre(llm_text *t) { return gguf_kv_str(t, "tokenizer.ggml.pre", "gpt-2"), 1; }
static int vocab_more_bad_pre(llm_text *t) { return gguf_kv_str(t, "tokenizer.ggml.pre", "nobody"), 1; }

static void vocab_test_gpt2(void) {
    llm_result r;
    const int n = LLM__COUNT(vocab_gpt2);
    llm__tokenizer *t = vocab_open(vocab_keys("gpt2", vocab_gpt2, n, vocab_merges, 3, vocab_more_pre), &r);
    CHECK(!r && vocab_is(t, "ab ab", 0, "4 5") && vocab_is(t, "a a1", 0, "0 3 6") &&
          vocab_is(t, "ab", LLM_TOK_ADD_SPECIAL, "4")); /* no BOS of its own */
    CHECK(t && t->bytes == 0 && vocab_is(t, "<|endoftext|>a", LLM_TOK_PARSE_SPECIAL, "7 0"));
    llm__tokenizer_close(t);
    t = vocab_open(vocab_keys("gpt2", vocab_gpt2, n, vocab_merges, 3, vocab_more_bad_pre), &r);
    CHECK(r == LLM_ERR_UNSUPPORTED && strstr(llm_last_error(), "v.gguf: tokenizer.ggml.pre: \"nobody\" is unknown"));
    static const char *const one_part[] = {"ab"};
    t = vocab_open(vocab_keys("gpt2", vocab_gpt2, n, one_part, 1, vocab_more_pre), &r);
    CHECK(r == LLM_ERR_FORMAT && strstr(llm_last_error(), "merges[0]: two parts expected"));
}

/* ---- Unigram and WordPiece ---- */

static int vocab_more_t5(llm_text *t) {
    return gguf_kv(t, "tokenizer.ggml.add_space_prefix", LLM__GGUF_BOOL, 1, 1),
           gguf_kv(t, "tokenizer.ggml.unknown_token_id", LLM__GGUF_U32, 2, 4), 2;
}

static void vocab_test_others(void) {
    static const vocab_token t5[] = {{"<pad>", 0, 3},
                                     {"</s>", 0, 3},
                                     {"<unk>", 0, 2},
                                     {"\xE2\x96\x81", -2, 1},
                                     {"a", -3, 1},
                                     {"b", -3, 1},
                                     {"ab", -4, 1},
                                     {"\xE2\x96\x81"
                                      "ab",
                                      -4.5f, 1}};
    static const vocab_token bert[] = {{"[PAD]", 0, 3},
                                       {"[UNK]", 0, 3},
                                       {"[CLS]", 0, 3},
                                       {"[SEP]", 0, 3},
                                       {"\xE2\x96\x81"
                                        "un",
                                        0, 1},
                                       {"able", 0, 1},
                                       {"\xE2\x96\x81"
                                        "a",
                                        0, 1}};
    llm_result r;
    llm__tokenizer *t = vocab_open(vocab_keys("t5", t5, LLM__COUNT(t5), NULL, 0, vocab_more_t5), &r);
    CHECK(!r && vocab_is(t, "ab", 0, "7") && vocab_is(t, "ba", 0, "3 5 4") && vocab_is(t, "ab", LLM_TOK_ADD_SPECIAL, "7 1") &&
          vocab_is(t, "a?", 0, "3 4 2"));
    llm__tokenizer_close(t);
    t = vocab_open(vocab_keys("bert", bert, LLM__COUNT(bert), NULL, 0, NULL), &r);
    CHECK(r == LLM_ERR_FORMAT && strstr(llm_last_error(), "unknown_token_id: missing")); /* the defaults are ids that it has not */
}

static int vocab_more_far(llm_text *t) { return gguf_kv(t, "tokenizer.ggml.bos_token_id", LLM__GGUF_U32, 14, 4), 1; }
static int vocab_more_text_id(llm_text *t) { return gguf_kv_str(t, "tokenizer.ggml.bos_token_id", "1"), 1; }
static int vocab_more_none(llm_text *t) { return gguf_kv(t, "tokenizer.ggml.bos_token_id", LLM__GGUF_U32, 0xFFFFFFFF, 4), 1; }
static int vocab_more_json(llm_text *t) {
    return gguf_kv_str(t, "tokenizer.huggingface.json",
                       "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"x\":0,\"y\":1,\"xy\":2},\"merges\":[\"x y\"]}}"),
           1;
}

static void vocab_refused(llm_text file, llm_result want, const char *words) {
    llm_result r;
    llm__tokenizer *t = vocab_open(file, &r);
    if (!CHECK(!t && r == want && strstr(llm_last_error(), words))) printf("  %d %s\n", (int)r, llm_last_error());
    llm__tokenizer_close(t);
}

static void vocab_test_bad(void) {
    vocab_token v[LLM__COUNT(vocab_llama)];
    llm_result r;
    const int n = LLM__COUNT(vocab_llama);
    vocab_refused(vocab_keys("llama", vocab_llama, n, NULL, 0, vocab_more_far), LLM_ERR_FORMAT,
                  "bos_token_id: token id 14, the vocabulary has 14");
    vocab_refused(vocab_keys("llama", vocab_llama, n, NULL, 0, vocab_more_text_id), LLM_ERR_FORMAT,
                  "bos_token_id: a whole number expected");
    vocab_refused(vocab_keys("rwkv", vocab_llama, n, NULL, 0, NULL), LLM_ERR_UNSUPPORTED, "\"rwkv\": llama, gpt2, t5 or bert expected");
    vocab_refused(vocab_keys("llama", vocab_llama, 0, NULL, 0, NULL), LLM_ERR_FORMAT, "at least one token expected");
    memcpy(v, vocab_llama, sizeof v);
    v[8].text = "a";
    vocab_refused(vocab_keys("llama", v, n, NULL, 0, NULL), LLM_ERR_FORMAT, "\"a\" twice");
    memcpy(v, vocab_llama, sizeof v);
    v[8].score = NAN;
    vocab_refused(vocab_keys("llama", v, n, NULL, 0, NULL), LLM_ERR_FORMAT, "scores[8]: a number expected");
    llm_text nothing = gguf_head(3, 0, 0);
    vocab_refused(nothing, LLM_ERR_UNSUPPORTED, "tokenizer.ggml.model is absent");
    llm__tokenizer *t = vocab_open(vocab_keys("llama", vocab_llama, n, NULL, 0, vocab_more_none), &r);
    CHECK(!r && t->bos_id == 1); /* "none": the kind's default */
    llm__tokenizer_close(t);
    t = vocab_open(vocab_keys("llama", vocab_llama, n, NULL, 0, vocab_more_json), &r); /* a tokenizer.json inside the file wins */
    CHECK(!r && t->n_vocab == 3 && vocab_is(t, "xyx", 0, "2 0"));
    llm__tokenizer_close(t);
}

TEST_GROUP(vocab) {
    vocab_test_llama();
    vocab_test_gpt2();
    vocab_test_others();
    vocab_test_bad();
}
