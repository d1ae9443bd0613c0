/* anthropic_body: a body of Anthropic rewritten as one of OpenAI.
 *
 *   {"system": "Be brief.", "max_tokens": 50, "stop_sequences": ["END"], "messages": [
 *      {"role": "user", "content": "Weather?"},
 *      {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "Rome"}}]},
 *      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "Sun"}, {"type": "text", "text": "So?"}]}]}
 *
 * becomes
 *
 *   {"max_tokens": 50, "stop": ["END"], "messages": [
 *      {"role": "system", "content": "Be brief."},
 *      {"role": "user", "content": "Weather?"},
 *      {"role": "assistant", "content": null, "tool_calls": [{"id": "t1", "type": "function",
 *          "function": {"name": "look", "arguments": {"at": "Rome"}}}]},
 *      {"role": "tool", "tool_call_id": "t1", "content": "Sun"},
 *      {"role": "user", "content": [{"type": "text", "text": "So?"}]}]}
 *
 * Errors name the member of the caller's own body where it is found wrong here; what is only found later has OpenAI's name, which is
 * mostly the same. Members that are not in the table below have no effect and are told in x-llm-ignored. */
#include "api/text.h"
#include "api/easy.h"
#include "api/json.h"
#include "api/chat.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/text.h"
#include "base/json.h"
#include "chat/reasoning.h"
#include "serve/reports.h"
#include "serve/openai.h"
#include "serve/anthropic.h"

LLM__PRIVATE llm_openai_kind llm__anthropic_kind(llm_openai_kind kind) {
    return kind == LLM_OPENAI_MESSAGES ? LLM_OPENAI_CHAT : kind == LLM_OPENAI_COUNT_TOKENS ? LLM_OPENAI_TOKENIZE : kind;
}

static const char *llm__anthropic_type(const llm_json *d, int v) {
    const char *type = llm__oai_word(d, v, "type");
    return type ? type : "";
}

/* A block of a user's or of a tool's as a part: a text or a picture. */
static int llm__anthropic_part(llm_openai_call *k, const char *where, int block, llm_text *out) {
    const llm_json *d = k->body;
    const char *type = llm__anthropic_type(d, block);
    const int source = llm__oai_get(d, block, "source"), text = llm__oai_get(d, block, "text");
    if (!strcmp(type, "text") && llm_json_str(d, text, NULL)) {
        llm_text_format(out, "%,{'type':'text','text':%j}", d, text);
        return 1;
    }
    if (strcmp(type, "image")) return llm__oai_bad(k, where, ": blocks of type text and image are known here, \"%.40s\" is not", type);
    const llm__str url = llm__json_text_at(d, source, "url"), data = llm__json_text_at(d, source, "data"),
                   media = llm__json_text_at(d, source, "media_type");
    LLM__SCOPED(llm_text_free) llm_text whole = LLM__ZERO;
    if (url.p) llm__add_str(&whole, url);
    else if (data.p && media.p) {
        llm_text_str(&whole, "data:");
        llm__add_str(&whole, media);
        llm_text_str(&whole, ";base64,");
        llm__add_str(&whole, data);
    } else return llm__oai_bad(k, where, ": a source with media_type and data, or with a url, was expected of an image");
    out->failed |= whole.failed;
    llm_text_format(out, "%,{'type':'image_url','image_url':{'url':%Q}}", whole.data, whole.len);
    return 1;
}

/* Blocks of a list as parts, but for those that the caller has written; a text as it is. */
static int llm__anthropic_parts(llm_openai_call *k, const char *where, int content, llm_text *out) {
    const llm_json *d = k->body;
    if (content < 0 || llm_json_str(d, content, NULL)) {
        llm_text_format(out, content < 0 ? "''" : "%j", d, content);
        return 1;
    }
    if (llm_json_type_of(d, content) != LLM_JSON_ARRAY) return llm__oai_bad(k, where, "must be a text or a list of blocks");
    llm_text_str(out, "[");
    for (int b = llm_json_first(d, content); b >= 0; b = llm_json_next(d, b))
        if (strcmp(llm__anthropic_type(d, b), "tool_result") && !llm__anthropic_part(k, where, b, out)) return 0;
    llm_text_str(out, "]");
    return 1;
}

/* A user's message: results of tools are messages of their own, before what else there is. Templates want a call's result right behind the
 * call, and whoever writes text beside a result means it to be read after it; so the order among the blocks is not kept. A message of
 * results alone leaves no message of the user's behind, which would be an empty turn. */
