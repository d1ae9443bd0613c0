#include "engine/stepping.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/model.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/threads.h"
#include "grammar/grammar.h"
#include "engine/scheduler.h"
#include "engine/sight.h"
#include "engine/plan.h"
#include "engine/step.h"
#include "engine/ends.h"
#include "engine/results.h"
#include "engine/apply.h"
#include "engine/engine.h"
#include "engine/link.h"
#include "engine/engine_open.h"

/* Fails the requests of a step that the device refused or broke off. Others, and the engine, go on: their pages were not
 * written, for a step writes only pages of its own sequences. */
static void llm__flight_fail(llm_engine *e, llm__flight *f) {
    char why[256];
    snprintf(why, sizeof why, "%.250s", llm_last_error());
    for (int32_t i = 0; i < f->n; i++) llm__request_end(e, f->entry[i].seq->request, LLM_FINISH_ERROR, why);
}

/* Hands a planned step to the device. From here to llm__flight_end its sequences keep their pages. A step that is refused was never in
 * flight and ends its requests at once. */
static llm_result llm__flight_begin(llm_engine *e, llm__flight *f) {
    llm_step step;
    llm__fill_step(e, f, &step);
    f->begin = e->p.driver.now(e);
    llm_result r = e->p.driver.forward(e, &step);
    f->seconds = e->p.driver.now(e) - f->begin;
    f->longest = 0;
    e->count.steps++;
    if (r) llm__flight_fail(e, f);
    for (int32_t i = 0; i < f->n && !r; i++) {
        f->entry[i].seq->n_flight++;
        f->entry[i].seq->request->n_flight++;
    }
    e->flights.n += !r;
    return r;
}

/* One of the threads that make masks while the device computes: those that the rows of the oldest step in flight will ask for, of every
 * n_workers-th job. They depend on tokens that are there and on drafts, not on logits, so llm__run_job finds them made. */
static void llm__flight_masks(void *arg, int worker) {
    llm_engine *e = (llm_engine *)arg;
    const llm__flight *f = &e->flights.ring[e->flights.oldest];
    for (int32_t i = worker; i < f->n_jobs; i += e->p.c.n_threads) {
        const llm__seq *s = f->jobs[i].seq;
        int can_end;
        if (!s->matcher || s->state == LLM__SEQ_DONE || f->jobs[i].scored >= 0) continue;
        for (int32_t k = 0; k <= s->draft.n; k++) (void)llm__matcher_mask(s->matcher, s->draft.ids, k, NULL, 0, 0, &can_end);
    }
}

/* 1 if somebody still waits for something in this step. */
static int llm__flight_wanted(const llm__flight *f) {
    for (int32_t i = 0; i < f->n; i++)
        if (f->entry[i].seq->state != LLM__SEQ_DONE) return 1;
    return 0;
}

/* Works on the oldest step in flight until a time. 1: it can be ended: it is computed, nobody wants it any more, or the device computes by
 * itself. */
static int llm__flight_work(llm_engine *e, double until) {
    llm__flight *f = &e->flights.ring[e->flights.oldest];
    if (!e->backend->work || !llm__flight_wanted(f)) return 1;
    const double began = e->p.driver.now(e);
    int done = e->backend->work(e->ctx, until, &f->longest);
    f->seconds += e->p.driver.now(e) - began;
    return done;
}

/* Waits for the oldest step in flight and applies it. Where the device computes beside the host (lag 1) the wait is used for masks. Of a
 * step that failed, or that a cancel has made useless before it was computed, only the counts of what is in flight are left to be settled,
 * for its requests have ended. */
static llm_result llm__flight_end(llm_engine *e) {
    llm__flight *f = &e->flights.ring[e->flights.oldest];
    f->dropped = e->backend->work && !llm__flight_wanted(f);
    if (e->p.lag) llm__on_threads(e, llm__flight_masks, f->n_jobs);
    const double began = e->backend->work ? e->p.driver.now(e) - f->seconds : f->begin;
    llm_result r = f->dropped ? LLM_OK : e->backend->wait(e->ctx);
    f->seconds = e->p.driver.now(e) - began;
    if (f->dropped) f->n_jobs = 0;
    e->count.model_seconds += f->seconds;
    e->flights.oldest = (e->flights.oldest + 1) % e->flights.size;
    e->flights.n--;
    if (r) llm__flight_fail(e, f);
    llm__apply(e, f);
    return r;
}

