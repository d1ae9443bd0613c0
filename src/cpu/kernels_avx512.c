/* clang-format off */
#include "cpu/kernels_avx512.h"
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
#include "cpu/kernels_avx2.h"

#if LLM__X86

LLM__AVX512_INLINE void llm__avx512_narrow(uint16_t *p, llm__v16 x) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(_mm512_loadu_ps(x.v), _MM_FROUND_TO_NEAREST_INT));
}

LLM__AVX512_INLINE void llm__avx512_int8(int8_t *q, const int32_t *x) {
    _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(_mm512_loadu_si512((const void *)x)));
}

LLM__AVX512_INLINE __m512i llm__avx512_four(const int8_t *q) { /* 4 activations in every lane */
    int32_t four;
    memcpy(&four, q, 4);
    return _mm512_set1_epi32(four);
}

/* sum + u q over 16 columns of all 16 rows, four bytes a lane: sums of 32 bits. run as in AVX2: how many vectors may be added up in 16
 * bits before they are widened; here are four, so it matters from 6 bits on. */
LLM__AVX512_INLINE __m512i llm__avx512_quads(const int run, __m512i sum, const __m512i v[4], const int8_t *q) {
    const __m512i ones = _mm512_set1_epi16(1);
    __m512i part = _mm512_setzero_si512();
    LLM__UNROLL
    for (int i = 0; i < 4; i++) {
        __m512i x = llm__avx512_four(q + 4 * i), w = v[i];
        if (!run) { /* the sign of the weight to the activation */
            x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
            w = _mm512_abs_epi8(w);
        }
        part = _mm512_add_epi16(part, _mm512_maddubs_epi16(w, x));
        if (run && run < 4 ? i % 2 == 0 : run && i < 3) continue; /* room for one more */
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(part, ones));
        part = _mm512_setzero_si512();
    }
    return sum;
}

/* The same with vpdpbusd, which adds to 32 bits itself. Weights are unsigned bytes. */
LLM__FORCE LLM__AVX512VNNI __m512i llm__avx512vnni_quads(const int run, __m512i sum, const __m512i v[4], const int8_t *q) {
    (void)run;
    LLM__UNROLL
    for (int i = 0; i < 4; i++) sum = _mm512_dpbusd_epi32(sum, v[i], llm__avx512_four(q + 4 * i));
    return sum;
}

typedef __m512i (*llm__avx512_quads_fn)(const int run, __m512i sum, const __m512i v[4], const int8_t *q);

/* All tokens of a tile with one block or a pair, which stay in registers: see llm__scalar_multiply. */
LLM__AVX512_INLINE void llm__avx512_tile(const llm__kind kind, const int pair, const llm__offset offset, const llm__avx512_quads_fn sum,
                                         const llm__cooked *w, const llm__product *p, size_t at) {
    const int run = llm__kind_run(kind), x2 = llm__kind_x2(kind), zero = offset == LLM__APART ? llm__kind_zero(kind, offset) : 0;
    const int with_m = offset != LLM__APART || llm__kind_info(kind).min != LLM__SCALE_NONE;
    __m512i v[2][8], low[2], high[2];
    __m512 d[2][2], m[2][2], taken[2];
    float *to = p->out;
    LLM__UNROLL
    for (int r = 0; r < pair; r++) {
        LLM__UNROLL
        for (int h = 0; h <= x2; h++) d[r][h] = _mm512_load_ps(w[r].d[h]), m[r][h] = _mm512_load_ps(w[r].m[h]);
        LLM__UNROLL
        for (int i = 0; i < 8; i++) v[r][i] = _mm512_load_si512(w[r].u + 64 * i);
        taken[r] = llm__avx512_taken(d[r][0]);
    }
    for (int t = 0; t < p->n; t++, at++, to += LLM__ROWS) {
        llm__fetch(p->fetch, p->ahead, p->near, pair * llm__kind_block(kind), t, p->n);
        const int32_t *n = p->act.n + 2 * at;
        const __m512i former = _mm512_set1_epi32(LLM__MAGIC + zero * (x2 ? n[0] - n[1] : n[0])),
            latter = _mm512_set1_epi32(x2 ? zero * n[1] : 0);
        LLM__UNROLL
        for (int r = 0; r < pair; r++) {
            low[r] = sum(run, former, v[r], p->act.q + 32 * at);
            high[r] = sum(run, x2 ? latter : low[r], v[r] + 4, p->act.q + 32 * at + 16);
        }
        const __m512 scale = _mm512_set1_ps(p->act.d[at]), s0 = _mm512_set1_ps(p->act.s[2 * at]), s1 = _mm512_set1_ps(p->act.s[2 * at + 1]);
        LLM__UNROLL
        for (int r = 0; r < pair; r++) {
            __m512 acc = _mm512_loadu_ps(to + r * LLM__OUT);
            if (with_m) acc = _mm512_fmadd_ps(m[r][0], s0, acc);
            if (with_m && x2) acc = _mm512_fmadd_ps(m[r][1], s1, acc);
            __m512 x = _mm512_fmadd_ps(d[r][0], _mm512_castsi512_ps(x2 ? low[r] : high[r]), taken[r]);
            if (x2) x = _mm512_fmadd_ps(d[r][1], _mm512_cvtepi32_ps(high[r]), x);
            _mm512_storeu_ps(to + r * LLM__OUT, _mm512_fmadd_ps(x, scale, acc));
        }
    }
}

