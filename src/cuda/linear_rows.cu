/* linear_rows: few rows, on tensor cores.
 *
 * An instruction multiplies 16 rows of W by 8 columns of x over 16 values each. Activations are f32: of each two bf16 are taken whose sum
 * has 16 bits, as two neighbouring columns, so that 4 rows of x fill an instruction, and a lane has both sums of an output. What is
 * multiplied is exact: whole numbers of a sub before their scale are bf16 without loss, and so is e4m3; of f16 weights two bf16 are taken
 * as well. Scales, and minimums times the sum of x, come to the sums of a sub. Nibbles are put behind the exponent of 128 and nothing is
 * taken off: the sum of x, which an instruction adds up, takes 128 and the kind's zero back with the minimum.
 *
 * A block has 32 rows of W, and its warps, 8 or 16, share the columns, 64 at a time, which are called a span: warp w has spans w, w + 8,
 * ... A warp works for itself until the end. Spans of W come through a ring in shared memory, STAGES of them, of which all but one are on
 * their way: so a multiprocessor has 40 to 100 KB under way, without a register, and the first ones are asked for while the kernel before
 * ends. Lanes copy what they will read, bricks as they lie; of floats lane 4 g + t copies 16 bytes of rows g and g + 8, from place t of a
 * sub (e4m3: of a span) on. Which columns a lane's four values of a step are is free, as long as W and x agree:
 *
 *     a step's columns of lane t     bricks   16 h + 4 t of a sub     16 bits   8 t + 4 h of a sub     e4m3   16 t + 4 (2 s + h) of a span
 *
 * Of x a lane loads columns 2 l and 2 l + 1 of each row of the tile, one span ahead, in registers, and stores them as two words, pairs of
 * bf16: so each value is split up once a block. X_STRIDE is how far rows of words are apart so that no two lanes meet a bank. */

template <int K> struct span {
    static constexpr int BYTES = kind_bricks(K) ? brick_bytes(K) : BRICK_ROWS * BRICK_SUBS * kind_bytes(K); /* of 16 rows of W */
    static constexpr int STAGES = BYTES >= 2048 ? 2 : BYTES >= 1024 ? 3 : 4;
    static constexpr int X_STRIDE = kind_bricks(K) ? 40 : K == KIND_F8 ? 36 : 48;
};

/* ROWS_MT: sixteens of rows of W that a block has; ROW_SUMS: floats between rows of sums. */
static constexpr int SPAN = 32 * BRICK_SUBS, ROWS_WARPS = 16, ROWS_MT = 2, X_ROWS = 8, ROW_SUMS = 40;
static constexpr int rows_threads(void) { return 32 * (WIDE_ARCH ? ROWS_WARPS : ROWS_WARPS / 2); }

/* Shared memory of a warp: the ring, and x. */
template <int K, int T> static constexpr __host__ __device__ int rows_warp_smem(void) {
    return (span<K>::STAGES * ROWS_MT * span<K>::BYTES + 2 * T * span<K>::X_STRIDE * 4 + SMEM_ALIGN - 1) / SMEM_ALIGN * SMEM_ALIGN;
}

/* Where a lane begins to copy 16 rows of a part from `row` on; the next span is span_bytes behind. */
template <int K> static __device__ __forceinline__ const uint8_t *span_begin(const part &w, int64_t row, int lane) {
    if constexpr (kind_bricks(K)) return brick_at(w, brick_bytes(K), row, 0) + 16 * lane;
    return w.q + (row + (lane >> 2)) * w.subs * kind_bytes(K) + 16 * (lane & 3);
}
template <int K> static constexpr __device__ int span_bytes(void) { return kind_bricks(K) ? brick_bytes(K) : BRICK_SUBS * kind_bytes(K); }

