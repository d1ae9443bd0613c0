#include "model/convert.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/tokenizer.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/files.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/take.h"
#include "model/net.h"
#include "model/gguf_write.h"
#include "model/convert_add.h"
#include "model/convert_encoder.h"
#include "model/convert_keys.h"
#include "model/convert_vocab.h"
#include "model/convert_recurrent.h"
#include "model/convert_gemma3n.h"

/* Families whose settings and tensors are all known here, by their first names. */
static const char llm__convertible[] =
    "llama mixtral qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next qwen3_5_text qwen3_5_moe_text gemma gemma2 gemma3_text "
    "gemma3n_text gemma4_text phi3 glm4 deepseek_v2 deepseek_v3 deepseek_v32 ernie4_5 ernie4_5_moe glm4_moe starcoder2 granite olmo2 "
    "smollm3 cohere hunyuan_v1_dense hunyuan_v1_moe minimax_m2 apertus granitemoe lfm2 lfm2_moe mamba2 nemotron_h llama4_text falcon_h1 "
    "jamba kimi_linear phimoe arcee cohere2 dots1 exaone4 minicpm olmo olmoe phi seed_oss deepseek bailing_moe bailing_moe_v2 exaone "
    "mamba bamba jais2 mpt solar_open exaone_moe hy_v3 afmoe sarvam_moe cohere2_moe mimo_v2_flash mistral4 bitnet "
    "bert roberta distilbert nomic_bert modernbert";

LLM__PRIVATE void llm__convert_close(llm__conversion *c) {
    llm_model_close(c->model);
    llm_text_free(&c->head);
    llm__gguf_free(&c->keys);
    llm__tensors_free(&c->tensors);
    LLM_FREE(c->row);
    llm__arena_free(&c->memory);
    memset(c, 0, sizeof *c);
}

/* Gate and up of an MLP that a folder of Granite 4 has in one matrix: rows of the gate, then those of up. */
static void llm__convert_halves(llm__converting *g, int fused, int64_t rows, const char *gate, const char *up) {
    for (int part = 0; part < 2; part++) {
        const llm__tensor *t = llm__convert_find(g, fused, 0, 0);
        const llm__tensor **list = t ? (const llm__tensor **)(void *)(uintptr_t)llm__convert_list(g, 1) : NULL;
        const int64_t shape[2] = {rows, g->L.a->hidden};
        llm__convert_row row = LLM__ZERO;
        char name[96];
        if (!list) return;
        list[0] = t;
        row.stack = list, row.n = 1, row.first = part * rows;
        llm__convert_name(g, part ? up : gate, 0, name);
        llm__convert_add(g, name, 2, shape, 0, &row);
    }
}

/* Experts as one tensor: from one of each, or from one with all of them, of which `rows` rows from `first` on are taken. */
static void llm__convert_experts(llm__converting *g, int slot, int fused, int part, const char *stem, int64_t rows, int64_t cols) {
    const int32_t n = g->L.a->n_experts;
    const llm__tensor *one = llm__convert_find(g, fused, 0, 0);
    const int stacked = one && one->n_dims > 2;
    const llm__tensor **list = (const llm__tensor **)(void *)(uintptr_t)llm__convert_list(g, (size_t)n);
    llm__convert_row row = LLM__ZERO;
    const int64_t shape[3] = {n, rows, cols};
    char name[96];
    if (!list) return;
    for (int32_t e = 0; e < n && !g->r; e++) {
        list[e] = stacked ? one : llm__convert_find(g, slot, e, 0);
        if (!list[e]) g->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: experts stored like this are not converted", g->L.path);
        if (!stacked) continue;
        row.each = one->shape[1];
        break;
    }
    row.stack = list, row.n = stacked ? 1 : n, row.first = stacked ? part * rows : 0;
    row.across = stacked && llm__arch_is(g->L.a, "llama4_text");
    llm__convert_name(g, stem, 0, name);
    llm__convert_add(g, name, 3, shape, 0, &row);
}

