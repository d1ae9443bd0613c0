/* statements: for, if, set, macro and the others.
 *
 * A block is statements up to one of the tags that its owner waits for. After a break or continue the blocks around it end as well, up to
 * the loop. A block with a scope of its own (for, macro, block set, filter, generation) opens one, others run in the scope that is open:
 *
 *   {% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{% for i in [3] %}{% set x = i %}{% endfor %}{{ x }}     prints 2 */
#pragma once
#include "base/platform.h"
#include "chat/template.h"

/* Runs a macro in a scope within the one it was defined in: parameters by position, by name, by default, and an error for arguments that
 * nobody takes. Its output is its value. For macro f(a, b, c=2), called as f(1, d=4):
 *
 *   a   by position                      1
 *   b   not given, and without default   undefined, which is an error only where Python refuses it
 *   c   not given: its default           2, evaluated now, where a and b are seen already
 *   d   no parameter                     an error */
LLM__PRIVATE llm__val llm__tpl_call_macro(llm__tpl *x, const llm__vobject *m, const llm__args *g);

/* Statements up to a tag that begins with a word of the set `ends`, which x stands at then; none: up to the end of the text. Where they are
 * not live, or after a break, the walk goes on at that tag at once, if the check has noted it. */
LLM__PRIVATE void llm__tpl_block(llm__tpl *x, uint32_t ends, int live);
