/* YAML as settings are written in it. */
#include "../test.h"
#include "base/platform.h"
#include "base/yaml.h"

static const struct {
    const char *yaml, *json; /* or the sentence of the error, without its quotes: it begins with "line" */
} yaml_cases[] = {
    {"", "null"},
    {"# nothing\n\n", "null"},
    {"a: 1", "{\"a\":1}"},
    {"---\na: 1\n...\nanything: [", "{\"a\":1}"},
    {"\xEF\xBB\xBF"
     "a: 1\r\nb: x\r\n",
     "{\"a\":1,\"b\":\"x\"}"},
    {"model: org/name # why\nport: 8000\nenable-prefix-caching: true\nx: 0.5\ny: -1e3\n",
     "{\"model\":\"org/name\",\"port\":8000,\"enable-prefix-caching\":true,\"x\":0.5,\"y\":-1e3}"},
    {"a: yes\nb: Off\nc: ~\nd:\ne: null\nf: NULL\n", "{\"a\":true,\"b\":false,\"c\":null,\"d\":null,\"e\":null,\"f\":null}"},
    {"a: 32k\nb: 007\nc: 1:30\nd: 1.\ne: .5\nf: +1\ng: 1_0\ni: 1e\nj: 0\nk: -0.5e+3",
     "{\"a\":\"32k\",\"b\":\"007\",\"c\":\"1:30\",\"d\":\"1.\",\"e\":\".5\",\"f\":\"+1\",\"g\":\"1_0\",\"i\":\"1e\",\"j\":0,\"k\":-0.5e+3}"},
    {"a: \"x\\n\\u00e9\\\"\" # b\nb: 'it''s # no comment: '\nc: a#b c: d", "line 3: a second colon; a text with one is put in quotes"},
    {"a: \"x\\n\\u00e9\\\"\" # b\nb: 'it''s # no comment: '\nc: a#b c:d",
     "{\"a\":\"x\\n\\u00e9\\\"\",\"b\":\"it's # no comment: \",\"c\":\"a#b c:d\"}"},
    {"'a b': 1\n\"c\" : 2\nd e: http://x:1/y", "{\"a b\":1,\"c\":2,\"d e\":\"http://x:1/y\"}"},
    {"a:\n  b:\n    c: 1\n  d: 2\ne: 3", "{\"a\":{\"b\":{\"c\":1},\"d\":2},\"e\":3}"},
    {"a:\n  b:\n    c:\n      d: 1\ne: 3", "{\"a\":{\"b\":{\"c\":{\"d\":1}}},\"e\":3}"},
    {"a:\n- 1\n- x y\nb:\n  - 2\n  -\n  - - 3\n    - 4\nc: 5", "{\"a\":[1,\"x y\"],\"b\":[2,null,[3,4]],\"c\":5}"},
    {"lora-modules:\n  - name: x\n    path: /y\n  - {name: z, path: '/w'}\n  - u=/v\nt: 1",
     "{\"lora-modules\":[{\"name\":\"x\",\"path\":\"/y\"},{\"name\":\"z\",\"path\":\"/w\"},\"u=/v\"],\"t\":1}"},
    {"- a\n-   b: 1\n    c: 2\n-\n  d: 3", "[\"a\",{\"b\":1,\"c\":2},{\"d\":3}]"},
    {"a: [1, x y, 'z', \"w\", [], {}, {k: v, \"q\": [1,2], r: }, ]\nb: {}",
     "{\"a\":[1,\"x y\",\"z\",\"w\",[],{},{\"k\":\"v\",\"q\":[1,2],\"r\":null}],\"b\":{}}"},
    {"a: {\"method\": \"ngram\", # c\n  \"n\":4,\n  m: true\n}\nb: [1,\n2]",
     "{\"a\":{\"method\":\"ngram\",\"n\":4,\"m\":true},\"b\":[1,2]}"},
    {"a: |\n  one\n\n    two # three\n  \nb: |-\n   x\nc: |\nd: 1", "{\"a\":\"one\\n\\n  two # three\\n\",\"b\":\"x\",\"c\":\"\",\"d\":1}"},
    {"a: |\n  x", "{\"a\":\"x\"}"},
    {"a:\n  - |\n    x\n    y\n  - z", "{\"a\":[\"x\\ny\\n\",\"z\"]}"},
    {"'it''s': 1\n'b': {}\n", "{\"it's\":1,\"b\":{}}"},
    {"- 'a': 1\n  b: 2\n- 'c'\n- [d]", "[{\"a\":1,\"b\":2},\"c\",[\"d\"]]"},
    {"just text", "\"just text\""},
    {"{\"a\": [1, 2.5, null], \"b\": {\"c\": \"\\u0041\"}}", "{\"a\":[1,2.5,null],\"b\":{\"c\":\"\\u0041\"}}"},
    {"a: 1\n  b: 2", "line 2: indented further than what it stands beside"},
    {"  a: 1\nb: 2", "line 2: indented less than what it stands behind, or behind the end of a value"},
    {"a:\n\tb: 1", "line 2: a tab in the indentation, blanks were expected"},
    {"a: 1\n---\nb: 2", "line 2: one document was expected"},
    {"a: &x 1", "line 1: anchors, aliases, tags,"},
    {"a: *x", "line 1: anchors, aliases, tags,"},
    {"a: !!str 1", "line 1: anchors, aliases, tags,"},
    {"a: >\n  x", "line 1: anchors, aliases, tags, folded texts"},
    {"? a\n: b", "line 1: "},
    {"a: \"x\nb: 1", "line 1: a quote that its line does not close"},
    {"a: 'x", "line 1: a quote that its line does not close"},
    {"a: \"\\x41\"", "line 1: an escape in quotes that JSON does not have"},
    {"a: \"\\ud800\"", "line 1: an escape in quotes that JSON does not have"},
    {"a: \"x\ty\"", "{\"a\":\"x\\ty\"}"},
    {"a: [1, 2\nb: 3", "line 2: a comma or the end of brackets was expected"},
    {"a: [1, 2", "line 1: a bracket that is not closed"},
    {"a: {b", "line 1: a colon behind a key was expected"},
    {"a: [,]", "line 1: anchors, aliases, tags,"},
    {"a: [1 [2]]", "line 1: a comma or the end of brackets was expected"},
    {"a: - 1", "line 1: a list begins in a line of its own, below its key"},
    {"a: \"x\" y", "line 1: the end of the line was expected"},
    {"a: [1] 2", "line 1: the end of the line was expected"},
    {"a: 1\nb", "line 2: a key with a colon and a blank behind it was expected"},
    {"a: 1\n- b", "line 2: a key with a colon and a blank behind it was expected"},
    {"a: |x\n  y", "line 1: the end of the line behind | or |- was expected"},
    {"a: \xFF", "line 1: the file is no UTF-8"},
};

