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

static void llm__extra_norm(const llm__pass *p, llm_buffer *dst, const llm_buffer *src, const llm__net_pair *norm) {
    const llm_norm_op op = {.rows = LLM_ROWS_TOKENS,
                            .dst = dst,
                            .src = src,
                            .n = p->a->hidden,
                            .kind = p->a->norm,
                            .weight = norm->w,
                            .bias = norm->b,
                            .eps = p->a->eps};
    if (norm->w) p->be->norm(p->ctx, p->rank_index, &op);
}

/* What a head makes of a token's embedding e, which stands in h, and of the hidden state f of the position before it (>>eagle):
 *   EAGLE       x = fc(e, f) + b
 *   next layer  x = fc(norm(e), norm(f)) + b
 *   EAGLE-3     x = f or norm(f), and attention reads y = norm(e) beside it
 * At position 0 all of it is zeros, as in vLLM 0.6. */
static void llm__extra_eagle(const llm__pass *p, int kept_layer) {
    const llm__net_rank *rank = p->rank;
    const llm__net_lane *lane = &rank->token;
    const int three = (p->a->eagle & LLM__EAGLE_THREE) != 0;
    const llm_state_op recall = {
        .recall = 1, .rows = LLM_ROWS_TOKENS, .buf = three ? lane->x : lane->y, .clear = three ? lane->h : lane->x, .layer = kept_layer};
    llm_linear_op op = {
        .rows = LLM_ROWS_TOKENS, .dst = lane->x, .src = lane->h, .weight = rank->fc[0].w, .bias = rank->fc[0].b, .scale = 1};
    if (three) {
        p->be->state(p->ctx, p->rank_index, &recall);
        llm__extra_norm(p, lane->y, lane->h, &rank->token_norm);
        llm__extra_norm(p, lane->x, lane->x, &rank->state_norm);
        return;
    }
    llm__extra_norm(p, lane->h, lane->h, &rank->token_norm);
    p->be->linear(p->ctx, p->rank_index, &op);
    p->be->state(p->ctx, p->rank_index, &recall);
    llm__extra_norm(p, lane->y, lane->y, &rank->state_norm);
    op.src = lane->y;
    op.weight = rank->fc[1].w;
    op.bias = rank->fc[1].b;
    op.add = 1;
    p->be->linear(p->ctx, p->rank_index, &op);
}

LLM__PRIVATE void llm__extra_tap(const llm__pass *p, const llm__net *net, int i) {
    const llm__net *head = net->cfg.tapping;
    for (int k = 0; head && k < LLM__COUNT(head->a->tapped); k++) {
        const llm__net_rank *own = &head->rank[p->rank_index];
        const llm_linear_op op = {.rows = LLM_ROWS_TOKENS,
                                  .dst = own->tapped,
                                  .src = p->rank->token.x,
                                  .weight = own->fc[k].w,
                                  .bias = own->fc[k].b,
                                  .add = k > 0,
                                  .scale = 1};
        const llm_state_op keep = {.rows = LLM_ROWS_TOKENS, .buf = own->tapped, .layer = net->cfg.kept_layer};
        if (head->a->tapped[k] != i) continue;
        p->be->linear(p->ctx, p->rank_index, &op);
        if (k == LLM__COUNT(head->a->tapped) - 1) p->be->state(p->ctx, p->rank_index, &keep);
    }
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
    const llm_state_op keep = {.rows = own ? LLM_ROWS_OUT : LLM_ROWS_TOKENS,
                               .buf = own & LLM__EAGLE_RAW ? p->rank->out.x
                                      : own                ? src
                                                           : lane->h,
                               .layer = net->cfg.kept_layer};
    if (net->cfg.kept_layer && !net->cfg.tapping) p->be->state(p->ctx, p->rank_index, &keep);
}
