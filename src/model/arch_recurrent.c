#include "model/arch_recurrent.h"
#include "api/config.h"
#include "api/json.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/facts.h"
#include "model/arch.h"

/* How families call their recurrent layers in layer_types. transformers says linear_attention since its version 5 where it said mamba
 * before, and full_attention instead of attention; folders of either age have the same tensors. */
static const struct {
    const char *families, *words;
    llm__mixer mixer;
} llm__recurrent_words[] = {
    {"lfm2 lfm2_moe lfm3", "conv", LLM__MIX_CONV},
    {"qwen3_next qwen3_5_text qwen3_5_moe_text lara_mini", "linear_attention", LLM__MIX_DELTA},
    {"mamba2 nemotron_h granitemoe granite bamba", "mamba linear_attention", LLM__MIX_SSM},
    {"falcon_h1", "hybrid", LLM__MIX_SSM},
    {"kimi_linear", "linear_attention", LLM__MIX_KDA},
    {"jamba mamba", "mamba linear_attention", LLM__MIX_S6},
};

/* The family's row of the table; -1: none. Granite without "hybrid" in its name has attention alone. */
static int llm__recurrent_row(const llm__arch *a) {
    for (int i = 0; i < LLM__COUNT(llm__recurrent_words); i++)
        if (llm__arch_is(a, llm__recurrent_words[i].families) && (!llm__arch_is(a, "granitemoe granite") || llm__arch_hybrid(a))) return i;
    return -1;
}

/* 1 where some of its layers with attention see a window only. */
static int llm__recurrent_slides(const llm__arch *a) { return llm__arch_is(a, "lfm3 lara_mini"); }

/* The kind of layer i by an entry of layer_types. */
static llm__mixer llm__recurrent_kind(llm__facts *f, const llm__arch *a, int row, int type, int i) {
    const char *word = llm_json_str(f->json, type, NULL);
    if (word && llm__word_in(llm__recurrent_words[row].words, word)) return llm__recurrent_words[row].mixer;
    const char *seeing = llm__recurrent_slides(a) ? "full_attention sliding_attention" : "attention full_attention";
    if ((!word || !llm__word_in(seeing, word)) && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: layer_types: entry %d is \"%.40s\", %s or full_attention expected",
                          f->path, i, word ? word : "", llm__recurrent_words[row].words);
    return LLM__MIX_ATTENTION;
}

/* LFM2's first config.json, and Bamba's, list the layers with attention. */
static void llm__recurrent_listed(llm__facts *f, llm__arch *a, int row) {
    int64_t index;
    for (int i = 0; i < a->n_layers; i++) a->layer[i].mixer = (int8_t)llm__recurrent_words[row].mixer;
    for (int v = llm__fact_list(f, "full_attn_idxs attn_layer_indices"); v >= 0; v = llm_json_next(f->json, v))
        if (llm_json_int(f->json, v, &index) && index >= 0 && index < a->n_layers) a->layer[index].mixer = LLM__MIX_ATTENTION;
}

/* Nemotron-H's pattern, a letter a layer: M, *, - and E; or a word for each, as transformers saves it:
 *
 *     "hybrid_override_pattern": "ME*-"        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"]
 */
static void llm__recurrent_letters(llm__facts *f, llm__arch *a) {
    static const char *const words[] = {"mamba linear_attention", "attention full_attention", "mlp", "moe"};
    const llm__fact fact = llm__facts_find(f, "hybrid_override_pattern");
    llm__str s = LLM__ZERO;
    char letters[LLM__MAX_LAYERS + 1] = "";
    if (fact.node >= 0) s.p = llm_json_str(f->json, fact.node, &s.n);
    int type = fact.node < 0 ? llm__fact_list(f, "layers_block_type layer_types") : -1;
    for (s.p = type < 0 ? s.p : letters; type >= 0 && s.n < LLM__MAX_LAYERS; type = llm_json_next(f->json, type)) {
        const char *word = llm_json_str(f->json, type, NULL);
        int kind = 0;
        while (kind < 4 && !(word && llm__word_in(words[kind], word))) kind++;
        letters[s.n++] = "M*-E?"[kind];
    }
    if (!s.p || s.n != (size_t)a->n_layers || strspn(s.p, "M*-E") < s.n) {
        llm__facts_bad(f, &fact, "a letter of M, *, - and E for each layer expected");
        return;
    }
    for (int i = 0; i < a->n_layers; i++) {
        llm__arch_layer *l = &a->layer[i];
        l->mixer = s.p[i] == 'M' ? LLM__MIX_SSM : s.p[i] == '*' ? LLM__MIX_ATTENTION : LLM__MIX_NONE;
        l->no_mlp = l->mixer != LLM__MIX_NONE;
        l->moe = s.p[i] == 'E';
        if (l->moe && !a->n_experts && !f->r)
            f->r = llm__error(LLM_ERR_FORMAT, "%s: config.json: n_routed_experts: layer %d has none", f->path, i);
    }
}

