/* kernels_avx2: products with 16 registers of 32 bytes: 8 rows of a block at a time.
 *
 * Without VNNI a product of bytes takes two instructions: vpmaddubsw multiplies unsigned weights with signed activations and adds pairs
 * into 16 bits, vpmaddwd (with ones) adds pairs of those into 32. The first is made to run several times before the second: products of
 * 4-bit weights add up to at most 2 * 8 * 15 * 127 = 30,480 in a lane, so all 8 vectors of a block fit into 16 bits; of 5 bits, 4 vectors;
 * of 6, two. Signed bytes would overflow as unsigned ones at once (2 * 255 * 127): there the weight's sign goes to the activation, and each
 * pair sum is widened.
 *
 * A tile is taken four tokens at a time: a load of weights serves four multiplications, and 8 sums (4 tokens x 2 halves of the rows) with
 * two weights and an activation are what the registers hold. The results wait in memory, that is, in L1: their load and store hide behind
 * the multiplications. */

#pragma once
#include "base/platform.h"
#include "cpu/intrinsics.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
/* clang-format off */

#if LLM__X86

#define LLM__AVX2 __attribute__((target("avx2,fma,f16c,tune=skylake-avx512")))
#define LLM__AVX2_INLINE LLM__FORCE LLM__AVX2

/* vpshufb looks up 32 nibbles at once, in a table of 16 bytes that stands in both halves of the register. */
LLM__AVX2_INLINE void llm__avx2_look_up(const int8_t values[16], uint8_t *u) {
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)values));
    for (__m256i *at = (__m256i *)(void *)u, *end = at + 16; at < end; at++)
        _mm256_storeu_si256(at, _mm256_shuffle_epi8(table, _mm256_loadu_si256(at)));
}

/* Its tables. */
extern LLM__PRIVATE const llm__kernels llm__kernels_avx2, llm__kernels_avxvnni;
#endif
