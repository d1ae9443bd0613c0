#include "engine/nodes.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/model.h"
#include "api/sampler.h"
#include "api/nodes.h"
#include "api/engine.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/map.h"
#include "model/net.h"
#include "model/forward.h"
#include "engine/scheduler.h"
#include "engine/link.h"

/* The context of the table: the device's, and what process 0 must know to ask the others. */
typedef struct llm__nodes_ctx {
    llm_nodes *l;
    const llm_backend *be; /* of this process's ranks */
    llm_backend_ctx *ctx;
    int n_ranks, n_here, first, n_group;
    struct {
        void *buffer; /* the device's, or what stands for one that is elsewhere */
        int rank;
        int64_t cols;
    } * made; /* (n_made) buffers in the order in which they were made, the same in every process */
    size_t n_made, cap;
    uint64_t shapes; /* a hash of all weights' */
    int64_t page_bytes;
    int32_t page_tokens, vocab, *begin; /* (n_ranks + 1) first row of the vocabulary that a rank has; -1: it has none */
    int32_t max_out;
    struct {
        int32_t n_out, rows;
    } step[LLM_FLIGHT_MAX]; /* begun and not waited for: rows with logits, and whether they are wanted */
    unsigned begun, waited;
    float *logits; /* (max_out, vocab) of the step that was waited for; vocab is that of its model */
    size_t n_logits;
    int has_rows; /* they are in `logits`, not in the device's place */
    float *row;
} llm__nodes_ctx;

static llm__nodes_ctx *llm__nodes_of(llm_backend_ctx *ctx) { return (llm__nodes_ctx *)(void *)ctx; }

/* A rank's number in this process; -1: it is in another one. */
static int llm__nodes_here(const llm__nodes_ctx *n, int rank) {
    const int at = rank - n->first;
    return at >= 0 && at < n->n_here ? at : -1;
}

/* ---- a step as bytes */

typedef struct llm__wire_draw {
    int32_t wanted, row, n_used, masked, n_bias, top_k;
    float temperature, top_p, min_p, repetition, presence, frequency;
    uint64_t seed;
    int64_t position;
} llm__wire_draw;

/* One draw to the bytes or from them; of its sampling what llm_draw says that a device reads. */
static void llm__wire_one_draw(llm__wire *w, llm_draw *d, llm_sampling *read, int32_t vocab) {
    llm__wire_draw x = LLM__ZERO;
    if (!w->reading && d->wanted) {
        const llm_sampling *s = d->sampling;
        const llm__wire_draw y = {1,
                                  d->row,
                                  d->n_used,
                                  d->allowed != NULL,
                                  s->n_logit_bias,
                                  s->top_k,
                                  s->temperature,
                                  s->top_p,
                                  s->min_p,
                                  s->repetition_penalty,
                                  s->presence_penalty,
                                  s->frequency_penalty,
                                  d->seed,
                                  d->position};
        x = y;
        *read = *s;
    }
    llm__wire_value(w, &x, sizeof x);
    if (w->reading) memset(d, 0, sizeof *d), memset(read, 0, sizeof *read);
    if (w->failed || !x.wanted) return;
    if (x.n_used < 0 || x.n_bias < 0) {
        w->failed = 1;
        return;
    }
    llm__wire_bytes(w, (const void **)&d->allowed, x.masked ? ((size_t)vocab + 31) / 32 * 4 : 0);
    llm__wire_bytes(w, (const void **)&d->used, (size_t)x.n_used * 4);
    llm__wire_bytes(w, (const void **)&d->counts, (size_t)x.n_used * 4);
    llm__wire_bytes(w, (const void **)&read->logit_bias, (size_t)x.n_bias * sizeof *read->logit_bias);
    if (!w->reading || w->failed) return;
    if (!x.masked) d->allowed = NULL;
    d->wanted = 1;
    d->row = x.row;
    d->n_used = x.n_used;
    d->seed = x.seed;
    d->position = x.position;
    d->sampling = read;
    read->n_logit_bias = x.n_bias;
    read->top_k = x.top_k;
    read->temperature = x.temperature;
    read->top_p = x.top_p;
    read->min_p = x.min_p;
    read->repetition_penalty = x.repetition;
    read->presence_penalty = x.presence;
    read->frequency_penalty = x.frequency;
}

/* An array that may be missing: whether it is there goes first, so that NULL stays NULL. What is read points into the frame, which lies
 * still until the next one comes; begin_step copies. */
static void llm__wire_array(llm__wire *w, const void **p, size_t bytes) {
    int32_t there[2] = {*p != NULL, 0};
    llm__wire_value(w, there, sizeof there);
    if (w->failed || (w->reading && !there[0])) *p = NULL;
    if (!w->failed && there[0]) llm__wire_bytes(w, p, bytes);
}

