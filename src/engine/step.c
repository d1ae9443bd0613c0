#include "engine/step.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/backend.h"
#include "base/platform.h"
#include "vision/vision.h"
#include "grammar/grammar.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/pooling.h"
#include "engine/sight.h"
#include "engine/pages.h"

LLM__PRIVATE llm__rules llm__seq_rules(const llm_engine *e, const llm__seq *s) {
    const llm_request *r = s->request;
    llm__rules rules;
    rules.s = &r->sampling;
    rules.eos = e->p.eos;
    rules.n_eos = e->p.n_eos;
    rules.bad = r->bad.n ? &r->bad : NULL;
    rules.history = &s->history;
    rules.output = s->ids + s->n_prompt;
    rules.n_said = rules.n_output = s->n_ids - s->n_prompt;
    rules.allowed = r->only;
    return rules;
}

LLM__PRIVATE int llm__seq_allowed(const llm_engine *e, const llm__seq *s, int32_t n_draft, int kept, llm__rules *rules, uint32_t *words) {
    int can_end;
    int32_t n = llm__matcher_mask(s->matcher, s->draft.ids, n_draft, words, ((size_t)e->p.vocab + 31) / 32, kept, &can_end);
    for (int32_t i = 0; i < e->p.n_eos + rules->s->n_stop_token_ids; i++) {
        int32_t id = i < e->p.n_eos ? e->p.eos[i] : rules->s->stop_token_ids[i - e->p.n_eos];
        if (id < 0 || id >= e->p.vocab) continue;
        if (can_end) words[id / 32] |= 1u << id % 32;
        else if (i < e->p.n_eos && n > 0 && words[id / 32] >> id % 32 & 1) n--, words[id / 32] &= ~(1u << id % 32); /* not in free text */
    }
    if (!n) rules->n_output = INT32_MAX;
    for (size_t i = 0; rules->allowed && i < ((size_t)e->p.vocab + 31) / 32; i++) words[i] &= rules->allowed[i];
    rules->allowed = words;
    return n < 0 ? -1 : n > 0 || can_end;
}

/* Lets the device draw the sequence's next token where its logits and what llm_draw can say decide about it. Returns 1 if so. What the
 * answer's text then does (stop strings, early stop) is found when the token comes. */
static int llm__draw_ahead(llm_engine *e, const llm__seq *s, int32_t out_row) {
    const llm_sampling *p = &s->request->sampling;
    llm_draw *d = &e->step.draws[out_row];
    int32_t n = s->n_ids + s->n_ahead - s->n_prompt;
    llm__rules rules = llm__seq_rules(e, s);
    if (!e->p.lag || e->p.n_draft || s->draft.n || p->use_beam_search || s->request->bad.n || n < p->min_tokens || s->think.state) return 0;
    if (s->matcher && llm__seq_allowed(e, s, 0, 1, &rules, e->step.masks + (size_t)out_row * (((size_t)e->p.vocab + 31) / 32)) <= 0)
        return 0;
    d->allowed = rules.allowed;
    d->used = s->history.id;
    d->counts = s->history.count;
    d->n_used = s->history.mask ? s->history.n : 0;
    if (d->n_used + p->n_logit_bias > LLM_DRAW_CHANGES / e->p.max_out) return 0;
    d->wanted = 1;
    d->sampling = p;
    d->seed = s->seed;
    d->position = n;
    d->row = s->output.top != NULL || s->request->n_seqs > 1; /* top log-probabilities; choices that fork draw from this row too */
    return 1;
}

LLM__PRIVATE llm__job *llm__add_job(llm__flight *f, llm__seq *s, int32_t out_row, int32_t scored) {
    llm__job *job = &f->jobs[f->n_jobs++];
    memset(job, 0, sizeof *job);
    job->seq = s;
    job->out_row = out_row;
    job->scored = scored;
    f->pools |= s->request->pooling.kind != 0;
    return job;
}

/* The last row of an entry asks for the next token. If the device draws it and the answer may go on behind it, the
 * next step can be planned with it: the sequence is one token longer than its ids. Not of a pipeline, see >>scheduler. */
static void llm__fill_choice(llm_engine *e, llm__flight *f, llm__seq *s, int32_t out_row) {
    llm__job *job = llm__add_job(f, s, out_row, -1);
    job->drawn = llm__draw_ahead(e, s, out_row);
    const int forks = e->p.recurrent && s->request->n_seqs > 1; /* others will need the state as it is now */
    if (!job->drawn || s->matcher || forks || e->p.c.pipeline_parallel_size > 1 || s->n_ids + s->n_ahead + 1 >= s->n_prompt + s->max_new)
        return;
    s->n_ahead++;
    s->ahead_row = out_row;
}

LLM__PRIVATE void llm__step_row(llm_engine *e, int32_t row, int32_t i, int32_t position, int32_t token, int32_t from) {
    const int32_t stride = e->p.c.max_num_batched_tokens;
    const llm__vision *v = e->sight.vision;
    LLM__ASSERT(token >= 0 && token < e->p.vocab);
    e->step.tokens[row] = token;
    for (int k = 0; k < 3; k++) e->step.positions[k * stride + row] = position;
    e->step.given[row] = NULL;
    e->step.spans[row] = 0;
    e->step.spans[stride + row] = position + 1;
    e->step.row_set[row] = v ? llm__vision_set(v, token) : 0;
    e->step.seq_of_row[row] = i;
    e->step.token_from[row] = from;
}

