/* convert_gemma3n: tensors of Gemma 3n, in the form that llama.cpp has for them.
 *
 *     altup_projections.i, altup_unembed_projections.i     altup_proj, altup_unembd_proj, (n - 1, D, D)
 *     altup.*, laurel.*                                    altup_router, altup_predict_coef, laurel_l, ...
 *     altup.correct_output_scale                           altup_correct_scale, ones where altup_correct_scale is false
 *     embed_tokens_per_layer                               per_layer_token_embd with a row for each token, beyond its own row 0
 *     keys and values                                      written again for layers that read others': llama.cpp asks for them */
#pragma once
#include "base/platform.h"
#include "model/convert_add.h"

/* What the layers have of their own for a token, with a row for each token. */
LLM__PRIVATE void llm__convert_own_values(llm__converting *g);

/* What leads to the other streams, and back from them. */
LLM__PRIVATE void llm__convert_streams(llm__converting *g);

/* What only layers of Gemma 3n have. */
LLM__PRIVATE void llm__convert_gemma3n(llm__converting *g);
