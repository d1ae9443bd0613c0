/* Masks while the device computes. A device that takes 5 ms a step and does nothing, Qwen3's vocabulary, schemas as answers: how much longer than those 5 ms
 * a step takes where masks are made behind it (lag 0), and where they are made beside it (lag 1).
 *
 *     cc -O2 tests/bench/masks.c -o build/masks -lm -lpthread && build/masks [build/data/tokenizers/qwen3] */
#define LLM_IMPLEMENTATION
#define LLM_STATIC
#include "../../llm.h"
#include <stdio.h>

enum { SEQS = 8, ANSWERS = 64, TOKENS = 60 };
static const double DEVICE = 0.005;
static double begun;
static int steps_begun;
static float *logits;

static llm_result forward(llm_engine *ctx, const llm_step *s) { return (void)ctx, (void)s, steps_begun++, begun = llm__now(), LLM_OK; }
static llm_result wait_for(llm_backend_ctx *ctx) {
    while (llm__now() < begun + DEVICE) {}
    return (void)ctx, LLM_OK;
}
/* Another token each time. */
static const float *row(llm_backend_ctx *ctx, int out_row) { return (void)ctx, logits + (7 * steps_begun + out_row) % 64; }
static llm_result copy(llm_backend_ctx *ctx, const int32_t *from, const int32_t *to, int n) {
    return (void)ctx, (void)from, (void)to, (void)n, LLM_OK;
}
static void rope(llm_engine *ctx, int32_t prompt_len, int32_t *variant, float *base) {
    (void)ctx, (void)prompt_len, *variant = 0, *base = 1;
}
static double now(llm_engine *ctx) { return (void)ctx, llm__now(); }

static double run(const llm_model *model, int lag, int64_t *steps) {
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"name\":{\"maxLength\":%d},\"age\":{\"type\":\"integer\",\"maximum\":%d},\"tags\":{\"type\":\"array\",\"items\":"
        "{\"pattern\":\"^[a-z]{2,%d}( [a-z0-9]+)*$\"}}},\"required\":[\"name\",\"age\",\"tags\"]}";
    static const int32_t eos[] = {151645}, prompt[] = {1, 2, 3};
    llm_request *r[ANSWERS];
    llm_backend table;
    llm_engine *e = llm__engine_alloc();
    if (!e) return 0;
    llm__engine_params *p = &e->p;
    memset(&table, 0, sizeof table);
    table.wait = wait_for, table.logits_row = row, table.kv_copy = copy;
    e->backend = &table;
    p->driver.forward = forward, p->driver.rope_of = rope, p->driver.now = now;
    p->model = model, p->eos = eos, p->n_eos = 1, p->eos_id = eos[0], p->vocab = llm_vocab_size(model), p->n_pages = 1000,
    p->c.block_size = 16, p->max_len = 256;
    p->c.max_num_seqs = SEQS, p->c.max_num_batched_tokens = 256, p->max_out = 64, p->c.max_queue = ANSWERS, p->c.n_threads = 1,
    p->lag = lag;
    if (llm__engine_init(e)) return 0;
    for (int i = 0; i < ANSWERS; i++) { /* each has a schema of its own */
        char text[512];
        llm_grammar_config g;
        llm_request_config c;
        memset(&g, 0, sizeof g);
        memset(&c, 0, sizeof c);
        g.kind = LLM_GRAMMAR_JSON_SCHEMA, g.text = text;
        g.len = (size_t)snprintf(text, sizeof text, schema, 10 + i, 100 + i + 1000 * lag, 3 + i);
        c.prompt_ids = prompt, c.n_prompt_ids = 3, c.sampling.max_tokens = TOKENS, c.sampling.temperature = 0;
        if (llm_grammar_open(model, &g, &c.sampling.grammar) || llm_request_submit(e, &c, &r[i]))
            return printf("%s\n", llm_last_error()), 0;
        llm_grammar_close(c.sampling.grammar);
    }
    double start = llm__now();
    for (int i = 0; i < ANSWERS; i++) llm_request_run(e, r[i]);
    double seconds = llm__now() - start;
    *steps = e->count.steps;
    for (int i = 0; i < ANSWERS; i++) llm_request_free(r[i]);
    llm_engine_close(e);
    return seconds;
}

int main(int argc, char **argv) {
    llm_model_config c;
    llm_model *model;
    memset(&c, 0, sizeof c);
    c.vocab_only = 1;
    if (llm_model_open(argc > 1 ? argv[1] : "build/data/tokenizers/qwen3", &c, &model)) return printf("%s\n", llm_last_error()), 1;
    size_t n = (size_t)llm_vocab_size(model) + 64;
    logits = (float *)malloc(n * sizeof *logits);
    for (size_t i = 0; i < n; i++) logits[i] = (float)(llm__mix(i) % 4096) / 300;
    for (int lag = 0; lag < 2; lag++) {
        int64_t steps = 0;
        double seconds = run(model, lag, &steps);
        printf("masks %s: %lld steps, %.2f ms each, %.2f of them the host's\n", lag ? "beside the device" : "behind it", (long long)steps,
               seconds / (double)steps * 1e3, (seconds / (double)steps - DEVICE) * 1e3);
    }
    free(logits);
    llm_model_close(model);
    return 0;
}
