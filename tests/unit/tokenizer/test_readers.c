/* What readers of tokenizer files build: tokens, scores as ranks, merges, added tokens, frames; tokenizer.json, SentencePiece's protocol
 * buffers and rank files made here byte by byte. (Real files against goldens: test_tokenizer.c.) */
#include "../test.h"
#include "text/regex.h"
#include "tokenizer/build.h"
#include "tokenizer/decode.h"
#include "tokenizer/encode.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/subword.h"
#include "tokenizer/tiktoken.h"
#include "tokenizer/tokenizer_files.h"
#include "tokenizer/tokenizer_json.h"

static llm__str read_s(const char *s) { return llm__s(s, strlen(s)); }

static llm__tokenizer *read_new(void) {
    llm__tokenizer *t = llm__tok_new();
    CHECK(t && t->n_vocab == 0 && t->bos_id == -1 && t->unk_id == -1 && t->normalizers.n == 1 && t->words.n == 2 && !t->result);
    return t;
}

/* The ids of a text, as "1 2 3". */
static const char *read_ids(const llm__tokenizer *t, const char *text, int flags) {
    static char out[200];
    llm_tokens ids = LLM__ZERO;
    size_t n = 0;
    out[0] = 0;
    if (llm__tokenizer_encode(t, text, strlen(text), flags, &ids)) return llm_last_error();
    for (size_t i = 0; i < ids.len && n < sizeof out - 12; i++) n += (size_t)snprintf(out + n, 12, "%s%d", i ? " " : "", (int)ids.data[i]);
    llm_tokens_free(&ids);
    return out;
}

/* ---- building ---- */

/* Tokens are copies; an id or a text comes once, and no id is far beyond the others. */
static void read_enter(void) {
    char text[4] = "ab";
    llm__tokenizer *t = read_new();
    llm__tok_reserve(t, 10);
    CHECK(t->max_id == 100040);
    llm__tok_enter(t, read_s(text), 3, LLM__TOKEN_BYTE, 1.5);
    text[0] = 'x';
    CHECK(t->n_vocab == 4 && llm__str_eq(t->token[3].text, "ab") && t->token[3].type == (LLM__TOKEN_KNOWN | LLM__TOKEN_BYTE) &&
          t->token[3].score == 1.5f);
    CHECK(!t->token[0].type && llm__tok_find(t, llm__lit("ab")) == 3 && llm__tok_find(t, llm__lit("x")) == -1 && t->max_token == 2);
    const llm__str kept = llm__tok_keep(t, read_s(text));
    text[0] = 'z';
    uint8_t *zero = (uint8_t *)llm__tok_get(t, 64);
    CHECK(llm__str_eq(kept, "xb") && zero && !zero[0] && !zero[63]);
    llm__tok_enter(t, llm__lit("b"), 3, 0, 0);
    CHECK(t->result == LLM_ERR_FORMAT && strstr(llm_last_error(), "id 3 twice"));
    llm__tok_enter(t, llm__lit("c"), 5, 0, 0); /* nothing is done after a failure */
    CHECK(t->n_vocab == 4 && !llm__tok_get(t, 1));
    llm__tokenizer_close(t);
    t = read_new();
    llm__tok_reserve(t, 1);
    llm__tok_enter(t, llm__lit("a"), 0, 0, 0), llm__tok_enter(t, llm__lit("a"), 1, 0, 0);
    CHECK(t->result == LLM_ERR_FORMAT && strstr(llm_last_error(), "\"a\" twice"));
    t->result = LLM_OK;
    llm__tok_enter(t, llm__lit("far"), t->max_id, 0, 0);
    CHECK(t->result == LLM_ERR_LIMIT && strstr(llm_last_error(), "id 100004"));
    llm__tokenizer_close(t);
    t = read_new();
    llm__tok_reserve(t, INT32_MAX);
    CHECK(t->result == LLM_ERR_LIMIT);
    llm__tokenizer_close(t);
    llm__tokenizer_close(NULL);
}

