/* Types, packing and linear kernels: every format x instruction set x number of tokens against the dequantised meaning of the file. */
#include "../test.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/threads.h"
#include "cpu/dtypes.h"
#include "cpu/subs.h"
#include "cpu/grids.h"
#include "cpu/isa.h"
#include "cpu/latent.h"
#include "cpu/packed.h"
#include "cpu/kernels_scalar.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"
#include "cpu/pack.h"
#include "cpu/products.h"
#include "cpu/experts.h"

/* ---- Random stored matrices ---- */

static uint64_t linear_rng_state = 1;

static uint32_t linear_rng(void) {
    linear_rng_state = linear_rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(linear_rng_state >> 33);
}

enum { LINEAR_SMALL = -2 };

static float linear_uniform(void) { return (float)linear_rng() / 1073741824.0f - 1; }

static void linear_put_f16(uint8_t *p, float v) {
    uint16_t h = llm__f32_to_f16(v);
    memcpy(p, &h, 2);
}

/* What a format with a codebook is read as, of random bytes: codes that there are, small scales, equal for 32 columns where they must be. */
static void linear_grid(int32_t type, float d, uint8_t *p) {
    const int x2 = type == LLM_TYPE_GRID1X || type == LLM_TYPE_GRID2X, four = type == LLM_TYPE_GRID3 || type == LLM_TYPE_GRID3S;
    linear_put_f16(p, d);
    for (int i = 2; i < 18; i++) p[i] = x2 || i % 2 == 0 ? p[i] & 31 : p[i - 1];
    for (int i = 18; i < 146; i++) p[i] &= four ? 0xFF : type == LLM_TYPE_TERNARY ? 0x33 : 0x77;
}

/* Random bytes, or all of them `byte` if that is not negative, but with scales of a sensible size; SMALL: with powers of two about and under
 * the smallest normal number. */
static void linear_block(int32_t type, int byte, uint8_t *p) {
    int n = llm__type_block_bytes(type);
    for (int i = 0; i < n; i++) p[i] = (uint8_t)(byte < 0 ? (int)linear_rng() : byte);
    float d = 0.01f * linear_uniform(), m = 0.01f * linear_uniform();
    switch (type) {
    case LLM_TYPE_F32: {
        float f = linear_uniform();
        memcpy(p, &f, 4);
        break;
    }
    case LLM_TYPE_F64: {
        double f = linear_uniform();
        memcpy(p, &f, 8);
        break;
    }
    case LLM_TYPE_F16: linear_put_f16(p, linear_uniform()); break;
    case LLM_TYPE_BF16: {
        uint16_t h = llm__f32_to_bf16(linear_uniform());
        memcpy(p, &h, 2);
        break;
    }
    case LLM_TYPE_F8_E4M3: *p = llm__f32_to_e4m3(linear_uniform()); break;
    case LLM_TYPE_F8_E5M2: *p = llm__f32_to_e5m2(linear_uniform()); break;
    case LLM_TYPE_Q4_1:
    case LLM_TYPE_Q5_1:
    case LLM_TYPE_Q4_K:
    case LLM_TYPE_Q5_K:
        linear_put_f16(p, d);
        linear_put_f16(p + 2, m);
        break;
    case LLM_TYPE_Q2_K:
        linear_put_f16(p + 80, d);
        linear_put_f16(p + 82, m);
        break;
    case LLM_TYPE_Q3_K: linear_put_f16(p + 108, d); break;
    case LLM_TYPE_Q6_K: linear_put_f16(p + 208, d); break;
    case LLM_TYPE_MXFP4: *p = (uint8_t)(byte == LINEAR_SMALL ? linear_rng() % 3 : 118 + linear_rng() % 8); break;
    case LLM_TYPE_Q4_ZERO:
        linear_put_f16(p, d);
        p[2] %= 17;
        break;
    case LLM_TYPE_NVFP4_32:
        linear_put_f16(p, d);
        linear_put_f16(p + 2, m);
        break;
    case LLM_TYPE_G32: memcpy(p + 4, &m, 4); /* fall through */
    case LLM_TYPE_NF4:
    case LLM_TYPE_FP4: memcpy(p, &d, 4); break;
    case LLM_TYPE_GRID1:
    case LLM_TYPE_GRID1X:
    case LLM_TYPE_GRID2:
    case LLM_TYPE_GRID2X:
    case LLM_TYPE_GRID3:
    case LLM_TYPE_GRID3S:
    case LLM_TYPE_TERNARY: linear_grid(type, d, p); break;
    case LLM_TYPE_F8_32:
    case LLM_TYPE_F8_128:
        memcpy(p, &d, 4);
        for (int i = 4; i < n; i++) p[i] = (uint8_t)(p[i] - ((p[i] & 127) == 127)); /* numbers only */
        break;
    default:
        if (llm__type_block(type) > 1) linear_put_f16(p, d);
    }
}

static uint8_t *linear_matrix(int32_t type, int byte, int64_t rows, int64_t cols) {
    int64_t blocks = rows * cols / llm__type_block(type);
    int bytes = llm__type_block_bytes(type);
    uint8_t *p = LLM__NEW(uint8_t, blocks * bytes);
    for (int64_t i = 0; i < blocks; i++) linear_block(type, byte, p + i * bytes);
    return p;
}

static uint8_t *linear_random_matrix(int32_t type, int64_t rows, int64_t cols) { return linear_matrix(type, -1, rows, cols); }

/* ---- Running operations on a pool ---- */

static const llm__tuning linear_tunings[] = {{8192, 0, 4, 16, 1}, {0, 64, 1, LLM__TILE + 1, 0}, {4096, 1024, 3, 1, 1}};

typedef struct linear_job {
    llm__pool *pool;
    llm__exec exec;
    const llm_linear_op *linear;
    const llm_logits_op *logits;
    const llm_experts_op *experts;
    const llm_embed_op *embed;
    llm_weight *pack;
    float *dst;
    int64_t dst_stride;
} linear_job;

/* Linear layers: pass 0 rounds, pass 1 multiplies. The others do all in one, experts in their own. */
static void linear_job_run(void *arg, int pass, int thread, int n_threads) {
    const linear_job *j = (const linear_job *)arg;
    llm__exec e = j->exec;
    e.thread = thread;
    e.n_threads = n_threads;
    if (j->pack) llm__weight_pack(j->pack, thread, n_threads);
    if (!pass && (j->linear || j->logits)) {
        const llm_weight *w = j->linear ? j->linear->weight : j->logits->head;
        const llm__input in =
            llm__input_of(&e, j->linear ? j->linear->src : j->logits->src, j->linear ? j->linear->src_col : 0, llm__weight_form(w, e.isa));
        llm__input sorted = in;
        sorted.order = llm__weight_order(w, 0);
        llm__act_fill(&e, &sorted, w->cols);
    }
    if (j->linear && pass) llm__run_linear(&e, j->linear);
    if (j->logits && pass) llm__run_logits(&e, j->logits, j->dst, j->dst_stride);
    if (j->experts) llm__run_experts(&e, j->experts, pass);
    for (int i = 0; i < e.n_rows && j->embed && !thread; i++) llm__run_embed_row(&e, j->embed, i);
}

static void linear_job_start(linear_job *j) {
    int passes = j->experts ? llm__experts_passes(j->experts, j->exec.n_rows, j->exec.scratch_bytes) : j->linear || j->logits ? 2 : 1;
    llm__pool_run(j->pool, linear_job_run, j, passes);
}

static void linear_job_init(linear_job *j, llm__pool *pool, llm__isa isa, int rows) {
    memset(j, 0, sizeof *j);
    j->pool = pool;
    j->exec.isa = isa;
    j->exec.tuning = &linear_tunings[0];
    j->exec.n_rows = rows;
}

static llm_weight *linear_weight(llm__pool *pool, llm_role role, const llm_segment *seg, int n_seg, int n_experts, int64_t rows,
                                 int64_t cols, llm_compute compute) {
    llm_weight_desc d;
    llm_weight *w;
    linear_job j;
    memset(&d, 0, sizeof d);
    d.name = "test";
    d.role = role;
    d.segments = seg;
    d.n_segments = n_seg;
    d.n_experts = n_experts;
    d.rows = rows;
    d.cols = cols;
    if (!CHECK(llm__weight_new(&d, compute, &w) == LLM_OK) || !CHECK(llm__weights_allocate(&w, 1) == LLM_OK)) return NULL;
    linear_job_init(&j, pool, LLM__ISA_SCALAR, 0);
    j.pack = w;
    linear_job_start(&j);
    return w;
}

static llm_segment linear_segment(int32_t type, const void *data, int64_t rows, int64_t cols) {
    llm_segment s;
    memset(&s, 0, sizeof s);
    s.type = type;
    s.data = data;
    s.stored_cols = s.n_cols = cols;
    s.n_rows = rows;
    return s;
}

static llm_buffer *linear_buffer(int64_t rows, int64_t cols) {
    llm_buffer *b = LLM__NEW(llm_buffer, 1);
    size_t blocks = (size_t)rows * (size_t)((cols + 31) / 32) * 2;
    b->rows = rows;
    b->cols = cols;
    b->stride = (cols + 15) / 16 * 16 + 16;
    b->data = LLM__NEW(float, rows * b->stride);
    b->act = LLM__NEW(llm__act, 1);
    llm__act_place(b->act, LLM__NEW(uint8_t, llm__act_place(b->act, NULL, blocks)), blocks);
    return b;
}

static void linear_buffer_free(llm_buffer *b) {
    LLM_FREE(b->data);
    LLM_FREE(b->act->q);
    LLM_FREE(b->act);
    LLM_FREE(b);
}

static void linear_fill(llm_buffer *b) {
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t c = 0; c < b->cols; c++) b->data[r * b->stride + c] = linear_uniform();
}

/* 32 inputs as quantise_low has them: their scale, and integers whose absolute values add up to at most 503 in each half of the columns
 * that 16-bit sums have together, before they are rounded. */
