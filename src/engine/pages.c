#include "engine/pages.h"
#include "api/config.h"
#include "api/engine.h"
#include "api/request.h"
#include "base/platform.h"
#include "base/threads.h"
#include "engine/kv.h"
#include "engine/scheduler.h"
#include "engine/sight.h"

LLM__PRIVATE void llm__seq_release(llm_engine *e, llm__seq *s) {
    while (s->pages.n) llm__kv_drop(&e->kv, s->pages.id[--s->pages.n]);
    s->n_fed = s->n_computed = s->n_again = s->pages.n_published = s->draft.n_computed = 0;
    s->pages.key = s->request->root;
}

LLM__PRIVATE void llm__swap_drop(llm_engine *e, llm__seq *s) {
    while (s->swap.n) e->swap.free[e->swap.n_free++] = s->swap.slot[--s->swap.n];
}

LLM__PRIVATE void llm__seq_publish(llm_engine *e, llm__seq *s) {
    int32_t size = e->kv.page_tokens;
    for (; (s->pages.n_published + 1) * (int64_t)size <= s->n_computed; s->pages.n_published++) {
        const int32_t *tokens = s->ids + (int64_t)s->pages.n_published * size;
        const llm__kv_key parent = llm__sight_key(e, s, s->pages.n_published, s->pages.key);
        s->pages.key = llm__kv_hash(&e->kv, parent, tokens, (size_t)size * sizeof *tokens);
        llm__kv_publish(&e->kv, s->pages.id[s->pages.n_published], s->pages.key, tokens);
    }
}

LLM__PRIVATE int32_t llm__pages_of(const llm_engine *e, int32_t n_tokens) {
    return (int32_t)(((int64_t)n_tokens + e->kv.page_tokens - 1) / e->kv.page_tokens);
}

/* How many pages a sequence takes with its place. One that gave way often takes some ahead, and twice as many each further time: so it
 * goes on for a while whatever the others do, and does not keep them out for the longest answer it could give. Of 9 tokens in pages of 4:
 * 3 pages, three times; then 3 + 8, 3 + 16, 3 + 32, until it is all that it can need. */
static int32_t llm__pages_wanted(const llm_engine *e, const llm__seq *s) {
    const int32_t next = llm__pages_of(e, s->n_ids + s->n_ahead), all = llm__pages_of(e, s->n_prompt + s->max_new);
    const int32_t often = LLM__MIN(s->n_preempted - LLM__PREEMPT_MAX, 20);
    return often < 0 ? next : LLM__MIN(next + (LLM__PAGES_AHEAD << often), all);
}

/* Full pages that the prefix cache may give to a sequence: at least one token is left to compute, and rows of the
 * prompt of which something is still wanted are computed, known or not. */
static int32_t llm__pages_cacheable(const llm_engine *e, const llm__seq *s) {
    const llm_request *r = s->request;
    int32_t first = LLM__MAX(s->n_scored, r->prompt.score_from), last = s->n_ids - 1;
    return (first < r->prompt.score_end ? LLM__MIN(first, last) : last) / e->kv.page_tokens;
}

LLM__PRIVATE llm_result llm__page_move(llm_engine *e, int32_t page, uint8_t *out, const uint8_t *in) {
    llm_result r = LLM_OK;
    for (int32_t k = 0; k < e->n_ranks && !r; k++) {
        int64_t at = k * e->page_bytes;
        r = out ? e->backend->kv_read(e->ctx, k, page, out + at) : e->backend->kv_write(e->ctx, k, page, in + at);
    }
    return r;
}

/* A slot of host memory. */
static uint8_t *llm__swap_slot(const llm_engine *e, int32_t slot) { return e->swap.memory + (int64_t)slot * e->n_ranks * e->page_bytes; }

/* What was swapped out comes back into the pages behind those that the prefix cache had. A page that fails is computed
 * again, with all that follow. */
static void llm__swap_in(llm_engine *e, llm__seq *s) {
    int32_t have = s->pages.n_published, size = e->kv.page_tokens;
    while (have < s->swap.n && !llm__page_move(e, s->pages.id[have], NULL, llm__swap_slot(e, s->swap.slot[have]))) have++;
    if (s->swap.n) s->n_computed = LLM__MAX(s->n_computed, have == s->swap.n ? s->swap.n_tokens : have * size);
    llm__swap_drop(e, s);
}