/* Added tokens: the vocabulary's own id holds; flags make a token special; a frame grows in its middle. */
static void read_added(void) {
    char longest[LLM__TOK_MAX_ADDED + 2];
    llm_tokens frame = LLM__ZERO;
    llm__tokenizer *t = read_new();
    llm__tok_reserve(t, 4);
    llm__tok_enter(t, llm__lit("<a>"), 0, 0, 0), llm__tok_enter(t, llm__lit("b"), 1, 0, 0);
    llm__tok_enter_added(t, llm__lit("<a>"), 7, LLM__ADDED_SPECIAL);
    llm__tok_enter_added(t, llm__lit("<c>"), 3, LLM__ADDED_LSTRIP);
    CHECK(!t->result && t->n_added == 2 && t->added[0].id == 0 && t->added[1].id == 3 && t->added[1].flags == LLM__ADDED_LSTRIP &&
          t->n_vocab == 4);
    CHECK(t->token[0].type & LLM__TOKEN_SPECIAL && t->token[0].type & LLM__TOKEN_ADDED && !(t->token[3].type & LLM__TOKEN_SPECIAL));
    for (int i = 0; i < 3; i++) llm__frame_add(t, &frame, i == 2 ? 1 : (size_t)i, i, "no token");
    CHECK(frame.len == 3 && frame.data[0] == 0 && frame.data[1] == 2 && frame.data[2] == 1 && !t->result);
    llm__frame_add(t, &frame, 0, 4, "the frame names no token");
    CHECK(t->result == LLM_ERR_FORMAT && strstr(llm_last_error(), "the frame names no token"));
    t->result = LLM_OK;
    llm__tok_enter_added(t, llm__lit("<d>"), 1, 0);
    CHECK(t->result == LLM_ERR_FORMAT && strstr(llm_last_error(), "id 1 is another token's"));
    t->result = LLM_OK;
    llm__tok_enter_added(t, llm__nothing, 9, 0);
    CHECK(t->result == LLM_ERR_FORMAT);
    t->result = LLM_OK;
    memset(longest, 'x', sizeof longest);
    llm__tok_enter_added(t, llm__s(longest, LLM__TOK_MAX_ADDED), 9, 0);
    CHECK(!t->result);
    llm__tok_enter_added(t, llm__s(longest, LLM__TOK_MAX_ADDED + 1), 10, 0);
    CHECK(t->result == LLM_ERR_LIMIT);
    llm_tokens_free(&frame);
    llm__tokenizer_close(t);
}

/* Scores as ranks: the higher score has the smaller rank, over all signs; left-out types have none. */
static void read_scores(void) {
    static const double scores[] = {-1e30, -2, -1, -1e-30, 0, 1e-30, 1, 2.5, 1e30};
    llm__tokenizer *t = read_new();
    llm__tok_reserve(t, 16);
    for (int i = 0; i < LLM__COUNT(scores); i++) {
        char text[2] = {(char)('a' + i), 0};
        llm__tok_enter(t, read_s(text), i, i == 4 ? LLM__TOKEN_BYTE : 0, scores[i]);
    }
    t->model = LLM__TOK_UNIGRAM;
    llm__tok_use_scores(t, LLM__TOKEN_BYTE);
    for (int i = 0; i < LLM__COUNT(scores); i++)
        for (int k = 0; k < i; k++)
            if (i != 4 && k != 4) CHECK(t->token[i].rank < t->token[k].rank);
    CHECK(t->token[4].rank == UINT32_MAX && t->pieces.n == LLM__COUNT(scores) - 1 && t->unk_score == (double)(float)-1e30 - 10);
    llm__tokenizer_close(t);
}

/* Merges: the first of two for a pair holds; parts that are no tokens get ids above all, where that is wanted. */
static void read_merges(void) {
    static const char *const vocab[] = {"a", "b", "##b", "ab", "abc", "c"};
    llm__tokenizer *t = read_new();
    int32_t next = 6;
    llm__tok_reserve(t, 8);
    for (int i = 0; i < LLM__COUNT(vocab); i++) llm__tok_enter(t, read_s(vocab[i]), i, 0, 0);
    llm__tok_merge_reserve(t, 10);
    CHECK(t->merge_cap == 16);
    CHECK(llm__tok_merge_enter(t, llm__lit("a"), llm__lit("##b"), 2, 5, NULL)); /* the prefix does not come again */
    CHECK(llm__tok_merge_enter(t, llm__lit("ab"), llm__lit("c"), 0, 6, NULL) &&
          llm__tok_merge_enter(t, llm__lit("ab"), llm__lit("c"), 0, 7, NULL));
    const llm__merge *m = llm__merge_slot(t, 0, 2), *twice = llm__merge_slot(t, 3, 5);
    CHECK(m->id == 3 && m->rank == 5 && twice->id == 4 && twice->rank == 6 && llm__merge_slot(t, 5, 3)->id < 0);
    CHECK(!llm__tok_merge_enter(t, llm__lit("a"), llm__lit("x"), 0, 8, NULL) &&
          !llm__tok_merge_enter(t, llm__lit("c"), llm__lit("a"), 0, 8, NULL) && !t->result);
    CHECK(llm__tok_merge_enter(t, llm__lit("c"), llm__lit("x"), 0, 8, &next) && next == 8 &&
          llm__merge_slot(t, 5, 6)->id == 7); /* "x" 6, "cx" 7 */
    llm__tokenizer_close(t);
}

