#include "vision/tower.h"
#include "api/config.h"
#include "api/media.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "model/loader.h"
#include "vision/picture.h"
#include "vision/tower_kinds.h"
#include "vision/vision.h"
#include "vision/fit.h"
#include "vision/tower_load.h"
#include "vision/patches.h"
#include "vision/assemble.h"

/* ---- Opening ---- */

LLM__PRIVATE void llm__tower_close(llm__tower *t) {
    if (!t) return;
    if (t->ctx) t->be->close(t->ctx);
    LLM_FREE(t->layer);
    LLM_FREE(t->table);
    LLM_FREE(t->first);
    LLM_FREE(t->bias);
    LLM_FREE(t->newline);
    LLM_FREE(t->resampler.query);
    LLM_FREE(t->values);
    LLM_FREE((void *)t->given);
    LLM_FREE(t->numbers);
    LLM_FREE(t->bases);
    LLM_FREE(t->read);
    LLM_FREE(t);
}

/* Patches of the largest view that the processor makes, the class token included. */
static int64_t llm__tower_largest(const llm__vision *v) {
    const llm__processor *p = &v->processor;
    const int32_t video = v->family->flags & LLM__EYES_VIDEO, pairs = v->family->flags & LLM__EYES_TIMES ? 2 : 1;
    const int64_t film = video ? v->video_processor.max_pixels / pairs : 0, still = v->family->flags & LLM__EYES_DOUBLE ? 2 : 1;
    const int64_t patch = v->patch, side = p->size / patch + 1, edge = p->longest / patch + v->merge;
    switch (v->family->fit) {
    case LLM__FIT_PATCHES: return LLM__MAX(p->max_pixels / still, film) / (patch * patch) + 64;
    case LLM__FIT_EDGE: return edge * edge;
    case LLM__FIT_TOKENS: return LLM__MAX((int64_t)p->limit * v->pool * v->pool, side * side);
    case LLM__FIT_BUDGET: return (int64_t)p->limit * v->pool * v->pool;
    case LLM__FIT_LIMIT: return p->limit + p->limit / 256 + 1030; /* up to 512 a side, each up to a block */
    case LLM__FIT_SLICES: return 2 * side * side + 256;
    default: return side * side + 1;
    }
}

/* Sizes of a step: one view of the largest kind, or several small ones together; the queries of any are rows of a step, too. */
static void llm__tower_sizes(llm__tower *t, const llm__tower_config *cfg) {
    const llm__vision *v = t->v;
    const int64_t tokens = (int64_t)cfg->max_len * v->pool * v->pool;
    const int64_t largest = LLM__MIN(LLM__MIN(llm__tower_largest(v), LLM__MAX(tokens, 4096)), 65536);
    t->max_rows = (int32_t)LLM__MAX(LLM__MAX(largest, 1024), v->n_query);
    t->max_views = 64;
    t->page_tokens = 64;
    t->max_pages = (t->max_rows + v->n_query + t->page_tokens - 1) / t->page_tokens + t->max_views;
    t->width = v->out * (1 + v->n_deep);
}

static llm_result llm__tower_buffer(llm__tower *t, int64_t rows, int64_t cols, llm_buffer **to) {
    return cols > 0 ? t->be->buffer(t->ctx, 0, rows, cols, to) : LLM_OK;
}

/* What the steps of a list give. */
static llm_result llm__tower_list_buffers(llm__tower *t, llm__tower_list *list) {
    llm_result r = LLM_OK;
    llm_rows rows = LLM_ROWS_TOKENS;
    for (int i = 0; i < list->n && !r; i++) {
        llm__tower_step *s = &list->step[i];
        if (s->row->kind == LLM__STEP_GATHER || s->row->kind == LLM__STEP_MEAN) rows = LLM_ROWS_OUT;
        if (s->row->kind == LLM__STEP_TWO) rows = LLM_ROWS_TOKENS;
        s->rows = rows;
        r = llm__tower_buffer(t, t->max_rows, s->width, &s->to);
    }
    return r;
}

static llm_result llm__tower_buffers(llm__tower *t) {
    const llm__vision *v = t->v;
    const int64_t R = t->max_rows, D = v->hidden, A = (int64_t)v->n_heads * v->head_dim, O = v->out;
    llm__tower_resampler *q = &t->resampler;
    const int64_t Q = q->n_heads ? O : 0, widest = LLM__MAX(LLM__MAX(D, A), v->ff);
    const struct {
        int64_t cols;
        llm_buffer **to;
    } plan[] = {{v->patch_values, &t->patches},
                {D, &t->x},
                {D, &t->h},
                {D, &t->y},
                {A, &t->att},
                {3 * A, &t->qkv},
                {v->ff, &t->ff},
                {v->bounded ? widest : 0, &t->kept},
                {v->bounded ? v->ff : 0, &t->gate},
                {v->flags & (LLM__SEES_ROPE | LLM__SEES_TURNS) ? v->head_dim : 0, &t->rope},
                {Q, &q->kv_rows},
                {Q, &q->keys},
                {3 * Q, &q->qkv},
                {Q, &q->att},
                {Q, &q->to}};
    llm_result r = LLM_OK;
    for (int i = 0; i < LLM__COUNT(plan) && !r; i++) r = llm__tower_buffer(t, R, plan[i].cols, plan[i].to);
    if (!r) r = llm__tower_list_buffers(t, &t->main);
    for (int i = 0; i < v->n_deep && !r; i++) r = llm__tower_list_buffers(t, &t->deep[i]);
    return r;
}

