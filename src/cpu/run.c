#include "cpu/run.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/packed.h"
#include "cpu/linear.h"
#include "cpu/products.h"
#include "cpu/experts.h"
#include "cpu/attention.h"
#include "cpu/backend.h"
#include "cpu/operations.h"
#include "cpu/recurrent.h"
#include "cpu/streams.h"
#include "cpu/indexer.h"

/* Multiplications and additions of one thread in a pass, of a linear layer that is cut: 3 to 7 ms on the cores of today; passes of one. */
enum { LLM__PASS_PRODUCTS = 200000000, LLM__MAX_PARTS = 32 };

/* clang-format off */
static const llm__op_row llm__ops[] = {
    {llm__run_embed, NULL, sizeof(llm_embed_op), LLM_SPENT_EMBED}, {llm__run_rope, NULL, sizeof(llm_rope_op), LLM_SPENT_EMBED},
    {llm__run_residual, NULL, sizeof(llm_residual_op), LLM_SPENT_NORM}, {llm__run_norm, NULL, sizeof(llm_norm_op), LLM_SPENT_NORM},
    {NULL, llm__run_linear_op, sizeof(llm_linear_op), LLM_SPENT_LINEAR}, {NULL, llm__run_qkv, sizeof(llm_qkv_op), LLM_SPENT_ATTENTION},
    {NULL, llm__run_attention, sizeof(llm_attention_op), LLM_SPENT_ATTENTION},
    {llm__run_mla_write, NULL, sizeof(llm_mla_op), LLM_SPENT_ATTENTION}, {NULL, llm__run_mla, sizeof(llm_mla_op), LLM_SPENT_ATTENTION},
    {llm__run_route, NULL, sizeof(llm_route_op), LLM_SPENT_LINEAR}, {NULL, llm__run_experts_op, sizeof(llm_experts_op), LLM_SPENT_LINEAR},
    {llm__run_gate, NULL, sizeof(llm_gate_op), LLM_SPENT_LINEAR}, {llm__run_gather, NULL, sizeof(llm_gather_op), LLM_SPENT_HEAD},
    {llm__run_all_reduce, NULL, sizeof(llm__reduce_op), LLM_SPENT_NORM}, {NULL, llm__run_logits_op, sizeof(llm_logits_op), LLM_SPENT_HEAD},
    {NULL, llm__run_lora_down, sizeof(llm_lora_op), LLM_SPENT_LINEAR}, {NULL, llm__run_lora_up, sizeof(llm_lora_op), LLM_SPENT_LINEAR},
    {llm__run_gather, NULL, sizeof(llm_gather_op), LLM_SPENT_NORM}, {llm__run_state, NULL, sizeof(llm_state_op), LLM_SPENT_NORM},
    {NULL, llm__run_conv, sizeof(llm_conv_op), LLM_SPENT_ATTENTION}, {NULL, llm__run_recur, sizeof(llm_recur_op), LLM_SPENT_ATTENTION},
    {llm__run_streams, NULL, sizeof(llm_streams_op), LLM_SPENT_NORM},
    {llm__run_index_write, NULL, sizeof(llm_index_op), LLM_SPENT_ATTENTION},
    {NULL, llm__run_index, sizeof(llm_index_op), LLM_SPENT_ATTENTION}, {NULL, llm__run_choose, sizeof(llm_index_op), LLM_SPENT_ATTENTION},
};
/* clang-format on */

LLM__PRIVATE const llm__op_row *llm__op_row_of(int kind) { return &llm__ops[kind]; }

/* One thread's share of one record. */
static void llm__run_record(const llm_backend_ctx *ctx, llm__exec *e, llm__record *rec, int rank, const llm__stretch *at) {
    int64_t from, to;
    const llm__run r = {ctx, e, rec, rank, at->sub};
    e->part = at->parts ? at->sub : 0;
    e->n_parts = LLM__MAX(at->parts, 1);
    e->n_rows = llm__op_rows(ctx, rec->rows);
    e->next = &rec->next;
    llm__share(e, e->n_rows, &from, &to);
    if (llm__ops[rec->kind].share) llm__ops[rec->kind].share(&r);
    else
        for (int row = (int)from; row < to; row++) llm__ops[rec->kind].row(&r, row);
}

