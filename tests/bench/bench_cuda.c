/* Figures of a GPU: what its memory and tensor cores give, then how near each operation and whole engines come, with random weights of real
 * shapes. Prints rows of a table in Markdown. tests/cuda/gpu.sh runs each part in a process of its own, so that a device that fails in one
 * loses no other's rows.
 *
 *     bench_cuda --list                                           the parts, with the seconds that each gets on an H200
 *     bench_cuda LIBRARY [--tiny] [--rates COPY PRODUCT] PART...  tiny: shapes for the emulation, to see that every row comes out
 *
 * A row has two shares: of what an H200 gives (4.3 TB/s, 790 TFLOP/s of bf16 and twice that of fp8), and of what the part `device` has
 * measured here, which prints both numbers as a line "rates COPY PRODUCT" for the others. */
#define LLM_STATIC
#define LLM_IMPLEMENTATION
#include "../../llm.h"

typedef struct shape {
    const char *name, *class_name, *type;
    int hidden, ff, layers, heads, kv_heads, head_dim, vocab, tied;
    const char *more; /* of config.json */
    double active;    /* weights that a token takes part in; 0: as of a dense model */
} shape;

#define QWEN3_MOE(n, k, ff) \
    ", \"num_experts\": " #n ", \"num_experts_per_tok\": " #k ", \"moe_intermediate_size\": " #ff \
    ", \"decoder_sparse_step\": 1, \"norm_topk_prob\": true, \"mlp_only_layers\": []"
#define DEEPSEEK(n, k, ff, rank, nope, rope, v) \
    ", \"n_routed_experts\": " #n ", \"num_experts_per_tok\": " #k ", \"moe_intermediate_size\": " #ff ", \"kv_lora_rank\": " #rank \
    ", \"qk_nope_head_dim\": " #nope ", \"qk_rope_head_dim\": " #rope ", \"v_head_dim\": " #v \
    ", \"q_lora_rank\": null, \"topk_method\": \"greedy\", \"n_group\": 1, \"topk_group\": 1, \"norm_topk_prob\": false," \
    " \"scoring_func\": \"softmax\", \"moe_layer_freq\": 1, \"n_shared_experts\": 2, \"first_k_dense_replace\": 1," \
    " \"routed_scaling_factor\": 1.0"

enum { LARGE, SMALL, MIXTURE, LATENT, TWO_LAYERS, TWO_MIXED, TWO_LATENT, N_SHAPES };

