/* bodies: every kernel but the products, once for all instruction sets. */
#pragma once
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
/* clang-format off */

/* ---- Rows ---- */

/* Each walks a row in whole vectors, n constant there; what is left over goes the same way once more. */
#define LLM__VECTORS(k, n, step) \
    do { \
        int k = 0; \
        for (; k + LLM__ROWS <= (n); k += LLM__ROWS) step(LLM__ROWS); \
        if (k < (n)) step((n) - k); \
    } while (0)

/* s + scale * x, of n <= 16 numbers at x; the other lanes of s stay. */
LLM__INLINE llm__v16 llm__add16(llm__v16 s, const float *x, float scale, int n) {
    const llm__v16 a = llm__load16(x, n);
    LLM__EACH(i) s.v[i] += scale * a.v[i];
    return s;
}

/* Sum of n numbers, lane by lane, then across: the error grows with n / 16, not with n. Means of layer norms are made of it. */
LLM__INLINE float llm__body_sum(const float *x, int n) {
    llm__v16 s = llm__all16(0);
#define LLM__STEP(m) s = llm__add16(s, x + k, 1, m)
    LLM__VECTORS(k, n, LLM__STEP);
#undef LLM__STEP
    return llm__total16(s);
}

/* s + x * y, lane by lane. */
LLM__INLINE llm__v16 llm__dot16(llm__v16 s, const float *x, const float *y, int n) {
    const llm__v16 a = llm__load16(x, n), b = llm__load16(y, n);
    LLM__EACH(i) s.v[i] += a.v[i] * b.v[i];
    return s;
}

/* Two chains hide the latency of the additions. */
LLM__INLINE float llm__body_dot(const float *x, const float *y, int n) {
    llm__v16 s = llm__all16(0), t = s;
    int k = 0;
    for (; k + 2 * LLM__ROWS <= n; k += 2 * LLM__ROWS) {
        s = llm__dot16(s, x + k, y + k, LLM__ROWS);
        t = llm__dot16(t, x + k + LLM__ROWS, y + k + LLM__ROWS, LLM__ROWS);
    }
    for (; k < n; k += LLM__ROWS) s = llm__dot16(s, x + k, y + k, n - k);
    LLM__EACH(i) s.v[i] += t.v[i];
    return llm__total16(s);
}

/* x += scale * y: residual additions, sums over ranks. */
LLM__INLINE void llm__body_add(float *x, const float *y, float scale, int n) {
#define LLM__STEP(m) llm__store16(x + k, m, llm__add16(llm__load16(x + k, m), y + k, scale, m))
    LLM__VECTORS(k, n, LLM__STEP);
#undef LLM__STEP
}

/* The end of a norm, (x - shift) * scale * w + b: shift is the mean (0 for RMS), scale one over the deviation. dst may be src; w and b may
 * be NULL. */
LLM__INLINE void llm__affine16(float *dst, const float *src, float shift, float scale, const float *w, const float *b, int n) {
    llm__v16 x = llm__load16(src, n), y;
    LLM__EACH(i) x.v[i] = (x.v[i] - shift) * scale;
    if (w) {
        y = llm__load16(w, n);
        LLM__EACH(i) x.v[i] *= y.v[i];
    }
    if (b) x = llm__add16(x, b, 1, n);
    llm__store16(dst, n, x);
}

/* The whole row of n; see llm__affine16. */
LLM__INLINE void llm__body_affine(float *dst, const float *src, float shift, float scale, const float *w, const float *b, int n) {
#define LLM__STEP(m) llm__affine16(dst + k, src + k, shift, scale, w ? w + k : NULL, b ? b + k : NULL, m)
    LLM__VECTORS(k, n, LLM__STEP);
#undef LLM__STEP
}

/* Eight pairs of neighbours by eight cosines and sines. A pair is read and written as one word of 64 bits: compilers turn that into
 * vectors, where they do not with every other float. */
