#include "cpu/cpu_open.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/threads.h"
#include "cpu/isa.h"
#include "cpu/tuning.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"
#include "cpu/pack.h"
#include "cpu/products.h"
#include "cpu/experts.h"
#include "cpu/kv_cache.h"
#include "cpu/attention.h"
#include "cpu/backend.h"

/* Whole pages that count as memory in use. */
static void *llm__cpu_pages(llm_backend_ctx *ctx, size_t bytes) {
    void *p = llm__pages_get(bytes);
    if (p) ctx->memory += bytes;
    return p;
}

/* Frees what a slot holds. */
static void llm__lora_slot_clear(llm__lora_slot *s) {
    for (int i = 0; i < 2 * s->n; i++) llm__weight_free(s->w[i / 2][i % 2]);
    LLM_FREE(s->memory);
    memset(s, 0, sizeof *s);
}

LLM__PRIVATE void llm__cpu_close(llm_backend_ctx *ctx) {
    if (!ctx) return;
    size_t threads = ctx->pool ? (size_t)ctx->pool->n : 0;
    if (!ctx->pool_borrowed) llm__pool_close(ctx->pool);
    for (size_t i = 0; i < ctx->n_buffers; i++) {
        llm__pages_free(ctx->buffer[i]->act.q, ctx->buffer[i]->act_bytes);
        llm__pages_free(ctx->buffer[i]->b.data, ctx->buffer[i]->bytes);
        LLM_FREE(ctx->buffer[i]);
    }
    for (size_t i = 0; i < ctx->n_weights; i++) llm__weight_free(ctx->weight[i]);
    for (size_t i = 0; i < ctx->n_sites; i++) {
        for (int k = 0; k < ctx->site[i]->n_slots; k++) llm__lora_slot_clear(&ctx->site[i]->slot[k]);
        LLM_FREE(ctx->site[i]->slot);
        LLM_FREE(ctx->site[i]);
    }
    LLM_FREE(ctx->site);
    for (int r = 0; r < ctx->n_ranks; r++) {
        if (ctx->rank) llm__pages_free(ctx->rank[r].list, LLM__MAX_RECORDS * sizeof(llm__record));
        if (ctx->kv.base) llm__pages_free(ctx->kv.base[r], (size_t)(ctx->kv.page_bytes * ctx->kv.n_pages) + 64);
    }
    llm__pages_free(ctx->pass, LLM__MAX_PASSES * sizeof *ctx->pass);
    llm__pages_free(ctx->scratch, ctx->scratch_bytes * threads);
    llm__pages_free(ctx->experts, ctx->experts_bytes);
    llm__pages_free(ctx->scores, ctx->scores_bytes);
    llm__pages_free(ctx->logits, ctx->logits_bytes);
    LLM_FREE(ctx->step_memory);
    LLM_FREE((void *)ctx->given);
    LLM_FREE(ctx->kv.layer);
    LLM_FREE(ctx->kv.base);
    LLM_FREE(ctx->buffer);
    LLM_FREE(ctx->weight);
    LLM_FREE(ctx->rank);
    LLM_FREE(ctx);
}

/* Scratch of every thread of at least this size. */
static llm_result llm__cpu_scratch(llm_backend_ctx *ctx, size_t bytes) {
    if (bytes <= ctx->scratch_bytes) return LLM_OK;
    bytes = (bytes + 4095) & ~(size_t)4095;
    char *p = (char *)llm__pages_get(bytes * (size_t)ctx->pool->n);
    if (!p) return llm__nomem();
    llm__pages_free(ctx->scratch, ctx->scratch_bytes * (size_t)ctx->pool->n);
    ctx->memory += (bytes - ctx->scratch_bytes) * (size_t)ctx->pool->n;
    ctx->scratch = p;
    ctx->scratch_bytes = bytes;
    return LLM_OK;
}

/* The arrays of a step, one block of memory: tokens, positions (three rows of them at most), seq_of_row, seq_begin, seq_len, seq_rope, the
 * page tables, out_rows, seq_lora, spans, row_set, seq_keep, and the floats of seq_rope_base; the pointers of given stand apart. */
