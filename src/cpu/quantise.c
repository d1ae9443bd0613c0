#include "cpu/quantise.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/intrinsics.h"
#include "cpu/dtypes.h"
#include "cpu/isa.h"
#include "cpu/packed.h"
#include "cpu/lanes.h"

/* Sixteen blocks of n values, one a lane: values, what their errors count, and the scale and minimum that were found. */
typedef struct llm__blocks {
    llm__v16 x[32], g[32], scale, min;
    int n;
} llm__blocks;

/* The nearest integer, ties to even: beyond 2^23 no bits are left for a fraction. */
#define LLM__NEAREST(x) ((x) + 12582912.0f - 12582912.0f)

/* Lane by lane: blocks of n values each, one behind the other; those beyond the last are zero. */
static void llm__blocks_load(llm__blocks *b, const float *x, int count) {
    const int n = b->n;
    for (int e = 0; e < n; e++)
        for (int i = 0; i < LLM__ROWS; i++) b->x[e].v[i] = i < count ? x[i * n + e] : 0;
}

/* What errors count: `plain` says how, where no importance is given: 1 by the square, 2 by the size on top of the mean
 * size. */
static void llm__blocks_weigh(llm__blocks *b, const float *importance, int64_t cols, int64_t at, int count, int plain) {
    llm__v16 mean = llm__all16(0);
    const int n = b->n;
    for (int e = 0; e < n; e++)
        LLM__EACH(i) mean.v[i] += b->x[e].v[i] * b->x[e].v[i];
    LLM__EACH(i) mean.v[i] /= (float)n;
    for (int i = 0; i < LLM__ROWS && importance; i++) {
        const float *from = i < count ? importance + (at + (int64_t)i * n) % cols : NULL;
        for (int e = 0; e < n; e++) b->g[e].v[i] = from ? from[e] * sqrtf(2 * mean.v[i] + b->x[e].v[i] * b->x[e].v[i]) : 0;
    }
    if (importance) return;
    LLM__EACH(i) mean.v[i] = sqrtf(mean.v[i]);
    for (int e = 0; e < n; e++) {
        if (plain == 1)
            LLM__EACH(i) b->g[e].v[i] = b->x[e].v[i] * b->x[e].v[i];
        if (plain == 2)
            LLM__EACH(i) b->g[e].v[i] = mean.v[i] + (b->x[e].v[i] < 0 ? -b->x[e].v[i] : b->x[e].v[i]);
    }
}

/* Sums over a candidate's codes q: g q, g q q, g q x. */
typedef struct llm__moments {
    llm__v16 q, qq, qx;
} llm__moments;

/* Codes q = nearest(x * by + add) within [lo, hi], and their sums. */
LLM__FORCE llm__moments llm__blocks_try(const llm__blocks *b, llm__v16 by, llm__v16 add, float lo, float hi) {
    llm__moments m = {llm__all16(0), llm__all16(0), llm__all16(0)};
    for (int e = 0; e < b->n; e++) {
        llm__v16 q, gq;
        LLM__EACH(i) q.v[i] = LLM__NEAREST(b->x[e].v[i] * by.v[i] + add.v[i]);
        LLM__EACH(i) q.v[i] = q.v[i] < lo ? lo : q.v[i];
        LLM__EACH(i) q.v[i] = q.v[i] > hi ? hi : q.v[i];
        LLM__EACH(i) gq.v[i] = b->g[e].v[i] * q.v[i];
        LLM__EACH(i) m.q.v[i] += gq.v[i];
        LLM__EACH(i) m.qq.v[i] += gq.v[i] * q.v[i];
        LLM__EACH(i) m.qx.v[i] += gq.v[i] * b->x[e].v[i];
    }
    return m;
}

/* The best scale for codes from lo < 0 to hi, the value of the largest size at lo or near it. What is gained, sum(g q x)^2 / sum(g q q),
 * is what the error lacks of sum(g x x). */
