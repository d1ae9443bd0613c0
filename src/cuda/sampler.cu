/* sampler: the next token, chosen where the logits are.
 *
 * Says what llm_sample says: the same random number, the same weights (the polynomial of llm__exp_neg, operation by operation), candidates
 * cut by min-p, top-k and top-p, drawn in order of id. No row is sorted: the k-th value and the end of top-p come from a radix select over
 * the bits of the weights, whose histograms are integers (a weight times 2^45), so that they do not depend on the order in which threads
 * add. Sums go in another order than on the host, which can differ in the last of 53 bits, of cut rows in the last of 45; a draw changes
 * when its random number falls into that gap. Log-probabilities are those of the host but for a rounding of the weights' f32. */

/* A row is cut into parts of at most 8,192 tokens, by the vocabulary alone, so that a row has the same bits in any batch. A block copies
 * its part into shared memory, bends it, and notes its maximum, the first place of it, and sums of weights by its own maximum, which are
 * brought to the row's by kernel_draw, a block a row: with that greedy rows are done.
 *
 * top-k up to 128 needs no second pass: two threads' values are a group, and if 40 groups have a maximum of 3.2 or more, then 40 tokens
 * have: what is less than 3.2 is not among the 40 first. Of 8,192 values some 45 are left, which the block writes down; some 800 of 19
 * parts meet in kernel_draw's shared memory. It finds the k-th there, the end of top-p, sorts by id the few that stay, and draws.
 *
 * All else reads the row once more: temperature alone sums weights and then walks; of top-p and min-p alone what is too small is left out,
 * as on the host, and if at most 3,072 are left they go the way above. Only flat rows, and a large k, are selected from memory.
 *
 * Radix select, for instance the 40th largest of 152,000 weights: as positive floats order as their bits do, the first pass counts them by
 * their upper 11 bits, and a scan from the largest bin down says where 40 are passed: in bin 507, say, whose larger ones are 12. The
 * second pass counts those of bin 507 by the next 11 bits, and looks for the 28th, the third by the last 10: then all bits are known. For
 * top-p the bins have sums of weights instead of counts.
 *
 * The draw itself is one walk over ids, as on the host: a warp has a range of them and its sum, the ranges' sums say in which one u times
 * the whole falls, and that one is cut into ranges again. */

/* What bends a row (block_bend) comes in with the step: a bit a token of a grammar's mask, and a list of changes, (id, bias) or (id, how
 * often the answer has it). Of a sequence that runs one step ahead the host does not know the latest token when it writes the list; but
 * that token is the row's own input, which the device knows: so its count is one more than the list says.
 *
 *     step    host knows        list for the draw of this step        the row's token
 *     7       a b a             a: 2, b: 1                            a, known
 *     8       a b a             a: 2, b: 1                            drawn in step 7, say b: counts as b: 2
 *
 * Masks cannot be made ahead: a sequence with a grammar waits for each of its tokens, and is drawn here if its mask is made already. Else
 * the host makes it while the device computes, and draws by itself from the row, which is copied to it then. */

static constexpr int DRAW_THREADS = 512, DRAW_WARPS = DRAW_THREADS / 32, DRAW_PART = 8192, DRAW_BINS = 2048;
static constexpr int DRAW_TOP = 128, DRAW_KEPT = 256, DRAW_FEW = 3072,
                     DRAW_SORTED = 512;      /* largest k of one pass; of a part; of a row; of its end */
static const double MASS = 35184372088832.0; /* 2^45: 2^18 weights of 1 stay below 2^64 */

/* What a part says of itself: sums of exp(x - max) of raw logits, and of exp((x - max) * scale) of bent ones; candidates, -1: too many of
 * them; in the row there are k values of `least` or more. */
typedef struct draw_part {
    double raw_sum, sum;
    float raw_max, max, least;
    int32_t bad, first, n;
    float kept[DRAW_KEPT];
    int32_t id[DRAW_KEPT];
} draw_part;

