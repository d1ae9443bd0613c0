/* The scheduler over a fake backend whose logits are a hash of all token ids it reads through the page table, so that any mix-up of pages shows in
 * the tokens; pages, requests, events; then the real engine where a model is there. */
#include "test.h"

enum { ENG_VOCAB = 24, ENG_EOS = 23, ENG_STOP = 22 };

/* ---- the fake backend ---- */

typedef struct eng_fake {
    int32_t page_tokens, n_pages;
    int32_t *kv;            /* (n_pages, page_tokens) token ids */
    float *logits;          /* (max_out, ENG_VOCAB) */
    llm_engine *engine;
    int32_t fail, not_finite, max_rows, max_seqs, max_out; /* fail: this many steps fail */
    int64_t clock_ms; /* submitters read it too */
    long bad_steps, copies;
} eng_fake;

static uint64_t eng_hash_begin(void) { return 0x1234; }
static uint64_t eng_hash_add(uint64_t h, int32_t id) { return llm__mix(h * 31 + (uint64_t)id + 7); }

/* What the model says after a history with this hash. */
static void eng_logits(uint64_t h, float *x) {
    for (int i = 0; i < ENG_VOCAB; i++) x[i] = (float)(llm__mix(h + (uint64_t)i) % 4096) / 500.0f;
    if (h % 5 < 3) x[h % ENG_VOCAB] += 10; /* often sure */
    x[ENG_EOS] -= 3;
}

static llm_result eng_forward(void *ctx, const llm_step *s) {
    eng_fake *f = (eng_fake *)ctx;
    int32_t n_out = 0, ok = s->shape.n_rows > 0 && s->shape.n_rows <= f->max_rows && s->shape.n_seqs <= f->max_seqs && s->shape.n_out <= f->max_out;
    for (int32_t i = 0; i < s->shape.n_seqs; i++) {
        int32_t begin = s->seq_begin[i], end = s->seq_begin[i + 1];
        const int32_t *pages = s->pages + (int64_t)i * s->page_stride;
        ok &= end > begin && s->seq_len[i] == s->positions[end - 1] + 1;
        for (int32_t row = begin; row < end; row++) { /* all keys of the step are written before any row reads */
            int32_t at = s->positions[row], page = pages[at / f->page_tokens];
            ok &= s->seq_of_row[row] == i && at == s->positions[begin] + row - begin && page >= 0 && page < f->n_pages;
            f->kv[page * f->page_tokens + at % f->page_tokens] = s->tokens[row];
        }
    }
    for (int32_t i = 0; i < s->shape.n_seqs; i++)
        for (int32_t row = s->seq_begin[i]; row < s->seq_begin[i + 1]; row++) {
            if (n_out == s->shape.n_out || s->out_rows[n_out] != row) continue;
            uint64_t h = eng_hash_begin();
            for (int32_t at = 0; at <= s->positions[row]; at++)
                h = eng_hash_add(h, f->kv[s->pages[(int64_t)i * s->page_stride + at / f->page_tokens] * f->page_tokens + at % f->page_tokens]);
            eng_logits(h, f->logits + (int64_t)n_out++ * ENG_VOCAB);
        }
    ok &= n_out == s->shape.n_out;
    if (f->not_finite && n_out) f->logits[f->not_finite] = NAN, f->not_finite = 0;
    f->bad_steps += !ok;
    __atomic_add_fetch(&f->clock_ms, 10, __ATOMIC_RELAXED);
    if (f->fail > 0) return f->fail--, llm__error(LLM_ERR_BACKEND, "the fake device fails");
    return LLM_OK;
}

static const float *eng_row(void *ctx, int out_row) { return ((eng_fake *)ctx)->logits + (int64_t)out_row * ENG_VOCAB; }

static llm_result eng_copy(void *ctx, const int32_t *from, const int32_t *to, int n) {
    eng_fake *f = (eng_fake *)ctx;
    for (int i = 0; i < n; i++) memcpy(f->kv + to[i] * f->page_tokens, f->kv + from[i] * f->page_tokens, (size_t)f->page_tokens * sizeof *f->kv);
    f->copies += n;
    return LLM_OK;
}

static void eng_parallel(void *ctx, void (*fn)(void *arg, int i), void *arg, int n) {
    (void)ctx;
    for (int i = n - 1; i >= 0; i--) fn(arg, i);
}

static void eng_rope(void *ctx, int32_t prompt_len, int32_t *variant, float *base) { (void)ctx, (void)prompt_len, *variant = 0, *base = 1; }
static double eng_now(void *ctx) { return (double)__atomic_load_n(&((eng_fake *)ctx)->clock_ms, __ATOMIC_RELAXED) / 1000; }

static llm_engine *eng_open(eng_fake *f, int32_t n_pages, int32_t page_tokens, int32_t max_seqs, int32_t max_rows, int32_t max_len, int32_t no_cache) {
    static const int32_t eos[] = {ENG_EOS};
    llm__engine_params p;
    memset(f, 0, sizeof *f);
    memset(&p, 0, sizeof p);
    f->n_pages = p.n_pages = n_pages;
    f->page_tokens = p.page_tokens = page_tokens;
    f->max_rows = p.max_rows = max_rows;
    f->max_seqs = p.max_seqs = max_seqs;
    f->max_out = p.max_out = max_seqs + 3;
    f->kv = (int32_t *)calloc((size_t)n_pages * (size_t)page_tokens, sizeof *f->kv);
    f->logits = (float *)calloc((size_t)f->max_out * ENG_VOCAB, sizeof *f->logits);
    f->clock_ms = 100000;
    p.driver.ctx = f;
    p.driver.forward = eng_forward;
    p.driver.logits_row = eng_row;
    p.driver.kv_copy = eng_copy;
    p.driver.parallel = eng_parallel;
    p.driver.rope_of = eng_rope;
    p.driver.now = eng_now;
    p.eos = eos;
    p.n_eos = 1;
    p.eos_id = ENG_EOS;
    p.vocab = ENG_VOCAB;
    p.max_len = max_len;
    p.max_queue = 64;
    p.n_workers = 2;
    p.no_cache = no_cache;
    CHECK(!llm__engine_new(&p, &f->engine));
    return f->engine;
}

static void eng_close(eng_fake *f) {
    CHECK(f->bad_steps == 0);
    llm_engine_close(f->engine);
    free(f->kv);
    free(f->logits);
}

/* ---- what a request must give, computed without pages, batches or steps ---- */

typedef struct eng_want {
    int32_t ids[512], n;
    llm_finish finish;
    double cum_logprob;
} eng_want;

