#include "cpu/bytes_avx2.h"
#include "base/platform.h"
#include "cpu/intrinsics.h"
#include "cpu/dtypes.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
#include "cpu/unpack.h"
#include "cpu/unpack_avx2.h"
#include "cpu/fine_avx2.h"

#if LLM__X86

/* ---- Rounding ---- */

/* The largest absolute value of 32: compared as integers, so that what is no number counts as large. */
LLM__AVX2_INLINE float llm__avx2_most(const float *x) {
    __m256i top = _mm256_setzero_si256();
    float most;
    LLM__UNROLL
    for (int i = 0; i < 4; i++)
        top = _mm256_max_epi32(top, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + 8 * i)), _mm256_set1_epi32(0x7FFFFFFF)));
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
    const int32_t bits = _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1)));
    memcpy(&most, &bits, 4);
    return most;
}

/* The larger sum of absolute values of 32: of columns 0, 1, 4, 5, 8 ... and of 2, 3, 6, 7, ..., which a product adds up in one lane of 16
 * bits each. */
LLM__AVX2_INLINE float llm__avx2_lane_sum(const float *x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 all = _mm256_setzero_ps();
    LLM__UNROLL
    for (int i = 0; i < 4; i++) all = _mm256_add_ps(all, _mm256_andnot_ps(sign, _mm256_loadu_ps(x + 8 * i)));
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
    sum = _mm_add_ps(sum, _mm_shuffle_ps(sum, sum, 0xB1));
    return _mm_cvtss_f32(_mm_max_ps(sum, _mm_movehl_ps(sum, sum)));
}

/* 32 values to int8 as llm__quantise_block does it. `lost` (may be NULL) takes what the rounding loses. low: the absolute values of a
 * lane's 16 add up to 503, and rounded to 511 at most. */
LLM__AVX2_INLINE void llm__avx2_round(const llm__act *a, size_t at, const float *x, float *lost, const int low) {
    const __m256 magic = _mm256_set1_ps(12582912.0f);
    __m256i q[4];
    __m256 in[4], y[4];
    const float most = llm__avx2_most(x), lane = low ? llm__avx2_lane_sum(x) : 0;
    float d = most * (1.0f / 127), inverse = most > 0 ? 127 / most : 0;
    if (low && lane * (1.0f / 503) > d) {
        d = lane * (1.0f / 503);
        inverse = 503 / lane;
    }
    LLM__UNROLL
    for (int i = 0; i < 4; i++) {
        in[i] = _mm256_loadu_ps(x + 8 * i);
        y[i] = _mm256_mul_ps(in[i], _mm256_set1_ps(inverse));
        __asm__("" : "+x"(y[i])); /* not fused */
        y[i] = _mm256_add_ps(y[i], magic);
        q[i] = _mm256_and_si256(_mm256_castps_si256(y[i]), _mm256_set1_epi32(255)); /* the lowest byte: what is no number becomes 0 */
    }
    __m256i all = _mm256_packus_epi16(_mm256_packus_epi32(q[0], q[1]), _mm256_packus_epi32(q[2], q[3]));
    all = _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)(a->q + at * 32), all);
    __m256i sum = _mm256_maddubs_epi16(_mm256_set1_epi8(1), all); /* of pairs; then of the former and the latter 16 columns */
    sum = _mm256_add_epi16(sum, _mm256_shuffle_epi32(sum, 0x4E));
    sum = _mm256_add_epi16(sum, _mm256_shuffle_epi32(sum, 0xB1));
    const __m128i latter = _mm256_extracti128_si256(sum, 1), both = _mm_add_epi16(_mm256_castsi256_si128(sum), latter);
    const __m128i ones = _mm_set1_epi16(1), zero = _mm_setzero_si128();
    a->d[at] = d;
    a->s[2 * at] = d * (float)_mm_cvtsi128_si32(_mm_madd_epi16(both, ones));
    a->s[2 * at + 1] = d * (float)_mm_cvtsi128_si32(_mm_madd_epi16(latter, ones));
    a->n[2 * at] = _mm_cvtsi128_si32(_mm_sub_epi16(zero, both));
    a->n[2 * at + 1] = _mm_cvtsi128_si32(_mm_sub_epi16(zero, latter));
    LLM__UNROLL
    for (int i = 0; i < 4 && lost; i++)
        _mm256_storeu_ps(lost + 8 * i, _mm256_fnmadd_ps(_mm256_sub_ps(y[i], magic), _mm256_set1_ps(d), in[i]));
}

