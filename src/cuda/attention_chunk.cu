/* attention_chunk: prompts, on tensor cores; and which way attention takes. */

static constexpr int CHUNK_THREADS = 128;

/* A warp has that many times 16 queries, so that keys it has read are used as often: as many as registers have room for beside heads of HD
 * values. Keys of a step likewise. */
static constexpr __host__ __device__ int chunk_sixteens(int hd) { return hd <= 128 ? 2 : 1; }
static constexpr __host__ __device__ int chunk_queries(int hd) { return CHUNK_THREADS / 32 * 16 * chunk_sixteens(hd); }
static constexpr __host__ __device__ int chunk_keys(int hd) { return hd <= 64 ? 64 : 32; }

/* Shared memory, in bytes: queries, two stages of keys and values; of bytes one, and them as they are stored, with their scales. */
static constexpr __host__ __device__ int chunk_stage(int hd) { return 2 * chunk_keys(hd) * hd * 2; }
static constexpr __host__ __device__ int chunk_smem(int stored, int hd) {
    return chunk_queries(hd) * hd * 2 + (stored == STORED_BYTES ? chunk_stage(hd) / 2 * 3 + 16 * chunk_keys(hd) : 2 * chunk_stage(hd));
}

/* Where eight values c of a row are in a tile of rows of HD 16-bit values: eights change places within a row, so that ldmatrix, which reads
 * the same of eight rows at once, meets each bank once. */
template <int HD> static __device__ __forceinline__ int chunk_at(int row, int c) {
    return row * (2 * HD) + (c & ~7) * 16 + (((c ^ row) & 7) * 16);
}

/* The same for a lane of ldmatrix: from chunk_at of its row and of eight c < 2, where c + d is, d even. */
static __device__ __forceinline__ int chunk_step(int at, int d) { return (at ^ (d & 7) * 16) + (d & ~7) * 16; }

/* What a query is and sees: positions [from, to). */
typedef struct __align__(16) chunk_query {
    int from, to, at;
    float slope;
}
chunk_query;

/* Where sixteen positions, which are of one page, have keys, values and the scales of keys. */
typedef struct chunk_place {
    const uint8_t *keys, *values;
    const float *scales;
} chunk_place;

/* A block's queries: i is row row0 + i / n_heads, head first_head + i % n_heads. */
typedef struct chunk_tile {
    int row0, n_rows, first_head, n_heads, kv_head, n;
} chunk_tile;

/* Registers are for sums. */
typedef struct chunk_shared {
    chunk_tile tile;
    chunk_query query[128];
    chunk_place place[2][4]; /* of a step's keys; steps in turn */
} chunk_shared;

/* Notes where keys of the step at `block` are. Threads that have none do nothing. */
template <int HD>
static __device__ __forceinline__ void chunk_look(const kv_view &kv, const int32_t *pages, int head, int block, const attend_part &part,
                                                  chunk_place *place) {
    const int first = block + 16 * (int)threadIdx.x, at = first % kv.page_tokens;
    if ((int)threadIdx.x >= chunk_keys(HD) / 16) return;
    const uint8_t *p = first < part.to && first + 16 > part.from ? kv_part(kv, pages, first, head) : kv.base;
    place[threadIdx.x].keys = p + (int64_t)at * kv.place.k_elements * kv.element_bytes;
    place[threadIdx.x].values = p + kv.place.v_offset + (int64_t)at * kv.place.v_elements * kv.element_bytes;
    place[threadIdx.x].scales = (const float *)(p + kv.place.scale_offset) + at;
}

/* Starts the copy of the keys and values of positions [block, block + keys of a step) into a stage, zeros where part has none, as even what
 * is not seen takes part in a product with 0. All threads. */
