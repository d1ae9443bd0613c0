#include "serve/openai_stream.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/request.h"
#include "api/chat.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/threads.h"
#include "engine/scheduler.h"
#include "serve/openai.h"
#include "serve/openai_parts.h"
#include "serve/openai_choices.h"

/* One server-sent event with one choice, which is freed; without a choice it is the last one, for the usage. ended: the request of a choice
 * that ends with it, whose metrics may be wanted; else NULL. begins: it is a chat's first. */
static void llm__oai_chunk(const llm_openai_call *k, llm_text *choice, const llm_request *ended, int begins, llm_text *out) {
    int usage = !choice->len || k->continuous_usage;
    llm_text_str(out, "data: ");
    llm__oai_head(k, llm__oai_kinds[k->info.kind].chunk, out);
    llm_text_format(out, "%t]", choice);
    if (usage) llm__oai_usage(k, out);
    else if (k->include_usage) llm_text_str(out, ",\"usage\":null");
    if (begins) llm__oai_prompt_told(k, out);
    if (ended && k->metrics) llm__oai_metrics(k, ended, out);
    llm_text_str(out, "}\n\n");
}

/* A piece as one event. Its ids are told, those of the next one with the next. */
static void llm__oai_piece_chunk(const llm_openai_call *k, llm__oai_piece *p, llm_text *out) {
    llm_text choice = LLM__ZERO;
    llm__oai_write_choice(k, p, &choice);
    llm__oai_chunk(k, &choice, p->end ? k->request[p->at / k->info.n_choices] : NULL, 0, out);
    p->ids = NULL;
    p->first = 0;
}

LLM__PRIVATE const llm_tool_call *llm__oai_call_news(llm__oai_choice *c, int *fresh, size_t *from) {
    int32_t n = 0;
    const llm_tool_call *call = c->tools ? llm_tool_parser_calls(c->tools, &n) : NULL;
    *from = c->told;
    *fresh = !c->n_told || c->told == call[c->n_told - 1].arguments.len;
    if (*fresh && c->n_told == n) return NULL;
    if (*fresh) *from = 0, c->n_told++;
    c->told = *fresh ? 0 : call[c->n_told - 1].arguments.len;
    return &call[c->n_told - 1];
}

/* What there is of new calls as chunks: each is announced with its name, then its arguments follow as they come. Calls that the parser
 * finds whole come as two chunks in one go. */
static void llm__oai_call_chunks(const llm_openai_call *k, llm__oai_piece *p, llm__oai_choice *c, llm_text *out) {
    llm_text one = LLM__ZERO;
    int fresh;
    size_t from;
    p->text = 0;
    p->rows = NULL;
    p->calls = &one;
    for (const llm_tool_call *call; (call = llm__oai_call_news(c, &fresh, &from)) != NULL;) {
        llm__oai_write_call(c, c->n_told - 1, call, 1, fresh, from, c->told, &one);
        llm__oai_piece_chunk(k, p, out);
    }
    p->called = c->n_told;
    p->calls = NULL;
}

LLM__PRIVATE void llm__oai_event(const llm_openai_call *k, int32_t r, const llm_event *e, llm__oai_choice *c, llm_text *out) {
    const int chat = llm__oai_chats(k), last = e->has_token && chat && llm__oai_is_end(k, e->finish, e->stop_id, e->id);
    llm_output end, echo = llm__oai_prompt_rows(k->request[r]);
    llm__oai_piece p = LLM__ZERO;
    llm_request_get_output(k->request[r], e->index, &end);
    const llm_output rows = llm__oai_rows(&end, c->n_tokens - c->n_held, c->n_held - last);
    const llm_output ids = llm__oai_rows(&end, c->ids_told, c->n_tokens - c->ids_told);
    const int token = rows.n_token_ids > 0;
    p.at = r * k->info.n_choices + e->index;
    p.text = 1;
    p.echo = !chat && k->echo && !c->started ? &echo : NULL;
    p.rows = token ? &rows : NULL;
    p.ids = &ids;
    p.first = !c->started;
    if (!chat && e->finish != LLM_FINISH_NONE) p.end = &end;
    c->started = 1;
    int empty = !c->content.len && !c->thoughts.len; /* a chunk a token is what benchmarks count; tokens of calls have others */
    if (!chat || !empty || (token && (!c->tools || k->want_logprobs))) llm__oai_piece_chunk(k, &p, out);
    if (c->tools) llm__oai_call_chunks(k, &p, c, out);
    if (chat && e->finish != LLM_FINISH_NONE) {
        p.text = 0;
        p.rows = NULL;
        p.end = &end;
        llm__oai_piece_chunk(k, &p, out);
    }
    if (!p.ids) c->ids_told = c->n_tokens; /* else nothing was written, and the next chunk has them */
    c->content.len = c->thoughts.len = 0;
    c->n_held = 0;
}

LLM__PRIVATE int llm__oai_due(const llm_openai_call *k, const llm_event *e, llm__oai_choice *c) {
    c->n_tokens += e->has_token;
    c->n_held += e->has_token;
    return e->finish != LLM_FINISH_NONE || c->n_held >= LLM__MAX(k->service.num_scheduler_steps, k->stream_interval);
}

