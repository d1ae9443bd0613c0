/* linear_bands: some rows of packed weights, on tensor cores.
 *
 * From 9 rows on it pays to make of a packed weight what tensor cores take, a half with its scale in it: three instructions a pair, once
 * for 16, 32 or 64 rows of x. These are halves as well, which kernel_narrow has made, in the order of bricks.
 *
 * A block has T rows of x and 128 of W, a band, of which four of its warps have 32 each; the other four have the same rows, and the second
 * of the two spans that are a unit of columns. Units come through a ring of STAGES in shared memory:
 *
 *     x     T rows of 256 bytes, vector c of row r at place c ^ (r & 7), so that ldmatrix meets no bank twice
 *     W     bricks as they lie: of each sixteen of rows the two of the unit
 *
 * All units of W, band after band, are cut into equal pieces, one a block: so multiprocessors have equal shares whatever the shape is. A
 * band that is cut is added up from its pieces in their order, by the block that is last to have one. Where the cuts are depends on the
 * shape of W and on the device alone, and tiles of any T multiply in the same order: so a row has the same bits among any number of rows
 * from 9 on. */

/* BAND_X: bytes of a row of x in a unit; BAND_STRIDE: floats between rows of sums; BAND_TILES: of 64 rows that a launch has at most. */
static constexpr int BAND_WARPS = 8, BAND_ROWS = 128, BAND_SUBS = 2 * BRICK_SUBS, BAND_X = 64 * BAND_SUBS, BAND_STRIDE = BAND_ROWS + 4,
                     BAND_TILES = 3;

template <int K, int T> struct band {
    static constexpr int BYTES = T * BAND_X + BAND_ROWS / BRICK_ROWS * 2 * brick_bytes(K); /* of a unit */
    static constexpr int MOST = (T == 64 ? 112 : 96) * 1024 / BYTES, STAGES = MOST < 6 ? MOST : 6, SMEM_BYTES = STAGES * BYTES;
    static_assert(SMEM_BYTES >= 2 * T * BAND_STRIDE * 4, "sums take the ring's place");
};

/* Rows of a tile at most: of bytes with a minimum each 16, 64 rows spill. */
template <int K> static constexpr int band_most(void) { return K == KIND_G8 ? 32 : 64; }

typedef struct band_args {
    const uint16_t *x;   /* (rows, units of 128 columns) halves */
    const float *scales; /* (rows) what brings their sums back, see half_scale */
    float *pieces;       /* (tiles, blocks, 2, T, BAND_ROWS) of the band that a block goes on with, and of the one that it begins */
    unsigned *arrived;   /* (tiles, blocks) pieces that are there of the band that a block begins; all 0 */
    int32_t row0;        /* of the first tile */
} band_args;

/* Scales of step h of sub s, of rows g and g + 8, and what comes to the products, each twice. */
template <int K> static __device__ __forceinline__ void band_scales(const uint8_t *brick, int s, int h, int g, uint32_t *d, uint32_t *m) {
    const int bytes = kind_scale_bytes(K);
    const uint32_t *words = (const uint32_t *)(brick + brick_scales(K) + (s * 8 + g) * 2 * bytes);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const uint32_t u = words[bytes == 2 ? 0 : bytes == 4 ? r : 2 * r + h];
        if (K == KIND_T4) d[r] = narrow_pair<true>(128 * bits_to_f32(u), 128 * bits_to_f32(u));
        else d[r] = __byte_perm(u, 0, (bytes == 2 && r) || (K == KIND_Q6 && h) ? 0x3232 : 0x1010);
        m[r] = kind_has_minimum(K) ? __byte_perm(u, 0, 0x3232) : 0x80008000u;
    }
}

/* Step h of sub s as halves: what an instruction takes of W. A whole number below 1,024 is put behind the exponent of 1,024, or times 16
 * there; of tables the values over 128 behind that of 8, for their scales are 128 times as large: small ones would lose bits. */
