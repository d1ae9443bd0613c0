#include "cpu/attention.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/dtypes.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"
#include "cpu/kv_cache.h"

/* For mac to fetch: what is read one block later than the keys (or values) of `position`. It lies further on in the sequence, or at the
 * start of what the thread reads next; `here` if there is nothing. */
static const uint8_t *llm__attend_ahead(const llm__attend *t, const llm__kv_view *view, int position, int values, const void *here) {
    position += LLM__BLOCK;
    if (position >= t->end) {
        position += t->next_from / LLM__GROUP * LLM__GROUP - t->end;
        view = position < t->next_to ? t->next : NULL;
    }
    return !view ? (const uint8_t *)here : values ? llm__kv_values(view, position) : llm__kv_keys(view, position);
}

/* Scores as products of what is stored become those of what it stands for: q . (offset + scale * k) = scale * (q . k) + offset * sum of q.
 */
static void llm__attend_scale_scores(llm__attend *t, const llm__kv_view *view, int block, int from, int to) {
    float scale[LLM__BLOCK], offset[LLM__BLOCK];
    llm__kv_load_scales(view, t->chosen, block, from, to, t->rows ? 2 : 0, scale, offset);
    for (int i = 0; i < t->n; i++) {
        float *row = t->scores + i * LLM__BLOCK;
        for (int j = 0; j < LLM__BLOCK; j++) row[j] = row[j] * scale[j] + offset[j] * t->q_sum[i];
    }
}

/* The queries as columns: (head_dim, turned_stride), filled up with zeros. */
static void llm__attend_turn(llm__attend *t) {
    t->turned_stride = (t->n + LLM__GROUP - 1) / LLM__GROUP * LLM__GROUP;
    for (int d = 0; d < t->head_dim; d++)
        for (int i = 0; i < t->turned_stride; i++) t->turned[d * t->turned_stride + i] = i < t->n ? t->q[i * t->head_dim + d] : 0;
}

/* Scores of the block's places [from, to) where keys stand as rows. Rows times queries instead of queries times keys: no row has to be
 * turned, and a product's chain is the same from either side, to the bit. */
static void llm__attend_row_scores(const llm__kernels *k, llm__attend *t, const llm__kv_view *view, int block, int from, int to) {
    llm__mac m;
    memset(&m, 0, sizeof m);
    for (int i = from; i < to; i++) llm__kv_load_row(k, view, t->chosen ? t->chosen[block + i] : block + i, t->rows + i * t->row_stride);
    m.tiles = &t->tiles;
    m.a = t->rows + from * t->row_stride;
    m.lda = t->row_stride;
    m.ldb = m.ldc = t->turned_stride;
    m.n = to - from;
    m.k = t->head_dim;
    m.type = LLM__KIND_F32;
    for (int j = 0; j < t->turned_stride; j += 2 * LLM__GROUP) {
        m.step = t->turned_stride - j > LLM__GROUP ? LLM__GROUP : 0;
        m.b[0] = t->turned + j;
        m.b[1] = t->turned + j + m.step;
        m.fetch[0] = m.fetch[1] = (const uint8_t *)m.b[0];
        m.c = t->turned_scores + from * t->turned_stride + j;
        k->mac(&m);
    }
    for (int i = 0; i < t->n; i++)
        for (int j = from; j < to; j++) t->scores[i * LLM__BLOCK + j] = t->turned_scores[j * t->turned_stride + i];
    if (view->kv->scaled) llm__attend_scale_scores(t, view, block, from, to);
}

