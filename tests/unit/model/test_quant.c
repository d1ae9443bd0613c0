/* Quantised layouts: what each method packs, packed here bit by bit, against what is read of it; configs, good and bad. */
#include "../test.h"
#include "api/backend.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "cpu/dtypes.h"
#include "model/quant.h"
#include "model/quant_rows.h"
#include "model/quant_seek.h"

enum { TQ_ROWS = 64, TQ_COLS = 320, TQ_GROUPS = TQ_COLS };

static uint64_t tq_state = 7;

static uint32_t tq_rng(void) {
    tq_state = tq_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(tq_state >> 33);
}

/* A matrix as a method has it: what is meant, and what is stored. */
typedef struct tq_matrix {
    uint32_t code[TQ_ROWS][TQ_COLS], zero[TQ_ROWS][TQ_GROUPS];
    float scale[TQ_ROWS][TQ_GROUPS];
    int32_t g_idx[TQ_COLS];
    uint8_t codes[TQ_ROWS * TQ_COLS * 4], scales[TQ_ROWS * TQ_GROUPS * 4], zeros[TQ_ROWS * TQ_GROUPS * 4];
    llm__codes c;
} tq_matrix;

/* Sets bit `bit` of a stream of words of which each is `stride` words behind the one before. */
static void tq_bit(uint8_t *to, int64_t first, int64_t bit, int64_t stride, int value) {
    const int64_t word = first + bit / 32 * stride;
    if (value) to[4 * word + bit % 32 / 8] |= (uint8_t)(1 << bit % 8);
}

static void tq_value(uint8_t *to, int64_t first, int64_t at, int bits, int64_t stride, uint32_t v) {
    for (int b = 0; b < bits; b++) tq_bit(to, first, at * bits + b, stride, (int)(v >> b & 1));
}

/* f16 or bf16, as the type says; m keeps what was stored. */
static void tq_scale(tq_matrix *m, int32_t type, int64_t r, int64_t g, int64_t at) {
    float x = 0.001f + 0.00001f * (float)(tq_rng() % 1000);
    uint16_t h = type == LLM_TYPE_F16 ? llm__f32_to_f16(x) : llm__f32_to_bf16(x);
    if (type == LLM_TYPE_F32) memcpy(m->scales + 4 * at, &x, 4);
    else memcpy(m->scales + 2 * at, &h, 2);
    m->scale[r][g] = type == LLM_TYPE_F32 ? x : type == LLM_TYPE_F16 ? llm__f16_to_f32(h) : llm__bf16_to_f32(h);
}

typedef enum tq_layout { TQ_GPTQ, TQ_GPTQ_V2, TQ_AWQ, TQ_GEMV, TQ_PACKED, TQ_INT8, TQ_LAYOUTS } tq_layout;

/* Codes, zero points (from 1 on: a stored 0 of GPTQ's borrows) and scales at random; `same`: all zero points are the middle. */
static void tq_fill(tq_matrix *m, int bits, int64_t group, int same) {
    for (int r = 0; r < TQ_ROWS; r++) {
        for (int i = 0; i < TQ_COLS; i++) m->code[r][i] = tq_rng() & ((1u << bits) - 1);
        for (int g = 0; g < TQ_GROUPS; g++) m->zero[r][g] = same ? 1u << (bits - 1) : 1 + tq_rng() % ((1u << bits) - 1);
    }
    for (int i = 0; i < TQ_COLS; i++) m->g_idx[i] = (int32_t)(i / group);
}

static void tq_pack_row(tq_matrix *m, tq_layout layout, int64_t r, int bits, int64_t groups, int32_t type) {
    const int64_t width = (groups + 7) / 8, words = (int64_t)TQ_COLS * bits / 32;
    static const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    int place = 0;
    while (order[place] != r % 8) place++;
    for (int64_t i = 0; i < TQ_COLS; i++) {
        const uint32_t u = m->code[r][i];
        if (layout <= TQ_GPTQ_V2) tq_value(m->codes, r, i, bits, TQ_ROWS, u);
        else if (layout == TQ_AWQ) tq_value(m->codes, i * (TQ_ROWS / 8) + r / 8, place, 4, 1, u);
        else if (layout == TQ_INT8) m->codes[r * TQ_COLS + i] = (uint8_t)(u - 128);
        else tq_value(m->codes, r * words, i, bits, 1, u);
    }
    for (int64_t g = 0; g < groups; g++) {
        const uint32_t z = m->zero[r][g];
        const int across = layout <= TQ_AWQ;
        tq_scale(m, type, r, g, across ? g * TQ_ROWS + r : r * (layout == TQ_GEMV ? 8 * width : groups) + g);
        if (layout <= TQ_GPTQ_V2) tq_value(m->zeros, g * TQ_ROWS * bits / 32, r, bits, 1, layout == TQ_GPTQ ? z - 1 : z);
        else if (layout == TQ_AWQ) tq_value(m->zeros, g * (TQ_ROWS / 8) + r / 8, place, 4, 1, z);
        else if (layout == TQ_GEMV) tq_value(m->zeros, r * width, g, 4, 1, z);
        else if (layout == TQ_PACKED) tq_value(m->zeros, g, r, bits, groups, z);
        else m->zeros[r * groups + g] = (uint8_t)(z - 128);
    }
}

