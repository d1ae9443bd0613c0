/* The CUDA backend, as the library LLM_CUDA_LIBRARY (build/libllm_cuda_emu.so: the same source on the CPU): operation by operation against the
 * CPU table, which is the specification; drawing against llm_sample; graphs, page copies, lag, and what happens when something breaks.
 * CUEMU_SEED orders the threads of a block; the whole program is run with several. */
#include "../unit/recur_net.h"
#include "../unit/heads.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/map.h"
#include "cpu/dtypes.h"
#include "engine/sampler.h"

static const llm_backend *tc_cuda;
static const long *tc_late, *tc_taken,   /* of the emulation: kernels launched before they were loaded, allocations, */
    *tc_pinned, *tc_launched, *tc_asked; /* pinned bytes, kernels so far, questions to cuBLASLt */

/* 1: the library is the emulation, and its variables (CUEMU_...) mean something. All else holds on a device as well. */
static int tc_emulated(void) { return tc_late != NULL; }

enum { TC_ROWS = 160, TC_SEQS = 40, TC_OUT = 40, TC_PAGES = 8, TC_PAGE = 16 };

static float tc_value(uint32_t a, uint32_t b) {
    uint32_t key[2];
    key[0] = a;
    key[1] = b;
    return (float)((double)(llm__hash(key, sizeof key, 11) >> 40) / (1 << 23) - 1.0);
}

/* Memory that weights point to until they are loaded. */
static llm__arena tc_memory;

static float *tc_floats(int64_t n, uint32_t seed, float mean, float spread) {
    float *v = (float *)llm__arena_get(&tc_memory, (size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = mean + spread * tc_value(seed, (uint32_t)i);
    return v;
}

/* A backend under test. */
typedef struct tc_side {
    const llm_backend *be;
    llm_backend_ctx *ctx;
} tc_side;

static llm_backend_config tc_config(llm_compute compute, llm_kv_type kv) {
    llm_backend_config c;
    memset(&c, 0, sizeof c);
    c.n_threads = 1;
    c.compute = compute;
    c.kv_type = kv;
    c.max_rows = TC_ROWS;
    c.max_out = TC_OUT;
    c.max_seqs = TC_SEQS;
    c.max_pages_per_seq = TC_PAGES;
    c.error = llm_backend_error;
    c.device_draws = 1;
    return c;
}

static tc_side tc_open(const llm_backend *be, const llm_backend_config *c) {
    tc_side s;
    s.be = be;
    CHECK(be->open(c, &s.ctx) == LLM_OK);
    return s;
}

static int tc_rank; /* of which weights, buffers and embeddings are */

/* Of heads, kv_b's, n_keys rows of each make keys. */
static llm_weight *tc_weight_of_heads(const tc_side *s, llm_role role, int32_t type, const void *data, int64_t rows, int64_t cols,
                                      int32_t n_experts, int32_t n_heads, int32_t n_keys) {
    llm_segment g;
    llm_weight_desc d;
    llm_weight *w = NULL;
    memset(&g, 0, sizeof g);
    memset(&d, 0, sizeof d);
    g.data = data;
    g.type = type;
    g.stored_cols = g.n_cols = d.cols = cols;
    g.n_rows = d.rows = rows;
    if (type == LLM_TYPE_I8 || type == LLM_TYPE_F8_E4M3)
        g.scales = tc_floats(rows, 77, type == LLM_TYPE_I8 ? 0.01f : 1, type == LLM_TYPE_I8 ? 0.005f : 0.5f);
    d.name = "test";
    d.role = role;
    d.segments = &g;
    d.n_segments = 1;
    d.n_experts = n_experts;
    d.n_heads = n_heads;
    d.n_keys = n_keys;
    CHECK(s->be->weight(s->ctx, tc_rank, &d, &w) == LLM_OK);
    return w;
}

static llm_weight *tc_weight(const tc_side *s, llm_role role, int32_t type, const void *data, int64_t rows, int64_t cols,
                             int32_t n_experts) {
    return tc_weight_of_heads(s, role, type, data, rows, cols, n_experts, 0, 0);
}

static llm_buffer *tc_buffer(const tc_side *s, int64_t rows, int64_t cols) {
    llm_buffer *b = NULL;
    CHECK(s->be->buffer(s->ctx, tc_rank, rows, cols, &b) == LLM_OK);
    return b;
}

/* Adds n rows of sequence `id` from position `at`; the last of them, or all, are out rows. Tokens are row numbers of a table by position. */
static void tc_add(test_step *t, int id, int at, int n, int all) {
    int32_t pages[TC_PAGES];
    for (int p = 0; p < TC_PAGES; p++) pages[p] = id * TC_PAGES + (p * 5 + 3) % TC_PAGES;
    const int first = step_add(t, id, at, n, pages);
    for (int i = 0; i < n; i++) {
        t->tokens[first + i] = (id * 31 + at + i) % TC_ROWS;
        if ((all || i == n - 1) && t->s.shape.n_out < TC_OUT) t->out_rows[t->s.shape.n_out++] = first + i;
    }
}

static void tc_embed(const tc_side *s, llm_buffer *dst, const llm_weight *table) {
    llm_embed_op op;
    memset(&op, 0, sizeof op);
    op.dst = dst;
    op.table = table;
    s->be->embed(s->ctx, tc_rank, &op);
}

static void tc_run(const tc_side *s) { CHECK(s->be->end_step(s->ctx) == LLM_OK && s->be->wait(s->ctx) == LLM_OK); }

/* Rows of a buffer that are wanted from both sides: the worst difference, relative to the largest value. */
static double tc_compare(const tc_side *a, const llm_buffer *x, const tc_side *b, const llm_buffer *y, int rows, int cols) {
    double worst = 0, top = 1e-9;
    for (int r = 0; r < rows; r++) {
        const float *u = a->be->buffer_row(a->ctx, 0, x, r), *v = b->be->buffer_row(b->ctx, 0, y, r);
        for (int i = 0; i < cols; i++) {
            double e = fabs((double)u[i] - (double)v[i]);
            if (!(e <= worst)) worst = e;
            top = LLM__MAX(top, fabs((double)u[i]));
        }
    }
    return worst / top;
}

/* ---- linear layers of all formats ---- */

/* A block of what formats with codebooks are read as, of random bytes: small scales, equal for 32 columns where they must be, and codes that
 * there are. */
static void tc_grid(int32_t type, uint8_t *p) {
    const int x2 = type == LLM_TYPE_GRID1X || type == LLM_TYPE_GRID2X, four = type == LLM_TYPE_GRID3 || type == LLM_TYPE_GRID3S;
    for (int i = 2; i < 18; i++) p[i] = x2 || i % 2 == 0 ? p[i] & 31 : p[i - 1];
    for (int i = 18; i < 146; i++) p[i] &= four ? 0xFF : type == LLM_TYPE_TERNARY ? 0x33 : 0x77;
}

/* Random rows of a stored type, with scales that keep values near one. */
static const uint8_t *tc_stored(int32_t type, int64_t rows, int64_t cols, uint32_t seed) {
    if (type >= LLM_TYPE_RANDOM) return NULL;
    const llm__format *f = llm__format_of(type);
    int64_t bytes = llm__row_bytes(type, cols) * rows, block = llm__type_block_bytes(type);
    uint8_t *p = (uint8_t *)llm__arena_get(&tc_memory, (size_t)bytes);
    for (int64_t i = 0; i < bytes; i++) p[i] = (uint8_t)(int)(128 + 127 * tc_value(seed, (uint32_t)i));
    for (int64_t i = 0; i < rows * cols && !f; i++) {
        float v = tc_value(seed + 1, (uint32_t)i);
        uint16_t h = type == LLM_TYPE_F16 ? llm__f32_to_f16(v) : llm__f32_to_bf16(v);
        if (type == LLM_TYPE_F32) memcpy(p + 4 * i, &v, 4);
        else if (type == LLM_TYPE_I8) p[i] = (uint8_t)(int8_t)(127 * v);
        else if (type == LLM_TYPE_F8_E4M3) p[i] = llm__f32_to_e4m3(v);
        else if (type == LLM_TYPE_F8_E5M2) p[i] = llm__f32_to_e5m2(v);
        else memcpy(p + 2 * i, &h, 2);
    }
    for (int64_t b = 0; f && b < bytes; b += block) {
        uint16_t d = llm__f32_to_f16(0.01f + 0.005f * tc_value(seed + 2, (uint32_t)b)),
                 m = llm__f32_to_f16(0.1f * tc_value(seed + 3, (uint32_t)b));
        const float wide = llm__f16_to_f32(d) / 8;
        if (f->scales == LLM__SC_E8) p[b] = 120;
        else if (f->scales == LLM__SC_F32) memcpy(p + b + f->d_at, &wide, 4);
        else memcpy(p + b + f->d_at, &d, 2);
        if (f->scales == LLM__SC_F16X2) memcpy(p + b + f->d_at + 2, &m, 2);
        if (type >= LLM_TYPE_GRID2 && type <= LLM_TYPE_TERNARY) tc_grid(type, p + b);
        if (f->m_at >= 0) memcpy(p + b + f->m_at, &m, 2);
    }
    return p;
}

/* A matrix whose upper half has another type than the lower one. */
static llm_weight *tc_two_types(const tc_side *s, int32_t type, int32_t other, int out, int cols) {
    llm_segment g[2];
    llm_weight_desc d;
    llm_weight *w = NULL;
    memset(g, 0, sizeof g);
    memset(&d, 0, sizeof d);
    for (int i = 0; i < 2; i++) {
        g[i].type = i ? other : type;
        g[i].n_rows = out / 2;
        g[i].stored_cols = g[i].n_cols = cols;
        g[i].data = tc_stored(g[i].type, out / 2, cols, 5 + (uint32_t)i);
    }
    d.name = "test";
    d.role = LLM_ROLE_LINEAR;
    d.rows = out, d.cols = cols;
    d.segments = g, d.n_segments = 2;
    CHECK(s->be->weight(s->ctx, tc_rank, &d, &w) == LLM_OK);
    return w;
}

static int tc_open_invariant; /* sides are opened with batch_invariant */

typedef struct tc_linear_side {
    tc_side s;
    llm_weight *table, *w, *bias, *routes_table;
    llm_buffer *x, *y, *routes;
    int xielu; /* what products without a gate end with */
} tc_linear_side;

static void tc_linear_open(tc_linear_side *l, const llm_backend *be, llm_compute compute, int32_t type, llm_role role, int out, int cols) {
    llm_backend_config c = tc_config(compute, LLM_KV_AUTO);
    c.batch_invariant = tc_open_invariant;
    l->s = tc_open(be, &c);
    l->table = tc_weight(&l->s, LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * cols, 1, 0, 1), TC_ROWS, cols, 0);
    l->w = tc_weight(&l->s, role, type, tc_stored(type, out, cols, 5), out, cols, 0);
    l->bias = tc_weight(&l->s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(out, 2, 0, 1), 1, out, 0);
    l->x = tc_buffer(&l->s, TC_ROWS, cols);
    l->y = tc_buffer(&l->s, TC_ROWS, out);
    l->xielu = 0;
    CHECK(be->weights_done(l->s.ctx) == LLM_OK);
}

static void tc_linear_run(const tc_linear_side *l, int rows, int gate_up) {
    test_step t;
    llm_linear_op op;
    memset(&op, 0, sizeof op);
    step_begin(&t, TC_PAGES);
    tc_add(&t, 0, 0, rows, 0);
    op.dst = l->y;
    op.src = l->x;
    op.weight = l->w;
    op.bias = l->bias;
    static const float xielu[4] = {0.75f, 1.25f, 0.5f, -0.25f};
    op.act = gate_up ? LLM_ACT_GELU_TANH : l->xielu ? LLM_ACT_XIELU : LLM_ACT_NONE;
    op.xielu = xielu;
    CHECK(l->s.be->begin_step(l->s.ctx, &t.s) == LLM_OK);
    tc_embed(&l->s, l->x, l->table);
    l->s.be->linear(l->s.ctx, 0, &op);
    op.add = op.act != LLM_ACT_XIELU;
    op.scale = 0.5f;
    l->s.be->linear(l->s.ctx, 0, &op);
    tc_run(&l->s);
}

static void tc_linear(void) {
    /* clang-format off */
    static const struct {
        int32_t type, cols;
        double few, tiles;
    } formats[] = {
        {LLM_TYPE_F32, 70, 1e-5, 1e-5},  {LLM_TYPE_F16, 72, 1e-5, 2e-3},  {LLM_TYPE_BF16, 50, 1e-5, 1e-2}, {LLM_TYPE_F8_E4M3, 64, 1e-5, 2e-3}, /* many rows: activations in e4m3 too, where the library multiplies; few rows of packed weights: in whole numbers of 15 bits */
        {LLM_TYPE_RANDOM, 64, 2e-3, 1e-2}, {LLM_TYPE_RANDOM_F8, 64, 0.05, 0.05}, {LLM_TYPE_RANDOM_Q4, 64, 0.1, 0.1}, {LLM_TYPE_F8_E5M2, 64, 1e-5, 2e-3}, {LLM_TYPE_I8, 70, 2e-4, 2e-3}, {LLM_TYPE_Q4_0, 96, 2e-4, 2e-3}, {LLM_TYPE_Q4_1, 96, 2e-4, 2e-3},  {LLM_TYPE_Q5_0, 96, 2e-4, 2e-3},
        {LLM_TYPE_Q5_1, 96, 2e-4, 2e-3}, {LLM_TYPE_Q8_0, 96, 2e-4, 2e-3}, {LLM_TYPE_IQ4_NL, 96, 2e-4, 2e-3}, {LLM_TYPE_MXFP4, 96, 2e-4, 2e-3},
        {LLM_TYPE_Q2_K, 256, 1e-3, 2e-3}, {LLM_TYPE_Q3_K, 256, 1e-3, 2e-3}, {LLM_TYPE_Q4_K, 512, 1e-3, 2e-3}, {LLM_TYPE_Q5_K, 256, 1e-3, 2e-3},
        {LLM_TYPE_Q6_K, 256, 1e-3, 2e-3}, {LLM_TYPE_IQ4_XS, 256, 1e-3, 2e-3}, {LLM_TYPE_GRID2, 256, 2e-4, 2e-3}, {LLM_TYPE_GRID2X, 256, 1e-3, 2e-3},
        {LLM_TYPE_GRID3S, 256, 2e-4, 2e-3}, {LLM_TYPE_GRID1X, 512, 1e-3, 2e-3}, {LLM_TYPE_TERNARY, 256, 1e-3, 2e-3}, {LLM_TYPE_NVFP4_32, 96, 2e-4, 2e-3}};
    /* clang-format on */
    static const int rows[] = {1, 2, 3, 9, 70, 150, 150}; /* the last by our own tiles: cuBLASLt is not there */
    for (int i = 0; i < LLM__COUNT(formats); i++)
        for (int gate_up = 0; gate_up < 2; gate_up++) {
            tc_linear_side cpu, cuda;
            int out = gate_up ? 38 : 37;
            llm_role role = gate_up ? LLM_ROLE_GATE_UP : LLM_ROLE_LINEAR;
            tc_linear_open(&cpu, llm_backend_cpu(), LLM_COMPUTE_F32, formats[i].type, role, out, formats[i].cols);
            tc_linear_open(&cuda, tc_cuda, LLM_COMPUTE_AUTO, formats[i].type, role, out, formats[i].cols);
            cpu.xielu = cuda.xielu = formats[i].type == LLM_TYPE_F16 || formats[i].type == LLM_TYPE_Q4_0;
            for (int k = 0; k < LLM__COUNT(rows); k++) {
                if (k == LLM__COUNT(rows) - 1) {
                    if (i % 6) break; /* of each sixth format */
                    cuda.s.be->close(cuda.s.ctx);
                    setenv("LLM_CUDA_NO_CUBLAS", "1", 1);
                    tc_linear_open(&cuda, tc_cuda, LLM_COMPUTE_AUTO, formats[i].type, role, out, formats[i].cols);
                    unsetenv("LLM_CUDA_NO_CUBLAS");
                }
                tc_linear_run(&cpu, rows[k], gate_up);
                tc_linear_run(&cuda, rows[k], gate_up);
                double e = tc_compare(&cpu.s, cpu.y, &cuda.s, cuda.y, rows[k], gate_up ? out / 2 : out),
                       most = rows[k] > 8 ? formats[i].tiles : formats[i].few;
                if (!CHECK(e < most))
                    printf("    %s, %d rows%s: %.2e\n", llm__type_name(formats[i].type), rows[k], gate_up ? ", gate and up" : "", e);
            }
            cpu.s.be->close(cpu.s.ctx);
            cuda.s.be->close(cuda.s.ctx);
            llm__arena_free(&tc_memory);
        }
}

/* Rows so long that a warp meets several groups of columns, the last of them not whole; and a row of x has the same bits among 2 and 8 rows,
 * and alone, but with weights of 16 bits. With batch_invariant also among 9, 17 and 40 rows, which go in tiles of 8, and with all weights. */
static void tc_linear_long(void) {
    /* clang-format off */
    static const struct {
        int32_t type, cols;
    } formats[] = {{LLM_TYPE_BF16, 1170}, {LLM_TYPE_F16, 1170}, {LLM_TYPE_F8_E4M3, 2144}, {LLM_TYPE_I8, 2144}, {LLM_TYPE_Q4_0, 2144}, {LLM_TYPE_Q5_0, 2144},
                   {LLM_TYPE_MXFP4, 2144}, {LLM_TYPE_Q4_K, 2304}, {LLM_TYPE_Q5_K, 2304}, {LLM_TYPE_Q6_K, 2304}, {LLM_TYPE_Q2_K, 2304}, {LLM_TYPE_NVFP4_32, 2144}};
    /* clang-format on */
    static const int rows[2][5] = {{2, 8, 1}, {2, 9, 17, 40, 1}};
    const int out = 37;
    for (int i = 0; i < LLM__COUNT(formats) * 2; i++) {
        const int32_t type = formats[i / 2].type, cols = formats[i / 2].cols, invariant = i % 2;
        tc_linear_side cpu, cuda;
        float first[2 * 37];
        tc_linear_open(&cpu, llm_backend_cpu(), LLM_COMPUTE_F32, type, LLM_ROLE_LINEAR, out, cols);
        tc_open_invariant = invariant;
        tc_linear_open(&cuda, tc_cuda, LLM_COMPUTE_AUTO, type, LLM_ROLE_LINEAR, out, cols);
        tc_open_invariant = 0;
        for (int k = 0; k < 5 && rows[invariant][k]; k++) {
            const int n_rows = rows[invariant][k];
            tc_linear_run(&cpu, n_rows, 0);
            tc_linear_run(&cuda, n_rows, 0);
            double e = tc_compare(&cpu.s, cpu.y, &cuda.s, cuda.y, n_rows, out);
            int same = 1;
            const int floats = type == LLM_TYPE_BF16 || type == LLM_TYPE_F16;
            for (int n = 0; n < LLM__MIN(2, n_rows) && !(floats && n_rows == 1 && !invariant); n++) {
                const float *y = tc_cuda->buffer_row(cuda.s.ctx, 0, cuda.y, n);
                if (!k) memcpy(first + n * out, y, sizeof(float) * out);
                same &= !memcmp(first + n * out, y, sizeof(float) * out);
            }
            const double most = llm__type_block_bytes(type) > 80 ? 1e-3 : 1e-4; /* scales of super-blocks are rounded to f16 */
            if (!CHECK(e < most && same))
                printf("    %s, %d rows%s: %.2e, %d\n", llm__type_name(type), n_rows, invariant ? ", invariant" : "", e, same);
        }
        cpu.s.be->close(cpu.s.ctx);
        cuda.s.be->close(cuda.s.ctx);
        llm__arena_free(&tc_memory);
    }
}

/* Few rows where blocks have 99 KiB of shared memory (sm_86, 89 and 120), by fewer warps: as near as elsewhere, and a row has the same bits
 * among 3 and 8. And where the driver compiled what is for sm_80: blocks are as large as those of sm_80 there, so the bits are theirs. */
static void tc_linear_small(void) {
    static const int32_t types[] = {LLM_TYPE_BF16, LLM_TYPE_F8_E4M3, LLM_TYPE_Q4_0, LLM_TYPE_Q8_0, LLM_TYPE_Q2_K};
    static const struct { const char *variable, *value; } devices[] = {{"CUEMU_ARCH", "89"}, {"CUEMU_ARCH", "80"}, {"CUEMU_PTX", "80"}};
    enum { OUT = 37, COLS = 2304 };
    for (int i = 0; i < LLM__COUNT(types) * LLM__COUNT(devices); i++) {
        const int device = i % LLM__COUNT(devices);
        const int32_t type = types[i / LLM__COUNT(devices)];
        static float first[OUT], older[OUT];
        tc_linear_side cpu, cuda;
        int same = 1;
        setenv(devices[device].variable, devices[device].value, 1);
        tc_linear_open(&cpu, llm_backend_cpu(), LLM_COMPUTE_F32, type, LLM_ROLE_LINEAR, OUT, COLS);
        tc_linear_open(&cuda, tc_cuda, LLM_COMPUTE_AUTO, type, LLM_ROLE_LINEAR, OUT, COLS);
        for (int rows = 8; rows > 2; rows -= 5) {
            tc_linear_run(&cpu, rows, 0);
            tc_linear_run(&cuda, rows, 0);
            const double e = tc_compare(&cpu.s, cpu.y, &cuda.s, cuda.y, rows, OUT);
            const float *y = tc_cuda->buffer_row(cuda.s.ctx, 0, cuda.y, 0);
            if (rows == 8) memcpy(first, y, sizeof first);
            same &= !memcmp(first, y, sizeof first);
            if (!CHECK(e < 1e-3 && same)) printf("    %s, device %d, %d rows: %.2e, %d\n", llm__type_name(type), device, rows, e, same);
        }
        unsetenv(devices[device].variable);
        if (device == 1) memcpy(older, first, sizeof first);
        if (device == 2 && !CHECK(!memcmp(older, first, sizeof first))) printf("    %s: other bits than on sm_80\n", llm__type_name(type));
        cpu.s.be->close(cpu.s.ctx);
        cuda.s.be->close(cuda.s.ctx);
        llm__arena_free(&tc_memory);
    }
}

/* Packed weights and 9 to 128 rows: bands of 128 rows of W, the last not whole, rows of x in tiles of 16, 32 and 64. Bands are cut among the
 * blocks, which are as many as the device's multiprocessors, or twice as many. A row has the same bits among any of these numbers of rows. With
 * and without a gate, a bias, what adapters add and a factor; then two kinds side by side in a matrix. */
static void tc_bands(void) {
    /* clang-format off */
    static const struct {
        int32_t type, cols, out;
    } formats[] = {{LLM_TYPE_Q4_0, 544, 270}, {LLM_TYPE_Q4_1, 544, 270}, {LLM_TYPE_Q5_0, 544, 270}, {LLM_TYPE_Q5_1, 544, 270}, {LLM_TYPE_Q8_0, 544, 270},
                   {LLM_TYPE_I8, 540, 270}, {LLM_TYPE_IQ4_NL, 544, 270}, {LLM_TYPE_MXFP4, 416, 270}, {LLM_TYPE_Q6_K, 512, 270}, {LLM_TYPE_Q2_K, 512, 270},
                   {LLM_TYPE_Q3_K, 512, 270}, {LLM_TYPE_Q4_K, 512, 270}, {LLM_TYPE_Q5_K, 512, 270}, {LLM_TYPE_IQ4_XS, 256, 270}, {LLM_TYPE_NVFP4_32, 416, 270}, {LLM_TYPE_GRID1X, 512, 270}, {LLM_TYPE_Q4_0, 96, 20},
                   {LLM_TYPE_Q4_0, 1312, 814}};
    /* clang-format on */
    static const int all[] = {128, 9, 17, 33, 65, 15, 16, 31, 32, 64}, brief[] = {65, 9, 17}; /* most first */
    enum { MOST = 128 };
    const int *rows = TEST_BRIEF ? brief : all, n_rows = TEST_BRIEF ? LLM__COUNT(brief) : LLM__COUNT(all);
    for (int i = 0; i < LLM__COUNT(formats); i++) {
        const int out = formats[i].out, cols = formats[i].cols, gate_up = i % 2, mixed = i == LLM__COUNT(formats) - 2,
                  wide = gate_up ? out / 2 : out, large = out > 270;
        const int32_t type = formats[i].type;
        tc_side s[2];
        llm_linear_op op[2];
        llm_buffer *x[2], *y[2], *plus[2];
        llm_weight *table[2], *more[2], *before[2];
        float *first = (float *)llm__arena_get(&tc_memory, sizeof(float) * (size_t)(MOST * wide));
        for (int k = 0; k < 2; k++) {
            llm_backend_config c = tc_config(k ? LLM_COMPUTE_AUTO : LLM_COMPUTE_F32, LLM_KV_AUTO);
            s[k] = tc_open(k ? tc_cuda : llm_backend_cpu(), &c);
            memset(&op[k], 0, sizeof op[k]);
            table[k] = tc_weight(&s[k], LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * cols, 1, 0, 1), TC_ROWS, cols, 0);
            more[k] = tc_weight(&s[k], LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * out, 3, 0, 1), TC_ROWS, out, 0);
            before[k] = tc_weight(&s[k], LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * wide, 4, 0, 1), TC_ROWS, wide, 0);
            op[k].weight =
                mixed ? tc_two_types(&s[k], type, LLM_TYPE_Q8_0, out, cols)
                      : tc_weight(&s[k], gate_up ? LLM_ROLE_GATE_UP : LLM_ROLE_LINEAR, type, tc_stored(type, out, cols, 5), out, cols, 0);
            op[k].src = x[k] = tc_buffer(&s[k], TC_ROWS, cols), op[k].dst = y[k] = tc_buffer(&s[k], TC_ROWS, wide),
            plus[k] = tc_buffer(&s[k], TC_ROWS, out);
            op[k].act = gate_up ? LLM_ACT_SILU : LLM_ACT_NONE;
            if (i % 3) op[k].bias = tc_weight(&s[k], LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(out, 2, 0, 1), 1, out, 0);
            if (i % 3 == 2) op[k].plus = plus[k], op[k].scale = 0.5f;
            CHECK(s[k].be->weights_done(s[k].ctx) == LLM_OK);
        }
        for (int n = 0; n < (large ? LLM__MIN(4, n_rows) : n_rows); n++) {
            for (int k = n ? 1 : 0; k < 2; k++) {
                test_step t;
                step_begin(&t, TC_PAGES);
                tc_add(&t, 0, 0, rows[n], 0);
                CHECK(s[k].be->begin_step(s[k].ctx, &t.s) == LLM_OK);
                tc_embed(&s[k], x[k], table[k]);
                tc_embed(&s[k], plus[k], more[k]);
                tc_embed(&s[k], y[k], before[k]); /* what a row has that nobody computes */
                op[k].add = 0;
                s[k].be->linear(s[k].ctx, 0, &op[k]);
                op[k].add = 1;
                if (i % 2) s[k].be->linear(s[k].ctx, 0, &op[k]);
                tc_run(&s[k]);
            }
            const double e = tc_compare(&s[0], y[0], &s[1], y[1], rows[n], wide);
            int same = 1;
            for (int r = 0; r < rows[n]; r++) {
                const float *v = tc_cuda->buffer_row(s[1].ctx, 0, y[1], r);
                if (!n) memcpy(first + r * wide, v, sizeof(float) * (size_t)wide);
                same &= !memcmp(first + r * wide, v, sizeof(float) * (size_t)wide);
            }
            if (!CHECK(e < 1e-3 && same))
                printf("    %s, %d rows, %d x %d%s: %.2e, %d\n", llm__type_name(type), rows[n], out, cols, gate_up ? ", gate and up" : "",
                       e, same);
        }
        for (int k = 0; k < 2; k++) s[k].be->close(s[k].ctx);
        llm__arena_free(&tc_memory);
    }
}

