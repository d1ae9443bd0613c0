/* step: a step: its description goes up, its list runs or its graph is replayed, its results come down.
 *
 * Up to two steps are under way (of a pipeline one a stage): begin_step copies what changes into one of two pinned blocks, and the copy to
 * the device is the first thing on the stream; results go to one of two pinned places, and an event says when they are there. Everything on
 * the device exists once, since one stream orders it.
 *
 * Steps in which every sequence has one row, with an output, are padded to 1, 2, 4, multiples of 8 rows up to 64, and then to eighths of a
 * power of two; such a size is captured when it is met for the second time. Kernels end at once in rows that are not there. All other
 * steps, and sequences longer than max_seq_len_to_capture, run as they are.
 *
 *     host    begin 1 | begin 2          | wait 1 | begin 3          | wait 2      steps 1 and 2 are under way at once: while the device
 * has device          [   1              ][   2                ][   3              step 2 the host reads 1 and writes 3
 *
 * The block of a step, in device memory at r->step and in two pinned copies, for max_rows 4, two sequences of which one decodes:
 *
 *     head        n_rows 4, n_seqs 2, n_out 2, position rows 1, page stride 3
 *     tokens      -  17 9 4      (the first one's is drawn by the step before: token_from 0 -1 -1 -1)
 *     positions   40  0 1 2      with 3 position rows (3, n_rows)
 *     seq_of_row   0  1 1 1      seq_begin 0 1 4, seq_len 41 3, out_rows 0 3, seq_lora -1 0
 *     pages       (n_seqs, stride): 7 3 12, 5 - -   (not written: nobody looks there)
 *     work        behind the pages that are there: row 0 of one split; see work_item
 *
 * A token that step 1 draws may be a row of step 2: token_from says so, and kernel_embed takes it from r->drawn, which never leaves the
 * device before it is needed there. Two steps in turn have places of their own in it, side by side for each out row, because step 2 still
 * reads what step 1 drew (a penalty counts the row's own token) when its first blocks have written already:
 *
 *     r->drawn    row 0: [even steps][odd steps]   row 1: [even][odd]   ...      head[HEAD_TURN] says which of both this step writes
 *
 * Masks, biases and counts of the draws have a block of their own, of which only what is there is copied: most steps have none. A graph is
 * known by its padded rows, whether it draws, whether adapters compute, and the program (which of the model's lists: target or draft).
 * Capturing launches nothing: the same step is replayed right behind it. When the table of graphs is full, the one that was not used for
 * longest makes room. */

/* The arrays of the largest step in a block at p, on 16 bytes each; pages last, so that one copy of what is used can stop short of the end.
 * *bytes: of the block, with the work behind them. */
static step_view step_at(const llm_backend_config *c, const uint8_t *p, size_t *bytes) {
    const size_t rows = (size_t)c->max_rows, seqs = (size_t)c->max_seqs, out = (size_t)max_int(c->max_out, 1);
    size_t at = STEP_HEAD * 4;
    step_view v = {};
    auto take = [&](auto *to, size_t n) {
        *to = (std::remove_pointer_t<decltype(to)>)((uintptr_t)p + at);
        at = align16(at + n * sizeof **to);
    };
    v.head = (const int32_t *)p;
    take(&v.tokens, rows), take(&v.positions, 3 * rows), take(&v.seq_of_row, rows), take(&v.seq_begin, seqs + 1), take(&v.seq_len, seqs);
    take(&v.seq_rope, seqs), take(&v.seq_lora, seqs), take(&v.rope_base, seqs), take(&v.out_rows, out), take(&v.token_from, rows);
    take(&v.draws, out), take(&v.pages, seqs * (size_t)c->max_pages_per_seq);
    *bytes = at + (rows + MAX_SPLITS) * sizeof(work_item);
    return v;
}

/* The host's copy of the step that is being recorded. */
static step_view step_staged(const llm_backend_ctx *ctx) {
    size_t bytes;
    return step_at(&ctx->cfg, ctx->staged[ctx->begun % ctx->n_flight], &bytes);
}

/* Refuses a step whose numbers would lead outside of memory: on the device nobody checks an index. A page that lies before a window may be
 * missing (-1), one that is written may not. Twin: llm__step_check. */
