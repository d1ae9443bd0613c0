#include "model/convert_keys.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/json.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "cpu/dtypes.h"
#include "model/gguf.h"
#include "model/facts.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/rope.h"
#include "model/loader.h"
#include "model/gguf_write.h"
#include "model/convert_encoder.h"

/* Keys ARCHITECTURE.*, as they are appended. */
typedef struct llm__keying {
    const llm__arch *a;
    char arch[32];
    llm_text *keys;
    uint64_t *n;
} llm__keying;

static void llm__key_int(const llm__keying *k, const char *name, int64_t v) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", k->arch, name);
    llm__gguf_put_int(k->keys, key, v);
    ++*k->n;
}

static void llm__key_float(const llm__keying *k, const char *name, double v) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", k->arch, name);
    llm__gguf_put_float(k->keys, key, v);
    ++*k->n;
}

static void llm__key_str(const llm__keying *k, const char *name, const char *v) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", k->arch, name);
    llm__gguf_put_str(k->keys, key, llm__lit(v));
    ++*k->n;
}

static void llm__key_bool(const llm__keying *k, const char *name, int v) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", k->arch, name);
    llm__gguf_put_bool(k->keys, key, v);
    ++*k->n;
}

/* A list with a number for each layer. */
static void llm__key_layers(const llm__keying *k, const char *name, int32_t type, int32_t (*of)(const llm__arch_layer *l)) {
    const llm__arch *a = k->a;
    char key[96];
    snprintf(key, sizeof key, "%s.%s", k->arch, name);
    llm__gguf_put_array(k->keys, key, type, (uint64_t)a->n_layers);
    for (int i = 0; i < a->n_layers; i++) llm__gguf_put_number(k->keys, (uint64_t)of(&a->layer[i]), type == LLM__GGUF_BOOL ? 1 : 4);
    ++*k->n;
}

static int32_t llm__layer_slides(const llm__arch_layer *l) { return l->window != 0; }
static int32_t llm__layer_recurs(const llm__arch_layer *l) { return l->mixer > LLM__MIX_NONE; }
static int32_t llm__layer_kv(const llm__arch_layer *l) { return l->mixer == LLM__MIX_ATTENTION ? l->n_kv_heads : 0; }
static int32_t llm__layer_attends(const llm__arch_layer *l) { return l->mixer == LLM__MIX_ATTENTION; }
static int32_t llm__layer_ff(const llm__arch_layer *l) { return l->no_mlp ? 0 : l->ff; }

/* The facts of a folder's config.json, those of its (global) RoPE object first. */
static llm__facts llm__convert_facts(const llm_model *m) {
    llm__facts f = LLM__ZERO;
    f.path = m->path;
    f.json = m->source.config;
    f.n_nodes = 1;
    const int inner = llm__facts_find(&f, "text_config llm_config language_config model").node;
    if (llm_json_type_of(f.json, inner) == LLM_JSON_OBJECT) f = llm__facts_in(&f, inner);
    const int object = llm__facts_find(&f, "rope_parameters rope_scaling").node, global = llm_json_find(f.json, object, "full_attention");
    return llm__facts_in(&f, global >= 0 ? global : object);
}

static double llm__convert_base(llm__facts *f, const llm_model *m) { return llm__rope_base(f, &m->arch, (double)m->arch.family->theta); }

LLM__PRIVATE int llm__convert_rope_form(const llm_model *m) {
    llm__facts f = llm__convert_facts(m);
    char type[64];
    llm__fact_str(&f, "rope_type type", type);
    return llm__word_in("longrope su", type) ? 2 : !strcmp(type, "llama3") || llm__arch_is(&m->arch, "gemma4_text");
}

/* LongRoPE's factors as config.json has them. */
static void llm__convert_factors(const llm__facts *f, const char *key, int n, float *out) {
    int node = llm__fact_list(f, key);
    for (int i = 0; i < n; i++, node = llm_json_next(f->json, node)) {
        double v = 1;
        llm_json_num(f->json, node, &v);
        out[i] = (float)v;
    }
}

