/* clang-format off */
#include "cpu/kernels_avx2.h"
#include "api/config.h"
#include "base/platform.h"
#include "cpu/intrinsics.h"
#include "cpu/dtypes.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
#include "cpu/bodies.h"
#include "cpu/recur_bodies.h"
#include "cpu/unpack.h"
#include "cpu/mac.h"
#include "cpu/unpack_avx2.h"
#include "cpu/bytes_avx2.h"

#if LLM__X86

/* The conversions, see llm__half_fn and those after it: 8 lanes an instruction. */
LLM__AVX2_INLINE llm__v16 llm__avx2_half(const uint16_t *p) {
    llm__v16 r;
    _mm256_storeu_ps(r.v, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)));
    _mm256_storeu_ps(r.v + 8, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8))));
    return r;
}

LLM__AVX2_INLINE llm__v16 llm__avx2_bytes(const uint8_t *p, int is_unsigned) {
    llm__v16 r;
    LLM__UNROLL
    for (int h = 0; h < 2; h++) {
        const __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)(p + 8 * h));
        _mm256_storeu_ps(r.v + 8 * h, _mm256_cvtepi32_ps(is_unsigned ? _mm256_cvtepu8_epi32(b) : _mm256_cvtepi8_epi32(b)));
    }
    return r;
}

LLM__AVX2_INLINE void llm__avx2_narrow(uint16_t *p, llm__v16 x) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(_mm256_loadu_ps(x.v), _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(void *)(p + 8), _mm256_cvtps_ph(_mm256_loadu_ps(x.v + 8), _MM_FROUND_TO_NEAREST_INT));
}

/* 8 elements of b as f32; of bf16, 8 pairs' former or latter ones. */
LLM__AVX2_INLINE __m256 llm__avx2_element8(const llm__kind type, const uint8_t *p, const int latter) {
    if (type == LLM__KIND_F32) return _mm256_loadu_ps((const float *)(const void *)p);
    if (type == LLM__KIND_F16) return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m256i pairs = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm256_castsi256_ps(latter ? _mm256_and_si256(pairs, _mm256_set1_epi32(-65536)) : _mm256_slli_epi32(pairs, 16));
}

/* What the sums start with, and where they go: n rows from i on, `vectors` of 8 columns from panel `first` on. */
LLM__AVX2_INLINE void llm__avx2_begin(const llm__mac *m, int i, const int n, const int first, const int vectors, __m256 (*sum)[4]) {
    const float *c = m->c + (int64_t)i * m->ldc;
    LLM__UNROLL
    for (int r = 0; r < n; r++, c += m->ldc)
        LLM__UNROLL
        for (int j = 0; j < vectors; j++)
            sum[r][j] = !m->scale ? _mm256_setzero_ps()
                                  : _mm256_mul_ps(_mm256_loadu_ps(c + (first + j / 2) * m->step + j % 2 * 8),
                                                  _mm256_set1_ps(m->scale[i + r]));
}

LLM__AVX2_INLINE void llm__avx2_end(const llm__mac *m, int i, const int n, const int first, const int vectors, __m256 (*sum)[4]) {
    float *c = m->c + (int64_t)i * m->ldc;
    LLM__UNROLL
    for (int r = 0; r < n; r++, c += m->ldc)
        LLM__UNROLL
        for (int j = 0; j < vectors; j++) {
            float *to = c + (first + j / 2) * m->step + j % 2 * 8;
            if (m->factor[0]) sum[r][j] = _mm256_mul_ps(sum[r][j], _mm256_loadu_ps(m->factor[first + j / 2] + j % 2 * 8));
            _mm256_storeu_ps(to, m->add ? _mm256_add_ps(_mm256_loadu_ps(to), sum[r][j]) : sum[r][j]);
        }
}

/* n rows' sums of one panel (2 vectors), or of both (4). The sums of six rows with one panel fill 12 registers, and what is loaded of b,
 * and converted, serves six. fetch: these rows ask for what is read next. */
