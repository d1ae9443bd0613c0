/* formats: how weights lie in device memory.
 *
 * A weight is rows of "subs" of 32 columns. Floats lie row by row. What is quantised lies in bricks of 16 rows x 64 columns, each in one
 * piece, in the order in which the lanes of a warp give them to tensor cores: first the low bits of all values, then what high bits there
 * are, then scales. A value is
 *
 *     scale * (u - zero)      or      scale * u + minimum      or      scale * table[u]
 *
 * The formats of the file become one of the kinds below, made by kernel_pack while loading: super-blocks' small scales are multiplied out
 * to f16 for each sub (half a bit a weight more than in the file, and no second step of indirection while computing). Columns are filled up
 * with zeros to whole bricks, rows as well.
 *
 *     kind            values        high     scales              from
 *     F32 F16 BF16    128, 64, 64   -        -                   floats of that width (f64, and all with dtype float32: F32)
 *     F8              32            -        (row_scale)         e4m3; one scale a matrix is kept a row, see weight_scales
 *     Q4Z Q4M         16            -        2, 4                Q4_0; Q4_1, Q4_K
 *     Q5Z Q5M         16            4        2, 4                Q5_0; Q5_1, Q5_K
 *     Q6              16            8        4 (two of f16)      Q6_K
 *     Q8              32            -        2                   Q8_0
 *     T4              16            -        4 (f32)             IQ4_NL, IQ4_XS, MXFP4: 16 values of a table
 *     G8              32            -        8                   Q2_K, Q3_K: what has 16 columns a group
 *
 * (bytes of 32 columns). For instance Q4_K, whose block of 256 columns has f16 d and dmin, 8 scales and 8 minima of 6 bits, and 128 bytes
 * of nibbles: sub j becomes 16 bytes of nibbles, f16 d * scale[j] and f16 -dmin * min[j], and value i is (d scale[j]) * u[i] - (dmin
 * min[j]). 4.5 bits a weight in the file are 5 here.
 *
 * A brick in memory (mma_16x8x16 says which lane has what): lane 4 g + t has of rows g and g + 8 the columns 16 h + 4 t to 16 h + 4 t + 3,
 * which are step h of a sub. c: the first or the second two of these four columns; e: the first or second of those two; r: row g or g + 8.
 *
 *     nibbles    16 bytes a lane      word 2 sub + h, at bit 16 e + 8 r + 4 c
 *     bytes      16 bytes a lane, of either sub      word 2 h + r, byte 2 c + e
 *     1 high bit     a word a lane        bit 16 e + 8 r + 4 sub + 2 h + c
 *     2 high bits    two words a lane     word sub, at bit 16 e + 8 r + 4 h + 2 c
 *     scales     of either sub, of each g those of row g and of row g + 8, side by side
 *
 * So a warp reads a brick in whole vectors side by side, which is how memory is read at full speed. No byte has bits of two rows, so that
 * rows can be packed by threads that know nothing of each other. */

typedef enum kind {
    KIND_F32,
    KIND_F16,
    KIND_BF16,
    KIND_F8, /* floats; f8: e4m3 */
    KIND_Q4Z,
    KIND_Q4M,
    KIND_Q5Z,
    KIND_Q5M, /* Z: zero point, f16 scale; M: f16 scale and minimum */
    KIND_Q6,  /* 6 bits, zero 32, f16 scale for 16 columns */
    KIND_Q8,  /* signed bytes, f16 scale */
    KIND_T4,  /* nibbles that index a table, f32 scale */
    KIND_G8,  /* bytes, f16 scale and minimum for 16 columns: for what has no kind of its own */
    KIND_COUNT
} kind;

/* Bytes of a sub in the three planes. */
static constexpr __host__ __device__ int kind_bytes(int k) {
    return k == KIND_F32 ? 128 : k == KIND_F16 || k == KIND_BF16 ? 64 : k == KIND_F8 || k == KIND_Q8 || k == KIND_G8 ? 32 : 16;
}
static constexpr __host__ __device__ int kind_high_bytes(int k) { return k == KIND_Q5Z || k == KIND_Q5M ? 4 : k == KIND_Q6 ? 8 : 0; }
static constexpr __host__ __device__ int kind_scale_bytes(int k) {
    return k <= KIND_F8 ? 0 : k == KIND_Q4Z || k == KIND_Q5Z || k == KIND_Q8 ? 2 : k == KIND_G8 ? 8 : 4;
}

