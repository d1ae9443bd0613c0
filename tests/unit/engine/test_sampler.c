/* Sampling: randomness, each parameter, the fast selection against its plain twin, validation, early stop. */
#include "../test.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/map.h"
#include "cpu/lanes.h"
#include "cpu/bodies.h"
#include "model/loader.h"
#include "engine/sampler.h"
#include "engine/plain_sampler.h"
#include "engine/earlystop.h"

static uint64_t smp_state = 1;
static double smp_random(void) { return (double)(llm__mix(smp_state++) >> 11) / 9007199254740992.0; }

/* The plain twin of llm__pick: takes the tokens in order, best first, until a filter ends it. rank: (n) working memory, 0 for what is not taken. */
static int32_t smp_ref_pick(const float *w, int32_t n, const llm_sampling *s, double u, int32_t *rank) {
    int32_t k = s->top_k > 0 && s->top_k < n ? s->top_k : n, last = -1, best = 0;
    double sum = 0, before = 0, total = 0, at = 0;
    float least = 0;
    memset(rank, 0, (size_t)n * sizeof *rank);
    for (int32_t taken = 1; best >= 0; taken += best >= 0) { /* min-p and top-k */
        best = -1;
        for (int32_t i = 0; i < n; i++)
            if (!rank[i] && w[i] > 0 && w[i] >= s->min_p && (best < 0 || w[i] > w[best])) best = i;
        if (best < 0 || (taken > k && w[best] < least)) break;
        if (taken <= k) least = w[best];
        rank[best] = taken;
        sum += (double)w[best];
    }
    for (int32_t taken = 1; taken <= n; taken++) /* top-p */
        for (int32_t i = 0; i < n; i++)
            if (rank[i] == taken) {
                if (s->top_p > 0 && s->top_p < 1 && before >= (double)s->top_p * sum) rank[i] = 0;
                else total += (double)w[i];
                before += (double)w[i];
            }
    for (int32_t i = 0; i < n && !(at > u * total); i++)
        if (rank[i]) at += (double)w[last = i];
    return last;
}

typedef struct smp_env {
    llm__scratch k;
    llm__arena memory;
    llm__rules r;
    llm_sampling s;
} smp_env;

static void smp_open(smp_env *e, int32_t n) {
    memset(e, 0, sizeof *e);
    llm__scratch_open(&e->k, n, NULL, &e->memory);
    e->s.repetition_penalty = 1;
    e->r.s = &e->s;
}

static llm__choice smp_choose(smp_env *e, const float *x, int32_t n, uint64_t seed, int64_t position) {
    return llm__choose(x, n, &e->r, seed, position, &e->k);
}

static void smp_test_numbers(void) {
    double worst = 0, mean = 0;
    for (int i = 0; i <= 87000; i++) {
        float x = -(float)i / 1000.0f;
        double want = exp((double)x), got = (double)llm__exp_neg16(llm__all16(x)).v[0];
        worst = LLM__MAX(worst, fabs(got - want) / want);
    }
    CHECK(worst < 3e-7);
    CHECK(llm__exp_neg16(llm__all16(0)).v[1] == 1.0f && llm__exp_neg16(llm__all16(-88)).v[2] == 0 &&
          llm__exp_neg16(llm__all16(-INFINITY)).v[3] == 0);
    int bins[64] = {0}, pairs[16] = {0};
    for (int i = 0; i < 64000; i++) {
        double u = llm__uniform(42, (uint64_t)i), v = llm__uniform(42, (uint64_t)i + 1);
        mean += u;
        bins[(int)(u * 64)]++;
        pairs[(int)(u * 4) * 4 + (int)(v * 4)]++;
    }
    double chi = 0, chi2 = 0;
    for (int i = 0; i < 64; i++) chi += (bins[i] - 1000.0) * (bins[i] - 1000.0) / 1000.0;
    for (int i = 0; i < 16; i++) chi2 += (pairs[i] - 4000.0) * (pairs[i] - 4000.0) / 4000.0;
    CHECK(fabs(mean / 64000 - 0.5) < 0.005);
    CHECK(chi < 110 && chi2 < 40); /* 63 and 15 degrees of freedom */
    memset(bins, 0, sizeof bins);
    for (int seed = 0; seed < 64000; seed++) bins[(int)(llm__uniform((uint64_t)seed, 0) * 64)]++;
    chi = 0;
    for (int i = 0; i < 64; i++) chi += (bins[i] - 1000.0) * (bins[i] - 1000.0) / 1000.0;
    CHECK(chi < 110); /* neighbouring seeds are independent */
    CHECK(llm__uniform(1, 2) != llm__uniform(2, 1));
}