static float linear_low(const float *x, int8_t q[32]) {
    float most = 0, lane[2] = {0, 0};
    for (int k = 0; k < 32; k++) most = fmaxf(most, fabsf(x[k]));
    for (int g = 0; g < 2; g++) { /* added as the kernel adds */
        float sum[4];
        for (int k = 0; k < 4; k++) {
            const float *at = x + 2 * g + k % 2 + 4 * (k / 2);
            sum[k] = ((fabsf(at[0]) + fabsf(at[8])) + fabsf(at[16])) + fabsf(at[24]);
        }
        lane[g] = (sum[0] + sum[2]) + (sum[1] + sum[3]);
    }
    lane[0] = fmaxf(lane[0], lane[1]);
    const int bound = lane[0] * (1.0f / 503) > most * (1.0f / 127);
    const float inverse = bound ? 503 / lane[0] : most > 0 ? 127 / most : 0;
    for (int k = 0; k < 32; k++) q[k] = (int8_t)rintf(x[k] * inverse);
    return bound ? lane[0] * (1.0f / 503) : most * (1.0f / 127);
}

/* The input as a weight of this form sees it: columns [col, col + n) of row r, rounded as the kernels round. */
static void linear_seen(const llm_buffer *b, int64_t r, int64_t col, int n, llm__form form, double *out) {
    int8_t q[2][32];
    float d[2], s[4];
    int32_t sums[4];
    for (int i = 0; i < n; i++) out[i] = b->data[r * b->stride + col + i];
    for (int i = 0; i < n && form == LLM__FORM_BF16; i++) out[i] = llm__bf16_to_f32(llm__f32_to_bf16((float)out[i]));
    for (int i = 0; i < n && form == LLM__FORM_I16; i += 32) {
        const float *x = b->data + r * b->stride + col + i;
        float most = 0;
        for (int k = 0; k < 32; k++) most = fmaxf(most, fabsf(x[k]));
        const float scale = most * (1.0f / 32767), inverse = most > 0 ? 32767 / most : 0;
        for (int k = 0; k < 32; k++) out[i + k] = (double)scale * rintf(x[k] * inverse);
    }
    for (int i = 0; i < n && llm__form_low(form); i += 32) {
        float x[32];
        for (int k = 0; k < 32; k++) x[k] = (float)out[i + k];
        d[0] = linear_low(x, q[0]);
        for (int k = 0; k < 32; k++) out[i + k] = (double)d[0] * q[0][k], x[k] = fmaf(-(float)q[0][k], d[0], x[k]);
        if (form == LLM__FORM_LOW) continue;
        d[1] = linear_low(x, q[1]);
        for (int k = 0; k < 32; k++) out[i + k] += (double)d[1] * q[1][k];
    }
    for (int i = 0; i < n && !llm__form_is_float(form) && !llm__form_low(form) && form != LLM__FORM_I16; i += 32) {
        llm__act a = {q[0], d, s, sums};
        llm__kernels_scalar.quantise(&a, 0, b->data + r * b->stride + col + i, 0, 1, 2);
        for (int k = 0; k < 32; k++) out[i + k] = (double)d[0] * q[0][k] + (form == LLM__FORM_I8X2 ? (double)d[1] * q[1][k] : 0);
    }
}

/* The values of row o of a weight as kernels have them: of fp8 in blocks, which are packed as f16, and of types whose tables
 * they round. */
static void linear_rounded(const llm_weight *w, int64_t o, float *v) {
    const int of = llm__weight_segment(w, o);
    const llm_segment *s = &w->segment[of];
    for (int64_t i = 0; i < w->cols && s->type == LLM_TYPE_F8_32 && w->block && w->block[0].kind == LLM__KIND_F16; i++)
        v[i] = llm__f16_to_f32(llm__f32_to_f16(v[i]));
    for (int64_t i = 0; i < w->cols / 32 && w->block && w->form != LLM__FORM_F32 && llm__type_values(s->type); i++) {
        llm__sub sub;
        llm__sub_read(llm__format_of(s->type), llm__type_block_bytes(s->type), llm__segment_data(s, o - w->first_row[of]), i, 1, &sub);
        if (w->low) sub.d[0] = llm__bf16_to_f32(llm__f32_to_bf16(sub.d[0]));
        for (int k = 0; k < 32; k++) {
            if (!CHECK(fabsf(v[32 * i + k] - sub.d[0] * (float)sub.q[k]) <= 0.66f * fabsf(sub.d[0])))
                printf("  value %d of the table\n", sub.u[k]);
            v[32 * i + k] = sub.d[0] * (float)sub.q[k];
        }
    }
}

/* dst (rows, outs) against the product in f64, relative to the sum of the products' sizes (of the inputs' sizes where all weights
 * are zero: kernels that add an offset to them round what cancels). Returns the largest error. */
static double linear_error(const llm_buffer *src, int64_t src_col, const llm_buffer *dst, int64_t dst_col, const llm_weight *w,
                           llm__isa isa, int64_t rows) {
    double worst = 0;
    int n = (int)w->cols;
    double *x = LLM__NEW(double, n);
    float *v = LLM__NEW(float, n);
    for (int64_t r = 0; r < rows; r++) {
        linear_seen(src, r, src_col, n, llm__weight_form(w, isa), x);
        for (int64_t o = 0; o < w->rows; o++) {
            double sum = 0, size = 0, inputs = 1e-30;
            llm__weight_values(w, o, 0, n, v);
            linear_rounded(w, o, v);
            for (int i = 0; i < n; i++) sum += x[i] * v[i], size += fabs(x[i] * v[i]), inputs += fabs(x[i]);
            double e = fabs(dst->data[r * dst->stride + dst_col + o] - sum) / (size > 0 ? size : inputs);
            if (!(e <= worst)) worst = e;
        }
    }
    LLM_FREE(x);
    LLM_FREE(v);
    return worst;
}

/* clang-format off */
static const int32_t linear_types[] = {
    LLM_TYPE_F32, LLM_TYPE_F16, LLM_TYPE_BF16, LLM_TYPE_F8_E4M3, LLM_TYPE_F8_E5M2, LLM_TYPE_Q4_0, LLM_TYPE_Q4_1, LLM_TYPE_Q5_0, LLM_TYPE_Q5_1, LLM_TYPE_Q8_0,
    LLM_TYPE_Q2_K, LLM_TYPE_Q3_K, LLM_TYPE_Q4_K, LLM_TYPE_Q5_K, LLM_TYPE_Q6_K, LLM_TYPE_IQ4_NL, LLM_TYPE_IQ4_XS, LLM_TYPE_MXFP4,
    LLM_TYPE_Q4_ZERO, LLM_TYPE_G32, LLM_TYPE_NVFP4_32, LLM_TYPE_NF4, LLM_TYPE_FP4, LLM_TYPE_F8_32, LLM_TYPE_F8_128,
    LLM_TYPE_GRID1, LLM_TYPE_GRID1X, LLM_TYPE_GRID2, LLM_TYPE_GRID2X, LLM_TYPE_GRID3, LLM_TYPE_GRID3S, LLM_TYPE_TERNARY,
};
/* clang-format on */

/* One format on every instruction set: right, and the same bits for a token whatever the number of tokens and threads. byte: see
 * linear_block; then all inputs are as large as their rounding takes. */
static void linear_format_of(int32_t type, int byte, llm_compute compute, llm_role role, int cols) {
    static const int counts[] = {1, 33, 2, 3, 7, 8, 16, 33};
    enum { MOST = 33 };
    llm__pool *one = llm__pool_open(1), *two = llm__pool_open(2);
    int rows = 37;
    if (!cols) cols = llm__type_block(type) == 1 ? 67 : llm__type_block(type) == 32 ? 96 : 512;
    uint8_t *data = linear_matrix(type, byte, rows, cols);
    llm_segment s = linear_segment(type, data, rows, cols);
    llm_weight *w = linear_weight(two, role, &s, 1, 0, rows, cols, compute);
    llm_buffer *src = linear_buffer(MOST, cols + 32), *dst = linear_buffer(MOST, rows + 8), *all = linear_buffer(MOST, rows + 8);
    linear_fill(src);
    for (int64_t i = 0; i < src->rows * src->stride && byte == LINEAR_SMALL; i++) src->data[i] *= 1e37f;
    for (int64_t i = 0; i < src->rows * src->stride && byte >= 0; i++) { /* or what quantise_low rounds up nearly everywhere */
        const int64_t r = i / src->stride, c = i % src->stride % 32;
        src->data[i] = (r % 2 ? -1.0f : 1.0f) * (r % 4 < 2 ? 1 : c % 4 > 1 ? 0.5f : c ? 1 : 0.963f);
    }
    for (int isa = 0; w && isa < LLM__ISA_COUNT; isa++) {
        if (!llm__isa_here((llm__isa)isa)) continue;
        for (int k = LLM__COUNT(counts) - 1; k >= 0; k--) {
            llm_linear_op op;
            linear_job j;
            memset(&op, 0, sizeof op);
            op.src = src;
            op.dst = k == LLM__COUNT(counts) - 1 ? all : dst;
            op.weight = w;
            op.src_col = 32;
            op.dst_col = 3;
            linear_job_init(&j, k & 1 ? two : one, (llm__isa)isa, counts[k]);
            j.linear = &op;
            j.exec.tuning = &linear_tunings[op.dst == all ? 0 : k % LLM__COUNT(linear_tunings)]; /* none changes a bit */
            linear_job_start(&j);
            int same = 1;
            for (int r = 0; r < counts[k]; r++)
                same &= !memcmp(op.dst->data + r * dst->stride + 3, all->data + r * dst->stride + 3, sizeof(float) * (size_t)rows);
            double error = op.dst == all ? linear_error(src, 32, all, 3, w, (llm__isa)isa, counts[k]) : 0;
            /* sums of equal numbers round in one direction; NVFP4's are a tenth of the 128 that plain C adds to them */
            if (!CHECK(same && error < (byte >= 0 ? 2e-5 : type == LLM_TYPE_NVFP4_32 ? 4e-6 : 2e-6)))
                printf("  %s %s, %d tokens: same %d, error %g\n", llm__type_name(type), llm__isa_name((llm__isa)isa), counts[k], same,
                       error);
        }
    }
    linear_buffer_free(src);
    linear_buffer_free(dst);
    linear_buffer_free(all);
    llm__weight_free(w);
    LLM_FREE(data);
    llm__pool_close(one);
    llm__pool_close(two);
}