static constexpr int BRICK_ROWS = 16, BRICK_SUBS = 2;
static constexpr __host__ __device__ int kind_bricks(int k) { return k > KIND_F8; }
static constexpr __host__ __device__ int kind_16bit(int k) { return k == KIND_F16 || k == KIND_BF16; }
static constexpr __host__ __device__ int kind_nibbles(int k) { return kind_bytes(k) == 16; }
static constexpr __host__ __device__ int sub_bytes(int k) { return kind_bytes(k) + kind_high_bytes(k) + kind_scale_bytes(k); }
static constexpr __host__ __device__ int brick_bytes(int k) { return BRICK_ROWS * BRICK_SUBS * sub_bytes(k); }
/* Where high bits and scales begin in a brick. */
static constexpr __host__ __device__ int brick_high(int k) { return BRICK_ROWS * BRICK_SUBS * kind_bytes(k); }
static constexpr __host__ __device__ int brick_scales(int k) { return BRICK_ROWS * BRICK_SUBS * (kind_bytes(k) + kind_high_bytes(k)); }

/* Rows [row, row + n_rows) of a weight that have one kind. */
typedef struct part {
    int32_t kind, subs; /* of a row */
    int64_t row, n_rows;
    int64_t apart; /* rows from one group (expert) to the next: whole bricks */
    uint8_t *q;
    uint64_t table[2]; /* 16 signed bytes */
} part;

/* Brick `i` of the 16 rows that have row `row`. */
static __host__ __device__ __forceinline__ uint8_t *brick_at(const part &w, int bytes, int64_t row, int i) {
    return w.q + (row / BRICK_ROWS * ceil_div(w.subs, BRICK_SUBS) + i) * bytes;
}

/* What zero is among a kind's whole numbers, as unpack16 has them. */
static constexpr __host__ __device__ int kind_zero(int k) {
    return k == KIND_Q4Z ? 8 : k == KIND_Q5Z ? 16 : k == KIND_Q6 ? 32 : k == KIND_Q8 || k == KIND_T4 ? 128 : 0;
}
static constexpr __host__ __device__ int kind_has_minimum(int k) { return k == KIND_Q4M || k == KIND_Q5M || k == KIND_G8; }

/* Half a sub (16 columns) as it lies in memory, in registers: asked for long before it is needed. Of bricks there is a word of each of the
 * four lanes that share a row. */
template <int K> struct packed {
    uint32_t q[kind_bricks(K) ? 4 : kind_bytes(K) / 8];
    uint32_t high[4], scale[2];
};

/* Half h of sub `sub` of a row. Twin: llm__dequant_columns, with what follows. */
template <int K> static __device__ __forceinline__ void load_packed(const part &w, int64_t row, int sub, int h, packed<K> *to) {
    if constexpr (!kind_bricks(K)) {
        const uint4 *q = (const uint4 *)(w.q + (row * w.subs + sub) * kind_bytes(K) + h * kind_bytes(K) / 2);
#pragma unroll
        for (int i = 0; i < kind_bytes(K) / 32; i++) ((uint4 *)to->q)[i] = __ldg(q + i);
    } else {
        const uint8_t *b = brick_at(w, brick_bytes(K), row, sub / BRICK_SUBS);
        const int g = (int)row & 7, r = (int)row >> 3 & 1, s = sub & 1;
        const uint32_t *q = (const uint32_t *)b + 16 * g + (kind_nibbles(K) ? 2 * s + h : 128 * s + 2 * h + r);
        const uint32_t *high = (const uint32_t *)(b + brick_high(K));
        const int words = kind_scale_bytes(K) == 8 ? 2 : 1;
#pragma unroll
        for (int t = 0; t < 4; t++) {
            to->q[t] = __ldg(q + 4 * t) >> (kind_nibbles(K) ? 8 * r : 0);
            if (kind_high_bytes(K) == 4) to->high[t] = __ldg(high + 4 * g + t) >> (8 * r + 4 * s + 2 * h);
            if (kind_high_bytes(K) == 8) to->high[t] = __ldg(high + 8 * g + 2 * t + s) >> (8 * r + 4 * h);
        }
        b += brick_scales(K) + ((s * 8 + g) * 2 + r) * kind_scale_bytes(K);
        if (kind_scale_bytes(K) == 2) to->scale[0] = __ldg((const uint16_t *)b);
        else to->scale[0] = __ldg((const uint32_t *)b + (words - 1) * h);
    }
}

