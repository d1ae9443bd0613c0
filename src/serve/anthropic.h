/* anthropic: Anthropic's Messages API, read as OpenAI's.
 *
 * /v1/messages asks for a chat, with other names in other places, and its answer is a list of blocks. So a body is rewritten as a chat's,
 * and from then on is read and checked like it; only what is written has Anthropic's form:
 *
 *   system                                        the first message
 *   {"type": "text"}, {"type": "image"}           parts of a content
 *   {"type": "tool_use", "id", "name", "input"}   an assistant's tool_calls
 *   {"type": "tool_result", "tool_use_id"}        a message of role tool, before what else the user says
 *   {"type": "thinking"}                          reasoning_content
 *   stop_sequences, metadata.user_id              stop, user
 *   tools {"name", "input_schema"}, tool_choice   tools, tool_choice (any is required)
 *   thinking {"type": "enabled", "budget_tokens"} enable_thinking, thinking_token_budget
 *   output_config.format, output_config.effort    response_format, reasoning_effort
 *
 * A stream tells how the blocks grow, each event with a line of its type:
 *
 *   message_start                                                                         the message without content
 *   content_block_start, content_block_delta (text_delta), ... , content_block_stop       a block of text
 *   content_block_start, content_block_delta (input_json_delta), ... , content_block_stop a call
 *   message_delta, message_stop                                                           why it ended, and the usage
 *
 * /v1/messages/count_tokens counts the ids of the same prompt. */
#pragma once
#include "api/text.h"
#include "api/easy.h"
#include "api/openai.h"
#include "base/platform.h"
#include "serve/openai.h"

/* What a kind of Anthropic's is read as; others are what they are. */
LLM__PRIVATE llm_openai_kind llm__anthropic_kind(llm_openai_kind kind);

/* The names "a|b" of the i-th members of a body that have an effect; NULL: there are no more. */
LLM__PRIVATE const char *llm__anthropic_names(int i);

/* Rewrites k->body, an object, as one of OpenAI. */
LLM__PRIVATE int llm__anthropic_body(llm_openai_call *k);

/* How a stream begins; once. */
LLM__PRIVATE void llm__anthropic_begin(llm_openai_call *k, llm_text *out);

/* What was polled since the last time, as blocks that grow. */
LLM__PRIVATE void llm__anthropic_grow(llm_openai_call *k, llm_text *out);

/* How a stream ends; failure: why it could not go on; NULL: it is whole. */
LLM__PRIVATE void llm__anthropic_end(llm_openai_call *k, const char *failure, llm_text *out);

/* The answer that is not streamed. */
LLM__PRIVATE void llm__anthropic_whole(llm_openai_call *k, llm_text *out);
