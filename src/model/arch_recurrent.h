/* arch_recurrent: families some of whose layers keep a state instead of keys and values.
 *
 *     LFM2, LFM2-MoE                      short convolutions, and attention
 *     LFM3                                the same; attention sees a window or everything, and has a gate of one number for each head,
 *                                         whose matrix is loaded as one with a row for each value (see llm__take_head_gate)
 *     Qwen3-Next, Qwen3.5, Qwen3.5-MoE    gated delta nets (Yang et al. 2024), and attention whose result is gated
 *     Lara Mini                           the same without those gates; attention sees a window, or everything without positions
 *     Kimi Linear                         delta nets in which every key decays by itself ("KDA"), and latent attention without positions
 *     Jamba                               Mamba 1 (Gu and Dao 2023: "S6"), and attention without positions
 *     Mamba, Falcon Mamba                 Mamba 1 alone: one block a layer, no MLP; the latter norms dt, B and C, without weights
 *     Mamba 2                             Mamba 2 alone, in the same way
 *     Bamba                               Mamba 2, and attention that turns half of a head
 *     Granite 4                           Mamba 2, and attention without positions
 *     Falcon-H1                           Mamba 2 and attention side by side in every layer, which read one norm and are added
 *     Nemotron-H                          one block a layer: Mamba 2, attention without positions, an MLP or experts without gates
 *
 * What a layer is, folders say in these ways:
 *     layer_types            a word each: "linear_attention" (Qwen), "conv" (LFM2), "mamba" (Granite), "full_attention" or "attention",
 *                            in LFM3 and Lara Mini "sliding_attention", too
 *     full_attn_idxs         the numbers of those with attention (the first LFM2); attn_layer_indices (Bamba)
 *     full_attention_interval    every fourth, if nothing is said (Qwen)
 *     linear_attn_config     those with attention, counted from 1 (Kimi Linear)
 *     attn_layer_period      attention in every so many, from attn_layer_offset on (Jamba)
 *     hybrid_override_pattern    a letter each, M * - E (Nemotron-H)
 * and GGUF by attention.head_count_kv, a list with 0 for layers without attention, by full_attention_interval, or by
 * attention.recurrent_layers, a list of true and false. Of Falcon-H1 it has the multipliers in the weights.
 *
 * What Falcon-H1 multiplies by goes into the weights when they are loaded (llm__arch_fold), so that nothing is left of it in a step:
 *
 *     attention_in_multiplier     rows of q, k and v         ssm_in_multiplier     all rows of the states' first matrix
 *     key_multiplier              rows of k, its bias        ssm_multipliers       its rows of z, x, B, C and dt, and their biases
 *     attention_out_multiplier    o and its bias             ssm_out_multiplier    the matrix that leads back, and its bias
 *     mlp_multipliers             gate, down                 embedding_multiplier, lm_head_multiplier    scales that others have too
 *
 * So a product with a bias b, y = m (W n x + b), is y = (m n W) x + m b. An adapter's product would want the same factors: it is refused.
 *
 * Kimi's and Jamba's states in the words of llm_recur_op, where all others have one decay a head and row:
 *
 *     KDA    a step for each of the dk keys of a head, through a narrow matrix: s_i = softplus(f_i + bias_i), decay e^(-e^A s_i)
 *     S6     a head for each channel, dv = 1, with one step, but a number A_i for each of the dk keys: decay e^(-e^A_i s); all heads
 *            have the same keys and queries (B and C), and what they write is weighed by the step
 *
 * Mamba 1 makes its steps, keys and queries of what the convolution gives, u, in three ways:
 *
 *     Mamba            dt, B, C = W u;                          step = softplus(W2 dt + bias)
 *     Falcon Mamba     dt, B, C = parts of W u, each divided by the root of its mean square
 *     Jamba            the same, and multiplied by weights
 *
 * In GGUF ssm.dt_b_c_rms tells the first two apart; llama.cpp takes the eps of the other norms there, folders have mixer_rms_eps.
 *
 * A state has n_heads heads of (dk, dv) values, keys and queries are those of n_groups groups of heads. Qwen3.5-0.8B, of 24 layers 18 with
 * 16 heads of 128 x 128 values: 18 MB a sequence, as much as its 6 other layers' keys and values of 1,500 tokens take. */
#pragma once
#include "base/platform.h"
#include "model/tensors.h"
#include "model/facts.h"
#include "model/arch.h"

/* Shapes of the states, and what each layer is (llm__arch_layer.mixer). A family without such layers stays as it is. */
LLM__PRIVATE void llm__arch_recurrent(llm__facts *f, llm__arch *a, const llm__tensors *tensors);
