#include "engine/plan.h"
#include "api/engine.h"
#include "api/request.h"
#include "base/platform.h"
#include "base/threads.h"
#include "grammar/grammar.h"
#include "engine/kv.h"
#include "engine/speculate.h"
#include "engine/scheduler.h"
#include "engine/sight.h"
#include "engine/pages.h"

/* Out rows that the next n rows of a sequence ask for: one for each prompt token to be scored (the row before it
 * tells) or pooled, one for the next token if these rows are the last. */
static int32_t llm__rows_out(const llm__seq *s, int32_t n) {
    const llm_request *r = s->request;
    int32_t last = n == llm__seq_left(s) && !r->score_only;
    int32_t scored = LLM__MIN(s->n_fed + n, r->prompt.score_end) - LLM__MAX(LLM__MAX(s->n_fed, s->n_scored), r->prompt.score_from);
    return LLM__MAX(scored, 0) + last;
}

/* Adds as many of a sequence's rows to the step as budget and output rows allow, perhaps none. A prompt that is scored asks for a row of
 * logits for each of its rows, so max_out limits its chunks: echo never holds tokens x vocabulary. */
static void llm__plan_rows(llm_engine *e, llm__flight *f, llm__seq *s) {
    int32_t n = llm__goes_on(e, s) ? LLM__MIN(llm__seq_left(s), e->budget.rows - f->n_rows) : 0, over;
    s->n_chunk = 0;                                                     /* of one that has just come back it is what it was before */
    if (e->p.c.disable_chunked_prefill && n < llm__seq_left(s)) return; /* all of a prompt, or it waits */
    n = llm__sight_may_feed(e, s, n);
    while (n > 0 && (over = llm__rows_out(s, n) - (e->p.max_out - f->n_out)) > 0) n = llm__sight_may_feed(e, s, n - over);
    if (n <= 0 || (e->p.c.disable_chunked_prefill && n < llm__seq_left(s) && !s->request->prompt.score_end)) return;
    f->entry[f->n++].seq = s;
    f->n_rows += n;
    f->n_out += llm__rows_out(s, n);
    s->n_chunk = n;
    s->draft.n = 0;
}

LLM__PRIVATE void llm__leave_queue(llm_engine *e, llm_request *r) {
    if (!r->fresh) return;
    r->fresh = 0;
    LLM__LOCKED(&e->mutex);
    e->inbox.n_fresh--;
    e->inbox.bytes -= r->bytes;
}

/* The first step of a request: queue time and cache hit are known now. Choices that follow later, and sequences that
 * come back, change nothing. */
static void llm__start_request(llm_engine *e, llm__seq *s) {
    llm_request *r = s->request;
    if (!r->fresh) return;
    llm__leave_queue(e, r);
    e->count.cached_tokens += s->n_computed;
    LLM__LOCKED(&r->mutex);
    r->started = e->now;
    r->metrics.inference_start_time = r->metrics.arrival_time + (r->started - r->received);
    r->metrics.time_in_queue = r->started - r->submitted;
    r->metrics.n_cached_tokens = s->n_computed;
}

/* 1 if new prompts may join in this step. They need not wait where nothing runs: vLLM's scheduler_delay_factor lets a
 * queue gather while others decode, LMDeploy's prefill_interval keeps steps short that only decode. */
static int llm__admits(const llm_engine *e) {
    if (!e->waiting.first || e->running.n >= e->p.c.max_num_seqs) return 0;
    if (!e->running.n) return 1;
    if (e->since_admission + 1 < e->p.c.prefill_interval) return 0;
    const double factor = (double)e->p.c.scheduler_delay_factor;
    return factor <= 0 || e->now - e->waiting.first->request->submitted > factor * e->prompt_seconds;
}

/* 1 if a sequence's adapter computes already, or may join those that do. */
static int llm__lora_fits(const llm_engine *e, const llm__seq *s) {
    int32_t n = 0, own = s->request->lora;
    for (int32_t i = 0; i < e->running.n && own >= 0; i++) {
        int32_t other = e->running.seq[i]->request->lora, known = other < 0;
        if (other == own) return 1;
        for (int32_t k = 0; k < i && !known; k++) known = e->running.seq[k]->request->lora == other;
        n += !known;
    }
    return own < 0 || n < e->p.c.max_loras;
}

