/* ---- Attention ---- */

enum {
    LLM__QUERIES = 48,
    LLM__BLOCK = 64,
    LLM__GROUP = 16
}; /* queries of an attention tile; positions of a softmax step; of a stored key group */

/* Some queries of one sequence against one KV head: what attention keeps between the blocks. p holds scores, then weights. The arrays by
 * query end on a whole vector. */
typedef struct llm__attend {
    const struct llm__kv_view *next; /* what this thread reads after this tile: positions [next_from, next_to); NULL: not known */
    int next_from, next_to, end; /* end: of this tile's positions, up to a whole group */
    float *q, *o, *p, *k, *v; /* (n, hd), (n, vdp), (n, 64), (4, hd, 16), (64, vdp) */
    int n, hd, vd, vdp;       /* vdp: vd rounded up to 16 */
    float m[LLM__QUERIES], scale[LLM__QUERIES]; /* running maximum of each query; what the block multiplies o by */
    float l[LLM__QUERIES][LLM__ROWS];                /* running sum, of every 16th position by itself: added up at the end */
    float q_sum[LLM__QUERIES], offset[LLM__QUERIES]; /* of scaled types: sum of q; what is to be added to every element of o */
    float slope[LLM__QUERIES];   /* ALiBi, in units of the base-2 logarithm */
    int at[LLM__QUERIES], from[LLM__QUERIES], to[LLM__QUERIES]; /* each query's position and the positions it sees */
    float softcap;               /* 0: none */
    int alibi, keys_in_place, values_in_place;
    int half;                    /* q, and p once softened, are bf16, where their f32 were, rows close behind each other */
    int tiles;                   /* see llm__kernels.rest */
} llm__attend;

/* What some models do to the scores of the block of 64 positions that starts at `block`: soft cap and ALiBi. Scores are then in units of
 * the base-2 logarithm. */
LLM__INLINE void llm__body_bias(llm__attend *t, int block) {
    for (int q = 0; q < t->n; q++)
        for (int k = 0; k < LLM__BLOCK; k += LLM__ROWS) {
            float *p = t->p + q * LLM__BLOCK + k;
            const float first = (float)(block + k - t->at[q]), slope = t->slope[q];
            llm__v16 s = llm__load16(p, LLM__ROWS);
            if (t->softcap != 0) {
                s = llm__softcap16(s, t->softcap);
                LLM__EACH(i) s.v[i] *= LLM__LOG2E;
            }
            LLM__EACH(i) s.v[i] += slope * (first + (float)i);
            llm__store16(p, LLM__ROWS, s);
        }
}

/* The weights of a block, relative to the new maximum, and their sums before rounding. With `half` they become bf16, rows of 64 one behind the
 * other, which no row reaches that is still to be read. No branches in the loop over a query's vectors: they stay in registers. */
LLM__INLINE void llm__soften_weights(llm__attend *t, const int fused, const int half) {
    for (int q = 0; q < t->n; q++) {
        float *p = t->p + q * LLM__BLOCK;
        uint16_t narrow[LLM__ROWS];
        const float best = t->m[q], scale = t->scale[q];
        llm__bits16 s;
        llm__v16 sum = llm__load16(t->l[q], LLM__ROWS);
        LLM__EACH(i) sum.v[i] *= scale;
        LLM__UNROLL
        for (int k = 0; k < LLM__BLOCK; k += LLM__ROWS) {
            s.f = llm__load16(p + k, LLM__ROWS);
            LLM__EACH(i) s.f.v[i] -= best;
            s.f = llm__exp2_16(s.f, fused, half);
            LLM__EACH(i) sum.v[i] += s.f.v[i];
            LLM__EACH(i) narrow[i] = (uint16_t)((s.u[i] + 0x8000) >> 16);
            if (half) memcpy((uint16_t *)(void *)t->p + q * LLM__BLOCK + k, narrow, sizeof narrow);
            else llm__store16(p + k, LLM__ROWS, s.f);
        }
        llm__store16(t->l[q], LLM__ROWS, sum);
    }
}

/* One step of the online softmax (Milakov and Gimelshein 2018): the new maximum, weights relative to it, and what earlier sums shrink by.
 * A query that sees nothing of the block keeps its state to the bit: scale 1, weights 0. First what is not seen becomes -infinity, in blocks
 * at the ends alone; then all maxima, then the rescaling of 16 queries at once, then the weights. */
