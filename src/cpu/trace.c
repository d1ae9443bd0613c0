#include "cpu/trace.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "cpu/packed.h"
#include "cpu/linear.h"
#include "cpu/experts.h"
#include "cpu/plain_attention.h"
#include "cpu/attention.h"
#include "cpu/backend.h"

/* What a weight is called. */
typedef struct llm__trace_name {
    const llm_weight *w;
    char *text;
} llm__trace_name;

/* Stands in the place of the context that the table's functions are called with. */
typedef struct llm__tracer {
    const llm_backend *inner;
    llm_backend_ctx *ctx;
    llm_trace_fn fn;
    void *user;
    int inputs; /* nothing is told but what weights are multiplied with */
    llm_kv_type kv_type;
    llm__trace_name *name;
    size_t n_names, names_cap;
    llm_step step;  /* that is being computed; its arrays are the caller's */
    llm_qkv_op qkv; /* the latest */
    int32_t layer;  /* where the pass is; -1: before the first */
    llm_result failed;
    char why[256];
} llm__tracer;

static llm__tracer *llm__tracer_of(llm_backend_ctx *ctx) { return (llm__tracer *)(void *)ctx; }

static void llm__trace_close(llm_backend_ctx *ctx) {
    llm__tracer *t = llm__tracer_of(ctx);
    if (!t) return;
    t->inner->close(t->ctx);
    for (size_t i = 0; i < t->n_names; i++) LLM_FREE(t->name[i].text);
    LLM_FREE(t->name);
    LLM_FREE(t);
}

static llm_result llm__trace_open(const llm_backend_config *cfg, llm_backend_ctx **out) {
    llm__tracer *t = LLM__NEW(llm__tracer, 1);
    *out = NULL;
    if (!t) return llm__nomem();
    t->inner = llm_backend_cpu();
    t->fn = cfg->trace;
    t->user = cfg->trace_user;
    t->inputs = cfg->trace_inputs;
    t->kv_type = cfg->kv_type;
    llm_result r = t->inner->open(cfg, &t->ctx);
    if (r) llm__trace_close((llm_backend_ctx *)(void *)t);
    else *out = (llm_backend_ctx *)(void *)t;
    return r;
}

static llm_result llm__trace_weight(llm_backend_ctx *ctx, int rank, const llm_weight_desc *desc, llm_weight **out) {
    llm__tracer *t = llm__tracer_of(ctx);
    *out = NULL;
    if (!llm__grow((void **)&t->name, &t->names_cap, t->n_names + 1, sizeof *t->name)) return llm__nomem();
    llm_result r = t->inner->weight(t->ctx, rank, desc, out);
    if (r) return r;
    t->name[t->n_names].w = *out;
    t->name[t->n_names].text = llm__strdup(desc->name);
    return t->name[t->n_names++].text ? LLM_OK : llm__nomem();
}

/* NULL: it has no name, or there is no weight. */
static const char *llm__trace_name_of(const llm__tracer *t, const llm_weight *w) {
    for (size_t i = 0; w && i < t->n_names; i++)
        if (t->name[i].w == w) return t->name[i].text;
    return NULL;
}

/* The layer of a weight by its name: the first number between dots, as in blk.7.ffn_norm.weight; otherwise where the pass is. */
static int32_t llm__trace_layer(const llm__tracer *t, const char *name) {
    for (const char *p = name ? strchr(name, '.') : NULL; p; p = strchr(p + 1, '.'))
        if (p[1] >= '0' && p[1] <= '9') return (int32_t)strtol(p + 1, NULL, 10);
    return name && t->layer < 0 ? -1 : t->layer;
}

/* Computes what has been handed on, and begins anew. */
static void llm__trace_run(llm__tracer *t) {
    llm_result r = t->inner->end_step(t->ctx);
    if (!r) r = t->inner->wait(t->ctx);
    if (r && !t->failed) snprintf(t->why, sizeof t->why, "%.255s", llm_last_error());
    if (r && !t->failed) t->failed = r;
    (void)t->inner->begin_step(t->ctx, &t->step);
}

