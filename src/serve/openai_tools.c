#include "serve/openai_tools.h"
#include "api/easy.h"
#include "api/json.h"
#include "api/chat.h"
#include "api/grammar.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "chat/reasoning.h"
#include "chat/tools.h"
#include "serve/openai.h"

/* Tool i, at node t of the list: a name that formats and templates can bear, which no tool before it has, a schema that is an object. What
 * the schema says is looked at when the grammar is compiled (llm__oai_compile). */
static int llm__oai_tool(llm_openai_call *k, int i, int list, int t) {
    const llm_json *d = k->body;
    size_t n = 0;
    int f = llm__tool_function(d, t), schema = llm__oai_get(d, f, "parameters"), strict = llm__oai_get(d, f, "strict"), b;
    const char *type = llm__oai_word(d, t, "type"), *name = llm_json_str(d, llm_json_find(d, f, "name"), &n);
    llm__oai_at(k, "tools[%d]", i);
    if (llm_json_type_of(d, t) != LLM_JSON_OBJECT || !type || strcmp(type, "function") || llm_json_type_of(d, f) != LLM_JSON_OBJECT)
        return llm__oai_bad(k, NULL, "must be an object with type \"function\" and a function");
    llm__oai_at(k, "tools[%d].function.name", i);
    if (!n || strchr(name, '.') || strspn(name, llm__tool_letters) < n || n > LLM__OAI_TOOL_NAME)
        return llm__oai_bad(k, NULL, "must have 1 to %d letters, digits, '_' or '-'", LLM__OAI_TOOL_NAME);
    for (int other = llm_json_first(d, list); other != t; other = llm_json_next(d, other))
        if (!strcmp(llm__oai_word(d, llm__tool_function(d, other), "name"), name))
            return llm__oai_bad(k, NULL, ": \"%s\" stands there twice", name);
    llm__oai_at(k, "tools[%d].function.parameters", i);
    if (schema >= 0 && llm_json_type_of(d, schema) != LLM_JSON_OBJECT) return llm__oai_bad(k, NULL, "must be a JSON schema, an object");
    llm__oai_at(k, "tools[%d].function.strict", i);
    return strict < 0 || llm_json_bool(d, strict, &b) || llm__oai_bad(k, NULL, "must be true or false");
}

LLM__PRIVATE int llm__oai_tools(llm_openai_call *k) {
    int i = 0, v = llm__oai_get(k->body, 0, "tools");
    llm__oai_at(k, "tools");
    if (v >= 0 && llm_json_type_of(k->body, v) != LLM_JSON_ARRAY) return llm__oai_bad(k, NULL, "must be a list");
    if (llm_json_size(k->body, v) > LLM__OAI_TOOLS)
        return llm__oai_bad(k, NULL, ": at most %d, got %d", LLM__OAI_TOOLS, llm_json_size(k->body, v));
    for (int t = llm_json_first(k->body, v); t >= 0; t = llm_json_next(k->body, t))
        if (!llm__oai_tool(k, i++, v, t)) return 0;
    if (i) k->tools = v;
    return 1;
}

LLM__PRIVATE int llm__oai_tool_choice(llm_openai_call *k) {
    const llm_json *d = k->body;
    int v = llm__oai_get(d, 0, "tool_choice"), i = 0;
    const char *only = llm__oai_word(d, llm__tool_function(d, v), "name");
    const int word = llm__word_index("none auto required", llm__json_text(d, v));
    llm__oai_at(k, "tool_choice");
    if (v < 0) return 1;
    if (!only && word < 0)
        return llm__oai_bad(k, NULL, "must be none, auto, required, or {\"type\": \"function\", \"function\": {\"name\": ...}}");
    if (word == 0) return k->tools = -1, 1;
    if (k->tools < 0) return llm__oai_bad(k, NULL, "When using `tool_choice`, `tools` must be set.");
    k->tool_must = word != 1;
    for (int t = only ? llm_json_first(d, k->tools) : -1; t >= 0; t = llm_json_next(d, t), i++)
        if (!strcmp(llm__oai_word(d, llm__tool_function(d, t), "name"), only)) k->tool_only = i;
    return !only || k->tool_only >= 0 || llm__oai_bad(k, NULL, ": \"%.64s\" is none of the tools", only);
}

/* What marks thoughts and calls must be shown to be found, also where it is special tokens. */
static int llm__oai_marks(llm_openai_call *k) {
    const int calls = k->tools >= 0 ? llm_tools_are_special(k->service.model, k->tool_format) : 0;
    const int thoughts = llm__oai_chats(k) ? llm__reasoning_is_special(k->service.model->source.tokenizer, k->service.reasoning) : 0;
    if (calls > 0 || thoughts > 0) k->s.skip_special_tokens_off = 1;
    return (calls >= 0 && thoughts >= 0) || llm__oai_failed(k, llm__nomem(), NULL);
}

LLM__PRIVATE int llm__oai_tool_form(llm_openai_call *k) {
    if (k->tools < 0) return llm__oai_marks(k);
    if (k->form.kind && k->tool_must)
        return llm__oai_bad(k, "tool_choice", "asks for a call and %s for a form: only one can be had", k->form_name);
    k->tool_format = k->service.tool_format;
    if (!k->form.kind && (!k->s.use_beam_search || k->tool_must)) {
        int many = k->tool_many && k->tool_only < 0, format = llm_tools_grammar(k->service.model, k->tool_format, k->body, k->tools,
                                                                                k->tool_only, k->tool_must, many, &k->form_text);
        if (format >= 0) {
            k->tool_format = format;
            k->tool_exact = 1;
            k->form.kind = LLM_GRAMMAR_STRUCTURAL_TAG;
            k->form_name = "tools";
        }
    }
    return llm__oai_marks(k);
}

LLM__PRIVATE const char *llm__oai_form_after(const llm_openai_call *k, const llm_reasoning *r) {
    if (!k->tool_exact || r->kind != LLM_REASONING_HARMONY || k->tool_format != llm_tools_named("harmony")) return llm__reasoning_marker(r);
    return k->tool_must ? "<|end|><|start|>assistant" : NULL;
}