/* Span `at` of 16 rows on its way to shared memory; what is behind a row's last sub is zero. */
template <int K> static __device__ __forceinline__ void span_copy(const uint8_t *begin, int at, int subs, int lane, uint8_t *to) {
    const uint8_t *from = begin + (int64_t)at * span_bytes<K>();
    to += 16 * lane;
    if constexpr (kind_bricks(K)) {
#pragma unroll
        for (int i = 0; i < brick_bytes(K); i += 512)
            if (i + 512 <= brick_bytes(K) || i + 16 * lane < brick_bytes(K)) copy_async_16(to + i, from + i, 16);
    } else {
        const int vectors = kind_bytes(K) / 32, whole = 2 * at + 1 < subs; /* of a lane and row */
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int v = 0; v < vectors; v++) {
                const int there = whole || (vectors == 2 ? v == 0 : (lane & 3) < 2);
                copy_async_16(to + (r * vectors + v) * 512, from + (int64_t)(8 * r * kind_bytes(K)) * subs + (there ? 64 * v : 0),
                              there ? 16 : 0);
            }
    }
}

/* Columns c and c + 1 of a row, zeros outside. `even`: rows start on 8 bytes. */
static __device__ __forceinline__ float2 load_x2(const float *x, int c, int cols, int even) {
    if (even && c + 2 <= cols) return *(const float2 *)(x + c);
    return make_float2(c < cols ? x[c] : 0, c + 1 < cols ? x[c + 1] : 0);
}

/* What a lane holds of a span of 16 rows. */
template <int K> struct lane_span {
    uint4 q[kind_nibbles(K) ? 1 : kind_bytes(K) / 16];
    uint32_t high[2];
};

template <int K> static __device__ __forceinline__ void lane_load(const uint8_t *from, int lane, lane_span<K> *to) {
#pragma unroll
    for (int i = 0; i < (kind_nibbles(K) ? 1 : kind_bytes(K) / 16); i++) to->q[i] = ((const uint4 *)from)[32 * i + lane];
    if (kind_high_bytes(K) == 4) to->high[0] = ((const uint32_t *)(from + brick_high(K)))[lane];
    if (kind_high_bytes(K) == 8) {
        const uint2 two = ((const uint2 *)(from + brick_high(K)))[lane];
        to->high[0] = two.x, to->high[1] = two.y;
    }
}

/* Two signed bytes of u, bits 0 and 16 on, as bf16: exact. Behind the exponent of 128 is room for seven bits; the eighth chooses what is
 * taken off, -256 or -128, which differ in that bit alone. */
static __device__ __forceinline__ uint32_t signed_pair(uint32_t u) {
    return bf16s_add(bits_and_or(u, 0x007f007f, 0x43004300), bits_and_or(u, 0x00800080, 0xc300c300));
}

/* So much larger than the number are what an instruction takes of nibbles. */
template <int K> static constexpr __device__ int kind_raised(void) { return kind_nibbles(K) && K != KIND_T4 ? 128 + kind_zero(K) : 0; }

/* Step h of sub s: what an instruction takes of W; f16: what bf16 leaves of it in `rest`. */
template <int K>
static __device__ __forceinline__ void lane_step(const lane_span<K> &p, int s, int h, const uint64_t *table, uint32_t *to, uint32_t *rest) {
    const uint32_t *words = (const uint32_t *)p.q;
    const uint32_t w = words[2 * s + h];
    uint32_t low = 0, top = 0;
    if constexpr (K == KIND_T4) low = table_four(table, w), top = table_four(table, w >> 16);
#pragma unroll
    for (int k = 0; k < 4; k++) { /* r and c */
        const int r = k >> 1, c = k & 1;
        uint32_t *pair = to + r + 2 * c;
        if constexpr (K == KIND_BF16) *pair = words[8 * r + 4 * s + 2 * h + c];
        else if constexpr (K == KIND_F16) {
            const uint32_t u = words[8 * r + 4 * s + 2 * h + c];
            split_pair_of<false>(half_to_f32((uint16_t)u), half_to_f32((uint16_t)(u >> 16)), pair, rest + r + 2 * c);
        } else if constexpr (K == KIND_F8) {
            float v[2];
            e4m3_pair(words[4 * r + 2 * s + h] >> (16 * c), v);
            *pair = narrow_pair<false>(v[0], v[1]);
        } else if constexpr (K == KIND_T4) *pair = signed_pair(__byte_perm(low, top, 0x1111 * k + 0x4400));
        else if constexpr (K == KIND_Q8) *pair = signed_pair(__byte_perm(words[4 * s + 2 * h + r], 0, c ? 0x4342 : 0x4140));
        else if constexpr (K == KIND_G8) {
            float v[2];
            const uint32_t n = words[4 * s + 2 * h + r];
            for (int e = 0; e < 2; e++) v[e] = __uint_as_float(__byte_perm(n, 0x4b000000, 0x7440 + 2 * c + e)) - 8388608.0f;
            *pair = narrow_pair<false>(v[0], v[1]);
        } else {
            const int one = 8 * r + 4 * s + 2 * h + c - 4, two = 8 * r + 4 * h + 2 * c - 4;
            *pair = bits_and_or(w >> (4 * k), 0x000f000f, 0x43004300);
            if (kind_high_bytes(K) == 4) *pair = bits_and_or(one < 0 ? p.high[0] << -one : p.high[0] >> one, 0x00100010, *pair);
            if (kind_high_bytes(K) == 8) *pair = bits_and_or(two < 0 ? p.high[s] << -two : p.high[s] >> two, 0x00300030, *pair);
        }
    }
}