/* What a block that draws shares: its part, later candidates and a histogram of sums in two halves, or candidates that stay. */
typedef struct draw_shared {
    union {
        float part[DRAW_PART];
        struct {
            float w[DRAW_FEW];
            int32_t id[DRAW_FEW];
            uint32_t low[DRAW_BINS], high[DRAW_BINS];
        };
    };
    union {
        float group[DRAW_THREADS / 2];
        unsigned long long scan[DRAW_WARPS];
    };
    unsigned long long all[DRAW_WARPS], above;
    double log_sum, sum; /* of the row, for the end, as is the weight of what was drawn */
    float weight;
    int32_t equal[DRAW_WARPS], found, n;
    uint32_t prefix;
} draw_shared;

typedef struct draw_args {
    const float *logits; /* (out, n) */
    float *weights;      /* (out, n) scratch: bent rows, then weights, of rows that are read twice */
    draw_part *parts;    /* (out, n_parts) */
    llm_drawn *drawn;    /* (out, 2) */
    int32_t n, n_parts;
} draw_args;

static int draw_parts(int64_t vocab) { return ceil_div(vocab, DRAW_PART); }

/* SplitMix64's finaliser (Steele et al. 2014). */
static __device__ uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* A number in [0, 1) of a request's seed and a token's position: no state, so a draw is the same in any batch. Twin: llm__uniform. */
static __device__ double uniform(uint64_t seed, uint64_t position) {
    uint64_t key = mix(seed + 0x9E3779B97F4A7C15u);
    return (double)(mix(key ^ mix(position * 0xD1342543DE82EF95u + 0x632BE59BD9B4E019u)) >> 11) * (1.0 / 9007199254740992.0);
}

/* Twin: llm__exp_neg, with the same roundings: no product is fused with a sum. */
static __device__ __forceinline__ float exp_neg(float x) {
    float c = x < -87.0f ? -87.0f : x;
    int n = (int)__fsub_rn(__fmul_rn(c, 1.44269504f), 0.5f);
    float k = (float)n, r = __fadd_rn(__fsub_rn(c, __fmul_rn(k, 0.693359375f)), __fmul_rn(k, 2.12194440e-4f));
    float p = __fadd_rn(__fmul_rn(1.9875691500e-4f, r), 1.3981999507e-3f);
    p = __fadd_rn(__fmul_rn(p, r), 8.3334519073e-3f);
    p = __fadd_rn(__fmul_rn(p, r), 4.1665795894e-2f);
    p = __fadd_rn(__fmul_rn(p, r), 1.6666665459e-1f);
    p = __fadd_rn(__fmul_rn(p, r), 5.0000001201e-1f);
    p = __fmul_rn(__fadd_rn(__fadd_rn(__fmul_rn(__fmul_rn(p, r), r), r), 1.0f), __uint_as_float((uint32_t)(n + 127) << 23));
    return x < -87.0f ? 0 : p;
}

/* Twin: weigh of llm__kernels. */
static __device__ __forceinline__ float weight_of(float x, float max, float scale) { return exp_neg(__fmul_rn(__fsub_rn(x, max), scale)); }

/* The sum over all threads of a block in a fixed order, for all of them. */
template <class T> static __device__ T draw_sum(T v, draw_shared *s) {
    T *all = (T *)s->all;
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) all[threadIdx.x >> 5] = v;
    __syncthreads();
    v = all[threadIdx.x % DRAW_WARPS];
    for (int o = DRAW_WARPS / 2; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

static __device__ float draw_max(float v, draw_shared *s) {
    float *all = (float *)s->all;
    v = warp_max(v);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) all[threadIdx.x >> 5] = v;
    __syncthreads();
    return warp_max(all[threadIdx.x % DRAW_WARPS]);
}

/* Values i to i + 3 of n, `none` where there is no more. whole: n is a multiple of 4, as i is, and w is aligned. */
static __device__ __forceinline__ float4 four_of(const float *w, int i, int n, int whole, float none) {
    if (whole) return i < n ? *(const float4 *)(w + i) : make_float4(none, none, none, none);
    return make_float4(i < n ? w[i] : none, i + 1 < n ? w[i + 1] : none, i + 2 < n ? w[i + 2] : none, i + 3 < n ? w[i + 3] : none);
}

static __device__ __forceinline__ unsigned long long mass_of(float w) { return (unsigned long long)((double)w * MASS); }

