/* Deterministic simulation of the scheduler: seeded arrivals, cancels, frees, deadlines, faults and clock jumps on tiny caches of a fake device.
 * An episode is one 64-bit seed: it draws its limits and rates, runs a few hundred steps of traffic, then stops faults and arrivals and must
 * come to rest. After every step these must hold (fake.h checks the books):
 *   K1  free + used + cached pages = all, each page in one list       K2  references of a page = tables that name it
 *   K3  a page with two owners is full and never written              K4  a known page holds the tokens the index says
 *   K5  what a look-up found is pinned                                K6  who ended or waits owns nothing
 *   K7  at rest every page is free or cached, flushed: free           K8  page tables cover the tokens; shared pages have equal beginnings and salt
 *   K9  a step in flight keeps its pages                              K10 no empty step, no sequence without a row
 *   K11 rows of a step <= budget                                      K12 the first in order advances; preemptions free pages and are few
 *   K13 a request that fits alone ends                                K14 rows computed in vain leave no known page (K4 on all known pages)
 *   K15 every answer is what the request gives alone                  K16 counts = tokens delivered
 *   K17 no counter is negative or too large                           K18 one end an answer, nothing after it
 *
 *     build/dev/unit sim                       the 100,000 steps of make test
 *     build/dev/unit sim -- steps N [SEED]     a campaign of N steps from SEED on
 *     build/dev/unit sim -- replay SEED        one episode, a line a step */
#include "../fake.h"
#include "base/platform.h"
#include "base/map.h"
#include "engine/kv.h"
#include "engine/speculate.h"
#include "engine/scheduler.h"

enum { SIM_CLIENTS = 12, SIM_TOKENS = 128, SIM_CHOICES = 8 /* answers, and sequences without beams */ };

typedef struct sim_client {
    llm_request *request;
    int32_t n, max_new, cancelled, ends[SIM_CHOICES], tokens[SIM_CHOICES], ids[SIM_CHOICES][SIM_TOKENS];
    int told;               /* the callback has seen the end */
    int may_stop, may_fail; /* it was cancelled or has a deadline; a fault was injected while it lived */
    long born;
} sim_client;

typedef struct sim {
    uint64_t seed, dice;
    fake_device f;
    llm_engine *e;
    llm__engine_params p;
    sim_client client[SIM_CLIENTS];
    int32_t fault_rate, arrival_rate, long_prompts; /* one in so many; 0: none */
    int trace, uncounted, failing;                  /* uncounted: tokens were made that nobody got; failing: a step in flight will */
    int grammars;                                   /* some requests have one: their first masks take memory */
    long step, requests, faults, oldest, tokens;
    const llm__seq *first; /* the first in order at the last step, and how far it was */
    int64_t first_progress, first_stuck;
    const char *broken;
} sim;

static struct {
    long episodes, steps, requests, faults, preemptions, cached, copies, swaps, placeholders, drafted, kept, jumped, beams, oldest,
        most_preempted, paused, dropped;
} sim_total;

/* A number in [0, n). */
static int32_t sim_dice(sim *m, int32_t n) { return (int32_t)(llm__mix(m->seed ^ llm__mix(m->dice++)) % (uint64_t)n); }

static int sim_one_in(sim *m, int32_t n) { return n > 0 && !sim_dice(m, n); }

static void sim_break(sim *m, const char *why) {
    if (why && !m->broken) m->broken = why;
}

#define SIM_CHECK(m, condition, why) sim_break(m, (condition) ? NULL : (why))

/* ---- requests ---- */

