#include "quant/revert_config.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/facts.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/rope.h"
#include "model/loader.h"

/* model_type, and the class of transformers. */
static const struct {
    const char *type, *class_name;
} llm__revertible[] = {
    {"llama", "LlamaForCausalLM"},
    {"mistral", "MistralForCausalLM"},
    {"ministral3", "Ministral3ForCausalLM"},
    {"mixtral", "MixtralForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen2_moe", "Qwen2MoeForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"qwen3_moe", "Qwen3MoeForCausalLM"},
    {"gemma", "GemmaForCausalLM"},
    {"gemma2", "Gemma2ForCausalLM"},
    {"gemma3_text", "Gemma3ForCausalLM"},
    {"phi3", "Phi3ForCausalLM"},
    {"glm4", "Glm4ForCausalLM"},
    {"glm4_moe", "Glm4MoeForCausalLM"},
    {"starcoder2", "Starcoder2ForCausalLM"},
    {"granite", "GraniteForCausalLM"},
    {"olmo2", "Olmo2ForCausalLM"},
    {"smollm3", "SmolLM3ForCausalLM"},
    {"cohere", "CohereForCausalLM"},
    {"ernie4_5", "Ernie4_5ForCausalLM"},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM"},
    {"deepseek", "DeepseekForCausalLM"},
    {"deepseek_v2", "DeepseekV2ForCausalLM"},
    {"deepseek_v3", "DeepseekV3ForCausalLM"},
};

/* What is asked while config.json is written. */
typedef struct llm__reverting {
    const llm_model *m;
    const llm__arch *a;
    const char *type;
    llm__facts f;
    llm_text *out;
} llm__reverting;

/* ", "name": 1.0": a number that readers of config.json take for a float. */
static void llm__revert_float(llm_text *out, const char *name, double v) {
    LLM__SCOPED(llm_text_free) llm_text number = LLM__ZERO;
    llm_text_num(&number, v);
    llm_text_format(out, ", %q: %s%s", name, number.failed ? "0" : number.data, number.failed || strpbrk(number.data, ".en") ? "" : ".0");
    out->failed |= number.failed;
}

static int llm__revert_row(const char *type) {
    for (int i = 0; i < LLM__COUNT(llm__revertible); i++)
        if (!strcmp(llm__revertible[i].type, type)) return i;
    return -1;
}

/* The widest window of any layer; 0: all layers see everything. */
static int32_t llm__revert_window(const llm__arch *a) {
    int32_t window = 0;
    for (int i = 0; i < a->n_layers; i++) window = LLM__MAX(window, a->layer[i].window);
    return window;
}

LLM__PRIVATE const char *llm__revert_family(const llm_model *m) {
    const llm__arch *a = &m->arch;
    char type[32];
    snprintf(type, sizeof type, "%.*s", (int)strcspn(a->family->names, " "), a->family->names);
    if (!strcmp(type, "llama"))
        snprintf(type, sizeof type, "%s",
                 a->logn_beta > 0        ? "ministral3"
                 : a->n_experts          ? "mixtral"
                 : llm__revert_window(a) ? "mistral"
                                         : "llama");
    if (!strcmp(type, "deepseek_v2") && a->score == LLM_ROUTE_SIGMOID) snprintf(type, sizeof type, "deepseek_v3");
    if (!strcmp(type, "glm4") && a->position_rows == 3) return NULL; /* GLM-4.1V's text, whose pairs are parted */
    /* without positions, or with states, it is Granite 4's hybrid or Bamba, whose tensors are others */
    if (!strcmp(type, "granite") && (!a->n_rope || a->recurrent)) return NULL;
    const int row = llm__revert_row(type);
    return row < 0 ? NULL : llm__revertible[row].type;
}

static int llm__revert_is(const llm__reverting *r, const char *types) { return llm__word_in(types, r->type); }

/* 1 if the file has a tensor. */
static int llm__revert_has(const llm__reverting *r, const char *name) { return llm__tensors_find(&r->m->source.tensors, name) != NULL; }

/* A tensor of numbers, one a frequency; NULL: there is none. */
static const llm__tensor *llm__revert_divisors(const llm__reverting *r, const char *name) {
    const llm__tensor *t = llm__tensors_find(&r->m->source.tensors, name);
    return t && t->type == LLM_TYPE_F32 && t->shape[0] == r->a->rope[0].dim / 2 ? t : NULL;
}

/* "name": [numbers], */
static void llm__revert_list(const llm__reverting *r, const char *name, const llm__tensor *t) {
    llm_text_format(r->out, "%q: [", name);
    for (int64_t i = 0; i < t->shape[0]; i++) {
        if (i) llm_text_str(r->out, ", ");
        llm_text_num(r->out, (double)llm__element(t->type, t->data, i));
    }
    llm_text_str(r->out, "]");
}

/* The divisor that Llama 3 has for a wavelength: 1 below the original length / high, the factor above the original length / low. */
static double llm__revert_llama3(double wavelength, double factor, double low, double high, double original) {
    const double smooth = (original / wavelength - low) / (high - low);
    if (wavelength < original / high) return 1;
    if (wavelength > original / low) return factor;
    return 1 / ((1 - smooth) / factor + smooth);
}

/* Llama 3's numbers from its divisors: the factor is the largest, of the others low 1 and high 4 are tried, which all its models have. */
static llm_result llm__revert_stretched(const llm__reverting *r, const llm__tensor *t, double base) {
    static const double originals[] = {8192, 4096, 2048, 1024, 512, 256, 128, 64, 32};
    const int64_t half = t->shape[0];
    double factor = 1;
    for (int64_t i = 0; i < half; i++) factor = LLM__MAX(factor, (double)llm__element(t->type, t->data, i));
    for (int k = 0; k < LLM__COUNT(originals); k++) {
        double far = 0;
        for (int64_t i = 0; i < half; i++) {
            const double wavelength = 2 * 3.14159265358979323846 * pow(base, 2.0 * (double)i / r->a->rope[0].dim);
            const double is = (double)llm__element(t->type, t->data, i), want = llm__revert_llama3(wavelength, factor, 1, 4, originals[k]);
            far = LLM__MAX(far, fabs(is - want) / want);
        }
        if (far > 1e-4) continue;
        llm_text_str(r->out, ", \"rope_scaling\": {\"rope_type\": \"llama3\"");
        llm__revert_float(r->out, "factor", factor);
        llm_text_format(r->out, ", 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': %d}",
                        (int)originals[k]);
        return LLM_OK;
    }
    return llm__error(LLM_ERR_UNSUPPORTED, "%s: tensor rope_freqs.weight: these divisors of frequencies have no form in config.json",
                      r->m->path);
}

/* How positions turn, and how far they are stretched. */
static llm_result llm__revert_rope(llm__reverting *r) {
    const llm__arch *a = r->a;
    const double base = llm__fact_num(&r->f, ".rope.freq_base", (double)a->family->theta, 1.0001, 1e18);
    const llm__tensor *shorts = llm__revert_divisors(r, "rope_factors_short.weight"),
                      *longs = llm__revert_divisors(r, "rope_factors_long.weight"), *freqs = llm__revert_divisors(r, "rope_freqs.weight");
    char type[64];
    const int64_t original = llm__fact_int(&r->f, ".rope.scaling.original_context_length", a->max_positions, 1, 1 << 30);
    llm__revert_float(r->out, "rope_theta", base);
    if (llm__revert_is(r, "gemma3_text")) llm_text_str(r->out, ", \"rope_local_base_freq\": 10000.0");
    if (!(a->flags & LLM__MLA) && (a->rope[0].dim != a->head_dim || a->family->partial != 1)) /* Solar Open is glm4moe with whole heads */
        llm__revert_float(r->out, "partial_rotary_factor", (double)a->rope[0].dim / a->head_dim);
    if (freqs) return llm__revert_stretched(r, freqs, base);
    if (shorts && longs) {
        llm_text_format(r->out, ", 'original_max_position_embeddings': %l, 'rope_scaling': {'type': 'longrope', ", original);
        llm__revert_list(r, "short_factor", shorts);
        llm_text_str(r->out, ", ");
        llm__revert_list(r, "long_factor", longs);
        llm_text_str(r->out, "}");
        return LLM_OK;
    }
    llm__fact_str(&r->f, ".rope.scaling.type", type);
    if (!*type || !strcmp(type, "none")) return LLM_OK;
    if (strcmp(type, "linear") && strcmp(type, "yarn"))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: rope.scaling.type \"%.40s\" has no form in config.json here", r->m->path, type);
    llm_text_format(r->out, ", 'rope_scaling': {'rope_type': %q", type);
    llm__revert_float(r->out, "factor", llm__fact_num(&r->f, ".rope.scaling.factor", 1, 1e-2, 1e6));
    if (!strcmp(type, "yarn")) {
        const double all = llm__fact_num(&r->f, ".rope.scaling.yarn_log_multiplier", 0, -100, 100) / llm__yarn_log_unit(a),
                     attn = llm__fact_num(&r->f, ".rope.scaling.yarn_attn_factor", 0, 0, 1e6);
        llm_text_format(r->out, ", 'original_max_position_embeddings': %l", original);
        llm__revert_float(r->out, "beta_fast", llm__fact_num(&r->f, ".rope.scaling.yarn_beta_fast", 32, 1e-3, 1e6));
        llm__revert_float(r->out, "beta_slow", llm__fact_num(&r->f, ".rope.scaling.yarn_beta_slow", 1, 1e-3, 1e6));
        if (all > 0) llm__revert_float(r->out, "mscale", all), llm__revert_float(r->out, "mscale_all_dim", all);
        if (attn > 0) llm__revert_float(r->out, "attention_factor", attn);
        if (a->logn_beta > 0) llm__revert_float(r->out, "llama_4_scaling_beta", (double)a->logn_beta);
    }
    llm_text_str(r->out, "}");
    return LLM_OK;
}

