/* gram: what is kept of the inputs of a matrix: sums of products of all pairs of columns, and sizes.
 *
 * With H = sum over tokens of x x', what a change D of the matrix does to its outputs is D H D' row by row, whatever the tokens were: all
 * searches ask H and none the tokens.
 *
 * It is what makes them cheap: 65,536 tokens of 1,536 columns are 400 MB, their H is 9, and a trial of the search that would need a product
 * with all tokens needs one with 1,536 rows instead. Sums of |x| and the largest |x| of each column are kept for AWQ's and SmoothQuant's
 * scales. H is symmetric: half of its tiles are computed, the other half is copied.
 *
 * Products here are those of the kernels' table (llm__mac: panels of 16 columns, several rows at a time), so they run with the instructions
 * of this processor and need no code of their own. Columns are filled up to a multiple of 32 with zeros, two panels; a product never meets
 * an edge. Tiles are shared out among threads by their number alone, and each is one chain of additions in the order of the tokens: the
 * sums do not depend on how many threads there are. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "base/threads.h"
#include "cpu/kernels.h"
#include "quant/targets.h"

typedef struct llm__gram {
    int64_t n, wide; /* columns; the same up to a multiple of 32, the further ones are zero */
    llm__reads reads;
    int32_t expert; /* -1: of none */
    double tokens;
    float *h;    /* (wide, wide); NULL: not wanted */
    double *sum; /* (n) of |x| */
    float *top;  /* (n) the largest |x| */
} llm__gram;

/* How the factors of H are found: like Cholesky's, but from the last column to the first, 32 columns at a time:
 *
 *     1. rows of the block less what the columns behind it give: one product of all rows with the block's rows, across and negated
 *     2. the block on the diagonal by itself, in double
 *     3. the rows above it, each by the block alone; rows are shared out among threads
 *
 * A root that is not above 0 says that H, or what rounding has left of it, is not positive definite: the caller adds to the diagonal. */

/* A product of floats: c (n, 32) = a (n, depth) b (depth, 32), or with `add` added to c. Rows of each stand lda, ldb, ldc apart. */
LLM__PRIVATE void llm__gram_tile(const llm__kernels *k, const float *a, int64_t lda, int64_t n, const float *b, int64_t ldb, float *c,
                                 int64_t ldc, int64_t depth, int add);

/* Memory for inputs of n columns. */
LLM__PRIVATE llm_result llm__gram_open(llm__gram *m, int64_t n, int products);
LLM__PRIVATE void llm__gram_close(llm__gram *m);

/* Rows more. */
LLM__PRIVATE llm_result llm__gram_add(llm__gram *m, const llm__kernels *k, llm__pool *pool, const float *x, int64_t stride, int64_t rows);

/* As if the inputs had been divided by s (n). */
LLM__PRIVATE void llm__gram_scale(llm__gram *m, const float *s);

/* Sum over the n rows of d (n, wide) of d H d'. */
LLM__PRIVATE double llm__gram_error(const llm__gram *m, const llm__kernels *k, const float *d, int64_t n);

/* Makes of a symmetric h (wide, wide), of which n columns count, the factors U of h = U D U', U with ones on its diagonal and zeros below,
 * D diagonal. 0: h is not positive definite. */
LLM__PRIVATE int llm__gram_factor(float *h, int64_t n, int64_t wide, const llm__kernels *k, llm__pool *pool);