/* A step to the bytes or from them, by the same lines. draws, sampling (max_out): where those that are read go. Page tables stand close
 * together: what is sent is what is used. */
static void llm__wire_step(llm__wire *w, llm_step *s, const llm__nodes_ctx *n, llm_draw *draws, llm_sampling *sampling) {
    int32_t more[4] = {s->n_position_rows, 1, s->draws != NULL, 0}, longest = 0;
    llm__wire_value(w, &s->shape, sizeof s->shape);
    for (int i = 0; i < s->shape.n_seqs && !w->reading; i++) longest = LLM__MAX(longest, s->seq_len[i]);
    if (n->page_tokens) more[1] = LLM__MAX((longest + n->page_tokens - 1) / n->page_tokens, 1);
    llm__wire_value(w, more, sizeof more);
    const llm_shape *x = &s->shape;
    if (w->failed || x->n_rows < 0 || x->n_seqs < 0 || x->n_out < 0 || x->n_out > n->max_out || more[0] < 0 || more[1] < 1) {
        w->failed = 1;
        return;
    }
    const size_t rows = (size_t)x->n_rows, seqs = (size_t)x->n_seqs;
    llm__wire_array(w, (const void **)&s->tokens, rows * 4);
    llm__wire_array(w, (const void **)&s->positions, rows * 4 * (more[0] == 3 ? 3 : 1));
    llm__wire_array(w, (const void **)&s->seq_of_row, rows * 4);
    llm__wire_array(w, (const void **)&s->seq_begin, (seqs + 1) * 4);
    llm__wire_array(w, (const void **)&s->seq_len, seqs * 4);
    llm__wire_array(w, (const void **)&s->seq_rope, seqs * 4);
    llm__wire_array(w, (const void **)&s->seq_rope_base, seqs * 4);
    llm__wire_array(w, (const void **)&s->out_rows, (size_t)x->n_out * 4);
    llm__wire_array(w, (const void **)&s->token_from, rows * 4);
    llm__wire_array(w, (const void **)&s->spans, rows * 8);
    llm__wire_array(w, (const void **)&s->row_set, rows * 4);
    llm__wire_array(w, (const void **)&s->seq_keep, seqs * 4);
    for (size_t i = 0; i < seqs && !w->reading; i++) {
        const void *p = s->pages + i * (size_t)s->page_stride;
        llm__wire_bytes(w, &p, (size_t)more[1] * 4); /* a table is as wide as the longest, or wider */
    }
    for (size_t i = 0; i < seqs && w->reading; i++) { /* each begins on 8 bytes */
        const void *p;
        llm__wire_bytes(w, &p, (size_t)more[1] * 4);
        if (!i) s->pages = (const int32_t *)p;
    }
    if (w->reading) s->n_position_rows = more[0], s->page_stride = (more[1] + 1) & ~1, s->draws = more[2] ? draws : NULL;
    for (int i = 0; i < x->n_out && more[2] && !w->failed; i++) {
        llm_draw one = LLM__ZERO;
        llm_sampling own;
        if (!w->reading) one = s->draws[i];
        llm__wire_one_draw(w, w->reading ? &draws[i] : &one, w->reading ? &sampling[i] : &own, n->l->model->arch.vocab);
    }
}

/* ---- opening */

/* Hashes of what must be the same everywhere. */
typedef struct llm__nodes_mark {
    uint64_t model, options;
} llm__nodes_mark;

/* Model and options are compared before anything is opened: a mistake of a command line shows in the first second. */
static llm_result llm__nodes_open(const llm_backend_config *cfg, llm_backend_ctx **out) {
    llm_nodes *l = (llm_nodes *)cfg->nodes;
    llm__nodes_ctx *n = LLM__NEW(llm__nodes_ctx, 1);
    llm__nodes_mark *all = LLM__NEW(llm__nodes_mark, l->cfg.n);
    const int32_t said[10] = {cfg->n_ranks, cfg->n_stages, (int32_t)cfg->compute,  (int32_t)cfg->kv_type, cfg->max_rows,
                              cfg->max_out, cfg->max_seqs, cfg->max_pages_per_seq, cfg->device_draws,     cfg->batch_invariant};
    llm_result r = n && all ? LLM_OK : llm__nomem();
    *out = NULL;
    if (!r) {
        n->l = l;
        n->be = l->backend;
        n->n_ranks = cfg->n_ranks;
        n->n_here = cfg->n_ranks / l->cfg.n;
        n->first = l->cfg.rank * n->n_here;
        n->n_group = cfg->n_ranks / LLM__MAX(cfg->n_stages, 1);
        n->max_out = cfg->max_out;
        n->begin = LLM__NEW(int32_t, n->n_ranks + 1);
        all[l->cfg.rank].model = llm__model_mark(l->model);
        all[l->cfg.rank].options = llm__hash(said, sizeof said, 1);
        r = n->begin ? llm__link_share(l, all, sizeof *all) : llm__nomem();
    }
    for (int i = 1; i < l->cfg.n && !r; i++)
        if (all[i].model != all[0].model || all[i].options != all[0].options) {
            char why[160];
            snprintf(why, sizeof why, "process %d has %s than process 0: the same was expected everywhere", i,
                     all[i].model != all[0].model ? "another model" : "other engine options");
            r = llm__link_fail(l, LLM_ERR_ARG, why);
        }
    LLM_FREE(all);
    for (int i = 0; !r && i <= n->n_ranks; i++) n->begin[i] = -1;
    if (!r) r = n->be->open(cfg, &n->ctx);
    if (!r) *out = (llm_backend_ctx *)(void *)n;
    else if (n) LLM_FREE(n->begin), LLM_FREE(n);
    return r;
}

