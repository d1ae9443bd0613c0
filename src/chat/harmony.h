/* harmony: the messages of several channels that gpt-oss writes (OpenAI's "harmony response format").
 *
 * An answer is a row of messages, each with a header: who speaks, to whom (to=), on which channel, in which form.
 *
 *   <|channel|>analysis<|message|>Which city?<|end|>                                         thoughts
 *   <|start|>assistant<|channel|>commentary<|message|>I look.<|end|>                         content: words before a call
 *   <|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json
 *     <|message|>{"city": "Rome"}<|call|>                                                    a call
 *   <|start|>assistant<|channel|>final<|message|>It rains.<|return|>                         content
 *
 * The prompt ends behind "<|start|>assistant", so the answer begins in the middle of its first header; a recipient may stand there or
 * behind the channel. What goes to another recipient than a function (to=python, to=browser.search: tools that nobody has here) is not
 * for the user either, and counts as thoughts.
 *
 * A call goes on to the parser of calls, behind this one, in one spelling, whichever the model used:
 *
 *   <|channel|>commentary to=functions.weather<|message|>{"city": "Rome"}
 *
 * As all splitters of thoughts this one takes single bytes and holds back what may be a mark, so that cuts mean nothing; an answer without
 * any header is content. */
#pragma once
#include "api/text.h"
#include "api/chat.h"
#include "base/platform.h"
#include "base/text.h"

/* Where the prompt leaves off: in a header, or in a message that the answer goes on with. */
LLM__PRIVATE void llm__harmony_begin(llm_reasoning *r, llm__str prompt);

LLM__PRIVATE void llm__harmony_byte(llm_reasoning *r, char byte, llm_text *reasoning, llm_text *content);
LLM__PRIVATE void llm__harmony_end(llm_reasoning *r, llm_text *reasoning, llm_text *content);

/* Behind which text a grammar of the final message begins; NULL: the prompt has left that message open. */
LLM__PRIVATE const char *llm__harmony_marker(const llm_reasoning *r);