LLM__FORCE void llm__blocks_symmetric(llm__blocks *b, float lo, float hi, int steps, float step) {
    llm__v16 top = llm__all16(0), best = llm__all16(-1), none = llm__all16(0);
    for (int e = 0; e < b->n; e++) {
        llm__v16 size, old;
        LLM__EACH(i) size.v[i] = b->x[e].v[i] < 0 ? -b->x[e].v[i] : b->x[e].v[i];
        LLM__EACH(i) old.v[i] = top.v[i] < 0 ? -top.v[i] : top.v[i];
        LLM__EACH(i) top.v[i] = size.v[i] > old.v[i] ? b->x[e].v[i] : top.v[i];
    }
    b->scale = none;
    for (int k = -steps; k <= steps; k++) {
        llm__v16 by;
        LLM__EACH(i) by.v[i] = top.v[i] != 0 ? (lo + step * (float)k) / top.v[i] : 0;
        const llm__moments m = llm__blocks_try(b, by, none, lo, hi);
        llm__v16 gain, scale;
        LLM__EACH(i) scale.v[i] = m.qq.v[i] > 0 ? m.qx.v[i] / m.qq.v[i] : 0;
        LLM__EACH(i) gain.v[i] = scale.v[i] * m.qx.v[i];
        LLM__EACH(i) b->scale.v[i] = gain.v[i] > best.v[i] ? scale.v[i] : b->scale.v[i];
        LLM__EACH(i) best.v[i] = gain.v[i] > best.v[i] ? gain.v[i] : best.v[i];
    }
}

/* The best scale and minimum (at most 0) for codes from 0 to hi. Where codes are all alike the two equations have no solution, and the
 * plain scale, from the least to the largest value, stays. */
LLM__FORCE void llm__blocks_affine(llm__blocks *b, float hi, int steps, float first, float step) {
    llm__v16 least = llm__all16(0), most = b->x[0], g = llm__all16(0), gx = llm__all16(0), range, best;
    for (int e = 0; e < b->n; e++) {
        LLM__EACH(i) least.v[i] = b->x[e].v[i] < least.v[i] ? b->x[e].v[i] : least.v[i];
        LLM__EACH(i) most.v[i] = b->x[e].v[i] > most.v[i] ? b->x[e].v[i] : most.v[i];
        LLM__EACH(i) g.v[i] += b->g[e].v[i];
        LLM__EACH(i) gx.v[i] += b->g[e].v[i] * b->x[e].v[i];
    }
    LLM__EACH(i) range.v[i] = most.v[i] - least.v[i];
    for (int k = -1; k < steps; k++) {
        const float wide = k < 0 ? hi : hi + first + step * (float)k;
        llm__v16 by, add, scale, min, error;
        LLM__EACH(i) by.v[i] = range.v[i] > 0 ? wide / range.v[i] : 0;
        LLM__EACH(i) add.v[i] = -least.v[i] * by.v[i];
        const llm__moments m = llm__blocks_try(b, by, add, 0, hi);
        LLM__EACH(i) {
            const float d = g.v[i] * m.qq.v[i] - m.q.v[i] * m.q.v[i], whole = g.v[i] * m.qq.v[i] * 1e-5f;
            const float s2 = (g.v[i] * m.qx.v[i] - gx.v[i] * m.q.v[i]) / d, m2 = (m.qq.v[i] * gx.v[i] - m.q.v[i] * m.qx.v[i]) / d;
            const float s1 = m.qx.v[i] / m.qq.v[i];
            const int two = d > whole, one = two && m2 > 0;
            scale.v[i] = one ? s1 : two ? s2 : range.v[i] / hi;
            min.v[i] = one ? 0 : two ? m2 : least.v[i];
        }
        LLM__EACH(i) error.v[i] = scale.v[i] * (scale.v[i] * m.qq.v[i] + 2 * min.v[i] * m.q.v[i] - 2 * m.qx.v[i]);
        LLM__EACH(i) error.v[i] += min.v[i] * (min.v[i] * g.v[i] - 2 * gx.v[i]);
        if (k < 0) b->scale = scale, b->min = min, best = error;
        LLM__EACH(i) b->scale.v[i] = error.v[i] < best.v[i] ? scale.v[i] : b->scale.v[i];
        LLM__EACH(i) b->min.v[i] = error.v[i] < best.v[i] ? min.v[i] : b->min.v[i];
        LLM__EACH(i) best.v[i] = error.v[i] < best.v[i] ? error.v[i] : best.v[i];
    }
}

