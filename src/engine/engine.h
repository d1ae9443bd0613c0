/* engine: threads, backend, model and scheduler together.
 *
 * llm_engine_open opens backend and weights, takes the pages, and makes a scheduler over the driver that runs them.
 * Tests make one over a driver of their own (llm__engine_alloc, parameters, llm__engine_init).
 *
 * Threads. One thread steps; whatever the scheduler knows is its own. Any thread may do the rest:
 *     submit   checks, copies and tokenizes in the caller's thread, then puts the request into the inbox
 *     cancel   sets a flag; the stepping thread sees it before it plans its next step
 *     poll     reads what the request has, under the request's lock
 *     free     gives up the caller's share: a request has two owners, the caller and the engine, and the last to
 *              leave destroys it. So it may be freed at any moment, in a callback too
 * Locks: engine->mutex (inbox, figures), request->mutex (outputs), engine->news_mutex (held while callbacks run, so that after
 * llm_request_free none runs any more). Nobody holds two of the first kinds at once, and the stepping thread holds none while the device
 * computes. Another thread that needs the scheduler's own lists waits for a turn between two steps (llm__turn_take). Flags that are
 * only ever raised (cancelled, freed) and the count of owners are atomic and need no lock.
 *
 * A request's life, and which thread it is in:
 *
 *     llm_request_submit    caller     ranges checked, text to ids, everything copied, all memory taken; into the inbox. refs = 2
 *     llm__take_inbox       stepping   joins e->live; its first sequence queues
 *     llm__plan             stepping   some step has place for it: pages, rows of the prompt; step after step until the prompt is computed
 *     llm__apply            stepping   the prompt's last row gives a token; the other choices fork; then a token a step (drafts: more)
 *     llm__tell_news        stepping   on_news for all of which something is new, once a step
 *     llm_request_poll      caller     reads tokens and texts, whenever it likes
 *     llm__tell_news        stepping   every sequence has ended, the caller was told, no step in flight names it: leaves e->live, refs - 1
 *     llm_request_free      caller     refs - 1; whoever makes it 0 destroys the request
 *
 * A cancel, a deadline, or a step that failed only ends its sequences earlier (llm__request_end): the way out is the same.
 *
 * Memory. All of a request's memory is taken in llm_request_submit; what grows later is only text, which gets room for
 * sixteen bytes a token beforehand. So a step allocates nothing: tests/unit/engine/test_sim.c counts.
 *
 * Time. The scheduler's clock is the driver's and never jumps; the times in llm_request_metrics are wall-clock times of
 * the submission plus differences of that clock, so that they stay in order when somebody sets the clock.
 *
 * Events are not stored. Each sequence knows how many of its tokens were polled and how much text may be shown after
 * each, so a slow reader costs nothing and no queue can overflow. */
#pragma once
#include "api/config.h"
#include "api/engine.h"
#include "base/platform.h"
#include "engine/scheduler.h"

/* Gives back all that an engine has, in whatever state of opening it is; NULL does nothing. Weights go before the backend
 * they live on. Nothing may be in flight. */
LLM__PRIVATE void llm__engine_destroy(llm_engine *e);

/* An engine with nothing but its locks; NULL: no memory. Waiting uses the clock that never jumps. Callbacks may free
 * requests, so their lock may be taken again by its thread. */
LLM__PRIVATE llm_engine *llm__engine_alloc(void);

/* The scheduler of an engine whose parameters are set: over any driver, without a model. On error it is to be destroyed. */
LLM__PRIVATE llm_result llm__engine_init(llm_engine *e);

/* What runs a model; see llm__driver. */
LLM__PRIVATE llm__driver llm__model_driver(void);

/* Pages and the scheduler's lists belong to the thread that steps. Any other thread that wants them for a moment draws a number and waits
 * for its turn, as every step does: between two steps, and first come, first served, for a thread that steps without pause must not shut
 * others out. */
LLM__PRIVATE void llm__turn_take(llm_engine *e);

/* Lets the next number have its turn. */
LLM__PRIVATE void llm__turn_give(llm_engine *e);
