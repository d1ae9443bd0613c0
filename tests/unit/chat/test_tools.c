/* Tool calls: every format whole, in pieces of one byte and of three; what looks like a call and is none; grammars that write calls. */
#include "../test.h"
#include "base/platform.h"
#include "chat/tool_forms.h"
#include "chat/literals.h"

static const char tools_list[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},"
    "\"metric\":{\"type\":\"boolean\"},\"where\":{\"$ref\":\"#/$defs/P\"},\"tags\":{\"type\":\"array\"}},\"required\":[\"city\"],\"additionalProperties\":false,"
    "\"$defs\":{\"P\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}},\"required\":[\"x\"],\"additionalProperties\":false}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";

#define TOK(s) \
    "<\xEF\xBD\x9C" \
    "tool\xE2\x96\x81" s "\xEF\xBD\x9C>"

#define DSML(slash, s) \
    "<" slash "\xEF\xBD\x9C" \
    "DSML" \
    "\xEF\xBD\x9C" s

/* parser, answer, wanted: content, then |name(arguments) of each call */
/* clang-format off */
static const char *const tools_golden[][3] = {
    {"hermes", "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 2}}\n</tool_call>", "Let me see.|get_weather({\"city\":\"Paris\",\"days\":2})"},
    {"hermes", "<tool_call>{\"arguments\": {\"city\": \"}{\\\"\"}, \"name\": \"get_weather\"}</tool_call>\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n", "|get_weather({\"city\":\"}{\\\"\"})|now({})"},
    {"hermes", "<tool_call>\n{\"name\": \"now\", \"arguments\": \"{\\\"a\\\": 1}\"}", "|now({\"a\":1})"},
    {"hermes", "a <tool_call>\n{\"name\": \"now\", \"arguments\": {bad}}\n</tool_call> b", "a <tool_call>\n{\"name\": \"now\", \"arguments\": {bad}}\n</tool_call> b"},
    {"hermes", "a <tool_call>\n{\"name\": \"now\", \"argum", "a <tool_call>\n{\"name\": \"now\", \"argum"},
    {"hermes", "x <tool_ca <tool <tool_call", "x <tool_ca <tool <tool_call"},
    {"hermes", "2 < 3\n\n", "2 < 3\n\n"},
    {"hermes", "A <tool_call> is a tag, said the man who had read much about tags and their use in models of languages, and in others.", "A <tool_call> is a tag, said the man who had read much about tags and their use in models of languages, and in others."},
    {"hermes", "<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call> and <b>text</b>", "and <b>text</b>|now({})"},
    {"hermes", "<tool_call>{\"name\":\"unknown\",\"arguments\":{}}</tool_call>", "|unknown({})"},
    {"hermes", "<tool_call>[1, 2]</tool_call>", "<tool_call>[1, 2]</tool_call>"},
    {"hermes", "<tool_call>{\"name\":\"now\",\"arguments\":[1]}</tool_call>", "<tool_call>{\"name\":\"now\",\"arguments\":[1]}</tool_call>"},
    {"llama3_json", "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}", "|get_weather({\"city\":\"Rome\"})"},
    {"llama3_json", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}; {\"name\": \"now\", \"parameters\": {}}", "|get_weather({\"city\":\"Rome\"})|now({})"},
    {"llama3_json", "{\"name\": \"Anna\", \"age\": 7}", "{\"name\": \"Anna\", \"age\": 7}"},
    {"llama3_json", "The object {\"name\": \"now\", \"parameters\": {}} is one.", "The object {\"name\": \"now\", \"parameters\": {}} is one."},
    {"mistral", "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}, {\"name\": \"now\", \"arguments\": {}, \"id\": \"123456789\"}]", "|get_weather({\"city\":\"Rome\"})|now({})"},
    {"mistral", "Yes.[TOOL_CALLS]get_weather{\"city\": \"Rome\"}", "Yes.|get_weather({\"city\":\"Rome\"})"},
    {"mistral", "[TOOL_CALLS]get_weather[CALL_ID]abcDEF123[ARGS]{\"city\": \"Rome\"}[TOOL_CALLS]now[ARGS]{}", "|get_weather({\"city\":\"Rome\"})|now({})"},
    {"mistral", "[1, 2] [TOOL]", "[1, 2] [TOOL]"},
    {"deepseek_v3", "Ok " TOK("calls\xE2\x96\x81" "begin") TOK("call\xE2\x96\x81" "begin") "function" TOK("sep") "get_weather\n```json\n{\"city\": \"Rome\"}\n```" TOK("call\xE2\x96\x81" "end") "\n"
     TOK("call\xE2\x96\x81" "begin") "function" TOK("sep") "now\n```json\n{}\n```" TOK("call\xE2\x96\x81" "end") TOK("calls\xE2\x96\x81" "end"), "Ok|get_weather({\"city\":\"Rome\"})|now({})"},
    {"deepseek_v31", TOK("calls\xE2\x96\x81" "begin") TOK("call\xE2\x96\x81" "begin") "get_weather" TOK("sep") "{\"city\": \"Rome\"}" TOK("call\xE2\x96\x81" "end") TOK("call\xE2\x96\x81" "begin") "now"
     TOK("sep") "{}" TOK("call\xE2\x96\x81" "end") TOK("calls\xE2\x96\x81" "end"), "|get_weather({\"city\":\"Rome\"})|now({})"},
    {"qwen3_coder", "Sure.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nNew\nYork\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n"
     "<parameter=tags>\n[\"a\", 1]\n</parameter>\n</function>\n</tool_call>", "Sure.|get_weather({\"city\": \"New\\nYork\", \"days\": 3, \"metric\": true, \"tags\": [\"a\",1]})"},
    {"qwen3_coder", "<function=get_weather>\n<parameter=city>\n12\n</parameter>\n</function>\n<function=now>\n</function>", "|get_weather({\"city\": \"12\"})|now({})"},
    {"qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome", "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome"},
    {"minimax_m2", "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Rome</parameter>\n</invoke>\n</minimax:tool_call>", "|get_weather({\"city\": \"Rome\"})"},
    {"seed_oss", "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Rome</parameter>\n</function>\n</seed:tool_call>", "|get_weather({\"city\": \"Rome\"})"},
    {"glm45", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>", "|get_weather({\"city\": \"Rome\", \"days\": 2})|now({})"},
    {"glm47", "Yes.<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rome</arg_value><arg_key>days</arg_key> \n\t<arg_value>2</arg_value></tool_call><tool_call>now</tool_call>", "Yes.|get_weather({\"city\": \"Rome\", \"days\": 2})|now({})"},
    {"glm45", "<tool_call>now\n<arg_key>a</arg_key>b</arg_key><arg_value>1</arg_value></tool_call>", "|now({\"a</arg_key>b\": 1})"},
    {"glm45", "<tool_call>now\n<arg_key>a</arg_key>-<arg_value>1</arg_value></tool_call>", "<tool_call>now\n<arg_key>a</arg_key>-<arg_value>1</arg_value></tool_call>"},
    {"kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Rome\"}<|tool_call_end|><|tool_calls_section_end|>", "|get_weather({\"city\":\"Rome\"})"},
    {"solar_open", "<|tool_calls|><|tool_call:begin|>call00001<|tool_call:name|>get_weather<|tool_call:args|>{\"city\": \"Rome\"}<|tool_call:end|><|tool_call:begin|>b-2<|tool_call:name|>now<|tool_call:args|>{}<|tool_call:end|><|calls|>", "|get_weather({\"city\":\"Rome\"})|now({})"},
    {"granite", "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]", "|now({})"},
    {"jamba", "<tool_calls>[\n{\"name\": \"now\", \"arguments\": {}}\n]</tool_calls>", "|now({})"},
    {"internlm", "I see<|action_start|><|plugin|>\n{\"name\": \"now\", \"parameters\": {}}\n<|action_end|>", "I see|now({})"},
    {"command_r7b", "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"now\", \"parameters\": {}}\n]<|END_ACTION|>", "|now({})"},
    {"phi4_mini_json", "functools[{\"name\": \"now\", \"arguments\": {}}]", "|now({})"},
    {"nemotron", "<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>", "|now({})"},
    {"openai", "<|channel|>commentary to=functions.get_weather<|message|>{\"city\": \"Rome\"}<|channel|>commentary to=functions.now<|message|>{}", "|get_weather({\"city\":\"Rome\"})|now({})"},
    {"openai", "I look.<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{\"city\": \"Rome\"}<|call|>", "I look.|get_weather({\"city\":\"Rome\"})"},
    {"gemma4", "I see.<|tool_call>call:get_weather{city:<|\"|>Ro{m}e<|\"|>,days:2,metric:true,where:{x:1},tags:[<|\"|>a<|\"|>,2.50,null]}<tool_call|><|tool_call>call:now{}<tool_call|>", "I see.|get_weather({\"city\": \"Ro{m}e\", \"days\": 2, \"metric\": true, \"where\": {\"x\": 1}, \"tags\": [\"a\", 2.50, null]})|now({})"},
    {"gemma4", "<|tool_call>call:now{a:<|\"|>no end}<tool_call|>", "<|tool_call>call:now{a:<|\"|>no end}<tool_call|>"},
    {"gemma4", "<|tool_call>call:get_weather{city:Rome, days: 007}<tool_call|> done", "done|get_weather({\"city\": \"Rome\", \"days\": 7})"},
    {"functiongemma", "<start_function_call>call:get_weather{city:<escape>New \"York\"<escape>,days:-1e3}<end_function_call>", "|get_weather({\"city\": \"New \\\"York\\\"\", \"days\": -1e3})"},
    {"pythonic", "[get_weather(city='Ro\\'me)', days=+3, metric=True), now()]", "|get_weather({\"city\": \"Ro'me)\", \"days\": 3, \"metric\": true})|now({})"},
    {"pythonic", " [now(a=1_000, b=.5, c=2., d={'x': [1, (2, None)], 3.5: \"y\" 'z'}, e=\"\\u20ac\\n\\x41\\7\\q\")] then text", "then text|now({\"a\": 1000, \"b\": 0.5, \"c\": 2.0, \"d\": {\"x\": [1, [2, null]], \"3.5\": \"yz\"}, \"e\": \"\xE2\x82\xAC\\nA\\u0007\\\\q\"})"},
    {"pythonic", "[1] is a note, [now] another", "[1] is a note, [now] another"},
    {"pythonic", "[unknown(a=1)]", "[unknown(a=1)]"},
    {"pythonic", "[now(1, 2)]", "[now(1, 2)]"},
    {"pythonic", "[now(a=f(1))]", "[now(a=f(1))]"},
    {"pythonic", "[now(a='open)]", "[now(a='open)]"},
    {"llama4_pythonic", "<|python_start|>[now(), get_weather(city=\"Rome\")]<|python_end|>", "|now({})|get_weather({\"city\": \"Rome\"})"},
    {"lfm2", "Let me see. <|tool_call_start|>[get_weather(city=\"Rome\", days=3)]<|tool_call_end|>The weather", "Let me see.The weather|get_weather({\"city\": \"Rome\", \"days\": 3})"},
    {"olmo3", "<function_calls>\nget_weather(city=\"Rome\")\nnow()\n</function_calls>", "|get_weather({\"city\": \"Rome\"})|now({})"},
    {"apertus", "<|tools_prefix|>[{\"get_weather\": {\"city\": \"Rome\"}}, {\"now\": {}}]<|tools_suffix|>", "|get_weather({\"city\":\"Rome\"})|now({})"},
    {"kimi_k3", "Sure.<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|><|open|>argument key=\"city\" type=\"string\"<|sep|>7<|close|>argument<|sep|><|open|>argument key=\"days\" type=\"number\"<|sep|>3<|close|>argument<|sep|>"
     "<|close|>call<|sep|><|open|>call tool=\"get_weather\" index=\"2\"<|sep|><|open|>json type=\"object\"<|sep|>{\"city\": \"Rome\"}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>", "Sure.|get_weather({\"city\": \"7\", \"days\": 3})|get_weather({\"city\":\"Rome\"})"},
    {"hy_v3", "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Rome</arg_value:opensource>\n</tool_call:opensource>\n"
     "<tool_call:opensource>now<tool_sep:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>", "|get_weather({\"city\": \"Rome\"})|now({})"},
    {"hy_v3", "<tool_calls:opensource><tool_call:opensource>get_weather<tool_sep:opensource><arg_key:opensource>city</arg_key:opensource><arg_value:opensource>Rome</arg_value:opensource></tool_call:opensource></tool_calls:opensource>", "|get_weather({\"city\": \"Rome\"})"},
    {"gigachat3", "I look.<|function_call|>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}", "I look.|get_weather({\"city\":\"Rome\"})"},
    {"granite-20b-fc", "<function_call> {\"name\": \"now\", \"arguments\": {}}<function_call> {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}", "|now({})|get_weather({\"city\":\"Rome\"})"},
    {"deepseek_v32", "So:\n\n" DSML("", "function_calls>") "\n" DSML("", "invoke name=\"get_weather\">") "\n" DSML("", "parameter name=\"city\" string=\"true\">") "12" DSML("/", "parameter>") "\n" DSML("", "parameter name=\"days\" string=\"false\">")
     "12" DSML("/", "parameter>") "\n" DSML("/", "invoke>") "\n" DSML("/", "function_calls>"), "So:|get_weather({\"city\": \"12\", \"days\": 12})"},
    {"deepseek_v4", DSML("", "tool_calls>") "\n" DSML("", "invoke name=\"now\">") "\n" DSML("/", "invoke>") "\n" DSML("/", "tool_calls>"), "|now({})"},
    {"muse_glimmer", "<atem:function_calls>\n<atem:invoke name=\"get_weather\">\n<atem:parameter name=\"city\">Rome</atem:parameter>\n</atem:invoke>\n</atem:function_calls>", "|get_weather({\"city\": \"Rome\"})"},
    {"minicpm5", "<function name=\"get_weather\"><param name=\"tags\"><![CDATA[</param>\n1]]></param><param name=\"days\">2</param></function>", "|get_weather({\"tags\": \"</param>\\n1\", \"days\": 2})"},
    {"step3", TOK("calls\xE2\x96\x81" "begin") TOK("call\xE2\x96\x81" "begin") "function" TOK("sep") "<steptml:invoke name=\"get_weather\"><steptml:parameter name=\"city\">Rome</steptml:parameter></steptml:invoke>" TOK("call\xE2\x96\x81" "end")
     TOK("calls\xE2\x96\x81" "end"), "|get_weather({\"city\": \"Rome\"})"},
    {"json", "[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}, {\"name\": \"now\"}]", "|get_weather({\"city\":\"Rome\"})|now({})"},
    {"json", "```json\n{\"function\": {\"name\": \"now\", \"arguments\": \"{}\"}}\n```", "|now({})"},
    {"json", "```json\n{\"a\": 1}\n```\nis JSON", "```json\n{\"a\": 1}\n```\nis JSON"},
    {"json", "[1, 2, 3]", "[1, 2, 3]"},
    {"json", "  plain ", "  plain "}};
/* clang-format on */

/* What a parser says of an answer in pieces of n bytes, as the goldens have it. */
static void tools_run(int format, int exact, int most, const llm_json *tools, const char *answer, size_t piece, llm_text *out) {
    llm_tool_parser *p = llm_tool_parser_create(format, exact, tools, tools ? 0 : -1, most);
    int32_t n;
    out->len = 0;
    llm_text_str(out, "");
    for (size_t at = 0, len = strlen(answer); at < len; at += piece)
        llm_tool_parser_push(p, answer + at, piece < len - at ? piece : len - at, out);
    llm_tool_parser_end(p, out);
    const llm_tool_call *calls = llm_tool_parser_calls(p, &n);
    for (int32_t i = 0; i < n; i++) {
        llm_text_str(out, "|"), llm_text_add(out, calls[i].name.data, calls[i].name.len);
        llm_text_str(out, "("), llm_text_add(out, calls[i].arguments.data, calls[i].arguments.len),
            llm_text_str(out, calls[i].done ? ")" : "...");
    }
    llm_tool_parser_free(p);
}

static void tools_formats(const llm_json *tools) {
    static const size_t pieces[] = {1, 3, 100000};
    llm_text out = {0};
    for (int i = 0; i < LLM__COUNT(tools_golden); i++)
        for (int k = 0; k < 3; k++) {
            tools_run(llm_tools_named(tools_golden[i][0]), 0, 0, tools, tools_golden[i][1], pieces[k], &out);
            if (!CHECK(!strcmp(out.data, tools_golden[i][2])))
                printf("  %s, pieces of %d: %s\n    got    %s\n    wanted %s\n", tools_golden[i][0], (int)pieces[k], tools_golden[i][1],
                       out.data, tools_golden[i][2]);
        }
    tools_run(llm_tools_named("hermes"), 0, 1, tools, tools_golden[1][1], 1, &out); /* one call at most */
    CHECK(!strcmp(out.data, "|get_weather({\"city\":\"}{\\\"\"})"));
    for (int k = 0; k < 3; k++) { /* told as it comes: also when it is cut */
        tools_run(
            llm_tools_named("hermes"), 1, 0, tools,
            "So: <tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": [1,  2]}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {\"b\": \"x",
            pieces[k], &out);
        CHECK(!strcmp(out.data, "So:|now({\"a\": [1,  2]})|now({\"b\": \"x..."));
        tools_run(0, 1, 0, NULL, "{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"arguments\": {\"a\": {}}}", pieces[k],
                  &out);
        CHECK(!strcmp(out.data, "|now({})|now({\"a\": {}})"));
    }
    static char longer[400] = "```json now ``` ```json "; /* a name that is too long is none from the same byte on, however it comes */
    llm_text name = {0};
    memset(longer + strlen(longer), 'x', 300);
    tools_run(0, 0, 0, NULL, longer, 1, &out);
    tools_run(0, 0, 0, NULL, longer, 1000, &name);
    CHECK(!strcmp(name.data, out.data) && strstr(out.data, "|now({})"));
    llm_text_free(&name);
    llm_text_free(&out);
}

/* What an element's value is by its parameter's schema; NULL: the schema lists no such parameter. */
static void tools_types(void) {
    /* clang-format off */
    static const struct { const char *parser, *schema, *value, *want; } rows[] = {
        {"qwen3_coder", "{'type':'string'}", "12", "\"12\""}, {"qwen3_coder", "{'type':'str'}", "12", "\"12\""},
        {"qwen3_coder", "{'anyOf':[{'type':'string'},{'type':'null'}]}", "12", "\"12\""}, {"qwen3_coder", "{'anyOf':[{'type':'string'},{'type':'null'}]}", "None", "null"},
        {"qwen3_coder", "{'anyOf':[{'type':'string'},{'type':'null'}]}", "True", "\"True\""}, {"qwen3_coder", "{'anyOf':[{'type':'null'},{'oneOf':[{'type':'string'}]}]}", "[1]", "\"[1]\""},
        {"qwen3_coder", "{'type':['string','null']}", "true", "\"true\""}, {"qwen3_coder", "{'type':['null','string']}", "null", "null"}, {"qwen3_coder", "{'type':['string','null']}", "\"a\"", "\"\\\"a\\\"\""},
        {"qwen3_coder", "{'type':['string','integer']}", "7", "7"}, {"qwen3_coder", "{'type':['string','integer']}", "7.5", "\"7.5\""}, {"qwen3_coder", "{'type':['string','number']}", "7.5", "7.5"},
        {"qwen3_coder", "{'oneOf':[{'type':'array'},{'type':'string'}]}", "['a', None]", "[\"a\",null]"}, {"qwen3_coder", "{'oneOf':[{'type':'array'},{'type':'string'}]}", "{'a': 1}", "\"{'a': 1}\""},
        {"qwen3_coder", "{'type':'object'}", "{'a': (1, True), 'b': 'it\\'s'}", "{\"a\":[1,true],\"b\":\"it's\"}"}, {"qwen3_coder", "{'type':'object'}", "{'a': f(1)}", "\"{'a': f(1)}\""}, {"qwen3_coder", "{'type':'array'}", "[1] [2]", "\"[1] [2]\""},
        {"qwen3_coder", "{'type':'int'}", "7", "7"}, {"qwen3_coder", "{'type':'uint8'}", "7", "7"}, {"qwen3_coder", "{'type':'bool'}", "False", "false"},
        {"qwen3_coder", "{'enum':['1','2']}", "1", "\"1\""}, {"qwen3_coder", "{'enum':[1,2]}", "1", "1"}, {"qwen3_coder", "{'const':3}", "3", "3"}, {"qwen3_coder", "{'allOf':[{'type':'integer'}]}", "3", "3"},
        {"qwen3_coder", "{'$ref':'#/$defs/P'}", "{\"x\": 1}", "{\"x\":1}"}, {"qwen3_coder", "{'anyOf':[{'$ref':'#/$defs/P'},{'type':'null'}]}", "{\"x\": 1}", "{\"x\":1}"},
        {"qwen3_coder", "{}", "12", "\"12\""}, {"qwen3_coder", NULL, "12", "\"12\""}, {"glm47", "{}", "12", "12"}, {"glm47", NULL, "12", "12"}, {"glm47", NULL, "{'a': 1}", "{\"a\":1}"}, {"glm47", NULL, "Rome", "\"Rome\""},
        {"glm47", "{'anyOf':[{'type':'string'},{'type':'null'}]}", "12", "\"12\""}};
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        const int glm = rows[i].parser[0] == 'g';
        llm_text list = {0}, answer = {0}, want = {0}, out = {0};
        llm_json *tools = NULL;
        llm_text_format(&list, "[{'type':'function','function':{'name':'f','parameters':{'type':'object','properties':{");
        llm_text_str(&list, rows[i].schema ? "\"a\":" : "");
        for (const char *c = rows[i].schema; c && *c; c++) llm_text_add(&list, *c == '\'' ? "\"" : c, 1);
        llm_text_str(&list, "}}}}]");
        llm_text_str(&answer, glm ? "<tool_call>f<arg_key>a</arg_key><arg_value>" : "<tool_call>\n<function=f>\n<parameter=a>\n");
        llm_text_str(&answer, rows[i].value);
        llm_text_str(&answer, glm ? "</arg_value></tool_call>" : "\n</parameter>\n</function>\n</tool_call>");
        llm_text_str(&want, "|f({\"a\": "), llm_text_str(&want, rows[i].want), llm_text_str(&want, "})");
        if (!CHECK(!llm_json_parse(list.data, list.len, NULL, &tools))) return;
        tools_run(llm_tools_named(rows[i].parser), 0, 0, tools, answer.data, 1000, &out);
        if (!CHECK(!strcmp(out.data, want.data))) printf("  %s\n    got    %s\n    wanted %s\n", rows[i].schema, out.data, want.data);
        llm_json_free(tools);
        llm_text_free(&list), llm_text_free(&answer), llm_text_free(&want), llm_text_free(&out);
    }
}

/* Any bytes: the same in all pieces, and what is no call comes back whole. */
static void tools_noise(const llm_json *tools) {
    /* clang-format off */
    static const char *const bits[] = {"<tool_call>", "</tool_call>", "{", "}", "[", "]", "\"name\"", ": ", "\"now\"", "\"arguments\"", "<function=", "now", ">", "</function>", "\n", " ", "<", "[TOOL_CALLS]", "\\", "\"", ",", "x", "<arg_key>",
                                       "<parameter=", "</parameter>", "```json", "```", "[ARGS]", "{}", "(", ")", "a=", "'", "<|\"|>", "<|tool_call>call:", "a:", "<|channel|>commentary to=functions.", "<|call|>"};
    /* clang-format on */
    uint64_t x = 7;
    llm_text answer = {0}, one = {0}, all = {0};
    for (int round = 0; round < 4000; round++) {
        int format = round % LLM__COUNT(llm__tool_rows);
        answer.len = 0;
        llm_text_str(&answer, "");
        for (int i = 0; i < 24; i++)
            x = x * 6364136223846793005u + 1442695040888963407u, llm_text_str(&answer, bits[(x >> 33) % LLM__COUNT(bits)]);
        tools_run(format, round & 1, 0, tools, answer.data, 1, &one);
        tools_run(format, round & 1, 0, tools, answer.data, 5, &all);
        if (!CHECK(!strcmp(one.data, all.data)))
            printf("  format %d: %s\n    by one  %s\n    by five %s\n", format, answer.data, one.data, all.data);
    }
    llm_text_free(&answer), llm_text_free(&one), llm_text_free(&all);
}

static int tools_allowed(const llm_text *form, const char *text) {
    llm_grammar_config c = {LLM_GRAMMAR_STRUCTURAL_TAG, form->data, form->len, NULL, NULL};
    llm_grammar *g;
    if (!CHECK(!llm_grammar_open(NULL, &c, &g))) return printf("  %s\n  %s\n", llm_last_error(), form->data), -1;
    llm_matcher *m = llm_matcher_open(g);
    int ok = !llm_matcher_bytes(m, text, strlen(text)) && llm_matcher_can_end(m);
    llm_matcher_close(m);
    llm_grammar_close(g);
    return ok;
}

static void tools_grammars(const llm_model *model, const llm_json *tools) {
    /* clang-format off */
    static const struct { int only, must, many; const char *text; int ok; } rows[] = {
        {-1, 1, 1, "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\", \"where\": {\"x\": 1}}}", 1}, {-1, 1, 1, "{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"arguments\": {}}", 1},
        {-1, 1, 0, "{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"arguments\": {}}", 0}, {1, 1, 1, "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\"}}", 0},
        {1, 1, 1, "{\"name\": \"now\", \"arguments\": {}}", 1}, {-1, 1, 1, "hello", 0}, {-1, 1, 1, "{\"name\": \"get_weather\", \"arguments\": {}}", 0}, {-1, 1, 1, "", 0}};
    /* clang-format on */
    llm_text form = {0};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        form.len = 0;
        CHECK(llm_tools_grammar(model, 0, tools, 0, rows[i].only, rows[i].must, rows[i].many, &form) == 0);
        if (!CHECK(tools_allowed(&form, rows[i].text) == rows[i].ok)) printf("  %s\n", rows[i].text);
    }
    form.len = 0;
    CHECK(llm_tools_grammar(model, llm_tools_named("json"), tools, 0, -1, 0, 1, &form) == -1 &&
          llm_tools_grammar(model, llm_tools_named("mistral"), tools, 0, -1, 0, 1, &form) == -1 && !form.len);
    CHECK(llm_tools_grammar(model, llm_tools_named("mistral"), tools, 0, -1, 1, 1, &form) == 0);
    form.len = 0;
    CHECK(llm_tools_grammar(model, llm_tools_named("hermes"), tools, 0, -1, 0, 1, &form) == llm_tools_named("hermes"));
    CHECK(tools_allowed(&form, "Free text, <tool and all") == 1 &&
          tools_allowed(&form, "I do.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call> done") == 1);
    CHECK(tools_allowed(&form, "<tool_call>\n{\"name\": \"never\", \"arguments\": {}}\n</tool_call>") == 0);
    llm_text_free(&form);
}

