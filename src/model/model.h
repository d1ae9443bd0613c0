/* model: the model object and its public side. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "base/platform.h"

/* llm_model_open, but for what a model sees with. */
LLM__PRIVATE llm_result llm__model_open(const char *path, const llm_model_config *cfg, llm_model **out);