/* Makes this thread's share of the rounded copy that a record wants, as the record's act_split has it; a barrier must follow. */
static void llm__run_act(const llm_backend_ctx *ctx, llm__exec *e, const llm__record *rec) {
    const int heads = rec->act_split - LLM__SPLIT_HEADS, cols = rec->act_cols;
    int64_t from, to;
    if (!rec->form) return;
    e->n_rows = llm__op_rows(ctx, rec->rows);
    llm__input in = llm__input_of(e, rec->act, rec->act_col, (llm__form)rec->form);
    in.order = rec->act_order;
    if (rec->act_split == LLM__SPLIT_ANY) {
        llm__act_fill(e, &in, cols);
        return;
    }
    if (heads > 0) llm__share_heads(e, heads, &from, &to);
    else llm__share(e, e->n_rows, &from, &to);
    for (int64_t i = from; i < to && heads > 0; i++) {
        const int64_t blocks = cols / 32 / heads, g = i % heads;
        llm__act_part(ctx->kernels, &in, cols, (int)(i / heads), (int)(i / heads) + 1, g * blocks, (g + 1) * blocks);
    }
    if (heads <= 0) llm__act_part(ctx->kernels, &in, cols, (int)from, (int)to, 0, (cols + 31) / 32);
}

/* What a record reads and computes: see llm_spent. */
typedef struct llm__cost {
    double bytes, ops;
} llm__cost;

/* Positions of the cache, of `bytes` each, that the step's rows attend to; `ops` multiply-adds for each that a row sees. */
static llm__cost llm__attended_cost(const llm_step *s, int window, double bytes, double ops) {
    llm__cost c = {0, 0};
    for (int i = 0; i < s->shape.n_seqs; i++) {
        const int rows = s->seq_begin[i + 1] - s->seq_begin[i], len = s->seq_len[i];
        const int seen = window ? LLM__MIN(len, window + rows) : len; /* by all rows together, and by one on average */
        const double each = window ? LLM__MIN(len - rows / 2.0, (double)window) : len - (rows - 1) / 2.0;
        c.bytes += seen * bytes;
        c.ops += 2 * each * rows * ops;
    }
    return c;
}

/* A weight is read once however many rows are multiplied with it: each row's products are what is computed. */
static llm__cost llm__weight_cost(const llm_weight *w, double rows) {
    const llm__cost c = {(double)w->bytes, 2 * (double)w->rows * (double)w->cols * rows};
    return c;
}

/* What moves or computes little beside these (norms, rotation, sums, routes, adapters) counts as nothing. Of experts, all those that some
 * row has chosen are read:
 *
 *     8 of 128 experts, 1 row: 1/16 of the weights     8 rows: about 52 experts, 2/5     64 rows: nearly all
 */
static llm__cost llm__record_cost(const llm_backend_ctx *ctx, const llm__record *rec) {
    const int rows = llm__op_rows(ctx, rec->rows), element = ctx->kv.element_bytes;
    llm__cost c = {0, 0}, more = c;
    if (rec->kind == LLM__OP_LINEAR) c = llm__weight_cost(rec->op.linear.weight, rows);
    if (rec->kind == LLM__OP_LOGITS) c = llm__weight_cost(rec->op.logits.head, rows);
    if (rec->kind == LLM__OP_ATTENTION) {
        const llm_attention_op *a = &rec->op.attention;
        const double width = a->head_dim + a->v_head_dim;
        c = llm__attended_cost(&ctx->step, a->window, a->n_kv_heads * width * element, a->n_heads * width);
    }
    if (rec->kind == LLM__OP_MLA) { /* the values are the first `rank` columns of the keys */
        const llm_mla_op *a = &rec->op.mla;
        const double width = a->rank + a->rope_dim;
        c = llm__attended_cost(&ctx->step, a->chosen ? a->topk : 0, width * element, a->n_heads * (width + a->rank));
        more = llm__weight_cost(a->kv_b, rows);
    }
    if (rec->kind == LLM__OP_INDEX) {
        const llm_index_op *a = &rec->op.index;
        c = llm__attended_cost(&ctx->step, 0, (double)a->head_dim * element, (double)a->n_heads * a->head_dim);
    }
    if (rec->kind == LLM__OP_EXPERTS) {
        const llm_experts_op *x = &rec->op.experts;
        int used;
        const double n = x->n_experts, choices = llm__experts_chosen(x, rows, &used);
        c = llm__weight_cost(x->gate_up, choices / n);
        more = llm__weight_cost(x->down, choices / n);
        c.bytes *= used / n, more.bytes *= used / n;
    }
    c.bytes += more.bytes, c.ops += more.ops;
    return c;
}

LLM__PRIVATE void llm__spent_add(llm_backend_ctx *ctx, const llm__record *next) {
    const llm__record *rec = ctx->timed;
    const double now = ctx->cfg.spent ? llm__now() : 0, took = now - ctx->since;
    if (!ctx->cfg.spent || rec == next) return;
    ctx->timed = next;
    ctx->since = now;
    if (!rec) return;
    llm_spent *s = &ctx->cfg.spent[llm__ops[rec->kind].spent];
    const llm__cost c = llm__record_cost(ctx, rec);
    s->seconds += took;
    s->bytes += ctx->n_group * c.bytes;
    s->ops += ctx->n_group * c.ops;
}

