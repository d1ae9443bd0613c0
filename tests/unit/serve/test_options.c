/* Options by name: argv, environment, JSON, messages. */
#include "../test.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/fields.h"
#include "base/text.h"
#include "engine/engine_open.h"
#include "engine/sampler.h"
#include "serve/reports.h"
#include "serve/options.h"

typedef struct options_target {
    const char *model, *choice;
    int32_t port, flag, dtype;
    int64_t bytes;
    float x;
    llm_option_list names;
} options_target;

/* clang-format off */
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
    {"later", LLM_OPTION_REFUSED, -1, 0, 0, 0, NULL, "this"},
    LLM_OPT_CHOICE(options_target, choice, 0, "format", "None|HF|awq", "a format"),
    LLM_OPT_NONE_OF("old-words|$OLD_WORDS", "ray|MP", "it has no meaning"),
    LLM_OPT_NONE_NUMBER("old-port|old_queue|$OLD_A|$OLD_B", "N", 0, 65535, "it has no meaning"),
    LLM_OPT_NONE_NUMBER("old-share", "X", 0, 1, "it has no meaning")};
/* clang-format on */

static char *options_fake_env(const char *name) {
    static char value[] = "9000";
    return strcmp(name, "LLM_ARG_PORT") && strcmp(name, "OLD_A") && strcmp(name, "OLD_B") && strcmp(name, "LLM_ARG_OLD_QUEUE") ? NULL
                                                                                                                               : value;
}

static void options_count_note(void *user, const char *line) {
    (void)line;
    ++*(int *)user;
}

