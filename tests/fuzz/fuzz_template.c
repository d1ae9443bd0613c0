/* Fuzzes chat templates: the input is a template, rendered with the context of tests/unit/chat/test_template.c. A render may fail, but then it writes
 * nothing; what it writes is UTF-8 and always the same. Mutations put in templates of the test's table, and words of the language. */
#include "../unit/chat/test_template.c"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_check(int ok) {
    if (!ok) __builtin_trap();
}

/* Puts a template of the table, or a word, somewhere into the input. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    /* clang-format off */
    static const char *const words[] = {"{{ ", " }}", "{% ", " %}", "{%- ", " -%}", "{% if ", "{% endif %}", "{% for x in ", "{% endfor %}", "{% set x = ", "{% macro m(", "{% endmacro %}",
                                        "m(", "|", "|tojson", "|list", "|map('", "|sort(", " is ", ".items()", "[::-1]", "[1:", " if ", " else ", "loop.", "namespace(", "(", ")", "[", "]",
                                        "{'a':", "}", "**", "*", " ~ ", "'%s' % ", ".format(", "users", "d", "l", "s", "n", "u", "big", "range(9)", "-1", "9223372036854775807", "1e308"};
    /* clang-format on */
    if (seed % 3 == 0) return LLVMFuzzerMutate(data, size, max);
    const char *s = seed % 3 == 1 ? words[seed / 3 % LLM__COUNT(words)] : tpl_cases[seed / 3 % LLM__COUNT(tpl_cases)].text;
    size_t n = strlen(s), at = size ? seed / 7 % (size + 1) : 0, cut = seed % 5 ? 0 : LLM__MIN(seed / 11 % 8, size - at);
    if (size - cut + n > max) return LLVMFuzzerMutate(data, size, max);
    memmove(data + at + n, data + at + cut, size - at - cut);
    memcpy(data + at, s, n);
    return size - cut + n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    llm_template *t = NULL;
    llm_json *doc = NULL;
    llm_render_options o = {0};
    llm_text a = {0}, b = {0};
    int len;
    o.fuel = 20000;
    o.max_output = 1 << 16;
    o.now = 1;
    o.as_chat = (int)(size & 1);
    fuzz_check(!llm_json_parse(tpl_context, sizeof tpl_context - 1, NULL, &doc));
    if (!llm_template_open((const char *)data, size, &t)) {
        llm_result first = llm_template_render(t, doc, &o, &a), second = llm_template_render(t, doc, &o, &b);
        fuzz_check(first == second && a.len == b.len && (!a.len || !memcmp(a.data, b.data, a.len)));
        fuzz_check(first ? !a.len && llm_last_error()[0] : a.len <= o.max_output);
        for (size_t i = 0; i < a.len; i += (size_t)len) fuzz_check(llm__utf8_get(a.data + i, a.len - i, &len) >= 0);
    }
    llm_template_close(t);
    llm_json_free(doc);
    llm_text_free(&a);
    llm_text_free(&b);
    return 0;
}