LLM__AVX2_INLINE void llm__avx2_round_all(const llm__act *act, size_t at, const float *x, int64_t stride, int n, int per, const int low) {
    const llm__act a = *act; /* its pointers in registers */
    float lost[32];
    for (int i = 0; i < n; i++, x += stride, at += (size_t)per) {
        llm__avx2_round(&a, at, x, per == 2 ? lost : NULL, low);
        if (per == 2) llm__avx2_round(&a, at + 1, lost, NULL, low);
    }
}

/* See llm__body_quantise. */
LLM__PRIVATE LLM__AVX2 void llm__avx2_quantise(const llm__act *act, size_t at, const float *x, int64_t stride, int n, int per) {
    llm__avx2_round_all(act, at, x, stride, n, per, 0);
}

LLM__PRIVATE LLM__AVX2 void llm__avx2_quantise_low(const llm__act *act, size_t at, const float *x, int64_t stride, int n, int per) {
    llm__avx2_round_all(act, at, x, stride, n, per, 1);
}

/* 32 values to 16 bits, each four columns in the order 0, 2, 1, 3: x ~ d * q with the largest at 32767. A sum of 32 products with bytes is
 * below 2^27. */
LLM__AVX2_INLINE void llm__avx2_round_fine(const llm__act *a, size_t at, const float *x) {
    const __m256 magic = _mm256_set1_ps(12582912.0f);
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i q[4];
    const float most = llm__avx2_most(x), d = most * (1.0f / 32767), inverse = most > 0 ? 32767 / most : 0;
    int32_t sum[2];
    LLM__UNROLL
    for (int i = 0; i < 4; i++) {
        __m256 y = _mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(inverse));
        __asm__("" : "+x"(y));                               /* not fused */
        q[i] = _mm256_castps_si256(_mm256_add_ps(y, magic)); /* the lower 16 bits: what is no number becomes 0 */
        q[i] = _mm256_blend_epi16(q[i], _mm256_shuffle_epi32(_mm256_slli_epi32(q[i], 16), 0x0E), 0xAA);
    }
    LLM__UNROLL
    for (int h = 0; h < 2; h++) {
        const __m256i all = _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(q[2 * h], q[2 * h + 1]), 0xD8),
                      two = _mm256_madd_epi16(all, ones);
        _mm256_storeu_si256((__m256i *)(void *)(a->q + at * 64 + 32 * h), all);
        __m128i s = _mm_add_epi32(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
        s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
        sum[h] = _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
    }
    a->d[at] = d;
    a->s[2 * at] = d * (float)(sum[0] + sum[1]);
    a->s[2 * at + 1] = d * (float)sum[1];
    a->n[2 * at] = -sum[0] - sum[1];
    a->n[2 * at + 1] = -sum[1];
}

/* n rows of 32 values, `stride` floats apart, to the blocks from `at` on, 64 bytes each. */
LLM__PRIVATE LLM__AVX2 void llm__avx2_quantise_fine(const llm__act *act, size_t at, const float *x, int64_t stride, int n) {
    const llm__act a = *act; /* its pointers in registers */
    for (int i = 0; i < n; i++, x += stride, at++) llm__avx2_round_fine(&a, at, x);
}

/* ---- Sums ---- */

/* w: where the halves' vectors are. n and `halves` are constants, see LLM__AVX2_KEEP. scale: what sums that are widened at once are
 * multiplied with: 1, or small integers. */
