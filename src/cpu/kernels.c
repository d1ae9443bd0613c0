/* ============================================================================
 * >>kernels-simd   Every kernel but the products, once for all instruction sets.
 * ============================================================================
 * The functions here are plain C. They work on llm__v16, sixteen floats by value, in loops of exactly sixteen turns over local variables:
 * compilers turn each such loop into one vector operation (gcc from 12 on and clang at -O2), of whatever width the function they are
 * inlined into may use: an AVX-512 register, two of AVX2, four of SSE or NEON. Three conditions make that reliable, and are kept
 * throughout: the count is a constant; nothing in the loop can be an alias of anything else (arguments are values, not pointers); no
 * branches, only choices. At the end of the kernels LLM__INSTANCE compiles all of them for an instruction set, and llm__kernels_of is the
 * table that the rest of this file calls: whole rows and blocks a call, so that a call through a pointer costs nothing.
 *
 * What C cannot say is written with intrinsics, in the two sections that follow: converting f16, looking bytes up in a table, and the
 * products themselves.
 *
 * Each function is used for every row of every batch, and the order of its sums depends on the length alone. That is what makes a row's
 * bits independent of its neighbours. */

/* Unrolls a loop of constant count whose array then lives in registers. In the plain C instance some of them are vectorised or gone before clang comes to
 * unrolling, which it would call a failure. */
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#define LLM__UNROLL _Pragma("clang loop unroll(full)")
#define LLM__UNROLL_2 _Pragma("clang loop unroll_count(2)")
#elif defined(__OPTIMIZE__)
#define LLM__UNROLL _Pragma("GCC unroll 24")
#define LLM__UNROLL_2 _Pragma("GCC unroll 2")
#else
#define LLM__UNROLL
#define LLM__UNROLL_2
#endif
#ifdef __OPTIMIZE__
#define LLM__FORCE static inline __attribute__((always_inline, unused))
#else
#define LLM__FORCE static __attribute__((unused)) /* functions passed as arguments cannot be inlined */
#endif
#define LLM__NOINLINE __attribute__((noinline))
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#define LLM__ALIGN_LOOPS __attribute__((optimize("align-loops=64"))) /* on a cache line: 5 % of the shortest ones' time (Zen 5, gcc 12) */
#else
#define LLM__ALIGN_LOOPS
#endif
#define LLM__LOG2E 1.44269504f
#define LLM__EACH(i) for (int i = 0; i < LLM__ROWS; i++)

/* Sixteen floats: the rows of a block, positions of a key group, or neighbours in a row of activations. */
typedef struct llm__v16 {
    float v[LLM__ROWS];
} llm__v16;

typedef union llm__bits16 { /* the same, seen as integers */
    uint32_t u[LLM__ROWS];
    int32_t i[LLM__ROWS];
    llm__v16 f;
} llm__bits16;

/* The same number in every lane. */
LLM__INLINE llm__v16 llm__all16(float x) {
    llm__v16 r;
    LLM__EACH(i) r.v[i] = x;
    return r;
}

/* The first n <= 16 elements at p, zeros after them; and back. Rows seldom end inside a vector, so the branch costs nothing. */
LLM__INLINE llm__v16 llm__load16(const float *p, int n) {
    llm__v16 r;
    if (n >= LLM__ROWS) {
        LLM__EACH(i) r.v[i] = p[i];
        return r;
    }
    LLM__EACH(i) r.v[i] = 0;
    for (int i = 0; i < n; i++) r.v[i] = p[i];
    return r;
}

LLM__INLINE void llm__store16(float *p, int n, llm__v16 x) {
    if (n >= LLM__ROWS) LLM__EACH(i) p[i] = x.v[i];
    else
        for (int i = 0; i < n; i++) p[i] = x.v[i];
}

/* Sum and maximum of all lanes, halves folded onto each other: loops of 8 and of 4 become one instruction each. */
LLM__INLINE float llm__total16(llm__v16 x) {
    float a[8], b[4];
    for (int i = 0; i < 8; i++) a[i] = x.v[i] + x.v[i + 8];
    for (int i = 0; i < 4; i++) b[i] = a[i] + a[i + 4];
    return (b[0] + b[2]) + (b[1] + b[3]);
}

LLM__INLINE float llm__top16(llm__v16 x) {
    float a[8], b[4];
    for (int i = 0; i < 8; i++) a[i] = x.v[i] > x.v[i + 8] ? x.v[i] : x.v[i + 8];
    for (int i = 0; i < 4; i++) b[i] = a[i] > a[i + 4] ? a[i] : a[i + 4];
    const float even = b[0] > b[2] ? b[0] : b[2], odd = b[1] > b[3] ? b[1] : b[3];
    return even > odd ? even : odd;
}

