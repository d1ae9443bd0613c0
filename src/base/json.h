/* json: JSON, strictly RFC 8259.
 *
 * Model files, tokenizers and the bodies of requests are JSON from strangers, so exactly RFC 8259 is accepted, and nothing beyond. The work
 * has two halves. A checker of our own reads the text first: one loop with a stack of brackets instead of recursion, for syntax, UTF-8,
 * escapes, surrogates and depth. It counts the tokens too, so that the token array is allocated once, at its exact size. Then jsmn, which
 * lets much pass that is not JSON, cuts a text that is known to be JSON.
 *
 * A document is jsmn's token array over a copy of the text. Tokens stand in the order of the text; an array's elements follow it; an object
 * is followed by key, value, key, value ..., and the parent of a value is its key, whose parent is the object:
 *
 *   {"a": [1, 2]}      0 object   1 "a" (parent 0)   2 array (parent 1)   3 1 (parent 2)   4 2 (parent 2)
 *
 * Strings are decoded in place (no escape is shorter than what it stands for) and end in NUL, where the closing quote was. skip[i] is the
 * index after node i's subtree, so stepping over a big value is one look-up. Documents never change: any thread may read them. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/text.h"

/* The value of so many hexadecimal digits, of n bytes left; -1 if there are fewer. */
LLM__PRIVATE int32_t llm__hex_digits(const char *s, size_t n, size_t digits);

/* Decodes the escapes of n bytes in place: those of JSON, which the checker has seen, or with `python` those of a Python literal, where
 * \x41 and \U0001F600 are two more, an escaped line feed is nothing, and what is unknown stays as it is. Returns the new length. */
LLM__PRIVATE size_t llm__unescape(char *s, size_t n, int python);

LLM__PRIVATE void llm__json_drop(llm_json **doc);

/* The bytes of a token, which live as long as the document; .p NULL, and 0 bytes, if it is absent or of another kind. */
LLM__PRIVATE llm__str llm__json_key(const llm_json *doc, int node);
LLM__PRIVATE llm__str llm__json_text(const llm_json *doc, int node);
LLM__PRIVATE llm__str llm__json_raw(const llm_json *doc, int node);

/* Bytes of the text of a value, whatever it is; 0: it is absent. */
LLM__PRIVATE size_t llm__json_bytes(const llm_json *doc, int node);

/* Memory that a document takes. */
LLM__PRIVATE size_t llm__json_memory(const llm_json *doc);

/* A member by any key. Looks at the keys one by one: objects here are small, and the big one (a vocabulary) is walked, not searched. */
LLM__PRIVATE int llm__json_member(const llm_json *doc, int object, llm__str key);

/* The text of a member; .p NULL if it has none. */
LLM__PRIVATE llm__str llm__json_text_at(const llm_json *d, int object, const char *key);

/* A member that is true or false; `otherwise` if it is absent or something else. */
LLM__PRIVATE int llm__json_flag(const llm_json *d, int object, const char *key, int otherwise);

/* A whole number, or `otherwise` if the file has none. */
LLM__PRIVATE int64_t llm__json_whole(const llm_json *d, int node, int64_t otherwise);

/* A pattern says what an object looks like at a glance; what is put in is quoted here and nowhere else: ("{'id':%q,'n':%d}", "a\"b", 3)
 * appends {"id":"a\"b","n":3}. The pattern is the programmer's, never a user's text. Running out of memory shows in t->failed, once, at
 * the end: no step before it has to be looked at. */
LLM__PRIVATE void llm__text_pattern(llm_text *t, const char *pattern, va_list args);

/* Reads a whole file of at most `limit` bytes (0: any size) as JSON, unmapped: it may be edited meanwhile. Errors begin with its path. */
LLM__PRIVATE llm_result llm__json_file(const char *path, size_t limit, llm_json **out);
