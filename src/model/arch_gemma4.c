#include "model/arch_gemma4.h"
#include "api/config.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "model/tensors.h"
#include "model/facts.h"
#include "model/arch.h"

LLM__PRIVATE void llm__arch_own_values(llm__facts *f, llm__arch *a, const llm__tensors *tensors, int32_t least, int32_t usual) {
    static const char *const names[] = {"model.language_model.embed_tokens_per_layer.weight", "model.embed_tokens_per_layer.weight",
                                        "language_model.model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"};
    int64_t rows = a->vocab;
    a->per_layer = llm__fact_int(f, "hidden_size_per_layer_input .embedding_length_per_layer_input", usual, least, 1 << 14);
    for (int i = LLM__COUNT(names) - 1; i >= 0; i--) {
        const llm__tensor *t = llm__tensors_find(tensors, names[i]);
        if (t && t->n_dims == 2) rows = t->shape[0];
    }
    a->per_layer_rows = llm__fact_int(f, "vocab_size_per_layer_input", LLM__MIN(LLM__MAX(rows, 1), 1 << 24), 1, 1 << 24);
}

/* transformers from 5.24 on writes in one object what layers have otherwise than most: "per_layer_config": {"05": {"head_dim": 512}},
 * numbered from 0. What that has for `key` of layer i, of any layer if i < 0; else `usual`. */
static int32_t llm__gemma4_apart(llm__facts *f, const char *key, int i, int32_t usual, int32_t most) {
    int64_t at = -1;
    for (int v = llm__fact_list(f, "per_layer_config"); v >= 0; v = llm_json_next(f->json, v)) {
        llm__str name = LLM__ZERO;
        llm__facts in = *f;
        name.p = llm_json_key(f->json, v, &name.n);
        if (llm_json_find(f->json, v, key) < 0 || !llm__parse_int(name.p, name.n, &at) || (i >= 0 && at != i)) continue;
        in.node[0] = v, in.n_nodes = 1;
        usual = llm__fact_int(&in, key, usual, 1, most);
        f->r = in.r;
        return usual;
    }
    return usual;
}

/* Whether that object is there. It may say of some of the layers how wide their heads are and how many keys they have, and nothing else. */
static int llm__gemma4_listed(llm__facts *f, const llm__arch *a) {
    const llm__fact all = llm__facts_find(f, "per_layer_config");
    int ok = llm_json_type_of(f->json, all.node) == LLM_JSON_OBJECT;
    for (int v = llm_json_first(f->json, all.node); v >= 0 && ok; v = llm_json_next(f->json, v)) {
        int64_t at = -1;
        llm__str name = LLM__ZERO;
        name.p = llm_json_key(f->json, v, &name.n);
        ok = llm__parse_int(name.p, name.n, &at) && at >= 0 && at < a->n_layers && llm_json_type_of(f->json, v) == LLM_JSON_OBJECT;
        for (int w = llm_json_first(f->json, v); w >= 0 && ok; w = llm_json_next(f->json, w))
            ok = llm__word_in("head_dim num_key_value_heads", llm_json_key(f->json, w, NULL));
    }
    if (all.node >= 0 && !ok) llm__facts_bad(f, &all, "numbers of layers, each with head_dim or num_key_value_heads, expected");
    return all.node >= 0;
}

/* Layers that see a window are alike, and so are those that see everything. */
static void llm__gemma4_kinds(llm__facts *f, const llm__arch *a) {
    for (int i = 0; i < a->n_layers && !f->r; i++) {
        const llm__arch_layer *l = &a->layer[i];
        const int32_t dim = llm__gemma4_apart(f, "head_dim", i, a->head_dim, 4096);
        const int32_t keys = llm__gemma4_apart(f, "num_key_value_heads", i, a->n_kv_heads, a->n_heads);
        if ((dim != l->head_dim || keys != l->n_kv_heads) && !f->r)
            f->r = llm__error(LLM_ERR_UNSUPPORTED,
                              "%s: config.json: per_layer_config: layer %d has %d key heads of %d values, %d of %d as others of its kind "
                              "expected",
                              f->path, i, keys, dim, l->n_kv_heads, l->head_dim);
    }
}