static void linear_format(int32_t type, llm_compute compute, llm_role role, int cols) { linear_format_of(type, -1, compute, role, cols); }

/* Every code of e4m3 alone, with a scale a row: exact. Those that are no numbers spoil their rows and no others. */
static void linear_f8_codes(void) {
    enum { COLS = 130 };
    llm__pool *pool = llm__pool_open(2);
    uint8_t data[256 * COLS];
    float scales[256];
    memset(data, 0, sizeof data);
    for (int r = 0; r < 256; r++) data[r * COLS + r % COLS] = (uint8_t)r, scales[r] = 0.5f + (float)(r % 3);
    llm_segment s = linear_segment(LLM_TYPE_F8_E4M3, data, 256, COLS);
    s.scales = scales;
    llm_weight *w = linear_weight(pool, LLM_ROLE_LINEAR, &s, 1, 0, 256, COLS, LLM_COMPUTE_AUTO);
    llm_buffer *src = linear_buffer(24, COLS), *dst = linear_buffer(24, 256);
    CHECK(w->block[0].kind == LLM__KIND_F8 && w->bytes == 16 * (2 * 64 + COLS * 16));
    for (int64_t i = 0; i < 24 * src->stride; i++) src->data[i] = 1;
    for (int isa = 0; isa < LLM__ISA_COUNT; isa++)
        for (int rows = 1; rows <= 24 && llm__isa_here((llm__isa)isa); rows += 23) {
            llm_linear_op op;
            linear_job j;
            memset(&op, 0, sizeof op);
            op.src = src, op.dst = dst, op.weight = w;
            linear_job_init(&j, pool, (llm__isa)isa, rows);
            j.linear = &op;
            linear_job_start(&j);
            for (int r = 0; r < 256; r++) {
                const float want = llm__e4m3_to_f32((uint8_t)r) * scales[r], got = dst->data[(rows - 1) * dst->stride + r];
                if (!CHECK((r & 127) == 127 ? got != got : got == want))
                    printf("  e4m3 %d, %s, %d tokens: %g, %g expected\n", r, llm__isa_name((llm__isa)isa), rows, (double)got, (double)want);
            }
        }
    llm__weight_free(w);
    linear_buffer_free(src);
    linear_buffer_free(dst);
    llm__pool_close(pool);
}

/* llm_sorted.read: blocks of Q4_0 as they stand. */
static void linear_read_q4_0(const void *data, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, void *to) {
    for (int64_t r = 0; r < n; r++)
        memcpy((uint8_t *)to + r * n_cols / 32 * 18, (const uint8_t *)data + ((row + r * step) * 4 + col / 32) * 18,
               (size_t)(n_cols / 32 * 18));
}

/* Columns in another order: the bits of a weight of that order with inputs of that order. Where the segments of a weight have two orders, or
 * some columns are taken, it is the matrix as it stands. */
static void linear_sorted(void) {
    enum { ROWS = 48, COLS = 128, MOST = 40 };
    static const int counts[] = {1, 7, 33, 40};
    llm__pool *pool = llm__pool_open(2);
    uint8_t *data = linear_random_matrix(LLM_TYPE_Q4_0, ROWS, COLS);
    float *plain = LLM__NEW(float, ROWS *COLS), x[COLS];
    int32_t order[2][COLS];
    for (int i = 0; i < COLS; i++) order[0][i] = i * 37 % COLS, order[1][i] = i * 51 % COLS;
    for (int64_t r = 0; r < ROWS; r++) {
        llm__dequant_columns(LLM_TYPE_Q4_0, data + r * 4 * 18, 0, COLS, x);
        for (int i = 0; i < COLS; i++) plain[r * COLS + order[0][i]] = x[i];
    }
    const llm_sorted by[2] = {{order[0], LLM_TYPE_Q4_0, 1, data, linear_read_q4_0}, {order[1], LLM_TYPE_Q4_0, 1, data, linear_read_q4_0}};
    llm_segment s[2] = {linear_segment(LLM_TYPE_F32, plain, 16, COLS), linear_segment(LLM_TYPE_F32, plain, ROWS - 16, COLS)};
    s[0].sorted = s[1].sorted = &by[0];
    s[1].row = 16;
    const llm_segment as_stored = linear_segment(LLM_TYPE_Q4_0, data, ROWS, COLS);
    llm_weight *sorted = linear_weight(pool, LLM_ROLE_LINEAR, s, 2, 0, ROWS, COLS, LLM_COMPUTE_AUTO),
               *stored = linear_weight(pool, LLM_ROLE_LINEAR, &as_stored, 1, 0, ROWS, COLS, LLM_COMPUTE_AUTO);
    s[1].sorted = &by[1];
    llm_weight *two = linear_weight(pool, LLM_ROLE_LINEAR, s, 2, 0, ROWS, COLS, LLM_COMPUTE_AUTO),
               *whole = linear_weight(pool, LLM_ROLE_LINEAR, s, 2, 0, ROWS, COLS, LLM_COMPUTE_F32);
    s[0].n_cols = s[1].n_cols = 64, s[0].col = s[1].col = 32;
    llm_weight *cut = linear_weight(pool, LLM_ROLE_LINEAR, s, 2, 0, ROWS, 64, LLM_COMPUTE_AUTO);
    llm_buffer *src = linear_buffer(MOST, COLS), *turned = linear_buffer(MOST, COLS), *got = linear_buffer(MOST, ROWS),
               *want = linear_buffer(MOST, ROWS);
    linear_fill(src);
    for (int64_t r = 0; r < MOST; r++)
        for (int i = 0; i < COLS; i++) turned->data[r * turned->stride + i] = src->data[r * src->stride + order[0][i]];
    CHECK(sorted->order && !two->order && !whole->order && !cut->order && two->form == LLM__FORM_F32 && cut->form == LLM__FORM_F32);
    CHECK(sorted->bytes == stored->bytes);
    for (int isa = 0; isa < LLM__ISA_COUNT; isa++)
        for (int k = 0; k < LLM__COUNT(counts) && llm__isa_here((llm__isa)isa); k++) {
            int same = 1;
            for (int turn = 0; turn < 2; turn++) {
                llm_linear_op op;
                linear_job j;
                memset(&op, 0, sizeof op);
                op.src = turn ? turned : src, op.dst = turn ? want : got, op.weight = turn ? stored : sorted;
                linear_job_init(&j, pool, (llm__isa)isa, counts[k]);
                j.linear = &op;
                linear_job_start(&j);
            }
            for (int r = 0; r < counts[k]; r++)
                same &= !memcmp(got->data + r * got->stride, want->data + r * want->stride, sizeof(float) * ROWS);
            if (!CHECK(same)) printf("  sorted columns, %s, %d tokens\n", llm__isa_name((llm__isa)isa), counts[k]);
        }
    llm_weight *all[] = {sorted, stored, two, whole, cut};
    llm_buffer *buffers[] = {src, turned, got, want};
    for (int i = 0; i < LLM__COUNT(all); i++) llm__weight_free(all[i]);
    for (int i = 0; i < LLM__COUNT(buffers); i++) linear_buffer_free(buffers[i]);
    LLM_FREE(plain);
    LLM_FREE(data);
    llm__pool_close(pool);
}

/* The largest sums that a format can give, of either sign: kernels that add in 16 bits must not lose any. */
static void linear_extremes(int32_t type) {
    static const uint8_t bytes[] = {0x00, 0x7F, 0x80, 0xFF, 0x77};
    const int signs = type == LLM_TYPE_Q8_0 || type == LLM_TYPE_G32; /* a byte of 0 is nothing, or a minimum alone */
    for (int i = signs; i < LLM__COUNT(bytes) && llm__type_block(type) > 1; i++)
        linear_format_of(type, bytes[i], LLM_COMPUTE_AUTO, LLM_ROLE_LINEAR, 0);
}

/* Rounding for sums of 16 bits: the bits of plain C, no sum over 511, no value further than half a step, and no smaller steps than need be. */
static void linear_lows(llm__isa isa) {
    const llm__kernels *k = llm__kernels_of(isa);
    float x[32], d[2], s[4];
    int32_t n[4];
    int8_t q[64], want[32];
    const llm__act a = {q, d, s, n};
    for (int turn = 0; turn < 2000; turn++) {
        const int flat = turn % 4, from = turn % 32;
        float most = 0, lane[2] = {0, 0};
        for (int i = 0; i < 32; i++)
            x[i] = flat == 1 && i % 4 > 1 ? 0.1f : flat ? (i == from ? 0.963f : 1) : linear_uniform() * (turn % 3 ? 1 : linear_uniform());
        for (int i = 0; i < 32 && turn % 2; i++) x[i] *= linear_uniform() < 0 ? -3e-5f : 3e-5f;
        for (int i = 0; i < 32 && turn == 8; i++) x[i] = 0;
        for (int i = 0; i < 32; i++) most = fmaxf(most, fabsf(x[i])), lane[i / 2 % 2] += fabsf(x[i]);
        k->quantise_low(&a, 0, x, 0, 1, 2);
        int sums[2] = {0, 0}, same = 1, near = 1;
        float scale = linear_low(x, want);
        same &= !memcmp(q, want, 32) && !memcmp(&scale, &d[0], 4);
        for (int i = 0; i < 32; i++) sums[i / 2 % 2] += abs(q[i]), near &= fabsf(x[i] - scale * q[i]) <= scale * 0.5001f;
        const float least = fmaxf(most / 127, fmaxf(lane[0], lane[1]) / 503);
        for (int i = 0; i < 32; i++) x[i] = fmaf(-(float)q[i], scale, x[i]);
        scale = linear_low(x, want);
        same &= !memcmp(q + 32, want, 32) && !memcmp(&scale, &d[1], 4);
        if (!CHECK(same && near && sums[0] <= 511 && sums[1] <= 511 && fabsf(d[0] - least) <= 1e-5f * least))
            printf("  %s, rounding %d: same %d, near %d, sums %d and %d\n", llm__isa_name(isa), turn, same, near, sums[0], sums[1]);
    }
}

