#include "engine/pages.h"
#include "api/config.h"
#include "api/engine.h"
#include "api/request.h"
#include "base/platform.h"
#include "engine/kv.h"
#include "engine/scheduler.h"

LLM__PRIVATE void llm__seq_release(llm_engine *e, llm__seq *s) {
    while (s->n_pages) llm__kv_drop(&e->kv, s->pages[--s->n_pages]);
    s->n_fed = s->n_computed = s->n_published = s->n_guessed = 0;
    s->key = s->request->root;
}

LLM__PRIVATE void llm__swap_drop(llm_engine *e, llm__seq *s) {
    while (s->n_swap) e->swap_free[e->n_swap_free++] = s->swap[--s->n_swap];
}

LLM__PRIVATE void llm__seq_publish(llm_engine *e, llm__seq *s) {
    int32_t size = e->kv.page_tokens;
    for (; (s->n_published + 1) * (int64_t)size <= s->n_computed; s->n_published++) {
        const int32_t *tokens = s->ids + (int64_t)s->n_published * size;
        s->key = llm__kv_hash(&e->kv, s->key, tokens, (size_t)size * sizeof *tokens);
        llm__kv_publish(&e->kv, s->pages[s->n_published], s->key, tokens);
    }
}

LLM__PRIVATE int32_t llm__pages_of(const llm_engine *e, int32_t n_tokens) {
    return (int32_t)(((int64_t)n_tokens + e->kv.page_tokens - 1) / e->kv.page_tokens);
}

/* Pages that a sequence takes for its next rows. Who gave way often takes all it can ever need. */
static int32_t llm__pages_wanted(const llm_engine *e, const llm__seq *s) {
    return llm__pages_of(e, s->n_preempted < LLM__PREEMPT_MAX ? s->n_ids + s->n_ahead : s->n_prompt + s->max_new);
}

/* Full pages that the prefix cache may give to a sequence: at least one token is left to compute, and rows of the
 * prompt of which something is still wanted are computed, known or not. */
