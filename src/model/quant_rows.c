#include "model/quant_rows.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/dtypes.h"
#include "cpu/grids.h"

enum { LLM__ROWS_AT_ONCE = 16, LLM__COLS_AT_ONCE = 256 };

/* Word i of words anywhere in memory. */
LLM__INLINE uint32_t llm__word_at(const uint8_t *p, int64_t i) {
    uint32_t w;
    memcpy(&w, p + 4 * i, 4);
    return w;
}

/* `bits` bits of a stream of words that are `stride` words apart. */
LLM__INLINE uint32_t llm__stream_at(const uint8_t *p, int64_t i, int bits, int64_t stride) {
    const int64_t at = i * bits, word = at / 32;
    const int shift = (int)(at % 32);
    uint64_t w = llm__word_at(p, word * stride);
    if (shift + bits > 32) w |= (uint64_t)llm__word_at(p, (word + 1) * stride) << 32;
    return (uint32_t)(w >> shift) & ((1u << bits) - 1);
}

/* Where the nibble of output `row` stands in AWQ's words. */
LLM__INLINE int llm__awq_shift(int64_t row) { return 4 * (int)(row % 8 / 2 + row % 2 * 4); }

static uint32_t llm__codes_get(const llm__codes *c, int64_t row, int64_t col) {
    const int64_t flat = row * c->cols + col;
    switch (c->order) {
    case LLM__CODES_HIGH: return c->codes[flat / 2] >> (flat % 2 ? 0 : 4) & 15;
    case LLM__CODES_GPTQ: return llm__stream_at(c->codes + 4 * row, col, c->bits, c->rows);
    case LLM__CODES_AWQ: return llm__word_at(c->codes, col * (c->rows / 8) + row / 8) >> llm__awq_shift(row) & 15;
    case LLM__CODES_BYTES: return c->codes[flat];
    case LLM__CODES_FOURTHS: {
        const int64_t fourth = c->rows / 4;
        return c->codes[row % fourth * c->cols + col] >> (2 * (row / fourth)) & 3;
    }
    default: return c->codes[row * c->stride + col * c->bits / 8] >> (col * c->bits % 8) & ((1u << c->bits) - 1);
    }
}

/* The 8 nibbles of a word as bytes, the lowest first. */
LLM__INLINE void llm__spread_nibbles(uint32_t w, uint8_t *to) {
    uint64_t x = w;
    x = (x | x << 16) & 0x0000FFFF0000FFFFu;
    x = (x | x << 8) & 0x00FF00FF00FF00FFu;
    x = (x | x << 4) & 0x0F0F0F0F0F0F0F0Fu;
    memcpy(to, &x, 8);
}

/* AWQ's words hold 8 rows of a column: those of 8 rows, then row by row of all columns, in loops of one length that compilers make wide. */
static void llm__awq_some(const llm__codes *c, int64_t row, int64_t n, int64_t col, int64_t n_cols, uint8_t *u) {
    uint32_t w[LLM__COLS_AT_ONCE];
    memset(w, 0, sizeof w);
    for (int64_t r = 0; r < n; r += 8) {
        for (int64_t i = 0; i < n_cols; i++) w[i] = llm__word_at(c->codes, (col + i) * (c->rows / 8) + (row + r) / 8);
        for (int64_t k = 0; k < 8; k++) {
            const int shift = llm__awq_shift(k);
            uint8_t *to = u + (r + k) * LLM__COLS_AT_ONCE;
            for (int i = 0; i < LLM__COLS_AT_ONCE; i++) to[i] = (uint8_t)(w[i] >> shift & 15);
        }
    }
}

/* Codes of 4 bits, 8 at a time: n rows, `step` apart, u (n, LLM__COLS_AT_ONCE). 0: they do not lie so, and u is as it was. */
static int llm__nibbles_some(const llm__codes *c, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, uint8_t *u) {
    if (c->bits != 4 || c->order == LLM__CODES_BYTES || c->sorted || col % 8 || n_cols % 8 || c->cols % 8) return 0;
    if (c->order == LLM__CODES_AWQ) {
        if (step != 1 || row % 8 || n % 8) return 0;
        llm__awq_some(c, row, n, col, n_cols, u);
        return 1;
    }
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < n_cols; i += 8) {
            const int64_t stored = row + r * step;
            uint32_t w;
            if (c->order == LLM__CODES_GPTQ) w = llm__word_at(c->codes, (col + i) / 8 * c->rows + stored);
            else if (c->order != LLM__CODES_HIGH) w = llm__word_at(c->codes + stored * c->stride + (col + i) / 2, 0);
            else {
                w = llm__word_at(c->codes + (stored * c->cols + col + i) / 2, 0);
                w = (w >> 4 & 0x0F0F0F0Fu) | (w & 0x0F0F0F0Fu) << 4;
            }
            llm__spread_nibbles(w, u + r * LLM__COLS_AT_ONCE + i);
        }
    return 1;
}