static int llm__anthropic_user(llm_openai_call *k, const char *where, int content, llm_text *out) {
    const llm_json *d = k->body;
    int others = llm_json_type_of(d, content) != LLM_JSON_ARRAY;
    for (int b = others ? -1 : llm_json_first(d, content); b >= 0; b = llm_json_next(d, b)) {
        const int id = llm__oai_get(d, b, "tool_use_id");
        if (strcmp(llm__anthropic_type(d, b), "tool_result")) {
            others = 1;
            continue;
        }
        if (!llm_json_str(d, id, NULL)) return llm__oai_bad(k, where, ": a tool_result needs its tool_use_id, a text");
        llm_text_format(out, "%,{'role':'tool','tool_call_id':%j,'content':", d, id);
        if (!llm__anthropic_parts(k, where, llm__oai_get(d, b, "content"), out)) return 0;
        llm_text_str(out, "}");
    }
    if (!others) return 1;
    llm_text_format(out, "%,{'role':'user','content':");
    if (!llm__anthropic_parts(k, where, content, out)) return 0;
    llm_text_str(out, "}");
    return 1;
}

/* What an assistant said, thought and called. Several texts are one, as they were in the answer that the client repeats: blocks are cut
 * where a call stands between them. Thoughts go where reasoning_content goes, and the template decides whether old ones are shown to the
 * model; those that are redacted say nothing here, so they are left out. */
static int llm__anthropic_assistant(llm_openai_call *k, const char *where, int content, llm_text *out) {
    const llm_json *d = k->body;
    LLM__SCOPED(llm_text_free) llm_text said = LLM__ZERO, thought = LLM__ZERO, calls = LLM__ZERO;
    if (llm_json_str(d, content, NULL)) return llm_text_format(out, "%,{'role':'assistant','content':%j}", d, content), 1;
    if (llm_json_type_of(d, content) != LLM_JSON_ARRAY) return llm__oai_bad(k, where, "must be a text or a list of blocks");
    for (int b = llm_json_first(d, content); b >= 0; b = llm_json_next(d, b)) {
        const char *type = llm__anthropic_type(d, b);
        const int id = llm__oai_get(d, b, "id"), name = llm__oai_get(d, b, "name"), input = llm__oai_get(d, b, "input");
        if (!strcmp(type, "text")) llm__add_str(&said, llm__json_text_at(d, b, "text"));
        else if (!strcmp(type, "thinking")) llm__add_str(&thought, llm__json_text_at(d, b, "thinking"));
        else if (!strcmp(type, "tool_use") && llm_json_str(d, id, NULL) && llm_json_str(d, name, NULL))
            llm_text_format(&calls,
                            input < 0 ? "%,{'id':%j,'type':'function','function':{'name':%j,'arguments':{}}}"
                                      : "%,{'id':%j,'type':'function','function':{'name':%j,'arguments':%j}}",
                            d, id, d, name, d, input);
        else if (strcmp(type, "redacted_thinking"))
            return llm__oai_bad(
                k, where, ": an assistant's blocks are of type text, thinking or tool_use (with id and name), \"%.40s\" is not", type);
    }
    out->failed |= said.failed | thought.failed | calls.failed;
    llm_text_format(out, "%,{'role':'assistant','content':");
    if (calls.len && !said.len) llm_text_str(out, "null");
    else llm_text_format(out, "%Q", said.data, said.len);
    if (thought.len) llm_text_format(out, ",'reasoning_content':%Q", thought.data, thought.len);
    if (calls.len) llm_text_format(out, ",'tool_calls':[%s]", calls.data);
    llm_text_str(out, "}");
    return 1;
}

