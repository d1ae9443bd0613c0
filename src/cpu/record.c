#include "cpu/record.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/threads.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"
#include "cpu/products.h"
#include "cpu/backend.h"
#include "cpu/indexer.h"
#include "cpu/run.h"

/* Every buffer that comes in was made here, as the first member of ours. */
static llm__cpu_buffer *llm__own(const llm_buffer *b) { return (llm__cpu_buffer *)(uintptr_t)b; }

/* 1 if work split as `split` must wait for what was done in this interval: not if both are split by the same rows, for then a thread meets
 * only what it did itself. */
static int llm__conflict(const llm__rank *r, const llm__use *use, llm__split split) {
    return use->interval == r->interval && (split == LLM__SPLIT_ANY || use->split != split);
}

/* Notes a use in the current interval; uses that are split in different ways together count as ANY. */
static void llm__mark(const llm__rank *r, llm__use *use, llm__split split) {
    if (use->interval == r->interval && use->split != split) split = LLM__SPLIT_ANY;
    use->interval = r->interval;
    use->split = split;
}

/* Operations on the same set of rows meet the same thread for each row. */
static llm__split llm__split_of(llm_rows rows) { return rows == LLM_ROWS_OUT ? LLM__SPLIT_OUT : LLM__SPLIT_TOKENS; }

/* A new record of an operation, or NULL when the list is full or a mistake was made before. */
static llm__record *llm__record_add(llm_backend_ctx *ctx, int rank, llm__op_kind kind, llm_rows rows, const void *op) {
    llm__rank *r = &ctx->rank[rank];
    if (r->n >= LLM__MAX_RECORDS) llm__cpu_fail(ctx, LLM_ERR_LIMIT, "too many operations in one step");
    if (ctx->failed) return NULL;
    llm__record *rec = &r->list[r->n++];
    rec->kind = kind;
    rec->barrier = rec->form = rec->next = 0;
    rec->split = llm__op_row_of(kind)->row ? llm__split_of(rows) : LLM__SPLIT_ANY;
    rec->rows = rows;
    memcpy(&rec->op, op, llm__op_row_of(kind)->bytes);
    return rec;
}

/* The record (NULL: none was made), split so, reads a and b and writes c and d (any may be NULL), and reads or writes the KV cache. Decides
 * whether a barrier stands before it, and takes the rounded copies of what it writes for stale. */
static void llm__record_uses(llm_backend_ctx *ctx, int rank, llm__record *rec, llm__split split, const llm_buffer *a, const llm_buffer *b,
                             const llm_buffer *c, const llm_buffer *d, llm__touch kv) {
    llm__rank *r = &ctx->rank[rank];
    const llm_buffer *buffer[4] = {a, b, c, d};
    llm__uses *uses[5];
    int n = 0, write[5], barrier = 0;
    if (!rec) return;
    for (int i = 0; i < 4; i++) {
        if (!buffer[i]) continue;
        uses[n] = &llm__own(buffer[i])->uses;
        write[n++] = i >= 2;
    }
    if (kv) {
        uses[n] = &r->kv;
        write[n++] = kv == LLM__TOUCH_WRITE;
    }
    for (int i = 0; i < n; i++)
        barrier |= llm__conflict(r, &uses[i]->written, split) || (write[i] && llm__conflict(r, &uses[i]->read, split));
    rec->barrier |= barrier;
    r->interval += barrier;
    for (int i = 0; i < n; i++) llm__mark(r, write[i] ? &uses[i]->written : &uses[i]->read, split);
    for (int i = 2; i < 4; i++)
        if (buffer[i]) llm__own(buffer[i])->b.form = 0;
}

/* Both: an operation that is split as its kind is. */
static void llm__record_op(llm_backend_ctx *ctx, int rank, llm__op_kind kind, llm_rows rows, const void *op, const llm_buffer *a,
                           const llm_buffer *b, const llm_buffer *c, const llm_buffer *d, llm__touch kv) {
    llm__record *rec = llm__record_add(ctx, rank, kind, rows, op);
    if (rec) llm__record_uses(ctx, rank, rec, rec->split, a, b, c, d, kv);
}