static llm_result step_check(const llm_backend_ctx *ctx, const llm_step *s) {
    const llm_backend_config *c = &ctx->cfg;
    const llm_shape *n = &s->shape;
    if (n->n_rows < 0 || n->n_rows > c->max_rows || n->n_seqs < 0 || n->n_seqs > c->max_seqs || n->n_out < 0 || n->n_out > c->max_out)
        return fail_with(c, LLM_ERR_ARG, "step: %d rows, %d sequences, %d out rows: expected at most %d, %d, %d", n->n_rows, n->n_seqs,
                         n->n_out, c->max_rows, c->max_seqs, c->max_out);
    if (s->seq_begin[0] != 0 || s->seq_begin[n->n_seqs] != n->n_rows)
        return fail_with(c, LLM_ERR_ARG, "step: seq_begin does not cover the rows");
    for (int q = 0; q < n->n_seqs; q++) {
        int begin = s->seq_begin[q], end = s->seq_begin[q + 1], pages = ctx->n_layers ? ceil_div(s->seq_len[q], ctx->page_tokens) : 0;
        if (end < begin || s->seq_len[q] < end - begin || pages > c->max_pages_per_seq || (ctx->n_layers && pages > s->page_stride))
            return fail_with(c, LLM_ERR_ARG, "step: sequence %d has rows %d to %d, length %d, %d pages of at most %d", q, begin, end,
                             s->seq_len[q], pages, min_int(c->max_pages_per_seq, s->page_stride));
        for (int row = begin; row < end; row++)
            if (s->seq_of_row[row] != q)
                return fail_with(c, LLM_ERR_ARG, "step: row %d is of sequence %d, expected %d", row, s->seq_of_row[row], q);
        for (int p = 0; p < pages; p++) {
            int32_t page = s->pages[(size_t)q * (size_t)s->page_stride + (size_t)p];
            int written = (p + 1) * ctx->page_tokens > s->seq_len[q] - (end - begin);
            if (page >= ctx->n_pages || (page < 0 && (written || page != -1)))
                return fail_with(c, LLM_ERR_ARG, "step: page %d of sequence %d is %d, expected less than %lld", p, q, page,
                                 (long long)ctx->n_pages);
        }
    }
    for (int i = 0; i < n->n_rows && s->token_from && n_stages(ctx) > 1; i++)
        if (s->token_from[i] >= 0) return fail_with(c, LLM_ERR_ARG, "step: row %d takes a token that was drawn, in a pipeline", i);
    for (int i = 0; i < n->n_rows && s->spans; i++)
        if (s->spans[i] < 0 || s->spans[i] >= s->spans[n->n_rows + i] || s->spans[n->n_rows + i] > s->seq_len[s->seq_of_row[i]])
            return fail_with(c, LLM_ERR_ARG, "step: row %d sees positions %d to %d of %d", i, s->spans[i], s->spans[n->n_rows + i],
                             s->seq_len[s->seq_of_row[i]]);
    for (int i = 0; i < n->n_out; i++)
        if (s->out_rows[i] < 0 || s->out_rows[i] >= n->n_rows)
            return fail_with(c, LLM_ERR_ARG, "step: out row %d of %d rows", s->out_rows[i], n->n_rows);
    return LLM_OK;
}

/* What few steps have, in a block of its own of which only what is there is copied: for each row which of the given rows it takes, then the
 * positions that it sees (2, n_rows), its set of experts, and at `given` the rows that are given, side by side. */
typedef struct more_layout {
    size_t spans, row_set, given, bytes;
} more_layout;

static more_layout more_place(const llm_backend_config *c) {
    more_layout l;
    const size_t rows = (size_t)c->max_rows;
    l.spans = align16(rows * 4);
    l.row_set = l.spans + align16(rows * 8);
    l.given = l.row_set + align16(rows * 4);
    l.bytes = l.given + rows * (size_t)c->given_cols * 4;
    return l;
}

/* Writes them into a pinned block; *bytes: from the beginning, of what is there. Returns the bits of head[HEAD_HAS]. */
static int32_t more_write(const llm_backend_ctx *ctx, const llm_step *s, uint8_t *to, size_t *bytes) {
    const more_layout l = more_place(&ctx->cfg);
    const size_t rows = (size_t)s->shape.n_rows, cols = (size_t)ctx->cfg.given_cols;
    int32_t has = 0, n = 0, *given_of = (int32_t *)to;
    *bytes = 0;
    if (s->spans) memcpy(to + l.spans, s->spans, rows * 8), has |= HAS_SPANS, *bytes = l.row_set;
    if (s->row_set) memcpy(to + l.row_set, s->row_set, rows * 4), has |= HAS_SETS, *bytes = l.given;
    for (size_t i = 0; i < rows && s->given && cols; i++) {
        given_of[i] = s->given[i] ? n : -1;
        if (s->given[i]) memcpy(to + l.given + (size_t)n++ * cols * 4, s->given[i], cols * 4);
    }
    if (n) has |= HAS_GIVEN, *bytes = l.given + (size_t)n * cols * 4;
    return has;
}

/* n numbers to a pinned block, which kernels only read; `absent` where the step has none. */
static void copy_ints(const int32_t *to, const int32_t *from, int n, int32_t absent) {
    for (int i = 0; i < n; i++) ((int32_t *)to)[i] = from ? from[i] : absent;
}

