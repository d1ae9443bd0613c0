/* unpack: packed blocks to bytes and scales, and the walk over the blocks of a product. */
#pragma once
#include "base/platform.h"
#include "cpu/dtypes.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
#include "cpu/bodies.h"
/* clang-format off */

/* What token t of n asks for while a block, or a pair, of so many bytes is multiplied: every n-th of as many lines further on. A core keeps
 * track of some 16 lines that it waits for; asked for all at once, they hold up whatever else it loads. Without this one answer reads the
 * weights at half the speed (Zen 3: 14 of 26 GB/s, with it 24): rows of 16 stand together, so a block is 600 bytes that are gone through in
 * an order of their own, and what a core foresees by itself is streams. How far ahead hardly matters, 2 to 32 KB; some cores read more
 * where lines come to the second cache first, and from there to the first in time (near, see llm__tuning). */
LLM__INLINE void llm__fetch(const uint8_t *w, int ahead, int near, const int bytes, int t, int n) {
    if (near)
        for (int i = 64 * t; i < bytes; i += 64 * n) __builtin_prefetch(w + ahead + i, 0, 2), __builtin_prefetch(w + near + i);
    else
        for (int i = 64 * t; i < bytes; i += 64 * n) __builtin_prefetch(w + ahead + i);
}

/* Eight bytes at any address. */
LLM__INLINE uint64_t llm__word(const uint8_t *p) {
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}

/* Eight bytes' piece p of vector i, from the stored vectors at w. */
LLM__INLINE uint64_t llm__unpack_piece(const int bits, const int i, const int p, const uint8_t *w, int k) {
    const llm__piece piece = llm__piece_of(bits, i, p);
    return llm__word(w + 64 * piece.from + k) >> piece.shift & piece.mask * 0x0101010101010101u;
}

/* The bits of a block to a byte a weight, 64 bits at a time: shifts and masks need not know where bytes end. */
LLM__INLINE void llm__unpack_bits(const int bits, const uint8_t *__restrict__ w, uint64_t flip, uint8_t *__restrict__ to) {
    LLM__UNROLL
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 64; k += 8) {
            uint64_t x;
            if (bits == 8) x = llm__word(w + 64 * i + k) ^ flip;
            else if (i < bits) x = llm__word(w + 64 * i + k) & ((1u << bits) - 1) * 0x0101010101010101u;
            else x = llm__unpack_piece(bits, i, 0, w, k) | llm__unpack_piece(bits, i, 1, w, k) | llm__unpack_piece(bits, i, 2, w, k);
            memcpy(to + 64 * i + k, &x, 8);
        }
}

/* What stands at the head of super-blocks, scales and minimums of each block of a pair, widened once for all of their blocks: that made
 * one answer of Q3_K, which asks for it twice a block, twice as fast. */
typedef struct llm__heads {
    llm__v16 d[2], m[2];
} llm__heads;

LLM__INLINE void llm__unpack_heads(const llm__kind kind, const int pair, const uint8_t *head, llm__heads *to, const llm__half_fn widen) {
    const llm__kind_desc k = llm__kind_info(kind);
    for (int i = 0; i < pair; i++) {
        if (k.scale >= LLM__SCALE_SUPER) to->d[i] = widen((const uint16_t *)(const void *)(head + 32 * i));
        if (llm__kind_unit(kind) != 1) LLM__EACH(r) to->d[i].v[r] *= 1 / llm__kind_unit(kind);
        if (k.min >= LLM__SCALE_SUPER) to->m[i] = widen((const uint16_t *)(const void *)(head + 32 * (pair + i)));
    }
}

/* 16 scales (or minimums) as f32, for the columns 16 * half on. */
LLM__INLINE llm__v16 llm__unpack_scale(llm__scale scale, const uint8_t *at, const llm__v16 *head, const int is_min, int half,
                                       const llm__half_fn widen, const llm__bytes_fn bytes) {
    if (scale == LLM__SCALE_F16) return widen((const uint16_t *)(const void *)at);
    if (scale == LLM__SCALE_BF16) {
        llm__bits16 wide;
        LLM__EACH(i) wide.u[i] = (uint32_t)((const uint16_t *)(const void *)at)[i] << 16;
        return wide.f;
    }
    if (scale == LLM__SCALE_F16X2) return widen((const uint16_t *)(const void *)at + LLM__ROWS * half);
    if (scale == LLM__SCALE_ZERO) return bytes(at, 1);
    if (scale == LLM__SCALE_E8) {
        llm__bits16 power;
        LLM__EACH(i) power.u[i] = llm__e8_bits(at[i]);
        return power.f;
    }
    if (scale == LLM__SCALE_F32 || scale == LLM__SCALE_F32X2)
        return llm__load16((const float *)(const void *)(at + (scale == LLM__SCALE_F32X2 ? 64 * half : 0)), LLM__ROWS);
    if (scale == LLM__SCALE_NONE) return llm__all16(is_min ? 0.0f : 1.0f);
    const uint8_t *b = at + (scale == LLM__SCALE_SUPERX2 ? 16 * half : 0);
    llm__v16 x = bytes(b, is_min);
    LLM__EACH(i) x.v[i] *= head->v[i];
    return x;
}

