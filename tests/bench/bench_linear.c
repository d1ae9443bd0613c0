/* Speed of the linear kernels: GOPS (2 x rows x columns x tokens), what share that is of what products of bytes alone reach on as many
 * threads, and GB/s of packed weights; best of several short runs.
 *     cc -O2 tests/bench/bench_linear.c -o build/bench_linear -lm -lpthread && build/bench_linear [THREADS [ISA [TYPE]]]
 * TYPE is a name as the lines print it (Q4_1); without it every type is measured. */
#define _GNU_SOURCE
#define LLM_IMPLEMENTATION
#include "../../llm.h"
#include <strings.h>

static const int32_t types[] = {LLM_TYPE_Q4_0, LLM_TYPE_Q4_1, LLM_TYPE_Q5_0, LLM_TYPE_Q5_1,   LLM_TYPE_Q8_0,
                                LLM_TYPE_Q4_K, LLM_TYPE_Q5_K, LLM_TYPE_Q6_K, LLM_TYPE_IQ4_NL, LLM_TYPE_MXFP4,
                                LLM_TYPE_Q2_K, LLM_TYPE_Q3_K, LLM_TYPE_F32,  LLM_TYPE_F16,    LLM_TYPE_BF16};

typedef struct job {
    llm__pool *pool;
    llm__exec exec;
    llm_linear_op op;
    llm_weight *pack;
    llm__tuning tuning;
    int what; /* 0 pack, 1 round, 2 product */
} job;

static void job_run(void *arg, int pass, int thread, int n_threads) {
    job *j = (job *)arg;
    (void)pass;
    llm__exec e = j->exec;
    e.thread = thread;
    e.n_threads = n_threads;
    if (j->what == 0) llm__weight_pack(j->pack, thread, n_threads);
    const llm__input in = llm__input_of(&e, j->op.src, 0, llm__weight_form(j->op.weight, e.isa));
    if (j->what == 1) llm__act_fill(&e, &in, j->op.weight->cols);
    if (j->what == 2) llm__run_linear(&e, &j->op);
}

static llm_buffer *buffer(int64_t rows, int64_t cols) {
    llm_buffer *b = LLM__NEW(llm_buffer, 1);
    size_t blocks = (size_t)rows * (size_t)(cols / 32) * 2;
    b->rows = rows;
    b->cols = cols;
    b->stride = cols + 16;
    b->data = (float *)llm__pages_get((size_t)rows * (size_t)b->stride * 4);
    b->act = LLM__NEW(llm__act, 1);
    llm__act_place(b->act, (uint8_t *)llm__pages_get(llm__act_place(b->act, NULL, blocks)), blocks);
    return b;
}

/* Seconds of one run, the best of those that fit 0.4 s. */
static double best(job *j, int what) {
    double least = 1e9, start = llm__now();
    j->what = what;
    for (int i = 0; i < 3 || llm__now() - start < 0.4; i++) {
        double t = llm__now();
        llm__pool_run(j->pool, job_run, j, 1);
        t = llm__now() - t;
        if (t < least) least = t;
    }
    return least;
}

/* Weights of any value, but no subnormal numbers: each costs some processors more than a hundred cycles, and of these bytes every 64th makes
 * one where they are read as F32, which then seems 30 times slower, or as a scale that is a power of two alone (MXFP4: 5 times). */
static void fill(uint8_t *data, int32_t type, size_t bytes) {
    const int block = llm__type_block_bytes(type);
    for (size_t i = 0; i < bytes; i++) data[i] = (uint8_t)(i * 2654435761u >> 13 & 0x3F);
    for (size_t i = 0; i + (size_t)block <= bytes; i += (size_t)block) {
        const float x = (float)((int)(data[i] << 6 | data[i + (size_t)block - 1]) * 2 - 4095) / 4096; /* -1 to 1, odd: never 0 */
        const uint16_t half = type == LLM_TYPE_BF16 ? llm__f32_to_bf16(x) : llm__f32_to_f16(x);
        if (type == LLM_TYPE_F32) memcpy(data + i, &x, sizeof x);
        if (type == LLM_TYPE_F16 || type == LLM_TYPE_BF16) memcpy(data + i, &half, sizeof half);
        if (type == LLM_TYPE_MXFP4) data[i] = (uint8_t)(96 + data[i]); /* the scale is a power of two alone: 2^-31 to 2^32 */
    }
}

