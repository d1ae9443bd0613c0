/* An answer of a model through both parsers, thoughts first, then calls: in pieces the same as whole. The first byte chooses the form of
 * calls, the second the form of thoughts, the third how the answer is cut. */
#include "../unit/test.h"
#include "base/platform.h"
#include "chat/tool_forms.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct parsed {
    llm_text thoughts, shown, calls; /* calls: name(arguments) and a line end each */
} parsed;

static void parse(const uint8_t *head, const char *text, size_t size, size_t piece, const llm_json *tools, parsed *out) {
    llm_tool_parser *p = llm_tool_parser_create(head[0] % LLM__COUNT(llm__tool_rows), 0, tools, tools ? 0 : -1, 0);
    llm_reasoning r;
    llm_text content = {0};
    int32_t n_calls;
    memset(out, 0, sizeof *out);
    llm_reasoning_begin(&r, (llm_reasoning_kind)(head[1] % (LLM_REASONING_HARMONY + 1)), NULL, 0);
    for (size_t at = 0, n; at <= size && p; at += n) { /* the last turn ends both */
        n = piece < size - at ? piece : size - at;
        content.len = 0;
        if (at < size) llm_reasoning_push(&r, text + at, n, &out->thoughts, &content);
        else llm_reasoning_end(&r, &out->thoughts, &content);
        if (content.len) llm_tool_parser_push(p, content.data, content.len, &out->shown);
        if (at == size) llm_tool_parser_end(p, &out->shown);
        if (at == size) break;
        if (piece < size) piece = piece * 7 % 31 + 1;
    }
    const llm_tool_call *call = p ? llm_tool_parser_calls(p, &n_calls) : NULL;
    for (int32_t i = 0; call && i < n_calls; i++) {
        llm_json *d = NULL;
        if (call[i].done &&
            (llm_json_parse(call[i].arguments.data, call[i].arguments.len, NULL, &d) || llm_json_type_of(d, 0) != LLM_JSON_OBJECT))
            __builtin_trap();
        llm_json_free(d);
        llm_text_add(&out->calls, call[i].name.data, call[i].name.len);
        llm_text_str(&out->calls, "(");
        llm_text_add(&out->calls, call[i].arguments.data, call[i].arguments.len);
        llm_text_str(&out->calls, ")\n");
    }
    llm_tool_parser_free(p);
    llm_text_free(&content);
}

static int same(const llm_text *a, const llm_text *b) { return a->len == b->len && (!a->len || !memcmp(a->data, b->data, a->len)); }

static void parsed_free(parsed *x) {
    llm_text_free(&x->thoughts);
    llm_text_free(&x->shown);
    llm_text_free(&x->calls);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char known[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}}}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";
    llm_json *tools = NULL;
    parsed whole, pieces;
    if (size < 3) return 0;
    if (data[2] & 1) (void)llm_json_parse(known, sizeof known - 1, NULL, &tools);
    parse(data, (const char *)data + 3, size - 3, size, tools, &whole);
    parse(data, (const char *)data + 3, size - 3, (size_t)data[2] % 31 + 1, tools, &pieces);
    if (!same(&whole.thoughts, &pieces.thoughts) || !same(&whole.shown, &pieces.shown) || !same(&whole.calls, &pieces.calls))
        __builtin_trap();
    parsed_free(&whole);
    parsed_free(&pieces);
    llm_json_free(tools);
    return 0;
}
