#include "model/take.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/quant.h"
#include "model/facts.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/loader_adapters.h"

/* A segment of n rows, each a number of its own; the numbers stay where they are. */
static void llm__take_numbers(llm__loader *L, int list, const float *numbers, int64_t n) {
    llm_segment *s = llm__loader_segment(L, list, n);
    if (!s) return;
    s->data = numbers;
    s->type = LLM_TYPE_F32;
    s->transposed = 1;
    s->stored_cols = n;
    s->n_cols = 1;
}

/* Zeros for a matrix without a bias: those that it is stacked with may have one (q, k and v beside what gates attention), perhaps one that
 * quantising has made (Ascend), where it was left as it is. If none has, llm__make drops them. */
static void llm__take_no_bias(llm__loader *L, int slot, int64_t n) {
    if (L->r || (L->m->source.quant.method != LLM__QUANT_ASCEND && slot != LLM__W_ATTN_GATE)) return;
    const float *zeros = (const float *)llm__arena_get(&L->keep, sizeof(float) * (size_t)n);
    if (!zeros) L->r = llm__nomem();
    llm__take_numbers(L, 1, zeros, n);
    L->no_bias += n;
}

/* 1 for what makes queries, keys and values. */
static int llm__is_projection(int slot) { return slot >= LLM__W_QKV && slot <= LLM__W_V; }

LLM__PRIVATE float llm__fold_by(const llm__arch *a, int slot, int part, int bias) {
    const llm__arch_fold *m = &a->fold;
    const float in = bias ? 1 : m->attn_in;
    if (slot == LLM__W_S_DOWN && a->shared_scale != 0) return a->shared_scale;
    if (slot == LLM__W_O && a->attn_out_scale != 0) return bias ? 1 : a->attn_out_scale;
    if (!a->folded) return 1;
    switch (slot) {
    case LLM__W_Q:
    case LLM__W_V: return in;
    case LLM__W_K: return in * m->key;
    case LLM__W_O: return m->attn_out;
    case LLM__W_GATE: return m->gate;
    case LLM__W_DOWN: return m->down;
    case LLM__W_R_IN: return m->ssm[part] * (bias ? 1 : m->ssm_in);
    case LLM__W_R_OUT: return m->ssm_out;
    default: return 1;
    }
}

/* Takes it into the scale of a segment, where 0 stands for 1. */
static void llm__take_scale(llm__loader *L, int slot, int bias, llm_segment *s) {
    const float by = llm__fold_by(L->a, slot, L->part - 1, bias);
    if (by == 1) return;
    s->scale = llm__segment_scale(s) * by;
    if (s->scale == 0) s->scale = 1e-30f;
    s->sorted = NULL; /* which has a scale of its own */
}

LLM__PRIVATE void llm__take(llm__loader *L, int slot, llm__slice which, llm__slice rows, llm__slice cols, int bias) {
    char name[256];
    if (L->adapter) {
        if (!L->r && !llm__grow((void **)&L->taken, &L->taken_cap, L->n_taken + 1, sizeof *L->taken)) L->r = llm__nomem();
        llm__taken t = {slot, rows, cols};
        if (!L->r) L->taken[L->n_taken++] = t;
        return;
    }
    for (int k = 0; k < 2 && !L->r; k++) {
        /* columns cut: this is part of a sum over ranks, which must have the bias once (but what a head reads side by side is on all) */
        const llm__tensor *b = k ? llm__loader_find(L, slot, (int)which.first, 1, name) : NULL;
        const int summed = cols.n < cols.size && slot != LLM__W_FC && !(L->a->eagle & LLM__EAGLE_THREE && llm__is_projection(slot));
        if (k && ((bias < 0 && !(b && b->type == LLM_TYPE_I32)) || (L->rank % L->n_group && summed))) return;
        if (k && bias <= 0 && !b) { /* integers: what quantising has folded in */
            llm__take_no_bias(L, slot, rows.n);
            return;
        }
        llm_segment *s = llm__loader_segment(L, k, rows.n);
        if (!s || !llm__loader_seek(L, slot, which, rows.size, k ? 0 : cols.size, k, s)) return;
        llm__take_scale(L, slot, k, s);
        s->row = rows.first;
        s->row_step = rows.step;
        s->col = k ? 0 : cols.first;
        s->n_cols = k || !cols.size ? 1 : cols.n;
        L->n_params += s->n_rows * s->n_cols;
        int64_t bytes = llm__row_bytes(s->sorted ? s->sorted->type : s->type, s->n_rows * s->n_cols);
        L->bytes += llm__is_experts(slot) ? bytes * L->a->n_used / L->a->n_experts : bytes;
    }
}

/* Hands one list of segments over as a weight, and empties it. */
static void llm__hand_over(llm__loader *L, int list, llm_role role, const char *name, int32_t n_experts, float add, llm_weight **out) {
    llm__segments *from = &L->list[list];
    int64_t cols = from->n ? from->segment[0].n_cols : 0;
    llm_weight_desc d = {name, role, from->segment, (int32_t)from->n, n_experts, from->rows, cols, add, 0, 0};
    if (role == LLM_ROLE_MLA_UP) {
        d.n_keys = L->a->nope;
        d.n_heads = (int32_t)(from->rows / (L->a->nope + L->a->v_head_dim));
    }
    if (!L->r && L->backend && from->n && !L->adapter) L->r = L->backend->weight(L->ctx, L->rank, &d, out);
    from->n = 0;
    from->rows = 0;
}