/* A random request: prompts share beginnings. */
static void sim_sampling(sim *m, llm_sampling *s) {
    static const int32_t stop[] = {FAKE_STOP}, opening[] = {3}, closing[] = {5, 7};
    int32_t half = m->p.max_len / 2;
    s->max_tokens = 1 + sim_dice(m, half);
    s->temperature = sim_dice(m, 3) ? 1.0f : 0;
    s->has_seed = 1;
    s->seed = sim_dice(m, 1000);
    s->n = sim_dice(m, 3) ? 1 : 1 + sim_dice(m, 4);
    if (sim_one_in(m, 8)) s->best_of = s->n + sim_dice(m, 3);
    if (sim_one_in(m, 4)) s->frequency_penalty = 0.7f, s->repetition_penalty = 1.3f;
    if (sim_one_in(m, 4)) s->top_k = 5, s->top_p = 0.9f;
    if (sim_one_in(m, 4)) s->ignore_eos = 1;
    if (sim_one_in(m, 4)) s->stop_token_ids = stop, s->n_stop_token_ids = 1;
    if (sim_one_in(m, 4)) s->min_tokens = LLM__MIN(5, s->max_tokens);
    if (sim_one_in(m, 4)) s->early_stop.enable = 1, s->early_stop.window_size = 3, s->early_stop.threshold = 0.8f;
    if (sim_one_in(m, 4)) s->repetition_detection = (llm_repetition_detection){1 + sim_dice(m, 3), sim_dice(m, 2), 2 + sim_dice(m, 2)};
    if (sim_one_in(m, 4)) s->logprobs = 3;
    if (sim_one_in(m, 6)) s->prompt_logprobs = 3;
    if (m->grammars && sim_dice(m, 2)) s->grammar = fake_grammar[sim_dice(m, FAKE_GRAMMARS)];
    if (sim_one_in(m, 4)) {
        s->thinking_tokens = 1 + sim_dice(m, 6), s->thinking_open = sim_dice(m, 2);
        s->think_open = opening, s->n_think_open = 1, s->think_close = closing, s->n_think_close = 1 + sim_dice(m, 2);
    }
    if (s->grammar || s->thinking_tokens || !sim_one_in(m, 8)) return;
    s->use_beam_search = 1;
    s->n = 1 + sim_dice(m, 3);
    s->best_of = s->n + sim_dice(m, 3);
    if (s->best_of < 2) s->best_of = 2;
    s->temperature = s->frequency_penalty = s->top_p = 0;
    s->repetition_penalty = 1;
    s->top_k = s->early_stop.enable = s->repetition_detection.max_pattern_size = 0;
    s->repetition_detection.min_pattern_size = 0;
    s->length_penalty = (float)(sim_dice(m, 6) - 2) / 2;
    s->early_stopping = sim_dice(m, 3);
}

/* Nobody is called again after the end. */
static void sim_told(void *user, llm_request *r) {
    sim_client *c = (sim_client *)user;
    c->told += c->told > 0 || r->n_done == r->n_seqs;
}

static void sim_submit(sim *m, sim_client *c) {
    int32_t prompt[SIM_TOKENS], n = 1 + sim_dice(m, m->long_prompts ? m->p.max_len - 1 : m->p.max_len / 2), family = sim_dice(m, 3);
    llm_request_config cfg;
    memset(c, 0, sizeof *c);
    memset(&cfg, 0, sizeof cfg);
    for (int32_t i = 0; i < n; i++) prompt[i] = i < 20 - 5 * family ? (i * 7 + family) % 20 : sim_dice(m, FAKE_VOCAB);
    sim_sampling(m, &cfg.sampling);
    cfg.prompt_ids = prompt;
    cfg.n_prompt_ids = (size_t)n;
    cfg.on_news = sim_told;
    cfg.user = c;
    cfg.priority = sim_dice(m, 4) ? 0 : sim_dice(m, 3);
    cfg.cache_salt = sim_dice(m, 3) ? NULL : sim_dice(m, 2) ? "a" : "b";
    cfg.id = cfg.cache_salt ? cfg.cache_salt : "none"; /* for sim_salts */
    if (sim_one_in(m, 12)) cfg.score_only = 1, cfg.sampling.n = cfg.sampling.best_of = cfg.sampling.use_beam_search = 0;
    if (sim_one_in(m, 20)) cfg.deadline_s = 0.1 + sim_dice(m, 10) / 10.0, c->may_stop = 1;
    c->n = LLM__MAX(1, cfg.sampling.n);
    c->max_new = LLM__MIN(cfg.sampling.max_tokens, m->p.max_len - n);
    c->born = m->step;
    if (sim_one_in(m, m->fault_rate)) test_fail_at = test_allocations + 1 + sim_dice(m, 12);
    llm_result r = llm_request_submit(m->e, &cfg, &c->request);
    int failed = test_fail_at && test_allocations >= test_fail_at;
    test_fail_at = 0;
    m->requests += !r;
    m->faults += failed;
    SIM_CHECK(m, failed ? r == LLM_ERR_NOMEM : !r || r == LLM_ERR_BUSY, "a request is refused, or accepted without memory");
}

