/* The parts that compile JSON Schema, each by itself: views and what they say, values that are given, and the fragment of each type
 * against a plain recogniser on short texts. (Whole schemas: test_schema.c.) */
#include "reading.h"
#include "grammar/finish.h"
#include "grammar/gbnf.h"
#include "grammar/grammar_regex.h"
#include "grammar/machine.h"
#include "grammar/schema.h"
#include "grammar/schema_arrays.h"
#include "grammar/schema_numbers.h"
#include "grammar/schema_objects.h"
#include "grammar/schema_rules.h"
#include "grammar/schema_strings.h"
#include "grammar/schema_values.h"
#include "grammar/tags.h"
#include "text/regex.h"
#include "text/regex_match.h"

/* A schema while it is compiled: the view of its root, expanded. */
typedef struct view_work {
    llm_json *doc;
    llm__gr_build b;
    int64_t fuel;
    llm__js js;
    llm__js_view v;
} view_work;

static int view_open(view_work *w, const char *schema) {
    memset(w, 0, sizeof *w);
    w->fuel = INT64_C(1) << 40;
    if (!CHECK(!llm_json_parse(schema, strlen(schema), NULL, &w->doc)) || !CHECK(llm__grammar_new(&w->b, &w->fuel) != NULL)) return -1;
    w->js.b = &w->b, w->js.doc = w->doc;
    llm__js_bring(&w->js, &w->v, -1, 0, 0);
    return llm__js_expand(&w->js, &w->v);
}

static void view_close(view_work *w) {
    llm__regex_close(w->js.pattern);
    LLM_FREE(w->js.memo);
    if (w->b.g) llm__grammar_free(w->b.g);
    llm_json_free(w->doc);
}

/* The machine of a fragment of this schema; it takes over the build. */
static llm_grammar *view_machine(view_work *w, llm__gr_frag f) {
    llm__grammar_finish(&w->b, f);
    return w->b.failed ? NULL : w->b.g;
}

static int view_reads(llm_grammar *g, const char *s, size_t n) {
    int32_t state = 1;
    for (size_t i = 0; i < n && state; i++) state = llm__gr_step(g, state, (uint8_t)s[i]);
    return g->state[state].accept;
}

static void view_list(llm_grammar *g, const char *list, int expected) {
    for (const char *at = list; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        const size_t n = strcspn(at, "|");
        if (!CHECK(view_reads(g, at, n) == expected)) printf("  %.*s\n", (int)n, at);
    }
}

/* Texts that the fragment which `make` builds of a schema reads, and others. */
static void view_frag(const char *schema, llm__gr_frag (*make)(llm__js *js, const llm__js_view *v), const char *good, const char *bad) {
    view_work w;
    CHECK(view_open(&w, schema) == 1);
    llm_grammar *g = view_machine(&w, make(&w.js, &w.v));
    if (CHECK(g != NULL)) view_list(g, good, 1), view_list(g, bad, 0);
    view_close(&w);
}

/* ---- views ---- */

