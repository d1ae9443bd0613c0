/* masks: which tokens may come next.
 *
 * A vocabulary of 150,000 tokens is half a million bytes. Running each token through the machine would step over all of them; the trie
 * shares beginnings, and a subtree whose first byte is impossible is left out whole. Where little is possible (after a quote's end: , or })
 * a walk looks at some hundred nodes; inside strings and words slices spare most of it, and the mask is kept. */
#pragma once
#include "api/grammar.h"
#include "base/platform.h"
#include "base/index.h"
#include "tokenizer/tokenizer.h"
#include "grammar/machine.h"

/* Also of one that is half made: its arrays are NULL or whole. */
LLM__PRIVATE void llm__gr_trie_free(llm__gr_trie *t);

/* The trie of a vocabulary, or NULL. */
LLM__PRIVATE llm__gr_trie *llm__gr_trie_make(const llm__tokenizer *tokenizer);

/* All masks; they can be made again. Matchers have no pointers to them: they copy a mask under the lock. */
LLM__PRIVATE void llm__gr_masks_free(llm_grammar *g);

/* The mask of a state, kept or made; NULL: g->failed says why, or g->looking and there is none. The pointer holds until the next call.
 * Where all masks take more than LLM__GR_MASK_BYTES, they are all dropped: the few that are in use are made again at once, and nothing
 * needs to know how old each is. */
LLM__PRIVATE const llm__gr_mask *llm__gr_mask_of(llm_grammar *g, int32_t state);

/* The longest token with which the one text behind *state can begin; *state moves behind it. *alone: no other token can come. -1: there are
 * several texts, as far as it matters. The children of a node stand between it and what it skips to. */
LLM__PRIVATE int32_t llm__gr_forced(llm_grammar *g, int32_t *state, int *alone);

/* The trie, once per model: sort all tokens that are spelled (n of them in s), and lay the nodes out in one pass. 0: no memory. Qwen3's
 * 151,669 tokens make 450,000 nodes and take 60 ms. For the tokens "a", "ab", "b" of ids 5, 9, 7:
 *
 *   node   byte  depth  skip  from         order: 5 9 7
 *   0      a     1      2     0            "a" ends here
 *   1      b     2      2     1            skip[0] is 2: where a walk goes on when nothing may begin with "a"
 *   2      b     1      3     2 */
LLM__PRIVATE int llm__gr_trie_lay(llm__gr_trie *t, llm__index_entry *s, int32_t n);
