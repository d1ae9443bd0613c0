/* grids: GGUF's formats of less than four bits (IQ1 to IQ3, the ternary TQ) and its NVFP4, read as nibbles.
 *
 * A block has 256 columns, and an index of a few bits says which entry of a codebook eight of them, or four, are; signs and scales stand
 * apart. What comes out are few different values: of all these formats, whatever their codebook, a column's value is a scale times one of
 * at most 16 numbers, and scales are the block's f16 times small integers. So they are read, once, as blocks of the same columns, exactly:
 *
 *     read as           numbers, either sign                 an integer for  bits in memory  of
 *     LLM_TYPE_GRID1    1 7 9, eighths                       32 columns      3.31            IQ1_S
 *     LLM_TYPE_GRID1X   the same                             16 columns      3.56            IQ1_M
 *     LLM_TYPE_GRID2    8 25 43, eighths                     32 columns      3.31            IQ2_XXS
 *     LLM_TYPE_GRID2X   the same                             16 columns      3.56            IQ2_XS, IQ2_S
 *     LLM_TYPE_GRID3    4 12 20 28 36 44 52 62, quarters     32 columns      4.31            IQ3_XXS
 *     LLM_TYPE_GRID3S   1 3 5 7 9 11 13 15                   32 columns      4.31            IQ3_S
 *     LLM_TYPE_TERNARY  0 1                                  256 columns     2.31            TQ1_0, TQ2_0
 *     LLM_TYPE_NVFP4_32 e2m1                                 16 columns      5               NVFP4, whose scales are e4m3
 *
 * A block in such a form, made for packing alone (of NVFP4's 32 columns in two halves of 16):
 *
 *     byte 0 ... 1       d, the block's f16, as it is stored
 *          2 ... 17      an integer for each 16 columns: 2 s + 1 of a stored s, which halves become whole by
 *         18 ... 145     codes, 32 columns in 16 bytes: column i in the low nibble of byte i, column 16 + i in the high one
 *
 * A product of these three is exact in f32: 11 bits of d, 5 of an integer, 7 of a number. So nothing depends on the order in which
 * kernels multiply them, and every instruction set has what dequantising gives.
 *
 * All tables are in eighths, which the kernels multiply as nibbles or three bits of a table. No index is looked up while computing.
 * Codes: the numbers, then the same below zero. The formats are ggml's (ggml-common.h). */
#pragma once
#include "base/platform.h"

/* A stored matrix of such a type, for a segment's `read`. */
typedef struct llm__grids {
    const uint8_t *data; /* (rows, cols) */
    int64_t cols;
    int32_t type;
} llm__grids;

/* The type of blocks as which rows of a type are read; -1: it is none of these. */
LLM__PRIVATE int32_t llm__grid_form(int32_t type);

enum { LLM__GRID_BYTES = 146 }; /* of a block of any form */

/* A stored row of such a type, as blocks of its form: number j, to `to`. */
LLM__PRIVATE void llm__grid_block(int32_t type, const uint8_t *row, int64_t j, uint8_t *to);

/* What a segment's `read` does; the first is a llm__grids. */
LLM__PRIVATE void llm__grids_read(const void *grids, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, void *to);
