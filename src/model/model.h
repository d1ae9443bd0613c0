/* model: the model object and its public side. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "base/platform.h"
#include "base/place.h"

/* llm_model_open (place NULL) and llm_model_open_files, but for what a model sees with. */
LLM__PRIVATE llm_result llm__model_open(const char *path, const llm__place *place, const llm_model_config *cfg, llm_model **out);

/* A model that sees or hears is not taken for one that reads, unless its text part alone is asked for: LLM_ERR_UNSUPPORTED where its files
 * have more senses than m->vision has. */
LLM__PRIVATE llm_result llm__model_senses(const llm_model *m, const llm_model_config *cfg);
