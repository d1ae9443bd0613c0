#include "engine/draft.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/engine.h"
#include "api/tokenizer.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "model/arch.h"
#include "model/net.h"
#include "model/forward.h"
#include "model/eagle.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/step.h"
#include "engine/results.h"

/* Rows of a pass for sequence s, as number i of the step. Returns the next row; the same row: nothing to do. */
static int32_t llm__guess_rows(llm_engine *e, llm__seq *s, int32_t pass, int32_t i, int32_t row) {
    const llm__net *net = e->drafter.net;
    int32_t begin = pass ? s->n_ids + pass - 1 : s->draft.n_computed,
            end = LLM__MIN(s->n_ids + pass, begin + e->p.c.max_num_batched_tokens - row);
    int can = s->draft.n > pass && end <= e->drafter.max_len;
    for (int32_t at = begin; at < end && can; at++) {
        int32_t token = at < s->n_ids ? s->ids[at] : s->draft.ids[at - s->n_ids];
        llm__step_row(e, row + at - begin, i, at, token, -1);
        can = token < net->a->vocab; /* else the draft model has no such token */
    }
    if (!can || end <= begin) {
        s->draft.n = LLM__MIN(s->draft.n, pass);
        return row;
    }
    llm__step_seq(e, i, s, row, end);
    llm__net_rope_of(net, s->n_prompt, &e->step.seq_rope[i], &e->step.seq_rope_base[i]);
    row += end - begin;
    if (!pass) s->draft.n_computed = end;
    if (end < s->n_ids + pass) { /* a long prompt: the rest follows in the next steps */
        s->draft.n = 0;
        return row;
    }
    e->step.out_rows[e->drafter.n_jobs] = row - 1;
    e->drafter.job[e->drafter.n_jobs].seq = s;
    e->drafter.job[e->drafter.n_jobs].out_row = e->drafter.n_jobs;
    e->drafter.job[e->drafter.n_jobs++].n_kept = pass; /* so many guesses stand before this one */
    return row;
}

/* Logits of all `vocab` tokens: a head that knows fewer would never say the others. */
static const float *llm__guess_logits(const llm_engine *e, int32_t row, int32_t vocab, int worker) {
    const float *logits = e->backend->logits_row(e->ctx, row);
    const llm__drafter *d = &e->drafter;
    if (!d->words) return logits;
    float *all = d->spread + (int64_t)worker * e->p.vocab;
    for (int32_t i = 0; i < vocab; i++) all[i] = -INFINITY;
    for (int32_t i = 0; i < d->model->arch.outputs; i++) all[d->words[i]] = logits[i];
    return all;
}

/* One of the threads that choose guesses: those of every n_workers-th sequence. */
static void llm__guess_choose(void *arg, int worker) {
    llm_engine *e = (llm_engine *)arg;
    int32_t vocab = LLM__MIN(e->p.vocab, e->drafter.net->a->vocab);
    for (int32_t i = worker; i < e->drafter.n_jobs; i += e->p.c.n_threads) {
        llm__job *job = &e->drafter.job[i];
        llm__rules rules = llm__seq_rules(e, job->seq);
        int32_t position = rules.n_output + job->n_kept;
        job->choice.id = LLM__CHOICE_FORBIDDEN;
        if (job->seq->matcher && llm__seq_allowed(e, job->seq, job->n_kept, 0, &rules, e->scratch[worker].allowed) <= 0) continue;
        const float *logits = llm__guess_logits(e, job->out_row, vocab, worker);
        job->choice = llm__choose(logits, vocab, &rules, job->seq->seed, position, &e->scratch[worker]);
    }
}

/* One pass for all sequences that draft still. 0: none does. */
static int llm__guess_pass(llm_engine *e, llm__seq *const *seq, int32_t n, int32_t pass) {
    llm_step step;
    int32_t row = 0, n_seqs = 0;
    double begin = e->p.driver.now(e);
    e->drafter.n_jobs = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t next = llm__guess_rows(e, seq[i], pass, n_seqs, row);
        n_seqs += next > row;
        row = next;
    }
    if (!row) return 0;
    llm__step_over(e, &step, row, n_seqs, e->drafter.n_jobs);
    step.shape.program = 1;
    if (llm__net_step(e->drafter.net, &step)) { /* it is only a guess: without it the step goes on */
        for (int32_t i = 0; i < n; i++) seq[i]->draft.n = seq[i]->draft.n_computed = 0;
        return 0;
    }
    llm__on_threads(e, llm__guess_choose, e->drafter.n_jobs);
    for (int32_t i = 0; i < e->drafter.n_jobs; i++) {
        llm__seq *s = e->drafter.job[i].seq;
        if (e->drafter.job[i].choice.id >= 0) s->draft.ids[pass] = e->drafter.job[i].choice.id;
        else s->draft.n = pass;
    }
    if (pass) e->drafter.seconds += (e->p.driver.now(e) - begin - e->drafter.seconds) / (e->drafter.seconds > 0 ? 16 : 1);
    return 1;
}