/* 1 if layer i of a GGUF file keeps a state: Qwen's by their own keys, others where they have no key heads, of which Nemotron-H's may be
 * an MLP, which alone has a width. */
static int llm__recurrent_key(llm__facts *f, llm__arch *a, llm__mixer mixer, int i) {
    const int32_t every = llm__fact_int(f, ".full_attention_interval", 4, 1, LLM__MAX_LAYERS);
    const llm__fact each = llm__facts_find(f, ".attention.recurrent_layers");
    if (llm__arch_is(a, "mamba2 mamba falcon_h1")) return 1;
    if (mixer == LLM__MIX_DELTA && each.kv) {
        const int fits = each.kv->type == LLM__GGUF_BOOL && (uint64_t)i < each.kv->count;
        if (!fits) llm__facts_bad(f, &each, "true or false for each layer expected");
        return fits && each.kv->data[i];
    }
    if (mixer == LLM__MIX_DELTA) return (i + 1) % every != 0;
    if (llm__arch_is(a, "nemotron_h") && llm__fact_layer(f, ".feed_forward_length", i, 0, 0, 1 << 21)) {
        a->layer[i].mixer = LLM__MIX_NONE;
        return 0;
    }
    return !llm__fact_layer(f, ".attention.head_count_kv", i, a->n_kv_heads, 0, a->n_heads);
}

static void llm__recurrent_keys(llm__facts *f, llm__arch *a, llm__mixer mixer) {
    for (int i = 0; i < a->n_layers; i++) {
        llm__arch_layer *l = &a->layer[i];
        if (llm__recurrent_key(f, a, mixer, i)) l->mixer = (int8_t)mixer;
        l->both = llm__arch_is(a, "falcon_h1");
        l->no_mlp = llm__arch_is(a, "mamba2 mamba nemotron_h") && l->mixer != LLM__MIX_NONE;
        if (l->no_mlp) l->moe = 0;
    }
}

/* Kimi Linear's first config.json lists its layers with attention, from 1 on, in an object of their own; Jamba has them every so many. */
static void llm__recurrent_apart(llm__facts *f, llm__arch *a, int row) {
    const int kimi = llm__arch_is(a, "kimi_linear");
    const llm__facts in = llm__facts_in(f, llm__facts_find(f, "linear_attn_config").node);
    const int32_t every = llm__fact_int(f, "attn_layer_period", 8, 1, LLM__MAX_LAYERS);
    const int32_t from = llm__fact_int(f, "attn_layer_offset", 4, 0, every - 1);
    int64_t number;
    for (int i = 0; i < a->n_layers; i++)
        a->layer[i].mixer = (int8_t)(kimi || i % every != from ? llm__recurrent_words[row].mixer : LLM__MIX_ATTENTION);
    for (int v = kimi ? llm__fact_list(&in, "full_attn_layers") : -1; v >= 0; v = llm_json_next(f->json, v))
        if (llm_json_int(f->json, v, &number) && number > 0 && number <= a->n_layers) a->layer[number - 1].mixer = LLM__MIX_ATTENTION;
}

