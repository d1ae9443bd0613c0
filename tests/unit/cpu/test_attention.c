/* Attention: every query of a step is cut into one job of one thread, pages give back what was written, and a tile's result is that of a
 * plain softmax in double. (Whole operations on all instruction sets: test_backend.c.) */
#include "../test.h"
#include "cpu/attention.h"
#include "cpu/isa.h"
#include "cpu/kernels.h"
#include "cpu/kv_cache.h"
#include "cpu/lanes.h"
#include "cpu/linear.h"

static uint64_t att_state = 1;

static uint32_t att_random(uint32_t n) {
    att_state = att_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(att_state >> 33) % n;
}

static float att_uniform(void) { return (float)att_random(1 << 24) / (1 << 23) - 1; }

/* ---- how work is shared ---- */

/* n things among all numbers of threads: each once, in order, and no two threads differ by more than one. */
static void att_shares(void) {
    for (int n_threads = 1; n_threads <= 9; n_threads++)
        for (int64_t n = 0; n < 40; n++) {
            int64_t at = 0;
            int wrong = 0;
            for (int thread = 0; thread < n_threads; thread++) {
                int64_t begin, end;
                llm__exec e = LLM__ZERO;
                e.thread = thread, e.n_threads = n_threads;
                llm__share(&e, n, &begin, &end);
                wrong += begin != at || end - begin < n / n_threads || end - begin > (n + n_threads - 1) / n_threads;
                at = end;
            }
            CHECK(wrong == 0 && at == n);
        }
}

/* Tiles of tokens: all rows, whole tokens, no tile over its size; of bytes two tiles differ by at most one token. */
static void att_tiles(void) {
    static const llm__form forms[] = {LLM__FORM_F32,   LLM__FORM_I8,  LLM__FORM_I8X2, LLM__FORM_LOW,
                                      LLM__FORM_LOWX2, LLM__FORM_I16, LLM__FORM_BF16};
    for (int f = 0; f < LLM__COUNT(forms); f++)
        for (int rows = 1; rows < 200; rows++) {
            const int per = llm__form_per(forms[f]), n = llm__tiles(rows, forms[f]),
                      most = llm__form_is_float(forms[f]) ? LLM__FLOAT_TILE : LLM__TILE;
            int at = 0, least = most, largest = 0, wrong = 0;
            for (int i = 0; i < n; i++) {
                const llm__tile t = llm__tile_at(rows, forms[f], i);
                wrong += t.start != at || t.n < 1 || t.n > most || t.n % per;
                at += t.n, least = LLM__MIN(least, t.n), largest = LLM__MAX(largest, t.n);
            }
            CHECK(wrong == 0 && at == rows * per && (llm__form_is_float(forms[f]) || largest - least <= per));
        }
    CHECK(llm__form_per(LLM__FORM_I8X2) == 2 && llm__form_per(LLM__FORM_I8) == 1 && llm__form_per(LLM__FORM_I16) == 1 &&
          llm__form_per(LLM__FORM_LOWX2) == 2 && llm__form_per(LLM__FORM_LOW) == 1 && !llm__form_low(LLM__FORM_I8) &&
          llm__form_is_float(LLM__FORM_BF16) && !llm__form_is_float(LLM__FORM_I8X2));
}

enum { ATT_SEQS = 6, ATT_ROWS = 200 };

typedef struct att_step {
    llm_step step;
    int32_t begin[ATT_SEQS + 1], len[ATT_SEQS], seq_of_row[ATT_ROWS];
} att_step;

/* A step of random sequences: chunks of up to `most` rows at the ends of contexts of random lengths. */
static void att_make(att_step *s, int n_seqs, int most) {
    int row = 0;
    memset(s, 0, sizeof *s);
    for (int i = 0; i < n_seqs; i++) {
        const int n = 1 + (int)att_random((uint32_t)most);
        s->begin[i] = row;
        s->len[i] = n + (int)att_random(300);
        for (int k = 0; k < n; k++) s->seq_of_row[row++] = i;
    }
    s->begin[n_seqs] = row;
    s->step.shape.n_rows = row, s->step.shape.n_seqs = n_seqs;
    s->step.seq_begin = s->begin, s->step.seq_len = s->len, s->step.seq_of_row = s->seq_of_row;
}

/* Every (row, query head) is in one job, with the KV head of its group, whoever takes it; there are as many jobs as threads where the
 * heads allow. */
