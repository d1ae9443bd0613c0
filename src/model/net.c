#include "model/net.h"
#include "api/config.h"
#include "api/model.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/map.h"
#include "base/files.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/source.h"
#include "model/facts.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/loader_adapters.h"
#include "model/take.h"
#include "model/load_recurrent.h"
#include "model/load_altup.h"

/* The rank's part of n, in whole units where there are enough: quantised columns are cut between blocks. */
static llm__slice llm__net_split(int64_t n, int64_t unit, int rank, int n_ranks) {
    if (n % unit || n / unit < n_ranks) unit = 1;
    int64_t first = n / unit * rank / n_ranks * unit, last = n / unit * (rank + 1) / n_ranks * unit;
    return llm__slice_of(n, first, last - first);
}

/* Shares of a rank, and whether the model can be shared so at all. With fewer key heads than ranks several ranks hold
 * the same one: their queries differ. */
static llm_result llm__net_share(const llm__arch *a, int rank_index, int n, llm__net_rank *rank) {
    const int32_t widths[4] = {a->ff_expert, a->ff_expert2, a->ff_shared, a->per_layer};
    llm__slice *const cuts[4] = {&rank->ff_expert[0], &rank->ff_expert[1], &rank->ff_shared, &rank->per_layer};
    int narrow = a->vocab < n || (a->per_layer && a->per_layer_rows < n) || (a->n_experts && a->ff_expert < n) ||
                 (a->n_sets > 1 && a->ff_expert2 < n);
    if (a->n_heads % n && !llm__arch_is(a, "mamba2 mamba"))
        return llm__error(LLM_ERR_ARG, "Total number of attention heads (%d) must be divisible by tensor parallel size (%d).", a->n_heads,
                          n); /* as vLLM says it */
    for (int i = 0; i < a->n_layers; i++) {
        const int32_t kv = a->layer[i].n_kv_heads;
        if (kv % n && n % kv)
            return llm__error(LLM_ERR_ARG, "%d key heads can be neither divided nor repeated evenly among %d ranks", kv, n);
        narrow |= a->layer[i].ff < n;
    }
    narrow |= (a->ff_shared && a->ff_shared < n) || (a->per_layer && a->per_layer < n);
    if (narrow) return llm__error(LLM_ERR_ARG, "the model is too narrow for %d ranks", n);
    rank->heads = llm__slice_of(a->n_heads, rank_index * (a->n_heads / n), a->n_heads / n);
    const llm_result r = llm__state_share(a, rank_index, n, &rank->state);
    if (r) return r;
    rank->vocab = llm__net_split(a->vocab, 64, rank_index, n);
    rank->outputs = llm__all(0);
    if (a->outputs) /* those of its part of the vocabulary; where there are none, one that nobody asks for */
        rank->outputs = llm__slice_of(a->outputs, LLM__MIN(rank->vocab.first, a->outputs - 1),
                                      LLM__MAX(LLM__MIN(a->outputs - rank->vocab.first, rank->vocab.n), 1));
    rank->pl_vocab = llm__net_split(LLM__MIN(a->per_layer_rows, a->vocab), 64, rank_index, n);
    rank->pl_vocab.size = a->per_layer_rows;
    for (int i = 0; i < 4; i++) *cuts[i] = llm__net_split(widths[i], widths[i] % 256 ? 32 : 256, rank_index, n);
    return LLM_OK;
}

/* The same of a layer. */
static void llm__layer_share(const llm__arch *a, int i, int rank_index, int n, llm__net_layer *layer) {
    const llm__arch_layer *own = &a->layer[i];
    const int32_t K = own->n_kv_heads, whole = a->qk_norm == LLM_QK_NORM_WHOLE_RMS;
    layer->kv_heads = llm__slice_of(K, (int64_t)K * rank_index / n, LLM__MAX(K / n, 1));
    layer->ff = llm__net_split(own->ff, own->ff % 256 ? 32 : 256, rank_index, n);
    layer->q_width = (whole ? a->n_heads : a->n_heads / n) * own->head_dim;
    layer->k_width = (int32_t)(whole ? K : layer->kv_heads.n) * own->head_dim;
}

/* The weights of both norms for keys that will be turned and rounded. These err equally in all dimensions, in proportion to their length,
 * and scores by sum(q^2) * sum(k^2). A factor f that goes from q to k changes no score, if both dimensions that a rotation mixes have the
 * same; the error is least with f^2 = |q| / |k| (Cauchy and Schwarz). Norms leave all dimensions alike, so the weights tell |q| and |k|
 * (SmoothQuant, Xiao et al. 2023, asks activations). Of Gemma 3 270M the product of sums falls to the half, in layers to a tenth:
 *
 *     weights of q 8 1, of k 2 1    sums 65 * 5 = 325    f 2 1    q 4 1, k 4 1    sums 17 * 17 = 289 */
static void llm__load_balanced(llm__loader *L, llm__net_layer *layer) {
    const llm__arch *a = L->a;
    const llm__arch_layer *own = &a->layer[L->layer];
    const int d = own->head_dim, half = own->rope < 0 ? 0 : a->rope[own->rope].dim / 2;
    float *q = (float *)llm__arena_get(&L->keep, 2 * sizeof(float) * (size_t)d), *k = q ? q + d : NULL;
    if (!q && !L->r) L->r = llm__nomem();
    for (int both = 0; both < 2 && !L->r; both++) {
        llm__take(L, both ? LLM__W_K_NORM : LLM__W_Q_NORM, llm__all(1), llm__all(d), llm__all(0), -1);
        for (int i = 0; i < d && !L->r; i++) {
            float *w = q + both * d + i;
            llm__segment_values(L->list[0].segment, 0, i, 0, 1, w);
            *w = *w * llm__segment_scale(L->list[0].segment) + (a->flags & LLM__NORM_PLUS1 && !a->gguf ? 1.0f : 0.0f);
        }
        L->list[0].n = 0, L->list[0].rows = 0;
    }
    for (int i = 0; i < d && !L->r; i++) {
        int j = i >= 2 * half ? i : a->rope_pairs ? i ^ 1 : i < half ? i + half : i - half; /* the other one of its pair */
        if (j < i) continue;
        float f = sqrtf(sqrtf((q[i] * q[i] + q[j] * q[j] + 1e-3f) / (k[i] * k[i] + k[j] * k[j] + 1e-3f)));
        q[i] /= f, k[i] *= f;
        if (j > i) q[j] /= f, k[j] *= f;
    }
    llm__load_numbers(L, "balanced norm of queries", q, d, &layer->q_norm.w);
    llm__load_numbers(L, "balanced norm of keys", k, d, &layer->k_norm.w);
}

/* Where a head has d rows of q and then d of its gate: d rows from `from` on, of each head of the rank. */
static void llm__take_halves(llm__loader *L, const llm__net_rank *rank, int64_t d, int64_t from, int bias) {
    for (int64_t h = rank->heads.first; h < rank->heads.first + rank->heads.n; h++)
        llm__take(L, LLM__W_Q, llm__all(1), llm__slice_of(2 * d * rank->heads.size, 2 * d * h + from, d), llm__all(L->a->hidden), bias);
}