/* Real ones, and in the same order the ones for the emulation. */
static const shape shapes[2][N_SHAPES] = {
    {{"8B", "LlamaForCausalLM", "llama", 4096, 14336, 32, 32, 8, 128, 128256, 0, "", 0},
     {"0.6B", "Qwen3ForCausalLM", "qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 1, "", 0},
     {"30B-A3B", "Qwen3MoeForCausalLM", "qwen3_moe", 2048, 6144, 48, 32, 4, 128, 151936, 0, QWEN3_MOE(128, 8, 768), 3.04e9},
     {"DeepSeek-V2-Lite", "DeepseekV2ForCausalLM", "deepseek_v2", 2048, 10944, 27, 16, 16, 192, 102400, 0,
      DEEPSEEK(64, 6, 1408, 512, 128, 64, 128), 2.45e9},
     {"two layers of 8B", "LlamaForCausalLM", "llama", 4096, 14336, 2, 32, 8, 128, 32000, 0, "", 0},
     {"two layers of 30B-A3B", "Qwen3MoeForCausalLM", "qwen3_moe", 2048, 6144, 2, 32, 4, 128, 32000, 0, QWEN3_MOE(128, 8, 768), 1},
     {"two layers of DeepSeek-V2-Lite", "DeepseekV2ForCausalLM", "deepseek_v2", 2048, 10944, 2, 16, 16, 192, 32000, 0,
      DEEPSEEK(64, 6, 1408, 512, 128, 64, 128), 1}},
    {{"tiny", "LlamaForCausalLM", "llama", 64, 96, 2, 4, 2, 16, 320, 0, "", 0},
     {"tiny", "Qwen3ForCausalLM", "qwen3", 64, 96, 2, 4, 2, 16, 320, 1, "", 0},
     {"tiny", "Qwen3MoeForCausalLM", "qwen3_moe", 64, 96, 2, 4, 2, 16, 320, 0, QWEN3_MOE(8, 2, 32), 1e5},
     {"tiny", "DeepseekV2ForCausalLM", "deepseek_v2", 64, 96, 2, 4, 4, 24, 320, 0, DEEPSEEK(8, 2, 24, 32, 16, 8, 16), 1e5},
     {"tiny", "LlamaForCausalLM", "llama", 64, 96, 1, 4, 2, 16, 320, 0, "", 0},
     {"tiny", "Qwen3MoeForCausalLM", "qwen3_moe", 64, 96, 1, 4, 2, 16, 320, 0, QWEN3_MOE(8, 2, 32), 1},
     {"tiny", "DeepseekV2ForCausalLM", "deepseek_v2", 64, 96, 1, 4, 4, 24, 320, 0, DEEPSEEK(8, 2, 24, 32, 16, 8, 16), 1}}};

enum { DUMMY_BF16 = 1, DUMMY_F8, DUMMY_Q4 }; /* of llm_model_config.dummy_weights */

static const llm_backend *be;
static double copy_rate = 4.3e12, product_rate = 790e12; /* bytes and operations a second, as measured */
static double busy_s, idle_s;                            /* of the engine closed last, with LLM_CUDA_TIMES */
static int tiny;
static const char *part_name;

static void die(const char *what) {
    fprintf(stderr, "bench_cuda: %s: %s: %s\n", part_name, what, llm_last_error());
    exit(1);
}

/* One row: `seconds` were taken for something that reads so many bytes and computes so many operations (0: nothing to compare with); fp8:
 * with the products of e4m3. */
static void row(const char *what, double value, const char *unit, double seconds, double bytes, double operations, int fp8,
                const char *goal) {
    double rate = fp8 ? 2 : 1, ideal = fmax(bytes / 4.3e12, operations / (790e12 * rate)),
           here = fmax(bytes / copy_rate, operations / (product_rate * rate));
    printf("| %s | %s | %.4g %s | ", part_name, what, value, unit);
    if (ideal > 0) printf("%.3f | %.3f | %s |\n", ideal / seconds, here / seconds, goal);
    else printf("- | - | %s |\n", goal);
    fflush(stdout);
}

/* What the backend logs while it closes. */
static void hear(void *user, int level, const char *message) {
    char name[32], what[64];
    double us;
    long long n;
    (void)user, (void)level;
    sscanf(message, "device busy %lf s, idle between steps %lf s", &busy_s, &idle_s);
    if (sscanf(message, "records of %31[a-z_]: %lld, %lf us each", name, &n, &us) != 3) return;
    snprintf(what, sizeof what, "%s, %lld of them", name, n);
    row(what, us, "us", 1, 0, 0, 0, "-");
}

/* ---- what the device gives ---- */

static llm_backend_ctx *open_plain(int rows, int seqs, int out, int pages, llm_kv_type kv) {
    llm_backend_config c;
    llm_backend_ctx *ctx;
    memset(&c, 0, sizeof c);
    c.n_threads = 8;
    c.kv_type = kv;
    c.compute = LLM_COMPUTE_BF16;
    c.max_rows = rows;
    c.max_out = out;
    c.max_seqs = seqs;
    c.max_pages_per_seq = pages;
    c.error = llm_backend_error;
    c.device_draws = 1;
    if (be->open(&c, &ctx)) die("open");
    return ctx;
}

/* What a step says; `tokens` of the pages that sequences have before their rows. */
typedef struct plan {
    int rows, seqs, length, page; /* length: of each sequence, its rows included */
    const llm_draw *draws;        /* all rows are wanted then */
} plan;

/* A step of sequences with as many rows each; begun, with nothing in it yet. */
static void begin(llm_backend_ctx *ctx, const plan *p) {
    const int each = p->seqs ? p->rows / p->seqs : 0, stride = p->page ? (p->length + p->page - 1) / p->page : 1;
    int32_t *zero = LLM__NEW(int32_t, p->rows + 1), *length = LLM__NEW(int32_t, p->seqs + 1), *from = LLM__NEW(int32_t, p->seqs + 1),
            *number = LLM__NEW(int32_t, p->rows + 1), *seq = LLM__NEW(int32_t, p->rows + 1), *place = LLM__NEW(int32_t, p->rows + 1),
            *pages = LLM__NEW(int32_t, (int64_t)(p->seqs + 1) * stride);
    llm_step s;
    memset(&s, 0, sizeof s);
    for (int i = 0; i <= p->seqs; i++) length[i] = p->length, from[i] = i * each;
    for (int i = 0; i < p->rows; i++) number[i] = i, seq[i] = i / each, place[i] = p->length - each + i % each;
    for (int64_t i = 0; i < (int64_t)p->seqs * stride; i++) pages[i] = p->page ? (int32_t)i : 0;
    s.shape.n_rows = p->rows;
    s.shape.n_seqs = p->seqs;
    s.shape.n_out = p->draws ? p->rows : 0;
    s.tokens = zero, s.positions = place, s.n_position_rows = 1;
    s.seq_of_row = seq, s.seq_begin = from, s.seq_len = length, s.seq_rope = zero;
    s.pages = pages, s.page_stride = stride, s.out_rows = number, s.draws = p->draws;
    if (be->begin_step(ctx, &s)) die("step");
    int32_t *const all[] = {zero, length, from, number, seq, place, pages};
    for (int i = 0; i < LLM__COUNT(all); i++) LLM_FREE(all[i]);
}

static void end(llm_backend_ctx *ctx) {
    if (be->end_step(ctx) || be->wait(ctx)) die("step");
}

static llm_buffer *new_buffer(llm_backend_ctx *ctx, int64_t rows, int64_t cols) {
    llm_buffer *b;
    if (be->buffer(ctx, 0, rows, cols, &b)) die("buffer");
    return b;
}

/* stored NULL: made on the device. */
static llm_weight *new_weight(llm_backend_ctx *ctx, llm_role role, int type, const void *stored, int64_t rows, int64_t cols) {
    llm_segment g;
    llm_weight_desc d;
    llm_weight *w;
    memset(&g, 0, sizeof g);
    memset(&d, 0, sizeof d);
    g.type = type;
    g.data = stored;
    g.stored_cols = g.n_cols = d.cols = cols;
    g.n_rows = d.rows = rows;
    d.name = "random";
    d.role = role;
    d.segments = &g;
    d.n_segments = 1;
    if (be->weight(ctx, 0, &d, &w)) die("weight");
    return w;
}

static llm_weight *random_weight(llm_backend_ctx *ctx, llm_role role, int64_t rows, int64_t cols) {
    return new_weight(ctx, role, LLM_TYPE_RANDOM, NULL, rows, cols);
}

/* Rows of a random table, for `begin` asks for token 0: so each row is the same, but no value is 0. */
static void fill(llm_backend_ctx *ctx, llm_buffer *x, const llm_weight *table) {
    llm_embed_op e;
    memset(&e, 0, sizeof e);
    e.dst = x, e.table = table, e.scale = 50;
    be->embed(ctx, 0, &e);
}

/* Seconds of an empty step: what is taken off a step with one operation. */
static double empty_step(llm_backend_ctx *ctx, const plan *p) {
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        double start = llm__now();
        begin(ctx, p), end(ctx);
        best = LLM__MIN(best, llm__now() - start);
    }
    return best;
}

