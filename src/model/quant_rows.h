/* quant_rows: rows of quantised matrices, whatever the order in which a method packs them.
 *
 * Every method stores codes, small unsigned integers u, with scales (and zero points) for groups of columns of a row:
 *
 *     w[row][col] = scale[row][g] * (u[row][col] - zero[row][g])     g = col / group, or g_idx[col]
 *     w[row][col] = scale[row][g] * table[u[row][col]]               4-bit floats
 *
 * They differ in where bits stand (llm__codes_order, llm__zeros_order). llm__codes says all of it about one stored matrix, which stays
 * where it is, in the mapped file. Backends know none of this: they ask for rows, some columns at a time (llm_segment.read), and get
 * blocks of 32 columns of a common type, as if the file had them. Which type is decided once for a matrix, so that it is exact:
 *
 *     4-bit codes, all zeros 8              Q4_0         8-bit codes, all zeros 128            Q8_0
 *     up to 4 bits, other zeros             Q4_ZERO      other 8 bits, scales that no f16 has  G32
 *     e2m1                                  MXFP4, NVFP4_32   -1, 0 and 1 with one scale         TERNARY
 *     bitsandbytes' tables                  NF4, FP4     e4m3 with scales of blocks            F8_128, F8_32
 *     groups that are no whole blocks of 32 columns: the values themselves, F32
 *
 * Groups whose columns do not stand together are read in two ways: as they stand, F32, or sorted by group, in one of these types.
 *
 * Scales are f16 in these types, but files in bf16 have scales in bf16: multiplied by a power of two that a segment's scale takes back,
 * nearly all are exact f16.
 *
 * Example, AWQ's order: the eight outputs 8j ... 8j + 7 of one input column are a word's nibbles, from the lowest up those of output
 * 8j + 0, 2, 4, 6, 1, 3, 5, 7. GPTQ's: a word has eight inputs of one output, in order; of 3 bits 32 inputs fill three words. BitNet's: of
 * a matrix of 4 R rows byte (r, col) has the codes of rows r, R + r, 2 R + r and 3 R + r, so the rows of one rank lie in bytes that all
 * ranks read; 0, 1 and 2 stand for -1, 0 and 1, which one scale for the whole matrix multiplies, or divides ("bitlinear"). Published models
 * round what these matrices read to 8 bits a token as well; here inputs are rounded as for any other type, or in float32 not at all. */
#pragma once
#include "base/platform.h"

/* Where codes stand, of a matrix (rows, cols) = (out, in). */
typedef enum llm__codes_order {
    LLM__CODES_ROWS = 0, /* a row's bits in order, each from the lowest up */
    LLM__CODES_HIGH,     /* nibbles of the flat matrix, the higher one first (bitsandbytes) */
    LLM__CODES_GPTQ,     /* words (cols * bits / 32, rows) */
    LLM__CODES_AWQ,      /* words (cols, rows / 8), see above */
    LLM__CODES_FOURTHS,  /* bytes (rows / 4, cols): two bits of a row of each fourth of the rows, the first fourth's lowest (BitNet) */
    LLM__CODES_BYTES     /* int8 (rows, cols): 128 less than the code; of fp8 the byte itself is the code */
} llm__codes_order;

/* Where zero points stand. */
typedef enum llm__zeros_order {
    LLM__ZEROS_CONST = 0, /* nowhere: all are `zero` */
    LLM__ZEROS_GPTQ,      /* words (groups, rows * bits / 32) */
    LLM__ZEROS_AWQ,       /* words (groups, rows / 8) */
    LLM__ZEROS_ROWS,      /* words (rows, zeros_stride), nibbles in order (AWQ's gemv) */
    LLM__ZEROS_PACKED,    /* words (rows * bits / 32, groups) (compressed-tensors) */
    LLM__ZEROS_NUMBERS    /* of type zeros_type, where scales stand, less than the code's by 128 */
} llm__zeros_order;

typedef struct llm__codes {
    const uint8_t *codes, *scales, *zeros;
    llm__codes_order order;
    llm__zeros_order zeros_order;
    int64_t rows, cols, group; /* group: columns of a scale */
    int64_t stride;            /* CODES_ROWS: bytes of a row */
    int bits, zero, v1;        /* zero: -1 of e4m3, which has none; v1: GPTQ's zero points are stored less one */
    int32_t scale_type, zeros_type;
    int64_t row_group;               /* rows of a scale, else 1 */
    int64_t scale_row, scale_column; /* elements from one row of scales to the next, from one group to the next */
    int64_t zeros_stride;
    const int32_t *g_idx;  /* (cols) the group of each column; NULL: col / group */
    const int32_t *sorted; /* (cols) the column that readers give at each place, so that blocks of 32 have one group; NULL: as they stand */
    const float *table;    /* (16) what codes stand for */
    /* scales that are quantised themselves (bitsandbytes): nested_map[byte] * nested[i / nested_block] + nested_offset. NULL: they are
     * not */
    const uint8_t *nested, *nested_map;
    int64_t nested_block;
    float nested_offset;
    float unit; /* what scales are multiplied with here; the segment's scale is the inverse */
} llm__codes;

/* How a segment of these rows is read: its type, elements of a row, its function, and its scale. */
typedef struct llm__codes_form {
    int32_t type;
    int64_t stored_cols;
    void (*read)(const void *codes, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, void *to);
    float scale;
} llm__codes_form;

/* The scale, and the zero point, of a group of a row, before `unit`. */
LLM__PRIVATE float llm__codes_scale(const llm__codes *c, int64_t row, int64_t group);
LLM__PRIVATE float llm__codes_zero(const llm__codes *c, int64_t row, int64_t group);

/* Groups of a row. */
LLM__PRIVATE int64_t llm__codes_groups(const llm__codes *c);

/* One value: what the formats mean, in plain words. The readers' twin. */
LLM__PRIVATE float llm__codes_value(const llm__codes *c, int64_t row, int64_t col);

/* Chooses the form of a matrix of codes that has no other than these; sets c->unit. Looks at all scales and zero points, unless `quick`:
 * then it says what is likely. *bad: 1 if a scale is not finite. */
LLM__PRIVATE llm__codes_form llm__codes_form_of(llm__codes *c, int quick, int *bad);
