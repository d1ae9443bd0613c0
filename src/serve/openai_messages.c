#include "serve/openai_messages.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/json.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "chat/reasoning.h"
#include "serve/reports.h"
#include "serve/openai.h"
#include "serve/openai_media.h"

/* Says which member of message i is looked at. A response's messages were items, and are not numbered like them. */
static void llm__oai_at_message(llm_openai_call *k, int i, const char *member) {
    if (k->info.kind == LLM_OPENAI_RESPONSE) llm__oai_at(k, "input%s", member);
    else llm__oai_at(k, "messages[%d]%s", i, member);
}

/* What an assistant called before: {"function": {"name", "arguments": a text or an object}} each. */
static int llm__oai_message_calls(llm_openai_call *k, int v) {
    const llm_json *d = k->chat;
    if (llm_json_type_of(d, v) != LLM_JSON_ARRAY) return llm__oai_bad(k, NULL, "must be a list");
    for (int c = llm_json_first(d, v); c >= 0; c = llm_json_next(d, c)) {
        int f = llm_json_find(d, c, "function"), arguments = llm__oai_get(d, f, "arguments");
        llm_json_type type = llm_json_type_of(d, arguments);
        if (!llm__oai_word(d, f, "name") || (arguments >= 0 && type != LLM_JSON_STRING && type != LLM_JSON_OBJECT))
            return llm__oai_bad(k, NULL, ": a function with a name, and arguments as JSON text, expected in each");
    }
    return 1;
}

/* Message i, at node m: a known role, and a content unless it may be missing (an assistant that only called tools). Members that nobody
 * knows are let pass, for templates read what they like (`name`, `reasoning_content`). The error names the member: messages[2].content. */
static int llm__oai_message(llm_openai_call *k, int i, int m) {
    const llm_json *d = k->chat;
    int content = llm__oai_get(d, m, "content"), calls = llm__oai_get(d, m, "tool_calls");
    const llm__str role = llm__json_text_at(d, m, "role");
    llm_json_type type = llm_json_type_of(d, content);
    llm__oai_at_message(k, i, "");
    if (llm_json_type_of(d, m) != LLM_JSON_OBJECT) return llm__oai_bad(k, NULL, "must be an object");
    llm__oai_at_message(k, i, ".role");
    if (!role.p || !llm__alias_among("system|developer|user|assistant|tool|function", role, NULL))
        return llm__oai_bad(k, NULL, "must be system, developer, user, assistant or tool");
    llm__oai_at_message(k, i, ".tool_calls");
    if (calls >= 0 && !llm__oai_message_calls(k, calls)) return 0;
    llm__oai_at_message(k, i, ".content");
    if (content < 0 && calls < 0 && !llm__alias_among("assistant|tool", role, NULL)) return llm__oai_bad(k, NULL, "is missing");
    if (content >= 0 && type != LLM_JSON_STRING && type != LLM_JSON_ARRAY)
        return llm__oai_bad(k, NULL, "must be a text or a list of parts");
    for (int part = type == LLM_JSON_ARRAY ? llm_json_first(d, content) : -1; part >= 0; part = llm_json_next(d, part)) {
        int video;
        const char *kind = llm__oai_word(d, part, "type"); /* a text, or what an assistant refused */
        if (kind && llm__oai_is_media(kind, &video)) {
            if (!llm__oai_media_part(k, part)) return 0;
            continue;
        }
        if (!kind || (strcmp(kind, "text") && strcmp(kind, "refusal")))
            return llm__oai_bad(k, NULL, ": parts of type text, image_url and video_url are known, \"%.40s\" is not", kind ? kind : "");
        if (!llm__oai_word(d, part, kind)) return llm__oai_bad(k, NULL, ": a text part must have a text");
    }
    return 1;
}

/* What the server itself hands to the template, and the template: no argument may take their place. */
static const char llm__oai_reserved[] =
    "messages|tools|documents|add_generation_prompt|continue_final_message|tokenize|chat_template|conversation|"
    "return_dict|return_tensors";

LLM_API llm_result llm_openai_kwargs_check(const char *json) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    const llm_result r = llm_json_parse(json, strlen(json), NULL, &doc);
    if (r == LLM_ERR_NOMEM) return r;
    if (r || llm_json_type_of(doc, 0) != LLM_JSON_OBJECT) return llm__error(LLM_ERR_ARG, "%.60s, a JSON object was expected", json);
    for (int e = llm_json_first(doc, 0); e >= 0; e = llm_json_next(doc, e))
        if (llm__alias_among(llm__oai_reserved, llm__json_key(doc, e), NULL))
            return llm__error(LLM_ERR_ARG, "%.60s is reserved", llm_json_key(doc, e, NULL));
    return LLM_OK;
}