LLM__PRIVATE void llm__attend_scores(const llm__kernels *k, llm__attend *t, const llm__kv_view *view, int block, int from, int to) {
    llm__mac m;
    const int last = (to - 1) / LLM__GROUP;
    memset(&m, 0, sizeof m);
    m.tiles = &t->tiles;
    m.a = t->q;
    m.lda = t->head_dim;
    m.ldb = LLM__GROUP;
    m.ldc = LLM__BLOCK;
    m.n = t->n;
    m.k = t->head_dim;
    m.half = t->half ? (const uint16_t *)(const void *)t->q : NULL;
    m.type = t->keys_in_place ? view->kv->kind : LLM__KIND_F32;
    m.pace = t->keys_in_place ? LLM__GROUP * view->kv->element_bytes : 0;
    for (int first = from / LLM__GROUP; first <= last; first += 2) {
        for (int g = first; g <= first + 1; g++) { /* the last one alone: twice */
            const int at = LLM__MIN(g, last);
            float *keys = t->keys + at * (t->head_dim + 1) * LLM__GROUP;
            if (!t->keys_in_place && at == g) llm__kv_load_keys(k, view, block + at * LLM__GROUP, keys);
            m.b[g - first] = t->keys_in_place ? (const void *)llm__kv_keys(view, block + at * LLM__GROUP) : (const void *)keys;
            m.fetch[g - first] = llm__attend_ahead(t, view, block + g * LLM__GROUP, 0, m.b[g - first]);
        }
        m.step = first < last ? LLM__GROUP : 0;
        m.c = t->scores + first * LLM__GROUP;
        k->mac(&m);
    }
    if (view->kv->scaled) llm__attend_scale_scores(t, view, block, from, to);
}

/* Values of the positions [from, to) of the block to t->values, as rows of f32. */
static void llm__attend_load_values(const llm__kernels *k, const llm__attend *t, const llm__kv_view *view, int block, int from, int to) {
    for (int i = from, end; i < to; i = end) {
        end = LLM__MIN(to, (i / LLM__GROUP + 1) * LLM__GROUP);
        if (view->place->shape.v_head_dim)
            llm__kv_load_values(k, view, block + i, block + end, t->values + (i - from) * t->v_stride, t->v_stride);
        else
            for (int d = 0; d < t->v_dim; d++) /* latent: values are keys */
                for (int j = i; j < end; j++)
                    t->values[(j - from) * t->v_stride + d] =
                        t->keys[((j / LLM__GROUP) * (t->head_dim + 1) + d) * LLM__GROUP + j % LLM__GROUP];
    }
}

/* Takes scales and offsets of the values into the weights: sum of p (offset + scale * v) = sum of (p * scale) v + sum of p * offset. */
static void llm__attend_scale_values(const llm__kernels *k, llm__attend *t, const llm__kv_view *view, int block, int from, int to) {
    float scale[LLM__BLOCK], offset[LLM__BLOCK];
    llm__kv_load_scales(view, t->chosen, block, from, to, view->place->shape.v_head_dim ? 2 : 0, scale, offset);
    for (int i = 0; i < t->n; i++) {
        float *p = t->scores + i * LLM__BLOCK;
        t->offset[i] = t->offset[i] * t->scale[i] + k->dot(p, offset, LLM__BLOCK);
        for (int j = 0; j < LLM__BLOCK; j++) p[j] *= scale[j];
    }
}

/* out = scale * out + weights x values, for the positions [from, to) of the block. Where values are read in place and stored in pairs, a
 * last position may stand alone: what is beside it was never written and must count as 0. So its group of 32 positions (sums are made of
 * whole groups) is copied, with zeros in their place. */
static void llm__attend_values(const llm__kernels *k, llm__attend *t, const llm__kv_view *view, int block, int from, int to) {
    const int tokens = view->kv->page_tokens, pair = t->rows ? 1 : view->place->pair;
    llm__mac m;
    memset(&m, 0, sizeof m);
    m.tiles = &t->tiles;
    m.lda = LLM__BLOCK;
    m.ldb = t->rows ? t->row_stride : t->v_stride;
    m.ldc = t->v_stride;
    m.scale = t->scale;
    m.n = t->n;
    m.type = t->values_in_place ? view->kv->kind : LLM__KIND_F32;
    const int size = m.type == LLM__KIND_F32 ? 4 : 2 * pair;
    if (view->kv->scaled) llm__attend_scale_values(k, t, view, block, from, to);
    if (!t->values_in_place && !t->rows) llm__attend_load_values(k, t, view, block, from, to);
    for (int i = from / pair * pair, end; i < to; i = end) {
        end = t->values_in_place ? LLM__MIN(to, ((block + i) / tokens + 1) * tokens - block) : to; /* to the end of the page */
        const float *floats = t->rows ? t->rows + i * t->row_stride : t->values;
        const uint8_t *values = t->values_in_place ? llm__kv_values(view, block + i) : (const uint8_t *)floats;
        const uint8_t *ahead = t->rows ? values : llm__attend_ahead(t, view, block + i, 1, values);
        if (end % pair && end / 32 * 32 > i) end = end / 32 * 32;
        else if (end % pair) {
            uint32_t *copy = (uint32_t *)(void *)t->values, *alone = copy + (end - i) / 2 * t->v_stride;
            memcpy(copy, values, (size_t)(end + 1 - i) * (size_t)t->v_stride * 2);
            for (int j = 0; j < t->v_stride; j++) alone[j] &= 0xFFFF;
            values = (const uint8_t *)copy;
            end++;
        }
        m.a = t->scores + i;
        m.half = t->half ? (const uint16_t *)(const void *)t->scores + i : NULL;
        m.k = end - i;
        m.phase = i % 32;
        m.pace = t->values_in_place ? view->place->v_elements * view->kv->element_bytes : 0;
        for (int j = 0; j < t->v_stride; j += 2 * LLM__GROUP) {
            m.step = t->v_stride - j > LLM__GROUP ? LLM__GROUP : 0;
            m.b[0] = values + j * size;
            m.b[1] = values + (j + m.step) * size;
            m.c = t->out + j;
            for (int h = 0; h < 2; h++) m.fetch[h] = ahead + ((const uint8_t *)m.b[h] - values);
            k->mac(&m);
        }
        for (int q = 0; q < t->n && end < to; q++) t->scale[q] = 1; /* of what follows */
    }
}

