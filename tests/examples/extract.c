/* Facts from a text, in a form that a program can rely on: extract MODEL TEXT
 * The schema says what must come out. Whatever the model would like to say, the answer is valid JSON of this form, or ends with "length". */
#include "llm.h"
#include <stdio.h>
#include <string.h>

static const char schema[] =
    "{\"type\": \"object\", \"required\": [\"name\", \"age\", \"job\"], \"additionalProperties\": false, \"properties\": {"
    "\"name\": {\"type\": \"string\", \"maxLength\": 40}, \"age\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 130},"
    "\"job\": {\"enum\": [\"pilot\", \"nurse\", \"farmer\", \"other\"]}}}";

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: extract MODEL TEXT\n"), 2;
    llm *l = llm_load(argv[1], NULL);
    if (!l) return fprintf(stderr, "%s\n", llm_last_error()), 1;
    llm_chat *chat = llm_chat_new(l, "Read the text and answer with JSON: the person's name, age and job.");
    llm_grammar_config form;
    llm_sampling s;
    memset(&form, 0, sizeof form);
    memset(&s, 0, sizeof s); /* greedy */
    form.kind = LLM_GRAMMAR_JSON_SCHEMA;
    form.text = schema;
    form.len = strlen(schema);
    s.max_tokens = 128;
    if (llm_grammar_open(llm_get_model(l), &form, &s.grammar)) return fprintf(stderr, "%s\n", llm_last_error()), 1;
    if (llm_chat_add(chat, "user", argv[2]) || llm_chat_reply(chat, &s)) return fprintf(stderr, "%s\n", llm_last_error()), 1;
    while (llm_chat_next(chat)) continue;
    llm_answer a;
    llm_chat_get_answer(chat, &a);
    llm_json *doc = NULL;
    int64_t age = -1;
    if (a.finish != LLM_FINISH_STOP || llm_json_parse(a.text, a.text_len, NULL, &doc)) {
        fprintf(stderr, "no answer: %s, %s\n", llm_finish_str(a.finish), a.error ? a.error : a.text);
        return 1;
    }
    llm_json_int(doc, llm_json_find(doc, 0, "age"), &age);
    printf("name  %s\n", llm_json_str(doc, llm_json_find(doc, 0, "name"), NULL));
    printf("age   %d\n", (int)age);
    printf("job   %s\n", llm_json_str(doc, llm_json_find(doc, 0, "job"), NULL));
    llm_json_free(doc);
    llm_grammar_close(s.grammar);
    llm_chat_free(chat);
    llm_free(l);
    return 0;
}
