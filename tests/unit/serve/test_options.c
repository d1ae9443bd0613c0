/* Options by name: argv, environment, JSON, messages. */
#include "../test.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "serve/options.h"

typedef struct options_target {
    const char *model;
    int32_t port, flag, dtype;
    int64_t bytes;
    float x;
    llm_option_list names;
} options_target;

static const llm_option options_test_table[] = {
    {"m|model", LLM_OPTION_TEXT, 0, offsetof(options_target, model), 0, 0, "PATH", "a model"},
    {"port", LLM_OPTION_INT, 0, offsetof(options_target, port), 0, 65535, "N", "a port with a help text that is so long that it has to be wrapped into a second line"},
    {"kv-cache-memory-bytes", LLM_OPTION_INT64, 0, offsetof(options_target, bytes), 1, 9e18, "N", "memory"},
    {"temp|temperature", LLM_OPTION_FLOAT, 0, offsetof(options_target, x), 0, 2, "X", "temperature"},
    {"enable-it", LLM_OPTION_BOOL, 0, offsetof(options_target, flag), 0, 0, NULL, "a switch"},
    {"dtype", LLM_OPTION_ENUM, 0, offsetof(options_target, dtype), 0, 0, "auto|float32=1|half=3", "arithmetic"},
    {"name", LLM_OPTION_LIST, 0, offsetof(options_target, names), 1, 0, "NAME ...", "names"},
    {"say", LLM_OPTION_TEXT, 0, offsetof(options_target, model), 0, 0, "TEXT", "a text for people"},
    {"old", LLM_OPTION_IGNORED, -1, 0, 0, 0, NULL, "it has no meaning"},
    {"old-flag", LLM_OPTION_IGNORED_FLAG, -1, 0, 0, 0, NULL, "it has no meaning"},
    {"later", LLM_OPTION_REFUSED, -1, 0, 0, 0, NULL, "this"}};

static char *options_fake_env(const char *name) {
    static char value[] = "9000";
    return strcmp(name, "LLM_ARG_PORT") ? NULL : value;
}

static void options_count_note(void *user, const char *line) {
    (void)line;
    ++*(int *)user;
}

/* Reads words; the result, with the target and the free words in *t and *words. */
static llm_result options_try(options_target *t, llm_option_list *words, const char *const *args, int n, int *notes) {
    static unsigned char given[16];
    llm_options o = {options_test_table, LLM__COUNT(options_test_table), t, given, options_count_note, notes, {NULL, 0}, NULL};
    char *argv[24];
    memset(given, 0, sizeof given);
    memset(t, 0, sizeof *t);
    LLM_FREE((void *)words->items);
    words->items = NULL;
    words->n = 0;
    argv[0] = (char *)(uintptr_t) "x";
    for (int i = 0; i < n; i++) argv[i + 1] = (char *)(uintptr_t)args[i];
    llm_result r = llm__options_argv(&o, n + 1, argv, words);
    LLM_FREE((void *)t->names.items);
    t->names.items = NULL;
    return r;
}

static void options_refuse(const char *a, const char *b, const char *want) {
    options_target t;
    llm_option_list words = {NULL, 0};
    const char *args[2] = {a, b};
    int notes = 0;
    CHECK(options_try(&t, &words, args, b ? 2 : 1, &notes) != LLM_OK);
    if (!CHECK(strstr(llm_last_error(), want) != NULL)) printf("  %s: %s\n", a, llm_last_error());
    LLM_FREE((void *)words.items);
}

static void options_json(void) {
    options_target t;
    unsigned char given[16] = {0};
    llm_options o = {options_test_table, LLM__COUNT(options_test_table), &t, given, NULL, NULL, {NULL, 0}, NULL};
    llm_json *d = NULL;
    llm_text unknown = {0};
    static const char text[] = "{\"model\": \"a\\u00e9\", \"temperature\": 0.5, \"enable_it\": true, \"dtype\": \"half\", \"name\": [\"a\", \"b\"], \"port\": null, \"foo\": 1, \"bar\": {}}";
    memset(&t, 0, sizeof t);
    CHECK(!llm_json_parse(text, strlen(text), NULL, &d));
    CHECK(llm_options_json(&o, d, 0, LLM_FROM_FILE, NULL) == LLM_ERR_ARG);
    memset(given, 0, sizeof given);
    t.names.n = 0;
    CHECK(!llm_options_json(&o, d, 0, LLM_FROM_FILE, &unknown));
    CHECK(t.model && !strcmp(t.model, "a\xC3\xA9") && t.x == 0.5f && t.flag == 1 && t.dtype == 3 && t.names.n == 2 && t.port == 0);
    CHECK(unknown.data && !strcmp(unknown.data, "foo, bar"));
    CHECK(!llm__options_environment(&o, options_fake_env) && t.port == 9000);
    llm_json_free(d);
    llm_text_free(&unknown);
    llm_options_free(&o);
}

