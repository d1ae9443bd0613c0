/* modules: what sentence-transformers puts behind a model.
 *
 * modules.json of a folder lists steps, each with a folder of its own, in this order:
 *
 *   Transformer   the model; sentence_bert_config.json says how long a text may be
 *   Pooling       1_Pooling/config.json: the first token's state (cls), the last one's, or the mean of all
 *   Dense         2_Dense/config.json and model.safetensors: act(W x + b), as many as there are
 *   Normalize     x / |x|
 *
 * EmbeddingGemma's, whose folders 3_Dense and 4_Normalize follow in the same way:
 *
 *   [{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
 *    {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
 *    {"idx": 2, "path": "2_Dense", "type": "sentence_transformers.models.Dense"}, ...]
 *   1_Pooling/config.json    {"word_embedding_dimension": 768, "pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false, ...}
 *   2_Dense/config.json      {"in_features": 768, "out_features": 3072, "bias": false, "activation_function": "torch.nn...Identity"}
 *
 * What is here are their settings and tensors; >>pooler computes. All names are checked: the folders are those of the model's own. */
#pragma once
#include "api/config.h"
#include "api/request.h"
#include "base/platform.h"
#include "model/tensors.h"

enum { LLM__MODULES_DENSE = 4 };

/* Activations of dense modules, and of classifiers. */
typedef enum llm__dense_act {
    LLM__DENSE_IDENTITY = 0,
    LLM__DENSE_TANH,
    LLM__DENSE_RELU,
    LLM__DENSE_GELU,
    LLM__DENSE_SIGMOID,
    LLM__DENSE_SILU
} llm__dense_act;

/* The activation that a class of torch names ("torch.nn.modules.activation.Tanh"), or config.json ("gelu"); -1: none of these. */
LLM__PRIVATE int llm__dense_act_of(const char *name);

typedef struct llm__modules {
    int there; /* 1: there is a modules.json */
    llm_pooling pooling;
    int normalize;
    int32_t max_len; /* 0: not said */
    int32_t n_dense;
    struct {
        llm__tensors tensors;
        int act, bias; /* llm__dense_act */
        int32_t in, out;
    } dense[LLM__MODULES_DENSE];
} llm__modules;

struct llm__source;

/* Reads the modules of a folder, without `weights` no tensors. A kind of module, of pooling or of activation that is not known is refused
 * by its name. */
LLM__PRIVATE llm_result llm__modules_read(struct llm__source *s, const char *folder, int weights, llm__modules *out);

LLM__PRIVATE void llm__modules_free(llm__modules *m);