/* CodeGen's q, v and k, in this order, of the first fourth of the heads, then of the next. */
static void llm__take_fourths(llm__loader *L, llm__slice heads, int part, int64_t d) {
    const int64_t each = heads.size / 4, all = 3 * heads.size * d;
    if (heads.size % 4 && !L->r) L->r = llm__error(LLM_ERR_FORMAT, "%s: %d heads, a multiple of 4 expected", L->path, (int)heads.size);
    for (int64_t h = heads.first; h < heads.first + heads.n && !L->r; h++) {
        const int64_t row = (h / each * 3 + part) * each * d + h % each * d;
        llm__take(L, LLM__W_QKV, llm__all(1), llm__slice_of(all, row, d), llm__all(L->a->hidden), 0);
    }
}

/* A gate of one number a head: its row for each value of the head, so that it is one of them all as where q's matrix makes it. */
static void llm__take_head_gate(llm__loader *L, const llm__net_rank *rank, int64_t d) {
    for (int64_t h = rank->heads.first; h < rank->heads.first + rank->heads.n; h++)
        for (int64_t i = 0; i < d; i++)
            llm__take(L, LLM__W_ATTN_GATE, llm__all(1), llm__slice_of(rank->heads.size, h, 1), llm__all(L->a->hidden), 0);
    L->n_params -= rank->heads.n * (d - 1) * L->a->hidden; /* the same rows again */
}

/* Rows of q and of k that a rank has. Norms over the whole width need those of all ranks. */
static llm__slice llm__q_rows(const llm__arch *a, const llm__net_rank *rank, int64_t d) {
    return llm__slice_times(a->qk_norm == LLM_QK_NORM_WHOLE_RMS ? llm__all(a->n_heads) : rank->heads, d);
}

static llm__slice llm__k_rows(const llm__arch *a, const llm__arch_layer *own, const llm__net_layer *layer) {
    return llm__slice_times(a->qk_norm == LLM_QK_NORM_WHOLE_RMS ? llm__all(own->n_kv_heads) : layer->kv_heads, own->head_dim);
}

/* q, k and v in one matrix, of the columns D: from three stored ones, from one with all q, all k, all v, or from one that goes kv head
 * by kv head (its queries, its k, its v). */
static void llm__load_projections(llm__loader *L, const llm__net_rank *rank, const llm__net_layer *layer, llm__slice D, int bias,
                                  llm__net_pair *out) {
    const llm__arch *a = L->a;
    const int with_q = a->attn_gate == LLM__GATE_WITH_Q; /* q's matrix has the gates' rows, so it stands by itself */
    const int fused = !with_q && llm__has(L, LLM__W_QKV), shared = a->layer[L->layer].kv_of != L->layer; /* shared: queries alone */
    const llm__arch_layer *own = &a->layer[L->layer];
    int64_t d = own->head_dim, group = a->n_heads / own->n_kv_heads;
    const llm__slice one = llm__all(1), q = llm__q_rows(a, rank, d), k = llm__k_rows(a, own, layer);
    const llm__slice v = llm__slice_times(layer->kv_heads, own->v_head_dim);
    /* grouped: kv head g has rows q of its `group` queries, then k, then v: (group + 2) * d of them */
    if (fused && llm__arch_is(a, "codegen")) {
        static const int8_t order[3] = {0, 2, 1};
        for (int i = 0; i < 3; i++) llm__take_fourths(L, i ? layer->kv_heads : rank->heads, order[i], d);
    } else if (fused && a->flags & LLM__GROUPED && !a->gguf) {
        int64_t all = own->n_kv_heads * (group + 2) * d;
        for (int64_t h = rank->heads.first; h < rank->heads.first + rank->heads.n; h++)
            llm__take(L, LLM__W_QKV, one, llm__slice_of(all, (h / group * (group + 2) + h % group) * d, d), D, bias);
        for (int64_t kv = 0; kv < 2; kv++)
            for (int64_t h = layer->kv_heads.first; h < layer->kv_heads.first + layer->kv_heads.n; h++)
                llm__take(L, LLM__W_QKV, one, llm__slice_of(all, (h * (group + 2) + group + kv) * d, d), D, bias);
    } else if (fused) {
        int64_t all = q.size + k.size + v.size;
        llm__take(L, LLM__W_QKV, one, llm__slice_of(all, q.first, q.n), D, bias);
        llm__take(L, LLM__W_QKV, one, llm__slice_of(all, q.size + k.first, k.n), D, bias);
        llm__take(L, LLM__W_QKV, one, llm__slice_of(all, q.size + k.size + v.first, v.n), D, bias);
    } else {
        if (with_q) llm__take_halves(L, rank, d, 0, bias);
        else llm__take(L, LLM__W_Q, one, q, D, bias);
        if (!shared) llm__take(L, LLM__W_K, one, k, D, bias);
        if (!shared) llm__take(L, own->k_is_v ? LLM__W_K : LLM__W_V, one, v, D, bias);
        if (!shared && own->k_is_v) L->n_params -= v.n * a->hidden; /* the same matrix again */
        if (with_q) llm__take_halves(L, rank, d, d, bias);
    }
    if (a->attn_gate == LLM__GATE_APART) llm__take(L, LLM__W_ATTN_GATE, one, q, D, 0);
    if (a->attn_gate == LLM__GATE_HEADS) llm__take_head_gate(L, rank, d);
    llm__make(L, LLM_ROLE_LINEAR, fused ? LLM__W_QKV : LLM__W_Q, 0, out);
}

/* What attention reads, with the norms of its queries and keys. EAGLE-3 has columns for the embedding, and then for the state. */
static void llm__load_qkv(llm__loader *L, const llm__net_rank *rank, llm__net_layer *layer) {
    const llm__arch *a = L->a;
    const llm__arch_layer *own = &a->layer[L->layer];
    const int64_t D = a->hidden, d = own->head_dim;
    const int shared = own->kv_of != L->layer, three = (a->eagle & LLM__EAGLE_THREE) != 0;
    llm__slice q = llm__q_rows(a, rank, d), k = llm__k_rows(a, own, layer);
    if (three) llm__load_projections(L, rank, layer, llm__slice_of(2 * D, 0, D), -1, &layer->token_qkv);
    llm__load_projections(L, rank, layer, three ? llm__slice_of(2 * D, D, D) : llm__all(D), a->qkv_bias, &layer->qkv);
    if (!a->qk_norm || a->by_rope) return;
    const int alike = a->qk_norm == LLM_QK_NORM_HEAD_RMS || a->qk_norm == LLM_QK_NORM_HEAD_RMS_LAST; /* the same for all heads */
    if (alike) q = k = llm__all(d);
    if (L->balance && alike && !shared && !own->kv_shared) { /* queries of other layers would need the same factors */
        llm__load_balanced(L, layer);
        return;
    }
    llm__load_vector(L, LLM__W_Q_NORM, q, 1, -1, &layer->q_norm);
    if (!shared) llm__load_vector(L, LLM__W_K_NORM, k, 1, -1, &layer->k_norm);
}