/* The codes by the scales that were kept: q = nearest((x - min) / scale) within [lo, hi], 0 where the scale is. As bytes, less lo, block by
 * block. */
LLM__FORCE void llm__blocks_round(llm__blocks *b, float lo, float hi, uint8_t *code) {
    llm__v16 by;
    LLM__EACH(i) by.v[i] = b->scale.v[i] != 0 ? 1 / b->scale.v[i] : 0;
    for (int e = 0; e < b->n; e++) {
        llm__v16 q;
        LLM__EACH(i) q.v[i] = LLM__NEAREST((b->x[e].v[i] - b->min.v[i]) * by.v[i]);
        LLM__EACH(i) q.v[i] = q.v[i] < lo ? lo : q.v[i];
        LLM__EACH(i) q.v[i] = q.v[i] > hi ? hi : q.v[i];
        for (int i = 0; i < LLM__ROWS; i++) code[i * b->n + e] = (uint8_t)(int)(q.v[i] - lo);
    }
}

/* The loops over lanes, as one instruction set does them. */
typedef struct llm__blocks_loops {
    void (*symmetric)(llm__blocks *b, float lo, float hi, int steps, float step);
    void (*affine)(llm__blocks *b, float hi, int steps, float first, float step);
    void (*round)(llm__blocks *b, float lo, float hi, uint8_t *code);
} llm__blocks_loops;

#define LLM__BLOCKS_LOOPS(isa, target) \
    target static LLM__NOINLINE void llm__symmetric_##isa(llm__blocks *b, float lo, float hi, int steps, float step) { \
        llm__blocks_symmetric(b, lo, hi, steps, step); \
    } \
    target static LLM__NOINLINE void llm__affine_##isa(llm__blocks *b, float hi, int steps, float first, float step) { \
        llm__blocks_affine(b, hi, steps, first, step); \
    } \
    target static LLM__NOINLINE void llm__round_##isa(llm__blocks *b, float lo, float hi, uint8_t *code) { \
        llm__blocks_round(b, lo, hi, code); \
    } \
    static const llm__blocks_loops llm__loops_##isa = {llm__symmetric_##isa, llm__affine_##isa, llm__round_##isa};

LLM__BLOCKS_LOOPS(plain, )
#if LLM__X86 && defined(__OPTIMIZE__)
/* The same code, eight lanes an instruction. No multiply-add is fused, so the bits are the same. */
LLM__BLOCKS_LOOPS(avx2, __attribute__((target("avx2"))))
#else
#define llm__loops_avx2 llm__loops_plain
#endif

/* Stores an f16, and gives what it is; *ok cleared if it is not finite. */
static float llm__put_f16(uint8_t *to, float x, int *ok) {
    const uint16_t half = llm__f32_to_f16(x);
    if ((half & 0x7C00) == 0x7C00) *ok = 0;
    memcpy(to, &half, 2);
    return llm__f16_to_f32(half);
}

/* 32 codes as nibbles: element i low, element i + 16 high. */
static void llm__store_nibbles(uint8_t *to, const uint8_t *code) {
    for (int i = 0; i < 16; i++) to[i] = (uint8_t)((code[i] & 15) | (code[i + 16] & 15) << 4);
}