static void bench(llm__pool *pool, llm__isa isa, int32_t type, int64_t rows, int64_t cols, int tokens) {
    llm_weight_desc d;
    llm_segment s;
    job j;
    memset(&d, 0, sizeof d);
    memset(&s, 0, sizeof s);
    memset(&j, 0, sizeof j);
    size_t bytes = (size_t)rows * (size_t)llm__row_bytes(type, cols);
    uint8_t *data = (uint8_t *)llm__pages_get(bytes);
    fill(data, type, bytes);
    s.data = data;
    s.type = type;
    s.stored_cols = s.n_cols = d.cols = cols;
    s.n_rows = d.rows = rows;
    d.name = "bench";
    d.role = LLM_ROLE_LINEAR;
    d.segments = &s;
    d.n_segments = 1;
    llm_buffer *src = buffer(tokens, cols), *dst = buffer(tokens, rows);
    llm_weight *w = NULL;
    j.pool = pool;
    j.exec.isa = isa;
    j.tuning = llm__tuning_usual();
    j.exec.tuning = &j.tuning;
    j.exec.n_rows = tokens;
    if (llm__weight_new(&d, LLM_COMPUTE_AUTO, &w) || llm__weights_allocate(&w, 1)) {
        printf("%s\n", llm_last_error());
        return;
    }
    for (int64_t i = 0; i < src->rows * src->stride; i++) src->data[i] = (float)(i * 37 % 101) - 50;
    j.pack = w;
    j.op.src = src;
    j.op.dst = dst;
    j.op.weight = w;
    double pack = best(&j, 0), round = best(&j, 1), product = best(&j, 2);
    double ops = 2.0 * (double)rows * (double)cols * tokens, peak = llm_isa_peak(llm__isa_name(isa)) * pool->n;
    printf("%-6s %6lld x %-5lld %4d tokens: %7.1f GOPS (%2.0f %%) %6.1f GB/s   rounding %5.1f us  packing %5.2f ns/weight\n",
           llm__type_name(type), (long long)rows, (long long)cols, tokens, ops / product * 1e-9, peak > 0 ? ops / product / peak * 1e-7 : 0,
           (double)w->bytes / product * 1e-9, round * 1e6, pack / ((double)rows * (double)cols) * 1e9);
    llm__pages_free(src->data, (size_t)tokens * (size_t)src->stride * 4); /* the small rest goes with the program */
    llm__pages_free(dst->data, (size_t)tokens * (size_t)dst->stride * 4);
    llm__weight_free(w);
    llm__pages_free(data, bytes);
}

/* The place of a type in the table above, by name; -1 where none has it. */
static int type_find(const char *name) {
    for (int i = 0; i < LLM__COUNT(types); i++)
        if (!strcasecmp(name, llm__type_name(types[i]))) return i;
    return -1;
}

int main(int argc, char **argv) {
    llm__isa isa;
    const int only = argc > 3 ? type_find(argv[3]) : -1;
    if (argc > 3 && only < 0) {
        fprintf(stderr, "bench_linear: no type is named %s; those measured are", argv[3]);
        for (int i = 0; i < LLM__COUNT(types); i++) fprintf(stderr, " %s", llm__type_name(types[i]));
        fprintf(stderr, "\n");
        return 2;
    }
    llm__pool *pool = llm__pool_open(argc > 1 ? LLM__MAX(1, atoi(argv[1])) : 1);
    if (llm__isa_find(argc > 2 ? argv[2] : NULL, &isa)) return printf("%s\n", llm_last_error()), 1;
    printf("%s, %d threads\n", llm__isa_name(isa), pool->n);
    for (int i = 0; i < LLM__COUNT(types); i++) {
        if (only >= 0 && i != only) continue;
        bench(pool, isa, types[i], 1536, 768, 1); /* in cache */
        bench(pool, isa, types[i], 1536, 768, 8);
        bench(pool, isa, types[i], 1536, 768, 16);
        bench(pool, isa, types[i], 1536, 768, 512);
        bench(pool, isa, types[i], 131072, 768, 1); /* from memory */
    }
    llm__pool_close(pool);
    return 0;
}
