/* attention_split: single rows, on tensor cores. */

/* How elements lie in shared memory: as the products take them, or as bytes that are widened on the way. */
enum { STORED_F16, STORED_BF16, STORED_BYTES };
static constexpr int STEP_KEYS = 16, TILE_QUERIES = 8, SPLIT_STAGES = 2;

/* Warps of a block, bytes between rows of shared memory and of a stage: keys and values of a step and, of bytes, their scales. Rows are
 * so far apart that what 8 lanes read at once meets each bank once. */
static constexpr __host__ __device__ int split_warps(int hd) { return hd <= 128 ? 4 : 2; }
static constexpr __host__ __device__ int split_blocks(int stored, int hd) { /* of an SM */
    return hd <= 64 || (hd <= 128 && stored == STORED_BYTES) ? 3 : 2;
}
static constexpr __host__ __device__ int split_stride(int stored, int hd) { return stored == STORED_BYTES ? hd + 32 : 2 * hd + 16; }
static constexpr __host__ __device__ int split_stage(int stored, int hd) {
    return 2 * STEP_KEYS * split_stride(stored, hd) + (stored == STORED_BYTES ? 4 * STEP_KEYS * 4 : 0);
}

/* The key of column n of product j (of two, 8 keys each) of a step. Of bytes a lane reads words of four rows side by side, which lie in
 * different banks in this order. */
template <int STORED> static __device__ __forceinline__ int split_key(int j, int n) {
    return 8 * j + (STORED != STORED_BYTES ? n : n & 1 ? 4 + ((n / 2 + 2) & 3) : n / 2);
}

/* The first value of a head that a lane has in step k of 16 of the product with keys, whose columns 2 t, 2 t + 1 these are, and how far the
 * pair of columns 2 t + 8 is from it. Of bytes a lane takes 16 side by side for four steps. */
template <int STORED> static __device__ __forceinline__ int split_value(int k, int t) {
    return STORED == STORED_BYTES ? k / 4 * 64 + 16 * t + k % 4 * 4 : 16 * k + 2 * t;
}
static constexpr __device__ int split_pair(int stored) { return stored == STORED_BYTES ? 2 : 8; }

/* Queries of one sequence that share a KV head, and what they see: i is row row0 + i / n_heads, head first_head + i % n_heads. */
typedef struct split_tile {
    int row0, n, n_heads, first_head, kv_head, from, to, len;
    const int32_t *pages;
} split_tile;

/* A query of the tile, that of lanes 4 g to 4 g + 3: position, the positions that it sees, what its scores are multiplied by, the sum of
 * its values. In shared memory: registers are for sums. */
typedef struct split_query {
    int at, from, to;
    float slope, scale, sum;
} split_query;

/* How bytes of a type become halves, exactly, before scale and offset: two are set into the places of two halves, beside `filler`; all but
 * the sign moves down by `shift`; then times mul, plus add. A whole number below 0x64 is the half 1024 + n; e5m2 is the upper byte of a
 * half; e4m3's exponent has one bit less, and its zero is 2^8 higher. No branch, so that one kernel does for all of them. */
typedef struct byte_form {
    uint32_t filler, first, second, mul, add;
    int shift, nibbles;
} byte_form;

static __device__ __forceinline__ byte_form byte_form_of(int type) {
    const int whole = type == LLM_KV_INT8 || type == LLM_KV_INT4, e4m3 = type == LLM_KV_FP8_E4M3;
    byte_form f = {whole ? 0x64646464u : 0u,
                   whole ? 0x4140u : 0x1404u,
                   whole ? 0x4342u : 0x3424u,
                   e4m3 ? 0x5c005c00u : 0x3c003c00u,
                   whole ? 0xe400e400u : 0x80008000u,
                   e4m3,
                   type == LLM_KV_INT4}; /* 256 or 1; -1024 or -0 */
    return f;
}

/* Four elements to two pairs of halves. */
static __device__ __forceinline__ void bytes_to_halves(const byte_form &f, uint32_t four, uint32_t *two) {
    const uint32_t select[2] = {f.first, f.second};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t x = __byte_perm(four, f.filler, select[h]);
        two[h] = halves_fma((x & 0x80008000) | (x & 0x7fff7fff) >> f.shift, f.mul, f.add);
    }
}

/* Elements d to d + 3 of a row of n in shared memory, as bytes; of int4 byte i has i and i + n / 2. */
static __device__ __forceinline__ uint32_t bytes_at(const byte_form &f, const uint8_t *row, int d, int n) {
    const int above = f.nibbles && 2 * d >= n;
    return *(const uint32_t *)(row + d - (above ? n / 2 : 0)) >> (above ? 4 : 0) & (f.nibbles ? 0x0f0f0f0fu : ~0u);
}

