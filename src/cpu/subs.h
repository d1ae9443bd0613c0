/* subs: 32 columns of any quantised format, taken apart into one common form.
 *
 * All of it is inlined: dequantising walks over formats as they come, packing has a loop of its own for each format that models mostly
 * have, in which all that depends on the format is constant. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/dtypes.h"

/* The format of a type; NULL: it is none. Of a constant type all of it is constant. */
LLM__INLINE const llm__format *llm__format_find(const int32_t type) {
#define LLM__FORMAT(name, ...) \
    case name: { \
        static const llm__format f = {name, __VA_ARGS__}; \
        return &f; \
    }
    /* clang-format off */
    switch (type) {
        LLM__FORMAT(LLM_TYPE_Q4_0, LLM__KIND_Q4Z, LLM__KIND_Q4Z, 8, LLM__HALVES, 4, 2, LLM__PLANE_NONE, 0, 0, LLM__SC_ONE, 0, 0, -1)
        LLM__FORMAT(LLM_TYPE_Q4_1, LLM__KIND_Q4M, LLM__KIND_Q4M, 0, LLM__HALVES, 4, 4, LLM__PLANE_NONE, 0, 0, LLM__SC_ONE, 0, 0, 2)
        LLM__FORMAT(LLM_TYPE_Q5_0, LLM__KIND_Q5Z, LLM__KIND_Q5Z, 16, LLM__HALVES, 4, 6, LLM__WORD, 1, 2, LLM__SC_ONE, 0, 0, -1)
        LLM__FORMAT(LLM_TYPE_Q5_1, LLM__KIND_Q5M, LLM__KIND_Q5M, 0, LLM__HALVES, 4, 8, LLM__WORD, 1, 4, LLM__SC_ONE, 0, 0, 2)
        LLM__FORMAT(LLM_TYPE_Q8_0, LLM__KIND_Q8, LLM__KIND_Q8, 0, LLM__STRIPES, 8, 2, LLM__PLANE_NONE, 0, 0, LLM__SC_ONE, 0, 0, -1)
        LLM__FORMAT(LLM_TYPE_IQ4_NL, LLM__KIND_IQ4, LLM__KIND_IQ4, 0, LLM__HALVES, 4, 2, LLM__PLANE_NONE, 0, 0, LLM__SC_ONE, 0, 0, -1)
        LLM__FORMAT(LLM_TYPE_MXFP4, LLM__KIND_MXFP4, LLM__KIND_MXFP4, 0, LLM__HALVES, 4, 1, LLM__PLANE_NONE, 0, 0, LLM__SC_E8, 0, 0, -1)
        LLM__FORMAT(LLM_TYPE_Q2_K, LLM__KIND_Q2K, LLM__KIND_G16M, 0, LLM__STRIPES, 2, 16, LLM__PLANE_NONE, 0, 0, LLM__SC_Q2K, 0, 80, 82)
        LLM__FORMAT(LLM_TYPE_Q3_K, LLM__KIND_Q3K, LLM__KIND_G16, 4, LLM__STRIPES, 2, 32, LLM__STRIPES, 1, 0, LLM__SC_Q3K, 96, 108, -1)
        LLM__FORMAT(LLM_TYPE_Q4_K, LLM__KIND_Q4K, LLM__KIND_G16M, 0, LLM__STRIPES, 4, 16, LLM__PLANE_NONE, 0, 0, LLM__SC_Q45K, 4, 0, 2)
        LLM__FORMAT(LLM_TYPE_Q5_K, LLM__KIND_Q5K, LLM__KIND_G16M, 0, LLM__STRIPES, 4, 48, LLM__STRIPES, 1, 16, LLM__SC_Q45K, 4, 0, 2)
        LLM__FORMAT(LLM_TYPE_Q6_K, LLM__KIND_Q6K, LLM__KIND_G16, 32, LLM__QUARTERS, 4, 0, LLM__STRIPES, 2, 128, LLM__SC_Q6K, 192, 208, -1)
        LLM__FORMAT(LLM_TYPE_Q4_ZERO, LLM__KIND_Q4A, LLM__KIND_Q4A, 0, LLM__HALVES, 4, 3, LLM__PLANE_NONE, 0, 0, LLM__SC_ZERO, 2, 0, -1)
        LLM__FORMAT(LLM_TYPE_G32, LLM__KIND_G32, LLM__KIND_G32, 0, LLM__STRIPES, 8, 8, LLM__PLANE_NONE, 0, 0, LLM__SC_F32, 0, 0, 4)
        LLM__FORMAT(LLM_TYPE_NVFP4_32, LLM__KIND_NVFP4, LLM__KIND_NVFP4, 0, LLM__HALVES, 4, 4, LLM__PLANE_NONE, 0, 0, LLM__SC_F16X2, 0, 0,
                    -1)
        LLM__FORMAT(LLM_TYPE_NF4, LLM__KIND_NF4, LLM__KIND_NF4, 0, LLM__HALVES, 4, 4, LLM__PLANE_NONE, 0, 0, LLM__SC_F32, 0, 0, -1)
        LLM__FORMAT(LLM_TYPE_FP4, LLM__KIND_FP4, LLM__KIND_FP4, 0, LLM__HALVES, 4, 4, LLM__PLANE_NONE, 0, 0, LLM__SC_F32, 0, 0, -1)
        LLM__FORMAT(LLM_TYPE_GRID2, LLM__KIND_GRID2, LLM__KIND_G16, 0, LLM__HALVES, 4, 18, LLM__PLANE_NONE, 0, 0, LLM__SC_Q6K, 2, 0, -1)
        LLM__FORMAT(LLM_TYPE_GRID2X, LLM__KIND_GRID2X, LLM__KIND_G16, 0, LLM__HALVES, 4, 18, LLM__PLANE_NONE, 0, 0, LLM__SC_Q6K, 2, 0, -1)
        LLM__FORMAT(LLM_TYPE_GRID1, LLM__KIND_GRID1, LLM__KIND_G16, 0, LLM__HALVES, 4, 18, LLM__PLANE_NONE, 0, 0, LLM__SC_Q6K, 2, 0, -1)
        LLM__FORMAT(LLM_TYPE_GRID1X, LLM__KIND_GRID1X, LLM__KIND_G16, 0, LLM__HALVES, 4, 18, LLM__PLANE_NONE, 0, 0, LLM__SC_Q6K, 2, 0, -1)
        LLM__FORMAT(LLM_TYPE_GRID3, LLM__KIND_GRID3, LLM__KIND_G16, 0, LLM__HALVES, 4, 18, LLM__PLANE_NONE, 0, 0, LLM__SC_Q6K, 2, 0, -1)
        LLM__FORMAT(LLM_TYPE_GRID3S, LLM__KIND_GRID3S, LLM__KIND_G16, 0, LLM__HALVES, 4, 18, LLM__PLANE_NONE, 0, 0, LLM__SC_Q6K, 2, 0, -1)
        LLM__FORMAT(LLM_TYPE_TERNARY, LLM__KIND_TERNARY, LLM__KIND_G16, 1, LLM__HALVES, 4, 18, LLM__PLANE_NONE, 0, 0, LLM__SC_Q6K, 2, 0, -1)
        LLM__FORMAT(LLM_TYPE_IQ4_XS, LLM__KIND_IQ4X, LLM__KIND_G16, 0, LLM__HALVES, 4, 8, LLM__PLANE_NONE, 0, 0, LLM__SC_XS, 2, 0, -1)
    default: return NULL;
    }
    /* clang-format on */
#undef LLM__FORMAT
}

