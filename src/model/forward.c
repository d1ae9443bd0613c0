#include "model/forward.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/log.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/net.h"
#include "model/forward_extras.h"
#include "model/forward_recurrent.h"
#include "model/forward_altup.h"

/* dst (+)= act(w src + b + what adapters add). */
static void llm__pass_linear(const llm__pass *p, llm_rows rows, llm_buffer *dst, const llm_buffer *src, const llm__net_pair *w, llm_act act,
                             int add) {
    const llm_buffer *plus = llm__extra_plus(p, rows, p->rank->plus, src, w);
    llm_linear_op op = {.rows = rows,
                        .dst = dst,
                        .src = src,
                        .weight = w->w,
                        .bias = w->b,
                        .act = act,
                        .add = add,
                        .scale = 1,
                        .limit = p->a->act_limit,
                        .xielu = p->xielu,
                        .plus = plus};
    p->be->linear(p->ctx, p->rank_index, &op);
}

/* dst = norm(src), alone: where no residual is added before it. */
static void llm__pass_norm(const llm__pass *p, llm_rows rows, llm_buffer *dst, const llm_buffer *src, int32_t n, llm_norm_kind kind,
                           const llm__net_pair *norm, float eps) {
    llm_norm_op op = {.rows = rows, .dst = dst, .src = src, .n = n, .kind = kind, .weight = norm->w, .bias = norm->b, .eps = eps};
    p->be->norm(p->ctx, p->rank_index, &op);
}

/* src = norm(src), of a block's second matrix; without weights it stays as it is. */
static void llm__pass_sub(const llm__pass *p, llm_rows rows, llm_buffer *src, const llm__net_pair *norm) {
    if (norm && norm->w) llm__pass_norm(p, rows, src, src, norm->rows, p->a->norm, norm, p->a->eps);
}

/* The rows whose logits are wanted. */
static void llm__pass_gather(const llm__pass *p, llm_buffer *dst, const llm_buffer *src) {
    const llm_gather_op op = {.dst = dst, .src = src};
    p->be->gather(p->ctx, p->rank_index, &op);
}

/* x += post_norm(sum over ranks of y); x *= x_scale (0: 1); h = norm(x). Either norm may be NULL: none; y may be NULL: nothing to add. */
static void llm__pass_residual(const llm__pass *p, const llm__net_lane *lane, const llm_buffer *y, const llm__net_pair *post,
                               const llm__net_pair *norm, float x_scale) {
    static const llm__net_pair none = {NULL, NULL, NULL, 0};
    const llm__net_pair *after = post ? post : &none, *before = norm ? norm : &none;
    llm_residual_op op = {.rows = lane->rows,
                          .x = lane->x,
                          .y = y,
                          .scale = p->a->residual_scale,
                          .post_kind = post ? p->a->norm : LLM_NORM_NONE,
                          .post_weight = after->w,
                          .post_bias = after->b,
                          .h = lane->h,
                          .kind = norm ? p->a->norm : LLM_NORM_NONE,
                          .weight = before->w,
                          .bias = before->b,
                          .eps = p->a->eps,
                          .replace = (p->a->flags & LLM__NORM_AFTER) != 0,
                          .x_scale = x_scale};
    p->be->residual(p->ctx, p->rank_index, &op);
}

/* x = embedding of the tokens (T, D). Each rank has a part of the table; learned positions are added on one rank: the sum over ranks has
 * them once. What rows are given for the kind of their token is added to the sum. */
static void llm__pass_embed(const llm__pass *p, const llm__net *net) {
    const llm__arch *a = p->a;
    const llm__net_rank *rank = p->rank;
    llm_buffer *x = llm__extra_embedding(p);
    llm_embed_op embed = {.dst = x,
                          .table = rank->embed.w,
                          .positions = p->rank_index ? NULL : rank->positions.w,
                          .position_offset = a->position_offset,
                          .vocab_begin = (int32_t)rank->vocab.first,
                          .scale = a->embed_scale,
                          .given = !p->given || a->n_types ? LLM_GIVEN_NONE
                                   : p->rank_index         ? LLM_GIVEN_ZERO
                                                           : LLM_GIVEN_ROW};
    const llm_embed_op kind = {.dst = x, .given = LLM_GIVEN_ROW, .given_add = 1};
    p->be->embed(p->ctx, p->rank_index, &embed);
    llm__extra_embed(p, net, x);
    if (a->n_types) p->be->embed(p->ctx, p->rank_index, &kind);
    if (rank->embed_norm.w || a->embed_bare) llm__pass_norm(p, LLM_ROWS_TOKENS, x, x, a->hidden, a->norm, &rank->embed_norm, a->eps);
}

