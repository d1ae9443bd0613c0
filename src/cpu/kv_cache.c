/* ============================================================================
 * >>attention   KV pages, and attention over them.
 * ============================================================================
 * A page holds `page_tokens` tokens of every layer. Inside it each (layer, KV head) has one contiguous part: the keys transposed in groups
 * of 16 positions [group][dim][16 positions], so that one vector holds one dimension of 16 keys; the values row by row; then, for the types
 * that need them, a scale and an offset a token. Elements: f32, f16, bf16, fp8 (scaled so that the token's largest value is the type's),
 * int8 and int4 (asymmetric: value = offset + scale * q; a byte of int4 holds dimension i low and i + half high). Of bf16 two stand together
 * where rows fill vectors, as vdpbf16ps wants them: of keys dimensions 2 i and 2 i + 1 of each position, [group][dim / 2][16][2]; of values positions 2 i and 2 i + 1
 * of each dimension, [position / 2][dim][2]. Where the CPU has it, queries and weights are rounded to bf16 too.
 *
 * Positions are taken in blocks of 64 counted from position 0, in order, with the running maximum and sum of the online softmax. A query's
 * result is a function of its own blocks: which other queries share its tile, chunk or step never changes a bit. Blocks that no query of
 * the tile sees are not touched (sliding windows), nor are the pages of groups of 16 positions that none sees; weights of single positions
 * that a query does not see are exactly 0. So the pages before a window may be given back, and what lies in unused positions never matters.
 *
 * A tile is up to 48 (query, head) pairs of one sequence and one KV head: each block of keys and values is loaded once for all heads of
 * the group. Latent attention is the same with one KV head, whose values are the first dimensions of its keys.
 *
 * The online softmax (Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022) needs no row of scores. Per query it keeps the largest
 * score m so far, the sum l of exp(score - m), and the weighted sum o (v_head_dim) of values. For a block with scores s and values V:
 *
 *   m' = max(m, max s)      c = exp(m - m')      p = exp(s - m')
 *   l' = c l + sum p        o' = c o + p V       and at the end  o / l
 *
 * Memory is one block, whatever the length of the context; when m does not grow, c is exactly 1 and nothing is rounded again. */

/* Where one layer lies in a page, in bytes. Scales: K scale, K offset, V scale, V offset, page_tokens floats each. */
typedef struct llm__kv_place {
    llm_kv_layer shape;
    int64_t offset, head_bytes, v_offset, scale_offset;
    int k_elements, v_elements; /* stored elements of a token */
    int pair;                   /* 2: of bf16, two and two; else 1 */
} llm__kv_place;

typedef struct llm__kv_cache {
    llm_kv_type type;
    llm__kind kind; /* as products read what is not scaled */
    int element_bytes, scaled;
    int n_layers, page_tokens;
    int64_t page_bytes, n_pages;
    llm__kv_place *layer;
    uint8_t **base; /* (ranks) */
} llm__kv_cache;

/* Types of one byte (and of half a byte) have a scale and an offset for each token and head. */
static void llm__kv_type_set(llm__kv_cache *kv, llm_kv_type type) {
    kv->type = type;
    kv->element_bytes = type == LLM_KV_F32 ? 4 : type == LLM_KV_F16 || type == LLM_KV_BF16 ? 2 : 1;
    kv->scaled = kv->element_bytes == 1;
    kv->kind = type == LLM_KV_F16 ? LLM__KIND_F16 : type == LLM_KV_BF16 ? LLM__KIND_BF16 : LLM__KIND_F32;
}

/* What AUTO means: the type whose products are fastest, unless the user asks for f16. */
static llm_kv_type llm__kv_auto(llm__isa isa, llm_compute compute) {
    if (compute == LLM_COMPUTE_F32) return LLM_KV_F32;
    return llm__kernels_of(isa)->bf16 && compute != LLM_COMPUTE_F16 ? LLM_KV_BF16 : LLM_KV_F16;
}

/* Fills in the place of one layer that starts at `offset`. Returns where the next one starts; *ok is cleared when it does not fit. */
static uint64_t llm__kv_place_layer(const llm__kv_cache *kv, const llm_kv_layer *shape, int page_tokens, uint64_t offset, llm__kv_place *p,
                                    int *ok) {
    int halve = kv->type == LLM_KV_INT4;
    uint64_t tokens = (uint64_t)page_tokens, size = (uint64_t)kv->element_bytes;
    p->shape = *shape;
    p->k_elements = halve ? (shape->head_dim + 1) / 2 : shape->head_dim;
    p->pair = kv->type == LLM_KV_BF16 && shape->head_dim % 2 == 0 && shape->v_head_dim % 16 == 0 && shape->v_head_dim ? 2 : 1;
    p->v_elements = halve ? (shape->v_head_dim + 1) / 2 : shape->v_head_dim;
    p->offset = (int64_t)offset;
    uint64_t at = llm__align_up(llm__mul(tokens * size, (uint64_t)p->k_elements, ok), 64, ok);
    p->v_offset = (int64_t)at;
    at = llm__align_up(llm__add(at, llm__mul(tokens * size, (uint64_t)p->v_elements, ok), ok), 64, ok);
    p->scale_offset = (int64_t)at;
    if (kv->scaled) at = llm__add(at, tokens * 4 * sizeof(float), ok);
    p->head_bytes = (int64_t)llm__align_up(at, 64, ok);
    return llm__add(offset, llm__mul((uint64_t)p->head_bytes, (uint64_t)shape->n_kv_heads, ok), ok);
}