/* Whether a model thinks first, in the words of vLLM (`enable_thinking`, `reasoning_effort`), of OpenAI's responses (`reasoning`) and of
 * DeepSeek's and GLM's services (`thinking`). In a chat they say the same:
 *
 *   {"enable_thinking": false}    {"thinking": {"type": "disabled"}}    {"reasoning_effort": "none"}    {"reasoning": {"effort": "none"}}
 *
 * Templates know enable_thinking and, some, reasoning_effort; chat_template_kwargs of the request say it to the template directly and win.
 * A value of a wrong type is an error: silently it would leave the model thinking, which costs the most. */
static int llm__oai_thinking_fields(llm_openai_call *k) {
    const llm_json *d = k->body;
    int on, flag = llm__oai_get(d, 0, "enable_thinking"), effort = llm__oai_get(d, 0, "reasoning_effort"),
            object = llm__oai_get(d, 0, "thinking"), reasoning = llm__oai_get(d, 0, "reasoning");
    const char *type = llm__oai_word(d, object, "type");
    if (flag >= 0 && !llm_json_bool(d, flag, &on)) return llm__oai_bad(k, "enable_thinking", "must be true or false");
    if (effort >= 0 && !llm_json_str(d, effort, NULL)) return llm__oai_bad(k, "reasoning_effort", "must be a text, as \"low\"");
    if (reasoning >= 0 && llm_json_type_of(d, reasoning) != LLM_JSON_OBJECT) return llm__oai_bad(k, "reasoning", "must be an object");
    if (k->info.kind == LLM_OPENAI_RESPONSE || object < 0) return 1;
    return (type && llm__alias_among("enabled|disabled", llm__lit(type), NULL)) ||
           llm__oai_bad(k, "thinking", "must be {\"type\": \"enabled\"} or {\"type\": \"disabled\"}");
}

/* An answer is text: no sound. */
static int llm__oai_modalities(llm_openai_call *k) {
    const int v = llm__oai_get(k->body, 0, "modalities");
    if (v >= 0 && llm_json_type_of(k->body, v) != LLM_JSON_ARRAY) return llm__oai_bad(k, "modalities", "must be [\"text\"]");
    for (int e = llm_json_first(k->body, v); e >= 0; e = llm_json_next(k->body, e))
        if (!llm__str_eq(llm__json_text(k->body, e), "text"))
            return llm__oai_bad(k, "modalities", ": an answer is text here, and nothing else");
    return 1;
}

/* Template arguments must not replace what the server itself hands to the template, or the template. */
static int llm__oai_template_fields(llm_openai_call *k) {
    int v = llm__oai_get(k->body, 0, "chat_template_kwargs");
    llm__oai_at(k, "chat_template_kwargs");
    if (v >= 0 && llm_json_type_of(k->body, v) != LLM_JSON_OBJECT) return llm__oai_bad(k, NULL, "must be an object");
    if (llm_json_size(k->body, v) > LLM__OAI_KWARGS) return llm__oai_bad(k, NULL, ": at most %d entries", LLM__OAI_KWARGS);
    for (int e = llm_json_first(k->body, v); e >= 0; e = llm_json_next(k->body, e)) {
        llm__str key = llm__json_key(k->body, e);
        if (llm__alias_among(llm__oai_reserved, key, NULL)) return llm__oai_bad(k, NULL, ": %s is reserved", key.p);
    }
    if (k->continue_final && k->generation_prompt && llm__oai_has(k, "add_generation_prompt"))
        return llm__oai_bad(k, "continue_final_message", "and add_generation_prompt exclude each other");
    if (!llm__oai_has(k, "chat_template")) return 1;
    llm__oai_bad(k, "chat_template", "A chat template of the request's own is not allowed here");
    k->info.status = 403;
    k->code = "chat_template_not_allowed";
    return 0;
}

/* ---- responses as chats
 * /v1/responses is OpenAI's newer way to ask for the same: `input` holds items instead of messages, a function call and its result are
 * items of their own, names are flatter. So its items are rewritten as a chat's messages, and all that follows is a chat's, up to the
 * writing of the answer:
 *
 *   instructions                                      the first message, a system message
 *   input: a text, or {"role", "content"} items       messages
 *   {"type": "function_call", "call_id", "name", "arguments"}   an assistant's tool_calls
 *   {"type": "function_call_output", "call_id", "output"}       a message of role tool
 *   max_output_tokens, text.format, reasoning.effort  max_completion_tokens, response_format, reasoning_effort
 *
 * Nothing is stored: who asks for what only a memory could give (previous_response_id) is told so. */

