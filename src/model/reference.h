/* reference: the forward pass of a model like Llama, written plainly.
 *
 * Read this first: it is all that a language model does, in the order in which it does it, without anything that makes it fast or lets many
 * share it. One sequence, float32, from its first token; no cache, no batch, no ranks, no operations of a backend. >>forward does the same
 * for every family through the table of >>api-backend; tests/unit/model/test_reference.c compares the two.
 *
 * Letters: T tokens, D numbers a token (hidden_size), H heads of d numbers, K heads of keys and values (H / K heads share one), F numbers
 * between an MLP's matrices, V tokens of the vocabulary. A matrix W (out, in) times x (in) gives y (out): y_o = sum over i of W_oi x_i.
 *
 *     x = embedding of each token                                        (T, D)
 *     in every layer:
 *         h = norm(x);  q, k, v = Wq h, Wk h, Wv h                       (T, H d), (T, K d), (T, K d)
 *         q, k = rotated by their positions
 *         x = x + Wo attention(q, k, v)                                  (T, D)
 *         h = norm(x);  x = x + Wdown (silu(Wgate h) * Wup h)            (T, F) inside
 *     logits = Whead norm(x)                                             (T, V): how likely each token is to come next */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "base/platform.h"

/* logits: (n, vocabulary), a row for each of the n tokens. LLM_ERR_UNSUPPORTED: the model has something that is not here (another norm,
 * biases, experts, windows ...). */
LLM__PRIVATE llm_result llm__reference_forward(const llm_model *m, const int32_t *ids, int32_t n, float *logits);