/* Reads words; the result, with the target and the free words in *t and *words. */
static llm_result options_try(options_target *t, llm_option_list *words, const char *const *args, int n, int *notes) {
    static unsigned char given[LLM__COUNT(options_test_table)];
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
    unsigned char given[LLM__COUNT(options_test_table)] = {0};
    llm_options o = {options_test_table, LLM__COUNT(options_test_table), &t, given, NULL, NULL, {NULL, 0}, NULL};
    llm_json *d = NULL;
    llm_text unknown = {0};
    static const char text[] =
        "{\"model\": \"a\\u00e9\", \"temperature\": 0.5, \"enable_it\": true, \"dtype\": \"half\", \"name\": [\"a\", \"b\"], \"port\": null, \"foo\": 1, \"bar\": {}}";
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

/* What has no meaning: a note for every name of a row, by every way, and a value that nobody documents is refused. */
static void options_idle(void) {
    options_target t;
    unsigned char given[LLM__COUNT(options_test_table)] = {0};
    int notes = 0;
    llm_options o = {options_test_table, LLM__COUNT(options_test_table), &t, given, options_count_note, &notes, {NULL, 0}, NULL};
    llm_json *d = NULL;
    static const char text[] =
        "{\"old_port\": 80, \"old-queue\": 81, \"old\": {\"a\": 1}, \"old_flag\": true, \"old_words\": \"RAY\", \"old_share\": 0.5}";
    memset(&t, 0, sizeof t);
    CHECK(!llm__options_environment(&o, options_fake_env) && notes == 3 && t.port == 9000); /* OLD_A, OLD_B and LLM_ARG_OLD_QUEUE */
    CHECK(!llm_json_parse(text, strlen(text), NULL, &d));
    CHECK(!llm_options_json(&o, d, 0, LLM_FROM_FILE, NULL) && notes == 9);
    llm_json_free(d);
    llm_options_free(&o);
    options_refuse("--old-port", "65536", "--old-port: 65536, a whole number from 0 to 65535");
    options_refuse("--old-port", "80.5", "whole number");
    options_refuse("--old-share", "1.5", "a number from 0.0 to 1.0");
    options_refuse("--old-words", "banana", "--old-words: banana, one of ray, MP was expected");
    options_refuse("--old-flag=maybe", NULL, "true or false");
    options_refuse("--format", "x", "--format: x, one of None, HF, awq was expected");
}

/* A list of NAME=PATH may be an object; names in a list of what was ignored are plain, and few enough. */
static void options_shapes(void) {
    options_target t;
    unsigned char given[LLM__COUNT(options_test_table)] = {0};
    llm_options o = {options_test_table, LLM__COUNT(options_test_table), &t, given, NULL, NULL, {NULL, 0}, NULL};
    llm_json *d = NULL;
    llm_text list = {0};
    static const char text[] = "{\"name\": {\"a\": \"/x=y\", \"b\": \"z\"}, \"format\": \"hf\"}",
                      one[] = "{\"name\": {\"name\": \"a\", \"path\": \"b\"}}";
    memset(&t, 0, sizeof t);
    CHECK(!llm_json_parse(text, strlen(text), NULL, &d) && !llm_options_json(&o, d, 0, LLM_FROM_FILE, NULL));
    CHECK(t.names.n == 2 && !strcmp(t.names.items[0], "a=/x=y") && !strcmp(t.names.items[1], "b=z") && !strcmp(t.choice, "hf"));
    CHECK(llm_options_json(&o, d, 0, LLM_FROM_REQUEST, NULL) == LLM_ERR_ARG); /* a request's list is one of texts */
    llm_json_free(d);
    t.names.n = 0;
    CHECK(!llm_json_parse(one, strlen(one), NULL, &d) && !llm_options_json(&o, d, 0, LLM_FROM_FILE, NULL));
    CHECK(t.names.n == 1 && !strcmp(t.names.items[0], "{\"name\":\"a\",\"path\":\"b\"}"));
    llm_json_free(d);
    llm_options_free(&o);
    llm__report_name(&list, llm__lit("a b\r\n\xC3\xA9"));
    llm__report_name(&list, llm__lit("c.d"));
    CHECK(!strcmp(list.data, "a?b????, c.d"));
    for (int i = 0; i < 200; i++)
        llm__report_name(&list, llm__lit("a-name-that-is-longer-than-sixty-three-bytes-is-cut-at-sixty-three-bytes"));
    CHECK(list.len < 1100 && !strcmp(list.data + list.len - 10, ", and more") && !strstr(list.data, "three-bytes,"));
    llm_text_free(&list);
}

/* Of a file or a request nobody knows which of two names comes last; what a person says twice is another matter. */
static void options_names(void) {
    static const struct {
        int source;
        const char *json, *want; /* NULL: it is taken */
    } rows[] = {
        {LLM_FROM_FILE, "{'kv-cache-memory-bytes': 5, 'kv_cache_memory_bytes': 5, 'KV_CACHE_memory_bytes': '5'}", NULL},
        {LLM_FROM_FILE, "{'kv-cache-memory-bytes': 5, 'kv_cache_memory_bytes': 6}",
         "kv_cache_memory_bytes: 6, but kv-cache-memory-bytes, another name of the same, has another value: one of them was expected"},
        {LLM_FROM_FILE, "{'temp': 0.5, 'port': 1, 'temperature': 1}", "temperature: 1, but temp, another name"},
        {LLM_FROM_FILE, "{'m': 'a', 'model': 'a', 'Model': 'b'}", "Model: \"b\", but m, another name"},
        {LLM_FROM_FILE, "{'name': 'a', 'Name': 'b', 'format': 'hf', 'Format': 'hf', 'old': 1, 'Old': 2}", NULL},
        {LLM_FROM_FILE, "{'temp': null, 'Temp': 1, 'temperature': 2}", "temperature: 2, but Temp, another name"},
        {LLM_FROM_USER, "{'temp': 0.5, 'temperature': 1}", NULL},
        {LLM_FROM_REQUEST, "{'temp': 0.5, 'temperature': 0.5, 'enable_it': true}", NULL},
        {LLM_FROM_REQUEST, "{'temp': 0.5, 'temperature': 1}", "temperature: 1, but temp, another name"},
        {LLM_FROM_REQUEST, "{'enable-it': true}", "unknown option enable-it; the nearest is enable_it"},
        {LLM_FROM_REQUEST, "{'Port': 1}", "unknown option Port; the nearest is port"}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        options_target t;
        unsigned char given[LLM__COUNT(options_test_table)] = {0};
        llm_options o = {options_test_table, LLM__COUNT(options_test_table), &t, given, NULL, NULL, {NULL, 0}, NULL};
        llm_json *d = NULL;
        char json[200];
        snprintf(json, sizeof json, "%s", rows[i].json);
        for (char *c = json; *c; c++) *c = (char)(*c == '\'' ? '"' : *c);
        memset(&t, 0, sizeof t);
        CHECK(!llm_json_parse(json, strlen(json), NULL, &d));
        const llm_result r = llm_options_json(&o, d, 0, rows[i].source, NULL);
        if (!CHECK(rows[i].want ? r == LLM_ERR_ARG && strstr(llm_last_error(), rows[i].want) : !r))
            printf("  %s: %s\n", rows[i].json, llm_last_error());
        llm_json_free(d);
        llm_options_free(&o);
    }
}

static char *options_no_env(const char *name) { return strcmp(name, "LLM_ARG_TEMP") ? NULL : (char *)(uintptr_t) "1"; }

/* Sentences about fields become sentences about what the user wrote. */
static void options_sentences(void) {
    options_target t;
    unsigned char given[LLM__COUNT(options_test_table)] = {0};
    llm_options o = {options_test_table, LLM__COUNT(options_test_table), &t, given, NULL, NULL, {NULL, 0}, NULL};
    const char *args[] = {"x", "\xE2\x80\x93kv_cache_memory_bytes=4", "-m", "y", "--no-enable_it"};
    /* clang-format off */
    static const char *const rows[][2] = {
        {"kv_cache_memory_bytes: 4, too few", "\xE2\x80\x93kv_cache_memory_bytes: 4, too few"}, {"model: \"model: x\" is wrong", "-m: \"model: x\" is wrong"},
        {"enable_it is set and old_flag is not", "--no-enable_it is set and --old-flag is not"}, {"temp: 1, too hot", "LLM_ARG_TEMP: 1, too hot"},
        {"the model has no port: it is", "the model has no port: it is"}, {"--config: old_flag: x", "--config: old_flag: x"}, {"{\"old_flag\": 1}", "{\"old_flag\": 1}"},
        {"models/old_flag.c: old_flags", "models/old_flag.c: old_flags"}};
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_text out = {0};
        llm_options_sentence(&o, 5, (char **)(uintptr_t)args, options_no_env, rows[i][0], &out);
        if (!CHECK(out.data && !strcmp(out.data, rows[i][1]))) printf("  %s\n", out.data);
        llm_text_free(&out);
    }
}

