#include "cpu/operations.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
#include "cpu/linear.h"
#include "cpu/latent.h"
#include "cpu/products.h"
#include "cpu/experts.h"
#include "cpu/kv_cache.h"
#include "cpu/attention.h"
#include "cpu/backend.h"

LLM__PRIVATE void llm__norm_row(const llm__kernels *k, llm_norm_kind kind, float *dst, const float *src, int n, const float *w,
                                const float *b, float eps) {
    if (kind == LLM_NORM_NONE) {
        if (dst != src) memcpy(dst, src, (size_t)n * sizeof *dst);
        return;
    }
    if (kind == LLM_NORM_LAYER) {
        k->affine(dst, src, k->sum(src, n) / (float)n, 1, NULL, NULL, n);
        src = dst;
    }
    k->affine(dst, src, 0, 1 / sqrtf(k->dot(src, src, n) / (float)n + eps), w, b, n);
}

/* dst = w src + b within bounds. What is no number stays so, for comparisons with it are false: a model with broken weights is told by its
 * logits, which a bound would hide. */
static void llm__bound_row(const llm__kernels *k, const llm_norm_op *op, float *dst, const float *src, const float *w, const float *b) {
    k->affine(dst, src, 0, 1, w, b, op->n);
    for (int i = 0; i < op->n; i++) dst[i] = dst[i] < op->low ? op->low : dst[i] > op->high ? op->high : dst[i];
}

LLM__PRIVATE float *llm__row(const llm_buffer *b, int row) { return b->data + row * b->stride; }

LLM__PRIVATE void llm__run_embed(const llm__run *r, int row) { llm__run_embed_row(r->e, &r->rec->op.embed, row); }

LLM__PRIVATE void llm__run_rope(const llm__run *r, int row) {
    const llm_step *s = &r->ctx->step;
    const llm_rope_op *op = &r->rec->op.rope;
    int half = op->rope_dim / 2, seq = s->seq_of_row[row], variant = s->seq_rope[seq];
    float *c = llm__row(op->dst, row), scale = op->scale ? op->scale[variant] : 1;
    double base = s->seq_rope_base[seq];
    for (int i = 0; i < half; i++) {
        double f = op->inv_freq->f32[variant * half + i];
        int section = s->n_position_rows == 3 && op->row_of ? op->row_of[i] : 0;
        if (base != 1) f *= pow(base, -2.0 * i / op->rope_dim);
        double angle = f * s->positions[section * s->shape.n_rows + row];
        c[i] = (float)cos(angle) * scale;
        c[half + i] = (float)sin(angle) * scale;
    }
}

/* The same record of another rank of the stage, the i-th. */
static const llm__record *llm__twin(const llm__run *r, int i) {
    int rank = r->rank - r->rank % r->ctx->n_group + i;
    return r->ctx->rank[rank].list + (r->rec - r->ctx->rank[r->rank].list);
}

LLM__PRIVATE void llm__run_residual(const llm__run *r, int row) {
    const llm_residual_op *op = &r->rec->op.residual;
    const llm__kernels *k = r->ctx->kernels;
    const int n = (int)op->x->cols;
    float *scratch = (float *)r->e->scratch, *x = llm__row(op->x, row);
    if (op->y) {
        const float *y = llm__row(op->y, row);
        if (r->ctx->n_group > 1) { /* in rank order, so that every rank has the same bits */
            memcpy(scratch, llm__row(llm__twin(r, 0)->op.residual.y, row), (size_t)n * sizeof *scratch);
            for (int i = 1; i < r->ctx->n_group; i++) k->add(scratch, llm__row(llm__twin(r, i)->op.residual.y, row), 1, n);
            y = scratch;
        }
        if (op->post_kind)
            llm__norm_row(k, op->post_kind, scratch, y, n, llm__vector(op->post_weight), llm__vector(op->post_bias), op->eps);
        else if (op->post_weight) k->affine(scratch, y, 0, 1, llm__vector(op->post_weight), NULL, n);
        if (op->post_kind || op->post_weight) y = scratch;
        k->add(x, y, op->scale ? op->scale : 1, n);
    }
    if (op->x_scale != 0 && op->x_scale != 1) k->affine(x, x, 0, op->x_scale, NULL, NULL, n);
    if (!op->kind || !op->h) return;
    llm__norm_row(k, op->kind, llm__row(op->h, row), x, n, llm__vector(op->weight), llm__vector(op->bias), op->eps);
    if (op->replace) memcpy(x, llm__row(op->h, row), (size_t)n * sizeof *x);
}