/* Starts the copy of the keys and values [from, to) of positions [16 block, 16 block + 16), which are of one page, into a stage; zeros
 * where there are none, as even what is not seen takes part in a product with 0. A warp. */
template <int STORED, int HD> static __device__ void split_load(const kv_view &kv, const split_tile &a, int block, uint8_t *stage) {
    const int lane = threadIdx.x & 31, first = block * STEP_KEYS, from = a.from - first, to = a.to - first, at = first % kv.page_tokens;
    const uint8_t *page = kv_part(kv, a.pages, first, a.kv_head);
    const int BYTES = STORED == STORED_BYTES ? HD : 2 * HD, VECTORS = BYTES / 16;
#pragma unroll
    for (int values = 0; values < 2; values++) {
        const int row = (values ? kv.place.v_elements : kv.place.k_elements) * kv.element_bytes;
        const uint8_t *x = page + (values ? kv.place.v_offset : 0) + (int64_t)at * row;
        uint8_t *y = stage + values * STEP_KEYS * split_stride(STORED, HD);
        if (row % 16 == 0 && (HD <= 128 || LATE_ARCH)) { /* from row to row by steps */
            const int EACH = 32 / VECTORS, j0 = lane / VECTORS, c = lane % VECTORS * 16, in = c < row;
            const uint8_t *z = x + j0 * row + c;
            y += j0 * split_stride(STORED, HD) + c;
#pragma unroll
            for (int i = 0; i < STEP_KEYS / EACH; i++, z += EACH * row)
                copy_async_16(y + i * EACH * split_stride(STORED, HD), z, in && j0 + i * EACH >= from && j0 + i * EACH < to ? 16 : 0);
        } else if (row % 16 == 0) /* in fewer registers, as ptxas has it for wide heads */
#pragma unroll
            for (int i = lane; i < STEP_KEYS * VECTORS; i += 32) {
                int j = i / VECTORS, c = i % VECTORS * 16, there = j >= from && j < to && c < row;
                copy_async_16(y + j * split_stride(STORED, HD) + c, there ? x + (int64_t)j * row + c : x, there ? 16 : 0);
            }
        else /* short rows, which start anywhere */
#pragma unroll 1
            for (int i = lane; i < STEP_KEYS * BYTES; i += 32) {
                int j = i / BYTES, c = i % BYTES;
                y[j * split_stride(STORED, HD) + c] = j >= from && j < to && c < row ? x[(int64_t)j * row + c] : 0;
            }
    }
    if (STORED == STORED_BYTES) {
        const float *scales = (const float *)(page + kv.place.scale_offset) + at;
        float *y = (float *)(stage + 2 * STEP_KEYS * split_stride(STORED, HD));
#pragma unroll
        for (int k = 0; k < 2; k++) { /* 4 of each token */
            int i = lane + 32 * k, j = i & 15, there = j >= from && j < to;
            copy_async_4(y + i, scales + i / 16 * kv.page_tokens + j, there ? 4 : 0);
        }
    }
    copy_async_end();
}

/* s[j] += the tile's queries (8, in two parts: rows g and g + 8) times key split_key(j, n) of a step, for every n. */
template <int STORED, int HD>
static __device__ __forceinline__ void split_scores(const byte_form &form, int hd, const uint4 *q, const uint8_t *keys, float (*s)[4]) {
    const int lane = threadIdx.x & 31, STRIDE = split_stride(STORED, HD);
    if constexpr (STORED != STORED_BYTES) {
#pragma unroll
        for (int k = 0; k < HD / 16; k++) {
            uint32_t key[4];
            if (k && 16 * k >= hd) continue;
            const uint4 f = q[32 * k + lane];
            const uint32_t query[4] = {f.x, f.y, f.z, f.w};
            load_matrix_x4(key, keys + ((lane & 7) + (lane >> 4) * 8) * STRIDE + 32 * k + (lane >> 3 & 1) * 16);
            mma_16x8x16<STORED == STORED_F16>(s[0], query, key);
            mma_16x8x16<STORED == STORED_F16>(s[1], query, key + 2);
        }
    } else {
#pragma unroll
        for (int k = 0; k < HD / 16; k += 4) {
            const int d = split_value<STORED>(k, lane & 3);
            uint32_t word[2][4];
            if (k && 16 * k >= hd) continue;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const uint8_t *row = keys + split_key<STORED>(j, lane >> 2) * STRIDE;
                if (!form.nibbles) {
                    uint4 all = *(const uint4 *)(row + d);
                    word[j][0] = all.x, word[j][1] = all.y, word[j][2] = all.z, word[j][3] = all.w;
                } else
#pragma unroll
                    for (int i = 0; i < 4; i++) word[j][i] = bytes_at(form, row, d + 4 * i, hd);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint4 f = q[32 * (k + i) + lane];
                const uint32_t query[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    uint32_t key[2];
                    bytes_to_halves(form, word[j][i], key);
                    mma_16x8x16<true>(s[j], query, key);
                }
            }
        }
    }
}

