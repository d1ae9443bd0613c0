/* openai_responses: the answers of /v1/responses.
 *
 * The answer of a response is a list of items: thoughts, a message, function calls. A stream tells how they grow, each event with its type
 * and a number:
 *
 *   response.created, response.in_progress
 *   response.output_item.added, response.content_part.added                            a message begins
 *   response.output_text.delta, ... , response.output_text.done, response.content_part.done, response.output_item.done
 *   response.output_item.added, response.function_call_arguments.delta, ... .done, response.output_item.done
 *   response.completed                                                                 the whole object
 *
 * The news are polled and split as a chat's, so each delta of a chat stands for events here; an item that is open ends when text of another
 * kind comes:
 *
 *   delta of the chat                        events of the response
 *   {"role": "assistant"}                    created, in_progress
 *   {"reasoning_content": "Hm"}              output_item.added (of type reasoning), content_part.added, reasoning_text.delta
 *   {"content": "4"}                         reasoning_text.done, content_part.done, output_item.done; then those of a message
 *   {"tool_calls": [{"id", "name" ...}]}     the message's .done events; output_item.added (of type function_call)
 *   {"tool_calls": [{"arguments" ...}]}      function_call_arguments.delta
 *   {} with a finish_reason                  the .done events of what is open; completed, incomplete (it was cut) or failed
 *
 * On the wire an event has a line with its type and one with its JSON:
 *
 *   event: response.output_text.delta
 *   data: {"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_5e..0","output_index":0,"content_index":0,"delta":"4",...
 *
 * Without a stream the same events are made and thrown away: what is kept is the list of items. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/request.h"
#include "api/chat.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/json.h"
#include "serve/openai.h"
#include "serve/openai_rank.h"
#include "serve/openai_parts.h"
#include "serve/openai_choices.h"
#include "serve/openai_stream.h"
#include "serve/ollama.h"
#include "serve/anthropic.h"

typedef enum llm__oai_item { LLM__OAI_NO_ITEM = 0, LLM__OAI_THOUGHTS, LLM__OAI_MESSAGE, LLM__OAI_CALL } llm__oai_item;

/* What differs between the kinds of items: the beginning of their ids, the type of their part, the name of their growing text. */
static const struct {
    const char *prefix, *part, *event, *member;
} llm__oai_items[] = {{"", NULL, "", ""},
                      {"rs", "reasoning_text", "reasoning_text", "text"},
                      {"msg", "output_text", "output_text", "text"},
                      {"fc", NULL, "function_call_arguments", "arguments"}};

/* One event: response.{what}{how}, with members by a pattern. placed: the members that say where the open item stands come first. */
static void llm__oai_say(llm_openai_call *k, llm_text *out, int placed, const char *what, const char *how, const char *pattern, ...) {
    va_list args;
    llm_text_format(out, "event: response.%s%s\ndata: {'type':'response.%s%s','sequence_number':%d,", what, how, what, how, k->n_events++);
    if (placed)
        llm_text_format(out, "'item_id':'%s_%s%d','output_index':%d,", llm__oai_items[k->item_kind].prefix, k->id + 5, k->n_items,
                        k->n_items);
    if (placed && llm__oai_items[k->item_kind].part) llm_text_str(out, "\"content_index\":0,");
    va_start(args, pattern);
    llm__text_pattern(out, pattern, args);
    va_end(args);
    llm_text_str(out, "}\n\n");
}

/* The member `logprobs` of a message, with the entries from..to of k->logs. Clients expect it, though empty, where none were asked for. */
static llm_text llm__oai_item_logs(const llm_openai_call *k, size_t from, size_t to) {
    llm_text t = LLM__ZERO;
    if (k->item_kind != LLM__OAI_MESSAGE) return t;
    from += from < to && k->logs.data[from] == ',';
    llm_text_str(&t, ",\"logprobs\":[");
    if (from < to) llm_text_add(&t, k->logs.data + from, to - from);
    llm_text_str(&t, "]");
    return t;
}