LLM__PRIVATE void llm__run_norm(const llm__run *r, int row) {
    const llm_norm_op *op = &r->rec->op.norm;
    const llm__kernels *k = r->ctx->kernels;
    const float *src = llm__row(op->src, row) + op->src_col, *w = llm__vector(op->weight), *b = llm__vector(op->bias);
    float *dst = llm__row(op->dst, row) + op->dst_col, *scratch = (float *)r->e->scratch;
    for (int i = 0; i < LLM__MAX(op->parts, 1); i++, src += op->n, dst += op->n) {
        float *to = op->add ? scratch : dst;
        if (op->kind == LLM_NORM_BOUND) llm__bound_row(k, op, to, src, w, b);
        else llm__norm_row(k, op->kind, to, src, op->n, w, b, op->eps);
        for (int c = 0; c < op->n && op->gelu; c++) to[c] *= 0.5f * (1 + erff(to[c] * 0.70710678f));
        if (op->add) k->add(dst, scratch, 1, op->n);
    }
}

LLM__PRIVATE void llm__run_linear_op(const llm__run *r) { llm__run_linear(r->e, &r->rec->op.linear); }

LLM__PRIVATE void llm__run_logits_op(const llm__run *r) {
    llm__run_logits(r->e, &r->rec->op.logits, r->ctx->logits, r->ctx->logits_stride);
}

LLM__PRIVATE llm__kv_view llm__view(const llm__run *r, int layer, int seq, int head) {
    const llm_step *s = &r->ctx->step;
    const llm__kv_view v = {&r->ctx->kv, &r->ctx->kv.layer[layer], r->ctx->kv.base[r->rank],
                            s->pages + (size_t)seq * (size_t)s->page_stride, head};
    return v;
}

/* Norm and rotation of one head of q or k at x, or rotation and norm: the length of a head is the same before and behind a turn, but the
 * norm's weights fall on other values, for they do not turn with them. `column` counts from the first head's first value.
 * whole: of WHOLE_RMS, the factor of its row. */
static void llm__finish_head(const llm__kernels *k, const llm_qkv_op *op, const float *w, float *x, int column, float whole,
                             const float *rope) {
    int n = op->head_dim;
    if (op->norm == LLM_QK_NORM_HEAD_RMS) llm__norm_row(k, LLM_NORM_RMS, x, x, n, w, NULL, op->eps);
    else if (op->norm == LLM_QK_NORM_HEAD_LAYER) llm__norm_row(k, LLM_NORM_LAYER, x, x, n, w + column, NULL, op->eps);
    else if (op->norm == LLM_QK_NORM_WHOLE_RMS) k->affine(x, x, 0, whole, w + column, NULL, n);
    if (rope) k->rotate(x, rope, op->rope_dim / 2, op->rope_interleaved);
    if (op->norm == LLM_QK_NORM_HEAD_RMS_LAST) llm__norm_row(k, LLM_NORM_RMS, x, x, n, w, NULL, op->eps);
}

/* The factor that brings a row of all heads to unit mean square. */
static float llm__whole_rms(const llm__kernels *k, const float *x, int n, float eps) { return 1 / sqrtf(k->dot(x, x, n) / (float)n + eps); }

/* What attention of long texts multiplies the query at a position by. */
static float llm__query_stretch(const llm_qkv_op *op, int position) {
    const int from = op->logn_from;
    if (from <= 0 || position + 1 < from + !op->logn_ahead) return 1;
    if (op->logn_beta > 0) return (float)(1 + (double)op->logn_beta * log1p((position + op->logn_ahead) / from));
    return (float)(log((double)position + 1) / log((double)from));
}