LLM__PRIVATE void llm__attend_begin(const llm__kernels *k, llm__attend *t, const llm__kv_view *view, int last) {
    for (int i = 0; i < t->n; i++) t->q_sum[i] = view->kv->scaled ? k->sum(t->q + i * t->head_dim, t->head_dim) : 0;
    /* floats are read where they lie, unless rows end inside a vector; converting f16 again for every few queries is free beside the
     * products */
    t->keys_in_place = view->kv->type == LLM_KV_BF16 ? view->place->pair == 2 : !view->kv->scaled && view->place->shape.v_head_dim;
    t->keys_in_place &= !t->rows;
    t->values_in_place = t->keys_in_place && t->v_dim == t->v_stride;
    t->end = (last + LLM__GROUP - 1) / LLM__GROUP * LLM__GROUP;
    t->half = k->bf16 && view->place->pair == 2 && !t->rows;
    if (t->half) k->to_bf16((uint16_t *)(void *)t->q, t->q, t->n * t->head_dim);
    if (t->rows) llm__attend_turn(t);
}

LLM__PRIVATE void llm__attend_run(const llm__kernels *k, llm__attend *t, const llm__kv_view *view) {
    int first = t->from[0], last = t->to[0];
    for (int i = 0; i < t->n; i++) {
        first = LLM__MIN(first, t->from[i]);
        last = LLM__MAX(last, t->to[i]);
        t->offset[i] = 0;
    }
    llm__attend_begin(k, t, view, last);
    memset(t->out, 0, (size_t)(t->n * t->v_stride) * sizeof(float));
    t->tiles = 0;
    for (int block = first / LLM__BLOCK * LLM__BLOCK; block < last; block += LLM__BLOCK) {
        int from = LLM__MAX(first - block, 0), to = LLM__MIN(last - block, LLM__BLOCK);
        if (t->rows) llm__attend_row_scores(k, t, view, block, from, to);
        else llm__attend_scores(k, t, view, block, from, to);
        if (t->softcap != 0 || t->alibi || t->reach) k->bias(t, block);
        k->soften(t, block);
        llm__attend_values(k, t, view, block, from, to);
    }
    if (k->rest) k->rest(&t->tiles);
    for (int i = 0; i < t->n; i++) {
        const float sum = k->sum(t->running_sum[i], LLM__ROWS);
        k->affine(t->out + i * t->v_stride, t->out + i * t->v_stride, -t->offset[i], sum > 0 ? 1 / sum : 0, NULL, NULL, t->v_dim);
    }
}

LLM__PRIVATE size_t llm__attend_floats(int head_dim, int v_dim) {
    const size_t v_stride = ((size_t)v_dim + 15) & ~(size_t)15, q_stride = ((size_t)head_dim + 15) & ~(size_t)15;
    return LLM__QUERIES * (q_stride + v_stride + LLM__BLOCK) + ((size_t)head_dim + 1) * LLM__BLOCK + LLM__BLOCK * v_stride + 64;
}