/* How a product wants weights of signed bytes, and what has a zero point. */
typedef enum llm__offset {
    LLM__SIGNED,   /* as they are; m has the zero point in it, as with the next one */
    LLM__UNSIGNED, /* plus 128, which makes 128 their zero point */
    LLM__APART,    /* so too, but m without zero points: the product takes them out of its sums of integers itself (llm__act.n) */
    LLM__LESS      /* bytes less by their zero points, and m without them */
} llm__offset;

LLM__INLINE int llm__kind_flips(llm__kind kind, llm__offset offset) {
    return (offset == LLM__UNSIGNED || offset == LLM__APART) && llm__kind_signed(kind);
}

LLM__INLINE int llm__kind_zero(llm__kind kind, llm__offset offset) {
    return llm__kind_flips(kind, offset) ? 128 : llm__kind_info(kind).zero;
}

/* One block of a row block, which is number `place` of the `pair` (1 or 2) that stand together from w on; heads: of their super-blocks.
 * table: of kinds that have one: those that differ in nothing else share what is compiled.
 *
 * m is what the sum of q is multiplied with: minimum - zero * scale. Where the two halves of the columns differ, m[1] is the latter's m
 * less the former's, for llm__act.s has the sum over all 32 columns and that over the latter 16:
 *
 *     m_former * (all - latter) + m_latter * latter  =  m_former * all + (m_latter - m_former) * latter */
LLM__INLINE void llm__unpack(const llm__kind kind, const int8_t *table, const llm__offset offset, const int pair, const int place,
                             const uint8_t *w, const llm__heads *heads, llm__cooked *to, const llm__half_fn half, const llm__bytes_fn bytes,
                             const llm__look_up_fn look_up) {
    const llm__kind_desc k = llm__kind_info(kind);
    const uint64_t flip = llm__kind_flips(kind, offset) ? 0x8080808080808080u : 0;
    const float zero = offset >= LLM__APART ? 0 : (float)llm__kind_zero(kind, offset);
    const uint8_t *bits = w + place * 64 * k.bits;
    if (k.bits == 2) llm__unpack_bits(2, bits, 0, to->u);
    else if (k.bits == 3) llm__unpack_bits(3, bits, 0, to->u);
    else if (k.bits == 4) llm__unpack_bits(4, bits, 0, to->u);
    else if (k.bits == 5) llm__unpack_bits(5, bits, 0, to->u);
    else if (k.bits == 6) llm__unpack_bits(6, bits, 0, to->u);
    else llm__unpack_bits(8, bits, flip, to->u);
    if (llm__kind_table(kind)) look_up(table, (uint8_t)flip, to->u);
    for (int i = 0; i < 512 && k.zero && offset == LLM__LESS; i++) to->u[i] = (uint8_t)(to->u[i] - k.zero);
    const uint8_t *scales = w + pair * 64 * k.bits, *mins = scales + pair * llm__scale_bytes(k.scale);
    scales += place * llm__scale_bytes(k.scale);
    mins += place * llm__scale_bytes(k.min);
    LLM__UNROLL
    for (int h = 0; h <= llm__kind_x2(kind); h++) {
        const llm__v16 d = llm__unpack_scale(k.scale, scales, &heads->d[place], 0, h, half, bytes);
        llm__v16 m = llm__unpack_scale(k.min, mins, &heads->m[place], 1, h, half, bytes);
        if (k.min == LLM__SCALE_ZERO) LLM__EACH(i) m.v[i] *= -d.v[i];
        if (zero != 0) LLM__EACH(i) m.v[i] -= zero * d.v[i];
        if (h) LLM__EACH(i) m.v[i] -= to->m[0][i];
        llm__store16(to->d[h], LLM__ROWS, d);
        llm__store16(to->m[h], LLM__ROWS, m);
    }
}