/* The part of the open item with the text it has so far. */
static llm_text llm__oai_part(const llm_openai_call *k) {
    llm_text t = LLM__ZERO, logs = llm__oai_item_logs(k, 0, k->logs_told);
    llm_text_format(&t, "{'type':%q,'text':%Q%s%t}", llm__oai_items[k->item_kind].part, k->item.data, k->item.len,
                    k->item_kind == LLM__OAI_MESSAGE ? ",\"annotations\":[]" : "", &logs);
    return t;
}

/* The call that was announced last. */
static const llm_tool_call *llm__oai_told(const llm__oai_choice *c) {
    int32_t n;
    return llm_tool_parser_calls(c->tools, &n) + c->n_told - 1;
}

/* The open item with a status, if it has ended ("completed", or "incomplete" where it was cut) with all its text; NULL: it has just
 * begun. A function call is the last of those that were announced. */
static llm_text llm__oai_item_text(const llm_openai_call *k, const char *ended) {
    const llm__oai_choice *c = &k->choice[0];
    const char *status = ended ? ended : "in_progress";
    llm_text t = LLM__ZERO, part = LLM__ZERO;
    llm_text_format(&t, "{'id':'%s_%s%d',", llm__oai_items[k->item_kind].prefix, k->id + 5, k->n_items);
    if (k->item_kind == LLM__OAI_CALL) {
        const llm_tool_call *call = llm__oai_told(c);
        char id[32];
        llm__oai_call_id(c, c->n_told - 1, id);
        llm_text_format(&t, "'type':'function_call','status':%q,'call_id':%q,'name':%Q,'arguments':%Q}", status, id, call->name.data,
                        call->name.len, k->item.data, k->item.len);
        return t;
    }
    if (ended) part = llm__oai_part(k);
    if (k->item_kind == LLM__OAI_MESSAGE)
        llm_text_format(&t, "'type':'message','role':'assistant','status':%q,'content':[%t]}", status, &part);
    else llm_text_format(&t, "'type':'reasoning','summary':[],'content':[%t]}", &part);
    return t;
}

/* Ends the open item, if there is one, with this status, and keeps it. */
static void llm__oai_item_end(llm_openai_call *k, const char *status, llm_text *out) {
    const int kind = k->item_kind;
    if (!kind) return;
    llm_text item = llm__oai_item_text(k, status), part = LLM__ZERO, name = LLM__ZERO, logs = llm__oai_item_logs(k, 0, k->logs_told);
    const llm_tool_call *call = kind == LLM__OAI_CALL ? llm__oai_told(&k->choice[0]) : NULL;
    if (call) llm_text_format(&name, ",'name':%Q", call->name.data, call->name.len);
    llm__oai_say(k, out, 1, llm__oai_items[kind].event, ".done", "'%s':%Q%t%t", llm__oai_items[kind].member, k->item.data, k->item.len,
                 &logs, &name);
    if (llm__oai_items[kind].part) part = llm__oai_part(k), llm__oai_say(k, out, 1, "content_part", ".done", "'part':%t", &part);
    llm_text_format(&k->items, k->n_items ? ",%s" : "%s", item.data ? item.data : "");
    llm__oai_say(k, out, 0, "output_item", ".done", "'output_index':%d,'item':%t", k->n_items, &item);
    k->n_items++;
    k->item.len = 0;
    if (kind == LLM__OAI_MESSAGE) k->logs.len = k->logs_sure = k->logs_told = 0;
    k->item_kind = LLM__OAI_NO_ITEM;
}

/* More text of an item of a kind; where another one is open, that ends, and a new one begins. Without text (n = 0) the item only begins. At
 * most one item is open: k->item_kind says of which kind, k->item has its text so far, k->n_items is its number. */
