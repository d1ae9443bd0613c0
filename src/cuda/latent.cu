/* latent: latent attention (DeepSeek-V2) in its absorbed form.
 *
 * The cache has one latent of `rank` values a token and a rotated key that all heads share. A head's query is taken into the latent space
 * by its part of kv_b (nope + v, rank), attention runs over latents as keys and values with all heads as one group, and its result is taken
 * back by the head's value rows. Rows go in turns that fit the scratch memory.
 *
 *     score(i, j) = q_i . (K_up c_j) + qr_i . kr_j  =  (K_up^T q_i) . c_j + qr_i . kr_j        kernel_latent_absorb, _split
 *     out_i = sum_j w_ij (V_up c_j)                 =  V_up (sum_j w_ij c_j)                   kernel_latent_split, _values
 *
 * An adapter of kv_b adds B A to K_up and V_up, for the rows of its sequences: kernel_latent_adapt, behind either.
 *
 * So a token costs rank + rope_dim values of cache whatever the number of heads (576 instead of 40,960 in DeepSeek-V2), and kv_b is read
 * for the step's rows, never for those in the cache. */

/* Of one turn of rows. absorbed (rows of the turn, heads, rank + rope_dim) and attended (.., rank) lie in the scratch memory, and behind
 * them what splits of single rows leave, `slots` times (heads, rank + 4): values, maximum, sum. place (rows, 2): the first slot of a row
 * and how many it has; 0: its results are in attended. place NULL: those of all rows are. */
typedef struct latent_args {
    llm_mla_op op;
    float *q, *kv_a, *out;
    const float *rope, *norm, *up;
    int64_t q_stride, kv_stride, rope_stride, out_stride;
    float *absorbed, *attended, *partial;
    int32_t *place;
    int32_t first_row, n_rows, slots, several, stages;
} latent_args;

static constexpr int LATENT_ROWS = 64, LATENT_TILE = 8; /* rows of a block of the two products; of those whose sums a thread has at once */
static constexpr int ABSORB_K = 128, ABSORB_N = 64, VALUES_K = 512,
                     VALUES_N = 16; /* what a block has of a head's weights: in its registers */
static constexpr int LATENT_KEYS = 32, LATENT_HEADS = 16,
                     LATENT_STRIDE = 40; /* of kernel_latent_split; between rows of scores and weights */

/* Values [c, c + 4) of a row of n, zeros outside. `whole`: rows start on 16 bytes. */
static __device__ __forceinline__ float4 latent_four(const float *x, int c, int n, int whole) {
    if (whole && c + 4 <= n) return *(const float4 *)(x + c);
    return make_float4(c < n ? x[c] : 0, c + 1 < n ? x[c + 1] : 0, c + 2 < n ? x[c + 2] : 0, c + 3 < n ? x[c + 3] : 0);
}

/* The row behind the last one of the turn that there is. */
static __device__ __forceinline__ int latent_end(const step_view &s, const latent_args &a) {
    return min(a.first_row + a.n_rows, s.head[HEAD_ROWS]);
}

/* Norm of a row's latent, rotation of the shared key and of every head's query, which is copied to absorbed; latent and key to the cache.
 * All 8 warps. Twin: llm__run_mla_write. */
static __device__ __forceinline__ void latent_write(const step_view &s, const kv_view &kv, const latent_args &a, int row, float *scratch) {
    int seq = s.seq_of_row[row], head = a.op.nope + a.op.rope_dim, hd = a.op.rank + a.op.rope_dim, warp = threadIdx.x >> 5;
    float *latent = a.kv_a + row * a.kv_stride, *q = a.q + row * a.q_stride + a.op.nope,
          *to = a.absorbed + (int64_t)(row - a.first_row) * a.op.n_heads * hd + a.op.rank;
    const float *rope = a.rope + row * a.rope_stride;
    float by = block_rms(latent, a.op.rank, a.op.eps, scratch);
    for (int i = threadIdx.x; i < a.op.rank; i += blockDim.x) latent[i] *= by * a.norm[i];
    for (int h = warp; h < a.op.n_heads; h += 8) {
        warp_rotate(q + h * head, rope, a.op.rope_dim / 2, a.op.rope_interleaved);
        for (int i = threadIdx.x & 31; i < a.op.rope_dim; i += 32) to[(int64_t)h * hd + i] = q[h * head + i];
    }
    if (warp == 0) warp_rotate(latent + a.op.rank, rope, a.op.rope_dim / 2, a.op.rope_interleaved);
    __syncthreads();
    if (warp) return;
    if (kv.scaled) warp_turn(latent, a.op.rank + a.op.rope_dim, kv_turn_size(a.op.rank | a.op.rope_dim));
    warp_write_token(kv, s.pages + (int64_t)seq * s.head[HEAD_STRIDE], row_position(s, row), 0, latent, NULL);
}

