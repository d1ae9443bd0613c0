#include "model/rope.h"
#include "api/config.h"
#include "api/json.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/source.h"
#include "model/facts.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/arch_gemma4.h"
#include "model/arch_gemma3n.h"
#include "model/arch_encoder.h"
#include "model/arch_recurrent.h"
#include "model/arch_mixtures.h"

/* How far YaRN stretches attention: 0.1 * mscale * ln(factor) + 1, found by trial in its paper. */
static double llm__yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1; }

LLM__PRIVATE double llm__yarn_log_unit(const llm__arch *a) { return a->flags & LLM__MLA ? 0.1 : 1; }

static double llm__yarn_all(llm__facts *f, const llm__arch *a, const char *key) {
    return llm__fact_num(f, key, llm__fact_num(f, ".rope.scaling.yarn_log_multiplier", 0, 0, 10) / llm__yarn_log_unit(a), 0, 100);
}

/* YaRN (Peng et al. 2023): frequencies that turn often within the original length stay, slow ones are divided by the
 * factor, between them a ramp. The i-th frequency turns `original * base^(-2i/d) / 2 pi` times; solved for i, "fast" and
 * "slow" turns give the ramp's two ends. DeepSeek corrects the multiplier by a second one (mscale / mscale_all_dim). */
static void llm__rope_yarn(llm__facts *f, const llm__arch *a, double base, double factor, double original, llm__rope *out) {
    const double two_pi = 2 * 3.14159265358979323846;
    double fast = llm__fact_num(f, "beta_fast .rope.scaling.yarn_beta_fast", 32, 1e-3, 1e6);
    double slow = llm__fact_num(f, "beta_slow .rope.scaling.yarn_beta_slow", 1, 1e-3, 1e6);
    double all = llm__yarn_all(f, a, "mscale_all_dim"), mscale = llm__yarn_all(f, a, "mscale");
    double usual = mscale > 0 && all > 0 ? llm__yarn_mscale(factor, mscale) / llm__yarn_mscale(factor, all) : llm__yarn_mscale(factor, 1);
    int truncate = llm__fact_bool(f, "truncate", !llm__arch_is(a, "gpt_oss")), d = out->dim;
    double low = d * log(original / (fast * two_pi)) / (2 * log(base)), high = d * log(original / (slow * two_pi)) / (2 * log(base));
    low = LLM__MAX(truncate ? floor(low) : low, 0);
    high = LLM__MIN(truncate ? ceil(high) : high, d - 1);
    if (low == high) high += 0.001;
    for (int i = 0; i < d / 2; i++) {
        double ramp = LLM__MIN(LLM__MAX((i - low) / (high - low), 0), 1);
        out->inv_freq[i] = (float)(out->inv_freq[i] * (1 - ramp) + out->inv_freq[i] / factor * ramp);
    }
    out->scale[0] = (float)llm__fact_num(f, "attention_factor .rope.scaling.yarn_attn_factor", usual, 1e-6, 1e6);
}

/* Llama 3.1: the same idea by wavelength. `turns`: how often a frequency turns within the original length. */
static void llm__rope_llama3(llm__facts *f, double factor, double original, llm__rope *out) {
    double low = llm__fact_num(f, "low_freq_factor", 1, 1e-6, 1e6), high = llm__fact_num(f, "high_freq_factor", 4, 1e-6, 1e6);
    for (int i = 0; i < out->dim / 2; i++) {
        /* fewer than `low`: divided by the factor, more than `high`: kept, between: a mix */
        double turns = original * out->inv_freq[i] / (2 * 3.14159265358979323846), keep = (turns - low) / LLM__MAX(high - low, 1e-9);
        if (turns < low) keep = 0;
        else if (turns > high) keep = 1;
        out->inv_freq[i] = (float)(out->inv_freq[i] * ((1 - keep) / factor + keep));
    }
}

/* Divides n frequencies by as many factors of a JSON array or of an F32 tensor of a GGUF file: `to` = from / factor.
 * 1 if they are there. */