static void llm__oai_item_grows(llm_openai_call *k, llm__oai_item kind, const char *text, size_t n, llm_text *out) {
    if ((int)kind != k->item_kind) {
        llm__oai_item_end(k, "completed", out);
        k->item_kind = kind;
        llm_text_str(&k->item, "");
        llm_text item = llm__oai_item_text(k, NULL), part = LLM__ZERO;
        llm__oai_say(k, out, 0, "output_item", ".added", "'output_index':%d,'item':%t", k->n_items, &item);
        if (llm__oai_items[kind].part) part = llm__oai_part(k), llm__oai_say(k, out, 1, "content_part", ".added", "'part':%t", &part);
    }
    if (!n) return;
    llm_text_add(&k->item, text, n);
    llm_text logs = llm__oai_item_logs(k, k->logs_told, k->logs_sure);
    if (kind == LLM__OAI_MESSAGE) k->logs_told = k->logs_sure;
    llm__oai_say(k, out, 1, llm__oai_items[kind].event, ".delta", "'delta':%Q%t", text, n, &logs);
}

/* What was polled since the last time, as items that grow: thoughts, text, then calls, which is the order in which models write them. A
 * call ends its item by itself when it is whole, or when another has begun. */
static void llm__oai_items_grow(llm_openai_call *k, llm_text *out) {
    llm__oai_choice *c = &k->choice[0];
    int fresh;
    size_t from;
    if (c->thoughts.len) llm__oai_item_grows(k, LLM__OAI_THOUGHTS, c->thoughts.data, c->thoughts.len, out);
    if (c->content.len) llm__oai_item_grows(k, LLM__OAI_MESSAGE, c->content.data, c->content.len, out);
    for (const llm_tool_call *call; (call = llm__oai_call_news(c, &fresh, &from)) != NULL;) {
        llm__oai_item_grows(k, LLM__OAI_CALL, call->arguments.data + from, c->told - from, out);
        if (call->done && c->told == call->arguments.len) llm__oai_item_end(k, "completed", out);
    }
    c->thoughts.len = c->content.len = 0;
}

/* The response object, with a status: "in_progress" (at the beginning: no items, no usage), "completed", "incomplete" (the length cut it),
 * "cancelled" (its time was over, as in vLLM) or "failed" (failure: why). It repeats what the request said, since a client may keep the
 * object alone; what was not said has a default. */
static llm_text llm__oai_response(const llm_openai_call *k, const char *status, const char *failure) {
    static const char *const sent[][2] = {{"instructions", "null"},
                                          {"max_output_tokens", "null"},
                                          {"metadata", "{}"},
                                          {"parallel_tool_calls", "true"},
                                          {"reasoning", "{'effort':null,'summary':null}"},
                                          {"text", "{'format':{'type':'text'}}"},
                                          {"tool_choice", "'auto'"},
                                          {"tools", "[]"},
                                          {"top_logprobs", "0"},
                                          {"user", "null"}};
    llm_text t = LLM__ZERO;
    llm_text_format(&t, "{'id':%q,'object':'response','created_at':%l,'status':%q,'model':%q,'error':", k->info.id, k->created, status,
                    k->model);
    llm_text_format(&t, failure ? "{'code':'server_error','message':%q}" : "null", failure);
    llm_text_format(&t, ",'incomplete_details':%s", strcmp(status, "incomplete") ? "null" : "{\"reason\":\"max_output_tokens\"}");
    llm_text_format(&t, ",'output':[%s],'previous_response_id':null,'store':false,'truncation':'disabled'",
                    k->items.data ? k->items.data : "");
    llm_text_format(&t, ",'temperature':%f,'top_p':%f", (double)k->s.temperature, k->s.top_p > 0 ? (double)k->s.top_p : 1.0);
    for (int i = 0; i < LLM__COUNT(sent); i++) {
        int v = llm__oai_get(k->body, 0, sent[i][0]);
        llm_text_format(&t, ",%q:", sent[i][0]);
        llm_text_format(&t, v >= 0 ? "%j" : sent[i][1], k->body, v);
    }
    if (strcmp(status, "in_progress")) llm__oai_usage(k, &t);
    else llm_text_str(&t, ",\"usage\":null");
    llm_text_str(&t, "}");
    return t;
}

