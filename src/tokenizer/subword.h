/* subword: from words to tokens: BPE, Unigram, WordPiece.
 *
 * From here on a word stands alone: no token crosses its ends, and nothing outside of it matters. BPE merges the best pair first (greedy by
 * rank), Unigram takes the most probable split, WordPiece the longest prefix; WordLevel knows only whole words. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/encode.h"

/* The id of a token of the model's vocabulary, or -1. */
LLM__PRIVATE int32_t llm__tok_find(const llm__tokenizer *t, llm__str s);

/* The slot of a pair in the hash of merges, or the free one where it would go (linear probing; a quarter is free). */
LLM__PRIVATE llm__merge *llm__merge_slot(const llm__tokenizer *t, int32_t left, int32_t right);

/* A piece of the text comes to step k; begin: the text begins there. An empty one vanishes. As deep as there are steps. */
LLM__PRIVATE void llm__encode_feed(llm__encode *e, int k, llm__str s, int begin);

/* Appends the ids of a text of at most 256 MiB. On error *out has what it had. flags: LLM_TOK_ADD_SPECIAL puts the frame around,
 * LLM_TOK_PARSE_SPECIAL lets the text name special tokens, LLM_TOK_GUARDED those without a mark in them. Any thread. */
LLM__PRIVATE llm_result llm__tokenizer_encode(const llm__tokenizer *t, const char *text, size_t len, int flags, llm_tokens *out);

/* The same until another thread makes *stop (atomic; NULL: none does) other than 0: LLM_ERR_CANCELLED, within a millisecond or so. */
LLM__PRIVATE llm_result llm__tokenizer_encode_until(const llm__tokenizer *t, const char *text, size_t len, int flags, const int *stop,
                                                    llm_tokens *out);

/* How many tokens of two texts are kept in `room` places, as Hugging Face's "longest_first" has it: all of the shorter text, if half the
 * places hold it; else half of the places are for each, and an odd one is the longer text's, of two equal ones the second's. */
LLM__PRIVATE void llm__pair_cut(size_t *first, size_t *second, size_t room);

/* The ids of two texts as the model's tokenizer puts them side by side, and the kinds of their tokens, appended to both lists; with `most`
 * above 0 so many at most: the longer text loses its end first. LLM_ERR_UNSUPPORTED: the tokenizer has no form for two. */
LLM__PRIVATE llm_result llm__tokenizer_pair(const llm__tokenizer *t, llm__str a, llm__str b, int flags, size_t most, llm_tokens *ids,
                                            llm_tokens *types);

/* Bytes of the longest token, but at least 64: a text with more than so many bytes a token is none that anybody writes. */
LLM__PRIVATE size_t llm__tokenizer_longest(const llm__tokenizer *t);
