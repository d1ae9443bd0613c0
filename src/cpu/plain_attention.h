/* plain_attention: attention as its formula says, to be read first and to test the fast one against.
 *
 * A query of one head looks at the keys of the positions before it, and its own. Each gets a score, scores become weights whose sum is 1,
 * and what comes out is the sum of the values by their weights (Vaswani et al. 2017):
 *
 *     score_j = scale * q . k_j        weight_j = exp(score_j) / sum over all i of exp(score_i)        out = sum over j of weight_j * v_j
 *
 * The fast one, >>attention, does the same block by block, for many queries at once, from pages of any type, and never has a whole row of
 * weights. */
#pragma once
#include "base/platform.h"

/* One query of one head. */
typedef struct llm__plain_query {
    const float *q;             /* (d) */
    const float *k, *v;         /* the key and the value of position j are at k + j * k_stride and v + j * v_stride */
    int64_t k_stride, v_stride; /* floats */
    int32_t d, v_d;             /* numbers of a key, of a value */
    int32_t from, to;           /* sees positions [from, to) */
    float scale;                /* usually 1 / sqrt(d) */
    float softcap;              /* 0: none; Gemma 2: score = softcap * tanh(score / softcap) */
    const float *sink;          /* NULL: none; gpt-oss: a score that takes its share of the weights and has no value */
    float slope;                /* 0: none; ALiBi: -slope is added for each position that lies between */
    int32_t at;                 /* position of the query, for the slope */
} llm__plain_query;

/* weight: (to) numbers, of which those before `from` become 0; out: (v_d), NULL: only the weights are wanted. */
LLM__PRIVATE void llm__plain_attention(const llm__plain_query *x, float *weight, float *out);
