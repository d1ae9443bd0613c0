/* latent: products with kv_b of latent attention, at both ends of a head.
 *
 * kv_b (n_heads, nope + v, rank) is read in two ways: a query times a head's key rows, summed over these rows, and what attention gives
 * times the value rows, summed over the latent. So the two parts of a head are kept as matrices (k, cols) with the sums along k, in panels
 * of 32 columns, the last one filled up with zeros:
 *
 *     keys     k = nope, cols = rank     [rank / 32][nope][32]
 *     values   k = rank, cols = v        [v / 32][rank][32]
 *
 * in f16 where the file has blocks or f16 (a step of DeepSeek-V2-Lite reads 113 MB of it instead of 226), else in f32. A panel is one
 * stream, and all rows of a tile share it. Sums are chains of multiply-adds in the order of k, as those of all products of floats: a row's
 * bits do not depend on how many there are. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/linear.h"

/* Rows of floats that go into a product and come out of it. */
typedef struct llm__latent_rows {
    const float *from;
    float *to;
    int64_t from_stride, to_stride;
    int n; /* up to LLM__QUERIES */
    float scale;
} llm__latent_rows;

/* to (n, rank) = scale * from (n, nope) times the head's keys; or to (n, v) = scale * from (n, rank) times its values. */
LLM__PRIVATE void llm__latent_keys(const llm__exec *e, const llm_weight *w, int head, const llm__latent_rows *x);
LLM__PRIVATE void llm__latent_values(const llm__exec *e, const llm_weight *w, int head, const llm__latent_rows *x);
