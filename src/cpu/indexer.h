/* indexer: which positions latent attention looks at: see llm_index_op.
 *
 * A row of a long context scores every position before it with heads that are few and narrow beside those of attention (DeepSeek-V3.2: 64
 * of 128 numbers against 128 of 576, and no values), and attends to the best alone. At 8,192 positions, of which 2,048 are chosen:
 *
 *     all positions    8,192 * 128 * (576 + 512) = 1,141 million multiply-adds a row and layer
 *     an indexer       8,192 *  64 * 128         =    67 million, and 2,048 * 128 * (576 + 512) = 285 million
 *
 * Scores are made as those of attention are: tiles of heads against blocks of 64 keys, with the same products. A score is the sum over
 * heads in their order, so it does not depend on who computes it, nor on what else is in the step.
 *
 * The choice is exact, and a function of the scores: a position is chosen if fewer than k are better, which are those with a higher score
 * and earlier ones with the same. With k = 3:
 *
 *     score     0.5  0.2  0.9  0.2  0.2  0.0
 *     chosen    yes  yes  yes  no   no   no       of three equal ones the first
 *
 * The k-th best score is found by its bits, which order floats as integers once negative ones are turned round: 11 bits at a time, from the
 * highest, positions are counted by what they have there. Four times through the scores, whatever they are.
 *
 * Steps with more such rows than threads are cut by rows: a thread scores and chooses. With fewer, as in decoding, rows are cut into
 * stretches of positions, and a second record chooses when all have been scored. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/operations.h"

/* The k best of n > k scores, as positions, ascending. -0 is 0; what is no number comes last. */
LLM__PRIVATE void llm__best_positions(const float *score, int32_t n, int32_t k, int32_t *chosen);

/* How many rows of the step have more than topk positions to see. */
LLM__PRIVATE int llm__index_rows(const llm_step *s, int32_t topk);

/* One row: norm and rotation of its key, which goes to the cache, and rotation of its queries. */
LLM__PRIVATE void llm__run_index_write(const llm__run *r, int row);

/* Scores, and with more rows than threads the choice. */
LLM__PRIVATE void llm__run_index(const llm__run *r);

/* The choice of rows that are no more than the threads. */
LLM__PRIVATE void llm__run_choose(const llm__run *r);
