/* linear: products of weights and activations.
 *
 * Kernels over one description. Few rows go over tensor cores (kernel_linear_rows): weights are what takes time there, each is read once,
 * as it lies, on its way through shared memory into the registers of the lane that multiplies it. Of one row weights of 16 bits need no
 * tensor cores (kernel_linear_few): f32 is fast enough, and rounds nothing. With more rows packed weights become halves on their way
 * (kernel_linear_band). Many rows go to cuBLASLt: floats as they are, packed weights widened first. What must be f32 goes through
 * kernel_linear_f32. All end in finish_pair, which has two neighbouring outputs of one row: so gate and up rows, which are packed side by
 * side, meet in one thread.
 *
 *     rows                       kernel                weights are read       limited by
 *     1 of floats, f32 to 8      kernel_linear_few     once for 1, or 4       memory: bytes of W over bandwidth
 *     1 to 8 of the others       kernel_linear_rows    once for 1, or 8       memory, and what unpacking packed weights takes
 *     9 ... of packed ones       kernel_linear_band    once for 16, 32, 64    memory to 32 rows, then the L2 cache and arithmetic
 *     9 ..., of packed ones 193  cuBLASLt              its own tiles          arithmetic; where the library is not there: as above
 *     17 ... of an expert        kernel_linear_mma     once for 64            arithmetic
 *     9 ..., f32                 kernel_linear_f32     once for 64            arithmetic, without tensor cores
 *
 * e4m3 weights have a way of their own from 9 rows on, where tensor cores multiply them as they are (native_f8). Then activations must be
 * e4m3 too: each row is divided by its largest value over 448, rounded to three bits of fraction, and what comes out is multiplied again.
 * Rounding errors of a row are independent, so a sum of n products loses about 2 % / sqrt(n) of what its terms add up to in size; that is
 * how fp8 models are meant to run, and what vLLM does. Few rows keep f32 activations: there weights are what takes time.
 *
 *     x row      0.5 -3.0 1.0    largest 3.0, scale 3 / 448    e4m3: 72 (of 74.7) -448 144 (of 149.3)
 *
 * Of few rows a product also takes the norm before it: rows are staged times the norm's weights, their squares are summed on the way, and
 * the sums are divided by the root in the end; so x is read once. And what only adds to x adds to it at once.
 *
 * What an epilogue does, in order: sum * row_scale + bias + plus (of adapters), activation, * scale, soft cap, then = or +=. So no
 * operation between two products goes through memory by itself but norms.
 *
 * Batch invariance. kernel_linear_rows adds up columns in one order whatever the number of rows, so with batch_invariant every product goes
 * through it and a row's result depends on the row alone.
 *
 * Experts are the same with rows in groups: `begin` cuts the rows (slots) by expert, and a block finds out which group its tile is of. */

/* One launch: a part of a weight, whole rows of it, times rows of x. Passed by value, so a captured graph keeps its own copy; what differs
 * from step to step is behind n_rows, begin and row_of. Twins: llm__input, llm__finish. */
typedef struct linear_args {
    part w; /* this launch's rows */
    int32_t cols, subs, per_group, gate_up;
    const float *row_scale, *bias;
    const float *plus; /* (rows, rows of W) of adapters; NULL: none */
    int64_t plus_stride;
    const float *x;
    int64_t x_stride;
    float *out;
    int64_t out_stride;
    const int32_t *n_rows; /* on the device; the grid may be larger */
    const int32_t *begin;  /* (n_groups + 1) NULL: one group */
    const int32_t *row_of; /* the row of x of each row here; NULL: the same */
    int32_t n_groups, act, add;
    float scale, limit, softcap;
    int32_t rms; /* x is normed by its root mean square first, times norm; of few rows only */
    const float *norm;
    float eps;
} linear_args;

typedef struct tile {
    int row, n, group; /* rows [row, row + n); n 0: nothing to do */
} tile;

/* What v of the lanes below adds up to, and this one's. */
static __device__ __forceinline__ int warp_scan(int v) {
    const int lane = threadIdx.x & 31;
    for (int o = 1; o < 32; o *= 2) {
        int below = __shfl_sync(~0u, v, lane - o < 0 ? lane : lane - o);
        if (lane >= o) v += below;
    }
    return v;
}

