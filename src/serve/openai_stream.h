/* openai_stream: answers as they come.
 *
 * Server-sent events of a chat with n = 1 and include_usage, each one line of JSON behind "data: " and an empty line:
 *
 *   {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]}
 *   {"choices": [{"index": 0, "delta": {"content": "Paris"}, "finish_reason": null}]}
 *   {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": null}]}
 *   {"choices": [], "usage": {"prompt_tokens": 31, "completion_tokens": 2, ...}}
 *   [DONE]
 *
 * A chat with thoughts and a call has other deltas in between, each kind in its turn (llm__oai_write_call shows how a call comes in
 * pieces):
 *
 *   {"reasoning_content": "Which"}   {"reasoning_content": " city?"}   {"content": "I look."}   {"tool_calls": [{"index": 0, ...}]}
 *
 * All choices share the stream, told apart by `index`. Deltas joined are exactly the text of the answer that is not streamed: an event
 * holds whole code points, and nothing that may still become a stop string. One call of llm_openai_next writes at most one event's worth,
 * so that a server can stop where a slow reader's buffer is full and go on later; nothing is lost: the request keeps its events till
 * then. */
#pragma once
#include "api/text.h"
#include "api/easy.h"
#include "api/request.h"
#include "api/chat.h"
#include "api/openai.h"
#include "base/platform.h"
#include "serve/openai.h"

/* The next news of a choice's calls: a call that was not announced yet (*fresh), or more of the arguments of the last that was, from byte
 * *from on. c->n_told calls were announced, and `told` bytes of the last one's arguments written. NULL: there is nothing new. */
LLM__PRIVATE const llm_tool_call *llm__oai_call_news(llm__oai_choice *c, int *fresh, size_t *from);

/* What was polled of a choice since the last chunk, with an event as its end, as chunks. A chat's end is a chunk of its own with an empty
 * delta, and a token that only ends the answer is none; a completion's first chunk may begin with the echoed prompt. */
LLM__PRIVATE void llm__oai_event(const llm_openai_call *k, int32_t r, const llm_event *e, llm__oai_choice *c, llm_text *out);

/* Counts an event that was polled. 1: what waits of its choice is to be written; 0: more tokens are to come into the same event
 * (num_scheduler_steps of the service). */
LLM__PRIVATE int llm__oai_due(const llm_openai_call *k, const llm_event *e, llm__oai_choice *c);

/* Takes one piece of news of a prompt and keeps account of its choice. 0: there is none. The text goes through two splitters, of which only
 * a chat has:
 *
 *   event's text --llm_reasoning_push--> thoughts
 *                                   \---> plain --llm_tool_parser_push--> content, and calls in the parser     (without tools: content)
 *
 * both of which are told of the end, when they give back what they held. A token counts as thought if the thoughts are open behind it. */
LLM__PRIVATE int llm__oai_poll(llm_openai_call *k, int32_t r, llm_event *e);

/* The first error of a choice; NULL: none. A whole answer is nothing but the error then, whatever other choices said; in a
 * stream they have been sent already. */
LLM__PRIVATE const char *llm__oai_failure(const llm_openai_call *k);

/* The end of a stream: an error, or the usage if it was asked for; then OpenAI's mark. */
LLM__PRIVATE void llm__oai_stream_end(llm_openai_call *k, llm_text *out);

/* Every choice of a chat begins with its role. */
LLM__PRIVATE void llm__oai_roles(llm_openai_call *k, llm_text *out);