LLM__AVX512_INLINE void llm__avx512_block(const llm__kind kind, const llm__cooked *w, const llm__product *p, size_t at) {
    llm__avx512_tile(kind, 1, LLM__SIGNED, llm__avx512_quads, w, p, at);
}

LLM__FORCE LLM__AVX512VNNI void llm__avx512vnni_block(const llm__kind kind, const llm__cooked *w, const llm__product *p, size_t at) {
    llm__avx512_tile(kind, 1, LLM__APART, llm__avx512vnni_quads, w, p, at);
}

LLM__FORCE LLM__AVX512VNNI void llm__avx512vnni_pair(const llm__kind kind, const llm__cooked *w, const llm__product *p, size_t at) {
    llm__avx512_tile(kind, 2, LLM__APART, llm__avx512vnni_quads, w, p, at);
}

LLM__AVX512 static void llm__avx512_product(llm__kind kind, const llm__product *p) {
    const int8_t *table = llm__kind_table(kind);
    LLM__EACH_KIND(kind, llm__walk, table, 1, LLM__SIGNED, llm__avx512_block, p, llm__avx512_half, llm__avx512_bytes, llm__avx512_look_up)
}

LLM__ALIGN_LOOPS LLM__AVX512VNNI static LLM__NOINLINE void llm__avx512vnni_two(llm__kind kind, const llm__product *p) {
    const int8_t *table = llm__kind_table(kind);
    LLM__EACH_KIND(kind, llm__walk, table, 2, LLM__APART, llm__avx512vnni_pair, p, llm__avx512_half, llm__avx512_bytes, llm__avx512_look_up)
}

/* Blocks without a second one are few: one loop serves all formats. */
LLM__PRIVATE LLM__AVX512VNNI void llm__avx512vnni_product(llm__kind kind, const llm__product *p) {
    const int8_t *table = llm__kind_table(kind);
    if (p->pair == 2) llm__avx512vnni_two(kind, p);
    else llm__walk(kind, table, 1, LLM__APART, llm__avx512vnni_block, p, llm__avx512_half, llm__avx512_bytes, llm__avx512_look_up);
}

/* 16 elements of b as f32; of bf16, the upper half of f32, 16 pairs' former or latter ones. */
LLM__AVX512_INLINE __m512 llm__avx512_load(const llm__kind type, const void *p, int64_t i, const int latter) {
    if (type == LLM__KIND_F32) return _mm512_loadu_ps((const float *)p + i);
    const uint16_t *half = (const uint16_t *)p + i;
    if (type == LLM__KIND_F16) return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)half));
    if (type == LLM__KIND_F8) return _mm512_cvtph_ps(llm__avx2_f8((const uint8_t *)p + i, latter));
    const __m512i pairs = _mm512_loadu_si512((const void *)half);
    return _mm512_castsi512_ps(latter ? _mm512_and_si512(pairs, _mm512_set1_epi32(-65536)) : _mm512_slli_epi32(pairs, 16));
}