/* Which layers see a window, and which have no positions. */
static void llm__revert_layers(const llm__reverting *r) {
    const llm__arch *a = r->a;
    const int32_t window = llm__revert_window(a);
    int bare = 0;
    if (llm__revert_is(r, "qwen2 qwen2_moe qwen3 qwen3_moe")) llm_text_str(r->out, ", \"use_sliding_window\": false");
    for (int i = 0; i < a->n_layers; i++) bare |= a->layer[i].rope < 0;
    if (window) llm_text_format(r->out, ", 'sliding_window': %d", (int)window);
    else if (llm__revert_is(r, "mistral phi3 starcoder2 mixtral")) llm_text_str(r->out, ", \"sliding_window\": null");
    if (window && llm__revert_is(r, "gemma2 gemma3_text")) {
        llm_text_str(r->out, ", \"layer_types\": [");
        for (int i = 0; i < a->n_layers; i++)
            llm_text_format(r->out, "%s%q", i ? ", " : "", a->layer[i].window ? "sliding_attention" : "full_attention");
        llm_text_str(r->out, "]");
    }
    if (!bare) return;
    llm_text_str(r->out, ", \"no_rope_layers\": [");
    for (int i = 0; i < a->n_layers; i++) llm_text_format(r->out, "%s%d", i ? ", " : "", a->layer[i].rope >= 0);
    llm_text_str(r->out, "]");
}