/* kv_b of latent attention. */
static void llm__convert_kv_b(llm__converting *g) {
    const llm__arch *a = g->L.a;
    const llm__tensor *t = llm__convert_find(g, LLM__W_KV_B, 0, 0);
    const llm__tensor **list = (const llm__tensor **)(void *)(uintptr_t)llm__convert_list(g, 1);
    const int64_t keys[3] = {a->n_heads, a->kv_rank, a->nope}, values[3] = {a->n_heads, a->v_head_dim, a->kv_rank};
    llm__convert_row row = LLM__ZERO;
    char name[96];
    if (!list) return;
    if (!t) {
        g->r = llm__error(LLM_ERR_FORMAT, "%s: layer %d has no kv_b_proj", g->L.path, g->L.layer);
        return;
    }
    list[0] = t;
    row.stack = list, row.n = 1, row.nope = a->nope, row.v = a->v_head_dim;
    for (row.cut = 1; row.cut < 3; row.cut++) {
        llm__convert_name(g, row.cut == 1 ? "attn_k_b" : "attn_v_b", 0, name);
        llm__convert_add(g, name, 3, row.cut == 1 ? keys : values, 0, &row);
    }
}

/* q, k and v of one stored matrix, where the rows of the former are put in pairs (Ling 1). */
static void llm__convert_apart(llm__converting *g, int32_t head) {
    static const char *const names[3] = {"attn_q", "attn_k", "attn_v"};
    const int64_t heads[3] = {g->L.a->n_heads, g->L.a->n_kv_heads, g->L.a->n_kv_heads};
    if (llm__convert_find(g, LLM__W_QKV, 0, 1))
        g->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: layer %d: a bias of q, k and v in one is not converted", g->L.path, g->L.layer);
    int64_t first = 0;
    for (int i = 0; i < 3; first += heads[i++] * head) {
        const llm__tensor *t = llm__convert_find(g, LLM__W_QKV, 0, 0);
        const llm__tensor **list = t ? (const llm__tensor **)(void *)(uintptr_t)llm__convert_list(g, 1) : NULL;
        const int64_t shape[2] = {heads[i] * head, g->L.a->hidden};
        char name[96];
        if (!list) return;
        list[0] = t;
        const llm__convert_row row = {
            .stack = list, .n = 1, .first = first, .head = i < 2 ? head : 0, .turn = llm__convert_turned(g, head)};
        llm__convert_name(g, names[i], 0, name);
        llm__convert_add(g, name, 2, shape, 0, &row);
    }
}

/* Attention of the current layer. */
static void llm__convert_attention(llm__converting *g) {
    const llm__arch *a = g->L.a;
    /* put in pairs; of GLM-4.1V, whose folder has them, parted: llama.cpp turns none by three positions */
    const int put = a->flags & LLM__PAIRS ? llm__arch_is(a, "glm4") && a->position_rows == 3 : (a->flags & LLM__PAIRS_GGUF) != 0;
    const int pairs = put && !(a->flags & LLM__MLA) ? a->layer[g->L.layer].head_dim : 0;
    if (pairs && llm__has(&g->L, LLM__W_QKV)) llm__convert_apart(g, pairs);
    else llm__convert_slot(g, LLM__W_QKV, "attn_qkv", 0, 0);
    llm__convert_slot(g, LLM__W_Q, "attn_q", pairs, 0);
    llm__convert_slot(g, LLM__W_K, "attn_k", pairs, 0);
    llm__convert_slot(g, LLM__W_V, "attn_v", 0, 0);
    llm__convert_slot(g, LLM__W_O, "attn_output", 0, 0);
    if (a->attn_gate == LLM__GATE_APART) llm__convert_slot(g, LLM__W_ATTN_GATE, "attn_gate", 0, 0);
    if (llm__arch_is(a, "bitnet")) llm__convert_slot(g, LLM__W_ATTN_SUB, "attn_sub_norm", 0, 1);
    if (a->layer[g->L.layer].sinks) llm__convert_slot(g, LLM__W_SINKS, "attn_sinks", 0, 1);
    if (a->qk_norm) llm__convert_slot(g, LLM__W_Q_NORM, "attn_q_norm", 0, 1), llm__convert_slot(g, LLM__W_K_NORM, "attn_k_norm", 0, 1);
    if (!(a->flags & LLM__MLA)) return;
    llm__convert_slot(g, LLM__W_Q_A, "attn_q_a", 0, 0);
    llm__convert_slot(g, LLM__W_Q_A_NORM, "attn_q_a_norm", 0, 1);
    llm__convert_slot(g, LLM__W_Q_B, "attn_q_b", 0, 0);
    llm__convert_slot(g, LLM__W_KV_A, "attn_kv_a_mqa", 0, 0);
    llm__convert_slot(g, LLM__W_KV_A_NORM, "attn_kv_a_norm", 0, 1);
    llm__convert_kv_b(g);
    if (!a->index_topk) return;
    llm__convert_slot(g, LLM__W_INDEX_Q, "indexer.attn_q_b", 0, 0);
    llm__convert_slot(g, LLM__W_INDEX_K, "indexer.attn_k", 0, 0);
    llm__convert_slot(g, LLM__W_INDEX_NORM, "indexer.k_norm", 0, 1);
    llm__convert_slot(g, LLM__W_INDEX_WEIGHTS, "indexer.proj", 0, 1);
}

