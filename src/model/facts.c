/* ============================================================================
 * >>model   From a family's configuration to its forward pass.
 * ============================================================================
 * Some fifty families, one forward pass. What sets a family apart is data, read in four steps, each of which knows
 * nothing of the next:
 *   facts    one way to ask config.json (in all its spellings) and GGUF metadata for a value within a range
 *   arch     shapes and switches: the family's row in a table, corrected by the facts
 *   loader   weights: a table of every name a weight goes by; fused, transposed or interleaved ones become segments of rows
 *   pass     one step: a straight list of operations of the backend's table, once a rank
 * The loader runs twice: without a backend when a model is opened, which only checks, so a file that lacks a tensor
 * or has a wrong shape is refused by name before anything is allocated; and with one when an engine is opened. The
 * same tensor has other contents in the two formats: converters to GGUF permute the rows of q and k of some families,
 * which turns RoPE's half-split pairs into neighbours, and add the one to norms that are stored without it. The table
 * of families says which. What the config says wins over the family's habit; a bias that it does not ask for is used
 * if the file has one.
 *
 * A model is read-only once it is open and may be shared by threads. A net (weights and buffers on a backend) belongs
 * to one engine, whose stepping thread alone calls llm__net_step.
 *
 * From file to logits, by the functions to read:
 *   llm_model_open     llm__source_open (>>formats), llm__arch_read, llm__net_check
 *   llm__net_open      llm__load_rank for each rank, llm__net_buffers; the backend packs
 *   llm__net_step      llm__forward for each rank, once a step: all the rows of all sequences together
 * Refused by name rather than run wrongly: families that are not in the table, and variants of families that are
 * (Baichuan 2, clamped q and k, norms after the residual, quantisations other than GGUF's, MXFP4 and plain fp8). Ignored
 * on purpose: layers beyond the last (multi-token prediction), stored inv_freq and attention masks, towers for images.
 *
 * Sources: the modeling_*.py of transformers for folders, llama.cpp's conversion and graph code for GGUF, and the papers
 * named below. */
/* ---- Facts: one way to ask config.json and GGUF metadata ----
 * The same fact has one name in GGUF and several in config.json, where every publisher had his own. So a question
 * lists them all in one string, "hidden_size n_embd .embedding_length": words with a dot are GGUF keys (without the
 * architecture that they begin with), the others are spellings of config.json, most usual first. It also says what is
 * believed when nothing is there, and which range makes sense. Nobody checks a value twice: what a question lets
 * through is safe to compute with.
 *   a->n_heads = llm__fact_int(f, "num_attention_heads n_head .attention.head_count", LLM__MUST, 1, 4096);
 * reads: it must be there, as a whole number from 1 to 4096; else the model is refused by the name that its file uses. */

#define LLM__MUST INT64_MIN /* as the fallback of a whole number: it must be there */
enum { LLM__MAX_LAYERS = 512 };

/* Where values are looked up. After the first failure everything reads as its fallback; `r` keeps the error. */
typedef struct llm__facts {
    const llm_json *json;   /* config.json; NULL: then gguf */
    int node[3], n_nodes;   /* objects to look in, in this order: a RoPE object, text_config, the root */
    const llm__gguf *gguf;
    char arch[64];          /* general.architecture */
    const char *path;       /* of the model, for messages */
    llm_result r;
} llm__facts;

/* What was found: a node of config.json or a key of GGUF; neither if it is absent. */
typedef struct llm__fact {
    char key[128];          /* as the file spells it, or as it usually would */
    int node;               /* -1: none */
    const llm__gguf_kv *kv; /* NULL: none */
} llm__fact;

/* 1 if `word` is one of `words`. */
static int llm__word_in(const char *words, const char *word) { return llm__word_index(words, llm__lit(word)) >= 0; }

/* The value of the first key that is there and not null. The order of the words decides, then that of the objects: a
 * RoPE object's rope_theta is found before the root's. */
static llm__fact llm__facts_find(const llm__facts *f, const char *keys) {
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

/* Remembers the first value that is wrong: its key, and what is wrong with it. So a reader of facts can ask for all
 * that it needs and look at f->r once, at the end: what it gets in between is in range, wrong or not. */
static void llm__facts_bad(llm__facts *f, const llm__fact *fact, const char *what) {
    if (!f->r) f->r = llm__error(LLM_ERR_FORMAT, "%s: %s%s: %s", f->path, f->json ? "config.json: " : "", fact->key, what);
}

/* The number of the first key that is there, between lo and hi; `whole`: an integer. NaN: absent, or refused. */
static double llm__fact_any(llm__facts *f, const char *keys, double lo, double hi, int whole) {
    char what[160];
    double v = 0, other = 0;
    int64_t i = 0;
    int ok = whole ? 2 : 1;
    llm__fact fact = llm__facts_find(f, keys);
    if (f->r || (fact.node < 0 && !fact.kv)) return (double)NAN;
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

/* A whole number between lo and hi; `fallback` where it is absent: with LLM__MUST that is an error. */
static int32_t llm__fact_int(llm__facts *f, const char *keys, int64_t fallback, int64_t lo, int64_t hi) {
    double v = llm__fact_any(f, keys, (double)lo, (double)hi, 1);
    if (v == v) return (int32_t)v;
    if (fallback != LLM__MUST) return (int32_t)fallback;
    llm__fact absent = llm__facts_find(f, keys);
    llm__facts_bad(f, &absent, "missing");
    return (int32_t)lo;
}

/* A number between lo and hi, or `fallback`. */
static double llm__fact_num(llm__facts *f, const char *keys, double fallback, double lo, double hi) {
    double v = llm__fact_any(f, keys, lo, hi, 0);
    return v == v ? v : fallback;
}

/* true and false; in JSON also as 0 and 1. */
static int llm__fact_bool(llm__facts *f, const char *keys, int fallback) {
    llm__fact fact = llm__facts_find(f, keys);
    int64_t i;
    if (fact.kv && fact.kv->type == LLM__GGUF_BOOL && !fact.kv->is_array) return fact.kv->data[0];
    if (llm_json_int(f->json, fact.node, &i)) return i != 0;
    if (!llm_json_bool(f->json, fact.node, &fallback) && (fact.node >= 0 || fact.kv)) llm__facts_bad(f, &fact, "true or false expected");
    return fallback;
}

/* A text of fewer than 64 bytes; "" if it is absent. */
static const char *llm__fact_str(llm__facts *f, const char *keys, char out[64]) {
    llm__fact fact = llm__facts_find(f, keys);
    llm__str s = llm__gguf_text(fact.kv);
    out[0] = 0;
    if (fact.node >= 0) s.p = llm_json_str(f->json, fact.node, &s.n);
    if (s.p && s.n < 64) snprintf(out, 64, "%.*s", (int)s.n, s.p);
    else if (fact.node >= 0 || fact.kv) llm__facts_bad(f, &fact, "a short text expected");
    return out;
}

/* The first element of a JSON list; -1 if there is none (GGUF has no lists that are asked for here). */
static int llm__fact_list(const llm__facts *f, const char *key) { return llm_json_first(f->json, llm__facts_find(f, key).node); }

/* Facts with an object of config.json put before the others. */
static llm__facts llm__facts_in(const llm__facts *f, int object) {
    llm__facts in = *f;
    /* there is always room: the root, text_config, and one more */
    if (llm_json_type_of(f->json, object) != LLM_JSON_OBJECT) return in;
    for (int i = in.n_nodes++; i > 0; i--) in.node[i] = in.node[i - 1];
    in.node[0] = object;
    return in;
}

