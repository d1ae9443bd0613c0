#include "engine/apply.h"
#include "api/config.h"
#include "api/engine.h"
#include "api/request.h"
#include "base/platform.h"
#include "engine/sampler.h"
#include "engine/speculate.h"
#include "engine/scheduler.h"
#include "engine/pooling.h"
#include "engine/pages.h"
#include "engine/ends.h"
#include "engine/results.h"
#include "engine/beam.h"

/* Books what an entry computed: full pages are published, a prompt's other choices fork. An ended sequence only gives
 * its pages back, when no step names them any more: the row that was computed in vain is never published. */
static void llm__apply_entry(llm_engine *e, llm__flight *f, const llm__entry *p) {
    llm__seq *s = p->seq;
    llm_request *r = s->request;
    s->n_flight--;
    r->n_flight--;
    if (s->state == LLM__SEQ_DONE) {
        if (!s->n_flight) llm__seq_release(e, s);
        if (!r->n_flight) llm__note_news(e, r); /* it could not leave before */
        return;
    }
    if (s->n_ids == s->n_prompt) e->count.prompt_tokens += LLM__MIN(p->end, s->n_prompt) - s->n_computed;
    s->n_computed = p->end;
    llm__seq_publish(e, s);
    if (s->index == 0 && s->n_ids == s->n_prompt && s->n_computed == s->n_prompt && !r->sampling.use_beam_search)
        llm__fork_choices(e, f, p);
}

/* After a token was accepted: was it the drafted one? Then its keys and values are in pages, as if it had been fed (but not what it makes
 * of a recurrent state), and the row behind this one says what follows. Returns 1 if so, and the answer goes on; the job then stands at
 * that row. */
static int llm__draft_kept(llm_engine *e, llm__job *job, int32_t id) {
    llm__seq *s = job->seq;
    int kept = job->n_kept < s->draft.n && s->draft.ids[job->n_kept] == id;
    if (kept) e->count.accepted_per_position[job->n_kept++]++;
    if (kept && s->state == LLM__SEQ_RUNNING) {
        /* a draft model has fed all of its draft but the last; an EAGLE head reads these again, with the model's own hidden states */
        s->draft.n_computed += !s->draft.by_grammar && !e->drafter.eagle && job->n_kept < s->draft.n;
        if (e->p.recurrent) s->n_again++;
        else s->n_computed = ++s->n_fed, llm__seq_publish(e, s);
        job->out_row++;
        return 1;
    }
    if (s->draft.n) {
        e->count.drafts++;
        e->count.draft_tokens += s->draft.n;
        e->count.accepted_tokens += job->n_kept;
        s->draft.chance = llm__chance_after(s->draft.chance, s->draft.n - s->draft.n_sure, job->n_kept - s->draft.n_sure);
    }
    s->draft.n = 0;
    return 0;
}

/* Uses what a job has found. Returns 1 if it is to be run again, on the row behind. */
static int llm__use_job(llm_engine *e, llm__job *job, double now) {
    llm__seq *s = job->seq;
    llm_request *r = s->request;
    if (s->state == LLM__SEQ_DONE) return 0; /* ended while the step was in flight, or failed in an earlier row */
    if (job->choice.id == LLM__CHOICE_FORBIDDEN)
        llm__request_end(e, r, LLM_FINISH_ERROR,
                         r->only    ? "allowed_token_ids: none of them can come next"
                         : r->bad.n ? "bad_words: they forbid all that the grammar lets come next"
                                    : "the grammar leaves no token that could come next");
    else if (job->choice.id == LLM__CHOICE_GAVE_UP) s->output.lost = s->matcher->failed, llm__seq_finish(e, s, LLM_FINISH_ERROR);
    else if (job->choice.id < 0) llm__request_end(e, r, LLM_FINISH_ERROR, "the model's logits are not finite");
    else if (r->pooling.kind && !llm__pooling_row(e, r, job))
        llm__request_end(e, r, LLM_FINISH_ERROR, "the model's hidden states are not finite");
    else if (job->scored >= 0) s->n_scored = job->scored;
    else if (r->sampling.use_beam_search) llm__beams_advance(e, r, now);
    else return llm__draft_kept(e, job, llm__seq_accept(e, job, now));
    return 0;
}

/* What a row costs in a chunk of a prompt: half of what is known comes from the latest. */
static void llm__budget_note(llm_engine *e, const llm__flight *f) {
    const double row = f->seconds / f->n_rows, piece = f->longest / f->n_rows;
    e->budget.row = e->budget.row > 0 ? (e->budget.row + row) / 2 : row;
    e->budget.piece = e->budget.piece > 0 ? (e->budget.piece + piece) / 2 : piece;
}

LLM__PRIVATE void llm__apply(llm_engine *e, llm__flight *f) {
    for (int32_t i = 0; i < f->n; i++) llm__apply_entry(e, f, &f->entry[i]);
    e->flights.applied = f;
    const double began = e->p.driver.now(e);
    double now;
    do {
        int32_t n_again = 0;
        e->flights.next_job = 0;
        llm__on_threads(e, llm__run_jobs, f->n_jobs);
        now = e->p.driver.now(e);
        for (int32_t i = 0; i < f->n_jobs; i++)
            if (llm__use_job(e, &f->jobs[i], now)) f->jobs[n_again++] = f->jobs[i];
        f->n_jobs = n_again;
    } while (f->n_jobs);
    const double took = f->seconds + (now - began);
    if (!f->n_prompt_rows && !f->dropped) llm__pace_note(&e->pace, f->n_rows, took);
    if (f->n_prompt_rows && !f->dropped) {
        e->prompt_seconds = took;
        llm__budget_note(e, f);
    }
    for (int32_t i = 0; i < f->n; i++) {
        llm__seq *s = f->entry[i].seq;
        if (s->request->score_only && s->state == LLM__SEQ_RUNNING && s->n_computed == s->n_ids) llm__seq_finish(e, s, LLM_FINISH_LENGTH);
    }
}
