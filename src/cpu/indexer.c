#include "cpu/indexer.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/kernels.h"
#include "cpu/products.h"
#include "cpu/kv_cache.h"
#include "cpu/attention.h"
#include "cpu/operations.h"

/* Positions that a thread scores at a time, where threads share a row. */
enum { LLM__STRETCH = 16 * LLM__BLOCK };

/* Integers in the order of scores. */
static uint32_t llm__score_order(float score) {
    uint32_t bits;
    const float x = score + 0.0f;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return 0;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

LLM__PRIVATE void llm__best_positions(const float *score, int32_t n, int32_t k, int32_t *chosen) {
    static const int shift[3] = {21, 10, 0}, width[3] = {11, 11, 10};
    uint32_t least = 0, known = 0; /* the bits of the k-th best score, and which of them are known */
    int32_t equal = k;             /* so many are taken of those whose known bits are the same */
    for (int pass = 0; pass < 3; pass++) {
        int32_t count[1 << 11] = {0};
        const uint32_t mask = (1u << width[pass]) - 1;
        uint32_t digit = mask;
        for (int32_t i = 0; i < n; i++) {
            const uint32_t x = llm__score_order(score[i]);
            if ((x & known) == least) count[x >> shift[pass] & mask]++;
        }
        while (count[digit] < equal) equal -= count[digit--];
        least |= digit << shift[pass];
        known |= mask << shift[pass];
    }
    for (int32_t i = 0; i < n; i++) {
        const uint32_t x = llm__score_order(score[i]);
        if (x > least || (x == least && equal-- > 0)) *chosen++ = i;
    }
}

LLM__PRIVATE int llm__index_rows(const llm_step *s, int32_t topk) {
    int n = 0;
    for (int row = 0; row < s->shape.n_rows; row++) n += llm__row_position(s, row) >= topk;
    return n;
}

/* The i-th of these rows. */
static int llm__index_row(const llm_step *s, int32_t topk, int i) {
    int row = 0;
    while (llm__row_position(s, row) < topk || i-- > 0) row++;
    return row;
}

/* Where the scores of a row stand: a thread's own, or by the row's number. */
static float *llm__index_scores(const llm__run *r, int slot) {
    return r->ctx->scores + ((int64_t)r->rank * r->e->n_threads + slot) * r->ctx->scores_stride;
}

LLM__PRIVATE void llm__run_index_write(const llm__run *r, int row) {
    const llm_index_op *op = &r->rec->op.index;
    const llm__kernels *k = r->ctx->kernels;
    const int position = llm__row_position(&r->ctx->step, row), size = llm__kv_turn_size(op->head_dim);
    const float *rope = llm__row(op->rope, row);
    const llm__kv_view view = llm__view(r, op->layer, r->ctx->step.seq_of_row[row], 0);
    float *key = llm__row(op->k, row), *q = llm__row(op->q, row);
    llm__norm_row(k, LLM_NORM_LAYER, key, key, op->head_dim, llm__vector(op->k_norm), llm__vector(op->k_bias), op->eps);
    k->rotate(key, rope, op->rope_dim / 2, op->rope_interleaved);
    if (view.kv->scaled) llm__kv_turn(key, op->head_dim, size);
    llm__kv_write_key(k, &view, position, key, (uint8_t *)r->e->scratch);
    for (int h = 0; h < op->n_heads && position >= op->topk; h++, q += op->head_dim) {
        k->rotate(q, rope, op->rope_dim / 2, op->rope_interleaved);
        if (view.kv->scaled) llm__kv_turn(q, op->head_dim, size);
    }
}

/* score[t] for the positions [from, to) of a row, from on a border of blocks; what follows in the last block is undefined. */
static void llm__index_score(const llm__run *r, int row, int from, int to, float *score) {
    const llm_index_op *op = &r->rec->op.index;
    const llm__kernels *k = r->ctx->kernels;
    const llm__kv_view view = llm__view(r, op->layer, r->ctx->step.seq_of_row[row], 0);
    const float *weight = llm__row(op->k, row) + op->head_dim;
    llm__attend t;
    llm__attend_place(&t, (float *)r->e->scratch, op->head_dim, LLM__GROUP);
    memset(score + from, 0, (size_t)((to - from + LLM__BLOCK - 1) / LLM__BLOCK * LLM__BLOCK) * sizeof *score);
    for (int head = 0; head < op->n_heads; head += t.n) {
        t.n = LLM__MIN(op->n_heads - head, (int)LLM__QUERIES);
        memcpy(t.q, llm__row(op->q, row) + head * op->head_dim, (size_t)(t.n * op->head_dim) * sizeof *t.q);
        t.tiles = 0;
        llm__attend_begin(k, &t, &view, to);
        for (int block = from; block < to; block += LLM__BLOCK) {
            llm__attend_scores(k, &t, &view, block, 0, LLM__MIN(to - block, (int)LLM__BLOCK));
            for (int h = 0; h < t.n; h++) {
                float *p = t.scores + h * LLM__BLOCK;
                for (int i = 0; i < LLM__BLOCK; i++) p[i] = p[i] > 0 ? p[i] : 0;
                k->add(score + block, p, weight[head + h], LLM__BLOCK);
            }
        }
        if (k->rest) k->rest(&t.tiles);
    }
}

/* Chooses for a row whose scores are there. */
static void llm__index_choose(const llm__run *r, int row, const float *score) {
    const llm_index_op *op = &r->rec->op.index;
    llm__best_positions(score, llm__row_position(&r->ctx->step, row) + 1, op->topk, (int32_t *)(void *)llm__row(op->dst, row));
}

/* Which row a stretch is of: the slot-th of the long ones. *job becomes the stretch's number among those of the row. */
static int llm__index_row_of(const llm_step *s, int32_t topk, int *job, int *slot) {
    for (*slot = 0;; ++*slot) {
        const int row = llm__index_row(s, topk, *slot), each = llm__row_position(s, row) / LLM__STRETCH + 1;
        if (*job < each) return row;
        *job -= each;
    }
}

LLM__PRIVATE void llm__run_index(const llm__run *r) {
    const llm_index_op *op = &r->rec->op.index;
    const llm_step *s = &r->ctx->step;
    const int n = llm__index_rows(s, op->topk), by_rows = n > r->e->n_threads;
    int jobs = n, slot = r->e->thread;
    for (int i = 0; i < n && !by_rows; i++) jobs += llm__row_position(s, llm__index_row(s, op->topk, i)) / LLM__STRETCH;
    for (int job; (job = jobs - 1 - __atomic_fetch_add(&r->rec->next, 1, __ATOMIC_RELAXED)) >= 0;) { /* the longest contexts first */
        const int row = by_rows ? llm__index_row(s, op->topk, job) : llm__index_row_of(s, op->topk, &job, &slot);
        const int end = llm__row_position(s, row) + 1, from = by_rows ? 0 : job * LLM__STRETCH;
        float *score = llm__index_scores(r, slot);
        llm__index_score(r, row, from, by_rows ? end : LLM__MIN(end, from + (int)LLM__STRETCH), score);
        if (by_rows) llm__index_choose(r, row, score);
    }
}

LLM__PRIVATE void llm__run_choose(const llm__run *r) {
    const int topk = r->rec->op.index.topk, n = llm__index_rows(&r->ctx->step, topk);
    for (int i = r->e->thread; i < n; i += r->e->n_threads)
        llm__index_choose(r, llm__index_row(&r->ctx->step, topk, i), llm__index_scores(r, i));
}
