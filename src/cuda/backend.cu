/* backend: the table: opening, recording, closing.
 *
 * Recording copies the operation's struct into the list of its rank and checks only what would lead outside of memory; buffers and weights
 * it points to live as long as the context. Order of calls, as the engine makes them:
 *
 *     open -> buffer, weight, lora_site ... -> weights_done -> kv_memory, kv_page_bytes -> kv_open
 *          -> (begin_step, operations, end_step, wait) ...  beside them: kv_copy, kv_read, kv_write, lora_put -> close
 *
 * A draft model adds its weights and another weights_done before kv_open. close takes a context that any of these left halfway.
 *
 * Mistakes. A bad argument at open time, or in begin_step, is refused with a sentence and nothing has changed. What goes wrong while
 * recording (operations return nothing) or on a device is kept, told by end_step and wait, and stays: a device that met a bad address gives
 * no more answers, so the engine fails its requests and says why. A full device while opening says what it was for, how much it needs and
 * how much is free. An adapter that does not fit is its own loader's mistake, which the next one does not see. */

/* A new record; with a full list, or after a mistake, one that nobody reads: operations return nothing, so the caller goes on recording
 * until end_step tells him. */
static record *record_add(llm_backend_ctx *ctx, int index, op_kind kind) {
    rank *r = &ctx->ranks[index];
    if (r->n >= MAX_RECORDS) {
        ctx_fail(ctx, LLM_ERR_LIMIT, "too many operations in one step");
        r->n = MAX_RECORDS - 1;
    }
    record *rec = &r->list[r->n++];
    rec->kind = kind;
    return rec;
}

static void cuda_embed(llm_backend_ctx *ctx, int index, const llm_embed_op *op) {
    if (op->given && op->given_col + op->dst->cols > ctx->cfg.given_cols) ctx_fail(ctx, LLM_ERR_ARG, "embed: more columns than are given");
    record_add(ctx, index, OP_EMBED)->op.embed = *op;
}

/* Which variant a sequence has is in the block that begin_step wrote, so it is checked here, where the number of variants is known. */
static void cuda_rope(llm_backend_ctx *ctx, int index, const llm_rope_op *op) {
    const int32_t *variants = step_staged(ctx).seq_rope;
    for (int s = 0; s < ctx->shape.n_seqs; s++)
        if (variants[s] < 0 || variants[s] >= op->n_variants) ctx_fail(ctx, LLM_ERR_ARG, "seq_rope: not a variant of the rope operation");
    record_add(ctx, index, OP_ROPE)->op.rope = *op;
}

/* y, if there is one, is summed over the ranks first: see run_record. */
static void cuda_residual(llm_backend_ctx *ctx, int index, const llm_residual_op *op) {
    record_add(ctx, index, OP_RESIDUAL)->op.residual = *op;
}
static void cuda_norm(llm_backend_ctx *ctx, int index, const llm_norm_op *op) { record_add(ctx, index, OP_NORM)->op.norm = *op; }
static void cuda_linear(llm_backend_ctx *ctx, int index, const llm_linear_op *op) { record_add(ctx, index, OP_LINEAR)->op.linear = *op; }

/* A layer and heads that the KV cache has. Twin: llm__check_heads. */
static void check_heads(llm_backend_ctx *ctx, const char *what, int layer, int n_heads, int n_kv_heads) {
    if (layer < 0 || layer >= ctx->n_layers || n_kv_heads < 1 || n_heads % n_kv_heads) ctx_fail(ctx, LLM_ERR_ARG, what);
}

static void cuda_qkv(llm_backend_ctx *ctx, int index, const llm_qkv_op *op) {
    check_heads(ctx, "qkv: layer or heads do not fit the KV cache", op->layer, op->n_heads, op->n_kv_heads);
    record_add(ctx, index, OP_QKV)->op.qkv = *op;
}

static void cuda_attention(llm_backend_ctx *ctx, int index, const llm_attention_op *op) {
    check_heads(ctx, "attention: layer or heads do not fit the KV cache", op->layer, op->n_heads, op->n_kv_heads);
    record_add(ctx, index, OP_ATTENTION)->op.attention = *op;
}

/* The slots of the step's adapters must be some of the site's. */
static void lora_check(llm_backend_ctx *ctx, const llm_lora_site *site) {
    const int32_t *slots = step_staged(ctx).seq_lora;
    for (int s = 0; site && s < ctx->shape.n_seqs; s++)
        if (slots[s] < -1 || slots[s] >= site->n_slots) ctx_fail(ctx, LLM_ERR_ARG, "lora: the site has no such slot");
}

/* The layer's page must have a latent with its key, and no values. */
static void cuda_mla(llm_backend_ctx *ctx, int index, const llm_mla_op *op) {
    if (op->layer < 0 || op->layer >= ctx->n_layers || ctx->places[op->layer].head_dim != op->rank + op->rope_dim ||
        ctx->places[op->layer].v_head_dim)
        ctx_fail(ctx, LLM_ERR_ARG, "mla: the layer does not fit the KV cache");
    lora_check(ctx, op->lora);
    record_add(ctx, index, OP_MLA)->op.mla = *op;
}

/* k of the experts that the best groups have must be there to be chosen. */
static void cuda_route(llm_backend_ctx *ctx, int index, const llm_route_op *op) {
    int size = op->n_group > 1 ? op->n_experts / op->n_group : op->n_experts;
    if (op->k < 1 || op->k > op->n_experts || (op->n_group > 1 && (op->n_experts % op->n_group || op->k > size * op->topk_group)))
        ctx_fail(ctx, LLM_ERR_ARG, "route: more experts to choose than there are");
    record_add(ctx, index, OP_ROUTE)->op.route = *op;
}

static void cuda_experts(llm_backend_ctx *ctx, int index, const llm_experts_op *op) {
    lora_check(ctx, op->up_lora);
    lora_check(ctx, op->down_lora);
    record_add(ctx, index, OP_EXPERTS)->op.experts = *op;
}
static void cuda_gate(llm_backend_ctx *ctx, int index, const llm_gate_op *op) { record_add(ctx, index, OP_GATE)->op.gate = *op; }

