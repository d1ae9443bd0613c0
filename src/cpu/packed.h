/* packed: rounded activations and packed weights: what kernels work on.
 *
 * A buffer is a matrix of f32. Linear layers over quantised weights read a copy of it rounded to int8: for each 32 columns a scale d,
 * x ~ d * q. Its tokens are grouped into tiles of up to 32; inside a tile of n, block b of token t stands at index
 * start * n_blocks + b * n + t, so a kernel reads memory in order: 33 tokens of 64 columns make two tiles and stand as
 *
 *     index    0 ... 15   block 0 of tokens 0..15        32 ... 48   block 0 of tokens 16..32
 *             16 ... 31   block 1 of tokens 0..15        49 ... 65   block 1 of tokens 16..32
 *
 * The output layer's inputs are rounded more finely. Where bytes are multiplied best, every token takes two places of a tile: the second
 * one holds what the first one's rounding lost, and their two products are added. Where there are kernels for it, and weights are signed
 * bytes, it takes one place of 16-bit numbers, 64 bytes, of each four columns the first, third, second and fourth.
 *
 * vdpbf16ps multiplies bf16 twice as fast as fused multiply-adds do f32. Where a CPU has it, layers over bf16 weights read a copy rounded
 * to bf16: rows as they are, without tiles. The output layer's inputs stay f32, for the same reason as above. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/dtypes.h"

/* What the kernels of a weight read of its inputs. */
typedef enum llm__form {
    LLM__FORM_F32 = 0, /* the rows themselves; of a buffer: it has no rounded copy */
    LLM__FORM_I8,      /* a copy in bytes */
    LLM__FORM_I8X2,    /* in bytes twice: the second ones are what the first have lost */
    LLM__FORM_LOW,     /* in bytes whose sums are bounded: see llm__kind_low */
    LLM__FORM_LOWX2,   /* twice of these */
    LLM__FORM_I16,     /* in 16 bits: instead of bytes twice, see llm__weight_form */
    LLM__FORM_BF16     /* a copy in bf16 */
} llm__form;

typedef struct llm__act {
    int8_t *q;  /* (blocks, 32), of 16 bits (blocks, 64) bytes; of bf16 (rows, blocks of a row, 32) of two bytes: into the others' room */
    float *d;   /* (blocks) */
    float *s;   /* (blocks, 2) d * sum of q, of all 32 and of the latter 16: what minimums are multiplied with */
    int32_t *n; /* (blocks, 2) the same sums of q, times -1: what zero points are multiplied with. AVX2: as two sums of 16 bits */
} llm__act;

struct llm_buffer {
    float *data; /* (rows, cols) */
    int64_t rows, cols, stride;
    int rank;
    struct llm__act *act; /* its rounded copy: room for any form of it */
    int form;             /* of the copy; whether it is current is the backend's knowledge */
};

enum {
    LLM__TILE = 32,
    LLM__FLOAT_TILE = 24,
    LLM__ROWS = 16,
    LLM__WIDE = 32,
    LLM__SUPER = 8,
    LLM__OUT = LLM__ROWS * LLM__TILE,
    LLM__F8_COLS = 128,
    LLM__F8_BYTES = 64 + LLM__F8_COLS * LLM__ROWS
}; /* tokens of a tile, of floats; rows of a block; columns of a panel (>>latent); blocks that are unpacked at a time: a super-block; sums
      of a block and a tile; columns of e4m3 that share scales, bytes of them: (16) f32 scales, then columns two by two as of bf16. A
      byte is read as the f16 with its bits of exponent and mantissa, which is 2^-8 of it; scales have that in them */

/* Carves the parts of a rounded copy of `blocks` blocks out of memory; returns the bytes it takes (memory NULL: only that). */
LLM__PRIVATE size_t llm__act_place(llm__act *a, uint8_t *memory, size_t blocks);

/* How scales stand in a block, 16 of them. X2: two, for 16 columns each. SUPER: a byte, times an f16 for 256 columns at the head. NONE:
 * they are 1, minimums 0. ZERO, of minimums: a byte, times -1 and the scale. E8: a power of two, by its exponent (see llm__e8_bits). */
typedef enum llm__scale {
    LLM__SCALE_NONE = 0,
    LLM__SCALE_F16,
    LLM__SCALE_F16X2,
    LLM__SCALE_F32,
    LLM__SCALE_F32X2,
    LLM__SCALE_BF16,
    LLM__SCALE_ZERO,
    LLM__SCALE_E8,
    LLM__SCALE_SUPER,
    LLM__SCALE_SUPERX2
} llm__scale;

typedef struct llm__kind_desc {
    int bits; /* as stored; 8 bits and what tables give are signed, the rest is not */
    int zero; /* what is subtracted from the stored value */
    llm__scale scale, min;
} llm__kind_desc;

/* What the bytes of a kind mean, in the order of llm__kind. What the kernels ask about formats they ask here; where the kind is a constant,
 * as in the instances of LLM__EACH_KIND, the compiler has the answers and no branch is left. */