static void att_jobs(int n_kv, int group, int n_threads) {
    static uint8_t seen[ATT_ROWS][64];
    att_step s;
    llm__attend_jobs jobs;
    llm__attend_job job;
    int next = 0, wrong = 0, n = 0;
    att_make(&s, 1 + (int)att_random(ATT_SEQS), 30);
    memset(seen, 0, sizeof seen);
    llm__jobs_cut(&jobs, &s.step, n_kv, group, n_threads);
    for (; llm__jobs_next(&jobs, &next, &job); n++) {
        wrong += job.n_rows < 1 || job.n_heads < 1 || job.n_rows * job.n_heads > LLM__QUERIES || job.head / group != job.kv_head ||
                 (job.head + job.n_heads - 1) / group != job.kv_head;
        for (int r = job.row; r < job.row + job.n_rows; r++) {
            wrong += s.seq_of_row[r] != job.seq;
            for (int h = job.head; h < job.head + job.n_heads; h++) wrong += seen[r][h]++ != 0;
        }
    }
    for (int r = 0; r < s.step.shape.n_rows; r++) {
        for (int h = 0; h < n_kv * group; h++) wrong += seen[r][h] != 1;
        wrong += llm__row_position(&s.step, r) != s.len[s.seq_of_row[r]] - (s.begin[s.seq_of_row[r] + 1] - r);
    }
    CHECK(wrong == 0 && n == jobs.n && (n >= n_threads || jobs.heads == 1));
    jobs.fixed = 1, jobs.begin = n / 3, jobs.end = n - n / 4; /* a thread that has its own, the last first */
    for (n = 0; llm__jobs_next(&jobs, &next, &job);) n++;
    CHECK(n == jobs.n - jobs.n / 4 - jobs.n / 3);
}

/* Where every sequence has one row, threads have neighbouring heads of about the same cost: none more than its share and one head. */
static void att_heads(int n_kv, int n_threads) {
    att_step s;
    int64_t at = 0, total = 0, most = 0;
    att_make(&s, 1 + (int)att_random(ATT_SEQS), 1);
    for (int i = 0; i < s.step.shape.n_seqs; i++) total += n_kv * (LLM__BLOCK + s.len[i]), most = LLM__MAX(most, LLM__BLOCK + s.len[i]);
    for (int thread = 0; thread < n_threads; thread++) {
        int64_t begin, end, cost = 0;
        llm__exec e = LLM__ZERO;
        e.thread = thread, e.n_threads = n_threads, e.step = &s.step;
        llm__share_heads(&e, n_kv, &begin, &end);
        for (int64_t i = begin; i < end; i++) cost += LLM__BLOCK + s.len[i / n_kv];
        CHECK(begin == at && cost <= total / n_threads + most);
        at = end;
    }
    CHECK(at == n_kv * s.step.shape.n_seqs);
}

/* ---- pages ---- */

enum { ATT_PAGE = 32, ATT_PAGES = 8, ATT_LONG = 200, ATT_MOST_DIM = 80 };

typedef struct att_cache {
    llm__kv_cache kv;
    llm__kv_place place;
    llm__kv_view view;
    int32_t pages[ATT_PAGES];
    uint8_t *memory;
} att_cache;

static int att_open(att_cache *c, llm_kv_type type, int head_dim, int v_dim) {
    const llm_kv_layer shape = {2, head_dim, v_dim, 0};
    int ok = 1;
    memset(c, 0, sizeof *c);
    llm__kv_type_set(&c->kv, type);
    c->kv.page_tokens = ATT_PAGE, c->kv.n_pages = ATT_PAGES;
    c->kv.page_bytes = (int64_t)llm__kv_place_layer(&c->kv, &shape, ATT_PAGE, 64, &c->place, &ok);
    CHECK(ok && c->place.offset == 64 && c->kv.page_bytes % 64 == 0 && c->kv.page_bytes == 64 + 2 * c->place.head_bytes);
    if (!CHECK(!posix_memalign((void **)&c->memory, 64, (size_t)c->kv.page_bytes * ATT_PAGES))) return 0;
    memset(c->memory, 0x55, (size_t)c->kv.page_bytes * ATT_PAGES); /* what was never written must not matter */
    for (int i = 0; i < ATT_PAGES; i++) c->pages[i] = (i * 3 + 1) % ATT_PAGES;
    c->view.kv = &c->kv, c->view.place = &c->place, c->view.base = c->memory, c->view.pages = c->pages, c->view.head = 1;
    return 1;
}

