/* weights: from segments of the mapped file to packed parts.
 *
 * A weight is loaded when it is described: chunks of its rows are copied from the file into pinned memory (two buffers in turn), from there
 * to the device as they are, and packed by a kernel. A rank touches only the bytes of its own rows and columns.
 *
 *     file (mapped)  --memcpy-->  stage[0]  --DMA-->  stage_device[0]  --kernel_pack-->  parts
 *                                 stage[1]            stage_device[1]
 *
 * What a load of 16 GB costs: the link of a GPU takes 25 to 50 GB/s, and one core copies out of the page cache at 3 to 8, as it meets a
 * page for the first time every 4 KiB. So up to eight threads share a chunk's rows (copy_shared), and chunks are 32 MiB on a real device,
 * that starting threads does not count; packing is a kernel's matter of microseconds, and runs behind the next chunk's copy.
 *
 * Two of each: while the device packs one chunk the host fills the other. An event behind each kernel says when its pair is free again, so
 * the host waits for the device only when it is two chunks ahead.
 *
 * Twins of the seam: one stored matrix may come as two weights (an output layer tied to the embedding); the second shares the first one's
 * parts. Fused matrices are several segments: neighbours of one kind become one part, that is one launch; q in Q4_K with v in Q6_K two. */

struct llm_weight {
    llm_role role;
    int64_t rows, cols;
    int32_t n_groups, gate_up, n_parts, subs;
    part *parts;      /* in order of packed rows */
    float *row_scale; /* (rows), in packed order; NULL: all 1 */
    float *f32;       /* VECTOR, MLA_UP */
    int rank;
    const void *source; /* of a weight with one segment: to find one that is loaded already */
    llm_segment segment;
};

/* Twin: llm__kind_table, whose NF4 and FP4 have fewer bits. */
static void type_table(int type, uint64_t *table) {
    static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    static const int8_t e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    static const int8_t nf4[16] = {-127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 71, 92, 127};
    static const int8_t fp4[16] = {0, 1, 85, 127, 42, 64, 21, 32, 0, -1, -85, -127, -42, -64, -21, -32};
    const int8_t *known = type == LLM_TYPE_MXFP4 || type == LLM_TYPE_NVFP4_32 ? e2m1 : type == LLM_TYPE_NF4 ? nf4 : fp4;
    memcpy(table, type == LLM_TYPE_IQ4_NL || type == LLM_TYPE_IQ4_XS ? iq4 : known, 16);
}

/* As what a segment is computed with: blocks stay blocks where no cut goes through one; the rest become the float that holds them, or what
 * dtype asks for. Twin: llm__segment_kind. */
static int segment_kind(const llm_segment *s, llm_compute compute) {
    format f = format_of(s->type);
    if (compute == LLM_COMPUTE_F32) return KIND_F32;
    if (f.block > 1) return !s->transposed && s->col % 32 == 0 && s->n_cols % 32 == 0 ? f.kind : KIND_F16;
    if (s->type == LLM_TYPE_F32 && s->read && compute == LLM_COMPUTE_AUTO) return KIND_F16; /* made of codes with f16 scales */
    if (s->type == LLM_TYPE_F32 && compute != LLM_COMPUTE_AUTO) return compute == LLM_COMPUTE_BF16 ? KIND_BF16 : KIND_F16;
    return f.kind;
}

/* The kind of segments that must be alike: their own, or a float that holds both. */
static int common_kind(int a, int b) {
    return a == b ? a : a == KIND_F32 || b == KIND_F32 || (a <= KIND_BF16 && b <= KIND_BF16) ? KIND_F32 : KIND_F16;
}

/* The next pinned buffer, once what it had has been packed. */
static uint8_t *stage_next(rank *r) {
    int i = r->stage_turn ^= 1;
    for (int k = 0; k < 2 && !r->stage[k]; k++) {
        if (!rank_ok(r, cudaMallocHost((void **)&r->stage[k], (size_t)r->stage_bytes), "pinned memory")) return NULL;
        r->stage_device[k] = (uint8_t *)device_memory(r, (size_t)r->stage_bytes, "staging");
        if (!rank_ok(r, cudaEventCreateWithFlags(&r->stage_free[k], cudaEventDisableTiming), "event")) return NULL;
    }
    if (r->stage_used[i]) rank_ok(r, cudaEventSynchronize(r->stage_free[i]), "loading");
    r->stage_used[i] = 1;
    return r->failed ? NULL : r->stage[i];
}