/* Products of floats as attention and layers ask for them, on every instruction set beside plain C, which adds in the same order: types,
 * one and two panels, chains that start with 0 or with what was there, sums on top. */
static void linear_mac_case(llm__isa isa, llm__kind type, int n, int k, int step, int mode, int half) {
    enum { LDA = 80, LDC = 48 };
    static float a[40 * LDA], b[2][80 * 16], scale[40], factor[2][16], c[2][40 * LDC];
    static uint16_t bf16[40 * LDA];
    int tiles = 0;
    llm__mac m = {0};
    for (int i = 0; i < 40 * LDA; i++) a[i] = linear_uniform(), bf16[i] = llm__f32_to_bf16(a[i]);
    for (int i = 0; i < 2 * 80 * 16; i++) {
        const float x = linear_uniform();
        const uint8_t f8 = llm__f32_to_e4m3(x);
        const uint16_t h = type == LLM__KIND_F16 ? llm__f32_to_f16(x) : llm__f32_to_bf16(x);
        if (type == LLM__KIND_F32) b[i / 1280][i % 1280] = x;
        else if (type == LLM__KIND_F8) ((uint8_t *)b[i / 1280])[i % 1280] = f8;
        else memcpy((uint8_t *)b[i / 1280] + i % 1280 * 2, &h, 2);
    }
    for (int i = 0; i < 40; i++) scale[i] = linear_uniform();
    for (int i = 0; i < 32; i++) factor[i / 16][i % 16] = 2 * linear_uniform();
    for (int i = 0; i < 40 * LDC; i++) c[0][i] = c[1][i] = linear_uniform();
    m.a = a, m.lda = LDA, m.ldb = 16, m.ldc = LDC, m.n = n, m.k = k, m.step = step, m.type = type;
    m.half = half ? bf16 : NULL;
    m.b[0] = b[0], m.b[1] = b[step ? 1 : 0];
    m.scale = mode == 1 ? scale : NULL;
    m.add = mode >= 2;
    for (int j = 0; j < 2 && (mode == 3 || type == LLM__KIND_F8); j++) m.factor[j] = factor[step ? j : 0];
    m.tiles = &tiles;
    m.c = c[0], llm__kernels_of(LLM__ISA_SCALAR)->mac(&m);
    m.c = c[1], llm__kernels_of(isa)->mac(&m);
    if (llm__kernels_of(isa)->rest) llm__kernels_of(isa)->rest(&tiles);
    double worst = 0;
    for (int i = 0; i < 40 * LDC; i++) {
        const double e = fabs((double)c[0][i] - (double)c[1][i]);
        if (!(e <= worst)) worst = e; /* also what must not be touched */
    }
    if (!CHECK(worst < 2e-5))
        printf("  mac %s, type %d, %d x %d, step %d, mode %d, half %d: error %g\n", llm__isa_name(isa), (int)type, n, k, step, mode, half,
               worst);
}

/* Few rows of e4m3 have two ways: every code, large and small inputs, bit for bit. */
static void linear_mac_f8(llm__isa isa, int n, int add) {
    static float a[LLM__F8_BITS * 128], factor[2][16], c[2][2][LLM__F8_BITS * 16];
    static uint8_t b[128 * 32];
    llm__mac m = {0};
    for (int i = 0; i < LLM__COUNT(b); i++) b[i] = (uint8_t)((i + i / 256) % 256 & 0x7F) == 0x7F ? 0 : (uint8_t)(i + i / 256);
    for (int i = 0; i < LLM__COUNT(a); i++) a[i] = ldexpf(linear_uniform(), i % 3 ? 0 : i % 60 - 30);
    for (int i = 0; i < 32; i++) factor[i / 16][i % 16] = linear_uniform();
    for (int i = 0; i < 2 * LLM__F8_BITS * 16; i++) c[0][i % 2][i / 2] = c[1][i % 2][i / 2] = linear_uniform();
    m.a = a, m.lda = 128, m.ldb = 32, m.ldc = 16, m.n = n, m.k = 128, m.type = LLM__KIND_F8, m.step = LLM__F8_BITS * 16, m.add = add;
    for (int j = 0; j < 2; j++) m.b[j] = b + 32 * j, m.fetch[j] = b, m.factor[j] = factor[j];
    m.c = c[0][0], llm__kernels_of(isa)->mac(&m);
    m.c = c[1][0], llm__kernels_of(isa)->mac_f8(&m);
    if (!CHECK(!memcmp(c[0], c[1], sizeof c[0]))) printf("  mac_f8 %s, %d rows, add %d\n", llm__isa_name(isa), n, add);
}

/* Where inputs are zeros, leaving them out changes nothing: neither how many come before, as long as the first one's place in its group of 32
 * is said, nor how many come after; nor do the rows beside. */
static void linear_mac_parts(llm__isa isa) {
    enum { K = 128, ROWS = 40 };
    static uint16_t a[ROWS * K], b[K * 16];
    static float all[ROWS * 16], some[ROWS * 16];
    static const int ranges[][2] = {{0, 2}, {0, 30}, {2, 34}, {30, 34}, {32, 64}, {62, 128}, {14, 66}, {96, 98}};
    for (int r = 0; r < LLM__COUNT(ranges) * 2; r++) {
        const int from = ranges[r / 2][0], to = ranges[r / 2][1], first = r % 2 ? 17 : 0;
        int tiles = 0;
        llm__mac m = {0};
        m.tiles = &tiles;
        for (int i = 0; i < ROWS * K; i++) a[i] = i % K >= from && i % K < to ? llm__f32_to_bf16(linear_uniform()) : 0;
        for (int i = 0; i < K * 16; i++) b[i] = llm__f32_to_bf16(linear_uniform());
        m.half = a, m.lda = K, m.ldb = 16, m.ldc = 16, m.n = ROWS, m.k = K, m.type = LLM__KIND_BF16;
        m.b[0] = m.b[1] = b, m.c = all;
        llm__kernels_of(isa)->mac(&m);
        m.half += first * K + from, m.b[0] = m.b[1] = b + from * 16, m.n = ROWS - first, m.k = to - from, m.phase = from % 32, m.c = some;
        llm__kernels_of(isa)->mac(&m);
        if (llm__kernels_of(isa)->rest) llm__kernels_of(isa)->rest(&tiles);
        if (!CHECK(!memcmp(all + first * 16, some, sizeof(float) * 16 * (size_t)(ROWS - first))))
            printf("  mac %s: columns %d to %d of rows from %d differ\n", llm__isa_name(isa), from, to, first);
    }
}

static void linear_mac(void) {
    static const int counts[] = {1, 2, 3, 4, 5, 7, 11, 12, 13, 16, 17, 24, 31, 32, 33, 39};
    for (int isa = 0; isa < LLM__ISA_COUNT; isa++)
        for (int i = 0; i < LLM__COUNT(counts) && llm__isa_here((llm__isa)isa); i++)
            for (int type = LLM__KIND_F32; type <= LLM__KIND_F8; type++)
                for (int mode = 0; mode < 4; mode++) {
                    linear_mac_case((llm__isa)isa, (llm__kind)type, counts[i], 66, 16, mode, 0);
                    if (mode < 2) linear_mac_case((llm__isa)isa, (llm__kind)type, counts[i], 32, 0, mode, 0);
                    if (llm__kernels_of((llm__isa)isa)->bf16 && type == LLM__KIND_BF16)
                        linear_mac_case((llm__isa)isa, (llm__kind)type, counts[i], 66, 16, mode, 1);
                }
    for (int isa = 0; isa < LLM__ISA_COUNT; isa++) {
        if (llm__isa_here((llm__isa)isa) && llm__kernels_of((llm__isa)isa)->bf16) linear_mac_parts((llm__isa)isa);
        for (int n = 1; n <= LLM__F8_BITS && llm__isa_here((llm__isa)isa) && llm__kernels_of((llm__isa)isa)->mac_f8; n++)
            for (int add = 0; add < 2; add++) linear_mac_f8((llm__isa)isa, n, add);
    }
}

/* ---- Epilogues ---- */

static const float linear_xielu[4] = {0.75f, 1.25f, 0.5f, -0.25f};

static double linear_act(llm_act act, double limit, double g, double u, int has_u) {
    double s;
    switch (act) {
    case LLM_ACT_SILU: return g / (1 + exp(-g)) * (has_u ? u : 1);
    case LLM_ACT_GELU: return 0.5 * g * (1 + erf(g * sqrt(0.5))) * (has_u ? u : 1);
    case LLM_ACT_GELU_TANH: return 0.5 * g * (1 + tanh(sqrt(2 / 3.14159265358979) * (g + 0.044715 * g * g * g))) * (has_u ? u : 1);
    case LLM_ACT_RELU: return (g > 0 ? g : 0) * (has_u ? u : 1);
    case LLM_ACT_RELU2: return (g > 0 ? g * g : 0) * (has_u ? u : 1);
    case LLM_ACT_SWIGLU_OAI:
        g = g < limit ? g : limit;
        s = g / (1 + exp(-1.702 * g));
        return has_u ? s * ((u > limit ? limit : u < -limit ? -limit : u) + 1) : s;
    case LLM_ACT_QUICK_GELU: return g / (1 + exp(-1.702 * g)) * (has_u ? u : 1);
    case LLM_ACT_XIELU: /* the numbers of linear_xielu */
        s = g > 0 ? 0.75 * g * g + 0.5 * g : 1.25 * (expm1(g < -0.25 ? g : -0.25) - g) + 0.5 * g;
        return s * (has_u ? u : 1);
    default: return g * (has_u ? u : 1);
    }
}

