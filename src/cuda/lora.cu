/* lora: adapters: what each row's own low-rank matrices add to a layer.
 *
 * Where the model has W x, an adapter has W x + B A x, with A (r, in) and B (out, r) of a small r (Hu et al. 2021). The rows of one step
 * may have different adapters, so nothing is merged into W: two kernels put B A x into a buffer, and the linear operation behind them
 * adds it before its activation (linear_args.plus). It is batched as in Punica (Chen et al. 2023), by segments of neighbouring rows:
 *
 *     low (T, 3 width)   kernel_lora_down: a warp has one row of A and eight rows of x; A is read once for all rows of one adapter
 *     dst (T, n)         kernel_lora_up: a thread has one output column; -0 where the row's adapter has nothing for it
 *
 * The scheduler puts rows of one adapter side by side, so tiles with two adapters are rare: such a tile walks its rows in runs. Sums are
 * f32 in one order whatever stands beside a row, so that its bits depend on the row alone.
 *
 * A site has a table of its slots on the device, at an address that does not change: graphs are captured once with adapters and replayed
 * whoever is in the slots. Adapters come while steps run, from any thread: they are staged through a loader, which is a rank of its own
 * (its stream, staging memory and mistakes) on the same device, and become plain f32. A slot keeps its memory when it is emptied: the next
 * adapter of that size takes none. Of W's rows and columns that this rank has, the loader is given the rows of B and columns of A.
 *
 * Experts: the rows are slots, sorted by expert, and each has its token's adapter and its expert's part of A and B, which lie one expert
 * after the other. A run of slots is one of the same adapter and expert.
 *
 * Bytes, and what they cost: r (in + out) floats a layer, for r = 16 and 4096 x 4096 half a MiB beside W's 8 (Q4) to 32. In decoding a
 * layer with adapters reads that much more for each adapter of the batch, and launches two kernels more; rows without one read nothing.
 *
 *     rows of a tile of 8:     a a a a b b - -        slots of their sequences
 *     runs                     [ 0..3 ][4,5][6,7]     the first by A of a, the second by A of b, the third not at all
 *
 * Why -0: x + -0 is x for every x, -0 and infinities too, so a row without an adapter keeps its bits beside rows that have one. (0 would
 * turn -0 into 0.) */

/* llm_lora_op with pointers for the device. */
typedef struct lora_args {
    step_view s;
    const lora_slot *slots;
    const float *x; /* NULL: of an embedding */
    float *low, *dst;
    int64_t x_stride, low_stride, dst_stride;
    const int32_t *n_rows;
    const llm_drawn *drawn;
    const int32_t *begin, *row_of;           /* of slots: see linear_args; NULL: rows of the step */
    int32_t n_groups, gather;                /* gather: x has the step's rows, not slots */
    int32_t n, width, out_rows, vocab_begin; /* width: columns of low that a part has */
    float scale;
} lora_args;

static constexpr int LORA_ROWS = 8, LORA_WARPS = 8, LORA_COLUMNS = 128;

/* The adapter's slot of a row; -1: none. */
static __device__ __forceinline__ int lora_slot_of(const lora_args &a, int row) {
    return a.s.seq_lora[a.s.seq_of_row[a.row_of ? a.row_of[row] : a.out_rows ? a.s.out_rows[row] : row]];
}

/* The expert of a row, the last one that begins at or before it; 0 where there are none. */
static __device__ __forceinline__ int lora_group_of(const lora_args &a, int row) {
    int low = 0;
    for (int high = a.n_groups; high - low > 1;) {
        int mid = (low + high) / 2;
        if (a.begin[mid] <= row) low = mid;
        else high = mid;
    }
    return low;
}

/* Of rows [row, end): the end of those that have the first one's slot and expert. */
static __device__ __forceinline__ int lora_run(const lora_args &a, int row, int end) {
    int slot = lora_slot_of(a, row), group = lora_group_of(a, row);
    for (row++; row < end && lora_slot_of(a, row) == slot && lora_group_of(a, row) == group;) row++;
    return row;
}

/* Computes: low (T, 3 width), columns [i width, i width + r_i) = x A_i^T; of an embedding low = the token's row of A, zeros where another
 * rank has it. Grid: (tiles of 8 rows, columns of low / 8), 8 warps of a column each. Reads: A once a tile and adapter, x from L2.
 * Twin: llm__run_lora_down. */