static void tq_describe(tq_matrix *m, tq_layout layout, int bits, int64_t group, int32_t type) {
    const int64_t groups = (TQ_COLS + group - 1) / group, width = (groups + 7) / 8;
    llm__codes *c = &m->c;
    memset(c, 0, sizeof *c);
    c->codes = m->codes, c->scales = m->scales, c->zeros = m->zeros;
    c->rows = TQ_ROWS, c->cols = TQ_COLS, c->group = group, c->row_group = 1;
    c->bits = bits, c->scale_type = type, c->unit = 1;
    c->stride = (int64_t)TQ_COLS * bits / 8;
    c->v1 = layout == TQ_GPTQ;
    c->order = layout <= TQ_GPTQ_V2 ? LLM__CODES_GPTQ
               : layout == TQ_AWQ   ? LLM__CODES_AWQ
               : layout == TQ_INT8  ? LLM__CODES_BYTES
                                    : LLM__CODES_ROWS;
    c->zeros_order = layout <= TQ_GPTQ_V2  ? LLM__ZEROS_GPTQ
                     : layout == TQ_AWQ    ? LLM__ZEROS_AWQ
                     : layout == TQ_GEMV   ? LLM__ZEROS_ROWS
                     : layout == TQ_PACKED ? LLM__ZEROS_PACKED
                                           : LLM__ZEROS_NUMBERS;
    c->zeros_type = LLM_TYPE_I8;
    c->zeros_stride = layout == TQ_GEMV ? width : groups;
    c->scale_row = layout <= TQ_AWQ ? 1 : layout == TQ_GEMV ? 8 * width : groups;
    c->scale_column = layout <= TQ_AWQ ? TQ_ROWS : 1;
}

/* The reader's values of some rows and columns, times the form's scale, against what is meant. */
static double tq_compare(const tq_matrix *m, const llm__codes_form *form, int64_t row, int64_t step, int64_t n, int64_t col, int64_t cols) {
    const int64_t bytes = llm__row_bytes(form->type, cols);
    uint8_t *rows = LLM__NEW(uint8_t, n * bytes);
    float x[TQ_COLS];
    double worst = 0;
    form->read(&m->c, row, step, n, col, cols, rows);
    for (int64_t r = 0; r < n; r++) {
        llm__dequant_columns(form->type, rows + r * bytes, 0, cols, x);
        for (int64_t i = 0; i < cols; i++) {
            const int64_t at = row + r * step, g = m->g_idx[col + i];
            const double want = (double)m->scale[at][g] * ((double)m->code[at][col + i] - (double)m->zero[at][g]);
            worst = LLM__MAX(worst, fabs((double)(x[i] * form->scale) - want) / (double)m->scale[at][g]);
        }
    }
    LLM_FREE(rows);
    return worst;
}

/* Columns of any order, of which blocks of 32 have one group: readers give them sorted. */
static void tq_sorted(tq_layout layout, int bits, int64_t group, int32_t want) {
    tq_matrix *m = LLM__NEW(tq_matrix, 1), *by = LLM__NEW(tq_matrix, 1);
    const int64_t groups = TQ_COLS / group;
    int32_t order[TQ_COLS];
    int bad = 0;
    tq_fill(m, bits, group, 0);
    for (int64_t r = 0; r < TQ_ROWS; r++) tq_pack_row(m, layout, r, bits, groups, LLM_TYPE_F16);
    for (int i = 0; i < TQ_COLS; i++) order[i] = (int32_t)(i * 37 % TQ_COLS);
    for (int i = 0; i < TQ_COLS; i++) m->g_idx[order[i]] = (int32_t)(i / group);
    tq_describe(m, layout, bits, group, LLM_TYPE_F16);
    m->c.g_idx = m->g_idx;
    *by = *m;
    by->c.codes = m->c.codes, by->c.scales = m->c.scales, by->c.zeros = m->c.zeros, by->c.sorted = order;
    for (int64_t r = 0; r < TQ_ROWS; r++)
        for (int i = 0; i < TQ_COLS; i++) by->code[r][i] = m->code[r][order[i]];
    for (int i = 0; i < TQ_COLS; i++) by->g_idx[i] = m->g_idx[order[i]];
    const llm__codes_form form = llm__codes_form_of(&by->c, 0, &bad);
    const double all = tq_compare(by, &form, 0, 1, TQ_ROWS, 0, TQ_COLS), some = tq_compare(by, &form, 3, 2, 17, 64, 224);
    if (!CHECK(all < 1e-4 && some < 1e-4 && form.type == want && !bad))
        printf("  sorted, layout %d, %d bits: %s, errors %g %g\n", (int)layout, bits, llm__type_name(form.type), all, some);
    LLM_FREE(m);
    LLM_FREE(by);
}