/* Takes what is new. */
static void sim_drain(sim *m, sim_client *c) {
    llm_event event;
    while (llm_request_poll(c->request, &event)) {
        SIM_CHECK(m, event.index >= 0 && event.index < c->n && !c->ends[event.index], "K18: news after the end");
        if (m->broken) return;
        if (event.has_token) c->ids[event.index][c->tokens[event.index]++] = event.id;
        c->ends[event.index] += event.finish != LLM_FINISH_NONE;
    }
}

/* The log-probabilities of a prompt, checked against the fake model. */
static int sim_scores_right(const llm_request *r) {
    const llm_token_logprob *top;
    const int32_t *counts;
    int32_t stride;
    const float *lp = llm_request_prompt_logprobs(r, &top, &counts, &stride);
    const int32_t *ranks = llm_request_prompt_ranks(r);
    float x[FAKE_VOCAB], w[FAKE_VOCAB];
    uint64_t h = fake_hash_begin();
    int ok = 1, bad;
    if (!lp || !ranks) return 0;
    for (int32_t i = 1; i < r->seq[0].n_prompt; i++) {
        h = fake_hash_add(h, r->seq[0].ids[i - 1]);
        fake_logits(h, x);
        float max = fake_kernels()->top(x, FAKE_VOCAB, &bad);
        double log_sum = (double)max + log(fake_kernels()->weigh(x, w, FAKE_VOCAB, max, 1));
        ok &= lp[i] == (float)((double)x[r->seq[0].ids[i]] - log_sum) && counts[i] == stride;
        if (stride) ok &= top[i * stride].logprob >= lp[i];
        int32_t rank = 1;
        for (int32_t k = 0; k < FAKE_VOCAB; k++) rank += x[k] > x[r->seq[0].ids[i]];
        ok &= ranks[i] == rank;
    }
    return ok;
}

/* Answer i of n best: which sequence. */
static int32_t sim_best(const fake_want *want, int32_t n, int32_t index) {
    for (int32_t i = 0; i < n; i++) {
        int32_t better = 0;
        for (int32_t j = 0; j < n; j++)
            better += (float)want[j].cum_logprob > (float)want[i].cum_logprob ||
                      ((float)want[j].cum_logprob == (float)want[i].cum_logprob && j < i);
        if (better == index) return i;
    }
    return 0;
}

/* Answers of a beam search against the plain one. */
static void sim_judge_beams(sim *m, const sim_client *c) {
    static fake_beam pool[FAKE_BEAMS];
    const llm_request *r = c->request;
    int32_t n = fake_beam_search(r, c->max_new, fake_whole, NULL, pool);
    SIM_CHECK(m, n == r->sampling.best_of, "K15: a beam search without enough answers");
    for (int32_t i = 0; i < r->sampling.n && !m->broken; i++) {
        llm_output out;
        llm_request_get_output(r, i, &out);
        SIM_CHECK(m, c->tokens[i] == pool[i].n && !memcmp(c->ids[i], pool[i].ids, (size_t)pool[i].n * sizeof(int32_t)),
                  "K15: tokens of a beam");
        SIM_CHECK(m, out.finish == pool[i].finish && out.cum_logprob == pool[i].sum, "K15: end or sum of a beam");
    }
    sim_total.beams++;
}