static __global__ void __launch_bounds__(32 * LORA_WARPS) kernel_lora_down(lora_args a) {
    grid_wait();
    int column = (int)blockIdx.y * LORA_WARPS + (threadIdx.x >> 5), lane = threadIdx.x & 31, i = column / a.width, k = column % a.width;
    int first = (int)blockIdx.x * LORA_ROWS, end = min(first + LORA_ROWS, *a.n_rows);
    for (int row = first, next; i < LLM_LORA_PARTS && row < end; row = next) {
        int slot = lora_slot_of(a, row);
        next = lora_run(a, row, end);
        if (slot < 0 || i >= a.slots[slot].n || k >= a.slots[slot].part[i].r) continue;
        const lora_part &p = a.slots[slot].part[i];
        if (!a.x) {
            for (int t = row + lane; t < next; t += 32) {
                int64_t token = (int64_t)row_token(a.s, a.drawn, t) - a.vocab_begin;
                a.low[t * a.low_stride + column] = token >= 0 && token < p.vocab ? p.a[token * p.r + k] : 0;
            }
            continue;
        }
        const float *w = p.a + ((int64_t)lora_group_of(a, row) * p.r + k) * p.in, *x[LORA_ROWS];
        float sum[LORA_ROWS] = {};
#pragma unroll
        for (int t = 0; t < LORA_ROWS; t++) x[t] = a.x + (int64_t)(row + t < next && a.gather ? a.row_of[row + t] : row + t) * a.x_stride;
        for (int c = lane; c < p.in; c += 32) {
            float v = w[c];
#pragma unroll
            for (int t = 0; t < LORA_ROWS; t++)
                if (row + t < next) sum[t] += v * x[t][c];
        }
#pragma unroll
        for (int t = 0; t < LORA_ROWS; t++) {
            float all = warp_sum(sum[t]);
            if (lane == t && row + t < next) a.low[(row + t) * a.low_stride + column] = all;
        }
    }
}

/* Computes: dst (T, n), columns [row_i, row_i + n_i) = scale * low B_i^T, all else -0, for v + -0 is v to the bit; of an embedding dst +=
 * instead of dst =. Grid: (tiles of 8 rows, n / 128), a thread one column. Twin: llm__run_lora_up. */
static __global__ void __launch_bounds__(LORA_COLUMNS) kernel_lora_up(lora_args a) {
    grid_wait();
    int column = (int)blockIdx.y * LORA_COLUMNS + threadIdx.x, first = (int)blockIdx.x * LORA_ROWS;
    int end = min(first + LORA_ROWS, *a.n_rows);
    for (int row = first; column < a.n && row < end; row++) {
        int slot = lora_slot_of(a, row), i = 0, parts = slot < 0 ? 0 : a.slots[slot].n;
        const lora_part *p = parts ? a.slots[slot].part : NULL;
        float *to = a.dst + row * a.dst_stride + column, sum = 0;
        while (i < parts && (column < p[i].row || column >= p[i].row + p[i].n)) i++;
        if (i < parts) {
            const float *b = p[i].b + ((int64_t)lora_group_of(a, row) * p[i].n + column - p[i].row) * p[i].r,
                        *low = a.low + row * a.low_stride + i * a.width;
            for (int k = 0; k < p[i].r; k++) sum += b[k] * low[k];
            sum *= a.scale;
            *to = a.x ? sum : *to + sum;
        } else if (a.x) *to = -0.0f;
    }
}

/* Both halves: the whole of low must be there before it is multiplied. rows: at most; a has all that is not set here. */
static void run_lora_pair(rank *r, const llm_lora_site *site, const llm_buffer *low, const llm_buffer *dst, lora_args a, int rows) {
    unsigned tiles = (unsigned)ceil_div(rows, LORA_ROWS);
    a.s = r->view;
    a.slots = site->slots;
    a.low = low->data;
    a.low_stride = low->stride;
    a.dst = dst->data;
    a.dst_stride = dst->stride;
    a.drawn = r->drawn;
    a.width = (int32_t)(low->cols / LLM_LORA_PARTS);
    launch<kernel_lora_down>(r, dim3(tiles, (unsigned)ceil_div(LLM_LORA_PARTS * a.width, LORA_WARPS)), 32 * LORA_WARPS, 0, a);
    launch<kernel_lora_up>(r, dim3(tiles, (unsigned)ceil_div(a.n, LORA_COLUMNS)), LORA_COLUMNS, 0, a);
}