/* What the sums of the rows [i, i + n) start with, and where they go. */
LLM__AVX512_INLINE void llm__avx512_begin(const llm__mac *m, int i, const int n, __m512 (*sum)[2]) {
    float *c = m->c + (int64_t)i * m->ldc;
    LLM__UNROLL
    for (int r = 0; r < n; r++, c += m->ldc)
        LLM__UNROLL
        for (int j = 0; j < 2; j++)
            sum[r][j] = m->scale ? _mm512_mul_ps(_mm512_loadu_ps(llm__mac_c(m, c, 16 * j)), _mm512_set1_ps(m->scale[i + r]))
                                 : _mm512_setzero_ps();
}

LLM__AVX512_INLINE void llm__avx512_end(const llm__mac *m, int i, const int n, __m512 (*sum)[2]) {
    float *c = m->c + (int64_t)i * m->ldc;
    LLM__UNROLL
    for (int r = 0; r < n; r++) {
        if (!m->factor[0]) break;
        LLM__UNROLL
        for (int j = 0; j < 2; j++) sum[r][j] = _mm512_mul_ps(sum[r][j], _mm512_loadu_ps(m->factor[j]));
    }
    LLM__UNROLL
    for (int r = 0; r < n; r++, c += m->ldc) {
        if (!m->add) break;
        LLM__UNROLL
        for (int j = 0; j < 2; j++) sum[r][j] = _mm512_add_ps(_mm512_loadu_ps(llm__mac_c(m, c, 16 * j)), sum[r][j]);
    }
    c = m->c + (int64_t)i * m->ldc;
    LLM__UNROLL
    for (int r = 0; r < n; r++, c += m->ldc)
        LLM__UNROLL
        for (int j = 0; j < 2; j++) _mm512_storeu_ps(llm__mac_c(m, c, 16 * j), sum[r][j]);
}

/* See llm__rows_fn. The sums of twelve rows fill 24 registers. */
LLM__AVX512_INLINE void llm__avx512_rows(const llm__mac *m, int i, const int n, const llm__kind type) {
    const int together = type >= LLM__KIND_BF16 ? 2 : 1; /* steps of k that are stored together */
    __m512 sum[12][2], v[2];
    llm__avx512_begin(m, i, n, sum);
    for (int k = 0; k < m->k; k += together)
        LLM__UNROLL
        for (int h = 0; h < together; h++)
            LLM__UNROLL
            for (int r = 0; r < n; r++) {
                LLM__UNROLL
                for (int j = 0; j < 2 && r == 0; j++) {
                    llm__mac_fetch(m, j, k + h);
                    v[j] = llm__avx512_load(type, m->b[j], llm__mac_b(m, k, 16 * j, type), h);
                }
                const __m512 x = _mm512_set1_ps(*llm__mac_a(m, i + r, k + h));
                LLM__UNROLL
                for (int j = 0; j < 2; j++) sum[r][j] = _mm512_fmadd_ps(x, v[j], sum[r][j]);
            }
    llm__avx512_end(m, i, n, sum);
}

LLM__PRIVATE LLM__AVX512 void llm__avx512_mac(const llm__mac *m) { llm__mac_types(m, 12, llm__avx512_rows); }

LLM__PRIVATE LLM__AVX512 void llm__avx512_quantise(const llm__act *a, size_t at, const float *x, int64_t stride, int n, int per) {
    llm__body_quantise(a, at, x, stride, n, per, llm__avx512_int8);
}

LLM__PRIVATE LLM__AVX512 void llm__avx512_finish(const llm__finish *f, const llm__block *b, const float *g, const float *u, int64_t token,
                                                 int n) {
    llm__body_finish(f, b, g, u, token, n);
}

LLM__PRIVATE LLM__AVX512 void llm__avx512_widen_f8(const uint8_t *src, int n, int pair, int bf16, uint16_t *to) {
    llm__body_widen_f8(src, n, pair, bf16, to, llm__avx2_f8_pairs, llm__avx512_half);
}