/* What came, against the oracle: whole answers where they ended by themselves, beginnings where something ended them. */
static void sim_judge(sim *m, sim_client *c) {
    static fake_want want[SIM_CHOICES];
    const llm_request *r = c->request;
    int whole = 1, beams = r->sampling.use_beam_search;
    for (int32_t i = 0; i < r->n_seqs && !beams; i++)
        whole &= r->seq[i].output.finish == LLM_FINISH_STOP || r->seq[i].output.finish == LLM_FINISH_LENGTH;
    for (int32_t i = 0; i < r->sampling.n && beams; i++) {
        llm_output out;
        whole &= !llm_request_get_output(r, i, &out) && (out.finish == LLM_FINISH_STOP || out.finish == LLM_FINISH_LENGTH);
    }
    m->uncounted |= beams;
    if (beams && whole) sim_judge_beams(m, c);
    if (r->score_only) {
        SIM_CHECK(m, c->ends[0] == 1 && c->tokens[0] == 0, "K18: a scored prompt has tokens or no end");
        if (whole) SIM_CHECK(m, sim_scores_right(r), "K15: scores of a prompt");
    } else {
        for (int32_t i = 0; i < r->n_seqs && !beams; i++) fake_oracle(r, i, c->max_new, &want[i]);
        if (whole && r->sampling.prompt_logprobs) SIM_CHECK(m, sim_scores_right(r), "K15: scores of a prompt with an answer");
    }
    for (int32_t i = 0; i < r->sampling.n && !r->score_only; i++) {
        llm_output out;
        SIM_CHECK(m, !llm_request_get_output(r, i, &out) && c->ends[i] == 1, "K18: an answer without an end");
        SIM_CHECK(m, out.n_token_ids == (size_t)c->tokens[i] && !memcmp(out.token_ids, c->ids[i], out.n_token_ids * sizeof(int32_t)),
                  "K16: tokens polled and tokens kept differ");
        SIM_CHECK(m, out.finish != LLM_FINISH_CANCELLED || c->may_stop, "K18: nobody cancelled it");
        SIM_CHECK(m, out.finish != LLM_FINISH_ERROR || c->may_fail, "K18: it failed without a fault");
        if (beams || (r->n_seqs > r->sampling.n && !whole)) continue; /* the best of what was there */
        const fake_want *w = &want[r->n_seqs > r->sampling.n ? sim_best(want, r->n_seqs, i) : i];
        int done = out.finish == LLM_FINISH_STOP || out.finish == LLM_FINISH_LENGTH;
        SIM_CHECK(m, c->tokens[i] <= w->n && !memcmp(c->ids[i], w->ids, (size_t)c->tokens[i] * sizeof(int32_t)),
                  "K15: tokens are not those of the request alone");
        if (done)
            SIM_CHECK(m, c->tokens[i] == w->n && out.finish == w->finish && out.cum_logprob == w->cum_logprob,
                      "K15: end or sum is not that of the request alone");
    }
    for (int32_t i = 0; i < r->n_seqs && !beams; i++) sim_total.most_preempted = LLM__MAX(sim_total.most_preempted, r->seq[i].n_preempted);
    llm_request_metrics metrics;
    llm_request_get_metrics(r, &metrics);
    SIM_CHECK(m, c->told == 1, "K18: the callback was not told the end once");
    SIM_CHECK(m,
              metrics.n_prompt_tokens == r->seq[0].n_prompt && metrics.n_cached_tokens >= 0 &&
                  metrics.n_cached_tokens < metrics.n_prompt_tokens,
              "K16: counts of a request");
    for (int32_t i = 0; i < r->n_seqs; i++) m->tokens += r->seq[i].n_ids - r->seq[i].n_prompt;
    llm_request_free(c->request);
    c->request = NULL;
}

/* ---- an episode ---- */

