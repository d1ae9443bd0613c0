/* targets: which matrices of a folder become smaller, and which input each of them reads.
 *
 * The linear layers of all decoder layers, experts and latent attention's too; not the embedding, the output layer, routers and the gate of
 * a shared expert, nor what packing cannot take (sizes that are no multiples of 32, all experts in one tensor). Matrices that read one
 * input belong together: their input is recorded once, and what is folded into the norm before them is the same for all.
 *
 * Layouts by method, and who reads them:
 *
 *     weight_only_int8    compressed-tensors pack-quantized, W8A16    vLLM, transformers with compressed-tensors, llm.h
 *     smooth_quant        compressed-tensors int-quantized, W8A8      the same
 *     awq                 AutoAWQ gemm                                vLLM, transformers with AutoAWQ or GPTQModel, llm.h
 *     gptq                GPTQ, zero points less one                  vLLM, transformers with GPTQModel, llm.h
 *
 * One group size holds for a folder, for its config has room for one: the largest of 128, 64 and 32 that divides the columns of all
 * matrices, those that tensor parallelism cuts by columns on every rank. SmolLM2-135M, 576 wide, gets 64. What packing refuses is counted
 * and told, never dropped. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "api/quantize.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "model/tensors.h"
#include "model/facts.h"
#include "model/loader.h"
#include "quant/codes.h"

/* What a matrix is multiplied with. */
typedef enum llm__reads {
    LLM__READS_ATTENTION = 0, /* the layer's first norm: q, k, v, or what latent attention makes of it */
    LLM__READS_Q,             /* the latent of queries, normalised */
    LLM__READS_KV,            /* the latent of keys and values, normalised */
    LLM__READS_O,             /* what attention gives */
    LLM__READS_MLP,           /* the second norm: gate and up, shared experts' too */
    LLM__READS_DOWN,          /* act(gate) * up */
    LLM__READS_SHARED_DOWN,
    LLM__READS_EXPERT, /* of an expert: the rows of READS_MLP that chose it */
    LLM__READS_EXPERT_DOWN,
    LLM__READS_COUNT
} llm__reads;

typedef enum llm__method { LLM__WEIGHT_ONLY_INT8 = 0, LLM__SMOOTH_QUANT, LLM__AWQ, LLM__GPTQ } llm__method;

typedef struct llm__qplan_matrix {
    const llm__tensor *t;
    char *stem; /* its name without ".weight" */
    int64_t rows, cols;
    int32_t layer, slot, expert;
    llm__reads reads;
    size_t out; /* the first of the tensors that it becomes */
} llm__qplan_matrix;

typedef struct llm__qplan {
    llm_model *model;
    llm__method method;
    llm__code_layout layout;
    int32_t bits, affine, dtype; /* dtype: llm_type of what stays; -1: as it is */
    int64_t group;               /* columns that share a scale; -1: whole rows */
    llm__qplan_matrix *matrix;   /* (n) layer by layer */
    size_t n, cap;
    size_t first[LLM__MAX_LAYERS + 1]; /* of each layer; [n_layers]: n */
    uint8_t *taken;                    /* (tensors) */
    int32_t *layer_of;                 /* (tensors) -1: of none */
    llm__qplan_matrix *left;           /* (n_left) linear layers of the same kind that cannot be packed */
    size_t n_left, left_cap;
    llm__arena arena;
} llm__qplan;

/* As documents call it. */
LLM__PRIVATE const char *llm__method_name(llm__method m);

/* 1 if it has values of f32, f16 or bf16. */
LLM__PRIVATE int llm__qplan_is_float(const llm__tensor *t);

/* The type that a tensor which stays gets. */
LLM__PRIVATE int32_t llm__qplan_type(const llm__qplan *p, const llm__tensor *t);

/* The shape of the codes of a matrix, without memory for them. */
LLM__PRIVATE llm__rounded llm__qplan_rounded(const llm__qplan *p, const llm__qplan_matrix *m);

/* The name by which the recorder knows the weight of an input in a layer (>>trace): 256 bytes. */
LLM__PRIVATE void llm__qplan_input(const llm_model *model, int layer, llm__reads reads, char name[256]);

/* Goes through the model, whose files are a folder's. On error the plan is to be closed too. */
LLM__PRIVATE llm_result llm__qplan_open(llm__qplan *p, llm_model *model, const llm_quantize_folder_config *cfg);
LLM__PRIVATE void llm__qplan_close(llm__qplan *p);