/* Puts the making of src's rounded copy before the record where the weight needs one that is not there: of the record's rows, of the
 * weight's columns from col on. Rounding counts as a use of its own: it reads the buffer, and overwrites the copy, which is taken for a
 * part of it. */
static void llm__record_act(llm_backend_ctx *ctx, int rank, llm__record *rec, const llm_buffer *src, int col, const llm_weight *w) {
    llm__cpu_buffer *own = llm__own(src);
    int form = (int)llm__weight_form(w, ctx->isa), cols = (int)w->cols;
    const int32_t *order = llm__weight_order(w, 0);
    if (!rec || !form ||
        (own->b.form == form && own->act_col == col && own->act_cols == cols && own->act_rows == rec->rows && own->act_order == order))
        return;
    /* what a thread has just made it rounds itself, if it has whole blocks of the same rows */
    const llm__use *made = &own->uses.written;
    const int heads = made->split - LLM__SPLIT_HEADS;
    const int same =
        heads > 0 ? rec->rows == LLM_ROWS_TOKENS && !col && !order && cols % (32 * heads) == 0 : made->split == llm__split_of(rec->rows);
    rec->act_split = same && made->interval == ctx->rank[rank].interval ? made->split : LLM__SPLIT_ANY;
    llm__record_uses(ctx, rank, rec, rec->act_split, src, NULL, src, NULL, LLM__TOUCH_NONE);
    ctx->rank[rank].interval++; /* the barrier after it */
    rec->form = own->b.form = form;
    rec->act = &own->b;
    own->act_rows = rec->rows;
    rec->act_col = own->act_col = col;
    rec->act_cols = own->act_cols = cols;
    rec->act_order = own->act_order = order;
}

LLM__PRIVATE void llm__cpu_embed(llm_backend_ctx *ctx, int rank, const llm_embed_op *op) {
    if (op->given && op->given_col + op->dst->cols > ctx->cfg.given_cols)
        llm__cpu_fail(ctx, LLM_ERR_ARG, "embed: more columns than are given");
    llm__record_op(ctx, rank, LLM__OP_EMBED, LLM_ROWS_TOKENS, op, NULL, NULL, op->dst, NULL, LLM__TOUCH_NONE);
}

LLM__PRIVATE void llm__cpu_rope(llm_backend_ctx *ctx, int rank, const llm_rope_op *op) {
    for (int s = 0; s < ctx->step.shape.n_seqs; s++)
        if (ctx->step.seq_rope[s] < 0 || ctx->step.seq_rope[s] >= op->n_variants)
            llm__cpu_fail(ctx, LLM_ERR_ARG, "seq_rope: not a variant of the rope operation");
    llm__record_op(ctx, rank, LLM__OP_ROPE, LLM_ROWS_TOKENS, op, NULL, NULL, op->dst, NULL, LLM__TOUCH_NONE);
}

LLM__PRIVATE void llm__cpu_residual(llm_backend_ctx *ctx, int rank, const llm_residual_op *op) {
    llm__record_op(ctx, rank, LLM__OP_RESIDUAL, op->rows, op, op->y, op->x, op->kind ? op->h : NULL,
                   op->y || op->replace || op->x_scale != 0 ? op->x : NULL, LLM__TOUCH_NONE);
}

LLM__PRIVATE void llm__cpu_norm(llm_backend_ctx *ctx, int rank, const llm_norm_op *op) {
    llm__record_op(ctx, rank, LLM__OP_NORM, op->rows, op, op->src, op->add ? op->dst : NULL, op->dst, NULL, LLM__TOUCH_NONE);
}