/* Pages copied to others, read and written; then one large product of random values, again and again. */
static void measure_device(void) {
    enum { PAGES = 8, TIMES = 40 };
    const int rows = tiny ? 128 : 4096, V = tiny ? 256 : 32768, K = tiny ? 128 : 8192;
    int32_t from[PAGES / 2 * TIMES], to[PAGES / 2 * TIMES];
    llm_kv_layer layer = {tiny ? 2 : 64, 128, 128};
    llm_backend_ctx *ctx = open_plain(rows, 1, 1, 8, LLM_KV_F16);
    const plan nothing = {0, 0, 0, 0, NULL}, all = {rows, 1, rows, tiny ? 64 : 4096, NULL};
    llm_weight *table = random_weight(ctx, LLM_ROLE_EMBED, 16, K);
    llm_linear_op op;
    memset(&op, 0, sizeof op);
    op.weight = random_weight(ctx, LLM_ROLE_LINEAR, V, K);
    llm_buffer *x = new_buffer(ctx, rows, K);
    op.src = x;
    op.dst = new_buffer(ctx, rows, V);
    const int page = tiny ? 64 : 4096, copies = tiny ? 4 : LLM__COUNT(from);
    if (be->weights_done(ctx) || be->kv_open(ctx, 1, &layer, page, PAGES)) die("pages");
    double bytes = (double)be->kv_page_bytes(ctx, 1, &layer, page), best = 1e9;
    for (int i = 0; i < PAGES / 2 * TIMES; i++) from[i] = i % (PAGES / 2), to[i] = PAGES / 2 + i % (PAGES / 2);
    for (int round = 0; round < 4; round++) {
        double start = llm__now();
        if (be->kv_copy(ctx, from, to, copies)) die("copy");
        begin(ctx, &nothing), end(ctx);
        best = LLM__MIN(best, llm__now() - start);
    }
    copy_rate = 2 * bytes * copies / best;
    double took = 1e9;
    for (int round = 0; round < 4; round++) {
        const int n = tiny ? 1 : 20;
        begin(ctx, &all), fill(ctx, x, table), end(ctx);
        begin(ctx, &all);
        double start = llm__now();
        for (int i = 0; i < n; i++) be->linear(ctx, 0, &op);
        end(ctx);
        took = LLM__MIN(took, (llm__now() - start) / n);
    }
    product_rate = 2.0 * rows * V * K / took;
    printf("rates %.4e %.4e\n", copy_rate, product_rate);
    row("copies of pages, read and written", copy_rate * 1e-9, "GB/s", best, 2 * bytes * copies, 0, 0, "1");
    row("bf16 products, 4,096 x 32,768 x 8,192", product_rate * 1e-12, "TFLOP/s", took, 0, 2.0 * rows * V * K, 0, "1");
    const char *name = be->describe(ctx);
    printf("device: %s\n", name);
    if ((strstr(name, "H100") || strstr(name, "H200")) && product_rate < 500e12) {
        fprintf(stderr, "bench_cuda: products of less than 500 TFLOP/s: is cuBLASLt there?\n");
        exit(1);
    }
    be->close(ctx);
}

/* ---- one operation ---- */