/* All that is behind it works on the n_out rows whose logits are wanted. */
static void cuda_gather(llm_backend_ctx *ctx, int index, const llm_gather_op *op) {
    const int parts = max_int(op->parts, 1);
    const int32_t *rows = step_staged(ctx).out_rows;
    if ((op->mean ? 1 : parts) * op->src->cols > op->dst->cols - op->dst_col)
        ctx_fail(ctx, LLM_ERR_ARG, "gather: the rows do not fit side by side");
    for (int i = 0; i < ctx->shape.n_out && parts > 1; i++)
        if (rows[i] > ctx->shape.n_rows - parts) ctx_fail(ctx, LLM_ERR_ARG, "gather: rows behind the last one");
    record_add(ctx, index, OP_GATHER)->op.gather = *op;
}

/* Whole rows of the buffer are summed, strides too: one piece of memory is what NCCL takes. */
static void cuda_all_reduce(llm_backend_ctx *ctx, int index, llm_rows rows, llm_buffer *buf, int32_t n) {
    record *rec = record_add(ctx, index, OP_ALL_REDUCE);
    rec->op.reduce.rows = rows;
    rec->op.reduce.buf = buf;
    rec->op.reduce.n = n;
}

/* x goes on to the next stage. */
static void cuda_send(llm_backend_ctx *ctx, int index, const llm_buffer *src) { record_add(ctx, index, OP_SEND)->op.gather.src = src; }

/* src: of the rank that sends, which has recorded it. */
static void cuda_receive(llm_backend_ctx *ctx, int index, llm_buffer *dst, const llm_buffer *src) {
    if (dst->stride != src->stride) ctx_fail(ctx, LLM_ERR_ARG, "receive: rows of another width");
    record_add(ctx, index, OP_RECEIVE)->op.gather.dst = dst;
}

/* With several ranks each has its share of the vocabulary, in order of the ranks. */
static void cuda_logits(llm_backend_ctx *ctx, int index, const llm_logits_op *op) {
    if (op->vocab_begin < 0 || (int64_t)op->vocab_begin + op->head->rows > ctx->vocab ||
        (ctx->n_world > 1 && op->head->rows != ctx->ranks[index].vocab))
        ctx_fail(ctx, LLM_ERR_ARG, "logits: more of them than the output weights have rows");
    record_add(ctx, index, OP_LOGITS)->op.logits = *op;
}

/* Recorded whenever a sequence of the step has an adapter, also where no adapter has anything for this layer: what is recorded may depend
 * on the shape only. Twin: llm__cpu_lora. */
static void cuda_lora(llm_backend_ctx *ctx, int index, const llm_lora_op *op) {
    lora_check(ctx, op->site);
    record_add(ctx, index, OP_LORA)->op.lora = *op;
}

/* The layer's page must have values for a whole row, in parts. Twin: llm__cpu_state. */
static void cuda_state(llm_backend_ctx *ctx, int index, const llm_state_op *op) {
    const kv_place *p = op->layer >= 0 && op->layer < ctx->n_layers ? &ctx->places[op->layer] : NULL;
    if (!p || (int64_t)p->n_kv_heads * p->v_head_dim != op->buf->cols)
        ctx_fail(ctx, LLM_ERR_ARG, "state: the layer does not fit the KV cache");
    record_add(ctx, index, OP_STATE)->op.state = *op;
}

/* Rows start on vectors of 16 bytes. */
static llm_result cuda_buffer(llm_backend_ctx *ctx, int index, int64_t rows, int64_t cols, llm_buffer **out) {
    *out = NULL;
    if (index < 0 || index >= ctx->n_ranks || rows < 1 || cols < 1 || cols > INT32_MAX / 4 || rows > INT32_MAX)
        return fail_with(&ctx->cfg, LLM_ERR_ARG, "buffer: bad rank, rows or columns");
    llm_buffer *b = list_new(&ctx->buffers, &ctx->n_buffers, &ctx->buffer_cap);
    if (!b) return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of memory");
    rank *r = &ctx->ranks[index];
    select_device(r);
    b->rows = rows;
    b->cols = cols;
    b->stride = (cols + 3) & ~(int64_t)3;
    b->rank = index;
    b->data = (float *)device_memory(r, (size_t)(b->rows * b->stride) * sizeof(float), "buffers");
    *out = b;
    return rank_result(r);
}

/* Pinned memory of all steps that may be under way, in the place of what was there; 0: none. Pinned, for only from there a copy runs beside
 * the kernels. */
static int pinned_blocks(llm_backend_ctx *ctx, void **to, size_t bytes) {
    for (unsigned i = 0; i < ctx->n_flight; i++) {
        cudaFreeHost(to[i]);
        to[i] = NULL;
        if (!rank_ok(&ctx->ranks[0], cudaMallocHost(&to[i], bytes ? bytes : 16), "pinned memory")) return 0;
        memset(to[i], 0, bytes ? bytes : 16);
    }
    return 1;
}

/* 1: the devices of ranks [first, first + n) can read each other's memory; then they may from now on. */
static int peers_reach(llm_backend_ctx *ctx, int first, int n) {
    for (int i = first; i < first + n; i++)
        for (int k = first; k < first + n; k++) {
            int can = 0;
            if (getenv("LLM_CUDA_NO_PEERS")) return 0;
            if (i == k || ctx->one_device) continue;
            if (cudaDeviceCanAccessPeer(&can, ctx->ranks[i].device, ctx->ranks[k].device) != cudaSuccess || !can) return 0;
            select_device(&ctx->ranks[i]);
            cudaError_t e = cudaDeviceEnablePeerAccess(ctx->ranks[k].device, 0);
            cudaGetLastError();
            if (e != cudaSuccess && e != cudaErrorPeerAccessAlreadyEnabled) return 0;
        }
    return 1;
}

/* Boxes and flags of every rank for sums over the residual stream, as wide as the widest embedding or head. Where devices cannot reach
 * each other, NCCL does all. */