/* The work of attention: single rows in splits of their keys, and with batch_invariant all other rows too, up to 8 of a sequence together.
 * Splits that do not fit are done one after the other. Returns how many items there are. */
static int work_write(const llm_backend_ctx *ctx, const llm_step *s, work_item *to) {
    int n = 0, splits = 0;
    for (int q = 0; q < s->shape.n_seqs && ctx->n_layers; q++) {
        int begin = s->seq_begin[q], end = s->seq_begin[q + 1], parts = ceil_div(s->seq_len[q], SPLIT);
        if (end - begin == 1 && splits + parts <= MAX_SPLITS)
            for (int i = 0; i < parts; i++, splits++) to[n++] = {begin, 1, i, parts};
        else if (end - begin == 1 || ctx->cfg.batch_invariant)
            for (int row = begin; row < end; row += 8) to[n++] = {row, min_int(8, end - row), -1, parts};
    }
    return n;
}

/* Writes the step into a pinned block; returns the bytes that count. Page tables stand close together: what is copied is what is used. */
static size_t step_write(llm_backend_ctx *ctx, const llm_step *s, uint8_t *to) {
    const step_view v = step_staged(ctx);
    int rows = s->shape.n_rows, seqs = s->shape.n_seqs, three = s->n_position_rows == 3, stride = 1;
    int32_t *head = (int32_t *)to, *pages = (int32_t *)v.pages;
    ctx->longest = ctx->singles = 0;
    for (int q = 0; q < seqs; q++) {
        ctx->longest = max_int(ctx->longest, s->seq_len[q]);
        ctx->singles += s->seq_begin[q + 1] - s->seq_begin[q] == 1;
    }
    if (ctx->n_layers) stride = max_int(1, ceil_div(ctx->longest, ctx->page_tokens));
    memset(to, 0, STEP_HEAD * 4);
    head[HEAD_ROWS] = rows;
    head[HEAD_SEQS] = seqs;
    head[HEAD_OUT] = s->shape.n_out;
    head[HEAD_POSITIONS] = three ? 3 : 1;
    head[HEAD_STRIDE] = stride;
    copy_ints(v.tokens, s->tokens, rows, 0);
    copy_ints(v.positions, s->positions, rows * (three ? 3 : 1), 0);
    copy_ints(v.seq_of_row, s->seq_of_row, rows, 0);
    copy_ints(v.seq_begin, s->seq_begin, seqs + 1, 0);
    copy_ints(v.seq_len, s->seq_len, seqs, 0);
    copy_ints(v.seq_rope, s->seq_rope, seqs, 0);
    copy_ints(v.seq_lora, s->seq_lora, seqs, -1);
    copy_ints(v.out_rows, s->out_rows, s->shape.n_out, 0);
    copy_ints(v.token_from, s->token_from, rows, -1);
    for (int q = 0; q < seqs; q++) ((float *)v.rope_base)[q] = s->seq_rope_base ? s->seq_rope_base[q] : 1;
    ctx->any_draws = 0;
    ctx->want_rows = !s->draws;
    for (int i = 0; i < s->shape.n_out && s->draws; i++) {
        ctx->any_draws |= s->draws[i].wanted;
        ctx->want_rows |= !s->draws[i].wanted || s->draws[i].row;
    }
    head[HEAD_TURN] = (int32_t)(ctx->begun & 1);
    for (int q = 0; q < seqs && ctx->n_layers; q++)
        for (int p = 0; p < ceil_div(s->seq_len[q], ctx->page_tokens);
             p++) /* a page that was given back reads as page 0; nothing of it counts */
            pages[(size_t)q * (size_t)stride + (size_t)p] = max_int(0, s->pages[(size_t)q * (size_t)s->page_stride + (size_t)p]);
    size_t work = align16((size_t)((uint8_t *)pages - to) + (size_t)seqs * (size_t)stride * 4);
    head[HEAD_WORK] = (int32_t)(work / 4);
    head[HEAD_N_WORK] = work_write(ctx, s, (work_item *)(to + work));
    return work + (size_t)head[HEAD_N_WORK] * sizeof(work_item);
}

/* Bytes of one row's mask, on 16 bytes; of all masks, behind which the changes lie. */
static size_t masks_bytes(const llm_backend_ctx *ctx) {
    return align16((size_t)max_int(ctx->cfg.max_out, 1) * (((size_t)ctx->vocab + 31) / 32) * 4);
}

/* The step's draws to `to`, what bends their rows into a pinned block: masks at its beginning, changes behind the place for all of them.
 * *masks, *changes: bytes of both parts. Twin: what llm__choose reads. */
