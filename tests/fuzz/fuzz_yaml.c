/* Fuzzes the YAML of settings: what is read is JSON, and what is refused has a line. */
#include "../unit/test.h"
#include "base/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_check(int ok) {
    if (!ok) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    llm_json *d = NULL;
    llm_text json = {0};
    const llm_result r = llm__yaml_json(llm__s((const char *)data, size), &json);
    if (r) fuzz_check(r == LLM_ERR_FORMAT && !strncmp(llm_last_error(), "line ", 5));
    else fuzz_check(!llm_json_parse(json.data, json.len, NULL, &d));
    llm_json_free(d);
    llm_text_free(&json);
    return 0;
}
