/* lora: what a fine-tuning has learnt, beside the weights.
 *
 * LoRA (Hu et al. 2021) leaves a matrix W (out, in) as it is and learns two thin ones, so that the layer computes
 *
 *     y = W x + scale * B (A x)        A (r, in), B (out, r), r between 4 and 64;  scale = alpha / r, or alpha / sqrt(r) (rsLoRA)
 *
 * For SmolLM2 and r = 8 that is 2 % of the weights, so a server keeps many adapters beside one model, and a request names the one it
 * wants. W x is computed for all rows of a step together, whatever their adapters; every row gets its own B (A x): nothing is ever
 * merged into W, whose packed bits stay what they are, and rows without an adapter keep their bits too.
 *
 *     layer's op        lora op of the same layer, before it              rows 0-4: adapter 1, row 5: none, rows 6-7: adapter 0
 *     W x + plus   <--  plus rows 0-4 = B1 (A1 x)                         (the scheduler puts rows of one adapter side by side)
 *                       plus row 5 = -0
 *                       plus rows 6-7 = B0 (A0 x)
 *
 * Files. PEFT folders have adapter_config.json (r, lora_alpha, use_rslora, ...) and adapter_model.safetensors with tensors
 * base_model.model.NAME.lora_A.weight and .lora_B.weight, where NAME is that of the layer's matrix in the model's folder; of embeddings
 * they end in .lora_embedding_A and _B. A GGUF adapter (llama.cpp's) is one file with GGUF's names and .lora_a, .lora_b; the key
 * adapter.lora.alpha. Either fits a model of either format. Files are strangers': they are read whole, not mapped, and each tensor must
 * have its place in this model, with the right shape, type and rank, and finite values; else nothing of the adapter is taken.
 *
 * Where B A goes is not decided here: the loader of >>model walks through the net as it does with weights (see "Adapters in the loader").
 * Experts' factors come for each (PEFT), as a stack (GGUF), or as one pair for all, which PEFT makes of a module's parameter: all become a
 * stack of f32. kv_b of latent attention is whole in adapters, also beside a model that has its keys and values apart. Names and slots of
 * what is loaded are kept by >>engine. What cannot be had is refused by name: modules saved whole, DoRA, biases. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/net.h"

/* NULL-safe; an adapter that was never opened is all zero. */
LLM__PRIVATE void llm__adapter_close(llm__adapter *d);

/* Reads an adapter whole; which layers it is for is found out when it is put into the net. The caller closes, also after an error. */
LLM__PRIVATE llm_result llm__adapter_open(const char *path, const llm__arch *a, int32_t max_rank, llm__adapter *d);

/* Puts the adapter into a slot of every site of all ranks, and checks it on the way; one without tensors empties the slot. Steps may run
 * meanwhile, but none with a row of this slot. After an error the slot is to be emptied. */
LLM__PRIVATE llm_result llm__net_adapt(const llm__net *net, int slot, llm__adapter *d);