static void eng_oracle(const llm_request *r, int32_t index, int32_t max_new, eng_want *w) {
    int32_t n_prompt = r->seq[0].n_prompt, early = 0, history_ids[ENG_VOCAB], history_counts[ENG_VOCAB], slots[64];
    float x[ENG_VOCAB];
    llm__scratch k;
    llm__arena memory;
    llm__rules rules;
    llm__history h;
    memset(&memory, 0, sizeof memory);
    memset(&rules, 0, sizeof rules);
    memset(&h, 0, sizeof h);
    memset(slots, 0, sizeof slots);
    memset(w, 0, sizeof *w);
    llm__scratch_open(&k, ENG_VOCAB, &memory);
    h.mask = 63, h.id = history_ids, h.count = history_counts, h.slot = slots;
    uint64_t hash = eng_hash_begin();
    for (int32_t i = 0; i < n_prompt; i++) hash = eng_hash_add(hash, r->seq[0].ids[i]), llm__history_add(&h, r->seq[0].ids[i], 0);
    rules.s = &r->s, rules.eos = r->engine->p.eos, rules.n_eos = 1, rules.history = &h, rules.output = w->ids;
    while (!w->finish) {
        eng_logits(hash, x);
        rules.n_output = w->n;
        llm__choice c = llm__choose(x, ENG_VOCAB, &rules, (uint64_t)r->s.seed + (uint64_t)index, w->n, &k);
        int ends = w->n + 1 >= r->s.min_tokens && ((c.id == ENG_EOS && !r->s.ignore_eos) || (r->s.n_stop_token_ids && c.id == ENG_STOP));
        int hit = 0;
        if (r->s.early_stop.enable) {
            early = c.prob > r->s.early_stop.threshold ? early + 1 : 0;
            hit = early >= r->s.early_stop.window_size && !ends;
            if (early >= r->s.early_stop.window_size) early = 0;
        }
        if (hit) c.id = ENG_EOS, c.logprob = (float)((double)x[ENG_EOS] - c.log_sum);
        w->ids[w->n++] = c.id;
        w->cum_logprob += (double)c.logprob;
        llm__history_add(&h, c.id, 1);
        hash = eng_hash_add(hash, c.id);
        if (ends) w->finish = LLM_FINISH_STOP;
        else if (w->n == max_new) w->finish = LLM_FINISH_LENGTH;
        else if (hit) w->finish = LLM_FINISH_STOP;
    }
    llm__arena_free(&memory);
}

/* ---- invariants of the books ---- */

static int eng_books_ok(const llm_engine *e) {
    const llm__kv *kv = &e->kv;
    int32_t *refs = (int32_t *)calloc((size_t)kv->n_pages, sizeof *refs), ok = 1, used = 0, listed = 0, fresh = 0, waiting = 0;
    for (int32_t i = 0; i < e->n_running; i++) {
        const llm__seq *s = e->running[i];
        ok &= s->state == LLM__SEQ_RUNNING && s->n_computed < s->n_ids && (!i || llm__seq_before(e->running[i - 1], s));
        ok &= s->n_pages >= llm__pages_of(e, s->n_computed) && s->n_pages <= llm__pages_of(e, s->n_ids); /* K8 */
        for (int32_t k = 0; k < s->n_pages; k++) {
            refs[s->pages[k]]++;
            for (int32_t j = 0; j < k; j++) ok &= s->pages[j] != s->pages[k];
        }
    }
    for (int32_t i = 0; i < e->n_running; i++) /* K3: a shared page is full and computed in all that have it */
        for (int32_t k = 0; k < e->running[i]->n_pages; k++)
            if (refs[e->running[i]->pages[k]] > 1) ok &= (k + 1) * kv->page_tokens <= e->running[i]->n_computed;
    for (int32_t p = 0; p < kv->n_pages; p++) ok &= refs[p] == kv->ref[p], used += kv->ref[p] > 0; /* K2 */
    for (int32_t p = kv->first_free; p >= 0 && listed <= kv->n_pages; p = kv->next[p]) listed++, ok &= !kv->ref[p] && !kv->known[p];
    ok &= listed == kv->n_free;
    listed = 0;
    for (int32_t p = kv->oldest, before = -1; p >= 0 && listed <= kv->n_pages; before = p, p = kv->next[p])
        listed++, ok &= !kv->ref[p] && kv->known[p] && kv->prev[p] == before;
    ok &= listed == kv->n_cached && kv->n_free + kv->n_cached + used == kv->n_pages; /* K1 */
    for (const llm__seq *s = e->first_waiting; s; s = s->next) { /* K6: who waits owns nothing */
        waiting++;
        ok &= s->state == LLM__SEQ_WAITING && s->n_pages == 0 && s->n_computed == 0 && (!s->next || llm__seq_before(s, s->next));
    }
    ok &= waiting == e->n_waiting;
    for (const llm_request *r = e->live; r; r = r->next) {
        fresh += r->fresh;
        for (int32_t i = 0; i < r->n_seqs; i++)
            if (r->seq[i].state == LLM__SEQ_DONE || r->seq[i].state == LLM__SEQ_HELD) ok &= r->seq[i].n_pages == 0;
    }
    for (const llm_request *r = e->inbox_first; r; r = r->inbox_next) fresh += r->fresh;
    ok &= fresh == e->n_fresh && e->n_fresh >= 0;
    free(refs);
    return ok;
}

/* K4: what the index says a page holds is what the fake device holds there. */
static int eng_cache_ok(const eng_fake *f) {
    const llm__kv *kv = &f->engine->kv;
    int ok = 1;
    for (int32_t p = 0; p < kv->n_pages; p++)
        if (kv->known[p]) ok &= !memcmp(kv->tokens + p * kv->page_tokens, f->kv + p * kv->page_tokens, (size_t)kv->page_tokens * sizeof *f->kv);
    return ok;
}

/* ---- one request in the simulation ---- */

typedef struct eng_client {
    llm_request *request;
    int32_t n, max_new, cancelled, ends[8], tokens[8], ids[8][512];
    long born;
} eng_client;

static void eng_drain(eng_client *c) {
    llm_event event;
    while (llm_request_poll(c->request, &event)) {
        CHECK(event.index < c->n && !c->ends[event.index]); /* K18 */
        if (event.has_token) c->ids[event.index][c->tokens[event.index]++] = event.id;
        c->ends[event.index] += event.finish != LLM_FINISH_NONE;
    }
}

/* Compares what came with the oracle; a cancelled one with its beginning. */
static int eng_client_right(eng_client *c) {
    static eng_want want[8];
    const llm_request *r = c->request;
    int ok = 1;
    int32_t order[8];
    for (int32_t i = 0; i < r->n_seqs; i++) eng_oracle(r, i, c->max_new, &want[i]), order[i] = i;
    if (r->n_seqs > r->s.n && !c->cancelled)
        for (int32_t i = 0; i < r->n_seqs; i++)
            for (int32_t j = i + 1; j < r->n_seqs; j++)
                if ((float)want[order[j]].cum_logprob > (float)want[order[i]].cum_logprob || ((float)want[order[j]].cum_logprob == (float)want[order[i]].cum_logprob && order[j] < order[i])) {
                    int32_t t = order[i];
                    order[i] = order[j];
                    order[j] = t;
                }
    for (int32_t i = 0; i < r->s.n; i++) {
        const eng_want *w = &want[order[i]];
        llm_output out;
        ok &= !llm_request_output(r, i, &out) && c->ends[i] == 1 && out.n_token_ids == (size_t)c->tokens[i] && !memcmp(out.token_ids, c->ids[i], out.n_token_ids * sizeof(int32_t)); /* K16, K18 */
        if (c->cancelled && (out.finish == LLM_FINISH_CANCELLED || r->n_seqs > r->s.n)) { /* the order of n of best_of is of what was there */
            if (r->n_seqs == r->s.n) ok &= c->tokens[i] <= w->n && !memcmp(c->ids[i], w->ids, (size_t)c->tokens[i] * sizeof(int32_t));
            continue;
        }
        ok &= c->tokens[i] == w->n && !memcmp(c->ids[i], w->ids, (size_t)w->n * sizeof(int32_t)) && out.finish == w->finish && out.cum_logprob == w->cum_logprob; /* K15 */
    }
    return ok;
}