/* The cosines and sines of this step's positions (T, rope_dim). */
static void llm__pass_rope(const llm__pass *p) {
    const llm__arch *a = p->a;
    const llm__net_rank *rank = p->rank;
    for (int i = 0; i < a->n_rope; i++) {
        llm_rope_op rope = {.dst = rank->rope[i],
                            .inv_freq = rank->inv_freq[i],
                            .n_variants = 2,
                            .rope_dim = a->rope[i].dim,
                            .scale = a->rope[i].scale,
                            .row_of = a->position_rows == 3 ? a->rope_row : NULL};
        p->be->rope(p->ctx, p->rank_index, &rope);
    }
}

/* att (T, n_heads * v_head_dim) = attention(src), in layer i (Vaswani et al. 2017):
 *   q, k, v = W src + b;  q, k = rope(norm(q)), rope(norm(k));  k and v join the pages of their sequence
 *   att_h = sum over earlier j of softmax_j(q_h . k_j * attn_scale) v_j, over the k and v that head h shares with its group */
static void llm__pass_attention(const llm__pass *p, int i, const llm__net_layer *layer, const llm_buffer *src) {
    const llm__arch *a = p->a;
    const llm__net_rank *rank = p->rank;
    const llm__arch_layer *own = &a->layer[i];
    int32_t n_heads = (int32_t)rank->heads.n, n_kv_heads = (int32_t)layer->kv_heads.n, d = own->head_dim, q_col, k_col;
    llm__extra_columns(p, layer, d, &q_col, &k_col);
    llm_qkv_op qkv = {.qkv = rank->qkv,
                      .q_col = q_col,
                      .k_col = k_col,
                      .v_col = layer->q_width + layer->k_width,
                      .n_heads = n_heads,
                      .n_kv_heads = n_kv_heads,
                      .head_dim = d,
                      .v_head_dim = own->v_head_dim,
                      .norm = a->by_rope && own->rope < 0 ? LLM_QK_NORM_NONE : a->qk_norm,
                      .q_norm = layer->q_norm.w,
                      .k_norm = layer->k_norm.w,
                      .eps = a->eps,
                      .whole_q = layer->q_width,
                      .whole_k_col = layer->q_width,
                      .whole_k = layer->k_width,
                      .rope = own->rope >= 0 ? rank->rope[own->rope] : NULL,
                      .rope_dim = own->rope >= 0 ? a->rope[own->rope].dim : 0,
                      .rope_interleaved = a->rope_pairs,
                      .layer = p->first_layer + layer->kv,
                      .logn_from = a->by_rope && own->rope >= 0 ? 0 : a->logn_from,
                      .logn_beta = a->logn_beta,
                      .logn_ahead = a->logn_ahead,
                      .v_norm = a->v_norm,
                      .shared = own->kv_of != i};
    llm_attention_op attention = {.dst = rank->token.att,
                                  .qkv = rank->qkv,
                                  .q_col = q_col,
                                  .layer = p->first_layer + layer->kv,
                                  .n_heads = n_heads,
                                  .n_kv_heads = n_kv_heads,
                                  .head_dim = d,
                                  .v_head_dim = own->v_head_dim,
                                  .scale = a->attn_scale,
                                  .softcap = a->attn_softcap,
                                  .window = own->window,
                                  .chunked = a->chunked,
                                  .not_causal = a->encoder,
                                  .sinks = layer->sinks.w,
                                  .alibi = rank->alibi,
                                  .spans = a->both_ways == 1 || (a->both_ways == 2 && own->window),
                                  .distance = rank->distance,
                                  .reach = a->reach};
    if (layer->token_qkv.w) llm__pass_linear(p, LLM_ROWS_TOKENS, rank->qkv, rank->token.y, &layer->token_qkv, LLM_ACT_NONE, 0);
    llm__pass_linear(p, LLM_ROWS_TOKENS, rank->qkv, src, &layer->qkv, LLM_ACT_NONE, layer->token_qkv.w != NULL);
    p->be->qkv(p->ctx, p->rank_index, &qkv);
    p->be->attention(p->ctx, p->rank_index, &attention);
    if (a->attn_gate) {
        const int32_t n = n_heads * d;
        const llm_gate_op gate = {.dst = rank->token.att, .gate = rank->qkv, .n = n, .each = 1, .col = qkv.v_col + n_kv_heads * d};
        p->be->gate(p->ctx, p->rank_index, &gate);
    }
}

