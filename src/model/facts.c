#include "model/facts.h"
#include "api/config.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "model/gguf.h"

/* ---- Facts: one way to ask config.json and GGUF metadata ----
 * The same fact has one name in GGUF and several in config.json, where every publisher had his own. So a question
 * lists them all in one string, "hidden_size n_embd .embedding_length": words with a dot are GGUF keys (without the
 * architecture that they begin with), the others are spellings of config.json, most usual first. It also says what is
 * believed when nothing is there, and which range makes sense. Nobody checks a value twice: what a question lets
 * through is safe to compute with.
 *   a->n_heads = llm__fact_int(f, "num_attention_heads n_head .attention.head_count", LLM__MUST, 1, 4096);
 * reads: it must be there, as a whole number from 1 to 4096; else the model is refused by the name that its file uses. */

LLM__PRIVATE int llm__word_in(const char *words, const char *word) { return llm__word_index(words, llm__lit(word)) >= 0; }

LLM__PRIVATE llm__fact llm__facts_find(const llm__facts *f, const char *keys) {
    llm__fact found = {"", -1, NULL};
    char full[128];
    llm__str key;
    while (found.node < 0 && !found.kv && llm__list_next(&keys, " ", &key)) {
        if ((key.p[0] == '.') != !f->json) continue;
        snprintf(full, sizeof full, "%s%.*s", f->json ? "" : f->arch, (int)key.n, key.p);
        for (int i = 0; f->json && i < f->n_nodes && found.node < 0; i++) {
            int node = llm_json_find(f->json, f->node[i], full);
            if (llm_json_type_of(f->json, node) > LLM_JSON_NULL) found.node = node;
        }
        if (f->gguf) found.kv = llm__gguf_find(f->gguf, full);
        if (!found.key[0] || found.node >= 0 || found.kv) memcpy(found.key, full, sizeof full);
    }
    return found;
}

LLM__PRIVATE void llm__facts_bad(llm__facts *f, const llm__fact *fact, const char *what) {
    if (!f->r) f->r = llm__error(LLM_ERR_FORMAT, "%s: %s%s: %s", f->path, f->json ? "config.json: " : "", fact->key, what);
}

/* The number that the family's code has for one of the keys; NaN: none. A null is no silence: it means none there. */
static double llm__fact_default(const llm__facts *f, const char *keys) {
    llm__str key, value;
    char name[64];
    double v = (double)NAN;
    for (const char *words = f->defaults; words && llm__list_next(&words, " ", &key) && llm__list_next(&words, " ", &value);) {
        int said = 0;
        snprintf(name, sizeof name, "%.*s", (int)key.n, key.p);
        for (int i = 0; i < f->n_nodes; i++) said |= llm_json_find(f->json, f->node[i], name) >= 0;
        if (!said && llm__word_index(keys, key) >= 0 && llm__parse_double(value.p, value.n, &v)) return v;
    }
    return (double)NAN;
}

/* The number of the first key that is there, between lo and hi; `whole`: an integer; item: which of a list of them, -1: it must be none.
 * NaN: absent, or refused. */
static double llm__fact_any(llm__facts *f, const char *keys, int item, double lo, double hi, int whole) {
    char what[160];
    double v = 0, other = 0;
    int64_t i = 0;
    int ok = whole ? 2 : 1;
    llm__fact fact = llm__facts_find(f, keys);
    if (item >= 0 && llm_json_type_of(f->json, fact.node) == LLM_JSON_ARRAY) {
        fact.node = llm_json_first(f->json, fact.node);
        for (; item > 0 && fact.node >= 0; item--) fact.node = llm_json_next(f->json, fact.node);
    }
    if (f->r || (fact.node < 0 && !fact.kv)) return f->r ? (double)NAN : llm__fact_default(f, keys);
    if (fact.kv) ok = llm__gguf_num_at(fact.kv, 0, &v) >= ok;
    else if (!whole) ok = llm_json_num(f->json, fact.node, &v);
    else ok = llm_json_int(f->json, fact.node, &i), v = (double)i;
    ok = ok && (!fact.kv || fact.kv->count <= LLM__MAX_LAYERS);
    for (uint64_t k = 1; ok && fact.kv && k < fact.kv->count; k++) /* one value a layer: all must be equal */
        ok = llm__gguf_num_at(fact.kv, k, &other) && other == v;
    if (ok && v >= lo && v <= hi) return v;
    if (ok) snprintf(what, sizeof what, "%.17g is outside %.9g to %.9g", v, lo, hi);
    else snprintf(what, sizeof what, "%s expected", whole ? "a whole number" : "a number");
    for (char *p = what; *p; p++)
        if (*p == ',') *p = '.'; /* whatever the host program's locale prints */
    llm__facts_bad(f, &fact, what);
    return (double)NAN;
}

