/* Watching a step: what is told is what is computed, and nothing changes by it. */
#include "../test.h"
#include "base/platform.h"
#include "cpu/trace.h"

enum { TRACE_ROWS = 9, TRACE_KINDS = 16 };

/* What has been told of one model. */
typedef struct trace_seen {
    char ops[TRACE_KINDS][24];
    int counts[TRACE_KINDS], n;
    int layers, wrong;
    double weights; /* the largest distance of a sum of attention weights from 1, where the sequence begins with its first token */
    int heads;
    double logit;            /* of the last row */
    double attended, wanted; /* head 0 of layer 0: its output by the weights and values told, and as it was told */
    float value[TRACE_ROWS * 512];
    float weight[TRACE_ROWS * TRACE_ROWS];
    int kv_dim, sinks;
} trace_seen;

static void trace_tell(void *user, const llm_trace *t) {
    trace_seen *s = (trace_seen *)user;
    int at = 0;
    while (at < s->n && strcmp(s->ops[at], t->op)) at++;
    if (at == s->n && s->n < TRACE_KINDS) snprintf(s->ops[s->n++], sizeof *s->ops, "%s", t->op);
    s->counts[at]++;
    s->layers = LLM__MAX(s->layers, t->layer + 1);
    s->wrong += t->rows < 1 || t->cols < 1 || t->stride < t->cols || !t->values;
    for (int32_t r = 0; r < t->rows; r++)
        for (int32_t c = 0; c < t->cols; c++) s->wrong += !isfinite(t->values[r * t->stride + c]);
    if (!strcmp(t->op, "logits")) s->logit = (double)t->values[(t->rows - 1) * t->stride + 7];
    if (!strcmp(t->op, "v") && !t->layer && t->rows <= TRACE_ROWS && t->cols <= 512)
        for (int32_t r = 0; r < t->rows; r++)
            memcpy(s->value + r * (s->kv_dim = t->cols), t->values + r * t->stride, (size_t)t->cols * sizeof(float));
    if (!strcmp(t->op, "attention") && !t->layer && s->heads) {
        const int32_t last = t->rows - 1;
        double sum = 0;
        for (int32_t j = 0; j <= last; j++) sum += (double)s->weight[last * t->rows + j] * (double)s->value[j * s->kv_dim + 3];
        s->attended = sum, s->wanted = (double)t->values[last * t->stride + 3];
    }
    if (strcmp(t->op, "attention_weights")) return;
    s->heads = LLM__MAX(s->heads, t->head + 1);
    s->wrong += t->rows != t->cols;
    for (int32_t r = 0; r < t->rows; r++) {
        double sum = 0;
        for (int32_t c = 0; c < t->cols; c++) {
            sum += (double)t->values[r * t->stride + c];
            s->wrong += c > r && t->values[r * t->stride + c] != 0; /* nobody looks ahead */
        }
        if (!s->sinks) s->weights = LLM__MAX(s->weights, fabs(sum - 1));
    }
    if (!t->layer && !t->head && t->rows <= TRACE_ROWS) memcpy(s->weight, t->values, (size_t)t->rows * (size_t)t->cols * sizeof(float));
}

static int trace_count(const trace_seen *s, const char *op) {
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->ops[i], op)) return s->counts[i];
    return 0;
}