/* Which positions latent attention looks at: the indexer's queries come from the narrow ones, its key and weights from src. */
static void llm__pass_index(const llm__pass *p, const llm__net_layer *layer, const llm_buffer *src) {
    const llm__arch *a = p->a;
    const llm__net_rank *rank = p->rank;
    const llm_index_op index = {.dst = rank->chosen,
                                .q = rank->index_q,
                                .k = rank->index_k,
                                .k_norm = layer->index_norm.w,
                                .k_bias = layer->index_norm.b,
                                .rope = rank->rope[0],
                                .rope_dim = a->rope[0].dim,
                                .rope_interleaved = a->index_pairs,
                                .n_heads = a->index_heads,
                                .head_dim = a->index_dim,
                                .topk = a->index_topk,
                                .layer = p->first_layer + layer->kv,
                                .eps = 1e-6f};
    llm__pass_linear(p, LLM_ROWS_TOKENS, rank->index_q, rank->q_a, &layer->index_q, LLM_ACT_NONE, 0);
    llm__pass_linear(p, LLM_ROWS_TOKENS, rank->index_k, src, &layer->index_k, LLM_ACT_NONE, 0);
    p->be->index(p->ctx, p->rank_index, &index);
}

/* att = latent attention(src) (DeepSeek-V2). The norms inside use 1e-6 whatever the config says. */
static void llm__pass_mla(const llm__pass *p, const llm__net_layer *layer, const llm_buffer *src) {
    const llm__arch *a = p->a;
    const llm__net_rank *rank = p->rank;
    const float eps = 1e-6f;
    llm_mla_op mla = {.dst = rank->token.att,
                      .q = rank->q,
                      .kv_a = rank->kv_a,
                      .kv_norm = layer->kv_a_norm.w,
                      .kv_b = layer->kv_b.w,
                      .rope = rank->rope[0],
                      .eps = eps,
                      .scale = a->attn_scale,
                      .rope_interleaved = a->rope_pairs,
                      .layer = p->first_layer + layer->kv,
                      .n_heads = (int32_t)rank->heads.n,
                      .nope = a->nope,
                      .rope_dim = a->rope[0].dim,
                      .v_dim = a->v_head_dim,
                      .rank = a->kv_rank,
                      .lora = p->lora ? layer->kv_b.lora : NULL,
                      .chosen = rank->chosen,
                      .topk = a->index_topk};
    /* queries that grow with their positions (Mistral 4): finished as those of others are, but for norms and rotation, and alone */
    const llm_qkv_op stretch = {.qkv = rank->q,
                                .n_heads = (int32_t)rank->heads.n,
                                .n_kv_heads = 1,
                                .head_dim = a->head_dim,
                                .layer = p->first_layer + layer->kv,
                                .logn_from = a->logn_from,
                                .logn_beta = a->logn_beta,
                                .logn_ahead = a->logn_ahead,
                                .shared = 1};
    if (a->q_rank) {
        llm__pass_linear(p, LLM_ROWS_TOKENS, rank->q_a, src, &layer->q_a, LLM_ACT_NONE, 0);
        llm__pass_norm(p, LLM_ROWS_TOKENS, rank->q_a, rank->q_a, a->q_rank, LLM_NORM_RMS, &layer->q_a_norm, eps);
    }
    llm__pass_linear(p, LLM_ROWS_TOKENS, rank->q, a->q_rank ? rank->q_a : src, &layer->q_b, LLM_ACT_NONE, 0);
    llm__pass_linear(p, LLM_ROWS_TOKENS, rank->kv_a, src, &layer->kv_a, LLM_ACT_NONE, 0);
    if (a->logn_from) p->be->qkv(p->ctx, p->rank_index, &stretch);
    if (rank->chosen) llm__pass_index(p, layer, src);
    p->be->mla(p->ctx, p->rank_index, &mla);
}

/* y (+)= down(act(up src)), or with a gate down(act(gate src) * up src) ("SwiGLU", Shazeer 2020): `up` holds gate's and
 * up's rows, and the linear operation multiplies them. `sub`: the norm of what down reads. The shared expert of Qwen2-MoE counts as much as
 * its gate says. */
static void llm__pass_mlp(const llm__pass *p, const llm__net_lane *lane, const llm__net_pair *up, const llm__net_pair *sub,
                          const llm__net_pair *down, const llm__net_pair *gate, const llm_buffer *src, int add) {
    const llm__net_rank *rank = p->rank;
    llm__pass_linear(p, lane->rows, rank->ff_act, src, up, p->a->act, 0); /* (T, ff) */
    llm__pass_sub(p, lane->rows, rank->ff_act, sub);
    if (gate) {
        llm_gate_op op = {.dst = rank->ff_act, .gate = rank->gate, .n = (int32_t)rank->ff_shared.n};
        llm__pass_linear(p, lane->rows, rank->gate, src, gate, LLM_ACT_NONE, 0);
        p->be->gate(p->ctx, p->rank_index, &op);
    }
    llm__pass_linear(p, lane->rows, lane->y, rank->ff_act, down, LLM_ACT_NONE, add);
}