LLM__AVX2_INLINE __m256i llm__avx2_product_sum(const llm__avx2_form f, __m256i v, __m256i sign, __m256i x, __m256i scale, __m256i sum) {
    const __m256i p = f.wide == 2 ? _mm256_maddubs_epi16(v, _mm256_xor_si256(x, sign))
                      : f.wide    ? _mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(x, v))
                                  : _mm256_maddubs_epi16(v, x);
    sum = f.wide ? _mm256_add_epi32(sum, _mm256_madd_epi16(p, scale)) : _mm256_add_epi16(sum, p);
    LLM__AVX2_KEEP(sum);
    return sum;
}

/* What the sums of the 8 rows of half h are multiplied with, of the two blocks that may stand beside each other. */
LLM__AVX2_INLINE __m256i llm__avx2_small(const llm__avx2_form f, const int part, const int h, const llm__avx2_scales *s) {
    return f.super ? llm__avx2_load(&s[h / 2].of.small[part][16 * (h % 2)]) : _mm256_set1_epi16(1);
}

/* Sums of the vectors of a part, of 16 bits or, if wide, of 32. `begin`: what those of a token begin with; where signs stand apart, with
 * those of a row that are lost. */
LLM__AVX2_INLINE void llm__avx2_sums(const llm__avx2_form f, const int n, const int halves, const int part, const uint8_t *const *w,
                                     const int8_t *q, const __m256i *begin, const llm__avx2_scales *s, __m256i (*sum)[4]) {
    const int from = part ? 4 : 0, to = part || !f.x2 ? 8 : 4;
    __m256i v[4], x[4], sign[4] = {_mm256_setzero_si256()};
    LLM__UNROLL
    for (int t = 0; t < n; t++) LLM__UNROLL
    for (int h = 0; h < halves; h++) sum[t][h] = f.wide == 2 ? llm__avx2_load(s[0].lost + 8 * h) : begin[t];
    LLM__UNROLL
    for (int i = from; i < to; i++) {
        LLM__UNROLL
        for (int t = 0; t < n && halves == 4; t++) x[t] = llm__avx2_four(q + 32 * t + 4 * i);
        LLM__UNROLL
        for (int h = 0; h < halves; h++) {
            v[h] = llm__avx2_vector(f, i, w[h]);
            sign[h] = f.wide == 2 ? llm__avx2_load(w[h] + 8 * 64 + 64 * i) : v[h];
            LLM__UNROLL
            for (int t = 0; t < n && halves == 4; t++)
                sum[t][h] = llm__avx2_product_sum(f, v[h], sign[h], x[t], llm__avx2_small(f, part, h, s), sum[t][h]);
        }
        LLM__UNROLL
        for (int t = 0; t < n && halves == 2; t++) {
            x[0] = llm__avx2_four(q + 32 * t + 4 * i);
            sum[t][0] = llm__avx2_product_sum(f, v[0], sign[0], x[0], llm__avx2_small(f, part, 0, s), sum[t][0]);
            sum[t][1] = llm__avx2_product_sum(f, v[1], sign[1], x[0], llm__avx2_small(f, part, 1, s), sum[t][1]);
        }
    }
}

/* Minus zero times the sums of the inputs of the block `at`, of all columns or of a part of them. */
LLM__AVX2_INLINE __m256i llm__avx2_begin_with(const llm__avx2_form f, const int part, const llm__act *a, size_t at) {
    if (!f.zero) return _mm256_setzero_si256();
    __m256i x = _mm256_set1_epi32(a->n[2 * at + (size_t)part]);
    if (f.x2 && !part) x = _mm256_sub_epi16(x, _mm256_set1_epi32(a->n[2 * at + 1]));
    return _mm256_mullo_epi16(x, _mm256_set1_epi16((int16_t)f.zero));
}

/* A block's products with n tokens, whose roundings stand from `at` on, added to acc. s: scales of one block, or of two. Of two parts the
 * latter comes first. */