template <int HD>
static __device__ __forceinline__ void chunk_load(const kv_view &kv, const chunk_place *place, int block, const attend_part &part,
                                                  uint8_t *stage) {
    const int EIGHTS = HD / 8, EACH = CHUNK_THREADS / EIGHTS, c = threadIdx.x % EIGHTS, j0 = threadIdx.x / EIGHTS;
    const int k_row = 2 * kv.place.head_dim, v_row = 2 * kv.place.v_head_dim;
    const unsigned k_at = j0 * k_row + 16 * c, v_at = j0 * v_row + 16 * c;
    const int k_bytes = 16 * c < k_row ? 16 : 0, v_bytes = 16 * c < v_row ? 16 : 0, before = part.from - block - j0;
    const unsigned n = part.to - part.from;
#pragma unroll
    for (int j = 0; j < chunk_keys(HD); j += EACH) {
        const int there = (unsigned)(j - before) < n;
        uint8_t *to = stage + chunk_at<HD>(j + j0, c);
        copy_async_16(to, place[j / 16].keys + (k_at + j % 16 * k_row), there ? k_bytes : 0);
        copy_async_16(to + chunk_stage(HD) / 2, place[j / 16].values + (v_at + j % 16 * v_row), there ? v_bytes : 0);
    }
}

/* The same of bytes: as they are stored, in rows of HD, and the four floats of each token. */
template <int HD>
static __device__ void chunk_load_bytes(const kv_view &kv, const chunk_place *place, int block, const attend_part &part, uint8_t *raw) {
    const int NK = chunk_keys(HD);
#pragma unroll
    for (int values = 0; values < 2; values++) {
        const int row = values ? kv.place.v_elements : kv.place.k_elements, unit = row % 16 ? 4 : 16, units = ceil_div(row, unit);
#pragma unroll 1
        for (int i = threadIdx.x; i < NK * units; i += CHUNK_THREADS) {
            const int j = i / units, c = i % units * unit, there = block + j >= part.from && block + j < part.to;
            const uint8_t *from = (values ? place[j / 16].values : place[j / 16].keys) + j % 16 * row + c;
            uint8_t *to = raw + (values * NK + j) * HD + c;
            if (unit == 16) copy_async_16(to, from, there ? 16 : 0);
            else copy_async_4(to, from, there ? 4 : 0);
        }
    }
    for (int i = threadIdx.x; i < 4 * NK; i += CHUNK_THREADS) {
        const int j = i % NK, there = block + j >= part.from && block + j < part.to;
        copy_async_4(raw + 2 * NK * HD + 4 * i, place[j / 16].scales + i / NK * kv.page_tokens + j % 16, there ? 4 : 0);
    }
}

/* Bytes of a step to halves, with their scales. All threads. */
template <int HD> static __device__ __forceinline__ void chunk_widen(const kv_view &kv, const uint8_t *raw, uint8_t *stage) {
    const int NK = chunk_keys(HD), EIGHTS = HD / 8, EACH = CHUNK_THREADS / EIGHTS, c = threadIdx.x % EIGHTS, j0 = threadIdx.x / EIGHTS;
    const byte_form form = byte_form_of(kv.type);
#pragma unroll
    for (int values = 0; values < 2; values++) {
        const int n = values ? kv.place.v_head_dim : kv.place.head_dim;
        const float *scales = (const float *)(raw + 2 * NK * HD) + values * 2 * NK;
#pragma unroll 1
        for (int j = j0; j < NK; j += EACH) {
            uint32_t two[4] = {};
            const float by = scales[j], plus = scales[NK + j];
#pragma unroll
            for (int h = 0; h < 2 && 8 * c < n; h++)
                bytes_to_halves(form, bytes_at(form, raw + (values * NK + j) * HD, 8 * c + 4 * h, n), two + 2 * h);
#pragma unroll
            for (int h = 0; h < 4 && 8 * c < n; h++)
                two[h] = narrow_pair<true>(__fmaf_rn(by, half_to_f32((uint16_t)two[h]), plus),
                                           __fmaf_rn(by, half_to_f32((uint16_t)(two[h] >> 16)), plus));
            *(uint4 *)(stage + values * chunk_stage(HD) / 2 + chunk_at<HD>(j, c)) = make_uint4(two[0], two[1], two[2], two[3]);
        }
    }
}

/* Queries of the tile to shared memory, times scale and log2(e), zeros where there are none. */
template <bool HALF, int HD>
static __device__ __forceinline__ void chunk_fetch(const attention_args &a, const chunk_tile &tile, uint8_t *q) {
    const float by = a.scale * 1.44269504f;
#pragma unroll 4
    for (int i = threadIdx.x; i < chunk_queries(HD) * (HD / 8); i += CHUNK_THREADS) {
        const int k = i / (HD / 8), c = i % (HD / 8), row = k / tile.n_heads, there = row < tile.n_rows && 8 * c < a.hd;
        const int head = tile.first_head + k % tile.n_heads;
        const float2 *x = (const float2 *)(a.q + (tile.row0 + row) * a.q_stride + a.q_col + head * a.hd + 8 * c);
        uint32_t two[4];
#pragma unroll
        for (int h = 0; h < 4; h++) {
            const float2 v = there ? x[h] : make_float2(0, 0);
            two[h] = narrow_pair<HALF>(by * v.x, by * v.y);
        }
        *(uint4 *)(q + chunk_at<HD>(k, c)) = make_uint4(two[0], two[1], two[2], two[3]);
    }
}

