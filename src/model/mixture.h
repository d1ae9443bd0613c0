/* mixture: which tensor of a GGUF file gets which type when a model is quantised.
 *
 * "Q4_K_M" and its like name a mixture: most matrices have the type of its name, those whose errors do most harm have more bits. The rules
 * are llama-quantize's, so that a file made here has the types that people expect of its name:
 *
 *     output layer (where tied the embedding)   Q6_K; Q8_0 where rows are no super-blocks, or the mixture is Q8_0
 *     attn_v, ffn_down                          in Q4_K_M and Q5_K_M Q6_K in half of the layers, the first and last ones among them;
 *                                               in Q4_K_S and Q3_K_* more bits in the first few
 *     attn_output, attn_qkv                     more bits in Q3_K_*, Q2_K and Q4_K_M
 *     rows that are no whole blocks             the next type of blocks of 32, else F16
 *
 * What is no matrix, norms and routers stay as they are. Source: the rules of llama.cpp's llama-quant.cpp, by its tables of tensor types.
 */
#pragma once
#include "base/platform.h"
#include "model/tensors.h"
#include "model/gguf.h"

typedef struct llm__mixture {
    const char *name; /* "Q4_K_M" */
    int32_t number;   /* general.file_type */
    int32_t base;     /* llm_type */
} llm__mixture;

/* By a name, in either case, perhaps with '-' for '_'; NULL: there is none. */
LLM__PRIVATE const llm__mixture *llm__mixture_find(const char *name);

/* All names, with blanks between. */
LLM__PRIVATE const char *llm__mixture_names(void);

/* A model whose tensors are gone through in the order of their layers. */
typedef struct llm__mixing {
    const llm__mixture *mixture;
    int n_layers, n_experts, groups; /* groups: query heads of a key head */
    int has_output, importance;      /* an importance matrix is given */
    int falcon, large;               /* large: Llama 70B */
    int n_v, v, down;                /* matrices attn_v of the model; those seen */
    int pure;                        /* one type for all matrices */
    int32_t output, embedding;       /* types that these get; -1: by the rules */
    int keep_output;
} llm__mixing;

/* Fills in what a model is. */
LLM__PRIVATE void llm__mixing_open(const llm__mixture *mixture, const llm__gguf *keys, const llm__tensors *tensors, llm__mixing *out);

/* The number in "blk.N." of a name; -1: none. */
LLM__PRIVATE int llm__mixing_layer(const char *name);

/* The type that the next tensor gets. */
LLM__PRIVATE int32_t llm__mixing_type(llm__mixing *m, const llm__tensor *t);