/* One row's KV head g: norm and rotation in place, then key and value to the cache, rounded to its type there. whole: see above. */
static void llm__qkv_key(const llm__run *r, int row, int g, float whole, const float *rope) {
    const llm_qkv_op *op = &r->rec->op.qkv;
    const llm__kernels *k = r->ctx->kernels;
    llm__kv_view view = llm__view(r, op->layer, r->ctx->step.seq_of_row[row], g);
    float *key = llm__row(op->qkv, row) + op->k_col + g * op->head_dim, *value = llm__row(op->qkv, row) + op->v_col + g * op->v_head_dim;
    const int before = op->norm == LLM_QK_NORM_WHOLE_RMS ? op->k_col - op->whole_k_col : 0;
    llm__finish_head(k, op, llm__vector(op->k_norm), key, g * op->head_dim + before, whole, rope);
    if (op->v_norm) llm__norm_row(k, LLM_NORM_RMS, value, value, op->v_head_dim, NULL, NULL, op->eps);
    if (r->ctx->kv.scaled) {
        llm__kv_turn(key, op->head_dim, llm__kv_turn_size(op->head_dim));
        llm__kv_turn(value, op->v_head_dim, llm__kv_turn_size(op->v_head_dim));
    }
    llm__kv_write_token(k, &view, llm__row_position(&r->ctx->step, row), key, value, (uint8_t *)r->e->scratch);
}

/* One row's KV heads [g0, g1) and the query heads that go with them. A thread has these columns of the row to itself, but for norms over
 * the whole width (see llm__run_qkv). */
static void llm__qkv_heads(const llm__run *r, int row, int g0, int g1) {
    const llm_qkv_op *op = &r->rec->op.qkv;
    const llm__kernels *k = r->ctx->kernels;
    const llm_step *s = &r->ctx->step;
    int group = op->n_heads / op->n_kv_heads, position = s->positions[row], whole = op->norm == LLM_QK_NORM_WHOLE_RMS;
    const float stretch = llm__query_stretch(op, position);
    float *x = llm__row(op->qkv, row), rq = 0, rk = 0;
    const float *rope = op->rope ? llm__row(op->rope, row) : NULL, *qw = llm__vector(op->q_norm);
    if (whole) {
        rq = llm__whole_rms(k, x + op->whole_q_col, op->whole_q, op->eps);
        rk = llm__whole_rms(k, x + op->whole_k_col, op->whole_k, op->eps);
    }
    for (int h = g0 * group; h < g1 * group; h++) {
        float *q = x + op->q_col + h * op->head_dim;
        llm__finish_head(k, op, qw, q, h * op->head_dim + (whole ? op->q_col - op->whole_q_col : 0), rq, rope);
        if (stretch != 1) k->affine(q, q, 0, stretch, NULL, NULL, op->head_dim);
    }
    for (int g = g0; g < g1 && !op->shared; g++) llm__qkv_key(r, row, g, rk, rope);
}

LLM__PRIVATE void llm__run_qkv(const llm__run *r) {
    const llm_qkv_op *op = &r->rec->op.qkv;
    int64_t from, to;
    int heads = op->norm == LLM_QK_NORM_WHOLE_RMS ? 1 : op->n_kv_heads; /* a norm over the whole row needs the row untouched */
    if (r->rec->split) llm__share_heads(r->e, heads, &from, &to);
    else llm__share(r->e, (int64_t)r->e->n_rows * heads, &from, &to);
    for (int unit = (int)from; unit < to; unit++) {
        int g = unit % heads;
        llm__qkv_heads(r, unit / heads, g, heads == 1 ? op->n_kv_heads : g + 1);
    }
}

/* What query i of a tile sees, and where its online softmax starts: positions [from, to), maximum m, sum l. A sink is a score that takes
 * part in the softmax with no value behind it, so it starts there with weight 1 (gpt-oss). */
static void llm__attend_query(const llm_step *s, const llm_attention_op *op, llm__attend *t, int i, int row, int head) {
    int at = llm__row_position(s, row);
    t->at[i] = at;
    t->to[i] = op->not_causal ? s->seq_len[s->seq_of_row[row]] : at + 1;
    t->from[i] = llm__window_from(op, at);
    if (op->not_causal && op->window) t->to[i] = LLM__MIN(t->to[i], (op->chunked ? t->from[i] : at) + op->window);
    if (op->spans && s->spans) {
        t->from[i] = LLM__MAX(t->from[i], s->spans[row]);
        t->to[i] = s->spans[s->shape.n_rows + row];
    }
    t->running_max[i] = op->sinks ? op->sinks->f32[head] * LLM__LOG2E : -1e30f;
    memset(t->running_sum[i], 0, sizeof t->running_sum[i]);
    t->running_sum[i][0] = op->sinks ? 1 : 0;
    t->slope[i] = op->alibi ? op->alibi->f32[head] * LLM__LOG2E : 0;
    t->distance[i] = op->distance ? op->distance->f32 + (int64_t)head * (2 * op->reach + 1) + op->reach : NULL;
}