template <int K>
static __device__ __forceinline__ void band_step(const uint32_t *words, uint32_t high, int h, const uint64_t *table, const uint32_t *d,
                                                 const uint32_t *m, uint32_t *to) {
    const uint32_t w = words[h];
    uint32_t low = 0, top = 0;
    if constexpr (K == KIND_T4) low = table_four(table, w), top = table_four(table, w >> 16);
#pragma unroll
    for (int k = 0; k < 4; k++) { /* r and c */
        const int r = k >> 1, c = k & 1, one = 8 * r + 2 * h + c - 4 - 4 * c, two = 8 * r + 4 * h + 2 * c - 4 - 4 * c;
        uint32_t u;
        if constexpr (K == KIND_T4) {
            u = bits_and_or(__byte_perm(low, top, 0x1111 * k + 0x4400), 0x00ff00ff, 0x48004800);
            u = halves_fma(u, 0x3c003c00, 0xc880c880); /* - 9 */
        } else if constexpr (!kind_nibbles(K)) {
            const uint32_t bytes = words[2 * h + r] ^ (K == KIND_Q8 ? 0x80808080u : 0);
            u = __byte_perm(bytes, 0x64646464, c ? 0x4342 : 0x4140);
            u = halves_fma(u, 0x3c003c00, K == KIND_Q8 ? 0xe480e480 : 0xe400e400); /* - 1152, - 1024 */
        } else {
            u = bits_and_or(r ? w >> 8 : w, c ? 0x00f000f0 : 0x000f000f, 0x64006400);
            if (kind_high_bytes(K) == 4) u = bits_and_or(one < 0 ? high << -one : high >> one, c ? 0x01000100 : 0x00100010, u);
            if (kind_high_bytes(K) == 8) u = bits_and_or(two < 0 ? high << -two : high >> two, c ? 0x03000300 : 0x00300030, u);
            const uint32_t zero = kind_zero(K); /* - 1024 - zero; over 16 - 64 - zero */
            u = halves_fma(u, c ? 0x2c002c00 : 0x3c003c00, c ? 0xd400d400 + (zero << 20 | zero << 4) : 0xe400e400 + (zero << 16 | zero));
        }
        to[r + 2 * c] = halves_fma(u, d[r], m[r]);
    }
}

/* A warp's 32 rows of W of its span of a unit times all rows of x. */
template <int K, int T>
static __device__ __forceinline__ void band_multiply(const uint8_t *stage, int warp, int lane, const uint64_t *table,
                                                     float (*acc)[T / 8][4]) {
    const uint8_t *bricks =
        stage + T * BAND_X + (4 * (warp & 3) + (warp >> 2)) * brick_bytes(K); /* the second one is behind the next span */
    const uint8_t *x = stage + ((lane >> 4) * 8 + (lane & 7)) * BAND_X + (warp >> 2) * 128;
    const int place = (lane >> 3 & 1) ^ (lane & 7);
#pragma unroll(T == 64 ? 1 : 2)
    for (int s = 0; s < BRICK_SUBS; s++) {
        uint32_t words[2][4], high[2] = {};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint8_t *from = bricks + 2 * i * brick_bytes(K);
            if (kind_nibbles(K)) *(uint2 *)words[i] = ((const uint2 *)from)[2 * lane + s];
            else *(uint4 *)words[i] = ((const uint4 *)from)[32 * s + lane];
            if (kind_high_bytes(K) == 4) high[i] = ((const uint32_t *)(from + brick_high(K)))[lane] >> (4 * s);
            if (kind_high_bytes(K) == 8) high[i] = ((const uint32_t *)(from + brick_high(K)))[2 * lane + s];
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t wf[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t d[2], m[2];
                band_scales<K>(bricks + 2 * i * brick_bytes(K), s, h, lane >> 2, d, m);
                band_step<K>(words[i], high[i], h, table, d, m, wf[i]);
            }
#pragma unroll
            for (int j = 0; j < T / 8; j += 2) {
                uint32_t xf[4];
                load_matrix_x4(xf, x + (place ^ (4 * s + 2 * h)) * 16 + 8 * j * BAND_X);
#pragma unroll
                for (int i = 0; i < 4; i++) mma_16x8x16<true>(acc[i >> 1][j + (i & 1)], wf[i >> 1], xf + 2 * (i & 1));
            }
        }
    }
}

/* Units of a row of W, and bands of all rows. */
static __host__ __device__ __forceinline__ int band_units(int subs) { return (subs + BAND_SUBS - 1) / BAND_SUBS; }
static __device__ __forceinline__ int band_count(const linear_args &a) { return (group_rows(a) + BAND_ROWS - 1) / BAND_ROWS; }

/* The first unit of a block. */
static __device__ __forceinline__ int band_begin(const linear_args &a, unsigned block) {
    return (int)((int64_t)block * (band_count(a) * band_units(a.subs)) / gridDim.y);
}

