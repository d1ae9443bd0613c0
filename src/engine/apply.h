/* apply: booking what a step computed. */
#pragma once
#include "api/engine.h"
#include "base/platform.h"
#include "engine/scheduler.h"

/* Results of a step: what was computed is booked, rows are sampled in parallel and accepted in order, so that results
 * do not depend on which thread was faster. A row that is not finite fails its request only. Rows of drafted tokens are
 * used in further rounds, one for each token that was right: each finds its sequence as a step of its own would. */
LLM__PRIVATE void llm__apply(llm_engine *e, llm__flight *f);
