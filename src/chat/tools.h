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
#include "api/text.h"
#include "api/chat.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"

/* One form. Of each pair the first mark that fits counts; NULL: the form has no such mark. */
typedef struct llm__tool_row {
    const char *names;           /* as users write them: words for llm__alias_among */
    const char *sign;            /* in chat templates that speak it; NULL: none does */
    const char *begin[2];        /* a call, or a list of calls */
    const char *open[2];         /* before a name */
    const char *end, *close;     /* behind a call, behind the last one */
    const char *key, *key_end, *value_end; /* arguments as elements; NULL: as a JSON object */
    const char *call, *call_end; /* a whole call with JSON arguments, % for the name: what a grammar can write; NULL: it cannot */
    int bare;                    /* an answer that begins with { or [ may be a call too */
} llm__tool_row;

/* Asks the tokenizer: the same mark is a special token of one model and plain text of another. */
LLM__PRIVATE int llm__tools_are_special(const llm__tokenizer *tokenizer, int format);

/* The node with a tool's name and parameters: {"type": "function", "function": {...}} in chats; in responses the tool itself. */
LLM__PRIVATE int llm__tool_function(const llm_json *d, int tool);

/* Writes the tag by the row's `call`, whose text before and behind the arguments stands around the function's schema. In the form "hermes",
 * for one tool that may be called:
 *
 *   {"structures":[{"begin":"<tool_call>\n{\"name\": \"weather\", \"arguments\": ","schema":{...},"end":"}\n</tool_call>"}],
 *    "triggers":["<tool_call>"],"separator":"\n","at_least_one":false,"stop_after_first":false}
 *
 * Text is free until a trigger is written; from there on one of the structures must follow. A form that begins with a bare brace has no
 * such trigger, and special tokens cannot be written by a grammar over text: these are the cases that give -1 or plain JSON. A function
 * without parameters has an empty object for arguments. */
LLM__PRIVATE int llm__tools_grammar(const llm__tokenizer *tokenizer, int format, const llm_json *tools, int list, int only, int must, int many,
                              llm_text *out);

typedef enum llm__tool_state {
    LLM__TOOL_TEXT = 0, LLM__TOOL_BETWEEN, LLM__TOOL_NAME, LLM__TOOL_OBJECT, LLM__TOOL_ELEMENTS
} llm__tool_state;

static const char llm__tool_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."; /* of names */

/* One answer's parser. `held` is what is not decided yet, and all offsets count from its beginning: [0, at) was looked at, the rest was
 * not. Whatever is decided leaves at the front (llm__tool_drop), so held stays as short as one call. */
struct llm_tool_parser {
    llm__tool_row row;    /* a copy: with `exact` begin and end are those of row.call */
    char begin[64];       /* what stands before the name in row.call */
    const llm_json *tools;
    int list, exact;
    int32_t most;
    llm__tool_state state;
    int fresh;            /* the answer has had no text yet */
    int section;          /* a call was read since the last `begin` */
    int named;            /* a name may come: behind begin and open */
    llm_text held;        /* not decided yet */
    size_t at;            /* what is before it in held was looked at */
    size_t name, name_end, from; /* in held: the name, -1 before one; where the arguments begin, or the object with both */
    int depth, in_string; /* of the object; in_string 2: behind a backslash */
    llm_text elements;    /* arguments so far, as JSON */
    llm_tool_call *calls;
    int32_t n_calls, cap;
    int failed;
};
