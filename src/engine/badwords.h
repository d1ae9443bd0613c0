/* badwords: texts that must not appear, however tokens cut them.
 *
 * "\n\n" is a token, and two tokens, and the end of one with the begin of another. So the words are one automaton over bytes (Aho and
 * Corasick 1975): a node is a beginning of some of them, `fail` leads to the longest other beginning that its text ends with. A token is
 * banned if its bytes, read behind the answer so far, complete a word:
 *
 *   wholly inside the token            the same tokens at every step: found once, in `always`
 *   begun in the answer                the tokens that begin with what is missing, of the few beginnings that the answer ends with:
 *                                      found by walking the words and the vocabulary's trie together from each of them
 *
 * Of the words "cab" and "ad", behind an answer that ends in "c": "ab" and "abs" (the word begins at the c), and always "cab", "bad" and
 * "ads". */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "grammar/machine.h"

typedef struct llm__badwords {
    const llm__gr_trie *trie; /* of the model */
    uint8_t *byte, *ends;     /* (n) of node: the byte that leads to it; 1 if a word ends here */
    int32_t *child, *sibling; /* first below it, next beside it; 0: none. Node 0 is the root */
    int32_t *fail;
    int32_t n, longest; /* longest: bytes of the longest word */
    uint32_t *always;   /* (vocab + 31) / 32: tokens that hold a word */
} llm__badwords;

/* Makes the automaton of n words, none empty, in an arena. LLM_ERR_NOMEM. */
LLM__PRIVATE llm_result llm__badwords_make(llm__badwords *w, const llm__gr_trie *trie, const char *const *words, int32_t n, llm__arena *a);

/* Sets the logits of banned tokens behind an answer of n_output tokens to minus infinity. x: (n_x). */
LLM__PRIVATE void llm__badwords_ban(const llm__badwords *w, const int32_t *output, int32_t n_output, float *x, int32_t n_x);
