#include "cpu/recurrent.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"
#include "cpu/products.h"
#include "cpu/kv_cache.h"
#include "cpu/attention.h"
#include "cpu/operations.h"

/* RMS norms of a row, each over `part` values of it. */
static void llm__gate_norms(const llm__run *r, const llm_gate_op *op, float *x) {
    const llm__kernels *k = r->ctx->kernels;
    const float *w = llm__vector(op->weight);
    const int shared = w && op->weight->rows * op->weight->cols == op->part; /* one set of weights for all parts */
    for (int at = 0; op->part && at < op->n; at += op->part) {
        const float by = 1 / sqrtf(k->dot(x + at, x + at, op->part) / (float)op->part + op->eps);
        k->affine(x + at, x + at, 0, by, w && !shared ? w + at : w, NULL, op->part);
    }
}

/* What a gate of value g multiplies by. */
static float llm__gate_value(llm_gate_act act, float g) {
    if (act == LLM_GATE_PLAIN) return g;
    if (act == LLM_GATE_GELU) return 0.5f * g * (1 + erff(g * 0.70710678f));
    if (act == LLM_GATE_SIGMOID) return 1 / (1 + expf(-g));
    return g / (1 + expf(act == LLM_GATE_SILU ? -g : -1.59576912f * (g + 0.044715f * g * g * g))); /* (1 + tanh y) / 2 = sigmoid(2 y) */
}

/* x *= act of what of each gate is above the mean of the row's and so many deviations, 0 where nothing is. */
static void llm__gate_sparse(const llm__run *r, const llm_gate_op *op, float *x, const float *gate) {
    const llm__kernels *k = r->ctx->kernels;
    float *away = (float *)r->e->scratch;
    const float mean = k->sum(gate, op->width) / (float)op->width;
    k->affine(away, gate, mean, 1, NULL, NULL, op->width);
    const float least = op->cut * sqrtf(k->dot(away, away, op->width) / (float)op->width), none = llm__gate_value(op->act, 0);
    for (int i = 0; i < op->n; i++) {
        const float g = away[op->col + i] - least;
        x[i] *= g > 0 ? llm__gate_value(op->act, g) : none;
    }
}

LLM__PRIVATE void llm__run_gate(const llm__run *r, int row) {
    const llm_gate_op *op = &r->rec->op.gate;
    const llm__kernels *k = r->ctx->kernels;
    float *x = llm__row(op->dst, row);
    if (op->width) {
        llm__gate_sparse(r, op, x, llm__row(op->gate, row));
        return;
    }
    const float *gate = llm__row(op->gate, row) + op->col;
    const float sigmoid = op->each || op->act == LLM_GATE_PLAIN ? 1 : 1 / (1 + expf(-*gate));
    if (!op->gate_first) llm__gate_norms(r, op, x);
    if (op->act >= LLM_GATE_GELU)
        for (int i = 0; i < op->n; i++) x[i] *= llm__gate_value(op->act, gate[i]);
    else if (op->each && op->act != LLM_GATE_PLAIN) k->gate(x, gate, op->n, op->act == LLM_GATE_SILU);
    else if (op->each) k->affine(x, x, 0, 1, gate, NULL, op->n);
    else k->affine(x, x, 0, op->act == LLM_GATE_SIGMOID ? sigmoid : *gate * sigmoid, NULL, NULL, op->n);
    if (op->gate_first) llm__gate_norms(r, op, x);
}

/* Rows of a sequence that are of one page, or all that are guesses. */
typedef struct llm__recur_span {
    int row, rows;     /* of the step */
    const float *from; /* the state before them; NULL: zeros */
    float *to;         /* where it is to be behind them, which may be the same place; NULL: nowhere */
} llm__recur_span;

/* The rows from `row` on. 0: the sequence has no more. */
static int llm__recur_next(const llm__run *r, int seq, int layer, int64_t state, int row, llm__recur_span *span) {
    const llm_step *s = &r->ctx->step;
    const llm__kv_cache *kv = &r->ctx->kv;
    const llm__kv_view view = {kv, &kv->layer[layer], kv->base[r->rank], s->pages + (size_t)seq * (size_t)s->page_stride, 0};
    const int end = s->seq_begin[seq + 1], kept = s->seq_keep ? s->seq_begin[seq] + s->seq_keep[seq] : end;
    if (row >= end) return 0;
    const int at = llm__row_position(s, row);
    span->row = row;
    span->rows = row < kept ? LLM__MIN(kept - row, kv->page_tokens - at % kv->page_tokens) : end - row;
    span->from = at ? llm__kv_state(&view, at - 1) + state : NULL;
    span->to = row < kept ? llm__kv_state(&view, at) + state : NULL;
    return 1;
}

