/* mac: products of floats: what all instruction sets do alike.
 *
 * Each instruction set has a function of its own for a few rows at a time (llm__avx2_rows and its like): their sums stay in registers, and
 * what is loaded of b serves all of them. Here stand the addresses that it reads and writes, and how many rows it is given. */
#pragma once
#include "base/platform.h"
#include "cpu/dtypes.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"

/* Products of the rows [i, i + n) of a with both panels of b, of this type. */
typedef void (*llm__rows_fn)(const llm__mac *m, int i, const int n, const llm__kind type);

/* The inputs of row i from k on. */
LLM__INLINE const float *llm__mac_a(const llm__mac *m, int i, int k) { return m->a + (int64_t)i * m->lda + k; }
LLM__INLINE const uint16_t *llm__mac_half(const llm__mac *m, int i, int k) { return m->half + (int64_t)i * m->lda + k; }

/* Column 0 to 31, of both panels, of a row of c. */
LLM__INLINE float *llm__mac_c(const llm__mac *m, float *row, const int column) {
    return row + column / LLM__ROWS * m->step + column % LLM__ROWS;
}

/* How far into its panel `column` of row k lies, in elements. bf16 and f8: of the pair that k is the first of. */
LLM__INLINE int64_t llm__mac_b(const llm__mac *m, int k, const int column, const llm__kind type) {
    return (int64_t)k * m->ldb + column % LLM__ROWS * (type >= LLM__KIND_BF16 ? 2 : 1);
}

/* Asks for what is read after this call, as far on as k is. */
LLM__INLINE void llm__mac_fetch(const llm__mac *m, const int panel, int k) { __builtin_prefetch(m->fetch[panel] + k * m->pace); }

/* `most` rows at a time, then 4, then 3 (queries of a group of heads), then one: every other count would be one more instance of the
 * loop. */
LLM__INLINE void llm__mac_all(const llm__mac *m, const int most, const llm__kind type, const llm__rows_fn rows) {
    int i = 0;
    for (; i + most <= m->n; i += most) rows(m, i, most, type);
    for (; most > 4 && i + 4 <= m->n; i += 4) rows(m, i, 4, type);
    for (; most > 3 && i + 3 <= m->n; i += 3) rows(m, i, 3, type);
    for (; i < m->n; i++) rows(m, i, 1, type);
}

/* One loop for each type. */
LLM__INLINE void llm__mac_types(const llm__mac *m, const int most, const llm__rows_fn rows) {
    if (m->type == LLM__KIND_F32) llm__mac_all(m, most, LLM__KIND_F32, rows);
    else if (m->type == LLM__KIND_F16) llm__mac_all(m, most, LLM__KIND_F16, rows);
    else if (m->type == LLM__KIND_F8) llm__mac_all(m, most, LLM__KIND_F8, rows);
    else llm__mac_all(m, most, LLM__KIND_BF16, rows);
}
