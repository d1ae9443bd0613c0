/* experts: mixtures of experts: choice, grouped products, sum.
 *
 * The pairs (row, choice) are slots, sorted by expert; the products of >>linear then work on groups of slots. How many slots an expert has
 * is known on the device only: grids are made for the worst case, and tiles without rows end at once. Rows go in turns that fit the scratch
 * memory.
 *
 *     routes (T, 2 k)     kernel_route     row 0: experts 5, 2; row 1: 2, 0
 *     slots               kernel_slots     by expert: (row 1, of 0), (row 0, of 2), (row 1, of 2), (row 0, of 5);  begin = 0 1 1 3 3 3 4
 *     h (slots, ff)       run_product      gate and up of each slot's expert, x gathered by row_of
 *     y (slots, D)        run_product      down
 *     dst (T, D)          kernel_combine   row 0 = w y[slot_of(0, 0)] + w' y[slot_of(0, 1)]: in the order of the choices
 *
 * Slots are found by counting, not with atomics: their order, and so every sum, is the same in every run. Of decoding at batch 1 the worst
 * case is k tiles of one row; an expert that nobody chose is not read. */

typedef struct route_args { /* as qkv_args */
    llm_route_op op;
    float *out;
    const float *logits, *correction;
    int64_t out_stride, logits_stride;
} route_args;

/* The largest of n values and its index, the lower one of equals; a warp. */
static __device__ int warp_arg_max(const float *x, int n, float *value) {
    float best = -INFINITY;
    int at = n;
    for (int i = threadIdx.x & 31; i < n; i += 32)
        if (x[i] > best || at == n) best = x[i], at = i;
    for (int o = 16; o; o >>= 1) {
        float v = __shfl_xor_sync(~0u, best, o);
        int i = __shfl_xor_sync(~0u, at, o);
        if (i < n && (at == n || v > best || (v == best && i < at))) best = v, at = i;
    }
    *value = best;
    return at;
}

/* In place, over n values; a warp. */
static __device__ void warp_softmax(float *x, int n) {
    int lane = threadIdx.x & 31;
    float top = -INFINITY, sum = 0;
    for (int i = lane; i < n; i += 32) top = fmaxf(top, x[i]);
    top = warp_max(top);
    for (int i = lane; i < n; i += 32) sum += x[i] = expf(x[i] - top);
    sum = warp_sum(sum);
    for (int i = lane; i < n; i += 32) x[i] /= sum;
    __syncwarp();
}

/* Leaves only the experts of the best groups. Twin: llm__route_groups. */
static __device__ void warp_route_groups(const route_args &a, float *choice, float *group) {
    int lane = threadIdx.x & 31, size = a.op.n_experts / a.op.n_group;
    for (int g = lane; g < a.op.n_group; g += 32) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = 0; i < size; i++) {
            float x = choice[g * size + i];
            if (x > first) second = first, first = x;
            else if (x > second) second = x;
        }
        group[g] = a.op.group_top2 && size > 1 ? first + second : first;
    }
    __syncwarp();
    for (int left = a.op.n_group - a.op.topk_group; left > 0; left--) { /* drop the worst, of equals the higher */
        int worst = -1;
        for (int g = 0; g < a.op.n_group; g++)
            if (group[g] < INFINITY && (worst < 0 || group[g] <= group[worst])) worst = g;
        __syncwarp();
        if (worst < 0) return;
        if (lane == 0) group[worst] = INFINITY;
        for (int i = lane; i < size; i += 32) choice[worst * size + i] = -INFINITY;
        __syncwarp();
    }
}

/* What SparseMixer gives the best of those left; a warp. Twin: llm__route_near. */
static __device__ float warp_route_near(const llm_route_op &op, const float *logit, const float *choice, int best) {
    float top = logit[best], sum = 0;
    for (int i = threadIdx.x & 31; i < op.n_experts; i += 32)
        if (choice[i] > -INFINITY && !((top - logit[i]) / fmaxf(fabsf(logit[i]), top) > op.near)) sum += expf(logit[i] - top);
    return 1 / warp_sum(sum);
}