/* Limits and rates of this seed. */
static void sim_open(sim *m) {
    int32_t page_tokens = 1 << sim_dice(m, 4), n_pages = 4 + sim_dice(m, 61), max_seqs = 1 + sim_dice(m, 8);
    m->p = fake_params(n_pages, page_tokens, max_seqs, max_seqs + sim_dice(m, 24), LLM__MIN(n_pages * page_tokens, 96));
    m->p.max_out = max_seqs + sim_dice(m, 5);
    m->p.c.max_queue = 4 + sim_dice(m, 12);
    m->p.c.disable_prefix_caching = sim_one_in(m, 4);
    if (sim_one_in(m, 5)) m->p.c.disable_chunked_prefill = 1, m->p.c.max_num_batched_tokens = m->p.max_len + max_seqs;
    m->p.lag = sim_dice(m, 2);
    m->p.n_draft = sim_dice(m, 2) ? 0 : 1 + sim_dice(m, 8);
    m->p.n_jump = sim_dice(m, LLM__JUMP_MAX + 1);
    m->p.recurrent = sim_one_in(m, 3);
    m->grammars = sim_dice(m, 2);
    if (sim_dice(m, 4)) m->p.driver.draft = fake_draft; /* else prompt lookup */
    m->p.c.ngram_prompt_lookup_min = 1 + sim_dice(m, 2), m->p.c.ngram_prompt_lookup_max = m->p.c.ngram_prompt_lookup_min + sim_dice(m, 4);
    m->p.n_swap = sim_dice(m, 3) ? 0 : 1 + sim_dice(m, 2 * n_pages);
    m->p.c.prefill_interval = sim_one_in(m, 4) ? sim_dice(m, 6) : 0;
    m->p.c.scheduler_delay_factor = sim_one_in(m, 4) ? sim_dice(m, 30) / 10.0 : 0;
    m->fault_rate = sim_dice(m, 2) ? 20 + sim_dice(m, 200) : 0;
    m->arrival_rate = 1 + sim_dice(m, 12);
    m->long_prompts = sim_one_in(m, 3);
    if (m->p.lag && sim_one_in(m, 3)) m->p.c.pipeline_parallel_size = 2 + sim_dice(m, 3), m->p.lag = m->p.c.pipeline_parallel_size - 1;
    m->e = fake_open(&m->f, m->p);
    if (m->p.lag || sim_dice(m, 2)) return;
    m->f.pieces = 1 + sim_dice(m, 6);
    m->f.table.work = fake_work;
}

/* Something breaks: which requests may fail of it is known only to the engine. */
static void sim_fault(sim *m) {
    int what = sim_dice(m, 6);
    if (what == 0) m->f.fail = 1;
    if (what == 1) m->f.not_finite = 1 + sim_dice(m, FAKE_VOCAB - 1);
    if (what == 2) m->f.fail_copy = 1 + sim_dice(m, 3);
    if (what == 3) m->f.clock_ms += 100 * sim_dice(m, 100);
    if (what == 4) m->f.fail_late = 1;
    if (what == 5) m->f.fail_swap = 1 + sim_dice(m, 3);
    m->faults++;
    for (int i = 0; i < SIM_CLIENTS; i++) m->client[i].may_fail = 1;
}

/* Clients come, go and lose patience. */
static void sim_clients(sim *m, int arrivals) {
    for (int i = 0; i < SIM_CLIENTS; i++) {
        sim_client *c = &m->client[i];
        if (!c->request && arrivals && sim_one_in(m, 6 * m->arrival_rate))
            sim_submit(m, c), c->may_fail |= m->f.fail || m->f.fail_late || m->f.not_finite || m->failing;
        if (c->request && !c->cancelled && sim_one_in(m, 200)) c->cancelled = c->may_stop = 1, llm_request_cancel(c->request);
        if (c->request && sim_one_in(m, 1000)) llm_request_free(c->request), c->request = NULL, m->uncounted = 1;
    }
}

/* Without chunks a prompt is computed in one step, but where its rows are scored. */
static void sim_whole(sim *m) {
    for (int32_t i = 0; i < m->e->running.n && m->p.c.disable_chunked_prefill; i++) {
        const llm__seq *s = m->e->running.seq[i];
        SIM_CHECK(m, !s->n_chunk || s->n_fed >= s->n_prompt || s->request->prompt.score_end, "a prompt was computed in pieces");
    }
}

/* Who shares a page has the same salt. */
static void sim_salts(sim *m) {
    for (int32_t i = 0; i < m->e->running.n; i++)
        for (int32_t k = 0; k < i; k++) {
            const llm__seq *a = m->e->running.seq[i], *b = m->e->running.seq[k];
            if (a->pages.n && b->pages.n && a->pages.id[0] == b->pages.id[0])
                SIM_CHECK(m, !strcmp(a->request->id, b->request->id), "K8: a page shared by different salts");
        }
}