LLM__INLINE void llm__turn_pairs(float *x, const float *c, const float *s) {
    uint64_t pair[8];
    uint32_t low[8], high[8];
    float u[8], v[8], a[8], b[8];
    memcpy(pair, x, sizeof pair);
    for (int i = 0; i < 8; i++) low[i] = (uint32_t)pair[i];
    for (int i = 0; i < 8; i++) high[i] = (uint32_t)(pair[i] >> 32);
    memcpy(u, low, sizeof u);
    memcpy(v, high, sizeof v);
    for (int i = 0; i < 8; i++) a[i] = u[i] * c[i] - v[i] * s[i];
    for (int i = 0; i < 8; i++) b[i] = v[i] * c[i] + u[i] * s[i];
    memcpy(low, a, sizeof low);
    memcpy(high, b, sizeof high);
    for (int i = 0; i < 8; i++) pair[i] = low[i] | (uint64_t)high[i] << 32;
    memcpy(x, pair, sizeof pair);
}

/* RoPE of one head (Su et al. 2021): each pair (u, v) turns by its angle. Pairs are neighbours (interleaved) or half a head apart; rope
 * holds `half` cosines, then `half` sines. */
LLM__INLINE void llm__body_rotate(float *x, const float *rope, int half, int interleaved) {
    for (int k = 0; k < half && !interleaved; k += LLM__ROWS) {
        const int n = half - k < LLM__ROWS ? half - k : LLM__ROWS;
        llm__v16 c = llm__load16(rope + k, n), s = llm__load16(rope + half + k, n), a, b;
        const llm__v16 u = llm__load16(x + k, n), v = llm__load16(x + half + k, n);
        LLM__EACH(i) a.v[i] = u.v[i] * c.v[i] - v.v[i] * s.v[i];
        LLM__EACH(i) b.v[i] = v.v[i] * c.v[i] + u.v[i] * s.v[i];
        llm__store16(x + k, n, a);
        llm__store16(x + half + k, n, b);
    }
    int k = 0;
    for (; k + 8 <= half && interleaved; k += 8) llm__turn_pairs(x + 2 * k, rope + k, rope + half + k);
    for (; k < half && interleaved; k++) {
        const float u = x[2 * k], v = x[2 * k + 1], c = rope[k], s = rope[half + k];
        x[2 * k] = u * c - v * s;
        x[2 * k + 1] = v * c + u * s;
    }
}

/* ---- Conversions ----
 * What plain C cannot express well. Each instruction set has its own, which the kernels take as an argument: always a constant that is
 * inlined, never a call. The scalar ones say what the others must do. */

typedef llm__v16 (*llm__half_fn)(const uint16_t *p);              /* 16 f16 to f32 */
typedef llm__v16 (*llm__bytes_fn)(const uint8_t *p, int is_unsigned); /* 16 bytes */
typedef void (*llm__narrow_fn)(uint16_t *p, llm__v16 x);          /* and back */
typedef void (*llm__int8_fn)(int8_t *q, const int32_t *x);        /* 16 integers, -128 to 127 */
typedef void (*llm__f8_fn)(const uint8_t *src, uint16_t *former, uint16_t *latter); /* 16 pairs of e4m3 to f16, times 2^-8 */
/* A block's bytes by what the table has for them, with the bits of `flip` turned. */
typedef void (*llm__look_up_fn)(const int8_t table[16], uint8_t flip, uint8_t *u);

/* Values too large for f16 become its largest. */
LLM__INLINE void llm__body_to_half(uint16_t *dst, const float *src, int n, const llm__narrow_fn narrow) {
    uint16_t half[LLM__ROWS];
    for (int k = 0; k < n; k += LLM__ROWS) {
        llm__v16 x = llm__load16(src + k, n - k);
        LLM__EACH(i) x.v[i] = x.v[i] > 65504 ? 65504.0f : x.v[i];
        LLM__EACH(i) x.v[i] = x.v[i] < -65504 ? -65504.0f : x.v[i];
        if (n - k >= LLM__ROWS) {
            narrow(dst + k, x);
            continue;
        }
        narrow(half, x);
        memcpy(dst + k, half, sizeof *half * (size_t)(n - k));
    }
}