/* Products of each kind of weight for few and many rows, in turn over so many matrices that none stays in a cache. */
static void measure_kinds(void) {
    static const struct {
        const char *name;
        int type, fp8;
    } kinds[] = {{"bf16", LLM_TYPE_RANDOM, 0}, {"fp8", LLM_TYPE_RANDOM_F8, 1}, {"Q4_0", LLM_TYPE_RANDOM_Q4, 0}, {"Q4_K", LLM_TYPE_Q4_K, 0},
                 {"Q6_K", LLM_TYPE_Q6_K, 0},   {"Q8_0", LLM_TYPE_Q8_0, 0},     {"MXFP4", LLM_TYPE_MXFP4, 0}};
    static const int rows[] = {1, 2, 4, 8, 9, 16, 17, 32, 64, 127, 128, 192, 256};
    const int V = tiny ? 64 : 14336, K = tiny ? 256 : 4096, matrices = tiny ? 2 : 8, times = tiny ? 1 : 10;
    const int n_rows = tiny ? 6 : LLM__COUNT(rows);
    for (int k = 0; k < LLM__COUNT(kinds); k++) {
        llm_backend_ctx *ctx = open_plain(256, 1, 1, 8, LLM_KV_F16);
        llm_weight *table = random_weight(ctx, LLM_ROLE_EMBED, 16, K), *w[8];
        uint8_t *stored = NULL;
        const int type = kinds[k].type;
        size_t bytes = (size_t)V * K * (type == LLM_TYPE_RANDOM ? 4 : type == LLM_TYPE_RANDOM_F8 ? 2 : 1) / 2;
        if (type == LLM_TYPE_RANDOM_Q4) bytes = bytes * 9 / 8;
        if (type < LLM_TYPE_RANDOM) {
            bytes = (size_t)llm__row_bytes(type, K) * V;
            stored = LLM__NEW(uint8_t, bytes);
            for (size_t i = 0; i < bytes; i++) stored[i] = (uint8_t)(i * 2654435761u >> 24) & 0x3f; /* scales are small, not NaN */
        }
        for (int i = 0; i < matrices; i++) w[i] = new_weight(ctx, LLM_ROLE_LINEAR, type, stored, V, K);
        llm_buffer *x = new_buffer(ctx, 256, K), *y = new_buffer(ctx, 256, V);
        if (be->weights_done(ctx) || be->kv_open(ctx, 0, NULL, 16, 1)) die("weights");
        for (int i = 0; i < n_rows; i++) {
            const plan p = {rows[i], 1, rows[i], 0, NULL};
            double best = 1e9, empty = empty_step(ctx, &p);
            begin(ctx, &p), fill(ctx, x, table), end(ctx);
            for (int round = 0; round < 3; round++) {
                llm_linear_op op;
                memset(&op, 0, sizeof op);
                op.src = x, op.dst = y;
                begin(ctx, &p);
                double start = llm__now();
                for (int n = 0; n < times * matrices; n++) op.weight = w[n % matrices], be->linear(ctx, 0, &op);
                end(ctx);
                best = LLM__MIN(best, (llm__now() - start - empty) / (times * matrices));
            }
            char what[64];
            snprintf(what, sizeof what, "%s, %d rows, %d x %d", kinds[k].name, rows[i], V, K);
            row(what, best * 1e6, "us", best, (double)bytes, 2.0 * rows[i] * V * K, kinds[k].fp8,
                rows[i] > 64                     ? "-"
                : !strcmp(kinds[k].name, "bf16") ? "0.90"
                : kinds[k].fp8                   ? "0.85"
                                                 : "0.75");
        }
        LLM_FREE(stored);
        be->close(ctx);
    }
}

/* Attention alone: `rows` rows of each of n sequences of a length, over several layers so that no cache has all their pages. */
static void attention_row(llm_kv_type kv, const char *name, int n, int rows, int length, const char *goal) {
    const int heads = tiny ? 4 : 32, kv_heads = tiny ? 2 : 8, hd = tiny ? 16 : 128, page = 16;
    llm_kv_layer layer[32];
    for (int i = 0; i < 32; i++) layer[i] = (llm_kv_layer){kv_heads, hd, hd};
    llm_backend_ctx *ctx = open_plain(n * rows, n, 1, (length + page - 1) / page, kv);
    llm_weight *table = random_weight(ctx, LLM_ROLE_EMBED, 16, heads * hd);
    const int64_t pages = (int64_t)n * ((length + page - 1) / page);
    const double each = (double)be->kv_page_bytes(ctx, 1, layer, page) * (double)pages;
    const int layers = (int)LLM__MAX(1, LLM__MIN(tiny ? 2 : 32, 8e9 / each));
    llm_buffer *x = new_buffer(ctx, (int64_t)n * rows, heads * hd), *y = new_buffer(ctx, (int64_t)n * rows, heads * hd);
    if (be->weights_done(ctx) || be->kv_open(ctx, layers, layer, page, pages)) die("pages");
    const size_t bytes = (size_t)be->kv_page_bytes(ctx, layers, layer, page);
    uint8_t *filled = LLM__NEW(uint8_t, bytes);
    for (size_t i = 0; i < bytes; i++) filled[i] = i & 1 ? (i & 2 ? 0x3c : 0xbc) : (uint8_t)(i * 2654435761u >> 24);
    if (be->kv_write(ctx, 0, 0, filled)) die("kv_write");
    for (int32_t i = 1, from = 0; i < pages; i++)
        if (be->kv_copy(ctx, &from, &i, 1)) die("kv_copy");
    const plan p = {n * rows, n, length, page, NULL};
    double best = 1e9, empty = empty_step(ctx, &p);
    begin(ctx, &p), fill(ctx, x, table), end(ctx);
    for (int round = 0; round < 4; round++) {
        llm_attention_op op;
        memset(&op, 0, sizeof op);
        op.dst = y, op.qkv = x, op.n_heads = heads, op.n_kv_heads = kv_heads, op.head_dim = op.v_head_dim = hd, op.scale = 0.088f;
        begin(ctx, &p);
        double start = llm__now();
        for (int i = 0; i < layers; i++) op.layer = i, be->attention(ctx, 0, &op);
        end(ctx);
        best = LLM__MIN(best, (llm__now() - start - empty) / layers);
    }
    char what[96];
    double pairs = (double)n * ((double)rows * length - 0.5 * rows * (rows - 1)); /* query and key */
    snprintf(what, sizeof what, "%s pages, %d rows of each of %d sequences, length %d", name, rows, n, length);
    row(what, best * 1e6, "us", best, each, rows > 1 ? 4 * pairs * heads * hd : 0, 0, goal);
    LLM_FREE(filled);
    be->close(ctx);
}