/* dst (+)= the chosen experts of each token, for which the router reads `seen`:
 *   p = score(router src) (T, E);  y += sum over the n_used best e of p_e * down_e(act(gate_e src) * up_e src)
 * Of two sets only rows of its own kind choose of set `set`. */
static void llm__pass_experts(const llm__pass *p, const llm__net_moe *moe, int set, const llm_buffer *seen, const llm_buffer *src,
                              llm_buffer *dst, int add) {
    const llm__arch *a = p->a;
    const llm__net_rank *rank = p->rank;
    llm_route_op route = {.dst = rank->routes,
                          .logits = rank->router,
                          .n_experts = a->n_experts,
                          .k = a->n_used,
                          .score = a->score,
                          .correction = moe->correction.w,
                          .n_group = a->n_group,
                          .topk_group = a->topk_group,
                          .group_top2 = a->group_top2,
                          .normalize = a->normalize,
                          .normalize_min = a->normalize_min,
                          .scale = a->route_scale,
                          .by = moe->by.w,
                          .near = a->near,
                          .set = a->n_sets > 1 ? set + 1 : 0};
    llm_experts_op experts = {.dst = dst,
                              .src = src,
                              .routes = rank->routes,
                              .gate_up = moe->up.w,
                              .gate_up_bias = moe->up.b,
                              .down = moe->down.w,
                              .down_bias = moe->down.b,
                              .act = a->act,
                              .limit = a->act_limit,
                              .k = a->n_used,
                              .n_experts = a->n_experts,
                              .ff = (int32_t)rank->ff_expert[set].n,
                              .add = add,
                              .weigh_input = a->weigh_input,
                              .up_lora = p->lora ? moe->up.lora : NULL,
                              .down_lora = p->lora ? moe->down.lora : NULL,
                              .low = rank->e_low,
                              .plus = rank->e_plus};
    llm__pass_linear(p, LLM_ROWS_TOKENS, rank->router, seen, &moe->router, LLM_ACT_NONE, 0);
    p->be->route(p->ctx, p->rank_index, &route);
    p->be->experts(p->ctx, p->rank_index, &experts);
}

/* y (+)= the experts' part, and the shared one's. */
static void llm__pass_moe(const llm__pass *p, const llm__net_layer *layer, const llm_buffer *src, int add) {
    const llm__arch *a = p->a;
    const llm__net_rank *rank = p->rank;
    for (int s = 0; s < a->n_sets && !a->ff_latent; s++) llm__pass_experts(p, &layer->moe[s], s, src, src, rank->token.y, add || s);
    if (a->ff_latent) {
        llm__pass_linear(p, LLM_ROWS_TOKENS, rank->e_in, src, &layer->e_in, LLM_ACT_NONE, 0);
        llm__pass_experts(p, &layer->moe[0], 0, src, rank->e_in, rank->e_out, 0);
        llm__pass_linear(p, LLM_ROWS_TOKENS, rank->token.y, rank->e_out, &layer->e_out, LLM_ACT_NONE, add);
    }
    if (a->ff_shared) llm__pass_mlp(p, &rank->token, &layer->s_up, NULL, &layer->s_down, a->shared_gate ? &layer->s_gate : NULL, src, 1);
}

/* After the last layer: gathers the rows whose logits are wanted, unless the last MLP has done so, and multiplies them with the output
 * layer; of an encoder the rows are all that is wanted. */
static void llm__pass_head(const llm__pass *p, const llm__net *net, const llm__net_lane *lane, int has_norm) {
    const llm__arch *a = p->a;
    const llm__net_rank *rank = p->rank;
    llm_buffer *src = has_norm ? rank->out.h : rank->out.x;
    if (lane != &rank->out) llm__pass_gather(p, src, has_norm ? lane->h : lane->x);
    if (lane != &rank->out && has_norm && a->eagle & LLM__EAGLE_RAW) llm__pass_gather(p, rank->out.x, lane->x);
    llm__extra_keep(p, net, lane, src);
    if (a->encoder) return;
    if (rank->head_norm.w) { /* hidden states that are asked for stay in out.h */
        if (lane != &rank->out) llm__pass_gather(p, rank->out.x, lane->x);
        llm__pass_norm(p, LLM_ROWS_OUT, rank->out.y, rank->out.x, a->hidden, a->norm, &rank->head_norm, a->eps);
        src = rank->out.y;
    }
    const llm_buffer *plus = llm__extra_plus(p, LLM_ROWS_OUT, rank->head_plus, src, &rank->head);
    llm_logits_op logits = {.src = src,
                            .head = rank->head.w,
                            .bias = rank->head.b,
                            .vocab_begin = (int32_t)rank->vocab.first,
                            .vocab = a->vocab,
                            .scale = a->logit_scale,
                            .softcap = a->logit_softcap,
                            .plus = plus};
    p->be->logits(p->ctx, p->rank_index, &logits);
}

