/* JSON Schema: what each keyword allows and forbids, by documents whose truth the standard gives; numbers by counting; what is refused. */
#include "reading.h"

/* Documents have '|' between them here, so none holds one. */
static void schema_test_types(void) {
    static const reading_row rows[] = {
        {"{\"type\": \"null\"}", "null", "|nul|0|\"null\""},
        {"{\"type\": [\"boolean\", \"null\"]}", "true|false|null", "1|\"true\""},
        {"true", "1|\"x\"|[]|{}|{\"a\": [1, null]}", "|x|{"},
        {"{\"type\": \"string\"}", "\"\"|\"a\\n\\u00e4\"|\"\xC3\xA4\"", "|\"|\"a|a|\"\\x\""},
        {"{\"type\": \"number\"}", "0|-1|1.5|1e5|-0.25E-3", "|-|01|1.|.5|+1|1e"},
        {"{\"const\": {\"k\": [1, null]}}", "{\"k\": [1, null]}|{\"k\":[1,null]}", "{\"k\": [1]}|{}"},
        {"{\"enum\": [\"x\", 1, true, [2]]}", "\"x\"|1|true|[2]", "\"y\"|2|false|[1]"},
        {"{\"enum\": [1, \"aa\", \"b\"], \"type\": \"string\", \"minLength\": 2}", "\"aa\"", "1|\"b\""},
        {"{\"not\": {\"type\": [\"string\", \"array\", \"object\", \"number\"]}}", "true|null", "1|\"x\""},
        {"{\"type\": \"string\", \"not\": {\"enum\": [\"a\", \"ab\"]}}", "\"b\"|\"abc\"|\"aa\"", "\"a\"|\"ab\""},
        {"{\"not\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"object\"}]}, \"type\": [\"string\", \"object\", \"null\"]}", "null",
         "\"a\"|{}"},
    };
    reading_rows(LLM_GRAMMAR_JSON_SCHEMA, rows, LLM__COUNT(rows));
}

static void schema_test_combined(void) {
    static const reading_row rows[] = {
        {"{\"$defs\": {\"id\": {\"type\": \"integer\", \"minimum\": 1}}, \"allOf\": [{\"$ref\": \"#/$defs/id\"}, {\"maximum\": 9}]}", "1|9",
         "0|10|\"1\""},
        {"{\"type\": \"array\", \"items\": {\"$ref\": \"#\"}}", "[]|[[]]|[[], [[]]]", "[1]|[[1]]|{}"},
        {"{\"anyOf\": [{\"type\": \"string\"}, {\"minimum\": 3, \"type\": \"integer\"}], \"maxLength\": 1, \"maximum\": 4}", "\"a\"|3|4",
         "\"ab\"|2|5"},
        {"{\"oneOf\": [{\"type\": \"string\"}, {\"type\": \"integer\"}]}", "\"x\"|5", "true|[]"},
        {"{\"oneOf\": [{\"properties\": {\"k\": {\"const\": \"a\"}, \"x\": {\"type\": \"integer\"}}, \"required\": [\"k\", \"x\"]}, {\"properties\": {\"k\": {\"const\": \"b\"}}, \"required\": [\"k\"]}],"
         " \"type\": \"object\"}",
         "{\"k\": \"a\", \"x\": 1}|{\"k\": \"b\"}", "{\"k\": \"a\"}|{\"k\": \"c\"}|{}"},
        {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"boolean\"}, \"b\": {\"type\": \"integer\"}}, \"required\": [\"a\"], \"if\": {\"properties\": {\"a\": {\"const\": true}}},"
         " \"then\": {\"required\": [\"b\"]}}",
         "{\"a\": true, \"b\": 1}|{\"a\": false}|{\"a\": false, \"b\": 2}", "{\"a\": true}|{}"},
        {"{\"definitions\": {\"a/b\": {\"type\": \"null\"}, \"c~d\": {\"type\": \"boolean\"}}, \"anyOf\": [{\"$ref\": \"#/definitions/a~1b\"}, {\"$ref\": \"#/definitions/c~0d\"}]}",
         "null|true", "1"},
        {"{\"allOf\": [{\"minLength\": 1}, {\"maxLength\": 2}, {\"type\": \"string\"}]}", "\"a\"|\"ab\"", "\"\"|\"abc\""},
    };
    reading_rows(LLM_GRAMMAR_JSON_SCHEMA, rows, LLM__COUNT(rows));
}

