/* Indexers: the choice against its plain form, ties and all; scores and what latent attention makes of the chosen positions against plain
 * passes; the same bits in every batch, chunk and page order, with any number of threads, and where nothing is left out those of latent
 * attention without an indexer. */
#include "../step.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/map.h"
#include "cpu/isa.h"
#include "cpu/plain_attention.h"
#include "cpu/indexer.h"

static float ix_value(uint32_t a, uint32_t b, uint32_t c) {
    return (float)((double)(llm__mix(llm__mix(((uint64_t)a << 32 | b) + 11) ^ c) >> 40) / (1 << 23) - 1.0);
}

/* ---- the plain form ---- */

/* One row: n positions that it may see. */
typedef struct ix_plain_row {
    const float *q;      /* (n_heads, d) */
    const float *weight; /* (n_heads) all factors included */
    const float *k;      /* (n, d) */
    int32_t n_heads, d, n;
} ix_plain_row;

/* score_t = sum over heads h of weight_h * max(query_h . key_t, 0). */
static void ix_plain_scores(const ix_plain_row *x, float *score) {
    for (int32_t t = 0; t < x->n; t++) {
        double sum = 0;
        for (int32_t h = 0; h < x->n_heads; h++) {
            double product = 0;
            for (int32_t i = 0; i < x->d; i++) product += (double)x->q[h * x->d + i] * (double)x->k[t * x->d + i];
            sum += (double)x->weight[h] * (product > 0 ? product : 0);
        }
        score[t] = (float)sum;
    }
}

/* 1 if a is the higher score; what is no number is lower than all that are. */
static int ix_higher(float a, float b) { return a > b || (a == a && b != b); }

/* A position is chosen if fewer than k are better: those with a higher score, and earlier ones with the same. */
static void ix_plain_best(const float *score, int32_t n, int32_t k, int32_t *chosen) {
    for (int32_t t = 0; t < n; t++) {
        int32_t better = 0;
        for (int32_t i = 0; i < n; i++) better += ix_higher(score[i], score[t]) || (i < t && !ix_higher(score[t], score[i]));
        if (better < k) *chosen++ = t;
    }
}

/* ---- the choice ---- */

enum { IX_MOST = 700 };

/* Scores of few kinds, so that most are equal, with both zeros, infinities and what is no number among them; or all different. */
static void ix_scores(uint32_t seed, int n, float *score) {
    static const float kinds[] = {0, -0.0f, 1, 1.0000001f, -1, 0.5f, INFINITY, -INFINITY, NAN, 1e-40f, -1e-40f, -3};
    for (int i = 0; i < n; i++) {
        const float x = ix_value(seed, (uint32_t)i, 1);
        score[i] = seed % 3 == 0 ? x : kinds[(int)((x + 1) / 2 * (float)(seed % 3 == 1 ? 3 : LLM__COUNT(kinds)))];
    }
}

static void ix_choices(void) {
    static float score[IX_MOST];
    int32_t want[IX_MOST], got[IX_MOST + 1];
    for (uint32_t round = 0; round < (TEST_BRIEF ? 150u : 600u); round++) {
        const int n = 2 + (int)(llm__mix(round) % (IX_MOST - 2)),
                  k = round % 5 == 0 ? n - 1 : 1 + (int)(llm__mix(round + 1000) % (uint64_t)(n - 1));
        ix_scores(round, n, score);
        memset(got, 0x55, sizeof got);
        ix_plain_best(score, n, k, want);
        llm__best_positions(score, n, k, got);
        if (!CHECK(!memcmp(want, got, (size_t)k * sizeof *got) && got[k] == 0x55555555)) printf("  %d of %d, round %u\n", k, n, round);
    }
    for (int i = 0; i < 9; i++) score[i] = i == 4 ? -0.0f : 0;
    llm__best_positions(score, 9, 6, got);
    for (int i = 0; i < 6; i++) CHECK(got[i] == i); /* of equal ones the first, whatever their sign */
    score[8] = 1e-30f;
    llm__best_positions(score, 9, 2, got);
    CHECK(got[0] == 0 && got[1] == 8);
}

/* ---- the operations ---- */

enum { IX_PAGES = 40, IX_ROWS = 512 };

typedef struct ix_case {
    int heads, dim, rope, pairs, topk, rank, n, nope, v, page; /* of the indexer; of latent attention */
    llm_kv_type kv;
    double tolerance; /* of scores, and of what comes out */
} ix_case;