LLM__PRIVATE void llm__make(llm__loader *L, llm_role role, int slot, int32_t n_experts, llm__net_pair *out) {
    char name[256];
    if (L->adapter) {
        llm__adapter_layer(L, role, out);
        return;
    }
    int adapts = (role != LLM_ROLE_VECTOR && role != LLM_ROLE_EMBED) || slot == LLM__W_EMBED;
    adapts &= slot != LLM__W_ALTUP_IN && slot != LLM__W_ALTUP_OUT; /* several of one name */
    adapts &= slot != LLM__W_HEAD || !L->a->head_norm;             /* what it adds would change the lengths of columns */
    if (role != LLM_ROLE_EMBED) L->step_bytes += L->bytes;
    L->bytes = 0;
    out->rows = (int32_t)LLM__MIN(L->list[0].rows, INT32_MAX);
    if (role == LLM_ROLE_LINEAR || role == LLM_ROLE_GATE_UP) L->wide = LLM__MAX(L->wide, out->rows);
    if (L->n_slots && adapts && !L->r) L->r = L->backend->lora_site(L->ctx, L->rank, L->n_slots, &out->lora);
    /* Gemma stores norm weights minus one; random norms must be near one to keep dummy models finite */
    int plus1 = role == LLM_ROLE_VECTOR && slot < LLM__W_R_IN && (L->m->dummy || (L->a->flags & LLM__NORM_PLUS1 && !L->a->gguf));
    llm__loader_find(L, slot, 0, 0, name);
    if (L->no_bias == L->list[1].rows) L->list[1].n = 0, L->list[1].rows = 0;
    L->no_bias = 0;
    if (!L->r && L->list[1].n && L->list[1].rows != L->list[0].rows)
        L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s: of it and those stacked with it only some have a bias", L->m->path, name);
    llm__hand_over(L, 0, role, name, n_experts, plus1 ? 1.0f : 0.0f, &out->w);
    llm__loader_find(L, slot, 0, 1, name);
    llm__hand_over(L, 1, LLM_ROLE_VECTOR, name, 0, 0, &out->b);
}

LLM__PRIVATE void llm__load(llm__loader *L, llm_role role, int slot, llm__slice rows, llm__slice cols, int bias, llm__net_pair *out) {
    llm__take(L, slot, llm__all(1), rows, cols, bias);
    llm__make(L, role, slot, 0, out);
}

LLM__PRIVATE void llm__load_vector(llm__loader *L, int slot, llm__slice values, int must, int bias, llm__net_pair *out) {
    if (must || llm__has(L, slot)) llm__load(L, LLM_ROLE_VECTOR, slot, values, llm__all(0), bias, out);
}

LLM__PRIVATE void llm__load_numbers(llm__loader *L, const char *name, const float *numbers, int64_t n, llm_weight **out) {
    llm__take_numbers(L, 0, numbers, n);
    if (!L->r) llm__hand_over(L, 0, LLM_ROLE_VECTOR, name, 0, 0, out);
}

LLM__PRIVATE void llm__column_lengths(llm__loader *L, int slot, int64_t rows, int64_t cols, float *by) {
    const int64_t want[2] = {rows, cols};
    char name[256];
    const llm__tensor *t = L->r ? NULL : llm__loader_find(L, slot, 0, 0, name);
    if (!t || !llm__word_in("F32 F16 BF16", llm__type_name(t->type)))
        L->r = L->r
                   ? L->r
                   : llm__error(LLM_ERR_UNSUPPORTED, "%s: tensor %s: F32, F16 or BF16 expected, for its columns are normed", L->path, name);
    if (L->r || !llm__loader_fits(L, t, want, 2)) return;
    for (int64_t c = 0, n; c < cols && by; c += n) {
        double sum[256] = {0};
        float x[256];
        n = LLM__MIN(cols - c, (int64_t)LLM__COUNT(x));
        for (int64_t r = 0; r < rows; r++) {
            llm__tensor_values(t, r, cols, c, n, x);
            for (int64_t i = 0; i < n; i++) sum[i] += (double)x[i] * (double)x[i];
        }
        for (int64_t i = 0; i < n; i++) by[c + i] = (float)(1 / (sqrt(sum[i]) + 1e-7));
    }
}

LLM__PRIVATE float *llm__load_values(llm__loader *L, int slot, int64_t n, float by) {
    float *x = L->adapter ? NULL : (float *)llm__arena_get(&L->keep, sizeof(float) * (size_t)n);
    if (L->adapter) return NULL;
    if (!x && !L->r) L->r = llm__nomem();
    llm__take(L, slot, llm__all(1), llm__all(n), llm__all(0), -1);
    for (int64_t i = 0; i < n && !L->r; i++) {
        x[i] = 1;
        if (!L->m->dummy) llm__segment_values(L->list[0].segment, 0, i, 0, 1, &x[i]);
        x[i] *= by * (L->m->dummy ? 1 : llm__segment_scale(L->list[0].segment));
    }
    L->list[0].n = 0, L->list[0].rows = 0;
    return L->r ? NULL : x;
}
