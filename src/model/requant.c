#include "model/requant.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "cpu/dtypes.h"
#include "cpu/quantise.h"
#include "model/tensors.h"
#include "model/quant.h"
#include "model/loader.h"

/* Names, the type of blocks, and whether a row has one scale. */
static const struct {
    const char *names; /* the first is shown */
    int32_t type, by_row;
} llm__requant_forms[] = {
    {"", 0, 0},
    {"weight_only_int8 wint8 int8_weight_only", LLM_TYPE_Q8_0, 1},
    {"fp8 wfp8", LLM_TYPE_F8_E4M3, 1},
    {"nf4 bitsandbytes bnb", LLM_TYPE_NF4, 0},
    {"mxfp4", LLM_TYPE_MXFP4, 0},
    {"q8_0", LLM_TYPE_Q8_0, 0},
    {"q6_k", LLM_TYPE_Q6_K, 0},
    {"q5_k", LLM_TYPE_Q5_K, 0},
    {"q5_0", LLM_TYPE_Q5_0, 0},
    {"q4_k", LLM_TYPE_Q4_K, 0},
    {"q4_1", LLM_TYPE_Q4_1, 0},
    {"q4_0 wint4", LLM_TYPE_Q4_0, 0},
    {"q3_k", LLM_TYPE_Q3_K, 0},
    {"q2_k", LLM_TYPE_Q2_K, 0},
};

LLM__PRIVATE int llm__requant_named(const char *name) {
    char lower[40];
    llm__quant_spelling(name, lower);
    for (int i = 1; i < LLM__COUNT(llm__requant_forms); i++)
        if (llm__word_index(llm__requant_forms[i].names, llm__lit(lower)) >= 0) return i;
    return 0;
}

LLM__PRIVATE const char *llm__requant_name(int form) {
    static const char *const names[] = {
        "", "weight_only_int8", "fp8", "nf4", "mxfp4", "q8_0", "q6_k", "q5_k", "q5_0", "q4_k", "q4_1", "q4_0", "q3_k", "q2_k"};
    return names[form];
}

/* A matrix that is made when it is read. */
typedef struct llm__requanted {
    const uint8_t *data; /* NULL: in parts */
    const llm__tensor_parts *parts;
    const float *scales; /* (rows), where a row has one */
    int64_t rows, cols, stored_cols;
    int32_t from, to;
    int transposed, mapped;
} llm__requanted;

/* Columns [col, col + n) of a row, as floats. */
static void llm__requant_values(const llm__requanted *m, int64_t row, int64_t col, int64_t n, float *x) {
    const int64_t bytes = llm__row_bytes(m->from, m->stored_cols);
    llm__tensor t = LLM__ZERO;
    t.type = m->from;
    t.data = m->data;
    t.parts = m->parts;
    if (!m->transposed) llm__tensor_values(&t, row, m->cols, col, n, x);
    for (int64_t i = 0; i < n && m->transposed; i++) llm__dequant_columns(m->from, m->data + (col + i) * bytes, row, 1, x + i);
}

/* A row's scale, of what has one. */
static float llm__requant_scale(const llm__requanted *m, int64_t row) {
    float x[256], most = 0;
    for (int64_t c = 0; c < m->cols; c += 256) {
        const int64_t n = LLM__MIN((int64_t)256, m->cols - c);
        llm__requant_values(m, row, c, n, x);
        for (int64_t i = 0; i < n; i++) most = LLM__MAX(most, fabsf(x[i]));
    }
    return m->to == LLM_TYPE_Q8_0 ? llm__f16_to_f32(llm__f32_to_f16(most / 127)) : most / 448;
}

/* Blocks of 32 integers with the row's scale, or e4m3 without. */
static void llm__requant_bytes(const llm__requanted *m, float scale, const float *x, int64_t n, uint8_t *to) {
    const float by = scale > 0 ? 1 / scale : 0;
    const uint16_t half = llm__f32_to_f16(scale);
    const int integers = m->to == LLM_TYPE_Q8_0;
    for (int64_t i = 0; i < n; i++) {
        if (i % 32 == 0 && integers) {
            memcpy(to, &half, 2);
            to += 2;
        }
        const float q = x[i] * by;
        *to++ = integers ? (uint8_t)(int8_t)LLM__MIN(LLM__MAX(rintf(q), -128), 127) : llm__f32_to_e4m3(q);
    }
}

/* Blocks of 32 of NF4, two by two with one scale. `skip`: columns before the ones that are wanted, that share the first's. */
static void llm__requant_nf4(const float *x, int64_t skip, int64_t n, int64_t whole, uint8_t *to) {
    const float *table = llm__type_values(LLM_TYPE_NF4);
    for (int64_t i = skip; i < skip + n; i += 32, to += 20) {
        const int64_t from = i / 64 * 64, end = LLM__MIN(from + 64, whole);
        float most = 0;
        for (int64_t k = from; k < end; k++) most = LLM__MAX(most, fabsf(x[k]));
        memcpy(to, &most, 4);
        float v[32];
        int32_t code[32] = {0};
        for (int k = 0; k < 32; k++) v[k] = most > 0 ? x[i + k] / most : 0;
        for (int c = 0; c < 15; c++) { /* without branches: vectors */
            const float middle = (table[c] + table[c + 1]) / 2;
            for (int k = 0; k < 32; k++) code[k] += v[k] > middle;
        }
        for (int k = 0; k < 16; k++) to[4 + k] = (uint8_t)(code[k] | code[k + 16] << 4);
    }
}