LLM__PRIVATE void llm__attend_place(llm__attend *t, float *scratch, int head_dim, int v_dim) {
    memset(t, 0, sizeof *t);
    t->head_dim = head_dim;
    t->v_dim = v_dim;
    t->v_stride = (v_dim + 15) & ~15;
    t->keys = scratch;
    t->values = t->keys + (head_dim + 1) * LLM__BLOCK;
    t->out = t->values + LLM__BLOCK * t->v_stride;
    t->scores = t->out + LLM__QUERIES * t->v_stride;
    t->q = t->scores + LLM__QUERIES * LLM__BLOCK;
}

LLM__PRIVATE size_t llm__attend_row_floats(int head_dim, int v_dim) {
    const size_t row = ((size_t)head_dim + 15) & ~(size_t)15;
    return llm__attend_floats(head_dim, v_dim) + LLM__BLOCK * row + LLM__QUERIES * ((size_t)head_dim + LLM__BLOCK) +
           LLM__ROW_QUERIES * 2 * row;
}

LLM__PRIVATE void llm__attend_place_rows(llm__attend *t) {
    t->row_stride = (t->head_dim + 15) & ~15;
    t->rows = t->q + LLM__QUERIES * ((t->head_dim + 15) & ~15);
    t->turned = t->rows + LLM__BLOCK * t->row_stride;
    t->turned_scores = t->turned + LLM__QUERIES * t->head_dim;
    t->q = t->turned_scores + LLM__QUERIES * LLM__BLOCK;
    t->out = t->q + LLM__ROW_QUERIES * t->row_stride;
}

/* Tiles of rows that one sequence of the step makes. */
LLM__INLINE int llm__jobs_tiles(const llm__attend_jobs *j, int seq) {
    return (j->step->seq_begin[seq + 1] - j->step->seq_begin[seq] + j->rows - 1) / j->rows;
}

LLM__PRIVATE void llm__jobs_cut(llm__attend_jobs *j, const llm_step *step, int n_kv, int group, int n_threads) {
    int tiles = 0;
    j->step = step;
    j->n_kv = n_kv;
    j->group = group;
    j->head_tiles = (group + LLM__QUERIES - 1) / LLM__QUERIES;
    j->heads = (group + j->head_tiles - 1) / j->head_tiles;
    j->rows = LLM__QUERIES / j->heads;
    for (int s = 0; s < step->shape.n_seqs; s++) tiles += llm__jobs_tiles(j, s);
    for (;; j->heads = (j->heads + 1) / 2) {
        j->head_tiles = (group + j->heads - 1) / j->heads;
        j->n = tiles * n_kv * j->head_tiles;
        if (j->heads == 1 || j->n >= n_threads) break;
    }
    j->fixed = j->begin = 0;
}

LLM__PRIVATE void llm__share_heads(const llm__exec *e, int n_kv, int64_t *begin, int64_t *end) {
    const llm_step *s = e->step;
    int64_t total = 0, sum = 0;
    *begin = *end = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int row = 0; row < s->shape.n_rows; row++) {
            const int64_t cost = LLM__BLOCK + s->seq_len[row];
            if (!pass) total += cost * n_kv;
            for (int g = 0; g < n_kv && pass; g++, sum += cost) {
                const int64_t owner = (2 * sum + cost) * e->n_threads / (2 * total);
                *begin += owner < e->thread;
                *end += owner <= e->thread;
            }
        }
}

LLM__PRIVATE int llm__jobs_next(llm__attend_jobs *j, int *next, llm__attend_job *job) {
    const int per_tile = j->n_kv * j->head_tiles;
    int i = j->fixed ? (int)--j->end : j->n - 1 - __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
    if (i < j->begin) return 0;
    int tile = i / per_tile, part = i % per_tile, seq = 0;
    while (tile >= llm__jobs_tiles(j, seq)) tile -= llm__jobs_tiles(j, seq++);
    job->seq = seq;
    job->row = j->step->seq_begin[seq] + tile * j->rows;
    job->n_rows = LLM__MIN(j->rows, j->step->seq_begin[seq + 1] - job->row);
    job->kv_head = part / j->head_tiles;
    job->head = part % j->head_tiles * j->heads;
    job->n_heads = LLM__MIN(j->heads, j->group - job->head);
    job->head += job->kv_head * j->group;
    return 1;
}