static int llm__rope_divide(llm__facts *f, const llm__tensors *tensors, const char *key, const char *tensor, int n, const float *from,
                            float *to) {
    int list = llm__facts_find(f, key).node, v = llm_json_first(f->json, list), ok = llm_json_size(f->json, list) == n;
    const llm__tensor *t = tensors && f->gguf ? llm__tensors_find(tensors, tensor) : NULL;
    if (list < 0 && !t) return 0;
    if (t) ok = t->type == LLM_TYPE_F32 && t->shape[0] == n && t->bytes == n * 4;
    for (int i = 0; ok && i < n; i++) {
        double factor = 0;
        float x;
        if (t) memcpy(&x, t->data + 4 * i, 4), factor = x;
        else llm_json_num(f->json, v, &factor), v = llm_json_next(f->json, v);
        ok = factor > 1e-6 && factor < 2e30; /* llama.cpp writes 1e30 for what does not turn */
        to[i] = (float)(from[i] / factor);
    }
    if (!ok && !f->r) f->r = llm__error(LLM_ERR_FORMAT, "%s: %s: %d positive numbers expected", f->path, f->json ? key : tensor, n);
    return ok;
}

/* The length a model was first trained for, which the schemes stretch. */
static int32_t llm__rope_original(llm__facts *f, const llm__arch *a) {
    return llm__fact_int(f, "original_max_position_embeddings .rope.scaling.original_context_length", a->max_positions, 1, 1 << 30);
}

/* A multiplier of cosines and sines that must be there. */
static double llm__rope_mscale(llm__facts *f, const char *key) {
    const llm__fact fact = llm__facts_find(f, key);
    if (fact.node < 0) llm__facts_bad(f, &fact, "missing");
    return llm__fact_num(f, key, 1, 1e-6, 1e6);
}

/* LongRoPE (Ding et al. 2024): own factors for every frequency, one set for short prompts and one for long ones. A
 * request keeps the set that its prompt's length asks for; attention is stretched by the same amount in both. */
static void llm__rope_long(llm__facts *f, llm__arch *a, const llm__tensors *tensors, llm__rope *out) {
    int half = out->dim / 2;
    double original = llm__rope_original(f, a), stretch = llm__fact_num(f, "factor", a->max_positions / original, 1e-3, 1e6);
    double usual = stretch <= 1 || original <= 1 ? 1 : sqrt(1 + log(stretch) / log(original));
    float near[LLM__MAX_ROPE / 2]; /* both sets are made of the same frequencies, whose place the short one takes */
    int ok = llm__rope_divide(f, tensors, "short_factor", "rope_factors_short.weight", half, out->inv_freq, near) &&
             llm__rope_divide(f, tensors, "long_factor", "rope_factors_long.weight", half, out->inv_freq, out->inv_freq + half);
    if (!ok && f->json && !f->r) f->r = llm__error(LLM_ERR_FORMAT, "%s: config.json: short_factor: missing", f->path);
    if (!ok) return;
    memcpy(out->inv_freq, near, (size_t)half * sizeof *near);
    a->long_from = (int32_t)original;
    if (f->json && llm__arch_is(a, "phimoe")) { /* transformers has two multipliers here, and the short factors for all lengths */
        memcpy(out->inv_freq + half, near, (size_t)half * sizeof *near);
        out->scale[0] = (float)llm__rope_mscale(f, "short_mscale"), out->scale[1] = (float)llm__rope_mscale(f, "long_mscale");
        return;
    }
    out->scale[0] = out->scale[1] = (float)llm__fact_num(f, "attention_factor .rope.scaling.attn_factor", usual, 1e-6, 1e6);
}

/* Hunyuan's alpha, which stretches the base once and for all lengths though its scheme is called dynamic; 0: there is none. */
static double llm__rope_alpha(llm__facts *f, const llm__arch *a) {
    return f->json && llm__arch_is(a, "hunyuan_v1_dense hunyuan_v1_moe") ? llm__fact_num(f, "alpha", 0, 0, 1e9) : 0;
}

/* 1 where Apertus says nothing of RoPE: then its class has Llama 3's scheme, with a base that no other word changes. */
static int llm__rope_silent(const llm__facts *f, const llm__arch *a) {
    return f->json && llm__arch_is(a, "apertus") && llm__facts_find(f, "rope_parameters rope_scaling").node < 0;
}

