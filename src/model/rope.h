/* rope: rotary positions.
 *
 * RoPE (Su et al. 2021) turns the i-th pair of values of a head by the angle position * w[i], w[i] = base^(-2i/d), so that
 * the score of a query and a key depends on how far apart they stand. A model trained on short texts (L tokens) reads
 * longer ones when its slow frequencies, which never came round in training, are slowed further by a factor s:
 *   linear     w'[i] = w[i] / s                                  (Chen et al. 2023)
 *   dynamic    base' = base * s^(d / (d - 2)), s from the length of the prompt, once it is longer than L; of Hunyuan s is
 *              its alpha, for prompts of any length
 *   yarn       w'[i] = w[i] * (1 - r) + w[i] / s * r, r rises from 0 to 1 between two frequencies, given by how often
 *              they turn within L; cosines and sines are multiplied by 0.1 ln s + 1
 *   llama3     the same with r falling in the number of turns itself, and no multiplier
 *   longrope   w'[i] = w[i] / f[i], the f found by search, one set up to L and one beyond; of Phi-3.5-MoE both lengths
 *              have the first set in transformers, and a multiplier each
 * All this is worked out once, here, in double; a step only multiplies positions by the frequencies. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "model/source.h"
#include "model/facts.h"
#include "model/arch.h"

/* Reads the architecture of an opened model. `dummy`: there are no tensors to look at, so the family's habit decides
 * about the output matrix. For GGUF the vocabulary is the embedding's height: files may lack the key. */
LLM__PRIVATE llm_result llm__arch_read(const llm__source *s, int dummy, llm__arch *a);

/* The base of the frequencies: the files' own, or `base`, stretched where a family's scheme does only that. */
LLM__PRIVATE double llm__rope_base(llm__facts *f, const llm__arch *a, double base);

/* What a caller says over the files: TurboMind's rope_scaling_factor, dynamic NTK by the prompt's length (0: as the files say), and
 * use_logn_attn. path: for messages. */
LLM__PRIVATE llm_result llm__rope_override(llm__arch *a, double factor, int logn, const char *path);

/* What rope.scaling.yarn_log_multiplier of a GGUF file is of mscale_all_dim: that itself, but a tenth where attention is latent. */
LLM__PRIVATE double llm__yarn_log_unit(const llm__arch *a);