static void smp_test_distribution(void) {
    float x[8] = {0, 1, 2, 3, -1, 0.5f, 2.5f, -3};
    smp_env e;
    smp_open(&e, 8);
    e.s.temperature = 0.8f;
    double p[8], sum = 0, chi = 0;
    int count[8] = {0}, n = 40000;
    for (int i = 0; i < 8; i++) sum += p[i] = exp((double)x[i] / 0.8);
    for (int i = 0; i < n; i++) count[smp_choose(&e, x, 8, 7, i).id]++;
    for (int i = 0; i < 8; i++) {
        double want = n * p[i] / sum;
        chi += (count[i] - want) * (count[i] - want) / want;
    }
    CHECK(chi < 30);
    llm__choice c = smp_choose(&e, x, 8, 7, 3);
    CHECK(fabs((double)c.prob - p[c.id] / sum) < 1e-6);
    double raw = 0;
    for (int i = 0; i < 8; i++) raw += exp((double)x[i]);
    CHECK(fabs((double)c.logprob - ((double)x[c.id] - log(raw))) < 1e-6); /* of temperature 1 */
    CHECK(llm_sample(x, 8, &e.s, 7, 3) == c.id);
    llm__arena_free(&e.memory);
}

/* How often each token comes up, as a set of bits. */
static uint32_t smp_support(smp_env *e, const float *x, int32_t n) {
    uint32_t seen = 0;
    for (int i = 0; i < 3000; i++) {
        int32_t id = smp_choose(e, x, n, 5, i).id;
        if (id >= 0) seen |= 1u << id;
    }
    return seen;
}

