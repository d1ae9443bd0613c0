/* attention: KV pages, and attention over them.
 *
 * A page holds page_tokens tokens of every layer; inside it each (layer, KV head) has its keys row by row, its values row by row, and for
 * the one-byte types a scale and an offset a token, so that a warp that loads a key reads neighbouring bytes.
 *
 * Three kernels read pages:
 *
 *     kernel_attention_split   sequences with one row: what decoding is. Limited by memory: keys and values are read once for the heads
 *                              that share them, in pieces of 256 positions, which blocks take from the step's work list
 *     kernel_attention_chunk   sequences with several rows, 128 queries at a time. Limited by arithmetic
 *     kernel_attention         what both have no shape for: latents, whose keys are their values, keys in f32, heads of no multiple of 8
 *
 * All three take keys in order of position with the online softmax of >>attention in llm.h. A query keeps m, the largest score so far, and
 * l, the sum of exp2(score - m). When a block of keys has a larger score, what was summed before is multiplied by exp2(m - m'). Scores are
 * taken times log2(e), as exp2 is one instruction. A sink is a score without a value: it is where a query begins.
 *
 * For instance one sequence of 4,000 tokens, 32 heads that share 8 KV heads: a tile is a row's 4 heads of a group, and the work list has 16
 * items, positions 0 to 255, 256 to 511, ...: 128 blocks have one each. Each leaves a maximum, a sum and 128 values a head in memory; the
 * one that comes last folds them in order of position. Beside 31 other sequences it would be the same items of 256 positions with the same
 * results: so a row's bits do not tell what came with it.
 *
 * kernel_attention works on a tile of up to 16 (row, head) queries that share a KV head. Keys are taken 32 at a time: a warp has a query's
 * 32 scores, one a lane. A query's result depends on its own blocks only, so tiles may hold rows of several sequences, one after the other.
 *
 *     page      (layer, KV head): keys (page_tokens, head_dim), values (page_tokens, v_head_dim), 4 floats a token for one-byte types
 *     tile      queries (16, hd)  x  keys (32, hd)  ->  scores (16, 32)  ->  weights p (16, 32)  x  values (32, vd)  ->  acc (16, vd)
 *     shared    q (tile, hd), keys (32, hd | 1), p (16, 32), factor (16): an odd stride, so that 32 lanes with a key each meet 32 banks
 *
 * With few tiles its blocks of keys are split among several blocks of threads, whose partial results (maximum, sum, values)
 * kernel_attention_join adds up. How many splits there are depends on the padded shape only; with batch_invariant there is one. A split
 * without any keys has the sum 0 and the lowest maximum: it counts for nothing when
 * they are joined. */

static constexpr int SPLITS = 32;

/* How one page element is read. Twin: llm__kv_encode, backwards, without its scale. */
template <int T> static __device__ __forceinline__ float kv_element(const uint8_t *p, int d, int half) {
    if (T == LLM_KV_F32) return ((const float *)p)[d];
    if (T == LLM_KV_F16) return half_to_f32(((const uint16_t *)p)[d]);
    if (T == LLM_KV_BF16) return bf16_to_f32(((const uint16_t *)p)[d]);
    if (T == LLM_KV_FP8_E4M3) return e4m3_to_f32(p[d]);
    if (T == LLM_KV_FP8_E5M2) return half_to_f32((uint16_t)(p[d] << 8));
    if (T == LLM_KV_INT8) return (float)p[d];
    return (float)(d < half ? p[d] & 15 : p[d - half] >> 4);
}

/* Where a position's page has a head of this layer. */
static __device__ __forceinline__ uint8_t *kv_part(const kv_view &v, const int32_t *pages, int position, int head) {
    return v.base + pages[position / v.page_tokens] * v.page_bytes + v.place.offset + head * v.place.head_bytes;
}

/* Position in the cache of a row of the step. Twin: llm__row_position. */
static __device__ __forceinline__ int row_position(const step_view &s, int row) {
    int seq = s.seq_of_row[row];
    return s.seq_len[seq] - (s.seq_begin[seq + 1] - row);
}