/* Computes: absorbed (rows, heads, rank + rope_dim) = q_nope^T up of each head, the rotated part as it is, and the rows' latents to the
 * pages. Grid: (rank / 64 + 1, heads, rows / 64), 8 warps; the last of x does latent_write for the rows, the heads' blocks in turn. A block
 * has 128 x 64 weights of a head, a thread 8 rows of 4 columns, in registers, asked for before the kernel before has ended, and goes
 * through its rows by eights; 16 threads' sums of a column are added in one order. Reads: kv_b's keys once for 64 rows. Twin: llm__run_mla.
 * */
static __global__ void __launch_bounds__(256, 2) kernel_latent_absorb(step_view s, kv_view kv, latent_args a) {
    SMEM(float, x, LATENT_TILE *ABSORB_K);
    SMEM(float, sums, 8 * LATENT_TILE * ABSORB_N);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = threadIdx.x >> 4, c = (int)blockIdx.x * ABSORB_N + 4 * (lane & 15),
              h = (int)blockIdx.y, hd = a.op.rank + a.op.rope_dim, whole = a.op.rank % 4 == 0;
    const float *up = a.up + (int64_t)h * (a.op.nope + a.op.v_dim) * a.op.rank;
    float4 w[8];
    int held = 0, first = a.first_row + (int)blockIdx.z * LATENT_ROWS;
    auto load = [&](int k0) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int k = k0 + 8 * g + i;
            w[i] = k < a.op.nope ? latent_four(up + (int64_t)k * a.op.rank, c, a.op.rank, whole) : make_float4(0, 0, 0, 0);
        }
    };
    if (blockIdx.x + 1 < gridDim.x) load(0);
    grid_wait();
    int end = min(first + LATENT_ROWS, latent_end(s, a));
    if (blockIdx.x + 1 == gridDim.x) {
        for (int row = first + h; row < end; row += a.op.n_heads) latent_write(s, kv, a, row, x);
        return;
    }
    for (int row0 = first; row0 < end; row0 += LATENT_TILE) {
        const int n = min(LATENT_TILE, end - row0);
        float sum[LATENT_TILE][4] = {};
        for (int k0 = 0; k0 < a.op.nope; k0 += ABSORB_K) {
            if (k0 != held) load(held = k0);
            __syncthreads();
            for (int k = lane; k < ABSORB_K; k += 32) {
                int there = warp < n && k0 + k < a.op.nope;
                x[warp * ABSORB_K + k] = there ? a.q[(row0 + warp) * a.q_stride + h * (a.op.nope + a.op.rope_dim) + k0 + k] : 0;
            }
            __syncthreads();
#pragma unroll
            for (int r = 0; r < LATENT_TILE; r++) {
                if (r >= n) continue;
#pragma unroll
                for (int i = 0; i < 8; i += 4) {
                    const float4 y = *(const float4 *)(x + r * ABSORB_K + 8 * g + i);
                    const float v[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        sum[r][0] += v[j] * w[i + j].x, sum[r][1] += v[j] * w[i + j].y;
                        sum[r][2] += v[j] * w[i + j].z, sum[r][3] += v[j] * w[i + j].w;
                    }
                }
            }
        }
#pragma unroll
        for (int r = 0; r < LATENT_TILE; r++) {
#pragma unroll
            for (int i = 0; i < 4; i++) sum[r][i] += __shfl_xor_sync(~0u, sum[r][i], 16);
            if ((r & 1) == lane >> 4)
                *(float4 *)(sums + (warp * LATENT_TILE + r) * ABSORB_N + 4 * (lane & 15)) =
                    make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
        }
        __syncthreads();
        for (int i = threadIdx.x; i < n * ABSORB_N; i += 256) {
            int row = row0 - a.first_row + i / ABSORB_N, col = (int)blockIdx.x * ABSORB_N + i % ABSORB_N;
            float v = 0;
#pragma unroll
            for (int k = 0; k < 8; k++) v += sums[k * LATENT_TILE * ABSORB_N + i];
            if (col < a.op.rank) a.absorbed[((int64_t)row * a.op.n_heads + h) * hd + col] = v;
        }
    }
}

