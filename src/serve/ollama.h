/* ollama: Ollama's API, read as OpenAI's.
 *
 * /api/chat, /api/generate, /api/embed, /api/embeddings and /api/show ask for what chats, completions and embeddings of OpenAI's API ask
 * for, with other names in other places. So a body of Ollama is rewritten as one of OpenAI, and from then on is read, checked and answered
 * like it; only what is written has Ollama's form:
 *
 *   /api/chat                                    messages, with images as parts, thinking as reasoning_content
 *   /api/generate                                a chat of `system` and `prompt`; with raw: true a completion
 *   options {num_predict, repeat_penalty ...}    max_tokens, repetition_penalty ...
 *   format: "json", or a schema                  response_format
 *   think: true, or "high"                       enable_thinking, reasoning_effort
 *   context: ids                                 stand before the prompt
 *   nothing to answer (no messages, no prompt)   an answer that says "done_reason": "load", as the model is loaded
 *
 * A stream is the default, of lines of JSON; the last one has the end and how long it took, in nanoseconds:
 *
 *   {"model": "m", "created_at": "2026-11-26T04:05:06.700000Z", "message": {"role": "assistant", "content": "4"}, "done": false}
 *   {"model": "m", ..., "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop", "total_duration": 91, ...}
 *
 * What a body names works, is refused, or is told as ignored, as everywhere (>>reports). Where neither the request, the model's files nor
 * the program say anything about sampling, Ollama's own defaults hold: temperature 0.8, top_k 40, top_p 0.9. */
#pragma once
#include "api/text.h"
#include "api/easy.h"
#include "api/sampler.h"
#include "api/request.h"
#include "api/json.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/text.h"
#include "serve/openai.h"

/* What a kind of Ollama's is read as; others are what they are. */
LLM__PRIVATE llm_openai_kind llm__ollama_kind(llm_openai_kind kind);

/* The model that a body names, without the tag ":latest", which says nothing; .p NULL: none. */
LLM__PRIVATE llm__str llm__ollama_name_of(const llm_json *body);

/* The names "a|b" of the i-th members of a kind's body, or of its options, that have an effect; NULL: there are no more. */
LLM__PRIVATE const char *llm__ollama_names(llm_openai_kind kind, int options, int i);

/* Rewrites k->body, an object, as one of OpenAI. */
LLM__PRIVATE int llm__ollama_body(llm_openai_call *k);

/* Ollama's defaults, where nobody else has any. */
LLM__PRIVATE void llm__ollama_defaults(const llm_openai_service *s, llm_sampling *to);

/* What was polled of a choice, as lines: text and thoughts, then each call once it is whole; with the choice's end the last line. */
LLM__PRIVATE void llm__ollama_event(llm_openai_call *k, const llm_event *e, llm_text *out);

/* The answer that is not streamed, of a kind with or without the engine's work. */
LLM__PRIVATE void llm__ollama_whole(llm_openai_call *k, llm_text *out);

/* The answer to a body without anything to do: the model is there. */
LLM__PRIVATE void llm__ollama_loaded(llm_openai_call *k, llm_text *out);

/* {"error": "sentence"}; as a line of a stream with its end. */
LLM__PRIVATE void llm__ollama_error(const char *message, int line, llm_text *out);

/* The answer of /api/show. */
LLM__PRIVATE void llm__ollama_show(const llm_openai_call *k, llm_text *out);