LLM__PRIVATE void llm__run_attention(const llm__run *r) {
    const llm_attention_op *op = &r->rec->op.attention;
    const llm__kernels *k = r->ctx->kernels;
    const float scale = op->softcap ? op->scale : op->scale * LLM__LOG2E;
    llm__attend t;
    llm__attend_jobs jobs;
    llm__attend_job job, ahead;
    llm__attend_place(&t, (float *)r->e->scratch, op->head_dim, op->v_head_dim);
    t.softcap = op->softcap;
    t.alibi = op->alibi != NULL;
    t.reach = op->distance ? op->reach : 0;
    llm__jobs_cut(&jobs, &r->ctx->step, op->n_kv_heads, op->n_heads / op->n_kv_heads, r->e->n_threads);
    jobs.fixed = r->rec->split != LLM__SPLIT_ANY;
    if (jobs.fixed) llm__share_heads(r->e, op->n_kv_heads, &jobs.begin, &jobs.end);
    for (int more = llm__jobs_next(&jobs, &r->rec->next, &job); more;) {
        llm__kv_view view = llm__view(r, op->layer, job.seq, job.kv_head), next;
        t.next_from = t.next_to = 0;
        if (jobs.fixed && (more = llm__jobs_next(&jobs, &r->rec->next, &ahead))) {
            next = llm__view(r, op->layer, ahead.seq, ahead.kv_head);
            t.next = &next;
            t.next_to = r->ctx->step.seq_len[ahead.seq];
            t.next_from = llm__window_from(op, t.next_to - 1);
        }
        t.n = job.n_rows * job.n_heads;
        for (int q = 0; q < t.n; q++) {
            int row = job.row + q / job.n_heads, head = job.head + q % job.n_heads;
            llm__attend_query(&r->ctx->step, op, &t, q, row, head);
            k->affine(t.q + q * t.head_dim, llm__row(op->qkv, row) + op->q_col + head * t.head_dim, 0, scale, NULL, NULL, t.head_dim);
            if (view.kv->scaled) llm__kv_turn(t.q + q * t.head_dim, t.head_dim, llm__kv_turn_size(t.head_dim));
        }
        llm__attend_run(k, &t, &view);
        for (int q = 0; q < t.n && view.kv->scaled; q++) llm__kv_turn(t.out + q * t.v_stride, t.v_dim, llm__kv_turn_size(t.v_dim));
        for (int q = 0; q < t.n; q++)
            memcpy(llm__row(op->dst, job.row + q / job.n_heads) + (job.head + q % job.n_heads) * t.v_dim, t.out + q * t.v_stride,
                   (size_t)t.v_dim * sizeof(float));
        if (!jobs.fixed) more = llm__jobs_next(&jobs, &r->rec->next, &ahead);
        if (more) job = ahead;
    }
}

LLM__PRIVATE void llm__run_mla_write(const llm__run *r, int row) {
    const llm_mla_op *op = &r->rec->op.mla;
    const llm__kernels *k = r->ctx->kernels;
    float *latent = llm__row(op->kv_a, row), *q = llm__row(op->q, row) + op->nope;
    const float *rope = op->rope ? llm__row(op->rope, row) : NULL;
    llm__kv_view view = llm__view(r, op->layer, r->ctx->step.seq_of_row[row], 0);
    llm__norm_row(k, LLM_NORM_RMS, latent, latent, op->rank, llm__vector(op->kv_norm), NULL, op->eps);
    if (rope) k->rotate(latent + op->rank, rope, op->rope_dim / 2, op->rope_interleaved);
    for (int h = 0; h < op->n_heads && rope; h++)
        k->rotate(q + h * (op->nope + op->rope_dim), rope, op->rope_dim / 2, op->rope_interleaved);
    if (r->ctx->kv.scaled) llm__kv_turn(latent, op->rank + op->rope_dim, llm__kv_turn_size(op->rank | op->rope_dim));
    const int at = llm__row_position(&r->ctx->step, row);
    if (view.place->shape.v_head_dim) llm__kv_write_value(k, &view, at, latent);
    else llm__kv_write_key(k, &view, at, latent, (uint8_t *)r->e->scratch);
}

/* What an adapter adds to kv_b, U + B A instead of U: both ways through a head it is y += Y^T (X x) over the adapter's own r, with X (r,
 * n_x) and Y (r, n_y): on the way in X is B of the head's key rows and Y is A, on the way out the other way round. */