/* A layout: what each value is, that all readers give them for any rows and columns, and the type that is chosen. */
static void tq_layout_of(tq_layout layout, int bits, int64_t group, int32_t scale_type, int same, int shuffled, int32_t want) {
    tq_matrix *m = LLM__NEW(tq_matrix, 1);
    const int64_t groups = (TQ_COLS + group - 1) / group;
    int bad = 0;
    tq_fill(m, bits, group, same);
    for (int64_t r = 0; r < TQ_ROWS; r++) tq_pack_row(m, layout, r, bits, groups, scale_type);
    for (int i = 0; i < TQ_COLS && shuffled; i++) m->g_idx[i] = (int32_t)(tq_rng() % (uint32_t)groups);
    tq_describe(m, layout, bits, group, scale_type);
    if (shuffled) m->c.g_idx = m->g_idx;
    CHECK(llm__codes_groups(&m->c) == groups);
    double plain = 0;
    for (int64_t r = 0; r < TQ_ROWS; r++)
        for (int64_t i = 0; i < TQ_COLS; i++) {
            const int64_t g = m->g_idx[i];
            const float meant = m->scale[r][g] * ((float)m->code[r][i] - (float)m->zero[r][g]);
            plain = LLM__MAX(plain, fabs((double)(llm__codes_value(&m->c, r, i) - meant)));
            CHECK(llm__codes_scale(&m->c, r, g) == m->scale[r][g] && llm__codes_zero(&m->c, r, g) == (float)m->zero[r][g]);
        }
    const llm__codes_form quick = llm__codes_form_of(&m->c, 1, &bad), form = llm__codes_form_of(&m->c, 0, &bad);
    const double all = tq_compare(m, &form, 0, 1, TQ_ROWS, 0, TQ_COLS), some = tq_compare(m, &form, 3, 2, 17, 64, 224);
    if (!CHECK(plain < 1e-6 && all < 1e-4 && some < 1e-4 && form.type == want && !bad && quick.stored_cols == TQ_COLS))
        printf("  layout %d, %d bits, groups of %lld: %s, errors %g %g %g\n", (int)layout, bits, (long long)group,
               llm__type_name(form.type), plain, all, some);
    LLM_FREE(m);
}

static void tq_layouts(void) {
    static const int bits[] = {2, 3, 4, 8};
    for (int b = 0; b < 4; b++) {
        const int32_t other = bits[b] == 8 ? LLM_TYPE_G32 : LLM_TYPE_Q4_ZERO, same = bits[b] == 8   ? LLM_TYPE_Q8_0
                                                                                     : bits[b] == 4 ? LLM_TYPE_Q4_0
                                                                                                    : LLM_TYPE_Q4_ZERO;
        for (int v2 = 0; v2 < 2; v2++) {
            tq_layout_of(v2 ? TQ_GPTQ_V2 : TQ_GPTQ, bits[b], 32, LLM_TYPE_F16, 0, 0, other);
            tq_layout_of(v2 ? TQ_GPTQ_V2 : TQ_GPTQ, bits[b], 128, LLM_TYPE_F16, 1, 0, same);
            tq_layout_of(v2 ? TQ_GPTQ_V2 : TQ_GPTQ, bits[b], TQ_COLS, LLM_TYPE_BF16, 1, 0, same);
            tq_layout_of(v2 ? TQ_GPTQ_V2 : TQ_GPTQ, bits[b], 32, LLM_TYPE_F16, 0, 1, LLM_TYPE_F32);
            tq_layout_of(v2 ? TQ_GPTQ_V2 : TQ_GPTQ, bits[b], 16, LLM_TYPE_F16, 0, 0, LLM_TYPE_F32);
        }
        tq_sorted(TQ_GPTQ, bits[b], 32, other);
        tq_sorted(TQ_GPTQ_V2, bits[b], 160, other);
        if (bits[b] == 3) continue;
        tq_sorted(TQ_PACKED, bits[b], 64, other);
        tq_layout_of(TQ_PACKED, bits[b], 32, LLM_TYPE_BF16, 0, 0, other);
        tq_layout_of(TQ_PACKED, bits[b], 64, LLM_TYPE_F32, 0, 0, LLM_TYPE_G32);
        tq_layout_of(TQ_PACKED, bits[b], 160, LLM_TYPE_BF16, 1, 0, same);
    }
    tq_layout_of(TQ_AWQ, 4, 64, LLM_TYPE_F16, 0, 0, LLM_TYPE_Q4_ZERO);
    tq_layout_of(TQ_AWQ, 4, TQ_COLS, LLM_TYPE_F16, 1, 0, LLM_TYPE_Q4_0);
    tq_layout_of(TQ_GEMV, 4, 64, LLM_TYPE_F16, 0, 0, LLM_TYPE_Q4_ZERO);
    tq_layout_of(TQ_GEMV, 4, 32, LLM_TYPE_F16, 1, 0, LLM_TYPE_Q4_0);
    tq_layout_of(TQ_INT8, 8, TQ_COLS, LLM_TYPE_F32, 0, 0, LLM_TYPE_G32);
}

