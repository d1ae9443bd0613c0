#include "engine/results.h"
#include "api/config.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/tokenizer.h"
#include "api/grammar.h"
#include "base/platform.h"
#include "base/log.h"
#include "engine/sampler.h"
#include "engine/earlystop.h"
#include "engine/kv.h"
#include "engine/scheduler.h"
#include "engine/pages.h"
#include "engine/step.h"
#include "engine/ends.h"
#include "engine/thoughts.h"

LLM__PRIVATE int llm__has_id(const int32_t *ids, int32_t n, int32_t id) {
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id) return 1;
    return 0;
}

/* Before min_tokens what ends an answer is banned, but where a grammar's text is complete and nothing else can come: llm__seq_allowed. */
static int llm__may_end(const llm_request *r, int32_t n) { return n >= r->sampling.min_tokens || r->sampling.grammar; }

LLM__PRIVATE int llm__is_eos(const llm_engine *e, const llm_request *r, int32_t n, int32_t id) {
    return llm__may_end(r, n) && !r->sampling.ignore_eos && llm__has_id(e->p.eos, e->p.n_eos, id);
}

/* The same for the request's own stop ids. */
static int llm__is_stop(const llm_request *r, int32_t n, int32_t id) {
    return llm__may_end(r, n) && llm__has_id(r->sampling.stop_token_ids, r->sampling.n_stop_token_ids, id);
}

LLM__PRIVATE int32_t llm__stop_feed(const llm__stop *p, int32_t state, char c) {
    while (state > 0 && (state == p->len || p->text[state] != c)) state = p->border[state - 1];
    return p->text[state] == c ? state + 1 : 0;
}

LLM__PRIVATE int32_t llm__find_stop(llm__seq *s, size_t from, int allowed) {
    const llm_request *r = s->request;
    for (int32_t i = 0; i < r->sampling.n_stop; i++)
        for (size_t at = from; at < s->output.text.len; at++) {
            s->output.stop_state[i] = llm__stop_feed(&r->stop[i], s->output.stop_state[i], s->output.text.data[at]);
            if (s->output.stop_state[i] < r->stop[i].len || !allowed) continue;
            s->output.text.len = at + 1 - (r->sampling.include_stop_str_in_output ? 0 : (size_t)r->stop[i].len);
            s->output.text.data[s->output.text.len] = 0;
            return i;
        }
    return -1;
}

LLM__PRIVATE size_t llm__showable(const llm__seq *s) {
    const llm_request *r = s->request;
    int32_t held = 0;
    if (s->output.finish) return s->output.text.len;
    for (int32_t i = 0; i < r->sampling.n_stop && !r->sampling.include_stop_str_in_output; i++) {
        int32_t state = s->output.stop_state[i];
        if (state == r->stop[i].len) state = r->stop[i].border[state - 1]; /* found, but min_tokens forbade it */
        held = LLM__MAX(held, state);
    }
    size_t n = s->output.text.len - (size_t)held;
    while (held && n > 0 && ((uint8_t)s->output.text.data[n] & 0xC0) == 0x80) n--;
    return n;
}

LLM__PRIVATE llm_finish llm__seq_append(llm_engine *e, llm__seq *s, int32_t id, int early) {
    llm_request *r = s->request;
    int32_t n = s->n_ids + 1 - s->n_prompt; /* output tokens, this one included */
    int full = n >= s->max_new, eos = early || llm__is_eos(e, r, n, id), stop = !eos && llm__is_stop(r, n, id);
    size_t from = s->output.text.len;
    llm_result said = LLM_OK;
    s->ids[s->n_ids++] = id;
    int repeats =
        n >= r->sampling.min_tokens && !(full || eos || stop) && llm__repeats(&r->sampling.repetition_detection, s->ids + s->n_prompt, n);
    if (s->output.detok && (!(eos || stop) || (r->sampling.include_stop_str_in_output && !early)))
        said = llm_detok_push(s->output.detok, id, &s->output.text);
    int32_t found = llm__find_stop(s, from, n >= r->sampling.min_tokens && !eos && !stop);
    if (stop) s->output.stop_id = id;
    if (early && !full) s->output.stop_reason = "repetition";
    if (repeats) s->output.stop_reason = "repetition_detected";
    if (found >= 0) s->output.stop_reason = r->sampling.stop[found];
    if (found < 0 && s->output.detok && (eos || stop || full || repeats) && !said) said = llm_detok_flush(s->output.detok, &s->output.text);
    if (said) s->output.lost = llm__out_of_memory;
    if (s->output.lost) s->output.finish = LLM_FINISH_ERROR;
    else if (early && full) s->output.finish = LLM_FINISH_LENGTH;
    else if (eos || stop || found >= 0) s->output.finish = LLM_FINISH_STOP;
    else if (full) s->output.finish = LLM_FINISH_LENGTH;
    else if (repeats) s->output.finish = LLM_FINISH_REPETITION;
    s->output.shown[n - 1] = llm__showable(s);
    return s->output.finish;
}

