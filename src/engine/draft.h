/* draft: a model that guesses for another one. */
#pragma once
#include "api/config.h"
#include "api/engine.h"
#include "base/platform.h"
#include "model/net.h"
#include "engine/scheduler.h"

/* Opens the draft model, or the model's EAGLE head, on the same device. */
LLM__PRIVATE llm_result llm__drafter_open(llm_engine *e, const llm_engine_config *c, llm__net_config n);

/* The driver's `draft`: fills draft[0 .. n_draft) of n sequences, or shortens n_draft to what could be guessed. Pages that the draft model
 * has filled to their end are marked, last first: before a marked one all are marked. */
LLM__PRIVATE void llm__drive_draft(llm_engine *e, llm__seq *const *seq, int32_t n);