LLM__AVX2_INLINE void llm__avx2_rows(const llm__mac *m, int i, const int n, const int first, const int vectors, const llm__kind type,
                                     const int fetch) {
    const int together = type >= LLM__KIND_BF16 ? 2 : 1;                               /* columns that stand together */
    const int size = type == LLM__KIND_F32 ? 4 : type == LLM__KIND_BF16 ? 4 : 2;       /* bytes of an element of them */
    const int64_t lda = m->lda, row = (int64_t)m->ldb * size, pace = m->pace * together;
    const uint8_t *b[2], *ahead[2];
    const float *a = llm__mac_a(m, i, 0);
    __m256 sum[6][4], x[3], v[4];
    __m256i f8 = _mm256_setzero_si256();
    LLM__UNROLL
    for (int p = 0; p < vectors / 2; p++) b[p] = (const uint8_t *)m->b[first + p], ahead[p] = m->fetch[first + p];
    llm__avx2_begin(m, i, n, first, vectors, sum);
    for (int k = m->k; k > 0; k -= together) {
        LLM__UNROLL
        for (int h = 0; h < together; h++, a++) {
            LLM__UNROLL
            for (int r = 0; r < n && vectors == 4; r++) x[r] = _mm256_broadcast_ss(a + r * lda);
            LLM__UNROLL
            for (int j = 0; j < vectors; j++) {
                if (type == LLM__KIND_F8 && j % 2 == 0) f8 = llm__avx2_f8(b[j / 2], h);
                if (type == LLM__KIND_F8) v[j] = _mm256_cvtph_ps(j % 2 ? _mm256_extracti128_si256(f8, 1) : _mm256_castsi256_si128(f8));
                else v[j] = llm__avx2_element8(type, b[j / 2] + j % 2 * 8 * size, h);
                LLM__UNROLL
                for (int r = 0; r < n && vectors == 4; r++) sum[r][j] = _mm256_fmadd_ps(x[r], v[j], sum[r][j]);
            }
            LLM__UNROLL
            for (int r = 0; r < n && vectors == 2; r++) {
                x[0] = _mm256_broadcast_ss(a + r * lda);
                sum[r][0] = _mm256_fmadd_ps(x[0], v[0], sum[r][0]);
                sum[r][1] = _mm256_fmadd_ps(x[0], v[1], sum[r][1]);
            }
        }
        LLM__UNROLL
        for (int p = 0; p < vectors / 2; p++) {
            if (fetch) __builtin_prefetch(ahead[p]);
            b[p] += row;
            ahead[p] += pace;
        }
    }
    llm__avx2_end(m, i, n, first, vectors, sum);
}

/* All rows, six at a time, then those that are left. */
LLM__AVX2_INLINE void llm__avx2_all_rows(const llm__mac *m, const llm__kind type) {
    int i = 0;
    for (; i + 6 <= m->n; i += 6)
        for (int p = 0; p < (m->step ? 2 : 1); p++) {
            if (i) llm__avx2_rows(m, i, 6, p, 2, type, 0);
            else llm__avx2_rows(m, i, 6, p, 2, type, 1);
        }
    const int both = type >= LLM__KIND_BF16 ? 2 : 3; /* so many rows take both panels at once: their sums fit, and pairs of bf16 as well */
    for (int p = 0; p < (m->step ? 2 : 1) && m->n - i > both; p++) {
        if (m->n - i == 5) llm__avx2_rows(m, i, 5, p, 2, type, 1);
        if (m->n - i == 4) llm__avx2_rows(m, i, 4, p, 2, type, 1);
        if (m->n - i == 3) llm__avx2_rows(m, i, 3, p, 2, type, 1);
    }
    if (m->n - i == 3 && both == 3) llm__avx2_rows(m, i, 3, 0, 4, type, 1);
    if (m->n - i == 2) llm__avx2_rows(m, i, 2, 0, 4, type, 1);
    if (m->n - i == 1) llm__avx2_rows(m, i, 1, 0, 4, type, 1);
}

LLM__ALIGN_LOOPS LLM__AVX2 static void llm__avx2_mac(const llm__mac *m) {
    if (m->type == LLM__KIND_F32) llm__avx2_all_rows(m, LLM__KIND_F32);
    else if (m->type == LLM__KIND_F16) llm__avx2_all_rows(m, LLM__KIND_F16);
    else if (m->type == LLM__KIND_F8) llm__avx2_all_rows(m, LLM__KIND_F8);
    else llm__avx2_all_rows(m, LLM__KIND_BF16);
}