LLM__PRIVATE void llm__note_time(llm_request *r, double now) {
    r->metrics.model_forward_time = now - r->started;
    r->metrics.model_execute_time = now - r->received;
    if (r->metrics.first_token_time <= 0) r->metrics.first_token_time = LLM__MAX(now - r->started, 1e-9); /* 0 is: not yet */
}

LLM__PRIVATE int32_t llm__seq_accept(llm_engine *e, const llm__job *job, double now) {
    llm__seq *s = job->seq;
    llm_request *r = s->request;
    llm__choice c = job->choice;
    int32_t n = s->n_ids - s->n_prompt;
    int early = llm__early_hit(&r->sampling.early_stop, &s->early_count, c.prob);
    early = early && !llm__is_eos(e, r, n + 1, c.id) && !llm__is_stop(r, n + 1, c.id);
    if (early && e->p.eos_id >= 0 && e->p.eos_id < e->p.vocab) c.id = e->p.eos_id; /* its log-probability stays the sampled token's */
    if (s->matcher && !llm__has_id(e->p.eos, e->p.n_eos, c.id) &&
        !llm__has_id(r->sampling.stop_token_ids, r->sampling.n_stop_token_ids, c.id) && llm_matcher_token(s->matcher, c.id))
        s->output.lost = s->matcher->failed ? s->matcher->failed : "the grammar refuses what its mask allowed";
    pthread_mutex_lock(&r->mutex);
    llm__note_time(r, now);
    if (s->output.logprobs) s->output.logprobs[n] = c.logprob;
    s->output.cum_logprob += (double)c.logprob;
    llm_finish finish = llm__seq_append(e, s, c.id, early);
    pthread_mutex_unlock(&r->mutex);
    if (s->n_ahead) s->n_ahead--;
    llm__history_add(&s->history, c.id, 1);
    llm__think_note(s);
    e->count.generation_tokens++;
    if (finish) llm__seq_finish(e, s, finish);
    llm__note_news(e, r);
    return c.id;
}

/* Log-probability of a prompt token and its rank, from the row before it. 0: the logits are not finite. */
static int llm__score_prompt(llm_engine *e, const llm__seq *s, int32_t at, const float *row, llm__scratch *k) {
    llm_request *r = s->request;
    int bad;
    float max = k->kernels->top(row, e->p.vocab, &bad);
    if (bad) return 0;
    double log_sum = (double)max + log(k->kernels->weigh(row, k->w, e->p.vocab, max, 1.0f));
    const float own = row[s->ids[at]];
    int32_t rank = 1;
    for (int32_t i = 0; i < e->p.vocab; i++) rank += row[i] > own;
    r->prompt.ranks[at] = rank;
    r->prompt.logprobs[at] = (float)((double)own - log_sum);
    r->prompt.top_counts[at] =
        llm__top_logprobs(row, e->p.vocab, r->prompt.top_stride, log_sum, r->prompt.top + (int64_t)at * r->prompt.top_stride);
    return 1;
}

/* One row of logits: a token chosen, a beam's candidates, or a prompt token scored. Runs on any thread; writes to its
 * job and rows of its own only. */