/* A warp writes n values as elements of the cache, and their scale and offset. Twin: llm__kv_encode. */
static __device__ void warp_encode(int type, const float *x, int n, uint8_t *to, float *scale_to, float *offset_to) {
    int lane = threadIdx.x & 31, half = (n + 1) / 2;
    float low = INFINITY, high = -INFINITY, scale = 1, offset = 0;
    for (int i = lane; i < n; i += 32) {
        if (type == LLM_KV_F32) ((float *)to)[i] = x[i];
        else if (type == LLM_KV_F16) ((uint16_t *)to)[i] = f32_to_half(x[i]);
        else if (type == LLM_KV_BF16) ((uint16_t *)to)[i] = (uint16_t)f32_to_bf16(x[i]);
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    if (type <= LLM_KV_BF16) return;
    high = warp_max(high);
    low = -warp_max(-low);
    if (type <= LLM_KV_FP8_E5M2) {
        float largest = type == LLM_KV_FP8_E4M3 ? 448.0f : 57344.0f, top = fmaxf(high, -low);
        if (top > 0) scale = top / largest;
        for (int i = lane; i < n; i += 32) {
            float v = x[i] / scale;
            v = v > largest ? largest : v > -largest ? v : -largest;
            to[i] = (uint8_t)(type == LLM_KV_FP8_E4M3 ? f32_narrow(v, 4, 3, 0x7e, 0x7f) : f32_narrow(v, 5, 2, 0x7b, 0x7e));
        }
    } else {
        float levels = type == LLM_KV_INT8 ? 255.0f : 15.0f, cut = type == LLM_KV_INT8 ? 0 : __fmul_rn(0.03f, high - low);
        low += cut, high -= cut;
        offset = low;
        if (high > low) scale = (high - low) / levels;
        for (int i = lane; i < (type == LLM_KV_INT8 ? n : half); i += 32) {
            uint32_t q = 0;
            for (int k = 0; k < 2 && i + k * half < n; k++) {
                float v = (x[i + k * half] - low) / scale + 0.5f;
                q |= (uint32_t)(v > levels ? levels : v > 0 ? v : 0) << (4 * k);
                if (type == LLM_KV_INT8) break;
            }
            to[i] = (uint8_t)q;
        }
    }
    if (lane == 0) *scale_to = scale, *offset_to = offset;
}

/* Where a token's value of a head is, and its scale, which is followed by the offset one page of tokens further. */
static __device__ __forceinline__ uint8_t *kv_value(const kv_view &v, const int32_t *pages, int position, int head, float **scale) {
    uint8_t *at = kv_part(v, pages, position, head);
    int t = position % v.page_tokens;
    *scale = (float *)(at + v.place.scale_offset) + 2 * v.page_tokens + t;
    return at + v.place.v_offset + (int64_t)t * v.place.v_elements * v.element_bytes;
}

/* Writes a token's key, and its value unless v is NULL. A warp. Twin: llm__kv_write_token. */
static __device__ void warp_write_token(const kv_view &v, const int32_t *pages, int position, int head, const float *key,
                                        const float *value) {
    uint8_t *at = kv_part(v, pages, position, head);
    int t = position % v.page_tokens, tokens = v.page_tokens;
    float *scales = (float *)(at + v.place.scale_offset), *scale;
    warp_encode(v.type, key, v.place.head_dim, at + (int64_t)t * v.place.k_elements * v.element_bytes, scales + t, scales + tokens + t);
    if (!value) return;
    at = kv_value(v, pages, position, head, &scale);
    warp_encode(v.type, value, v.place.v_head_dim, at, scale, scale + tokens);
}

/* A warp reads n values as they were written, but for the rounding. Twin: llm__kv_read_value. */
template <int T> static __device__ void warp_decode(const uint8_t *from, int n, int scaled, float scale, float offset, float *to) {
    for (int i = threadIdx.x & 31; i < n; i += 32) {
        float v = kv_element<T>(from, i, (n + 1) / 2);
        to[i] = scaled ? __fadd_rn(offset, __fmul_rn(scale, v)) : v; /* not one rounding, as of a fused addition: the CPU has two */
    }
}

/* Computes: a part of a row to its pages, or from those of the position before; zeros before the first, in `clear` too, if there is one.
 * Grid: (rows, parts), one warp each. Twin: llm__run_state. */
static __global__ void __launch_bounds__(32)
    kernel_state(step_view s, kv_view v, int recall, int out, float *x, int64_t stride, float *clear, int64_t clear_stride) {
    grid_wait();
    int row = (int)blockIdx.x, h = (int)blockIdx.y, n = v.place.v_head_dim;
    if (row >= s.head[out ? HEAD_OUT : HEAD_ROWS]) return;
    int at = out ? s.out_rows[row] : row, position = row_position(s, at) - recall;
    const int32_t *pages = s.pages + (int64_t)s.seq_of_row[at] * s.head[HEAD_STRIDE];
    x += row * stride + h * n;
    if (position < 0) {
        for (int i = threadIdx.x; i < n; i += 32) {
            x[i] = 0;
            if (clear) clear[row * clear_stride + h * n + i] = 0;
        }
        return;
    }
    float *scale;
    uint8_t *value = kv_value(v, pages, position, h, &scale);
    float by = v.scaled ? scale[0] : 1, offset = v.scaled ? scale[v.page_tokens] : 0;
    if (!recall) warp_encode(v.type, x, n, value, scale, scale + v.page_tokens);
    else with_constant<LLM_KV_F32, LLM_KV_INT4>(v.type, [&](auto t) { warp_decode<t.value>(value, n, v.scaled, by, offset, x); });
}

/* A warp turns the first 2 * half values of x by the row's cosines and sines. Twin: llm__body_rotate. */
static __device__ void warp_rotate(float *x, const float *rope, int half, int pairs) {
    __syncwarp();
    for (int i = threadIdx.x & 31; i < half; i += 32) {
        int a = pairs ? 2 * i : i, b = pairs ? 2 * i + 1 : i + half;
        float u = x[a], w = x[b], c = rope[i], s = rope[half + i];
        x[a] = __fmaf_rn(u, c, -__fmul_rn(w, s));
        x[b] = __fmaf_rn(w, c, __fmul_rn(u, s));
    }
    __syncwarp();
}

/* Pages of one byte an element and less keep keys and values turned by a Hadamard matrix, which spreads a head's few large values over all
 * of it; queries are turned alike, and results back. `size`: the largest power of two that divides n. Twins: llm__kv_turn_size,
 * llm__kv_turn.
 *
 * Of four values, in two rounds of sums and differences of what stands h apart, then times 1 / sqrt(4):
 *
 *     8 0 0 0    h = 1:  8 8 0 0    h = 2:  8 8 8 8    turned:  4 4 4 4
 *
 * A 4-bit scale over the first has steps of 8 / 15; over the turned ones of 0. Turning twice gives back what was there, and the products of
 * turned vectors are those of the vectors themselves, so attention notices nothing. */
static __host__ __device__ __forceinline__ int kv_turn_size(int n) { return n & -n; }

/* A warp turns n values in place: a lane has every 32nd pair of a round. */
static __device__ void warp_turn(float *x, int n, int size) {
    const float scale = 1 / sqrtf((float)size);
    for (int h = 1; h < size; h *= 2) {
        __syncwarp();
        for (int i = threadIdx.x & 31; i < n / 2; i += 32) {
            int at = 2 * (i & -h) + (i & (h - 1)); /* blocks of 2 h: from the first half to the second */
            float a = x[at], b = x[at + h];
            x[at] = a + b;
            x[at + h] = a - b;
        }
    }
    __syncwarp();
    for (int i = threadIdx.x & 31; i < n; i += 32) x[i] *= scale;
    __syncwarp();
}

/* Whether a launch has the rows of a sequence. */
static __device__ __forceinline__ int part_wanted(const step_view &s, int not_single, int seq) {
    return !not_single || s.seq_begin[seq + 1] - s.seq_begin[seq] > 1;
}

/* Computes: x (rows, heads, n) turned in place: results of attention, and queries of latents. Grid: (rows, heads), one warp each. `first`:
 * row of the step that x begins with. Twin: llm__kv_turn. */
static __global__ void __launch_bounds__(32)
    kernel_turn(step_view s, float *x, int64_t stride, int n, int size, int first, int not_single) {
    grid_wait();
    int row = first + (int)blockIdx.x;
    if (row < s.head[HEAD_ROWS] && part_wanted(s, not_single, s.seq_of_row[row]))
        warp_turn(x + (int)blockIdx.x * stride + (int)blockIdx.y * n, n, size);
}

static void run_turn(rank *r, float *x, int64_t stride, int rows, int heads, int n, int size, int first, int not_single) {
    launch<kernel_turn>(r, dim3((unsigned)rows, (unsigned)heads), 32, 0, r->view, x, stride, n, size, first, not_single);
}

/* An operation, and what its buffers and weights are on the device. */
typedef struct qkv_args {
    llm_qkv_op op;
    float *x;
    const float *rope, *q_norm, *k_norm;
    int64_t stride, rope_stride;
} qkv_args;

/* A warp: norm and rotation of one head; `column` counts from the first weight. What rounds is told, as two kernels must come to the same
 * bits. Twin: llm__finish_head. */
static __device__ __forceinline__ void warp_finish_head(const llm_qkv_op &op, float *x, const float *w, int column, float whole,
                                                        const float *rope) {
    int lane = threadIdx.x & 31, n = op.head_dim;
    float mean = 0, factor = whole, sum = 0;
    if (op.norm == LLM_QK_NORM_HEAD_LAYER) {
        for (int i = lane; i < n; i += 32) sum += x[i];
        mean = warp_sum(sum) / (float)n;
    }
    if (op.norm == LLM_QK_NORM_HEAD_RMS || op.norm == LLM_QK_NORM_HEAD_LAYER) {
        sum = 0;
        for (int i = lane; i < n; i += 32) sum = __fmaf_rn(x[i] - mean, x[i] - mean, sum);
        factor = 1 / sqrtf(warp_sum(sum) / (float)n + op.eps);
        if (op.norm == LLM_QK_NORM_HEAD_RMS) column = 0;
    }
    for (int i = lane; i < n && op.norm && op.norm != LLM_QK_NORM_HEAD_RMS_LAST; i += 32)
        x[i] = (x[i] - mean) * factor * (w ? w[column + i] : 1);
    if (rope) warp_rotate(x, rope, op.rope_dim / 2, op.rope_interleaved);
    if (op.norm != LLM_QK_NORM_HEAD_RMS_LAST) return;
    for (int i = lane; i < n; i += 32) sum = __fmaf_rn(x[i], x[i], sum);
    factor = 1 / sqrtf(warp_sum(sum) / (float)n + op.eps);
    for (int i = lane; i < n; i += 32) x[i] *= factor * (w ? w[i] : 1);
}

/* A warp: query h of a row in place, as attention multiplies it. `whole`: the factor of heads that are normed as one. */
static __device__ __forceinline__ void warp_finish_query(const step_view &s, const kv_view &kv, const qkv_args &a, int row, int h,
                                                         float whole, float *q) {
    const int n = a.op.head_dim, place = s.positions[row], from = a.op.logn_from;
    warp_finish_head(a.op, q, a.q_norm, h * n + (a.op.norm == LLM_QK_NORM_WHOLE_RMS ? a.op.q_col - a.op.whole_q_col : 0), whole,
                     a.rope ? a.rope + row * a.rope_stride : NULL);
    float stretch = from <= 0 || place + 1 <= from ? 1
                    : a.op.logn_beta > 0           ? (float)(1 + (double)a.op.logn_beta * log1p((double)(place / from)))
                                                   : (float)(log((double)place + 1) / log((double)from));
    for (int i = threadIdx.x & 31; i < n && stretch != 1; i += 32) q[i] *= stretch;
    if (kv.scaled) warp_turn(q, n, kv_turn_size(n));
}

/* A warp: key and value g of a row, in place, and to its page. */
static __device__ __forceinline__ void warp_finish_key(const step_view &s, const kv_view &kv, const qkv_args &a, int row, int g,
                                                       float whole, float *k, float *v) {
    const int n = a.op.head_dim, vd = a.op.v_head_dim;
    warp_finish_head(a.op, k, a.k_norm, g * n + (a.op.norm == LLM_QK_NORM_WHOLE_RMS ? a.op.k_col - a.op.whole_k_col : 0), whole,
                     a.rope ? a.rope + row * a.rope_stride : NULL);
    __syncwarp();
    if (kv.scaled) warp_turn(k, n, kv_turn_size(n)), warp_turn(v, vd, kv_turn_size(vd));
    warp_write_token(kv, s.pages + (int64_t)s.seq_of_row[row] * s.head[HEAD_STRIDE], row_position(s, row), g, k, v);
}

/* The factor that brings n values of a row to unit mean square, for all threads of the block: of heads that are normed as one, and of
 * latents. Twin: llm__whole_rms. */
static __device__ float block_rms(const float *x, int n, float eps, float *scratch) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i] * x[i];
    return 1 / sqrtf(block_sum(sum, scratch) / (float)n + eps);
}

