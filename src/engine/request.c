#include "engine/request.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/media.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/tokenizer.h"
#include "api/grammar.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/map.h"
#include "base/threads.h"
#include "tokenizer/subword.h"
#include "grammar/grammar.h"
#include "engine/badwords.h"
#include "engine/sampler.h"
#include "engine/earlystop.h"
#include "engine/speculate.h"
#include "engine/scheduler.h"
#include "engine/pooling.h"
#include "engine/sight.h"
#include "engine/pages.h"
#include "engine/ends.h"
#include "engine/thoughts.h"
#include "engine/results.h"
#include "engine/adapters.h"
#include "engine/stepping.h"

/* What a sequence has beside the request's arena. Its pages went back when it ended. */
static void llm__seq_destroy(llm__seq *s) {
    if (s->output.detok) llm_detok_free(s->output.detok);
    llm_matcher_close(s->matcher);
    llm_text_free(&s->output.text);
}

LLM__PRIVATE void llm__request_destroy(llm_request *r) {
    for (int32_t i = 0; r->seq && i < r->n_seqs; i++) llm__seq_destroy(&r->seq[i]);
    llm_text_free(&r->piece);
    llm__sight_release(r);
    llm__arena_free(&r->arena);
    pthread_mutex_destroy(&r->mutex);
    if (r->lora >= 0) llm__lora_drop(r->engine, r->lora);
    LLM_FREE(r);
}

/* A sequence's arrays. They are not zeroed: an answer that may have 100,000 tokens and has ten touches a page of memory, not megabytes. */
static void llm__seq_arrays(llm__seq *s) {
    llm_request *r = s->request;
    llm__arena *a = &r->arena;
    size_t all = (size_t)s->n_prompt + (size_t)s->max_new, max_new = (size_t)s->max_new;
    int penalties = r->sampling.repetition_penalty != 1 || r->sampling.presence_penalty != 0 || r->sampling.frequency_penalty != 0;
    size_t distinct = penalties ? LLM__MIN(all, (size_t)r->engine->p.vocab) : 0, slots = penalties ? 16 : 0;
    size_t n_draft = (size_t)LLM__MAX(r->engine->p.n_draft, r->sampling.grammar ? r->engine->p.n_jump : 0);
    size_t n_pages = (size_t)llm__pages_of(r->engine, (int32_t)all),
           n_next = r->sampling.use_beam_search ? 2 * (size_t)r->sampling.best_of : 0;
    while (slots < 2 * distinct) slots *= 2;
    s->ids = (int32_t *)llm__arena_take(a, all * sizeof *s->ids);
    s->pages.id = (int32_t *)llm__arena_take(a, n_pages * sizeof *s->pages.id);
    s->swap.slot = (int32_t *)llm__arena_take(a, (r->engine->p.n_swap ? n_pages : 0) * sizeof *s->swap.slot);
    s->beam.next = (llm_token_logprob *)llm__arena_take(a, n_next * sizeof *s->beam.next);
    s->beam.next_raw = (float *)llm__arena_take(a, n_next * sizeof *s->beam.next_raw);
    s->draft.ids = (int32_t *)llm__arena_take(a, n_draft * sizeof *s->draft.ids);
    s->output.shown = (size_t *)llm__arena_take(a, max_new * sizeof *s->output.shown);
    s->output.stop_state = (int32_t *)llm__arena_get(a, (size_t)r->sampling.n_stop * sizeof *s->output.stop_state);
    s->history.id = (int32_t *)llm__arena_take(a, distinct * sizeof *s->history.id);
    s->history.count = (int32_t *)llm__arena_take(a, distinct * sizeof *s->history.count);
    s->history.slot = (int32_t *)llm__arena_get(a, slots * sizeof *s->history.slot);
    s->history.mask = slots ? (uint32_t)slots - 1 : 0;
    if (!r->sampling.logprobs) return;
    s->output.logprobs = (float *)llm__arena_take(a, max_new * sizeof *s->output.logprobs);
    s->output.top_counts = (int32_t *)llm__arena_take(a, max_new * sizeof *s->output.top_counts);
    s->output.top = (llm_token_logprob *)llm__arena_take(a, max_new * (size_t)r->top_stride * sizeof *s->output.top);
}

