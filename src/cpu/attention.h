/* attention: attention over pages. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"
#include "cpu/kv_cache.h"

/* Attention of a tile; leaves the result in out. The caller has laid out its arrays (llm__attend_place) and set n, softcap, alibi and, of
 * each query: q, times the scale of scores and, without a softcap, log2 e (what follows works with powers of two); at, from and to; slope,
 * 0 without ALiBi; running_max -1e30 and running_sum 0, or with a sink that sink times log2 e, and 1. next may be NULL. */
LLM__PRIVATE void llm__attend_run(const llm__kernels *k, llm__attend *t, const llm__kv_view *view);

/* The part of it that does not depend on what the queries see, which ends at position `last`. */
LLM__PRIVATE void llm__attend_begin(const llm__kernels *k, llm__attend *t, const llm__kv_view *view, int last);

/* Scores of the block, of all groups of 16 keys that [from, to) touches, behind llm__attend_begin. Not where keys stand as rows. */
LLM__PRIVATE void llm__attend_scores(const llm__kernels *k, llm__attend *t, const llm__kv_view *view, int block, int from, int to);

/* How many floats of scratch a tile needs. */
LLM__PRIVATE size_t llm__attend_floats(int head_dim, int v_dim);

/* Makes the tile zero, and lays out its arrays in so much scratch, which is aligned to 64. */
LLM__PRIVATE void llm__attend_place(llm__attend *t, float *scratch, int head_dim, int v_dim);

/* Where keys stand as rows: heads of a tile that fill the vectors of a product, and queries of all tiles of a job. */
enum { LLM__ROW_HEADS = 32, LLM__ROW_QUERIES = 128 };

/* The same for tiles whose keys stand as rows, and what is to be laid out for them besides: q and out hold those of a job. */
LLM__PRIVATE size_t llm__attend_row_floats(int head_dim, int v_dim);

LLM__PRIVATE void llm__attend_place_rows(llm__attend *t);

/* How the queries of a step are cut into jobs: by sequence, tile of rows, KV head and some of the head's query heads. */
typedef struct llm__attend_jobs {
    const llm_step *step;
    int rows, heads, head_tiles, n_kv, group; /* of a tile; tiles of a group's heads; KV heads; query heads of each */
    int n;                                    /* jobs in all */
    int fixed;                                /* the thread has [begin, end); else threads take what is left, one by one */
    int64_t begin, end;
} llm__attend_jobs;

typedef struct llm__attend_job {
    int seq, row, n_rows, kv_head, head, n_heads; /* rows of the step; head: first query head */
} llm__attend_job;

/* Cuts so that every thread has work. Heads of a group stay together (three read a block in the time of one) unless that leaves a thread
 * without any. */
LLM__PRIVATE void llm__jobs_cut(llm__attend_jobs *j, const llm_step *step, int n_kv, int group, int n_threads);

/* Where every sequence of the step has one row, a thread has KV heads of its own, [*begin, *end) counted through all rows, n_kv each: about
 * the same number of positions each thread, and of what a head takes besides. Nobody else writes or reads what it does for them, and it
 * knows what it will read next. */
LLM__PRIVATE void llm__share_heads(const llm__exec *e, int n_kv, int64_t *begin, int64_t *end);

/* The thread's next job, or the next that no thread has taken: `next` counts those of all threads. Counted from the last tile (the longest
 * context) down. 0: there is none. */
LLM__PRIVATE int llm__jobs_next(llm__attend_jobs *j, int *next, llm__attend_job *job);

/* The first position that a query at position `at` sees. With windows of 4:
 *
 *     they slide       position 5 sees 2 3 4 5     6 sees 3 4 5 6     8 sees 5 6 7 8
 *     side by side     position 5 sees 4 5         6 sees 4 5 6       8 sees 8
 */
LLM__INLINE int llm__window_from(const llm_attention_op *op, int at) {
    if (!op->window) return 0;
    return op->chunked ? at / op->window * op->window : LLM__MAX(0, at + 1 - op->window);
}

/* Position in the cache of a row of the step. */
LLM__INLINE int llm__row_position(const llm_step *s, int row) {
    int seq = s->seq_of_row[row];
    return s->seq_len[seq] - (s->seq_begin[seq + 1] - row);
}
