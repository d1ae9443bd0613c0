/* kernels_amx: products of tiles: Intel's AMX, sixteen tokens with sixteen rows at a time.
 *
 * A tile register is up to 16 rows of up to 64 bytes. One instruction multiplies a tile of activations (16 tokens, 64 bytes of columns)
 * with one of weights (64 columns as 16 rows of four; 16 rows of the weight side by side) and adds to a tile of 16 x 16 results, in 16
 * cycles: eight times what vpdpbusd does in that time. The tile of weights is just the packed block, whose vectors are its rows.
 *
 * Bytes have scales by 32 columns, so a product of tiles is that of one block, half a tile, and each of its results has to be scaled: tiles
 * go to memory and come back as vectors. That takes three times as long as the product, and while tiles are at work a core does one fused
 * multiply-add a cycle instead of two. So of the eight times 1.2 are left (Sapphire Rapids), thanks to two things. Scaling costs few
 * operations, for the sums become LLM__MAGIC more: one fused multiply-add scales by d and converts, one by the activation's scale, one adds
 * the minimum's part. And it is done for a block while the next one is multiplied. The order of the operations on a result is that of the
 * vector kernels, and so are its bits: few tokens take those.
 *
 * Floats are easier: tdpbf16ps adds up in f32, and a tile of results stays where it is for all columns. For each result it adds, in two
 * chains, the products of even and of odd columns, 32 columns in all, and then both to the result. Where these groups of 32 begin must not
 * depend on who else is in the batch: llm__mac.phase. Fewer columns than 32 are as good as zeros: nothing is rounded differently. */

#pragma once
#include "base/platform.h"
#include "cpu/intrinsics.h"
#include "cpu/kernels.h"
/* clang-format off */

#if LLM__X86 && LLM__HAS_2021
/* Its table. */
extern LLM__PRIVATE const llm__kernels llm__kernels_amx;
#endif