/* e4m3 weights times activations of the same type, where the device and the sizes allow it: other numbers than those of halves, near the same
 * truth. */
static void tc_fp8(void) {
    for (int gate_up = 0; gate_up < 2; gate_up++) {
        tc_linear_side side[3]; /* CPU; CUDA; CUDA without the library */
        double e[2];
        for (int i = 0; i < 3; i++) {
            if (i == 2) setenv("LLM_CUDA_NO_CUBLAS", "1", 1);
            tc_linear_open(&side[i], i ? tc_cuda : llm_backend_cpu(), i ? LLM_COMPUTE_AUTO : LLM_COMPUTE_F32, LLM_TYPE_F8_E4M3,
                           gate_up ? LLM_ROLE_GATE_UP : LLM_ROLE_LINEAR, 96, 200);
            unsetenv("LLM_CUDA_NO_CUBLAS");
            tc_linear_run(&side[i], 150, gate_up);
        }
        for (int i = 0; i < 2; i++) e[i] = tc_compare(&side[0].s, side[0].y, &side[i + 1].s, side[i + 1].y, 150, gate_up ? 48 : 96);
        const char *arch = getenv("CUEMU_ARCH"); /* devices before sm_89 have no e4m3 products */
        int native = !tc_emulated() || (e[0] > 2e-3) == !(arch && atoi(arch) < 89);
        if (!CHECK(native && e[0] < 4e-2 && e[1] < 2e-3)) printf("    e4m3 times e4m3: %.2e, without the library %.2e\n", e[0], e[1]);
        for (int i = 0; i < 3; i++) side[i].s.be->close(side[i].s.ctx);
        llm__arena_free(&tc_memory);
    }
}

/* The worst difference of a row of y from that of x, relative to the row's largest value. */
static double tc_row_worst(const tc_side *a, const llm_buffer *x, const tc_side *b, const llm_buffer *y, int row, int cols) {
    const float *want = a->be->buffer_row(a->ctx, 0, x, row), *got = b->be->buffer_row(b->ctx, 0, y, row);
    double worst = 0, top = 1e-9;
    for (int i = 0; i < cols; i++) {
        double e = fabs((double)want[i] - (double)got[i]);
        if (!(e <= worst)) worst = e;
        top = fmax(top, fabs((double)want[i]));
    }
    return worst / top;
}

/* Some rows with activations that no half holds: each row is as near as the others, however many there are. */
static void tc_massive(void) {
    static const int32_t types[] = {LLM_TYPE_F16, LLM_TYPE_BF16, LLM_TYPE_Q8_0, LLM_TYPE_Q4_1};
    static const int rows[] = {1, 20, 140, 140}; /* the last by our own tiles */
    enum { OUT = 64, COLS = 96, WIDE = COLS + 4 };
    for (int i = 0; i < LLM__COUNT(types); i++)
        for (int k = 0; k < LLM__COUNT(rows); k++) {
            tc_linear_side side[2];
            double worst = 0;
            float *values = tc_floats(TC_ROWS * WIDE, 1, 0, 1);
            for (int r = 0; r < TC_ROWS; r += 3)
                for (int c = 0; c < WIDE; c += 1 + r % 7) values[r * WIDE + c] *= r % 2 ? 3e5f : 4e9f;
            if (k == LLM__COUNT(rows) - 1) setenv("LLM_CUDA_NO_CUBLAS", "1", 1);
            for (int n = 0; n < 2; n++) {
                llm_linear_op op;
                test_step t;
                tc_linear_open(&side[n], n ? tc_cuda : llm_backend_cpu(), n ? LLM_COMPUTE_AUTO : LLM_COMPUTE_F32, types[i], LLM_ROLE_LINEAR,
                               OUT, COLS);
                llm_weight *table = tc_weight(&side[n].s, LLM_ROLE_EMBED, LLM_TYPE_F32, values, TC_ROWS, WIDE, 0);
                side[n].x = tc_buffer(&side[n].s, TC_ROWS, WIDE);
                for (int plain = 0; plain < 2; plain++) { /* = x W^T, which the library writes itself; += with a bias */
                    memset(&op, 0, sizeof op);
                    step_begin(&t, TC_PAGES);
                    tc_add(&t, 0, 0, rows[k], 0);
                    op.dst = side[n].y, op.src = side[n].x, op.weight = side[n].w;
                    op.src_col = plain ? 4 : 3; /* rows on 16 bytes, and not */
                    if (plain) op.add = 1, op.bias = side[n].bias;
                    CHECK(side[n].s.be->begin_step(side[n].s.ctx, &t.s) == LLM_OK);
                    tc_embed(&side[n].s, side[n].x, table);
                    side[n].s.be->linear(side[n].s.ctx, 0, &op);
                    tc_run(&side[n].s);
                }
            }
            unsetenv("LLM_CUDA_NO_CUBLAS");
            for (int r = 0; r < rows[k]; r++) worst = fmax(worst, tc_row_worst(&side[0].s, side[0].y, &side[1].s, side[1].y, r, OUT));
            if (!CHECK(worst < (types[i] == LLM_TYPE_BF16 ? 2e-2 : 3e-3)))
                printf("    %s, %d rows: a row is off by %.2e\n", llm__type_name(types[i]), rows[k], worst);
            for (int n = 0; n < 2; n++) side[n].s.be->close(side[n].s.ctx);
            llm__arena_free(&tc_memory);
        }
}

/* A row of x with a value that is not finite has no finite output, of few rows; the row beside it is as it is alone. */
static void tc_not_finite(void) {
    static const int32_t types[] = {LLM_TYPE_F16,  LLM_TYPE_BF16, LLM_TYPE_F8_E4M3, LLM_TYPE_Q8_0,
                                    LLM_TYPE_Q4_1, LLM_TYPE_Q6_K, LLM_TYPE_MXFP4};
    enum { OUT = 37, COLS = 256 };
    for (int i = 0; i < LLM__COUNT(types) * 2; i++) {
        tc_linear_side side;
        float first[OUT], *values = tc_floats(TC_ROWS * COLS, 1, 0, 1);
        int finite = 0, same = 1;
        values[COLS + 77] = i % 2 ? NAN : -INFINITY;
        tc_linear_open(&side, tc_cuda, LLM_COMPUTE_AUTO, types[i / 2], LLM_ROLE_LINEAR, OUT, COLS);
        side.table = tc_weight(&side.s, LLM_ROLE_EMBED, LLM_TYPE_F32, values, TC_ROWS, COLS, 0);
        for (int rows = 3; rows > 1; rows--) {
            tc_linear_run(&side, rows, 0);
            const float *y = tc_cuda->buffer_row(side.s.ctx, 0, side.y, 0);
            if (rows == 3) memcpy(first, y, sizeof first);
            same &= !memcmp(first, y, sizeof first);
            y = tc_cuda->buffer_row(side.s.ctx, 0, side.y, 1);
            for (int c = 0; c < OUT; c++) finite += isfinite(y[c]) != 0;
        }
        if (!CHECK(!finite && same)) printf("    %s: %d finite outputs, %d\n", llm__type_name(types[i / 2]), finite, same);
        side.s.be->close(side.s.ctx);
        llm__arena_free(&tc_memory);
    }
}

/* cuBLASLt is asked for an algorithm once for a shape and numbers of rows near each other; 29 rows are refused by the one for 32, and go by
 * the library's own choice, as all do where it cannot be asked. */
static void tc_asking(void) {
    static const struct { int rows, asks; } steps[] = {{20, 1}, {20, 0}, {19, 0}, {33, 1}, {29, 1}, {29, 0}, {20, 0}};
    for (int old = 0; old < 2; old++) {
        tc_linear_side cpu, cuda;
        tc_linear_open(&cpu, llm_backend_cpu(), LLM_COMPUTE_F32, LLM_TYPE_BF16, LLM_ROLE_LINEAR, 64, 96);
        if (old) setenv("CUEMU_OLD_CUBLAS", "1", 1);
        tc_linear_open(&cuda, tc_cuda, LLM_COMPUTE_AUTO, LLM_TYPE_BF16, LLM_ROLE_LINEAR, 64, 96);
        unsetenv("CUEMU_OLD_CUBLAS");
        for (int i = 0; i < LLM__COUNT(steps); i++) {
            const long before = tc_asked ? *tc_asked : 0;
            tc_linear_run(&cpu, steps[i].rows, 0);
            tc_linear_run(&cuda, steps[i].rows, 0);
            const double e = tc_compare(&cpu.s, cpu.y, &cuda.s, cuda.y, steps[i].rows, 64);
            const long asks = tc_asked ? *tc_asked - before : 0;
            if (!CHECK(e < 1e-2 && (!tc_asked || asks == (old ? 0 : steps[i].asks))))
                printf("    step %d, %d rows: %.2e, %ld questions\n", i, steps[i].rows, e, asks);
        }
        cpu.s.be->close(cpu.s.ctx);
        cuda.s.be->close(cuda.s.ctx);
        llm__arena_free(&tc_memory);
    }
}

/* More rows than a grid's y has blocks. */
static void tc_many_rows(void) {
    enum { ROWS = 66000, OUT = 16, COLS = 32 };
    tc_side s[2];
    llm_buffer *x[2], *y[2];
    llm_step step;
    int32_t begin[2] = {0, ROWS}, length = ROWS, zero = 0, *number = (int32_t *)llm__arena_get(&tc_memory, ROWS * sizeof *number),
            *none = (int32_t *)llm__arena_get(&tc_memory, ROWS * sizeof *none);
    memset(&step, 0, sizeof step);
    memset(none, 0, ROWS * sizeof *none);
    for (int i = 0; i < ROWS; i++) number[i] = i % TC_ROWS;
    step.shape.n_rows = ROWS, step.shape.n_seqs = 1;
    step.tokens = number, step.positions = number, step.n_position_rows = 1;
    step.seq_of_row = none, step.seq_begin = begin, step.seq_len = &length, step.seq_rope = &zero;
    step.pages = &zero, step.page_stride = 1, step.out_rows = &zero;
    for (int k = 0; k < 2; k++) {
        llm_backend_config c = tc_config(k ? LLM_COMPUTE_AUTO : LLM_COMPUTE_F32, LLM_KV_AUTO);
        llm_linear_op op;
        c.max_rows = ROWS;
        s[k] = tc_open(k ? tc_cuda : llm_backend_cpu(), &c);
        llm_weight *table = tc_weight(&s[k], LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * COLS, 1, 0, 1), TC_ROWS, COLS, 0),
                   *w = tc_weight(&s[k], LLM_ROLE_LINEAR, LLM_TYPE_BF16, tc_stored(LLM_TYPE_BF16, OUT, COLS, 5), OUT, COLS, 0),
                   *bias = tc_weight(&s[k], LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(OUT, 2, 0, 1), 1, OUT, 0);
        x[k] = tc_buffer(&s[k], ROWS, COLS), y[k] = tc_buffer(&s[k], ROWS, OUT);
        CHECK(s[k].be->weights_done(s[k].ctx) == LLM_OK && s[k].be->kv_open(s[k].ctx, 0, NULL, 16, 1) == LLM_OK);
        memset(&op, 0, sizeof op);
        op.dst = y[k], op.src = x[k], op.weight = w, op.bias = bias;
        CHECK(s[k].be->begin_step(s[k].ctx, &step) == LLM_OK);
        tc_embed(&s[k], x[k], table);
        s[k].be->linear(s[k].ctx, 0, &op);
        if (!CHECK(s[k].be->end_step(s[k].ctx) == LLM_OK && s[k].be->wait(s[k].ctx) == LLM_OK)) printf("    %s\n", llm_last_error());
    }
    for (int row = 0; row < ROWS; row += 5003) {
        const float *want = s[0].be->buffer_row(s[0].ctx, 0, y[0], row), *got = s[1].be->buffer_row(s[1].ctx, 0, y[1], row);
        double worst = 0;
        for (int i = 0; i < OUT; i++) worst = fmax(worst, fabs((double)want[i] - (double)got[i]));
        CHECK(worst < 5e-2);
    }
    for (int k = 0; k < 2; k++) s[k].be->close(s[k].ctx);
    llm__arena_free(&tc_memory);
}

/* A matrix that several threads copy, whole and cut by columns, beside the CPU's; also one that is transposed. */
static void tc_loading(void) {
    for (int i = 0; i < 3; i++) {
        enum { ROWS = 700, COLS = 512 };
        llm_buffer *y[2];
        tc_side s[2];
        for (int k = 0; k < 2; k++) {
            llm_backend_config c = tc_config(LLM_COMPUTE_F32, LLM_KV_AUTO);
            llm_segment g;
            llm_weight_desc d;
            llm_weight *w = NULL, *table;
            llm_linear_op op;
            test_step t;
            c.n_threads = k ? 5 : 1;
            s[k] = tc_open(k ? tc_cuda : llm_backend_cpu(), &c);
            table = tc_weight(&s[k], LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * COLS, 1, 0, 1), TC_ROWS, COLS, 0);
            memset(&g, 0, sizeof g);
            memset(&d, 0, sizeof d);
            memset(&op, 0, sizeof op);
            g.type = LLM_TYPE_F32;
            g.transposed = i == 2;
            g.stored_cols = i == 0 ? COLS : i == 1 ? COLS + 64 : ROWS;
            g.data = tc_floats(ROWS * (COLS + 64), 8, 0, 1);
            g.col = i == 1 ? 33 : 0;
            g.n_cols = d.cols = COLS;
            g.n_rows = d.rows = ROWS;
            d.name = "test";
            d.role = LLM_ROLE_LINEAR;
            d.segments = &g;
            d.n_segments = 1;
            CHECK(s[k].be->weight(s[k].ctx, 0, &d, &w) == LLM_OK);
            op.src = tc_buffer(&s[k], TC_ROWS, COLS);
            op.dst = y[k] = tc_buffer(&s[k], TC_ROWS, ROWS);
            op.weight = w;
            CHECK(s[k].be->weights_done(s[k].ctx) == LLM_OK);
            step_begin(&t, TC_PAGES);
            tc_add(&t, 0, 0, 3, 0);
            CHECK(s[k].be->begin_step(s[k].ctx, &t.s) == LLM_OK);
            tc_embed(&s[k], (llm_buffer *)(uintptr_t)op.src, table);
            s[k].be->linear(s[k].ctx, 0, &op);
            tc_run(&s[k]);
        }
        CHECK(tc_compare(&s[0], y[0], &s[1], y[1], 3, ROWS) < 1e-5);
        for (int k = 0; k < 2; k++) s[k].be->close(s[k].ctx);
        llm__arena_free(&tc_memory);
    }
}

/* Tokens beyond the rows of a table have the first one's, or zeros where another rank has that. */
static void tc_known(void) {
    enum { COLS = 72 };
    for (int begin = 0; begin < 3; begin += 2) {
        llm_buffer *x[2];
        tc_side s[2];
        for (int k = 0; k < 2; k++) {
            const llm_backend_config c = tc_config(LLM_COMPUTE_F32, LLM_KV_AUTO);
            test_step t;
            s[k] = tc_open(k ? tc_cuda : llm_backend_cpu(), &c);
            llm_weight *table = tc_weight(&s[k], LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * COLS, 1, 0, 1), TC_ROWS, COLS, 0);
            x[k] = tc_buffer(&s[k], TC_ROWS, COLS);
            const llm_embed_op op = {.dst = x[k], .table = table, .vocab_begin = begin, .scale = 2, .known = 7};
            CHECK(s[k].be->weights_done(s[k].ctx) == LLM_OK && s[k].be->kv_open(s[k].ctx, 0, NULL, 16, 1) == LLM_OK);
            step_begin(&t, TC_PAGES);
            tc_add(&t, 0, 0, 11, 0);
            CHECK(s[k].be->begin_step(s[k].ctx, &t.s) == LLM_OK);
            s[k].be->embed(s[k].ctx, 0, &op);
            tc_run(&s[k]);
        }
        CHECK(tc_compare(&s[0], x[0], &s[1], x[1], 11, COLS) == 0);
        float first[COLS];
        memcpy(first, s[1].be->buffer_row(s[1].ctx, 0, x[1], 0), sizeof first); /* the next call overwrites it */
        for (int row = 7; row < 11; row++) CHECK(!memcmp(first, s[1].be->buffer_row(s[1].ctx, 0, x[1], row), sizeof first));
        for (int k = 0; k < 2; k++) s[k].be->close(s[k].ctx);
        llm__arena_free(&tc_memory);
    }
}

/* ---- attention over pages ---- */

typedef struct tc_case {
    const char *name;
    int n_heads, n_kv, hd, vd, rope_dim, pairs, norm, window, not_causal, sinks,
        alibi; /* window below 0: they stand side by side; alibi below 0: the reach of distances */
    float softcap;
    llm_kv_type kv;
    double tolerance;
    int page, invariant; /* tokens of a page, 0: TC_PAGE; batch_invariant */
} tc_case;

typedef struct tc_attend {
    tc_side s;
    llm_weight *table, *inv_freq, *norm, *sinks, *alibi, *distance;
    llm_buffer *qkv, *rope, *out;
} tc_attend;

static llm_compute tc_attend_compute = LLM_COMPUTE_F32; /* with which sides are opened */

static void tc_attend_open(tc_attend *a, const llm_backend *be, const tc_case *c) {
    int cols = c->n_heads * c->hd + c->n_kv * (c->hd + c->vd);
    llm_backend_config cfg = tc_config(tc_attend_compute, c->kv);
    llm_kv_layer layers[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    cfg.batch_invariant = c->invariant;
    layers[0].n_kv_heads = 1, layers[0].head_dim = layers[0].v_head_dim = 16;
    layers[1].n_kv_heads = c->n_kv, layers[1].head_dim = c->hd, layers[1].v_head_dim = c->vd;
    a->s = tc_open(be, &cfg);
    a->table = tc_weight(&a->s, LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * cols, 1, 0, 1.5f), TC_ROWS, cols, 0);
    a->inv_freq = tc_weight(&a->s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(LLM__MAX(c->rope_dim / 2, 1), 2, 0.5f, 0.4f), 1,
                            LLM__MAX(c->rope_dim / 2, 1), 0);
    a->norm = tc_weight(&a->s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(c->n_heads * c->hd, 3, 1, 0.5f), 1, c->n_heads * c->hd, 0);
    a->sinks = tc_weight(&a->s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(c->n_heads, 4, 0, 1), 1, c->n_heads, 0);
    a->alibi = tc_weight(&a->s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(c->n_heads, 5, 0.3f, 0.2f), 1, c->n_heads, 0);
    const int by = c->n_heads * (1 - 2 * LLM__MIN(c->alibi, 0));
    a->distance = tc_weight(&a->s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(by, 6, 0, 1), 1, by, 0);
    a->qkv = tc_buffer(&a->s, TC_ROWS, cols);
    a->rope = tc_buffer(&a->s, TC_ROWS, LLM__MAX(c->rope_dim, 2));
    a->out = tc_buffer(&a->s, TC_ROWS, c->n_heads * c->vd);
    CHECK(be->weights_done(a->s.ctx) == LLM_OK);
    CHECK(be->kv_open(a->s.ctx, 2, layers, c->page ? c->page : TC_PAGE, TC_SEQS * TC_PAGES) == LLM_OK);
}

/* With `write` 1 keys and values go to the pages, and that is all; with 2 the queries are read again behind attention. */
static void tc_attend_list(const tc_attend *a, const tc_case *c, const test_step *t, int write) {
    llm_rope_op rope;
    llm_qkv_op qkv;
    llm_attention_op at;
    memset(&rope, 0, sizeof rope);
    memset(&qkv, 0, sizeof qkv);
    memset(&at, 0, sizeof at);
    rope.dst = a->rope;
    rope.inv_freq = a->inv_freq;
    rope.n_variants = 1;
    rope.rope_dim = c->rope_dim;
    qkv.qkv = a->qkv;
    qkv.k_col = qkv.whole_k_col = c->n_heads * c->hd;
    qkv.v_col = qkv.k_col + c->n_kv * c->hd;
    qkv.whole_q = c->n_heads * c->hd;
    qkv.whole_k = c->n_kv * c->hd;
    qkv.n_heads = at.n_heads = c->n_heads;
    qkv.n_kv_heads = at.n_kv_heads = c->n_kv;
    qkv.head_dim = at.head_dim = c->hd;
    qkv.v_head_dim = at.v_head_dim = c->vd;
    qkv.norm = (llm_qk_norm)c->norm;
    qkv.q_norm = qkv.k_norm = a->norm;
    qkv.eps = 1e-5f;
    qkv.rope = c->rope_dim ? a->rope : NULL;
    qkv.rope_dim = c->rope_dim;
    qkv.rope_interleaved = c->pairs;
    qkv.layer = at.layer = 1;
    qkv.logn_from = 20;
    qkv.logn_beta = c->hd % 3 ? 0 : 0.3f;
    qkv.logn_ahead = c->window < 0;
    at.dst = a->out;
    at.qkv = a->qkv;
    at.scale = (float)(1 / sqrt(c->hd));
    at.softcap = c->softcap;
    at.window = abs(c->window);
    at.chunked = c->window < 0;
    at.spans = t->s.spans != NULL;
    at.not_causal = c->not_causal;
    at.sinks = c->sinks ? a->sinks : NULL;
    at.alibi = c->alibi > 0 ? a->alibi : NULL;
    at.distance = c->alibi < 0 ? a->distance : NULL;
    at.reach = LLM__MAX(-c->alibi, 0);
    CHECK(a->s.be->begin_step(a->s.ctx, &t->s) == LLM_OK);
    tc_embed(&a->s, a->qkv, a->table);
    if (c->rope_dim) a->s.be->rope(a->s.ctx, 0, &rope);
    a->s.be->qkv(a->s.ctx, 0, &qkv);
    if (write != 1) a->s.be->attention(a->s.ctx, 0, &at);
    if (write == 2) {
        llm_norm_op copy;
        memset(&copy, 0, sizeof copy);
        copy.dst = a->out, copy.src = a->qkv, copy.n = c->n_heads * c->hd;
        a->s.be->norm(a->s.ctx, 0, &copy);
    }
}

static void tc_attend_run(const tc_attend *a, const tc_case *c, const test_step *t, int write) {
    tc_attend_list(a, c, t, write);
    tc_run(&a->s);
}