static void smp_test_filters(void) {
    float x[8] = {3, 2, 2, 1, 1, 0, -1, -2}, flat[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    smp_env e;
    smp_open(&e, 8);
    e.s.temperature = 1;
    CHECK(smp_support(&e, x, 8) == 0xFF);
    e.s.top_k = 1;
    CHECK(smp_support(&e, x, 8) == 0x01);
    e.s.top_k = 2; /* the tie of the second stays */
    CHECK(smp_support(&e, x, 8) == 0x07);
    e.s.top_k = 100;
    CHECK(smp_support(&e, x, 8) == 0xFF);
    e.s.top_k = 0;
    e.s.top_p = 0.01f;
    CHECK(smp_support(&e, x, 8) == 0x01);
    CHECK(smp_support(&e, flat, 8) == 0x01); /* of equals the lowest ids */
    e.s.top_p = 0.5f;
    CHECK(smp_support(&e, flat, 8) == 0x0F);
    e.s.top_p = 1;
    e.s.min_p = 0.3f; /* e^-1 = 0.37, e^-2 = 0.14 */
    CHECK(smp_support(&e, x, 8) == 0x07);
    e.s.min_p = 1;
    CHECK(smp_support(&e, x, 8) == 0x01);
    e.s.min_p = 0;
    e.s.temperature = 0;
    CHECK(smp_support(&e, x, 8) == 0x01 && smp_support(&e, flat, 8) == 0x01);
    x[5] = 3; /* a tie of the best: the lower id */
    CHECK(smp_support(&e, x, 8) == 0x01);
    e.s.temperature = 2e-5f;
    e.s.top_k = 3;
    e.s.top_p = 0.9f;
    CHECK((smp_support(&e, x, 8) & ~0x21u) == 0);
    llm__arena_free(&e.memory);
}

static void smp_test_twin(void) {
    enum { N = 400 };
    static float x[N], w[N];
    int32_t rank[N], same = 0, total = 0;
    smp_env e;
    smp_open(&e, N);
    for (int round = 0; round < 600; round++) {
        int n = 1 + (int)(smp_random() * (N - 1)), coarse = round % 3;
        double spread = round % 5 == 0 ? 0.01 : 6;
        for (int i = 0; i < n; i++) {
            x[i] = (float)(smp_random() * spread);
            if (coarse) x[i] = floorf(x[i] * (coarse == 1 ? 2 : 8)) / 4; /* many ties */
        }
        e.s.min_p = round & 1 ? (float)(smp_random() * 0.2) : 0;
        e.s.top_k = round & 2 ? 1 + (int)(smp_random() * n) : 0;
        e.s.top_p = round & 4 ? (float)smp_random() : 1;
        int bad;
        float max = e.k.kernels->top(x, n, &bad), weight;
        double u = smp_random();
        e.k.kernels->weigh(x, w, n, max, 1);
        memcpy(e.k.w, w, (size_t)n * sizeof *w);
        int32_t want = smp_ref_pick(w, n, &e.s, u, rank), got = llm__pick(&e.k, n, &e.s, u, &weight);
        same += want == got && weight == w[want];
        total++;
    }
    CHECK(same == total);
    llm__arena_free(&e.memory);
}

static void smp_test_top(void) {
    float x[300];
    llm_token_logprob top[300];
    for (int i = 0; i < 300; i++) x[i] = floorf((float)(smp_random() * 50));
    for (int k = 0; k <= 300; k += 37) {
        int n = llm__top_logprobs(x, 300, k, 1.5, top), ok = n == k;
        for (int i = 1; i < n; i++) ok &= llm__before(top[i - 1].logprob, top[i - 1].id, top[i].logprob, top[i].id);
        for (int i = 0; i < n; i++) ok &= top[i].logprob == x[top[i].id] - 1.5f;
        int better = 0;
        for (int i = 0; n && i < 300; i++) better += llm__before(x[i] - 1.5f, i, top[n - 1].logprob, top[n - 1].id);
        CHECK(ok && (!n || better == n - 1));
    }
    CHECK(llm__top_logprobs(x, 5, 20, 0, top) == 5);
}

static void smp_test_rules(void) {
    float x[6] = {2, -2, 1, 0.5f, 4, 1}, y[6];
    int32_t ids[8], counts[8], slots[16] = {0}, output[3] = {2, 2, 0}, eos[1] = {4}, stop[1] = {3};
    llm_logit_bias bias[2] = {{5, 200}, {1, -1}};
    llm__history h = {0, 15, ids, counts, slots};
    smp_env e;
    smp_open(&e, 6);
    llm__history_add(&h, 0, 0); /* prompt: 0 1 0 */
    llm__history_add(&h, 1, 0);
    llm__history_add(&h, 0, 0);
    for (int i = 0; i < 3; i++) llm__history_add(&h, output[i], 1);
    CHECK(h.n == 3 && counts[0] == 1 && counts[1] == 0 && counts[2] == 2);
    e.s.repetition_penalty = 2;
    e.s.frequency_penalty = 0.25f;
    e.s.presence_penalty = 0.5f;
    e.r.history = &h;
    e.r.output = output;
    e.r.n_output = 3;
    memcpy(y, x, sizeof y);
    llm__rules_apply(&e.r, y, 6);
    CHECK(y[0] == 2.0f / 2 - 0.25f - 0.5f); /* prompt and once in the output */
    CHECK(y[1] == -4.0f);                   /* prompt only: repetition alone */
    CHECK(y[2] == 1.0f / 2 - 0.5f - 0.5f);  /* twice in the output */
    CHECK(y[3] == 0.5f && y[4] == 4 && y[5] == 1);
    e.r.history = NULL;
    e.r.n_output = 2;
    e.r.eos = eos;
    e.r.n_eos = 1;
    e.s.stop_token_ids = stop;
    e.s.n_stop_token_ids = 1;
    e.s.min_tokens = 3;
    e.s.logit_bias = bias;
    e.s.n_logit_bias = 2;
    memcpy(y, x, sizeof y);
    llm__rules_apply(&e.r, y, 6);
    CHECK(y[3] == -INFINITY && y[4] == -INFINITY && y[5] == 101 && y[1] == -3); /* the bias is clamped to 100 */
    llm__choice c = smp_choose(&e, x, 6, 1, 0);
    CHECK(c.id == 5 && fabs((double)c.logprob - (1 - c.log_sum)) < 1e-6); /* logprob is the raw one */
    e.r.n_output = 3;
    e.s.n_logit_bias = 0;
    CHECK(smp_choose(&e, x, 6, 1, 0).id == 4);
    llm__arena_free(&e.memory);
}

static void smp_test_not_finite(void) {
    float x[40];
    smp_env e;
    smp_open(&e, 40);
    e.s.temperature = 1;
    for (int at = 0; at < 40; at += 13)
        for (int kind = 0; kind < 2; kind++) {
            for (int i = 0; i < 40; i++) x[i] = (float)i / 10;
            x[at] = kind ? NAN : INFINITY;
            CHECK(smp_choose(&e, x, 40, 1, 0).id == -1);
        }
    for (int i = 0; i < 40; i++) x[i] = -INFINITY;
    CHECK(smp_choose(&e, x, 40, 1, 0).id == -1);
    x[17] = -5; /* masked rows are fine as long as something is left */
    CHECK(smp_choose(&e, x, 40, 1, 0).id == 17);
    for (int i = 0; i < 40; i++) x[i] = -3e38f;
    x[3] = 3e38f;
    CHECK(smp_choose(&e, x, 40, 1, 0).id == 3);
    llm__arena_free(&e.memory);
}

static void smp_refused(const char *field, llm_sampling s) {
    CHECK(llm_sampling_check(NULL, &s) == LLM_ERR_ARG);
    CHECK(!strncmp(llm_last_error(), field, strlen(field)));
}

static void smp_test_check(void) {
    static const char *const empty[] = {""};
    static const int32_t negative[] = {-1};
    llm_sampling good, s;
    llm_sampling_default(NULL, &good);
    CHECK(good.temperature == 1 && good.top_p == 1 && good.top_k == 0 && good.n == 1);
    CHECK(llm_sampling_check(NULL, &good) == LLM_OK);
    memset(&s, 0, sizeof s);
    CHECK(llm_sampling_check(NULL, &s) == LLM_OK);
#define SMP_BAD(field, value) (s = good, s.field = value, smp_refused(#field, s))
    SMP_BAD(temperature, 2.5f);
    SMP_BAD(temperature, -0.1f);
    SMP_BAD(temperature, NAN);
    CHECK(!strcmp(llm_last_error(), "temperature: nan, must be in [0, 2]"));
    SMP_BAD(top_p, 1.5f);
    SMP_BAD(min_p, -1);
    SMP_BAD(top_k, -2);
    CHECK(!strcmp(llm_last_error(), "top_k: -2, must be at least -1 (tokens; -1 and 0: all)"));
    SMP_BAD(repetition_penalty, 2.1f);
    SMP_BAD(presence_penalty, -2.1f);
    SMP_BAD(frequency_penalty, 3);
    SMP_BAD(n, -1);
    SMP_BAD(n, 129);
    SMP_BAD(max_tokens, -2);
    SMP_BAD(min_tokens, 257);
    SMP_BAD(logprobs, -1);
    SMP_BAD(early_stop.threshold, 1.5f);
    SMP_BAD(early_stop.window_size, -1);
    SMP_BAD(repetition_detection.max_pattern_size, 4097);
    s = good, s.repetition_detection.max_pattern_size = 4, smp_refused("repetition_detection.min_count", s);
    CHECK(!strcmp(llm_last_error(), "repetition_detection.min_count: 0, must be at least 2 (times in a row)"));
    SMP_BAD(repetition_detection.min_pattern_size, 1);
    SMP_BAD(repetition_detection.min_count, 1);
    s = good, s.repetition_detection.max_pattern_size = 4, s.repetition_detection.min_count = 2;
    CHECK(llm_sampling_check(NULL, &s) == LLM_OK);
    s.use_beam_search = 1, s.best_of = 2, smp_refused("use_beam_search", s);
    s = good, s.n = 3, s.best_of = 2, smp_refused("best_of", s);
    s = good, s.stop = empty, s.n_stop = 1, smp_refused("stop", s);
    s = good, s.stop_token_ids = negative, s.n_stop_token_ids = 1, smp_refused("stop_token_ids", s);
    s = good, s.n_think_open = 2, smp_refused("think_open", s); /* lists are looked at, bound or not, for all are copied */
    s = good, s.n_think_close = -1, smp_refused("think_open", s);
    s = good, s.think_close = negative, s.n_think_close = 1, smp_refused("think_close", s);
    s = good, s.thinking_tokens = 3, smp_refused("thinking_tokens", s);
#undef SMP_BAD
}

static void smp_test_early(void) {
    llm_early_stop none, own, e;
    int32_t count = 0;
    memset(&none, 0, sizeof none);
    memset(&own, 0, sizeof own);
    own.enable = 1;
    e = llm__early_resolve(&own, &none);
    CHECK(e.window_size == 3000 && e.threshold == 0.99f);
    own.window_size = 3;
    e = llm__early_resolve(&own, &none);
    CHECK(e.window_size == 3 && e.threshold == 0);
    own.threshold = 0.9f;
    e = llm__early_resolve(&none, &own);
    CHECK(e.enable && e.window_size == 3);
    CHECK(!llm__early_hit(&e, &count, 0.95f) && !llm__early_hit(&e, &count, 0.95f) && llm__early_hit(&e, &count, 0.95f) && count == 0);
    CHECK(!llm__early_hit(&e, &count, 0.95f) && !llm__early_hit(&e, &count, 0.95f) && !llm__early_hit(&e, &count, 0.9f) &&
          count == 0); /* strictly above */
    e.threshold = 1;
    for (int i = 0; i < 10; i++) CHECK(!llm__early_hit(&e, &count, 1));
    e.enable = 0;
    e.threshold = 0;
    for (int i = 0; i < 10; i++) CHECK(!llm__early_hit(&e, &count, 1));
}

/* What a model says about its sampling holds for an API and for conversations; where it says nothing, only the former samples from all. */
static void smp_test_defaults(void) {
    static const struct {
        const char *config;
        float temperature, top_p, min_p, chat_temperature, chat_top_p, chat_min_p;
        int32_t top_k, chat_top_k;
    } rows[] = {
        {NULL, 1, 1, 0, 0.8f, 0.95f, 0.05f, 0, 40},
        {"{\"eos_token_id\":4}", 1, 1, 0, 0.8f, 0.95f, 0.05f, 0, 40},
        {"{\"temperature\":0.6,\"top_p\":0.9}", 0.6f, 0.9f, 0, 0.6f, 0.9f, 0, 0, 0},
        {"{\"temperature\":0}", 0, 1, 0, 0, 1, 0, 0, 0},
        {"{\"top_k\":20}", 1, 1, 0, 1, 1, 0, 20, 20},
        {"{\"repetition_penalty\":1.1}", 1, 1, 0, 0.8f, 0.95f, 0.05f, 0, 40},
    };
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_model model;
        llm_sampling s;
        memset(&model, 0, sizeof model);
        if (rows[i].config) CHECK(!llm_json_parse(rows[i].config, strlen(rows[i].config), NULL, &model.source.generation_config));
        llm_sampling_default(&model, &s);
        CHECK(s.temperature == rows[i].temperature && s.top_p == rows[i].top_p && s.min_p == rows[i].min_p && s.top_k == rows[i].top_k);
        llm_sampling_chat(&model, &s);
        CHECK(s.temperature == rows[i].chat_temperature && s.top_p == rows[i].chat_top_p && s.min_p == rows[i].chat_min_p &&
              s.top_k == rows[i].chat_top_k);
        CHECK(s.repetition_penalty == (i == 5 ? 1.1f : 1));
        llm_json_free(model.source.generation_config);
    }
}