static void schema_test_strings(void) {
    static const reading_row rows[] = {
        {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}", "\"ab\"|\"abc\"|\"\xC3\xA4\\n\"|\"\\ud83d\\ude00x\"",
         "\"\"|\"a\"|\"abcd\"|\"\\ud83d\\ude00\""},
        {"{\"pattern\": \"^a+b?$\"}", "\"a\"|\"aab\"", "\"\"|\"b\"|\"abb\"|\"xa\""},
        {"{\"pattern\": \"bc\", \"type\": \"string\", \"maxLength\": 3}", "\"bc\"|\"abc\"|\"bcd\"", "\"b\"|\"abcd\""},
        {"{\"allOf\": [{\"pattern\": \"^a\"}, {\"pattern\": \"z$\"}], \"type\": \"string\", \"minLength\": 2}", "\"az\"|\"abz\"",
         "\"a\"|\"bz\"|\"ab\"|\"za\""},
        {"{\"type\": \"string\", \"format\": \"date\"}", "\"2024-02-28\"|\"1999-12-31\"",
         "\"2024-13-01\"|\"2024-1-1\"|\"x\"|\"2024-00-10\""},
        {"{\"type\": \"string\", \"format\": \"time\"}", "\"23:59:59Z\"|\"00:00:00.5+01:00\"", "\"24:00:00Z\"|\"1:00:00Z\""},
        {"{\"type\": \"string\", \"format\": \"date-time\"}", "\"2024-02-28T12:00:00Z\"", "\"2024-02-28\"|\"2024-02-28 12:00\""},
        {"{\"type\": \"string\", \"format\": \"ipv4\"}", "\"127.0.0.1\"|\"255.255.255.255\"", "\"256.0.0.1\"|\"1.2.3\"|\"01.2.3.4\""},
        {"{\"type\": \"string\", \"format\": \"ipv6\"}", "\"2001:db8:0:0:0:0:0:1\"", "\"1\"|\"12345::\"|\":::\""},
        {"{\"type\": \"string\", \"format\": \"uuid\"}", "\"123e4567-e89b-12d3-a456-426614174000\"", "\"123e4567\""},
        {"{\"type\": \"string\", \"format\": \"email\"}", "\"a@b.org\"", "\"a\"|\"@b\""},
        {"{\"type\": \"string\", \"format\": \"hostname\"}", "\"a.example\"|\"x-1\"", "\"-a\"|\"a..b\""},
    };
    reading_rows(LLM_GRAMMAR_JSON_SCHEMA, rows, LLM__COUNT(rows));
}

static void schema_test_arrays(void) {
    static const reading_row rows[] = {
        {"{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"minItems\": 1, \"maxItems\": 2}", "[1]|[1, 2]|[1,2]",
         "[]|[1, 2, 3]|[\"a\"]|[1,]"},
        {"{\"prefixItems\": [{\"type\": \"boolean\"}, {\"type\": \"null\"}], \"items\": {\"type\": \"integer\"}, \"minItems\": 1}",
         "[true]|[true, null]|[true, null, 1, 2]", "[]|[1]|[true, 1]|[true, null, null]"},
        {"{\"prefixItems\": [{\"type\": \"boolean\"}], \"items\": false}", "[]|[true]", "[true, true]"},
        {"{\"items\": [{\"type\": \"boolean\"}], \"additionalItems\": {\"type\": \"null\"}}", "[]|[false]|[false, null]",
         "[null]|[true, 1]"},
        {"{\"type\": \"array\", \"items\": {\"enum\": [1, 2, 3]}, \"uniqueItems\": true}", "[]|[1]|[2, 1]|[1, 2, 3]",
         "[1, 1]|[1, 2, 1]|[4]"},
        {"{\"type\": \"array\", \"items\": {\"type\": \"boolean\"}, \"uniqueItems\": true, \"minItems\": 2}", "[true, false]|[false, true]",
         "[true]|[true, true]"},
        {"{\"type\": \"array\", \"contains\": {\"const\": 7}, \"items\": {\"type\": \"integer\"}}", "[7]|[1, 7]|[7, 1]", "[]|[1]|[1, 2]"},
        {"{\"type\": \"array\", \"contains\": {\"const\": 7}, \"items\": {\"enum\": [7, 8]}, \"minContains\": 2, \"maxContains\": 2, \"maxItems\": 3}",
         "[7, 7]|[8, 7, 7]|[7, 8, 7]", "[7]|[7, 7, 7]|[8, 8]|[7, 7, 8, 8]"},
    };
    reading_rows(LLM_GRAMMAR_JSON_SCHEMA, rows, LLM__COUNT(rows));
}