/* acc += weights p (8 queries in two parts, 16 keys) times the values of a step. Of bytes acc[4 J + i] has column n's value 32 J + 4 n + i:
 * a lane reads words of four keys and takes them apart. */
template <int STORED, int HD>
static __device__ __forceinline__ void split_values(const byte_form &form, int vd, const uint32_t *p, const uint8_t *values,
                                                    const float *scales, float (*acc)[4]) {
    const int lane = threadIdx.x & 31, t = lane & 3, STRIDE = split_stride(STORED, HD);
    if constexpr (STORED != STORED_BYTES) {
#pragma unroll
        for (int d = 0; d < HD; d += 16) {
            uint32_t v[4];
            if (d && d >= vd) continue;
            load_matrix_x4_turned(v, values + (lane & 15) * STRIDE + 2 * d + (lane >> 4) * 16);
            mma_16x8x16<STORED == STORED_F16>(acc[d / 8], p, v);
            mma_16x8x16<STORED == STORED_F16>(acc[d / 8 + 1], p, v + 2);
        }
    } else {
#pragma unroll
        for (int d = 0; d < HD; d += 32) {
            uint32_t pair[4][2];
            if (d && d >= vd) continue;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float v[2][4];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    uint32_t two[2];
                    const int key = split_key<STORED>(h, 2 * t + e);
                    const float scale = scales[2 * STEP_KEYS + key], offset = scales[3 * STEP_KEYS + key];
                    bytes_to_halves(form, bytes_at(form, values + key * STRIDE, d + 4 * (lane >> 2), vd), two);
#pragma unroll
                    for (int i = 0; i < 4; i++) v[e][i] = __fmaf_rn(scale, half_to_f32((uint16_t)(two[i / 2] >> (16 * (i % 2)))), offset);
                }
#pragma unroll
                for (int i = 0; i < 4; i++) pair[i][h] = narrow_pair<true>(v[0][i], v[1][i]);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) mma_16x8x16<true>(acc[d / 8 + i], p, pair[i]);
        }
    }
}

/* One step of a warp: scores with 16 keys from position `first` on, the online softmax, acc += weights times values. Twins:
 * llm__body_soften. */
template <int STORED, int HD>
static __device__ __forceinline__ void split_step(const byte_form &form, const attention_args &a, int first, const uint4 *qf,
                                                  const uint8_t *stage, const split_query &q, float *m, float *l, float (*acc)[4]) {
    const int t = threadIdx.x & 3;
    const uint8_t *values = stage + STEP_KEYS * split_stride(STORED, HD);
    const float *scales = (const float *)(values + STEP_KEYS * split_stride(STORED, HD));
    float s[2][4] = {}, x[4], top = *m;
    uint32_t p[4];
    split_scores<STORED, HD>(form, a.hd, qf, stage, s);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int key = split_key<STORED>(e / 2, 2 * t + e % 2), position = first + key;
        float v = s[e / 2][e % 2] + s[e / 2][2 + e % 2];
        if (STORED == STORED_BYTES) v = __fmaf_rn(scales[key], v, scales[STEP_KEYS + key] * q.sum);
        v *= q.scale;
        if (a.softcap > 0) v = a.softcap * tanhf(v / a.softcap);
        v = (v + q.slope * (float)(position - q.at)) * 1.44269504f;
        x[e] = position >= q.from && position < q.to ? v : -INFINITY;
        top = fmaxf(top, x[e]);
    }
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    float c = exp2f(*m - top);
#pragma unroll
    for (int e = 0; e < 4; e++) x[e] = exp2f(x[e] - top);
    *m = top;
    *l = *l * c + ((x[0] + x[1]) + (x[2] + x[3]));
#pragma unroll
    for (int j = 0; j < HD / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) acc[j][e] *= c;
    split_pair_of<STORED != STORED_BF16>(x[0], x[1], &p[0], &p[1]);
    split_pair_of<STORED != STORED_BF16>(x[2], x[3], &p[2], &p[3]);
    split_values<STORED, HD>(form, a.vd, p, values, scales, acc);
}

/* Where value d of a query of the tile is left: in an order of a query's own, for all of them are written at once, whose rows begin in the
 * same bank; where there are registers for it. */
template <int STORED, int HD> static __device__ __forceinline__ int split_place(int query, int d) {
    return query * HD + (HD > 128 ? d : d ^ (STORED == STORED_BYTES ? query : (query & 3) * 8));
}