/* Computes: routes (T, 2 k) = ids and weights of the k best experts. A warp a row, in shared memory: scores, choices, groups. Grid: one
 * block of 32 threads a row. Twin: llm__run_route. */
static __global__ void __launch_bounds__(32) kernel_route(step_view s, route_args a) {
    grid_wait();
    DYN_SMEM(float, score);
    float *choice = score + a.op.n_experts, sum = 0, scale = a.op.scale != 0 ? a.op.scale : 1, ignored;
    int row = (int)blockIdx.x, lane = threadIdx.x & 31;
    if (row >= s.head[HEAD_ROWS]) return;
    const float *logits = a.logits + row * a.logits_stride;
    float *out = a.out + row * a.out_stride, *weight = out + a.op.k;
    if (a.op.set && (s.head[HEAD_HAS] & HAS_SETS ? s.row_set[row] : 0) != a.op.set - 1) { /* the other set is asked */
        for (int i = lane; i < a.op.k; i += 32) out[i] = -1;
        return;
    }
    for (int i = lane; i < a.op.n_experts; i += 32) score[i] = logits[i];
    __syncwarp();
    if (a.op.score == LLM_ROUTE_SOFTMAX) warp_softmax(score, a.op.n_experts);
    for (int i = lane; i < a.op.n_experts; i += 32) {
        if (a.op.score == LLM_ROUTE_SIGMOID) score[i] = sigmoid(score[i]);
        choice[i] = score[i] + (a.correction ? a.correction[i] : 0);
        if (!(choice[i] > -3e38f)) choice[i] = -3e38f; /* also what is not a number */
    }
    __syncwarp();
    if (a.op.n_group > 1 && a.op.topk_group < a.op.n_group) warp_route_groups(a, choice, choice + a.op.n_experts);
    for (int i = 0; i < a.op.k; i++) {
        int best = warp_arg_max(choice, a.op.n_experts, &ignored);
        float w = a.op.score == LLM_ROUTE_SPARSEMIXER ? warp_route_near(a.op, score, choice, best) : score[best];
        __syncwarp();
        if (lane == 0) choice[best] = -INFINITY, out[i] = (float)best, weight[i] = w;
        __syncwarp();
    }
    if (a.op.score == LLM_ROUTE_TOPK_SOFTMAX) warp_softmax(weight, a.op.k);
    for (int i = 0; i < a.op.k; i++) sum += weight[i];
    __syncwarp();
    if (a.op.normalize) scale /= fmaxf(sum, fmaxf(a.op.normalize_min, 1e-20f));
    for (int i = lane; i < a.op.k; i += 32) weight[i] *= scale;
}

/* Shared memory: scores, choices, groups, of one row. */
static void run_route(rank *r, const llm_route_op *op) {
    route_args a = {*op, op->dst->data, op->logits->data, op->correction ? op->correction->f32 : NULL, op->dst->stride, op->logits->stride};
    launch<kernel_route>(r, dim3((unsigned)r->ctx->padded.n_rows), 32, sizeof(float) * (size_t)(2 * op->n_experts + op->n_group + 1),
                         r->view, a);
}

/* Slots of a turn, in scratch memory. */
typedef struct slots {
    int32_t *begin;   /* (n_experts + 1), then how many slots in all */
    int32_t *row;     /* (slots) */
    int32_t *slot_of; /* (rows, k) */
    float *h, *y;     /* (slots, ff), (slots, hidden) */
} slots;

/* Twin: llm__route_of. */
static __device__ __forceinline__ int route_of(const float *routes, int64_t stride, int row, int j, int n_experts) {
    float id = routes[row * stride + j];
    return id >= 0 && id < (float)n_experts ? (int)id : -1;
}

