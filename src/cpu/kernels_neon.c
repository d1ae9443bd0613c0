/* clang-format off */
#include "cpu/kernels_neon.h"
#include "api/config.h"
#include "base/platform.h"
#include "cpu/intrinsics.h"
#include "cpu/dtypes.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
#include "cpu/bodies.h"
#include "cpu/recur_bodies.h"
#include "cpu/unpack.h"
#include "cpu/mac.h"

#if LLM__NEON

#define LLM__NEON_INLINE LLM__FORCE LLM__NEON_TARGET

/* The conversions, see llm__half_fn and those after it: 4 lanes an instruction. */
LLM__NEON_INLINE llm__v16 llm__neon_half(const uint16_t *p) {
    llm__v16 r;
    LLM__UNROLL
    for (int i = 0; i < LLM__ROWS; i += 4) vst1q_f32(r.v + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + i))));
    return r;
}

LLM__NEON_INLINE llm__v16 llm__neon_bytes(const uint8_t *p, int is_unsigned) {
    llm__v16 r;
    LLM__EACH(i) r.v[i] = is_unsigned ? (float)p[i] : (float)(int8_t)p[i];
    return r;
}

LLM__NEON_INLINE void llm__neon_narrow(uint16_t *p, llm__v16 x) {
    LLM__UNROLL
    for (int i = 0; i < LLM__ROWS; i += 4) vst1_u16(p + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x.v + i))));
}

LLM__NEON_INLINE void llm__neon_int8(int8_t *q, const int32_t *x) {
    const int16x8_t low = vcombine_s16(vmovn_s32(vld1q_s32(x)), vmovn_s32(vld1q_s32(x + 4)));
    vst1q_s8(q, vcombine_s8(vmovn_s16(low), vmovn_s16(vcombine_s16(vmovn_s32(vld1q_s32(x + 8)), vmovn_s32(vld1q_s32(x + 12))))));
}

LLM__NEON_INLINE void llm__neon_look_up(const int8_t values[16], uint8_t flip, uint8_t *u) {
    const int8x16_t table = veorq_s8(vld1q_s8(values), vdupq_n_s8((int8_t)flip));
    for (uint8_t *end = u + 512; u < end; u += 16) vst1q_u8(u, vreinterpretq_u8_s8(vqtbl1q_s8(table, vld1q_u8(u))));
}

/* n tokens' (4 or 1) products with a block, added to out (n, 16): see llm__scalar_multiply. Two parts where the halves of the columns have
 * scales of their own, the latter first. */
LLM__NEON_INLINE void llm__neon_step(const int x2, const int n, const llm__cooked *w, const llm__act *a, size_t at, float *out) {
    LLM__UNROLL
    for (int part = x2; part >= 0; part--) {
        const int to = part || !x2 ? 8 : 4;
        int32x4_t sum[4][4];
        LLM__UNROLL
        for (int t = 0; t < n; t++)
            LLM__UNROLL
            for (int r = 0; r < 4; r++) sum[t][r] = vdupq_n_s32(0);
        for (int i = part ? 4 : 0; i < to; i++) {
            int8x16_t v[4];
            LLM__UNROLL
            for (int r = 0; r < 4; r++) v[r] = vreinterpretq_s8_u8(vld1q_u8(w->u + 64 * i + 16 * r));
            LLM__UNROLL
            for (int t = 0; t < n; t++) {
                int32_t four;
                memcpy(&four, a->q + 32 * (at + (size_t)t) + 4 * i, 4);
                const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
                LLM__UNROLL
                for (int r = 0; r < 4; r++) sum[t][r] = vdotq_s32(sum[t][r], v[r], x);
            }
        }
        LLM__UNROLL
        for (int t = 0; t < n; t++)
            LLM__UNROLL
            for (int r = 0; r < 4; r++) {
                float *to_sums = out + LLM__ROWS * t + 4 * r;
                const float32x4_t d = vmulq_n_f32(vld1q_f32(w->d[part] + 4 * r), a->d[at + (size_t)t]);
                const float32x4_t acc = vfmaq_n_f32(vld1q_f32(to_sums), vld1q_f32(w->m[part] + 4 * r),
                    a->s[2 * (at + (size_t)t) + (size_t)part]);
                vst1q_f32(to_sums, vfmaq_f32(acc, d, vcvtq_f32_s32(sum[t][r])));
            }
    }
}

/* Blocks, and of each all tokens of a tile: four at a time, then those that are left one by one. */
LLM__NEON_INLINE void llm__neon_tiles(const int x2, const llm__cooked (*w)[2], int n, const llm__product *p, size_t at) {
    const llm__act a = p->act;
    for (int b = 0; b < n; b++, at += (size_t)p->n)
        for (int place = 0; place < p->pair; place++) {
            float *out = p->out + place * LLM__OUT;
            int t = 0;
            for (; t + 4 <= p->n; t += 4, out += 4 * LLM__ROWS) llm__neon_step(x2, 4, &w[b][place], &a, at + (size_t)t, out);
            for (; t < p->n; t++, out += LLM__ROWS) llm__neon_step(x2, 1, &w[b][place], &a, at + (size_t)t, out);
        }
}

