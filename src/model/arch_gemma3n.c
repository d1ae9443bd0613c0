#include "model/arch_gemma3n.h"
#include "api/config.h"
#include "api/json.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/log.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/facts.h"
#include "model/arch.h"
#include "model/arch_gemma4.h"

/* A list of config.json has a value for each layer; a plain number counts for all. */
static void llm__gemma3n_list(llm__facts *f, const llm__arch *a, const char *key) {
    const llm__fact fact = llm__facts_find(f, key);
    if (llm_json_type_of(f->json, fact.node) == LLM_JSON_ARRAY && llm_json_size(f->json, fact.node) != a->n_layers)
        llm__facts_bad(f, &fact, "one value for each layer expected");
}

static int32_t llm__gemma3n_ff(llm__facts *f, int layer) { return llm__fact_item(f, "intermediate_size", layer, 16384, 1, 1 << 21); }

LLM__PRIVATE int32_t llm__arch_gemma3n_ff(llm__facts *f, const llm__arch *a) {
    int32_t most = 1;
    llm__gemma3n_list(f, a, "intermediate_size");
    for (int i = 0; i < a->n_layers && !f->r; i++) most = LLM__MAX(most, llm__gemma3n_ff(f, i));
    return most;
}

LLM__PRIVATE void llm__arch_gemma3n_shapes(llm__facts *f, llm__arch *a, const llm__tensors *tensors) {
    if (!llm__arch_is(a, "gemma3n_text")) return;
    const llm__tensor *left = llm__tensors_find(tensors, "blk.0.laurel_l.weight");
    a->v_norm = 1;
    llm__arch_own_values(f, a, tensors, 1, 256);
    a->n_streams = llm__fact_int(f, "altup_num_inputs .altup.num_inputs", 4, 1, LLM_MAX_STREAMS);
    a->active_stream = llm__fact_int(f, "altup_active_idx .altup.active_idx", 0, 0, a->n_streams - 1);
    a->stream_scale = a->gguf || llm__fact_bool(f, "altup_correct_scale", 1);
    a->laurel_rank = llm__fact_int(f, "laurel_rank", left && left->n_dims == 2 ? LLM__MIN(left->shape[0], 1 << 16) : 64, 1, 1 << 16);
}

/* z with as large a share q of the normal distribution below it, 0 < q < 1, halving the interval from -40 to 40. */
static double llm__normal_quantile(double q) {
    double low = -40, high = 40;
    for (int i = 0; i < 64; i++) {
        const double z = (low + high) / 2;
        if (0.5 * erfc(-z * 0.70710678118654752) < q) low = z;
        else high = z;
    }
    return (low + high) / 2;
}

/* Which MLPs are sparse, by a list of shares or, in GGUF, of z. */
static void llm__gemma3n_sparse(llm__facts *f, llm__arch *a) {
    const char *key = a->gguf ? ".activation_sparsity_scale" : "activation_sparsity_pattern";
    const llm__fact fact = llm__facts_find(f, key);
    const int told = fact.node >= 0 || fact.kv, ten = a->gguf || a->n_layers > 10;
    int item = llm_json_type_of(f->json, fact.node) == LLM_JSON_ARRAY ? llm_json_first(f->json, fact.node) : fact.node;
    llm__gemma3n_list(f, a, key);
    if (fact.kv && (!fact.kv->is_array || fact.kv->count != (uint64_t)a->n_layers)) llm__facts_bad(f, &fact, "one number a layer expected");
    for (int i = 0; i < a->n_layers && !f->r; i++) {
        double v = ten && i < 10 ? 0.95 : 0;
        int ok = !told || (fact.kv ? llm__gguf_num_at(fact.kv, (uint64_t)i, &v) : llm_json_num(f->json, item, &v));
        if (fact.kv) ok = ok && v < 100 && (v > -100 || v == -(double)INFINITY);
        else ok = ok && v >= 0 && v < 1;
        if (!ok) llm__facts_bad(f, &fact, fact.kv ? "numbers below 100 expected" : "shares from 0 to less than 1 expected");
        a->layer[i].sparse = fact.kv ? v > -100 : v > 0;
        if (a->layer[i].sparse && !f->r) a->layer[i].cut = (float)(fact.kv ? v : llm__normal_quantile(v));
        if (item != fact.node) item = llm_json_next(f->json, item);
    }
}

LLM__PRIVATE void llm__arch_gemma3n(llm__facts *f, llm__arch *a) {
    if (!llm__arch_is(a, "gemma3n_text")) return;
    const int32_t usual = a->gguf ? LLM__MAX(a->n_layers - 20, 0) : a->n_layers > 15 ? 15 : 0;
    int sparse = 0;
    llm__gemma3n_sparse(f, a);
    for (int i = 0; i < a->n_layers && !f->r; i++) {
        if (f->json) a->layer[i].ff = llm__gemma3n_ff(f, i);
        sparse |= a->layer[i].sparse;
    }
    if (sparse && a->act != LLM_ACT_GELU_TANH && a->act != LLM_ACT_GELU && a->act != LLM_ACT_SILU && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED,
                          "%s: config.json: activation_sparsity_pattern: gelu_pytorch_tanh, gelu or silu as hidden_activation expected",
                          f->path);
    llm__arch_shared_keys(f, a, llm__fact_int(f, "num_kv_shared_layers .attention.shared_kv_layers", usual, 0, a->n_layers - 1));
}
