/* kv_cache: pages of keys and values.
 *
 * A page holds `page_tokens` tokens of every layer. Inside it each (layer, KV head) has one contiguous part: the keys transposed in groups
 * of 16 positions [group][dim][16 positions], so that one vector holds one dimension of 16 keys; the values row by row; then, for the types
 * that need them, a scale and an offset a token. Elements: f32, f16, bf16, fp8 (scaled so that the token's largest value is the type's),
 * int8 and int4 (asymmetric: value = offset + scale * q; a byte of int4 holds dimension i low and i + half high). Of bf16 two stand
 * together where rows fill vectors, as vdpbf16ps wants them: of keys dimensions 2 i and 2 i + 1 of each position, [group][dim / 2][16][2];
 * of values positions 2 i and 2 i + 1 of each dimension, [position / 2][dim][2]. Where the CPU has it, queries and weights are rounded to
 * bf16 too.
 *
 * Positions are taken in blocks of 64 counted from position 0, in order, with the running maximum and sum of the online softmax. A query's
 * result is a function of its own blocks: which other queries share its tile, chunk or step never changes a bit. Blocks that no query of
 * the tile sees are not touched (sliding windows), nor are the pages of groups of 16 positions that none sees; weights of single positions
 * that a query does not see are exactly 0. So the pages before a window may be given back, and what lies in unused positions never matters.
 *
 * A tile is up to 48 (query, head) pairs of one sequence and one KV head: each block of keys and values is loaded once for all heads of
 * the group. Latent attention is the same with one KV head, whose values are the first dimensions of its keys. Where an indexer chooses
 * positions, its keys stand as the layer's keys, for it scores them all, and the latents as values, a row each, for some are fetched. A
 * recurrent layer has the floats of its state behind its heads, if it has any.
 *
 * The online softmax (Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022) needs no row of scores. Per query it keeps the largest
 * score m so far, the sum l of exp(score - m), and the weighted sum o (v_head_dim) of values. For a block with scores s and values V:
 *
 *   m' = max(m, max s)      c = exp(m - m')      p = exp(s - m')
 *   l' = c l + sum p        o' = c o + p V       and at the end  o / l
 *
 * Memory is one block, whatever the length of the context; when m does not grow, c is exactly 1 and nothing is rounded again. */
#pragma once
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/dtypes.h"
#include "cpu/isa.h"
#include "cpu/kernels.h"

/* Where one layer lies in a page, in bytes. Scales: K scale, K offset, V scale, V offset, page_tokens floats each. */
typedef struct llm__kv_place {
    llm_kv_layer shape;
    int64_t offset, head_bytes, v_offset, scale_offset;
    int64_t state_offset;       /* in the page, of shape.n_state floats */
    int k_elements, v_elements; /* stored elements of a token */
    int pair;                   /* 2: of bf16, two and two; else 1 */
} llm__kv_place;

typedef struct llm__kv_cache {
    llm_kv_type type;
    llm__kind kind; /* as products read what is not scaled */
    int element_bytes, scaled;
    int n_layers, page_tokens;
    int64_t page_bytes, n_pages;
    llm__kv_place *layer;
    uint8_t **base; /* (ranks) */
} llm__kv_cache;

/* Types of one byte (and of half a byte) have a scale and an offset for each token and head. */
LLM__PRIVATE void llm__kv_type_set(llm__kv_cache *kv, llm_kv_type type);

/* What AUTO means: the type whose products are fastest, unless the user asks for f16. */
LLM__PRIVATE llm_kv_type llm__kv_auto(llm__isa isa, llm_compute compute);

/* Fills in the place of one layer that starts at `offset`. Returns where the next one starts; *ok is cleared when it does not fit. */
LLM__PRIVATE uint64_t llm__kv_place_layer(const llm__kv_cache *kv, const llm_kv_layer *shape, int page_tokens, uint64_t offset,
                                          llm__kv_place *p, int *ok);