/* 2^x of x <= 126, exactly 1 for 0 and 0 below -126.5. With n the integer next to x, 2^x = 2^n * 2^f, |f| <= 1/2: the first is a float with
 * exponent n, the second a polynomial (least maximum error, 2e-7, or 1e-4 if rough, for what becomes bf16; fused: by multiply-adds). Adding
 * 1.5 * 2^23 leaves no bits for a fraction: that rounds to an integer, which then stands in the low bits; 127 more is the exponent's bias. */
LLM__INLINE llm__v16 llm__exp2_16(llm__v16 x, const int fused, const int rough) {
    static const float factor[2][6] = {{1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1},
                                       {0, 0, 0, 2.4221096e-1f, 6.9328293e-1f, 1}};
    llm__bits16 n;
    llm__v16 p;
    LLM__EACH(i) x.v[i] = x.v[i] < -127 ? -127.0f : x.v[i]; /* NaN stays */
    LLM__EACH(i) n.f.v[i] = x.v[i] + 12583039.0f;
    LLM__EACH(i) x.v[i] = x.v[i] - (n.f.v[i] - 12583039.0f);
    p = llm__all16(rough ? 5.500893e-2f : 1.5403530e-4f);
    LLM__UNROLL
    for (int k = rough ? 3 : 0; k < 6; k++)
        LLM__EACH(i) p.v[i] = fused ? __builtin_fmaf(p.v[i], x.v[i], factor[rough][k]) : p.v[i] * x.v[i] + factor[rough][k];
    LLM__EACH(i) n.u[i] <<= 23;
    LLM__EACH(i) p.v[i] *= n.f.v[i];
    return p;
}

/* 1 / (1 + e^(-k x)), and cap * tanh(x / cap) = cap * (2 sigmoid(2 x / cap) - 1). */
LLM__INLINE llm__v16 llm__sigmoid16(llm__v16 x, float k) {
    LLM__EACH(i) x.v[i] *= -LLM__LOG2E * k;
    LLM__EACH(i) x.v[i] = x.v[i] > 126 ? 126.0f : x.v[i];
    x = llm__exp2_16(x, 0, 0);
    LLM__EACH(i) x.v[i] = 1 / (1 + x.v[i]);
    return x;
}

LLM__INLINE llm__v16 llm__softcap16(llm__v16 x, float cap) {
    x = llm__sigmoid16(x, 2 / cap);
    LLM__EACH(i) x.v[i] = cap * (2 * x.v[i] - 1);
    return x;
}

/* ---- Rows ---- */

/* Each walks a row in whole vectors, n constant there; what is left over goes the same way once more. */
#define LLM__VECTORS(k, n, step) \
    do { \
        int k = 0; \
        for (; k + LLM__ROWS <= (n); k += LLM__ROWS) step(LLM__ROWS); \
        if (k < (n)) step((n) - k); \
    } while (0)

/* s + scale * x, of n <= 16 numbers at x; the other lanes of s stay. */
LLM__INLINE llm__v16 llm__add16(llm__v16 s, const float *x, float scale, int n) {
    const llm__v16 a = llm__load16(x, n);
    LLM__EACH(i) s.v[i] += scale * a.v[i];
    return s;
}

/* Sum of n numbers, lane by lane, then across: the error grows with n / 16, not with n. Means of layer norms are made of it. */
LLM__INLINE float llm__body_sum(const float *x, int n) {
    llm__v16 s = llm__all16(0);
#define LLM__STEP(m) s = llm__add16(s, x + k, 1, m)
    LLM__VECTORS(k, n, LLM__STEP);
#undef LLM__STEP
    return llm__total16(s);
}

/* s + x * y, lane by lane. */
LLM__INLINE llm__v16 llm__dot16(llm__v16 s, const float *x, const float *y, int n) {
    const llm__v16 a = llm__load16(x, n), b = llm__load16(y, n);
    LLM__EACH(i) s.v[i] += a.v[i] * b.v[i];
    return s;
}

/* Two chains hide the latency of the additions. */
LLM__INLINE float llm__body_dot(const float *x, const float *y, int n) {
    llm__v16 s = llm__all16(0), t = s;
    int k = 0;
    for (; k + 2 * LLM__ROWS <= n; k += 2 * LLM__ROWS) {
        s = llm__dot16(s, x + k, y + k, LLM__ROWS);
        t = llm__dot16(t, x + k + LLM__ROWS, y + k + LLM__ROWS, LLM__ROWS);
    }
    for (; k < n; k += LLM__ROWS) s = llm__dot16(s, x + k, y + k, n - k);
    LLM__EACH(i) s.v[i] += t.v[i];
    return llm__total16(s);
}