/* The sequence of one rank's layer and head that a tile works on. */
typedef struct llm__kv_view {
    const llm__kv_cache *kv;
    const llm__kv_place *place;
    uint8_t *base;
    const int32_t *pages;
    int head;
} llm__kv_view;

/* The part of the view's layer and head in the page that holds this position. */
LLM__INLINE uint8_t *llm__kv_part(const llm__kv_view *v, int position) {
    return v->base + v->pages[position / v->kv->page_tokens] * v->kv->page_bytes + v->place->offset + v->head * v->place->head_bytes;
}

/* Where the group of 16 keys at `position` lies, and the value of a position (of bf16: of its pair of positions). */
LLM__INLINE const uint8_t *llm__kv_keys(const llm__kv_view *v, int position) {
    return llm__kv_part(v, position) + (int64_t)(position % v->kv->page_tokens) * v->place->k_elements * v->kv->element_bytes;
}

LLM__INLINE const uint8_t *llm__kv_values(const llm__kv_view *v, int position) {
    return llm__kv_part(v, position) + v->place->v_offset +
           (int64_t)(position % v->kv->page_tokens / v->place->pair * v->place->pair) * v->place->v_elements * v->kv->element_bytes;
}

/* Of types of one byte and less keys and values are turned before they are rounded, and so are queries; what comes out is turned back. A
 * turn changes no product of query and key, but spreads the few large values of a head, which would else set its scale, over all of its
 * elements (QuaRot, Ashkboos et al. 2024). It is the Hadamard matrix of `size`, a power of two, on each `size` of the n elements: additions
 * alone, and its own inverse. Floats of 8 bits need no common scale, but gain as well: where queries are large keys are too, and there a
 * float errs most; turned, the error is spread. What llm__load_balanced does before makes the most of it. */
static int llm__kv_turn_size(int n) { return n & -n; }

static void llm__kv_turn(float *x, int n, int size) {
    const float scale = 1 / sqrtf((float)size);
    for (int h = 1; h < size; h *= 2)
        for (int i = 0; i < n; i += 2 * h)
            for (int j = i; j < i + h; j++) {
                const float a = x[j], b = x[j + h];
                x[j] = a + b;
                x[j + h] = a - b;
            }
    for (int i = 0; i < n; i++) x[i] *= scale;
}

