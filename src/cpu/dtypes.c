#include "cpu/dtypes.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/text.h"
#include "base/map.h"
#include "cpu/subs.h"
#include "cpu/grids.h"

LLM__PRIVATE float llm__bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

LLM__PRIVATE uint32_t llm__f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* ---- Small floats ---- */

LLM__PRIVATE float llm__f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 1023;
    if (e == 31) return llm__bits_f32(sign | 0x7F800000 | m << 13);
    if (e) return llm__bits_f32(sign | (e + 112) << 23 | m << 13);
    return llm__bits_f32(sign | llm__f32_bits((float)m * (1.0f / 16777216)));
}

LLM__PRIVATE float llm__bf16_to_f32(uint16_t h) { return llm__bits_f32((uint32_t)h << 16); }
LLM__PRIVATE float llm__e5m2_to_f32(uint8_t b) { return llm__f16_to_f32((uint16_t)(b << 8)); }

LLM__PRIVATE float llm__e4m3_to_f32(uint8_t b) {
    uint32_t sign = (uint32_t)(b & 0x80) << 24, e = (b >> 3) & 15, m = b & 7;
    if ((b & 0x7F) == 0x7F) return llm__bits_f32(sign | 0x7FC00000);
    if (e) return llm__bits_f32(sign | (e + 120) << 23 | m << 20);
    return llm__bits_f32(sign | llm__f32_bits((float)m * (1.0f / 512)));
}

/* Rounds to nearest even to a float of 1 + e_bits + m_bits bits; what is too large becomes `top`, NaN becomes `nan`. */
static uint32_t llm__f32_narrow(float f, int e_bits, int m_bits, uint32_t top, uint32_t nan) {
    uint32_t u = llm__f32_bits(f), a = u & 0x7FFFFFFF, sign = (u >> 31) << (e_bits + m_bits);
    if (a > 0x7F800000) return sign | nan;
    if (a == 0x7F800000) return sign | top;
    int e = (int)(a >> 23) - 128 + (1 << (e_bits - 1)), shift = 23 - m_bits;
    uint32_t m = (a & 0x7FFFFF) | 0x800000;
    if (e <= 0) { /* subnormal: the mantissa moves down instead of the exponent */
        shift += 1 - e;
        e = 1;
    }
    if (shift > 24) return sign;
    uint32_t r = m >> shift, rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
    r += rest > half || (rest == half && (r & 1));
    r += (uint32_t)(e - 1) << m_bits; /* the hidden bit of r counts as one more exponent */
    return sign | LLM__MIN(r, top);
}

LLM__PRIVATE uint16_t llm__f32_to_f16(float f) { return (uint16_t)llm__f32_narrow(f, 5, 10, 0x7C00, 0x7E00); }
LLM__PRIVATE uint8_t llm__f32_to_e4m3(float f) { return (uint8_t)llm__f32_narrow(f, 4, 3, 0x7E, 0x7F); } /* saturates */
LLM__PRIVATE uint8_t llm__f32_to_e5m2(float f) { return (uint8_t)llm__f32_narrow(f, 5, 2, 0x7B, 0x7E); } /* saturates */

