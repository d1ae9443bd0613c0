/* clang-format off */
#include "cpu/kernels_scalar.h"
#include "api/config.h"
#include "base/platform.h"
#include "cpu/dtypes.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
#include "cpu/bodies.h"
#include "cpu/recur_bodies.h"
#include "cpu/unpack.h"

LLM__FORCE llm__v16 llm__scalar_half(const uint16_t *p) {
    llm__v16 r;
    LLM__EACH(i) r.v[i] = llm__f16_to_f32(p[i]);
    return r;
}

LLM__FORCE llm__v16 llm__scalar_bytes(const uint8_t *p, int is_unsigned) {
    llm__v16 r;
    LLM__EACH(i) r.v[i] = (float)(is_unsigned ? p[i] : (int8_t)p[i]);
    return r;
}

LLM__FORCE void llm__scalar_narrow(uint16_t *p, llm__v16 x) { LLM__EACH(i) p[i] = llm__f32_to_f16(x.v[i]); }

LLM__FORCE void llm__scalar_int8(int8_t *q, const int32_t *x) { LLM__EACH(i) q[i] = (int8_t)x[i]; }

LLM__FORCE void llm__scalar_look_up(const int8_t table[16], uint8_t flip, uint8_t *u) {
    for (int i = 0; i < 512; i++) u[i] = (uint8_t)table[u[i]] ^ flip;
}

/* This is the meaning of all products of bytes. Sums of integers are exact whatever their order; the floats are added block by block, the
 * minimum first, whatever n is. */
static void llm__scalar_multiply(llm__kind kind, const llm__cooked (*w)[2], int n, const llm__product *p, size_t at) {
    const int x2 = llm__kind_x2(kind);
    for (int b = 0; b < n; b++)
        for (int i = 0; i < p->n * p->pair; i++) {
            const llm__cooked *c = &w[b][i % p->pair];
            const int t = i / p->pair;
            const size_t a = at + (size_t)(b * p->n + t);
            const int8_t *q = p->act.q + a * 32;
            int32_t sum[2][LLM__ROWS] = {{0}};
            for (int j = 0; j < 8; j++)
                for (int r = 0; r < LLM__ROWS; r++)
                    for (int k = 0; k < 4; k++) sum[j / 4][r] += c->u[64 * j + 4 * r + k] * q[4 * j + k];
            for (int r = 0; r < LLM__ROWS; r++) {
                float *to = p->out + i % p->pair * LLM__OUT + t * LLM__ROWS + r;
                *to += c->m[0][r] * p->act.s[2 * a];
                if (x2) *to += c->m[1][r] * p->act.s[2 * a + 1] + c->d[1][r] * p->act.d[a] * (float)sum[1][r];
                *to += c->d[0][r] * p->act.d[a] * (float)(x2 ? sum[0][r] : sum[0][r] + sum[1][r]);
            }
        }
}

/* One loop for all formats: where this runs, speed is no aim. */
static void llm__scalar_cook(llm__kind kind, llm__offset offset, int pair, int ahead, const uint8_t *w, int n, llm__cooked (*to)[2]) {
    llm__cook(kind, llm__kind_table(kind), offset, pair, ahead, w, n, to, llm__scalar_half, llm__scalar_bytes, llm__scalar_look_up);
}

static void llm__scalar_product(llm__kind kind, const llm__product *p) {
    llm__walk_cooked(kind, LLM__UNSIGNED, llm__scalar_cook, llm__scalar_multiply, p);
}

/* b[p][k] as f32. */
static llm__v16 llm__scalar_panel(const llm__mac *m, int p, int k) {
    const uint16_t *half = (const uint16_t *)m->b[p] + (int64_t)k * m->ldb;
    llm__v16 v;
    if (m->type == LLM__KIND_F32) return llm__load16((const float *)m->b[p] + (int64_t)k * m->ldb, LLM__ROWS);
    if (m->type == LLM__KIND_F16) return llm__scalar_half(half);
    if (m->type == LLM__KIND_F8) {
        uint16_t f8[2][LLM__ROWS];
        llm__body_f8((const uint8_t *)m->b[p] + (int64_t)(k & ~1) * m->ldb, f8[0], f8[1]);
        return llm__scalar_half(f8[k % 2]);
    }
    half -= k % 2 * (m->ldb - 1);
    LLM__EACH(j) v.v[j] = llm__bf16_to_f32(half[2 * j]);
    return v;
}

