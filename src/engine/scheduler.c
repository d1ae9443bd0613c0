#include "engine/scheduler.h"
#include "api/engine.h"
#include "api/request.h"
#include "base/platform.h"

/* ---- order and lists ----
 * A sequence that waits stands in a list in order, one that runs in a short array in order; one that is held or done is
 * in neither. Requests that are not done are all in e->live, for sweeps. */

LLM__PRIVATE int llm__seq_before(const llm__seq *a, const llm__seq *b) {
    const llm_request *p = a->request, *q = b->request;
    if (p->priority != q->priority) return p->priority < q->priority;
    if (p->arrival != q->arrival) return p->arrival < q->arrival;
    return a->index < b->index;
}

LLM__PRIVATE void llm__queue_put(llm_engine *e, llm__seq *s) {
    llm__seq *before = e->waiting.last;
    while (before && llm__seq_before(s, before)) before = before->prev;
    s->state = LLM__SEQ_WAITING;
    s->prev = before;
    s->next = before ? before->next : e->waiting.first;
    if (s->prev) s->prev->next = s;
    else e->waiting.first = s;
    if (s->next) s->next->prev = s;
    else e->waiting.last = s;
    e->waiting.n++;
}

LLM__PRIVATE void llm__queue_take(llm_engine *e, llm__seq *s) {
    if (s->prev) s->prev->next = s->next;
    else e->waiting.first = s->next;
    if (s->next) s->next->prev = s->prev;
    else e->waiting.last = s->prev;
    s->prev = s->next = NULL;
    e->waiting.n--;
}

LLM__PRIVATE void llm__running_put(llm_engine *e, llm__seq *s) {
    int32_t at = e->running.n++;
    for (; at > 0 && llm__seq_before(s, e->running.seq[at - 1]); at--) e->running.seq[at] = e->running.seq[at - 1];
    e->running.seq[at] = s;
    s->state = LLM__SEQ_RUNNING;
}

LLM__PRIVATE void llm__running_take(llm_engine *e, llm__seq *s) {
    int32_t at = 0;
    while (e->running.seq[at] != s) at++;
    for (e->running.n--; at < e->running.n; at++) e->running.seq[at] = e->running.seq[at + 1];
    s->state = LLM__SEQ_HELD;
}

LLM__PRIVATE void llm__note_news(llm_engine *e, llm_request *r) {
    if (r->in_news) return;
    r->in_news = 1;
    r->news_next = e->news;
    e->news = r;
}