/* x += what pictures have for the layer before (DeepStack), then h = norm(x). */
static void llm__pass_deepstack(const llm__pass *p, int layer, const llm__net_pair *norm) {
    const int32_t D = p->a->hidden;
    const llm__net_lane *lane = &p->rank->token;
    llm_embed_op more = {.dst = lane->x, .given = LLM_GIVEN_ROW, .given_col = (1 + layer) * D, .given_add = 1};
    p->be->embed(p->ctx, p->rank_index, &more);
    llm__pass_residual(p, lane, NULL, NULL, norm, 0);
}

/* dst (T, D) (+)= norm(sum over ranks of y). */
static void llm__pass_whole(const llm__pass *p, llm_buffer *dst, llm_buffer *y, const llm__net_pair *norm, int add) {
    llm_norm_op op = {.rows = LLM_ROWS_TOKENS,
                      .dst = dst,
                      .src = y,
                      .n = p->a->hidden,
                      .kind = p->a->norm,
                      .weight = norm->w,
                      .eps = p->a->eps,
                      .add = add};
    if (p->n_group > 1 && y != p->rank->sum) p->be->all_reduce(p->ctx, p->rank_index, LLM_ROWS_TOKENS, y, p->a->hidden);
    p->be->norm(p->ctx, p->rank_index, &op);
}

/* Experts beside the MLP (Gemma 4); the router reads neither norm's result:
 *   x += norm(norm1(mlp(h)) + norm2(experts(norm3(x)))),  h the norm of x that the MLP reads */
static void llm__pass_beside(const llm__pass *p, const llm__net_layer *layer) {
    const llm__net_lane *lane = &p->rank->token;
    llm__pass_norm(p, lane->rows, p->rank->router_in, lane->x, p->a->hidden, p->a->norm, &layer->router_norm, p->a->eps);
    llm__pass_mlp(p, lane, &layer->up, NULL, &layer->down, NULL, lane->h, 0);
    llm__pass_whole(p, p->rank->sum, lane->y, &layer->post_ffn1, 0);
    llm__pass_norm(p, lane->rows, lane->h, lane->x, p->a->hidden, p->a->norm, &layer->ffn_norm2, p->a->eps);
    llm__pass_experts(p, &layer->moe[0], 0, p->rank->router_in, lane->h, lane->y, 0);
    llm__pass_whole(p, p->rank->sum, lane->y, &layer->post_ffn2, 1);
    llm__pass_whole(p, lane->x, p->rank->sum, &layer->post_ffn, 1);
}

/* pl (T, n_layers P): what each layer has of its own for a token, from a table and from the embedding x (Gemma 4):
 *   pl = (norm(W x D^-0.5) + table[token] P^0.5) 2^-0.5,  the norm over the P values of each layer, its weights times 2^-0.5
 * An encoder has no table: pl = norm(W x D^-0.5). */
static void llm__pass_per_layer(const llm__pass *p) {
    const llm__arch *a = p->a;
    const llm__net_rank *rank = p->rank;
    const llm_embed_op embed = {.dst = rank->pl,
                                .table = rank->pl_embed.w,
                                .vocab_begin = (int32_t)rank->pl_vocab.first,
                                .scale = sqrtf(0.5f * (float)a->per_layer),
                                .known = a->per_layer_rows < a->vocab ? a->per_layer_rows : 0};
    const llm_linear_op model = {.rows = LLM_ROWS_TOKENS,
                                 .dst = rank->pl_new,
                                 .src = rank->token.x,
                                 .weight = rank->pl_model.w,
                                 .scale = 1 / sqrtf((float)a->hidden),
                                 .plus = llm__extra_plus(p, LLM_ROWS_TOKENS, rank->plus, rank->token.x, &rank->pl_model)};
    const llm_norm_op norm = {.rows = LLM_ROWS_TOKENS,
                              .dst = rank->pl,
                              .src = rank->pl_new,
                              .n = a->per_layer,
                              .kind = a->norm,
                              .weight = rank->pl_model_norm.w,
                              .eps = a->eps,
                              .parts = a->n_layers,
                              .add = !a->encoder};
    if (!a->encoder) p->be->embed(p->ctx, p->rank_index, &embed);
    if (p->n_group > 1 && !a->encoder) p->be->all_reduce(p->ctx, p->rank_index, LLM_ROWS_TOKENS, rank->pl, a->n_layers * a->per_layer);
    p->be->linear(p->ctx, p->rank_index, &model);
    p->be->norm(p->ctx, p->rank_index, &norm);
}

