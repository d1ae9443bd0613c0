#include "engine/sight.h"
#include "api/config.h"
#include "api/model.h"
#include "api/media.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/threads.h"
#include "model/loader.h"
#include "vision/vision.h"
#include "vision/fit.h"
#include "vision/marks.h"
#include "vision/tower.h"
#include "engine/kv.h"
#include "engine/scheduler.h"
#include "engine/pages.h"
#include "engine/ends.h"

LLM__PRIVATE llm_result llm__sight_open(llm_engine *e, const llm_backend_config *beside) {
    const llm_model *m = e->p.model;
    llm__sight *s = &e->sight;
    s->position_rows = m->arch.position_rows == 3 ? 3 : 1;
    s->both_ways = m->arch.both_ways;
    if (!m->vision) return LLM_OK;
    s->vision = m->vision;
    s->given_cols = m->arch.hidden * (1 + m->arch.n_deepstack);
    const int traced = beside->trace != NULL; /* the table that tells is the language model's alone */
    llm__tower_config c = {m, traced ? llm_backend_cpu() : e->backend, *beside, e->p.max_len, e->p.dry};
    c.backend_config.beside = traced ? NULL : e->ctx;
    llm_result r = llm__tower_open(&c, &s->tower);
    if (e->p.dry) return r; /* nothing is kept */
    s->most = e->p.c.mm_processor_cache_bytes ? (size_t)e->p.c.mm_processor_cache_bytes : (size_t)1 << 30;
    return r;
}

LLM__PRIVATE void llm__sight_close(llm_engine *e) {
    llm__tower_close(e->sight.tower);
    for (int32_t i = 0; i < LLM__PICTURES; i++)
        if (e->sight.known[i].media) llm_media_free(e->sight.known[i].media);
}

LLM__PRIVATE int64_t llm__sight_memory(const llm_engine *e) { return e->sight.tower ? e->sight.tower->memory + (int64_t)e->sight.most : 0; }

LLM__PRIVATE int64_t llm__sight_weights(const llm_engine *e) { return e->sight.tower ? e->sight.tower->weight_bytes : 0; }

/* ---- What is known ----
 * Under the engine's mutex. `users` are requests; what has none may go when memory is short, the one used longest ago first. */

/* Lets pictures without users go until there is room for so many bytes. 0: there is not. */
static int llm__sight_evict(llm_engine *e, size_t bytes, int32_t *place) {
    llm__sight *s = &e->sight;
    for (;;) {
        int32_t oldest = -1;
        *place = -1;
        for (int32_t i = 0; i < LLM__PICTURES; i++) {
            const llm__known *k = &s->known[i];
            if (!k->media) *place = i;
            else if (!k->users && (oldest < 0 || k->used < s->known[oldest].used)) oldest = i;
        }
        if (*place >= 0 && s->bytes + bytes <= s->most) return 1;
        if (oldest < 0) return 0;
        s->bytes -= s->known[oldest].bytes;
        s->known[oldest].media->engine = NULL;
        llm_media_free(s->known[oldest].media);
        s->known[oldest].media = NULL;
    }
}

/* The picture of that content, new or shared; *to gets it, with a user more. */
static llm_result llm__sight_share(llm_engine *e, llm_media *m, llm__picture_use *to) {
    llm__sight *s = &e->sight;
    int32_t place;
    LLM__LOCKED(&e->mutex);
    s->n_queries++;
    for (int32_t i = 0; i < LLM__PICTURES; i++) {
        llm__known *k = &s->known[i];
        if (!k->media || k->media->hash[0] != m->hash[0] || k->media->hash[1] != m->hash[1] || k->media->info.n_tokens != m->info.n_tokens)
            continue;
        k->users++;
        k->used = ++s->n_uses;
        s->n_hits++;
        to->media = k->media;
        to->place = i;
        return LLM_OK;
    }
    if (m->engine && m->engine != e) return llm__error(LLM_ERR_ARG, "media: it belongs to another engine");
    llm_result r = llm__tower_room(s->tower, m);
    if (r) return r;
    if (!llm__sight_evict(e, m->bytes, &place))
        return llm__error(m->bytes > s->most ? LLM_ERR_LIMIT : LLM_ERR_BUSY,
                          "memory for pictures: %zu of %zu bytes are in use, %zu more are needed", s->bytes, s->most, m->bytes);
    m->engine = e;
    __atomic_add_fetch(&m->refs, 1, __ATOMIC_RELAXED);
    const llm__known known = {m, m->bytes, 1, ++s->n_uses};
    s->known[place] = known;
    s->bytes += m->bytes;
    to->media = m;
    to->place = place;
    return LLM_OK;
}