/* ---- e4m3, few rows ----
 * A byte's bits below its sign, moved to where the low ones of an f32's exponent and the high ones of its mantissa
 * stand, are 2^-120 of what it stands for, subnormal numbers too. vpmaddubsw with 16 gives 16 bits of them of one
 * column at once, which are the upper halves of what rows 1, 3, 5 ... need, and 16 places below that of rows 0, 2, 4
 * ...: eight instructions for 32 weights, where vcvtph2ps takes 15 (Zen 3: 9 cycles for 64 weights of one token, not
 * 19). Inputs come times 2^88, and sums are multiplied with 2^24 at the end: 2^-8 is left, as mac has it, whose bits
 * these are as long as inputs are below 2^40. */

/* Even and odd rows of column h of a pair. */
LLM__AVX2_INLINE void llm__avx2_f8_column(const uint8_t *p, const int h, __m256 v[2]) {
    const __m256i mask = _mm256_set1_epi32((int)0x87F00000u), move = _mm256_set1_epi16(h ? 16 << 8 : 16);
    const __m256i x = _mm256_maddubs_epi16(move, _mm256_loadu_si256((const __m256i *)(const void *)p));
    v[0] = _mm256_castsi256_ps(_mm256_and_si256(mask, _mm256_slli_epi32(x, 16)));
    v[1] = _mm256_castsi256_ps(_mm256_and_si256(mask, x));
}

/* Even and odd rows' sums in order, times the panel's factors, to c. */
LLM__AVX2_INLINE void llm__avx2_f8_end(const llm__mac *m, const int panel, const __m256 even, const __m256 odd, float *c) {
    const __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
    LLM__UNROLL
    for (int h = 0; h < 2; h++, c += 8) {
        __m256 y = h ? _mm256_permute2f128_ps(low, high, 0x31) : _mm256_permute2f128_ps(low, high, 0x20);
        y = _mm256_mul_ps(_mm256_mul_ps(y, _mm256_set1_ps(0x1p24f)), _mm256_loadu_ps(m->factor[panel] + 8 * h));
        _mm256_storeu_ps(c, m->add ? _mm256_add_ps(_mm256_loadu_ps(c), y) : y);
    }
}

/* n rows of inputs x (n, LLM__F8_COLS) and one panel, or both. */
LLM__AVX2_INLINE void llm__avx2_f8_rows(const llm__mac *m, const int n, const int first, const int panels, const float *x) {
    const uint8_t *b[2], *ahead = m->fetch[0];
    const int64_t step = 2 * (int64_t)m->ldb, pace = 2 * m->pace;
    __m256 sum[LLM__F8_BITS][2][2], v[2];
    LLM__UNROLL
    for (int p = 0; p < panels; p++) b[p] = (const uint8_t *)m->b[first + p];
    LLM__UNROLL
    for (int r = 0; r < n; r++) LLM__UNROLL
    for (int j = 0; j < 2 * panels; j++) sum[r][j / 2][j % 2] = _mm256_setzero_ps();
    for (int k = m->k; k > 0; k -= 2) {
        LLM__UNROLL
        for (int h = 0; h < 2; h++, x++) LLM__UNROLL
        for (int p = 0; p < panels; p++) {
            llm__avx2_f8_column(b[p], h, v);
            LLM__UNROLL
            for (int r = 0; r < n; r++) {
                const __m256 in = _mm256_broadcast_ss(x + r * LLM__F8_COLS);
                sum[r][p][0] = _mm256_fmadd_ps(in, v[0], sum[r][p][0]);
                sum[r][p][1] = _mm256_fmadd_ps(in, v[1], sum[r][p][1]);
            }
        }
        LLM__UNROLL
        for (int p = 0; p < panels; p++) b[p] += step;
        if (!first) __builtin_prefetch(ahead);
        ahead += pace;
    }
    LLM__UNROLL
    for (int r = 0; r < n; r++) LLM__UNROLL
    for (int p = 0; p < panels; p++)
        llm__avx2_f8_end(m, first + p, sum[r][p][0], sum[r][p][1], m->c + r * (int64_t)m->ldc + (first + p) * m->step);
}

