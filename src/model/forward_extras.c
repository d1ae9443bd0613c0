#include "model/forward_extras.h"
#include "api/backend.h"
#include "base/platform.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/net.h"

LLM__PRIVATE const llm_buffer *llm__extra_plus(const llm__pass *p, llm_rows rows, llm_buffer *plus, const llm_buffer *src,
                                               const llm__net_pair *w) {
    llm_lora_op op = {.rows = rows, .dst = plus, .src = src, .low = p->rank->low, .site = w->lora, .n = w->rows, .scale = 1};
    if (!p->lora || !w->lora) return NULL;
    p->be->lora(p->ctx, p->rank_index, &op);
    return plus;
}

LLM__PRIVATE void llm__extra_linear(const llm__pass *p, llm_rows rows, const llm__net_pair *w, const llm_buffer *src, llm_buffer *dst,
                                    int32_t col) {
    const llm_linear_op op = {.rows = rows,
                              .dst = dst,
                              .src = src,
                              .weight = w->w,
                              .bias = w->b,
                              .dst_col = col,
                              .plus = llm__extra_plus(p, rows, p->rank->plus, src, w)};
    p->be->linear(p->ctx, p->rank_index, &op);
}

LLM__PRIVATE llm_buffer *llm__extra_embedding(const llm__pass *p) { return p->a->eagle ? p->rank->token.h : p->rank->token.x; }

LLM__PRIVATE void llm__extra_embed(const llm__pass *p, const llm__net *net, llm_buffer *x) {
    const llm__arch *a = p->a;
    const llm__net_rank *rank = p->rank;
    llm_lora_op lora = {.rows = LLM_ROWS_TOKENS,
                        .dst = x,
                        .low = rank->low,
                        .site = rank->embed.lora,
                        .n = a->hidden,
                        .vocab_begin = (int32_t)rank->vocab.first,
                        .scale = a->embed_scale};
    if (p->lora && rank->embed.lora) p->be->lora(p->ctx, p->rank_index, &lora);
    if (net->n_group > 1) p->be->all_reduce(p->ctx, p->rank_index, LLM_ROWS_TOKENS, x, a->hidden);
}

/* An EAGLE head reads x = fc(embedding of the token, hidden state of the position before it) + b, and zeros at position 0, as in vLLM 0.6.
 * */
static void llm__extra_eagle(const llm__pass *p, int kept_layer) {
    const llm__net_lane *lane = &p->rank->token;
    const llm__net_pair *fc = p->rank->fc;
    llm_state_op recall = {.recall = 1, .rows = LLM_ROWS_TOKENS, .buf = lane->y, .clear = lane->x, .layer = kept_layer};
    llm_linear_op op = {.rows = LLM_ROWS_TOKENS, .dst = lane->x, .src = lane->h, .weight = fc[0].w, .bias = fc[0].b, .scale = 1};
    p->be->linear(p->ctx, p->rank_index, &op);
    p->be->state(p->ctx, p->rank_index, &recall);
    op.src = lane->y;
    op.weight = fc[1].w;
    op.bias = fc[1].b;
    op.add = 1;
    p->be->linear(p->ctx, p->rank_index, &op);
}

LLM__PRIVATE void llm__extra_begin(const llm__pass *p, const llm__net *net) {
    const llm_embed_op stream = {.dst = p->rank->token.x, .given = LLM_GIVEN_ROW};
    if (!p->rank->first && net->cfg.alone) p->be->embed(p->ctx, p->rank_index, &stream);
    else if (!p->rank->first) {
        const llm__net_rank *before = &net->rank[p->rank_index - net->n_group];
        if (p->a->n_streams) p->be->receive(p->ctx, p->rank_index, p->rank->token.streams, before->token.streams);
        else p->be->receive(p->ctx, p->rank_index, p->rank->token.x, before->token.x);
        if (p->a->per_layer) p->be->receive(p->ctx, p->rank_index, p->rank->pl, before->pl);
    }
    if (p->a->eagle) llm__extra_eagle(p, net->cfg.kept_layer);
}

LLM__PRIVATE void llm__extra_send(const llm__pass *p, const llm__net_lane *lane) {
    p->be->send(p->ctx, p->rank_index, p->a->n_streams ? lane->streams : lane->x);
    if (p->a->per_layer) p->be->send(p->ctx, p->rank_index, p->rank->pl);
}

LLM__PRIVATE void llm__extra_columns(const llm__pass *p, const llm__net_layer *layer, int32_t head_dim, int32_t *q, int32_t *k) {
    const int whole = p->a->qk_norm == LLM_QK_NORM_WHOLE_RMS;
    *q = whole ? (int32_t)p->rank->heads.first * head_dim : 0;
    *k = layer->q_width + (whole ? (int32_t)layer->kv_heads.first * head_dim : 0);
}

LLM__PRIVATE void llm__extra_keep(const llm__pass *p, const llm__net *net, const llm__net_lane *lane, llm_buffer *src) {
    const int own = p->a->eagle;
    llm_state_op keep = {.rows = own ? LLM_ROWS_OUT : LLM_ROWS_TOKENS, .buf = own ? src : lane->h, .layer = net->cfg.kept_layer};
    if (net->cfg.kept_layer) p->be->state(p->ctx, p->rank_index, &keep);
}