LLM__PRIVATE void llm__convert_divisors(const llm_model *m, int is_long, float *out) {
    llm__facts f = llm__convert_facts(m);
    const int half = m->arch.rope[0].dim / 2;
    const double base = llm__convert_base(&f, m);
    if (llm__convert_rope_form(m) == 2) {
        llm__convert_factors(&f, is_long ? "long_factor" : "short_factor", half, out);
        return;
    }
    for (int i = 0; i < half; i++) {
        const double is = (double)m->arch.rope[0].inv_freq[i];
        out[i] = is > 0 ? (float)(pow(base, -2.0 * i / m->arch.rope[0].dim) / is) : 1e30f; /* llama.cpp's number for what does not turn */
    }
}

/* How many frequencies turn by time, height and width: where config.json is silent, a third each. */
static void llm__convert_key_sections(const llm__keying *k) {
    const llm__arch *a = k->a;
    char key[96];
    int n[4] = {0, 0, 0, 0};
    for (int i = 0; i < a->rope[0].dim / 2; i++) n[a->position_rows > 1 ? a->rope_row[i] : i % 3]++;
    snprintf(key, sizeof key, "%s.rope.dimension_sections", k->arch);
    llm__gguf_put_array(k->keys, key, LLM__GGUF_I32, 4);
    for (int i = 0; i < 4; i++) llm__gguf_put_number(k->keys, (uint64_t)n[i], 4);
    ++*k->n;
}

/* How positions turn, and how far they are stretched. */
static void llm__convert_key_rope(const llm__keying *k, const llm_model *m) {
    const llm__arch *a = k->a;
    llm__facts f = llm__convert_facts(m);
    char type[64];
    const int form = llm__convert_rope_form(m);
    const int64_t original = llm__fact_int(&f, "original_max_position_embeddings", a->max_positions, 1, 1 << 30);
    if (llm__arch_hybrid(a) || llm__arch_is(a, "bamba"))
        llm__key_bool(k, "rope.scaling.finetuned", a->rope[0].dim > 0); /* this word is how llama.cpp tells it */
    if (!a->rope[0].dim || llm__arch_is(a, "mamba2 mamba nemotron_h jamba")) return;
    llm__key_float(k, "rope.freq_base", llm__convert_base(&f, m));
    llm__key_int(k, "rope.dimension_count", a->rope[0].dim);
    if (a->position_rows == 3 && llm__arch_is(a, "glm4 glm4_moe")) llm__convert_key_sections(k);
    if (a->n_streams || llm__arch_is(a, "mimo_v2_flash")) llm__key_float(k, "rope.freq_base_swa", a->rope[1].base);
    if (a->full_head_dim) { /* sliding layers have a base and a width of their own */
        llm__facts near = f;
        const int object = llm__facts_find(&f, "rope_parameters rope_scaling").node;
        const int local = llm_json_find(f.json, object, "sliding_attention");
        if (local >= 0) near.node[0] = local; /* where the global one stood */
        llm__key_float(k, "rope.freq_base_swa", local >= 0 ? llm__fact_num(&near, "rope_theta", 1e4, 1.0001, 1e18) : 1e4);
        llm__key_int(k, "rope.dimension_count_swa", a->rope[1].dim);
    }
    llm__fact_str(&f, "rope_type type", type);
    if (!strcmp(type, "deepseek_yarn")) snprintf(type, sizeof type, "yarn");
    if (form == 2) {
        llm__key_int(k, "rope.scaling.original_context_length", original);
        llm__key_float(k, "rope.scaling.attn_factor", (double)a->rope[0].scale[0]);
    }
    if (form || (strcmp(type, "linear") && strcmp(type, "yarn"))) return;
    llm__key_str(k, "rope.scaling.type", type);
    llm__key_float(k, "rope.scaling.factor", llm__fact_num(&f, "factor", (double)a->max_positions / (double)original, 1e-2, 1e6));
    if (strcmp(type, "yarn")) return;
    llm__key_int(k, "rope.scaling.original_context_length", original);
    llm__key_float(k, "rope.scaling.yarn_beta_fast", llm__fact_num(&f, "beta_fast", 32, 1e-3, 1e6));
    llm__key_float(k, "rope.scaling.yarn_beta_slow", llm__fact_num(&f, "beta_slow", 1, 1e-3, 1e6));
    if (a->logn_beta > 0 && !a->by_rope) llm__key_float(k, "attention.temperature_scale", (double)a->logn_beta);
    if (a->logn_beta > 0 && a->flags & LLM__MLA) llm__key_int(k, "attention.temperature_length", a->logn_from);
    const double all = llm__fact_num(&f, "mscale_all_dim", 0, 0, 100), factor = llm__fact_num(&f, "attention_factor", 0, 0, 1e6);
    if (all > 0) llm__key_float(k, "rope.scaling.yarn_log_multiplier", all * llm__yarn_log_unit(a));
    if (factor > 0) llm__key_float(k, "rope.scaling.yarn_attn_factor", factor);
}