typedef struct smp_told {
    char names[200];
    int n, left[10];
    double value[10], shares; /* shares: of the tokens told with the latest step but the draw */
    llm_token_logprob first;  /* of the latest */
} smp_told;

static void smp_tell(void *user, const llm_sample_step *step) {
    smp_told *t = (smp_told *)user;
    strcat(strcat(t->names, t->n ? " " : ""), step->name);
    t->left[t->n] = step->n_left;
    t->value[t->n++] = step->value;
    t->first = step->top[0];
    double sum = 0;
    for (int32_t i = 0; i < step->n_top; i++) {
        sum += exp((double)step->top[i].logprob);
        CHECK(!i || step->top[i].logprob <= step->top[i - 1].logprob);
    }
    if (step->n_left > 1 || !t->shares) t->shares = sum;
}

/* The plain sampler says what the fast one says, with all parameters, penalties and biases; ties too. */
static void smp_test_plain(void) {
    enum { N = 300 };
    float x[N];
    int wrong = 0;
    smp_env e;
    smp_open(&e, N);
    int32_t id[8], count[8], slot[32], ids[12];
    for (int i = 0; i < (TEST_BRIEF ? 5000 : 20000); i++) {
        llm_logit_bias bias[2] = {{(int32_t)(smp_random() * N), (float)smp_random() * 4}, {(int32_t)(smp_random() * N), -100}};
        llm__history h = {0, 31, id, count, slot};
        const int ties = smp_random() < 0.3;
        memset(slot, 0, sizeof slot);
        memset(&e.s, 0, sizeof e.s);
        for (int k = 0; k < N; k++) x[k] = ties ? (float)(int)(smp_random() * 6) : (float)(smp_random() * 12);
        e.s.temperature = smp_random() < 0.1 ? 0 : smp_random() < 0.2 ? 1 : (float)(0.1 + smp_random() * 1.5);
        e.s.top_k = smp_random() < 0.5 ? 0 : 1 + (int32_t)(smp_random() * 60);
        e.s.top_p = smp_random() < 0.5 ? 1 : (float)(0.05 + smp_random() * 0.9);
        e.s.min_p = smp_random() < 0.5 ? 0 : (float)(smp_random() * 0.3);
        e.s.repetition_penalty = smp_random() < 0.5 ? 1 : (float)(0.5 + smp_random());
        e.s.frequency_penalty = smp_random() < 0.5 ? 0 : (float)smp_random();
        if (smp_random() < 0.3) e.s.logit_bias = bias, e.s.n_logit_bias = 2;
        for (int k = 0; k < 6; k++) llm__history_add(&h, ids[k] = (int32_t)(smp_random() * N), k > 2);
        e.r.history = &h;
        llm__choice c = smp_choose(&e, x, N, (uint64_t)i, 3);
        int32_t plain = llm__plain_sample(x, N, &e.r, (uint64_t)i, 3, NULL, NULL);
        wrong += plain != c.id;
        if (plain != c.id && wrong < 5)
            printf("%d and %d: temperature %g, top_k %d, top_p %g, min_p %g, ties %d\n", plain, c.id, (double)e.s.temperature, e.s.top_k,
                   (double)e.s.top_p, (double)e.s.min_p, ties);
        wrong += llm_sample_steps(x, N, &e.s, ids, 3, 6, i, NULL, NULL) != c.id;
        e.s.logit_bias = NULL, e.s.n_logit_bias = 0, e.r.history = NULL;
    }
    CHECK(wrong <= 2); /* a random number, or a bound, may fall between two roundings */
    /* nothing to choose from */
    uint32_t none[(N + 31) / 32] = {0};
    e.r.allowed = none;
    CHECK(llm__plain_sample(x, N, &e.r, 1, 0, NULL, NULL) == -1);
    x[7] = NAN;
    e.r.allowed = NULL;
    CHECK(llm__plain_sample(x, N, &e.r, 1, 0, NULL, NULL) == -1);
    llm__arena_free(&e.memory);
}

