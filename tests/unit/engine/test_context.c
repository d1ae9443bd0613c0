/* Kept contexts: what comes back is what was computed; a file that is cut, changed or foreign is one sentence, and the cache is as before. */
#include "../folder.h"
#include "engine/scheduler.h"

enum { CX_TOKENS = 70, CX_PAGE = 16 };

static test_folder cx_folder;
static int32_t cx_ids[CX_TOKENS];

static llm_engine *cx_engine(const llm_model *m, const llm_engine_config *changes) {
    llm_engine_config c = LLM__ZERO;
    llm_engine *e = NULL;
    if (changes) c = *changes;
    c.n_threads = 1, c.max_num_seqs = 2;
    if (!c.max_model_len) c.max_model_len = 128;
    if (!c.block_size) c.block_size = CX_PAGE;
    CHECK(!llm_engine_open(m, &c, &e));
    return e;
}

/* Ten greedy tokens behind the prompt; *cached: tokens that the prefix cache had. */
static void cx_ask(llm_engine *e, const char *salt, float logprobs[10], int32_t *cached) {
    llm_request_config q = LLM__ZERO;
    llm_request_metrics metrics;
    llm_request *r = NULL;
    llm_output out;
    q.prompt_ids = cx_ids, q.n_prompt_ids = CX_TOKENS, q.cache_salt = salt;
    q.sampling.max_tokens = 10, q.sampling.ignore_eos = 1, q.sampling.logprobs = 1;
    if (!CHECK(!llm_request_submit(e, &q, &r) && !llm_request_run(e, r) && !llm_request_get_output(r, 0, &out) && out.n_token_ids == 10))
        return;
    memcpy(logprobs, out.logprobs, 10 * sizeof *logprobs);
    llm_request_get_metrics(r, &metrics);
    *cached = metrics.n_cached_tokens;
    llm_request_free(r);
}

static size_t cx_read(const char *path, uint8_t **data) {
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (!CHECK(f && !fstat(fileno(f), &st))) return 0;
    *data = (uint8_t *)malloc((size_t)st.st_size);
    CHECK(fread(*data, 1, (size_t)st.st_size, f) == (size_t)st.st_size && !fclose(f));
    return (size_t)st.st_size;
}

/* Saved by one engine, loaded by another: all whole pages come back, the answer has the same bits, and what is kept again is the same file. */
static void cx_round(const llm_model *m, const char *salt) {
    float said[10], again[10];
    int32_t cached;
    int64_t kept = 0;
    uint8_t *first = NULL, *second = NULL;
    llm_tokens ids = LLM__ZERO;
    llm_engine *e = cx_engine(m, NULL);
    const char *path = folder_file(&cx_folder, salt ? "salted" : "kept"), *copy = folder_file(&cx_folder, "copy");
    CHECK(llm_context_save(e, path, cx_ids, CX_TOKENS, NULL, salt, &kept) == LLM_ERR_ARG && strstr(llm_last_error(), "nothing to keep") &&
          kept == 0);
    CHECK(!test_exists(path));
    cx_ask(e, salt, said, &cached);
    CHECK(cached == 0 && !llm_context_save(e, path, cx_ids, CX_TOKENS, NULL, salt, &kept) && kept == CX_TOKENS / CX_PAGE * CX_PAGE);
    CHECK(!llm_context_save(e, copy, cx_ids, 2 * CX_PAGE + 1, NULL, salt, &kept) && kept == 2 * CX_PAGE); /* no more than was named */
    llm_engine_close(e);
    e = cx_engine(m, NULL);
    CHECK(!llm_context_load(e, path, NULL, salt, &ids) && ids.len == CX_TOKENS / CX_PAGE * CX_PAGE &&
          !memcmp(ids.data, cx_ids, ids.len * sizeof *cx_ids));
    CHECK(e->kv.n_cached == CX_TOKENS / CX_PAGE && !llm_context_load(e, path, NULL, salt, NULL) && e->kv.n_cached == CX_TOKENS / CX_PAGE);
    CHECK(!llm_context_save(e, copy, ids.data, ids.len, NULL, salt, &kept) && kept == (int64_t)ids.len);
    const size_t n = cx_read(path, &first), n2 = cx_read(copy, &second);
    CHECK(n && n == n2 && !memcmp(first, second, n));
    cx_ask(e, salt ? NULL : "other", again, &cached);
    CHECK(cached == 0); /* whose salt is another does not find them */
    cx_ask(e, salt, again, &cached);
    CHECK(cached == CX_TOKENS / CX_PAGE * CX_PAGE && !memcmp(said, again, sizeof said));
    free(first), free(second);
    llm_tokens_free(&ids);
    llm_engine_close(e);
}

