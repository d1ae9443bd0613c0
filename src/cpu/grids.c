#include "cpu/grids.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/dtypes.h"
#include "cpu/grid_tables.h"

LLM__PRIVATE int32_t llm__grid_form(int32_t type) {
    switch (type) {
    case LLM_TYPE_IQ1_S: return LLM_TYPE_GRID1;
    case LLM_TYPE_IQ1_M: return LLM_TYPE_GRID1X;
    case LLM_TYPE_IQ2_XXS: return LLM_TYPE_GRID2;
    case LLM_TYPE_IQ2_XS:
    case LLM_TYPE_IQ2_S: return LLM_TYPE_GRID2X;
    case LLM_TYPE_TQ1_0:
    case LLM_TYPE_TQ2_0: return LLM_TYPE_TERNARY;
    case LLM_TYPE_IQ3_XXS: return LLM_TYPE_GRID3;
    case LLM_TYPE_IQ3_S: return LLM_TYPE_GRID3S;
    case LLM_TYPE_NVFP4: return LLM_TYPE_NVFP4_32;
    default: return -1;
    }
}

/* 32 columns: code, the integers that scale either half, and the block's f16. */
typedef struct llm__grid_sub {
    uint8_t code[32], scale[2];
    uint16_t d;
} llm__grid_sub;

static uint32_t llm__grid_u16(const uint8_t *p) { return (uint32_t)(p[0] | p[1] << 8); }
static uint32_t llm__grid_u32(const uint8_t *p) { return llm__grid_u16(p) | llm__grid_u16(p + 2) << 16; }

/* Eight signs of which seven are stored: an even number of them is minus. */
static uint32_t llm__grid_signs(uint32_t seven) {
    uint32_t odd = seven & 127;
    odd ^= odd >> 4, odd ^= odd >> 2, odd ^= odd >> 1;
    return (seven & 127) | (odd & 1) << 7;
}

/* n values of an entry, of so many bits each, with their signs. */
static void llm__grid_put(uint8_t *code, int n, int bits, uint32_t entry, uint32_t signs) {
    for (int i = 0; i < n; i++) code[i] = (uint8_t)((entry >> bits * i & ((1u << bits) - 1)) | (signs >> i & 1) << bits);
}

/* The block's f16, at p, times 2 s + 1 for either half. */
static void llm__grid_scales(const uint8_t *p, uint32_t former, uint32_t latter, llm__grid_sub *o) {
    o->d = (uint16_t)llm__grid_u16(p);
    o->scale[0] = (uint8_t)(2 * former + 1);
    o->scale[1] = (uint8_t)(2 * latter + 1);
}

/* f16 d; of each sub four bytes that are indexes, and a word: four times seven signs, then a scale of four bits. */
static void llm__grid_iq2_xxs(const uint8_t *p, int j, llm__grid_sub *o) {
    const uint8_t *at = p + 2 + 8 * j;
    const uint32_t word = llm__grid_u32(at + 4);
    for (int l = 0; l < 4; l++) llm__grid_put(o->code + 8 * l, 8, 2, llm__grid_iq2_xxs_[at[l]], llm__grid_signs(word >> 7 * l));
    llm__grid_scales(p, word >> 28, word >> 28, o);
}

/* f16 d; of each eight values 9 bits of index and seven signs; of each sub two scales of four bits. */
static void llm__grid_iq2_xs(const uint8_t *p, int j, llm__grid_sub *o) {
    const uint32_t scales = p[66 + j];
    for (int l = 0; l < 4; l++) {
        const uint32_t x = llm__grid_u16(p + 2 + 8 * j + 2 * l);
        llm__grid_put(o->code + 8 * l, 8, 2, llm__grid_iq2_xs_[x & 511], llm__grid_signs(x >> 9));
    }
    llm__grid_scales(p, scales & 15, scales >> 4, o);
}

/* f16 d; of each eight values the low byte of an index, all of them; then signs likewise, two bits more of the indexes, scales. */
static void llm__grid_iq2_s(const uint8_t *p, int j, llm__grid_sub *o) {
    const uint8_t *low = p + 2 + 4 * j, *signs = low + 32;
    const uint32_t high = p[66 + j], scales = p[74 + j];
    for (int l = 0; l < 4; l++) llm__grid_put(o->code + 8 * l, 8, 2, llm__grid_iq2_s_[low[l] | (high >> 2 * l & 3) << 8], signs[l]);
    llm__grid_scales(p, scales & 15, scales >> 4, o);
}