static void schema_test_objects(void) {
    static const reading_row rows[] = {
        {"{\"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": \"null\"}}, \"required\": [\"b\"]}",
         "{\"b\": null}|{\"a\": 1, \"b\": null}|{\"a\":1,\"b\":null}", "{}|{\"a\": 1}|{\"a\": null, \"b\": null}|{\"b\": null,}"},
        {"{\"properties\": {\"a\": {\"type\": \"integer\"}}, \"additionalProperties\": {\"type\": \"null\"}}",
         "{}|{\"a\": 1}|{\"x\": null}|{\"a\": 1, \"x\": null, \"yy\": null}", "{\"x\": 1}|{\"a\": null}"},
        {"{\"properties\": {\"a\": true}, \"additionalProperties\": false, \"type\": \"object\"}", "{}|{\"a\": [1]}", "{\"b\": 1}"},
        {"{\"type\": \"object\", \"patternProperties\": {\"^x\": {\"type\": \"integer\"}}, \"additionalProperties\": false}",
         "{}|{\"x\": 1}|{\"x1\": 1, \"xx\": 2}", "{\"y\": 1}|{\"x\": null}"},
        {"{\"type\": \"object\", \"propertyNames\": {\"enum\": [\"p\", \"q\"]}, \"additionalProperties\": {\"type\": \"integer\"}}",
         "{}|{\"p\": 1}|{\"q\": 2}", "{\"r\": 1}"},
        {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": \"integer\"}, \"c\": {\"type\": \"integer\"}}, \"minProperties\": 1, \"maxProperties\": 2}",
         "{\"a\": 1}|{\"c\": 1}|{\"a\": 1, \"c\": 2}", "{}|{\"a\": 1, \"b\": 2, \"c\": 3}"},
        {"{\"properties\": {\"\": {\"type\": \"integer\"}}, \"additionalProperties\": {\"type\": \"null\"}}",
         "{\"\": 1}|{\"a\": null}|{\"\": 1, \"a\": null}", "{\"\": null}|{\"a\": 1}"},
        {"{\"properties\": {\"a\": {\"type\": \"integer\"}}, \"additionalProperties\": {\"type\": \"null\"}, \"not\": {\"required\": [\"\"]}}",
         "{\"b\": null}|{\"a\": 1}", "{\"b\": 1}"},
        {"{\"type\": \"object\", \"required\": [\"z\"]}", "{\"z\": 1}|{\"z\": {}}", "{}|{\"y\": 1}"},
        {"{\"allOf\": [{\"properties\": {\"a\": {\"type\": \"integer\"}}}, {\"properties\": {\"b\": {\"type\": \"null\"}}}], \"unevaluatedProperties\": false, \"type\": \"object\"}",
         "{}|{\"a\": 1}|{\"a\": 1, \"b\": null}", "{\"c\": 1}|{\"a\": null}"},
        {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": \"integer\"}}, \"not\": {\"required\": [\"a\"]}}",
         "{}|{\"b\": 1}", "{\"a\": 1}|{\"a\": 1, \"b\": 2}"},
    };
    reading_rows(LLM_GRAMMAR_JSON_SCHEMA, rows, LLM__COUNT(rows));
}

/* Every whole number near two bounds, against the comparison of integers; multiples too. */
static void schema_test_integers(void) {
    static const struct {
        int low, high, multiple;
    } rows[] = {{17, 235, 1},  {-9, 9, 1},   {-130, -7, 1}, {0, 0, 1},      {99, 101, 1},
                {-12, 205, 7}, {1, 300, 25}, {-60, 60, 12}, {1000, 1010, 1}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        char schema[160], number[16];
        int wrong = 0;
        snprintf(schema, sizeof schema, "{\"type\": \"integer\", \"minimum\": %d, \"exclusiveMaximum\": %d, \"multipleOf\": %d}",
                 rows[i].low, rows[i].high + 1, rows[i].multiple);
        llm_grammar *g = reading_open(NULL, LLM_GRAMMAR_JSON_SCHEMA, schema, NULL);
        if (!CHECK(g != NULL)) continue;
        for (int x = -1100; x <= 1100; x++) {
            snprintf(number, sizeof number, "%d", x);
            wrong += reading_whole(g, number, strlen(number)) != (x >= rows[i].low && x <= rows[i].high && x % rows[i].multiple == 0);
        }
        if (!CHECK(!wrong)) printf("  %s: %d wrong\n", schema, wrong);
        llm_grammar_close(g);
    }
}

