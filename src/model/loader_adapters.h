/* loader_adapters: adapters on their way through the loader.
 *
 * An adapter (>>lora) goes through the same walk as the weights, so how families fuse, split and share their matrices is
 * written once. Where llm__take takes rows and columns of a stored W (out, in), an adapter has B (out, r) and A (r, in)
 * for W, and the same rows of B and columns of A are taken: B A is cut like W. llm__make then fills a slot of the layer's
 * site. What was taken of one stored matrix after the other (q, k and v of a fused one) is one part, and so are the
 * matrices of all experts. What the adapter has for it is copied, as f32. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "model/loader.h"

/* A layer out of what was taken. An embedding (vocab, hidden) counts as the matrix across. */
LLM__PRIVATE void llm__adapter_layer(llm__loader *L, llm_role role, const llm__net_pair *to);

/* Experts: one part for down, two for gate and up, whose rows `ff` the rank has. What the file has for both in one matrix has them one
 * after the other, or (turns) in turns. */
LLM__PRIVATE void llm__adapter_experts(llm__loader *L, int slot, llm__slice rows, llm__slice cols, int turns, const llm__net_pair *to);