typedef struct ix_net {
    const ix_case *c;
    llm_backend_ctx *ctx;
    llm_buffer *q, *k, *chosen, *mq, *kv_a, *dst, *rope;
    llm_weight *k_norm, *k_bias, *kv_norm, *kv_b, *freq;
    float *memory; /* of weights, until they are packed */
    int indexed;
} ix_net;

static llm_weight *ix_weight(ix_net *n, llm_role role, int rows, int cols, uint32_t seed, float mean, float spread) {
    llm_segment s = LLM__ZERO;
    llm_weight_desc d = LLM__ZERO;
    llm_weight *w = NULL;
    for (int i = 0; i < rows * cols; i++) n->memory[i] = mean + spread * ix_value(seed, (uint32_t)i, 0);
    s.data = n->memory, s.stored_cols = s.n_cols = d.cols = cols, s.n_rows = d.rows = rows;
    d.name = "test", d.role = role, d.segments = &s, d.n_segments = 1;
    if (role == LLM_ROLE_MLA_UP) d.n_heads = n->c->n, d.n_keys = n->c->nope;
    n->memory += rows * cols;
    CHECK(!llm_backend_cpu()->weight(n->ctx, 0, &d, &w));
    return w;
}

static float ix_freq(const ix_case *c, int i) { return (float)pow(1000.0, -2.0 * i / c->rope); }

/* indexed 0: latent attention alone, as models without an indexer have it. */
static void ix_open(ix_net *n, const ix_case *c, const char *isa, int threads, int indexed) {
    const llm_backend *t = llm_backend_cpu();
    llm_backend_config b = LLM__ZERO;
    const int width = c->rank + c->rope;
    const llm_kv_layer layers[2] = {{1, 16, 16, 0}, {1, indexed ? c->dim : width, indexed ? width : 0, 0}};
    memset(n, 0, sizeof *n);
    n->c = c, n->indexed = indexed;
    b.isa = isa, b.n_threads = threads, b.kv_type = c->kv;
    b.max_rows = IX_ROWS, b.max_seqs = 4, b.max_pages_per_seq = IX_PAGES;
    b.indexed = indexed ? IX_PAGES * c->page : 0;
    CHECK(!t->open(&b, &n->ctx));
    const struct {
        llm_buffer **to;
        int cols;
    } plan[] = {{&n->q, c->heads * c->dim}, {&n->k, c->dim + c->heads}, {&n->chosen, c->topk}, {&n->mq, c->n * (c->nope + c->rope)},
                {&n->kv_a, width},          {&n->dst, c->n * c->v},     {&n->rope, c->rope}};
    for (int i = 0; i < LLM__COUNT(plan); i++) CHECK(!t->buffer(n->ctx, 0, IX_ROWS, plan[i].cols, plan[i].to));
    float *memory = n->memory = LLM__NEW(float, 2 * c->dim + c->rank + c->n * (c->nope + c->v) * c->rank + c->rope);
    n->k_norm = ix_weight(n, LLM_ROLE_VECTOR, 1, c->dim, 21, 1, 0.5f);
    n->k_bias = ix_weight(n, LLM_ROLE_VECTOR, 1, c->dim, 22, 0, 0.5f);
    n->kv_norm = ix_weight(n, LLM_ROLE_VECTOR, 1, c->rank, 23, 1, 0.5f);
    n->kv_b = ix_weight(n, LLM_ROLE_MLA_UP, c->n * (c->nope + c->v), c->rank, 24, 0, 0.5f);
    n->freq = ix_weight(n, LLM_ROLE_VECTOR, 1, c->rope / 2, 25, 0, 0);
    for (int i = 0; i < c->rope / 2; i++) n->memory[i - c->rope / 2] = ix_freq(c, i);
    CHECK(!t->weights_done(n->ctx));
    LLM_FREE(memory);
    CHECK(!t->kv_open(n->ctx, 2, layers, c->page, 4 * IX_PAGES));
}

/* What stands in a buffer: a function of the sequence, the position and the column. */
static float ix_input(int what, int id, int position, int col) {
    return ix_value((uint32_t)(what + 8 * id), (uint32_t)position, (uint32_t)col);
}

