#include "model/forward.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/log.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/net.h"

/* What every operation needs to know of where it runs. */
typedef struct llm__pass {
    const llm_backend *be;
    llm_backend_ctx *ctx;
    int rank;
    const llm__arch *a;
    const llm__net_rank *R;
    int lora;        /* a sequence has an adapter */
    int first_layer; /* of the KV cache: where it has the model's layer 0, or would have */
} llm__pass;

/* What adapters add to w src, in `plus`; NULL: nothing in this step. */
static const llm_buffer *llm__pass_lora(const llm__pass *p, llm_rows rows, llm_buffer *plus, const llm_buffer *src,
                                        const llm__net_pair *w) {
    llm_lora_op op = {rows, plus, src, p->R->low, w->lora, w->rows, 0, 1};
    if (!p->lora || !w->lora) return NULL;
    p->be->lora(p->ctx, p->rank, &op);
    return plus;
}

/* dst (+)= act(w src + b + what adapters add). */
static void llm__pass_linear(const llm__pass *p, llm_rows rows, llm_buffer *dst, const llm_buffer *src, const llm__net_pair *w, llm_act act,
                             int add) {
    const llm_buffer *plus = llm__pass_lora(p, rows, p->R->plus, src, w);
    llm_linear_op op = {rows, dst, src, w->w, w->b, act, add, 0, 0, 1, p->a->act_limit, plus};
    p->be->linear(p->ctx, p->rank, &op);
}

/* dst = norm(src), alone: where no residual is added before it. */
static void llm__pass_norm(const llm__pass *p, llm_rows rows, llm_buffer *dst, const llm_buffer *src, int32_t n, llm_norm_kind kind,
                           const llm__net_pair *norm, float eps) {
    llm_norm_op op = {rows, dst, src, 0, n, kind, norm->w, norm->b, eps};
    p->be->norm(p->ctx, p->rank, &op);
}

/* x += post_norm(sum over ranks of y); h = norm(x). Either norm may be NULL: none; y may be NULL: nothing to add. */
static void llm__pass_residual(const llm__pass *p, const llm__net_lane *lane, const llm_buffer *y, const llm__net_pair *post,
                               const llm__net_pair *norm) {
    static const llm__net_pair none = {NULL, NULL, NULL, 0};
    const llm__net_pair *after = post ? post : &none, *before = norm ? norm : &none;
    llm_residual_op op = {lane->rows,
                          lane->x,
                          y,
                          p->a->residual_scale,
                          post ? p->a->norm : LLM_NORM_NONE,
                          after->w,
                          after->b,
                          lane->h,
                          norm ? p->a->norm : LLM_NORM_NONE,
                          before->w,
                          before->b,
                          p->a->eps,
                          0};
    p->be->residual(p->ctx, p->rank, &op);
}

/* x = embedding of the tokens (T, D). Each rank has a part of the table; learned positions are added on one rank: the sum over ranks has
 * them once. */
static void llm__pass_embed(const llm__pass *p, int n_ranks, llm_buffer *x) {
    const llm__arch *a = p->a;
    const llm__net_rank *R = p->R;
    llm_embed_op embed = {x, R->embed.w, p->rank ? NULL : R->positions.w, a->position_offset, (int32_t)R->vocab.first, a->embed_scale};
    llm_lora_op lora = {LLM_ROWS_TOKENS, x, NULL, R->low, R->embed.lora, a->hidden, (int32_t)R->vocab.first, a->embed_scale};
    p->be->embed(p->ctx, p->rank, &embed);
    if (p->lora && R->embed.lora) p->be->lora(p->ctx, p->rank, &lora);
    if (n_ranks > 1) p->be->all_reduce(p->ctx, p->rank, LLM_ROWS_TOKENS, x, a->hidden);
    if (R->embed_norm.w) llm__pass_norm(p, LLM_ROWS_TOKENS, x, x, a->hidden, a->norm, &R->embed_norm, a->eps);
}