/* Process 0 says that it was the last step, before its devices let go of each other. */
static void llm__nodes_close(llm_backend_ctx *ctx) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    if (!n->l->cfg.rank && !n->l->gone) llm__link_tell(n->l, LLM__FRAME_END, NULL, 0);
    n->be->close(n->ctx);
    for (size_t i = 0; i < n->n_made; i++)
        if (llm__nodes_here(n, n->made[i].rank) < 0) LLM_FREE(n->made[i].buffer);
    LLM_FREE(n->made);
    LLM_FREE(n->begin);
    LLM_FREE(n->logits);
    LLM_FREE(n->row);
    LLM_FREE(n);
}

static const char *llm__nodes_describe(llm_backend_ctx *ctx) { return llm__nodes_of(ctx)->be->describe(llm__nodes_of(ctx)->ctx); }

/* Every process makes all buffers in the same order, so that a number says which one is meant. */
static llm_result llm__nodes_buffer(llm_backend_ctx *ctx, int rank, int64_t rows, int64_t cols, llm_buffer **out) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    const int at = llm__nodes_here(n, rank);
    *out = NULL;
    if (!llm__grow((void **)&n->made, &n->cap, n->n_made + 1, sizeof *n->made)) return llm__nomem();
    llm_result r = LLM_OK;
    if (at >= 0) r = n->be->buffer(n->ctx, at, rows, cols, out);
    else if (!(*out = (llm_buffer *)(void *)LLM__NEW(char, 1))) r = llm__nomem();
    if (r) return r;
    n->made[n->n_made].buffer = *out;
    n->made[n->n_made].cols = cols;
    n->made[n->n_made++].rank = rank;
    return LLM_OK;
}

/* Of a rank elsewhere nothing is read: what stands for its weight is the context, into which nobody looks. */
static llm_result llm__nodes_weight(llm_backend_ctx *ctx, int rank, const llm_weight_desc *d, llm_weight **out) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    const int64_t shape[4] = {rank, (int64_t)d->role, d->rows, d->cols};
    n->shapes = llm__hash(shape, sizeof shape, n->shapes);
    if (llm__nodes_here(n, rank) >= 0) return n->be->weight(n->ctx, llm__nodes_here(n, rank), d, out);
    *out = (llm_weight *)(void *)n;
    return LLM_OK;
}

static llm_result llm__nodes_weights_done(llm_backend_ctx *ctx) { return llm__nodes_of(ctx)->be->weights_done(llm__nodes_of(ctx)->ctx); }

static int64_t llm__nodes_kv_page_bytes(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens) {
    return llm__nodes_of(ctx)->be->kv_page_bytes(llm__nodes_of(ctx)->ctx, n_layers, layers, page_tokens);
}

static int64_t llm__nodes_memory_used(llm_backend_ctx *ctx) { return llm__nodes_of(ctx)->be->memory_used(llm__nodes_of(ctx)->ctx); }

/* The least of all processes: a page is one number for all ranks, so the device with the least room decides how many there are. Every
 * process asks once, at the same place of opening, which is what makes an exchange of it possible. */
static int64_t llm__nodes_kv_memory(llm_backend_ctx *ctx, int all) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    int64_t room[256], least = INT64_MAX;
    room[n->l->cfg.rank] = n->be->kv_memory(n->ctx, all);
    if (llm__link_share(n->l, room, sizeof *room)) return 0;
    for (int i = 0; i < n->l->cfg.n; i++) least = LLM__MIN(least, room[i]);
    return least;
}