/* Computes: q (T, heads, hd) and k (T, KV heads, hd) of every head normalised and turned in place, k and v written to the row's page. Grid:
 * one block a row, a warp takes heads in turn: a head never leaves its warp, so that no barrier is needed but for norms over all heads. Of
 * steps with single rows only it is not needed, see list_fuse_heads. Twin: llm__qkv_heads. */
static __global__ void __launch_bounds__(128, 6) kernel_qkv(step_view s, kv_view kv, qkv_args a) {
    grid_wait();
    SMEM(float, scratch, 32);
    const llm_qkv_op &op = a.op;
    int row = (int)blockIdx.x;
    if (row >= s.head[HEAD_ROWS]) return;
    float *x = a.x + row * a.stride, rq = 1, rk = 1;
    if (op.norm == LLM_QK_NORM_WHOLE_RMS) {
        rq = block_rms(x + op.whole_q_col, op.whole_q, op.eps, scratch);
        rk = block_rms(x + op.whole_k_col, op.whole_k, op.eps, scratch);
    }
    for (int h = threadIdx.x >> 5; h < op.n_heads + op.n_kv_heads; h += 4) {
        int g = h - op.n_heads;
        if (g < 0) warp_finish_query(s, kv, a, row, h, rq, x + op.q_col + h * op.head_dim);
        else warp_finish_key(s, kv, a, row, g, rk, x + op.k_col + g * op.head_dim, x + op.v_col + g * op.v_head_dim);
    }
}

