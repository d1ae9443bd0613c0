/* meta: folders as Meta publishes Llama: params.json, consolidated.00.pth and so on, tokenizer.model.
 *
 * params.json becomes what config.json would say. The files are shards of tensor parallelism: each has every matrix, cut along its rows
 * or its columns, which are put together as they are read; norms are whole in all of them. Rotary positions turn neighbours,
 * (2i, 2i + 1), where the Hugging Face version of a model has its rows permuted, so the family is one of its own (llama_meta). Mistral's
 * consolidated.safetensors is the same in one file. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "model/source.h"

/* 1 if a folder, which has no config.json, is one. */
LLM__PRIVATE int llm__meta_is(const llm__source *s, const char *folder);

/* Reads it: tensors (unless `quick`), and a configuration. */
LLM__PRIVATE llm_result llm__meta_open(llm__source *s, const char *folder, int quick);
