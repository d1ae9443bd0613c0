#include "model/load_recurrent.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "cpu/dtypes.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/take.h"
#include "model/net.h"

/* The kind of a model's recurrent layers: it has one. */
static llm__mixer llm__state_kind(const llm__arch *a) {
    int i = 0;
    while (a->layer[i].mixer <= LLM__MIX_NONE) i++;
    return (llm__mixer)a->layer[i].mixer;
}

/* Columns of mix, and what a layer keeps. */
static void llm__state_columns(const llm__arch *a, llm__mixer kind, llm__net_state *s) {
    const int32_t heads = (int32_t)s->heads.n, keys = (int32_t)s->groups.n * a->state.dk, values = heads * a->state.dv;
    if (kind == LLM__MIX_CONV) {
        s->conv = heads;
        s->cols = 3 * heads;
    } else if (kind == LLM__MIX_KDA) {
        s->conv = 2 * keys + values;
        s->k = keys, s->v = 2 * keys;
        s->write = s->conv;
        s->z = s->write + heads;
        s->decay = s->z + values;
        s->cols = s->decay + keys;
        s->low[0] = s->low[1] = a->state.dk;
    } else if (kind == LLM__MIX_S6) {
        s->conv = s->z = values;
        s->decay = 2 * values;
        s->k = 3 * values, s->q = s->k + keys;
        s->write = -1;
        s->cols = s->q + keys;
        s->low[0] = a->state.rank + 2 * keys;
    } else {
        s->conv = 2 * keys + values;
        s->q = kind == LLM__MIX_DELTA ? 0 : values + keys;
        s->k = kind == LLM__MIX_DELTA ? keys : values;
        s->v = kind == LLM__MIX_DELTA ? 2 * keys : 0;
        s->z = s->conv;
        s->decay = s->z + values;
        s->write = kind == LLM__MIX_DELTA ? s->decay + heads : -1;
        s->cols = s->decay + heads * (kind == LLM__MIX_DELTA ? 2 : 1);
    }
    s->n_state = (a->state.taps - 1) * s->conv + values * a->state.dk;
}

LLM__PRIVATE llm_result llm__state_share(const llm__arch *a, int rank_index, int n, llm__net_state *s) {
    const int32_t heads = a->state.n_heads, groups = a->state.n_groups;
    if (!a->recurrent) return LLM_OK;
    const llm__mixer kind = llm__state_kind(a);
    const int conv = kind == LLM__MIX_CONV || kind == LLM__MIX_S6, turns = a->state.turns;
    const int32_t own = heads / n, first = rank_index * own;
    if (n > 1 && (heads % n || (!conv && !turns && groups % n)))
        return llm__error(LLM_ERR_UNSUPPORTED,
                          "tensor_parallel_size %d: the states of %s (%d heads in %d groups) cannot be divided among so many ranks", n,
                          a->name, heads, groups);
    s->heads = llm__slice_of(heads, first, own);
    s->turns = turns;
    if (conv) s->groups = llm__all(1);
    else if (!turns) s->groups = llm__slice_of(groups, rank_index * (groups / n), groups / n);
    else if (groups % own == 0) s->groups = llm__slice_of(groups, first % groups, own); /* a head each */
    else s->groups = llm__all(groups), s->turns += first % groups;
    llm__state_columns(a, kind, s);
    return LLM_OK;
}

/* This rank's part of a piece that begins at row `at` of a stored matrix of `all` rows. */
static void llm__take_rows(llm__loader *L, int slot, int64_t all, int64_t at, llm__slice part) {
    llm__take(L, slot, llm__all(1), llm__slice_of(all, at + part.first, part.n), llm__all(L->a->hidden), 0);
}

/* The same of a matrix that goes key head by key head, `each` rows of each: n rows from `from` on, of every key head of the rank. */
static void llm__take_grouped(llm__loader *L, int slot, llm__slice groups, int64_t each, int64_t from, int64_t n) {
    for (int64_t g = groups.first; g < groups.first + groups.n; g++)
        llm__take_rows(L, slot, groups.size * each, g * each + from, llm__all(n));
}