static void peers_open(llm_backend_ctx *ctx) {
    int64_t width = 0, rows = ctx->cfg.batch_invariant ? ctx->cfg.max_rows : min_int(ONE_SHOT_ROWS, ctx->cfg.max_rows);
    for (int i = 0; i < ctx->n_weights; i++)
        if (ctx->all_weights[i]->role == LLM_ROLE_EMBED || ctx->all_weights[i]->role == LLM_ROLE_HEAD)
            width = ctx->all_weights[i]->cols > width ? ctx->all_weights[i]->cols : width;
    if (ctx->n_group == 1 || ctx->n_group > ctx->n_ranks || width <= ctx->peer_width) return; /* in another process: NCCL does all */
    ctx->peer_width = width;
    for (int first = 0; first < ctx->n_ranks; first += ctx->n_group) {
        if (!peers_reach(ctx, first, ctx->n_group)) continue;
        for (int i = first; i < first + ctx->n_group; i++) {
            rank *r = &ctx->ranks[i];
            select_device(r);
            float *box = (float *)device_memory(r, (size_t)(2 * rows * width) * sizeof *box, "sums over ranks");
            uint32_t *flags = (uint32_t *)device_memory(r, (size_t)(rows * MAX_RANKS) * sizeof *flags, "sums over ranks");
            r->peers.turn = (uint32_t *)device_memory(r, (size_t)rows * sizeof *flags, "sums over ranks");
            for (int k = first; k < first + ctx->n_group; k++) {
                ctx->ranks[k].peers.box[i - first] = box;
                ctx->ranks[k].peers.flags[i - first] = flags;
            }
            r->peers.index = i - first;
            r->peers.rows = (int32_t)rows;
            r->peers.width = width;
            r->peers.stop = ctx->stop_waiting;
            r->peers.n = ctx->n_group;
            rank_ok(r, cudaStreamSynchronize(r->stream), "sums over ranks");
        }
    }
}

/* all (processes, each): ours is there, then the others' are too. */
static llm_result world_share(llm_backend_ctx *ctx, void *all, size_t each) {
    return ctx->n_world > ctx->n_ranks ? ctx->cfg.share(ctx->cfg.nodes, all, each) : LLM_OK;
}

/* After the last weight: logits of every rank, memory for drawing, and what operations share. Called again after a draft model, whose
 * vocabulary may be another. */
static llm_result cuda_weights_done(llm_backend_ctx *ctx) {
    size_t out = (size_t)max_int(ctx->cfg.max_out, 1), scratch = 64 << 20, total = 0, left = 0;
    ctx->vocab = ctx->widest = 0;
    for (int i = 0; i < ctx->n_ranks; i++) ctx->vocabs[ctx->first + i] = ctx->ranks[i].vocab;
    llm_result result = world_share(ctx, ctx->vocabs, (size_t)ctx->n_ranks * sizeof *ctx->vocabs);
    if (result) return result;
    for (int i = 0; i < ctx->n_world; i++) {
        ctx->vocab += ctx->vocabs[i];
        ctx->widest = ctx->vocabs[i] > ctx->widest ? ctx->vocabs[i] : ctx->widest;
    }
    size_t bent = masks_bytes(ctx) + LLM_DRAW_CHANGES * sizeof(change);
    for (int i = 0; i < ctx->n_ranks; i++) {
        rank *r = &ctx->ranks[i];
        select_device(r);
        for (int k = 0; k < 2; k++) { /* the stage has done its work */
            if (r->stage_used[k]) rank_ok(r, cudaEventSynchronize(r->stage_free[k]), "loading");
            if (r->stage[k]) {
                cudaFreeHost(r->stage[k]);
                device_free(r, r->stage_device[k], (size_t)r->stage_bytes);
                cudaEventDestroy(r->stage_free[k]);
            }
            r->stage[k] = NULL;
            r->stage_free[k] = NULL;
            r->stage_used[k] = 0;
        }
        if (r->vocab) r->logits = (float *)device_memory(r, out * (size_t)ctx->widest * 4, "logits");
        if (r->vocab && ctx->cfg.device_draws) {
            r->weights = (float *)device_memory(r, out * (size_t)ctx->vocab * 4, "sampler");
            r->parts = (draw_part *)device_memory(r, out * (size_t)draw_parts(ctx->vocab) * sizeof *r->parts, "sampler");
            r->bent = (uint8_t *)device_memory(r, bent, "sampler");
            r->view.masks = (uint32_t *)r->bent;
            r->view.changes = (change *)(r->bent + masks_bytes(ctx));
            if (ctx->n_group > 1) r->gathered = (float *)device_memory(r, out * (size_t)ctx->widest * (size_t)ctx->n_group * 4, "sampler");
            if (ctx->n_group > 1) r->flat = (float *)device_memory(r, out * (size_t)ctx->vocab * 4, "sampler");
        }
        cudaMemGetInfo(&left, &total);
        rank_scratch(r, total >= (size_t)8 << 30 ? (size_t)256 << 20 : scratch / 4);
        if (ctx->cfg.compute != LLM_COMPUTE_F32) cublas_open(r, total >= (size_t)8 << 30 ? (size_t)32 << 20 : 0);
        rank_ok(r, cudaStreamSynchronize(r->stream), "loading");
        if (r->failed) return rank_result(r);
    }
    peers_open(ctx);
    for (int i = 0; i < ctx->n_ranks; i++)
        if (ctx->ranks[i].failed) return rank_result(&ctx->ranks[i]);
    if (ctx->vocab && (!pinned_blocks(ctx, (void **)ctx->logits, out * (size_t)ctx->vocab * 4) ||
                       !pinned_blocks(ctx, (void **)ctx->drawn, out * sizeof(llm_drawn)) ||
                       (ctx->cfg.device_draws && !pinned_blocks(ctx, (void **)ctx->bent, bent))))
        return rank_result(&ctx->ranks[0]);
    return ctx_result(ctx);
}