/* Tile `i` of `size` rows. With groups (experts) tiles are counted through all groups, and none has rows of two: a lane counts those of its
 * share of the groups, whose ends are loaded all at once, and the share that has the tile is walked. Whole warps. */
static __device__ tile tile_at(const linear_args &a, int i, int size) {
    tile t = {i * size, *a.n_rows - i * size, 0};
    if (a.begin) {
        const int each = (a.n_groups + 31) / 32, mine = ((int)threadIdx.x & 31) * each;
        int tiles = 0;
#pragma unroll 4
        for (int j = 0; j < each; j++) {
            int g = min(mine + j, a.n_groups), end = min(g + 1, a.n_groups);
            tiles += (a.begin[end] - a.begin[g] + size - 1) / size;
        }
        int sum = warp_scan(tiles);
        const unsigned behind = __ballot_sync(~0u, i < sum);
        const int lane = behind ? __ffs((int)behind) - 1 : 31;
        i -= __shfl_sync(~0u, sum - tiles, lane);
        t.n = 0;
        for (int g = lane * each; behind && g < a.n_groups; g++) {
            int from = a.begin[g], rows = a.begin[g + 1] - from;
            tiles = (rows + size - 1) / size;
            if (i < tiles) {
                t.row = from + i * size;
                t.n = rows - i * size;
                t.group = g;
                break;
            }
            i -= tiles;
        }
    }
    t.n = t.n < 0 ? 0 : t.n < size ? t.n : size;
    return t;
}

static __device__ __forceinline__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

/* act(g) * u; u is 1 where there is no gate. Twin: llm__act16. */
static __device__ float activate(int act, float limit, float g, float u, int gated) {
    switch (act) {
    case LLM_ACT_SILU: return g * sigmoid(g) * u;
    case LLM_ACT_GELU: return g * (0.5f * (1 + erff(g * 0.70710678f))) * u;
    case LLM_ACT_GELU_TANH: return g * sigmoid(1.59576912f * (g + 0.044715f * g * g * g)) * u;
    case LLM_ACT_QUICK_GELU: return g * sigmoid(1.702f * g) * u;
    case LLM_ACT_RELU: return (g > 0 ? g : 0) * u;
    case LLM_ACT_RELU2: return (g > 0 ? g * g : 0) * u;
    case LLM_ACT_SWIGLU_OAI:
        g = g < limit ? g : limit;
        u = gated ? (u < -limit ? -limit : u > limit ? limit : u) + 1 : 1;
        return g * sigmoid(1.702f * g) * u;
    default: return g * u;
    }
}

/* The end of one output: scale, soft cap, store or add. */
static __device__ __forceinline__ void finish_one(const linear_args &a, int row, int64_t col, float v) {
    float *to = a.out + row * a.out_stride + col;
    v *= a.scale;
    if (a.softcap > 0) v = a.softcap * tanhf(v / a.softcap);
    *to = a.add ? *to + v : v;
}

/* Rows of the part in one group, and which row of the part in memory row p of it is. */
static __device__ __forceinline__ int group_rows(const linear_args &a) { return a.n_groups == 1 ? (int)a.w.n_rows : a.per_group; }
static __device__ __forceinline__ int64_t group_row(const linear_args &a, const tile &t, int p) { return t.group * a.w.apart + p; }

/* Sums v0 and v1 of rows p and p + 1 of the group (p even; the second may not be there). Of gate and up they are the two halves of one
 * output, whose biases and adapters lie where the file has them: gates first, then ups. Twin: llm__body_finish. */
static __device__ void finish_pair(const linear_args &a, const tile &t, int row, int p, float v0, float v1) {
    int64_t base = (int64_t)t.group * a.per_group, first = a.w.row + p;
    int two = p + 1 < group_rows(a);
    if (a.row_scale) {
        v0 *= a.row_scale[base + first];
        if (two) v1 *= a.row_scale[base + first + 1];
    }
    if (a.gate_up) {
        int64_t col = first / 2, half = a.per_group / 2;
        if (a.bias) v0 += a.bias[base + col], v1 += a.bias[base + half + col];
        if (a.plus) v0 += a.plus[row * a.plus_stride + col], v1 += a.plus[row * a.plus_stride + half + col];
        finish_one(a, row, col, activate(a.act, a.limit, v0, v1, 1));
        return;
    }
    if (a.bias) {
        v0 += a.bias[base + first];
        if (two) v1 += a.bias[base + first + 1];
    }
    if (a.plus) {
        v0 += a.plus[row * a.plus_stride + first];
        if (two) v1 += a.plus[row * a.plus_stride + first + 1];
    }
    finish_one(a, row, first, activate(a.act, a.limit, v0, 1, 0));
    if (two) finish_one(a, row, first + 1, activate(a.act, a.limit, v1, 1, 0));
}