/* sum of weight row o times the input row as the weight sees it. */
static double linear_exact(const llm_weight *w, int64_t o, const double *x) {
    float v[1024];
    double sum = 0;
    llm__weight_values(w, o, 0, w->cols, v);
    for (int64_t i = 0; i < w->cols; i++) sum += x[i] * v[i];
    return sum;
}

static llm_weight *linear_vector(llm__pool *pool, int n) {
    float *data = LLM__NEW(float, n);
    for (int i = 0; i < n; i++) data[i] = linear_uniform();
    llm_segment s = linear_segment(LLM_TYPE_F32, data, 1, n);
    llm_weight *w = linear_weight(pool, LLM_ROLE_VECTOR, &s, 1, 0, 1, n, LLM_COMPUTE_AUTO);
    LLM_FREE(data);
    return w;
}

static void linear_epilogue(llm__pool *pool, llm__isa isa, llm_act act, int gate_up, int with_bias, int add, float scale) {
    enum { TOKENS = 5, COLS = 96, OUT = 41 };
    int rows = gate_up ? 2 * OUT : OUT;
    uint8_t *data = linear_random_matrix(LLM_TYPE_Q8_0, rows, COLS);
    llm_segment s = linear_segment(LLM_TYPE_Q8_0, data, rows, COLS);
    llm_weight *w = linear_weight(pool, gate_up ? LLM_ROLE_GATE_UP : LLM_ROLE_LINEAR, &s, 1, 0, rows, COLS, LLM_COMPUTE_AUTO),
               *bias = linear_vector(pool, rows);
    llm_buffer *src = linear_buffer(TOKENS, COLS), *dst = linear_buffer(TOKENS, OUT + 10), *before = linear_buffer(TOKENS, OUT + 10);
    llm_linear_op op;
    linear_job j;
    double worst = 0, x[COLS];
    linear_fill(src);
    linear_fill(dst);
    for (int r = 0; r < TOKENS; r++) memcpy(before->data + r * before->stride, dst->data + r * dst->stride, sizeof(float) * (OUT + 10));
    memset(&op, 0, sizeof op);
    op.src = src;
    op.dst = dst;
    op.weight = w;
    op.bias = with_bias ? bias : NULL;
    op.act = act;
    op.add = add;
    op.scale = scale;
    op.limit = 0.7f;
    op.xielu = linear_xielu;
    op.dst_col = 4;
    linear_job_init(&j, pool, isa, TOKENS);
    j.linear = &op;
    linear_job_start(&j);
    for (int r = 0; r < TOKENS; r++) {
        linear_seen(src, r, 0, COLS, w->form, x);
        for (int c = 0; c < OUT + 10; c++) {
            double want = before->data[r * before->stride + c];
            int o = c - 4;
            if (o >= 0 && o < OUT) {
                double g = linear_exact(w, o, x) + (with_bias ? (double)bias->f32[o] : 0),
                       u = gate_up ? linear_exact(w, OUT + o, x) + (with_bias ? (double)bias->f32[OUT + o] : 0) : 0;
                want = linear_act(act, 0.7f, g, u, gate_up) * (scale != 0 ? (double)scale : 1) + (add ? want : 0);
            }
            double e = fabs(dst->data[r * dst->stride + c] - want) / (1 + fabs(want));
            if (!(e <= worst)) worst = e;
        }
    }
    if (!CHECK(worst < 3e-5))
        printf("  %s: act %d gate_up %d bias %d add %d scale %g: error %g\n", llm__isa_name(isa), act, gate_up, with_bias, add,
               (double)scale, worst);
    llm__weight_free(w);
    llm__weight_free(bias);
    linear_buffer_free(src);
    linear_buffer_free(dst);
    linear_buffer_free(before);
    LLM_FREE(data);
}

static void linear_epilogues(void) {
    llm__pool *pool = llm__pool_open(2);
    for (int isa = 0; isa < LLM__ISA_COUNT; isa++) {
        if (!llm__isa_here((llm__isa)isa)) continue;
        for (int act = LLM_ACT_NONE; act <= LLM_ACT_XIELU; act++)
            for (int k = 0; k < 8; k++) linear_epilogue(pool, (llm__isa)isa, (llm_act)act, k & 1, k >> 1 & 1, k >> 2, k == 3 ? 0.25f : 0);
    }
    llm__pool_close(pool);
}

/* ---- Segments, slices, transposed storage ---- */

/* A weight of several segments against the product, on every instruction set. */
static void linear_segments_check(const char *what, llm_role role, const llm_segment *seg, int n, int64_t cols) {
    llm__pool *pool = llm__pool_open(2);
    int64_t rows = 0;
    for (int i = 0; i < n; i++) rows += seg[i].n_rows;
    llm_weight *w = linear_weight(pool, role, seg, n, 0, rows, cols, LLM_COMPUTE_AUTO);
    llm_buffer *src = linear_buffer(3, cols), *dst = linear_buffer(3, rows);
    linear_fill(src);
    for (int isa = 0; w && isa < LLM__ISA_COUNT; isa++) {
        llm_linear_op op;
        linear_job j;
        if (!llm__isa_here((llm__isa)isa)) continue;
        memset(&op, 0, sizeof op);
        op.src = src;
        op.dst = dst;
        op.weight = w;
        linear_job_init(&j, pool, (llm__isa)isa, 3);
        j.linear = &op;
        linear_job_start(&j);
        double error = linear_error(src, 0, dst, 0, w, (llm__isa)isa, 3);
        if (!CHECK(error < 2e-6)) printf("  %s, %s: error %g\n", what, llm__isa_name((llm__isa)isa), error);
    }
    llm__weight_free(w);
    linear_buffer_free(src);
    linear_buffer_free(dst);
    llm__pool_close(pool);
}

static void linear_segments(void) {
    llm_segment s[4];
    uint8_t *a = linear_random_matrix(LLM_TYPE_Q5_0, 48, 512), *b = linear_random_matrix(LLM_TYPE_Q8_0, 48, 512),
            *c = linear_random_matrix(LLM_TYPE_Q4_K, 48, 512), *d = linear_random_matrix(LLM_TYPE_BF16, 512, 512);
    /* Mixed formats whose rows end inside blocks of 16. */
    s[0] = linear_segment(LLM_TYPE_Q5_0, a, 19, 512);
    s[1] = linear_segment(LLM_TYPE_Q8_0, b, 7, 512);
    s[2] = linear_segment(LLM_TYPE_Q4_K, c, 33, 512);
    s[3] = linear_segment(LLM_TYPE_Q5_0, a, 5, 512);
    s[3].row = 40;
    linear_segments_check("mixed formats", LLM_ROLE_LINEAR, s, 4, 512);
    s[1].scale = 0.5f;
    s[3].scale = 3;
    linear_segments_check("scales", LLM_ROLE_HEAD, s, 4, 512);
    /* Every second row, backwards through the matrix too. */
    s[0].row_step = 2;
    s[2].row = 3;
    s[3].row_step = -3;
    linear_segments_check("row steps", LLM_ROLE_LINEAR, s, 4, 512);
    /* Columns: at block borders, inside a 256 block, inside a block of 32. */
    for (int i = 0; i < 3; i++) {
        static const int from[3] = {256, 96, 40}, count[3] = {256, 160, 100};
        for (int k = 0; k < 4; k++) s[k].col = from[i], s[k].n_cols = count[i];
        linear_segments_check("columns", LLM_ROLE_LINEAR, s, 4, count[i]);
    }
    /* Stored as (in, out); a float beside quantised rows. */
    for (int k = 0; k < 4; k++) s[k] = linear_segment(LLM_TYPE_Q8_0, b, 24, 512);
    s[1] = linear_segment(LLM_TYPE_BF16, d, 24, 512);
    s[1].transposed = 1;
    s[1].row = 100;
    s[1].col = 0;
    linear_segments_check("transposed and mixed with floats", LLM_ROLE_LINEAR, s, 4, 512);
    for (int k = 0; k < 4; k++) s[k] = s[1], s[k].row = 100 * k, s[k].col = 10 * k, s[k].n_cols = 70;
    linear_segments_check("transposed slices", LLM_ROLE_LINEAR, s, 4, 70);
    for (int k = 0; k < 4; k++)
        s[k] = linear_segment(LLM_TYPE_Q8_0, b, 11, 48), s[k].stored_cols = 512, s[k].transposed = 1, s[k].row = 50 * k;
    linear_segments_check("transposed and quantised", LLM_ROLE_LINEAR, s, 4, 48);
    /* Tables, whose inputs are rounded to less where 16 bits are short, beside other blocks: these read the same. */
    uint8_t *e = linear_random_matrix(LLM_TYPE_NF4, 48, 512), *f = linear_random_matrix(LLM_TYPE_FP4, 48, 512);
    s[0] = linear_segment(LLM_TYPE_Q4_K, c, 20, 512), s[1] = linear_segment(LLM_TYPE_NF4, e, 48, 512);
    s[2] = linear_segment(LLM_TYPE_FP4, f, 7, 512), s[3] = linear_segment(LLM_TYPE_Q8_0, b, 48, 512);
    linear_segments_check("tables beside blocks", LLM_ROLE_LINEAR, s, 4, 512);
    linear_segments_check("tables beside blocks, twice", LLM_ROLE_HEAD, s, 4, 512);
    LLM_FREE(a);
    LLM_FREE(b);
    LLM_FREE(c);
    LLM_FREE(d);
    LLM_FREE(e);
    LLM_FREE(f);
}