/* Lays out a page; places may be NULL, then only the size is wanted. 0: it does not fit. Twin: llm__kv_layout. */
static int64_t kv_layout(int type, int n_layers, const llm_kv_layer *layers, int page_tokens, kv_place *places) {
    int64_t at = 0, bytes = type == LLM_KV_F32 ? 4 : type <= LLM_KV_BF16 ? 2 : 1, halve = type == LLM_KV_INT4;
    if (page_tokens < 16 || page_tokens > 4096 || page_tokens % 16 || n_layers < 0) return 0;
    for (int i = 0; i < n_layers; i++) {
        const llm_kv_layer *s = &layers[i];
        int vd = s->v_head_dim ? s->v_head_dim : s->head_dim;
        if (s->n_kv_heads < 1 || s->head_dim < 1 || s->head_dim > 1024 || s->v_head_dim < 0 || (s->v_head_dim && vd > MAX_VALUES)) return 0;
        kv_place p;
        p.n_kv_heads = s->n_kv_heads;
        p.head_dim = s->head_dim;
        p.v_head_dim = s->v_head_dim;
        p.k_elements = halve ? (s->head_dim + 1) / 2 : s->head_dim;
        p.v_elements = halve ? (s->v_head_dim + 1) / 2 : s->v_head_dim;
        p.offset = at;
        p.v_offset = (page_tokens * bytes * p.k_elements + 63) & ~(int64_t)63;
        p.scale_offset = (p.v_offset + page_tokens * bytes * p.v_elements + 63) & ~(int64_t)63;
        p.head_bytes = (p.scale_offset + (bytes == 1 ? page_tokens * 16 : 0) + 63) & ~(int64_t)63;
        at += p.head_bytes * p.n_kv_heads;
        if (places) places[i] = p;
    }
    return at;
}

/* Of one rank; 0: pages of such layers are not possible. */
static int64_t cuda_kv_page_bytes(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens) {
    return kv_layout(ctx->kv_type, n_layers, layers, page_tokens, NULL);
}

/* Every shape of the model's matrices once through the product, with the most rows that a step may have, and none of them there: nothing is
 * computed or written, but what the driver and cuBLASLt load and keep at the first use is taken before memory is shared out. */
static void profile_products(rank *r) {
    const llm_backend_ctx *ctx = r->ctx;
    const int32_t most = r->scratch_bytes < (size_t)64 << 20 ? min_int(ctx->cfg.max_rows, 64) : ctx->cfg.max_rows;
    const int32_t rows[3] = {1, min_int(4, most), most};
    for (int i = 0; i < ctx->n_weights; i++) {
        const llm_weight *w = ctx->all_weights[i];
        int known = w->rank != r->index || !w->n_parts || w->n_groups > 1 || w->role == LLM_ROLE_EMBED;
        for (int k = 0; k < i && !known; k++) {
            const llm_weight *v = ctx->all_weights[k];
            known = v->rank == w->rank && v->n_parts && v->role == w->role && v->rows == w->rows && v->cols == w->cols &&
                    v->parts[0].kind == w->parts[0].kind;
        }
        for (int k = 0; k < 3 && !known; k++) {
            float *none = (float *)r->scratch;                                                  /* is not touched */
            const linear_args a = {.x = none, .out = none, .n_rows = r->view.head, .scale = 2}; /* no rows before the first step */
            run_product(r, w, NULL, NULL, a, rows[k]);
        }
    }
    rank_ok(r, cudaStreamSynchronize(r->stream), "profile run");
}

/* What a rank may use for pages: its share of the memory, less what is used after a profile run, by others too, and a little for graphs; or
 * (all) what is free. The least of all ranks counts, since a page is one number for all of them. */
static int64_t cuda_kv_memory(llm_backend_ctx *ctx, int all) {
    int64_t least = INT64_MAX;
    double share = ctx->cfg.memory_utilization > 0 ? ctx->cfg.memory_utilization : 0.9;
    for (int i = 0; i < ctx->n_ranks; i++) {
        size_t left = 0, total = 0;
        select_device(&ctx->ranks[i]);
        if (!ctx->begun) profile_products(&ctx->ranks[i]);
        if (!rank_ok(&ctx->ranks[i], cudaMemGetInfo(&left, &total), "memory")) return 0;
        int64_t mine = (all ? (int64_t)left : (int64_t)((double)total * share) - (int64_t)(total - left)) - (int64_t)(total / 256);
        least = mine < least ? mine : least;
    }
    return least < 0 ? 0 : least;
}

/* Takes the pages of every rank, zeroed. Twin: llm__cpu_kv_open. */
static llm_result cuda_kv_open(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens, int64_t n_pages) {
    if (ctx->places) return fail_with(&ctx->cfg, LLM_ERR_ARG, "kv_open: called twice");
    ctx->places = (kv_place *)calloc((size_t)max_int(n_layers, 1), sizeof *ctx->places);
    if (!ctx->places) return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of memory");
    ctx->page_bytes = kv_layout(ctx->kv_type, n_layers, layers, page_tokens, ctx->places);
    if ((n_layers && !ctx->page_bytes) || n_pages < 1 || n_pages > INT32_MAX)
        return fail_with(&ctx->cfg, LLM_ERR_ARG,
                         "kv_open: %d layers, %d tokens a page, %lld pages: expected a multiple of 16 tokens, heads of at most %d values "
                         "and at least a page",
                         n_layers, page_tokens, (long long)n_pages, MAX_VALUES);
    ctx->n_layers = n_layers;
    ctx->page_tokens = page_tokens;
    ctx->n_pages = n_pages;
    for (int i = 0; i < ctx->n_ranks; i++) {
        rank *r = &ctx->ranks[i];
        select_device(r);
        r->kv = (uint8_t *)device_memory(r, (size_t)(ctx->page_bytes * n_pages), "the KV cache");
        if (r->failed) return rank_result(r);
    }
    return LLM_OK;
}

/* Of all ranks, adapters and their staging memory included. */
static int64_t cuda_memory_used(llm_backend_ctx *ctx) {
    int64_t n = 0;
    for (int i = 0; i < ctx->n_ranks; i++) n += ctx->ranks[i].bytes + (ctx->loaders ? ctx->loaders[i].bytes : 0);
    return n;
}

static const char *cuda_describe(llm_backend_ctx *ctx) { return ctx->name; }