LLM__PRIVATE double llm__rope_base(llm__facts *f, const llm__arch *a, double base) {
    char type[64];
    if (llm__rope_silent(f, a)) return base;
    base = llm__fact_num(f, "rope_theta global_rope_theta rotary_emb_base rope_base .rope.freq_base", base, 1.0001, 1e18);
    if (llm__arch_is(a, "chatglm")) base *= llm__fact_num(f, "rope_ratio", 1, 1e-3, 1e6);
    const double alpha = strcmp(llm__fact_str(f, "rope_type type", type), "dynamic") ? 0 : llm__rope_alpha(f, a);
    return alpha > 0 && a->rope[0].dim > 2 ? base * pow(alpha, a->rope[0].dim / (a->rope[0].dim - 2.0)) : base;
}

/* The share of frequencies that turn where a folder does not say how they are stretched, 0: all do. */
static double llm__rope_share(const llm__facts *f, const llm__arch *a, const char *type) {
    if (!f->json || type[0]) return 0;
    if (llm__arch_is(a, "gemma4_text")) return a->encoder ? 0 : 0.25;
    return llm__arch_is(a, "lfm3") && llm__facts_find(f, "rope_parameters rope_scaling").node < 0 ? 0.5 : 0;
}

/* Gemma 4's "proportional": as if all of a head turned, but only the first share of its frequencies is not 0. */
static void llm__rope_part(llm__facts *f, double usual, llm__rope *out) {
    const int half = out->dim / 2, turns = (int)(llm__fact_num(f, "partial_rotary_factor", usual, 0, 1) * out->dim) / 2;
    const double factor = llm__fact_num(f, "factor", 1, 1e-2, 1e6);
    for (int i = 0; i < half; i++) out->inv_freq[i] = out->inv_freq[half + i] = i < turns ? (float)(out->inv_freq[i] / factor) : 0;
}

/* GTE's "ntk", for all lengths: w[i] = (factor base)^(-2i/d) factor^(-2/d), which keeps the slowest as linear scaling would have it. */
static void llm__rope_ntk(double base, double factor, llm__rope *out) {
    const int half = out->dim / 2;
    for (int i = 0; i < half; i++)
        out->inv_freq[i] = out->inv_freq[half + i] = (float)(pow(base * factor, -2.0 * i / out->dim) / pow(factor, 2.0 / out->dim));
}

/* One set of frequencies. Values are looked for in the RoPE object first (f->node[0]). `local`: the set of sliding
 * layers when the file has no object for them: a base, and no scaling. */
static void llm__rope_fill(llm__facts *f, llm__arch *a, const llm__tensors *tensors, double base, int local, llm__rope *out) {
    char type[64];
    int half = out->dim / 2;
    base = local ? llm__fact_num(f, ".rope.freq_base_swa", base, 1.0001, 1e18) : llm__rope_base(f, a, base);
    /* w[i] = base^(-2i/d): from one turn in 2 pi tokens down to one in 2 pi * base */
    for (int i = 0; i < half; i++) out->inv_freq[i] = out->inv_freq[half + i] = (float)pow(base, -2.0 * i / out->dim);
    out->scale[0] = out->scale[1] = 1;
    out->base = base;
    if (local) return;
    /* the scheme: an older word and a newer one; without any, or with a name that says none, nothing is stretched */
    llm__fact_str(f, "rope_type type .rope.scaling.type", type);
    a->scaled |= llm__rope_divide(f, tensors, "", "rope_freqs.weight", half, out->inv_freq,
                                  out->inv_freq); /* llama3's, worked out by the converter */
    if (llm__word_in("longrope su", type) || (f->gguf && llm__tensors_find(tensors, "rope_factors_long.weight"))) {
        a->scaled = 1;
        llm__rope_long(f, a, tensors, out);
        return;
    }
    const int silent = llm__rope_silent(f, a);
    const double share = llm__rope_share(f, a, type); /* of the class, where nothing is said */
    if (share > 0 || !strcmp(type, "proportional")) {
        llm__rope_part(f, share > 0 ? share : 1, out);
        return;
    }
    if (silent) snprintf(type, sizeof type, "llama3");
    const int alpha = !strcmp(type, "dynamic") && llm__rope_alpha(f, a) > 0;
    if (!type[0] || alpha || llm__word_in("default none mrope", type)) return;
    a->scaled |= strcmp(type, "dynamic") != 0;
    if (llm__arch_is(a, "gte") && !strcmp(type, "ntk") && llm__facts_find(f, "mixed_b").node < 0) {
        llm__rope_ntk(base, llm__fact_num(f, "factor", 1, 1, 1e6), out);
        return;
    }
    double original = silent ? 8192 : llm__rope_original(f, a);
    double factor = silent ? 8 : llm__fact_num(f, "factor .rope.scaling.factor", a->max_positions / original, 1e-2, 1e6);
    if (llm__arch_is(a, "phimoe") && !f->r) /* it would have a multiplier of its own for each */
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: rope_scaling: type \"%.40s\" of phimoe is not supported", f->path, type);
    if (!strcmp(type, "linear")) {
        for (int i = 0; i < half; i++) out->inv_freq[i] = (float)(out->inv_freq[i] / factor);
    } else if (llm__word_in("yarn deepseek_yarn", type)) { /* another name for the same */
        llm__rope_yarn(f, a, base, factor, original, out);
    } else if (!strcmp(type, "llama3")) {
        llm__rope_llama3(f, factor, original, out);
    } else if (!strcmp(type, "dynamic")) { /* the base grows with the prompt: llm__net_rope_of */
        a->dynamic = 1;
        a->dynamic_factor = LLM__MIN(factor, 1000);
        a->dynamic_from = a->max_positions;
    } else if (!f->r) {
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: rope_scaling: type \"%.40s\" is not supported", f->path, type);
    }
}