/* The pages of one layer. */
static kv_view kv_of(const rank *r, int layer) {
    const llm_backend_ctx *ctx = r->ctx;
    int bytes = ctx->kv_type == LLM_KV_F32 ? 4 : ctx->kv_type <= LLM_KV_BF16 ? 2 : 1;
    kv_view v = {r->kv, ctx->places[layer], ctx->page_bytes, ctx->page_tokens, ctx->kv_type, bytes == 1, bytes};
    return v;
}

static void run_state(rank *r, const llm_state_op *op) {
    kv_view kv = kv_of(r, op->layer);
    launch<kernel_state>(r, dim3((unsigned)padded_rows(r, op->rows), (unsigned)kv.place.n_kv_heads), 32, 0, r->view, kv, op->recall,
                         op->rows == LLM_ROWS_OUT, op->buf->data, op->buf->stride, op->clear ? op->clear->data : (float *)NULL,
                         op->clear ? op->clear->stride : 0);
}

static qkv_args qkv_of(const llm_qkv_op *op) {
    qkv_args a = {*op,
                  op->qkv->data,
                  op->rope ? op->rope->data : NULL,
                  op->q_norm ? op->q_norm->f32 : NULL,
                  op->k_norm ? op->k_norm->f32 : NULL,
                  op->qkv->stride,
                  op->rope ? op->rope->stride : 0};
    return a;
}