/* Any codes of n rows, `step` apart, and n_cols columns: u (n, LLM__COLS_AT_ONCE). Words of neighbouring rows stand side by side in GPTQ's
 * and AWQ's orders, so rows are the inner loop there. */
static void llm__codes_some(const llm__codes *c, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, uint8_t *u) {
    const int across = c->order == LLM__CODES_GPTQ || c->order == LLM__CODES_AWQ;
    const int64_t outer = across ? n_cols : n, inner = across ? n : n_cols;
    if (llm__nibbles_some(c, row, step, n, col, n_cols, u)) return;
    for (int64_t i = 0; i < outer; i++)
        for (int64_t k = 0; k < inner; k++) {
            const int64_t r = across ? k : i, q = across ? i : k;
            u[r * LLM__COLS_AT_ONCE + q] = (uint8_t)llm__codes_get(c, row + r * step, c->sorted ? c->sorted[col + q] : col + q);
        }
}

LLM__PRIVATE float llm__codes_scale(const llm__codes *c, int64_t row, int64_t group) {
    if (c->order == LLM__CODES_HIGH) { /* of the flat matrix: a group is a part of one */
        const int64_t i = (row * c->cols + group * c->group) / c->row_group;
        if (!c->nested) return llm__element(LLM_TYPE_F32, c->scales, i);
        return llm__element(LLM_TYPE_F32, c->nested_map, c->scales[i]) * llm__element(LLM_TYPE_F32, c->nested, i / c->nested_block) +
               c->nested_offset;
    }
    const int64_t at = row / c->row_group * c->scale_row + group * c->scale_column;
    if (c->scale_type == LLM_TYPE_U8 || c->scale_type == LLM_TYPE_F8_E8M0) { /* powers of two */
        const uint32_t e = c->scales[at];
        return e ? llm__bits_f32(e == 255 ? 0x7FC00000u : e << 23) : llm__bits_f32(0x00400000u);
    }
    return llm__element(c->scale_type, c->scales, at);
}

/* GPTQ's zero points. Where they are stored less one, writers have subtracted that from whole words, so that a zero point of 0 borrows from
 * its neighbour: adding it to whole words undoes it. */
static uint32_t llm__gptq_zero(const llm__codes *c, int64_t row, int64_t group) {
    const uint8_t *words = c->zeros + 4 * group * (c->rows * c->bits / 32);
    const uint32_t ones = c->bits == 2 ? 0x55555555u : c->bits == 4 ? 0x11111111u : 0x01010101u;
    if (c->bits == 3) return (llm__stream_at(words, row, 3, 1) + (uint32_t)c->v1) & 7;
    const uint32_t word = llm__word_at(words, row * c->bits / 32) + (c->v1 ? ones : 0);
    return word >> (row * c->bits % 32) & ((1u << c->bits) - 1);
}

LLM__PRIVATE float llm__codes_zero(const llm__codes *c, int64_t row, int64_t group) {
    switch (c->zeros_order) {
    case LLM__ZEROS_GPTQ: return (float)llm__gptq_zero(c, row, group);
    case LLM__ZEROS_AWQ: return (float)(llm__word_at(c->zeros, group * (c->rows / 8) + row / 8) >> llm__awq_shift(row) & 15);
    case LLM__ZEROS_ROWS: return (float)(llm__word_at(c->zeros, row * c->zeros_stride + group / 8) >> (group % 8 * 4) & 15);
    case LLM__ZEROS_PACKED: return (float)llm__stream_at(c->zeros + 4 * group, row, c->bits, c->zeros_stride);
    case LLM__ZEROS_NUMBERS:
        return 128 + llm__element(c->zeros_type, c->zeros, row / c->row_group * c->scale_row + group * c->scale_column);
    default: return (float)c->zero;
    }
}