/* -1, 0 and 1: rows that are parts of four fourths, of widths with blocks of 256 columns, of 32 and with none. */
static void tq_fourths(void) {
    static const int64_t cols[] = {512, 160, 48};
    static const int32_t types[] = {LLM_TYPE_TERNARY, LLM_TYPE_Q4_ZERO, LLM_TYPE_F32};
    static const float one = 1;
    uint8_t codes[4 * 512], rows[8 * 512 * 4];
    float x[512];
    int bad = 0;
    for (int k = 0; k < 3; k++) {
        llm__codes c;
        memset(&c, 0, sizeof c);
        for (int i = 0; i < (int)sizeof codes; i++)
            for (int f = codes[i] = 0; f < 4; f++) codes[i] = (uint8_t)(codes[i] | tq_rng() % 3 << 2 * f);
        c.codes = codes, c.scales = (const uint8_t *)&one, c.scale_type = LLM_TYPE_F32;
        c.rows = 16, c.cols = c.group = cols[k], c.row_group = 1, c.bits = 2, c.zero = 1, c.order = LLM__CODES_FOURTHS, c.unit = 1;
        const llm__codes_form form = llm__codes_form_of(&c, 0, &bad);
        const int64_t col = k == 0 ? 256 : 32, n = k == 1 ? 128 : cols[k] - col, bytes = llm__row_bytes(types[k], n);
        CHECK(form.type == types[k] && !bad);
        form.read(&c, 3, 2, 6, col, n, rows); /* rows 3, 5 ... 13: of all fourths */
        for (int64_t r = 0; r < 6; r++) {
            llm__dequant_columns(form.type, rows + r * bytes, 0, n, x);
            for (int64_t i = 0; i < n; i++) {
                const int64_t row = 3 + 2 * r, at = row % 4 * cols[k] + col + i;
                const float want = (float)(codes[at] >> 2 * (row / 4) & 3) - 1;
                CHECK(x[i] * form.scale == want && llm__codes_value(&c, row, col + i) == want);
            }
        }
    }
}

/* 4-bit floats and fp8: every code once, with scales that are exact. */
static void tq_floats(void) {
    static const float e2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    uint8_t codes[512], scales[64], out[64 * 40];
    float x[256];
    int bad = 0;
    llm__codes c;
    for (int kind = 0; kind < 5; kind++) { /* mxfp4, nvfp4, nf4, fp4, fp8 of blocks of 4 rows and 32 columns */
        memset(&c, 0, sizeof c);
        for (int i = 0; i < 512; i++) codes[i] = kind == 4 ? (uint8_t)(i % 127 | (i & 128)) : (uint8_t)(i * 7);
        for (int i = 0; i < 64; i++) scales[i] = kind == 0 ? (uint8_t)(120 + i % 9) : (uint8_t)(40 + i % 16);
        for (int i = 0; i < 16 && kind >= 2; i++) {
            const float s = 0.25f * (float)(1 + i);
            memcpy(scales + 4 * i, &s, 4);
        }
        c.codes = codes, c.scales = scales, c.bits = kind == 4 ? 8 : 4, c.rows = 8, c.cols = kind == 4 ? 64 : 128;
        c.group = kind == 0 || kind == 4 ? 32 : kind == 1 ? 16 : 64, c.row_group = kind == 4 ? 4 : kind < 2 ? 1 : 64, c.stride = 64;
        c.order = kind == 4 ? LLM__CODES_BYTES : kind < 2 ? LLM__CODES_ROWS : LLM__CODES_HIGH;
        c.scale_type = kind == 0 ? LLM_TYPE_U8 : kind == 1 ? LLM_TYPE_F8_E4M3 : LLM_TYPE_F32;
        c.scale_row = c.cols / c.group, c.scale_column = 1, c.unit = 1, c.zero = kind == 4 ? -1 : 0;
        c.table = kind < 2 ? e2m1 : kind == 4 ? NULL : llm__type_values(kind == 2 ? LLM_TYPE_NF4 : LLM_TYPE_FP4);
        const llm__codes_form form = llm__codes_form_of(&c, 0, &bad);
        static const int32_t types[] = {LLM_TYPE_MXFP4, LLM_TYPE_NVFP4_32, LLM_TYPE_NF4, LLM_TYPE_FP4, LLM_TYPE_F8_32};
        CHECK(form.type == types[kind] && !bad);
        form.read(&c, 1, 2, 3, 32, 32, out);
        for (int r = 0; r < 3; r++) {
            llm__dequant_columns(form.type, out + r * llm__row_bytes(form.type, 32), 0, 32, x);
            for (int i = 0; i < 32; i++) {
                const int row = 1 + 2 * r, col = 32 + i, flat = row * (int)c.cols + col, high = codes[flat / 2] >> (flat % 2 ? 0 : 4) & 15,
                          low = codes[flat / 2] >> (flat % 2 ? 4 : 0) & 15;
                float want = kind == 0   ? e2m1[low] * ldexpf(1, scales[row * 4 + col / 32] - 127)
                             : kind == 1 ? e2m1[low] * llm__e4m3_to_f32(scales[row * 8 + col / 16])
                             : kind == 4 ? llm__e4m3_to_f32(codes[flat]) * 0.25f * (float)(1 + row / 4 * 2 + col / 32)
                                         : c.table[high] * 0.25f * (float)(1 + flat / 64);
                if (!CHECK(fabsf(x[i] * form.scale - want) <= 1e-6f * fabsf(want)))
                    printf("  kind %d: %g, %g meant\n", kind, (double)x[i], (double)want);
            }
        }
    }
}