/* x, from the tokens or from the stage before, and the cosines and sines of this step's positions (T, rope_dim). */
static void llm__pass_begin(const llm__pass *p, const llm__net *net) {
    const llm__arch *a = p->a;
    const llm__net_rank *R = p->R;
    if (R->first) llm__pass_embed(p, net->n_group, a->eagle ? R->token.h : R->token.x);
    else p->be->receive(p->ctx, p->rank, R->token.x, net->rank[p->rank - net->n_group].token.x);
    for (int i = 0; i < a->n_rope; i++) {
        llm_rope_op rope = {R->rope[i], R->inv_freq[i], 2, a->rope_dim, a->rope[i].scale, {0, 0, 0}};
        p->be->rope(p->ctx, p->rank, &rope);
    }
}

/* An EAGLE head reads x = fc(embedding of the token, hidden state of the position before it) + b, and zeros at position 0, as in vLLM 0.6.
 * */
static void llm__pass_eagle(const llm__pass *p, int kept_layer) {
    const llm__net_lane *lane = &p->R->token;
    llm_state_op recall = {1, LLM_ROWS_TOKENS, lane->y, lane->x, kept_layer};
    llm__pass_linear(p, LLM_ROWS_TOKENS, lane->x, lane->h, &p->R->fc[0], LLM_ACT_NONE, 0);
    p->be->state(p->ctx, p->rank, &recall);
    llm__pass_linear(p, LLM_ROWS_TOKENS, lane->x, lane->y, &p->R->fc[1], LLM_ACT_NONE, 1);
}

/* att (T, n_heads * v_head_dim) = attention(src), in layer i (Vaswani et al. 2017):
 *   q, k, v = W src + b;  q, k = rope(norm(q)), rope(norm(k));  k and v join the pages of their sequence
 *   att_h = sum over earlier j of softmax_j(q_h . k_j * attn_scale) v_j, over the k and v that head h shares with its group
 * With norms over the whole width, qkv holds q and k of all ranks' heads, of which this rank finishes its own. */
static void llm__pass_attention(const llm__pass *p, int i, const llm__net_layer *y, const llm_buffer *src) {
    const llm__arch *a = p->a;
    const llm__net_rank *R = p->R;
    int whole = a->qk_norm == LLM_QK_NORM_WHOLE_RMS;
    int32_t n_heads = (int32_t)R->heads.n, n_kv_heads = (int32_t)R->kv_heads.n, d = a->head_dim;
    int32_t skip_q = whole ? (int32_t)R->heads.first * d : 0, skip_k = whole ? (int32_t)R->kv_heads.first * d : 0;
    const llm_buffer *rope = a->layer[i].rope >= 0 ? R->rope[a->layer[i].rope] : NULL;
    llm_qkv_op qkv = {R->qkv,
                      skip_q,
                      R->q_width + skip_k,
                      R->q_width + R->k_width,
                      n_heads,
                      n_kv_heads,
                      d,
                      a->v_head_dim,
                      a->qk_norm,
                      y->q_norm.w,
                      y->k_norm.w,
                      a->eps,
                      0,
                      R->q_width,
                      R->q_width,
                      R->k_width,
                      rope,
                      a->rope_dim,
                      a->rope_pairs,
                      p->first_layer + i,
                      a->logn_from};
    llm_attention_op att = {R->token.att,  R->qkv,        skip_q,          p->first_layer + i, n_heads, n_kv_heads, d,
                            a->v_head_dim, a->attn_scale, a->attn_softcap, a->layer[i].window, 0,       y->sinks.w, R->alibi};
    llm__pass_linear(p, LLM_ROWS_TOKENS, R->qkv, src, &y->qkv, LLM_ACT_NONE, 0);
    p->be->qkv(p->ctx, p->rank, &qkv);
    p->be->attention(p->ctx, p->rank, &att);
}

/* att = latent attention(src) (DeepSeek-V2). The norms inside use 1e-6 whatever the config says. */
static void llm__pass_mla(const llm__pass *p, int i, const llm__net_layer *y, const llm_buffer *src) {
    const llm__arch *a = p->a;
    const llm__net_rank *R = p->R;
    const float eps = 1e-6f;
    llm_mla_op mla = {R->token.att,
                      R->q,
                      R->kv_a,
                      y->kv_a_norm.w,
                      y->kv_b.w,
                      R->rope[0],
                      eps,
                      a->attn_scale,
                      a->rope_pairs,
                      p->first_layer + i,
                      (int32_t)R->heads.n,
                      a->nope,
                      a->rope_dim,
                      a->v_head_dim,
                      a->kv_rank,
                      p->lora ? y->kv_b.lora : NULL};
    if (a->q_rank) {
        llm__pass_linear(p, LLM_ROWS_TOKENS, R->q_a, src, &y->q_a, LLM_ACT_NONE, 0);
        llm__pass_norm(p, LLM_ROWS_TOKENS, R->q_a, R->q_a, a->q_rank, LLM_NORM_RMS, &y->q_a_norm, eps);
    }
    llm__pass_linear(p, LLM_ROWS_TOKENS, R->q, a->q_rank ? R->q_a : src, &y->q_b, LLM_ACT_NONE, 0);
    llm__pass_linear(p, LLM_ROWS_TOKENS, R->kv_a, src, &y->kv_a, LLM_ACT_NONE, 0);
    p->be->mla(p->ctx, p->rank, &mla);
}