/* f16 d; of each four values an index, all of them; then of each sub a word as in IQ2_XXS. */
static void llm__grid_iq3_xxs(const uint8_t *p, int j, llm__grid_sub *o) {
    const uint32_t word = llm__grid_u32(p + 66 + 4 * j);
    for (int l = 0; l < 8; l++)
        llm__grid_put(o->code + 4 * l, 4, 3, llm__grid_iq3_xxs_[p[2 + 8 * j + l]], llm__grid_signs(word >> l / 2 * 7) >> l % 2 * 4);
    llm__grid_scales(p, word >> 28, word >> 28, o);
}

/* f16 d; of each four values the low byte of an index, all of them; the ninth bits; signs; scales of four bits. */
static void llm__grid_iq3_s(const uint8_t *p, int j, llm__grid_sub *o) {
    const uint32_t high = p[66 + j], scale = p[106 + j / 2] >> j % 2 * 4 & 15;
    for (int l = 0; l < 8; l++)
        llm__grid_put(o->code + 4 * l, 4, 3, llm__grid_iq3_s_[p[2 + 8 * j + l] | (high >> l & 1) << 8],
                      (uint32_t)p[74 + 4 * j + l / 2] >> l % 2 * 4);
    llm__grid_scales(p, scale, scale, o);
}

/* Values -1, 0, 1 of an entry, an eighth added to or taken from all of them. */
static void llm__grid_put_one(uint8_t *code, uint32_t entry, uint32_t minus) {
    static const uint8_t codes[2][3] = {{5, 0, 2}, {6, 4, 1}}; /* -7 1 9, -9 -1 7 */
    for (int i = 0; i < 8; i++) code[i] = codes[minus & 1][LLM__MIN(entry >> 2 * i & 3, 2)];
}

/* f16 d; of each eight values the low byte of an index, all of them; of each sub a word of 16 bits: three bits more of four indexes, a
 * scale of three, the sign of the eighth. */
static void llm__grid_iq1_s(const uint8_t *p, int j, llm__grid_sub *o) {
    const uint32_t word = llm__grid_u16(p + 34 + 2 * j);
    for (int l = 0; l < 4; l++)
        llm__grid_put_one(o->code + 8 * l, llm__grid_iq1_s_[p[2 + 4 * j + l] | (word >> 3 * l & 7) << 8], word >> 15);
    llm__grid_scales(p, word >> 12 & 7, word >> 12 & 7, o);
}

/* Of each eight values the low byte of an index, all of them; then a nibble: three bits more, and the sign of the eighth; then four words
 * of 16 bits: four scales of three bits, and a quarter of the f16 d. */
static void llm__grid_iq1_m(const uint8_t *p, int j, llm__grid_sub *o) {
    const uint8_t *words = p + 48;
    const uint32_t scales = llm__grid_u16(words + j / 2 * 2) >> j % 2 * 6;
    uint32_t d = 0;
    for (int i = 0; i < 4; i++) d |= llm__grid_u16(words + 2 * i) >> 12 << 4 * i;
    for (int l = 0; l < 4; l++) {
        const uint32_t more = p[32 + 2 * j + l / 2] >> l % 2 * 4;
        llm__grid_put_one(o->code + 8 * l, llm__grid_iq1_s_[p[4 * j + l] | (more & 7) << 8], more >> 3);
    }
    for (int h = 0; h < 2; h++) o->scale[h] = (uint8_t)(2 * (scales >> 3 * h & 7) + 1);
    o->d = (uint16_t)d;
}

/* Five values a byte, in base three, as a fraction of 256; columns 0 ... 159 in 32 bytes, ... 239 in 16, ... 255 in 4, four each; f16 d. */
static void llm__grid_tq1_0(const uint8_t *p, int j, llm__grid_sub *o) {
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (int i = 0; i < 32; i++) {
        const int c = 32 * j + i,
                  part = c < 160   ? 0
                         : c < 240 ? 1
                                   : 2,
                  in = c - (part > 1 ? 240 : 160 * part), width = 32 >> part >> (part > 1);
        const uint8_t x = (uint8_t)(p[(part > 1 ? 48 : 32 * part) + in % width] * power[in / width]);
        o->code[i] = (uint8_t)((uint32_t)x * 3 >> 8);
    }
    llm__grid_scales(p + 52, 0, 0, o);
}