/* To bf16, halves to even; what is no number stays none. */
LLM__INLINE void llm__body_to_bf16(uint16_t *dst, const float *src, int n) {
    for (int k = 0; k < n; k += LLM__ROWS) {
        uint16_t half[LLM__ROWS];
        llm__bits16 x;
        x.f = llm__load16(src + k, n - k);
        LLM__EACH(i) x.u[i] = (x.u[i] & 0x7FFFFFFF) > 0x7F800000 ? x.u[i] | 0x400000 : x.u[i] + 0x7FFF + (x.u[i] >> 16 & 1);
        LLM__EACH(i) half[i] = (uint16_t)(x.u[i] >> 16);
        memcpy(dst + k, half, sizeof *half * (size_t)(n - k < LLM__ROWS ? n - k : LLM__ROWS));
    }
}

/* Four pairs at a time: the sign stays, the rest moves down by a bit. */
LLM__FORCE void llm__body_f8(const uint8_t *src, uint16_t *former, uint16_t *latter) {
    const uint64_t sign = 0x8000800080008000u, rest = 0x3F803F803F803F80u;
    for (int i = 0; i < LLM__ROWS; i += 4) {
        uint64_t x, a, b;
        memcpy(&x, src + 2 * i, 8);
        a = (x << 8 & sign) | (x << 7 & rest), b = (x & sign) | (x >> 1 & rest);
        memcpy(former + i, &a, 8);
        memcpy(latter + i, &b, 8);
    }
}

/* n packed columns (even) of e4m3 of `pair` blocks as mac reads them: f16 (n, pair, 16), or bf16 (n / 2, pair, 16, 2), all exact. */
LLM__INLINE void llm__body_widen_f8(const uint8_t *src, int n, int pair, int bf16, uint16_t *to, const llm__f8_fn f8,
                                    const llm__half_fn widen) {
    for (int k = 0; k < n; k += 2)
        for (int p = 0; p < pair; p++, src += 2 * LLM__ROWS) {
            uint16_t *former = to + (k * pair + p) * LLM__ROWS, half[2][LLM__ROWS];
            llm__bits16 a, b;
            if (!bf16) {
                f8(src, former, former + pair * LLM__ROWS);
                continue;
            }
            f8(src, half[0], half[1]);
            a.f = widen(half[0]), b.f = widen(half[1]);
            LLM__EACH(i) a.u[i] = a.u[i] >> 16 | (b.u[i] & 0xFFFF0000u);
            memcpy(to + (k * pair + 2 * p) * LLM__ROWS, &a, sizeof a);
        }
}

/* n stored elements of the KV cache to f32, before the scale and offset of their token. int4: the high nibbles go to `high`. */
LLM__INLINE void llm__body_expand(llm_kv_type type, const uint8_t *src, int n, float *low, float *high, const llm__half_fn half,
                                  const llm__bytes_fn bytes) {
    const int size = llm__kv_size(type);
    for (int k = 0; k < n; k += LLM__ROWS) {
        uint8_t part[4 * LLM__ROWS] = {0}, nibble[LLM__ROWS];
        const uint8_t *p = src + k * size;
        const uint16_t *h;
        uint16_t wide[LLM__ROWS];
        llm__bits16 x;
        if (n - k < LLM__ROWS) {
            memcpy(part, p, (size_t)((n - k) * size));
            p = part;
        }
        h = (const uint16_t *)(const void *)p;
        switch (type) {
        case LLM_KV_F16: x.f = half(h); break;
        case LLM_KV_BF16: LLM__EACH(i) x.u[i] = (uint32_t)h[i] << 16; break;
        case LLM_KV_FP8_E5M2:
            LLM__EACH(i) wide[i] = (uint16_t)(p[i] << 8);
            x.f = half(wide);
            break;
        case LLM_KV_FP8_E4M3: /* f32's fields with fewer bits: moved into place, the exponent is 120 too small */
            LLM__EACH(i) x.u[i] = (p[i] & 0x80u) << 24 | (p[i] & 0x7Fu) << 20;
            LLM__EACH(i) x.f.v[i] *= 1.329227996e36f; /* 2^120 */
            break;
        case LLM_KV_INT8: x.f = bytes(p, 1); break;
        case LLM_KV_INT4:
            LLM__EACH(i) nibble[i] = p[i] >> 4;
            llm__store16(high + k, n - k, bytes(nibble, 1));
            LLM__EACH(i) nibble[i] = p[i] & 15;
            x.f = bytes(nibble, 1);
            break;
        default: x.f = llm__load16((const float *)(const void *)p, LLM__ROWS);
        }
        llm__store16(low + k, n - k, x.f);
    }
}