static uint64_t eng_dice_state;
static int32_t eng_dice(int32_t n) { return (int32_t)(llm__mix(eng_dice_state++) % (uint64_t)n); }

/* Makes a random request: prompts share beginnings. */
static int eng_submit(llm_engine *e, eng_client *c, int32_t max_len) {
    static const int32_t stop[] = {ENG_STOP};
    int32_t prompt[256], n = 1 + eng_dice(max_len / 2), family = eng_dice(3);
    llm_request_config cfg;
    memset(c, 0, sizeof *c);
    memset(&cfg, 0, sizeof cfg);
    for (int32_t i = 0; i < n; i++) prompt[i] = i < 20 - 5 * family ? (i * 7 + family) % 20 : eng_dice(ENG_VOCAB);
    cfg.prompt_ids = prompt;
    cfg.n_prompt_ids = (size_t)n;
    cfg.priority = eng_dice(4) ? 0 : eng_dice(3);
    cfg.cache_salt = eng_dice(3) ? NULL : eng_dice(2) ? "a" : "b";
    cfg.sampling.max_tokens = 1 + eng_dice(max_len / 2);
    cfg.sampling.temperature = eng_dice(3) ? 1.0f : 0;
    cfg.sampling.has_seed = 1;
    cfg.sampling.seed = eng_dice(1000);
    cfg.sampling.n = eng_dice(3) ? 1 : 1 + eng_dice(4);
    if (!eng_dice(8)) cfg.sampling.best_of = cfg.sampling.n + eng_dice(3);
    if (!eng_dice(4)) cfg.sampling.frequency_penalty = 0.7f, cfg.sampling.repetition_penalty = 1.3f;
    if (!eng_dice(4)) cfg.sampling.top_k = 5, cfg.sampling.top_p = 0.9f;
    if (!eng_dice(4)) cfg.sampling.ignore_eos = 1;
    if (!eng_dice(4)) cfg.sampling.stop_token_ids = stop, cfg.sampling.n_stop_token_ids = 1;
    if (!eng_dice(4)) cfg.sampling.min_tokens = LLM__MIN(5, cfg.sampling.max_tokens);
    if (!eng_dice(4)) cfg.sampling.early_stop.enable = 1, cfg.sampling.early_stop.window_size = 3, cfg.sampling.early_stop.threshold = 0.8f;
    if (!eng_dice(4)) cfg.sampling.logprobs = 3;
    if (!eng_dice(6)) cfg.sampling.prompt_logprobs = 3;
    if (!eng_dice(12)) cfg.score_only = 1, cfg.sampling.n = cfg.sampling.best_of = 0;
    if (!eng_dice(20)) cfg.deadline_s = 0.1, c->cancelled = 1;
    c->n = LLM__MAX(1, cfg.sampling.n);
    c->max_new = LLM__MIN(cfg.sampling.max_tokens, max_len - n);
    llm_result r = llm_request_submit(e, &cfg, &c->request);
    CHECK(!r || r == LLM_ERR_BUSY);
    return !r;
}

/* The log-probabilities of a prompt, checked against the fake model. */
static int eng_scores_right(const llm_request *r) {
    const llm_token_logprob *top;
    const int32_t *counts;
    int32_t stride;
    const float *lp = llm_request_prompt_logprobs(r, &top, &counts, &stride);
    float x[ENG_VOCAB], w[ENG_VOCAB];
    uint64_t h = eng_hash_begin();
    int ok = 1, bad;
    if (!lp) return 0;
    for (int32_t i = 1; i < r->seq[0].n_prompt; i++) {
        h = eng_hash_add(h, r->seq[0].ids[i - 1]);
        eng_logits(h, x);
        float max = llm__row_max(x, ENG_VOCAB, &bad);
        double log_sum = (double)max + log(llm__exp_row(x, w, ENG_VOCAB, max, 1));
        ok &= lp[i] == (float)((double)x[r->seq[0].ids[i]] - log_sum) && counts[i] == stride;
        if (stride) ok &= top[i * stride].logprob >= lp[i];
    }
    return ok;
}

static void eng_finish_client(eng_client *c, long *right, long *wrong) {
    const llm_request *r = c->request;
    int ok;
    if (r->score_only) ok = c->cancelled || (c->ends[0] == 1 && c->tokens[0] == 0 && eng_scores_right(r));
    else ok = eng_client_right(c) && (c->cancelled || !r->s.prompt_logprobs || eng_scores_right(r));
    *right += ok;
    *wrong += !ok;
    llm_request_free(c->request);
    c->request = NULL;
}

/* Random arrivals, cancels and frees on a small cache; everything is compared with the oracle. */
static void eng_simulate(uint64_t seed, int32_t n_pages, int32_t page_tokens, int32_t max_seqs, int32_t max_rows, int32_t no_cache, long steps) {
    enum { CLIENTS = 12 };
    static eng_client client[CLIENTS];
    eng_fake f;
    long right = 0, wrong = 0, books = 0, oldest = 0;
    int32_t max_len = n_pages * page_tokens;
    eng_dice_state = seed << 32;
    if (max_len > 200) max_len = 200;
    llm_engine *e = eng_open(&f, n_pages, page_tokens, max_seqs, max_rows, max_len, no_cache);
    memset(client, 0, sizeof client);
    for (long step = 0, left = 1; step < steps || left; step++) {
        left = 0;
        for (int i = 0; i < CLIENTS; i++) {
            eng_client *c = &client[i];
            if (!c->request && step < steps && !eng_dice(6) && eng_submit(e, c, max_len)) c->born = step;
            if (c->request && !c->cancelled && !eng_dice(200)) c->cancelled = 1, llm_request_cancel(c->request);
            if (c->request && !eng_dice(1000)) llm_request_free(c->request), c->request = NULL; /* while it runs */
        }
        CHECK(!llm_engine_step(e, NULL));
        books += !eng_books_ok(e);
        if (step % 16 == 0) books += !eng_cache_ok(&f);
        for (int i = 0; i < CLIENTS; i++) {
            eng_client *c = &client[i];
            if (!c->request) continue;
            if (eng_dice(2)) eng_drain(c); /* K5 */
            oldest = LLM__MAX(oldest, step - c->born);
            if (llm_request_done(c->request)) eng_finish_client(c, &right, &wrong);
            else left = 1;
        }
    }
    llm_engine_stats s;
    llm_engine_get_stats(e, &s);
    CHECK(wrong == 0 && books == 0);
    CHECK(right > steps / 100);
    CHECK(oldest < 8000);
    CHECK(s.n_running == 0 && s.n_waiting == 0 && s.free_blocks + s.cached_blocks == s.total_blocks && e->live == NULL); /* K7 */
    llm__kv_flush(&e->kv);
    CHECK(e->kv.n_free == e->kv.n_pages);
    printf("simulation %d: %ld requests, %lld preemptions, %lld cached tokens, %ld copies, longest %ld steps\n", (int)seed, right, (long long)s.preemptions, (long long)s.cached_tokens, f.copies, oldest);
    eng_close(&f);
}