LLM__AVX2_INLINE void llm__avx2_step(const llm__avx2_form f, const int n, const int halves, const uint8_t *const *w,
                                     const llm__avx2_scales *s, const llm__act *a, size_t at, __m256 (*acc)[4]) {
    __m256i begin[4], sum[4][4], latter[4][4];
    LLM__UNROLL
    for (int part = f.x2; part >= 0; part--) {
        LLM__UNROLL
        for (int t = 0; t < n; t++) begin[t] = llm__avx2_begin_with(f, part, a, at + (size_t)t);
        llm__avx2_sums(f, n, halves, part, w, a->q + 32 * at, begin, s, sum);
        LLM__UNROLL
        for (int t = 0; t < n; t++) LLM__UNROLL
        for (int h = 0; h < halves; h++) {
            const llm__avx2_scales *of = &s[h / 2];
            const int row = 8 * (h % 2), shift = f.super && f.min ? 1 : part; /* where m is */
            if (!f.wide) sum[t][h] = _mm256_madd_epi16(sum[t][h], llm__avx2_small(f, part, h, s));
            if (f.super && f.x2 && part) latter[t][h] = sum[t][h];
            else {
                if (f.super && f.x2) sum[t][h] = _mm256_add_epi32(sum[t][h], latter[t][h]);
                acc[t][h] = llm__avx2_scaled(f, &of->of.d[part][row], &of->m[shift][row], a->d[at + (size_t)t],
                                             a->s[2 * (at + (size_t)t) + (size_t)part], sum[t][h], acc[t][h]);
            }
        }
    }
}

/* low += the minimums of a block of a super-block times the sums of the inputs. */
LLM__AVX2_INLINE void llm__avx2_low(const llm__avx2_form f, const int n, const int halves, const llm__avx2_scales *s, const llm__act *a,
                                    size_t at, __m256 (*low)[4]) {
    LLM__UNROLL
    for (int part = 0; part <= f.x2; part++) LLM__UNROLL
    for (int h = 0; h < halves; h++) {
        const __m256 m = _mm256_load_ps(&s[h / 2].m[part][8 * (h % 2)]);
        LLM__UNROLL
        for (int t = 0; t < n; t++) {
            const float *sums = a->s + 2 * (at + (size_t)t); /* of all columns, and of the latter half */
            low[t][h] = _mm256_fmadd_ps(m, _mm256_set1_ps(part ? sums[1] : f.x2 ? sums[0] - sums[1] : sums[0]), low[t][h]);
        }
    }
}

/* The end of a super-block whose head is at `head`: out += minimum * low + scale * acc. */
LLM__AVX2_INLINE void llm__avx2_super(const llm__avx2_form f, const int n, const int halves, const uint8_t *head, int pair, int place,
                                      __m256 (*acc)[4], __m256 (*low)[4], float *out) {
    LLM__UNROLL
    for (int h = 0; h < halves; h++) {
        const uint8_t *at = head + 32 * (place + h / 2) + 16 * (h % 2);
        const __m256 stored = llm__avx2_widen(at), m = f.min ? llm__avx2_widen(at + 32 * pair) : stored;
        const __m256 d = f.unit == 1 ? stored : _mm256_mul_ps(stored, _mm256_set1_ps(1 / f.unit));
        LLM__UNROLL
        for (int t = 0; t < n; t++) {
            float *to = out + h / 2 * LLM__OUT + LLM__ROWS * t + 8 * (h % 2);
            __m256 x = _mm256_loadu_ps(to);
            if (f.min) x = _mm256_fmadd_ps(m, low[t][h], x);
            _mm256_storeu_ps(to, _mm256_fmadd_ps(d, acc[t][h], x));
        }
    }
}

/* ---- Few tokens ---- */

