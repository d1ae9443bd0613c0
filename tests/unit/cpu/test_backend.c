/* The CPU backend: every operation other than the linear layers against a plain reference in double, and its promise that the bits of a
 * row do not depend on batch, chunk, page order or thread count. */
#include "../step.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/map.h"
#include "cpu/dtypes.h"
#include "cpu/kv_cache.h"
#include "cpu/backend.h"
#include "cpu/record.h"
#include <malloc.h>

/* Reproducible values in -1 .. 1, a function of what they belong to. */
static float be_value(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const uint64_t h = llm__mix(llm__mix(((uint64_t)a << 32 | b) + 7) ^ ((uint64_t)c << 32 | d));
    return (float)((double)(h >> 40) / (1 << 23) - 1.0);
}

static uint32_t be_next(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static llm_weight *be_vector(llm_backend_ctx *ctx, int rank, const float *v, int64_t n, llm_role role) {
    llm_segment s;
    llm_weight_desc d;
    llm_weight *w = NULL;
    memset(&s, 0, sizeof s);
    memset(&d, 0, sizeof d);
    s.data = v;
    s.stored_cols = s.n_cols = d.cols = n;
    s.n_rows = d.rows = 1;
    d.name = "test";
    d.role = role;
    d.segments = &s;
    d.n_segments = 1;
    CHECK(llm_backend_cpu()->weight(ctx, rank, &d, &w) == LLM_OK);
    return w;
}

/* Values that must live until weights_done. */
static llm__arena be_memory;

static float *be_floats(int64_t n, uint32_t seed, float mean, float spread) {
    float *v = (float *)llm__arena_get(&be_memory, (size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = mean + spread * be_value(seed, (uint32_t)i, 0, 0);
    return v;
}

static llm_weight *be_random_vector(llm_backend_ctx *ctx, int rank, int64_t n, uint32_t seed) {
    return be_vector(ctx, rank, be_floats(n, seed, 1, 0.5f), n, LLM_ROLE_VECTOR);
}

static void be_done(llm_backend_ctx *ctx) {
    CHECK(llm_backend_cpu()->weights_done(ctx) == LLM_OK);
    llm__arena_free(&be_memory);
}

static llm_buffer *be_buffer(llm_backend_ctx *ctx, int rank, int rows, int cols) {
    llm_buffer *b = NULL;
    CHECK(llm_backend_cpu()->buffer(ctx, rank, rows, cols, &b) == LLM_OK);
    return b;
}

enum { BE_ROWS = 96, BE_SEQS = 8, BE_PAGES = 16, BE_OUT = 16 };

static llm_backend_ctx *be_open(const char *isa, int threads, int ranks, llm_kv_type kv) {
    llm_backend_config c;
    llm_backend_ctx *ctx = NULL;
    memset(&c, 0, sizeof c);
    c.n_ranks = ranks;
    c.n_threads = threads;
    c.isa = isa;
    c.kv_type = kv;
    c.max_rows = BE_ROWS;
    c.max_out = BE_OUT;
    c.max_seqs = BE_SEQS;
    c.max_pages_per_seq = BE_PAGES;
    CHECK(llm_backend_cpu()->open(&c, &ctx) == LLM_OK);
    return ctx;
}

/* ---- qkv and attention ---- */

typedef struct be_case {
    const char *name;
    int n_heads, n_kv, hd, vd, rope_dim, interleaved, page_tokens;
    llm_qk_norm norm;
    int window, not_causal, sinks, alibi, logn; /* window below 0: windows stand side by side; alibi below 0: the reach of distances */
    float logn_beta, softcap;                   /* logn_beta below 0: of the position that follows */
    llm_kv_type kv;
    double tolerance;
} be_case;

enum { BE_LEN = 150 };

typedef struct be_net {
    llm_backend_ctx *ctx;
    const be_case *c;
    llm_buffer *qkv, *rope, *out;
    llm_weight *q_norm, *k_norm, *sinks, *alibi, *distance, *inv_freq;
} be_net;

static int be_columns(const be_case *c) { return c->n_heads * c->hd + c->n_kv * (c->hd + c->vd); }

static int be_norm_alike(const be_case *c) { return c->norm == LLM_QK_NORM_HEAD_RMS || c->norm == LLM_QK_NORM_HEAD_RMS_LAST; }

static int be_norm_size(const be_case *c, int heads) { return be_norm_alike(c) ? c->hd : heads * c->hd; }

static float be_freq(int i, int half) { return (float)pow(10000.0, -(double)i / half); }

static void be_net_open(be_net *n, const be_case *c, const char *isa, int threads) {
    llm_kv_layer layers[2] = {{1, 16, 16, 0}, {c->n_kv, c->hd, c->vd, 0}};
    float *freq = be_floats(256, 0, 0, 0);
    memset(n, 0, sizeof *n);
    n->c = c;
    n->ctx = be_open(isa, threads, 1, c->kv);
    n->qkv = be_buffer(n->ctx, 0, BE_ROWS, be_columns(c) + 3);
    n->rope = be_buffer(n->ctx, 0, BE_ROWS, c->rope_dim ? c->rope_dim : 2);
    n->out = be_buffer(n->ctx, 0, BE_ROWS, c->n_heads * c->vd);
    n->q_norm = be_random_vector(n->ctx, 0, be_norm_size(c, c->n_heads), 1);
    n->k_norm = be_random_vector(n->ctx, 0, be_norm_size(c, c->n_kv), 2);
    n->sinks = be_random_vector(n->ctx, 0, c->n_heads, 3);
    n->alibi = be_random_vector(n->ctx, 0, c->n_heads, 4);
    n->distance = be_random_vector(n->ctx, 0, c->n_heads * (1 - 2 * LLM__MIN(c->alibi, 0)), 5);
    for (int i = 0; i < c->rope_dim / 2; i++) freq[i] = be_freq(i, c->rope_dim / 2);
    n->inv_freq = be_vector(n->ctx, 0, freq, c->rope_dim ? c->rope_dim / 2 : 1, LLM_ROLE_VECTOR);
    be_done(n->ctx);
    CHECK(llm_backend_cpu()->kv_open(n->ctx, 2, layers, c->page_tokens, BE_SEQS * BE_PAGES) == LLM_OK);
}

static float be_input(const be_case *c, int id, int position, int column) {
    return be_value((uint32_t)id, (uint32_t)position, (uint32_t)column, (uint32_t)c->hd) *
           (column < (c->n_heads + c->n_kv) * c->hd ? 2.0f : 1.0f);
}

/* Runs one step and stores each row's result at out[id][position]. */
static void be_net_step(be_net *n, test_step *b, float *out) {
    const llm_backend *t = llm_backend_cpu();
    const be_case *c = n->c;
    llm_rope_op rope;
    llm_qkv_op qkv;
    llm_attention_op at;
    int width = c->n_heads * c->vd;
    memset(&rope, 0, sizeof rope);
    memset(&qkv, 0, sizeof qkv);
    memset(&at, 0, sizeof at);
    for (int r = 0; r < b->s.shape.n_rows; r++)
        for (int k = 0; k < be_columns(c); k++)
            n->qkv->data[r * n->qkv->stride + 3 + k] = be_input(c, b->id[b->seq_of_row[r]], b->positions[r], k);
    rope.dst = n->rope;
    rope.inv_freq = n->inv_freq;
    rope.n_variants = 1;
    rope.rope_dim = c->rope_dim;
    qkv.qkv = n->qkv;
    qkv.q_col = qkv.whole_q_col = 3;
    qkv.k_col = qkv.whole_k_col = 3 + c->n_heads * c->hd;
    qkv.v_col = qkv.k_col + c->n_kv * c->hd;
    qkv.whole_q = c->n_heads * c->hd;
    qkv.whole_k = c->n_kv * c->hd;
    qkv.n_heads = at.n_heads = c->n_heads;
    qkv.n_kv_heads = at.n_kv_heads = c->n_kv;
    qkv.head_dim = at.head_dim = c->hd;
    qkv.v_head_dim = at.v_head_dim = c->vd;
    qkv.norm = c->norm;
    qkv.q_norm = n->q_norm;
    qkv.k_norm = n->k_norm;
    qkv.eps = 1e-5f;
    qkv.rope = c->rope_dim ? n->rope : NULL;
    qkv.rope_dim = c->rope_dim;
    qkv.rope_interleaved = c->interleaved;
    qkv.layer = at.layer = 1;
    qkv.logn_from = c->logn;
    qkv.logn_beta = fabsf(c->logn_beta);
    qkv.logn_ahead = c->logn_beta < 0;
    at.dst = n->out;
    at.qkv = n->qkv;
    at.q_col = 3;
    at.scale = (float)(1 / sqrt(c->hd));
    at.softcap = c->softcap;
    at.window = abs(c->window);
    at.chunked = c->window < 0;
    at.not_causal = c->not_causal;
    at.sinks = c->sinks ? n->sinks : NULL;
    at.alibi = c->alibi > 0 ? n->alibi : NULL;
    at.distance = c->alibi < 0 ? n->distance : NULL;
    at.reach = LLM__MAX(-c->alibi, 0);
    CHECK(t->begin_step(n->ctx, &b->s) == LLM_OK);
    if (c->rope_dim) t->rope(n->ctx, 0, &rope);
    t->qkv(n->ctx, 0, &qkv);
    t->attention(n->ctx, 0, &at);
    CHECK(t->end_step(n->ctx) == LLM_OK && t->wait(n->ctx) == LLM_OK);
    for (int r = 0; r < b->s.shape.n_rows; r++)
        memcpy(out + ((size_t)b->id[b->seq_of_row[r]] * BE_LEN + (size_t)b->positions[r]) * (size_t)width,
               t->buffer_row(n->ctx, 0, n->out, r), (size_t)width * sizeof(float));
}

/* Runs three sequences of different lengths; plan 0: whole, one after the other; 1: token by token, all together; 2: random chunks, ragged,
 * random page order. */
static float *be_net_run(be_net *n, int plan, const int *len, uint32_t seed) {
    float *out = LLM__NEW(float, 3 * BE_LEN * n->c->n_heads * n->c->vd);
    int32_t pages[3][BE_PAGES], all[3 * BE_PAGES];
    int done[3] = {0, 0, 0};
    for (int i = 0; i < 3 * BE_PAGES; i++) all[i] = i;
    for (int i = 3 * BE_PAGES - 1; i > 0 && plan == 2; i--) {
        int k = (int)(be_next(&seed) % (uint32_t)(i + 1)), x = all[i];
        all[i] = all[k];
        all[k] = x;
    }
    for (int i = 0; i < 3 * BE_PAGES; i++) pages[i / BE_PAGES][i % BE_PAGES] = all[i];
    while (done[0] < len[0] || done[1] < len[1] || done[2] < len[2]) {
        test_step b;
        step_begin(&b, BE_PAGES);
        for (int k = 0; k < 3; k++) {
            int s = plan == 2 ? (k + (int)(seed % 3)) % 3 : k, left = len[s] - done[s], room = BE_ROWS - b.s.shape.n_rows,
                m = plan == 1 ? 1 : left;
            if (plan == 2) m = (int)(be_next(&seed) % 3 ? be_next(&seed) % 30 : 1);
            m = LLM__MIN(m, LLM__MIN(left, room));
            if (m <= 0 || (plan == 0 && b.s.shape.n_seqs)) continue;
            step_add(&b, s, done[s], m, pages[s]);
            done[s] += m;
        }
        if (b.s.shape.n_rows) be_net_step(n, &b, out);
    }
    return out;
}

/* One head of q or k as the model defines it, in double. */
static void be_ref_head(const be_case *c, int id, int position, int base, int heads, int h, uint32_t seed, int is_q, double *x) {
    double mean = 0, square = 0, all = 0;
    for (int d = 0; d < c->hd; d++) mean += (x[d] = be_input(c, id, position, base + h * c->hd + d)) / c->hd;
    if (c->norm != LLM_QK_NORM_HEAD_LAYER) mean = 0;
    for (int d = 0; d < c->hd; d++) square += (x[d] - mean) * (x[d] - mean) / c->hd;
    for (int d = 0; d < heads * c->hd && c->norm == LLM_QK_NORM_WHOLE_RMS; d++)
        all += pow((double)be_input(c, id, position, base + d), 2) / (heads * c->hd);
    for (int d = 0; d < c->hd && c->norm; d++) {
        uint32_t at = (uint32_t)(be_norm_alike(c) ? d : h * c->hd + d);
        double w = c->norm == LLM_QK_NORM_HEAD_RMS_LAST ? 1 : (double)(1 + 0.5f * be_value(seed, at, 0, 0)); /* turns change no length */
        x[d] = (x[d] - mean) / sqrt((c->norm == LLM_QK_NORM_WHOLE_RMS ? all : square) + 1e-5) * w;
    }
    for (int i = 0; i < c->rope_dim / 2; i++) {
        int a = c->interleaved ? 2 * i : i, b = c->interleaved ? 2 * i + 1 : i + c->rope_dim / 2;
        double angle = position * (double)be_freq(i, c->rope_dim / 2), u = x[a], v = x[b];
        x[a] = u * cos(angle) - v * sin(angle);
        x[b] = v * cos(angle) + u * sin(angle);
    }
    for (int d = 0; d < c->hd && c->norm == LLM_QK_NORM_HEAD_RMS_LAST; d++) x[d] *= (double)(1 + 0.5f * be_value(seed, (uint32_t)d, 0, 0));
    const double next = c->logn_beta < 0; /* the position counts from 1 */
    for (int d = 0; d < c->hd && is_q && c->logn && position + 1 > c->logn - next; d++)
        x[d] *= c->logn_beta != 0 ? 1 + fabs((double)c->logn_beta) * log(1.0 + floor((position + next) / c->logn))
                                  : log(position + 1.0) / log((double)c->logn);
}

static double be_ref_error(const be_case *c, int id, int len, const float *out) {
    double *k = LLM__NEW(double, len * c->n_kv * c->hd), q[512], worst = 0;
    for (int p = 0; p < len; p++)
        for (int g = 0; g < c->n_kv; g++) be_ref_head(c, id, p, c->n_heads * c->hd, c->n_kv, g, 2, 0, k + (p * c->n_kv + g) * c->hd);
    for (int p = 0; p < len; p++)
        for (int h = 0; h < c->n_heads; h++) {
            double o[512] = {0}, sum = 0, s[BE_LEN], top = -1e300, slope = (double)(1 + 0.5f * be_value(4, (uint32_t)h, 0, 0)),
                   sink = (double)(1 + 0.5f * be_value(3, (uint32_t)h, 0, 0));
            int g = h / (c->n_heads / c->n_kv), last = c->not_causal ? len - 1 : p;
            be_ref_head(c, id, p, 0, c->n_heads, h, 1, 1, q);
            for (int j = 0; j <= last; j++) {
                s[j] = 0;
                for (int d = 0; d < c->hd; d++) s[j] += q[d] * k[(j * c->n_kv + g) * c->hd + d] / sqrt(c->hd);
                if (c->softcap != 0) s[j] = (double)c->softcap * tanh(s[j] / (double)c->softcap);
                if (c->alibi > 0) s[j] += slope * (j - p);
                const int far = LLM__MIN(LLM__MAX(j - p, c->alibi), -c->alibi);
                if (c->alibi < 0) s[j] += (double)(1 + 0.5f * be_value(5, (uint32_t)(h * (1 - 2 * c->alibi) + far - c->alibi), 0, 0));
                if (c->window > 0 && (j <= p - c->window || j >= p + c->window)) s[j] = -1e300;
                if (c->window < 0 && j / -c->window != p / -c->window) s[j] = -1e300;
                top = LLM__MAX(top, s[j]);
            }
            for (int j = 0; j <= last; j++) {
                double w = exp(s[j] - top);
                sum += w;
                for (int d = 0; d < c->vd; d++) o[d] += w * be_input(c, id, j, (c->n_heads + c->n_kv) * c->hd + g * c->vd + d);
            }
            if (c->sinks) sum += exp(sink - top);
            for (int d = 0; d < c->vd; d++) worst = LLM__MAX(worst, fabs(o[d] / sum - (double)out[(p * c->n_heads + h) * c->vd + d]));
        }
    LLM_FREE(k);
    return worst;
}

static int be_same(const be_case *c, const float *a, const float *b, const int *len) {
    size_t width = (size_t)(c->n_heads * c->vd);
    for (int s = 0; s < 3; s++)
        if (memcmp(a + (size_t)s * BE_LEN * width, b + (size_t)s * BE_LEN * width, (size_t)len[s] * width * sizeof(float))) return 0;
    return 1;
}

static const be_case be_cases[] = {
    {"llama", 9, 3, 64, 64, 64, 0, 32, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, 0, LLM_KV_F32, 2e-5},
    {"llama f16", 9, 3, 64, 64, 64, 1, 16, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3},
    {"gemma", 4, 1, 256, 256, 256, 0, 64, LLM_QK_NORM_HEAD_RMS, 40, 0, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3},
    {"window 17", 2, 2, 16, 16, 16, 0, 16, LLM_QK_NORM_HEAD_RMS, 17, 0, 0, 0, 0, 0, 0, LLM_KV_F32, 2e-5},
    {"windows side by side", 4, 2, 16, 16, 16, 1, 16, LLM_QK_NORM_HEAD_RMS, -20, 0, 0, 0, 30, -0.3f, 0, LLM_KV_F32, 2e-5},
    {"windows of a page", 4, 1, 32, 32, 0, 0, 32, LLM_QK_NORM_NONE, -32, 0, 1, 0, 0, 0, 0, LLM_KV_BF16, 2e-2},
    {"both ways, windows side by side", 4, 2, 32, 32, 32, 0, 32, LLM_QK_NORM_NONE, -20, 1, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3},
    {"soft cap", 4, 2, 24, 24, 12, 1, 16, LLM_QK_NORM_HEAD_LAYER, 0, 0, 0, 0, 0, 0, 3, LLM_KV_F32, 2e-5},
    {"sinks, window", 8, 2, 32, 32, 32, 0, 32, LLM_QK_NORM_NONE, 33, 0, 1, 0, 0, 0, 0, LLM_KV_F16, 2e-3},
    {"alibi, no rope", 5, 5, 40, 40, 0, 0, 128, LLM_QK_NORM_WHOLE_RMS, 0, 0, 0, 1, 0, 0, 0, LLM_KV_F32, 2e-5},
    {"by distance", 5, 5, 40, 40, 0, 0, 64, LLM_QK_NORM_NONE, 0, 1, 0, -20, 0, 0, 0, LLM_KV_F32, 2e-5},
    {"by distance, soft cap, window", 6, 2, 32, 32, 32, 0, 16, LLM_QK_NORM_NONE, 30, 0, 1, -40, 0, 0, 3, LLM_KV_F32, 2e-5},
    {"by distance, bf16", 4, 2, 48, 48, 0, 0, 32, LLM_QK_NORM_NONE, 0, 0, 0, -7, 0, 0, 0, LLM_KV_BF16, 2e-2},
    {"wide values", 6, 2, 24, 16, 24, 0, 32, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3},
    {"narrow keys", 6, 1, 10, 33, 4, 1, 32, LLM_QK_NORM_NONE, 0, 0, 0, 0, 20, 0, 0, LLM_KV_F16, 2e-3},
    {"queries by a floor", 4, 2, 16, 16, 16, 0, 32, LLM_QK_NORM_NONE, 0, 0, 0, 0, 20, 0.3f, 0, LLM_KV_F32, 2e-5},
    {"30 heads of 80", 30, 1, 80, 80, 32, 0, 16, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3},
    {"both ways", 4, 2, 32, 32, 32, 0, 32, LLM_QK_NORM_NONE, 0, 1, 0, 0, 0, 0, 0, LLM_KV_F32, 2e-5},
    {"both ways, window", 4, 2, 32, 32, 32, 0, 32, LLM_QK_NORM_NONE, 20, 1, 0, 0, 0, 0, 0, LLM_KV_F32, 2e-5},
    {"bf16", 6, 2, 48, 48, 48, 0, 32, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, 0, LLM_KV_BF16, 2e-2},
    {"bf16, sinks, window", 8, 2, 32, 64, 32, 0, 32, LLM_QK_NORM_NONE, 33, 0, 1, 0, 0, 0, 0, LLM_KV_BF16, 2e-2},
    {"bf16, window, wide pages", 4, 2, 32, 32, 32, 0, 64, LLM_QK_NORM_NONE, 21, 0, 0, 0, 0, 0, 0, LLM_KV_BF16, 2e-2},
    {"bf16, soft cap", 4, 2, 24, 24, 12, 1, 16, LLM_QK_NORM_HEAD_LAYER, 0, 0, 0, 0, 0, 0, 3, LLM_KV_BF16, 2e-2},
    {"bf16, odd", 3, 1, 17, 19, 16, 0, 64, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, 0, LLM_KV_BF16, 2e-2},
    {"e4m3", 6, 2, 48, 48, 48, 0, 32, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, 0, LLM_KV_FP8_E4M3, 0.15},
    {"e5m2", 6, 2, 48, 48, 48, 0, 16, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, 0, LLM_KV_FP8_E5M2, 0.3},
    {"int8", 6, 2, 48, 48, 48, 0, 32, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, 0, LLM_KV_INT8, 2e-2},
    {"int8, odd", 3, 1, 17, 19, 16, 0, 64, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, 0, LLM_KV_INT8, 2e-2},
    {"int4", 6, 2, 48, 48, 48, 0, 32, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, 0, LLM_KV_INT4, 0.3},
    {"int4, odd", 3, 1, 17, 19, 16, 0, 16, LLM_QK_NORM_NONE, 50, 0, 0, 0, 0, 0, 0, LLM_KV_INT4, 0.3},
    {"norm behind RoPE", 4, 2, 32, 24, 24, 0, 16, LLM_QK_NORM_HEAD_RMS_LAST, 0, 0, 0, 0, 20, 0.3f, 0, LLM_KV_F32, 2e-5},
    {"norm behind pairs", 3, 1, 40, 40, 40, 1, 32, LLM_QK_NORM_HEAD_RMS_LAST, 0, 0, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3},
    {"norm and no RoPE", 2, 2, 16, 16, 0, 0, 32, LLM_QK_NORM_HEAD_RMS_LAST, 0, 0, 0, 0, 0, 0, 0, LLM_KV_F32, 2e-5},
};

static void be_test_attention(const char *isa) {
    static const int len[3] = {37, 1, 93};
    for (int i = 0; i < LLM__COUNT(be_cases); i++) {
        const be_case *c = &be_cases[i];
        float *first = NULL;
        for (int threads = 1; threads <= 3; threads++)
            for (int plan = 0; plan < 3; plan++) {
                be_net n;
                if (c->not_causal ? plan != 0 : threads > 1 && plan != 2) continue;
                be_net_open(&n, c, isa, threads);
                float *out = be_net_run(&n, plan, len, 11 + (uint32_t)threads);
                if (!first) {
                    double worst = 0;
                    for (int s = 0; s < 3; s++)
                        worst = LLM__MAX(worst, be_ref_error(c, s, len[s], out + (size_t)s * BE_LEN * (size_t)(c->n_heads * c->vd)));
                    if (!CHECK(worst < c->tolerance)) printf("  %s, %s: error %g of %g\n", c->name, isa, worst, c->tolerance);
                    first = out;
                } else {
                    if (!CHECK(be_same(c, first, out, len)))
                        printf("  %s, %s: plan %d with %d threads differs\n", c->name, isa, plan, threads);
                    free(out);
                }
                llm_backend_cpu()->close(n.ctx);
            }
        free(first);
    }
}

/* ---- the other operations ---- */

static void be_fill(llm_buffer *b, uint32_t seed, float spread) {
    for (int64_t i = 0; i < b->rows; i++)
        for (int64_t k = 0; k < b->cols; k++) b->data[i * b->stride + k] = spread * be_value(seed, (uint32_t)i, (uint32_t)k, 9);
}

/* A step of n rows of one sequence from position 0, the rows `out` being wanted. */
static void be_plain_step(test_step *b, int n, int n_out) {
    int32_t pages[BE_PAGES];
    for (int i = 0; i < BE_PAGES; i++) pages[i] = i;
    step_begin(b, BE_PAGES);
    step_add(b, 0, 0, n, pages);
    b->s.shape.n_out = n_out;
    for (int i = 0; i < n_out; i++) b->out_rows[i] = n - n_out + i;
}

/* norm of src in double; w and bias as be_random_vector makes them from these seeds (0: none). */
static void be_ref_norm(llm_norm_kind kind, const double *x, int n, uint32_t w, uint32_t bias, double eps, double *out) {
    double mean = 0, square = 0;
    for (int i = 0; i < n && kind == LLM_NORM_LAYER; i++) mean += x[i] / n;
    for (int i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++) {
        double v = kind == LLM_NORM_NONE ? x[i] : (x[i] - mean) / sqrt(square + eps);
        if (w) v *= (double)(1 + 0.5f * be_value(w, (uint32_t)i, 0, 0));
        if (kind && bias) v += (double)(1 + 0.5f * be_value(bias, (uint32_t)i, 0, 0));
        out[i] = v;
    }
}

enum { BE_WIDE = 203 };

/* x += scale * post_norm(sum of y); h = norm(x), in every combination, with 1 to 3 ranks. */
static void be_test_residual(const char *isa, int ranks, int threads) {
    const llm_backend *t = llm_backend_cpu();
    llm_backend_ctx *ctx = be_open(isa, threads, ranks, LLM_KV_F32);
    llm_buffer *x[3], *y[3], *h[3];
    llm_weight *w[3], *bias[3], *pw[3];
    static double sum[BE_WIDE], want_x[BE_WIDE], want_h[BE_WIDE];
    for (int r = 0; r < ranks; r++) {
        x[r] = be_buffer(ctx, r, BE_ROWS, BE_WIDE), y[r] = be_buffer(ctx, r, BE_ROWS, BE_WIDE), h[r] = be_buffer(ctx, r, BE_ROWS, BE_WIDE);
        w[r] = be_random_vector(ctx, r, BE_WIDE, 1), bias[r] = be_random_vector(ctx, r, BE_WIDE, 2),
        pw[r] = be_random_vector(ctx, r, BE_WIDE, 3);
    }
    be_done(ctx);
    for (int pick = 0; pick < 3 * 3 * 2 * 2 * 2; pick++) {
        llm_norm_kind kind = (llm_norm_kind)(pick % 3), post = (llm_norm_kind)(pick / 3 % 3);
        int replace = pick / 9 % 2, has_y = pick / 18 % 2, out_rows = pick / 36 % 2, n = 7, rows = out_rows ? 2 : n;
        double worst = 0;
        test_step b;
        be_plain_step(&b, n, 2);
        CHECK(t->begin_step(ctx, &b.s) == LLM_OK);
        for (int r = 0; r < ranks; r++) {
            llm_residual_op op;
            memset(&op, 0, sizeof op);
            be_fill(x[r], 5, 3), be_fill(y[r], 6 + (uint32_t)r, 2), be_fill(h[r], 50, 1);
            op.rows = out_rows ? LLM_ROWS_OUT : LLM_ROWS_TOKENS;
            op.x = x[r], op.y = has_y ? y[r] : NULL, op.h = h[r];
            op.scale = pick % 2 ? 0.5f : 0;
            op.post_kind = post, op.post_weight = pw[r];
            op.kind = kind, op.weight = w[r], op.bias = pick % 5 ? bias[r] : NULL;
            op.eps = 1e-4f;
            op.replace = replace;
            op.x_scale = pick % 4 == 3 ? 0.75f : 0;
            t->residual(ctx, r, &op);
        }
        CHECK(t->end_step(ctx) == LLM_OK && t->wait(ctx) == LLM_OK);
        for (int r = 0; r < ranks; r++)
            for (int i = 0; i < rows; i++) {
                for (int k = 0; k < BE_WIDE; k++) {
                    sum[k] = 0;
                    for (int q = 0; q < ranks; q++) sum[k] += (double)(2 * be_value(6 + (uint32_t)q, (uint32_t)i, (uint32_t)k, 9));
                }
                be_ref_norm(post, sum, BE_WIDE, 3, 0, 1e-4, sum);
                for (int k = 0; k < BE_WIDE; k++)
                    want_x[k] = (double)(3 * be_value(5, (uint32_t)i, (uint32_t)k, 9)) + (has_y ? sum[k] * (pick % 2 ? 0.5 : 1) : 0);
                for (int k = 0; k < BE_WIDE && pick % 4 == 3; k++) want_x[k] *= 0.75;
                be_ref_norm(kind, want_x, BE_WIDE, 1, pick % 5 ? 2 : 0, 1e-4, want_h);
                for (int k = 0; k < BE_WIDE; k++) {
                    double got_x = x[r]->data[i * x[r]->stride + k], got_h = h[r]->data[i * h[r]->stride + k];
                    worst = LLM__MAX(worst, fabs(got_x - (replace && kind ? want_h[k] : want_x[k])));
                    if (kind) worst = LLM__MAX(worst, fabs(got_h - want_h[k]));
                }
            }
        if (!CHECK(worst < 2e-5)) printf("  residual %d, %s, %d ranks: error %g\n", pick, isa, ranks, worst);
        CHECK(x[0]->data[rows * x[0]->stride] == 3 * be_value(5, (uint32_t)rows, 0, 9)); /* the row after the last is untouched */
    }
    t->close(ctx);
}

/* rope tables with variants, a changed base and three position rows; norm, gate, gather, all_reduce. */
static void be_test_rows(const char *isa, int ranks) {
    const llm_backend *t = llm_backend_cpu();
    llm_backend_ctx *ctx = be_open(isa, 2, ranks, LLM_KV_F32);
    llm_buffer *rope[2], *a[2], *c[2], *g[2], *wide[2];
    llm_weight *freq[2], *w[2];
    static const float scale[2] = {1, 1.25f};
    double worst = 0, row[BE_WIDE], want[BE_WIDE];
    for (int r = 0; r < ranks; r++) {
        rope[r] = be_buffer(ctx, r, BE_ROWS, 20), a[r] = be_buffer(ctx, r, BE_ROWS, BE_WIDE), c[r] = be_buffer(ctx, r, BE_ROWS, 100),
        g[r] = be_buffer(ctx, r, BE_ROWS, 1), wide[r] = be_buffer(ctx, r, BE_ROWS, 2 * BE_WIDE + 1);
        freq[r] = be_random_vector(ctx, r, 20, 4), w[r] = be_random_vector(ctx, r, 90, 5);
        be_fill(a[r], 20 + (uint32_t)r, 1), be_fill(c[r], 30, 1), be_fill(g[r], 40, 4);
    }
    be_done(ctx);
    test_step b;
    be_plain_step(&b, 9, 3);
    b.s.n_position_rows = 3;
    b.seq_rope[0] = 1;
    b.rope_base[0] = 3;
    for (int i = 0; i < 27; i++) b.positions[i] = 7 * i;
    CHECK(t->begin_step(ctx, &b.s) == LLM_OK);
    for (int r = 0; r < ranks; r++) {
        llm_rope_op ro;
        llm_norm_op no;
        llm_gate_op go;
        memset(&ro, 0, sizeof ro);
        memset(&no, 0, sizeof no);
        memset(&go, 0, sizeof go);
        ro.dst = rope[r], ro.inv_freq = freq[r], ro.n_variants = 2, ro.rope_dim = 20, ro.scale = scale;
        static const int8_t row_of[] = {0, 0, 1, 1, 1, 2, 2, 2, 2, 2};
        ro.row_of = row_of;
        no.dst = c[r], no.src = a[r], no.src_col = 11, no.n = 90, no.kind = LLM_NORM_RMS, no.weight = w[r], no.eps = 1e-5f;
        memset(&go, 0, sizeof go);
        go.dst = c[r], go.gate = g[r], go.n = 40;
        t->rope(ctx, r, &ro);
        t->norm(ctx, r, &no);
        t->gate(ctx, r, &go);
        t->all_reduce(ctx, r, LLM_ROWS_TOKENS, a[r], 17);
        const llm_gather_op gather = {c[r], a[r], 1, 0, 0, 0}, left = {wide[r], a[r], 1, 0, 0, 0},
                            right = {wide[r], a[r], 1, 0, BE_WIDE + 1, 0};
        t->gather(ctx, r, &gather);
        t->gather(ctx, r, &right);
        t->gather(ctx, r, &left);
    }
    CHECK(t->end_step(ctx) == LLM_OK && t->wait(ctx) == LLM_OK);
    for (int i = 0; i < 9; i++)
        for (int k = 0; k < 10; k++) {
            int place = (k < 2 ? 0 : k < 5 ? 9 : 18) + i;
            double f = (double)(1 + 0.5f * be_value(4, (uint32_t)(10 + k), 0, 0)) * pow(3, -2.0 * k / 20), angle = f * 7 * place;
            worst = LLM__MAX(worst, fabs(t->buffer_row(ctx, 0, rope[0], i)[k] - 1.25 * cos(angle)));
            worst = LLM__MAX(worst, fabs(t->buffer_row(ctx, 0, rope[0], i)[10 + k] - 1.25 * sin(angle)));
        }
    CHECK(worst < 1e-6);
    for (int r = 0; r < ranks; r++)
        for (int i = 3; i < 9; i++) { /* rows 0 to 2 were gathered over */
            const float *got = t->buffer_row(ctx, r, c[r], i);
            for (int k = 0; k < 90; k++) row[k] = (double)be_value(20 + (uint32_t)r, (uint32_t)i, (uint32_t)(11 + k), 9);
            be_ref_norm(LLM_NORM_RMS, row, 90, 5, 0, 1e-5, want);
            for (int k = 0; k < 40; k++) want[k] /= 1 + exp(-4 * (double)be_value(40, (uint32_t)i, 0, 9));
            for (int k = 0; k < 90; k++) worst = LLM__MAX(worst, fabs(want[k] - got[k]));
        }
    CHECK(worst < 3e-6);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < 100; k++) {
                float sum = be_value(20, (uint32_t)(6 + i), (uint32_t)k, 9);
                if (ranks == 2)
                    sum = k < 17 ? sum + be_value(21, (uint32_t)(6 + i), (uint32_t)k, 9)
                                 : be_value(20 + (uint32_t)r, (uint32_t)(6 + i), (uint32_t)k, 9);
                worst = LLM__MAX(worst, (double)fabsf(t->buffer_row(ctx, r, c[r], i)[k] - sum));
            }
    CHECK(worst < 3e-6);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < 3; i++) {
            const float *left = t->buffer_row(ctx, r, wide[r], i), *from = t->buffer_row(ctx, r, a[r], 6 + i);
            CHECK(!memcmp(left, from, BE_WIDE * sizeof *left) && !memcmp(left + BE_WIDE + 1, from, BE_WIDE * sizeof *left));
        }
    t->close(ctx);
}

/* Norms side by side that are added to what is there, go through GELU, or are bounds and no norms, a gate for each value, and columns of rows that are gathered from further right. */
static void be_test_own(const char *isa) {
    const llm_backend *t = llm_backend_cpu();
    llm_backend_ctx *ctx = be_open(isa, 2, 1, LLM_KV_F32);
    llm_buffer *a = be_buffer(ctx, 0, BE_ROWS, BE_WIDE), *c = be_buffer(ctx, 0, BE_ROWS, 60), *out = be_buffer(ctx, 0, BE_ROWS, 40);
    llm_buffer *curved = be_buffer(ctx, 0, BE_ROWS, 60), *kept = be_buffer(ctx, 0, BE_ROWS, 60);
    const llm_weight *w = be_random_vector(ctx, 0, 20, 5);
    double worst = 0, row[20], want[60];
    be_done(ctx);
    test_step b;
    be_plain_step(&b, 9, 3);
    be_fill(a, 20, 1), be_fill(c, 30, 2);
    const llm_norm_op norm = {.rows = LLM_ROWS_TOKENS,
                              .dst = c,
                              .src = a,
                              .src_col = 11,
                              .n = 20,
                              .kind = LLM_NORM_RMS,
                              .weight = w,
                              .eps = 1e-5f,
                              .parts = 3,
                              .add = 1};
    const llm_gate_op gate = {.rows = LLM_ROWS_TOKENS, .dst = c, .gate = a, .n = 50, .each = 1, .col = 7, .act = LLM_GATE_PLAIN},
                      chosen = {.rows = LLM_ROWS_OUT, .dst = out, .gate = c, .n = 40, .each = 1, .col = 3, .act = LLM_GATE_PLAIN};
    const llm_gather_op gather = {.dst = out, .src = c, .src_col = 15};
    llm_norm_op gelu = norm;
    gelu.dst = curved, gelu.kind = LLM_NORM_LAYER, gelu.add = 0, gelu.gelu = 1;
    llm_norm_op bound = norm;
    bound.dst = kept, bound.kind = LLM_NORM_BOUND, bound.add = 0, bound.low = -0.3f, bound.high = 0.5f;
    llm_gate_op curve = gate;
    curve.dst = kept, curve.n = 60, curve.act = LLM_GATE_GELU_TANH;
    CHECK(t->begin_step(ctx, &b.s) == LLM_OK);
    t->norm(ctx, 0, &norm);
    t->norm(ctx, 0, &gelu);
    t->norm(ctx, 0, &bound);
    t->gate(ctx, 0, &curve);
    t->gate(ctx, 0, &gate);
    t->gather(ctx, 0, &gather);
    t->gate(ctx, 0, &chosen); /* of rows that were gathered, by rows of the same number */
    CHECK(t->end_step(ctx) == LLM_OK && t->wait(ctx) == LLM_OK);
    for (int i = 0; i < 9; i++) {
        const uint32_t r = (uint32_t)i;
        for (int part = 0; part < 3; part++) {
            for (int k = 0; k < 20; k++) row[k] = (double)be_value(20, r, (uint32_t)(11 + 20 * part + k), 9);
            be_ref_norm(LLM_NORM_RMS, row, 20, 5, 0, 1e-5, want + 20 * part);
            double level[20];
            be_ref_norm(LLM_NORM_LAYER, row, 20, 5, 0, 1e-5, level);
            for (int k = 0; k < 20; k++)
                worst = LLM__MAX(
                    worst, fabs(level[k] * 0.5 * erfc(-level[k] * sqrt(0.5)) - (double)t->buffer_row(ctx, 0, curved, i)[20 * part + k]));
        }
        for (int k = 0; k < 60; k++) {
            const double g = (double)be_value(20, r, (uint32_t)(7 + k), 9),
                         tanh_g = tanh(sqrt(2 / 3.14159265358979) * (g + 0.044715 * g * g * g));
            const double v = (double)be_value(20, r, (uint32_t)(11 + k), 9) * (1 + 0.5 * (double)be_value(5, (uint32_t)(k % 20), 0, 0));
            const double kept_v = v < -0.3 ? -0.3 : v > 0.5 ? 0.5 : v;
            worst = LLM__MAX(worst, fabs(kept_v * 0.5 * g * (1 + tanh_g) - (double)t->buffer_row(ctx, 0, kept, i)[k]));
            want[k] += 2 * (double)be_value(30, r, (uint32_t)k, 9);
            if (k < 50) want[k] *= (double)be_value(20, r, (uint32_t)(7 + k), 9);
            worst = LLM__MAX(worst, fabs(want[k] - (double)t->buffer_row(ctx, 0, c, i)[k]));
        }
    }
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 40; k++) {
            const double from = (double)t->buffer_row(ctx, 0, c, 6 + i)[15 + k], by = (double)t->buffer_row(ctx, 0, c, i)[3 + k];
            worst = LLM__MAX(worst, fabs((double)t->buffer_row(ctx, 0, out, i)[k] - from * by));
        }
    if (!CHECK(worst < 6e-6)) printf("  own values, %s: error %g\n", isa, worst);
    t->close(ctx);
}

