/* recur_bodies: the kernels of recurrent layers, once for all instruction sets.
 *
 * A state S (dk, dv) is walked in stripes of sixteen columns: dk vectors, 8 KB for a head of 128, which stay in the first cache while all
 * rows of a chunk pass over them. For a row, with its key k, query q and value v, a stripe is read twice:
 *
 *     first pass     r = sum over i of k_i S_i                     what the state says for this key now
 *                    u = write (v - decay r)                       what it should say, less what it does: the delta rule's error
 *     second pass    S_i = decay S_i + k_i u;  o += q_i S_i        written, and asked by the query in one go
 *
 * Where every key decays by itself (keyed: Kimi's delta nets, Mamba), S_i is written with decay_i, and read with decay_i k_i for k_i.
 *
 * Without the delta (Mamba 2) there is no first pass: u = write v. With 4 keys, decay 1, write 1, S zero, k = (1, 0, 0, 0), v = 5 a row
 * leaves S_0 = 5; the same row again has r = 5, u = 0, and changes nothing: what is known is not learnt twice.
 *
 * Each pass has four chains of additions, rows i, i + 1, i + 2, i + 3 of S, put together at the end: one chain would wait for itself. Their
 * order depends on dk alone, so the bits are the same in any chunk and on any thread. */
#pragma once
#include "base/platform.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
#include "cpu/bodies.h"
/* clang-format off */

/* x * sigmoid(g), and with silu times g: 16 at a time. */
LLM__INLINE llm__v16 llm__gate16(llm__v16 x, const llm__v16 g, const int silu) {
    const llm__v16 s = llm__sigmoid16(g, 1);
    LLM__EACH(i) x.v[i] *= s.v[i];
    if (silu) LLM__EACH(i) x.v[i] *= g.v[i];
    return x;
}

LLM__INLINE void llm__body_gate(float *x, const float *gate, int n, int silu) {
#define LLM__STEP(m) llm__store16(x + k, m, llm__gate16(llm__load16(x + k, m), llm__load16(gate + k, m), silu))
    LLM__VECTORS(k, n, LLM__STEP);
#undef LLM__STEP
}

/* 16 columns of a row: the past and the new value, oldest first, a tap after the other. */
LLM__INLINE llm__v16 llm__conv16(const llm__conv *c, int at, const llm__v16 x) {
    llm__v16 y = llm__load16(c->bias + at, LLM__ROWS), w;
    for (int j = 0; j + 1 < c->taps; j++) {
        const llm__v16 p = llm__load16(c->past + j * LLM__CONV + at, LLM__ROWS);
        w = llm__load16(c->weight + j * LLM__CONV + at, LLM__ROWS);
        LLM__EACH(i) y.v[i] += w.v[i] * p.v[i];
    }
    w = llm__load16(c->weight + (c->taps - 1) * LLM__CONV + at, LLM__ROWS);
    LLM__EACH(i) y.v[i] += w.v[i] * x.v[i];
    return y;
}

/* The past moves up by a row. It is a few values, which stay in the first cache. */
LLM__INLINE void llm__conv_shift(const llm__conv *c, int at, const llm__v16 x) {
    for (int j = 0; j + 2 < c->taps; j++)
        llm__store16(c->past + j * LLM__CONV + at, LLM__ROWS, llm__load16(c->past + (j + 1) * LLM__CONV + at, LLM__ROWS));
    llm__store16(c->past + (c->taps - 2) * LLM__CONV + at, LLM__ROWS, x);
}

LLM__INLINE void llm__body_conv(const llm__conv *c) {
    const llm__v16 one = llm__all16(1);
    for (int at = 0; at < c->n; at += LLM__ROWS)
        for (int row = 0; row < c->rows; row++) {
            const int n = c->n - at;
            llm__v16 x = llm__load16(c->x + row * c->stride + at, n), y, by = one;
            if (c->before) by = llm__load16(c->before + row * c->stride + at, n);
            if (c->before) LLM__EACH(i) x.v[i] *= by.v[i];
            y = llm__conv16(c, at, x);
            llm__conv_shift(c, at, x);
            if (c->silu) y = llm__gate16(one, y, 1);
            if (c->after) by = llm__load16(c->after + row * c->stride + at, n);
            if (c->after) LLM__EACH(i) y.v[i] *= by.v[i];
            llm__store16(c->y + row * c->y_stride + at, n, y);
        }
}