/* One or two tokens' products with both blocks of a pair. table: of kinds that have one: those that differ in nothing else share this. */
LLM__AVX2_INLINE void llm__avx2_few(const llm__kind kind, const int8_t *table, const int n, const llm__product *p) {
    llm__avx2_form f = llm__avx2_form_of(kind);
    const llm__act a = p->act; /* its pointers in registers */
    enum { pair = 2, halves = 4 };
    const uint8_t *w = p->w, *row[4];
    size_t at = p->at;
    llm__avx2_scales scales[2];
    __m256 acc[4][4], low[4][4];
    if (f.table) f.table = table;
    llm__avx2_clear(n, halves, acc);
    if (f.super) llm__avx2_move(n, halves, acc, p->out, 1);
    for (int64_t left = p->n_blocks; left > 0; left -= LLM__SUPER) {
        const uint8_t *head = w;
        w += pair * llm__kind_head(kind);
        if (f.super) llm__avx2_clear(n, halves, acc);
        if (f.super) llm__avx2_clear(n, halves, low);
        for (int b = 0; b < LLM__SUPER && b < left; b++, w += pair * llm__kind_block(kind), at += (size_t)n) {
            llm__fetch(w, p->ahead, 0, pair * llm__kind_block(kind), 0, 1);
            LLM__UNROLL
            for (int h = 0; h < halves; h++) row[h] = w + h / 2 * 64 * f.bits + 32 * (h % 2);
            LLM__UNROLL
            for (int i = 0; i < pair; i++) llm__avx2_unpack_scales(kind, pair, i, w, &scales[i]);
            llm__avx2_step(f, n, halves, row, scales, &a, at, acc);
            if (f.super && f.min) llm__avx2_low(f, n, halves, scales, &a, at, low);
        }
        if (f.super) llm__avx2_super(f, n, halves, head, pair, 0, acc, low, p->out);
    }
    if (!f.super) llm__avx2_move(n, halves, acc, p->out, 1);
}

/* ---- Many tokens ----
 * How near this comes to what a core can do. Four tokens and 16 rows of a block are 64 vectors of products; on Zen 3 they take
 *
 *     32 cycles   vpmaddubsw alone, of which two begin in a cycle
 *     38          with the additions in 16 bits: four ports, but not always the two that are free
 *     41          with the loads: a vector of weights serves four tokens, four bytes of a token are spread over a vector for 16 rows
 *     52          with the scales: vpmaddwd, to floats, a fused multiply-add, and the sums' way to memory and back
 *     60 to 63    with minimums, unpacking (a block for eight groups of four tokens) and loops
 *
 * Four tokens, because eight sums, two vectors of weights and what is between fill the 16 registers; two tokens and 32 rows, or another
 * order of the same instructions, take as long. Signed bytes take 104 with their signs in the weights, 99 with them apart: their pairs do
 * not fit 16 bits and are widened one by one. Products of 16 bits (vpmaddwd of widened weights and inputs) take as long: four instructions
 * for 32 products each way, and of products that wait for each other Zen 3 begins 3.2 a cycle, not four. */

typedef struct llm__avx2_cooked {
    uint8_t u[8 * 64], sign[8 * 64];
    llm__avx2_scales s;
} llm__avx2_cooked;

/* A block whose signs stand apart: absolute values |w|, and -1 in the bytes of negative ones. An exclusive or with that makes -x - 1 of x,
 * so that sums lack |w| for each negative weight: they begin with it. It has all four ports of Zen 3, vpsignb two. */
LLM__AVX2_INLINE void llm__avx2_cook_signs(const llm__avx2_form f, const uint8_t *w, llm__avx2_cooked *to) {
    const __m256i ones = _mm256_set1_epi8(1);
    LLM__UNROLL
    for (int h = 0; h < 2; h++) {
        __m256i sum = _mm256_setzero_si256();
        LLM__UNROLL
        for (int i = 0; i < 8; i++) {
            const __m256i v = llm__avx2_vector(f, i, w + 32 * h), u = _mm256_abs_epi8(v);
            const __m256i sign = _mm256_cmpgt_epi8(_mm256_setzero_si256(), v);
            _mm256_store_si256((__m256i *)(void *)(to->u + 64 * i + 32 * h), u);
            _mm256_store_si256((__m256i *)(void *)(to->sign + 64 * i + 32 * h), sign);
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(_mm256_and_si256(u, sign), ones));
        }
        _mm256_store_si256((__m256i *)(void *)(to->s.lost + 8 * h), _mm256_madd_epi16(sum, llm__avx2_small(f, 0, h, &to->s)));
    }
}

