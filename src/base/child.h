/* child: another program is run, its output read.
 *
 * No shell reads anything. What is secret goes to the program's standard input, for everybody may read a command line; so does what is
 * long. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/text.h"

typedef struct llm__child {
    const char *const *argv; /* ends with NULL; the first is looked for in PATH */
    const char *const *env;  /* all that it has of an environment, "NAME=VALUE", ends with NULL */
    llm__str in;             /* its standard input, at most 16 KiB; in_fd above 0: that file instead, from its beginning */
    int in_fd, held_fd;      /* held_fd above 0: a file that it has open too, so that a lock lasts as long as it does */
    size_t limit;            /* most bytes of output */
    int (*tick)(void *user); /* five times a second; non-zero: the program is ended; may be NULL */
    void *user;
    int64_t
        memory; /* above 0: from its beginning it gets so many bytes at most and writes nothing into files; what it starts ends with it */
} llm__child;

/* Bytes as a file in memory, without a name, for in_fd; to be closed. -1: there is no memory for it. */
LLM__PRIVATE int llm__child_file(llm__str data);

/* Runs it to its end. Its standard output is appended, its standard error goes nowhere. *code: its exit status, -1 where a signal ended it.
 * LLM_ERR_IO: there is no such program; LLM_ERR_LIMIT: it wrote more; LLM_ERR_CANCELLED: `tick` said so. */
LLM__PRIVATE llm_result llm__child_run(const llm__child *c, llm_text *out, int *code);