/* Closes what is open; an answer without anything is an empty message. Returns the status; an item that was open is complete or not. */
static const char *llm__oai_items_end(llm_openai_call *k, llm_text *out) {
    llm_output o;
    llm__oai_items_grow(k, out);
    if (!k->n_items && !k->item_kind) llm__oai_item_grows(k, LLM__OAI_MESSAGE, "", 0, out);
    llm_request_get_output(k->request[0], 0, &o);
    const char *ended = llm__oai_ended(o.finish) ? "completed" : "incomplete";
    llm__oai_item_end(k, ended, out);
    return o.finish == LLM_FINISH_CANCELLED ? "cancelled" : ended;
}

/* The answer without a stream: everything has been polled, so each item grows once, and by all of its text. */
static void llm__oai_response_whole(llm_openai_call *k, llm_text *out) {
    LLM__SCOPED(llm_text_free) llm_text events = LLM__ZERO;
    llm_text whole = llm__oai_response(k, llm__oai_items_end(k, &events), NULL);
    out->failed |= events.failed;
    llm_text_format(out, "%t", &whole);
}

/* How the stream of a response begins, and how it ends. */
static void llm__oai_response_begin(llm_openai_call *k, llm_text *out) {
    static const char *const begin[] = {"created", "in_progress"};
    for (int i = 0; i < 2 && k->n_events < 2; i++) {
        llm_text whole = llm__oai_response(k, "in_progress", NULL);
        llm__oai_say(k, out, 0, begin[i], "", "'response':%t", &whole);
    }
}

static void llm__oai_response_end(llm_openai_call *k, llm_text *out) {
    const char *failure = llm__oai_failure(k), *status = failure ? "failed" : llm__oai_items_end(k, out);
    llm_text whole = llm__oai_response(k, status, failure);
    const int cancelled = !strcmp(status, "cancelled"); /* no event has that name */
    llm__oai_say(k, out, 0, cancelled ? "incomplete" : status, "", "'response':%t", &whole);
}

/* One piece of news is one piece of the stream; /generate shows all of a prompt's news at once, in one line. News that show nothing (a
 * token inside a call) are taken until one does or there are no more. Prompts are asked in their order, and each is done when all its ends
 * have been polled; when all are, the stream ends. 0: nothing was written, ask again after the next on_news. */
static int llm__oai_next_event(llm_openai_call *k, llm_text *out) {
    size_t before = out->len;
    int done = 1, response = k->info.kind == LLM_OPENAI_RESPONSE, generate = k->info.kind == LLM_OPENAI_GENERATE;
    const int ollama = llm__oai_is_ollama(k), anthropic = llm__oai_is_anthropic(k);
    if (anthropic) llm__anthropic_begin(k, out);
    else if (response) llm__oai_response_begin(k, out);
    else if (k->info.kind == LLM_OPENAI_CHAT && !ollama) llm__oai_roles(k, out);
    for (int32_t r = 0; r < k->info.n_requests && !k->failed; r++) {
        llm_event e;
        int any = 0;
        while (out->len == before && llm__oai_poll(k, r, &e)) {
            if (e.finish == LLM_FINISH_ERROR || !llm__oai_due(k, &e, &k->choice[r * k->info.n_choices + e.index])) continue;
            any = 1;
            if (response || generate || anthropic) k->choice[r * k->info.n_choices + e.index].n_held = 0;
            if (response) llm__oai_items_grow(k, out);
            else if (anthropic) llm__anthropic_grow(k, out);
            else if (ollama) llm__ollama_event(k, &e, out);
            else if (!generate) llm__oai_event(k, r, &e, &k->choice[r * k->info.n_choices + e.index], out);
        }
        if (any && generate) llm__oai_whole(k, out), llm_text_str(out, "\n");
        if (out->len > before) return 1;
        done &= llm_request_done(k->request[r]);
    }
    if (!done) return 0;
    const char *failure = ollama || anthropic ? llm__oai_failure(k) : NULL;
    if (response) llm__oai_response_end(k, out);
    else if (anthropic) llm__anthropic_end(k, failure, out);
    else if (!ollama) llm__oai_stream_end(k, out);
    if (failure && ollama) llm__ollama_error(failure, 1, out);
    k->info.done = 1;
    return out->len > before;
}