/* y = proj(gelu(gate src) * pl of layer i), each rank with a part of pl's columns. */
static void llm__pass_own(const llm__pass *p, int i, const llm__net_layer *layer, const llm__net_lane *lane, const llm_buffer *src) {
    const llm__net_rank *rank = p->rank;
    llm_gather_op gather = {.dst = rank->pl_out, .src = rank->pl, .src_col = i * p->a->per_layer + (int32_t)rank->per_layer.first};
    llm_gate_op own = {.rows = lane->rows,
                       .dst = rank->pl_act,
                       .gate = rank->pl,
                       .n = (int32_t)rank->per_layer.n,
                       .each = 1,
                       .col = gather.src_col,
                       .act = LLM_GATE_PLAIN};
    llm__pass_linear(p, lane->rows, rank->pl_act, src, &layer->pl_gate, p->a->act, 0);
    if (lane == &rank->out) {
        p->be->gather(p->ctx, p->rank_index, &gather);
        own.gate = rank->pl_out, own.col = 0;
    }
    p->be->gate(p->ctx, p->rank_index, &own);
    llm__pass_linear(p, lane->rows, lane->y, rank->pl_act, &layer->pl_proj, LLM_ACT_NONE, 0);
}

/* The second half of layer i: y = mlp(src), added to what attention left there with PARALLEL; then it joins x, and h is what comes next
 * reads, `next` its norm. */
static void llm__pass_second(const llm__pass *p, int i, const llm__net_layer *layer, const llm__net_lane *lane, const llm_buffer *src,
                             const llm__net_pair *next) {
    const llm__arch *a = p->a;
    const int parallel = (a->flags & LLM__PARALLEL) != 0, moe = a->layer[i].moe, beside = moe && a->beside;
    const llm__net_pair *post = a->flags & LLM__POST_NORM || (moe && a->norm_experts) ? &layer->post_ffn : NULL;
    if (beside) llm__pass_beside(p, layer);
    else if (moe) llm__pass_moe(p, layer, src, parallel);
    else llm__pass_mlp(p, lane, &layer->up, &layer->ffn_sub, &layer->down, NULL, src, parallel);
    if (a->per_layer) {
        if (!beside) llm__pass_residual(p, lane, lane->y, post, NULL, 0);
        llm__pass_own(p, i, layer, lane, lane->x);
        post = &layer->pl_norm;
    }
    llm__pass_residual(p, lane, beside && !a->per_layer ? NULL : lane->y, post, next, layer->scalar);
}

/* att = what layer i makes of src with other positions; it leaves keys and values, or a state, in the pages. */
static void llm__pass_mixer(const llm__pass *p, int i, const llm__net_layer *layer, const llm_buffer *src) {
    const int both = p->a->layer[i].both;
    if (p->a->layer[i].mixer > LLM__MIX_NONE) llm__pass_recurrent(p, i, layer, src, both ? p->rank->token.states : p->rank->token.att);
    if (p->a->layer[i].mixer > LLM__MIX_NONE && !both) return;
    if (p->a->flags & LLM__MLA) llm__pass_mla(p, layer, src);
    else llm__pass_attention(p, i, layer, src);
}

/* The norm that a layer begins with. */
static const llm__net_pair *llm__first_norm(const llm__pass *p, int i) {
    return p->a->layer[i].mixer == LLM__MIX_NONE ? &p->rank->layer[i].ffn_norm : &p->rank->layer[i].attn_norm;
}

/* What comes behind the residual stream of layer i: the norm of the next, or the last one; NULL: none. */
static const llm__net_pair *llm__next_norm(const llm__pass *p, int i) {
    const int pre = !(p->a->flags & LLM__NO_PRE_NORM);
    if (p->a->flags & LLM__NORM_AFTER) return &p->rank->layer[i].post_ffn;
    if (p->rank->last && i == p->a->n_layers - 1) return !p->a->eagle || p->rank->out_norm.w ? &p->rank->out_norm : NULL;
    return pre && i + 1 < p->rank->end ? llm__first_norm(p, i + 1) : NULL;
}

