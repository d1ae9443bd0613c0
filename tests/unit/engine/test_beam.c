/* Beam search, one advance at a time with candidates given by hand: who becomes a child, who an answer, who waits, who gets the pages.
 * (Whole searches against a plain one: test_engine.c, test_sim.c.) */
#include "../fake.h"
#include "engine/beam.h"
#include "engine/ends.h"

typedef struct beam_next {
    int32_t id;
    float logprob;
} beam_next;

static const int32_t beam_prompt[6] = {1, 2, 3, 4, 5, 6};

/* A request whose prompt is computed, so that its one beam needs candidates. */
static llm_request *beam_begin(llm_engine *e, int32_t width, int32_t early_stopping, float length_penalty, int32_t max_tokens) {
    llm_request_config c = LLM__ZERO;
    llm_request *r = NULL;
    c.prompt_ids = beam_prompt, c.n_prompt_ids = 6;
    c.sampling.use_beam_search = 1, c.sampling.n = c.sampling.best_of = width, c.sampling.max_tokens = max_tokens;
    c.sampling.early_stopping = early_stopping, c.sampling.length_penalty = length_penalty;
    CHECK(!llm_request_submit(e, &c, &r));
    llm__take_inbox(e);
    llm__seq *s = r->seq;
    CHECK(llm__seq_place(e, s));
    llm__queue_take(e, s);
    llm__running_put(e, s);
    s->n_fed = s->n_computed = s->n_ids;
    return r;
}

static void beam_give(llm__seq *s, const beam_next *next, int32_t n) {
    for (int32_t i = 0; i < n; i++) s->beam.next[i].id = next[i].id, s->beam.next[i].logprob = s->beam.next_raw[i] = next[i].logprob;
    s->beam.n_next = n;
    s->n_fed = s->n_computed = s->n_ids;
}

/* The sequence of a role whose answer is these ids; NULL: none. */
static llm__seq *beam_find(llm_request *r, llm__beam_role role, const int32_t *ids, int32_t n) {
    for (int32_t i = 0; i < r->n_seqs; i++) {
        llm__seq *s = &r->seq[i];
        if (s->beam.role == role && s->n_ids - s->n_prompt == n && !memcmp(s->ids + s->n_prompt, ids, (size_t)n * sizeof *ids)) return s;
    }
    return NULL;
}

static int32_t beam_count(const llm_request *r, llm__beam_role role) {
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_seqs; i++) n += r->seq[i].beam.role == role;
    return n;
}

static int beam_near(double a, double b) { return fabs(a - b) < 1e-6; }

/* Two beams. Of the first four continuations one ends, so it joins the pool, and the best two others live; then those wait for each other. */
static void beam_tree(void) {
    static const beam_next first[4] = {{7, -0.5f}, {FAKE_EOS, -0.75f}, {8, -1.0f}, {9, -1.5f}};
    static const beam_next of_7[4] = {{10, -2.0f}, {11, -2.25f}, {12, -3.0f}, {13, -4.0f}};
    static const beam_next of_8[4] = {{10, -0.25f}, {FAKE_EOS, -0.5f}, {14, -0.75f}, {15, -9.0f}};
    static const int32_t said[3][2] = {{8, 10}, {8, 14}, {8, FAKE_EOS}};
    fake_device f;
    llm_engine *e = fake_open(&f, fake_params(32, 4, 4, 16, 40));
    llm_request *r = beam_begin(e, 2, 0, 1.0f, 8);
    CHECK(r->n_seqs == 8 && beam_count(r, LLM__BEAM_LIVE) == 1 && beam_count(r, LLM__BEAM_FREE) == 7);
    llm__beams_advance(e, r, 1.0); /* its candidates are not known */
    CHECK(beam_count(r, LLM__BEAM_LIVE) == 1 && r->seq[0].n_ids == 6);
    beam_give(r->seq, first, 4);
    llm__beams_advance(e, r, 1.0);
    llm__seq *seven = beam_find(r, LLM__BEAM_LIVE, &first[0].id, 1), *eight = beam_find(r, LLM__BEAM_LIVE, &first[2].id, 1),
             *end = beam_find(r, LLM__BEAM_POOL, &first[1].id, 1);
    if (!CHECK(seven && eight && end && beam_count(r, LLM__BEAM_FREE) == 5)) return;
    CHECK(beam_near(seven->output.cum_logprob, -0.5) && beam_near(eight->output.cum_logprob, -1.0));
    CHECK(beam_near(end->beam.score, -0.75 / 6)); /* the EOS does not count */
    CHECK(seven->state == LLM__SEQ_RUNNING && eight->state == LLM__SEQ_RUNNING && seven->n_computed == 6 && eight->n_computed == 6);
    CHECK(seven->pages.id[0] == eight->pages.id[0] && seven->pages.id[1] != eight->pages.id[1] && e->kv.ref[seven->pages.id[0]] == 2);
    CHECK(e->running.n == 2 && e->count.generation_tokens == 2);
    beam_give(seven, of_7, 4);
    llm__beams_advance(e, r, 2.0); /* eight is not as far */
    CHECK(seven->n_ids == 7 && eight->n_ids == 7 && seven->beam.n_next == 4);
    beam_give(eight, of_8, 4);
    llm__beams_advance(e, r, 2.0);
    /* the best four of all: 8 10 (-1.25), 8 EOS (-1.5), 8 14 (-1.75), 7 10 (-2.5) */
    CHECK(beam_find(r, LLM__BEAM_LIVE, said[0], 2) && beam_find(r, LLM__BEAM_LIVE, said[1], 2) && beam_count(r, LLM__BEAM_LIVE) == 2);
    llm__seq *second = beam_find(r, LLM__BEAM_POOL, said[2], 2);
    CHECK(second && beam_near(second->beam.score, -1.5 / 7) && beam_count(r, LLM__BEAM_POOL) == 2 && !r->n_done);
    CHECK(seven->beam.role == LLM__BEAM_FREE || seven->n_ids == 8); /* it had no children: its place may serve another */
    llm_request_free(r);
    CHECK(!llm_engine_step(e, NULL) && llm__kv_room(&e->kv) == 32);
    fake_close(&f);
}