/* Heads; of latent attention its ranks and widths. */
static void llm__revert_heads(const llm__reverting *r) {
    const llm__arch *a = r->a;
    const int mla = (a->flags & LLM__MLA) != 0, bias = llm__revert_has(r, "blk.0.attn_q.bias");
    llm_text_format(r->out, ", 'num_attention_heads': %d, 'num_key_value_heads': %d", a->n_heads, mla ? a->n_heads : a->n_kv_heads);
    if (!mla) llm_text_format(r->out, ", 'head_dim': %d", a->head_dim);
    if (mla && a->q_rank) llm_text_format(r->out, ", 'q_lora_rank': %d", a->q_rank);
    else if (mla) llm_text_str(r->out, ", \"q_lora_rank\": null");
    if (mla)
        llm_text_format(r->out, ", 'kv_lora_rank': %d, 'qk_nope_head_dim': %d, 'qk_rope_head_dim': %d, 'v_head_dim': %d", a->kv_rank,
                        a->nope, a->rope[0].dim, a->v_head_dim);
    if (llm__revert_is(r, "starcoder2 ernie4_5 ernie4_5_moe"))
        llm_text_format(r->out, ", 'use_bias': %b", bias || llm__revert_has(r, "blk.0.ffn_down.bias"));
    else if (!llm__revert_is(r, "qwen2 qwen2_moe mixtral mistral")) llm_text_format(r->out, ", 'attention_bias': %b", bias);
    if (llm__revert_is(r, "llama granite")) llm_text_format(r->out, ", 'mlp_bias': %b", llm__revert_has(r, "blk.0.ffn_down.bias"));
    if (llm__revert_is(r, "cohere glm4_moe"))
        llm_text_format(r->out, ", 'use_qk_norm': %b", llm__revert_has(r, "blk.0.attn_q_norm.weight"));
}