static void llm__mla_adapt(const llm__kernels *k, const llm_weight *x_of, int64_t x_at, const float *x, int n_x, float scale,
                           const llm_weight *y_of, int64_t y_at, float *y, int n_y) {
    for (int64_t i = 0; i < x_of->rows; i++)
        k->add(y, y_of->f32 + i * y_of->cols + y_at, k->dot(x_of->f32 + i * x_of->cols + x_at, x, n_x) * scale, n_y);
}

/* Rows of the step and heads that a job of latent attention has: as many rows as share what is read of kv_b, and where few rows are of one
 * sequence so many heads as share what is read of its latents. With 16 heads, two threads and LLM__QUERIES of 48:
 *
 *     a prompt of 256 rows     1 head,  43 rows     96 jobs: a head's kv_b is read for 43 rows at once
 *     eight answers, a row each     8 heads, 4 rows     4 jobs: kv_b is read twice in all, a sequence's latents twice
 *     one answer     8 heads, 1 row     2 jobs, one a thread
 *
 * Rows that see what an indexer has chosen share no latents: a tile of attention is one row then, with as many heads as fill vectors, and a
 * job has tiles of several rows, which share kv_b. */
typedef struct llm__latent_jobs {
    int n, rows, heads, parts; /* jobs; of each; parts of the heads */
} llm__latent_jobs;

static llm__latent_jobs llm__latent_cut(const llm_step *s, int n_heads, int n_threads, int chosen) {
    const int rows = s->shape.n_rows, least = rows >= 16 * s->shape.n_seqs ? 1 : 8, most = chosen ? (int)LLM__ROW_QUERIES : LLM__QUERIES;
    llm__latent_jobs j;
    j.heads = LLM__MIN(n_heads, chosen ? (int)LLM__ROW_HEADS : LLM__MAX(least, LLM__QUERIES / rows));
    for (;; j.heads = (j.heads + 1) / 2) {
        const int tiles = (rows * j.heads + most - 1) / most;
        j.rows = LLM__MIN(LLM__MIN((rows + tiles - 1) / tiles, most / j.heads), (int)LLM__QUERIES);
        j.parts = (n_heads + j.heads - 1) / j.heads;
        j.n = (rows + j.rows - 1) / j.rows * j.parts;
        if (j.heads == 1 || j.n >= n_threads) return j;
    }
}

/* The queries of a job's rows and heads, row by row, taken into the latent space: t->q. */
static void llm__latent_queries(const llm__run *r, llm__attend *t, int row, int n_rows, int head, int n_heads) {
    const llm_mla_op *op = &r->rec->op.mla;
    const llm__kernels *k = r->ctx->kernels;
    const float scale = op->scale * LLM__LOG2E;
    const int per_head = op->nope + op->v_dim, width = op->nope + op->rope_dim;
    const int size = llm__kv_turn_size(op->rank | op->rope_dim); /* divides both: values are the first part of keys */
    for (int h = 0; h < n_heads; h++) {
        const llm__latent_rows x = {llm__row(op->q, row) + (head + h) * width,
                                    t->q + h * t->head_dim,
                                    op->q->stride,
                                    (int64_t)n_heads * t->head_dim,
                                    n_rows,
                                    scale};
        llm__latent_keys(r->e, op->kv_b, head + h, &x);
    }
    for (int j = 0; j < n_rows * n_heads; j++) {
        const int at = row + j / n_heads, h = head + j % n_heads;
        const llm__lora_slot *own = llm__lora_of_seq(&r->ctx->step, op->lora, r->ctx->step.seq_of_row[at]);
        const float *q = llm__row(op->q, at) + h * width;
        float *out = t->q + j * t->head_dim;
        if (own) llm__mla_adapt(k, own->w[0][1], h * per_head, q, op->nope, scale, own->w[0][0], 0, out, op->rank);
        k->affine(out + op->rank, q + op->nope, 0, scale, NULL, NULL, op->rope_dim);
        if (r->ctx->kv.scaled) llm__kv_turn(out, t->head_dim, size);
    }
}