/* Whatever fails, everything opened so far is closed again by the one function that closes engines. */
LLM_API llm_result llm_engine_open(const llm_model *model, const llm_engine_config *cfg, llm_engine **out) {
    llm_engine *e = llm__engine_alloc();
    llm_engine_config *c = e ? &e->p.c : NULL;
    llm_estimate estimate;
    if (e && cfg) *c = *cfg;
    llm_result r = e ? llm__engine_resolve(model, c) : llm__nomem();
    if (!r) r = llm__engine_backend(c, &e->backend);
    if (!r) r = llm__engine_device(e, c);
    if (!r && c->nodes && e->backend == llm_backend_cpu())
        r = llm__error(LLM_ERR_UNSUPPORTED, "nodes: the CPU computes in one process, device cuda was expected");
    if (!r && c->trace && e->backend != llm_backend_cpu())
        r = llm__error(LLM_ERR_UNSUPPORTED, "trace: of backend %s; it is for the CPU", e->backend->name);
    if (!r && e->backend == llm_backend_cpu()) r = llm__engine_plan(model, c, &estimate, &e->p.planned_pages);
    if (!r) r = llm__engine_assemble(e, model, c);
    if (!r && c->lora) r = llm_lora_load(e, c->lora, c->lora);
    if (!r && c->lora) e->adapters.own = 0;
    if (r && c && c->nodes) llm__link_fail(c->nodes, r, llm_last_error()); /* the others wait for us */
    if (r) llm__engine_destroy(e);
    *out = r ? NULL : e;
    return r;
}

/* Ends what is live, waits for the device, tells callers, then gives everything back. Requests that their callers still
 * hold are to be freed before. */
LLM_API void llm_engine_close(llm_engine *e) {
    if (!e) return;
    llm__take_inbox(e);
    for (llm_request *r = e->live; r; r = r->next) llm__request_end(e, r, LLM_FINISH_CANCELLED, NULL);
    while (e->flights.n) llm__flight_end(e);
    llm__tell_news(e);
    llm__engine_destroy(e);
}

/* How many sequences run and wait with each adapter. The caller holds the engine's mutex. */
static void llm__engine_count_loras(llm_engine *e) {
    for (int32_t i = 0; i < e->p.n_loras; i++) e->adapters.slot[i].n_running = e->adapters.slot[i].n_waiting = 0;
    for (int32_t i = 0; i < e->running.n && e->p.n_loras; i++)
        if (e->running.seq[i]->request->lora >= 0) e->adapters.slot[e->running.seq[i]->request->lora].n_running++;
    for (const llm__seq *s = e->p.n_loras ? e->waiting.first : NULL; s; s = s->next)
        if (s->request->lora >= 0) e->adapters.slot[s->request->lora].n_waiting++;
}

/* Publishes the figures of this step to other threads. Returns 1 if something is left to do. Requests that are still in
 * the inbox count as waiting. */
static int llm__engine_count(llm_engine *e) {
    e->count.n_running = e->running.n;
    e->count.free_blocks = e->kv.n_free;
    e->count.cached_blocks = e->kv.n_cached;
    LLM__LOCKED(&e->mutex);
    e->count.n_waiting = e->waiting.n;
    for (const llm_request *r = e->inbox.first; r; r = r->inbox_next) e->count.n_waiting++;
    e->count.media_queries = e->sight.n_queries;
    e->count.media_hits = e->sight.n_hits;
    e->count.media_bytes = (int64_t)e->sight.bytes;
    e->stats = e->count;
    llm__engine_count_loras(e);
    return e->live || e->inbox.first;
}

/* 1 if a step is in flight on which the engine itself works, and which is not done. */
static int llm__paused(const llm_engine *e) { return e->backend->work && e->flights.n; }