/* Where a warp stands: its next step of 16 keys, whose copy is under way to `stage` of its two, and the end of the steps of the block. */
typedef struct split_cursor {
    int block, end, stage;
} split_cursor;

/* A warp's part of a split: every step whose number its own is in turn. The copy for the split behind it is under way when it is done, so
 * that memory has no pause. `ring`: the warp's stages; m, l: of its queries. Returns the stage where its sums (8, HD) are left. */
template <int STORED, int HD>
static __device__ __forceinline__ int split_attend(const kv_view &kv, const attention_args &a, const split_tile &tile, int split,
                                                   split_cursor *c, const uint4 *qf, const split_query *queries, uint8_t *ring, float *m,
                                                   float *l) {
    const int W = split_warps(HD), STAGE = split_stage(STORED, HD), lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3,
              end = min(c->end, (split + 1) * (SPLIT / STEP_KEYS));
    const byte_form form = byte_form_of(kv.type);
    float acc[HD / 8][4] = {}, top = -1e30f, sum = 0;
    for (; c->block < end; c->block += W, c->stage ^= 1) {
        if (c->block + W < c->end) {
            split_load<STORED, HD>(kv, tile, c->block + W, ring + (c->stage ^ 1) * STAGE);
            copy_async_wait<1>();
        } else copy_async_wait<0>();
        __syncwarp();
        split_step<STORED, HD>(form, a, c->block * STEP_KEYS, qf, ring + c->stage * STAGE, queries[g], &top, &sum, acc);
        __syncwarp();
    }
    ring += (c->stage ^ 1) * STAGE;
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (t == 0) m[g] = top, l[g] = sum;
#pragma unroll
    for (int j = 0; j < HD / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            ((float *)ring)[split_place<STORED, HD>(g, STORED == STORED_BYTES ? j / 4 * 32 + 4 * (2 * t + e) + j % 4 : 8 * j + 2 * t + e)] =
                acc[j][e] + acc[j][2 + e];
    return c->stage ^ 1;
}

/* Floats between the tile's queries in shared memory: pairs that lanes read at once lie in different banks. */
static constexpr __device__ int split_row(int hd) { return hd + 8; }

/* The tile's queries to x (8, split_row): as they are; or, of a row that is fresh from its product, normed and rotated on the way, and with
 * `write`, which the block has that attends to the row itself, key and value to their page. Of several tiles of a KV head each writes, the
 * same; `fresh`: room for them (2, HD). Behind it a barrier is wanted. */
template <int HD>
static __device__ __forceinline__ void split_fetch(const step_view &s, const kv_view &kv, const attention_args &a, const split_tile &tile,
                                                   int write, float *x, float *fresh) {
    const int W = split_warps(HD), warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    for (int g = warp; g < tile.n; g += W) {
        int row = tile.row0 + g / tile.n_heads, head = tile.first_head + g % tile.n_heads;
        const float *from = a.q + row * a.q_stride + a.q_col + head * a.hd;
        for (int d = lane; d < a.hd; d += 32) x[g * split_row(HD) + d] = from[d];
        __syncwarp();
        if (a.fresh) warp_finish_query(s, kv, a.qkv, row, head, 1, x + g * split_row(HD));
    }
    if (!a.fresh || !write || warp != W - 1) return;
    const float *k = a.qkv.x + tile.row0 * a.qkv.stride + a.qkv.op.k_col + tile.kv_head * a.hd,
                *v = a.qkv.x + tile.row0 * a.qkv.stride + a.qkv.op.v_col + tile.kv_head * a.vd;
    for (int d = lane; d < a.hd; d += 32) fresh[d] = k[d];
    for (int d = lane; d < a.vd; d += 32) fresh[HD + d] = v[d];
    __syncwarp();
    warp_finish_key(s, kv, a.qkv, tile.row0, tile.kv_head, 1, fresh, fresh + HD);
}

/* They become, in two parts each, what lanes want for the products: each warp has its share of the steps of 16 values. Halves are brought
 * down to what they can hold. Behind it a barrier is wanted. */
template <int STORED, int HD>
static __device__ __forceinline__ void split_queries(const step_view &s, const attention_args &a, const split_tile &tile, const float *x,
                                                     uint4 *qf, split_query *queries) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, there = g < tile.n, row = tile.row0 + (there ? g / tile.n_heads : 0),
              head = tile.first_head + (there ? g % tile.n_heads : 0);
    const int W = split_warps(HD), warp = threadIdx.x >> 5;
    float most = 0, by = 1;
    split_query q;
    x += g * split_row(HD);
    q.at = row_position(s, row);
    q.from = q.to = 0;
    if (there) row_sees(s, a, row, q.at, tile.len, &q.from, &q.to);
    q.slope = a.alibi ? a.alibi[head] : 0;
    q.sum = 0;
    for (int d = 2 * t; d < a.hd && there && STORED != STORED_BF16; d += 8) {
        float2 v = *(const float2 *)(x + d);
        most = fmaxf(most, fmaxf(fabsf(v.x), fabsf(v.y)));
        q.sum += v.x + v.y;
    }
    if (STORED != STORED_BF16) {
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        by = half_scale(fmaxf(most, __shfl_xor_sync(~0u, most, 2)));
        q.sum += __shfl_xor_sync(~0u, q.sum, 1);
        q.sum = by * (q.sum + __shfl_xor_sync(~0u, q.sum, 2));
    }
    q.scale = a.scale / by;
    if (t == 0 && warp == 0) queries[g] = q;
    for (int k = warp; k < HD / 16; k += W) {
        uint32_t f[4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int d = split_value<STORED>(k, t) + h * split_pair(STORED);
            float2 v = there && d < a.hd ? *(const float2 *)(x + d) : make_float2(0, 0);
            split_pair_of<STORED != STORED_BF16>(by * v.x, by * v.y, &f[2 * h], &f[2 * h + 1]);
        }
        qf[32 * k + lane] = make_uint4(f[0], f[1], f[2], f[3]);
    }
}