static void measure_attention(void) {
    static const struct {
        const char *name;
        llm_kv_type type;
    } kinds[] = {{"bf16", LLM_KV_BF16}, {"fp8", LLM_KV_FP8_E4M3}, {"int8", LLM_KV_INT8}, {"int4", LLM_KV_INT4}};
    static const int lengths[2][3] = {{1024, 8192, 32768}, {40, 80, 100}};
    for (int k = 0; k < LLM__COUNT(kinds); k++)
        for (int i = 0; i < 3; i++) {
            attention_row(kinds[k].type, kinds[k].name, 1, 1, lengths[tiny][i], "-");
            attention_row(kinds[k].type, kinds[k].name, tiny ? 3 : 32, 1, lengths[tiny][i], i == 1 ? "0.75" : "-");
        }
    for (int i = 0; i < 2; i++) attention_row(LLM_KV_BF16, "bf16", 1, lengths[tiny][i], lengths[tiny][i], "-");
    attention_row(LLM_KV_BF16, "bf16", 1, tiny ? 20 : 2048, lengths[tiny][2], "-");
}

/* Draws alone, from logits that the first step has left there: what a step without anything takes is taken off. top_k 0 has no top-p either;
 * penalised: of `penalised` tokens each. */
static void sampler_row(int n, float temperature, int top_k, int penalised, const char *what, const char *goal) {
    enum { HIDDEN = 32, MOST_USED = 1000 };
    const int vocab = tiny ? 3000 : 152064, times = tiny ? 2 : 50;
    llm_backend_ctx *ctx = open_plain(n, n, n, 8, LLM_KV_F16);
    llm_weight *table = random_weight(ctx, LLM_ROLE_EMBED, 16, HIDDEN), *head = random_weight(ctx, LLM_ROLE_HEAD, vocab, HIDDEN);
    llm_draw *draws = LLM__NEW(llm_draw, n);
    int32_t used[MOST_USED], counts[MOST_USED];
    llm_sampling p;
    llm_logits_op l;
    double with = 0, without = 0;
    memset(&p, 0, sizeof p);
    memset(&l, 0, sizeof l);
    p.temperature = temperature;
    p.top_k = top_k;
    p.top_p = top_k ? 0.9f : 1;
    p.repetition_penalty = penalised ? 1.1f : 1;
    for (int i = 0; i < penalised; i++) used[i] = i * (vocab / penalised), counts[i] = 1;
    llm_buffer *x = new_buffer(ctx, n, HIDDEN), *o = new_buffer(ctx, n, HIDDEN);
    if (be->weights_done(ctx) || be->kv_open(ctx, 0, NULL, 16, 1)) die("weights");
    for (int i = 0; i < n; i++) draws[i].wanted = 1, draws[i].sampling = &p, draws[i].seed = (uint64_t)i;
    for (int i = 0; i < n && penalised; i++) draws[i].used = used, draws[i].counts = counts, draws[i].n_used = penalised;
    l.src = o, l.head = head, l.vocab = vocab, l.scale = 100;
    const plan draw = {n, n, 1, 0, draws}, none = {n, n, 1, 0, NULL};
    begin(ctx, &draw);
    fill(ctx, x, table);
    const llm_gather_op gather = {o, x, 1, 0};
    be->gather(ctx, 0, &gather);
    be->logits(ctx, 0, &l);
    end(ctx);
    for (int i = 0; i < 2 * times + 6; i++) {
        double start = llm__now();
        begin(ctx, i & 1 ? &draw : &none);
        end(ctx);
        if (i > 5) *(i & 1 ? &with : &without) += llm__now() - start;
    }
    double took = (with - without) / times;
    row(what, took * 1e6, "us", took, 4.0 * n * vocab, 0, 0, goal);
    be->close(ctx);
    LLM_FREE(draws);
}