static const tc_case tc_cases[] = {
    {"llama", 6, 2, 32, 32, 32, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_F32, 1e-5, 0, 0},
    {"f16, pairs", 6, 3, 64, 64, 64, 1, LLM_QK_NORM_HEAD_RMS, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3, 0, 0},
    {"norm behind RoPE", 6, 2, 64, 64, 48, 0, LLM_QK_NORM_HEAD_RMS_LAST, 0, 0, 0, 0, 0, LLM_KV_F32, 1e-5, 0, 0},
    {"f16, norm behind pairs", 6, 3, 48, 48, 48, 1, LLM_QK_NORM_HEAD_RMS_LAST, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3, 0, 0},
    {"bf16, wide heads", 3, 1, 160, 160, 64, 0, LLM_QK_NORM_NONE, 21, 0, 0, 0, 0, LLM_KV_BF16, 1e-2, 0, 0},
    {"e4m3", 4, 2, 48, 48, 48, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_FP8_E4M3, 1e-2, 0, 0},
    {"e5m2", 4, 2, 48, 48, 48, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_FP8_E5M2, 1e-2, 0, 0},
    {"int8, odd", 3, 1, 17, 19, 16, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_INT8, 1e-2, 0, 0},
    {"int4, odd", 3, 1, 17, 19, 16, 0, LLM_QK_NORM_NONE, 33, 0, 0, 0, 0, LLM_KV_INT4, 3e-2, 0, 0},
    {"int8, turned", 4, 2, 64, 64, 64, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_INT8, 1e-3, 0, 0}, /* by the same matrix as on the CPU */
    {"int4, turned", 4, 2, 48, 32, 32, 1, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_INT4, 1e-3, 0, 0},
    {"soft cap", 4, 2, 24, 24, 12, 1, LLM_QK_NORM_HEAD_LAYER, 0, 0, 0, 0, 3, LLM_KV_F32, 1e-5, 0, 0},
    {"sinks, window", 8, 2, 32, 32, 32, 0, LLM_QK_NORM_NONE, 33, 0, 1, 0, 0, LLM_KV_F32, 1e-5, 0, 0},
    {"windows side by side", 4, 2, 24, 24, 24, 1, LLM_QK_NORM_NONE, -20, 0, 0, 0, 0, LLM_KV_F32, 1e-5, 0, 0},
    {"f16, windows side by side", 6, 2, 48, 48, 48, 0, LLM_QK_NORM_NONE, -24, 0, 0, 0, 0, LLM_KV_F16, 2e-3, 0, 0},
    {"bf16, windows side by side", 4, 2, 128, 128, 0, 0, LLM_QK_NORM_NONE, -32, 0, 0, 0, 0, LLM_KV_BF16, 1e-2, 0, 0},
    {"alibi, whole norm", 5, 5, 40, 40, 0, 0, LLM_QK_NORM_WHOLE_RMS, 0, 0, 0, 1, 0, LLM_KV_F32, 1e-5, 0, 0},
    {"both ways", 4, 2, 32, 32, 32, 0, LLM_QK_NORM_NONE, 20, 1, 0, 0, 0, LLM_KV_F32, 1e-5, 0, 0},
    {"20 heads of one key", 20, 1, 24, 16, 24, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_F32, 1e-5, 0, 0},
    {"f16, one head a key", 3, 3, 80, 80, 80, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3, 0,
     0}, /* these: prompts on tensor cores */
    {"f16, 80 heads of one key", 80, 1, 24, 16, 24, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3, 0, 0},
    {"bf16, window, sinks, cap", 6, 2, 128, 128, 128, 0, LLM_QK_NORM_NONE, 33, 0, 1, 0, 5, LLM_KV_BF16, 1e-2, 0, 0},
    {"f16, alibi", 5, 5, 40, 40, 0, 0, LLM_QK_NORM_WHOLE_RMS, 0, 0, 0, 1, 0, LLM_KV_F16, 2e-3, 0, 0},
    {"by distance, both ways", 5, 5, 40, 40, 0, 0, LLM_QK_NORM_NONE, 0, 1, 0, -9, 0, LLM_KV_F32, 1e-5, 0, 0},
    {"f16, by distance, window, cap", 6, 2, 32, 32, 32, 0, LLM_QK_NORM_NONE, 33, 0, 1, -20, 5, LLM_KV_F16, 2e-3, 0, 0},
    {"int8, by distance", 4, 2, 64, 64, 64, 0, LLM_QK_NORM_NONE, 0, 0, 0, -7, 0, LLM_KV_INT8, 1e-3, 0, 0},
    {"f16, both ways", 4, 2, 32, 32, 32, 0, LLM_QK_NORM_NONE, 20, 1, 0, 0, 0, LLM_KV_F16, 2e-3, 0, 0},
    {"f16, heads of 256", 2, 1, 256, 256, 64, 0, LLM_QK_NORM_NONE, 0, 0, 1, 0, 0, LLM_KV_F16, 2e-3, 0, 0},
};

/* Three sequences: chunks of prompts beside each other, then decoding (which is captured and replayed), then both mixed. */
static void tc_attention(void) {
    for (int i = 0; i < LLM__COUNT(tc_cases); i++) {
        const tc_case *c = &tc_cases[i];
        tc_attend cpu, cuda;
        double worst = 0;
        int at[3] = {0, 0, 0};
        tc_attend_open(&cpu, llm_backend_cpu(), c);
        tc_attend_open(&cuda, tc_cuda, c);
        for (int k = 0; k < 5; k++) {
            static const int chunk[5][3] = {{37, 5, 0}, {9, 20, 30}, {1, 1, 1}, {1, 1, 1}, {2, 11, 1}};
            test_step t;
            step_begin(&t, TC_PAGES);
            for (int s = 0; s < 3; s++) {
                if (chunk[k][s]) tc_add(&t, s, at[s], chunk[k][s], 0);
                at[s] += chunk[k][s];
            }
            tc_attend_run(&cpu, c, &t, 0);
            tc_attend_run(&cuda, c, &t, 0);
            worst = LLM__MAX(worst, tc_compare(&cpu.s, cpu.out, &cuda.s, cuda.out, t.s.shape.n_rows, c->n_heads * c->vd));
        }
        if (!CHECK(worst < c->tolerance)) printf("    %s: %.2e\n", c->name, worst);
        cpu.s.be->close(cpu.s.ctx);
        cuda.s.be->close(cuda.s.ctx);
        llm__arena_free(&tc_memory);
    }
}

/* Attention to single rows does what the record before it says about heads; but where somebody reads them, they are there. */
static void tc_heads_read(void) {
    const tc_case *c = &tc_cases[1];
    tc_attend cpu, cuda;
    tc_attend_open(&cpu, llm_backend_cpu(), c);
    tc_attend_open(&cuda, tc_cuda, c);
    for (int at = 0; at < 4; at++) {
        test_step t;
        step_begin(&t, TC_PAGES);
        for (int s = 0; s < 3; s++) tc_add(&t, s, at, 1, 0);
        tc_attend_run(&cpu, c, &t, 2);
        tc_attend_run(&cuda, c, &t, 2);
        double e = tc_compare(&cpu.s, cpu.out, &cuda.s, cuda.out, 3, c->n_heads * c->hd);
        if (!CHECK(e < 1e-5)) printf("    position %d: %.2e\n", at, e);
    }
    cpu.s.be->close(cpu.s.ctx);
    cuda.s.be->close(cuda.s.ctx);
    llm__arena_free(&tc_memory);
}

/* Long sequences, whose keys several blocks share: the CPU's results, and the same bits alone, beside others, and as the last rows of a chunk,
 * which one block does from beginning to end. */
static void tc_splits(void) {
    /* clang-format off */
    static const tc_case cases[] = {
        {"f16", 6, 2, 32, 32, 32, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3, 96, 1},
        {"bf16, 12 heads of a key, window", 12, 1, 128, 96, 32, 0, LLM_QK_NORM_NONE, 300, 0, 1, 0, 5, LLM_KV_BF16, 1e-2, 96, 1},
        {"int8, alibi", 4, 4, 80, 72, 32, 0, LLM_QK_NORM_NONE, 0, 0, 0, 1, 0, LLM_KV_INT8, 1e-2, 96, 1},
        {"int4", 2, 1, 64, 64, 32, 0, LLM_QK_NORM_NONE, 0, 0, 1, 0, 0, LLM_KV_INT4, 1e-2, 96, 1},
        {"e4m3, wide heads", 2, 2, 192, 168, 32, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_FP8_E4M3, 1e-2, 96, 1},
        {"e5m2", 2, 1, 32, 32, 32, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_FP8_E5M2, 1e-2, 96, 1},
        {"f16, 16 KV heads, tickets for two splits", 16, 16, 16, 16, 16, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3, 192, 1}};
    /* clang-format on */
    static const int lengths[2][3] = {{700, 250, 20}, {1500, 1400, 1310}};
    for (int i = 0; i < LLM__COUNT(cases); i++) {
        const tc_case *c = &cases[i];
        const int cols = c->n_heads * c->vd, *before = lengths[c->n_kv == 16];
        tc_attend cpu, cuda;
        test_step t;
        double worst = 0;
        float *alone = (float *)malloc(3 * (size_t)cols * sizeof *alone);
        tc_attend_open(&cpu, llm_backend_cpu(), c);
        tc_attend_open(&cuda, tc_cuda, c);
        for (int s = 0; s < 3; s++)
            for (int at = 0, n; at < before[s]; at += n) {
                step_begin(&t, TC_PAGES);
                tc_add(&t, s, at, n = LLM__MIN(TC_ROWS, before[s] - at), 0);
                tc_attend_run(&cpu, c, &t, 1);
                tc_attend_run(&cuda, c, &t, 1);
            }
        for (int s = 0; s < 3; s++) {
            step_begin(&t, TC_PAGES);
            tc_add(&t, s, before[s], 1, 0);
            tc_attend_run(&cpu, c, &t, 0);
            tc_attend_run(&cuda, c, &t, 0);
            worst = LLM__MAX(worst, tc_compare(&cpu.s, cpu.out, &cuda.s, cuda.out, 1, cols));
            memcpy(alone + s * cols, tc_cuda->buffer_row(cuda.s.ctx, 0, cuda.out, 0), (size_t)cols * sizeof *alone);
        }
        if (!CHECK(worst < c->tolerance)) printf("    %s: %.2e\n", c->name, worst);
        for (int rows = 1; rows < 12; rows += 10) { /* rows of the first one */
            step_begin(&t, TC_PAGES);
            for (int s = 0; s < 3; s++) tc_add(&t, s, before[s] + 1 - (s ? 1 : rows), s ? 1 : rows, 0);
            tc_attend_run(&cuda, c, &t, 0);
            for (int s = 0; s < 3; s++) {
                const float *row = tc_cuda->buffer_row(cuda.s.ctx, 0, cuda.out, rows - 1 + s);
                if (!CHECK(!memcmp(row, alone + s * cols, (size_t)cols * sizeof *row)))
                    printf("    %s: sequence %d with %d rows\n", c->name, s, rows);
            }
        }
        cpu.s.be->close(cpu.s.ctx);
        cuda.s.be->close(cuda.s.ctx);
        llm__arena_free(&tc_memory);
        free(alone);
    }
}

/* Prompts behind what is in the pages already: the CPU's results, and the same bits alone and behind rows of other sequences, which lie in
 * other tiles then. */
static void tc_prompts(void) {
    /* clang-format off */
    static const tc_case cases[] = {
        {"bf16, window", 8, 2, 128, 128, 64, 0, LLM_QK_NORM_NONE, 50, 0, 0, 0, 0, LLM_KV_BF16, 1e-2, 48, 0},
        {"int8", 4, 1, 128, 128, 64, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_INT8, 1e-2, 48, 0},
        {"int4, odd rows, cap", 3, 1, 72, 56, 32, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 4, LLM_KV_INT4, 2e-2, 48, 0},
        {"f16, alibi", 5, 5, 64, 64, 0, 0, LLM_QK_NORM_NONE, 0, 0, 0, 1, 0, LLM_KV_F16, 2e-3, 48, 0},
        {"e4m3, wide heads", 2, 2, 192, 168, 32, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_FP8_E4M3, 1e-2, 48, 0}};
    /* clang-format on */
    enum { BEFORE = 150, ROWS = 50, OTHERS = 23 };
    for (int i = 0; i < LLM__COUNT(cases); i++) {
        const tc_case *c = &cases[i];
        const int cols = c->n_heads * c->vd;
        float *alone = (float *)malloc((size_t)(ROWS * cols) * sizeof *alone);
        tc_attend cpu, cuda;
        test_step t;
        int same = 1;
        tc_attend_open(&cpu, llm_backend_cpu(), c);
        tc_attend_open(&cuda, tc_cuda, c);
        step_begin(&t, TC_PAGES);
        tc_add(&t, 0, 0, BEFORE, 0);
        tc_attend_run(&cpu, c, &t, 1);
        tc_attend_run(&cuda, c, &t, 1);
        step_begin(&t, TC_PAGES);
        tc_add(&t, 0, BEFORE, ROWS, 0);
        tc_attend_run(&cpu, c, &t, 0);
        tc_attend_run(&cuda, c, &t, 0);
        double worst = tc_compare(&cpu.s, cpu.out, &cuda.s, cuda.out, ROWS, cols);
        if (!CHECK(worst < c->tolerance)) printf("    %s: %.2e\n", c->name, worst);
        for (int k = 0; k < ROWS; k++)
            memcpy(alone + k * cols, tc_cuda->buffer_row(cuda.s.ctx, 0, cuda.out, k), (size_t)cols * sizeof *alone);
        step_begin(&t, TC_PAGES);
        tc_add(&t, 1, 0, OTHERS, 0);
        tc_add(&t, 0, BEFORE, ROWS, 0);
        tc_attend_run(&cuda, c, &t, 0);
        for (int k = 0; k < ROWS; k++)
            same &= !memcmp(alone + k * cols, tc_cuda->buffer_row(cuda.s.ctx, 0, cuda.out, OTHERS + k), (size_t)cols * sizeof *alone);
        if (!CHECK(same)) printf("    %s: other bits beside another sequence\n", c->name);
        cpu.s.be->close(cpu.s.ctx);
        cuda.s.be->close(cuda.s.ctx);
        llm__arena_free(&tc_memory);
        free(alone);
    }
}

/* One side of tc_groups: three sequences, of which the first two have something in the pages, with rows of all of them in one tile; what comes
 * out goes to `out`. spans: what rows see is told by the step. */
static void tc_groups_side(const tc_case *c, const llm_backend *be, int spans, float *out, char *described) {
    static const int before[3] = {301, 41, 0}, rows[3] = {45, 23, 30};
    const int cols = c->n_heads * c->vd;
    int32_t span[2 * TC_ROWS];
    tc_attend a;
    test_step t;
    tc_attend_open(&a, be, c);
    snprintf(described, 320, "%s", be->describe(a.s.ctx));
    for (int s = 0; s < 2; s++)
        for (int at = 0, n; at < before[s]; at += n) {
            step_begin(&t, TC_PAGES);
            tc_add(&t, s, at, n = LLM__MIN(TC_ROWS, before[s] - at), 0);
            tc_attend_run(&a, c, &t, 1);
        }
    step_begin(&t, TC_PAGES);
    for (int s = 0; s < 3; s++) tc_add(&t, s, before[s], rows[s], 0);
    const int n = t.s.shape.n_rows;
    for (int i = 0, s = 0; i < n; i++) { /* as if pictures of 40 tokens stood there, and nothing far behind counted */
        s += i == t.seq_begin[s + 1];
        const int at = t.seq_len[s] - (t.seq_begin[s + 1] - i);
        span[i] = LLM__MAX(0, at - 170), span[n + i] = LLM__MIN(t.seq_len[s], at / 40 * 40 + 40);
    }
    if (spans) t.s.spans = span;
    tc_attend_run(&a, c, &t, 0);
    for (int i = 0; i < n; i++) memcpy(out + i * cols, be->buffer_row(a.s.ctx, 0, a.out, i), (size_t)cols * sizeof *out);
    be->close(a.s.ctx);
    llm__arena_free(&tc_memory);
}

static double tc_worst(const float *a, const float *b, int n) {
    double worst = 0;
    for (int i = 0; i < n; i++) worst = a[i] == a[i] && b[i] == b[i] ? LLM__MAX(worst, fabs(a[i] - b[i])) : 1e30;
    return worst;
}

/* Prompts by the products of warpgroups, several steps of keys long: beside the CPU, and beside those of warps. */
static void tc_groups(void) {
    /* clang-format off */
    static const tc_case cases[] = {
        {"f16, 4 heads of a key", 8, 2, 64, 64, 32, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3, 48, 0},
        {"bf16, 7 heads of a key, window, sinks, cap", 7, 1, 128, 128, 64, 0, LLM_QK_NORM_NONE, 150, 0, 1, 0, 5, LLM_KV_BF16, 1e-2, 48, 0},
        {"f16, heads of 80, alibi", 3, 3, 80, 80, 0, 0, LLM_QK_NORM_NONE, 0, 0, 0, 1, 0, LLM_KV_F16, 2e-3, 48, 0},
        {"bf16, heads of 96 and 72, spans", 4, 1, 96, 72, 32, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_BF16, 1e-2, 48, 0},
        {"f16, spans, window", 7, 1, 64, 48, 32, 0, LLM_QK_NORM_NONE, 100, 0, 0, 0, 0, LLM_KV_F16, 2e-3, 48, 0},
        {"f16, both ways", 2, 2, 128, 128, 32, 0, LLM_QK_NORM_NONE, 140, 1, 0, 0, 0, LLM_KV_F16, 2e-3, 48, 0},
        {"int8", 4, 1, 128, 128, 64, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, LLM_KV_INT8, 1e-2, 48, 0},
        {"e4m3, sinks", 7, 1, 64, 64, 64, 0, LLM_QK_NORM_NONE, 0, 0, 1, 0, 0, LLM_KV_FP8_E4M3, 1e-2, 48, 0},
        {"int4, odd bytes", 3, 1, 72, 56, 32, 0, LLM_QK_NORM_NONE, 0, 0, 0, 0, 4, LLM_KV_INT4, 2e-2, 48, 0}};
    /* clang-format on */
    const char *arch = getenv("CUEMU_ARCH");
    for (int i = 0; i < LLM__COUNT(cases); i++) {
        const tc_case *c = &cases[i];
        const int n = 98 * c->n_heads * c->vd, spans = strstr(c->name, "spans") != NULL;
        float *out = (float *)malloc(3 * (size_t)n * sizeof *out);
        char described[3][320];
        tc_groups_side(c, llm_backend_cpu(), spans, out, described[0]);
        tc_groups_side(c, tc_cuda, spans, out + n, described[1]);
        setenv("LLM_CUDA_NO_WGMMA", "1", 1);
        tc_groups_side(c, tc_cuda, spans, out + 2 * n, described[2]);
        unsetenv("LLM_CUDA_NO_WGMMA");
        const double cpu = tc_worst(out, out + n, n), other = tc_worst(out + n, out + 2 * n, n);
        if (!CHECK(cpu < c->tolerance && other < c->tolerance)) printf("    %s: %.2e, beside mma.sync %.2e\n", c->name, cpu, other);
        if (tc_emulated() && (!arch || !strcmp(arch, "90"))) { /* a device chooses */
            const char *wanted = LLM__MAX(c->hd, c->vd) > 64 ? "up to 128 by wgmma" : "up to 64 by wgmma";
            if (!CHECK(strstr(described[1], wanted) != NULL)) printf("    %s\n", described[1]);
            CHECK(strstr(described[2], "wgmma") == NULL);
        }
        free(out);
    }
}

/* ---- latent attention, mixtures of experts ---- */

enum { TC_MLA_ROWS = 42 + 59 + 6, TC_MLA_LONG_ROWS = 155 + 150 + 6 }; /* of all steps */

/* Rank and rope of tc_mla_wide are DeepSeek-V2's. Long: single rows have keys of two splits, with `prompt` the same rows are two of a prompt. */
static const struct tc_mla {
    int heads, nope, rope, v, rank, page, chunk[4][3];
    int32_t type;                                   /* of kv_b */
    int index_heads, index_dim, pairs, topk, equal; /* of an indexer; topk 0: there is none. equal: most scores are */
    float spread;                                   /* of its queries */
} tc_mla_small = {18, 12, 8, 10, 24, TC_PAGE, {{37, 5, 0}, {9, 20, 30}, {1, 1, 1}, {1, 1, 1}}, LLM_TYPE_F32, 0, 0, 0, 0, 0, 0},
  tc_mla_odd = {3, 12, 6, 10, 24, TC_PAGE, {{37, 5, 0}, {9, 20, 30}, {1, 1, 1}, {1, 1, 1}}, LLM_TYPE_F32, 0, 0, 0, 0, 0, 0},
  tc_mla_wide = {16, 4, 64, 4, 512, TC_PAGE, {{37, 5, 0}, {9, 20, 30}, {1, 1, 1}, {1, 1, 1}}, LLM_TYPE_I8, 0, 0, 0, 0, 0, 0},
  tc_mla_long = {18, 140, 16, 10, 32, 48, {{150, 5, 0}, {140, 10, 0}, {1, 1, 1}, {1, 1, 1}}, LLM_TYPE_F32, 0, 0, 0, 0, 0, 0},
  tc_mla_prompt = {18, 140, 16, 10, 32, 48, {{150, 5, 0}, {140, 10, 0}, {2, 0, 0}, {0, 2, 2}}, LLM_TYPE_F32, 0, 0, 0, 0, 0, 0};

/* An adapter of kv_b in a slot: A (r, rank) and B (r, rows of kv_b). */
static void tc_mla_put(const struct tc_mla *m, const tc_side *s, llm_lora_site *site, int slot, int r) {
    const int rows = m->heads * (m->nope + m->v), rank = m->rank;
    llm_segment g[2];
    llm_weight_desc d[2];
    memset(g, 0, sizeof g);
    memset(d, 0, sizeof d);
    for (int k = 0; k < 2; k++) {
        int n = k ? rows : rank;
        g[k].data = tc_floats(r * n, (uint32_t)(80 + 2 * slot + k), 0, 0.3f);
        g[k].stored_cols = g[k].n_cols = d[k].cols = n;
        g[k].n_rows = d[k].rows = r;
        d[k].name = "kv_b's";
        d[k].role = LLM_ROLE_MLA_UP;
        d[k].segments = &g[k];
        d[k].n_segments = 1;
    }
    llm_lora_part part = {0, &d[0], &d[1]};
    CHECK(s->be->lora_put(s->ctx, 0, site, slot, &part, 1) == LLM_OK);
}

/* What an indexer reads: queries of Q values and keys with weights of K, by rows of tables. Most scores are equal where keys are of three kinds,
 * heads of different signs leave many at 0, and some rows have weights that are no numbers. */
static void tc_index_tables(const struct tc_mla *d, const tc_side *s, llm_weight **table) {
    const int Q = d->index_heads * d->index_dim, K = d->index_dim + d->index_heads;
    float *keys = tc_floats(TC_ROWS * K, 6, 0, 1.5f);
    for (int r = 3; r < TC_ROWS && d->equal; r++) memcpy(keys + r * K, keys + r % 3 * K, (size_t)d->index_dim * sizeof *keys);
    for (int r = 5; r < TC_ROWS && d->equal; r += 20)
        for (int h = 0; h < d->index_heads; h++) keys[r * K + d->index_dim + h] = NAN;
    for (int r = 1; r < TC_ROWS && d->equal; r += 5) keys[r * K + d->index_dim] = INFINITY; /* times 0 no number */
    table[0] = tc_weight(s, LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * Q, 7, 0, d->spread), TC_ROWS, Q, 0);
    table[1] = tc_weight(s, LLM_ROLE_EMBED, LLM_TYPE_F32, keys, TC_ROWS, K, 0);
}

/* The operation, with buffers and norms of its own. */
static llm_index_op tc_index_of(const struct tc_mla *d, const tc_side *s, llm_buffer *rope) {
    const int n = d->index_dim;
    const llm_index_op op = {.dst = tc_buffer(s, TC_ROWS, d->topk),
                             .q = tc_buffer(s, TC_ROWS, d->index_heads * n),
                             .k = tc_buffer(s, TC_ROWS, n + d->index_heads),
                             .k_norm = tc_weight(s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(n, 8, 1, 0.5f), 1, n, 0),
                             .k_bias = tc_weight(s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(n, 9, 0, 0.5f), 1, n, 0),
                             .rope = rope,
                             .rope_dim = d->rope,
                             .rope_interleaved = d->pairs,
                             .n_heads = d->index_heads,
                             .head_dim = n,
                             .topk = d->topk,
                             .eps = 1e-6f};
    return op;
}

/* Three sequences in chunks, then one row each, of one side; what comes out goes to out, what an indexer chose to chosen (rows, topk), -1 where a
 * row has no choice. adapted: two of them have adapters of kv_b, the last one's slot is empty. */
static void tc_mla_side(const struct tc_mla *d, const llm_backend *be, llm_kv_type kv, int adapted, float *out, int32_t *chosen) {
    const int Q = d->heads * (d->nope + d->rope), A = d->rank + d->rope, V = d->heads * d->v;
    const int rows = d->heads * (d->nope + d->v);
    const void *kv_b = d->type == LLM_TYPE_I8 ? (const void *)tc_stored(d->type, rows, d->rank, 4) : tc_floats(rows * d->rank, 4, 0, 0.3f);
    static const int32_t slots[3] = {1, 0, 2};
    llm_lora_site *site = NULL;
    llm_backend_config c = tc_config(LLM_COMPUTE_F32, kv);
    c.isa = d->topk ? "scalar" : NULL; /* whose scores are in f32 */
    c.indexed = d->topk ? TC_PAGES * d->page : 0;
    tc_side s = tc_open(be, &c);
    llm_kv_layer layer = {1, d->topk ? d->index_dim : A, d->topk ? A : 0, 0};
    llm_index_op index;
    llm_weight *index_table[2];
    llm_weight *table[2] = {tc_weight(&s, LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * Q, 1, 0, 1.5f), TC_ROWS, Q, 0),
                            tc_weight(&s, LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * A, 2, 0, 1.5f), TC_ROWS, A, 0)};
    llm_rope_op rope;
    llm_mla_op op;
    int at[3] = {0, 0, 0};
    memset(&rope, 0, sizeof rope);
    memset(&op, 0, sizeof op);
    op.dst = tc_buffer(&s, TC_ROWS, V);
    op.q = tc_buffer(&s, TC_ROWS, Q);
    op.kv_a = tc_buffer(&s, TC_ROWS, A);
    op.rope = rope.dst = tc_buffer(&s, TC_ROWS, d->rope);
    op.kv_norm = tc_weight(&s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(d->rank, 3, 1, 0.5f), 1, d->rank, 0);
    op.kv_b = tc_weight_of_heads(&s, LLM_ROLE_MLA_UP, d->type, kv_b, rows, d->rank, 0, d->heads, d->nope);
    rope.inv_freq = tc_weight(&s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(d->rope / 2, 5, d->equal ? 0 : 0.5f, d->equal ? 0 : 0.4f), 1,
                              d->rope / 2, 0);
    rope.n_variants = 1;
    rope.rope_dim = op.rope_dim = d->rope;
    if (d->topk) {
        tc_index_tables(d, &s, index_table);
        index = tc_index_of(d, &s, rope.dst);
        op.chosen = index.dst;
        op.topk = d->topk;
    }
    op.eps = 1e-6f;
    op.scale = 0.3f;
    op.rope_interleaved = 1;
    op.n_heads = d->heads;
    op.nope = d->nope;
    op.v_dim = d->v;
    op.rank = d->rank;
    CHECK(be->lora_site(s.ctx, 0, 3, &site) == LLM_OK);
    tc_mla_put(d, &s, site, 0, 5);
    tc_mla_put(d, &s, site, 1, 40);
    op.lora = adapted ? site : NULL;
    /* queries that grow with their positions, which pages that turn what they keep leave as they are (Mistral 4) */
    const llm_qkv_op stretch = {
        .qkv = op.q, .n_heads = d->heads, .n_kv_heads = 1, .head_dim = d->nope + d->rope, .logn_from = 8, .logn_beta = 0.3f, .shared = 1};
    CHECK(be->weights_done(s.ctx) == LLM_OK && be->kv_open(s.ctx, 1, &layer, d->page, TC_SEQS * TC_PAGES) == LLM_OK);
    for (int k = 0; k < 4; k++) {
        test_step t;
        step_begin(&t, TC_PAGES);
        for (int i = 0; i < 3; i++) {
            if (d->chunk[k][i]) tc_add(&t, i, at[i], d->chunk[k][i], 0);
            at[i] += d->chunk[k][i];
        }
        t.s.shape.lora = adapted;
        t.s.seq_lora = adapted ? slots : NULL;
        CHECK(be->begin_step(s.ctx, &t.s) == LLM_OK);
        tc_embed(&s, op.q, table[0]);
        tc_embed(&s, op.kv_a, table[1]);
        be->rope(s.ctx, 0, &rope);
        if (d->topk) {
            tc_embed(&s, index.q, index_table[0]);
            tc_embed(&s, index.k, index_table[1]);
            be->index(s.ctx, 0, &index);
        } else be->qkv(s.ctx, 0, &stretch);
        be->mla(s.ctx, 0, &op);
        tc_run(&s);
        for (int r = 0; r < t.s.shape.n_rows; r++, out += V) memcpy(out, be->buffer_row(s.ctx, 0, op.dst, r), (size_t)V * sizeof *out);
        for (int r = 0; r < t.s.shape.n_rows && d->topk; r++, chosen += d->topk) {
            memset(chosen, 0xff, (size_t)d->topk * sizeof *chosen);
            if (t.positions[r] >= d->topk) memcpy(chosen, be->buffer_row(s.ctx, 0, index.dst, r), (size_t)d->topk * sizeof *chosen);
        }
    }
    be->close(s.ctx);
}