/* Unpacked blocks of a super-block: of block b the scales, and at `bits` + b * `step` the weights. */
typedef struct llm__avx2_blocks {
    const llm__avx2_cooked *cooked;
    const uint8_t *bits, *head;
    int step, n, place;
    float unit; /* llm__kind_unit */
} llm__avx2_blocks;

LLM__AVX2_INLINE void llm__avx2_cook_values(const llm__avx2_form f, const uint8_t *w, llm__avx2_cooked *to) {
    LLM__UNROLL
    for (int i = 0; i < 16; i++) _mm256_store_si256((__m256i *)(void *)(to->u + 32 * i), llm__avx2_vector(f, i / 2, w + i % 2 * 32));
}

/* The first `blocks` blocks of a super-block, number `place` of a pair. */
LLM__AVX2_INLINE void llm__avx2_cook_place(const llm__kind kind, const int8_t *table, const int apart, int pair, int place,
                                           const uint8_t *w, int blocks, llm__avx2_cooked *to) {
    llm__avx2_form f = llm__avx2_form_of(kind);
    if (f.table) f.table = table;
    w += pair * llm__kind_head(kind);
    for (int b = 0; b < blocks; b++, to++, w += pair * llm__kind_block(kind)) {
        llm__avx2_unpack_scales(kind, pair, place, w, &to->s);
        if (apart) llm__avx2_cook_signs(f, w + place * 64 * f.bits, to);
        else if (f.bits < 8) llm__avx2_cook_values(f, w + place * 64 * f.bits, to);
    }
}

/* n tokens' products with unpacked blocks of a super-block, added to out (n, 16). */
LLM__AVX2_INLINE void llm__avx2_group(const llm__avx2_form form, const int n, const llm__avx2_blocks *of, const llm__product *p, size_t at,
                                      float *out, llm__avx2_fetch *fetch) {
    llm__avx2_form f = form;
    if (f.unit != 1) f.unit = of->unit;
    const llm__act a = p->act;
    const llm__avx2_cooked *c = of->cooked;
    const int blocks = of->n;
    float sums[4 * LLM__ROWS] __attribute__((aligned(32))), *to = f.super ? sums : out;
    __m256 acc[4][4], low[4][4];
    llm__avx2_clear(n, 2, low);
    if (f.super) llm__avx2_move(n, 2, low, sums, 1);
    for (int b = 0; b < blocks; b++) {
        const uint8_t *row[2];
        row[0] = of->bits + b * of->step, row[1] = row[0] + 32;
        llm__avx2_move(n, 2, acc, to, 0);
        llm__avx2_step(f, n, 2, row, &c[b].s, &a, at + (size_t)(b * p->n), acc);
        llm__avx2_move(n, 2, acc, to, 1);
        llm__avx2_fetch_more(fetch);
    }
    for (int b = 0; b < blocks && f.super && f.min; b++) llm__avx2_low(f, n, 2, &c[b].s, &a, at + (size_t)(b * p->n), low);
    if (f.super) llm__avx2_move(n, 2, acc, sums, 0);
    if (f.super) llm__avx2_super(f, n, 2, of->head, p->pair, of->place, acc, low, out);
}

/* A loop over all tokens of a tile, four at a time, then those that are left: of common forms all at once, of others one by one. */
typedef void (*llm__avx2_loop_fn)(int zero, const llm__avx2_blocks *of, const llm__product *p, size_t at, llm__avx2_fetch *fetch);