/* x += scale * y: residual additions, sums over ranks. */
LLM__INLINE void llm__body_add(float *x, const float *y, float scale, int n) {
#define LLM__STEP(m) llm__store16(x + k, m, llm__add16(llm__load16(x + k, m), y + k, scale, m))
    LLM__VECTORS(k, n, LLM__STEP);
#undef LLM__STEP
}

/* The end of a norm, (x - shift) * scale * w + b: shift is the mean (0 for RMS), scale one over the deviation. dst may be src; w and b may
 * be NULL. */
LLM__INLINE void llm__affine16(float *dst, const float *src, float shift, float scale, const float *w, const float *b, int n) {
    llm__v16 x = llm__load16(src, n), y;
    LLM__EACH(i) x.v[i] = (x.v[i] - shift) * scale;
    if (w) {
        y = llm__load16(w, n);
        LLM__EACH(i) x.v[i] *= y.v[i];
    }
    if (b) x = llm__add16(x, b, 1, n);
    llm__store16(dst, n, x);
}

/* The whole row of n; see llm__affine16. */
LLM__INLINE void llm__body_affine(float *dst, const float *src, float shift, float scale, const float *w, const float *b, int n) {
#define LLM__STEP(m) llm__affine16(dst + k, src + k, shift, scale, w ? w + k : NULL, b ? b + k : NULL, m)
    LLM__VECTORS(k, n, LLM__STEP);
#undef LLM__STEP
}

/* Eight pairs of neighbours by eight cosines and sines. A pair is read and written as one word of 64 bits: compilers turn that into vectors,
 * where they do not with every other float. */
LLM__INLINE void llm__turn_pairs(float *x, const float *c, const float *s) {
    uint64_t pair[8];
    uint32_t low[8], high[8];
    float u[8], v[8], a[8], b[8];
    memcpy(pair, x, sizeof pair);
    for (int i = 0; i < 8; i++) low[i] = (uint32_t)pair[i];
    for (int i = 0; i < 8; i++) high[i] = (uint32_t)(pair[i] >> 32);
    memcpy(u, low, sizeof u);
    memcpy(v, high, sizeof v);
    for (int i = 0; i < 8; i++) a[i] = u[i] * c[i] - v[i] * s[i];
    for (int i = 0; i < 8; i++) b[i] = v[i] * c[i] + u[i] * s[i];
    memcpy(low, a, sizeof low);
    memcpy(high, b, sizeof high);
    for (int i = 0; i < 8; i++) pair[i] = low[i] | (uint64_t)high[i] << 32;
    memcpy(x, pair, sizeof pair);
}

/* RoPE of one head (Su et al. 2021): each pair (u, v) turns by its angle. Pairs are neighbours (interleaved) or half a head apart; rope
 * holds `half` cosines, then `half` sines. */
LLM__INLINE void llm__body_rotate(float *x, const float *rope, int half, int interleaved) {
    for (int k = 0; k < half && !interleaved; k += LLM__ROWS) {
        const int n = half - k < LLM__ROWS ? half - k : LLM__ROWS;
        llm__v16 c = llm__load16(rope + k, n), s = llm__load16(rope + half + k, n), a, b;
        const llm__v16 u = llm__load16(x + k, n), v = llm__load16(x + half + k, n);
        LLM__EACH(i) a.v[i] = u.v[i] * c.v[i] - v.v[i] * s.v[i];
        LLM__EACH(i) b.v[i] = v.v[i] * c.v[i] + u.v[i] * s.v[i];
        llm__store16(x + k, n, a);
        llm__store16(x + half + k, n, b);
    }
    int k = 0;
    for (; k + 8 <= half && interleaved; k += 8) llm__turn_pairs(x + 2 * k, rope + k, rope + half + k);
    for (; k < half && interleaved; k++) {
        const float u = x[2 * k], v = x[2 * k + 1], c = rope[k], s = rope[half + k];
        x[2 * k] = u * c - v * s;
        x[2 * k + 1] = v * c + u * s;
    }
}

/* ---- Conversions ----
 * What plain C cannot express well. Each instruction set has its own, which the kernels take as an argument: always a constant that is
 * inlined, never a call. The scalar ones say what the others must do. */