static llm_result llm__cpu_step_memory(llm_backend_ctx *ctx) {
    const llm_backend_config *c = &ctx->cfg;
    int ok = 1;
    uint64_t rows = (uint64_t)c->max_rows, seqs = (uint64_t)c->max_seqs;
    uint64_t n[12] = {rows, 3 * rows, rows, seqs + 1, seqs, seqs, llm__mul(seqs, (uint64_t)c->max_pages_per_seq, &ok), (uint64_t)c->max_out,
                      seqs, 2 * rows, rows, seqs},
             total = seqs;
    for (int i = 0; i < 12; i++) total = llm__add(total, n[i], &ok);
    ctx->step_memory = ok ? llm__calloc((size_t)total, sizeof(int32_t)) : NULL;
    ctx->given = c->given_cols ? LLM__NEW(const float *, rows) : NULL;
    if (!ctx->step_memory || (c->given_cols && !ctx->given)) return llm__nomem();
    int32_t *p = (int32_t *)ctx->step_memory;
    for (int i = 0; i < 12; p += n[i++]) ctx->arrays[i] = p;
    ctx->rope_base = (float *)(void *)p;
    ctx->memory += (size_t)total * sizeof(int32_t);
    return LLM_OK;
}

/* Scores of indexers: a row of the longest context a thread, on every rank. */
static llm_result llm__cpu_scores(llm_backend_ctx *ctx) {
    int ok = 1;
    const uint64_t stride = llm__align_up((uint64_t)ctx->cfg.indexed, LLM__BLOCK, &ok),
                   rows = (uint64_t)ctx->n_ranks * (uint64_t)ctx->pool->n;
    if (!ctx->cfg.indexed) return LLM_OK;
    ctx->scores_stride = (int64_t)stride;
    ctx->scores_bytes = (size_t)llm__mul(llm__mul(stride, rows, &ok), sizeof(float), &ok);
    if (ok) ctx->scores = (float *)llm__cpu_pages(ctx, ctx->scores_bytes);
    return ctx->scores ? LLM_OK : llm__nomem();
}

/* A context beside another one has what that one has found. */
static llm_result llm__cpu_tune(llm_backend_ctx *ctx) {
    const llm_backend_ctx *beside = ctx->cfg.beside;
    const llm__chip here = llm__chip_here();
    llm_result r = llm__tuning_of(ctx->cfg.tuning, &here, &ctx->tuning, &ctx->tuned);
    if (!beside || !beside->tuned) return r;
    ctx->tuning = beside->tuning;
    ctx->tuned = beside->tuned;
    return r;
}

/* Everything that open takes besides the context itself. On error the caller closes. */
static llm_result llm__cpu_open_parts(llm_backend_ctx *ctx) {
    int threads = ctx->cfg.n_threads ? ctx->cfg.n_threads : llm__cores();
    llm_result r = llm__isa_find(ctx->cfg.isa, &ctx->isa);
    if (r) return r;
    ctx->kernels = llm__kernels_of(ctx->isa);
    r = llm__cpu_tune(ctx);
    if (r) return r;
    ctx->rank = LLM__NEW(llm__rank, ctx->n_ranks);
    ctx->kv.base = LLM__NEW(uint8_t *, ctx->n_ranks);
    ctx->pool_borrowed = ctx->cfg.beside != NULL;
    ctx->pool = ctx->cfg.beside ? ctx->cfg.beside->pool : llm__pool_open(threads);
    if (!ctx->rank || !ctx->kv.base || !ctx->pool) return llm__nomem();
    for (int i = 0; i < ctx->n_ranks; i++) {
        ctx->rank[i].list = (llm__record *)llm__cpu_pages(ctx, LLM__MAX_RECORDS * sizeof(llm__record));
        if (!ctx->rank[i].list) return llm__nomem();
    }
    ctx->pass = (llm__stretch *)llm__cpu_pages(ctx, LLM__MAX_PASSES * sizeof *ctx->pass);
    if (!ctx->pass) return llm__nomem();
    llm_kv_type kv = ctx->cfg.kv_type;
    llm__kv_type_set(&ctx->kv, kv ? kv : llm__kv_auto(ctx->isa, ctx->cfg.compute));
    r = llm__cpu_scratch(ctx, (size_t)1 << 20);
    if (!r) r = llm__cpu_scores(ctx);
    return r ? r : llm__cpu_step_memory(ctx);
}

