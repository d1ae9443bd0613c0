/* The model: every family of ../shared/checkpoints against its reference results, on one and two ranks; hostile configs. */
#include "test.h"

/* A model with its net on the CPU backend, and pages for one sequence. */
typedef struct tm_run {
    llm_model *model;
    llm_backend_ctx *ctx;
    llm__net *net;
    int32_t *pages;
    int32_t max;
} tm_run;

static void tm_close(tm_run *t) {
    llm__net_close(t->net);
    if (t->ctx) llm_backend_cpu()->close(t->ctx);
    llm_model_close(t->model);
    free(t->pages);
    memset(t, 0, sizeof *t);
}

static llm_result tm_open(tm_run *t, const char *path, const llm_model_config *mc, int ranks, const char *isa, llm_compute compute, int32_t max) {
    const llm_backend *be = llm_backend_cpu();
    const llm_kv_layer *layers = NULL;
    llm_backend_config bc;
    llm__net_config nc;
    memset(t, 0, sizeof *t);
    memset(&bc, 0, sizeof bc);
    memset(&nc, 0, sizeof nc);
    t->max = max;
    llm_result r = llm_model_open(path, mc, &t->model);
    bc.n_ranks = ranks;
    bc.n_threads = 1;
    bc.isa = isa;
    bc.compute = compute;
    bc.max_rows = bc.max_out = max;
    bc.max_seqs = 1;
    bc.max_pages_per_seq = max / 32 + 1;
    if (!r) r = be->open(&bc, &t->ctx);
    nc.model = t->model;
    nc.backend = be;
    nc.ctx = t->ctx;
    nc.n_ranks = ranks;
    nc.max_rows = nc.max_out = max;
    nc.page_tokens = 32;
    nc.compute = compute;
    if (!r) r = llm__net_open(&nc, &t->net);
    int n_layers = r ? 0 : llm__net_kv_layers(t->net, &layers);
    if (!r) r = be->kv_open(t->ctx, n_layers, layers, 32, bc.max_pages_per_seq);
    t->pages = (int32_t *)calloc((size_t)bc.max_pages_per_seq, sizeof *t->pages);
    for (int i = 0; i < bc.max_pages_per_seq; i++) t->pages[i] = i;
    if (r) tm_close(t);
    return r;
}

/* Feeds n tokens from `from` on; logits of all of them (all) or of the last. */
static llm_result tm_step(tm_run *t, const int32_t *ids, int32_t from, int32_t n, int all, int32_t prompt_len) {
    int32_t *memory = (int32_t *)calloc((size_t)n * 4 + 8, sizeof *memory), begin[2], len = from + n, variant;
    float base;
    llm_step s;
    memset(&s, 0, sizeof s);
    llm__net_rope_of(t->net, prompt_len, &variant, &base);
    int32_t *positions = memory, *seq = memory + n, *out = memory + 2 * n;
    for (int32_t i = 0; i < n; i++) positions[i] = from + i;
    for (int32_t i = 0; i < n; i++) out[i] = all ? i : n - 1;
    begin[0] = 0;
    begin[1] = n;
    s.shape.n_rows = n;
    s.shape.n_seqs = 1;
    s.shape.n_out = all ? n : 1;
    s.tokens = ids;
    s.positions = positions;
    s.n_position_rows = 1;
    s.seq_of_row = seq;
    s.seq_begin = begin;
    s.seq_len = &len;
    s.seq_rope = &variant;
    s.seq_rope_base = &base;
    s.pages = t->pages;
    s.page_stride = t->max / 32 + 1;
    s.out_rows = out;
    llm_result r = llm__net_step(t->net, &s);
    free(memory);
    return r;
}

static const float *tm_logits(tm_run *t, int row) { return llm_backend_cpu()->logits_row(t->ctx, row); }

static double tm_log_sum(const float *x, int n) {
    double most = x[0], sum = 0;
    for (int i = 1; i < n; i++) most = LLM__MAX(most, x[i]);
    for (int i = 0; i < n; i++) sum += exp(x[i] - most);
    return most + log(sum);
}