/* Polls, and writes when there is something. Without a stream that is when all choices have ended; of a kind that needs no engine at once,
 * with what submit has left in k->text. An error found on the way (a failed step) makes the answer an error object with its status, as
 * nothing was sent before it; one that is too large is one of these. Of a call that was cancelled meanwhile nothing is written. */
static int llm__oai_next(llm_openai_call *k, llm_text *out) {
    const size_t before = out->len;
    llm_event e;
    int done = 1;
    if (k->info.done) return 0;
    if (k->info.status == 200 && (k->info.n_requests || k->failed)) {
        if (k->info.stream) return llm__oai_next_event(k, out);
        for (int32_t r = 0; r < k->info.n_requests; r++) {
            while (llm__oai_goes_on(k, out) && llm__oai_poll(k, r, &e)) continue;
            done &= llm_request_done(k->request[r]);
        }
        if (!done) return 0;
        const char *failure = llm__oai_failure(k);
        const int blamed = failure && !k->failed && llm__oai_blames(k, failure);
        if (failure) llm__oai_bad(k, blamed ? NULL : "", "%s", failure), k->info.status = k->failed ? k->failed : blamed ? 400 : 500;
        else if (llm__oai_is_ollama(k)) llm__ollama_whole(k, out);
        else if (llm__oai_is_anthropic(k)) llm__anthropic_whole(k, out);
        else if (k->info.kind == LLM_OPENAI_RESPONSE) llm__oai_response_whole(k, out);
        else if (llm__oai_ranks(k)) llm__rank_whole(k, out);
        else llm__oai_whole(k, out);
    } else if (k->info.status == 200) {
        llm_text_format(out, "%t", &k->text);
    }
    if (k->info.status == 200 && !llm__oai_goes_on(k, out)) {
        out->len = before;
        if (__atomic_load_n(&k->cancelled, __ATOMIC_RELAXED)) return 0;
        llm__oai_bad(k, "", "The answer is larger than %lld bytes: ask for a stream, or for less of n, max_tokens and logprobs",
                     (long long)k->service.max_answer_bytes);
    }
    if (k->info.status != 200 && llm__oai_is_ollama(k)) llm__ollama_error(k->message, 0, out);
    else if (k->info.status != 200 && llm__oai_is_anthropic(k)) llm_anthropic_error(out, k->info.status, k->message);
    else if (k->info.status != 200) llm_openai_error(out, k->info.status, k->message, k->param[0] ? k->param : NULL, k->code);
    k->info.done = 1;
    return 1;
}

/* Never blocks: its time grows with what is new. Where memory ran out for any part of it, a piece is not told at all: the call fails, and
 * what is told instead is its error. */
LLM_API int llm_openai_next(llm_openai_call *k, llm_text *out) {
    const size_t before = out->len;
    const int was_done = k->info.done, some = llm__oai_next(k, out);
    if (was_done || !(out->failed | k->starved | k->items.failed | k->item.failed | k->logs.failed)) return some;
    out->len = before;
    out->failed = k->starved = k->items.failed = k->item.failed = k->logs.failed = k->info.done = 0;
    llm_openai_fail(k, 503, llm__out_of_memory);
    return llm__oai_next(k, out);
}