LLM__PRIVATE int llm__seq_place(llm_engine *e, llm__seq *s) {
    llm__kv *kv = &e->kv;
    int32_t need = llm__pages_wanted(e, s), known = llm__pages_cacheable(e, s);
    if (s->pages.blocked == kv->released + 1) return 0;
    llm__kv_key key = s->pages.key;
    for (; s->pages.n < known; s->pages.key = key) {
        key = llm__sight_key(e, s, s->pages.n, key);
        int32_t page = llm__kv_find(kv, &key, s->ids + (int64_t)s->pages.n * kv->page_tokens);
        if (page < 0) break;
        s->pages.id[s->pages.n++] = page;
    }
    if (llm__kv_room(kv) < need - s->pages.n + e->running.n) {
        llm__seq_release(e, s);
        s->pages.blocked = kv->released + 1;
        return 0;
    }
    s->pages.n_published = s->pages.n;
    s->n_computed = s->pages.n * kv->page_tokens;
    while (s->draft.n_computed < s->n_computed && kv->drafted[s->pages.id[s->draft.n_computed / kv->page_tokens]])
        s->draft.n_computed += kv->page_tokens;
    while (s->pages.n < need) s->pages.id[s->pages.n++] = llm__kv_get(kv);
    llm__swap_in(e, s);
    s->n_fed = s->n_computed;
    return 1;
}

/* Copies the computed pages to host memory, all or none: without room, or if the device cannot, the sequence is computed
 * again. Pages that the prefix cache knows are copied too, for it may lose them meanwhile. */
static void llm__swap_out(llm_engine *e, llm__seq *s) {
    int32_t n = llm__pages_of(e, s->n_computed);
    if (n > e->swap.n_free) return;
    for (s->swap.n_tokens = s->n_computed; s->swap.n < n; s->swap.n++) {
        s->swap.slot[s->swap.n] = e->swap.free[e->swap.n_free - 1];
        if (llm__page_move(e, s->pages.id[s->swap.n], llm__swap_slot(e, s->swap.slot[s->swap.n]), NULL)) {
            llm__swap_drop(e, s);
            return;
        }
        e->swap.n_free--;
    }
}

LLM__PRIVATE void llm__preempt(llm_engine *e, llm__seq *s) {
    llm__running_take(e, s);
    if (!s->beam.n_next) llm__swap_out(e, s);
    llm__seq_release(e, s);
    if (!s->beam.n_next) llm__queue_put(e, s);
    s->n_preempted++;
    e->count.preemptions++;
    LLM__LOCKED(&s->request->mutex);
    s->request->metrics.n_preemptions++;
}

/* 1 if letting this sequence go makes at least one page available: pages it shares do not. The last is mostly its own. */
static int llm__frees_a_page(const llm_engine *e, const llm__seq *s) {
    for (int32_t i = s->pages.n - 1; i >= 0; i--)
        if (e->kv.ref[s->pages.id[i]] == 1) return 1;
    return 0;
}

/* The sequence that gives way to running[at]: the latest after it that would free a page and may be preempted once more, else itself. So
 * the first in order goes on whatever happens, and everything ends. */
static llm__seq *llm__victim(const llm_engine *e, int32_t at) {
    for (int32_t i = e->running.n - 1; i > at; i--)
        if (e->running.seq[i]->n_preempted < LLM__PREEMPT_MAX && llm__frees_a_page(e, e->running.seq[i])) return e->running.seq[i];
    return e->running.seq[at];
}

LLM__PRIVATE int32_t llm__seq_left(const llm__seq *s) { return s->n_ids + s->n_ahead - s->n_fed; }

LLM__PRIVATE int llm__decodes(const llm__seq *s) { return s->n_ids + s->n_ahead > s->n_prompt && llm__seq_left(s) == 1 + s->n_again; }

LLM__PRIVATE int llm__goes_on(const llm_engine *e, const llm__seq *s) {
    return llm__seq_left(s) > 0 && s->pages.n >= llm__pages_of(e, s->n_ids + s->n_ahead);
}

/* 1 if another sequence goes on. */
static int llm__others_go_on(const llm_engine *e, const llm__seq *s) {
    for (int32_t i = 0; i < e->running.n; i++)
        if (e->running.seq[i] != s && llm__goes_on(e, e->running.seq[i])) return 1;
    return 0;
}

LLM__PRIVATE int llm__grow_pages(llm_engine *e, int32_t at) {
    llm__seq *s = e->running.seq[at];
    for (int32_t want = llm__pages_of(e, s->n_ids + s->n_ahead), page; s->pages.n < want;) {
        if ((page = llm__kv_get(&e->kv)) >= 0) {
            s->pages.id[s->pages.n++] = page;
            continue;
        }
        if (e->flights.n) return -1;
        llm__seq *victim = llm__victim(e, at);
        if (victim == s && !llm__frees_a_page(e, s) && llm__others_go_on(e, s)) return 1;
        llm__preempt(e, victim);
        if (victim == s) return 0;
    }
    return 1;
}
