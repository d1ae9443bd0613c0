/* convert_recurrent: layers that keep a state, in the form that llama.cpp has for them.
 *
 *     Mamba 2       in_proj, conv1d, D, norm, out_proj   ssm_in, ssm_conv1d, ssm_d, ssm_norm (groups, width), ssm_out
 *                   A_log, dt_bias                       ssm_a = -e^A_log (heads, 1), ssm_dt.bias
 *     Falcon-H1     the same, with its multipliers in them; the norm only where it has one
 *     Mamba 1       in_proj, conv1d, x_proj, dt_proj     ssm_in, ssm_conv1d, ssm_x, ssm_dt
 *       (Jamba)     dt_layernorm, b_, c_                 ssm_dt_norm, ssm_b_norm, ssm_c_norm
 *                   A_log, D, out_proj                   ssm_a = -e^A_log (channels, state), ssm_d, ssm_out
 *     Kimi Linear   q_proj, k, v, o_proj, b_proj         attn_q, attn_k, attn_v, attn_output, ssm_beta
 *                   q_conv1d, k, v                       ssm_conv1d_q, _k, _v (1, channels, 1, taps)
 *                   f_a_proj, f_b, g_a, g_b              ssm_f_a, ssm_f_b, ssm_g_a, ssm_g_b
 *                   A_log, dt_bias, o_norm               ssm_a, ssm_dt.bias, ssm_norm
 *     LFM2          conv.in_proj, conv, out_proj         shortconv.in_proj, conv, out_proj
 *     Qwen3.5       in_proj_qkv, z, a, b                 attn_qkv, attn_gate, ssm_alpha, ssm_beta
 *     Qwen3-Next    in_proj_qkvz                         attn_qkv and attn_gate: all q, all k, all v, and all z
 *                   in_proj_ba                           ssm_ba, as it is
 *
 * Where several value heads of Qwen3.5 read one key head they change places, in all that has a row, a column or a number for each of
 * them: heads 0 1 2 3, which read key heads 0 0 1 1, become 0 2 1 3, which read 0 1 0 1. Those of Qwen3-Next stay. */
#pragma once
#include "base/platform.h"
#include "model/convert_add.h"

/* What leads into the current layer's state, lies in it, and leads out of it. LLM_ERR_UNSUPPORTED: a bias that GGUF has no name for. */
LLM__PRIVATE void llm__convert_recurrent(llm__converting *g);