/* Literals alone: what both languages have, what is none, and how deep they may be. */
static void tools_literals(void) {
    /* clang-format off */
    static const struct { const char *quote, *text, *want; } rows[] = {
        {NULL, "", "{}"}, {NULL, " a = 1 , b = [ ] , ", "{\"a\": 1, \"b\": []}"}, {NULL, "a=-0.50E+2, b=0x", NULL}, {NULL, "a=1 2", NULL}, {NULL, "a", NULL}, {NULL, "a=", NULL}, {NULL, "=1", NULL},
        {NULL, "a={'k': 1, 2: None, -3: {}}", "{\"a\": {\"k\": 1, \"2\": null, \"-3\": {}}}"}, {NULL, "a={k: 1}", NULL}, {NULL, "a=(1,)", "{\"a\": [1]}"}, {NULL, "a=[1", NULL}, {NULL, "a=1e", NULL},
        {NULL, "a='\\ud800'", NULL}, {NULL, "a='\\x4'", NULL}, {NULL, "a='\\", NULL}, {NULL, "a='\\101\\\n!'", "{\"a\": \"A!\"}"}, {NULL, "a=00", "{\"a\": 0}"}, {NULL, "a=-", NULL},
        {"<|\"|>", "a:<|\"|><|\"|>,<|\"|>b c<|\"|>:Nil, d:two words", "{\"a\": \"\", \"b c\": null, \"d\": \"two words\"}"}, {"<|\"|>", "a:<|\"|>x", NULL}, {"<|\"|>", "a:{b:[{c:1}]}", "{\"a\": {\"b\": [{\"c\": 1}]}}"}};
    /* clang-format on */
    llm_text out = {0}, deep = {0};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        out.len = 0;
        const int ok = llm__literal_arguments(llm__lit(rows[i].text), rows[i].quote, &out);
        if (!CHECK(ok == (rows[i].want != NULL) && (!ok || !strcmp(out.data, rows[i].want)))) printf("  %s: %s\n", rows[i].text, out.data);
    }
    out.len = 0;
    CHECK(llm__literal_list_or_dict(llm__lit(" {'a': [1,], \"b\": ()} "), &out) && !strcmp(out.data, "{\"a\": [1], \"b\": []}"));
    CHECK(!llm__literal_list_or_dict(llm__lit("1"), &out) && !llm__literal_list_or_dict(llm__lit("[1] x"), &out) &&
          !llm__literal_list_or_dict(llm__lit(""), &out));
    llm_text_str(&deep, "a=");
    for (int i = 0; i < 100000; i++) llm_text_str(&deep, "[");
    out.len = 0;
    CHECK(!llm__literal_arguments(llm__s(deep.data, deep.len), NULL, &out));
    CHECK(llm__tool_space(' ') && llm__tool_space('\n') && !llm__tool_space('a') && !llm__tool_space(0));
    llm_text_free(&out), llm_text_free(&deep);
}