/* Every run_ function does the same: the operation's buffers become pointers, its counts those of the padded shape. */
static void run_qkv(rank *r, const llm_qkv_op *op) {
    launch<kernel_qkv>(r, dim3((unsigned)r->ctx->padded.n_rows), 128, 0, r->view, kv_of(r, op->layer), qkv_of(op));
}

/* Of one launch. Latent attention brings its own queries and has no values: its keys are the values, too. */
typedef struct attention_args {
    const float *q, *sinks, *alibi;
    float *out, *partial;
    int64_t q_stride, out_stride;
    int32_t q_col, n_heads, group, heads, head_tiles; /* heads: of a tile */
    int32_t rows, first_row, n_rows;                  /* rows of a tile; of this launch */
    int32_t hd, vd, window, not_causal, spans, latent, n_splits;
    int32_t not_single;        /* only sequences with several rows */
    unsigned *arrived, *drawn; /* (max_seqs, MAX_TILES) and (MAX_TILES), all 0 */
    float scale, softcap;
    int32_t fresh; /* of single rows: queries, keys and values are as the product left them, and what qkv says is still to be done */
    qkv_args qkv;
} attention_args;

/* One sequence's part [qa, qb) of a tile's queries, and the positions that any of them sees. */
typedef struct attend_part {
    int qa, qb, from, to;
} attend_part;