static void llm__run_job(llm_engine *e, llm__job *job, llm__scratch *k) {
    llm__seq *s = job->seq;
    const llm_request *r = s->request;
    const float *row = r->pooling.kind ? NULL : e->backend->logits_row(e->ctx, job->out_row);
    int32_t n = s->n_ids - s->n_prompt;
    llm__rules rules = llm__seq_rules(e, s);
    if (s->state == LLM__SEQ_DONE) return;
    if (job->scored >= 0) {
        job->choice.id = r->pooling.kind || llm__score_prompt(e, s, job->scored, row, k) ? 0 : LLM__CHOICE_NOT_FINITE;
        return;
    }
    if (job->drawn) {
        job->choice = *e->backend->drawn(e->ctx, job->out_row);
    } else if (r->sampling.use_beam_search) {
        job->choice = llm__candidates(row, e->p.vocab, &rules, 2 * r->sampling.best_of, k, s->beam.next, s->beam.next_raw, &s->beam.n_next);
    } else {
        const int allowed = s->matcher ? llm__seq_allowed(e, s, 0, 0, &rules, k->allowed) : 1;
        llm__think_narrow(s, &rules, k->allowed, ((size_t)e->p.vocab + 31) / 32);
        job->choice.id = allowed ? LLM__CHOICE_GAVE_UP : LLM__CHOICE_FORBIDDEN;
        if (allowed <= 0) return;
        job->choice = llm__choose(row, e->p.vocab, &rules, s->seed, n, k);
    }
    if (job->choice.id < 0 || !s->output.top) return;
    llm_token_logprob *top = s->output.top + (int64_t)n * r->top_stride;
    const int32_t n_ids = r->sampling.n_logprob_token_ids;
    s->output.top_counts[n] = n_ids ? llm__logprobs_of(row, r->sampling.logprob_token_ids, n_ids, job->choice.log_sum, top)
                                    : llm__top_logprobs(row, e->p.vocab, r->top_stride, job->choice.log_sum, top);
}

LLM__PRIVATE void llm__run_jobs(void *arg, int worker) {
    llm_engine *e = (llm_engine *)arg;
    for (int i; (i = __atomic_fetch_add(&e->flights.next_job, 1, __ATOMIC_RELAXED)) < e->flights.applied->n_jobs;)
        llm__run_job(e, &e->flights.applied->jobs[i], &e->scratch[worker]);
}

LLM__PRIVATE void llm__on_threads(llm_engine *e, void (*fn)(void *arg, int i), int32_t n_jobs) {
    const int n = LLM__MIN(e->p.c.n_threads, n_jobs);
    if (e->backend->parallel && n > 1) e->backend->parallel(e->ctx, fn, e, n);
    else
        for (int i = 0; i < n; i++) fn(e, i);
}

LLM__PRIVATE int llm__fork(llm_engine *e, const llm__seq *from, llm__seq *s, int give_up) {
    int32_t n = give_up ? llm__pages_of(e, from->n_computed) : from->n_computed / e->kv.page_tokens, copy = -1;
    int runs = from->pages.n > 0 && e->running.n < e->p.c.max_num_seqs;
    if (runs && n < llm__pages_of(e, from->n_computed)) {
        copy = llm__kv_get(&e->kv);
        runs = copy >= 0 && !e->backend->kv_copy(e->ctx, &from->pages.id[n], &copy, 1);
        if (copy >= 0 && !runs) llm__kv_drop(&e->kv, copy);
    }
    if (!runs) {
        llm__queue_put(e, s);
        return 0;
    }
    for (s->pages.n = 0; s->pages.n < n; s->pages.n++) {
        s->pages.id[s->pages.n] = from->pages.id[s->pages.n];
        llm__kv_hold(&e->kv, s->pages.id[s->pages.n]);
    }
    if (copy >= 0) s->pages.id[s->pages.n++] = copy;
    s->n_fed = s->n_computed = from->n_computed;
    s->draft.n_computed = from->draft.n_computed;
    s->pages.n_published = from->pages.n_published;
    s->pages.key = from->pages.key;
    llm__running_put(e, s);
    return 1;
}

LLM__PRIVATE void llm__fork_choices(llm_engine *e, llm__flight *f, const llm__entry *p) {
    llm_request *r = p->seq->request;
    for (int32_t i = 1; i < r->n_seqs; i++)
        if (r->seq[i].state == LLM__SEQ_HELD && llm__fork(e, p->seq, &r->seq[i], 0)) llm__add_job(f, &r->seq[i], p->out_row, -1);
}