LLM__PRIVATE int32_t llm__fact_int(llm__facts *f, const char *keys, int64_t fallback, int64_t lo, int64_t hi) {
    return llm__fact_item(f, keys, -1, fallback, lo, hi);
}

LLM__PRIVATE int32_t llm__fact_item(llm__facts *f, const char *keys, int i, int64_t fallback, int64_t lo, int64_t hi) {
    double v = llm__fact_any(f, keys, i, (double)lo, (double)hi, 1);
    if (v == v) return (int32_t)v;
    if (fallback != LLM__MUST) return (int32_t)fallback;
    llm__fact absent = llm__facts_find(f, keys);
    llm__facts_bad(f, &absent, "missing");
    return (int32_t)lo;
}

LLM__PRIVATE int32_t llm__fact_layer(llm__facts *f, const char *keys, int layer, int64_t fallback, int64_t lo, int64_t hi) {
    const llm__fact fact = llm__facts_find(f, keys);
    double v = 0;
    if (!fact.kv || !fact.kv->is_array) return llm__fact_int(f, keys, fallback, lo, hi);
    const int there = (uint64_t)layer < fact.kv->count && llm__gguf_num_at(fact.kv, (uint64_t)layer, &v) > 1;
    if (there && v >= (double)lo && v <= (double)hi) return (int32_t)v;
    llm__facts_bad(f, &fact, there ? "a whole number is out of range" : "a whole number for each layer expected");
    return (int32_t)lo;
}

LLM__PRIVATE int32_t llm__fact_most(llm__facts *f, const char *keys, int64_t fallback, int64_t lo, int64_t hi) {
    const llm__fact fact = llm__facts_find(f, keys);
    double v = 0, most = (double)lo;
    if (!fact.kv || !fact.kv->is_array) return llm__fact_int(f, keys, fallback, lo, hi);
    for (uint64_t i = 0; i < fact.kv->count && !f->r; i++) {
        if (llm__gguf_num_at(fact.kv, i, &v) > 1 && v >= 0 && v <= (double)hi) most = LLM__MAX(most, v);
        else llm__facts_bad(f, &fact, "a whole number for each layer, each in range, expected");
    }
    return (int32_t)most;
}

LLM__PRIVATE double llm__fact_num(llm__facts *f, const char *keys, double fallback, double lo, double hi) {
    double v = llm__fact_any(f, keys, -1, lo, hi, 0);
    return v == v ? v : fallback;
}

LLM__PRIVATE int llm__fact_bool(llm__facts *f, const char *keys, int fallback) {
    llm__fact fact = llm__facts_find(f, keys);
    int64_t i;
    if (fact.kv && fact.kv->type == LLM__GGUF_BOOL && !fact.kv->is_array) return fact.kv->data[0];
    if (llm_json_int(f->json, fact.node, &i)) return i != 0;
    if (!llm_json_bool(f->json, fact.node, &fallback) && (fact.node >= 0 || fact.kv)) llm__facts_bad(f, &fact, "true or false expected");
    return fallback;
}

LLM__PRIVATE const char *llm__fact_str(llm__facts *f, const char *keys, char out[64]) {
    llm__fact fact = llm__facts_find(f, keys);
    llm__str s = llm__gguf_text(fact.kv);
    out[0] = 0;
    if (fact.node >= 0) s.p = llm_json_str(f->json, fact.node, &s.n);
    if (s.p && s.n < 64) snprintf(out, 64, "%.*s", (int)s.n, s.p);
    else if (fact.node >= 0 || fact.kv) llm__facts_bad(f, &fact, "a short text expected");
    return out;
}

LLM__PRIVATE int llm__fact_list(const llm__facts *f, const char *key) { return llm_json_first(f->json, llm__facts_find(f, key).node); }

LLM__PRIVATE llm__facts llm__facts_in(const llm__facts *f, int object) {
    llm__facts in = *f;
    /* there is always room: the root, text_config, and one more */
    if (llm_json_type_of(f->json, object) != LLM_JSON_OBJECT) return in;
    for (int i = in.n_nodes++; i > 0; i--) in.node[i] = in.node[i - 1];
    in.node[0] = object;
    return in;
}