/* 32 values to int8: block `at` of the copy, q = round(x * 127 / largest). `lost` (may be NULL) takes what the rounding loses. The maximum
 * is found on the bits (floats of one sign are ordered as integers): compilers reorder those. What is no number becomes 0. The sums of both
 * halves, 16 * 128 at most, are found as one sum: that of the former + 65536 times that of the latter. */
LLM__INLINE void llm__quantise_block(const llm__act *a, size_t at, const float *x, float *lost, const llm__int8_fn int8) {
    const llm__v16 x0 = llm__load16(x, LLM__ROWS), x1 = llm__load16(x + LLM__ROWS, LLM__ROWS);
    llm__bits16 u, v;
    int32_t top = 0, both = 0;
    float most;
    u.f = x0, v.f = x1;
    LLM__EACH(i) u.i[i] &= 0x7FFFFFFF;
    LLM__EACH(i) v.i[i] &= 0x7FFFFFFF;
    LLM__EACH(i) u.i[i] = u.i[i] > v.i[i] ? u.i[i] : v.i[i];
    LLM__EACH(i) top = u.i[i] > top ? u.i[i] : top;
    memcpy(&most, &top, 4);
    const float d = most * (1.0f / 127), inverse = most > 0 ? 127 / most : 0;
    LLM__EACH(i) u.f.v[i] = x0.v[i] * inverse;
    LLM__EACH(i) v.f.v[i] = x1.v[i] * inverse;
    LLM__EACH(i) u.f.v[i] += 12582912.0f; /* as in exp2: the integer stands in the low bits. On its own, so that it is not fused */
    LLM__EACH(i) v.f.v[i] += 12582912.0f;
    LLM__EACH(i) u.i[i] = (int32_t)(u.u[i] << 24) >> 24;
    LLM__EACH(i) v.i[i] = (int32_t)(v.u[i] << 24) >> 24;
    int8(a->q + at * 32, u.i);
    int8(a->q + at * 32 + LLM__ROWS, v.i);
    LLM__EACH(i) both += u.i[i] + v.i[i] * 65536;
    const int32_t former = (int16_t)both, latter = (both - former) / 65536;
    for (int i = 0; i < LLM__ROWS && lost; i++) {
        lost[i] = fmaf(-(float)u.i[i], d, x0.v[i]);
        lost[16 + i] = fmaf(-(float)v.i[i], d, x1.v[i]);
    }
    a->d[at] = d;
    a->s[2 * at] = d * (float)(former + latter);
    a->s[2 * at + 1] = d * (float)latter;
    a->n[2 * at] = -former - latter;
    a->n[2 * at + 1] = -latter;
}

/* n rows of 32 values, `stride` floats apart, to the blocks from `at` on; per 2: each to two, the second one being what the first has
 * lost. */
LLM__INLINE void llm__body_quantise(const llm__act *act, size_t at, const float *x, int64_t stride, int n, int per,
                                    const llm__int8_fn int8) {
    const llm__act a = *act; /* its pointers in registers */
    float lost[32];
    for (int i = 0; i < n; i++, x += stride, at += (size_t)per) {
        llm__quantise_block(&a, at, x, per == 2 ? lost : NULL, int8);
        if (per == 2) llm__quantise_block(&a, at + 1, lost, NULL, int8);
    }
}

/* ---- The end of a product ---- */