/* The pool is full: at once the end with early_stopping 1; with 0 only if the best that lives cannot get in at its present length, with 2 at
 * the longest length there can be. Answers stand by score. */
static void beam_stop(int32_t early_stopping, float alive, int ends) {
    const beam_next next[4] = {{FAKE_EOS, -0.5f}, {FAKE_STOP, -0.6f}, {3, alive}, {4, -9.0f}};
    fake_device f;
    llm_output out;
    llm_engine *e = fake_open(&f, fake_params(32, 4, 4, 16, 40));
    llm_request *r = beam_begin(e, 2, early_stopping, 1.0f, 8);
    int32_t stop = FAKE_STOP;
    r->sampling.stop_token_ids = &stop, r->sampling.n_stop_token_ids = 1;
    beam_give(r->seq, next, 4);
    llm__beams_advance(e, r, 1.0);
    CHECK((r->n_done == r->n_seqs) == ends && (beam_count(r, LLM__BEAM_LIVE) == 2) == !ends);
    for (int i = 0; i < 2 && ends; i++) /* -0.5 over 6 tokens is better than -0.6 over 7 */
        CHECK(!llm_request_get_output(r, i, &out) && out.n_token_ids == 1 && out.token_ids[0] == (i ? FAKE_STOP : FAKE_EOS) &&
              out.finish == LLM_FINISH_STOP && beam_near(out.cum_logprob, i ? -0.6f : -0.5));
    r->sampling.n_stop_token_ids = 0;
    llm_request_free(r);
    fake_close(&f);
}

/* An answer of the longest length ends as such; the pool keeps the best of its width, on a tie the earlier. */
static void beam_full(void) {
    static const beam_next next[4] = {{3, -1.0f}, {4, -2.0f}, {5, -2.0f}, {6, -3.0f}};
    fake_device f;
    llm_output out;
    llm_engine *e = fake_open(&f, fake_params(32, 4, 4, 16, 40));
    llm_request *r = beam_begin(e, 2, 0, 1.0f, 1);
    beam_give(r->seq, next, 4);
    llm__beams_advance(e, r, 1.0);
    CHECK(r->n_done == r->n_seqs && llm__kv_room(&e->kv) == 32 && !e->running.n);
    for (int i = 0; i < 2; i++)
        CHECK(!llm_request_get_output(r, i, &out) && out.finish == LLM_FINISH_LENGTH && out.n_token_ids == 1 &&
              out.token_ids[0] == next[i].id);
    CHECK(beam_count(r, LLM__BEAM_POOL) == 2);
    llm_request_free(r);
    fake_close(&f);
}

/* Of two answers of one score the earlier stays, wherever its sequence stands: 22 of -0.5 over 7 tokens and an EOS of -0.6 over 6 come
 * first, 21 of -0.63 over 7 replaces the EOS, and 20 takes the EOS's sequence in vain. */
static void beam_tie(void) {
    static const beam_next next[4] = {{22, -0.5f}, {FAKE_EOS, -0.6f}, {21, -0.63f}, {20, -0.63f}};
    int32_t stop[3] = {22, 21, 20};
    fake_device f;
    llm_engine *e = fake_open(&f, fake_params(32, 4, 4, 16, 40));
    llm_request *r = beam_begin(e, 2, 0, 1.0f, 8);
    r->sampling.stop_token_ids = stop, r->sampling.n_stop_token_ids = 3;
    beam_give(r->seq, next, 4);
    llm__beams_advance(e, r, 1.0);
    CHECK(r->n_done == r->n_seqs && beam_count(r, LLM__BEAM_POOL) == 2);
    CHECK(beam_find(r, LLM__BEAM_POOL, stop, 1) && beam_find(r, LLM__BEAM_POOL, stop + 1, 1));
    r->sampling.n_stop_token_ids = 0;
    llm_request_free(r);
    fake_close(&f);
}

TEST_GROUP(beam) {
    beam_tree();
    beam_stop(1, -0.7f, 1);
    beam_stop(0, -0.7f, 1);  /* -0.7 / 7 = -0.1 is worse than the pool's worst, -0.6 / 7 */
    beam_stop(0, -0.55f, 0); /* -0.55 / 7 is better */
    beam_stop(2, -0.7f, 0);  /* -0.7 / 40 would be, too */
    beam_full();
    beam_tie();
}
