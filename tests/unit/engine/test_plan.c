/* From the queue to a step and back: orders of sequences against sorting, the step that scheduler.h draws, how sequences and requests end;
 * over the fake device. */
#include "../fake.h"
#include "engine/apply.h"
#include "engine/ends.h"
#include "engine/plan.h"
#include "engine/request.h"
#include "engine/step.h"
#include "engine/stepping.h"
#include "vision/fit.h"

static uint64_t plan_seed = 1;
static int32_t plan_random(int32_t n) { return (int32_t)(llm__mix(plan_seed++) % (uint64_t)n); }

static llm_request *plan_submit(llm_engine *e, const int32_t *ids, int32_t n, llm_request_config *c) {
    llm_request_config plain = LLM__ZERO;
    llm_request *r = NULL;
    if (!c) c = &plain;
    c->prompt_ids = ids, c->n_prompt_ids = (size_t)n;
    if (!c->sampling.max_tokens) c->sampling.max_tokens = 8;
    c->sampling.ignore_eos = 1;
    CHECK(!llm_request_submit(e, c, &r));
    return r;
}

/* ---- orders ---- */

static int plan_order(const void *a, const void *b) {
    const llm__seq *x = *(llm__seq *const *)a, *y = *(llm__seq *const *)b;
    const int64_t p[3] = {x->request->priority, (int64_t)x->request->arrival, x->index},
                  q[3] = {y->request->priority, (int64_t)y->request->arrival, y->index};
    for (int i = 0; i < 3; i++)
        if (p[i] != q[i]) return p[i] < q[i] ? -1 : 1;
    return 0;
}

/* Sequences come and go at random: the list and the array stay in order of priority, arrival and index, and hold who is in them. */
static void plan_lists(void) {
    enum { N = 30 };
    static llm_request request[N];
    static llm__seq seq[N];
    llm__seq *in[2][N], *running[N];
    int32_t n[2] = {0, 0}, wrong = 0;
    llm_engine e;
    memset(&e, 0, sizeof e);
    memset(seq, 0, sizeof seq);
    e.running.seq = running;
    for (int i = 0; i < N; i++) seq[i].request = &request[i / 3], seq[i].index = i % 3;
    for (int i = 0; i < N; i++) request[i].priority = plan_random(3), request[i].arrival = (uint64_t)plan_random(1000) * 64 + (uint64_t)i;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            llm__seq *a = &seq[i], *b = &seq[k];
            wrong += llm__seq_before(a, b) != (plan_order(&a, &b) < 0);
        }
    for (int round = 0; round < 3000; round++) {
        llm__seq *s = &seq[plan_random(N)];
        const int list = s->state == LLM__SEQ_RUNNING || (s->state == LLM__SEQ_HELD && plan_random(2)), taken = s->state != LLM__SEQ_HELD;
        if (!taken) in[list][n[list]++] = s, (list ? llm__running_put : llm__queue_put)(&e, s);
        for (int32_t i = 0; taken && i < n[list]; i++)
            if (in[list][i] == s) in[list][i--] = in[list][--n[list]];
        if (taken) (list ? llm__running_take : llm__queue_take)(&e, s);
        if (taken && !list) s->state = LLM__SEQ_HELD; /* whoever takes it out says what it is now */
        wrong += s->state != (taken ? LLM__SEQ_HELD : list ? LLM__SEQ_RUNNING : LLM__SEQ_WAITING);
        for (int k = 0; k < 2; k++) qsort(in[k], (size_t)n[k], sizeof in[k][0], plan_order);
        const llm__seq *at = e.waiting.first, *back = e.waiting.last;
        for (int32_t i = 0; i < n[0]; i++, at = at ? at->next : NULL, back = back ? back->prev : NULL)
            wrong += at != in[0][i] || back != in[0][n[0] - 1 - i];
        wrong += at || back || e.waiting.n != n[0] || e.running.n != n[1] || memcmp(running, in[1], (size_t)n[1] * sizeof *running);
    }
    CHECK(wrong == 0);
}

/* ---- a step ---- */