/* $ref and allOf add members, each once; what is always so is left out; false is nothing. */
static void view_members(void) {
    view_work w;
    CHECK(
        view_open(
            &w,
            "{\"$defs\":{\"id\":{\"minimum\":1,\"maximum\":7}},\"allOf\":[{\"$ref\":\"#/$defs/id\"},{\"maximum\":9},{},true],\"title\":\"t\"}") ==
            1 &&
        w.v.n == 4);
    const int defs = llm_json_find(w.doc, 0, "$defs"), id = llm_json_find(w.doc, defs, "id"), all = llm_json_find(w.doc, 0, "allOf");
    int found = -1;
    for (int i = 0; i < w.v.n; i++) found = w.v.node[i] == id ? i : found;
    CHECK(found >= 0 && w.v.by[found] == llm_json_first(w.doc, all) && w.v.used[0] & LLM__JS_ALL);
    CHECK(llm__js_within_of(&w.v, found, 0) && llm__js_within_of(&w.v, found, llm_json_first(w.doc, all)) &&
          !llm__js_within_of(&w.v, 0, id));
    CHECK(llm__js_count(&w.js, &w.v, "maximum", 1, 99) == 7 && llm__js_count(&w.js, &w.v, "maximum", 0, 99) == 9 &&
          llm__js_count(&w.js, &w.v, "minimum", 0, 99) == 1 && llm__js_count(&w.js, &w.v, "minLength", 0, 99) == 99);
    CHECK(llm__js_find(&w.js, &w.v, found, "minimum") >= 0 && llm__js_find(&w.js, &w.v, 0, "minimum") == -1 &&
          llm__js_find_not(&w.js, &w.v, found, "minimum") == -1);
    CHECK(llm__js_any(&w.js, &w.v, "minimum") == llm_json_find(w.doc, id, "minimum") && llm__js_any(&w.js, &w.v, "type") == -1);
    CHECK(llm__js_listed(&w.js, "allOf title", llm_json_find(w.doc, 0, "title")) &&
          !llm__js_listed(&w.js, "allOf tit", llm_json_find(w.doc, 0, "title")));
    llm__js_bring(&w.js, &w.v, -1, id, 0);
    CHECK(w.v.n == 4); /* it is there already */
    view_close(&w);
    CHECK(view_open(&w, "{\"allOf\":[{\"type\":\"null\"},false]}") == 0 && !w.b.failed);
    view_close(&w);
    CHECK(view_open(&w, "{\"allOf\":[{\"$ref\":\"#/nowhere\"}]}") == 0 && w.b.failed == LLM_ERR_FORMAT &&
          strstr(llm_last_error(), "JSON schema: #/allOf/0/$ref: names nothing"));
    CHECK(llm__js_refuse(&w.js, LLM_ERR_LIMIT, 0, "x", "another").in == llm__gr_never.in &&
          w.b.failed == LLM_ERR_FORMAT); /* the first stays */
    view_close(&w);
    CHECK(view_open(&w, "{\"not\":{\"const\":1},\"type\":\"integer\"}") == 1 && w.v.n == 2 && w.v.used[1] & LLM__JS_NOT &&
          llm__js_find(&w.js, &w.v, 1, "const") == -1 && llm__js_find_not(&w.js, &w.v, 1, "const") >= 0);
    view_close(&w);
}