LLM__PRIVATE const llm_buffer *llm__cpu_plus(const llm_buffer *plus) { return plus && !llm__own(plus)->nothing ? plus : NULL; }

LLM__PRIVATE void llm__cpu_linear(llm_backend_ctx *ctx, int rank, const llm_linear_op *op) {
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_LINEAR, op->rows, op);
    if (rec) rec->op.linear.plus = llm__cpu_plus(op->plus);
    llm__record_act(ctx, rank, rec, op->src, op->src_col, op->weight);
    llm__record_uses(ctx, rank, rec, LLM__SPLIT_ANY, op->src, llm__cpu_plus(op->plus), op->dst, NULL, LLM__TOUCH_NONE);
}

/* 1 if an adapter of this step has anything for the site. */
static int llm__cpu_adapts(llm_backend_ctx *ctx, const llm_lora_site *site) {
    int any = 0;
    for (int q = 0; site && q < ctx->step.shape.n_seqs; q++) {
        int32_t slot = ctx->step.seq_lora[q];
        if (slot < -1 || slot >= site->n_slots) llm__cpu_fail(ctx, LLM_ERR_ARG, "lora: the site has no such slot");
        else if (slot >= 0) any |= site->slot[slot].n > 0;
    }
    return any;
}

LLM__PRIVATE void llm__cpu_lora(llm_backend_ctx *ctx, int rank, const llm_lora_op *op) {
    int any = llm__cpu_adapts(ctx, op->site);
    llm__own(op->dst)->nothing = !any;
    if (!any) return;
    llm__record_op(ctx, rank, LLM__OP_LORA_DOWN, op->rows, op, op->src, NULL, op->low, op->src ? op->dst : NULL, LLM__TOUCH_NONE);
    llm__record_op(ctx, rank, LLM__OP_LORA_UP, op->rows, op, op->low, NULL, op->dst, NULL, LLM__TOUCH_NONE);
}

/* A layer and heads that the KV cache has. */
static void llm__check_heads(llm_backend_ctx *ctx, const char *what, int layer, int n_heads, int n_kv_heads) {
    if (layer < 0 || layer >= ctx->kv.n_layers || n_kv_heads < 1 || n_heads % n_kv_heads) llm__cpu_fail(ctx, LLM_ERR_ARG, what);
}

/* How operations over heads are split: see llm__share_heads. Not if there are fewer of them than threads. */
static llm__split llm__split_heads(const llm_backend_ctx *ctx, int n_kv) {
    const llm_step *s = &ctx->step;
    int i = 0;
    while (i < s->shape.n_seqs && s->seq_begin[i] == i) i++;
    return i == s->shape.n_rows && i == s->shape.n_seqs && i * n_kv >= ctx->pool->n ? LLM__SPLIT_HEADS + n_kv : LLM__SPLIT_ANY;
}

LLM__PRIVATE void llm__cpu_qkv(llm_backend_ctx *ctx, int rank, const llm_qkv_op *op) {
    llm__check_heads(ctx, "qkv: layer or heads do not fit the KV cache", op->layer, op->n_heads, op->n_kv_heads);
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_QKV, LLM_ROWS_TOKENS, op);
    if (rec && op->norm != LLM_QK_NORM_WHOLE_RMS) rec->split = llm__split_heads(ctx, op->n_kv_heads);
    llm__record_uses(ctx, rank, rec, rec ? rec->split : 0, op->rope, NULL, op->qkv, NULL, op->shared ? LLM__TOUCH_NONE : LLM__TOUCH_WRITE);
}

LLM__PRIVATE void llm__cpu_attention(llm_backend_ctx *ctx, int rank, const llm_attention_op *op) {
    llm__check_heads(ctx, "attention: layer or heads do not fit the KV cache", op->layer, op->n_heads, op->n_kv_heads);
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_ATTENTION, LLM_ROWS_TOKENS, op);
    if (rec && op->n_heads <= LLM__QUERIES * op->n_kv_heads) rec->split = llm__split_heads(ctx, op->n_kv_heads);
    llm__record_uses(ctx, rank, rec, rec ? rec->split : 0, op->qkv, NULL, op->dst, NULL, LLM__TOUCH_READ);
}