/* The step that scheduler.h draws: two sequences that decode at positions 41 and 507, a prompt of which 6 tokens fit a budget of 8 rows. */
static void plan_step(void) {
    static const int32_t seq_of_row[8] = {0, 1, 2, 2, 2, 2, 2, 2}, positions[8] = {41, 507, 0, 1, 2, 3, 4, 5}, begin[4] = {0, 1, 2, 8},
                         len[3] = {42, 508, 6};
    int32_t ids[508];
    fake_device f;
    llm_step step;
    llm_engine *e = fake_open(&f, fake_params(64, 16, 4, 8, 600));
    for (int i = 0; i < 508; i++) ids[i] = i % 20;
    llm_request_config long_answer = LLM__ZERO;
    long_answer.sampling.max_tokens = 100;
    llm_request *a = plan_submit(e, ids, 41, &long_answer), *b = plan_submit(e, ids + 1, 507, NULL);
    while (b->seq->n_ids == 507) CHECK(!llm_engine_step(e, NULL)); /* a has said some by then */
    a->seq->n_ids = 42, a->seq->n_fed = a->seq->n_computed = 41;
    llm_request *c = plan_submit(e, ids + 2, 20, NULL);
    CHECK(!llm__take_inbox(e) && e->waiting.n == 1 && c->fresh && e->inbox.n_fresh == 1);
    llm__flight *p = &e->flights.ring[e->flights.oldest];
    llm__plan(e, p);
    CHECK(p->n == 3 && p->n_rows == 8 && p->n_out == 2 && p->entry[2].seq == c->seq && c->seq->n_chunk == 6);
    CHECK(!c->fresh && e->inbox.n_fresh == 0 && c->seq->state == LLM__SEQ_RUNNING);
    llm__leave_queue(e, c); /* it has left */
    CHECK(e->inbox.n_fresh == 0);
    llm__fill_step(e, p, &step);
    CHECK(step.shape.n_rows == 8 && step.shape.n_seqs == 3 && step.shape.n_out == 2 && !step.shape.lora && !step.token_from && !step.draws);
    CHECK(!memcmp(step.seq_of_row, seq_of_row, sizeof seq_of_row) && !memcmp(step.positions, positions, sizeof positions));
    CHECK(!memcmp(step.seq_begin, begin, sizeof begin) && !memcmp(step.seq_len, len, sizeof len) && step.out_rows[0] == 0 &&
          step.out_rows[1] == 1);
    CHECK(step.tokens[0] == a->seq->ids[41] && step.tokens[1] == b->seq->ids[507] && step.tokens[7] == ids[7] &&
          step.page_stride == e->max_pages);
    for (int k = 0; k < 3; k++)
        CHECK(!memcmp(step.pages + k * step.page_stride, p->entry[k].seq->pages.id, (size_t)llm__pages_of(e, len[k]) * sizeof(int32_t)));
    CHECK(p->n_jobs == 2 && p->jobs[0].seq == a->seq && p->jobs[1].seq == b->seq && p->jobs[1].out_row == 1 && p->jobs[1].scored == -1);
    CHECK(p->n_prompt_rows == 6 && c->seq->n_fed == 6 && !c->seq->n_computed);
    const int64_t said = e->count.generation_tokens, read = e->count.prompt_tokens;
    CHECK(!e->p.driver.forward(e, &step) && !f.table.wait(e->ctx));
    for (int k = 0; k < 3; k++) p->entry[k].seq->n_flight++, p->entry[k].seq->request->n_flight++;
    llm__apply(e, p);
    CHECK(a->seq->n_ids == 43 && b->seq->n_ids == 509 && c->seq->n_ids == 20 && c->seq->n_computed == 6 && !c->n_flight);
    CHECK(e->count.generation_tokens == said + 2 && e->count.prompt_tokens == read + 6);
    llm_request_free(a), llm_request_free(b), llm_request_free(c);
    fake_close(&f);
}

/* A picture whose tokens are computed together gets its step, beside others that decode: where not all fit beside it some of them wait once;
 * and a budget of time that has room for a few rows is exceeded. */
