/* shards: a folder of safetensors files that is written in any order, and gone on with after an interruption.
 *
 * All tensors are told first (llm__out_add), so headers, shards and places are known before there is any data: each tensor is written to
 * its place when it is ready, and memory holds none of the others. One file, model.safetensors, or above 5 GB several with
 * model.safetensors.index.json, as the Hub has them. The files stand in a folder TO.part, which gets its name at the end.
 *
 * Files get their whole length at once, so a limit on the size of files is told in the first second and not in the last hour; so is a disk
 * without room, by what it says is free. A disk that others fill meanwhile fails in the middle: then all that is flushed and in the state
 * counts, and the next run writes the rest over it. That works since sizes depend on shapes alone, not on what is chosen. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/alloc.h"

typedef struct llm__out_tensor {
    const char *name;
    int32_t type, n_dims, shard;
    int64_t shape[4];
    int64_t bytes, offset; /* offset: in its file */
} llm__out_tensor;

typedef struct llm__out_shard {
    FILE *file;
    int64_t bytes; /* of data */
    char name[64];
} llm__out_shard;

typedef struct llm__out {
    const char *part; /* the folder */
    llm__out_tensor *tensor;
    size_t n, cap;
    llm__out_shard *shard;
    int32_t n_shards;
    int64_t bytes; /* of all data */
    llm__arena arena;
    llm_result r; /* the first failure; all calls then do nothing */
} llm__out;

/* Closes the files and frees all; the folder stays. */
LLM__PRIVATE void llm__out_close(llm__out *o);

/* A tensor more: its index. The name is copied. */
LLM__PRIVATE size_t llm__out_add(llm__out *o, const char *stem, const char *end, int32_t type, int32_t n_dims, const int64_t *shape);

/* Makes the files with their headers, or opens those of an earlier run (`again`). most: bytes of data in a file. */
LLM__PRIVATE void llm__out_open(llm__out *o, int64_t most, int again);

/* Bytes [at, at + n) of a tensor's data. */
LLM__PRIVATE void llm__out_put(llm__out *o, size_t i, int64_t at, const void *data, size_t n);

/* What was put is on the disk. */
LLM__PRIVATE void llm__out_sync(llm__out *o);

/* A whole small file of the folder, replaced at once. */
LLM__PRIVATE void llm__out_text(llm__out *o, const char *name, const llm_text *text);

/* The index of several shards. */
LLM__PRIVATE void llm__out_index(llm__out *o);