/* The arrays of a step, and room for what goes up and comes down. */
static llm_result llm__tower_arrays(llm__tower *t) {
    const size_t R = (size_t)t->max_rows, V = (size_t)t->max_views + 1, P = V * (size_t)t->max_pages;
    const struct {
        size_t n;
        int32_t **to;
    } plan[] = {{R, &t->tokens}, {3 * R, &t->positions}, {R, &t->seq_of_row}, {V, &t->seq_begin}, {V, &t->seq_len},
                {V, &t->zeros},  {P, &t->pages},         {2 * R, &t->spans},  {R, &t->out_rows}};
    size_t total = 0;
    for (int i = 0; i < LLM__COUNT(plan); i++) total += plan[i].n;
    t->numbers = LLM__NEW(int32_t, total);
    t->values = LLM__NEW(float, R *(size_t)t->given_cols);
    t->given = LLM__NEW(const float *, R);
    t->bases = LLM__NEW(float, V);
    t->read = LLM__NEW(float, R *(size_t)LLM__MAX(t->given_cols, t->v->out));
    if (!t->numbers || !t->values || !t->given || !t->bases || !t->read) return llm__nomem();
    total = 0;
    for (int i = 0; i < LLM__COUNT(plan); total += plan[i++].n) *plan[i].to = t->numbers + total;
    for (size_t i = 0; i < V; i++) t->bases[i] = 1;
    return LLM_OK;
}

/* Frequencies of the rotation, and whether each takes row or column. */
static llm_result llm__tower_rope(llm__tower *t, llm__tower_loader *L) {
    const llm__vision *v = t->v;
    const int half = v->head_dim / 2, turns = (v->flags & LLM__SEES_TURNS) != 0;
    float *f = (float *)llm__arena_get(&L->keep, (size_t)half * sizeof *f);
    if (!(v->flags & (LLM__SEES_ROPE | LLM__SEES_TURNS))) return LLM_OK;
    if (!f) return llm__nomem();
    for (int i = 0; i < half; i++) {
        const int second = i >= half / 2, k = second ? i - half / 2 : i;
        f[i] = (float)pow(v->theta, turns ? -2.0 * (2 * k + second) / v->head_dim : -2.0 * k / half);
        t->row_of[i] = (int8_t)(1 + second);
    }
    return llm__tower_numbers(t, "rotary frequencies", f, half, &t->inv_freq);
}

/* Columns of a given row: a patch and its learned position; of the second stages two frames, or a query. */
static int32_t llm__tower_given(const llm__tower *t) {
    const llm__vision *v = t->v;
    int32_t n = v->patch_values + (v->flags & LLM__SEES_TABLE ? v->hidden : 0);
    if (t->main.two < t->main.n) n = LLM__MAX(n, t->main.step[t->main.two].width);
    if (t->resampler.n_heads) n = LLM__MAX(n, v->patch_values + v->hidden + v->out);
    return n;
}

/* All of a tower that has its sizes. */
static llm_result llm__tower_make(llm__tower *t, const llm__tower_config *cfg, llm__tower_loader *L) {
    llm_backend_config b = cfg->backend_config;
    const llm__vision *v = t->v;
    llm_kv_layer kv[2] = {{v->n_heads, v->head_dim, v->head_dim, 0}, {1, 1, 1, 0}};
    /* the lists are made without a backend first: their widths say how wide what is given is */
    llm__tower_loader plan = *L;
    plan.t = NULL;
    llm__tower_plan(&plan, t);
    if (plan.r) return plan.r;
    b.n_ranks = b.n_stages = 1;
    b.max_rows = b.max_out = t->max_rows;
    b.max_seqs = t->max_views;
    b.max_pages_per_seq = t->max_pages;
    b.device_draws = 0;
    b.enforce_eager = 1;
    b.spent = NULL;
    b.given_cols = t->given_cols = llm__tower_given(t);
    llm_result r = t->be->open(&b, &t->ctx);
    if (r) return r;
    L->t = t;
    L->dry = cfg->dry;
    t->weight_bytes = -t->be->memory_used(t->ctx);
    llm__tower_weights(L);
    r = L->r ? L->r : llm__tower_rope(t, L);
    t->weight_bytes += t->be->memory_used(t->ctx);
    if (!r) r = llm__tower_buffers(t);
    if (!r && !cfg->dry) r = t->be->weights_done(t->ctx);
    const llm_kv_layer queries = {t->resampler.n_heads, t->resampler.head_dim, t->resampler.head_dim, 0};
    if (t->resampler.n_heads) kv[1] = queries;
    const int n_kv = t->resampler.n_heads ? 2 : 1;
    if (!r && !cfg->dry) r = t->be->kv_open(t->ctx, n_kv, kv, t->page_tokens, t->max_pages);
    if (!r && !cfg->dry) r = llm__tower_arrays(t);
    t->memory = t->be->memory_used(t->ctx);
    if (cfg->dry) t->memory += t->be->kv_page_bytes(t->ctx, n_kv, kv, t->page_tokens) * t->max_pages;
    return r;
}

LLM__PRIVATE llm_result llm__tower_open(const llm__tower_config *cfg, llm__tower **out) {
    llm__tower_loader L;
    *out = NULL;
    llm__tower *t = LLM__NEW(llm__tower, 1);
    if (!t) return llm__nomem();
    t->v = cfg->model->vision;
    t->be = cfg->backend;
    t->layer = LLM__NEW(llm__tower_layer, t->v->n_used);
    const double D = t->v->hidden, A = (double)t->v->n_heads * t->v->head_dim;
    const int gated = t->v->act == LLM_ACT_SILU || t->v->flags & LLM__SEES_POST;
    t->layer_ops = 2 * D * (4 * A + (gated ? 3 : 2) * (double)t->v->ff);
    llm__tower_sizes(t, cfg);
    memset(&L, 0, sizeof L);
    L.m = cfg->model;
    L.v = cfg->model->vision;
    llm_result r = t->layer ? llm__tower_make(t, cfg, &L) : llm__nomem();
    llm__arena_free(&L.keep);
    if (r) llm__tower_close(t);
    else *out = t;
    return r;
}

/* ---- The pass ----
 * Each function enqueues operations; what their fields mean stands in >>api-backend. */

static void llm__see_linear(const llm__tower *t, llm_rows rows, llm_buffer *dst, const llm_buffer *src, const llm__net_pair *w, llm_act act,
                            int add, int32_t dst_col) {
    const llm_linear_op op = {
        .rows = rows, .dst = dst, .src = src, .weight = w->w, .bias = w->b, .act = act, .add = add, .dst_col = dst_col, .scale = 1};
    t->be->linear(t->ctx, 0, &op);
}

