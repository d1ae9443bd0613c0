/* build: what all readers of tokenizer files build with.
 *
 * A reader enters tokens (llm__tok_enter), merges and steps, sets the flags of its kind, and llm__tok_finish does the rest. No function
 * here returns an error: the first is noted in t->result, and nothing is done once it is set: readers check nothing. */
#pragma once
#include "api/text.h"
#include "base/platform.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"

/* Notes a failure, unless one was noted before. */
#define LLM__TOK_FAIL(t, ...) ((t)->result = (t)->result ? (t)->result : llm__error(__VA_ARGS__))
#define LLM__TOK_BAD(t, ...) LLM__TOK_FAIL(t, LLM_ERR_FORMAT, __VA_ARGS__)

/* NULL is fine, and so is one that was not built to the end. */
LLM__PRIVATE void llm__tokenizer_close(llm__tokenizer *t);

/* Appends a step. Where there are too many, or on an error before, it is one that nothing runs. */
LLM__PRIVATE llm__tok_step *llm__tok_add(llm__tokenizer *t, llm__tok_steps *steps, llm__tok_kind kind);

/* Zeroed memory that lives as long as the tokenizer; NULL: a failure was noted. */
LLM__PRIVATE void *llm__tok_get(llm__tokenizer *t, size_t n);

/* A copy that lives as long as the tokenizer. */
LLM__PRIVATE llm__str llm__tok_keep(llm__tokenizer *t, llm__str s);

/* NULL: no memory. */
LLM__PRIVATE llm__tokenizer *llm__tok_new(void);

/* Makes room for n tokens at once, and bounds their ids. */
LLM__PRIVATE void llm__tok_reserve(llm__tokenizer *t, int64_t n);

/* Enters a token of the model's vocabulary, whose text is copied: an id and a text may come once only. type: LLM__TOKEN_* besides KNOWN;
 * score: 0 if the file has none. */
LLM__PRIVATE void llm__tok_enter(llm__tokenizer *t, llm__str text, int64_t id, int type, double score);

/* Makes a token an added one, which is found in text before the model sees it. If the model's vocabulary has its text, that token is
 * meant, whatever the id (a line to the log says so); else its id must be free. Its text is copied. */
LLM__PRIVATE void llm__tok_enter_added(llm__tokenizer *t, llm__str text, int64_t id, int flags);

/* What scores mean to the model. Tokens of the types in `without` are left out: text never becomes these. Unigram: an index of the tokens,
 * and the score of an unknown character, 10 below the least. BPE by text: ranks, by which a higher score comes first: the bits of a float,
 * turned so that they order as its value does. */
LLM__PRIVATE void llm__tok_use_scores(llm__tokenizer *t, int without);

/* Room for n merges. */
LLM__PRIVATE void llm__tok_merge_reserve(llm__tokenizer *t, int64_t n);

/* Enters a merge of two parts; `skip` bytes of the second are a prefix that does not come again. Of two for the same pair the first holds.
 * 0: one of them, or both together, is no token. */
LLM__PRIVATE int llm__tok_merge_enter(llm__tokenizer *t, llm__str a, llm__str b, size_t skip, int32_t rank, int32_t *next);

/* A step with a regex, or with a text itself (literal), whose special characters are escaped; an empty pattern finds nothing. Compiled
 * here, once for all calls. */
LLM__PRIVATE llm__tok_step *llm__tok_add_regex(llm__tokenizer *t, llm__tok_steps *steps, llm__tok_kind kind, llm__str pattern, int literal);

/* Takes a SentencePiece charsmap: the size of the units, the units, the strings. */
LLM__PRIVATE void llm__tok_set_charsmap(llm__tokenizer *t, llm__str s);

/* SentencePiece's normalizer: the charsmap; then runs of spaces are one, and none is left at the ends (merge; 2: nor typed marks at the
 * last); one is put in front, or behind; and each becomes `mark`, so that tokens hold their spaces. */
LLM__PRIVATE void llm__tok_add_spaces(llm__tokenizer *t, int merge, int front, int behind, llm__str mark);

/* Decoding for files that name no steps: LITERAL, with LLM__LITERAL_* and LLM__SPACES_*, and UTF8. */
LLM__PRIVATE void llm__tok_add_literal(llm__tokenizer *t, int tokens, int spaces);

/* Adds a place of two texts: LLM__PLACE_*, or the id of a token, and the kind of what stands there. */
LLM__PRIVATE void llm__pair_add(llm__tokenizer *t, int64_t what, int64_t type);

/* Inserts an id into a frame at a place of it; one that is no token's is an error, with the sentence given. */
LLM__PRIVATE void llm__frame_add(llm__tokenizer *t, llm_tokens *frame, size_t at, int64_t id, const char *otherwise);
