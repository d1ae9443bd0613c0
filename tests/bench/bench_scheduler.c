/* What the scheduler itself takes of a step: N sequences (256) decode behind prompts of 1000 tokens on a device that computes nothing; the time
 * inside the device and the sampler is taken off. Prints microseconds a step, median and 99th percentile, with lag 0 and 1.
 *     cc -O2 tests/bench/bench_scheduler.c -o build/bench_scheduler -lm -lpthread && build/bench_scheduler [N] */
#define LLM_STATIC
#define LLM_IMPLEMENTATION
#include "../../llm.h"

enum { VOCAB = 32, PROMPT = 1000, ANSWER = 1000, PAGE = 32 };

static float row[VOCAB];
static llm_drawn drawn;
static double outside; /* seconds in the device and the sampler */

static llm_result forward(llm_engine *ctx, const llm_step *step) {
    double begin = llm__now();
    (void)ctx, (void)step;
    outside += llm__now() - begin;
    return LLM_OK;
}

static llm_result wait_for(llm_backend_ctx *ctx) { return (void)ctx, LLM_OK; }
static const float *logits_row(llm_backend_ctx *ctx, int out_row) { return (void)ctx, (void)out_row, row; }
static const llm_drawn *drawn_row(llm_backend_ctx *ctx, int out_row) { return (void)ctx, (void)out_row, &drawn; }
static llm_result kv_copy(llm_backend_ctx *ctx, const int32_t *from, const int32_t *to, int n) {
    return (void)ctx, (void)from, (void)to, (void)n, LLM_OK;
}
static void rope_of(llm_engine *ctx, int32_t prompt_len, int32_t *variant, float *base) {
    (void)ctx, (void)prompt_len, *variant = 0, *base = 1;
}
static double now(llm_engine *ctx) { return (void)ctx, llm__now(); }

static void parallel(llm_backend_ctx *ctx, void (*fn)(void *arg, int i), void *arg, int n) {
    double begin = llm__now();
    (void)ctx;
    for (int i = 0; i < n; i++) fn(arg, i);
    outside += llm__now() - begin;
}

static int by_value(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void run(int32_t n, int32_t lag) {
    static int32_t prompt[PROMPT];
    static double us[ANSWER];
    llm_backend table;
    llm__engine_params p;
    llm_request_config c;
    llm_engine *e;
    llm_request **r = (llm_request **)calloc((size_t)n, sizeof *r);
    int32_t steps = 0;
    memset(&p, 0, sizeof p);
    memset(&c, 0, sizeof c);
    memset(&table, 0, sizeof table);
    table.wait = wait_for, table.logits_row = logits_row, table.drawn = drawn_row, table.kv_copy = kv_copy, table.parallel = parallel;
    p.driver.forward = forward, p.driver.rope_of = rope_of, p.driver.now = now;
    p.vocab = VOCAB, p.n_pages = n * (PROMPT + ANSWER) / PAGE + n, p.c.block_size = PAGE, p.max_len = PROMPT + ANSWER,
    p.c.max_num_seqs = p.max_out = n, p.c.max_num_batched_tokens = 8192, p.c.max_queue = n;
    p.c.n_threads = 2, p.c.disable_prefix_caching = 0, p.eos_id = -1, p.lag = lag;
    e = llm__engine_alloc();
    e->p = p;
    e->backend = &table;
    if (llm__engine_init(e)) exit(1);
    c.prompt_ids = prompt, c.n_prompt_ids = PROMPT, c.sampling.max_tokens = -1, c.sampling.temperature = 1;
    for (int32_t i = 0; i < n; i++) {
        for (int k = 0; k < PROMPT; k++) prompt[k] = (int32_t)(llm__mix((uint64_t)(i * PROMPT + k)) % VOCAB);
        if (llm_request_submit(e, &c, &r[i])) exit(1);
    }
    for (int busy = 1; busy && steps < ANSWER;) {
        double begin = llm__now();
        outside = 0;
        llm_engine_step(e, &busy);
        if (e->flights.ring[0].n_rows == n && e->running.n == n) us[steps++] = (llm__now() - begin - outside) * 1e6;
    }
    qsort(us, (size_t)steps, sizeof *us, by_value);
    printf("%d sequences, lag %d: %.1f us a step of its own (99 %%: %.1f), %d steps\n", n, lag, us[steps / 2], us[steps * 99 / 100], steps);
    for (int32_t i = 0; i < n; i++) llm_request_free(r[i]);
    llm_engine_close(e);
    free(r);
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 256;
    for (int i = 0; i < VOCAB; i++) row[i] = (float)(i % 7);
    drawn.id = 3, drawn.prob = 0.5f, drawn.logprob = -0.7f;
    for (int lag = 0; lag < 2; lag++) run(n, lag);
    return 0;
}