LLM__PRIVATE int64_t llm__codes_groups(const llm__codes *c) { return (c->cols + c->group - 1) / c->group; }

/* A value but for its scale. */
static float llm__codes_plain(const llm__codes *c, int64_t row, int64_t col, int64_t group) {
    const uint32_t u = llm__codes_get(c, row, col);
    if (c->table) return c->table[u];
    if (c->zero < 0) return llm__e4m3_to_f32((uint8_t)u);
    return (float)(c->order == LLM__CODES_BYTES ? (u ^ 128) : u) - llm__codes_zero(c, row, group);
}

LLM__PRIVATE float llm__codes_value(const llm__codes *c, int64_t row, int64_t col) {
    const int64_t group = c->g_idx ? c->g_idx[col] : col / c->group;
    return llm__codes_scale(c, row, group) * c->unit * llm__codes_plain(c, row, col, group);
}

/* ---- Readers ---- */

/* 32 codes as nibbles: element i, and above it element i + 16. */
LLM__INLINE void llm__put_nibbles(uint8_t *to, const uint8_t *u) {
    for (int i = 0; i < 16; i++) to[i] = (uint8_t)((u[i] & 15) | u[i + 16] << 4);
}

LLM__INLINE void llm__put_half(uint8_t *to, float x) {
    const uint16_t h = llm__f32_to_f16(x);
    memcpy(to, &h, 2);
}

/* A block of a type with one scale and one zero point for 32 columns. */
LLM__INLINE void llm__put_block(const int32_t type, const int flip, float scale, float zero, const uint8_t *u, uint8_t *to) {
    const float m = -scale * (zero - (float)flip);
    switch (type) {
    case LLM_TYPE_Q4_0:
        llm__put_half(to, scale);
        llm__put_nibbles(to + 2, u);
        break;
    case LLM_TYPE_Q4_ZERO:
        llm__put_half(to, scale);
        to[2] = (uint8_t)zero;
        llm__put_nibbles(to + 3, u);
        break;
    case LLM_TYPE_Q8_0:
        llm__put_half(to, scale);
        for (int i = 0; i < 32; i++) to[2 + i] = u[i] ^ 128;
        break;
    case LLM_TYPE_NF4:
    case LLM_TYPE_FP4:
        memcpy(to, &scale, 4);
        llm__put_nibbles(to + 4, u);
        break;
    case LLM_TYPE_F8_32:
        memcpy(to, &scale, 4);
        memcpy(to + 4, u, 32);
        break;
    default: /* G32: codes of 8 bits less 128 */
        memcpy(to, &scale, 4);
        memcpy(to + 4, &m, 4);
        for (int i = 0; i < 32; i++) to[8 + i] = (uint8_t)(u[i] ^ flip);
    }
}

/* At most 16 rows and 256 columns in blocks of 32, each of one group (of e2m1 two of 16 are); `at`: the first block, rows `pitch` bytes
 * apart. What is beyond the last column, which happens with fp8 alone, is 0. */
LLM__INLINE void llm__read_piece(const int32_t type, const llm__codes *c, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols,
                                 uint8_t *at, int64_t pitch) {
    const int64_t bytes = llm__type_block_bytes(type), there = LLM__MIN(n_cols, c->cols - col);
    uint8_t u[LLM__ROWS_AT_ONCE * LLM__COLS_AT_ONCE];
    if (there < n_cols) memset(u, 0, sizeof u);
    llm__codes_some(c, row, step, n, col, there, u);
    for (int64_t i = 0; i < (int64_t)sizeof u && c->order == LLM__CODES_BYTES && type != LLM_TYPE_F8_32; i++) u[i] ^= 128;
    for (int64_t r = 0; r < n; r++, at += pitch)
        for (int64_t b = 0; b < n_cols / 32; b++) {
            const uint8_t *codes = u + r * LLM__COLS_AT_ONCE + 32 * b;
            const int64_t stored = row + r * step, g = c->sorted ? c->g_idx[c->sorted[col + 32 * b]] : (col + 32 * b) / c->group;
            uint8_t *block = at + b * bytes;
            if (type == LLM_TYPE_MXFP4) {
                block[0] = c->scales[stored * c->scale_row + g];
                llm__put_nibbles(block + 1, codes);
            } else if (type == LLM_TYPE_NVFP4_32) { /* the table is doubled */
                llm__put_half(block, llm__codes_scale(c, stored, g) / 2);
                llm__put_half(block + 2, llm__codes_scale(c, stored, g + 1) / 2);
                llm__put_nibbles(block + 4, codes);
            } else
                llm__put_block(type, c->bits == 8 ? 128 : 0, llm__codes_scale(c, stored, g) * c->unit, llm__codes_zero(c, stored, g), codes,
                               block);
        }
}