/* A sequence of the request, with everything it will need. prompt: (n_prompt) valid ids; max_new: tokens that its answer
 * may have, 0 where the prompt is only scored. On error what was taken goes with the request. */
static llm_result llm__seq_open(llm_request *r, int32_t index, const int32_t *prompt, int32_t n_prompt, int32_t max_new) {
    llm__seq *s = &r->seq[index];
    s->request = r;
    s->index = index;
    s->n_prompt = s->n_ids = n_prompt;
    s->max_new = max_new;
    s->output.stop_id = -1;
    s->draft.chance = LLM__CHANCE;
    s->n_scored = index ? n_prompt : 0; /* the first has scored the prompt for all */
    s->pages.key = r->root;
    s->seed = (uint64_t)r->sampling.seed + (uint64_t)index;
    llm__think_begin(s);
    llm__seq_arrays(s);
    if (r->arena.failed) return llm__nomem();
    memcpy(s->ids, prompt, (size_t)n_prompt * sizeof *prompt);
    for (int32_t i = 0; i < n_prompt; i++) llm__history_add(&s->history, prompt[i], 0);
    if (!r->score_only && r->sampling.grammar && !(s->matcher = llm_matcher_open(r->sampling.grammar))) return llm__nomem();
    if (!r->engine->p.model || r->score_only) return LLM_OK; /* ids only */
    s->output.detok = llm_detok_create(r->engine->p.model, r->sampling.skip_special_tokens_off ? LLM_DETOK_KEEP_SPECIAL : 0);
    size_t room = LLM__MIN((size_t)max_new * 16 + 256, (size_t)1 << 20);
    if (!s->output.detok || !llm__grow((void **)&s->output.text.data, &s->output.text.cap, room, 1)) return llm__nomem();
    s->output.text.data[0] = 0;
    return LLM_OK;
}

/* ---- submission ----
 * In this order, so that the cheap refusals come first: ranges of the sampling, the prompt's tokens, its length and ids, copies, memory for
 * scores and sequences, then the place in the queue. Only the last takes the engine's lock. */

/* Copies n bytes into the request's arena, with a 0 behind them; n may be 0. NULL: no memory. */
static void *llm__keep_copy(llm_request *r, const void *from, size_t n) {
    void *p = llm__arena_get(&r->arena, n + 1);
    if (p && n) memcpy(p, from, n);
    return p;
}

/* The stop strings as automata, in memory of the request. */
static llm_result llm__request_stops(llm_request *r) {
    int32_t n = r->sampling.n_stop;
    const char **list = (const char **)llm__arena_get(&r->arena, (size_t)n * sizeof *list);
    r->stop = (llm__stop *)llm__arena_get(&r->arena, (size_t)n * sizeof *r->stop);
    for (int32_t i = 0; i < n && !r->arena.failed; i++) {
        llm__stop *p = &r->stop[i];
        p->len = (int32_t)strlen(r->sampling.stop[i]);
        list[i] = p->text = (const char *)llm__keep_copy(r, r->sampling.stop[i], (size_t)p->len);
        p->border = (int32_t *)llm__arena_get(&r->arena, (size_t)p->len * sizeof *p->border);
        for (int32_t k = 1; k < p->len && !r->arena.failed; k++) p->border[k] = llm__stop_feed(p, p->border[k - 1], p->text[k]);
    }
    r->sampling.stop = list;
    return r->arena.failed ? llm__nomem() : LLM_OK;
}

