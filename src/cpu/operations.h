/* operations: what each operation computes.
 *
 * Either for one row (called for each row of a thread's share), or for a thread's whole share. What each computes is said where its struct
 * is declared; here stands how. None allocates, none waits. Scratch is the thread's own: at least four rows of the widest buffer, and what
 * attention over the widest heads needs; nothing in it outlives the call. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"
#include "cpu/kv_cache.h"
#include "cpu/backend.h"

/* What an operation is called with. */
typedef struct llm__run {
    const llm_backend_ctx *ctx;
    const llm__exec *e;
    llm__record *rec;
    int rank, sub;
} llm__run;

/* A row of a buffer: (cols) floats, on a cache line. */
LLM__PRIVATE float *llm__row(const llm_buffer *b, int row);

/* dst = norm(src) of one row; dst may be src. w and b may be NULL: 1 and 0. */
LLM__PRIVATE void llm__norm_row(const llm__kernels *k, llm_norm_kind kind, float *dst, const float *src, int n, const float *w,
                                const float *b, float eps);

/* What a sequence and KV head of a layer look like to the attention kernels. */
LLM__PRIVATE llm__kv_view llm__view(const llm__run *r, int layer, int seq, int head);

/* One row of x: see llm__run_embed_row. */
LLM__PRIVATE void llm__run_embed(const llm__run *r, int row);

/* One row of dst (rope_dim): cosines, then sines, of position * frequency (RoPE, Su et al. 2021), with the variant of frequencies and the
 * base that its sequence has. Angles in double: position times frequency reaches thousands, and f32 would lose the fraction. */
LLM__PRIVATE void llm__run_rope(const llm__run *r, int row);

/* x += scale * post_norm(sum over ranks of y); h = norm(x): everything between two linear layers, on rows that stay in the cache. */
LLM__PRIVATE void llm__run_residual(const llm__run *r, int row);

/* One row: n columns of src, from src_col on, to the first n of dst, which may be src. */
LLM__PRIVATE void llm__run_norm(const llm__run *r, int row);

LLM__PRIVATE void llm__run_linear_op(const llm__run *r);

LLM__PRIVATE void llm__run_logits_op(const llm__run *r);

/* Split by (row, KV head), so that a single row keeps several threads busy. */
LLM__PRIVATE void llm__run_qkv(const llm__run *r);

/* Threads take jobs until none is left: up to 48 queries, of some rows and some heads of one KV head, against the positions of one sequence
 * (FlashAttention, Dao et al. 2022: scores are never stored but for a block of 64 positions). Queries are scaled into units of the base-2
 * logarithm (with a soft cap, that comes after it). */
LLM__PRIVATE void llm__run_attention(const llm__run *r);

/* Latent attention (DeepSeek-V2), first part: norm of the latent, rotation of the shared key and of every head's query, write to the cache.
 */
LLM__PRIVATE void llm__run_mla_write(const llm__run *r, int row);

/* q . k = q . (U c) = (U^T q) . c for a latent c and the key rows U of a head, and the same on the way out: so keys are never made. A token
 * of DeepSeek-V2 has 512 + 64 numbers in the cache where 128 heads of keys and values would have 40,960.
 *
 * Second part, absorbed: a head's query is taken into the latent space by its part of kv_b (n_heads, nope + v_dim, rank), so that keys and
 * values are the latents themselves; what attention gives there goes through the head's value rows of kv_b. An adapter of kv_b is the
 * sequence's own at both ends: (U + B A)^T q and (U + B A) o. */
LLM__PRIVATE void llm__run_mla(const llm__run *r);

/* A row to its pages, or from those of the position before. */
LLM__PRIVATE void llm__run_state(const llm__run *r, int row);

/* DeepSeek-V3, for instance: sigmoids of 256 scores in 8 groups; the 4 groups whose two best sum to most; in these the 8 best experts;
 * their weights divided by their sum.
 *
 * One row: scores, choice by score plus correction, weights by score alone. The result (2 k): ids, then weights. Not-a-number counts as the
 * lowest score, so that every id is valid. */
LLM__PRIVATE void llm__run_route(const llm__run *r, int row);

/* Experts use scratch that all threads share. */
LLM__PRIVATE void llm__run_experts_op(const llm__run *r);

/* Row i of dst = the i-th wanted row of src. RECEIVE: a row of the stage before, whose lists have ended; the thread that reads it has
 * written it. */
LLM__PRIVATE void llm__run_gather(const llm__run *r, int row);

/* First half: low = a src; of an embedding, the token's row of a. */
LLM__PRIVATE void llm__run_lora_down(const llm__run *r);

LLM__PRIVATE void llm__run_lora_up(const llm__run *r);

/* Run once for all ranks of a stage, when it is the first one's turn: every rank's buffer gets the sum, added up in rank order. A row is
 * one thread's on all ranks, so nothing has to wait in between. */
LLM__PRIVATE void llm__run_all_reduce(const llm__run *r, int row);
