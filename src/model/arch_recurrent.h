/* arch_recurrent: families some of whose layers keep a state instead of keys and values.
 *
 *     LFM2, LFM2-MoE                      short convolutions, and attention
 *     Qwen3-Next, Qwen3.5, Qwen3.5-MoE    gated delta nets (Yang et al. 2024), and attention whose result is gated
 *     Mamba 2                             Mamba 2 alone: one block a layer, no MLP
 *     Granite 4                           Mamba 2, and attention without positions
 *     Nemotron-H                          one block a layer: Mamba 2, attention without positions, or an MLP */
#pragma once
#include "base/platform.h"
#include "model/facts.h"
#include "model/arch.h"

/* Shapes of the states, and what each layer is (llm__arch_layer.mixer). A family without such layers stays as it is. */
LLM__PRIVATE void llm__arch_recurrent(llm__facts *f, llm__arch *a);
