/* Types, packing and linear kernels: every format x instruction set x number of tokens against the dequantised meaning of the file. */
#include "test.h"

/* ---- Random stored matrices ---- */

static uint64_t linear_rng_state = 1;

static uint32_t linear_rng(void) {
    linear_rng_state = linear_rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(linear_rng_state >> 33);
}

static float linear_uniform(void) { return (float)linear_rng() / 1073741824.0f - 1; }

static void linear_put_f16(uint8_t *p, float v) {
    uint16_t h = llm__f32_to_f16(v);
    memcpy(p, &h, 2);
}

/* Random bytes, but with scales of a sensible size. */
static void linear_random_block(int32_t type, uint8_t *p) {
    int n = llm__type_block_bytes(type);
    for (int i = 0; i < n; i++) p[i] = (uint8_t)linear_rng();
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
    case LLM_TYPE_MXFP4: *p = (uint8_t)(118 + linear_rng() % 8); break;
    default:
        if (llm__type_block(type) > 1) linear_put_f16(p, d);
    }
}

static uint8_t *linear_random_matrix(int32_t type, int64_t rows, int64_t cols) {
    int64_t blocks = rows * cols / llm__type_block(type);
    int bytes = llm__type_block_bytes(type);
    uint8_t *p = LLM__NEW(uint8_t, blocks * bytes);
    for (int64_t i = 0; i < blocks; i++) linear_random_block(type, p + i * bytes);
    return p;
}

/* ---- Running operations on a pool ---- */

typedef struct linear_job {
    llm__exec exec;
    const llm_linear_op *linear;
    const llm_logits_op *logits;
    const llm_experts_op *experts;
    const llm_embed_op *embed;
    llm_weight *pack;
    float *dst;
    int64_t dst_stride;
} linear_job;

static void linear_job_run(void *arg, int thread, int n_threads) {
    const linear_job *j = (const linear_job *)arg;
    llm__exec e = j->exec;
    e.thread = thread;
    e.n_threads = n_threads;
    if (j->pack) llm__weight_pack(j->pack, thread, n_threads);
    if (j->linear) {
        llm__act_make(&e, (llm_buffer *)(uintptr_t)j->linear->src, llm__weight_form(j->linear->weight), j->linear->src_col, j->linear->weight->cols);
        llm__pool_barrier(e.pool);
        llm__run_linear(&e, j->linear);
    }
    if (j->logits) {
        llm__act_make(&e, (llm_buffer *)(uintptr_t)j->logits->src, llm__weight_form(j->logits->head), 0, j->logits->head->cols);
        llm__pool_barrier(e.pool);
        llm__run_logits(&e, j->logits, j->dst, j->dst_stride);
    }
    if (j->experts) llm__run_experts(&e, j->experts);
    if (j->embed) llm__run_embed(&e, j->embed);
}

static void linear_job_init(linear_job *j, llm__pool *pool, llm__isa isa, int rows) {
    memset(j, 0, sizeof *j);
    j->exec.pool = pool;
    j->exec.isa = isa;
    j->exec.n_rows = rows;
}

static llm_weight *linear_weight(llm__pool *pool, llm_role role, const llm_segment *seg, int n_seg, int n_experts, int64_t rows, int64_t cols, llm_compute compute) {
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
    if (!CHECK(llm__weight_new(&d, compute, LLM__ISA_SCALAR, &w) == LLM_OK)) return NULL;
    linear_job_init(&j, pool, LLM__ISA_SCALAR, 0);
    j.pack = w;
    llm__pool_run(pool, linear_job_run, &j);
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
    llm_buffer *b = NULL;
    CHECK(llm__buffer_new(0, rows, cols, &b) == LLM_OK);
    return b;
}

static void linear_fill(llm_buffer *b) {
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t c = 0; c < b->cols; c++) b->data[r * b->stride + c] = linear_uniform();
}

/* The input as a weight of this form sees it: columns [col, col + n) of row r, rounded as the kernels round. */
static void linear_seen(const llm_buffer *b, int64_t r, int64_t col, int n, llm__form form, double *out) {
    int8_t q[2][32];
    float lost[32], d[2], s[2];
    int16_t z[8];
    for (int i = 0; i < n; i++) out[i] = b->data[r * b->stride + col + i];
    for (int i = 0; i < n && form != LLM__FORM_F32; i += 32) {
        llm__act a = {q[0], d, s, z};
        llm__ref_quantise(&a, 0, b->data + r * b->stride + col + i, lost);
        llm__ref_quantise(&a, 1, lost, NULL);
        for (int k = 0; k < 32; k++) out[i + k] = (double)d[0] * q[0][k] + (form == LLM__FORM_I8X2 ? (double)d[1] * q[1][k] : 0);
    }
}