static void plan_picture(int32_t n_decode, int32_t max_rows, double seconds) {
    int32_t ids[30] = {0}, parts = 0, waited = 0;
    fake_device f;
    llm_media media = LLM__ZERO;
    llm__picture_use use = {&media, 0};
    llm__sight_run run = {5, 12, 0, 0};
    llm_request *r[8];
    llm_engine *e = fake_open(&f, fake_params(128, 4, 8, max_rows, 100));
    llm_request_config c = LLM__ZERO;
    c.sampling.max_tokens = 60;
    e->sight.both_ways = media.ready = 1;
    for (int i = 0; i < n_decode; i++) ids[0] = i, r[i] = plan_submit(e, ids, 9, &c);
    for (int i = 0; i < 6; i++) CHECK(!llm_engine_step(e, NULL));
    llm_request *picture = plan_submit(e, ids, 20, &c);
    picture->sight.use = &use, picture->sight.run = &run, picture->sight.n_runs = 1;
    for (int i = 0; i < 12; i++) {
        int64_t said = e->count.generation_tokens;
        e->budget.seconds = seconds, e->budget.row = e->budget.piece = seconds;
        CHECK(!llm_engine_step(e, NULL));
        parts += picture->seq->n_fed > 5 && picture->seq->n_fed < 17;
        said = e->count.generation_tokens - said;
        waited += said < n_decode;
    }
    if (!CHECK(picture->seq->n_ids > 20 && !parts && waited == (n_decode && 12 + n_decode >= max_rows)))
        printf("    %d beside it, %d rows, %g s: %d parts, %d steps with less\n", n_decode, max_rows, seconds, parts, waited);
    picture->sight.n_runs = 0;
    for (int i = 0; i < n_decode; i++) llm_request_free(r[i]);
    llm_request_free(picture);
    fake_close(&f);
}

/* A picture behind a longer prompt waits for it as any prompt does, and answers go on beside both. */
static void plan_picture_behind(void) {
    int32_t ids[80] = {0}, waited = 0;
    fake_device f;
    llm_media media = LLM__ZERO;
    llm__picture_use use = {&media, 0};
    llm__sight_run run = {0, 12, 0, 0};
    llm_engine *e = fake_open(&f, fake_params(128, 4, 8, 14, 100));
    llm_request_config c = LLM__ZERO;
    c.sampling.max_tokens = 60;
    e->sight.both_ways = media.ready = 1;
    llm_request *answers[3], *prompt, *picture;
    for (int i = 0; i < 3; i++) ids[0] = i, answers[i] = plan_submit(e, ids, 9, &c);
    for (int i = 0; i < 6; i++) CHECK(!llm_engine_step(e, NULL));
    ids[0] = 5, prompt = plan_submit(e, ids, 80, &c);
    ids[0] = 6, picture = plan_submit(e, ids, 14, &c);
    picture->sight.use = &use, picture->sight.run = &run, picture->sight.n_runs = 1;
    for (int i = 0; i < 12; i++) {
        int64_t said = e->count.generation_tokens;
        CHECK(!llm_engine_step(e, NULL));
        waited += e->count.generation_tokens - said < 3;
    }
    CHECK(prompt->seq->n_ids > 80 && picture->seq->n_ids > 14 && waited == 1);
    picture->sight.n_runs = 0;
    for (int i = 0; i < 3; i++) llm_request_free(answers[i]);
    llm_request_free(prompt), llm_request_free(picture);
    fake_close(&f);
}

/* Of a pipeline as many steps are under way as it has stages: each has its share of the answers, and none one whose token is not there yet;
 * chunks of prompts follow one another. */
static void plan_pipeline(int stages, int n, int32_t prompt) {
    int32_t ids[40] = {0}, most = 0, full = 0, chunks = 0;
    fake_device f;
    llm_request *r[8];
    llm_request_config c = LLM__ZERO;
    llm__engine_params params = fake_params(64, 4, 8, 8, 60);
    params.c.pipeline_parallel_size = stages, params.lag = stages - 1;
    llm_engine *e = fake_open(&f, params);
    c.sampling.max_tokens = 20;
    for (int i = 0; i < n; i++) ids[0] = i, r[i] = plan_submit(e, ids, prompt, &c);
    for (int busy = 1; busy;) {
        int32_t seen = 0, told = 0;
        CHECK(!llm_engine_step(e, &busy));
        for (int32_t i = 0; i < e->flights.n; i++) seen += e->flights.ring[(e->flights.oldest + i) % e->flights.size].n;
        for (int i = 0; i < n; i++) {
            const llm__seq *s = r[i]->seq;
            told += s->n_ids > s->n_prompt && s->state == LLM__SEQ_RUNNING;
            chunks = LLM__MAX(chunks, s->n_flight);
            CHECK(!s->n_ahead && (s->n_ids == s->n_prompt || s->n_flight <= 1));
        }
        most = LLM__MAX(most, e->flights.n);
        if (told == n) full += e->flights.n == stages - 1 && seen >= n / stages * (stages - 1) && seen < n;
    }
    if (!CHECK(most == stages - 1 && !f.placeholders && (n < stages || full > 20) && (prompt < 16 || chunks >= stages - 1)))
        printf("    %d stages, %d answers: %d in flight, %d full, %d chunks\n", stages, n, most, full, chunks);
    for (int i = 0; i < n; i++) llm_request_free(r[i]);
    fake_close(&f);
}