/* Scales, and what comes to a sum of x, of rows g and g + 8, of the steps of sub s. */
template <int K> static __device__ __forceinline__ void lane_scales(const uint8_t *from, int s, int g, float (*d)[2], float (*m)[2]) {
    const int bytes = kind_scale_bytes(K);
    from += brick_scales(K) + (s * 8 + g) * 2 * bytes;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t u;
            if (bytes == 2) u = *(const uint32_t *)from >> (16 * r);
            else u = ((const uint32_t *)from)[bytes == 8 ? 2 * r + h : r];
            d[h][r] = K == KIND_T4 ? bits_to_f32(u) : half_to_f32((uint16_t)(K == KIND_Q6 && h ? u >> 16 : u));
            m[h][r] = kind_has_minimum(K) ? half_to_f32((uint16_t)(u >> 16)) : 0;
            if (kind_raised<K>()) m[h][r] = __fmaf_rn((float)-kind_raised<K>(), d[h][r], m[h][r]);
        }
}

/* A row's columns of both steps of sub s, from words of x. */
template <int K> static __device__ __forceinline__ void lane_x(const uint32_t *x, int s, int t, uint32_t (*to)[2]) {
    if constexpr (kind_bricks(K)) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint2 two = *(const uint2 *)(x + 16 * s + 8 * h + 2 * t);
            to[h][0] = two.x, to[h][1] = two.y;
        }
    } else {
        const uint4 four = *(const uint4 *)(x + (K == KIND_F8 ? 8 * t + 4 * s : 16 * s + 4 * t));
        to[0][0] = four.x, to[0][1] = four.y, to[1][0] = four.z, to[1][1] = four.w;
    }
}

/* A span of ROWS_MT sixteens of rows of W, from one stage of the ring, times NT fours of rows of x. acc: with scales the sums of rows g and
 * g + 8, else those of either bf16 of x. Of one row of x lanes of other columns have zeros. */