/* ---- single cases ---- */

static llm_request *eng_start(llm_engine *e, const int32_t *prompt, size_t n, const llm_sampling *s) {
    llm_request_config c;
    llm_request *r;
    memset(&c, 0, sizeof c);
    c.prompt_ids = prompt;
    c.n_prompt_ids = n;
    if (s) c.sampling = *s;
    return llm_request_submit(e, &c, &r) ? NULL : r;
}

static void eng_test_early_stop(void) {
    int32_t prompt[3] = {1, 2, 3};
    eng_fake f;
    llm_sampling s;
    llm_output out, plain;
    llm_engine *e = eng_open(&f, 64, 4, 4, 16, 120, 0);
    memset(&s, 0, sizeof s);
    s.ignore_eos = 1;
    s.max_tokens = 20;
    llm_request *p = eng_start(e, prompt, 3, &s);
    CHECK(!llm_request_run(e, p) && !llm_request_output(p, 0, &plain) && plain.n_token_ids == 20 && plain.finish == LLM_FINISH_LENGTH);
    s.early_stop.enable = 1;
    s.early_stop.window_size = 5; /* threshold 0: every token counts, so exactly the fifth completes it */
    for (int round = 0; round < 2; round++) { /* the second starts from zero in the same place */
        llm_request *r = eng_start(e, prompt, 3, &s);
        CHECK(!llm_request_run(e, r) && !llm_request_output(r, 0, &out));
        CHECK(out.n_token_ids == 5 && out.token_ids[4] == ENG_EOS && !memcmp(out.token_ids, plain.token_ids, 4 * sizeof(int32_t)));
        CHECK(out.finish == LLM_FINISH_STOP && out.stop_reason && !strcmp(out.stop_reason, "repetition") && out.stop_id == -1);
        llm_request_free(r);
    }
    s.max_tokens = 5; /* both at once: length */
    llm_request *r = eng_start(e, prompt, 3, &s);
    CHECK(!llm_request_run(e, r) && !llm_request_output(r, 0, &out) && out.finish == LLM_FINISH_LENGTH && !out.stop_reason && out.token_ids[4] == ENG_EOS);
    llm_request_free(r);
    s.early_stop.threshold = 1; /* strictly above 1 is never */
    s.max_tokens = 20;
    r = eng_start(e, prompt, 3, &s);
    CHECK(!llm_request_run(e, r) && !llm_request_output(r, 0, &out) && out.n_token_ids == 20);
    llm_request_free(r);
    llm_request_free(p);
    eng_close(&f);
}

static void eng_test_refusals(void) {
    int32_t prompt[200], bad[1] = {ENG_VOCAB};
    eng_fake f;
    llm_sampling s;
    llm_engine *e = eng_open(&f, 32, 4, 2, 8, 100, 0);
    llm_request *r[70];
    memset(&s, 0, sizeof s);
    memset(prompt, 0, sizeof prompt);
    CHECK(!eng_start(e, prompt, 0, NULL));
    CHECK(!eng_start(e, prompt, 100, NULL) && strstr(llm_last_error(), "100 tokens"));
    CHECK(!eng_start(e, prompt, 200, NULL) && strstr(llm_last_error(), "200") && strstr(llm_last_error(), "100"));
    CHECK(!eng_start(e, bad, 1, NULL) && strstr(llm_last_error(), "24"));
    s.temperature = 3;
    CHECK(!eng_start(e, prompt, 3, &s));
    for (int i = 0; i < 64; i++) CHECK((r[i] = eng_start(e, prompt, 3, NULL)) != NULL);
    CHECK(!eng_start(e, prompt, 3, NULL) && strstr(llm_last_error(), "64")); /* the queue is full */
    int busy = 0;
    CHECK(!llm_engine_step(e, &busy) && busy);
    CHECK((r[64] = eng_start(e, prompt, 3, NULL)) != NULL); /* two run now */
    for (int i = 0; i < 65; i++) llm_request_free(r[i]);
    CHECK(!llm_engine_step(e, &busy) && !busy && e->n_fresh == 0);
    r[0] = eng_start(e, prompt, 99, NULL); /* the longest prompt has room for one token */
    llm_output out;
    CHECK(r[0] && !llm_request_run(e, r[0]) && !llm_request_output(r[0], 0, &out) && out.n_token_ids == 1 && out.finish == LLM_FINISH_LENGTH);
    llm_request_free(r[0]);
    eng_close(&f);
}

static void eng_test_faults(void) {
    int32_t prompt[6] = {1, 2, 3, 4, 5, 6};
    eng_fake f;
    llm_event event;
    llm_engine *e = eng_open(&f, 32, 4, 4, 8, 100, 0);
    llm_request *a = eng_start(e, prompt, 6, NULL), *b = eng_start(e, prompt, 5, NULL);
    f.fail = 1;
    CHECK(llm_engine_step(e, NULL) == LLM_ERR_BACKEND);
    CHECK(llm_request_poll(a, &event) && !event.has_token && event.finish == LLM_FINISH_ERROR && llm_request_error(a) && strstr(llm_request_error(a), "fake device"));
    CHECK(!llm_request_poll(a, &event) && llm_request_done(a));
    llm_request_run(e, b); /* failed too, or goes on: it ends */
    CHECK(e->n_running == 0 && e->kv.n_free + e->kv.n_cached == 32);
    llm_request *c = eng_start(e, prompt, 6, NULL);
    f.not_finite = 1;
    CHECK(!llm_engine_step(e, NULL) && llm_request_error(c) && strstr(llm_request_error(c), "finite"));
    llm_request *d = eng_start(e, prompt, 6, NULL);
    CHECK(!llm_request_run(e, d) && !llm_request_error(d)); /* the engine goes on */
    llm_request_free(a), llm_request_free(b), llm_request_free(c), llm_request_free(d);
    eng_close(&f);
}