static llm_result step_draws(llm_backend_ctx *ctx, const llm_step *s, draw *to, uint8_t *block, size_t *masks, size_t *changes) {
    size_t words = ((size_t)ctx->vocab + 31) / 32, n = 0;
    int32_t n_masks = 0;
    change *list = (change *)(block + masks_bytes(ctx));
    for (int i = 0; i < s->shape.n_out && s->draws; i++, to++) {
        const llm_draw *d = &s->draws[i];
        const llm_sampling *p = d->sampling;
        memset(to, 0, sizeof *to);
        if (!d->wanted) continue;
        if (!block || n + (size_t)p->n_logit_bias + (size_t)d->n_used > LLM_DRAW_CHANGES)
            return fail_with(&ctx->cfg, LLM_ERR_LIMIT, "step: draws, but no memory for them, or more than %d biases and penalties",
                             LLM_DRAW_CHANGES);
        /* clang-format off */
        *to = {d->seed, d->position, 1, p->top_k, -1, (int32_t)n, p->n_logit_bias, 0, d->n_used,
               p->temperature, p->top_p, p->min_p, p->repetition_penalty, p->presence_penalty, p->frequency_penalty};
        /* clang-format on */
        for (int k = 0; k < p->n_logit_bias; k++) list[n++] = {p->logit_bias[k].id, 0, p->logit_bias[k].bias};
        to->used = (int32_t)n;
        for (int k = 0; k < d->n_used; k++) list[n++] = {d->used[k], d->counts[k], 0};
        if (!d->allowed) continue;
        memcpy(block + (size_t)n_masks * words * 4, d->allowed, words * 4);
        to->mask = n_masks++;
    }
    *masks = (size_t)n_masks * words * 4;
    *changes = n * sizeof *list;
    return LLM_OK;
}

/* Both parts to a rank that draws. */
static void rules_copy(rank *r, const uint8_t *block, size_t masks, size_t changes) {
    size_t at = masks_bytes(r->ctx);
    if (masks && r->bent) rank_ok(r, cudaMemcpyAsync(r->bent, block, masks, cudaMemcpyHostToDevice, r->stream), "masks");
    if (changes && r->bent) rank_ok(r, cudaMemcpyAsync(r->bent + at, block + at, changes, cudaMemcpyHostToDevice, r->stream), "penalties");
}

/* The rows a captured list is made for. A step of 5 rows pays for 8, which is the same bytes of weights; a graph for every number of rows
 * would take memory and time for nothing. Those of --cuda-graph-sizes, where they are given: a step larger than all is not captured. */
static int bucket(const llm_backend_config *c, int n) {
    int each = 8; /* of a step of 65 to 128 rows 16, then 32, ... */
    for (int top = 64; top < n; top *= 2) each *= 2;
    if (!c->n_graph_sizes) return n <= 2 ? n : n <= 4 ? 4 : (n + each - 1) / each * each;
    for (int i = 0; i < c->n_graph_sizes; i++)
        if (c->graph_sizes[i] >= n) return c->graph_sizes[i];
    return INT32_MAX;
}

/* The step's numbers are checked, written to the pinned block of its turn, and on their way to every device before it returns. Twin:
 * llm__cpu_begin_step. */
static llm_result cuda_begin_step(llm_backend_ctx *ctx, const llm_step *s) {
    if (ctx->failed) return ctx_result(ctx);
    llm_result result = step_check(ctx, s);
    if (result) return result;
    if (ctx->begun - ctx->waited == ctx->n_flight)
        return fail_with(&ctx->cfg, LLM_ERR_ARG, "step: %u are under way already", ctx->n_flight);
    const unsigned turn = ctx->begun % ctx->n_flight;
    uint8_t *block = ctx->staged[turn];
    size_t bytes = step_write(ctx, s, block), masks = 0, changes = 0, more = 0;
    ((int32_t *)block)[HEAD_HAS] = more_write(ctx, s, ctx->more[turn], &more);
    result = step_draws(ctx, s, (draw *)step_staged(ctx).draws, ctx->bent[turn], &masks, &changes);
    if (result) return result;
    const llm_shape *n = &s->shape;
    ctx->shape = ctx->padded = *n;
    ctx->capture = !ctx->cfg.enforce_eager && !ctx->ranks[0].sync_each && !ctx->each_record && n->n_rows && n->n_rows == n->n_seqs &&
                   n->n_rows == n->n_out && bucket(&ctx->cfg, n->n_rows) <= ctx->cfg.max_out &&
                   bucket(&ctx->cfg, n->n_rows) <= ctx->cfg.max_rows &&
                   (!ctx->cfg.max_seq_len_to_capture || ctx->longest <= ctx->cfg.max_seq_len_to_capture);
    if (ctx->capture) ctx->padded.n_rows = ctx->padded.n_seqs = ctx->padded.n_out = bucket(&ctx->cfg, n->n_rows);
    for (int i = 0; i < ctx->n_ranks; i++) {
        rank *r = &ctx->ranks[i];
        r->n = 0;
        select_device(r);
        rank_ok(r, cudaMemcpyAsync(r->step, block, bytes, cudaMemcpyHostToDevice, r->stream), "step");
        if (more) rank_ok(r, cudaMemcpyAsync(r->more, ctx->more[turn], more, cudaMemcpyHostToDevice, r->stream), "step");
        if (ctx->times && !i) rank_ok(r, cudaEventRecord(r->from[ctx->begun % N_TIMES], r->stream), "event");
        rules_copy(r, ctx->bent[turn], masks, changes);
        if (r->failed) return rank_result(r);
    }
    return LLM_OK;
}

