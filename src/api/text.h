/* text: A growable byte string, and a growable list of token ids. */
#pragma once
#include "api/linkage.h"

/* Zero-initialise; data is NULL until something is added, even nothing, and NUL-terminated then (a NUL may also stand in it). After a
 * failed allocation or past `limit` bytes (0: none) `failed` is set, what was there stays, and further additions do nothing, so one test at
 * the end is enough. To use the memory again, set len and failed to 0. */
typedef struct llm_text {
    char *data;
    size_t len, cap, limit;
    int failed;
} llm_text;

LLM_API void llm_text_add(llm_text *t, const char *bytes, size_t len); /* bytes must not lie in t itself; it may move */
LLM_API void llm_text_str(llm_text *t, const char *zero_terminated);
LLM_API void llm_text_int(llm_text *t, int64_t value);
LLM_API void llm_text_num(llm_text *t, double value);                   /* shortest text that reads back equal; null for infinity and NaN */
LLM_API void llm_text_json(llm_text *t, const char *bytes, size_t len); /* quoted and escaped; bad UTF-8 becomes U+FFFD */
/* Appends JSON by a pattern in which ' stands for ", and: %s a text as it is, %q quoted (NULL: null), %Q quoted bytes and their number,
 * %d int, %l int64_t, %b true or false, %f double (infinities are 9999), %i ids and their number, %j a document and a node of it (-1:
 * null), %t an llm_text *, which is freed, %, a comma unless an object or list has just begun. */
LLM_API void llm_text_format(llm_text *t, const char *pattern, ...);
LLM_API int64_t llm_text_chars(const char *bytes, size_t len); /* code points of valid UTF-8 */
LLM_API void llm_text_free(llm_text *t);                       /* leaves it as it was at first */

/* The same rules for ids. */
typedef struct llm_tokens {
    int32_t *data;
    size_t len, cap;
    int failed;
} llm_tokens;

LLM_API void llm_tokens_add(llm_tokens *t, int32_t id);
LLM_API void llm_tokens_free(llm_tokens *t);