/* The sum of the weights of at least `least`. Whole numbers: the order does not matter. A block. */
static __device__ double block_mass(const float *w, int n, int whole, float least, draw_shared *s) {
    unsigned long long sum = 0;
    for (int i = 4 * (int)threadIdx.x; i < n; i += 4 * DRAW_THREADS) {
        const float4 f = four_of(w, i, n, whole, -1);
        const float v[4] = {f.x, f.y, f.z, f.w};
        for (int k = 0; k < 4; k++) sum += v[k] >= least ? mass_of(v[k]) : 0;
    }
    return (double)draw_sum(sum, s) / MASS;
}

/* Finds the bin, from the largest down, in which `sum` and the bins' cross `target`: s->prefix gets its bits behind those that are there,
 * s->above the sum of what is larger. If none does it is bin 0. A thread has four bins. */
static __device__ void block_cross(int width, unsigned long long sum, double unit, double target, uint32_t prefix, draw_shared *s) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, top = (1 << width) - 1 - 4 * (int)threadIdx.x;
    unsigned long long mine[4], total = 0;
    for (int k = 0; k < 4; k++) {
        mine[k] = top - k >= 0 ? (unsigned long long)s->high[top - k] << 32 | s->low[top - k] : 0;
        total += mine[k];
    }
    unsigned long long before = total;
    for (int o = 1; o < 32; o <<= 1) {
        const unsigned long long other = __shfl_up_sync(~0u, before, o);
        before += lane >= o ? other : 0;
    }
    if (lane == 31) s->scan[warp] = before;
    if (top == 3) s->prefix = prefix << width; /* the thread of bin 0 */
    __syncthreads();
    before += sum - total;
    for (int k = 0; k < warp; k++) before += s->scan[k];
    if (top == 3) s->above = before + total - mine[3];
    __syncthreads();
    for (int k = 0; k < 4 && top - k > 0; k++) {
        if ((double)before * unit < target && (double)(before + mine[k]) * unit >= target) {
            s->prefix = prefix << width | (uint32_t)(top - k);
            s->above = before;
        }
        before += mine[k];
    }
    __syncthreads();
}

/* The value at which a descending sum of weights (by_mass) or of ones reaches `target`, among those of at least `least`; *above: the sum of
 * what is larger. Three histograms of 11, 11 and 10 bits. A block. Twin: llm__select. */
static __device__ float block_select(const float *w, int n, int whole, float least, int by_mass, double target, draw_shared *s,
                                     double *above) {
    uint32_t prefix = 0;
    const double unit = by_mass ? 1 / MASS : 1;
    unsigned long long sum = 0;
    for (int level = 0; level < 3; level++) {
        const int low = level == 0 ? 21 : level == 1 ? 10 : 0, width = level == 2 ? 10 : 11;
        for (int i = threadIdx.x; i < DRAW_BINS; i += DRAW_THREADS) s->low[i] = s->high[i] = 0;
        __syncthreads();
        for (int i = 4 * (int)threadIdx.x; i < n; i += 4 * DRAW_THREADS) {
            const float4 f = four_of(w, i, n, whole, -1);
            const float v[4] = {f.x, f.y, f.z, f.w};
            for (int k = 0; k < 4; k++) {
                const uint32_t bits = __float_as_uint(v[k]), bin = bits >> low & ((1u << width) - 1);
                if (v[k] < least || (level && bits >> (low + width) != prefix)) continue;
                const unsigned long long m = by_mass ? mass_of(v[k]) : 1;
                const uint32_t carry = atomicAdd(&s->low[bin], (uint32_t)m) > ~(uint32_t)m, high = (uint32_t)(m >> 32) + carry;
                if (high) atomicAdd(&s->high[bin], high);
            }
        }
        __syncthreads();
        block_cross(width, sum, unit, target, prefix, s);
        prefix = s->prefix;
        sum = s->above;
        __syncthreads();
    }
    *above = (double)sum * unit;
    return __uint_as_float(prefix);
}

/* Draws among the weights above `least` and the first `ties` equal to it. Each warp sums a range of ids and counts equals in it; the range
 * into which u falls is cut again, until few are left. Where rounding carries it past the end: the last with any weight. A block. Twin:
 * llm__draw. */
