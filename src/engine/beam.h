/* beam: beam search.
 *
 * vLLM 0.6's rules. `width` beams live at once. When each has its logits, the best 2 * width continuations of all of them, by the sum of
 * log-probabilities, become children. Children that end (EOS, stop ids and strings, length) join a pool of the `width` best answers; the
 * best `width` others live on. Answers are ranked by score = sum of log-probabilities / length^length_penalty, where the length counts
 * the prompt, but no EOS at the end. The search ends when nothing lives, or the pool is full and no beam can get into it any more: at
 * once with early_stopping 1, by the beam's present length with 0, by the longest possible answer with 2 ("never"). The request has 4
 * times as many sequences: beams, pool and children take free ones of them and leave them again. Beams are ordinary sequences for the
 * scheduler: they may run in different steps, wait, and give way. */
#pragma once
#include "api/engine.h"
#include "api/request.h"
#include "base/platform.h"
#include "engine/scheduler.h"

/* One token further, when every beam knows its candidates; before, nothing. Called for every beam whose row was computed;
 * the last of them finds all ready. */
LLM__PRIVATE void llm__beams_advance(llm_engine *e, llm_request *r, double now);
