#include "engine/draft.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/tokenizer.h"
#include "api/backend.h"
#include "api/engine.h"
#include "base/platform.h"
#include "base/log.h"
#include "model/net.h"
#include "model/forward.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/step.h"
#include "engine/results.h"
#include "engine/eagle.h"

/* Rows of a pass for sequence s, as number i of the step. Returns the next row; the same row: nothing to do. */
static int32_t llm__guess_rows(llm_engine *e, llm__seq *s, int32_t pass, int32_t i, int32_t row) {
    const llm__net *net = e->draft.net;
    int32_t begin = pass ? s->n_ids + pass - 1 : s->n_guessed, end = LLM__MIN(s->n_ids + pass, begin + e->p.c.max_num_batched_tokens - row);
    int can = s->n_draft > pass && end <= e->draft.max_len;
    for (int32_t at = begin; at < end && can; at++) {
        int32_t token = at < s->n_ids ? s->ids[at] : s->draft[at - s->n_ids];
        llm__step_row(e, row + at - begin, i, at, token, -1);
        can = token < net->a->vocab; /* else the draft model has no such token */
    }
    if (!can || end <= begin) {
        s->n_draft = LLM__MIN(s->n_draft, pass);
        return row;
    }
    llm__step_seq(e, i, s, row, end);
    llm__net_rope_of(net, s->n_prompt, &e->seq_rope[i], &e->seq_base[i]);
    row += end - begin;
    if (!pass) s->n_guessed = end;
    if (end < s->n_ids + pass) { /* a long prompt: the rest follows in the next steps */
        s->n_draft = 0;
        return row;
    }
    e->out_rows[e->draft.n_jobs] = row - 1;
    e->draft.job[e->draft.n_jobs].seq = s;
    e->draft.job[e->draft.n_jobs].out_row = e->draft.n_jobs;
    e->draft.job[e->draft.n_jobs++].n_kept = pass; /* so many guesses stand before this one */
    return row;
}

/* One of the threads that choose guesses: those of every n_workers-th sequence. */
static void llm__guess_choose(void *arg, int worker) {
    llm_engine *e = (llm_engine *)arg;
    int32_t vocab = LLM__MIN(e->p.vocab, e->draft.net->a->vocab);
    for (int32_t i = worker; i < e->draft.n_jobs; i += e->p.c.n_threads) {
        llm__job *job = &e->draft.job[i];
        llm__rules rules = llm__seq_rules(e, job->seq);
        int32_t position = rules.n_output + job->n_kept;
        rules.also = 0;
        job->choice.id = -2;
        if (job->seq->matcher && !llm__seq_allowed(e, job->seq, job->n_kept, 0, &rules, e->scratch[worker].allowed)) continue;
        job->choice =
            llm__choose(e->backend->logits_row(e->ctx, job->out_row), vocab, &rules, job->seq->seed, position, &e->scratch[worker]);
    }
}

/* One pass for all sequences that draft still. 0: none does. */
static int llm__guess_pass(llm_engine *e, llm__seq *const *seq, int32_t n, int32_t pass) {
    llm_step step;
    int32_t row = 0, n_seqs = 0;
    double begin = e->p.driver.now(e);
    e->draft.n_jobs = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t next = llm__guess_rows(e, seq[i], pass, n_seqs, row);
        n_seqs += next > row;
        row = next;
    }
    if (!row) return 0;
    llm__step_over(e, &step, row, n_seqs, e->draft.n_jobs);
    step.shape.program = 1;
    if (llm__net_step(e->draft.net, &step)) { /* it is only a guess: without it the step goes on */
        for (int32_t i = 0; i < n; i++) seq[i]->n_draft = seq[i]->n_guessed = 0;
        return 0;
    }
    llm__on_threads(e, llm__guess_choose, e->draft.n_jobs);
    for (int32_t i = 0; i < e->draft.n_jobs; i++) {
        llm__seq *s = e->draft.job[i].seq;
        if (e->draft.job[i].choice.id >= 0) s->draft[pass] = e->draft.job[i].choice.id;
        else s->n_draft = pass;
    }
    if (pass) e->draft.seconds += (e->p.driver.now(e) - begin - e->draft.seconds) / (e->draft.seconds > 0 ? 16 : 1);
    return 1;
}

LLM__PRIVATE void llm__drive_draft(llm_engine *e, llm__seq *const *seq, int32_t n) {
    int32_t size = e->kv.page_tokens;
    for (int32_t pass = 0; pass < e->p.n_draft && llm__guess_pass(e, seq, n, pass); pass++)
        for (int32_t i = 0; i < n && !pass; i++)
            for (int32_t k = seq[i]->n_guessed / size - 1; k >= 0 && !e->kv.drafted[seq[i]->pages[k]]; k--)
                e->kv.drafted[seq[i]->pages[k]] = 1;
}

/* The draft model's tokens must be the model's: the same bytes for each id that both have. */
static llm_result llm__drafter_tokens(const llm_engine *e, const char *path) {
    LLM__SCOPED(llm_text_free) llm_text a = LLM__ZERO, b = LLM__ZERO;
    int32_t ours = llm_vocab_size(e->p.model), theirs = llm_vocab_size(e->draft.model);
    for (int32_t id = 0; id < LLM__MIN(ours, theirs); id++) {
        a.len = b.len = 0;
        llm_token_bytes(e->p.model, id, &a);
        llm_token_bytes(e->draft.model, id, &b);
        if (a.failed || b.failed) return llm__nomem();
        if (a.len != b.len || (a.len && memcmp(a.data, b.data, a.len)))
            return llm__error(LLM_ERR_ARG,
                              "speculative_model: %.200s: token %d is another one than the model's, the same tokenizer was expected", path,
                              (int)id);
    }
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__drafter_open(llm_engine *e, const llm_engine_config *c, llm__net_config n) {
    llm_model_config files = LLM__ZERO;
    const char *path = c->speculative_model;
    if (!path || !strcmp(path, "[ngram]")) return LLM_OK;
    files.log = c->log;
    files.log_user = c->log_user;
    llm_result r = llm__eagle_open(path, e->p.model, c->eagle_lab_style, &e->draft.model);
    e->draft.eagle = e->draft.model != NULL;
    if (!r && !e->draft.eagle) r = llm_model_open(path, &files, &e->draft.model);
    if (!r && !e->draft.eagle) r = llm__drafter_tokens(e, path);
    if (!r && e->draft.eagle && !e->backend->state)
        r = llm__error(LLM_ERR_UNSUPPORTED, "speculative_model: backend %s keeps no hidden states for an EAGLE head", e->backend->name);
    if (!r && e->draft.eagle && c->pipeline_parallel_size > 1)
        r = llm__error(LLM_ERR_UNSUPPORTED, "speculative_model: an EAGLE head of a pipeline's model");
    if (r) return r;
    n.model = e->draft.model;
    n.n_loras = 0;
    n.first_layer = e->net->n_kv;
    if (e->draft.eagle) {
        n.model_net = e->net;
        n.kept_layer = e->net->cfg.kept_layer = n.first_layer + e->draft.model->arch.n_layers; /* behind all others */
    }
    e->draft.max_len = e->draft.model->arch.max_len > 0 ? e->draft.model->arch.max_len : INT32_MAX;
    e->p.driver.draft = llm__drive_draft;
    return llm__net_open(&n, &e->draft.net);
}
