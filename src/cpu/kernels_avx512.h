/* kernels_avx512: products with 32 registers of 64 bytes: all 16 rows at a time, with and without vpdpbusd.
 *
 * Eight registers hold a whole block, so tokens are taken one by one: 8 vpdpbusd, and for the floats a multiplication and one fused
 * multiply-add, or two where there are minimums: 10 or 11 operations of which 8 are the product. That is the ceiling: 80 or 73 % of what
 * vpdpbusd alone would reach. Zero points cost nothing, for the sums start with them. Two chains, of the first and the latter 16 columns,
 * hide the latency; where these have scales of their own, the chains are simply not added up.
 *
 * One block at a time would load as often as it multiplies, and a core that does two of each a cycle waits for the loads. So blocks of two
 * groups of 16 rows go together, which fill 16 registers, and an activation that is spread over a register serves both. Without VNNI the
 * 16-bit sums of AVX2 serve again, for one block. */

#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "cpu/intrinsics.h"
#include "cpu/dtypes.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
/* clang-format off */

#if LLM__X86

#ifdef LLM__TEST_EMULATE_AVX512
#define LLM__AVX512
#define LLM__AVX512VNNI
#else
#define LLM__AVX512 __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")))
#define LLM__AVX512VNNI __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#endif
#define LLM__AVX512_INLINE LLM__FORCE LLM__AVX512

/* See llm__avx2_look_up. */
LLM__AVX512_INLINE void llm__avx512_look_up(const int8_t values[16], uint8_t flip, uint8_t *u) {
    const __m128i flipped = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)values), _mm_set1_epi8((char)flip));
    const __m512i table = _mm512_broadcast_i32x4(flipped);
    LLM__UNROLL
    for (int i = 0; i < 8; i++) _mm512_storeu_si512(u + 64 * i, _mm512_shuffle_epi8(table, _mm512_loadu_si512(u + 64 * i)));
}


LLM__AVX512_INLINE llm__v16 llm__avx512_half(const uint16_t *p) {
    llm__v16 r;
    _mm512_storeu_ps(r.v, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p)));
    return r;
}

LLM__AVX512_INLINE llm__v16 llm__avx512_bytes(const uint8_t *p, int is_unsigned) {
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    llm__v16 r;
    _mm512_storeu_ps(r.v, _mm512_cvtepi32_ps(is_unsigned ? _mm512_cvtepu8_epi32(b) : _mm512_cvtepi8_epi32(b)));
    return r;
}

/* Scales have at most 22 bits that count, so d * 1.5 * 2^23 is exact in f32, and converting a sum costs nothing: the sum starts with the
 * bits of 1.5 * 2^23, which makes it that float plus the sum, and the multiplication by d takes d * 1.5 * 2^23 off again, rounding once. */
enum { LLM__MAGIC = 0x4B400000 };

/* d * -1.5 * 2^23. */
LLM__AVX512_INLINE __m512 llm__avx512_taken(__m512 d) { return _mm512_mul_ps(d, _mm512_set1_ps(-12582912.0f)); }

/* The kernels of >>bodies, compiled with these instructions. */
LLM__PRIVATE LLM__AVX512 void llm__avx512_quantise(const llm__act *a, size_t at, const float *x, int64_t stride, int n, int per);
LLM__PRIVATE LLM__AVX512 void llm__avx512_finish(const llm__finish *f, const llm__block *b, const float *g, const float *u, int64_t token,
                                                 int n);
LLM__PRIVATE LLM__AVX512 void llm__avx512_widen_f8(const uint8_t *src, int n, int pair, int bf16, uint16_t *to);
LLM__PRIVATE LLM__AVX512 float llm__avx512_sum(const float *x, int n);
LLM__PRIVATE LLM__AVX512 float llm__avx512_dot(const float *x, const float *y, int n);
LLM__PRIVATE LLM__AVX512 void llm__avx512_add(float *x, const float *y, float scale, int n);
LLM__PRIVATE LLM__AVX512 void llm__avx512_affine(float *dst, const float *src, float shift, float scale, const float *w, const float *b,
                                                 int n);
LLM__PRIVATE LLM__AVX512 void llm__avx512_rotate(float *x, const float *rope, int half, int interleaved);
LLM__PRIVATE LLM__AVX512 void llm__avx512_to_half(uint16_t *dst, const float *src, int n);
LLM__PRIVATE LLM__AVX512 void llm__avx512_to_bf16(uint16_t *dst, const float *src, int n);
LLM__PRIVATE LLM__AVX512 void llm__avx512_expand(llm_kv_type type, const uint8_t *src, int n, float *low, float *high);
LLM__PRIVATE LLM__AVX512 void llm__avx512_bias(llm__attend *t, int block);
LLM__PRIVATE LLM__AVX512 void llm__avx512_soften(llm__attend *t, int block);
LLM__PRIVATE LLM__AVX512 void llm__avx512_conv(const llm__conv *c);
LLM__PRIVATE LLM__AVX512 void llm__avx512_recur(const llm__recur *c);
LLM__PRIVATE LLM__AVX512 void llm__avx512_gate(float *x, const float *gate, int n, int silu);
LLM__PRIVATE LLM__AVX512 float llm__avx512_top(const float *x, int32_t n, int *bad);
LLM__PRIVATE LLM__AVX512 double llm__avx512_weigh(const float *x, float *w, int32_t n, float max, float scale);

/* The tables' `mac` and `product`, for what tiles are not worth it. */
LLM__PRIVATE LLM__AVX512 void llm__avx512_mac(const llm__mac *m);
LLM__PRIVATE LLM__AVX512VNNI void llm__avx512vnni_product(llm__kind kind, const llm__product *p);
LLM__PRIVATE LLM__AVX512VNNI double llm__avx512vnni_peak(int64_t turns); /* the tables' `peak` */

/* Its tables. */
extern LLM__PRIVATE const llm__kernels llm__kernels_avx512, llm__kernels_avx512vnni, llm__kernels_avx512bf16;
#endif
