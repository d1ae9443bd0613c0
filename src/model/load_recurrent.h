/* load_recurrent: weights of recurrent layers, and how ranks share them.
 *
 * What files store in different ways becomes one matrix that leads in, its rows in the order of llm__net_state:
 *   Qwen3.5      rows of in_proj_qkv, in_proj_z, in_proj_a, in_proj_b
 *   Qwen3-Next   in_proj_qkvz and in_proj_ba go key head by key head: of each its q, its k, then v and z of its value heads
 *   Mamba 2      in_proj has z, x, B, C, dt
 *   LFM2         in_proj has B, C, x
 *   Mamba 1      in_proj has x, z
 *   Kimi Linear  rows of q_proj, k_proj, v_proj, or of all in one, and b_proj
 * GGUF has the same, Qwen3-Next's q, k, v and z apart, and Qwen3.5's value heads in another order, which stays as it is: of 4 heads whose
 * keys two groups have, 0 1 2 3, it has 0 2 1 3, so that groups take turns (llm_recur_op.turns).
 * Ranks share heads; a rank has its heads' columns of the convolution, and their part of the state. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/net.h"

/* A rank's heads, and where its columns are. Refuses what cannot be divided among n ranks. */
LLM__PRIVATE llm_result llm__state_share(const llm__arch *a, int rank_index, int n, llm__net_state *s);

/* What leads into a recurrent layer, lies in it, and leads out of it. */
LLM__PRIVATE void llm__load_recurrent(llm__loader *L, const llm__net_rank *rank, llm__net_layer *layer);
