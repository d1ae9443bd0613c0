/* tool_forms: the forms in which models write tool calls, as data. */
#pragma once

/* One form. Of each pair the first mark that fits counts; NULL: the form has no such mark. */
typedef struct llm__tool_row {
    const char *names;                     /* as users write them: words for llm__alias_among */
    const char *sign;                      /* in chat templates that speak it; NULL: none does */
    const char *begin[2];                  /* a call, or a list of calls */
    const char *open[2];                   /* before a name */
    const char *end, *close;               /* behind a call, behind the last one */
    const char *key, *key_end, *value_end; /* arguments as elements; NULL: as a JSON object */
    const char *call, *call_end;           /* a whole call with JSON arguments, % for the name: what a grammar can write; NULL: it cannot */
    int bare;                              /* an answer that begins with { or [ may be a call too */
} llm__tool_row;

#define LLM__LOW "\xE2\x96\x81" /* DeepSeek's marks have U+FF5C for | and U+2581 for _ */
#define LLM__DEEP(mark) "<\xEF\xBD\x9Ctool" LLM__LOW mark "\xEF\xBD\x9C>"

/* A list of JSON objects between two marks; one object, or arguments behind a name, each between marks; arguments as elements. */
#define LLM__TOOL_LIST(names, sign, begin, close) \
    { names, sign, {begin, NULL}, {NULL, NULL}, NULL, close, NULL, NULL, NULL, NULL, NULL, 0 }
#define LLM__TOOL_ONE(names, sign, begin, end, call, call_end, bare) \
    { names, sign, {begin, NULL}, {NULL, NULL}, end, NULL, NULL, NULL, NULL, call, call_end, bare }
#define LLM__TOOL_NAMED(names, sign, begin, open, open_too, end, close) \
    { names, sign, {begin, NULL}, {open, open_too}, end, close, NULL, NULL, NULL, NULL, NULL, 0 }
#define LLM__TOOL_KEYS(names, sign, begin, begin_too, open, end, close, key, key_end, value_end) \
    { names, sign, {begin, begin_too}, {open, NULL}, end, close, key, key_end, value_end, NULL, NULL, 0 }

/* Row 0 is plain JSON, for models that were trained on no form. Templates are asked from the second row on: signs that others contain stand
 * last ("<tool_call>" also occurs in templates of Qwen3-Coder and GLM). A new form is a new row, as long as it is made of these parts. */
static const llm__tool_row llm__tool_rows[] = {
    LLM__TOOL_ONE("json|generic|xlam", NULL, "```json", "```", "{\"name\": \"%\", \"arguments\": ", "}", 1),
    LLM__TOOL_KEYS("qwen3_coder|qwen3_xml|step3p5", "<function=", "<tool_call>", "<function=", "<function=", "</function>", "</tool_call>",
                   "<parameter=", ">", "</parameter>"),
    LLM__TOOL_KEYS("minimax_m2|minimax", "<minimax:tool_call>", "<minimax:tool_call>", NULL, "<invoke name=\"", "</invoke>",
                   "</minimax:tool_call>", "<parameter name=\"", "\">", "</parameter>"),
    LLM__TOOL_KEYS("seed_oss", "<seed:tool_call>", "<seed:tool_call>", NULL, "<function=", "</function>", "</seed:tool_call>",
                   "<parameter=", ">", "</parameter>"),
    LLM__TOOL_KEYS("glm45|glm4_moe|glm47", "<arg_key>", "<tool_call>", NULL, NULL, "</tool_call>", NULL, "<arg_key>",
                   "</arg_key>\n<arg_value>", "</arg_value>"),
    LLM__TOOL_NAMED("deepseek_v3|deepseek_v31|deepseek_v32|deepseek", LLM__DEEP("sep"), LLM__DEEP("calls" LLM__LOW "begin"),
                    LLM__DEEP("call" LLM__LOW "begin") "function" LLM__DEEP("sep"), LLM__DEEP("call" LLM__LOW "begin"),
                    LLM__DEEP("call" LLM__LOW "end"), LLM__DEEP("calls" LLM__LOW "end")),
    LLM__TOOL_NAMED("kimi_k2|kimi", "<|tool_calls_section_begin|>", "<|tool_calls_section_begin|>", "<|tool_call_begin|>functions.",
                    "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>"),
    LLM__TOOL_LIST("mistral", "[TOOL_CALLS]", "[TOOL_CALLS]", NULL),
    LLM__TOOL_LIST("cohere|command_r7b|cohere_command3", "<|START_ACTION|>", "<|START_ACTION|>", "<|END_ACTION|>"),
    LLM__TOOL_LIST("internlm|internlm2", "<|action_start|>", "<|action_start|><|plugin|>", "<|action_end|>"),
    LLM__TOOL_LIST("granite", "<|tool_call|>", "<|tool_call|>", NULL),
    LLM__TOOL_LIST("jamba|hunyuan|hunyuan_a13b", "<tool_calls>", "<tool_calls>", "</tool_calls>"),
    LLM__TOOL_LIST("nemotron", "<TOOLCALL>", "<TOOLCALL>", "</TOOLCALL>"),
    LLM__TOOL_LIST("phi4_mini_json|firefunction", "functools", "functools", NULL),
    LLM__TOOL_ONE("hermes|qwen|qwen25|qwen2d5|qwen3|granite4|longcat|ernie45|ernie_x1|ernie_45_vl_thinking", "<tool_call>", "<tool_call>",
                  "</tool_call>", "<tool_call>\n{\"name\": \"%\", \"arguments\": ", "}\n</tool_call>", 0),
    LLM__TOOL_ONE("llama3_json|llama4_json|llama", "\"parameters\": dictionary of argument", "<|python_tag|>", NULL,
                  "{\"name\": \"%\", \"parameters\": ", "}", 1),
    LLM__TOOL_ONE("llama3", "<|python_tag|>", "<|python_tag|>", NULL, "{\"name\": \"%\", \"parameters\": ", "}", 1)};
