#include "cpu/fine_avx2.h"
#include "base/platform.h"
#include "cpu/intrinsics.h"
#include "cpu/dtypes.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
#include "cpu/unpack.h"
#include "cpu/unpack_avx2.h"

#if LLM__X86

/* An unpacked block: (8 vectors, columns 0 2 or 1 3, 2 halves, 16). */
typedef struct llm__avx2_fine {
    int16_t w[8][2][2][16];
    llm__avx2_scales s;
} llm__avx2_fine;

/* Columns 0 and 2 (odd 0) or 1 and 3 of each four, so that no byte has to leave its lane: a lane of 32 bits is a row's four columns,
 *
 *     bytes  c0 c1 c2 c3      odd 0  c0 c2      odd 1  c1 c3      inputs of a row  x0 x2 x1 x3
 *
 * and vpmaddwd adds c0 x0 + c2 x2, then c1 x1 + c3 x3, to the row's sum. */
LLM__AVX2_INLINE __m256i llm__avx2_fine_vector(__m256i v, const int odd) { return _mm256_srai_epi16(odd ? v : _mm256_slli_epi16(v, 8), 8); }

/* All 16 rows and 32 columns of a block whose first vector is at w; its scales are not touched. */
LLM__AVX2_INLINE void llm__avx2_fine_cook(const llm__avx2_form f, const uint8_t *w, llm__avx2_fine *to) {
    LLM__UNROLL
    for (int i = 0; i < 8; i++) LLM__UNROLL
    for (int h = 0; h < 2; h++) {
        const __m256i v = llm__avx2_vector(f, i, w + 32 * h);
        _mm256_store_si256((__m256i *)(void *)to->w[i][0][h], llm__avx2_fine_vector(v, 0));
        _mm256_store_si256((__m256i *)(void *)to->w[i][1][h], llm__avx2_fine_vector(v, 1));
    }
}

/* A block's products with n tokens, added to acc: see llm__avx2_step. `cooked`: w has unpacked vectors, as in llm__avx2_fine. */
LLM__AVX2_INLINE void llm__avx2_fine_step(const llm__avx2_form f, const int cooked, const int n, const int halves, const uint8_t *const *w,
                                          const llm__avx2_scales *s, const llm__act *a, size_t at, __m256 (*acc)[4]) {
    const int8_t *q = a->q + 64 * at;
    __m256i sum[4][4], v[2][2], x[2];
    LLM__UNROLL
    for (int t = 0; t < n; t++) LLM__UNROLL
    for (int h = 0; h < halves; h++) sum[t][h] = _mm256_setzero_si256();
    LLM__UNROLL
    for (int i = 0; i < 8; i++) LLM__UNROLL
    for (int h = 0; h < halves; h += 2) {
        LLM__UNROLL
        for (int k = 0; k < 4; k++) { /* k / 2: the half */
            v[k / 2][k % 2] = cooked ? llm__avx2_load(w[0] + 128 * i + 64 * (k % 2) + 32 * (k / 2))
                                     : llm__avx2_fine_vector(llm__avx2_vector(f, i, w[h + k / 2]), k % 2);
            LLM__AVX2_KEEP(v[k / 2][k % 2]); /* loaded once for all tokens */
        }
        LLM__UNROLL
        for (int t = 0; t < n; t++) {
            x[0] = llm__avx2_four(q + 64 * t + 8 * i), x[1] = llm__avx2_four(q + 64 * t + 8 * i + 4);
            LLM__UNROLL
            for (int k = 0; k < 4; k++) {
                __m256i *to = &sum[t][h + k % 2];
                *to = _mm256_add_epi32(*to, _mm256_madd_epi16(v[k % 2][k / 2], x[k / 2]));
                LLM__AVX2_KEEP(*to);
            }
        }
    }
    LLM__UNROLL
    for (int t = 0; t < n; t++) LLM__UNROLL
    for (int h = 0; h < halves; h++)
        acc[t][h] = llm__avx2_scaled(f, &s[h / 2].of.d[0][8 * (h % 2)], NULL, a->d[at + (size_t)t], 0, sum[t][h], acc[t][h]);
}

/* One or two tokens' products with both blocks of a pair. */
LLM__AVX2_INLINE void llm__avx2_fine_few(const llm__kind kind, const int8_t *table, const int n, const llm__product *p) {
    llm__avx2_form f = llm__avx2_form_of(kind);
    const llm__act a = p->act; /* its pointers in registers */
    enum { pair = 2, halves = 4 };
    const uint8_t *w = p->w, *row[4];
    size_t at = p->at;
    llm__avx2_scales scales[2];
    __m256 acc[4][4];
    if (f.table) f.table = table;
    f.wide = 1; /* values as they are */
    llm__avx2_clear(n, halves, acc);
    for (int64_t b = 0; b < p->n_blocks; b++, w += pair * llm__kind_block(kind), at += (size_t)n) {
        llm__fetch(w, p->ahead, 0, pair * llm__kind_block(kind), 0, 1);
        LLM__UNROLL
        for (int h = 0; h < halves; h++) row[h] = w + h / 2 * 64 * f.bits + 32 * (h % 2);
        LLM__UNROLL
        for (int i = 0; i < pair; i++) llm__avx2_unpack_scales(kind, pair, i, w, &scales[i]);
        llm__avx2_fine_step(f, 0, n, halves, row, scales, &a, at, acc);
    }
    llm__avx2_move(n, halves, acc, p->out, 1);
}