static int32_t tm_best(const float *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Numbers of a JSON list as doubles (malloc). */
static double *tm_list(const llm_json *j, int node, int *n) {
    *n = llm_json_size(j, node);
    double *v = (double *)calloc((size_t)*n + 1, sizeof *v);
    int i = 0;
    for (int e = llm_json_first(j, node); e >= 0; e = llm_json_next(j, e)) llm_json_num(j, e, &v[i++]);
    return v;
}

/* One prompt of expected.json: the worst difference, relative to the logits' range; -1 on an error. Counts greedy runs that part. */
static double tm_prompt(tm_run *t, const llm_json *j, int prompt, int *parted) {
    int n, n_logits, n_lp, n_greedy, vocab = llm__net_vocab(t->net), top = llm_json_find(j, prompt, "top5_last");
    double *idf = tm_list(j, llm_json_find(j, prompt, "token_ids"), &n), *logits = tm_list(j, llm_json_find(j, prompt, "logits_last"), &n_logits);
    double *lp = tm_list(j, llm_json_find(j, prompt, "logprobs_of_next"), &n_lp), *greedy = tm_list(j, llm_json_find(j, prompt, "greedy_32"), &n_greedy);
    double worst = 0, low = logits[0], high = logits[0];
    int32_t *ids = (int32_t *)calloc((size_t)n + 40, sizeof *ids);
    for (int i = 0; i < n; i++) ids[i] = (int32_t)idf[i];
    for (int i = 0; i < n_logits; i++) low = LLM__MIN(low, logits[i]), high = LLM__MAX(high, logits[i]);
    if (n_logits != vocab || tm_step(t, ids, 0, n, 1, n)) worst = -1;
    for (int i = 0; worst >= 0 && i < vocab; i++) worst = LLM__MAX(worst, fabs(tm_logits(t, n - 1)[i] - logits[i]) / (high - low));
    for (int i = 0; worst >= 0 && i + 1 < n; i++) {
        const float *x = tm_logits(t, i);
        worst = LLM__MAX(worst, fabs(x[ids[i + 1]] - tm_log_sum(x, vocab) - lp[i]) / (high - low));
    }
    double first = -1;
    if (worst >= 0 && llm_json_num(j, llm_json_first(j, llm_json_first(j, top)), &first)) CHECK(tm_best(tm_logits(t, n - 1), vocab) == (int32_t)first);
    for (int i = 0; worst >= 0 && i < n_greedy; i++) {
        ids[n + i] = tm_best(tm_logits(t, i ? 0 : n - 1), vocab);
        if (ids[n + i] != (int32_t)greedy[i]) {
            ++*parted;
            break;
        }
        if (tm_step(t, ids + n + i, n + i, 1, 0, n)) worst = -1;
    }
    free(idf), free(logits), free(lp), free(greedy), free(ids);
    return worst;
}

static void tm_family(const char *name, int ranks, const char *isa) {
    char path[256], file[300];
    llm_json *j;
    tm_run t;
    double worst = 0;
    int parted = 0, failed = 0;
    snprintf(path, sizeof path, "../shared/checkpoints/%s", name);
    snprintf(file, sizeof file, "%s/expected.json", path);
    if (!CHECK(!llm__json_file(file, 0, &j))) return;
    llm_result r = tm_open(&t, path, NULL, ranks, isa, LLM_COMPUTE_F32, 192);
    if (CHECK(!r)) {
        int prompts = llm_json_find(j, 0, "prompts");
        for (int p = llm_json_first(j, prompts); p >= 0; p = llm_json_next(j, p)) {
            double d = tm_prompt(&t, j, p, &parted);
            failed |= d < 0;
            worst = LLM__MAX(worst, d);
        }
        if (failed || parted || worst > 1e-4) printf("%s, %d ranks, %s: %s, worst difference %.2e of the range, %d greedy runs part\n", name, ranks, isa, failed ? llm_last_error() : "ran", worst, parted);
    } else {
        printf("%s: %s\n", name, llm_last_error());
    }
    CHECK(!r && !failed && worst < 1e-4);
    CHECK(!parted);
    tm_close(&t);
    llm_json_free(j);
}

static const char *const tm_names[] = {
    "baichuan", "chatglm3", "cohere", "deepseek_v2", "deepseek_v2_lite", "deepseek_v3", "ernie4_5", "ernie4_5_moe", "gemma2", "gemma3_text", "glm", "glm4", "glm4_moe",
    "gpt2", "gpt_oss", "granite", "internlm2", "internlm3", "llama", "llama_rope_dynamic", "llama_rope_linear", "llama_rope_llama3", "llama_rope_yarn", "mistral", "mixtral",
    "olmo2", "opt", "phi3", "phi3_longrope", "qwen1", "qwen2", "qwen2_moe", "qwen2_window", "qwen3", "qwen3_moe", "smollm3", "starcoder2"};

TEST_GROUP(model) {
    if (!test_exists("../shared/checkpoints/llama/config.json")) {
        SKIP("../shared/checkpoints is not there");
        return;
    }
    const char *only = getenv("TM_ONLY");
    for (int i = 0; i < LLM__COUNT(tm_names); i++)
        if (!only || strstr(tm_names[i], only))
        for (int ranks = 1; ranks <= 2; ranks++) tm_family(tm_names[i], ranks, "scalar");
}