/* The first n blocks of a super-block, or pairs, to `to` (n, 2). */
LLM__INLINE void llm__cook(const llm__kind kind, const int8_t *table, llm__offset offset, int pair, int ahead, const uint8_t *w,
                           int n, llm__cooked (*to)[2], const llm__half_fn half, const llm__bytes_fn bytes, const llm__look_up_fn look_up) {
    llm__heads heads = LLM__ZERO;
    llm__unpack_heads(kind, pair, w, &heads, half);
    w += pair * llm__kind_head(kind);
    for (int b = 0; b < n; b++, w += pair * llm__kind_block(kind)) {
        llm__fetch(w, ahead, 0, pair * llm__kind_block(kind), 0, 1);
        for (int place = 0; place < pair; place++)
            llm__unpack(kind, table, offset, pair, place, w, &heads, &to[b][place], half, bytes, look_up);
    }
}

/* One call a format, all that depends on it constant: the format would else be asked for in the innermost loop. The common ones are what
 * files of models mostly have. Those that differ in nothing but their tables share one, and so do the rarest, which do ask. */
#define LLM__COMMON_KINDS(call, ...) \
    case LLM__KIND_Q4Z: call(LLM__KIND_Q4Z, __VA_ARGS__); break; \
    case LLM__KIND_Q4M: call(LLM__KIND_Q4M, __VA_ARGS__); break; \
    case LLM__KIND_Q8: call(LLM__KIND_Q8, __VA_ARGS__); break; \
    case LLM__KIND_Q2K: call(LLM__KIND_Q2K, __VA_ARGS__); break; \
    case LLM__KIND_Q3K: call(LLM__KIND_Q3K, __VA_ARGS__); break; \
    case LLM__KIND_Q4K: call(LLM__KIND_Q4K, __VA_ARGS__); break; \
    case LLM__KIND_Q5K: call(LLM__KIND_Q5K, __VA_ARGS__); break; \
    case LLM__KIND_Q6K: call(LLM__KIND_Q6K, __VA_ARGS__); break; \
    case LLM__KIND_Q4A: call(LLM__KIND_Q4A, __VA_ARGS__); break; \
    case LLM__KIND_I8: call(LLM__KIND_I8, __VA_ARGS__); break; \
    case LLM__KIND_FP4: \
    case LLM__KIND_NF4: call(LLM__KIND_NF4, __VA_ARGS__); break; \
    case LLM__KIND_GRID1: \
    case LLM__KIND_GRID2: call(LLM__KIND_GRID2, __VA_ARGS__); break; \
    case LLM__KIND_GRID1X: \
    case LLM__KIND_GRID2X: call(LLM__KIND_GRID2X, __VA_ARGS__); break; \
    case LLM__KIND_GRID3S: \
    case LLM__KIND_GRID3: call(LLM__KIND_GRID3, __VA_ARGS__); break; \
    case LLM__KIND_TERNARY: call(LLM__KIND_TERNARY, __VA_ARGS__); break; \
    case LLM__KIND_IQ4X: call(LLM__KIND_IQ4X, __VA_ARGS__); break; \
    case LLM__KIND_IQ4: call(LLM__KIND_IQ4, __VA_ARGS__); break; \
    case LLM__KIND_MXFP4: call(LLM__KIND_MXFP4, __VA_ARGS__); break;
#define LLM__EACH_KIND(kind, call, ...) \
    switch (kind) { \
        LLM__COMMON_KINDS(call, __VA_ARGS__) \
    case LLM__KIND_Q5Z: call(LLM__KIND_Q5Z, __VA_ARGS__); break; \
    case LLM__KIND_Q5M: call(LLM__KIND_Q5M, __VA_ARGS__); break; \
    case LLM__KIND_G16: call(LLM__KIND_G16, __VA_ARGS__); break; \
    case LLM__KIND_G16M: call(LLM__KIND_G16M, __VA_ARGS__); break; \
    default: call(kind, __VA_ARGS__); \
    }

/* ---- The walk over the blocks ---- */

/* How many vectors of products add up in 16 bits: 0 stands for signed bytes. */
LLM__INLINE int llm__kind_run(llm__kind kind) { return llm__kind_signed(kind) ? 0 : 8 >> LLM__MAX(llm__kind_info(kind).bits - 4, 0); }

/* Multiplies an unpacked block (or two) of a kind with the tile's roundings from index `at` on, and adds to p->out. */
typedef void (*llm__block_fn)(const llm__kind kind, const llm__cooked *w, const llm__product *p, size_t at);