/* Copies of everything the caller's sampling struct points to: nothing of the caller's is needed after submission. What
 * was compiled (stop strings, bad words) takes the place of its source. */
static llm_result llm__request_copies(llm_request *r, const llm_request_config *cfg) {
    llm_sampling *s = &r->sampling;
    char made[32];
    s->stop_token_ids = (const int32_t *)llm__keep_copy(r, s->stop_token_ids, (size_t)s->n_stop_token_ids * sizeof *s->stop_token_ids);
    s->think_open = (const int32_t *)llm__keep_copy(r, s->think_open, (size_t)s->n_think_open * sizeof *s->think_open);
    s->think_close = (const int32_t *)llm__keep_copy(r, s->think_close, (size_t)s->n_think_close * sizeof *s->think_close);
    s->logprob_token_ids =
        (const int32_t *)llm__keep_copy(r, s->logprob_token_ids, (size_t)s->n_logprob_token_ids * sizeof *s->logprob_token_ids);
    s->logit_bias = (const llm_logit_bias *)llm__keep_copy(r, s->logit_bias, (size_t)s->n_logit_bias * sizeof *s->logit_bias);
    snprintf(made, sizeof made, "req-%016llx", (unsigned long long)llm__mix((uint64_t)s->seed ^ (uint64_t)(uintptr_t)r));
    const char *id = cfg->id ? cfg->id : made;
    r->id = (char *)llm__keep_copy(r, id, strlen(id));
    llm_result result = llm__request_stops(r);
    if (!result && s->n_bad_words && !r->engine->p.model) result = llm__error(LLM_ERR_ARG, "bad_words: need a model with a tokenizer");
    if (!result && s->n_bad_words)
        result =
            llm__badwords_make(&r->bad, llm__gr_vocabulary(r->engine->p.model->source.tokenizer), s->bad_words, s->n_bad_words, &r->arena);
    s->bad_words = NULL;
    r->only = llm__only_tokens(s, r->engine->p.vocab, &r->arena);
    s->allowed_token_ids = NULL, s->n_allowed_token_ids = 0;
    return result || !r->arena.failed ? result : llm__nomem();
}

/* How many tokens the answer may have: what was asked for, but no more than the context has left. The prompt must leave
 * room for one. Ids are checked here, for they may come from outside. */
static llm_result llm__request_limits(llm_request *r, const int32_t *prompt, size_t n, int32_t *max_new) {
    const llm_engine *e = r->engine;
    if (!n) return llm__error(LLM_ERR_ARG, "prompt: it is empty, at least one token is needed");
    if (n + !r->score_only > (size_t)e->p.max_len)
        return llm__error(LLM_ERR_LIMIT, "prompt: it has %zu tokens. This model's maximum context length is %d tokens%s", n,
                          (int)e->p.max_len, r->score_only ? "" : ", the answer included"); /* vLLM's words, which routers look for */
    for (size_t i = 0; i < n; i++)
        if (llm__check_id("prompt_token_ids", prompt[i], e->p.vocab)) return LLM_ERR_ARG;
    int32_t room = r->score_only ? 0 : e->p.max_len - (int32_t)n;
    *max_new = r->sampling.max_tokens < 0 ? room : LLM__MIN(r->sampling.max_tokens, room);
    return LLM_OK;
}

