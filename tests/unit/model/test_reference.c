/* The plain forward pass and plain attention: against the engine, and against numbers worked out by hand. */
#include "../test.h"
#include "base/platform.h"
#include "cpu/plain_attention.h"
#include "model/reference.h"
#include "model/loader.h"

/* The largest difference of all logits of n tokens, as a share of the largest logit; -1: it did not run. */
static double ref_distance(const char *path, const int32_t *ids, int32_t n) {
    llm_model *m = NULL;
    llm_engine *e = NULL;
    llm_engine_config c;
    double worst = -1, largest = 0;
    memset(&c, 0, sizeof c);
    c.dtype = LLM_COMPUTE_F32;
    c.kv_cache_dtype = LLM_KV_F32;
    c.max_model_len = 64;
    c.n_threads = 1;
    if (!CHECK(!llm_model_open(path, NULL, &m)) || !CHECK(!llm_engine_open(m, &c, &e))) return llm_model_close(m), -1;
    const int32_t vocab = llm_logits_size(e);
    float *own = (float *)calloc((size_t)n * (size_t)vocab, sizeof *own), *want = (float *)calloc((size_t)n * (size_t)vocab, sizeof *want);
    if (CHECK(own && want && !llm__reference_forward(m, ids, n, own)) && CHECK(!llm_forward(e, 0, 0, ids, n, want, n))) {
        for (int64_t i = 0; i < (int64_t)n * vocab; i++) {
            worst = LLM__MAX(worst, fabs((double)own[i] - (double)want[i]));
            largest = LLM__MAX(largest, fabs((double)want[i]));
        }
        worst /= largest;
    }
    free(own);
    free(want);
    llm_engine_close(e);
    llm_model_close(m);
    return worst;
}

/* Equal to 1e-5: folders and GGUF, floats and quantised weights, both ways of pairing, with and without an output matrix, shared keys. */
static void ref_test_forward(void) {
    static const char *const paths[] = {TEST_CHECKPOINT("llama"), TEST_CHECKPOINT("llama_rope_linear"),
                                        TEST_CHECKPOINT("llama_rope_llama3"), "models/SmolLM2-135M-Instruct.Q4_1.gguf"};
    int32_t ids[12];
    for (int i = 0; i < 12; i++) ids[i] = 3 + i * i * 7 % 90;
    for (int i = 0; i < LLM__COUNT(paths); i++) {
        if (i == LLM__COUNT(paths) - 1 && TEST_BRIEF) continue;
        double off = ref_distance(paths[i], ids, i == LLM__COUNT(paths) - 1 ? 5 : 12);
        if (!CHECK(off >= 0 && off < 1e-5)) printf("%s: off by %g\n", paths[i], off);
    }
}

/* What it does not have is refused, by its name, and not computed wrongly. */
static void ref_test_refused(void) {
    static const char *const names[][2] = {{"gemma2", "scales"},      {"qwen2", "biases"},         {"mixtral", "experts"},
                                           {"olmo2", "another norm"}, {"gpt2", "different kinds"}, {"phi3", "windows"}};
    float row[4096];
    const int32_t one = 1, bad = 1 << 20;
    llm_model *m = NULL;
    for (int i = 0; i < LLM__COUNT(names); i++) {
        char path[100];
        snprintf(path, sizeof path, TEST_CHECKPOINT("%s"), names[i][0]);
        if (!CHECK(!llm_model_open(path, NULL, &m))) continue;
        llm_result r = llm_reference_forward(m, &one, 1, row);
        if (!CHECK(r == LLM_ERR_UNSUPPORTED && strstr(llm_last_error(), names[i][1])))
            printf("%s: %d %s\n", names[i][0], r, llm_last_error());
        llm_model_close(m);
    }
    if (!CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), NULL, &m))) return;
    CHECK(llm_reference_forward(m, &bad, 1, row) == LLM_ERR_ARG && llm_reference_forward(m, &one, 0, row) == LLM_ERR_ARG);
    llm_model_close(m);
}

/* Weights that can be worked out: scores 0, ln 2 and ln 5 are 1/8, 2/8, 5/8. */
static void ref_test_attention(void) {
    const float q[2] = {1, 0}, k[6] = {0, 9, 0.6931472f, 9, 1.6094379f, 9}, v[6] = {8, 1, 16, 1, 32, 1}, sink = 0.6931472f;
    float weight[3], out[2];
    llm__plain_query x;
    memset(&x, 0, sizeof x);
    x.q = q, x.k = k, x.v = v, x.k_stride = x.v_stride = 2, x.d = x.v_d = 2, x.to = 3, x.scale = 1;
    llm__plain_attention(&x, weight, out);
    CHECK(fabsf(weight[0] - 0.125f) < 1e-6f && fabsf(weight[1] - 0.25f) < 1e-6f && fabsf(weight[2] - 0.625f) < 1e-6f);
    CHECK(fabsf(out[0] - 25) < 1e-4f && fabsf(out[1] - 1) < 1e-6f);
    x.from = 1; /* a window: 2/7, 5/7 */
    llm__plain_attention(&x, weight, out);
    CHECK(weight[0] == 0 && fabsf(weight[1] - 2.0f / 7) < 1e-6f && fabsf(out[0] - 192.0f / 7) < 1e-4f);
    x.from = 0, x.sink = &sink; /* a share of 2 for nothing: 1/10, 2/10, 5/10 */
    llm__plain_attention(&x, weight, NULL);
    CHECK(fabsf(weight[0] - 0.1f) < 1e-6f && fabsf(weight[2] - 0.5f) < 1e-6f);
    x.sink = NULL, x.softcap = 1e-3f; /* all scores but 0 become nearly the cap */
    llm__plain_attention(&x, weight, NULL);
    CHECK(fabsf(weight[1] - weight[2]) < 1e-6f && weight[0] < weight[1]);
    x.softcap = 0, x.slope = 0.6931472f, x.at = 2; /* each position further away counts half: 1/4, 1, 5 */
    llm__plain_attention(&x, weight, NULL);
    CHECK(fabsf(weight[0] - 0.04f) < 1e-6f && fabsf(weight[2] - 0.8f) < 1e-6f);
}

TEST_GROUP(reference) {
    ref_test_attention();
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints") || !test_made("models/SmolLM2-135M-Instruct.Q4_1.gguf", "model")) return;
    ref_test_forward();
    ref_test_refused();
}
