/* linear_many: many rows, by NVIDIA's own products; and which way a product takes. */

/* From so many rows on cuBLASLt is faster than our tiles, as an H200 has it: packed weights are widened first, and e4m3 is multiplied by
 * e4m3. */
static int library_rows(int kind) { return kind <= KIND_F8 ? 9 : 193; }

/* The largest of what 256 threads have, for all of them. `top`: 8 floats of shared memory. */
static __device__ float block_most(float most, float *top) {
    most = warp_max(most);
    __syncthreads(); /* what was there before has been read */
    if ((threadIdx.x & 31) == 0) top[threadIdx.x >> 5] = most;
    __syncthreads();
    for (int i = 0; i < 8; i++) most = fmaxf(most, top[i]);
    return most;
}

/* Computes: to (T, K) = x (T, cols) as 16-bit floats, zeros behind its columns and rows; of halves, a row times its half_scale, and one
 * over that in scales. `bricks`: of each 16 columns the first two of each four come first, and then the other two, as instructions meet
 * those of a brick. Grid: T, a thread every 256th four. A row is read again only if a value of it fits no half. Twin: what llm__run_linear
 * reads. */
static __global__ void __launch_bounds__(256) kernel_narrow(linear_args a, int half, int bricks, int K, float *scales, uint32_t *to) {
    grid_wait();
    SMEM(float, top, 8);
    const int row = (int)blockIdx.x, there = row < *a.n_rows, whole = x_whole(a);
    const float *x = a.x + row * a.x_stride;
    to += (int64_t)row * (K / 2);
    for (float by = 1;;) {
        float most = 0;
#pragma unroll 4
        for (int c = 4 * (int)threadIdx.x; c < K; c += 1024) {
            const float4 v = there ? load_x4(a, x, c, whole) : make_float4(0, 0, 0, 0);
            const uint32_t two = half ? narrow_pair<true>(v.x * by, v.y * by) : narrow_pair<false>(v.x, v.y),
                           more = half ? narrow_pair<true>(v.z * by, v.w * by) : narrow_pair<false>(v.z, v.w);
            most = fmaxf(fmaxf(fmaxf(most, fabsf(v.x)), fmaxf(fabsf(v.y), fabsf(v.z))), fabsf(v.w));
            if (bricks) to[c / 16 * 8 + c % 16 / 4] = two, to[c / 16 * 8 + c % 16 / 4 + 4] = more;
            else *(uint2 *)(to + c / 2) = make_uint2(two, more);
        }
        if (!half) return;
        const float next = half_scale(block_most(most, top));
        if (threadIdx.x == 0) scales[row] = 1 / next;
        if (next == by) return;
        by = next;
    }
}

/* Computes: out (T, n) *= scales (T), in rows whose scale is not 1. Grid: T. Twin: none, what it does is in llm__run_linear's sums. */
static __global__ void __launch_bounds__(256)
    kernel_rescale(const int32_t *n_rows, const float *scales, float *out, int64_t stride, int n) {
    grid_wait();
    float by = (int)blockIdx.x < *n_rows ? scales[blockIdx.x] : 1;
    for (int i = threadIdx.x; i < n && by != 1; i += 256) out[blockIdx.x * stride + i] *= by;
}

/* Computes: to (T, K) = x (T, cols) as e4m3, each row over its scale, largest / 448; zeros behind columns and rows. Grid: T, a thread every
 * 256th value. Twin: what llm__run_linear reads, rounded as fp8 weights are. */
static __global__ void __launch_bounds__(256) kernel_narrow_f8(linear_args a, float *scales, uint8_t *to) {
    grid_wait();
    SMEM(float, top, 8);
    int row = (int)blockIdx.x, K = a.subs * 32, n = row < *a.n_rows ? a.cols : 0;
    const float *x = a.x + row * a.x_stride;
    float most = 0;
    for (int i = threadIdx.x; i < n; i += 256) most = fmaxf(most, fabsf(x[i]));
    most = block_most(most, top);
    float scale = most > 0 ? most / 448 : 1;
    if (threadIdx.x == 0) scales[row] = scale;
    for (int i = threadIdx.x; i < K; i += 256) to[(int64_t)row * K + i] = (uint8_t)(i < n ? f32_narrow(x[i] / scale, 4, 3, 0x7e, 0x7f) : 0);
}

