/* norm: embedding, rotary tables, norms, gathering: one block a row.
 *
 * What is done for each row by itself, and is bound by memory: a row of D values is read and written once, by the threads of one block, in
 * steps of the block's width, so that neighbouring threads have neighbouring values. A residual addition and the norms before and after
 * it are one kernel, since x is in the cache of its multiprocessor then. Grids cover the padded rows; a block whose row is not there ends
 * at once, before any barrier. */

/* The token of a row: the host's, or what the step before has drawn. That and what this step draws lie beside each other in turn, as the
 * sampler still asks for a row's token when other rows have theirs. */
static __device__ __forceinline__ int row_token(const step_view &s, const llm_drawn *drawn, int row) {
    return s.token_from[row] < 0 ? s.tokens[row] : drawn[2 * s.token_from[row] + 1 - s.head[HEAD_TURN]].id;
}

/* A table (vocab, hidden) of any kind, one part. rows 0: there is none. */
typedef struct table_view {
    part w;
    int32_t subs;
    int64_t rows, cols;
} table_view;

/* A weight as a table; of NULL an empty one. */
static table_view table_of(const llm_weight *w) {
    table_view t;
    memset(&t, 0, sizeof t);
    if (!w) return t;
    t.w = w->parts[0];
    t.subs = w->subs;
    t.rows = w->rows;
    t.cols = w->cols;
    return t;
}

/* What an embedding takes from the host's rows: see llm_embed_op. */
typedef struct given_args {
    int32_t given, col, add, n, cols; /* n columns from col on of rows that have cols */
} given_args;

/* Computes: x (T, D) = scale * table[token] (+ positions[position + offset]); zeros where another rank has the token's row; or what is
 * given. The token may be one that the step before drew. Grid: one block a row, a thread half a sub. Twin: llm__run_embed_row. */
static __global__ void __launch_bounds__(128)
    kernel_embed(step_view s, float *x, int64_t stride, table_view t, table_view p, const float *row_scale, int32_t offset,
                 int32_t vocab_begin, float scale, const llm_drawn *drawn, given_args g) {
    grid_wait();
    int row = (int)blockIdx.x;
    if (row >= s.head[HEAD_ROWS]) return;
    int given = g.given && s.head[HEAD_HAS] & HAS_GIVEN ? s.given_of[row] : -1;
    for (int i = threadIdx.x; given >= 0 && i < g.n; i += blockDim.x) {
        float v = g.given == LLM_GIVEN_ROW ? s.given[(int64_t)given * g.cols + g.col + i] : 0;
        x[row * stride + i] = g.add ? x[row * stride + i] + v : v;
    }
    if (given >= 0 || !t.rows) return;
    int64_t at = (int64_t)row_token(s, drawn, row) - vocab_begin, place = (int64_t)s.positions[row] + offset;
    for (int i = threadIdx.x; i < 2 * t.subs; i += blockDim.x) {
        float v[16] = {}, q[16] = {};
        if (at >= 0 && at < t.rows) load16_any(t.w, at, i / 2, i & 1, v);
        if (p.rows && place >= 0 && place < p.rows) load16_any(p.w, place, i / 2, i & 1, q);
        float by = row_scale && at >= 0 && at < t.rows ? row_scale[at] * scale : scale;
#pragma unroll /* v and q stay in registers */
        for (int k = 0; k < 16; k++)
            if (16 * i + k < t.cols) x[row * stride + 16 * i + k] = v[k] * by + q[k];
    }
}

/* A position table is a second matrix of the same kernel (GPT-2, OPT). */
static void run_embed(rank *r, const llm_embed_op *op) {
    given_args g = {op->given, op->given_col, op->given_add, (int32_t)op->dst->cols, r->ctx->cfg.given_cols};
    launch<kernel_embed>(r, dim3((unsigned)r->ctx->padded.n_rows), 128, 0, r->view, op->dst->data, op->dst->stride, table_of(op->table),
                         table_of(op->positions), op->table ? op->table->row_scale : NULL, op->position_offset, op->vocab_begin,
                         op->scale != 0 ? op->scale : 1.0f, r->drawn, g);
}

