/* revert_config: the settings of a GGUF file as config.json.
 *
 * As in >>convert_keys, they are taken from what >>arch has made of the file, so what is written is what this engine computes with. The
 * family is the first that has GGUF's name, but for names that several share: "llama" with experts is mixtral, with a window mistral;
 * "deepseek2" with sigmoids deepseek_v3. Of SmolLM2-135M:
 *
 *     {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30,
 *      "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "intermediate_size": 1536, "rms_norm_eps": 1e-05,
 *      "rope_theta": 100000.0, "max_position_embeddings": 8192, "vocab_size": 49152, "tie_word_embeddings": true, ...}
 *
 * What GGUF keeps silent about, because every reader of a family knows it, has to be said here: of Gemma 3 the base of the local layers
 * and which layers these are, of SmolLM3 which layers have no positions, of mixtures from which layer on there are experts. Biases and q/k
 * norms are known by their tensors. Beside the settings above, families have
 *
 *     mixtral                  num_local_experts, num_experts_per_tok
 *     qwen2_moe, qwen3_moe     num_experts, moe_intermediate_size, norm_topk_prob, shared_expert_intermediate_size, mlp_only_layers
 *     deepseek_v2, _v3         n_routed_experts, n_shared_experts, first_k_dense_replace, n_group, topk_group, routed_scaling_factor,
 *                              scoring_func, topk_method; q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim
 *     glm4_moe                 the same experts, use_qk_norm
 *     ernie4_5_moe             moe_num_experts, moe_k, moe_num_shared_experts, moe_layer_start_index
 *     gemma2, gemma3_text      query_pre_attn_scalar, attn_logit_softcapping, final_logit_softcapping, sliding_window, layer_types
 *     granite                  embedding_multiplier, residual_multiplier, attention_multiplier, logits_scaling
 *     cohere                   logit_scale, layer_norm_eps
 *     glm4, phi3               partial_rotary_factor; longrope of Phi-3: short_factor, long_factor, original_max_position_embeddings
 *     smollm3                  no_rope_layers
 *     mistral, starcoder2      sliding_window, null where all layers see everything
 *
 * Llama 3's stretched positions stand in GGUF as a divisor of each frequency: they become the four numbers of "llama3" again, if these
 * give the same divisors. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "base/platform.h"

/* The model_type of a GGUF model that has a form as a folder here; NULL: it has none. */
LLM__PRIVATE const char *llm__revert_family(const llm_model *m);

/* Appends the whole of config.json; dtype: "bfloat16", ... LLM_ERR_UNSUPPORTED: a setting that has no form there. */
LLM__PRIVATE llm_result llm__revert_config(const llm_model *m, const char *dtype, llm_text *out);
