/* kernels_neon: products with 32 registers of 16 bytes: sdot, ARMv8.2's dot product.
 *
 * sdot multiplies sixteen signed bytes with sixteen and adds the four products of each lane to its 32-bit sum: vpdpbusd at a quarter of the
 * width, and both sides signed. So nothing is shifted by 128: unpacked weights are at most 63, and what has 8 bits is stored signed. A
 * vector of a block, 64 bytes, is four registers of 4 rows each; four tokens at a time make 16 sums, which with four weights and an
 * activation fit the registers. Without dot products (Cortex-A53, A72) the plain C kernels run, which compilers make 4 lanes wide. */

#pragma once
#include "base/platform.h"
#include "cpu/intrinsics.h"
#include "cpu/kernels.h"
/* clang-format off */

#if LLM__NEON
/* Its table. */
extern LLM__PRIVATE const llm__kernels llm__kernels_neon;
#endif