/* Frees whatever open and the others took, also after one of them failed halfway. */
static void rank_close(rank *r) {
    if (!r->ctx) return;
    cudaSetDevice(r->device);
    for (int i = 0; i < r->n_graphs; i++) cudaGraphExecDestroy(r->graphs[i].exec);
    if (r->cublas) cublas.destroy(r->cublas);
    for (int i = 0; i < r->n_memory; i++) cudaFree(r->memory[i]);
    for (int i = 0; i < 2; i++) {
        if (r->stage[i]) cudaFreeHost(r->stage[i]);
        if (r->stage_free[i]) cudaEventDestroy(r->stage_free[i]);
    }
    for (cudaEvent_t event : r->done)
        if (event) cudaEventDestroy(event);
    if (r->back_after) cudaEventDestroy(r->back_after);
    if (r->back) cudaStreamDestroy(r->back);
    for (int i = 0; i < 2; i++)
        if (r->around[i]) cudaEventDestroy(r->around[i]);
    for (int i = 0; i < N_TIMES; i++) {
        if (r->from[i]) cudaEventDestroy(r->from[i]);
        if (r->to[i]) cudaEventDestroy(r->to[i]);
    }
    if (r->stream) cudaStreamDestroy(r->stream);
    free(r->memory);
    free(r->list);
}

/* Seconds that a thread or a device gets to come back. */
static double close_limit(const llm_backend_ctx *ctx) { return fmin(10, 10 * step_limit(ctx)); }

/* Ends the ranks' threads; 0: one does not come back. */
static int threads_end(llm_backend_ctx *ctx) {
    pthread_mutex_lock(&ctx->mutex);
    ctx->stop = 1;
    pthread_cond_broadcast(&ctx->go);
    int all = idle_wait(ctx, &ctx->alive, close_limit(ctx));
    pthread_mutex_unlock(&ctx->mutex);
    for (int i = 0; i < ctx->n_ranks; i++)
        if (ctx->ranks[i].has_thread && all) pthread_join(ctx->ranks[i].thread, NULL);
        else if (ctx->ranks[i].has_thread) pthread_detach(ctx->ranks[i].thread);
    return all;
}

/* After a mistake: whether all devices have ended what they were given. */
static int devices_end(llm_backend_ctx *ctx) {
    double until = seconds() + close_limit(ctx);
    for (int i = 0; i < 2 * ctx->n_ranks; i++) {
        const rank *r = &ctx->ranks[i / 2];
        const cudaStream_t stream = i % 2 ? r->back : r->stream;
        cudaError_t e = cudaErrorNotReady;
        if (!stream) continue;
        cudaSetDevice(r->device);
        while ((e = cudaStreamQuery(stream)) == cudaErrorNotReady && seconds() < until) usleep(1000);
        if (e == cudaErrorNotReady) return 0;
    }
    return 1;
}

/* All ranks' communicators at once: to end one waits for its others. */
static void comms_close(llm_backend_ctx *ctx) {
    int any = 0;
    for (int i = 0; i < ctx->n_ranks; i++)
        for (void *comm : ctx->ranks[i].comms) any |= comm != NULL;
    if (!any || ctx->aborted) return;
    nccl.group_start();
    for (int i = 0; i < ctx->n_ranks; i++)
        for (void *comm : ctx->ranks[i].comms)
            if (comm) nccl.destroy(comm);
    nccl.group_end();
}

/* Threads first, then what they used. After a mistake communicators are aborted before anybody is waited for, as another rank may never
 * come; what does not end in time keeps what it has. Twin: llm__cpu_close. */
static void cuda_close(llm_backend_ctx *ctx) {
    char text[128];
    if (!ctx) return;
    snprintf(text, sizeof text, "device busy %.6f s, idle between steps %.6f s", ctx->busy_s, ctx->idle_s);
    if (ctx->times && ctx->cfg.log) ctx->cfg.log(ctx->cfg.log_user, LLM_LOG_INFO, text);
    for (int i = 0; i < OP_COUNT && ctx->cfg.log; i++) {
        if (!ctx->n_records[i]) continue;
        snprintf(text, sizeof text, "records of %s: %lld, %.3f us each", op_names[i], (long long)ctx->n_records[i],
                 ctx->record_s[i] / (double)ctx->n_records[i] * 1e6);
        ctx->cfg.log(ctx->cfg.log_user, LLM_LOG_INFO, text);
    }
    if (ctx->failed) abort_ranks(ctx);
    int ended = threads_end(ctx);
    if (!ended || (ctx->failed && !devices_end(ctx))) {
        snprintf(text, sizeof text, "cuda backend: a %s does not come back: its memory stays taken", ended ? "device" : "rank's thread");
        if (ctx->cfg.log) ctx->cfg.log(ctx->cfg.log_user, LLM_LOG_WARN, text);
        return;
    }
    for (int i = 0; i < ctx->n_ranks; i++) {
        cudaSetDevice(ctx->ranks[i].device);
        if (ctx->ranks[i].stream) cudaStreamSynchronize(ctx->ranks[i].stream);
        if (ctx->ranks[i].back) cudaStreamSynchronize(ctx->ranks[i].back);
    }
    comms_close(ctx);
    for (int i = 0; i < ctx->n_ranks; i++) rank_close(&ctx->ranks[i]);
    for (int i = 0; i < ctx->n_ranks && ctx->loaders; i++) rank_close(&ctx->loaders[i]);
    cudaFreeHost(ctx->stop_waiting);
    if (ctx->pinned) cudaHostUnregister(ctx->pinned);
    for (unsigned i = 0; i < ctx->n_flight; i++) {
        cudaFreeHost(ctx->staged[i]);
        cudaFreeHost(ctx->more[i]);
        cudaFreeHost(ctx->logits[i]);
        cudaFreeHost(ctx->drawn[i]);
        cudaFreeHost(ctx->bent[i]);
    }
    for (int i = 0; i < ctx->n_weights; i++) {
        free(ctx->all_weights[i]->parts);
        free(ctx->all_weights[i]);
    }
    for (int i = 0; i < ctx->n_buffers; i++) free(ctx->buffers[i]);
    for (int i = 0; i < ctx->n_sites; i++) {
        llm_lora_site *site = ctx->sites[i];
        for (int k = 0; k < site->n_slots && site->held; k++) {
            cudaSetDevice(ctx->ranks[site->rank].device);
            if (site->held[k].memory) cudaFree(site->held[k].memory);
        }
        free(ctx->sites[i]->held);
        free(ctx->sites[i]);
    }
    pthread_mutex_destroy(&ctx->put);
    pthread_mutex_destroy(&ctx->mutex);
    pthread_cond_destroy(&ctx->go);
    pthread_cond_destroy(&ctx->idle);
    free(ctx->all_weights);
    free(ctx->sites);
    free(ctx->loaders);
    free(ctx->buffers);
    free(ctx->places);
    free(ctx->row);
    free(ctx->ranks);
    free(ctx);
}