/* Four nibbles, from bit 0 on, become the table's values at them, as signed bytes. A byte of the 16 is chosen from either half by its low
 * three bits, and then the half by the fourth. */
static __device__ __forceinline__ uint32_t table_four(const uint64_t *table, uint32_t at) {
    uint32_t low = __byte_perm((uint32_t)table[0], (uint32_t)(table[0] >> 32), at & 0x7777),
             top = __byte_perm((uint32_t)table[1], (uint32_t)(table[1] >> 32), at & 0x7777);
    return __byte_perm(low, top, 0x3210 | (at >> 1 & 0x4444));
}

/* Of a brick's word the four columns of one row as bytes, in order: `mask` has the bits of one, `apart` is how far c moves. */
static __device__ __forceinline__ uint32_t word_bytes(uint32_t w, int apart, uint32_t mask) {
    return (w & mask) | (w >> 8 & mask << 8) | (w << (16 - apart) & mask << 16) | (w << (8 - apart) & mask << 24);
}

/* Four values from words of a brick, of which the bits of their row and step come first; `scale`: what is stored beside their half h. A
 * byte n below 0x4b000000 is the float 2^23 + n, so a byte takes a permutation and a subtraction, which is exact. */
template <int K>
static __device__ __forceinline__ void scaled4(uint32_t q, uint32_t high, uint32_t scale, int h, const uint64_t *table, float *v) {
    const float d = K == KIND_T4 ? bits_to_f32(scale) : half_to_f32((uint16_t)(K == KIND_Q6 && h ? scale >> 16 : scale));
    const float m = half_to_f32((uint16_t)(scale >> 16));
    uint32_t n = kind_nibbles(K) ? word_bytes(q, 4, 15) : q;
    const uint32_t two = n | n >> 4; /* nibbles side by side */
    if (kind_high_bytes(K) == 4) n |= word_bytes(high, 1, 1) << 4;
    if (kind_high_bytes(K) == 8) n |= word_bytes(high, 2, 3) << 4;
    if (K == KIND_T4) n = table_four(table, (two & 0xff) | (two >> 8 & 0xff00));
    if (K == KIND_T4 || K == KIND_Q8) n ^= 0x80808080u;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float u = __uint_as_float(__byte_perm(n, 0x4b000000, 0x7440 + i)) - (float)(8388608 + kind_zero(K));
        v[i] = kind_has_minimum(K) ? d * u + m : d * u;
    }
}

/* 16 values of a packed half. K is known when compiling, so of all the branches one is left. */
template <int K> static __device__ __forceinline__ void scaled16(const packed<K> &p, int h, const uint64_t *table, float *v) {
    if constexpr (K == KIND_F32 || K == KIND_F16 || K == KIND_BF16) {
#pragma unroll
        for (int i = 0; i < kind_bytes(K) / 8; i++) {
            const uint32_t u = p.q[i];
            if (K == KIND_F32) v[i] = bits_to_f32(u);
            else if (K == KIND_F16) v[2 * i] = half_to_f32((uint16_t)u), v[2 * i + 1] = half_to_f32((uint16_t)(u >> 16));
            else v[2 * i] = bits_to_f32(u << 16), v[2 * i + 1] = bits_to_f32(u & 0xffff0000u);
        }
    } else if constexpr (K == KIND_F8) {
#pragma unroll
        for (int i = 0; i < 4; i++) e4m3_pair(p.q[i], v + 4 * i), e4m3_pair(p.q[i] >> 16, v + 4 * i + 2);
    } else {
#pragma unroll
        for (int t = 0; t < 4; t++) scaled4<K>(p.q[t], p.high[t], p.scale[0], h, table, v + 4 * t);
    }
}

/* Columns [16 h, 16 h + 16) of sub `sub` of a row as f32, where there is nothing else to do meanwhile. */
template <int K> static __device__ __forceinline__ void load16(const part &w, int64_t row, int sub, int h, float *v) {
    packed<K> p;
    load_packed<K>(w, row, sub, h, &p);
    scaled16<K>(p, h, w.table, v);
}