/* A row and a sequence of a step, and jobs, as they are written down. */
static void plan_rows(void) {
    int32_t ids[20] = {0};
    fake_device f;
    llm_step step;
    llm_engine *e = fake_open(&f, fake_params(8, 4, 3, 16, 28));
    llm_request *r = plan_submit(e, ids, 9, NULL);
    llm__seq *s = r->seq;
    for (int k = 0; k < 3; k++) s->pages.id[k] = 5 - k;
    s->pages.n = 3;
    r->rope.variant = 1, r->rope.base = 2.5f;
    llm__step_row(e, 4, 2, 8, 17, 3);
    llm__step_seq(e, 2, s, 4, 9);
    llm__step_over(e, &step, 5, 3, 1);
    CHECK(step.tokens[4] == 17 && step.positions[4] == 8 && step.seq_of_row[4] == 2 && e->step.token_from[4] == 3);
    CHECK(step.seq_begin[2] == 4 && step.seq_begin[3] == 5 && step.seq_len[2] == 9 && step.seq_rope[2] == 1 &&
          step.seq_rope_base[2] == 2.5f);
    CHECK(step.seq_lora[2] == -1 && step.n_position_rows == 1 &&
          !memcmp(step.pages + 2 * step.page_stride, s->pages.id, 3 * sizeof(int32_t)));
    llm__flight *p = &e->flights.ring[0];
    p->n_jobs = p->pools = 0;
    const llm__job *job = llm__add_job(p, s, 6, 7);
    CHECK(p->n_jobs == 1 && job == p->jobs && job->seq == s && job->out_row == 6 && job->scored == 7 && !job->drawn && !p->pools);
    r->pooling.kind = LLM_POOLING_MEAN;
    CHECK(llm__add_job(p, s, 0, -1) == p->jobs + 1 && p->pools);
    r->pooling.kind = LLM_POOLING_NONE, s->pages.n = 0;
    llm_request_free(r);
    fake_close(&f);
}

/* ---- stop strings ---- */

/* All texts of a and b up to 9 characters through the automata of all stop strings up to 4: the length of the longest prefix that the text
 * ends in. */
static void plan_stops(void) {
    int wrong = 0;
    for (int32_t len = 1; len <= 4; len++)
        for (int code = 0; code < 1 << len; code++) {
            char word[8];
            int32_t border[8];
            llm__stop stop = {word, len, border};
            for (int32_t i = 0; i < len; i++) word[i] = (char)('a' + (code >> i & 1));
            word[len] = 0;
            memset(border, 0, sizeof border);
            for (int32_t i = 1; i < len; i++) border[i] = llm__stop_feed(&stop, border[i - 1], word[i]);
            for (int text = 0; text < 1 << 9; text++) {
                char said[10];
                int32_t state = 0;
                for (int32_t n = 0; n < 9; n++) {
                    int32_t want = LLM__MIN(len, n + 1);
                    said[n] = (char)('a' + (text >> n & 1));
                    while (want && memcmp(said + n + 1 - want, word, (size_t)want)) want--;
                    state = llm__stop_feed(&stop, state, said[n]);
                    wrong += state != want;
                }
            }
        }
    CHECK(wrong == 0);
}