static void llm__see_norm(const llm__tower *t, llm_rows rows, llm_buffer *dst, const llm_buffer *src, int32_t n, int rms,
                          const llm__net_pair *w, float eps, int gelu) {
    const llm_norm_op op = {.rows = rows,
                            .dst = dst,
                            .src = src,
                            .n = n,
                            .kind = rms ? LLM_NORM_RMS : LLM_NORM_LAYER,
                            .weight = w->w,
                            .bias = w->b,
                            .eps = eps,
                            .gelu = gelu};
    t->be->norm(t->ctx, 0, &op);
}

/* A product whose input and output are kept within bounds; n: their columns. */
static void llm__see_bounded(const llm__tower *t, llm_buffer *dst, const llm_buffer *src, const llm__net_pair *w,
                             const llm__tower_bound *bound, const int32_t n[2], int32_t dst_col) {
    const llm_norm_op in = {.rows = LLM_ROWS_TOKENS,
                            .dst = t->kept,
                            .src = src,
                            .n = n[0],
                            .kind = LLM_NORM_BOUND,
                            .low = bound->in[0],
                            .high = bound->in[1]},
                      out = {.rows = LLM_ROWS_TOKENS,
                             .dst = dst,
                             .src = dst,
                             .src_col = dst_col,
                             .dst_col = dst_col,
                             .n = n[1],
                             .kind = LLM_NORM_BOUND,
                             .low = bound->out[0],
                             .high = bound->out[1]};
    t->be->norm(t->ctx, 0, &in);
    llm__see_linear(t, LLM_ROWS_TOKENS, dst, t->kept, w, LLM_ACT_NONE, 0, dst_col);
    t->be->norm(t->ctx, 0, &out);
}

/* qkv = W h. */
static void llm__see_qkv(const llm__tower *t, const llm__tower_layer *layer) {
    const int32_t A = t->v->n_heads * t->v->head_dim, n[2] = {t->v->hidden, A};
    const llm__net_pair *const w[3] = {&layer->q, &layer->k, &layer->v};
    for (int i = 0; i < 3 && t->v->bounded; i++) llm__see_bounded(t, t->qkv, t->h, w[i], &layer->bound[LLM__BOUND_Q + i], n, i * A);
    if (!t->v->bounded) llm__see_linear(t, LLM_ROWS_TOKENS, t->qkv, t->h, &layer->qkv, LLM_ACT_NONE, 0, 0);
}

/* y = o att. */
static void llm__see_out(const llm__tower *t, const llm__tower_layer *layer) {
    const int32_t n[2] = {t->v->n_heads * t->v->head_dim, t->v->hidden};
    if (t->v->bounded) llm__see_bounded(t, t->y, t->att, &layer->o, &layer->bound[LLM__BOUND_O], n, 0);
    else llm__see_linear(t, LLM_ROWS_TOKENS, t->y, t->att, &layer->o, LLM_ACT_NONE, 0, 0);
}

/* y = mlp(h). */
static void llm__see_mlp(const llm__tower *t, const llm__tower_layer *layer) {
    const int32_t up[2] = {t->v->hidden, t->v->ff}, down[2] = {t->v->ff, t->v->hidden};
    const llm_gate_act act = t->v->act == LLM_ACT_SILU   ? LLM_GATE_SILU
                             : t->v->act == LLM_ACT_GELU ? LLM_GATE_GELU
                                                         : LLM_GATE_GELU_TANH; /* others are refused */
    const llm_gate_op gate = {.rows = LLM_ROWS_TOKENS, .dst = t->ff, .gate = t->gate, .n = t->v->ff, .each = 1, .act = act};
    if (!t->v->bounded) {
        llm__see_linear(t, LLM_ROWS_TOKENS, t->ff, t->h, &layer->up, t->v->act, 0, 0);
        llm__see_linear(t, LLM_ROWS_TOKENS, t->y, t->ff, &layer->down, LLM_ACT_NONE, 0, 0);
        return;
    }
    llm__see_bounded(t, t->gate, t->h, &layer->gate, &layer->bound[LLM__BOUND_GATE], up, 0);
    llm__see_bounded(t, t->ff, t->h, &layer->up, &layer->bound[LLM__BOUND_UP], up, 0);
    t->be->gate(t->ctx, 0, &gate);
    llm__see_bounded(t, t->y, t->ff, &layer->down, &layer->bound[LLM__BOUND_DOWN], down, 0);
}

/* x += scale * y, or with norms behind what is added norm(y); h = norm(x), or with norm NULL only the sum. */
static void llm__see_add(const llm__tower *t, const llm_buffer *y, const llm__net_pair *scale, const llm__net_pair *norm) {
    const llm_residual_op op = {.rows = LLM_ROWS_TOKENS,
                                .x = t->x,
                                .y = y,
                                .scale = 1,
                                .post_kind = scale && t->v->flags & LLM__SEES_POST ? LLM_NORM_RMS : LLM_NORM_NONE,
                                .post_weight = scale ? scale->w : NULL,
                                .h = t->h,
                                .kind = !norm                         ? LLM_NORM_NONE
                                        : t->v->flags & LLM__SEES_RMS ? LLM_NORM_RMS
                                                                      : LLM_NORM_LAYER,
                                .weight = norm ? norm->w : NULL,
                                .bias = norm ? norm->b : NULL,
                                .eps = t->v->eps};
    t->be->residual(t->ctx, 0, &op);
}

/* x = W patch + b + position, or norm(W patch + b) + position; h = the first layer's norm of it. */
static void llm__see_begin(const llm__tower *t) {
    const llm__vision *v = t->v;
    const int table = (v->flags & LLM__SEES_TABLE) != 0, rms = (v->flags & LLM__SEES_RMS) != 0, late = (v->flags & LLM__SEES_LATE) != 0;
    const llm_embed_op patches = {.dst = t->patches, .given = LLM_GIVEN_ROW},
                       places = {.dst = late ? t->y : t->x, .given = LLM_GIVEN_ROW, .given_col = v->patch_values};
    const llm_rope_op rope = {.dst = t->rope, .inv_freq = t->inv_freq, .n_variants = 1, .rope_dim = v->head_dim, .row_of = t->row_of};
    t->be->embed(t->ctx, 0, &patches);
    if (table) t->be->embed(t->ctx, 0, &places);
    llm__see_linear(t, LLM_ROWS_TOKENS, t->x, t->patches, &t->patch, LLM_ACT_NONE, table && !late, 0);
    if (t->pre_norm.w) llm__see_norm(t, LLM_ROWS_TOKENS, t->x, t->x, v->hidden, rms, &t->pre_norm, v->eps, 0);
    if (t->rope) t->be->rope(t->ctx, 0, &rope);
    llm__see_add(t, late ? t->y : NULL, NULL, &t->layer[0].norm1);
}