/* What attention gave a head of a row of the turn, values [c, c + 4): splits are folded in order. */
static __device__ __forceinline__ float4 latent_result(const latent_args &a, int row, int h, int c, int whole) {
    float *to = a.attended + ((int64_t)row * a.op.n_heads + h) * a.op.rank;
    const int first = a.place ? a.place[2 * row] : 0, n = a.place ? a.place[2 * row + 1] : 0;
    if (!n || c >= a.op.rank) return latent_four(to, c, a.op.rank, whole);
    const float *p = a.partial + ((int64_t)first * a.op.n_heads + h) * (a.op.rank + 4);
    split_fold f = {-1e30f, 0, 0, 0};
    float4 v = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int i = 0; i < n; i++, p += (int64_t)a.op.n_heads * (a.op.rank + 4)) {
        const float4 y = *(const float4 *)(p + c);
        fold_split(&f, p[a.op.rank], p[a.op.rank + 1]);
        v = make_float4(fold_value(v.x, y.x, f.before, f.now), fold_value(v.y, y.y, f.before, f.now), fold_value(v.z, y.z, f.before, f.now),
                        fold_value(v.w, y.w, f.before, f.now));
    }
    const float by = 1 / f.l;
    v = make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
    if (a.op.lora && blockIdx.x == 0) *(float4 *)(to + c) = v; /* for kernel_latent_adapt */
    return v;
}

/* Computes: out (rows, heads * v_dim) = value rows of kv_b times what attention gave, whose splits it folds. Grid: (v_dim / 16, heads, rows
 * / 64), 8 warps of two outputs: a lane has 16 columns of both in registers, asked for before the kernel before has ended. Reads: kv_b's
 * values once for 64 rows. Twin: llm__run_mla. */
static __global__ void __launch_bounds__(256, 2) kernel_latent_values(step_view s, latent_args a) {
    SMEM(float, x, LATENT_TILE *VALUES_K);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, h = (int)blockIdx.y, d0 = (int)blockIdx.x * VALUES_N + 2 * warp,
              whole = a.op.rank % 4 == 0;
    const float *up = a.up + ((int64_t)h * (a.op.nope + a.op.v_dim) + a.op.nope) * a.op.rank;
    float4 w[2][4];
    int held = 0, first = a.first_row + (int)blockIdx.z * LATENT_ROWS;
    auto load = [&](int k0) {
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                w[k][i] = d0 + k < a.op.v_dim ? latent_four(up + (int64_t)(d0 + k) * a.op.rank, k0 + 4 * lane + 128 * i, a.op.rank, whole)
                                              : make_float4(0, 0, 0, 0);
    };
    load(0);
    grid_wait();
    int end = min(first + LATENT_ROWS, latent_end(s, a));
    for (int row0 = first; row0 < end; row0 += LATENT_TILE) {
        const int n = min(LATENT_TILE, end - row0);
        float sum[2][LATENT_TILE] = {}, mine = 0;
        for (int k0 = 0; k0 < a.op.rank; k0 += VALUES_K) {
            if (k0 != held) load(held = k0);
            __syncthreads();
            for (int r = threadIdx.x >> 7, c = 4 * (threadIdx.x & 127); r < n; r += 2)
                *(float4 *)(x + r * VALUES_K + c) = latent_result(a, row0 - a.first_row + r, h, k0 + c, whole);
            __syncthreads();
#pragma unroll
            for (int r = 0; r < LATENT_TILE; r++) {
                if (r >= n) continue;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float4 y = *(const float4 *)(x + r * VALUES_K + 4 * lane + 128 * i);
#pragma unroll
                    for (int k = 0; k < 2; k++) sum[k][r] += w[k][i].x * y.x + w[k][i].y * y.y + w[k][i].z * y.z + w[k][i].w * y.w;
                }
            }
        }
#pragma unroll
        for (int r = 0; r < LATENT_TILE; r++) {
            if (r >= n) continue;
#pragma unroll
            for (int k = 0; k < 2; k++) {
                float v = warp_sum(sum[k][r]);
                if (lane == 2 * r + k) mine = v;
            }
        }
        if (lane < 2 * n && d0 + (lane & 1) < a.op.v_dim)
            a.out[(row0 + (lane >> 1)) * a.out_stride + h * a.op.v_dim + d0 + (lane & 1)] = mine;
    }
}

/* Bytes between rows of shared memory: 8 rows that lanes read at once meet each bank once. */
static __host__ __device__ __forceinline__ int latent_stride(int hd) { return 2 * hd + 16; }
static size_t latent_smem(int hd, int stages) {
    return (size_t)stages * LATENT_KEYS * (size_t)latent_stride(hd) + 8 * LATENT_HEADS * LATENT_STRIDE * 4 +
           2 * LATENT_HEADS * LATENT_STRIDE * 2;
}

/* Beside its stages: of each query the largest value a warp has seen, what its scores are multiplied by, and by what its sums are: for a
 * step's new maximum, and when a split is folded. */