/* Computes: to (n, K) = rows [first, first + n) of a packed part as halves; first by the 16. Grid: (bricks of a row / 4, n / 16), a warp a
 * brick, as its lanes have it. Twin: llm__dequant_columns. */
template <int K> static __global__ void __launch_bounds__(128) kernel_widen(part w, int64_t first, int64_t n, uint16_t *to) {
    grid_wait();
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, i = (int)blockIdx.x * 4 + (threadIdx.x >> 5);
    if (i >= ceil_div(w.subs, BRICK_SUBS)) return;
    if constexpr (K == KIND_F8) {
        const int64_t row = 16 * (int64_t)blockIdx.y + lane / 2, sub = BRICK_SUBS * i + lane % 2;
        for (int h = 0; h < 2 && row < n && sub < w.subs; h++) {
            float v[16];
            load16<K>(w, first + row, (int)sub, h, v);
            store_narrow<true>(to + (row * w.subs + sub) * 32 + 16 * h, v);
        }
        return;
    }
    const uint8_t *brick = brick_at(w, brick_bytes(K), first + 16 * (int64_t)blockIdx.y, i);
    lane_span<K> p;
    lane_load<K>(brick, lane, &p);
    const uint32_t *words = (const uint32_t *)p.q;
#pragma unroll
    for (int k = 0; k < 8; k++) { /* sub, row and step */
        const int s = k >> 2, r = k >> 1 & 1, h = k & 1, bytes = kind_scale_bytes(K);
        const int64_t row = 16 * (int64_t)blockIdx.y + 8 * r + g;
        const uint8_t *d = brick + brick_scales(K) + ((s * 8 + g) * 2 + r) * bytes + (bytes == 8 ? 4 * h : 0);
        const uint32_t q = kind_nibbles(K) ? words[2 * s + h] >> (8 * r) : words[4 * s + 2 * h + r];
        const uint32_t high = kind_high_bytes(K) == 4 ? p.high[0] >> (8 * r + 4 * s + 2 * h) : p.high[s] >> (8 * r + 4 * h);
        float v[4];
        scaled4<K>(q, kind_high_bytes(K) ? high : 0, bytes == 2 ? *(const uint16_t *)d : *(const uint32_t *)d, h, w.table, v);
        if (row < n && BRICK_SUBS * i + s < w.subs)
            *(uint2 *)(to + (row * w.subs + BRICK_SUBS * i + s) * 32 + 16 * h + 4 * t) =
                make_uint2(narrow_pair<true>(v[0], v[1]), narrow_pair<true>(v[2], v[3]));
    }
}

/* Computes: out (T, ...) = finish(y (T, n) * scales (T)), of rows [first, first + n) of a part; scales NULL: 1. Grid: (T, n / 256), a
 * thread two rows of W. Twin: llm__body_finish. */
static __global__ void __launch_bounds__(128) kernel_finish(linear_args a, const float *y, const float *scales, int first, int n) {
    grid_wait();
    int row = (int)blockIdx.x, p = 2 * ((int)blockIdx.y * 128 + (int)threadIdx.x);
    const tile t = {0, 0, 0};
    if (row >= *a.n_rows || p >= n) return;
    y += (int64_t)row * n + p;
    float by = scales ? scales[row] : 1;
    finish_pair(a, t, row, first + p, y[0] * by, p + 1 < n ? y[1] * by : 0);
}

/* e4m3 weights are multiplied as they are where tensor cores take them (sm_89 on), by activations of the same type: half the bytes and
 * twice the rate of halves. The library wants sizes by the 16. */
