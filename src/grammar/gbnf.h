/* gbnf: GBNF, llama.cpp's notation.
 *
 *   root   ::= "[" number ("," number)* "]"      # rules, literals, groups, ? * + {n,m}
 *   number ::= "-"? [0-9]{1,9}                   # classes of code points, with ranges and ^; . is any
 * A rule ends where the next one begins, so it may go on in the next line, as in the EBNF of other systems. Read by recursive descent;
 * fragments are joined as they are read, and a rule may be used before it is there.
 *
 *   grammar      = { name "::=" alternatives }
 *   alternatives = sequence { "|" sequence }
 *   sequence     = { item { "?" | "*" | "+" | "{" counts "}" } }
 *   item         = name | literal | class | "." | "(" alternatives ")"
 *
 * root ::= "a" b and b ::= "c" | "(" b ")" become two rules: root: a, CALL b, RETURN; b: a SPLIT to c and to (, CALL b, ); RETURN. What
 * differs from llama.cpp: quotes may be single, and a line end is only a space. */
#pragma once
#include "base/platform.h"
#include "base/text.h"
#include "grammar/machine.h"

/* A grammar: rules in any order, one of them named root.
 * Whether every rule that is used is there can only be said at the end; a rule that is used and not there is a SPLIT that leads nowhere. */
LLM__PRIVATE llm__gr_frag llm__gr_bnf_frag(llm__gr_build *b, llm__str text);
