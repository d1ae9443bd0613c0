/* raw: The forward pass itself, for teaching, tests and own samplers. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/model.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/request.h"

/* Feeds n tokens of sequence `seq` (0 .. max_num_seqs-1) from position `position` on; logits (n_logits rows of the vocabulary,
 * those of the last n_logits tokens). Not to be mixed with running requests on the same engine. */
LLM_API llm_result llm_forward(llm_engine *engine, int32_t seq, int32_t position, const int32_t *ids, int32_t n, float *logits,
                               int32_t n_logits);
/* The same for several sequences in one ragged batch: counts[i] tokens of sequence seqs[i]; logits (n_seqs, vocab) of each one's last
 * token. */
LLM_API llm_result llm_forward_batch(llm_engine *engine, int32_t n_seqs, const int32_t *seqs, const int32_t *positions,
                                     const int32_t *counts, const int32_t *ids, float *logits);
/* The same for one sequence from its begin, without an engine, by the plain pass of >>reference: for who reads it, and to look whether an
 * engine is right. Slow: a second for some 100 million weights. logits: (n, vocab_size), all rows. LLM_ERR_UNSUPPORTED: the model is not
 * like Llama. Any thread. */
LLM_API llm_result llm_reference_forward(const llm_model *model, const int32_t *ids, int32_t n, float *logits);
LLM_API int32_t llm_logits_size(const llm_engine *engine); /* row length of logits: the model's vocabulary with padding */
/* What a step of choosing a token has left, for llm_sample_steps. */
typedef struct llm_sample_step {
    const char *name; /* "logits", "rules" (penalties, biases), "temperature", "min_p", "top_k", "top_p"; last "draw", or "greedy" */
    double value;     /* of the parameter; of "draw" the random number of [0, 1) */
    int32_t n_left;   /* tokens that can still be chosen */
    int32_t n_top;
    const llm_token_logprob *top; /* (n_top, at most 10) the likeliest of these, best first, with the log of their shares; last the token */
} llm_sample_step;
typedef void (*llm_sample_fn)(void *user, const llm_sample_step *step); /* the step is gone afterwards */

/* Chooses a token from a row of logits step by step, by the plain sampler of >>plain_sampler, and tells of each step that does something
 * (fn may be NULL). ids: (n_ids) prompt and answer so far, for penalties and the random number; the first n_prompt are the prompt. Returns
 * what a request with this seed would say there; min_tokens, stops, bad words and grammars do not act. -1: no token, llm_last_error says
 * why if s is wrong. */
LLM_API int32_t llm_sample_steps(const float *logits, int32_t n, const llm_sampling *s, const int32_t *ids, int32_t n_prompt, int32_t n_ids,
                                 int64_t seed, llm_sample_fn fn, void *user);
/* Samples from one row as a request with s would at output position `position`. */
LLM_API int32_t llm_sample(const float *logits, int32_t n, const llm_sampling *s, int64_t seed, int64_t position);