/* What layers of Gemma 4 have, and some of Gemma 3n. */
static void llm__convert_gemma4(llm__converting *g) {
    static const struct {
        int slot;
        const char *stem;
        int f32;
    } table[] = {{LLM__W_SCALAR, "layer_output_scale", 1},
                 {LLM__W_PL_GATE, "inp_gate", 0},
                 {LLM__W_PL_PROJ, "proj", 0},
                 {LLM__W_PL_NORM, "post_norm", 1},
                 {LLM__W_POST_FFN1, "post_ffw_norm_1", 1},
                 {LLM__W_FFN_NORM2, "pre_ffw_norm_2", 1},
                 {LLM__W_POST_FFN2, "post_ffw_norm_2", 1},
                 {LLM__W_ROUTER_SCALE, "ffn_gate_inp.scale", 1},
                 {LLM__W_EXPERT_SCALE, "ffn_down_exps.scale", 1}};
    for (int i = 0; i < LLM__COUNT(table) && llm__arch_is(g->L.a, "gemma3n_text gemma4_text"); i++)
        llm__convert_slot(g, table[i].slot, table[i].stem, 0, table[i].f32);
}

/* All of the current layer. */
static void llm__convert_layer(llm__converting *g) {
    const llm__arch *a = g->L.a;
    const int pre = !(a->flags & LLM__NO_PRE_NORM), post = (a->flags & LLM__POST_NORM) != 0;
    const int behind =
        llm__arch_is(a, "glm4_moe solar_open qwen3_next qwen3_5_text qwen3_5_moe_text seed_oss"); /* the MLP's norm is called so there */
    const int mixer = a->layer[g->L.layer].mixer;
    if (pre) llm__convert_slot(g, LLM__W_ATTN_NORM, "attn_norm", 0, 1);
    if (mixer > LLM__MIX_NONE) llm__convert_recurrent(g);
    if (mixer == LLM__MIX_ATTENTION || a->layer[g->L.layer].both) llm__convert_attention(g);
    if (a->layer[g->L.layer].no_mlp) return;
    if (post) llm__convert_slot(g, LLM__W_POST_ATTN, "post_attention_norm", 0, 1);
    if (a->flags & LLM__NORM_AFTER) llm__convert_slot(g, LLM__W_POST_ATTN, "attn_output_norm", 0, 1);
    if (a->flags & LLM__NORM_AFTER) llm__convert_slot(g, LLM__W_POST_FFN, "layer_output_norm", 0, 1);
    const char *norm = behind ? "post_attention_norm" : llm__arch_is(a, "falcon_h1") ? "ffn_norm." : "ffn_norm";
    if (pre && mixer != LLM__MIX_NONE) llm__convert_slot(g, LLM__W_FFN_NORM, norm, 0, 1);
    if (post) llm__convert_slot(g, LLM__W_POST_FFN, "post_ffw_norm", 0, 1);
    llm__convert_gemma4(g);
    llm__convert_gemma3n(g);
    if (!a->layer[g->L.layer].moe || a->beside) {
        const int fused = llm__has(&g->L, LLM__W_GATE_UP);
        llm__convert_slot(g, LLM__W_GATE, "ffn_gate", 0, 0);
        if (fused && llm__arch_is(a, "granite")) llm__convert_halves(g, LLM__W_GATE_UP, a->ff, "ffn_gate", "ffn_up");
        else llm__convert_slot(g, fused ? LLM__W_GATE_UP : LLM__W_UP, "ffn_up", 0, 0);
        llm__convert_slot(g, LLM__W_DOWN, "ffn_down", 0, 0);
        if (llm__arch_is(a, "bitnet")) llm__convert_slot(g, LLM__W_FFN_SUB, "ffn_sub_norm", 0, 1);
    }
    if (!a->layer[g->L.layer].moe) return;
    llm__convert_slot(g, LLM__W_ROUTER, "ffn_gate_inp", 0, 1);
    llm__convert_slot(g, LLM__W_CORRECTION, llm__arch_is(a, "hy_v3") ? "exp_probs_b." : "exp_probs_b.bias", 0, 1);
    const int64_t width = a->ff_latent ? a->ff_latent : a->hidden;
    const int gated = !(a->flags & LLM__NO_GATE), both = gated ? LLM__W_E_GATE_UP : LLM__W_E_UP;
    if (gated) llm__convert_experts(g, LLM__W_E_GATE, both, 0, "ffn_gate_exps", a->ff_expert, width);
    llm__convert_experts(g, LLM__W_E_UP, both, gated, "ffn_up_exps", a->ff_expert, width);
    llm__convert_experts(g, LLM__W_E_DOWN, LLM__W_E_DOWN, 0, "ffn_down_exps", width, a->ff_expert);
    if (a->ff_latent) llm__convert_slot(g, LLM__W_E_IN, "ffn_latent_down", 0, 0), llm__convert_slot(g, LLM__W_E_OUT, "ffn_latent_up", 0, 0);
    if (!a->ff_shared) return;
    llm__convert_halves(g, LLM__W_S_GATE_UP, a->ff_shared, "ffn_gate_shexp", "ffn_up_shexp");
    llm__convert_slot(g, LLM__W_S_GATE, "ffn_gate_shexp", 0, 0);
    llm__convert_slot(g, LLM__W_S_UP, "ffn_up_shexp", 0, 0);
    llm__convert_slot(g, LLM__W_S_DOWN, "ffn_down_shexp", 0, 0);
    if (a->shared_gate) llm__convert_slot(g, LLM__W_S_SCALE, "ffn_gate_inp_shexp", 0, 1);
}

