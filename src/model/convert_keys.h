/* convert_keys: the settings of a folder as keys of GGUF.
 *
 * They are taken from what >>arch has made of config.json, not from config.json itself: whatever a publisher calls a setting, and whatever
 * his family has where the file is silent, it has one name and one value there. So what is written is what this engine computes with, and
 * read again it gives the same. Of SmolLM2-135M:
 *
 *     general.architecture              llama         llama.attention.head_count               9
 *     general.type                      model         llama.attention.head_count_kv            3
 *     general.name                      SmolLM2-135M  llama.attention.key_length               64
 *     llama.block_count                 30            llama.attention.value_length             64
 *     llama.context_length              8192          llama.attention.layer_norm_rms_epsilon   0.00001
 *     llama.embedding_length            576           llama.rope.freq_base                     100000
 *     llama.feed_forward_length         1536          llama.rope.dimension_count               64
 *     llama.vocab_size                  49152
 *
 * Families add what they have: mixtures expert_count and how experts are chosen, latent attention its ranks, Gemma 2 its caps, Granite its
 * multipliers. What a family always does is its reader's to know, and has no key: Gemma's embedding is multiplied by the root of its width
 * in every reader. Windows: attention.sliding_window, and where some layers see everything, every so many of them or a list. Stretched
 * positions: rope.scaling.type "linear" or "yarn" with the factor and the length that it starts from; Llama 3 and LongRoPE change each
 * frequency by a number of its own, which stands in a tensor.
 *
 * Some numbers are llama.cpp's own where a config has a word for them. They are written where a model has others, under the names that
 * llama.cpp has elsewhere, and read here; llama.cpp passes over them:
 *
 *     llama4.attention.sliding_window            24    attention_chunk_size, usually 8192
 *     llama4.attention.sliding_window_pattern    4     or a list, true where a layer has a window and positions
 *     llama4.attention.temperature_length        10    floor_scale, usually 8192
 *     llama4.attention.temperature_scale         0.3   attn_scale, usually 0.1; 0: attn_temperature_tuning is false
 *     phimoe.router_jitter_noise                 0.2   usually 0.01
 *
 * Which layers of Llama 4 have experts is interleave_moe_layer_step, every so many; of Jamba those that have a router. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "base/platform.h"

/* Appends general.* and ARCHITECTURE.*. LLM_ERR_UNSUPPORTED: a setting that has no key. */
LLM__PRIVATE llm_result llm__convert_keys(const llm_model *m, llm_text *keys, uint64_t *n_keys);

/* Whether frequencies are changed one by one: 1 by one set of divisors (Llama 3), 2 by two (LongRoPE); 0: not so. */
LLM__PRIVATE int llm__convert_rope_form(const llm_model *m);

/* These divisors: (rope_dim / 2); of LongRoPE the set for long texts, or for short ones: PhiMoE has
 * both in its file, though transformers takes the latter for all lengths. */
LLM__PRIVATE void llm__convert_divisors(const llm_model *m, int is_long, float *out);
