/* anthropic: Anthropic's answers.
 *
 * An answer is a list of blocks, in the order in which the model wrote them: its thoughts, what it says, each call. One is open at a time:
 *
 *   k->item_kind, k->item       the open block's kind, and its text so far
 *   k->items, k->n_items        the blocks that are whole, as JSON, and how many
 *
 * An answer that is not streamed is made of the same events, which nobody sees, so both have the same blocks. */
#include "serve/anthropic.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/request.h"
#include "api/json.h"
#include "api/chat.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/json.h"
#include "serve/openai.h"
#include "serve/openai_choices.h"
#include "serve/openai_stream.h"

/* Kinds of blocks, in k->item_kind: what they are called, and what grows. */
enum { LLM__ANTHROPIC_NONE = 0, LLM__ANTHROPIC_THINKING, LLM__ANTHROPIC_TEXT, LLM__ANTHROPIC_CALL };
static const struct {
    const char *type, *delta, *member;
} llm__anthropic_kinds[] = {{"", "", ""},
                            {"thinking", "thinking_delta", "thinking"},
                            {"text", "text_delta", "text"},
                            {"tool_use", "input_json_delta", "partial_json"}};

/* One event, which a line names and its data too (clients read either); its members by a pattern that begins with a comma, or "". */
static void llm__anthropic_say(llm_openai_call *k, llm_text *out, const char *event, const char *pattern, ...) {
    va_list args;
    llm_text_format(out, "event: %s\ndata: {'type':%q", event, event);
    va_start(args, pattern);
    llm__text_pattern(out, pattern, args);
    va_end(args);
    llm_text_str(out, "}\n\n");
    k->n_events++;
}

/* The open block as an object, with the text that it has so far. A call whose arguments were cut has none. */
static llm_text llm__anthropic_block(const llm_openai_call *k) {
    llm_text t = LLM__ZERO;
    if (k->item_kind == LLM__ANTHROPIC_CALL) {
        const llm__oai_choice *c = &k->choice[0];
        LLM__SCOPED(llm__json_drop) llm_json *input = NULL;
        char id[32];
        int32_t n;
        const llm_tool_call *call = llm_tool_parser_calls(c->tools, &n) + c->n_told - 1;
        llm__oai_call_id(c, c->n_told - 1, id);
        llm_text_format(&t, "{'type':'tool_use','id':%q,'name':%Q,'input':", id, call->name.data, call->name.len);
        if (!k->item.len || llm_json_parse(k->item.data, k->item.len, NULL, &input) || llm_json_type_of(input, 0) != LLM_JSON_OBJECT)
            llm_text_str(&t, "{}}");
        else llm_text_format(&t, "%j}", input, 0);
        return t;
    }
    llm_text_format(&t, "{'type':%q,%q:%Q%s}", llm__anthropic_kinds[k->item_kind].type, llm__anthropic_kinds[k->item_kind].member,
                    k->item.data, k->item.len, k->item_kind == LLM__ANTHROPIC_THINKING ? ",\"signature\":\"\"" : "");
    return t;
}

/* Ends the open block, if there is one, and keeps it. */
static void llm__anthropic_block_end(llm_openai_call *k, llm_text *out) {
    if (!k->item_kind) return;
    llm_text block = llm__anthropic_block(k);
    llm_text_format(&k->items, k->n_items ? ",%t" : "%t", &block);
    llm__anthropic_say(k, out, "content_block_stop", ",'index':%d", k->n_items);
    k->n_items++;
    k->item.len = 0;
    k->item_kind = LLM__ANTHROPIC_NONE;
}

/* More text of a block of a kind; where another one is open, that ends, and a new one begins. */
static void llm__anthropic_more(llm_openai_call *k, int kind, const char *text, size_t n, llm_text *out) {
    if (kind != k->item_kind) {
        llm__anthropic_block_end(k, out);
        k->item_kind = kind;
        llm_text_str(&k->item, "");
        llm_text block = llm__anthropic_block(k);
        llm__anthropic_say(k, out, "content_block_start", ",'index':%d,'content_block':%t", k->n_items, &block);
    }
    if (!n) return;
    llm_text_add(&k->item, text, n);
    llm__anthropic_say(k, out, "content_block_delta", ",'index':%d,'delta':{'type':%q,%q:%Q}", k->n_items, llm__anthropic_kinds[kind].delta,
                       llm__anthropic_kinds[kind].member, text, n);
}

LLM__PRIVATE void llm__anthropic_grow(llm_openai_call *k, llm_text *out) {
    llm__oai_choice *c = &k->choice[0];
    int fresh;
    size_t from;
    if (c->thoughts.len) llm__anthropic_more(k, LLM__ANTHROPIC_THINKING, c->thoughts.data, c->thoughts.len, out);
    if (c->content.len) llm__anthropic_more(k, LLM__ANTHROPIC_TEXT, c->content.data, c->content.len, out);
    for (const llm_tool_call *call; (call = llm__oai_call_news(c, &fresh, &from)) != NULL;) {
        if (fresh) llm__anthropic_block_end(k, out);
        llm__anthropic_more(k, LLM__ANTHROPIC_CALL, call->arguments.data + from, c->told - from, out);
        if (call->done && c->told == call->arguments.len) llm__anthropic_block_end(k, out);
    }
    c->thoughts.len = c->content.len = 0;
}