/* dst (rows, outs) against the product in f64, relative to the sum of the products' sizes. Returns the largest error. */
static double linear_error(const llm_buffer *src, int64_t src_col, const llm_buffer *dst, int64_t dst_col, const llm_weight *w, int64_t rows) {
    double worst = 0;
    int n = (int)w->cols;
    double *x = LLM__NEW(double, n);
    float *v = LLM__NEW(float, n);
    for (int64_t r = 0; r < rows; r++) {
        linear_seen(src, r, src_col, n, w->form, x);
        for (int64_t o = 0; o < w->rows; o++) {
            double sum = 0, size = 1e-30;
            llm__weight_values(w, o, 0, n, v);
            for (int i = 0; i < n; i++) sum += x[i] * v[i], size += fabs(x[i] * v[i]);
            double e = fabs(dst->data[r * dst->stride + dst_col + o] - sum) / size;
            if (!(e <= worst)) worst = e;
        }
    }
    LLM_FREE(x);
    LLM_FREE(v);
    return worst;
}

static const int32_t linear_types[] = {
    LLM_TYPE_F32, LLM_TYPE_F16, LLM_TYPE_BF16, LLM_TYPE_F8_E4M3, LLM_TYPE_F8_E5M2, LLM_TYPE_Q4_0, LLM_TYPE_Q4_1, LLM_TYPE_Q5_0, LLM_TYPE_Q5_1, LLM_TYPE_Q8_0,
    LLM_TYPE_Q2_K, LLM_TYPE_Q3_K, LLM_TYPE_Q4_K, LLM_TYPE_Q5_K, LLM_TYPE_Q6_K, LLM_TYPE_IQ4_NL, LLM_TYPE_IQ4_XS, LLM_TYPE_MXFP4,
};

/* One format on every instruction set: right, and the same bits for a token whatever the number of tokens and threads. */
static void linear_format(int32_t type, llm_compute compute, llm_role role) {
    static const int counts[] = {1, 2, 3, 7, 8, 16, 33};
    enum { MOST = 33 };
    llm__pool *one = llm__pool_open(1), *two = llm__pool_open(2);
    int cols = llm__type_block(type) == 1 ? 67 : llm__type_block(type) == 32 ? 96 : 512, rows = 37;
    uint8_t *data = linear_random_matrix(type, rows, cols);
    llm_segment s = linear_segment(type, data, rows, cols);
    llm_weight *w = linear_weight(two, role, &s, 1, 0, rows, cols, compute);
    llm_buffer *src = linear_buffer(MOST, cols + 32), *dst = linear_buffer(MOST, rows + 8), *all = linear_buffer(MOST, rows + 8);
    linear_fill(src);
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
            llm__pool_run(j.exec.pool, linear_job_run, &j);
            int same = 1;
            for (int r = 0; r < counts[k]; r++) same &= !memcmp(op.dst->data + r * dst->stride + 3, all->data + r * dst->stride + 3, sizeof(float) * (size_t)rows);
            double error = op.dst == all ? linear_error(src, 32, all, 3, w, counts[k]) : 0;
            if (!CHECK(same && error < 2e-6)) printf("  %s %s, %d tokens: same %d, error %g\n", llm__type_name(type), llm__isa_name((llm__isa)isa), counts[k], same, error);
        }
    }
    llm__buffer_free(src);
    llm__buffer_free(dst);
    llm__buffer_free(all);
    llm__weight_free(w);
    LLM_FREE(data);
    llm__pool_close(one);
    llm__pool_close(two);
}

TEST_GROUP(linear) {
    for (int i = 0; i < LLM__COUNT(linear_types); i++) {
        linear_format(linear_types[i], LLM_COMPUTE_AUTO, LLM_ROLE_LINEAR);
        linear_format(linear_types[i], LLM_COMPUTE_AUTO, LLM_ROLE_HEAD);
        linear_format(linear_types[i], LLM_COMPUTE_F32, LLM_ROLE_LINEAR);
    }
}