/* ---- routing ---- */

/* 1 if SparseMixer leaves out a logit beside the best. */
static int be_far(const llm_route_op *op, double best, double logit) {
    return (best - logit) / LLM__MAX(fabs(logit), best) > (double)op->near;
}

/* The definition, by repeated search. */
static void be_ref_route(const llm_route_op *op, const float *correction, const float *logits, int *ids, double *weights) {
    double score[64], choice[64], top = -1e300, sum = 0;
    int used[64] = {0}, n = op->n_experts, size = op->n_group > 1 ? n / op->n_group : n;
    for (int i = 0; i < n; i++) top = LLM__MAX(top, logits[i]);
    for (int i = 0; i < n; i++) sum += exp(logits[i] - top);
    for (int i = 0; i < n; i++) {
        score[i] = op->score == LLM_ROUTE_SOFTMAX   ? exp(logits[i] - top) / sum
                   : op->score == LLM_ROUTE_SIGMOID ? 1 / (1 + exp(-(double)logits[i]))
                                                    : (double)logits[i];
        choice[i] = score[i] + (correction ? (double)correction[i] : 0);
    }
    double group[64];
    for (int g = 0; g < n / size; g++) {
        double best = -1e300, second = -1e300;
        for (int i = g * size; i < (g + 1) * size; i++) {
            if (choice[i] > best) second = best, best = choice[i];
            else if (choice[i] > second) second = choice[i];
        }
        group[g] = op->group_top2 && size > 1 ? best + second : best;
    }
    for (int g = 0; g < n / size && op->n_group > 1; g++) {
        int better = 0;
        for (int k = 0; k < n / size; k++) better += group[k] > group[g] || (group[k] == group[g] && k < g);
        for (int i = g * size; i < (g + 1) * size; i++) used[i] = better >= op->topk_group;
    }
    sum = 0;
    for (int k = 0; k < op->k; k++) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!used[i] && (best < 0 || choice[i] > choice[best])) best = i;
        used[best] = 1;
        ids[k] = best;
        weights[k] = op->score == LLM_ROUTE_TOPK_SOFTMAX ? exp(score[best] - (k ? (double)logits[ids[0]] : score[best])) : score[best];
        double near = 1; /* SparseMixer's softmax over the best of those left and what is near it */
        for (int i = 0; i < n; i++) near += used[i] || be_far(op, score[best], score[i]) ? 0 : exp(score[i] - score[best]);
        if (op->score == LLM_ROUTE_SPARSEMIXER) weights[k] = 1 / near;
        sum += weights[k];
    }
    for (int k = 0; k < op->k; k++) {
        if (op->score == LLM_ROUTE_TOPK_SOFTMAX) weights[k] /= sum;
        else if (op->normalize) weights[k] /= LLM__MAX(sum, (double)op->normalize_min);
        weights[k] *= op->scale != 0 ? (double)op->scale : 1;
    }
}

