/* index: which of many strings does a text begin with?
 *
 * Answers "which of these strings does the text begin with", for added tokens, the tokens of Unigram and user-defined ones. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "base/text.h"

/* Strings in order, to find those that a text begins with: each byte of the text narrows the range that still fits. Of a, ab, abc, b and
 * the text abd: behind a the first three are left, and a itself is found; behind b the second and third, ab is found; behind d none. */
typedef struct llm__index_entry {
    llm__str s;
    int32_t value;
} llm__index_entry;

typedef struct llm__index {
    llm__index_entry *v;
    size_t n, cap;
    uint32_t first[257]; /* where strings that begin with a byte start */
} llm__index;

/* Appends an entry, unless its text is empty; the text must outlive the index. It can be searched after llm__index_build. */
LLM__PRIVATE void llm__index_add(llm__index *x, llm__str s, int32_t value, llm_result *result);

/* By bytes, a prefix before what it is a prefix of; equal texts by value. */
LLM__PRIVATE int llm__index_compare(const void *a, const void *b);

/* Sorts what is in v and notes where each first byte starts, so that the first step of a search is a look-up. Of equal strings the one
 * with the least value stays. */
LLM__PRIVATE void llm__index_build(llm__index *x);

/* Narrows [*lo, *hi), whose strings agree in their first `depth` bytes, to those with byte c next: two binary searches, which makes a
 * sorted array as good as a trie, without its memory. 1 if one of them ends there: *lo, for a prefix sorts first. */
LLM__PRIVATE int llm__index_step(const llm__index *x, size_t *lo, size_t *hi, size_t depth, uint8_t c);

/* The entry of the longest string that the text begins with, or NULL. *steps grows by the bytes that were looked at. */
LLM__PRIVATE const llm__index_entry *llm__index_longest(const llm__index *x, llm__str s, size_t *steps);
