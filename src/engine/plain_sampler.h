/* plain_sampler: choosing a token step by step, as the parameters are explained.
 *
 * * Read this before >>sampler, which does the same in three passes over the logits and without sorting. A list of all tokens with the
 * logits that the model gave them, from the largest to the smallest, goes through the steps; each bends the numbers or cuts the end off,
 * and can be watched. In words, for four tokens:
 *
 *  *     logits                     cat 5.0   dog 4.0   sky 2.0   the 0.0
 *     rules                      penalties and biases are added, what is forbidden becomes -infinity
 *     temperature 0.5            cat 10    dog 8     sky 4     the 0         divided: differences grow below 1, and shrink above
 *     their shares (softmax)     0.879     0.119     0.002     0.00004       exp of each, divided by the sum of all
 *     min_p 0.1                  cat, dog: a share of at least a tenth of the largest
 *     top_k 40                   the 40 with the largest; ties with the last stay
 *     top_p 0.95                 cat, dog: as many as it takes until their shares are 95 % of what is left
 *     draw                       a number of [0, 1) falls on one of them, by their shares, in the order of their ids
 *
 * * At temperature 0 the largest logit wins, and the lower id where two are equal. */
#pragma once
#include "api/raw.h"
#include "base/platform.h"
#include "engine/sampler.h"

/* The token that llm__choose takes with the same seed and position; -1: no logits that are finite, or nothing is allowed; no memory. fn is
 * told of every step that does something; NULL: nobody. */
LLM__PRIVATE int32_t llm__plain_sample(const float *row, int32_t n, const llm__rules *r, uint64_t seed, int64_t position, llm_sample_fn fn,
                                       void *user);