/* The first in order of those that run is never held up for long. */
static void sim_progress(sim *m, long preempted, uint64_t released) {
    int beams = 0;
    const llm__seq *s = m->e->running.n ? m->e->running.seq[0] : NULL;
    int64_t progress = s ? s->n_ids + s->n_computed : 0;
    if (m->f.pieces && m->e->flights.n) return; /* the step goes on */
    m->first_stuck = s && !s->beam.n_next && s == m->first && progress == m->first_progress ? m->first_stuck + 1 : 0;
    m->first = s;
    m->first_progress = progress;
    SIM_CHECK(m, m->first_stuck < 8, "K12: the first in order does not advance");
    for (const llm_request *r = m->e->live; r; r = r->next) beams |= r->sampling.use_beam_search; /* they may give way for a place */
    if (!beams) SIM_CHECK(m, !preempted || m->e->kv.released > released, "K12: preemptions freed nothing");
}

static void sim_step(sim *m, int arrivals, int faults) {
    long preempted = (long)m->e->count.preemptions, allocations;
    uint64_t released = m->e->kv.released;
    sim_clients(m, arrivals);
    if (faults && sim_one_in(m, m->fault_rate)) sim_fault(m);
    m->failing = 0;
    for (int i = 0; i < FAKE_FLIGHT; i++) m->failing |= m->f.result[i] != LLM_OK;
    allocations = test_allocations;
    llm_result r = m->f.pieces && sim_dice(m, 4) ? llm_engine_step_for(m->e, sim_dice(m, 12), NULL) : llm_engine_step(m->e, NULL);
    sim_total.paused += m->f.pieces && m->e->flights.n;
    SIM_CHECK(m, test_allocations == allocations || m->grammars, "a step allocates");
    SIM_CHECK(m, !r || m->faults, "a step fails without a fault");
    SIM_CHECK(m, !m->f.bad_steps, "K10, K11: a step that is empty, too large or not in order");
    sim_break(m, fake_books(m->e));
    sim_break(m, fake_check_cache(&m->f));
    sim_break(m, fake_check_flight(&m->f));
    sim_salts(m);
    sim_whole(m);
    sim_progress(m, (long)m->e->count.preemptions - preempted, released);
    for (int i = 0; i < SIM_CLIENTS && !m->broken; i++) {
        sim_client *c = &m->client[i];
        if (!c->request) continue;
        if (sim_dice(m, 2)) sim_drain(m, c);
        m->oldest = LLM__MAX(m->oldest, m->step - c->born);
        if (llm_request_done(c->request)) sim_judge(m, c);
    }
    const llm__flight *f =
        &m->e->flights.ring[(m->e->flights.oldest + (m->e->flights.n ? 0 : m->e->flights.size - 1)) % m->e->flights.size];
    if (m->trace)
        printf("step %ld: %d rows of %d sequences, %d run, %d wait, %d free, %d cached, %lld preemptions, %d in flight\n", m->step,
               f->n_rows, f->n, m->e->running.n, m->e->waiting.n, m->e->kv.n_free, m->e->kv.n_cached, (long long)m->e->count.preemptions,
               m->e->flights.n);
    m->step++;
}

/* Nothing is left, and nothing is lost. */
static void sim_rest(sim *m) {
    llm_engine_stats s;
    llm_engine_get_stats(m->e, &s);
    SIM_CHECK(m, s.n_running == 0 && s.n_waiting == 0 && !m->e->live && s.free_blocks + s.cached_blocks == s.total_blocks,
              "K7: pages or requests are left at rest");
    SIM_CHECK(m, m->uncounted || s.generation_tokens == m->tokens, "K16: generated tokens and delivered tokens differ");
    llm__kv_flush(&m->e->kv);
    SIM_CHECK(m, m->e->kv.n_free == m->e->kv.n_pages, "K7: a flush leaves pages");
    SIM_CHECK(m, s.accepted_tokens <= s.draft_tokens && s.drafts <= s.draft_tokens, "K16: drafts");
    sim_total.preemptions += (long)s.preemptions;
    if (!m->p.n_draft) sim_total.jumped += (long)s.accepted_tokens;
    sim_total.drafted += (long)s.draft_tokens;
    sim_total.kept += (long)s.accepted_tokens;
    sim_total.cached += (long)s.cached_tokens;
}