/* Four activations from column c on, zeros outside. `whole`: rows start on 16 bytes. */
static __device__ __forceinline__ float4 load_x4(const linear_args &a, const float *x, int c, int whole) {
    if (whole && c + 4 <= a.cols) return *(const float4 *)(x + c);
    return make_float4(c < a.cols ? x[c] : 0, c + 1 < a.cols ? x[c + 1] : 0, c + 2 < a.cols ? x[c + 2] : 0, c + 3 < a.cols ? x[c + 3] : 0);
}
static __device__ __forceinline__ int x_whole(const linear_args &a) { return (((size_t)a.x | (size_t)a.x_stride * 4) & 15) == 0; }

/* The row of x that row `row` of a tile is, which must be there. */
static __device__ __forceinline__ const float *x_row(const linear_args &a, const tile &t, int row) {
    return a.x + (int64_t)(a.row_of ? a.row_of[t.row + row] : t.row + row) * a.x_stride;
}

/* Vectors of 16 bytes that a lane of kernel_linear_few has of 1,024 columns; of 16 bits the second four columns of a vector stand FEW_HALF
 * vectors behind the first four in shared memory, so that neighbouring lanes meet no bank twice. */
static constexpr int FEW_HALF = 132;
template <int K> static constexpr __device__ int few_vectors(void) { return kind_bytes(K) / 16; }
template <int K> static __device__ __forceinline__ float few_product(const uint4 &w, const float4 *x, int at) {
    const float4 y = x[at];
    if constexpr (K == KIND_F32) return bits_to_f32(w.x) * y.x + bits_to_f32(w.y) * y.y + bits_to_f32(w.z) * y.z + bits_to_f32(w.w) * y.w;
    else {
        const float4 z = x[FEW_HALF + at];
        const uint32_t u[4] = {w.x, w.y, w.z, w.w};
        float v[8];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[2 * i] = K == KIND_F16 ? half_to_f32((uint16_t)u[i]) : bits_to_f32(u[i] << 16);
            v[2 * i + 1] = K == KIND_F16 ? half_to_f32((uint16_t)(u[i] >> 16)) : bits_to_f32(u[i] & 0xffff0000u);
        }
        return v[0] * y.x + v[1] * y.y + v[2] * y.z + v[3] * y.w + (v[4] * z.x + v[5] * z.y + v[6] * z.z + v[7] * z.w);
    }
}

/* Blocks of kernel_linear_few that a multiprocessor has registers for, without one that spills. */
static constexpr int few_blocks(int kind, int rows) { return rows == 1 && kind != KIND_F32 ? 3 : 2; }

/* Computes: out (n, p) = finish(x (n, cols) W^T), n <= R rows a tile, of weights of 32 and 16 bits. Grid: (rows of W / 16, tiles), 8 warps:
 * a warp has two rows of W, a lane every 32nd vector of 16 bytes of them. Reads: W once a tile, x from L2 to shared memory. Two rows a
 * warp: each vector of x from shared memory is used twice. W is asked for before x is staged, so both ways to memory are gone at once. Lane
 * r ends row r, so that all rows of the tile are finished at once. Twin: llm__run_linear. */
