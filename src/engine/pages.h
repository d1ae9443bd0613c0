/* pages: the pages of a sequence.
 *
 * pages.n_published <= n_computed / page_tokens: the pages that others may find. n_computed <= n_fed <= n_ids + n_ahead: what is in pages,
 * what was handed over, what there is. The pages have room for n_fed tokens at least. */
#pragma once
#include "api/config.h"
#include "api/engine.h"
#include "base/platform.h"
#include "engine/scheduler.h"

/* Lets go of all pages, the last first (see >>kv). What they held must be computed again, or found in the cache. */
LLM__PRIVATE void llm__seq_release(llm_engine *e, llm__seq *s);

/* Gives the host slots back. */
LLM__PRIVATE void llm__swap_drop(llm_engine *e, llm__seq *s);

/* Pages that became full and computed can be found from now on: by other prompts, and by this sequence itself when it
 * has to give way. The chain of keys goes on from where it was left. */
LLM__PRIVATE void llm__seq_publish(llm_engine *e, llm__seq *s);

/* Pages that n tokens fill, the last perhaps in part. */
LLM__PRIVATE int32_t llm__pages_of(const llm_engine *e, int32_t n_tokens);

/* One page of all ranks, whose bytes follow each other: out of the cache, or (out NULL) into it. */
LLM__PRIVATE llm_result llm__page_move(llm_engine *e, int32_t page, uint8_t *out, const uint8_t *in);

/* Pages for all tokens of a waiting sequence, known ones first. 0: not enough now. One page for each sequence that runs
 * stays free, so that a newcomer is not sent away by the next few tokens of the others. */
LLM__PRIVATE int llm__seq_place(llm_engine *e, llm__seq *s);

/* Back to the queue; its tokens stay. A beam that already knows how it goes on needs its pages no more: it is held
 * until the other beams are as far. */
LLM__PRIVATE void llm__preempt(llm_engine *e, llm__seq *s);

/* Tokens of a sequence that no step has fed yet, one that the device is drawing included. 0: it waits for its next
 * token to be known, or for other beams. */
LLM__PRIVATE int32_t llm__seq_left(const llm__seq *s);

/* 1 if it feeds one token of its answer, and perhaps those before it once more that were drafted. */
LLM__PRIVATE int llm__decodes(const llm__seq *s);

/* 1 if it has something to feed, and the pages for it. */
LLM__PRIVATE int llm__goes_on(const llm_engine *e, const llm__seq *s);

/* Pages for the next token of running[at]. Where none is left the victim gives way; but if that would free none, the
 * sequence that needs the page sits still for this step. 1: go on; 0: it gave way itself, another stands at its place;
 * -1: a step in flight must be applied before anyone can give way. */
LLM__PRIVATE int llm__grow_pages(llm_engine *e, int32_t at);