static void tools_detected(void) {
    /* clang-format off */
    static const char *const rows[][2] = {{"Qwen-Qwen2.5-7B-Instruct", "hermes"}, {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes"}, {"Qwen3-Coder", "qwen3_coder"}, {"GLM-4.7-Flash", "glm45"}, {"Kimi-K2-Instruct", "kimi_k2"},
        {"MiniMax-M2", "minimax_m2"}, {"Mistral-Small-3.2-24B-Instruct-2506", "mistral"}, {"deepseek-ai-DeepSeek-V3.1", "deepseek_v31"}, {"meta-llama-Llama-3.2-3B-Instruct", "llama3_json"}, {"ibm-granite-granite-3.3-2B-Instruct", "granite"},
        {"NVIDIA-Nemotron-Nano-v2", "nemotron"}, {"microsoft-Phi-3.5-mini-instruct", "json"}, {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere"},
        {"google-gemma-4-31B-it-interleaved", "gemma4"}, {"LFM2.5-8B-A1B", "lfm2"}, {"Apertus-8B-Instruct", "apertus"}, {"GigaChat3.1-10B-A1.8B", "gigachat3"}, {"openbmb-MiniCPM5-1B", "minicpm5"}, {"muse-glimmer", "muse_glimmer"},
        {"poolside-Laguna-XS-2.1", "glm45"}, {"tencent-Hy3", "hy_v3"}, {"Kimi-K3", "kimi_k3"}};
    /* clang-format on */
    char path[300];
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        snprintf(path, sizeof path, "build/data/chat_templates/templates/%s.jinja", rows[i][0]);
        static char text[1 << 16];
        FILE *f = fopen(path, "rb");
        if (!CHECK(f != NULL)) return;
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
        if (!CHECK(llm_tools_detect(text) == llm_tools_named(rows[i][1])))
            printf("  %s: %s\n", rows[i][0], llm__tool_rows[llm_tools_detect(text)].names);
    }
    CHECK(llm_tools_detect(NULL) == 0 && llm_tools_named("nonsense") == -1 &&
          llm_tools_named("deepseek-v3") == llm_tools_named("DeepSeek_V31"));
}

TEST_GROUP(tools) {
    llm_json *tools;
    llm_model *model = NULL;
    llm_model_config c = {0};
    c.vocab_only = 1;
    if (!CHECK(!llm_json_parse(tools_list, sizeof tools_list - 1, NULL, &tools))) return;
    tools_formats(tools);
    tools_types();
    tools_noise(tools);
    tools_literals();
    tools_detected();
    if (test_made(TEST_CHECKPOINT("llama"), "checkpoints") && CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), &c, &model)))
        tools_grammars(model, tools);
    llm_model_close(model);
    llm_json_free(tools);
}
