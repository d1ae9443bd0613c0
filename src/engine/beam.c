#include "engine/beam.h"
#include "api/config.h"
#include "api/text.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/tokenizer.h"
#include "base/platform.h"
#include "base/log.h"
#include "tokenizer/decode.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/pages.h"
#include "engine/ends.h"
#include "engine/results.h"

/* Score of a sum of log-probabilities at a length. */
static double llm__beam_score(const llm_request *r, double sum, int32_t length) {
    return sum / pow((double)length, (double)r->sampling.length_penalty);
}

/* The best continuation of all beams that was not taken yet: its beam, or NULL. taken: (n_seqs) of each beam. */
static llm__seq *llm__beam_best(const llm_request *r, const int32_t *taken) {
    llm__seq *best = NULL;
    double best_sum = 0;
    for (int32_t i = 0; i < r->n_seqs; i++) {
        llm__seq *s = &r->seq[i];
        if (s->beam.role != LLM__BEAM_LIVE || taken[i] == s->beam.n_next) continue;
        double sum = s->output.cum_logprob + (double)s->beam.next[taken[i]].logprob;
        if (!best || sum > best_sum) best = s, best_sum = sum;
    }
    return best;
}

/* Nothing of an answer has come out yet. */
static void llm__beam_begin(llm__seq *s) {
    llm__seq_unsay(s);
    s->output.finish = LLM_FINISH_NONE;
    s->output.stop_reason = s->output.lost = NULL;
    s->output.text.failed = 0;
    s->output.stop_id = -1;
    memset(s->output.stop_state, 0, (size_t)s->request->sampling.n_stop * sizeof *s->output.stop_state);
    if (s->output.detok) llm_detok_reset(s->output.detok);
}

/* What has come out of a parent comes out of its child: tokens, text, and how far its stop strings have been read. */
static void llm__beam_copy(llm__seq *s, const llm__seq *parent) {
    const size_t n = (size_t)(parent->n_ids - parent->n_prompt);
    llm_text *text = &s->output.text;
    llm__beam_begin(s);
    memcpy(s->ids + s->n_prompt, parent->ids + s->n_prompt, n * sizeof *s->ids);
    s->n_ids = parent->n_ids;
    memcpy(s->output.shown, parent->output.shown, n * sizeof *s->output.shown);
    memcpy(s->output.stop_state, parent->output.stop_state, (size_t)s->request->sampling.n_stop * sizeof *s->output.stop_state);
    if (parent->output.text.len) llm_text_add(text, parent->output.text.data, parent->output.text.len);
    if ((s->output.detok && llm__detok_copy(s->output.detok, parent->output.detok)) || text->failed) s->output.lost = llm__out_of_memory;
}

/* A free sequence becomes the parent's continuation number `at`. Children have no pages yet. There are always free sequences: at most
 * `width` beams live, as many ends are kept, and twice as many children are made. */
static llm__seq *llm__beam_child(llm_engine *e, llm__seq *parent, int32_t at) {
    llm_request *r = parent->request;
    llm__seq *s = r->seq;
    int32_t n = parent->n_ids - parent->n_prompt, id = parent->beam.next[at].id;
    while (s->beam.role != LLM__BEAM_FREE) s++;
    s->beam.role = LLM__BEAM_CHILD;
    s->beam.parent = parent;
    s->beam.n_next = s->n_preempted = 0;
    s->pages.blocked = 0;
    s->n_scored = parent->n_scored;
    llm__beam_copy(s, parent);
    llm__seq_append(e, s, id, 0);
    s->output.cum_logprob = parent->output.cum_logprob + (double)parent->beam.next[at].logprob;
    s->beam.score = llm__beam_score(r, s->output.cum_logprob, s->n_ids - llm__is_eos(e, r, n + 1, id));
    if (!s->output.logprobs) return s;
    memcpy(s->output.logprobs, parent->output.logprobs, (size_t)n * sizeof *s->output.logprobs);
    s->output.logprobs[n] = parent->beam.next_raw[at];
    memcpy(s->output.top_counts, parent->output.top_counts, (size_t)(n + 1) * sizeof *s->output.top_counts);
    memcpy(s->output.top, parent->output.top, (size_t)(n + 1) * (size_t)r->top_stride * sizeof *s->output.top);
    return s;
}