/* n tokens' products with `blocks` unpacked blocks, added to out (n, 16). */
LLM__AVX2_INLINE void llm__avx2_fine_group(const int n, const llm__avx2_fine *c, int blocks, const llm__product *p, size_t at, float *out,
                                           llm__avx2_fetch *fetch) {
    const llm__avx2_form f = llm__avx2_form_of(LLM__KIND_Q8);
    const llm__act a = p->act;
    __m256 acc[4][4];
    for (int b = 0; b < blocks; b++) {
        const uint8_t *w = (const uint8_t *)c[b].w;
        llm__avx2_move(n, 2, acc, out, 0);
        llm__avx2_fine_step(f, 1, n, 2, &w, &c[b].s, &a, at + (size_t)(b * p->n), acc);
        llm__avx2_move(n, 2, acc, out, 1);
        llm__avx2_fetch_more(fetch);
    }
}

/* All tokens of a tile: four at a time, then those that are left. */
LLM__AVX2 static LLM__NOINLINE void llm__avx2_fine_loop(const llm__avx2_fine *c, int blocks, const llm__product *p, size_t at, float *out,
                                                        llm__avx2_fetch *fetch) {
    int t = 0;
    for (; t + 4 <= p->n; t += 4, at += 4, out += 4 * LLM__ROWS) llm__avx2_fine_group(4, c, blocks, p, at, out, fetch);
    for (; t + 2 <= p->n; t += 2, at += 2, out += 2 * LLM__ROWS) llm__avx2_fine_group(2, c, blocks, p, at, out, fetch);
    if (t < p->n) llm__avx2_fine_group(1, c, blocks, p, at, out, fetch);
}

/* All tokens of a tile: a super-block is unpacked once for them, and the sums of its blocks stay in p->out between groups of tokens. */
LLM__AVX2_INLINE void llm__avx2_fine_many(const llm__kind kind, const int8_t *table, const llm__product *p) {
    llm__avx2_form f = llm__avx2_form_of(kind);
    llm__avx2_fine cooked[LLM__SUPER];
    llm__avx2_fetch fetch;
    const uint8_t *w = p->w;
    size_t at = p->at;
    if (f.table) f.table = table;
    f.wide = 1; /* values as they are */
    for (int i = 0; i < p->pair; i++) memset(p->out + i * LLM__OUT, 0, sizeof(float) * LLM__ROWS * (size_t)p->n);
    for (int64_t left = p->n_blocks; left > 0; left -= LLM__SUPER) {
        const int blocks = (int)LLM__MIN(left, (int64_t)LLM__SUPER), step = p->pair * llm__kind_block(kind);
        llm__avx2_fetch_begin(&fetch, kind, w, blocks, p);
        for (int place = 0; place < p->pair; place++) {
            for (int b = 0; b < blocks; b++) {
                llm__avx2_fine_cook(f, w + b * step + place * 64 * f.bits, &cooked[b]);
                llm__avx2_unpack_scales(kind, p->pair, place, w + b * step, &cooked[b].s);
            }
            llm__avx2_fine_loop(cooked, blocks, p, at, p->out + place * LLM__OUT, &fetch);
        }
        w += blocks * step;
        at += (size_t)blocks * (size_t)p->n;
    }
}

/* clang-format off */
#define LLM__AVX2_FINE(kind) \
    LLM__AVX2 static LLM__NOINLINE void llm__avx2_fine_##kind(const int8_t *table, const llm__product *p) { \
        if (p->pair == 2 && p->n == 1) llm__avx2_fine_few(LLM__KIND_##kind, table, 1, p); \
        else if (p->pair == 2 && p->n == 2) llm__avx2_fine_few(LLM__KIND_##kind, table, 2, p); \
        else llm__avx2_fine_many(LLM__KIND_##kind, table, p); \
    }

LLM__AVX2_FINE(Q8)
LLM__AVX2_FINE(IQ4)
LLM__AVX2_FINE(I8)
LLM__AVX2_FINE(NF4)

LLM__PRIVATE LLM__AVX2 void llm__avx2_fine_product(llm__kind kind, const llm__product *p) {
    const int8_t *table = llm__kind_table(kind);
    kind = llm__kind_like(kind);
    if (kind == LLM__KIND_Q8) llm__avx2_fine_Q8(table, p);
    else if (kind == LLM__KIND_I8) llm__avx2_fine_I8(table, p);
    else if (kind == LLM__KIND_IQ4) llm__avx2_fine_IQ4(table, p);
    else llm__avx2_fine_NF4(table, p);
}
#endif
