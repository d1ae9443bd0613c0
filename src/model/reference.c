#include "model/reference.h"
#include "api/config.h"
#include "api/model.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "cpu/dtypes.h"
#include "cpu/plain_attention.h"
#include "model/tensors.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/net.h"

/* A stored matrix, or a vector (rows, 1). Files keep numbers in many ways; a row comes out of any of them as floats. */
typedef struct llm__matrix {
    const llm__tensor *t;
    int64_t rows, cols;
} llm__matrix;

/* The tensor of a slot (>>loader knows what files call it) in this layer; layer -1: of the whole model. */
static llm__matrix llm__ref_matrix(llm__loader *L, int layer, llm__slot slot, int64_t rows, int64_t cols) {
    char name[256];
    const int64_t shape[2] = {rows, cols};
    L->layer = layer;
    const llm__matrix w = {llm__loader_find(L, slot, 0, 0, name), rows, cols};
    if (!w.t && !L->r) L->r = llm__error(LLM_ERR_UNSUPPORTED, "reference: %s: tensor %s is not there", L->path, name);
    if (!L->r && cols > 1 && llm__loader_find(L, slot, 0, 1, name))
        L->r = llm__error(LLM_ERR_UNSUPPORTED, "reference: %s has biases (%s), a model like Llama was expected", L->path, name);
    if (!L->r && llm__loader_fits(L, w.t, shape, cols > 1 ? 2 : 1)) (void)llm__loader_type(L, w.t);
    return w;
}

/* Row i as floats. */
static void llm__ref_row(const llm__matrix *w, int64_t i, float *out) { llm__tensor_values(w->t, i, w->cols, 0, w->cols, out); }

/* y (T, rows) = W x, for x (T, cols), token by token; with `add` y += W x. row: (cols) of memory. */
static void llm__ref_multiply(const llm__matrix *w, const float *x, int32_t T, int add, float *row, float *y) {
    for (int64_t o = 0; o < w->rows; o++) {
        llm__ref_row(w, o, row);
        for (int32_t t = 0; t < T; t++) {
            double sum = 0;
            for (int64_t i = 0; i < w->cols; i++) sum += (double)row[i] * (double)x[t * w->cols + i];
            y[t * w->rows + o] = (float)(sum + (add ? (double)y[t * w->rows + o] : 0));
        }
    }
}

/* h = x divided by the root of the mean of its squares, times a weight for each number (RMSNorm, Zhang and Sennrich 2019). */
static void llm__ref_norm(const llm__matrix *w, const float *x, int32_t T, float eps, float *weight, float *h) {
    for (int64_t i = 0; i < w->rows; i++) llm__dequant_columns(w->t->type, w->t->data, i, 1, weight + i);
    for (int32_t t = 0; t < T; t++) {
        double squares = 0;
        for (int64_t i = 0; i < w->rows; i++) squares += (double)x[t * w->rows + i] * (double)x[t * w->rows + i];
        const double by = 1 / sqrt(squares / (double)w->rows + (double)eps);
        for (int64_t i = 0; i < w->rows; i++) h[t * w->rows + i] = (float)((double)x[t * w->rows + i] * by * (double)weight[i]);
    }
}

/* Turns pairs of numbers of a head by an angle that grows with the position, the faster the earlier the pair stands (RoPE, Su et al. 2021):
 * the product of a query and a key then depends on how far apart they are. Which two make a pair depends on the file. x: (T, heads d). */
static void llm__ref_rotate(const llm__arch *a, int32_t heads, int32_t T, float *x) {
    const int32_t d = a->head_dim, half = a->rope[0].dim / 2;
    for (int32_t t = 0; t < T; t++)
        for (int32_t h = 0; h < heads; h++)
            for (int32_t i = 0; i < half; i++) {
                float *first = x + ((int64_t)t * heads + h) * d + (a->rope_pairs ? 2 * i : i), *second = first + (a->rope_pairs ? 1 : half);
                const double angle = t * (double)a->rope[0].inv_freq[i], u = (double)*first, v = (double)*second;
                *first = (float)(u * cos(angle) - v * sin(angle));
                *second = (float)(u * sin(angle) + v * cos(angle));
            }
}

