/* grids: GGUF's formats of less than four bits (IQ1 to IQ3, the ternary TQ) and its NVFP4, read as nibbles.
 *
 * A block has 256 columns, and an index of a few bits says which entry of a codebook eight of them, or four, are; signs and scales stand
 * apart. What comes out are few different values: of all these formats, whatever their codebook, a column's value is a scale times one of
 * at most 16 numbers. So they are read, once, as blocks of 32 columns of four bits and a scale, exactly:
 *
 *     read as           numbers, either sign                 a scale for     of
 *     LLM_TYPE_GRID2    8 25 43, 1 7 9, 0                    32 columns      IQ2_XXS, IQ1_S (eighths), TQ1_0, TQ2_0
 *     LLM_TYPE_GRID2X   the same                             16 columns      IQ2_XS, IQ2_S, IQ1_M (eighths)
 *     LLM_TYPE_GRID3    4 12 20 28 36 44 52 62               32 columns      IQ3_XXS
 *     LLM_TYPE_GRID3S   1 3 5 7 9 11 13 15                   32 columns      IQ3_S
 *     LLM_TYPE_NVFP4_32 e2m1                                 16 columns      NVFP4, whose scales are e4m3
 *
 * which every kernel for nibbles of a table multiplies. They take 5 or 6 bits a weight in memory, more than in the file, and no index is
 * looked up while computing. Codes: 0 to 7 are the numbers, 8 more the same below zero. The formats are ggml's (ggml-common.h). */
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

/* Columns 32 j ... of a stored row of such a type, as a block of its form, to `to`. */
LLM__PRIVATE void llm__grid_block(int32_t type, const uint8_t *row, int64_t j, uint8_t *to);

/* What a segment's `read` does; the first is a llm__grids. */
LLM__PRIVATE void llm__grids_read(const void *grids, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, void *to);