LLM__PRIVATE void llm__cpu_index(llm_backend_ctx *ctx, int rank, const llm_index_op *op) {
    const llm_kv_layer *shape = op->layer >= 0 && op->layer < ctx->kv.n_layers ? &ctx->kv.layer[op->layer].shape : NULL;
    if (!shape || shape->head_dim != op->head_dim || !shape->v_head_dim)
        llm__cpu_fail(ctx, LLM_ERR_ARG, "index: the layer does not fit the KV cache");
    for (int s = 0; s < ctx->step.shape.n_seqs; s++)
        if (ctx->step.seq_len[s] > ctx->scores_stride) llm__cpu_fail(ctx, LLM_ERR_ARG, "index: a sequence of more positions than indexed");
    if (op->n_heads < 1 || op->rope_dim > op->head_dim || op->topk < 1 || op->dst->cols < op->topk ||
        op->q->cols < (int64_t)op->n_heads * op->head_dim || op->k->cols < op->head_dim + op->n_heads)
        llm__cpu_fail(ctx, LLM_ERR_ARG, "index: heads, widths or topk out of range");
    const int rows = llm__index_rows(&ctx->step, op->topk);
    llm__record_op(ctx, rank, LLM__OP_INDEX_WRITE, LLM_ROWS_TOKENS, op, op->rope, NULL, op->q, op->k, LLM__TOUCH_WRITE);
    if (rows) llm__record_op(ctx, rank, LLM__OP_INDEX, LLM_ROWS_TOKENS, op, op->q, op->k, op->dst, NULL, LLM__TOUCH_READ);
    if (rows && rows <= ctx->pool->n)
        llm__record_op(ctx, rank, LLM__OP_CHOOSE, LLM_ROWS_TOKENS, op, NULL, NULL, op->dst, NULL, LLM__TOUCH_NONE);
}

LLM__PRIVATE void llm__cpu_mla(llm_backend_ctx *ctx, int rank, const llm_mla_op *op) {
    const llm_kv_layer *shape = op->layer >= 0 && op->layer < ctx->kv.n_layers ? &ctx->kv.layer[op->layer].shape : NULL;
    if (!shape || (op->chosen ? shape->v_head_dim : shape->head_dim) != op->rank + op->rope_dim || (!op->chosen && shape->v_head_dim))
        llm__cpu_fail(ctx, LLM_ERR_ARG, "mla: the layer does not fit the KV cache");
    if (op->kv_b->n_heads != op->n_heads || op->kv_b->n_keys != op->nope || op->kv_b->cols != op->rank ||
        op->kv_b->rows != (int64_t)op->n_heads * (op->nope + op->v_dim))
        llm__cpu_fail(ctx, LLM_ERR_ARG, "mla: kv_b has other heads than the operation");
    llm_mla_op own = *op;
    if (!llm__cpu_adapts(ctx, op->lora)) own.lora = NULL;
    if (op->chosen && !llm__index_rows(&ctx->step, op->topk)) own.chosen = NULL;
    llm__record_op(ctx, rank, LLM__OP_MLA_WRITE, LLM_ROWS_TOKENS, op, op->rope, NULL, op->q, op->kv_a, LLM__TOUCH_WRITE);
    llm__record_op(ctx, rank, LLM__OP_MLA, LLM_ROWS_TOKENS, &own, op->q, own.chosen, op->dst, NULL, LLM__TOUCH_READ);
}