static void be_test_route(void) {
    /* clang-format off */
    static const struct { int n, k, score, correction, groups, keep, top2, normalize; float min, scale; } cases[] = {
        {8, 2, LLM_ROUTE_SOFTMAX, 0, 0, 0, 0, 1, 0, 0}, {64, 6, LLM_ROUTE_SOFTMAX, 0, 8, 3, 0, 0, 0, 16}, {32, 4, LLM_ROUTE_TOPK_SOFTMAX, 0, 0, 0, 0, 0, 0, 0},
        {64, 8, LLM_ROUTE_SIGMOID, 1, 8, 4, 1, 1, 0, 2.5f}, {64, 6, LLM_ROUTE_SOFTMAX, 1, 1, 0, 0, 1, 0.5f, 0}, {4, 4, LLM_ROUTE_SOFTMAX, 0, 0, 0, 0, 0, 0, 0},
        {6, 2, LLM_ROUTE_SIGMOID, 0, 6, 2, 1, 0, 0, 0}, {16, 2, LLM_ROUTE_SPARSEMIXER, 0, 0, 0, 0, 0, 0, 0}, {5, 3, LLM_ROUTE_SPARSEMIXER, 0, 0, 0, 0, 0, 0, 0},
    };
    /* clang-format on */
    const llm_backend *t = llm_backend_cpu();
    for (int i = 0; i < LLM__COUNT(cases); i++) {
        llm_backend_ctx *ctx = be_open(NULL, 2, 1, LLM_KV_F32);
        llm_buffer *logits = be_buffer(ctx, 0, BE_ROWS, cases[i].n), *dst = be_buffer(ctx, 0, BE_ROWS, 2 * cases[i].k);
        float *correction = be_floats(cases[i].n, 77, 0, 0.2f), kept[64];
        llm_weight *w = be_vector(ctx, 0, correction, cases[i].n, LLM_ROLE_VECTOR);
        llm_route_op op;
        test_step b;
        memcpy(kept, correction, (size_t)cases[i].n * sizeof *kept);
        be_done(ctx);
        be_fill(logits, 60 + (uint32_t)i, 3);
        for (int k = 0; k < cases[i].n; k++) {
            logits->data[k] = 0.5f;                                                          /* row 0: all equal */
            logits->data[logits->stride + k] = floorf(2 * logits->data[logits->stride + k]); /* row 1: many equal */
        }
        memset(&op, 0, sizeof op);
        op.dst = dst, op.logits = logits, op.n_experts = cases[i].n, op.k = cases[i].k, op.score = (llm_route_score)cases[i].score;
        op.correction = cases[i].correction ? w : NULL;
        op.by = i % 3 == 1 ? w : NULL;
        op.n_group = cases[i].groups, op.topk_group = cases[i].keep, op.group_top2 = cases[i].top2;
        op.normalize = cases[i].normalize, op.normalize_min = cases[i].min, op.scale = cases[i].scale, op.near = 0.5f;
        be_plain_step(&b, BE_ROWS, 0);
        CHECK(t->begin_step(ctx, &b.s) == LLM_OK);
        t->route(ctx, 0, &op);
        CHECK(t->end_step(ctx) == LLM_OK && t->wait(ctx) == LLM_OK);
        int same = 1;
        for (int r = 0; r < BE_ROWS; r++) {
            int ids[64];
            double weights[64];
            be_ref_route(&op, cases[i].correction ? kept : NULL, logits->data + r * logits->stride, ids, weights);
            for (int k = 0; k < op.k; k++) {
                if (op.by) weights[k] *= (double)kept[ids[k]];
                const float *got = dst->data + r * dst->stride;
                same &= (int)got[k] == ids[k] && fabs((double)got[op.k + k] - weights[k]) < 1e-5 * (1 + fabs(weights[k]));
            }
        }
        if (!CHECK(same)) printf("  route case %d\n", i);
        t->close(ctx);
    }
}