/* s (queries of a warp, NK) = q k^T. s[i][j][e]: query 16 i + 8 (e / 2) + g, key 8 j + 2 t + e % 2; g = lane / 4, t = lane % 4. */
template <bool HALF, int HD>
static __device__ __forceinline__ void chunk_scores(const uint8_t *q, const uint8_t *keys, int q_at, int k_at,
                                                    float (*s)[chunk_keys(HD) / 8][4]) {
    const int M = chunk_sixteens(HD);
#pragma unroll
    for (int k = 0; k < HD / 16; k++) {
        uint32_t qf[M][4], kf[4];
#pragma unroll
        for (int i = 0; i < M; i++) load_matrix_x4(qf[i], q + chunk_step(q_at, 2 * k) + i * 32 * HD);
#pragma unroll
        for (int j = 0; j < chunk_keys(HD) / 16; j++) {
            load_matrix_x4(kf, keys + chunk_step(k_at, 2 * k) + j * 32 * HD);
#pragma unroll
            for (int i = 0; i < M; i++) {
                mma_16x8x16<HALF>(s[i][2 * j], qf[i], kf);
                mma_16x8x16<HALF>(s[i][2 * j + 1], qf[i], kf + 2);
            }
        }
    }
}

/* What few models want of scores, and what the borders of what a query sees ask for: there they become -INFINITY. */
template <int HD>
static __device__ __forceinline__ void chunk_mask(const attention_args &a, const chunk_query *queries, int block, int border,
                                                  float (*s)[chunk_keys(HD) / 8][4]) {
    const int lane = threadIdx.x & 31, first = block + 2 * (lane & 3);
    const float cap = a.softcap * 1.44269504f, by = a.softcap > 0 ? 2 / a.softcap : 0;
#pragma unroll
    for (int i = 0; i < 2 * chunk_sixteens(HD); i++) {
        const chunk_query q = queries[8 * i + (lane >> 2)];
#pragma unroll
        for (int j = 0; j < chunk_keys(HD) / 8; j++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float *x = &s[i / 2][j][2 * (i & 1) + h];
                const int position = first + 8 * j + h;
                if (a.softcap > 0) *x = cap - __fdividef(2 * cap, exp2_near(*x * by) + 1); /* cap tanh(x / cap) */
                if (a.alibi) *x += q.slope * (float)(position - q.at);
                if (border) *x = position >= q.from && position < q.to ? *x : -INFINITY;
            }
    }
}

/* Scores become weights of the online softmax, in place: exp2(s - m). m follows the largest score only when that is more than 2^8 above:
 * then acc and l are brought to it. So each query has it for itself, and most steps change nothing. m, l: of query 8 i + g; l: of the keys
 * that the lane has. Twin: llm__body_soften. */
template <int HD>
static __device__ __forceinline__ void chunk_soften(float *m, float *l, float (*s)[chunk_keys(HD) / 8][4], float (*acc)[HD / 8][4]) {
    const int N = chunk_keys(HD) / 8, ROWS = 2 * chunk_sixteens(HD);
    float c[ROWS];
    int far = 0;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int k = 2 * (i & 1);
        float top = fmaxf(s[i / 2][0][k], s[i / 2][0][k + 1]);
#pragma unroll
        for (int j = 1; j < N; j++) top = fmaxf(top, fmaxf(s[i / 2][j][k], s[i / 2][j][k + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        const int up = top > m[i] + 8;
        c[i] = up ? exp2_near(m[i] - top) : 1;
        m[i] = up ? top : m[i];
        far |= up;
    }
    if (__any_sync(~0u, far))
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            l[i] *= c[i];
#pragma unroll
            for (int j = 0; j < HD / 8; j++) acc[i / 2][j][2 * (i & 1)] *= c[i], acc[i / 2][j][2 * (i & 1) + 1] *= c[i];
        }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int k = 2 * (i & 1); k < 2 * (i & 1) + 2; k++) l[i] += s[i / 2][j][k] = exp2_near(s[i / 2][j][k] - m[i]);
}