/* Weights that must be refused. */
static void linear_refused(void) {
    llm_weight_desc d;
    llm_weight *w;
    uint8_t data[64] = {0};
    llm_segment s = linear_segment(LLM_TYPE_F32, data, 4, 4);
    memset(&d, 0, sizeof d);
    d.name = "test";
    d.segments = &s;
    d.n_segments = 1;
    d.rows = d.cols = 4;
    d.role = LLM_ROLE_LINEAR;
    s.type = 9; /* Q8_1 has a name, but is no type of weights */
    CHECK(llm__weight_new(&d, LLM_COMPUTE_AUTO, &w) == LLM_ERR_UNSUPPORTED && !w);
    s.type = 12345;
    CHECK(llm__weight_new(&d, LLM_COMPUTE_AUTO, &w) == LLM_ERR_UNSUPPORTED && !w);
    s.type = LLM_TYPE_F32;
    s.n_cols = 5;
    CHECK(llm__weight_new(&d, LLM_COMPUTE_AUTO, &w) == LLM_ERR_ARG && !w);
    s.n_cols = 4;
    s.col = 1;
    CHECK(llm__weight_new(&d, LLM_COMPUTE_AUTO, &w) == LLM_ERR_ARG && !w);
    s.col = 0;
    d.rows = 5;
    CHECK(llm__weight_new(&d, LLM_COMPUTE_AUTO, &w) == LLM_ERR_ARG && !w);
    d.rows = (int64_t)1 << 39;
    d.cols = s.stored_cols = s.n_cols = 1 << 24;
    s.n_rows = d.rows;
    CHECK(llm__weight_new(&d, LLM_COMPUTE_AUTO, &w) == LLM_ERR_LIMIT && !w);
}

/* ---- Embedding and logits ---- */

static void linear_embed(void) {
    llm__pool *pool = llm__pool_open(2);
    uint8_t *data = linear_random_matrix(LLM_TYPE_Q4_K, 20, 512), *places = linear_random_matrix(LLM_TYPE_F16, 9, 512);
    llm_segment s = linear_segment(LLM_TYPE_Q4_K, data, 20, 512), p = linear_segment(LLM_TYPE_F16, places, 9, 512);
    llm_weight *table = linear_weight(pool, LLM_ROLE_EMBED, &s, 1, 0, 20, 512, LLM_COMPUTE_AUTO),
               *positions = linear_weight(pool, LLM_ROLE_EMBED, &p, 1, 0, 9, 512, LLM_COMPUTE_AUTO);
    llm_buffer *dst = linear_buffer(3, 512);
    static const int32_t tokens[3] = {19, 7, 44}, at[3] = {0, 6, 1};
    llm_step step;
    llm_embed_op op;
    linear_job j;
    float x[512], y[512];
    int same = 1;
    memset(&step, 0, sizeof step);
    memset(&op, 0, sizeof op);
    step.tokens = tokens;
    step.positions = at;
    op.dst = dst;
    op.table = table;
    op.positions = positions;
    op.position_offset = 2;
    op.vocab_begin = 2;
    op.scale = 3;
    linear_job_init(&j, pool, LLM__ISA_SCALAR, 3);
    j.exec.step = &step;
    j.embed = &op;
    linear_job_start(&j);
    for (int r = 0; r < 3; r++) {
        llm__dequant_columns(LLM_TYPE_Q4_K, data + (tokens[r] - 2) % 20 * llm__row_bytes(LLM_TYPE_Q4_K, 512), 0, 512, x);
        llm__dequant_columns(LLM_TYPE_F16, places + (at[r] + 2) * 1024, 0, 512, y);
        for (int i = 0; i < 512; i++)
            same &= dst->data[r * dst->stride + i] == (r < 2 ? x[i] * 3 : 0) + y[i]; /* token 44 is another rank's */
    }
    CHECK(same);
    op.known = 19, op.positions = NULL; /* tokens 19 and 44 have what token 0 has, which is another rank's, and then ours */
    for (op.vocab_begin = 2; op.vocab_begin >= 0; op.vocab_begin -= 2) {
        linear_job_start(&j);
        for (int r = 0; r < 3; r++) {
            const int row = tokens[r] < 19 ? tokens[r] - op.vocab_begin : 0, ours = tokens[r] < 19 || !op.vocab_begin;
            llm__dequant_columns(LLM_TYPE_Q4_K, data + row * llm__row_bytes(LLM_TYPE_Q4_K, 512), 0, 512, x);
            for (int i = 0; i < 512; i++) same &= dst->data[r * dst->stride + i] == (ours ? x[i] * 3 : 0);
        }
    }
    CHECK(same);
    llm__weight_free(table);
    llm__weight_free(positions);
    linear_buffer_free(dst);
    LLM_FREE(data);
    LLM_FREE(places);
    llm__pool_close(pool);
}

static void linear_logits(void) {
    enum { ROWS = 3, COLS = 64, VOCAB = 51 };
    llm__pool *pool = llm__pool_open(2);
    uint8_t *data = linear_random_matrix(LLM_TYPE_Q8_0, VOCAB, COLS);
    llm_segment s = linear_segment(LLM_TYPE_Q8_0, data, VOCAB, COLS);
    llm_weight *head = linear_weight(pool, LLM_ROLE_HEAD, &s, 1, 0, VOCAB, COLS, LLM_COMPUTE_AUTO), *bias = linear_vector(pool, VOCAB);
    llm_buffer *src = linear_buffer(ROWS, COLS);
    linear_fill(src);
    for (int isa = 0; isa < LLM__ISA_COUNT; isa++) {
        llm_logits_op op;
        linear_job j;
        float logits[ROWS][70];
        double x[COLS], worst = 0;
        if (!llm__isa_here((llm__isa)isa)) continue;
        memset(&op, 0, sizeof op);
        memset(logits, 0, sizeof logits);
        op.src = src;
        op.head = head;
        op.bias = bias;
        op.vocab_begin = 10;
        op.scale = 0.5f;
        op.softcap = 0.8f;
        linear_job_init(&j, pool, (llm__isa)isa, ROWS);
        j.logits = &op;
        j.dst = logits[0];
        j.dst_stride = 70;
        linear_job_start(&j);
        for (int r = 0; r < ROWS; r++) {
            linear_seen(src, r, 0, COLS, llm__weight_form(head, (llm__isa)isa), x);
            for (int o = -10; o < 60; o++) {
                double want = o < 0 || o >= VOCAB ? 0 : 0.8 * tanh(0.5 * (linear_exact(head, o, x) + (double)bias->f32[o]) / 0.8);
                worst = fabs(logits[r][o + 10] - want) > worst ? fabs(logits[r][o + 10] - want) : worst;
            }
        }
        if (!CHECK(head->form == LLM__FORM_I8X2 && worst < 1e-5)) printf("  %s: logits error %g\n", llm__isa_name((llm__isa)isa), worst);
    }
    llm__weight_free(head);
    llm__weight_free(bias);
    linear_buffer_free(src);
    LLM_FREE(data);
    llm__pool_close(pool);
}

/* ---- Experts ---- */

enum { LINEAR_EXPERTS = 5, LINEAR_HIDDEN = 64, LINEAR_FF = 40, LINEAR_K = 2, LINEAR_TOKENS = 70 };

/* Row r by the definition, on inputs that are not rounded to bytes: right to about a percent with int8 activations. */
static void linear_experts_exact(const llm_experts_op *op, llm__isa isa, int r, double *out) {
    const float *route = op->routes->data + r * op->routes->stride;
    double x[LINEAR_HIDDEN], h[LINEAR_FF];
    linear_seen(op->src, r, 0, LINEAR_HIDDEN, llm__weight_form(op->gate_up, isa) == LLM__FORM_BF16 ? LLM__FORM_BF16 : LLM__FORM_F32, x);
    for (int i = 0; i < LINEAR_HIDDEN; i++) out[i] = 0;
    for (int j = 0; j < op->k; j++) {
        int e = (int)route[j];
        const double by = (double)route[op->k + j], in = op->weigh_input ? by : 1;
        const int gated = op->gate_up->gate_up;
        for (int i = 0; i < LINEAR_FF; i++) {
            int64_t gate = e * (1 + gated) * LINEAR_FF + i, up = gate + gated * LINEAR_FF;
            h[i] = linear_act(op->act, op->limit, in * linear_exact(op->gate_up, gate, x) + (double)op->gate_up_bias->f32[gate],
                              in * linear_exact(op->gate_up, up, x) + (double)op->gate_up_bias->f32[up], gated);
        }
        for (int i = 0; i < LINEAR_HIDDEN; i++)
            out[i] += by / in * (linear_exact(op->down, e * LINEAR_HIDDEN + i, h) + (double)op->down_bias->f32[e * LINEAR_HIDDEN + i]);
    }
}

/* counted: threads take parts in turn. */
static void linear_experts_run(llm__pool *pool, llm__isa isa, const llm_experts_op *op, int rows, int scratch_rows, int counted) {
    linear_job j;
    int next = 0;
    linear_job_init(&j, pool, isa, rows);
    j.experts = op;
    if (counted) j.exec.next = &next;
    j.exec.scratch_bytes = llm__experts_scratch(scratch_rows, LINEAR_K, LINEAR_EXPERTS, LINEAR_HIDDEN, LINEAR_FF);
    j.exec.scratch = llm__pages_get(j.exec.scratch_bytes);
    linear_job_start(&j);
    llm__pages_free(j.exec.scratch, j.exec.scratch_bytes);
}

/* What --stages counts: choices, and different experts, with rows that choose none and ids that are none. */
static void linear_chosen(void) {
    float ids[4][6] = {{3, 5, -1, 1, 1, 1}, {5, 3, 7, 1, 1, 1}, {-1, -1, -1, 0, 0, 0}, {7, 8, 0, 1, 1, 1}};
    llm_buffer routes = LLM__ZERO;
    llm_experts_op op = LLM__ZERO;
    int experts = 0;
    routes.data = ids[0], routes.stride = 6;
    op.routes = &routes, op.k = 3, op.n_experts = 8;
    CHECK(llm__experts_chosen(&op, 4, &experts) == 7 && experts == 4);
    CHECK(llm__experts_chosen(&op, 1, &experts) == 2 && experts == 2);
    CHECK(llm__experts_chosen(&op, 0, &experts) == 0 && experts == 0);
}