LLM__PRIVATE void llm__step_seq(llm_engine *e, int32_t i, const llm__seq *s, int32_t row, int32_t n) {
    e->step.seq_begin[i] = row;
    e->step.seq_len[i] = n;
    e->step.seq_rope[i] = s->request->rope.variant;
    e->step.seq_rope_base[i] = s->request->rope.base;
    e->step.seq_lora[i] = s->request->lora;
    memcpy(e->step.pages + (int64_t)i * e->max_pages, s->pages.id, (size_t)llm__pages_of(e, n) * sizeof *s->pages.id);
}

/* The rows of entry i, drafts behind its tokens, in the step's arrays from row `row` on, and the jobs for those whose logits are wanted.
 * From here on its tokens count as fed. Returns the next row. */
static int32_t llm__fill_entry(llm_engine *e, llm__flight *f, int32_t i, int32_t row, int32_t *n_out) {
    llm__entry *p = &f->entry[i];
    llm__seq *s = p->seq;
    int32_t begin = s->n_fed, end = begin + s->n_chunk, left = llm__seq_left(s) - s->n_chunk;
    int32_t drafts_end = end + s->draft.n, first = LLM__MAX(s->n_scored, s->request->prompt.score_from);
    llm__step_seq(e, i, s, row, drafts_end);
    e->step.seq_keep[i] = s->n_chunk;
    p->end = end;
    p->out_row = -1;
    f->n_prompt_rows += LLM__MAX(0, LLM__MIN(end, s->n_prompt) - begin);
    s->n_fed = end;
    s->n_again = LLM__MAX(0, s->n_again - s->n_chunk);
    for (int32_t at = begin; at < drafts_end; at++, row++) {
        int draft = at >= end, ahead = !draft && at >= s->n_ids, score = at >= first && at < s->request->prompt.score_end;
        llm__step_row(e, row, i, at, draft ? s->draft.ids[at - end] : ahead ? 0 : s->ids[at], ahead ? s->ahead_row : -1);
        llm__pooling_type(e, s, at, row);
        llm__sight_row(e, s, at, row);
        if (!draft && !score && (at + 1 < end || left || s->request->score_only)) continue;
        e->step.out_rows[*n_out] = row;
        memset(&e->step.draws[*n_out], 0, sizeof *e->step.draws);
        if (score) llm__add_job(f, s, *n_out, at + 1);
        else if (!draft) llm__fill_choice(e, f, s, p->out_row = *n_out);
        ++*n_out;
    }
    return row;
}

/* Puts sequences of one adapter side by side, those without one first, else in the order they had: a product serves all of them. */
static void llm__group_loras(llm__flight *f) {
    for (int32_t i = 1; i < f->n; i++) {
        llm__entry entry = f->entry[i];
        int32_t at = i;
        for (; at > 0 && f->entry[at - 1].seq->request->lora > entry.seq->request->lora; at--) f->entry[at] = f->entry[at - 1];
        f->entry[at] = entry;
    }
}

LLM__PRIVATE void llm__step_over(llm_engine *e, llm_step *step, int32_t n_rows, int32_t n_seqs, int32_t n_out) {
    const int32_t stride = e->p.c.max_num_batched_tokens;
    const size_t bytes = (size_t)n_rows * sizeof *e->step.positions;
    memset(step, 0, sizeof *step);
    for (int k = 1; k < 3; k++) memmove(e->step.positions + k * n_rows, e->step.positions + k * stride, bytes);
    memmove(e->step.spans + n_rows, e->step.spans + stride, bytes);
    e->step.seq_begin[n_seqs] = n_rows;
    step->shape.n_rows = n_rows;
    step->shape.n_seqs = n_seqs;
    step->shape.n_out = n_out;
    step->tokens = e->step.tokens;
    step->positions = e->step.positions;
    step->n_position_rows = e->sight.position_rows == 3 ? 3 : 1;
    step->shape.given = e->step.any_given;
    step->given = e->step.any_given ? e->step.given : NULL;
    step->spans = e->step.any_spans ? e->step.spans : NULL;
    step->row_set = e->sight.vision && e->sight.vision->n_set_ids ? e->step.row_set : NULL;
    e->step.any_given = e->step.any_spans = 0;
    step->seq_of_row = e->step.seq_of_row;
    step->seq_begin = e->step.seq_begin;
    step->seq_len = e->step.seq_len;
    step->seq_rope = e->step.seq_rope;
    step->seq_rope_base = e->step.seq_rope_base;
    step->seq_lora = e->step.seq_lora;
    step->pages = e->step.pages;
    step->page_stride = e->max_pages;
    step->out_rows = e->step.out_rows;
}

LLM__PRIVATE void llm__fill_step(llm_engine *e, llm__flight *f, llm_step *step) {
    int32_t row = 0, n_out = 0, lora = 0;
    f->n_jobs = f->n_prompt_rows = f->pools = 0;
    if (e->p.n_loras) llm__group_loras(f);
    for (int32_t i = 0; i < f->n; i++) {
        row = llm__fill_entry(e, f, i, row, &n_out);
        lora |= e->step.seq_lora[i] >= 0;
    }
    llm__step_over(e, step, row, f->n, n_out);
    step->shape.lora = lora;
    step->seq_keep = e->p.recurrent ? e->step.seq_keep : NULL;
    step->token_from = e->p.lag ? e->step.token_from : NULL;
    step->draws = e->p.lag ? e->step.draws : NULL;
}