/* acc (queries of a warp, HD) += s v. The weights go from the place where one product leaves them to where the next wants them without
 * leaving their thread. */
template <bool HALF, int HD>
static __device__ __forceinline__ void chunk_sum(const uint8_t *values, int v_at, const float (*s)[chunk_keys(HD) / 8][4],
                                                 float (*acc)[HD / 8][4]) {
    const int M = chunk_sixteens(HD);
#pragma unroll
    for (int j = 0; j < chunk_keys(HD) / 16; j++) {
        uint32_t p[M][4], vf[4];
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int k = 0; k < 4; k++) p[i][k] = narrow_pair<HALF>(s[i][2 * j + k / 2][2 * (k & 1)], s[i][2 * j + k / 2][2 * (k & 1) + 1]);
#pragma unroll
        for (int d = 0; d < HD / 8; d += 2) {
            load_matrix_x4_turned(vf, values + chunk_step(v_at, d) + j * 32 * HD);
#pragma unroll
            for (int i = 0; i < M; i++) {
                mma_16x8x16<HALF>(acc[i][d], p[i], vf);
                mma_16x8x16<HALF>(acc[i][d + 1], p[i], vf + 2);
            }
        }
    }
}

/* Positions of which the queries of a warp see some, [from, to), and those that all of them see, [all_from, all_to). */
typedef struct chunk_range {
    int from, to, all_from, all_to;
} chunk_range;

/* A warp's queries of one part of its tile: what each sees, which goes to `queries`, and what they see together. */
template <int HD>
static __device__ __forceinline__ chunk_range chunk_sees(const step_view &s, const attention_args &a, const attend_part &part, int seq,
                                                         const chunk_tile &tile, chunk_query *queries) {
    const int each = 16 * chunk_sixteens(HD), lane = threadIdx.x & 31, i = each * (threadIdx.x >> 5) + lane % each,
              row = tile.row0 + i / tile.n_heads;
    const int mine = i >= part.qa && i < part.qb;
    chunk_query q = {0, 0, 0, 0};
    chunk_range r = {1 << 30, 0, 0, 1 << 30}; /* of a query that is none */
    if (i < tile.n) r.all_to = 0;
    if (mine) {
        q.at = row_position(s, row);
        q.slope = a.alibi ? a.alibi[tile.first_head + i % tile.n_heads] * 1.44269504f : 0;
        row_sees(s, a, row, q.at, s.seq_len[seq], &q.from, &q.to);
        r.from = r.all_from = q.from, r.to = r.all_to = q.to;
    }
    if (lane < each) queries[lane] = q;
    for (int o = 16; o; o >>= 1) {
        r.from = min(r.from, __shfl_xor_sync(~0u, r.from, o));
        r.to = max(r.to, __shfl_xor_sync(~0u, r.to, o));
        r.all_from = max(r.all_from, __shfl_xor_sync(~0u, r.all_from, o));
        r.all_to = min(r.all_to, __shfl_xor_sync(~0u, r.all_to, o));
    }
    __syncwarp();
    return r;
}

/* A warp's results to `out`. */
template <int HD>
static __device__ __forceinline__ void chunk_end(const step_view &s, const attention_args &a, const chunk_tile &tile, const float *l,
                                                 const float (*acc)[HD / 8][4]) {
    const int lane = threadIdx.x & 31, ROWS = 2 * chunk_sixteens(HD);
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        const int i = 8 * ROWS * (threadIdx.x >> 5) + 8 * k + (lane >> 2), row = tile.row0 + i / tile.n_heads;
        float sum = l[k] + __shfl_xor_sync(~0u, l[k], 1), by;
        sum += __shfl_xor_sync(~0u, sum, 2);
        by = sum > 0 ? 1 / sum : 0;
        if (i >= tile.n || !part_wanted(s, a.not_single, s.seq_of_row[row])) continue;
        float *to = a.out + row * a.out_stride + (tile.first_head + i % tile.n_heads) * a.vd + 2 * (lane & 3);
#pragma unroll
        for (int j = 0; j < HD / 8; j++)
            if (8 * j < a.vd) *(float2 *)(to + 8 * j) = make_float2(acc[k / 2][j][2 * (k & 1)] * by, acc[k / 2][j][2 * (k & 1) + 1] * by);
    }
}