LLM__PRIVATE uint16_t llm__f32_to_bf16(float f) {
    uint32_t u = llm__f32_bits(f);
    if ((u & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

/* ---- Types by number ---- */

/* Those of one element a block are the dtypes of safetensors, by the same names. Rows without a name of llm_type are types of ggml that no
 * kernel here reads: they are in the table so that `info` can list them and their sizes can be checked. Numbers that ggml has given up (4,
 * 5, 31 to 33, 36 to 38) are absent, as if never heard of. */
/* clang-format off */
static const llm__type_desc llm__type_table[] = {
    {LLM_TYPE_F32, "F32", 1, 4}, {LLM_TYPE_F16, "F16", 1, 2}, {LLM_TYPE_BF16, "BF16", 1, 2}, {LLM_TYPE_F64, "F64", 1, 8},
    {LLM_TYPE_Q4_0, "Q4_0", 32, 18}, {LLM_TYPE_Q4_1, "Q4_1", 32, 20}, {LLM_TYPE_Q5_0, "Q5_0", 32, 22},
    {LLM_TYPE_Q5_1, "Q5_1", 32, 24}, {LLM_TYPE_Q8_0, "Q8_0", 32, 34}, {9, "Q8_1", 32, 36}, {LLM_TYPE_Q2_K, "Q2_K", 256, 84},
    {LLM_TYPE_Q3_K, "Q3_K", 256, 110}, {LLM_TYPE_Q4_K, "Q4_K", 256, 144}, {LLM_TYPE_Q5_K, "Q5_K", 256, 176},
    {LLM_TYPE_Q6_K, "Q6_K", 256, 210}, {15, "Q8_K", 256, 292}, {LLM_TYPE_IQ2_XXS, "IQ2_XXS", 256, 66}, {LLM_TYPE_IQ2_XS, "IQ2_XS", 256, 74},
    {LLM_TYPE_IQ3_XXS, "IQ3_XXS", 256, 98}, {LLM_TYPE_IQ1_S, "IQ1_S", 256, 50}, {LLM_TYPE_IQ4_NL, "IQ4_NL", 32, 18},
    {LLM_TYPE_IQ3_S, "IQ3_S", 256, 110}, {LLM_TYPE_IQ2_S, "IQ2_S", 256, 82}, {LLM_TYPE_IQ4_XS, "IQ4_XS", 256, 136},
    {LLM_TYPE_IQ1_M, "IQ1_M", 256, 56}, {LLM_TYPE_TQ1_0, "TQ1_0", 256, 54}, {LLM_TYPE_TQ2_0, "TQ2_0", 256, 66},
    {LLM_TYPE_MXFP4, "MXFP4", 32, 17}, {LLM_TYPE_NVFP4, "NVFP4", 64, 36}, {LLM_TYPE_I8, "I8", 1, 1},
    {LLM_TYPE_I16, "I16", 1, 2}, {LLM_TYPE_I32, "I32", 1, 4}, {LLM_TYPE_I64, "I64", 1, 8}, {LLM_TYPE_F8_E4M3, "F8_E4M3", 1, 1},
    {LLM_TYPE_F8_E5M2, "F8_E5M2", 1, 1}, {LLM_TYPE_U8, "U8", 1, 1}, {LLM_TYPE_BOOL, "BOOL", 1, 1}, {LLM_TYPE_U16, "U16", 1, 2},
    {LLM_TYPE_U32, "U32", 1, 4}, {LLM_TYPE_U64, "U64", 1, 8}, {LLM_TYPE_F8_E8M0, "F8_E8M0", 1, 1},
    {LLM_TYPE_Q4_ZERO, "INT4", 32, 19}, {LLM_TYPE_G32, "INT8", 32, 40},
    {LLM_TYPE_NVFP4_32, "NVFP4", 32, 20}, {LLM_TYPE_NF4, "NF4", 32, 20}, {LLM_TYPE_FP4, "FP4", 32, 20},
    {LLM_TYPE_GRID2, "codes of IQ2", 256, 146}, {LLM_TYPE_GRID2X, "codes of IQ2", 256, 146}, {LLM_TYPE_GRID1, "codes of IQ1", 256, 146},
    {LLM_TYPE_GRID1X, "codes of IQ1", 256, 146}, {LLM_TYPE_GRID3, "codes of IQ3", 256, 146}, {LLM_TYPE_GRID3S, "codes of IQ3", 256, 146},
    {LLM_TYPE_TERNARY, "codes of TQ", 256, 146}, {LLM_TYPE_F8_32, "F8_E4M3 blocks", 32, 36},
    {LLM_TYPE_F8_128, "F8_E4M3 blocks of 128", 128, 132},
};
/* clang-format on */

LLM__PRIVATE const llm__type_desc *llm__type_at(int i) { return i < LLM__COUNT(llm__type_table) ? &llm__type_table[i] : NULL; }

LLM__PRIVATE const llm__type_desc *llm__type_info(int32_t type) {
    for (int i = 0; i < LLM__COUNT(llm__type_table); i++)
        if (llm__type_table[i].type == type) return &llm__type_table[i];
    return NULL;
}

LLM__PRIVATE const char *llm__type_name(int32_t type) {
    const llm__type_desc *t = llm__type_info(type);
    return t ? t->name : type >= LLM_TYPE_RANDOM ? "random" : "unknown";
}

LLM__PRIVATE int llm__type_block(int32_t type) { return llm__type_info(type) ? llm__type_info(type)->block : 1; }
LLM__PRIVATE int llm__type_block_bytes(int32_t type) { return llm__type_info(type) ? llm__type_info(type)->bytes : 0; }

LLM__PRIVATE int64_t llm__row_bytes(int32_t type, int64_t n) { return n / llm__type_block(type) * llm__type_block_bytes(type); }

LLM__PRIVATE float llm__element(int32_t type, const uint8_t *p, int64_t i) {
    int size = llm__type_block_bytes(type);
    uint64_t bits = 0;
    double wide;
    memcpy(&bits, p + i * size, (size_t)size);
    memcpy(&wide, &bits, 8);
    switch (type) {
    case LLM_TYPE_F32: return llm__bits_f32((uint32_t)bits);
    case LLM_TYPE_F16: return llm__f16_to_f32((uint16_t)bits);
    case LLM_TYPE_BF16: return llm__bf16_to_f32((uint16_t)bits);
    case LLM_TYPE_F64: return (float)wide;
    case LLM_TYPE_F8_E4M3: return llm__e4m3_to_f32((uint8_t)bits);
    case LLM_TYPE_F8_E5M2: return llm__e5m2_to_f32((uint8_t)bits);
    default: return (float)(int8_t)bits; /* I8 */
    }
}

/* ---- Quantised blocks ---- */

LLM__PRIVATE const llm__format *llm__format_of(int32_t type) { return llm__format_find(type); }

LLM__PRIVATE int llm__type_readable(int32_t type) {
    return llm__format_of(type) || llm__grid_form(type) >= 0 || type == LLM_TYPE_F8_32 || type == LLM_TYPE_F8_128 ||
           llm__word_index("F32 F16 BF16 F8_E4M3 F8_E5M2 F64 I8", llm__lit(llm__type_name(type))) >= 0;
}

LLM__PRIVATE const float *llm__type_values(int32_t type) {
    static const float nf4[16] = {-1,
                                  -0.6961928009986877f,
                                  -0.5250730514526367f,
                                  -0.39491748809814453f,
                                  -0.28444138169288635f,
                                  -0.18477343022823334f,
                                  -0.09105003625154495f,
                                  0,
                                  0.07958029955625534f,
                                  0.16093020141124725f,
                                  0.24611230194568634f,
                                  0.33791524171829224f,
                                  0.44070982933044434f,
                                  0.5626170039176941f,
                                  0.7229568362236023f,
                                  1};
    static const float fp4[16] = {0, 0.005208333334f,  0.66666667f,  1,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
                                  0, -0.005208333334f, -0.66666667f, -1, -0.33333333f, -0.5f, -0.16666667f, -0.25f};
    return type == LLM_TYPE_NF4 ? nf4 : type == LLM_TYPE_FP4 ? fp4 : NULL;
}

/* Element i of a row of fp8 in blocks. */
static float llm__f8_element(const llm__type_desc *t, const uint8_t *row, int64_t i) {
    const uint8_t *block = row + i / t->block * t->bytes;
    float d;
    memcpy(&d, block, 4);
    return d * llm__e4m3_to_f32(block[4 + i % t->block]);
}

/* The same of a format with a codebook: block by block, in the form as which it is read. */
static void llm__grid_columns(int32_t type, const uint8_t *row, int64_t from, int64_t n, float *dst) {
    const int per = llm__type_block(llm__grid_form(type));
    uint8_t block[LLM__GRID_BYTES];
    for (int64_t i = 0, count; i < n; i += count) {
        const int64_t at = (from + i) % per;
        count = LLM__MIN(n - i, per - at);
        llm__grid_block(type, row, (from + i) / per, block);
        llm__dequant_columns(llm__grid_form(type), block, at, count, dst + i);
    }
}

LLM__PRIVATE void llm__dequant_columns(int32_t type, const uint8_t *row, int64_t from, int64_t n, float *dst) {
    const llm__format *f = llm__format_of(type);
    const llm__type_desc *t = llm__type_info(type);
    const float *values = llm__type_values(type);
    llm__sub s;
    if (type == LLM_TYPE_F32) memcpy(dst, row + 4 * from, (size_t)n * 4);
    else if (type == LLM_TYPE_BF16) /* the common ones of whole models: not through the switch */
        for (int64_t i = 0; i < n; i++)
            dst[i] = llm__bits_f32((uint32_t)row[2 * (from + i)] << 16 | (uint32_t)row[2 * (from + i) + 1] << 24);
    else if (type == LLM_TYPE_F8_32 || type == LLM_TYPE_F8_128)
        for (int64_t i = 0; i < n; i++) dst[i] = llm__f8_element(t, row, from + i);
    else if (llm__grid_form(type) >= 0) llm__grid_columns(type, row, from, n, dst);
    else if (!f)
        for (int64_t i = 0; i < n; i++) dst[i] = llm__element(type, row, from + i);
    else
        for (int64_t i = 0; i < n;) {
            int at = (int)((from + i) % 32), count = (int)LLM__MIN(n - i, (int64_t)32 - at);
            llm__sub_read(f, t->bytes, row, (from + i) / 32, 1, &s);
            for (int k = at; k < at + count; k++)
                dst[i++] =
                    values ? llm__kind_unit(f->kind) * s.d[0] * values[s.u[k]] : s.d[k / 16] * (float)s.q[k] + s.m * (float)s.mc[k / 16];
        }
}

/* ---- Segments of a weight, as the file has them ---- */

/* Seeded noise for LLM_TYPE_RANDOM: even in [-0.02, 0.02]; the same whatever slices a matrix is read in. */
static float llm__random_weight(uint64_t seed, int64_t row, int64_t col) {
    int64_t at[2];
    at[0] = row;
    at[1] = col;
    return (float)((double)(llm__hash(at, sizeof at, seed) >> 40) / 16777216 * 0.04 - 0.02);
}

/* The same as a weight of Q4_0 whose blocks all have this scale: 0 to 15. */
#define LLM__RANDOM_STEP (0.02f / 7)
static int llm__random_nibble(uint64_t seed, int64_t row, int64_t col) {
    const float u = llm__random_weight(seed, row, col) / LLM__RANDOM_STEP + 8.5f;
    return (int)LLM__MIN(LLM__MAX(u, 0), 15);
}

LLM__PRIVATE void llm__random_block(uint64_t seed, int64_t row, int64_t col, uint8_t block[18]) {
    const uint16_t scale = llm__f32_to_f16(LLM__RANDOM_STEP);
    memcpy(block, &scale, 2);
    for (int i = 0; i < 16; i++)
        block[2 + i] = (uint8_t)(llm__random_nibble(seed, row, col + i) | llm__random_nibble(seed, row, col + 16 + i) << 4);
}

/* A value of a type of random weights. */
static float llm__random_value(int32_t type, uint64_t seed, int64_t row, int64_t col) {
    if (type == LLM_TYPE_RANDOM_Q4)
        return (float)(llm__random_nibble(seed, row, col) - 8) * llm__f16_to_f32(llm__f32_to_f16(LLM__RANDOM_STEP));
    const float x = llm__random_weight(seed, row, col);
    return type == LLM_TYPE_RANDOM_F8 ? llm__e4m3_to_f32(llm__f32_to_e4m3(x)) : x;
}

LLM__PRIVATE int64_t llm__segment_row(const llm_segment *s, int64_t r) { return s->row + r * (s->row_step ? s->row_step : 1); }

LLM__PRIVATE const uint8_t *llm__segment_data(const llm_segment *s, int64_t r) {
    return (const uint8_t *)s->data + llm__segment_row(s, r) * llm__row_bytes(s->type, s->stored_cols);
}

LLM__PRIVATE float llm__segment_scale(const llm_segment *s) { return s->scale != 0 ? s->scale : 1; }

LLM__PRIVATE void llm__segment_values(const llm_segment *s, uint64_t seed, int64_t r, int64_t col, int64_t n, float *dst) {
    int64_t row = llm__segment_row(s, r), bytes = llm__row_bytes(s->type, s->stored_cols);
    if (s->read)
        for (int64_t at = 0, n_read; at < n; at += n_read) { /* whole blocks, some at a time */
            uint8_t some[LLM__SOME_COLUMNS * 4];
            const int64_t block = LLM__MAX(llm__type_block(s->type), 32), from = (s->col + col + at) / block * block,
                          skip = s->col + col + at - from;
            n_read = LLM__MIN(n - at, (int64_t)LLM__SOME_COLUMNS - skip);
            s->read(s->data, row, 1, 1, from, LLM__MIN((int64_t)LLM__SOME_COLUMNS, s->stored_cols - from), some);
            llm__dequant_columns(s->type, some, skip, n_read, dst + at);
        }
    else if (s->type >= LLM_TYPE_RANDOM)
        for (int64_t i = 0; i < n; i++) dst[i] = llm__random_value(s->type, seed, row, s->col + col + i);
    else if (!s->transposed) llm__dequant_columns(s->type, llm__segment_data(s, r), s->col + col, n, dst);
    else
        for (int64_t i = 0; i < n; i++)
            llm__dequant_columns(s->type, (const uint8_t *)s->data + (s->col + col + i) * bytes, row, 1, dst + i);
    for (int64_t i = 0; i < n && s->scales; i++) dst[i] *= s->scales[row];
}