static void yaml_means(const char *yaml, size_t n, const char *json) {
    llm_text out = {0};
    char *copy = (char *)LLM_REALLOC(NULL, n + 1); /* so that AddressSanitizer sees its end */
    memcpy(copy, yaml, n);
    copy = (char *)LLM_REALLOC(copy, n ? n : 1);
    const llm_result r = llm__yaml_json(llm__s(copy, n), &out);
    const int error = json && !strncmp(json, "line ", 5);
    llm_json *doc = NULL;
    if (!r && !CHECK(!llm_json_parse(out.data, out.len, NULL, &doc)))
        printf("  no JSON: %.*s of %.*s\n", (int)out.len, out.data, (int)n, yaml);
    if (json && error && !CHECK(r == LLM_ERR_FORMAT && strstr(llm_last_error(), json)))
        printf("  %s: %d %s\n", yaml, (int)r, llm_last_error());
    if (json && !error && !CHECK(!r && out.len == strlen(json) && !memcmp(out.data, json, out.len)))
        printf("  %s: %s %.*s\n", yaml, r ? llm_last_error() : "", (int)out.len, out.data ? out.data : "");
    CHECK(json || !r || strstr(llm_last_error(), "line "));
    llm_json_free(doc);
    llm_text_free(&out);
    LLM_FREE(copy);
}

/* Every beginning of every text, and texts with a byte changed: JSON or a sentence. */
static void yaml_damaged(void) {
    static const char bytes[] = "\n :-[]{}'\"|#,\\a\t\xFF";
    for (int i = 0; i < LLM__COUNT(yaml_cases); i++) {
        const size_t n = strlen(yaml_cases[i].yaml);
        char text[400];
        memcpy(text, yaml_cases[i].yaml, n);
        for (size_t at = 0; at < n; at++) {
            yaml_means(text, at, NULL);
            for (const char *b = bytes; *b; b++) {
                text[at] = *b;
                yaml_means(text, n, NULL);
            }
            text[at] = yaml_cases[i].yaml[at];
        }
    }
}

static void yaml_deep(void) {
    char text[200];
    memset(text, '[', 100), memset(text + 100, ']', 100);
    yaml_means(text, 200, "line 1: nested more than 32 deep");
    yaml_means(text + 80, 40, "[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]");
    for (int i = 0; i < 50; i++) memcpy(text + 4 * i, "- - ", 4);
    yaml_means(text, 200, "line 1: nested more than 32 deep");
}

TEST_GROUP(yaml) {
    for (int i = 0; i < LLM__COUNT(yaml_cases); i++) yaml_means(yaml_cases[i].yaml, strlen(yaml_cases[i].yaml), yaml_cases[i].json);
    yaml_damaged();
    yaml_deep();
}