LLM__PRIVATE void llm__cpu_state(llm_backend_ctx *ctx, int rank, const llm_state_op *op) {
    const llm_kv_layer *shape = op->layer >= 0 && op->layer < ctx->kv.n_layers ? &ctx->kv.layer[op->layer].shape : NULL;
    if (!shape || (int64_t)shape->n_kv_heads * shape->v_head_dim != op->buf->cols)
        llm__cpu_fail(ctx, LLM_ERR_ARG, "state: the layer does not fit the KV cache");
    if (op->recall) llm__record_op(ctx, rank, LLM__OP_STATE, op->rows, op, NULL, NULL, op->buf, op->clear, LLM__TOUCH_READ);
    else llm__record_op(ctx, rank, LLM__OP_STATE, op->rows, op, op->buf, NULL, NULL, NULL, LLM__TOUCH_WRITE);
}

/* Refuses values [state, state + n) that a layer does not have. */
static void llm__check_state(llm_backend_ctx *ctx, int layer, int64_t state, int64_t n) {
    if (layer < 0 || layer >= ctx->kv.n_layers || state < 0 || n < 0 || state + n > ctx->kv.layer[layer].shape.n_state)
        llm__cpu_fail(ctx, LLM_ERR_ARG, "the state of a recurrent layer does not fit the KV cache");
}

LLM__PRIVATE void llm__cpu_conv(llm_backend_ctx *ctx, int rank, const llm_conv_op *op) {
    const int64_t last = LLM__MAX(op->col, LLM__MAX(op->before_col, op->after_col));
    llm__check_state(ctx, op->layer, op->state, (int64_t)(op->taps - 1) * op->n);
    if (op->taps < 2 || op->taps > LLM_CONV_TAPS || op->n < 1 || op->col < 0 || last + op->n > op->buf->cols ||
        (op->dst && op->dst->cols < op->n))
        llm__cpu_fail(ctx, LLM_ERR_ARG, "conv: taps or columns out of range");
    llm__record_op(ctx, rank, LLM__OP_CONV, LLM_ROWS_TOKENS, op, op->buf, NULL, op->dst ? op->dst : op->buf, NULL, LLM__TOUCH_WRITE);
}

/* How many values a weight has. */
static int64_t llm__cpu_size(const llm_weight *w) { return w->rows * w->cols; }

LLM__PRIVATE void llm__cpu_recur(llm_backend_ctx *ctx, int rank, const llm_recur_op *op) {
    llm__check_state(ctx, op->layer, op->state, (int64_t)op->n_heads * op->dk * op->dv);
    if (op->n_groups < 1 || (!op->turns && op->n_heads % op->n_groups) || op->turns < 0 || op->dk < 1 || op->dk > LLM__RECUR_KEYS ||
        op->dv < 1 || op->dst->cols < (int64_t)op->n_heads * op->dv)
        llm__cpu_fail(ctx, LLM_ERR_ARG, "recur: heads, groups or widths out of range");
    else if (!op->decay || !op->decay_bias || llm__cpu_size(op->decay) != (int64_t)op->n_heads * (op->decay_keys ? op->dk : 1) ||
             llm__cpu_size(op->decay_bias) != (int64_t)op->n_heads * (op->step_keys ? op->dk : 1) || (op->step_keys && op->write_col < 0))
        llm__cpu_fail(ctx, LLM_ERR_ARG, "recur: decays and steps do not fit the heads");
    llm__record_op(ctx, rank, LLM__OP_RECUR, LLM_ROWS_TOKENS, op, op->src, NULL, op->dst, NULL, LLM__TOUCH_WRITE);
}