/* Which layers see a window only: every so many sees all, or a list. */
static void llm__convert_key_windows(const llm__keying *k) {
    const llm__arch *a = k->a;
    int32_t window = 0, every = 0, regular = 1;
    for (int i = a->n_layers - 1; i >= 0; i--) {
        window = LLM__MAX(window, a->layer[i].window);
        if (!a->layer[i].window) every = i + 1;
    }
    if (!window || a->encoder) return;
    const int listed = llm__arch_is(a, "gemma3n_text gemma4_text mimo_v2_flash cohere2_moe");
    llm__key_int(k, "attention.sliding_window", window);
    for (int i = 0; i < a->n_layers; i++) regular &= !a->layer[i].window == (every && (i + 1) % every == 0);
    if (!every && !listed && !a->chunked) return;
    if (regular && every && !listed) {
        llm__key_int(k, "attention.sliding_window_pattern", every);
        return;
    }
    llm__key_layers(k, "attention.sliding_window_pattern", LLM__GGUF_BOOL, llm__layer_slides);
}

/* Gemma 4's heads, of which the layers that see everything have others; the keys with an ending are those of sliding layers:
 *
 *     attention.head_count_kv   [2, 1, 2, 1]     a number for each layer, those that read another's keys too
 *     attention.key_length      32               of full layers, and value_length
 *     attention.key_length_swa  16               of sliding ones
 *     attention.shared_kv_layers 2               the last two
 */
static void llm__convert_key_gemma4(const llm__keying *k) {
    const llm__arch *a = k->a;
    int shared = 0;
    llm__key_layers(k, "attention.head_count_kv", LLM__GGUF_U32, llm__layer_kv);
    for (int i = 0; i < a->n_layers; i++) shared += a->layer[i].kv_of != i;
    llm__key_int(k, "attention.key_length", a->full_head_dim);
    llm__key_int(k, "attention.value_length", a->full_head_dim);
    llm__key_int(k, "attention.key_length_swa", a->head_dim);
    llm__key_int(k, "attention.value_length_swa", a->head_dim);
    llm__key_int(k, "attention.shared_kv_layers", shared);
    llm__key_int(k, "embedding_length_per_layer_input", a->per_layer);
}

/* Gemma 3n's streams, who reads others' keys, and how far above the mean a gate of each layer must be; minus infinity: all are open. */
static void llm__convert_key_gemma3n(const llm__keying *k) {
    const llm__arch *a = k->a;
    char key[96];
    int shared = 0;
    if (!a->n_streams) return;
    for (int i = 0; i < a->n_layers; i++) shared += a->layer[i].kv_of != i;
    llm__key_int(k, "altup.active_idx", a->active_stream);
    llm__key_int(k, "altup.num_inputs", a->n_streams);
    llm__key_int(k, "embedding_length_per_layer_input", a->per_layer);
    llm__key_int(k, "attention.shared_kv_layers", shared);
    snprintf(key, sizeof key, "%s.activation_sparsity_scale", k->arch);
    llm__gguf_put_array(k->keys, key, LLM__GGUF_F32, (uint64_t)a->n_layers);
    for (int i = 0; i < a->n_layers; i++) llm__gguf_put_number(k->keys, llm__f32_bits(a->layer[i].sparse ? a->layer[i].cut : -INFINITY), 4);
    ++*k->n;
}