/* What was read and written: of the prompt, tokens that were in the cache are counted apart. */
static void llm__anthropic_usage(const llm_openai_call *k, llm_text *out) {
    llm_request_metrics m;
    llm_output o;
    llm_request_get_metrics(k->request[0], &m);
    llm_request_get_output(k->request[0], 0, &o);
    llm_text_format(out, "'usage':{'input_tokens':%l,'cache_creation_input_tokens':0,'cache_read_input_tokens':%l,'output_tokens':%l}",
                    (int64_t)(m.n_prompt_tokens - m.n_cached_tokens), (int64_t)m.n_cached_tokens, (int64_t)o.n_token_ids);
}

/* The reasons of both APIs, side by side:
 *
 *   length, abort       max_tokens, even in the middle of a call, whose input is {} then: the answer was cut
 *   tool_calls          tool_use
 *   stop                stop_sequence, if it was one of stop_sequences; else end_turn
 *   repetition          end_turn
 *
 * Why it ended: "'stop_reason':...,'stop_sequence':...". Only a text of the request's own is a stop sequence. */
static void llm__anthropic_reason(const llm_openai_call *k, llm_text *out) {
    llm_output o;
    const char *sequence = NULL;
    int32_t called = 0;
    llm_request_get_output(k->request[0], 0, &o);
    if (k->choice[0].tools) llm_tool_parser_calls(k->choice[0].tools, &called);
    for (int32_t i = 0; i < k->s.n_stop && o.stop_reason; i++)
        if (!strcmp(k->s.stop[i], o.stop_reason)) sequence = o.stop_reason;
    llm_text_format(out, "'stop_reason':%q,'stop_sequence':%q",
                    !llm__oai_ended(o.finish)               ? "max_tokens"
                    : called && o.finish == LLM_FINISH_STOP ? "tool_use"
                    : sequence                              ? "stop_sequence"
                                                            : "end_turn",
                    sequence);
}

LLM__PRIVATE void llm__anthropic_begin(llm_openai_call *k, llm_text *out) {
    if (k->n_events) return;
    llm_text usage = LLM__ZERO;
    llm__anthropic_usage(k, &usage);
    llm__anthropic_say(k, out, "message_start",
                       ",'message':{'id':%q,'type':'message','role':'assistant','model':%q,'content':[],'stop_reason':null,"
                       "'stop_sequence':null,%t}",
                       k->info.id, k->model, &usage);
}

/* Closes what is open; an answer without anything is an empty text. */
static void llm__anthropic_close(llm_openai_call *k, llm_text *out) {
    llm__anthropic_grow(k, out);
    if (!k->n_items && !k->item_kind) llm__anthropic_more(k, LLM__ANTHROPIC_TEXT, "", 0, out);
    llm__anthropic_block_end(k, out);
}

LLM__PRIVATE void llm__anthropic_end(llm_openai_call *k, const char *failure, llm_text *out) {
    llm_text reason = LLM__ZERO, usage = LLM__ZERO;
    if (failure) {
        llm_text_str(out, "event: error\ndata: ");
        llm_anthropic_error(out, k->failed ? k->failed : 500, failure);
        llm_text_str(out, "\n\n");
        return;
    }
    llm__anthropic_close(k, out);
    llm__anthropic_reason(k, &reason);
    llm__anthropic_usage(k, &usage);
    llm__anthropic_say(k, out, "message_delta", ",'delta':{%t},%t", &reason, &usage);
    llm__anthropic_say(k, out, "message_stop", "");
}

LLM__PRIVATE void llm__anthropic_whole(llm_openai_call *k, llm_text *out) {
    LLM__SCOPED(llm_text_free) llm_text events = LLM__ZERO; /* the same are made, and thrown away */
    llm__anthropic_close(k, &events);
    out->failed |= events.failed;
    llm_text_format(out, "{'id':%q,'type':'message','role':'assistant','model':%q,'content':[%s],", k->info.id, k->model, k->items.data);
    llm__anthropic_reason(k, out);
    llm_text_str(out, ",");
    llm__anthropic_usage(k, out);
    llm_text_str(out, "}");
}

LLM_API void llm_anthropic_error(llm_text *out, int status, const char *message) {
    static const struct {
        int status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
                 {413, "request_too_large"},    {429, "rate_limit_error"}, {503, "overloaded_error"}};
    const char *type = status >= 500 ? "api_error" : "invalid_request_error";
    for (int i = 0; i < LLM__COUNT(types); i++)
        if (types[i].status == status) type = types[i].type;
    llm_text_format(out, "{'type':'error','error':{'type':%q,'message':%q}}", type, message);
}