/* One step; what comes out goes to out[id][position], what was chosen to chosen[id][position]. */
static void ix_step(ix_net *n, test_step *b, int len, float *out, int32_t *chosen) {
    const llm_backend *t = llm_backend_cpu();
    const ix_case *c = n->c;
    llm_buffer *const in[4] = {n->q, n->k, n->mq, n->kv_a};
    const llm_rope_op rope = {.dst = n->rope, .inv_freq = n->freq, .n_variants = 1, .rope_dim = c->rope};
    const llm_index_op index = {.dst = n->chosen,
                                .q = n->q,
                                .k = n->k,
                                .k_norm = n->k_norm,
                                .k_bias = n->k_bias,
                                .rope = n->rope,
                                .rope_dim = c->rope,
                                .rope_interleaved = c->pairs,
                                .n_heads = c->heads,
                                .head_dim = c->dim,
                                .topk = c->topk,
                                .layer = 1,
                                .eps = 1e-6f};
    const llm_mla_op mla = {.dst = n->dst,
                            .q = n->mq,
                            .kv_a = n->kv_a,
                            .kv_norm = n->kv_norm,
                            .kv_b = n->kv_b,
                            .rope = n->rope,
                            .eps = 1e-6f,
                            .scale = 0.2f,
                            .rope_interleaved = 1,
                            .layer = 1,
                            .n_heads = c->n,
                            .nope = c->nope,
                            .rope_dim = c->rope,
                            .v_dim = c->v,
                            .rank = c->rank,
                            .chosen = n->indexed ? n->chosen : NULL,
                            .topk = c->topk};
    for (int i = 0; i < 4; i++)
        for (int r = 0; r < b->s.shape.n_rows; r++)
            for (int k = 0; k < in[i]->cols; k++)
                in[i]->data[r * in[i]->stride + k] = ix_input(i, b->id[b->seq_of_row[r]], b->positions[r], k);
    CHECK(!t->begin_step(n->ctx, &b->s));
    t->rope(n->ctx, 0, &rope);
    if (n->indexed) t->index(n->ctx, 0, &index);
    t->mla(n->ctx, 0, &mla);
    CHECK(!t->end_step(n->ctx) && !t->wait(n->ctx));
    for (int r = 0; r < b->s.shape.n_rows; r++) {
        const int at = b->id[b->seq_of_row[r]] * len + b->positions[r];
        memcpy(out + at * c->n * c->v, t->buffer_row(n->ctx, 0, n->dst, r), (size_t)(c->n * c->v) * sizeof *out);
        if (chosen) memcpy(chosen + at * c->topk, t->buffer_row(n->ctx, 0, n->chosen, r), (size_t)c->topk * sizeof *chosen);
    }
}

/* Two sequences of len positions. plan 0: whole, one after the other; 1: a row of each at a time; 2: chunks of other lengths, together. */
static void ix_run(ix_net *n, int plan, int len, float *out, int32_t *chosen) {
    int32_t pages[2][IX_PAGES];
    int done[2] = {0, 0};
    for (int i = 0; i < 2 * IX_PAGES; i++) pages[i / IX_PAGES][i % IX_PAGES] = (i * 7 + plan) % (4 * IX_PAGES);
    for (uint32_t turn = 1; done[0] < len || done[1] < len; turn++) {
        test_step b;
        step_begin(&b, IX_PAGES);
        for (int i = 0; i < 2; i++) {
            int rows = LLM__MIN(len - done[i], IX_ROWS - b.s.shape.n_rows);
            if (plan == 1) rows = LLM__MIN(rows, 1);
            if (plan == 2) rows = LLM__MIN(rows, (int)(llm__mix(turn * 2 + (uint32_t)i) % 40));
            if (rows < 1 || (!plan && b.s.shape.n_rows)) continue;
            step_add(&b, i, done[i], rows, pages[i]);
            done[i] += rows;
        }
        if (b.s.shape.n_rows) ix_step(n, &b, len, out, chosen);
    }
}

/* x turned by its position. */
static void ix_turn(const ix_case *c, int position, int pairs, float *x) {
    for (int i = 0; i < c->rope / 2; i++) {
        const int a = pairs ? 2 * i : i, b = pairs ? 2 * i + 1 : i + c->rope / 2;
        const double angle = position * (double)ix_freq(c, i), u = (double)x[a], v = (double)x[b];
        x[a] = (float)(u * cos(angle) - v * sin(angle)), x[b] = (float)(v * cos(angle) + u * sin(angle));
    }
}