/* How far a stored element may be from what was written, as part of the largest of its row. */
static double att_rounding(llm_kv_type type) {
    static const struct {
        llm_kv_type type;
        double error;
    } rows[] = {{LLM_KV_F32, 0},
                {LLM_KV_F16, 1.0 / 2048},
                {LLM_KV_BF16, 1.0 / 256},
                {LLM_KV_FP8_E4M3, 1.0 / 16},
                {LLM_KV_FP8_E5M2, 1.0 / 8},
                {LLM_KV_INT8, 1.0 / 255},
                {LLM_KV_INT4, 0.13}};
    for (int i = 0; i < LLM__COUNT(rows); i++)
        if (rows[i].type == type) return rows[i].error;
    return -1;
}

/* Keys and values of a sequence come back from its pages, whatever their order, to the rounding of their type; the other head's and what
 * stands behind the sequence is left alone. */
static void att_pages(const llm__kernels *k, llm_kv_type type, int head_dim, int v_dim) {
    static float key[ATT_LONG][ATT_MOST_DIM], value[ATT_LONG][ATT_MOST_DIM];
    float keys[(ATT_MOST_DIM + 1) * LLM__GROUP], got[ATT_MOST_DIM + 16], scale[2][LLM__BLOCK], offset[2][LLM__BLOCK];
    uint8_t scratch[4 * (ATT_MOST_DIM + 1)];
    double worst = 0;
    att_cache c;
    if (!att_open(&c, type, head_dim, v_dim)) return;
    for (int i = 0; i < ATT_LONG; i++) {
        for (int d = 0; d < head_dim; d++) key[i][d] = att_uniform();
        for (int d = 0; d < v_dim; d++) value[i][d] = att_uniform();
        llm__kv_write_token(k, &c.view, i, key[i], value[i], scratch);
    }
    for (int i = 0; i < v_dim; i++) value[7][i] = att_uniform();
    llm__kv_write_value(k, &c.view, 7, value[7]); /* a value alone, again */
    for (int i = 0; i < ATT_LONG; i++) {
        const int block = i / LLM__BLOCK * LLM__BLOCK, pair = c.place.pair == 2;
        if (c.kv.scaled && i % LLM__BLOCK == 0)
            for (int what = 0; what < 2; what++)
                llm__kv_load_scales(&c.view, NULL, block, 0, LLM__MIN(LLM__BLOCK, ATT_LONG - block), 2 * what, scale[what], offset[what]);
        if (!pair && i % LLM__GROUP == 0) llm__kv_load_keys(k, &c.view, i, keys);
        for (int d = 0; d < head_dim && !pair; d++) {
            const double x = (double)keys[d * LLM__GROUP + i % LLM__GROUP],
                         back = c.kv.scaled ? (double)offset[0][i - block] + (double)scale[0][i - block] * x : x;
            worst = LLM__MAX(worst, fabs(back - (double)key[i][d]));
        }
        llm__kv_read_value(k, &c.view, i, got);
        for (int d = 0; d < v_dim; d++) worst = LLM__MAX(worst, fabs((double)got[d] - (double)value[i][d]));
    }
    if (!CHECK(worst <= att_rounding(type) && (worst > 0 || type == LLM_KV_F32)))
        printf("  type %d, %d and %d: off by %g\n", (int)type, head_dim, v_dim, worst);
    c.view.head = 0;
    for (int i = 0; i < ATT_LONG; i++) CHECK(llm__kv_part(&c.view, i)[0] == 0x55);
    c.view.head = 1;
    CHECK(llm__kv_part(&c.view, ATT_PAGE) - c.memory == c.pages[1] * c.kv.page_bytes + c.place.offset + c.place.head_bytes);
    CHECK(llm__kv_keys(&c.view, 16) - llm__kv_part(&c.view, 16) == 16 * c.place.k_elements * c.kv.element_bytes);
    CHECK(llm__kv_values(&c.view, 33) - llm__kv_part(&c.view, 33) - c.place.v_offset ==
          (1 / c.place.pair * c.place.pair) * c.place.v_elements * c.kv.element_bytes);
    if (c.kv.scaled) {
        llm__kv_load_scales(&c.view, NULL, 0, 3, 5, 0, scale[0], offset[0]);
        for (int i = 0; i < LLM__BLOCK; i++) CHECK((scale[0][i] != 0) == (i >= 3 && i < 5));
    }
    free(c.memory);
}

/* ---- a tile ---- */