/* att = attention over h, both ways, within a view or a window of it. */
static void llm__see_attention(const llm__tower *t, int i) {
    const llm__vision *v = t->v;
    const llm__tower_layer *layer = &t->layer[i];
    const int32_t A = v->n_heads * v->head_dim;
    const llm_qkv_op qkv = {.qkv = t->qkv,
                            .k_col = A,
                            .v_col = 2 * A,
                            .n_heads = v->n_heads,
                            .n_kv_heads = v->n_heads,
                            .head_dim = v->head_dim,
                            .v_head_dim = v->head_dim,
                            .norm = !layer->q_norm.w          ? LLM_QK_NORM_NONE
                                    : layer->q_norm.rows == A ? LLM_QK_NORM_WHOLE_RMS
                                                              : LLM_QK_NORM_HEAD_RMS,
                            .q_norm = layer->q_norm.w,
                            .k_norm = layer->k_norm.w,
                            .eps = v->eps,
                            .whole_q = A,
                            .whole_k_col = A,
                            .whole_k = A,
                            .rope = t->rope,
                            .rope_dim = v->head_dim,
                            .v_norm = (v->flags & LLM__SEES_VALUES) != 0};
    const llm_attention_op attention = {.dst = t->att,
                                        .qkv = t->qkv,
                                        .n_heads = v->n_heads,
                                        .n_kv_heads = v->n_heads,
                                        .head_dim = v->head_dim,
                                        .v_head_dim = v->head_dim,
                                        .scale = v->flags & LLM__SEES_VALUES ? 1 : (float)(1 / sqrt(v->head_dim)),
                                        .not_causal = 1,
                                        .spans = v->window > 0 && !v->full[i]};
    llm__see_qkv(t, layer);
    t->be->qkv(t->ctx, 0, &qkv);
    t->be->attention(t->ctx, 0, &attention);
}

/* A step that multiplies each column, and adds. */
static void llm__see_root(const llm__tower *t, const llm__tower_step *s, const llm_buffer *src, int32_t width) {
    const llm_norm_op op = {.rows = s->rows,
                            .dst = s->to,
                            .src = src,
                            .n = width,
                            .kind = LLM_NORM_BOUND,
                            .weight = s->w.w,
                            .bias = s->w.b,
                            .low = -INFINITY,
                            .high = INFINITY};
    t->be->norm(t->ctx, 0, &op);
}

/* A list's steps [from, to), beginning with src. Returns what the last gives. */
static llm_buffer *llm__see_list(const llm__tower *t, const llm__tower_list *list, int from, int to, llm_buffer *src) {
    const llm__vision *v = t->v;
    int32_t width = from ? list->step[from].width : v->hidden;
    for (int i = from; i < LLM__MIN(to, list->n); width = list->step[i++].width) {
        const llm__tower_step *s = &list->step[i];
        const uint32_t flags = s->row->flags;
        const int rms = (flags & LLM__STEP_RMS) || (!flags && s->w.w && !s->w.b && v->flags & LLM__SEES_RMS);
        const float eps = flags & LLM__STEP_TEXT_EPS  ? v->text_eps
                          : flags & LLM__STEP_EPS5    ? 1e-5f
                          : flags & LLM__STEP_OWN_EPS ? v->own_eps
                                                      : v->eps;
        const llm_gather_op gather = {.dst = s->to, .src = src, .parts = v->pool * v->pool, .mean = s->row->kind == LLM__STEP_MEAN};
        const llm_embed_op given = {.dst = s->to, .given = LLM_GIVEN_ROW};
        switch (s->row->kind) {
        case LLM__STEP_NORM: llm__see_norm(t, s->rows, s->to, src, width, rms, &s->w, eps, s->row->act == LLM_ACT_GELU); break;
        case LLM__STEP_ROOT: llm__see_root(t, s, src, width); break;
        case LLM__STEP_GATED: llm__see_linear(t, s->rows, s->to, src, &s->w, s->row->act ? s->row->act : v->act, 0, 0); break;
        case LLM__STEP_LINEAR: llm__see_linear(t, s->rows, s->to, src, &s->w, s->row->act ? v->projector_act : LLM_ACT_NONE, 0, 0); break;
        case LLM__STEP_TWO: t->be->embed(t->ctx, 0, &given); break;
        default:
            if (!v->n_taken) t->be->gather(t->ctx, 0, &gather); /* else the layers have filled it */
            break;
        }
        src = s->to;
    }
    return src;
}

/* MiniCPM-V, first stage: keys (with the places of their patches added) and values of every patch go to the second layer of the pages. */
static void llm__see_keys(const llm__tower *t, llm_buffer *src) {
    const llm__tower_resampler *q = &t->resampler;
    const int32_t D = t->v->out;
    const llm_embed_op places = {.dst = q->keys, .given = LLM_GIVEN_ROW, .given_col = t->v->patch_values + t->v->hidden};
    const llm_residual_op sum = {.rows = LLM_ROWS_TOKENS, .x = q->keys, .y = q->kv_rows, .scale = 1};
    const llm_qkv_op write = {.qkv = q->qkv,
                              .k_col = D,
                              .v_col = 2 * D,
                              .n_heads = q->n_heads,
                              .n_kv_heads = q->n_heads,
                              .head_dim = q->head_dim,
                              .v_head_dim = q->head_dim,
                              .layer = 1};
    llm__see_linear(t, LLM_ROWS_TOKENS, q->kv_rows, src, &q->kv, LLM_ACT_NONE, 0, 0);
    llm__see_norm(t, LLM_ROWS_TOKENS, q->kv_rows, q->kv_rows, D, 0, &q->kv_norm, t->v->eps, 0);
    t->be->embed(t->ctx, 0, &places);
    t->be->residual(t->ctx, 0, &sum);
    llm__see_linear(t, LLM_ROWS_TOKENS, q->qkv, q->keys, &q->k, LLM_ACT_NONE, 0, D);
    llm__see_linear(t, LLM_ROWS_TOKENS, q->qkv, q->kv_rows, &q->v, LLM_ACT_NONE, 0, 2 * D);
    t->be->qkv(t->ctx, 0, &write);
}

