/* job: a folder that is being quantised: what all of its parts share.
 *
 * Layer by layer: the matrices of a layer are expanded to f32, changed by the method (AWQ and SmoothQuant fold scales into them and into
 * the norms before them, GPTQ moves what rounding loses to columns that are still to come), rounded and written. So memory holds one layer
 * of f32 beside what is recorded of its inputs, and what is written of earlier layers is needed no more.
 *
 * In bytes, for a dense layer of n weights that reads inputs of d and f columns: 4 n for f32, n for codes, 4 (3 d d + f f) for the products
 * of inputs, and the layer once more, packed, while it runs. Of SmolLM2-135M that is 14 + 4 + 13 + 14 MB, of a model of 8 billion 0.9 +
 * 0.2 + 1 + 0.9 GB. Products of many experts are recorded some at a time, 4 GB at most, with a pass for each such lot. The residual
 * stream of all samples is on the disk.
 *
 * The model of the job is its own, opened by it and closed with it: while a layer runs with what was made of its weights, the table of
 * tensors leads to these (llm__qjob_apply), which nobody else may see. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "api/quantize.h"
#include "base/platform.h"
#include "base/threads.h"
#include "cpu/kernels.h"
#include "model/tensors.h"
#include "quant/shards.h"
#include "quant/targets.h"

/* A tensor of the layer whose values are no longer the file's: a matrix, a norm, a bias. */
typedef struct llm__patch {
    const llm__tensor *t;
    float *value;    /* all of it, in the order of the file */
    llm__tensor was; /* while the table has the values: what stood there */
} llm__patch;

/* Sequences to calibrate with. */
typedef struct llm__samples {
    int32_t *ids;   /* (begin[n]) */
    int64_t *begin; /* (n + 1) */
    int32_t n, longest;
} llm__samples;

typedef struct llm__qjob {
    const llm_quantize_folder_config *cfg;
    const char *to;
    llm_model *model; /* the source, opened for this job alone: patches go into its table of tensors */
    llm__qplan plan;
    llm__out out;
    size_t *copied; /* (tensors) the tensor that one which stays becomes */
    llm__pool *pool;
    const llm__kernels *kernels;
    llm__samples samples;
    FILE *states[2]; /* the residual stream of all tokens before a layer: of even and of odd ones */
    int32_t layer;   /* that is being done */
    llm__patch *patch;
    size_t n_patches, patches_cap;
    double told, all; /* work, in units of weights */
    int32_t resumed;  /* layers that were done before */
    llm_result r;     /* the first failure; all that follows does nothing */
} llm__qjob;

/* The values of a tensor as f32, which may then be changed; NULL after an error. */
LLM__PRIVATE float *llm__qjob_values(llm__qjob *j, const llm__tensor *t);

/* Lets the table of tensors have these values, or what the files have. */
LLM__PRIVATE void llm__qjob_apply(llm__qjob *j, int apply);

/* Frees all values. */
LLM__PRIVATE void llm__qjob_forget(llm__qjob *j);

/* Tells how far it is, `part` (0 to 1) of the layer, and whether it is to end. */
LLM__PRIVATE void llm__qjob_tell(llm__qjob *j, const char *what, double part);
