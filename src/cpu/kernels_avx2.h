/* kernels_avx2: the kernels with 16 registers of 32 bytes, without and with VNNI.
 *
 * The products of bytes without VNNI stand in >>bytes_avx2. */
#pragma once
#include "base/platform.h"
#include "cpu/intrinsics.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
#include "cpu/bytes_avx2.h"
/* clang-format off */

#if LLM__X86

/* vpshufb looks up 32 nibbles at once, in a table of 16 bytes that stands in both halves of the register. */
LLM__AVX2_INLINE void llm__avx2_look_up(const int8_t values[16], uint8_t *u) {
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)values));
    for (__m256i *at = (__m256i *)(void *)u, *end = at + 16; at < end; at++)
        _mm256_storeu_si256(at, _mm256_shuffle_epi8(table, _mm256_loadu_si256(at)));
}

/* Its tables. */
extern LLM__PRIVATE const llm__kernels llm__kernels_avx2, llm__kernels_avxvnni;
#endif