LLM__PRIVATE void llm__drive_draft(llm_engine *e, llm__seq *const *seq, int32_t n) {
    int32_t size = e->kv.page_tokens;
    for (int32_t pass = 0; pass < e->p.n_draft && llm__guess_pass(e, seq, n, pass); pass++)
        for (int32_t i = 0; i < n && !pass; i++)
            for (int32_t k = seq[i]->draft.n_computed / size - 1; k >= 0 && !e->kv.drafted[seq[i]->pages.id[k]]; k--)
                e->kv.drafted[seq[i]->pages.id[k]] = 1;
}

/* The draft model's tokens must be the model's: the same bytes for each id that both have. */
static llm_result llm__drafter_tokens(const llm_engine *e, const char *path) {
    LLM__SCOPED(llm_text_free) llm_text a = LLM__ZERO, b = LLM__ZERO;
    int32_t ours = llm_vocab_size(e->p.model), theirs = llm_vocab_size(e->drafter.model);
    for (int32_t id = 0; id < LLM__MIN(ours, theirs); id++) {
        a.len = b.len = 0;
        llm_token_bytes(e->p.model, id, &a);
        llm_token_bytes(e->drafter.model, id, &b);
        if (a.failed || b.failed) return llm__nomem();
        if (a.len != b.len || (a.len && memcmp(a.data, b.data, a.len)))
            return llm__error(LLM_ERR_ARG,
                              "speculative_model: %.200s: token %d is another one than the model's, the same tokenizer was expected", path,
                              (int)id);
    }
    return LLM_OK;
}

/* What guesses: the model's own next layer, "[mtp]" with a path behind it if it stands in other files; an EAGLE head; another model. */
static llm_result llm__drafter_model(llm_engine *e, const llm_engine_config *c) {
    const char *path = c->speculative_model, *own = llm__drafts_ahead(path);
    llm__drafter *d = &e->drafter;
    llm_model_config files = LLM__ZERO;
    files.log = c->log;
    files.log_user = c->log_user;
    llm_result r =
        own ? llm__next_open(own[0] ? own : NULL, e->p.model, &d->model) : llm__eagle_open(path, e->p.model, c->eagle_lab_style, &d->model);
    d->eagle = d->model != NULL;
    if (r || d->eagle) return r;
    r = llm_model_open(path, &files, &d->model);
    return r ? r : llm__drafter_tokens(e, path);
}

/* The tokens of a head's own output layer, and room for logits of all. */
static llm_result llm__drafter_words(llm_engine *e, int n_threads) {
    llm__drafter *d = &e->drafter;
    if (!d->model->arch.outputs) return LLM_OK;
    d->words = (int32_t *)llm__arena_get(&e->arena, sizeof *d->words * (size_t)d->model->arch.outputs);
    d->spread = (float *)llm__arena_get(&e->arena, sizeof *d->spread * (size_t)d->model->arch.vocab * (size_t)LLM__MAX(n_threads, 1));
    return d->words && d->spread ? llm__eagle_words(d->model, d->words) : llm__nomem();
}

LLM__PRIVATE const char *llm__drafts_ahead(const char *speculative_model) {
    return speculative_model && !strncmp(speculative_model, "[mtp]", 5) ? speculative_model + 5 : NULL;
}

LLM__PRIVATE llm_result llm__drafter_open(llm_engine *e, const llm_engine_config *c, llm__net_config n) {
    llm__drafter *d = &e->drafter;
    if (!c->speculative_model || !strcmp(c->speculative_model, "[ngram]")) return LLM_OK;
    llm_result r = llm__drafter_model(e, c);
    if (!r && d->model->arch.recurrent)
        r = llm__error(LLM_ERR_UNSUPPORTED, "speculative_model: %s keeps a state in some layers, which its own guesses would change",
                       d->model->arch.name);
    if (!r && d->eagle && !e->backend->state)
        r = llm__error(LLM_ERR_UNSUPPORTED, "speculative_model: backend %s keeps no hidden states for a head", e->backend->name);
    if (!r && d->eagle && c->pipeline_parallel_size > 1)
        r = llm__error(LLM_ERR_UNSUPPORTED, "speculative_model: a head that reads the hidden states of a pipeline's model");
    if (!r && d->model->arch.outputs && c->nodes)
        r = llm__error(LLM_ERR_UNSUPPORTED, "speculative_model: a head with an output layer of its own, on several nodes");
    if (!r && d->eagle) r = llm__drafter_words(e, c->n_threads);
    if (r) return r;
    n.model = d->model;
    n.n_loras = 0;
    n.first_layer = e->net->n_kv;
    if (d->eagle) {
        n.model_net = e->net;
        n.kept_layer = e->net->cfg.kept_layer = n.first_layer + d->model->arch.n_layers; /* behind all others */
    }
    d->max_len = d->model->arch.max_len > 0 ? d->model->arch.max_len : INT32_MAX;
    if (d->model->arch.index_topk) d->max_len = LLM__MIN(d->max_len, d->model->arch.index_topk);
    n.indexed = 0; /* a draft is not worth an indexer */
    e->p.driver.draft = llm__drive_draft;
    r = llm__net_open(&n, &d->net);
    if (!r && d->model->arch.eagle & LLM__EAGLE_THREE) e->net->cfg.tapping = d->net;
    return r;
}