/* What a split adds to what the splits before it gave, of one query: the running maximum and sum, and the factors by which values before
 * and now are multiplied. The same roundings wherever it is done, so that nobody can tell which block did it. */
typedef struct split_fold {
    float m, l, before, now;
} split_fold;

static __device__ __forceinline__ void fold_split(split_fold *f, float m, float l) {
    float top = l > 0 ? fmaxf(f->m, m) : f->m;
    f->before = exp2f(f->m - top);
    f->now = l > 0 ? exp2f(m - top) : 0;
    f->l = __fmaf_rn(l, f->now, __fmul_rn(f->l, f->before));
    f->m = top;
}
static __device__ __forceinline__ float fold_value(float sum, float v, float before, float now) {
    return __fmaf_rn(v, now, __fmul_rn(sum, before));
}

typedef struct split_job { /* splits [first, end) of a tile; slot -1: they are all, see split_run */
    split_tile tile;
    int first, end, write, slot, slot0, n;
} split_job;

/* Shared memory of a block beside its stages: of each warp and query maximum, sum and factor; factors of folding; what a query's values are
 * multiplied by in the end. */
static constexpr int FOLD_SPLITS = 64; /* splits of other blocks whose factors are made at once */
typedef struct split_shared {
    float m[4][TILE_QUERIES], l[4][TILE_QUERIES], by[4][TILE_QUERIES], before[FOLD_SPLITS][TILE_QUERIES], now[FOLD_SPLITS][TILE_QUERIES],
        end[TILE_QUERIES], top[TILE_QUERIES], sum[TILE_QUERIES];
    split_fold fold[TILE_QUERIES];
    split_query query[TILE_QUERIES];
    split_job job[2]; /* the one at hand, and the one behind it: registers are for sums */
    work_item work;   /* where split_next is: item, its rows that are left, the items of the ticket, the next ticket */
    int item, row, end_row, next, stop, ticket;
    int stage[4]; /* of each warp, where its sums are */
    int last;
} split_shared;

/* Maximum and sum of query x from those of its warps, and the factors of their values. */
template <int W> static __device__ __forceinline__ void split_join(split_shared &sh, int x) {
    float top = -1e30f, sum = 0;
#pragma unroll
    for (int w = 0; w < W; w++) top = fmaxf(top, sh.l[w][x] > 0 ? sh.m[w][x] : -1e30f);
#pragma unroll
    for (int w = 0; w < W; w++) {
        float by = sh.l[w][x] > 0 ? exp2f(sh.m[w][x] - top) : 0;
        sh.by[w][x] = by;
        sum = __fmaf_rn(sh.l[w][x], by, sum);
    }
    sh.top[x] = top, sh.sum[x] = sum;
}

/* What a query begins with: nothing, or a sink, which is a score without a value. */
static __device__ __forceinline__ split_fold fold_begin(const attention_args &a, const split_tile &tile, int query) {
    split_fold f = {-1e30f, 0, 0, 0};
    if (a.sinks && query < tile.n) f.m = a.sinks[tile.first_head + query % tile.n_heads] * 1.44269504f, f.l = 1;
    return f;
}

/* Results of the tile's queries to `out`, turned back where pages keep them turned: a warp takes queries in turn. All threads. */
template <int HD>
static __device__ __forceinline__ void split_end(const kv_view &kv, const attention_args &a, const split_tile &tile, const split_shared &sh,
                                                 float *total) {
    __syncthreads();
    for (int query = threadIdx.x >> 5; query < tile.n; query += split_warps(HD)) {
        float *x = total + query * HD, by = sh.end[query],
              *to = a.out + (tile.row0 + query / tile.n_heads) * a.out_stride + (tile.first_head + query % tile.n_heads) * a.vd;
        if (kv.scaled) warp_turn(x, a.vd, kv_turn_size(a.vd));
        for (int d = threadIdx.x & 31; d < a.vd; d += 32) to[d] = x[d] * by;
    }
    __syncthreads();
}