/* 1 for those of Granite 4 that have no positions at all, and where nothing attends. */
static int llm__rope_none(llm__facts *f, const llm__arch *a) {
    char type[64];
    if (llm__arch_is(a, "mamba mamba2")) return 1;
    if (a->gguf) return llm__arch_is(a, "granite granitemoe") && !llm__fact_bool(f, ".rope.scaling.finetuned", 1);
    return llm__arch_hybrid(a) && strcmp(llm__fact_str(f, "position_embedding_type", type), "rope") != 0;
}

/* How many values of a head turn (the others carry no position), and which are pairs: (2i, 2i + 1), or (i, i +
 * rope_dim / 2). */
static void llm__rope_turned(llm__facts *f, llm__arch *a) {
    a->rope_pairs = (a->flags & (a->gguf ? LLM__PAIRS_GGUF : LLM__PAIRS)) != 0;
    if (a->flags & LLM__MLA) a->rope_pairs = llm__fact_bool(f, "rope_interleave", a->rope_pairs);
    const int32_t head = a->full_head_dim ? a->full_head_dim : a->head_dim;
    double partial = llm__fact_num(f, "partial_rotary_factor rotary_pct rope_pct rotary_emb_fraction", a->family->partial, 1e-3, 1);
    if (llm__arch_is(a, "gemma4_text lfm3")) partial = 1; /* its share is one of frequencies */
    const int dim = (int)(head * partial), none = a->flags & (LLM__LEARNED | LLM__ALIBI) || llm__rope_none(f, a);
    /* MiniMax's rotary_dim is an older word for a share, which beats it */
    const int share = llm__arch_is(a, "minimax_m2") && llm__facts_find(f, "partial_rotary_factor").node >= 0;
    const char *words = share ? ".rope.dimension_count" : "rotary_dim .rope.dimension_count";
    if (!(a->flags & LLM__MLA)) a->rope[0].dim = llm__fact_int(f, words, dim, 2, LLM__MAX_ROPE);
    if (none) a->rope[0].dim = 0;
    const int turns = a->rope[0].dim, least = none ? 0 : 2;
    if (!f->r && (turns < least || turns % 2 || turns > LLM__MIN(head, (int)LLM__MAX_ROPE)))
        f->r =
            llm__error(LLM_ERR_FORMAT, "%s: RoPE turns %d of %d values of a head, an even number from 2 to all, %d at most, was expected",
                       f->path, turns, head, (int)LLM__MAX_ROPE);
    a->rope[0].dim = LLM__MIN(turns, (int)LLM__MAX_ROPE);
}

/* Whether Llama 4 stretches queries: true or false, or a number as its first files have it. */
static int llm__rope_tempered(llm__facts *f) {
    const llm__fact fact = llm__facts_find(f, "attn_temperature_tuning");
    if (llm_json_type_of(f->json, fact.node) == LLM_JSON_NUMBER) return llm__fact_int(f, "attn_temperature_tuning", 0, 0, 1 << 20) != 0;
    return llm__fact_bool(f, "attn_temperature_tuning", 1);
}