/* Room for an embedding, or for the log-probabilities of the prompt: per token the number asked for, never a row of the vocabulary. */
static llm_result llm__request_scores(llm_request *r, size_t n) {
    int ok = 1;
    if (r->pooling.kind) return llm__pooling_room(r, n);
    if (r->score_only && !r->sampling.prompt_logprobs) r->sampling.prompt_logprobs = 1;
    if (!r->sampling.prompt_logprobs) return LLM_OK;
    r->prompt.score_end = (int32_t)n - 1;
    r->prompt.top_stride = LLM__MIN(r->sampling.prompt_logprobs - 1, r->engine->p.vocab);
    uint64_t bytes = llm__mul(llm__mul(n, (uint64_t)r->prompt.top_stride, &ok), sizeof *r->prompt.top, &ok);
    r->prompt.logprobs = (float *)llm__arena_get(&r->arena, n * sizeof *r->prompt.logprobs);
    r->prompt.ranks = (int32_t *)llm__arena_get(&r->arena, n * sizeof *r->prompt.ranks);
    r->prompt.top_counts = (int32_t *)llm__arena_get(&r->arena, n * sizeof *r->prompt.top_counts);
    r->prompt.top = ok ? (llm_token_logprob *)llm__arena_get(&r->arena, (size_t)bytes) : NULL;
    return ok && !r->arena.failed ? LLM_OK : llm__nomem();
}

/* The request's adapter and rotary scaling: with the salt they decide what keys and values its tokens have, so the cache parts by them. */
static llm_result llm__request_root(llm_request *r, const llm_request_config *cfg, int32_t n_prompt) {
    llm_engine *e = r->engine;
    e->p.driver.rope_of(e, n_prompt, &r->rope.variant, &r->rope.base);
    llm_result result = llm__lora_hold(e, cfg->lora, &r->lora);
    r->root = llm__prompt_root(e, r->lora, llm__rope_number(r->rope.variant, r->rope.base), cfg->cache_salt);
    return result;
}

/* Answers to one prompt keep their tokens and log-probabilities until the last has ended: what the largest request may come to. One answer
 * alone is bounded by the context. */
static llm_result llm__request_values(const llm_request *r, int32_t max_new) {
    enum { LLM__VALUES = 1 << 25 };
    const int64_t each = (int64_t)max_new * LLM__MAX(r->sampling.logprobs, 1);
    if (r->n_seqs < 2 || each <= LLM__VALUES / r->n_seqs) return LLM_OK;
    return llm__error(LLM_ERR_ARG, "max_tokens: %d answers of up to %d tokens, with %d log-probabilities each, are more than %d values",
                      r->n_seqs, max_new, (int)LLM__MAX(r->sampling.logprobs, 1), (int)LLM__VALUES);
}

enum {
    LLM__SEQ_BYTES = 20 << 10,   /* of memory that one answer touches before its first token, beside its prompt's ids */
    LLM__QUEUE_BYTES = 256 << 20 /* that all requests together may take while they wait, unless it is one alone */
};

/* What a request takes while it waits: each of its answers has the prompt's ids; and room for scores of the prompt. */
static int64_t llm__request_bytes(const llm_request *r, size_t n) {
    const size_t scored =
        r->prompt.logprobs ? sizeof(float) + 2 * sizeof(int32_t) + (size_t)r->prompt.top_stride * sizeof *r->prompt.top : 0;
    return (int64_t)((size_t)r->n_seqs * (LLM__SEQ_BYTES + n * sizeof(int32_t)) + n * scored);
}

/* Fills a new request from its config and its prompt's tokens. Here the seed is drawn if none was given, and a request
 * learns how many sequences it has: one for each choice, four times the width for beams. */
