/* Recurrent layers: convolutions, linear attention and gates against plain references in double, and the promise that a row's bits do not
 * depend on chunks, pages, batch or threads, though each row changes what the next one reads. */
#include "../step.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/map.h"
#include "cpu/backend.h"
#include "cpu/recur_bodies.h"
#include "cpu/recurrent.h"
#include "cpu/run.h"
#include "model/families.h"
#include "model/arch_recurrent.h"
#include "model/load_recurrent.h"
#include "model/forward_recurrent.h"

enum { RE_ROWS = 96, RE_PAGES = 12, RE_LEN = 120, RE_SEQS = 3, RE_PAGE = 16 };

/* Reproducible values in -1 .. 1, a function of what they belong to. */
static float re_value(uint32_t a, uint32_t b, uint32_t c) {
    const uint64_t h = llm__mix(llm__mix(((uint64_t)a << 32 | b) + 7) ^ c);
    return (float)((double)(h >> 40) / (1 << 23) - 1.0);
}

static uint32_t re_next(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* A shape: of the convolution, and of the heads behind it, which read what it wrote. */
typedef struct re_case {
    const char *name;
    int taps, bias, conv_silu, products; /* products: LFM2's two columns by columns */
    int n_heads, n_groups, dk, dv, delta, unit, write, skip;
    float step_min, step_max;
    int part, gate_first, silu, gate_weights; /* gate_weights 0: none, 1: (part), 2: (n) */
    int turns;
    int keys; /* each key decays by itself: 1 by steps of its own, 2 by a number of its own */
} re_case;

static const re_case re_cases[] = {
    {"gated delta net", 4, 0, 1, 0, 4, 2, 16, 24, 1, 1, 1, 0, 0, 0, 24, 0, 1, 1, 0, 0},
    {"three groups", 4, 0, 1, 0, 6, 3, 20, 16, 1, 1, 1, 0, 0, 0, 16, 0, 1, 1, 0, 0},
    {"three groups by turns", 4, 0, 1, 0, 6, 3, 20, 16, 1, 1, 1, 0, 0, 0, 16, 0, 1, 1, 1, 0},
    {"turns from the third on", 4, 0, 1, 0, 5, 3, 20, 16, 1, 1, 1, 0, 0, 0, 16, 0, 1, 1, 3, 0},
    {"Mamba 2", 4, 1, 1, 0, 6, 2, 16, 8, 0, 0, 0, 1, 0.01f, 0.9f, 24, 1, 1, 2, 0, 0},
    {"odd widths", 3, 0, 1, 0, 3, 3, 17, 33, 1, 1, 1, 0, 0, 0, 33, 0, 0, 1, 0, 0},
    {"short convolution", 3, 1, 0, 1, 2, 1, 5, 70, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"wide head", 2, 0, 0, 0, 1, 1, 64, 130, 1, 1, 1, 1, 0, 0, 130, 1, 0, 0, 0, 0},
    {"Kimi's delta net", 4, 0, 1, 0, 4, 4, 18, 20, 1, 1, 1, 0, 0, 0, 20, 0, 0, 1, 0, 1},
    {"keys by themselves, in groups", 3, 0, 1, 0, 4, 2, 7, 35, 1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 1},
    {"Mamba 1", 4, 1, 1, 0, 40, 1, 9, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 2},
};

/* Columns of the buffer: q, k of all groups, v of all heads; decay; write; gate; two times as many as the former for products. */
typedef struct re_columns {
    int q, k, v, conv, decay, write, gate, before, after, all;
} re_columns;

static re_columns re_columns_of(const re_case *c) {
    re_columns x;
    x.q = 1;
    x.k = x.q + c->n_groups * c->dk;
    x.v = x.k + c->n_groups * c->dk;
    x.conv = 2 * c->n_groups * c->dk + c->n_heads * c->dv;
    x.decay = x.q + x.conv;
    x.write = x.decay + c->n_heads * (c->keys == 1 ? c->dk : 1);
    x.gate = x.write + c->n_heads;
    x.before = x.gate + c->n_heads * c->dv;
    x.after = x.before + x.conv;
    x.all = x.after + x.conv;
    return x;
}

typedef struct re_net {
    llm_backend_ctx *ctx;
    const re_case *c;
    llm_buffer *x, *out;
    llm_weight *taps, *bias, *decay, *decay_bias, *skip, *norm;
    llm__arena keep;
} re_net;

/* Weights by what they are for (1 ... 6): decays are below 0, norms near 1. */
static float re_weight(int what, int i) {
    return what == 3 ? -0.6f + 0.5f * re_value(3, (uint32_t)i, 0) : (what == 6) + re_value((uint32_t)what, (uint32_t)i, 0);
}

static llm_weight *re_vector(re_net *n, int what, int64_t rows, int64_t cols) {
    float *v = (float *)llm__arena_get(&n->keep, (size_t)(rows * cols) * sizeof *v);
    llm_segment s;
    llm_weight_desc d;
    llm_weight *w = NULL;
    memset(&s, 0, sizeof s);
    memset(&d, 0, sizeof d);
    for (int i = 0; i < rows * cols; i++) v[i] = re_weight(what, i);
    s.data = v;
    s.stored_cols = s.n_cols = d.cols = cols;
    s.n_rows = d.rows = rows;
    d.name = "test";
    d.role = LLM_ROLE_VECTOR;
    d.segments = &s;
    d.n_segments = 1;
    CHECK(llm_backend_cpu()->weight(n->ctx, 0, &d, &w) == LLM_OK);
    return w;
}

static void re_open(re_net *n, const re_case *c, const char *isa, int threads) {
    const llm_backend *t = llm_backend_cpu();
    const re_columns at = re_columns_of(c);
    const int width = c->n_heads * c->dv;
    const llm_kv_layer layers[2] = {{1, 16, 16, 0}, {0, 0, 0, (c->taps - 1) * at.conv + c->n_heads * c->dk * c->dv}};
    llm_backend_config cfg;
    memset(n, 0, sizeof *n);
    memset(&cfg, 0, sizeof cfg);
    n->c = c;
    cfg.n_threads = threads;
    cfg.isa = isa;
    cfg.kv_type = LLM_KV_F16;
    cfg.max_rows = RE_ROWS;
    cfg.max_out = 1;
    cfg.max_seqs = RE_SEQS;
    cfg.max_pages_per_seq = RE_PAGES;
    CHECK(t->open(&cfg, &n->ctx) == LLM_OK);
    CHECK(t->buffer(n->ctx, 0, RE_ROWS, at.all, &n->x) == LLM_OK && t->buffer(n->ctx, 0, RE_ROWS, width, &n->out) == LLM_OK);
    n->taps = re_vector(n, 1, at.conv, c->taps);
    n->bias = c->bias ? re_vector(n, 2, at.conv, 1) : NULL;
    n->decay = re_vector(n, 3, c->n_heads * (c->keys == 2 ? c->dk : 1), 1);
    n->decay_bias = re_vector(n, 4, c->n_heads * (c->keys == 1 ? c->dk : 1), 1);
    n->skip = c->skip ? re_vector(n, 5, c->n_heads, 1) : NULL;
    n->norm = c->gate_weights ? re_vector(n, 6, c->gate_weights == 1 ? c->part : width, 1) : NULL;
    CHECK(t->weights_done(n->ctx) == LLM_OK && t->kv_open(n->ctx, 2, layers, RE_PAGE, RE_SEQS * RE_PAGES) == LLM_OK);
    llm__arena_free(&n->keep);
}

static float re_input(int seq, int position, int column) {
    return 1.5f * re_value(100 + (uint32_t)seq, (uint32_t)position, (uint32_t)column);
}

static void re_record(re_net *n) {
    const llm_backend *t = llm_backend_cpu();
    const re_case *c = n->c;
    const re_columns at = re_columns_of(c);
    const llm_conv_op conv = {.buf = n->x,
                              .col = at.q,
                              .n = at.conv,
                              .taps = c->taps,
                              .before_col = c->products ? at.before : -1,
                              .after_col = c->products ? at.after : -1,
                              .weight = n->taps,
                              .bias = n->bias,
                              .silu = c->conv_silu,
                              .layer = 1,
                              .state = c->n_heads * c->dk * c->dv};
    const llm_recur_op recur = {.dst = n->out,
                                .src = n->x,
                                .q_col = at.q,
                                .k_col = at.k,
                                .v_col = at.v,
                                .decay_col = at.decay,
                                .write_col = c->write ? at.write : -1,
                                .n_heads = c->n_heads,
                                .n_groups = c->n_groups,
                                .dk = c->dk,
                                .dv = c->dv,
                                .delta = c->delta,
                                .unit = c->unit,
                                .turns = c->turns,
                                .step_keys = c->keys == 1,
                                .decay_keys = c->keys == 2,
                                .decay = n->decay,
                                .decay_bias = n->decay_bias,
                                .skip = n->skip,
                                .step_min = c->step_min,
                                .step_max = c->step_max,
                                .layer = 1};
    const llm_gate_op gate = {.dst = n->out,
                              .gate = n->x,
                              .n = c->n_heads * c->dv,
                              .each = 1,
                              .col = at.gate,
                              .act = c->silu ? LLM_GATE_SILU : LLM_GATE_SIGMOID,
                              .part = c->part,
                              .gate_first = c->gate_first,
                              .weight = n->norm,
                              .eps = 1e-5f};
    t->conv(n->ctx, 0, &conv);
    t->recur(n->ctx, 0, &recur);
    t->gate(n->ctx, 0, &gate);
}

static void re_step(re_net *n, test_step *b, float *out) {
    const llm_backend *t = llm_backend_cpu();
    const int width = n->c->n_heads * n->c->dv;
    for (int r = 0; r < b->s.shape.n_rows; r++)
        for (int k = 0; k < (int)n->x->cols; k++) n->x->data[r * n->x->stride + k] = re_input(b->id[b->seq_of_row[r]], b->positions[r], k);
    CHECK(t->begin_step(n->ctx, &b->s) == LLM_OK);
    re_record(n);
    CHECK(t->end_step(n->ctx) == LLM_OK && t->wait(n->ctx) == LLM_OK);
    for (int r = 0; r < b->s.shape.n_rows; r++)
        memcpy(out + ((int64_t)b->id[b->seq_of_row[r]] * RE_LEN + b->positions[r]) * width, t->buffer_row(n->ctx, 0, n->out, r),
               (size_t)width * sizeof *out);
}

static const int re_len[RE_SEQS] = {37, 1, RE_LEN};

/* plan 0: whole sequences (in as many rows as a step has); 1: token by token, all together; 2: random chunks and pages; 3: as 2, and now and
 * then a sequence goes on with a copy of its last page, as a fork does. */
static float *re_run(re_net *n, int plan, uint32_t seed) {
    float *out = LLM__NEW(float, (int64_t)RE_SEQS *RE_LEN * n->c->n_heads * n->c->dv);
    int32_t pages[RE_SEQS][RE_PAGES];
    int done[RE_SEQS] = {0}, spare = RE_SEQS * RE_PAGES - 1;
    for (int i = 0; i < RE_SEQS * RE_PAGES; i++) pages[i / RE_PAGES][i % RE_PAGES] = plan > 1 ? (i * 7 + 3) % (RE_SEQS * RE_PAGES) : i;
    for (int left = 1; left;) {
        test_step b;
        left = 0;
        step_begin(&b, RE_PAGES);
        for (int s = 0; s < RE_SEQS; s++) {
            int m = plan == 0 ? RE_LEN : plan == 1 ? 1 : (int)(re_next(&seed) % 3 ? re_next(&seed) % 30 : 1);
            m = LLM__MIN(m, LLM__MIN(re_len[s] - done[s], RE_ROWS - b.s.shape.n_rows));
            if (m <= 0 || (plan == 0 && b.s.shape.n_seqs)) continue;
            if (plan == 3 && done[s] % RE_PAGE && s == 2 && re_next(&seed) % 2) {
                int32_t *page = &pages[s][done[s] / RE_PAGE], to = pages[1][RE_PAGES - 1 - spare % 8];
                spare++;
                if (to != *page) CHECK(llm_backend_cpu()->kv_copy(n->ctx, page, &to, 1) == LLM_OK);
                pages[1][RE_PAGES - 1 - (spare - 1) % 8] = *page, *page = to;
            }
            step_add(&b, s, done[s], m, pages[s]);
            done[s] += m;
        }
        if (b.s.shape.n_rows) re_step(n, &b, out);
        for (int s = 0; s < RE_SEQS; s++) left |= done[s] < re_len[s];
    }
    return out;
}

static double re_sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Column `col` of the convolution at a position. */
static double re_conv(const re_case *c, int seq, int position, int col) {
    const re_columns at = re_columns_of(c);
    double y = c->bias ? (double)re_weight(2, col) : 0;
    for (int j = 0; j < c->taps; j++) {
        const int p = position - c->taps + 1 + j;
        if (p < 0) continue;
        const double by = c->products ? (double)re_input(seq, p, at.before + col) : 1;
        y += (double)re_weight(1, col * c->taps + j) * by * (double)re_input(seq, p, at.q + col);
    }
    if (c->conv_silu) y *= re_sigmoid(y);
    return c->products ? y * (double)re_input(seq, position, at.after + col) : y;
}

/* One head over a sequence, in double, to o (len, dv). */
static void re_head(const re_case *c, int seq, int h, double *o) {
    const re_columns at = re_columns_of(c);
    const int dk = c->dk, dv = c->dv, g = c->turns ? (h + c->turns - 1) % c->n_groups : h / (c->n_heads / c->n_groups);
    double *S = LLM__NEW(double, dk *dv), *q = LLM__NEW(double, dk), *k = LLM__NEW(double, dk);
    for (int p = 0; p < re_len[seq]; p++) {
        double kk = 1e-6, qq = 1e-6, s = 0, w, d[64];
        for (int i = 0; i < dk; i++) {
            const int step = c->keys == 1 ? h * dk + i : h;
            s = log1p(exp((double)(re_input(seq, p, at.decay + step) + re_weight(4, step))));
            s = LLM__MAX(s, (double)c->step_min);
            if (c->step_max > 0) s = LLM__MIN(s, (double)c->step_max);
            d[i] = exp((double)re_weight(3, c->keys == 2 ? h * dk + i : h) * s);
            q[i] = re_conv(c, seq, p, g * dk + i), qq += q[i] * q[i];
            k[i] = re_conv(c, seq, p, (c->n_groups + g) * dk + i), kk += k[i] * k[i];
        }
        for (int i = 0; i < dk && c->unit; i++) q[i] /= sqrt(qq) * sqrt(dk), k[i] /= sqrt(kk);
        w = c->write ? re_sigmoid((double)re_input(seq, p, at.write + h)) : s;
        for (int j = 0; j < dv; j++) {
            const double v = re_conv(c, seq, p, 2 * c->n_groups * dk + h * dv + j);
            double read = 0, sum = c->skip ? (double)re_weight(5, h) * v : 0;
            for (int i = 0; i < dk; i++) read += k[i] * (S[i * dv + j] *= d[i]);
            for (int i = 0; i < dk; i++) sum += q[i] * (S[i * dv + j] += k[i] * w * (v - (c->delta ? read : 0)));
            o[p * dv + j] = sum;
        }
    }
    LLM_FREE(S);
    LLM_FREE(q);
    LLM_FREE(k);
}

static void re_norm(const re_case *c, double *x) {
    const int n = c->n_heads * c->dv;
    for (int from = 0; c->part && from < n; from += c->part) {
        double sum = 0;
        for (int i = from; i < from + c->part; i++) sum += x[i] * x[i] / c->part;
        for (int i = from; i < from + c->part; i++) {
            const double w = c->gate_weights ? (double)re_weight(6, c->gate_weights == 1 ? i - from : i) : 1;
            x[i] *= w / sqrt(sum + 1e-5);
        }
    }
}

/* The largest difference from the reference, relative to the largest value. */
static double re_error(const re_case *c, const float *out) {
    const re_columns at = re_columns_of(c);
    const int n = c->n_heads * c->dv;
    double worst = 0, top = 0, *o = LLM__NEW(double, (int64_t)RE_LEN *n), *x = LLM__NEW(double, n);
    for (int seq = 0; seq < RE_SEQS; seq++) {
        for (int h = 0; h < c->n_heads; h++) re_head(c, seq, h, o + (int64_t)h * RE_LEN * c->dv);
        for (int p = 0; p < re_len[seq]; p++) {
            for (int i = 0; i < n; i++) x[i] = o[(int64_t)(i / c->dv) * RE_LEN * c->dv + p * c->dv + i % c->dv];
            if (!c->gate_first) re_norm(c, x);
            for (int i = 0; i < n; i++) {
                const double g = (double)re_input(seq, p, at.gate + i);
                x[i] *= re_sigmoid(g) * (c->silu ? g : 1);
            }
            if (c->gate_first) re_norm(c, x);
            for (int i = 0; i < n; i++) {
                worst = LLM__MAX(worst, fabs(x[i] - (double)out[((int64_t)seq * RE_LEN + p) * n + i]));
                top = LLM__MAX(top, fabs(x[i]));
            }
        }
    }
    LLM_FREE(o);
    LLM_FREE(x);
    return worst / top;
}

static int re_same(const re_case *c, const float *a, const float *b) {
    const int64_t n = (int64_t)c->n_heads * c->dv;
    for (int s = 0; s < RE_SEQS; s++)
        if (memcmp(a + s * RE_LEN * n, b + s * RE_LEN * n, (size_t)(re_len[s] * n) * sizeof *a)) return 0;
    return 1;
}

static void re_test_case(const re_case *c, const char *isa) {
    float *first = NULL;
    for (int plan = 0; plan < 4; plan++)
        for (int threads = 1; threads <= 3; threads += 2) {
            re_net n;
            re_open(&n, c, isa, threads);
            float *out = re_run(&n, plan, 5 + (uint32_t)plan);
            if (!first) {
                const double error = re_error(c, out);
                if (!CHECK(error < 2e-5)) printf("  %s, %s: error %g\n", c->name, isa, error);
                first = out;
            } else {
                if (!CHECK(re_same(c, first, out))) printf("  %s, %s: plan %d with %d threads differs\n", c->name, isa, plan, threads);
                LLM_FREE(out);
            }
            llm_backend_cpu()->close(n.ctx);
        }
    LLM_FREE(first);
}

/* What would lead out of a page or a buffer is the step's mistake. */
static void re_test_refusals(void) {
    const llm_backend *t = llm_backend_cpu();
    const re_case *c = &re_cases[0];
    const re_columns at = re_columns_of(c);
    re_net n;
    test_step b;
    re_open(&n, c, NULL, 1);
    llm_conv_op conv = {.buf = n.x, .n = at.conv, .taps = c->taps, .before_col = -1, .after_col = -1, .weight = n.taps, .layer = 1};
    llm_recur_op recur = {.dst = n.out, .src = n.x, .n_heads = c->n_heads, .n_groups = c->n_groups, .dk = c->dk, .dv = c->dv, .layer = 1};
    for (int i = 0; i < 8; i++) {
        llm_conv_op cv = conv;
        llm_recur_op rc = recur;
        if (i == 0) cv.layer = 2;
        if (i == 1) cv.state = c->n_heads * c->dk * c->dv + 1;
        if (i == 2) cv.taps = 1;
        if (i == 3) cv.after_col = at.all;
        if (i == 4) rc.layer = 0;
        if (i == 5) rc.n_groups = 3;
        if (i == 6) rc.state = (c->taps - 1) * at.conv + 1;
        if (i == 7) rc.dv = 1 << 20;
        step_begin(&b, RE_PAGES);
        int32_t pages[RE_PAGES] = {0};
        step_add(&b, 0, 0, 2, pages);
        CHECK(t->begin_step(n.ctx, &b.s) == LLM_OK);
        if (i < 4) t->conv(n.ctx, 0, &cv);
        else t->recur(n.ctx, 0, &rc);
        CHECK(t->end_step(n.ctx) == LLM_ERR_ARG);
    }
    t->close(n.ctx);
}

/* Each instruction set's kernels against the plain ones, at widths that end within a vector. */
static void re_test_kernels(const char *name) {
    llm__isa isa;
    float a[2][100], g[100], state[2][40 * 100], past[2][LLM__CONV_PAST], w[LLM__CONV_PAST], bias[LLM__CONV] = {0}, y[2][300];
    CHECK(!llm__isa_find(name, &isa));
    const llm__kernels *k = llm__kernels_of(isa);
    for (int n = 1; n <= 100; n += 11) {
        for (int i = 0; i < n; i++) a[0][i] = a[1][i] = re_value(1, (uint32_t)i, 0), g[i] = 3 * re_value(2, (uint32_t)i, 0);
        k->gate(a[0], g, n, n % 2);
        llm__body_gate(a[1], g, n, n % 2);
        for (int i = 0; i < n; i++) CHECK(fabs((double)(a[0][i] - a[1][i])) < 1e-6);
        for (int i = 0; i < 40 * 100; i++) state[0][i] = state[1][i] = re_value(3, (uint32_t)i, 0);
        const float decay[2] = {0.9f, 0.5f}, write[2] = {0.3f, 0.7f};
        llm__recur r = {.q = state[0] + 7,
                        .k = g,
                        .decay = decay,
                        .write = write,
                        .v = w,
                        .stride = n,
                        .key_stride = 1,
                        .v_stride = 3,
                        .out_stride = 100,
                        .rows = 2,
                        .dk = 19,
                        .n = n,
                        .delta = 1,
                        .skip = 0.1f};
        for (int i = 0; i < LLM__CONV_PAST; i++) w[i] = past[0][i] = past[1][i] = re_value(4, (uint32_t)i, 0);
        for (int i = 0; i < 2; i++) {
            r.state = state[i], r.out = y[i], r.q = bias;
            if (i) llm__body_recur(&r);
            else k->recur(&r);
        }
        for (int i = 0; i < 19 * n; i++) CHECK(fabs((double)(state[0][i] - state[1][i])) < 1e-5);
        llm__conv c = {.x = state[1],
                       .stride = 100,
                       .y_stride = 100,
                       .n = LLM__MIN(n, (int)LLM__CONV),
                       .rows = 3,
                       .taps = 4,
                       .silu = 1,
                       .weight = w,
                       .bias = bias};
        for (int i = 0; i < 2; i++) {
            c.y = y[i], c.past = past[i];
            if (i) llm__body_conv(&c);
            else k->conv(&c);
        }
        for (int i = 0; i < 3 * 100; i++)
            if (i % 100 < c.n) CHECK(fabs((double)(y[0][i] - y[1][i])) < 1e-5);
        CHECK(!memcmp(past[0], past[1], sizeof past[0]));
    }
}

/* Ranks share heads and groups; what cannot be divided is refused, and other families are left as they are. */
static void re_test_shares(void) {
    static llm__arch a;
    llm__net_state s = LLM__ZERO;
    llm__facts f = LLM__ZERO;
    memset(&a, 0, sizeof a);
    a.family = &llm__families[0];
    a.n_layers = 2;
    llm__arch_recurrent(&f, &a);
    CHECK(!a.recurrent && !llm__state_share(&a, 0, 3, &s) && !s.cols && !llm__state_page(&a));
    a.recurrent = 1;
    a.layer[1].mixer = LLM__MIX_DELTA;
    a.layer[0].n_kv_heads = 1, a.layer[0].head_dim = a.layer[0].v_head_dim = 8;
    a.state.taps = 4, a.state.n_heads = 4, a.state.n_groups = 2, a.state.dk = 8, a.state.dv = 10;
    CHECK(!llm__state_share(&a, 1, 2, &s) && s.heads.first == 2 && s.heads.n == 2 && s.groups.first == 1 && s.conv == 2 * 8 + 20);
    CHECK(s.q == 0 && s.k == 8 && s.v == 16 && s.z == 36 && s.decay == 56 && s.write == 58 && s.cols == 60);
    CHECK(s.n_state == 3 * 36 + 2 * 8 * 10 && llm__state_page(&a) == 64);
    CHECK(llm__state_share(&a, 0, 4, &s) == LLM_ERR_UNSUPPORTED && strstr(llm_last_error(), "4 heads in 2 groups"));
    a.state.turns = 1; /* heads 2 and 3 have the keys of groups 0 and 1, head 3 alone those of 1 */
    CHECK(!llm__state_share(&a, 1, 2, &s) && s.heads.first == 2 && s.heads.n == 2 && s.groups.first == 0 && s.groups.n == 2);
    CHECK(!llm__state_share(&a, 3, 4, &s) && s.heads.first == 3 && s.groups.first == 1 && s.groups.n == 1 && s.conv == 2 * 8 + 10 &&
          s.turns == 1);
    a.state.n_heads = 6; /* heads 3, 4 and 5 those of 1, 0 and 1 */
    CHECK(!llm__state_share(&a, 1, 2, &s) && s.heads.first == 3 && s.groups.n == 2 && s.turns == 2);
    CHECK(llm__state_share(&a, 0, 4, &s) == LLM_ERR_UNSUPPORTED && strstr(llm_last_error(), "6 heads in 2 groups"));
    a.state.n_heads = 4, a.state.n_groups = 2, a.state.turns = 0;
    a.layer[1].mixer = LLM__MIX_SSM;
    CHECK(!llm__state_share(&a, 0, 1, &s) && s.v == 0 && s.k == 40 && s.q == 56 && s.z == 72 && s.decay == 112 && s.write == -1);
}

static struct {
    llm_linear_op linear;
    llm_conv_op conv;
    llm_recur_op recur;
    llm_gate_op gate;
} re_said;

static void re_linear(llm_backend_ctx *ctx, int rank, const llm_linear_op *op) { (void)ctx, (void)rank, re_said.linear = *op; }
static void re_conv_op(llm_backend_ctx *ctx, int rank, const llm_conv_op *op) { (void)ctx, (void)rank, re_said.conv = *op; }
static void re_recur_op(llm_backend_ctx *ctx, int rank, const llm_recur_op *op) { (void)ctx, (void)rank, re_said.recur = *op; }
static void re_gate_op(llm_backend_ctx *ctx, int rank, const llm_gate_op *op) { (void)ctx, (void)rank, re_said.gate = *op; }

/* What the pass asks of a backend: the norm behind a delta net is a head's, before its gate; Mamba's a group's, behind it. */
static void re_test_pass(void) {
    static llm__arch a;
    const llm_backend be = {.linear = re_linear, .conv = re_conv_op, .recur = re_recur_op, .gate = re_gate_op};
    llm__net_rank rank = LLM__ZERO;
    llm__net_layer layer = LLM__ZERO;
    llm__pass p = {.be = &be, .rank = &rank, .a = &a, .first_layer = 3};
    memset(&a, 0, sizeof a);
    layer.kv = 2;
    a.n_layers = a.recurrent = 1;
    a.state.taps = 4, a.state.n_heads = 4, a.state.n_groups = 2, a.state.dk = 8, a.state.dv = 10, a.state.turns = 1;
    for (int kind = LLM__MIX_CONV; kind <= LLM__MIX_SSM; kind++) {
        a.layer[0].mixer = (int8_t)kind;
        memset(&re_said, 0, sizeof re_said);
        CHECK(!llm__state_share(&a, 0, 1, &rank.state));
        llm__pass_recurrent(&p, 0, &layer, NULL, NULL);
        CHECK(re_said.conv.layer == 5 && re_said.conv.n == rank.state.conv && re_said.conv.silu == (kind != LLM__MIX_CONV));
        CHECK((re_said.conv.before_col == 0) == (kind == LLM__MIX_CONV));
        if (kind == LLM__MIX_CONV) continue;
        CHECK(re_said.recur.layer == 5 && re_said.recur.state == 3 * rank.state.conv && re_said.recur.delta == (kind == LLM__MIX_DELTA));
        CHECK(re_said.recur.turns && re_said.gate.n == 40 && re_said.gate.part == (kind == LLM__MIX_DELTA ? 10 : 20) &&
              re_said.gate.gate_first == (kind == LLM__MIX_SSM));
    }
}

TEST_GROUP(recurrent) {
    const char *list = llm_isa_list();
    for (char isa[32]; sscanf(list, "%31s", isa) == 1; list += strspn(list, " ") + strlen(isa)) {
        for (int i = 0; i < LLM__COUNT(re_cases); i++) re_test_case(&re_cases[i], isa);
        re_test_kernels(isa);
        if (!list[strcspn(list, " ")]) break;
    }
    re_test_refusals();
    re_test_shares();
    re_test_pass();
    CHECK(llm__op_row_of(LLM__OP_CONV)->share == llm__run_conv && llm__op_row_of(LLM__OP_RECUR)->share == llm__run_recur);
    CHECK(llm__op_row_of(LLM__OP_GATE)->row == llm__run_gate);
}