/* The same where the kind is known at run time only. */
static __device__ __forceinline__ void load16_any(const part &w, int64_t row, int sub, int h, float *v) {
    with_constant<0, KIND_COUNT - 1>(w.kind, [&](auto k) { load16<k.value>(w, row, sub, h, v); });
}

/* ---- What the file has: a table as in llm.h's >>dtypes, whose words are used here too ---- */

enum { PLANE_NONE, PLANE_HALVES, PLANE_STRIPES, PLANE_QUARTERS, PLANE_WORD };
enum { SCALES_ONE, SCALES_E8, SCALES_ZERO, SCALES_F32, SCALES_F16X2, SCALES_Q2K, SCALES_Q3K, SCALES_Q45K, SCALES_Q6K, SCALES_XS };

/* Twin: llm__format. block: columns; bytes: of a block. */
typedef struct format {
    int block, bytes, kind, zero;
    int order, bits, at, high_order, high_bits, high_at;
    int scales, scales_at, d_at, m_at;
} format;

/* block 0: a type that cannot be read; kind is what its values are packed as. */
static __host__ __device__ format format_of(int type) {
    switch (type) {
    case LLM_TYPE_F32: return {1, 4, KIND_F32};
    case LLM_TYPE_F64: return {1, 8, KIND_F32};
    case LLM_TYPE_F16: return {1, 2, KIND_F16};
    case LLM_TYPE_BF16: return {1, 2, KIND_BF16};
    case LLM_TYPE_RANDOM: return {1, 0, KIND_BF16};
    case LLM_TYPE_RANDOM_F8: return {1, 0, KIND_F8};
    case LLM_TYPE_RANDOM_Q4: return {1, 0, KIND_Q4Z};
    case LLM_TYPE_F8_E4M3: return {1, 1, KIND_F8};
    case LLM_TYPE_I8: return {1, 1, KIND_Q8}; /* a scale of 1 beside each sub, and one a row */
    case LLM_TYPE_F8_E5M2: return {1, 1, KIND_F16};
    case LLM_TYPE_Q4_0: return {32, 18, KIND_Q4Z, 8, PLANE_HALVES, 4, 2, PLANE_NONE, 0, 0, SCALES_ONE, 0, 0, -1};
    case LLM_TYPE_Q4_1: return {32, 20, KIND_Q4M, 0, PLANE_HALVES, 4, 4, PLANE_NONE, 0, 0, SCALES_ONE, 0, 0, 2};
    case LLM_TYPE_Q5_0: return {32, 22, KIND_Q5Z, 16, PLANE_HALVES, 4, 6, PLANE_WORD, 1, 2, SCALES_ONE, 0, 0, -1};
    case LLM_TYPE_Q5_1: return {32, 24, KIND_Q5M, 0, PLANE_HALVES, 4, 8, PLANE_WORD, 1, 4, SCALES_ONE, 0, 0, 2};
    case LLM_TYPE_Q8_0: return {32, 34, KIND_Q8, 0, PLANE_STRIPES, 8, 2, PLANE_NONE, 0, 0, SCALES_ONE, 0, 0, -1};
    case LLM_TYPE_IQ4_NL: return {32, 18, KIND_T4, 0, PLANE_HALVES, 4, 2, PLANE_NONE, 0, 0, SCALES_ONE, 0, 0, -1};
    case LLM_TYPE_MXFP4: return {32, 17, KIND_T4, 0, PLANE_HALVES, 4, 1, PLANE_NONE, 0, 0, SCALES_E8, 0, 0, -1};
    case LLM_TYPE_Q2_K: return {256, 84, KIND_G8, 0, PLANE_STRIPES, 2, 16, PLANE_NONE, 0, 0, SCALES_Q2K, 0, 80, 82};
    case LLM_TYPE_Q3_K: return {256, 110, KIND_G8, 4, PLANE_STRIPES, 2, 32, PLANE_STRIPES, 1, 0, SCALES_Q3K, 96, 108, -1};
    case LLM_TYPE_Q4_K: return {256, 144, KIND_Q4M, 0, PLANE_STRIPES, 4, 16, PLANE_NONE, 0, 0, SCALES_Q45K, 4, 0, 2};
    case LLM_TYPE_Q5_K: return {256, 176, KIND_Q5M, 0, PLANE_STRIPES, 4, 48, PLANE_STRIPES, 1, 16, SCALES_Q45K, 4, 0, 2};
    case LLM_TYPE_Q6_K: return {256, 210, KIND_Q6, 32, PLANE_QUARTERS, 4, 0, PLANE_STRIPES, 2, 128, SCALES_Q6K, 192, 208, -1};
    case LLM_TYPE_IQ4_XS: return {256, 136, KIND_T4, 0, PLANE_HALVES, 4, 8, PLANE_NONE, 0, 0, SCALES_XS, 2, 0, -1};
    case LLM_TYPE_Q4_ZERO: return {32, 19, KIND_Q4M, 0, PLANE_HALVES, 4, 3, PLANE_NONE, 0, 0, SCALES_ZERO, 2, 0, -1};
    case LLM_TYPE_G32: return {32, 40, KIND_F16, 0, PLANE_STRIPES, 8, 8, PLANE_NONE, 0, 0, SCALES_F32, 0, 0, 4};
    case LLM_TYPE_NVFP4_32: return {32, 20, KIND_F16, 0, PLANE_HALVES, 4, 4, PLANE_NONE, 0, 0, SCALES_F16X2, 0, 0, -1};
    case LLM_TYPE_NF4: return {32, 20, KIND_T4, 0, PLANE_HALVES, 4, 4, PLANE_NONE, 0, 0, SCALES_F32, 0, 0, -1};
    case LLM_TYPE_FP4: return {32, 20, KIND_T4, 0, PLANE_HALVES, 4, 4, PLANE_NONE, 0, 0, SCALES_F32, 0, 0, -1};
    case LLM_TYPE_F8_32: return {32, 36, KIND_F16, 0, PLANE_STRIPES, 8, 4, PLANE_NONE, 0, 0, SCALES_F32, 0, 0, -1};
    case LLM_TYPE_F8_128: return {128, 132, KIND_F16}; /* see raw_value */
    default: return {0, 0, 0};
    }
}