static llm_result llm__request_fill(llm_request *r, const llm_request_config *cfg, const int32_t *prompt, size_t n) {
    llm_engine *e = r->engine;
    int32_t max_new = 0;
    r->sampling = cfg->sampling;
    r->sampling.early_stop = llm__early_resolve(&cfg->sampling.early_stop, &e->p.c.early_stop);
    llm__sampling_resolve(&r->sampling);
    if (!r->sampling.has_seed) llm__random_bytes(&r->sampling.seed, sizeof r->sampling.seed), r->sampling.seed &= INT64_MAX;
    llm_result result = llm__pooling_submit(r, cfg, n);
    if (result) return result;
    r->score_only = cfg->score_only || r->pooling.kind;
    if (r->pooling.kind) r->sampling.prompt_logprobs = 0;
    r->sampling.use_beam_search = r->sampling.use_beam_search && !r->score_only;
    r->n_seqs = r->score_only ? 1 : r->sampling.use_beam_search ? 4 * r->sampling.best_of : r->sampling.best_of;
    r->priority = cfg->priority;
    r->on_news = cfg->on_news;
    r->user = cfg->user;
    result = llm__request_limits(r, prompt, n, &max_new);
    if (!result) result = llm__request_values(r, max_new);
    if (!result) result = llm__request_root(r, cfg, (int32_t)n);
    if (!result) result = llm__request_copies(r, cfg);
    if (!result) result = llm__request_scores(r, n);
    if (!result) result = llm__sight_submit(r, cfg, prompt, (int32_t)n);
    if (result) return result;
    r->top_stride = r->sampling.logprobs ? LLM__MAX(LLM__MIN(r->sampling.logprobs - 1, e->p.vocab), r->sampling.n_logprob_token_ids) : 0;
    r->seq = (llm__seq *)llm__arena_get(&r->arena, (size_t)r->n_seqs * sizeof *r->seq);
    r->answer = (llm__seq **)llm__arena_get(&r->arena, (size_t)r->n_seqs * sizeof *r->answer);
    if (r->arena.failed) return llm__nomem();
    for (int32_t i = 0; i < r->n_seqs && !result; i++) {
        r->answer[i] = &r->seq[i];
        result = llm__seq_open(r, i, prompt, (int32_t)n, max_new);
    }
    r->bytes = llm__request_bytes(r, n);
    r->seq[0].beam.role = LLM__BEAM_LIVE;
    r->metrics.n_prompt_tokens = (int32_t)n;
    r->submitted = LLM__MAX(e->p.driver.now(e), r->received);
    r->metrics.preprocess_cost_time = r->submitted - r->received;
    r->metrics.arrival_time = llm__wall_clock() - r->metrics.preprocess_cost_time;
    if (cfg->deadline_s > 0) r->deadline = r->received + cfg->deadline_s;
    return result;
}

/* May one more come? Where none may wait (max_queue -1) only if there is a place for its answers, or nothing else. */
static llm_result llm__request_fits(const llm_engine *e, const llm_request *r) {
    const int none = e->p.c.max_queue < 0, n = (int)e->inbox.n_fresh;
    if (none && e->inbox.n_live && e->inbox.n_live + r->sampling.best_of > e->p.c.max_num_seqs)
        return llm__error(LLM_ERR_BUSY, "no place is free: %d answers run, and none may wait", (int)e->inbox.n_live);
    if (!none && n >= e->p.c.max_queue) return llm__error(LLM_ERR_BUSY, "the queue is full: %d requests wait", (int)e->p.c.max_queue);
    if (n && e->inbox.bytes + r->bytes > LLM__QUEUE_BYTES)
        return llm__error(LLM_ERR_BUSY, "the queue is full: %d requests wait, whose prompts and answers take %d MiB", n,
                          (int)(e->inbox.bytes >> 20));
    return LLM_OK;
}

/* Into the inbox, unless too many wait already. Its number is its place in order. The stepping thread wakes if it sleeps in
 * llm_engine_wait. */