/* Two bits a value, 128 columns in 32 bytes; f16 d. */
static void llm__grid_tq2_0(const uint8_t *p, int j, llm__grid_sub *o) {
    for (int i = 0; i < 32; i++) o->code[i] = (uint8_t)LLM__MIN(p[j / 4 * 32 + i] >> j % 4 * 2 & 3, 2);
    llm__grid_scales(p + 64, 0, 0, o);
}

static void llm__grid_nibbles(const uint8_t *code, uint8_t *to) {
    for (int i = 0; i < 16; i++) to[i] = (uint8_t)(code[i] | code[i + 16] << 4);
}

/* Half of an e4m3 without its sign, as f16: exactly. 0x7F, which is no number, counts as 0. */
static uint16_t llm__grid_half_e4m3(uint8_t x) {
    const uint32_t e = x >> 3 & 15, m = x & 7;
    return llm__f32_to_f16(x == 0x7F ? 0 : e ? (float)ldexp(8 + m, (int)e - 11) : (float)m / 1024);
}

/* 64 columns: four scales, e4m3, of 16 columns each; of each 16 the first 8 in the low nibbles of 8 bytes. */
static void llm__grid_nvfp4(const uint8_t *p, int j, uint8_t *to) {
    uint8_t code[32];
    for (int i = 0; i < 32; i++) code[i] = p[4 + 16 * j + i / 16 * 8 + i % 8] >> i / 8 % 2 * 4 & 15;
    for (int h = 0; h < 2; h++) {
        const uint16_t d = llm__grid_half_e4m3(p[2 * j + h]);
        memcpy(to + 2 * h, &d, 2);
    }
    llm__grid_nibbles(code, to + 4);
}

/* Sub j of a block at p. */
static void llm__grid_sub_get(int32_t type, const uint8_t *p, int j, llm__grid_sub *o) {
    switch (type) {
    case LLM_TYPE_IQ2_XXS: llm__grid_iq2_xxs(p, j, o); break;
    case LLM_TYPE_IQ2_XS: llm__grid_iq2_xs(p, j, o); break;
    case LLM_TYPE_IQ2_S: llm__grid_iq2_s(p, j, o); break;
    case LLM_TYPE_IQ3_XXS: llm__grid_iq3_xxs(p, j, o); break;
    case LLM_TYPE_IQ3_S: llm__grid_iq3_s(p, j, o); break;
    case LLM_TYPE_IQ1_S: llm__grid_iq1_s(p, j, o); break;
    case LLM_TYPE_IQ1_M: llm__grid_iq1_m(p, j, o); break;
    case LLM_TYPE_TQ1_0: llm__grid_tq1_0(p, j, o); break;
    default: llm__grid_tq2_0(p, j, o);
    }
}

LLM__PRIVATE void llm__grid_block(int32_t type, const uint8_t *row, int64_t j, uint8_t *to) {
    const int bytes = llm__type_block_bytes(type);
    llm__grid_sub o;
    if (type == LLM_TYPE_NVFP4) {
        llm__grid_nvfp4(row + j / 2 * bytes, (int)(j % 2), to);
        return;
    }
    for (int i = 0; i < 8; i++) {
        llm__grid_sub_get(type, row + j * bytes, i, &o);
        memcpy(to, &o.d, 2);
        memcpy(to + 2 + 2 * i, o.scale, 2);
        llm__grid_nibbles(o.code, to + 18 + 16 * i);
    }
}

LLM__PRIVATE void llm__grids_read(const void *grids, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, void *to) {
    const llm__grids *g = (const llm__grids *)grids;
    const int32_t form = llm__grid_form(g->type);
    const int bytes = llm__type_block_bytes(form), per = llm__type_block(form);
    uint8_t *at = (uint8_t *)to;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = col / per; j < (col + n_cols) / per; j++, at += bytes)
            llm__grid_block(g->type, g->data + (row + i * step) * llm__row_bytes(g->type, g->cols), j, at);
}