static void run_lora(rank *r, const llm_lora_op *op) {
    lora_args a;
    memset(&a, 0, sizeof a);
    a.x = op->src ? op->src->data : NULL;
    a.x_stride = op->src ? op->src->stride : 0;
    a.n_rows = device_rows(r, op->rows);
    a.n = op->n;
    a.out_rows = op->rows == LLM_ROWS_OUT;
    a.vocab_begin = op->vocab_begin;
    a.scale = op->scale != 0 ? op->scale : 1;
    run_lora_pair(r, op->site, op->low, op->dst, a, padded_rows(r, op->rows));
}

/* What adapters add to n outputs of one layer of the experts, for all slots: the buffer with it, or NULL without a site. x: of the step's
 * rows; NULL: the slots' h. Twin: llm__slots_run. */
static const llm_buffer *run_slots_lora(rank *r, const llm_lora_site *site, const llm_experts_op *op, const slots &s, const float *x,
                                        int64_t x_stride, int n_slots, int64_t n) {
    lora_args a;
    if (!site) return NULL;
    memset(&a, 0, sizeof a);
    a.gather = x != NULL;
    a.x = x ? x : s.h;
    a.x_stride = x ? x_stride : op->down->cols;
    a.begin = s.begin;
    a.row_of = s.row;
    a.n_groups = op->n_experts;
    a.n_rows = s.begin + op->n_experts + 1;
    a.n = (int32_t)n;
    a.scale = 1;
    run_lora_pair(r, site, op->low, op->plus, a, n_slots);
    return op->plus;
}

/* The loaders, at the first site: a stream and staging memory each, taken before the KV cache is sized. */
static llm_result lora_loaders(llm_backend_ctx *ctx) {
    if (ctx->loaders) return LLM_OK;
    ctx->loaders = (rank *)calloc((size_t)ctx->n_ranks, sizeof *ctx->loaders);
    if (!ctx->loaders) return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of memory");
    for (int i = 0; i < ctx->n_ranks; i++) {
        rank *l = &ctx->loaders[i];
        l->ctx = ctx;
        l->index = i;
        l->device = ctx->ranks[i].device;
        l->stage_bytes = 8 << 20;
        select_device(l);
        cudaMemPool_t pool;
        uint64_t all = UINT64_MAX;
        rank_ok(l, cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking), "stream");
        if (rank_ok(l, cudaDeviceGetDefaultMemPool(&pool, l->device), "memory"))
            rank_ok(l, cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all), "memory");
        stage_next(l);
        if (l->failed) return fail_with(&ctx->cfg, l->failed, "%s", l->why);
    }
    return LLM_OK;
}

/* An empty site: n_slots slots that add nothing. Twin: llm__cpu_lora_site. */
static llm_result cuda_lora_site(llm_backend_ctx *ctx, int index, int n_slots, llm_lora_site **out) {
    *out = NULL;
    if (index < 0 || index >= ctx->n_ranks || n_slots < 1)
        return fail_with(&ctx->cfg, LLM_ERR_ARG, "lora_site: rank %d, %d slots", index, n_slots);
    llm_result result = lora_loaders(ctx);
    if (result) return result;
    rank *l = &ctx->loaders[index];
    llm_lora_site *site = list_new(&ctx->sites, &ctx->n_sites, &ctx->site_cap);
    if (site) site->held = (llm_lora_site::lora_held *)calloc((size_t)n_slots, sizeof *site->held);
    if (!site || !site->held) return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of memory");
    select_device(l);
    site->rank = index;
    site->n_slots = n_slots;
    site->slots = (lora_slot *)device_memory(l, (size_t)n_slots * sizeof *site->slots, "adapters");
    rank_ok(l, cudaStreamSynchronize(l->stream), "adapters");
    if (l->failed) return fail_with(&ctx->cfg, l->failed, "%s", l->why);
    *out = site;
    return LLM_OK;
}

