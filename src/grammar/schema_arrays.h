/* schema_arrays: arrays of a schema. */
#pragma once
#include "base/platform.h"
#include "grammar/machine.h"
#include "grammar/schema.h"

/* A list, in brackets. */
LLM__PRIVATE llm__gr_frag llm__js_array(llm__js *js, const llm__js_view *v);