LLM__PRIVATE llm_result llm__cpu_open(const llm_backend_config *cfg, llm_backend_ctx **out) {
    *out = NULL;
    if (cfg->max_rows < 1 || cfg->max_out < 0 || cfg->max_seqs < 1 || cfg->max_pages_per_seq < 1)
        return llm__error(LLM_ERR_ARG,
                          "cpu backend: max_rows %d, max_out %d, max_seqs %d, max_pages_per_seq %d: expected at least 1 (max_out: 0)",
                          cfg->max_rows, cfg->max_out, cfg->max_seqs, cfg->max_pages_per_seq);
    if (cfg->n_threads < 0 || cfg->n_threads > 1024 || cfg->n_ranks < 0 || cfg->n_ranks > LLM__MAX_RANKS || cfg->kv_type < LLM_KV_AUTO ||
        cfg->kv_type > LLM_KV_INT4)
        return llm__error(LLM_ERR_ARG, "cpu backend: n_threads %d (0 to 1024), n_ranks %d (0 to %d), kv_type %d: out of range",
                          cfg->n_threads, cfg->n_ranks, LLM__MAX_RANKS, (int)cfg->kv_type);
    if (cfg->indexed < 0) return llm__error(LLM_ERR_ARG, "cpu backend: indexed %d: expected at least 0", cfg->indexed);
    if (cfg->n_stages < 0 || LLM__MAX(1, cfg->n_ranks) % LLM__MAX(1, cfg->n_stages))
        return llm__error(LLM_ERR_ARG, "cpu backend: %d ranks in %d stages", cfg->n_ranks, cfg->n_stages);
    llm_backend_ctx *ctx = LLM__NEW(llm_backend_ctx, 1);
    if (!ctx) return llm__nomem();
    ctx->cfg = *cfg;
    ctx->n_ranks = LLM__MAX(1, cfg->n_ranks);
    ctx->n_group = ctx->n_ranks / LLM__MAX(1, cfg->n_stages);
    llm_result r = llm__cpu_open_parts(ctx);
    if (r) llm__cpu_close(ctx);
    else *out = ctx;
    return r;
}

LLM__PRIVATE const char *llm__cpu_describe(llm_backend_ctx *ctx) {
    char tuning[96];
    llm__tuning_words(&ctx->tuning, ctx->tuned ? ctx->tuned : "usual", tuning, sizeof tuning);
    snprintf(ctx->name, sizeof ctx->name, "%s, %d thread%s; %s", llm__isa_name(ctx->isa), ctx->pool->n, ctx->pool->n == 1 ? "" : "s",
             tuning);
    return ctx->name;
}

LLM__PRIVATE llm_result llm__cpu_buffer_new(llm_backend_ctx *ctx, int rank, int64_t rows, int64_t cols, llm_buffer **out) {
    int ok = 1;
    *out = NULL;
    if (rank < 0 || rank >= ctx->n_ranks || rows < 1 || cols < 1 || cols > INT32_MAX / 4)
        return llm__error(LLM_ERR_ARG, "buffer: bad rank, rows or columns");
    uint64_t stride = ((uint64_t)cols + 15) & ~(uint64_t)15;
    if (stride % 512 == 0) stride += 16; /* rows a power of two apart would share few cache sets */
    uint64_t bytes = llm__mul(llm__mul(stride, (uint64_t)rows, &ok), sizeof(float), &ok);
    if (!ok || !llm__grow((void **)&ctx->buffer, &ctx->buffer_cap, ctx->n_buffers + 1, sizeof *ctx->buffer)) return llm__nomem();
    llm__cpu_buffer *b = LLM__NEW(llm__cpu_buffer, 1);
    if (!b) return llm__nomem();
    ctx->buffer[ctx->n_buffers++] = b;
    b->b.rows = rows;
    b->b.cols = cols;
    b->b.stride = (int64_t)stride;
    b->b.rank = rank;
    b->bytes = (size_t)bytes;
    b->b.data = (float *)llm__cpu_pages(ctx, b->bytes);
    b->uses.written.interval = b->uses.read.interval = -1;
    size_t blocks = (size_t)(rows * (int64_t)(stride / 16 + 1)); /* two planes of blocks of 32 */
    b->act_bytes = llm__act_place(&b->act, NULL, blocks);
    uint8_t *act = (uint8_t *)llm__pages_get(b->act_bytes); /* takes memory only when it is used */
    if (!b->b.data || !act) return llm__nomem();
    llm__act_place(&b->act, act, blocks);
    b->b.act = &b->act;
    *out = &b->b;
    return llm__cpu_scratch(ctx, (size_t)stride * 4 * sizeof(float));
}