/* The mixture of experts, in the words of its family. */
static void llm__revert_experts(const llm__reverting *r) {
    const llm__arch *a = r->a;
    int dense = 0;
    if (!a->n_experts) return;
    while (dense < a->n_layers && !a->layer[dense].moe) dense++;
    const int shared = a->ff_shared / LLM__MAX(a->ff_expert, 1);
    if (llm__revert_is(r, "mixtral")) {
        llm_text_format(r->out, ", 'num_local_experts': %d, 'num_experts_per_tok': %d", a->n_experts, a->n_used);
        return;
    }
    llm_text_format(r->out, ", 'moe_intermediate_size': %d", a->ff_expert);
    if (llm__revert_is(r, "qwen2_moe qwen3_moe")) {
        llm_text_format(r->out, ", 'num_experts': %d, 'num_experts_per_tok': %d, 'norm_topk_prob': %b, 'decoder_sparse_step': 1",
                        a->n_experts, a->n_used, a->normalize);
        llm_text_str(r->out, ", \"mlp_only_layers\": [");
        for (int i = 0; i < dense; i++) llm_text_format(r->out, "%s%d", i ? ", " : "", i);
        llm_text_str(r->out, "]");
        if (a->ff_shared) llm_text_format(r->out, ", 'shared_expert_intermediate_size': %d", a->ff_shared);
    } else if (llm__revert_is(r, "ernie4_5_moe"))
        llm_text_format(r->out,
                        ", 'moe_num_experts': %d, 'moe_k': %d, 'moe_num_shared_experts': %d, 'moe_layer_start_index': %d, "
                        "'moe_layer_interval': 1, 'moe_layer_end_index': -1, 'moe_norm_min': 1e-12",
                        a->n_experts, a->n_used, shared, dense);
    else {
        llm_text_format(r->out,
                        ", 'n_routed_experts': %d, 'num_experts_per_tok': %d, 'n_shared_experts': %d, 'first_k_dense_replace': %d, "
                        "'moe_layer_freq': 1, 'norm_topk_prob': %b, 'n_group': %d, 'topk_group': %d",
                        a->n_experts, a->n_used, shared, dense, a->normalize, LLM__MAX(a->n_group, 1), LLM__MAX(a->topk_group, 1));
        llm__revert_float(r->out, "routed_scaling_factor", (double)a->route_scale);
        if (a->flags & LLM__MLA)
            llm_text_format(r->out, ", 'scoring_func': %q, 'topk_method': %q", a->score == LLM_ROUTE_SIGMOID ? "sigmoid" : "softmax",
                            a->score == LLM_ROUTE_SIGMOID ? "noaux_tc"
                            : a->n_group > 1              ? "group_limited_greedy"
                                                          : "greedy");
    }
}

