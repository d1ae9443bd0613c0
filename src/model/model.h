/* model: the model object and its public side. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "base/platform.h"
#include "base/place.h"

/* llm_model_open (place NULL) and llm_model_open_files, but for what a model sees with. */
LLM__PRIVATE llm_result llm__model_open(const char *path, const llm__place *place, const llm_model_config *cfg, llm_model **out);

/* A model whose files have more senses than m->vision has is read as one that reads alone, which is told, unless that was asked for. */
LLM__PRIVATE void llm__model_senses(llm_model *m, const llm_model_config *cfg);