/* An indexer, whole on every rank: its choice is for all heads. What makes its key stands above what weighs its heads. */
static void llm__load_index(llm__loader *L, llm__net_layer *layer) {
    const llm__arch *a = L->a;
    const llm__slice dim = llm__all(a->index_dim), heads = llm__all(a->index_heads), D = llm__all(a->hidden);
    llm__load(L, LLM_ROLE_LINEAR, LLM__W_INDEX_Q, llm__slice_times(heads, a->index_dim), llm__all(a->q_rank), -1, &layer->index_q);
    llm__take(L, LLM__W_INDEX_K, llm__all(1), dim, D, -1);
    llm__take(L, LLM__W_INDEX_WEIGHTS, llm__all(1), heads, D, -1);
    llm__make(L, LLM_ROLE_LINEAR, LLM__W_INDEX_K, 0, &layer->index_k);
    llm__load_vector(L, LLM__W_INDEX_NORM, dim, 1, 1, &layer->index_norm);
}

/* Latent attention (DeepSeek-V2): instead of keys and values the cache holds one latent of kv_rank values a token, and a
 * rotated key of rope_dim values that all heads share:
 *   c = norm(kv_a x)[: kv_rank],  r = rope(kv_a x)[kv_rank :],  k_h = (kv_b_h c)[: nope] with r behind it,  v_h = (kv_b_h c)[nope :]
 * The narrow layers are computed on every rank, heads are shared. The operation multiplies q with kv_b instead of the
 * cache ("absorbed"), so no key is ever made. */
static void llm__load_mla(llm__loader *L, const llm__net_rank *rank, llm__net_layer *layer) {
    const llm__arch *a = L->a;
    llm__slice D = llm__all(a->hidden), q_rank = llm__all(a->q_rank), kv_rank = llm__all(a->kv_rank);
    llm__slice q = llm__slice_times(rank->heads, a->head_dim), up = llm__slice_times(rank->heads, a->nope + a->v_head_dim);
    if (a->q_rank) {
        llm__load(L, LLM_ROLE_LINEAR, LLM__W_Q_A, q_rank, D, 0, &layer->q_a);
        llm__load_vector(L, LLM__W_Q_A_NORM, q_rank, 1, -1, &layer->q_a_norm);
    }
    llm__load(L, LLM_ROLE_LINEAR, a->q_rank ? LLM__W_Q_B : LLM__W_Q, q, a->q_rank ? q_rank : D, 0, &layer->q_b);
    llm__load(L, LLM_ROLE_LINEAR, LLM__W_KV_A, llm__all(a->kv_rank + a->rope[0].dim), D, 0, &layer->kv_a);
    llm__load_vector(L, LLM__W_KV_A_NORM, kv_rank, 1, -1, &layer->kv_a_norm);
    int apart = !L->adapter && llm__has(L, LLM__W_K_B); /* GGUF: keys head by head as (rank, nope), values as (v, rank) */
    if (!apart) llm__take(L, LLM__W_KV_B, llm__all(1), up, kv_rank, -1);
    for (int64_t h = rank->heads.first; apart && h < rank->heads.first + rank->heads.n; h++) {
        llm__take(L, LLM__W_K_B, llm__slice_of(a->n_heads, h, 1), llm__all(a->nope), kv_rank, -1);
        llm__take(L, LLM__W_V_B, llm__slice_of(a->n_heads, h, 1), llm__all(a->v_head_dim), kv_rank, -1);
    }
    llm__make(L, LLM_ROLE_MLA_UP, LLM__W_KV_B, 0, &layer->kv_b);
    if (L->indexed) llm__load_index(L, layer);
}

/* An MLP, or with n_experts as many of them; slots from `slot` on: gate and up in one, gate, up, down. The rank has
 * rows `ff` of gate and up, columns `ff` of down. In one matrix the gate's rows stand before those of up, or
 * (gpt-oss) in turns with them. */
static void llm__load_mlp(llm__loader *L, int slot, int n_experts, int first, llm__slice ff, int bias, llm__net_pair *up,
                          llm__net_pair *down) {
    const llm__arch *a = L->a;
    int n = LLM__MAX(n_experts, 1), gated = !(a->flags & LLM__NO_GATE);
    int turns = n_experts && llm__arch_is(a, "gpt_oss") && !a->gguf, swapped = llm__arch_is(a, "gte"); /* whose rows of up come first */
    int apart = L->m->dummy || llm__has(L, slot + 1) || (n_experts && !llm__has(L, slot));
    int both = llm__has(L, slot) ? slot : slot + 2; /* GGUF: ffn_up may hold both */
    llm__slice D = llm__all(n_experts && a->ff_latent ? a->ff_latent : a->hidden);
    if (n_experts && L->adapter) {
        llm__adapter_experts(L, slot + (gated ? 1 : 2), ff, D, llm__arch_is(a, "gpt_oss"), up);
        llm__adapter_experts(L, slot + 3, D, ff, 0, down);
        return;
    }
    /* of each expert gate, then up: the order that the operations want */
    for (int e = 0; e < n; e++)
        for (int part = !gated; part < 2; part++) { /* gate, up */
            llm__slice rows = ff, which = llm__slice_of(n, first + e, 1);
            if (gated && !apart)
                rows = llm__slice_of(2 * ff.size, turns ? 2 * ff.first + part : ff.first + (part ^ swapped) * ff.size, ff.n);
            if (gated && !apart && turns) rows.step = 2;
            llm__take(L, gated && !apart ? both : slot + 1 + part, which, rows, D, bias);
        }
    const llm_role role = gated ? LLM_ROLE_GATE_UP : LLM_ROLE_LINEAR, of_experts = gated ? LLM_ROLE_EXPERTS_GATE_UP : LLM_ROLE_EXPERTS;
    llm__make(L, n_experts ? of_experts : role, slot + 2, n_experts, up);
    for (int e = 0; e < n; e++) llm__take(L, slot + 3, llm__slice_of(n, first + e, 1), D, ff, bias);
    llm__make(L, n_experts ? LLM_ROLE_EXPERTS : LLM_ROLE_LINEAR, slot + 3, n_experts, down);
}

/* A norm over the hidden size, with a bias if it is a LayerNorm. Norms of OLMo and nanochat have no weights. */
static void llm__load_norm(llm__loader *L, int slot, int must, llm__net_pair *norm) {
    int bias = must ? L->a->norm_bias : LLM__MIN(L->a->norm_bias, 0);
    llm__load_vector(L, slot, llm__all(L->a->hidden), must && !llm__arch_is(L->a, "olmo nanochat"), bias, norm);
}

