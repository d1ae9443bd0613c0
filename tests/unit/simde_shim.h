/* Runs the AVX-512 and AVX-VNNI kernels on a CPU that has AVX2 only, for tests: SIMDe (Debian libsimde-dev) computes what the intrinsics mean.
 *     cc -O1 -mavx2 -mfma -mf16c -Wno-psabi -include tests/unit/simde_shim.h tests/unit/cpu/test_linear.c ... -lm -lpthread
 * With it llm.h's detection says that avxvnni, avx512, avx512vnni, avx512bf16 and amx are there, and their functions carry no target attribute of their own. */
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
SHIM_LANES(shim_cvtepi32_epi8, __m128i, simde__m512i, int32_t, ((int8_t *)&r)[i] = (int8_t)in[i])
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
#define _mm512_cvtepi32_epi8 shim_cvtepi32_epi8
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
#define _mm512_storeu_si512 simde_mm512_storeu_si512
#define _mm512_broadcast_i32x4 simde_mm512_broadcast_i32x4
#define _mm512_shuffle_epi8 simde_mm512_shuffle_epi8
#define _mm512_sub_epi32 simde_mm512_sub_epi32

/* AMX's tiles, as Intel's manual has them: eight of up to 16 rows of up to 64 bytes, each thread's own. */
static __thread struct { uint8_t config[64], data[8][16][64]; } shim_amx;
static inline int shim_rows(int tile) { return shim_amx.config[48 + tile]; }
static inline int shim_bytes(int tile) { return shim_amx.config[16 + 2 * tile] | shim_amx.config[17 + 2 * tile] << 8; }
static inline void shim_tile_check(int ok) {
    if (!ok) __builtin_trap();
}
static inline void shim_tile_zero(int tile) {
    shim_tile_check(shim_rows(tile));
    memset(shim_amx.data[tile], 0, sizeof shim_amx.data[tile]);
}
static inline void shim_tile_config(const void *p) {
    memcpy(shim_amx.config, p, 64);
    for (int i = 0; i < 8; i++) {
        shim_tile_check(shim_rows(i) <= 16 && shim_bytes(i) <= 64 && !shim_rows(i) == !shim_bytes(i));
        memset(shim_amx.data[i], 0, sizeof shim_amx.data[i]);
    }
}
static inline void shim_tile_load(int tile, const void *p, size_t stride) {
    shim_tile_zero(tile);
    for (int r = 0; r < shim_rows(tile); r++)
        memcpy(shim_amx.data[tile][r], (const char *)p + (size_t)r * stride, (size_t)shim_bytes(tile));
}
static inline void shim_tile_store(int tile, void *p, size_t stride) {
    shim_tile_check(shim_rows(tile));
    for (int r = 0; r < shim_rows(tile); r++) memcpy((char *)p + (size_t)r * stride, shim_amx.data[tile][r], (size_t)shim_bytes(tile));
}
static inline void shim_tile_fits(int c, int a, int b) {
    shim_tile_check(shim_rows(c) && shim_rows(c) == shim_rows(a) && shim_bytes(c) == shim_bytes(b) && shim_bytes(a) == 4 * shim_rows(b));
}
static inline void shim_tile_bytes(int c, int a, int b) {
    shim_tile_fits(c, a, b);
    for (int i = 0; i < shim_rows(c); i++)
        for (int j = 0; j < shim_bytes(c); j += 4) {
            int32_t sum;
            memcpy(&sum, shim_amx.data[c][i] + j, 4);
            for (int k = 0; k < shim_bytes(a); k++) sum += (int8_t)shim_amx.data[a][i][k] * (int8_t)shim_amx.data[b][k / 4][j + k % 4];
            memcpy(shim_amx.data[c][i] + j, &sum, 4);
        }
}
static inline float shim_bf16(const uint8_t *p) {
    const uint32_t u = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline void shim_tile_floats(int c, int a, int b) {
    shim_tile_fits(c, a, b);
    for (int i = 0; i < shim_rows(c); i++)
        for (int j = 0; j < shim_bytes(c); j += 4) {
            float sum, part[2] = {0, 0};
            memcpy(&sum, shim_amx.data[c][i] + j, 4);
            for (int k = 0; k < shim_bytes(a) / 2; k++)
                part[k % 2] =
                    __builtin_fmaf(shim_bf16(shim_amx.data[a][i] + 2 * k), shim_bf16(shim_amx.data[b][k / 2] + j + k % 2 * 2), part[k % 2]);
            sum += part[0] + part[1];
            memcpy(shim_amx.data[c][i] + j, &sum, 4);
        }
}
#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbssd
#undef _tile_dpbf16ps
#undef _tile_release
#define _tile_loadconfig shim_tile_config
#define _tile_loadd shim_tile_load
#define _tile_stored shim_tile_store
#define _tile_zero shim_tile_zero
#define _tile_dpbssd shim_tile_bytes
#define _tile_dpbf16ps shim_tile_floats
#define _tile_release() ((void)0)
#endif