/* Refused, with these words; nothing of it stays, nothing stays pinned. */
static void cx_refused(llm_engine *e, const char *path, llm_result want, const char *words) {
    llm_tokens ids = LLM__ZERO;
    const int32_t n_free = e->kv.n_free, n_cached = e->kv.n_cached;
    const llm_result r = llm_context_load(e, path, NULL, NULL, &ids);
    if (!CHECK(r == want && strstr(llm_last_error(), words) && !ids.len))
        printf("  %d %s, \"%s\" expected\n", (int)r, llm_last_error(), words);
    CHECK(e->kv.n_free == n_free && e->kv.n_cached == n_cached);
    llm_tokens_free(&ids);
}

/* Engines under other conditions. */
static void cx_other_engines(const llm_model *m, const char *path) {
    static const struct {
        llm_engine_config c;
        llm_result result;
        const char *words;
    } rows[] = {{{.block_size = 32}, LLM_ERR_ARG, "kept with another page size"},
                {{.kv_cache_dtype = LLM_KV_INT8}, LLM_ERR_ARG, "kept with another KV type"},
                {{.dtype = LLM_COMPUTE_F32, .kv_cache_dtype = LLM_KV_F16}, LLM_ERR_ARG, "kept with another dtype"},
                {{.tensor_parallel_size = 2}, LLM_ERR_ARG, "kept with another number of ranks"},
                {{.disable_prefix_caching = 1}, LLM_ERR_UNSUPPORTED, "kept contexts need the prefix cache"},
                {{.num_gpu_blocks = 3, .max_model_len = 48}, LLM_ERR_LIMIT, "4 pages, the cache has 3"}};
    llm_model *other = NULL;
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_engine *e = cx_engine(m, &rows[i].c);
        if (e) cx_refused(e, path, rows[i].result, rows[i].words);
        llm_engine_close(e);
    }
    for (int i = 0; i < 2; i++) { /* another family; the same model, trained on: one byte near the end of a tensor */
        test_folder f;
        char command[200];
        if (!folder_open(&f)) return;
        snprintf(command, sizeof command, "cp " TEST_CHECKPOINT("llama") "/* %s", f.path);
        CHECK(!system(command));
        FILE *weights = fopen(folder_file(&f, "model.safetensors"), "r+b");
        CHECK(weights && !fseek(weights, -3, SEEK_END) && fputc(0x5A, weights) != EOF && !fclose(weights));
        if (!CHECK(!llm_model_open(i ? f.path : TEST_CHECKPOINT("qwen2"), NULL, &other))) return;
        llm_engine *e = cx_engine(other, NULL);
        cx_refused(e, path, LLM_ERR_ARG, "kept with another model");
        llm_engine_close(e);
        llm_model_close(other);
        folder_close(&f);
    }
}

/* Every cut, and every byte of the header and of the tokens changed, many of the rest. */
static void cx_damage(const llm_model *m, const char *path) {
    uint8_t *data = NULL;
    llm_engine *e = cx_engine(m, NULL);
    const size_t n = cx_read(path, &data), head = 8 + 11 * 8 + 4 * CX_PAGE * sizeof(int32_t);
    int wrong = 0;
    const char *bad = folder_file(&cx_folder, "bad");
    for (size_t cut = 0; cut < n; cut += cut < head ? 1 : n / 61) {
        folder_write(&cx_folder, "bad", data, cut);
        wrong += llm_context_load(e, bad, NULL, NULL, NULL) != LLM_ERR_FORMAT;
    }
    for (size_t at = 0; at < n; at += at < head || at + 9 > n ? 1 : n / 97) {
        data[at] ^= 0x40;
        folder_write(&cx_folder, "bad", data, n);
        wrong += llm_context_load(e, bad, NULL, NULL, NULL) == LLM_OK;
        data[at] ^= 0x40;
    }
    CHECK(wrong == 0 && e->kv.n_cached == 0);
    folder_write(&cx_folder, "bad", data, n);
    CHECK(llm_context_load(e, bad, NULL, NULL, NULL) == LLM_OK);
    cx_refused(e, folder_file(&cx_folder, "absent"), LLM_ERR_IO, "absent");
    CHECK(llm_context_save(e, folder_file(&cx_folder, "no/such/folder"), cx_ids, CX_TOKENS, NULL, NULL, NULL) == LLM_ERR_IO);
    CHECK(llm_context_load(e, bad, "nobody", NULL, NULL) == LLM_ERR_ARG && strstr(llm_last_error(), "no adapter \"nobody\""));
    free(data);
    llm_engine_close(e);
}

TEST_GROUP(context) {
    llm_model *m = NULL;
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints") || !CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), NULL, &m))) return;
    if (!folder_open(&cx_folder)) return;
    for (int i = 0; i < CX_TOKENS; i++) cx_ids[i] = 5 + i * 37 % 400;
    cx_round(m, "salt");
    cx_round(m, NULL);
    char path[128];
    snprintf(path, sizeof path, "%s", folder_file(&cx_folder, "kept"));
    cx_other_engines(m, path);
    cx_damage(m, path);
    folder_close(&cx_folder);
    llm_model_close(m);
}