/* What 16 columns of the decayed state hold of a key: the sum over i of k_i d S_i; four chains hide the latency of the additions. */
LLM__INLINE llm__v16 llm__recur_read(const llm__recur *c, const float *s, const int n, const float *k, const float decay) {
    llm__v16 sum[4];
    int i = 0;
    for (int j = 0; j < 4; j++) sum[j] = llm__all16(0);
    for (; i + 4 <= c->dk; i += 4)
        LLM__UNROLL
        for (int j = 0; j < 4; j++) {
            const llm__v16 x = llm__load16(s + (i + j) * c->stride, n);
            const float key = k[i + j];
            LLM__EACH(e) sum[j].v[e] += key * x.v[e];
        }
    for (; i < c->dk; i++) {
        const llm__v16 x = llm__load16(s + i * c->stride, n);
        const float key = k[i];
        LLM__EACH(e) sum[0].v[e] += key * x.v[e];
    }
    LLM__EACH(e) sum[0].v[e] = (sum[0].v[e] + sum[1].v[e] + (sum[2].v[e] + sum[3].v[e])) * decay;
    return sum[0];
}

/* S_i = d S_i + k_i u, or keyed d_i S_i + k_i u; returns the sum over i of q_i S_i. */
LLM__INLINE llm__v16 llm__recur_write(const llm__recur *c, float *s, const int n, const float *q, const float *k, const float *d,
                                      const int keyed, const llm__v16 u) {
    llm__v16 sum[4];
    int i = 0;
    for (int j = 0; j < 4; j++) sum[j] = llm__all16(0);
    for (; i + 4 <= c->dk; i += 4)
        LLM__UNROLL
        for (int j = 0; j < 4; j++) {
            const float key = k[i + j], query = q[i + j], decay = d[keyed ? i + j : 0];
            llm__v16 x = llm__load16(s + (i + j) * c->stride, n);
            LLM__EACH(e) x.v[e] = decay * x.v[e] + key * u.v[e];
            llm__store16(s + (i + j) * c->stride, n, x);
            LLM__EACH(e) sum[j].v[e] += query * x.v[e];
        }
    for (; i < c->dk; i++) {
        const float decay = d[keyed ? i : 0];
        llm__v16 x = llm__load16(s + i * c->stride, n);
        LLM__EACH(e) x.v[e] = decay * x.v[e] + k[i] * u.v[e];
        llm__store16(s + i * c->stride, n, x);
        LLM__EACH(e) sum[0].v[e] += q[i] * x.v[e];
    }
    LLM__EACH(e) sum[0].v[e] += sum[1].v[e] + (sum[2].v[e] + sum[3].v[e]);
    return sum[0];
}

/* Sixteen columns of all rows: so much of a state stays in the first cache. */
LLM__INLINE void llm__recur_rows(const llm__recur *c, int at, const int n, const int keyed) {
    for (int row = 0; row < c->rows; row++) {
        const int64_t key = row * c->key_stride;
        const float *q = c->q + key, *k = c->k + key, write = c->write[row], *d = c->decay + (keyed ? key : row);
        const llm__v16 v = llm__load16(c->v + row * c->v_stride + at, n);
        llm__v16 u = v, o = llm__all16(0);
        if (c->delta) o = keyed ? llm__recur_read(c, c->state + at, n, c->read + key, 1) : llm__recur_read(c, c->state + at, n, k, *d);
        LLM__EACH(i) u.v[i] = write * (v.v[i] - o.v[i]);
        o = llm__recur_write(c, c->state + at, n, q, k, d, keyed, u);
        LLM__EACH(i) o.v[i] += c->skip * v.v[i];
        llm__store16(c->out + row * c->out_stride + at, n, o);
    }
}

LLM__INLINE void llm__recur_all(const llm__recur *c, const int keyed) {
    int at = 0;
    for (; at + LLM__ROWS <= c->n; at += LLM__ROWS) llm__recur_rows(c, at, LLM__ROWS, keyed);
    if (at < c->n) llm__recur_rows(c, at, c->n - at, keyed);
}

LLM__INLINE void llm__body_recur(const llm__recur *c) {
    if (c->keyed) llm__recur_all(c, 1);
    else llm__recur_all(c, 0);
}
