/* grammar: grammars that are shared, and matchers. */
#pragma once
#include "api/config.h"
#include "api/grammar.h"
#include "base/platform.h"
#include "tokenizer/tokenizer.h"
#include "grammar/machine.h"

/* The key of the shelf is all that a grammar depends on, so equal requests share one grammar, its states and its masks. Two threads that
 * ask at once may both compile: the shelf keeps what came first, and the other is closed. */
LLM__PRIVATE llm_result llm__grammar_open(const llm__tokenizer *tokenizer, const llm_grammar_config *cfg, llm_grammar **out);

/* The mask behind n tokens that may come next (0: the next one's; nothing is allowed behind a token that is not allowed itself) into
 * n_words words, of which those beyond the vocabulary become 0; none: it is only made, to be found later. kept: only one that was made. The
 * matcher stays where it is. Returns how many tokens the mask allows, -1 if the grammar gave up (m->failed), or kept none; *can_end.
 * The only place where states are trimmed: between two tokens of this answer, with the lock held, no step of any answer is under way. */
LLM__PRIVATE int32_t llm__matcher_mask(llm_matcher *m, const int32_t *ids, int32_t n, uint32_t *words, size_t n_words, int kept,
                                       int *can_end);

/* Tokens of the only text that may follow, at most `most`, into ids; returns how many. For the first *n_sure the mask allows one token
 * only; see llm__gr_forced. *over: with them the text is complete and cannot go on. The matcher stays where it is. */
LLM__PRIVATE int32_t llm__matcher_ahead(llm_matcher *m, int32_t *ids, int32_t most, int32_t *n_sure, int *over);

/* The model's vocabulary as a trie, which all its grammars share; made when somebody first asks. NULL: no memory. */
LLM__PRIVATE const llm__gr_trie *llm__gr_vocabulary(const llm__tokenizer *tokenizer);

/* Compiles. The trie may be NULL: such a grammar checks text, and has no masks. *out is left alone after an error. */
LLM__PRIVATE llm_result llm__grammar_make(const llm__tokenizer *tokenizer, llm__gr_trie *trie, const llm_grammar_config *cfg,
                                          llm_grammar **out);