/* What else experts beside the MLP have: norms, and a router that reads x / rms(x) * scale * D^-0.5. */
static void llm__load_beside(llm__loader *L, llm__net_layer *layer) {
    const llm__arch *a = L->a;
    llm__load_norm(L, LLM__W_POST_FFN1, 1, &layer->post_ffn1);
    llm__load_norm(L, LLM__W_FFN_NORM2, 1, &layer->ffn_norm2);
    llm__load_norm(L, LLM__W_POST_FFN2, 1, &layer->post_ffn2);
    llm__load_vector(L, LLM__W_EXPERT_SCALE, llm__all(a->n_experts), 1, -1, &layer->moe[0].by);
    const float *scale = llm__load_values(L, LLM__W_ROUTER_SCALE, a->hidden, 1 / sqrtf((float)a->hidden));
    if (scale) llm__load_numbers(L, "scale of what the router reads", scale, a->hidden, &layer->router_norm.w);
}

/* What Gemma 4 has behind the MLP: the layer's own values for a token are cut by columns as the MLP's width is. */
static void llm__load_behind(llm__loader *L, const llm__net_rank *rank, llm__net_layer *layer) {
    const llm__slice D = llm__all(L->a->hidden);
    const float *scalar = llm__has(L, LLM__W_SCALAR) ? llm__load_values(L, LLM__W_SCALAR, 1, 1) : NULL;
    if (scalar) layer->scalar = *scalar;
    if (!L->a->per_layer) return;
    llm__load(L, LLM_ROLE_LINEAR, LLM__W_PL_GATE, rank->per_layer, D, -1, &layer->pl_gate);
    llm__load(L, LLM_ROLE_LINEAR, LLM__W_PL_PROJ, D, rank->per_layer, -1, &layer->pl_proj);
    llm__load_norm(L, LLM__W_PL_NORM, 1, &layer->pl_norm);
}

/* A norm over all of what a block's second matrix reads (BitNet): of attention's heads side by side, of the MLP's whole width. A rank has
 * some heads and some of the width, and the root of a mean over all of them is a sum over ranks that no other family needs in the middle of
 * a block; so these models run whole on each device, in one piece or as stages of a pipeline. */
static void llm__load_sub_norm(llm__loader *L, int slot, int64_t n, llm__net_pair *norm) {
    if (!llm__arch_is(L->a, "bitnet")) return;
    if (L->n_group > 1 && !L->r)
        L->r = llm__error(LLM_ERR_UNSUPPORTED,
                          "tensor_parallel_size %d: what the norms within blocks of %s read cannot be divided among so many ranks",
                          (int)L->n_group, L->a->name);
    llm__load_vector(L, slot, llm__all(n), 1, -1, norm);
}

/* Attention, with what leads back from it. */
static void llm__load_heads(llm__loader *L, const llm__net_rank *rank, llm__net_layer *layer) {
    const llm__arch *a = L->a;
    if (a->flags & LLM__MLA) llm__load_mla(L, rank, layer);
    else llm__load_qkv(L, rank, layer);
    llm__load_sub_norm(L, LLM__W_ATTN_SUB, (int64_t)a->n_heads * a->layer[L->layer].v_head_dim, &layer->attn_sub);
    llm__load(L, LLM_ROLE_LINEAR, LLM__W_O, llm__all(a->hidden), llm__slice_times(rank->heads, a->layer[L->layer].v_head_dim), a->o_bias,
              &layer->o);
    if (a->layer[L->layer].sinks) llm__load_vector(L, LLM__W_SINKS, rank->heads, 1, -1, &layer->sinks);
}

/* Everything of the current layer, in the order in which a token meets it. A GGUF converter may have folded a
 * family's habits in: what is optional is looked for, what the family cannot do without is a must. */
static void llm__load_layer(llm__loader *L, const llm__net_rank *rank, llm__net_layer *layer) {
    const llm__arch *a = L->a;
    int pre = !(a->flags & LLM__NO_PRE_NORM), post = (a->flags & (LLM__POST_NORM | LLM__NORM_AFTER)) != 0, mixer = a->layer[L->layer].mixer;
    llm__slice D = llm__all(a->hidden), E = llm__all(a->n_experts);
    llm__layer_share(a, L->layer, L->rank % L->n_group, L->n_group, layer);
    llm__net_pair *first = mixer == LLM__MIX_NONE ? &layer->ffn_norm : &layer->attn_norm;
    if (pre && (!a->eagle || a->eagle & LLM__EAGLE_BEFORE) && !a->layer[L->layer].bare)
        llm__load_norm(L, a->eagle & LLM__EAGLE_THREE ? LLM__W_STATE_NORM : LLM__W_ATTN_NORM,
                       !a->eagle || a->eagle & (LLM__EAGLE_THREE | LLM__EAGLE_NEXT), first);
    if (mixer > LLM__MIX_NONE) llm__load_recurrent(L, rank, layer);
    if (mixer == LLM__MIX_ATTENTION || a->layer[L->layer].both) llm__load_heads(L, rank, layer);
    if (post) llm__load_norm(L, LLM__W_POST_ATTN, 1, &layer->post_attn);
    if (a->layer[L->layer].no_mlp) return;
    if (pre && mixer != LLM__MIX_NONE) llm__load_norm(L, LLM__W_FFN_NORM, !(a->flags & LLM__PARALLEL), &layer->ffn_norm);
    const int moe = a->layer[L->layer].moe;
    if (post || (moe && a->norm_experts)) llm__load_norm(L, LLM__W_POST_FFN, 1, &layer->post_ffn);
    if (a->layer[L->layer].sparse) llm__load_sparse(L, layer);
    else if (!moe || a->beside) {
        llm__load_sub_norm(L, LLM__W_FFN_SUB, layer->ff.size, &layer->ffn_sub);
        llm__load_mlp(L, LLM__W_GATE_UP, 0, 0, layer->ff, a->mlp_bias, &layer->up, &layer->down);
    }
    if (llm__arch_is(a, "gemma3n_text gemma4_text")) llm__load_behind(L, rank, layer);
    if (a->n_streams) llm__load_altup(L, layer);
    if (moe && a->beside) llm__load_beside(L, layer);
    if (!moe) return;
    for (int s = 0; s < a->n_sets; s++) { /* experts and corrections of the second set follow those of the first */
        llm__net_moe *set = &layer->moe[s];
        const int32_t all = a->n_experts;
        llm__load(L, LLM_ROLE_LINEAR, s ? LLM__W_ROUTER2 : LLM__W_ROUTER, E, D, 0, &set->router);
        llm__load_vector(L, LLM__W_CORRECTION, llm__slice_of((int64_t)a->n_sets * all, s * all, all),
                         L->m->dummy && a->score == LLM_ROUTE_SIGMOID, -1, &set->correction);
        llm__load_mlp(L, LLM__W_E_GATE_UP, all, s * all, rank->ff_expert[s], llm__arch_is(a, "gpt_oss"), &set->up, &set->down);
    }
    if (a->ff_latent) {
        const llm__slice narrow = llm__all(a->ff_latent);
        llm__load(L, LLM_ROLE_LINEAR, LLM__W_E_IN, narrow, D, 0, &layer->e_in);
        llm__load(L, LLM_ROLE_LINEAR, LLM__W_E_OUT, D, narrow, L->rank % L->n_group ? -1 : 0, &layer->e_out);
    }
    int bias = llm__arch_is(a, "ernie4_5_moe") && a->mlp_bias; /* not of the experts among which tokens choose */
    if (a->ff_shared) llm__load_mlp(L, LLM__W_S_GATE_UP, 0, 0, rank->ff_shared, bias, &layer->s_up, &layer->s_down);
    if (a->shared_gate) llm__load(L, LLM_ROLE_LINEAR, LLM__W_S_SCALE, llm__all(1), D, -1, &layer->s_gate);
}

