/* step: filling the step descriptor. */
#pragma once
#include "api/engine.h"
#include "api/backend.h"
#include "base/platform.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

/* What bends the logits of a sequence's next token, but for a grammar. */
LLM__PRIVATE llm__rules llm__seq_rules(const llm_engine *e, const llm__seq *s);

/* What the grammar lets through behind the first n_draft tokens of the draft, with the tokens that end the answer where the text may end. A
 * complete text may end before min_tokens: there is nothing else to say. kept: a mask that was made earlier is taken, none is made now.
 * 0: nothing is let through; -1: the grammar gave up (its matcher says why), or (kept) the mask was not made yet. */
LLM__PRIVATE int llm__seq_allowed(const llm_engine *e, const llm__seq *s, int32_t n_draft, int kept, llm__rules *rules, uint32_t *words);

/* Notes what a row of logits is for. scored: the prompt position whose token it is to judge, or -1 to choose the next
 * token. A row may serve several: forked choices draw from the same logits. */
LLM__PRIVATE llm__job *llm__add_job(llm__flight *f, llm__seq *s, int32_t out_row, int32_t scored);

/* Row `row` of a step: a token of sequence i at a position; from: the out row that the device draws it for, -1: it is known. */
LLM__PRIVATE void llm__step_row(llm_engine *e, int32_t row, int32_t i, int32_t position, int32_t token, int32_t from);

/* Sequence i of a step: its rows begin at `row`, and with them it has n tokens. */
LLM__PRIVATE void llm__step_seq(llm_engine *e, int32_t i, const llm__seq *s, int32_t row, int32_t n);

/* A step descriptor over the engine's arrays, which hold so many rows. */
LLM__PRIVATE void llm__step_over(llm_engine *e, llm_step *step, int32_t n_rows, int32_t n_seqs, int32_t n_out);

/* Writes the plan as a step descriptor. Its arrays are the engine's and are overwritten by the next plan: devices copy them. */
LLM__PRIVATE void llm__fill_step(llm_engine *e, llm__flight *f, llm_step *step);
