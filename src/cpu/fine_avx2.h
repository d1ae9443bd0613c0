/* fine_avx2: products of weights with inputs of 16 bits in vectors of 32 bytes.
 *
 * For output layers of signed bytes. A vector of these becomes two of 16 bits, columns 0 and 2 of each four and columns 1 and 3,
 * whose products are added up two by two in 32 bits: nothing is lost, so few tokens and many have the same sums. Two roundings to bytes
 * take 104 cycles each for 16 rows, 32 columns and 4 tokens on Zen 3, this takes the time of one. Weights of fewer bits, whose pairs of
 * products add up in 16 bits, are as fast with two roundings: in Q6_K this took 1.1 times as long. */
#pragma once
#include "base/platform.h"
#include "cpu/intrinsics.h"
#include "cpu/dtypes.h"
#include "cpu/kernels.h"

#if LLM__X86
/* Of Q8, IQ4, I8, NF4 and FP4: see llm__product. */
LLM__PRIVATE void llm__avx2_fine_product(llm__kind kind, const llm__product *p);
#endif