static __device__ int block_draw(const float *w, int n, int whole, float least, double ties, double u, draw_shared *s) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    double *sums = (double *)s->all, sum = 0, goal = 0;
    int from = 0, to = n, found = 0;
    for (int level = 0; level == 0 || to - from > 64; level++) {
        const int each = (ceil_div(to - from, DRAW_WARPS) + 3) & ~3, begin = min(to, from + warp * each), end = min(to, begin + each);
        double more = 0;
        int equal = 0;
#pragma unroll 4
        for (int i = begin + 4 * lane; i < end; i += 128) {
            const float4 f = four_of(w, i, end, whole, -1);
            const float v[4] = {f.x, f.y, f.z, f.w};
            for (int k = 0; k < 4; k++) {
                more += v[k] > least ? (double)v[k] : 0;
                equal += v[k] == least;
            }
        }
        for (int o = 16; o; o >>= 1) more += __shfl_xor_sync(~0u, more, o), equal += __shfl_xor_sync(~0u, equal, o);
        __syncthreads();
        if (lane == 0) sums[warp] = more, s->equal[warp] = equal;
        __syncthreads();
        double at = sum, left = ties, total = 0, rest = ties;
        int chosen = 0;
        for (int k = 0; k < DRAW_WARPS && level == 0; k++) {
            total += sums[k] + fmin((double)s->equal[k], fmax(0.0, rest)) * (double)least;
            rest -= s->equal[k];
        }
        if (level == 0) goal = u * total;
        for (int k = 0; k < DRAW_WARPS; k++) {
            const double part = sums[k] + fmin((double)s->equal[k], fmax(0.0, left)) * (double)least;
            if (part > 0) {
                chosen = k, sum = at, ties = left;
                if (at + part > goal) break;
            }
            at += part;
            left -= s->equal[k];
        }
        from = from + chosen * each;
        to = min(to, from + each);
    }
    for (int i = found = from; i < to; i++) {
        if (w[i] < least || (w[i] == least && ties < 1)) continue;
        ties -= w[i] == least;
        if (w[i] > 0) found = i;
        sum += (double)w[i];
        if (sum > goal) break;
    }
    return found;
}

/* A draw among n weights of at least *least, of which there are `count` with `sum` in the row; those that are not here can matter only to
 * the sum. Cuts them by top-k and top-p: *least and *ties say what stays. Twin: the second half of llm__pick. */
static __device__ void block_cut(const float *w, int n, int whole, const draw &d, int count, double sum, float *least, double *ties,
                                 draw_shared *s) {
    double above;
    *ties = (double)n;
    if (d.top_k > 0 && d.top_k < count) *least = block_select(w, n, whole, *least, 0, d.top_k, s, &above); /* all ties of the k-th stay */
    if (d.top_p <= 0 || d.top_p >= 1) return;
    if (d.top_k > 0) sum = block_mass(w, n, whole, *least, s);
    const double target = (double)d.top_p * sum; /* a token stays if what is before it sums to less */
    *least = block_select(w, n, whole, *least, 1, target, s, &above);
    *ties = ceil(fmax(1.0, (target - above) / (double)*least));
}

/* The draw among the s->n candidates in s->w and s->id, whose order does not matter: what stays is sorted by id. -1: too many stay. */
static __device__ int few_draw(const draw &d, float least, double sum, draw_shared *s) {
    const int n = s->n, x = threadIdx.x;
    float *stays = (float *)s->low;
    int32_t *ids = (int32_t *)s->high;
    double ties;
    block_cut(s->w, n, 0, d, n, sum, &least, &ties, s);
    if (x == 0) s->found = 0;
    __syncthreads();
    for (int i = x; i < n; i += DRAW_THREADS) {
        if (s->w[i] < least) continue;
        const int at = atomicAdd(&s->found, 1);
        if (at < DRAW_SORTED) stays[at] = s->w[i], ids[at] = s->id[i];
    }
    __syncthreads();
    const int m = s->found;
    __syncthreads();
    if (m > DRAW_SORTED) return -1;
    for (int i = x, rank = 0; i < m; i += DRAW_THREADS, rank = 0) {
        for (int k = 0; k < m; k++) rank += ids[k] < ids[i];
        s->w[rank] = stays[i], s->id[rank] = ids[i];
    }
    __syncthreads();
    const int at = block_draw(s->w, m, 0, least, ties, uniform(d.seed, (uint64_t)d.position), s);
    if (x == 0) s->weight = s->w[at];
    return s->id[at];
}