/* Where nothing is said, Qwen's families have attention in every so many layers, others nowhere. */
static void llm__recurrent_layers(llm__facts *f, llm__arch *a, int row) {
    const llm__mixer mixer = llm__recurrent_words[row].mixer;
    const int32_t every = llm__fact_int(f, "full_attention_interval", 4, 1, LLM__MAX_LAYERS);
    int type = llm__fact_list(f, "layer_types layers_block_type");
    if (a->gguf) llm__recurrent_keys(f, a, mixer);
    else if (llm__arch_is(a, "nemotron_h")) llm__recurrent_letters(f, a);
    else if (type < 0 && llm__arch_is(a, "lfm2 lfm2_moe bamba")) llm__recurrent_listed(f, a, row);
    else if (type < 0 && llm__arch_is(a, "kimi_linear jamba")) llm__recurrent_apart(f, a, row);
    else
        for (int i = 0; i < a->n_layers; i++) {
            const llm__mixer usual = mixer == LLM__MIX_DELTA && (i + 1) % every == 0 ? LLM__MIX_ATTENTION : mixer;
            a->layer[i].mixer = (int8_t)(type >= 0 ? llm__recurrent_kind(f, a, row, type, i) : usual);
            a->layer[i].no_mlp = llm__arch_is(a, "mamba2 mamba");
            a->layer[i].both = llm__arch_is(a, "falcon_h1") && a->layer[i].mixer == LLM__MIX_SSM;
            if (type >= 0) type = llm_json_next(f->json, type);
        }
}

/* Words for taps, heads, groups, dk and dv: of Mamba 2, of gated delta nets, of Kimi's. GGUF has the width of all heads. */
static const char *const llm__state_keys[3][5] = {
    {"mamba_d_conv conv_kernel .ssm.conv_kernel", "mamba_n_heads mamba_num_heads num_heads .ssm.time_step_rank",
     "mamba_n_groups n_groups .ssm.group_count", "mamba_d_state ssm_state_size state_size .ssm.state_size",
     "mamba_d_head mamba_head_dim head_dim"},
    {"linear_conv_kernel_dim .ssm.conv_kernel", "linear_num_value_heads .ssm.time_step_rank", "linear_num_key_heads .ssm.group_count",
     "linear_key_head_dim .ssm.state_size", "linear_value_head_dim"},
    {"linear_conv_kernel_dim short_conv_kernel_size .ssm.conv_kernel", "linear_num_heads num_heads .attention.head_count",
     "linear_num_heads num_heads .attention.head_count", "linear_head_dim head_dim .kda.head_dim",
     "linear_head_dim head_dim .kda.head_dim"},
};

/* dv of a GGUF file. */
static int32_t llm__state_width(llm__facts *f, int32_t heads) {
    const int32_t all = llm__fact_int(f, ".ssm.inner_size", LLM__MUST, 1, 1 << 24);
    if ((all % heads || all / heads > 4096) && !f->r)
        f->r = llm__error(LLM_ERR_FORMAT, "%s: %s.ssm.inner_size: %d, heads of at most 4096 values, of which it has %d, expected", f->path,
                          f->arch, all, heads);
    return LLM__MIN(LLM__MAX(all / heads, 1), 4096);
}

/* Mamba 1 has a head for each channel, of one value, and keys and queries for all of them. Jamba norms dt, B and C with weights, Falcon
 * Mamba without. */