/* What attention has given to them, t->out, through the heads' values to dst. */
static void llm__latent_results(const llm__run *r, llm__attend *t, int row, int n_rows, int head, int n_heads) {
    const llm_mla_op *op = &r->rec->op.mla;
    const llm__kernels *k = r->ctx->kernels;
    const int per_head = op->nope + op->v_dim;
    for (int j = 0; j < n_rows * n_heads && r->ctx->kv.scaled; j++)
        llm__kv_turn(t->out + j * t->v_stride, op->rank, llm__kv_turn_size(op->rank | op->rope_dim));
    for (int h = 0; h < n_heads; h++) {
        const llm__latent_rows x = {t->out + h * t->v_stride,
                                    llm__row(op->dst, row) + (head + h) * op->v_dim,
                                    (int64_t)n_heads * t->v_stride,
                                    op->dst->stride,
                                    n_rows,
                                    1};
        llm__latent_values(r->e, op->kv_b, head + h, &x);
    }
    for (int j = 0; j < n_rows * n_heads; j++) {
        const int at = row + j / n_heads, h = head + j % n_heads;
        const llm__lora_slot *own = llm__lora_of_seq(&r->ctx->step, op->lora, r->ctx->step.seq_of_row[at]);
        if (own)
            llm__mla_adapt(k, own->w[0][0], 0, t->out + j * t->v_stride, op->rank, 1, own->w[0][1], h * per_head + op->nope,
                           llm__row(op->dst, at) + h * op->v_dim, op->v_dim);
    }
}

/* The positions that were chosen for a row; NULL: it sees all. */
static const int32_t *llm__mla_chosen(const llm_step *s, const llm_mla_op *op, int row) {
    if (!op->chosen || llm__row_position(s, row) < op->topk) return NULL;
    return (const int32_t *)(const void *)llm__row(op->chosen, row);
}

LLM__PRIVATE void llm__run_mla(const llm__run *r) {
    const llm_mla_op *op = &r->rec->op.mla;
    const llm_step *s = &r->ctx->step;
    const llm_attention_op plain = LLM__ZERO; /* no window, sinks or slopes */
    const int rows_stand = r->ctx->kv.layer[op->layer].shape.v_head_dim != 0;
    const llm__latent_jobs jobs = llm__latent_cut(s, op->n_heads, r->e->n_threads, op->chosen != NULL);
    llm__attend t;
    llm__attend_place(&t, (float *)r->e->scratch, op->rank + op->rope_dim, op->rank);
    if (rows_stand) llm__attend_place_rows(&t);
    float *const q = t.q, *const out = t.out;
    for (int i; (i = jobs.n - 1 - __atomic_fetch_add(&r->rec->next, 1, __ATOMIC_RELAXED)) >= 0;) { /* the longest contexts first */
        const int row = i / jobs.parts * jobs.rows, n_rows = LLM__MIN(jobs.rows, s->shape.n_rows - row);
        const int head = i % jobs.parts * jobs.heads, n_heads = LLM__MIN(jobs.heads, op->n_heads - head);
        t.q = q, t.out = out;
        llm__latent_queries(r, &t, row, n_rows, head, n_heads);
        for (int from = 0, to; from < n_rows; from = to) { /* the rows of a sequence, or one that sees what was chosen for it */
            const int seq = s->seq_of_row[row + from];
            llm__kv_view view = llm__view(r, op->layer, seq, 0);
            t.chosen = llm__mla_chosen(s, op, row + from);
            for (to = from + 1; to < n_rows && s->seq_of_row[row + to] == seq && (to - from + 1) * n_heads <= LLM__QUERIES && !t.chosen &&
                                !llm__mla_chosen(s, op, row + to);)
                to++;
            t.n = (to - from) * n_heads;
            t.q = q + from * n_heads * t.head_dim;
            t.out = out + from * n_heads * t.v_stride;
            for (int j = 0; j < t.n; j++) llm__attend_query(s, &plain, &t, j, row + from + j / n_heads, head + j % n_heads);
            for (int j = 0; j < t.n && t.chosen; j++) t.to[j] = op->topk;
            llm__attend_run(r->ctx->kernels, &t, &view);
        }
        t.q = q, t.out = out;
        llm__latent_results(r, &t, row, n_rows, head, n_heads);
    }
}

