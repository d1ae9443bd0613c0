/* results: what becomes of a step's logits. */
#pragma once
#include "api/config.h"
#include "api/engine.h"
#include "api/request.h"
#include "base/platform.h"
#include "engine/scheduler.h"

/* 1 if token `id` as the n-th of an answer is an EOS that ends it. Before min_tokens none does, unless a grammar let it through. */
LLM__PRIVATE int llm__is_eos(const llm_engine *e, const llm_request *r, int32_t n, int32_t id);

/* Length of the longest prefix of the stop string that ends at the character c, when the one before had `state`
 * characters: a step of the automaton of Knuth, Morris and Pratt. No text is ever read twice. */
LLM__PRIVATE int32_t llm__stop_feed(const llm__stop *p, int32_t state, char c);

/* Adds a token to ids and text and decides whether the answer ends: EOS, stop ids, stop strings, length, in this
 * order, as in vLLM: a stop on the last allowed token is "stop". Only early stop yields to the length, as in
 * FastDeploy. The ending token stands in the ids, not in the text. early: early stop ends it with this token. */
LLM__PRIVATE llm_finish llm__seq_append(llm_engine *e, llm__seq *s, int32_t id, int early);

/* Times of a request, when it has new tokens; now: by the driver's clock. The caller holds the request's mutex. */
LLM__PRIVATE void llm__note_time(llm_request *r, double now);

/* A chosen token joins its sequence; returns it. The one that completes early stop's window is replaced by EOS, and keeps its own
 * log-probability; one that ends the answer anyway is not. */
LLM__PRIVATE int32_t llm__seq_accept(llm_engine *e, const llm__job *job, double now);

/* One of the threads that sample: takes jobs until none is left. `worker` says whose working memory to use. */
LLM__PRIVATE void llm__run_jobs(void *arg, int worker);

/* Work on jobs by the backend's threads, where it has some: fn(e, i) is called for each i below their number, or that of the jobs. */
LLM__PRIVATE void llm__on_threads(llm_engine *e, void (*fn)(void *arg, int i), int32_t n_jobs);

/* Gives a held sequence all that `from` has computed: full pages are shared; the begun one is copied, or shared too where `from` gives it
 * up at once. Where no page or place is left for it, it waits like others. 1: it runs. */
LLM__PRIVATE int llm__fork(llm_engine *e, const llm__seq *from, llm__seq *s, int give_up);

/* The prompt is computed: the other choices go on from it, or wait. Those that fork now draw their first token from the
 * same row of logits; the others will find the prompt's full pages in the cache. */
LLM__PRIVATE void llm__fork_choices(llm_engine *e, llm__flight *f, const llm__entry *p);

/* 1 if id is one of n ids. */
LLM__PRIVATE int llm__has_id(const int32_t *ids, int32_t n, int32_t id);

/* Looks for stop strings in the text from `from` on, in the order of the list; the first found cuts the text, before it or after it.
 * allowed: min_tokens is reached; before, the automata run all the same. Returns which, or -1. As in vLLM the prompt is never searched. */
LLM__PRIVATE int32_t llm__find_stop(llm__seq *s, size_t from, int allowed);

/* Bytes of the text that can be shown: not what may yet become a stop string, and no half code point. A client that
 * streams never sees a byte that is taken back. */
LLM__PRIVATE size_t llm__showable(const llm__seq *s);