/* What makes the layers' own values for a token: a table, cut as the vocabulary is, and a projection of the embedding, whole on every rank.
 * Their sum is divided by the root of 2, which the norm's weights take in. An encoder has the projection alone, which is not divided. */
static void llm__load_per_layer(llm__loader *L, llm__net_rank *rank) {
    const llm__arch *a = L->a;
    const llm__slice all = llm__all((int64_t)a->n_layers * a->per_layer);
    if (!a->per_layer) return;
    if (!a->encoder) llm__load(L, LLM_ROLE_EMBED, LLM__W_PL_EMBED, rank->pl_vocab, all, -1, &rank->pl_embed);
    llm__load(L, LLM_ROLE_LINEAR, LLM__W_PL_MODEL, all, llm__all(a->hidden), -1, &rank->pl_model);
    const float *norm = llm__load_values(L, LLM__W_PL_MODEL_NORM, a->per_layer, a->encoder ? 1 : sqrtf(0.5f));
    if (norm) llm__load_numbers(L, "norm of layers' own values", norm, a->per_layer, &rank->pl_model_norm.w);
}

/* Which of 32 buckets a key is in that stands `far` positions behind the query's (below 0: before it), as T5 has them (Raffel et al. 2020):
 * up to 8 positions away each distance has its own, then they grow by the root of 2; from 91 on all is one. The second half is of keys
 * behind the query.
 *
 *     far        -91  -90  -12  -11   -8   -7    0    7    8   11   12   90   91
 *     bucket      15   14    9    8    8    7    0   23   24   24   25   30   31
 */
static int llm__distance_bucket(int far) {
    const int n = abs(far);
    int bucket = LLM__MIN(n, 8);
    while (bucket >= 8 && bucket < 15 && n * n >= 64 << (bucket - 7)) bucket++;
    return bucket + (far > 0 ? 16 : 0);
}

/* What MPNet adds to scores, stored as (buckets, heads): a number for each distance of the rank's heads. */
static void llm__load_distances(llm__loader *L, llm__net_rank *rank) {
    const int reach = L->a->reach, H = L->a->n_heads;
    if (!reach) return;
    const float *stored = llm__load_values(L, LLM__W_DISTANCES, 32 * (int64_t)H, 1);
    const int64_t each = 2 * reach + 1, n = rank->heads.n * each;
    float *by = stored ? (float *)llm__arena_get(&L->keep, sizeof(float) * (size_t)n) : NULL;
    if (stored && !by && !L->r) L->r = llm__nomem();
    for (int64_t i = 0; by && i < n; i++) by[i] = stored[llm__distance_bucket((int)(i % each) - reach) * H + rank->heads.first + i / each];
    if (by) llm__load_numbers(L, "bias by distance", by, n, &rank->distance);
}

/* The norm before an output layer W each of whose columns is divided by its length: w_c / (|W_c| + 1e-7) in place of w_c. */
static void llm__load_head_norm(llm__loader *L, llm__net_rank *rank) {
    const llm__arch *a = L->a;
    float *w = llm__load_values(L, LLM__W_OUT_NORM, a->hidden, 1),
          *by = w ? (float *)llm__arena_get(&L->keep, sizeof *w * (size_t)a->hidden) : NULL;
    L->n_params -= a->hidden;
    if (!w) return;
    if (!by) L->r = llm__nomem();
    else if (!L->m->dummy) llm__column_lengths(L, LLM__W_HEAD, a->vocab, a->hidden, L->backend && !L->dry ? by : NULL);
    for (int32_t i = 0; by && i < a->hidden && L->backend && !L->dry && !L->m->dummy; i++) w[i] *= by[i];
    llm__load_numbers(L, "norm before the output layer", w, a->hidden, &rank->head_norm.w);
}

/* Weights of the whole model: embedding, positions, final norm, output layer (which many families tie to the
 * embedding: the same tensor is handed over in two roles, to be gathered from and to be multiplied with). Of a pipeline the first
 * stage has the former, the last one the latter. */
static void llm__load_model(llm__loader *L, llm__net_rank *rank) {
    const llm__arch *a = L->a;
    llm__slice D = llm__all(a->hidden);
    /* config.json may say so; GGUF files just leave the output matrix out */
    int tied = a->tied > 0 || (a->tied < 0 && !llm__has(L, LLM__W_HEAD));
    if (rank->first) {
        llm__load(L, LLM_ROLE_EMBED, LLM__W_EMBED, rank->vocab, D, -1, &rank->embed);
        if (!llm__arch_is(a, "lfm2 lfm2_moe"))
            llm__load_norm(L, LLM__W_EMBED_NORM, a->flags & LLM__NORM_AFTER || llm__arch_is(a, "bloom modernbert"), &rank->embed_norm);
        if (a->flags & LLM__LEARNED)
            llm__load(L, LLM_ROLE_EMBED, LLM__W_POSITIONS, llm__all(a->max_positions + a->position_offset), D, -1, &rank->positions);
        llm__load_per_layer(L, rank);
    }
    if (a->n_streams) llm__load_streams(L, rank);
    if (rank->last && !a->encoder) {
        L->heading = 1;
        llm__load(L, LLM_ROLE_HEAD, tied ? LLM__W_EMBED : LLM__W_HEAD, rank->vocab, D, tied ? -1 : 0, &rank->head);
        L->heading = 0;
        if (tied) L->n_params -= rank->vocab.n * a->hidden;
    }
    if (rank->last && !(a->flags & LLM__NORM_AFTER)) llm__load_norm(L, LLM__W_OUT_NORM, 1, &rank->out_norm);
    if (rank->last && a->head_norm) llm__load_head_norm(L, rank);
    llm__load_distances(L, rank);
    if (a->flags & LLM__ALIBI) llm__load_numbers(L, "ALiBi slopes", a->alibi + rank->heads.first, rank->heads.n, &rank->alibi);
}

/* The same of a head that guesses from hidden states (>>eagle): fc, whole on every rank, cut by what it reads side by side. What the files
 * name as of the layer is looked for there. Embedding and output layer are the model's own weights (NULL: only checking), unless an EAGLE-3
 * head brings its own. */