/* 32 columns: value i = d[i / 16] * (u[i] - zero) + m[i / 16], or d * table[u]. Twin: llm__sub. */
typedef struct raw_sub {
    uint8_t u[32];
    float d[2], m[2];
} raw_sub;

/* The bits of column i of sub j that a plane at p has. Twin: llm__plane_get. */
static __device__ uint32_t plane_bits(int order, int bits, const uint8_t *p, int j, int i) {
    const int per = bits ? 8 / bits : 1;
    const uint32_t mask = (1u << bits) - 1;
    if (order == PLANE_STRIPES) return p[j / per * 32 + i] >> (j % per * bits) & mask;
    if (order == PLANE_QUARTERS) return p[j / 4 * 64 + j % 2 * 32 + i] >> (j % 4 / 2 * 4) & mask;
    if (order == PLANE_HALVES) return p[16 * j + i % 16] >> (4 * (i / 16)) & mask;
    return order == PLANE_WORD ? p[i / 8] >> (i % 8) & 1 : 0;
}

static __device__ float raw_half(const uint8_t *p) { return half_to_f32((uint16_t)(p[0] | p[1] << 8)); }

/* The small scale and minimum of group i (16 columns) of sub j. Twin: llm__sub_scales. */
static __device__ void small_scales(int packing, const uint8_t *p, int j, int i, float *scale, float *minimum) {
    int k = 2 * j + i;
    *scale = *minimum = 1;
    switch (packing) {
    case SCALES_Q2K: *scale = (float)(p[k] & 15), *minimum = (float)(p[k] >> 4); return;
    case SCALES_Q3K: *scale = (float)(((k < 8 ? p[k] & 15 : p[k - 8] >> 4) | (p[8 + k % 4] >> (k / 4 * 2) & 3) << 4) - 32); return;
    case SCALES_Q45K:
        *scale = (float)(j < 4 ? p[j] & 63 : (p[j + 4] & 15) | p[j - 4] >> 6 << 4);
        *minimum = (float)(j < 4 ? p[j + 4] & 63 : p[j + 4] >> 4 | p[j] >> 6 << 4);
        return;
    case SCALES_Q6K: *scale = (float)(int8_t)p[k]; return;
    case SCALES_XS: *scale = (float)(((p[2 + j / 2] >> (j % 2 * 4) & 15) | ((p[0] | p[1] << 8) >> (2 * j) & 3) << 4) - 32); return;
    default: return;
    }
}

