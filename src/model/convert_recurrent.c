#include "model/convert_recurrent.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "model/tensors.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/take.h"
#include "model/convert.h"
#include "model/convert_add.h"

/* A tensor of a slot that must be there, made as `how` says. */
static void llm__state_put(llm__converting *g, int slot, const char *name, int n_dims, const int64_t *shape, int f32,
                           llm__convert_row how) {
    char full[96], missing[256];
    const llm__tensor *t = g->r ? NULL : llm__loader_find(&g->L, slot, 0, 0, missing);
    const llm__tensor **list = g->r ? NULL : (const llm__tensor **)(void *)(uintptr_t)llm__convert_list(g, 1);
    if (!list) return;
    if (!t) {
        g->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: tensor %s is missing: states stored like this are not converted", g->L.path, missing);
        return;
    }
    list[0] = t;
    how.stack = list, how.n = 1;
    snprintf(full, sizeof full, "blk.%d.%s", g->L.layer, name);
    llm__convert_add(g, full, n_dims, shape, f32, &how);
}

/* A matrix (rows, cols), or with rows 0 a vector of cols values. */
static void llm__state_add(llm__converting *g, int slot, const char *name, int64_t rows, int64_t cols, int f32, llm__convert_row how) {
    const int64_t shape[2] = {rows, cols};
    llm__state_put(g, slot, name, rows ? 2 : 1, rows ? shape : shape + 1, f32, how);
}

/* n numbers of the conversion. */
static int32_t *llm__state_numbers(llm__converting *g, int64_t n) {
    int32_t *out = (int32_t *)llm__arena_get(&g->c->memory, sizeof(int32_t) * (size_t)n);
    if (!out && !g->r) g->r = llm__nomem();
    return g->r ? NULL : out;
}

/* Which stored value head comes t-th: in GGUF Qwen3.5's groups take turns. */
static int32_t llm__state_head(const llm__arch *a, int32_t t) {
    const int32_t groups = a->state.n_groups, each = a->state.n_heads / groups;
    return llm__arch_is(a, "qwen3_next") ? t : t % groups * each + t / groups;
}

/* The stored row of each of the rows that become q, k and v, or with z those that become z. Grouped: key head by key head stands its q,
 * its k, then v and z of its value heads. */
static const int32_t *llm__state_rows(llm__converting *g, int grouped, int z) {
    const llm__arch *a = g->L.a;
    const llm__arch_state *s = &a->state;
    const int32_t keys = s->n_groups * s->dk, per = s->n_heads / s->n_groups, each = 2 * s->dk + 2 * per * s->dv;
    int32_t *rows = llm__state_numbers(g, 2 * (int64_t)keys + (int64_t)s->n_heads * s->dv), n = 0;
    for (int32_t i = 0; rows && !z && i < 2 * keys; i++) rows[n++] = grouped ? i % keys / s->dk * each + i / keys * s->dk + i % s->dk : i;
    for (int32_t i = 0; rows && i < s->n_heads * s->dv; i++) {
        const int32_t head = llm__state_head(a, i / s->dv), at = head % per * s->dv + i % s->dv;
        if (grouped) rows[n++] = head / per * each + 2 * s->dk + z * per * s->dv + at;
        else rows[n++] = (z ? 0 : 2 * keys) + head * s->dv + i % s->dv;
    }
    return rows;
}

static void llm__state_delta(llm__converting *g) {
    const llm__arch *a = g->L.a;
    const llm__arch_state *s = &a->state;
    const int64_t hidden = a->hidden, values = (int64_t)s->n_heads * s->dv, all = 2 * (int64_t)s->n_groups * s->dk + values;
    const int grouped = llm__has(&g->L, LLM__W_R_QKVZ), both = llm__arch_is(a, "qwen3_next");
    const int from = grouped ? LLM__W_R_QKVZ : LLM__W_R_QKV;
    int32_t *order = llm__state_numbers(g, s->n_heads);
    for (int32_t t = 0; order && t < s->n_heads; t++) order[t] = llm__state_head(a, t);
    const llm__convert_row plain = LLM__ZERO, qkv = {.rows = llm__state_rows(g, grouped, 0)}, z = {.rows = llm__state_rows(g, grouped, 1)};
    const llm__convert_row conv = {.rows = llm__state_rows(g, 0, 0)}, rows = {.rows = order}, numbers = {.cols = order, .unit = 1};
    const llm__convert_row decay = {.decay = 1, .cols = order, .unit = 1}, out = {.cols = order, .unit = s->dv};
    llm__state_add(g, from, "attn_qkv.weight", all, hidden, 0, qkv);
    llm__state_add(g, grouped ? from : LLM__W_R_Z, "attn_gate.weight", values, hidden, 0, z);
    if (both) llm__state_add(g, LLM__W_R_BA, "ssm_ba.weight", 2 * (int64_t)s->n_heads, hidden, 0, plain);
    else llm__state_add(g, LLM__W_R_A, "ssm_alpha.weight", s->n_heads, hidden, 0, rows);
    if (!both) llm__state_add(g, LLM__W_R_B, "ssm_beta.weight", s->n_heads, hidden, 0, rows);
    llm__state_add(g, LLM__W_R_CONV, "ssm_conv1d.weight", all, s->taps, 1, conv);
    llm__state_add(g, LLM__W_R_STEP, "ssm_dt.bias", 0, s->n_heads, 1, numbers);
    llm__state_add(g, LLM__W_R_DECAY, "ssm_a", 0, s->n_heads, 1, decay);
    llm__state_add(g, LLM__W_R_NORM, "ssm_norm.weight", 0, s->dv, 1, plain);
    llm__state_add(g, LLM__W_R_OUT, "ssm_out.weight", hidden, values, 0, out);
}

