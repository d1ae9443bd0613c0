/* folder_files: what stands in a quantised folder beside its tensors, and what an interrupted one is known by.
 *
 * config.json is the source's, member by member, with quantization_config as the package that owns the format writes it; lists of modules
 * that stay are made of the tensors that did, so they say nothing that the files do not. GPTQ's loaders also look for quantize_config.json.
 * All other files go along, but for weights in any form: tokenizers, templates, licences. */
#pragma once
#include "base/platform.h"
#include "quant/job.h"

/* Perplexity of the samples, of the source and of what was made; n: tokens that were predicted, 0: there were none. */
typedef struct llm__measured {
    int64_t n;
    double before, after;
} llm__measured;

/* The folder TO.part: an earlier run's with the same settings is gone on with (j->resumed), else it is made anew. */
LLM__PRIVATE void llm__folder_begin(llm__qjob *j);

/* What belongs to no layer, and `done` - 1 layers, are on the disk. */
LLM__PRIVATE void llm__folder_state(llm__qjob *j, int32_t done);

/* config.json, the tokenizer's and other files of the source. */
LLM__PRIVATE void llm__folder_finish(llm__qjob *j);

/* Opens what was made, and lets it and the source read the samples. */
LLM__PRIVATE void llm__folder_measure(llm__qjob *j, llm__measured *out);

/* Gives the folder its name. */
LLM__PRIVATE void llm__folder_name(llm__qjob *j);