/* fp8 with scales of 2 rows and 128 columns, of which a row has 200. */
static void tq_f8_128(void) {
    uint8_t codes[4 * 200], out[2 * 132];
    float x[128];
    const float scales[4] = {0.5f, 1, 2, 4};
    int bad = 0;
    llm__codes c;
    memset(&c, 0, sizeof c);
    for (int i = 0; i < 800; i++) codes[i] = (uint8_t)(i % 127 | (i & 128));
    c.codes = codes, c.scales = (const uint8_t *)scales, c.bits = 8, c.rows = 4, c.cols = 200, c.group = 128, c.row_group = 2;
    c.order = LLM__CODES_BYTES, c.scale_type = LLM_TYPE_F32, c.scale_row = 2, c.scale_column = 1, c.zero = -1;
    const llm__codes_form form = llm__codes_form_of(&c, 0, &bad);
    CHECK(form.type == LLM_TYPE_F8_128 && form.stored_cols == 256 && !bad);
    for (int col = 0; col < 256; col += 128) {
        form.read(&c, 1, 2, 2, col, 128, out);
        for (int r = 0; r < 2; r++) {
            llm__dequant_columns(form.type, out + 132 * r, 0, 128, x);
            for (int i = 0; i < 128; i++)
                CHECK(x[i] * form.scale ==
                      (col + i < 200 ? scales[2 * r + col / 128] * llm__e4m3_to_f32(codes[200 * (1 + 2 * r) + col + i]) : 0));
        }
    }
}

/* Scales that no model has are told; those that no f16 holds take more room, and are right. */
static void tq_scales(void) {
    tq_matrix *m = LLM__NEW(tq_matrix, 1);
    const float nan = NAN, tiny[] = {3e-12f, 1e-9f, 60000};
    int bad = 0;
    for (int k = 0; k < 4; k++) {
        memset(m, 0, sizeof *m);
        tq_fill(m, 4, TQ_COLS, 0);
        for (int64_t r = 0; r < TQ_ROWS; r++) tq_pack_row(m, TQ_PACKED, r, 4, 1, LLM_TYPE_F32);
        tq_describe(m, TQ_PACKED, 4, TQ_COLS, LLM_TYPE_F32);
        for (int64_t r = 0; r < TQ_ROWS; r++) { /* powers of two of any size, exact in f16 if they are not too far apart */
            m->scale[r][0] = k == 3 ? 1 : k < 2 ? ldexpf(1, k ? -(int)(r % 40) : -30 - (int)(r % 20)) : tiny[r % 3];
            memcpy(m->scales + 4 * r, &m->scale[r][0], 4);
        }
        if (k == 3) memcpy(m->scales + 4 * 17, &nan, 4);
        const llm__codes_form form = llm__codes_form_of(&m->c, 0, &bad);
        CHECK(bad == (k == 3));
        CHECK(k == 3 || form.type == (k == 0 ? LLM_TYPE_Q4_ZERO : LLM_TYPE_G32));
        CHECK(k == 3 || tq_compare(m, &form, 0, 1, TQ_ROWS, 0, TQ_COLS) < 1e-4);
    }
    LLM_FREE(m);
}

static llm_result tq_config(const char *text, const char *file, llm__quant *q) {
    llm_json *doc = NULL;
    if (llm_json_parse(text, strlen(text), NULL, &doc)) return LLM_ERR_NOMEM;
    const llm_result r = llm__quant_read(doc, 0, file, "m", q);
    llm_json_free(doc);
    return r;
}