/* xIELU (Huang and Schlag 2024): a parabola for positive x that meets an exponential below 0, both with the slope b there. p bends the one,
 * n the other; both were learned, a layer at a time. With p 0.8, n 0.8, b 0.5:
 *
 *     x    -4    -1     0     1     2
 *     y    0.41 -0.21   0    1.3   4.2
 */
LLM__INLINE float llm__xielu(const float *c, float x) {
    return x > 0 ? (c[0] * x + c[2]) * x : c[1] * (expm1f(x < c[3] ? x : c[3]) - x) + c[2] * x;
}

/* act(g), times u where there is one. Three of them are a product with a sigmoid. */
LLM__INLINE llm__v16 llm__act16(llm_act act, float limit, const float *xielu, llm__v16 g, const llm__v16 *u) {
    const int oai = act == LLM_ACT_SWIGLU_OAI, tanh = act == LLM_ACT_GELU_TANH, quick = act == LLM_ACT_QUICK_GELU;
    llm__v16 x;
    if (oai) LLM__EACH(i) g.v[i] = g.v[i] < limit ? g.v[i] : limit;
    if (act == LLM_ACT_GELU) LLM__EACH(i) g.v[i] *= 0.5f * (1 + erff(g.v[i] * 0.70710678f));
    if (act == LLM_ACT_RELU) LLM__EACH(i) g.v[i] = g.v[i] > 0 ? g.v[i] : 0;
    if (act == LLM_ACT_RELU2) LLM__EACH(i) g.v[i] = g.v[i] > 0 ? g.v[i] * g.v[i] : 0;
    if (act == LLM_ACT_XIELU) LLM__EACH(i) g.v[i] = llm__xielu(xielu, g.v[i]);
    if (oai || tanh || quick || act == LLM_ACT_SILU) {
        x = g;
        if (tanh) LLM__EACH(i) x.v[i] = g.v[i] + 0.044715f * g.v[i] * g.v[i] * g.v[i]; /* (1 + tanh y) / 2 = sigmoid(2 y) */
        x = llm__sigmoid16(x, tanh ? 1.59576912f : oai || quick ? 1.702f : 1);
        LLM__EACH(i) g.v[i] *= x.v[i];
    }
    if (!u) return g;
    x = *u;
    if (oai) LLM__EACH(i) x.v[i] = (x.v[i] < -limit ? -limit : x.v[i] > limit ? limit : x.v[i]) + 1;
    LLM__EACH(i) g.v[i] *= x.v[i];
    return g;
}

/* What a loop over tokens has to do: constants, in all but one of the loops. */
typedef struct llm__ending {
    int plain; /* whole vectors without scales, adapters and soft cap, with a bias if that is set */
    int bias;
    int per;   /* places of a tile that a token takes */
    int gate_up, add;
    llm_act act;
} llm__ending;

/* One token's sums of a block, times the scale of its segment, with its bias and what an adapter adds (plus: the token's row, or NULL). */
LLM__INLINE llm__v16 llm__finish_sums(const llm__finish *f, const llm__block *b, const float *sums, const float *plus,
                                      const llm__ending how) {
    llm__v16 x = llm__load16(sums, LLM__ROWS), y;
    if (how.per == 2) {
        y = llm__load16(sums + LLM__ROWS, LLM__ROWS);
        LLM__EACH(i) x.v[i] += y.v[i];
    }
    if (how.plain) return how.bias ? llm__add16(x, f->bias + b->row, 1, LLM__ROWS) : x;
    LLM__EACH(i) x.v[i] *= b->scale;
    if (f->row_scale) {
        y = llm__load16(f->row_scale + b->row, b->n);
        LLM__EACH(i) x.v[i] *= y.v[i];
    }
    if (f->bias) x = llm__add16(x, f->bias + b->row, 1, b->n);
    return plus ? llm__add16(x, plus + b->row - f->first_row, 1, b->n) : x;
}

/* What one loop for all results has to look at. */
LLM__INLINE llm__ending llm__ending_of(const llm__finish *f) {
    const llm__ending any = {.per = f->per, .gate_up = f->gate_up, .add = f->add, .act = f->act};
    return any;
}