/* ---- Requests ---- */

/* The runs of tokens that stand for pictures, one after the other through all of them; 0: they do not fit the prompt. */
static int llm__sight_runs(llm_request *r, const int32_t *prompt, int32_t n) {
    const llm__vision *v = r->engine->sight.vision;
    int32_t which[2] = {-1, -1}, left[2] = {0, 0}; /* of pictures, of videos: the one at hand, and its tokens that are left */
    for (int32_t at = 0, film = 0; at < n; at++) {
        const int kind = llm__media_kind_of(v, prompt[at], &film), video = kind == LLM_MEDIA_VIDEO;
        if (kind < 0) continue;
        int32_t *m = &which[video];
        if (!left[video]) {
            for (++*m; *m < r->sight.n && (int)r->sight.use[*m].media->info.kind != kind; ++*m) {}
            if (*m >= r->sight.n) return 0;
            left[video] = r->sight.use[*m].media->info.n_tokens;
        }
        llm__sight_run *last = r->sight.n_runs ? &r->sight.run[r->sight.n_runs - 1] : NULL;
        if (!last || last->media != *m || last->at + last->n != at) {
            last = &r->sight.run[r->sight.n_runs++];
            const llm__sight_run run = {at, 0, *m, r->sight.use[*m].media->info.n_tokens - left[video]};
            *last = run;
        }
        last->n++;
        left[video]--;
    }
    for (int k = 0; k < 2; k++)
        for (int32_t m = which[k] + 1; m < r->sight.n; m++)
            if ((r->sight.use[m].media->info.kind == LLM_MEDIA_VIDEO) == k) return 0;
    return !left[0] && !left[1];
}

LLM__PRIVATE llm_result llm__sight_submit(llm_request *r, const llm_request_config *cfg, const int32_t *prompt, int32_t n) {
    llm_engine *e = r->engine;
    llm__arena *a = &r->arena;
    llm_result result = LLM_OK;
    int64_t tokens = 0, found = 0;
    if (!cfg->n_media) return LLM_OK;
    if (cfg->n_media > n) return llm__error(LLM_ERR_ARG, "media: %lld for a prompt of %d tokens", (long long)cfg->n_media, (int)n);
    if (!e->sight.tower) return llm__error(LLM_ERR_UNSUPPORTED, "media: this model takes text only");
    r->sight.use = (llm__picture_use *)llm__arena_get(a, (size_t)cfg->n_media * sizeof *r->sight.use);
    r->sight.run = (llm__sight_run *)llm__arena_get(a, (size_t)n * sizeof *r->sight.run);
    if (a->failed) return llm__nomem();
    for (int32_t i = 0; i < cfg->n_media && !result; i++) {
        if (cfg->media[i]->vision != e->sight.vision) return llm__error(LLM_ERR_ARG, "media: it was prepared for another model");
        result = llm__sight_share(e, cfg->media[i], &r->sight.use[i]);
        r->sight.n += !result;
        tokens += cfg->media[i]->info.n_tokens;
    }
    for (int32_t i = 0, film = 0; i < n; i++) found += llm__media_kind_of(e->sight.vision, prompt[i], &film) >= 0;
    if (!result && !llm__sight_runs(r, prompt, n))
        result = llm__error(LLM_ERR_ARG, "prompt: it has %lld tokens for pictures and videos, those given take %lld", (long long)found,
                            (long long)tokens);
    for (int32_t i = 0; i < r->sight.n_runs && e->sight.both_ways && !result; i++) {
        const int32_t whole = r->sight.run[i].n, most = e->p.c.max_num_batched_tokens, scored = e->p.max_out - e->p.c.max_num_seqs;
        if (whole > most)
            result = llm__error(LLM_ERR_LIMIT, "a picture of %d tokens, which are computed together: max_num_batched_tokens is %d",
                                (int)whole, (int)most);
        else if (r->sampling.prompt_logprobs && whole > scored)
            result = llm__error(LLM_ERR_LIMIT, "prompt_logprobs: a picture of %d tokens, which are computed together; %d can be scored",
                                (int)whole, (int)scored);
    }
    if (result || e->sight.position_rows != 3) return result;
    r->sight.places = (int32_t *)llm__arena_get(a, 3 * (size_t)n * sizeof *r->sight.places);
    llm_media **list = (llm_media **)llm__arena_get(a, (size_t)r->sight.n * sizeof *list);
    if (a->failed) return llm__nomem();
    for (int32_t i = 0; i < r->sight.n; i++) list[i] = r->sight.use[i].media;
    llm__media_places(e->sight.vision, prompt, n, list, r->sight.n, r->sight.places, &r->sight.next_place);
    r->sight.n_places = n;
    return LLM_OK;
}