LLM__INLINE llm__kind_desc llm__kind_info(llm__kind kind) {
    /* clang-format off */
    static const llm__kind_desc table[LLM__KIND_COUNT] = {
        {32, 0, LLM__SCALE_NONE, LLM__SCALE_NONE},    /* F32 */
        {16, 0, LLM__SCALE_NONE, LLM__SCALE_NONE},    /* F16 */
        {16, 0, LLM__SCALE_NONE, LLM__SCALE_NONE},    /* BF16 */
        {8, 0, LLM__SCALE_NONE, LLM__SCALE_NONE},     /* F8: see LLM__F8_COLS */
        {4, 8, LLM__SCALE_F16, LLM__SCALE_NONE},      /* Q4Z */
        {4, 0, LLM__SCALE_F16, LLM__SCALE_F16},       /* Q4M */
        {5, 16, LLM__SCALE_F16, LLM__SCALE_NONE},     /* Q5Z */
        {5, 0, LLM__SCALE_F16, LLM__SCALE_F16},       /* Q5M */
        {8, 0, LLM__SCALE_F16, LLM__SCALE_NONE},      /* Q8 */
        {4, 0, LLM__SCALE_F16, LLM__SCALE_NONE},      /* IQ4 */
        {4, 0, LLM__SCALE_E8, LLM__SCALE_NONE},       /* MXFP4 */
        {2, 0, LLM__SCALE_SUPERX2, LLM__SCALE_SUPERX2}, /* Q2K */
        {3, 4, LLM__SCALE_SUPERX2, LLM__SCALE_NONE},  /* Q3K */
        {4, 0, LLM__SCALE_SUPER, LLM__SCALE_SUPER},   /* Q4K */
        {5, 0, LLM__SCALE_SUPER, LLM__SCALE_SUPER},   /* Q5K */
        {6, 32, LLM__SCALE_SUPERX2, LLM__SCALE_NONE}, /* Q6K */
        {8, 0, LLM__SCALE_F32X2, LLM__SCALE_NONE},    /* G16 */
        {8, 0, LLM__SCALE_F32X2, LLM__SCALE_F32X2},   /* G16M */
        {4, 0, LLM__SCALE_F16, LLM__SCALE_ZERO},      /* Q4A */
        {8, 0, LLM__SCALE_F32, LLM__SCALE_F32},       /* G32 */
        {8, 0, LLM__SCALE_NONE, LLM__SCALE_NONE},     /* I8 */
        {4, 0, LLM__SCALE_F16X2, LLM__SCALE_NONE},    /* NVFP4 */
        {4, 0, LLM__SCALE_BF16, LLM__SCALE_NONE},     /* NF4 */
        {4, 0, LLM__SCALE_BF16, LLM__SCALE_NONE},     /* FP4 */
        {3, 0, LLM__SCALE_SUPER, LLM__SCALE_NONE},    /* GRID2 */
        {3, 0, LLM__SCALE_SUPERX2, LLM__SCALE_NONE},  /* GRID2X */
        {3, 0, LLM__SCALE_SUPER, LLM__SCALE_NONE},    /* GRID1 */
        {3, 0, LLM__SCALE_SUPERX2, LLM__SCALE_NONE},  /* GRID1X */
        {4, 0, LLM__SCALE_SUPER, LLM__SCALE_NONE},    /* GRID3 */
        {4, 0, LLM__SCALE_SUPER, LLM__SCALE_NONE},    /* GRID3S */
        {2, 1, LLM__SCALE_SUPER, LLM__SCALE_NONE},    /* TERNARY */
        {4, 0, LLM__SCALE_SUPER, LLM__SCALE_NONE},    /* IQ4X */
    };
    /* clang-format on */
    return table[kind];
}

/* Weights of 2 to 6 bits: the first `bits` of a block's eight vectors stand in the low bits of as many stored ones, the others in pieces in
 * the bits above. Piece p of vector i >= bits: its bits `mask`, which stand `shift` higher in the stored vector `from`. Mask 0: no piece.
 * From the top of each byte down,
 *
 *     of 6 bits   stored 0, 1, 2   vector 6, bits 0..1, 2..3, 4..5; then six bits of vector 0, 1, 2
 *                 stored 3, 4, 5   vector 7, likewise; then vector 3, 4, 5
 *     of 3 bits   stored 0, 1      vector 6, 7, bits 0..1; then vector 3, 4; then 0, 1
 *                 stored 2         bit 2 of vector 7, of 6; then vector 5; then 2
 *     of 2 bits   stored 0, 1      vector 6, 7; then 4, 5; then 2, 3; then 0, 1
 *
 * A vector that is not stored costs two or three instructions for 64 weights. One answer waits for memory, not for them: with 2 bits
 * instead of 4 it is a quarter faster, though everything but the first two vectors comes from pieces (RESULTS.md). */
typedef struct llm__piece {
    uint8_t from, shift, mask;
} llm__piece;