typedef llm__v16 (*llm__half_fn)(const uint16_t *p);              /* 16 f16 to f32 */
typedef llm__v16 (*llm__bytes_fn)(const uint8_t *p, int is_unsigned); /* 16 bytes */
typedef void (*llm__narrow_fn)(uint16_t *p, llm__v16 x);          /* and back */
typedef void (*llm__int8_fn)(int8_t *q, const int32_t *x);        /* 16 integers, -128 to 127 */
typedef void (*llm__look_up_fn)(const int8_t table[16], uint8_t *u); /* a block's bytes by what the table has for them */

LLM__FORCE llm__v16 llm__scalar_half(const uint16_t *p) {
    llm__v16 r;
    LLM__EACH(i) r.v[i] = llm__f16_to_f32(p[i]);
    return r;
}

LLM__FORCE llm__v16 llm__scalar_bytes(const uint8_t *p, int is_unsigned) {
    llm__v16 r;
    LLM__EACH(i) r.v[i] = (float)(is_unsigned ? p[i] : (int8_t)p[i]);
    return r;
}

LLM__FORCE void llm__scalar_narrow(uint16_t *p, llm__v16 x) { LLM__EACH(i) p[i] = llm__f32_to_f16(x.v[i]); }

LLM__FORCE void llm__scalar_int8(int8_t *q, const int32_t *x) { LLM__EACH(i) q[i] = (int8_t)x[i]; }

LLM__FORCE void llm__scalar_look_up(const int8_t table[16], uint8_t *u) {
    for (int i = 0; i < 512; i++) u[i] = (uint8_t)table[u[i]];
}

/* Values too large for f16 become its largest. */
LLM__INLINE void llm__body_to_half(uint16_t *dst, const float *src, int n, const llm__narrow_fn narrow) {
    uint16_t half[LLM__ROWS];
    for (int k = 0; k < n; k += LLM__ROWS) {
        llm__v16 x = llm__load16(src + k, n - k);
        LLM__EACH(i) x.v[i] = x.v[i] > 65504 ? 65504.0f : x.v[i];
        LLM__EACH(i) x.v[i] = x.v[i] < -65504 ? -65504.0f : x.v[i];
        if (n - k >= LLM__ROWS) {
            narrow(dst + k, x);
            continue;
        }
        narrow(half, x);
        memcpy(dst + k, half, sizeof *half * (size_t)(n - k));
    }
}

/* To bf16, halves to even; what is no number stays none. */
LLM__INLINE void llm__body_to_bf16(uint16_t *dst, const float *src, int n) {
    for (int k = 0; k < n; k += LLM__ROWS) {
        uint16_t half[LLM__ROWS];
        llm__bits16 x;
        x.f = llm__load16(src + k, n - k);
        LLM__EACH(i) x.u[i] = (x.u[i] & 0x7FFFFFFF) > 0x7F800000 ? x.u[i] | 0x400000 : x.u[i] + 0x7FFF + (x.u[i] >> 16 & 1);
        LLM__EACH(i) half[i] = (uint16_t)(x.u[i] >> 16);
        memcpy(dst + k, half, sizeof *half * (size_t)(n - k < LLM__ROWS ? n - k : LLM__ROWS));
    }
}

/* Bytes of a stored element of the KV cache (int4: of two). */
LLM__INLINE int llm__kv_size(llm_kv_type type) { return type == LLM_KV_F32 ? 4 : type == LLM_KV_F16 || type == LLM_KV_BF16 ? 2 : 1; }

/* n stored elements of the KV cache to f32, before the scale and offset of their token. int4: the high nibbles go to `high`. */
LLM__INLINE void llm__body_expand(llm_kv_type type, const uint8_t *src, int n, float *low, float *high, const llm__half_fn half,
                                  const llm__bytes_fn bytes) {
    const int size = llm__kv_size(type);
    for (int k = 0; k < n; k += LLM__ROWS) {
        uint8_t part[4 * LLM__ROWS] = {0}, nibble[LLM__ROWS];
        const uint8_t *p = src + k * size;
        const uint16_t *h;
        uint16_t wide[LLM__ROWS];
        llm__bits16 x;
        if (n - k < LLM__ROWS) {
            memcpy(part, p, (size_t)((n - k) * size));
            p = part;
        }
        h = (const uint16_t *)(const void *)p;
        switch (type) {
        case LLM_KV_F16: x.f = half(h); break;
        case LLM_KV_BF16: LLM__EACH(i) x.u[i] = (uint32_t)h[i] << 16; break;
        case LLM_KV_FP8_E5M2:
            LLM__EACH(i) wide[i] = (uint16_t)(p[i] << 8);
            x.f = half(wide);
            break;
        case LLM_KV_FP8_E4M3: /* f32's fields with fewer bits: moved into place, the exponent is 120 too small */
            LLM__EACH(i) x.u[i] = (p[i] & 0x80u) << 24 | (p[i] & 0x7Fu) << 20;
            LLM__EACH(i) x.f.v[i] *= 1.329227996e36f; /* 2^120 */
            break;
        case LLM_KV_INT8: x.f = bytes(p, 1); break;
        case LLM_KV_INT4:
            LLM__EACH(i) nibble[i] = p[i] >> 4;
            llm__store16(high + k, n - k, bytes(nibble, 1));
            LLM__EACH(i) nibble[i] = p[i] & 15;
            x.f = bytes(nibble, 1);
            break;
        default: x.f = llm__load16((const float *)(const void *)p, LLM__ROWS);
        }
        llm__store16(low + k, n - k, x.f);
    }
}