static int native_f8(const rank *r, const linear_args &a) { return a.w.kind == KIND_F8 && r->capability >= 89 && a.w.n_rows % 16 == 0; }

/* One part by cuBLASLt: x is narrowed; packed weights are widened, as many rows as the scratch memory has room for, which costs little
 * beside a product of so many rows; what the epilogue does is a kernel behind, unless there is nothing to do. 0: not enough memory.
 *
 *     scratch    x (T, K) narrowed | scales of its rows (T) | widened (most, K) | y (T, most)
 *
 * The library may write the result itself; then a row that was scaled is brought back behind it, which a sum with what was there does not
 * allow. */
static int run_library(rank *r, const linear_args &a, int n_rows) {
    const int f8 = native_f8(r, a), type = f8 ? CUBLAS_E4M3 : a.w.kind == KIND_BF16 ? CUBLAS_BF16 : CUBLAS_F16, bytes = f8 ? 1 : 2;
    const int as_is = f8 || a.w.kind == KIND_F16 || a.w.kind == KIND_BF16;
    const int half = type == CUBLAS_F16;
    const int direct = !f8 && !(half && a.add) && !a.gate_up && !a.row_scale && !a.bias && !a.plus && a.act == LLM_ACT_NONE &&
                       a.scale == 1 && a.softcap <= 0 &&
                       (uintptr_t)(a.out + a.w.row) % 256 == 0; /* which is what the library takes addresses for */
    const int64_t V = a.w.n_rows, K = (int64_t)a.subs * 32;
    size_t x_bytes = align256((size_t)n_rows * (size_t)K * (size_t)bytes), before = x_bytes + align256((size_t)n_rows * 4),
           each = (as_is ? 0 : (size_t)K * 2) + (direct ? 0 : (size_t)n_rows * 4);
    if (before + 256 >= r->scratch_bytes) return 0;
    int64_t most = each ? (int64_t)((r->scratch_bytes - before - 256) / each) : V;
    most = most < V ? most / 64 * 64 : V;
    if (!most) return 0;
    float *scales = type == CUBLAS_BF16 ? NULL : (float *)(r->scratch + x_bytes);
    uint8_t *widened = r->scratch + before;
    float *y = (float *)(widened + (as_is ? 0 : align256((size_t)most * (size_t)K * 2)));
    if (f8) launch<kernel_narrow_f8>(r, dim3((unsigned)n_rows), 256, 0, a, scales, r->scratch);
    else launch<kernel_narrow>(r, dim3((unsigned)n_rows), 256, 0, a, half, 0, (int)K, scales, (uint32_t *)r->scratch);
    for (int64_t first = 0, n; first < V && !r->failed; first += n) {
        const uint8_t *w = as_is ? a.w.q + first * K * bytes : widened;
        n = V - first < most ? V - first : most;
        if (!as_is)
            with_constant<KIND_F8, KIND_COUNT - 1>(a.w.kind, [&](auto kind) {
                launch<kernel_widen<kind.value>>(r, dim3((unsigned)ceil_div(a.subs, 4 * BRICK_SUBS), (unsigned)ceil_div(n, BRICK_ROWS)),
                                                 128, 0, a.w, first, n, (uint16_t *)widened);
            });
        float *out = a.out + a.w.row + first;
        if (direct) {
            cublas_multiply(r, type, r->scratch, w, out, n_rows, n, K, a.out_stride, a.add);
            if (half) launch<kernel_rescale>(r, dim3((unsigned)n_rows), 256, 0, a.n_rows, (const float *)scales, out, a.out_stride, (int)n);
        } else {
            cublas_multiply(r, type, r->scratch, w, y, n_rows, n, K, n, 0);
            launch<kernel_finish>(r, dim3((unsigned)n_rows, (unsigned)ceil_div(n, 256)), 128, 0, a, (const float *)y, (const float *)scales,
                                  (int)first, (int)n);
        }
    }
    return 1;
}

