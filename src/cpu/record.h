/* record: what the backend is asked for, written down as a list of operations.
 *
 * Every function of the table does three things: llm__record_add copies the operation; llm__record_act, of linear layers, sees to the
 * rounded copy of the input; llm__record_uses says what is read and written and how the work is split, and so decides about the barrier. Of
 *
 *     norm(dst h, src x)       by rows    interval 7: x read by rows, h written by rows
 *     linear(dst y, src h)     ANY        h was written in this interval, by rows: a barrier, interval 8
 *     linear(dst z, src h)     ANY        h was last written in interval 7: none; both products run side by side
 *
 * the third needs no barrier, and so a thread that is done with y goes on with z (with inputs of f32; roundings have their own). */
#pragma once
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/packed.h"
#include "cpu/backend.h"

/* The table functions: each copies its operation into the list, checks what could lead outside of memory, and tells what it reads and
 * writes. */
LLM__PRIVATE void llm__cpu_embed(llm_backend_ctx *ctx, int rank, const llm_embed_op *op);

LLM__PRIVATE void llm__cpu_rope(llm_backend_ctx *ctx, int rank, const llm_rope_op *op);

/* y NULL: x is only read, unless it is replaced by its norm. Sums over ranks read the other ranks' y too: see llm__run_residual. */
LLM__PRIVATE void llm__cpu_residual(llm_backend_ctx *ctx, int rank, const llm_residual_op *op);

LLM__PRIVATE void llm__cpu_norm(llm_backend_ctx *ctx, int rank, const llm_norm_op *op);

/* First the rounding, if one is wanted, then the product: two uses, one record. */
LLM__PRIVATE void llm__cpu_linear(llm_backend_ctx *ctx, int rank, const llm_linear_op *op);

/* Two records: all of low must be there before it is multiplied. None where nothing is added. */
LLM__PRIVATE void llm__cpu_lora(llm_backend_ctx *ctx, int rank, const llm_lora_op *op);

/* A norm over the whole row needs the row untouched by others. */
LLM__PRIVATE void llm__cpu_qkv(llm_backend_ctx *ctx, int rank, const llm_qkv_op *op);

LLM__PRIVATE void llm__cpu_attention(llm_backend_ctx *ctx, int rank, const llm_attention_op *op);

/* Two records: all latents must be in the cache before any head attends. */
LLM__PRIVATE void llm__cpu_index(llm_backend_ctx *ctx, int rank, const llm_index_op *op);

LLM__PRIVATE void llm__cpu_mla(llm_backend_ctx *ctx, int rank, const llm_mla_op *op);

/* What is read was written by another step, or by no row of this one. */
LLM__PRIVATE void llm__cpu_state(llm_backend_ctx *ctx, int rank, const llm_state_op *op);

/* Both refuse a state for which the layer's pages have no room. */
LLM__PRIVATE void llm__cpu_conv(llm_backend_ctx *ctx, int rank, const llm_conv_op *op);

LLM__PRIVATE void llm__cpu_recur(llm_backend_ctx *ctx, int rank, const llm_recur_op *op);
LLM__PRIVATE void llm__cpu_streams(llm_backend_ctx *ctx, int rank, const llm_streams_op *op);

/* Refuses what could choose an expert twice, or none: more of them than there are in the groups that stay. */
LLM__PRIVATE void llm__cpu_route(llm_backend_ctx *ctx, int rank, const llm_route_op *op);

LLM__PRIVATE void llm__cpu_experts(llm_backend_ctx *ctx, int rank, const llm_experts_op *op);

LLM__PRIVATE void llm__cpu_gate(llm_backend_ctx *ctx, int rank, const llm_gate_op *op);

/* Reads rows by another split than it writes them. */
LLM__PRIVATE void llm__cpu_gather(llm_backend_ctx *ctx, int rank, const llm_gather_op *op);

LLM__PRIVATE void llm__cpu_all_reduce(llm_backend_ctx *ctx, int rank, llm_rows rows, llm_buffer *buf, int32_t n);

/* Nothing is sent: whoever receives reads it. Stages run one after the other, and buffers stay as they are until the next step. */
LLM__PRIVATE void llm__cpu_send(llm_backend_ctx *ctx, int rank, const llm_buffer *src);

LLM__PRIVATE void llm__cpu_receive(llm_backend_ctx *ctx, int rank, llm_buffer *dst, const llm_buffer *src);

/* Logits go to the context's own memory, which nobody reads before wait: no buffer is written. */
LLM__PRIVATE void llm__cpu_logits(llm_backend_ctx *ctx, int rank, const llm_logits_op *op);

/* The ranks of a stage must have recorded the same operations; they are cut into passes. */
LLM__PRIVATE llm_result llm__cpu_end_step(llm_backend_ctx *ctx);

/* Runs passes until a time: see llm_backend.work. */
LLM__PRIVATE int llm__cpu_work(llm_backend_ctx *ctx, double until, double *longest);

/* All threads run the passes that are left. */
LLM__PRIVATE llm_result llm__cpu_wait(llm_backend_ctx *ctx);

/* What adapters add, if they add something in this step. */
LLM__PRIVATE const llm_buffer *llm__cpu_plus(const llm_buffer *plus);