LLM__AVX2_INLINE void llm__avx2_loop(const llm__avx2_form f, const int common, const llm__avx2_blocks *of, const llm__product *p, size_t at,
                                     llm__avx2_fetch *fetch) {
    float *out = p->out + of->place * LLM__OUT;
    int t = 0;
    for (; t + 4 <= p->n; t += 4, at += 4, out += 4 * LLM__ROWS) llm__avx2_group(f, 4, of, p, at, out, fetch);
    if (common && p->n - t == 3) llm__avx2_group(f, 3, of, p, at, out, fetch);
    else if (common && p->n - t == 2) llm__avx2_group(f, 2, of, p, at, out, fetch);
    else
        for (; t < p->n; t++, at++, out += LLM__ROWS) llm__avx2_group(f, 1, of, p, at, out, fetch);
}

LLM__AVX2_INLINE void llm__avx2_many(const llm__kind kind, const int8_t *table, const int apart, const llm__avx2_loop_fn loop,
                                     const llm__product *p) {
    llm__avx2_cooked cooked[LLM__SUPER] __attribute__((aligned(64)));
    llm__avx2_fetch fetch;
    const uint8_t *w = p->w;
    size_t at = p->at;
    for (int i = 0; i < p->pair; i++) memset(p->out + i * LLM__OUT, 0, sizeof(float) * LLM__ROWS * (size_t)p->n);
    for (int64_t left = p->n_blocks; left > 0; left -= LLM__SUPER) {
        const int blocks = (int)LLM__MIN(left, (int64_t)LLM__SUPER),
                  bytes = p->pair * (llm__kind_head(kind) + blocks * llm__kind_block(kind));
        llm__avx2_fetch_begin(&fetch, kind, w, blocks, p);
        for (int place = 0; place < p->pair; place++) {
            const uint8_t *packed = w + p->pair * llm__kind_head(kind) + place * 512;
            const int straight = llm__kind_info(kind).bits == 8 && !apart;
            const llm__avx2_blocks of = {
                cooked, straight ? packed : cooked[0].u, w, straight ? p->pair * llm__kind_block(kind) : (int)sizeof cooked[0], blocks,
                place,  llm__avx2_form_of(kind).unit};
            llm__avx2_cook_place(kind, table, apart, p->pair, place, w, blocks, cooked);
            loop(llm__avx2_form_of(kind).zero, &of, p, at, &fetch);
        }
        w += bytes;
        at += (size_t)blocks * (size_t)p->n;
    }
}

/* ---- The table's entry ---- */
/* clang-format off */

/* What depends on the kind is constant in each of these functions. A kind has one for many tokens, which unpacks, and common ones another
 * for few. Unpacked weights differ less: each loop serves all kinds of its form, `like` one of them, and only the zero point of those
 * without minimums is left to ask for. */