LLM__PRIVATE void llm__arch_gemma4_shapes(llm__facts *f, llm__arch *a, const llm__tensors *tensors) {
    if (!llm__arch_is(a, "gemma4_text")) return;
    if (a->gguf) { /* the key without an ending is that of layers that see everything */
        a->full_head_dim = a->head_dim;
        a->head_dim = llm__fact_int(f, ".attention.key_length_swa", a->head_dim, 1, 4096);
    } else if (llm__gemma4_listed(f, a)) a->full_head_dim = llm__gemma4_apart(f, "head_dim", -1, a->head_dim, 4096);
    else a->full_head_dim = llm__fact_int(f, "global_head_dim", 512, 1, 4096);
    a->v_head_dim = a->head_dim;
    a->v_norm = 1;
    llm__arch_own_values(f, a, tensors, 0, a->gguf ? 0 : 256);
}

LLM__PRIVATE void llm__arch_shared_keys(llm__facts *f, llm__arch *a, int32_t shared) {
    for (int i = a->n_layers - shared; i < a->n_layers && !f->r; i++) {
        llm__arch_layer *l = &a->layer[i];
        int from = a->n_layers - shared - 1;
        while (from >= 0 && !a->layer[from].window != !l->window) from--;
        if (from < 0)
            f->r = llm__error(LLM_ERR_FORMAT, "%s: layer %d has no keys of its own, and no layer of its kind before it has", f->path, i);
        else l->kv_of = from, a->layer[from].kv_shared = 1;
    }
}

/* Key heads of a layer that sees everything, in an encoder of this family: its config has no word for them, its tensor has. */
static int32_t llm__gemma4_full(llm__facts *f, const llm__arch *a, const llm__tensors *tensors, int i) {
    const int64_t same = LLM__MAX((int64_t)a->n_kv_heads * a->head_dim / LLM__MAX(a->full_head_dim, 1), 1); /* as wide as the others' */
    const int32_t said = llm__fact_int(f, "num_global_key_value_heads", LLM__MIN(same, a->n_heads), 1, a->n_heads);
    char name[64];
    snprintf(name, sizeof name, "layers.%d.self_attn.k_proj.weight", i);
    const llm__tensor *t = llm__tensors_find(tensors, name);
    const int64_t heads = t ? t->shape[0] / LLM__MAX(a->full_head_dim, 1) : said;
    return heads >= 1 && heads <= a->n_heads ? (int32_t)heads : said;
}

LLM__PRIVATE void llm__arch_gemma4(llm__facts *f, llm__arch *a, const llm__tensors *tensors) {
    if (!llm__arch_is(a, "gemma4_text")) return;
    const int alike = f->json && llm__fact_bool(f, "attention_k_eq_v", 0);
    const int listed = f->json && llm__gemma4_listed(f, a);
    const int32_t full = listed  ? llm__gemma4_apart(f, "num_key_value_heads", -1, a->n_kv_heads, a->n_heads)
                         : alike ? llm__fact_int(f, "num_global_key_value_heads", a->n_kv_heads, 1, a->n_heads)
                                 : a->n_kv_heads;
    char text[64];
    if (f->json && !a->encoder && !strcmp(llm__fact_str(f, "use_bidirectional_attention", text), "all") && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: use_bidirectional_attention: \"all\" is not supported", f->path);
    a->beside = a->n_experts > 0;
    if (f->json) a->layer[a->n_layers - 1].window = a->layer[a->n_layers - 1].rope = 0; /* the last one sees everything whatever is said */
    for (int i = 0; i < a->n_layers; i++) {
        llm__arch_layer *l = &a->layer[i];
        char v[64];
        snprintf(v, sizeof v, "blk.%d.attn_v.weight", i);
        if (!l->window) {
            l->head_dim = l->v_head_dim = a->full_head_dim;
            if (f->json) l->n_kv_heads = a->encoder ? llm__gemma4_full(f, a, tensors, i) : full;
        }
        l->k_is_v = f->json ? alike && !l->window : !llm__tensors_find(tensors, v);
    }
    if (listed) llm__gemma4_kinds(f, a);
    const int32_t shared = llm__fact_int(f, "num_kv_shared_layers .attention.shared_kv_layers", 0, 0, a->n_layers - 1);
    llm__arch_shared_keys(f, a, shared);
    const int wide = f->json && llm__fact_bool(f, "use_double_wide_mlp", 0);
    for (int i = a->n_layers - shared; i < a->n_layers && wide; i++) a->layer[i].ff *= 2;
}
