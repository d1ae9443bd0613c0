/* request: a request from submission to its queue.
 *
 * Its memory is of two kinds. The struct and its arena have sizes that are known at submission: copies of what the caller gave, stop
 * strings, bad words, scores of the prompt, the arrays of its sequences. Only texts grow, and get room beforehand. So a request that cannot
 * be held is refused at once and never fails for lack of memory later. */
#pragma once
#include "api/config.h"
#include "api/engine.h"
#include "api/request.h"
#include "base/platform.h"
#include "engine/scheduler.h"

/* Refuses a prompt's text by its size, before it is tokenized: one of more bytes than a context of the longest tokens has, and more than
 * `least`. The engine has a model. */
LLM__PRIVATE llm_result llm__prompt_fits(const llm_engine *e, size_t len, size_t least);

/* Everything a request owns; nobody else knows it any more. It may be half made: what is NULL was not taken. */
LLM__PRIVATE void llm__request_destroy(llm_request *r);