static void llm__load_eagle(llm__loader *L, llm__net_rank *rank, const struct llm__net *model_net) {
    const llm__arch *a = L->a;
    const int three = (a->eagle & LLM__EAGLE_THREE) != 0, next = (a->eagle & LLM__EAGLE_NEXT) != 0, n = three ? 3 : 2;
    const int64_t D = a->hidden, each = three ? a->tap_hidden : D;
    const llm__net_rank *model = model_net ? &model_net->rank[L->rank] : NULL;
    L->layer = llm__has(L, LLM__W_FC) ? -1 : 0;
    for (int i = 0; i < n; i++) {
        const int64_t part = a->eagle & LLM__EAGLE_ACROSS ? n - 1 - i : i;
        llm__load(L, LLM_ROLE_LINEAR, LLM__W_FC, llm__all(D), llm__slice_of(n * each, part * each, each), i ? -1 : 0, &rank->fc[i]);
    }
    if (next) llm__load_norm(L, LLM__W_STATE_NORM, 1, &rank->state_norm);
    if (a->eagle & LLM__EAGLE_BEHIND)
        llm__load_norm(L, llm__has(L, LLM__W_NEXT_NORM) ? LLM__W_NEXT_NORM : LLM__W_OUT_NORM, next || three, &rank->out_norm);
    if (three) L->layer = 0;
    if (three || next) llm__load_norm(L, LLM__W_TOKEN_NORM, 1, &rank->token_norm);
    if (three && !(a->eagle & LLM__EAGLE_BEFORE)) llm__load_norm(L, LLM__W_STATE_NORM, 1, &rank->state_norm);
    L->layer = -1;
    if (a->own_embed) llm__load(L, LLM_ROLE_EMBED, LLM__W_EMBED, rank->vocab, llm__all(D), -1, &rank->embed);
    if (a->outputs) llm__load(L, LLM_ROLE_HEAD, LLM__W_HEAD, rank->outputs, llm__all(D), 0, &rank->head);
    if (!model) return;
    if (!a->own_embed) rank->embed.w = model->embed.w, rank->embed_norm = model->embed_norm;
    if (!a->outputs) rank->head.w = model->head.w, rank->head.b = model->head.b;
    if (next && !(a->eagle & LLM__EAGLE_BEHIND)) rank->out_norm = model->out_norm;
}

LLM__PRIVATE void llm__load_rank(llm__loader *L, llm__net_rank *rank, const llm__net_config *cfg) {
    int stage = L->rank / L->n_group, n_stages = L->n_ranks / L->n_group;
    if (!L->r) L->r = llm__net_share(L->a, L->rank % L->n_group, L->n_group, rank);
    rank->begin = L->a->n_layers * stage / n_stages;
    rank->end = L->a->n_layers * (stage + 1) / n_stages;
    rank->first = stage == 0;
    rank->last = stage == n_stages - 1;
    L->indexed = L->a->index_topk && (!cfg || cfg->indexed);
    if (cfg && cfg->alone) {
        rank->begin = cfg->alone - 1, rank->end = cfg->alone;
        rank->first = rank->begin == 0, rank->last = 0;
    }
    L->layer = -1;
    if (!L->r && L->a->eagle) llm__load_eagle(L, rank, cfg ? cfg->model_net : NULL);
    else if (!L->r) llm__load_model(L, rank);
    for (int i = 0; i < L->a->n_rope; i++)
        llm__load_numbers(L, "rotary frequencies", L->a->rope[i].inv_freq, L->a->rope[i].dim, &rank->inv_freq[i]);
    for (L->layer = rank->begin; L->layer < rank->end && !L->r; L->layer++) {
        /* a layer at a time: the progress hook may cancel between two */
        double done = (L->rank + (double)(L->layer - rank->begin) / (rank->end - rank->begin)) / L->n_ranks;
        llm__net_layer unused = LLM__ZERO;
        llm__load_layer(L, rank, rank->layer ? &rank->layer[L->layer] : &unused);
        if (!L->r && cfg && cfg->progress && cfg->progress(cfg->progress_user, "loading weights", done))
            L->r = llm__error(LLM_ERR_CANCELLED, "loading was cancelled");
    }
}

LLM__PRIVATE void llm__loader_begin(llm__loader *L, const llm_model *m, int n_ranks, int n_group) {
    memset(L, 0, sizeof *L);
    L->m = m;
    L->a = &m->arch;
    L->path = m->path;
    L->base = m->arch.layer_base ? m->arch.layer_base : llm__layer_base(&m->source.tensors, 0);
    L->n_ranks = n_ranks;
    L->n_group = n_group;
}

LLM__PRIVATE void llm__loader_end(llm__loader *L) {
    for (int k = 0; k < 2; k++) LLM_FREE(L->list[k].segment);
    LLM_FREE(L->taken);
    llm__arena_free(&L->keep);
}

LLM__PRIVATE llm_result llm__net_check(llm_model *m) {
    llm__loader L;
    llm__net_rank rank = LLM__ZERO;
    llm__loader_begin(&L, m, 1, 1);
    llm__load_rank(&L, &rank, NULL);
    m->info.n_params = L.n_params;
    m->info.step_bytes = L.step_bytes;
    llm__loader_end(&L);
    return L.r;
}

/* ---- Opening a net ----
 * Weights go to the backend rank by rank and layer by layer, in the order in which a step reads them, so that a backend
 * which lays them out as they come gets memory that is read from front to back. */

/* Columns of buffers that are as wide as the widest layer of a rank wants them; states: see llm__net_buffers. */
typedef struct llm__net_widths {
    int64_t att, qkv, ff, states, gates;
} llm__net_widths;

static llm__net_widths llm__net_widths_of(const llm__arch *a, const llm__net_rank *rank) {
    const int64_t states = a->recurrent ? rank->state.heads.n * a->state.dv : 0;
    llm__net_widths w = {states, 0, rank->ff_shared.n, 0, a->laurel_rank};
    for (int i = rank->begin; i < rank->end; i++) {
        const llm__net_layer *layer = &rank->layer[i];
        const int32_t v = a->layer[i].v_head_dim;
        const int64_t gates = a->attn_gate ? layer->q_width : 0;
        w.att = LLM__MAX(w.att, rank->heads.n * v);
        w.ff = LLM__MAX(w.ff, layer->ff.n);
        w.states = a->layer[i].both ? states : w.states;
        if (a->layer[i].sparse) w.gates = LLM__MAX(w.gates, (int64_t)a->layer[i].ff);
        if (!(a->flags & LLM__MLA)) w.qkv = LLM__MAX(w.qkv, layer->q_width + layer->k_width + layer->kv_heads.n * v + gates);
    }
    return w;
}

/* Buffers of indexers: their queries, a key with the weights of the heads, the positions (T, index_topk); and that of EAGLE-3. */
static llm_result llm__net_rare_buffers(llm__net *net, int rank_index, int64_t rows) {
    const llm__arch *a = net->a;
    llm__net_rank *rank = &net->rank[rank_index];
    const int64_t indexed = net->cfg.indexed;
    llm_buffer **const to[4] = {&rank->index_q, &rank->index_k, &rank->chosen, &rank->tapped};
    const int64_t cols[4] = {indexed * a->index_heads * a->index_dim, indexed * (a->index_dim + a->index_heads), indexed * a->index_topk,
                             a->eagle & LLM__EAGLE_THREE ? a->hidden : 0};
    llm_result r = LLM_OK;
    for (int i = 0; i < LLM__COUNT(to) && !r; i++)
        if (cols[i]) r = net->cfg.backend->buffer(net->cfg.ctx, rank_index, rows, cols[i], to[i]);
    return r;
}

