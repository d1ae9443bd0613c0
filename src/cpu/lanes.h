/* lanes: sixteen floats at a time, in plain C that compilers make vectors of.
 *
 * The functions here are plain C. They work on llm__v16, sixteen floats by value, in loops of exactly sixteen turns over local variables:
 * compilers turn each such loop into one vector operation (gcc from 12 on and clang at -O2), of whatever width the function they are
 * inlined into may use: an AVX-512 register, two of AVX2, four of SSE or NEON. Three conditions make that reliable, and are kept
 * throughout: the count is a constant; nothing in the loop can be an alias of anything else (arguments are values, not pointers); no
 * branches, only choices. Each instruction set has a file (kernels_avx2 and its like) that compiles all of them with its own instructions
 * and puts them into a table, llm__kernels: whole rows and blocks a call, so that a call through a pointer costs nothing.
 *
 * What C cannot say is written with intrinsics, in those files: converting f16, looking bytes up in a table, and the
 * products themselves.
 *
 * Each function is used for every row of every batch, and the order of its sums depends on the length alone. That is what makes a row's
 * bits independent of its neighbours. */

#pragma once
#include "base/platform.h"
#include "cpu/packed.h"
/* clang-format off */

/* Unrolls a loop of constant count whose array then lives in registers. In the plain C instance some of them are vectorised or gone before
 * clang comes to unrolling, which it would call a failure. */
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#define LLM__UNROLL _Pragma("clang loop unroll(full)")
#define LLM__UNROLL_2 _Pragma("clang loop unroll_count(2)")
#elif defined(__OPTIMIZE__)
#define LLM__UNROLL _Pragma("GCC unroll 24")
#define LLM__UNROLL_2 _Pragma("GCC unroll 2")
#else
#define LLM__UNROLL
#define LLM__UNROLL_2
#endif
#ifdef __OPTIMIZE__
#define LLM__FORCE static inline __attribute__((always_inline, unused))
#else
#define LLM__FORCE static __attribute__((unused)) /* functions passed as arguments cannot be inlined */
#endif
#define LLM__NOINLINE __attribute__((noinline))
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#define LLM__ALIGN_LOOPS __attribute__((optimize("align-loops=64"))) /* on a cache line: 5 % of the shortest ones' time (Zen 5, gcc 12) */
#else
#define LLM__ALIGN_LOOPS
#endif
#define LLM__LOG2E 1.44269504f
#define LLM__EACH(i) for (int i = 0; i < LLM__ROWS; i++)

/* Sixteen floats: the rows of a block, positions of a key group, or neighbours in a row of activations. */
typedef struct llm__v16 {
    float v[LLM__ROWS];
} llm__v16;

typedef union llm__bits16 { /* the same, seen as integers */
    uint32_t u[LLM__ROWS];
    int32_t i[LLM__ROWS];
    llm__v16 f;
} llm__bits16;

/* The same number in every lane. */
LLM__INLINE llm__v16 llm__all16(float x) {
    llm__v16 r;
    LLM__EACH(i) r.v[i] = x;
    return r;
}

/* The first n <= 16 elements at p, zeros after them; and back. Rows seldom end inside a vector, so the branch costs nothing. */
LLM__INLINE llm__v16 llm__load16(const float *p, int n) {
    llm__v16 r;
    if (n >= LLM__ROWS) {
        LLM__EACH(i) r.v[i] = p[i];
        return r;
    }
    LLM__EACH(i) r.v[i] = 0;
    for (int i = 0; i < n; i++) r.v[i] = p[i];
    return r;
}

LLM__INLINE void llm__store16(float *p, int n, llm__v16 x) {
    if (n >= LLM__ROWS) LLM__EACH(i) p[i] = x.v[i];
    else
        for (int i = 0; i < n; i++) p[i] = x.v[i];
}

/* Sum and maximum of all lanes, halves folded onto each other: loops of 8 and of 4 become one instruction each. */
LLM__INLINE float llm__total16(llm__v16 x) {
    float a[8], b[4];
    for (int i = 0; i < 8; i++) a[i] = x.v[i] + x.v[i + 8];
    for (int i = 0; i < 4; i++) b[i] = a[i] + a[i + 4];
    return (b[0] + b[2]) + (b[1] + b[3]);
}

LLM__INLINE float llm__top16(llm__v16 x) {
    float a[8], b[4];
    for (int i = 0; i < 8; i++) a[i] = x.v[i] > x.v[i + 8] ? x.v[i] : x.v[i + 8];
    for (int i = 0; i < 4; i++) b[i] = a[i] > a[i + 4] ? a[i] : a[i + 4];
    const float even = b[0] > b[2] ? b[0] : b[2], odd = b[1] > b[3] ? b[1] : b[3];
    return even > odd ? even : odd;
}

/* 2^x of x <= 126, exactly 1 for 0 and 0 below -126.5. With n the integer next to x, 2^x = 2^n * 2^f, |f| <= 1/2: the first is a float with
 * exponent n, the second a polynomial (least maximum error, 2e-7, or 1e-4 if rough, for what becomes bf16; fused: by multiply-adds). Adding
 * 1.5 * 2^23 leaves no bits for a fraction: that rounds to an integer, which then stands in the low bits; 127 more is the exponent's
 * bias. */
LLM__INLINE llm__v16 llm__exp2_16(llm__v16 x, const int fused, const int rough) {
    static const float factor[2][6] = {{1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1},
                                       {0, 0, 0, 2.4221096e-1f, 6.9328293e-1f, 1}};
    llm__bits16 n;
    llm__v16 p;
    LLM__EACH(i) x.v[i] = x.v[i] < -127 ? -127.0f : x.v[i]; /* NaN stays */
    LLM__EACH(i) n.f.v[i] = x.v[i] + 12583039.0f;
    LLM__EACH(i) x.v[i] = x.v[i] - (n.f.v[i] - 12583039.0f);
    p = llm__all16(rough ? 5.500893e-2f : 1.5403530e-4f);
    LLM__UNROLL
    for (int k = rough ? 3 : 0; k < 6; k++)
        LLM__EACH(i) p.v[i] = fused ? __builtin_fmaf(p.v[i], x.v[i], factor[rough][k]) : p.v[i] * x.v[i] + factor[rough][k];
    LLM__EACH(i) n.u[i] <<= 23;
    LLM__EACH(i) p.v[i] *= n.f.v[i];
    return p;
}

/* 1 / (1 + e^(-k x)), and cap * tanh(x / cap) = cap * (2 sigmoid(2 x / cap) - 1). */
LLM__INLINE llm__v16 llm__sigmoid16(llm__v16 x, float k) {
    LLM__EACH(i) x.v[i] *= -LLM__LOG2E * k;
    LLM__EACH(i) x.v[i] = x.v[i] > 126 ? 126.0f : x.v[i];
    x = llm__exp2_16(x, 0, 0);
    LLM__EACH(i) x.v[i] = 1 / (1 + x.v[i]);
    return x;
}

LLM__INLINE llm__v16 llm__softcap16(llm__v16 x, float cap) {
    x = llm__sigmoid16(x, 2 / cap);
    LLM__EACH(i) x.v[i] = cap * (2 * x.v[i] - 1);
    return x;
}
