/* output: what came out.
 *
 * Everything here may be called while the engine steps. Under the request's lock the stepping thread writes a token with
 * its log-probabilities and text, and readers read them; arrays never move, so pointers stay good after the lock is
 * gone, and what they pointed to when it was held does not change. Only the text may move when it outgrows its room. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/request.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/threads.h"
#include "engine/scheduler.h"

/* Which sequence answer `index` is. NULL: not decided before all have ended. */
static llm__seq *llm__request_answer(const llm_request *r, int32_t index) {
    return index < r->n_seqs && (r->n_seqs <= r->sampling.n || r->n_done == r->n_seqs) ? r->answer[index] : NULL;
}

/* 1 if there is a token or an end that was not polled yet. s may be NULL: an answer that is not decided. */
static int llm__seq_has_news(const llm__seq *s) {
    return s && !s->polled.end && (s->polled.n_tokens < s->n_ids - s->n_prompt || s->output.finish);
}

/* Fills the event from the sequence's next token, or its end. The text is what became showable since the event before;
 * with the end comes all the rest. */
static void llm__fill_event(llm_request *r, llm__seq *s, int32_t index, llm_event *event) {
    int32_t n = s->n_ids - s->n_prompt, at = s->polled.n_tokens;
    memset(event, 0, sizeof *event);
    event->index = index;
    event->id = event->stop_id = -1;
    if (at < n) {
        event->has_token = 1;
        event->id = s->ids[s->n_prompt + at];
        if (s->output.logprobs) event->logprob = s->output.logprobs[at];
        if (s->output.top) event->top = s->output.top + (int64_t)at * r->top_stride, event->n_top = s->output.top_counts[at];
        s->polled.n_tokens++;
    }
    if (s->polled.n_tokens == n && s->output.finish) {
        event->finish = s->output.finish;
        event->stop_reason = s->output.stop_reason;
        event->stop_id = s->output.stop_id;
        s->polled.end = 1;
    }
    size_t end = event->finish ? s->output.text.len : at < n ? s->output.shown[at] : s->polled.text_len;
    end = LLM__MAX(end, s->polled.text_len);
    r->piece.len = 0;
    llm_text_add(&r->piece, s->output.text.data ? s->output.text.data + s->polled.text_len : "", end - s->polled.text_len);
    if (r->piece.failed) { /* what comes after it would not fit: for its poller the answer ends here, as an error */
        r->piece.failed = 0;
        s->polled.n_tokens = n;
        s->polled.end = 1;
        event->has_token = 0;
        event->finish = LLM_FINISH_ERROR;
        if (!r->error[0]) snprintf(r->error, sizeof r->error, "%s", llm__out_of_memory);
    }
    s->polled.text_len = end;
    event->text = r->piece.data ? r->piece.data : "";
    event->text_len = r->piece.len;
}

/* Choices take turns: the one of which fewest tokens were polled comes first. The text of an event lives until the next poll. */
LLM_API int llm_request_poll(llm_request *r, llm_event *event) {
    int32_t found = -1;
    llm__seq *best = NULL;
    LLM__LOCKED(&r->mutex);
    for (int32_t i = 0; i < r->sampling.n; i++) {
        llm__seq *s = llm__request_answer(r, i);
        if (llm__seq_has_news(s) && (!best || s->polled.n_tokens < best->polled.n_tokens)) best = s, found = i;
    }
    if (best) llm__fill_event(r, best, found, event);
    return best != NULL;
}

/* Ended is not done: the caller must have taken every end, so that a loop of poll and done misses nothing. */
LLM_API int llm_request_done(const llm_request *r) {
    LLM__LOCKED(&r->mutex);
    int done = r->n_done == r->n_seqs;
    for (int32_t i = 0; i < r->sampling.n && done; i++) {
        const llm__seq *s = llm__request_answer(r, i);
        done = !s || s->polled.end;
    }
    return done;
}