/* One rank's stream, events, list and step block. */
static void rank_open(rank *r) {
    llm_backend_ctx *ctx = r->ctx;
    int major = 0, minor = 0, driver = 0;
    size_t left = 0, total = 0;
    select_device(r);
    rank_ok(r, cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking), "stream");
    for (unsigned i = 0; i < ctx->n_flight; i++) rank_ok(r, cudaEventCreateWithFlags(&r->done[i], cudaEventDisableTiming), "event");
    if (n_stages(ctx) > 1 && !world_rank(r)) {
        rank_ok(r, cudaStreamCreateWithFlags(&r->back, cudaStreamNonBlocking), "stream");
        rank_ok(r, cudaEventCreateWithFlags(&r->back_after, cudaEventDisableTiming), "event");
    }
    for (int i = 0; i < N_TIMES && ctx->times && !r->index; i++) {
        rank_ok(r, cudaEventCreateWithFlags(&r->from[i], cudaEventDefault), "event");
        rank_ok(r, cudaEventCreateWithFlags(&r->to[i], cudaEventDefault), "event");
    }
    for (int i = 0; i < 2 && ctx->each_record && !r->index; i++)
        rank_ok(r, cudaEventCreateWithFlags(&r->around[i], cudaEventDefault), "event");
    rank_ok(r, cudaDeviceGetAttribute(&r->n_sms, cudaDevAttrMultiProcessorCount, r->device), "device");
    rank_ok(r, cudaDeviceGetAttribute(&r->max_smem, cudaDevAttrMaxSharedMemoryPerBlockOptin, r->device), "device");
    rank_ok(r, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, r->device), "device");
    rank_ok(r, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, r->device), "device");
    r->capability = 10 * major + minor;
    r->sync_each = getenv("LLM_CUDA_SYNC") != NULL;
    cudaDriverGetVersion(&driver);
    r->overlap = r->capability >= 90 && driver >= 12030 && !ctx->one_device && !getenv("LLM_CUDA_NO_OVERLAP"); /* 12.3: graphs keep it */
    load_kernels(r);
    rank_ok(r, cudaMemGetInfo(&left, &total), "device");
    r->stage_bytes = total >= (size_t)8 << 30 ? 32 << 20 : 8 << 20;
    r->list = (record *)calloc(MAX_RECORDS, sizeof *r->list);
    if (!r->list) rank_ok(r, cudaErrorMemoryAllocation, "list");
    r->step = (uint8_t *)device_memory(r, ctx->step_bytes, "step");
    r->view = step_at(&ctx->cfg, r->step, &ctx->step_bytes);
    const more_layout l = more_place(&ctx->cfg);
    r->more = (uint8_t *)device_memory(r, l.bytes, "step");
    r->view.given_of = (const int32_t *)r->more;
    r->view.spans = (const int32_t *)(r->more + l.spans);
    r->view.row_set = (const int32_t *)(r->more + l.row_set);
    r->view.given = (const float *)(r->more + l.given);
    const size_t counters = ((size_t)ctx->cfg.max_seqs + 1) * MAX_TILES, pieces = (size_t)(BAND_TILES * 2 * r->n_sms);
    r->arrived = (unsigned *)device_memory(r, (counters > pieces ? counters : pieces) * sizeof *r->arrived, "step");
    r->drawn = (llm_drawn *)device_memory(r, 2 * (size_t)max_int(ctx->cfg.max_out, 1) * sizeof(llm_drawn), "step");
}

/* NCCL's communicators of ranks first, first + apart, ..., n of all processes' ranks, to each of them that is here. id: the same
 * everywhere. */
static llm_result open_comms(llm_backend_ctx *ctx, int which, int first, int n, int apart, nccl_id id) {
    int e = nccl.group_start();
    for (int i = 0; i < ctx->n_ranks && !e; i++) {
        rank *r = &ctx->ranks[i];
        int at = world_rank(r) - first;
        if (at < 0 || at % apart || at / apart >= n) continue;
        select_device(r);
        e = nccl.init_rank(&r->comms[which], n, id, at / apart);
    }
    int end = nccl.group_end();
    if (!e && !end) return LLM_OK;
    return fail_with(&ctx->cfg, LLM_ERR_BACKEND, "cuda backend: NCCL cannot connect %d devices: %s", n, nccl.error_string(e ? e : end));
}

/* For tests on a machine with one device (LLM_CUDA_TRY_NCCL): a communicator of one rank sums up what it has, which changes nothing. */
static llm_result try_nccl(llm_backend_ctx *ctx) {
    rank *r = &ctx->ranks[0];
    uint32_t *data = (uint32_t *)device_memory(r, 64, "NCCL"), seen = 1;
    nccl_id id;
    if (!nccl_load()) return fail_with(&ctx->cfg, LLM_ERR_IO, "cuda backend: libnccl.so.2 is not there");
    if (!r->failed) nccl_ok(r, nccl.unique_id(&id), "NCCL");
    llm_result result = r->failed ? LLM_OK : open_comms(ctx, COMM_STAGE, 0, 1, 1, id);
    if (result) return result;
    if (!r->failed) nccl_all_reduce(r, (float *)data, 16);
    rank_ok(r, cudaMemcpyAsync(&seen, data, sizeof seen, cudaMemcpyDeviceToHost, r->stream), "NCCL");
    rank_ok(r, cudaStreamSynchronize(r->stream), "NCCL");
    if (!r->failed && seen) return fail_with(&ctx->cfg, LLM_ERR_BACKEND, "cuda backend: NCCL sums up zeros to something else");
    return rank_result(r);
}

/* Each collective that steps use, once: NCCL connects and loads what it needs at the first call, which must not come while ranks wait for
 * each other in kernels. Zeros are summed, gathered and passed around. */