/* The meaning of mac; the vector versions keep the order of k and fuse what stands here as two operations. */
static void llm__scalar_mac(const llm__mac *m) {
    for (int i = 0; i < m->n; i++)
        for (int p = 0; p < (m->step ? 2 : 1); p++) {
            float *c = m->c + i * m->ldc + p * m->step;
            llm__v16 s = llm__load16(c, LLM__ROWS), before = s;
            LLM__EACH(j) s.v[j] = m->scale ? s.v[j] * m->scale[i] : 0;
            for (int k = 0; k < m->k; k++) {
                const int64_t at = (int64_t)i * m->lda + k;
                const float x = m->half ? llm__bf16_to_f32(m->half[at]) : m->a[at];
                const llm__v16 v = llm__scalar_panel(m, p, k);
                LLM__EACH(j) s.v[j] += x * v.v[j];
            }
            if (m->factor[p]) LLM__EACH(j) s.v[j] *= m->factor[p][j];
            if (m->add) LLM__EACH(j) s.v[j] += before.v[j];
            llm__store16(c, LLM__ROWS, s);
        }
}

/* The kernels of >>bodies, compiled with these instructions. */
LLM__COLD static void llm__scalar_widen_f8(const uint8_t *src, int n, int pair, int bf16, uint16_t *to) {
    llm__body_widen_f8(src, n, pair, bf16, to, llm__body_f8, llm__scalar_half);
}

LLM__COLD static void llm__scalar_quantise(const llm__act *a, size_t at, const float *x, int64_t stride, int n, int per) {
    llm__body_quantise(a, at, x, stride, n, per, llm__scalar_int8);
}

LLM__COLD static void llm__scalar_finish(const llm__finish *f, const llm__block *b, const float *g, const float *u, int64_t token, int n) {
    llm__finish_rows(f, b, g, u, token, n, llm__ending_of(f));
}

LLM__COLD static float llm__scalar_sum(const float *x, int n) { return llm__body_sum(x, n); }
LLM__COLD static float llm__scalar_dot(const float *x, const float *y, int n) { return llm__body_dot(x, y, n); }
LLM__COLD static void llm__scalar_add(float *x, const float *y, float scale, int n) { llm__body_add(x, y, scale, n); }

LLM__COLD static void llm__scalar_affine(float *dst, const float *src, float shift, float scale, const float *w, const float *b, int n) {
    llm__body_affine(dst, src, shift, scale, w, b, n);
}

LLM__COLD static void llm__scalar_rotate(float *x, const float *rope, int half, int interleaved) {
    llm__body_rotate(x, rope, half, interleaved);
}
LLM__COLD static void llm__scalar_to_half(uint16_t *dst, const float *src, int n) { llm__body_to_half(dst, src, n, llm__scalar_narrow); }
LLM__COLD static void llm__scalar_to_bf16(uint16_t *dst, const float *src, int n) { llm__body_to_bf16(dst, src, n); }

LLM__COLD static void llm__scalar_expand(llm_kv_type type, const uint8_t *src, int n, float *low, float *high) {
    llm__body_expand(type, src, n, low, high, llm__scalar_half, llm__scalar_bytes);
}

LLM__COLD static void llm__scalar_bias(llm__attend *t, int block) { llm__body_bias(t, block); }
LLM__COLD static void llm__scalar_soften(llm__attend *t, int block) { llm__body_soften(t, block, 0, 0); }
LLM__COLD static void llm__scalar_conv(const llm__conv *c) { llm__body_conv(c); }
LLM__COLD static void llm__scalar_recur(const llm__recur *c) { llm__body_recur(c); }
LLM__COLD static void llm__scalar_gate(float *x, const float *gate, int n, int silu) { llm__body_gate(x, gate, n, silu); }
LLM__COLD static float llm__scalar_top(const float *x, int32_t n, int *bad) { return llm__body_top(x, n, bad); }

LLM__COLD static double llm__scalar_weigh(const float *x, float *w, int32_t n, float max, float scale) {
    return llm__body_weigh(x, w, n, max, scale);
}

LLM__PRIVATE const llm__kernels llm__kernels_scalar = {
    .quantise = llm__scalar_quantise, .finish = llm__scalar_finish, .sum = llm__scalar_sum, .dot = llm__scalar_dot,
    .add = llm__scalar_add, .affine = llm__scalar_affine, .rotate = llm__scalar_rotate, .to_half = llm__scalar_to_half,
    .to_bf16 = llm__scalar_to_bf16, .expand = llm__scalar_expand, .bias = llm__scalar_bias, .soften = llm__scalar_soften,
    .conv = llm__scalar_conv, .recur = llm__scalar_recur, .gate = llm__scalar_gate,
    .top = llm__scalar_top, .weigh = llm__scalar_weigh, .mac = llm__scalar_mac,
    .widen_f8 = llm__scalar_widen_f8, .product = llm__scalar_product,
};