/* Divisors of the frequencies, where a scheme has them for each: Llama 3's and LongRoPE's. */
static void llm__convert_rope(llm__converting *g) {
    const llm__arch *a = g->L.a;
    const int64_t half = a->rope[0].dim / 2;
    static const char *const names[3] = {"rope_freqs", "rope_factors_short", "rope_factors_long"};
    const int form = llm__convert_rope_form(g->c->model);
    for (int i = form == 2; form && i < (form == 2 ? 3 : 1); i++) {
        float *numbers = (float *)llm__arena_get(&g->c->memory, (size_t)half * sizeof *numbers);
        llm__convert_row row = LLM__ZERO;
        char name[96];
        if (!numbers && !g->r) g->r = llm__nomem();
        if (g->r) return;
        llm__convert_divisors(g->c->model, i == 2, numbers);
        row.numbers = numbers;
        llm__convert_name(g, names[i], 0, name);
        llm__convert_add(g, name, 1, &half, 1, &row);
    }
}

/* What GGUF has no key for of a family, and its reader has one way for: what config.json says of it; NULL: nothing. */
static const char *llm__convert_variant(const llm__arch *a) {
    int windows = 0, places = 1, from = 0, mixed = 0, every = 1;
    while (from < a->n_layers && !a->layer[from].moe) from++;
    while (every <= from) every++;
    for (int i = 0; i < a->n_layers; i++) windows |= a->layer[i].window, mixed |= a->layer[i].moe != (i >= from);
    for (int i = 0; i < a->n_layers; i++) places &= (a->layer[i].rope >= 0) == (a->layer[i].window || !windows);
    if (llm__arch_is(a, "kimi_linear") && a->state.n_heads != a->n_heads) return "linear_attn_config: other heads than attention has";
    if (llm__arch_is(a, "kimi_linear") && mixed) return "moe_layer_freq: layers without experts behind some with";
    if (llm__arch_is(a, "falcon_h1") && !a->state.no_norm && a->state.norm_first) return "mamba_norm_before_gate: true";
    if (llm__arch_is(a, "deepseek") && a->n_experts && a->normalize) return "norm_topk_prob: true";
    if (llm__arch_is(a, "mamba") && a->state.n_heads != 2 * a->hidden) return "expand: another than 2";
    if (llm__arch_is(a, "mamba") && a->state.low_norm && a->state.low_eps != 1e-6f) return "mixer_rms_eps: another than 1e-6";
    if (llm__arch_is(a, "bamba") && a->state.n_heads * a->state.dv != 2 * a->hidden) return "mamba_expand: another than 2";
    if (llm__arch_is(a, "bailing_moe_v2") && !a->qk_norm) return "use_qk_norm: false";
    if (llm__arch_is(a, "phimoe") && a->rope[0].scale[0] != a->rope[0].scale[1]) return "long_mscale: another than short_mscale";
    if (llm__arch_is(a, "afmoe") && a->embed_scale == 1) return "mup_enabled: false";
    for (int i = 0; i < a->n_layers && llm__arch_is(a, "cohere2_moe"); i++)
        if (!a->layer[i].moe && a->layer[i].rope < 0) return "prefix_dense_sliding_window_pattern: another than 1";
    if (llm__arch_is(a, "cohere2_moe") && a->ff_shared && a->shared_scale == 0) return "shared_expert_combination_strategy: \"sum\"";
    for (int i = 0; i < a->n_layers && llm__arch_is(a, "afmoe"); i++)
        if (!a->layer[i].window != ((i + 1) % 4 == 0)) return "layer_types: others than three that slide and one that sees everything";
    if (!llm__arch_is(a, "llama4_text")) return NULL;
    for (int i = mixed = 0; i < a->n_layers; i++) mixed |= a->layer[i].moe != ((i + 1) % every == 0);
    if (mixed && a->n_experts) return "moe_layers: others than every so many";
    if (!places) return "no_rope_layers: others than those that see everything";
    return !a->qk_norm == (a->n_experts == 128) ? NULL : "use_qk_norm: a model of 128 experts alone has none";
}

