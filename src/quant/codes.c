#include "quant/codes.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/threads.h"
#include "cpu/dtypes.h"

LLM__PRIVATE llm_result llm__rounded_open(llm__rounded *m, int g_idx) {
    m->code = LLM__NEW(uint8_t, m->rows * m->cols);
    m->scale = LLM__NEW(float, m->rows * m->groups);
    m->zero = LLM__NEW(uint8_t, m->rows * m->groups);
    m->g_idx = g_idx ? LLM__NEW(int32_t, m->cols) : NULL;
    return m->code && m->scale && m->zero && (m->g_idx || !g_idx) ? LLM_OK : llm__nomem();
}

LLM__PRIVATE void llm__rounded_close(llm__rounded *m) {
    LLM_FREE(m->code);
    LLM_FREE(m->scale);
    LLM_FREE(m->zero);
    LLM_FREE(m->g_idx);
}

LLM__PRIVATE void llm__rounded_list_close(llm__rounded_list *list) {
    for (size_t i = 0; i < list->n; i++) llm__rounded_close(&list->item[i]);
    LLM_FREE(list->item);
}

/* A scale of its type, as near to x as it can be stored, but not below where that would cut the largest value off. */
static float llm__scale_stored(int32_t type, float x) {
    uint32_t bits;
    if (type == LLM_TYPE_F32) return x;
    if (type == LLM_TYPE_F16) return llm__f16_to_f32(llm__f32_to_f16(x));
    memcpy(&bits, &x, 4);
    return llm__bf16_to_f32((uint16_t)((bits + 0xFFFF) >> 16)); /* upwards: it has so few bits that the largest value would be cut */
}

LLM__PRIVATE void llm__scale_of(const llm__rounded *m, const float *x, int64_t step, int64_t n, float shrink, float *scale, uint8_t *zero) {
    const float most = (float)((1 << m->bits) - 1), half = (float)(1 << (m->bits - 1));
    float low = x[0], high = x[0];
    for (int64_t i = 1; i < n; i++) {
        low = LLM__MIN(low, x[i * step]);
        high = LLM__MAX(high, x[i * step]);
    }
    low *= shrink, high *= shrink;
    const float size = LLM__MAX(high, -low),
                by = m->bits == 8 ? 2 * half - 2 : most; /* of bytes -127 to 127 are used, by all who write them */
    float s = m->affine ? LLM__MAX((high - low) / most, 1e-5f) : LLM__MAX(2 * size / by, 1e-7f);
    if (m->scale_type == LLM_TYPE_F16) s = LLM__MAX(s, 6e-8f); /* the least that there is */
    *scale = s = llm__scale_stored(m->scale_type, s);
    const float z = m->affine ? rintf(-low / s) : half;
    *zero = (uint8_t)(z < 0 ? 0 : z > most ? most : z);
}

LLM__PRIVATE void llm__round_rows(const llm__rounded *m, const float *w, int64_t first, int64_t end) {
    for (int64_t r = first; r < end; r++)
        for (int64_t g = 0; g < m->groups; g++) {
            const int64_t at = r * m->cols + g * m->group, n = LLM__MIN(m->group, m->cols - g * m->group);
            float *scale = m->scale + r * m->groups + g;
            uint8_t *zero = m->zero + r * m->groups + g;
            llm__scale_of(m, w + at, 1, n, 1, scale, zero);
            const float by = 1 / *scale, z = (float)*zero, most = (float)((1 << m->bits) - 1);
            for (int64_t i = 0; i < n; i++) m->code[at + i] = llm__code_of(w[at + i], by, z, most);
        }
}

LLM__PRIVATE void llm__rounded_values(const llm__rounded *m, int64_t first, int64_t end, float *w) {
    for (int64_t r = first; r < end; r++)
        for (int64_t i = 0; i < m->cols; i++) {
            const int64_t g = r * m->groups + (m->g_idx ? m->g_idx[i] : i / m->group);
            w[r * m->cols + i] = (float)((int)m->code[r * m->cols + i] - (int)m->zero[g]) * m->scale[g];
        }
}

LLM__PRIVATE int llm__code_tensors(llm__code_layout layout, const llm__rounded *m, llm__code_tensor out[4]) {
    const int64_t r = m->rows, c = m->cols, g = m->groups, b = m->bits;
    const llm__code_tensor tensors[4][4] = {
        {{".weight_packed", LLM_TYPE_I32, 2, {r, (c * b + 31) / 32}},
         {".weight_scale", m->scale_type, 2, {r, g}},
         {".weight_shape", LLM_TYPE_I64, 1, {2, 1}},
         {NULL, 0, 0, {0, 0}}},
        {{".weight", LLM_TYPE_I8, 2, {r, c}}, {".weight_scale", m->scale_type, 2, {r, 1}}, {NULL, 0, 0, {0, 0}}, {NULL, 0, 0, {0, 0}}},
        {{".qweight", LLM_TYPE_I32, 2, {c, r / 8}},
         {".qzeros", LLM_TYPE_I32, 2, {g, r / 8}},
         {".scales", LLM_TYPE_F16, 2, {g, r}},
         {NULL, 0, 0, {0, 0}}},
        {{".qweight", LLM_TYPE_I32, 2, {c * b / 32, r}},
         {".qzeros", LLM_TYPE_I32, 2, {g, r * b / 32}},
         {".scales", LLM_TYPE_F16, 2, {g, r}},
         {".g_idx", LLM_TYPE_I32, 1, {c, 1}}}};
    int n = 0;
    for (; n < 4 && tensors[layout - 1][n].end; n++) out[n] = tensors[layout - 1][n];
    return n;
}

