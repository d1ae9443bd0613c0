/* convert_add: the tensors of a GGUF file to be, one by one, while a folder is gone through. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "model/tensors.h"
#include "model/loader.h"
#include "model/convert.h"

/* What is asked for while tensors are collected. After the first failure all calls do nothing. */
typedef struct llm__converting {
    llm__conversion *c;
    llm__loader L; /* only to find tensors */
    llm_result r;
} llm__converting;

/* Adds a tensor of `shape`; the type is that of the stored matrices, or F32 where it is a vector or is kept so. */
LLM__PRIVATE void llm__convert_add(llm__converting *g, const char *name, int n_dims, const int64_t *shape, int f32,
                                   const llm__convert_row *row);

/* The stored tensor of a slot; NULL: there is none. */
LLM__PRIVATE const llm__tensor *llm__convert_find(const llm__converting *g, int slot, int expert, int bias);

/* What a tensor of the current layer is called, with ".weight" or ".bias" unless the stem has a dot, one at its end is
 * left out. */
LLM__PRIVATE void llm__convert_name(const llm__converting *g, const char *stem, int bias, char out[96]);

/* A list of n tensors that lives as long as the conversion. */
LLM__PRIVATE const llm__tensor *const *llm__convert_list(llm__converting *g, size_t n);

/* How many rows of a head of so many turn. */
LLM__PRIVATE int32_t llm__convert_turned(const llm__converting *g, int32_t head);

/* A matrix or a vector of a slot, and its bias, where the folder has them. head: rows of a head that are put in pairs, or parted;
 * 0: none. */
LLM__PRIVATE void llm__convert_slot(llm__converting *g, int slot, const char *stem, int head, int f32);