static void tc_latent(void) {
    enum { V = 18 * 10, N = TC_MLA_ROWS * V };
    /* clang-format off */
    static const struct {
        llm_kv_type kv;
        double tolerance;
    } types[] = {{LLM_KV_F32, 1e-5}, {LLM_KV_F16, 2e-3}, {LLM_KV_BF16, 1e-2}, {LLM_KV_FP8_E4M3, 1e-2}, {LLM_KV_INT8, 1e-3}, {LLM_KV_INT4, 1e-3}};
    /* clang-format on */
    static float a[N], b[N], plain[N];
    for (int i = 0; i < LLM__COUNT(types); i++) {
        for (int adapted = 0; adapted < 2; adapted++) {
            double worst = 0, top = 0;
            if (adapted) memcpy(plain, b, sizeof plain);
            tc_mla_side(&tc_mla_small, llm_backend_cpu(), types[i].kv, adapted, a, NULL);
            tc_mla_side(&tc_mla_small, tc_cuda, types[i].kv, adapted, b, NULL);
            for (int k = 0; k < N; k++) worst = fmax(worst, fabs((double)a[k] - (double)b[k])), top = fmax(top, fabs((double)a[k]));
            if (!CHECK(worst < types[i].tolerance * top))
                printf("    latent attention, pages of type %d, adapted %d: %.2e\n", (int)types[i].kv, adapted, worst / top);
            llm__arena_free(&tc_memory);
        }
        /* the third sequence's rows stand last in each step: without an adapter they keep their bits */
        for (int k = 0; k < 30; k++) CHECK(!memcmp(plain + (42 + 29 + k) * V, b + (42 + 29 + k) * V, V * sizeof *b));
        CHECK(memcmp(plain, b, V * sizeof *b));
    }
    /* what attention gives of some rows begins anywhere in memory */
    double worst = 0;
    tc_mla_side(&tc_mla_odd, llm_backend_cpu(), LLM_KV_F32, 0, a, NULL);
    tc_mla_side(&tc_mla_odd, tc_cuda, LLM_KV_F32, 0, b, NULL);
    for (int k = 0; k < TC_MLA_ROWS * 3 * 10; k++) worst = fmax(worst, fabs((double)a[k] - (double)b[k]));
    if (!CHECK(worst < 1e-4)) printf("    latent attention, odd places: %.2e\n", worst);
    llm__arena_free(&tc_memory);
}

/* Latents as wide as DeepSeek-V2's, kv_b in bytes with a scale a row, and on devices whose blocks have less shared memory than a tile of 16 heads takes. */
static void tc_latent_wide(void) {
    enum { N = TC_MLA_ROWS * 16 * 4 };
    static float want[N], got[N], small[N];
    double worst = 0, top = 0;
    tc_mla_side(&tc_mla_wide, llm_backend_cpu(), LLM_KV_F16, 0, want, NULL);
    tc_mla_side(&tc_mla_wide, tc_cuda, LLM_KV_F16, 0, got, NULL);
    for (int k = 0; k < N; k++) worst = fmax(worst, fabs((double)want[k] - (double)got[k])), top = fmax(top, fabs((double)want[k]));
    if (!CHECK(worst < 2e-3 * top)) printf("    wide latents: %.2e\n", worst / top);
    setenv("CUEMU_ARCH", "89", 1); /* 99 KiB */
    tc_mla_side(&tc_mla_wide, tc_cuda, LLM_KV_F16, 0, small, NULL);
    unsetenv("CUEMU_ARCH");
    worst = 0; /* only by how the keys are split */
    for (int k = 0; k < N; k++) worst = fmax(worst, fabs((double)small[k] - (double)got[k]));
    if (!CHECK(worst < 1e-5 * top)) printf("    wide latents, less shared memory: %.2e\n", worst / top);
    llm__arena_free(&tc_memory);
}

/* Rows whose keys are several splits: as the CPU has them, and with the same bits where they are rows of a prompt. */
static void tc_latent_long(void) {
    enum { V = 18 * 10, N = TC_MLA_LONG_ROWS * V };
    static float want[N], got[N], prompt[N];
    static const llm_kv_type types[] = {LLM_KV_F16, LLM_KV_BF16};
    for (int i = 0; i < 2; i++) {
        double worst = 0, top = 0;
        tc_mla_side(&tc_mla_long, llm_backend_cpu(), types[i], 0, want, NULL);
        tc_mla_side(&tc_mla_long, tc_cuda, types[i], 0, got, NULL);
        tc_mla_side(&tc_mla_prompt, tc_cuda, types[i], 0, prompt, NULL);
        for (int k = 0; k < N; k++) worst = fmax(worst, fabs((double)want[k] - (double)got[k])), top = fmax(top, fabs((double)want[k]));
        if (!CHECK(worst < (i ? 1e-2 : 2e-3) * top)) printf("    long latents, type %d: %.2e\n", (int)types[i], worst / top);
        for (int k = 0; k < 2; k++) CHECK(!memcmp(got + (305 + 3 * k) * V, prompt + (305 + k) * V, V * sizeof *got));
        llm__arena_free(&tc_memory);
    }
}

/* Indexers: the same positions chosen as on the CPU, but for those at the edge that a rounding of a key moves, and the same attention to them. Where
 * scores are equal, or no numbers, nothing may move. Rows behind topk see a list, those before it all; lists of two splits; widths and pages for
 * tensor cores and not, with queries of halves that would be too large. */
static void tc_indexer(void) {
    enum { N = TC_MLA_LONG_ROWS, MOST = 270 };
    static const struct {
        struct tc_mla d;
        llm_kv_type kv;
        double tolerance; /* of what comes out */
    } cases[] = {
#define TC_SMALL 18, 12, 8, 10, 24, TC_PAGE, {{37, 5, 0}, {9, 20, 30}, {1, 1, 1}, {1, 1, 1}}, LLM_TYPE_F32
#define TC_MIDDLE 18, 12, 16, 10, 32, TC_PAGE, {{37, 5, 0}, {9, 20, 30}, {1, 1, 1}, {1, 1, 1}}, LLM_TYPE_F32
#define TC_LONG 18, 12, 16, 10, 32, 48, {{150, 5, 0}, {140, 10, 0}, {1, 1, 1}, {1, 1, 1}}, LLM_TYPE_F32
#define TC_WIDE 16, 4, 64, 4, 512, TC_PAGE, {{37, 5, 0}, {9, 20, 30}, {1, 1, 1}, {1, 1, 1}}, LLM_TYPE_F32
        {{TC_SMALL, 6, 20, 0, 20, 0, 1.5f}, LLM_KV_F32, 1e-5},     {{TC_SMALL, 5, 16, 1, 1, 0, 1.5f}, LLM_KV_F32, 1e-5},
        {{TC_SMALL, 6, 20, 0, 33, 1, 1.5f}, LLM_KV_F32, 1e-5},     {{TC_MIDDLE, 7, 24, 1, 20, 1, 1.5f}, LLM_KV_F16, 2e-3},
        {{TC_MIDDLE, 50, 32, 0, 24, 0, 1e7f}, LLM_KV_F16, 2e-3},   {{TC_SMALL, 6, 20, 0, 24, 0, 1.5f}, LLM_KV_F16, 2e-3},
        {{TC_MIDDLE, 16, 128, 1, 24, 0, 1.5f}, LLM_KV_BF16, 1e-2}, {{TC_SMALL, 6, 32, 0, 20, 0, 1.5f}, LLM_KV_INT8, 1e-3},
        {{TC_SMALL, 6, 32, 0, 20, 1, 1.5f}, LLM_KV_INT4, 1e-3},    {{TC_SMALL, 6, 32, 0, 20, 0, 1.5f}, LLM_KV_FP8_E4M3, 1e-2},
        {{TC_LONG, 20, 64, 0, MOST, 0, 1.5f}, LLM_KV_F16, 2e-3},   {{TC_LONG, 33, 40, 0, 70, 1, 1.5f}, LLM_KV_BF16, 1e-2},
        {{TC_WIDE, 6, 64, 0, 20, 0, 1.5f}, LLM_KV_F16, 2e-3},
#undef TC_SMALL
#undef TC_MIDDLE
#undef TC_LONG
#undef TC_WIDE
    };
    static float want[N * 18 * 10], got[N * 18 * 10];
    static int32_t right[N * MOST], chosen[N * MOST];
    for (int i = 0; i < LLM__COUNT(cases); i++) {
        const struct tc_mla *d = &cases[i].d;
        const size_t each = (size_t)d->topk * sizeof *chosen;
        const int V = d->heads * d->v;
        double worst = 0, top = 0;
        int rows = 0, choices = 0, moved = 0;
        if (TEST_BRIEF && i != 2 && i != 3 && i != 4 && i != 8) continue;
        for (int k = 0; k < 4; k++)
            for (int q = 0; q < 3; q++) rows += d->chunk[k][q];
        tc_mla_side(d, llm_backend_cpu(), cases[i].kv, 0, want, right);
        tc_mla_side(d, tc_cuda, cases[i].kv, 0, got, chosen);
        for (int r = 0; r < rows; r++) {
            choices += right[r * d->topk] >= 0;
            if (memcmp(right + r * d->topk, chosen + r * d->topk, each)) moved++;
            else
                for (int k = r * V; k < (r + 1) * V; k++)
                    worst = fmax(worst, fabs((double)want[k] - (double)got[k])), top = fmax(top, fabs((double)want[k]));
        }
        if (!CHECK(choices > 10 && moved <= (d->equal || cases[i].kv == LLM_KV_F32 ? 0 : choices / 20) && worst < cases[i].tolerance * top))
            printf("    indexer %d: %d of %d choices differ, out by %.2e\n", i, moved, choices, worst / top);
        llm__arena_free(&tc_memory);
    }
}

/* Steps that do not fit an indexer are refused in the CPU's words. */
static void tc_indexer_refused(void) {
    static const struct tc_mla d = {2, 4, 8, 4, 24, TC_PAGE, {{0}}, LLM_TYPE_F32, 2, 16, 0, 8, 0, 1};
    const llm_kv_layer layers[2] = {{1, 16, 32, 0}, {1, 32, 0, 0}};
    llm_backend_config c = tc_config(LLM_COMPUTE_F32, LLM_KV_F32);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < 7; i++) {
            test_step t;
            c.indexed = i == 6 ? 64 : 128;
            tc_side s = tc_open(side ? tc_cuda : llm_backend_cpu(), &c);
            llm_index_op op = tc_index_of(&d, &s, tc_buffer(&s, TC_ROWS, 8));
            CHECK(s.be->weights_done(s.ctx) == LLM_OK && s.be->kv_open(s.ctx, 2, layers, TC_PAGE, 64) == LLM_OK);
            if (i == 0) op.layer = 2;
            if (i == 1) op.layer = 1;
            if (i == 2) op.topk = 9;
            if (i == 3) op.n_heads = 3;
            if (i == 4) op.rope_dim = 18;
            if (i == 5) op.topk = 0;
            step_begin(&t, TC_PAGES);
            tc_add(&t, 0, 0, 70, 0);
            CHECK(s.be->begin_step(s.ctx, &t.s) == LLM_OK);
            s.be->index(s.ctx, 0, &op);
            const char *words = i < 2   ? "index: the layer does not fit"
                                : i < 6 ? "index: heads, widths or topk"
                                        : "more positions than indexed";
            if (!CHECK(s.be->end_step(s.ctx) == LLM_ERR_ARG && strstr(llm_last_error(), words)))
                printf("    %d: %s\n", i, llm_last_error());
            s.be->close(s.ctx);
            llm__arena_free(&tc_memory);
        }
    llm_backend_ctx *ctx = NULL;
    c.indexed = -1;
    CHECK(tc_cuda->open(&c, &ctx) == LLM_ERR_ARG && strstr(llm_last_error(), "indexed -1"));
}

/* Routes of all kinds, and the experts they choose, of several formats; odd numbers of rows, more slots than kernel_slots
 * has threads, and one row (decoding, captured). */
static void tc_mixtures(void) {
    enum { D = 64, FF = 32 };
    /* clang-format off */
    static const struct {
        int n, k, score, correction, groups, keep, top2, normalize, type;
        float scale;
        int weigh, plain; /* weights multiply what experts read; no gate */
    } cases[] = {{8, 2, LLM_ROUTE_SIGMOID, 0, 0, 0, 0, 0, LLM_TYPE_F32, 0, 1, 0},  {16, 3, LLM_ROUTE_SIGMOID, 1, 0, 0, 0, 1, LLM_TYPE_Q8_0, 2, 0, 1},
                 {12, 3, LLM_ROUTE_SIGMOID, 0, 0, 0, 0, 1, LLM_TYPE_BF16, 0, 1, 1}, {8, 2, LLM_ROUTE_SOFTMAX, 0, 0, 0, 0, 1, LLM_TYPE_F32, 0, 0, 0},    {64, 6, LLM_ROUTE_SOFTMAX, 0, 8, 3, 0, 0, LLM_TYPE_BF16, 16, 0, 0},
                 {32, 4, LLM_ROUTE_TOPK_SOFTMAX, 0, 0, 0, 0, 0, LLM_TYPE_Q4_0, 0, 0, 0}, {64, 8, LLM_ROUTE_SIGMOID, 1, 8, 4, 1, 1, LLM_TYPE_Q8_0, 2.5f, 0, 0},
                 {4, 4, LLM_ROUTE_SOFTMAX, 0, 0, 0, 0, 0, LLM_TYPE_F8_E4M3, 0, 0, 0},    {40, 2, LLM_ROUTE_SPARSEMIXER, 0, 0, 0, 0, 0, LLM_TYPE_F32, 0, 0, 0}};
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(cases); i++) {
        int n = cases[i].n;
        tc_side s[2];
        llm_buffer *routes[2], *y[2];
        for (int round = 0; round < 3; round++)
            for (int k = 0; k < 2; k++) {
                static llm_weight *table[2], *logits[2];
                static llm_route_op route[2];
                static llm_experts_op op[2];
                static llm_buffer *x[2], *l[2];
                llm_linear_op line;
                test_step t;
                if (!round) {
                    llm_backend_config c = tc_config(k ? LLM_COMPUTE_AUTO : LLM_COMPUTE_F32, LLM_KV_AUTO);
                    s[k] = tc_open(k ? tc_cuda : llm_backend_cpu(), &c);
                    memset(&route[k], 0, sizeof *route);
                    memset(&op[k], 0, sizeof *op);
                    table[k] = tc_weight(&s[k], LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * D, 1, 0, 1), TC_ROWS, D, 0);
                    logits[k] = tc_weight(&s[k], LLM_ROLE_LINEAR, LLM_TYPE_F32, tc_floats(n * D, 2, 0, 0.3f), n, D, 0);
                    const int up = n * (cases[i].plain ? 1 : 2) * FF;
                    op[k].gate_up = tc_weight(&s[k], cases[i].plain ? LLM_ROLE_EXPERTS : LLM_ROLE_EXPERTS_GATE_UP, cases[i].type,
                                              tc_stored(cases[i].type, up, D, 5), up, D, n);
                    op[k].down = tc_weight(&s[k], LLM_ROLE_EXPERTS, cases[i].type, tc_stored(cases[i].type, n * D, FF, 6), n * D, FF, n);
                    op[k].gate_up_bias = tc_weight(&s[k], LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(up, 7, 0, 0.5f), 1, up, 0);
                    route[k].correction =
                        cases[i].correction ? tc_weight(&s[k], LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(n, 8, 0, 0.2f), 1, n, 0) : NULL;
                    op[k].src = x[k] = tc_buffer(&s[k], TC_ROWS, D);
                    route[k].logits = l[k] = tc_buffer(&s[k], TC_ROWS, n);
                    op[k].routes = route[k].dst = routes[k] = tc_buffer(&s[k], TC_ROWS, 2 * cases[i].k);
                    op[k].dst = y[k] = tc_buffer(&s[k], TC_ROWS, D);
                    op[k].n_experts = route[k].n_experts = n;
                    op[k].k = route[k].k = cases[i].k;
                    op[k].ff = FF;
                    op[k].act = cases[i].plain ? LLM_ACT_RELU2 : i % 2 ? LLM_ACT_GELU_TANH : LLM_ACT_SILU;
                    op[k].add = i % 2;
                    op[k].weigh_input = cases[i].weigh;
                    route[k].score = (llm_route_score)cases[i].score;
                    route[k].n_group = cases[i].groups, route[k].topk_group = cases[i].keep, route[k].group_top2 = cases[i].top2;
                    route[k].normalize = cases[i].normalize, route[k].scale = cases[i].scale, route[k].near = 0.5f;
                    CHECK(s[k].be->weights_done(s[k].ctx) == LLM_OK);
                }
                memset(&line, 0, sizeof line);
                line.dst = l[k];
                line.src = x[k];
                line.weight = logits[k];
                step_begin(&t, TC_PAGES);
                tc_add(&t, 0, 0, round ? 1 : cases[i].k == 8 ? 150 : 41, 0);
                CHECK(s[k].be->begin_step(s[k].ctx, &t.s) == LLM_OK);
                tc_embed(&s[k], x[k], table[k]);
                tc_embed(&s[k], y[k], table[k]);
                s[k].be->linear(s[k].ctx, 0, &line);
                s[k].be->route(s[k].ctx, 0, &route[k]);
                s[k].be->experts(s[k].ctx, 0, &op[k]);
                tc_run(&s[k]);
                if (!k) continue;
                int rows = t.s.shape.n_rows;
                double e = tc_compare(&s[0], routes[0], &s[1], routes[1], rows, 2 * cases[i].k),
                       f = tc_compare(&s[0], y[0], &s[1], y[1], rows, D);
                if (!CHECK(e < 1e-5 && f < (cases[i].type == LLM_TYPE_BF16 ? 1e-2 : 2e-3)))
                    printf("    experts, case %d, %d rows: routes %.2e, results %.2e\n", i, rows, e, f);
            }
        for (int k = 0; k < 2; k++) s[k].be->close(s[k].ctx);
        llm__arena_free(&tc_memory);
    }
}

enum { TC_TILE_EXPERTS = 2 };

/* Experts of which every row has both, on one side. */
typedef struct tc_tiles_side {
    tc_side s;
    llm_weight *table, *logits;
    llm_buffer *x, *l, *routes, *y;
    llm_weight *gate_up, *down, *bias;
    int ff, weigh; /* weigh: choices count by what they read */
} tc_tiles_side;

/* D: hidden size, ff: that of an expert. Each third row of x is too large for a half. */
static void tc_tiles_open(tc_tiles_side *m, const llm_backend *be, int32_t type, int D, int ff) {
    enum { N = TC_TILE_EXPERTS };
    const llm_backend_config config = tc_config(be == tc_cuda ? LLM_COMPUTE_AUTO : LLM_COMPUTE_F32, LLM_KV_AUTO);
    float *values = tc_floats(TC_ROWS * D, 1, 0, 1);
    for (int r = 0; r < TC_ROWS; r += 3)
        for (int c = 0; c < D; c += 5) values[r * D + c] *= 3e5f;
    m->s = tc_open(be, &config), m->ff = ff;
    m->table = tc_weight(&m->s, LLM_ROLE_EMBED, LLM_TYPE_F32, values, TC_ROWS, D, 0);
    m->logits = tc_weight(&m->s, LLM_ROLE_LINEAR, LLM_TYPE_F32, tc_floats(N * D, 2, 0, 1e-6f), N, D, 0);
    m->gate_up = tc_weight(&m->s, LLM_ROLE_EXPERTS_GATE_UP, type, tc_stored(type, N * 2 * ff, D, 5), N * 2 * ff, D, N);
    m->down = tc_weight(&m->s, LLM_ROLE_EXPERTS, type, tc_stored(type, N * D, ff, 6), N * D, ff, N);
    m->bias = tc_weight(&m->s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(N * 2 * ff, 7, 0, 0.5f), 1, N * 2 * ff, 0);
    m->x = tc_buffer(&m->s, TC_ROWS, D), m->y = tc_buffer(&m->s, TC_ROWS, D);
    m->l = tc_buffer(&m->s, TC_ROWS, N), m->routes = tc_buffer(&m->s, TC_ROWS, 2 * N);
    CHECK(be->weights_done(m->s.ctx) == LLM_OK && be->kv_open(m->s.ctx, 0, NULL, 16, 1) == LLM_OK);
}

static void tc_tiles_run(const tc_tiles_side *m, int rows) {
    enum { N = TC_TILE_EXPERTS };
    const llm_linear_op line = {.dst = m->l, .src = m->x, .weight = m->logits};
    const llm_route_op route = {.dst = m->routes, .logits = m->l, .n_experts = N, .k = N, .score = LLM_ROUTE_SOFTMAX};
    const llm_experts_op op = {.dst = m->y,
                               .src = m->x,
                               .routes = m->routes,
                               .gate_up = m->gate_up,
                               .gate_up_bias = m->bias,
                               .down = m->down,
                               .n_experts = N,
                               .k = N,
                               .ff = m->ff,
                               .act = LLM_ACT_RELU,
                               .weigh_input = m->weigh};
    test_step t;
    step_begin(&t, TC_PAGES);
    tc_add(&t, 0, 0, rows, 0);
    CHECK(m->s.be->begin_step(m->s.ctx, &t.s) == LLM_OK);
    tc_embed(&m->s, m->x, m->table);
    m->s.be->linear(m->s.ctx, 0, &line);
    m->s.be->route(m->s.ctx, 0, &route);
    m->s.be->experts(m->s.ctx, 0, &op);
    tc_run(&m->s);
}

/* Experts of many rows: by the products of warpgroups and by those of warps, beside the CPU; of each kind of weight; rows of W, columns and
 * rows of x that fill no tile. A row has the same bits among more and fewer rows that go the same way. */
static void tc_tiles(void) {
    /* clang-format off */
    static const struct { int32_t type, D, ff; } formats[] = {
        {LLM_TYPE_F16, 168, 152}, {LLM_TYPE_BF16, 488, 152}, {LLM_TYPE_F8_E4M3, 160, 96}, {LLM_TYPE_I8, 160, 96}, {LLM_TYPE_Q4_0, 480, 160}, {LLM_TYPE_Q4_1, 160, 160}, {LLM_TYPE_Q5_0, 96, 160},
        {LLM_TYPE_Q5_1, 96, 160}, {LLM_TYPE_MXFP4, 160, 96}, {LLM_TYPE_NVFP4_32, 160, 96}, {LLM_TYPE_Q6_K, 256, 256}, {LLM_TYPE_Q2_K, 256, 256}};
    /* clang-format on */
    static const int rows[] = {150, 140, 50, 20}; /* two by warpgroups, where there are some */
    const char *arch = getenv("CUEMU_ARCH");
    for (int i = 0; i < LLM__COUNT(formats); i += TEST_BRIEF ? 4 : 1) {
        const int D = formats[i].D;
        tc_tiles_side m[3]; /* CPU; CUDA; CUDA without wgmma */
        float *first = (float *)llm__arena_get(&tc_memory, sizeof(float) * (size_t)(2 * TC_ROWS * D));
        for (int k = 0; k < 3; k++) {
            if (k == 2) setenv("LLM_CUDA_NO_WGMMA", "1", 1);
            tc_tiles_open(&m[k], k ? tc_cuda : llm_backend_cpu(), formats[i].type, D, formats[i].ff);
            m[k].weigh = i % 4 == 2;
        }
        unsetenv("LLM_CUDA_NO_WGMMA");
        if (tc_emulated() && (!arch || !strcmp(arch, "90"))) CHECK(strstr(tc_cuda->describe(m[1].s.ctx), "experts by wgmma") != NULL);
        CHECK(strstr(tc_cuda->describe(m[2].s.ctx), "experts by wgmma") == NULL);
        for (int n = 0; n < LLM__COUNT(rows); n++)
            for (int k = 0; k < (n < 2 ? 3 : 2); k++) {
                double worst = 0;
                int same = 1;
                tc_tiles_run(&m[k], rows[n]);
                for (int r = 0; r < rows[n] && k; r++) {
                    float *before = first + (k - 1) * TC_ROWS * D + r * D;
                    worst = fmax(worst, tc_row_worst(&m[0].s, m[0].y, &m[k].s, m[k].y, r, D));
                    const float *y = tc_cuda->buffer_row(m[k].s.ctx, 0, m[k].y, r); /* until the next call */
                    if (n == 0 || n == 2) memcpy(before, y, sizeof(float) * (size_t)D);
                    same &= !memcmp(before, y, sizeof(float) * (size_t)D);
                }
                if (!CHECK(worst < (formats[i].type == LLM_TYPE_BF16 ? 3e-2 : 8e-3) && same))
                    printf("    %s, %d rows%s: a row is off by %.2e, %d\n", llm__type_name(formats[i].type), rows[n],
                           k == 2 ? ", without wgmma" : "", worst, same);
            }
        for (int k = 0; k < 3; k++) m[k].s.be->close(m[k].s.ctx);
        llm__arena_free(&tc_memory);
    }
}

