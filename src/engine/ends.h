/* ends: how sequences and requests end. */
#pragma once
#include "api/config.h"
#include "api/engine.h"
#include "api/request.h"
#include "base/platform.h"
#include "engine/scheduler.h"

/* Ends a sequence in whatever state it is; its outputs stay until the request is freed. Its pages go back, but not
 * under a step in flight. Ending twice does nothing. */
LLM__PRIVATE void llm__seq_finish(llm_engine *e, llm__seq *s, llm_finish finish);

/* Takes back all that a beam has said. */
LLM__PRIVATE void llm__seq_unsay(llm__seq *s);

/* Ends every sequence of a request that has not ended, by force. error: a sentence for llm_request_error, or NULL. Beams
 * are no answers yet, so nothing of them is shown. */
LLM__PRIVATE void llm__request_end(llm_engine *e, llm_request *r, llm_finish finish, const char *error);

/* One of a request's two owners leaves, its caller or the engine; the last to leave destroys it. */
LLM__PRIVATE void llm__request_unref(llm_request *r);

/* Tells callers, the end of a request once. Requests that are done and in no step leave the engine. */
LLM__PRIVATE void llm__tell_news(llm_engine *e);

/* Takes in what was submitted: the list is taken in one piece, so submitters hardly ever wait. Only a request's first
 * sequence queues; the others are held until the prompt is computed. 1: some request that was taken, now or before, is cancelled. Both are
 * read under one lock: a cancel that is seen is never that of a request still in the inbox. */
LLM__PRIVATE int llm__take_inbox(llm_engine *e);

/* Ends what was cancelled or is late, in the queue, in its prompt or in its answer. */
LLM__PRIVATE void llm__sweep(llm_engine *e);
