/* arch_gemma4: what layers of Gemma 4 differ in, and what they share.
 *
 *   sliding layers   num_key_value_heads heads of head_dim, a window, RoPE over the whole head
 *   full layers      heads of global_head_dim; with attention_k_eq_v num_global_key_value_heads of them, whose values are the raw keys
 *                    (transformers from 5.24 on saves both as per_layer_config, an object of layers by number).
 *                    "proportional" RoPE: pairs stand half a head apart, but only the first share of them turns
 *   the last num_kv_shared_layers have queries alone, and attend to the keys and values of the last layer of their kind before them;
 *                    with use_double_wide_mlp their MLP is twice as wide
 *   every layer      with hidden_size_per_layer_input reads values of its own for each token, from a second table and a projection of the
 *                    embedding; its output is multiplied by a number, layer_scalar
 *   enable_moe_block experts beside the MLP, each with norms before and behind
 *
 * Five layers s f s s f (s: sliding, f: full) of which two share, heads of 16 and 32 values, an MLP of 96:
 *
 *     layer             0     1     2     3     4
 *     kind              s     f     s     s     f
 *     width of a head  16    32    16    16    32
 *     keys of layer     0     1     2     2     1     so the cache has three layers, of two shapes
 *     MLP              96    96    96   192   192
 *
 * The share of a full head of 32 values that turns is told as 0.25: pairs (0, 16) to (3, 19) turn by base^(-2i / 32), the other twelve
 * stay.
 *
 * The same two kinds of layers in the words of the first config.json, and as transformers saves them from 5.24 on (numbers of layers,
 * from 0, with what each has otherwise; what is as for all is left out, so that an empty object means layers that are all alike):
 *
 *     "head_dim": 16, "global_head_dim": 32, "num_key_value_heads": 2, "attention_k_eq_v": true, "num_global_key_value_heads": 1
 *
 *     "head_dim": 16, "num_key_value_heads": 2, "attention_k_eq_v": true,
 *     "per_layer_config": {"1": {"head_dim": 32, "num_key_value_heads": 1}, "4": {"head_dim": 32, "num_key_value_heads": 1}}
 *
 * Source: modeling_gemma4.py of transformers, and for GGUF llama.cpp's gemma4. */
#pragma once
#include "base/platform.h"
#include "model/tensors.h"
#include "model/facts.h"
#include "model/arch.h"

/* Widths of heads, before anything is asked of RoPE. */
LLM__PRIVATE void llm__arch_gemma4_shapes(llm__facts *f, llm__arch *a, const llm__tensors *tensors);

/* How many values each layer has of its own for a token, `usual` where a file says nothing, and for how many tokens. */
LLM__PRIVATE void llm__arch_own_values(llm__facts *f, llm__arch *a, const llm__tensors *tensors, int32_t least, int32_t usual);

/* The last `shared` layers read the keys and values of the last layer before them that sees as far. */
LLM__PRIVATE void llm__arch_shared_keys(llm__facts *f, llm__arch *a, int32_t shared);

/* All else, when the windows of the layers are known. GGUF tells by a missing tensor that values are keys. */
LLM__PRIVATE void llm__arch_gemma4(llm__facts *f, llm__arch *a, const llm__tensors *tensors);