/* Tells of some columns of a buffer's rows. */
static void llm__trace_tell(llm__tracer *t, const char *op, const llm_weight *w, llm_rows rows, const llm_buffer *buf, int64_t col,
                            int64_t cols) {
    llm_trace x = LLM__ZERO;
    if (t->failed || t->inputs || !buf || t->step.shape.program) return;
    x.op = op;
    x.weight = llm__trace_name_of(t, w);
    x.layer = llm__trace_layer(t, x.weight);
    x.head = -1;
    x.rows = rows == LLM_ROWS_OUT ? t->step.shape.n_out : t->step.shape.n_rows;
    x.cols = (int32_t)cols;
    x.values = buf->data + col;
    x.stride = buf->stride;
    if (x.rows > 0) t->fn(t->user, &x);
}

/* Tells of what a weight is multiplied with: rows of its columns. expert: -1: it is of none. */
static void llm__trace_input(llm__tracer *t, const llm_weight *w, int32_t expert, int32_t rows, const float *values, int64_t stride) {
    llm_trace x = LLM__ZERO;
    if (t->failed || !t->inputs || !w || rows < 1 || t->step.shape.program) return;
    x.op = "input";
    x.weight = llm__trace_name_of(t, w);
    x.layer = llm__trace_layer(t, x.weight);
    x.head = expert;
    x.rows = rows;
    x.cols = (int32_t)w->cols;
    x.values = values;
    x.stride = stride;
    x.multiplied = w;
    t->fn(t->user, &x);
}

/* Of latent attention: its input is the latent, normalised, which no buffer has. */
static void llm__trace_latents(llm__tracer *t, const llm_mla_op *op) {
    const int32_t rows = t->step.shape.n_rows, n = op->rank;
    LLM__SCOPED(llm__drop) float *c = t->inputs && !t->failed ? LLM__NEW(float, (int64_t)rows *n) : NULL;
    if (!c) return;
    for (int32_t r = 0; r < rows; r++) {
        const float *x = op->kv_a->data + r * op->kv_a->stride;
        float sum = 0;
        for (int32_t i = 0; i < n; i++) sum += x[i] * x[i];
        const float by = 1 / sqrtf(sum / (float)n + op->eps);
        for (int32_t i = 0; i < n; i++) c[r * n + i] = x[i] * by * op->kv_norm->f32[i];
    }
    llm__trace_input(t, op->kv_b, -1, rows, c, n);
}

/* Of all experts that an operation has run. */
static void llm__trace_expert_inputs(llm__tracer *t, const llm_experts_op *op) {
    for (int32_t e = 0; e < op->n_experts && t->inputs && !t->failed; e++)
        for (int down = 0; down < 2; down++) {
            const llm_weight *w = down ? op->down : op->gate_up;
            const float *x = NULL;
            const int n = llm__experts_inputs(op, t->step.shape.n_rows, t->ctx->experts, t->ctx->experts_bytes, e, down, &x);
            if (n < 0) t->failed = LLM_ERR_LIMIT, snprintf(t->why, sizeof t->why, "trace_inputs: too many experts a token");
            llm__trace_input(t, w, e, n, x, w->cols);
        }
}

/* What head h of a query's row sees: see llm_attention_op. */
static llm__plain_query llm__trace_query(const llm__tracer *t, const llm_attention_op *op, int32_t row, int32_t h) {
    const int32_t shared = h / (op->n_heads / op->n_kv_heads);
    llm__plain_query x = LLM__ZERO;
    x.q = op->qkv->data + row * op->qkv->stride + op->q_col + (int64_t)h * op->head_dim;
    x.k = op->qkv->data + t->qkv.k_col + (int64_t)shared * op->head_dim;
    x.k_stride = op->qkv->stride;
    x.d = op->head_dim;
    x.from = llm__window_from(op, row);
    x.to = row + 1;
    x.at = row;
    x.scale = op->scale;
    x.softcap = op->softcap;
    x.sink = op->sinks ? op->sinks->f32 + h : NULL;
    x.slope = op->alibi ? op->alibi->f32[h] : 0;
    return x;
}