/* Bytes of n elements, whole blocks. */
static int64_t row_bytes(const format &f, int64_t n) { return n / f.block * f.bytes; }

static constexpr int MAX_COPIERS = 8, COPY_BYTES = 1 << 18;

/* Rows that go from the mapped file to the stage, close together, or are made there; one thread's share of them. */
typedef struct copy_job {
    const llm_segment *made; /* NULL, or its rows from `row` on, `step` apart, columns [lo, hi), are made */
    int64_t row, step, lo, hi;
    uint8_t *to;
    const uint8_t *from;
    int64_t bytes, stride, n; /* of a row, between rows of the file, rows */
    pthread_t thread;
    int runs;
} copy_job;

static void *copy_rows(void *arg) {
    const copy_job *j = (const copy_job *)arg;
    if (j->made) {
        if (j->n) j->made->read(j->made->data, j->row, j->step, j->n, j->lo, j->hi - j->lo, j->to);
        return NULL;
    }
    for (int64_t i = 0; i < j->n; i++) memcpy(j->to + i * j->bytes, j->from + i * j->stride, (size_t)j->bytes);
    return NULL;
}

/* One core reads the page cache, with a fault for each page that is mapped first, several times slower than a device can take it, so
 * several share the rows of a chunk. A thread's start is nothing beside its share of a chunk. */
static void copy_shared(int n_threads, copy_job all) {
    copy_job job[MAX_COPIERS];
    for (; !all.made && all.stride == all.bytes && all.bytes % 2 == 0 && all.bytes > 4096; all.stride = all.bytes /= 2)
        all.n *= 2; /* few long rows */
    int n = min_int(min_int(n_threads, MAX_COPIERS), all.n * all.bytes / COPY_BYTES + 1);
    for (int i = 0; i < n; i++) {
        int64_t begin = all.n * i / n, end = all.n * (i + 1) / n;
        job[i] = all;
        job[i].to += begin * all.bytes;
        if (all.from) job[i].from += begin * all.stride;
        job[i].row += begin * all.step;
        job[i].n = end - begin;
        job[i].runs = i + 1 < n && !pthread_create(&job[i].thread, NULL, copy_rows, &job[i]);
        if (!job[i].runs) copy_rows(&job[i]);
    }
    for (int i = 0; i < n; i++)
        if (job[i].runs) pthread_join(job[i].thread, NULL);
}

/* Copies rows [at, at + n) of a segment to the stage, and fills in what kernels must know of them. */
static void stage_rows(rank *r, const llm_segment *s, int64_t at, int64_t n, uint8_t *to, raw_rows *raw) {
    format f = format_of(s->type);
    int64_t step = s->row_step ? s->row_step : 1, stored = row_bytes(f, s->stored_cols), first = s->row + at * step;
    const uint8_t *from = (const uint8_t *)s->data;
    size_t bytes = 0;
    memset(raw, 0, sizeof *raw);
    raw->type = s->type;
    raw->transposed = s->transposed;
    raw->step = step;
    raw->row = first;
    raw->col = s->col;
    type_table(s->type, raw->table);
    if (s->type >= LLM_TYPE_RANDOM) return;
    int64_t begin = s->transposed ? first : s->col, end = s->transposed ? first + (n - 1) * step + 1 : s->col + s->n_cols;
    int64_t lo = begin / f.block * f.block, hi = (end + f.block - 1) / f.block * f.block, count = s->transposed ? s->n_cols : n;
    raw->pitch = row_bytes(f, hi - lo);
    raw->skip = begin - lo;
    raw->data = r->stage_device[r->stage_turn];
    const uint8_t *place = s->read ? NULL : from + (s->transposed ? s->col : first) * stored + row_bytes(f, lo);
    copy_job all = {s->read ? s : NULL, first, step, lo, hi, to, place, raw->pitch, s->transposed ? stored : step * stored, count, 0, 0};
    copy_shared(r->ctx->cfg.n_threads, all);
    bytes = (size_t)(count * raw->pitch);
    rank_ok(r, cudaMemcpyAsync(r->stage_device[r->stage_turn], to, bytes, cudaMemcpyHostToDevice, r->stream), "loading");
}

