/* schema_numbers: numbers of a schema.
 *
 * An automaton cannot subtract: a bound is kept by comparing digits from the left, as one does with numbers of equal length on paper. What
 * must be known of the digits so far is how many they are, whether they are less than the bound's first digits, the same, or more, and, for
 * multipleOf, their remainder. That is a place; a digit leads to another one. (xgrammar's GenerateRangeRegex and llama.cpp's
 * build_min_max_int write the same comparison out as a regex.) From 17 to 235, with < = > for the two comparisons:
 *
 *   read       compared with 17, 235
 *   1          = <      may go on with 7 to 9 and end; or with any two digits, as two are fewer than three
 *   18         > <      may end; any digit may follow, and then it ends
 *   23         > =      may end; 0 to 5 may follow
 *   3          > >      may go on with one digit; more would be above 235
 *
 * Behind the point it goes on in the same way, and a text may stop early: 0.5 is 0.50, so "stop here" means that zeros from here on would
 * be within the bounds. Once nothing that follows can matter, counted digits end it. Dead ends need no care: llm__gr_needs finds them. */
#pragma once
#include "base/platform.h"
#include "grammar/machine.h"
#include "grammar/schema.h"

/* A number. Without bounds: any, with at most 18 digits before the point, 15 behind it and 2 in the exponent, so that it ends. With bounds
 * there is no exponent. Negative numbers are the mirrored range behind a minus sign. */
LLM__PRIVATE llm__gr_frag llm__js_number(llm__js *js, const llm__js_view *v, int integer);