/* The weights with which each token of the first sequence looks at those before it, head by head: (T, T). Not of a layer that reads
 * another one's keys, which the buffer has no longer. */
static void llm__trace_weights(llm__tracer *t, const llm_attention_op *op) {
    const int32_t T = t->step.seq_begin[1];
    const int whole = !t->inputs && t->step.seq_len[0] == T && t->kv_type < LLM_KV_FP8_E4M3 && !op->not_causal && !t->qkv.shared &&
                      !t->failed && !t->step.shape.program;
    LLM__SCOPED(llm__drop) float *weight = whole ? LLM__NEW(float, (int64_t)T *T) : NULL;
    for (int32_t h = 0; weight && h < op->n_heads; h++) {
        const llm_trace x = {"attention_weights", NULL, t->layer, h, T, T, weight, T, NULL};
        for (int32_t row = 0; row < T; row++) {
            const llm__plain_query query = llm__trace_query(t, op, row, h);
            llm__plain_attention(&query, weight + (int64_t)row * T, NULL);
        }
        t->fn(t->user, &x);
    }
}

static llm_result llm__trace_begin_step(llm_backend_ctx *ctx, const llm_step *step) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->step = *step;
    t->layer = -1;
    t->failed = LLM_OK;
    return t->inner->begin_step(t->ctx, step);
}

static llm_result llm__trace_end_step(llm_backend_ctx *ctx) {
    llm__tracer *t = llm__tracer_of(ctx);
    return t->failed ? llm__error(t->failed, "%s", t->why) : t->inner->end_step(t->ctx);
}

static llm_result llm__trace_wait(llm_backend_ctx *ctx) {
    llm__tracer *t = llm__tracer_of(ctx);
    return t->failed ? llm__error(t->failed, "%s", t->why) : t->inner->wait(t->ctx);
}

/* ---- operations ---- */

static void llm__trace_embed(llm_backend_ctx *ctx, int rank, const llm_embed_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->inner->embed(t->ctx, rank, op);
    llm__trace_run(t);
    llm__trace_tell(t, "embed", op->table, LLM_ROWS_TOKENS, op->dst, 0, op->dst->cols);
}

static void llm__trace_rope(llm_backend_ctx *ctx, int rank, const llm_rope_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->inner->rope(t->ctx, rank, op);
    llm__trace_run(t);
}

static void llm__trace_residual(llm_backend_ctx *ctx, int rank, const llm_residual_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->inner->residual(t->ctx, rank, op);
    llm__trace_run(t);
    if (op->y) llm__trace_tell(t, "residual", NULL, op->rows, op->x, 0, op->x->cols);
    if (op->kind != LLM_NORM_NONE) llm__trace_tell(t, "norm", op->weight, op->rows, op->h, 0, op->h->cols);
}

static void llm__trace_norm(llm_backend_ctx *ctx, int rank, const llm_norm_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->inner->norm(t->ctx, rank, op);
    llm__trace_run(t);
    llm__trace_tell(t, "norm", op->weight, op->rows, op->dst, 0, (int64_t)LLM__MAX(op->parts, 1) * op->n);
}

static void llm__trace_linear(llm_backend_ctx *ctx, int rank, const llm_linear_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->layer = llm__trace_layer(t, llm__trace_name_of(t, op->weight));
    llm__trace_input(t, op->weight, -1, op->rows == LLM_ROWS_OUT ? t->step.shape.n_out : t->step.shape.n_rows, op->src->data + op->src_col,
                     op->src->stride);
    t->inner->linear(t->ctx, rank, op);
    llm__trace_run(t);
    llm__trace_tell(t, "linear", op->weight, op->rows, op->dst, op->dst_col, op->weight->rows / (op->weight->gate_up ? 2 : 1));
}