/* min-p, top-k, top-p and the draw from the whole row x, bent already. Twin: llm__pick. */
static __device__ int block_pick(const float *x, float *w, int n, float max, float scale, const draw &d, draw_shared *s) {
    const int whole = !(n & 3), top_p = d.top_p > 0 && d.top_p<1, any = d.min_p> 0 || d.top_k > 0 || top_p;
    float least = !any ? 0 : d.min_p > 1e-30f ? d.min_p : 1e-30f;
    const float keep = top_p && d.top_k <= 0 ? fmaxf(least, (1 - d.top_p) / (float)n) : least; /* n of these are less than top-p cuts off */
    unsigned long long sum = 0;
    int count = 0, id = -1;
    if (threadIdx.x == 0) s->n = 0;
    __syncthreads();
    for (int i = 4 * (int)threadIdx.x; i < n; i += 16 * DRAW_THREADS) {
        float4 f[4];
#pragma unroll
        for (int k = 0; k < 4; k++) f[k] = four_of(x, i + 4 * k * DRAW_THREADS, n, whole, -INFINITY); /* in flight together: w may be x */
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int id = i + 4 * j * DRAW_THREADS;
            float v[4] = {f[j].x, f[j].y, f[j].z, f[j].w};
            int kept = 0;
            for (int k = 0; k < 4; k++) v[k] = id + k < n ? weight_of(v[k], max, scale) : -1;
            if (whole && id < n) *(float4 *)(w + id) = make_float4(v[0], v[1], v[2], v[3]);
            for (int k = 0; k < 4; k++) {
                if (!whole && id + k < n) w[id + k] = v[k];
                if (!any || v[k] < least) continue;
                count++;
                sum += mass_of(v[k]);
                kept += v[k] >= keep;
            }
            int at = kept ? atomicAdd(&s->n, kept) : 0;
            for (int k = 0; k < 4 && kept; k++)
                if (v[k] >= keep) {
                    if (at < DRAW_FEW) s->w[at] = v[k], s->id[at] = id + k;
                    at++;
                }
        }
    }
    double ties = (double)n;
    const double mass = (double)draw_sum(sum, s) / MASS;
    count = draw_sum(count, s);
    if (any && s->n <= DRAW_FEW) id = few_draw(d, least, mass, s);
    if (id >= 0) return id;
    __syncthreads();
    if (any) block_cut(w, n, whole, d, count, mass, &least, &ties, s);
    id = block_draw(w, n, whole, least, ties, uniform(d.seed, (uint64_t)d.position), s);
    if (threadIdx.x == 0) s->weight = w[id];
    return id;
}

/* Penalties of one token of which the answer has `count`. Twin: llm__penalise. */
static __device__ float penalise(const draw &d, float x, int count) {
    float v = x > 0 ? x / d.repetition : __fmul_rn(x, d.repetition);
    v = __fsub_rn(v, __fmul_rn(d.frequency, (float)count));
    return count > 0 ? __fsub_rn(v, d.presence) : v;
}

/* The rules of tokens begin ... end - 1 of a row of n, in x: what a mask forbids becomes -infinity, then biases, then penalties. `last`:
 * the row's own token if the device drew it, which the host's list cannot have yet, else -1. Ids of `used` differ, those of `bias` need
 * not: the first of equal ones adds all of them, in order. A block. Twin: llm__rules_apply. */
