/* Streams of the residual and sparse gates (Gemma 3n) against plain references in double, on every instruction set, with several threads and
 * on two ranks, whose streams are alike; and what does not fit, refused. */
#include "../step.h"
#include "base/platform.h"
#include "base/map.h"
#include "cpu/backend.h"
#include "cpu/run.h"
#include "cpu/streams.h"

enum { ST_ROWS = 9, ST_COLS = 37, ST_MOST = 5, ST_WIDE = 90 };

static float st_value(uint32_t a, uint32_t b, uint32_t c) {
    return (float)((double)(llm__mix(llm__mix(((uint64_t)a << 32 | b) + 3) ^ c) >> 40) / (1 << 23) - 1.0);
}

static llm_weight *st_vector(llm_backend_ctx *ctx, int rank, int64_t n, uint32_t seed) {
    static float v[2][ST_MOST * ST_MOST * ST_MOST + ST_COLS]; /* which live until weights_done */
    llm_weight *w = NULL;
    float *x = v[seed % 2];
    for (int64_t i = 0; i < n; i++) x[i] = st_value(seed, (uint32_t)i, 0);
    const llm_segment s = {.data = x, .stored_cols = n, .n_rows = 1, .n_cols = n};
    const llm_weight_desc d = {.name = "test", .role = LLM_ROLE_VECTOR, .segments = &s, .n_segments = 1, .rows = 1, .cols = n};
    CHECK(!llm_backend_cpu()->weight(ctx, rank, &d, &w));
    return w;
}

static llm_backend_ctx *st_open(const char *isa, int threads, int ranks, test_step *b) {
    const llm_backend_config c = {
        .n_ranks = ranks, .n_threads = threads, .isa = isa, .max_rows = ST_ROWS, .max_out = 4, .max_seqs = 1, .max_pages_per_seq = 1};
    llm_backend_ctx *ctx = NULL;
    CHECK(!llm_backend_cpu()->open(&c, &ctx));
    const int32_t page = 0;
    step_begin(b, 1);
    step_add(b, 0, 0, ST_ROWS, &page);
    b->s.shape.n_out = 2, b->out_rows[0] = 3, b->out_rows[1] = 8;
    return ctx;
}

static llm_buffer *st_buffer(llm_backend_ctx *ctx, int rank, int cols, uint32_t seed, float spread) {
    llm_buffer *x = NULL;
    CHECK(!llm_backend_cpu()->buffer(ctx, rank, ST_ROWS, cols, &x));
    for (int r = 0; r < ST_ROWS; r++)
        for (int k = 0; k < cols; k++) x->data[r * x->stride + k] = spread * st_value(seed, (uint32_t)r, (uint32_t)k);
    return x;
}

/* What an operation makes of row r: x (n, ST_COLS) and dst, in double. */
static void st_reference(const llm_streams_op *op, int r, double x[ST_MOST][ST_COLS], double dst[ST_COLS]) {
    const int n = op->n, a = op->active;
    double c[ST_MOST * ST_MOST] = {0}, was[ST_MOST][ST_COLS], size[ST_MOST] = {0};
    for (int j = 0; j < n; j++)
        for (int k = 0; k < ST_COLS; k++)
            x[j][k] = was[j][k] = (j == 2 ? 1e-3 : 1) * (double)st_value(10, (uint32_t)r, (uint32_t)(j * ST_COLS + k));
    for (int j = 0; j < n * (op->kind == LLM_STREAMS_PREDICT ? n : 1) && op->kind; j++)
        for (int i = 0; i < n; i++)
            c[j] += (double)st_value(20, (uint32_t)(j * n + i), 0) * tanh(2 * (double)st_value(11, (uint32_t)r, (uint32_t)i));
    for (int j = 0; j < n; j++)
        for (int k = 0; k < ST_COLS; k++) size[j] += was[j][k] * was[j][k] / ST_COLS;
    for (int k = 0; k < ST_COLS; k++) {
        const double y = (double)st_value(12, (uint32_t)r, (uint32_t)k);
        double mean = 0;
        for (int j = 0; j < n; j++) {
            for (int i = 0; i < n && op->kind == LLM_STREAMS_PREDICT; i++) x[j][k] += c[j * n + i] * was[i][k];
            if (op->kind == LLM_STREAMS_CORRECT) x[j][k] += (1 + c[j]) * (y - was[a][k]);
            if (op->kind == LLM_STREAMS_LEVEL && j) x[j][k] *= sqrt(size[0] / fmax(size[j], 1e-5));
            mean += x[j][k] / n;
        }
        dst[k] = op->kind == LLM_STREAMS_LEVEL ? mean : x[a][k] * (op->scale ? (double)st_value(21, (uint32_t)k, 0) : 1);
    }
}