/* The positions [*from, *to) that a row sees of `len`. Twin: llm__attend_query. */
static __device__ __forceinline__ void row_sees(const step_view &s, const attention_args &a, int row, int at, int len, int *from, int *to) {
    *from = a.window ? max(0, at + 1 - a.window) : 0;
    *to = a.not_causal ? (a.window ? min(len, at + a.window) : len) : at + 1;
    if (!a.spans || !(s.head[HEAD_HAS] & HAS_SPANS)) return;
    *from = max(*from, s.spans[row]);
    *to = s.spans[s.head[HEAD_ROWS] + row];
}

/* Rows [row, end) of a tile are of one sequence; n_heads: queries of a row. */
static __device__ __forceinline__ attend_part part_of(const step_view &s, const attention_args &a, int seq, int row0, int row, int end,
                                                      int n_heads) {
    attend_part p = {(row - row0) * n_heads, (end - row0) * n_heads, 0, 0};
    p.from = a.window ? max(0, row_position(s, row) + 1 - a.window) : 0;
    p.to = a.not_causal ? s.seq_len[seq] : row_position(s, end - 1) + 1;
    for (int i = row; i < end && a.spans && s.head[HEAD_HAS] & HAS_SPANS; i++) {
        p.from = i == row ? s.spans[i] : min(p.from, s.spans[i]);
        p.to = max(p.to, s.spans[s.head[HEAD_ROWS] + i]);
    }
    return p;
}

/* Loads keys [block, block + n) as f32 into shared memory (32, stride): a warp takes every fourth key. */
template <int T>
static __device__ void load_keys(const kv_view &kv, const int32_t *pages, int head, int block, int from, int to, float *keys, int stride) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n = kv.place.head_dim, half = (n + 1) / 2;
    for (int j = from + warp; j < to; j += 4) {
        const uint8_t *at = kv_part(kv, pages, block + j, head);
        int t = (block + j) % kv.page_tokens;
        const float *scales = (const float *)(at + kv.place.scale_offset);
        float scale = kv.scaled ? scales[t] : 1, offset = kv.scaled ? scales[kv.page_tokens + t] : 0;
        at += (int64_t)t * kv.place.k_elements * kv.element_bytes;
        for (int d = lane; d < n; d += 32) keys[j * stride + d] = offset + scale * kv_element<T>(at, d, half);
    }
}

/* Scores of one query with the block's 32 keys, one a lane, and the step of the online softmax: weights to p, the factor for what was
 * summed up so far is returned. m, l: the query's running maximum and sum. Twin: llm__body_soften. */
static __device__ float soften(const attention_args &a, const float *q, const float *keys, int stride, int block, int at, int from, int to,
                               float slope, float *m, float *l, float *p) {
    int lane = threadIdx.x & 31, position = block + lane;
    float s = 0;
    int seen = position >= from && position < to;
    if (seen)
        for (int d = 0; d < a.hd; d++) s += q[d] * keys[lane * stride + d];
    s *= a.scale;
    if (a.softcap > 0) s = a.softcap * tanhf(s / a.softcap);
    s = (s + slope * (float)(position - at)) * 1.44269504f;
    float top = fmaxf(*m, warp_max(seen ? s : -1e30f)), c = exp2f(*m - top), w = seen ? exp2f(s - top) : 0;
    *l = *l * c + warp_sum(w);
    *m = top;
    p[lane] = w;
    return c;
}