LLM__ALIGN_LOOPS LLM__AVX2 static void llm__avx2_mac_f8(const llm__mac *m) {
    float x[LLM__F8_BITS][LLM__F8_COLS] __attribute__((aligned(32)));
    for (int r = 0; r < m->n; r++) {
        const float *a = llm__mac_a(m, r, 0);
        int k = 0;
        for (; k + 8 <= m->k; k += 8) _mm256_store_ps(x[r] + k, _mm256_mul_ps(_mm256_loadu_ps(a + k), _mm256_set1_ps(0x1p88f)));
        for (; k < m->k; k++) x[r][k] = a[k] * 0x1p88f;
    }
    if (m->n == 1) llm__avx2_f8_rows(m, 1, 0, 2, x[0]);
    if (m->n == 2) llm__avx2_f8_rows(m, 2, 0, 2, x[0]);
    for (int p = 0; p < 2 && m->n > 2; p++) {
        if (m->n == 3) llm__avx2_f8_rows(m, 3, p, 1, x[0]);
        if (m->n == 4) llm__avx2_f8_rows(m, 4, p, 1, x[0]);
    }
}

/* The kernels of >>bodies, compiled with these instructions. */
LLM__AVX2 static void llm__avx2_widen_f8(const uint8_t *src, int n, int pair, int bf16, uint16_t *to) {
    llm__body_widen_f8(src, n, pair, bf16, to, llm__avx2_f8_pairs, llm__avx2_half);
}

LLM__AVX2 static void llm__avx2_finish(const llm__finish *f, const llm__block *b, const float *g, const float *u, int64_t token, int n) {
    llm__body_finish(f, b, g, u, token, n);
}

LLM__AVX2 static float llm__avx2_sum(const float *x, int n) { return llm__body_sum(x, n); }
LLM__AVX2 static float llm__avx2_dot(const float *x, const float *y, int n) { return llm__body_dot(x, y, n); }
LLM__AVX2 static void llm__avx2_add(float *x, const float *y, float scale, int n) { llm__body_add(x, y, scale, n); }

LLM__AVX2 static void llm__avx2_affine(float *dst, const float *src, float shift, float scale, const float *w, const float *b, int n) {
    llm__body_affine(dst, src, shift, scale, w, b, n);
}

LLM__AVX2 static void llm__avx2_rotate(float *x, const float *rope, int half, int interleaved) {
    llm__body_rotate(x, rope, half, interleaved);
}
LLM__AVX2 static void llm__avx2_to_half(uint16_t *dst, const float *src, int n) { llm__body_to_half(dst, src, n, llm__avx2_narrow); }
LLM__AVX2 static void llm__avx2_to_bf16(uint16_t *dst, const float *src, int n) { llm__body_to_bf16(dst, src, n); }

LLM__AVX2 static void llm__avx2_expand(llm_kv_type type, const uint8_t *src, int n, float *low, float *high) {
    llm__body_expand(type, src, n, low, high, llm__avx2_half, llm__avx2_bytes);
}

LLM__AVX2 static void llm__avx2_bias(llm__attend *t, int block) { llm__body_bias(t, block); }
LLM__AVX2 static void llm__avx2_soften(llm__attend *t, int block) { llm__body_soften(t, block, 1, 0); }
LLM__AVX2 static void llm__avx2_conv(const llm__conv *c) { llm__body_conv(c); }
LLM__AVX2 static void llm__avx2_recur(const llm__recur *c) { llm__body_recur(c); }
LLM__AVX2 static void llm__avx2_gate(float *x, const float *gate, int n, int silu) { llm__body_gate(x, gate, n, silu); }
LLM__AVX2 static float llm__avx2_top(const float *x, int32_t n, int *bad) { return llm__body_top(x, n, bad); }

LLM__AVX2 static double llm__avx2_weigh(const float *x, float *w, int32_t n, float max, float scale) {
    return llm__body_weigh(x, w, n, max, scale);
}

