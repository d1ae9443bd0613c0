/* speculate: guesses what comes next, so that one step can check several tokens.
 *
 * A step with one row reads every weight for one token. With five rows of the same sequence it reads them once, too: on
 * a processor that waits for its memory they cost little more. So somebody cheap guesses the next k tokens (the draft),
 * the step computes the newest token and the draft behind it, and the k + 1 rows of logits are then used one after the
 * other exactly as the rows of k + 1 steps would be: choose a token, with all rules as they stand now; if it is the
 * drafted one, the next row was computed for the right beginning and is used as well; if not, the rows behind it
 * are forgotten, and what they wrote to the KV cache is overwritten by the next step.
 *
 *     ids so far   the cat sat on       draft: the mat and
 *     rows         on  the  mat  and          what the model says after each: the  mat  .  (not used)
 *     kept             the  mat               the answer grows by three: the, mat, and the "." of its own choice
 *
 * Nothing changes in what is said, to the bit. The logits of a row do not depend on the rows beside it, and the random
 * number of a position depends on seed and position alone (>>sampler): a drafted token is kept exactly if it is the one
 * that would have been drawn. So there is no rejection sampling (Leviathan et al. 2023, Chen et al. 2023), which keeps
 * the distribution but not the tokens: here grammars, penalties, stops, early stop and seeds need no second set of rules.
 *
 * Where drafts come from:
 *   prompt lookup   the latest place where the sequence's last few tokens stood before, and what followed there (Saxena
 *                   2023; vLLM's [ngram]). Free, and right where text is repeated: edits, code, quotes, JSON.
 *   a draft model   a small model with the same tokens (see >>draft).
 *   a head          one layer that reads the model's own hidden states: EAGLE's, EAGLE-3's, or one that the model was trained with and
 *                   has in its files (multi-token prediction). See >>eagle.
 *   a grammar       where it leaves one text only, as behind {"na of a schema whose one key is "name" (llm__matcher_ahead), in every
 *                   engine, asked before the others. SGLang calls it jump-forward: it puts the text into the answer and tokenizes it
 *                   again. Here it is a draft like any other, so the model still has the choice between the tokens that spell this
 *                   text (name, or na and me), and log-probabilities are those of a plain run.
 *
 * Where layers keep a state instead of keys (>>recurrent), nothing that a wrong guess left would be overwritten; so the states forget all
 * guesses, and those that were right are rows of the next step as well: each row is taken to cost twice.
 *
 * A row that is not kept has cost time, so it must be worth it: a step that gives n tokens in T seconds gains by one
 * more row of B seconds only if its chance to be kept is above B n / T. T and B are measured while the engine runs,
 * as a straight line through the latest steps; the chance of a sequence follows its latest drafts. Both are guesses, so the chance
 * must be a quarter higher, and B is never believed to be next to nothing, however noisy the machine. In a large batch B n is nearly T,
 * so drafting ends by itself, as it does for a sequence whose drafts are mostly wrong. Where a grammar allows one token only, it will be
 * kept: it is drafted without asking, and says nothing about the chance of others. */
#pragma once
#include "base/platform.h"

enum { LLM__JUMP_MAX = 8 }; /* tokens that a grammar drafts at once */
#define LLM__CHANCE 0.5f    /* that a drafted token is kept, before anything is known */

/* Seconds of a step as a straight line over its rows: means, variance and covariance of the latest steps that only
 * decoded, each new one with a weight of 1/64. */
typedef struct llm__pace {
    double weight;        /* of the next step: 1, 1/2, 1/3 ... 1/64; 0: none yet */
    double rows, seconds; /* means */
    double rows2, both;   /* variance of the rows, covariance */
} llm__pace;

/* A step that was held up by something else would bend the line: none counts for more than half above the mean of late. */
LLM__PRIVATE void llm__pace_note(llm__pace *p, double rows, double seconds);

/* What a step is expected to give, and in which time, while rows are added to it. */
typedef struct llm__bargain {
    double tokens, seconds, row; /* row: what one more costs */
} llm__bargain;

/* A step of n sequences that decode. Until steps of really different sizes were seen, a row is taken for 15 % of a step of one row, with
 * the weight of a variance of 1/4, and more where there are many; it never counts for less than 5 %. */
LLM__PRIVATE llm__bargain llm__pace_step(const llm__pace *p, int32_t n);

/* How many tokens of a draft to check, at most `most`: while the next one, which counts only if those before it are right as
 * well, makes the bargain better, by a clear margin. The chance of a sequence whose drafts
 * are not worth it rises slowly, so that it tries again after a while. */
LLM__PRIVATE int32_t llm__draft_length(float *chance, llm__bargain *b, int32_t most);

/* The sequence's chance after a draft of n tokens of which `kept` were right; each token weighs 1/8. */
LLM__PRIVATE float llm__chance_after(float chance, int32_t n, int32_t kept);

/* Prompt lookup: the n ids end in tokens that stood somewhere before. Of all places where at least `low` of them did, the one with
 * the most (no more than `high` are compared), of these the latest, shows how it goes on. A draft may run into itself: then
 * the text repeats. Fills `draft` with `want` tokens and returns how many, or 0. */
LLM__PRIVATE int32_t llm__draft_lookup(const int32_t *ids, int32_t n, int32_t low, int32_t high, int32_t *draft, int32_t want);