/* Floats of a split in a.partial: values of all heads, then maximum and sum of each. Vectors of four start on 16 bytes. */
static __host__ __device__ __forceinline__ int64_t split_floats(int n_heads, int vd) {
    return (int64_t)n_heads * vd + (2 * n_heads + 3) / 4 * 4;
}

/* The last of a row's blocks adds up what all left in places `slot`, slot + 1, ... of a.partial, all loads of FOLD_SPLITS at once: a thread
 * has four values side by side. */
template <int HD>
static __device__ __forceinline__ void split_gather(const attention_args &a, const split_tile &tile, int slot, int n, split_shared &sh,
                                                    float *total) {
    const int THREADS = 32 * split_warps(HD), x = threadIdx.x, fours = a.vd / 4;
    const int64_t each = split_floats(a.n_heads, a.vd);
    const float *from = a.partial + slot * each + (int64_t)tile.first_head * a.vd,
                *sums = a.partial + slot * each + (int64_t)a.n_heads * a.vd + 2 * tile.first_head;
    split_fold f = fold_begin(a, tile, x);
    for (int s0 = 0; s0 < n; s0 += FOLD_SPLITS, from += FOLD_SPLITS * each, sums += FOLD_SPLITS * each) {
        const int some = min(FOLD_SPLITS, n - s0);
        __syncthreads();
        for (int i = x; i < some * tile.n; i += THREADS) {
            float2 v = __ldcg((const float2 *)(sums + i / tile.n * each) + i % tile.n);
            sh.before[i / tile.n][i % tile.n] = v.x, sh.now[i / tile.n][i % tile.n] = v.y;
        }
        __syncthreads();
        for (int i = 0; i < some && x < tile.n; i++) {
            fold_split(&f, sh.before[i][x], sh.now[i][x]);
            sh.before[i][x] = f.before, sh.now[i][x] = f.now;
        }
        __syncthreads();
        for (int k = x; k < tile.n * fours; k += THREADS) {
            const int query = k / fours, d = k % fours * 4;
            const float *p = from + query * a.vd + d;
            float4 *to = (float4 *)(total + query * HD + d), v = s0 ? *to : make_float4(0, 0, 0, 0);
#pragma unroll 8
            for (int i = 0; i < some; i++) {
                const float before = sh.before[i][query], now = sh.now[i][query];
                const float4 u = __ldcg((const float4 *)(p + i * each));
                v = make_float4(fold_value(v.x, u.x, before, now), fold_value(v.y, u.y, before, now), fold_value(v.z, u.z, before, now),
                                fold_value(v.w, u.w, before, now));
            }
            *to = v;
        }
    }
    if (x < TILE_QUERIES) sh.end[x] = f.l > 0 ? 1 / f.l : 0;
}

/* One thread: what the block does next, to `job`, whose n is 0 if there is nothing. A ticket is for some items of the list side by side;
 * the next one is drawn while one begins, unless each block has one at most. The block that drew the last of all sets the count back. */
static __device__ __forceinline__ void split_next(const step_view &s, const attention_args &a, split_shared &sh, split_job *job) {
    const work_item *work = (const work_item *)(s.head + s.head[HEAD_WORK]);
    const int first_head = (int)blockIdx.y % a.head_tiles * a.heads, n_heads = min(a.heads, a.group - first_head),
              kv_head = (int)blockIdx.y / a.head_tiles, blocks = (int)gridDim.x, n_work = s.head[HEAD_N_WORK],
              each = max(1, n_work / (8 * blocks)), tickets = ceil_div(n_work, each), draws = tickets > blocks;
    int ticket = sh.ticket;
    for (job->n = 0; !job->n;) {
        if (sh.row >= sh.end_row) { /* another item */
            if (sh.next >= sh.stop) {
                if (ticket >= tickets) {
                    if (draws && a.drawn && ticket == blocks + tickets - 1) atomicExch(a.drawn + blockIdx.y, 0u);
                    return;
                }
                sh.next = ticket * each, sh.stop = min(sh.next + each, n_work);
                ticket = blocks + (draws && a.drawn ? (int)atomicAdd(a.drawn + blockIdx.y, 1u) : ticket);
            }
            const work_item w = work[sh.next];
            sh.work = w, sh.item = sh.next, sh.row = w.row, sh.end_row = w.row + w.n;
            sh.next += w.split < 0 ? 1 : min(sh.stop - sh.next, w.n_splits - w.split);
        }
        const work_item w = sh.work;
        const int row = sh.row, end_row = min(row + a.rows, sh.end_row), seq = s.seq_of_row[row];
        const attend_part part = part_of(s, a, seq, row, row, end_row, n_heads);
        sh.row = end_row;
        job->tile = {row,
                     part.qb,
                     n_heads,
                     kv_head * a.group + first_head,
                     kv_head,
                     part.from,
                     min(part.to, s.seq_len[seq]),
                     s.seq_len[seq],
                     s.pages + (int64_t)seq * s.head[HEAD_STRIDE]};
        const int first = part.from / SPLIT, end = max(ceil_div(job->tile.to, SPLIT), first + 1), slot0 = sh.item - w.split,
                  alone = w.split < 0 || slot0 + w.n_splits > a.n_splits; /* the block of the first split does all */
        int from = max(first, w.split), to = min(end, w.split + sh.next - sh.item);
        if (alone && (w.split < 0 || (from == first && from < to))) from = first, to = end;
        else if (alone || from >= to) continue;
        job->first = from, job->end = to, job->write = to == end, job->slot = from == first && to == end ? -1 : slot0 + from;
        job->slot0 = slot0 + first, job->n = end - first;
    }
    sh.ticket = ticket;
}