/* ---- latent attention ---- */

enum { BE_MLA_HEADS = 5, BE_MLA_NOPE = 12, BE_MLA_ROPE = 8, BE_MLA_V = 10, BE_MLA_RANK = 20, BE_MLA_LEN = 70 };

enum { BE_MLA_UP = BE_MLA_HEADS * (BE_MLA_NOPE + BE_MLA_V) * BE_MLA_RANK, BE_MLA_R = 6 };

/* An adapter of kv_b in a slot: A (r, rank), B as (r, rows of kv_b). add: B A is added to kv_b as well, for the naive form. */
static void be_mla_adapt(llm_backend_ctx *ctx, llm_lora_site *site, int slot, float *add) {
    const int rows = BE_MLA_UP / BE_MLA_RANK;
    float *a = be_floats(BE_MLA_R * BE_MLA_RANK, 60 + (uint32_t)slot, 0, 0.4f),
          *b = be_floats(BE_MLA_R * rows, 70 + (uint32_t)slot, 0, 0.4f);
    llm_segment s[2];
    llm_weight_desc d[2];
    memset(s, 0, sizeof s);
    memset(d, 0, sizeof d);
    for (int k = 0; k < 2; k++) {
        s[k].data = k ? b : a, s[k].n_cols = s[k].stored_cols = d[k].cols = k ? rows : BE_MLA_RANK, s[k].n_rows = d[k].rows = BE_MLA_R;
        d[k].name = "kv_b's", d[k].role = LLM_ROLE_MLA_UP, d[k].segments = &s[k], d[k].n_segments = 1;
    }
    llm_lora_part part = {0, &d[0], &d[1]};
    CHECK(llm_backend_cpu()->lora_put(ctx, 0, site, slot, &part, 1) == LLM_OK);
    for (int i = 0; add && i < BE_MLA_UP; i++)
        for (int k = 0; k < BE_MLA_R; k++) add[i] += a[k * BE_MLA_RANK + i % BE_MLA_RANK] * b[k * rows + i / BE_MLA_RANK];
}