LLM__INLINE void llm__body_soften(llm__attend *t, int block, const int fused, const int bf16) {
    for (int q = 0; q < t->n; q++) {
        float *p = t->p + q * LLM__BLOCK;
        const int from = t->from[q] - block, to = t->to[q] - block;
        for (int k = 0; k < LLM__BLOCK && (from > 0 || to < LLM__BLOCK); k++) p[k] = ((k >= from) & (k < to)) ? p[k] : -INFINITY;
        llm__v16 top = llm__load16(p, LLM__ROWS);
        LLM__UNROLL
        for (int k = LLM__ROWS; k < LLM__BLOCK; k += LLM__ROWS) LLM__EACH(i) top.v[i] = top.v[i] > p[k + i] ? top.v[i] : p[k + i];
        const float best = llm__top16(top);
        t->scale[q] = best > t->m[q] ? best : t->m[q];
    }
    for (int q = 0; q < t->n; q += LLM__ROWS) {
        llm__v16 old = llm__load16(t->m + q, LLM__ROWS);
        const llm__v16 best = llm__load16(t->scale + q, LLM__ROWS);
        llm__store16(t->m + q, LLM__ROWS, best);
        LLM__EACH(i) old.v[i] -= best.v[i];
        llm__store16(t->scale + q, LLM__ROWS, llm__exp2_16(old, fused, 0));
    }
    if (bf16 && t->half) llm__soften_weights(t, fused, 1);
    else llm__soften_weights(t, fused, 0);
}

/* ---- Rows of logits ---- */

/* e^x for x <= 0 to 2 units in the last place; 0 below -87. As in Cephes' expf: x = n ln 2 + r with |r| <= ln 2 / 2, where ln 2 is
 * subtracted in two parts so that r keeps its last bits; a polynomial of degree 5 gives e^r; n goes straight into the exponent's bits (see
 * llm__exp2_16). */
LLM__INLINE llm__v16 llm__exp_neg16(const llm__v16 x) {
    llm__bits16 n;
    llm__v16 r, p;
    LLM__EACH(i) r.v[i] = x.v[i] < -87 ? -87.0f : x.v[i];
    LLM__EACH(i) n.f.v[i] = r.v[i] * LLM__LOG2E + 12582912.0f;
    LLM__EACH(i) p.v[i] = n.f.v[i] - 12582912.0f;
    LLM__EACH(i) r.v[i] = r.v[i] - p.v[i] * 0.693359375f + p.v[i] * 2.12194440e-4f;
    LLM__EACH(i) p.v[i] = 1.9875691500e-4f * r.v[i] + 1.3981999507e-3f;
    LLM__EACH(i) p.v[i] = p.v[i] * r.v[i] + 8.3334519073e-3f;
    LLM__EACH(i) p.v[i] = p.v[i] * r.v[i] + 4.1665795894e-2f;
    LLM__EACH(i) p.v[i] = p.v[i] * r.v[i] + 1.6666665459e-1f;
    LLM__EACH(i) p.v[i] = p.v[i] * r.v[i] + 5.0000001201e-1f;
    LLM__EACH(i) p.v[i] = p.v[i] * r.v[i] * r.v[i] + r.v[i] + 1;
    LLM__EACH(i) n.u[i] = (n.u[i] - 0x4B400000u + 127) << 23;
    LLM__EACH(i) p.v[i] = x.v[i] < -87 ? 0 : p.v[i] * n.f.v[i];
    return p;
}

/* The largest value of a row. *bad is set if one is NaN or +infinity, or none is finite: then the model has failed and the request with it.
 * -infinity alone is fine, it is what a ban writes. A NaN fails every comparison, so "not at most the largest float" finds both. */
LLM__INLINE float llm__body_top(const float *x, int32_t n, int *bad) {
    llm__v16 top = llm__all16(-INFINITY);
    llm__bits16 wrong;
    int32_t at = 0;
    LLM__EACH(i) wrong.i[i] = 0;
    for (; at + LLM__ROWS <= n; at += LLM__ROWS) {
        LLM__EACH(i) wrong.i[i] |= !(x[at + i] <= 3.4028234e38f);
        LLM__EACH(i) top.v[i] = x[at + i] > top.v[i] ? x[at + i] : top.v[i];
    }
    for (int i = 0; at < n; i++, at++) {
        wrong.i[i] |= !(x[at] <= 3.4028234e38f);
        top.v[i] = x[at] > top.v[i] ? x[at] : top.v[i];
    }
    const float max = llm__top16(top);
    *bad = max < -3.4028234e38f;
    LLM__EACH(i) *bad |= wrong.i[i];
    return max;
}

/* w[i] = exp((x[i] - max) * scale) for the n values of a row; scale is 1 / temperature. Returns the sum. w may have been anything before;
 * x and w must not overlap. */
LLM__INLINE double llm__body_weigh(const float *x, float *w, int32_t n, float max, float scale) {
    double sum[LLM__ROWS] = {0};
    for (int32_t at = 0; at < n; at += LLM__ROWS) {
        const int m = LLM__MIN(n - at, (int32_t)LLM__ROWS);
        llm__v16 v = llm__load16(x + at, m);
        LLM__EACH(i) v.v[i] = (v.v[i] - max) * scale;
        for (int i = m; i < LLM__ROWS; i++) v.v[i] = -INFINITY;
        v = llm__exp_neg16(v);
        llm__store16(w + at, m, v);
        LLM__EACH(i) sum[i] += (double)v.v[i];
    }
    for (int i = 0; i < 8; i++) sum[i] += sum[i + 8];
    for (int i = 0; i < 4; i++) sum[i] += sum[i + 4];
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

