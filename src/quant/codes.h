/* codes: a rounded matrix, and the layouts that files have of it.
 *
 * Methods choose codes, scales and zero points (W[o, i] is about (code - zero) * scale of its group); how these are packed is another
 * matter, and told here alone. Bits of a word are filled from the lowest up.
 *
 *     layout      tensors (behind the matrix' name)                               zero points
 *     CODES_PACKED    weight_packed i32 [out, in b / 32] along the input, weight_scale, weight_shape      2^(b-1), not stored
 *     CODES_INT8      weight i8 [out, in], weight_scale                                                   0 (code - 128)
 *     CODES_AWQ       qweight i32 [in, out / 8], qzeros i32 [groups, out / 8], scales f16 [groups, out]   as they are
 *                 eight neighbouring outputs in the order 0 2 4 6 1 3 5 7
 *     CODES_GPTQ      qweight i32 [in b / 32, out] along the input, qzeros i32 [groups, out b / 32]       less one
 *                 along the output, scales f16 [groups, out], g_idx i32 [in]
 *
 * Symmetric scales are the largest size / 7.5 of 4 bits (codes -8 to 7, as AutoGPTQ), / 127 of 8 bits (-127 to 127).
 * With zero points they are (largest - smallest) / 15, of the true values, which need not lie about 0 (as AutoAWQ). Scales
 * are rounded to what is stored before codes are chosen, so that a reader finds the nearest codes and not those of a scale
 * that it does not have.
 *
 * An example, 4 bits by GPTQ: of the column 0 1 2 3 4 5 6 7 of codes the word is 0x76543210; zero points of 8 stand as
 * 0x77777777, for one is taken off. AWQ's word of eight outputs with the same codes is 0x75316420.
 *
 * Sources: compressed-tensors (compressors/pack_quantized), AutoAWQ (WQLinear_GEMM), AutoGPTQ and GPTQModel (pack). */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "base/threads.h"

typedef enum llm__code_layout { LLM__CODES_PACK = 1, LLM__CODES_INT8, LLM__CODES_AWQ4, LLM__CODES_GPTQ1 } llm__code_layout;

typedef struct llm__rounded {
    int64_t rows, cols, group, groups; /* group: columns that share a scale */
    int32_t bits, scale_type;          /* what scales are stored as: they are rounded to it */
    int32_t affine;                    /* 1: zero points are chosen; 0: they are 2^(bits - 1) */
    uint8_t *code;                     /* (rows, cols) from 0 on */
    float *scale;                      /* (rows, groups) */
    uint8_t *zero;                     /* (rows, groups) */
    int32_t *g_idx;                    /* (cols) which group a column is of; NULL: in order */
} llm__rounded;

/* Some of them. Zero-initialise. */
typedef struct llm__rounded_list {
    llm__rounded *item;
    size_t n;
} llm__rounded_list;

/* Memory for the codes of a matrix whose sizes are given; g_idx: also for that. */
LLM__PRIVATE llm_result llm__rounded_open(llm__rounded *m, int g_idx);
LLM__PRIVATE void llm__rounded_close(llm__rounded *m);
LLM__PRIVATE void llm__rounded_list_close(llm__rounded_list *list);

/* One of the tensors that a matrix becomes. */
typedef struct llm__code_tensor {
    const char *end;
    int32_t type, n_dims;
    int64_t shape[2];
} llm__code_tensor;

/* The scale and zero point of n values (x[0], x[step], ...), from their largest and smallest times `shrink`: as AWQ's and GPTQ's public
 * programs take them. */
LLM__PRIVATE void llm__scale_of(const llm__rounded *m, const float *x, int64_t step, int64_t n, float shrink, float *scale, uint8_t *zero);

/* The code of a value; by: 1 / its scale. Adding 1.5 * 2^23 leaves no bits for a fraction: that rounds, ties to even, as rintf does, which
 * is a call of the library here. */
LLM__INLINE uint8_t llm__code_of(float x, float by, float zero, float most) {
    float q = x * by + zero;
    q = q > 0 ? q : 0;
    q = (q < most ? q : most) + 12582912.0f;
    return (uint8_t)(q - 12582912.0f);
}

/* Rounds rows [first, end) of w (rows, cols) to nearest, with scales of their own values. */
LLM__PRIVATE void llm__round_rows(const llm__rounded *m, const float *w, int64_t first, int64_t end);

/* What the codes mean, into w (rows, cols). */
LLM__PRIVATE void llm__rounded_values(const llm__rounded *m, int64_t first, int64_t end, float *w);

/* The tensors of a layout for a matrix of these sizes, up to 4; how many. type: what plain scales are stored as. */
LLM__PRIVATE int llm__code_tensors(llm__code_layout layout, const llm__rounded *m, llm__code_tensor out[4]);

/* Fills tensor k of them, with all threads of a pool. */
LLM__PRIVATE void llm__code_pack(llm__code_layout layout, const llm__rounded *m, int k, llm__pool *pool, uint8_t *to);