static void options_early_stop(void) {
    llm_early_stop e = {0, 0, 0};
    CHECK(!llm__early_stop_parse(NULL, "{\"enable_early_stop\":true, \"window_size\": 1000, \"threshold\": 0.9}", 0, &e) && e.enable &&
          e.window_size == 1000 && e.threshold == 0.9f);
    CHECK(!llm__early_stop_parse(NULL, "{}", 1, &e) && e.enable && e.window_size == 3000 && e.threshold == 0.99f);
    e.enable = 0;
    CHECK(!llm__early_stop_parse(NULL, "{\"strategy\": \"Repetition\"}", 0, &e) && !e.enable);
    e.enable = 1;
    CHECK(!llm__early_stop_parse(NULL, "{\"window_size\": 7}", 0, &e) && e.enable && e.window_size == 7);
    static const char *const bad[] = {"",
                                      "[]",
                                      "1",
                                      "{\"window_size\": 0}",
                                      "{\"window_size\": 1.5}",
                                      "{\"threshold\": 2}",
                                      "{\"threshold\": \"x\"}",
                                      "{\"strategy\": \"x\"}",
                                      "{\"windw_size\": 5}",
                                      "{\"strategy\": 1}",
                                      "{\"enable_early_stop\": 1}"};
    for (int i = 0; i < LLM__COUNT(bad); i++) CHECK(llm__early_stop_parse(NULL, bad[i], 0, &e) == LLM_ERR_ARG);
    CHECK(llm__early_stop_parse(NULL, "{\"enable_early_stop\": false}", 1, &e) == LLM_ERR_ARG);
}