static void measure_sampler(void) {
    const int many = tiny ? 8 : 256;
    sampler_row(1, 0, 0, 0, "greedy, batch 1, vocabulary 152k", "-");
    sampler_row(1, 0.8f, 0, 0, "temperature, batch 1, vocabulary 152k", "-");
    sampler_row(1, 0.8f, 50, 0, "top-k and top-p, batch 1, vocabulary 152k", "-");
    sampler_row(many, 0, 0, 0, "greedy, batch 256, vocabulary 152k", "-");
    sampler_row(many, 0.8f, 0, 0, "temperature, batch 256, vocabulary 152k", "-");
    sampler_row(many, 0.8f, 50, 0, "top-k and top-p, batch 256, vocabulary 152k", "150 us");
    sampler_row(many, 0.8f, 50, 200, "top-k and top-p, penalties of 200 tokens, batch 256, vocabulary 152k", "-");
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
        " \"head_dim\": %d, \"vocab_size\": %d, \"max_position_embeddings\": 40960, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": %s, \"torch_dtype\": \"bfloat16\"%s}\n",
        s->class_name, s->type, s->hidden, s->ff, s->layers, s->heads, s->kv_heads, s->head_dim, s->vocab, s->tied ? "true" : "false",
        s->more);
    fclose(f);
    memset(&c, 0, sizeof c);
    c.dummy_weights = dummy;
    if (llm_model_open(path, &c, &m)) die(path);
    return m;
}

typedef struct plan_engine {
    int seqs, length, rows, invariant;
    llm_kv_type kv;
} plan_engine;

static llm_engine *open_engine(const llm_model *m, const plan_engine *p) {
    llm_engine_config c;
    llm_engine *e;
    memset(&c, 0, sizeof c);
    c.backend = be;
    c.dtype = LLM_COMPUTE_BF16;
    c.max_num_seqs = p->seqs;
    c.max_model_len = p->length;
    c.max_num_batched_tokens = p->rows;
    c.batch_invariant = p->invariant;
    c.kv_cache_dtype = p->kv;
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
    return s->active > 0 ? s->active : layer * s->layers + (double)s->vocab * s->hidden;
}

/* Bytes of keys and values of a token. */
static double kv_of(const shape *s, double element) { return 2 * element * s->layers * s->kv_heads * s->head_dim; }

static const shape *of(int which) { return &shapes[tiny][which]; }

/* Seconds a token of one sequence, the best of three answers. */
static double decode_one(llm_engine *e) {
    const int answer = tiny ? 8 : 256;
    double first, rest, best = 1e9;
    for (int i = 0; i < 3; i++) {
        serve(e, 1, 16, answer, &first, &rest);
        best = LLM__MIN(best, rest / (answer - 1));
    }
    return best;
}

static void one_row_of(llm_model *m, int which, double bytes, const char *what, const char *goal) {
    const plan_engine p = {1, tiny ? 100 : 1024, tiny ? 64 : 512, 0, LLM_KV_AUTO};
    llm_engine *e = open_engine(m, &p);
    double took = decode_one(e);
    row(what, 1 / took, "tokens/s", took, weights_of(of(which)) * bytes, 0, 0, goal);
    llm_engine_close(e);
}

static void one_row(int which, int dummy, double bytes, const char *what, const char *goal) {
    llm_model *m = open_model(of(which), dummy);
    one_row_of(m, which, bytes, what, goal);
    llm_model_close(m);
}

/* n prompts of `length` tokens at once, the best of three times. */
static void prompts_row(llm_model *m, int which, int n, int length, int fp8, const char *name, const char *goal) {
    const plan_engine p = {n, length + 16, tiny ? 128 : 8192, 0, LLM_KV_AUTO};
    const shape *s = of(which);
    llm_engine *e = open_engine(m, &p);
    double first, rest, best = 1e9, dense = weights_of(s) - (double)s->vocab * s->hidden;
    for (int round = 0; round < 3; round++) {
        serve(e, n, length, 1, &first, &rest);
        best = LLM__MIN(best, first);
    }
    double work = n * length * (2 * dense + 2.0 * s->layers * s->heads * s->head_dim * length);
    char what[64];
    snprintf(what, sizeof what, "%s, %d prompts of %d", name, n, length);
    row(what, n * length / best, "tokens/s", best, 0, work, fp8, goal);
    llm_engine_close(e);
}

static void measure_one(void) {
    one_row(LARGE, DUMMY_BF16, 2, "8B, batch 1, bf16", "0.90");
    one_row(LARGE, DUMMY_F8, 1, "8B, batch 1, fp8 (e4m3)", "0.85");
    one_row(LARGE, DUMMY_Q4, 0.5625, "8B, batch 1, int4 (Q4_0's 4.5 bits)", "0.75");
    one_row(SMALL, DUMMY_BF16, 2, "Qwen3-0.6B, batch 1, bf16", "0.60");
}