/* The bias of a convolution, zeros where there is none: of Mamba llama.cpp wants one. */
static void llm__state_bias(llm__converting *g, int64_t n) {
    llm__convert_row how = LLM__ZERO;
    char name[96];
    if (llm__has(&g->L, LLM__W_R_CONV_BIAS)) {
        llm__state_add(g, LLM__W_R_CONV_BIAS, "ssm_conv1d.bias", 0, n, 1, how);
        return;
    }
    float *zeros = (float *)llm__arena_get(&g->c->memory, sizeof(float) * (size_t)n);
    if (!zeros && !g->r) g->r = llm__nomem();
    if (g->r) return;
    memset(zeros, 0, sizeof(float) * (size_t)n);
    how.numbers = zeros;
    llm__convert_name(g, "ssm_conv1d.bias", 0, name);
    llm__convert_add(g, name, 1, &n, 1, &how);
}

/* What the rows of z, x, B, C and dt of Falcon-H1 are multiplied by. */
static const float *llm__state_by(llm__converting *g) {
    const llm__arch *a = g->L.a;
    const llm__arch_state *s = &a->state;
    const int32_t values = s->n_heads * s->dv, keys = s->n_groups * s->dk, n[5] = {values, values, keys, keys, s->n_heads};
    float *by = a->folded ? (float *)llm__arena_get(&g->c->memory, sizeof(float) * (size_t)(2 * values + 2 * keys + s->n_heads)) : NULL;
    if (a->folded && !by && !g->r) g->r = llm__nomem();
    for (int part = 0, at = 0; by && part < 5; part++)
        for (int i = 0; i < n[part]; i++) by[at++] = llm__fold_by(a, LLM__W_R_IN, part, 0);
    return by;
}

static void llm__state_mamba2(llm__converting *g) {
    const llm__arch *a = g->L.a;
    const llm__arch_state *s = &a->state;
    const int64_t values = (int64_t)s->n_heads * s->dv, all = values + 2 * (int64_t)s->n_groups * s->dk;
    const llm__convert_row plain = LLM__ZERO, decay = {.decay = 1}, in = {.by = llm__state_by(g)},
                           out = {.times = llm__fold_by(a, LLM__W_R_OUT, 0, 0)};
    llm__state_add(g, LLM__W_R_IN, "ssm_in.weight", values + all + s->n_heads, a->hidden, 0, in);
    llm__state_add(g, LLM__W_R_CONV, "ssm_conv1d.weight", all, s->taps, 1, plain);
    llm__state_bias(g, all);
    llm__state_add(g, LLM__W_R_STEP, "ssm_dt.bias", 0, s->n_heads, 1, plain);
    llm__state_add(g, LLM__W_R_DECAY, "ssm_a", s->n_heads, 1, 1, decay);
    llm__state_add(g, LLM__W_R_SKIP, "ssm_d", s->n_heads, 1, 1, plain);
    if (!s->no_norm) llm__state_add(g, LLM__W_R_NORM, "ssm_norm.weight", s->n_groups, values / s->n_groups, 1, plain);
    llm__state_add(g, LLM__W_R_OUT, "ssm_out.weight", a->hidden, values, 0, out);
}

static void llm__state_mamba1(llm__converting *g) {
    const llm__arch_state *s = &g->L.a->state;
    const int64_t hidden = g->L.a->hidden;
    const llm__convert_row plain = LLM__ZERO, decay = {.decay = 1};
    llm__state_add(g, LLM__W_R_IN, "ssm_in.weight", 2 * (int64_t)s->n_heads, hidden, 0, plain);
    llm__state_add(g, LLM__W_R_CONV, "ssm_conv1d.weight", s->n_heads, s->taps, 1, plain);
    llm__state_bias(g, s->n_heads);
    llm__state_add(g, LLM__W_R_X, "ssm_x.weight", s->rank + 2 * s->dk, s->n_heads, 0, plain);
    llm__state_add(g, LLM__W_R_DT, "ssm_dt.weight", s->n_heads, s->rank, 0, plain);
    llm__state_add(g, LLM__W_R_STEP, "ssm_dt.bias", 0, s->n_heads, 1, plain);
    if (llm__arch_is(g->L.a, "jamba")) {
        llm__state_add(g, LLM__W_R_DT_NORM, "ssm_dt_norm.weight", 0, s->rank, 1, plain);
        llm__state_add(g, LLM__W_R_B_NORM, "ssm_b_norm.weight", 0, s->dk, 1, plain);
        llm__state_add(g, LLM__W_R_C_NORM, "ssm_c_norm.weight", 0, s->dk, 1, plain);
    }
    llm__state_add(g, LLM__W_R_DECAY, "ssm_a", s->n_heads, s->dk, 1, decay);
    llm__state_add(g, LLM__W_R_SKIP, "ssm_d", 0, s->n_heads, 1, plain);
    llm__state_add(g, LLM__W_R_OUT, "ssm_out.weight", hidden, s->n_heads, 0, plain);
}

