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
 * bits do not depend on how many there are.
 *
 * Three rows of two heads whose latents have 64 values, nope and v being 4: the job's queries stand row by row, (3, 2, 64 + rope). Keys
 * of head 0 are two panels of 4 x 32, which go to the first 64 columns of queries 0, 2 and 4, those of head 1 to queries 1, 3 and 5;
 * its values are one panel of 64 x 32, of which 4 columns count.
 *
 * What was tried first, a row of kv_b at a time with one query (add, dot), read all of kv_b once for three rows of a prompt, from L3,
 * and once for each answer: it took 40 % of a prompt's time and 30 % of eight answers'. Keys and values of a prompt are not made
 * ("unabsorbed"), though that would be fewer operations where contexts are long: sums over 128 numbers of a key are not those over 512
 * of a latent, and a token's bits must not depend on whether it came in a prompt or alone. */
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