/* Steps: a literal's special characters are escaped; there is an end to them. */
static void read_steps(void) {
    llm__tokenizer *t = read_new();
    llm__tok_step *literal = llm__tok_add_regex(t, &t->words, LLM__TOK_SPLIT, llm__lit("a.b|(c)"), 1),
                  *none = llm__tok_add_regex(t, &t->words, LLM__TOK_SPLIT, llm__nothing, 0);
    CHECK(!t->result && literal->re && !none->re && literal->kind == LLM__TOK_SPLIT && t->words.n == 4);
    llm__tok_add_literal(t, LLM__LITERAL_SPACES, LLM__SPACES_FIRST);
    CHECK(t->decoders.n == 2 && t->decoders.v[0].as.literal.tokens == LLM__LITERAL_SPACES &&
          t->decoders.v[0].as.literal.spaces == LLM__SPACES_FIRST);
    for (int i = 2; i < LLM__TOK_MAX_STEPS; i++) llm__tok_add(t, &t->decoders, LLM__TOK_UTF8);
    CHECK(!t->result && t->decoders.n == LLM__TOK_MAX_STEPS);
    llm__tok_add(t, &t->decoders, LLM__TOK_UTF8);
    CHECK(t->result == LLM_ERR_LIMIT && t->decoders.n == LLM__TOK_MAX_STEPS);
    t->result = LLM_OK;
    llm__tok_set_charsmap(t, llm__s("\x08\0\0\0abcd", 8));
    CHECK(t->result == LLM_ERR_FORMAT && strstr(llm_last_error(), "8 bytes of units in 8 bytes"));
    t->result = LLM_OK;
    llm__tok_set_charsmap(t, llm__s("\x04\0\0\0abcdxyz", 11));
    CHECK(!t->result && t->charsmap.n_units == 1 && t->charsmap.n_strings == 3 && !memcmp(t->charsmap.strings, "xyz", 3));
    llm__tokenizer_close(t);
}

/* ---- base64 ---- */

/* RFC 4648's rows, every single byte and pair against an encoder here, and what is none. */
static void read_base64(void) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char *const rows[][2] = {
        {"", ""}, {"Zg==", "f"}, {"Zm8=", "fo"}, {"Zm9v", "foo"}, {"Zm9vYg==", "foob"}, {"Zm9vYmE=", "fooba"}, {"Zm9vYmFy", "foobar"}};
    static const char *const bad[] = {"Zg=", "Z", "Zm9", "Zg==Zg==", "Z===", "Zm 9v", "====", "Zm9v=", "Zm9\xC3"};
    llm_text out = LLM__ZERO;
    int wrong = 0;
    for (int i = 0; i < LLM__COUNT(rows); i++)
        out.len = 0, CHECK(llm__base64(read_s(rows[i][0]), &out) && out.len == strlen(rows[i][1]) &&
                           !memcmp(out.data ? out.data : "", rows[i][1], out.len));
    for (int i = 0; i < LLM__COUNT(bad); i++) out.len = 0, CHECK(!llm__base64(read_s(bad[i]), &out));
    for (int c = 0; c < 256; c++)
        wrong += llm__base64_digit((char)c) != (c && strchr(letters, c) ? (int)(strchr(letters, c) - letters) : -1);
    for (int a = 0; a < 65536; a++) {
        char text[5] = {letters[a >> 10], letters[a >> 4 & 63], letters[(a & 15) << 2], '=', 0};
        out.len = 0;
        wrong += !llm__base64(read_s(text), &out) || out.len != 2 || (uint8_t)out.data[0] != a >> 8 || (uint8_t)out.data[1] != (a & 255);
    }
    CHECK(wrong == 0);
    llm_text_free(&out);
}