/* Traffic and faults for `steps`, then quiet until all have ended. Returns 1 when nothing broke. */
static int sim_episode(uint64_t seed, long steps, int trace) {
    static sim m;
    memset(&m, 0, sizeof m);
    m.seed = seed;
    m.trace = trace;
    sim_open(&m);
    while (m.step < steps && !m.broken) sim_step(&m, 1, 1);
    m.f.fail = m.f.fail_late = m.f.not_finite = m.f.fail_copy = m.f.fail_swap = 0;
    for (long quiet = 0, left = 1; left && !m.broken; quiet++) {
        sim_step(&m, 0, 0);
        left = m.e->live != NULL;
        for (int i = 0; i < SIM_CLIENTS; i++) left |= m.client[i].request != NULL;
        SIM_CHECK(&m, quiet < 20000, "K13: requests do not end");
    }
    if (!m.broken) sim_rest(&m);
    if (m.broken) {
        printf("simulation: seed %llu, step %ld: %s\n    replay: build/dev/unit sim -- replay %llu\n", (unsigned long long)seed, m.step,
               m.broken, (unsigned long long)seed);
        for (int i = 0; i < SIM_CLIENTS; i++) llm_request_free(m.client[i].request);
    }
    sim_total.episodes++;
    sim_total.steps += m.step;
    sim_total.requests += m.requests;
    sim_total.faults += m.faults;
    sim_total.copies += m.f.copies;
    sim_total.swaps += m.f.swaps;
    sim_total.placeholders += m.f.placeholders;
    sim_total.dropped += m.f.dropped;
    sim_total.oldest = LLM__MAX(sim_total.oldest, m.oldest);
    fake_close(&m.f);
    return !m.broken;
}

/* Episodes until so many steps are done. */
static void sim_campaign(long steps, uint64_t seed) {
    int ok = 1;
    memset(&sim_total, 0, sizeof sim_total);
    if (!CHECK(fake_grammars_open())) return;
    for (; sim_total.steps < steps && ok; seed++) ok = sim_episode(seed, 400, 0);
    CHECK(ok && sim_total.most_preempted <= LLM__PREEMPT_MAX); /* K12: its pages ahead are as many as an answer here can need */
    CHECK(sim_total.paused && sim_total.dropped);
    CHECK(sim_total.swaps && sim_total.placeholders && sim_total.preemptions && sim_total.copies && sim_total.cached && sim_total.faults);
    CHECK(sim_total.kept > sim_total.drafted / 4 && (sim_total.jumped || steps < 20000)); /* K15 held for long runs of drafts */
    fake_grammars_close();
    printf(
        "simulation: %ld steps in %ld episodes, %ld requests (oldest %ld steps), %ld faults, %ld preemptions (at most %ld of one), %ld cached tokens, %ld copies, %ld pages swapped, %ld rows ahead, %ld of %ld drafted tokens kept, %ld of grammars alone, %ld beam searches\n",
        sim_total.steps, sim_total.episodes, sim_total.requests, sim_total.oldest, sim_total.faults, sim_total.preemptions,
        sim_total.most_preempted, sim_total.cached, sim_total.copies, sim_total.swaps, sim_total.placeholders, sim_total.kept,
        sim_total.drafted, sim_total.jumped, sim_total.beams);
}

TEST_GROUP(sim) {
    const char *what = test_argc ? test_argv[0] : "";
    const long n = test_argc > 1 ? strtol(test_argv[1], NULL, 10) : TEST_BRIEF ? 15000 : 100000;
    if (!strcmp(what, "replay")) CHECK(fake_grammars_open() && sim_episode(strtoull(test_argv[1], NULL, 10), 400, 1));
    else sim_campaign(n, test_argc > 2 ? strtoull(test_argv[2], NULL, 10) : 1);
}
