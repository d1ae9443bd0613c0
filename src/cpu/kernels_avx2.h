/* kernels_avx2: the kernels with 16 registers of 32 bytes, without and with VNNI.
 *
 * The products of bytes without VNNI stand in >>bytes_avx2. */
#pragma once
#include "base/platform.h"
#include "cpu/intrinsics.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
#include "cpu/unpack_avx2.h"
/* clang-format off */

#if LLM__X86

/* vpshufb looks up 32 nibbles at once, in a table of 16 bytes that stands in both halves of the register. */
LLM__AVX2_INLINE void llm__avx2_look_up(const int8_t values[16], uint8_t flip, uint8_t *u) {
    const __m128i flipped = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)values), _mm_set1_epi8((char)flip));
    const __m256i table = _mm256_broadcastsi128_si256(flipped);
    for (__m256i *at = (__m256i *)(void *)u, *end = at + 16; at < end; at++)
        _mm256_storeu_si256(at, _mm256_shuffle_epi8(table, _mm256_loadu_si256(at)));
}

/* 16 pairs' former or latter ones of e4m3 as f16, times 2^-8: the sign stays, the rest moves down by a bit. */
LLM__AVX2_INLINE __m256i llm__avx2_f8(const uint8_t *p, const int latter) {
    const __m256i pairs = _mm256_loadu_si256((const __m256i *)(const void *)p), high = latter ? pairs : _mm256_slli_epi16(pairs, 8);
    return _mm256_and_si256(_mm256_srai_epi16(high, 1), _mm256_set1_epi16((short)0xBF80));
}

/* Both: see llm__f8_fn. */
LLM__AVX2_INLINE void llm__avx2_f8_pairs(const uint8_t *src, uint16_t *former, uint16_t *latter) {
    _mm256_storeu_si256((__m256i *)(void *)former, llm__avx2_f8(src, 0));
    _mm256_storeu_si256((__m256i *)(void *)latter, llm__avx2_f8(src, 1));
}

/* Its tables. */
extern LLM__PRIVATE const llm__kernels llm__kernels_avx2, llm__kernels_avxvnni;
#endif