static void measure_mixtures(void) {
    llm_model *m = open_model(of(MIXTURE), DUMMY_BF16);
    one_row_of(m, MIXTURE, 2, "Qwen3-30B-A3B, batch 1, bf16", "0.60");
    prompts_row(m, MIXTURE, 1, tiny ? 60 : 8192, 0, "Qwen3-30B-A3B, bf16", "");
    setenv("LLM_CUDA_NO_WGMMA", "1", 1);
    prompts_row(m, MIXTURE, 1, tiny ? 60 : 8192, 0, "Qwen3-30B-A3B, bf16, no wgmma", "");
    unsetenv("LLM_CUDA_NO_WGMMA");
    llm_model_close(m);
    one_row(LATENT, DUMMY_BF16, 2, "DeepSeek-V2-Lite, batch 1, bf16", "0.60");
}

/* Decoding of 1 to 256 sequences, beside as many times the rate of one. */
static void batches_of(int dummy, const char *name, double bytes) {
    static const int batches[] = {1, 2, 4, 8, 16, 17, 32, 64, 127, 128, 256};
    const plan_engine p = {tiny ? 17 : 256, tiny ? 64 : 512, tiny ? 128 : 4096, 0, LLM_KV_AUTO};
    const int answer = tiny ? 4 : 64, n = tiny ? 3 : LLM__COUNT(batches);
    llm_model *m = open_model(of(LARGE), dummy);
    llm_engine *e = open_engine(m, &p);
    double first, rest, one = 0;
    for (int i = 0; i < n; i++) {
        double best = 1e9;
        for (int round = 0; round < 2; round++) {
            serve(e, batches[i], 16, answer, &first, &rest);
            best = LLM__MIN(best, rest / (answer - 1));
        }
        if (!i) one = best;
        char what[96];
        snprintf(what, sizeof what, "8B, %s, batch %d: %.2f of batch x one", name, batches[i], one / best);
        row(what, batches[i] / best, "tokens/s", best, weights_of(of(LARGE)) * bytes + batches[i] * 48.0 * kv_of(of(LARGE), 2),
            2 * weights_of(of(LARGE)) * batches[i], dummy == DUMMY_F8, batches[i] > 1 && batches[i] <= 64 ? "0.8 of batch x one" : "-");
    }
    llm_engine_close(e);
    llm_model_close(m);
}

static void measure_batches(void) {
    batches_of(DUMMY_BF16, "bf16", 2);
    batches_of(DUMMY_F8, "fp8", 1);
    batches_of(DUMMY_Q4, "int4", 0.5625);
}

/* Prompts. */
static void measure_prompts(void) {
    for (int fp8 = 0; fp8 < 2; fp8++) {
        llm_model *m = open_model(of(LARGE), fp8 ? DUMMY_F8 : DUMMY_BF16);
        prompts_row(m, LARGE, tiny ? 2 : 4, tiny ? 40 : 2048, fp8, fp8 ? "8B, fp8" : "8B, bf16", "0.75");
        prompts_row(m, LARGE, 1, tiny ? 60 : 8192, fp8, fp8 ? "8B, fp8" : "8B, bf16", "0.75");
        llm_model_close(m);
    }
}

/* What graphs and the mode without dependence on the batch cost, and how long the device stands still. */
static void measure_steps(void) {
    const int many = tiny ? 4 : 64, answer = tiny ? 6 : 200;
    double first, rest, usual[2];
    llm_model *m = open_model(of(LARGE), DUMMY_BF16);
    for (int invariant = 0; invariant < 2; invariant++) {
        const plan_engine p = {many, tiny ? 64 : 512, tiny ? 64 : 2048, invariant, LLM_KV_AUTO};
        llm_engine *e = open_engine(m, &p);
        for (int k = 0; k < 2; k++) {
            const int n = k ? many : 1;
            double took[2];
            for (int round = 0; round < 2; round++) {
                serve(e, n, 16, answer, &first, &rest);
                took[round] = rest / (answer - 1);
            }
            char what[96];
            snprintf(what, sizeof what, "first answers of batch %d: step run once, captured once, more than later ones", n);
            if (!invariant) row(what, (took[0] - took[1]) * (answer - 1) * 1e3, "ms", 1, 0, 0, 0, "-");
            snprintf(what, sizeof what, "batch %d%s", n, invariant ? ", batch-invariant" : "");
            row(what, n / took[1], "tokens/s", took[1], weights_of(of(LARGE)) * 2, 2 * weights_of(of(LARGE)) * n, 0, "-");
            if (!invariant) usual[k] = took[1];
            else row("its rate over the usual one", usual[k] / took[1], "", 1, 0, 0, 0, "1");
        }
        llm_engine_close(e);
    }
    const plan_engine p = {many, tiny ? 64 : 1024, tiny ? 64 : 2048, 0, LLM_KV_AUTO};
    setenv("LLM_CUDA_TIMES", "1", 1);
    llm_engine *e = open_engine(m, &p);
    serve(e, many, 16, tiny ? 4 : 300, &first, &rest);
    llm_engine_close(e);
    unsetenv("LLM_CUDA_TIMES");
    row("device idle between steps, batch 64", 100 * idle_s / (busy_s + idle_s), "%", 1, 0, 0, 0, "2 %");
    llm_model_close(m);
}

