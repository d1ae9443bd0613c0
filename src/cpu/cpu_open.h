/* cpu_open: opening the backend: buffers, weights, pages.
 *
 * Order: open, then buffers, weights and sites as the model asks for them, weights_done, kv_open; a draft model's buffers and weights come
 * before kv_open too, with a weights_done of their own. What fails leaves the context in a state that close can take. */
#pragma once
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/packed.h"
#include "cpu/linear.h"
#include "cpu/products.h"
#include "cpu/backend.h"

/* The threads go first: none may look at what is freed. Frees whatever open, buffer, weight and kv_open took, also after one of them failed
 * halfway. */
LLM__PRIVATE void llm__cpu_close(llm_backend_ctx *ctx);

/* Checks the ranges of the config. On error *out is NULL. */
LLM__PRIVATE llm_result llm__cpu_open(const llm_backend_config *cfg, llm_backend_ctx **out);

/* "avx2, 2 threads; ahead=8192,near=0,band=4,signs=16 (AMD Zen 3)": and what the tuning is, and why. */
LLM__PRIVATE const char *llm__cpu_describe(llm_backend_ctx *ctx);

/* Rows start on cache lines. The rounded copy is reserved, but takes memory only when a linear layer asks for it. */
LLM__PRIVATE llm_result llm__cpu_buffer_new(llm_backend_ctx *ctx, int rank, int64_t rows, int64_t cols, llm_buffer **out);

/* Plans a weight; its data is read by weights_done. */
LLM__PRIVATE llm_result llm__cpu_weight(llm_backend_ctx *ctx, int rank, const llm_weight_desc *desc, llm_weight **out);

/* An empty site: n_slots slots that add nothing. */
LLM__PRIVATE llm_result llm__cpu_lora_site(llm_backend_ctx *ctx, int rank, int n_slots, llm_lora_site **out);

/* Adapters are f32, for a product of floats leaves its input as it is. Weights lie in the slot's memory, none has a region of its own. */
LLM__PRIVATE llm_result llm__cpu_lora_put(LLM__UNUSED llm_backend_ctx *ctx, LLM__UNUSED int rank, llm_lora_site *site, int slot,
                                          const llm_lora_part *parts, int n);

/* Packs what came since the last call, and takes the logits: (max_out, the largest vocabulary, of all ranks). */
LLM__PRIVATE llm_result llm__cpu_weights_done(llm_backend_ctx *ctx);

/* Before kv_open: how many pages there will be is worked out from it. */
LLM__PRIVATE int64_t llm__cpu_kv_page_bytes(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens);

/* Lays out a page, takes the pages of every rank and the scratch that attention over them needs. Once. */
LLM__PRIVATE llm_result llm__cpu_kv_open(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens, int64_t n_pages);

/* Bytes of buffers, pages, lists, scratch and packed weights. */
LLM__PRIVATE int64_t llm__cpu_memory_used(llm_backend_ctx *ctx);