/* How long texts may be that a folder's scheme stretches, as vLLM works it out: YaRN the length of training, linear scaling what
 * config.json calls the longest, which is never cut. That of the other schemes is stretched already; so is Gemma 3's. */
static void llm__rope_length(llm__facts *f, llm__arch *a) {
    char type[64];
    llm__fact_str(f, "rope_type type", type);
    const int yarn = llm__word_in("yarn deepseek_yarn", type), gemma = llm__arch_is(a, "gemma3_text gemma3n_text");
    if (!a->n_rope || gemma || (!yarn && strcmp(type, "linear"))) return;
    const double original = llm__rope_original(f, a), factor = llm__fact_num(f, "factor", a->max_positions / original, 1e-2, 1e6);
    a->max_len = (int32_t)LLM__MIN(LLM__MAX((yarn ? original : a->max_positions) * factor, a->max_positions), 1 << 30);
}

/* What a stretched length changes besides the frequencies: the scale of attention, and how long texts may be. */
static void llm__rope_reach(llm__facts *f, llm__arch *a) {
    double all = llm__yarn_all(f, a, "mscale_all_dim");
    double stretch = llm__yarn_mscale(llm__fact_num(f, "factor .rope.scaling.factor", 1, 1e-2, 1e6), all);
    if (a->flags & LLM__MLA && all > 0) a->attn_scale *= (float)(stretch * stretch);
    if (llm__fact_bool(f, "use_dynamic_ntk", 0)) {
        a->dynamic = 2;
        a->dynamic_from = llm__fact_int(f, "seq_length", a->max_positions, 1, 1 << 30);
    }
    if (a->dynamic == 1) /* it has no end of its own */
        a->max_len = (int32_t)LLM__MIN(LLM__MAX(a->max_positions * LLM__MAX(a->dynamic_factor, 1), 2048), 1 << 30);
    llm__rope_length(f, a);
    a->logn_beta = (float)llm__fact_num(f, "llama_4_scaling_beta .attention.temperature_scale", 0, 0, 1e6);
    if (a->logn_beta > 0) a->logn_from = llm__fact_int(f, ".attention.temperature_length", llm__rope_original(f, a), 1, 1 << 30);
    if (!llm__arch_is(a, "llama4_text") || !llm__rope_tempered(f)) return;
    a->logn_beta = (float)llm__fact_num(f, "attn_scale .attention.temperature_scale", 0.1, 0, 1e6);
    a->logn_from = a->logn_beta > 0 ? llm__fact_int(f, "floor_scale .attention.temperature_length", 8192, 1, 1 << 30) : 0;
    a->logn_ahead = 1;
}

/* Granite's models with windows list the base of each layer, 0 where it has no positions. Of such a list the bases that differ, which are
 * two at most, and in `of` which of them each layer has, -1: none. Returns how many they are, -1: there is no list. */
static int llm__rope_listed(llm__facts *f, const llm__arch *a, double base[2], int8_t of[LLM__MAX_LAYERS]) {
    const llm__fact fact = llm__facts_find(f, "layer_rope_theta");
    int v = llm_json_first(f->json, fact.node), n = 0, ok = llm_json_size(f->json, fact.node) == a->n_layers;
    if (!llm__arch_is(a, "granite_swa") || fact.node < 0) return -1;
    for (int i = 0; i < a->n_layers && ok; i++, v = llm_json_next(f->json, v)) {
        double theta = 0;
        int which = 0;
        ok = llm_json_num(f->json, v, &theta) && (theta == 0 || (theta > 1 && theta <= 1e18));
        while (which < n && base[which] != theta) which++;
        ok &= theta == 0 || which < 2;
        if (ok && theta != 0 && which == n) base[n++] = theta;
        of[i] = (int8_t)(theta == 0 ? -1 : which);
    }
    if (!ok) llm__facts_bad(f, &fact, "a base, or 0, for each layer, of which two may differ, expected");
    return n;
}