/* With the pages all is there: number, sizes and all shapes of weights so far must be the same everywhere, a draft model's too. */
static llm_result llm__nodes_kv_open(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens, int64_t n_pages) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    const int64_t said[4] = {n_layers, page_tokens, n_pages, (int64_t)n->shapes};
    uint64_t all[256];
    all[n->l->cfg.rank] = llm__hash(said, sizeof said, 1);
    llm_result r = n->be->kv_open(n->ctx, n_layers, layers, page_tokens, n_pages);
    n->page_bytes = n->be->kv_page_bytes(n->ctx, n_layers, layers, page_tokens);
    n->page_tokens = n_layers ? page_tokens : 0;
    if (!r) r = llm__link_share(n->l, all, sizeof *all);
    for (int i = 1; i < n->l->cfg.n && !r; i++)
        if (all[i] != all[0])
            r = llm__link_fail(n->l, LLM_ERR_ARG,
                               "the processes have different draft models or KV caches: the same options were expected everywhere");
    return r;
}

/* ---- the step */

/* The device goes first: what it refuses was never said, so that nobody else has begun it. */
static llm_result llm__nodes_begin_step(llm_backend_ctx *ctx, const llm_step *s) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    llm_result r = n->l->gone ? llm__error(LLM_ERR_BACKEND, "%s", n->l->why) : n->be->begin_step(n->ctx, s);
    if (r) return r;
    const unsigned at = n->begun % LLM_FLIGHT_MAX;
    n->step[at].n_out = s->shape.n_out;
    n->step[at].rows = !s->draws;
    for (int i = 0; i < s->shape.n_out && s->draws; i++) n->step[at].rows |= !s->draws[i].wanted || s->draws[i].row;
    if (n->l->cfg.rank) return LLM_OK;
    llm_step said = *s;
    n->l->out.len = 0;
    n->l->out.reading = n->l->out.failed = 0;
    llm__wire_step(&n->l->out, &said, n, NULL, NULL);
    if (n->l->out.failed) return llm__link_fail(n->l, LLM_ERR_NOMEM, llm__out_of_memory);
    return llm__link_tell(n->l, LLM__FRAME_STEP, n->l->out.data, n->l->out.len);
}

/* Operations of ranks that are elsewhere are theirs to record. */
#define LLM__NODES_OP(name, type) \
    static void llm__nodes_##name(llm_backend_ctx *ctx, int rank, const type *op) { \
        llm__nodes_ctx *n = llm__nodes_of(ctx); \
        const int at = llm__nodes_here(n, rank); \
        if (at >= 0) n->be->name(n->ctx, at, op); \
    }
LLM__NODES_OP(embed, llm_embed_op)
LLM__NODES_OP(rope, llm_rope_op)
LLM__NODES_OP(residual, llm_residual_op)
LLM__NODES_OP(norm, llm_norm_op)
LLM__NODES_OP(linear, llm_linear_op)
LLM__NODES_OP(qkv, llm_qkv_op)
LLM__NODES_OP(attention, llm_attention_op)
LLM__NODES_OP(mla, llm_mla_op)
LLM__NODES_OP(route, llm_route_op)
LLM__NODES_OP(experts, llm_experts_op)
LLM__NODES_OP(gate, llm_gate_op)
LLM__NODES_OP(gather, llm_gather_op)
LLM__NODES_OP(state, llm_state_op)
LLM__NODES_OP(conv, llm_conv_op)
LLM__NODES_OP(recur, llm_recur_op)
LLM__NODES_OP(streams, llm_streams_op)
LLM__NODES_OP(index, llm_index_op)

static void llm__nodes_all_reduce(llm_backend_ctx *ctx, int rank, llm_rows rows, llm_buffer *buf, int32_t cols) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    const int at = llm__nodes_here(n, rank);
    if (at >= 0) n->be->all_reduce(n->ctx, at, rows, buf, cols);
}

static void llm__nodes_send(llm_backend_ctx *ctx, int rank, const llm_buffer *src) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    const int at = llm__nodes_here(n, rank);
    if (at >= 0) n->be->send(n->ctx, at, src);
}

/* The buffer of the rank that sends may be elsewhere; it has the form of ours. */
static void llm__nodes_receive(llm_backend_ctx *ctx, int rank, llm_buffer *dst, const llm_buffer *src) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    const int at = llm__nodes_here(n, rank);
    if (at >= 0) n->be->receive(n->ctx, at, dst, llm__nodes_here(n, rank - n->n_group) >= 0 ? src : dst);
}

/* Notes who has which part of the vocabulary. */
static void llm__nodes_logits(llm_backend_ctx *ctx, int rank, const llm_logits_op *op) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    const int at = llm__nodes_here(n, rank);
    n->begin[rank] = op->vocab_begin;
    n->begin[n->n_ranks] = n->vocab = op->vocab;
    if (at >= 0) n->be->logits(n->ctx, at, op);
}