/* Of the draws of a step: both turns. */
static size_t drawn_bytes(int n_out) { return 2 * (size_t)n_out * sizeof(llm_drawn); }

/* Gathers the logits of the stage's ranks and draws tokens from them. With one rank they lie as the sampler wants them, but for the
 * stride. */
static void run_draws(rank *r) {
    llm_backend_ctx *ctx = r->ctx;
    int n_out = ctx->padded.n_out, first = stage_of(r) * ctx->n_group;
    const float *logits = r->logits;
    if (!r->weights) return;
    if (ctx->n_group > 1) {
        size_t share = (size_t)ctx->widest * (size_t)n_out, begin = 0;
        if (!nccl_gone(r))
            nccl_ok(r, nccl.all_gather(r->logits, r->gathered, share, NCCL_F32, r->comms[COMM_STAGE], r->stream), "all-gather");
        for (int i = 0; i < ctx->n_group; begin += (size_t)ctx->vocabs[first + i++])
            rank_ok(r,
                    cudaMemcpy2DAsync(r->flat + begin, (size_t)ctx->vocab * 4, r->gathered + share * (size_t)i, (size_t)ctx->widest * 4,
                                      (size_t)ctx->vocabs[first + i] * 4, (size_t)n_out, cudaMemcpyDeviceToDevice, r->stream),
                    "logits");
        logits = r->flat;
    }
    const int n_parts = draw_parts(ctx->vocab);
    const draw_args a = {logits, r->weights, r->parts, r->drawn, (int)ctx->vocab, n_parts};
    launch<kernel_draw_parts>(r, dim3((unsigned)(n_out * n_parts)), DRAW_THREADS, 0, r->view, a);
    launch<kernel_draw>(r, dim3((unsigned)n_out), DRAW_THREADS, 0, r->view, a);
    if (r->comms[COMM_BACK]) run_send_back(r, r->drawn, drawn_bytes(n_out));
}

/* Of the token rows of a buffer, strides too. */
static size_t rows_bytes(const rank *r, const llm_buffer *b) { return (size_t)(b->stride * r->ctx->padded.n_rows) * sizeof(float); }

/* One record: its kernels, from the operation's arguments and the padded shape. */
static void run_record(rank *r, const record *rec) {
    switch (rec->kind) {
    case OP_EMBED: run_embed(r, &rec->op.embed); return;
    case OP_ROPE: run_rope(r, &rec->op.rope); return;
    case OP_RESIDUAL: run_residual(r, &rec->op.residual); return;
    case OP_NORM: run_norm(r, &rec->op.norm); return;
    case OP_LINEAR: run_linear(r, rec); return;
    case OP_QKV: run_qkv(r, &rec->op.qkv); return;
    case OP_ATTENTION: run_attention(r, rec); return;
    case OP_MLA: run_latent(r, &rec->op.mla); return;
    case OP_ROUTE: run_route(r, &rec->op.route); return;
    case OP_EXPERTS: run_experts(r, &rec->op.experts); return;
    case OP_GATE: run_gate(r, &rec->op.gate); return;
    case OP_GATHER: run_gather(r, &rec->op.gather); return;
    case OP_ALL_REDUCE: run_all_reduce(r, rec->op.reduce.rows, rec->op.reduce.buf, padded_rows(r, rec->op.reduce.rows)); return;
    case OP_LOGITS: run_logits(r, &rec->op.logits); return;
    case OP_LORA: run_lora(r, &rec->op.lora); return;
    case OP_SEND: run_send(r, rec->op.gather.src->data, rows_bytes(r, rec->op.gather.src)); return;
    case OP_RECEIVE: run_receive(r, rec->op.gather.dst->data, rows_bytes(r, rec->op.gather.dst)); return;
    case OP_STATE: run_state(r, &rec->op.state); return;
    case OP_COUNT: return;
    }
}

