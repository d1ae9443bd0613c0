/* tensors: the tensors of a model's files.
 *
 * A model is a GGUF file (or its parts) or a Hugging Face folder. Both end as one llm__source: a table of tensors that point into the
 * mapped files, the settings (GGUF keys, or config.json), the tokenizer, the chat template, and the ids that end an answer.
 *
 * Files are hostile until checked. A reader walks the bytes with a cursor that cannot pass the end, and everything is checked before anyone
 * sees it: counts against the bytes that are left, sizes by checked arithmetic, every tensor's range against the file and against its
 * neighbours. Tables grow with what was really read, never by what a header claims, so a lie of 100 GiB costs nothing. Where a reader could
 * take the first or the last of two (keys, tensors), the file is refused: two programs must not see two models in one file. Big arrays (a
 * vocabulary has 262,144 strings) are not copied: a key says type, count and place.
 *
 * In memory a tensor is row-major whatever the file: shape[0] is the outermost dimension. GGUF stores dimensions the other way round,
 * innermost first; the bytes are the same. Data of a safetensors file need not be aligned to its elements: load it with memcpy or unaligned
 * loads.
 *
 * Nothing of a model folder is executed, and only files named here, or by a plain name in the index, are opened. Links are followed (the
 * Hugging Face cache is made of them), but what they lead to must be a regular file. Of pickles only what tensors need is understood
 * (>>pickle).
 * References: ggml/docs/gguf.md; huggingface/safetensors README ("Format"). */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/text.h"
#include "base/map.h"

/* A matrix that was cut into n equal parts, along its rows or its columns. */
typedef struct llm__tensor_parts {
    const uint8_t **data; /* (n) */
    int64_t rows, cols;   /* of the whole */
    int32_t n, type, by_cols;
} llm__tensor_parts;

typedef struct llm__tensor {
    llm__str name;       /* NUL-terminated */
    int32_t type;        /* llm_type, or a GGUF number that llm__type_info may not know: then bytes is 0 */
    int32_t n_dims;      /* 0 to 4; more (never of a language model) are folded into the first */
    int64_t shape[4];    /* row-major: outermost first; 1 beyond n_dims */
    const uint8_t *data; /* in the mapped file; NULL: it is in parts */
    int64_t bytes;
    uint64_t offset;                /* of its file's data part */
    const llm__tensor_parts *parts; /* mostly NULL */
} llm__tensor;

typedef struct llm__tensors {
    llm__tensor *item; /* (n) in the order of the files */
    size_t n, cap;
    llm__map by_name;
    llm__arena names;
} llm__tensors;

/* Frees the table; the files that the tensors lie in belong to others. An empty table is fine. */
LLM__PRIVATE void llm__tensors_free(llm__tensors *t);

/* NULL if absent. */
LLM__PRIVATE const llm__tensor *llm__tensors_find(const llm__tensors *t, const char *name);

/* LLM_ERR_FORMAT with "path: what name: " before the sentence. */
LLM__PRIVATE LLM__PRINTF(4, 5) llm_result llm__bad(const char *path, const char *what, llm__str name, const char *format, ...);

/* A NUL-terminated copy in an arena; NULL: no memory. */
LLM__PRIVATE char *llm__arena_str(llm__arena *a, llm__str s);

/* Text from a file that may stand in messages and listings: UTF-8 without control characters, 1 to `most` bytes. */
LLM__PRIVATE int llm__plain_text(llm__str s, size_t most);

/* Checks and adds one tensor, whose data is not placed yet: type, n_dims, shape and offset are given; its bytes are worked out. All factors
 * go through checked products, and the block size divides the innermost dimension alone: a count that fits only in all must not pass. */
LLM__PRIVATE llm_result llm__tensors_add(llm__tensors *t, const char *path, llm__str name, llm__tensor *x);

/* Gives the tensors from `first` on their data: `size` bytes at data, which is at byte data_at of the file. Checks all of them first: no
 * overlap, nothing behind the end; `covering`: no hole between them and nothing after them either. */
LLM__PRIVATE llm_result llm__tensors_place(llm__tensors *t, size_t first, const char *path, const uint8_t *data, size_t data_at,
                                           size_t size, int covering);

/* n rows (row, row + step, ...), columns [col, col + n_cols), of a matrix in parts (llm__tensor_parts), as they are stored. */
LLM__PRIVATE void llm__parts_read(const void *parts, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, void *to);

/* Elements [from, from + n) of a stored row of `cols` elements of a tensor, as f32. */
LLM__PRIVATE void llm__tensor_values(const llm__tensor *t, int64_t row, int64_t cols, int64_t from, int64_t n, float *out);
