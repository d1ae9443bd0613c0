/* cpu_step: a step from begin to end, and the table itself. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/threads.h"
#include "cpu/packed.h"
#include "cpu/backend.h"
#include "cpu/operations.h"
#include "cpu/record.h"
#include "cpu/cpu_open.h"

/* Refuses a step whose numbers would lead outside of the buffers or the cache: rows that do not belong to their sequences in order, a
 * sequence longer than its pages, pages that the cache does not have, out rows that are no rows. An id outside of the embeddings reads as
 * zeros. Pages may be -1 where the sequence no longer looks. */
static llm_result llm__step_check(const llm_backend_ctx *ctx, const llm_step *s) {
    const llm_shape *n = &s->shape;
    if (n->n_rows < 0 || n->n_rows > ctx->cfg.max_rows || n->n_seqs < 0 || n->n_seqs > ctx->cfg.max_seqs || n->n_out < 0 ||
        n->n_out > ctx->cfg.max_out)
        return llm__error(LLM_ERR_ARG, "step: %d rows, %d sequences, %d out rows: expected at most %d, %d, %d", n->n_rows, n->n_seqs,
                          n->n_out, ctx->cfg.max_rows, ctx->cfg.max_seqs, ctx->cfg.max_out);
    if (s->seq_begin[0] != 0 || s->seq_begin[n->n_seqs] != n->n_rows)
        return llm__error(LLM_ERR_ARG, "step: seq_begin does not cover the rows");
    for (int q = 0; q < n->n_seqs; q++) {
        int begin = s->seq_begin[q], end = s->seq_begin[q + 1], pages = 0;
        if (ctx->kv.n_layers) pages = (s->seq_len[q] + ctx->kv.page_tokens - 1) / ctx->kv.page_tokens;
        if (end < begin || s->seq_len[q] < end - begin || pages > ctx->cfg.max_pages_per_seq ||
            (ctx->kv.n_layers && pages > s->page_stride))
            return llm__error(LLM_ERR_ARG, "step: sequence %d has rows %d to %d, length %d, %d pages of at most %d", q, begin, end,
                              s->seq_len[q], pages, LLM__MIN(ctx->cfg.max_pages_per_seq, s->page_stride));
        if (s->seq_keep && (s->seq_keep[q] < 0 || s->seq_keep[q] > end - begin))
            return llm__error(LLM_ERR_ARG, "step: sequence %d keeps %d of %d rows", q, s->seq_keep[q], end - begin);
        for (int row = begin; row < end; row++)
            if (s->seq_of_row[row] != q)
                return llm__error(LLM_ERR_ARG, "step: row %d is of sequence %d, expected %d", row, s->seq_of_row[row], q);
        for (int p = 0; p < pages; p++) {
            int32_t page = s->pages[(size_t)q * (size_t)s->page_stride + (size_t)p];
            int written = (p + 1) * ctx->kv.page_tokens > s->seq_len[q] - (end - begin);
            if (page >= ctx->kv.n_pages || (page < 0 && (written || page != -1)))
                return llm__error(LLM_ERR_ARG, "step: page %d of sequence %d is %d, expected less than %lld", p, q, page,
                                  (long long)ctx->kv.n_pages);
        }
    }
    for (int i = 0; i < n->n_rows && s->spans; i++)
        if (s->spans[i] < 0 || s->spans[i] >= s->spans[n->n_rows + i] || s->spans[n->n_rows + i] > s->seq_len[s->seq_of_row[i]])
            return llm__error(LLM_ERR_ARG, "step: row %d sees positions %d to %d of %d", i, s->spans[i], s->spans[n->n_rows + i],
                              s->seq_len[s->seq_of_row[i]]);
    for (int i = 0; i < n->n_out; i++)
        if (s->out_rows[i] < 0 || s->out_rows[i] >= n->n_rows)
            return llm__error(LLM_ERR_ARG, "step: out row %d of %d rows", s->out_rows[i], n->n_rows);
    return LLM_OK;
}

/* Page tables, each sequence's part that is in use. A page given back (-1) reads as page 0; nothing of it counts. */
static void llm__step_copy_pages(llm_backend_ctx *ctx, const llm_step *from) {
    int32_t *to = ctx->arrays[6];
    for (int s = 0; s < from->shape.n_seqs && ctx->kv.n_layers; s++) {
        int n = (from->seq_len[s] + ctx->kv.page_tokens - 1) / ctx->kv.page_tokens;
        for (int i = 0; i < n; i++)
            to[(size_t)s * (size_t)ctx->cfg.max_pages_per_seq + (size_t)i] =
                LLM__MAX(0, from->pages[(size_t)s * (size_t)from->page_stride + (size_t)i]);
    }
    ctx->step.pages = to;
    ctx->step.page_stride = ctx->cfg.max_pages_per_seq;
}

