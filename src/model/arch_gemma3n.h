/* arch_gemma3n: what Gemma 3n has of its own.
 *
 *   AltUp      a token has altup_num_inputs streams, of which a layer computes one, altup_active_idx: see >>forward_altup
 *   LAUREL     a detour of rank laurel_rank around attention
 *   sparse     activation_sparsity_pattern has a share q for each layer: of the MLP's gates only what is above their mean and z deviations
 *              counts, z the quantile of the normal distribution at q. 0.95: z = 1.6449, one gate of twenty is open; 0: all are
 *   shared     keys, and layers' own values, as in Gemma 4; these may be fewer than the tokens (vocab_size_per_layer_input)
 *
 * In GGUF activation_sparsity_scale is the list of z, minus infinity where all gates are open; where it is silent, llama.cpp's constants
 * hold: ten layers of 0.95, keys of their own for the first twenty. Source: modeling_gemma3n.py of transformers, llama.cpp's gemma3n. */
#pragma once
#include "base/platform.h"
#include "model/tensors.h"
#include "model/facts.h"
#include "model/arch.h"

/* The widest MLP of config.json. */
LLM__PRIVATE int32_t llm__arch_gemma3n_ff(llm__facts *f, const llm__arch *a);

/* Streams, LAUREL's rank and layers' own values. */
LLM__PRIVATE void llm__arch_gemma3n_shapes(llm__facts *f, llm__arch *a, const llm__tensors *tensors);

/* What each layer has, when their windows are known. */
LLM__PRIVATE void llm__arch_gemma3n(llm__facts *f, llm__arch *a);
