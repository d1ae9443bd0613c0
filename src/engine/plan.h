/* plan: planning a step. */
#pragma once
#include "api/engine.h"
#include "api/request.h"
#include "base/platform.h"
#include "engine/scheduler.h"

/* The request no longer counts against the queue's limit: it runs, or has ended while it waited. */
LLM__PRIVATE void llm__leave_queue(llm_engine *e, llm_request *r);

/* Chooses the rows of the next step, f. None (f->n 0): nothing can be done before a step in flight is applied, or
 * nothing is there. After a preemption nobody is let in: the pages are for those that run. */
LLM__PRIVATE void llm__plan(llm_engine *e, llm__flight *f);