/* Every number of two places behind the point, in hundredths. */
static void schema_test_decimals(void) {
    static const struct {
        const char *schema;
        int low, high, step;
    } rows[] = {{"{\"type\": \"number\", \"minimum\": -1.25, \"maximum\": 3.5}", -125, 350, 1},
                {"{\"type\": \"number\", \"exclusiveMinimum\": 0.25, \"maximum\": 12}", 26, 1200, 1},
                {"{\"type\": \"number\", \"minimum\": 1e1, \"exclusiveMaximum\": 15.5}", 1000, 1549, 1},
                {"{\"type\": \"number\", \"multipleOf\": 0.25, \"minimum\": 0, \"maximum\": 2}", 0, 200, 25},
                {"{\"type\": \"number\", \"minimum\": -0.5, \"maximum\": -0.01}", -50, -1, 1}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        char number[24];
        int wrong = 0;
        llm_grammar *g = reading_open(NULL, LLM_GRAMMAR_JSON_SCHEMA, rows[i].schema, NULL);
        if (!CHECK(g != NULL)) continue;
        for (int x = -400; x <= 1700; x++) {
            const int whole = (x < 0 ? -x : x) / 100, part = (x < 0 ? -x : x) % 100;
            snprintf(number, sizeof number, "%s%d.%02d", x < 0 ? "-" : "", whole, part);
            wrong += reading_whole(g, number, strlen(number)) != (x >= rows[i].low && x <= rows[i].high && x % rows[i].step == 0);
        }
        if (!CHECK(!wrong)) printf("  %s: %d wrong\n", rows[i].schema, wrong);
        llm_grammar_close(g);
    }
}

/* What may stand between tokens: one space by default, or what a regex says. */
static void schema_test_space(void) {
    llm_grammar *one = reading_open(NULL, LLM_GRAMMAR_JSON_SCHEMA, "{\"type\": \"array\"}", NULL),
                *none = reading_open(NULL, LLM_GRAMMAR_JSON_SCHEMA, "{\"type\": \"array\"}", ""),
                *lines = reading_open(NULL, LLM_GRAMMAR_JSON_OBJECT, "", "[ \\n]{0,3}");
    CHECK(one && reading_whole(one, "[1, 2]", 6) && reading_whole(one, "[ 1,2 ]", 7) && !reading_whole(one, "[1,  2]", 7));
    CHECK(none && reading_whole(none, "[1,2]", 5) && !reading_whole(none, "[1, 2]", 6));
    CHECK(lines && reading_whole(lines, "{\n  \"a\": 1\n}", 12) && !reading_whole(lines, "{\n    \"a\": 1}", 13) &&
          !reading_whole(lines, "[]", 2));
    llm_grammar_close(one);
    llm_grammar_close(none);
    llm_grammar_close(lines);
}

static void schema_test_refused(void) {
    static const reading_refusal rows[] = {
        {"{\"type\": \"text\"}", "string, number, integer, boolean, null, array or object expected"},
        {"{\"minLength\": -1, \"type\": \"string\"}", "a whole number, at least 0, expected"},
        {"{\"properties\": {\"a/~b\": {\"$ref\": \"#/no\"}}}", "#/properties/a~1~0b/$ref"},
        {"{\"$ref\": \"http://x/y\"}", "a reference into this document"},
        {"{\"$ref\": \"#\"}", "leads back to itself"},
        {"{\"allOf\": {}}", "a list expected"},
        {"{\"anyOf\": []}", "list of schemas"},
        {"{\"enum\": 1}", "a list expected"},
        {"{\"type\": \"array\", \"dependentSchemas\": {}}", "cannot be enforced"},
        {"5", "a schema (an object, true or false) expected"},
        {"{\"type\": \"integer\", \"minimum\": \"x\"}", "a number expected"},
        {"{\"type\": \"number\", \"minimum\": 0.01e-99999999999999999999}", "a bound of at most 40 digits"},
        {"{\"type\": \"integer\", \"multipleOf\": 0}", "a number above 0 expected"},
        {"{\"type\": \"string\", \"pattern\": 1}", "a string expected"},
        {"{\"type\": \"string\", \"pattern\": \"(\"}", "pattern"},
        {"{\"required\": [1]}", "names (strings) expected"},
        {"{\"type\": \"string\", \"format\": \"never-heard-of\"}", "format"},
        {"{\"type\": \"array\", \"uniqueItems\": true}", "uniqueItems"},
        {"false", "no text can ever complete it"},
        {"{\"type\": \"string\", \"minLength\": 3, \"maxLength\": 2}", "no text can ever complete it"},
        {"{\"allOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}", "no text can ever complete it"},
        {"{\"type\": \"array\", \"contains\": {\"const\": 1}, \"allOf\": [{\"contains\": {\"const\": 2}}]}", "a second one"},
        {"{\"patternProperties\": {\"a\": {}, \"b\": {}}}", "only one pattern"},
    };
    reading_refused(LLM_GRAMMAR_JSON_SCHEMA, rows, LLM__COUNT(rows));
}