/* Types as they are said, or as keywords speak of them; what members allow together. */
static void view_types(void) {
    static const struct {
        const char *schema;
        int types;
    } rows[] = {{"{\"type\":\"string\"}", LLM__JS_STR},
                {"{\"type\":[\"integer\",\"null\"]}", LLM__JS_INT | LLM__JS_NULL},
                {"{\"minimum\":0}", LLM__JS_NUM | LLM__JS_INT},
                {"{\"properties\":{}}", LLM__JS_OBJ},
                {"{\"items\":true}", LLM__JS_ARR},
                {"{\"minLength\":1}", LLM__JS_STR},
                {"{\"allOf\":[{\"type\":[\"string\",\"number\"]},{\"type\":[\"integer\",\"null\"]}]}", LLM__JS_INT},
                {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", 0},
                {"{\"type\":\"number\"}", LLM__JS_NUM | LLM__JS_INT},
                {"{\"type\":[\"null\",\"boolean\"],\"not\":{\"type\":\"null\"}}", LLM__JS_BOOL}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        view_work w;
        CHECK(view_open(&w, rows[i].schema) == 1);
        if (!CHECK(llm__js_types(&w.js, &w.v) == rows[i].types)) printf("  %s: %d\n", rows[i].schema, llm__js_types(&w.js, &w.v));
        view_close(&w);
    }
}

/* ---- given values ---- */

static void view_values(void) {
    static const char schema[] = "{\"enum\":[1,\"a\",null,[2,\"x\"],1.5],\"const\":\"b\"}";
    static const int types[] = {LLM__JS_INT, LLM__JS_STR, LLM__JS_NULL, LLM__JS_ARR, LLM__JS_NUM, LLM__JS_STR};
    view_work w;
    int at = -1, n = 0;
    CHECK(view_open(&w, schema) == 1);
    while ((at = llm__js_next_given(&w.js, &w.v, 0, at, 0)) >= 0 && n < 6) CHECK(llm__js_value_type(&w.js, at) == types[n++]);
    CHECK(n == 6 && llm__js_next_given(&w.js, &w.v, 0, -1, 1) == -1);
    CHECK(llm__js_among(&w.js, &w.v, llm__lit("\"a\""), 0) && llm__js_among(&w.js, &w.v, llm__lit("[2,\"x\"]"), 0) &&
          llm__js_among(&w.js, &w.v, llm__lit("\"b\""), 0));
    CHECK(!llm__js_among(&w.js, &w.v, llm__lit("\"c\""), 0) && !llm__js_among(&w.js, &w.v, llm__lit("2"), 0) &&
          !llm__js_among(&w.js, &w.v, llm__lit("1"), 1));
    view_close(&w);
    CHECK(
        view_open(
            &w,
            "{\"enum\":[\"z\",3,\"ab\",[1],5,\"a\"],\"minLength\":1,\"maxLength\":1,\"type\":[\"string\",\"array\",\"integer\"],\"maximum\":4}") ==
        1);
    llm__gr_words words = LLM__ZERO;
    w.v.used[0] |= LLM__JS_ENUM;
    const llm__gr_frag lists = llm__js_kept(&w.js, &w.v, llm_json_find(w.doc, 0, "enum"), -1, &words);
    CHECK(!w.b.failed && lists.in >= 0 && words.n == 3 && llm__str_eq(words.word[0], "\"a\"") && llm__str_eq(words.word[1], "\"z\"") &&
          llm__str_eq(words.word[2], "3"));
    llm__gr_words_free(&words);
    llm_grammar *g = view_machine(&w, llm__js_values(&w.js, &w.v, llm_json_find(w.doc, 0, "enum"), -1));
    if (CHECK(g != NULL)) view_list(g, "\"z\"|3|\"a\"|[1]|[ 1 ]", 1), view_list(g, "\"ab\"|5|4|[2]|[]", 0);
    view_close(&w);
}

/* A trial says of any document whether it satisfies a view, properties that nobody named among them. */
static void view_trial(void) {
    view_work w;
    CHECK(view_open(&w, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":3}},\"required\":[\"a\"]}") == 1);
    llm_grammar *trial = llm__js_trial(&w.js, &w.v);
    if (CHECK(trial != NULL)) {
        CHECK(llm__js_passes(&w.js, trial, llm__lit("{\"a\":3}")) && llm__js_passes(&w.js, trial, llm__lit("{\"a\":4,\"b\":[1]}")));
        CHECK(!llm__js_passes(&w.js, trial, llm__lit("{\"a\":2}")) && !llm__js_passes(&w.js, trial, llm__lit("{}")) &&
              !llm__js_passes(&w.js, trial, llm__lit("3")));
        llm__grammar_free(trial);
    }
    CHECK(!w.b.failed);
    view_close(&w);
}

/* Words as they were collected, in order, without their quotes. */
static void view_words(void) {
    static const char *const given[] = {"\"b\"", "\"a\"", "\"ab\"", "\"\""};
    static const char *const sorted[] = {"", "a", "ab", "b"};
    llm__gr_words words = LLM__ZERO;
    llm__gr_build b = LLM__ZERO;
    for (int i = 0; i < 4; i++) llm_text_str(&words.all, given[i]), llm__gr_words_add(&b, &words);
    llm__gr_words_sort(&words, 1);
    for (int i = 0; i < 4; i++) CHECK(llm__str_eq(words.word[i], sorted[i]));
    CHECK(words.n == 4 && !b.failed);
    llm__gr_words_free(&words);
}

/* ---- types ---- */

static llm__gr_frag view_integer(llm__js *js, const llm__js_view *v) { return llm__js_number(js, v, 1); }
static llm__gr_frag view_number(llm__js *js, const llm__js_view *v) { return llm__js_number(js, v, 0); }
static llm__gr_frag view_string(llm__js *js, const llm__js_view *v) { return llm__js_string(js, v); }
static llm__gr_frag view_array(llm__js *js, const llm__js_view *v) { return llm__js_array(js, v); }
static llm__gr_frag view_object(llm__js *js, const llm__js_view *v) { return llm__js_object(js, v); }
static llm__gr_frag view_rule(llm__js *js, const llm__js_view *v) { return llm__js_rule(js, v); }
static llm__gr_frag view_quoted(llm__js *js, const llm__js_view *v) { return (void)v, llm__js_quoted(js, llm__gr_word(js->b, "ab")); }
static llm__gr_frag view_marked(llm__js *js, const llm__js_view *v) {
    return (void)v, llm__gr_seq(js->b, llm__js_mark(js, "["), llm__js_mark(js, "]"));
}
static llm__gr_frag view_spaced(llm__js *js, const llm__js_view *v) {
    return (void)v, llm__gr_seq(js->b, llm__js_space(js), llm__gr_word(js->b, "x"));
}

/* Every number of hundredths from -3 to 3, with as few digits and with more, and bounds of hundredths, open and closed. */
static void view_decimals(uint64_t *seed) {
    char schema[120], text[16];
    int bound[2], open[2], wrong = 0;
    for (int i = 0; i < 2; i++) {
        *seed = *seed * 6364136223846793005u + 1;
        bound[i] = (int)((*seed >> 33) % 500) - 250, open[i] = (*seed >> 62) % 2;
        if ((*seed >> 60) % 4 == 0) bound[i] = bound[i] / 10 * 10;
    }
    if (bound[0] > bound[1]) return;
    snprintf(schema, sizeof schema, "{\"%s\":%g,\"%s\":%g}", open[0] ? "exclusiveMinimum" : "minimum", bound[0] / 100.0,
             open[1] ? "exclusiveMaximum" : "maximum", bound[1] / 100.0);
    view_work w;
    CHECK(view_open(&w, schema) == 1);
    llm_grammar *g = view_machine(&w, llm__js_number(&w.js, &w.v, 0));
    for (int x = -300; x <= 300 && g; x++)
        for (int places = x % 100 == 0 ? 0 : x % 10 == 0 ? 1 : 2; places <= 3; places++) {
            const int n = snprintf(text, sizeof text, "%.*f", places, x / 100.0);
            wrong += view_reads(g, text, (size_t)n) != (open[0] ? x > bound[0] : x >= bound[0]) * (open[1] ? x < bound[1] : x <= bound[1]);
        }
    if (!CHECK(!wrong)) printf("  %s: %d wrong\n", schema, wrong);
    view_close(&w);
}

/* Every whole number from -300 to 300 and bounds drawn at random, with and without multiples: counting says the same. */
static void view_numbers(void) {
    uint64_t seed = 9;
    for (int round = 0; round < 60; round++) {
        char schema[120], text[16];
        int bound[2], step = 1, wrong = 0;
        for (int i = 0; i < 2; i++) seed = seed * 6364136223846793005u + 1, bound[i] = (int)((seed >> 33) % 500) - 250;
        if (bound[0] > bound[1]) continue;
        if (round % 3 == 0) step = 2 + round % 7;
        snprintf(schema, sizeof schema, "{\"minimum\":%d,\"maximum\":%d,\"multipleOf\":%d}", bound[0], bound[1], step);
        view_work w;
        CHECK(view_open(&w, schema) == 1);
        llm_grammar *g = view_machine(&w, llm__js_number(&w.js, &w.v, 1));
        for (int x = -300; x <= 300 && g; x++) {
            const int n = snprintf(text, sizeof text, "%d", x);
            wrong += view_reads(g, text, (size_t)n) != (x >= bound[0] && x <= bound[1] && x % step == 0);
        }
        if (!CHECK(!wrong)) printf("  %s: %d wrong\n", schema, wrong);
        view_close(&w);
    }
    for (int round = 0; round < 40; round++) view_decimals(&seed);
    view_frag("{\"exclusiveMinimum\":0.5,\"maximum\":2}", view_number, "0.51|1|1.99|2|2.0|0.500001", "0.5|0|2.01|-1|01");
    view_frag("{}", view_number, "0|-1|1e5|1.5E-2", "|-|01|1.|1e");
    view_frag("{}", view_integer, "0|-1|123", "1.5|1e5|-0x|");
}

static void view_fragments(void) {
    view_frag("{\"minLength\":1,\"maxLength\":2}", view_string, "\"a\"|\"\xC3\xA4\\n\"", "\"\"|\"abc\"|a");
    view_frag("{\"items\":{\"type\":\"null\"},\"maxItems\":2}", view_array, "[]|[null]|[null, null]", "[null,]|[1]|[null, null, null]");
    view_frag("{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"required\":[\"b\"],\"additionalProperties\":false}", view_object,
              "{\"b\": 2}|{\"a\": 1, \"b\": 2}|{\"a\":1,\"b\":2}", "{}|{\"a\": 1}|{\"b\": 2, \"a\": 1}|{\"c\": 1}");
    view_frag("{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", view_rule, "[]|[[]]|[[],[[]]]", "[1]|[");
    view_frag("{}", view_quoted, "\"ab\"", "ab|\"a\"|\"abc\"");
    view_frag("{}", view_marked, "[]|[ ] |[ ]", "[|[  ]|]");
    view_frag("{}", view_spaced, "x| x", "  x|\nx");
}

/* All strings but some words and the empty one. */
static llm__gr_frag view_but(llm__js *js, const llm__js_view *v) {
    llm__gr_words words = LLM__ZERO;
    (void)v;
    llm_text_str(&words.all, "\"a\""), llm__gr_words_add(js->b, &words);
    llm_text_str(&words.all, "\"ab\""), llm__gr_words_add(js->b, &words);
    return llm__js_quoted(js, llm__js_other(js, &words));
}

/* What every member says of a property; the list of them in their order. */
static void view_properties(void) {
    view_work w;
    llm__js_view out;
    size_t n = 0;
    CHECK(
        view_open(
            &w,
            "{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"z\"],\"additionalProperties\":{\"type\":\"null\"},\"patternProperties\":{\"^x\":{\"minLength\":1}},"
            "\"allOf\":[{\"properties\":{\"b\":{\"type\":\"string\"}}}]}") == 1);
    CHECK(llm__js_property_view(&w.js, &w.v, llm__lit("a"), &out) && out.n == 1 && llm__js_find(&w.js, &out, 0, "type") >= 0);
    CHECK(llm__js_property_view(&w.js, &w.v, llm__lit("b"), &out) &&
          out.n == 2); /* its own schema, and the additional one of the other member */
    CHECK(llm__js_property_view(&w.js, &w.v, llm__lit("x1"), &out) && out.n == 1 && llm__js_find(&w.js, &out, 0, "minLength") >= 0);
    llm__js_property *list = llm__js_properties(&w.js, &w.v, &n);
    CHECK(n == 3 && llm__str_eq(list[0].key, "a") && !list[0].required && llm__str_eq(list[1].key, "b") && llm__str_eq(list[2].key, "z") &&
          list[2].required && !list[2].never);
    LLM_FREE(list);
    view_close(&w);
    CHECK(view_open(&w, "{\"properties\":{\"a\":true},\"allOf\":[{\"properties\":{\"b\":true},\"additionalProperties\":false}]}") == 1);
    CHECK(llm__js_property_view(&w.js, &w.v, llm__lit("b"), &out) && !llm__js_property_view(&w.js, &w.v, llm__lit("a"), &out) &&
          !llm__js_property_view(&w.js, &w.v, llm__lit("c"), &out));
    list = llm__js_properties(&w.js, &w.v, &n);
    CHECK(n == 2 && list[0].never && !list[1].never);
    LLM_FREE(list);
    view_close(&w);
}

/* What a compilation pays: a pattern of properties once, however many there are; a class the more, the more it takes to make. */
static void view_costs(void) {
    llm_text schema = LLM__ZERO;
    view_work w;
    llm__js_view out;
    size_t n = 0;
    llm_text_str(&schema, "{\"patternProperties\":{\"(?i)");
    for (int i = 0; i < 1000; i++) llm_text_str(&schema, "a");
    llm_text_str(&schema, "\":{}},\"properties\":{");
    for (int i = 0; i < 400; i++) llm_text_format(&schema, "%,'k%d':{}", i);
    llm_text_str(&schema, "}}");
    CHECK(view_open(&w, schema.data) == 1);
    int64_t before = w.fuel;
    LLM_FREE(llm__js_properties(&w.js, &w.v, &n));
    CHECK(n == 400 && before - w.fuel < 200000);
    CHECK(llm__js_property_view(&w.js, &w.v, llm__lit("x"), &out));
    static const struct {
        const char *pattern;
        int64_t least, most;
    } rows[] = {
        {"abc", 0, 200}, {"(?i)abc", 200, 400}, {"(?i)[abc]", 250, 1000}, {"\\p{Lu}", 6000, 10000}, {"(?i)[\\p{Lu}]", 50000, 1000000}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        before = w.fuel;
        llm__regex_close(llm__gr_regex_read(&w.b, llm__lit(rows[i].pattern), LLM__RX_UNICODE));
        if (!CHECK(before - w.fuel >= rows[i].least && before - w.fuel <= rows[i].most))
            printf("  %s: %lld\n", rows[i].pattern, (long long)(before - w.fuel));
    }
    view_close(&w);
    llm_text_free(&schema);
}

/* ---- other forms, straight from their text ---- */

static void view_others(void) {
    static const int32_t letters[2] = {'a', 'd'};
    view_work w;
    view_open(&w, "{\"structures\":[{\"begin\":\"<f>\",\"schema\":{\"type\":\"null\"},\"end\":\"</f>\"}],\"triggers\":[\"<f\"]}");
    llm_grammar *g = view_machine(&w, llm__gr_tags_frag(&w.b, w.doc, NULL));
    if (CHECK(g != NULL)) view_list(g, "|text < <g|a<f>null</f>b<f>null</f>", 1), view_list(g, "<f|a<f>1</f>|<f>null", 0);
    view_close(&w);
    view_open(&w, "{}");
    g = view_machine(&w, llm__gr_after(&w.b, "</t>", llm__gr_word(&w.b, "yes")));
    if (CHECK(g != NULL)) view_list(g, "</t>yes|a </t <</t>yes", 1), view_list(g, "yes|</t>|</t>no|</t>yesx", 0);
    view_close(&w);
    view_open(&w, "{}");
    g = view_machine(&w, llm__gr_bnf_frag(&w.b, llm__lit("root ::= \"a\" b*\nb ::= [0-9]")));
    if (CHECK(g != NULL)) view_list(g, "a|a1|a12", 1), view_list(g, "|b|1|ax", 0);
    view_close(&w);
    view_open(&w, "{}");
    g = view_machine(&w, llm__gr_seq(&w.b, llm__gr_json_set(&w.b, letters, 2), llm__gr_json_char(&w.b)));
    if (CHECK(g != NULL)) view_list(g, "ax|c\\n|b\\ud83d\\ude00|b\xC3\xA4", 1), view_list(g, "dx|a|a\"|a\\ud83d|a\n", 0);
    view_close(&w);
    view_open(&w, "{}");
    llm__regex *re = llm__gr_regex_read(&w.b, llm__lit("b[c-e]"), LLM__RX_NARROWEST);
    if (CHECK(re != NULL)) {
        g = view_machine(&w, llm__js_quoted(&w.js, llm__gr_program_frag(&w.b, re, 0, 0, LLM__GR_IN_JSON, 0, -1)));
        if (CHECK(g != NULL)) view_list(g, "\"bc\"|\"abez\"", 1), view_list(g, "\"b\"|\"ab\"|\"\"", 0); /* sought anywhere in the string */
        llm__regex_close(re);
    }
    view_close(&w);
    view_open(&w, "{}");
    CHECK(!llm__gr_regex_read(&w.b, llm__lit("(a"), LLM__RX_NARROWEST) && w.b.failed);
    view_close(&w);
}

/* A whole schema from a node of a document: references count from there. */
static void view_node(void) {
    view_work w;
    CHECK(view_open(&w, "{\"s\":{\"$defs\":{\"n\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/n\"}}") >= 0);
    w.b.failed = LLM_OK;
    llm_grammar *g = view_machine(&w, llm__js_frag(&w.b, w.doc, llm_json_find(w.doc, 0, "s"), NULL));
    if (CHECK(g != NULL)) view_list(g, "null", 1), view_list(g, "|1|nul", 0);
    view_close(&w);
}

TEST_GROUP(views) {
    view_members();
    view_types();
    view_values();
    view_trial();
    view_words();
    view_numbers();
    view_fragments();
    view_frag("{}", view_but, "\"b\"|\"abc\"|\"aa\"", "\"a\"|\"ab\"|\"\"");
    view_properties();
    view_costs();
    view_others();
    view_node();
}
