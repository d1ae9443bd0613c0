/* A tool loop: tools MODEL QUESTION
 * The model may call two functions of this program. A grammar sees to it that a call is well-formed; the program runs it and tells the
 * model what came out; then the model answers. */
#include "llm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"multiply\", \"description\": \"Multiplies two whole numbers\", \"parameters\": {\"type\": \"object\","
    " \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": \"integer\"}}, \"required\": [\"a\", \"b\"], \"additionalProperties\": false}}},"
    " {\"type\": \"function\", \"function\": {\"name\": \"weather\", \"description\": \"Tells the weather of a city\", \"parameters\": {\"type\": \"object\","
    " \"properties\": {\"city\": {\"type\": \"string\", \"maxLength\": 30}}, \"required\": [\"city\"], \"additionalProperties\": false}}}]";

static const char system_message[] =
    "You can call functions. multiply(a, b) multiplies two whole numbers, weather(city) tells the weather.";

/* What a function gives; "unknown" for one that there is not. */
static void run_tool(const char *name, const llm_json *args, char *out, size_t size) {
    int64_t a = 0, b = 0;
    llm_json_int(args, llm_json_find(args, 0, "a"), &a);
    llm_json_int(args, llm_json_find(args, 0, "b"), &b);
    const char *city = llm_json_str(args, llm_json_find(args, 0, "city"), NULL);
    if (!strcmp(name, "multiply")) snprintf(out, size, "%lld", (long long)(a * b));
    else if (!strcmp(name, "weather")) snprintf(out, size, "%s: 21 degrees and sunny", city ? city : "?");
    else snprintf(out, size, "unknown function");
}

static void fail(void) {
    fprintf(stderr, "%s\n", llm_last_error());
    exit(1);
}

/* An answer that is nothing but one call, which the grammar enforces. */
static void call(llm *l, llm_chat *chat, const llm_json *list, char *result, size_t size) {
    llm_text form = {NULL, 0, 0, 0, 0}, rest = {NULL, 0, 0, 0, 0};
    llm_grammar_config g;
    llm_sampling s;
    llm_answer answer;
    memset(&g, 0, sizeof g);
    memset(&s, 0, sizeof s); /* greedy */
    s.max_tokens = 128;
    int format = llm_tools_grammar(llm_get_model(l), llm_tools_detect(llm_model_get_info(llm_get_model(l))->chat_template), list, 0, -1, 1,
                                   0, &form);
    g.kind = LLM_GRAMMAR_STRUCTURAL_TAG;
    g.text = form.data;
    g.len = form.len;
    s.skip_special_tokens_off = llm_tools_are_special(llm_get_model(l), format);
    if (format < 0 || llm_grammar_open(llm_get_model(l), &g, &s.grammar) || llm_chat_reply(chat, &s)) fail();
    while (llm_chat_next(chat)) continue;
    llm_chat_get_answer(chat, &answer);
    llm_tool_parser *parser = llm_tool_parser_create(format, 1, list, 0, 1);
    int32_t n = 0;
    llm_tool_parser_push(parser, answer.text, answer.text_len, &rest);
    llm_tool_parser_end(parser, &rest);
    const llm_tool_call *c = llm_tool_parser_calls(parser, &n);
    llm_json *args = NULL;
    snprintf(result, size, "no call");
    if (n && !llm_json_parse(c->arguments.data, c->arguments.len, NULL, &args)) {
        printf("call    %s(%s)\n", c->name.data, c->arguments.data);
        run_tool(c->name.data, args, result, size);
    }
    llm_json_free(args);
    llm_tool_parser_free(parser);
    llm_grammar_close(s.grammar);
    llm_text_free(&form);
    llm_text_free(&rest);
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: tools MODEL QUESTION\n"), 2;
    llm *l = llm_load(argv[1], NULL);
    llm_json *list = NULL;
    if (!l || llm_json_parse(tools, strlen(tools), NULL, &list)) fail();
    llm_chat *chat = llm_chat_new(l, system_message);
    char result[200], told[300];
    llm_chat_sampling(chat)->temperature = 0;
    llm_chat_sampling(chat)->max_tokens = 64;
    if (llm_chat_set_tools(chat, tools) || llm_chat_add(chat, "user", argv[2])) fail();
    call(l, chat, list, result, sizeof result);
    printf("result  %s\n", result);
    /* A model whose template knows the role "tool" is told by a message of it; every model understands this. */
    snprintf(told, sizeof told, "The function says: %s. Tell me in one sentence.", result);
    if (llm_chat_set_tools(chat, NULL) || llm_chat_say(chat, told)) fail();
    fputs("answer  ", stdout);
    for (const char *piece; (piece = llm_chat_next(chat)) != NULL;) fputs(piece, stdout);
    puts("");
    llm_chat_free(chat);
    llm_json_free(list);
    llm_free(l);
    return 0;
}