/* Columns [at, at + n) of a convolution's weights, tap by tap in whole vectors. */
static void llm__conv_weights(const llm_conv_op *op, int at, int n, float *weight, float *bias) {
    memset(weight, 0, sizeof(float) * LLM__CONV_PAST);
    memset(bias, 0, sizeof(float) * LLM__CONV);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < op->taps; j++) weight[j * LLM__CONV + i] = op->weight->f32[(int64_t)(at + i) * op->taps + j];
        if (op->bias) bias[i] = op->bias->f32[at + i];
    }
}

/* Columns [at, at + n), of all sequences. */
static void llm__conv_columns(const llm__run *r, int at, int n) {
    const llm_conv_op *op = &r->rec->op.conv;
    float weight[LLM__CONV_PAST], bias[LLM__CONV], past[LLM__CONV_PAST];
    llm__conv c = {.stride = op->buf->stride,
                   .y_stride = op->dst ? op->dst->stride : op->buf->stride,
                   .n = n,
                   .taps = op->taps,
                   .silu = op->silu,
                   .weight = weight,
                   .bias = bias,
                   .past = past};
    llm__recur_span span;
    llm__conv_weights(op, at, n, weight, bias);
    for (int seq = 0; seq < r->ctx->step.shape.n_seqs; seq++) {
        memset(past, 0, sizeof past);
        for (int row = r->ctx->step.seq_begin[seq]; llm__recur_next(r, seq, op->layer, (int64_t)op->state + at, row, &span);
             row += span.rows) {
            float *x = llm__row(op->buf, row);
            for (int j = 0; j + 1 < op->taps && span.from; j++)
                memcpy(past + j * LLM__CONV, span.from + (int64_t)j * op->n, (size_t)n * sizeof *past);
            c.x = x + op->col + at;
            c.y = op->dst ? llm__row(op->dst, row) + at : x + op->col + at;
            c.before = op->before_col < 0 ? NULL : x + op->before_col + at;
            c.after = op->after_col < 0 ? NULL : x + op->after_col + at;
            c.rows = span.rows;
            r->ctx->kernels->conv(&c);
            for (int j = 0; j + 1 < op->taps && span.to; j++)
                memcpy(span.to + (int64_t)j * op->n, past + j * LLM__CONV, (size_t)n * sizeof *past);
        }
    }
}

LLM__PRIVATE void llm__run_conv(const llm__run *r) {
    const llm_conv_op *op = &r->rec->op.conv;
    int64_t from, to;
    llm__share(r->e, (op->n + LLM__CONV - 1) / LLM__CONV, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int at = (int)i * LLM__CONV;
        llm__conv_columns(r, at, LLM__MIN(op->n - at, (int)LLM__CONV));
    }
}

/* ln(1 + e^x), within limits. */
static float llm__recur_step(const llm_recur_op *op, float x) {
    const float s = LLM__MAX(x > 20 ? x : log1pf(expf(x)), op->step_min);
    return op->step_max > 0 ? LLM__MIN(s, op->step_max) : s;
}

/* k or q of a group, brought to the length `scale` if the operation says so. */
static void llm__recur_key(const llm__run *r, const float *x, float scale, float *to) {
    const llm_recur_op *op = &r->rec->op.recur;
    const llm__kernels *k = r->ctx->kernels;
    const float by = op->unit ? scale / sqrtf(k->dot(x, x, op->dk) + 1e-6f) : 1;
    k->affine(to, x, 0, by, NULL, NULL, op->dk);
}

/* 1 if each key of a head decays by itself. */
static int llm__recur_keyed(const llm_recur_op *op) { return op->step_keys || op->decay_keys; }

/* How much is left of a state after the row x, of head h, to decay: one number, or keyed dk of them, and then k times them to read. Returns
 * the head's step. */
static float llm__recur_decays(const llm_recur_op *op, const float *x, int h, const float *k, float *decay, float *read) {
    const float *steps = x + op->decay_col, *bias = op->decay_bias->f32;
    const int64_t at = (int64_t)h * op->dk;
    float s = op->step_keys ? 0 : llm__recur_step(op, steps[h] + bias[h]);
    if (!llm__recur_keyed(op)) *decay = expf(op->decay->f32[h] * s);
    for (int i = 0; i < op->dk && llm__recur_keyed(op); i++) {
        if (op->step_keys) s = llm__recur_step(op, steps[at + i] + bias[at + i]);
        decay[i] = expf(op->decay->f32[op->decay_keys ? at + i : h] * s);
        read[i] = k[i] * decay[i];
    }
    return s;
}