/* The steps of the example in >>plain_sampler. */
static void smp_test_steps(void) {
    const float x[4] = {5, 4, 2, 0};
    const int32_t ids[2] = {1, 1};
    llm_sampling s;
    smp_told t;
    memset(&s, 0, sizeof s);
    memset(&t, 0, sizeof t);
    s.temperature = 0.5f, s.min_p = 0.1f, s.top_k = 40, s.top_p = 0.95f;
    int32_t got = llm_sample_steps(x, 4, &s, NULL, 0, 0, 1, smp_tell, &t);
    CHECK(!strcmp(t.names, "logits temperature min_p top_k top_p draw") && (got == 0 || got == 1) && t.first.id == got);
    CHECK(t.left[0] == 4 && t.left[1] == 4 && t.left[2] == 2 && t.left[3] == 2 && t.left[4] == 2 && fabs(t.shares - 1) < 1e-5);
    CHECK(t.value[1] == 0.5 && t.value[3] == 40 && t.value[5] == llm__uniform(1, 0));
    memset(&t, 0, sizeof t);
    s.top_p = 0.5f, s.temperature = 1; /* 0.72 of the first alone is enough */
    CHECK(llm_sample_steps(x, 4, &s, ids, 2, 2, 1, smp_tell, &t) == 0 && !strcmp(t.names, "logits min_p top_k top_p draw") &&
          t.left[3] == 1);
    memset(&t, 0, sizeof t);
    s.temperature = 0, s.repetition_penalty = 2; /* 4 becomes 2 */
    CHECK(llm_sample_steps(x, 4, &s, ids, 1, 2, 1, smp_tell, &t) == 0 && !strcmp(t.names, "logits rules greedy"));
    s.top_p = 3;
    CHECK(llm_sample_steps(x, 4, &s, ids, 1, 2, 1, NULL, NULL) == -1 && strstr(llm_last_error(), "top_p"));
    s.top_p = 0;
    CHECK(llm_sample_steps(x, 0, &s, ids, 1, 2, 1, NULL, NULL) == -1 && llm_sample_steps(x, 4, &s, ids, 2, 1, 1, NULL, NULL) == -1);
}

