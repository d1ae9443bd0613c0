/* text: views of bytes, bytes that grow, UTF-8. */
#pragma once
#include "api/text.h"
#include "base/platform.h"

/* A byte string that lives elsewhere. */
typedef struct llm__str {
    const char *p;
    size_t n;
} llm__str;

/* A view of n bytes. */
LLM__PRIVATE llm__str llm__s(const char *p, size_t n);

/* Are they the same bytes? b ends in NUL. */
LLM__PRIVATE int llm__str_eq(llm__str a, const char *b);

/* The same of two views; the view of a C string. */
LLM__PRIVATE int llm__str_same(llm__str a, llm__str b);
LLM__PRIVATE llm__str llm__lit(const char *s);

/* A text without its first n bytes. */
LLM__PRIVATE llm__str llm__str_from(llm__str s, size_t n);

/* 1 if s begins with a text; an empty one always. */
LLM__PRIVATE int llm__starts(llm__str s, llm__str with);

/* By bytes, a text before those that begin with it: negative, 0 or positive. */
LLM__PRIVATE int llm__str_order(llm__str a, llm__str b);

/* Where a text first stands in another, NULL: nowhere. An empty one stands at the beginning. Linear time, whatever the texts. */
LLM__PRIVATE const char *llm__str_find(llm__str s, llm__str wanted);

/* The bytes before the first that is one of `stops`. */
LLM__PRIVATE size_t llm__str_until(llm__str s, const char *stops);

/* Takes the first word off a list of words with a separator between: " ", "|". 0 at its end. */
LLM__PRIVATE int llm__list_next(const char **words, const char *separator, llm__str *word);

/* The number of a word in a list with blanks between, from 0; -1 if it is not among them. */
LLM__PRIVATE int llm__word_index(const char *words, llm__str word);

/* The bytes of a text, never a NULL pointer. */
LLM__PRIVATE llm__str llm__text_str(const llm_text *t);

/* Appends a view. */
LLM__PRIVATE void llm__add_str(llm_text *out, llm__str s);

/* How much of a file's text an error shows. */
LLM__PRIVATE int llm__shown(llm__str s);

LLM__PRIVATE llm_text llm__text_none(void);

/* UTF-8 (RFC 3629): the first byte tells how many follow, each of which brings six bits.
 *
 *   0xxxxxxx                              up to U+007F         1110xxxx 10xxxxxx 10xxxxxx            up to U+FFFF
 *   110xxxxx 10xxxxxx                     up to U+07FF         11110xxx 10xxxxxx 10xxxxxx 10xxxxxx   up to U+10FFFF
 *
 * Only the shortest form counts, surrogates (ED A0 ...) and what is beyond U+10FFFF are none: C0, C1 and those over F4 start nothing, and
 * after four first bytes the second has narrower bounds (Unicode's table 3-7).
 *
 * What n > 0 bytes begin with: 1 a character of *len bytes; 0 *len bytes that are none, as many as may have begun one; -1 the begin of one,
 * which is not whole. */
LLM__PRIVATE int llm__utf8_part(const char *p, size_t n, int *len);

/* The code point at p, of n > 0 bytes left, and its length in *len. A byte that starts none gives -1 and length 1, so that a walk over any
 * bytes comes to their end. */
LLM__PRIVATE int32_t llm__utf8_get(const char *p, size_t n, int *len);

/* How many bytes from the start of a text on are UTF-8: all n, or up to the first that is none. */
LLM__PRIVATE size_t llm__utf8_valid(const char *s, size_t n);

/* Writes a code point from 0 to 0x10FFFF as UTF-8 (at most 4 bytes, no NUL). Returns its length. */
LLM__PRIVATE int llm__utf8_put(char *out, int32_t c);

/* Appends s in quotes. Escaped are quotes, backslashes, control characters and code points that are not `plain`, as JSON has it or, with
 * `python`, as repr() does. What needs no escape is copied in runs. What is no UTF-8 becomes U+FFFD, so that it can be read again. */
LLM__PRIVATE void llm__text_quoted(llm_text *t, llm__str s, char quote, int python, int (*plain)(int32_t c));

/* The value of a digit of base64, or -1. */
LLM__PRIVATE int llm__base64_digit(char c);

/* Appends what base64 (RFC 4648, with its padding) stands for. 0: it is none. No memory shows in *out alone. */
LLM__PRIVATE int llm__base64(llm__str s, llm_text *out);

/* 1 if a text ends so. */
LLM__PRIVATE int llm__ends_with(const char *s, const char *end);