static void llm__trace_qkv(llm_backend_ctx *ctx, int rank, const llm_qkv_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->qkv = *op;
    t->inner->qkv(t->ctx, rank, op);
    llm__trace_run(t);
    llm__trace_tell(t, "q", NULL, LLM_ROWS_TOKENS, op->qkv, op->q_col, (int64_t)op->n_heads * op->head_dim);
    if (op->shared) return;
    llm__trace_tell(t, "k", NULL, LLM_ROWS_TOKENS, op->qkv, op->k_col, (int64_t)op->n_kv_heads * op->head_dim);
    llm__trace_tell(t, "v", NULL, LLM_ROWS_TOKENS, op->qkv, op->v_col, (int64_t)op->n_kv_heads * op->v_head_dim);
}

static void llm__trace_attention(llm_backend_ctx *ctx, int rank, const llm_attention_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->inner->attention(t->ctx, rank, op);
    llm__trace_run(t);
    llm__trace_weights(t, op);
    llm__trace_tell(t, "attention", NULL, LLM_ROWS_TOKENS, op->dst, 0, (int64_t)op->n_heads * op->v_head_dim);
}

static void llm__trace_mla(llm_backend_ctx *ctx, int rank, const llm_mla_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    llm__trace_latents(t, op);
    t->inner->mla(t->ctx, rank, op);
    llm__trace_run(t);
    llm__trace_tell(t, "attention", NULL, LLM_ROWS_TOKENS, op->dst, 0, (int64_t)op->n_heads * op->v_dim);
}

static void llm__trace_route(llm_backend_ctx *ctx, int rank, const llm_route_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->inner->route(t->ctx, rank, op);
    llm__trace_run(t);
    llm__trace_tell(t, "route", NULL, LLM_ROWS_TOKENS, op->dst, 0, 2 * op->k);
}

static void llm__trace_experts(llm_backend_ctx *ctx, int rank, const llm_experts_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->inner->experts(t->ctx, rank, op);
    llm__trace_run(t);
    llm__trace_expert_inputs(t, op);
    llm__trace_tell(t, "experts", op->down, LLM_ROWS_TOKENS, op->dst, 0, op->dst->cols);
}

static void llm__trace_gate(llm_backend_ctx *ctx, int rank, const llm_gate_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->inner->gate(t->ctx, rank, op);
    llm__trace_run(t);
    llm__trace_tell(t, "gate", NULL, op->rows, op->dst, 0, op->n);
}

static void llm__trace_gather(llm_backend_ctx *ctx, int rank, const llm_gather_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->inner->gather(t->ctx, rank, op);
    llm__trace_run(t);
}

static void llm__trace_all_reduce(llm_backend_ctx *ctx, int rank, llm_rows rows, llm_buffer *buf, int32_t n) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->inner->all_reduce(t->ctx, rank, rows, buf, n);
    llm__trace_run(t);
}

static void llm__trace_logits(llm_backend_ctx *ctx, int rank, const llm_logits_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    llm__trace_input(t, op->head, -1, t->step.shape.n_out, op->src->data, op->src->stride);
    t->inner->logits(t->ctx, rank, op);
    llm__trace_run(t);
    llm_trace x = {"logits", llm__trace_name_of(t, op->head), -1, -1, t->step.shape.n_out, op->vocab, NULL, op->vocab, NULL};
    if (t->failed || t->inputs || x.rows < 1 || t->step.shape.program) return;
    x.values = t->inner->logits_row(t->ctx, 0);
    if (x.rows > 1) x.stride = t->inner->logits_row(t->ctx, 1) - x.values;
    t->fn(t->user, &x);
}