/* The rows whose logits are wanted, of all that the last layer still needs. */
static const llm__net_lane *llm__pass_narrow(const llm__pass *p, const llm__net_lane *lane) {
    const llm__net_lane *out = &p->rank->out;
    llm__pass_gather(p, out->x, lane->x);
    llm__pass_gather(p, out->att, lane->att);
    if (lane->states) llm__pass_gather(p, out->states, lane->states);
    if (lane->streams) llm__pass_gather(p, out->streams, lane->streams);
    if (p->a->flags & LLM__PARALLEL) llm__pass_gather(p, out->h, lane->h);
    return out;
}

/* 1 if what follows attention in layer i is wanted only of rows whose logits are. */
static int llm__pass_ends(const llm__pass *p, const llm__net *net, int i) {
    const int last = p->rank->last && i == p->a->n_layers - 1;
    return last && !net->cfg.whole && (p->a->eagle || !net->cfg.kept_layer || net->cfg.tapping);
}

/* Layer i on the rows of a lane; returns that of the rows behind it. Families differ in where norms stand:
 *   most          h = norm(x);  x += att(h);         h = norm(x);  x += mlp(h)
 *   POST_NORM     h = norm(x);  x += norm(att(h));   h = norm(x);  x += norm(mlp(h))     Gemma 2, GLM-4
 *   NO_PRE_NORM                 x += norm(att(x));                 x += norm(mlp(x))     OLMo 2
 *   NORM_AFTER                  x = norm(x + att(x));              x = norm(x + mlp(x))  BERT
 *   PARALLEL      h = norm(x);  x += att(h) + mlp(h)                                     Cohere, GPT-NeoX
 *   one block     h = norm(x);  x += att(h), or x += mlp(h)                              Mamba 2, Nemotron-H
 *   both          h = norm(x);  x += att(h) + states(h);   h = norm(x);  x += mlp(h)     Falcon-H1
 * A residual operation does the end of one block and the beginning of the next in one: x += norm(sum of y), h = norm(x).
 * The last layer's MLP and the head see only the rows whose logits are wanted: they are gathered into the lane `out`. But a mixture of
 * experts, or last hidden states that a head wants of all rows, need the whole lane to the end. */
static const llm__net_lane *llm__pass_layer(const llm__pass *p, const llm__net *net, int i, const llm__net_lane *lane) {
    const llm__arch *a = p->a;
    const llm__net_layer *layer = &p->rank->layer[i];
    const int parallel = (a->flags & LLM__PARALLEL) != 0, pre = !(a->flags & LLM__NO_PRE_NORM), post = (a->flags & LLM__POST_NORM) != 0;
    const int moe = a->layer[i].moe, no_mlp = a->layer[i].no_mlp;
    const int deep = p->given && !net->cfg.alone && i < a->n_deepstack; /* pictures have something to add behind this layer */
    const llm_buffer *src = pre && (!a->eagle || layer->attn_norm.w) && !a->layer[i].bare ? lane->h : lane->x;
    if (a->layer[i].mixer != LLM__MIX_NONE) {
        llm__pass_mixer(p, i, layer, src);
        if (!moe && !deep && llm__pass_ends(p, net, i)) /* other layers need all rows for the keys and values that follow */
            lane = llm__pass_narrow(p, lane);
        /* y = o att; without PARALLEL it joins x, and h is the norm of that; with it h stays, or is another norm of x */
        llm__pass_sub(p, lane->rows, lane->att, &layer->attn_sub);
        llm__pass_linear(p, lane->rows, lane->y, lane->att, &layer->o, LLM_ACT_NONE, 0);
        if (a->layer[i].both) llm__pass_linear(p, lane->rows, lane->y, lane->states, &layer->state_o, LLM_ACT_NONE, 1);
        if (!parallel)
            llm__pass_residual(p, lane, lane->y, post ? &layer->post_attn : NULL,
                               no_mlp                       ? llm__next_norm(p, i)
                               : pre                        ? &layer->ffn_norm
                               : a->flags & LLM__NORM_AFTER ? &layer->post_attn
                                                            : NULL,
                               0);
        else if (layer->ffn_norm.w) llm__pass_norm(p, lane->rows, lane->h, lane->x, a->hidden, a->norm, &layer->ffn_norm, a->eps);
    }
    if (no_mlp) return lane;
    llm__pass_second(p, i, layer, lane, pre ? lane->h : lane->x, deep ? NULL : llm__next_norm(p, i));
    if (deep) llm__pass_deepstack(p, i, llm__next_norm(p, i));
    return lane;
}