/* Walks over the blocks, front to back: unpack, then out += what the block gives. A head, where the format has one, stands in front of
 * every eighth block and holds for these eight. Kernels that take one block at a time walk twice over a pair; the second time it is in the
 * cache. */
LLM__INLINE void llm__walk(const llm__kind kind, const int8_t *table, const int take, const llm__offset offset, const llm__block_fn block,
                           const llm__product *whole, const llm__half_fn half, const llm__bytes_fn bytes, const llm__look_up_fn look_up) {
    const int pair = take == 2 ? 2 : whole->pair;
    llm__product p = *whole; /* its pointers in registers */
    llm__cooked cooked[2][2]; /* of tiles, which come back to the block before, in turn */
    for (int place = 0; place < pair; place += take, p.out += LLM__OUT) {
        const uint8_t *w = p.w;
        llm__heads heads = LLM__ZERO;
        size_t at = p.at;
        for (int i = 0; i < take; i++) memset(p.out + i * LLM__OUT, 0, sizeof(float) * LLM__ROWS * (size_t)p.n);
        for (int64_t b = 0; b < p.n_blocks; b++, w += pair * llm__kind_block(kind), at += (size_t)p.n) {
            llm__cooked *const to = cooked[offset == LLM__LESS && b & 1];
            if (llm__kind_head(kind) && b % LLM__SUPER == 0) {
                llm__unpack_heads(kind, pair, w, &heads, half);
                w += pair * llm__kind_head(kind);
            }
            p.fetch = w;
            LLM__UNROLL
            for (int i = 0; i < take; i++) llm__unpack(kind, table, offset, pair, place + i, w, &heads, &to[i], half, bytes, look_up);
            block(kind, to, &p, at);
        }
    }
}

/* The same where registers are too few to keep a block between the two: then super-blocks are unpacked as a whole, and only that is
 * compiled for each format. cook: llm__cook of a kind that is known. multiply: n blocks, or pairs, (n, 2) with the tile's roundings from
 * `at` on. */
typedef void (*llm__cook_fn)(llm__kind kind, llm__offset offset, int pair, int ahead, const uint8_t *w, int n, llm__cooked (*to)[2]);
typedef void (*llm__multiply_fn)(llm__kind kind, const llm__cooked (*w)[2], int n, const llm__product *p, size_t at);

LLM__INLINE void llm__walk_cooked(llm__kind kind, llm__offset offset, const llm__cook_fn cook, const llm__multiply_fn multiply,
                                  const llm__product *p) {
    llm__cooked cooked[LLM__SUPER][2];
    const uint8_t *w = p->w;
    size_t at = p->at;
    for (int i = 0; i < p->pair; i++) memset(p->out + i * LLM__OUT, 0, sizeof(float) * LLM__ROWS * (size_t)p->n);
    for (int64_t left = p->n_blocks; left > 0; left -= LLM__SUPER) {
        const int n = (int)LLM__MIN(left, (int64_t)LLM__SUPER);
        cook(kind, offset, p->pair, p->ahead, w, n, cooked);
        multiply(kind, (const llm__cooked (*)[2])cooked, n, p, at);
        w += p->pair * (llm__kind_head(kind) + n * llm__kind_block(kind));
        at += (size_t)n * (size_t)p->n;
    }
}

/* Sums of a chain: room for a vector of any instruction set. */
typedef struct llm__chain {
    int32_t v[16];
} llm__chain;

/* A table's `peak`, of an instruction set with vectors of so many bytes: 12 chains of sums, to each of which link(sum, a, b) adds products,
 * hide the latency. The sums may wrap. Unrolled, all of them stay in registers. */
LLM__INLINE double llm__peak_of(int64_t turns, const int bytes,
                                void (*const link)(llm__chain *sum, const llm__chain *a, const llm__chain *b)) {
    const double begin = llm__now(), all = (double)(12 * turns * bytes);
    llm__chain s[12];
    uint64_t sum = 0;
    LLM__UNROLL
    for (int i = 0; i < 12; i++) LLM__EACH(k) s[i].v[k] = (int32_t)turns + i;
    const llm__chain a = s[0], b = s[1];
    for (; turns > 0; turns--)
        LLM__UNROLL
        for (int i = 0; i < 12; i++) link(&s[i], &a, &b);
    for (int i = 0; i < 12; i++) sum += llm__word((const uint8_t *)&s[i]);
    return sum ? 2e-9 * all / (llm__now() - begin) : 0;
}
