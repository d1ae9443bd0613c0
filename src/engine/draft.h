/* draft: a model that guesses for another one.
 *
 * A small model with the same tokens guesses for a large one. It is a second network on the same device, and its keys and values lie in the
 * same pages, as further layers behind the model's own: so whatever happens to pages (sharing, the prefix cache, forks, eviction) happens
 * to both, and a page has one more bit that tells whether the draft model has computed it (llm__kv). It runs only when somebody drafts, so
 * it may be behind: its first pass reads all tokens of a sequence that it has not seen, and gives the first guess; each further pass reads
 * the guess before. k tokens take k passes, for all sequences that draft together:
 *
 *     pass 0   rows draft.n_computed ... n_ids - 1    guesses draft.ids[0]
 *     pass k   a row: draft.ids[k - 1]                guesses draft.ids[k]
 *
 * Three tokens for a sequence whose last 5 of 40 ids the draft model has not seen: pass 0 has 5 rows, passes 1 and 2 one each. Then the
 * model checks all three in one step of 4 rows, its own last token and the guesses. If the first two are right and the third is not, the
 * step gives 3 tokens: the two, and what the model says instead of the third. The keys and values that a wrong guess left in pages lie
 * beyond the sequence's end and are written over.
 *
 * Its guess is drawn from its own logits by the same rules, a grammar's mask behind the guesses before it too, and with the same random
 * number that the model's token at this position will be drawn with. Where the two distributions are alike, so are the tokens then, also at
 * high temperatures. */
#pragma once
#include "api/config.h"
#include "api/engine.h"
#include "base/platform.h"
#include "model/net.h"
#include "engine/scheduler.h"

/* Of "[mtp]", which names the model's own next layer, what stands behind it: a path, or nothing. NULL: another speculative_model. */
LLM__PRIVATE const char *llm__drafts_ahead(const char *speculative_model);

/* Opens the draft model, or the head that reads the model's hidden states, on the same device. */
LLM__PRIVATE llm_result llm__drafter_open(llm_engine *e, const llm_engine_config *c, llm__net_config n);

/* The driver's `draft`: fills draft.ids of n sequences with up to draft.n tokens each, and lowers draft.n to as many as could be guessed.
 * Pages that the draft model has filled to their end are marked, the last first, so that all pages before a marked one are marked. */
LLM__PRIVATE void llm__drive_draft(llm_engine *e, llm__seq *const *seq, int32_t n);