/* The naive form: keys and values of every head are made from the latents. */
static double be_ref_mla_error(const float *up, const float *kv_norm, const float *out) {
    static double latent[BE_MLA_LEN][BE_MLA_RANK], key_rope[BE_MLA_LEN][BE_MLA_ROPE];
    double worst = 0;
    for (int p = 0; p < BE_MLA_LEN; p++) {
        double square = 0;
        for (int d = 0; d < BE_MLA_RANK; d++) square += pow((double)be_value(2, (uint32_t)p, (uint32_t)d, 0), 2) / BE_MLA_RANK;
        for (int d = 0; d < BE_MLA_RANK; d++)
            latent[p][d] = (double)be_value(2, (uint32_t)p, (uint32_t)d, 0) / sqrt(square + 1e-6) * (double)kv_norm[d];
        for (int i = 0; i < BE_MLA_ROPE / 2; i++) {
            double angle = p * (double)be_freq(i, BE_MLA_ROPE / 2),
                   u = (double)be_value(2, (uint32_t)p, (uint32_t)(BE_MLA_RANK + 2 * i), 0);
            double v = (double)be_value(2, (uint32_t)p, (uint32_t)(BE_MLA_RANK + 2 * i + 1), 0);
            key_rope[p][2 * i] = u * cos(angle) - v * sin(angle), key_rope[p][2 * i + 1] = v * cos(angle) + u * sin(angle);
        }
    }
    for (int p = 0; p < BE_MLA_LEN; p++)
        for (int h = 0; h < BE_MLA_HEADS; h++) {
            double s[BE_MLA_LEN], sum = 0, o[BE_MLA_V] = {0};
            const float *w = up + h * (BE_MLA_NOPE + BE_MLA_V) * BE_MLA_RANK;
            for (int j = 0; j <= p; j++) {
                double dot = 0;
                for (int d = 0; d < BE_MLA_NOPE; d++)
                    for (int r = 0; r < BE_MLA_RANK; r++)
                        dot += (double)be_value(1, (uint32_t)p, (uint32_t)(h * (BE_MLA_NOPE + BE_MLA_ROPE) + d), 0) *
                               (double)w[d * BE_MLA_RANK + r] * latent[j][r];
                for (int i = 0; i < BE_MLA_ROPE / 2; i++) {
                    double angle = p * (double)be_freq(i, BE_MLA_ROPE / 2);
                    double u = (double)be_value(1, (uint32_t)p, (uint32_t)(h * (BE_MLA_NOPE + BE_MLA_ROPE) + BE_MLA_NOPE + 2 * i), 0);
                    double v = (double)be_value(1, (uint32_t)p, (uint32_t)(h * (BE_MLA_NOPE + BE_MLA_ROPE) + BE_MLA_NOPE + 2 * i + 1), 0);
                    dot +=
                        (u * cos(angle) - v * sin(angle)) * key_rope[j][2 * i] + (v * cos(angle) + u * sin(angle)) * key_rope[j][2 * i + 1];
                }
                sum += s[j] = exp(0.3 * dot);
            }
            for (int j = 0; j <= p; j++)
                for (int d = 0; d < BE_MLA_V; d++)
                    for (int r = 0; r < BE_MLA_RANK; r++)
                        o[d] += s[j] / sum * (double)w[(BE_MLA_NOPE + d) * BE_MLA_RANK + r] * latent[j][r];
            for (int d = 0; d < BE_MLA_V; d++) worst = LLM__MAX(worst, fabs(o[d] - (double)out[(p * BE_MLA_HEADS + h) * BE_MLA_V + d]));
        }
    return worst;
}

/* adapted: the sequence has an adapter; in the third run another sequence, with another adapter, stands before it, and one without behind it. */
static void be_test_mla(const char *isa, llm_kv_type kv, int adapted, double tolerance) {
    static const int chunks[3] = {BE_MLA_LEN, 1, 23};
    const llm_backend *t = llm_backend_cpu();
    enum { UP = BE_MLA_UP, OUT = BE_MLA_HEADS * BE_MLA_V };
    static float first[BE_MLA_LEN * OUT], out[BE_MLA_LEN * OUT], up_kept[UP], norm_kept[BE_MLA_RANK];
    for (int run = 0; run < 3; run++) {
        llm_backend_ctx *ctx = be_open(isa, 1 + run, 1, kv);
        llm_kv_layer layer = {1, BE_MLA_RANK + BE_MLA_ROPE, 0, 0};
        llm_buffer *q = be_buffer(ctx, 0, BE_ROWS, BE_MLA_HEADS * (BE_MLA_NOPE + BE_MLA_ROPE)),
                   *kv_a = be_buffer(ctx, 0, BE_ROWS, BE_MLA_RANK + BE_MLA_ROPE);
        llm_buffer *rope = be_buffer(ctx, 0, BE_ROWS, BE_MLA_ROPE), *dst = be_buffer(ctx, 0, BE_ROWS, OUT);
        float *up = be_floats(UP, 3, 0, 0.5f), *norm = be_floats(BE_MLA_RANK, 4, 1, 0.5f), *freq = be_floats(BE_MLA_ROPE / 2, 0, 0, 0);
        llm_segment s;
        llm_weight_desc d;
        llm_mla_op op;
        llm_rope_op ro;
        int32_t pages[BE_PAGES], others[2][BE_PAGES] = {{0}};
        const int beside = adapted && run == 2;
        static const int32_t alone[1] = {1}, among[3] = {0, 1, -1};
        llm_lora_site *site = NULL;
        memset(&s, 0, sizeof s);
        memset(&d, 0, sizeof d);
        memset(&op, 0, sizeof op);
        memset(&ro, 0, sizeof ro);
        for (int i = 0; i < BE_PAGES; i++) pages[i] = (i * 5 + run) % BE_PAGES;
        others[0][0] = BE_PAGES, others[1][0] = BE_PAGES + 1;
        for (int i = 0; i < BE_MLA_ROPE / 2; i++) freq[i] = be_freq(i, BE_MLA_ROPE / 2);
        memcpy(up_kept, up, sizeof up_kept);
        memcpy(norm_kept, norm, sizeof norm_kept);
        s.data = up, s.stored_cols = s.n_cols = d.cols = BE_MLA_RANK, s.n_rows = d.rows = UP / BE_MLA_RANK;
        d.name = "kv_b", d.role = LLM_ROLE_MLA_UP, d.segments = &s, d.n_segments = 1, d.n_heads = BE_MLA_HEADS, d.n_keys = BE_MLA_NOPE;
        llm_weight *kv_b = NULL;
        CHECK(t->weight(ctx, 0, &d, &kv_b) == LLM_OK);
        op.dst = dst, op.q = q, op.kv_a = kv_a, op.kv_norm = be_vector(ctx, 0, norm, BE_MLA_RANK, LLM_ROLE_VECTOR), op.kv_b = kv_b,
        op.rope = rope;
        op.eps = 1e-6f, op.scale = 0.3f, op.rope_interleaved = 1;
        op.n_heads = BE_MLA_HEADS, op.nope = BE_MLA_NOPE, op.rope_dim = BE_MLA_ROPE, op.v_dim = BE_MLA_V, op.rank = BE_MLA_RANK;
        ro.dst = rope, ro.inv_freq = be_vector(ctx, 0, freq, BE_MLA_ROPE / 2, LLM_ROLE_VECTOR), ro.n_variants = 1,
        ro.rope_dim = BE_MLA_ROPE;
        be_done(ctx);
        CHECK(t->lora_site(ctx, 0, 2, &site) == LLM_OK);
        be_mla_adapt(ctx, site, 0, NULL);
        be_mla_adapt(ctx, site, 1, adapted ? up_kept : NULL);
        CHECK(t->kv_open(ctx, 1, &layer, 16, BE_PAGES + 2) == LLM_OK);
        for (int at = 0, n; at < BE_MLA_LEN; at += n) {
            test_step b;
            n = LLM__MIN(chunks[run], BE_MLA_LEN - at);
            step_begin(&b, BE_PAGES);
            if (beside) step_add(&b, 1, at / 23, 1, others[0]);
            step_add(&b, 0, at, n, pages);
            if (beside) step_add(&b, 2, at / 23, 1, others[1]);
            b.s.seq_lora = adapted ? beside ? among : alone : NULL;
            b.s.shape.lora = adapted;
            op.lora = adapted ? site : NULL;
            for (int r = 0; r < n + 2 * beside; r++) {
                uint32_t place = (uint32_t)(at + r - beside);
                for (int k = 0; k < q->cols; k++) q->data[r * q->stride + k] = be_value(1, place, (uint32_t)k, 0);
                for (int k = 0; k < kv_a->cols; k++) kv_a->data[r * kv_a->stride + k] = be_value(2, place, (uint32_t)k, 0);
            }
            CHECK(t->begin_step(ctx, &b.s) == LLM_OK);
            t->rope(ctx, 0, &ro);
            t->mla(ctx, 0, &op);
            CHECK(t->end_step(ctx) == LLM_OK && t->wait(ctx) == LLM_OK);
            for (int r = 0; r < n; r++) memcpy(out + (at + r) * OUT, dst->data + (r + beside) * dst->stride, OUT * sizeof *out);
        }
        if (!run) memcpy(first, out, sizeof out);
        CHECK(!memcmp(first, out, sizeof out));
        t->close(ctx);
    }
    double error = be_ref_mla_error(up_kept, norm_kept, first);
    if (!CHECK(error < tolerance)) printf("  mla %s, kv type %d, adapted %d: error %g\n", isa, (int)kv, adapted, error);
}