/* Rows of a segment that fit the stage at once; 0: not one. Of a transposed segment rows are columns of what is stored. */
static int64_t stage_fits(const rank *r, const llm_segment *s) {
    format f = format_of(s->type);
    int64_t step = s->row_step ? s->row_step : 1, n = s->n_rows;
    if (s->type >= LLM_TYPE_RANDOM) return n < 4096 ? n : 4096;
    if (s->transposed) n = r->stage_bytes / (s->n_cols * (f.bytes * step) + 1) * f.block - 2 * f.block;
    else n = r->stage_bytes / (row_bytes(f, s->n_cols + 2 * f.block) + 1);
    return n < 1 ? 0 : n < s->n_rows ? n : s->n_rows;
}

/* Loads one segment whose first row is row `first` of the weight, chunk by chunk. `add`: to every value (norms that are stored less one).
 */
static void load_segment(rank *r, llm_weight *w, const llm_segment *s, int64_t first, uint64_t seed, float add) {
    int64_t most = stage_fits(r, s), per = w->rows / w->n_groups;
    format f = format_of(s->type);
    if (most < 1) return rank_fail(r, LLM_ERR_LIMIT, "a row of a weight is longer than the staging memory");
    for (int64_t at = 0, n; at < s->n_rows && !r->failed; at += n) {
        raw_rows raw;
        n = s->n_rows - at < most ? s->n_rows - at : most;
        uint8_t *stage = stage_next(r);
        if (!stage) return;
        stage_rows(r, s, at, n, stage, &raw);
        raw.seed = seed;
        if (w->f32)
            launch<kernel_plain>(r, dim3((unsigned)ceil_div(n * w->cols, 128)), 128, 0, w->f32, raw, first + at, n, w->cols,
                                 s->scale != 0 ? s->scale : 1.0f, (const float *)w->row_scale, add);
        for (int i = 0; i < w->n_parts && !w->f32; i++) {
            const part &p = w->parts[i];
            if (w->n_parts > 1 && (first + at < p.row || first + at >= p.row + p.n_rows)) continue;
            int keep = f.block > 1 && p.kind > KIND_F8 && !s->transposed;
            launch<kernel_pack>(r, dim3((unsigned)ceil_div(n * ceil_div(w->subs, BRICK_SUBS), 128)), 128, 0, p, raw, first + at, n, w->cols,
                                per, w->gate_up, keep);
        }
        rank_ok(r, cudaEventRecord(r->stage_free[r->stage_turn], r->stream), "loading");
    }
}

/* Device memory of a part; rows and subs that fill up bricks are there too. */
static void part_allocate(rank *r, llm_weight *w, part *p, const char *name) {
    const int64_t per = w->rows / w->n_groups;
    p->subs = w->subs;
    p->apart = w->n_groups > 1 ? align16((size_t)per) : w->rows;
    const size_t rows = align16((size_t)(w->n_groups > 1 ? p->apart * w->n_groups : p->n_rows));
    const size_t subs = (size_t)(kind_bricks(p->kind) ? ceil_div(w->subs, BRICK_SUBS) * BRICK_SUBS : w->subs);
    const size_t behind = kind_bricks(p->kind) ? (size_t)brick_bytes(p->kind) : 0; /* kernel_linear_band copies bricks by twos */
    p->q = (uint8_t *)device_memory(r, rows * subs * (size_t)sub_bytes(p->kind) + behind, name);
}

/* Cuts a weight into parts of one kind: neighbouring segments that are alike are one part; experts, and gate and up, must all be alike. */
static void weight_parts(rank *r, llm_weight *w, const llm_weight_desc *d) {
    int whole = w->gate_up || w->n_groups > 1, all = segment_kind(&d->segments[0], r->ctx->cfg.compute);
    int64_t row = 0;
    for (int i = 1; i < d->n_segments && whole; i++) all = common_kind(all, segment_kind(&d->segments[i], r->ctx->cfg.compute));
    for (int i = 0; i < d->n_segments; row += d->segments[i++].n_rows) {
        const llm_segment *s = &d->segments[i];
        int k = whole ? all : segment_kind(s, r->ctx->cfg.compute);
        part *last = w->n_parts ? &w->parts[w->n_parts - 1] : NULL;
        uint64_t table[2];
        type_table(s->type, table);
        if (last && last->kind == k && (k != KIND_T4 || !memcmp(table, last->table, 16))) {
            last->n_rows += s->n_rows;
            continue;
        }
        part *p = &w->parts[w->n_parts++];
        memset(p, 0, sizeof *p);
        p->kind = k;
        p->row = row;
        p->n_rows = s->n_rows;
        memcpy(p->table, table, 16);
    }
    for (int i = 0; i < w->n_parts; i++) part_allocate(r, w, &w->parts[i], d->name);
}