/* One record by itself, with the time that the first device needs for it. */
static void time_record(rank *r, const record *rec) {
    float ms = 0;
    rank_ok(r, cudaEventRecord(r->around[0], r->stream), "event");
    run_record(r, rec);
    rank_ok(r, cudaEventRecord(r->around[1], r->stream), "event");
    if (!rank_ok(r, cudaEventSynchronize(r->around[1]), "event") ||
        !rank_ok(r, cudaEventElapsedTime(&ms, r->around[0], r->around[1]), "event"))
        return;
    r->ctx->record_s[rec->kind] += ms * 1e-3;
    r->ctx->n_records[rec->kind]++;
}

/* Launches the list and, if tokens are drawn here, the sampler behind it: eagerly, or into the graph that is being captured. */
static void run_list(rank *r) {
    list_fuse(r);
    list_fuse_heads(r);
    for (int i = 0; i < r->n && !r->failed; i++)
        if (r->list[i].done) continue;
        else if (r->ctx->each_record && !r->index) time_record(r, &r->list[i]);
        else run_record(r, &r->list[i]);
    if (r->ctx->any_draws) run_draws(r);
}

/* The place of this step's shape in the table; a new one, or that of the shape that was not used for longest, has no graph yet. Of the
 * steps that still run none has it. */
static graph *graph_find(rank *r) {
    const llm_backend_ctx *ctx = r->ctx;
    const graph now = {ctx->padded.n_rows, ctx->any_draws, ctx->shape.lora, ctx->shape.program, ctx->shape.given, ctx->begun, NULL};
    graph *oldest = &r->graphs[0];
    for (int i = 0; i < r->n_graphs; i++) {
        graph *g = &r->graphs[i];
        if (g->n_rows == now.n_rows && g->draws == now.draws && g->lora == now.lora && g->program == now.program && g->given == now.given)
            return g;
        if (ctx->begun - g->used > ctx->begun - oldest->used) oldest = g;
    }
    graph *g = r->n_graphs < MAX_GRAPHS ? &r->graphs[r->n_graphs++] : oldest;
    if (g->exec) cudaGraphExecDestroy(g->exec);
    *g = now;
    return g;
}

/* Captures the list; NULL after a mistake. */
static cudaGraphExec_t list_capture(rank *r) {
    cudaGraph_t made = NULL;
    cudaGraphExec_t exec = NULL;
    if (!rank_ok(r, cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal), "capture")) return NULL;
    run_list(r);
    cudaError_t e = cudaStreamEndCapture(r->stream, &made);
    if (!rank_ok(r, e, "capture") || !rank_ok(r, cudaGraphInstantiate(&exec, made, 0), "graph")) exec = NULL;
    if (made) cudaGraphDestroy(made);
    return exec;
}

/* A step whose shape may have a graph. The first of a shape runs as it is, which loads what libraries keep and a capture must not; the
 * second is captured, and replayed as all later ones are. */
static void run_graph(rank *r) {
    graph *g = graph_find(r);
    if (!g->exec && g->used != r->ctx->begun) g->exec = list_capture(r);
    g->used = r->ctx->begun;
    if (g->exec) rank_ok(r, cudaGraphLaunch(g->exec, r->stream), "graph");
    else if (!r->failed) run_list(r);
}

/* A rank's part of end_step: graph or list, then its share of the logits to the host if somebody wants rows, one rank's draws, and
 * the event that tells that all of it is there. */
static void rank_end_step(rank *r) {
    llm_backend_ctx *ctx = r->ctx;
    unsigned turn = ctx->begun % ctx->n_flight;
    int64_t begin = 0;
    cudaStream_t end = r->stream;
    if (ctx->capture) run_graph(r);
    else run_list(r);
    for (int i = 0; i < world_rank(r); i++) begin += ctx->vocabs[i];
    if (ctx->want_rows && ctx->shape.n_out && r->vocab && !r->failed)
        rank_ok(r,
                cudaMemcpy2DAsync(ctx->logits[turn] + begin, (size_t)ctx->vocab * 4, r->logits, (size_t)ctx->widest * 4,
                                  (size_t)r->vocab * 4, (size_t)ctx->shape.n_out, cudaMemcpyDeviceToHost, r->stream),
                "logits");
    if (ctx->any_draws && r->back) {
        end = r->back;
        run_receive_back(r, r->drawn, drawn_bytes(ctx->padded.n_out));
    }
    if (ctx->any_draws && !world_rank(r))
        rank_ok(r,
                cudaMemcpy2DAsync(ctx->drawn[turn], sizeof(llm_drawn), r->drawn + (ctx->begun & 1), 2 * sizeof(llm_drawn),
                                  sizeof(llm_drawn), (size_t)ctx->shape.n_out, cudaMemcpyDeviceToHost, end),
                "draws");
    if (end != r->stream) {
        rank_ok(r, cudaEventRecord(r->back_after, r->stream), "event");
        rank_ok(r, cudaStreamWaitEvent(end, r->back_after, 0), "event");
    }
    rank_ok(r, cudaEventRecord(r->done[turn], end), "event");
    if (ctx->times && !r->index) rank_ok(r, cudaEventRecord(r->to[ctx->begun % N_TIMES], r->stream), "event");
}