/* sdot needs to know nothing of a format but whether it has two scales. */
LLM__NEON_TARGET static LLM__NOINLINE void llm__neon_multiply(llm__kind kind, const llm__cooked (*w)[2], int n, const llm__product *p,
                                                              size_t at) {
    if (llm__kind_x2(kind)) llm__neon_tiles(1, w, n, p, at);
    else llm__neon_tiles(0, w, n, p, at);
}

LLM__NEON_TARGET static LLM__NOINLINE void llm__neon_cook(llm__kind kind, llm__offset offset, int pair, int ahead, const uint8_t *w, int n,
                                                          llm__cooked (*to)[2]) {
    LLM__EACH_KIND(kind, llm__cook, llm__kind_table(kind), offset, pair, ahead, w, n, to, llm__neon_half, llm__neon_bytes,
                   llm__neon_look_up)
}

/* The table's `product`. */
LLM__NEON_TARGET static void llm__neon_product(llm__kind kind, const llm__product *p) {
    llm__walk_cooked(kind, LLM__SIGNED, llm__neon_cook, llm__neon_multiply, p);
}

/* 4 elements of b as f32; of bf16, 4 pairs' former or latter ones. */
LLM__NEON_INLINE float32x4_t llm__neon_load(const llm__kind type, const void *p, int64_t i, const int latter) {
    if (type == LLM__KIND_F32) return vld1q_f32((const float *)p + i);
    const uint16_t *half = (const uint16_t *)p + i;
    if (type == LLM__KIND_F8) { /* the sign stays, the rest moves down by a bit: 2^-8 of the value */
        const uint16x4_t two = vreinterpret_u16_u8(vld1_u8((const uint8_t *)p + i)), high = latter ? two : vshl_n_u16(two, 8);
        const uint16x4_t down = vreinterpret_u16_s16(vshr_n_s16(vreinterpret_s16_u16(high), 1));
        return vcvt_f32_f16(vreinterpret_f16_u16(vand_u16(down, vdup_n_u16(0xBF80))));
    }
    if (type == LLM__KIND_F16) return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(half)));
    const uint32x4_t pairs = vreinterpretq_u32_u16(vld1q_u16(half));
    return vreinterpretq_f32_u32(latter ? vandq_u32(pairs, vdupq_n_u32(0xFFFF0000u)) : vshlq_n_u32(pairs, 16));
}

/* What the sums of the rows [i, i + n) start with, and where they go. */
LLM__NEON_INLINE void llm__neon_begin(const llm__mac *m, int i, const int n, float32x4_t (*sum)[8]) {
    float *c = m->c + (int64_t)i * m->ldc;
    LLM__UNROLL
    for (int r = 0; r < n; r++, c += m->ldc)
        LLM__UNROLL
        for (int j = 0; j < 8; j++)
            sum[r][j] = m->scale ? vmulq_f32(vld1q_f32(llm__mac_c(m, c, 4 * j)), vdupq_n_f32(m->scale[i + r])) : vdupq_n_f32(0);
}

LLM__NEON_INLINE void llm__neon_end(const llm__mac *m, int i, const int n, float32x4_t (*sum)[8]) {
    float *c = m->c + (int64_t)i * m->ldc;
    LLM__UNROLL
    for (int r = 0; r < n; r++) {
        if (!m->factor[0]) break;
        LLM__UNROLL
        for (int j = 0; j < 8; j++) sum[r][j] = vmulq_f32(sum[r][j], vld1q_f32(m->factor[j / 4] + j % 4 * 4));
    }
    LLM__UNROLL
    for (int r = 0; r < n; r++, c += m->ldc) {
        if (!m->add) break;
        LLM__UNROLL
        for (int j = 0; j < 8; j++) sum[r][j] = vaddq_f32(vld1q_f32(llm__mac_c(m, c, 4 * j)), sum[r][j]);
    }
    c = m->c + (int64_t)i * m->ldc;
    LLM__UNROLL
    for (int r = 0; r < n; r++, c += m->ldc)
        LLM__UNROLL
        for (int j = 0; j < 8; j++) vst1q_f32(llm__mac_c(m, c, 4 * j), sum[r][j]);
}

/* See llm__rows_fn. The sums of two rows fill 16 registers. */
LLM__NEON_INLINE void llm__neon_rows(const llm__mac *m, int i, const int n, const llm__kind type) {
    const int together = type >= LLM__KIND_BF16 ? 2 : 1; /* steps of k that are stored together */
    float32x4_t sum[2][8], x[2];
    llm__neon_begin(m, i, n, sum);
    for (int k = 0; k < m->k; k += together)
        LLM__UNROLL
        for (int h = 0; h < together; h++)
            LLM__UNROLL
            for (int j = 0; j < 8; j++) {
                if (j % 4 == 0) llm__mac_fetch(m, j / 4, k + h);
                const float32x4_t v = llm__neon_load(type, m->b[j / 4], llm__mac_b(m, k, 4 * j, type), h);
                LLM__UNROLL
                for (int r = 0; r < n; r++) {
                    if (j == 0) x[r] = vld1q_dup_f32(llm__mac_a(m, i + r, k + h));
                    sum[r][j] = vfmaq_f32(sum[r][j], x[r], v);
                }
            }
    llm__neon_end(m, i, n, sum);
}