static void options_early_stop(void) {
    llm_early_stop e;
    CHECK(!llm__early_stop_parse("{\"enable_early_stop\":true, \"window_size\": 1000, \"threshold\": 0.9}", 0, &e) && e.enable && e.window_size == 1000 && e.threshold == 0.9f);
    CHECK(!llm__early_stop_parse("{}", 1, &e) && e.enable && e.window_size == 3000 && e.threshold == 0.99f);
    CHECK(!llm__early_stop_parse("{\"strategy\": \"Repetition\", \"other\": 1}", 0, &e) && !e.enable);
    static const char *const bad[] = {"", "[]", "1", "{\"window_size\": 0}", "{\"window_size\": 1.5}", "{\"threshold\": 2}", "{\"threshold\": \"x\"}", "{\"strategy\": \"x\"}", "{\"strategy\": 1}", "{\"enable_early_stop\": 1}"};
    for (int i = 0; i < LLM__COUNT(bad); i++) CHECK(llm__early_stop_parse(bad[i], 0, &e) == LLM_ERR_ARG);
    CHECK(llm__early_stop_parse("{\"enable_early_stop\": false}", 1, &e) == LLM_ERR_ARG);
}

TEST_GROUP(options) {
    options_target t;
    llm_option_list words = {NULL, 0};
    int notes = 0;
    static const char *const args[] = {"-m", "x.gguf", "hello", "--port=81", "--kv_cache_memory_bytes", "4G", "\xE2\x80\x93temperature", "1.5", "--no-enable-it", "--enable-it", "--dtype", "HALF",
                                       "--name", "a", "b", "--old", "1", "--old-flag", "--", "-m"};
    CHECK(!options_try(&t, &words, args, LLM__COUNT(args), &notes));
    CHECK(t.model && !strcmp(t.model, "x.gguf") && t.port == 81 && t.bytes == (int64_t)4 << 30 && t.x == 1.5f && t.flag == 1 && t.dtype == 3 && t.names.n == 2);
    CHECK(words.n == 2 && !strcmp(words.items[0], "hello") && !strcmp(words.items[1], "-m") && notes == 3);
    LLM_FREE((void *)words.items);
    options_refuse("--say", "a\xF4\x90\x80\x80", "--say: not UTF-8"); /* above U+10FFFF */
    options_refuse("--prot", "1", "--port");
    options_refuse("--port", NULL, "a value was expected");
    options_refuse("--port", "65536", "whole number from 0 to 65535");
    options_refuse("--port", "80x", "80x");
    options_refuse("--temperature", "nan", "number from 0.0 to 2.0");
    options_refuse("--temperature", "0,5", "0,5");
    options_refuse("--dtype", "int3", "auto, float32, half");
    options_refuse("--enable-it=maybe", NULL, "true or false");
    options_refuse("--no-port", NULL, "unknown option");
    options_refuse("--later", "x", "not in this version");
    options_refuse("--model", "", "empty value");
    options_json();
    options_early_stop();
    llm_text help = {0};
    unsigned char given[16] = {0};
    llm_options o = {options_test_table, LLM__COUNT(options_test_table), &t, given, NULL, NULL, {NULL, 0}, NULL};
    llm__option_group(&o, 0, &help);
    CHECK(help.data && strstr(help.data, "  -m, --model PATH") && !strstr(help.data, "old"));
    for (const char *p = help.data; p && *p; p = strchr(p, '\n') + 1) CHECK(strcspn(p, "\n") <= 80);
    llm_text_free(&help);
}