/* Stages and widens one matrix of an adapter to `to`, (rows, cols) of f32. */
static void lora_load(rank *l, const llm_weight_desc *d, float *to) {
    llm_weight w;
    memset(&w, 0, sizeof w);
    w.role = d->role;
    w.rows = d->rows;
    w.cols = d->cols;
    w.n_groups = 1;
    w.f32 = to;
    for (int64_t i = 0, row = 0; i < d->n_segments && !l->failed; row += d->segments[i++].n_rows)
        load_segment(l, &w, &d->segments[i], row, 0, 0);
}

/* Memory of an adapter, NULL and a noted error if there is none; and back. In the order of the loader's stream, from a pool that keeps what
 * it has got: cudaMalloc and cudaFree may wait for all that a device does, and hold up every launch meanwhile, which ranks that wait for
 * each other in kernels would never end. */
static uint8_t *adapter_memory(rank *l, size_t bytes) {
    void *p = NULL;
    if (l->failed || !memory_ok(l, cudaMallocAsync(&p, bytes, l->stream), bytes, "an adapter")) return NULL;
    l->bytes += (int64_t)bytes;
    return (uint8_t *)p;
}
static void adapter_free(rank *l, uint8_t *p, size_t bytes) {
    if (!p) return;
    rank_ok(l, cudaFreeAsync(p, l->stream), "an adapter");
    l->bytes -= (int64_t)bytes;
}

/* Fills or empties a slot, in memory that is taken anew only if what the slot had is too small. The stream is waited for: what the segments
 * point to may go, and the next step finds the slot as it is now. No step that runs has rows of the slot. */
static void lora_fill(rank *l, llm_lora_site *site, int slot, const llm_lora_part *parts, int n) {
    auto *held = &site->held[slot];
    size_t at = 0, bytes = 0;
    lora_slot s;
    memset(&s, 0, sizeof s);
    for (int i = 0; i < n; i++)
        bytes += align16((size_t)(parts[i].a->rows * parts[i].a->cols) * 4) + align16((size_t)(parts[i].b->rows * parts[i].b->cols) * 4);
    if (bytes > held->bytes) {
        adapter_free(l, held->memory, held->bytes);
        held->memory = adapter_memory(l, bytes);
        held->bytes = held->memory ? bytes : 0;
    }
    for (int i = 0; i < n && !l->failed; i++) {
        const llm_weight_desc *d[2] = {parts[i].a, parts[i].b};
        float *to[2];
        for (int k = 0; k < 2; k++) {
            to[k] = (float *)(held->memory + at);
            at += align16((size_t)(d[k]->rows * d[k]->cols) * 4);
            lora_load(l, d[k], to[k]);
        }
        int64_t experts = d[1]->role == LLM_ROLE_EXPERTS ? d[1]->n_experts : 1;
        int64_t high = d[1]->rows / experts, wide = d[1]->cols;
        int across = d[1]->role == LLM_ROLE_MLA_UP;
        /* clang-format off */
        lora_part p = {to[0], to[1], (int32_t)(across ? high : wide), (int32_t)d[0]->cols, (int32_t)parts[i].row,
                       (int32_t)(across ? wide : high), (int32_t)d[0]->rows};
        /* clang-format on */
        s.part[s.n++] = p;
    }
    if (!l->failed) rank_ok(l, cudaMemcpyAsync(site->slots + slot, &s, sizeof s, cudaMemcpyHostToDevice, l->stream), "an adapter");
    rank_ok(l, cudaStreamSynchronize(l->stream), "an adapter");
}

/* On error the slot is empty, and nothing else has changed. Twin: llm__cpu_lora_put. */
static llm_result cuda_lora_put(llm_backend_ctx *ctx, int index, llm_lora_site *site, int slot, const llm_lora_part *parts, int n) {
    llm_result result = LLM_OK;
    rank *l = &ctx->loaders[index];
    for (int i = 0; i < n && !result; i++) {
        result = weight_check(&ctx->cfg, parts[i].a);
        if (!result) result = weight_check(&ctx->cfg, parts[i].b);
    }
    pthread_mutex_lock(&ctx->put);
    l->failed = LLM_OK;
    select_device(l);
    lora_fill(l, site, slot, NULL, 0);
    if (!result) lora_fill(l, site, slot, parts, n);
    if (l->failed) result = fail_with(&ctx->cfg, l->failed, "%s", l->why);
    pthread_mutex_unlock(&ctx->put);
    return result;
}