LLM__PRIVATE LLM__AVX512 float llm__avx512_sum(const float *x, int n) { return llm__body_sum(x, n); }
LLM__PRIVATE LLM__AVX512 float llm__avx512_dot(const float *x, const float *y, int n) { return llm__body_dot(x, y, n); }
LLM__PRIVATE LLM__AVX512 void llm__avx512_add(float *x, const float *y, float scale, int n) { llm__body_add(x, y, scale, n); }

LLM__PRIVATE LLM__AVX512 void llm__avx512_affine(float *dst, const float *src, float shift, float scale, const float *w, const float *b,
                                                 int n) {
    llm__body_affine(dst, src, shift, scale, w, b, n);
}

LLM__PRIVATE LLM__AVX512 void llm__avx512_rotate(float *x, const float *rope, int half, int interleaved) {
    llm__body_rotate(x, rope, half, interleaved);
}
LLM__PRIVATE LLM__AVX512 void llm__avx512_to_half(uint16_t *dst, const float *src, int n) {
    llm__body_to_half(dst, src, n, llm__avx512_narrow);
}
LLM__PRIVATE LLM__AVX512 void llm__avx512_to_bf16(uint16_t *dst, const float *src, int n) { llm__body_to_bf16(dst, src, n); }

LLM__PRIVATE LLM__AVX512 void llm__avx512_expand(llm_kv_type type, const uint8_t *src, int n, float *low, float *high) {
    llm__body_expand(type, src, n, low, high, llm__avx512_half, llm__avx512_bytes);
}

LLM__PRIVATE LLM__AVX512 void llm__avx512_bias(llm__attend *t, int block) { llm__body_bias(t, block); }
LLM__PRIVATE LLM__AVX512 void llm__avx512_soften(llm__attend *t, int block) { llm__body_soften(t, block, 1, 1); }
LLM__PRIVATE LLM__AVX512 void llm__avx512_conv(const llm__conv *c) { llm__body_conv(c); }
LLM__PRIVATE LLM__AVX512 void llm__avx512_recur(const llm__recur *c) { llm__body_recur(c); }
LLM__PRIVATE LLM__AVX512 void llm__avx512_gate(float *x, const float *gate, int n, int silu) { llm__body_gate(x, gate, n, silu); }
LLM__PRIVATE LLM__AVX512 float llm__avx512_top(const float *x, int32_t n, int *bad) { return llm__body_top(x, n, bad); }

LLM__PRIVATE LLM__AVX512 double llm__avx512_weigh(const float *x, float *w, int32_t n, float max, float scale) {
    return llm__body_weigh(x, w, n, max, scale);
}

/* A link of the chains of `peak`: products that add up in 16 bits, as those of weights of up to 6 bits do. */
LLM__AVX512_INLINE void llm__avx512_link(llm__chain *sum, const llm__chain *a, const llm__chain *b) {
    const __m512i s = _mm512_loadu_si512(sum->v);
    const __m512i x = _mm512_loadu_si512(a->v);
    (void)b;
    _mm512_storeu_si512(sum->v, _mm512_add_epi16(s, _mm512_maddubs_epi16(s, x)));
}
LLM__AVX512 static double llm__avx512_peak(int64_t turns) { return llm__peak_of(turns, 64, llm__avx512_link); }

/* A link of the chains of `peak`. */
LLM__FORCE LLM__AVX512VNNI void llm__avx512vnni_link(llm__chain *sum, const llm__chain *a, const llm__chain *b) {
    const __m512i s = _mm512_loadu_si512(sum->v);
    const __m512i x = _mm512_loadu_si512(a->v), y = _mm512_loadu_si512(b->v);
    _mm512_storeu_si512(sum->v, _mm512_dpbusd_epi32(s, x, y));
}
LLM__PRIVATE LLM__AVX512VNNI double llm__avx512vnni_peak(int64_t turns) { return llm__peak_of(turns, 64, llm__avx512vnni_link); }

