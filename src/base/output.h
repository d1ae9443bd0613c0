/* output: files that are there whole or not at all.
 *
 * A file is written as NAME.part and gets its name when all of it is on the disk; until then, and after errors, what stood under the name
 * stays. The first failure is kept, later calls do nothing.
 *
 * Renaming is one step for all who look: a program that opens the file meanwhile finds the old one or the new one, and who has the old one
 * mapped keeps it. What was written is on the disk before it gets its name (fsync), so a machine that loses its power has the old one or
 * the new one too.
 *
 *     LLM__SCOPED(llm__output_close) llm__output o = LLM__ZERO;
 *     r = llm__output_open(&o, path);
 *     llm__output_put(&o, data, n);
 *     if (!r) r = llm__output_done(&o);        // without it nothing is left */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"

typedef struct llm__output {
    const char *path;
    llm_text part; /* its first name */
    FILE *file;
    llm_result r;
} llm__output;

/* path must outlive it. */
LLM__PRIVATE llm_result llm__output_open(llm__output *o, const char *path);

LLM__PRIVATE void llm__output_put(llm__output *o, const void *data, size_t n);

/* All of it is on the disk, still under the first name. */
LLM__PRIVATE llm_result llm__output_flush(llm__output *o);

/* Gives it its name. */
LLM__PRIVATE llm_result llm__output_done(llm__output *o);

/* Removes what was not done. */
LLM__PRIVATE void llm__output_close(llm__output *o);
