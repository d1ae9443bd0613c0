/* load_altup: weights of Gemma 3n's streams, detours and sparse MLPs, whole on every rank but for the MLP's up and down.
 *
 * They are small, or, as the gates, wanted whole: see >>forward_altup. */
#pragma once
#include "base/platform.h"
#include "model/loader.h"
#include "model/net.h"

/* What leads from the embedding to the other streams (first stage), and back from them (last stage). */
LLM__PRIVATE void llm__load_streams(llm__loader *L, llm__net_rank *rank);

/* What predicts and corrects streams in the current layer, and the detour around its attention. */
LLM__PRIVATE void llm__load_altup(llm__loader *L, llm__net_layer *layer);

/* A sparse MLP: gates by themselves, for their mean and deviation are wanted. */
LLM__PRIVATE void llm__load_sparse(llm__loader *L, llm__net_layer *layer);