static void eng_test_sharing(void) {
    int32_t prompt[40];
    eng_fake f;
    llm_sampling s;
    llm_output out[4], one;
    llm_request_metrics m;
    llm_engine *e = eng_open(&f, 64, 4, 4, 16, 100, 0);
    for (int i = 0; i < 40; i++) prompt[i] = i % 19;
    memset(&s, 0, sizeof s);
    s.temperature = 1;
    s.has_seed = 1;
    s.seed = 9;
    s.n = 4;
    s.max_tokens = 12;
    s.ignore_eos = 1;
    llm_request *r = eng_start(e, prompt, 38, &s);
    for (int i = 0; i < 4; i++) llm_engine_step(e, NULL);
    CHECK(e->n_running == 4 && f.copies == 3); /* nine pages shared, the tenth copied */
    CHECK(e->kv.ref[r->seq[3].pages[0]] == 4 && e->kv.ref[r->seq[3].pages[9]] == 1);
    CHECK(!llm_request_run(e, r));
    for (int i = 0; i < 4; i++) { /* choice i is the request with n = 1 and seed + i */
        llm_sampling single = s;
        single.n = 1;
        single.seed = 9 + i;
        llm_request *q = eng_start(e, prompt, 38, &single);
        CHECK(!llm_request_output(r, i, &out[i]) && !llm_request_run(e, q) && !llm_request_output(q, 0, &one));
        CHECK(one.n_token_ids == 12 && !memcmp(one.token_ids, out[i].token_ids, 12 * sizeof(int32_t)) && one.cum_logprob == out[i].cum_logprob);
        llm_request_get_metrics(q, &m);
        CHECK(m.n_cached_tokens == 36 && m.n_prompt_tokens == 38);
        llm_request_free(q);
    }
    CHECK(memcmp(out[0].token_ids, out[1].token_ids, 12 * sizeof(int32_t)) != 0);
    llm_request *q = eng_start(e, prompt, 36, &s); /* one token is always computed */
    CHECK(!llm_request_run(e, q));
    llm_request_get_metrics(q, &m);
    CHECK(m.n_cached_tokens == 32);
    llm_request_free(q);
    llm_request_free(r);
    eng_close(&f);
}

/* Cached tokens of a request for these ids, run to its end. */
static int32_t eng_cached(llm_engine *e, const int32_t *ids, int32_t n, const char *salt) {
    llm_request_config c;
    llm_request_metrics m;
    llm_request *r;
    memset(&c, 0, sizeof c);
    c.prompt_ids = ids;
    c.n_prompt_ids = (size_t)n;
    c.cache_salt = salt;
    c.sampling.max_tokens = 1;
    if (!CHECK(!llm_request_submit(e, &c, &r))) return -1;
    CHECK(!llm_request_run(e, r));
    llm_request_get_metrics(r, &m);
    llm_request_free(r);
    return m.n_cached_tokens;
}

/* A conversation finds all of its past, answers of forked choices too; another salt finds nothing. */
static void eng_test_prefix(void) {
    int32_t ids[80];
    eng_fake f;
    llm_sampling s;
    llm_output out;
    llm_engine *e = eng_open(&f, 64, 4, 4, 16, 100, 0);
    for (int i = 0; i < 80; i++) ids[i] = (i * i + i / 3) % 21;
    memset(&s, 0, sizeof s);
    s.temperature = 1;
    s.n = 3;
    s.max_tokens = 19;
    s.ignore_eos = 1;
    llm_request *r = eng_start(e, ids, 18, &s);
    CHECK(!llm_request_run(e, r));
    CHECK(!llm_request_output(r, 2, &out) && out.n_token_ids == 19);
    memcpy(ids + 18, out.token_ids, 19 * sizeof *ids);
    llm_request_free(r);
    CHECK(eng_cached(e, ids, 45, NULL) == 36); /* 18 + 18 computed */
    CHECK(eng_cached(e, ids, 60, NULL) == 44);
    CHECK(eng_cached(e, ids, 61, NULL) == 60);
    int32_t oldest = e->kv.oldest; /* let go first: the last page of the first answer, no shared beginning */
    CHECK(oldest >= 0 && memcmp(e->kv.tokens + oldest * 4, ids, 4 * sizeof *ids) != 0 && memcmp(e->kv.tokens + oldest * 4, ids + 4, 4 * sizeof *ids) != 0);
    CHECK(!memcmp(e->kv.tokens + e->kv.newest * 4, ids, 4 * sizeof *ids));
    CHECK(eng_cached(e, ids, 61, "salt") == 0 && eng_cached(e, ids, 61, "salt") == 60 && eng_cached(e, ids, 61, "") == 0);
    eng_close(&f);
}

static void eng_test_pages(void) {
    int32_t a[4] = {1, 2, 3, 4}, b[4] = {1, 2, 3, 5};
    llm__kv kv;
    llm__arena memory;
    memset(&memory, 0, sizeof memory);
    CHECK(!llm__kv_open(&kv, 3, 4, 0, &memory));
    llm__kv_key root = llm__kv_root(&kv, NULL);
    int32_t p = llm__kv_get(&kv), q = llm__kv_get(&kv);
    llm__kv_publish(&kv, p, root, a);
    CHECK(llm__kv_find(&kv, root, b) == -1); /* the same key and other tokens: a collision is a miss */
    CHECK(llm__kv_find(&kv, root, a) == p && kv.ref[p] == 2);
    llm__kv_publish(&kv, q, root, a); /* known already: stays private */
    CHECK(!kv.known[q]);
    llm__kv_drop(&kv, p), llm__kv_drop(&kv, p), llm__kv_drop(&kv, q);
    CHECK(kv.n_cached == 1 && kv.n_free == 2);
    q = llm__kv_get(&kv), llm__kv_get(&kv);
    CHECK(llm__kv_find(&kv, root, a) == p); /* pinned: it cannot be evicted */
    CHECK(llm__kv_get(&kv) == -1);
    llm__kv_drop(&kv, p);
    CHECK(llm__kv_get(&kv) == p && llm__kv_find(&kv, root, a) == -1); /* evicted: forgotten */
    CHECK(!llm__kv_open(&kv, 3, 4, 1, &memory));
    llm__kv_publish(&kv, llm__kv_get(&kv), root, a);
    CHECK(llm__kv_find(&kv, root, a) == -1);
    llm__arena_free(&memory);
}

static void eng_test_no_allocation(void) {
    int32_t prompt[30];
    eng_fake f;
    llm_sampling s;
    llm_event event;
    llm_engine *e = eng_open(&f, 64, 4, 4, 16, 200, 0);
    for (int i = 0; i < 30; i++) prompt[i] = i % 19;
    memset(&s, 0, sizeof s);
    s.temperature = 1;
    s.top_k = 8;
    s.top_p = 0.9f;
    s.frequency_penalty = 0.5f;
    s.logprobs = 4;
    s.max_tokens = 150;
    s.ignore_eos = 1;
    llm_request *a = eng_start(e, prompt, 30, &s), *b = eng_start(e, prompt + 5, 20, &s);
    s.n = 2;
    llm_request *c = eng_start(e, prompt + 3, 20, &s);
    for (int i = 0; i < 3; i++) llm_engine_step(e, NULL), llm_request_poll(a, &event);
    long before = test_allocations;
    for (int i = 0; i < 100; i++) {
        llm_engine_step(e, NULL);
        while (llm_request_poll(a, &event)) {}
    }
    CHECK(test_allocations == before && e->n_running > 0);
    llm_request_free(a), llm_request_free(b), llm_request_free(c);
    eng_close(&f);
}