/* ---- recording: random programs give the same bits with any number of threads, and with every copy made anew ---- */

enum { BE_PROGRAM_BUFFERS = 5, BE_PROGRAM_COLS = 96 };

typedef struct be_program {
    llm_backend_ctx *ctx;
    llm_buffer *b[2][BE_PROGRAM_BUFFERS], *gate[2];
    llm_weight *linear[2][3], *norm[2], *head[2];
    float begin[2][BE_PROGRAM_BUFFERS][BE_ROWS][BE_PROGRAM_COLS]; /* what the buffers have at first */
} be_program;

static llm_weight *be_matrix(llm_backend_ctx *ctx, int rank, int rows, int type, uint32_t seed, llm_role role) {
    llm_segment s;
    llm_weight_desc d;
    llm_weight *w = NULL;
    uint8_t *data = (uint8_t *)llm__arena_get(&be_memory, (size_t)(rows * BE_PROGRAM_COLS) * 4);
    memset(&s, 0, sizeof s);
    memset(&d, 0, sizeof d);
    for (int i = 0; i < rows * BE_PROGRAM_COLS && type == LLM_TYPE_F32; i++)
        ((float *)(void *)data)[i] = 0.2f * be_value(seed, (uint32_t)i, 1, 0);
    for (int i = 0; i < rows * BE_PROGRAM_COLS / 32 && type == LLM_TYPE_Q8_0; i++) {
        data[34 * i] = 0x00, data[34 * i + 1] = 0x14; /* a scale of 2^-10 */
        for (int k = 0; k < 32; k++) data[34 * i + 2 + k] = (uint8_t)(int8_t)(100 * be_value(seed, (uint32_t)i, (uint32_t)k, 2));
    }
    s.data = data, s.type = type, s.stored_cols = s.n_cols = d.cols = BE_PROGRAM_COLS, s.n_rows = d.rows = rows;
    d.name = "matrix", d.role = role, d.segments = &s, d.n_segments = 1;
    CHECK(llm_backend_cpu()->weight(ctx, rank, &d, &w) == LLM_OK);
    return w;
}

static void be_program_open(be_program *p, int threads, int ranks) {
    p->ctx = be_open(NULL, threads, ranks, LLM_KV_F16);
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < BE_PROGRAM_BUFFERS; i++) {
            llm_buffer *b = p->b[r][i] = be_buffer(p->ctx, r, BE_ROWS, BE_PROGRAM_COLS);
            be_fill(b, (uint32_t)(i + 7 * r), 1);
            for (int k = 0; k < BE_ROWS; k++) memcpy(p->begin[r][i][k], b->data + k * b->stride, sizeof p->begin[r][i][k]);
        }
        p->gate[r] = be_buffer(p->ctx, r, BE_ROWS, 1);
        for (int i = 0; i < 3; i++)
            p->linear[r][i] =
                be_matrix(p->ctx, r, BE_PROGRAM_COLS, i ? LLM_TYPE_Q8_0 : LLM_TYPE_F32, (uint32_t)(10 * r + i), LLM_ROLE_LINEAR);
        p->norm[r] = be_random_vector(p->ctx, r, BE_PROGRAM_COLS, 1);
        p->head[r] = be_matrix(p->ctx, r, 40, LLM_TYPE_Q8_0, 8 + (uint32_t)r, LLM_ROLE_HEAD);
    }
    be_done(p->ctx);
}

static void be_program_op(be_program *p, int r, uint32_t seed, int fresh) {
    const llm_backend *t = llm_backend_cpu();
    int kind = (int)(be_next(&seed) % 8);
    uint32_t pick = be_next(&seed);
    llm_buffer *x = p->b[r][pick % 5], *y = p->b[r][pick / 5 % 5], *z = p->b[r][pick / 25 % 5];
    llm_rows rows = pick / 125 % 4 ? LLM_ROWS_TOKENS : LLM_ROWS_OUT;
    for (int i = 0; i < BE_PROGRAM_BUFFERS && fresh; i++) p->b[r][i]->form = 0;
    if (kind < 4 && x != y) {
        llm_linear_op op;
        memset(&op, 0, sizeof op);
        op.rows = rows, op.dst = x, op.src = y, op.weight = p->linear[r][pick / 500 % 3], op.add = (int)(pick / 1500 % 2);
        t->linear(p->ctx, r, &op);
    } else if (kind == 4 && x != y && y != z && x != z) {
        llm_residual_op op;
        memset(&op, 0, sizeof op);
        op.rows = rows, op.x = x, op.y = y, op.h = z, op.kind = LLM_NORM_RMS, op.weight = p->norm[r], op.eps = 1e-5f;
        t->residual(p->ctx, r, &op);
    } else if (kind == 5) {
        llm_norm_op op;
        memset(&op, 0, sizeof op);
        op.rows = rows, op.dst = x, op.src = y, op.n = BE_PROGRAM_COLS, op.kind = LLM_NORM_LAYER, op.eps = 1e-5f;
        t->norm(p->ctx, r, &op);
    } else if (kind == 6) {
        llm_gate_op op;
        memset(&op, 0, sizeof op);
        op.dst = x, op.gate = p->gate[r], op.n = BE_PROGRAM_COLS;
        t->gate(p->ctx, r, &op);
    } else if (pick % 2 && x != y) {
        const llm_gather_op gather = {x, y, 1, 0, 0, 0};
        t->gather(p->ctx, r, &gather);
    } else {
        t->all_reduce(p->ctx, r, rows, x, BE_PROGRAM_COLS);
    }
}

/* Hash of everything a random program leaves behind. */
static uint64_t be_program_run(be_program *p, int ranks, uint32_t seed, int fresh) {
    const llm_backend *t = llm_backend_cpu();
    static const int sizes[6] = {1, 2, 3, 17, 40, BE_ROWS};
    int n = sizes[seed % 6], n_out = LLM__MIN(n, (int)(seed / 6 % 4));
    uint64_t h = 0;
    test_step b;
    be_plain_step(&b, n, n_out);
    CHECK(t->begin_step(p->ctx, &b.s) == LLM_OK);
    for (int r = 0; r < ranks; r++) {
        uint32_t state = seed;
        for (int i = 0; i < BE_PROGRAM_BUFFERS; i++) {
            const llm_buffer *to = p->b[r][i];
            for (int k = 0; k < BE_ROWS; k++) memcpy(to->data + k * to->stride, p->begin[r][i][k], sizeof p->begin[r][i][k]);
        }
        be_fill(p->gate[r], 3, 1);
        for (int i = 0; i < 25; i++) be_program_op(p, r, be_next(&state), fresh);
        llm_logits_op op;
        memset(&op, 0, sizeof op);
        op.src = p->b[r][0], op.head = p->head[r], op.vocab_begin = 40 * r, op.vocab = 40 * ranks;
        t->logits(p->ctx, r, &op);
    }
    CHECK(t->end_step(p->ctx) == LLM_OK && t->wait(p->ctx) == LLM_OK);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < BE_PROGRAM_BUFFERS; i++)
            for (int k = 0; k < n; k++) h = llm__hash(p->b[r][i]->data + k * p->b[r][i]->stride, BE_PROGRAM_COLS * 4, h);
    for (int i = 0; i < n_out; i++) h = llm__hash(t->logits_row(p->ctx, i), (size_t)(40 * ranks) * 4, h);
    return h;
}

static void be_test_programs(void) {
    for (int ranks = 1; ranks <= 2; ranks++) {
        static be_program one, three;
        int different = 0;
        const uint32_t programs = TEST_BRIEF ? 40 : 120;
        be_program_open(&one, 1, ranks);
        be_program_open(&three, 3, ranks);
        for (uint32_t seed = 0; seed < programs; seed++)
            different += be_program_run(&one, ranks, seed, 1) != be_program_run(&three, ranks, seed, 0);
        if (!CHECK(!different)) printf("  %d of %u programs differ with %d ranks\n", different, programs, ranks);
        llm_backend_cpu()->close(one.ctx);
        llm_backend_cpu()->close(three.ctx);
    }
}

/* ---- pages, mistakes, many steps ---- */

static void be_test_pages(void) {
    const llm_backend *t = llm_backend_cpu();
    const be_case *c = &be_cases[1];
    be_net n;
    test_step b;
    int32_t pages[BE_PAGES], from[4] = {0, 1, 2, 3}, to[4] = {100, 90, 80, 70}, bad = BE_SEQS * BE_PAGES;
    size_t width = (size_t)(c->n_heads * c->vd);
    float *out = LLM__NEW(float, 3 * BE_LEN * c->n_heads * c->vd), *again = LLM__NEW(float, 3 * BE_LEN * c->n_heads * c->vd);
    be_net_open(&n, c, NULL, 2);
    for (int i = 0; i < BE_PAGES; i++) pages[i] = i < 4 ? i : 50 + i;
    step_begin(&b, BE_PAGES);
    step_add(&b, 0, 0, 60, pages);
    be_net_step(&n, &b, out);
    CHECK(t->kv_copy(n.ctx, from, to, 4) == LLM_OK);
    llm_kv_layer layers[2] = {{1, 16, 16, 0}, {c->n_kv, c->hd, c->vd, 0}};
    int64_t bytes = t->kv_page_bytes(n.ctx, 2, layers, 16);
    void *host = malloc((size_t)bytes);
    CHECK(bytes == n.ctx->kv.page_bytes && t->kv_read(n.ctx, 0, 3, host) == LLM_OK && t->kv_write(n.ctx, 0, 120, host) == LLM_OK);
    free(host);
    to[3] = 120; /* the last page came by way of the host */
    for (int i = 0; i < 4; i++) pages[i] = to[i];
    for (int side = 0; side < 2; side++) { /* the token after: with the first pages, and with their copies */
        if (!side)
            for (int i = 0; i < 4; i++) pages[i] = from[i];
        else
            for (int i = 0; i < 4; i++) pages[i] = to[i];
        step_begin(&b, BE_PAGES);
        step_add(&b, 0, 60, 1, pages);
        be_net_step(&n, &b, side ? again : out);
    }
    CHECK(!memcmp(out + 60 * width, again + 60 * width, width * sizeof(float)));
    CHECK(t->kv_copy(n.ctx, &bad, to, 1) == LLM_ERR_ARG && t->kv_read(n.ctx, 0, -1, out) == LLM_ERR_ARG &&
          t->kv_write(n.ctx, 1, 0, out) == LLM_ERR_ARG);
    step_begin(&b, BE_PAGES); /* mistakes of the caller are told before anything runs */
    step_add(&b, 0, 0, 2, pages);
    b.pages[0] = bad;
    CHECK(t->begin_step(n.ctx, &b.s) == LLM_ERR_ARG && t->end_step(n.ctx) == LLM_ERR_ARG && t->wait(n.ctx) == LLM_ERR_ARG);
    b.pages[0] = -1;
    CHECK(t->begin_step(n.ctx, &b.s) == LLM_ERR_ARG);
    b.pages[0] = 0;
    b.s.shape.n_rows = BE_ROWS + 1;
    CHECK(t->begin_step(n.ctx, &b.s) == LLM_ERR_ARG);
    b.s.shape.n_rows = 2;
    b.seq_len[0] = BE_PAGES * 16 + 1;
    CHECK(t->begin_step(n.ctx, &b.s) == LLM_ERR_ARG);
    b.seq_len[0] = 2;
    CHECK(t->begin_step(n.ctx, &b.s) == LLM_OK);
    llm_gate_op gate;
    memset(&gate, 0, sizeof gate);
    gate.dst = n.out, gate.gate = n.rope, gate.n = 1;
    for (int i = 0; i <= LLM__MAX_RECORDS; i++) t->gate(n.ctx, 0, &gate);
    CHECK(t->end_step(n.ctx) == LLM_ERR_LIMIT);
    step_begin(&b, BE_PAGES); /* nothing to do */
    CHECK(t->begin_step(n.ctx, &b.s) == LLM_OK && t->end_step(n.ctx) == LLM_OK && t->wait(n.ctx) == LLM_OK);
    t->close(n.ctx);
    free(out);
    free(again);
}