/* Blocks of 32 with a scale, or a scale and a minimum: Q4_0, Q4_1, Q5_0, Q5_1. */
static int llm__quantise_small(const llm__blocks_loops *loops, llm__blocks *b, int bits, int affine, int count, uint8_t *to) {
    const float half = (float)(1 << (bits - 1)), lo = affine ? 0 : -half, hi = affine ? 2 * half - 1 : half - 1;
    const int bytes = 2 + 2 * affine + (bits == 5 ? 4 : 0) + 16;
    uint8_t code[32 * LLM__ROWS];
    int ok = 1;
    b->min = llm__all16(0);
    if (affine) loops->affine(b, hi, 16, -0.8f, 0.1f);
    else loops->symmetric(b, lo, hi, 8, 0.1f);
    for (int i = 0; i < count; i++) {
        b->scale.v[i] = llm__put_f16(to + i * bytes, b->scale.v[i], &ok);
        if (affine) b->min.v[i] = llm__put_f16(to + i * bytes + 2, b->min.v[i], &ok);
    }
    loops->round(b, lo, hi, code);
    for (int i = 0; i < count; i++) {
        uint8_t *at = to + i * bytes + 2 + 2 * affine;
        uint32_t high = 0;
        for (int e = 0; e < 32 && bits == 5; e++) high |= (uint32_t)(code[32 * i + e] >> 4 & 1) << e;
        if (bits == 5) memcpy(at, &high, 4), at += 4;
        llm__store_nibbles(at, code + 32 * i);
    }
    return ok;
}

/* Q8_0: no search, the largest value is 127.
 *
 *     d    f16    the largest size / 127
 *     q    32 bytes, two's complement
 */
static int llm__quantise_q8(const llm__blocks_loops *loops, llm__blocks *b, int count, uint8_t *to) {
    uint8_t code[32 * LLM__ROWS];
    int ok = 1;
    b->min = b->scale = llm__all16(0);
    for (int e = 0; e < 32; e++) {
        llm__v16 size;
        LLM__EACH(i) size.v[i] = b->x[e].v[i] < 0 ? -b->x[e].v[i] : b->x[e].v[i];
        LLM__EACH(i) b->scale.v[i] = size.v[i] > b->scale.v[i] ? size.v[i] : b->scale.v[i];
    }
    LLM__EACH(i) b->scale.v[i] /= 127;
    for (int i = 0; i < count; i++) llm__put_f16(to + 34 * i, b->scale.v[i], &ok);
    loops->round(b, -127, 127, code);
    for (int i = 0; i < count; i++)
        for (int e = 0; e < 32; e++) to[34 * i + 2 + e] = (uint8_t)(code[32 * i + e] - 127);
    return ok;
}