/* Writes a number of `type` as element i. */
static void llm__code_store(uint8_t *to, int32_t type, int64_t i, float x) {
    const uint16_t half = type == LLM_TYPE_F16 ? llm__f32_to_f16(x) : llm__f32_to_bf16(x);
    if (type == LLM_TYPE_F32) memcpy(to + 4 * i, &x, 4);
    else memcpy(to + 2 * i, &half, 2);
}

/* n codes of b bits, the first at p, the others `step` apart, as words `to`, `stride` apart. */
static void llm__code_words(const uint8_t *p, int64_t step, int64_t n, int b, int less, uint32_t *to, int64_t stride) {
    uint64_t word = 0;
    int have = 0;
    for (int64_t i = 0; i < n; i++) {
        word |= (uint64_t)((uint32_t)(p[i * step] - less) & ((1u << b) - 1)) << have;
        have += b;
        if (have >= 32) *to = (uint32_t)word, to += stride, word >>= 32, have -= 32;
    }
    if (have) *to = (uint32_t)word;
}

/* Eight outputs a word, as AutoAWQ has them: (rows / 8) words of one column. */
static void llm__code_awq(const uint8_t *p, int64_t step, int64_t rows, uint32_t *to) {
    static const uint8_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    for (int64_t j = 0; j < rows / 8; j++) {
        uint32_t word = 0;
        for (int k = 0; k < 8; k++) word |= (uint32_t)p[(8 * j + order[k]) * step] << 4 * k;
        to[j] = word;
    }
}

/* What the threads are at. */
typedef struct llm__packing_job {
    const llm__rounded *m;
    llm__code_tensor t;
    llm__code_layout layout;
    int k;
    uint8_t *to;
} llm__packing_job;

/* Rows [first, end) of codes by columns: of every 32 columns b rows of words. */
static void llm__pack_gptq(const llm__packing_job *j, int64_t first, int64_t end) {
    const llm__rounded *m = j->m;
    uint32_t words[8];
    for (int64_t at = first; at < end; at++)
        for (int64_t r = 0; r < m->rows; r++) {
            llm__code_words(m->code + r * m->cols + at * 32, 1, 32, m->bits, 0, words, 1);
            for (int b = 0; b < m->bits; b++) memcpy(j->to + 4 * ((at * m->bits + b) * m->rows + r), words + b, 4);
        }
}

/* A share of the rows of a tensor. */
static void llm__pack_part(void *arg, int pass, int part, int n_parts) {
    const llm__packing_job *j = (const llm__packing_job *)arg;
    const llm__rounded *m = j->m;
    const int by32 = j->layout == LLM__CODES_GPTQ1 && j->k == 0;
    const int64_t rows = by32 ? m->cols / 32 : j->t.shape[0], first = rows * part / n_parts, end = rows * (part + 1) / n_parts,
                  words = j->t.shape[1];
    (void)pass;
    if (by32) llm__pack_gptq(j, first, end);
    for (int64_t i = first; i < end && !by32; i++) {
        uint32_t *to = (uint32_t *)(void *)(j->to + 4 * i * words);
        if (j->layout == LLM__CODES_PACK && j->k == 0) llm__code_words(m->code + i * m->cols, 1, m->cols, m->bits, 0, to, 1);
        else if (j->layout == LLM__CODES_INT8 && j->k == 0)
            for (int64_t c = 0; c < m->cols; c++) j->to[i * m->cols + c] = (uint8_t)(m->code[i * m->cols + c] - 128);
        else if (j->k == 1 && j->layout <= LLM__CODES_INT8)
            for (int64_t g = 0; g < m->groups; g++) llm__code_store(j->to, m->scale_type, i * m->groups + g, m->scale[i * m->groups + g]);
        else if (j->layout == LLM__CODES_AWQ4 && j->k == 0) llm__code_awq(m->code + i, m->cols, m->rows, to);
        else if (j->layout == LLM__CODES_AWQ4 && j->k == 1) llm__code_awq(m->zero + i, m->groups, m->rows, to);
        else if (j->k == 1) llm__code_words(m->zero + i, m->groups, m->rows, m->bits, 1, to, 1);
        else if (j->k == 2)
            for (int64_t r = 0; r < m->rows; r++) llm__code_store(j->to, LLM_TYPE_F16, i * m->rows + r, m->scale[r * m->groups + i]);
    }
}

LLM__PRIVATE void llm__code_pack(llm__code_layout layout, const llm__rounded *m, int k, llm__pool *pool, uint8_t *to) {
    llm__code_tensor tensors[4];
    llm__packing_job j = {m, {NULL, 0, 0, {0, 0}}, layout, k, to};
    llm__code_tensors(layout, m, tensors);
    j.t = tensors[k];
    if (layout == LLM__CODES_PACK && k == 2) {
        const int64_t shape[2] = {m->rows, m->cols};
        memcpy(to, shape, sizeof shape);
    } else if (layout == LLM__CODES_GPTQ1 && k == 3)
        for (int64_t i = 0; i < m->cols; i++) {
            const int32_t g = m->g_idx ? m->g_idx[i] : (int32_t)(i / m->group);
            memcpy(to + 4 * i, &g, 4);
        }
    else llm__pool_run(pool, llm__pack_part, &j, 1);
}