static void llm__trace_lora(llm_backend_ctx *ctx, int rank, const llm_lora_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->inner->lora(t->ctx, rank, op);
    llm__trace_run(t);
    llm__trace_tell(t, "lora", NULL, op->rows, op->dst, 0, op->n);
}

static void llm__trace_state(llm_backend_ctx *ctx, int rank, const llm_state_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->inner->state(t->ctx, rank, op);
    llm__trace_run(t);
}

static void llm__trace_conv(llm_backend_ctx *ctx, int rank, const llm_conv_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->layer = op->layer;
    t->inner->conv(t->ctx, rank, op);
    llm__trace_run(t);
    llm__trace_tell(t, "convolution", op->weight, LLM_ROWS_TOKENS, op->dst ? op->dst : op->buf, op->dst ? 0 : op->col, op->n);
}

static void llm__trace_recur(llm_backend_ctx *ctx, int rank, const llm_recur_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->layer = op->layer;
    t->inner->recur(t->ctx, rank, op);
    llm__trace_run(t);
    llm__trace_tell(t, "recurrence", NULL, LLM_ROWS_TOKENS, op->dst, 0, (int64_t)op->n_heads * op->dv);
}

static void llm__trace_streams(llm_backend_ctx *ctx, int rank, const llm_streams_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->inner->streams(t->ctx, rank, op);
    llm__trace_run(t);
    llm__trace_tell(t, "streams", op->weight, op->rows, op->x, 0, (int64_t)op->n * op->cols);
}

static void llm__trace_index(llm_backend_ctx *ctx, int rank, const llm_index_op *op) {
    llm__tracer *t = llm__tracer_of(ctx);
    t->inner->index(t->ctx, rank, op);
    llm__trace_run(t);
    llm__trace_tell(t, "index", op->k_norm, LLM_ROWS_TOKENS, op->k, 0, op->head_dim);
}

/* ---- what is handed on as it is ---- */

static const char *llm__trace_describe(llm_backend_ctx *ctx) { return llm__tracer_of(ctx)->inner->describe(llm__tracer_of(ctx)->ctx); }

static llm_result llm__trace_buffer(llm_backend_ctx *ctx, int rank, int64_t rows, int64_t cols, llm_buffer **out) {
    return llm__tracer_of(ctx)->inner->buffer(llm__tracer_of(ctx)->ctx, rank, rows, cols, out);
}

static llm_result llm__trace_weights_done(llm_backend_ctx *ctx) {
    return llm__tracer_of(ctx)->inner->weights_done(llm__tracer_of(ctx)->ctx);
}

static int64_t llm__trace_kv_page_bytes(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens) {
    return llm__tracer_of(ctx)->inner->kv_page_bytes(llm__tracer_of(ctx)->ctx, n_layers, layers, page_tokens);
}

static llm_result llm__trace_kv_open(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens, int64_t n_pages) {
    return llm__tracer_of(ctx)->inner->kv_open(llm__tracer_of(ctx)->ctx, n_layers, layers, page_tokens, n_pages);
}

static int64_t llm__trace_memory_used(llm_backend_ctx *ctx) { return llm__tracer_of(ctx)->inner->memory_used(llm__tracer_of(ctx)->ctx); }

static const float *llm__trace_logits_row(llm_backend_ctx *ctx, int out_row) {
    return llm__tracer_of(ctx)->inner->logits_row(llm__tracer_of(ctx)->ctx, out_row);
}

static llm_result llm__trace_buffer_rows(llm_backend_ctx *ctx, int rank, const llm_buffer *buf, int row, int n, float *to) {
    return llm__tracer_of(ctx)->inner->buffer_rows(llm__tracer_of(ctx)->ctx, rank, buf, row, n, to);
}

static const float *llm__trace_buffer_row(llm_backend_ctx *ctx, int rank, const llm_buffer *buf, int row) {
    return llm__tracer_of(ctx)->inner->buffer_row(llm__tracer_of(ctx)->ctx, rank, buf, row);
}