/* The logits of nine tokens in one step, watched and unwatched. */
static void trace_family(const char *name) {
    static trace_seen seen;
    const int32_t ids[TRACE_ROWS] = {5, 9, 2, 40, 7, 7, 3, 30, 12}, first = 0, count = TRACE_ROWS;
    char path[100];
    llm_model *m = NULL;
    llm_engine *plain = NULL, *watched = NULL;
    llm_engine_config c;
    memset(&c, 0, sizeof c);
    memset(&seen, 0, sizeof seen);
    c.n_threads = 2;
    c.max_model_len = 64;
    c.kv_cache_dtype = LLM_KV_F32;
    snprintf(path, sizeof path, TEST_CHECKPOINT("%s"), name);
    seen.sinks = !strcmp(name, "gpt_oss");
    if (!CHECK(!llm_model_open(path, NULL, &m)) || !CHECK(!llm_engine_open(m, &c, &plain))) return;
    c.trace = trace_tell;
    c.trace_user = &seen;
    if (!CHECK(!llm_engine_open(m, &c, &watched))) return;
    int32_t n = llm_logits_size(plain);
    float *a = (float *)calloc((size_t)n * 2, sizeof *a), *b = a + n;
    CHECK(!llm_forward_batch(plain, 1, &first, &first, &count, ids, a) && !seen.n);
    CHECK(!llm_forward_batch(watched, 1, &first, &first, &count, ids, b) && !memcmp(a, b, (size_t)n * sizeof *a)); /* to the bit */
    const llm_model_info *info = llm_model_get_info(m);
    const int mla = strstr(name, "deepseek") != NULL, layers = info->n_layers;
    CHECK(!seen.wrong && seen.layers == layers && trace_count(&seen, "logits") == 1 && (float)seen.logit == b[7]);
    CHECK(trace_count(&seen, "embed") == 1 && trace_count(&seen, "attention") == layers && trace_count(&seen, "residual") >= layers);
    CHECK(trace_count(&seen, "q") == (mla ? 0 : layers) && trace_count(&seen, "attention_weights") == (mla ? 0 : layers * info->n_heads));
    CHECK(seen.heads == (mla ? 0 : info->n_heads) && seen.weights < 1e-5);
    CHECK((trace_count(&seen, "experts") > 0) == (info->n_experts > 0));
    /* the weights are those that the fast attention had */
    if (!mla && !CHECK(fabs(seen.attended - seen.wanted) < 1e-4 * (1 + fabs(seen.wanted))))
        printf("%s: attention gives %g, by its weights %g\n", name, seen.wanted, seen.attended);
    /* a later token alone: no weights, as the others are in the cache; a request is watched too */
    memset(&seen, 0, sizeof seen);
    CHECK(!llm_forward(watched, 0, TRACE_ROWS, ids, 1, b, 1) && !llm_forward(plain, 0, TRACE_ROWS, ids, 1, a, 1));
    CHECK(!memcmp(a, b, (size_t)n * sizeof *a) && !trace_count(&seen, "attention_weights") && trace_count(&seen, "attention") == layers);
    free(a);
    llm_engine_close(plain);
    llm_engine_close(watched);
    llm_model_close(m);
}

/* Several ranks cannot be watched, nor can a device. */
static void trace_refused(void) {
    llm_model *m = NULL;
    llm_engine *e = NULL;
    llm_engine_config c;
    memset(&c, 0, sizeof c);
    c.trace = trace_tell;
    c.tensor_parallel_size = 2;
    if (!CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), NULL, &m))) return;
    CHECK(llm_engine_open(m, &c, &e) == LLM_ERR_UNSUPPORTED && strstr(llm_last_error(), "tensor_parallel_size 2") && !e);
    llm_backend other = *llm_backend_cpu();
    c.tensor_parallel_size = 0;
    c.backend = &other;
    other.name = "other";
    CHECK(llm_engine_open(m, &c, &e) == LLM_ERR_UNSUPPORTED && strstr(llm_last_error(), "backend other") && !e);
    llm_model_close(m);
}

/* Whatever the CPU's table does, the one that tells does too: an operation that is added to one is missed in the other. Not: pipelines, and
 * steps in pieces. */
static void trace_table(void) {
    enum { FIRST = offsetof(llm_backend, open), N = (sizeof(llm_backend) - FIRST) / sizeof(void *) };
    const size_t without[] = {offsetof(llm_backend, send), offsetof(llm_backend, receive), offsetof(llm_backend, work)};
    void *all[N], *told[N];
    memcpy(all, (const char *)llm_backend_cpu() + FIRST, sizeof all);
    memcpy(told, (const char *)llm__trace_backend() + FIRST, sizeof told);
    for (int i = 0; i < LLM__COUNT(without); i++) {
        CHECK(all[(without[i] - FIRST) / sizeof(void *)] && !told[(without[i] - FIRST) / sizeof(void *)]);
        all[(without[i] - FIRST) / sizeof(void *)] = NULL;
    }
    for (int i = 0; i < N; i++)
        if (!CHECK(!all[i] == !told[i])) printf("entry %d of the table\n", i);
}

TEST_GROUP(trace) {
    static const char *const names[] = {"llama", "gemma2", "qwen3", "gpt_oss", "mixtral", "deepseek_v2_lite", "baichuan", "cohere", "gpt2"};
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints")) return;
    for (int i = 0; i < LLM__COUNT(names); i++) trace_family(names[i]);
    trace_refused();
    trace_table();
}