/* Every allocation of opening, submitting and running fails once: nothing leaks or crashes. */
static void eng_test_no_memory(void) {
    int32_t prompt[6] = {1, 2, 3, 4, 5, 6}, stop[1] = {3};
    const char *const stops[] = {"abc", "de"};
    llm_sampling s;
    eng_fake f;
    memset(&s, 0, sizeof s);
    s.n = 3;
    s.logprobs = 2;
    s.prompt_logprobs = 2;
    s.stop_token_ids = stop;
    s.n_stop_token_ids = 1;
    s.stop = stops;
    s.n_stop = 2;
    llm_engine *e = eng_open(&f, 64, 4, 4, 16, 100, 0);
    int refused = 0, i;
    for (i = 1; i < 200; i++) {
        test_fail_at = test_allocations + i;
        llm_request *r = eng_start(e, prompt, 6, &s);
        int failed = test_allocations >= test_fail_at;
        test_fail_at = 0;
        CHECK((r == NULL) == failed);
        if (r) llm_request_free(r);
        llm_engine_step(e, NULL);
        refused += failed;
        if (!failed) break;
    }
    CHECK(refused > 5 && i < 200 && e->n_fresh == 0);
    eng_close(&f);
    for (i = 1; i < 200; i++) {
        llm__engine_params p;
        memset(&p, 0, sizeof p);
        p.vocab = 10000, p.n_pages = 4, p.page_tokens = 4, p.max_len = 16, p.max_seqs = 2, p.max_rows = 4, p.max_out = 4, p.n_workers = 2;
        llm_engine *opened;
        test_fail_at = test_allocations + i;
        llm_result r = llm__engine_new(&p, &opened);
        int failed = test_allocations >= test_fail_at;
        test_fail_at = 0;
        CHECK(failed ? r == LLM_ERR_NOMEM && !opened : !r);
        llm_engine_close(opened);
        if (!failed) break;
    }
    CHECK(i > 5 && i < 200);
}

/* Text and stop strings without a tokenizer: pieces are put in by hand. */
static void eng_test_stop_strings(void) {
    static const char *const stops[] = {"END", "aab", "\xC3\xA9!"};
    int32_t prompt[2] = {1, 2};
    eng_fake f;
    llm_sampling s;
    llm_engine *e = eng_open(&f, 16, 4, 2, 8, 60, 0);
    memset(&s, 0, sizeof s);
    s.stop = stops;
    s.n_stop = 3;
    for (int include = 0; include < 2; include++) {
        s.include_stop_str_in_output = include;
        llm_request *r = eng_start(e, prompt, 2, &s);
        llm__seq *q = &r->seq[0];
        struct {
            const char *piece;
            size_t shown;
            int32_t found;
        } steps[] = {{"x EN", 2, -1}, {"aa", 4, -1}, {"a", 5, -1}, {" \xC3\xA9", 8, -1}, {"\xC3\xA9", 10, -1}, {"zEND aab", 13, 0}};
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            size_t from = q->text.len;
            llm_text_str(&q->text, steps[i].piece);
            int32_t found = llm__find_stop(q, from, 1);
            CHECK(found == steps[i].found);
            if (found >= 0) CHECK(q->text.len == steps[i].shown + (include ? 3 : 0));
            else CHECK(llm__showable(q) == (include ? q->text.len : steps[i].shown));
        }
        llm_request_free(r);
    }
    llm_request *r = eng_start(e, prompt, 2, &s);
    llm_text_str(&r->seq[0].text, "END");
    CHECK(llm__find_stop(&r->seq[0], 0, 0) == -1); /* min_tokens forbids it */
    llm_text_str(&r->seq[0].text, "EN");
    CHECK(llm__find_stop(&r->seq[0], 3, 1) == -1);
    llm_text_str(&r->seq[0].text, "D");
    CHECK(llm__find_stop(&r->seq[0], 5, 1) == 0);
    llm_request_free(r);
    eng_close(&f);
}

static void eng_count_news(void *user, llm_request *r) {
    llm_event event;
    while (llm_request_poll(r, &event)) *(int *)user += event.has_token;
}

