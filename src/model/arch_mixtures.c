#include "model/arch_mixtures.h"
#include "api/config.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/log.h"
#include "model/tensors.h"
#include "model/facts.h"
#include "model/families.h"
#include "model/arch.h"

LLM__PRIVATE void llm__arch_mixtures_shapes(llm__facts *f, llm__arch *a) {
    if (llm__arch_is(a, "mimo_v2_flash")) a->v_head_dim = llm__fact_int(f, "v_head_dim .attention.value_length", a->head_dim, 1, 4096);
    a->norm_experts = llm__arch_is(a, "axk1");
    if (!llm__arch_is(a, "cohere2_moe")) return;
    a->ff = llm__fact_int(f, "prefix_dense_intermediate_size", a->ff, 1, 1 << 21);
    if (llm__fact_num(f, "rms_norm_eps .attention.layer_norm_rms_epsilon", 0, 0, 1) > 0) a->flags &= ~(uint32_t)LLM__LAYER_NORM;
}

/* Shapes of sliding layers that cannot differ from those of the others; their key heads can. */
static void llm__mimo_alike(llm__facts *f, const llm__arch *a) {
    const struct {
        const char *key;
        int32_t is;
    } table[] = {{"swa_num_attention_heads", a->n_heads}, {"swa_head_dim", a->head_dim}, {"swa_v_head_dim", a->v_head_dim}};
    for (int i = 0; i < LLM__COUNT(table); i++) {
        const int32_t said = llm__fact_int(f, table[i].key, table[i].is, 1, 1 << 20);
        if (said != table[i].is && !f->r)
            f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: %s: %d, as many as other layers have (%d) expected", f->path,
                              table[i].key, said, table[i].is);
    }
}

/* 1 if layer i of a GGUF file has a tensor of this name. */
static int llm__layer_has(const llm__tensors *tensors, int i, const char *stem) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", i, stem);
    return llm__tensors_find(tensors, name) != NULL;
}

/* Windows, heads and sinks of each layer. What config.json says of them, in the order of its age:
 *
 *     layer_types             transformers' own word, which sliding_window belongs to
 *     hybrid_layer_pattern    the publisher's, with sliding_window_size beside it
 *     neither                 the first layer and every sixth see everything
 *
 * A GGUF file has lists of windows and of key heads, and a layer has sinks if there is a tensor of them. */
static void llm__arch_mimo(llm__facts *f, llm__arch *a, const llm__tensors *tensors) {
    const int types = llm__fact_list(f, "layer_types"), near = llm__fact_bool(f, "add_swa_attention_sink_bias", 1),
              far = llm__fact_bool(f, "add_full_attention_sink_bias", 0);
    int listed = types < 0 ? llm__fact_list(f, "hybrid_layer_pattern") : -1;
    const int told = listed >= 0;
    const int32_t n_kv = llm__fact_int(f, "swa_num_key_value_heads", 2 * (int64_t)a->n_kv_heads, 1, a->n_heads);
    int32_t window = llm__fact_int(f, "sliding_window .attention.sliding_window", 129, 1, 1 << 30);
    const int32_t before = llm__fact_int(f, "sliding_window_size", 0, 0, 1 << 29);
    if (before) window = before + 1;
    a->attn_out_scale = (float)llm__fact_num(f, "attention_value_scale .attention.value_scale", 1, 1e-6, 1e6);
    llm__mimo_alike(f, a);
    for (int i = 0; i < a->n_layers; i++) {
        llm__arch_layer *l = &a->layer[i];
        int64_t slides = i > 0 && (i + 1) % 6 != 0;
        if (told && (listed < 0 || !llm_json_int(f->json, listed, &slides)) && !f->r)
            f->r = llm__error(LLM_ERR_FORMAT, "%s: config.json: hybrid_layer_pattern: 0 or 1 for each layer expected", f->path);
        if (listed >= 0) listed = llm_json_next(f->json, listed);
        if (types < 0 && !a->gguf) l->slides = slides != 0;
        l->window = l->slides ? window : 0;
        l->rope = l->slides ? 1 : 0;
        if (!a->gguf) l->n_kv_heads = l->slides ? n_kv : a->n_kv_heads;
        l->sinks = (int8_t)(a->gguf ? llm__layer_has(tensors, i, "attn_sinks") : l->slides ? near : far);
    }
}

/* Windows and positions of each layer, and the average of experts and shared ones: half of each, the one by the weights of the chosen, the
 * other by the matrix that leads back. */
static void llm__arch_cohere2_moe(llm__facts *f, llm__arch *a) {
    const int types = llm__fact_list(f, "layer_types");
    const int32_t window = llm__fact_int(f, "sliding_window .attention.sliding_window", 4096, 1, 1 << 30);
    const int32_t prefix = llm__fact_int(f, "prefix_dense_sliding_window_pattern", 1, 1, 1 << 20),
                  pattern = llm__fact_int(f, "sliding_window_pattern", 4, 1, 1 << 20);
    char how[64];
    const int32_t first = llm__fact_int(f, "first_k_dense_replace", 0, 0, 1 << 20); /* mlp_layer_types moves no window */
    for (int i = 0; i < a->n_layers; i++) {
        llm__arch_layer *l = &a->layer[i];
        if (types < 0 && !a->gguf) l->slides = (i < first ? (i + 1) % prefix : (i - first + 1) % pattern) != 0;
        l->window = l->slides ? window : 0;
        l->rope = l->slides || (!l->moe && prefix == 1) ? 0 : -1;
    }
    if (!a->ff_shared || !strcmp(llm__fact_str(f, "shared_expert_combination_strategy", how), "sum")) return;
    if (how[0] && strcmp(how, "average") && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: shared_expert_combination_strategy: \"%.40s\", average or sum expected",
                          f->path, how);
    a->route_scale *= 0.5f;
    a->shared_scale = 0.5f;
}

LLM__PRIVATE void llm__arch_mixtures(llm__facts *f, llm__arch *a, const llm__tensors *tensors) {
    if (llm__arch_is(a, "mimo_v2_flash")) llm__arch_mimo(f, a, tensors);
    if (llm__arch_is(a, "cohere2_moe")) llm__arch_cohere2_moe(f, a);
}