/* Frequencies by such a list. */
static void llm__rope_bases(llm__facts *f, llm__arch *a, const llm__tensors *tensors) {
    double base[2] = {0, 0};
    int8_t of[LLM__MAX_LAYERS];
    char type[64];
    const int n = llm__rope_listed(f, a, base, of);
    if (n < 0) return;
    llm__fact_str(f, "rope_type type", type);
    if (type[0] && strcmp(type, "default") && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: rope_type: \"%.40s\" beside layer_rope_theta, default expected", f->path,
                          type);
    for (int i = 0; i < n; i++) {
        a->rope[i].dim = a->rope[0].dim;
        llm__rope_fill(f, a, tensors, base[i], 1, &a->rope[i]);
    }
    if (!n) a->rope[0].dim = 0;
    a->n_rope = n;
}

/* Which frequencies each layer has, where its file lists them; GGUF has only whether there are any. */
static void llm__rope_by_layer(llm__facts *f, llm__arch *a) {
    double base[2] = {0, 0};
    int8_t of[LLM__MAX_LAYERS];
    const llm__fact key = llm__facts_find(f, ".attention.rope_pattern");
    if (llm__rope_listed(f, a, base, of) >= 0 && !f->r)
        for (int i = 0; i < a->n_layers; i++) a->layer[i].rope = of[i];
    if (!key.kv || f->r) return;
    if (!key.kv->is_array || key.kv->type != LLM__GGUF_BOOL || key.kv->count < (uint64_t)a->n_layers)
        llm__facts_bad(f, &key, "true or false for each layer expected");
    for (int i = 0; i < a->n_layers && !f->r; i++)
        if (!key.kv->data[i]) a->layer[i].rope = -1;
}

/* The sets of frequencies of a model: one, or a global and a local one (Gemma 3, OLMo 3: rope_parameters by layer
 * type, or a base of their own). */
static void llm__arch_rope(llm__facts *f, llm__arch *a, const llm__tensors *tensors) {
    int object = llm__facts_find(f, "rope_parameters rope_scaling").node;
    int global = llm_json_find(f->json, object, "full_attention"), local = llm_json_find(f->json, object, "sliding_attention");
    const int two = llm__arch_is(a, "mellum lfm3") && (f->json ? object < 0 : llm__facts_find(f, ".rope.freq_base_swa").kv != NULL);
    int olmo = llm__arch_is(a, "olmo2") && (!strcmp(a->name, "olmo3") || llm__facts_find(f, ".attention.sliding_window").kv);
    llm__facts in = llm__facts_in(f, global >= 0 ? global : object), near = llm__facts_in(f, local);
    llm__rope_turned(&in, a);
    if (!in.r && a->rope[0].dim) {
        llm__rope_fill(&in, a, tensors, a->family->theta, 0, &a->rope[0]);
        a->n_rope = !llm__arch_is(a, "kimi_linear"); /* whose heads have values for it that do not turn */
    }
    if (!in.r && a->rope[0].dim &&
        (local >= 0 || olmo || two || llm__arch_is(a, "gemma3_text gemma3n_text gemma4_text modernbert mimo_v2_flash"))) {
        double base = olmo ? llm__fact_num(&in, "rope_theta .rope.freq_base", a->family->theta, 1.0001, 1e18) : 1e4;
        base = llm__fact_num(&in, "rope_local_base_freq local_rope_theta swa_rope_theta", base, 1.0001, 1e18);
        a->rope[1].dim = a->rope[0].dim;
        if (a->full_head_dim) a->rope[1].dim = llm__fact_int(&near, ".rope.dimension_count_swa", a->head_dim, 2, LLM__MAX_ROPE);
        llm__rope_fill(&near, a, tensors, base, local < 0, &a->rope[1]);
        a->n_rope = 2;
        if (!in.r) in.r = near.r;
    }
    llm__rope_bases(&in, a, tensors);
    for (int i = 0; i < LLM__MAX_ROPE && llm__arch_is(a, "nanochat"); i++) a->rope[0].inv_freq[i] *= -1; /* it turns the other way round */
    llm__rope_reach(&in, a);
    f->r = in.r;
}

/* Where tokens of pictures have places in time, height and width, each frequency takes one of the three. The file says how many take which:
 * in blocks (Qwen2-VL), by turns as far as they go (Qwen3-VL), or height and width by turns and then time (ERNIE 4.5 VL). */