/* Computes: slots of rows [first, first + n) sorted by expert, rows ascending. Grid: one block; a warp has a piece of the slots, counts
 * those of each expert, and puts each behind what the warps before and its own lanes before have of that expert: so the order does not
 * depend on time. Shared memory: counts (warps, experts), and where each expert begins. Twin: llm__slots_sort. */
static __global__ void __launch_bounds__(1024)
    kernel_slots(const int32_t *n_rows, const float *routes, int64_t stride, slots s, int first, int most, int k, int n_experts) {
    grid_wait();
    DYN_SMEM(int32_t, count);
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, warps = (int)blockDim.x >> 5, n = min(*n_rows - first, most) * k;
    const int each = (n + 32 * warps - 1) / (32 * warps) * 32, from = warp * each, end = min(n, from + each);
    int32_t *begin = count + warps * n_experts, *mine = count + warp * n_experts;
    for (int i = threadIdx.x; i < warps * n_experts; i += blockDim.x) count[i] = 0;
    __syncthreads();
    for (int i = from + lane; i < end; i += 32) {
        int e = route_of(routes, stride, first + i / k, i % k, n_experts);
        if (e >= 0) atomicAdd(&mine[e], 1);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < n_experts; e += blockDim.x) {
        int sum = 0;
#pragma unroll 8
        for (int w = 0; w < warps; w++) {
            int c = count[w * n_experts + e];
            count[w * n_experts + e] = sum;
            sum += c;
        }
        begin[e] = sum;
    }
    __syncthreads();
    for (int e0 = 0, before = 0; e0 < n_experts && warp == 0; e0 += 32) {
        int e = e0 + lane, c = e < n_experts ? begin[e] : 0, sum = before + warp_scan(c);
        if (e < n_experts) begin[e] = s.begin[e] = sum - c;
        if (e == n_experts - 1) s.begin[e + 1] = s.begin[e + 2] = sum;
        before = __shfl_sync(~0u, sum, 31);
    }
    __syncthreads();
    for (int i0 = from; i0 < end; i0 += 32) {
        int i = i0 + lane, e = i < end ? route_of(routes, stride, first + i / k, i % k, n_experts) : -1, below = 0, all = 0;
        for (int j = 0; j < 32; j++) {
            int same = __shfl_sync(~0u, e, j) == e;
            all += same, below += same && j < lane;
        }
        int at = e >= 0 ? begin[e] + mine[e] + below : -1;
        if (e >= 0) s.row[at] = first + i / k;
        if (i < end) s.slot_of[i] = at;
        __syncwarp();
        if (e >= 0 && below == 0) mine[e] += all;
        __syncwarp();
    }
}

static constexpr int COMBINE_CHOICES = 32; /* whose slots and weights a block has at once */

/* Computes: dst (+)= sum over the choices, in their order, of weight * y. Grid: (rows, hidden / 128), a thread a column. Twin:
 * llm__slots_combine. */
static __global__ void __launch_bounds__(128) kernel_combine(const int32_t *n_rows, float *dst, const float *routes, int64_t dst_stride,
                                                             int64_t stride, slots s, int first, int k, int hidden, int add) {
    grid_wait();
    SMEM(int32_t, slot, COMBINE_CHOICES);
    SMEM(float, weight, COMBINE_CHOICES);
    const int row = first + (int)blockIdx.x, c = (int)blockIdx.y * 128 + (int)threadIdx.x;
    if (row >= *n_rows) return;
    float v = add && c < hidden ? dst[row * dst_stride + c] : 0;
    for (int j0 = 0; j0 < k; j0 += COMBINE_CHOICES) {
        const int some = min(COMBINE_CHOICES, k - j0);
        __syncthreads();
        if ((int)threadIdx.x < some) {
            slot[threadIdx.x] = s.slot_of[(int)blockIdx.x * k + j0 + threadIdx.x];
            weight[threadIdx.x] = routes[row * stride + k + j0 + threadIdx.x];
        }
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < some && c < hidden; j++)
            if (slot[j] >= 0) v += weight[j] * s.y[(int64_t)slot[j] * hidden + c];
    }
    if (c < hidden) dst[row * dst_stride + c] = v;
}