typedef struct latent_shared {
    float most[8][LATENT_HEADS], scale[LATENT_HEADS], by[LATENT_HEADS], before[LATENT_HEADS], now[LATENT_HEADS], end[LATENT_HEADS];
} latent_shared;

/* Starts the copy of keys [32 tile, 32 tile + 32) below `to` into a stage, zeros behind; page: of its halves. A warp has every eighth key.
 * */
static __device__ __forceinline__ void latent_load(const kv_view &kv, const int *page, int tile, int to, int hd, uint8_t *stage) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint8_t *from =
            kv.base + page[half] * kv.page_bytes + kv.place.offset + (int64_t)((LATENT_KEYS * tile + 16 * half) % kv.page_tokens) * hd * 2;
#pragma unroll
        for (int u = 0; u < 2; u++) {
            int j = warp + 8 * u, there = LATENT_KEYS * tile + 16 * half + j < to ? 16 : 0;
            for (int c = lane; c < hd / 8; c += 32)
                copy_async_16(stage + (16 * half + j) * latent_stride(hd) + 16 * c, from + (int64_t)j * hd * 2 + 16 * c, there);
        }
    }
}

/* The pages of a tile's halves. */
static __device__ __forceinline__ void latent_pages(const kv_view &kv, const int32_t *pages, int tile, int to, int *page) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int at = LATENT_KEYS * tile + 16 * half;
        page[half] = at < to ? pages[at / kv.page_tokens] : 0;
    }
}

/* A warp's share of the queries (steps warp, warp + 8, ... of 16 values) as a product wants them, each in two parts; halves are brought
 * down to what they can hold. All threads. */
template <bool HALF>
static __device__ __forceinline__ void latent_queries(const latent_args &a, const float *q, int n_heads, uint32_t (*high)[4],
                                                      uint32_t (*low)[4], latent_shared &sh) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3, hd = a.op.rank + a.op.rope_dim;
    float2 v[5][4];
    float most[2] = {};
#pragma unroll
    for (int i = 0; i < 5; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) { /* rows g and g + 8, then the same of 8 columns further */
            int row = g + 8 * (e & 1), d = 16 * (warp + 8 * i) + 2 * t + 8 * (e >> 1);
            v[i][e] = row < n_heads && d < hd ? *(const float2 *)(q + (int64_t)row * hd + d) : make_float2(0, 0);
            most[e & 1] = fmaxf(most[e & 1], fmaxf(fabsf(v[i][e].x), fabsf(v[i][e].y)));
        }
#pragma unroll
    for (int e = 0; e < 2; e++) {
        most[e] = fmaxf(most[e], __shfl_xor_sync(~0u, most[e], 1));
        most[e] = fmaxf(most[e], __shfl_xor_sync(~0u, most[e], 2));
        if (t == 0) sh.most[warp][g + 8 * e] = most[e];
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < 2; e++) {
#pragma unroll
        for (int w = 0; w < 8; w++) most[e] = fmaxf(most[e], sh.most[w][g + 8 * e]);
        most[e] = HALF ? half_scale(most[e]) : 1;
        if (t == 0 && warp == 0) sh.scale[g + 8 * e] = a.op.scale / most[e] * 1.44269504f;
    }
#pragma unroll
    for (int i = 0; i < 5; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) split_pair_of<HALF>(most[e & 1] * v[i][e].x, most[e & 1] * v[i][e].y, &high[i][e], &low[i][e]);
}

/* parts (16, 40) of this warp = its steps of the queries times a stage's 32 keys. */
template <bool HALF>
static __device__ __forceinline__ void latent_scores(int hd, const uint32_t (*high)[4], const uint32_t (*low)[4], const uint8_t *stage,
                                                     float *parts) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, stride = latent_stride(hd);
    float s[4][4] = {};
#pragma unroll
    for (int i = 0; i < 5; i++) {
        const int k = warp + 8 * i;
        if (16 * k >= hd) continue;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint32_t key[4];
            load_matrix_x4(key, stage + (16 * j + (lane & 7) + (lane >> 4) * 8) * stride + 32 * k + (lane >> 3 & 1) * 16);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                mma_16x8x16<HALF>(s[2 * j + e], high[i], key + 2 * e);
                mma_16x8x16<HALF>(s[2 * j + e], low[i], key + 2 * e);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            *(float2 *)(parts + ((lane >> 2) + 8 * e) * LATENT_STRIDE + 8 * j + 2 * (lane & 3)) = make_float2(s[j][2 * e], s[j][2 * e + 1]);
}

/* The online softmax of queries 2 warp and 2 warp + 1: a lane has a key. Weights, in two parts, go to p (2, 16, 40). Twin:
 * llm__body_soften. */