/* What this version cannot convert, told before anything is read. */
static llm_result llm__convert_refuse(const llm_model *m) {
    const llm__arch *a = &m->arch;
    int window = 0;
    for (int i = 0; i < a->n_layers; i++) window |= a->layer[i].window;
    if (window && a->flags & LLM__QWEN_WINDOW)
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: use_sliding_window: GGUF has no key for it", m->path);
    if (m->source.gguf) return llm__error(LLM_ERR_ARG, "%s: GGUF already", m->path);
    if (a->act != a->family->act)
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: hidden_act: GGUF has no key for another than %s has", m->path, a->name);
    if (m->vision)
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: a model that sees: only models of text become GGUF in this version", m->path);
    int dense = 0;
    for (int i = 0; i < a->n_layers; i++) dense |= a->n_experts && a->layer[i].mixer == LLM__MIX_NONE && !a->layer[i].moe;
    if (dense) return llm__error(LLM_ERR_UNSUPPORTED, "%s: hybrid_override_pattern: GGUF has no form for MLPs beside experts", m->path);
    if (strcmp(m->info.quantization, "none"))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: quantised already (%s): GGUF is made of F32, F16 or BF16", m->path,
                          m->info.quantization);
    if (!llm__arch_is(a, llm__convertible) || !a->family->gguf[0] || (a->flags & LLM__CONV1D) || a->dynamic ||
        (a->flags & LLM__MLA && !a->rope_pairs && !llm__arch_is(a, "kimi_linear")) || a->index_pairs)
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: %s%s is not converted in this version; these are: %s", m->path, a->name,
                          a->dynamic ? " with dynamic RoPE" : "", llm__convertible);
    const char *variant = llm__convert_variant(a);
    if (variant) return llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: %s, which GGUF has no form for", m->path, variant);
    return LLM_OK;
}

/* An output layer that is the embedding, where both are multiplied, each by a number of its own. */
static void llm__convert_tied(llm__converting *g) {
    const llm__arch *a = g->L.a;
    const llm__tensor **list = (const llm__tensor **)(void *)(uintptr_t)llm__convert_list(g, 1);
    const int64_t shape[2] = {a->vocab, a->hidden};
    if (!list) return;
    list[0] = llm__convert_find(g, LLM__W_EMBED, 0, 0);
    const llm__convert_row row = {.stack = list, .n = 1, .times = a->logit_scale};
    if (list[0]) llm__convert_add(g, "output.weight", 2, shape, 0, &row);
}

