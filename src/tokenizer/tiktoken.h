/* tiktoken: reading tiktoken's rank files.
 *
 * The rank is the id and the priority of a merge at once: two neighbours merge into the token with the least rank. The file holds neither
 * the regex nor the special tokens; both go by the family. The first lines of cl100k: an exclamation mark is token 0, a quote token 1.
 *
 *     IQ== 0
 *     Ig== 1 */
#pragma once
#include "base/platform.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"

/* Cutters by regexes, one after the other: each match is a word, and so is what lies between. */
LLM__PRIVATE void llm__add_splits(llm__tokenizer *t, const char *const *regex, int most);

/* name: of the file, which tells the family if the number of lines does not. own: the configuration names the special tokens. */
LLM__PRIVATE void llm__tok_load_ranks(llm__tokenizer *t, llm__str s, const char *name, int own);
