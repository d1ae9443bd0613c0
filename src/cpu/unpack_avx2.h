/* unpack_avx2: packed blocks in vectors of 32 bytes, their scales and sums, as bytes_avx2 and fine_avx2 need them. */
#pragma once
#include "cpu/intrinsics.h"
#include "cpu/dtypes.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
#include "cpu/unpack.h"

#if LLM__X86

#define LLM__AVX2 __attribute__((target("avx2,fma,f16c,tune=skylake-avx512")))
#define LLM__AVX2_INLINE LLM__FORCE LLM__AVX2

LLM__AVX2_INLINE __m256i llm__avx2_four(const int8_t *q) { /* 4 inputs in every lane */
    int32_t four;
    memcpy(&four, q, 4);
    return _mm256_set1_epi32(four);
}

/* ---- Weights and scales ---- */

/* What a kind asks of a product; constants where the kind is one. */
typedef struct llm__avx2_form {
    int bits;            /* of a weight, where it is read; 8: unpacked */
    int wide;            /* signed bytes: pair sums are widened at once; 2: their signs stand apart, see llm__avx2_cook_signs */
    int zero;            /* what sums of integers take from every weight */
    int x2, super, min;  /* two scales; small integers as scales; minimums */
    float unit;          /* llm__kind_unit, of super-blocks */
    const int8_t *table; /* nibbles are looked up in it */
} llm__avx2_form;

/* Of packed weights; `bits` 8 and no table: of unpacked ones. MXFP4's values, 12 added, are numbers of 5 bits, NF4's and FP4's, 64 added,
 * of 8 bits that no pair of products is too large for. */
LLM__AVX2_INLINE llm__avx2_form llm__avx2_form_of(const llm__kind kind) {
    const llm__kind_desc k = llm__kind_info(kind);
    llm__avx2_form f;
    f.bits = k.bits;
    f.table = llm__kind_table(kind);
    f.wide = llm__kind_signed(kind) && kind != LLM__KIND_MXFP4 && !llm__kind_low(kind);
    f.zero = kind == LLM__KIND_MXFP4 ? 12 : llm__kind_low(kind) ? 64 : k.bits == 5 ? 16 : k.zero;
    f.x2 = llm__kind_x2(kind);
    f.super = k.scale >= LLM__SCALE_SUPER;
    f.min = k.min != LLM__SCALE_NONE;
    f.unit = f.super ? llm__kind_unit(kind) : 1;
    return f;
}

/* Blocks of Q4A stand 304 bytes apart: at multiples of 16. */
LLM__AVX2_INLINE __m256i llm__avx2_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
LLM__AVX2_INLINE __m256 llm__avx2_widen_bf16(const uint8_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16));
}
LLM__AVX2_INLINE __m256 llm__avx2_widen_e8(const uint8_t *p) { /* llm__e8_bits */
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)), one = _mm256_set1_epi32(1);
    const __m256i least = _mm256_sllv_epi32(one, _mm256_add_epi32(_mm256_min_epi32(e, one), _mm256_set1_epi32(21)));
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_slli_epi32(_mm256_sub_epi32(e, one), 23), least));
}
LLM__AVX2_INLINE __m256 llm__avx2_widen(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)); }

LLM__AVX2_INLINE __m256i llm__avx2_piece(const int bits, const int i, const int p, const uint8_t *w) {
    const llm__piece piece = llm__piece_of(bits, i, p);
    return _mm256_and_si256(_mm256_srli_epi16(llm__avx2_load(w + 64 * piece.from), piece.shift), _mm256_set1_epi8((char)piece.mask));
}