/* Layer i where the residual is several streams: see >>forward_altup. */
static const llm__net_lane *llm__pass_streams(const llm__pass *p, const llm__net *net, int i, const llm__net_lane *lane) {
    const llm__net_layer *layer = &p->rank->layer[i];
    llm__altup_predict(p, layer);
    llm__pass_attention(p, i, layer, lane->h);
    if (llm__pass_ends(p, net, i)) lane = llm__pass_narrow(p, lane);
    llm__pass_linear(p, lane->rows, lane->y, lane->att, &layer->o, LLM_ACT_NONE, 0);
    llm__pass_residual(p, lane, lane->y, &layer->post_attn, &layer->ffn_norm, sqrtf(0.5f));
    if (p->a->layer[i].sparse) {
        llm__altup_sparse(p, i, layer, lane);
        llm__pass_linear(p, lane->rows, lane->y, p->rank->ff_act, &layer->down, LLM_ACT_NONE, 0);
    } else llm__pass_mlp(p, lane, &layer->up, NULL, &layer->down, NULL, lane->h, 0);
    llm__pass_residual(p, lane, lane->y, &layer->post_ffn, &layer->router_norm, 0);
    llm__altup_correct(p, layer, lane);
    llm__pass_own(p, i, layer, lane, lane->h);
    llm__altup_add(p, layer, lane);
    return lane;
}

/* One step on one rank, top to bottom. */
static void llm__forward(const llm__net *net, int rank_index, const llm_shape *shape) {
    const llm__arch *a = net->a;
    const llm__net_rank *rank = &net->rank[rank_index];
    const llm__net_lane *lane = &rank->token;
    llm__pass p = {.be = net->cfg.backend,
                   .ctx = net->cfg.ctx,
                   .rank_index = rank_index,
                   .n_group = net->n_group,
                   .rank = rank,
                   .a = a,
                   .lora = shape->lora,
                   .given = shape->given,
                   .first_layer = net->cfg.first_layer};
    const int pre = !(a->flags & LLM__NO_PRE_NORM), out_norm = !a->eagle || rank->out_norm.w;
    /* x (T, D) = embedding; h = the first norm of it */
    if (rank->first) llm__pass_embed(&p, net);
    if (rank->first && a->per_layer) llm__pass_per_layer(&p);
    if (rank->first && a->n_streams) llm__altup_spread(&p);
    llm__pass_rope(&p);
    llm__extra_begin(&p, net);
    if (pre && (!a->eagle || rank->layer[0].attn_norm.w) && !a->layer[rank->begin].bare && !a->n_streams)
        llm__pass_residual(&p, lane, NULL, NULL, llm__first_norm(&p, rank->begin), 0);
    for (int i = rank->begin; i < rank->end; i++) {
        p.xielu = a->layer[i].xielu;
        llm__extra_tap(&p, net, i);
        lane = a->n_streams ? llm__pass_streams(&p, net, i, lane) : llm__pass_layer(&p, net, i, lane);
    }
    if (rank->last && a->n_streams) llm__altup_join(&p, lane);
    if (rank->last) llm__pass_head(&p, net, lane, out_norm);
    else if (!net->cfg.alone) llm__extra_send(&p, lane);
}

/* Refuses what would read outside the tables. The scheduler never asks for it; raw callers of llm_forward may. */
static llm_result llm__net_step_check(const llm__net *net, const llm_step *s) {
    int32_t most = net->a->flags & LLM__LEARNED ? net->a->max_positions : INT32_MAX; /* others can go on past their training, badly */
    if (s->shape.n_rows < 1 || s->shape.n_rows > net->cfg.max_rows || s->shape.n_out < 0 || s->shape.n_out > net->cfg.max_out)
        return llm__error(LLM_ERR_ARG, "a step of %d rows and %d outputs: at most %d and %d expected", s->shape.n_rows, s->shape.n_out,
                          net->cfg.max_rows, net->cfg.max_out);
    for (int i = 0; i < s->shape.n_rows; i++) {
        if (s->tokens[i] < 0 || s->tokens[i] >= net->a->vocab)
            return llm__error(LLM_ERR_ARG, "token id %d: 0 to %d expected", s->tokens[i], net->a->vocab - 1);
        if (s->positions[i] < 0 || s->positions[i] >= most)
            return llm__error(LLM_ERR_LIMIT, "position %d: the model has %d", s->positions[i], most);
    }
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__net_begin(llm__net *net, const llm_step *step) {
    llm_result r = llm__net_step_check(net, step);
    if (!r) r = net->cfg.backend->begin_step(net->cfg.ctx, step);
    if (r) return r;
    for (int i = 0; i < net->cfg.n_ranks; i++) llm__forward(net, i, &step->shape);
    return net->cfg.backend->end_step(net->cfg.ctx);
}

LLM__PRIVATE llm_result llm__net_step(llm__net *net, const llm_step *step) {
    llm_result r = llm__net_begin(net, step);
    return r ? r : net->cfg.backend->wait(net->cfg.ctx);
}