/* Which row of positions each frequency takes, two bits each; of a head of 1024 values at most. */
typedef struct rope_rows {
    uint32_t bits[32];
} rope_rows;

/* Computes: cosines and sines (T, 2 * half) of every row's position; angles in double, as position times frequency loses its fraction in
 * f32. Grid: one block a row. Twin: llm__run_rope. */
static __global__ void __launch_bounds__(64) kernel_rope(step_view s, float *to, int64_t stride, const float *inv_freq, int rope_dim,
                                                         float scale0, float scale1, const __grid_constant__ rope_rows rows) {
    grid_wait();
    int row = (int)blockIdx.x, half = rope_dim / 2;
    if (row >= s.head[HEAD_ROWS]) return;
    int seq = s.seq_of_row[row], variant = s.seq_rope[seq], three = s.head[HEAD_POSITIONS] == 3;
    float scale = variant ? scale1 : scale0;
    double base = (double)s.rope_base[seq];
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        double f = (double)inv_freq[variant * half + i];
        int section = three ? rows.bits[i / 16] >> i % 16 * 2 & 3 : 0;
        if (base != 1) f *= pow(base, -2.0 * i / rope_dim);
        double angle = f * s.positions[section * s.head[HEAD_ROWS] + row];
        angle *= 0.31830988618379067154; /* in half turns: no table of 2 / pi in local memory */
        to[row * stride + i] = (float)cospi(angle) * scale;
        to[row * stride + half + i] = (float)sinpi(angle) * scale;
    }
}

/* At most two variants and three rows of positions (time, height, width). */
static void run_rope(rank *r, const llm_rope_op *op) {
    rope_rows rows;
    memset(&rows, 0, sizeof rows);
    for (int i = 0; i < op->rope_dim / 2 && op->row_of; i++) rows.bits[i / 16] |= (uint32_t)op->row_of[i] << i % 16 * 2;
    launch<kernel_rope>(r, dim3((unsigned)r->ctx->padded.n_rows), 64, 0, r->view, op->dst->data, op->dst->stride, op->inv_freq->f32,
                        op->rope_dim, op->scale ? op->scale[0] : 1.0f, op->scale && op->n_variants > 1 ? op->scale[1] : 1.0f, rows);
}

/* A norm's weights, for kernels. kind NONE: values pass as they are. */
typedef struct norm_view {
    int32_t kind;
    const float *weight, *bias;
    float eps;
} norm_view;

/* Either weight may be NULL: 1, and 0. */
static norm_view norm_of(llm_norm_kind kind, const llm_weight *w, const llm_weight *b, float eps) {
    norm_view n = {kind, w ? w->f32 : NULL, b ? b->f32 : NULL, eps};
    return n;
}

/* Mean (LayerNorm) and 1 / root of the mean square around it, of n values of a row; all threads get them. Twin: llm__norm_row. */
static __device__ void norm_factors(const norm_view &v, const float *x, int n, float *scratch, float *mean, float *factor) {
    float sum = 0, square = 0;
    *mean = 0;
    *factor = 1;
    if (v.kind == LLM_NORM_NONE) return;
    if (v.kind == LLM_NORM_LAYER) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
        *mean = block_sum(sum, scratch) / (float)n;
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) square += (x[i] - *mean) * (x[i] - *mean);
    *factor = 1 / sqrtf(block_sum(square, scratch) / (float)n + v.eps);
}

/* Value i of a row, by the factors that norm_factors found. */
static __device__ __forceinline__ float norm_value(const norm_view &v, float x, int i, float mean, float factor) {
    float y = (x - mean) * factor;
    if (v.weight) y *= v.weight[i];
    return v.bias ? y + v.bias[i] : y;
}

/* One row of n values becomes its sum over the ranks of the stage, added up in their order: the same bits on all. One block on each rank,
 * the same number everywhere, which is the row of the boxes. Each writes its part to its box and its turn to a flag of every other, waits
 * for their flags, and reads their boxes: one way instead of the several of a ring. Two boxes in turn: who writes one has seen the flags of
 * the turn between, and those are written after the reading. */