/* x normalised: less its mean with `layer`. */
static void ix_norm(float *x, int n, int layer, uint32_t w, uint32_t bias) {
    double mean = 0, square = 0;
    for (int i = 0; i < n && layer; i++) mean += (double)x[i] / n;
    for (int i = 0; i < n; i++) square += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
    for (int i = 0; i < n; i++) {
        const double by = 1 + 0.5 * (double)ix_value(w, (uint32_t)i, 0), add = layer ? 0.5 * (double)ix_value(bias, (uint32_t)i, 0) : 0;
        x[i] = (float)(((double)x[i] - mean) / sqrt(square + 1e-6) * by + add);
    }
}

/* How far the worst chosen position's score is below the best one left out, in row p of sequence id, by plain scores. */
static double ix_wrong_choice(const ix_case *c, int id, int p, const float *keys, const int32_t *chosen) {
    float *q = LLM__NEW(float, c->heads *(c->dim + 1)), *weight = q + c->heads * c->dim, *score = LLM__NEW(float, p + 1);
    double least = INFINITY, most = -INFINITY;
    int at = 0;
    for (int h = 0; h < c->heads; h++) {
        for (int i = 0; i < c->dim; i++) q[h * c->dim + i] = ix_input(0, id, p, h * c->dim + i);
        ix_turn(c, p, c->pairs, q + h * c->dim);
        weight[h] = ix_input(1, id, p, c->dim + h) / sqrtf((float)(c->heads * c->dim));
    }
    const ix_plain_row x = {q, weight, keys, c->heads, c->dim, p + 1};
    ix_plain_scores(&x, score);
    for (int t = 0; t <= p; t++) {
        const int is = at < c->topk && chosen[at] == t;
        if (is) at++, least = LLM__MIN(least, (double)score[t]);
        else most = LLM__MAX(most, (double)score[t]);
    }
    CHECK(at == c->topk); /* ascending, each once */
    LLM_FREE(q);
    LLM_FREE(score);
    return most - least;
}

/* Keys (nope + rope) and values of head h, made of the latents (len, rank + rope): what attention in the latent space never makes. */
static void ix_head(const ix_case *c, int h, int len, const float *latents, float *k, float *v) {
    const int width = c->rank + c->rope, d = c->nope + c->rope;
    for (int i = 0; i < c->nope + c->v; i++) {
        float w[64];
        for (int r = 0; r < c->rank; r++) w[r] = 0.5f * ix_value(24, (uint32_t)((h * (c->nope + c->v) + i) * c->rank + r), 0);
        for (int j = 0; j < len; j++) {
            double sum = 0;
            for (int r = 0; r < c->rank; r++) sum += (double)w[r] * (double)latents[j * width + r];
            *(i < c->nope ? k + j * d + i : v + j * c->v + i - c->nope) = (float)sum;
        }
    }
    for (int j = 0; j < len; j++) memcpy(k + j * d + c->nope, latents + j * width + c->rank, (size_t)c->rope * sizeof *k);
}

/* How far out (len, n * v) is from plain attention to what was chosen, in some of the rows. */
static double ix_error(const ix_case *c, int id, int len, const float *latents, const int32_t *chosen, const float *out) {
    const int d = c->nope + c->rope;
    float *k = LLM__NEW(float, 2 * len * (d + c->v)), *v = k + len * d, *seen = v + len * c->v, *weight = LLM__NEW(float, len + d + c->v);
    double worst = 0;
    for (int h = 0; h < c->n; h++) {
        ix_head(c, h, len, latents, k, v);
        for (int p = 0; p<len; p += p> c->topk - 3 && p < c->topk + 2 ? 1 : 9) {
            const int n = p < c->topk ? p + 1 : c->topk;
            float *q = weight + len, *got = q + d, *of = seen + n * d;
            for (int j = 0; j < n; j++) {
                const int at = p < c->topk ? j : chosen[p * c->topk + j];
                memcpy(seen + j * d, k + at * d, (size_t)d * sizeof *seen), memcpy(of + j * c->v, v + at * c->v, (size_t)c->v * sizeof *of);
            }
            for (int i = 0; i < d; i++) q[i] = ix_input(2, id, p, h * d + i);
            ix_turn(c, p, 1, q + c->nope);
            const llm__plain_query x = {
                .q = q, .k = seen, .v = of, .k_stride = d, .v_stride = c->v, .d = d, .v_d = c->v, .to = n, .scale = 0.2f};
            llm__plain_attention(&x, weight, got);
            for (int i = 0; i < c->v; i++) worst = LLM__MAX(worst, fabs((double)got[i] - (double)out[(p * c->n + h) * c->v + i]));
        }
    }
    LLM_FREE(k);
    LLM_FREE(weight);
    return worst;
}