LLM__INLINE void llm__read_blocks(const int32_t type, const llm__codes *c, int64_t row, int64_t step, int64_t n, int64_t col,
                                  int64_t n_cols, uint8_t *to) {
    const int64_t pitch = llm__row_bytes(type, n_cols);
    for (int64_t r = 0; r < n; r += LLM__ROWS_AT_ONCE)
        for (int64_t i = 0; i < n_cols; i += LLM__COLS_AT_ONCE)
            llm__read_piece(type, c, row + r * step, step, LLM__MIN(n - r, (int64_t)LLM__ROWS_AT_ONCE), col + i,
                            LLM__MIN(n_cols - i, (int64_t)LLM__COLS_AT_ONCE), to + r * pitch + llm__row_bytes(type, i), pitch);
}

#define LLM__READER(name, type) \
    static void llm__read_##name(const void *codes, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, void *to) { \
        llm__read_blocks(type, (const llm__codes *)codes, row, step, n, col, n_cols, (uint8_t *)to); \
    }
LLM__READER(q4_0, LLM_TYPE_Q4_0)
LLM__READER(q4_zero, LLM_TYPE_Q4_ZERO)
LLM__READER(q8_0, LLM_TYPE_Q8_0)
LLM__READER(g32, LLM_TYPE_G32)
LLM__READER(nf4, LLM_TYPE_NF4)
LLM__READER(fp4, LLM_TYPE_FP4)
LLM__READER(mxfp4, LLM_TYPE_MXFP4)
LLM__READER(nvfp4, LLM_TYPE_NVFP4_32)
LLM__READER(f8, LLM_TYPE_F8_32)

/* Rows of -1, 0 and 1, whose scale is the segment's, as blocks of 256 columns: first TQ2_0's, where of each 128 columns byte i has those i,
 * i + 32, i + 64 and i + 96, from the lowest bits up. */
static void llm__read_ternary(const void *codes, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, void *to) {
    const llm__codes *c = (const llm__codes *)codes;
    const int64_t fourth = c->rows / 4;
    uint8_t *at = (uint8_t *)to, block[66];
    llm__put_half(block + 64, 1);
    for (int64_t r = row; r < row + n * step; r += step)
        for (int64_t i = col; i < col + n_cols; i += 256, at += LLM__GRID_BYTES) {
            const uint8_t *from = c->codes + r % fourth * c->cols + i;
            const int shift = 2 * (int)(r / fourth);
            memset(block, 0, 64);
            for (int k = 0; k < 256; k++) block[k / 128 * 32 + k % 32] |= (uint8_t)((from[k] >> shift & 3) << 2 * (k / 32 % 4));
            llm__grid_block(LLM_TYPE_TQ2_0, block, 0, at);
        }
}

/* Blocks of 128 columns of a row of bytes. */
static void llm__read_f8_128(const void *codes, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, void *to) {
    const llm__codes *c = (const llm__codes *)codes;
    uint8_t *at = (uint8_t *)to;
    for (int64_t r = row; r < row + n * step; r += step)
        for (int64_t i = col; i < col + n_cols; i += 128, at += 132) {
            const float d = llm__codes_scale(c, r, i / c->group) * c->unit;
            const int64_t there = LLM__MIN((int64_t)128, c->cols - i);
            memcpy(at, &d, 4);
            memcpy(at + 4, c->codes + r * c->cols + i, (size_t)there);
            memset(at + 4 + there, 0, (size_t)(128 - there));
        }
}

/* The values themselves. */
static void llm__read_values(const void *codes, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, void *to) {
    const llm__codes *c = (const llm__codes *)codes;
    float *x = (float *)to;
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < n_cols; i++) {
            const float v = llm__codes_value(c, row + r * step, col + i);
            memcpy(x + r * n_cols + i, &v, 4);
        }
}

/* ---- Choosing ---- */

/* What a look at all scales and zero points gives. */
typedef struct llm__codes_range {
    float least, most; /* sizes of scales that are not 0 */
    int bad, same;     /* same: all zero points are `zero` */
    float zero;
    int fine; /* some scale has more bits than an f16 */
} llm__codes_range;

