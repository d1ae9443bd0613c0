/* thoughts: a bound on how long a model thinks before it answers.
 *
 * vLLM's thinking_token_budget, FastDeploy's reasoning_max_tokens: after so many tokens of thoughts the closing tag is put into the
 * model's mouth, token by token, and the answer goes on behind it as if the model had written it itself. With a budget of 3 and a tag of
 * two tokens:
 *
 *   token     <think>   Hm    ,     the   </     think>   It   rains
 *   state     BEFORE    OPEN  OPEN  OPEN  OPEN   OPEN     PAST
 *   n         0         1     2     3     4      5
 *   closing                               1      2         tokens of the tag that the answer ends with: when n is 3, the next is due
 *
 * Thoughts are open where the prompt has left them so, or behind the opening tag; who never opens them is not bounded, nor is what comes
 * behind the first closing tag. Tags are compared as tokens. What a grammar forbids is not forced: it waits for the tag as marker, or the
 * form has no thoughts. */
#pragma once
#include "base/platform.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

/* Of a sequence that is new. */
LLM__PRIVATE void llm__think_begin(llm__seq *s);

/* Behind a token that was appended. */
LLM__PRIVATE void llm__think_note(llm__seq *s);

/* Where a token must come next and is allowed, leaves it alone allowed: in `mask`, `words` words of one bit a token, which may be what
 * rules->allowed points to. A text that is forbidden (bad_words) is let pass. */
LLM__PRIVATE void llm__think_narrow(const llm__seq *s, llm__rules *rules, uint32_t *mask, size_t words);
