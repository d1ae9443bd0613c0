/* openai_fields: fields that depend on others. */
#pragma once
#include "api/easy.h"
#include "api/openai.h"
#include "base/platform.h"
#include "serve/openai.h"

/* Chats have a switch `logprobs` and a number top_logprobs; prompts a number `logprobs`. The engine counts from 1, 0 being none:
 *
 *   chat    "logprobs": true, "top_logprobs": 3     prompt   "logprobs": 3     s.logprobs 4: the token's own, and the 3 likeliest
 *   chat    "logprobs": true                        prompt   "logprobs": 0     s.logprobs 1: the token's own
 *   both    "logprob_token_ids": [5, 9]                                        s.logprobs 3: the token's own, and those of these two
 *
 * A response's switch is an entry of `include`, which was read before (llm__oai_response_fields).
 *
 * The prompt's own are wanted by prompt_logprobs (vLLM), or by echo together with logprobs, as lm-eval scores texts. */
LLM__PRIVATE int llm__oai_logprobs(llm_openai_call *k);

/* The sampling parameters: what the body says over the service's defaults. A beam search samples nothing: there, what the request leaves
 * open is neutral, and what it says itself is checked by llm_sampling_check. */
LLM__PRIVATE int llm__oai_sampling(llm_openai_call *k);

/* repeat_last_n of llama-server: penalties look at the whole text here, so any other number is refused where something is penalised. */
LLM__PRIVATE int llm__oai_last_n(llm_openai_call *k);

/* How long the answer may be is the first of these that is there: max_completion_tokens, max_tokens (of the same value, if both are), the
 * service's own; else a chat goes on to the end of the context and a prompt to 16 tokens, which is OpenAI's default. 0 is allowed with echo
 * alone: then the prompt is scored and nothing is generated (score_only). */
LLM__PRIVATE int llm__oai_length(llm_openai_call *k);

/* enable_early_stop and early_stop_config over the service's. */
LLM__PRIVATE int llm__oai_early_stop(llm_openai_call *k);

/* repetition_detection: {"max_pattern_size": 20, "min_pattern_size": 3, "min_count": 4}. */
LLM__PRIVATE int llm__oai_repetition(llm_openai_call *k);