#define LLM__AVX2_LOOP(like, common) \
    LLM__AVX2 static LLM__NOINLINE void llm__avx2_loop_##like(int zero, const llm__avx2_blocks *of, const llm__product *p, size_t at, \
                                                              llm__avx2_fetch *fetch) { \
        llm__avx2_form f = llm__avx2_form_of(LLM__KIND_##like); \
        if (LLM__KIND_##like == LLM__KIND_Q4Z) f.zero = zero; \
        f.bits = 8; \
        f.table = NULL; \
        llm__avx2_loop(f, common, of, p, at, fetch); \
    }
/* 1: signs are set apart. */
LLM__AVX2_INLINE int llm__avx2_apart(const llm__kind kind, const llm__product *p) {
    const llm__avx2_form f = llm__avx2_form_of(kind);
    return f.wide && !f.x2 && !f.min && p->n >= p->signs;
}

#define LLM__AVX2_LOOP_SIGNS(name, like) \
    LLM__AVX2 static LLM__NOINLINE void name(int zero, const llm__avx2_blocks *of, const llm__product *p, size_t at, \
                                             llm__avx2_fetch *fetch) { \
        llm__avx2_form f = llm__avx2_form_of(LLM__KIND_##like); \
        (void)zero; \
        f.wide = 2; \
        f.bits = 8; \
        f.table = NULL; \
        llm__avx2_loop(f, 1, of, p, at, fetch); \
    }
LLM__AVX2_LOOP_SIGNS(llm__avx2_loop_signs, Q8)
LLM__AVX2_LOOP_SIGNS(llm__avx2_loop_small_signs, GRID2)

#define LLM__AVX2_MANY(kind, like) \
    LLM__AVX2 static LLM__NOINLINE void llm__avx2_many_##kind(const int8_t *table, const llm__product *p) { \
        const llm__avx2_loop_fn signs = llm__kind_head(LLM__KIND_##kind) ? llm__avx2_loop_small_signs : llm__avx2_loop_signs; \
        if (llm__avx2_apart(LLM__KIND_##kind, p)) llm__avx2_many(LLM__KIND_##kind, table, 1, signs, p); \
        else llm__avx2_many(LLM__KIND_##kind, table, 0, llm__avx2_loop_##like, p); \
    }
#define LLM__AVX2_FEW(kind, like) \
    LLM__AVX2 static LLM__NOINLINE void llm__avx2_few_##kind(const int8_t *table, const llm__product *p) { \
        if (p->n == 1) llm__avx2_few(LLM__KIND_##kind, table, 1, p); \
        else llm__avx2_few(LLM__KIND_##kind, table, 2, p); \
    }
#define LLM__AVX2_CASE_MANY(kind, like) case LLM__KIND_##kind: llm__avx2_many_##kind(table, p); break;
#define LLM__AVX2_CASE_BOTH(kind, like) \
    case LLM__KIND_##kind: \
        if (p->pair == 2 && p->n <= 2) llm__avx2_few_##kind(table, p); \
        else llm__avx2_many_##kind(table, p); \
        break;
#define LLM__AVX2_COMMON(each) \
    each(Q4Z, Q4Z) each(Q4M, Q4M) each(Q8, Q8) each(IQ4, Q8) each(Q2K, Q2K) each(Q3K, Q3K) each(Q4K, Q4K) each(Q5K, Q5K) \
    each(Q6K, Q6K) each(Q4A, Q4M) each(I8, Q8) each(NF4, Q4Z) each(GRID2, GRID2) each(GRID2X, GRID2X) each(GRID3, GRID2) \
    each(IQ4X, GRID2) each(TERNARY, TERNARY)
#define LLM__AVX2_OTHERS(each) \
    each(Q5Z, Q4Z) each(Q5M, Q5M) each(MXFP4, Q4Z) each(G16, G16) each(G16M, G16M) each(G32, G32) each(NVFP4, G16)

LLM__AVX2_LOOP(Q4Z, 1)
LLM__AVX2_LOOP(Q4M, 1)
LLM__AVX2_LOOP(Q5M, 0)
LLM__AVX2_LOOP(Q8, 1)
LLM__AVX2_LOOP(Q2K, 1)
LLM__AVX2_LOOP(Q3K, 1)
LLM__AVX2_LOOP(Q4K, 1)
LLM__AVX2_LOOP(Q5K, 1)
LLM__AVX2_LOOP(Q6K, 1)
LLM__AVX2_LOOP(GRID2, 1)
LLM__AVX2_LOOP(GRID2X, 1)
LLM__AVX2_LOOP(TERNARY, 1)
LLM__AVX2_LOOP(G16, 0)
LLM__AVX2_LOOP(G16M, 0)
LLM__AVX2_LOOP(G32, 0)
LLM__AVX2_COMMON(LLM__AVX2_FEW)
LLM__AVX2_COMMON(LLM__AVX2_MANY)
LLM__AVX2_OTHERS(LLM__AVX2_MANY)

LLM__PRIVATE LLM__AVX2 void llm__avx2_product(llm__kind kind, const llm__product *p) {
    const int8_t *table = llm__kind_table(kind);
    if (p->fine) {
        llm__avx2_fine_product(kind, p);
        return;
    }
    switch (llm__kind_like(kind)) {
        LLM__AVX2_COMMON(LLM__AVX2_CASE_BOTH)
        LLM__AVX2_OTHERS(LLM__AVX2_CASE_MANY)
    default: break;
    }
}
#endif