static __device__ void block_bend(const step_view &s, const draw &d, float *x, int begin, int end, int n, int last) {
    const uint32_t *mask = s.masks + (int64_t)max(d.mask, 0) * ((n + 31) / 32);
    const change *bias = s.changes + d.bias, *used = s.changes + d.used;
    int known = 0;
    for (int i = begin + (int)threadIdx.x; i < end && d.mask >= 0; i += DRAW_THREADS)
        if (!(mask[i >> 5] >> (i & 31) & 1)) x[i - begin] = -INFINITY;
    __syncthreads();
    for (int i = threadIdx.x; i < d.n_bias; i += DRAW_THREADS) {
        int id = bias[i].id, first = id >= begin && id < end;
        for (int k = 0; k < i && first; k++) first = bias[k].id != id;
        for (int k = i; k < d.n_bias && first; k++)
            if (bias[k].id == id) x[id - begin] = __fadd_rn(x[id - begin], fminf(100.0f, fmaxf(-100.0f, bias[k].bias)));
    }
    __syncthreads();
    if (!d.n_used) return;
    for (int i = threadIdx.x; i < d.n_used; i += DRAW_THREADS) {
        int id = used[i].id;
        known |= id == last;
        if (id >= begin && id < end) x[id - begin] = penalise(d, x[id - begin], used[i].count + (id == last));
    }
    known = __syncthreads_or(known);
    if (threadIdx.x == 0 && !known && last >= begin && last < end) x[last - begin] = penalise(d, x[last - begin], 1);
    __syncthreads();
}

/* A part's maximum, and with it the sum of exp((x - maximum) * scale): 0 where there is nothing finite. A block. */
static __device__ double part_weigh(const float *v, float scale, float *max, draw_shared *s) {
    float top = -INFINITY;
    double sum = 0;
#pragma unroll
    for (int k = 0; k < DRAW_PART / DRAW_THREADS; k++) top = v[k] > top ? v[k] : top;
    *max = top = draw_max(top, s);
    if (top < -3.4028234e38f || top > 3.4028234e38f) return 0;
#pragma unroll
    for (int k = 0; k < DRAW_PART / DRAW_THREADS; k++) sum += (double)weight_of(v[k], top, scale);
    return draw_sum(sum, s);
}

/* Notes the part's values that can be among the row's k largest, for k to DRAW_TOP. At least k groups have a maximum of `least` or more.
 * What is a little less may get the same weight by rounding: by its last bit of (x - max) * scale, which is at most 2^-17 where the weight
 * is not 0. A block. */
static __device__ void part_keep(const float *v, int begin, int k_most, float temperature, draw_part *out, draw_shared *s) {
    const int x = threadIdx.x, groups = DRAW_THREADS / 2;
    float top = -INFINITY;
    int as_large = 0;
#pragma unroll
    for (int k = 0; k < DRAW_PART / DRAW_THREADS; k++) top = fmaxf(top, v[k]);
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    if (!(x & 1)) s->group[x >> 1] = top;
    if (x == 0) s->n = 0;
    __syncthreads();
#pragma unroll 4
    for (int i = (x & 1) * 4; i < groups; i += 8) {
        const float4 f = *(const float4 *)(s->group + i);
        as_large += (f.x >= top) + (f.y >= top) + (f.z >= top) + (f.w >= top);
    }
    as_large += __shfl_xor_sync(~0u, as_large, 1);
    const float least = draw_max(as_large >= k_most ? top : -INFINITY, s), low = least - temperature * 3.0517578e-5f;
#pragma unroll
    for (int k = 0; k < DRAW_PART / DRAW_THREADS; k++)
        if (v[k] >= low && v[k] > -INFINITY) {
            const int at = atomicAdd(&s->n, 1);
            if (at < DRAW_KEPT) out->kept[at] = v[k], out->id[at] = begin + 4 * (x + k / 4 * DRAW_THREADS) + k % 4;
        }
    __syncthreads();
    if (x == 0) out->least = least, out->n = s->n <= DRAW_KEPT ? s->n : -1;
}

/* A thread's values of the part in shared memory, which ends with whole fours: four neighbours, and others 2,048 further. */
static __device__ __forceinline__ void part_values(const float *part, int n, float *v) {
#pragma unroll
    for (int k = 0; k < DRAW_PART / DRAW_THREADS; k += 4) {
        const float4 f = four_of(part, 4 * (int)threadIdx.x + k * DRAW_THREADS, n, 1, -INFINITY);
        v[k] = f.x, v[k + 1] = f.y, v[k + 2] = f.z, v[k + 3] = f.w;
    }
}