static llm__codes_range llm__codes_look(const llm__codes *c) {
    llm__codes_range o = {INFINITY, 0, 0, 1, llm__codes_zero(c, 0, 0), 0};
    const int64_t groups = llm__codes_groups(c), part = c->order == LLM__CODES_HIGH ? 1 : c->row_group;
    for (int64_t r = 0; r < c->rows; r += part)
        for (int64_t g = 0; g < groups; g++) {
            const float s = llm__codes_scale(c, r, g), size = fabsf(s);
            if (!(size <= 3.4028234e38f)) o.bad = 1;
            if (size > 0 && size < o.least) o.least = size;
            if (size > o.most) o.most = size;
            o.fine |= (llm__f32_bits(s) & 0x1FFF) != 0;
            const float zero = llm__codes_zero(c, r, g);
            o.same &= zero == o.zero;
            o.bad |= zero != zero;
        }
    return o;
}

/* The power of two that brings all scales, which have at most 11 bits, into what f16 holds exactly. 0: there is none. */
static float llm__codes_unit(const llm__codes_range *o) {
    int high, low;
    if (o->most == 0) return 1;
    if (o->fine) return 0;
    frexp((double)o->most, &high); /* most < 2^high */
    frexp((double)o->least, &low);
    if (high <= 15 && low >= -13) return 1;
    return high - low <= 28 ? (float)ldexp(1, 15 - high) : 0;
}

LLM__PRIVATE llm__codes_form llm__codes_form_of(llm__codes *c, int quick, int *bad) {
    const int whole = c->cols % 32 == 0 && (c->sorted || !c->g_idx), f8 = c->zero < 0,
              by16 = c->group == 16 && c->scale_type == LLM_TYPE_F8_E4M3;
    const int blocks = c->sorted || c->group % 32 == 0 || c->group >= c->cols;
    llm__codes_range o = {1, 1, 0, c->zeros_order == LLM__ZEROS_CONST || c->bits == 8, c->bits == 8 ? 128.0f : 8.0f, 0};
    llm__codes_form form = {LLM_TYPE_F32, c->cols, llm__read_values, 1};
    c->unit = 1;
    if (!quick) o = llm__codes_look(c);
    *bad = o.bad;
    if (f8 && blocks) {
        llm__codes_form fp8 = {LLM_TYPE_F8_32, (c->cols + 31) / 32 * 32, llm__read_f8, o.most > 0 ? o.most : 1};
        c->unit = 1 / fp8.scale;
        if (c->group % 128 && c->group < c->cols) return fp8;
        fp8.type = LLM_TYPE_F8_128, fp8.read = llm__read_f8_128;
        fp8.stored_cols = (c->cols + 127) / 128 * 128;
        return fp8;
    }
    if (!whole || f8 || (!blocks && !by16)) return form;
    form.stored_cols = c->cols;
    if (c->order == LLM__CODES_FOURTHS && c->cols % 256 == 0) {
        form.type = LLM_TYPE_TERNARY, form.read = llm__read_ternary;
        return form;
    }
    if (c->table) {
        const int nf4 = !memcmp(c->table, llm__type_values(LLM_TYPE_NF4), 64);
        if (c->scale_type == LLM_TYPE_U8 && !c->nested) form.type = LLM_TYPE_MXFP4, form.read = llm__read_mxfp4;
        else if (by16) form.type = LLM_TYPE_NVFP4_32, form.read = llm__read_nvfp4;
        else if (nf4) form.type = LLM_TYPE_NF4, form.read = llm__read_nf4;
        else form.type = LLM_TYPE_FP4, form.read = llm__read_fp4;
        return form;
    }
    const float unit = llm__codes_unit(&o);
    const int four = c->bits <= 4, plain = unit > 0 && o.same && o.zero == (c->bits == 8 ? 128.0f : 8.0f);
    if (unit > 0) c->unit = unit, form.scale = 1 / unit;
    if (plain && four) form.type = LLM_TYPE_Q4_0, form.read = llm__read_q4_0;
    else if (plain) form.type = LLM_TYPE_Q8_0, form.read = llm__read_q8_0;
    else if (four && unit > 0) form.type = LLM_TYPE_Q4_ZERO, form.read = llm__read_q4_zero;
    else form.type = LLM_TYPE_G32, form.read = llm__read_g32;
    return form;
}