/* n numbers; absent ones are zeros. */
static const int32_t *llm__step_copy(int32_t *to, const int32_t *from, int n) {
    if (from) memcpy(to, from, (size_t)n * sizeof *to);
    else memset(to, 0, (size_t)n * sizeof *to);
    return to;
}

/* Copies the step and forgets what was recorded, and with it which rounded copies are current. The caller's arrays are its own again when
 * this returns. A step that is refused is remembered as a mistake, so operations called all the same record nothing. */
static llm_result llm__cpu_begin_step(llm_backend_ctx *ctx, const llm_step *s) {
    int rows = s->shape.n_rows, seqs = s->shape.n_seqs, position_rows = s->n_position_rows == 3 ? 3 : 1;
    llm_result r = llm__step_check(ctx, s);
    ctx->failed = r;
    if (r) {
        snprintf(ctx->why, sizeof ctx->why, "%.255s", llm_last_error());
        return r;
    }
    ctx->step.shape = s->shape;
    ctx->step.n_position_rows = position_rows;
    ctx->step.tokens = llm__step_copy(ctx->arrays[0], s->tokens, rows);
    ctx->step.positions = llm__step_copy(ctx->arrays[1], s->positions, rows * position_rows);
    ctx->step.seq_of_row = llm__step_copy(ctx->arrays[2], s->seq_of_row, rows);
    ctx->step.seq_begin = llm__step_copy(ctx->arrays[3], s->seq_begin, seqs + 1);
    ctx->step.seq_len = llm__step_copy(ctx->arrays[4], s->seq_len, seqs);
    ctx->step.seq_rope = llm__step_copy(ctx->arrays[5], s->seq_rope, seqs);
    ctx->step.out_rows = llm__step_copy(ctx->arrays[7], s->out_rows, s->shape.n_out);
    for (int i = 0; i < seqs; i++) {
        ctx->rope_base[i] = s->seq_rope_base ? s->seq_rope_base[i] : 1;
        ctx->arrays[8][i] = s->seq_lora ? s->seq_lora[i] : -1;
    }
    ctx->step.seq_lora = ctx->arrays[8];
    ctx->step.spans = s->spans ? llm__step_copy(ctx->arrays[9], s->spans, 2 * rows) : NULL;
    ctx->step.row_set = llm__step_copy(ctx->arrays[10], s->row_set, rows);
    ctx->step.seq_keep = s->seq_keep ? llm__step_copy(ctx->arrays[11], s->seq_keep, seqs) : NULL;
    ctx->step.given = s->given && ctx->given ? ctx->given : NULL;
    if (ctx->step.given) memcpy((void *)ctx->given, (const void *)s->given, (size_t)rows * sizeof *ctx->given);
    ctx->step.seq_rope_base = ctx->rope_base;
    llm__step_copy_pages(ctx, s);
    for (size_t i = 0; i < ctx->n_buffers; i++) {
        ctx->buffer[i]->uses.written.interval = ctx->buffer[i]->uses.read.interval = -1;
        ctx->buffer[i]->b.form = 0;
    }
    ctx->n_passes = ctx->n_run = 0;
    for (int i = 0; i < ctx->n_ranks; i++) {
        ctx->rank[i].n = ctx->rank[i].interval = 0;
        ctx->rank[i].kv.written.interval = ctx->rank[i].kv.read.interval = -1;
    }
    return LLM_OK;
}

/* Good until the next step computes. All ranks' shares stand side by side: (vocab). */
static const float *llm__cpu_logits_row(llm_backend_ctx *ctx, int out_row) { return ctx->logits + out_row * ctx->logits_stride; }

static llm_result llm__cpu_buffer_rows(LLM__UNUSED llm_backend_ctx *ctx, LLM__UNUSED int rank, const llm_buffer *buf, int row, int n,
                                       float *to) {
    for (int i = 0; i < n; i++, to += buf->cols) memcpy(to, llm__row(buf, row + i), (size_t)buf->cols * sizeof *to);
    return LLM_OK;
}

static const float *llm__cpu_buffer_row(LLM__UNUSED llm_backend_ctx *ctx, LLM__UNUSED int rank, const llm_buffer *buf, int row) {
    return llm__row(buf, row);
}

/* A rank's page, NULL if there is none. */
static uint8_t *llm__kv_page(const llm_backend_ctx *ctx, int rank, int32_t page) {
    const int ok = rank >= 0 && rank < ctx->n_ranks && page >= 0 && page < ctx->kv.n_pages;
    return ok ? ctx->kv.base[rank] + (size_t)page * (size_t)ctx->kv.page_bytes : NULL;
}