/* Second stage: the queries attend to them. */
static void llm__see_queries(const llm__tower *t) {
    const llm__tower_resampler *q = &t->resampler;
    const int32_t D = t->v->out;
    const llm_embed_op queries = {.dst = q->keys, .given = LLM_GIVEN_ROW};
    const llm_attention_op attention = {.dst = q->att,
                                        .qkv = q->qkv,
                                        .layer = 1,
                                        .n_heads = q->n_heads,
                                        .n_kv_heads = q->n_heads,
                                        .head_dim = q->head_dim,
                                        .v_head_dim = q->head_dim,
                                        .scale = (float)(1 / sqrt(q->head_dim)),
                                        .not_causal = 1,
                                        .spans = 1};
    t->be->embed(t->ctx, 0, &queries);
    llm__see_norm(t, LLM_ROWS_TOKENS, q->keys, q->keys, D, 0, &q->q_norm, t->v->eps, 0);
    llm__see_linear(t, LLM_ROWS_TOKENS, q->qkv, q->keys, &q->q, LLM_ACT_NONE, 0, 0);
    t->be->attention(t->ctx, 0, &attention);
    llm__see_linear(t, LLM_ROWS_TOKENS, q->to, q->att, &q->out, LLM_ACT_NONE, 0, 0);
    llm__see_norm(t, LLM_ROWS_TOKENS, q->to, q->to, D, 0, &q->post_norm, t->v->eps, 0);
    llm__see_linear(t, LLM_ROWS_TOKENS, q->keys, q->to, &q->proj, LLM_ACT_NONE, 0, 0);
}

/* The rows of a layer go to the projector's input, where those of several stand side by side. */
static void llm__see_taken(const llm__tower *t, int layer) {
    const llm__vision *v = t->v;
    const int32_t parts = v->pool * v->pool;
    for (int k = 0; k < v->n_taken; k++) {
        const llm_gather_op gather = {.dst = t->main.step[0].to, .src = t->x, .parts = parts, .dst_col = k * parts * v->hidden};
        if (v->taken[k] == layer) t->be->gather(t->ctx, 0, &gather);
    }
}

/* Layers [from, to). */
static void llm__see_layers(const llm__tower *t, int from, int to) {
    const llm__vision *v = t->v;
    for (int i = from; i < to; i++) {
        const llm__tower_layer *layer = &t->layer[i];
        llm__see_attention(t, i);
        llm__see_out(t, layer);
        llm__see_add(t, t->y, &layer->scale1, &layer->norm2);
        llm__see_mlp(t, layer);
        llm__see_add(t, t->y, &layer->scale2, i + 1 < v->n_used ? &t->layer[i + 1].norm1 : NULL);
        llm__see_taken(t, i + 1);
        for (int k = 0; k < v->n_deep; k++)
            if (v->deep[k] == i) llm__see_list(t, &t->deep[k], 0, t->deep[k].n, t->x);
    }
}

/* ---- What a step is told ---- */

/* Windows: the order in which blocks are taken, and for each of them the first and last of its window. With `order` NULL, or no windows, a
 * block's place is its number. Returns the number of the block at place k. */
static int32_t llm__window_block(const llm__vision *v, const llm__media_view *view, int32_t k, int32_t *first, int32_t *end) {
    const int32_t rows = view->rows / v->pool, cols = view->cols / v->pool, W = v->window;
    *first = 0;
    *end = rows * cols;
    if (W < 1) return k;
    int32_t at = 0;
    for (int32_t y = 0; y < rows; y += W) {
        const int32_t h = LLM__MIN(W, rows - y);
        if (k >= at + h * cols) {
            at += h * cols;
            continue;
        }
        for (int32_t x = 0; x < cols; x += W) {
            const int32_t w = LLM__MIN(W, cols - x), n = h * w;
            if (k < at + n) {
                *first = at;
                *end = at + n;
                return (y + (k - at) / w) * cols + x + (k - at) % w;
            }
            at += n;
        }
    }
    return k;
}

/* Which rows or columns of the table place i of n is mixed of, where no row of a larger table is left out: weights fall off to both sides
 * of the middle of an equal part, as Pillow's bilinear filter stretches, and sum to one. Returns how many. */
static int llm__tower_smooth(const llm__vision *v, int32_t i, int32_t n, int32_t *at, float *by) {
    const float scale = (float)v->side / (float)n, wide = LLM__MAX(scale, 1), middle = ((float)i + 0.5f) * scale - 0.5f;
    float sum = 0;
    int taps = 0;
    for (int32_t k = 0; k < v->side; k++) {
        const float part = 1 - fabsf((float)k - middle) / wide;
        if (part > 0) at[taps] = k, by[taps++] = part, sum += part;
    }
    for (int k = 0; k < taps; k++) by[k] /= sum;
    return taps;
}

/* Which rows or columns of the table place i of n is mixed of, and how much of each: one; two, places from edge to edge or in the middle of
 * equal parts; or four (cubic convolution, Keys 1981, a = -0.75) of such parts, the edges repeated. Returns how many. */
