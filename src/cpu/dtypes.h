/* dtypes: what the bytes of stored tensors mean.
 *
 * A stored row is a sequence of blocks of 1, 32 or 256 elements. A block of one element is a number; the small floats among them (f16,
 * bf16, the two fp8) widen exactly to f32. A block of 32 or 256 is quantised: small unsigned integers u share a scale, and perhaps a
 * minimum, by groups of 16 or 32, so that
 *
 *     w = scale * (u - zero) + minimum          or          w = scale * table[u]
 *
 * Formats of 32 ("Q4_0") have f16 scales. Those of 256 ("Q4_K", super-blocks) have small integer scales for their groups and one f16 for
 * all: half a bit a weight is all that scales cost. The formats differ in where bits stand and how scales are packed, nothing else. So a
 * format is a row of a table, and one function, llm__sub_read (>>subs), takes any 32 columns of any format apart into one common form.
 * Everything that reads weights starts from it: rows for the embedding, packing for the kernels, the tests.
 * The formats are ggml's (ggml-common.h); MXFP4 is that of the Open Compute Project (Microscaling Formats 1.0, 2023). */
#pragma once
#include "api/backend.h"
#include "base/platform.h"

/* The bits of a float as an integer. */
LLM__PRIVATE uint32_t llm__f32_bits(float f);

/* f16: sign, 5 bits of exponent (bias 15), 10 of mantissa. Moved into f32's fields the exponent is 112 too small; a subnormal (exponent 0)
 * is its mantissa times 2^-24. */
LLM__PRIVATE float llm__f16_to_f32(uint16_t h);

/* bf16 is the upper half of an f32; fp8 e5m2 the upper half of an f16. */
LLM__PRIVATE float llm__bf16_to_f32(uint16_t h);
LLM__PRIVATE float llm__e5m2_to_f32(uint8_t b);

/* fp8 e4m3fn: no infinities, one NaN of each sign. */
LLM__PRIVATE float llm__e4m3_to_f32(uint8_t b);

LLM__PRIVATE uint16_t llm__f32_to_f16(float f);
LLM__PRIVATE uint8_t llm__f32_to_e4m3(float f);
LLM__PRIVATE uint8_t llm__f32_to_e5m2(float f);

LLM__PRIVATE uint16_t llm__f32_to_bf16(float f);

/* How elements of a type are stored: in blocks of so many elements and bytes. A row is a whole number of blocks, so the length of a row in
 * bytes is n / block * bytes, and no block spans two rows. */
typedef struct llm__type_desc {
    int32_t type; /* llm_type; numbers that it lacks are listed for their names and sizes only */
    const char *name;
    int32_t block, bytes;
} llm__type_desc;

/* NULL for a type never heard of. Types of the table that no kernel reads are refused where the tensor is used. */
LLM__PRIVATE const llm__type_desc *llm__type_info(int32_t type);

/* All of them, from i = 0 on; NULL behind the last. */
LLM__PRIVATE const llm__type_desc *llm__type_at(int i);

LLM__PRIVATE const char *llm__type_name(int32_t type);

LLM__PRIVATE int llm__type_block(int32_t type);

/* Bytes of n elements of a stored row; n is a multiple of the block. */
LLM__PRIVATE int64_t llm__row_bytes(int32_t type, int64_t n);

/* Element i of a stored row of a readable type whose block is one element. */
LLM__PRIVATE float llm__element(int32_t type, const uint8_t *p, int64_t i);

/* A block of LLM_TYPE_RANDOM_Q4 as one of Q4_0. */
LLM__PRIVATE void llm__random_block(uint64_t seed, int64_t row, int64_t col, uint8_t block[18]);

