/* finish: what the machine needs to know about itself before it runs. */
#pragma once
#include "api/grammar.h"
#include "base/platform.h"
#include "grammar/machine.h"

/* Everything that a grammar owns. No request uses it any more. The trie is not among it: that is its model's. */
LLM__PRIVATE void llm__grammar_free(llm_grammar *g);

/* An empty grammar to build into, which spends from `fuel`; NULL: no memory, b->failed is set. Instruction 0 leads nowhere: what is written
 * there after an error does no harm. Set 0 is empty: ACCEPT consumes no byte. */
LLM__PRIVATE llm_grammar *llm__grammar_new(llm__gr_build *b, int64_t *fuel);

/* When all is built: lead it to ACCEPT, mark what is alive, number the classes of bytes, look for left recursion, make the first state. */
LLM__PRIVATE void llm__grammar_finish(llm__gr_build *b, llm__gr_frag f);