/* y (+)= down(act(up src)), or with a gate down(act(gate src) * up src) ("SwiGLU", Shazeer 2020): `up` holds gate's and
 * up's rows, and the linear operation multiplies them. The shared expert of Qwen2-MoE counts as much as its gate says. */
static void llm__pass_mlp(const llm__pass *p, const llm__net_lane *lane, const llm__net_pair *up, const llm__net_pair *down,
                          const llm__net_pair *gate, const llm_buffer *src, int add) {
    llm__pass_linear(p, lane->rows, p->R->ff_act, src, up, p->a->act, 0); /* (T, ff) */
    if (gate) {
        llm_gate_op op = {p->R->ff_act, p->R->gate, (int32_t)p->R->ff_shared.n};
        llm__pass_linear(p, lane->rows, p->R->gate, src, gate, LLM_ACT_NONE, 0);
        p->be->gate(p->ctx, p->rank, &op);
    }
    llm__pass_linear(p, lane->rows, lane->y, p->R->ff_act, down, LLM_ACT_NONE, add);
}

/* y (+)= the chosen experts of each token, and the shared one:
 *   p = score(router src) (T, E);  y += sum over the n_used best e of p_e * down_e(act(gate_e src) * up_e src) + shared(src) */
static void llm__pass_moe(const llm__pass *p, const llm__net_layer *y, const llm_buffer *src, int add) {
    const llm__arch *a = p->a;
    const llm__net_rank *R = p->R;
    llm_route_op route = {R->routes,    R->router,        a->n_experts,
                          a->n_used,    a->score,         y->correction.w,
                          a->n_group,   a->topk_group,    a->score == LLM_ROUTE_SIGMOID,
                          a->normalize, a->normalize_min, a->route_scale};
    llm_experts_op experts = {R->token.y,
                              src,
                              R->routes,
                              y->e_up.w,
                              y->e_up.b,
                              y->e_down.w,
                              y->e_down.b,
                              a->act,
                              a->act_limit,
                              a->n_used,
                              a->n_experts,
                              (int32_t)R->ff_expert.n,
                              add,
                              p->lora ? y->e_up.lora : NULL,
                              p->lora ? y->e_down.lora : NULL,
                              R->e_low,
                              R->e_plus};
    llm__pass_linear(p, LLM_ROWS_TOKENS, R->router, src, &y->router, LLM_ACT_NONE, 0);
    p->be->route(p->ctx, p->rank, &route);
    p->be->experts(p->ctx, p->rank, &experts);
    if (a->ff_shared) llm__pass_mlp(p, &R->token, &y->s_up, &y->s_down, a->shared_gate ? &y->s_gate : NULL, src, 1);
}

/* One step on one rank, top to bottom. Families differ in where norms stand:
 *   most          h = norm(x);  x += att(h);         h = norm(x);  x += mlp(h)
 *   POST_NORM     h = norm(x);  x += norm(att(h));   h = norm(x);  x += norm(mlp(h))     Gemma 2, GLM-4
 *   NO_PRE_NORM                 x += norm(att(x));                 x += norm(mlp(x))     OLMo 2
 *   PARALLEL      h = norm(x);  x += att(h) + mlp(h)                                     Cohere, GPT-NeoX
 * A residual operation does the end of one block and the beginning of the next in one: x += norm(sum of y), h = norm(x).
 * The last layer's MLP and the head see only the rows whose logits are wanted: they are gathered into the lane `out`. But where an EAGLE
 * head wants the hidden states of all rows, they are computed, and kept in pages; of its own it keeps those that it guesses from again. */