/* One kind of operation on n streams, of all rows or of those whose logits are wanted, which are the first two of the buffers. */
static void st_case(const char *isa, llm_streams_kind kind, int n, int active, int threads, int ranks, llm_rows rows) {
    const llm_backend *t = llm_backend_cpu();
    test_step b;
    llm_backend_ctx *ctx = st_open(isa, threads, ranks, &b);
    llm_streams_op op[2];
    double worst = 0, x[ST_MOST][ST_COLS], dst[ST_COLS];
    for (int r = 0; r < ranks; r++) {
        const llm_streams_op one = {.rows = rows,
                                    .kind = kind,
                                    .x = st_buffer(ctx, r, n * ST_COLS, 10, 1),
                                    .dst = st_buffer(ctx, r, ST_COLS, 1, 1),
                                    .gate = st_buffer(ctx, r, n, 11, 2),
                                    .y = st_buffer(ctx, r, ST_COLS, 12, 1),
                                    .weight = st_vector(ctx, r, n * n * (kind == LLM_STREAMS_PREDICT ? n : 1), 20),
                                    .scale = n == 3 ? st_vector(ctx, r, ST_COLS, 21) : NULL,
                                    .n = n,
                                    .active = active,
                                    .cols = ST_COLS};
        op[r] = one;
        for (int i = 0; i < ST_ROWS && n > 2; i++) /* so small that the least counts */
            for (int k = 0; k < ST_COLS; k++) one.x->data[i * one.x->stride + 2 * ST_COLS + k] *= 1e-3f;
    }
    CHECK(!t->weights_done(ctx) && !t->begin_step(ctx, &b.s));
    for (int r = 0; r < ranks; r++) t->streams(ctx, r, &op[r]);
    CHECK(!t->end_step(ctx) && !t->wait(ctx));
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < (rows == LLM_ROWS_OUT ? 2 : ST_ROWS); i++) {
            st_reference(&op[r], i, x, dst);
            for (int j = 0; j < n; j++)
                for (int k = 0; k < ST_COLS; k++)
                    worst = fmax(worst, fabs(x[j][k] - (double)t->buffer_row(ctx, r, op[r].x, i)[j * ST_COLS + k]));
            for (int k = 0; k < ST_COLS; k++) worst = fmax(worst, fabs(dst[k] - (double)t->buffer_row(ctx, r, op[r].dst, i)[k]));
        }
    if (rows == LLM_ROWS_OUT) CHECK(t->buffer_row(ctx, 0, op[0].dst, 2)[5] == st_value(1, 2, 5)); /* the others stay */
    if (!CHECK(worst < 1e-5)) printf("  streams, %s: kind %d, %d of %d: error %g\n", isa, (int)kind, active, n, worst);
    t->close(ctx);
}

static double st_act(llm_gate_act act, double g) {
    if (act == LLM_GATE_SIGMOID) return 1 / (1 + exp(-g));
    if (act == LLM_GATE_SILU) return g / (1 + exp(-g));
    if (act == LLM_GATE_GELU) return g * 0.5 * erfc(-g * 0.70710678118654752);
    return act == LLM_GATE_PLAIN ? g : 0.5 * g * (1 + tanh(0.79788456080286536 * (g + 0.044715 * g * g * g)));
}

/* Gates above their mean and some deviations, of all columns, while dst has some of them; one that is all alike has no deviation. */
static void st_sparse(const char *isa, llm_gate_act act, float cut, int first, int n, int threads) {
    const llm_backend *t = llm_backend_cpu();
    test_step b;
    llm_backend_ctx *ctx = st_open(isa, threads, 1, &b);
    double worst = 0;
    int open = 0;
    const llm_gate_op op = {.dst = st_buffer(ctx, 0, n, 30, 1),
                            .gate = st_buffer(ctx, 0, ST_WIDE + 3, 31, 3),
                            .n = n,
                            .each = 1,
                            .col = first,
                            .act = act,
                            .width = ST_WIDE,
                            .cut = cut};
    for (int k = 0; k < ST_WIDE; k++) op.gate->data[4 * op.gate->stride + k] = 2;
    CHECK(!t->weights_done(ctx) && !t->begin_step(ctx, &b.s));
    t->gate(ctx, 0, &op);
    CHECK(!t->end_step(ctx) && !t->wait(ctx));
    for (int r = 0; r < ST_ROWS; r++) {
        double g[ST_WIDE], mean = 0, square = 0;
        for (int k = 0; k < ST_WIDE; k++) g[k] = r == 4 ? 2 : 3 * (double)st_value(31, (uint32_t)r, (uint32_t)k), mean += g[k] / ST_WIDE;
        for (int k = 0; k < ST_WIDE; k++) square += (g[k] - mean) * (g[k] - mean) / ST_WIDE;
        for (int k = 0; k < n; k++) {
            const double above = fmax(0, g[first + k] - mean - (double)cut * sqrt(square));
            open += above > 0;
            worst = fmax(worst, fabs((double)st_value(30, (uint32_t)r, (uint32_t)k) * st_act(act, above) -
                                     (double)t->buffer_row(ctx, 0, op.dst, r)[k]));
        }
    }
    CHECK(open > 0 && open < (ST_ROWS - 1) * n);
    if (!CHECK(worst < 1e-5)) printf("  sparse gates, %s: act %d, cut %g: error %g\n", isa, (int)act, (double)cut, worst);
    t->close(ctx);
}