static int32_t llm__pages_cacheable(const llm_engine *e, const llm__seq *s) {
    const llm_request *r = s->request;
    int32_t first = LLM__MAX(s->n_scored, r->score_from), last = s->n_ids - 1;
    return (first < r->score_end ? LLM__MIN(first, last) : last) / e->kv.page_tokens;
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
static uint8_t *llm__swap_slot(const llm_engine *e, int32_t slot) { return e->swap_memory + (int64_t)slot * e->n_ranks * e->page_bytes; }

/* What was swapped out comes back into the pages behind those that the prefix cache had. A page that fails is computed
 * again, with all that follow. */
static void llm__swap_in(llm_engine *e, llm__seq *s) {
    int32_t have = s->n_published, size = e->kv.page_tokens;
    while (have < s->n_swap && !llm__page_move(e, s->pages[have], NULL, llm__swap_slot(e, s->swap[have]))) have++;
    if (s->n_swap) s->n_computed = LLM__MAX(s->n_computed, have == s->n_swap ? s->n_swap_tokens : have * size);
    llm__swap_drop(e, s);
}

LLM__PRIVATE int llm__seq_place(llm_engine *e, llm__seq *s) {
    llm__kv *kv = &e->kv;
    int32_t need = llm__pages_wanted(e, s), known = llm__pages_cacheable(e, s);
    if (s->blocked == kv->released + 1) return 0;
    llm__kv_key key = s->key;
    for (; s->n_pages < known; s->key = key) {
        int32_t page = llm__kv_find(kv, &key, s->ids + (int64_t)s->n_pages * kv->page_tokens);
        if (page < 0) break;
        s->pages[s->n_pages++] = page;
    }
    if (llm__kv_room(kv) < need - s->n_pages + e->n_running) {
        llm__seq_release(e, s);
        s->blocked = kv->released + 1;
        return 0;
    }
    s->n_published = s->n_pages;
    s->n_computed = s->n_pages * kv->page_tokens;
    while (s->n_guessed < s->n_computed && kv->drafted[s->pages[s->n_guessed / kv->page_tokens]]) s->n_guessed += kv->page_tokens;
    while (s->n_pages < need) s->pages[s->n_pages++] = llm__kv_get(kv);
    llm__swap_in(e, s);
    s->n_fed = s->n_computed;
    return 1;
}

/* Copies the computed pages to host memory, all or none: without room, or if the device cannot, the sequence is computed
 * again. Pages that the prefix cache knows are copied too, for it may lose them meanwhile. */
static void llm__swap_out(llm_engine *e, llm__seq *s) {
    int32_t n = llm__pages_of(e, s->n_computed);
    if (n > e->n_swap_free) return;
    for (s->n_swap_tokens = s->n_computed; s->n_swap < n; s->n_swap++) {
        s->swap[s->n_swap] = e->swap_free[e->n_swap_free - 1];
        if (llm__page_move(e, s->pages[s->n_swap], llm__swap_slot(e, s->swap[s->n_swap]), NULL)) {
            llm__swap_drop(e, s);
            return;
        }
        e->n_swap_free--;
    }
}

LLM__PRIVATE void llm__preempt(llm_engine *e, llm__seq *s) {
    llm__running_take(e, s);
    if (!s->n_next) llm__swap_out(e, s);
    llm__seq_release(e, s);
    if (!s->n_next) llm__queue_put(e, s);
    s->n_preempted++;
    s->request->metrics.n_preemptions++;
    e->count.preemptions++;
}

/* 1 if letting this sequence go makes at least one page available: pages it shares do not. The last is mostly its own. */
static int llm__frees_a_page(const llm_engine *e, const llm__seq *s) {
    for (int32_t i = s->n_pages - 1; i >= 0; i--)
        if (e->kv.ref[s->pages[i]] == 1) return 1;
    return 0;
}

/* Who gives way to running[at]: the latest after it that would free a page and may be asked once more, else itself. So
 * the first in order goes on whatever happens, and everything ends. */
static llm__seq *llm__victim(const llm_engine *e, int32_t at) {
    for (int32_t i = e->n_running - 1; i > at; i--)
        if (e->running[i]->n_preempted < LLM__PREEMPT_MAX && llm__frees_a_page(e, e->running[i])) return e->running[i];
    return e->running[at];
}

LLM__PRIVATE int32_t llm__seq_left(const llm__seq *s) { return s->n_ids + s->n_ahead - s->n_fed; }

LLM__PRIVATE int llm__decodes(const llm__seq *s) { return s->n_ids + s->n_ahead > s->n_prompt && llm__seq_left(s) == 1; }

LLM__PRIVATE int llm__goes_on(const llm_engine *e, const llm__seq *s) {
    return llm__seq_left(s) > 0 && s->n_pages >= llm__pages_of(e, s->n_ids + s->n_ahead);
}

/* 1 if another sequence goes on. */
static int llm__others_go_on(const llm_engine *e, const llm__seq *s) {
    for (int32_t i = 0; i < e->n_running; i++)
        if (e->running[i] != s && llm__goes_on(e, e->running[i])) return 1;
    return 0;
}

LLM__PRIVATE int llm__grow_pages(llm_engine *e, int32_t at) {
    llm__seq *s = e->running[at];
    for (int32_t want = llm__pages_wanted(e, s), page; s->n_pages < want;) {
        if ((page = llm__kv_get(&e->kv)) >= 0) {
            s->pages[s->n_pages++] = page;
            continue;
        }
        if (e->n_flight) return -1;
        llm__seq *victim = llm__victim(e, at);
        if (victim == s && !llm__frees_a_page(e, s) && llm__others_go_on(e, s)) return 1;
        llm__preempt(e, victim);
        if (victim == s) return 0;
    }
    return 1;
}