/* An ended child joins the pool, which keeps its `width` best; on a tie the earlier one stays. */
static void llm__beam_keep(llm_request *r, llm__seq *child) {
    llm__seq *worst = child;
    int32_t n = 0;
    child->beam.role = LLM__BEAM_POOL;
    for (int32_t i = 0; i < r->n_seqs; i++) {
        if (r->seq[i].beam.role != LLM__BEAM_POOL) continue;
        n++;
        if (r->seq[i].beam.score < worst->beam.score) worst = &r->seq[i];
    }
    if (n > r->sampling.best_of) worst->beam.role = LLM__BEAM_FREE;
}

/* 1 if no continuation of `best`, the likeliest child that lives, can still change the pool. */
static int llm__beams_decided(const llm_engine *e, const llm_request *r, const llm__seq *best) {
    double worst = INFINITY;
    int32_t n = 0, length;
    for (int32_t i = 0; i < r->n_seqs; i++)
        if (r->seq[i].beam.role == LLM__BEAM_POOL) worst = LLM__MIN(worst, r->seq[i].beam.score), n++;
    if (!best || n < r->sampling.best_of) return !best;
    length = r->sampling.early_stopping == 2 && r->sampling.length_penalty > 0 ? e->p.max_len : best->n_ids;
    return r->sampling.early_stopping == 1 || worst >= llm__beam_score(r, best->output.cum_logprob, length);
}

/* The search is over: the pool holds the answers. */
static void llm__beams_end(llm_engine *e, llm_request *r) {
    for (int32_t i = 0; i < r->n_seqs; i++) {
        llm__seq *s = &r->seq[i];
        const int answer = s->beam.role == LLM__BEAM_POOL;
        if (!answer) s->beam.score = -INFINITY, llm__beam_begin(s);
        llm__seq_finish(e, s, answer ? s->output.finish : LLM_FINISH_STOP);
    }
}

/* Hands a beam's pages to those of its children that live on; the last takes them over, so nothing is copied where
 * there is only one. A beam that gave way while it waited for the others has none: its children queue. */
static void llm__beam_replace(llm_engine *e, llm__seq *parent) {
    llm_request *r = parent->request;
    llm__seq *last = NULL;
    for (int32_t i = 0; i < r->n_seqs; i++) {
        llm__seq *s = &r->seq[i];
        if (s->beam.role != LLM__BEAM_CHILD || s->beam.parent != parent) continue;
        if (last) llm__fork(e, parent, last, 0);
        last = s;
    }
    if (parent->state == LLM__SEQ_RUNNING) llm__running_take(e, parent);
    if (last) llm__fork(e, parent, last, 1);
    llm__seq_release(e, parent);
    parent->beam.role = LLM__BEAM_FREE;
    parent->beam.n_next = 0;
}

LLM__PRIVATE void llm__beams_advance(llm_engine *e, llm_request *r, double now) {
    int32_t taken[4 * LLM__BEAMS_MAX], width = r->sampling.best_of, n_live = 0;
    llm__seq *best = NULL, *parent;
    memset(taken, 0, sizeof taken);
    for (int32_t i = 0; i < r->n_seqs; i++)
        if (r->seq[i].beam.role == LLM__BEAM_LIVE && !r->seq[i].beam.n_next) return;
    for (int32_t i = 0; i < 2 * width && (parent = llm__beam_best(r, taken)) != NULL; i++) {
        llm__seq *s = llm__beam_child(e, parent, taken[parent->index]++);
        if (s->output.finish) llm__beam_keep(r, s);
        else if (n_live++ >= width) s->beam.role = LLM__BEAM_FREE;
        else if (!best) best = s;
    }
    e->count.generation_tokens += LLM__MIN(n_live, width);
    pthread_mutex_lock(&r->mutex);
    llm__note_time(r, now);
    pthread_mutex_unlock(&r->mutex);
    if (llm__beams_decided(e, r, best)) {
        llm__beams_end(e, r);
        return;
    }
    for (int i = 0; i < 2; i++) /* those without children first: they make room */
        for (int32_t k = 0, children; k < r->n_seqs; k++) {
            if (r->seq[k].beam.role != LLM__BEAM_LIVE) continue;
            children = 0;
            for (int32_t c = 0; c < r->n_seqs; c++)
                children += r->seq[c].beam.role == LLM__BEAM_CHILD && r->seq[c].beam.parent == &r->seq[k];
            if (i || !children) llm__beam_replace(e, &r->seq[k]);
        }
    for (int32_t k = 0; k < r->n_seqs; k++)
        if (r->seq[k].beam.role == LLM__BEAM_CHILD) r->seq[k].beam.role = LLM__BEAM_LIVE;
}