/* Whether blocks have 256 columns. */
LLM__INLINE int llm__format_super(const llm__format *f) { return f->scales >= LLM__SC_Q2K; }

/* n bytes of a plane, shifted and masked eight at a time, into the bits from `up` on of u. */
LLM__INLINE void llm__plane_add(const uint8_t *p, int n, int shift, int bits, int up, uint8_t *u) {
    const uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    for (int i = 0; i < n; i += 8) {
        uint64_t x, y;
        memcpy(&x, p + i, 8);
        memcpy(&y, u + i, 8);
        y |= (x >> shift & mask) << up;
        memcpy(u + i, &y, 8);
    }
}

/* The bits of sub j that a plane at p has. */
LLM__INLINE void llm__plane_get(llm__order order, int bits, const uint8_t *p, int j, int up, uint8_t u[32]) {
    const int per = bits ? 8 / bits : 1;
    if (order == LLM__STRIPES) llm__plane_add(p + j / per * 32, 32, j % per * bits, bits, up, u);
    if (order == LLM__QUARTERS) llm__plane_add(p + j / 4 * 64 + j % 2 * 32, 32, j % 4 / 2 * 4, bits, up, u);
    for (int h = 0; h < 2 && order == LLM__HALVES; h++) llm__plane_add(p + 16 * j, 16, 4 * h, bits, up, u + 16 * h);
    for (int i = 0; i < 32 && order == LLM__WORD; i++) u[i] = (uint8_t)(u[i] | (p[i / 8] >> i % 8 & 1) << up);
}