/* Sums of two rows of W of row `row` of the tile, of both halves of the warps. */
static __device__ __forceinline__ float2 band_pair(const float *sums, int rows, int row, int two) {
    const float2 u = *(const float2 *)(sums + row * BAND_STRIDE + two), v = *(const float2 *)(sums + (rows + row) * BAND_STRIDE + two);
    return make_float2(u.x + v.x, u.y + v.y);
}

/* Ends a band whose units [job[0], job[1]) this block has had, or leaves that piece, and ends the band if it was the last one: then job[2]
 * is not 0. sums (2, T, BAND_STRIDE): of either half of the warps. */
template <int T> static __device__ __forceinline__ void band_end(const linear_args &a, const band_args &b, float *sums, int *job) {
    enum { THREADS = 32 * BAND_WARPS, PAIRS = BAND_ROWS / 2, BATCH = T / 8 };
    const int row0 = b.row0 + (int)blockIdx.x * T, n = min(T, *a.n_rows - row0), units = band_units(a.subs), band = job[0] / units,
              cut = job[1] - job[0] < units, blocks = (int)gridDim.y;
    const int64_t total = band_count(a) * units, base = (int64_t)blockIdx.x * blocks;
    const int from = (int)((((int64_t)band * units + 1) * blocks - 1) / total),
              to = (int)(((int64_t)(band + 1) * units * blocks - 1) / total);
    const tile t = {row0, n, 0};
    auto piece = [&](int block) { return (float2 *)(b.pieces + ((base + block) * 2 + (block == from)) * (T * BAND_ROWS)); };
    if (cut) {
        float2 *put = piece((int)blockIdx.y);
#pragma unroll 4
        for (int k = threadIdx.x; k < n * PAIRS; k += THREADS) put[k] = band_pair(sums, T, k / PAIRS, k % PAIRS * 2);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned *arrived = b.arrived + base + from;
            job[2] = atomicAdd(arrived, 1u) == (unsigned)(to - from);
            if (job[2]) atomicExch(arrived, 0u);
            __threadfence();
        }
        __syncthreads();
        if (!job[2]) return;
#pragma unroll 1
        for (int k0 = threadIdx.x; k0 < n * PAIRS; k0 += BATCH * THREADS) { /* many at once are on their way */
            float2 v[BATCH] = {};
#pragma unroll 2
            for (int block = from; block <= to; block++) {
                const float2 *get = piece(block);
#pragma unroll
                for (int i = 0; i < BATCH; i++) {
                    const float2 u = k0 + i * THREADS < n * PAIRS ? __ldcg(get + k0 + i * THREADS) : make_float2(0, 0);
                    v[i].x += u.x, v[i].y += u.y;
                }
            }
#pragma unroll
            for (int i = 0; i < BATCH; i++) { /* a thread's own, so without a barrier */
                const int k = k0 + i * THREADS;
                *(float2 *)(sums + k / PAIRS * BAND_STRIDE + k % PAIRS * 2) = v[i];
            }
        }
    }
#pragma unroll 1
    for (int k = threadIdx.x; k < n * PAIRS; k += THREADS) {
        const int row = k / PAIRS, two = k % PAIRS * 2, p = band * BAND_ROWS + two;
        const float2 v = cut ? *(const float2 *)(sums + row * BAND_STRIDE + two) : band_pair(sums, T, row, two);
        const float by = b.scales[row0 + row];
        if (p < group_rows(a)) finish_pair(a, t, row0 + row, p, v.x * by, v.y * by);
    }
}

/* Computes: out (n, p) = finish(x (n, cols) W^T) of packed weights, n <= T rows a tile. Grid: (tiles, blocks), 8 warps. Reads: W once a
 * tile; x, T * 256 bytes a unit of 128 x 128 weights, from L2. Of Q4_0 a unit takes a warp 218, 242 and 317 instructions (T 16, 32 and 64),
 * 16, 32 and 64 of which are products: of 14,336 x 4,096 an H200's schedulers have 54 such units each, so 6.1, 6.7 and 8.8 us of their
 * slots, 3, 6 and 12 us of tensor cores (6.5 clocks a product), 8 us of memory, and 48, 63 and 92 MB of L2, at 5.5 TB/s 9, 11 and 17 us.
 * With the narrowing before it and both ends 15, 18 and 25 us are expected; widening takes 66 for any number of rows, so cuBLASLt wins from
 * some 200 on. Twin: llm__run_linear. */
