/* openai_parts: parts of answers.
 *
 * Log-probabilities have two shapes. Completions have four lists of one length, where text_offset counts code points and the first token of
 * an echoed prompt has null, since nothing came before it:
 *
 *   {"tokens": ["The", " sky"], "token_logprobs": [null, -4.5],
 *    "top_logprobs": [null, {" sky": -4.5, " first": -2.1}], "text_offset": [0, 3]}
 *
 * Chats have a list of objects: {"token", "logprob", "bytes", "top_logprobs": [the same without the last]}. `bytes` lets a client join
 * tokens that are half a code point. JSON knows no infinity: what cannot happen is -9999. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/request.h"
#include "api/openai.h"
#include "base/platform.h"
#include "engine/scheduler.h"
#include "serve/openai.h"

/* The prompt's tokens with their log-probabilities, if they were asked for. */
LLM__PRIVATE llm_output llm__oai_prompt_rows(const llm_request *request);

/* n rows of an answer, from row `from` on. */
LLM__PRIVATE llm_output llm__oai_rows(const llm_output *answer, int32_t from, int32_t n);

/* One row: the token of an event. */
LLM__PRIVATE llm_output llm__oai_event_rows(const llm_event *e);

/* How a token is written in logprobs: its text; "bytes:\\xE2\\x80" where its bytes are no whole text (so OpenAI writes it); or
 * "token_id:N" (vLLM's return_tokens_as_token_ids), which no two tokens share. `bytes` gets its bytes, in place of what is there. */
LLM__PRIVATE void llm__oai_token(const llm_openai_call *k, int32_t id, llm_text *bytes, llm_text *out);

/* The four parallel lists of completions: tokens, their log-probabilities, the likeliest, and where each one's text begins, from *chars
 * on, which goes on behind them: a special token that is not shown takes no room, and what a stop string still holds back does. First those
 * of an echoed prompt (NULL: none), then the answer's. */
LLM__PRIVATE void llm__oai_lists(const llm_openai_call *k, const llm_output *echo, const llm_output *rows, int64_t *chars, llm_text *out);

/* Entries of OpenAI's list of objects: a token with its bytes, and the likeliest at its place. */
LLM__PRIVATE void llm__oai_chat_rows(const llm_openai_call *k, const llm_output *o, llm_text *out);

/* prompt_logprobs as in vLLM: null for the first token, then an object {id: {logprob, rank, decoded_token}} each. */
LLM__PRIVATE void llm__oai_prompt_logprobs(const llm_openai_call *k, const llm_request *request, llm_text *out);

/* "usage": tokens of all prompts and choices so far. A prompt counts once, however many answers it has; an EOS or stop token counts too,
 * though it is not shown. Of these, so many were found in the prefix cache, or were thoughts. A response has other names for the same. */
LLM__PRIVATE void llm__oai_usage(const llm_openai_call *k, llm_text *out);

/* As in llm_request_metrics. A streamed result arrives when it is written, as in FastDeploy; request_start_time is the request's. */
LLM__PRIVATE void llm__oai_metrics(const llm_openai_call *k, const llm_request *request, llm_text *out);

/* What stands at the beginning of every object and chunk; the same id and time in all of a stream. */
LLM__PRIVATE void llm__oai_head(const llm_openai_call *k, const char *object, llm_text *out);

/* An answer's last token that ended it (EOS or a stop id) is not part of what is shown. */
LLM__PRIVATE int llm__oai_is_end(const llm_openai_call *k, llm_finish finish, int32_t stop_id, int32_t id);
