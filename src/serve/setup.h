/* setup: from the words of a person to the structs of the API. */
#pragma once
#include "api/config.h"
#include "api/easy.h"
#include "api/model.h"
#include "api/engine.h"
#include "api/options.h"
#include "api/openai.h"
#include "base/platform.h"

/* What no row of the table can tell. */
LLM__PRIVATE llm_result llm__setup_check(llm_setup *s, const llm_options *o, char *(*get)(const char *name));

/* The result of what read an option, its sentence in the words of the user. */
LLM__PRIVATE llm_result llm__setup_said(llm_result r, const llm_options *o, int argc, char **argv, char *(*get)(const char *name));

/* llm_setup_read up to the check: what was said goes into the target of `o`. config: the member of the setup in there. */
LLM__PRIVATE llm_result llm__setup_options(const char *const *config, llm_options *o, int argc, char **argv, char *(*get)(const char *name),
                                           llm_option_list *words);

/* llm_setup_service, where the sampling that `o` has set stands at such an offset of its target, with so many bytes that are known here. */
LLM__PRIVATE void llm__setup_service(const llm_setup *s, const llm_options *o, size_t sampling, size_t size, const llm_model *model,
                                     llm_engine *engine, llm_openai_service *out);