/* All tokens; see llm__body_finish. */
LLM__INLINE void llm__finish_rows(const llm__finish *f, const llm__block *b, const float *g, const float *u, int64_t token, int n,
                                  const llm__ending how) {
    const int plain = how.plain, per = how.per, gate_up = how.gate_up, width = plain ? LLM__ROWS : b->n;
    float *dst = f->dst + token * f->stride + b->row - f->first_row;
    const float *plus = f->plus ? f->plus + token * f->plus_stride : NULL;
    for (int t = 0; t < n; t++, g += LLM__ROWS * per, u += LLM__ROWS * per, dst += f->stride) {
        llm__v16 x = llm__finish_sums(f, b, g, plus, how), y;
        if (gate_up) y = llm__finish_sums(f, b + 1, u, plus, how);
        if (plus) plus += f->plus_stride;
        if (how.act || gate_up) x = llm__act16(how.act, f->limit, f->xielu, x, gate_up ? &y : NULL);
        if (!plain && f->scale != 1) LLM__EACH(i) x.v[i] *= f->scale;
        if (!plain && f->softcap > 0) x = llm__softcap16(x, f->softcap);
        llm__store16(dst, width, how.add ? llm__add16(x, dst, 1, width) : x);
    }
}

/* What becomes of sums, in this order: the two roundings' sums added up; times the segment's scale; + bias + plus; the activation, times
 * up; times the operation's scale; soft cap; added to what dst has.
 *
 * Tokens [token, token + n) of one block: sums g (n * per, 16), and u (n * per, 16) of the block after it where gate and up go together.
 * What nearly all results need has loops of its own, with nothing to decide in them. */
LLM__INLINE void llm__body_finish(const llm__finish *f, const llm__block *b, const float *g, const float *u, int64_t token, int n) {
    const int whole = b->n == LLM__ROWS && !f->plus && !f->row_scale && f->scale == 1 && f->softcap <= 0 && b->scale == 1 &&
                      (!f->gate_up || b[1].scale == 1);
    const int plain = whole && !f->bias, alone = plain && !f->gate_up && !f->act, gated = plain && f->gate_up && !f->add && f->per == 1;
    const int biased = whole && f->bias && !f->gate_up && !f->add && f->per == 1; /* a tower's */
    const llm__ending set = {.plain = 1, .per = 1}, add = {.plain = 1, .per = 1, .add = 1}, set_two = {.plain = 1, .per = 2};
    const llm__ending silu = {.plain = 1, .per = 1, .gate_up = 1, .act = LLM_ACT_SILU};
    const llm__ending gelu = {.plain = 1, .per = 1, .gate_up = 1, .act = LLM_ACT_GELU_TANH};
    const llm__ending bias = {.plain = 1, .bias = 1, .per = 1}, bias_gelu = {.plain = 1, .bias = 1, .per = 1, .act = LLM_ACT_GELU_TANH};
    if (alone && f->per == 1 && !f->add) llm__finish_rows(f, b, g, u, token, n, set);
    else if (alone && f->per == 1) llm__finish_rows(f, b, g, u, token, n, add);
    else if (alone && !f->add) llm__finish_rows(f, b, g, u, token, n, set_two);
    else if (biased && !f->act) llm__finish_rows(f, b, g, u, token, n, bias);
    else if (biased && f->act == LLM_ACT_GELU_TANH) llm__finish_rows(f, b, g, u, token, n, bias_gelu);
    else if (gated && f->act == LLM_ACT_SILU) llm__finish_rows(f, b, g, u, token, n, silu);
    else if (gated && f->act == LLM_ACT_GELU_TANH) llm__finish_rows(f, b, g, u, token, n, gelu);
    else llm__finish_rows(f, b, g, u, token, n, llm__ending_of(f));
}

/* ---- Attention ---- */

/* What some models do to the scores of the block of 64 positions that starts at `block`: soft cap, ALiBi, and what is added by distance.
 * Scores are then in units of the base-2 logarithm. */