LLM__PRIVATE void llm__run_state(const llm__run *r, int row) {
    const llm_state_op *op = &r->rec->op.state;
    const llm_step *s = &r->ctx->step;
    const llm_kv_layer *shape = &r->ctx->kv.layer[op->layer].shape;
    int at = op->rows == LLM_ROWS_OUT ? s->out_rows[row] : row, position = llm__row_position(s, at) - op->recall;
    float *x = llm__row(op->buf, row);
    if (position < 0) {
        memset(x, 0, (size_t)op->buf->cols * sizeof *x);
        if (op->clear) memset(llm__row(op->clear, row), 0, (size_t)op->clear->cols * sizeof *x);
        return;
    }
    for (int h = 0; h < shape->n_kv_heads; h++, x += shape->v_head_dim) {
        llm__kv_view view = llm__view(r, op->layer, s->seq_of_row[at], h);
        if (op->recall) llm__kv_read_value(r->ctx->kernels, &view, position, x);
        else llm__kv_write_value(r->ctx->kernels, &view, position, x);
    }
}

/* The index of the largest of n values that is not yet taken, the lower one of equals. `taken` values are -INFINITY. */
static int llm__arg_max(const float *x, int n) {
    int best = 0;
    while (best + 1 < n && x[best] == -INFINITY) best++;
    for (int i = best + 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Leaves only the experts of the topk_group best groups: the others' scores in choice (n_experts) become -INFINITY. group (n_group) is
 * scratch, a group's score by its best expert or its two best (DeepSeek-V2 and V3). */
static void llm__route_groups(const llm_route_op *op, float *choice, float *group) {
    int size = op->n_experts / op->n_group;
    for (int g = 0; g < op->n_group; g++) {
        float *x = choice + g * size, second = -INFINITY;
        int best = llm__arg_max(x, size);
        for (int i = 0; i < size; i++)
            if (i != best && x[i] > second) second = x[i];
        group[g] = op->group_top2 && size > 1 ? x[best] + second : x[best];
    }
    for (int left = op->n_group - op->topk_group; left > 0; left--) { /* drop the worst, of equals the higher */
        int worst = -1;
        for (int g = 0; g < op->n_group; g++)
            if (group[g] < INFINITY && (worst < 0 || group[g] <= group[worst])) worst = g;
        if (worst < 0) return;
        group[worst] = INFINITY;
        for (int i = 0; i < size; i++) choice[worst * size + i] = -INFINITY;
    }
}

/* In place, over n values. */
static void llm__softmax(float *x, int n) {
    float top = x[0], sum = 0;
    for (int i = 1; i < n; i++) top = LLM__MAX(top, x[i]);
    for (int i = 0; i < n; i++) sum += x[i] = expf(x[i] - top);
    for (int i = 0; i < n; i++) x[i] /= sum;
}

/* What SparseMixer (Liu et al. 2023) gives the best of those left: its part of a softmax over those near it. Chosen ones have a choice of
 * -INFINITY. Of 4, 3.95 and 1 with `near` 0.02 the first has 1 / (1 + e^-0.05), for 1 is not near; then the second, alone, has 1. */
static float llm__route_near(const llm_route_op *op, const float *logit, const float *choice, int best) {
    float top = logit[best], sum = 0;
    for (int i = 0; i < op->n_experts; i++)
        if (choice[i] > -INFINITY && !((top - logit[i]) / LLM__MAX(fabsf(logit[i]), top) > op->near)) sum += expf(logit[i] - top);
    return 1 / sum;
}

LLM__PRIVATE void llm__run_route(const llm__run *r, int row) {
    const llm_route_op *op = &r->rec->op.route;
    float *out = llm__row(op->dst, row), *score = (float *)r->e->scratch, *choice = score + op->n_experts, *weight = out + op->k, sum = 0,
          scale = op->scale ? op->scale : 1;
    for (int i = 0; i < op->k && op->set && r->ctx->step.row_set[row] != op->set - 1; i++) out[i] = -1;
    if (op->set && r->ctx->step.row_set[row] != op->set - 1) return;
    memcpy(score, llm__row(op->logits, row), (size_t)op->n_experts * sizeof *score);
    if (op->score == LLM_ROUTE_SOFTMAX) llm__softmax(score, op->n_experts);
    for (int i = 0; i < op->n_experts; i++) {
        if (op->score == LLM_ROUTE_SIGMOID) score[i] = 1 / (1 + expf(-score[i]));
        choice[i] = score[i] + (op->correction ? op->correction->f32[i] : 0);
        if (!(choice[i] > -3e38f)) choice[i] = -3e38f; /* also what is not a number */
    }
    if (op->n_group > 1 && op->topk_group < op->n_group) llm__route_groups(op, choice, choice + op->n_experts);
    for (int i = 0; i < op->k; i++) {
        int best = llm__arg_max(choice, op->n_experts);
        out[i] = (float)best;
        weight[i] = op->score == LLM_ROUTE_SPARSEMIXER ? llm__route_near(op, score, choice, best) : score[best];
        choice[best] = -INFINITY;
    }
    if (op->score == LLM_ROUTE_TOPK_SOFTMAX) llm__softmax(weight, op->k);
    for (int i = 0; i < op->k; i++) sum += weight[i];
    if (op->normalize) scale /= LLM__MAX(sum, LLM__MAX(op->normalize_min, 1e-20f));
    for (int i = 0; i < op->k; i++) weight[i] *= op->by ? scale * op->by->f32[(int)out[i]] : scale;
}

LLM__PRIVATE void llm__run_experts_op(const llm__run *r) {
    llm__exec shared = *r->e;
    shared.scratch = r->ctx->experts;
    shared.scratch_bytes = r->ctx->experts_bytes;
    llm__run_experts(&shared, &r->rec->op.experts, r->sub);
}

LLM__PRIVATE void llm__run_gather(const llm__run *r, int row) {
    const llm_gather_op *op = &r->rec->op.gather;
    const int from = r->rec->kind == LLM__OP_RECEIVE ? row : r->ctx->step.out_rows[row], parts = LLM__MAX(op->parts, 1);
    const int64_t cols = LLM__MIN(op->dst->cols - op->dst_col, op->src->cols - op->src_col);
    float *dst = llm__row(op->dst, row) + op->dst_col;
    for (int i = 0; i < parts; i++) {
        const float *src = llm__row(op->src, from + i) + op->src_col;
        if (i && op->mean) r->ctx->kernels->add(dst, src, 1, (int)cols);
        else memcpy(dst + i * cols, src, (size_t)cols * sizeof(float));
    }
    if (op->mean) r->ctx->kernels->affine(dst, dst, 0, 1.0f / (float)parts, NULL, NULL, (int)cols);
}

/* The rows of an operation as adapters see them. */
static llm__lora_job llm__lora_job_of(const llm__run *r) {
    const llm_lora_op *op = &r->rec->op.lora;
    llm__lora_job j = {op->site,
                       r->e->n_rows,
                       1,
                       NULL,
                       op->rows == LLM_ROWS_OUT ? r->ctx->step.out_rows : NULL,
                       op->src ? op->src->data : NULL,
                       op->src ? op->src->stride : 0,
                       op->low,
                       op->dst->data,
                       op->dst->stride,
                       op->scale != 0 ? op->scale : 1,
                       !op->src};
    return j;
}

LLM__PRIVATE void llm__run_lora_down(const llm__run *r) {
    const llm_lora_op *op = &r->rec->op.lora;
    const llm__lora_job j = llm__lora_job_of(r);
    int64_t begin, end;
    if (op->src) {
        llm__lora_down(r->e, &j, op->n);
        return;
    }
    llm__share(r->e, r->e->n_rows, &begin, &end);
    for (int row = (int)begin; row < end; row++) {
        const llm__lora_slot *s = llm__lora_of(r->e, &j, row);
        if (!s) continue;
        const llm_weight *a = s->w[0][0];
        int64_t token = (int64_t)r->ctx->step.tokens[row] - op->vocab_begin;
        if (token >= 0 && token < a->rows) memcpy(llm__row(op->low, row), a->f32 + token * a->cols, (size_t)a->cols * sizeof *a->f32);
        else memset(llm__row(op->low, row), 0, (size_t)a->cols * sizeof *a->f32);
    }
}

LLM__PRIVATE void llm__run_lora_up(const llm__run *r) {
    const llm__lora_job j = llm__lora_job_of(r);
    llm__lora_products(r->e, &j, 1);
}

LLM__PRIVATE void llm__run_all_reduce(const llm__run *r, int row) {
    const int n = r->rec->op.reduce.n;
    float *sum = llm__row(r->rec->op.reduce.buf, row);
    for (int i = 1; i < r->ctx->n_group && r->rank % r->ctx->n_group == 0; i++)
        r->ctx->kernels->add(sum, llm__row(llm__twin(r, i)->op.reduce.buf, row), 1, n);
    for (int i = 1; i < r->ctx->n_group && r->rank % r->ctx->n_group == 0; i++)
        memcpy(llm__row(llm__twin(r, i)->op.reduce.buf, row), sum, (size_t)n * sizeof *sum);
}
