/* openai_body: a body from begin to end. */
#pragma once
#include "api/easy.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/text.h"

/* The base model by any of its names. */
LLM__PRIVATE int llm__oai_is_base(const llm_openai_service *s, llm__str name);