static void tq_configs(void) {
    static const struct {
        const char *text, *file;
        llm__quant_method method; /* NONE: refused, with `why` in the sentence */
        int bits, group;
        const char *why;
    } cases[] = {
        {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,\"version\":\"GEMM\"}", NULL, LLM__QUANT_AWQ, 4, 128, NULL},
        {"{\"w_bit\":4,\"q_group_size\":64,\"version\":\"GEMV\"}", "quant_config.json", LLM__QUANT_AWQ, 4, 64, NULL},
        {"{\"bits\":3,\"group_size\":-1,\"sym\":true}", "quantize_config.json", LLM__QUANT_GPTQ, 3, -1, NULL},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":\"gptq_v2\"}", NULL, LLM__QUANT_GPTQ, 4, 0, NULL},
        {"{\"quant_method\":\"auto-round\",\"packing_format\":\"auto_round:auto_awq\",\"bits\":4}", NULL, LLM__QUANT_AWQ, 4, 0, NULL},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":4,\"group_size\":32}}}}",
         NULL, LLM__QUANT_COMPRESSED, 4, 32, NULL},
        {"{\"quantization\":{\"quant_algo\":\"FP8\"}}", "hf_quant_config.json", LLM__QUANT_MODELOPT, 0, 0, NULL},
        {"{\"model_quant_type\":\"W8A8\"}", "quant_model_description.json", LLM__QUANT_ASCEND, 8, 0, NULL},
        {"{\"quant_method\":\"awq\",\"version\":\"marlin\"}", NULL, LLM__QUANT_NONE, 0, 0, "version \"marlin\""},
        {"{\"quant_method\":\"awq\",\"bits\":3}", NULL, LLM__QUANT_NONE, 0, 0, "AWQ of 3 bits"},
        {"{\"quant_method\":\"awq\",\"group_size\":0}", NULL, LLM__QUANT_NONE, 0, 0, "group_size"},
        {"{\"quant_method\":\"awq\",\"group_size\":-7}", NULL, LLM__QUANT_NONE, 0, 0, "group_size"},
        {"{\"quant_method\":\"gptq\",\"bits\":\"four\"}", NULL, LLM__QUANT_NONE, 0, 0, "bits"},
        {"{\"quant_method\":\"gptq\",\"bits\":5}", NULL, LLM__QUANT_NONE, 0, 0, "GPTQ of 5 bits"},
        {"{\"quant_method\":\"gptq\",\"checkpoint_format\":\"bitblas\"}", NULL, LLM__QUANT_NONE, 0, 0, "bitblas"},
        {"{\"quant_method\":\"gptq\",\"is_marlin_format\":true}", NULL, LLM__QUANT_NONE, 0, 0, "marlin"},
        {"{\"quant_method\":\"quip\"}", NULL, LLM__QUANT_NONE, 0, 0, "quip"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\"}", NULL, LLM__QUANT_NONE, 0, 0, "marlin-24"},
        {"{\"quant_method\":\"compressed-tensors\",\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}}", NULL, LLM__QUANT_NONE, 0, 0,
         "sparse"},
        {"{\"quant_method\":\"compressed-tensors\",\"transform_config\":{\"config_groups\":{\"u\":{}}}}", NULL, LLM__QUANT_NONE, 0, 0,
         "transform"},
        {"{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":0}}}}", NULL, LLM__QUANT_NONE, 0, 0,
         "num_bits"},
        {"{\"quantization\":{\"quant_algo\":\"W4A8_AWQ\"}}", "hf_quant_config.json", LLM__QUANT_NONE, 0, 0, "W4A8_AWQ"},
        {"{\"model_quant_type\":\"W4A4\"}", "quant_model_description.json", LLM__QUANT_NONE, 0, 0, "W4A4"},
    };
    for (int i = 0; i < LLM__COUNT(cases); i++) {
        llm__quant q;
        const llm_result r = tq_config(cases[i].text, cases[i].file, &q);
        const int ok = cases[i].why ? r != LLM_OK && strstr(llm_last_error(), cases[i].why) != NULL
                                    : r == LLM_OK && q.method == cases[i].method && q.bits == cases[i].bits && q.group == cases[i].group;
        if (!CHECK(ok)) printf("  %s: %s\n", cases[i].text, r ? llm_last_error() : llm__quant_name(q.method));
    }
    CHECK(llm__quant_named("AWQ") == LLM__QUANT_AWQ && llm__quant_named("gpt") == LLM__QUANT_GPTQ);
    CHECK(llm__quant_named("Smooth-Quant") == LLM__QUANT_SMOOTH && llm__quant_named("none") == LLM__QUANT_NONE);
    const llm__quant w8a16 = {.method = LLM__QUANT_GPTQ, .bits = 8, .integers = 1},
                     w8a8 = {.method = LLM__QUANT_ASCEND, .bits = 8, .integers = 1, .activations = 1},
                     fp8 = {.method = LLM__QUANT_FP8, .bits = 8};
    CHECK(llm__quant_is_called(&w8a16, "gptq") && llm__quant_is_called(&w8a16, "weight_only_int8") &&
          !llm__quant_is_called(&w8a16, "smoothquant"));
    CHECK(llm__quant_is_called(&w8a8, "ascend") && llm__quant_is_called(&w8a8, "smooth-quant") &&
          !llm__quant_is_called(&w8a8, "weight_only_int8"));
    CHECK(!llm__quant_is_called(&fp8, "weight_only_int8") && !llm__quant_is_called(&fp8, "smoothquant") &&
          !llm__quant_is_called(&fp8, "awq"));
    CHECK(llm__quant_named("quip") == -1 && llm__quant_named("a name that is longer than any of them is") == -1);
}