LLM__PRIVATE void llm__cpu_streams(llm_backend_ctx *ctx, int rank, const llm_streams_op *op) {
    const int64_t n = op->n, factors = op->kind == LLM_STREAMS_LEVEL ? 0 : op->kind == LLM_STREAMS_PREDICT ? n * n * n : n * n;
    if (n < 1 || n > LLM_MAX_STREAMS || op->active < 0 || op->active >= n || op->cols < 1 || n * op->cols > op->x->cols ||
        (op->dst && op->dst->cols < op->cols) || (op->y && op->y->cols < op->cols) || (op->scale && llm__cpu_size(op->scale) != op->cols))
        llm__cpu_fail(ctx, LLM_ERR_ARG, "streams: more of them than the buffers have columns for");
    else if (factors && (!op->gate || op->gate->cols < n || !op->weight || llm__cpu_size(op->weight) != factors ||
                         (op->kind == LLM_STREAMS_CORRECT && !op->y)))
        llm__cpu_fail(ctx, LLM_ERR_ARG, "streams: coefficients do not fit them");
    llm__record_op(ctx, rank, LLM__OP_STREAMS, op->rows, op, op->gate, op->y, op->x, op->dst, LLM__TOUCH_NONE);
}

LLM__PRIVATE void llm__cpu_route(llm_backend_ctx *ctx, int rank, const llm_route_op *op) {
    int size = op->n_group > 1 ? op->n_experts / op->n_group : op->n_experts;
    if (op->k < 1 || op->k > op->n_experts || (op->n_group > 1 && (op->n_experts % op->n_group || op->k > size * op->topk_group)))
        llm__cpu_fail(ctx, LLM_ERR_ARG, "route: more experts to choose than there are");
    llm__record_op(ctx, rank, LLM__OP_ROUTE, LLM_ROWS_TOKENS, op, op->logits, NULL, op->dst, NULL, LLM__TOUCH_NONE);
}

LLM__PRIVATE void llm__cpu_experts(llm_backend_ctx *ctx, int rank, const llm_experts_op *op) {
    llm_experts_op own = *op;
    if (!llm__cpu_adapts(ctx, op->up_lora)) own.up_lora = NULL;
    if (!llm__cpu_adapts(ctx, op->down_lora)) own.down_lora = NULL;
    llm__record_op(ctx, rank, LLM__OP_EXPERTS, LLM_ROWS_TOKENS, &own, op->src, op->routes, op->dst, NULL, LLM__TOUCH_NONE);
}

LLM__PRIVATE void llm__cpu_gate(llm_backend_ctx *ctx, int rank, const llm_gate_op *op) {
    if (op->width < 0 || op->width > op->gate->cols ||
        (op->width && (!op->each || op->part || op->col < 0 || op->col + op->n > op->width)) ||
        (op->act >= LLM_GATE_GELU && (!op->each || op->part)))
        llm__cpu_fail(ctx, LLM_ERR_ARG, "gate: columns of a sparse gate out of range");
    llm__record_op(ctx, rank, LLM__OP_GATE, op->rows, op, op->gate, NULL, op->dst, NULL, LLM__TOUCH_NONE);
}

LLM__PRIVATE void llm__cpu_gather(llm_backend_ctx *ctx, int rank, const llm_gather_op *op) {
    const int parts = LLM__MAX(op->parts, 1), n_out = ctx->step.shape.n_out;
    if ((parts > 1 || op->dst_col) && (op->mean ? 1 : parts) * (op->src->cols - op->src_col) > op->dst->cols - op->dst_col)
        llm__cpu_fail(ctx, LLM_ERR_ARG, "gather: the rows do not fit side by side");
    for (int i = 0; i < n_out && parts > 1; i++)
        if (ctx->step.out_rows[i] > ctx->step.shape.n_rows - parts) llm__cpu_fail(ctx, LLM_ERR_ARG, "gather: rows behind the last one");
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_GATHER, LLM_ROWS_OUT, op);
    llm__record_uses(ctx, rank, rec, LLM__SPLIT_ANY, op->src, NULL, op->dst, NULL, LLM__TOUCH_NONE);
}

LLM__PRIVATE void llm__cpu_all_reduce(llm_backend_ctx *ctx, int rank, llm_rows rows, llm_buffer *buf, int32_t n) {
    const llm__reduce_op op = {buf, n};
    llm__record_op(ctx, rank, LLM__OP_ALL_REDUCE, rows, &op, NULL, NULL, buf, NULL, LLM__TOUCH_NONE);
}