/* out (T, H d): each head of each token looks at the tokens before it and at itself. weight: (T) of memory. */
static void llm__ref_attend(const llm__arch *a, const float *q, const float *k, const float *v, int32_t T, float *weight, float *out) {
    const int32_t H = a->n_heads, K = a->n_kv_heads, d = a->head_dim;
    for (int32_t t = 0; t < T; t++)
        for (int32_t h = 0; h < H; h++) {
            const int32_t shared = h / (H / K); /* the key and value head that this head uses */
            const llm__plain_query x = {.q = q + ((int64_t)t * H + h) * d,
                                        .k = k + shared * d,
                                        .v = v + shared * d,
                                        .k_stride = (int64_t)K * d,
                                        .v_stride = (int64_t)K * d,
                                        .d = d,
                                        .v_d = d,
                                        .to = t + 1,
                                        .scale = a->attn_scale};
            llm__plain_attention(&x, weight, out + ((int64_t)t * H + h) * d);
        }
}

/* What this file does not have. NULL: nothing, the model is one like Llama. */
static const char *llm__ref_lacks(const llm__arch *a) {
    const float one[] = {a->embed_scale, a->residual_scale, a->logit_scale, a->rope[0].scale[0]};
    for (int i = 0; i < LLM__COUNT(one); i++)
        if (one[i] != 1 && one[i] != 0) return "scales";
    for (int i = 0; i < a->n_layers; i++)
        if (a->layer[i].window || a->layer[i].moe || a->layer[i].rope || a->layer[i].mixer)
            return "windows, experts or layers of different kinds";
    if (a->norm != LLM_NORM_RMS || a->qk_norm) return "another norm";
    if (a->act != LLM_ACT_SILU || a->qkv_bias || a->o_bias || a->mlp_bias) return "another MLP, or biases";
    if (a->attn_softcap > 0 || a->logit_softcap > 0 || a->dynamic || a->logn_from || a->eagle)
        return "caps, or positions that depend on more";
    const uint32_t other = LLM__NORM_PLUS1 | LLM__PARALLEL | LLM__NO_PRE_NORM | LLM__POST_NORM | LLM__NO_GATE | LLM__CONV1D | LLM__LEARNED |
                           LLM__ALIBI | LLM__MLA;
    return a->flags & other ? "another order of its parts" : NULL;
}

/* What a pass writes, all rows of all tokens. */
typedef struct llm__ref {
    int32_t T;
    float *x, *h;        /* (T, D) the tokens on their way through the layers; their norm */
    float *q, *att;      /* (T, H d) */
    float *k, *v;        /* (T, K d) */
    float *gate, *up;    /* (T, F) */
    float *row, *weight; /* a row of a matrix; norm weights, or those of a query */
} llm__ref;

/* One layer: attention, then the MLP; each adds to x what it makes of the norm of x. */
static void llm__ref_layer(llm__loader *L, int layer, const llm__ref *r) {
    const llm__arch *a = L->a;
    const int64_t D = a->hidden, Q = (int64_t)a->n_heads * a->head_dim, KV = (int64_t)a->n_kv_heads * a->head_dim, F = a->ff;
    const llm__matrix attn_norm = llm__ref_matrix(L, layer, LLM__W_ATTN_NORM, D, 1), q = llm__ref_matrix(L, layer, LLM__W_Q, Q, D);
    const llm__matrix k = llm__ref_matrix(L, layer, LLM__W_K, KV, D), v = llm__ref_matrix(L, layer, LLM__W_V, KV, D);
    const llm__matrix o = llm__ref_matrix(L, layer, LLM__W_O, D, Q), ffn_norm = llm__ref_matrix(L, layer, LLM__W_FFN_NORM, D, 1);
    const llm__matrix gate = llm__ref_matrix(L, layer, LLM__W_GATE, F, D), up = llm__ref_matrix(L, layer, LLM__W_UP, F, D);
    const llm__matrix down = llm__ref_matrix(L, layer, LLM__W_DOWN, D, F);
    if (L->r) return;
    llm__ref_norm(&attn_norm, r->x, r->T, a->eps, r->weight, r->h);
    llm__ref_multiply(&q, r->h, r->T, 0, r->row, r->q);
    llm__ref_multiply(&k, r->h, r->T, 0, r->row, r->k);
    llm__ref_multiply(&v, r->h, r->T, 0, r->row, r->v);
    llm__ref_rotate(a, a->n_heads, r->T, r->q);
    llm__ref_rotate(a, a->n_kv_heads, r->T, r->k);
    llm__ref_attend(a, r->q, r->k, r->v, r->T, r->weight, r->att);
    llm__ref_multiply(&o, r->att, r->T, 1, r->row, r->x);
    llm__ref_norm(&ffn_norm, r->x, r->T, a->eps, r->weight, r->h);
    llm__ref_multiply(&gate, r->h, r->T, 0, r->row, r->gate);
    llm__ref_multiply(&up, r->h, r->T, 0, r->row, r->up);
    for (int64_t i = 0; i < r->T * F; i++) { /* silu(g) = g / (1 + e^-g) lets u through where g is large (SwiGLU, Shazeer 2020) */
        const double g = (double)r->gate[i];
        r->gate[i] = (float)(g / (1 + exp(-g)) * (double)r->up[i]);
    }
    llm__ref_multiply(&down, r->gate, r->T, 1, r->row, r->x);
}