LLM__PRIVATE void llm__run_pass(void *arg, int pass, int thread, int n_threads) {
    llm_backend_ctx *ctx = (llm_backend_ctx *)arg;
    const llm__stretch *at = &ctx->pass[ctx->n_run + pass];
    llm__exec e = LLM__ZERO;
    e.thread = thread;
    e.n_threads = n_threads;
    e.isa = ctx->isa;
    e.tuning = &ctx->tuning;
    e.step = &ctx->step;
    e.scratch = ctx->scratch + (size_t)thread * ctx->scratch_bytes;
    e.scratch_bytes = ctx->scratch_bytes;
    for (int i = at->from; i < at->until + at->act; i++) {
        if (!thread) llm__spent_add(ctx, &ctx->rank[at->rank - at->rank % ctx->n_group].list[i]);
        for (int r = at->rank; r < at->rank + at->n_ranks; r++) {
            llm__record *rec = &ctx->rank[r].list[i];
            if (i < at->until) llm__run_record(ctx, &e, rec, r, at);
            else llm__run_act(ctx, &e, rec);
        }
    }
}

/* Ends the pass that is being put together, unless there is nothing in it, and begins the next one with record `from`. */
static void llm__pass_end(llm_backend_ctx *ctx, llm__stretch *p, int until, int act, int from) {
    p->until = until;
    p->act = act;
    if (p->until > p->from || act) {
        if (ctx->n_passes >= LLM__MAX_PASSES) llm__cpu_fail(ctx, LLM_ERR_LIMIT, "too many operations in one step");
        else ctx->pass[ctx->n_passes++] = *p;
    }
    p->from = from;
}

/* How many passes a linear layer over many rows takes: each a few milliseconds of a thread, so that who waits for a turn, or has cancelled,
 * need not wait for all of it. */
static int llm__linear_parts(const llm_backend_ctx *ctx, const llm__record *rec) {
    const int rows = llm__op_rows(ctx, rec->rows);
    if (rec->kind != LLM__OP_LINEAR || !llm__product_counted(rows) || ctx->n_passes > LLM__MAX_PASSES / 2) return 1;
    const double products = (double)rows * (double)rec->op.linear.weight->rows * (double)rec->op.linear.weight->cols * ctx->n_group;
    return (int)LLM__MIN(1 + products / ((double)LLM__PASS_PRODUCTS * LLM__MAX(1, ctx->pool->n)), (double)LLM__MAX_PARTS);
}

/* The pass that is being put together has become [p->from, until). One that is a long linear layer alone is cut. */
static void llm__pass_cut(llm_backend_ctx *ctx, llm__stretch *p, int until, int from) {
    const int parts = until == p->from + 1 ? llm__linear_parts(ctx, &ctx->rank[p->rank].list[p->from]) : 1, begin = p->from;
    if (parts > 1) p->parts = parts;
    for (p->sub = 0; p->sub < parts; p->sub++) {
        p->from = begin;
        llm__pass_end(ctx, p, until, 0, from);
    }
    p->sub = p->parts = 0;
}

LLM__PRIVATE void llm__passes_of(llm_backend_ctx *ctx, int first) {
    llm__stretch p = {first, ctx->n_group, 0, 0, 0, 0, 0};
    for (int i = 0; i < ctx->rank[first].n; i++) {
        const llm__record *rec = &ctx->rank[first].list[i];
        int barrier = rec->kind == LLM__OP_EXPERTS, form = 0;
        for (int r = first; r < first + ctx->n_group; r++) {
            barrier |= ctx->rank[r].list[i].barrier;
            form |= ctx->rank[r].list[i].form;
        }
        if (barrier) llm__pass_cut(ctx, &p, i, i);
        if (form) llm__pass_end(ctx, &p, i, 1, i);
        if (rec->kind != LLM__OP_EXPERTS) continue;
        p.n_ranks = 1;
        for (; p.rank < first + ctx->n_group; p.rank++) {
            const int n = llm__experts_passes(&ctx->rank[p.rank].list[i].op.experts, llm__op_rows(ctx, rec->rows), ctx->experts_bytes);
            for (p.sub = 0; p.sub < n; p.sub++) llm__pass_end(ctx, &p, i + 1, 0, i);
        }
        p.rank = first, p.n_ranks = ctx->n_group, p.sub = 0, p.from = i + 1;
    }
    llm__pass_cut(ctx, &p, ctx->rank[first].n, 0);
}