template <int K, int NT, int A>
static __device__ __forceinline__ void span_multiply(const part &w, const uint8_t *stage, const uint32_t *x, int lane, int one,
                                                     float (*acc)[NT][A]) {
    enum {
        MT = ROWS_MT,
        SCALED = kind_scale_bytes(K) > 0,
        HALVES = K == KIND_Q6 || K == KIND_G8,
        SUMS = kind_has_minimum(K) || kind_raised<K>()
    };
    const int g = lane >> 2, t = lane & 3;
    lane_span<K> q[MT];
#pragma unroll
    for (int i = 0; i < MT; i++) lane_load<K>(stage + i * span<K>::BYTES, lane, &q[i]);
#pragma unroll
    for (int s = 0; s < BRICK_SUBS; s++) {
        uint32_t xf[NT][2][2] = {};
        float all[NT][2] = {}; /* the sum of x, of each step or of both */
#pragma unroll
        for (int j = 0; j < NT; j++) {
            if (!one || g < 2) lane_x<K>(x + (8 * j + g) * span<K>::X_STRIDE, s, t, xf[j]);
            const uint32_t ones[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
            float sum[4] = {};
#pragma unroll
            for (int h = 0; h < 2 && SUMS; h++) {
                mma_16x8x16<false>(sum, ones, xf[j][h]);
                if (!HALVES && !h) continue;
                all[j][HALVES && h] = sum[0] + sum[1];
                sum[0] = sum[1] = sum[2] = sum[3] = 0;
            }
        }
#pragma unroll
        for (int i = 0; i < MT; i++) {
            uint32_t wf[2][4], rest[2][4];
            float d[2][2], m[2][2];
#pragma unroll
            for (int h = 0; h < 2; h++) lane_step<K>(q[i], s, h, w.table, wf[h], rest[h]);
            if constexpr (SCALED) lane_scales<K>(stage + i * span<K>::BYTES, s, g, d, m);
#pragma unroll
            for (int j = 0; j < NT; j++) {
                float part[4] = {};
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    if constexpr (!SCALED) {
                        mma_16x8x16<false>(acc[i][j], wf[h], xf[j][h]);
                        if (K == KIND_F16) mma_16x8x16<false>(acc[i][j], rest[h], xf[j][h]);
                    } else {
                        mma_16x8x16<false>(part, wf[h], xf[j][h]);
                        if (!HALVES && !h) continue;
                        const int mine = HALVES && h;
#pragma unroll
                        for (int r = 0; r < 2; r++) {
                            acc[i][j][r] = __fmaf_rn(d[mine][r], part[2 * r] + part[2 * r + 1], acc[i][j][r]);
                            if (SUMS) acc[i][j][r] = __fmaf_rn(m[mine][r], all[j][mine], acc[i][j][r]);
                        }
                        part[0] = part[1] = part[2] = part[3] = 0;
                    }
                }
            }
        }
    }
}

/* Adds up what the warps have, sums (warp, row of x, rows of W) and squares (warp, row of x), and ends outputs from p0 on, two a thread. */
template <int T>
static __device__ __forceinline__ void rows_finish(const linear_args &a, const tile &t, int p0, const float *sums, const float *squares) {
    const int warps = blockDim.x >> 5, pairs = 8 * ROWS_MT;
    for (int k = threadIdx.x; k < pairs * T; k += (int)blockDim.x) {
        const int row = k / pairs, two = k % pairs * 2;
        float v0 = 0, v1 = 0, all = 0;
#pragma unroll 8
        for (int u = 0; u < warps; u++) {
            const float2 both = *(const float2 *)(sums + (u * T + row) * ROW_SUMS + two);
            v0 += both.x, v1 += both.y;
            if (a.rms) all += squares[u * T + row];
        }
        const float back = a.rms ? 1 / sqrtf(all / (float)a.cols + a.eps) : 1;
        if (row < t.n && p0 + two < group_rows(a)) finish_pair(a, t, t.row + row, p0 + two, v0 * back, v1 * back);
    }
}

/* Computes: out (n, p) = finish(x (n, cols) W^T), n <= T rows a tile. Grid: (tiles, rows of W / 32), so that tiles meet in the cache; 8
 * or 16 warps, which share the columns. Reads: W once a tile, x from L2. Sums of a warp go over its spans, then over warps, in one order
 * whatever the number of rows: so a row has the same bits alone and among others, for any T. Twin:
 * llm__run_linear. */