/* Computes: out (rows, heads * vd) = softmax(q k^T * scale) v over the pages. Grid: (tiles of rows, KV heads x tiles of heads, splits), 4
 * warps; query i = row i / heads, head i % heads of the tile; warp w has queries w, w + 4, ...; a thread has values d, d + 128, ... of all
 * queries. Reads: each key and value of the sequence once a tile. Queries that are not of the sequence at hand sit its blocks out.
 * Twin: llm__run_attention. */
template <int T, int ND>
static __global__ void __launch_bounds__(128, ND == 1 ? 3 : 2) kernel_attention(step_view s, kv_view kv, attention_args a) {
    grid_wait();
    DYN_SMEM(float, memory);
    const int stride = a.hd | 1;
    float *q = memory, *keys = q + a.rows * a.heads * a.hd, *p = keys + KEYS * stride, *factor = p + QUERIES * KEYS, acc[QUERIES][ND] = {},
          m[4], l[4];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, kv_head = (int)blockIdx.y / a.head_tiles,
        first_head = (int)blockIdx.y % a.head_tiles * a.heads;
    int row0 = a.first_row + (int)blockIdx.x * a.rows, last_row = a.first_row + a.n_rows, split = (int)blockIdx.z;
    if (last_row > s.head[HEAD_ROWS]) last_row = s.head[HEAD_ROWS];
    int n_rows = last_row - row0 < a.rows ? last_row - row0 : a.rows,
        n_heads = a.group - first_head < a.heads ? a.group - first_head : a.heads;
    if (n_rows <= 0) return;
    first_head += kv_head * a.group;
    int n = n_rows * n_heads;
    for (int i = threadIdx.x; i < n * a.hd; i += 128) {
        int k = i / a.hd, row = row0 + k / n_heads, head = first_head + k % n_heads;
        q[i] = a.q[(row - (a.latent ? a.first_row : 0)) * a.q_stride + a.q_col + head * a.hd + i % a.hd];
    }
    for (int i = 0; i < 4; i++) {
        int k = warp + 4 * i, sink = a.sinks && k < n && split == 0;
        m[i] = sink ? a.sinks[first_head + k % n_heads] * 1.44269504f : -1e30f;
        l[i] = sink ? 1 : 0;
    }
    for (int row = row0; row < row0 + n_rows;) { /* the tile's sequences */
        int seq = s.seq_of_row[row], end = s.seq_begin[seq + 1] < row0 + n_rows ? s.seq_begin[seq + 1] : row0 + n_rows;
        const int32_t *pages = s.pages + (int64_t)seq * s.head[HEAD_STRIDE];
        attend_part part = part_of(s, a, seq, row0, row, end, n_heads);
        int first = part.from / KEYS, blocks = (part.to + KEYS - 1) / KEYS - first, each = (blocks + a.n_splits - 1) / a.n_splits;
        int b0 = first + split * each, b1 = b0 + each < first + blocks ? b0 + each : first + blocks;
        for (int b = b0; b < b1; b++) {
            int block = b * KEYS, lo = max(0, part.from - block), hi = min(KEYS, part.to - block);
            __syncthreads();
            load_keys<T>(kv, pages, kv_head, block, lo, hi, keys, stride);
            __syncthreads();
            for (int i = 0; i < 4; i++) {
                int k = warp + 4 * i, mine = row0 + k / n_heads, head = first_head + k % n_heads;
                if (k < part.qa || k >= part.qb) continue;
                int at = row_position(s, mine), from, to;
                row_sees(s, a, mine, at, s.seq_len[seq], &from, &to);
                float c =
                    soften(a, q + k * a.hd, keys, stride, block, at, from, to, a.alibi ? a.alibi[head] : 0, &m[i], &l[i], p + k * KEYS);
                if (lane == 0) factor[k] = c;
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < QUERIES; k++)
#pragma unroll
                for (int d = 0; d < ND; d++)
                    if (k >= part.qa && k < part.qb) acc[k][d] *= factor[k];
#pragma unroll 2
            for (int j = lo; j < hi; j++) {
                const uint8_t *at = kv_part(kv, pages, block + j, kv_head);
                int t = (block + j) % kv.page_tokens;
                const float *scales = (const float *)(at + kv.place.scale_offset);
                float scale = kv.scaled && !a.latent ? scales[2 * kv.page_tokens + t] : 1,
                      offset = kv.scaled && !a.latent ? scales[3 * kv.page_tokens + t] : 0;
                at += kv.place.v_offset + (int64_t)t * kv.place.v_elements * kv.element_bytes;
#pragma unroll
                for (int d = 0; d < ND; d++) {
                    int x = threadIdx.x + 128 * d;
                    if (x >= a.vd) continue;
                    float v = a.latent ? keys[j * stride + x] : offset + scale * kv_element<T>(at, x, (a.vd + 1) / 2);
#pragma unroll
                    for (int k = 0; k < QUERIES; k++)
                        if (k >= part.qa && k < part.qb) acc[k][d] += p[k * KEYS + j] * v;
                }
            }
        }
        row = end;
    }
    __syncthreads();
    for (int i = 0; i < 4; i++)
        if (lane == 0 && warp + 4 * i < n) p[warp + 4 * i] = m[i], factor[warp + 4 * i] = l[i];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < QUERIES; k++) {
        if (k >= n) break;
        int64_t row = row0 + k / n_heads, head = first_head + k % n_heads;
        float *to = a.out + (row - (a.latent ? a.first_row : 0)) * a.out_stride + head * a.vd, by = factor[k] > 0 ? 1 / factor[k] : 0;
        if (a.n_splits > 1) to = a.partial + (((row - a.first_row) * a.n_heads + head) * a.n_splits + split) * (a.vd + 2), by = 1;
#pragma unroll
        for (int d = 0; d < ND; d++)
            if ((int)threadIdx.x + 128 * d < a.vd) to[threadIdx.x + 128 * d] = acc[k][d] * by;
        if (a.n_splits > 1 && threadIdx.x == 0) to[a.vd] = p[k], to[a.vd + 1] = factor[k];
    }
}

