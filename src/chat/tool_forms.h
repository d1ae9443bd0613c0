/* tool_forms: the forms in which models write tool calls, as data. One call of each kind of row:
 *
 *   LIST    [TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]                      name and arguments in each object of a list
 *   ONE     <tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>         an object between marks
 *   NAMED   <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}    the name, then the arguments as an object
 *   KEYS    <function=f>\n<parameter=a>\n1\n</parameter>\n</function>              the name, then each argument as an element; a tag may
 *                                                                                 say its type: <|open|>argument key="a" type="number"
 *   MARKED  <|tool_call>call:f{a:1,b:<|"|>x<|"|>}<tool_call|>                       arguments as Gemma writes them (literals.h)
 *   PYTHON  [f(a=1, b='x')]                                                         a list of Python's calls, with marks around it or bare
 *
 * A name that several systems give a form stands in its row once for each spelling; '-' and '_' are one. Where two templates speak the same
 * form with different signs, there are two rows of the same names: the first is found by name, either by its sign. */
#pragma once

/* One form. Of each pair the first mark that fits counts; NULL: the form has no such mark. A line feed in key_end is any white space, or
 * none: GLM-4.5 writes one there, GLM-4.7 does not. */
typedef struct llm__tool_row {
    const char *names;                     /* as users write them: words for llm__alias_among */
    const char *sign;                      /* in chat templates that speak it; NULL: none does */
    const char *begin[2];                  /* a call, or a list of calls */
    const char *open[2];                   /* before a name */
    const char *end, *close;               /* behind a call, behind the last one */
    const char *key, *key_end, *value_end; /* arguments as elements; NULL: as a JSON object */
    const char *call, *call_end;           /* a whole call with JSON arguments, % for the name: what a grammar can write; NULL: it cannot */
    int bare;                              /* an answer that begins with { or [ may be a call too */
    const char *quote; /* arguments as literals, see literals.h: Gemma's mark around texts, or "'", Python's; NULL: JSON */
    int untyped;       /* an element of which the schema says nothing: 1: JSON, if it reads as such; 0: a text */
} llm__tool_row;

#define LLM__LOW "\xE2\x96\x81" /* DeepSeek's marks have U+FF5C for | and U+2581 for _ */
#define LLM__BAR "\xEF\xBD\x9C"
#define LLM__DEEP(mark) "<" LLM__BAR "tool" LLM__LOW mark LLM__BAR ">"
#define LLM__DSML(slash, mark) "<" slash LLM__BAR "DSML" LLM__BAR mark

/* A list of JSON objects between two marks; one object, or arguments behind a name, each between marks; arguments as elements; as
 * literals behind a name. */
#define LLM__TOOL_LIST(names, sign, begin, close) \
    { names, sign, {begin, NULL}, {NULL, NULL}, NULL, close, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0 }
#define LLM__TOOL_ONE(names, sign, begin, end, call, call_end, bare) \
    { names, sign, {begin, NULL}, {NULL, NULL}, end, NULL, NULL, NULL, NULL, call, call_end, bare, NULL, 0 }
#define LLM__TOOL_NAMED(names, sign, begin, open, open_too, end, close) \
    { names, sign, {begin, NULL}, {open, open_too}, end, close, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0 }
#define LLM__TOOL_KEYS(names, sign, begin, begin_too, open, end, close, key, key_end, value_end, untyped) \
    { names, sign, {begin, begin_too}, {open, NULL}, end, close, key, key_end, value_end, NULL, NULL, 0, NULL, untyped }
#define LLM__TOOL_MARKED(names, sign, end, quote) \
    { names, sign, {sign, NULL}, {"call:", NULL}, end, NULL, NULL, NULL, NULL, NULL, NULL, 0, quote, 0 }
#define LLM__TOOL_PYTHON(names, sign, begin, close, bare) \
    { names, sign, {begin, NULL}, {NULL, NULL}, NULL, close, NULL, NULL, NULL, NULL, NULL, bare, "'", 0 }

/* Row 0 is plain JSON, for models that were trained on no form. Templates are asked from the second row on, where it has a sign: signs
 * that others contain stand last ("<tool_call>" also occurs in templates of Qwen3-Coder and GLM). A new form is a new row, as long as it is
 * made of these parts. */