/* ---- norms, gather, gate ---- */

static void tc_rows_side(const tc_side *s, const test_step *t, llm_buffer **x, llm_buffer **h, llm_buffer **o) {
    llm_weight *table = tc_weight(s, LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * 100, 1, 0.2f, 1), TC_ROWS, 100, 0);
    llm_weight *w = tc_weight(s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(100, 2, 1, 0.5f), 100, 1, 0);
    llm_weight *b = tc_weight(s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(100, 3, 0, 0.5f), 100, 1, 0);
    llm_buffer *y = tc_buffer(s, TC_ROWS, 100);
    llm_residual_op r;
    llm_norm_op n;
    llm_gate_op g;
    *x = tc_buffer(s, TC_ROWS, 100);
    *h = tc_buffer(s, TC_ROWS, 100);
    *o = tc_buffer(s, TC_OUT, 201);
    CHECK(s->be->weights_done(s->ctx) == LLM_OK && s->be->kv_open(s->ctx, 0, NULL, 16, 1) == LLM_OK);
    memset(&r, 0, sizeof r);
    memset(&n, 0, sizeof n);
    memset(&g, 0, sizeof g);
    r.x = *x;
    r.y = y;
    r.h = *h;
    r.scale = 0.7f;
    r.x_scale = 0.75f;
    r.post_kind = LLM_NORM_RMS;
    r.post_weight = r.weight = n.weight = w;
    r.kind = LLM_NORM_LAYER;
    r.bias = b;
    r.eps = n.eps = 1e-5f;
    n.dst = y;
    n.src = *h;
    n.src_col = 3;
    n.n = 90;
    n.kind = LLM_NORM_RMS;
    g.dst = *x;
    g.gate = *h;
    g.n = 77;
    CHECK(s->be->begin_step(s->ctx, &t->s) == LLM_OK);
    tc_embed(s, *x, table);
    tc_embed(s, y, table);
    s->be->residual(s->ctx, 0, &r);
    s->be->norm(s->ctx, 0, &n);
    r.y = NULL;
    r.replace = 1;
    s->be->residual(s->ctx, 0, &r);
    s->be->gate(s->ctx, 0, &g);
    const llm_gather_op left = {*o, y, 1, 0, 0, 0}, right = {*o, y, 1, 0, 101, 0}, later = {*o, y, 1, 0, 0, 60};
    s->be->gather(s->ctx, 0, &left);
    s->be->gather(s->ctx, 0, &right);
    s->be->gather(s->ctx, 0, &later);
    n.dst = *x, n.src = y, n.src_col = 5, n.dst_col = 2, n.n = 30, n.parts = 3, n.add = n.gelu = 1;
    g.gate = *h, g.n = 50, g.each = 1, g.col = 7, g.act = LLM_GATE_PLAIN;
    s->be->norm(s->ctx, 0, &n);
    s->be->gate(s->ctx, 0, &g);
    n.dst = *h, n.src = y, n.src_col = n.dst_col = 1, n.n = 49, n.parts = 2, n.add = n.gelu = 0;
    n.kind = LLM_NORM_BOUND, n.bias = b, n.low = -0.2f, n.high = 0.9f;
    g.dst = *h, g.gate = y, g.n = 93, g.col = 3, g.act = LLM_GATE_GELU_TANH;
    s->be->norm(s->ctx, 0, &n);
    s->be->gate(s->ctx, 0, &g);
    g.act = LLM_GATE_GELU, g.n = 20;
    s->be->gate(s->ctx, 0, &g);
    tc_run(s);
}

static void tc_rows(void) {
    llm_backend_config c = tc_config(LLM_COMPUTE_F32, LLM_KV_AUTO);
    tc_side cpu = tc_open(llm_backend_cpu(), &c), cuda = tc_open(tc_cuda, &c);
    llm_buffer *x[2], *h[2], *o[2];
    test_step t;
    step_begin(&t, TC_PAGES);
    tc_add(&t, 0, 0, 9, 0);
    tc_add(&t, 1, 0, 4, 1);
    tc_rows_side(&cpu, &t, &x[0], &h[0], &o[0]);
    tc_rows_side(&cuda, &t, &x[1], &h[1], &o[1]);
    CHECK(tc_compare(&cpu, x[0], &cuda, x[1], 13, 100) < 1e-5);
    CHECK(tc_compare(&cpu, h[0], &cuda, h[1], 13, 100) < 1e-5);
    CHECK(tc_compare(&cpu, o[0], &cuda, o[1], 5, 201) < 1e-5);
    cpu.be->close(cpu.ctx);
    cuda.be->close(cuda.ctx);
    llm__arena_free(&tc_memory);
}

/* ---- several streams of the residual, sparse gates ---- */

enum { TC_STREAM_COLS = 300 }; /* more than a block has */

/* One operation on n streams of one side. The third stream is so small that the least size counts. */
static void tc_streams_side(const tc_side *s, test_step *t, llm_streams_op *op) {
    const int n = op->n, D = op->cols, factors = n * n * (op->kind == LLM_STREAMS_PREDICT ? n : 1);
    float *x = tc_floats((int64_t)TC_ROWS * n * D, 1, 0.1f, 1);
    for (int r = 0; r < TC_ROWS && n > 2; r++)
        for (int d = 0; d < D; d++) x[(r * n + 2) * D + d] *= 1e-3f;
    llm_weight *table[3] = {tc_weight(s, LLM_ROLE_EMBED, LLM_TYPE_F32, x, TC_ROWS, n * D, 0),
                            tc_weight(s, LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * D, 2, 0, 1), TC_ROWS, D, 0),
                            tc_weight(s, LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * n, 3, 0, 2), TC_ROWS, n, 0)};
    llm_buffer *gate = tc_buffer(s, TC_ROWS, n), *y = tc_buffer(s, TC_ROWS, D);
    op->x = tc_buffer(s, TC_ROWS, n * D);
    op->dst = tc_buffer(s, TC_ROWS, D);
    op->weight = tc_weight(s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(factors, 4, 0, 1), factors, 1, 0);
    op->scale = n == 3 ? tc_weight(s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(D, 5, 1, 0.5f), D, 1, 0) : NULL;
    CHECK(s->be->weights_done(s->ctx) == LLM_OK && s->be->kv_open(s->ctx, 0, NULL, 16, 1) == LLM_OK);
    CHECK(s->be->begin_step(s->ctx, &t->s) == LLM_OK);
    tc_embed(s, op->x, table[0]);
    tc_embed(s, y, table[1]);
    tc_embed(s, gate, table[2]);
    llm_streams_op own = *op;
    if (op->kind != LLM_STREAMS_LEVEL) own.gate = gate;
    if (op->kind == LLM_STREAMS_CORRECT) own.y = y;
    if (op->kind == LLM_STREAMS_LEVEL && n == 2) own.dst = NULL;
    tc_embed(s, op->dst, table[1]); /* which keeps it where nothing else is wanted */
    s->be->streams(s->ctx, 0, &own);
    tc_run(s);
}

/* Kinds of operations on 1 to 16 streams, of all rows and of those whose logits are wanted; the others stay as they are. */
static void tc_streams(void) {
    static const int streams[] = {1, 2, 3, 4, LLM_MAX_STREAMS};
    llm_backend_config c = tc_config(LLM_COMPUTE_F32, LLM_KV_AUTO);
    for (int i = 0; i < 3 * LLM__COUNT(streams); i++) {
        const int n = streams[i / 3], cols = n == 4 ? 37 : TC_STREAM_COLS;
        test_step t;
        step_begin(&t, TC_PAGES);
        tc_add(&t, 0, 0, 6, 0);
        tc_add(&t, 1, 0, 3, 1);
        tc_side s[2] = {tc_open(llm_backend_cpu(), &c), tc_open(tc_cuda, &c)};
        llm_streams_op op[2];
        for (int k = 0; k < 2; k++) {
            const llm_streams_op one = {.rows = n == 4 ? LLM_ROWS_OUT : LLM_ROWS_TOKENS,
                                        .kind = (llm_streams_kind)(i % 3),
                                        .n = n,
                                        .active = (n + i) % n,
                                        .cols = cols};
            op[k] = one;
            tc_streams_side(&s[k], &t, &op[k]);
        }
        const double x = tc_compare(&s[0], op[0].x, &s[1], op[1].x, 9, n * cols),
                     dst = tc_compare(&s[0], op[0].dst, &s[1], op[1].dst, 9, cols);
        if (!CHECK(x < 1e-5 && dst < 1e-5)) printf("    streams: kind %d, %d of them: %.2e, %.2e\n", i % 3, n, x, dst);
        for (int k = 0; k < 2; k++) s[k].be->close(s[k].ctx);
        llm__arena_free(&tc_memory);
    }
}

/* dst *= act(what of each gate is above the mean and some deviations of all 700), of which dst has n. A row whose gates are all alike has none. */
static void tc_sparse_side(const tc_side *s, test_step *t, llm_gate_op *op) {
    enum { WIDE = 700 };
    float *g = tc_floats(TC_ROWS * WIDE, 7, 0.3f, 3);
    for (int k = 0; k < WIDE; k++) g[2 * WIDE + k] = 2;
    llm_weight *gates = tc_weight(s, LLM_ROLE_EMBED, LLM_TYPE_F32, g, TC_ROWS, WIDE, 0),
               *values = tc_weight(s, LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * op->n, 8, 0, 1), TC_ROWS, op->n, 0);
    llm_buffer *gate = tc_buffer(s, TC_ROWS, WIDE);
    op->dst = tc_buffer(s, TC_ROWS, op->n);
    op->gate = gate;
    op->each = 1;
    op->width = WIDE - 3;
    CHECK(s->be->weights_done(s->ctx) == LLM_OK && s->be->kv_open(s->ctx, 0, NULL, 16, 1) == LLM_OK);
    CHECK(s->be->begin_step(s->ctx, &t->s) == LLM_OK);
    tc_embed(s, gate, gates);
    tc_embed(s, op->dst, values);
    s->be->gate(s->ctx, 0, op);
    tc_run(s);
}

static void tc_sparse(void) {
    llm_backend_config c = tc_config(LLM_COMPUTE_F32, LLM_KV_AUTO);
    for (int i = 0; i < 2 * (LLM_GATE_GELU_TANH + 1); i++) {
        test_step t;
        step_begin(&t, TC_PAGES);
        tc_add(&t, 0, 0, 9, 0);
        tc_side s[2] = {tc_open(llm_backend_cpu(), &c), tc_open(tc_cuda, &c)};
        llm_gate_op op[2];
        int zeros = 0;
        for (int k = 0; k < 2; k++) {
            const llm_gate_op one = {.n = i % 2 ? 550 : 60, .col = 7 * (i / 2), .act = (llm_gate_act)(i / 2), .cut = i % 2 ? 1.2f : -0.3f};
            op[k] = one;
            tc_sparse_side(&s[k], &t, &op[k]);
        }
        for (int r = 0; r < 9; r++)
            for (int k = 0; k < op[1].n; k++) zeros += tc_cuda->buffer_row(s[1].ctx, 0, op[1].dst, r)[k] == 0;
        const double off = tc_compare(&s[0], op[0].dst, &s[1], op[1].dst, 9, op[0].n);
        if (!CHECK(off < 1e-5 && (i < 2 || (zeros >= op[1].n && zeros < 9 * op[1].n))))
            printf("    sparse gates %d: %.2e, %d are 0\n", i, off, zeros);
        for (int k = 0; k < 2; k++) s[k].be->close(s[k].ctx);
        llm__arena_free(&tc_memory);
    }
}

/* What does not fit is refused in the CPU's words. */
static void tc_streams_refused(void) {
    enum { D = 20 };
    llm_backend_config c = tc_config(LLM_COMPUTE_F32, LLM_KV_AUTO);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < 15; i++) {
            tc_side s = tc_open(side ? tc_cuda : llm_backend_cpu(), &c);
            test_step t;
            llm_buffer *x = tc_buffer(&s, TC_ROWS, 3 * D), *y = tc_buffer(&s, TC_ROWS, D), *gate = tc_buffer(&s, TC_ROWS, 3);
            llm_streams_op op = {.kind = LLM_STREAMS_CORRECT,
                                 .x = x,
                                 .dst = y,
                                 .gate = gate,
                                 .y = y,
                                 .weight = tc_weight(&s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(9, 4, 0, 1), 9, 1, 0),
                                 .n = 3,
                                 .cols = D};
            llm_gate_op sparse = {.dst = y, .gate = x, .n = D, .each = 1, .act = LLM_GATE_GELU, .width = 3 * D};
            CHECK(s.be->weights_done(s.ctx) == LLM_OK && s.be->kv_open(s.ctx, 0, NULL, 16, 1) == LLM_OK);
            if (i == 0) op.n = 0;
            if (i == 1) op.n = LLM_MAX_STREAMS + 1;
            if (i == 2) op.active = 3;
            if (i == 3) op.active = -1;
            if (i == 4) op.cols = D + 1;
            if (i == 5) op.dst = gate;
            if (i == 6) op.gate = NULL;
            if (i == 7) op.kind = LLM_STREAMS_PREDICT;
            if (i == 8) op.y = NULL;
            if (i == 9) op.weight = NULL;
            if (i == 10) sparse.width = 3 * D + 1;
            if (i == 11) sparse.each = 0;
            if (i == 12) sparse.col = 2 * D + 1;
            if (i == 13) sparse.width = sparse.each = 0;
            if (i == 14) sparse.part = 10;
            step_begin(&t, TC_PAGES);
            tc_add(&t, 0, 0, 2, 0);
            CHECK(s.be->begin_step(s.ctx, &t.s) == LLM_OK);
            if (i < 10) s.be->streams(s.ctx, 0, &op);
            else s.be->gate(s.ctx, 0, &sparse);
            const char *words = i < 6    ? "more of them than the buffers have columns for"
                                : i < 10 ? "coefficients do not fit"
                                         : "sparse gate out of range";
            if (!CHECK(s.be->end_step(s.ctx) == LLM_ERR_ARG && strstr(llm_last_error(), words)))
                printf("    %d: %s\n", i, llm_last_error());
            s.be->close(s.ctx);
            llm__arena_free(&tc_memory);
        }
}

/* x += 0.7 (a W1^T), h = norm(x), z = h W2^T, x += z W3^T, h = norm(x): of few rows the first norm is done by the products around it. */
static void tc_joined_type(int32_t type) {
    enum { MOST = 320 };
    const int D = type == LLM_TYPE_F32 ? 100 : type == LLM_TYPE_Q6_K ? 256 : MOST, Z = type == LLM_TYPE_Q6_K ? 256 : 64;
    const double few = type == LLM_TYPE_F32    ? 2e-5
                       : type == LLM_TYPE_Q6_K ? 1e-3
                                               : 2e-4,
                 many = type == LLM_TYPE_F32       ? 2e-5
                        : type == LLM_TYPE_F8_E4M3 ? 0.1
                                                   : 2e-2;
    static const int rows[] = {1, 3, 7, 8, 9, 41};
    tc_side s[2];
    llm_buffer *a[2], *x[2], *y[2], *h[2], *z[2];
    llm_weight *table[2], *norm[2], *w[2][3];
    float first[MOST];
    for (int k = 0; k < 2; k++) {
        llm_backend_config c = tc_config(k && type != LLM_TYPE_F32 ? LLM_COMPUTE_AUTO : LLM_COMPUTE_F32, LLM_KV_AUTO);
        s[k] = tc_open(k ? tc_cuda : llm_backend_cpu(), &c);
        table[k] = tc_weight(&s[k], LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * D, 1, 0.2f, 1), TC_ROWS, D, 0);
        norm[k] = tc_weight(&s[k], LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(D, 2, 1, 0.5f), D, 1, 0);
        for (int i = 0; i < 3; i++) {
            int out = i == 1 ? Z : D, in = i == 2 ? Z : D;
            w[k][i] = tc_weight(&s[k], LLM_ROLE_LINEAR, type,
                                type == LLM_TYPE_F32 ? (const void *)tc_floats(out * in, 3 + i, 0, 0.3f) : tc_stored(type, out, in, 3 + i),
                                out, in, 0);
        }
        a[k] = tc_buffer(&s[k], TC_ROWS, D), x[k] = tc_buffer(&s[k], TC_ROWS, D), y[k] = tc_buffer(&s[k], TC_ROWS, D);
        h[k] = tc_buffer(&s[k], TC_ROWS, D), z[k] = tc_buffer(&s[k], TC_ROWS, Z);
        CHECK(s[k].be->weights_done(s[k].ctx) == LLM_OK && s[k].be->kv_open(s[k].ctx, 0, NULL, 16, 1) == LLM_OK);
    }
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        for (int k = 0; k < 2; k++) {
            llm_residual_op r;
            llm_linear_op line;
            test_step t;
            memset(&r, 0, sizeof r);
            memset(&line, 0, sizeof line);
            r.x = x[k], r.y = y[k], r.h = h[k], r.kind = LLM_NORM_RMS, r.weight = norm[k], r.eps = 1e-5f;
            step_begin(&t, TC_PAGES);
            tc_add(&t, 0, 0, rows[i], 0);
            CHECK(s[k].be->begin_step(s[k].ctx, &t.s) == LLM_OK);
            tc_embed(&s[k], x[k], table[k]);
            tc_embed(&s[k], a[k], table[k]);
            line.dst = y[k], line.src = a[k], line.weight = w[k][0];
            s[k].be->linear(s[k].ctx, 0, &line);
            r.scale = 0.7f;
            s[k].be->residual(s[k].ctx, 0, &r);
            line.dst = z[k], line.src = h[k], line.weight = w[k][1];
            s[k].be->linear(s[k].ctx, 0, &line);
            line.dst = y[k], line.src = z[k], line.weight = w[k][2];
            s[k].be->linear(s[k].ctx, 0, &line);
            r.scale = 0;
            s[k].be->residual(s[k].ctx, 0, &r);
            tc_run(&s[k]);
        }
        double e = tc_compare(&s[0], z[0], &s[1], z[1], rows[i], Z), f = tc_compare(&s[0], x[0], &s[1], x[1], rows[i], D),
               g = tc_compare(&s[0], h[0], &s[1], h[1], rows[i], D);
        const double most = rows[i] > 8 ? many : few;
        if (!CHECK(e < most && f < most && g < most))
            printf("    %s, %d rows: z %.2e, x %.2e, h %.2e\n", llm__type_name(type), rows[i], e, f, g);
        const float *row = tc_cuda->buffer_row(s[1].ctx, 0, z[1], 0);
        if (!i) memcpy(first, row, sizeof(float) * (size_t)Z);
        else if (rows[i] <= 8 && type != LLM_TYPE_BF16)
            CHECK(!memcmp(first, row, sizeof(float) * (size_t)Z)); /* the same bits beside others */
    }
    for (int k = 0; k < 2; k++) s[k].be->close(s[k].ctx);
    llm__arena_free(&tc_memory);
}

static void tc_joined(void) {
    static const int32_t types[] = {LLM_TYPE_F32, LLM_TYPE_BF16, LLM_TYPE_F8_E4M3, LLM_TYPE_Q4_0, LLM_TYPE_Q6_K};
    for (int i = 0; i < LLM__COUNT(types); i++) tc_joined_type(types[i]);
}

/* ---- activations that are written as products take them ---- */

enum { TC_NARROW = 200, TC_NARROW_OUT = 48 };

/* x += post(y), h = norm(x), z = act(h W1 + plus), o = z W2. Some rows of h, and so of z, have values that no half holds, one is not a number. */
typedef struct tc_narrow_side {
    tc_side s;
    int cols, ff, gate_up;
    llm_weight *table[3], *norm, *post, *bias, *up, *down, *again;
    llm_buffer *x, *y, *h, *z, *o, *copy, *plus;
} tc_narrow_side;

enum { TC_PLAIN, TC_GATED, TC_KEPT };

/* On rank tc_rank of a side. */
static void tc_narrow_open(tc_narrow_side *n, const tc_side *s, int32_t type, int32_t other, int cols, int ff, int gate_up) {
    const int up = gate_up ? 2 * ff : ff;
    float *x = tc_floats(TC_ROWS * cols, 1, 0, 1), *norm = tc_floats(cols, 2, 1, 0.5f);
    memset(n, 0, sizeof *n);
    n->s = *s, n->cols = cols, n->ff = ff, n->gate_up = gate_up;
    for (int r = 0; r < TC_ROWS; r++) x[r * cols + 7] = r % 3 ? 0 : 1;
    x[35 * cols + 3] = NAN, x[40 * cols] = 1e25f; /* whose square is infinite */
    norm[7] = 1e6f;
    n->table[0] = tc_weight(&n->s, LLM_ROLE_EMBED, LLM_TYPE_F32, x, TC_ROWS, cols, 0);
    n->table[1] = tc_weight(&n->s, LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * cols, 3, 0, 1e-3f), TC_ROWS, cols, 0);
    n->table[2] = tc_weight(&n->s, LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * up, 4, 0, 1), TC_ROWS, up, 0);
    n->norm = tc_weight(&n->s, LLM_ROLE_VECTOR, LLM_TYPE_F32, norm, cols, 1, 0);
    n->post = tc_weight(&n->s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(cols, 5, 0, 1e-3f), cols, 1, 0);
    n->bias = tc_weight(&n->s, LLM_ROLE_VECTOR, LLM_TYPE_F32, tc_floats(cols, 6, 0, 1), cols, 1, 0);
    n->up = other >= 0 ? tc_two_types(&n->s, type, other, up, cols)
                       : tc_weight(&n->s, gate_up ? LLM_ROLE_GATE_UP : LLM_ROLE_LINEAR, type, tc_stored(type, up, cols, 7), up, cols, 0);
    n->down = tc_weight(&n->s, LLM_ROLE_LINEAR, type, tc_stored(type, TC_NARROW_OUT, ff, 8), TC_NARROW_OUT, ff, 0);
    n->again = tc_weight(&n->s, LLM_ROLE_LINEAR, LLM_TYPE_F32, tc_stored(LLM_TYPE_F32, 16, cols, 9), 16, cols, 0);
    n->x = tc_buffer(&n->s, TC_NARROW, cols), n->y = tc_buffer(&n->s, TC_NARROW, cols), n->h = tc_buffer(&n->s, TC_NARROW, cols);
    n->z = tc_buffer(&n->s, TC_NARROW, ff), n->o = tc_buffer(&n->s, TC_NARROW, TC_NARROW_OUT);
    n->copy = tc_buffer(&n->s, TC_NARROW, LLM__MAX(cols, ff)), n->plus = tc_buffer(&n->s, TC_NARROW, up);
}

/* A rank's list, in which nobody else reads h and z, or (read) somebody does. Behind that h and z are written anew, so that what they had is
 * not wanted any more, but for KEPT; GATED: a gate behind z reads and writes it. y is summed over ranks. */
static void tc_narrow_list(const tc_narrow_side *n, int way, int form, int read) {
    const llm_backend *be = n->s.be;
    llm_residual_op r;
    llm_linear_op up, down;
    llm_norm_op copy;
    memset(&r, 0, sizeof r), memset(&up, 0, sizeof up), memset(&down, 0, sizeof down), memset(&copy, 0, sizeof copy);
    tc_embed(&n->s, n->x, n->table[0]), tc_embed(&n->s, n->y, n->table[1]), tc_embed(&n->s, n->plus, n->table[2]);
    r.x = n->x, r.y = n->y, r.h = n->h, r.weight = n->norm, r.eps = 1e-5f, r.scale = 0.5f;
    r.kind = way & 1 ? LLM_NORM_LAYER : LLM_NORM_RMS;
    if (way & 1) r.bias = n->bias;
    if (way & 2) r.post_kind = LLM_NORM_RMS, r.post_weight = n->post;
    be->residual(n->s.ctx, tc_rank, &r);
    copy.dst = n->copy, copy.src = n->h, copy.n = n->cols;
    if (read) be->norm(n->s.ctx, tc_rank, &copy);
    up.dst = n->z, up.src = n->h, up.weight = n->up, up.act = n->gate_up ? LLM_ACT_SILU : LLM_ACT_RELU2;
    if (way & 2) up.plus = n->plus;
    be->linear(n->s.ctx, tc_rank, &up);
    const llm_gate_op gate = {.dst = n->z, .gate = n->y, .n = n->ff};
    if (form == TC_GATED) be->gate(n->s.ctx, tc_rank, &gate);
    copy.src = n->z, copy.n = n->ff;
    if (read) be->norm(n->s.ctx, tc_rank, &copy);
    down.dst = n->o, down.src = n->z, down.weight = n->down;
    be->linear(n->s.ctx, tc_rank, &down);
    r.y = NULL;
    if (form != TC_KEPT) be->residual(n->s.ctx, tc_rank, &r);
    up.rows = LLM_ROWS_OUT, up.weight = n->again, up.plus = NULL, up.act = LLM_ACT_NONE;
    if (form != TC_KEPT) be->linear(n->s.ctx, tc_rank, &up);
}

/* A step of all ranks; how many kernels there were. */
static long tc_narrow_run(const tc_narrow_side *n, int ranks, int rows, int id, int way, int form, int read) {
    const long before = tc_launched ? *tc_launched : 0;
    test_step t;
    step_begin(&t, TC_PAGES);
    tc_add(&t, id, 0, rows, 0);
    CHECK(tc_cuda->begin_step(n->s.ctx, &t.s) == LLM_OK);
    for (tc_rank = 0; tc_rank < ranks; tc_rank++) tc_narrow_list(&n[tc_rank], way, form, read);
    tc_rank = 0;
    tc_run(&n->s);
    return (tc_launched ? *tc_launched : 0) - before;
}

/* The same bits as of activations in f32 that are narrowed then, and fewer kernels: of every kind of weight. `saves`: launches, of bf16 two;
 * of halves z has a kernel for rows that do not fit, instead of the narrowing. */