static llm_result llm__request_enqueue(llm_engine *e, llm_request *r) {
    LLM__LOCKED(&e->mutex);
    const llm_result result = llm__request_fits(e, r);
    if (result) return result;
    r->fresh = 1;
    r->refs = 2;
    r->arrival = e->inbox.n_arrived++;
    e->inbox.n_fresh++;
    e->inbox.bytes += r->bytes;
    e->inbox.n_live += r->sampling.best_of;
    if (e->inbox.last) e->inbox.last->inbox_next = r;
    else e->inbox.first = r;
    e->inbox.last = r;
    pthread_cond_signal(&e->inbox.arrived);
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__prompt_fits(const llm_engine *e, size_t len, size_t least) {
    const size_t longest = llm__tokenizer_longest(e->p.model->source.tokenizer), most = LLM__MAX((size_t)e->p.max_len * longest, least);
    if (len <= most) return LLM_OK;
    return llm__error(LLM_ERR_LIMIT, "prompt: %zu bytes of text, at most %zu were expected: a context of %d tokens, %zu bytes for each",
                      len, most, (int)e->p.max_len, longest);
}

/* All checks, all copies and all memory of a request happen here, in the caller's thread; the stepping thread only
 * links it in. So a hostile request costs its own thread time, never the others' steps. On error nothing is left. */
LLM_API llm_result llm_request_submit(llm_engine *e, const llm_request_config *cfg, llm_request **out) {
    LLM__SCOPED(llm_tokens_free) llm_tokens tokens = LLM__ZERO;
    const double begin = e->p.driver.now(e) - (cfg->received > 0 ? LLM__MAX(llm__now() - cfg->received, 0) : 0);
    *out = NULL;
    llm_result result = llm__check_sampling(&cfg->sampling, e->p.vocab);
    if (!result && cfg->sampling.grammar && cfg->sampling.grammar->tokenizer != (e->p.model ? e->p.model->source.tokenizer : NULL))
        result = llm__error(LLM_ERR_ARG, "grammar: it was compiled for another model");
    if (!result && cfg->prompt && !e->p.model) result = llm__error(LLM_ERR_ARG, "prompt: a text needs a model with a tokenizer");
    if (!result && (cfg->n_media < 0 || cfg->n_media > INT32_MAX))
        result = llm__error(LLM_ERR_ARG, "n_media: %lld", (long long)cfg->n_media);
    if (!result && cfg->prompt) result = llm__prompt_fits(e, cfg->prompt_len, 0);
    if (!result && cfg->prompt)
        result =
            llm_media_tokenize(e->p.model, cfg->prompt, cfg->prompt_len, cfg->tokenize_flags, cfg->media, (int32_t)cfg->n_media, &tokens);
    if (result) return result;
    llm_request *r = tokens.failed ? NULL : LLM__NEW(llm_request, 1);
    if (!r) return llm__nomem();
    pthread_mutex_init(&r->mutex, NULL);
    r->engine = e;
    r->received = begin;
    r->lora = -1;
    result = llm__request_fill(r, cfg, cfg->prompt ? tokens.data : cfg->prompt_ids, cfg->prompt ? tokens.len : cfg->n_prompt_ids);
    if (!result) result = llm__request_enqueue(e, r);
    if (result) llm__request_destroy(r);
    else *out = r;
    return result;
}

/* Only a flag and a wake-up: the stepping thread ends the request before it plans its next step, wherever it stands.
 * Cancelling twice, or what has ended, does nothing. */
LLM_API void llm_request_cancel(llm_request *r) {
    llm_engine *e = r->engine;
    if (llm__request_ended(r) || __atomic_exchange_n(&r->cancelled, 1, __ATOMIC_ACQ_REL)) return;
    LLM__LOCKED(&e->mutex);
    e->inbox.some_cancelled = 1;
    pthread_cond_signal(&e->inbox.arrived);
}

/* A request that still runs is cancelled, and lives on until the engine has let go of it. Taking news_mutex waits for a
 * callback that runs in the stepping thread; inside a callback it is ours already. */
LLM_API void llm_request_free(llm_request *r) {
    if (!r) return;
    llm_engine *e = r->engine;
    if (!llm__request_ended(r) || __atomic_load_n(&r->refs, __ATOMIC_ACQUIRE) > 1) { /* the engine still has it: no call back from now on */
        pthread_mutex_lock(&e->news_mutex);
        __atomic_store_n(&r->freed, 1, __ATOMIC_RELEASE);
        pthread_mutex_unlock(&e->news_mutex);
        llm_request_cancel(r);
    }
    llm__request_unref(r);
}