/* The width of MLPs, as a list where layers differ; 0: there is none. */
static void llm__convert_key_ff(const llm__keying *k) {
    const llm__arch *a = k->a;
    int alike = 1;
    for (int i = 0; i < a->n_layers; i++) alike &= llm__layer_ff(&a->layer[i]) == llm__layer_ff(&a->layer[0]);
    if (alike) llm__key_int(k, "feed_forward_length", llm__layer_ff(&a->layer[0]));
    else llm__key_layers(k, "feed_forward_length", LLM__GGUF_U32, llm__layer_ff);
}

/* Shapes of what layers keep, and which do: by attention.head_count_kv, see below, or with gated delta nets by a word of their own. */
static void llm__convert_key_states(const llm__keying *k) {
    const llm__arch *a = k->a;
    const llm__arch_state *s = &a->state;
    int every = 0, regular = 1;
    if (!a->recurrent) return;
    const int kimi = llm__arch_is(a, "kimi_linear"), first = llm__arch_is(a, "jamba mamba"); /* Mamba 1 */
    llm__key_int(k, llm__arch_is(a, "lfm2 lfm2_moe") ? "shortconv.l_cache" : "ssm.conv_kernel", s->taps);
    if (kimi) llm__key_int(k, "kda.head_dim", s->dk);
    if (kimi || llm__arch_is(a, "lfm2 lfm2_moe")) return;
    llm__key_int(k, "ssm.state_size", s->dk);
    if (!first) llm__key_int(k, "ssm.group_count", s->n_groups);
    llm__key_int(k, "ssm.time_step_rank", first ? s->rank : s->n_heads);
    if (llm__arch_is(a, "mamba")) llm__key_bool(k, "ssm.dt_b_c_rms", s->low_norm != LLM_NORM_NONE);
    llm__key_int(k, "ssm.inner_size", (int64_t)s->n_heads * s->dv);
    if (!a->attn_gate) return;
    while (every < a->n_layers && llm__layer_recurs(&a->layer[every])) every++;
    every++;
    for (int i = 0; i < a->n_layers; i++) regular &= llm__layer_recurs(&a->layer[i]) == ((i + 1) % every != 0);
    if (regular) llm__key_int(k, "full_attention_interval", every);
    else llm__key_layers(k, "attention.recurrent_layers", LLM__GGUF_BOOL, llm__layer_recurs);
    if (llm__arch_is(a, "qwen3_next")) return;
    llm__convert_key_sections(k);
}

/* Heads, and the widths of latent attention: what the cache of such a model has as one head. */
static void llm__convert_key_heads(const llm__keying *k) {
    const llm__arch *a = k->a;
    const int mla = (a->flags & LLM__MLA) != 0, alone = llm__arch_is(a, "mamba2 mamba");
    llm__key_int(k, "attention.head_count", alone ? 0 : a->n_heads);
    if (a->full_head_dim) {
        llm__convert_key_gemma4(k);
    } else if (!alone) {
        const int some = (a->recurrent && !a->attn_gate && !a->layer[0].both) || llm__arch_is(a, "mimo_v2_flash"); /* by layer */
        if (some) llm__key_layers(k, "attention.head_count_kv", LLM__GGUF_U32, mla ? llm__layer_attends : llm__layer_kv);
        else llm__key_int(k, "attention.head_count_kv", mla ? 1 : a->n_kv_heads);
        llm__key_int(k, "attention.key_length", mla ? a->kv_rank + a->rope[0].dim : a->head_dim);
        llm__key_int(k, "attention.value_length", mla ? a->kv_rank : a->v_head_dim);
    }
    llm__key_float(
        k, a->norm == LLM_NORM_LAYER && !llm__arch_is(a, "phimoe") ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
        (double)a->eps);
    if (llm__arch_is(a, "nemotron_h")) llm__key_float(k, "attention.layer_norm_epsilon", (double)a->eps); /* llama.cpp asks for both */
    if (llm__arch_is(a, "mpt")) llm__key_float(k, "attention.max_alibi_bias", llm__arch_steepest(a));
    llm__convert_key_windows(k);
    llm__convert_key_states(k);
    llm__convert_key_gemma3n(k);
    if (!mla) return;
    if (a->q_rank) llm__key_int(k, "attention.q_lora_rank", a->q_rank);
    llm__key_int(k, "attention.kv_lora_rank", a->kv_rank);
    llm__key_int(k, "attention.key_length_mla", a->nope + a->rope[0].dim);
    llm__key_int(k, "attention.value_length_mla", a->v_head_dim);
    if (!a->index_topk) return;
    llm__key_int(k, "attention.indexer.head_count", a->index_heads);
    llm__key_int(k, "attention.indexer.key_length", a->index_dim);
    llm__key_int(k, "attention.indexer.top_k", a->index_topk);
}