/* Does job k of both; the one behind it is looked for in the meantime. If it has not all splits of its tile, their sums go to place `slot`
 * of a.partial and the next ones, and the block that finds those of the others there adds them up: `n` there are, from `slot0` on. `write`:
 * see split_fetch. The first copies are under way while queries are made. `memory`: stages, queries, results. */
template <int STORED, int HD>
static __device__ __forceinline__ void split_run(const step_view &s, const kv_view &kv, const attention_args &a, split_shared &sh, int k,
                                                 uint8_t *memory) {
    const int W = split_warps(HD), STAGE = split_stage(STORED, HD), RING = SPLIT_STAGES * STAGE, THREADS = 32 * W, warp = threadIdx.x >> 5,
              x = threadIdx.x;
    const split_job &job = sh.job[k];
    const split_tile &tile = job.tile;
    uint4 *qf = (uint4 *)(memory + W * RING);
    float *total = (float *)(qf + 2 * HD), *rows = (float *)(memory + STAGE); /* the queries: where nothing is copied to yet */
    split_cursor c = {max(tile.from, job.first * SPLIT) / STEP_KEYS, ceil_div(min(tile.to, job.end * SPLIT), STEP_KEYS), 0};
    c.block += (warp - c.block) & (W - 1);
    if (x < TILE_QUERIES) sh.fold[x] = fold_begin(a, tile, x);
    const int wait = a.fresh && job.write; /* for the row's own key */
    if (!wait && c.block < c.end) split_load<STORED, HD>(kv, tile, c.block, memory + warp * RING);
    if (x == 0) split_next(s, a, sh, &sh.job[k ^ 1]);
    split_fetch<HD>(s, kv, a, tile, job.write, rows, total);
    __syncthreads();
    if (wait && c.block < c.end) split_load<STORED, HD>(kv, tile, c.block, memory + warp * RING);
    split_queries<STORED, HD>(s, a, tile, rows, qf, sh.query);
    __syncthreads();
    for (int split = job.first; split < job.end; split++) {
        int stage = split_attend<STORED, HD>(kv, a, tile, split, &c, qf, sh.query, memory + warp * RING, sh.m[warp], sh.l[warp]);
        if (x % 32 == 0) sh.stage[warp] = stage;
        __syncthreads();
        float *partial = a.partial + (job.slot + split - job.first) * split_floats(a.n_heads, a.vd);
        if (x < TILE_QUERIES) {
            split_fold f = sh.fold[x];
            split_join<W>(sh, x);
            fold_split(&f, sh.top[x], sh.sum[x]);
            sh.fold[x] = f;
            sh.before[0][x] = f.before, sh.now[0][x] = f.now, sh.end[x] = f.l > 0 ? 1 / f.l : 0;
            if (job.slot >= 0 && x < tile.n)
                *(float2 *)(partial + (int64_t)a.n_heads * a.vd + 2 * (tile.first_head + x)) = make_float2(sh.top[x], sh.sum[x]);
        }
        __syncthreads();
        for (int i = x; i < tile.n * HD; i += THREADS) {
            int query = i / HD, d = i % HD;
            float v = 0;
#pragma unroll
            for (int w = 0; w < W; w++) {
                const float *sums = (const float *)(memory + w * RING + sh.stage[w] * STAGE);
                v = __fmaf_rn(sums[split_place<STORED, HD>(query, d)], sh.by[w][query], v);
            }
            if (job.slot < 0) total[i] = fold_value(split > job.first ? total[i] : 0, v, sh.before[0][query], sh.now[0][query]);
            else if (d < a.vd) partial[(tile.first_head + query) * a.vd + d] = v;
        }
        __syncthreads();
    }
    if (job.slot >= 0) {
        unsigned *arrived = a.arrived + s.seq_of_row[tile.row0] * MAX_TILES + (int)blockIdx.y;
        __threadfence();
        __syncthreads();
        if (x == 0) {
            sh.last = atomicAdd(arrived, (unsigned)(job.end - job.first)) == (unsigned)(job.n - (job.end - job.first));
            if (sh.last) atomicExch(arrived, 0u);
            __threadfence();
        }
        __syncthreads();
        if (!sh.last) return;
        split_gather<HD>(a, tile, job.slot0, job.n, sh, total);
    }
    split_end<HD>(kv, a, tile, sh, total);
}