/* The answer of a model that opens a value wherever it may, and else takes the earliest of `order` that is allowed. Returns its length; 0:
 * there is no way on, or no end within `room` bytes. *deep: how deep its brackets nest. */
static size_t schema_deepest(llm_grammar *g, char *text, size_t room, int *deep) {
    static const char order[] = "[{\"]}:n1,ulvextfalsrcdhi";
    llm_matcher *m = llm_matcher_open(g);
    size_t n = 0;
    int depth = 0, quoted = 0;
    *deep = 0;
    while (n < room && !(n && !depth && llm_matcher_can_end(m))) {
        const char *at = order + (quoted ? 2 : 0); /* a text ends at once */
        while (*at && llm_matcher_bytes(m, at, 1)) at++;
        if (!*at) {
            printf("  no way on behind %.*s\n", (int)n, text);
            n = room;
            break;
        }
        quoted ^= *at == '"';
        depth += (*at == '[' || *at == '{') - (*at == ']' || *at == '}');
        *deep = LLM__MAX(*deep, depth);
        text[n++] = *at;
    }
    llm_matcher_close(m);
    return n < room ? n : 0;
}

/* Schemas that refer to themselves come to an end, whoever answers: 32 levels, and each text is whole. What a schema spells out by itself
 * may be deeper. */
static void schema_test_levels(void) {
    static const struct {
        llm_grammar_kind kind;
        const char *schema;
    } rows[] = {
        {LLM_GRAMMAR_JSON_SCHEMA, "{\"type\": \"array\", \"items\": {\"$ref\": \"#\"}}"},
        {
            LLM_GRAMMAR_JSON_SCHEMA,
            "{\"type\": \"object\", \"properties\": {\"v\": {\"type\": \"null\"}, \"next\": {\"anyOf\": [{\"$ref\": \"#\"}, {\"type\": \"null\"}]}}, "
            "\"required\": [\"v\", \"next\"], \"additionalProperties\": false}",
        },
        {
            LLM_GRAMMAR_JSON_SCHEMA,
            "{\"$defs\": {\"n\": {\"type\": \"object\", \"properties\": {\"c\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/n\"}}}, \"required\": [\"c\"], "
            "\"additionalProperties\": false}}, \"$ref\": \"#/$defs/n\"}",
        },
        {LLM_GRAMMAR_JSON_SCHEMA, "true"},
        {LLM_GRAMMAR_JSON_OBJECT, ""},
    };
    static char text[1 << 16], nested[1 << 14];
    int deep;
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_grammar *g = reading_open(NULL, rows[i].kind, rows[i].schema, "");
        size_t n = g ? schema_deepest(g, text, sizeof text, &deep) : 0;
        if (!CHECK(n && deep >= 31 && deep <= 32 && reading_whole(g, text, n))) /* the null behind the last object is a level too */
            printf("  %s\n  %.*s: %d deep\n", rows[i].schema, (int)LLM__MIN(n, 2000), text, deep);
        llm_grammar_close(g);
    }
    for (int depth = 1; depth <= 60; depth += 59) { /* 60 lists in lists that are spelled out */
        size_t at = 0;
        for (int i = 0; i < depth; i++)
            at += (size_t)sprintf(nested + at, "{\"type\": \"array\", \"minItems\": 1, \"maxItems\": 1, \"items\": ");
        at += (size_t)sprintf(nested + at, "{\"const\": 1}");
        for (int i = 0; i < depth; i++) nested[at++] = '}';
        nested[at] = 0;
        llm_grammar *g = reading_open(NULL, LLM_GRAMMAR_JSON_SCHEMA, nested, "");
        size_t n = g ? schema_deepest(g, text, sizeof text, &deep) : 0;
        CHECK(n == 2 * (size_t)depth + 1 && deep == depth);
        llm_grammar_close(g);
    }
}

TEST_GROUP(schema) {
    schema_test_levels();
    schema_test_types();
    schema_test_combined();
    schema_test_strings();
    schema_test_arrays();
    schema_test_objects();
    schema_test_integers();
    schema_test_decimals();
    schema_test_space();
    schema_test_refused();
}