static void llm__convert_key_experts(const llm__keying *k) {
    const llm__arch *a = k->a;
    int dense = 0;
    if (!a->n_experts) return;
    while (dense < a->n_layers && !a->layer[dense].moe) dense++;
    llm__key_int(k, "expert_count", a->n_experts);
    llm__key_int(k, "expert_used_count", a->n_used);
    llm__key_int(k, "expert_feed_forward_length", a->ff_expert);
    if (a->ff_latent) llm__key_int(k, "moe_latent_size", a->ff_latent);
    /* of Ling 2 llama.cpp takes the width of one */
    const int ling = llm__arch_is(a, "bailing_moe_v2 sarvam_moe");
    const int32_t one = LLM__MAX(a->ff_expert, 1), each = ling && a->ff_shared % one == 0 ? one : a->ff_shared;
    const int32_t n_shared = ling ? a->ff_shared / LLM__MAX(each, 1) : a->ff_shared / one;
    if (a->ff_shared && !a->shared_gate) llm__key_int(k, "expert_shared_count", n_shared);
    if (a->ff_shared) llm__key_int(k, "expert_shared_feed_forward_length", each);
    if (llm__arch_is(a, "ernie4_5_moe llama4_text")) llm__key_int(k, "interleave_moe_layer_step", a->by_rope ? dense + 1 : 1);
    if ((dense || a->flags & LLM__MLA || llm__arch_is(a, "lfm2_moe")) && !llm__arch_is(a, "llama4_text jamba"))
        llm__key_int(k, "leading_dense_block_count", dense);
    if (a->n_group > 1) llm__key_int(k, "expert_group_count", a->n_group), llm__key_int(k, "expert_group_used_count", a->topk_group);
    const double times =
        (double)a->route_scale / (a->shared_scale != 0 ? (double)a->shared_scale : 1); /* the average goes without saying */
    if (times != 1 || a->flags & LLM__MLA) llm__key_float(k, "expert_weights_scale", times);
    if (a->flags & (LLM__MLA | LLM__SIGMOID) || llm__arch_is(a, "cohere2_moe"))
        llm__key_int(k, "expert_gating_func", a->score == LLM_ROUTE_SIGMOID ? 2 : 1);
    llm__key_bool(k, "expert_weights_norm", a->normalize || (llm__arch_is(a, "cohere2_moe") && a->score == LLM_ROUTE_TOPK_SOFTMAX));
    if (llm__arch_is(a, "phimoe") && a->near != 0.02f) llm__key_float(k, "router_jitter_noise", (double)a->near / 2);
}

/* What llama.cpp has numbers of its own for, and a window of 0 where all layers see everything, as it wants it. */
static void llm__convert_key_llama4(const llm__keying *k) {
    const llm__arch *a = k->a;
    int windows = 0;
    if (!a->by_rope) return;
    for (int i = 0; i < a->n_layers; i++) windows |= a->layer[i].window;
    if (!windows) llm__key_int(k, "attention.sliding_window", 0);
    if (a->logn_from != 8192 || a->logn_beta != 0.1f) {
        llm__key_float(k, "attention.temperature_scale", a->logn_from ? (double)a->logn_beta : 0);
        llm__key_int(k, "attention.temperature_length", LLM__MAX(a->logn_from, 1));
    }
}

/* xIELU's numbers of all layers, in lists whose names no family's begins. */
static void llm__convert_key_xielu(const llm__keying *k) {
    static const char *const names[4] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    for (int i = 0; i < 4 && k->a->act == LLM_ACT_XIELU; i++) {
        llm__gguf_put_array(k->keys, names[i], LLM__GGUF_F32, (uint64_t)k->a->n_layers);
        for (int l = 0; l < k->a->n_layers; l++) {
            const float *x = k->a->layer[l].xielu;
            /* as they were learned: the inverse of softplus */
            const double v[4] = {log(expm1((double)x[0])), log(expm1((double)(x[1] - x[2]))), (double)x[2], (double)x[3]};
            llm__gguf_put_number(k->keys, llm__f32_bits((float)v[i]), 4);
        }
        ++*k->n;
    }
}