static void llm__state_kda(llm__converting *g) {
    static const struct {
        int linear, conv;
        const char *name, *taps;
    } part[3] = {{LLM__W_Q, LLM__W_R_CONV_Q, "attn_q.weight", "ssm_conv1d_q.weight"},
                 {LLM__W_K, LLM__W_R_CONV_K, "attn_k.weight", "ssm_conv1d_k.weight"},
                 {LLM__W_V, LLM__W_R_CONV_V, "attn_v.weight", "ssm_conv1d_v.weight"}};
    const llm__arch_state *s = &g->L.a->state;
    const int64_t hidden = g->L.a->hidden, all = (int64_t)s->n_heads * s->dk, taps[4] = {1, all, 1, s->taps};
    const llm__convert_row plain = LLM__ZERO, decay = {.decay = 1}, conv = {.each = 1};
    for (int i = 0; i < 3; i++) {
        llm__state_add(g, part[i].linear, part[i].name, all, hidden, 0, plain);
        llm__state_put(g, part[i].conv, part[i].taps, 4, taps, 1, conv);
    }
    llm__state_add(g, LLM__W_R_F_A, "ssm_f_a.weight", s->dk, hidden, 0, plain);
    llm__state_add(g, LLM__W_R_F_B, "ssm_f_b.weight", all, s->dk, 0, plain);
    llm__state_add(g, LLM__W_R_G_A, "ssm_g_a.weight", s->dk, hidden, 0, plain);
    llm__state_add(g, LLM__W_R_G_B, "ssm_g_b.weight", all, s->dk, 0, plain);
    llm__state_add(g, LLM__W_R_WRITE, "ssm_beta.weight", s->n_heads, hidden, 0, plain);
    llm__state_add(g, LLM__W_R_STEP, "ssm_dt.bias", 0, all, 1, plain);
    llm__state_add(g, LLM__W_R_DECAY, "ssm_a", s->n_heads, 1, 1, decay);
    llm__state_add(g, LLM__W_R_NORM, "ssm_norm.weight", 0, s->dv, 1, plain);
    llm__state_add(g, LLM__W_O, "attn_output.weight", hidden, all, 0, plain);
}

static void llm__state_conv(llm__converting *g) {
    const int64_t hidden = g->L.a->hidden;
    const llm__convert_row plain = LLM__ZERO;
    llm__state_add(g, LLM__W_R_IN, "shortconv.in_proj.weight", 3 * hidden, hidden, 0, plain);
    llm__state_add(g, LLM__W_R_CONV, "shortconv.conv.weight", hidden, g->L.a->state.taps, 1, plain);
    llm__state_add(g, LLM__W_R_OUT, "shortconv.out_proj.weight", hidden, hidden, 0, plain);
}

LLM__PRIVATE void llm__convert_recurrent(llm__converting *g) {
    const llm__arch *a = g->L.a;
    const int mixer = a->layer[g->L.layer].mixer;
    static const int of[] = {LLM__W_R_IN, LLM__W_R_OUT, LLM__W_R_X, LLM__W_R_F_B, LLM__W_R_G_B, LLM__W_R_CONV_Q};
    int bias = mixer == LLM__MIX_KDA && llm__convert_find(g, LLM__W_O, 0, 1);
    for (int i = 0; i < LLM__COUNT(of); i++) bias |= llm__convert_find(g, of[i], 0, 1) != NULL;
    if (!g->r && (bias || (mixer == LLM__MIX_CONV && llm__has(&g->L, LLM__W_R_CONV_BIAS))))
        g->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: layer %d: its state has biases, which have no name in GGUF", g->L.path, g->L.layer);
    if (!g->r && (a->state.step_min > 0 || a->state.step_max > 0))
        g->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: time_step_limit: %g to %g has no key in GGUF", g->L.path,
                          (double)a->state.step_min, (double)a->state.step_max);
    if (mixer == LLM__MIX_DELTA) llm__state_delta(g);
    else if (mixer == LLM__MIX_SSM) llm__state_mamba2(g);
    else if (mixer == LLM__MIX_S6) llm__state_mamba1(g);
    else if (mixer == LLM__MIX_KDA) llm__state_kda(g);
    else llm__state_conv(g);
}