/* Pointers into the sequence. An answer that is not decided yet (best_of, beams) is empty, which is no error; an index
 * that no answer has is one. */
LLM_API llm_result llm_request_get_output(const llm_request *r, int32_t index, llm_output *out) {
    memset(out, 0, sizeof *out);
    out->stop_id = -1;
    out->text = "";
    LLM__LOCKED(&r->mutex);
    if (index < 0 || index >= r->sampling.n)
        return llm__error(LLM_ERR_ARG, "index: %d, must be 0 to %d", (int)index, (int)r->sampling.n - 1);
    const llm__seq *s = llm__request_answer(r, index);
    if (!s) return LLM_OK;
    out->token_ids = s->ids + s->n_prompt;
    out->n_token_ids = (size_t)(s->n_ids - s->n_prompt);
    if (s->output.text.data) out->text = s->output.text.data;
    out->text_len = s->output.text.len;
    out->finish = s->output.finish;
    out->stop_reason = s->output.stop_reason;
    out->stop_id = s->output.stop_id;
    out->cum_logprob = s->output.cum_logprob;
    out->logprobs = s->output.logprobs;
    out->top = s->output.top;
    out->top_counts = s->output.top_counts;
    out->top_stride = r->top_stride;
    return LLM_OK;
}

/* A copy of the times and counts so far. */
LLM_API void llm_request_get_metrics(const llm_request *r, llm_request_metrics *out) {
    LLM__LOCKED(&r->mutex);
    *out = r->metrics;
}

/* The prompt's ids never change: no lock. */
LLM_API const int32_t *llm_request_prompt(const llm_request *r, size_t *n) {
    *n = (size_t)r->seq[0].n_prompt;
    return r->seq[0].ids;
}

/* Rows are written while the prompt is computed, so they are shown only when the last one is there: with the first token, or at the end if
 * it was not ended before. */
LLM_API const float *llm_request_prompt_logprobs(const llm_request *r, const llm_token_logprob **top, const int32_t **top_counts,
                                                 int32_t *top_stride) {
    LLM__LOCKED(&r->mutex);
    int there = r->metrics.first_token_time > 0 || (r->n_done == r->n_seqs && r->seq[0].n_scored >= r->seq[0].n_prompt - 1);
    there = there && r->prompt.logprobs;
    if (top) *top = there ? r->prompt.top : NULL;
    if (top_counts) *top_counts = there ? r->prompt.top_counts : NULL;
    if (top_stride) *top_stride = there ? r->prompt.top_stride : 0;
    return there ? r->prompt.logprobs : NULL;
}

LLM_API const int32_t *llm_request_prompt_ranks(const llm_request *r) {
    return llm_request_prompt_logprobs(r, NULL, NULL, NULL) ? r->prompt.ranks : NULL;
}

/* Written by the stepping thread before the request ends, and never again. */
LLM_API const float *llm_request_embedding(const llm_request *r, int32_t *n) {
    LLM__LOCKED(&r->mutex);
    int there = r->pooling.embedding && r->n_done && r->seq[0].output.finish == LLM_FINISH_LENGTH;
    *n = there ? r->pooling.size : 0;
    return there ? r->pooling.embedding : NULL;
}

/* Neither changes after submission: no lock. */
LLM_API const char *llm_request_id(const llm_request *r) { return r->id; }
LLM_API int64_t llm_request_seed(const llm_request *r) { return r->sampling.seed; }

/* The text is written before the request ends and never again. */
LLM_API const char *llm_request_error(const llm_request *r) {
    LLM__LOCKED(&r->mutex);
    return r->n_done && r->error[0] ? r->error : NULL;
}

/* OpenAI's words, where it has one, and vLLM's. */
LLM_API const char *llm_finish_str(llm_finish f) {
    static const char *const names[] = {"", "stop", "length", "abort", "error", "repetition"};
    return f >= LLM_FINISH_NONE && f < LLM__COUNT(names) ? names[f] : "";
}