/* An output layer each of whose columns is divided by its length. */
static void llm__convert_head(llm__converting *g) {
    const llm__arch *a = g->L.a;
    const llm__tensor **list = (const llm__tensor **)(void *)(uintptr_t)llm__convert_list(g, 1);
    const int64_t shape[2] = {a->vocab, a->hidden};
    float *by = (float *)llm__arena_get(&g->c->memory, sizeof(float) * (size_t)a->hidden);
    if (!by && !g->r) g->r = llm__nomem();
    if (g->r) return;
    list[0] = llm__convert_find(g, LLM__W_HEAD, 0, 0);
    llm__column_lengths(&g->L, LLM__W_HEAD, a->vocab, a->hidden, by);
    g->r = g->L.r;
    const llm__convert_row row = {.stack = list, .n = 1, .by_col = by};
    llm__convert_add(g, "output.weight", 2, shape, 0, &row);
}

LLM__PRIVATE llm_result llm__convert_open(const char *folder, llm__conversion *c) {
    llm__converting g = LLM__ZERO;
    llm_model_config cfg = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text keys = LLM__ZERO, none = LLM__ZERO;
    uint64_t n_keys = 0;
    cfg.language_model_only = 1;
    llm_result r = llm_model_open(folder, &cfg, &c->model);
    if (!r) r = llm__convert_refuse(c->model);
    if (!r) r = llm__convert_encoder_refuse(c->model);
    if (!r) r = llm__convert_keys(c->model, &keys, &n_keys);
    if (!r) r = llm__convert_vocab(c->model, &keys, &n_keys);
    if (r) return r;
    llm__gguf_put_head(&c->head, &keys, n_keys, &none, 0);
    if (keys.failed || c->head.failed) return llm__nomem();
    llm__tensors nothing = LLM__ZERO;
    r = llm__gguf_parse(folder, (const uint8_t *)c->head.data, c->head.len, &c->keys, &nothing);
    llm__tensors_free(&nothing);
    if (r) return r;
    g.c = c;
    llm__loader_begin(&g.L, c->model, 1, 1);
    g.L.layer = -1;
    const llm__arch *a = &c->model->arch;
    llm__convert_slot(&g, LLM__W_EMBED, "token_embd", 0, 0);
    llm__convert_slot(&g, LLM__W_OUT_NORM, llm__arch_is(a, "lfm2 lfm2_moe") ? "token_embd_norm" : "output_norm", 0, 1);
    if (a->encoder) llm__convert_encoder_tensors(&g);
    if (a->head_norm) llm__convert_head(&g);
    else if (a->tied <= 0 && !a->encoder) llm__convert_slot(&g, LLM__W_HEAD, "output", 0, 0);
    else if (a->folded) llm__convert_tied(&g);
    if (a->per_layer) {
        llm__convert_own_values(&g);
        llm__convert_slot(&g, LLM__W_PL_MODEL, "per_layer_model_proj", 0, 0);
        llm__convert_slot(&g, LLM__W_PL_MODEL_NORM, "per_layer_proj_norm", 0, 1);
    }
    if (a->n_streams) llm__convert_streams(&g);
    llm__convert_rope(&g);
    for (g.L.layer = 0; g.L.layer < a->n_layers && !g.r; g.L.layer++) llm__convert_layer(&g);
    llm__loader_end(&g.L);
    return g.r;
}

/* Row r of keys (heads, rank, nope), or of values (heads, v, rank), of kv_b. */
static void llm__convert_cut(const llm__convert_row *row, const llm__tensor *t, int64_t r, float *out) {
    const llm__tensor *from = row->stack[0];
    const int64_t rank = from->shape[1], each = row->nope + row->v, head = r / t->shape[1], at = r % t->shape[1];
    if (row->cut == 2) llm__tensor_values(from, head * each + row->nope + at, rank, 0, rank, out);
    for (int64_t j = 0; row->cut == 1 && j < row->nope; j++) llm__tensor_values(from, head * each + j, rank, at, 1, out + j);
}

/* Row r of matrix m of a stack whose matrices stand as (in, out). */
static void llm__convert_column(const llm__convert_row *how, int64_t m, int64_t r, int64_t cols, float *out) {
    const llm__tensor *from = how->stack[0];
    const int64_t wide = from->shape[from->n_dims - 1];
    for (int64_t i = 0; i < cols; i++) llm__tensor_values(from, m * how->each + i, wide, how->first + r, 1, out + i);
}