static int llm__tower_taps(const llm__vision *v, int32_t i, int32_t n, int32_t *at, float *by) {
    const int32_t S = v->side;
    const int buckets = (v->flags & LLM__SEES_BUCKETS) != 0;
    if (v->flags & LLM__SEES_SMOOTH) return llm__tower_smooth(v, i, n, at, by);
    if (v->flags & LLM__SEES_STRETCHED) {
        const float place = n > 1 ? (float)i * (float)(S - 1) / (float)(n - 1) : 0;
        at[0] = (int32_t)place, at[1] = LLM__MIN(at[0] + 1, S - 1);
        by[1] = place - (float)at[0], by[0] = 1 - by[1];
        return 2;
    }
    if (!(v->flags & (LLM__SEES_CUBIC | LLM__SEES_MIDDLES))) {
        at[0] = buckets ? (int32_t)((int64_t)i * S / n) : LLM__MIN(i, S - 1);
        by[0] = 1;
        return 1;
    }
    const float a = -0.75f, place = ((float)i + 0.5f) * (float)S / (float)n - 0.5f, low = floorf(place);
    if (v->flags & LLM__SEES_MIDDLES) {
        at[0] = LLM__MAX((int32_t)low, 0), at[1] = LLM__MIN((int32_t)low + 1, S - 1);
        by[1] = place - low, by[0] = 1 - by[1];
        return 2;
    }
    for (int k = 0; k < 4; k++) {
        const float x = fabsf(place - low + 1 - (float)k);
        by[k] = x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
        at[k] = LLM__MIN(LLM__MAX((int32_t)low - 1 + k, 0), S - 1);
    }
    return 4;
}

/* The learned position of a patch, into out (hidden): a row of the table, or one mixed of several. */
static void llm__tower_place(const llm__tower *t, const llm__media_view *view, int32_t row, int32_t col, float *out) {
    const llm__vision *v = t->v;
    const int32_t D = v->hidden;
    const float *table = t->table && t->first ? t->table + D : t->table;
    int32_t y[LLM__MAX_TAPS], x[LLM__MAX_TAPS];
    float by_y[LLM__MAX_TAPS], by_x[LLM__MAX_TAPS];
    const int n_y = llm__tower_taps(v, row, view->rows, y, by_y), n_x = llm__tower_taps(v, col, view->cols, x, by_x);
    memset(out, 0, (size_t)D * sizeof *out);
    if (v->flags & LLM__SEES_AXES) {
        for (int32_t i = 0; i < D && table; i++) out[i] = table[(int64_t)col * D + i] + table[((int64_t)v->side + row) * D + i];
        return;
    }
    for (int k = 0; k < n_y * n_x && t->table; k++) {
        const float by = by_y[k / n_x] * by_x[k % n_x], *from = table + ((int64_t)y[k / n_x] * v->side + x[k % n_x]) * D;
        for (int32_t i = 0; i < D; i++) out[i] += by * from[i];
    }
}

/* Where a patch stands, as sines and cosines (MiniCPM-V): the first half of the channels tells the column, the second the row. */
static void llm__tower_waves(int32_t row, int32_t col, int32_t D, float *out) {
    const int32_t quarter = D / 4;
    for (int32_t i = 0; i < D; i++) {
        const int32_t part = i / quarter, k = i % quarter;
        const double angle = (part < 2 ? col : row) / pow(10000, (double)k / quarter);
        out[i] = (float)(part % 2 ? cos(angle) : sin(angle));
    }
}

/* One row: its patch, its place, and what it sees. */
static void llm__tower_row(llm__tower *t, const llm__media_view *view, int32_t row, int32_t block, int32_t in) {
    const llm__vision *v = t->v;
    const int32_t i = block * v->pool * v->pool + in, n = t->n_rows;
    float *values = t->values + (size_t)row * (size_t)t->given_cols;
    int32_t y, x;
    llm__patch_place(v, view, i, &y, &x);
    llm__patch_values(t->media, view, i, values);
    if (v->flags & LLM__SEES_TABLE) llm__tower_place(t, view, y, x, values + v->patch_values);
    if (t->resampler.n_heads) llm__tower_waves(y, x, v->out, values + v->patch_values + v->hidden);
    t->given[row] = values;
    t->positions[row] = 0;
    const int from = (v->flags & LLM__SEES_ONE) != 0;
    t->positions[n + row] = y + from;
    t->positions[2 * n + row] = x + from;
}

/* The class token's row: its embedding and the first learned position, without the bias that the product adds to every row. */
static void llm__tower_class(llm__tower *t, int32_t row) {
    const llm__vision *v = t->v;
    float *values = t->values + (size_t)row * (size_t)t->given_cols, *place = values + v->patch_values;
    memset(values, 0, (size_t)t->given_cols * sizeof *values);
    for (int32_t i = 0; i < v->hidden; i++)
        place[i] = (t->first ? t->first[i] : 0) + (t->table ? t->table[i] : 0) - (t->bias ? t->bias[i] : 0);
    t->given[row] = values;
    for (int k = 0; k < 3; k++) t->positions[k * t->n_rows + row] = 0;
}

/* Patches of a view, and the class token. */
static int32_t llm__tower_rows(const llm__vision *v, const llm__media_view *view) {
    return view->rows * view->cols + ((v->flags & LLM__SEES_CLASS) != 0);
}

/* The step over its arrays. */
static void llm__tower_step_over(llm__tower *t, int32_t n_seqs, int32_t n_out) {
    llm_step *s = &t->step;
    memset(s, 0, sizeof *s);
    s->shape.n_rows = t->n_rows;
    s->shape.n_seqs = n_seqs;
    s->shape.n_out = n_out;
    s->shape.given = 1;
    s->tokens = t->tokens;
    s->positions = t->positions;
    s->n_position_rows = 3;
    s->seq_of_row = t->seq_of_row;
    s->seq_begin = t->seq_begin;
    s->seq_len = t->seq_len;
    s->seq_rope = t->zeros;
    s->seq_rope_base = t->bases;
    s->pages = t->pages;
    s->page_stride = t->max_pages;
    s->out_rows = t->out_rows;
    s->given = t->given;
    s->spans = t->spans;
}