/* Sub number `sub` of a stored row of a quantised type. Twin: llm__sub_read. */
static __device__ void raw_sub_get(const format &f, const uint8_t *row, int64_t sub, raw_sub *o) {
    const uint8_t *p = row + sub / (f.block / 32) * f.bytes;
    int j = (int)(sub % (f.block / 32));
    float m = f.m_at < 0 ? 0 : raw_half(p + f.m_at), d;
    if (f.scales == SCALES_F32) {
        memcpy(&d, p + f.d_at, 4);
        if (f.m_at >= 0) memcpy(&m, p + f.m_at, 4);
        else if (f.kind == KIND_T4) d *= 1.0f / 127; /* a table's largest is 127, and stands for 1 */
    } else if (f.scales != SCALES_E8) d = raw_half(p + f.d_at);
    else d = p[0] < 2 ? bits_to_f32(0x00200000u << p[0]) : bits_to_f32((uint32_t)(p[0] - 1) << 23);
    if (f.block == 256) m = -m; /* super-blocks store what is to be subtracted */
    if (f.scales == SCALES_ZERO) m = -d * (float)p[f.scales_at];
    for (int i = 0; i < 32; i++)
        o->u[i] =
            (uint8_t)(plane_bits(f.order, f.bits, p + f.at, j, i) | plane_bits(f.high_order, f.high_bits, p + f.high_at, j, i) << f.bits);
    for (int i = 0; i < 2; i++) {
        float scale, minimum;
        small_scales(f.scales, p + f.scales_at, j, i, &scale, &minimum);
        o->d[i] = f.scales == SCALES_F16X2 ? raw_half(p + 2 * i) : d * scale;
        o->m[i] = m * minimum;
    }
}

static __device__ __forceinline__ float table_value(const uint64_t *table, uint32_t u) {
    return (float)(int8_t)(table[u >> 3] >> (8 * (u & 7)));
}

/* What a code stands for in units of its scale; of types whose tables are rounded for kernels exactly. Twin: llm__type_values. */
static __device__ float code_value(int type, const uint64_t *table, uint32_t u) {
    /* clang-format off */
    const float nf4[16] = {-1, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
                           -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0,
                           0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
                           0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1};
    /* clang-format on */
    const float fp4[8] = {0, 0.005208333334f, 0.66666667f, 1, 0.33333333f, 0.5f, 0.16666667f, 0.25f};
    if (type == LLM_TYPE_NF4) return 127 * nf4[u];
    if (type == LLM_TYPE_FP4) return u & 8 ? -127 * fp4[u & 7] : 127 * fp4[u];
    return table_value(table, u);
}

