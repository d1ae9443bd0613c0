/* imatrix: importance matrices: how large the inputs of each column of a matrix are, in llama.cpp's files.
 *
 * A matrix W of a linear layer errs by sum over columns of (W - W')^2 x^2: an error counts as much as the square of what its column is
 * multiplied with. The file has, for each tensor, the mean of these squares over a text, and >>quantise takes them as weights. Of a mixture
 * each expert has its own means, of the tokens that came to it.
 *
 * What it is worth: SmolLM2-135M in Q4_0 says a text of its golden passages with a perplexity of 26.6, weighted with 22.9; in F16 it is
 * 20.7. The fewer the bits, the more it helps; of Q8_0 there is nothing to choose.
 *
 * GGUF, as llama-imatrix writes it since 2025: tensors NAME.in_sum2, (matrices, columns) sums of squares, and NAME.counts, (matrices, 1)
 * rows that were added; keys general.type "imatrix", imatrix.datasets, imatrix.chunk_count, imatrix.chunk_size. Before that (imatrix.dat)
 * numbers of 32 bits: how many entries, of each length and letters of the name, calls n, how many values, values: n times the mean. Both
 * are read, the former is written. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/text.h"
#include "base/map.h"

typedef struct llm__imatrix_entry {
    llm__str name;     /* of the tensor */
    int64_t n;         /* values: (matrices, columns) */
    int32_t n_counts;  /* matrices that were counted apart, or 1 */
    const float *mean; /* (n) finite, at least 0; of what was never met 0 */
} llm__imatrix_entry;

typedef struct llm__imatrix {
    llm__imatrix_entry *entry; /* (n) */
    size_t n, cap;
    int32_t n_chunks, chunk; /* 0: not told */
    llm__str dataset;        /* .p NULL: not told */
    llm__map by_name;
    llm__arena memory;
} llm__imatrix;

/* Reads a file of either form. The caller frees *m, after errors too. */
LLM__PRIVATE llm_result llm__imatrix_read(const char *path, llm__imatrix *m);

LLM__PRIVATE void llm__imatrix_free(llm__imatrix *m);

/* NULL: nothing is known of that tensor. */
LLM__PRIVATE const llm__imatrix_entry *llm__imatrix_find(const llm__imatrix *m, const char *name);

/* Weights of the columns of matrix `which` of n_matrices of a tensor: (cols), positive. What was never met weighs as little as nothing, or
 * where the whole matrix was not, as all others. LLM_ERR_FORMAT: the entry has another number of values than the tensor needs. */
LLM__PRIVATE llm_result llm__imatrix_weights(const char *path, const llm__imatrix_entry *e, int64_t which, int64_t n_matrices, int64_t cols,
                                             float *out);
