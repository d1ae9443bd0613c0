/* quantise: floats to the formats of quantised blocks.
 *
 * A block of 32 or 16 values becomes small integers and a scale, or a scale and a minimum. Which scale is best is a search: some 20
 * candidates near the one that the largest value asks for are tried; each gives integers, for which the scale (and minimum) with the least
 * weighted error follows in closed form:
 *
 *     symmetric   w = s q         s = sum(g w q) / sum(g q q)
 *     affine      w = s q + m     two normal equations in s and m, m <= 0
 *
 * g says how much a value's error counts: large values more than small ones, and where an importance matrix is given (how large the inputs
 * of each column are), columns of large inputs more. In super-blocks the scales of the blocks are quantised themselves; then all values
 * are rounded once more, by what was kept.
 *
 * Sixteen blocks are worked on at a time, one in each lane (>>lanes), so no sum runs across lanes: the bits are the same whatever the
 * instruction set.
 *
 * Formats as in >>dtypes. The search: least squares as in ggml's k-quants (Kawrakow 2023); MXFP4: OCP Microscaling 1.0. */
#pragma once
#include "base/platform.h"
#include "cpu/isa.h"

/* n_rows rows of `cols` floats, one after the other, to rows of a type whose blocks fill them: F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K,
 * IQ4_NL, IQ4_XS, MXFP4. importance: (cols) how much each column counts, or NULL: all the same. 0: a value, or a scale, is not finite. */
LLM__PRIVATE int llm__quantise(int32_t type, const float *x, const float *importance, int64_t n_rows, int64_t cols, uint8_t *to);

/* The same on an instruction set: AVX2, or plain C with any other. */
LLM__PRIVATE int llm__quantise_on(llm__isa isa, int32_t type, const float *x, const float *importance, int64_t n_rows, int64_t cols,
                                  uint8_t *to);