/* One turn: take in, end what is to end, plan and begin a step, apply the one that is `lag` steps older, tell. Nothing
 * here allocates. With lag 0:  plan t, begin t, work on t, apply t;  with lag 1:  plan t + 1, begin t + 1, wait for t,
 * apply t, so the device finds its next step when it ends one. Where nothing can be planned, the step in flight is
 * applied at once. A step on which the engine works is left where it is when the time is over, and the next turn goes on with it; what it
 * gives is the same. An error is that of a step; its requests have ended with it, the engine goes on. */
static llm_result llm__engine_turn(llm_engine *e, double until, int *left) {
    llm__flight *f = &e->flights.ring[(e->flights.oldest + e->flights.n) % e->flights.size];
    llm_result r = LLM_OK, r2 = LLM_OK;
    llm__turn_take(e);
    e->now = e->p.driver.now(e);
    if (llm__take_inbox(e) || (e->next_deadline > 0 && e->now >= e->next_deadline)) llm__sweep(e);
    int begins = !llm__paused(e);
    if (begins) llm__sight_work(e, until);
    if (begins) llm__plan(e, f);
    if (begins && f->n) r = llm__flight_begin(e, f);
    int stay = f->n ? e->p.lag : e->flights.n - 1;    /* in flight */
    if (!begins || r || (f->n && f->pools)) stay = 0; /* hidden states can be read of the latest step only */
    while (e->flights.n > LLM__MAX(stay, 0) && llm__flight_work(e, until)) {
        llm_result ended = llm__flight_end(e);
        r2 = r2 ? r2 : ended;
    }
    llm__engine_count(e); /* who is told of this step finds it in the figures */
    llm__tell_news(e);
    e->count.step_seconds += e->p.driver.now(e) - e->now;
    *left = llm__engine_count(e);
    llm__turn_give(e);
    return r ? r : r2;
}

/* A step in turns of 10 ms, between which cancels, deadlines and who waits for a turn are heard. */
LLM_API llm_result llm_engine_step(llm_engine *e, int *busy) {
    llm_result r;
    int left;
    do r = llm__engine_turn(e, e->p.driver.now(e) + 0.01, &left);
    while (!r && llm__paused(e));
    if (busy) *busy = left;
    return r;
}

LLM_API llm_result llm_engine_step_for(llm_engine *e, double ms, int *busy) {
    const double begin = e->p.driver.now(e), end = begin + LLM__MAX(ms, 0) / 1000;
    llm_result r;
    int left;
    e->budget.seconds = LLM__MAX(ms, 1e-3) / 1000;
    do r = llm__engine_turn(e, end, &left);
    while (!r && left && e->p.driver.now(e) < end);
    e->budget.seconds = 0;
    if (busy) *busy = left;
    return r;
}

/* Sleeps until a request or a cancel arrives. */
LLM_API void llm_engine_wait(llm_engine *e, double timeout_s) {
    const struct timespec end = llm__timed_end(timeout_s);
    LLM__LOCKED(&e->mutex);
    while (!e->inbox.first && !e->inbox.some_cancelled)
        if (pthread_cond_timedwait(&e->inbox.arrived, &e->mutex, &end)) break;
}

LLM__PRIVATE int llm__request_ended(llm_request *r) {
    LLM__LOCKED(&r->mutex);
    return r->n_done == r->n_seqs;
}

/* Steps for this request; others on the engine advance with it. Its own failure is an error, as is the last step's. */
LLM_API llm_result llm_request_run(llm_engine *e, llm_request *r) {
    llm_result step = LLM_OK;
    while (!llm__request_ended(r)) step = llm_engine_step(e, NULL);
    for (int32_t i = 0; i < r->n_seqs && !step; i++) {
        if (r->seq[i].output.finish == LLM_FINISH_ERROR) return llm__error(LLM_ERR_BACKEND, "%s", r->error);
        if (r->seq[i].output.finish == LLM_FINISH_CANCELLED) return llm__error(LLM_ERR_CANCELLED, "the request was cancelled");
    }
    return step;
}

/* The figures of the step that ended last: any thread, without waiting for the one that runs. What is queued is counted now, so that who
 * submits many knows when to stop. */
LLM_API void llm_engine_get_stats(const llm_engine *e, llm_engine_stats *out) {
    LLM__LOCKED(&e->mutex);
    *out = e->stats;
    out->queued = e->inbox.n_fresh;
    out->queued_bytes = e->inbox.bytes;
}
