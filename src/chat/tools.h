/* tools: tool calls in the forms that models write them in.
 *
 * A model calls a function by writing its name and its arguments in a form it was trained on. There are dozens of forms, but all are made
 * of the same parts, so a form is a row of a table and one parser reads them all:
 *
 *   begin            open   name   (anything short)   arguments      end             close
 *   <tool_call>                                       {"name": "f", "arguments": {...}}   </tool_call>     name and arguments in one object
 *   [TOOL_CALLS]            f      [ARGS]             {...}
 *   <tool_call>   <function=f      >                  <parameter=k>v</parameter>    </function>   </tool_call>
 *
 * The parser has five states: TEXT looks for `begin`, holding back what may become it; BETWEEN skips marks, commas, brackets and white
 * space until an object or a name comes; NAME, OBJECT and ELEMENTS read a call. It keeps the text since the last thing that was certain, so
 * a call that turns out to be malformed is shown as the text it is, and nothing depends on where the pieces were cut. White space beside
 * calls belongs to nobody and is dropped.
 *
 * With a grammar behind the model, a call cannot turn out malformed: then arguments are told byte by byte as they come (`exact`). The same
 * answer in four pieces, in the form "hermes", whose begin is then all that stands before the name:
 *
 *   pushed                              shown      state      call, exact                  call, without a grammar
 *   I look. <tool                       I look.    TEXT
 *   _call>\n{"name": "weather",                    NAME                                    (OBJECT)
 *   "arguments": {"city":                          OBJECT     weather {"city":
 *   "Rome"}}\n</tool_call>                         BETWEEN    weather {"city": "Rome"}     weather, with all arguments at once
 *
 * Without a grammar nothing is told before the last brace: the text could still be no call, and what was told cannot be taken back. */
#pragma once
#include "api/config.h"
#include "api/json.h"
#include "api/template.h"
#include "api/chat.h"
#include "base/platform.h"
#include "tokenizer/tokenizer.h"

/* Asks the tokenizer: the same mark is a special token of one model and plain text of another. */
LLM__PRIVATE int llm__tools_are_special(const llm__tokenizer *tokenizer, int format);

/* llm_template_get_caps that tells whether it had the memory to look: LLM_ERR_NOMEM. */
LLM__PRIVATE llm_result llm__template_caps(const llm_template *t, llm_template_caps *out);

/* The node with a tool's name and parameters: {"type": "function", "function": {...}} in chats; in responses the tool itself. */
LLM__PRIVATE int llm__tool_function(const llm_json *d, int tool);

static const char llm__tool_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."; /* of names */