static __device__ void one_shot_sum(const peer_view &v, float *y, int n) {
    const int row = (int)blockIdx.x, t = (int)threadIdx.x;
    const uint32_t turn = v.turn[row] + 1;
    const int64_t at = (2 * row + (turn & 1)) * v.width;
    float *mine = v.box[v.index] + at;
    for (int i = t; i < n; i += blockDim.x) mine[i] = y[i];
    __threadfence_system();
    __syncthreads();
    if (t < v.n) {
        const uint32_t *flag = v.flags[v.index] + row * MAX_RANKS + t;
        store_release(v.flags[t] + row * MAX_RANKS + v.index, turn);
        while ((int32_t)(load_acquire(flag) - turn) < 0 && !load_acquire(v.stop)) __nanosleep(40);
    }
    __syncthreads();
    for (int i = t; i < n; i += blockDim.x) {
        float sum = v.box[0][at + i];
        for (int k = 1; k < v.n; k++) sum += v.box[k][at + i];
        y[i] = sum;
    }
    if (t == 0) v.turn[row] = turn;
}

/* Computes: y (rows, n) = its sum over ranks. Grid: one block a row. Twin: llm__run_all_reduce. */
static __global__ void __launch_bounds__(256) kernel_sum(const int32_t *n_rows, float *y, int64_t stride, int n, peer_view peers) {
    grid_wait();
    if ((int)blockIdx.x < *n_rows) one_shot_sum(peers, y + (int)blockIdx.x * stride, n);
}

/* Computes: x += scale * post(y); h = norm(x); with replace x = h. y NULL: nothing is added; h NULL: no norm; peers.n > 0: y is a part of a
 * sum over ranks, and gets the whole. Grid: one block a row. A thread meets its own values again in every pass, so only sums need barriers.
 * Twin: llm__run_residual. */
static __global__ void __launch_bounds__(256)
    kernel_residual(const int32_t *n_rows, float *x, float *y, float *h, int64_t x_stride, int64_t y_stride, int64_t h_stride, int n,
                    float scale, norm_view post, norm_view norm, int replace, peer_view peers) {
    grid_wait();
    SMEM(float, scratch, 32);
    int row = (int)blockIdx.x;
    float mean, factor;
    if (row >= *n_rows) return;
    x += row * x_stride;
    if (y) {
        y += row * y_stride;
        if (peers.n) one_shot_sum(peers, y, n);
        norm_factors(post, y, n, scratch, &mean, &factor);
        for (int i = threadIdx.x; i < n; i += blockDim.x)
            x[i] += scale * (post.kind ? norm_value(post, y[i], i, mean, factor) : post.weight ? y[i] * post.weight[i] : y[i]);
    }
    if (!h || !norm.kind) return;
    norm_factors(norm, x, n, scratch, &mean, &factor);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float v = norm_value(norm, x[i], i, mean, factor);
        h[row * h_stride + i] = v;
        if (replace) x[i] = v;
    }
}

/* Whether the ranks sum up these rows by themselves: few of them, so that what counts is the way and not the bytes; with batch_invariant
 * all, as the order in which NCCL adds depends on how many there are. */
static int one_shot(const rank *r, int rows, int64_t width) { return r->peers.n && rows <= r->peers.rows && width <= r->peers.width; }

/* Sums the first `rows` rows of a buffer over the ranks of the stage; NCCL takes whole strides. */
static void run_all_reduce(rank *r, llm_rows which, const llm_buffer *b, int rows) {
    if (r->ctx->n_group == 1 || r->failed) return;
    if (one_shot(r, rows, b->cols))
        launch<kernel_sum>(r, dim3((unsigned)rows), 256, 0, device_rows(r, which), b->data, b->stride, (int)b->cols, r->peers);
    else nccl_all_reduce(r, b->data, (size_t)(b->stride * rows));
}