/* Memory that the experts of all layers share, one layer at a time: for max_rows rows with eight experts each, but at most 256 MB (then
 * rows go in turns), and at least for one row with all of them. Where inputs are told, whatever a step needs: they are all there at its
 * end. It takes memory only when it is used. */
static llm_result llm__cpu_experts_memory(llm_backend_ctx *ctx, const llm_weight_desc *d) {
    const int64_t most = ctx->cfg.trace_inputs ? INT64_MAX : (int64_t)256 << 20;
    int64_t n = d->n_experts, k = LLM__MIN(n, ctx->cfg.trace_inputs ? 32 : 8), out = d->rows / LLM__MAX(n, 1),
            wide = LLM__MAX(d->cols, out);
    size_t one = llm__experts_scratch(1, n, n, wide, wide), many = llm__experts_scratch(ctx->cfg.max_rows, k, n, wide, wide);
    size_t bytes = LLM__MAX(one, LLM__MIN(many, (size_t)most));
    if (bytes <= ctx->experts_bytes) return LLM_OK;
    llm__pages_free(ctx->experts, ctx->experts_bytes);
    ctx->experts = llm__pages_get(bytes);
    ctx->experts_bytes = ctx->experts ? bytes : 0;
    return ctx->experts ? LLM_OK : llm__nomem();
}