/* The last rows first, as they see most. */
static __device__ __forceinline__ chunk_tile chunk_tile_of(const step_view &s, const attention_args &a) {
    const int columns = a.n_heads / a.group * a.head_tiles, column = (int)blockIdx.x % columns, kv_head = column / a.head_tiles;
    const int row0 = ((int)(gridDim.x - 1 - blockIdx.x) / columns) * a.rows, in_group = column % a.head_tiles * a.heads;
    const int n_rows = min(a.rows, min(a.n_rows, s.head[HEAD_ROWS]) - row0), n_heads = min(a.heads, a.group - in_group);
    return {row0, n_rows, kv_head * a.group + in_group, n_heads, kv_head, n_rows * n_heads};
}

/* Computes: out (T, heads * vd) = softmax(q k^T * scale) v over the pages, for sequences with several rows, in 16-bit products and f32
 * sums. Grid: KV heads x tiles of heads x tiles of rows, the last rows first, as they see most; 4 warps, each with 32 queries (16 of wide
 * heads); query i is row i / heads of the tile, head i % heads. While keys of a step of 64 positions (32) are multiplied those of the next
 * are copied. Steps begin at multiples of their length, and a step that a query does not see leaves nothing of it: so a row's bits do not
 * tell what else its tile has. Reads: keys and values once a tile of 128 queries (64). After FlashAttention-2 (Dao 2023). Twin:
 * llm__run_attention. */