/* Half of vector i of a block, w: that half of its first. */
LLM__AVX2_INLINE __m256i llm__avx2_vector(const llm__avx2_form f, const int i, const uint8_t *w) {
    __m256i x;
    if (f.bits == 8) return llm__avx2_load(w + 64 * i);
    if (i < f.bits) x = _mm256_and_si256(llm__avx2_load(w + 64 * i), _mm256_set1_epi8((char)((1 << f.bits) - 1)));
    else {
        x = llm__avx2_piece(f.bits, i, 0, w);
        if (llm__piece_of(f.bits, i, 1).mask) x = _mm256_or_si256(x, llm__avx2_piece(f.bits, i, 1, w));
        if (llm__piece_of(f.bits, i, 2).mask) x = _mm256_or_si256(x, llm__avx2_piece(f.bits, i, 2, w));
    }
    if (!f.table) return x;
    __m256i values = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)f.table));
    if (!f.wide) values = _mm256_add_epi8(values, _mm256_set1_epi8((char)f.zero));
    return _mm256_shuffle_epi8(values, x);
}

/* Scales and minimums of a block, as products want them: [part][row]. m of two parts is as in llm__cooked; that of super-blocks comes
 * without their f16, and m[1] there is zero * scale, for what the sums have lost. */
typedef struct llm__avx2_scales {
    union {
        float d[2][LLM__ROWS];
        int16_t small[2][2 * LLM__ROWS]; /* of super-blocks: each twice */
    } of;
    union {
        float m[2][LLM__ROWS];
        int32_t lost[LLM__ROWS]; /* of signed bytes whose signs stand apart */
    };
} __attribute__((aligned(64))) llm__avx2_scales;

/* 8 bytes from p + 8 h on, each in two lanes of 16 bits. */
LLM__AVX2_INLINE __m256i llm__avx2_pairs(const uint8_t *p, const int h, const int is_signed) {
    const __m256i lanes =
        _mm256_setr_epi8(-1, 0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3, -1, 4, -1, 4, -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7);
    const __m256i x = _mm256_shuffle_epi8(_mm256_set1_epi64x((int64_t)llm__word(p + 8 * h)), lanes);
    return is_signed ? _mm256_srai_epi16(x, 8) : _mm256_srli_epi16(x, 8);
}

LLM__AVX2_INLINE __m256 llm__avx2_bytes8(const uint8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

/* Of the 8 rows of half h, in a part. */
LLM__AVX2_INLINE void llm__avx2_unpack_scale(const llm__kind kind, const int part, const int h, const uint8_t *scales, const uint8_t *mins,
                                             llm__avx2_scales *to) {
    const llm__kind_desc k = llm__kind_info(kind);
    const llm__avx2_form f = llm__avx2_form_of(kind);
    const __m256 zero = _mm256_set1_ps((float)f.zero);
    if (f.super) {
        _mm256_store_si256((__m256i *)(void *)&to->of.small[part][16 * h], llm__avx2_pairs(scales + 16 * part, h, !f.min));
        if (f.min) _mm256_store_ps(&to->m[part][8 * h], llm__avx2_bytes8(mins + 16 * part + 8 * h));
        if (f.min && f.zero) _mm256_store_ps(&to->m[1][8 * h], _mm256_mul_ps(llm__avx2_bytes8(scales + 8 * h), zero));
        return;
    }
    const __m256 d = k.scale == LLM__SCALE_NONE    ? _mm256_set1_ps(1)
                     : k.scale == LLM__SCALE_BF16  ? llm__avx2_widen_bf16(scales + 16 * h)
                     : k.scale == LLM__SCALE_E8    ? llm__avx2_widen_e8(scales + 8 * h)
                     : k.scale <= LLM__SCALE_F16X2 ? llm__avx2_widen(scales + 32 * part + 16 * h)
                                                   : _mm256_loadu_ps((const float *)(const void *)(scales + 64 * part) + 8 * h);
    _mm256_store_ps(&to->of.d[part][8 * h], d);
    if (!f.min) return;
    __m256 m = k.min == LLM__SCALE_F16    ? llm__avx2_widen(mins + 16 * h)
               : k.min == LLM__SCALE_ZERO ? _mm256_mul_ps(llm__avx2_bytes8(mins + 8 * h), _mm256_sub_ps(_mm256_setzero_ps(), d))
                                          : _mm256_loadu_ps((const float *)(const void *)(mins + 64 * part) + 8 * h);
    if (f.zero) m = _mm256_fmadd_ps(d, zero, m);
    if (part) m = _mm256_sub_ps(m, _mm256_load_ps(&to->m[0][8 * h]));
    _mm256_store_ps(&to->m[part][8 * h], m);
}

/* Of the block at w, which is number `place` of a pair. */
LLM__AVX2_INLINE void llm__avx2_unpack_scales(const llm__kind kind, int pair, int place, const uint8_t *w, llm__avx2_scales *to) {
    const llm__kind_desc k = llm__kind_info(kind);
    const int scale_bytes = llm__scale_bytes(k.scale), min_bytes = llm__scale_bytes(k.min);
    const uint8_t *scales = w + pair * 64 * k.bits + place * scale_bytes,
                  *mins = w + pair * (64 * k.bits + scale_bytes) + place * min_bytes;
    LLM__UNROLL
    for (int part = 0; part <= llm__kind_x2(kind); part++) LLM__UNROLL
    for (int h = 0; h < 2; h++) llm__avx2_unpack_scale(kind, part, h, scales, mins, to);
}

/* ---- Sums ---- */

/* n tokens and `halves` of 8 rows are constants: 2 halves of one block, or 4 of the two of a pair. A sum stays in its register, and
 * additions in their order: compilers would make trees of them that do not fit. */
#define LLM__AVX2_KEEP(x) __asm__("" : "+x"(x))

/* One product: acc += its sum times its scales. s: the scales, m: the minimums of its 8 rows. */
LLM__AVX2_INLINE __m256 llm__avx2_scaled(const llm__avx2_form f, const float *s, const float *m, float d, float inputs, __m256i sum,
                                         __m256 acc) {
    if (f.super) acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_set1_ps(d), acc);
    if (f.min && (f.zero || !f.super)) acc = _mm256_fmadd_ps(_mm256_load_ps(m), _mm256_set1_ps(inputs), acc);
    if (!f.super) acc = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_load_ps(s), _mm256_set1_ps(d)), _mm256_cvtepi32_ps(sum), acc);
    return acc;
}