/* 32 values to int8: block `at` of the copy, q = round(x * 127 / largest). `lost` (may be NULL) takes what the rounding loses. The maximum
 * is found on the bits (floats of one sign are ordered as integers): compilers reorder those. What is no number becomes 0. The sums of both
 * halves, 16 * 128 at most, are found as one sum: that of the former + 65536 times that of the latter. */
LLM__INLINE void llm__quantise_block(const llm__act *a, size_t at, const float *x, float *lost, const llm__int8_fn int8) {
    const llm__v16 x0 = llm__load16(x, LLM__ROWS), x1 = llm__load16(x + LLM__ROWS, LLM__ROWS);
    llm__bits16 u, v;
    int32_t top = 0, both = 0;
    float most;
    u.f = x0, v.f = x1;
    LLM__EACH(i) u.i[i] &= 0x7FFFFFFF;
    LLM__EACH(i) v.i[i] &= 0x7FFFFFFF;
    LLM__EACH(i) u.i[i] = u.i[i] > v.i[i] ? u.i[i] : v.i[i];
    LLM__EACH(i) top = u.i[i] > top ? u.i[i] : top;
    memcpy(&most, &top, 4);
    const float d = most * (1.0f / 127), inverse = most > 0 ? 127 / most : 0;
    LLM__EACH(i) u.f.v[i] = x0.v[i] * inverse;
    LLM__EACH(i) v.f.v[i] = x1.v[i] * inverse;
    LLM__EACH(i) u.f.v[i] += 12582912.0f; /* as in exp2: the integer stands in the low bits. On its own, so that it is not fused */
    LLM__EACH(i) v.f.v[i] += 12582912.0f;
    LLM__EACH(i) u.i[i] = (int32_t)(u.u[i] << 24) >> 24;
    LLM__EACH(i) v.i[i] = (int32_t)(v.u[i] << 24) >> 24;
    int8(a->q + at * 32, u.i);
    int8(a->q + at * 32 + LLM__ROWS, v.i);
    LLM__EACH(i) both += u.i[i] + v.i[i] * 65536;
    const int32_t former = (int16_t)both, latter = (both - former) / 65536;
    for (int i = 0; i < LLM__ROWS && lost; i++) {
        lost[i] = fmaf(-(float)u.i[i], d, x0.v[i]);
        lost[16 + i] = fmaf(-(float)v.i[i], d, x1.v[i]);
    }
    a->d[at] = d;
    a->s[2 * at] = d * (float)(former + latter);
    a->s[2 * at + 1] = d * (float)latter;
    a->n[2 * at] = -former - latter;
    a->n[2 * at + 1] = -latter;
}

/* n rows of 32 values, `stride` floats apart, to the blocks from `at` on; per 2: each to two, the second one being what the first has lost. */
LLM__INLINE void llm__body_quantise(const llm__act *act, size_t at, const float *x, int64_t stride, int n, int per, const llm__int8_fn int8) {
    const llm__act a = *act; /* its pointers in registers */
    float lost[32];
    for (int i = 0; i < n; i++, x += stride, at += (size_t)per) {
        llm__quantise_block(&a, at, x, per == 2 ? lost : NULL, int8);
        if (per == 2) llm__quantise_block(&a, at + 1, lost, NULL, int8);
    }
}

/* ---- Unpacking ---- */

enum {
    LLM__AHEAD = 8192
}; /* bytes that weights are fetched ahead of their use: of Q8_0 and 16 tokens from memory 4096 give a seventh less, 12288 the same (Zen 5) */