/* The ranks of a stage must have recorded the same operations, or they would wait for each other in collectives for ever; then each
 * launches its own. */
static llm_result cuda_end_step(llm_backend_ctx *ctx) {
    for (int i = 1; i < ctx->n_ranks && !ctx->failed; i++) {
        const rank *first = &ctx->ranks[max_int(0, i - (ctx->first + i) % ctx->n_group)];
        int same = ctx->ranks[i].n == first->n;
        for (int k = 0; same && k < first->n; k++) same = ctx->ranks[i].list[k].kind == first->list[k].kind;
        if (!same) ctx_fail(ctx, LLM_ERR_ARG, "the ranks recorded different operations");
    }
    if (ctx->failed) return ctx_result(ctx);
    run_ranks(ctx, rank_end_step);
    ctx->begun++;
    return ctx_result(ctx);
}

/* Whether a rank's step has ended; 1 also after a mistake, which is noted. */
static int rank_done(rank *r, unsigned turn, int ask_nccl) {
    select_device(r);
    cudaError_t e = r->failed ? cudaSuccess : cudaEventQuery(r->done[turn]);
    if (e != cudaErrorNotReady) return rank_ok(r, e, "a kernel failed"), 1;
    for (int k = 0; k < N_COMMS && ask_nccl; k++) {
        int lost = 0;
        if (r->comms[k] && !r->ctx->aborted) nccl_ok(r, nccl.async_error(r->comms[k], &lost), "NCCL");
        if (lost) nccl_ok(r, lost, "a rank was lost");
    }
    return r->failed != LLM_OK;
}

/* Waits for all ranks' events; watches time and NCCL. It asks at once and often, since a step of a small model takes a fraction of a
 * millisecond, and sleeps between questions when it takes longer, so that a waiting thread does not keep a core from others. All are asked
 * in turn: one that failed is heard while the others wait for it. */
static void ranks_wait(llm_backend_ctx *ctx, unsigned turn) {
    double limit = step_limit(ctx), until = seconds() + limit;
    int waiting[MAX_RANKS], n = ctx->n_ranks;
    for (int i = 0; i < n; i++) waiting[i] = i;
    for (unsigned spins = 0; n && !ctx->failed; spins++) {
        for (int i = 0; i < n && !ctx->failed; i++) {
            rank *r = &ctx->ranks[waiting[i]];
            if (!rank_done(r, turn, spins % 1024 == 0)) continue;
            rank_result(r);
            waiting[i--] = waiting[--n];
        }
        if (n && spins % 1024 == 0 && world_lost(ctx)) return;
        if (n && seconds() > until && !ctx->failed) {
            rank *r = &ctx->ranks[waiting[0]];
            rank_fail(r, LLM_ERR_BACKEND, "a step did not end in %.3g s%s", limit, ctx->n_world > 1 ? ": a rank does not answer" : "");
            rank_result(r);
        }
        if (spins > 2000) usleep(50);
    }
}

/* For tests/cuda/gpu.sh: what the first device computed in the step that has just ended, and how long it stood still before it. Later steps
 * may have been begun, so there are events for more than those. */
static void note_times(llm_backend_ctx *ctx) {
    rank *r = &ctx->ranks[0];
    unsigned at = ctx->waited % N_TIMES, before = (ctx->waited - 1) % N_TIMES;
    float ms = 0;
    select_device(r);
    if (rank_ok(r, cudaEventElapsedTime(&ms, r->from[at], r->to[at]), "event")) ctx->busy_s += ms * 1e-3;
    if (ctx->waited && rank_ok(r, cudaEventElapsedTime(&ms, r->to[before], r->from[at]), "event")) ctx->idle_s += ms * 1e-3;
}

/* Waits for the oldest step that was not waited for, with one limit of time for all ranks together. A rank that does not come in time, or
 * that NCCL reports as lost, makes the context fail for good; aborting lets the others' kernels end. */
static llm_result cuda_wait(llm_backend_ctx *ctx) {
    if (ctx->waited != ctx->begun) {
        ranks_wait(ctx, ctx->waited % ctx->n_flight);
        if (ctx->times && !ctx->failed) note_times(ctx);
        ctx->waited++;
        if (ctx->failed && ctx->n_world > 1) abort_ranks(ctx);
    }
    return ctx_result(ctx);
}