/* A link of the chains of `peak`: products that add up in 16 bits, as those of weights of up to 6 bits do. */
LLM__AVX2_INLINE void llm__avx2_link(llm__chain *sum, const llm__chain *a, const llm__chain *b) {
    const __m256i s = _mm256_loadu_si256((const __m256i *)sum->v);
    const __m256i x = _mm256_loadu_si256((const __m256i *)a->v);
    (void)b;
    _mm256_storeu_si256((__m256i *)sum->v, _mm256_add_epi16(s, _mm256_maddubs_epi16(s, x)));
}
LLM__AVX2 static double llm__avx2_peak(int64_t turns) { return llm__peak_of(turns, 32, llm__avx2_link); }

LLM__PRIVATE const llm__kernels llm__kernels_avx2 = {
    .quantise = llm__avx2_quantise, .quantise_fine = llm__avx2_quantise_fine, .quantise_low = llm__avx2_quantise_low,
    .finish = llm__avx2_finish, .sum = llm__avx2_sum, .dot = llm__avx2_dot, .add = llm__avx2_add,
    .affine = llm__avx2_affine, .rotate = llm__avx2_rotate, .to_half = llm__avx2_to_half, .to_bf16 = llm__avx2_to_bf16,
    .expand = llm__avx2_expand, .bias = llm__avx2_bias, .soften = llm__avx2_soften,
    .conv = llm__avx2_conv, .recur = llm__avx2_recur, .gate = llm__avx2_gate, .top = llm__avx2_top, .weigh = llm__avx2_weigh,
    .mac = llm__avx2_mac, .mac_f8 = llm__avx2_mac_f8, .widen_f8 = llm__avx2_widen_f8, .product = llm__avx2_product, .peak = llm__avx2_peak,
};

#if LLM__HAS_2021
#ifdef LLM__TEST_EMULATE_AVX512
#define LLM__AVXVNNI LLM__AVX2
#else
#define LLM__AVXVNNI __attribute__((target("avx2,fma,f16c,avxvnni")))
#endif

/* AVX-VNNI: vpdpbusd in 32 bytes. Four products added to 32 bits, no overflow to care about. */

/* Sums u q of the vectors [from, to) of an unpacked block, half by half, for n tokens. The loop over columns is kept a loop: wholly
 * unrolled, compilers reorder the additions into a tree that does not fit the registers. */
LLM__FORCE LLM__AVXVNNI void llm__avxvnni_sums(const int n, const llm__cooked *w, const int from, const int to, const int8_t *q,
                                               __m256i (*sum)[2]) {
    LLM__UNROLL
    for (int t = 0; t < n; t++) sum[t][0] = sum[t][1] = _mm256_setzero_si256();
    LLM__UNROLL_2
    for (int i = from; i < to; i++) {
        const __m256i *at = (const __m256i *)(const void *)(w->u + 64 * i), w0 = _mm256_load_si256(at), w1 = _mm256_load_si256(at + 1);
        LLM__UNROLL
        for (int t = 0; t < n; t++) {
            const __m256i x = llm__avx2_four(q + 32 * t + 4 * i);
            sum[t][0] = _mm256_dpbusd_avx_epi32(sum[t][0], w0, x);
            sum[t][1] = _mm256_dpbusd_avx_epi32(sum[t][1], w1, x);
        }
    }
}

/* n <= 4 tokens' products with a block, added to out (n, 16): see llm__scalar_multiply. Two parts where the halves of the columns have
 * scales of their own, the latter first. */
