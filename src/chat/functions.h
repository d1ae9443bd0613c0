/* functions: methods, filters, tests and global functions.
 *
 * `self` is the text; a filter of the same function may be given any value and makes a text of it first. What is a part of the text (strip,
 * split) is a view of its bytes, the rest is written anew. Python's special cases of case (sigma at the end of a word, title case of the
 * Croatian digraphs) are left out, but for the German sharp s, whose capital is SS. */
#pragma once
#include "base/platform.h"
#include "base/text.h"
#include "chat/template.h"

/* A text for HTML, marked safe; one that is marked already stays. */
LLM__PRIVATE llm__val llm__tpl_escape(llm__tpl *x, llm__val v);

/* The value of a JSON text; UNSET if it is none. Marks go before it is read: the texts in it are guarded one by one. The document is freed
 * with the render, should an error come between. */
LLM__PRIVATE llm__val llm__tpl_parse_json(llm__tpl *x, llm__str s);

/* Row i, from 0; NULL behind the last one. And the number of a row. */
LLM__PRIVATE const llm__tpl_row *llm__tpl_row_at(int i);
LLM__PRIVATE int llm__tpl_row_number(const llm__tpl_row *row);

/* The row of that name that counts there, or NULL. */
LLM__PRIVATE const llm__tpl_row *llm__tpl_named(int where, llm__str name);
