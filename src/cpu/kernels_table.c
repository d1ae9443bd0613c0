/* ---- The table ---- */

/* What the rest of the file calls: one such table for each instruction set. All pointers are set, all
 * functions may be called from any thread at once and keep nothing. See the llm__body functions (and llm__scalar_product, llm__scalar_mac)
 * for what each does. */
typedef struct llm__kernels {
    void (*quantise)(const llm__act *a, size_t at, const float *x, int64_t stride, int n, int per);
    void (*finish)(const llm__finish *f, const llm__block *b, const float *g, const float *u, int64_t token, int n);
    float (*sum)(const float *x, int n);
    float (*dot)(const float *a, const float *b, int n);
    void (*add)(float *x, const float *y, float scale, int n);
    void (*affine)(float *dst, const float *src, float shift, float scale, const float *w, const float *b, int n);
    void (*rotate)(float *x, const float *rope, int half, int interleaved);
    void (*to_half)(uint16_t *dst, const float *src, int n);
    void (*to_bf16)(uint16_t *dst, const float *src, int n);
    void (*expand)(llm_kv_type type, const uint8_t *src, int n, float *low, float *high);
    void (*bias)(llm__attend *t, int block);
    void (*soften)(llm__attend *t, int block);
    float (*top)(const float *x, int32_t n, int *bad);
    double (*weigh)(const float *x, float *w, int32_t n, float max, float scale);
    void (*mac)(const llm__mac *m);
    void (*product)(llm__kind kind, const llm__product *p);
    int bf16;  /* mac multiplies bf16 with bf16 (llm__mac.half) */
    void (*rest)(int *tiles); /* AMX, else NULL: lets go of the tiles after some products, which had `tiles`, 0 at first: the system saves
                               * 8 KB more of a thread that has some */
} llm__kernels;

/* Compiles the plain C kernels once more, with the instructions that TARGET allows and these conversions. */
#define LLM__MADE(isa, TARGET, result, leave, name, arguments, ...) \
    TARGET static result llm__##isa##_##name arguments { leave llm__body_##name(__VA_ARGS__); }
#define LLM__INSTANCE(isa, TARGET, fused, bf16, half, bytes, narrow, int8) \
    LLM__MADE(isa, TARGET, void, , quantise, (const llm__act *a, size_t at, const float *x, int64_t stride, int n, int per), a, at, x, stride, n, per, int8) \
    LLM__MADE(isa, TARGET, void, , finish, (const llm__finish *f, const llm__block *b, const float *g, const float *u, int64_t token, int n), f, b, g, u, token, n) \
    LLM__MADE(isa, TARGET, float, return, sum, (const float *x, int n), x, n) \
    LLM__MADE(isa, TARGET, float, return, dot, (const float *x, const float *y, int n), x, y, n) \
    LLM__MADE(isa, TARGET, void, , add, (float *x, const float *y, float scale, int n), x, y, scale, n) \
    LLM__MADE(isa, TARGET, void, , affine, (float *dst, const float *src, float shift, float scale, const float *w, const float *b, int n), \
              dst, src, shift, scale, w, b, n) \
    LLM__MADE(isa, TARGET, void, , rotate, (float *x, const float *rope, int n, int interleaved), x, rope, n, interleaved) \
    LLM__MADE(isa, TARGET, void, , to_half, (uint16_t *dst, const float *src, int n), dst, src, n, narrow) \
    LLM__MADE(isa, TARGET, void, , to_bf16, (uint16_t *dst, const float *src, int n), dst, src, n) \
    LLM__MADE(isa, TARGET, void, , expand, (llm_kv_type type, const uint8_t *src, int n, float *low, float *high), type, src, n, low, high, half, bytes) \
    LLM__MADE(isa, TARGET, void, , bias, (llm__attend *t, int block), t, block) \
    LLM__MADE(isa, TARGET, void, , soften, (llm__attend *t, int block), t, block, fused, bf16) \
    LLM__MADE(isa, TARGET, float, return, top, (const float *x, int32_t n, int *bad), x, n, bad) \
    LLM__MADE(isa, TARGET, double, return, weigh, (const float *x, float *w, int32_t n, float max, float scale), x, w, n, max, scale)