/* Of a device that failed nothing more is to be had, and the others wait for it: they are told. */
static llm_result llm__nodes_checked(llm__nodes_ctx *n, llm_result r) { return r ? llm__link_fail(n->l, r, llm_last_error()) : LLM_OK; }

/* Ranks of all processes meet in collectives from here on. */
static llm_result llm__nodes_end_step(llm_backend_ctx *ctx) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    const llm_result r = n->be->end_step(n->ctx);
    n->begun++;
    return llm__nodes_checked(n, r);
}

/* Where the vocabulary of process i begins in a row of logits, and how much of it that is; 0: nothing. */
static int32_t llm__nodes_part(const llm__nodes_ctx *n, int i, int32_t *begin) {
    const int first = i * n->n_here, end = first + n->n_here;
    for (int k = first; k < end; k++)
        if (n->begin[k] >= 0) return *begin = n->begin[k], n->begin[end] >= 0 ? n->begin[end] - *begin : n->vocab - *begin;
    return *begin = 0;
}

/* The part of the logits that process i has, of n_out rows: from its bytes (from NULL: from this process's device). */
static void llm__nodes_place(llm__nodes_ctx *n, int i, int32_t n_out, const float *from) {
    int32_t begin, count = llm__nodes_part(n, i, &begin);
    for (int32_t k = 0; k < n_out && count; k++)
        memcpy(n->logits + (size_t)k * (size_t)n->vocab + begin,
               from ? from + (size_t)k * (size_t)count : n->be->logits_row(n->ctx, k) + begin, (size_t)count * sizeof(float));
}

/* Each of the others has ended the step, and has given the logits that it has. */
static llm_result llm__nodes_collect(llm__nodes_ctx *n, int32_t n_out) {
    llm_result r = llm__link_tell(n->l, LLM__FRAME_WAIT, NULL, 0);
    for (int i = 1; i < n->l->cfg.n && !r; i++) {
        int kind;
        int32_t begin;
        const size_t bytes = (size_t)llm__nodes_part(n, i, &begin) * (size_t)n_out * sizeof(float);
        r = llm__link_next(n->l, i, &kind);
        if (!r && (kind != LLM__FRAME_REPLY || n->l->in.len != bytes))
            r = llm__link_fail(n->l, LLM_ERR_BACKEND, "a process has other logits");
        if (!r && bytes) llm__nodes_place(n, i, n_out, (const float *)(const void *)n->l->in.data);
    }
    return r;
}

/* Memory for all rows of the model whose step it was; a draft model may have more tokens. */
static int llm__nodes_logits_room(llm__nodes_ctx *n) {
    const size_t need = (size_t)n->max_out * (size_t)n->vocab;
    if (n->n_logits >= need) return 1;
    LLM_FREE(n->logits);
    n->logits = LLM__NEW(float, need);
    n->n_logits = n->logits ? need : 0;
    return n->logits != NULL;
}

/* Process 0 asks the others only when its own part is done: until then nobody speaks to it but to say that he cannot go on, which is how
 * llm__link_lost tells an answer from a last word. Their parts end at the same time as ours, so that nothing is lost by it. */
static llm_result llm__nodes_wait(llm_backend_ctx *ctx) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    if (n->waited == n->begun) return n->l->gone ? llm__error(LLM_ERR_BACKEND, "%s", n->l->why) : n->be->wait(n->ctx);
    llm_result r = llm__nodes_checked(n, n->be->wait(n->ctx));
    const unsigned turn = n->waited++ % LLM_FLIGHT_MAX;
    const int32_t n_out = n->step[turn].rows ? n->step[turn].n_out : 0;
    if (r || n->l->cfg.rank) return r;
    int32_t begin, own = llm__nodes_part(n, 0, &begin);
    n->has_rows = n_out && own != n->vocab;
    if (n->has_rows && !llm__nodes_logits_room(n)) return llm__link_fail(n->l, LLM_ERR_NOMEM, llm__out_of_memory);
    if (n->has_rows) llm__nodes_place(n, 0, n_out, NULL);
    return llm__nodes_collect(n, n_out);
}

static const float *llm__nodes_logits_row(llm_backend_ctx *ctx, int out_row) {
    const llm__nodes_ctx *n = llm__nodes_of(ctx);
    return n->has_rows ? n->logits + (size_t)out_row * (size_t)n->vocab : n->be->logits_row(n->ctx, out_row);
}

static const llm_drawn *llm__nodes_drawn(llm_backend_ctx *ctx, int out_row) {
    return llm__nodes_of(ctx)->be->drawn(llm__nodes_of(ctx)->ctx, out_row);
}

/* ---- between steps */