static double att_plain(const double *score, int from, int to, float (*value)[ATT_MOST_DIM], int d) {
    double top = -INFINITY, sum = 0, out = 0;
    for (int i = from; i < to; i++) top = LLM__MAX(top, score[i]);
    for (int i = from; i < to; i++) sum += exp(score[i] - top), out += exp(score[i] - top) * (double)value[i][d];
    return to > from ? out / sum : 0;
}

/* n queries that see random stretches of positions, with a soft cap or slopes, against a plain softmax; then each alone, to the bit. */
static void att_tile(const llm__kernels *k, llm_kv_type type, int head_dim, int v_dim, int n, int kind, double tolerance) {
    static float key[ATT_LONG][ATT_MOST_DIM], value[ATT_LONG][ATT_MOST_DIM], q[LLM__QUERIES][ATT_MOST_DIM], out[LLM__QUERIES][ATT_MOST_DIM],
        slope[LLM__QUERIES];
    static llm__attend t;
    int from[LLM__QUERIES], to[LLM__QUERIES], wrong = 0;
    uint8_t scratch[4 * (ATT_MOST_DIM + 1)];
    double worst = 0;
    att_cache c;
    if (!att_open(&c, type, head_dim, v_dim)) return;
    float *memory = NULL;
    CHECK(!posix_memalign((void **)&memory, 64, llm__attend_floats(head_dim, v_dim) * sizeof *memory));
    for (int i = 0; i < ATT_LONG; i++) {
        for (int d = 0; d < head_dim; d++) key[i][d] = att_uniform() * 2;
        for (int d = 0; d < v_dim; d++) value[i][d] = att_uniform();
        llm__kv_write_token(k, &c.view, i, key[i], value[i], scratch);
        llm__kv_read_value(k, &c.view, i, value[i]); /* the rounding is not attention's */
    }
    for (int i = 0; i < n; i++) {
        from[i] = (int)att_random(ATT_LONG - 1), to[i] = from[i] + 1 + (int)att_random((uint32_t)(ATT_LONG - from[i]));
        slope[i] = kind == 2 ? att_uniform() / 16 : 0;
        for (int d = 0; d < head_dim; d++) q[i][d] = att_uniform();
    }
    for (int alone = -1; alone < n; alone++) {
        const int first = LLM__MAX(alone, 0), count = alone < 0 ? n : 1;
        llm__attend_place(&t, memory, head_dim, v_dim);
        t.n = count, t.softcap = kind == 1 ? 3.0f : 0, t.alibi = kind == 2;
        for (int i = 0; i < LLM__QUERIES; i++) t.running_max[i] = -1e30f;
        for (int i = 0; i < count; i++) {
            memcpy(t.q + i * head_dim, q[first + i], (size_t)head_dim * sizeof **q);
            t.from[i] = from[first + i], t.to[i] = to[first + i], t.at[i] = to[first + i] - 1, t.slope[i] = slope[first + i];
        }
        llm__attend_run(k, &t, &c.view);
        for (int i = 0; i < count; i++) {
            if (alone < 0) memcpy(out[i], t.out + i * t.v_stride, (size_t)v_dim * sizeof **out);
            else wrong += memcmp(out[alone], t.out, (size_t)v_dim * sizeof **out) != 0;
        }
    }
    for (int i = 0; i < n; i++) {
        double score[ATT_LONG];
        for (int p = from[i]; p < to[i]; p++) {
            score[p] = 0;
            for (int d = 0; d < head_dim; d++) score[p] += (double)q[i][d] * (double)key[p][d];
            if (kind == 1) score[p] = 3 * tanh(score[p] / 3);
            if (kind == 2) score[p] += (double)slope[i] * (p - (to[i] - 1));
            if (kind != 1) score[p] *= log(2); /* without a cap scores come in units of the base-2 logarithm */
        }
        for (int d = 0; d < v_dim; d++) worst = LLM__MAX(worst, fabs((double)out[i][d] - att_plain(score, from[i], to[i], value, d)));
    }
    if (!CHECK(worst <= tolerance && !wrong))
        printf("  type %d, %d and %d, %d queries, kind %d: off by %g, %d differ alone\n", (int)type, head_dim, v_dim, n, kind, worst,
               wrong);
    free(memory);
    free(c.memory);
}

/* ---- sixteen floats ---- */

