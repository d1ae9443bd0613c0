/* lexer: the text of a template as tokens.
 *
 * Outside of tags the text is cut at {{, {% and {#, and what jinja2's trim_blocks and lstrip_blocks take away is taken away here: the line
 * feed behind a block, the blanks between the begin of a line and a block in it, and with '-' all white space. Inside of tags there are
 * words. Brackets are counted, because }} may end two dicts.
 *
 *   "a\n  {% if x -%}\n b {{ y[0] }}"   becomes   d "a\n"   B   n "if"   n "x"   b   d "b "   V   n "y"   [   i "0"   ]   v   0
 *
 * The two blanks before {% and the line feed behind -%} are gone, and so is the blank before b. What a tag t takes with it, by its signs:
 *
 *   source                      text before     text behind
 *   "x\n  {% t %}\n y"          "x\n"           " y"             a block takes its own line's blanks and its line feed
 *   "x\n  {%+ t +%}\n y"        "x\n  "         "\n y"           a plus keeps them
 *   "x\n  {%- t -%}\n y"        "x"             "y"              a minus takes all white space on its side
 *   "x\n  {{ t }}\n y"          "x\n  "         "\n y"           an expression takes nothing by itself */
#pragma once
#include "base/platform.h"
#include "chat/template.h"

/* Words with a meaning: their numbers are those below, and names get the numbers behind. The first five are operators, whose tokens have
 * the types "OA!I?". What they are elsewhere (x.in, f(is=1)) is a name, as in jinja2. */
/* clang-format off */
enum {
    LLM__W_OR = 1, LLM__W_AND, LLM__W_NOT, LLM__W_IN, LLM__W_IS, LLM__W_TRUE, LLM__W_TRUE2, LLM__W_FALSE, LLM__W_FALSE2, LLM__W_NONE,
    LLM__W_NONE2, LLM__W_IF, LLM__W_ELIF, LLM__W_ELSE, LLM__W_ENDIF, LLM__W_FOR, LLM__W_ENDFOR, LLM__W_SET, LLM__W_ENDSET, LLM__W_MACRO,
    LLM__W_ENDMACRO, LLM__W_FILTER, LLM__W_ENDFILTER, LLM__W_GENERATION, LLM__W_ENDGENERATION, LLM__W_BREAK, LLM__W_CONTINUE, LLM__W_LOOP,
    LLM__W_CALL, LLM__W_ENDCALL, LLM__W_CALLER
};
/* clang-format on */

/* Operators between operands, from the loosest to those that bind closest. `not` has a level, but stands before its operand. */
enum { LLM__LEVEL_OR = 1, LLM__LEVEL_AND, LLM__LEVEL_NOT, LLM__LEVEL_COMPARE };

/* All tokens of a text. */
LLM__PRIVATE void llm__lex_all(llm__tpl *x);