/* MXFP4: the exponent is that of the largest value, less two, for the largest code stands for 6. */
static int llm__quantise_mxfp4(const llm__blocks *b, int count, uint8_t *to) {
    static const float edge[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
    uint8_t code[32];
    for (int i = 0; i < count; i++) {
        float most = 0;
        for (int e = 0; e < 32; e++) most = LLM__MAX(most, fabsf(b->x[e].v[i]));
        const int power = LLM__MAX((int)(llm__f32_bits(most) >> 23) - 2, 0);
        for (int e = 0; e < 32; e++) {
            const float x = ldexpf(b->x[e].v[i], 127 - power);
            code[e] = x < 0 ? 8 : 0;
            for (int k = 0; k < 7; k++) code[e] = (uint8_t)(code[e] + (fabsf(x) > edge[k]));
        }
        to[17 * i] = (uint8_t)power;
        llm__store_nibbles(to + 17 * i + 1, code);
    }
    return 1;
}

/* Scales of 6 bits and minimums of 6 bits of 8 blocks, in 12 bytes. */
static void llm__put_scales6(uint8_t *to, const uint8_t *s, const uint8_t *m) {
    for (int j = 0; j < 4; j++) {
        to[j] = (uint8_t)(s[j] | (s[j + 4] >> 4) << 6);
        to[j + 4] = (uint8_t)(m[j] | (m[j + 4] >> 4) << 6);
        to[j + 8] = (uint8_t)((s[j + 4] & 15) | (m[j + 4] & 15) << 4);
    }
}

/* The scales and minimums of n blocks from lane `first` on become integers up to `top`, times d and times dm, which are stored; the lanes
 * get what that stands for. */
static int llm__blocks_super(llm__blocks *b, int first, int n, int top, uint8_t *d_at, uint8_t *m_at, uint8_t *s, uint8_t *m) {
    float most = 0, least = 0;
    int ok = 1;
    for (int i = first; i < first + n; i++) most = LLM__MAX(most, b->scale.v[i]), least = LLM__MIN(least, b->min.v[i]);
    const float d = llm__put_f16(d_at, most / (float)top, &ok), dm = llm__put_f16(m_at, -least / (float)top, &ok);
    for (int i = 0; i < n; i++) {
        const float a = most > 0 ? (float)top / most * b->scale.v[first + i] : 0,
                    c = least < 0 ? (float)top / least * b->min.v[first + i] : 0;
        s[i] = (uint8_t)LLM__MIN(LLM__MAX(LLM__NEAREST(a), 0), (float)top);
        m[i] = (uint8_t)LLM__MIN(LLM__MAX(LLM__NEAREST(c), 0), (float)top);
        b->scale.v[first + i] = d * (float)s[i];
        b->min.v[first + i] = -dm * (float)m[i];
    }
    return ok;
}

/* Q4_K and Q5_K: two super-blocks of 8 blocks of 32.
 *
 *     d, dm     f16     what the scales and the minimums are multiples of
 *     scales    12 bytes, 8 scales and 8 minimums of 6 bits
 *     high      of Q5_K 32 bytes: bit j of byte i is the fifth bit of element i of block j
 *     low       128 bytes: nibbles, of blocks 2j in the low and 2j + 1 in the high halves
 */
static int llm__quantise_q45k(const llm__blocks_loops *loops, llm__blocks *b, int bits, int count, uint8_t *to) {
    const int bytes = bits == 5 ? 176 : 144;
    uint8_t code[512], s[8], m[8];
    int ok = 1;
    if (bits == 5) loops->affine(b, 31, 15, -0.5f, 0.1f);
    else loops->affine(b, 15, 20, -1, 0.1f);
    for (int k = 0; k < count; k++) {
        uint8_t *at = to + k * bytes;
        ok &= llm__blocks_super(b, 8 * k, 8, 63, at, at + 2, s, m);
        llm__put_scales6(at + 4, s, m);
    }
    loops->round(b, 0, bits == 5 ? 31 : 15, code);
    for (int k = 0; k < count; k++) {
        const uint8_t *c = code + 256 * k;
        uint8_t *at = to + k * bytes + 16;
        for (int i = 0; i < 32 && bits == 5; i++) {
            at[i] = 0;
            for (int j = 0; j < 8; j++) at[i] = (uint8_t)(at[i] | (c[32 * j + i] >> 4) << j);
        }
        at += bits == 5 ? 32 : 0;
        for (int j = 0; j < 4; j++)
            for (int i = 0; i < 32; i++) at[32 * j + i] = (uint8_t)((c[64 * j + i] & 15) | (c[64 * j + 32 + i] & 15) << 4);
    }
    return ok;
}

/* The scales of 16 blocks become integers from lo to hi, times d, which is stored at d_at. */
static int llm__blocks_signed(llm__blocks *b, float lo, float hi, uint8_t *d_at, int8_t *s) {
    float top = 0;
    int ok = 1;
    for (int i = 0; i < 16; i++)
        if (fabsf(b->scale.v[i]) > fabsf(top)) top = b->scale.v[i];
    const float d = llm__put_f16(d_at, top / lo, &ok);
    for (int i = 0; i < 16; i++) {
        s[i] = (int8_t)LLM__MIN(LLM__MAX(top != 0 ? LLM__NEAREST(lo / top * b->scale.v[i]) : 0, lo), hi);
        b->scale.v[i] = d * (float)s[i];
    }
    b->min = llm__all16(0);
    return ok;
}

/* Q6_K: 16 blocks of 16, scales of 8 bits.
 *
 *     low       128 bytes: nibbles, the first half's elements i and i + 64 in byte i, i + 32 and i + 96 in byte i + 32
 *     high      64 bytes: two bits of elements i, i + 32, i + 64 and i + 96 of a half
 *     scales    16 bytes, then d, f16
 */
static int llm__quantise_q6k(const llm__blocks_loops *loops, llm__blocks *b, uint8_t *to) {
    uint8_t code[256];
    loops->symmetric(b, -32, 31, 9, 0.1f);
    const int ok = llm__blocks_signed(b, -128, 127, to + 208, (int8_t *)to + 192);
    loops->round(b, -32, 31, code);
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 32; i++) {
            const uint8_t *c = code + 128 * half + i;
            to[64 * half + i] = (uint8_t)((c[0] & 15) | (c[64] & 15) << 4);
            to[64 * half + 32 + i] = (uint8_t)((c[32] & 15) | (c[96] & 15) << 4);
            to[128 + 32 * half + i] = (uint8_t)(c[0] >> 4 | (c[32] >> 4) << 2 | (c[64] >> 4) << 4 | (c[96] >> 4) << 6);
        }
    return ok;
}