static void rank_connect(rank *r) {
    llm_backend_ctx *ctx = r->ctx;
    size_t each = 16;
    float *data = (float *)device_memory(r, each * sizeof *data * (size_t)(ctx->n_group + 1), "NCCL");
    void *comm = r->comms[COMM_STAGE];
    if (comm && !nccl_gone(r)) nccl_all_reduce(r, data, each);
    if (comm && !nccl_gone(r)) nccl_ok(r, nccl.all_gather(data, data + each, each, NCCL_F32, comm, r->stream), "all-gather");
    if (stage_of(r) + 1 < n_stages(ctx)) run_send(r, data, 16);
    if (stage_of(r)) run_receive(r, data, 16);
    if (r->back) {
        run_receive_back(r, r->drawn, 16);
        rank_ok(r, cudaStreamSynchronize(r->back), "NCCL");
    } else if (r->comms[COMM_BACK]) run_send_back(r, r->drawn, 16);
    rank_ok(r, cudaStreamSynchronize(r->stream), "NCCL");
}

/* Communicators of each stage, and of the pipeline; threads. */
static llm_result open_ranks(llm_backend_ctx *ctx) {
    const int stages = n_stages(ctx), n_here = ctx->n_world / ctx->n_ranks;
    int e = 0;
    if (!ctx->one_device && !nccl_load())
        return fail_with(&ctx->cfg, LLM_ERR_IO, "cuda backend: %d devices need NCCL, but libnccl.so.2 is not there", ctx->n_world);
    size_t each = (size_t)(stages + 2) * sizeof(nccl_id); /* of each stage, of all, of the way back */
    nccl_id *ids = (nccl_id *)calloc((size_t)n_here, each);
    if (!ids) return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of memory");
    for (int i = 0; i < stages + 2 && !ctx->first && !e && !ctx->one_device; i++) e = nccl.unique_id(&ids[i]);
    llm_result result =
        e ? fail_with(&ctx->cfg, LLM_ERR_BACKEND, "cuda backend: NCCL: %s", nccl.error_string(e)) : world_share(ctx, ids, each);
    for (int i = 0; i < stages && ctx->n_group > 1 && !result && !ctx->one_device; i++)
        result = open_comms(ctx, COMM_STAGE, i * ctx->n_group, ctx->n_group, 1, ids[i]);
    if (stages > 1 && !result) result = open_comms(ctx, COMM_PIPE, 0, ctx->n_world, 1, ids[stages]);
    if (stages > 1 && !result) result = open_comms(ctx, COMM_BACK, 0, 2, ctx->n_world - ctx->n_group, ids[stages + 1]);
    free(ids);
    for (int i = 0; i < ctx->n_ranks && !result; i++) {
        if (pthread_create(&ctx->ranks[i].thread, NULL, rank_thread, &ctx->ranks[i]))
            return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of threads");
        ctx->ranks[i].has_thread = 1;
        ctx->alive++;
    }
    if (!result) run_ranks(ctx, rank_connect);
    return result ? result : ctx_result(ctx);
}

/* Everything that open takes besides the context itself. On error the caller closes. */
static llm_result open_parts(llm_backend_ctx *ctx) {
    cudaDeviceProp prop;
    step_at(&ctx->cfg, NULL, &ctx->step_bytes);
    for (int i = 0; i < ctx->n_ranks; i++) {
        rank *r = &ctx->ranks[i];
        r->ctx = ctx;
        r->index = i;
        r->device = ctx->one_device ? 0 : ctx->cfg.first_device + i;
        rank_open(r);
        if (r->failed) return rank_result(r);
    }
    select_device(&ctx->ranks[0]);
    if (!pinned_blocks(ctx, (void **)ctx->staged, ctx->step_bytes)) return rank_result(&ctx->ranks[0]);
    if (!pinned_blocks(ctx, (void **)ctx->more, more_place(&ctx->cfg).bytes)) return rank_result(&ctx->ranks[0]);
    if (!rank_ok(&ctx->ranks[0], cudaMallocHost((void **)&ctx->stop_waiting, sizeof *ctx->stop_waiting), "pinned memory"))
        return rank_result(&ctx->ranks[0]);
    *ctx->stop_waiting = 0;
    ctx->kv_type = ctx->cfg.kv_type;
    if (!ctx->kv_type)
        ctx->kv_type = ctx->cfg.compute == LLM_COMPUTE_F32 ? LLM_KV_F32 : ctx->cfg.compute == LLM_COMPUTE_BF16 ? LLM_KV_BF16 : LLM_KV_F16;
    if (!rank_ok(&ctx->ranks[0], cudaGetDeviceProperties(&prop, 0), "device")) return rank_result(&ctx->ranks[0]);
    snprintf(ctx->name, sizeof ctx->name, "%s, %d device%s, %s", prop.name, ctx->n_world, ctx->n_world == 1 ? "" : "s",
             getenv("LLM_CUDA_NO_CUBLAS")        ? "cuBLASLt is not asked for"
             : cublas_function("cublasLtMatmul") ? "cuBLASLt"
                                                 : "cuBLASLt is not there");
    if (ctx->n_world == 1 && getenv("LLM_CUDA_TRY_NCCL")) return try_nccl(ctx);
    return ctx->n_world > 1 ? open_ranks(ctx) : LLM_OK;
}

/* How many devices there are; on error a sentence that tells a missing driver, one that is too old, and a machine without a device apart.
 */
static llm_result count_devices(const llm_backend_config *cfg, int *n) {
    const char *missing = driver_missing();
    int driver = 0, runtime = 0;
    *n = 0;
    if (missing) return fail_with(cfg, LLM_ERR_BACKEND, "cuda backend: %s", missing);
    cudaError_t e = cudaGetDeviceCount(n);
    if (e == cudaSuccess && *n > 0) return LLM_OK;
    cudaGetLastError();
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver && driver / 1000 < runtime / 1000)
        return fail_with(cfg, LLM_ERR_BACKEND, "cuda backend: the driver is for CUDA %d.%d, this library needs %d.%d", driver / 1000,
                         driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return fail_with(cfg, LLM_ERR_BACKEND, "cuda backend: no device: %s", cudaGetErrorString(e));
}

