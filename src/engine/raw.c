/* raw: the forward pass itself, for teaching and own loops.
 *
 * For teaching, for tests and for programs with a loop of their own: sequence i owns the i-th stretch of max_pages
 * pages for as long as no request runs, so nothing is planned, shared or cached. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/model.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/raw.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "model/reference.h"
#include "engine/sampler.h"
#include "engine/plain_sampler.h"
#include "engine/kv.h"
#include "engine/scheduler.h"
#include "engine/pages.h"
#include "engine/step.h"

/* One step of n sequences: counts[i] tokens from position at[i] on of sequence seqs[i], ids one after the other. The
 * logits of the last n_logits rows of each go to `logits`. */
static llm_result llm__raw_step(llm_engine *e, int32_t n, const int32_t *seqs, const int32_t *at, const int32_t *counts, const int32_t *ids,
                                int32_t n_logits, float *logits) {
    llm_step step;
    int32_t row = 0, n_out = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t end = at[i] + counts[i];
        e->p.driver.rope_of(e, LLM__MAX(e->step.raw_prompt[seqs[i]], 1), &e->step.seq_rope[i], &e->step.seq_rope_base[i]);
        e->step.seq_lora[i] = e->adapters.own;
        e->step.seq_begin[i] = row;
        e->step.seq_len[i] = end;
        for (int32_t k = 0; k < llm__pages_of(e, end); k++) e->step.pages[(int64_t)i * e->max_pages + k] = seqs[i] * e->max_pages + k;
        for (int32_t k = 0; k < counts[i]; k++, row++) {
            llm__step_row(e, row, i, at[i] + k, ids[row], -1);
            if (k >= counts[i] - n_logits) e->step.out_rows[n_out++] = row;
        }
    }
    for (int32_t i = 0; i < n; i++) e->step.raw_len[seqs[i]] = at[i] + counts[i];
    llm__step_over(e, &step, row, n, n_out);
    step.shape.lora = e->adapters.own >= 0;
    llm_result r = e->p.driver.forward(e, &step);
    if (!r) r = e->backend->wait(e->ctx);
    for (int32_t i = 0; i < n_out && !r; i++)
        memcpy(logits + (int64_t)i * e->p.vocab, e->backend->logits_row(e->ctx, i), (size_t)e->p.vocab * sizeof *logits);
    return r;
}

/* Refuses what the raw calls cannot do: mixing with requests, sequences and positions that have no pages, ids that are no
 * tokens. Cached prefixes are given up: raw sequences write to fixed pages. */
static llm_result llm__raw_check(llm_engine *e, int32_t seq, int32_t position, int32_t n, const int32_t *ids) {
    if (e->live || e->inbox.first) return llm__error(LLM_ERR_ARG, "llm_forward: requests are running on this engine");
    if (e->p.encoder)
        return llm__error(LLM_ERR_UNSUPPORTED, "llm_forward: %s is an encoder, which gives vectors and no logits", e->p.model->path);
    if (seq < 0 || seq >= e->p.c.max_num_seqs || (int64_t)(seq + 1) * e->max_pages > e->kv.n_pages)
        return llm__error(LLM_ERR_ARG, "seq: %d, must be 0 to %d", (int)seq,
                          (int)LLM__MIN((int64_t)e->p.c.max_num_seqs, e->kv.n_pages / e->max_pages) - 1);
    if (position < 0 || n < 1 || n > e->p.max_len - position)
        return llm__error(LLM_ERR_LIMIT, "position: %d + %d tokens, the context has %d", (int)position, (int)n, (int)e->p.max_len);
    if (e->p.recurrent && position && position != e->step.raw_len[seq])
        return llm__error(LLM_ERR_ARG, "position: %d, but sequence %d has %d tokens, and a recurrent state goes on from there or from 0",
                          (int)position, (int)seq, (int)e->step.raw_len[seq]);
    for (int32_t i = 0; i < n; i++)
        if (llm__check_id("ids", ids[i], e->p.vocab)) return LLM_ERR_ARG;
    llm__kv_flush(&e->kv); /* these pages are about to hold something else */
    return LLM_OK;
}

/* Long inputs go through in pieces: first the rows without logits, then as many rows at a time as the backend returns. The bits are those
 * of one piece. Dynamic RoPE scaling asks for the prompt's length, here what was fed at position 0. */