/* Tiles of T rows of x, from row b.row0 on. */
template <int T> static void launch_bands(rank *r, const linear_args &a, const band_args &b, int tiles, int blocks) {
    with_constant<KIND_F8 + 1, KIND_COUNT - 1>(a.w.kind, [&](auto kind) {
        if constexpr (T <= band_most<kind.value>())
            launch<kernel_linear_band<kind.value, T>>(r, dim3((unsigned)tiles, (unsigned)blocks), 32 * BAND_WARPS,
                                                      (size_t)band<kind.value, T>::SMEM_BYTES, a, b);
    });
}

/* One part, packed, by kernel_linear_band; `narrowed`: x has been for another one. 0: not enough memory.
 *
 *     scratch    x (T, K) narrowed | scales of its rows (T) | pieces of bands
 *
 * A multiprocessor has two blocks where there is work for them, else one: each piece of a band goes through memory once more. */
static int run_bands(rank *r, const linear_args &a, int n_rows, int narrowed) {
    const int units = band_units(a.subs), total = ceil_div(a.w.n_rows, BAND_ROWS) * units,
              blocks = total >= 16 * r->n_sms ? 2 * r->n_sms : min_int(total, r->n_sms);
    int large = 32;
    with_constant<KIND_F8 + 1, KIND_COUNT - 1>(a.w.kind, [&](auto kind) {
        if (band_most<kind.value>() == 64 && band<kind.value, 64>::SMEM_BYTES <= r->max_smem - 1024) large = 64;
    });
    const size_t x_bytes = align256((size_t)n_rows * (size_t)units * BAND_X), before = x_bytes + align256((size_t)n_rows * 4),
                 each = (size_t)blocks * 2 * (size_t)large * BAND_ROWS * sizeof(float);
    if (before + each > r->scratch_bytes) return 0;
    const int most = min_int((int64_t)((r->scratch_bytes - before) / each), BAND_TILES);
    band_args b = {.x = (uint16_t *)r->scratch,
                   .scales = (float *)(r->scratch + x_bytes),
                   .pieces = (float *)(r->scratch + before),
                   .arrived = r->arrived};
    if (!narrowed)
        launch<kernel_narrow>(r, dim3((unsigned)n_rows), 256, 0, a, 1, 1, units * (BAND_X / 2), (float *)(r->scratch + x_bytes),
                              (uint32_t *)r->scratch);
    while (b.row0 < n_rows) {
        const int left = n_rows - b.row0, tiles = max_int(1, min_int(left / large, most));
        if (left <= 16) launch_bands<16>(r, a, b, 1, blocks);
        else if (left <= 32) launch_bands<32>(r, a, b, 1, blocks);
        else if (large == 64) launch_bands<64>(r, a, b, tiles, blocks);
        else launch_bands<32>(r, a, b, tiles, blocks);
        b.row0 += left <= 32 ? left : tiles * large;
    }
    return 1;
}

/* Everything of `a` that depends on the weight, then one launch a part. n_rows: of this launch at most; with groups, in all. */
static void run_product(rank *r, const llm_weight *w, const llm_weight *bias, const llm_buffer *plus, linear_args a, int n_rows) {
    int groups = a.begin ? w->n_groups : 1, each = ceil_div(n_rows, groups), narrowed = 0;
    const int any = !a.begin && !a.rms && !r->ctx->cfg.batch_invariant, library = any && r->cublas, bands = any && n_rows > FEW_ROWS;
    a.cols = (int32_t)w->cols;
    a.subs = w->subs;
    a.n_groups = w->n_groups;
    a.per_group = (int32_t)(w->rows / w->n_groups);
    a.gate_up = w->gate_up;
    a.row_scale = w->row_scale;
    a.bias = bias ? bias->f32 : NULL;
    a.plus = plus ? plus->data : NULL;
    a.plus_stride = plus ? plus->stride : 0;
    for (int i = 0; i < w->n_parts; i++) {
        int rows = w->n_groups == 1 ? (int)w->parts[i].n_rows : a.per_group;
        a.w = w->parts[i];
        if (library && a.w.kind != KIND_F32 && n_rows >= library_rows(a.w.kind) && run_library(r, a, n_rows)) {
            narrowed = 0;
            continue;
        }
        if (bands && kind_bricks(a.w.kind) && run_bands(r, a, n_rows, narrowed)) {
            narrowed = 1;
            continue;
        }
        int size = tile_rows(r, a, n_rows, each), tiles = ceil_div(n_rows, size);
        if (a.begin) tiles = min_int(n_rows, (int64_t)tiles + groups);
        launch_product(r, a, rows, size, tiles);
    }
}