/* The codes of values times `by` in IQ4's table, by their nearest whole numbers. */
static void llm__iq4_codes(const float *x, int n, float by, const uint8_t *nearest, uint8_t *code) {
    for (int e = 0; e < n; e++) {
        const float q = LLM__NEAREST(x[e] * by);
        code[e] = nearest[(int)LLM__MIN(LLM__MAX(q, -128), 127) + 128];
    }
}

/* The best scale of 32 values for IQ4's table, whose steps grow from the middle outwards: the value of the largest size at its end or near
 * it, the scale for the codes that this gives by least squares. */
static float llm__iq4_scale(const float *x, const float *g, const uint8_t *nearest) {
    const int8_t *table = llm__kind_table(LLM__KIND_IQ4);
    float top = 0, best = 0, scale = 0;
    uint8_t code[32];
    for (int e = 0; e < 32; e++) top = fabsf(x[e]) > fabsf(top) ? x[e] : top;
    for (int k = -7; k <= 7 && top != 0; k++) {
        float qx = 0, qq = 0;
        llm__iq4_codes(x, 32, ((float)table[0] + (float)k) / top, nearest, code);
        for (int e = 0; e < 32; e++) {
            const float q = (float)table[code[e]];
            qx += g[e] * q * x[e];
            qq += g[e] * q * q;
        }
        if (qq > 0 && qx * qx > best * qq) best = qx * qx / qq, scale = qx / qq;
    }
    return scale;
}

/* IQ4_NL: a scale, f16, and nibbles that index a table. IQ4_XS: a super-block of 8 blocks.
 *
 *     d        f16
 *     high     u16: two high bits of the scale of each block
 *     low      4 bytes: four low bits of each; scales are 0 to 63, less 32
 *     q        128 bytes: the nibbles, block by block
 */