LLM__INLINE llm__piece llm__piece_of(int bits, int i, int p) {
    static const llm__piece table[5][6][3] = {
        {{{0, 2, 3}}, {{1, 2, 3}}, {{0, 4, 3}}, {{1, 4, 3}}, {{0, 6, 3}}, {{1, 6, 3}}},
        {{{0, 3, 7}}, {{1, 3, 7}}, {{2, 3, 7}}, {{0, 6, 3}, {2, 4, 4}}, {{1, 6, 3}, {2, 5, 4}}},
        {{{0, 4, 15}}, {{1, 4, 15}}, {{2, 4, 15}}, {{3, 4, 15}}},
        {{{0, 5, 7}, {1, 3, 24}}, {{2, 5, 7}, {3, 3, 24}}, {{4, 5, 7}, {1, 2, 8}, {3, 1, 16}}},
        {{{0, 6, 3}, {1, 4, 12}, {2, 2, 48}}, {{3, 6, 3}, {4, 4, 12}, {5, 2, 48}}},
    };
    return table[LLM__MIN(bits, 6) - 2][LLM__MAX(i - bits, 0)][p]; /* bounded: compilers look at what is never reached, too */
}

/* Kinds that differ in their tables alone share code: whose. */
LLM__INLINE llm__kind llm__kind_like(llm__kind kind) {
    if (kind == LLM__KIND_FP4) return LLM__KIND_NF4;
    if (kind == LLM__KIND_GRID1) return LLM__KIND_GRID2;
    if (kind == LLM__KIND_GRID1X) return LLM__KIND_GRID2X;
    return kind == LLM__KIND_GRID3S ? LLM__KIND_GRID3 : kind;
}

/* Packed as floats: read by mac, without a rounded copy of the activations. The rest is read by product. */
LLM__INLINE int llm__kind_is_float(llm__kind kind) { return kind <= LLM__KIND_F8; }

/* Bytes signed as stored, and two scales in 32 columns. */
LLM__INLINE int llm__kind_signed(llm__kind kind) { return llm__kind_info(kind).bits == 8 || llm__kind_table(kind); }
LLM__INLINE int llm__scale_x2(llm__scale s) { return s == LLM__SCALE_F16X2 || s == LLM__SCALE_F32X2 || s == LLM__SCALE_SUPERX2; }
LLM__INLINE int llm__kind_x2(llm__kind kind) { return llm__scale_x2(llm__kind_info(kind).scale); }

/* Signed bytes with one scale, which needs no super-block's, and no minimum: what products with inputs of 16 bits are for. MXFP4's are made
 * numbers of 5 bits. */
LLM__INLINE int llm__kind_fine(llm__kind kind) {
    const llm__kind_desc k = llm__kind_info(kind);
    return llm__kind_signed(kind) && !llm__kind_x2(kind) && k.scale < LLM__SCALE_SUPER && k.min == LLM__SCALE_NONE &&
           kind != LLM__KIND_MXFP4;
}

/* Bytes of 64 at most, in tables: 16 products of them with inputs whose absolute values add up to 511 fit 16 bits, so where there are no
 * better instructions inputs are rounded to that (quantise_low), and as many products are added in 16 bits as of weights of 4 bits. An
 * input block's largest is then mostly 80 to 127, for 16 of usual inputs have a sum of 500 to 800 where it is 127. What both
 * cost is a fifth more than what int8 costs anyway (tests/bench/RESULTS.md). Scales are kept to 8 bits: they are off by a thousandth on
 * average, values of the tables by a hundredth. */
LLM__INLINE int llm__kind_low(llm__kind kind) { return kind == LLM__KIND_NF4 || kind == LLM__KIND_FP4; }

/* Bytes of the scales of a block, and of those in front of every eighth block. */
LLM__INLINE int llm__scale_bytes(llm__scale s) {
    static const uint8_t bytes[] = {0, 32, 64, 64, 128, 32, 16, 16, 16, 32};
    return bytes[s];
}

LLM__INLINE int llm__kind_head(llm__kind kind) {
    return 32 * ((llm__kind_info(kind).scale >= LLM__SCALE_SUPER) + (llm__kind_info(kind).min >= LLM__SCALE_SUPER));
}

/* Bytes of a block of 16 x 32 weights, its super-block's head not counted. */
LLM__INLINE int llm__kind_block(llm__kind kind) {
    return 64 * llm__kind_info(kind).bits + llm__scale_bytes(llm__kind_info(kind).scale) + llm__scale_bytes(llm__kind_info(kind).min);
}

/* Bytes of 16 packed rows, or of a pair of such blocks, up to the next cache line. There is room for 16 rows even if there are fewer. */
LLM__PRIVATE int64_t llm__kind_row_bytes(llm__kind kind, int64_t cols, int pair);

/* A block as the products want it: a byte a weight, in the order drawn above, and every scale an f32. */
typedef struct llm__cooked {
    uint8_t u[8 * 64];
    float d[2][LLM__ROWS],
        m[2][LLM__ROWS]; /* [0]: of all 32 columns; of two scales, [1]: of the latter 16, m[1] as what is added to m[0] there */
} __attribute__((aligned(64))) llm__cooked;