/* How many rows an operation's grid covers, and the device's count of those that there are: the first is fixed in a graph, the second comes
 * with each step. */
static int padded_rows(const rank *r, llm_rows rows) { return rows == LLM_ROWS_OUT ? r->ctx->padded.n_out : r->ctx->padded.n_rows; }
static const int32_t *device_rows(const rank *r, llm_rows rows) { return r->view.head + (rows == LLM_ROWS_OUT ? HEAD_OUT : HEAD_ROWS); }

typedef struct xielu_numbers {
    float p, n, b, e; /* see LLM_ACT_XIELU */
} xielu_numbers;

/* Computes: x (rows, n) = xIELU(x) * scale. Grid: (rows, n / 128). A kernel of its own, for in the epilogue, where one family would have
 * it, all products take more registers. Twin: llm__xielu. */
static __global__ void __launch_bounds__(128)
    kernel_xielu(const int32_t *n_rows, float *x, int64_t stride, int n, xielu_numbers a, float scale) {
    grid_wait();
    int i = (int)(blockIdx.y * blockDim.x + threadIdx.x);
    if ((int)blockIdx.x >= *n_rows || i >= n) return;
    float *at = x + (int64_t)blockIdx.x * stride + i, g = *at;
    *at = (g > 0 ? (a.p * g + a.b) * g : a.n * (expm1f(fminf(g, a.e)) - g) + a.b * g) * scale;
}

static void run_xielu(rank *r, const llm_linear_op *op) {
    const xielu_numbers a = {op->xielu[0], op->xielu[1], op->xielu[2], op->xielu[3]};
    const int n = (int)op->weight->rows;
    if (op->weight->gate_up || op->add) return rank_fail(r, LLM_ERR_UNSUPPORTED, "xIELU with a gate, or added to what is there");
    launch<kernel_xielu>(r, dim3((unsigned)padded_rows(r, op->rows), (unsigned)ceil_div(n, 128)), 128, 0, device_rows(r, op->rows),
                         op->dst->data + op->dst_col, op->dst->stride, n, a, op->scale != 0 ? op->scale : 1.0f);
}

/* Twin: llm__run_linear_op; with what list_fuse has joined to it. */
static void run_linear(rank *r, const record *rec) {
    const llm_linear_op *op = &rec->op.linear;
    const int xielu = op->act == LLM_ACT_XIELU;
    const llm_buffer *src = rec->norm ? rec->norm->x : op->src, *dst = rec->onto ? rec->onto : op->dst;
    linear_args a = {.x = src->data + op->src_col,
                     .x_stride = src->stride,
                     .out = dst->data + op->dst_col,
                     .out_stride = dst->stride,
                     .n_rows = device_rows(r, op->rows),
                     .act = xielu ? LLM_ACT_NONE : op->act,
                     .add = op->add || rec->onto,
                     .scale = (op->scale != 0 && !xielu ? op->scale : 1) * (rec->onto ? rec->by : 1),
                     .limit = op->limit};
    if (rec->norm) a.rms = 1, a.norm = rec->norm->weight ? rec->norm->weight->f32 : NULL, a.eps = rec->norm->eps;
    run_product(r, op->weight, op->bias, op->plus, a, padded_rows(r, op->rows));
    if (xielu) run_xielu(r, op);
}