/* How a packed weight keeps them: see >>packed. */
/* clang-format off */
typedef enum llm__kind {
    LLM__KIND_F32 = 0, LLM__KIND_F16, LLM__KIND_BF16, LLM__KIND_F8, /* floats; e4m3 */
    LLM__KIND_Q4Z, LLM__KIND_Q4M, LLM__KIND_Q5Z, LLM__KIND_Q5M, /* 4 and 5 bits with a zero point or a minimum */
    LLM__KIND_Q8, LLM__KIND_IQ4, LLM__KIND_MXFP4,               /* signed bytes; nibbles that index a table of them */
    LLM__KIND_Q2K, LLM__KIND_Q3K, LLM__KIND_Q4K, LLM__KIND_Q5K, LLM__KIND_Q6K, /* with scales by super-block */
    LLM__KIND_G16, LLM__KIND_G16M,                              /* bytes with f32 scales by 16 columns, for what has no layout of its own */
    LLM__KIND_Q4A, LLM__KIND_G32, LLM__KIND_I8,                 /* 4 bits, zero points beside scales; bytes with f32 by 32, or by rows */
    LLM__KIND_NVFP4, LLM__KIND_NF4, LLM__KIND_FP4,              /* nibbles that index tables, with scales by 16, and by 32 */
    LLM__KIND_GRID2, LLM__KIND_GRID2X, LLM__KIND_GRID1, LLM__KIND_GRID1X, LLM__KIND_GRID3, LLM__KIND_GRID3S, /* see >>grids */
    LLM__KIND_TERNARY,                                          /* 2 bits less one */
    LLM__KIND_IQ4X,                                             /* IQ4 with scales by super-block */
    LLM__KIND_COUNT
} llm__kind;
/* clang-format on */

/* In which order the bits of a plane stand. A sub is 32 columns, number j of its block.
 *   HALVES    16 bytes a sub: low nibbles are columns 0..15, high ones 16..31
 *   STRIPES   32 bytes for 8 / bits subs: the first has the lowest bits of each byte
 *   QUARTERS  Q6_K's nibbles: as STRIPES, but 64 bytes for four subs, whose first two have the low nibbles
 *   WORD      one bit a column, in order */
typedef enum llm__order { LLM__PLANE_NONE = 0, LLM__HALVES, LLM__STRIPES, LLM__QUARTERS, LLM__WORD } llm__order;

/* How scales (and minimums) of subs are stored. */
typedef enum llm__packing {
    LLM__SC_ONE = 0, /* not at all: they are 1 */
    LLM__SC_E8,      /* powers of two, by their exponent */
    LLM__SC_ZERO,    /* 1, and the zero point's byte, times -d, for a minimum */
    LLM__SC_F32,     /* 1; d and m are f32 */
    LLM__SC_F32X2,   /* two f32, of 16 columns each, and no d */
    LLM__SC_F16X2,   /* two f16, of 16 columns each, and no d */
    LLM__SC_Q2K,     /* small integers, packed as the format of this name does it */
    LLM__SC_Q3K,
    LLM__SC_Q45K,
    LLM__SC_Q6K,
    LLM__SC_XS
} llm__packing;

/* One quantised format. u = low | high << bits of low. All positions are bytes of the block. */
typedef struct llm__format {
    int32_t type;
    llm__kind kind, rest; /* packed as; when columns are cut inside a super-block */
    int zero;
    llm__order order; /* low plane */
    int bits, at;
    llm__order high_order; /* high plane */
    int high_bits, high_at;
    llm__packing scales;
    int scales_at, d_at, m_at; /* f16 scale and minimum; m_at -1: none */
} llm__format;

/* NULL: not a quantised type that can be read. */
LLM__PRIVATE const llm__format *llm__format_of(int32_t type);