/* Describes view number s of those that run together, from row `begin` on; *n_out, *pages: what those before it have taken. */
static void llm__tower_describe_view(llm__tower *t, int32_t s, int32_t begin, int32_t *n_out, int32_t *pages) {
    const llm__vision *v = t->v;
    const llm__media_view *view = &t->media->view[t->view + s];
    const int32_t parts = v->pool * v->pool, blocks = view->rows / v->pool * (view->cols / v->pool), len = llm__tower_rows(v, view);
    int32_t first, end, row = begin;
    if (v->keeps_class) t->out_rows[(*n_out)++] = begin + len - 1;
    for (int32_t k = 0; k < blocks; k++) {
        const int32_t block = llm__window_block(v, view, k, &first, &end);
        t->out_rows[(*n_out)++] = row;
        for (int32_t in = 0; in < parts; in++, row++) {
            llm__tower_row(t, view, row, block, in);
            t->spans[row] = first * parts;
            t->spans[t->n_rows + row] = end * parts;
        }
    }
    if (row < begin + len) {
        llm__tower_class(t, row);
        t->spans[row] = 0;
        t->spans[t->n_rows + row] = len;
    }
    for (int32_t i = begin; i < begin + len; i++) t->seq_of_row[i] = s;
    t->seq_begin[s] = begin;
    t->seq_begin[s + 1] = begin + len;
    t->seq_len[s] = len;
    const int32_t all = len + (t->resampler.n_heads ? v->n_query : 0);
    for (int32_t k = 0; k * t->page_tokens < all; k++) t->pages[s * t->max_pages + k] = (*pages)++;
}

/* Chooses the views that run together, from t->view on, and describes them: as many as fit with their queries, which share their pages, but
 * no more than a thousand patches if one does not have more, so that a piece stays small. */
static void llm__tower_describe(llm__tower *t) {
    const llm_media *m = t->media;
    const int32_t most = LLM__MIN(t->max_rows, 1024), queries = t->resampler.n_heads ? t->v->n_query : 0;
    int32_t n_out = 0, pages = 0, rows = 0;
    t->n_views = 0;
    while (t->view + t->n_views < m->n_views && t->n_views < t->max_views) {
        const int32_t next = llm__tower_rows(t->v, &m->view[t->view + t->n_views]);
        if (t->n_views && (rows + next > most || rows + next + (t->n_views + 1) * queries > t->max_rows)) break;
        rows += next;
        t->n_views++;
    }
    t->n_rows = rows;
    t->layers = 0;
    for (int32_t s = 0, row = 0; s < t->n_views; row = t->seq_begin[++s]) llm__tower_describe_view(t, s, row, &n_out, &pages);
    llm__tower_step_over(t, t->n_views, n_out);
}

/* MiniCPM-V: the queries of the same views, behind their patches. */
static void llm__tower_describe_queries(llm__tower *t) {
    const int32_t Q = t->v->n_query, n = t->n_views * Q;
    t->n_rows = n;
    for (int32_t s = 0; s < t->n_views; s++) {
        for (int32_t i = 0; i < Q; i++) {
            const int32_t row = s * Q + i;
            t->given[row] = t->values + (size_t)i * (size_t)t->given_cols;
            t->spans[row] = 0;
            t->spans[n + row] = t->seq_len[s];
            t->seq_of_row[row] = s;
            for (int k = 0; k < 3; k++) t->positions[k * n + row] = 0;
        }
        t->seq_begin[s] = s * Q;
        t->seq_len[s] += Q;
    }
    for (int32_t i = 0; i < Q; i++)
        memcpy(t->values + (size_t)i * (size_t)t->given_cols, t->resampler.query + (size_t)i * (size_t)t->v->out,
               (size_t)t->v->out * sizeof *t->values);
    t->seq_begin[t->n_views] = n;
    llm__tower_step_over(t, t->n_views, 0);
}

/* ERNIE 4.5 VL: some rows of the second stage, each two rows of the first: of a picture the same twice, of a video those of two frames. */
static void llm__tower_describe_pairs(llm__tower *t) {
    const llm_media *m = t->media;
    const int32_t width = m->raw_width, each = llm__view_rows(t->v, &m->view[0]),
                  n = LLM__MIN(LLM__MIN(m->info.n_tokens - t->row, t->max_rows), 1024);
    const int video = m->info.kind == LLM_MEDIA_VIDEO;
    t->n_rows = n;
    for (int32_t i = 0; i < n; i++) {
        const int32_t row = t->row + i, frame = video ? 2 * (row / each) : 0, in = video ? row % each : row;
        float *to = t->values + (size_t)i * (size_t)t->given_cols;
        memcpy(to, m->raw + ((size_t)frame * (size_t)each + (size_t)in) * (size_t)width, (size_t)width * sizeof *to);
        memcpy(to + width, m->raw + ((size_t)(frame + video) * (size_t)each + (size_t)in) * (size_t)width, (size_t)width * sizeof *to);
        t->given[i] = to;
        t->seq_of_row[i] = t->spans[i] = 0;
        t->spans[n + i] = n;
        for (int k = 0; k < 3; k++) t->positions[k * n + i] = 0;
    }
    t->seq_begin[0] = 0;
    t->seq_begin[1] = t->seq_len[0] = n;
    for (int32_t k = 0; k * t->page_tokens < n; k++) t->pages[k] = k;
    llm__tower_step_over(t, 1, 0);
}

/* ---- The work ---- */

LLM__PRIVATE llm_result llm__tower_room(const llm__tower *t, llm_media *m) {
    const llm__vision *v = t->v;
    int64_t rows = 0;
    for (int32_t i = 0; i < m->n_views; i++) {
        if (llm__tower_rows(v, &m->view[i]) > t->max_rows)
            return llm__error(LLM_ERR_LIMIT,
                              "a picture of %d x %d patches, at most %d patches were expected: make it smaller, or lower max_pixels",
                              (int)m->view[i].rows, (int)m->view[i].cols, (int)t->max_rows);
        rows += llm__view_rows(v, &m->view[i]);
    }
    if (m->values) return LLM_OK;
    m->raw_width = t->main.two < t->main.n ? t->main.step[t->main.two].width / 2 : v->family->flags & LLM__EYES_NEWLINES ? v->out : 0;
    m->values = LLM__NEW(float, (int64_t)m->info.n_tokens * t->width);
    m->raw = m->raw_width ? LLM__NEW(float, rows * m->raw_width) : NULL;
    m->bytes += ((size_t)m->info.n_tokens * (size_t)t->width + (size_t)rows * (size_t)m->raw_width) * sizeof *m->values;
    return m->values && (m->raw || !m->raw_width) ? LLM_OK : llm__nomem();
}