/* q, k, v and z, then decay and write, of a gated delta net. */
static void llm__take_delta(llm__loader *L, const llm__net_state *s) {
    const llm__arch_state *a = &L->a->state;
    const llm__slice keys = llm__slice_times(s->groups, a->dk), values = llm__slice_times(s->heads, a->dv);
    const int64_t heads = s->heads.size / s->groups.size, v = heads * a->dv, each = 2 * a->dk + 2 * v, all = 2 * keys.size + values.size;
    if (a->turns && (llm__has(L, LLM__W_R_QKVZ) || llm__has(L, LLM__W_R_BA)) && !L->r)
        L->r = llm__error(LLM_ERR_FORMAT, "%s: layer %d: ssm_in or ssm_ba go key head by key head, as value heads of %s do not", L->path,
                          L->layer, L->a->name);
    if (llm__arch_is(L->a, "lara_mini")) { /* q, k, v, z, write and decay in one */
        const int64_t whole = all + values.size + 2 * s->heads.size, z = all, write = z + values.size;
        llm__take_rows(L, LLM__W_R_IN, whole, 0, keys);
        llm__take_rows(L, LLM__W_R_IN, whole, keys.size, keys);
        llm__take_rows(L, LLM__W_R_IN, whole, 2 * keys.size, values);
        llm__take_rows(L, LLM__W_R_IN, whole, z, values);
        llm__take_rows(L, LLM__W_R_IN, whole, write + s->heads.size, s->heads);
        llm__take_rows(L, LLM__W_R_IN, whole, write, s->heads);
        return;
    }
    if (llm__has(L, LLM__W_R_QKVZ)) {
        llm__take_grouped(L, LLM__W_R_QKVZ, s->groups, each, 0, a->dk);
        llm__take_grouped(L, LLM__W_R_QKVZ, s->groups, each, a->dk, a->dk);
        llm__take_grouped(L, LLM__W_R_QKVZ, s->groups, each, 2 * a->dk, v);
        llm__take_grouped(L, LLM__W_R_QKVZ, s->groups, each, 2 * a->dk + v, v);
    } else {
        llm__take_rows(L, LLM__W_R_QKV, all, 0, keys);
        llm__take_rows(L, LLM__W_R_QKV, all, keys.size, keys);
        llm__take_rows(L, LLM__W_R_QKV, all, 2 * keys.size, values);
        llm__take_rows(L, LLM__W_R_Z, values.size, 0, values);
    }
    if (llm__has(L, LLM__W_R_BA)) {
        llm__take_grouped(L, LLM__W_R_BA, s->groups, 2 * heads, heads, heads);
        llm__take_grouped(L, LLM__W_R_BA, s->groups, 2 * heads, 0, heads);
    } else {
        llm__take_rows(L, LLM__W_R_A, s->heads.size, 0, s->heads);
        llm__take_rows(L, LLM__W_R_B, s->heads.size, 0, s->heads);
    }
}

/* Mamba 2 stores z, x, B, C and dt in one matrix. */
static void llm__take_ssm(llm__loader *L, const llm__net_state *s) {
    const llm__slice keys = llm__slice_times(s->groups, L->a->state.dk), values = llm__slice_times(s->heads, L->a->state.dv);
    const int64_t all = 2 * values.size + 2 * keys.size + s->heads.size,
                  at[5] = {0, values.size, 2 * values.size, 2 * values.size + keys.size, all - s->heads.size};
    const llm__slice part[5] = {values, values, keys, keys, s->heads};
    static const int8_t order[5] = {1, 2, 3, 0, 4}; /* x, B, C, z, dt */
    for (int i = 0; i < 5; i++) {
        L->part = order[i] + 1;
        llm__take_rows(L, LLM__W_R_IN, all, at[order[i]], part[order[i]]);
    }
    L->part = 0;
}

