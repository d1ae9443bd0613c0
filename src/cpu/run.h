/* run: running a list of recorded operations on all threads.
 *
 * The same function runs on all threads, each with its number; who has which share follows from that number, the number of threads
 * and the operation's rows alone, so nothing is handed out but the jobs that are counted in `next`. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/backend.h"
#include "cpu/operations.h"

/* In the order of llm__op_kind. row: is called for each row of a thread's share; share: once by every thread, which finds its part of the
 * work by itself. */
typedef struct llm__op_row {
    void (*row)(const llm__run *r, int row);
    void (*share)(const llm__run *r);
    size_t bytes; /* of the operation */
    int spent;    /* what its time counts as */
} llm__op_row;

/* The row of a kind of operation. */
LLM__PRIVATE const llm__op_row *llm__op_row_of(int kind);

/* Where the caller wants to know what steps spend: `next` (NULL: nothing) begins, so the record before it, which has run on all ranks of a
 * group, is added to its kind with the time that it took. What attention reads: of each sequence all keys and values that it sees. */
LLM__PRIVATE void llm__spent_add(llm_backend_ctx *ctx, const llm__record *next);

/* One thread's part of a pass. */
LLM__PRIVATE void llm__run_pass(void *arg, int pass, int thread, int n_threads);

/* Cuts the lists of a stage at their barriers. EXPERTS has its own behind each pass. */
LLM__PRIVATE void llm__passes_of(llm_backend_ctx *ctx, int first);
