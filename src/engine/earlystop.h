/* earlystop: ends an answer that only repeats.
 *
 * A model caught in a loop is sure of itself: every token of the loop gets a probability near 1. So FastDeploy's rule needs no look at
 * the text: an answer ends when the probability of the sampled token was strictly above a threshold for `window_size` tokens in a row.
 * One counter a sequence says the same as a window of values. The counter belongs to the sequence: it starts at 0 with the answer,
 * survives preemption (a recomputed token is not sampled again) and is never seen by the next one. The token that completes the window
 * is replaced by EOS. At temperature 0 the probability is that of temperature 1, or every greedy answer would end after exactly one
 * window.
 *
 * vLLM's rule looks at the tokens: an answer ends when it ends with one pattern of them, so many times in a row. A pattern of L tokens
 * stands there c times if each of the last L(c - 1) tokens is that which came L before it; most lengths fail at the first one.
 *
 *     ... 7 3 5 9 5 9 5 9        L = 1: 9 is no 5
 *               . . = = = =      L = 2, c = 3: each of the last four is what came two before it
 *
 * The shortest length that fits ends the answer, so a stutter of one token is found before a sentence said twice. What came before the
 * answer is not looked at: a prompt may repeat itself as it likes. */
#pragma once
#include "api/sampler.h"
#include "base/platform.h"

/* A request's own setting wins. A window without a number means FastDeploy's pair of defaults. */
LLM__PRIVATE llm_early_stop llm__early_resolve(const llm_early_stop *own, const llm_early_stop *engine);

/* 1 when this token's probability completes the window. */
LLM__PRIVATE int llm__early_hit(const llm_early_stop *e, int32_t *count, float prob);

/* 1 when the answer ids (n) ends with such a pattern. */
LLM__PRIVATE int llm__repeats(const llm_repetition_detection *d, const int32_t *ids, int32_t n);