/* `system`, a text or blocks of text, and then the messages. */
static int llm__anthropic_messages(llm_openai_call *k, int v, llm_text *out) {
    const llm_json *d = k->body;
    const int system = llm__oai_get(d, 0, "system");
    LLM__SCOPED(llm_text_free) llm_text rules = LLM__ZERO;
    int i = 0;
    if (llm_json_type_of(d, v) != LLM_JSON_ARRAY || !llm_json_size(d, v))
        return llm__oai_bad(k, "messages", "must be a list with at least one message");
    if (system >= 0 && !llm_json_str(d, system, NULL) && llm_json_type_of(d, system) != LLM_JSON_ARRAY)
        return llm__oai_bad(k, "system", "must be a text or a list of blocks of text");
    llm__add_str(&rules, llm__json_text(d, system));
    for (int b = llm_json_type_of(d, system) == LLM_JSON_ARRAY ? llm_json_first(d, system) : -1; b >= 0; b = llm_json_next(d, b)) {
        const llm__str text = llm__json_text_at(d, b, "text");
        if (!text.p) return llm__oai_bad(k, "system", "must be a text or a list of blocks of text");
        if (rules.len) llm_text_str(&rules, "\n");
        llm__add_str(&rules, text);
    }
    out->failed |= rules.failed;
    llm_text_format(out, "%,'messages':[");
    if (rules.len) llm_text_format(out, "{'role':'system','content':%Q}", rules.data, rules.len);
    for (int m = llm_json_first(d, v); m >= 0; m = llm_json_next(d, m), i++) {
        char where[40];
        const char *role = llm__oai_word(d, m, "role");
        const int who = llm__word_index("user assistant", llm__lit(role ? role : "")), content = llm__oai_get(d, m, "content");
        snprintf(where, sizeof where, "messages[%d]%s", i, who < 0 ? ".role" : ".content");
        if (who < 0) return llm__oai_bad(k, where, "must be user or assistant");
        if (content < 0) return llm__oai_bad(k, where, "is missing");
        if (who ? !llm__anthropic_assistant(k, where, content, out) : !llm__anthropic_user(k, where, content, out)) return 0;
    }
    llm_text_str(out, "]");
    return 1;
}

/* Tools of the client's own, whose schema stands in input_schema, not in parameters; those with another type than custom run at
 * Anthropic. */
static int llm__anthropic_tools(llm_openai_call *k, int v, llm_text *out) {
    const llm_json *d = k->body;
    int i = 0;
    if (llm_json_type_of(d, v) != LLM_JSON_ARRAY) return llm__oai_bad(k, "tools", "must be a list");
    llm_text_format(out, "%,'tools':[");
    for (int t = llm_json_first(d, v); t >= 0; t = llm_json_next(d, t), i++) {
        char where[32];
        const char *type = llm__oai_word(d, t, "type");
        const int described = llm__oai_get(d, t, "description"), schema = llm__oai_get(d, t, "input_schema");
        snprintf(where, sizeof where, "tools[%d]", i);
        if (type && strcmp(type, "custom")) return llm__oai_bad(k, where, ": tools of type \"%.40s\" run at Anthropic, not here", type);
        llm_text_format(out, "%,{'type':'function','function':{'name':%j", d, llm__oai_get(d, t, "name"));
        if (described >= 0) llm_text_format(out, ",'description':%j", d, described);
        if (schema >= 0) llm_text_format(out, ",'parameters':%j", d, schema);
        llm_text_str(out, "}}");
    }
    llm_text_str(out, "]");
    return 1;
}

static int llm__anthropic_tool_choice(llm_openai_call *k, int v, llm_text *out) {
    const llm_json *d = k->body;
    const int which = llm__word_index("auto any none tool", llm__lit(llm__anthropic_type(d, v))), name = llm__oai_get(d, v, "name");
    static const char *const words[] = {"auto", "required", "none"};
    int one = 0;
    if (which < 0 || (which == 3 && !llm_json_str(d, name, NULL)))
        return llm__oai_bad(k, "tool_choice", "must be an object whose type is auto, any, none, or tool with a name");
    if (which < 3) llm_text_format(out, "%,'tool_choice':%q", words[which]);
    else llm_text_format(out, "%,'tool_choice':{'type':'function','function':{'name':%j}}", d, name);
    if (llm_json_bool(d, llm__oai_get(d, v, "disable_parallel_tool_use"), &one) && one)
        llm_text_format(out, "%,'parallel_tool_calls':false");
    return 1;
}

/* Whether the model thinks first, and how long at most. */
static int llm__anthropic_thinking(llm_openai_call *k, int v, llm_text *out) {
    const int how = llm__word_index("disabled enabled adaptive", llm__lit(llm__anthropic_type(k->body, v)));
    if (how < 0) return llm__oai_bad(k, "thinking", "must be an object whose type is enabled, adaptive or disabled");
    const int bounded = how == 1 && k->service.reasoning != LLM_REASONING_NONE, budget = llm__oai_get(k->body, v, "budget_tokens");
    llm__oai_reports_in(k, "thinking", bounded ? "type|budget_tokens" : "type");
    llm_text_format(out, "%,'enable_thinking':%b", how > 0);
    if (bounded && budget >= 0) llm_text_format(out, "%,'thinking_token_budget':%j", k->body, budget);
    return 1;
}