static llm_result llm__trace_kv_copy(llm_backend_ctx *ctx, const int32_t *from, const int32_t *to, int n) {
    return llm__tracer_of(ctx)->inner->kv_copy(llm__tracer_of(ctx)->ctx, from, to, n);
}

static llm_result llm__trace_kv_read(llm_backend_ctx *ctx, int rank, int32_t page, void *host) {
    return llm__tracer_of(ctx)->inner->kv_read(llm__tracer_of(ctx)->ctx, rank, page, host);
}

static llm_result llm__trace_kv_write(llm_backend_ctx *ctx, int rank, int32_t page, const void *host) {
    return llm__tracer_of(ctx)->inner->kv_write(llm__tracer_of(ctx)->ctx, rank, page, host);
}

static void llm__trace_parallel(llm_backend_ctx *ctx, void (*fn)(void *arg, int i), void *arg, int n) {
    llm__tracer_of(ctx)->inner->parallel(llm__tracer_of(ctx)->ctx, fn, arg, n);
}

static llm_result llm__trace_lora_site(llm_backend_ctx *ctx, int rank, int n_slots, llm_lora_site **out) {
    return llm__tracer_of(ctx)->inner->lora_site(llm__tracer_of(ctx)->ctx, rank, n_slots, out);
}

static llm_result llm__trace_lora_put(llm_backend_ctx *ctx, int rank, llm_lora_site *site, int slot, const llm_lora_part *parts, int n) {
    return llm__tracer_of(ctx)->inner->lora_put(llm__tracer_of(ctx)->ctx, rank, site, slot, parts, n);
}

LLM__PRIVATE const llm_backend *llm__trace_backend(void) {
    static const llm_backend table = {.abi = LLM_BACKEND_ABI,
                                      .struct_size = sizeof(llm_backend),
                                      .name = "cpu",
                                      .open = llm__trace_open,
                                      .close = llm__trace_close,
                                      .describe = llm__trace_describe,
                                      .buffer = llm__trace_buffer,
                                      .weight = llm__trace_weight,
                                      .weights_done = llm__trace_weights_done,
                                      .kv_page_bytes = llm__trace_kv_page_bytes,
                                      .kv_open = llm__trace_kv_open,
                                      .memory_used = llm__trace_memory_used,
                                      .begin_step = llm__trace_begin_step,
                                      .embed = llm__trace_embed,
                                      .rope = llm__trace_rope,
                                      .residual = llm__trace_residual,
                                      .norm = llm__trace_norm,
                                      .linear = llm__trace_linear,
                                      .qkv = llm__trace_qkv,
                                      .attention = llm__trace_attention,
                                      .mla = llm__trace_mla,
                                      .route = llm__trace_route,
                                      .experts = llm__trace_experts,
                                      .gate = llm__trace_gate,
                                      .gather = llm__trace_gather,
                                      .all_reduce = llm__trace_all_reduce,
                                      .logits = llm__trace_logits,
                                      .end_step = llm__trace_end_step,
                                      .wait = llm__trace_wait,
                                      .logits_row = llm__trace_logits_row,
                                      .buffer_row = llm__trace_buffer_row,
                                      .kv_copy = llm__trace_kv_copy,
                                      .kv_read = llm__trace_kv_read,
                                      .kv_write = llm__trace_kv_write,
                                      .parallel = llm__trace_parallel,
                                      .lora_site = llm__trace_lora_site,
                                      .lora_put = llm__trace_lora_put,
                                      .lora = llm__trace_lora,
                                      .state = llm__trace_state,
                                      .buffer_rows = llm__trace_buffer_rows,
                                      .conv = llm__trace_conv,
                                      .recur = llm__trace_recur,
                                      .streams = llm__trace_streams,
                                      .index = llm__trace_index,
                                      .distances = 1};
    return &table;
}