LLM__FORCE LLM__AVXVNNI void llm__avxvnni_step(const int x2, const int n, const llm__cooked *w, const llm__act *a, size_t at, float *out) {
    LLM__UNROLL
    for (int part = x2; part >= 0; part--) {
        __m256i sum[4][2];
        llm__avxvnni_sums(n, w, part ? 4 : 0, part || !x2 ? 8 : 4, a->q + 32 * at, sum);
        LLM__UNROLL
        for (int t = 0; t < n; t++)
            LLM__UNROLL
            for (int h = 0; h < 2; h++) {
                float *sums_at = out + LLM__ROWS * t + 8 * h;
                const __m256 d = _mm256_mul_ps(_mm256_load_ps(w->d[part] + 8 * h), _mm256_set1_ps(a->d[at + (size_t)t]));
                __m256 acc = _mm256_fmadd_ps(_mm256_load_ps(w->m[part] + 8 * h), _mm256_set1_ps(a->s[2 * (at + (size_t)t) + (size_t)part]),
                                             _mm256_loadu_ps(sums_at));
                _mm256_storeu_ps(sums_at, _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(sum[t][h]), acc));
            }
    }
}

/* All tokens of a tile: four at a time, then those that are left one by one. */
LLM__FORCE LLM__AVXVNNI void llm__avxvnni_tile(const int x2, const llm__cooked *w, const llm__product *p, size_t at, float *out) {
    const llm__act a = p->act; /* its pointers in registers */
    const int n = p->n;
    int t = 0;
    for (; t + 4 <= n; t += 4, at += 4, out += 4 * LLM__ROWS) llm__avxvnni_step(x2, 4, w, &a, at, out);
    for (; t < n; t++, at++, out += LLM__ROWS) llm__avxvnni_step(x2, 1, w, &a, at, out);
}

LLM__AVXVNNI static LLM__NOINLINE void llm__avxvnni_multiply(llm__kind kind, const llm__cooked (*w)[2], int n, const llm__product *p,
                                                             size_t at) {
    for (int b = 0; b < n; b++, at += (size_t)p->n)
        for (int place = 0; place < p->pair; place++) {
            if (llm__kind_x2(kind)) llm__avxvnni_tile(1, &w[b][place], p, at, p->out + place * LLM__OUT);
            else llm__avxvnni_tile(0, &w[b][place], p, at, p->out + place * LLM__OUT);
        }
}

LLM__AVX2 static LLM__NOINLINE void llm__avx2_cook(llm__kind kind, llm__offset offset, int pair, int ahead, const uint8_t *w, int n,
                                                   llm__cooked (*to)[2]) {
    LLM__EACH_KIND(kind, llm__cook, llm__kind_table(kind), offset, pair, ahead, w, n, to, llm__avx2_half, llm__avx2_bytes,
                   llm__avx2_look_up)
}

LLM__AVXVNNI static void llm__avxvnni_product(llm__kind kind, const llm__product *p) {
    llm__walk_cooked(kind, LLM__UNSIGNED, llm__avx2_cook, llm__avxvnni_multiply, p);
}

/* A link of the chains of `peak`. */
LLM__FORCE LLM__AVXVNNI void llm__avxvnni_link(llm__chain *sum, const llm__chain *a, const llm__chain *b) {
    const __m256i s = _mm256_loadu_si256((const __m256i *)sum->v);
    const __m256i x = _mm256_loadu_si256((const __m256i *)a->v), y = _mm256_loadu_si256((const __m256i *)b->v);
    _mm256_storeu_si256((__m256i *)sum->v, _mm256_dpbusd_avx_epi32(s, x, y));
}
LLM__AVXVNNI static double llm__avxvnni_peak(int64_t turns) { return llm__peak_of(turns, 32, llm__avxvnni_link); }

LLM__PRIVATE const llm__kernels llm__kernels_avxvnni = {
    .quantise = llm__avx2_quantise, .finish = llm__avx2_finish, .sum = llm__avx2_sum, .dot = llm__avx2_dot, .add = llm__avx2_add,
    .affine = llm__avx2_affine, .rotate = llm__avx2_rotate, .to_half = llm__avx2_to_half, .to_bf16 = llm__avx2_to_bf16,
    .expand = llm__avx2_expand, .bias = llm__avx2_bias, .soften = llm__avx2_soften,
    .conv = llm__avx2_conv, .recur = llm__avx2_recur, .gate = llm__avx2_gate, .top = llm__avx2_top, .weigh = llm__avx2_weigh,
    .mac = llm__avx2_mac, .widen_f8 = llm__avx2_widen_f8, .product = llm__avxvnni_product, .peak = llm__avxvnni_peak,
};

#endif
#endif