/* Scales of segments and of their rows (fp8, int8), one a packed row. */
static void weight_scales(rank *r, llm_weight *w, const llm_weight_desc *d) {
    int any = 0;
    for (int i = 0; i < d->n_segments; i++) any |= (d->segments[i].scale != 0 && d->segments[i].scale != 1) || d->segments[i].scales;
    if (!any) return;
    float *host = (float *)malloc((size_t)w->rows * sizeof *host);
    w->row_scale = (float *)device_memory(r, (size_t)w->rows * sizeof *host, d->name);
    if (!host || !w->row_scale) {
        free(host);
        rank_ok(r, cudaErrorMemoryAllocation, d->name);
        return;
    }
    for (int64_t i = 0, row = 0; i < d->n_segments; i++)
        for (int64_t k = 0; k < d->segments[i].n_rows; k++, row++) {
            const llm_segment *s = &d->segments[i];
            host[packed_row(row, w->rows / w->n_groups, w->gate_up)] =
                (s->scale != 0 ? s->scale : 1) * (s->scales ? s->scales[s->row + k * (s->row_step ? s->row_step : 1)] : 1);
        }
    rank_ok(r, cudaMemcpyAsync(w->row_scale, host, (size_t)w->rows * sizeof *host, cudaMemcpyHostToDevice, r->stream), d->name);
    rank_ok(r, cudaStreamSynchronize(r->stream), d->name);
    free(host);
}

/* Twin: llm__hash of a text, for seeds of random weights. */
static uint64_t hash_text(const char *text, uint64_t seed) {
    size_t n = strlen(text);
    const uint64_t k = 0xD6E8FEB86659FD93u;
    uint64_t h = seed ^ (n * 0x9E3779B97F4A7C15u), v;
    for (; n >= 8; n -= 8, text += 8) {
        memcpy(&v, text, 8);
        h = (h ^ v) * k;
        h ^= h >> 32;
    }
    v = 0;
    memcpy(&v, text, n);
    h = (h ^ v) * k;
    h ^= h >> 32;
    h *= k;
    return h ^ (h >> 29);
}

/* Checks of a description. Twins: llm__segment_check, llm__weight_new. */
static llm_result weight_check(const llm_backend_config *cfg, const llm_weight_desc *d) {
    int64_t rows = 0, groups = d->role == LLM_ROLE_EXPERTS || d->role == LLM_ROLE_EXPERTS_GATE_UP ? d->n_experts : 1;
    int gate_up = d->role == LLM_ROLE_GATE_UP || d->role == LLM_ROLE_EXPERTS_GATE_UP;
    if (d->n_segments < 1 || d->rows < 1 || d->cols < 1 || d->rows > INT32_MAX || d->cols > 1 << 24 ||
        d->rows > UINT32_MAX / (d->cols / 32 + 1) || groups < 1 || d->rows % groups || (gate_up && d->rows / groups % 2))
        return fail_with(cfg, LLM_ERR_ARG, "%s: a weight of %lld x %lld values in %lld parts is not possible", d->name, (long long)d->rows,
                         (long long)d->cols, (long long)groups);
    for (int i = 0; i < d->n_segments; i++) {
        const llm_segment *s = &d->segments[i];
        format f = format_of(s->type);
        if (!f.block) return fail_with(cfg, LLM_ERR_UNSUPPORTED, "%s: type %d cannot be computed with", d->name, s->type);
        int64_t step = s->row_step ? s->row_step : 1, line = s->transposed ? s->row + (s->n_rows - 1) * step + 1 : s->col + s->n_cols;
        if (s->n_rows <= 0 || s->n_cols != d->cols || s->row < 0 || s->col < 0 || line > s->stored_cols || s->stored_cols % f.block)
            return fail_with(cfg, LLM_ERR_ARG, "%s: a segment of %lld x %lld values does not fit its weight of %lld columns", d->name,
                             (long long)s->n_rows, (long long)s->n_cols, (long long)d->cols);
        rows += s->n_rows;
    }
    if (rows == d->rows) return LLM_OK;
    return fail_with(cfg, LLM_ERR_ARG, "%s: segments of %lld rows in all, %lld expected", d->name, (long long)rows, (long long)d->rows);
}