static void llm__arch_sections(llm__facts *f, llm__arch *a) {
    llm__facts in = llm__facts_in(f, llm__facts_find(f, "rope_parameters rope_scaling").node);
    const int half = a->rope[0].dim / 2, ernie = a->n_sets > 1 || llm__word_in("ernie4_5_vl_moe_text ernie4_5_moe_vl", a->name);
    const int qwen3 = llm__word_in("qwen3vl qwen3vlmoe qwen3_vl_text qwen3_vl_moe_text", a->name);
    const int hybrid = llm__arch_is(a, "qwen3_5_text qwen3_5_moe_text"); /* Qwen3.5, which takes turns too */
    const int turns = qwen3 || hybrid || llm__fact_bool(&in, "mrope_interleaved", 0);
    const char *key = a->gguf ? ".rope.dimension_sections" : "mrope_section";
    int n[3] = {0, 0, 0};
    const llm__fact list = llm__facts_find(&in, key);
    double v = 0;
    a->position_rows = 1;
    const int told = list.node >= 0 || list.kv,
              glm = llm__word_in("glm4v_text glm4v glm46v glm4v_moe_text glm4v_moe glm_ocr_text glm_ocr", a->name),
              paddle = llm__word_in("paddleocr_vl_text paddleocr_vl", a->name);
    if (!told && !ernie && (a->gguf || !(qwen3 || hybrid || glm || paddle))) return;
    for (int i = 0; i < 3; i++) {
        n[i] = list.node >= 0 ? llm__fact_item(&in, key, i, 0, 0, LLM__MAX_ROPE) : 0;
        if (list.kv && llm__gguf_num_at(list.kv, (uint64_t)i, &v) && v >= 0 && v <= (double)LLM__MAX_ROPE) n[i] = (int)v;
    }
    /* Qwen's take turns whether their files say so or not, and where they have no sections they are those of their classes */
    if (glm && !told) n[0] = 8, n[1] = n[2] = 12;
    if (paddle && !told) n[0] = 16, n[1] = n[2] = 24;
    if (qwen3 && !told) n[0] = 24, n[1] = n[2] = 20;
    if (hybrid && !told) n[0] = n[1] = 11, n[2] = 10;
    if (ernie && list.node < 0) { /* its first config.json has the number of those that take the time */
        n[2] = llm__fact_int(&in, "freq_allocation", half / 4, 0, half);
        n[0] = n[1] = (half - n[2]) / 2;
    }
    if (n[0] + n[1] + n[2] != half && !(hybrid && !told) && !in.r)
        in.r = llm__error(LLM_ERR_FORMAT, "%s: mrope_section: %d, %d and %d, the sum of %d expected", f->path, n[0], n[1], n[2], half);
    a->position_rows = 3;
    /* llama.cpp turns no pairs by three positions: its converter has parted those of GLM-4.1V, which is how such a file is known */
    if (a->gguf && llm__arch_is(a, "glm4")) a->rope_pairs = 0;
    for (int i = 0; i < half; i++) {
        int row = i < n[0] ? 0 : i < n[0] + n[1] ? 1 : 2;
        if (turns) row = i % 3 == 1 && i < 3 * n[1] ? 1 : i % 3 == 2 && i < 3 * n[2] ? 2 : 0;
        if (ernie) row = i < n[0] + n[1] ? 1 + i % 2 : 0;
        a->rope_row[i] = (int8_t)row;
    }
    f->r = in.r;
}

/* Slopes of ALiBi (Press et al. 2021): powers of 2^(-8/n), then of half that for heads beyond a power of two. */
static void llm__arch_alibi(llm__arch *a) {
    int n = 1;
    while (2 * n <= a->n_heads) n *= 2;
    for (int h = 0; h < a->n_heads; h++) a->alibi[h] = (float)pow(2, h < n ? -8.0 * (h + 1) / n : -4.0 * (2 * (h - n) + 1) / n);
}