/* Time of each kind of record of a decoding step; the logs come when the engine closes. */
static void measure_records(void) {
    static const int which[3] = {LARGE, MIXTURE, LATENT};
    setenv("LLM_CUDA_TIMES", "records", 1);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            const int n = k ? (tiny ? 3 : 64) : 1;
            const plan_engine p = {n, tiny ? 64 : 512, tiny ? 64 : 1024, 0, LLM_KV_AUTO};
            double first, rest;
            llm_model *m = open_model(of(which[i]), DUMMY_BF16);
            llm_engine *e = open_engine(m, &p);
            static char name[64]; /* of rows that come while the engine closes */
            snprintf(name, sizeof name, "records, %s, batch %d", of(which[i])->name, n);
            part_name = name;
            serve(e, n, 16, tiny ? 4 : 40, &first, &rest);
            llm_engine_close(e);
            llm_model_close(m);
        }
    unsetenv("LLM_CUDA_TIMES");
}

/* 1,000 tokens in and out, as many sequences as there is memory for, up to 512. */
static void measure_serving(void) {
    const int half = tiny ? 20 : 1000, rows = tiny ? 128 : 8192;
    for (int fp8 = 0; fp8 < 2; fp8++) {
        const shape *s = of(LARGE);
        const plan_engine p = {tiny ? 4 : 512, 2 * half + 8, rows, 0, fp8 ? LLM_KV_FP8_E4M3 : LLM_KV_AUTO};
        llm_model *m = open_model(s, fp8 ? DUMMY_F8 : DUMMY_BF16);
        llm_engine *e = open_engine(m, &p);
        llm_engine_stats st;
        llm_engine_get_stats(e, &st);
        double first, rest, element = fp8 ? 1 : 2, dense = weights_of(s) - (double)s->vocab * s->hidden;
        int n = (int)LLM__MIN((int64_t)st.max_num_seqs, st.total_blocks * st.block_size / (2 * half + st.block_size));
        serve(e, n, half, half, &first, &rest);
        double bytes = half * (element * weights_of(s) + n * 1.5 * half * kv_of(s, element)),
               compute = 2.0 * n * (2 * half * dense + half * (weights_of(s) - dense));
        char what[96];
        snprintf(what, sizeof what, "8B %s, 1,000 in and out, batch %d", fp8 ? "fp8, pages too (TensorRT-LLM: 17,744)" : "bf16", n);
        row(what, n * half / (first + rest), "tokens/s", first + rest, bytes, compute, fp8, "0.60");
        llm_engine_close(e);
        llm_model_close(m);
    }
}

/* Logits of random weights on the device and on the CPU: two layers of each kind, and a whole model. */
static void compare(const shape *s) {
    llm_model *m = open_model(s, DUMMY_BF16);
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
    int right = worst < 0.03 * top;
    char what[96];
    snprintf(what, sizeof what, "%s, dummy bf16: logits beside the CPU's: %s", s->name, right ? "right" : "WRONG");
    row(what, worst / top, "of the largest", 1, 0, 0, 0, "0.03");
    LLM_FREE(v[0]);
    LLM_FREE(v[1]);
    llm_model_close(m);
    if (!right) exit(1);
}

static void measure_right(void) {
    compare(of(TWO_LAYERS));
    compare(of(TWO_MIXED));
    compare(of(TWO_LATENT));
    compare(of(SMALL));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int seconds; /* that gpu.sh gives it on an H200 */
        void (*run)(void);
    } parts[] = {{"device", 30, measure_device},     {"right", 60, measure_right},         {"one", 60, measure_one},
                 {"kinds", 40, measure_kinds},       {"attention", 50, measure_attention}, {"prompts", 40, measure_prompts},
                 {"sampler", 20, measure_sampler},   {"batches", 70, measure_batches},     {"records", 60, measure_records},
                 {"mixtures", 50, measure_mixtures}, {"steps", 40, measure_steps},         {"serving", 130, measure_serving}};
    int at = 2;
    for (int i = 0; argc == 2 && !strcmp(argv[1], "--list") && i < LLM__COUNT(parts); i++)
        printf("%s %d\n", parts[i].name, parts[i].seconds);
    if (argc == 2 && !strcmp(argv[1], "--list")) return 0;
    part_name = "start";
    if (argc < 3 || llm_backend_load(argv[1], &be)) die("bench_cuda LIBRARY [--tiny] [--rates COPY PRODUCT] PART...");
    for (; at < argc && argv[at][0] == '-'; at++)
        if (!strcmp(argv[at], "--tiny")) tiny = 1;
        else if (!strcmp(argv[at], "--rates") && at + 2 < argc) copy_rate = atof(argv[at + 1]), product_rate = atof(argv[at + 2]), at += 2;
        else die(argv[at]);
    for (; at < argc; at++) {
        int found = 0;
        for (int i = 0; i < LLM__COUNT(parts); i++)
            if (!strcmp(argv[at], parts[i].name)) part_name = parts[i].name, parts[i].run(), found = 1;
        if (!found) die(argv[at]);
    }
    return 0;
}