/* The weight of the same stored matrix that this rank has already: an output layer tied to the embedding. */
static const llm_weight *weight_twin(const llm_backend_ctx *ctx, int index, const llm_weight_desc *d) {
    for (int i = 0; i < ctx->n_weights && d->n_segments == 1 && (d->role == LLM_ROLE_HEAD || d->role == LLM_ROLE_EMBED); i++) {
        const llm_weight *w = ctx->all_weights[i];
        if (w->rank == index && w->source && w->source == d->segments[0].data && !memcmp(&w->segment, &d->segments[0], sizeof w->segment))
            return w;
    }
    return NULL;
}

/* A zeroed object of the context's list `all`. */
template <class T> static T *list_new(T ***all, int *n, int *cap) {
    if (*n == *cap) {
        int more = *cap ? 2 * *cap : 256;
        T **grown = (T **)realloc(*all, (size_t)more * sizeof **all);
        if (!grown) return NULL;
        *all = grown;
        *cap = more;
    }
    T *t = (T *)calloc(1, sizeof *t);
    if (t) (*all)[(*n)++] = t;
    return t;
}

/* CUDA calls of this thread mean this rank's device from here on. */
static void select_device(rank *r) { rank_ok(r, cudaSetDevice(r->device), "device"); }

/* Takes memory for a weight and loads it before it returns; the file may be unmapped after weights_done. Twin: llm__cpu_weight. */
static llm_result cuda_weight(llm_backend_ctx *ctx, int index, const llm_weight_desc *d, llm_weight **out) {
    *out = NULL;
    if (index < 0 || index >= ctx->n_ranks) return fail_with(&ctx->cfg, LLM_ERR_ARG, "%s: rank %d of %d", d->name, index, ctx->n_ranks);
    llm_result result = weight_check(&ctx->cfg, d);
    if (result) return result;
    const llm_weight *twin = weight_twin(ctx, index, d);
    llm_weight *w = list_new(&ctx->all_weights, &ctx->n_weights, &ctx->weight_cap);
    if (!w) return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of memory");
    rank *r = &ctx->ranks[index];
    select_device(r);
    w->role = d->role;
    w->rank = index;
    w->rows = d->rows;
    w->cols = d->cols;
    w->subs = ceil_div(d->cols, 32);
    w->n_groups = d->role == LLM_ROLE_EXPERTS || d->role == LLM_ROLE_EXPERTS_GATE_UP ? d->n_experts : 1;
    w->gate_up = d->role == LLM_ROLE_GATE_UP || d->role == LLM_ROLE_EXPERTS_GATE_UP;
    w->parts = (part *)calloc((size_t)d->n_segments, sizeof *w->parts);
    if (!w->parts) return fail_with(&ctx->cfg, LLM_ERR_NOMEM, "out of memory");
    if (d->role == LLM_ROLE_HEAD && d->rows > r->vocab) r->vocab = d->rows;
    if (d->n_segments == 1) {
        w->source = d->segments[0].data;
        w->segment = d->segments[0];
    }
    *out = w;
    if (twin) { /* share its memory */
        memcpy(w->parts, twin->parts, (size_t)twin->n_parts * sizeof *w->parts);
        w->n_parts = twin->n_parts;
        w->row_scale = twin->row_scale;
        return LLM_OK;
    }
    if (d->role == LLM_ROLE_VECTOR || d->role == LLM_ROLE_MLA_UP)
        w->f32 = (float *)device_memory(r, (size_t)(d->rows * d->cols) * sizeof(float), d->name);
    else weight_parts(r, w, d);
    weight_scales(r, w, d);
    uint64_t seed = hash_text(d->name, 1);
    for (int64_t i = 0, row = 0; i < d->n_segments && !r->failed; row += d->segments[i++].n_rows)
        load_segment(r, w, &d->segments[i], row, seed + (uint64_t)i, d->role == LLM_ROLE_VECTOR ? d->add : 0);
    return rank_result(r);
}