/* With allowed_token_ids a row is as if all other tokens could not come; a list beside a bad one is refused. */
static void smp_test_allowed(void) {
    enum { N = 131 };
    static const int32_t outside[1] = {-1};
    float x[N], left[N];
    int32_t ids[9], wrong = 0;
    llm_sampling s, all;
    for (int round = 0; round < 400; round++) {
        memset(&all, 0, sizeof all);
        all.repetition_penalty = 1, all.temperature = round % 4 ? 1 : 0, all.top_k = round % 3 ? 0 : 2;
        s = all;
        s.allowed_token_ids = ids, s.n_allowed_token_ids = 1 + round % 9;
        for (int i = 0; i < N; i++) x[i] = (float)smp_random() * 8, left[i] = -INFINITY;
        for (int i = 0; i < 9; i++) ids[i] = (int32_t)(smp_random() * N);
        for (int i = 0; i < s.n_allowed_token_ids; i++) left[ids[i]] = x[ids[i]];
        wrong += llm_sample(x, N, &s, round, 0) != llm_sample(left, N, &all, round, 0);
        wrong += llm_sample(x, N, &s, round, 0) != llm_sample_steps(x, N, &s, NULL, 0, 0, round, NULL, NULL);
    }
    CHECK(wrong == 0);
    llm_sampling_default(NULL, &s);
    s.allowed_token_ids = ids, s.n_allowed_token_ids = 9;
    CHECK(llm_sampling_check(NULL, &s) == LLM_OK);
    s.allowed_token_ids = outside, s.n_allowed_token_ids = 1;
    CHECK(llm_sampling_check(NULL, &s) == LLM_ERR_ARG && strstr(llm_last_error(), "allowed_token_ids"));
    s.allowed_token_ids = NULL;
    CHECK(llm_sampling_check(NULL, &s) == LLM_ERR_ARG);
}

TEST_GROUP(sampler) {
    smp_test_plain();
    smp_test_allowed();
    smp_test_steps();
    smp_test_defaults();
    smp_test_numbers();
    smp_test_distribution();
    smp_test_filters();
    smp_test_twin();
    smp_test_top();
    smp_test_rules();
    smp_test_not_finite();
    smp_test_check();
    smp_test_early();
}