/* Which token ends an answer: EOS and stop ids, not before min_tokens, EOS not when it is ignored. */
static void plan_is_eos(void) {
    static const int32_t ids[] = {3, 7, 7, -2};
    static const int32_t eos[] = {FAKE_EOS, 5};
    llm_engine e;
    llm_request r;
    memset(&e, 0, sizeof e);
    memset(&r, 0, sizeof r);
    CHECK(llm__has_id(ids, 4, 7) && llm__has_id(ids, 4, -2) && llm__has_id(ids, 1, 3) && !llm__has_id(ids, 1, 7) &&
          !llm__has_id(ids, 0, 3));
    e.p.eos = eos, e.p.n_eos = 2;
    for (int32_t min = 0; min < 4; min++)
        for (int32_t n = 1; n < 5; n++)
            for (int32_t id = 0; id < FAKE_VOCAB; id++)
                for (int ignore = 0; ignore < 2; ignore++) {
                    r.sampling.min_tokens = min, r.sampling.ignore_eos = ignore;
                    CHECK(llm__is_eos(&e, &r, n, id) == (n >= min && !ignore && (id == FAKE_EOS || id == 5)));
                }
    r.sampling.grammar = (llm_grammar *)&e; /* it lets an early EOS through where its text is complete */
    CHECK(r.sampling.ignore_eos && !llm__is_eos(&e, &r, 1, FAKE_EOS));
    r.sampling.ignore_eos = 0;
    CHECK(llm__is_eos(&e, &r, 1, FAKE_EOS) && !llm__is_eos(&e, &r, 1, FAKE_EOS + 1));
}

/* ---- ends ---- */

static int plan_told;
static void plan_news(void *user, llm_request *r) { (void)r, ++*(int *)user; }

