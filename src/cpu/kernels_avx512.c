/* ---------------------------------------------------------------------------
 * >>kernels-avx512   Products with 32 registers of 64 bytes: all 16 rows at a time, with and without vpdpbusd.
 * ---------------------------------------------------------------------------
 * Eight registers hold a whole block, so tokens are taken one by one: 8 vpdpbusd, and for the floats a multiplication and one fused
 * multiply-add, or two where there are minimums: 10 or 11 operations of which 8 are the product. That is the ceiling: 80 or 73 % of what
 * vpdpbusd alone would reach. Zero points cost nothing, for the sums start with them. Two chains, of the first and the latter 16 columns,
 * hide the latency; where these have scales of their own, the chains are simply not added up.
 *
 * One block at a time would load as often as it multiplies, and a core that does two of each a cycle waits for the loads. So blocks of two
 * groups of 16 rows go together, which fill 16 registers, and an activation that is spread over a register serves both. Without VNNI the
 * 16-bit sums of AVX2 serve again, for one block. */
#ifdef LLM__TEST_EMULATE_AVX512
#define LLM__AVX512
#define LLM__AVX512VNNI
#else
#define LLM__AVX512 __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")))
#define LLM__AVX512VNNI __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#endif
#define LLM__AVX512_INLINE LLM__FORCE LLM__AVX512

LLM__AVX512_INLINE llm__v16 llm__avx512_half(const uint16_t *p) {
    llm__v16 r;
    _mm512_storeu_ps(r.v, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p)));
    return r;
}

LLM__AVX512_INLINE llm__v16 llm__avx512_bytes(const uint8_t *p, int is_unsigned) {
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    llm__v16 r;
    _mm512_storeu_ps(r.v, _mm512_cvtepi32_ps(is_unsigned ? _mm512_cvtepu8_epi32(b) : _mm512_cvtepi8_epi32(b)));
    return r;
}

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

/* Scales have at most 19 bits that count, so d * 1.5 * 2^23 is exact in f32, and converting a sum costs nothing: the sum starts with the bits
 * of 1.5 * 2^23, which makes it that float plus the sum, and the multiplication by d takes d * 1.5 * 2^23 off again, rounding once. */
enum { LLM__MAGIC = 0x4B400000 };

/* d * -1.5 * 2^23. */
LLM__AVX512_INLINE __m512 llm__avx512_taken(__m512 d) { return _mm512_mul_ps(d, _mm512_set1_ps(-12582912.0f)); }

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
        llm__fetch(p->fetch, pair * llm__kind_block(kind), t, p->n);
        const int32_t *n = p->act.n + 2 * at;
        const __m512i former = _mm512_set1_epi32(LLM__MAGIC + zero * (x2 ? n[0] - n[1] : n[0])), latter = _mm512_set1_epi32(x2 ? zero * n[1] : 0);
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
    LLM__EACH_KIND(kind, llm__walk, 1, LLM__SIGNED, llm__avx512_block, p, llm__avx512_half, llm__avx512_bytes, llm__avx2_look_up)
}

LLM__ALIGN_LOOPS LLM__AVX512VNNI static LLM__NOINLINE void llm__avx512vnni_two(llm__kind kind, const llm__product *p) {
    LLM__EACH_KIND(kind, llm__walk, 2, LLM__APART, llm__avx512vnni_pair, p, llm__avx512_half, llm__avx512_bytes, llm__avx2_look_up)
}

/* Blocks without a second one are few: one loop serves all formats. */
LLM__AVX512VNNI static void llm__avx512vnni_product(llm__kind kind, const llm__product *p) {
    if (p->pair == 2) llm__avx512vnni_two(kind, p);
    else llm__walk(kind, 1, LLM__APART, llm__avx512vnni_block, p, llm__avx512_half, llm__avx512_bytes, llm__avx2_look_up);
}

/* 16 elements of b as f32; of bf16, the upper half of f32, 16 pairs' former or latter ones. */
LLM__AVX512_INLINE __m512 llm__avx512_load(const llm__kind type, const void *p, int64_t i, const int latter) {
    if (type == LLM__KIND_F32) return _mm512_loadu_ps((const float *)p + i);
    const uint16_t *half = (const uint16_t *)p + i;
    if (type == LLM__KIND_F16) return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)half));
    const __m512i pairs = _mm512_loadu_si512((const void *)half);
    return _mm512_castsi512_ps(latter ? _mm512_and_si512(pairs, _mm512_set1_epi32(-65536)) : _mm512_slli_epi32(pairs, 16));
}

LLM__AVX512_INLINE __m512 llm__avx512_spread(const float *x) { return _mm512_set1_ps(*x); }

/* Twelve rows fill the registers. */
LLM__MAC(avx512, LLM__AVX512, _mm512, __m512, 16, 12, a, 1, llm__avx512_load, llm__avx512_spread, _mm512_fmadd_ps)
LLM__AVX512 static void llm__avx512_mac(const llm__mac *m) { LLM__MAC_TYPES(llm__avx512_all, m) }

#if LLM__HAS_2021
#ifdef LLM__TEST_EMULATE_AVX512
#define LLM__AVX512BF16
#else
#define LLM__AVX512BF16 __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#endif

/* vdpbf16ps adds two products of bf16 to each lane's f32: the same with half the steps. An input is a pair too. */
LLM__AVX512_INLINE __m512 llm__avx512bf16_load(const llm__kind type, const void *p, int64_t i, const int latter) {
    (void)type, (void)latter;
    return _mm512_loadu_ps((const void *)((const uint16_t *)p + i));
}

LLM__AVX512_INLINE __m512 llm__avx512bf16_spread(const uint16_t *x) {
    return _mm512_castsi512_ps(llm__avx512_four((const int8_t *)(const void *)x));
}

LLM__FORCE LLM__AVX512BF16 __m512 llm__avx512bf16_step(__m512 x, __m512 v, __m512 s) {
    return _mm512_dpbf16_ps(s, (__m512bh)v, (__m512bh)x);
}

LLM__MAC(avx512bf16, LLM__AVX512BF16, _mm512, __m512, 16, 12, half, 0, llm__avx512bf16_load, llm__avx512bf16_spread, llm__avx512bf16_step)
LLM__AVX512BF16 static void llm__avx512bf16_mac(const llm__mac *m) {
    if (m->half) llm__avx512bf16_all(m, LLM__KIND_BF16);
    else llm__avx512_mac(m);
}