LLM__NEON_TARGET static void llm__neon_mac(const llm__mac *m) { llm__mac_types(m, 2, llm__neon_rows); }

/* The kernels of >>bodies, compiled with these instructions. */
LLM__NEON_TARGET static void llm__neon_widen_f8(const uint8_t *src, int n, int pair, int bf16, uint16_t *to) {
    llm__body_widen_f8(src, n, pair, bf16, to, llm__body_f8, llm__neon_half);
}

LLM__NEON_TARGET static void llm__neon_quantise(const llm__act *a, size_t at, const float *x, int64_t stride, int n, int per) {
    llm__body_quantise(a, at, x, stride, n, per, llm__neon_int8);
}

LLM__NEON_TARGET static void llm__neon_finish(const llm__finish *f, const llm__block *b, const float *g, const float *u, int64_t token,
                                              int n) {
    llm__body_finish(f, b, g, u, token, n);
}

LLM__NEON_TARGET static float llm__neon_sum(const float *x, int n) { return llm__body_sum(x, n); }
LLM__NEON_TARGET static float llm__neon_dot(const float *x, const float *y, int n) { return llm__body_dot(x, y, n); }
LLM__NEON_TARGET static void llm__neon_add(float *x, const float *y, float scale, int n) { llm__body_add(x, y, scale, n); }

LLM__NEON_TARGET static void llm__neon_affine(float *dst, const float *src, float shift, float scale, const float *w, const float *b,
                                              int n) {
    llm__body_affine(dst, src, shift, scale, w, b, n);
}

LLM__NEON_TARGET static void llm__neon_rotate(float *x, const float *rope, int half, int interleaved) {
    llm__body_rotate(x, rope, half, interleaved);
}
LLM__NEON_TARGET static void llm__neon_to_half(uint16_t *dst, const float *src, int n) { llm__body_to_half(dst, src, n, llm__neon_narrow); }
LLM__NEON_TARGET static void llm__neon_to_bf16(uint16_t *dst, const float *src, int n) { llm__body_to_bf16(dst, src, n); }

LLM__NEON_TARGET static void llm__neon_expand(llm_kv_type type, const uint8_t *src, int n, float *low, float *high) {
    llm__body_expand(type, src, n, low, high, llm__neon_half, llm__neon_bytes);
}

LLM__NEON_TARGET static void llm__neon_bias(llm__attend *t, int block) { llm__body_bias(t, block); }
LLM__NEON_TARGET static void llm__neon_soften(llm__attend *t, int block) { llm__body_soften(t, block, 1, 0); }
LLM__NEON_TARGET static void llm__neon_conv(const llm__conv *c) { llm__body_conv(c); }
LLM__NEON_TARGET static void llm__neon_recur(const llm__recur *c) { llm__body_recur(c); }
LLM__NEON_TARGET static void llm__neon_gate(float *x, const float *gate, int n, int silu) { llm__body_gate(x, gate, n, silu); }
LLM__NEON_TARGET static float llm__neon_top(const float *x, int32_t n, int *bad) { return llm__body_top(x, n, bad); }

LLM__NEON_TARGET static double llm__neon_weigh(const float *x, float *w, int32_t n, float max, float scale) {
    return llm__body_weigh(x, w, n, max, scale);
}

/* A link of the chains of `peak`. */
LLM__NEON_INLINE void llm__neon_link(llm__chain *sum, const llm__chain *a, const llm__chain *b) {
    const int8x16_t x = vreinterpretq_s8_s32(vld1q_s32(a->v)), y = vreinterpretq_s8_s32(vld1q_s32(b->v));
    vst1q_s32(sum->v, vdotq_s32(vld1q_s32(sum->v), x, y));
}
LLM__NEON_TARGET static double llm__neon_peak(int64_t turns) { return llm__peak_of(turns, 16, llm__neon_link); }

LLM__PRIVATE const llm__kernels llm__kernels_neon = {
    .quantise = llm__neon_quantise, .finish = llm__neon_finish, .sum = llm__neon_sum, .dot = llm__neon_dot, .add = llm__neon_add,
    .affine = llm__neon_affine, .rotate = llm__neon_rotate, .to_half = llm__neon_to_half, .to_bf16 = llm__neon_to_bf16,
    .expand = llm__neon_expand, .bias = llm__neon_bias, .soften = llm__neon_soften,
    .conv = llm__neon_conv, .recur = llm__neon_recur, .gate = llm__neon_gate, .top = llm__neon_top, .weigh = llm__neon_weigh,
    .mac = llm__neon_mac, .widen_f8 = llm__neon_widen_f8, .product = llm__neon_product, .peak = llm__neon_peak,
};

#endif