/* Checks the ranges of the config. On error *out is NULL. */
static llm_result cuda_open(const llm_backend_config *cfg, llm_backend_ctx **out) {
    int n = 0, world = cfg->n_ranks ? cfg->n_ranks : 1, stages = cfg->n_stages ? cfg->n_stages : 1;
    int processes = cfg->n_processes ? cfg->n_processes : 1, ranks = world / processes, group = world / stages, first = cfg->first_device;
    *out = NULL;
    if (cfg->max_rows < 1 || cfg->max_out < 0 || cfg->max_seqs < 1 || cfg->max_pages_per_seq < 1)
        return fail_with(cfg, LLM_ERR_ARG,
                         "cuda backend: max_rows %d, max_out %d, max_seqs %d, max_pages_per_seq %d: expected at least 1 (max_out: 0)",
                         cfg->max_rows, cfg->max_out, cfg->max_seqs, cfg->max_pages_per_seq);
    if (ranks < 1 || ranks > MAX_RANKS || world > MAX_WORLD || stages < 1 || world % stages || cfg->kv_type < LLM_KV_AUTO ||
        cfg->kv_type > LLM_KV_INT4)
        return fail_with(cfg, LLM_ERR_ARG, "cuda backend: n_ranks %d (1 to %d), kv_type %d: out of range", ranks, MAX_RANKS,
                         (int)cfg->kv_type);
    if (cfg->n_flight < 0 || cfg->n_flight > LLM_FLIGHT_MAX)
        return fail_with(cfg, LLM_ERR_ARG, "cuda backend: n_flight %d: 0 to %d expected", cfg->n_flight, LLM_FLIGHT_MAX);
    if (processes > 1 && (world % processes || (group % ranks && ranks % group)))
        return fail_with(cfg, LLM_ERR_ARG,
                         "cuda backend: %d ranks in %d processes, %d a stage: whole stages a process, or whole processes a stage, expected",
                         world, processes, group);
    if (group > ranks && cfg->batch_invariant)
        return fail_with(cfg, LLM_ERR_UNSUPPORTED,
                         "batch_invariant: NCCL sums over the %d processes of a stage, in an order that depends on the batch",
                         group / ranks);
    llm_result result = count_devices(cfg, &n);
    if (result) return result;
    if (n == ranks) first = 0; /* those that this process sees are its own */
    if (n < first + ranks && processes > 1)
        return fail_with(cfg, LLM_ERR_ARG, "cuda backend: devices %d to %d are for this process, but there %s %d", first, first + ranks - 1,
                         n == 1 ? "is" : "are", n);
    if (n < ranks && !getenv("LLM_CUDA_ONE_DEVICE"))
        return fail_with(cfg, LLM_ERR_ARG, "cuda backend: tensor parallel size %d%s, but there %s %d device%s", group,
                         stages > 1 ? " in a pipeline" : "", n == 1 ? "is" : "are", n, n == 1 ? "" : "s");
    llm_backend_ctx *ctx = (llm_backend_ctx *)calloc(1, sizeof *ctx);
    if (ctx) ctx->ranks = (rank *)calloc((size_t)ranks, sizeof *ctx->ranks);
    if (!ctx || !ctx->ranks) {
        free(ctx);
        return fail_with(cfg, LLM_ERR_NOMEM, "out of memory");
    }
    ctx->cfg = *cfg;
    ctx->cfg.first_device = first;
    ctx->n_ranks = ranks;
    ctx->n_group = group;
    ctx->n_world = world;
    ctx->n_flight = cfg->n_flight ? (unsigned)cfg->n_flight : 2;
    ctx->first = cfg->process * ranks;
    ctx->times = getenv("LLM_CUDA_TIMES") != NULL;
    ctx->each_record = ctx->times && !strcmp(getenv("LLM_CUDA_TIMES"), "records");
    ctx->one_device = getenv("LLM_CUDA_ONE_DEVICE") != NULL;
    pthread_mutex_init(&ctx->mutex, NULL);
    pthread_mutex_init(&ctx->put, NULL);
    pthread_cond_init(&ctx->go, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&ctx->idle, &clock);
    pthread_condattr_destroy(&clock);
    result = open_parts(ctx);
    if (result) cuda_close(ctx);
    else *out = ctx;
    return result;
}

/* The one function that is exported: the table, in the order of llm_backend. parallel is NULL: the caller's own threads do host work. */
extern "C" __attribute__((visibility("default"))) const llm_backend *llm_cuda_backend(void) {
    static const llm_backend table = {.abi = LLM_BACKEND_ABI,
                                      .struct_size = sizeof(llm_backend),
                                      .name = "cuda",
                                      .open = cuda_open,
                                      .close = cuda_close,
                                      .describe = cuda_describe,
                                      .buffer = cuda_buffer,
                                      .weight = cuda_weight,
                                      .weights_done = cuda_weights_done,
                                      .kv_page_bytes = cuda_kv_page_bytes,
                                      .kv_open = cuda_kv_open,
                                      .memory_used = cuda_memory_used,
                                      .begin_step = cuda_begin_step,
                                      .embed = cuda_embed,
                                      .rope = cuda_rope,
                                      .residual = cuda_residual,
                                      .norm = cuda_norm,
                                      .linear = cuda_linear,
                                      .qkv = cuda_qkv,
                                      .attention = cuda_attention,
                                      .mla = cuda_mla,
                                      .route = cuda_route,
                                      .experts = cuda_experts,
                                      .gate = cuda_gate,
                                      .gather = cuda_gather,
                                      .all_reduce = cuda_all_reduce,
                                      .logits = cuda_logits,
                                      .end_step = cuda_end_step,
                                      .wait = cuda_wait,
                                      .logits_row = cuda_logits_row,
                                      .buffer_row = cuda_buffer_row,
                                      .kv_copy = cuda_kv_copy,
                                      .kv_read = cuda_kv_read,
                                      .kv_write = cuda_kv_write,
                                      .lora_site = cuda_lora_site,
                                      .lora_put = cuda_lora_put,
                                      .lora = cuda_lora,
                                      .drawn = cuda_drawn,
                                      .kv_memory = cuda_kv_memory,
                                      .send = cuda_send,
                                      .receive = cuda_receive,
                                      .state = cuda_state,
                                      .pin = cuda_pin,
                                      .buffer_rows = cuda_buffer_rows};
    return &table;
}