template <int K, int R> static __global__ void __launch_bounds__(256, few_blocks(K, R)) kernel_linear_few(linear_args a) {
    SMEM(float4, xs, R * (128 + FEW_HALF));
    SMEM(int32_t, from, R);        /* registers are for sums */
    SMEM(float, squares, R * 256); /* of what a thread has staged of each row, with a norm */
    if (a.begin) grid_wait();      /* which the kernel before counted */
    tile t = tile_at(a, (int)blockIdx.y, R);
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, p = (int)blockIdx.x * 16 + warp * 2, rows = group_rows(a), whole = x_whole(a);
    const int N = few_vectors<K>(), mine = K == KIND_F32 ? (int)threadIdx.x : (int)(threadIdx.x & 1) * FEW_HALF + (int)(threadIdx.x >> 1);
    float sum[2][R] = {};
    uint4 w[2][N];
    auto load = [&](int c0) { /* of a second row that is not there, the first one: nobody looks at its sum */
                              const int n = (a.subs - c0) * kind_bytes(K) / 16;
#pragma unroll
                              for (int k = 0; k < 2; k++) {
                                  const uint4 *q =
                                      (const uint4 *)(a.w.q + (group_row(a, t, p + k < rows ? p + k : p) * a.subs + c0) * kind_bytes(K));
#pragma unroll
                                  for (int i = 0; i < N && p < rows; i++)
                                      w[k][i] = __ldg(q + min(lane + 32 * i, n - 1)); /* what is not there meets zeros */
                              }
    };
    if (!t.n) return grid_wait();
    load(0); /* they are on their way while the kernel before ends */
    grid_wait();
    if ((int)threadIdx.x < t.n) from[threadIdx.x] = a.row_of ? a.row_of[t.row + threadIdx.x] : t.row + (int)threadIdx.x;
    for (int c0 = 0; c0 < a.subs; c0 += 32) {
        __syncthreads();
#pragma unroll
        for (int r = 0; r < R; r++) {
            int c = c0 * 32 + 4 * (int)threadIdx.x;
            float4 y = make_float4(0, 0, 0, 0);
            if (r < t.n) y = load_x4(a, a.x + from[r] * a.x_stride, c, whole);
            if (a.rms) {
                float *square = squares + r * 256 + threadIdx.x;
                *square = __fmaf_rn(y.x, y.x, __fmaf_rn(y.y, y.y, __fmaf_rn(y.z, y.z, __fmaf_rn(y.w, y.w, c0 ? *square : 0))));
                if (a.norm) {
                    float4 norm = load_x4(a, a.norm, c, 1);
                    y.x *= norm.x, y.y *= norm.y, y.z *= norm.z, y.w *= norm.w;
                }
            }
            xs[r * (128 + FEW_HALF) + mine] = y;
        }
        __syncthreads();
        if (p >= rows) continue;
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int k = 0; k < 2; k++) sum[k][r] += few_product<K>(w[k][i], xs + r * (128 + FEW_HALF), 32 * i + lane);
        if (c0 + 32 < a.subs) load(c0 + 32);
    }
    if (p >= rows) return;
    float both[2] = {}, back = 1; /* lane r has the sums of row r */
#pragma unroll
    for (int r = 0; r < R; r++) {
        float v0 = warp_sum(sum[0][r]), v1 = warp_sum(sum[1][r]);
        if (lane == r) both[0] = v0, both[1] = v1;
    }
#pragma unroll
    for (int r = 0; r < R && a.rms; r++) { /* every warp by itself, in one order */
        float square = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) square += squares[r * 256 + lane + 32 * i];
        square = warp_sum(square);
        if (lane == r) back = 1 / sqrtf(square / (float)a.cols + a.eps);
    }
    if (lane < t.n) finish_pair(a, t, t.row + lane, p, both[0] * back, both[1] * back);
}

/* The power of two by which a row whose largest value is `most` fits halves: 1 for nearly all; models with massive activations (Sun et al.
 * 2024) have rows of more than 65,504. A power of two leaves all bits of what it multiplies as they are. */
static __device__ __forceinline__ float half_scale(float most) {
    if (!(most > 65504.0f) || most > 3e38f) return 1;
    return __uint_as_float((254 + 14 - (__float_as_uint(most) >> 23)) << 23); /* most * it is in [2^14, 2^15) */
}

/* 16 values to memory as 32 bytes. */
template <bool HALF> static __device__ __forceinline__ void store_narrow(uint16_t *to, const float *v) {
    uint32_t u[8];
#pragma unroll
    for (int i = 0; i < 8; i++) u[i] = narrow_pair<HALF>(v[2 * i], v[2 * i + 1]);
    ((uint4 *)to)[0] = make_uint4(u[0], u[1], u[2], u[3]);
    ((uint4 *)to)[1] = make_uint4(u[4], u[5], u[6], u[7]);
}

static constexpr int TILE = 64; /* rows of W and of x that a block of kernel_linear_f32 has */