/* An item's content, with the names that parts have in messages. */
static void llm__oai_item_content(const llm_json *d, int v, llm_text *out) {
    int list = llm_json_type_of(d, v) == LLM_JSON_ARRAY;
    llm_text_format(out, list ? "[" : "%j", d, v);
    for (int part = list ? llm_json_first(d, v) : -1; part >= 0; part = llm_json_next(d, part)) {
        const char *type = llm__oai_word(d, part, "type");
        int text = llm_json_find(d, part, "text"), renamed = type && llm__alias_among("input_text|output_text", llm__lit(type), NULL);
        if (renamed && llm_json_str(d, text, NULL)) llm_text_format(out, "%,{'type':'text','text':%j}", d, text);
        else llm_text_format(out, "%,%j", d, part);
    }
    if (list) llm_text_str(out, "]");
}

/* Item i, at node v of `input`, as a message, or as one more of the calls of the message before. Calls that follow each other are one
 * assistant's message, which is left open (*calling) until something else comes:
 *
 *   {"type": "function_call", "call_id": "a", ...}                       {"role":"assistant","content":null,"tool_calls":[{"id":"a" ...}
 *   {"type": "function_call", "call_id": "b", ...}                       ,{"id":"b" ...}
 *   {"type": "function_call_output", "call_id": "a", "output": "7"}      ]},{"role":"tool","tool_call_id":"a","content":"7"}
 *
 * What is wrong inside the messages is found by the chat's own checks; here only what they could not see any more. */
static int llm__oai_item_message(llm_openai_call *k, int i, int v, int *calling, llm_text *out) {
    const llm_json *d = k->body;
    int type_at = llm__oai_get(d, v, "type"), id = llm__oai_get(d, v, "call_id");
    const char *type = type_at < 0 ? "message" : llm_json_str(d, type_at, NULL);
    llm__oai_at(k, "input[%d]", i);
    if (llm_json_type_of(d, v) != LLM_JSON_OBJECT || !type) return llm__oai_bad(k, NULL, "must be an item, an object");
    if (!strcmp(type, "reasoning")) return 1; /* thoughts of an earlier answer are not shown again */
    int call = !strcmp(type, "function_call"), result = !strcmp(type, "function_call_output"), message = !strcmp(type, "message");
    if (!call && !result && !message) return llm__oai_bad(k, NULL, ": items of type %.40s are not supported", type);
    if (!message && !llm_json_str(d, id, NULL)) return llm__oai_bad(k, NULL, ": call_id must be a text");
    if (*calling && !call) llm_text_str(out, "]}");
    if (message) llm_text_format(out, "%,{'role':%j,'content':", d, llm_json_find(d, v, "role"));
    if (result) llm_text_format(out, "%,{'role':'tool','tool_call_id':%j,'content':", d, id);
    if (call && !*calling) llm_text_format(out, "%,{'role':'assistant','content':null,'tool_calls':[");
    if (call)
        llm_text_format(out, "%,{'type':'function','id':%j,'function':{'name':%j,'arguments':%j}", d, id, d, llm__oai_get(d, v, "name"), d,
                        llm__oai_get(d, v, "arguments"));
    else llm__oai_item_content(d, llm_json_find(d, v, message ? "content" : "output"), out);
    llm_text_str(out, "}");
    *calling = call;
    return 1;
}

/* Rewrites `instructions` and `input` as messages, a document of their own. */
static int llm__oai_input(llm_openai_call *k) {
    const llm_json *d = k->body;
    int system = llm__oai_get(d, 0, "instructions"), v = llm__oai_get(d, 0, "input"), i = 0, calling = 0;
    int text = llm_json_type_of(d, v) == LLM_JSON_STRING;
    LLM__SCOPED(llm_text_free) llm_text out = LLM__ZERO;
    if (system >= 0 && !llm_json_str(d, system, NULL)) return llm__oai_bad(k, "instructions", "must be a text");
    if (!text && (llm_json_type_of(d, v) != LLM_JSON_ARRAY || !llm_json_size(d, v)))
        return llm__oai_bad(k, "input", "must be a text or a list of items");
    if (llm_json_size(d, v) > LLM__OAI_MESSAGES)
        return llm__oai_bad(k, "input", ": at most %d items, got %d", LLM__OAI_MESSAGES, llm_json_size(d, v));
    llm_text_str(&out, "[");
    if (system >= 0) llm_text_format(&out, "{'role':'system','content':%j}", d, system);
    if (text) llm_text_format(&out, "%,{'role':'user','content':%j}", d, v);
    for (int e = text ? -1 : llm_json_first(d, v); e >= 0; e = llm_json_next(d, e))
        if (!llm__oai_item_message(k, i++, e, &calling, &out)) return 0;
    llm_text_str(&out, calling ? "]}]" : "]");
    llm_result r = out.failed ? llm__nomem() : llm_json_parse(out.data, out.len, NULL, &k->items_said);
    k->chat = k->items_said;
    k->messages = 0;
    return r ? llm__oai_refused(k, r, "input") : 1;
}