/* Kimi's q, k, v and what is written; the matrices before and behind the narrow values are loads of their own. */
static void llm__load_kda(llm__loader *L, const llm__net_state *s, llm__net_layer *layer) {
    static const int in[2] = {LLM__W_R_F_A, LLM__W_R_G_A}, out[2] = {LLM__W_R_F_B, LLM__W_R_G_B};
    static const int conv[3] = {LLM__W_R_CONV_Q, LLM__W_R_CONV_K, LLM__W_R_CONV_V};
    const llm__arch_state *a = &L->a->state;
    const llm__slice keys = llm__slice_times(s->groups, a->dk), values = llm__slice_times(s->heads, a->dv), low = llm__all(a->dk);
    const int fused = llm__has(L, LLM__W_QKV); /* as llama.cpp's converter makes them where it is asked to */
    const int64_t at = fused ? keys.size : 0, all = 2 * at + values.size;
    llm__take_rows(L, fused ? LLM__W_QKV : LLM__W_Q, all, 0, keys);
    llm__take_rows(L, fused ? LLM__W_QKV : LLM__W_K, all, at, keys);
    llm__take_rows(L, fused ? LLM__W_QKV : LLM__W_V, all, 2 * at, values);
    llm__take_rows(L, LLM__W_R_WRITE, s->heads.size, 0, s->heads);
    llm__make(L, LLM_ROLE_LINEAR, fused ? LLM__W_QKV : LLM__W_Q, 0, &layer->mix);
    for (int i = 0; i < 2; i++) {
        llm__load(L, LLM_ROLE_LINEAR, in[i], low, llm__all(L->a->hidden), 0, &layer->low[i]);
        llm__load(L, LLM_ROLE_LINEAR, out[i], i ? values : keys, low, 0, &layer->wide[i]);
    }
    for (int i = 0; i < 3; i++) llm__take(L, conv[i], llm__all(1), llm__slice_times(i == 2 ? values : keys, a->taps), llm__all(0), -1);
    llm__make(L, LLM_ROLE_VECTOR, conv[0], 0, &layer->conv);
}

/* Mamba 1's x and z, and what makes dt, B and C of x behind the convolution: this is cut by columns, so its sum goes over ranks. */
static void llm__load_s6(llm__loader *L, const llm__net_state *s, llm__net_layer *layer) {
    const llm__arch_state *a = &L->a->state;
    const llm__slice values = s->heads, rank = llm__all(a->rank), keys = llm__all(a->dk);
    llm__take_rows(L, LLM__W_R_IN, 2 * values.size, 0, values);
    llm__take_rows(L, LLM__W_R_IN, 2 * values.size, values.size, values);
    llm__make(L, LLM_ROLE_LINEAR, LLM__W_R_IN, 0, &layer->mix);
    llm__load(L, LLM_ROLE_LINEAR, LLM__W_R_X, llm__all(a->rank + 2 * a->dk), values, -1, &layer->low[0]);
    llm__load(L, LLM_ROLE_LINEAR, LLM__W_R_DT, values, rank, -1, &layer->wide[0]);
    if (!llm__arch_is(L->a, "jamba")) return;
    llm__load_vector(L, LLM__W_R_DT_NORM, rank, 1, -1, &layer->dt_norm);
    llm__load_vector(L, LLM__W_R_B_NORM, keys, 1, -1, &layer->b_norm);
    llm__load_vector(L, LLM__W_R_C_NORM, keys, 1, -1, &layer->c_norm);
}

/* A convolution's weights (columns, taps), or with taps 1 its bias: this rank's columns, in the order of mix, which is the stored one. */
static void llm__load_conv(llm__loader *L, const llm__net_state *s, llm__mixer kind, int slot, int64_t taps, llm__net_pair *out) {
    const llm__slice keys = llm__slice_times(s->groups, L->a->state.dk * taps), values = llm__slice_times(s->heads, L->a->state.dv * taps);
    const llm__slice part[3] = {kind == LLM__MIX_DELTA ? keys : values, keys, kind == LLM__MIX_DELTA ? values : keys};
    const int n = kind == LLM__MIX_CONV || kind == LLM__MIX_S6 ? 1 : 3;
    int64_t all = 0, at = 0;
    for (int i = 0; i < n; i++) all += part[i].size;
    for (int i = 0; i < n; at += part[i++].size)
        llm__take(L, slot, llm__all(1), llm__slice_of(all, at + part[i].first, part[i].n), llm__all(0), -1);
    llm__make(L, LLM_ROLE_VECTOR, slot, 0, out);
}