/* An operation that must be told at the end of the step. */
static void st_refused(const llm_streams_op *op, const llm_gate_op *gate, llm_backend_ctx *ctx, const test_step *b, const char *words) {
    const llm_backend *t = llm_backend_cpu();
    CHECK(!t->begin_step(ctx, &b->s));
    if (op) t->streams(ctx, 0, op);
    else t->gate(ctx, 0, gate);
    if (!CHECK(t->end_step(ctx) == LLM_ERR_ARG && strstr(llm_last_error(), words))) printf("  %s expected: %s\n", words, llm_last_error());
    CHECK(t->wait(ctx) == LLM_ERR_ARG);
}

static void st_hostile(void) {
    test_step b;
    llm_backend_ctx *ctx = st_open("scalar", 1, 1, &b);
    llm_buffer *x = st_buffer(ctx, 0, 3 * ST_COLS, 1, 1), *y = st_buffer(ctx, 0, ST_COLS, 2, 1), *gate = st_buffer(ctx, 0, 3, 3, 1);
    const llm_streams_op good = {
        .kind = LLM_STREAMS_CORRECT, .x = x, .dst = y, .gate = gate, .y = y, .weight = st_vector(ctx, 0, 9, 4), .n = 3, .cols = ST_COLS};
    CHECK(!llm_backend_cpu()->weights_done(ctx));
    llm_streams_op bad[10];
    for (int i = 0; i < LLM__COUNT(bad); i++) bad[i] = good;
    bad[0].n = 0, bad[1].n = LLM_MAX_STREAMS + 1, bad[2].active = 3, bad[3].active = -1, bad[4].cols = ST_COLS + 1, bad[5].dst = gate;
    bad[6].gate = NULL, bad[7].kind = LLM_STREAMS_PREDICT, bad[8].y = NULL, bad[9].weight = NULL;
    for (int i = 0; i < LLM__COUNT(bad); i++)
        st_refused(&bad[i], NULL, ctx, &b, i < 6 ? "more of them than the buffers have columns for" : "coefficients do not fit");
    const llm_gate_op sparse = {.dst = y, .gate = x, .n = 20, .each = 1, .width = 60, .act = LLM_GATE_GELU};
    llm_gate_op wrong[5];
    for (int i = 0; i < LLM__COUNT(wrong); i++) wrong[i] = sparse;
    wrong[0].width = 3 * ST_COLS + 1, wrong[1].each = 0, wrong[2].col = 41, wrong[3].width = wrong[3].each = 0, wrong[4].part = 10;
    for (int i = 0; i < LLM__COUNT(wrong); i++) st_refused(NULL, &wrong[i], ctx, &b, "sparse gate out of range");
    llm_backend_cpu()->close(ctx);
}

TEST_GROUP(streams) {
    char isa[16];
    CHECK(llm__op_row_of(LLM__OP_STREAMS)->row == llm__run_streams);
    st_hostile();
    for (const char *list = llm_isa_list(); *list;) {
        const int length = (int)strcspn(list, " ");
        snprintf(isa, sizeof isa, "%.*s", length, list);
        for (int n = 1; n <= ST_MOST; n++)
            for (int kind = LLM_STREAMS_LEVEL; kind <= LLM_STREAMS_CORRECT; kind++)
                st_case(isa, (llm_streams_kind)kind, n, (n + kind) % n, 1 + n % 3, 1 + n % 2, n == 4 ? LLM_ROWS_OUT : LLM_ROWS_TOKENS);
        for (int act = LLM_GATE_SIGMOID; act <= LLM_GATE_GELU_TANH; act++) {
            st_sparse(isa, (llm_gate_act)act, 1.2f, 7 * act, 50, 1 + act % 3);
            st_sparse(isa, (llm_gate_act)act, -0.3f, 0, ST_WIDE, 2);
        }
        list += length + (list[length] == ' ');
    }
}
