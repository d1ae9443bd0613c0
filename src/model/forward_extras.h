/* forward_extras: what adapters, EAGLE heads, ranks and pipelines add to the forward pass.
 *
 * One path leads from tokens to logits: >>forward. What stands here is called from it in seven places and does nothing for a model alone on
 * one rank; who wants to know how a model works may skip it.
 *
 *   adapters (LoRA)   what a layer gives has B A x added to it, which lies in a buffer `plus` when the layer computes: see llm_lora_op
 *   ranks             each has a part of the embeddings and of the heads; sums over ranks are made by residual and all_reduce
 *   pipelines         a stage that is not the first receives x instead of looking up embeddings; one that is not the last sends it on
 *   heads (>>eagle)   a head of one layer reads the embedding together with the model's hidden state of the position before, which the
 *                     model keeps in pages for it; EAGLE-3's fc reads the residual stream before three of the model's layers */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/net.h"

/* What every operation needs to know of where it runs. */
typedef struct llm__pass {
    const llm_backend *be;
    llm_backend_ctx *ctx;
    int rank_index, n_group;   /* the operations' `rank`; ranks that share sums */
    const llm__net_rank *rank; /* its weights and buffers */
    const llm__arch *a;
    int lora;           /* a sequence has an adapter */
    int given;          /* some rows are given: pictures */
    int first_layer;    /* of the KV cache: where it has the net's first */
    const float *xielu; /* of the current layer, see llm_linear_op */
} llm__pass;

/* What adapters add to w src, in `plus`; NULL: nothing in this step. */
LLM__PRIVATE const llm_buffer *llm__extra_plus(const llm__pass *p, llm_rows rows, llm_buffer *plus, const llm_buffer *src,
                                               const llm__net_pair *w);

/* dst, from column col on, = w src + b, and what adapters add. */
LLM__PRIVATE void llm__extra_linear(const llm__pass *p, llm_rows rows, const llm__net_pair *w, const llm_buffer *src, llm_buffer *dst,
                                    int32_t col);

/* Where embeddings go: a head that guesses reads them elsewhere than a model. */
LLM__PRIVATE llm_buffer *llm__extra_embedding(const llm__pass *p);

/* Behind the look-up of embeddings: adapters' rows, and the sum over ranks, of which each has found the tokens of its part. */
LLM__PRIVATE void llm__extra_embed(const llm__pass *p, const llm__net *net, llm_buffer *x);

/* Before the first layer of this rank: x of a stage that is not the first; what a head that guesses makes of the embedding. */
LLM__PRIVATE void llm__extra_begin(const llm__pass *p, const llm__net *net);

/* Before layer i of a model: what an EAGLE-3 head's fc makes of the residual stream there; the sum goes to the pages. */
LLM__PRIVATE void llm__extra_tap(const llm__pass *p, const llm__net *net, int i);

/* Behind the last layer of a stage that is not the last: x goes on, and with it what later layers read besides. */
LLM__PRIVATE void llm__extra_send(const llm__pass *p, const llm__net_lane *lane);

/* Columns of this rank's queries and keys in a layer's qkv: with norms over the whole width other ranks' heads stand before them. */
LLM__PRIVATE void llm__extra_columns(const llm__pass *p, const llm__net_layer *layer, int32_t head_dim, int32_t *q, int32_t *k);

/* Behind the last layer, where a head wants hidden states: they are kept in pages, of the model those of all rows (lane), of the
 * head itself those that it guesses from again (src). */
LLM__PRIVATE void llm__extra_keep(const llm__pass *p, const llm__net *net, const llm__net_lane *lane, llm_buffer *src);
