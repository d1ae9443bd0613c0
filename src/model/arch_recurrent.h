/* arch_recurrent: families some of whose layers keep a state instead of keys and values.
 *
 *     LFM2, LFM2-MoE                      short convolutions, and attention
 *     Qwen3-Next, Qwen3.5, Qwen3.5-MoE    gated delta nets (Yang et al. 2024), and attention whose result is gated
 *     Mamba 2                             Mamba 2 alone: one block a layer, no MLP
 *     Granite 4                           Mamba 2, and attention without positions
 *     Nemotron-H                          one block a layer: Mamba 2, attention without positions, an MLP or experts without gates
 *
 * What layer a layer is, files say in four ways:
 *     layer_types            a word each: "linear_attention" (Qwen), "conv" (LFM2), "mamba" (Granite), "full_attention" or "attention"
 *     full_attn_idxs         the numbers of those with attention (the first LFM2)
 *     full_attention_interval    every fourth, if nothing is said (Qwen)
 *     hybrid_override_pattern    a letter each, M * - E (Nemotron-H)
 *
 * A state has n_heads heads of (dk, dv) values, keys and queries are those of n_groups groups of heads. Qwen3.5-0.8B, of 24 layers 18 with
 * 16 heads of 128 x 128 values: 18 MB a sequence, as much as its 6 other layers' keys and values of 1,500 tokens take. */
#pragma once
#include "base/platform.h"
#include "model/facts.h"
#include "model/arch.h"

/* Shapes of the states, and what each layer is (llm__arch_layer.mixer). A family without such layers stays as it is. */
LLM__PRIVATE void llm__arch_recurrent(llm__facts *f, llm__arch *a);
