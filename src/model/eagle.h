/* eagle: EAGLE heads.
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
 * config as the object "model", and tensors with model. before them, lm_head.weight too. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "base/platform.h"
#include "model/loader.h"

/* Opens a folder as an EAGLE head for `model`. LLM_OK and *out NULL: it is none. */
LLM__PRIVATE llm_result llm__eagle_open(const char *path, const llm_model *model, int lab, llm_model **out);
