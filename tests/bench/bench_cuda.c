/* Figures of a GPU in one process: what its memory and tensor cores give first, then how near the engine comes with random weights of real
 * shapes. Prints a table in Markdown.
 *
 *     bench_cuda LIBRARY [tiny]        tiny: shapes for the emulation, to see that every row comes out
 *
 * Shares are of what was measured here: bytes that a step must read over the rate of copies, operations over the rate of products. */
#define LLM_STATIC
#define LLM_IMPLEMENTATION
#include "../../llm.h"

typedef struct shape {
    const char *name, *class_name, *type;
    int hidden, ff, layers, heads, kv_heads, head_dim, vocab, tied;
} shape;

static const shape shapes[] = {{"8B", "LlamaForCausalLM", "llama", 4096, 14336, 32, 32, 8, 128, 128256, 0},
                               {"0.6B", "Qwen3ForCausalLM", "qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 1},
                               {"8B, two layers", "LlamaForCausalLM", "llama", 4096, 14336, 2, 32, 8, 128, 32000, 0},
                               {"tiny", "LlamaForCausalLM", "llama", 64, 96, 2, 4, 2, 16, 320, 0},
                               {"tiny", "Qwen3ForCausalLM", "qwen3", 64, 96, 2, 4, 2, 16, 320, 1}};

static const llm_backend *be;
static double copy_rate, product_rate; /* bytes and operations a second */
static double busy_s, idle_s;          /* of the engine closed last, with LLM_CUDA_TIMES */
static int tiny;

static void die(const char *what) {
    fprintf(stderr, "bench_cuda: %s: %s\n", what, llm_last_error());
    exit(1);
}

static void hear(void *user, int level, const char *message) {
    (void)user, (void)level;
    sscanf(message, "device busy %lf s, idle between steps %lf s", &busy_s, &idle_s);
}

static void row(const char *what, double value, const char *unit, const char *share, double got, const char *goal) {
    printf("| %s | %.4g %s | %s %.3g | %s |\n", what, value, unit, share, got, goal);
    fflush(stdout);
}

/* ---- what the device gives ---- */

static llm_backend_ctx *open_plain(int rows, int out) {
    llm_backend_config c;
    llm_backend_ctx *ctx;
    memset(&c, 0, sizeof c);
    c.n_threads = 1;
    c.kv_type = LLM_KV_F16;
    c.max_rows = rows;
    c.max_out = c.max_seqs = out;
    c.max_pages_per_seq = 8;
    c.error = llm_backend_error;
    c.device_draws = 1;
    if (be->open(&c, &ctx)) die("open");
    return ctx;
}

/* A step of n sequences with a row each (one sequence with `rows` rows if n is 1), all of whose rows are wanted where there are draws; begun,
 * with nothing in it yet. */
static void begin(llm_backend_ctx *ctx, int rows, int n, const llm_draw *draws) {
    static int32_t zero[8192], one[8192], count[8193], number[8192], pages[8192];
    llm_step s;
    memset(&s, 0, sizeof s);
    for (int i = 0; i < 8192; i++) one[i] = n > 1 ? 1 : rows, count[i] = n > 1 ? i : i * rows, number[i] = i;
    s.shape.n_rows = rows;
    s.shape.n_seqs = rows ? n : 0;
    s.shape.n_out = draws ? n : 0;
    s.tokens = s.positions = zero;
    s.n_position_rows = 1;
    s.seq_of_row = n > 1 ? number : zero;
    s.seq_begin = count;
    s.seq_len = one;
    s.seq_rope = zero;
    s.pages = pages;
    s.page_stride = 8;
    s.out_rows = number;
    s.draws = draws;
    if (be->begin_step(ctx, &s)) die("step");
}

static void end(llm_backend_ctx *ctx) {
    if (be->end_step(ctx) || be->wait(ctx)) die("step");
}

static llm_weight *random_weight(llm_backend_ctx *ctx, llm_role role, int64_t rows, int64_t cols) {
    llm_segment g;
    llm_weight_desc d;
    llm_weight *w;
    memset(&g, 0, sizeof g);
    memset(&d, 0, sizeof d);
    g.type = LLM_TYPE_RANDOM;
    g.stored_cols = g.n_cols = d.cols = cols;
    g.n_rows = d.rows = rows;
    d.name = "random";
    d.role = role;
    d.segments = &g;
    d.n_segments = 1;
    if (be->weight(ctx, 0, &d, &w)) die("weight");
    return w;
}

/* Pages copied to others, read and written; then one large product, many rows, again and again. */
static void measure_device(void) {
    enum { PAGES = 8, TIMES = 40 };
    const int rows = tiny ? 128 : 4096, V = tiny ? 256 : 32768, K = tiny ? 128 : 8192;
    int32_t from[PAGES / 2 * TIMES], to[PAGES / 2 * TIMES];
    llm_kv_layer layer = {tiny ? 2 : 64, 128, 128};
    llm_backend_ctx *ctx = open_plain(rows, 1);
    llm_linear_op op;
    memset(&op, 0, sizeof op);
    op.weight = random_weight(ctx, LLM_ROLE_LINEAR, V, K);
    llm_buffer *x, *y;
    if (be->buffer(ctx, 0, rows, K, &x) || be->buffer(ctx, 0, rows, V, &y)) die("buffer");
    op.src = x;
    op.dst = y;
    const int page = tiny ? 64 : 4096;
    if (be->weights_done(ctx) || be->kv_open(ctx, 1, &layer, page, PAGES)) die("pages");
    double bytes = (double)be->kv_page_bytes(ctx, 1, &layer, page), best = 1e9;
    for (int i = 0; i < PAGES / 2 * TIMES; i++) from[i] = i % (PAGES / 2), to[i] = PAGES / 2 + i % (PAGES / 2);
    for (int round = 0; round < 4; round++) {
        double start = llm__now();
        if (be->kv_copy(ctx, from, to, tiny ? 4 : LLM__COUNT(from))) die("copy");
        begin(ctx, 0, 0, NULL);
        end(ctx);
        best = LLM__MIN(best, llm__now() - start);
    }
    copy_rate = 2 * bytes * (tiny ? 4 : LLM__COUNT(from)) / best;
    best = 1e9;
    for (int round = 0; round < 4; round++) {
        const int n = tiny ? 1 : 20;
        begin(ctx, rows, 1, NULL);
        double start = llm__now();
        for (int i = 0; i < n; i++) be->linear(ctx, 0, &op);
        end(ctx);
        best = LLM__MIN(best, (llm__now() - start) / n);
    }
    product_rate = 2.0 * rows * V * K / best;
    printf(
        "%s: copies %.0f GB/s, bf16 products %.1f TFLOP/s (%d x %d x %d)\n\n| what | measured | share | goal |\n| --- | --- | --- | --- |\n",
        be->describe(ctx), copy_rate * 1e-9, product_rate * 1e-12, rows, V, K);
    be->close(ctx);
}

/* Draws alone, from logits that the first step has left there: what a step without anything takes is taken off. */
static void measure_sampler(void) {
    enum { HIDDEN = 32 };
    const int n = tiny ? 8 : 256, vocab = tiny ? 3000 : 152064, times = tiny ? 2 : 50;
    llm_backend_ctx *ctx = open_plain(n, n);
    llm_weight *table = random_weight(ctx, LLM_ROLE_EMBED, 16, HIDDEN), *head = random_weight(ctx, LLM_ROLE_HEAD, vocab, HIDDEN);
    llm_draw *draws = LLM__NEW(llm_draw, n);
    llm_sampling p;
    llm_embed_op e;
    llm_logits_op l;
    llm_buffer *x, *o;
    double with = 0, without = 0;
    memset(&p, 0, sizeof p);
    memset(&e, 0, sizeof e);
    memset(&l, 0, sizeof l);
    p.temperature = 0.8f;
    p.top_k = 50;
    p.top_p = 0.9f;
    p.repetition_penalty = 1;
    if (be->buffer(ctx, 0, n, HIDDEN, &x) || be->buffer(ctx, 0, n, HIDDEN, &o) || be->weights_done(ctx) || be->kv_open(ctx, 0, NULL, 16, 1))
        die("buffers");
    for (int i = 0; i < n; i++) draws[i].wanted = 1, draws[i].sampling = &p, draws[i].seed = (uint64_t)i;
    e.dst = x, e.table = table, e.scale = 100;
    l.src = o, l.head = head, l.vocab = vocab, l.scale = 100;
    begin(ctx, n, n, draws);
    be->embed(ctx, 0, &e);
    const llm_gather_op gather = {o, x, 1, 0};
    be->gather(ctx, 0, &gather);
    be->logits(ctx, 0, &l);
    end(ctx);
    for (int i = 0; i < 2 * times + 2; i++) {
        double start = llm__now();
        begin(ctx, n, n, i & 1 ? draws : NULL);
        end(ctx);
        if (i > 1) *(i & 1 ? &with : &without) += llm__now() - start;
    }
    row("top-k + top-p, batch 256, vocabulary 152k", (with - without) / times * 1e6, "us", "of 150 us", (with - without) / times / 150e-6,
        "1");
    be->close(ctx);
    LLM_FREE(draws);
}

/* ---- engines with random weights ---- */

static llm_model *open_model(const shape *s, int dummy) {
    char path[128], file[160];
    llm_model_config c;
    llm_model *m;
    snprintf(path, sizeof path, "build/gpu/%s-%d", s->type, s->layers);
    mkdir("build", 0777), mkdir("build/gpu", 0777), mkdir(path, 0777);
    snprintf(file, sizeof file, "%s/config.json", path);
    FILE *f = fopen(file, "w");
    if (!f) die(file);
    fprintf(
        f,
        "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d,\n"
        " \"head_dim\": %d, \"vocab_size\": %d, \"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": %s, \"torch_dtype\": \"bfloat16\"}\n",
        s->class_name, s->type, s->hidden, s->ff, s->layers, s->heads, s->kv_heads, s->head_dim, s->vocab, s->tied ? "true" : "false");
    fclose(f);
    memset(&c, 0, sizeof c);
    c.dummy_weights = dummy;
    if (llm_model_open(path, &c, &m)) die(path);
    return m;
}

static llm_engine *open_engine(const llm_model *m, int seqs, int len, int rows) {
    llm_engine_config c;
    llm_engine *e;
    memset(&c, 0, sizeof c);
    c.backend = be;
    c.dtype = LLM_COMPUTE_BF16;
    c.max_num_seqs = seqs;
    c.max_model_len = len;
    c.max_num_batched_tokens = rows;
    c.disable_prefix_caching = 1;
    c.log = hear;
    if (llm_engine_open(m, &c, &e)) die("engine");
    return e;
}

/* n requests of `prompt` tokens that answer `answer` tokens each: seconds until each has its first token, and from there to the end. */
static void serve(llm_engine *e, int n, int prompt, int answer, double *first, double *rest) {
    llm_request **r = LLM__NEW(llm_request *, n);
    int32_t *ids = LLM__NEW(int32_t, prompt);
    llm_engine_stats s;
    int busy = 1;
    double start = llm__now();
    llm_engine_get_stats(e, &s);
    int64_t before = s.generation_tokens;
    *first = 0;
    for (int i = 0; i < n; i++) {
        llm_request_config c;
        memset(&c, 0, sizeof c);
        for (int k = 0; k < prompt; k++) ids[k] = (i * 131 + k * 7 + 3) % 300;
        c.prompt_ids = ids;
        c.n_prompt_ids = (size_t)prompt;
        c.sampling.max_tokens = answer;
        c.sampling.ignore_eos = 1;
        c.sampling.temperature = 0.8f;
        if (llm_request_submit(e, &c, &r[i])) die("request");
    }
    while (busy) {
        if (llm_engine_step(e, &busy)) die("step");
        llm_engine_get_stats(e, &s);
        if (*first <= 0 && s.generation_tokens - before >= n) *first = llm__now() - start;
    }
    *rest = llm__now() - start - *first;
    if (s.generation_tokens - before != (int64_t)n * answer) die("not all tokens came");
    for (int i = 0; i < n; i++) llm_request_free(r[i]);
    LLM_FREE(r);
    LLM_FREE(ids);
}

/* Weights that a token takes part in: all but the embedding. */
static double weights_of(const shape *s) {
    double layer = (double)s->hidden * s->head_dim * (2 * s->heads + 2 * s->kv_heads) + 3.0 * s->hidden * s->ff;
    return layer * s->layers + (double)s->vocab * s->hidden;
}

static void measure_one(const shape *s, int dummy, double bytes, const char *what, const char *goal) {
    const int answer = tiny ? 8 : 256;
    llm_model *m = open_model(s, dummy);
    llm_engine *e = open_engine(m, 1, 1024, 512);
    double first, rest, best = 1e9;
    for (int i = 0; i < 3; i++) {
        serve(e, 1, 16, answer, &first, &rest);
        best = LLM__MIN(best, rest / (answer - 1));
    }
    row(what, 1 / best, "tokens/s", "of the bandwidth", weights_of(s) * bytes / best / copy_rate, goal);
    llm_engine_close(e);
    llm_model_close(m);
}

/* Prefill, the idle device at batch 64, then as many sequences as there is memory for. */
static void measure_many(const shape *s) {
    const int rows = tiny ? 128 : 8192, prompt = tiny ? 100 : 2048;
    llm_model *m = open_model(s, 1);
    llm_engine *e = open_engine(m, 8, prompt + 16, rows);
    double first, rest, n_weights = weights_of(s) - (double)s->vocab * s->hidden, best = 1e9,
                        kv = 4.0 * s->layers * s->kv_heads * s->head_dim;
    for (int i = 0; i < 3; i++) {
        serve(e, 8, prompt, 1, &first, &rest);
        best = LLM__MIN(best, first);
    }
    double work = 2 * n_weights * prompt * 8 + 2.0 * s->layers * s->heads * s->head_dim * prompt * prompt * 8;
    row("prefill 2,048 x 8, bf16", 8 * prompt / best, "tokens/s", "of the products' rate", work / best / product_rate, "0.75");
    llm_engine_close(e);
    setenv("LLM_CUDA_TIMES", "1", 1);
    e = open_engine(m, 64, 1024, 2048);
    serve(e, 64, 16, tiny ? 4 : 300, &first, &rest);
    llm_engine_close(e);
    unsetenv("LLM_CUDA_TIMES");
    row("device idle between steps, batch 64", 100 * idle_s / (busy_s + idle_s), "%", "of 2 %", idle_s / (busy_s + idle_s) / 0.02, "1");
    const int half = tiny ? 20 : 1000;
    e = open_engine(m, tiny ? 4 : 512, 2 * half + 8, rows);
    llm_engine_stats st;
    llm_engine_get_stats(e, &st);
    int n = (int)LLM__MIN((int64_t)st.max_num_seqs, st.total_blocks * st.block_size / (2 * half + st.block_size));
    serve(e, n, half, half, &first, &rest);
    double memory = half * (2 * weights_of(s) + n * 1.5 * half * kv) / copy_rate,
           compute = 2.0 * n * (2 * half * n_weights + half * (weights_of(s) - n_weights)) / product_rate;
    char what[96];
    snprintf(what, sizeof what, "8B bf16, 1,000 in / 1,000 out, batch %d", n);
    row(what, n * half / (first + rest), "tokens/s", "of the limit", LLM__MAX(memory, compute) / (first + rest), "0.60");
    llm_engine_close(e);
    llm_model_close(m);
}

/* Logits of random weights on the device and on the CPU. */
static void compare(const shape *s) {
    llm_model *m = open_model(s, 1);
    float *v[2];
    int32_t ids[24], vocab = 0;
    double worst = 0, top = 0;
    for (int i = 0; i < 24; i++) ids[i] = i * 97 % 300;
    for (int k = 0; k < 2; k++) {
        llm_engine_config c;
        llm_engine *e;
        memset(&c, 0, sizeof c);
        c.backend = k ? be : llm_backend_cpu();
        c.dtype = LLM_COMPUTE_BF16;
        c.max_model_len = 64;
        if (llm_engine_open(m, &c, &e)) die("engine");
        vocab = llm_logits_size(e);
        v[k] = LLM__NEW(float, 2 * vocab);
        if (llm_forward(e, 0, 0, ids, 23, v[k], 1) || llm_forward(e, 0, 23, ids + 23, 1, v[k] + vocab, 1)) die("forward");
        llm_engine_close(e);
    }
    for (int i = 0; i < 2 * vocab; i++)
        worst = LLM__MAX(worst, fabs((double)v[0][i] - (double)v[1][i])), top = LLM__MAX(top, fabs((double)v[0][i]));
    printf("dummy weights, %s: logits differ from the CPU's by %.2e of the largest: %s\n", s->name, worst / top,
           worst < 0.03 * top ? "right" : "WRONG");
    LLM_FREE(v[0]);
    LLM_FREE(v[1]);
    llm_model_close(m);
    if (!(worst < 0.03 * top)) exit(1);
}

int main(int argc, char **argv) {
    if (argc < 2 || llm_backend_load(argv[1], &be)) die("bench_cuda LIBRARY [tiny]");
    tiny = argc > 2;
    const shape *large = &shapes[tiny ? 3 : 0], *small = &shapes[tiny ? 4 : 1];
    compare(&shapes[tiny ? 3 : 2]);
    measure_device();
    measure_one(large, 1, 2, "8B, batch 1, bf16", "0.90");
    measure_one(large, 2, 1, "8B, batch 1, fp8 (e4m3)", "0.85");
    measure_one(large, 3, 0.5625, "8B, batch 1, int4 (Q4_0's 4.5 bits)", "0.75");
    measure_one(small, 1, 2, "Qwen3-0.6B, batch 1, bf16", "0.60");
    measure_sampler();
    measure_many(large);
    return 0;
}