LLM__PRIVATE void llm__cpu_send(llm_backend_ctx *ctx, int rank, const llm_buffer *src) { (void)ctx, (void)rank, (void)src; }

LLM__PRIVATE void llm__cpu_receive(llm_backend_ctx *ctx, int rank, llm_buffer *dst, const llm_buffer *src) {
    const llm_gather_op op = {.dst = dst, .src = src};
    llm__record_op(ctx, rank, LLM__OP_RECEIVE, LLM_ROWS_TOKENS, &op, NULL, NULL, dst, NULL, LLM__TOUCH_NONE);
}

LLM__PRIVATE void llm__cpu_logits(llm_backend_ctx *ctx, int rank, const llm_logits_op *op) {
    if (op->vocab_begin < 0 || (int64_t)op->vocab_begin + op->head->rows > ctx->logits_stride || ctx->step.shape.n_out > ctx->logits_rows)
        llm__cpu_fail(ctx, LLM_ERR_ARG, "logits: more of them than the output weights have rows");
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_LOGITS, LLM_ROWS_OUT, op);
    if (rec) rec->op.logits.plus = llm__cpu_plus(op->plus);
    llm__record_act(ctx, rank, rec, op->src, 0, op->head);
    llm__record_uses(ctx, rank, rec, LLM__SPLIT_ANY, op->src, llm__cpu_plus(op->plus), NULL, NULL, LLM__TOUCH_NONE);
}

LLM__PRIVATE llm_result llm__cpu_end_step(llm_backend_ctx *ctx) {
    for (int r = 1; r < ctx->n_ranks && !ctx->failed; r++) {
        const llm__rank *first = &ctx->rank[r - r % ctx->n_group];
        int same = ctx->rank[r].n == first->n;
        for (int i = 0; same && i < first->n; i++) same = ctx->rank[r].list[i].kind == first->list[i].kind;
        if (!same) llm__cpu_fail(ctx, LLM_ERR_ARG, "the ranks recorded different operations");
    }
    ctx->n_passes = ctx->n_run = 0;
    for (int first = 0; first < ctx->n_ranks && !ctx->failed; first += ctx->n_group) llm__passes_of(ctx, first);
    ctx->timed = NULL;
    return ctx->failed ? llm__error(ctx->failed, "%s", ctx->why) : LLM_OK;
}

/* The pool gets one pass, then two, four ...: as many as should take a quarter of the time that is left, by those before. So a step of
 * hundreds of short ones is hardly ever interrupted, and one of long ones after each. */
LLM__PRIVATE int llm__cpu_work(llm_backend_ctx *ctx, double until, double *longest) {
    double began = llm__now(), now = began;
    for (int n = 1; !ctx->failed && ctx->n_run < ctx->n_passes; began = now) {
        n = LLM__MIN(n, ctx->n_passes - ctx->n_run);
        llm__pool_run(ctx->pool, llm__run_pass, ctx, n);
        ctx->n_run += n;
        now = llm__now();
        const double each = (now - began) / n;
        *longest = LLM__MAX(*longest, each);
        if (now >= until) break;
        n = (int)LLM__MAX(1.0, LLM__MIN(2.0 * n, (until - now) / 4 / LLM__MAX(each, 1e-9)));
    }
    llm__spent_add(ctx, NULL);
    return ctx->failed || ctx->n_run >= ctx->n_passes;
}

LLM__PRIVATE llm_result llm__cpu_wait(llm_backend_ctx *ctx) {
    if (ctx->failed) return llm__error(ctx->failed, "%s", ctx->why);
    llm__pool_run(ctx->pool, llm__run_pass, ctx, ctx->n_passes - ctx->n_run);
    ctx->n_run = ctx->n_passes;
    llm__spent_add(ctx, NULL);
    return LLM_OK;
}
