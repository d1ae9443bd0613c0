/* The CPU backend: every operation other than the linear layers against a plain reference in double, and its promise that the bits of a
 * row do not depend on batch, chunk, page order or thread count. */
#include "test.h"

/* Reproducible values in -1 .. 1, a function of what they belong to. */
static float be_value(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    uint32_t key[4] = {a, b, c, d};
    uint64_t h = llm__hash(key, sizeof key, 7);
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

/* A step under construction. */
typedef struct be_step {
    llm_step s;
    int32_t tokens[BE_ROWS], positions[3 * BE_ROWS], seq_of_row[BE_ROWS], seq_begin[BE_SEQS + 1], seq_len[BE_SEQS], seq_rope[BE_SEQS];
    int32_t pages[BE_SEQS * BE_PAGES], out_rows[BE_OUT], id[BE_SEQS];
    float rope_base[BE_SEQS];
} be_step;

static void be_step_begin(be_step *b) {
    memset(b, 0, sizeof *b);
    b->s.tokens = b->tokens;
    b->s.positions = b->positions;
    b->s.n_position_rows = 1;
    b->s.seq_of_row = b->seq_of_row;
    b->s.seq_begin = b->seq_begin;
    b->s.seq_len = b->seq_len;
    b->s.seq_rope = b->seq_rope;
    b->s.seq_rope_base = b->rope_base;
    b->s.pages = b->pages;
    b->s.page_stride = BE_PAGES;
    b->s.out_rows = b->out_rows;
}

/* Adds n rows of sequence `id` from position `at`. */
static void be_step_add(be_step *b, int id, int at, int n, const int32_t *pages) {
    int s = b->s.shape.n_seqs++;
    b->id[s] = id;
    b->seq_len[s] = at + n;
    b->rope_base[s] = 1;
    memcpy(b->pages + s * BE_PAGES, pages, BE_PAGES * sizeof *pages);
    for (int i = 0; i < n; i++) {
        b->seq_of_row[b->s.shape.n_rows] = s;
        b->positions[b->s.shape.n_rows++] = at + i;
    }
    b->seq_begin[s + 1] = b->s.shape.n_rows;
}

/* ---- qkv and attention ---- */

typedef struct be_case {
    const char *name;
    int n_heads, n_kv, hd, vd, rope_dim, interleaved, page_tokens;
    llm_qk_norm norm;
    int window, not_causal, sinks, alibi, logn;
    float softcap;
    llm_kv_type kv;
    double tolerance;
} be_case;

enum { BE_LEN = 150 };

typedef struct be_net {
    llm_backend_ctx *ctx;
    const be_case *c;
    llm_buffer *qkv, *rope, *out;
    llm_weight *q_norm, *k_norm, *sinks, *alibi, *inv_freq;
} be_net;

static int be_columns(const be_case *c) { return c->n_heads * c->hd + c->n_kv * (c->hd + c->vd); }

static int be_norm_size(const be_case *c, int heads) { return c->norm == LLM_QK_NORM_HEAD_RMS ? c->hd : heads * c->hd; }

static float be_freq(int i, int half) { return (float)pow(10000.0, -(double)i / half); }

static void be_net_open(be_net *n, const be_case *c, const char *isa, int threads) {
    llm_kv_layer layers[2] = {{1, 16, 16}, {c->n_kv, c->hd, c->vd}};
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
    for (int i = 0; i < c->rope_dim / 2; i++) freq[i] = be_freq(i, c->rope_dim / 2);
    n->inv_freq = be_vector(n->ctx, 0, freq, c->rope_dim ? c->rope_dim / 2 : 1, LLM_ROLE_VECTOR);
    be_done(n->ctx);
    CHECK(llm_backend_cpu()->kv_open(n->ctx, 2, layers, c->page_tokens, BE_SEQS * BE_PAGES) == LLM_OK);
}

static float be_input(const be_case *c, int id, int position, int column) {
    return be_value((uint32_t)id, (uint32_t)position, (uint32_t)column, (uint32_t)c->hd) * (column < (c->n_heads + c->n_kv) * c->hd ? 2.0f : 1.0f);
}

/* Runs one step and stores each row's result at out[id][position]. */
static void be_net_step(be_net *n, be_step *b, float *out) {
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
        for (int k = 0; k < be_columns(c); k++) n->qkv->data[r * n->qkv->stride + 3 + k] = be_input(c, b->id[b->seq_of_row[r]], b->positions[r], k);
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
    at.dst = n->out;
    at.qkv = n->qkv;
    at.q_col = 3;
    at.scale = (float)(1 / sqrt(c->hd));
    at.softcap = c->softcap;
    at.window = c->window;
    at.not_causal = c->not_causal;
    at.sinks = c->sinks ? n->sinks : NULL;
    at.alibi = c->alibi ? n->alibi : NULL;
    CHECK(t->begin_step(n->ctx, &b->s) == LLM_OK);
    if (c->rope_dim) t->rope(n->ctx, 0, &rope);
    t->qkv(n->ctx, 0, &qkv);
    t->attention(n->ctx, 0, &at);
    CHECK(t->end_step(n->ctx) == LLM_OK && t->wait(n->ctx) == LLM_OK);
    for (int r = 0; r < b->s.shape.n_rows; r++)
        memcpy(out + ((size_t)b->id[b->seq_of_row[r]] * BE_LEN + (size_t)b->positions[r]) * (size_t)width, t->buffer_row(n->ctx, 0, n->out, r), (size_t)width * sizeof(float));
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
        be_step b;
        be_step_begin(&b);
        for (int k = 0; k < 3; k++) {
            int s = plan == 2 ? (k + (int)(seed % 3)) % 3 : k, left = len[s] - done[s], room = BE_ROWS - b.s.shape.n_rows, m = plan == 1 ? 1 : left;
            if (plan == 2) m = (int)(be_next(&seed) % 3 ? be_next(&seed) % 30 : 1);
            m = LLM__MIN(m, LLM__MIN(left, room));
            if (m <= 0 || (plan == 0 && b.s.shape.n_seqs)) continue;
            be_step_add(&b, s, done[s], m, pages[s]);
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
    for (int d = 0; d < heads * c->hd; d++) all += pow(be_input(c, id, position, base + d), 2) / (heads * c->hd);
    for (int d = 0; d < c->hd && c->norm; d++) {
        uint32_t at = (uint32_t)(c->norm == LLM_QK_NORM_HEAD_RMS ? d : h * c->hd + d);
        double w = (double)(1 + 0.5f * be_value(seed, at, 0, 0));
        x[d] = (x[d] - mean) / sqrt((c->norm == LLM_QK_NORM_WHOLE_RMS ? all : square) + 1e-5) * w;
    }
    for (int i = 0; i < c->rope_dim / 2; i++) {
        int a = c->interleaved ? 2 * i : i, b = c->interleaved ? 2 * i + 1 : i + c->rope_dim / 2;
        double angle = position * (double)be_freq(i, c->rope_dim / 2), u = x[a], v = x[b];
        x[a] = u * cos(angle) - v * sin(angle);
        x[b] = v * cos(angle) + u * sin(angle);
    }
    for (int d = 0; d < c->hd && is_q && c->logn && position + 1 > c->logn; d++) x[d] *= log(position + 1.0) / log((double)c->logn);
}

static double be_ref_error(const be_case *c, int id, int len, const float *out) {
    double *k = LLM__NEW(double, len * c->n_kv * c->hd), q[512], worst = 0;
    for (int p = 0; p < len; p++)
        for (int g = 0; g < c->n_kv; g++) be_ref_head(c, id, p, c->n_heads * c->hd, c->n_kv, g, 2, 0, k + (p * c->n_kv + g) * c->hd);
    for (int p = 0; p < len; p++)
        for (int h = 0; h < c->n_heads; h++) {
            double o[512] = {0}, sum = 0, s[BE_LEN], top = -1e300, slope = (double)(1 + 0.5f * be_value(4, (uint32_t)h, 0, 0)), sink = (double)(1 + 0.5f * be_value(3, (uint32_t)h, 0, 0));
            int g = h / (c->n_heads / c->n_kv), last = c->not_causal ? len - 1 : p;
            be_ref_head(c, id, p, 0, c->n_heads, h, 1, 1, q);
            for (int j = 0; j <= last; j++) {
                s[j] = 0;
                for (int d = 0; d < c->hd; d++) s[j] += q[d] * k[(j * c->n_kv + g) * c->hd + d] / sqrt(c->hd);
                if (c->softcap != 0) s[j] = (double)c->softcap * tanh(s[j] / (double)c->softcap);
                if (c->alibi) s[j] += slope * (j - p);
                if (c->window && (j <= p - c->window || j >= p + c->window)) s[j] = -1e300;
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
    {"llama", 9, 3, 64, 64, 64, 0, 32, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, LLM_KV_F32, 2e-5},
    {"llama f16", 9, 3, 64, 64, 64, 1, 16, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3},
    {"gemma", 4, 1, 256, 256, 256, 0, 64, LLM_QK_NORM_HEAD_RMS, 40, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3},
    {"window 17", 2, 2, 16, 16, 16, 0, 16, LLM_QK_NORM_HEAD_RMS, 17, 0, 0, 0, 0, 0, LLM_KV_F32, 2e-5},
    {"soft cap", 4, 2, 24, 24, 12, 1, 16, LLM_QK_NORM_HEAD_LAYER, 0, 0, 0, 0, 0, 3, LLM_KV_F32, 2e-5},
    {"sinks, window", 8, 2, 32, 32, 32, 0, 32, LLM_QK_NORM_NONE, 33, 0, 1, 0, 0, 0, LLM_KV_F16, 2e-3},
    {"alibi, no rope", 5, 5, 40, 40, 0, 0, 128, LLM_QK_NORM_WHOLE_RMS, 0, 0, 0, 1, 0, 0, LLM_KV_F32, 2e-5},
    {"wide values", 6, 2, 24, 16, 24, 0, 32, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3},
    {"narrow keys", 6, 1, 10, 33, 4, 1, 32, LLM_QK_NORM_NONE, 0, 0, 0, 0, 20, 0, LLM_KV_F16, 2e-3},
    {"30 heads of 80", 30, 1, 80, 80, 32, 0, 16, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, LLM_KV_F16, 2e-3},
    {"both ways", 4, 2, 32, 32, 32, 0, 32, LLM_QK_NORM_NONE, 0, 1, 0, 0, 0, 0, LLM_KV_F32, 2e-5},
    {"both ways, window", 4, 2, 32, 32, 32, 0, 32, LLM_QK_NORM_NONE, 20, 1, 0, 0, 0, 0, LLM_KV_F32, 2e-5},
    {"bf16", 6, 2, 48, 48, 48, 0, 32, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, LLM_KV_BF16, 2e-2},
    {"e4m3", 6, 2, 48, 48, 48, 0, 32, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, LLM_KV_FP8_E4M3, 0.15},
    {"e5m2", 6, 2, 48, 48, 48, 0, 16, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, LLM_KV_FP8_E5M2, 0.3},
    {"int8", 6, 2, 48, 48, 48, 0, 32, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, LLM_KV_INT8, 2e-2},
    {"int8, odd", 3, 1, 17, 19, 16, 0, 64, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, LLM_KV_INT8, 2e-2},
    {"int4", 6, 2, 48, 48, 48, 0, 32, LLM_QK_NORM_NONE, 0, 0, 0, 0, 0, 0, LLM_KV_INT4, 0.3},
    {"int4, odd", 3, 1, 17, 19, 16, 0, 16, LLM_QK_NORM_NONE, 50, 0, 0, 0, 0, 0, LLM_KV_INT4, 0.3},
};

static void be_test_attention(const char *isa) {
    static const int len[3] = {37, 1, 93};
    for (int i = 0; i < LLM__COUNT(be_cases); i++) {
        const be_case *c = &be_cases[i];
        float *first = NULL;
        for (int threads = 1; threads <= 3; threads++)
            for (int plan = 0; plan < 3; plan++) {
                be_net n;
                if (plan && c->not_causal) continue;
                be_net_open(&n, c, isa, threads);
                float *out = be_net_run(&n, plan, len, 11 + (uint32_t)threads);
                if (!first) {
                    double worst = 0;
                    for (int s = 0; s < 3; s++) worst = LLM__MAX(worst, be_ref_error(c, s, len[s], out + (size_t)s * BE_LEN * (size_t)(c->n_heads * c->vd)));
                    if (!CHECK(worst < c->tolerance)) printf("  %s, %s: error %g of %g\n", c->name, isa, worst, c->tolerance);
                    first = out;
                } else {
                    if (!CHECK(be_same(c, first, out, len))) printf("  %s, %s: plan %d with %d threads differs\n", c->name, isa, plan, threads);
                    free(out);
                }
                llm_backend_cpu()->close(n.ctx);
            }
        free(first);
    }
}

TEST_GROUP(backend) {
    char isa[16];
    for (const char *list = llm_isa_list(); *list;) {
        int n = (int)strcspn(list, " ");
        snprintf(isa, sizeof isa, "%.*s", n, list);
        be_test_attention(isa);
        list += n + (list[n] == ' ');
    }
}