/* What token t of n asks for while a block, or a pair, of so many bytes is multiplied: every n-th of as many lines further on. A core keeps
 * track of some 16 lines that it waits for; asked for all at once, they hold up whatever else it loads. */
LLM__INLINE void llm__fetch(const uint8_t *ahead, const int bytes, int t, int n) {
    for (int i = 64 * t; i < bytes; i += 64 * n) __builtin_prefetch(ahead + i);
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

/* 16 scales (or minimums) as f32, for the columns 16 * half on. */
LLM__INLINE llm__v16 llm__unpack_scale(llm__scale scale, const uint8_t *at, const uint8_t *head, const int is_min, int half,
                                       const llm__half_fn widen, const llm__bytes_fn bytes) {
    if (scale == LLM__SCALE_F16) return widen((const uint16_t *)(const void *)at);
    if (scale == LLM__SCALE_F32 || scale == LLM__SCALE_F32X2)
        return llm__load16((const float *)(const void *)(at + (scale == LLM__SCALE_F32X2 ? 64 * half : 0)), LLM__ROWS);
    if (scale == LLM__SCALE_NONE) return llm__all16(0);
    const llm__v16 d = widen((const uint16_t *)(const void *)head);
    const uint8_t *b = at + (scale == LLM__SCALE_SUPERX2 ? 16 * half : 0);
    llm__v16 x = bytes(b, is_min);
    LLM__EACH(i) x.v[i] *= d.v[i];
    return x;
}

/* What a product wants: signed bytes as they are; plus 128, which makes 128 their zero point; or so, and m without zero points, which it
 * takes out of its sums of integers itself (llm__act.n); or bytes that are less by their zero points, and m without them. */
typedef enum llm__offset { LLM__SIGNED, LLM__UNSIGNED, LLM__APART, LLM__LESS } llm__offset;

LLM__INLINE int llm__kind_flips(llm__kind kind, llm__offset offset) {
    return (offset == LLM__UNSIGNED || offset == LLM__APART) && llm__kind_signed(kind);
}

LLM__INLINE int llm__kind_zero(llm__kind kind, llm__offset offset) {
    return llm__kind_flips(kind, offset) ? 128 : llm__kind_info(kind).zero;
}

/* One block of a row block, which is number `place` of the `pair` (1 or 2) that stand together from w on; head: of their super-blocks.
 *
 * m is what the sum of q is multiplied with: minimum - zero * scale. Where the two halves of the columns differ, m[1] is the latter's m
 * less the former's, for llm__act.s has the sum over all 32 columns and that over the latter 16:
 *
 *     m_former * (all - latter) + m_latter * latter  =  m_former * all + (m_latter - m_former) * latter */
LLM__INLINE void llm__unpack(const llm__kind kind, const llm__offset offset, const int pair, const int place, const uint8_t *w,
                             const uint8_t *head, llm__cooked *to, const llm__half_fn half, const llm__bytes_fn bytes, const llm__look_up_fn look_up) {
    const llm__kind_desc k = llm__kind_info(kind);
    const int8_t *table = llm__kind_table(kind);
    const uint64_t flip = llm__kind_flips(kind, offset) ? 0x8080808080808080u : 0;
    const float zero = offset >= LLM__APART ? 0 : (float)llm__kind_zero(kind, offset);
    const uint8_t *bits = w + place * 64 * k.bits;
    if (k.bits == 4) llm__unpack_bits(4, bits, 0, to->u);
    else if (k.bits == 5) llm__unpack_bits(5, bits, 0, to->u);
    else if (k.bits == 6) llm__unpack_bits(6, bits, 0, to->u);
    else llm__unpack_bits(8, bits, flip, to->u);
    if (table) look_up(table, to->u);
    if (table && flip)
        for (int i = 0; i < 512; i++) to->u[i] ^= 0x80;
    for (int i = 0; i < 512 && k.zero && offset == LLM__LESS; i++) to->u[i] = (uint8_t)(to->u[i] - k.zero);
    const uint8_t *scales = w + pair * 64 * k.bits, *mins = scales + pair * llm__scale_bytes(k.scale);
    scales += place * llm__scale_bytes(k.scale);
    mins += place * llm__scale_bytes(k.min);
    LLM__UNROLL
    for (int h = 0; h <= llm__kind_x2(kind); h++) {
        const llm__v16 d = llm__unpack_scale(k.scale, scales, head + 32 * place, 0, h, half, bytes);
        llm__v16 m = llm__unpack_scale(k.min, mins, head + 32 * (pair + place), 1, h, half, bytes);
        if (zero != 0) LLM__EACH(i) m.v[i] -= zero * d.v[i];
        if (h) LLM__EACH(i) m.v[i] -= to->m[0][i];
        llm__store16(to->d[h], LLM__ROWS, d);
        llm__store16(to->m[h], LLM__ROWS, m);
    }
}

/* The first n blocks of a super-block, or pairs, to `to` (n, 2). */
LLM__INLINE void llm__cook(const llm__kind kind, llm__offset offset, int pair, const uint8_t *w, int n, llm__cooked (*to)[2],
                           const llm__half_fn half, const llm__bytes_fn bytes, const llm__look_up_fn look_up) {
    const uint8_t *head = w;
    w += pair * llm__kind_head(kind);
    for (int b = 0; b < n; b++, w += pair * llm__kind_block(kind)) {
        llm__fetch(w + LLM__AHEAD, pair * llm__kind_block(kind), 0, 1);
        for (int place = 0; place < pair; place++) llm__unpack(kind, offset, pair, place, w, head, &to[b][place], half, bytes, look_up);
    }
}

/* One call a format, all that depends on it constant: the format would else be asked for in the innermost loop. The common ones are what files
 * of models mostly have. */
#define LLM__COMMON_KINDS(call, ...) \
    case LLM__KIND_Q4Z: call(LLM__KIND_Q4Z, __VA_ARGS__); break; \
    case LLM__KIND_Q4M: call(LLM__KIND_Q4M, __VA_ARGS__); break; \
    case LLM__KIND_Q8: call(LLM__KIND_Q8, __VA_ARGS__); break; \
    case LLM__KIND_Q4K: call(LLM__KIND_Q4K, __VA_ARGS__); break; \
    case LLM__KIND_Q5K: call(LLM__KIND_Q5K, __VA_ARGS__); break; \
    case LLM__KIND_Q6K: call(LLM__KIND_Q6K, __VA_ARGS__); break;
#define LLM__EACH_KIND(kind, call, ...) \
    switch (kind) { \
        LLM__COMMON_KINDS(call, __VA_ARGS__) \
    case LLM__KIND_Q5Z: call(LLM__KIND_Q5Z, __VA_ARGS__); break; \
    case LLM__KIND_Q5M: call(LLM__KIND_Q5M, __VA_ARGS__); break; \
    case LLM__KIND_IQ4: call(LLM__KIND_IQ4, __VA_ARGS__); break; \
    case LLM__KIND_MXFP4: call(LLM__KIND_MXFP4, __VA_ARGS__); break; \
    case LLM__KIND_G16: call(LLM__KIND_G16, __VA_ARGS__); break; \
    default: call(LLM__KIND_G16M, __VA_ARGS__); \
    }

/* ---- The end of a product ---- */

/* What happens to the results of a product. */
typedef struct llm__finish {
    float *dst;              /* the first token's first output */
    int64_t stride, first_row; /* first_row: the weight's row of that output */
    const float *bias;       /* (rows of the weight), or NULL */
    const float *plus;       /* (tokens, outputs from first_row on) of adapters, or NULL */
    int64_t plus_stride;
    float scale, limit, softcap;
    llm_act act;
    int add, gate_up, per;   /* per: places of a tile that a token takes */
} llm__finish;

typedef struct llm__block {  /* up to 16 rows of a weight, packed */
    int64_t offset;          /* of its bytes in memory */
    int64_t row;             /* the first of its rows */
    int32_t n, kind;         /* n rows; the other lanes are zero */
    int32_t pair, place;     /* blocks that stand together from offset on; which of them it is */
    float scale;             /* of the segment, for the results */
} llm__block;

/* act(g), times u where there is one. Three of them are a product with a sigmoid. */
LLM__INLINE llm__v16 llm__act16(llm_act act, float limit, llm__v16 g, const llm__v16 *u) {
    const int oai = act == LLM_ACT_SWIGLU_OAI, tanh = act == LLM_ACT_GELU_TANH;
    llm__v16 x;
    if (oai) LLM__EACH(i) g.v[i] = g.v[i] < limit ? g.v[i] : limit;
    if (act == LLM_ACT_GELU) LLM__EACH(i) g.v[i] *= 0.5f * (1 + erff(g.v[i] * 0.70710678f));
    if (act == LLM_ACT_RELU) LLM__EACH(i) g.v[i] = g.v[i] > 0 ? g.v[i] : 0;
    if (act == LLM_ACT_RELU2) LLM__EACH(i) g.v[i] = g.v[i] > 0 ? g.v[i] * g.v[i] : 0;
    if (oai || tanh || act == LLM_ACT_SILU) {
        x = g;
        if (tanh) LLM__EACH(i) x.v[i] = g.v[i] + 0.044715f * g.v[i] * g.v[i] * g.v[i]; /* (1 + tanh y) / 2 = sigmoid(2 y) */
        x = llm__sigmoid16(x, tanh ? 1.59576912f : oai ? 1.702f : 1);
        LLM__EACH(i) g.v[i] *= x.v[i];
    }
    if (!u) return g;
    x = *u;
    if (oai) LLM__EACH(i) x.v[i] = (x.v[i] < -limit ? -limit : x.v[i] > limit ? limit : x.v[i]) + 1;
    LLM__EACH(i) g.v[i] *= x.v[i];
    return g;
}

/* One token's sums of a block, times the scale of its segment, with its bias and what an adapter adds (plus: the token's row, or NULL). */
LLM__INLINE llm__v16 llm__finish_sums(const llm__finish *f, const llm__block *b, const float *sums, const float *plus, const int plain, const int per) {
    llm__v16 x = llm__load16(sums, LLM__ROWS), y;
    if (per == 2) {
        y = llm__load16(sums + LLM__ROWS, LLM__ROWS);
        LLM__EACH(i) x.v[i] += y.v[i];
    }
    if (plain) return x;
    LLM__EACH(i) x.v[i] *= b->scale;
    if (f->bias) x = llm__add16(x, f->bias + b->row, 1, b->n);
    return plus ? llm__add16(x, plus + b->row - f->first_row, 1, b->n) : x;
}

/* All tokens; see llm__body_finish. plain: whole vectors without scales, bias and soft cap. */
LLM__INLINE void llm__finish_rows(const llm__finish *f, const llm__block *b, const float *g, const float *u, int64_t token, int n,
                                  const int plain, const int per, const int gate_up, const int add, const llm_act act) {
    const int width = plain ? LLM__ROWS : b->n;
    float *dst = f->dst + token * f->stride + b->row - f->first_row;
    const float *plus = f->plus ? f->plus + token * f->plus_stride : NULL;
    for (int t = 0; t < n; t++, g += LLM__ROWS * per, u += LLM__ROWS * per, dst += f->stride) {
        llm__v16 x = llm__finish_sums(f, b, g, plus, plain, per), y;
        if (gate_up) y = llm__finish_sums(f, b + 1, u, plus, plain, per);
        if (plus) plus += f->plus_stride;
        if (act || gate_up) x = llm__act16(act, f->limit, x, gate_up ? &y : NULL);
        if (!plain && f->scale != 1) LLM__EACH(i) x.v[i] *= f->scale;
        if (!plain && f->softcap > 0) x = llm__softcap16(x, f->softcap);
        llm__store16(dst, width, add ? llm__add16(x, dst, 1, width) : x);
    }
}

/* What becomes of sums, in this order: the two roundings' sums added up; times the segment's scale; + bias + plus; the activation, times
 * up; times the operation's scale; soft cap; added to what dst has.
 *
 * Tokens [token, token + n) of one block: sums g (n * per, 16), and u (n * per, 16) of the block after it where gate and up go together.
 * What nearly all results need has loops of its own, with nothing to decide in them. */
LLM__INLINE void llm__body_finish(const llm__finish *f, const llm__block *b, const float *g, const float *u, int64_t token, int n) {
    const int plain = b->n == LLM__ROWS && !f->bias && !f->plus && f->scale == 1 && f->softcap <= 0 && b->scale == 1 && (!f->gate_up || b[1].scale == 1);
    const int alone = plain && !f->gate_up && !f->act, gated = plain && f->gate_up && !f->add && f->per == 1;
    if (alone && f->per == 1 && !f->add) llm__finish_rows(f, b, g, u, token, n, 1, 1, 0, 0, LLM_ACT_NONE);
    else if (alone && f->per == 1) llm__finish_rows(f, b, g, u, token, n, 1, 1, 0, 1, LLM_ACT_NONE);
    else if (alone && !f->add) llm__finish_rows(f, b, g, u, token, n, 1, 2, 0, 0, LLM_ACT_NONE);
    else if (gated && f->act == LLM_ACT_SILU) llm__finish_rows(f, b, g, u, token, n, 1, 1, 1, 0, LLM_ACT_SILU);
    else if (gated && f->act == LLM_ACT_GELU_TANH) llm__finish_rows(f, b, g, u, token, n, 1, 1, 1, 0, LLM_ACT_GELU_TANH);
    else llm__finish_rows(f, b, g, u, token, n, 0, f->per, f->gate_up, f->add, f->act);
}

