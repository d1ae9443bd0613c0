#include "model/forward_altup.h"
#include "api/backend.h"
#include "base/platform.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/net.h"
#include "model/forward_extras.h"

/* dst, from dst_col on, (+)= norm(src), D values from src_col on; without a norm a copy. */
static void llm__altup_norm(const llm__pass *p, llm_rows rows, llm_buffer *dst, int32_t dst_col, const llm_buffer *src, int32_t src_col,
                            const llm__net_pair *norm, int add) {
    const llm_norm_op op = {.rows = rows,
                            .dst = dst,
                            .src = src,
                            .src_col = src_col,
                            .dst_col = dst_col,
                            .n = p->a->hidden,
                            .kind = norm ? p->a->norm : LLM_NORM_NONE,
                            .weight = norm ? norm->w : NULL,
                            .eps = p->a->eps,
                            .add = add};
    p->be->norm(p->ctx, p->rank_index, &op);
}

/* An operation on a lane's streams. */
static llm_streams_op llm__altup_op(const llm__pass *p, const llm__net_lane *lane, llm_streams_kind kind, llm_buffer *dst) {
    const llm_streams_op op = {.rows = lane->rows,
                               .kind = kind,
                               .x = lane->streams,
                               .dst = dst,
                               .gate = kind == LLM_STREAMS_LEVEL ? NULL : p->rank->modal,
                               .n = p->a->n_streams,
                               .active = p->a->active_stream,
                               .cols = p->a->hidden};
    return op;
}

LLM__PRIVATE void llm__altup_spread(const llm__pass *p) {
    const int32_t D = p->a->hidden;
    const llm__net_lane *lane = &p->rank->token;
    const llm_streams_op level = llm__altup_op(p, lane, LLM_STREAMS_LEVEL, NULL);
    llm__altup_norm(p, lane->rows, lane->streams, 0, lane->x, 0, NULL, 0);
    for (int i = 1; i < p->a->n_streams; i++) llm__extra_linear(p, lane->rows, &p->rank->stream_in[i - 1], lane->x, lane->streams, i * D);
    p->be->streams(p->ctx, p->rank_index, &level);
}

LLM__PRIVATE void llm__altup_predict(const llm__pass *p, const llm__net_layer *layer) {
    const llm__net_lane *lane = &p->rank->token;
    llm_streams_op predict = llm__altup_op(p, lane, LLM_STREAMS_PREDICT, lane->x);
    predict.weight = layer->predict.w;
    llm__altup_norm(p, lane->rows, lane->h, 0, lane->streams, p->a->active_stream * p->a->hidden, &layer->router_norm, 0);
    llm__extra_linear(p, lane->rows, &layer->altup_router, lane->h, p->rank->modal, 0);
    p->be->streams(p->ctx, p->rank_index, &predict);
    llm__altup_norm(p, lane->rows, lane->h, 0, lane->x, 0, &layer->attn_norm, 0);
    llm__extra_linear(p, lane->rows, &layer->laurel[0], lane->h, p->rank->gates, 0);
    llm__extra_linear(p, lane->rows, &layer->laurel[1], p->rank->gates, lane->y, 0);
    llm__altup_norm(p, lane->rows, lane->x, 0, lane->y, 0, &layer->laurel_norm, 1);
    llm__altup_norm(p, lane->rows, lane->x, 0, lane->h, 0, NULL, 1);
}

LLM__PRIVATE void llm__altup_sparse(const llm__pass *p, int i, const llm__net_layer *layer, const llm__net_lane *lane) {
    const llm__arch_layer *own = &p->a->layer[i];
    const llm_gate_op gate = {.rows = lane->rows,
                              .dst = p->rank->ff_act,
                              .gate = p->rank->gates,
                              .n = (int32_t)layer->ff.n,
                              .each = 1,
                              .col = (int32_t)layer->ff.first,
                              .act = p->a->act == LLM_ACT_GELU   ? LLM_GATE_GELU
                                     : p->a->act == LLM_ACT_SILU ? LLM_GATE_SILU
                                                                 : LLM_GATE_GELU_TANH,
                              .width = own->ff,
                              .cut = own->cut};
    llm__extra_linear(p, lane->rows, &layer->gates, lane->h, p->rank->gates, 0);
    llm__extra_linear(p, lane->rows, &layer->up, lane->h, p->rank->ff_act, 0);
    p->be->gate(p->ctx, p->rank_index, &gate);
}

LLM__PRIVATE void llm__altup_correct(const llm__pass *p, const llm__net_layer *layer, const llm__net_lane *lane) {
    llm_streams_op correct = llm__altup_op(p, lane, LLM_STREAMS_CORRECT, lane->h);
    correct.weight = layer->correct.w;
    correct.scale = layer->stream_scale.w;
    correct.y = lane->x;
    llm__extra_linear(p, lane->rows, &layer->altup_router, lane->h, p->rank->modal, 0);
    p->be->streams(p->ctx, p->rank_index, &correct);
}

LLM__PRIVATE void llm__altup_add(const llm__pass *p, const llm__net_layer *layer, const llm__net_lane *lane) {
    const int32_t D = p->a->hidden;
    if (p->n_group > 1) p->be->all_reduce(p->ctx, p->rank_index, lane->rows, lane->y, D);
    for (int j = 1; j < p->a->n_streams; j++) llm__altup_norm(p, lane->rows, lane->streams, j * D, lane->y, 0, &layer->pl_norm, 1);
}

LLM__PRIVATE void llm__altup_join(const llm__pass *p, const llm__net_lane *lane) {
    const int32_t D = p->a->hidden;
    const llm_streams_op level = llm__altup_op(p, lane, LLM_STREAMS_LEVEL, lane->x);
    for (int i = 1; i < p->a->n_streams; i++) {
        llm__altup_norm(p, lane->rows, lane->h, 0, lane->streams, i * D, NULL, 0);
        llm__extra_linear(p, lane->rows, &p->rank->stream_out[i - 1], lane->h, lane->streams, i * D);
    }
    p->be->streams(p->ctx, p->rank_index, &level);
    llm__altup_norm(p, lane->rows, lane->h, 0, lane->x, 0, &p->rank->out_norm, 0);
}