/* Any bytes of a config, changed at random, are read or refused with a sentence. */
static void tq_mutations(void) {
    static const char *const texts[] = {
        "{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":4,\"group_size\":32}}}}",
        "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,\"checkpoint_format\":\"gptq_v2\",\"dynamic\":{\"-:x\":{}}}",
        "{\"quantization\":{\"quant_algo\":\"FP8\",\"kv_cache_quant_algo\":\"FP8\"},\"w_bit\":4,\"version\":\"gemm\"}"};
    for (int i = 0; i < 3000; i++) {
        char text[256];
        llm__quant q;
        snprintf(text, sizeof text, "%s", texts[i % 3]);
        for (int k = 0; k < 1 + i % 3; k++) text[tq_rng() % strlen(text)] = "0123456789-\"{}[],:ax\\n"[tq_rng() % 22];
        const llm_result r = tq_config(text, i % 2 ? "hf_quant_config.json" : NULL, &q);
        CHECK(r ? *llm_last_error() != 0 : q.method >= 0 && q.method < LLM__QUANT_METHODS && q.bits >= 0 && q.group >= -1);
    }
}

/* ---- Tensors of a matrix (64, 128), found by name and checked ---- */

typedef struct tq_tensor {
    const char *end; /* of "m.layer" */
    int32_t type;
    int64_t shape[2]; /* the second 0: of one dimension */
} tq_tensor;

typedef struct tq_set {
    llm__quant_method method;
    const char *state; /* bitsandbytes' text */
    tq_tensor tensor[7];
} tq_set;

static const tq_set tq_sets[] = {
    {LLM__QUANT_AWQ, NULL, {{".qweight", LLM_TYPE_I32, {128, 8}}, {".qzeros", LLM_TYPE_I32, {2, 8}}, {".scales", LLM_TYPE_F16, {2, 64}}}},
    {LLM__QUANT_GPTQ,
     NULL,
     {{".qweight", LLM_TYPE_I32, {16, 64}},
      {".qzeros", LLM_TYPE_I32, {4, 8}},
      {".scales", LLM_TYPE_F16, {4, 64}},
      {".g_idx", LLM_TYPE_I32, {128, 0}}}},
    {LLM__QUANT_COMPRESSED,
     NULL,
     {{".weight_packed", LLM_TYPE_I32, {64, 16}},
      {".weight_scale", LLM_TYPE_BF16, {64, 4}},
      {".weight_zero_point", LLM_TYPE_I32, {8, 4}},
      {".weight_g_idx", LLM_TYPE_I32, {128, 0}}}},
    {LLM__QUANT_COMPRESSED,
     NULL,
     {{".weight_packed", LLM_TYPE_U8, {64, 64}},
      {".weight_scale", LLM_TYPE_F8_E4M3, {64, 8}},
      {".weight_global_scale", LLM_TYPE_F32, {1, 0}}}},
    {LLM__QUANT_COMPRESSED, NULL, {{".weight_packed", LLM_TYPE_U8, {64, 64}}, {".weight_scale", LLM_TYPE_U8, {64, 4}}}},
    {LLM__QUANT_BNB,
     "{\"blocksize\":64,\"nested_blocksize\":256,\"nested_offset\":0.5}",
     {{".weight", LLM_TYPE_U8, {4096, 1}},
      {".weight.absmax", LLM_TYPE_U8, {128, 0}},
      {".weight.quant_map", LLM_TYPE_F32, {16, 0}},
      {".weight.nested_absmax", LLM_TYPE_F32, {1, 0}},
      {".weight.nested_quant_map", LLM_TYPE_F32, {256, 0}},
      {".weight.quant_state.bitsandbytes__nf4", LLM_TYPE_U8, {59, 0}}}},
    {LLM__QUANT_FP8, NULL, {{".weight", LLM_TYPE_F8_E4M3, {64, 128}}, {".weight_scale_inv", LLM_TYPE_F32, {2, 4}}}},
    {LLM__QUANT_FP8, NULL, {{".weight", LLM_TYPE_F8_E4M3, {64, 128}}, {".weight_scale", LLM_TYPE_F32, {1, 0}}}},
    {LLM__QUANT_BNB, NULL, {{".weight", LLM_TYPE_I8, {64, 128}}, {".SCB", LLM_TYPE_F32, {64, 0}}}},
    {LLM__QUANT_COMPRESSED,
     NULL,
     {{".weight", LLM_TYPE_I8, {64, 128}}, {".weight_scale", LLM_TYPE_BF16, {64, 1}}, {".weight_zero_point", LLM_TYPE_I8, {64, 1}}}},
    {LLM__QUANT_ASCEND,
     NULL,
     {{".weight", LLM_TYPE_I8, {64, 128}},
      {".deq_scale", LLM_TYPE_F32, {64, 0}},
      {".input_scale", LLM_TYPE_F32, {1, 0}},
      {".input_offset", LLM_TYPE_F32, {1, 0}},
      {".quant_bias", LLM_TYPE_I32, {64, 0}}}},
};

/* A small number of any type, never 0. */
static void tq_numbers(int32_t type, uint8_t *to, int64_t n) {
    const float x = 0.5f;
    for (int64_t i = 0; i < n; i++) switch (type) {
        case LLM_TYPE_F32: memcpy(to + 4 * i, &x, 4); break;
        case LLM_TYPE_F16: memcpy(to + 2 * i, &(uint16_t){0x3800}, 2); break;
        case LLM_TYPE_BF16: memcpy(to + 2 * i, &(uint16_t){0x3F00}, 2); break;
        case LLM_TYPE_I32: memset(to + 4 * i, 0, 4); break;
        default: to[i] = 48;
        }
}