/* Computes: out (rows, heads * vd) = softmax(q k^T * scale) v over the pages, for rows of the step's work list. Grid: (blocks, KV heads x
 * tiles of heads), 4 warps (2 with wide heads). A ticket is for some items of the list side by side; a block draws the next one while it
 * works on one: so a block that adds up a row is given less to do, where with items at even distances it would be the last of every row. A
 * tile is up to 8 queries of a KV head: a row's heads of a group, or several rows'. What is fresh is normed, rotated and written to its
 * page first, see split_fetch. A split is 256 keys, by position: a warp takes every fourth step of 16, copies its keys and values into
 * shared memory while it multiplies those of the step before, and waits for the others only at the end of a split, with the copies for the
 * next one under way. Queries and weights stand in the 16 rows of a product twice, the nearest 16-bit value and what is left of it: so they
 * lose nothing, and nothing is lost by that, for 8 rows would stand empty. What a split gives depends on the row's own keys alone and
 * splits are folded in order, so a row's bits do not tell which rows came with it, nor how many blocks worked on it. Reads: each key and
 * value once a tile. After FlashDecoding (Dao et al. 2023). Twins: llm__run_attention, llm__qkv_heads. */
template <int STORED, int HD>
static __global__ void __launch_bounds__(32 * split_warps(HD), split_blocks(STORED, HD))
    kernel_attention_split(step_view s, kv_view kv, attention_args a) {
    grid_wait();
    DYN_SMEM(uint8_t, memory);
    SMEM(split_shared, sh, 1);
    if (threadIdx.x == 0) {
        sh->row = sh->end_row = sh->next = sh->stop = 0, sh->ticket = (int)blockIdx.x;
        split_next(s, a, sh[0], &sh->job[0]);
    }
    __syncthreads();
    for (int k = 0; sh->job[k].n; k ^= 1) split_run<STORED, HD>(s, kv, a, sh[0], k, memory);
}

/* What kernels of 64, 128 or 256 values of a head are told by. */
static int width_log(const attention_args &a) { return max_int(a.hd, a.vd) <= 64 ? 6 : max_int(a.hd, a.vd) <= 128 ? 7 : 8; }

/* Starts it for the step's work; n_splits of the arguments: places that a.partial has. */
static void run_splits(rank *r, const kv_view &kv, attention_args a, int n_kv_heads) {
    a.heads = min_int(a.group, TILE_QUERIES);
    a.head_tiles = ceil_div(a.group, a.heads);
    a.rows = TILE_QUERIES / a.heads;
    a.arrived = r->arrived;
    const int tiles = n_kv_heads * a.head_tiles;
    a.drawn = tiles > MAX_TILES ? NULL : r->arrived + (size_t)r->ctx->cfg.max_seqs * MAX_TILES;
    a.n_splits = tiles > MAX_TILES ? 0
                                   : min_int(MAX_SPLITS + r->ctx->cfg.max_rows,
                                             (int64_t)(r->scratch_bytes / sizeof(float)) / split_floats(a.n_heads, a.vd));
    int stored = kv.type == LLM_KV_F16 ? STORED_F16 : kv.type == LLM_KV_BF16 ? STORED_BF16 : STORED_BYTES;
    with_constant<STORED_F16, STORED_BYTES>(stored, [&](auto form) {
        with_constant<6, 8>(width_log(a), [&](auto log) {
            const int STORED = form.value, HD = 1 << log.value, warps = split_warps(HD);
            const size_t smem = (size_t)(warps * SPLIT_STAGES * split_stage(STORED, HD) + 2 * TILE_QUERIES * HD * 4);
            launch<kernel_attention_split<form.value, 1 << log.value>>(
                r, dim3((unsigned)ceil_div(split_blocks(STORED, HD) * r->n_sms, tiles), (unsigned)tiles), 32 * warps, smem, r->view, kv, a);
        });
    });
}