/* ---- tokenizer.json ---- */

static llm__tokenizer *read_json(const char *text) {
    llm_json *d = NULL;
    llm__tokenizer *t = read_new();
    CHECK(!llm_json_parse(text, strlen(text), NULL, &d));
    llm__tok_load_json(t, d);
    if (!t->result) llm__tok_finish(t);
    llm_json_free(d);
    return t;
}

static void read_tokenizer_json(void) {
    llm__tokenizer *t = read_json(
        "{\"added_tokens\":[{\"id\":6,\"content\":\"<s>\",\"special\":true},{\"id\":7,\"content\":\"<x>\",\"special\":false,\"lstrip\":true}],"
        "\"normalizer\":{\"type\":\"Lowercase\"},\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"decoder\":null,"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
        "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[6],\"tokens\":[\"<s>\"]}}},"
        "\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1,\"b\":2,\"ab\":3,\"c\":4,\"abc\":5},\"merges\":[\"a b\",[\"ab\",\"c\"]]}}");
    CHECK(!t->result && t->n_vocab == 8 && t->model == LLM__TOK_BPE && t->unk_id == 0 && t->before.len == 1 && t->before.data[0] == 6);
    CHECK(!strcmp(read_ids(t, "abc ABC acb", 0), "5 5 1 4 2") && !strcmp(read_ids(t, "abz", 0), "3 0"));
    CHECK(!strcmp(read_ids(t, "a", LLM_TOK_ADD_SPECIAL), "6 1") && !strcmp(read_ids(t, "a <x>b", 0), "1 7 2"));
    CHECK(!strcmp(read_ids(t, "<s>a", LLM_TOK_PARSE_SPECIAL), "6 1") && strcmp(read_ids(t, "<s>a", 0), "6 1") != 0);
    llm__tokenizer_close(t);
    t = read_json(
        "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"max_input_chars_per_word\":100,\"continuing_subword_prefix\":\"##\",\"vocab\":{\"u\":0,\"un\":1,\"##able\":2,\"##aff\":3}},"
        "\"pre_tokenizer\":{\"type\":\"Whitespace\"}}");
    CHECK(!t->result && !strcmp(read_ids(t, "unaffable unaffx", 0), "1 3 2 0"));
    llm__tokenizer_close(t);
    static const char *const bad[][2] = {
        {"{}", "model"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "merge"},
        {"{\"model\":{\"type\":\"Other\",\"vocab\":{\"a\":0}}}", "Other"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":{\"type\":\"Spin\"}}", "Spin"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "a whole number from 0 on"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":2147483647},\"merges\":[]}}", "2147483647"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":9223372036854775807},\"merges\":[]}}", "9223372036854775807"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":2147483647,\"content\":\"x\"}]}",
         "2147483647"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":9223372036854775807,\"content\":\"x\"}]}",
         "9223372036854775807"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":18446744073709551616,\"content\":\"x\"}]}",
         "an id from 0 on"}};
    for (int i = 0; i < LLM__COUNT(bad); i++) {
        t = read_json(bad[i][0]);
        if (!CHECK(t->result && strstr(llm_last_error(), bad[i][1]))) printf("  %s: %s\n", bad[i][0], llm_last_error());
        llm__tokenizer_close(t);
    }
}