template <bool HALF>
static __device__ __forceinline__ void latent_soften(const float *parts, int seen, latent_shared &sh, float *m, float *l, uint16_t *p) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int row = 2 * warp + e;
        float v = 0;
#pragma unroll
        for (int w = 0; w < 8; w++) v += parts[(w * LATENT_HEADS + row) * LATENT_STRIDE + lane];
        v = lane < seen ? v * sh.scale[row] : -INFINITY;
        float top = fmaxf(m[e], warp_max(v)), c = exp2f(m[e] - top);
        uint32_t high, low;
        v = exp2f(v - top);
        m[e] = top;
        l[e] = l[e] * c + warp_sum(v);
        split_pair_of<HALF>(v, 0, &high, &low);
        p[row * LATENT_STRIDE + lane] = (uint16_t)high;
        p[(LATENT_HEADS + row) * LATENT_STRIDE + lane] = (uint16_t)low;
        if (lane == 0) sh.by[row] = c;
    }
}

/* acc = acc by the step's factors + weights times a stage's latents: a warp has columns 16 (warp + 8 j) and 15 more. */
template <bool HALF>
static __device__ __forceinline__ void latent_sum(int hd, int rank, const uint16_t *p, const uint8_t *stage, const latent_shared &sh,
                                                  float (*acc)[4]) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, stride = latent_stride(hd);
    const float by[2] = {sh.by[lane >> 2], sh.by[(lane >> 2) + 8]};
    uint32_t weights[2][2][4];
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            load_matrix_x4(weights[k][e], p + (LATENT_HEADS * e + (lane & 15)) * LATENT_STRIDE + 16 * k + (lane >> 4) * 8);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int d = 16 * (warp + 8 * j);
        if (d >= rank) continue;
#pragma unroll
        for (int e = 0; e < 4; e++) acc[2 * j][e] *= by[e >> 1], acc[2 * j + 1][e] *= by[e >> 1];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            uint32_t v[4];
            load_matrix_x4_turned(v, stage + (16 * k + (lane & 15)) * stride + 2 * d + (lane >> 4) * 16);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                mma_16x8x16<HALF>(acc[2 * j], weights[k][e], v);
                mma_16x8x16<HALF>(acc[2 * j + 1], weights[k][e], v + 2);
            }
        }
    }
}

/* A row's values of the tile's heads: to (heads, stride) = acc times `by` of each. */
static __device__ __forceinline__ void latent_store(float *to, int stride, int rank, int n_heads, const float (*acc)[4], float by0,
                                                    float by1) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int d = 16 * (warp + 8 * (j / 2)) + 8 * (j % 2) + 2 * (lane & 3);
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int row = (lane >> 2) + 8 * e;
            const float by = e ? by1 : by0;
            if (row < n_heads && d < rank)
                *(float2 *)(to + (int64_t)row * stride + d) = make_float2(acc[j][2 * e] * by, acc[j][2 * e + 1] * by);
        }
    }
}

/* One row, heads [head, head + n_heads): splits [first, end) of its keys, which are those below `to`. slot -1: they are all of them, and
 * results go to attended; else there is one, whose sums go there. */