/* The small scales and minimums of sub j: p is where they stand. Where a sub has 6 bits of each, the low ones are packed like nibbles and
 * the upper two fill the gaps. */
LLM__INLINE void llm__sub_scales(llm__packing packing, const uint8_t *p, int j, llm__sub *o) {
    for (int i = 0; i < 2; i++) {
        int k = 2 * j + i; /* group of 16 columns */
        o->sc[i] = 1;
        o->mc[i] = 1;
        switch (packing) {
        case LLM__SC_ONE:
        case LLM__SC_F32:
        case LLM__SC_F32X2:
        case LLM__SC_F16X2:
        case LLM__SC_E8: break;
        case LLM__SC_ZERO: o->mc[i] = p[0]; break;
        case LLM__SC_Q2K: /* a byte a group: scale, minimum */
            o->sc[i] = (int8_t)(p[k] & 15);
            o->mc[i] = p[k] >> 4;
            break;
        case LLM__SC_Q3K: /* 6 bits less 32 a group: 8 bytes of nibbles, 4 bytes of upper bits */
            o->sc[i] = (int8_t)(((k < 8 ? p[k] & 15 : p[k - 8] >> 4) | (p[8 + k % 4] >> (k / 4 * 2) & 3) << 4) - 32);
            break;
        case LLM__SC_Q45K: /* 6 bits a sub: four bytes with scales, four with minimums, four with the rest of both */
            o->sc[i] = (int8_t)(j < 4 ? p[j] & 63 : (p[j + 4] & 15) | p[j - 4] >> 6 << 4);
            o->mc[i] = (uint8_t)(j < 4 ? p[j + 4] & 63 : p[j + 4] >> 4 | p[j] >> 6 << 4);
            break;
        case LLM__SC_Q6K: o->sc[i] = (int8_t)p[k]; break;
        case LLM__SC_XS: /* 6 bits less 32 a sub: two bytes of upper bits, four of nibbles */
            o->sc[i] = (int8_t)(((p[2 + j / 2] >> (j % 2 * 4) & 15) | ((p[0] | p[1] << 8) >> (2 * j) & 3) << 4) - 32);
            break;
        }
    }
}

/* Sub `sub` of a stored row of format f, whose blocks have so many bytes. Without `values` only what is stored: q, d and m stay unset. */
LLM__INLINE void llm__sub_read(const llm__format *f, const int bytes, const uint8_t *row, int64_t sub, const int values, llm__sub *o) {
    const int8_t *table = llm__kind_table(f->kind);
    const int per = llm__format_super(f) ? 8 : 1; /* subs of a block */
    const uint8_t *p = row + sub / per * bytes;
    const int j = (int)(sub % per);
    memset(o->u, 0, sizeof o->u);
    llm__plane_get(f->order, f->bits, p + f->at, j, 0, o->u);
    llm__plane_get(f->high_order, f->high_bits, p + f->high_at, j, f->bits, o->u);
    for (int i = 0; i < 32 && values; i++) o->q[i] = table ? table[o->u[i]] : (int8_t)(o->u[i] - f->zero);
    llm__sub_scales(f->scales, p + f->scales_at, j, o);
    o->half_d = f->scales == LLM__SC_E8 ? p[0] : (uint16_t)(p[f->d_at] | p[f->d_at + 1] << 8);
    o->half_m = f->m_at < 0 ? 0 : (uint16_t)(p[f->m_at] | p[f->m_at + 1] << 8);
    if (per == 8 && f->m_at >= 0) o->half_m ^= 0x8000; /* super-blocks store what is to be subtracted */
    if (f->scales == LLM__SC_F16X2) memcpy(o->half_d2, p + f->d_at, 4);
    if (!values) return;
    float d;
    o->m = f->m_at < 0 ? 0 : llm__f16_to_f32(o->half_m);
    if (f->scales == LLM__SC_F32) {
        memcpy(&d, p + f->d_at, 4);
        if (f->m_at >= 0) memcpy(&o->m, p + f->m_at, 4);
    } else d = f->scales == LLM__SC_E8 ? llm__bits_f32(llm__e8_bits(p[0])) : llm__f16_to_f32(o->half_d);
    if (f->scales == LLM__SC_ZERO) o->m = -d;
    d *= 1 / llm__kind_unit(f->kind);
    for (int i = 0; i < 2; i++) o->d[i] = f->scales == LLM__SC_F16X2 ? llm__f16_to_f32(o->half_d2[i]) : d * (float)o->sc[i];
    if (f->scales == LLM__SC_F32X2) memcpy(o->d, p + f->d_at, 8);
}