/* Lets waiting sequences in while there is a place, pages and budget. Strictly in order: if the first does not fit,
 * nobody passes it, or a long prompt would never get its turn. */
static void llm__admit(llm_engine *e, llm__flight *f) {
    while (e->waiting.first && e->running.n < e->p.c.max_num_seqs && f->n_rows < e->budget.rows && f->n_out < e->p.max_out) {
        llm__seq *s = e->waiting.first;
        if (!llm__lora_fits(e, s) || !llm__seq_place(e, s)) return;
        llm__queue_take(e, s);
        llm__running_put(e, s);
        llm__start_request(e, s);
        llm__plan_rows(e, f, s);
        e->since_admission = -1;
    }
}

/* Pages for n drafted tokens behind a sequence's ids, as long as one for each that runs is left. Returns for how many there are. */
static int32_t llm__draft_room(llm_engine *e, llm__seq *s, int32_t n) {
    while (s->pages.n < llm__pages_of(e, s->n_ids + n) && llm__kv_room(&e->kv) > e->running.n)
        s->pages.id[s->pages.n++] = llm__kv_get(&e->kv);
    return LLM__MIN(n, s->pages.n * e->kv.page_tokens - s->n_ids);
}

/* What the grammar leaves no choice about, into s->draft: at most `most` tokens. Returns how many. An answer that is complete goes on with
 * an EOS, which is certain if it is the only token that may end this answer. */
static int32_t llm__draft_jump(const llm_engine *e, llm__seq *s, int32_t most) {
    int over;
    int32_t n = llm__matcher_ahead(s->matcher, s->draft.ids, most, &s->draft.n_sure, &over);
    for (int32_t i = 0; i < n; i++) /* a tokenizer may have tokens that the model has no rows for */
        if (s->draft.ids[i] >= e->p.vocab) n = i, over = 0, s->draft.n_sure = LLM__MIN(s->draft.n_sure, n);
    if (!over || n == most || e->p.eos_id < 0) return n;
    s->draft.n_sure += s->draft.n_sure == n && e->p.n_eos + s->request->sampling.n_stop_token_ids == 1;
    s->draft.ids[n] = e->p.eos_id;
    return n + 1;
}

/* Tokens to draft for a sequence that decodes, at most `most`: the grammar's, or what is found in the prompt. If the draft model is to
 * guess them, they are not there yet. */
static int32_t llm__plan_draft(llm_engine *e, llm__seq *s, llm__bargain *bargain, int32_t most) {
    int32_t n = s->matcher ? llm__draft_jump(e, s, LLM__MIN(e->p.n_jump, most)) : 0;
    s->draft.by_grammar = n > 0;
    if (!n) {
        s->draft.n_sure = 0;
        n = LLM__MIN(e->p.n_draft, most);
        const llm_engine_config *c = &e->p.c;
        if (n && !e->p.driver.draft)
            n = llm__draft_lookup(s->ids, s->n_ids, c->ngram_prompt_lookup_min, c->ngram_prompt_lookup_max, s->draft.ids, n);
    }
    bargain->tokens += s->draft.n_sure;
    bargain->seconds += s->draft.n_sure * bargain->row;
    return llm__draft_room(e, s, s->draft.n_sure + llm__draft_length(&s->draft.chance, bargain, n - s->draft.n_sure));
}