/* A block's part of a row, to *out; of bent rows that are not greedy the values to `bent`. */
static __device__ void draw_one_part(const step_view &s, const draw_args &a, const draw &d, int row, int begin, int end, draw_part *out,
                                     draw_shared *sh) {
    const int n = end - begin, x = threadIdx.x, bends = d.mask >= 0 || d.n_bias || d.n_used, greedy = d.temperature < 1e-5f;
    const float *from = a.logits + (int64_t)row * a.n + begin, scale = greedy ? 1 : 1 / d.temperature;
    float v[DRAW_PART / DRAW_THREADS], max, raw_max;
    int odd = 0, own = s.out_rows[row];
    if (a.n & 3)
        for (int i = x; i < n; i += DRAW_THREADS) copy_async_4(sh->part + i, from + i, 4);
    else
        for (int i = 4 * x; i < n; i += 4 * DRAW_THREADS) copy_async_16(sh->part + i, from + i, 16);
    if (x < (-n & 3)) sh->part[n + x] = -INFINITY;
    copy_async_end();
    copy_async_wait<0>();
    __syncthreads();
    part_values(sh->part, n, v);
#pragma unroll
    for (int k = 0; k < DRAW_PART / DRAW_THREADS; k++) odd |= !(v[k] <= 3.4028234e38f);
    odd = __syncthreads_or(odd);
    double raw_sum = odd ? 0 : part_weigh(v, 1, &raw_max, sh), sum = raw_sum;
    if (odd) raw_max = INFINITY;
    max = raw_max;
    if (bends && !odd) {
        block_bend(s, d, sh->part, begin, end, a.n, s.token_from[own] < 0 ? -1 : row_token(s, a.drawn, own));
        part_values(sh->part, n, v);
        odd = 0;
        for (int i = x; i < n && !greedy; i += DRAW_THREADS) a.weights[(int64_t)row * a.n + begin + i] = sh->part[i];
#pragma unroll
        for (int k = 0; k < DRAW_PART / DRAW_THREADS; k++) odd |= !(v[k] <= 3.4028234e38f);
        odd = __syncthreads_or(odd);
    }
    if (!odd && (bends || scale != 1)) sum = part_weigh(v, scale, &max, sh);
    if (x == 0) sh->found = a.n;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < DRAW_PART / DRAW_THREADS; k++)
        if (greedy && v[k] == max) atomicMin(&sh->found, begin + 4 * (x + k / 4 * DRAW_THREADS) + k % 4);
    __syncthreads();
    if (x == 0) out->raw_max = raw_max, out->raw_sum = raw_sum, out->max = max, out->sum = sum, out->bad = odd, out->first = sh->found;
    if (!odd && !greedy && d.top_k > 0 && d.top_k <= DRAW_TOP) part_keep(v, begin, d.top_k, d.temperature, out, sh);
}

/* Sums of the parts by the row's maximum. A block. */
static __device__ double parts_sum(const draw_part *p, int n, int raw, float scale, float max, draw_shared *s) {
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += DRAW_THREADS) {
        const float top = raw ? p[i].raw_max : p[i].max;
        if (top > -INFINITY) sum += (raw ? p[i].raw_sum : p[i].sum) * exp((double)__fsub_rn(top, max) * (double)scale);
    }
    return draw_sum(sum, s);
}

/* The candidates of all parts to s->w and s->id, with their weights; 0: they do not fit. A block. */
static __device__ int parts_gather(const draw_part *p, int n, const draw &d, float max, float scale, float least, draw_shared *s) {
    float most = -INFINITY;
    int over = 0;
    for (int i = threadIdx.x; i < n; i += DRAW_THREADS) over |= p[i].n < 0, most = fmaxf(most, p[i].least);
    const float low = draw_max(most, s) - d.temperature * 3.0517578e-5f;
    if (threadIdx.x == 0) s->n = 0;
    if (__syncthreads_or(over)) return 0;
    for (int i = threadIdx.x; i < n * DRAW_KEPT; i += DRAW_THREADS) {
        const int k = i % DRAW_KEPT;
        if (k >= p[i / DRAW_KEPT].n || p[i / DRAW_KEPT].kept[k] < low) continue;
        const float w = weight_of(p[i / DRAW_KEPT].kept[k], max, scale);
        const int at = w < least ? DRAW_FEW : atomicAdd(&s->n, 1);
        if (at < DRAW_FEW) s->w[at] = w, s->id[at] = p[i / DRAW_KEPT].id[k];
    }
    __syncthreads();
    return s->n <= DRAW_FEW;
}