/* Lays the slots of n rows out in the scratch memory; returns the bytes. */
static size_t slots_place(slots *s, uint8_t *at, int64_t n, int k, int n_experts, int64_t ff, int64_t hidden) {
    size_t counts = ((size_t)(n_experts + 2) + (size_t)(2 * n * k)) * 4, floats = (size_t)(n * k * (ff + hidden)) * 4;
    counts = (counts + 255) & ~(size_t)255;
    s->begin = (int32_t *)at;
    s->row = s->begin + n_experts + 2;
    s->slot_of = s->row + n * k;
    s->h = (float *)(at + counts);
    s->y = s->h + n * k * ff;
    return counts + floats;
}

/* See >>lora. */
static const llm_buffer *run_slots_lora(rank *r, const llm_lora_site *site, const llm_experts_op *op, const slots &s, const float *x,
                                        int64_t x_stride, int n_slots, int64_t n);

/* As many rows a turn as the scratch memory has room for. Twin: llm__run_experts. */
static void run_experts(rank *r, const llm_experts_op *op) {
    int64_t hidden = op->down->rows / op->n_experts, ff = op->down->cols;
    int rows = r->ctx->padded.n_rows, turn = rows;
    const int warps = max_int(1, min_int(32, (40 << 10) / (4 * op->n_experts) - 1));
    slots s;
    if (op->up_lora || op->down_lora) turn = min_int(turn, op->low->rows / op->k > 1 ? op->low->rows / op->k : 1);
    while (turn > 1 && slots_place(&s, r->scratch, turn, op->k, op->n_experts, ff, hidden) > r->scratch_bytes) turn = (turn + 1) / 2;
    slots_place(&s, r->scratch, turn, op->k, op->n_experts, ff, hidden);
    for (int first = 0, n; first < rows; first += n) {
        n = min_int(turn, rows - first);
        launch<kernel_slots>(r, dim3(1), 32 * warps, sizeof(int32_t) * (size_t)((warps + 1) * op->n_experts),
                             device_rows(r, LLM_ROWS_TOKENS), op->routes->data, op->routes->stride, s, first, n, op->k, op->n_experts);
        const int32_t *n_slots = s.begin + op->n_experts + 1;
        const linear_args up = {.x = op->src->data,
                                .x_stride = op->src->stride,
                                .out = s.h,
                                .out_stride = ff,
                                .n_rows = n_slots,
                                .begin = s.begin,
                                .row_of = s.row,
                                .act = op->act,
                                .scale = 1,
                                .limit = op->limit};
        const linear_args down = {.x = s.h,
                                  .x_stride = ff,
                                  .out = s.y,
                                  .out_stride = hidden,
                                  .n_rows = n_slots,
                                  .begin = s.begin,
                                  .act = LLM_ACT_NONE,
                                  .scale = 1,
                                  .limit = op->limit};
        const llm_buffer *plus = run_slots_lora(r, op->up_lora, op, s, op->src->data, op->src->stride, n * op->k, 2 * ff);
        run_product(r, op->gate_up, op->gate_up_bias, plus, up, n * op->k);
        plus = run_slots_lora(r, op->down_lora, op, s, NULL, 0, n * op->k, hidden);
        run_product(r, op->down, op->down_bias, plus, down, n * op->k);
        launch<kernel_combine>(r, dim3((unsigned)n, (unsigned)ceil_div(hidden, 128)), 128, 0, device_rows(r, LLM_ROWS_TOKENS),
                               op->dst->data, op->routes->data, op->dst->stride, op->routes->stride, s, first, op->k, (int)hidden, op->add);
    }
}