LLM__AVX2_INLINE void llm__avx2_clear(const int n, const int halves, __m256 (*acc)[4]) {
    LLM__UNROLL
    for (int t = 0; t < n; t++) LLM__UNROLL
    for (int h = 0; h < halves; h++) acc[t][h] = _mm256_setzero_ps();
}

/* acc to memory (n, 16), of two blocks LLM__OUT apart; or back. */
LLM__AVX2_INLINE void llm__avx2_move(const int n, const int halves, __m256 (*acc)[4], float *out, const int store) {
    LLM__UNROLL
    for (int t = 0; t < n; t++) LLM__UNROLL
    for (int h = 0; h < halves; h++) {
        float *at = out + h / 2 * LLM__OUT + LLM__ROWS * t + 8 * (h % 2);
        if (store) _mm256_storeu_ps(at, acc[t][h]);
        else acc[t][h] = _mm256_loadu_ps(at);
    }
}

/* ---- What is read next ---- */

/* It is asked for evenly while this is multiplied: a core keeps track of some 16 lines that it waits for, and asked for all
 * at once they hold up whatever else it loads. */
typedef struct llm__avx2_fetch {
    const uint8_t *at;
    int step, lines; /* bytes for each block of each group; lines that they touch, the first at `at` */
} llm__avx2_fetch;

LLM__AVX2_INLINE void llm__avx2_fetch_more(llm__avx2_fetch *f) {
    const uint8_t *at = f->at;
    f->at += f->step;
    for (int i = f->lines; i > 0; i--, at += 64) __builtin_prefetch(at);
}

/* For `blocks` blocks, or pairs, of a super-block at w, which groups of four tokens are multiplied with. */
LLM__AVX2_INLINE void llm__avx2_fetch_begin(llm__avx2_fetch *f, const llm__kind kind, const uint8_t *w, int blocks, const llm__product *p) {
    const int bytes = p->pair * (llm__kind_head(kind) + blocks * llm__kind_block(kind));
    f->step = bytes / (p->pair * blocks * ((p->n + 3) / 4)) + 1;
    f->lines = (f->step + 63) / 64;
    f->at = w + p->ahead;
}

#endif
