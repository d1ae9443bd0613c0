/* openai_submit: from a body to requests.
 *
 *   messages --llm__oai_render--> text --llm_tokenize--> ids --truncate_prompt_tokens--> llm_request_submit
 *   prompt   -------------------> text -/                /
 *   prompt as ids --------------------------------------/
 *
 * A completion's prompt is one of four things, told apart by the type of the first element:
 *
 *   "a text"      ["a", "b"]      [5, 6, 7]      [[5, 6], [7]]
 *
 * The lists of texts and of lists make one request each, all with the same parameters, and their answers are numbered on: choice i of
 * prompt p is p * n + i.
 *
 * The rendered text decides one more thing: whether the prompt leaves the model's thoughts open (it ends with <think>). Then the answer
 * begins as reasoning, and a grammar waits for the closing tag. Control tokens written in a chat's messages, tools or template arguments
 * are text like any other: the render guards them, and so stays the rendered text until it is ids. A completion's prompt may use them. */
#pragma once
#include "api/text.h"
#include "api/easy.h"
#include "api/request.h"
#include "api/openai.h"
#include "base/platform.h"
#include "serve/openai.h"

/* Renders the messages into k->text, guarded. The template's context is an object again: the messages, what the body passes on, the
 * template's own arguments, OpenAI's switches. For a template of the ChatML kind:
 *
 *   body      {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}
 *   context   {"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":true}
 *   prompt    <|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n
 *
 * What a template cannot do is done for it, as its caps say: parts are joined to one text, calls and tools are written into messages. What
 * the request says in chat_template_kwargs counts more than the same switch beside it. */
LLM__PRIVATE int llm__oai_render(llm_openai_call *k);

/* The ids of one prompt: a text or a list of ids at node v of the body, or (v -1) the messages. Special tokens in a text count, unless
 * parse_special says no: a rendered chat is full of them, and so may be a prompt of lm-eval. */
LLM__PRIVATE int llm__oai_prompt_ids(llm_openai_call *k, int v, int add_special, llm_tokens *ids);

/* All prompts of a call that generates or embeds, one request each. The arrays are sized once, before the first request runs: its news may
 * come while the second is being tokenized. What has no text has no embedding, whatever the tokenizer puts around it. */
LLM__PRIVATE int llm__oai_submit_all(llm_openai_call *k);

/* In the stepping thread, with no lock of ours: only passed on. The call is alive: its requests are freed before it is. */
LLM__PRIVATE void llm__oai_news(void *user, llm_request *request);