/* What process 0 asks of one that has a rank: head, then, of a page that is written, bytes. The answer is in l->in. */
static llm_result llm__nodes_ask(llm__nodes_ctx *n, int rank, int kind, const int64_t head[4], const void *data, size_t size,
                                 size_t answer) {
    const int to = rank / n->n_here;
    llm__wire *w = &n->l->out;
    const void *p = head;
    int got = LLM__FRAME_REPLY;
    w->len = 0;
    w->reading = w->failed = 0;
    llm__wire_bytes(w, &p, 4 * sizeof *head);
    llm__wire_bytes(w, &data, size);
    if (w->failed) return llm__nomem();
    llm_result r = llm__link_send(n->l, to, kind, w->data, w->len);
    if (!r) r = llm__link_next(n->l, to, &got);
    if (!r && (got != LLM__FRAME_REPLY || n->l->in.len != answer))
        r = llm__link_fail(n->l, LLM_ERR_BACKEND, "a process gives another answer");
    return r;
}

/* Everybody copies its ranks' part of the pages. No answer: the next frame finds it done, or a connection that has ended. */
static llm_result llm__nodes_kv_copy(llm_backend_ctx *ctx, const int32_t *from, const int32_t *to, int count) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    llm_result r = n->be->kv_copy(n->ctx, from, to, count);
    llm__wire *w = &n->l->out;
    const void *p[2] = {from, to};
    int64_t head = count;
    if (r || n->l->cfg.rank) return r;
    w->len = 0;
    w->reading = w->failed = 0;
    llm__wire_value(w, &head, sizeof head);
    for (int i = 0; i < 2; i++) llm__wire_bytes(w, &p[i], (size_t)count * sizeof *from);
    return w->failed ? llm__nomem() : llm__link_tell(n->l, LLM__FRAME_KV_COPY, w->data, w->len);
}

/* Pages go out, to host memory or a file, rank by rank: process 0 gets those of others over the connection. */
static llm_result llm__nodes_kv_read(llm_backend_ctx *ctx, int rank, int32_t page, void *host) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    const int at = llm__nodes_here(n, rank);
    const int64_t head[4] = {rank, page, 0, 0};
    if (at >= 0) return n->be->kv_read(n->ctx, at, page, host);
    const llm_result r = llm__nodes_ask(n, rank, LLM__FRAME_KV_READ, head, NULL, 0, (size_t)n->page_bytes);
    if (!r) memcpy(host, n->l->in.data, (size_t)n->page_bytes);
    return r;
}

/* And come back. The answer is awaited, for the caller may use its memory again. */
static llm_result llm__nodes_kv_write(llm_backend_ctx *ctx, int rank, int32_t page, const void *host) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    const int at = llm__nodes_here(n, rank);
    const int64_t head[4] = {rank, page, 0, 0};
    if (at >= 0) return n->be->kv_write(n->ctx, at, page, host);
    return llm__nodes_ask(n, rank, LLM__FRAME_KV_WRITE, head, host, (size_t)n->page_bytes, 0);
}

/* A row of hidden states; stays until the next call. */
static const float *llm__nodes_buffer_row(llm_backend_ctx *ctx, int rank, const llm_buffer *b, int row) {
    llm__nodes_ctx *n = llm__nodes_of(ctx);
    int64_t head[4] = {0, row, 0, 0};
    if (llm__nodes_here(n, rank) >= 0) return n->be->buffer_row(n->ctx, llm__nodes_here(n, rank), b, row);
    while (n->made[head[0]].buffer != (const void *)b) head[0]++;
    const size_t bytes = (size_t)n->made[head[0]].cols * sizeof(float);
    LLM_FREE(n->row);
    n->row = LLM__NEW(float, n->made[head[0]].cols);
    if (n->row && !llm__nodes_ask(n, rank, LLM__FRAME_ROWS, head, NULL, 0, bytes)) memcpy(n->row, n->l->in.data, bytes);
    return n->row;
}

static void llm__nodes_pin(llm_backend_ctx *ctx, void *host, size_t bytes) {
    if (llm__nodes_of(ctx)->be->pin) llm__nodes_of(ctx)->be->pin(llm__nodes_of(ctx)->ctx, host, bytes);
}

