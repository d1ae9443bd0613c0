/* arch_mixtures: what some mixtures of experts of 2025 and 2026 have of their own.
 *
 *   MiMo-V2-Flash   layers that slide have other numbers of key heads, a base of their own and sinks; what attention gives is multiplied
 *                   by attention_value_scale, which the matrix behind it takes in. Published files say hybrid_layer_pattern, 1 where a
 *                   layer slides, and swa_...; sliding_window_size counts the positions before the query's, sliding_window its own, too
 *   Cohere 2 MoE    the first first_k_dense_replace layers see everything or slide in a pattern of their own, and where that is 1
 *                   (prefix_dense_sliding_window_pattern) layers without experts turn q and k though they see everything; RMSNorm if
 *                   rms_norm_eps is said; experts and the shared one are averaged, unless shared_expert_combination_strategy is "sum"
 *   A.X K1          what a layer's experts give together is normalised before it is added, what an MLP gives is not
 *
 * Source: modeling_mimo_v2_flash.py, modeling_cohere2_moe.py and modeling_axk1.py of transformers, llama.cpp's mimo2 and cohere2moe. */
#pragma once
#include "base/platform.h"
#include "model/tensors.h"
#include "model/facts.h"
#include "model/arch.h"

/* Widths and kinds that others follow from. */
LLM__PRIVATE void llm__arch_mixtures_shapes(llm__facts *f, llm__arch *a);

/* What each layer has, when the usual words have been read. */
LLM__PRIVATE void llm__arch_mixtures(llm__facts *f, llm__arch *a, const llm__tensors *tensors);