/* weigh: weights multiply what experts read; gated: 1 as usual, 0 down(relu(up x)^2). */
static void linear_experts(int32_t up_type, int32_t down_type, int weigh, int gated, double tolerance) {
    llm__pool *one = llm__pool_open(1), *two = llm__pool_open(2);
    int64_t up_rows = LINEAR_EXPERTS * (1 + gated) * LINEAR_FF, down_rows = LINEAR_EXPERTS * LINEAR_HIDDEN;
    uint8_t *up_data = linear_random_matrix(up_type, up_rows, LINEAR_HIDDEN),
            *down_data = linear_random_matrix(down_type, down_rows, LINEAR_FF);
    llm_segment up = linear_segment(up_type, up_data, up_rows, LINEAR_HIDDEN),
                down = linear_segment(down_type, down_data, down_rows, LINEAR_FF);
    llm_experts_op op;
    memset(&op, 0, sizeof op);
    llm_weight *w[4];
    op.gate_up = w[0] = linear_weight(two, gated ? LLM_ROLE_EXPERTS_GATE_UP : LLM_ROLE_EXPERTS, &up, 1, LINEAR_EXPERTS, up_rows,
                                      LINEAR_HIDDEN, LLM_COMPUTE_AUTO);
    op.down = w[1] = linear_weight(two, LLM_ROLE_EXPERTS, &down, 1, LINEAR_EXPERTS, down_rows, LINEAR_FF, LLM_COMPUTE_AUTO);
    op.gate_up_bias = w[2] = linear_vector(two, (int)up_rows);
    op.down_bias = w[3] = linear_vector(two, (int)down_rows);
    llm_buffer *src = linear_buffer(LINEAR_TOKENS, LINEAR_HIDDEN), *routes = linear_buffer(LINEAR_TOKENS, 2 * LINEAR_K),
               *all = linear_buffer(LINEAR_TOKENS, LINEAR_HIDDEN), *dst = linear_buffer(LINEAR_TOKENS, LINEAR_HIDDEN);
    linear_fill(src);
    for (int r = 0; r < LINEAR_TOKENS; r++) {
        float *to = routes->data + r * routes->stride;
        to[0] = (float)(linear_rng() % (LINEAR_EXPERTS - 1));
        to[1] = (float)(((int)to[0] + 1 + (int)(linear_rng() % 3)) % (LINEAR_EXPERTS - 1)); /* the last expert gets none */
        to[2] = linear_uniform();
        to[3] = linear_uniform();
    }
    op.src = src;
    op.routes = routes;
    op.act = gated ? LLM_ACT_SILU : LLM_ACT_RELU2;
    op.weigh_input = weigh;
    op.k = LINEAR_K;
    op.n_experts = LINEAR_EXPERTS;
    op.ff = LINEAR_FF;
    for (int isa = 0; isa < LLM__ISA_COUNT; isa++) {
        double worst = 0, want[LINEAR_HIDDEN];
        int same = 1;
        if (!llm__isa_here((llm__isa)isa)) continue;
        op.dst = all;
        linear_experts_run(two, (llm__isa)isa, &op, LINEAR_TOKENS, LINEAR_TOKENS, 0);
        for (int r = 0; r < LINEAR_TOKENS; r++) {
            linear_experts_exact(&op, (llm__isa)isa, r, want);
            for (int i = 0; i < LINEAR_HIDDEN; i++) {
                const double e = fabs(all->data[r * all->stride + i] - want[i]) / (1 + fabs(want[i]));
                if (!(e <= worst)) worst = e; /* also what is no number */
            }
        }
        op.dst = dst; /* the same bits with other company, other threads, and little memory */
        for (int counted = 0; counted < 2; counted++) {
            memset(dst->data, 0, sizeof(float) * (size_t)(dst->stride * LINEAR_TOKENS));
            linear_experts_run(counted ? two : one, (llm__isa)isa, &op, LINEAR_TOKENS, 4, counted);
            for (int r = 0; r < LINEAR_TOKENS; r++)
                same &= !memcmp(all->data + r * all->stride, dst->data + r * dst->stride, sizeof(float) * LINEAR_HIDDEN);
        }
        linear_experts_run(two, (llm__isa)isa, &op, 1, 1, 0);
        same &= !memcmp(all->data, dst->data, sizeof(float) * LINEAR_HIDDEN);
        if (!CHECK(same && worst < tolerance))
            printf("  experts %s, %s, %d %d: same %d, error %g\n", llm__type_name(up_type), llm__isa_name((llm__isa)isa), weigh, gated,
                   same, worst);
    }
    for (int i = 0; i < 4; i++) llm__weight_free(w[i]);
    linear_buffer_free(src);
    linear_buffer_free(routes);
    linear_buffer_free(all);
    linear_buffer_free(dst);
    LLM_FREE(up_data);
    LLM_FREE(down_data);
    llm__pool_close(one);
    llm__pool_close(two);
}

/* ---- Types: checksums of 512 elements of pseudo-random blocks, made with the gguf package of PyPI (0.19) and ml_dtypes ---- */

static uint64_t linear_fnv(uint64_t h, const void *data, size_t n) {
    const uint8_t *p = (const uint8_t *)data;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001B3u;
    return h;
}

static void linear_lcg(uint8_t *p, int n, uint32_t seed) {
    for (int i = 0; i < n; i++) {
        seed = (seed * 1103515245u + 12345u) & 0x7FFFFFFF;
        p[i] = (uint8_t)(seed >> 16);
    }
}

/* The checksum of values, NaN counting as 12345 and -0 as 0. */
static uint64_t linear_checksum(const float *x, int n) {
    uint64_t h = 0xCBF29CE484222325u;
    for (int i = 0; i < n; i++) {
        float f = x[i] != x[i] ? 12345 : x[i] == 0 ? 0 : x[i];
        h = linear_fnv(h, &f, 4);
    }
    return h;
}

/* What is read of a sub without values is what is read with them, and both mean what dequantising gives, which checksums hold. */
static void linear_subs(int32_t type, const uint8_t *raw, const float *x) {
    const llm__format *f = llm__format_find(type);
    const int bytes = llm__type_block_bytes(type);
    CHECK(f && !memcmp(f, llm__format_of(type), sizeof *f) && llm__format_super(f) == (llm__type_block(type) == 256));
    for (int i = 0; i < 16; i++) {
        llm__sub full, stored;
        memset(&stored, 0x55, sizeof stored);
        llm__sub_read(f, bytes, raw, i, 1, &full);
        llm__sub_read(f, bytes, raw, i, 0, &stored);
        CHECK(!memcmp(full.u, stored.u, 32) && !memcmp(full.sc, stored.sc, 2) && !memcmp(full.mc, stored.mc, 2));
        CHECK(full.half_d == stored.half_d && full.half_m == stored.half_m);
        for (int k = 0; k < 2 && f->scales != LLM__SC_E8; k++) CHECK(full.d[k] == llm__f16_to_f32(stored.half_d) * (float)full.sc[k]);
        if (f->m_at >= 0) CHECK(llm__f32_bits(full.m) == llm__f32_bits(llm__f16_to_f32(stored.half_m)));
        for (int k = 0; k < 32; k++) {
            const float y = full.d[k / 16] * (float)full.q[k] + full.m * (float)full.mc[k / 16];
            CHECK(y == x[32 * i + k] || (y != y && x[32 * i + k] != x[32 * i + k]));
        }
    }
}

static void linear_dequant(void) {
    /* clang-format off */
    static const struct {
        int32_t type;
        uint64_t checksum;
        int scale[2]; /* bytes where f16 scales stand: made small enough to be finite */
    } cases[] = {
        {LLM_TYPE_Q4_0, 0x9A5E96CE11FA5AD9u, {0, 0}}, {LLM_TYPE_Q4_1, 0xADBEE474FD51628Eu, {0, 2}}, {LLM_TYPE_Q5_0, 0x4E88ADB0D9551955u, {0, 0}},
        {LLM_TYPE_Q5_1, 0x03B144AE44BD7B8Bu, {0, 2}}, {LLM_TYPE_Q8_0, 0x52281065F3A795BFu, {0, 0}}, {LLM_TYPE_Q2_K, 0x2F550F631D67DB0Du, {80, 82}},
        {LLM_TYPE_Q3_K, 0xAB45B297B68BEE2Fu, {108, 108}}, {LLM_TYPE_Q4_K, 0x7B59931BDE4FD2D4u, {0, 2}}, {LLM_TYPE_Q5_K, 0x39DE0F1F6D63C2C5u, {0, 2}},
        {LLM_TYPE_Q6_K, 0x81C5D1AA05B486FDu, {208, 208}}, {LLM_TYPE_IQ4_NL, 0xF3BC71E12FDDEBBEu, {0, 0}}, {LLM_TYPE_IQ4_XS, 0x59F939DA50BE3B2Au, {0, 0}},
        {LLM_TYPE_MXFP4, 0x5E5E1444FF933F23u, {-1, -1}},
        /* with what gguf's Python gives for the same bytes */
        {LLM_TYPE_NVFP4, 0x8673F3A9C7FADAEAu, {-1, -1}},
        {LLM_TYPE_IQ2_XXS, 0x4797E5CD39D198E4u, {0, 0}}, {LLM_TYPE_IQ2_XS, 0x3D53D59968A1A94Bu, {0, 0}}, {LLM_TYPE_IQ3_XXS, 0x30D65CDCDD953ED9u, {0, 0}},
        {LLM_TYPE_IQ1_S, 0xA1750076D88CB3AFu, {0, 0}}, {LLM_TYPE_IQ3_S, 0xAD88075606ECF5B3u, {0, 0}}, {LLM_TYPE_IQ2_S, 0xBE08254BA4916BEBu, {0, 0}},
        {LLM_TYPE_IQ1_M, 0xC99D4B202DD34967u, {54, 54}}, {LLM_TYPE_TQ1_0, 0x5728965BC827D07Cu, {52, 52}}, {LLM_TYPE_TQ2_0, 0x0B885783F58D816Du, {64, 64}},
    };
    /* clang-format on */
    uint8_t raw[1024];
    float x[512];
    for (int i = 0; i < LLM__COUNT(cases); i++) {
        int bytes = llm__type_block_bytes(cases[i].type), n = 512 / llm__type_block(cases[i].type);
        linear_lcg(raw, n * bytes, (uint32_t)cases[i].type);
        for (int b = 0; b < n; b++)
            for (int k = 0; k < 2 && cases[i].scale[k] >= 0; k++) raw[b * bytes + cases[i].scale[k] + 1] &= 0xBF;
        for (int k = 0; k < n * bytes && cases[i].type == LLM_TYPE_TQ2_0; k++) /* no value is 3 */
            if (k % bytes < 64) raw[k] &= (uint8_t) ~(raw[k] >> 1 & 0x55);
        llm__dequant_columns(cases[i].type, raw, 0, 512, x);
        if (!CHECK(linear_checksum(x, 512) == cases[i].checksum))
            printf("  %s: %g %g %g\n", llm__type_name(cases[i].type), (double)x[0], (double)x[1], (double)x[2]);
        if (llm__grid_form(cases[i].type) < 0) linear_subs(cases[i].type, raw, x);
    }
    CHECK(!llm__format_find(LLM_TYPE_F16) && !llm__format_find(-1));
    float *all = LLM__NEW(float, 65536);
    for (int i = 0; i < 65536; i++) all[i] = llm__f16_to_f32((uint16_t)i);
    CHECK(linear_checksum(all, 65536) == 0xD28786B3D20A0385u);
    for (int i = 0; i < 256; i++) all[i] = llm__e4m3_to_f32((uint8_t)i);
    CHECK(linear_checksum(all, 256) == 0x882B446C5E0CCAE5u);
    for (int i = 0; i < 256; i++) all[i] = llm__e5m2_to_f32((uint8_t)i);
    CHECK(linear_checksum(all, 256) == 0x696FDA59626E0445u);
    LLM_FREE(all);
}