template <bool HALF>
static __device__ __forceinline__ void latent_run(const kv_view &kv, const latent_args &a, const int32_t *pages, int row, int head,
                                                  int n_heads, int first, int end, int to, int slot, latent_shared &sh, uint8_t *memory) {
    const int hd = a.op.rank + a.op.rope_dim, bytes = LATENT_KEYS * latent_stride(hd), warp = threadIdx.x >> 5, lane = threadIdx.x & 31,
              stop = min(end * (SPLIT / LATENT_KEYS), ceil_div(to, LATENT_KEYS)), ahead = a.stages - 1;
    float *parts = (float *)(memory + a.stages * bytes), acc[8][4] = {}, total[8][4] = {}, m[2] = {-1e30f, -1e30f}, l[2] = {};
    uint16_t *p = (uint16_t *)(parts + 8 * LATENT_HEADS * LATENT_STRIDE);
    uint32_t high[5][4], low[5][4];
    split_fold fold[2] = {{-1e30f, 0, 0, 0}, {-1e30f, 0, 0, 0}}; /* of the warp's queries */
    int tile = first * (SPLIT / LATENT_KEYS), page[2], stage = 0;
    __syncthreads(); /* the row before is done */
    for (int i = 0; i < ahead; i++) {
        latent_pages(kv, pages, tile + i, to, page);
        if (tile + i < stop) latent_load(kv, page, tile + i, to, hd, memory + i * bytes);
        copy_async_end();
    }
    latent_pages(kv, pages, tile + ahead, to, page);
    latent_queries<HALF>(a, a.absorbed + ((int64_t)row * a.op.n_heads + head) * hd, n_heads, high, low, sh);
    for (; tile < stop; tile++) {
        if (ahead == 1) copy_async_wait<0>();
        else if (ahead == 2) copy_async_wait<1>();
        else copy_async_wait<2>();
        __syncthreads();
        int free = stage ? stage - 1 : ahead;
        if (tile + ahead < stop) latent_load(kv, page, tile + ahead, to, hd, memory + free * bytes);
        copy_async_end();
        latent_pages(kv, pages, tile + ahead + 1, to, page);
        latent_scores<HALF>(hd, high, low, memory + stage * bytes, parts + warp * LATENT_HEADS * LATENT_STRIDE);
        __syncthreads();
        latent_soften<HALF>(parts, to - tile * LATENT_KEYS, sh, m, l, p);
        const int last = tile + 1 == stop || (tile + 1) % (SPLIT / LATENT_KEYS) == 0; /* of its split */
#pragma unroll
        for (int e = 0; e < 2; e++) {
            if (!last || slot >= 0) continue;
            fold_split(&fold[e], m[e], l[e]);
            if (lane == 0)
                sh.before[2 * warp + e] = fold[e].before, sh.now[2 * warp + e] = fold[e].now, sh.end[2 * warp + e] = 1 / fold[e].l;
            m[e] = -1e30f, l[e] = 0;
        }
        __syncthreads();
        latent_sum<HALF>(hd, a.op.rank, p, memory + stage * bytes, sh, acc);
        stage = stage == ahead ? 0 : stage + 1;
        if (!last || slot >= 0) continue;
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int query = (lane >> 2) + 8 * (e >> 1);
                total[j][e] = fold_value(total[j][e], acc[j][e], sh.before[query], sh.now[query]);
                acc[j][e] = 0;
            }
    }
    copy_async_wait<0>();
    if (slot < 0) {
        float *out = a.attended + ((int64_t)row * a.op.n_heads + head) * a.op.rank;
        latent_store(out, a.op.rank, a.op.rank, n_heads, total, sh.end[lane >> 2], sh.end[(lane >> 2) + 8]);
        return;
    }
    float *out = a.partial + ((int64_t)slot * a.op.n_heads + head) * (a.op.rank + 4);
    latent_store(out, a.op.rank + 4, a.op.rank, n_heads, acc, 1, 1);
    for (int e = 0; e < 2 && lane == 0; e++)
        if (2 * warp + e < n_heads) *(float2 *)(out + (2 * warp + e) * (a.op.rank + 4) + a.op.rank) = make_float2(m[e], l[e]);
}

/* Computes: attended (rows, heads, rank) = softmax(absorbed c^T * scale) c over the pages, of latents that lie there as 16-bit floats; of a
 * single row, which is in the step's work list, each split by another block, for kernel_latent_values to fold. Grid: (blocks that take rows
 * and items in turn, heads / 16), 8 warps. The 16 rows of a product are a row's heads, which share the keys, and keys are the values: so
 * all is read once for 16 heads. Keys come by 32 into a ring of stages; a warp has every eighth step of 16 values of the scores' products,
 * whose parts are added in one order, two heads of the softmax, and 64 values of the result. Queries and weights are multiplied in two
 * parts, so that nothing is lost. A row's bits depend on its own keys alone: the roundings of a fold are the same wherever it is done.
 * After FlashMLA (DeepSeek 2025). Twin: llm__run_mla. */
template <bool HALF> static __global__ void __launch_bounds__(256, 1) kernel_latent_split(step_view s, kv_view kv, latent_args a) {
    grid_wait();
    DYN_SMEM(uint8_t, memory);
    SMEM(latent_shared, sh, 1);
    const work_item *work = (const work_item *)(s.head + s.head[HEAD_WORK]);
    const int head = (int)blockIdx.y * LATENT_HEADS, n_heads = min(LATENT_HEADS, a.op.n_heads - head), items = s.head[HEAD_N_WORK],
              rows = a.several ? latent_end(s, a) - a.first_row : 0;
    for (int i = (int)blockIdx.x; i < items + rows; i += (int)gridDim.x) {
        work_item w = {a.first_row + i - items, 1, -1, 0};
        if (i < items) w = work[i];
        if (w.row < a.first_row || w.row >= latent_end(s, a)) continue;
        const int seq = s.seq_of_row[w.row], single = s.seq_begin[seq + 1] - s.seq_begin[seq] == 1, to = row_position(s, w.row) + 1,
                  n = ceil_div(to, SPLIT);
        if (single != (i < items)) continue; /* rows of prompts are not taken from the list, where they may be several in one */
        const int alone = w.split < 0 || n == 1 || i - w.split + n > a.slots; /* the block of the first split does all */
        if (alone && w.split > 0) continue;
        if (threadIdx.x == 0 && blockIdx.y == 0 && w.split <= 0) {
            a.place[2 * (w.row - a.first_row)] = alone ? 0 : i;
            a.place[2 * (w.row - a.first_row) + 1] = alone ? 0 : n;
        }
        latent_run<HALF>(kv, a, s.pages + (int64_t)seq * s.head[HEAD_STRIDE], w.row - a.first_row, head, n_heads, alone ? 0 : w.split,
                         alone ? n : w.split + 1, to, alone ? -1 : i, sh[0], memory);
    }
}