/* Numbers that multiply or cap something; those that a family always has go without saying. */
static void llm__convert_key_numbers(const llm__keying *k) {
    const llm__arch *a = k->a;
    const double logits = (double)a->logit_scale, plain = 1 / sqrt((double)a->head_dim);
    const int folded = a->folded; /* embedding and output layer are multiplied by theirs */
    if (a->embed_scale != 1 && !folded && !llm__arch_is(a, "gemma gemma2 gemma3_text gemma3n_text gemma4_text afmoe"))
        llm__key_float(k, "embedding_scale", (double)a->embed_scale);
    if (a->residual_scale != 1) llm__key_float(k, "residual_scale", (double)a->residual_scale);
    if (a->logit_scale != 1 && !folded) llm__key_float(k, "logit_scale", a->flags & LLM__DIVIDE_LOGITS ? 1 / logits : logits);
    if (!(a->flags & LLM__MLA) && fabs((double)a->attn_scale - plain) > 1e-6 * plain)
        llm__key_float(k, "attention.scale", (double)a->attn_scale);
    if (a->attn_out_scale != 0 && a->attn_out_scale != 1) llm__key_float(k, "attention.value_scale", (double)a->attn_out_scale);
    if (a->attn_softcap > 0) llm__key_float(k, "attn_logit_softcapping", (double)a->attn_softcap);
    if (a->logit_softcap > 0 || a->n_streams) llm__key_float(k, "final_logit_softcapping", (double)a->logit_softcap);
}

LLM__PRIVATE llm_result llm__convert_keys(const llm_model *m, llm_text *keys, uint64_t *n_keys) {
    const llm__arch *a = &m->arch;
    llm__keying k = LLM__ZERO;
    k.a = a, k.keys = keys, k.n = n_keys;
    snprintf(k.arch, sizeof k.arch, "%.*s", (int)strcspn(a->family->gguf, " "), a->family->gguf);
    if (llm__arch_hybrid(a) && a->recurrent) snprintf(k.arch, sizeof k.arch, "granitehybrid");
    if (llm__arch_is(a, "nemotron_h") && a->n_experts) snprintf(k.arch, sizeof k.arch, "nemotron_h_moe");
    if (a->logn_beta > 0 && !a->by_rope && !(a->flags & LLM__MLA))
        snprintf(k.arch, sizeof k.arch, "mistral3"); /* llama.cpp scales queries under this name alone */
    if (llm__convert_encoder_arch(m)) snprintf(k.arch, sizeof k.arch, "%s", llm__convert_encoder_arch(m));
    llm__str name = llm__lit(m->path);
    while (name.n > 1 && name.p[name.n - 1] == '/') name.n--;
    for (size_t i = 0; i < name.n; i++)
        if (name.p[i] == '/' && i + 1 < name.n) name = llm__str_from(name, i + 1), i = 0;
    llm__gguf_put_str(keys, "general.architecture", llm__lit(k.arch));
    llm__gguf_put_str(keys, "general.type", llm__lit("model"));
    llm__gguf_put_str(keys, "general.name", name);
    *n_keys += 3;
    llm__key_int(&k, "block_count", a->n_layers);
    llm__key_int(&k, "context_length", a->max_positions);
    llm__key_int(&k, "embedding_length", a->hidden);
    llm__convert_key_ff(&k);
    llm__key_int(&k, "vocab_size", a->vocab);
    llm__convert_key_heads(&k);
    llm__convert_key_rope(&k, m);
    llm__convert_key_experts(&k);
    llm__convert_key_numbers(&k);
    llm__convert_key_llama4(&k);
    llm__convert_key_xielu(&k);
    if (llm__arch_is(a, "bitnet")) llm__key_str(&k, "hidden_activation", "relu2"); /* llama.cpp's own is SiLU */
    llm__convert_encoder_keys(m, k.arch, keys, n_keys);
    return keys->failed ? llm__nomem() : LLM_OK;
}
