/* A convolution, linear attention and a gate, as layers that keep a state have them: cases, a plain reference in double, and the same rows
 * computed by a backend in pieces of all kinds, whose bits must not tell. For the CPU's table and for llm_cuda.cu's. */
#ifndef RECUR_NET_H
#define RECUR_NET_H
#include "step.h"
#include "base/alloc.h"
#include "base/map.h"

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
    int keys;  /* each key decays by itself: 1 by steps of its own, 2 by a number of its own */
    int alone; /* 1: the convolution, to a buffer of its own, and nothing behind it */
} re_case;

static const re_case re_cases[] = {
    {"gated delta net", 4, 0, 1, 0, 4, 2, 16, 24, 1, 1, 1, 0, 0, 0, 24, 0, 1, 1, 0, 0, 0},
    {"three groups", 4, 0, 1, 0, 6, 3, 20, 16, 1, 1, 1, 0, 0, 0, 16, 0, 1, 1, 0, 0, 0},
    {"three groups by turns", 4, 0, 1, 0, 6, 3, 20, 16, 1, 1, 1, 0, 0, 0, 16, 0, 1, 1, 1, 0, 0},
    {"turns from the third on", 4, 0, 1, 0, 5, 3, 20, 16, 1, 1, 1, 0, 0, 0, 16, 0, 1, 1, 3, 0, 0},
    {"Mamba 2", 4, 1, 1, 0, 6, 2, 16, 8, 0, 0, 0, 1, 0.3f, 0.9f, 24, 1, 1, 2, 0, 0, 0},
    {"odd widths", 3, 0, 1, 0, 3, 3, 17, 33, 1, 1, 1, 0, 0, 0, 33, 0, 0, 1, 0, 0, 0},
    {"short convolution", 3, 1, 0, 1, 2, 1, 5, 70, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"wide head", 2, 0, 0, 0, 1, 1, 64, 130, 1, 1, 1, 1, 0, 0, 130, 1, 0, 0, 0, 0, 0},
    {"Kimi's delta net", 4, 0, 1, 0, 4, 4, 18, 20, 1, 1, 1, 0, 0, 0, 20, 0, 0, 1, 0, 1, 0},
    {"keys by themselves, in groups", 3, 0, 1, 0, 4, 2, 7, 35, 1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 1, 0},
    {"Mamba 1", 4, 1, 1, 0, 40, 1, 9, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 2, 0},
    {"keys of 256", 4, 1, 1, 0, 2, 1, 200, 40, 1, 1, 1, 0, 0, 0, 40, 0, 1, 1, 0, 0, 0},
    {"odd state", 2, 0, 1, 0, 2, 2, 17, 20, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0},
    {"most taps", 16, 1, 1, 1, 1, 1, 6, 4, 0, 0, 1, 0, 0, 0, 4, 1, 1, 0, 0, 0, 0},
    {"LFM2", 3, 0, 0, 1, 2, 1, 8, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
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

/* Columns of the result. */
static int re_width(const re_case *c) { return c->alone ? re_columns_of(c).conv : c->n_heads * c->dv; }

typedef struct re_net {
    const llm_backend *be;
    llm_backend_ctx *ctx;
    const re_case *c;
    llm_buffer *x, *out;
    llm_weight *inputs, *taps, *bias, *decay, *decay_bias, *skip, *norm;
    llm__arena keep;
} re_net;

static float re_input(int seq, int position, int column) {
    return 1.5f * re_value(100 + (uint32_t)seq, (uint32_t)position, (uint32_t)column);
}

/* Weights by what they are for (1 ... 6): decays are below 0, norms near 1. 0: the inputs of all positions. */
static float re_weight(int what, int64_t at, int cols) {
    const int i = (int)at;
    if (!what) return re_input(i / cols / RE_LEN, i / cols % RE_LEN, i % cols);
    return what == 3 ? -0.6f + 0.5f * re_value(3, (uint32_t)i, 0) : (what == 6) + re_value((uint32_t)what, (uint32_t)i, 0);
}

static llm_weight *re_vector(re_net *n, int what, int64_t rows, int64_t cols) {
    float *v = (float *)llm__arena_get(&n->keep, (size_t)(rows * cols) * sizeof *v);
    llm_segment s;
    llm_weight_desc d;
    llm_weight *w = NULL;
    memset(&s, 0, sizeof s);
    memset(&d, 0, sizeof d);
    for (int i = 0; i < rows * cols; i++) v[i] = re_weight(what, i, (int)cols);
    s.data = v;
    s.stored_cols = s.n_cols = d.cols = cols;
    s.n_rows = d.rows = rows;
    d.name = "test";
    d.role = what ? LLM_ROLE_VECTOR : LLM_ROLE_EMBED;
    d.segments = &s;
    d.n_segments = 1;
    CHECK(n->be->weight(n->ctx, 0, &d, &w) == LLM_OK);
    return w;
}

static void re_open(re_net *n, const llm_backend *t, const re_case *c, const char *isa, int threads) {
    const re_columns at = re_columns_of(c);
    const int width = re_width(c);
    const llm_kv_layer layers[2] = {{1, 16, 16, 0}, {0, 0, 0, (c->taps - 1) * at.conv + c->n_heads * c->dk * c->dv}};
    llm_backend_config cfg;
    memset(n, 0, sizeof *n);
    memset(&cfg, 0, sizeof cfg);
    n->be = t;
    n->c = c;
    cfg.n_threads = threads;
    cfg.isa = isa;
    cfg.kv_type = LLM_KV_F16;
    cfg.max_rows = RE_ROWS;
    cfg.max_out = RE_SEQS + 1; /* so that steps of three rows have a graph, of four */
    cfg.max_seqs = RE_SEQS;
    cfg.max_pages_per_seq = RE_PAGES;
    cfg.compute = LLM_COMPUTE_F32;
    cfg.error = llm_backend_error;
    CHECK(t->open(&cfg, &n->ctx) == LLM_OK);
    CHECK(t->buffer(n->ctx, 0, RE_ROWS, at.all, &n->x) == LLM_OK && t->buffer(n->ctx, 0, RE_ROWS, width, &n->out) == LLM_OK);
    n->inputs = re_vector(n, 0, RE_SEQS * RE_LEN, at.all);
    n->taps = re_vector(n, 1, at.conv, c->taps);
    n->bias = c->bias ? re_vector(n, 2, at.conv, 1) : NULL;
    n->decay = re_vector(n, 3, c->n_heads * (c->keys == 2 ? c->dk : 1), 1);
    n->decay_bias = re_vector(n, 4, c->n_heads * (c->keys == 1 ? c->dk : 1), 1);
    n->skip = c->skip ? re_vector(n, 5, c->n_heads, 1) : NULL;
    n->norm = c->gate_weights ? re_vector(n, 6, c->gate_weights == 1 ? c->part : width, 1) : NULL;
    CHECK(t->weights_done(n->ctx) == LLM_OK && t->kv_open(n->ctx, 2, layers, RE_PAGE, RE_SEQS * RE_PAGES) == LLM_OK);
}

static void re_close(re_net *n) {
    n->be->close(n->ctx);
    llm__arena_free(&n->keep);
}

static void re_record(re_net *n) {
    const llm_backend *t = n->be;
    const re_case *c = n->c;
    const re_columns at = re_columns_of(c);
    const llm_embed_op embed = {.dst = n->x, .table = n->inputs};
    const llm_conv_op conv = {.buf = n->x,
                              .dst = c->alone ? n->out : NULL,
                              .col = at.q,
                              .n = at.conv,
                              .taps = c->taps,
                              .before_col = c->products ? at.before : -1,
                              .after_col = c->products ? at.after : -1,
                              .weight = n->taps,
                              .bias = n->bias,
                              .silu = c->conv_silu,
                              .layer = 1};
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
                                .layer = 1,
                                .state = (c->taps - 1) * at.conv};
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
    t->embed(n->ctx, 0, &embed);
    t->conv(n->ctx, 0, &conv);
    if (c->alone) return;
    t->recur(n->ctx, 0, &recur);
    t->gate(n->ctx, 0, &gate);
}

static void re_step(re_net *n, test_step *b, float *out) {
    const llm_backend *t = n->be;
    const int width = re_width(n->c);
    for (int r = 0; r < b->s.shape.n_rows; r++) b->tokens[r] = b->id[b->seq_of_row[r]] * RE_LEN + b->positions[r];
    for (int i = 0; i < b->s.shape.n_seqs; i++) b->out_rows[b->s.shape.n_out++] = b->seq_begin[i + 1] - 1;
    CHECK(t->begin_step(n->ctx, &b->s) == LLM_OK);
    re_record(n);
    CHECK(t->end_step(n->ctx) == LLM_OK && t->wait(n->ctx) == LLM_OK);
    for (int r = 0; r < b->s.shape.n_rows; r++)
        memcpy(out + ((int64_t)b->id[b->seq_of_row[r]] * RE_LEN + b->positions[r]) * width, t->buffer_row(n->ctx, 0, n->out, r),
               (size_t)width * sizeof *out);
}

static const int re_len[RE_SEQS] = {37, 1, RE_LEN};

/* plan 0: whole sequences (in as many rows as a step has); 1: token by token, all together; 2: random chunks and pages; 3: as 2, and now
 * and then a sequence goes on with a copy of its last page, as a fork does; 4: as 0, then each again from the end of a page in its middle
 * on, as one that shares its first pages; 5: as 2, with rows behind each chunk that are guesses, and come again. */
enum { RE_PLANS = 6 };

static float *re_run(re_net *n, int plan, uint32_t seed) {
    float *out = LLM__NEW(float, (int64_t)RE_SEQS *RE_LEN *re_width(n->c));
    int32_t pages[RE_SEQS][RE_PAGES];
    const int whole = plan == 0 || plan == 4;
    int32_t keep[RE_SEQS];
    int done[RE_SEQS] = {0}, again[RE_SEQS] = {0}, spare = RE_SEQS * RE_PAGES - 1;
    for (int i = 0; i < RE_SEQS * RE_PAGES; i++)
        pages[i / RE_PAGES][i % RE_PAGES] = !whole && plan > 1 ? (i * 7 + 3) % (RE_SEQS * RE_PAGES) : i;
    for (int left = 1; left;) {
        test_step b;
        left = 0;
        step_begin(&b, RE_PAGES);
        for (int s = 0; s < RE_SEQS; s++) {
            int m = whole ? RE_LEN : plan == 1 ? 1 : (int)(re_next(&seed) % 3 ? re_next(&seed) % 30 : 1);
            m = LLM__MIN(m, LLM__MIN(re_len[s] - done[s], RE_ROWS - b.s.shape.n_rows));
            if (m <= 0 || (whole && b.s.shape.n_seqs)) continue;
            if (plan == 3 && done[s] % RE_PAGE && s == 2 && re_next(&seed) % 2) {
                int32_t *page = &pages[s][done[s] / RE_PAGE], to = pages[1][RE_PAGES - 1 - spare % 8];
                spare++;
                if (to != *page) CHECK(n->be->kv_copy(n->ctx, page, &to, 1) == LLM_OK);
                pages[1][RE_PAGES - 1 - (spare - 1) % 8] = *page, *page = to;
            }
            const int guesses =
                plan == 5 ? LLM__MIN((int)(re_next(&seed) % 21), LLM__MIN(re_len[s] - done[s], RE_ROWS - b.s.shape.n_rows) - m) : 0;
            if (plan == 5) b.s.seq_keep = keep;
            keep[b.s.shape.n_seqs] = m;
            step_add(&b, s, done[s], m + guesses, pages[s]);
            done[s] += m;
        }
        if (b.s.shape.n_rows) re_step(n, &b, out);
        for (int s = 0; s < RE_SEQS; s++)
            if (plan == 4 && done[s] == re_len[s] && !again[s]++) done[s] = re_len[s] / 2 / RE_PAGE * RE_PAGE;
        for (int s = 0; s < RE_SEQS; s++) left |= done[s] < re_len[s];
    }
    return out;
}

static double re_sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Column `col` of the convolution at a position. */
static double re_conv(const re_case *c, int seq, int position, int col) {
    const re_columns at = re_columns_of(c);
    double y = c->bias ? (double)re_weight(2, col, 1) : 0;
    for (int j = 0; j < c->taps; j++) {
        const int p = position - c->taps + 1 + j;
        if (p < 0) continue;
        const double by = c->products ? (double)re_input(seq, p, at.before + col) : 1;
        y += (double)re_weight(1, col * c->taps + j, 1) * by * (double)re_input(seq, p, at.q + col);
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
        double kk = 1e-6, qq = 1e-6, s = 0, w, d[256];
        for (int i = 0; i < dk; i++) {
            const int step = c->keys == 1 ? h * dk + i : h;
            s = log1p(exp((double)(re_input(seq, p, at.decay + step) + re_weight(4, step, 1))));
            s = LLM__MAX(s, (double)c->step_min);
            if (c->step_max > 0) s = LLM__MIN(s, (double)c->step_max);
            d[i] = exp((double)re_weight(3, c->keys == 2 ? h * dk + i : h, 1) * s);
            q[i] = re_conv(c, seq, p, g * dk + i), qq += q[i] * q[i];
            k[i] = re_conv(c, seq, p, (c->n_groups + g) * dk + i), kk += k[i] * k[i];
        }
        for (int i = 0; i < dk && c->unit; i++) q[i] /= sqrt(qq) * sqrt(dk), k[i] /= sqrt(kk);
        w = c->write ? re_sigmoid((double)re_input(seq, p, at.write + h)) : s;
        for (int j = 0; j < dv; j++) {
            const double v = re_conv(c, seq, p, 2 * c->n_groups * dk + h * dv + j);
            double read = 0, sum = c->skip ? (double)re_weight(5, h, 1) * v : 0;
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
            const double w = c->gate_weights ? (double)re_weight(6, c->gate_weights == 1 ? i - from : i, 1) : 1;
            x[i] *= w / sqrt(sum + 1e-5);
        }
    }
}

/* The largest difference from the reference, relative to the largest value. */
static double re_error(const re_case *c, const float *out) {
    const re_columns at = re_columns_of(c);
    const int n = re_width(c);
    double worst = 0, top = 0, *o = LLM__NEW(double, (int64_t)RE_LEN *n), *x = LLM__NEW(double, n);
    for (int seq = 0; seq < RE_SEQS; seq++) {
        for (int h = 0; h < c->n_heads && !c->alone; h++) re_head(c, seq, h, o + (int64_t)h * RE_LEN * c->dv);
        for (int p = 0; p < re_len[seq]; p++) {
            for (int i = 0; i < n; i++)
                x[i] = c->alone ? re_conv(c, seq, p, i) : o[(int64_t)(i / c->dv) * RE_LEN * c->dv + p * c->dv + i % c->dv];
            if (!c->gate_first) re_norm(c, x);
            for (int i = 0; i < n && !c->alone; i++) {
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
    const int64_t n = re_width(c);
    for (int s = 0; s < RE_SEQS; s++)
        if (memcmp(a + s * RE_LEN * n, b + s * RE_LEN * n, (size_t)(re_len[s] * n) * sizeof *a)) return 0;
    return 1;
}

/* What would lead out of a page or a buffer is the step's mistake. */
static void re_refusals(const llm_backend *t) {
    const re_case *c = &re_cases[0];
    const re_columns at = re_columns_of(c);
    re_net n;
    test_step b;
    re_open(&n, t, c, NULL, 1);
    for (int32_t keep = -1; keep <= 3; keep++) {
        const int32_t pages[RE_PAGES] = {0};
        step_begin(&b, RE_PAGES);
        step_add(&b, 0, 0, 2, pages);
        b.s.seq_keep = &keep;
        const int good = keep >= 0 && keep <= 2;
        CHECK(t->begin_step(n.ctx, &b.s) == (good ? LLM_OK : LLM_ERR_ARG) && (good || strstr(llm_last_error(), "of 2 rows")));
        if (good) CHECK(t->end_step(n.ctx) == LLM_OK && t->wait(n.ctx) == LLM_OK);
    }
    re_close(&n);
    for (int i = 0; i < 10; i++) {
        re_open(&n, t, c, NULL, 1);
        llm_conv_op cv = {.buf = n.x, .n = at.conv, .taps = c->taps, .before_col = -1, .after_col = -1, .weight = n.taps, .layer = 1};
        llm_recur_op rc = {.dst = n.out,
                           .src = n.x,
                           .n_heads = c->n_heads,
                           .n_groups = c->n_groups,
                           .dk = c->dk,
                           .dv = c->dv,
                           .decay = n.decay,
                           .decay_bias = n.decay_bias,
                           .layer = 1};
        if (i == 0) cv.layer = 2;
        if (i == 1) cv.state = c->n_heads * c->dk * c->dv + 1;
        if (i == 2) cv.taps = 1;
        if (i == 3) cv.after_col = at.all;
        if (i == 4) rc.layer = 0;
        if (i == 5) rc.n_groups = 3;
        if (i == 6) rc.state = (c->taps - 1) * at.conv + 1;
        if (i == 7) rc.dv = 1 << 20;
        if (i == 8) rc.step_keys = 1, rc.write_col = 0;
        if (i == 9) rc.decay_keys = 1;
        step_begin(&b, RE_PAGES);
        int32_t pages[RE_PAGES] = {0};
        step_add(&b, 0, 0, 2, pages);
        CHECK(t->begin_step(n.ctx, &b.s) == LLM_OK);
        if (i < 4) t->conv(n.ctx, 0, &cv);
        else t->recur(n.ctx, 0, &rc);
        CHECK(t->end_step(n.ctx) == LLM_ERR_ARG);
        re_close(&n);
    }
}

#endif