/* What no single value can tell: counts that must divide each other, and products that must stay small. */
static llm_result llm__arch_check(const llm__facts *f, const llm__arch *a) {
    if (a->n_heads % a->n_kv_heads)
        return llm__error(LLM_ERR_FORMAT, "%s: %d query heads cannot share %d key heads evenly", f->path, a->n_heads, a->n_kv_heads);
    if (a->flags & LLM__MLA && a->nope < 1)
        return llm__error(LLM_ERR_FORMAT, "%s: a latent key of %d values, of which %d turn", f->path, a->head_dim, a->rope[0].dim);
    if (a->flags & LLM__LEARNED && a->max_positions > 1 << 20)
        return llm__error(LLM_ERR_LIMIT, "%s: a table of %d positions is too long", f->path, a->max_positions);
    if ((int64_t)a->n_heads * LLM__MAX(a->head_dim, a->v_head_dim) > 1 << 20)
        return llm__error(LLM_ERR_LIMIT, "%s: %d heads of %d values are more than %d", f->path, a->n_heads, a->head_dim, 1 << 20);
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__arch_read(const llm__source *s, int dummy, llm__arch *a) {
    llm__facts f = LLM__ZERO;
    memset(a, 0, sizeof *a);
    f.path = s->path;
    f.json = s->gguf ? NULL : s->config;
    f.gguf = s->gguf;
    f.n_nodes = 1;
    if (s->gguf) {
        llm__str name = llm__gguf_str(s->gguf, "general.architecture");
        if (!name.p || name.n >= sizeof f.arch)
            return llm__error(LLM_ERR_FORMAT, "%s: general.architecture is %s", s->path, name.p ? "too long" : "missing");
        memcpy(f.arch, name.p, name.n);
        const llm__tensor *embed = llm__tensors_find(&s->tensors, "token_embd.weight");
        if (embed) a->vocab = (int32_t)LLM__MIN(embed->shape[0], 1 << 25);
    } else if (llm_json_type_of(s->config, 0) != LLM_JSON_OBJECT) {
        return llm__error(LLM_ERR_FORMAT, "%s: config.json: an object expected", s->path);
    }
    llm_result r = llm__arch_family(&f, a);
    if (r) return r;
    /* wrong values leave their fallbacks behind, so every step can run; what follows from several is asked only of good ones */
    llm__arch_shapes(&f, a);
    llm__arch_gemma4_shapes(&f, a, &s->tensors);
    llm__arch_gemma3n_shapes(&f, a, &s->tensors);
    llm__arch_encoder_shapes(&f, a, &s->tensors);
    llm__arch_mixtures_shapes(&f, a);
    llm__arch_switches(&f, a, &s->tensors);
    llm__arch_variants(&f, a, &s->tensors);
    if (!f.r) f.r = llm__arch_check(&f, a);
    if (!f.r) {
        llm__arch_numbers(&f, a);
        llm__arch_rope(&f, a, &s->tensors);
        llm__arch_sections(&f, a);
        llm__arch_alibi(a);
        llm__arch_mpt(&f, a);
        llm__arch_experts(&f, a, &s->tensors);
        llm__arch_sparse(&f, a, &s->tensors);
        llm__arch_recurrent(&f, a, &s->tensors);
        llm__arch_layers(&f, a);
        llm__arch_neo(&f, a);
        llm__rope_by_layer(&f, a);
        llm__arch_gemma4(&f, a, &s->tensors);
        llm__arch_gemma3n(&f, a);
        llm__arch_encoder(&f, a);
        llm__arch_mixtures(&f, a, &s->tensors);
    }
    if (!f.r) f.r = llm__arch_layers_check(&f, a);
    if (a->tied < 0 && dummy) a->tied = (a->flags & LLM__TIED) != 0;
    return f.r;
}

LLM__PRIVATE llm_result llm__rope_override(llm__arch *a, double factor, int logn, const char *path) {
    if (logn && !a->logn_from) a->logn_from = LLM__MAX(a->max_positions, 2);
    if (factor == 0) return LLM_OK;
    if (factor < 1) return llm__error(LLM_ERR_ARG, "rope_scaling_factor: %g, must be at least 1 (0: as the files say)", factor);
    if (!a->rope[0].dim || a->scaled)
        return llm__error(LLM_ERR_ARG, "rope_scaling_factor: %g, but %s %s", factor, path,
                          a->rope[0].dim ? "has a scheme of its own for long texts" : "has no rotary positions");
    a->dynamic = 1;
    a->dynamic_factor = factor;
    a->dynamic_from = a->max_positions;
    a->max_len = (int32_t)LLM__MIN(a->max_positions * factor, 1 << 30);
    return LLM_OK;
}
