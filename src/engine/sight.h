/* sight: pictures of requests: when their tower runs, what it made, and what the step is told of it.
 *
 * A request brings its pictures prepared (llm_media). What the tower makes of one (a row of the language model's width for each token that
 * stands for it) belongs to the picture, which all requests with the same content share: the engine knows its pictures by a hash of their
 * pixels, and keeps them after their requests are gone, as long as memory is left (mm_processor_cache_bytes). So a picture that comes
 * again, in the next turn of a chat or from somebody else, is not computed again. The prefix cache goes one further: keys of pages in which
 * a picture has tokens are made of its hash, too, and a prompt that finds them needs neither tower nor language model.
 *
 * The tower runs between steps, in pieces (>>tower): a sequence may feed its tokens up to the first picture that is not there yet. While
 * others decode, a piece takes about as long as a step with a full prompt would; else the tower runs to its end.
 *
 *     step    text before the picture        others decode     others decode      the picture's rows      text behind
 *     tower                         [ layers 0 - 9 ]  [ layers 10 - 19 ]  [ 20 - 31, projector ]
 *
 * Tokens of a picture that see each other both ways (Gemma 3) are computed in one step. So its rows are all there at once or not at all,
 * and two rules keep it from waiting for ever (llm__sight_whole). A step whose caller has set a time exceeds it by one picture: a smaller
 * step would bring it no nearer. And where the answers that decode leave too few rows, its rows are put aside first, and some of them
 * wait for one step:
 *
 *     rows of a step, 16        d d d d d d . . . . . . . . . .       six decode, and a picture of 12 tokens does not fit
 *                               p p p p p p p p p p p p d d d d       its step: four decode
 *                               d d d d d d d . . . . . . . . .       all go on, and it decodes, too */
#pragma once
#include "api/config.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/backend.h"
#include "base/platform.h"
#include "engine/kv.h"
#include "engine/scheduler.h"

/* The tower of the engine's model, if it has one, beside the backend that is open; the caller has set e->sight's limits. */
LLM__PRIVATE llm_result llm__sight_open(llm_engine *e, const llm_backend_config *beside);

LLM__PRIVATE void llm__sight_close(llm_engine *e);

/* Bytes that the tower and its pictures may take. */
LLM__PRIVATE int64_t llm__sight_memory(const llm_engine *e);

/* The tower's weights among it. */
LLM__PRIVATE int64_t llm__sight_weights(const llm_engine *e);

/* Takes a request's pictures over: checks that its prompt has as many places as they need, and shares what is known. Any thread. */
LLM__PRIVATE llm_result llm__sight_submit(llm_request *r, const llm_request_config *cfg, const int32_t *prompt, int32_t n);

/* Lets go of them. Any thread. */
LLM__PRIVATE void llm__sight_release(llm_request *r);

/* How many of the n tokens that a sequence could feed it may feed in this step. */
LLM__PRIVATE int32_t llm__sight_may_feed(const llm_engine *e, const llm__seq *s, int32_t n);

/* Rows that the first in order of those whose prompts are fed must have at once: what is left of a picture whose tokens see each other both
 * ways. 0: it is no picture's turn. */
LLM__PRIVATE int32_t llm__sight_whole(const llm_engine *e);

/* The parent of a page's key, with the pictures that have tokens in it, and where tokens that were drawn went to other experts than they
 * would in a prompt. */
LLM__PRIVATE llm__kv_key llm__sight_key(const llm_engine *e, const llm__seq *s, int32_t page, llm__kv_key parent);

/* What the step is told of a sequence's token at position `at`, in row `row`. */
LLM__PRIVATE void llm__sight_row(llm_engine *e, const llm__seq *s, int32_t at, int32_t row);

/* Runs the tower for the sequences that wait for it; until: where the caller of a step has set a time (llm_engine_step_for). What fails
 * ends the requests that need it. */
LLM__PRIVATE void llm__sight_work(llm_engine *e, double until);