/* All buffers of a rank. A step has at most max_rows tokens, so they are made once, and every layer uses them again:
 *   x, h, y     residual stream, its norm, what a block adds (T, D); once more for the rows whose logits are wanted
 *   tapped      what EAGLE-3's fc has made of the model's layers (T, D)
 *   qkv, att    what attention reads and gives (T, q_width + k_width + v), (T, n_heads * v_head_dim), as wide as the widest layer
 *   states      what states give beside attention (T, heads * dv)
 *   rope        cosines and sines of this step's positions (T, rope.dim), for each set of frequencies
 *   ff_act      act(gate) * up of the MLP, or of the shared expert (T, ff)
 *   mix         what recurrent layers make of the residual stream: see llm__net_state
 *   state_low   narrow values between two matrices of theirs
 *   router, routes  scores of the experts (T, E), the chosen and their weights (T, 2 n_used)
 *   q_a, q, kv_a    latent attention's narrow and wide queries, its latent
 *   e_in, e_out     what experts read and give, where it is narrower than the residual stream
 *   router_in, sum  with experts beside the MLP: what their router reads, what both have made (T, D)
 *   streams, modal  streams of the residual (T, n D), once more for the rows whose logits are wanted, and what routes them (T, n)
 *   gates           gates of a sparse MLP (T, ff), of all ranks, and what is narrow in the detour around attention (T, rank)
 *   pl, pl_new      layers' own values for a token (T, n_layers * P), and what of them is made from the embedding; pl_act, pl_out: of one
 *                   layer, this rank's columns
 *   low, plus       what adapters make: A x (T, 3 r), and B A x, as wide as the widest layer; head_plus: of the output layer; e_low,
 *                   e_plus: of experts, for every choice of a row, but at most 64 MB (then rows go in turns)
 * What has no columns is not needed. */
static llm_result llm__net_buffers(llm__net *net, int rank_index, int64_t wide) {
    const llm__arch *a = net->a;
    llm__net_rank *rank = &net->rank[rank_index];
    int64_t rows = LLM__MAX(net->cfg.max_rows, net->cfg.max_out), out = LLM__MAX(net->cfg.max_out, 1), D = a->hidden;
    const llm__net_widths w = llm__net_widths_of(a, rank);
    const int64_t is_mla = (a->flags & LLM__MLA) != 0, lora = net->cfg.n_loras > 0;
    int64_t wide_expert = LLM__MAX(2 * LLM__MAX(rank->ff_expert[0].n, rank->ff_expert[1].n), D);
    int64_t choices = LLM__MAX(a->n_used, LLM__MIN(rows * a->n_used, ((int64_t)64 << 20) / 4 / wide_expert));
    const struct {
        int64_t rows, cols;
        llm_buffer **to;
    } plan[] = {
        {rows, D, &rank->token.x},
        {rows, D, &rank->token.h},
        {rows, D, &rank->token.y},
        {rows, w.att, &rank->token.att},
        {out, D, &rank->out.x},
        {out, D, &rank->out.h},
        {out, D, &rank->out.y},
        {out, w.att, &rank->out.att},
        {rows, w.states, &rank->token.states},
        {out, w.states, &rank->out.states},
        {rows, a->n_rope > 0 ? a->rope[0].dim : 0, &rank->rope[0]},
        {rows, a->n_rope > 1 ? a->rope[1].dim : 0, &rank->rope[1]},
        {rows, w.qkv, &rank->qkv},
        {rows, rank->state.cols, &rank->mix},
        {rows, rank->state.low[0], &rank->state_low[0]},
        {rows, rank->state.low[1], &rank->state_low[1]},
        {rows, w.ff, &rank->ff_act},
        {rows, is_mla * a->q_rank, &rank->q_a},
        {rows, is_mla * rank->heads.n * a->head_dim, &rank->q},
        {rows, is_mla * (a->kv_rank + a->rope[0].dim), &rank->kv_a},
        {rows, a->n_experts, &rank->router},
        {rows, 2 * a->n_used, &rank->routes},
        {rows, a->shared_gate, &rank->gate},
        {rows, a->n_experts ? a->ff_latent : 0, &rank->e_in},
        {rows, a->n_experts ? a->ff_latent : 0, &rank->e_out},
        {rows, a->beside ? D : 0, &rank->router_in},
        {rows, a->beside ? D : 0, &rank->sum},
        {rows, a->n_streams * D, &rank->token.streams},
        {out, a->n_streams * D, &rank->out.streams},
        {rows, a->n_streams, &rank->modal},
        {rows, w.gates, &rank->gates},
        {rows, (int64_t)a->n_layers * a->per_layer, &rank->pl},
        {rows, rank->first ? (int64_t)a->n_layers * a->per_layer : 0, &rank->pl_new},
        {rows, rank->per_layer.n, &rank->pl_act},
        {out, rank->per_layer.n, &rank->pl_out},
        {rows, lora * LLM_LORA_PARTS * net->cfg.max_lora_rank, &rank->low},
        {rows, lora * wide, &rank->plus},
        {out, lora * rank->vocab.n, &rank->head_plus},
        {choices, a->n_used ? lora * LLM_LORA_PARTS * net->cfg.max_lora_rank : 0, &rank->e_low},
        {choices, a->n_used ? lora * wide_expert : 0, &rank->e_plus},
    };
    llm_result r = LLM_OK;
    rank->token.rows = LLM_ROWS_TOKENS;
    rank->out.rows = LLM_ROWS_OUT;
    for (int i = 0; i < LLM__COUNT(plan) && !r; i++)
        if (plan[i].cols > 0) r = net->cfg.backend->buffer(net->cfg.ctx, rank_index, plan[i].rows, plan[i].cols, plan[i].to);
    return r ? r : llm__net_rare_buffers(net, rank_index, rows);
}

LLM__PRIVATE void llm__net_close(llm__net *net) {
    if (!net) return;
    LLM_FREE(net->rank);
    LLM_FREE(net->layer);
    LLM_FREE(net->kv);
    LLM_FREE(net);
}

/* Which layers a rank's KV cache has, and where each layer of the net stands among them. All ranks have pages of one form, so stages of a
 * pipeline take layers of the same shape in the same places, and what one of them has more of than the others stays unused there:
 *
 *     stage 0 s s f, stage 1 s f f (s: 2 heads of 256, f: 1 of 512)     cache s s f f     stage 1 has its layers at 0, 2, 3
 */