/* Hidden states: what was kept comes back one position later, rounded as the pages are; zeros at position 0. Rows of OUT replace those before. */
static void be_test_states(int threads) {
    static const struct {
        llm_kv_type type;
        double within;
    } rows[] = {{LLM_KV_F32, 0},        {LLM_KV_F16, 6e-4},  {LLM_KV_BF16, 5e-3}, {LLM_KV_FP8_E4M3, 0.04},
                {LLM_KV_FP8_E5M2, 0.1}, {LLM_KV_INT8, 5e-3}, {LLM_KV_INT4, 0.07}};
    const llm_backend *t = llm_backend_cpu();
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_backend_ctx *ctx = be_open(NULL, threads, 1, rows[i].type);
        llm_kv_layer layers[2] = {{1, 16, 16, 0}, {3, 1, 35, 0}};
        llm_buffer *x = be_buffer(ctx, 0, BE_ROWS, 105), *o = be_buffer(ctx, 0, BE_OUT, 105), *back = be_buffer(ctx, 0, BE_ROWS, 105),
                   *clear = be_buffer(ctx, 0, BE_ROWS, 105);
        llm_state_op keep = {0, LLM_ROWS_TOKENS, x, NULL, 1}, last = {0, LLM_ROWS_OUT, o, NULL, 1},
                     recall = {1, LLM_ROWS_TOKENS, back, clear, 1};
        test_step b;
        be_done(ctx);
        CHECK(t->kv_open(ctx, 2, layers, 16, BE_PAGES) == LLM_OK);
        be_fill(x, 3, 1), be_fill(o, 4, 1), be_fill(clear, 5, 1);
        be_plain_step(&b, 40, 3);
        CHECK(t->begin_step(ctx, &b.s) == LLM_OK);
        t->state(ctx, 0, &keep);
        t->state(ctx, 0, &last);
        CHECK(t->end_step(ctx) == LLM_OK && t->wait(ctx) == LLM_OK);
        be_plain_step(&b, 41, 0);
        CHECK(t->begin_step(ctx, &b.s) == LLM_OK);
        t->state(ctx, 0, &recall);
        CHECK(t->end_step(ctx) == LLM_OK && t->wait(ctx) == LLM_OK);
        double worst = 0;
        for (int row = 0; row < 41; row++)
            for (int k = 0; k < 105; k++) {
                const llm_buffer *from = row > 37 ? o : x;
                float want = row ? from->data[(row > 37 ? row - 38 : row - 1) * from->stride + k] : 0;
                worst = LLM__MAX(worst, fabs((double)back->data[row * back->stride + k] - (double)want));
                CHECK((clear->data[row * clear->stride + k] == 0) == !row);
            }
        if (!CHECK(worst <= rows[i].within)) printf("states of type %d: off by %g\n", rows[i].type, worst);
        CHECK(t->begin_step(ctx, &b.s) == LLM_OK);
        recall.layer = 2;
        t->state(ctx, 0, &recall);
        CHECK(t->end_step(ctx) == LLM_ERR_ARG && strstr(llm_last_error(), "state: the layer"));
        t->close(ctx);
    }
}

/* Pages wholly before a window may be given back (-1), and what lies in pages of others never matters. */
static void be_test_window_pages(const char *isa, llm_kv_type kv) {
    be_case own = be_cases[3]; /* window 17, pages of 16 tokens */
    const be_case *c = &own;
    static const int len[3] = {0, 0, 120};
    be_net n, full;
    own.kv = kv;
    be_net_open(&full, c, isa, 2);
    float *want = be_net_run(&full, 0, len, 1), *out = LLM__NEW(float, 3 * BE_LEN * c->n_heads * c->vd);
    be_net_open(&n, c, isa, 2);
    memset(n.ctx->kv.base[0], 0xFF, (size_t)(n.ctx->kv.page_bytes * n.ctx->kv.n_pages)); /* not-a-numbers everywhere */
    for (int at = 0; at < len[2]; at++) {
        int32_t pages[BE_PAGES];
        test_step b;
        for (int i = 0; i < BE_PAGES; i++) pages[i] = (i + 1) * 16 <= at + 1 - c->window ? -1 : i % 3;
        step_begin(&b, BE_PAGES);
        step_add(&b, 2, at, 1, pages);
        be_net_step(&n, &b, out);
    }
    if (!CHECK(be_same(c, want, out, len))) printf("  pages of a window, %s, type %d\n", isa, (int)kv);
    llm_backend_cpu()->close(n.ctx);
    llm_backend_cpu()->close(full.ctx);
    free(want);
    free(out);
}

static int be_parallel_count;

static void be_parallel_fn(void *arg, int i) {
    ((int *)arg)[i]++;
    __atomic_fetch_add(&be_parallel_count, 1, __ATOMIC_RELAXED);
}

static size_t be_heap(void) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    return mallinfo2().uordblks;
#else
    return 0;
#endif
}

/* Thousands of small steps allocate nothing. */
static void be_test_steps(void) {
    const llm_backend *t = llm_backend_cpu();
    static be_program p;
    int calls[100] = {0}, all = 1;
    for (int threads = 1; threads <= 2; threads++) {
        be_program_open(&p, threads, 2);
        size_t heap = be_heap();
        int64_t memory = t->memory_used(p.ctx);
        for (uint32_t i = 0; i < (threads == 1 ? 3000 : 50); i++) be_program_run(&p, 2, 6 * i + i % 3, 0);
        CHECK(be_heap() == heap && t->memory_used(p.ctx) == memory && memory > 0);
        if (threads == 1) t->close(p.ctx);
    }
    t->parallel(p.ctx, be_parallel_fn, calls, 100);
    t->parallel(p.ctx, be_parallel_fn, calls, 1);
    t->parallel(p.ctx, be_parallel_fn, calls, 0);
    for (int i = 0; i < 100; i++) all &= calls[i] == 1 + !i;
    CHECK(all && be_parallel_count == 101);
    CHECK(strstr(t->describe(p.ctx), ", 2 threads") != NULL);
    t->close(p.ctx);
    t->close(NULL);
}

enum { BE_LONG = 16384, BE_LONG_COLS = 512 };

/* Runs y = W x for n rows, one pass at each call, and returns how many calls it took. */
static int be_long_run(llm_backend_ctx *ctx, llm_weight *w, llm_buffer *x, llm_buffer *y, int n) {
    const llm_backend *t = llm_backend_cpu();
    const llm_linear_op op = {.rows = LLM_ROWS_TOKENS, .dst = y, .src = x, .weight = w};
    static test_step b;
    double longest = 0;
    int calls = 1;
    be_plain_step(&b, n, 1);
    for (int i = 0; i < n; i++) memset(y->data + i * y->stride, 0xff, (size_t)y->cols * sizeof(float)); /* no number */
    CHECK(!t->begin_step(ctx, &b.s));
    t->linear(ctx, 0, &op);
    CHECK(!t->end_step(ctx));
    while (!t->work(ctx, 0, &longest)) calls++;
    CHECK(!t->wait(ctx) && longest > 0);
    return calls;
}

/* A long product over many rows is done in several passes, between which others may have a turn; the bits are those of fewer rows, which
 * are done in one. */
static void be_test_long(const char *isa, int threads, int passes) {
    const int few = BE_ROWS / 2;
    llm_backend_ctx *ctx = be_open(isa, threads, 1, LLM_KV_F32);
    float *v = (float *)malloc((size_t)BE_LONG * BE_LONG_COLS * sizeof *v), *whole = (float *)malloc((size_t)few * BE_LONG * sizeof *whole);
    llm_segment s;
    llm_weight_desc d;
    llm_weight *w = NULL;
    memset(&s, 0, sizeof s);
    memset(&d, 0, sizeof d);
    for (int i = 0; i < BE_LONG * BE_LONG_COLS; i++) v[i] = (float)((uint32_t)i * 2654435761u >> 16) / 65536 - 0.5f;
    s.data = (const uint8_t *)v, s.type = LLM_TYPE_F32, s.stored_cols = s.n_cols = d.cols = BE_LONG_COLS, s.n_rows = d.rows = BE_LONG;
    d.name = "long", d.role = LLM_ROLE_LINEAR, d.segments = &s, d.n_segments = 1;
    CHECK(!llm_backend_cpu()->weight(ctx, 0, &d, &w) && !llm_backend_cpu()->weights_done(ctx));
    llm_buffer *x = be_buffer(ctx, 0, BE_ROWS, BE_LONG_COLS), *y = be_buffer(ctx, 0, BE_ROWS, BE_LONG);
    be_fill(x, 77, 1);
    CHECK(be_long_run(ctx, w, x, y, few) == 1);
    for (int i = 0; i < few; i++) memcpy(whole + i * BE_LONG, y->data + i * y->stride, BE_LONG * sizeof(float));
    int took = be_long_run(ctx, w, x, y, BE_ROWS), same = 1, near = 1;
    if (!CHECK(took == passes)) printf("%s, %d threads: %d passes\n", isa ? isa : "", threads, took);
    for (int i = 0; i < few; i++) same &= !memcmp(whole + i * BE_LONG, y->data + i * y->stride, BE_LONG * sizeof(float));
    for (int o = 0; o < BE_LONG; o++) {
        double sum = 0;
        for (int k = 0; k < BE_LONG_COLS; k++) sum += (double)v[o * BE_LONG_COLS + k] * (double)x->data[(BE_ROWS - 1) * x->stride + k];
        near &= fabs(sum - (double)y->data[(BE_ROWS - 1) * y->stride + o]) < 1e-3;
    }
    CHECK(same && near);
    llm_backend_cpu()->close(ctx);
    free(v), free(whole);
}

