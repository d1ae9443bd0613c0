/* draft: a model that guesses for another one. */
#pragma once
#include "api/config.h"
#include "api/engine.h"
#include "base/platform.h"
#include "model/net.h"
#include "engine/scheduler.h"

/* Opens the draft model, or the model's EAGLE head, on the same device. */
LLM__PRIVATE llm_result llm__drafter_open(llm_engine *e, const llm_engine_config *c, llm__net_config n);