/* Rounding to small floats: 20,000 values of exponents from far too small to too large. */
static void linear_narrow(void) {
    enum { N = 20000 };
    uint8_t *raw = LLM__NEW(uint8_t, 4 * N);
    uint64_t f16 = 0xCBF29CE484222325u, bf16 = f16, e4m3 = f16, e5m2 = f16;
    linear_lcg(raw, 4 * N, 7);
    for (int i = 0; i < N; i++) {
        uint32_t u;
        memcpy(&u, raw + 4 * i, 4);
        float f = llm__bits_f32((u & 0x807FFFFFu) | (96 + (u >> 23 & 255) % 50) << 23);
        uint16_t a = llm__f32_to_f16(f), b = llm__f32_to_bf16(f);
        uint8_t c = llm__f32_to_e4m3(f), d = llm__f32_to_e5m2(f);
        f16 = linear_fnv(f16, &a, 2);
        bf16 = linear_fnv(bf16, &b, 2);
        e4m3 = linear_fnv(e4m3, &c, 1);
        e5m2 = linear_fnv(e5m2, &d, 1);
    }
    CHECK(f16 == 0x89F1174EB42A8560u);
    CHECK(bf16 == 0x8D69D225D28087B9u);
    CHECK(e4m3 == 0x61BC6742A4BC8925u);
    CHECK(e5m2 == 0x0CD5485ED94CDD35u);
    LLM_FREE(raw);
}

/* ---- kv_b of latent attention ---- */

/* Both ends of a head against plain sums in double, one row and many with the same bits; what is no kv_b is refused. */
static void linear_latent(int32_t type, llm_compute compute, int rank, int keys, int values, double tolerance) {
    enum { HEADS = 3, ROWS = 11, MOST = 512 };
    const int per_head = keys + values;
    llm__pool *pool = llm__pool_open(2);
    uint8_t *data = linear_random_matrix(type, (int64_t)HEADS * per_head, rank);
    llm_segment s = linear_segment(type, data, (int64_t)HEADS * per_head, rank);
    static float x[ROWS * MOST], y[ROWS * MOST], one[MOST], row[MOST];
    llm_weight_desc d = {"kv_b", LLM_ROLE_MLA_UP, &s, 1, 0, (int64_t)HEADS * per_head, rank, 0, HEADS, keys};
    llm_weight *w = NULL;
    for (int i = 0; i < ROWS * MOST; i++) x[i] = linear_uniform();
    if (!CHECK(!llm__weight_new(&d, compute, &w) && !llm__weights_allocate(&w, 1))) return;
    for (int i = 0; i < 2; i++) llm__weight_pack(w, i, 2);
    for (int isa = 0; isa < LLM__ISA_COUNT; isa++)
        for (int h = 0; h < 2 * HEADS && llm__isa_here((llm__isa)isa); h++) {
            const int in = h % 2 ? rank : keys, out = h % 2 ? values : rank;
            linear_job j;
            double worst = 0;
            int same = 1;
            linear_job_init(&j, pool, (llm__isa)isa, ROWS);
            for (int i = 0; i < ROWS * MOST; i++) y[i] = 7;
            llm__latent_rows all = {x, y, MOST, MOST, ROWS, 0.5f}, alone = {x + 5 * MOST, one, MOST, MOST, 1, 0.5f};
            for (int i = 0; i < 2; i++) (h % 2 ? llm__latent_values : llm__latent_keys)(&j.exec, w, h / 2, i ? &alone : &all);
            same &= !memcmp(one, y + 5 * MOST, sizeof(float) * (size_t)out);
            for (int i = 0; i < ROWS; i++) same &= y[i * MOST + out] == 7;
            for (int o = 0; o < out; o++)
                for (int i = 0; i < ROWS; i++) {
                    double want = 0;
                    for (int k = 0; k < in; k++) {
                        llm__weight_values(w, h / 2 * per_head + (h % 2 ? keys + o : k), h % 2 ? k : o, 1, row);
                        want += 0.5 * (double)row[0] * (double)x[i * MOST + k];
                    }
                    worst = LLM__MAX(worst, fabs(want - (double)y[i * MOST + o]));
                }
            if (!CHECK(same && worst < tolerance))
                printf("  kv_b %s, %s, head %d: same %d, error %g\n", llm__type_name(type), llm__isa_name((llm__isa)isa), h, same, worst);
        }
    llm__weight_free(w);
    d.n_keys = per_head;
    CHECK(llm__weight_new(&d, compute, &w) == LLM_ERR_ARG && strstr(llm_last_error(), "no 3 heads"));
    LLM_FREE(data);
    llm__pool_close(pool);
}

TEST_GROUP(linear) {
    for (int i = 0; i < LLM__COUNT(linear_types); i++) {
        linear_format(linear_types[i], LLM_COMPUTE_AUTO, LLM_ROLE_LINEAR, 0);
        linear_format(linear_types[i], LLM_COMPUTE_AUTO, LLM_ROLE_HEAD, 0);
        linear_format(linear_types[i], LLM_COMPUTE_F32, LLM_ROLE_LINEAR, 0);
        linear_extremes(linear_types[i]);
    }
    for (int i = 0; i < 3; i++) linear_format(linear_types[i], LLM_COMPUTE_AUTO, LLM_ROLE_LINEAR, 546); /* of floats more than two chunks */
    linear_format(LLM_TYPE_BF16, LLM_COMPUTE_AUTO, LLM_ROLE_LINEAR, 66);
    linear_format_of(LLM_TYPE_MXFP4, LINEAR_SMALL, LLM_COMPUTE_AUTO, LLM_ROLE_LINEAR, 0);
    for (int p = 0; p < 256; p++) CHECK(llm__bits_f32(llm__e8_bits(p)) == (float)ldexp(1, p - 128));
    linear_mac();
    for (int i = 0; i < 4; i++) { /* e4m3: a part of a chunk, whole ones, and some more */
        static const int cols[] = {34, 128, 258, 640};
        linear_format(LLM_TYPE_F8_E4M3, LLM_COMPUTE_AUTO, LLM_ROLE_LINEAR, cols[i]);
    }
    for (int isa = 0; isa < LLM__ISA_COUNT; isa++)
        if (llm__isa_here((llm__isa)isa) && llm__kernels_of((llm__isa)isa)->quantise_low) linear_lows((llm__isa)isa);
    linear_f8_codes();
    linear_sorted();
    linear_dequant();
    linear_narrow();
    linear_epilogues();
    linear_segments();
    linear_refused();
    linear_embed();
    linear_logits();
    linear_latent(LLM_TYPE_F32, LLM_COMPUTE_AUTO, 20, 12, 10, 1e-5);
    linear_latent(LLM_TYPE_F16, LLM_COMPUTE_AUTO, 33, 16, 40, 1e-5);
    linear_latent(LLM_TYPE_Q4_K, LLM_COMPUTE_AUTO, 256, 8, 33, 0.02);
    linear_latent(LLM_TYPE_Q8_0, LLM_COMPUTE_F32, 32, 8, 5, 1e-4);
    linear_chosen();
    linear_experts(LLM_TYPE_BF16, LLM_TYPE_F16, 0, 1, 2e-5); /* sums of floats: plain C is off by 0.94e-5, NEON by 1.07e-5 */
    linear_experts(LLM_TYPE_F32, LLM_TYPE_F16, 1, 1, 2e-5);
    linear_experts(LLM_TYPE_BF16, LLM_TYPE_F16, 0, 0, 4e-5); /* squares */
    linear_experts(LLM_TYPE_BF16, LLM_TYPE_BF16, 0, 1, 0.2); /* what goes between them may be rounded to bf16 */
    linear_experts(LLM_TYPE_Q8_0, LLM_TYPE_F32, 0, 1, 0.5);  /* int8 inputs: the sums are of size 50 */
}
