/* eagle: heads that guess from hidden states: EAGLE's, EAGLE-3's, and layers of the model's own that predict further tokens.
 *
 * EAGLE (Li et al. 2024) guesses with one more layer of the model's kind. What the model has worked out about a text so far is in its last
 * hidden state f, from which it chooses the next token; so the head reads f as well as the token, and what it writes is a guess at the f
 * after it. Embedding and output layer are the model's own (D = hidden size, t a token, i a position):
 *
 *     x[i] = fc (embedding(t[i]), f[i - 1])       fc: (D, 2 D) with or without bias; x[0] = 0, as vLLM has it
 *     f'[i] = layer(x[i])                         attends to x[0 .. i]; no norm before it and none behind it, unless the files have some
 *     t[i + 1] = a choice from the output layer's logits of f'[i]
 *
 * It takes the draft model's place: the same passes, pages and marks. Only f must come from somewhere. The model's steps keep the f of each
 * row in one more layer of the KV pages, where it shares the fate of the keys beside it; the head's passes read it there, one position
 * back, and put their own f' where f is not known yet. So pass k reads the f' of pass k - 1, and the model's next step writes over them:
 *
 *     pass 0   tokens 38 39    f 37 38         -> f'[39], draft[0]      (of 40 ids; it has read the others before)
 *     pass 1   draft[0]        f'[39]          -> f'[40], draft[1]
 *     check    39 draft[0 ..]                  -> f[39], f[40] ...      what was kept of the draft is read again then, with the true f
 *
 * EAGLE-2 checks a tree of guesses; here, as in vLLM, a head of either guesses a chain. Layouts of its folder: SafeAILab's config.json is
 * that of a llama with one layer, tensors are fc.weight, layers.0.*, and perhaps an embedding; vLLM's has model_type "eagle", the layer's
 * config as the object "model", and tensors with model. before them, lm_head.weight too.
 *
 * EAGLE-3 (Li et al. 2025) reads more of the model and knows fewer words. f is made of the residual streams before three of the model's
 * layers, and no longer has to look like the last one, so the head goes on from its own stream as it is (E: its norm of the embedding, S:
 * of the state, O: the last one; qkv: (heads, 2 D)):
 *
 *     f[i] = fc (x_low[i], x_mid[i], x_high[i])        fc: (D, 3 of the model's hidden size), computed in the model's own steps
 *     x = f[i - 1], attention reads (E embedding(t[i]), S x);  x += attention;  x += mlp(norm x)
 *     f'[i] = x,  logits = lm_head (O x)               lm_head: (words, D); row r is the token r + d2t[r]
 *
 * With norm_before_residual x begins as S f. Layouts: SafeAILab's (class LlamaForCausalLMEagle3, tensors midlayer.*) and that of
 * speculators (class Eagle3Speculator, the layer's config as transformer_layer_config, tensors layers.0.*).
 *
 * Multi-token prediction (Gloeckle et al. 2024; the form is DeepSeek-V3's): some models were trained with such a layer and bring it in
 * their own files, behind the last one. It is a layer of the model's kind, norms both that it reads (E, S), and uses the model's embedding
 * and output layer:
 *
 *     x[i] = fc (E embedding(t[i]), S f[i - 1]),  f'[i] = layer(x[i]),  logits = head (O f'[i])
 *
 *     DeepSeek-V3, GLM-4.5   model.layers.N.{enorm, hnorm, eh_proj, shared_head.norm}; GGUF: blk.N.nextn.*    goes on from f'
 *     MiMo                   model.mtp_layers.0.{token_layernorm, hidden_layernorm, input_proj, final_layernorm}: state first; from O f'
 *     Qwen3-Next, Qwen3.5    mtp.{pre_fc_norm_embedding, pre_fc_norm_hidden, fc, layers.0.*, norm}, a layer that attends; from O f'
 *     ERNIE 4.5              model.mtp_{emb_norm, hidden_norm, linear_proj, block}.0, a layer without experts; O is the model's; from O f'
 *
 * Of several such layers the first is used again and again, as in vLLM. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "base/platform.h"
#include "model/source.h"
#include "model/loader.h"

/* Opens a folder as an EAGLE head for `model`. LLM_OK and *out NULL: it is none. */
LLM__PRIVATE llm_result llm__eagle_open(const char *path, const llm_model *model, int lab, llm_model **out);

/* An error if a folder that shall be a model is an EAGLE head. */
LLM__PRIVATE llm_result llm__eagle_alone(const llm__source *s);

/* The tokens that the rows of a head's own output layer stand for, to ids (arch.outputs). */
LLM__PRIVATE llm_result llm__eagle_words(const llm_model *head, int32_t *ids);

/* 1 if a model's files have a next layer that it could draft with. */
LLM__PRIVATE int llm__next_has(const llm_model *m);

/* Opens the next layer of a model: from its own files, or from others at `path` (FastDeploy's folders have it alone). */
LLM__PRIVATE llm_result llm__next_open(const char *path, const llm_model *model, llm_model **out);