/* The memory of a pass; the arena's `failed` says whether there was enough. */
static llm__ref llm__ref_memory(const llm__arch *a, int32_t T, llm__arena *memory) {
    const int64_t D = a->hidden, Q = (int64_t)a->n_heads * a->head_dim, KV = (int64_t)a->n_kv_heads * a->head_dim, F = a->ff;
    const int64_t wide = LLM__MAX(LLM__MAX(D, Q), LLM__MAX(F, T)),
                  size[] = {T * D, T * D, T * Q, T * Q, T * KV, T * KV, T * F, T * F, wide, wide};
    float *at[LLM__COUNT(size)];
    for (int i = 0; i < LLM__COUNT(size); i++) at[i] = (float *)llm__arena_get(memory, (size_t)size[i] * sizeof(float));
    const llm__ref r = {T, at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8], at[9]};
    return r;
}

LLM__PRIVATE llm_result llm__reference_forward(const llm_model *m, const int32_t *ids, int32_t n, float *logits) {
    const llm__arch *a = &m->arch;
    const char *lacks = llm__ref_lacks(a);
    LLM__SCOPED(llm__arena_free) llm__arena memory = LLM__ZERO;
    llm__loader L;
    llm__loader_begin(&L, m, 1, 1);
    if (lacks) return llm__error(LLM_ERR_UNSUPPORTED, "reference: %s has %s, a model like Llama was expected", m->path, lacks);
    for (int32_t t = 0; t < n; t++)
        if (ids[t] < 0 || ids[t] >= a->vocab) return llm__error(LLM_ERR_ARG, "reference: token id %d of %d", ids[t], a->vocab);
    const llm__ref r = llm__ref_memory(a, n, &memory);
    if (memory.failed) return llm__nomem();
    const llm__matrix embed = llm__ref_matrix(&L, -1, LLM__W_EMBED, a->vocab, a->hidden);
    const llm__matrix norm = llm__ref_matrix(&L, -1, LLM__W_OUT_NORM, a->hidden, 1);
    L.layer = -1; /* where a file has no matrix of its own for the output, it is the embedding's */
    const llm__matrix head = llm__has(&L, LLM__W_HEAD) ? llm__ref_matrix(&L, -1, LLM__W_HEAD, a->vocab, a->hidden) : embed;
    for (int32_t t = 0; t < n && !L.r; t++) llm__ref_row(&embed, ids[t], r.x + (int64_t)t * a->hidden);
    for (int layer = 0; layer < a->n_layers && !L.r; layer++) llm__ref_layer(&L, layer, &r);
    if (!L.r) {
        llm__ref_norm(&norm, r.x, n, a->eps, r.weight, r.h);
        llm__ref_multiply(&head, r.h, n, 0, r.row, logits);
    }
    llm__loader_end(&L);
    return L.r;
}
