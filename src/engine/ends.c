#include "engine/ends.h"
#include "api/config.h"
#include "api/engine.h"
#include "api/request.h"
#include "base/platform.h"
#include "base/threads.h"
#include "engine/scheduler.h"
#include "engine/pages.h"
#include "engine/plan.h"
#include "engine/request.h"

/* Answers in the order in which they are given: with best_of > n and beams those of the highest score come first (without beams: sum of
 * log-probabilities), on a tie the lower. */
static void llm__rank_answers(llm_request *r) {
    for (int32_t i = 1; i < r->n_seqs && r->n_seqs > r->sampling.n; i++) {
        llm__seq *s = r->answer[i];
        int32_t at = i;
        for (; at > 0 && (float)r->answer[at - 1]->beam.score < (float)s->beam.score; at--) r->answer[at] = r->answer[at - 1];
        r->answer[at] = s;
    }
}

LLM__PRIVATE void llm__seq_finish(llm_engine *e, llm__seq *s, llm_finish finish) {
    llm_request *r = s->request;
    if (s->state == LLM__SEQ_DONE) return;
    if (s->state == LLM__SEQ_RUNNING) llm__running_take(e, s);
    if (s->state == LLM__SEQ_WAITING) llm__queue_take(e, s);
    if (!s->n_flight) llm__seq_release(e, s);
    llm__swap_drop(e, s);
    llm__note_news(e, r);
    LLM__LOCKED(&r->mutex);
    s->state = LLM__SEQ_DONE;
    s->output.finish = finish;
    if (finish == LLM_FINISH_ERROR && s->output.lost && !r->error[0]) snprintf(r->error, sizeof r->error, "%s", s->output.lost);
    if (!r->sampling.use_beam_search) s->beam.score = s->output.cum_logprob;
    if (++r->n_done < r->n_seqs) return;
    llm__rank_answers(r);
    r->metrics.finish_time = r->metrics.arrival_time + (e->p.driver.now(e) - r->received);
}

LLM__PRIVATE void llm__seq_unsay(llm__seq *s) {
    s->n_ids = s->n_prompt;
    s->output.text.len = 0;
    if (s->output.text.data) s->output.text.data[0] = 0;
}

LLM__PRIVATE void llm__request_end(llm_engine *e, llm_request *r, llm_finish finish, const char *error) {
    pthread_mutex_lock(&r->mutex); /* others of its answers may have ended, and somebody asks */
    if (error && r->n_done < r->n_seqs) snprintf(r->error, sizeof r->error, "%.250s", error);
    pthread_mutex_unlock(&r->mutex);
    for (int32_t i = 0; i < r->n_seqs; i++) {
        llm__seq *s = &r->seq[i];
        if (r->sampling.use_beam_search && s->state != LLM__SEQ_DONE) llm__seq_unsay(s);
        llm__seq_finish(e, s, finish);
    }
}

LLM__PRIVATE void llm__request_unref(llm_request *r) {
    if (!__atomic_sub_fetch(&r->refs, 1, __ATOMIC_ACQ_REL)) llm__request_destroy(r);
}

/* The places of its answers are free. */
static void llm__leave_places(llm_engine *e, const llm_request *r) {
    LLM__LOCKED(&e->mutex);
    e->inbox.n_live -= r->sampling.best_of;
}

LLM__PRIVATE void llm__tell_news(llm_engine *e) {
    while (e->news) {
        llm_request *r = e->news;
        int told = r->told;
        e->news = r->news_next;
        r->in_news = 0;
        r->told = r->n_done == r->n_seqs;
        if (r->on_news && !told) {
            LLM__LOCKED(&e->news_mutex);
            if (!__atomic_load_n(&r->freed, __ATOMIC_ACQUIRE)) r->on_news(r->user, r);
        }
        if (!r->told || r->n_flight) continue;
        if (r->prev) r->prev->next = r->next;
        else e->live = r->next;
        if (r->next) r->next->prev = r->prev;
        llm__leave_queue(e, r);
        llm__leave_places(e, r);
        llm__request_unref(r);
    }
}

LLM__PRIVATE int llm__take_inbox(llm_engine *e) {
    pthread_mutex_lock(&e->mutex);
    llm_request *r = e->inbox.first;
    int some_cancelled = e->inbox.some_cancelled;
    e->inbox.first = e->inbox.last = NULL;
    e->inbox.some_cancelled = 0;
    pthread_mutex_unlock(&e->mutex);
    for (llm_request *next; r; r = next) {
        next = r->inbox_next;
        r->prev = NULL;
        r->next = e->live;
        if (e->live) e->live->prev = r;
        e->live = r;
        if (r->deadline > 0 && (e->next_deadline <= 0 || r->deadline < e->next_deadline)) e->next_deadline = r->deadline;
        llm__queue_put(e, &r->seq[0]);
    }
    return some_cancelled;
}

LLM__PRIVATE void llm__sweep(llm_engine *e) {
    e->next_deadline = 0;
    for (llm_request *r = e->live; r; r = r->next) {
        int late = r->deadline > 0 && e->now >= r->deadline;
        if (late || __atomic_load_n(&r->cancelled, __ATOMIC_ACQUIRE)) llm__request_end(e, r, LLM_FINISH_CANCELLED, NULL);
        else if (r->deadline > 0 && (e->next_deadline <= 0 || r->deadline < e->next_deadline)) e->next_deadline = r->deadline;
    }
}