template <int K, int T> static __global__ void __launch_bounds__(32 * BAND_WARPS, 2) kernel_linear_band(linear_args a, band_args b) {
    typedef band<K, T> B;
    DYN_SMEM(uint8_t, memory);
    SMEM(int, job, 3); /* registers are for sums: units [job[0], job[1]) of W, and whether this piece is the last */
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, half = warp >> 2, row0 = b.row0 + (int)blockIdx.x * T,
              n = min(T, *a.n_rows - row0);
    const int units = band_units(a.subs);
    const uint64_t table[2] = {a.w.table[0] ^ 0x8080808080808080u, a.w.table[1] ^ 0x8080808080808080u};
    uint8_t *to_w = memory + T * BAND_X + 2 * warp * brick_bytes(K) + 16 * lane;
    uint8_t *to_x = memory + (threadIdx.x >> 4) * BAND_X + ((threadIdx.x & 15) ^ (threadIdx.x >> 4 & 7)) * 16;
    if (n <= 0) return grid_wait();
#pragma unroll 1
    for (int u = band_begin(a, blockIdx.y); u < band_begin(a, blockIdx.y + 1);) {
        const int p0 = u / units * BAND_ROWS, first = u % units, bricks = (a.subs + BRICK_SUBS - 1) / BRICK_SUBS;
        int left = min(units - first, band_begin(a, blockIdx.y + 1) - u);
        if (threadIdx.x == 0) job[0] = u, job[1] = u + left;
        /* how many of the last units this warp does not multiply; of a sixteen of rows that is not there it copies the first one's */
        const int lack = p0 + 32 * (warp & 3) < group_rows(a) ? 2 * (first + left - 1) + half >= bricks : left,
                  p = p0 + 16 * warp < group_rows(a) ? p0 + 16 * warp : p0;
        /* where the next unit of either begins, in vectors */
        uint32_t w = (uint32_t)(p / BRICK_ROWS * bricks + 2 * first) * (brick_bytes(K) / 16) + (uint32_t)lane,
                 x = (uint32_t)((row0 + (int)(threadIdx.x >> 4)) * units + first) * (BAND_X / 16) + (threadIdx.x & 15);
        auto copy_w = [&](int stage) {
            const int vectors = 2 * brick_bytes(K) / 16;
#pragma unroll
            for (int k = 0; k < vectors; k += 32)
                if (k + 32 <= vectors || k + lane < vectors) copy_async_16(to_w + stage + 16 * k, (const uint4 *)a.w.q + w + k, 16);
            w += vectors;
        };
        auto copy_x = [&](int stage) {
#pragma unroll
            for (int j = 0; j < T / 16; j++)
                copy_async_16(to_x + stage + j * 16 * BAND_X, (const uint4 *)b.x + (x + (uint32_t)(j * BAND_X * units)),
                              (int)(threadIdx.x >> 4) + 16 * j < n ? 16 : 0);
            x += BAND_X / 16;
        };
        float acc[2][T / 8][4] = {};
#pragma unroll 1
        for (int i = 0; i < B::STAGES - 1; i++)
            if (left - i > 0) copy_w(i * B::BYTES);
        if (u == band_begin(a, blockIdx.y)) grid_wait();
#pragma unroll 1
        for (int i = 0; i < B::STAGES - 1; i++) {
            if (left - i > 0) copy_x(i * B::BYTES);
            copy_async_end();
        }
        int stage = 0;
#pragma unroll 1
        for (; left > 0; left--) {
            copy_async_wait<B::STAGES - 2>();
            __syncthreads();
            const int next = (stage ? stage : B::STAGES * B::BYTES) - B::BYTES;
            if (left - B::STAGES + 1 > 0) {
                copy_w(next);
                copy_x(next);
            }
            copy_async_end();
            if (left > lack) band_multiply<K, T>(memory + stage, warp, lane, table, acc);
            stage = stage + B::BYTES < B::STAGES * B::BYTES ? stage + B::BYTES : 0;
        }
        copy_async_wait<0>();
        __syncthreads();
        float *sums = (float *)memory + ((warp >> 2) * T + 2 * (lane & 3)) * BAND_STRIDE + 32 * (warp & 3) + (lane >> 2);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < T / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) sums[(8 * j + (e & 1)) * BAND_STRIDE + 16 * i + 8 * (e >> 1)] = acc[i][j][e];
        __syncthreads();
        band_end<T>(a, b, (float *)memory, job);
        u = job[1];
        __syncthreads();
    }
}