/* What the nibbles of a kind stand for, where they are indexes of a table; else NULL. */
LLM__INLINE const int8_t *llm__kind_table(llm__kind kind) {
    static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    static const int8_t e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}; /* doubled */
    /* bitsandbytes' tables, whose numbers llm__type_values has, times llm__kind_unit and rounded. See llm__kind_low */
    static const int8_t nf4[16] = {-64, -45, -34, -25, -18, -12, -6, 0, 5, 10, 16, 22, 28, 36, 46, 64};
    static const int8_t fp4[16] = {0, 0, 32, 48, 16, 24, 8, 12, 0, 0, -32, -48, -16, -24, -8, -12};
    static const int8_t grid1[16] = {1, 7, 9, 0, -1, -7, -9, 0}, grid2[16] = {8, 25, 43, 0, -8, -25, -43, 0}; /* see >>grids */
    static const int8_t grid3[16] = {8, 24, 40, 56, 72, 88, 104, 124, -8, -24, -40, -56, -72, -88, -104, -124};
    static const int8_t grid3s[16] = {8, 24, 40, 56, 72, 88, 104, 120, -8, -24, -40, -56, -72, -88, -104, -120};
    switch (kind) {
    case LLM__KIND_GRID2:
    case LLM__KIND_GRID2X: return grid2;
    case LLM__KIND_GRID1:
    case LLM__KIND_GRID1X: return grid1;
    case LLM__KIND_GRID3: return grid3;
    case LLM__KIND_GRID3S: return grid3s;
    case LLM__KIND_IQ4:
    case LLM__KIND_IQ4X: return iq4;
    case LLM__KIND_MXFP4:
    case LLM__KIND_NVFP4: return e2m1;
    case LLM__KIND_NF4: return nf4;
    case LLM__KIND_FP4: return fp4;
    default: return NULL;
    }
}

/* What stands for 1 in the tables of numbers that are no integers. Of FP4 in 48ths all but the smallest are. */
LLM__INLINE float llm__kind_unit(llm__kind kind) {
    if (kind >= LLM__KIND_GRID2 && kind <= LLM__KIND_GRID3S) return 8.0f;
    return kind == LLM__KIND_NF4 ? 64.0f : kind == LLM__KIND_FP4 ? 48.0f : 1.0f;
}

/* The bits of 2^(p - 128) as f32, what an exponent p of MXFP4 means where its table is doubled: below 2 a number under f32's normal
 * ones. */
LLM__INLINE uint32_t llm__e8_bits(int32_t p) { return (uint32_t)LLM__MAX((p - 1) * (1 << 23), p ? 1 << 22 : 1 << 21); }

/* 32 columns of one stored row: w[i] = d[i / 16] * q[i] + m * mc[i / 16]. The products with sc and mc are exact in f32. */
typedef struct llm__sub {
    uint8_t u[32];           /* as stored */
    int8_t q[32];            /* as meant: u - zero, or table[u] */
    float d[2], m;           /* d with sc in it */
    uint16_t half_d, half_m; /* the same as stored, m with the sign that it has above; d of powers of two: the exponent */
    uint16_t half_d2[2];     /* SC_F16X2 */
    int8_t sc[2];
    uint8_t mc[2];
} llm__sub;

/* 1 if rows of the type can be read as weights: the quantised ones, floats, and int8, which must have scales. Other integers are none. */
LLM__PRIVATE int llm__type_readable(int32_t type);

/* Columns [from, from + n) of a stored row as f32: the meaning of every format. */
LLM__PRIVATE void llm__dequant_columns(int32_t type, const uint8_t *row, int64_t from, int64_t n, float *dst);

/* What the 16 codes of a type stand for, exactly, in units of its d; NULL: of other types, whose kinds' bytes are exact. */
LLM__PRIVATE const float *llm__type_values(int32_t type);

LLM__PRIVATE int llm__type_block_bytes(int32_t type);

LLM__PRIVATE float llm__bits_f32(uint32_t u);

/* First byte of the stored row that is row r; of a transposed segment, or one that is read, meaningless. */
LLM__PRIVATE const uint8_t *llm__segment_data(const llm_segment *s, int64_t r);

/* What each value is multiplied with: 0 stands for 1. */
LLM__PRIVATE float llm__segment_scale(const llm_segment *s);

enum {
    LLM__SOME_COLUMNS = 256
}; /* that a segment's `read` makes at a time; a block of none of the types that are read has more than 4 bytes
                                     a column */

/* Columns [col, col + n) of a segment's row r as f32, with the row's scale and without the segment's. */
LLM__PRIVATE void llm__segment_values(const llm_segment *s, uint64_t seed, int64_t r, int64_t col, int64_t n, float *dst);

/* The stored row that is row r of a segment, and where it starts (not transposed). */
LLM__PRIVATE int64_t llm__segment_row(const llm_segment *s, int64_t r);