/* Numbers that multiply or cap something. */
static void llm__revert_numbers(const llm__reverting *r) {
    const llm__arch *a = r->a;
    const double query = 1 / ((double)a->attn_scale * (double)a->attn_scale);
    if (llm__revert_is(r, "granite")) {
        llm__revert_float(r->out, "embedding_multiplier", (double)a->embed_scale);
        llm__revert_float(r->out, "residual_multiplier", (double)a->residual_scale);
        llm__revert_float(r->out, "attention_multiplier", (double)a->attn_scale);
        llm__revert_float(r->out, "logits_scaling", 1 / (double)a->logit_scale);
    }
    if (llm__revert_is(r, "cohere")) llm__revert_float(r->out, "logit_scale", (double)a->logit_scale);
    if (!llm__revert_is(r, "gemma2 gemma3_text")) return;
    llm_text_format(r->out, ", 'query_pre_attn_scalar': %f", fabs(query - rint(query)) < 1e-3 * query ? rint(query) : query);
    if (a->attn_softcap > 0) llm__revert_float(r->out, "attn_logit_softcapping", (double)a->attn_softcap);
    else llm_text_str(r->out, ", \"attn_logit_softcapping\": null");
    if (a->logit_softcap > 0) llm__revert_float(r->out, "final_logit_softcapping", (double)a->logit_softcap);
    else llm_text_str(r->out, ", \"final_logit_softcapping\": null");
}

LLM__PRIVATE llm_result llm__revert_config(const llm_model *m, const char *dtype, llm_text *out) {
    const llm__arch *a = &m->arch;
    llm__reverting r = LLM__ZERO;
    r.m = m, r.a = a, r.out = out, r.type = llm__revert_family(m);
    r.f.gguf = m->source.gguf, r.f.path = m->path;
    const llm__str arch = llm__gguf_str(m->source.gguf, "general.architecture");
    snprintf(r.f.arch, sizeof r.f.arch, "%.*s", (int)LLM__MIN(arch.n, (size_t)40), arch.p ? arch.p : "");
    const char *eps = llm__revert_is(&r, "cohere") ? "layer_norm_eps" : llm__revert_is(&r, "starcoder2") ? "norm_epsilon" : "rms_norm_eps";
    const char *act = a->act == LLM_ACT_SILU ? "silu" : "gelu_pytorch_tanh";
    llm_text_format(out, "{'architectures': [%q], 'model_type': %q, 'torch_dtype': %q", llm__revertible[llm__revert_row(r.type)].class_name,
                    r.type, dtype);
    llm_text_format(out, ", 'hidden_size': %d, 'intermediate_size': %d, 'num_hidden_layers': %d, 'vocab_size': %d", a->hidden,
                    llm__revert_is(&r, "mixtral") ? a->ff_expert : a->ff, a->n_layers, a->vocab);
    llm_text_format(out, ", 'max_position_embeddings': %d, %q: %f, 'hidden_act': %q", a->max_positions, eps,
                    llm__fact_num(&r.f, ".attention.layer_norm_rms_epsilon .attention.layer_norm_epsilon", (double)a->eps, 0, 1), act);
    if (a->act != LLM_ACT_SILU) llm_text_format(out, ", 'hidden_activation': %q", act);
    llm_text_format(out, ", 'tie_word_embeddings': %b", !llm__revert_has(&r, "output.weight"));
    const int32_t id[3] = {m->source.bos_id, m->source.eos_id, m->source.pad_id};
    static const char *const names[3] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    for (int i = 0; i < 3; i++)
        if (id[i] >= 0) llm_text_format(out, ", %q: %d", names[i], id[i]);
    llm__revert_heads(&r);
    llm__revert_layers(&r);
    llm__revert_experts(&r);
    llm__revert_numbers(&r);
    const llm_result rope = llm__revert_rope(&r);
    llm_text_str(out, "}\n");
    return rope ? rope : r.f.r ? r.f.r : out->failed ? llm__nomem() : LLM_OK;
}
