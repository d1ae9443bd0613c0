/* What a text may cost: files and texts that are made to be slow are refused after a bounded time, ordinary ones never; another thread can end
 * the work; a token's bytes are found without much ado. */
#include "../test.h"
#include "base/threads.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_files.h"
#include "tokenizer/decode.h"
#include "tokenizer/build.h"
#include "tokenizer/subword.h"

/* A tokenizer of a JSON text. */
static llm__tokenizer *fuel_open(const llm_text *json) {
    llm__tokenizer *t = llm__tok_new();
    if (!CHECK(t && json->data && !llm__tok_load(t, llm__s(json->data, json->len), "", NULL))) {
        llm__tokenizer_close(t);
        return NULL;
    }
    return t;
}

static void fuel_repeat(llm_text *out, const char *s, int n) {
    while (n-- > 0) llm_text_str(out, s);
}

/* Encodes a text of n times `piece`, with the result that is expected, within `seconds` of processor time. */
static void fuel_row(const char *what, const llm_text *json, const char *piece, int n, llm_result expected, double seconds) {
    llm__tokenizer *t = fuel_open(json);
    llm_text text = {0};
    llm_tokens ids = {0};
    if (!t) return;
    fuel_repeat(&text, piece, n);
    const double begin = (double)clock();
    const llm_result r = llm__tokenizer_encode(t, text.data, text.len, LLM_TOK_PARSE_SPECIAL, &ids);
    const double took = ((double)clock() - begin) / CLOCKS_PER_SEC;
    if (!CHECK(r == expected && took < seconds * (TEST_BRIEF ? 20 : test_slow())))
        printf("  %s: %d after %.1f s: %s\n", what, (int)r, took, r ? llm_last_error() : "");
    llm_text_free(&text);
    llm_tokens_free(&ids);
    llm__tokenizer_close(t);
}

/* Files whose tokens make every place of the text a walk through the rest of it. */
static void fuel_hostile(void) {
    llm_text json = {0};
    llm_text_str(&json, "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0],[\"a\",-1],[\"");
    fuel_repeat(&json, "a", 6000);
    llm_text_str(&json, "\",-2]]}}");
    fuel_row("Unigram, a long token", &json, "a", 40000, LLM_ERR_LIMIT, 10);
    json.len = 0;
    llm_text_str(
        &json,
        "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"max_input_chars_per_word\":100000000,\"vocab\":{\"?\":0,\"a\":1,\"");
    fuel_repeat(&json, "b", 30000);
    llm_text_str(&json, "\":2,\"##a\":3}}}");
    fuel_row("WordPiece, a long token", &json, "a", 60000, LLM_ERR_LIMIT, 10);
    json.len = 0;
    llm_text_str(
        &json,
        "{\"added_tokens\":[{\"id\":2,\"content\":\"\\n\\n\",\"rstrip\":true,\"special\":true}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}");
    if (!TEST_BRIEF) fuel_row("a token that takes all blanks behind it", &json, "\n", 300000, LLM_ERR_LIMIT, 10);
    json.len = 0;
    llm_text_str(
        &json,
        "{\"added_tokens\":[{\"id\":2,\"content\":\"\\n\\n\",\"lstrip\":true,\"special\":true}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}");
    fuel_row("a token that takes all blanks before it", &json, "\n", TEST_BRIEF ? 30000 : 300000, LLM_OK, 10);
    json.len = 0;
    llm_text_str(
        &json,
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?:a?){40}a{40}b|a\"},\"behavior\":\"Isolated\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}");
    fuel_row("a regex that tries everything", &json, "a", 20000, LLM_ERR_LIMIT, 30);
    llm_text_free(&json);
}

/* A million bytes of every kind through a byte-level BPE. */
static void fuel_ordinary(void) {
    static const char *const pieces[] = {
        "the quick brown fox ", "a", " ", "\n", "7", "!", "e\xCC\x81", "\xE4\xB8\xAD", "'s", "<|im_", "\xF0\x9F\x91\xA8\xE2\x80\x8D"};
    llm_text json = {0};
    FILE *f = fopen(TEST_CHECKPOINT("llama") "/tokenizer.json", "rbe");
    char some[4096];
    for (size_t n; f && (n = fread(some, 1, sizeof some, f)) > 0;) llm_text_add(&json, some, n);
    if (f) fclose(f);
    for (int i = 0; CHECK(json.len) && i < LLM__COUNT(pieces); i++)
        fuel_row(pieces[i], &json, pieces[i], (TEST_BRIEF ? 10000 : 200000) / (int)strlen(pieces[i]), LLM_OK, 30);
    llm__tokenizer *t = fuel_open(&json);
    llm_text bytes = {0};
    const double begin = llm_now();
    for (int32_t i = 0; t && i < 100000; i++) {
        bytes.len = 0;
        CHECK(!llm__tokenizer_piece(t, i % 500, &bytes));
    }
    const double each = (llm_now() - begin) * 1e-5;
    if (!CHECK(TEST_BRIEF || each < 4e-6 * test_slow()))
        printf("  the bytes of a token: %.2f us\n", each * 1e6); /* a quarter of one on a quiet machine */
    llm_text_free(&bytes);
    llm_text_free(&json);
    llm__tokenizer_close(t);
}

static int fuel_stop;

static void *fuel_stopper(void *unused) {
    (void)unused;
    const struct timespec pause = {0, 30000000};
    nanosleep(&pause, NULL);
    __atomic_store_n(&fuel_stop, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* A text that takes seconds ends when another thread says so: one word of 16 million letters, for a vocabulary without a cut. */
static void fuel_stopped(void) {
    llm_text json = {0}, text = {0};
    llm_tokens ids = {0};
    pthread_t stopper;
    llm_text_str(
        &json,
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"abab\":3,\"abababab\":4},\"merges\":[\"a b\",\"ab ab\",\"abab abab\"]}}");
    llm__tokenizer *t = fuel_open(&json);
    fuel_repeat(&text, "abab", 4000000);
    fuel_stop = 0;
    if (t && CHECK(!pthread_create(&stopper, NULL, fuel_stopper, NULL))) {
        const double begin = llm_now();
        CHECK(llm__tokenizer_encode_until(t, text.data, text.len, 0, &fuel_stop, &ids) == LLM_ERR_CANCELLED && !ids.len);
        if (!CHECK(llm_now() - begin < 20)) printf("  stopped after %.2f s\n", llm_now() - begin);
        pthread_join(stopper, NULL);
    }
    llm_text_free(&json);
    llm_text_free(&text);
    llm_tokens_free(&ids);
    llm__tokenizer_close(t);
}

TEST_GROUP(fuel) {
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints")) return;
    fuel_hostile();
    fuel_ordinary();
    fuel_stopped();
}