/* Refuses what several processes cannot do together. */
static llm_result llm__nodes_fit(const llm_nodes *l, const llm_backend *inner, const llm_model *model, const llm_backend_config *b) {
    if (!inner->drawn || !inner->kv_memory || !inner->state)
        return llm__error(LLM_ERR_UNSUPPORTED, "nodes: backend %s computes in one process: device cuda was expected", inner->name);
    if (model->vision) return llm__error(LLM_ERR_UNSUPPORTED, "nodes: a model that sees pictures is served by one process");
    if (b->n_ranks % l->cfg.n)
        return llm__error(LLM_ERR_ARG,
                          "nodes: %d processes for tensor_parallel_size * pipeline_parallel_size = %d ranks: as many each expected",
                          (int)l->cfg.n, (int)b->n_ranks);
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__nodes_wrap(llm_nodes *l, const llm_backend *inner, const llm_model *model, llm_backend_config *b,
                                        const llm_backend **out) {
    static const llm_backend table = {.abi = LLM_BACKEND_ABI,
                                      .struct_size = sizeof(llm_backend),
                                      .name = "cuda",
                                      .open = llm__nodes_open,
                                      .close = llm__nodes_close,
                                      .describe = llm__nodes_describe,
                                      .buffer = llm__nodes_buffer,
                                      .weight = llm__nodes_weight,
                                      .weights_done = llm__nodes_weights_done,
                                      .kv_page_bytes = llm__nodes_kv_page_bytes,
                                      .kv_open = llm__nodes_kv_open,
                                      .memory_used = llm__nodes_memory_used,
                                      .begin_step = llm__nodes_begin_step,
                                      .embed = llm__nodes_embed,
                                      .rope = llm__nodes_rope,
                                      .residual = llm__nodes_residual,
                                      .norm = llm__nodes_norm,
                                      .linear = llm__nodes_linear,
                                      .qkv = llm__nodes_qkv,
                                      .attention = llm__nodes_attention,
                                      .mla = llm__nodes_mla,
                                      .route = llm__nodes_route,
                                      .experts = llm__nodes_experts,
                                      .gate = llm__nodes_gate,
                                      .gather = llm__nodes_gather,
                                      .all_reduce = llm__nodes_all_reduce,
                                      .logits = llm__nodes_logits,
                                      .end_step = llm__nodes_end_step,
                                      .wait = llm__nodes_wait,
                                      .logits_row = llm__nodes_logits_row,
                                      .buffer_row = llm__nodes_buffer_row,
                                      .kv_copy = llm__nodes_kv_copy,
                                      .kv_read = llm__nodes_kv_read,
                                      .kv_write = llm__nodes_kv_write,
                                      .drawn = llm__nodes_drawn,
                                      .kv_memory = llm__nodes_kv_memory,
                                      .send = llm__nodes_send,
                                      .receive = llm__nodes_receive,
                                      .state = llm__nodes_state,
                                      .pin = llm__nodes_pin,
                                      .conv = llm__nodes_conv,
                                      .recur = llm__nodes_recur,
                                      .streams = llm__nodes_streams,
                                      .index = llm__nodes_index,
                                      .distances = 1};
    const llm_result r = llm__nodes_fit(l, inner, model, b);
    if (r) return r;
    l->backend = inner;
    l->model = model;
    b->n_processes = l->cfg.n;
    b->process = l->cfg.rank;
    b->first_device = l->cfg.local_rank * (b->n_ranks / l->cfg.n);
    b->share = llm__link_share;
    b->lost = llm__link_lost;
    b->nodes = l;
    *out = &table;
    return LLM_OK;
}

/* ---- following */

/* A step of process 0's, begun here too. It was checked there by the same code as here will; who is let in knows the secret, and still
 * nothing is read behind the end of its frame. A step of a draft model that this process has not got cannot come from the same options. */
static llm_result llm__follow_step(llm_engine *e, llm__nodes_ctx *n, llm_draw *draws, llm_sampling *sampling) {
    llm_step step = LLM__ZERO;
    llm__wire_step(&n->l->in, &step, n, draws, sampling);
    if (n->l->in.failed || (step.shape.program && !e->drafter.net))
        return llm__link_fail(n->l, LLM_ERR_FORMAT, "a step of process 0 that cannot be read");
    const llm_result r = llm__net_begin(step.shape.program ? e->drafter.net : e->net, &step);
    return llm__nodes_checked(n, r);
}

/* The end of the oldest step, and what process 0 wants of it: this process's columns of the logits, row after row, where it said in the
 * step that the host reads some. Which columns these are both sides know from the operations that they recorded. */
static llm_result llm__follow_wait(llm__nodes_ctx *n) {
    const unsigned turn = n->waited % LLM_FLIGHT_MAX;
    int32_t begin, count;
    llm_result r = llm__nodes_wait((llm_backend_ctx *)(void *)n);
    llm__wire *w = &n->l->out;
    w->len = 0;
    w->reading = w->failed = 0;
    count = llm__nodes_part(n, n->l->cfg.rank, &begin);
    for (int32_t i = 0; i < n->step[turn].n_out && n->step[turn].rows && count && !r; i++) {
        const float *row = n->be->logits_row(n->ctx, i) + begin;
        if (!llm__wire_room(w, (size_t)count * sizeof *row)) return llm__link_fail(n->l, LLM_ERR_NOMEM, llm__out_of_memory);
        memcpy(w->data + w->len, row, (size_t)count * sizeof *row);
        w->len += (size_t)count * sizeof *row;
    }
    return r ? r : llm__link_send(n->l, 0, LLM__FRAME_REPLY, w->data, w->len);
}

static llm_result llm__follow_copy(llm__nodes_ctx *n, llm__wire *w) {
    const void *pages[2] = {NULL, NULL};
    int64_t count = 0;
    llm__wire_value(w, &count, sizeof count);
    if (count < 0 || count > INT32_MAX) w->failed = 1;
    for (int i = 0; i < 2 && !w->failed; i++) llm__wire_bytes(w, &pages[i], (size_t)count * sizeof(int32_t));
    if (w->failed) return llm__link_fail(n->l, LLM_ERR_FORMAT, "process 0 copies pages that it does not name");
    return llm__nodes_checked(n, n->be->kv_copy(n->ctx, (const int32_t *)pages[0], (const int32_t *)pages[1], (int)count));
}

/* What process 0 asks between steps. Frames come in its order, so a page that is read here is as its last step left it, and one that is
 * written is there before its next step. */
static llm_result llm__follow_ask(llm__nodes_ctx *n, int kind) {
    llm__wire *w = &n->l->in;
    int64_t head[4];
    const void *page = NULL;
    llm_backend_ctx *ctx = (llm_backend_ctx *)(void *)n;
    llm_result r = LLM_OK;
    if (kind == LLM__FRAME_KV_COPY) return llm__follow_copy(n, w);
    llm__wire_value(w, head, sizeof head);
    if (kind == LLM__FRAME_KV_WRITE) llm__wire_bytes(w, &page, (size_t)n->page_bytes);
    if (kind == LLM__FRAME_ROWS && !w->failed) {
        if (head[0] < 0 || head[0] >= (int64_t)n->n_made || llm__nodes_here(n, n->made[head[0]].rank) < 0) w->failed = 1;
        if (w->failed) return llm__link_fail(n->l, LLM_ERR_FORMAT, "process 0 asks for a buffer that is not here");
        const float *row = llm__nodes_buffer_row(ctx, n->made[head[0]].rank, (const llm_buffer *)n->made[head[0]].buffer, (int)head[1]);
        if (!row) return llm__link_fail(n->l, LLM_ERR_NOMEM, llm__out_of_memory);
        return llm__link_send(n->l, 0, LLM__FRAME_REPLY, row, (size_t)n->made[head[0]].cols * sizeof *row);
    }
    if (w->failed || llm__nodes_here(n, (int)head[0]) < 0)
        return llm__link_fail(n->l, LLM_ERR_FORMAT, "process 0 asks what cannot be read");
    if (page) {
        r = llm__nodes_checked(n, llm__nodes_kv_write(ctx, (int)head[0], (int32_t)head[1], page));
        return r ? r : llm__link_send(n->l, 0, LLM__FRAME_REPLY, NULL, 0);
    }
    n->l->out.len = 0;
    if (!llm__wire_room(&n->l->out, (size_t)n->page_bytes)) return llm__link_fail(n->l, LLM_ERR_NOMEM, llm__out_of_memory);
    r = llm__nodes_checked(n, llm__nodes_kv_read(ctx, (int)head[0], (int32_t)head[1], n->l->out.data));
    return r ? r : llm__link_send(n->l, 0, LLM__FRAME_REPLY, n->l->out.data, (size_t)n->page_bytes);
}

/* Frames until the last one. An engine that follows has no requests: its scheduler and its pages' books lie idle, and what it holds in the
 * pages is what process 0 says. */
LLM_API llm_result llm_engine_follow(llm_engine *e) {
    if (!e->p.c.nodes || !e->p.c.nodes->cfg.rank)
        return llm__error(LLM_ERR_ARG, "follow: an engine of nodes, not of process 0, was expected");
    llm__nodes_ctx *n = llm__nodes_of(e->ctx);
    llm_draw *draws = LLM__NEW(llm_draw, n->max_out + 1);
    llm_sampling *sampling = LLM__NEW(llm_sampling, n->max_out + 1);
    llm_result r = draws && sampling ? LLM_OK : llm__link_fail(n->l, LLM_ERR_NOMEM, llm__out_of_memory);
    for (int kind = 0; !r && kind != LLM__FRAME_END;) {
        r = llm__link_next(n->l, 0, &kind);
        if (r || kind == LLM__FRAME_END) break;
        if (kind == LLM__FRAME_STEP) r = llm__follow_step(e, n, draws, sampling);
        else if (kind == LLM__FRAME_WAIT) r = llm__follow_wait(n);
        else r = llm__follow_ask(n, kind);
    }
    LLM_FREE(draws);
    LLM_FREE(sampling);
    return r;
}