/* Looks the set up, with tensor `odd` changed: 0 not, 1 missing, 2 a column more, 3 of another type, 4 all its bytes 0xFF (NaN, or an index
 * beyond everything). The result; the sentence is llm_last_error's. */
static llm_result tq_seek(const tq_set *set, int odd, int how, llm_segment *segment, llm_segment *bias) {
    static uint8_t data[7][16384];
    llm_model *m = LLM__NEW(llm_model, 1);
    llm__loader L;
    memset(&L, 0, sizeof L);
    memset(segment, 0, sizeof *segment);
    m->path = llm__strdup("m");
    m->source.quant.method = set->method;
    L.m = m, L.path = "m", L.backend = llm_backend_cpu();
    for (int i = 0; i < 7 && set->tensor[i].end; i++) {
        const tq_tensor *t = &set->tensor[i];
        llm__tensor x = {.type = t->type, .n_dims = t->shape[1] ? 2 : 1, .shape = {t->shape[0], t->shape[1]}};
        char name[100];
        if (i == odd && how == 1) continue;
        if (i == odd && how == 2) x.shape[x.n_dims - 1]++;
        if (i == odd && how == 3) x.type = LLM_TYPE_I64;
        snprintf(name, sizeof name, "m.layer%s", t->end);
        CHECK(!llm__tensors_add(&m->source.tensors, "m", llm__lit(name), &x));
        memset(data[i], 48, sizeof data[i]);
        tq_numbers(t->type, data[i], 2048);
        if (strstr(t->end, "quant_state")) memcpy(data[i], set->state, strlen(set->state));
        if (i == odd && how == 4) memset(data[i], 0xFF, sizeof data[i]);
        m->source.tensors.item[m->source.tensors.n - 1].data = data[i];
    }
    if (odd != 0 || how != 1) {
        CHECK(llm__quant_is(&L, &m->source.tensors.item[0]) || how == 3);
        if (llm__quant_is(&L, &m->source.tensors.item[0])) llm__quant_seek(&L, &m->source.tensors.item[0], 64, 128, segment);
        if (!L.r && bias && llm__quant_bias(&L, &m->source.tensors.item[0], 64, bias)) CHECK(L.r || bias->stored_cols == 64);
    }
    if (!L.r && segment->read) {
        float x[128];
        llm_segment s = *segment;
        s.n_cols = 128;
        llm__segment_values(&s, 0, 63, 0, 128, x);
        for (int i = 0; i < 128 && (odd || how < 4); i++)
            if (!CHECK(x[i] == x[i])) printf("  set %d, tensor %d, %d: %s\n", (int)(set - tq_sets), odd, how, llm__type_name(s.type));
    }
    llm__tensors_free(&m->source.tensors);
    llm__arena_free(&L.keep);
    LLM_FREE(m->path);
    LLM_FREE(m);
    return L.r;
}

static void tq_tensors(void) {
    int refused = 0;
    for (int i = 0; i < LLM__COUNT(tq_sets); i++) {
        llm_segment s, bias = LLM__ZERO;
        if (!CHECK(tq_seek(&tq_sets[i], -1, 0, &s, &bias) == LLM_OK)) printf("  set %d: %s\n", i, llm_last_error());
        CHECK(s.read ? s.type == LLM_TYPE_F32 || llm__type_block(s.type) == 32 : s.scales || s.scale != 0);
        for (int k = 0; k < 7 && tq_sets[i].tensor[k].end; k++)
            for (int how = 1; how <= 4; how++) {
                const char *end = tq_sets[i].tensor[k].end;
                const int codes = k == 0, index = strstr(end, "g_idx") != NULL,
                          zeros = strstr(end, "zero") != NULL || strstr(end, "offset");
                const int8_t none = strstr(end, "nested") || strstr(end, "quant_map") || strstr(end, "quant_bias");
                const llm_result r = tq_seek(&tq_sets[i], k, how, &s, &bias);
                const int told = r && strstr(llm_last_error(), "tensor m.layer") && strlen(llm_last_error()) < 300;
                /* what may be left out, and bytes that mean something whatever they are */
                const int fine =
                    (how == 1 && (codes || index || zeros || none || !strcmp(end, ".qzeros"))) ||
                    (how == 3 && (codes || !strcmp(end, ".deq_scale"))) ||
                    (how == 4 && (codes || zeros || none || tq_sets[i].tensor[k].type == LLM_TYPE_U8 || strstr(end, ".qzeros")));
                refused += r != LLM_OK;
                if (!CHECK(told || (!r && fine))) printf("  %s of set %d, %d: %s\n", end, i, how, r ? llm_last_error() : "accepted");
            }
    }
    CHECK(refused > 80);
}

TEST_GROUP(quant) {
    tq_tensors();
    tq_layouts();
    tq_fourths();
    tq_floats();
    tq_f8_128();
    tq_scales();
    tq_configs();
    tq_mutations();
}