static void llm__recurrent_mamba(llm__facts *f, llm__arch *a) {
    static const char ranks[] = "mamba_dt_rank time_step_rank .ssm.time_step_rank";
    llm__arch_state *s = &a->state;
    const llm__fact rank = llm__facts_find(f, ranks); /* "auto": a sixteenth of the hidden size */
    const int said = a->gguf || llm_json_type_of(f->json, rank.node) == LLM_JSON_NUMBER, jamba = llm__arch_is(a, "jamba");
    int32_t usual = llm__fact_int(f, "mamba_expand expand", 2, 1, 64) * a->hidden;
    if (!jamba)
        usual = llm__fact_int(f, "intermediate_size", usual, 1, 64 * (int64_t)a->hidden); /* Falcon Mamba's: 2 * hidden_size, expand 16 */
    s->taps = llm__fact_int(f, "mamba_d_conv conv_kernel .ssm.conv_kernel", a->gguf ? LLM__MUST : 4, 2, LLM_CONV_TAPS);
    s->n_heads = llm__fact_int(f, ".ssm.inner_size", a->gguf ? LLM__MUST : usual, 1, 64 * (int64_t)a->hidden);
    s->n_groups = s->dv = 1;
    s->dk = llm__fact_int(f, "mamba_d_state state_size .ssm.state_size", a->gguf ? LLM__MUST : 16, 1, 4096);
    s->rank = said ? llm__fact_int(f, ranks, LLM__MUST, 1, 1 << 16) : (a->hidden + 15) / 16;
    s->no_norm = 1;
    if (jamba || llm__fact_bool(f, ".ssm.dt_b_c_rms", !strcmp(a->name, "falcon_mamba"))) s->low_norm = LLM_NORM_RMS;
    s->low_eps = jamba ? a->eps : (float)llm__fact_num(f, "mixer_rms_eps", 1e-6, 1e-20, 1);
}

/* dv of a folder; "auto": heads share the states' width evenly. */
static int32_t llm__state_dv(llm__facts *f, const llm__arch *a, const char *key) {
    const llm__fact said = llm__facts_find(f, key);
    if (llm_json_type_of(f->json, said.node) != LLM_JSON_STRING) return llm__fact_int(f, key, LLM__MUST, 1, 4096);
    const int32_t all = llm__fact_int(f, "mamba_expand", 2, 1, 64) * a->hidden, heads = LLM__MAX(a->state.n_heads, 1);
    if (strcmp(llm_json_str(f->json, said.node, NULL), "auto") || all % heads || all / heads > 4096)
        llm__facts_bad(f, &said, "a number, or \"auto\" where heads share mamba_expand * hidden_size evenly, expected");
    return LLM__MIN(LLM__MAX(all / heads, 1), 4096);
}

/* Heads, groups and widths of the states. */
static void llm__recurrent_shapes(llm__facts *f, llm__arch *a, llm__mixer mixer) {
    llm__arch_state *s = &a->state;
    if (mixer == LLM__MIX_CONV) {
        s->taps = llm__fact_int(f, "conv_L_cache .shortconv.l_cache",
                                a->gguf                   ? LLM__MUST
                                : llm__arch_is(a, "lfm3") ? 7
                                                          : 3,
                                2, LLM_CONV_TAPS);
        s->n_heads = a->hidden, s->n_groups = s->dv = 1;
        return;
    }
    const int delta = mixer == LLM__MIX_DELTA, kimi = mixer == LLM__MIX_KDA;
    const char *const *key = llm__state_keys[kimi ? 2 : delta];
    llm__facts in = kimi ? llm__facts_in(f, llm__facts_find(f, "linear_attn_config").node) : *f;
    if (mixer == LLM__MIX_S6) llm__recurrent_mamba(f, a);
    else {
        s->taps = llm__fact_int(&in, key[0], a->gguf ? LLM__MUST : 4, 2, LLM_CONV_TAPS);
        s->n_heads = llm__fact_int(&in, key[1], LLM__MUST, 1, LLM__MAX_HEADS);
        s->n_groups = llm__fact_int(&in, key[2], delta || a->gguf ? LLM__MUST : 1, 1, s->n_heads);
        s->dk = llm__fact_int(&in, key[3], LLM__MUST, 1, 4096);
        s->dv = a->gguf && !kimi ? llm__state_width(&in, s->n_heads) : llm__state_dv(&in, a, key[4]);
        f->r = in.r;
    }
    s->turns = a->gguf && llm__arch_is(a, "qwen3_5_text qwen3_5_moe_text");
    if (s->n_heads % s->n_groups && !f->r)
        f->r = llm__error(LLM_ERR_FORMAT, "%s: %d heads of state cannot share %d groups evenly", f->path, s->n_heads, s->n_groups);
    if ((int64_t)s->n_heads * s->dk * s->dv > 1 << 26 && !f->r)
        f->r = llm__error(LLM_ERR_LIMIT, "%s: a state of %d heads of %d x %d values is more than %d", f->path, s->n_heads, s->dk, s->dv,
                          1 << 26);
    char act[64];
    llm__fact_str(f, "mamba_hidden_act hidden_act", act);
    if (act[0] && !llm__word_in("silu swish", act) && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: hidden_act: \"%.40s\", recurrent layers have silu", f->path, act);
    const int limits = llm__fact_list(f, "time_step_limit");
    double low = 0, high = 0;
    if (limits >= 0) {
        llm_json_num(f->json, limits, &low);
        if (!llm_json_num(f->json, llm_json_next(f->json, limits), &high)) high = 0; /* Infinity is no number of JSON's */
    }
    s->step_min = (float)low, s->step_max = (float)high;
}