/* Of the step that was waited for last: host memory that stays as it is until wait is called again. */
static const float *cuda_logits_row(llm_backend_ctx *ctx, int out_row) {
    return ctx->logits[(ctx->waited - 1) % ctx->n_flight] + (int64_t)out_row * ctx->vocab;
}

/* Of the same step. */
static const llm_drawn *cuda_drawn(llm_backend_ctx *ctx, int out_row) { return ctx->drawn[(ctx->waited - 1) % ctx->n_flight] + out_row; }

/* Of the latest step; for tests and embeddings, so it may wait. The row is overwritten by the next call. */
static const float *cuda_buffer_row(llm_backend_ctx *ctx, int index, const llm_buffer *b, int row) {
    rank *r = &ctx->ranks[index];
    select_device(r);
    float *to = (float *)realloc(ctx->row, (size_t)b->cols * sizeof *to);
    if (!to) return ctx->row;
    ctx->row = to;
    rank_ok(r, cudaMemcpyAsync(to, b->data + row * b->stride, (size_t)b->cols * sizeof *to, cudaMemcpyDeviceToHost, r->stream), "buffer");
    rank_ok(r, cudaStreamSynchronize(r->stream), "buffer");
    return to;
}

/* Many rows at once. */
static llm_result cuda_buffer_rows(llm_backend_ctx *ctx, int index, const llm_buffer *b, int row, int n, float *to) {
    rank *r = &ctx->ranks[index];
    select_device(r);
    rank_ok(r,
            cudaMemcpy2DAsync(to, (size_t)b->cols * sizeof *to, b->data + row * b->stride, (size_t)b->stride * sizeof *to,
                              (size_t)b->cols * sizeof *to, (size_t)n, cudaMemcpyDeviceToHost, r->stream),
            "buffer");
    rank_ok(r, cudaStreamSynchronize(r->stream), "buffer");
    return rank_result(r);
}

static int page_ok(const llm_backend_ctx *ctx, int32_t page) { return page >= 0 && page < ctx->n_pages; }

/* Enqueued behind the steps that are under way, so a page may be copied that one of them still writes. */
static llm_result cuda_kv_copy(llm_backend_ctx *ctx, const int32_t *from, const int32_t *to, int n) {
    for (int i = 0; i < n; i++) {
        if (!page_ok(ctx, from[i]) || !page_ok(ctx, to[i]))
            return fail_with(&ctx->cfg, LLM_ERR_ARG, "kv_copy: page %d to %d of %lld", from[i], to[i], (long long)ctx->n_pages);
        for (int k = 0; k < ctx->n_ranks && from[i] != to[i]; k++) {
            rank *r = &ctx->ranks[k];
            select_device(r);
            rank_ok(r,
                    cudaMemcpyAsync(r->kv + to[i] * ctx->page_bytes, r->kv + from[i] * ctx->page_bytes, (size_t)ctx->page_bytes,
                                    cudaMemcpyDeviceToDevice, r->stream),
                    "kv_copy");
            if (r->failed) return rank_result(r);
        }
    }
    return ctx_result(ctx);
}

/* One page between the host and a rank, either way: `to` NULL writes the page. Waits, since the host's memory may be anything. */
static llm_result kv_move(llm_backend_ctx *ctx, int index, int32_t page, void *to, const void *from, const char *what) {
    if (index < 0 || index >= ctx->n_ranks || !page_ok(ctx, page))
        return fail_with(&ctx->cfg, LLM_ERR_ARG, "%s: page %d of rank %d is not there", what, page, index);
    rank *r = &ctx->ranks[index];
    if (ctx->failed) return ctx_result(ctx);
    uint8_t *at = r->kv + page * ctx->page_bytes;
    select_device(r);
    rank_ok(r,
            cudaMemcpyAsync(to ? to : at, to ? at : from, (size_t)ctx->page_bytes, to ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                            r->stream),
            what);
    rank_ok(r, cudaStreamSynchronize(r->stream), what);
    return rank_result(r);
}

static llm_result cuda_kv_read(llm_backend_ctx *ctx, int index, int32_t page, void *host) {
    return kv_move(ctx, index, page, host, NULL, "kv_read");
}
static llm_result cuda_kv_write(llm_backend_ctx *ctx, int index, int32_t page, const void *host) {
    return kv_move(ctx, index, page, NULL, host, "kv_write");
}

/* Copies of pages to and from this memory then need no stop in the driver's own. Where it cannot be pinned they work as well. */
static void cuda_pin(llm_backend_ctx *ctx, void *host, size_t bytes) {
    select_device(&ctx->ranks[0]);
    if (cudaHostRegister(host, bytes, cudaHostRegisterPortable) == cudaSuccess) ctx->pinned = host;
    else cudaGetLastError();
}