/* Flags of added tokens: normalized unless special, if nothing is said; components by name, without their document. */
static void read_flags(void) {
    static const struct {
        const char *json;
        int flags;
    } rows[] = {{"{}", LLM__ADDED_NORMALIZED},
                {"{\"special\":true}", LLM__ADDED_SPECIAL},
                {"{\"special\":true,\"normalized\":true}", LLM__ADDED_SPECIAL | LLM__ADDED_NORMALIZED},
                {"{\"normalized\":false,\"lstrip\":true}", LLM__ADDED_LSTRIP},
                {"{\"rstrip\":true,\"single_word\":true,\"normalized\":false}", LLM__ADDED_RSTRIP | LLM__ADDED_WORD}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_json *d = NULL;
        CHECK(!llm_json_parse(rows[i].json, strlen(rows[i].json), NULL, &d) && llm__json_added_flags(d, 0) == rows[i].flags);
        llm_json_free(d);
    }
    llm_json *d = NULL;
    static const char config[] = "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\",\"lstrip\":false},\"pad_token\":null}";
    CHECK(!llm_json_parse(config, strlen(config), NULL, &d) && llm__str_eq(llm__config_token(d, "bos_token"), "<s>") &&
          llm__str_eq(llm__config_token(d, "eos_token"), "</s>"));
    CHECK(!llm__config_token(d, "pad_token").p && !llm__config_token(d, "unk_token").p && !llm__config_token(NULL, "bos_token").p);
    llm_json_free(d);
    llm__tokenizer *t = read_new();
    const int n = t->normalizers.n;
    CHECK(llm__tok_add_parts(t, NULL, -1, 'n', llm__lit("NFC"), &t->normalizers) && t->normalizers.n > n &&
          !llm__tok_add_parts(t, NULL, -1, 'n', llm__lit("NFX"), &t->normalizers) && !t->result);
    llm__tokenizer_close(t);
}

/* ---- SentencePiece ---- */

static void read_bytes(llm_text *out, int number, const char *bytes, size_t n) {
    const char head[2] = {(char)(number << 3 | 2), (char)n};
    llm_text_add(out, head, 2), llm_text_add(out, bytes, n);
}

static void read_piece(llm_text *out, const char *text, float score, int type) {
    llm_text piece = LLM__ZERO;
    const char kind[2] = {3 << 3, (char)type};
    char number[5] = {2 << 3 | 5};
    memcpy(number + 1, &score, 4);
    read_bytes(&piece, 1, text, strlen(text));
    llm_text_add(&piece, number, 5);
    if (type > 1) llm_text_add(&piece, kind, 2);
    read_bytes(out, 1, piece.data, piece.len);
    llm_text_free(&piece);
}

/* A model of nine pieces, Unigram (1) or BPE (2). */
static llm_text read_spm(int model) {
    llm_text out = LLM__ZERO;
    const char trainer[2] = {3 << 3, (char)model};
    const char unknown[16] = {9 << 3 | 1, 11, 1, 'x', 11, 1, 'x', 11, 1, 10 << 3 | 5, 11, 1, 'x', 1, 11 << 3, 1}; /* 8 bytes, 4 bytes, 1 */
    llm_text_add(&out, unknown, sizeof unknown);
    read_piece(&out, "<unk>", 0, 2), read_piece(&out, "<s>", 0, 3), read_piece(&out, "</s>", 0, 3);
    read_piece(&out, "\xE2\x96\x81", -3, 1), read_piece(&out, "a", -4, 1), read_piece(&out, "b", -5, 1), read_piece(&out, "ab", -2, 1);
    read_piece(&out,
               "\xE2\x96\x81"
               "ab",
               -1, 1),
        read_piece(&out, "<u>", 0, 4);
    read_bytes(&out, 2, trainer, 2);
    return out;
}

static void read_sentencepiece(void) {
    for (int model = 1; model <= 2; model++) {
        llm_text file = read_spm(model);
        llm__tokenizer *t = read_new();
        llm__tok_load_spm(t, llm__text_str(&file));
        if (!t->result) llm__tok_finish(t);
        CHECK(!t->result && t->n_vocab == 9 && t->unk_id == 0 && t->bos_id == 1 && t->eos_id == 2 &&
              t->model == (model == 1 ? LLM__TOK_UNIGRAM : LLM__TOK_BPE));
        CHECK(t->token[1].type & LLM__TOKEN_SPECIAL && t->token[8].type & LLM__TOKEN_USER && t->token[6].score == -2);
        CHECK(!strcmp(read_ids(t, "ab ab", 0), "7 7") && !strcmp(read_ids(t, "  ab  b ", 0), "7 3 5") &&
              !strcmp(read_ids(t, "<u>a", 0), model == 1 ? "3 8 4" : "3 8 4"));
        CHECK(!strcmp(read_ids(t, "a?b", 0), "3 4 0 5"));
        llm__tokenizer_close(t);
        for (size_t cut = 0; cut < file.len; cut++) { /* a cut file is refused, or is one of fewer pieces: nothing is read beyond it */
            char *copy = (char *)malloc(cut + 1);
            memcpy(copy, file.data, cut);
            t = read_new();
            llm__tok_load_spm(t, llm__s(copy, cut));
            CHECK(t->result ? llm_last_error()[0] != 0 : t->n_vocab > 0);
            llm__tokenizer_close(t);
            free(copy);
        }
        llm_text_free(&file);
    }
    llm_text file = read_spm(3);
    llm__tokenizer *t = read_new();
    llm__tok_load_spm(t, llm__text_str(&file));
    CHECK(t->result == LLM_ERR_UNSUPPORTED && strstr(llm_last_error(), "model_type 3"));
    llm__tokenizer_close(t);
    llm_text_free(&file);
}