TEST_GROUP(options) {
    options_target t;
    llm_option_list words = {NULL, 0};
    int notes = 0;
    /* clang-format off */
    static const char *const args[] = {"-m", "x.gguf", "hello", "--port=81", "--kv_cache_memory_bytes", "4G", "\xE2\x80\x93temperature", "1.5", "--no-enable-it", "--enable-it", "--dtype", "HALF",
                                       "--name", "a", "b", "--old", "1", "--old-flag", "--", "-m"};
    /* clang-format on */
    CHECK(!options_try(&t, &words, args, LLM__COUNT(args), &notes));
    CHECK(t.model && !strcmp(t.model, "x.gguf") && t.port == 81 && t.bytes == (int64_t)4 << 30 && t.x == 1.5f && t.flag == 1 &&
          t.dtype == 3 && t.names.n == 2);
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
    options_refuse("--later", "x", "is not supported");
    options_refuse("--foo", "x", "unknown option --foo; --help lists them");
    options_refuse("--max-modl", "x", "unknown option --max-modl; the nearest is --");
    options_refuse("\xE2\x80\x93pord=7", NULL, "unknown option \xE2\x80\x93pord; the nearest is --port");
    options_refuse("--model", "", "empty value");
    options_json();
    options_idle();
    options_shapes();
    options_names();
    options_sentences();
    options_early_stop();
    llm_text help = {0};
    unsigned char given[LLM__COUNT(options_test_table)] = {0};
    llm_options o = {options_test_table, LLM__COUNT(options_test_table), &t, given, NULL, NULL, {NULL, 0}, NULL};
    llm_options_rows(&o, 0, "port|m", &help);
    CHECK(help.data && strstr(help.data, "  -m, --model PATH") && strstr(help.data, "--port") && !strstr(help.data, "--dtype"));
    llm_text_free(&help);
    llm_options_rows(&o, 0, NULL, &help);
    CHECK(help.data && strstr(help.data, "  -m, --model PATH") && !strstr(help.data, "old"));
    for (const char *p = help.data; p && *p; p = strchr(p, '\n') + 1) CHECK(strcspn(p, "\n") <= 80);
    llm_text_free(&help);
}

/* ---- ranges: what an option says and what the engine takes come from one row ---- */

typedef struct ranges_target {
    llm_engine_config e;
    llm_sampling s;
} ranges_target;

static const llm_option ranges_table[] = {LLM_OPTIONS_ENGINE(ranges_target, e, 0), LLM_OPTIONS_SAMPLING(ranges_target, s, 0)};

static const llm__field *ranges_row(size_t at, const char **of) {
    *of = "engine";
    for (int i = 0; i < LLM__ENGINE_FIELDS; i++)
        if (llm__engine_fields[i].at + offsetof(ranges_target, e) == at) return &llm__engine_fields[i];
    *of = "sampling";
    for (int i = 0; i < LLM__SAMPLING_FIELDS; i++)
        if (llm__sampling_fields[i].at + offsetof(ranges_target, s) == at) return &llm__sampling_fields[i];
    return NULL;
}

/* Is the target taken by whoever gets it? */
static int ranges_taken(const ranges_target *t, const char *of) {
    return !(*of == 'e' ? llm__fields_check(llm__engine_fields, LLM__ENGINE_FIELDS, &t->e) : llm__check_sampling(&t->s, 0));
}

/* 1 if the option takes the value; it is in the target then. */
static int ranges_set(ranges_target *t, const llm_option *p, const char *value) {
    static unsigned char given[LLM__COUNT(ranges_table)];
    llm_options o = {ranges_table, LLM__COUNT(ranges_table), t, given, NULL, NULL, {NULL, 0}, NULL};
    memset(t, 0, sizeof *t);
    memset(given, 0, sizeof given);
    t->s.max_tokens = -1;
    return !llm_options_set(&o, p, "x", value, LLM_FROM_USER);
}

/* Each number: the ends are taken by option and engine, what lies beyond them by neither. */
static void ranges_number(const llm_option *p, const llm__field *f, const char *of) {
    ranges_target t;
    char text[40];
    const int real = p->kind == LLM_OPTION_FLOAT;
    const double step = real ? 0.5 : 1;
    const char *form = real ? "%.9g" : "%.0f";
    CHECK(p->kind == f->kind && p->low == f->least && p->high == f->most);
    for (int end = 0; end < 2; end++) {
        snprintf(text, sizeof text, form, end ? p->high : p->low);
        if (!CHECK(ranges_set(&t, p, text))) printf("  %s %s\n", f->name, text);
        if (!CHECK(ranges_taken(&t, of))) printf("  %s %s: %s\n", f->name, text, llm_last_error());
        if (end && p->high + step == p->high) continue;
        snprintf(text, sizeof text, form, end ? p->high + step : p->low - step);
        if (!CHECK(!ranges_set(&t, p, text))) printf("  %s %s\n", f->name, text);
    }
    const double beyond[2] = {p->low - step, p->high + step};
    for (int end = 0; end < 2; end++) {
        memset(&t, 0, sizeof t);
        if (beyond[end] == 0 || (!real && fabs(beyond[end]) > 2147483647.0)) continue;
        const int32_t whole = (int32_t)beyond[end];
        const float x = (float)beyond[end];
        memcpy((char *)&t + p->at, real ? (const void *)&x : (const void *)&whole, 4);
        if (!CHECK(!ranges_taken(&t, of))) printf("  %s %g\n", f->name, beyond[end]);
        else CHECK(!strncmp(llm_last_error(), f->name, strlen(f->name)) && strstr(llm_last_error(), ", must be "));
    }
}