static void tc_narrow(void) {
    /* clang-format off */
    static const struct {
        int32_t type, other, cols;
        int plain, gated;
    } formats[] = {{LLM_TYPE_F32, -1, 256, 0, 0}, {LLM_TYPE_BF16, -1, 248, 2, 1}, {LLM_TYPE_F16, -1, 248, 1, 1}, {LLM_TYPE_BF16, -1, 256, 2, 1},
                   {LLM_TYPE_F8_E4M3, -1, 248, 1, 1}, {LLM_TYPE_I8, -1, 256, 1, 1}, {LLM_TYPE_Q4_0, -1, 256, 1, 1}, {LLM_TYPE_Q4_1, -1, 256, 1, 1},
                   {LLM_TYPE_Q5_0, -1, 256, 1, 1}, {LLM_TYPE_Q5_1, -1, 256, 1, 1}, {LLM_TYPE_Q8_0, -1, 256, 1, 1}, {LLM_TYPE_MXFP4, -1, 256, 1, 1},
                   {LLM_TYPE_Q2_K, -1, 256, 1, 1}, {LLM_TYPE_Q4_K, -1, 256, 1, 1}, {LLM_TYPE_Q5_K, -1, 256, 1, 1}, {LLM_TYPE_Q6_K, -1, 256, 1, 1},
                   {LLM_TYPE_Q4_0, LLM_TYPE_Q8_0, 256, 1, 1}, {LLM_TYPE_BF16, LLM_TYPE_F16, 256, 1, 0}};
    /* clang-format on */
    static const int rows[] = {200, 33, 9};
    for (int i = 0; i < LLM__COUNT(formats); i++) {
        const int ff = llm__type_block_bytes(formats[i].type) > 80 ? 256 : 128, ranks = i % 4 == 2 ? 2 : 1;
        llm_backend_config c = tc_config(LLM_COMPUTE_AUTO, LLM_KV_AUTO);
        tc_narrow_side n[2];
        if (TEST_BRIEF && i != 1 && i != 2 && i != 6 && i != 16) continue; /* formats differ in what tests of products see */
        c.max_rows = TC_NARROW, c.n_ranks = ranks;
        if (ranks > 1) setenv("LLM_CUDA_ONE_DEVICE", "1", 1), c.device_draws = 0;
        const tc_side s = tc_open(tc_cuda, &c);
        unsetenv("LLM_CUDA_ONE_DEVICE");
        for (tc_rank = 0; tc_rank < ranks; tc_rank++)
            tc_narrow_open(&n[tc_rank], &s, formats[i].type, formats[i].other, formats[i].cols, ff, i % 2 && formats[i].other < 0);
        tc_rank = 0;
        CHECK(tc_cuda->weights_done(s.ctx) == LLM_OK && tc_cuda->kv_open(s.ctx, 0, NULL, 16, 1) == LLM_OK);
        float *first = (float *)llm__arena_get(&tc_memory, sizeof(float) * TC_NARROW * 3 * 256);
        for (int k = 0; k < (TEST_BRIEF ? 4 : 3 * LLM__COUNT(rows)); k++) {
            const int n_rows = rows[k / 3], form = k % 3;
            const tc_narrow_side *last = &n[ranks - 1];
            const llm_buffer *looked[3] = {last->o, last->h, last->z};
            const int64_t wide[3] = {TC_NARROW_OUT, last->cols, ff};
            long ran[2];
            int same = 1;
            for (int read = 1; read >= 0; read--) {
                ran[read] = tc_narrow_run(n, ranks, n_rows, k, i + k, form, read);
                for (int r = 0; r < n_rows * (form == TC_KEPT ? 3 : 1); r++) {
                    const float *v = tc_cuda->buffer_row(s.ctx, ranks - 1, looked[r / n_rows], r % n_rows);
                    if (read) memcpy(first + r * 256, v, sizeof(float) * (size_t)wide[r / n_rows]);
                    else if (memcmp(first + r * 256, v, sizeof(float) * (size_t)wide[r / n_rows])) same = 0;
                }
            }
            const long saves = ranks * (form == TC_KEPT ? 0 : form == TC_GATED ? formats[i].gated : formats[i].plain);
            if (!CHECK(same && (!tc_launched || ran[1] - 2 * ranks - ran[0] == saves)))
                printf("    %s, %d ranks, %d rows, %s: %s, %ld kernels instead of %ld\n", llm__type_name(formats[i].type), ranks, n_rows,
                       form == TC_KEPT    ? "h and z looked at"
                       : form == TC_GATED ? "a gate"
                                          : "alone",
                       same ? "the same bits" : "other bits", ran[0], ran[1] - 2 * ranks);
        }
        tc_cuda->close(s.ctx);
        llm__arena_free(&tc_memory);
    }
}

/* o = attention W, where nobody else reads what attention leaves, and where somebody does: chunks of prompts, single rows among them, decoding
 * with graphs. Pages of halves, of bf16 (whose values may fit no half), of bytes. */
static void tc_narrow_heads(void) {
    static const struct {
        llm_kv_type kv;
        int32_t type;
        int n_heads, saves;
    } cases[] = {{LLM_KV_F16, LLM_TYPE_BF16, 4, 1},    {LLM_KV_F16, LLM_TYPE_F16, 4, 2},   {LLM_KV_F16, LLM_TYPE_Q4_0, 4, 1},
                 {LLM_KV_F16, LLM_TYPE_Q4_0, 5, 0},    {LLM_KV_BF16, LLM_TYPE_BF16, 4, 1}, {LLM_KV_BF16, LLM_TYPE_F16, 4, 0},
                 {LLM_KV_F16, LLM_TYPE_F8_E4M3, 4, 0}, {LLM_KV_INT8, LLM_TYPE_BF16, 4, 0}, {LLM_KV_F32, LLM_TYPE_BF16, 4, 0}};
    static const int chunk[][3] = {{37, 5, 0}, {9, 20, 1}, {1, 1, 40}};
    enum { OUT = 64, HD = 64, DECODING = 12 };
    for (int i = 0; i < LLM__COUNT(cases); i++) {
        const tc_case c = {.n_heads = cases[i].n_heads, .n_kv = 1, .hd = HD, .vd = HD, .rope_dim = HD, .kv = cases[i].kv};
        const int cols = c.n_heads * HD;
        tc_attend a;
        tc_attend_compute = LLM_COMPUTE_AUTO;
        tc_attend_open(&a, tc_cuda, &c);
        tc_attend_compute = LLM_COMPUTE_F32;
        llm_weight *w = tc_weight(&a.s, LLM_ROLE_LINEAR, cases[i].type, tc_stored(cases[i].type, OUT, cols, 5), OUT, cols, 0);
        llm_weight *again = tc_weight(&a.s, LLM_ROLE_LINEAR, LLM_TYPE_F32, tc_floats(16 * OUT, 6, 0, 1), 16, OUT, 0);
        llm_buffer *o = tc_buffer(&a.s, TC_ROWS, OUT), *copy = tc_buffer(&a.s, TC_ROWS, cols);
        CHECK(tc_cuda->weights_done(a.s.ctx) == LLM_OK);
        float first[TC_ROWS * OUT];
        for (int k = 0; k < LLM__COUNT(chunk) + 2; k++) {
            const int decoding = k >= LLM__COUNT(chunk);
            long ran[2];
            int same = 1;
            test_step t;
            step_begin(&t, TC_PAGES);
            for (int s = 0; s < (decoding ? DECODING : 3); s++)
                if (decoding || chunk[k][s]) tc_add(&t, s, decoding ? 3 + s : 0, decoding ? 1 : chunk[k][s], 0);
            for (int read = 1; read >= 0; read--) {
                llm_linear_op op;
                llm_norm_op look;
                memset(&op, 0, sizeof op), memset(&look, 0, sizeof look);
                const long before = tc_launched ? *tc_launched : 0;
                t.s.shape.program = read;
                tc_attend_list(&a, &c, &t, 0);
                look.dst = copy, look.src = a.out, look.n = cols;
                if (read) tc_cuda->norm(a.s.ctx, 0, &look);
                op.dst = o, op.src = a.out, op.weight = w;
                tc_cuda->linear(a.s.ctx, 0, &op);
                op.dst = a.out, op.src = o, op.weight = again, op.rows = LLM_ROWS_OUT;
                tc_cuda->linear(a.s.ctx, 0, &op);
                tc_run(&a.s);
                ran[read] = (tc_launched ? *tc_launched : 0) - before;
                for (int r = 0; r < t.s.shape.n_rows; r++) {
                    const float *v = tc_cuda->buffer_row(a.s.ctx, 0, o, r);
                    if (read) memcpy(first + r * OUT, v, sizeof(float) * OUT);
                    else if (memcmp(first + r * OUT, v, sizeof(float) * OUT)) same = 0;
                }
            }
            if (!CHECK(same && (!tc_launched || ran[1] - 1 - ran[0] == cases[i].saves)))
                printf("    case %d, step %d: %s, %ld kernels instead of %ld\n", i, k, same ? "the same bits" : "other bits", ran[0],
                       ran[1] - 1);
        }
        a.s.be->close(a.s.ctx);
        llm__arena_free(&tc_memory);
    }
}

/* ---- sums over ranks ---- */

/* An embedding (TC_ROWS, cols) of these values on a rank. */
static llm_weight *tc_embedding(const tc_side *s, int rank, int cols, const float *values) {
    llm_segment g;
    llm_weight_desc d;
    llm_weight *w = NULL;
    memset(&g, 0, sizeof g);
    memset(&d, 0, sizeof d);
    d.name = "test", d.role = LLM_ROLE_EMBED, d.segments = &g, d.n_segments = 1;
    g.stored_cols = g.n_cols = d.cols = cols;
    g.n_rows = d.rows = TC_ROWS;
    g.data = values;
    CHECK(s->be->weight(s->ctx, rank, &d, &w) == LLM_OK);
    return w;
}

enum { TC_SUM_RANKS = 4, TC_SUM_ROWS = 513 };

/* How rows are summed: what is not 0 differs from devices that read each other's memory. */
typedef struct tc_sum_way {
    int ranks, cols, one, invariant, nccl, least, most; /* rows of the steps that are tried */
    const char *variable, *value;                       /* of the emulation */
} tc_sum_way;

/* Of each rank, buffers of TC_SUM_ROWS rows and embeddings. */
typedef struct tc_sum_side {
    llm_buffer *x[TC_SUM_RANKS], *y[TC_SUM_RANKS], *h[TC_SUM_RANKS], *z[TC_SUM_RANKS];
    llm_weight *table[TC_SUM_RANKS], *part[TC_SUM_RANKS];
} tc_sum_side;

static void tc_sum_open(const tc_side *s, tc_sum_side *b, const tc_sum_way *way) {
    for (int r = 0; r < way->ranks; r++) {
        llm_buffer **const all[4] = {&b->x[r], &b->y[r], &b->h[r], &b->z[r]};
        for (int i = 0; i < 4; i++) CHECK(s->be->buffer(s->ctx, r, TC_SUM_ROWS, way->cols, all[i]) == LLM_OK);
        b->table[r] = tc_embedding(s, r, way->cols, tc_floats(TC_ROWS * way->cols, 1, 0, 1));
        b->part[r] = tc_embedding(s, r, way->cols, tc_floats(TC_ROWS * way->cols, (uint32_t)(2 + r), 0, 1));
    }
    CHECK(s->be->weights_done(s->ctx) == LLM_OK && s->be->kv_open(s->ctx, 0, NULL, 16, 1) == LLM_OK);
}

/* One step: x and its norm h, with the sum of parts added; then z and those rows of x that are outputs are summed in turn, four times: of
 * many rows and of few, at once. */
static void tc_sum_step(const tc_side *s, const tc_sum_side *b, const tc_sum_way *way, int rows) {
    test_step t;
    step_begin(&t, TC_PAGES);
    for (int id = 0, at = 0, n; at < rows; id++, at += n) {
        n = LLM__MIN(rows - at, TC_PAGES * TC_PAGE);
        tc_add(&t, id, 0, n, 0);
    }
    CHECK(s->be->begin_step(s->ctx, &t.s) == LLM_OK);
    for (int r = 0; r < way->ranks; r++) {
        const llm_residual_op op = {.x = b->x[r], .y = b->y[r], .h = b->h[r], .kind = LLM_NORM_RMS, .eps = 1e-5f};
        llm_embed_op e = {b->x[r], b->table[r], NULL, 0, 0, 1, LLM_GIVEN_NONE, 0, 0, 0};
        s->be->embed(s->ctx, r, &e);
        e.table = b->part[r], e.dst = b->y[r];
        s->be->embed(s->ctx, r, &e);
        e.dst = b->z[r];
        s->be->embed(s->ctx, r, &e);
        s->be->residual(s->ctx, r, &op);
        for (int k = 0; k < 8; k++)
            s->be->all_reduce(s->ctx, r, k & 1 ? LLM_ROWS_OUT : LLM_ROWS_TOKENS, k & 1 ? b->x[r] : b->z[r], way->cols);
    }
    tc_run(s);
}

/* The worst difference of what the ranks of both sides have; NaN counts. */
static double tc_sum_error(const tc_side *s, const tc_sum_way *way, llm_buffer *const *a, llm_buffer *const *b, int rows) {
    double worst = 0;
    for (int r = 0; r < way->ranks; r++)
        for (int i = 0; i < rows; i++) {
            const float *want = s[0].be->buffer_row(s[0].ctx, r, a[r], i), *got = s[1].be->buffer_row(s[1].ctx, r, b[r], i);
            for (int k = 0; k < way->cols; k++) {
                const double e = fabs((double)want[k] - (double)got[k]);
                if (!(e <= worst)) worst = e;
            }
        }
    return worst;
}

/* Sums over peer memory have the bits of the CPU's, which adds rank by rank: in one shot (up to 16 rows) and in two, so a row's do not
 * depend on how many there are. NCCL's order is its own but on the emulation. */
static void tc_sums_of(const tc_sum_way *way) {
    static const int rows[] = {1, 16, 17, 64, 200, 512, 513, 3};
    llm_backend_config c = tc_config(LLM_COMPUTE_F32, LLM_KV_AUTO);
    tc_side s[2];
    tc_sum_side b[2];
    c.n_ranks = way->ranks;
    c.max_rows = TC_SUM_ROWS;
    c.device_draws = 0;
    c.batch_invariant = way->invariant;
    if (way->one) setenv("LLM_CUDA_ONE_DEVICE", "1", 1);
    if (way->nccl) setenv("LLM_CUDA_NO_PEERS", "1", 1);
    if (way->variable) setenv(way->variable, way->value, 1);
    if (tc_cuda->open(&c, &s[1].ctx)) CHECK(!way->one && strstr(llm_last_error(), "but there "));
    else {
        s[0] = tc_open(llm_backend_cpu(), &c);
        s[1].be = tc_cuda;
        for (int k = 0; k < 2; k++) tc_sum_open(&s[k], &b[k], way);
        for (int i = 0; i < LLM__COUNT(rows); i++) {
            const int exact = tc_emulated() || (!way->nccl && (rows[i] <= 512 || way->invariant));
            if (rows[i] < way->least || rows[i] > way->most || (getenv("LLM_TEST_SLOW") && rows[i] > 64)) continue;
            for (int k = 0; k < 2; k++) tc_sum_step(&s[k], &b[k], way, rows[i]);
            const double x = tc_sum_error(s, way, b[0].x, b[1].x, rows[i]), z = tc_sum_error(s, way, b[0].z, b[1].z, rows[i]);
            if (!CHECK((exact ? x == 0 && z == 0 : x < 1e-2 && z < 1e-2) && tc_sum_error(s, way, b[0].h, b[1].h, rows[i]) < 1e-4))
                printf("    %d ranks, %d columns, %d rows: x %g, z %g\n", way->ranks, way->cols, rows[i], x, z);
        }
        for (int k = 0; k < 2; k++) s[k].be->close(s[k].ctx);
    }
    if (way->variable) unsetenv(way->variable);
    unsetenv("LLM_CUDA_NO_PEERS");
    unsetenv("LLM_CUDA_ONE_DEVICE");
    llm__arena_free(&tc_memory);
}

/* Ranks on devices of their own or (as on a machine with one) all on the first. Blocks that stand still at any barrier, and devices that
 * take their blocks in other orders, show who does not wait. With one rank NCCL alone is asked for a sum. */
static void tc_sums(void) {
    static const tc_sum_way ways[] = {{2, 100, 0, 0, 0, 0, 513, NULL, NULL},         {2, 100, 1, 0, 0, 0, 200, NULL, NULL},
                                      {3, 61, 0, 0, 0, 0, 64, NULL, NULL},           {4, 1030, 0, 1, 0, 16, 17, NULL, NULL},
                                      {4, 258, 1, 1, 0, 3, 17, NULL, NULL},          {2, 3, 0, 1, 0, 513, 513, NULL, NULL},
                                      {2, 100, 0, 0, 1, 0, 64, NULL, NULL},          {2, 2050, 0, 0, 0, 0, 64, "CUEMU_PAUSE_US", "400"},
                                      {2, 61, 0, 0, 0, 16, 64, "CUEMU_THREADS", "8"}};
    for (int i = 0; i < LLM__COUNT(ways); i++) {
        const double start = llm__now();
        if (TEST_BRIEF && (i == 2 || i == 4 || i == 8))
            continue; /* other numbers of ranks, columns and threads, four to six seconds each */
        tc_sums_of(&ways[i]);
        if (getenv("LLM_TEST_TIMES")) printf("-- %d ranks, %d columns: %.1f s\n", ways[i].ranks, ways[i].cols, llm__now() - start);
    }
    llm_backend_config c = tc_config(LLM_COMPUTE_F32, LLM_KV_AUTO);
    llm_backend_ctx *ctx = NULL;
    setenv("LLM_CUDA_TRY_NCCL", "1", 1);
    if (!CHECK(tc_cuda->open(&c, &ctx) == LLM_OK)) printf("    %s\n", llm_last_error());
    tc_cuda->close(ctx);
    unsetenv("LLM_CUDA_TRY_NCCL");
}

/* ---- adapters ---- */

/* What puts adapters of growing rank into a slot, beside steps. */
typedef struct tc_putter {
    const tc_side *s;
    llm_lora_site *site;
    pthread_t thread;
    int stop, puts;
} tc_putter;

static void *tc_put_all(void *arg) {
    enum { IN = 64, OUT = 100, MOST = 64 };
    tc_putter *p = (tc_putter *)arg;
    const struct timespec pause = {0, 300000};
    float *values = (float *)calloc(OUT * MOST, sizeof *values);
    for (int r = 1; !__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE); r = r == MOST ? 1 : 2 * r) {
        llm_segment g[2];
        llm_weight_desc d[2];
        memset(g, 0, sizeof g);
        memset(d, 0, sizeof d);
        for (int k = 0; k < 2; k++) {
            g[k].data = values, g[k].type = LLM_TYPE_F32;
            g[k].stored_cols = g[k].n_cols = d[k].cols = k ? r : IN;
            g[k].n_rows = d[k].rows = k ? OUT : r;
            d[k].name = "adapter", d[k].role = LLM_ROLE_LINEAR, d[k].segments = &g[k], d[k].n_segments = 1;
        }
        const llm_lora_part part = {0, &d[0], &d[1]};
        if (!CHECK(p->s->be->lora_put(p->s->ctx, 0, p->site, r & 1, &part, 1) == LLM_OK)) break;
        p->puts++;
        nanosleep(&pause, NULL);
    }
    free(values);
    return NULL;
}

/* Steps in which two ranks wait for each other in kernels, while adapters come and go on one of them: nothing waits for a whole device. */
static void tc_beside(void) {
    enum { N = 100, STEPS = 150 };
    llm_backend_config c = tc_config(LLM_COMPUTE_F32, LLM_KV_AUTO);
    tc_side s = {tc_cuda, NULL};
    tc_putter put = {&s, NULL, 0, 0, 0};
    llm_weight *table[2];
    llm_buffer *x[2], *y[2];
    float *values = tc_floats(TC_ROWS * N, 1, 0, 1);
    c.n_ranks = 2;
    c.device_draws = 0;
    setenv("LLM_CUDA_ONE_DEVICE", "1", 1);
    CHECK(tc_cuda->open(&c, &s.ctx) == LLM_OK);
    unsetenv("LLM_CUDA_ONE_DEVICE");
    for (int r = 0; r < 2; r++) {
        table[r] = tc_embedding(&s, r, N, values);
        CHECK(s.be->buffer(s.ctx, r, TC_ROWS, N, &x[r]) == LLM_OK && s.be->buffer(s.ctx, r, TC_ROWS, N, &y[r]) == LLM_OK);
    }
    CHECK(s.be->weights_done(s.ctx) == LLM_OK && s.be->lora_site(s.ctx, 0, 2, &put.site) == LLM_OK &&
          s.be->kv_open(s.ctx, 0, NULL, 16, 1) == LLM_OK);
    CHECK(!pthread_create(&put.thread, NULL, tc_put_all, &put));
    for (int i = 0; i < STEPS; i++) {
        test_step t;
        step_begin(&t, TC_PAGES);
        tc_add(&t, 0, 0, 2, 0);
        CHECK(s.be->begin_step(s.ctx, &t.s) == LLM_OK);
        for (int r = 0; r < 2; r++) {
            llm_embed_op e = {x[r], table[r], NULL, 0, 0, 1, LLM_GIVEN_NONE, 0, 0, 0};
            llm_residual_op op;
            memset(&op, 0, sizeof op);
            s.be->embed(s.ctx, r, &e);
            e.dst = y[r];
            s.be->embed(s.ctx, r, &e);
            op.x = x[r], op.y = y[r];
            for (int k = 0; k < 4; k++) s.be->residual(s.ctx, r, &op);
        }
        tc_run(&s);
    }
    __atomic_store_n(&put.stop, 1, __ATOMIC_RELEASE);
    pthread_join(put.thread, NULL);
    CHECK(put.puts > 0);
    s.be->close(s.ctx);
    llm__arena_free(&tc_memory);
}

enum { TC_LORA_IN = 96, TC_LORA_OUT = 60, TC_LORA_R = 16, TC_VOCAB = 50 };

typedef struct tc_lora_side {
    tc_side s;
    llm_weight *table, *w, *gate_up, *head;
    llm_buffer *x, *e, *low, *plus, *y, *g, *o, *more;
    llm_lora_site *site, *embed;
} tc_lora_side;

/* Parts of three adapters: slot, rank, first row, rows, types of A and B. Slot 2 is empty, slot 4 was filled and is empty again. */
/* clang-format off */
static const struct {
    int slot, r, row, n, a, b;
} tc_lora_parts[] = {{0, 4, 0, 33, LLM_TYPE_F32, LLM_TYPE_F32}, {0, 7, 33, 17, LLM_TYPE_BF16, LLM_TYPE_F16},
                     {1, 16, 33, 17, LLM_TYPE_Q8_0, LLM_TYPE_F16}, {1, 3, 50, 10, LLM_TYPE_Q4_K, LLM_TYPE_F32}, {3, 1, 0, 60, LLM_TYPE_F32, LLM_TYPE_BF16}};
/* clang-format on */

/* Puts what tc_lora_parts has for slot `as` into a slot. */
static void tc_lora_put(const tc_lora_side *l, int slot, int as) {
    llm_lora_part part[LLM_LORA_PARTS];
    llm_weight_desc d[LLM_LORA_PARTS][2];
    llm_segment g[LLM_LORA_PARTS][2];
    llm__arena kept = tc_memory;
    int n = 0;
    memset(&tc_memory, 0, sizeof tc_memory);
    memset(d, 0, sizeof d);
    memset(g, 0, sizeof g);
    for (int p = 0; p < LLM__COUNT(tc_lora_parts); p++) {
        if (tc_lora_parts[p].slot != as) continue;
        for (int k = 0; k < 2; k++) { /* A is cut from wider rows */
            int64_t rows = k ? tc_lora_parts[p].n : tc_lora_parts[p].r, cols = k ? tc_lora_parts[p].r : TC_LORA_IN, wide = k ? cols : 256;
            g[n][k].type = k ? tc_lora_parts[p].b : tc_lora_parts[p].a;
            g[n][k].data = tc_stored(g[n][k].type, rows, wide, (uint32_t)(40 + 2 * p + k));
            g[n][k].stored_cols = wide;
            g[n][k].col = wide - cols;
            g[n][k].n_cols = d[n][k].cols = cols;
            g[n][k].n_rows = d[n][k].rows = rows;
            g[n][k].scale = k ? 0.5f : 1;
            d[n][k].name = "adapter";
            d[n][k].role = LLM_ROLE_LINEAR;
            d[n][k].segments = &g[n][k];
            d[n][k].n_segments = 1;
        }
        part[n].row = tc_lora_parts[p].row;
        part[n].a = &d[n][0];
        part[n].b = &d[n][1];
        n++;
    }
    CHECK(l->s.be->lora_put(l->s.ctx, 0, l->site, slot, part, n) == LLM_OK);
    d[0][0].role = LLM_ROLE_VECTOR; /* the embedding's: B of the first part, and a row of A for each token of the vocabulary */
    g[0][0].type = LLM_TYPE_F32;
    g[0][0].n_rows = d[0][0].rows = TC_VOCAB;
    g[0][0].stored_cols = g[0][0].n_cols = d[0][0].cols = n ? d[0][1].cols : 4;
    g[0][0].col = part[0].row = 0;
    g[0][0].data = tc_stored(LLM_TYPE_F32, TC_VOCAB, d[0][0].cols, 60);
    CHECK(l->s.be->lora_put(l->s.ctx, 0, l->embed, slot, part, n > 0) == LLM_OK);
    llm__arena_free(&tc_memory); /* what was put is needed no longer */
    tc_memory = kept;
}

