/* pooler: from hidden states to an embedding, or to a score.
 *
 * The last hidden states of a text (n, D) become one vector: the first row, the last one, or the mean of all. Then come dense layers,
 * act(W x + b), as modules.json lists them (>>modules), or those of a classifier, whose last one has as many rows as there are labels:
 *
 *   BERT          classifier(tanh(pooler(x))),  x the first row       RoBERTa the same under other names
 *   ModernBERT    classifier(norm(gelu(dense(x)))),  x the first row or the mean (classifier_pooling)
 *
 * Widths, of EmbeddingGemma and of a reranker of BERT's kind, for a text of n tokens:
 *
 *   (n, 768) -> mean -> 768 -> dense -> 3072 -> dense -> 768, an embedding
 *   (n, 768) -> first -> 768 -> dense, tanh -> 768 -> classifier -> 1, a score
 *
 * A reranker has one label: how well a document answers a query that stand in one text, as a number, or its sigmoid. All this is some
 * millions of products a text beside those of the model for each token, so the host computes it (>>pooling), in f32, the same on every
 * device. The weights are kept as f32 in memory of the model. What tokens are given for their kind (BERT's token types) is
 * kept here too. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "api/request.h"
#include "base/platform.h"
#include "base/text.h"
#include "model/modules.h"

enum { LLM__POOLER_DENSE = LLM__MODULES_DENSE + 1 };

/* y = norm(act(w x + b)). */
typedef struct llm__dense {
    const float *w, *b, *norm, *norm_b; /* (out, in), (out); norm: LayerNorm; b, norm and norm_b may be NULL */
    int32_t in, out;
    llm__dense_act act;
    float eps;
} llm__dense;

typedef struct llm__pooler {
    llm_pooling kind, class_kind; /* how an embedding is made, and what a classifier reads */
    int32_t normalize;            /* 1: embeddings are to have length 1 */
    int32_t n_dense, n_class;     /* of dense and of classes */
    llm__dense dense[LLM__POOLER_DENSE], classes[2];
    int32_t size, n_labels; /* of an embedding; of a classifier, 0: there is none */
    int32_t sigmoid;        /* 1: a score is the sigmoid of the label's value; of several labels: they are made probabilities */
    int32_t several;        /* 1: labels do not exclude each other (multi_label_classification) */
    int32_t wide;           /* the widest vector in between */
    const float *types;     /* (n_types, D) or NULL */
} llm__pooler;

/* The name of a label: as id2label of config.json, or a GGUF file, has it; else LABEL_3, written into `made`. */
LLM__PRIVATE llm__str llm__pooler_label(const llm_model *m, int32_t label, char made[24]);

/* Reads it of the files of a model, whose architecture is known. */
LLM__PRIVATE llm_result llm__pooler_open(llm_model *m);