/* Twin: llm__element. Stored floats may be anywhere: read byte by byte. */
static __device__ float raw_element(int type, const uint8_t *p) {
    uint32_t u = (uint32_t)p[0];
    double wide = 0;
    if (type == LLM_TYPE_I8) return (float)(int8_t)u;
    if (type == LLM_TYPE_F8_E4M3) return e4m3_to_f32(u);
    if (type == LLM_TYPE_F8_E5M2) return half_to_f32((uint16_t)(u << 8));
    u |= (uint32_t)p[1] << 8;
    if (type == LLM_TYPE_F16) return half_to_f32((uint16_t)u);
    if (type == LLM_TYPE_BF16) return bf16_to_f32(u);
    if (type == LLM_TYPE_F64) return memcpy(&wide, p, 8), (float)wide;
    return bits_to_f32(u | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

/* Twin: llm__random_weight and llm__hash of (row, col). */
static __device__ float random_weight(uint64_t seed, int64_t row, int64_t col) {
    const uint64_t k = 0xD6E8FEB86659FD93u;
    uint64_t h = seed ^ (16 * 0x9E3779B97F4A7C15u);
    const uint64_t words[3] = {(uint64_t)row, (uint64_t)col, 0};
    for (int i = 0; i < 3; i++) {
        h = (h ^ words[i]) * k;
        h ^= h >> 32;
    }
    h *= k;
    h ^= h >> 29;
    return (float)((double)(h >> 40) / 16777216 * 0.04 - 0.02);
}

/* What kernel_pack reads: rows of one segment in device memory, as the file has them. Only the wanted columns were copied, widened to whole
 * blocks; `skip` of them come before the first that is meant. */
typedef struct raw_rows {
    const uint8_t *data;
    int type, transposed;
    int64_t pitch;    /* bytes between stored rows */
    int64_t skip;     /* columns before the first wanted one in a staged row */
    int64_t step;     /* transposed: columns between rows of the weight */
    int64_t row, col; /* random: stored row and column of the first value */
    uint64_t seed;
    uint64_t table[2];
} raw_rows;

/* Value (r, c) of the staged rows: any type, any cut, transposed or not. Slow, but loading waits for the file. Q8_0's bytes are signed, all
 * other types' values are not. */
static __device__ float raw_value(const raw_rows &s, const format &f, int64_t r, int64_t c) {
    if (s.type >= LLM_TYPE_RANDOM) return random_weight(s.seed, s.row + r * s.step, s.col + c);
    int64_t at = s.transposed ? s.skip + r * s.step : s.skip + c;
    const uint8_t *row = s.data + (s.transposed ? c : r) * s.pitch;
    if (f.block == 1) return raw_element(s.type, row + at * f.bytes);
    if (s.type == LLM_TYPE_F8_128) {
        float d;
        memcpy(&d, row + at / 128 * 132, 4);
        return d * e4m3_to_f32(row[at / 128 * 132 + 4 + at % 128]);
    }
    raw_sub b;
    raw_sub_get(f, row, at / 32, &b);
    int i = (int)(at % 32);
    if (s.type == LLM_TYPE_F8_32) return b.d[0] * e4m3_to_f32(b.u[i]);
    if (f.kind == KIND_T4 || s.type == LLM_TYPE_NVFP4_32) return b.d[i / 16] * code_value(s.type, s.table, b.u[i]);
    int u = f.kind == KIND_Q8 || s.type == LLM_TYPE_G32 ? (int8_t)b.u[i] : b.u[i] - f.zero;
    return b.d[i / 16] * (float)u + b.m[i / 16];
}

#define RANDOM_STEP (0.02f / 7) /* of random weights that are kept as Q4_0 */

static __device__ void store_half(uint8_t *p, float v) { *(uint16_t *)p = f32_to_half(v); }

/* Writes 32 quantised columns as sub `sub` of a row. */
static __device__ void store_sub(const part &w, int64_t row, int sub, const raw_sub &b) {
    const int k = w.kind, g = (int)row & 7, r = (int)row >> 3 & 1, s = sub & 1, one = kind_high_bytes(k) == 4;
    uint8_t *to = brick_at(w, brick_bytes(k), row, sub / BRICK_SUBS),
            *d = to + brick_scales(k) + ((s * 8 + g) * 2 + r) * kind_scale_bytes(k);
    for (int t = 0; t < 4; t++)
        for (int e = 0; e < 2; e++) {
            uint8_t *q = to + 16 * (4 * g + t), *high = to + brick_high(k) + (one ? 4 : 8) * (4 * g + t) + (one ? 0 : 4 * s) + r + 2 * e;
            uint32_t bits = 0;
            for (int h = 0; h < 2; h++) {
                const uint32_t u0 = b.u[16 * h + 4 * t + e], u1 = b.u[16 * h + 4 * t + 2 + e];
                if (kind_nibbles(k)) q[4 * (2 * s + h) + r + 2 * e] = (uint8_t)((u0 & 15) | u1 << 4);
                else q[512 * s + 4 * (2 * h + r) + e] = (uint8_t)u0, q[512 * s + 4 * (2 * h + r) + 2 + e] = (uint8_t)u1;
                bits |= one ? (u0 >> 4 | u1 >> 4 << 1) << (2 * h) : (u0 >> 4 | u1 >> 4 << 2) << (4 * h);
            }
            if (kind_high_bytes(k) == 8) *high = (uint8_t)bits;
            else if (one) *high = (uint8_t)(s ? (*high & 15) | bits << 4 : bits);
        }
    if (k == KIND_T4) memcpy(d, &b.d[0], 4);
    else store_half(d, b.d[0]);
    if (k == KIND_Q4M || k == KIND_Q5M) store_half(d + 2, b.m[0]);
    if (k == KIND_Q6) store_half(d + 2, b.d[1]);
    for (int h = 0; h < 2 && k == KIND_G8; h++) store_half(d + 4 * h, b.d[h]), store_half(d + 4 * h + 2, b.m[h]);
}

/* The same of 32 values of a type that has no blocks: int8, and random ones within +-0.02. */
static __device__ void store_values(const part &w, int64_t row, int sub, const float *v) {
    raw_sub b = {};
    b.d[0] = w.kind == KIND_Q8 ? 1 : RANDOM_STEP;
    for (int c = 0; c < 32; c++)
        b.u[c] = w.kind == KIND_Q8 ? (uint8_t)(int8_t)v[c] : (uint8_t)fminf(15, fmaxf(0, v[c] / RANDOM_STEP + 8.5f));
    store_sub(w, row, sub, b);
}

/* A value of what lies row by row. */
static __device__ void store_float(const part &w, int64_t at, float v) {
    if (w.kind == KIND_F32) ((float *)w.q)[at] = v;
    else if (w.kind == KIND_F16) ((uint16_t *)w.q)[at] = f32_to_half(v);
    else if (w.kind == KIND_BF16) ((uint16_t *)w.q)[at] = (uint16_t)f32_to_bf16(v);
    else w.q[at] = (uint8_t)f32_narrow(v, 4, 3, 0x7e, 0x7f);
}

/* Where row `row` of a weight stands when it is packed: gate and up rows of the same output side by side. */
static __host__ __device__ __forceinline__ int64_t packed_row(int64_t row, int64_t per_group, int gate_up) {
    if (!gate_up) return row;
    int64_t g = row / per_group, i = row % per_group, half = per_group / 2;
    return g * per_group + (i < half ? 2 * i : 2 * (i - half) + 1);
}

/* Computes: rows (n_rows, subs) of a part from rows as the file has them. `keep`: the file's blocks become subs with their bits, as whole
 * blocks of a kind that has them; else each value is read and rounded to the part's float. Grid: one thread two subs, which share a brick.
 * Twin: llm__weight_pack. */
static __global__ void __launch_bounds__(128)
    kernel_pack(part w, raw_rows s, int64_t first, int64_t n_rows, int64_t cols, int64_t per_group, int gate_up, int keep) {
    grid_wait();
    const int each = ceil_div(w.subs, BRICK_SUBS);
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, r = i / each;
    if (r >= n_rows) return;
    const format f = format_of(s.type);
    int64_t row = packed_row(first + r, per_group, gate_up);
    row = row / per_group * w.apart + row % per_group - w.row;
    for (int sub = (int)(i % each) * BRICK_SUBS, end = sub + BRICK_SUBS; sub < end; sub++) {
        raw_sub b = {};
        float v[32];
        if (keep) { /* whole quantised blocks keep their bits */
            if (sub < w.subs) {
                raw_sub_get(f, s.data + r * s.pitch, s.skip / 32 + sub, &b);
                for (int h = 0; h < 2 && w.kind == KIND_G8; h++) b.m[h] -= (float)f.zero * b.d[h];
            }
            store_sub(w, row, sub, b);
            continue;
        }
        if (sub >= w.subs && !kind_bricks(w.kind)) break;
        for (int c = 0; c < 32; c++) v[c] = sub < w.subs && 32 * (int64_t)sub + c < cols ? raw_value(s, f, r, 32 * (int64_t)sub + c) : 0;
        if (kind_bricks(w.kind)) store_values(w, row, sub, v);
        else
            for (int c = 0; c < 32; c++) store_float(w, (row * w.subs + sub) * 32 + c, v[c]);
    }
}

/* Computes: to (rows, cols) of plain f32, for vectors, kv_b and adapters' matrices: value * scale + add, where a row may have a scale of
 * its own. Grid: one thread a value. Twin: llm__weight_pack, of a plain weight. */
static __global__ void __launch_bounds__(128, 4)
    kernel_plain(float *to, raw_rows s, int64_t first, int64_t n_rows, int64_t cols, float scale, const float *row_scale, float add) {
    grid_wait();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_rows * cols) return;
    float by = row_scale ? row_scale[first + i / cols] : scale;
    to[first * cols + i] = raw_value(s, format_of(s.type), i / cols, i % cols) * by + add;
}