static void tc_lora_open(tc_lora_side *l, const llm_backend *be) {
    llm_backend_config c = tc_config(LLM_COMPUTE_F32, LLM_KV_AUTO);
    llm_lora_site *none;
    l->s = tc_open(be, &c);
    l->table = tc_weight(&l->s, LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * TC_LORA_IN, 1, 0, 1), TC_ROWS, TC_LORA_IN, 0);
    l->w =
        tc_weight(&l->s, LLM_ROLE_LINEAR, LLM_TYPE_Q4_1, tc_stored(LLM_TYPE_Q4_1, TC_LORA_OUT, TC_LORA_IN, 5), TC_LORA_OUT, TC_LORA_IN, 0);
    l->gate_up =
        tc_weight(&l->s, LLM_ROLE_GATE_UP, LLM_TYPE_F32, tc_stored(LLM_TYPE_F32, TC_LORA_OUT, TC_LORA_IN, 9), TC_LORA_OUT, TC_LORA_IN, 0);
    l->head =
        tc_weight(&l->s, LLM_ROLE_HEAD, LLM_TYPE_F32, tc_stored(LLM_TYPE_F32, TC_LORA_OUT, TC_LORA_IN, 13), TC_LORA_OUT, TC_LORA_IN, 0);
    llm_buffer **const all[] = {&l->x, &l->e, &l->low, &l->plus, &l->y, &l->g, &l->o, &l->more};
    static const int cols[] = {TC_LORA_IN, TC_LORA_IN, LLM_LORA_PARTS * TC_LORA_R, TC_LORA_OUT + 3, TC_LORA_OUT, TC_LORA_OUT / 2,
                               TC_LORA_IN, TC_LORA_OUT};
    for (int i = 0; i < LLM__COUNT(all); i++) *all[i] = tc_buffer(&l->s, TC_ROWS, cols[i]);
    CHECK(be->weights_done(l->s.ctx) == LLM_OK && be->kv_open(l->s.ctx, 0, NULL, 16, 1) == LLM_OK);
    CHECK(be->lora_site(l->s.ctx, 0, 5, &l->site) == LLM_OK && be->lora_site(l->s.ctx, 0, 5, &l->embed) == LLM_OK);
    CHECK(be->lora_site(l->s.ctx, 1, 5, &none) == LLM_ERR_ARG && be->lora_site(l->s.ctx, 0, 0, &none) == LLM_ERR_ARG);
    for (int slot = 0; slot < 4; slot++) tc_lora_put(l, slot, slot);
    tc_lora_put(l, 1, 0); /* in the place of the one before, and back */
    tc_lora_put(l, 1, 1);
    tc_lora_put(l, 4, 3);
    tc_lora_put(l, 4, 2);
}

/* Embedding, linear and gated layer, output layer: each with what adapters add. Slots by sequence. */
static void tc_lora_run(const tc_lora_side *l, test_step *t, const int32_t *slots) {
    const llm_backend *be = l->s.be;
    llm_linear_op w;
    llm_logits_op o;
    llm_lora_op tokens = {LLM_ROWS_TOKENS, l->plus, l->x, l->low, l->site, TC_LORA_OUT, 0, 1}, outs = tokens, embed = tokens;
    memset(&w, 0, sizeof w);
    memset(&o, 0, sizeof o);
    outs.rows = LLM_ROWS_OUT;
    outs.dst = l->more;
    outs.src = l->o;
    outs.scale = 0.5f;
    embed.dst = l->e;
    embed.src = NULL;
    embed.site = l->embed;
    embed.n = TC_LORA_IN;
    embed.vocab_begin = 10;
    embed.scale = 2;
    t->s.seq_lora = slots;
    t->s.shape.lora = 1;
    CHECK(be->begin_step(l->s.ctx, &t->s) == LLM_OK);
    tc_embed(&l->s, l->x, l->table);
    tc_embed(&l->s, l->e, l->table);
    be->lora(l->s.ctx, 0, &embed);
    be->lora(l->s.ctx, 0, &tokens);
    w.dst = l->y;
    w.src = l->x;
    w.weight = l->w;
    w.plus = l->plus;
    w.act = LLM_ACT_SILU;
    be->linear(l->s.ctx, 0, &w);
    w.dst = l->g;
    w.weight = l->gate_up;
    be->linear(l->s.ctx, 0, &w);
    const llm_gather_op gather = {l->o, l->x, 1, 0, 0, 0};
    be->gather(l->s.ctx, 0, &gather);
    be->lora(l->s.ctx, 0, &outs);
    o.src = l->o;
    o.head = l->head;
    o.vocab = TC_LORA_OUT;
    o.plus = l->more;
    be->logits(l->s.ctx, 0, &o);
    tc_run(&l->s);
}

/* Rows of several adapters in one step, then decoding with graphs; rows without an adapter get -0, and bits do not depend on neighbours. */
static void tc_lora(void) {
    static const int lengths[] = {5, 1, 21, 1, 9, 7, 2, 1},
                     slots[][8] = {{0, -1, 1, 3, 0, -1, 2, 1}, {-1, 4, 2, -1, 2, -1, 2, 4}, {1, 1, 3, 3, -1, 0, 0, 0}};
    tc_lora_side cpu, cuda;
    float alone[TC_LORA_OUT];
    tc_lora_open(&cpu, llm_backend_cpu());
    tc_lora_open(&cuda, tc_cuda);
    for (int round = 0; round < 5; round++) {
        const int32_t *mine = slots[round < 3 ? round : round - 3];
        test_step t;
        int same = 1;
        step_begin(&t, TC_PAGES);
        for (int q = 0; q < 8; q++) tc_add(&t, q, 0, round < 3 ? lengths[q] : 1, 0);
        tc_lora_run(&cpu, &t, mine);
        tc_lora_run(&cuda, &t, mine);
        int rows = t.s.shape.n_rows;
        double e[4] = {tc_compare(&cpu.s, cpu.e, &cuda.s, cuda.e, rows, TC_LORA_IN),
                       tc_compare(&cpu.s, cpu.y, &cuda.s, cuda.y, rows, TC_LORA_OUT),
                       tc_compare(&cpu.s, cpu.g, &cuda.s, cuda.g, rows, TC_LORA_OUT / 2), 0};
        for (int i = 0; i < 8; i++)
            for (int c = 0; c < TC_LORA_OUT; c++)
                e[3] = fmax(e[3], fabs((double)cpu.s.be->logits_row(cpu.s.ctx, i)[c] - (double)tc_cuda->logits_row(cuda.s.ctx, i)[c]));
        if (!CHECK(e[0] < 1e-5 && e[1] < 1e-5 && e[2] < 1e-5 && e[3] < 1e-3))
            printf("    adapters, round %d: %.2e %.2e %.2e %.2e\n", round, e[0], e[1], e[2], e[3]);
        for (int r = 0; r < rows; r++) {
            const float *row = tc_cuda->buffer_row(cuda.s.ctx, 0, cuda.plus, r);
            int slot = mine[t.seq_of_row[r]];
            for (int c = 0; c < TC_LORA_OUT; c++) {
                int has = slot == 3 || (slot == 0 && c < 50) || (slot == 1 && c >= 33);
                same &= (llm__f32_bits(row[c]) != 0x80000000u) == has;
            }
        }
        CHECK(same);
        if (round) continue;
        memcpy(alone, tc_cuda->buffer_row(cuda.s.ctx, 0, cuda.plus, 6), sizeof alone); /* the first row of sequence 2, then by itself */
        step_begin(&t, TC_PAGES);
        tc_add(&t, 2, 0, 1, 0);
        tc_lora_run(&cuda, &t, mine + 2);
        CHECK(!memcmp(alone, tc_cuda->buffer_row(cuda.s.ctx, 0, cuda.plus, 0), sizeof alone));
    }
    test_step t;
    int32_t slot = 5;
    llm_lora_op op = {LLM_ROWS_TOKENS, cuda.plus, cuda.x, cuda.low, cuda.site, TC_LORA_OUT, 0, 1};
    step_begin(&t, TC_PAGES);
    tc_add(&t, 0, 0, 1, 0);
    t.s.seq_lora = &slot;
    CHECK(tc_cuda->begin_step(cuda.s.ctx, &t.s) == LLM_OK);
    tc_cuda->lora(cuda.s.ctx, 0, &op);
    CHECK(tc_cuda->end_step(cuda.s.ctx) == LLM_ERR_ARG && strstr(llm_last_error(), "slot"));
    cpu.s.be->close(cpu.s.ctx);
    cuda.s.be->close(cuda.s.ctx);
    llm__arena_free(&tc_memory);
}

/* ---- adapters of experts ---- */

enum { TC_E = 5, TC_E_K = 2, TC_E_IN = 64, TC_E_FF = 32, TC_E_R = 8 };

/* Part p of site `down` of an adapter: factors of all experts, made of numbers that both sides get alike. */
static void tc_experts_put(const tc_side *s, llm_lora_site *site, int down, int slot, int n) {
    llm_lora_part part[2];
    llm_weight_desc d[2][2];
    llm_segment g[2][2];
    memset(d, 0, sizeof d);
    memset(g, 0, sizeof g);
    for (int p = 0; p < n; p++)
        for (int k = 0; k < 2; k++) {
            int64_t r = slot ? TC_E_R : 3, each = !k ? r : down ? TC_E_IN : TC_E_FF, cols = k ? r : down ? TC_E_FF : TC_E_IN;
            g[p][k].type = LLM_TYPE_F32;
            g[p][k].data = tc_floats(TC_E * each * cols, (uint32_t)(80 + 8 * slot + 4 * down + 2 * p + k), 0, 0.2f);
            g[p][k].stored_cols = g[p][k].n_cols = d[p][k].cols = cols;
            g[p][k].n_rows = d[p][k].rows = TC_E * each;
            d[p][k].name = "adapter";
            d[p][k].role = LLM_ROLE_EXPERTS;
            d[p][k].n_experts = TC_E;
            d[p][k].segments = &g[p][k];
            d[p][k].n_segments = 1;
            part[p].row = p * TC_E_FF;
            *(k ? &part[p].b : &part[p].a) = &d[p][k];
        }
    CHECK(s->be->lora_put(s->ctx, 0, site, slot, part, n) == LLM_OK);
}

typedef struct tc_experts_side {
    tc_side s;
    llm_weight *table, *routes;
    llm_buffer *y, *route;
    llm_experts_op op;
} tc_experts_side;

static void tc_experts_open(tc_experts_side *x, const llm_backend *be, int turns) {
    llm_backend_config c = tc_config(LLM_COMPUTE_F32, LLM_KV_AUTO);
    llm_lora_site *up, *down;
    float *routes = (float *)llm__arena_get(&tc_memory, TC_ROWS * 2 * TC_E_K * sizeof(float));
    memset(x, 0, sizeof *x);
    for (int i = 0; i < TC_ROWS; i++) { /* the last expert gets none, and one choice is none */
        float *to = routes + i * 2 * TC_E_K;
        to[0] = (float)(i * 7 % 4);
        to[1] = i == 3 ? -1 : (float)((i * 7 + 1 + i % 3) % 4);
        to[2] = 0.7f;
        to[3] = 0.3f + (float)i / 100;
    }
    x->s = tc_open(be, &c);
    x->table = tc_weight(&x->s, LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * TC_E_IN, 1, 0, 1), TC_ROWS, TC_E_IN, 0);
    x->routes = tc_weight(&x->s, LLM_ROLE_EMBED, LLM_TYPE_F32, routes, TC_ROWS, 2 * TC_E_K, 0);
    x->op.gate_up = tc_weight(&x->s, LLM_ROLE_EXPERTS_GATE_UP, LLM_TYPE_F32, tc_floats(TC_E * 2 * TC_E_FF * TC_E_IN, 2, 0, 0.3f),
                              TC_E * 2 * TC_E_FF, TC_E_IN, TC_E);
    x->op.down =
        tc_weight(&x->s, LLM_ROLE_EXPERTS, LLM_TYPE_F32, tc_floats(TC_E * TC_E_IN * TC_E_FF, 3, 0, 0.3f), TC_E * TC_E_IN, TC_E_FF, TC_E);
    x->op.src = tc_buffer(&x->s, TC_ROWS, TC_E_IN);
    x->op.dst = x->y = tc_buffer(&x->s, TC_ROWS, TC_E_IN);
    x->op.routes = x->route = tc_buffer(&x->s, TC_ROWS, 2 * TC_E_K);
    x->op.low = tc_buffer(&x->s, turns ? 3 * TC_E_K : TC_ROWS * TC_E_K, LLM_LORA_PARTS * TC_E_R);
    x->op.plus = tc_buffer(&x->s, turns ? 3 * TC_E_K : TC_ROWS * TC_E_K, LLM__MAX(2 * TC_E_FF, TC_E_IN));
    x->op.act = LLM_ACT_SILU;
    x->op.k = TC_E_K;
    x->op.n_experts = TC_E;
    x->op.ff = TC_E_FF;
    CHECK(be->weights_done(x->s.ctx) == LLM_OK && be->kv_open(x->s.ctx, 0, NULL, 16, 1) == LLM_OK);
    CHECK(be->lora_site(x->s.ctx, 0, 3, &up) == LLM_OK && be->lora_site(x->s.ctx, 0, 3, &down) == LLM_OK);
    tc_experts_put(&x->s, up, 0, 0, 1); /* the gate alone */
    tc_experts_put(&x->s, up, 0, 1, 2);
    tc_experts_put(&x->s, down, 1, 1, 1);
    x->op.up_lora = up;
    x->op.down_lora = down;
}

static void tc_experts_run(tc_experts_side *x, test_step *t, const int32_t *slots) {
    t->s.seq_lora = slots;
    t->s.shape.lora = 1;
    CHECK(x->s.be->begin_step(x->s.ctx, &t->s) == LLM_OK);
    tc_embed(&x->s, (llm_buffer *)(uintptr_t)x->op.src, x->table);
    tc_embed(&x->s, x->route, x->routes);
    x->s.be->experts(x->s.ctx, 0, &x->op);
    tc_run(&x->s);
}

/* Both backends alike, whoever is in the batch and however many go at a time; without adapters in the step as without sites. */
static void tc_experts(void) {
    static const int lengths[] = {5, 1, 21, 1, 9, 7, 2, 1},
                     slots[][8] = {{0, -1, 1, 1, 0, -1, 2, 1}, {-1, -1, 2, -1, 2, -1, 2, -1}, {1, 1, 0, 0, -1, 0, 1, 0}};
    tc_experts_side x[4]; /* the CPU at once and in turns, CUDA the same */
    for (int i = 0; i < 4; i++) tc_experts_open(&x[i], i < 2 ? llm_backend_cpu() : tc_cuda, i & 1);
    for (int round = 0; round < 6; round++) {
        test_step t;
        step_begin(&t, TC_PAGES);
        for (int q = 0; q < 8; q++) tc_add(&t, q, 0, round < 3 ? lengths[q] : 1, 0);
        int rows = t.s.shape.n_rows;
        for (int i = 0; i < 4; i++) tc_experts_run(&x[i], &t, slots[round % 3]);
        double e[3];
        for (int i = 1; i < 4; i++) e[i - 1] = tc_compare(&x[0].s, x[0].y, &x[i].s, x[i].y, rows, TC_E_IN);
        if (!CHECK(e[0] == 0 && e[1] < 1e-5 && e[2] < 1e-5))
            printf("    adapters of experts, round %d: %.2e %.2e %.2e\n", round, e[0], e[1], e[2]);
        if (round) continue;
        float together[TC_E_IN], alone[TC_E_IN];
        memcpy(together, x[0].s.be->buffer_row(x[0].s.ctx, 0, x[0].y, 6),
               sizeof together); /* the first row of sequence 2, then by itself */
        step_begin(&t, TC_PAGES);
        tc_add(&t, 2, 0, 1, 0);
        tc_experts_run(&x[0], &t, slots[0] + 2);
        memcpy(alone, x[0].s.be->buffer_row(x[0].s.ctx, 0, x[0].y, 0), sizeof alone);
        CHECK(!memcmp(together, alone, sizeof alone));
        const llm_lora_site *up = x[0].op.up_lora, *down = x[0].op.down_lora;
        x[0].op.up_lora = x[0].op.down_lora = NULL;
        tc_experts_run(&x[0], &t, slots[0] + 2);
        CHECK(memcmp(alone, x[0].s.be->buffer_row(x[0].s.ctx, 0, x[0].y, 0), sizeof alone));
        x[0].op.up_lora = up;
        x[0].op.down_lora = down;
    }
    for (int i = 0; i < 4; i++) {
        test_step t;
        int32_t slot = 3;
        step_begin(&t, TC_PAGES);
        tc_add(&t, 0, 0, 1, 0);
        t.s.seq_lora = &slot;
        CHECK(x[i].s.be->begin_step(x[i].s.ctx, &t.s) == LLM_OK);
        x[i].s.be->experts(x[i].s.ctx, 0, &x[i].op);
        CHECK(x[i].s.be->end_step(x[i].s.ctx) == LLM_ERR_ARG && strstr(llm_last_error(), "slot"));
        x[i].s.be->close(x[i].s.ctx);
    }
    llm__arena_free(&tc_memory);
}

/* ---- drawing ---- */

enum { TC_DRAW_VOCAB = 20000, TC_DRAWS = 20, TC_USED = 40 };

/* The rules of one draw, and memory that they point to. */
typedef struct tc_rules {
    llm_sampling p;
    llm_logit_bias bias[6];
    int32_t used[TC_USED + 1], counts[TC_USED + 1];
    uint32_t allowed[(TC_DRAW_VOCAB + 31) / 32];
} tc_rules;

/* Draw number k with what is combined there; `bent`: of what bends the row, too. */
static void tc_draw_fill(tc_rules *t, llm_draw *d, int k, int bent, int vocab) {
    static const float temperature[5] = {0, 1, 0.7f, 1.5f, 1}, top_p[4] = {0, 0.9f, 0.3f, 1}, min_p[3] = {0, 0.02f, 0};
    static const int32_t top_k[5] = {0, 5, 40, 1, 300};
    memset(t, 0, sizeof *t);
    t->p.temperature = temperature[k % 5];
    t->p.top_p = top_p[k / 5 % 4];
    t->p.min_p = min_p[k % 3];
    t->p.top_k = top_k[k / 3 % 5];
    t->p.repetition_penalty = 1;
    d->sampling = &t->p;
    d->wanted = k % TC_DRAWS != 7;
    d->row = 1;
    d->seed = (uint64_t)k * 77;
    d->position = k;
    if (bent && k % 3) { /* two for one token, one for a token that there is not */
        for (int i = 0; i < 6; i++)
            t->bias[i].id = (k * 31 + i / 2 * (vocab / 6 - 1)) % vocab, t->bias[i].bias = (float)(30 * i - 60 + k % 7);
        t->bias[5].id = vocab;
        t->p.logit_bias = t->bias;
        t->p.n_logit_bias = 6;
    }
    if (bent && k % 4) {
        for (int i = 0; i < TC_USED; i++) t->used[i] = (k * 7 + i * (vocab / 42)) % vocab, t->counts[i] = i % 3;
        t->p.repetition_penalty = k % 8 < 4 ? 1.7f : 0.6f;
        t->p.presence_penalty = 0.4f;
        t->p.frequency_penalty = k % 2 ? 0.3f : -0.2f;
        d->used = t->used;
        d->counts = t->counts;
        d->n_used = TC_USED;
    }
    for (int i = 0; i < vocab && bent && k % 5; i++)
        t->allowed[i / 32] |= (uint32_t)(tc_value(9, (uint32_t)(k * vocab + i)) > (k % 2 ? 0.5f : -0.9f)) << i % 32;
    if (bent && k % 5) d->allowed = t->allowed;
}

/* Row i of the step beside what the device drew for it: llm__choose must say the same. own: the token that the device fed itself, -1. */
static void tc_draw_check(const tc_side *s, int i, tc_rules *t, const llm_draw *d, int32_t own, int vocab, llm__scratch *scratch) {
    const float *row = s->be->logits_row(s->ctx, i);
    const llm_drawn *got = s->be->drawn(s->ctx, i);
    llm__history h = {d->n_used, 1, t->used, t->counts, NULL};
    llm__rules r;
    int at = 0;
    memset(&r, 0, sizeof r);
    while (at < h.n && t->used[at] != own) at++;
    if (own >= 0 && d->n_used && at == h.n) t->used[h.n] = own, t->counts[h.n++] = 0;
    if (own >= 0 && d->n_used) t->counts[at]++;
    r.s = &t->p;
    r.allowed = d->allowed;
    r.history = d->n_used ? &h : NULL;
    llm__choice want = llm__choose(row, vocab, &r, d->seed, d->position, scratch);
    if (!CHECK(got->id == want.id)) printf("    draw %d: %d for %d\n", (int)d->position, got->id, want.id);
    CHECK(fabs(got->log_sum - want.log_sum) < 1e-6 && fabs((double)got->logprob - (double)want.logprob) < 1e-5);
    CHECK(fabs((double)got->prob - (double)want.prob) < 1e-5);
}

/* Rounds 0 to 4: plain draws, captured; 5: prompts of two rows; 6 to 9: with masks, biases and penalties; 10: the same one step ahead, where
 * each row's own token is what round 9 has drawn. */
static void tc_draw_rows(int vocab, float scale) {
    enum { HIDDEN = 32 };
    static tc_rules rules[TC_DRAWS];
    llm_backend_config c = tc_config(LLM_COMPUTE_F32, LLM_KV_AUTO);
    tc_side s = tc_open(tc_cuda, &c);
    llm_weight *table = tc_weight(&s, LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(vocab * HIDDEN, 1, 0, 1), vocab, HIDDEN, 0);
    llm_weight *head = tc_weight(&s, LLM_ROLE_HEAD, LLM_TYPE_F32, tc_floats(vocab * HIDDEN, 2, 0, 1), vocab, HIDDEN, 0);
    llm_buffer *x = tc_buffer(&s, TC_ROWS, HIDDEN), *o = tc_buffer(&s, TC_OUT, HIDDEN);
    llm__scratch scratch;
    llm_logits_op op;
    int32_t drawn[TC_DRAWS];
    memset(&op, 0, sizeof op);
    CHECK(s.be->weights_done(s.ctx) == LLM_OK && s.be->kv_open(s.ctx, 0, NULL, 16, 1) == LLM_OK &&
          llm__scratch_open(&scratch, vocab, NULL, &tc_memory));
    op.src = o;
    op.head = head;
    op.vocab = vocab;
    op.scale = scale;
    for (int round = 0; round < 11; round++) {
        test_step t;
        step_begin(&t, TC_PAGES);
        for (int i = 0; i < TC_DRAWS; i++) tc_add(&t, i, 0, 1 + (round == 5), 0);
        for (int i = 0; i < TC_DRAWS; i++) tc_draw_fill(&rules[i], &t.draws[i], i + TC_DRAWS * round, round > 5, vocab);
        for (int i = 0; i < t.s.shape.n_rows; i++) t.token_from[i] = round < 10 ? -1 : (i + 1) % TC_DRAWS == 7 ? 0 : (i + 1) % TC_DRAWS;
        for (int i = 1; i < TC_DRAWS && round == 10; i += 2) { /* the token that the host does not know of stands in its list from before */
            int32_t own = drawn[t.token_from[i]], known = 0;
            for (int k = 0; k < TC_USED; k++) known |= rules[i].used[k] == own;
            if (t.draws[i].n_used && !known) rules[i].used[3] = own;
        }
        t.s.token_from = t.token_from;
        t.s.draws = t.draws;
        CHECK(s.be->begin_step(s.ctx, &t.s) == LLM_OK);
        tc_embed(&s, x, table);
        const llm_gather_op gather = {o, x, 1, 0, 0, 0};
        s.be->gather(s.ctx, 0, &gather);
        s.be->logits(s.ctx, 0, &op);
        tc_run(&s);
        for (int i = 0; i < TC_DRAWS; i++)
            if (i != 7) tc_draw_check(&s, i, &rules[i], &t.draws[i], round < 10 ? -1 : drawn[t.token_from[i]], vocab, &scratch);
        for (int i = 0; i < TC_DRAWS; i++) drawn[i] = s.be->drawn(s.ctx, i)->id;
    }
    s.be->close(s.ctx);
    llm__arena_free(&tc_memory);
}

/* A row in one part, in three, and rows so flat that more is left than fits shared memory, with many equal weights. */
static void tc_draws(void) {
    tc_draw_rows(3001, 1);
    tc_draw_rows(TC_DRAW_VOCAB, 1e-7f);
    if (TEST_BRIEF) return;
    tc_draw_rows(TC_DRAW_VOCAB, 1);
    tc_draw_rows(TC_DRAW_VOCAB - 1, 0.01f);
}

/* ---- pages ---- */

static void tc_pages(void) {
    llm_backend_config c = tc_config(LLM_COMPUTE_F32, LLM_KV_F32);
    tc_side s = tc_open(tc_cuda, &c);
    llm_kv_layer layer = {2, 16, 16, 0};
    int32_t from = 1, to = 3;
    CHECK(s.be->weights_done(s.ctx) == LLM_OK && s.be->kv_open(s.ctx, 1, &layer, 16, 4) == LLM_OK);
    size_t bytes = (size_t)s.be->kv_page_bytes(s.ctx, 1, &layer, 16);
    uint8_t *a = (uint8_t *)malloc(bytes), *b = (uint8_t *)calloc(1, bytes);
    for (size_t i = 0; i < bytes; i++) a[i] = (uint8_t)(i * 7);
    CHECK(s.be->kv_write(s.ctx, 0, 1, a) == LLM_OK && s.be->kv_copy(s.ctx, &from, &to, 1) == LLM_OK &&
          s.be->kv_read(s.ctx, 0, 3, b) == LLM_OK);
    CHECK(!memcmp(a, b, bytes));
    CHECK(s.be->kv_read(s.ctx, 0, 4, b) == LLM_ERR_ARG && s.be->kv_read(s.ctx, 1, 0, b) == LLM_ERR_ARG);
    to = 4;
    CHECK(s.be->kv_copy(s.ctx, &from, &to, 1) == LLM_ERR_ARG);
    free(a);
    free(b);
    s.be->close(s.ctx);
}