/* Keeps the log-probabilities of a response's message: an event's token belongs to the text that comes with it or next. Those of thoughts
 * (it was `thinking` before it), of calls and of the end are left out, as in OpenAI's answers. */
static void llm__oai_log_event(llm_openai_call *k, const llm_event *e, const llm__oai_choice *c, int thinking, int text) {
    const llm_output row = llm__oai_event_rows(e);
    const llm_tool_call *call;
    int32_t n = 0;
    if (e->has_token && !llm__oai_is_end(k, e->finish, e->stop_id, e->id)) llm__oai_chat_rows(k, &row, &k->logs);
    if (text) k->logs_sure = k->logs.len;
    call = c->tools ? llm_tool_parser_calls(c->tools, &n) : NULL;
    if (thinking || (n && !call[n - 1].done) || e->finish != LLM_FINISH_NONE) k->logs.len = k->logs_sure;
}

/* Whether what was polled is an error for want of memory: the answer's, or that of the piece itself. */
static int llm__oai_lost(llm_request *r, int32_t index) {
    LLM__LOCKED(&r->mutex);
    const llm__seq *s = r->answer[index];
    return s->output.finish != LLM_FINISH_ERROR || (s->output.lost && !strcmp(s->output.lost, llm__out_of_memory));
}

LLM__PRIVATE int llm__oai_poll(llm_openai_call *k, int32_t r, llm_event *e) {
    if (!llm_request_poll(k->request[r], e)) return 0;
    llm__oai_choice *c = &k->choice[r * k->info.n_choices + e->index];
    if (e->finish == LLM_FINISH_ERROR) k->starved |= llm__oai_lost(k->request[r], e->index);
    double now = llm__now(), gap = e->has_token && c->last > 0 ? now - c->last : 0;
    size_t before = c->content.len;
    int thinking = c->reasoning.thinking;
    if (e->has_token) c->last = now;
    if (k->service.on_event) k->service.on_event(k->user, k, k->request[r], e, gap);
    LLM__SCOPED(llm_text_free) llm_text plain = LLM__ZERO;
    llm_text *answer = c->tools ? &plain : &c->content;
    llm_reasoning_push(&c->reasoning, e->text ? e->text : "", e->text_len, &c->thoughts, answer);
    if (e->finish != LLM_FINISH_NONE) llm_reasoning_end(&c->reasoning, &c->thoughts, answer);
    if (c->tools && plain.len) llm_tool_parser_push(c->tools, plain.data, plain.len, &c->content);
    if (c->tools && e->finish != LLM_FINISH_NONE) llm_tool_parser_end(c->tools, &c->content);
    k->starved |= c->thoughts.failed | c->content.failed | plain.failed;
    if (!k->thoughts_told) c->thoughts.len = 0;
    if (k->info.kind == LLM_OPENAI_RESPONSE && k->want_logprobs) llm__oai_log_event(k, e, c, thinking, c->content.len > before);
    c->n_reasoning += e->has_token && c->reasoning.thinking;
    c->chars += llm_text_chars(c->content.data + before, c->content.len - before);
    return 1;
}

LLM__PRIVATE const char *llm__oai_failure(const llm_openai_call *k) {
    if (k->failed) return k->message;
    for (int32_t r = 0; r < k->info.n_requests; r++)
        for (int32_t i = 0; i < k->info.n_choices; i++) {
            llm_output o;
            if (llm_request_get_output(k->request[r], i, &o) || o.finish != LLM_FINISH_ERROR) continue;
            return llm_request_error(k->request[r]) ? llm_request_error(k->request[r]) : "the engine failed";
        }
    return NULL;
}

LLM__PRIVATE void llm__oai_stream_end(llm_openai_call *k, llm_text *out) {
    const char *failure = llm__oai_failure(k);
    llm_text none = LLM__ZERO;
    const int lines = k->info.kind == LLM_OPENAI_GENERATE;
    if (failure) {
        if (!lines) llm_text_str(out, "data: ");
        const int blamed = !k->failed && llm__oai_blames(k, failure);
        llm_openai_error(out, k->failed ? k->failed : blamed ? 400 : 500, failure, blamed ? k->param : NULL, NULL);
        llm_text_str(out, lines ? "\n" : "\n\n");
    } else if (k->include_usage) {
        llm__oai_chunk(k, &none, NULL, 0, out);
    }
    if (!lines) llm_text_str(out, "data: [DONE]\n\n");
}

LLM__PRIVATE void llm__oai_roles(llm_openai_call *k, llm_text *out) {
    for (int32_t i = 0; i < k->info.n_choices && !k->choice[i].started; i++) {
        llm_text choice = LLM__ZERO;
        k->choice[i].started = 1;
        llm_text_format(&choice, "{'index':%d,'delta':{'role':'assistant','content':''},'logprobs':null,'finish_reason':null}", i);
        llm__oai_chunk(k, &choice, NULL, !i, out);
    }
}