/* One matrix of an adapter: dst[row ... row + n) = scale * b (a x). Of kv_b b is the other way round, (r, n). */
typedef struct lora_part {
    const float *a, *b;           /* (r, in), (n, r), or as many for each expert; of an embedding a is (vocab of this rank, r) */
    int32_t r, in, row, n, vocab; /* in: src may be wider */
} lora_part;

/* What one adapter adds to one layer. Twin: llm__lora_slot. */
typedef struct lora_slot {
    lora_part part[LLM_LORA_PARTS];
    int32_t n;
} lora_slot;

/* Computes: y += Y^T (X x), what the row's adapter adds to kv_b of a head; x the query and y absorbed, or (values) x what attention gave
 * and y out. X and Y are its A (r, rank) and the head's columns of B (r, n), or the other way round. 32 of the r at a time: a warp one of X
 * x, then a thread an output. Grid: (rows, heads). Twin: llm__mla_adapt. */
static __global__ void __launch_bounds__(128) kernel_latent_adapt(step_view s, latent_args a, const lora_slot *slots, int values) {
    grid_wait();
    SMEM(float, low, 32);
    int row = a.first_row + (int)blockIdx.x, h = (int)blockIdx.y, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (row >= s.head[HEAD_ROWS]) return;
    int slot = s.seq_lora[s.seq_of_row[row]], at = h * (a.op.nope + a.op.v_dim), n_x = values ? a.op.rank : a.op.nope,
        n_y = values ? a.op.v_dim : a.op.rank;
    if (slot < 0 || !slots[slot].n) return;
    const lora_part &p = slots[slot].part[0];
    const float *from = values ? p.a : p.b + at, *to = values ? p.b + at + a.op.nope : p.a;
    int64_t from_row = values ? p.in : p.n, to_row = values ? p.n : p.in, turn_row = (int64_t)blockIdx.x * a.op.n_heads + h;
    const float *x = values ? a.attended + turn_row * a.op.rank : a.q + row * a.q_stride + h * (a.op.nope + a.op.rope_dim);
    float *y = values ? a.out + row * a.out_stride + h * a.op.v_dim : a.absorbed + turn_row * (a.op.rank + a.op.rope_dim);
    for (int first = 0; first < p.r; first += 32) {
        int n = min(32, p.r - first);
        for (int j = warp; j < n; j += 4) {
            float v = 0;
            for (int i = lane; i < n_x; i += 32) v += from[(first + j) * from_row + i] * x[i];
            v = warp_sum(v);
            if (lane == 0) low[j] = v;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < n_y; i += blockDim.x) {
            float v = y[i];
            for (int j = 0; j < n; j++) v += low[j] * to[(first + j) * to_row + i];
            y[i] = v;
        }
        __syncthreads();
    }
}

/* Twin: llm_lora_site of >>backend. Slots change under a captured graph, their address does not. */
struct llm_lora_site {
    int rank, n_slots;
    lora_slot *slots; /* (n_slots) on the device */
    struct lora_held {
        uint8_t *memory; /* of the slot's matrices, on the device */
        size_t bytes;
    } * held; /* (n_slots) */
};

/* Stages of keys that a block of kernel_latent_split has memory for; 0: it does not take these latents or pages. */
static int latent_stages(const rank *r, const llm_mla_op *op, const kv_view &kv) {
    const int hd = op->rank + op->rope_dim, beside = (int)sizeof(latent_shared);
    int n = 4;
    if (kv.element_bytes != 2 || op->rank % 16 || op->rope_dim % 16 || op->rank > 512 || hd > 640) return 0;
    while (n > 1 && latent_smem(hd, n) + (size_t)beside > (size_t)r->max_smem) n--;
    return n > 1 ? n : 0;
}

