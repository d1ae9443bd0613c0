/* Runs the AVX-512 and AVX-VNNI kernels on a CPU that has AVX2 only, for tests: SIMDe (Debian libsimde-dev) computes what the intrinsics mean.
 *     cc -O1 -mavx2 -mfma -mf16c -Wno-psabi -include tests/simde_shim.h tests/test_linear.c ... -lm -lpthread
 * With it llm.h's detection says that avxvnni, avx512, avx512vnni and avx512bf16 are there, and their functions carry no target attribute of their own. */
#ifndef SIMDE_SHIM_H
#define SIMDE_SHIM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#define LLM__TEST_EMULATE_AVX512 1
#include <immintrin.h>
#include <simde/x86/avx512.h>
#include <string.h>

/* What this SIMDe lacks: 16 lanes one by one. */
#define SHIM_LANES(name, result, vector, type, convert) \
    static inline result name(vector v) { \
        type in[16]; \
        result r; \
        memcpy(in, &v, sizeof in); \
        for (int i = 0; i < 16; i++) convert; \
        return r; \
    }
SHIM_LANES(shim_cvtepi32_ps, simde__m512, simde__m512i, int32_t, ((float *)&r)[i] = (float)in[i])
SHIM_LANES(shim_cvtepi8_epi32, simde__m512i, __m128i, int8_t, ((int32_t *)&r)[i] = in[i])
SHIM_LANES(shim_cvtepu8_epi32, simde__m512i, __m128i, uint8_t, ((int32_t *)&r)[i] = in[i])
SHIM_LANES(shim_cvtepu16_epi32, simde__m512i, __m256i, uint16_t, ((int32_t *)&r)[i] = in[i])
SHIM_LANES(shim_cvtph_ps, simde__m512, __m256i, uint16_t, ((float *)&r)[i] = _cvtsh_ss(in[i]))

/* Sums of 4 products of unsigned with signed bytes, 8 lanes. */
static inline __m256i shim_dpbusd_avx(__m256i sum, __m256i u, __m256i s) {
    uint8_t a[32];
    int8_t b[32];
    int32_t r[8];
    memcpy(a, &u, 32);
    memcpy(b, &s, 32);
    memcpy(r, &sum, 32);
    for (int i = 0; i < 32; i++) r[i / 4] += a[i] * b[i];
    memcpy(&sum, r, 32);
    return sum;
}
#define _mm256_dpbusd_avx_epi32 shim_dpbusd_avx

static inline __m256i shim_cvtps_ph(simde__m512 v, int rounding) {
    float x[16];
    uint16_t half[16];
    __m256i r;
    (void)rounding;
    memcpy(x, &v, sizeof x);
    for (int i = 0; i < 16; i++) half[i] = _cvtss_sh(x[i], 0);
    memcpy(&r, half, sizeof r);
    return r;
}

/* Sums of 2 products of bf16, 16 lanes. */
static inline simde__m512 shim_dpbf16(simde__m512 sum, simde__m512i x, simde__m512i y) {
    uint16_t a[32], b[32];
    float r[16];
    memcpy(a, &x, 64);
    memcpy(b, &y, 64);
    memcpy(r, &sum, 64);
    for (int i = 0; i < 32; i++) {
        const uint32_t u = (uint32_t)a[i] << 16, v = (uint32_t)b[i] << 16;
        float f, g;
        memcpy(&f, &u, 4);
        memcpy(&g, &v, 4);
        r[i / 2] += f * g;
    }
    memcpy(&sum, r, 64);
    return sum;
}
#define _mm512_dpbf16_ps shim_dpbf16

#define _mm512_load_ps simde_mm512_load_ps
#define _mm512_load_si512 simde_mm512_load_si512
#define _mm512_cvtps_ph shim_cvtps_ph
#define __m512 simde__m512
#define __m512i simde__m512i
#define __m512bh simde__m512i
#define _mm512_abs_epi8 simde_mm512_abs_epi8
#define _mm512_add_epi16 simde_mm512_add_epi16
#define _mm512_add_epi32 simde_mm512_add_epi32
#define _mm512_add_ps simde_mm512_add_ps
#define _mm512_and_si512 simde_mm512_and_si512
#define _mm512_castsi512_ps simde_mm512_castsi512_ps
#define _mm512_cvtepi32_ps shim_cvtepi32_ps
#define _mm512_cvtepi8_epi32 shim_cvtepi8_epi32
#define _mm512_cvtepu16_epi32 shim_cvtepu16_epi32
#define _mm512_cvtepu8_epi32 shim_cvtepu8_epi32
#define _mm512_cvtph_ps shim_cvtph_ps
#define _mm512_dpbusd_epi32 simde_mm512_dpbusd_epi32
#define _mm512_fmadd_ps simde_mm512_fmadd_ps
#define _mm512_loadu_ps simde_mm512_loadu_ps
#define _mm512_loadu_si512 simde_mm512_loadu_si512
#define _mm512_madd_epi16 simde_mm512_madd_epi16
#define _mm512_maddubs_epi16 simde_mm512_maddubs_epi16
#define _mm512_mask_sub_epi8 simde_mm512_mask_sub_epi8
#define _mm512_movepi8_mask simde_mm512_movepi8_mask
#define _mm512_mul_ps simde_mm512_mul_ps
#define _mm512_set1_epi16 simde_mm512_set1_epi16
#define _mm512_set1_epi32 simde_mm512_set1_epi32
#define _mm512_set1_ps simde_mm512_set1_ps
#define _mm512_setzero_ps simde_mm512_setzero_ps
#define _mm512_setzero_si512 simde_mm512_setzero_si512
#define _mm512_slli_epi32 simde_mm512_slli_epi32
#define _mm512_storeu_ps simde_mm512_storeu_ps
#define _mm512_sub_epi32 simde_mm512_sub_epi32
#endif