LLM__PRIVATE void llm__tower_begin(llm__tower *t, llm_media *m) {
    t->media = m;
    t->view = t->n_views = t->layers = t->stage = t->row = 0;
}

/* Operations of one layer over the rows of the step: products, and attention of each view. */
static double llm__tower_layer_ops(const llm__tower *t) {
    double ops = t->layer_ops * t->n_rows;
    for (int32_t s = 0; s < t->n_views; s++) ops += 4.0 * t->seq_len[s] * t->seq_len[s] * t->v->n_heads * t->v->head_dim;
    return ops;
}

LLM__PRIVATE double llm__tower_ops(const llm__tower *t) {
    return t->n_views && !t->stage ? llm__tower_layer_ops(t) : t->layer_ops * LLM__MIN(t->max_rows, 1024);
}

/* Rows of a buffer go to their places: those of the views at hand, in the order in which blocks were taken. */
static llm_result llm__tower_read(llm__tower *t, const llm_buffer *from, int32_t each, int32_t col) {
    const llm__vision *v = t->v;
    llm_media *m = t->media;
    int32_t at = 0, first, end;
    const int32_t width = m->raw ? m->raw_width : v->out, stride = m->raw ? m->raw_width : t->width;
    float *to = m->raw ? m->raw : m->values + col;
    for (int32_t i = 0; i < t->view; i++) to += (size_t)(each ? each : llm__view_rows(v, &m->view[i])) * (size_t)stride;
    for (int32_t s = 0; s < t->n_views; s++) {
        const llm__media_view *view = &m->view[t->view + s];
        const int32_t n = each ? each : llm__view_rows(v, view);
        llm_result r = t->be->buffer_rows(t->ctx, 0, from, at, n, t->read);
        if (r) return r;
        for (int32_t k = 0; k < n; k++)
            memcpy(to + (size_t)(each ? k : llm__window_block(v, view, k, &first, &end)) * (size_t)stride,
                   t->read + (size_t)k * (size_t)width, (size_t)width * sizeof *to);
        to += (size_t)n * (size_t)stride;
        at += n;
    }
    return LLM_OK;
}

/* Everything is there: what is put together here is, and pixels are needed no more. */
static void llm__tower_finish(llm__tower *t) {
    llm_media *m = t->media;
    if (m->raw && t->newline) llm__assemble(m, t->newline);
    for (int64_t i = 0; i < (int64_t)m->info.n_tokens * t->width && t->v->row_scale != 1; i++) m->values[i] *= t->v->row_scale;
    for (int32_t i = 0; i < m->n_views; i++)
        for (int k = 0; k < 2; k++) {
            const llm__picture *p = &m->view[i].pixels[k];
            if (p->rgb) m->bytes -= (size_t)p->w * (size_t)p->h * 3;
            llm__picture_free(&m->view[i].pixels[k]);
        }
    LLM_FREE(m->raw);
    m->raw = NULL;
    __atomic_store_n(&m->ready, 1, __ATOMIC_RELEASE);
    t->media = NULL;
}

/* Ends a step that `begin` began. */
static llm_result llm__tower_run(llm__tower *t) {
    llm_result r = t->be->end_step(t->ctx);
    return r ? r : t->be->wait(t->ctx);
}

/* The queries of the views at hand. */
static llm_result llm__tower_resample(llm__tower *t) {
    llm__tower_describe_queries(t);
    llm_result r = t->be->begin_step(t->ctx, &t->step);
    if (r) return r;
    llm__see_queries(t);
    r = llm__tower_run(t);
    return r ? r : llm__tower_read(t, t->resampler.keys, t->v->n_query, 0);
}

/* The second stage, some rows. */
static llm_result llm__tower_second(llm__tower *t) {
    llm__tower_describe_pairs(t);
    llm_result r = t->be->begin_step(t->ctx, &t->step);
    if (r) return r;
    const llm_buffer *from = llm__see_list(t, &t->main, t->main.two, t->main.n, NULL);
    r = llm__tower_run(t);
    if (!r) r = t->be->buffer_rows(t->ctx, 0, from, 0, t->n_rows, t->media->values + (size_t)t->row * (size_t)t->v->out);
    t->row += t->n_rows;
    if (!r && t->row == t->media->info.n_tokens) llm__tower_finish(t);
    return r;
}

/* Behind the last layer of the views at hand: their rows are read. */
static llm_result llm__tower_views_done(llm__tower *t, const llm_buffer *from) {
    llm_result r = t->resampler.n_heads ? llm__tower_resample(t) : llm__tower_read(t, from, 0, 0);
    for (int k = 0; k < t->v->n_deep && !r; k++) r = llm__tower_read(t, t->deep[k].step[t->deep[k].n - 1].to, 0, (1 + k) * t->v->out);
    t->view += t->n_views;
    t->n_views = 0;
    if (r || t->view < t->media->n_views) return r;
    if (t->main.two < t->main.n) t->stage = 1;
    else llm__tower_finish(t);
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__tower_piece(llm__tower *t, double ops) {
    const int32_t all = t->v->n_used;
    llm_buffer *from = NULL;
    if (t->stage) return llm__tower_second(t);
    if (!t->n_views) llm__tower_describe(t);
    const int32_t n = (int32_t)LLM__MIN(LLM__MAX(ops / llm__tower_layer_ops(t), 1), (double)(all - t->layers));
    llm_result r = t->be->begin_step(t->ctx, &t->step);
    if (r) return r;
    if (!t->layers) llm__see_begin(t);
    llm__see_layers(t, t->layers, t->layers + n);
    t->layers += n;
    if (t->layers == all) from = llm__see_list(t, &t->main, 0, t->main.two, t->x);
    if (from && t->resampler.n_heads) llm__see_keys(t, from);
    r = llm__tower_run(t);
    return r || !from ? r : llm__tower_views_done(t, from);
}
