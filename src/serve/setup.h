/* setup: from the words of a person to the structs of the API. */
#pragma once
#include "api/config.h"
#include "api/easy.h"
#include "api/options.h"
#include "base/platform.h"

/* What no row of the table can tell. */
LLM__PRIVATE llm_result llm__setup_check(llm_setup *s, char *(*get)(const char *name));