/* n numbers of a list, or 1 each. */
static void llm__recurrent_numbers(llm__facts *f, const char *key, int n, float *to) {
    const llm__fact fact = llm__facts_find(f, key);
    int v = llm_json_first(f->json, fact.node);
    for (int i = 0; i < n; i++, v = v < 0 ? v : llm_json_next(f->json, v)) {
        double x = 1;
        if (fact.node >= 0 && (!llm_json_num(f->json, v, &x) || !(fabs(x) <= 1e6))) llm__facts_bad(f, &fact, "a list of numbers expected");
        to[i] = (float)x;
    }
}

/* Falcon-H1 multiplies in a dozen places, and its states may have no norm. */
static void llm__arch_falcon_h1(llm__facts *f, llm__arch *a, const llm__tensors *tensors) {
    if (!llm__arch_is(a, "falcon_h1")) return;
    llm__arch_fold *m = &a->fold;
    llm__arch_state *s = &a->state;
    s->no_norm = !llm__fact_bool(f, "mamba_rms_norm", 0);
    for (int i = 0; i < a->n_layers && a->gguf; i++) { /* all else is in its weights, and the norm stands behind the gate */
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ssm_norm.weight", i);
        s->no_norm &= !llm__tensors_find(tensors, name);
    }
    if (a->gguf) return;
    const struct {
        const char *key;
        float *to;
    } one[] = {{"attention_in_multiplier", &m->attn_in},
               {"key_multiplier", &m->key},
               {"attention_out_multiplier", &m->attn_out},
               {"ssm_in_multiplier", &m->ssm_in},
               {"ssm_out_multiplier", &m->ssm_out}};
    float mlp[2];
    for (int i = 0; i < LLM__COUNT(one); i++) *one[i].to = (float)llm__fact_num(f, one[i].key, 1, -1e6, 1e6);
    llm__recurrent_numbers(f, "ssm_multipliers", 5, m->ssm);
    llm__recurrent_numbers(f, "mlp_multipliers", 2, mlp);
    m->gate = mlp[0], m->down = mlp[1];
    a->folded = 1;
    s->norm_first = llm__fact_bool(f, "mamba_norm_before_gate", 1);
    const int32_t width = s->n_heads * s->dv, said = llm__fact_int(f, "mamba_d_ssm", width, 1, 1 << 24);
    if (said != width && !f->r)
        f->r = llm__error(LLM_ERR_FORMAT, "%s: config.json: mamba_d_ssm: %d, %d heads of %d values expected", f->path, said, s->n_heads,
                          s->dv);
}

LLM__PRIVATE void llm__arch_recurrent(llm__facts *f, llm__arch *a, const llm__tensors *tensors) {
    const int row = llm__recurrent_row(a);
    if (row < 0) return;
    llm__recurrent_layers(f, a, row);
    for (int i = 0; i < a->n_layers; i++) a->recurrent |= a->layer[i].mixer > LLM__MIX_NONE;
    if (a->recurrent) llm__recurrent_shapes(f, a, llm__recurrent_words[row].mixer);
    llm__arch_falcon_h1(f, a, tensors);
    if (llm__recurrent_words[row].mixer == LLM__MIX_DELTA && !llm__arch_is(a, "lara_mini")) a->attn_gate = LLM__GATE_WITH_Q;
    if (llm__arch_is(a, "lfm3") && llm__fact_bool(f, "use_attention_gate", 1)) a->attn_gate = LLM__GATE_HEADS;
}