/* The pages of a row that was read to its end, in the mapped file. */
static void llm__requant_rest(const llm__requanted *m, int64_t row, int64_t n) {
    const int64_t bytes = llm__row_bytes(m->from, m->stored_cols);
    if (m->mapped && !m->transposed && m->data) llm__file_rest(m->data + row * bytes, (size_t)(n * bytes));
}

/* llm_segment.read. Values that are no numbers make blocks that are none, as they would without quantising. */
static void llm__requant_read(const void *matrix, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, void *to) {
    const llm__requanted *m = (const llm__requanted *)matrix;
    const int64_t row_bytes = llm__row_bytes(m->to, n_cols);
    float x[384];
    for (int64_t r = 0; r < n; r++) {
        uint8_t *out = (uint8_t *)to + r * row_bytes;
        const int64_t at_row = row + r * step;
        for (int64_t c = col, some; c < col + n_cols; c += some, out += llm__row_bytes(m->to, some)) {
            const int64_t before = m->to == LLM_TYPE_NF4 ? c % 64 : 0;
            some = LLM__MIN((int64_t)256, col + n_cols - c);
            const int64_t whole = m->to == LLM_TYPE_NF4 ? LLM__MIN((before + some + 63) / 64 * 64, m->cols - c + before) : some;
            llm__requant_values(m, at_row, c - before, whole, x);
            if (m->scales) llm__requant_bytes(m, m->scales[at_row], x, some, out);
            else if (m->to == LLM_TYPE_NF4) llm__requant_nf4(x, before, some, whole, out);
            else if (!llm__quantise(m->to, x, NULL, 1, some, out)) memset(out, 0xFF, (size_t)llm__row_bytes(m->to, some));
        }
    }
    if (col + n_cols == m->cols && step == 1) llm__requant_rest(m, row, n);
}

/* The type that rows of so many columns get; 0: none. */
static int32_t llm__requant_type(int32_t type, int64_t cols) {
    static const int32_t small[][2] = {{LLM_TYPE_Q2_K, LLM_TYPE_Q4_0},
                                       {LLM_TYPE_Q3_K, LLM_TYPE_Q4_0},
                                       {LLM_TYPE_Q4_K, LLM_TYPE_Q5_0},
                                       {LLM_TYPE_Q5_K, LLM_TYPE_Q5_1},
                                       {LLM_TYPE_Q6_K, LLM_TYPE_Q8_0}};
    for (int i = 0; i < LLM__COUNT(small) && cols % llm__type_block(type); i++)
        if (small[i][0] == type) type = small[i][1];
    return cols % llm__type_block(type) ? 0 : type;
}

/* Scales of all rows. A value that is no number is told here, where there are such; elsewhere block by block nobody could be told. */
static void llm__requant_scales(llm__loader *L, const llm__tensor *t, llm__requanted *m) {
    float *scales = (float *)llm__arena_take(&L->keep, (size_t)m->rows * sizeof *scales);
    if (!scales) L->r = llm__nomem();
    for (int64_t r = 0; r < m->rows && !L->r; r++) {
        scales[r] = llm__requant_scale(m, r);
        if (!(scales[r] < 60000)) L->r = llm__bad(L->m->path, "tensor", t->name, "row %lld has values that are not finite", (long long)r);
        if (r % 256 == 255) llm__requant_rest(m, r - 255, 256);
    }
    m->scales = scales;
}

LLM__PRIVATE void llm__requant(llm__loader *L, int slot, const llm__tensor *t, int64_t rows, int64_t cols, llm_segment *s) {
    const int form = L->m->requant, gguf = form > 4;
    if (!form || L->r || (s->type != LLM_TYPE_F32 && s->type != LLM_TYPE_F16 && s->type != LLM_TYPE_BF16)) return;
    if (slot == LLM__W_ROUTER || slot == LLM__W_ROUTER2 || slot == LLM__W_S_SCALE) return;
    if (slot == LLM__W_ALTUP_ROUTER || slot == LLM__W_LAUREL_L || slot == LLM__W_LAUREL_R) return; /* small ones, as in GGUF */
    if (L->layer < 0 && (!gguf || !L->heading)) return;
    int32_t type = llm__requant_forms[form].type;
    if (L->layer < 0 && type != LLM_TYPE_Q8_0) type = LLM_TYPE_Q6_K;
    type = llm__requant_type(type, cols);
    llm__requanted *m = type ? (llm__requanted *)llm__arena_get(&L->keep, sizeof *m) : NULL;
    if (type && !m) L->r = llm__nomem();
    if (!m) return;
    m->data = t->parts ? NULL : (const uint8_t *)s->data;
    m->parts = t->parts;
    m->rows = rows, m->cols = cols, m->stored_cols = s->stored_cols;
    m->from = s->type, m->to = type;
    m->transposed = s->transposed, m->mapped = s->mapped;
    if (llm__requant_forms[form].by_row && L->backend && !L->dry) llm__requant_scales(L, t, m);
    s->data = m;
    s->type = type;
    s->stored_cols = cols;
    s->transposed = s->mapped = 0;
    s->read = llm__requant_read;
    s->scales = type == LLM_TYPE_F8_E4M3 ? m->scales : NULL;
}
