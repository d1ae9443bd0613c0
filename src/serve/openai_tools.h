/* openai_tools: the tools of a request.
 *
 * {"type": "function", "function": {"name", "description", "parameters": a JSON schema}} each; in a response the function's members stand
 * beside the type. The template shows them to the model; a parser finds the calls in its answer; a grammar makes them what the schemas say.
 * tool_choice decides how far:
 *
 *   none                                             the model does not hear of the tools
 *   auto, or nothing                                 text or calls: in formats that a grammar can tell from text, calls keep their schemas
 *   required                                         the answer is a call, or several
 *   {"type": "function", "function": {"name": "f"}}  the answer is a call of f
 *
 * The last two are written in the model's own format where the grammar can write it, else as plain JSON, one call a line. */
#pragma once
#include "api/easy.h"
#include "api/chat.h"
#include "api/openai.h"
#include "base/platform.h"
#include "serve/openai.h"

/* The list itself; k->tools stays -1 where it is empty, as if there were none. */
LLM__PRIVATE int llm__oai_tools(llm_openai_call *k);

/* A choice among no tools can only be a mistake. */
LLM__PRIVATE int llm__oai_tool_choice(llm_openai_call *k);

/* The form of the answer that the tools ask for, when all fields are read. A form of the request's own comes first: with it the answer is
 * no call. Otherwise the tools become a structural tag (llm_tools_grammar), and from then on are a form like any other; tool_exact tells
 * the parser that it may show arguments as they come. Where no grammar can be had (-1) and none is needed, calls are only looked for. A
 * beam search takes no grammar: there, too, unless a call is required. */
LLM__PRIVATE int llm__oai_tool_form(llm_openai_call *k);

/* The text that comes before the form (llm_grammar_config.after): the end of thoughts, where r says that there are some. The channels of
 * gpt-oss are thoughts and calls side by side: a call that must come stands behind the first message, one that may come has a mark of its
 * own. */
LLM__PRIVATE const char *llm__oai_form_after(const llm_openai_call *k, const llm_reasoning *r);
