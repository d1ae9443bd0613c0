/* A step under construction, with the arrays that it points to: sequences are added one after the other. */
#ifndef STEP_H
#define STEP_H
#include "test.h"

enum { STEP_ROWS = 520, STEP_SEQS = 40, STEP_OUT = 40, STEP_PAGES = 16 };

typedef struct test_step {
    llm_step s;
    int32_t tokens[STEP_ROWS], positions[3 * STEP_ROWS], seq_of_row[STEP_ROWS], token_from[STEP_ROWS];
    int32_t seq_begin[STEP_SEQS + 1], seq_len[STEP_SEQS], seq_rope[STEP_SEQS], pages[STEP_SEQS * STEP_PAGES];
    int32_t out_rows[STEP_OUT];
    int32_t id[STEP_SEQS]; /* of each sequence, as the test calls it */
    float rope_base[STEP_SEQS];
    llm_draw draws[STEP_OUT];
} test_step;

/* An empty step, of sequences with up to `page_stride` pages. */
static inline void step_begin(test_step *t, int page_stride) {
    memset(t, 0, sizeof *t);
    t->s.tokens = t->tokens;
    t->s.positions = t->positions;
    t->s.n_position_rows = 1;
    t->s.seq_of_row = t->seq_of_row;
    t->s.seq_begin = t->seq_begin;
    t->s.seq_len = t->seq_len;
    t->s.seq_rope = t->seq_rope;
    t->s.seq_rope_base = t->rope_base;
    t->s.pages = t->pages;
    t->s.page_stride = page_stride;
    t->s.out_rows = t->out_rows;
}

/* Adds n rows of sequence `id` from position `at`; returns the first of them. */
static inline int step_add(test_step *t, int id, int at, int n, const int32_t *pages) {
    const int s = t->s.shape.n_seqs++, first = t->s.shape.n_rows;
    t->id[s] = id;
    t->seq_len[s] = at + n;
    t->rope_base[s] = 1;
    memcpy(t->pages + (int64_t)s * t->s.page_stride, pages, (size_t)t->s.page_stride * sizeof *pages);
    for (int i = 0; i < n; i++) {
        t->seq_of_row[first + i] = s;
        t->positions[first + i] = at + i;
    }
    t->s.shape.n_rows += n;
    t->seq_begin[s + 1] = t->s.shape.n_rows;
    return first;
}

#endif