/* Keys and latents of a sequence, plainly. */
static void ix_plain(const ix_case *c, int id, int len, float *keys, float *latents) {
    const int width = c->rank + c->rope;
    for (int p = 0; p < len; p++) {
        float *key = keys + p * c->dim, *x = latents + p * width;
        for (int i = 0; i < c->dim; i++) key[i] = ix_input(1, id, p, i);
        for (int i = 0; i < width; i++) x[i] = ix_input(3, id, p, i);
        ix_norm(key, c->dim, 1, 21, 22);
        ix_turn(c, p, c->pairs, key);
        ix_norm(x, c->rank, 0, 23, 0);
        ix_turn(c, p, 1, x + c->rank);
    }
}

enum { IX_LEN = 150 };

static void ix_case_run(const ix_case *c, const char *isa) {
    const int wide = c->n * c->v, all = 2 * IX_LEN;
    float *first = LLM__NEW(float, all *wide), *out = LLM__NEW(float, all *wide),
          *keys = LLM__NEW(float, IX_LEN *(c->dim + c->rank + c->rope));
    int32_t *chosen = LLM__NEW(int32_t, 2 * all * c->topk), *again = chosen + all * c->topk;
    double wrong = 0, error = 0;
    ix_net n;
    for (int run = 0; run < 4; run++) { /* steps of more rows than threads, of as many, and of fewer */
        ix_open(&n, c, isa, 1 + run % 3, 1);
        ix_run(&n, run % 3, IX_LEN, run ? out : first, run ? again : chosen);
        llm_backend_cpu()->close(n.ctx);
        if (!run) continue;
        int same = !memcmp(first, out, (size_t)(all * wide) * sizeof *out);
        for (int p = 0; p < all; p++)
            same &= p % IX_LEN < c->topk || !memcmp(chosen + p * c->topk, again + p * c->topk, (size_t)c->topk * sizeof *again);
        if (!CHECK(same)) printf("  %s, kv type %d, topk %d: run %d differs\n", isa, (int)c->kv, c->topk, run);
    }
    for (int id = 0; id < 2; id++) {
        ix_plain(c, id, IX_LEN, keys, keys + IX_LEN * c->dim);
        for (int p = c->topk; p < IX_LEN; p += 3)
            wrong = LLM__MAX(wrong, ix_wrong_choice(c, id, p, keys, chosen + (id * IX_LEN + p) * c->topk));
        error =
            LLM__MAX(error, ix_error(c, id, IX_LEN, keys + IX_LEN * c->dim, chosen + id * IX_LEN * c->topk, first + id * IX_LEN * wide));
    }
    if (!CHECK(wrong <= c->tolerance && error <= c->tolerance))
        printf("  %s, kv type %d, topk %d: chosen wrongly by %g, off by %g\n", isa, (int)c->kv, c->topk, wrong, error);
    ix_open(&n, c, isa, 2, 0); /* without an indexer */
    ix_run(&n, 2, IX_LEN, out, NULL);
    llm_backend_cpu()->close(n.ctx);
    for (int id = 0; id < 2; id++)
        CHECK(!memcmp(first + id * IX_LEN * wide, out + id * IX_LEN * wide, (size_t)(LLM__MIN(c->topk, IX_LEN) * wide) * sizeof *out));
    CHECK(c->topk >= IX_LEN || memcmp(first + c->topk * wide, out + c->topk * wide, (size_t)wide * sizeof *out));
    LLM_FREE(first);
    LLM_FREE(out);
    LLM_FREE(keys);
    LLM_FREE(chosen);
}