/* The stored row of q or k that becomes row r. */
static int64_t llm__convert_paired(const llm__convert_row *how, int64_t r) {
    const int64_t at = r % how->head, half = how->turn / 2;
    if (at >= how->turn) return r;
    return r - at + (how->parted ? at % half * 2 + at / half : at % 2 * half + at / 2);
}

LLM__PRIVATE void llm__convert_values(const llm__conversion *c, const llm__tensor *t, int64_t row, float *out) {
    const llm__convert_row *how = &c->row[t - c->tensors.item];
    const int64_t cols = t->shape[t->n_dims - 1], rows = t->n_dims > 1 ? t->shape[t->n_dims - 2] : 1;
    if (how->numbers) memcpy(out, how->numbers, (size_t)cols * sizeof *out);
    if (how->cut) llm__convert_cut(how, t, row, out);
    if (how->across) llm__convert_column(how, row / rows, row % rows, cols, out);
    if (how->numbers || how->cut || how->across) return;
    int64_t m = row / rows, r = row % rows;
    const llm__tensor *from = how->stack[how->n > 1 ? m : 0];
    const float by = (how->times != 0 ? how->times : 1) * (how->by ? how->by[r] : 1);
    if (how->rows) r = how->rows[r];
    if (how->head && t->n_dims > 1) r = llm__convert_paired(how, r);
    r += (how->n > 1 ? 0 : m * how->each) + how->first;
    if (!how->cols) llm__tensor_values(from, r, cols, 0, cols, out);
    for (int64_t i = 0; how->cols && i < cols; i += how->unit)
        llm__tensor_values(from, r, cols, (int64_t)how->cols[i / how->unit] * how->unit, how->unit, out + i);
    if (how->head && t->n_dims == 1) /* a bias: its values are what its matrix has as rows */
        for (int64_t i = 0; i < cols; i++) llm__tensor_values(from, 0, cols, llm__convert_paired(how, i), 1, out + i);
    for (int64_t i = 0; i < cols && how->add != 0; i++) out[i] += how->add;
    for (int64_t i = 0; i < cols && how->decay; i++) out[i] = -expf(out[i]);
    for (int64_t i = 0; i < cols && by != 1; i++) out[i] *= by;
    for (int64_t i = 0; i < cols && how->by_col; i++) out[i] *= how->by_col[i];
}

LLM__PRIVATE void llm__convert_rest(const llm__conversion *c, const llm__tensor *t) {
    const llm__convert_row *how = &c->row[t - c->tensors.item];
    for (int i = 0; i < how->n; i++)
        if (how->stack[i]->data && how->stack[i]->bytes > 1 << 16) llm__file_rest(how->stack[i]->data, (size_t)how->stack[i]->bytes);
}

LLM__PRIVATE llm_result llm__convert_check(const llm_model *m, const char *path, const char *where) {
    static const char text[] =
        "Hello, world! It's 1234567 o'clock;  we'll see THEY'RE\tthere.\n\n  for (int i=0;i<10;++i) {\r\n    x[i] = 3.14e-5;\n"
        "}\n \xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xe4\xb8\x96\xe7\x95\x8c 123\xe5\xb9\xb4 \xf0\x9f\x98\x80 na\xc3\xafve "
        "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 snake_case CamelCase $5.00 #tag @me -- ... end ";
    LLM__SCOPED(llm_tokens_free) llm_tokens a = LLM__ZERO, b = LLM__ZERO;
    llm_model_config cfg = LLM__ZERO;
    llm_model *made = NULL;
    cfg.vocab_only = 1;
    llm_result r = llm_model_open(path, &cfg, &made);
    if (!r) r = llm_tokenize(m, text, sizeof text - 1, LLM_TOK_ADD_SPECIAL, &a);
    if (!r) r = llm_tokenize(made, text, sizeof text - 1, LLM_TOK_ADD_SPECIAL, &b);
    llm_model_close(made);
    size_t i = 0;
    while (!r && i < a.len && i < b.len && a.data[i] == b.data[i]) i++;
    if (!r && (i < a.len || i < b.len))
        r = llm__error(LLM_ERR_UNSUPPORTED, "%s: its tokenizer has no equal %s: token %d of a sample is %d, there it would be %d", m->path,
                       where, (int)i, i < a.len ? (int)a.data[i] : -1, i < b.len ? (int)b.data[i] : -1);
    return r;
}