/* The sequence of one rank's layer and head that a tile works on. */
typedef struct llm__kv_view {
    const llm__kv_cache *kv;
    const llm__kv_place *place;
    uint8_t *base;
    const int32_t *pages;
    int head;
} llm__kv_view;

/* The part of the view's layer and head in the page that holds this position. */
LLM__INLINE uint8_t *llm__kv_part(const llm__kv_view *v, int position) {
    return v->base + v->pages[position / v->kv->page_tokens] * v->kv->page_bytes + v->place->offset + v->head * v->place->head_bytes;
}

/* The state of a recurrent layer in the page that holds this position. */
LLM__INLINE float *llm__kv_state(const llm__kv_view *v, int position) {
    return (float *)(void *)(v->base + v->pages[position / v->kv->page_tokens] * v->kv->page_bytes + v->place->state_offset);
}

/* Where the group of 16 keys at `position` lies, and the value of a position (of bf16: of its pair of positions). */
LLM__INLINE const uint8_t *llm__kv_keys(const llm__kv_view *v, int position) {
    return llm__kv_part(v, position) + (int64_t)(position % v->kv->page_tokens) * v->place->k_elements * v->kv->element_bytes;
}

LLM__INLINE const uint8_t *llm__kv_values(const llm__kv_view *v, int position) {
    return llm__kv_part(v, position) + v->place->v_offset +
           (int64_t)(position % v->kv->page_tokens / v->place->pair * v->place->pair) * v->place->v_elements * v->kv->element_bytes;
}

/* Of types of one byte and less keys and values are turned before they are rounded, and so are queries; what comes out is turned back. A
 * turn changes no product of query and key, but spreads the few large values of a head, which would else set its scale, over all of its
 * elements (QuaRot, Ashkboos et al. 2024). It is the Hadamard matrix of `size`, a power of two, on each `size` of the n elements: additions
 * alone, and its own inverse. Floats of 8 bits need no common scale, but gain as well: where queries are large keys are too, and there a
 * float errs most; turned, the error is spread. What llm__load_balanced does before makes the most of it. */
LLM__PRIVATE int llm__kv_turn_size(int n);

LLM__PRIVATE void llm__kv_turn(float *x, int n, int size);

/* Writes a token's value of one head. */
LLM__PRIVATE void llm__kv_write_value(const llm__kernels *k, const llm__kv_view *view, int position, const float *value);

/* Writes a token's key of one head. `scratch` holds 4 * (head_dim + 1) bytes. */
LLM__PRIVATE void llm__kv_write_key(const llm__kernels *k, const llm__kv_view *view, int position, const float *key, uint8_t *scratch);

/* Both. */
LLM__PRIVATE void llm__kv_write_token(const llm__kernels *k, const llm__kv_view *view, int position, const float *key, const float *value,
                                      uint8_t *scratch);

/* The group of 16 keys at `position` to f32 (head_dim, 16), not scaled. `out` may take one row more (int4 of an odd head_dim). */
LLM__PRIVATE void llm__kv_load_keys(const llm__kernels *k, const llm__kv_view *view, int position, float *out);

/* Values of the positions [from, to), all of one group, to rows of f32 `stride` apart, not scaled. */
LLM__PRIVATE void llm__kv_load_values(const llm__kernels *k, const llm__kv_view *view, int from, int to, float *out, int stride);

/* A token's value of one head, not scaled. */
LLM__PRIVATE void llm__kv_load_row(const llm__kernels *k, const llm__kv_view *view, int position, float *out);

/* A token's value of one head as it was written, but for the rounding. */
LLM__PRIVATE void llm__kv_read_value(const llm__kernels *k, const llm__kv_view *view, int position, float *out);

/* Scales and offsets of a block's keys (what 0) or values (what 2), of the places of `chosen` if there is such a list; zeros outside
 * [from, to). */
LLM__PRIVATE void llm__kv_load_scales(const llm__kv_view *view, const int32_t *chosen, int block, int from, int to, int what, float *scale,
                                      float *offset);