static llm_result llm__net_kv(llm__net *net) {
    const llm__arch *a = net->a;
    const int latent = (a->flags & LLM__MLA) != 0;
    for (int r = 0; r < net->cfg.n_ranks; r++) {
        const llm__net_rank *rank = &net->rank[r];
        uint8_t taken[LLM__MAX_LAYERS] = {0};
        for (int i = rank->begin; i < rank->end; i++) {
            const llm__arch_layer *own = &a->layer[i];
            if (own->kv_of < rank->begin)
                return llm__error(LLM_ERR_UNSUPPORTED, "%s: layer %d reads the keys of layer %d, which cannot be in another stage",
                                  net->cfg.model->path, i, own->kv_of);
            rank->layer[i].kv = rank->layer[own->kv_of].kv;
            if (own->kv_of < i || own->mixer == LLM__MIX_NONE) continue;
            llm_kv_layer kv = {(int32_t)rank->layer[i].kv_heads.n, own->head_dim, own->v_head_dim, 0};
            if (own->mixer > LLM__MIX_NONE) kv.n_state = rank->state.n_state;
            if (kv.n_state && !own->both) kv.n_kv_heads = kv.head_dim = kv.v_head_dim = 0;
            if (latent && own->mixer == LLM__MIX_ATTENTION) {
                const int32_t width = a->kv_rank + a->rope[0].dim;
                kv.n_kv_heads = 1, kv.head_dim = net->cfg.indexed ? a->index_dim : width, kv.v_head_dim = net->cfg.indexed ? width : 0;
            }
            int at = 0;
            while (at < net->n_kv && (taken[at] || memcmp(&net->kv[at], &kv, sizeof kv))) at++;
            net->kv[at] = kv;
            net->n_kv = LLM__MAX(net->n_kv, at + 1);
            taken[at] = 1;
            rank->layer[i].kv = at;
        }
    }
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__net_open(const llm__net_config *cfg, llm__net **out) {
    *out = NULL;
    const llm__arch *a = &cfg->model->arch;
    if (!a->n_layers) return llm__error(LLM_ERR_ARG, "%s: opened with vocab_only: it has no weights", cfg->model->path);
    int n_stages = LLM__MAX(cfg->n_stages, 1);
    if (a->n_layers < n_stages)
        return llm__error(LLM_ERR_ARG, "pipeline_parallel_size %d: %s has %d layers", n_stages, cfg->model->path, a->n_layers);
    if (a->per_layer && cfg->alone)
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: %s has layers that cannot be computed alone", cfg->model->path, a->name);
    llm__net *net = LLM__NEW(llm__net, 1);
    if (!net) return llm__nomem();
    net->cfg = *cfg;
    int n = net->cfg.n_ranks = LLM__MAX(cfg->n_ranks, 1);
    net->a = a;
    net->n_group = n / n_stages;
    net->rank = LLM__NEW(llm__net_rank, n);
    net->layer = LLM__NEW(llm__net_layer, n * a->n_layers);
    net->kv = LLM__NEW(llm_kv_layer, a->n_layers);
    llm_result r = net->rank && net->layer && net->kv ? LLM_OK : llm__nomem();
    llm__loader L;
    llm__loader_begin(&L, cfg->model, n, net->n_group);
    L.backend = cfg->backend;
    L.ctx = cfg->ctx;
    L.n_slots = cfg->n_loras;
    L.balance = cfg->rounded_kv && !cfg->model->dummy;
    L.dry = cfg->dry;
    /* the check at opening was for one rank; another number of ranks may still be refused, by llm__net_share */
    for (L.rank = 0; L.rank < n && !r; L.rank++) {
        net->rank[L.rank].layer = net->layer + L.rank * a->n_layers;
        const int64_t before = cfg->dry ? cfg->backend->memory_used(cfg->ctx) : 0;
        llm__load_rank(&L, &net->rank[L.rank], cfg);
        if (cfg->dry) net->weight_bytes += cfg->backend->memory_used(cfg->ctx) - before;
        r = L.r ? L.r : llm__net_buffers(net, L.rank, L.wide);
    }
    if (!r) r = llm__net_kv(net);
    if (!r && !cfg->dry) r = llm__source_whole(&cfg->model->source);
    if (!r && !cfg->dry) r = cfg->backend->weights_done(cfg->ctx);
    net->unpacked = L.unpacked + (int64_t)L.keep.total;
    llm__loader_end(&L);
    for (size_t i = 0; i < cfg->model->source.n_files && !cfg->dry; i++)
        if (cfg->model->source.files[i].mapped) llm__file_rest(cfg->model->source.files[i].data, cfg->model->source.files[i].size);
    if (r) {
        llm__net_close(net);
        return r;
    }
    *out = net;
    return LLM_OK;
}

LLM__PRIVATE int32_t llm__state_page(const llm__arch *a) {
    llm__net_state all = LLM__ZERO;
    int64_t state = 0, token = 0, page = 64;
    if (!a->recurrent || llm__state_share(a, 0, 1, &all)) return 0;
    for (int i = 0; i < a->n_layers; i++) {
        if (a->layer[i].mixer > LLM__MIX_NONE) state += all.n_state * (int64_t)sizeof(float);
        const int64_t each = (int64_t)a->layer[i].n_kv_heads * (a->layer[i].head_dim + a->layer[i].v_head_dim) * 2;
        if (a->layer[i].mixer == LLM__MIX_ATTENTION || a->layer[i].both)
            token += a->flags & LLM__MLA ? 2 * ((int64_t)a->kv_rank + a->rope[0].dim) : each;
    }
    while (page < 1024 && 2 * page * token < state) page *= 2;
    return (int32_t)page;
}

LLM__PRIVATE void llm__net_rope_of(const llm__net *net, int32_t prompt_len, int32_t *variant, float *base) {
    const llm__arch *a = net->a;
    /* the prompt's length decides, not the answer's: a base that moved under cached keys would spoil them */
    double length = prompt_len / LLM__MAX(a->dynamic_from, 1), grow = 1;
    *variant = a->long_from > 0 && prompt_len > a->long_from;
    if (a->dynamic == 1 && length > 1) grow = a->dynamic_factor * length - (a->dynamic_factor - 1);
    if (a->dynamic == 2 && length > 1) grow = exp2(ceil(log2(length) + 1)) - 1; /* Qwen 1 grows in steps */
    *base = a->rope[0].dim > 2 && grow > 1 ? (float)pow(grow, a->rope[0].dim / (a->rope[0].dim - 2.0)) : 1.0f;
}

LLM__PRIVATE const float *llm__net_hidden(const llm__net *net, int out_row) {
    int rank = net->cfg.n_ranks - net->n_group; /* the first of the last stage */
    return net->cfg.backend->buffer_row(net->cfg.ctx, rank, net->rank[rank].out.h, out_row);
}

LLM__PRIVATE uint64_t llm__model_mark(const llm_model *m) {
    const llm__tensors *t = &m->source.tensors;
    uint64_t h = llm__hash(m->arch.name, strlen(m->arch.name), (uint64_t)m->arch.n_layers << 32 | (uint64_t)m->arch.hidden);
    for (size_t i = 0; i < t->n; i++) {
        const llm__tensor *x = &t->item[i];
        const int n = x->parts ? x->parts->n : 1;
        const int64_t bytes = x->bytes / n, most = LLM__MIN(bytes, 64);
        h = llm__hash(x->name.p, x->name.n, h + (uint64_t)x->type);
        h = llm__hash(x->shape, sizeof x->shape, h);
        for (int k = 0; k < 4 * n; k++)
            h = llm__hash((x->parts ? x->parts->data[k / 4] : x->data) + (bytes - most) / 3 * (k % 4), (size_t)most, h);
    }
    return h;
}