static void be_test_open(void) {
    const llm_backend *t = llm_backend_cpu();
    llm_backend_config c;
    llm_backend_ctx *ctx = NULL;
    llm_kv_layer layer = {1, 8, 8, 0}, wrong = {1, 0, 8, 0};
    memset(&c, 0, sizeof c);
    CHECK(t->abi == LLM_BACKEND_ABI && t->struct_size == sizeof(llm_backend) && !strcmp(t->name, "cpu"));
    CHECK(t->open(&c, &ctx) == LLM_ERR_ARG && !ctx);
    c.max_rows = c.max_out = c.max_seqs = c.max_pages_per_seq = 4;
    c.isa = "mmx";
    CHECK(t->open(&c, &ctx) == LLM_ERR_ARG && !ctx && strstr(llm_last_error(), "scalar"));
    c.isa = NULL;
    c.n_ranks = 1000;
    CHECK(t->open(&c, &ctx) == LLM_ERR_ARG);
    c.n_ranks = 0;
    c.compute = LLM_COMPUTE_F32;
    CHECK(t->open(&c, &ctx) == LLM_OK);
    CHECK(t->kv_page_bytes(ctx, 1, &layer, 16) == 2 * 16 * 8 * 4); /* keys and values in f32 */
    CHECK(t->kv_page_bytes(ctx, 1, &layer, 17) == 0 && t->kv_page_bytes(ctx, 1, &wrong, 16) == 0);
    CHECK(t->kv_open(ctx, 1, &layer, 16, INT64_MAX) == LLM_ERR_ARG);
    t->close(ctx);
    CHECK(t->open(&c, &ctx) == LLM_OK);
    llm_buffer *b = NULL;
    CHECK(t->buffer(ctx, 1, 1, 1, &b) == LLM_ERR_ARG && t->buffer(ctx, 0, INT64_MAX, 1 << 20, &b) != LLM_OK && !b);
    t->close(ctx);
}

/* ---- adapters ---- */

enum { BE_LORA_IN = 70, BE_LORA_OUT = 59, BE_LORA_R = 16, BE_LORA_PARTS = 4 };

/* The parts of two adapters: slot, rank, place in the output, type. Slot 2 stays empty, slot 3 is emptied again. */
static const struct {
    int slot, r, row, n, type;
} be_lora_parts[BE_LORA_PARTS] = {
    {0, 4, 0, 33, LLM_TYPE_F32}, {0, 4, 33, 17, LLM_TYPE_BF16}, {1, 16, 33, 17, LLM_TYPE_F16}, {1, 3, 50, 9, LLM_TYPE_F32}};

/* Factor k (0: A, 1: B) of a part, at row i and column j: exact in every type. */
static float be_lora_value(int part, int k, int i, int j) {
    return (float)(int)(64 * be_value((uint32_t)part, (uint32_t)k, (uint32_t)i, (uint32_t)j)) / 128;
}

static void be_lora_put(llm_backend_ctx *ctx, llm_lora_site *site, int slot) {
    llm_lora_part part[LLM_LORA_PARTS];
    llm_weight_desc d[LLM_LORA_PARTS][2];
    llm_segment s[LLM_LORA_PARTS][2];
    int n = 0;
    memset(d, 0, sizeof d);
    memset(s, 0, sizeof s);
    for (int p = 0; p < BE_LORA_PARTS; p++) {
        if (be_lora_parts[p].slot != slot) continue;
        for (int k = 0; k < 2; k++) {
            int rows = k ? be_lora_parts[p].n : be_lora_parts[p].r, cols = k ? be_lora_parts[p].r : BE_LORA_IN,
                type = be_lora_parts[p].type;
            uint8_t *data = (uint8_t *)llm__arena_get(&be_memory, (size_t)(rows * cols) * 4);
            for (int i = 0; i < rows * cols; i++) {
                float v = be_lora_value(p, k, i / cols, i % cols);
                uint16_t half = type == LLM_TYPE_F16 ? llm__f32_to_f16(v) : llm__f32_to_bf16(v);
                if (type == LLM_TYPE_F32) memcpy(data + 4 * i, &v, 4);
                else memcpy(data + 2 * i, &half, 2);
            }
            s[n][k].data = data, s[n][k].type = type, s[n][k].stored_cols = s[n][k].n_cols = d[n][k].cols = cols,
            s[n][k].n_rows = d[n][k].rows = rows;
            s[n][k].scale = k ? 0.5f : 1;
            d[n][k].name = "lora", d[n][k].role = LLM_ROLE_LINEAR, d[n][k].segments = &s[n][k], d[n][k].n_segments = 1;
        }
        part[n].row = be_lora_parts[p].row, part[n].a = &d[n][0], part[n].b = &d[n][1];
        n++;
    }
    CHECK(llm_backend_cpu()->lora_put(ctx, 0, site, slot, part, n) == LLM_OK);
    llm__arena_free(&be_memory); /* what was put is needed no longer */
}

/* What a slot adds to a row, in double; NAN: nothing. */
static double be_ref_lora(int slot, int row, int col) {
    for (int p = 0; p < BE_LORA_PARTS; p++) {
        double sum = 0;
        if (be_lora_parts[p].slot != slot || col < be_lora_parts[p].row || col >= be_lora_parts[p].row + be_lora_parts[p].n) continue;
        for (int k = 0; k < be_lora_parts[p].r; k++)
            for (int j = 0; j < BE_LORA_IN; j++)
                sum += (double)be_lora_value(p, 1, col - be_lora_parts[p].row, k) * (double)be_lora_value(p, 0, k, j) *
                       (double)be_value(5, (uint32_t)row, (uint32_t)j, 9);
        return sum / 2;
    }
    return (double)NAN;
}

/* Sequences of several adapters in one step, then each row alone in a step of its own: near the reference, and the same bits. */
static void be_test_lora(const char *isa, int threads) {
    static const int lengths[BE_SEQS] = {5, 1, 40, 1, 1, 7, 2, 1}, slots[BE_SEQS] = {0, -1, 1, 0, 0, -1, 2, 1};
    const llm_backend *t = llm_backend_cpu();
    llm_backend_ctx *ctx = be_open(isa, threads, 1, LLM_KV_F32);
    llm_buffer *src = be_buffer(ctx, 0, BE_ROWS, BE_LORA_IN), *dst = be_buffer(ctx, 0, BE_ROWS, BE_LORA_OUT),
               *low = be_buffer(ctx, 0, BE_ROWS, LLM_LORA_PARTS * BE_LORA_R);
    llm_lora_site *site = NULL, *none = NULL;
    int32_t seq_lora[BE_SEQS], pages[BE_PAGES] = {0};
    static float whole[BE_ROWS][BE_LORA_OUT];
    double worst = 0;
    int same = 1, quiet = 1;
    test_step b;
    be_done(ctx);
    CHECK(t->lora_site(ctx, 0, 4, &site) == LLM_OK && t->lora_site(ctx, 1, 4, &none) == LLM_ERR_ARG);
    be_lora_put(ctx, site, 0);
    be_lora_put(ctx, site, 1);
    be_lora_put(ctx, site, 1); /* again: in the place of the first */
    be_fill(src, 5, 1);
    llm_lora_op op = {LLM_ROWS_TOKENS, dst, src, low, site, BE_LORA_OUT, 0, 1};
    for (int alone = 0; alone < 2; alone++)
        for (int i = 0, row = 0; i < (alone ? BE_SEQS : 1); row += lengths[i++]) {
            step_begin(&b, BE_PAGES);
            for (int q = i; q < (alone ? i + 1 : BE_SEQS); q++)
                step_add(&b, q, 0, alone ? 1 : lengths[q], pages), seq_lora[q - i] = slots[q];
            b.s.seq_lora = seq_lora;
            b.s.shape.lora = 1;
            if (alone) memcpy(src->data, src->data + row * src->stride, BE_LORA_IN * sizeof(float)); /* a sequence's first row, as row 0 */
            for (int64_t k = 0; k < dst->rows * dst->stride; k++) dst->data[k] = 7;
            CHECK(t->begin_step(ctx, &b.s) == LLM_OK);
            t->lora(ctx, 0, &op);
            CHECK(t->end_step(ctx) == LLM_OK && t->wait(ctx) == LLM_OK);
            if (alone && slots[i] != 0 && slots[i] != 1)
                CHECK(dst->data[0] == 7 && llm__cpu_plus(dst) == NULL); /* nobody adds: not computed */
            else if (alone) same &= !memcmp(dst->data, whole[row], sizeof whole[row]);
            for (int q = 0, r = 0; q < BE_SEQS && !alone; q++)
                for (int k = 0; k < lengths[q]; k++, r++)
                    for (int c = 0; c < BE_LORA_OUT; c++) {
                        double want = be_ref_lora(slots[q], r, c);
                        float got = whole[r][c] = dst->data[r * dst->stride + c];
                        if (want != want) quiet &= llm__f32_bits(got) == 0x80000000u;
                        else worst = fmax(worst, fabs((double)got - want));
                    }
        }
    CHECK(worst < 2e-5);
    CHECK(same);
    CHECK(quiet);
    step_begin(&b, BE_PAGES);
    step_add(&b, 0, 0, 1, pages);
    b.s.seq_lora = seq_lora;
    seq_lora[0] = 4;
    CHECK(t->begin_step(ctx, &b.s) == LLM_OK);
    t->lora(ctx, 0, &op);
    CHECK(t->end_step(ctx) == LLM_ERR_ARG && strstr(llm_last_error(), "slot"));
    t->close(ctx);
}

/* A turn keeps products of two rows, undoes itself, and makes one large value many small ones. */
static void be_test_turn(void) {
    float x[96], y[96], top = 0, worst = 0;
    double before = 0, after = 0;
    for (int i = 0; i < 96; i++) x[i] = (float)(i * 37 % 19) - 9, y[i] = (float)(i * 11 % 23) - 11;
    for (int i = 0; i < 96; i++) before += (double)x[i] * y[i];
    llm__kv_turn(x, 96, llm__kv_turn_size(96));
    llm__kv_turn(y, 96, llm__kv_turn_size(96));
    for (int i = 0; i < 96; i++) after += (double)x[i] * y[i];
    CHECK(llm__kv_turn_size(96) == 32 && llm__kv_turn_size(128) == 128 && fabs(before - after) < 1e-3);
    llm__kv_turn(x, 96, 32);
    for (int i = 0; i < 96; i++) worst = fmaxf(worst, fabsf(x[i] - ((float)(i * 37 % 19) - 9)));
    CHECK(worst < 1e-4f);
    memset(x, 0, sizeof x);
    x[5] = 8;
    llm__kv_turn(x, 64, 64);
    for (int i = 0; i < 64; i++) top = fmaxf(top, fabsf(x[i]));
    CHECK(fabsf(top - 1) < 1e-5f);
}

static void be_test_isa(const char *isa) {
    for (int ranks = 1; ranks <= 3; ranks++) be_test_residual(isa, ranks, 4 - ranks);
    be_test_rows(isa, 1);
    be_test_own(isa);
    be_test_rows(isa, 2);
    for (int adapted = 0; adapted < 2; adapted++) {
        be_test_mla(isa, LLM_KV_F32, adapted, 2e-5);
        be_test_mla(isa, LLM_KV_F16, adapted, 5e-3);
        be_test_mla(isa, LLM_KV_BF16, adapted, 5e-2);
        be_test_mla(isa, LLM_KV_INT8, adapted, 0.1);
    }
    be_test_attention(isa);
    be_test_window_pages(isa, LLM_KV_F32);
    be_test_window_pages(isa, LLM_KV_BF16);
    be_test_lora(isa, 1);
    be_test_lora(isa, 3);
}

/* backend -- ISA...: these instruction sets alone. */
TEST_GROUP(backend) {
    char isa[16];
    for (int i = 0; i < test_argc; i++) be_test_isa(test_argv[i]);
    if (test_argc) return;
    be_test_turn();
    be_test_open();
    be_test_route();
    be_test_programs();
    be_test_pages();
    be_test_states(1);
    be_test_states(2);
    be_test_steps();
    be_test_long(NULL, 1, 5); /* 96 x 16384 x 512 products, 2e8 of a thread in a pass */
    be_test_long(NULL, 3, 2);
    for (const char *list = llm_isa_list(); *list;) {
        int n = (int)strcspn(list, " ");
        snprintf(isa, sizeof isa, "%.*s", n, list);
        be_test_isa(isa);
        list += n + (list[n] == ' ');
    }
}
