/* raw: The forward pass itself, for teaching, tests and own samplers. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/sampler.h"
#include "api/engine.h"

/* Feeds n tokens of sequence `seq` (0 .. max_num_seqs-1) from position `position` on; logits (n_logits rows of the vocabulary,
 * those of the last n_logits tokens). Not to be mixed with running requests on the same engine. */
LLM_API llm_result llm_forward(llm_engine *engine, int32_t seq, int32_t position, const int32_t *ids, int32_t n, float *logits,
                               int32_t n_logits);
/* The same for several sequences in one ragged batch: counts[i] tokens of sequence seqs[i]; logits (n_seqs, vocab) of each one's last
 * token. */
LLM_API llm_result llm_forward_batch(llm_engine *engine, int32_t n_seqs, const int32_t *seqs, const int32_t *positions,
                                     const int32_t *counts, const int32_t *ids, float *logits);
LLM_API int32_t llm_logits_size(const llm_engine *engine); /* row length of logits: the model's vocabulary with padding */
/* Samples from one row as a request with s would at output position `position`. */
LLM_API int32_t llm_sample(const float *logits, int32_t n, const llm_sampling *s, int64_t seed, int64_t position);