/* A sum of few rows over the ranks is a part of the kernel. */
static void run_residual(rank *r, const llm_residual_op *op) {
    peer_view peers;
    memset(&peers, 0, sizeof peers);
    if (op->y && one_shot(r, padded_rows(r, op->rows), op->y->cols)) peers = r->peers;
    else if (op->y) run_all_reduce(r, op->rows, op->y, padded_rows(r, op->rows));
    launch<kernel_residual>(r, dim3((unsigned)padded_rows(r, op->rows)), 256, 0, device_rows(r, op->rows), op->x->data,
                            op->y ? op->y->data : NULL, op->h && op->kind ? op->h->data : NULL, op->x->stride, op->y ? op->y->stride : 0,
                            op->h ? op->h->stride : 0, (int)op->x->cols, op->scale != 0 ? op->scale : 1.0f,
                            norm_of(op->post_kind, op->post_weight, op->post_bias, op->eps),
                            norm_of(op->kind, op->weight, op->bias, op->eps), op->replace, peers);
}

/* Computes: dst (T, n) = norm(columns [col, col + n) of src). Grid: one block a row. dst may be src: a thread writes only what it alone
 * reads after the sums. Twin: llm__run_norm. */
static __global__ void __launch_bounds__(256) kernel_norm(const int32_t *n_rows, float *dst, const float *src, int64_t dst_stride,
                                                          int64_t src_stride, int col, int n, norm_view norm) {
    grid_wait();
    SMEM(float, scratch, 32);
    int row = (int)blockIdx.x;
    float mean, factor;
    if (row >= *n_rows) return;
    src += row * src_stride + col;
    norm_factors(norm, src, n, scratch, &mean, &factor);
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        dst[row * dst_stride + i] = norm.kind ? norm_value(norm, src[i], i, mean, factor) : src[i];
}

static void run_norm(rank *r, const llm_norm_op *op) {
    launch<kernel_norm>(r, dim3((unsigned)padded_rows(r, op->rows)), 256, 0, device_rows(r, op->rows), op->dst->data, op->src->data,
                        op->dst->stride, op->src->stride, op->src_col, op->n, norm_of(op->kind, op->weight, op->bias, op->eps));
}

/* Computes: row i of dst = rows out_rows[i], out_rows[i] + 1, ... of src side by side, or their mean. Grid: one block an out row. Twin:
 * llm__run_gather. */
static __global__ void __launch_bounds__(128)
    kernel_gather(step_view s, float *dst, const float *src, int64_t dst_stride, int64_t src_stride, int n, int parts, int mean) {
    grid_wait();
    int row = (int)blockIdx.x;
    if (row >= s.head[HEAD_OUT]) return;
    const float *from = src + s.out_rows[row] * src_stride;
    dst += row * dst_stride;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float sum = 0;
        for (int k = 0; k < parts; k++) {
            sum += from[k * src_stride + i];
            if (!mean) dst[(int64_t)k * n + i] = from[k * src_stride + i];
        }
        if (mean) dst[i] = sum * (1.0f / (float)parts);
    }
}

static void run_gather(rank *r, const llm_gather_op *op) {
    launch<kernel_gather>(r, dim3((unsigned)r->ctx->padded.n_out), 128, 0, r->view, op->dst->data + op->dst_col, op->src->data,
                          op->dst->stride, op->src->stride, min_int(op->dst->cols - op->dst_col, op->src->cols), max_int(op->parts, 1),
                          op->mean);
}

/* Computes: dst (T, n) *= sigmoid(gate (T, 1)). Grid: one block a row. Twin: llm__run_gate. */
static __global__ void __launch_bounds__(128)
    kernel_gate(const int32_t *n_rows, float *dst, const float *gate, int64_t dst_stride, int64_t gate_stride, int n) {
    grid_wait();
    int row = (int)blockIdx.x;
    if (row >= *n_rows) return;
    float by = sigmoid(gate[row * gate_stride]);
    for (int i = threadIdx.x; i < n; i += blockDim.x) dst[row * dst_stride + i] *= by;
}

static void run_gate(rank *r, const llm_gate_op *op) {
    launch<kernel_gate>(r, dim3((unsigned)r->ctx->padded.n_rows), 128, 0, device_rows(r, LLM_ROWS_TOKENS), op->dst->data, op->gate->data,
                        op->dst->stride, op->gate->stride, op->n);
}
