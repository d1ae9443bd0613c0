/* calibrate: what the linear layers of a model are fed with while it reads a text.
 *
 * Methods that quantise better than by rounding want to know it: how large each column of a layer's input is (llama.cpp's importance
 * matrix, AWQ, SmoothQuant), or how the columns go together (GPTQ's X^T X). The text goes through the engine's own forward pass, some
 * hundred tokens at a time on all threads, and for each linear layer a function is told the rows that it multiplies: in float32, before
 * anything is rounded. Of a mixture that is expert by expert, the rows that were routed to it. An engine that does not calibrate has
 * nothing of this: it is the table of >>trace with trace_inputs.
 *
 * An input comes with the tensors of the file that multiply it: q, k and v have one input, gate and up another. Where the file has one
 * tensor for all experts it is told for each expert; where each has its own, with that one.
 *
 * GPTQ's Hessian of one layer, from rows of any number of tokens at a time (AWQ asks for the mean of |x| of each column, SmoothQuant for
 * the largest; an importance matrix for the diagonal of this alone):
 *
 *     for r in rows: for i, k in columns: H[i][k] += x[r][i] * x[r][k]
 *
 * fed->parallel spreads such loops over the engine's threads, which wait meanwhile. Who wants the layers one after the other, because a
 * Hessian of all would not fit, looks at fed->layer and reads the text once for each group of layers.
 *
 *     llm__calibration_config c = {.model = m, .ids = ids.data, .n = ids.len, .chunk = 512, .fn = add, .user = &sums};
 *     r = llm__calibrate(&c);      // add(&sums, fed) for every linear layer of every chunk, in the order of the layers */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "base/platform.h"
#include "model/tensors.h"

enum { LLM__FED_MOST = 4 }; /* tensors that one input is for */

/* The input of a linear layer, of some tokens. */
typedef struct llm__fed {
    const llm__tensor *tensor[LLM__FED_MOST]; /* (n_tensors) what multiplies it */
    int32_t n_tensors;
    int32_t expert, n_experts; /* which of the matrices in each of these tensors; one matrix: 0 of 1 */
    int32_t experts_own;       /* 1: the layer is an expert's: not all tokens come to it */
    int32_t layer;             /* -1: the output layer's */
    int32_t rows, cols;
    const float *x; /* row r at x + r * stride; gone afterwards */
    int64_t stride;
    void (*parallel)(void *threads, void (*fn)(void *arg, int i), void *arg, int n); /* fn(arg, i) for i in [0, n), on all threads */
    void *threads;
} llm__fed;

/* What it returns other than LLM_OK ends the work. */
typedef llm_result (*llm__fed_fn)(void *user, const llm__fed *fed);

typedef struct llm__calibration_config {
    const llm_model *model;
    int32_t n_threads; /* 0: all cores */
    const int32_t *ids;
    int64_t n;     /* tokens in all; what is left of the last chunk is not used */
    int32_t chunk; /* tokens that see each other; each chunk begins anew */
    llm__fed_fn fn;
    void *user;
    llm_progress_fn progress;
    void *progress_user;
    const char *doing; /* what progress is told */
} llm__calibration_config;

/* Opens an engine, reads all chunks, closes it. LLM_ERR_UNSUPPORTED: the weights are quantised in a way of folders, so no tensor is what is
 * multiplied. */
LLM__PRIVATE llm_result llm__calibrate(const llm__calibration_config *cfg);

/* Tokens of a text in chunks of *chunk (0: 512), as llama.cpp cuts them: every chunk begins with BOS in the place of its first token, if
 * texts of the model do. At most n_chunks of them (0: all). A text shorter than a chunk is one. *chunk becomes what a chunk has. */
LLM__PRIVATE llm_result llm__calibration_ids(const llm_model *model, const char *text, size_t len, int32_t n_chunks, int32_t *chunk,
                                             llm_tokens *out);