LLM__PRIVATE int llm__oai_response_fields(llm_openai_call *k) {
    static const char *const no_memory[] = {"previous_response_id", "conversation", "prompt"};
    static const char *const repeated[] = {"instructions", "metadata", "reasoning", "text", "tool_choice", "tools"};
    const llm_json *d = k->body;
    size_t bytes = 0;
    const int include = llm__oai_get(d, 0, "include");
    const char *no_place = k->asked.n > 1            ? "n"
                           : k->echo                 ? "echo"
                           : k->prompt_logprobs >= 0 ? "prompt_logprobs"
                           : k->token_ids            ? "return_token_ids"
                           : k->metrics              ? "return_metrics"
                                                     : NULL;
    for (int i = 0; i < LLM__COUNT(no_memory); i++)
        if (llm__oai_has(k, no_memory[i]))
            return llm__oai_bad(k, no_memory[i], "is not currently supported: nothing is kept between two requests");
    for (int i = 0; i < LLM__COUNT(repeated); i++)
        if ((bytes += llm__json_bytes(d, llm__oai_get(d, 0, repeated[i]))) > LLM__OAI_REPEATED)
            return llm__oai_bad(k, repeated[i], ": a response repeats it; of all that it repeats at most %d bytes may be sent, got %zu",
                                LLM__OAI_REPEATED, bytes);
    if (no_place) return llm__oai_bad(k, no_place, "has no place in a response: it is one answer; /v1/chat/completions has it");
    if (include >= 0 && llm_json_type_of(d, include) != LLM_JSON_ARRAY) return llm__oai_bad(k, "include", "must be a list of texts");
    for (int e = llm_json_first(d, include); e >= 0; e = llm_json_next(d, e)) {
        const char *what = llm_json_str(d, e, NULL);
        if (!what) return llm__oai_bad(k, "include", "must be a list of texts");
        k->want_logprobs |= !strcmp(what, "message.output_text.logprobs");
    }
    if (k->background) return llm__oai_bad(k, "background", ": true is not supported: the answer comes in this connection");
    if (llm__oai_has(k, "metadata") && llm_json_type_of(d, llm__oai_get(d, 0, "metadata")) != LLM_JSON_OBJECT)
        return llm__oai_bad(k, "metadata", "must be an object");
    if (k->store) llm__report_name(&k->ignored, llm__lit("store")); /* nothing is kept; the answer says so too */
    if (k->truncation) llm__report_name(&k->ignored, llm__lit("truncation"));
    llm__oai_reports_in(k, "reasoning", "effort");
    llm__oai_reports_in(k, "text", "format");
    return 1;
}

LLM__PRIVATE int llm__oai_messages(llm_openai_call *k) {
    int i = 0;
    k->chat = k->body;
    k->messages = llm__oai_get(k->body, 0, "messages");
    if (k->info.kind == LLM_OPENAI_RESPONSE && !llm__oai_input(k)) return 0;
    int n = llm_json_size(k->chat, k->messages);
    llm__oai_at(k, k->info.kind == LLM_OPENAI_RESPONSE ? "input" : "messages");
    if (llm_json_type_of(k->chat, k->messages) != LLM_JSON_ARRAY || !n)
        return llm__oai_bad(k, NULL, "must be a list with at least one message");
    if (n > LLM__OAI_MESSAGES) return llm__oai_bad(k, NULL, ": at most %d, got %d", LLM__OAI_MESSAGES, n);
    if (llm__oai_has(k, "prompt_token_ids"))
        return llm__oai_bad(k, "prompt_token_ids", ": a chat's prompt is made of its messages, /v1/completions takes ids");
    for (int m = llm_json_first(k->chat, k->messages); m >= 0; m = llm_json_next(k->chat, m)) {
        if (!llm__oai_message(k, i++, m)) return 0;
        const char *role = llm_json_str(k->chat, llm_json_find(k->chat, m, "role"), NULL);
        if (k->echo && i == n && role && !strcmp(role, "assistant"))
            return llm__oai_bad(k, "echo", ": a message that is continued is answered with what is new alone");
    }
    if (k->info.kind != LLM_OPENAI_RESPONSE) k->echo = 0; /* in vLLM, too, it has a meaning behind an assistant's message only */
    return llm__oai_thinking_fields(k) && llm__oai_modalities(k) && llm__oai_template_fields(k);
}