LLM_API llm_result llm_forward(llm_engine *e, int32_t seq, int32_t position, const int32_t *ids, int32_t n, float *logits,
                               int32_t n_logits) {
    llm_result r = llm__raw_check(e, seq, position, n, ids);
    if (!r && (n_logits < 0 || n_logits > n)) r = llm__error(LLM_ERR_ARG, "n_logits: %d, must be 0 to %d", (int)n_logits, (int)n);
    if (!r && !position) e->step.raw_prompt[seq] = n;
    for (int32_t done = 0; done < n && !r;) {
        int32_t silent = n - n_logits - done; /* tokens still before those whose logits are wanted */
        int32_t count = LLM__MIN(silent > 0 ? silent : LLM__MIN(n - done, e->p.max_out), e->p.c.max_num_batched_tokens),
                at = position + done;
        r = llm__raw_step(e, 1, &seq, &at, &count, ids + done, silent > 0 ? 0 : count,
                          silent > 0 ? NULL : logits - (int64_t)silent * e->p.vocab);
        done += count;
    }
    return r;
}

/* One step, or nothing: what does not fit one step is refused. */
LLM_API llm_result llm_forward_batch(llm_engine *e, int32_t n_seqs, const int32_t *seqs, const int32_t *positions, const int32_t *counts,
                                     const int32_t *ids, float *logits) {
    int64_t rows = 0;
    llm_result r = n_seqs < 1 || n_seqs > e->p.c.max_num_seqs
                       ? llm__error(LLM_ERR_ARG, "n_seqs: %d, must be 1 to %d", (int)n_seqs, (int)e->p.c.max_num_seqs)
                       : LLM_OK;
    for (int32_t i = 0; i < n_seqs && !r; rows += counts[i++]) {
        if (counts[i] > e->p.c.max_num_batched_tokens - rows)
            r = llm__error(LLM_ERR_LIMIT, "counts: more rows than max_num_batched_tokens, %d", (int)e->p.c.max_num_batched_tokens);
        for (int32_t k = 0; k < i && !r; k++)
            if (seqs[k] == seqs[i]) r = llm__error(LLM_ERR_ARG, "seqs: %d stands there twice", (int)seqs[i]);
        if (!r) r = llm__raw_check(e, seqs[i], positions[i], counts[i], ids + rows);
        if (!r && !positions[i]) e->step.raw_prompt[seqs[i]] = counts[i];
    }
    return r ? r : llm__raw_step(e, n_seqs, seqs, positions, counts, ids, 1, logits);
}

LLM_API int32_t llm_logits_size(const llm_engine *e) { return e->p.vocab; }

/* Nothing of an engine is needed here. */
LLM_API llm_result llm_reference_forward(const llm_model *model, const int32_t *ids, int32_t n, float *logits) {
    if (!model->arch.n_layers || n < 1) return llm__error(LLM_ERR_ARG, "reference: a model with weights, and at least one token, expected");
    return llm__reference_forward(model, ids, n, logits);
}

LLM_API int32_t llm_sample_steps(const float *logits, int32_t n, const llm_sampling *s, const int32_t *ids, int32_t n_prompt, int32_t n_ids,
                                 int64_t seed, llm_sample_fn fn, void *user) {
    llm__rules r = LLM__ZERO;
    llm__history h = LLM__ZERO;
    llm_sampling own = *s;
    LLM__SCOPED(llm__arena_free) llm__arena memory = LLM__ZERO;
    if (n < 1 || n_prompt < 0 || n_ids < n_prompt || llm__check_sampling(s, n)) return -1;
    llm__sampling_resolve(&own);
    own.min_tokens = 0; /* needs to know what ends an answer */
    if (own.repetition_penalty != 1 || own.presence_penalty != 0 || own.frequency_penalty != 0) {
        size_t slots = 16;
        while (slots < 2 * (size_t)n_ids) slots *= 2;
        h.mask = (uint32_t)slots - 1;
        h.id = (int32_t *)llm__arena_get(&memory, (size_t)n_ids * sizeof *h.id);
        h.count = (int32_t *)llm__arena_get(&memory, (size_t)n_ids * sizeof *h.count);
        h.slot = (int32_t *)llm__arena_get(&memory, slots * sizeof *h.slot);
        if (memory.failed) return llm__nomem(), -1;
        for (int32_t i = 0; i < n_ids; i++) llm__history_add(&h, ids[i], i >= n_prompt);
    }
    r.allowed = llm__only_tokens(&own, n, &memory);
    if (memory.failed) return llm__nomem(), -1;
    r.s = &own;
    r.history = &h;
    return llm__plain_sample(logits, n, &r, (uint64_t)seed, n_ids - n_prompt, fn, user);
}
