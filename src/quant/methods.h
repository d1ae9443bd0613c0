/* methods: AWQ, GPTQ and SmoothQuant, input by input of a layer.
 *
 * Where a norm stands before matrices, or the rows of another matrix, their columns may be multiplied by s and what comes before divided by
 * s: nothing changes but what rounding loses. AWQ (Lin et al. 2023) chooses s so that what the largest inputs meet is rounded finely, and
 * SmoothQuant (Xiao et al. 2022) so that activations can be rounded to bytes. GPTQ (Frantar et al. 2022) leaves the weights, and rounds
 * column by column.
 *
 *     input           read by                             comes from, for folding
 *     ATTENTION       q, k, v; q_a, kv_a                  the layer's first norm
 *     Q, KV           q_b, kv_b of latent attention       the norms of the latents
 *     O               o                                   the rows of v, where each head has its own
 *     MLP             gate, up; all experts' and the      the second norm; routers and the gate of a shared expert read it too and are
 *                     shared one's                        multiplied as well, though they stay floats
 *     DOWN            down                                the rows of up: act(gate) * up is linear in them (not gpt-oss's)
 *
 * Families differ in where norms stand. Without a norm before a block (OLMo 2) its input is left as it is; where attention and MLP share
 * one norm (Cohere) all that read it count as one input; a norm that is stored less one (Gemma) is folded as what it means. What is
 * folded into must be read by nobody else, so a matrix that reads the input and cannot be multiplied (experts in one tensor) forbids it.
 *
 * AWQ and SmoothQuant change floats, which are rounded to nearest at the end; GPTQ gives codes at once. Either way the layer then gets the
 * values that its codes mean, and the stream goes on through these. */
#pragma once
#include "base/platform.h"
#include "quant/codes.h"
#include "quant/targets.h"
#include "quant/job.h"
#include "quant/gram.h"

/* 1 if it is a norm that gives this input. */
LLM__PRIVATE int llm__reads_norm(llm__reads reads);

/* All matrices of the layer that read an input, as indexes of the plan, from `after` + 1 on; -1: no more. */
LLM__PRIVATE int64_t llm__readers_next(const llm__qjob *j, const llm__gram *m, int64_t after);

/* What the method does to the matrices that read an input: they are changed, or (GPTQ) rounded. */
LLM__PRIVATE void llm__method_input(llm__qjob *j, llm__gram *m, llm__rounded_list *rounded);

/* Rounds what is not, and gives all matrices of the layer the values that their codes mean. */
LLM__PRIVATE void llm__method_round(llm__qjob *j, llm__rounded_list *rounded);

/* Folds s (columns of the input) into the readers of an input, routers too, and 1 / s into what gives it; 0: nothing does that can be
 * folded into. With s NULL: only asks. */
LLM__PRIVATE int llm__fold(llm__qjob *j, const llm__gram *m, const float *s);

/* AWQ's search for s, and for how far the largest values of a group are cut off. */
LLM__PRIVATE void llm__awq_input(llm__qjob *j, llm__gram *m);

/* Rounds one matrix by GPTQ; u: the factors of its inputs' products (llm__gram_factor), in the order of its columns `order`. */
LLM__PRIVATE void llm__gptq_input(llm__qjob *j, llm__gram *m, llm__rounded_list *rounded);