LLM__PRIVATE void llm__sight_release(llm_request *r) {
    llm_engine *e = r->engine;
    if (!r->sight.n) return;
    LLM__LOCKED(&e->mutex);
    for (int32_t i = 0; i < r->sight.n; i++) e->sight.known[r->sight.use[i].place].users--;
}

/* ---- Steps ---- */

LLM__PRIVATE int32_t llm__sight_may_feed(const llm_engine *e, const llm__seq *s, int32_t n) {
    const llm_request *r = s->request;
    for (int32_t i = 0; i < r->sight.n_runs; i++) {
        const llm__sight_run *run = &r->sight.run[i];
        if (run->at + run->n <= s->n_fed) continue;
        if (run->at >= s->n_fed + n) break;
        const int there = __atomic_load_n(&r->sight.use[run->media].media->ready, __ATOMIC_ACQUIRE);
        if (!there || (e->sight.both_ways && run->at + run->n > s->n_fed + n)) return LLM__MAX(run->at - s->n_fed, 0);
    }
    return n;
}

LLM__PRIVATE int32_t llm__sight_whole(const llm_engine *e) {
    for (int32_t i = 0; e->sight.both_ways && i < e->running.n; i++) {
        const llm__seq *s = e->running.seq[i];
        for (int32_t k = 0; k < s->request->sight.n_runs; k++) {
            const llm__sight_run *run = &s->request->sight.run[k];
            const struct llm_media *media = s->request->sight.use[run->media].media;
            if (s->n_fed < run->at || s->n_fed >= run->at + run->n) continue;
            if (__atomic_load_n(&media->ready, __ATOMIC_ACQUIRE)) return run->at + run->n - s->n_fed;
        }
        if (!llm__decodes(s) && llm__sight_may_feed(e, s, llm__seq_left(s)) > 0) return 0; /* rows of a prompt before it come first */
    }
    return 0;
}

LLM__PRIVATE llm__kv_key llm__sight_key(const llm_engine *e, const llm__seq *s, int32_t page, llm__kv_key parent) {
    const llm_request *r = s->request;
    const int32_t begin = page * e->kv.page_tokens, end = begin + e->kv.page_tokens;
    for (int32_t i = 0; i < r->sight.n_runs; i++) {
        const llm__sight_run *run = &r->sight.run[i];
        if (run->at + run->n <= begin || run->at >= end) continue;
        const llm_media *m = r->sight.use[run->media].media;
        const uint64_t what[4] = {m->hash[0], m->hash[1], (uint64_t)run->first, (uint64_t)(uint32_t)(run->at - begin)};
        parent = llm__kv_hash(&e->kv, parent, what, sizeof what);
    }
    for (int32_t at = LLM__MAX(begin, s->n_prompt); at < end && e->sight.vision && e->sight.vision->n_set_ids; at++)
        if (llm__vision_set(e->sight.vision, s->ids[at])) parent = llm__kv_hash(&e->kv, parent, &at, sizeof at);
    return parent;
}