/* ---- rank files ---- */

static void read_ranks(void) {
    static const char file[] = "YQ== 0\nYg== 1\nYWI= 2\r\nIA== 3\n\nIGFi 4\n";
    static const char *const digits[] = {"\\d", NULL, "x"};
    static const struct {
        const char *text, *words;
    } bad[] = {{"YQ== 0\nYg 1\n", "line 2: a token in base64"},
               {"YQ== 0\nYg== x\n", "line 2"},
               {"YQ==\n", "line 1"},
               {"YQ== 0\nYg== 0\n", "id 0 twice"},
               {"YQ== 0\nYQ== 1\n", "\"a\" twice"},
               {"YQ== 513\n", "its rank below 513"}};
    llm__tokenizer *t = read_new();
    llm__tok_load_ranks(t, read_s(file), "any.tiktoken", 1);
    if (!t->result) llm__tok_finish(t);
    CHECK(!t->result && t->n_vocab == 5 && t->bytes && t->whole && t->token[2].rank == 2 && t->words.n == 3);
    CHECK(!strcmp(read_ids(t, "ab ab", 0), "2 4") && !strcmp(read_ids(t, "aab", 0), "0 2") && !strcmp(read_ids(t, "abab", 0), "2 2"));
    llm__add_splits(t, digits, 3);
    CHECK(t->words.n == 4 && t->words.v[3].as.split.behaviour == LLM__SPLIT_ISOLATED); /* up to the end of the list */
    llm__tokenizer_close(t);
    for (int i = 0; i < LLM__COUNT(bad); i++) {
        t = read_new();
        llm__tok_load_ranks(t, read_s(bad[i].text), "x", 1);
        if (!CHECK(t->result == LLM_ERR_FORMAT && strstr(llm_last_error(), bad[i].words))) printf("  %s\n", llm_last_error());
        llm__tokenizer_close(t);
    }
}

/* The byte alphabet of GPT-2: 256 letters, all different, and back. */
static void read_letters(void) {
    llm_text letters = LLM__ZERO, back = LLM__ZERO;
    char bytes[256];
    int seen[0x200] = {0}, n = 0, wrong = 0;
    for (int i = 0; i < 256; i++) bytes[i] = (char)i;
    llm__bytes_to_letters(llm__s(bytes, 256), &letters);
    for (size_t at = 0; at < letters.len; n++) {
        int len;
        const int32_t c = llm__utf8_get(letters.data + at, letters.len - at, &len);
        wrong += c < 33 || c >= 0x200 || seen[c]++ || llm__letter_byte(c) != n || (n > 32 && n < 127 && c != n);
        at += (size_t)len;
    }
    llm__letters_to_bytes(llm__text_str(&letters), &back);
    CHECK(wrong == 0 && n == 256 && back.len == 256 && !memcmp(back.data, bytes, 256) && llm__letter_byte(' ') == -1 &&
          llm__letter_byte(0x120) == ' ' && llm__letter_byte(0x4E00) == -1);
    back.len = 0;
    llm__letters_to_bytes(llm__lit("a \xC4\xA0"), &back); /* a space is no letter: as it is */
    CHECK(back.len == 4 && !memcmp(back.data, "a \xC4\xA0", 4));
    llm_text_free(&letters), llm_text_free(&back);
}

TEST_GROUP(readers) {
    read_enter();
    read_added();
    read_scores();
    read_merges();
    read_steps();
    read_base64();
    read_tokenizer_json();
    read_flags();
    read_sentencepiece();
    read_ranks();
    read_letters();
}
