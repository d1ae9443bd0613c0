/* Schemas of bodies: every name that has an effect in a kind of call stands in its schema once, and none that has not; what a function reads has
 * a schema written by hand. */
#include "../test.h"
#include "base/json.h"
#include "serve/ollama.h"

/* The properties of a kind's schema; *doc is to be freed. -1: it is no schema. */
static int schema_of(int kind, llm_json **doc) {
    static const llm_json_limits once = {64, 1 << 20, 1};
    llm_text t = {0};
    llm_openai_schema((llm_openai_kind)kind, &t);
    const llm_result r = llm_json_parse(t.data, t.len, &once, doc);
    if (r) printf("  %d: %s\n%s\n", kind, llm_last_error(), t.data);
    llm_text_free(&t);
    return r ? -1 : llm_json_find(*doc, 0, "properties");
}

static void schema_openai(int kind) {
    llm_json *d = NULL;
    int wanted = 0;
    const int properties = schema_of(kind, &d);
    const llm_options fields = {llm__oai_fields, LLM__COUNT(llm__oai_fields), NULL, NULL, NULL, NULL, {NULL, 0}, NULL};
    if (!CHECK(properties >= 0)) return;
    for (int i = 0; i < LLM__COUNT(llm__oai_fields); i++) {
        const llm_option *p = &llm__oai_fields[i];
        llm__str w;
        for (const char *names = p->names; llm__list_next(&names, "|", &w);) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)w.n, w.p);
            for (char *c = name; *c; c++) *c = (char)(*c == '-' ? '_' : *c);
            if (*w.p == '-' || !strcmp(name, "s") || llm_options_find(&fields, w.p, w.n) != p) continue;
            const int v = llm_json_find(d, properties, name), has = p->group >= 0 && p->group & 1 << kind;
            wanted += has && !strchr(w.p, '-');
            if (!CHECK((v >= 0) == !!has)) printf("  %d: %s\n", kind, name);
            if (v >= 0 && !CHECK(llm_json_size(d, v) > 0)) printf("  %d: nothing is said of %s\n", kind, name);
        }
    }
    CHECK(llm_json_size(d, properties) >= wanted && wanted > 0);
    llm_json_free(d);
}

static void schema_ollama(int kind) {
    llm_json *d = NULL;
    const int properties = schema_of(kind, &d), options = llm_json_find(d, llm_json_find(d, properties, "options"), "properties");
    if (!CHECK(properties >= 0)) return;
    for (int inner = 0; inner < 2; inner++) {
        const char *names;
        for (int i = 0; (names = llm__ollama_names((llm_openai_kind)kind, inner, i)) != NULL; i++) {
            llm__str w;
            while (llm__list_next(&names, "|", &w)) {
                const int v = llm__json_member(d, inner ? options : properties, w);
                if (!CHECK(v >= 0 && llm_json_size(d, v) > 0)) printf("  %d: %.*s\n", kind, (int)w.n, w.p);
            }
        }
    }
    llm_json_free(d);
}

TEST_GROUP(openai_schema) {
    llm_json *d = NULL;
    for (int kind = LLM_OPENAI_CHAT; kind <= LLM_OPENAI_CONTEXT_LOAD; kind++) schema_openai(kind);
    for (int kind = LLM_OPENAI_OLLAMA_SHOW; kind <= LLM_OPENAI_OLLAMA_EMBEDDINGS; kind++) schema_ollama(kind);
    const int properties = schema_of(LLM_OPENAI_CHAT, &d), top_k = llm_json_find(d, properties, "top_k"),
              n = llm_json_find(d, properties, "n");
    double low = 0, high = 0;
    CHECK(llm_json_num(d, llm_json_find(d, top_k, "minimum"), &low) && low == -1 &&
          llm_json_num(d, llm_json_find(d, n, "maximum"), &high) && high == 128 && llm_json_find(d, properties, "echo") < 0);
    llm_json_free(d);
}