template <int K, int T>
static __global__ void __launch_bounds__(rows_threads(), WIDE_ARCH &&T == 1 ? 2 : 1) kernel_linear_rows(linear_args a) {
    typedef span<K> S;
    enum { MT = ROWS_MT, NT = T < 4 ? 1 : T / 4, SCALED = kind_scale_bytes(K) > 0, ACC = SCALED ? 2 : 4 };
    DYN_SMEM(uint8_t, memory);
    SMEM(float, squares, ROWS_WARPS *T);
    if (a.begin) grid_wait();
    const tile t = tile_at(a, (int)blockIdx.x, T);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5, rows = group_rows(a),
              p0 = (int)blockIdx.y * 16 * MT;
    const int spans = (a.subs + BRICK_SUBS - 1) / BRICK_SUBS, even = (((size_t)a.x | (size_t)a.x_stride * 4) & 7) == 0;
    uint8_t *ring = memory + warp * rows_warp_smem<K, T>();
    uint32_t *words = (uint32_t *)(ring + S::STAGES * MT * S::BYTES);
    float acc[MT][NT][ACC] = {}, square[T] = {};
    float2 x[T] = {}, norm = make_float2(1, 1);
    const uint8_t *begin[MT];
#pragma unroll
    for (int i = 0; i < MT; i++) /* of sixteen that are not there, the first */
        begin[i] = span_begin<K>(a.w, group_row(a, t, p0 + 16 * i < rows ? p0 + 16 * i : p0), lane);
    auto copy = [&](int at, int slot) {
        if (at < spans) {
#pragma unroll
            for (int i = 0; i < MT; i++) span_copy<K>(begin[i], at, a.subs, lane, ring + (slot * MT + i) * S::BYTES);
        }
        copy_async_end();
    };
    uint32_t from[T]; /* where rows of x begin, in pieces of 8 bytes where they are even */
    auto load = [&](int at) {
        const int c = SPAN * at + 2 * lane;
        if (even && SPAN * (at + 1) <= a.cols) {
#pragma unroll
            for (int r = 0; r < T; r++)
                if (T == 1 || r < t.n) x[r] = ((const float2 *)a.x)[from[r] + (uint32_t)(c / 2)];
            if (a.norm) norm = *(const float2 *)(a.norm + c);
            return;
        }
#pragma unroll 1
        for (int r = 0; r < t.n; r++) {
            const float2 y = load_x2(x_row(a, t, r), c, a.cols, 0);
#pragma unroll
            for (int k = 0; k < T; k++)
                if (k == r) x[k] = y;
        }
        if (a.norm) norm = load_x2(a.norm, c, a.cols, 1);
    };
    if (!t.n) return grid_wait();
#pragma unroll
    for (int i = 0; i < S::STAGES - 1; i++) copy(warp + warps * i, i);
    grid_wait();
#pragma unroll
    for (int r = 0; r < T; r++) from[r] = r < t.n ? (uint32_t)((x_row(a, t, r) - a.x) / 2) : 0;
    if (warp < spans) load(warp);
    int slot = 0;
#pragma unroll 1
    for (int at = warp; at < spans; at += warps) {
        __syncwarp(); /* what is overwritten was read by all lanes */
        copy(at + warps * (S::STAGES - 1), slot ? slot - 1 : S::STAGES - 1);
#pragma unroll
        for (int r = 0; r < T; r++) {
            float2 y = x[r];
            if (a.rms) square[r] = __fmaf_rn(y.x, y.x, __fmaf_rn(y.y, y.y, square[r]));
            y.x *= norm.x, y.y *= norm.y;
            split_pair_of<false>(y.x, y.y, &words[2 * r * S::X_STRIDE + lane], &words[(2 * r + 1) * S::X_STRIDE + lane]);
        }
        if (at + warps < spans) load(at + warps);
        copy_async_wait<S::STAGES - 1>();
        __syncwarp();
        span_multiply<K, NT, ACC>(a.w, ring + slot * MT * S::BYTES, words, lane, T == 1, acc);
        slot = slot + 1 < S::STAGES ? slot + 1 : 0;
    }
    copy_async_wait<0>();
#pragma unroll
    for (int r = 0; r < T && a.rms; r++) {
        const float all = warp_sum(square[r]);
        if (lane == 0) squares[warp * T + r] = all;
    }
    __syncthreads();
    float *sums = (float *)memory; /* (warp, row of x, rows of W) */
#pragma unroll
    for (int i = 0; i < 2 * MT * NT; i++) {
        const int r = i & 1, m = i >> 1 & (MT - 1), j = i / (2 * MT), row = 4 * j + (lane & 3);
        const float v = SCALED ? acc[m][j][r] : acc[m][j][2 * r] + acc[m][j][2 * r + 1 < ACC ? 2 * r + 1 : 0];
        if (row < T) sums[(warp * T + row) * ROW_SUMS + 16 * m + 8 * r + (lane >> 2)] = v;
    }
    __syncthreads();
    rows_finish<T>(a, t, p0, sums, squares);
}