#define LLM__KERNELS(isa, mac, product, bf16, rest) { \
    llm__##isa##_quantise, llm__##isa##_finish, llm__##isa##_sum, llm__##isa##_dot, llm__##isa##_add, llm__##isa##_affine, \
    llm__##isa##_rotate, llm__##isa##_to_half, llm__##isa##_to_bf16, llm__##isa##_expand, llm__##isa##_bias, llm__##isa##_soften, \
    llm__##isa##_top, llm__##isa##_weigh, mac, product, bf16, rest }

LLM__INSTANCE(scalar, LLM__SMALL, 0, 0, llm__scalar_half, llm__scalar_bytes, llm__scalar_narrow, llm__scalar_int8)
#if LLM__X86
LLM__INSTANCE(avx2, LLM__AVX2, 1, 0, llm__avx2_half, llm__avx2_bytes, llm__avx2_narrow, llm__avx2_int8)
LLM__INSTANCE(avx512, LLM__AVX512, 1, 1, llm__avx512_half, llm__avx512_bytes, llm__avx512_narrow, llm__avx512_int8)
#endif
#if LLM__NEON
LLM__INSTANCE(neon, LLM__NEON_TARGET, 1, 0, llm__neon_half, llm__neon_bytes, llm__neon_narrow, llm__neon_int8)
#endif

/* The kernels of an instruction set. */
static const llm__kernels *llm__kernels_of(llm__isa isa) {
    static const llm__kernels scalar = LLM__KERNELS(scalar, llm__scalar_mac, llm__scalar_product, 0, NULL);
#if LLM__X86
    static const llm__kernels avx2 = LLM__KERNELS(avx2, llm__avx2_mac, llm__avx2_product, 0, NULL);
    static const llm__kernels avx512 = LLM__KERNELS(avx512, llm__avx512_mac, llm__avx512_product, 0, NULL);
    static const llm__kernels avx512vnni = LLM__KERNELS(avx512, llm__avx512_mac, llm__avx512vnni_product, 0, NULL);
#if LLM__HAS_2021
    static const llm__kernels avxvnni = LLM__KERNELS(avx2, llm__avx2_mac, llm__avxvnni_product, 0, NULL);
    if (isa == LLM__ISA_AVXVNNI) return &avxvnni;
    static const llm__kernels avx512bf16 = LLM__KERNELS(avx512, llm__avx512bf16_mac, llm__avx512vnni_product, 1, NULL);
    static const llm__kernels amx = LLM__KERNELS(avx512, llm__amx_mac, llm__amx_product, 1, llm__amx_rest);
    if (isa == LLM__ISA_AVX512BF16) return &avx512bf16;
    if (isa == LLM__ISA_AMX) return &amx;
#endif
    if (isa == LLM__ISA_AVX2) return &avx2;
    if (isa == LLM__ISA_AVX512) return &avx512;
    if (isa == LLM__ISA_AVX512VNNI) return &avx512vnni;
#endif
#if LLM__NEON
    static const llm__kernels neon = LLM__KERNELS(neon, llm__neon_mac, llm__neon_product, 0, NULL);
    if (isa == LLM__ISA_NEON) return &neon;
#endif
    (void)isa;
    return &scalar;
}

/* ---- What a core can do at most ---- */

/* `turns` times 12 multiplications of whole registers of bytes, added up, in 12 chains that hide the latency; with one instruction, or with
 * those that stand in for it. */