static void *eng_submitter(void *arg) {
    llm_engine *e = (llm_engine *)arg;
    int32_t prompt[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    llm_event event;
    for (int i = 0; i < 60; i++) {
        llm_request *r = eng_start(e, prompt, 1 + (size_t)(i % 9), NULL);
        if (!r) continue;
        if (i % 3 == 0) llm_request_cancel(r);
        for (int spin = 0; i % 5 && spin < 200000 && !llm_request_done(r); spin++)
            if (!llm_request_poll(r, &event)) sched_yield();
        llm_request_free(r);
    }
    return NULL;
}

static void eng_test_threads(void) {
    int32_t prompt[3] = {1, 2, 3};
    pthread_t t[2];
    eng_fake f;
    llm_request_config cfg;
    llm_request *r;
    int tokens = 0, busy = 1;
    llm_engine *e = eng_open(&f, 64, 4, 4, 16, 60, 0);
    memset(&cfg, 0, sizeof cfg);
    cfg.prompt_ids = prompt;
    cfg.n_prompt_ids = 3;
    cfg.on_news = eng_count_news;
    cfg.user = &tokens;
    cfg.sampling.max_tokens = 10;
    cfg.sampling.ignore_eos = 1;
    CHECK(!llm_request_submit(e, &cfg, &r) && !llm_request_run(e, r) && tokens == 10 && llm_request_done(r));
    llm_request_free(r);
    for (int i = 0; i < 2; i++) CHECK(!pthread_create(&t[i], NULL, eng_submitter, e));
    for (int i = 0; i < 3000 || busy; i++) {
        llm_engine_step(e, &busy);
        if (!busy) llm_engine_wait(e, 0.0002);
    }
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    for (busy = 1; busy;) llm_engine_step(e, &busy);
    CHECK(eng_books_ok(e) && !e->live && e->n_fresh == 0);
    eng_close(&f);
}

/* The raw forward pass gives the same logits whole, in pieces and in a batch. */
static void eng_test_raw(void) {
    int32_t ids[30], seqs[2] = {1, 0}, at[2] = {10, 30}, counts[2] = {3, 1}, batch[4], one[1] = {5};
    float whole[30 * ENG_VOCAB], piece[ENG_VOCAB], pair[2 * ENG_VOCAB];
    eng_fake f;
    llm_engine *e = eng_open(&f, 64, 4, 2, 8, 100, 0);
    for (int i = 0; i < 30; i++) ids[i] = (i * 5) % 23;
    CHECK(!llm_forward(e, 0, 0, ids, 30, whole, 30));
    for (int i = 0; i < 30; i++) {
        CHECK(!llm_forward(e, 1, i, ids + i, 1, piece, 1));
        CHECK(!memcmp(piece, whole + i * ENG_VOCAB, sizeof piece));
    }
    memcpy(batch, ids + 10, 3 * sizeof *batch);
    batch[3] = one[0];
    CHECK(!llm_forward_batch(e, 2, seqs, at, counts, batch, pair) && !memcmp(pair, whole + 12 * ENG_VOCAB, sizeof piece));
    CHECK(!llm_forward(e, 0, 30, one, 1, piece, 1) && !memcmp(pair + ENG_VOCAB, piece, sizeof piece));
    CHECK(llm_forward(e, 2, 0, ids, 1, piece, 1) == LLM_ERR_ARG && llm_forward(e, 0, 99, ids, 2, piece, 1) == LLM_ERR_LIMIT);
    CHECK(llm_logits_size(e) == ENG_VOCAB);
    eng_close(&f);
}

/* ---- the real engine ---- */

enum { ENG_LONG = 300 };

static llm_engine *eng_real(const llm_model *m, int32_t threads, int32_t seqs, int32_t rows, int32_t max_len, int64_t kv_bytes) {
    llm_engine_config c;
    llm_engine *e;
    memset(&c, 0, sizeof c);
    c.n_threads = threads;
    c.max_num_seqs = seqs;
    c.max_num_batched_tokens = rows;
    c.max_model_len = max_len;
    c.kv_cache_memory_bytes = kv_bytes;
    return CHECK(!llm_engine_open(m, &c, &e)) ? e : NULL;
}

/* Greedy tokens of a prompt; 0 on error. */
static int32_t eng_greedy(llm_engine *e, const int32_t *ids, int32_t n, int32_t *out, double *cum) {
    llm_sampling s;
    llm_output o;
    memset(&s, 0, sizeof s);
    memset(&o, 0, sizeof o);
    s.max_tokens = 24;
    s.ignore_eos = 1;
    llm_request *r = eng_start(e, ids, (size_t)n, &s);
    if (!CHECK(r && !llm_request_run(e, r) && !llm_request_output(r, 0, &o) && o.n_token_ids == 24)) return 0;
    memcpy(out, o.token_ids, 24 * sizeof *out);
    *cum = o.cum_logprob;
    llm_request_free(r);
    return 24;
}

/* The logits of a 300-token prompt are the same bits whole, in chunks, among others, on one thread and two. */
static void eng_test_real_bits(const llm_model *m, const int32_t *ids) {
    llm_engine *e = eng_real(m, 1, 8, 512, 320, 0);
    if (!e) return;
    size_t row = (size_t)llm_logits_size(e);
    float *want = (float *)malloc(row * sizeof(float)), *got = (float *)malloc(8 * row * sizeof(float));
    int32_t chunks[3] = {1, 7, 64}, counts[8], at[8], seqs[8], batch[512];
    CHECK(!llm_forward(e, 0, 0, ids, ENG_LONG, want, 1));
    for (int c = 0; c < 3; c++) {
        int from = c ? 0 : ENG_LONG - 40; /* single tokens only at the end: they are slow */
        if (from) CHECK(!llm_forward(e, 1, 0, ids, from, got, 0));
        for (int i = from; i < ENG_LONG; i += chunks[c]) CHECK(!llm_forward(e, 1, i, ids + i, LLM__MIN(chunks[c], ENG_LONG - i), got, 1));
        CHECK(!memcmp(want, got, row * sizeof(float)));
    }
    CHECK(!llm_forward(e, 5, 0, ids, ENG_LONG - 30, got, 0));
    int32_t n = 0;
    for (int i = 0; i < 8; i++) { /* the end of the prompt among seven others */
        seqs[i] = i, at[i] = i == 5 ? ENG_LONG - 30 : 0, counts[i] = i == 5 ? 30 : 3 + 2 * i;
        for (int k = 0; k < counts[i]; k++) batch[n++] = i == 5 ? ids[at[i] + k] : ids[(i * 31 + k * 7) % ENG_LONG];
    }
    CHECK(!llm_forward_batch(e, 8, seqs, at, counts, batch, got) && !memcmp(want, got + 5 * row, row * sizeof(float)));
    llm_engine_close(e);
    e = eng_real(m, 2, 1, 512, 320, 0);
    if (e) CHECK(!llm_forward(e, 0, 0, ids, ENG_LONG, got, 1) && !memcmp(want, got, row * sizeof(float)));
    llm_engine_close(e);
    free(want);
    free(got);
}

/* A greedy answer is the same alone, from the cache, in a batch and after a preemption. */
static void eng_test_real_tokens(const llm_model *m, const int32_t *ids) {
    int32_t want[24], got[24];
    double cum, cum2;
    llm_sampling s;
    llm_output o;
    llm_engine_stats stats;
    const llm_kv_layer *layers;
    llm_engine *e = eng_real(m, 2, 4, 64, 192, 0);
    if (!e || !eng_greedy(e, ids, 150, want, &cum)) return;
    CHECK(eng_greedy(e, ids, 150, got, &cum2) && !memcmp(want, got, sizeof want) && cum == cum2);
    llm_engine_get_stats(e, &stats);
    CHECK(stats.cached_tokens == 128 && stats.memory_bytes > 0);
    CHECK(eng_greedy(e, ids, 30, want, &cum));
    int n_layers = llm__net_kv_layers(e->net, &layers);
    int64_t page_bytes = e->backend->kv_page_bytes(e->ctx, n_layers, layers, 32);
    llm_engine_close(e);
    e = eng_real(m, 2, 4, 64, 192, 7 * page_bytes); /* four begin on a page each and soon need eight */
    if (!e) return;
    memset(&s, 0, sizeof s);
    s.max_tokens = 24;
    s.ignore_eos = 1;
    llm_request *r[4];
    for (int i = 0; i < 4; i++) r[i] = eng_start(e, ids + (i == 3 ? 0 : 40 * i + 20), 30, &s);
    for (int i = 0; i < 4; i++) CHECK(r[i] && !llm_request_run(e, r[i]));
    CHECK(!llm_request_output(r[3], 0, &o) && o.n_token_ids == 24 && !memcmp(o.token_ids, want, sizeof want) && o.cum_logprob == cum);
    llm_engine_get_stats(e, &stats);
    CHECK(stats.preemptions > 0 && stats.total_blocks == 7);
    printf("real engine: %s, %lld preemptions\n", stats.backend, (long long)stats.preemptions);
    for (int i = 0; i < 4; i++) llm_request_free(r[i]);
    llm_engine_close(e);
}

/* Runs a text to its end; what the events show must be the text of the output. */
static llm_request *eng_text(llm_engine *e, const char *prompt, const llm_sampling *s, llm_output *out) {
    llm_request_config c;
    llm_request *r;
    llm_event event;
    llm_text shown;
    memset(&c, 0, sizeof c);
    memset(&shown, 0, sizeof shown);
    c.prompt = prompt;
    c.prompt_len = strlen(prompt);
    c.tokenize_flags = LLM_TOK_PARSE_SPECIAL;
    c.sampling = *s;
    if (!CHECK(!llm_request_submit(e, &c, &r))) return NULL;
    int ok = 1, ends = 0;
    while (!llm_request_done(r)) {
        llm_engine_step(e, NULL);
        while (llm_request_poll(r, &event)) {
            ok &= strlen(event.text) == event.text_len && (!event.text_len || (event.text[0] & 0xC0) != 0x80);
            llm_text_add(&shown, event.text, event.text_len);
            ends += event.finish != LLM_FINISH_NONE;
        }
    }
    CHECK(ok && ends == 1 && !llm_request_output(r, 0, out));
    CHECK(shown.len == out->text_len && (!shown.len || !memcmp(shown.data, out->text, shown.len)));
    llm_text_free(&shown);
    return r;
}

static void eng_test_real_text(const llm_model *m) {
    static const char question[] = "<|im_start|>user\nCount from one to ten in digits.<|im_end|>\n<|im_start|>assistant\n";
    const char *stop[2] = {"zzz", NULL}, *bad[1] = {NULL};
    llm_sampling s;
    llm_output out, cut;
    llm_text plain;
    llm_engine *e = eng_real(m, 2, 2, 128, 192, 0);
    if (!e) return;
    memset(&plain, 0, sizeof plain);
    memset(&s, 0, sizeof s);
    s.max_tokens = 40;
    llm_request *r = eng_text(e, question, &s, &out);
    if (!r) return;
    size_t n = out.n_token_ids - (out.finish == LLM_FINISH_STOP);
    CHECK(!llm_detokenize(m, out.token_ids, n, 0, &plain) && plain.len == out.text_len && !memcmp(plain.data, out.text, plain.len)); /* EOS counts and is not shown */
    CHECK(out.text_len > 12);
    char piece[5] = {0};
    memcpy(piece, out.text + 7, 4); /* four letters of the answer, wherever tokens end */
    stop[1] = piece;
    s.stop = stop;
    s.n_stop = 2;
    size_t at = (size_t)(strstr(out.text, piece) - out.text);
    llm_request *q = eng_text(e, question, &s, &cut);
    CHECK(cut.text_len == at && !memcmp(cut.text, out.text, at) && cut.finish == LLM_FINISH_STOP && cut.stop_reason && !strcmp(cut.stop_reason, piece));
    llm_request_free(q);
    s.include_stop_str_in_output = 1;
    q = eng_text(e, question, &s, &cut);
    CHECK(cut.text_len == at + 4 && !memcmp(cut.text, out.text, at + 4));
    llm_request_free(q);
    bad[0] = piece;
    s.n_stop = 0;
    s.n_bad_words = 1;
    s.bad_words = bad;
    q = eng_text(e, question, &s, &cut);
    CHECK(q && q->n_bad >= 1);
    llm_request_free(q);
    s.n_bad_words = 0;
    s.stop_token_ids = out.token_ids + 2;
    s.n_stop_token_ids = 1;
    s.include_stop_str_in_output = 0;
    q = eng_text(e, question, &s, &cut);
    CHECK(cut.finish == LLM_FINISH_STOP && cut.stop_id == out.token_ids[2] && cut.n_token_ids <= 3 && cut.token_ids[cut.n_token_ids - 1] == out.token_ids[2]);
    llm_request_free(q);
    llm_request_free(r);
    llm_text_free(&plain);
    llm_engine_close(e);
}

static void eng_test_real_chat(const char *path) {
    llm_engine_config c;
    llm_engine_stats stats;
    llm_text answer;
    memset(&c, 0, sizeof c);
    memset(&answer, 0, sizeof answer);
    c.max_model_len = 512;
    llm *l = llm_load(path, &c);
    if (!CHECK(l != NULL)) return;
    llm_chat *chat = llm_chat_new(l, "You are a helpful assistant. Answer briefly.");
    llm_chat_sampling(chat)->temperature = 0;
    llm_chat_sampling(chat)->max_tokens = 30;
    CHECK(!llm_chat_say(chat, "What is the capital of France?"));
    for (const char *p; (p = llm_chat_next(chat)) != NULL;) llm_text_str(&answer, p);
    CHECK(answer.data && strstr(answer.data, "Paris"));
    CHECK(!llm_chat_say(chat, "And of Italy?") && llm_chat_next(chat) != NULL && !llm_chat_stop(chat)); /* stopped after its first piece */
    CHECK(llm_chat_next(chat) == NULL && strstr(chat->messages.data, "And of Italy?\"},{\"role\":\"assistant\""));
    llm_engine_get_stats(llm_get_engine(l), &stats);
    CHECK(stats.cached_tokens >= 32); /* the first turn was found */
    llm_chat_reset(chat);
    CHECK(chat->messages.len == chat->first);
    llm_chat_free(chat);
    llm_sampling s;
    memset(&s, 0, sizeof s);
    s.max_tokens = 5;
    char *text = llm_generate(l, "The capital of France is", &s);
    CHECK(text && strstr(text, "Paris"));
    llm_string_free(text);
    llm_text_free(&answer);
    llm_free(l);
}

/* What cannot work is refused before anything is computed, with the numbers. */
static void eng_test_real_refusals(const llm_model *m) {
    const llm_backend *b;
    llm_engine_config c;
    llm_engine *e;
    memset(&c, 0, sizeof c);
    c.max_model_len = 1 << 20;
    CHECK(llm_engine_open(m, &c, &e) == LLM_ERR_ARG && !e && strstr(llm_last_error(), "1048576") && strstr(llm_last_error(), "8192"));
    c.max_model_len = 0;
    c.max_num_seqs = 600;
    c.max_num_batched_tokens = 512;
    CHECK(llm_engine_open(m, &c, &e) == LLM_ERR_ARG && strstr(llm_last_error(), "max_num_batched_tokens (512)"));
    c.max_num_seqs = 0;
    c.block_size = 24;
    CHECK(llm_engine_open(m, &c, &e) == LLM_ERR_ARG && strstr(llm_last_error(), "24"));
    c.block_size = 0;
    c.device = "tpu";
    CHECK(llm_engine_open(m, &c, &e) == LLM_ERR_ARG && strstr(llm_last_error(), "tpu"));
    c.device = NULL;
    c.early_stop.threshold = 2;
    CHECK(llm_engine_open(m, &c, &e) == LLM_ERR_ARG);
    CHECK(llm_backend_load("/no/such/library.so", &b) == LLM_ERR_IO && !b);
    CHECK(llm_backend_load("libm.so.6", &b) == LLM_ERR_UNSUPPORTED && strstr(llm_last_error(), "llm_cuda_backend"));
}

static void eng_test_real(void) {
    static const char path[] = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
    int32_t ids[ENG_LONG];
    llm_model *m;
    if (!test_exists(path)) {
        SKIP("no SmolLM2 in models/");
        return;
    }
    if (!CHECK(!llm_model_open(path, NULL, &m))) return;
    for (int i = 0; i < ENG_LONG; i++) ids[i] = 200 + (int32_t)(llm__mix((uint64_t)i) % 40000);
    eng_test_real_bits(m, ids);
    eng_test_real_tokens(m, ids);
    eng_test_real_text(m);
    eng_test_real_refusals(m);
    llm_model_close(m);
    eng_test_real_chat(path);
}

TEST_GROUP(engine) {
    eng_test_real();
    eng_test_early_stop();
    eng_test_refusals();
    eng_test_faults();
    eng_test_sharing();
    eng_test_prefix();
    eng_test_pages();
    eng_test_no_allocation();
    eng_test_no_memory();
    eng_test_stop_strings();
    eng_test_threads();
    eng_test_raw();
    eng_simulate(1, 400, 4, 4, 16, 0, 4000);
    eng_simulate(2, 24, 4, 4, 8, 0, 6000);
    eng_simulate(3, 12, 8, 6, 32, 0, 6000);
    eng_simulate(4, 20, 4, 3, 7, 1, 4000);
}
