/* bytes_avx2: products of bytes with 16 registers of 32 bytes, and without VNNI.
 *
 * vpmaddubsw multiplies unsigned weights with signed inputs and adds pairs into 16 bits. Two such pairs make a column of 32 bits, so a lane
 * of 16 bits sees 16 of a block's 32 columns, and additions in 16 bits cost half of what widening each product would. What counts is that
 * the end fits, for on the way a lane may wrap around. Of 4 bits it does: 16 * 15 * 127 = 30,480. Wider weights are made smaller by their
 * zero point: sums begin with -zero times the sum of the lane's inputs (llm__act.n), and what is left of 5 bits is 16 at most, times 16 *
 * 127 = 32,512; of 6 bits 32 times 8 * 127, for their scales hold for 16 columns. Tables of numbers that are no integers (NF4, FP4) have
 * up to 64, for they come with inputs of which a lane has 511 in all: 64 * 511 = 32,704. So a block is widened once (vpmaddwd), and
 * where scales are small integers, by the instruction that multiplies with them. Signed bytes have no such room: the sign goes to the
 * input (vpsignb, or of 16 tokens and more an exclusive or with signs found once), and every pair is widened.
 *
 * Super-blocks keep integers as long as they can: sums of 32 columns times their small scales are exact; times the input's scale they are
 * added up over eight blocks, and only these sums are multiplied with the super-block's f16. Minimums likewise.
 *
 * One token, or two, read the packed weights straight, both blocks of a pair at once: what is unpacked is used at once and never stored.
 * More go through a super-block that is unpacked once to the nearest cache (bytes need not be): four tokens at a time share each load of
 * weights, and 8 sums (4 tokens x 2 halves of the rows) with two weights, an input and a product are what the registers hold. Both add in
 * the same order. */
#pragma once
#include "base/platform.h"
#include "cpu/intrinsics.h"
#include "cpu/dtypes.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"

#if LLM__X86

/* The table's entries. act.n has of each block of bytes the sums of the inputs of even and of odd 16-bit lanes, times -1, as a pair of 16
 * bits: of all 32 columns, and of the latter 16; of a block of 16 bits the sums themselves, times -1. */
LLM__PRIVATE void llm__avx2_quantise(const llm__act *act, size_t at, const float *x, int64_t stride, int n, int per);
LLM__PRIVATE void llm__avx2_quantise_low(const llm__act *act, size_t at, const float *x, int64_t stride, int n, int per);
LLM__PRIVATE void llm__avx2_quantise_fine(const llm__act *act, size_t at, const float *x, int64_t stride, int n);
LLM__PRIVATE void llm__avx2_product(llm__kind kind, const llm__product *p);
#endif