static int llm__quantise_iq4(int32_t type, const llm__blocks *b, int count, uint8_t *to) {
    const int8_t *table = llm__kind_table(LLM__KIND_IQ4);
    const int xs = type == LLM_TYPE_IQ4_XS, per = xs ? 8 : 1, bytes = xs ? 136 : 18;
    uint8_t nearest[256], code[32];
    float x[8][32], g[32], scale[8];
    int ok = 1;
    for (int i = 0; i < 256; i++) {
        int c = 0;
        while (c < 15 && 2 * (i - 128) > table[c] + table[c + 1]) c++;
        nearest[i] = (uint8_t)c;
    }
    for (int s = 0; s < count / per; s++, to += bytes) {
        float top = 0;
        for (int i = 0; i < per; i++) {
            for (int e = 0; e < 32; e++) x[i][e] = b->x[e].v[per * s + i], g[e] = b->g[e].v[per * s + i];
            scale[i] = llm__iq4_scale(x[i], g, nearest);
            top = fabsf(scale[i]) > fabsf(top) ? scale[i] : top;
        }
        const float d = llm__put_f16(to, xs ? top / -32 : top, &ok);
        if (xs) memset(to + 2, 0, 6);
        for (int i = 0; i < per; i++) {
            const float l = xs ? LLM__MIN(LLM__MAX(top != 0 ? LLM__NEAREST(-32 / top * scale[i]) : 0, -32), 31) : 1, by = d * l;
            llm__iq4_codes(x[i], 32, by != 0 ? 1 / by : 0, nearest, code);
            llm__store_nibbles(to + (xs ? 8 : 2) + 16 * i, code);
            if (!xs) continue;
            const int u = (int)l + 32;
            to[4 + i / 2] = (uint8_t)(to[4 + i / 2] | (u & 15) << 4 * (i % 2));
            to[2 + i / 4] = (uint8_t)(to[2 + i / 4] | u >> 4 << 2 * (i % 4));
        }
    }
    return ok;
}