/* Copies whole pages on every rank, in the order given. */
static llm_result llm__cpu_kv_copy(llm_backend_ctx *ctx, const int32_t *from, const int32_t *to, int n) {
    for (int i = 0; i < n; i++)
        for (int r = 0; r < ctx->n_ranks; r++) {
            uint8_t *source = llm__kv_page(ctx, r, from[i]), *target = llm__kv_page(ctx, r, to[i]);
            if (!source || !target)
                return llm__error(LLM_ERR_ARG, "kv_copy: page %d to %d of %lld", from[i], to[i], (long long)ctx->kv.n_pages);
            if (source != target) memcpy(target, source, (size_t)ctx->kv.page_bytes);
        }
    return LLM_OK;
}

/* A page of one rank to host memory, and back: page_bytes bytes as they are, for swapping and for kept contexts. */
static llm_result llm__cpu_kv_read(llm_backend_ctx *ctx, int rank, int32_t page, void *host) {
    const uint8_t *at = llm__kv_page(ctx, rank, page);
    if (!at) return llm__error(LLM_ERR_ARG, "kv_read: page %d of rank %d is not there", page, rank);
    memcpy(host, at, (size_t)ctx->kv.page_bytes);
    return LLM_OK;
}

static llm_result llm__cpu_kv_write(llm_backend_ctx *ctx, int rank, int32_t page, const void *host) {
    uint8_t *at = llm__kv_page(ctx, rank, page);
    if (!at) return llm__error(LLM_ERR_ARG, "kv_write: page %d of rank %d is not there", page, rank);
    memcpy(at, host, (size_t)ctx->kv.page_bytes);
    return LLM_OK;
}

/* Work by indexes for llm__cpu_parallel; next: how many were taken. */
typedef struct llm__parallel {
    void (*fn)(void *arg, int i);
    void *arg;
    int n, next;
} llm__parallel;

static void llm__parallel_thread(void *arg, LLM__UNUSED int pass, LLM__UNUSED int thread, LLM__UNUSED int n_threads) {
    llm__parallel *p = (llm__parallel *)arg;
    for (int i; (i = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED)) < p->n;) p->fn(p->arg, i);
}

/* Threads take indexes one after the other; a single one is not worth waking them. */
static void llm__cpu_parallel(llm_backend_ctx *ctx, void (*fn)(void *arg, int i), void *arg, int n) {
    llm__parallel p = {fn, arg, n, 0};
    if (n == 1) fn(arg, 0);
    else llm__pool_run(ctx->pool, llm__parallel_thread, &p, 1);
}

/* Sentences are kept in this library, one a thread; a backend in another library reaches them through this. */
LLM_API llm_result llm_backend_error(llm_result r, const char *sentence) { return llm__error(r, "%s", sentence); }

/* The CPU draws no tokens, knows no limit of its memory, and pins none: three are NULL. */
LLM_API const llm_backend *llm_backend_cpu(void) {
    static const llm_backend table = {LLM_BACKEND_ABI,
                                      sizeof(llm_backend),
                                      "cpu",
                                      llm__cpu_open,
                                      llm__cpu_close,
                                      llm__cpu_describe,
                                      llm__cpu_buffer_new,
                                      llm__cpu_weight,
                                      llm__cpu_weights_done,
                                      llm__cpu_kv_page_bytes,
                                      llm__cpu_kv_open,
                                      llm__cpu_memory_used,
                                      llm__cpu_begin_step,
                                      llm__cpu_embed,
                                      llm__cpu_rope,
                                      llm__cpu_residual,
                                      llm__cpu_norm,
                                      llm__cpu_linear,
                                      llm__cpu_qkv,
                                      llm__cpu_attention,
                                      llm__cpu_mla,
                                      llm__cpu_route,
                                      llm__cpu_experts,
                                      llm__cpu_gate,
                                      llm__cpu_gather,
                                      llm__cpu_all_reduce,
                                      llm__cpu_logits,
                                      llm__cpu_end_step,
                                      llm__cpu_wait,
                                      llm__cpu_logits_row,
                                      llm__cpu_buffer_row,
                                      llm__cpu_kv_copy,
                                      llm__cpu_kv_read,
                                      llm__cpu_kv_write,
                                      llm__cpu_parallel,
                                      llm__cpu_lora_site,
                                      llm__cpu_lora_put,
                                      llm__cpu_lora,
                                      NULL,
                                      NULL,
                                      llm__cpu_send,
                                      llm__cpu_receive,
                                      llm__cpu_state,
                                      NULL,
                                      llm__cpu_work,
                                      llm__cpu_buffer_rows,
                                      llm__cpu_conv,
                                      llm__cpu_recur,
                                      llm__cpu_streams,
                                      llm__cpu_index,
                                      1};
    return &table;
}
