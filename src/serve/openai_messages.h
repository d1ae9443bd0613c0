/* openai_messages: messages of chats and items of responses.
 *
 * A chat is a list of {"role", "content"}; content is a text or a list of parts, of which only texts can be read by the models here. */
#pragma once
#include "api/easy.h"
#include "api/openai.h"
#include "base/platform.h"
#include "serve/openai.h"

/* What a response cannot have, and whether it is to have log-probabilities. Other things to include are such as our answers never hold. */
LLM__PRIVATE int llm__oai_response_fields(llm_openai_call *k);

/* The messages of any kind of body, and what belongs to them. */
LLM__PRIVATE int llm__oai_messages(llm_openai_call *k);