LLM__INLINE void llm__body_bias(llm__attend *t, int block) {
    for (int q = 0; q < t->n; q++)
        for (int k = 0; k < LLM__BLOCK; k += LLM__ROWS) {
            float *p = t->scores + q * LLM__BLOCK + k;
            const float first = (float)(block + k - t->at[q]), slope = t->slope[q];
            llm__v16 s = llm__load16(p, LLM__ROWS);
            if (t->softcap != 0) {
                s = llm__softcap16(s, t->softcap);
                LLM__EACH(i) s.v[i] *= LLM__LOG2E;
            }
            LLM__EACH(i) s.v[i] += slope * (first + (float)i);
            if (t->distance[q]) {
                const int far = block + k - t->at[q];
                LLM__EACH(i) s.v[i] += LLM__LOG2E * t->distance[q][LLM__MIN(LLM__MAX(far + i, -t->reach), t->reach)];
            }
            llm__store16(p, LLM__ROWS, s);
        }
}

/* The weights of a block, relative to the new maximum, and their sums before rounding. With `half` they become bf16, rows of 64 one behind
 * the other, which no row reaches that is still to be read. No branches in the loop over a query's vectors: they stay in registers. */
LLM__INLINE void llm__soften_weights(llm__attend *t, const int fused, const int half) {
    for (int q = 0; q < t->n; q++) {
        float *p = t->scores + q * LLM__BLOCK;
        uint16_t narrow[LLM__ROWS];
        const float best = t->running_max[q], scale = t->scale[q];
        llm__bits16 s;
        llm__v16 sum = llm__load16(t->running_sum[q], LLM__ROWS);
        LLM__EACH(i) sum.v[i] *= scale;
        LLM__UNROLL
        for (int k = 0; k < LLM__BLOCK; k += LLM__ROWS) {
            s.f = llm__load16(p + k, LLM__ROWS);
            LLM__EACH(i) s.f.v[i] -= best;
            s.f = llm__exp2_16(s.f, fused, half);
            LLM__EACH(i) sum.v[i] += s.f.v[i];
            LLM__EACH(i) narrow[i] = (uint16_t)((s.u[i] + 0x8000) >> 16);
            if (half) memcpy((uint16_t *)(void *)t->scores + q * LLM__BLOCK + k, narrow, sizeof narrow);
            else llm__store16(p + k, LLM__ROWS, s.f);
        }
        llm__store16(t->running_sum[q], LLM__ROWS, sum);
    }
}

/* One step of the online softmax (Milakov and Gimelshein 2018): the new maximum, weights relative to it, and what earlier sums shrink by.
 * A query that sees nothing of the block keeps its state to the bit: scale 1, weights 0. First what is not seen becomes -infinity, in
 * blocks at the ends alone; then all maxima, then the rescaling of 16 queries at once, then the weights. */
LLM__INLINE void llm__body_soften(llm__attend *t, int block, const int fused, const int bf16) {
    for (int q = 0; q < t->n; q++) {
        float *p = t->scores + q * LLM__BLOCK;
        const int from = t->from[q] - block, to = t->to[q] - block;
        for (int k = 0; k < LLM__BLOCK && (from > 0 || to < LLM__BLOCK); k++) p[k] = ((k >= from) & (k < to)) ? p[k] : -INFINITY;
        llm__v16 top = llm__load16(p, LLM__ROWS);
        LLM__UNROLL
        for (int k = LLM__ROWS; k < LLM__BLOCK; k += LLM__ROWS) LLM__EACH(i) top.v[i] = top.v[i] > p[k + i] ? top.v[i] : p[k + i];
        const float best = llm__top16(top);
        t->scale[q] = best > t->running_max[q] ? best : t->running_max[q];
    }
    for (int q = 0; q < t->n; q += LLM__ROWS) {
        llm__v16 old = llm__load16(t->running_max + q, LLM__ROWS);
        const llm__v16 best = llm__load16(t->scale + q, LLM__ROWS);
        llm__store16(t->running_max + q, LLM__ROWS, best);
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