/* The form of the answer, and the effort: {"format": {"type": "json_schema", "schema"}, "effort"}; output_format is the form alone. */
static int llm__anthropic_output(llm_openai_call *k, int v, llm_text *out) {
    const llm_json *d = k->body;
    const int whole = llm__str_eq(llm__json_key(d, v), "output_config"), format = whole ? llm__oai_get(d, v, "format") : v,
              schema = llm__oai_get(d, format, "schema"), effort = whole ? llm__oai_get(d, v, "effort") : -1;
    const char *name = whole ? "output_config" : "output_format";
    if (llm_json_type_of(d, v) != LLM_JSON_OBJECT) return llm__oai_bad(k, name, "must be an object");
    if (format >= 0 && (strcmp(llm__anthropic_type(d, format), "json_schema") || schema < 0))
        return llm__oai_bad(k, name, ": a format of type json_schema with its schema was expected");
    if (format >= 0)
        llm_text_format(out, "%,'response_format':{'type':'json_schema','json_schema':{'name':'output','schema':%j}}", d, schema);
    if (effort >= 0) llm_text_format(out, "%,'reasoning_effort':%j", d, effort);
    return 1;
}

static int llm__anthropic_metadata(llm_openai_call *k, int v, llm_text *out) {
    const int user = llm__oai_get(k->body, v, "user_id");
    if (user >= 0) llm_text_format(out, "%,'user':%j", k->body, user);
    llm__oai_reports_in(k, "metadata", "user_id");
    return 1;
}

static int llm__anthropic_servers(llm_openai_call *k, LLM__UNUSED int v, LLM__UNUSED llm_text *out) {
    return llm__oai_bad(k, "mcp_servers", ": the server itself calls no tools");
}

/* The members that have an effect. Most keep their value and get OpenAI's name; the others have a reader, which writes what it likes:
 *
 *   messages, system        llm__anthropic_messages writes both, so `system` itself writes nothing
 *   tools, tool_choice      other shapes, and the same meaning
 *   thinking                whether, and with budget_tokens how long at most
 *   output_config           the form that an answer must have, and how much is thought
 *   metadata                user_id alone
 *   mcp_servers             refused: an answer that leaves them out is another answer */
static const struct {
    const char *names, *to;                                /* "a|b"; OpenAI's name for the same; NULL: */
    int (*read)(llm_openai_call *k, int v, llm_text *out); /* what reads it; NULL too: another's */
} llm__anthropic_members[] = {{"model", "model", NULL},
                              {"max_tokens", "max_tokens", NULL},
                              {"temperature", "temperature", NULL},
                              {"top_p", "top_p", NULL},
                              {"top_k", "top_k", NULL},
                              {"stream", "stream", NULL},
                              {"stop_sequences", "stop", NULL},
                              {"messages", NULL, llm__anthropic_messages},
                              {"system", NULL, NULL},
                              {"tools", NULL, llm__anthropic_tools},
                              {"tool_choice", NULL, llm__anthropic_tool_choice},
                              {"thinking", NULL, llm__anthropic_thinking},
                              {"output_config|output_format", NULL, llm__anthropic_output},
                              {"metadata", NULL, llm__anthropic_metadata},
                              {"mcp_servers", NULL, llm__anthropic_servers}};

LLM__PRIVATE const char *llm__anthropic_names(int i) {
    return i < LLM__COUNT(llm__anthropic_members) ? llm__anthropic_members[i].names : NULL;
}

LLM__PRIVATE int llm__anthropic_body(llm_openai_call *k) {
    LLM__SCOPED(llm_text_free) llm_text out = LLM__ZERO;
    if (!llm__oai_has(k, "messages")) return llm__oai_bad(k, "messages", "must be a list with at least one message");
    llm_text_str(&out, "{");
    for (int v = llm_json_first(k->body, 0); v >= 0; v = llm_json_next(k->body, v)) {
        int i = 0;
        if (llm_json_type_of(k->body, v) == LLM_JSON_NULL) continue;
        while (i < LLM__COUNT(llm__anthropic_members) && !llm__alias_member(llm__anthropic_members[i].names, llm__json_key(k->body, v)))
            i++;
        if (i == LLM__COUNT(llm__anthropic_members)) llm__report_name(&k->ignored, llm__json_key(k->body, v));
        else if (llm__anthropic_members[i].to) llm_text_format(&out, "%,%q:%j", llm__anthropic_members[i].to, k->body, v);
        else if (llm__anthropic_members[i].read && !llm__anthropic_members[i].read(k, v, &out)) return 0;
    }
    llm_text_str(&out, "}");
    return llm__oai_replaced(k, &out);
}