/* 256 codes of 2 bits: element i of each quarter of 128 in byte i. */
static void llm__put_pairs(uint8_t *to, const uint8_t *code) {
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 32; i++) {
            const uint8_t *c = code + 128 * half + i;
            to[32 * half + i] = (uint8_t)((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
        }
}

/* Q3_K: 16 blocks of 16, scales of 6 bits.
 *
 *     high      32 bytes: bit j of byte i is the third bit of element 32 j + i
 *     low       64 bytes: two bits of each element
 *     scales    12 bytes: 16 low nibbles, then the two high bits of each; d, f16
 */
static int llm__quantise_q3k(const llm__blocks_loops *loops, llm__blocks *b, uint8_t *to) {
    uint8_t code[256];
    int8_t s[16];
    loops->symmetric(b, -4, 3, 9, 0.1f);
    const int ok = llm__blocks_signed(b, -32, 31, to + 108, s);
    loops->round(b, -4, 3, code);
    memset(to, 0, 32);
    memset(to + 96, 0, 12);
    for (int i = 0; i < 256; i++) to[i % 32] = (uint8_t)(to[i % 32] | (code[i] >> 2) << i / 32);
    llm__put_pairs(to + 32, code);
    for (int i = 0; i < 16; i++) {
        const int u = s[i] + 32;
        to[96 + i % 8] = (uint8_t)(to[96 + i % 8] | (u & 15) << (i < 8 ? 0 : 4));
        to[104 + i % 4] = (uint8_t)(to[104 + i % 4] | u >> 4 << 2 * (i / 4));
    }
    return ok;
}

/* Q2_K: 16 blocks of 16, scales and minimums of 4 bits.
 *
 *     scales    16 bytes: a scale in the low, a minimum in the high half
 *     low       64 bytes: two bits of each element; d and dm, f16
 */
static int llm__quantise_q2k(const llm__blocks_loops *loops, llm__blocks *b, uint8_t *to) {
    uint8_t code[256], s[16], m[16];
    loops->affine(b, 3, 15, -0.5f, 0.1f);
    const int ok = llm__blocks_super(b, 0, 16, 15, to + 80, to + 82, s, m);
    loops->round(b, 0, 3, code);
    for (int i = 0; i < 16; i++) to[i] = (uint8_t)(s[i] | m[i] << 4);
    llm__put_pairs(to + 16, code);
    return ok;
}

/* One to sixteen blocks of a small type, or one or two super-blocks: x at column `at` of rows of `cols`. n: values. */
static int llm__quantise_some(const llm__blocks_loops *loops, int32_t type, const float *x, int n, const float *importance, int64_t cols,
                              int64_t at, uint8_t *to) {
    llm__blocks b;
    const int sixteen = type == LLM_TYPE_Q6_K || type == LLM_TYPE_Q3_K || type == LLM_TYPE_Q2_K;
    const int affine = type == LLM_TYPE_Q4_K || type == LLM_TYPE_Q5_K || type == LLM_TYPE_Q2_K;
    b.n = sixteen ? 16 : 32;
    llm__blocks_load(&b, x, n / b.n);
    if (type != LLM_TYPE_Q8_0 && type != LLM_TYPE_MXFP4) llm__blocks_weigh(&b, importance, cols, at, n / b.n, affine ? 2 : 1);
    switch (type) {
    case LLM_TYPE_Q4_0: return llm__quantise_small(loops, &b, 4, 0, n / 32, to);
    case LLM_TYPE_Q4_1: return llm__quantise_small(loops, &b, 4, 1, n / 32, to);
    case LLM_TYPE_Q5_0: return llm__quantise_small(loops, &b, 5, 0, n / 32, to);
    case LLM_TYPE_Q5_1: return llm__quantise_small(loops, &b, 5, 1, n / 32, to);
    case LLM_TYPE_Q8_0: return llm__quantise_q8(loops, &b, n / 32, to);
    case LLM_TYPE_MXFP4: return llm__quantise_mxfp4(&b, n / 32, to);
    case LLM_TYPE_IQ4_NL:
    case LLM_TYPE_IQ4_XS: return llm__quantise_iq4(type, &b, n / 32, to);
    case LLM_TYPE_Q4_K: return llm__quantise_q45k(loops, &b, 4, n / 256, to);
    case LLM_TYPE_Q5_K: return llm__quantise_q45k(loops, &b, 5, n / 256, to);
    case LLM_TYPE_Q6_K: return llm__quantise_q6k(loops, &b, to);
    case LLM_TYPE_Q3_K: return llm__quantise_q3k(loops, &b, to);
    default: return llm__quantise_q2k(loops, &b, to);
    }
}

/* All values, some at a time: as many as there are lanes for. */
static int llm__quantise_all(const llm__blocks_loops *loops, int32_t type, const float *x, const float *importance, int64_t n, int64_t cols,
                             uint8_t *to) {
    const int per = type == LLM_TYPE_Q6_K || type == LLM_TYPE_Q3_K || type == LLM_TYPE_Q2_K ? 256 : 512;
    int ok = 1;
    for (int64_t at = 0; at < n && ok; at += per) {
        const int some = (int)LLM__MIN(n - at, (int64_t)per);
        for (int i = 0; i < some; i++) ok &= fabsf(x[at + i]) < 1e38f;
        ok = ok && llm__quantise_some(loops, type, x + at, some, importance, cols, at, to + llm__row_bytes(type, at));
    }
    return ok;
}

LLM__PRIVATE int llm__quantise_on(llm__isa isa, int32_t type, const float *x, const float *importance, int64_t n_rows, int64_t cols,
                                  uint8_t *to) {
    const int64_t n = n_rows * cols;
    int ok = 1;
    if (type == LLM_TYPE_F32) memcpy(to, x, (size_t)n * 4);
    for (int64_t i = 0; i < n && type == LLM_TYPE_F16; i++) llm__put_f16(to + 2 * i, x[i], &ok);
    for (int64_t i = 0; i < n && type == LLM_TYPE_BF16; i++) {
        const uint16_t half = llm__f32_to_bf16(x[i]);
        memcpy(to + 2 * i, &half, 2);
    }
    if (llm__type_block(type) == 1) return ok;
    return llm__quantise_all(isa == LLM__ISA_AVX2 ? &llm__loops_avx2 : &llm__loops_plain, type, x, importance, n, cols, to);
}

LLM__PRIVATE int llm__quantise(int32_t type, const float *x, const float *importance, int64_t n_rows, int64_t cols, uint8_t *to) {
    return llm__quantise_on(llm__isa_here(LLM__ISA_AVX2) ? LLM__ISA_AVX2 : LLM__ISA_SCALAR, type, x, importance, n_rows, cols, to);
}