LLM__PRIVATE const llm__kernels llm__kernels_avx512 = {
    .quantise = llm__avx512_quantise, .finish = llm__avx512_finish, .sum = llm__avx512_sum, .dot = llm__avx512_dot,
    .add = llm__avx512_add, .affine = llm__avx512_affine, .rotate = llm__avx512_rotate, .to_half = llm__avx512_to_half,
    .to_bf16 = llm__avx512_to_bf16, .expand = llm__avx512_expand, .bias = llm__avx512_bias, .soften = llm__avx512_soften,
    .conv = llm__avx512_conv, .recur = llm__avx512_recur, .gate = llm__avx512_gate,
    .top = llm__avx512_top, .weigh = llm__avx512_weigh, .mac = llm__avx512_mac,
    .widen_f8 = llm__avx512_widen_f8, .product = llm__avx512_product, .peak = llm__avx512_peak,
};

LLM__PRIVATE const llm__kernels llm__kernels_avx512vnni = {
    .quantise = llm__avx512_quantise, .finish = llm__avx512_finish, .sum = llm__avx512_sum, .dot = llm__avx512_dot,
    .add = llm__avx512_add, .affine = llm__avx512_affine, .rotate = llm__avx512_rotate, .to_half = llm__avx512_to_half,
    .to_bf16 = llm__avx512_to_bf16, .expand = llm__avx512_expand, .bias = llm__avx512_bias, .soften = llm__avx512_soften,
    .conv = llm__avx512_conv, .recur = llm__avx512_recur, .gate = llm__avx512_gate,
    .top = llm__avx512_top, .weigh = llm__avx512_weigh, .mac = llm__avx512_mac,
    .widen_f8 = llm__avx512_widen_f8, .product = llm__avx512vnni_product,
    .peak = llm__avx512vnni_peak,
};

#if LLM__HAS_2021
#ifdef LLM__TEST_EMULATE_AVX512
#define LLM__AVX512BF16
#else
#define LLM__AVX512BF16 __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#endif

/* vdpbf16ps adds two products of bf16 to each lane's f32: as llm__avx512_rows, two steps of k at once. */
LLM__FORCE LLM__AVX512BF16 void llm__avx512bf16_rows(const llm__mac *m, int i, const int n, const llm__kind type) {
    __m512 sum[12][2];
    __m512i v[2];
    llm__avx512_begin(m, i, n, sum);
    for (int k = 0; k < m->k; k += 2)
        LLM__UNROLL
        for (int r = 0; r < n; r++) {
            LLM__UNROLL
            for (int j = 0; j < 2 && r == 0; j++) {
                llm__mac_fetch(m, j, k);
                llm__mac_fetch(m, j, k + 1); /* cores forget some */
                v[j] = _mm512_loadu_si512((const uint16_t *)m->b[j] + llm__mac_b(m, k, 16 * j, type));
            }
            const __m512i x = llm__avx512_four((const int8_t *)(const void *)llm__mac_half(m, i + r, k)); /* a pair in every lane */
            LLM__UNROLL
            for (int j = 0; j < 2; j++) sum[r][j] = _mm512_dpbf16_ps(sum[r][j], (__m512bh)v[j], (__m512bh)x);
        }
    llm__avx512_end(m, i, n, sum);
}

LLM__AVX512BF16 static void llm__avx512bf16_mac(const llm__mac *m) {
    if (m->half) llm__mac_all(m, 12, LLM__KIND_BF16, llm__avx512bf16_rows);
    else llm__avx512_mac(m);
}

LLM__PRIVATE const llm__kernels llm__kernels_avx512bf16 = {
    .quantise = llm__avx512_quantise, .finish = llm__avx512_finish, .sum = llm__avx512_sum, .dot = llm__avx512_dot,
    .add = llm__avx512_add, .affine = llm__avx512_affine, .rotate = llm__avx512_rotate, .to_half = llm__avx512_to_half,
    .to_bf16 = llm__avx512_to_bf16, .expand = llm__avx512_expand, .bias = llm__avx512_bias, .soften = llm__avx512_soften,
    .conv = llm__avx512_conv, .recur = llm__avx512_recur, .gate = llm__avx512_gate,
    .top = llm__avx512_top, .weigh = llm__avx512_weigh, .mac = llm__avx512bf16_mac,
    .widen_f8 = llm__avx512_widen_f8, .product = llm__avx512vnni_product, .bf16 = 1,
    .peak = llm__avx512vnni_peak,
};
#endif
#endif