/* A row so long that threads share it: the same bits as in a step where each thread has rows of its own. */
static void ix_long(void) {
    const ix_case c = {3, 16, 8, 0, 40, 24, 2, 8, 8, 64, LLM_KV_F16, 0};
    enum { LEN = 2300, WIDE = 16 };
    static float out[2][LEN * WIDE];
    static int32_t chosen[2][LEN * 40];
    int32_t pages[IX_PAGES];
    for (int i = 0; i < IX_PAGES; i++) pages[i] = i;
    for (int run = 0; run < 2; run++) {
        ix_net n;
        ix_open(&n, &c, NULL, run ? 3 : 1, 1);
        for (int at = 0, rows; at < LEN; at += rows) {
            test_step b;
            rows = LLM__MIN(run && at >= LEN - 100 ? 1 : IX_ROWS, LEN - at);
            if (run && at < LEN - 100) rows = LLM__MIN(rows, LEN - 100 - at);
            step_begin(&b, IX_PAGES);
            step_add(&b, 0, at, rows, pages);
            ix_step(&n, &b, LEN, out[run], chosen[run]);
        }
        llm_backend_cpu()->close(n.ctx);
    }
    CHECK(!memcmp(chosen[0] + 40 * 40, chosen[1] + 40 * 40, sizeof chosen[0] - 40 * 40 * sizeof(int32_t)));
    CHECK(!memcmp(out[0], out[1], sizeof out[0]));
}

/* Steps that do not fit are refused. */
static void ix_refusals(void) {
    const ix_case c = {2, 16, 8, 0, 8, 24, 2, 8, 8, 16, LLM_KV_F32, 0};
    const llm_backend *t = llm_backend_cpu();
    int32_t pages[IX_PAGES] = {0};
    ix_net n;
    for (int i = 0; i < 5; i++) {
        ix_open(&n, &c, NULL, 1, i != 4);
        llm_index_op op = {.dst = n.chosen,
                           .q = n.q,
                           .k = n.k,
                           .k_norm = n.k_norm,
                           .k_bias = n.k_bias,
                           .rope = n.rope,
                           .rope_dim = 8,
                           .n_heads = 2,
                           .head_dim = 16,
                           .topk = 8,
                           .layer = 1,
                           .eps = 1e-6f};
        if (i == 0) op.layer = 2;
        if (i == 1) op.topk = 9;
        if (i == 2) op.n_heads = 3;
        if (i == 3) op.rope_dim = 18;
        test_step b;
        step_begin(&b, IX_PAGES);
        step_add(&b, 0, 0, 1, pages);
        CHECK(!t->begin_step(n.ctx, &b.s));
        t->index(n.ctx, 0, &op);
        CHECK(t->end_step(n.ctx) == LLM_ERR_ARG && strstr(llm_last_error(), "index: "));
        t->close(n.ctx);
    }
    llm_backend_config config = LLM__ZERO;
    config.max_rows = config.max_seqs = config.max_pages_per_seq = 1, config.indexed = -1;
    CHECK(t->open(&config, &n.ctx) == LLM_ERR_ARG && strstr(llm_last_error(), "indexed -1"));
}

TEST_GROUP(indexer) {
    static const ix_case cases[] = {
        {50, 20, 8, 0, 24, 24, 6, 12, 12, 16, LLM_KV_F32, 2e-5}, /* more heads than a tile */
        {4, 32, 16, 1, 33, 32, 33, 16, 16, 32, LLM_KV_F32, 2e-5},
        {8, 16, 16, 0, 1, 20, 2, 8, 12, 16, LLM_KV_F32, 2e-5},
        {6, 16, 8, 0, 150, 24, 3, 8, 8, 16, LLM_KV_F16, 5e-3}, /* nothing is ever left out */
        {6, 16, 8, 0, 70, 24, 17, 8, 8, 16, LLM_KV_F16, 5e-3},
        {6, 32, 8, 0, 40, 24, 5, 8, 8, 32, LLM_KV_BF16, 6e-2}, /* latents of bf16 by pairs of positions, and not */
        {6, 17, 8, 0, 40, 27, 5, 8, 8, 32, LLM_KV_BF16, 6e-2},
        {6, 32, 8, 0, 40, 24, 5, 8, 8, 32, LLM_KV_INT8, 0.1},
        {6, 32, 8, 0, 40, 24, 5, 8, 8, 32, LLM_KV_FP8_E4M3, 0.3},
        {6, 32, 8, 0, 40, 24, 5, 8, 8, 32, LLM_KV_INT4, 1.5},
    };
    ix_choices();
    for (int isa = 0; isa < LLM__ISA_COUNT; isa++) {
        if (!llm__isa_here((llm__isa)isa)) continue;
        for (int i = 0; i < LLM__COUNT(cases); i++) ix_case_run(&cases[i], llm__isa_name((llm__isa)isa));
    }
    ix_long();
    ix_refusals();
}