static void llm__forward(const llm__net *net, int rank, int lora) {
    const llm__arch *a = net->a;
    const llm__net_rank *R = &net->rank[rank];
    const llm__net_lane *lane = &R->token, *out = &R->out;
    const llm__pass p = {net->cfg.backend, net->cfg.ctx, rank, a, R, lora, net->cfg.first_layer - R->begin};
    int parallel = (a->flags & LLM__PARALLEL) != 0, plain = (a->flags & LLM__NO_PRE_NORM) != 0, post = (a->flags & LLM__POST_NORM) != 0;
    int bare = plain || (a->eagle && !R->layer[0].attn_norm.w), normed = !a->eagle || R->out_norm.w, kept = net->cfg.kept_layer;
    llm_buffer *top = normed ? out->h : out->x; /* what the output layer reads */
    /* x (T, D) = embedding; h = the first norm of it */
    llm__pass_begin(&p, net);
    if (a->eagle) llm__pass_eagle(&p, kept);
    if (!bare) llm__pass_residual(&p, lane, NULL, NULL, &R->layer[R->begin].attn_norm);
    for (int i = R->begin; i < R->end; i++) {
        const llm__net_layer *y = &R->layer[i];
        int last = i == a->n_layers - 1, moe = a->layer[i].moe;
        const llm__net_pair *next = plain || i + 1 == R->end ? NULL : &R->layer[i + 1].attn_norm;
        if (last) next = normed ? &R->out_norm : NULL;
        /* att = attention over h, and the KV pages of layer i get this step's keys and values */
        if (a->flags & LLM__MLA) llm__pass_mla(&p, i, y, bare ? lane->x : lane->h);
        else llm__pass_attention(&p, i, y, bare ? lane->x : lane->h);
        if (last && !moe && (a->eagle || !kept)) { /* earlier layers need all rows for their keys and values, the last one does not */
            p.be->gather(p.ctx, rank, out->x, lane->x);
            p.be->gather(p.ctx, rank, out->att, lane->att);
            if (parallel) p.be->gather(p.ctx, rank, out->h, lane->h);
            lane = out;
        }
        /* y = o att; without PARALLEL it joins x, and h is the norm of that; with it h stays, or is another norm of x */
        llm__pass_linear(&p, lane->rows, lane->y, lane->att, &y->o, LLM_ACT_NONE, 0);
        if (!parallel) llm__pass_residual(&p, lane, lane->y, post ? &y->post_attn : NULL, plain ? NULL : &y->ffn_norm);
        else if (y->ffn_norm.w) llm__pass_norm(&p, lane->rows, lane->h, lane->x, a->hidden, a->norm, &y->ffn_norm, a->eps);
        /* y = mlp(h), added to what attention left there with PARALLEL; then it joins x, and h is what the next layer reads */
        const llm_buffer *src = plain ? lane->x : lane->h;
        if (moe) llm__pass_moe(&p, y, src, parallel);
        else llm__pass_mlp(&p, lane, &y->up, &y->down, NULL, src, parallel);
        llm__pass_residual(&p, lane, lane->y, post ? &y->post_ffn : NULL, next);
    }
    if (!R->last) {
        p.be->send(p.ctx, rank, lane->x);
        return;
    }
    if (lane != out) p.be->gather(p.ctx, rank, top, normed ? lane->h : lane->x);
    llm_state_op keep = {0, a->eagle ? LLM_ROWS_OUT : LLM_ROWS_TOKENS, a->eagle ? top : lane->h, NULL, kept};
    if (kept) p.be->state(p.ctx, rank, &keep);
    const llm_buffer *plus = llm__pass_lora(&p, LLM_ROWS_OUT, R->head_plus, top, &R->head);
    llm_logits_op logits = {top, R->head.w, R->head.b, (int32_t)R->vocab.first, a->vocab, a->logit_scale, a->logit_softcap, plus};
    p.be->logits(p.ctx, rank, &logits);
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
    for (int i = 0; i < net->cfg.n_ranks; i++) llm__forward(net, i, step->shape.lora);
    return net->cfg.backend->end_step(net->cfg.ctx);
}

LLM__PRIVATE llm_result llm__net_step(llm__net *net, const llm_step *step) {
    llm_result r = llm__net_begin(net, step);
    return r ? r : net->cfg.backend->wait(net->cfg.ctx);
}