template <int STORED, int HD>
static __global__ void __launch_bounds__(CHUNK_THREADS, 2) kernel_attention_chunk(step_view s, kv_view kv, attention_args a) {
    grid_wait();
    DYN_SMEM(uint8_t, q);
    SMEM(chunk_shared, shared, 1);
    const bool HALF = STORED != STORED_BF16;
    const int NK = chunk_keys(HD), M = chunk_sixteens(HD), warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const chunk_tile &tile = shared->tile;
    const int q_at = chunk_at<HD>(lane & 15, lane >> 4), k_at = chunk_at<HD>((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1);
    uint8_t *stages = q + chunk_queries(HD) * HD * 2, *raw = stages + chunk_stage(HD);
    chunk_query *queries = shared->query + 16 * M * warp;
    float acc[M][HD / 8][4] = {}, m[2 * M], l[2 * M];
    if (threadIdx.x == 0) shared->tile = chunk_tile_of(s, a);
    __syncthreads();
    if (tile.n <= 0) return;
    chunk_fetch<HALF, HD>(a, tile, q);
#pragma unroll
    for (int k = 0; k < 2 * M; k++) {
        const int i = 16 * M * warp + 8 * k + (lane >> 2), sink = a.sinks && i < tile.n;
        m[k] = sink ? a.sinks[tile.first_head + i % tile.n_heads] * 1.44269504f : -1e30f;
        l[k] = sink && (lane & 3) == 0 ? 1 : 0; /* a lane has its keys' part of the sum */
    }
    for (int row = tile.row0, end; row < tile.row0 + tile.n_rows; row = end) { /* the tile's sequences */
        const int seq = s.seq_of_row[row];
        end = min(s.seq_begin[seq + 1], tile.row0 + tile.n_rows);
        if (!part_wanted(s, a.not_single, seq)) continue;
        const int32_t *pages = s.pages + (int64_t)seq * s.head[HEAD_STRIDE];
        const attend_part part = part_of(s, a, seq, tile.row0, row, end, tile.n_heads);
        const chunk_range range = chunk_sees<HD>(s, a, part, seq, tile, queries);
        const int first = part.from / NK * NK;
        __syncthreads();
        chunk_look<HD>(kv, pages, tile.kv_head, first, part, shared->place[0]);
        chunk_look<HD>(kv, pages, tile.kv_head, first + NK, part, shared->place[1]);
        __syncthreads();
        if (STORED == STORED_BYTES) chunk_load_bytes<HD>(kv, shared->place[0], first, part, raw);
        else chunk_load<HD>(kv, shared->place[0], first, part, stages);
        copy_async_end();
        for (int block = first, turn = 0; block < part.to; block += NK, turn ^= 1) {
            uint8_t *stage = stages + (STORED == STORED_BYTES ? 0 : turn * chunk_stage(HD));
            copy_async_wait<0>();
            __syncthreads();
            if (STORED == STORED_BYTES) {
                chunk_widen<HD>(kv, raw, stage);
                __syncthreads();
            }
            if (block + NK < part.to) {
                if (STORED == STORED_BYTES) chunk_load_bytes<HD>(kv, shared->place[turn ^ 1], block + NK, part, raw);
                else chunk_load<HD>(kv, shared->place[turn ^ 1], block + NK, part, stages + (turn ^ 1) * chunk_stage(HD));
                copy_async_end();
                chunk_look<HD>(kv, pages, tile.kv_head, block + 2 * NK, part, shared->place[turn]);
            }
            if (block >= range.to || block + NK <= range.from) continue;
            const int border = block < range.all_from || block + NK > range.all_to;
            float scores[M][NK / 8][4] = {};
            chunk_scores<HALF, HD>(q + 16 * M * warp * HD * 2, stage, q_at, k_at, scores);
            if (border || a.softcap > 0 || a.alibi) chunk_mask<HD>(a, queries, block, border, scores);
            chunk_soften<HD>(m, l, scores, acc);
            chunk_sum<HALF, HD>(stage + chunk_stage(HD) / 2, q_at, scores, acc);
        }
    }
    chunk_end<HD>(s, a, tile, l, acc);
}

static void run_chunks(rank *r, const kv_view &kv, attention_args a, int n_kv_heads) {
    int stored = kv.type == LLM_KV_F16 ? STORED_F16 : kv.type == LLM_KV_BF16 ? STORED_BF16 : STORED_BYTES;
    with_constant<STORED_F16, STORED_BYTES>(stored, [&](auto form) {
        with_constant<6, 8>(width_log(a), [&](auto log) {
            const int HD = 1 << log.value;
            a.heads = min_int(a.group, chunk_queries(HD));
            a.head_tiles = ceil_div(a.group, a.heads);
            a.rows = chunk_queries(HD) / a.heads;
            launch<kernel_attention_chunk<form.value, 1 << log.value>>(
                r, dim3((unsigned)(ceil_div(a.n_rows, a.rows) * n_kv_heads * a.head_tiles)), CHUNK_THREADS,
                (size_t)chunk_smem(form.value, HD), r->view, kv, a);
        });
    });
}

/* Cuts the rows of the launch into tiles and splits, and starts the kernels. `partial`: memory for splits, NULL: none. */
static void run_tiles(rank *r, const kv_view &kv, attention_args a, int n_kv_heads, size_t partial_bytes) {
    a.heads = min_int(a.group, QUERIES);
    while (a.heads > 1 && attention_smem(a.heads, a.hd) > (size_t)r->max_smem) a.heads = (a.heads + 1) / 2;
    a.head_tiles = ceil_div(a.group, a.heads);
    a.rows = r->ctx->padded.n_rows == r->ctx->padded.n_seqs ? 1 : QUERIES / a.heads; /* decoding: no tile has two sequences */
    while (a.rows > 1 && attention_smem(a.rows * a.heads, a.hd) > (size_t)r->max_smem) a.rows--;
    dim3 grid((unsigned)ceil_div(a.n_rows, a.rows), (unsigned)(n_kv_heads * a.head_tiles), 1);
    int64_t each = (int64_t)a.n_rows * a.n_heads * (a.vd + 2) * 4, blocks = (int64_t)grid.x * grid.y;
    a.n_splits = r->ctx->cfg.batch_invariant || !a.partial ? 1 : min_int(SPLITS, 2 * r->n_sms / blocks);
    if (a.n_splits > 1) a.n_splits = min_int(a.n_splits, (int64_t)(partial_bytes / (size_t)each));
    if (a.n_splits < 1) a.n_splits = 1;
    grid.z = (unsigned)a.n_splits;
    const size_t smem = attention_smem(a.rows * a.heads, a.hd);
    with_constant<LLM_KV_F32, LLM_KV_INT4>(kv.type, [&](auto t) { /* floats have one value a thread up to heads of 128, all else four */
                                                                  if constexpr (t.value == LLM_KV_F32)
                                                                      if (a.vd <= 128)
                                                                          return launch<kernel_attention<t.value, 1>>(r, grid, 128, smem,
                                                                                                                      r->view, kv, a);
                                                                  launch<kernel_attention<t.value, 4>>(r, grid, 128, smem, r->view, kv, a);
    });
    if (a.n_splits > 1) launch<kernel_attention_join>(r, dim3((unsigned)a.n_rows, (unsigned)a.n_heads), 128, 0, r->view, a);
}

/* Whether tensor cores take its heads and pages. */
static int on_tensor_cores(const rank *r, const llm_attention_op *op) {
    return r->ctx->kv_type != LLM_KV_F32 && op->head_dim % 8 == 0 && op->v_head_dim % 8 == 0 && op->head_dim <= 256 &&
           op->v_head_dim <= 256;
}

/* Where every sequence has one row, attention does by itself what a qkv record before it says: so a layer is five launches instead of six.
 * A row's queries are done again for each split of its keys, which is little beside the keys. Then nobody may read what the record would
 * have left in its buffer. Heads that are normed as one are for a block that has all of them. */
static void list_fuse_heads(rank *r) {
    for (int i = 0; i + 1 < r->n; i++) {
        const llm_qkv_op *q = &r->list[i].op.qkv;
        const llm_attention_op *a = &r->list[i + 1].op.attention;
        if (r->list[i].kind != OP_QKV || r->list[i + 1].kind != OP_ATTENTION || q->norm == LLM_QK_NORM_WHOLE_RMS) continue;
        if (a->qkv != q->qkv || a->layer != q->layer || a->q_col != q->q_col || a->n_heads != q->n_heads) continue;
        if (a->n_kv_heads != q->n_kv_heads || a->head_dim != q->head_dim || a->v_head_dim != q->v_head_dim) continue;
        if (r->ctx->padded.n_rows > r->ctx->padded.n_seqs || !on_tensor_cores(r, a) || record_next_use(r, i + 1, q->qkv) == USE_READ)
            continue;
        r->list[i].done = 1;
        r->list[i + 1].qkv = q;
    }
}

/* Sequences with several rows in chunks, those with one in splits; in splits too what batch_invariant asks for, where a row's bits must not
 * tell what came with it. What is not for tensor cores (keys in f32, heads that are no multiple of 8) goes by kernel_attention. Both that
 * split use the scratch memory. Twin: llm__run_attention. */
static void run_attention(rank *r, const record *rec) {
    const llm_attention_op *op = &rec->op.attention;
    attention_args a = {.q = op->qkv->data,
                        .sinks = op->sinks ? op->sinks->f32 : NULL,
                        .alibi = op->alibi ? op->alibi->f32 : NULL,
                        .out = op->dst->data,
                        .partial = (float *)r->scratch,
                        .q_stride = op->qkv->stride,
                        .out_stride = op->dst->stride,
                        .q_col = op->q_col,
                        .n_heads = op->n_heads,
                        .group = op->n_heads / op->n_kv_heads,
                        .n_rows = r->ctx->padded.n_rows,
                        .hd = op->head_dim,
                        .vd = op->v_head_dim,
                        .window = op->window,
                        .not_causal = op->not_causal,
                        .spans = op->spans,
                        .scale = op->scale,
                        .softcap = op->softcap,
                        .fresh = rec->qkv != NULL};
    if (a.fresh) a.qkv = qkv_of(rec->qkv);
    kv_view kv = kv_of(r, op->layer);
    int several = r->ctx->padded.n_rows > r->ctx->padded.n_seqs;
    if (!on_tensor_cores(r, op)) {
        run_tiles(r, kv, a, op->n_kv_heads, r->scratch_bytes);
        if (kv.scaled) run_turn(r, a.out, a.out_stride, a.n_rows, a.n_heads, a.vd, kv_turn_size(a.vd), 0, 0);
        return;
    }
    if (!several || r->ctx->singles || r->ctx->cfg.batch_invariant) run_splits(r, kv, a, op->n_kv_heads);
    if (!several || r->ctx->cfg.batch_invariant) return;
    a.not_single = 1;
    run_chunks(r, kv, a, op->n_kv_heads);
    if (kv.scaled) run_turn(r, a.out, a.out_stride, a.n_rows, a.n_heads, a.vd, kv_turn_size(a.vd), 0, 1);
}
