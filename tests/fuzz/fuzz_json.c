/* Fuzzes the JSON reader. What it accepts can be walked through, and what is written of it reads back and is written the same. */
#include "../unit/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_check(int ok) {
    if (!ok) __builtin_trap();
}

/* Visits every value below a node; their number. */
static int fuzz_walk(const llm_json *d, int node) {
    int count = 1, members = 0;
    size_t n;
    double number;
    int64_t whole;
    for (int i = llm_json_first(d, node); i >= 0; i = llm_json_next(d, i), members++) {
        const char *key = llm_json_key(d, i, &n);
        fuzz_check((key != NULL) == (llm_json_type_of(d, node) == LLM_JSON_OBJECT));
        if (key && !memchr(key, 0, n)) fuzz_check(llm_json_find(d, node, key) >= 0);
        count += fuzz_walk(d, i);
    }
    fuzz_check(members == llm_json_size(d, node));
    const char *s = llm_json_str(d, node, &n);
    fuzz_check((s != NULL) == (llm_json_type_of(d, node) == LLM_JSON_STRING) && (!s || s[n] == 0));
    if (llm_json_int(d, node, &whole)) fuzz_check(llm_json_num(d, node, &number) && number == (double)whole);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    llm_json *d = NULL, *again = NULL;
    llm_json_limits limits = {0};
    llm_text a = {0}, b = {0};
    limits.max_depth = 64;
    limits.unique_keys = size % 2;
    if (!llm_json_parse((const char *)data, size, &limits, &d)) {
        fuzz_check(fuzz_walk(d, 0) >= 1);
        llm_json_write(d, 0, &a);
        fuzz_check(!llm_json_parse(a.data, a.len, &limits, &again));
        llm_json_write(again, 0, &b);
        fuzz_check(a.len == b.len && !memcmp(a.data, b.data, a.len));
    } else {
        fuzz_check(!d && llm_last_error()[0]);
    }
    llm_json_free(d);
    llm_json_free(again);
    llm_text_free(&a);
    llm_text_free(&b);
    return 0;
}