/* How fast the states of heads, or of their keys, decay: -e^A_log, which GGUF has worked out. */
static void llm__load_decay(llm__loader *L, llm__slice decays, llm_weight **out) {
    const int64_t n = decays.n;
    float *numbers = (float *)llm__arena_get(&L->keep, sizeof(float) * (size_t)n);
    if (!numbers && !L->r) L->r = llm__nomem();
    llm__take(L, LLM__W_R_DECAY, llm__all(1), decays, llm__all(0), -1);
    for (int64_t i = 0; i < n && !L->r; i++) {
        numbers[i] = -1;
        if (L->m->dummy || L->adapter) continue;
        llm__segment_values(L->list[0].segment, 0, i, 0, 1, &numbers[i]);
        numbers[i] *= llm__segment_scale(L->list[0].segment);
        if (!L->a->gguf) numbers[i] = -expf(numbers[i]);
        if (!(numbers[i] <= 0 && numbers[i] > -1e30f))
            L->r = llm__error(LLM_ERR_FORMAT, "%s: layer %d: decay %d of the state is %g, a number of at most 0 expected", L->path,
                              L->layer, (int)i, (double)numbers[i]);
    }
    L->list[0].n = 0, L->list[0].rows = 0;
    llm__load_numbers(L, "decay of states", numbers, n, out);
}

/* The first matrix of a layer: what the residual stream is made into. */
static void llm__load_mix(llm__loader *L, const llm__net_state *s, llm__mixer kind, llm__net_layer *layer) {
    const int slot = kind != LLM__MIX_DELTA || llm__arch_is(L->a, "lara_mini") ? LLM__W_R_IN
                     : llm__has(L, LLM__W_R_QKVZ)                              ? LLM__W_R_QKVZ
                                                                               : LLM__W_R_QKV;
    if (kind == LLM__MIX_KDA) llm__load_kda(L, s, layer);
    if (kind == LLM__MIX_S6) llm__load_s6(L, s, layer);
    if (kind == LLM__MIX_KDA || kind == LLM__MIX_S6) return;
    if (kind == LLM__MIX_SSM) llm__take_ssm(L, s);
    if (kind == LLM__MIX_DELTA) llm__take_delta(L, s);
    for (int i = 0; i < 3 && kind == LLM__MIX_CONV; i++) llm__take_rows(L, slot, 3 * s->heads.size, i * s->heads.size, s->heads);
    llm__make(L, LLM_ROLE_LINEAR, slot, 0, &layer->mix);
}

LLM__PRIVATE void llm__load_recurrent(llm__loader *L, const llm__net_rank *rank, llm__net_layer *layer) {
    const llm__arch *a = L->a;
    const llm__net_state *s = &rank->state;
    const llm__mixer kind = (llm__mixer)a->layer[L->layer].mixer;
    const llm__slice values = llm__slice_times(s->heads, a->state.dv), keys = llm__slice_times(s->heads, a->state.dk);
    const int skips = kind == LLM__MIX_SSM || kind == LLM__MIX_S6, both = a->layer[L->layer].both;
    llm__net_pair step = LLM__ZERO, skip = LLM__ZERO;
    llm__load_mix(L, s, kind, layer);
    if (kind != LLM__MIX_KDA) llm__load_conv(L, s, kind, LLM__W_R_CONV, a->state.taps, &layer->conv);
    if (llm__has(L, LLM__W_R_CONV_BIAS)) llm__load_conv(L, s, kind, LLM__W_R_CONV_BIAS, 1, &layer->conv_bias);
    llm__load(L, LLM_ROLE_LINEAR, kind == LLM__MIX_KDA ? LLM__W_O : LLM__W_R_OUT, llm__all(a->hidden), values, 0,
              both ? &layer->state_o : &layer->o);
    if (kind == LLM__MIX_CONV) return;
    llm__load_decay(L, kind == LLM__MIX_S6 ? keys : s->heads, &layer->decay);
    llm__load_vector(L, LLM__W_R_STEP, kind == LLM__MIX_KDA ? keys : s->heads, 1, -1, &step);
    llm__load_vector(L, LLM__W_R_SKIP, s->heads, skips, -1, &skip);
    if (!a->state.no_norm)
        llm__load_vector(L, LLM__W_R_NORM, kind == LLM__MIX_SSM ? values : llm__all(a->state.dv), 1, -1, &layer->gate_norm);
    if (L->adapter) return; /* it makes nothing */
    layer->step_bias = step.w;
    layer->skip = skip.w;
}