/* Attention over latents by kernel_attention: pages of f32 or bytes, odd sizes. */
static void run_latent_tiles(rank *r, const kv_view &kv, const latent_args &a, size_t partial_bytes) {
    const int hd = a.op.rank + a.op.rope_dim, size = kv_turn_size(a.op.rank | a.op.rope_dim); /* divides both */
    attention_args t;
    memset(&t, 0, sizeof t);
    t.q = a.absorbed;
    t.q_stride = (int64_t)a.op.n_heads * hd;
    t.out = a.attended;
    t.out_stride = (int64_t)a.op.n_heads * a.op.rank;
    t.partial = a.partial;
    t.n_heads = t.group = a.op.n_heads;
    t.first_row = a.first_row;
    t.n_rows = a.n_rows;
    t.hd = hd;
    t.vd = a.op.rank;
    t.latent = 1;
    t.scale = a.op.scale;
    if (kv.scaled) run_turn(r, a.absorbed, t.q_stride, a.n_rows, a.op.n_heads, hd, size, a.first_row, 0);
    run_tiles(r, kv, t, 1, partial_bytes);
    if (kv.scaled) run_turn(r, a.attended, t.out_stride, a.n_rows, a.op.n_heads, a.op.rank, size, a.first_row, 0);
}

/* The first half of the scratch memory has absorbed and attended of a turn, and where rows have their splits; the second partial results of
 * splits. Twin: llm__run_mla. */
static void run_latent(rank *r, const llm_mla_op *op) {
    latent_args a;
    memset(&a, 0, sizeof a);
    a.op = *op;
    a.q = op->q->data, a.q_stride = op->q->stride;
    a.kv_a = op->kv_a->data, a.kv_stride = op->kv_a->stride;
    a.out = op->dst->data, a.out_stride = op->dst->stride;
    a.rope = op->rope->data, a.rope_stride = op->rope->stride;
    a.norm = op->kv_norm->f32;
    a.up = op->kv_b->f32;
    a.partial = (float *)(r->scratch + r->scratch_bytes / 2);
    a.several = r->ctx->padded.n_rows > r->ctx->padded.n_seqs;
    kv_view kv = kv_of(r, op->layer);
    a.stages = latent_stages(r, op, kv);
    const int hd = op->rank + op->rope_dim, rows = r->ctx->padded.n_rows, tiles = ceil_div(op->n_heads, LATENT_HEADS);
    const size_t each = (size_t)op->n_heads * (size_t)(hd + op->rank) * sizeof(float) + 2 * sizeof(int32_t), half = r->scratch_bytes / 2;
    if (half < each) {
        ctx_fail(r->ctx, LLM_ERR_LIMIT, "latent attention: a row does not fit the scratch memory");
        return;
    }
    a.slots = min_int(MAX_SPLITS + r->ctx->cfg.max_rows, (int64_t)(half / ((size_t)op->n_heads * (size_t)(op->rank + 4) * sizeof(float))));
    for (; a.first_row < rows; a.first_row += a.n_rows) {
        a.n_rows = min_int(rows - a.first_row, (int64_t)(half / each));
        a.absorbed = (float *)r->scratch;
        a.attended = a.absorbed + (size_t)a.n_rows * (size_t)op->n_heads * (size_t)hd;
        int32_t *place = (int32_t *)(a.attended + (size_t)a.n_rows * (size_t)op->n_heads * (size_t)op->rank);
        a.place = a.stages ? place : NULL;
        const unsigned heads = (unsigned)op->n_heads, chunks = (unsigned)ceil_div(a.n_rows, LATENT_ROWS), n = (unsigned)a.n_rows;
        launch<kernel_latent_absorb>(r, dim3((unsigned)ceil_div(op->rank, ABSORB_N) + 1, heads, chunks), 256, 0, r->view, kv, a);
        if (op->lora) launch<kernel_latent_adapt>(r, dim3(n, heads), 128, 0, r->view, a, op->lora->slots, 0);
        const dim3 grid((unsigned)ceil_div(r->n_sms, tiles), (unsigned)tiles);
        if (!a.stages) run_latent_tiles(r, kv, a, half);
        else if (kv.type == LLM_KV_F16) launch<kernel_latent_split<true>>(r, grid, 256, latent_smem(hd, a.stages), r->view, kv, a);
        else launch<kernel_latent_split<false>>(r, grid, 256, latent_smem(hd, a.stages), r->view, kv, a);
        launch<kernel_latent_values>(r, dim3((unsigned)ceil_div(op->v_dim, VALUES_N), heads, chunks), 256, 0, r->view, a);
        if (op->lora) launch<kernel_latent_adapt>(r, dim3(n, heads), 128, 0, r->view, a, op->lora->slots, 1);
    }
}