#define LLM__PEAK(isa, TARGET, vector, set, step) \
    TARGET static double llm__##isa##_peak(int64_t turns) { \
        const double begin = llm__now(), bytes = (double)(12 * turns) * sizeof(vector); \
        vector s[12]; \
        uint64_t sum = 0; /* it may wrap */ \
        LLM__UNROLL \
        for (int i = 0; i < 12; i++) s[i] = set((int)turns + i); \
        const vector a = s[0], b = s[1]; \
        for (; turns > 0; turns--) \
            LLM__UNROLL \
            for (int i = 0; i < 12; i++) s[i] = step(s[i], a, b); \
        LLM__UNROLL \
        for (int i = 0; i < 12; i++) { \
            uint64_t part; \
            memcpy(&part, &s[i], 8); \
            sum += part; \
        } \
        return sum ? 2e-9 * bytes / (llm__now() - begin) : 0; \
    }
#if LLM__X86
#define LLM__STEP(s, a, b) _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(s, a), b))
LLM__PEAK(avx2, LLM__AVX2, __m256i, _mm256_set1_epi32, LLM__STEP)
#undef LLM__STEP
#define LLM__STEP(s, a, b) _mm512_add_epi32(s, _mm512_madd_epi16(_mm512_maddubs_epi16(s, a), b))
LLM__PEAK(avx512, LLM__AVX512, __m512i, _mm512_set1_epi32, LLM__STEP)
#undef LLM__STEP
LLM__PEAK(avx512vnni, LLM__AVX512VNNI, __m512i, _mm512_set1_epi32, _mm512_dpbusd_epi32)
#if LLM__HAS_2021
LLM__PEAK(avxvnni, LLM__AVXVNNI, __m256i, _mm256_set1_epi32, _mm256_dpbusd_avx_epi32)
#endif
#elif LLM__NEON
#define LLM__STEP(s, a, b) vdotq_s32(s, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b))
LLM__PEAK(neon, LLM__NEON_TARGET, int32x4_t, vdupq_n_s32, LLM__STEP)
#undef LLM__STEP
#endif

LLM_API double llm_isa_peak(const char *name) {
    double (*peak)(int64_t turns) = NULL, best = 0;
    llm__isa isa;
    if (llm__isa_find(name, &isa)) return 0;
#if LLM__X86
    if (isa == LLM__ISA_AVX2) peak = llm__avx2_peak;
    if (isa == LLM__ISA_AVX512) peak = llm__avx512_peak;
    if (isa >= LLM__ISA_AVX512VNNI) peak = llm__avx512vnni_peak;
#if LLM__HAS_2021
    if (isa == LLM__ISA_AVXVNNI) peak = llm__avxvnni_peak;
#endif
#elif LLM__NEON
    if (isa == LLM__ISA_NEON) peak = llm__neon_peak;
#endif
    for (int i = 0; i < 20 && peak; i++) best = LLM__MAX(best, peak(100000));
    return best;
}

/* Reads a part: looks for a byte that is not there. */
static void llm__read_part(void *memory, int pass, int part, int n_parts) {
    const size_t n = ((size_t)1 << 30) / (size_t)n_parts;
    char *found = (char *)memchr((char *)memory + n * (size_t)part, 1, n);
    if (found) *found = (char)pass; /* never, but the compiler cannot know */
}

LLM_API double llm_memory_peak(int32_t n_threads) {
    const size_t bytes = (size_t)1 << 30;
    const int64_t have = llm_memory_free();
    void *memory = n_threads < 1 || (have >= 0 && have < (int64_t)bytes + (64 << 20)) ? NULL : llm__pages_get(bytes);
    llm__pool *pool = memory ? llm__pool_open(n_threads) : NULL;
    double best = 0;
    if (pool) memset(memory, 2, bytes); /* pages that nobody has written are all the same one */
    for (int i = 0; i < 4 && pool; i++) {
        double begin = llm__now();
        llm__pool_run(pool, llm__read_part, memory, 1);
        best = LLM__MAX(best, 1e-9 * (double)bytes / (llm__now() - begin));
    }
    llm__pool_close(pool);
    llm__pages_free(memory, bytes);
    return best;
}