/* What the kernel reads of c->rows rows from `row` on, of head h, into memory: k and q (rows, dk), write (rows), decay (rows), keyed decay
 * and read (rows, dk). */
static void llm__recur_inputs(const llm__run *r, int h, int row, llm__recur *c, float *memory) {
    const llm_recur_op *op = &r->rec->op.recur;
    const int dk = op->dk, group = op->turns ? (h + op->turns - 1) % op->n_groups : h / (op->n_heads / op->n_groups);
    const int64_t keys = (int64_t)c->rows * dk;
    float *k = memory, *q = k + keys, *write = q + keys, *decay = write + c->rows, *read = decay + keys;
    for (int i = 0; i < c->rows; i++) {
        const float *x = llm__row(op->src, row + i);
        const int64_t at = (int64_t)i * dk;
        llm__recur_key(r, x + op->k_col + group * dk, 1, k + at);
        llm__recur_key(r, x + op->q_col + group * dk, 1 / sqrtf((float)dk), q + at);
        const float s = llm__recur_decays(op, x, h, k + at, decay + (c->keyed ? at : i), read + at);
        write[i] = op->write_col < 0 ? s : 1 / (1 + expf(-x[op->write_col + h]));
    }
    c->q = q, c->k = k, c->write = write, c->decay = decay, c->read = read, c->key_stride = dk;
}

/* Brings n columns of the state to where they are changed. */
static void llm__recur_fetch(const llm_recur_op *op, const llm__recur_span *span, const llm__recur *c, int n) {
    for (int i = 0; i < op->dk && span->from != c->state; i++) {
        float *to = c->state + i * c->stride;
        if (span->from) memcpy(to, span->from + (int64_t)i * op->dv, (size_t)n * sizeof *to);
        else memset(to, 0, (size_t)n * sizeof *to);
    }
}

/* Columns [at, at + n) of head h, of all sequences. */
static void llm__recur_columns(const llm__run *r, int h, int at, int n) {
    const llm_recur_op *op = &r->rec->op.recur;
    const int64_t each = (llm__recur_keyed(op) ? 4 : 2) * ((int64_t)op->dk + 1), state_floats = (int64_t)op->dk * LLM__CONV,
                  most = ((int64_t)(r->e->scratch_bytes / sizeof(float)) - state_floats) / each;
    float *own = (float *)r->e->scratch, *inputs = own + state_floats;
    llm__recur c = {.v_stride = op->src->stride,
                    .out_stride = op->dst->stride,
                    .dk = op->dk,
                    .n = n,
                    .delta = op->delta,
                    .keyed = llm__recur_keyed(op),
                    .skip = op->skip ? op->skip->f32[h] : 0};
    const int64_t state = op->state + (int64_t)h * op->dk * op->dv + at;
    llm__recur_span span;
    for (int seq = 0; seq < r->ctx->step.shape.n_seqs; seq++)
        for (int row = r->ctx->step.seq_begin[seq]; llm__recur_next(r, seq, op->layer, state, row, &span); row += span.rows) {
            c.state = span.to ? span.to : own;
            c.stride = span.to ? op->dv : LLM__CONV;
            llm__recur_fetch(op, &span, &c, n);
            for (int i = 0; i < span.rows; i += c.rows) {
                c.rows = (int)LLM__MIN(most, span.rows - i);
                llm__recur_inputs(r, h, row + i, &c, inputs);
                c.v = llm__row(op->src, row + i) + op->v_col + h * op->dv + at;
                c.out = llm__row(op->dst, row + i) + h * op->dv + at;
                r->ctx->kernels->recur(&c);
            }
        }
}

LLM__PRIVATE void llm__run_recur(const llm__run *r) {
    const llm_recur_op *op = &r->rec->op.recur;
    const int parts = (op->dv + LLM__CONV - 1) / LLM__CONV;
    int64_t from, to;
    llm__share(r->e, (int64_t)op->n_heads * parts, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int at = (int)(i % parts) * LLM__CONV;
        llm__recur_columns(r, (int)(i / parts), at, LLM__MIN(op->dv - at, (int)LLM__CONV));
    }
}