/* A sequence ends in whatever state it is, once; its pages go back, but not while a step that names them is in flight. */
static void plan_finish(int state, int in_flight) {
    int32_t ids[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    fake_device f;
    llm_request_config c = LLM__ZERO;
    llm_engine *e = fake_open(&f, fake_params(8, 4, 3, 16, 28));
    plan_told = 0;
    c.on_news = plan_news, c.user = &plan_told;
    llm_request *r = plan_submit(e, ids, 9, &c);
    llm__seq *s = r->seq;
    llm__take_inbox(e);
    if (state != LLM__SEQ_WAITING) llm__queue_take(e, s), s->state = LLM__SEQ_HELD;
    if (state == LLM__SEQ_RUNNING) CHECK(llm__seq_place(e, s) && (llm__running_put(e, s), llm__kv_room(&e->kv) == 5));
    s->n_flight = r->n_flight = in_flight;
    for (int i = 0; i < 2; i++) llm__seq_finish(e, s, i ? LLM_FINISH_ERROR : LLM_FINISH_CANCELLED);
    CHECK(s->state == LLM__SEQ_DONE && s->output.finish == LLM_FINISH_CANCELLED && r->n_done == 1 && llm__request_ended(r));
    CHECK(!e->waiting.n && !e->running.n && llm__kv_room(&e->kv) == (state == LLM__SEQ_RUNNING && in_flight ? 5 : 8));
    CHECK(e->news == r && !r->news_next && r->in_news && r->metrics.finish_time >= r->metrics.arrival_time);
    for (int i = 0; i < 2; i++) llm__tell_news(e), CHECK(plan_told == 1 && !e->news);
    CHECK(e->live == (in_flight ? r : NULL) && r->refs == 1 + in_flight); /* a step still names it */
    if (in_flight) {
        s->n_flight = r->n_flight = 0;
        llm__seq_release(e, s);
        llm__note_news(e, r), llm__note_news(e, r);
        CHECK(e->news == r && !r->news_next);
        llm__tell_news(e);
        CHECK(plan_told == 1 && !e->live && r->refs == 1);
    }
    llm_request_free(r);
    fake_close(&f);
}

/* All of a request's sequences at once, with a sentence; of beams nothing is shown. */
static void plan_request_end(void) {
    int32_t ids[5] = {1, 2, 3, 4, 5};
    fake_device f;
    llm_output out;
    llm_engine *e = fake_open(&f, fake_params(16, 4, 4, 16, 28));
    for (int beams = 0; beams < 2; beams++) {
        llm_request_config c = LLM__ZERO;
        c.sampling.n = c.sampling.best_of = 2, c.sampling.use_beam_search = beams, c.sampling.temperature = beams ? 0.0f : 1.0f;
        llm_request *r = plan_submit(e, ids, 5, &c);
        for (int i = 0; i < 3; i++) CHECK(!llm_engine_step(e, NULL));
        CHECK(r->seq[0].n_ids > 5 || beams);
        llm__request_end(e, r, LLM_FINISH_ERROR, "the device is gone");
        llm__request_end(e, r, LLM_FINISH_CANCELLED, "too late");
        CHECK(r->n_done == r->n_seqs && !strcmp(llm_request_error(r), "the device is gone"));
        for (int i = 0; i < 2; i++)
            CHECK(!llm_request_get_output(r, i, &out) && out.finish == LLM_FINISH_ERROR && (out.n_token_ids == 0) == beams &&
                  (!beams || !out.text_len));
        for (int32_t i = 0; i < r->n_seqs; i++) CHECK((r->seq[i].n_ids == 5) || !beams);
        llm__tell_news(e);
        CHECK(!e->live && llm__kv_room(&e->kv) == 16);
        llm_request_free(r);
    }
    fake_close(&f);
}

/* What an answer has said is taken back: its ids and text, not its prompt. */
static void plan_unsay(void) {
    char text[8] = "said";
    llm__seq s;
    memset(&s, 0, sizeof s);
    s.n_prompt = 4, s.n_ids = 9, s.output.text.data = text, s.output.text.len = 4;
    llm__seq_unsay(&s);
    CHECK(s.n_ids == 4 && s.output.text.len == 0 && !text[0]);
}

/* Deadlines by the device's clock: the earliest is kept, who is late ends in the queue and in its answer; a cancel is told by the inbox. */
static void plan_sweep(void) {
    int32_t ids[4] = {1, 2, 3, 4};
    fake_device f;
    llm_request *r[3];
    llm_engine *e = fake_open(&f, fake_params(16, 4, 4, 16, 28));
    for (int i = 0; i < 3; i++) {
        llm_request_config c = LLM__ZERO;
        c.deadline_s = i == 2 ? 0 : 5 - 4 * i;
        r[i] = plan_submit(e, ids, 4, &c);
    }
    CHECK(!llm__take_inbox(e) && e->waiting.n == 3 && e->waiting.first->request == r[0]); /* in order of arrival */
    CHECK(e->next_deadline == r[1]->deadline && r[2]->deadline == 0);
    e->now = r[1]->deadline;
    llm__sweep(e);
    CHECK(r[1]->seq->output.finish == LLM_FINISH_CANCELLED && !r[0]->n_done && !r[2]->n_done && e->waiting.n == 2);
    llm__sweep(e);
    CHECK(e->next_deadline == r[0]->deadline);
    llm_request_cancel(r[2]);
    CHECK(llm__take_inbox(e) == 1 && llm__take_inbox(e) == 0);
    llm__sweep(e);
    CHECK(r[2]->n_done && !r[0]->n_done);
    for (int i = 0; i < 3; i++) llm_request_free(r[i]);
    fake_close(&f);
}

/* A request has two owners, and the last to leave destroys it: in either order, and where it was never queued. */
static void plan_owners(void) {
    int32_t ids[4] = {1, 2, 3, 4};
    fake_device f;
    llm_engine *e = fake_open(&f, fake_params(16, 4, 4, 16, 28));
    llm_request *r = plan_submit(e, ids, 4, NULL);
    llm__take_inbox(e);
    llm__request_end(e, r, LLM_FINISH_CANCELLED, NULL);
    CHECK(r->refs == 2);
    llm__tell_news(e);
    CHECK(r->refs == 1 && llm_request_done(r) == 0);
    llm__request_unref(r); /* the caller's */
    r = LLM__NEW(llm_request, 1);
    if (CHECK(r != NULL)) {
        pthread_mutex_init(&r->mutex, NULL);
        r->lora = -1, r->engine = e, r->n_seqs = 3; /* it stopped before it had sequences */
        llm__request_destroy(r);
    }
    fake_close(&f);
}

TEST_GROUP(plan) {
    plan_lists();
    plan_step();
    plan_rows();
    for (int stages = 2; stages < 5; stages++)
        plan_pipeline(stages, 8, 1), plan_pipeline(stages, 8, 5), plan_pipeline(stages, stages, 37), plan_pipeline(stages, 1, 37);
    for (int slow = 0; slow < 2; slow++)
        for (int n = 0; n < 8; n += 3)
            for (int rows = 12; rows < 40; rows += 5) plan_picture(n, rows, slow ? 1e-4 : 0);
    plan_picture_behind();
    plan_stops();
    plan_is_eos();
    for (int state = LLM__SEQ_HELD; state <= LLM__SEQ_RUNNING; state++)
        for (int in_flight = 0; in_flight < 2; in_flight++) plan_finish(state, in_flight);
    plan_request_end();
    plan_unsay();
    plan_sweep();
    plan_owners();
}