/* Each word of an option stands for a number that the engine takes. */
static void ranges_words(const llm_option *p, const char *of) {
    ranges_target t;
    llm__str w;
    for (const char *words = p->words; llm__list_next(&words, "|", &w);) {
        char word[40];
        snprintf(word, sizeof word, "%.*s", (int)llm__str_until(w, "="), w.p);
        CHECK(ranges_set(&t, p, word));
        if (!CHECK(ranges_taken(&t, of))) printf("  %s: %s\n", word, llm_last_error());
    }
    memset(&t, 0, sizeof t);
    const int32_t odd = 77;
    memcpy((char *)&t + p->at, &odd, sizeof odd);
    CHECK(!ranges_taken(&t, of));
}

/* A default that the help names in brackets is the one that zero stands for. */
static void ranges_help(const llm_option *p, const llm__field *f) {
    const char *bracket = p->help ? strrchr(p->help, '(') : NULL;
    char *end;
    const double said = bracket ? strtod(bracket + 1, &end) : 0;
    if (!bracket || *end != ')' || end == bracket + 1 || f->otherwise == 0) return;
    if (!CHECK(fabs(said - f->otherwise) < 1e-9)) printf("  %s: %s\n", f->name, p->help);
}

TEST_GROUP(ranges) {
    int numbers = 0, words = 0;
    for (int32_t i = 0; i < LLM__COUNT(ranges_table); i++) {
        const llm_option *p = &ranges_table[i];
        const char *of;
        const llm__field *f = ranges_row(p->at, &of);
        if (p->kind == LLM_OPTION_TEXT || p->kind == LLM_OPTION_BOOL || !f) continue;
        if (p->kind == LLM_OPTION_ENUM) ranges_words(p, of), words++;
        else ranges_number(p, f, of), numbers++;
        ranges_help(p, f);
    }
    CHECK(numbers >= 30 && words >= 4);
    /* zeros take their defaults, and nothing else changes */
    llm_engine_config c;
    memset(&c, 0, sizeof c);
    c.max_queue = 7;
    llm__fields_default(llm__engine_fields, LLM__ENGINE_FIELDS, &c);
    CHECK(c.max_queue == 7 && c.max_num_seqs == 1 && c.block_size == 32 && c.gpu_memory_utilization == 0.9f && c.swap_space == 4);
    llm_sampling s;
    memset(&s, 0, sizeof s);
    CHECK(llm__fields_put(llm__sampling_fields, LLM__SAMPLING_FIELDS, &s, "top_k", 20) && s.top_k == 20);
    CHECK(!llm__fields_put(llm__sampling_fields, LLM__SAMPLING_FIELDS, &s, "temperature", 3) && s.temperature == 0);
    CHECK(!llm__fields_put(llm__sampling_fields, LLM__SAMPLING_FIELDS, &s, "nothing", 1));
    c.max_num_seqs = 70000;
    CHECK(llm__fields_check(llm__engine_fields, LLM__ENGINE_FIELDS, &c) == LLM_ERR_ARG);
    CHECK(!strcmp(llm_last_error(), "max_num_seqs: 70000, must be in [1, 65536] (sequences; 0: 1)"));
    c.max_num_seqs = 0, c.block_size = 20;
    CHECK(llm__fields_check(llm__engine_fields, LLM__ENGINE_FIELDS, &c) == LLM_ERR_ARG);
    CHECK(!strcmp(llm_last_error(), "block_size: 20, must be one of 16, 32, 64, 128, 256, 512, 1024 (0: 32)"));
    c.block_size = 0, c.kv_cache_memory_bytes = -1;
    CHECK(llm__fields_check(llm__engine_fields, LLM__ENGINE_FIELDS, &c) == LLM_ERR_ARG);
    CHECK(!strcmp(llm_last_error(), "kv_cache_memory_bytes: -1, must be at least 1 (bytes; 0: what all sequences need)"));
}