static const llm__tool_row llm__tool_rows[] = {
    LLM__TOOL_ONE("json|generic|xlam", NULL, "```json", "```", "{\"name\": \"%\", \"arguments\": ", "}", 1),
    LLM__TOOL_KEYS("deepseek_v32", "dsml_token + 'function_calls>", LLM__DSML("", "function_calls>"), NULL, LLM__DSML("", "invoke name=\""),
                   LLM__DSML("/", "invoke>"), LLM__DSML("/", "function_calls>"), LLM__DSML("", "parameter name=\""), "\"",
                   LLM__DSML("/", "parameter>"), 1),
    LLM__TOOL_KEYS("deepseek_v4", "dsml_token + 'tool_calls>", LLM__DSML("", "tool_calls>"), NULL, LLM__DSML("", "invoke name=\""),
                   LLM__DSML("/", "invoke>"), LLM__DSML("/", "tool_calls>"), LLM__DSML("", "parameter name=\""), "\"",
                   LLM__DSML("/", "parameter>"), 1),
    LLM__TOOL_KEYS("muse_glimmer", "<atem:function_calls>", "<atem:function_calls>", NULL, "<atem:invoke name=\"", "</atem:invoke>",
                   "</atem:function_calls>", "<atem:parameter name=\"", "\">", "</atem:parameter>", 0),
    LLM__TOOL_KEYS("step3", "<steptml:invoke", LLM__DEEP("calls" LLM__LOW "begin"), NULL,
                   LLM__DEEP("call" LLM__LOW "begin") "function" LLM__DEEP("sep") "<steptml:invoke name=\"",
                   "</steptml:invoke>" LLM__DEEP("call" LLM__LOW "end"), LLM__DEEP("calls" LLM__LOW "end"), "<steptml:parameter name=\"",
                   "\">", "</steptml:parameter>", 0),
    LLM__TOOL_KEYS("kimi_k3", "open_tag('tools')", "<|open|>tools<|sep|>", "<|close|>json<|sep|>", "<|open|>call tool=\"",
                   "<|close|>call<|sep|>", "<|close|>tools<|sep|>", "<|open|>argument key=\"", "\"", "<|close|>argument<|sep|>", 1),
    LLM__TOOL_KEYS("minicpm5", "<param name=\"", "<function name=\"", NULL, "<function name=\"", "</function>", NULL, "<param name=\"",
                   "\">", "</param>", 0),
    {"openai|harmony|gpt_oss",
     "<|channel|>commentary",
     {"<|channel|>commentary to=functions.", "<|start|>assistant to=functions."},
     {NULL, NULL},
     "<|call|>",
     NULL,
     NULL,
     NULL,
     NULL,
     "<|channel|>commentary to=functions.% <|constrain|>json<|message|>",
     "",
     0,
     NULL,
     0},
    LLM__TOOL_MARKED("gemma4", "<|tool_call>", "<tool_call|>", "<|\"|>"),
    LLM__TOOL_MARKED("functiongemma", "<start_function_call>", "<end_function_call>", "<escape>"),
    LLM__TOOL_PYTHON("lfm2", "<|tool_call_start|>", "<|tool_call_start|>", "<|tool_call_end|>", 0),
    LLM__TOOL_PYTHON("lfm2", "List of tools: ", "<|tool_call_start|>", "<|tool_call_end|>", 0),
    LLM__TOOL_PYTHON("olmo3", "<function_calls>", "<function_calls>", "</function_calls>", 0),
    LLM__TOOL_PYTHON("llama4_pythonic", "<|python_start|>", "<|python_start|>", "<|python_end|>", 1),
    LLM__TOOL_LIST("apertus", "<|tools_prefix|>", "<|tools_prefix|>", "<|tools_suffix|>"),
    LLM__TOOL_ONE("gigachat3", "<|function_call|>", "<|function_call|>", NULL, NULL, NULL, 0),
    LLM__TOOL_ONE("gigachat3", "'function call'", "function call<|role_sep|>\n", "<|message_sep|>", NULL, NULL, 0),
    LLM__TOOL_KEYS("minimax_m2|minimax", "<minimax:tool_call>", "<minimax:tool_call>", NULL, "<invoke name=\"", "</invoke>",
                   "</minimax:tool_call>", "<parameter name=\"", "\">", "</parameter>", 0),
    LLM__TOOL_KEYS("seed_oss", "<seed:tool_call>", "<seed:tool_call>", NULL, "<function=", "</function>", "</seed:tool_call>",
                   "<parameter=", ">", "</parameter>", 0),
    LLM__TOOL_KEYS("hy_v3", "<tool_sep{}>", "<tool_calls:opensource>", NULL, "<tool_call:opensource>", "</tool_call:opensource>",
                   "</tool_calls:opensource>", "<arg_key:opensource>", "</arg_key:opensource>\n<arg_value:opensource>",
                   "</arg_value:opensource>", 0),
    LLM__TOOL_KEYS("qwen3_coder|qwen3_xml|step3p5|mimo", "<function=", "<tool_call>", "<function=", "<function=", "</function>",
                   "</tool_call>", "<parameter=", ">", "</parameter>", 0),
    LLM__TOOL_KEYS("glm45|glm4_moe|glm47|poolside_v1", "<arg_key>", "<tool_call>", NULL, NULL, "</tool_call>", NULL, "<arg_key>",
                   "</arg_key>\n<arg_value>", "</arg_value>", 1),
    LLM__TOOL_NAMED("deepseek_v3|deepseek_v31|deepseek", LLM__DEEP("sep"), LLM__DEEP("calls" LLM__LOW "begin"),
                    LLM__DEEP("call" LLM__LOW "begin") "function" LLM__DEEP("sep"), LLM__DEEP("call" LLM__LOW "begin"),
                    LLM__DEEP("call" LLM__LOW "end"), LLM__DEEP("calls" LLM__LOW "end")),
    LLM__TOOL_NAMED("kimi_k2|kimi", "<|tool_calls_section_begin|>", "<|tool_calls_section_begin|>", "<|tool_call_begin|>functions.",
                    "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>"),
    LLM__TOOL_NAMED("solar_open", "<|tool_call:name|>", "<|tool_calls|>", "<|tool_call:name|>", "<|tool_call:begin|>", "<|tool_call:end|>",
                    "<|calls|>"),
    LLM__TOOL_LIST("mistral", "[TOOL_CALLS]", "[TOOL_CALLS]", NULL),
    LLM__TOOL_LIST("cohere|command_r7b|cohere_command3|cohere_command4", "<|START_ACTION|>", "<|START_ACTION|>", "<|END_ACTION|>"),
    LLM__TOOL_LIST("internlm|internlm2", "<|action_start|>", "<|action_start|><|plugin|>", "<|action_end|>"),
    LLM__TOOL_LIST("granite", "<|tool_call|>", "<|tool_call|>", NULL),
    LLM__TOOL_LIST("jamba|hunyuan|hunyuan_a13b", "<tool_calls>", "<tool_calls>", "</tool_calls>"),
    LLM__TOOL_PYTHON("pythonic", NULL, NULL, NULL, 1),
    LLM__TOOL_LIST("granite_20b_fc", "<function_call>", "<function_call>", NULL),
    LLM__TOOL_LIST("nemotron", "<TOOLCALL>", "<TOOLCALL>", "</TOOLCALL>"),
    LLM__TOOL_LIST("phi4_mini_json|firefunction", "functools", "functools", NULL),
    LLM__TOOL_ONE("hermes|qwen|qwen25|qwen2d5|qwen3|granite4|longcat|ernie45|ernie_x1|ernie_45_vl_thinking", "<tool_call>", "<tool_call>",
                  "</tool_call>", "<tool_call>\n{\"name\": \"%\", \"arguments\": ", "}\n</tool_call>", 0),
    LLM__TOOL_ONE("llama3_json|llama4_json|llama", "\"parameters\": dictionary of argument", "<|python_tag|>", NULL,
                  "{\"name\": \"%\", \"parameters\": ", "}", 1),
    LLM__TOOL_ONE("llama3", "<|python_tag|>", "<|python_tag|>", NULL, "{\"name\": \"%\", \"parameters\": ", "}", 1)};
