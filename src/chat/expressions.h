/* expressions: variables and expressions.
 *
 * A scope holds few variables, mostly `loop` and the target of a for, so it is searched from its begin, by the number that the lexer gave
 * the name. Setting always goes to the inner scope: {% set %} in a loop is gone after the turn, which is why templates use namespaces. */
#pragma once
#include "base/platform.h"
#include "chat/template.h"

/* Opens a scope within `up`; returns the one that was open, which the caller puts back. Scopes are never freed: a macro may hold one. */
LLM__PRIVATE llm__scope *llm__tpl_scope(llm__tpl *x, llm__scope *up);

/* Sets a variable of the scope that is open, in its old place if it is there. */
LLM__PRIVATE void llm__tpl_assign(llm__tpl *x, uint16_t name, llm__val v);

/* The variable that a token names: from the inner scope outwards; else undefined. Numbers are compared, no texts. */
LLM__PRIVATE llm__val llm__tpl_lookup(llm__tpl *x, const llm__tpl_token *t);

/* An error at the token that is read. */
LLM__PRIVATE LLM__NORETURN void llm__tpl_syntax(llm__tpl *x, const char *what);

LLM__PRIVATE char llm__tpl_type(const llm__tpl *x);

/* The token, if it is this word, or of this type, is skipped; llm__tpl_want: it must be there. */
LLM__PRIVATE int llm__tpl_word(llm__tpl *x, int word);
LLM__PRIVATE int llm__tpl_skip(llm__tpl *x, char type);

LLM__PRIVATE void llm__tpl_want(llm__tpl *x, char type, const char *what);

/* Between items: a comma, unless the bracket `close` ends them. */
LLM__PRIVATE void llm__tpl_comma(llm__tpl *x, char close, const char *what);

/* A name, skipped. */
LLM__PRIVATE const llm__tpl_token *llm__tpl_name(llm__tpl *x);

/* An expression, or several with commas between: a tuple. With `plain` they have no if-else, which would take the if of a for. */
LLM__PRIVATE llm__val llm__tpl_tuple(llm__tpl *x, int plain);

/* A filter or test of v: x behind '|' or `is`. One argument of a test may stand without parentheses: v is divisibleby 3. */
LLM__PRIVATE llm__val llm__tpl_filter(llm__tpl *x, llm__val v, int where);

/* a if b else c. The check notes in the first token of a where b begins, so that b can be evaluated first, and then one of the others. */
LLM__PRIVATE llm__val llm__tpl_expr(llm__tpl *x);