/* Turns a row of n values into stored elements at `out`, with the scale and offset that go beside them. */
static void llm__kv_encode(const llm__kernels *k, llm_kv_type type, const float *x, int n, uint8_t *out, float *scale, float *offset) {
    float low = x[0], high = x[0];
    *scale = 1;
    *offset = 0;
    if (type == LLM_KV_F32) memcpy(out, x, (size_t)n * 4);
    else if (type == LLM_KV_F16) k->to_half((uint16_t *)(void *)out, x, n);
    else if (type == LLM_KV_BF16) k->to_bf16((uint16_t *)(void *)out, x, n);
    if (type == LLM_KV_F32 || type == LLM_KV_F16 || type == LLM_KV_BF16) return;
    for (int i = 1; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    if (type == LLM_KV_FP8_E4M3 || type == LLM_KV_FP8_E5M2) {
        float largest = type == LLM_KV_FP8_E4M3 ? 448.0f : 57344.0f, top = LLM__MAX(high, -low);
        if (top > 0) *scale = top / largest;
        for (int i = 0; i < n; i++) {
            float v = x[i] / *scale;
            v = v > largest ? largest : v > -largest ? v : -largest; /* not a number becomes the smallest */
            out[i] = type == LLM_KV_FP8_E4M3 ? llm__f32_to_e4m3(v) : llm__f32_to_e5m2(v);
        }
        return;
    }
    /* int4 leaves out the ends of the range, where few values are: squared errors fall by 4 to 10 % (heads of 64 to 256) */
    float levels = type == LLM_KV_INT8 ? 255.0f : 15.0f, cut = type == LLM_KV_INT8 ? 0 : 0.03f * (high - low);
    int half = (n + 1) / 2;
    low += cut, high -= cut;
    *offset = low;
    if (high > low) *scale = (high - low) / levels;
    for (int i = 0; i < n; i++) {
        float v = (x[i] - low) / *scale + 0.5f;
        uint8_t q = (uint8_t)(v > levels ? levels : v > 0 ? v : 0);
        if (type == LLM_KV_INT8) out[i] = q;
        else if (i < half) out[i] = q;
        else out[i - half] = (uint8_t)(out[i - half] | q << 4);
    }
}

/* Writes a token's value of one head. */
static void llm__kv_write_value(const llm__kernels *k, const llm__kv_view *view, int position, const float *value) {
    const llm__kv_place *p = view->place;
    int t = position % view->kv->page_tokens, tokens = view->kv->page_tokens;
    uint8_t *part = llm__kv_part(view, position);
    float *scales = (float *)(void *)(part + p->scale_offset), scale, offset;
    if (p->pair == 2) {
        uint16_t *to = (uint16_t *)(void *)(part + p->v_offset) + (int64_t)(t / 2) * 2 * p->v_elements + t % 2;
        for (int i = 0; i < p->v_elements; i++) to[2 * i] = llm__f32_to_bf16(value[i]);
        return;
    }
    llm__kv_encode(k, view->kv->type, value, p->shape.v_head_dim,
                   part + p->v_offset + (int64_t)t * p->v_elements * view->kv->element_bytes, &scale, &offset);
    if (view->kv->scaled) scales[2 * tokens + t] = scale, scales[3 * tokens + t] = offset;
}

/* Writes a token's key (and value, unless the layer is latent) of one head. `scratch` holds 4 * (head_dim + 1) bytes. */
static void llm__kv_write_token(const llm__kernels *k, const llm__kv_view *view, int position, const float *key, const float *value,
                                uint8_t *scratch) {
    const llm__kv_place *p = view->place;
    int t = position % view->kv->page_tokens, tokens = view->kv->page_tokens, n = p->k_elements, size = view->kv->element_bytes;
    uint8_t *part = llm__kv_part(view, position);
    float *scales = (float *)(void *)(part + p->scale_offset), scale, offset;
    llm__kv_encode(k, view->kv->type, key, p->shape.head_dim, scratch, &scale, &offset);
    if (view->kv->scaled) scales[t] = scale, scales[tokens + t] = offset;
    uint8_t *to = part + ((int64_t)(t / LLM__GROUP) * n * LLM__GROUP + t % LLM__GROUP * p->pair) * size;
    if (p->pair == 2) for (int i = 0; i < n; i += 2, to += LLM__GROUP * 4) memcpy(to, scratch + i * 2, 4);
    else if (size == 2) for (int i = 0; i < n; i++, to += LLM__GROUP * 2) memcpy(to, scratch + i * 2, 2);
    else if (size == 1) for (int i = 0; i < n; i++, to += LLM__GROUP) *to = scratch[i];
    else for (int i = 0; i < n; i++, to += LLM__GROUP * 4) memcpy(to, scratch + i * 4, 4);
    if (p->shape.v_head_dim) llm__kv_write_value(k, view, position, value);
}

/* The group of 16 keys at `position` to f32 (hd, 16), not scaled. `out` may take one row more (int4 of an odd head_dim). */
static void llm__kv_load_keys(const llm__kernels *k, const llm__kv_view *view, int position, float *out) {
    int n = view->place->k_elements;
    k->expand(view->kv->type, llm__kv_keys(view, position), n * LLM__GROUP, out, out + n * LLM__GROUP);
}

/* Values of the positions [from, to), all of one group, to rows of f32 with stride vdp, not scaled. */
static void llm__kv_load_values(const llm__kernels *k, const llm__kv_view *view, int from, int to, float *out, int vdp) {
    int n = view->place->v_elements;
    const uint8_t *at = llm__kv_values(view, from);
    for (int i = from; i < to; i++, at += n * view->kv->element_bytes, out += vdp) k->expand(view->kv->type, at, n, out, out + n);
}

/* A token's value of one head as it was written, but for the rounding. */
static void llm__kv_read_value(const llm__kernels *k, const llm__kv_view *view, int position, float *out) {
    const llm__kv_place *p = view->place;
    int t = position % view->kv->page_tokens, tokens = view->kv->page_tokens, n = p->shape.v_head_dim;
    const float *scales = (const float *)(const void *)(llm__kv_part(view, position) + p->scale_offset);
    const uint16_t *pair = (const uint16_t *)(const void *)llm__kv_values(view, position) + t % 2;
    for (int i = 0; i < n && p->pair == 2; i++) out[i] = llm__bf16_to_f32(pair[2 * i]);
    if (p->pair == 1) llm__kv_load_values(k, view, position, position + 1, out, n);
    for (int i = 0; i < n && view->kv->scaled; i++) out[i] = scales[3 * tokens + t] + scales[2 * tokens + t] * out[i];
}

/* Scales and offsets of a block's keys (what 0) or values (what 2); zeros outside [from, to). */
static void llm__kv_load_scales(const llm__kv_view *view, int block, int from, int to, int what, float *scale, float *offset) {
    const int tokens = view->kv->page_tokens;
    memset(scale, 0, LLM__BLOCK * sizeof *scale);
    memset(offset, 0, LLM__BLOCK * sizeof *offset);
    for (int i = from; i < to; i++) {
        const float *at =
            (const float *)(const void *)(llm__kv_part(view, block + i) + view->place->scale_offset) + what * tokens + (block + i) % tokens;
        scale[i] = at[0];
        offset[i] = at[tokens];
    }
}