LLM__PRIVATE void llm__sight_row(llm_engine *e, const llm__seq *s, int32_t at, int32_t row) {
    const llm_request *r = s->request;
    const int32_t stride = e->p.c.max_num_batched_tokens;
    if (at >= s->n_prompt) e->step.row_set[row] = 0; /* the mark of a picture that the model writes itself is a word like others */
    if (!r->sight.n) return;
    for (int k = 0; k < 3 && r->sight.places; k++)
        e->step.positions[k * stride + row] =
            at < r->sight.n_places ? r->sight.places[k * r->sight.n_places + at] : r->sight.next_place + at - r->sight.n_places;
    for (int32_t i = 0; i < r->sight.n_runs; i++) {
        const llm__sight_run *run = &r->sight.run[i];
        if (at < run->at || at >= run->at + run->n) continue;
        const llm_media *m = r->sight.use[run->media].media;
        e->step.given[row] = m->values + (size_t)(run->first + at - run->at) * (size_t)e->sight.given_cols;
        e->step.any_given = 1;
        /* layers that have values of their own for a token have those of the padding for a picture's rows (Gemma 4) */
        if (e->sight.vision->blank_id >= 0) e->step.tokens[row] = e->sight.vision->blank_id;
        if (!e->sight.both_ways) return;
        e->step.spans[stride + row] = run->at + run->n;
        e->step.any_spans = 1;
        return;
    }
}

/* The first picture that a sequence waits for; NULL: none. */
static llm_media *llm__sight_wanted(const llm__seq *s) {
    const llm_request *r = s->request;
    for (int32_t i = 0; i < r->sight.n_runs; i++) {
        llm_media *m = r->sight.use[r->sight.run[i].media].media;
        if (r->sight.run[i].at + r->sight.run[i].n > s->n_fed && !__atomic_load_n(&m->ready, __ATOMIC_ACQUIRE)) return m;
    }
    return NULL;
}

/* Ends the requests that have a picture which could not be computed. */
static void llm__sight_fail(llm_engine *e, const llm_media *m) {
    char why[256];
    snprintf(why, sizeof why, "%.250s", llm_last_error());
    for (llm_request *r = e->live; r; r = r->next)
        for (int32_t i = 0; i < r->sight.n; i++)
            if (r->sight.use[i].media == m && r->n_done < r->n_seqs) llm__request_end(e, r, LLM_FINISH_ERROR, why);
}

LLM__PRIVATE void llm__sight_work(llm_engine *e, double until) {
    llm__sight *s = &e->sight;
    if (!s->tower) return;
    const double begin = e->p.driver.now(e);
    const int brief = e->budget.seconds > 0; /* the caller has a time: layer by layer until it is over */
    double left = 2.0 * (double)llm_model_get_info(e->p.model)->n_params * e->p.c.max_num_batched_tokens;
    int others = 0;
    for (int32_t i = 0; i < e->running.n; i++) others |= !llm__sight_wanted(e->running.seq[i]);
    for (;;) {
        for (int32_t i = 0; i < e->running.n && !s->tower->media; i++) {
            llm_media *m = llm__sight_wanted(e->running.seq[i]);
            if (!m) continue;
            __atomic_add_fetch(&m->refs, 1, __ATOMIC_RELAXED);
            s->at_work = m;
            llm__tower_begin(s->tower, m);
        }
        if (!s->tower->media) break;
        const double ops = llm__tower_ops(s->tower);
        llm_result r = llm__tower_piece(s->tower, brief ? 1 : others ? left : 1e18);
        if (r) {
            llm__sight_fail(e, s->at_work);
            s->tower->media = NULL;
        }
        if (!s->tower->media) llm_media_free(s->at_work);
        left -= ops;
        if (others && left <= 0) break;
        if (others && s->tower->media && !brief) break; /* it had what was left */
        if (brief && e->p.driver.now(e) >= until) break;
    }
    e->count.tower_seconds += e->p.driver.now(e) - begin;
}
