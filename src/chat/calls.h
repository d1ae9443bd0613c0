/* calls: calls and their arguments.
 *
 * Filters, tests, methods and global functions are rows of a table, all called in one way. What Python checks about arguments (too many,
 * missing, twice, of no such name) is checked here by the row's spec, so the functions themselves only look at types. A new filter is a
 * function and a row:
 *
 *   LLM__TPL_FN(llm__fn_times) { return llm__tpl_arith(x, '*', self, a[0]); }              self: what stands left of '|'
 *   {"times", LLM__IN_FILTER, "count!", llm__fn_times, 0},                                 x|times(3), x|times(count=3), not x|times */
#pragma once
#include "base/platform.h"
#include "base/text.h"
#include "chat/template.h"

/* An argument given by name, or NULL. */
LLM__PRIVATE const llm__val *llm__args_named(llm__tpl *x, const llm__args *g, llm__str name);

/* Calls a row of the table on a value: what {{ self|name(g) }} and {{ self.name(g) }} come down to. */
LLM__PRIVATE llm__val llm__tpl_apply(llm__tpl *x, const llm__tpl_row *row, llm__val self, const llm__args *g);

/* The filter or test of that name. */
LLM__PRIVATE const llm__tpl_row *llm__tpl_row_of(llm__tpl *x, int where, llm__str name);

/* Arguments without the first k by position. */
LLM__PRIVATE llm__args llm__args_after(const llm__args *g, int k);

/* Arguments as C wants them, with an error where the type does not fit. An optional whole number: */
LLM__PRIVATE int64_t llm__arg_int(llm__tpl *x, llm__val v, int64_t absent);

/* A text that must be given. */
LLM__PRIVATE llm__str llm__arg_text(llm__tpl *x, llm__val v);

/* An optional text; `absent`, which may be NULL, for None too. */
LLM__PRIVATE llm__str llm__arg_str(llm__tpl *x, llm__val v, const char *absent);