/* Adds drafts to a step that is planned: rows behind those of sequences that decode, as many as pay and as there is room for. */
static void llm__plan_drafts(llm_engine *e, llm__flight *f) {
    int32_t n_decode = 0, n = 0, room = LLM__MIN(e->p.c.max_num_batched_tokens - f->n_rows, e->p.max_out - f->n_out);
    for (int32_t i = 0; i < f->n; i++) n_decode += llm__decodes(f->entry[i].seq);
    llm__bargain bargain = llm__pace_step(&e->pace, n_decode);
    if (e->p.recurrent) bargain.row *= 2;                       /* what is kept is a row of the next step as well */
    if (n_decode) bargain.row += e->drafter.seconds / n_decode; /* all that draft in a step share the draft model's passes */
    for (int32_t i = 0; i < f->n && room > 0; i++) {
        llm__seq *s = f->entry[i].seq;
        int32_t left = s->n_prompt + s->max_new - s->n_ids - 1; /* the model's own token comes last */
        const int whole = llm__decodes(s) && s->n_chunk == llm__seq_left(s);
        if (!whole || !(e->p.n_draft || s->matcher) || s->request->sampling.use_beam_search || left <= 0) continue;
        s->draft.n = llm__plan_draft(e, s, &bargain, LLM__MIN(room, left));
        room -= s->draft.n;
        if (s->draft.n && !s->draft.by_grammar) e->drafting[n++] = s;
    }
    if (n && e->p.driver.draft) e->p.driver.draft(e, e->drafting, n);
    for (int32_t i = 0; i < f->n; i++) {
        f->n_rows += f->entry[i].seq->draft.n;
        f->n_out += f->entry[i].seq->draft.n;
    }
}

/* How many rows the step may have. Who steps with a budget of time gets chunks of prompts that take four budgets where others decode, which
 * wait for them, and no piece of work, where it cannot be interrupted, of more than half of one; both as measured, from a few rows on. */
static int32_t llm__plan_budget(const llm_engine *e) {
    const double most = e->p.c.max_num_batched_tokens, least = LLM__MIN(4.0, most);
    double rows = most;
    if (e->budget.seconds <= 0 || e->p.c.disable_chunked_prefill) return e->p.c.max_num_batched_tokens;
    if (e->budget.row <= 0) rows = LLM__MIN(most, 16);
    else if (e->running.n > 1 || (e->running.n && e->waiting.first)) rows = LLM__MIN(rows, 4 * e->budget.seconds / e->budget.row);
    if (e->budget.piece > 0) rows = LLM__MIN(rows, e->budget.seconds / 2 / e->budget.piece);
    return (int32_t)LLM__MIN(most, LLM__MAX(least, rows) + e->running.n);
}

/* How many sequences may decode in one step: of a pipeline a share, so that each of its stages has one to compute. */
static int32_t llm__plan_share(const llm_engine *e) {
    const int32_t stages = e->p.lag ? LLM__MAX(e->p.c.pipeline_parallel_size, 1) : 1;
    return (e->running.n + stages - 1) / stages;
}

LLM__PRIVATE void llm__plan(llm_engine *e, llm__flight *f) {
    int64_t preempted = e->count.preemptions;
    const int32_t share = llm__plan_share(e), whole = llm__sight_whole(e), most = e->p.c.max_num_batched_tokens;
    const int32_t kept =
        whole + e->running.n > most ? whole : 0; /* for a picture that does not fit beside all that decode: some wait once */
    f->n = f->n_rows = f->n_out = 0;
    e->budget.rows = LLM__MAX(llm__plan_budget(e), whole ? LLM__MIN(whole + e->running.n, most) : 0) - kept;
    for (int32_t i = 0, can = 1; i < e->running.n; i += can) {
        llm__seq *s = e->running.seq[i];
        s->n_chunk = 0;
        can = llm__decodes(s) && f->n < share ? llm__grow_pages(e, i) : 1;
        if (can < 0) {
            f->n = 0;
            return;
        }
        if (can && llm__decodes(s) && f->n < share) llm__plan_rows(e, f, s);
    }
    e->budget.rows += kept;
    for (int32_t i = 0; i < e->running.n && f->n < e->running.n && f->n_rows < e->budget.rows; i++)
        if (!e->running.seq[i]->n_chunk && !llm__decodes(e->running.seq[i])) llm__plan_rows(e, f, e->running.seq[i]);
    if (preempted == e->count.preemptions && llm__admits(e)) llm__admit(e, f);
    e->since_admission++;
    /* Beams that are ready may stand in the way of one they wait for: they have what they need. */
    for (int32_t i = e->running.n - 1; i >= 0 && !f->n && !e->flights.n && e->waiting.first; i--) {
        if (!e->running.seq[i]->beam.n_next) continue;
        llm__preempt(e, e->running.seq[i]);
        llm__admit(e, f);
    }
    if (e->p.n_draft || e->p.n_jump) llm__plan_drafts(e, f);
}
