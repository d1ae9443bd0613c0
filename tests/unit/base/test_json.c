/* JSON: JSONTestSuite, access, limits. */
#include "../test.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/files.h"
#include <dirent.h>

/* The files that the suite leaves free: we accept these and refuse the other 24 (bad UTF-8, lone surrogates, byte order marks). */
static int json_free_choice(const char *name) {
    return !strncmp(name, "i_number_", 9) || !strcmp(name, "i_structure_500_nested_arrays.json");
}

static void json_suite(const char *folder) {
    DIR *dir = opendir(folder);
    int count[3] = {0, 0, 0};
    if (!CHECK(dir != NULL)) return;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        const char *kind = e->d_name[1] == '_' ? strchr("yni", e->d_name[0]) : NULL;
        char *path = kind ? llm__path_join(folder, e->d_name) : NULL;
        llm__file f;
        if (!path || llm__file_open(path, 0, 0, &f)) {
            LLM_FREE(path);
            continue;
        }
        llm_json *doc = NULL;
        int ok = llm_json_parse((const char *)f.data, f.size, NULL, &doc) == LLM_OK;
        int want = *kind == 'y' || (*kind == 'i' && json_free_choice(e->d_name));
        if (!CHECK(ok == want)) printf("  %s: %s\n", e->d_name, ok ? "accepted" : llm_last_error());
        count[strchr("yni", *kind) - "yni"]++;
        if (ok) { /* what is written reads back as the same text */
            llm_text a = {0}, b = {0};
            llm_json *again = NULL;
            llm_json_write(doc, 0, &a);
            if (CHECK(!llm_json_parse(a.data, a.len, NULL, &again))) llm_json_write(again, 0, &b);
            CHECK(a.len == b.len && !memcmp(a.data, b.data, a.len));
            llm_json_free(again);
            llm_text_free(&a);
            llm_text_free(&b);
        }
        llm_json_free(doc);
        llm__file_close(&f);
        LLM_FREE(path);
    }
    closedir(dir);
    CHECK(count[0] == 95 && count[1] == 188 && count[2] == 35);
}

static void json_access(void) {
    static const char text[] =
        "{\"a\": [1, -2.5e3, \"x\\u00e9\\ud83d\\ude00\\n\", true, null, {}], \"big\": 9223372036854775807, \"\": 3.0, \"e\": 1e2}";
    llm_json *d = NULL;
    int64_t i;
    double v;
    size_t n;
    int b;
    if (!CHECK(!llm_json_parse(text, strlen(text), NULL, &d))) return;
    int a = llm_json_find(d, 0, "a"), e = llm_json_first(d, a);
    CHECK(llm_json_size(d, 0) == 4 && llm_json_size(d, a) == 6);
    CHECK(llm_json_int(d, e, &i) && i == 1);
    e = llm_json_next(d, e);
    CHECK(llm_json_num(d, e, &v) && v == -2500 && !llm_json_int(d, e, &i));
    e = llm_json_next(d, e);
    CHECK(!strcmp(llm_json_str(d, e, &n), "x\xC3\xA9\xF0\x9F\x98\x80\n") && n == 8);
    e = llm_json_next(d, e);
    CHECK(llm_json_bool(d, e, &b) && b == 1);
    e = llm_json_next(d, e);
    CHECK(llm_json_type_of(d, e) == LLM_JSON_NULL);
    e = llm_json_next(d, e);
    CHECK(llm_json_type_of(d, e) == LLM_JSON_OBJECT && llm_json_first(d, e) == -1 && llm_json_next(d, e) == -1);
    CHECK(llm_json_int(d, llm_json_find(d, 0, "big"), &i) && i == INT64_MAX);
    CHECK(llm_json_int(d, llm_json_find(d, 0, ""), &i) && i == 3);
    CHECK(!llm_json_int(d, llm_json_find(d, 0, "e"), &i) && llm_json_find(d, 0, "none") == -1);
    llm_json_free(d);
}

static void json_limits(void) {
    llm_json_limits deep = {0}, few = {0}, unique = {0};
    char text[200];
    llm_json *d = NULL;
    deep.max_depth = 64;
    few.max_tokens = 10;
    unique.unique_keys = 1;
    memset(text, '[', 100);
    memset(text + 100, ']', 100);
    CHECK(llm_json_parse(text + 36, 128, &deep, &d) == LLM_OK);
    llm_json_free(d);
    CHECK(llm_json_parse(text + 35, 130, &deep, &d) == LLM_ERR_LIMIT && !d);
    CHECK(llm_json_parse("[1,2,3,4,5,6,7,8,9]", 19, &few, &d) == LLM_OK);
    llm_json_free(d);
    CHECK(llm_json_parse("[1,2,3,4,5,6,7,8,9,10,11]", 25, &few, &d) == LLM_ERR_LIMIT);
    CHECK(llm_json_parse("{\"a\":1,\"b\":{\"a\":1}}", 19, &unique, &d) == LLM_OK);
    llm_json_free(d);
    CHECK(llm_json_parse("{\"a\":1,\"\\u0061\":2}", 18, &unique, &d) == LLM_ERR_FORMAT);
}

TEST_GROUP(json) {
    json_suite("build/data/json");
    json_access();
    json_limits();
}