/* Hidden states of all rows to pages, then of the last rows others, then all back, one position later. */
static void tc_states_side(const tc_side *s, test_step *t, llm_buffer **x, llm_buffer **clear) {
    llm_kv_layer layers[2] = {{1, 16, 16, 0}, {3, 1, 40, 0}};
    llm_weight *table = tc_weight(s, LLM_ROLE_EMBED, LLM_TYPE_F32, tc_floats(TC_ROWS * 120, 9, 0.2f, 1), TC_ROWS, 120, 0);
    llm_buffer *o = tc_buffer(s, TC_OUT, 120);
    *x = tc_buffer(s, TC_ROWS, 120), *clear = tc_buffer(s, TC_ROWS, 120);
    llm_state_op keep = {0, LLM_ROWS_TOKENS, *x, NULL, 1}, last = {0, LLM_ROWS_OUT, o, NULL, 1},
                 recall = {1, LLM_ROWS_TOKENS, *x, *clear, 1};
    CHECK(s->be->weights_done(s->ctx) == LLM_OK && s->be->kv_open(s->ctx, 2, layers, TC_PAGE, TC_SEQS * TC_PAGES) == LLM_OK);
    step_begin(t, TC_PAGES);
    tc_add(t, 0, 0, 33, 0), tc_add(t, 1, 0, 1, 0), tc_add(t, 2, 0, 20, 0);
    CHECK(s->be->begin_step(s->ctx, &t->s) == LLM_OK);
    tc_embed(s, *x, table);
    s->be->state(s->ctx, 0, &keep);
    tc_run(s);
    for (int i = 0; i < t->s.shape.n_rows; i++) t->tokens[i] = TC_ROWS - 1 - t->tokens[i];
    CHECK(s->be->begin_step(s->ctx, &t->s) == LLM_OK);
    tc_embed(s, *x, table);
    const llm_gather_op gather = {o, *x, 1, 0, 0, 0};
    s->be->gather(s->ctx, 0, &gather);
    s->be->state(s->ctx, 0, &last);
    tc_run(s);
    step_begin(t, TC_PAGES);
    tc_add(t, 2, 3, 18, 0), tc_add(t, 0, 0, 34, 0), tc_add(t, 1, 0, 2, 0);
    CHECK(s->be->begin_step(s->ctx, &t->s) == LLM_OK);
    tc_embed(s, *clear, table);
    s->be->state(s->ctx, 0, &recall);
    tc_run(s);
}

static void tc_states(void) {
    static const llm_kv_type types[] = {LLM_KV_F32, LLM_KV_F16, LLM_KV_BF16, LLM_KV_FP8_E4M3, LLM_KV_FP8_E5M2, LLM_KV_INT8, LLM_KV_INT4};
    for (int i = 0; i < LLM__COUNT(types); i++) {
        llm_backend_config c = tc_config(LLM_COMPUTE_F32, types[i]);
        tc_side a = tc_open(llm_backend_cpu(), &c), b = tc_open(tc_cuda, &c);
        test_step t;
        llm_buffer *x[2], *clear[2];
        tc_states_side(&a, &t, &x[0], &clear[0]);
        tc_states_side(&b, &t, &x[1], &clear[1]);
        CHECK(tc_compare(&a, x[0], &b, x[1], t.s.shape.n_rows, 120) == 0 && /* bits: sums and products are rounded one by one */
              tc_compare(&a, clear[0], &b, clear[1], t.s.shape.n_rows, 120) == 0);
        const float *none = a.be->buffer_row(a.ctx, 0, x[0], 18), *some = a.be->buffer_row(a.ctx, 0, x[0], 19),
                    *gone = a.be->buffer_row(a.ctx, 0, clear[0], 18);
        for (int k = 0; k < 120; k++) CHECK(none[k] == 0 && gone[k] == 0 && some[k] != 0);
        llm_state_op bad = {0, LLM_ROWS_TOKENS, x[1], NULL, 0};
        b.be->state(b.ctx, 0, &bad);
        CHECK(b.be->wait(b.ctx) == LLM_ERR_ARG && strstr(llm_last_error(), "state: the layer"));
        a.be->close(a.ctx);
        b.be->close(b.ctx);
        llm__arena_free(&tc_memory);
    }
}

/* ---- layers that keep a state ---- */

/* Convolutions, linear attention and gates against the plain reference; and whole, by tokens (with graphs), in chunks, pages and forks the same
 * bits. What only a device refuses: more keys than a thread has registers for. */
static void tc_recurrent(void) {
    for (int i = 0; i < LLM__COUNT(re_cases); i += TEST_BRIEF ? 3 : 1) {
        const re_case *c = &re_cases[i];
        float *first = NULL;
        for (int plan = 0; plan < RE_PLANS; plan++) {
            re_net n;
            if (TEST_BRIEF && plan % 5 && plan != 2) continue;
            re_open(&n, tc_cuda, c, NULL, 1);
            float *out = re_run(&n, plan, 5 + (uint32_t)plan);
            const double error = plan ? 0 : re_error(c, out);
            if (!CHECK(error < 2e-5)) printf("    %s: error %g\n", c->name, error);
            if (plan && !CHECK(re_same(c, first, out))) printf("    %s: plan %d differs\n", c->name, plan);
            LLM_FREE(plan ? out : NULL);
            if (!plan) first = out;
            re_close(&n);
        }
        LLM_FREE(first);
    }
    re_refusals(tc_cuda);
    static const re_case wide = {"keys of 257", 2, 0, 0, 0, 1, 1, 257, 4, 1, 1, 1, 0, 0, 0, 4, 0, 1, 0, 0, 0, 0};
    re_net n;
    test_step b;
    const int32_t pages[RE_PAGES] = {0};
    re_open(&n, tc_cuda, &wide, NULL, 1);
    step_begin(&b, RE_PAGES);
    step_add(&b, 0, 0, 2, pages);
    CHECK(tc_cuda->begin_step(n.ctx, &b.s) == LLM_OK);
    re_record(&n);
    CHECK(tc_cuda->end_step(n.ctx) == LLM_ERR_UNSUPPORTED && strstr(llm_last_error(), "keys of 257 values, expected at most 256"));
    re_close(&n);
}

/* ---- whole models ---- */

#define TC_LLAMA TEST_CHECKPOINT("llama")

static llm_result tc_engine(const llm_model *m, llm_engine_config *c, llm_engine **e) {
    c->backend = tc_cuda;
    c->max_model_len = 128;
    c->num_gpu_blocks = 64;
    c->block_size = 16;
    if (!c->max_num_seqs) c->max_num_seqs = 4;
    return llm_engine_open(m, c, e);
}

/* Logits of a prompt in one piece, and in pieces: with batch_invariant their bits are equal. */
static void tc_invariant(const llm_model *m) {
    llm_engine_config c;
    llm_engine *e;
    int32_t ids[40], vocab = llm_model_get_info(m)->vocab_size;
    float *a = (float *)malloc((size_t)vocab * 4 * 40), *b = (float *)malloc((size_t)vocab * 4 * 40);
    memset(&c, 0, sizeof c);
    c.batch_invariant = 1;
    for (int i = 0; i < 40; i++) ids[i] = (i * 37 + 5) % vocab;
    if (CHECK(tc_engine(m, &c, &e) == LLM_OK)) {
        CHECK(llm_forward(e, 0, 0, ids, 40, a, 40) == LLM_OK);
        for (int at = 0, n; at < 40; at += n) {
            n = at < 20 ? 1 + at % 7 : 1;
            n = LLM__MIN(n, 40 - at);
            CHECK(llm_forward(e, 1, at, ids + at, n, b + (int64_t)at * vocab, n) == LLM_OK);
        }
        CHECK(!memcmp(a, b, (size_t)vocab * 4 * 40));
        llm_engine_close(e);
    }
    free(a);
    free(b);
}

/* How a model is run: what is not 0 differs from one device with graphs. */
typedef struct tc_way {
    const char *name;
    int cpu, eager, ranks, stages, capture, pages;
    int states;                   /* whether models with states and the like go this way, too: 1 greedy answers, 2 also drawn ones */
    const char *draft, *variable; /* of the environment, set to 1 while the engine is open */
} tc_way;

/* clang-format off */
static const tc_way tc_ways[] = {
    {"CPU", 1, 0, 1, 1, 0, 0, 2, NULL, NULL}, {"graphs", 0, 0, 1, 1, 0, 0, 2, NULL, NULL}, {"eager", 0, 1, 1, 1, 0, 0, 1, NULL, NULL},
    {"eager from 12 tokens on", 0, 0, 1, 1, 12, 0, 0, NULL, "LLM_CUDA_NO_OVERLAP"}, {"two devices", 0, 0, 2, 1, 0, 0, 1, NULL, NULL},
    {"two devices, NCCL alone", 0, 0, 2, 1, 0, 0, 0, NULL, "LLM_CUDA_NO_PEERS"}, {"pipeline of two", 0, 0, 1, 2, 0, 0, 0, NULL, NULL},
    {"pipeline, eager", 0, 1, 1, 2, 0, 0, 0, NULL, NULL}, {"pipeline of two pairs", 0, 0, 2, 2, 0, 0, 2, NULL, NULL},
    {"CPU, pipeline of two pairs", 1, 0, 2, 2, 0, 0, 0, NULL, NULL}, {"few pages", 0, 0, 1, 1, 0, 8, 1, NULL, NULL},
    {"lookup", 0, 0, 1, 1, 0, 0, 1, "[ngram]", NULL}, {"draft model", 0, 0, 1, 1, 0, 0, 0, TC_LLAMA, NULL},
    {"draft model, two devices", 0, 0, 2, 1, 0, 0, 0, TC_LLAMA, NULL}, {"draft model, pipeline", 0, 0, 1, 2, 0, 0, 0, TC_LLAMA, NULL}};
/* clang-format on */

/* Devices that this machine has, up to 4. */
static int tc_devices(void) {
    for (int n = 4; n > 1; n--) {
        llm_backend_config c = tc_config(LLM_COMPUTE_F32, LLM_KV_AUTO);
        llm_backend_ctx *ctx;
        c.n_ranks = n;
        if (tc_cuda->open(&c, &ctx)) continue;
        tc_cuda->close(ctx);
        return n;
    }
    return 1;
}

/* Answers to several requests at once, some of a form; appends their ids. */
static void tc_answers(const llm_model *m, const tc_way *way, float temperature, llm_tokens *out) {
    llm_engine_config c;
    llm_engine *e = NULL;
    llm_request *r[6];
    llm_grammar_config form;
    llm_grammar *g = NULL;
    static const llm_logit_bias bias[2] = {{17, 4}, {90, -50}};
    int busy = 1;
    memset(&c, 0, sizeof c);
    memset(&form, 0, sizeof form);
    form.kind = LLM_GRAMMAR_REGEX;
    form.text = "[a-z ]{40}";
    form.len = strlen(form.text);
    CHECK(llm_grammar_open(m, &form, &g) == LLM_OK);
    c.backend = way->cpu ? llm_backend_cpu() : tc_cuda;
    c.max_model_len = 64;
    c.num_gpu_blocks = way->pages ? way->pages : 64;
    c.block_size = 16;
    c.max_num_seqs = 4;
    c.n_threads = 1;
    c.enforce_eager = way->eager;
    c.max_seq_len_to_capture = way->capture;
    c.tensor_parallel_size = way->ranks;
    c.pipeline_parallel_size = way->stages;
    c.speculative_model = way->draft;
    c.num_speculative_tokens = way->draft ? 3 : 0;
    c.max_num_batched_tokens = way->draft ? 6 : 0; /* so that prompts come between */
    c.dtype = LLM_COMPUTE_F32;
    if (way->variable) setenv(way->variable, "1", 1);
    if (!CHECK(llm_engine_open(m, &c, &e) == LLM_OK)) printf("    %s: %s\n", way->name, llm_last_error());
    for (int i = 0; i < 6 && e; i++) {
        llm_request_config q;
        int32_t ids[22];
        memset(&q, 0, sizeof q);
        for (int k = 0; k < LLM__COUNT(ids); k++) ids[k] = (i * 11 + k * 3 + 1) % 200;
        q.prompt_ids = ids;
        q.n_prompt_ids = (size_t)(i == 3 ? 22 : 3 + i);
        q.sampling.max_tokens = 5 + 2 * i;
        q.sampling.ignore_eos = 1;
        q.sampling.temperature = temperature;
        q.sampling.top_p = 0.95f;
        q.sampling.has_seed = 1;
        q.sampling.seed = i;
        q.sampling.grammar = i == 5 ? g : NULL;
        q.sampling.repetition_penalty = i == 2 ? 1.4f : 1;
        q.sampling.frequency_penalty = i == 2 || i == 5 ? 0.5f : 0;
        q.sampling.logit_bias = bias;
        q.sampling.n_logit_bias = i == 1 ? 2 : 0;
        CHECK(llm_request_submit(e, &q, &r[i]) == LLM_OK);
    }
    while (e && busy) CHECK(llm_engine_step(e, &busy) == LLM_OK);
    for (int i = 0; i < 6 && e; i++) {
        llm_output o;
        CHECK(llm_request_get_output(r[i], 0, &o) == LLM_OK);
        for (size_t k = 0; k < o.n_token_ids; k++) llm_tokens_add(out, o.token_ids[k]);
        llm_request_free(r[i]);
    }
    llm_engine_close(e);
    if (way->variable) unsetenv(way->variable);
    llm_grammar_close(g);
}

/* The same tokens whatever runs the model, drawn on the device one step ahead or on the host. drafts 0: a model with states or the like, for
 * which no other one drafts; LLM_TEST_WHOLE is set where it is to go every way. */
static void tc_whole(const llm_model *m, int drafts) {
    for (int t = 0; t < 2; t++) {
        llm_tokens right;
        memset(&right, 0, sizeof right);
        for (int i = 0; i < LLM__COUNT(tc_ways); i++) {
            llm_tokens got;
            double start = llm__now();
            if (t && (i > 4 || TEST_BRIEF) && (i != 8 || TEST_BRIEF) && i > 1) continue;
            const int lookup = tc_ways[i].draft && tc_ways[i].draft[0] == '[';
            if (!drafts && ((tc_ways[i].draft && !lookup) || (TEST_BRIEF && (t || (i > 1 && i != 4 && !lookup))))) continue;
            if (!drafts && tc_ways[i].states <= t && !getenv("LLM_TEST_WHOLE")) continue;
            if (TEST_BRIEF && (i == 7 || i == 9 || i > 12)) continue;                 /* what others of these go through one by one */
            if (getenv("LLM_TEST_SLOW") && i && i != 1 && i != 4 && i != 8) continue; /* with sanitizers */
            if (!tc_ways[i].cpu && tc_ways[i].ranks * tc_ways[i].stages > tc_devices()) {
                if (!t) SKIP("fewer devices");
                continue;
            }
            memset(&got, 0, sizeof got);
            tc_answers(m, &tc_ways[i], (float)t, i ? &got : &right);
            if (i && !CHECK(right.len == got.len && got.len == 60 && !memcmp(right.data, got.data, got.len * sizeof *got.data)))
                for (size_t k = 0; k < right.len && k < got.len; k++)
                    if (right.data[k] != got.data[k] || k == got.len - 1) {
                        printf("    %s, temperature %d: token %d of %d differs\n", tc_ways[i].name, t, (int)k, (int)got.len);
                        break;
                    }
            if (getenv("LLM_TEST_TIMES")) printf("-- %s: %.1f s\n", tc_ways[i].name, llm__now() - start);
            llm_tokens_free(&got);
        }
        llm_tokens_free(&right);
    }
}

/* Models with states of each kind, an indexer, several streams: pieces of a prompt, and answers of several requests at once. */
static void tc_whole_states(void) {
    static const char *const models[] = {TEST_CHECKPOINT("qwen3_next"), TEST_CHECKPOINT("deepseek_v32_topk"),
                                         TEST_CHECKPOINT("gemma3n_three"), TEST_CHECKPOINT("mamba2"), TEST_CHECKPOINT("lfm2")};
    for (int i = 0; i < (getenv("LLM_TEST_SLOW") ? 0 : TEST_BRIEF ? 1 : LLM__COUNT(models)); i++) { /* slow: with sanitizers */
        const double start = llm__now();
        llm_model *m = NULL;
        if (!test_made(models[i], "checkpoints") || !CHECK(!llm_model_open(models[i], NULL, &m))) continue;
        tc_invariant(m);
        tc_whole(m, 0);
        llm_model_close(m);
        printf("-- %s: %.1f s\n", strrchr(models[i], '/') + 1, llm__now() - start);
    }
}

/* What heads guess that read hidden states, on one device, and some on two. The third prompt is a long one. */
static void tc_guesses(void) {
    for (int i = 0; i < (getenv("LLM_TEST_SLOW") ? 1 : TEST_BRIEF ? 2 : LLM__COUNT(head_names)); i++)
        for (int ranks = 1; ranks <= (TEST_BRIEF || (i % 3 && !getenv("LLM_TEST_WHOLE")) ? 1 : LLM__MIN(tc_devices(), 2)); ranks++)
            head_family(tc_cuda, head_names[i], ranks, i || TEST_BRIEF ? 2 : 3);
}

/* Seconds that n answers of 6 tokens take a pipeline of two stages whose every operation takes its time. */
static double tc_pipeline_seconds(const llm_model *m, int n) {
    llm_engine_config c = LLM__ZERO;
    llm_engine *e = NULL;
    llm_request *r[4];
    int busy = 1;
    c.backend = tc_cuda;
    c.max_model_len = 64;
    c.num_gpu_blocks = 64;
    c.block_size = 16;
    c.max_num_seqs = 4;
    c.n_threads = 1;
    c.enforce_eager = 1;
    c.pipeline_parallel_size = 2;
    if (!CHECK(llm_engine_open(m, &c, &e) == LLM_OK)) return 0;
    for (int i = 0; i < n; i++) {
        llm_request_config q = LLM__ZERO;
        int32_t ids[4] = {i, 5, 9, 2};
        q.prompt_ids = ids;
        q.n_prompt_ids = 4;
        q.sampling.max_tokens = 6;
        q.sampling.ignore_eos = 1;
        CHECK(llm_request_submit(e, &q, &r[i]) == LLM_OK);
    }
    const double start = llm__now();
    while (busy) CHECK(llm_engine_step(e, &busy) == LLM_OK);
    const double end = llm__now();
    for (int i = 0; i < n; i++) llm_request_free(r[i]);
    llm_engine_close(e);
    return end - start;
}

/* While the second stage computes a step the first one computes another: two answers, each in steps of its own, take as long as one. That is
 * told by the emulation alone, whose operations can be made to take long (CUEMU_DELAY_US), however fast the machine is. */
static void tc_overlap(const llm_model *m) {
    if (!tc_emulated()) SKIP("overlap: not the emulation");
    if (!tc_emulated()) return;
    double one = 1e9, two = 1e9;
    setenv("CUEMU_DELAY_US", "5000", 1);
    for (int i = 0; i < 6 && two >= 1.6 * one; i++) { /* other work on the machine may take either's time: the least of each */
        const double a = tc_pipeline_seconds(m, 1), b = tc_pipeline_seconds(m, 2);
        one = LLM__MIN(one, a), two = LLM__MIN(two, b);
    }
    unsetenv("CUEMU_DELAY_US");
    if (!CHECK(one > 0.5 && two < 1.6 * one)) printf("    one answer %.3f s, two %.3f s\n", one, two);
}

/* No memory is taken after the start, however the batches come; and the memory for pages that give way is pinned until close. */
static void tc_memory_taken(const llm_model *m) {
    llm_engine_config c;
    llm_engine *e = NULL;
    int32_t ids[40], vocab = llm_model_get_info(m)->vocab_size;
    float *row = (float *)malloc((size_t)vocab * 4);
    memset(&c, 0, sizeof c);
    c.preemption_swap = 1;
    c.num_cpu_blocks = 3;
    c.tensor_parallel_size = 2;
    for (int i = 0; i < 40; i++) ids[i] = (i * 37 + 5) % vocab;
    if (!tc_emulated()) SKIP("memory: not the emulation");
    else if (CHECK(tc_engine(m, &c, &e) == LLM_OK)) {
        long before = *tc_taken, swap = *tc_pinned;
        CHECK(swap > 0);
        for (int at = 0, n; at < 40; at += n) {
            n = at < 30 ? 10 : 1;
            CHECK(llm_forward(e, 0, at, ids + at, n, row, 1) == LLM_OK);
        }
        CHECK(*tc_taken == before);
        llm_engine_close(e);
        CHECK(*tc_pinned == 0);
    }
    free(row);
}

/* ---- what breaks ---- */

/* One request while a variable of the emulation is set: before the engine is opened, or (late) between opening and the first step. Its
 * sums over ranks go in two shots. */
static void tc_fault(const llm_model *m, const char *variable, const char *value, int late, int ranks, const char *sentence) {
    llm_engine_config c;
    llm_engine *e = NULL;
    float *row = (float *)malloc((size_t)llm_model_get_info(m)->vocab_size * 4);
    int32_t ids[24] = {1, 2};
    double start;
    memset(&c, 0, sizeof c);
    c.tensor_parallel_size = ranks;
    c.step_timeout = strstr(sentence, "answer") ? 0.5f : 60; /* what is told at once is told by a slow build, too */
    c.backend = tc_cuda;
    c.max_model_len = 128;
    c.num_gpu_blocks = 64;
    c.block_size = 16;
    if (!late) setenv(variable, value, 1);
    llm_result r = llm_engine_open(m, &c, &e);
    if (late) setenv(variable, value, 1);
    start = llm__now();
    if (!r) r = llm_forward(e, 0, 0, ids, LLM__COUNT(ids), row, 1);
    if (!CHECK(r != LLM_OK && strstr(llm_last_error(), sentence))) printf("    %s=%s: %s\n", variable, value, llm_last_error());
    CHECK(llm__now() - start < 30); /* 0.5 s on a quiet machine */
    llm_engine_close(e);
    unsetenv(variable);
    free(row);
}

/* What stays broken comes last: device 1 and then device 0. */
static void tc_faults(const llm_model *m) {
    tc_fault(m, "CUEMU_DEVICES", "0", 0, 1, "no device");
    tc_fault(m, "CUEMU_DRIVER", "12040", 0, 1, "the driver is for CUDA 12.4, this library needs 13.0");
    tc_fault(m, "CUEMU_DEVICES", "1", 0, 2, "tensor parallel size 2, but there is 1 device");
    tc_fault(m, "CUEMU_MEMORY", "1000000", 0, 1, "out of memory");
    setenv("CUEMU_NO_PEERS", "1", 1);
    tc_fault(m, "CUEMU_DEAD_RANK", "1", 1, 2, "does not answer"); /* the other one waits inside NCCL */
    unsetenv("CUEMU_NO_PEERS");
    tc_fault(m, "CUEMU_DEAD_RANK", "1", 0, 2, "does not answer");    /* while devices are connected */
    tc_fault(m, "CUEMU_STUCK_LAUNCH", "1", 1, 2, "does not answer"); /* in the call that launches, until communicators are aborted */
    setenv("CUEMU_STUCK_FOR_EVER", "1", 1);
    tc_fault(m, "CUEMU_STUCK_LAUNCH", "1", 1, 2, "does not answer"); /* its thread is left behind */
    unsetenv("CUEMU_STUCK_FOR_EVER");
    tc_fault(m, "CUEMU_DEAD_DEVICE", "1", 1, 2, "does not answer"); /* ... and for a flag in peer memory */
    tc_fault(m, "CUEMU_FAIL_LAUNCH", "9", 1, 1, "illegal memory access");
}

int main(int argc, char **argv) {
    const char *path = getenv("LLM_CUDA_LIBRARY");
    llm_model *m = NULL;
    double start = llm__now();
    CHECK(llm_backend_load("libm.so.6", &tc_cuda) == LLM_ERR_UNSUPPORTED && !tc_cuda);
    if (llm_backend_load(path ? path : "build/libllm_cuda_emu.so", &tc_cuda)) {
        printf("%s\n", llm_last_error());
        SKIP("no CUDA library");
        return test_done();
    }
    void *library = dlopen(path ? path : "build/libllm_cuda_emu.so", RTLD_NOW | RTLD_LOCAL);
    if (library) {
        tc_late = (const long *)dlsym(library, "cuemu_late_loads");
        tc_taken = (const long *)dlsym(library, "cuemu_allocations");
        tc_pinned = (const long *)dlsym(library, "cuemu_pinned");
        tc_launched = (const long *)dlsym(library, "cuemu_launched");
        tc_asked = (const long *)dlsym(library, "cuemu_asked");
    }
    /* clang-format off */
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"linear", tc_linear}, {"linear_long", tc_linear_long}, {"linear_small", tc_linear_small}, {"bands", tc_bands}, {"fp8", tc_fp8}, {"massive", tc_massive}, {"not_finite", tc_not_finite}, {"asking", tc_asking}, {"many_rows", tc_many_rows}, {"loading", tc_loading}, {"known", tc_known}, {"attention", tc_attention}, {"heads", tc_heads_read}, {"splits", tc_splits}, {"prompts", tc_prompts}, {"groups", tc_groups}, {"latent", tc_latent}, {"latent_wide", tc_latent_wide}, {"latent_long", tc_latent_long},
                 {"indexer", tc_indexer}, {"indexer_refused", tc_indexer_refused}, {"streams", tc_streams}, {"sparse", tc_sparse}, {"streams_refused", tc_streams_refused},
                 {"mixtures", tc_mixtures}, {"tiles", tc_tiles}, {"rows", tc_rows}, {"joined", tc_joined}, {"narrow", tc_narrow}, {"narrow_heads", tc_narrow_heads}, {"sums", tc_sums}, {"beside", tc_beside}, {"adapters", tc_lora},   {"experts", tc_experts},     {"draws", tc_draws},
                 {"pages", tc_pages},       {"states", tc_states},     {"recurrent", tc_recurrent}, {"guesses", tc_guesses}};
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(parts); i++, start = llm__now()) {
        if (argc > 1 && strcmp(argv[1], parts[i].name) && strcmp(argv[1], "operations")) continue; /* one part alone, or all but models */
        if (TEST_BRIEF && !strcmp(parts[i].name, "latent_long") && (argc < 2 || strcmp(argv[1], parts[i].name)))
            continue; /* half a minute */
        parts[i].run();
        printf("-- %s: %.1f s\n", parts[i].name, llm__now() - start);
        fflush(stdout);
    }
    CHECK(!tc_late || !*tc_late); /* every kernel was loaded when its device was opened */
    if (argc > 1 && strcmp(argv[1], "models")) return test_done();
    tc_whole_states();
    start = llm__now();
    if (test_made(TC_LLAMA, "checkpoints") && CHECK(!llm_model_open(TC_LLAMA, NULL, &m))) {
        tc_invariant(m);
        tc_memory_taken(m);
        tc_overlap(m);
        tc_whole(m, 1);
        printf("-- models: %.1f s\n", llm__now() - start);
        CHECK(!tc_late || !*tc_late);
        if (tc_emulated()) tc_faults(m);
        else SKIP("faults: not the emulation");
        llm_model_close(m);
    }
    return test_done();
}
