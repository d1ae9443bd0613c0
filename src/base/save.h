/* save: files that are there whole or not at all.
 *
 * A file is written as NAME.part and gets its name when all of it is on the disk; until then, and after errors, what stood under the name
 * stays. The first failure is kept, later calls do nothing.
 *
 * Renaming is one step for all who look: a program that opens the file meanwhile finds the old one or the new one, and who has the old one
 * mapped keeps it. What was written is on the disk before it gets its name (fsync), so a machine that loses its power has the old one or
 * the new one too.
 *
 *     LLM__SCOPED(llm__save_close) llm__save o = LLM__ZERO;
 *     r = llm__save_open(&o, path);
 *     llm__save_put(&o, data, n);
 *     if (!r) r = llm__save_done(&o);        // without it nothing is left */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"

typedef struct llm__save {
    const char *path;
    llm_text part; /* its first name */
    FILE *file;
    llm_result r;
} llm__save;

/* path must outlive it. */
LLM__PRIVATE llm_result llm__save_open(llm__save *o, const char *path);

LLM__PRIVATE void llm__save_put(llm__save *o, const void *data, size_t n);

/* All of it is on the disk, still under the first name. */
LLM__PRIVATE llm_result llm__save_flush(llm__save *o);

/* Gives it its name. */
LLM__PRIVATE llm_result llm__save_done(llm__save *o);

/* Removes what was not done. */
LLM__PRIVATE void llm__save_close(llm__save *o);
