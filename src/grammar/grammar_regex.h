/* grammar_regex: regular expressions as fragments of the machine.
 *
 * A pattern is compiled there to a program of its own (Pike's: SET, LOOP, SPLIT, JUMP, assertions), which is nearly ours. What
 * differs: it reads code points and we read bytes; it may look back (what stands before ^) and we may not. So a program is carried over in
 * three copies, one for each answer to "where are we": START, nothing is consumed yet; MIDDLE, something is; LAST, a $ was passed, so
 * nothing may follow. For ^a$, with the copy that each instruction goes on to:
 *
 *              START           MIDDLE          LAST
 *   0 ^        1 START         never           never
 *   1 a        a, 2 MIDDLE     a, 2 MIDDLE     never
 *   2 $        3 LAST          3 LAST          3 LAST
 *   3 match    end             end             end, and no text behind it
 *
 * A pattern that is sought inside a string (JSON Schema's `pattern`) is entered twice: in START at once, and in MIDDLE behind one or more
 * characters; a match leads to "any characters", in LAST to the closing quote. Only pairs of instruction and copy that are reached are
 * made: here five of twelve. */
#pragma once
#include "base/platform.h"
#include "base/text.h"
#include "text/regex.h"
#include "grammar/machine.h"

/* One code point of a set, which is freed. */
LLM__PRIVATE llm__gr_frag llm__gr_set(llm__gr_build *b, llm__set *s);

/* how: the text must match from end to end; or it is sought (as JSON Schema's pattern) inside a JSON string. */
enum { LLM__GR_WHOLE, LLM__GR_IN_JSON };

/* One code point of a set as it stands inside a JSON string: itself, or its one usual escape. */
LLM__PRIVATE llm__gr_frag llm__gr_json_set(llm__gr_build *b, const int32_t *change, size_t n);

/* Any one character of a JSON string, in any spelling: plain, escaped, \u and four digits, a pair of surrogates.
 * RFC 8259, section 7. Four digits behind u are three cases, so that no half of a pair stands alone: the first digit is not d; it is d and
 * the second at most 7; or d8 to db, and then a second \u with dc to df. All strings share one rule for that. */
LLM__PRIVATE llm__gr_frag llm__gr_json_char(llm__gr_build *b);

/* A regex that is compiled as a fragment; how: LLM__GR_WHOLE or LLM__GR_IN_JSON; a match has min to max characters (max -1: any number).
 * After an error (no regex, or one that needs look-around) it is never, and b->failed says why. At most three instructions of joints for
 * each instruction of the program, besides what its sets need; that times the characters that are counted, where they are.
 *
 * \d, \w and \s are ASCII: what every dialect's own class contains at least. JSON Schema means ECMA-262, where \d is ASCII; in Python and
 * Rust it has all of Unicode's digits. A validator of any of them accepts what is made here. */
LLM__PRIVATE llm__gr_frag llm__gr_program_frag(llm__gr_build *b, const llm__regex *re, int32_t from, int32_t lead, int how, int64_t min,
                                               int64_t max);

/* Reads a regex. NULL: an error. Tables of characters take longest. */
LLM__PRIVATE llm__regex *llm__gr_regex_read(llm__gr_build *b, llm__str text, llm__rx_classes classes);

/* A regex from its text. */
LLM__PRIVATE llm__gr_frag llm__gr_regex_frag(llm__gr_build *b, llm__str text, int how);