/* Computes: what a part of an out row says of itself, for kernel_draw. Grid: a block for each part of each row. Reads the row once. */
static __global__ void __launch_bounds__(DRAW_THREADS, 2) kernel_draw_parts(step_view s, draw_args a) {
    grid_wait();
    SMEM(draw_shared, sh, 1);
    const int row = (int)blockIdx.x / a.n_parts, index = (int)blockIdx.x % a.n_parts, each = (ceil_div(a.n, a.n_parts) + 3) & ~3;
    if (row >= s.head[HEAD_OUT] || !s.draws[row].wanted) return;
    draw_one_part(s, a, s.draws[row], row, min(a.n, index * each), min(a.n, (index + 1) * each), a.parts + (int64_t)row * a.n_parts + index,
                  sh);
}

/* Computes: drawn[row] = the token that llm_draw asks for, with its log-probabilities. Grid: a block for each out row. Reads what its parts
 * say; unless it is greedy or has a small top-k then the row, and the weights once for each histogram. Twin: llm__choose. */
static __global__ void __launch_bounds__(DRAW_THREADS, 1) kernel_draw(step_view s, draw_args a) {
    grid_wait();
    SMEM(draw_shared, sh, 1);
    const int row = (int)blockIdx.x, x = threadIdx.x;
    if (row >= s.head[HEAD_OUT]) return;
    const draw d = s.draws[row];
    if (!d.wanted) return;
    const int bends = d.mask >= 0 || d.n_bias || d.n_used, greedy = d.temperature < 1e-5f;
    const draw_part *parts = a.parts + (int64_t)row * a.n_parts;
    const float *logits = a.logits + (int64_t)row * a.n, scale = greedy ? 1 : 1 / d.temperature;
    float raw = -INFINITY, top = -INFINITY;
    int bad = 0, first = a.n;
    for (int i = x; i < a.n_parts; i += DRAW_THREADS) {
        bad |= parts[i].bad;
        raw = fmaxf(raw, parts[i].raw_max), top = fmaxf(top, parts[i].max);
    }
    raw = draw_max(raw, sh), top = draw_max(top, sh);
    bad = __syncthreads_or(bad || raw < -3.4028234e38f || top < -3.4028234e38f);
    llm_drawn o = {-1, 0, 0, 0};
    if (!bad) {
        const double raw_sum = parts_sum(parts, a.n_parts, 1, 1, raw, sh), sum = parts_sum(parts, a.n_parts, 0, scale, top, sh);
        if (x == 0) sh->log_sum = (double)raw + log(raw_sum), sh->sum = sum, sh->weight = 1;
        const float least = d.min_p > 1e-30f ? d.min_p : 1e-30f, *bent = a.weights + (int64_t)row * a.n;
        for (int i = 0; i < a.n_parts && greedy; i++)
            if (parts[i].max == top) first = min(first, parts[i].first);
        o.id = greedy ? first : -1;
        if (!greedy && d.top_k > 0 && d.top_k <= DRAW_TOP && parts_gather(parts, a.n_parts, d, top, scale, least, sh))
            o.id = few_draw(d, least, 0, sh);
        __syncthreads();
        if (o.id < 0) o.id = block_pick(bends ? bent : logits, a.weights + (int64_t)row * a.n, a.n, top, scale, d, sh);
        if (x == 0) {
            o.log_sum = sh->log_sum;
            o.logprob = (float)((double)logits[o.id] - o.log_sum);
            o.prob = (float)((double)sh->weight / sh->sum);
        }
    }
    if (x == 0) a.drawn[2 * row + s.head[HEAD_TURN]] = o;
}