LLM__PRIVATE llm_result llm__cpu_weight(llm_backend_ctx *ctx, int rank, const llm_weight_desc *desc, llm_weight **out) {
    *out = NULL;
    if (rank < 0 || rank >= ctx->n_ranks) return llm__error(LLM_ERR_ARG, "%s: rank %d of %d", desc->name, rank, ctx->n_ranks);
    if (!llm__grow((void **)&ctx->weight, &ctx->weight_cap, ctx->n_weights + 1, sizeof *ctx->weight)) return llm__nomem();
    llm_result r = llm__weight_new(desc, ctx->cfg.compute, out);
    if (r) return r;
    ctx->weight[ctx->n_weights++] = *out;
    if (desc->role == LLM_ROLE_EXPERTS || desc->role == LLM_ROLE_EXPERTS_GATE_UP) return llm__cpu_experts_memory(ctx, desc);
    if (desc->role == LLM_ROLE_HEAD) ctx->rank[rank].vocab = LLM__MAX(ctx->rank[rank].vocab, desc->rows);
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__cpu_lora_site(llm_backend_ctx *ctx, int rank, int n_slots, llm_lora_site **out) {
    *out = NULL;
    if (rank < 0 || rank >= ctx->n_ranks || n_slots < 1) return llm__error(LLM_ERR_ARG, "lora_site: rank %d, %d slots", rank, n_slots);
    if (!llm__grow((void **)&ctx->site, &ctx->site_cap, ctx->n_sites + 1, sizeof *ctx->site)) return llm__nomem();
    llm_lora_site *site = LLM__NEW(llm_lora_site, 1);
    if (!site) return llm__nomem();
    ctx->site[ctx->n_sites++] = site;
    site->slot = LLM__NEW(llm__lora_slot, n_slots);
    if (!site->slot) return llm__nomem();
    site->n_slots = n_slots;
    *out = site;
    return LLM_OK;
}

/* Memory for the weights of a slot, which its thread packs by itself: other threads may be in the middle of a step. */
static llm_result llm__lora_slot_pack(llm__lora_slot *s) {
    size_t total = 64;
    for (int i = 0; i < 2 * s->n; i++) total += (s->w[i / 2][i % 2]->bytes + 63) & ~(size_t)63;
    uint8_t *at = (uint8_t *)(s->memory = llm__calloc(total, 1));
    if (!at) return llm__nomem();
    at += 64 - ((uintptr_t)at & 63);
    for (int i = 0; i < 2 * s->n; i++) {
        llm_weight *w = s->w[i / 2][i % 2];
        w->memory = at;
        if (llm__weight_is_plain(w)) w->f32 = (float *)(void *)at;
        llm__weight_pack(w, 0, 1);
        at += (w->bytes + 63) & ~(size_t)63;
    }
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__cpu_lora_put(LLM__UNUSED llm_backend_ctx *ctx, LLM__UNUSED int rank, llm_lora_site *site, int slot,
                                          const llm_lora_part *parts, int n) {
    llm_result r = LLM_OK;
    llm__lora_slot *s = &site->slot[slot];
    llm__lora_slot_clear(s);
    for (int i = 0; i < n && !r; i++) {
        s->row[i] = parts[i].row;
        s->n = i + 1;
        r = llm__weight_new(parts[i].a, LLM_COMPUTE_F32, &s->w[i][0]);
        if (!r) r = llm__weight_new(parts[i].b, LLM_COMPUTE_F32, &s->w[i][1]);
    }
    if (!r && n) r = llm__lora_slot_pack(s);
    if (r) llm__lora_slot_clear(s);
    return r;
}

/* A pass is a weight, on which all threads work. What was packed before takes no memory in its file from then on, so that at no time all
 * weights are there twice. */
static void llm__cpu_pack(void *arg, int pass, int thread, int n_threads) {
    llm_weight **w = &((llm_backend_ctx *)arg)->weight[((llm_backend_ctx *)arg)->n_packed + (size_t)pass];
    if (pass && thread == pass % n_threads) llm__weight_rest(w[-1]);
    llm__weight_pack(*w, thread, n_threads);
}

LLM__PRIVATE llm_result llm__cpu_weights_done(llm_backend_ctx *ctx) {
    int64_t vocab = 0;
    int ok = 1;
    llm_result made = llm__weights_allocate(ctx->weight, ctx->n_weights);
    if (made) return made;
    llm__pool_run(ctx->pool, llm__cpu_pack, ctx, (int)(ctx->n_weights - ctx->n_packed));
    ctx->n_packed = ctx->n_weights;
    if (!ctx->tuned) ctx->tuned = llm__tuning_measure(ctx) ? "measured" : "usual, nothing could be measured";
    if (ctx->logits) ctx->memory -= ctx->logits_bytes;
    llm__pages_free(ctx->logits, ctx->logits_bytes);
    ctx->logits = NULL;
    for (int r = 0; r < ctx->n_ranks; r++) vocab += ctx->rank[r].vocab;
    ctx->logits_stride = (vocab + 15) & ~(int64_t)15;
    ctx->logits_rows = ctx->cfg.max_out;
    ctx->logits_bytes = (size_t)llm__mul(llm__mul((uint64_t)ctx->logits_stride, (uint64_t)ctx->logits_rows, &ok), sizeof(float), &ok);
    if (!ctx->logits_bytes) return ok ? LLM_OK : llm__nomem();
    ctx->logits = (float *)llm__cpu_pages(ctx, ctx->logits_bytes);
    return ctx->logits ? LLM_OK : llm__nomem();
}

/* Lays out a page, which holds page_tokens tokens of all layers, one layer behind the other: see llm__kv_place_layer. `layer` may be NULL,
 * then only the size is wanted. 0: it does not fit. */
static int64_t llm__kv_layout(const llm__kv_cache *kv, int n_layers, const llm_kv_layer *layers, int page_tokens, llm__kv_place *layer) {
    int ok = page_tokens >= LLM__GROUP && page_tokens <= 4096 && page_tokens % LLM__GROUP == 0 && n_layers >= 0;
    uint64_t at = 0;
    for (int i = 0; ok && i < n_layers; i++) {
        llm__kv_place place;
        const llm_kv_layer *l = &layers[i];
        if (l->n_state < 0 || l->n_kv_heads < !l->n_state || l->head_dim < (l->n_kv_heads > 0) || l->head_dim > 8192 || l->v_head_dim < 0 ||
            l->v_head_dim > 8192)
            return 0;
        at = llm__kv_place_layer(kv, &layers[i], page_tokens, at, &place, &ok);
        if (layer) layer[i] = place;
    }
    return ok ? (int64_t)at : 0;
}

LLM__PRIVATE int64_t llm__cpu_kv_page_bytes(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens) {
    return llm__kv_layout(&ctx->kv, n_layers, layers, page_tokens, NULL);
}

/* Takes each page of memory now, so that a later shortage cannot hit a running step. */
static void llm__cpu_kv_touch(void *arg, LLM__UNUSED int pass, int thread, int n_threads) {
    llm__kv_cache *kv = &((llm_backend_ctx *)arg)->kv;
    int64_t bytes = kv->page_bytes * kv->n_pages, from = bytes / n_threads * thread,
            to = thread == n_threads - 1 ? bytes : from + bytes / n_threads;
    for (int r = 0; r < ((llm_backend_ctx *)arg)->n_ranks; r++)
        for (int64_t i = from; i < to; i += 4096) ((volatile uint8_t *)kv->base[r])[i] = 0;
}

LLM__PRIVATE llm_result llm__cpu_kv_open(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens, int64_t n_pages) {
    llm__kv_cache *kv = &ctx->kv;
    int ok = 1;
    if (kv->layer) return llm__error(LLM_ERR_ARG, "kv_open: called twice");
    kv->layer = LLM__NEW(llm__kv_place, n_layers > 0 ? n_layers : 1);
    if (!kv->layer) return llm__nomem();
    kv->page_bytes = llm__kv_layout(kv, n_layers, layers, page_tokens, kv->layer);
    if ((n_layers && !kv->page_bytes) || n_pages < 1 || n_pages > INT32_MAX)
        return llm__error(LLM_ERR_ARG,
                          "kv_open: %d layers, %d tokens a page, %lld pages: expected a multiple of 16 tokens and at least a page",
                          n_layers, page_tokens, (long long)n_pages);
    uint64_t bytes = llm__add(llm__mul((uint64_t)kv->page_bytes, (uint64_t)n_pages, &ok), 64, &ok);
    for (int r = 0; r < ctx->n_ranks; r++) {
        kv->base[r] = ok ? (uint8_t *)llm__cpu_pages(ctx, (size_t)bytes) : NULL;
        if (!kv->base[r])
            return llm__error(LLM_ERR_NOMEM, "kv cache: no memory for %lld pages of %lld bytes", (long long)n_pages,
                              (long long)kv->page_bytes);
        kv->n_pages = n_pages;
    }
    kv->n_layers = n_layers;
    kv->page_tokens = page_tokens;
    if (ctx->cfg.kv_prealloc) llm__pool_run(ctx->pool, llm__cpu_kv_touch, ctx, 1);
    for (int i = 0; i < n_layers; i++) {
        int vd = layers[i].v_head_dim ? layers[i].v_head_dim : layers[i].head_dim;
        size_t floats = llm__attend_floats(layers[i].head_dim, vd);
        if (ctx->cfg.indexed) floats = LLM__MAX(floats, llm__attend_row_floats(vd, vd));
        llm_result r = llm__cpu_scratch(ctx, floats * sizeof(float));
        if (r) return r;
    }
    return LLM_OK;
}

LLM__PRIVATE int64_t llm__cpu_memory_used(llm_backend_ctx *ctx) {
    int64_t n = (int64_t)ctx->memory;
    for (size_t i = 0; i < ctx->n_weights; i++) n += (int64_t)ctx->weight[i]->bytes;
    for (size_t i = 0; i < ctx->n_buffers; i++) n += (int64_t)ctx->buffer[i]->act_bytes;
    return n + (int64_t)ctx->experts_bytes;
}