static void att_lanes(void) {
    llm__v16 x, e, rough, s, cap;
    double worst[4] = {0, 0, 0, 0};
    int wrong = 0;
    for (double at = -130; at <= 126; at += 0.37) {
        for (int i = 0; i < 16; i++) x.v[i] = (float)LLM__MIN(at + i * 0.021, 126);
        e = llm__exp2_16(x, at > 0, 0), rough = llm__exp2_16(x, 0, 1), s = llm__sigmoid16(x, 0.25f), cap = llm__softcap16(x, 30);
        for (int i = 0; i < 16; i++) {
            const double y = (double)x.v[i], want = exp2(y);
            if (y < -126.5) wrong += e.v[i] != 0 && y < -127;
            else if (y > -126)
                worst[0] = LLM__MAX(worst[0], fabs((double)e.v[i] / want - 1)),
                worst[1] = LLM__MAX(worst[1], fabs((double)rough.v[i] / want - 1));
            worst[2] = LLM__MAX(worst[2], fabs((double)s.v[i] - 1 / (1 + exp(-y / 4))));
            worst[3] = LLM__MAX(worst[3], fabs((double)cap.v[i] - 30 * tanh(y / 30)));
        }
    }
    CHECK(worst[0] < 4e-7 && worst[1] < 2e-4 && worst[2] < 4e-7 && worst[3] < 2e-5 && !wrong);
    for (int n = 0; n <= 16; n++) {
        float in[16], out[17];
        double sum = 0, top = -INFINITY;
        for (int i = 0; i < 16; i++) in[i] = att_uniform(), out[i] = 7;
        out[16] = 7;
        x = llm__load16(in, n);
        llm__store16(out, n, x);
        for (int i = 0; i < 16; i++) {
            wrong += x.v[i] != (i < n ? in[i] : 0) || out[i] != (i < n ? in[i] : 7);
            sum += (double)x.v[i], top = LLM__MAX(top, (double)x.v[i]);
        }
        CHECK(fabs((double)llm__total16(x) - sum) < 1e-6 && (double)llm__top16(x) == top && out[16] == 7);
    }
    x = llm__all16(0), e = llm__exp2_16(x, 0, 0);
    for (int i = 0; i < 16; i++) wrong += e.v[i] != 1;
    x.v[3] = (float)NAN, e = llm__exp2_16(x, 0, 0);
    CHECK(wrong == 0 && e.v[3] != e.v[3] && e.v[4] == 1);
}

TEST_GROUP(attention) {
    static const llm_kv_type types[] = {LLM_KV_F32, LLM_KV_F16, LLM_KV_BF16, LLM_KV_FP8_E4M3, LLM_KV_FP8_E5M2, LLM_KV_INT8, LLM_KV_INT4};
    att_shares();
    att_tiles();
    att_lanes();
    for (int round = 0; round < 200; round++) att_jobs(1 + (int)att_random(4), 1 + (int)att_random(15), 1 + (int)att_random(9));
    for (int round = 0; round < 200; round++) att_heads(1 + (int)att_random(8), 1 + (int)att_random(9));
    for (int isa = 0; isa < LLM__ISA_COUNT; isa++) {
        if (!llm__isa_here((llm__isa)isa)) continue;
        const llm__kernels *k = llm__kernels_of((llm__isa)isa);
        for (int i = 0; i < LLM__COUNT(types); i++) {
            CHECK(llm__kv_size(types[i]) == (types[i] == LLM_KV_F32 ? 4 : types[i] == LLM_KV_F16 || types[i] == LLM_KV_BF16 ? 2 : 1));
            att_pages(k, types[i], 64, 64), att_pages(k, types[i], 80, 48), att_pages(k, types[i], 7, 5);
        }
        CHECK(llm__kv_auto((llm__isa)isa, LLM_COMPUTE_F32) == LLM_KV_F32 && llm__kv_auto((llm__isa)isa, LLM_COMPUTE_F16) == LLM_KV_F16);
        CHECK(llm__kv_auto((llm__isa)isa, LLM_COMPUTE_AUTO) == (k->bf16 ? LLM_KV_BF16 : LLM_KV_F16));
        for (int kind = 0; kind < 3; kind++) {
            att_tile(k, LLM_KV_F32, 64, 64, 1, kind, 1e-5), att_tile(k, LLM_KV_F32, 80, 48, 48, kind, 1e-5),
                att_tile(k, LLM_KV_F32, 7, 5, 17, kind, 1e-5);
            att_tile(k, LLM_KV_F16, 64, 64, 9, kind, 4e-3), att_tile(k, LLM_KV_INT8, 64, 48, 9, kind, 4e-2);
        }
    }
}