/* Computes: out (rows, heads, vd) = the splits' partial results (vd values, maximum, sum) added up in order, each times exp2(its maximum -
 * the largest). Grid: (rows, heads), a thread values d, d + 128, ... Twin: llm__run_attention, which does not split. */
static __global__ void __launch_bounds__(128) kernel_attention_join(step_view s, attention_args a) {
    grid_wait();
    int row = a.first_row + (int)blockIdx.x, head = (int)blockIdx.y;
    if (row >= s.head[HEAD_ROWS]) return;
    const float *from = a.partial + ((int64_t)blockIdx.x * a.n_heads + head) * a.n_splits * (a.vd + 2);
    float top = -1e30f, sum = 0;
    for (int i = 0; i < a.n_splits; i++) top = fmaxf(top, from[i * (a.vd + 2) + a.vd]);
    for (int i = 0; i < a.n_splits; i++) sum += from[i * (a.vd + 2) + a.vd + 1] * exp2f(from[i * (a.vd + 2) + a.vd] - top);
    for (int d = threadIdx.x; d < a.vd; d += blockDim.x) {
        float v = 0;
        for (int i = 0; i < a.n_splits; i++) v += from[i * (a.vd + 2) + d] * exp2f(from[i * (a.vd + 2) + a.vd] - top);
        a.out[(row - (a.latent ? a.first_row : 0)) * a.out_stride + head * a.vd + d] = sum > 0 ? v / sum : 0;
    }
}

/* Shared memory of a block: queries of its tile, keys, weights, factors. 27 KiB at 16 heads of 128 values, 113 at 16 latents of 576, 95 at
 * 8 of them. */
static size_t attention_smem(int queries, int hd) {
    return sizeof(float) * (size_t)(queries * hd + KEYS * (hd | 1) + QUERIES * KEYS + QUERIES);
}
