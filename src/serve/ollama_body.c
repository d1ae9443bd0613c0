/* ollama_body: a body of Ollama rewritten as one of OpenAI. */
#include "api/text.h"
#include "api/easy.h"
#include "api/sampler.h"
#include "api/json.h"
#include "api/chat.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/text.h"
#include "base/json.h"
#include "chat/reasoning.h"
#include "serve/reports.h"
#include "serve/openai.h"
#include "serve/ollama.h"

/* What stands in a body or in its `options`, in which kinds it has an effect, and what becomes of it. */
typedef struct llm__ollama_member {
    const char *names;                                     /* "a|b" */
    int32_t kinds;                                         /* LLM__OAI_BIT(OLLAMA_...) */
    const char *to;                                        /* OpenAI's name for the same; NULL: */
    int (*read)(llm_openai_call *k, int v, llm_text *out); /* what reads it; NULL too: llm__ollama_prompt */
} llm__ollama_member;

/* A member of `options`. */
static int llm__ollama_said(const llm_openai_call *k, const char *name) {
    return llm__oai_get(k->body, llm__oai_get(k->body, 0, "options"), name);
}

/* What is told and has no effect: the server's own from its start on, or what nothing here has. */
static int llm__ollama_idle(llm_openai_call *k, int v, LLM__UNUSED llm_text *out) {
    llm__report_name(&k->ignored, llm__json_key(k->body, v));
    return 1;
}

static int llm__ollama_idle_option(llm_openai_call *k, int v, LLM__UNUSED llm_text *out) {
    char said[64];
    snprintf(said, sizeof said, "options.%.40s", llm__json_key(k->body, v).p);
    llm__report_name(&k->ignored, llm__lit(said));
    return 1;
}

/* ---- options */

/* A way of sampling that is not to be had: it may be named, with the number that switches it off. */
static int llm__ollama_off(llm_openai_call *k, int v, double off) {
    double x;
    const char *name = llm__json_key(k->body, v).p;
    return (llm_json_num(k->body, v, &x) && x == off) ||
           llm__oai_bad(k, name, ": this way of sampling is not supported: %g, which is without it, was expected", off);
}

static int llm__ollama_zero(llm_openai_call *k, int v, LLM__UNUSED llm_text *out) { return llm__ollama_off(k, v, 0); }
static int llm__ollama_one(llm_openai_call *k, int v, LLM__UNUSED llm_text *out) { return llm__ollama_off(k, v, 1); }

/* Penalties; without effect where repeat_last_n is 0. */
static int llm__ollama_penalty(llm_openai_call *k, int v, llm_text *out) {
    const llm__str key = llm__json_key(k->body, v);
    const char *name = llm__str_eq(key, "repeat_penalty") ? "repetition_penalty" : key.p;
    if (llm__json_whole(k->body, llm__ollama_said(k, "repeat_last_n"), 1)) llm_text_format(out, "%,%q:%j", name, k->body, v);
    return 1;
}

/* How far back penalties look: here over the whole text, as in vLLM, so -1. 0 is no penalty at all. A part of the text would give other
 * answers, unless nothing is penalised. */
static int llm__ollama_last_n(llm_openai_call *k, int v, llm_text *out) {
    static const char *const names[] = {"repeat_penalty", "presence_penalty", "frequency_penalty"};
    const llm_sampling *s = &k->service.defaults;
    double penalty[3] = {s->repetition_penalty > 0 ? (double)s->repetition_penalty : 1.0, (double)s->presence_penalty,
                         (double)s->frequency_penalty};
    int64_t n = 0;
    for (int i = 0; i < 3; i++) llm_json_num(k->body, llm__ollama_said(k, names[i]), &penalty[i]);
    const int penalises = penalty[0] < 1 || penalty[0] > 1 || penalty[1] < 0 || penalty[1] > 0 || penalty[2] < 0 || penalty[2] > 0;
    if (!llm_json_int(k->body, v, &n) || n < -1) return llm__oai_bad(k, "repeat_last_n", "must be a whole number, at least -1");
    if (n == 0) llm_text_format(out, "%,'repetition_penalty':1,'presence_penalty':0,'frequency_penalty':0");
    else if (n > 0 && !penalises) return llm__ollama_idle_option(k, v, out);
    else if (n > 0 && (!k->service.engine || n < k->service.engine->p.max_len))
        return llm__oai_bad(k, "repeat_last_n", ": %lld, but penalties look at the whole text here: -1, or 0 for none, was expected",
                            (long long)n);
    return 1;
}

/* How long: what is not above 0 has no bound but the context's end, as if it was not said. */
static int llm__ollama_num_predict(llm_openai_call *k, int v, llm_text *out) {
    int64_t n = 0;
    if (!llm_json_int(k->body, v, &n) || n < -2) return llm__oai_bad(k, "num_predict", "must be a whole number, at least -2");
    llm_text_format(out, "%,'max_tokens':%l", n > 0 ? n : (int64_t)9e18);
    return 1;
}

/* -1: any, as if it was not said. */
static int llm__ollama_seed(llm_openai_call *k, int v, llm_text *out) {
    int64_t seed = 0;
    if (!llm_json_int(k->body, v, &seed) || seed != -1) llm_text_format(out, "%,'seed':%j", k->body, v);
    return 1;
}

enum {
    LLM__OLLAMA_CHATS = LLM__OAI_BIT(OLLAMA_CHAT) | LLM__OAI_BIT(OLLAMA_GENERATE),
    LLM__OLLAMA_VECTORS = LLM__OAI_BIT(OLLAMA_EMBED) | LLM__OAI_BIT(OLLAMA_EMBEDDINGS),
    LLM__OLLAMA_ALL = LLM__OLLAMA_CHATS | LLM__OLLAMA_VECTORS | LLM__OAI_BIT(OLLAMA_SHOW)
};

/* clang-format off */
static const llm__ollama_member llm__ollama_options[] = {
    {"temperature", LLM__OLLAMA_CHATS, "temperature", NULL}, {"top_k", LLM__OLLAMA_CHATS, "top_k", NULL},
    {"top_p", LLM__OLLAMA_CHATS, "top_p", NULL}, {"min_p", LLM__OLLAMA_CHATS, "min_p", NULL}, {"stop", LLM__OLLAMA_CHATS, "stop", NULL},
    {"seed", LLM__OLLAMA_CHATS, NULL, llm__ollama_seed},
    {"repeat_penalty|presence_penalty|frequency_penalty", LLM__OLLAMA_CHATS, NULL, llm__ollama_penalty},
    {"repeat_last_n", LLM__OLLAMA_CHATS, NULL, llm__ollama_last_n}, {"num_predict", LLM__OLLAMA_CHATS, NULL, llm__ollama_num_predict},
    {"mirostat", LLM__OLLAMA_CHATS, NULL, llm__ollama_zero}, {"typical_p|tfs_z", LLM__OLLAMA_CHATS, NULL, llm__ollama_one}};
/* clang-format on */

/* The members of an object, each by its row; `otherwise` tells of those that no row has, or that have no effect in this kind. */
static int llm__ollama_members(llm_openai_call *k, int object, const llm__ollama_member *table, int n,
                               int (*otherwise)(llm_openai_call *k, int v, llm_text *out), llm_text *out) {
    for (int v = llm_json_first(k->body, object); v >= 0; v = llm_json_next(k->body, v)) {
        const llm__ollama_member *m = NULL;
        if (llm_json_type_of(k->body, v) == LLM_JSON_NULL) continue;
        for (int i = 0; i < n && !m; i++)
            if (table[i].kinds & 1 << k->dialect && llm__alias_member(table[i].names, llm__json_key(k->body, v))) m = &table[i];
        if (!m) otherwise(k, v, out);
        else if (m->to) llm_text_format(out, "%,%q:%j", m->to, k->body, v);
        else if (m->read && !m->read(k, v, out)) return 0;
    }
    return 1;
}

static int llm__ollama_read_options(llm_openai_call *k, int v, llm_text *out) {
    if (llm_json_type_of(k->body, v) != LLM_JSON_OBJECT) return llm__oai_bad(k, "options", "must be an object");
    return llm__ollama_members(k, v, llm__ollama_options, LLM__COUNT(llm__ollama_options), llm__ollama_idle_option, out);
}

/* ---- messages */

/* Base64 texts as parts with data URIs; what is one already stays. */
static int llm__ollama_images(llm_openai_call *k, int v, const char *where, llm_text *out) {
    for (int e = llm_json_first(k->body, v); e >= 0; e = llm_json_next(k->body, e)) {
        const llm__str s = llm__json_text(k->body, e);
        const int whole = s.p && llm__starts(s, llm__lit("data:"));
        if (!s.p) return llm__oai_bad(k, where, "must be a list of pictures in base64");
        llm_text_format(out, "%,{'type':'image_url','image_url':{'url':");
        llm_text_str(out, whole ? "\"" : "\"data:image/*;base64,");
        LLM__SCOPED(llm_text_free) llm_text quoted = LLM__ZERO;
        llm_text_json(&quoted, s.p, s.n);
        if (quoted.len > 1) llm_text_add(out, quoted.data + 1, quoted.len - 1); /* behind its first quote */
        out->failed |= quoted.failed;
        llm_text_str(out, "}}");
    }
    return 1;
}

/* Pictures and a text as the content of a message; text -1: none. */
static int llm__ollama_content(llm_openai_call *k, int text, int images, const char *where, llm_text *out) {
    if (images >= 0 && llm_json_type_of(k->body, images) != LLM_JSON_ARRAY)
        return llm__oai_bad(k, where, "must be a list of pictures in base64");
    if (images < 0 || !llm_json_size(k->body, images)) {
        llm_text_format(out, text < 0 ? "%,'content':''" : "%,'content':%j", k->body, text);
        return 1;
    }
    llm_text_format(out, "%,'content':[");
    if (!llm__ollama_images(k, images, where, out)) return 0;
    if (text >= 0) llm_text_format(out, "%,{'type':'text','text':%j}", k->body, text);
    llm_text_str(out, "]");
    return 1;
}

/* Message i at node m. */
static int llm__ollama_message(llm_openai_call *k, int i, int m, llm_text *out) {
    const llm_json *d = k->body;
    char where[40];
    int content = llm__oai_get(d, m, "content"), images = llm__oai_get(d, m, "images"), calls = llm__oai_get(d, m, "tool_calls");
    if (llm_json_type_of(d, m) != LLM_JSON_OBJECT) return llm_text_format(out, "%,%j", d, m), 1; /* refused there */
    snprintf(where, sizeof where, "messages[%d].images", i);
    llm_text_format(out, "%,{");
    for (int v = llm_json_first(d, m); v >= 0; v = llm_json_next(d, v)) {
        const llm__str key = llm__json_key(d, v);
        if (llm__alias_member("content|images", key) || llm_json_type_of(d, v) == LLM_JSON_NULL) continue;
        const char *to = llm__str_eq(key, "thinking") && llm_json_find(d, m, "reasoning_content") < 0 ? "reasoning_content"
                         : llm__str_eq(key, "tool_name") && llm_json_find(d, m, "name") < 0           ? "name"
                                                                                                      : NULL;
        if (to) llm_text_format(out, "%,%q:%j", to, d, v);
        else llm_text_format(out, "%,%Q:%j", key.p, key.n, d, v);
    }
    if ((content >= 0 || images >= 0 || calls < 0) && !llm__ollama_content(k, content, images, where, out)) return 0;
    llm_text_str(out, "}");
    return 1;
}

static int llm__ollama_messages(llm_openai_call *k, int v, llm_text *out) {
    int i = 0, list = llm_json_type_of(k->body, v) == LLM_JSON_ARRAY;
    if (!list) return llm__oai_bad(k, "messages", "must be a list of messages");
    if (!llm_json_size(k->body, v)) return 1;
    k->idle = 0;
    llm_text_format(out, "%,'messages':[");
    for (int m = llm_json_first(k->body, v); m >= 0; m = llm_json_next(k->body, m))
        if (!llm__ollama_message(k, i++, m, out)) return 0;
    llm_text_str(out, "]");
    return 1;
}

/* ---- the other members */

LLM__PRIVATE llm__str llm__ollama_name_of(const llm_json *body) {
    const int model = llm__oai_get(body, 0, "model");
    llm__str name = llm__json_text(body, model >= 0 ? model : llm__oai_get(body, 0, "name")); /* the older word */
    if (name.p && llm__ends_with(name.p, ":latest")) name.n -= strlen(":latest");
    return name;
}

/* The name as it is known here: the whole, if that is one of ours. */
static int llm__ollama_model(llm_openai_call *k, int v, llm_text *out) {
    const llm__str whole = llm__json_text(k->body, v),
                   name = llm_openai_knows_model(&k->service, whole.p, whole.n) ? whole : llm__ollama_name_of(k->body);
    if (whole.p) llm_text_format(out, "%,'model':%Q", name.p, name.n);
    else llm_text_format(out, "%,'model':%j", k->body, v);
    return 1;
}

/* `name` has no effect beside `model`. */
static int llm__ollama_name(llm_openai_call *k, int v, llm_text *out) {
    return llm__oai_has(k, "model") ? llm__ollama_idle(k, v, out) : llm__ollama_model(k, v, out);
}

/* How long the model stays loaded: as long as the server runs. */
static int llm__ollama_keep_alive(llm_openai_call *k, int v, llm_text *out) {
    const llm_json_type type = llm_json_type_of(k->body, v);
    return type == LLM_JSON_STRING || type == LLM_JSON_NUMBER ? llm__ollama_idle(k, v, out)
                                                              : llm__oai_bad(k, "keep_alive", "must be seconds, or a text such as \"5m\"");
}

static int llm__ollama_format(llm_openai_call *k, int v, llm_text *out) {
    const llm__str word = llm__json_text(k->body, v);
    if (word.p && !word.n) return 1;
    if (word.p && llm__str_eq(word, "json")) llm_text_format(out, "%,'response_format':{'type':'json_object'}");
    else if (llm_json_type_of(k->body, v) == LLM_JSON_OBJECT)
        llm_text_format(out, "%,'response_format':{'type':'json_schema','json_schema':{'name':'format','schema':%j}}", k->body, v);
    else return llm__oai_bad(k, "format", "must be \"json\" or a JSON schema, an object");
    return 1;
}

static int llm__ollama_think(llm_openai_call *k, int v, llm_text *out) {
    int on = 1;
    const llm__str word = llm__json_text(k->body, v);
    if (!llm_json_bool(k->body, v, &on) && !(word.p && llm__alias_among("low|medium|high", word, NULL)))
        return llm__oai_bad(k, "think", "must be true, false, \"low\", \"medium\" or \"high\"");
    if (on && k->service.reasoning == LLM_REASONING_NONE && !k->service.caps.thinking_switch)
        return llm__oai_bad(k, "think", ": this model does not think before it answers");
    if (llm__json_flag(k->body, 0, "raw", 0)) return llm__ollama_idle(k, v, out);
    llm_text_format(out, "%,'enable_thinking':%b", on);
    if (word.p) llm_text_format(out, "%,'reasoning_effort':%j", k->body, v);
    return 1;
}

/* Logprobs are a switch, which a completion has as the number of alternatives. */
static int llm__ollama_logprobs(llm_openai_call *k, int v, llm_text *out) {
    int on = 0, top = llm__oai_get(k->body, 0, "top_logprobs");
    if (!llm_json_bool(k->body, v, &on)) return llm__oai_bad(k, "logprobs", "must be true or false");
    if (!llm__json_flag(k->body, 0, "raw", 0)) llm_text_format(out, "%,'logprobs':%b", on);
    else if (on) llm_text_format(out, top >= 0 ? "%,'logprobs':%j" : "%,'logprobs':0", k->body, top);
    return 1;
}

static int llm__ollama_top_logprobs(llm_openai_call *k, int v, llm_text *out) {
    if (!llm__json_flag(k->body, 0, "raw", 0)) llm_text_format(out, "%,'top_logprobs':%j", k->body, v);
    return 1;
}

/* A prompt that is too long is never cut; a text to be embedded is, unless that is declined. */
static int llm__ollama_truncate(llm_openai_call *k, int v, llm_text *out) {
    int on = 0;
    if (!llm_json_bool(k->body, v, &on)) return llm__oai_bad(k, "truncate", "must be true or false");
    if (on && !(LLM__OLLAMA_VECTORS & 1 << k->dialect)) llm__ollama_idle(k, v, out);
    k->keep_first = on;
    return 1;
}

static int llm__ollama_template(llm_openai_call *k, int v, LLM__UNUSED llm_text *out) {
    const llm__str s = llm__json_text(k->body, v);
    if (s.p && !s.n) return 1;
    llm__oai_bad(k, "template", ": a request cannot bring a template of its own: the model's is used");
    k->info.status = 403;
    return 0;
}

/* Text behind the answer; an empty one is none. */
static int llm__ollama_suffix(llm_openai_call *k, int v, llm_text *out) {
    const llm__str s = llm__json_text(k->body, v);
    if (!s.p || s.n) llm_text_format(out, "%,'suffix':%j", k->body, v);
    return 1;
}

/* What an earlier answer gave: the ids of its prompt and its text. */
static int llm__ollama_context(llm_openai_call *k, int v, LLM__UNUSED llm_text *out) {
    llm__oai_at(k, "context");
    if (llm_json_type_of(k->body, v) != LLM_JSON_ARRAY) return llm__oai_bad(k, NULL, "must be a list of token ids");
    return llm__oai_ids(k, v, &k->before);
}

/* Texts to be embedded; without any there is nothing to do. */
static int llm__ollama_input(llm_openai_call *k, int v, llm_text *out) {
    const llm__str s = llm__json_text(k->body, v);
    if ((s.p && !s.n) || (llm_json_type_of(k->body, v) == LLM_JSON_ARRAY && !llm_json_size(k->body, v))) return 1;
    k->idle = 0;
    llm_text_format(out, "%,'input':%j", k->body, v);
    return 1;
}

/* clang-format off */
static const llm__ollama_member llm__ollama_fields[] = {
    {"model", LLM__OLLAMA_ALL, NULL, llm__ollama_model}, {"name", LLM__OLLAMA_ALL, NULL, llm__ollama_name},
    {"messages", LLM__OAI_BIT(OLLAMA_CHAT), NULL, llm__ollama_messages}, {"tools", LLM__OAI_BIT(OLLAMA_CHAT), "tools", NULL},
    {"prompt|system|images|raw", LLM__OAI_BIT(OLLAMA_GENERATE), NULL, NULL},
    {"suffix", LLM__OAI_BIT(OLLAMA_GENERATE), NULL, llm__ollama_suffix},
    {"template", LLM__OLLAMA_CHATS, NULL, llm__ollama_template}, {"context", LLM__OAI_BIT(OLLAMA_GENERATE), NULL, llm__ollama_context},
    {"stream", LLM__OLLAMA_CHATS, "stream", NULL}, {"format", LLM__OLLAMA_CHATS, NULL, llm__ollama_format},
    {"think", LLM__OLLAMA_CHATS, NULL, llm__ollama_think}, {"logprobs", LLM__OLLAMA_CHATS, NULL, llm__ollama_logprobs},
    {"top_logprobs", LLM__OLLAMA_CHATS, NULL, llm__ollama_top_logprobs},
    {"input", LLM__OAI_BIT(OLLAMA_EMBED), NULL, llm__ollama_input}, {"dimensions", LLM__OAI_BIT(OLLAMA_EMBED), "dimensions", NULL},
    {"prompt", LLM__OAI_BIT(OLLAMA_EMBEDDINGS), NULL, llm__ollama_input},
    {"truncate", LLM__OLLAMA_CHATS | LLM__OLLAMA_VECTORS, NULL, llm__ollama_truncate},
    {"options", LLM__OLLAMA_CHATS | LLM__OLLAMA_VECTORS, NULL, llm__ollama_read_options},
    {"keep_alive", LLM__OLLAMA_CHATS | LLM__OLLAMA_VECTORS, NULL, llm__ollama_keep_alive}};
/* clang-format on */

LLM__PRIVATE const char *llm__ollama_names(llm_openai_kind kind, int options, int i) {
    const llm__ollama_member *table = options ? llm__ollama_options : llm__ollama_fields;
    const int n = options ? LLM__COUNT(llm__ollama_options) : LLM__COUNT(llm__ollama_fields);
    for (int k = 0; k < n; k++)
        if (table[k].kinds & 1 << kind && !i--) return table[k].names;
    return NULL;
}

/* What /api/generate asks: a chat of one or two messages, or, raw, the prompt as it is. */
static int llm__ollama_prompt(llm_openai_call *k, llm_text *out) {
    const llm_json *d = k->body;
    int prompt = llm__oai_get(d, 0, "prompt"), system = llm__oai_get(d, 0, "system"), images = llm__oai_get(d, 0, "images"), raw = 0;
    const llm__str asked = llm__json_text(d, prompt), role = llm__json_text(d, system);
    const int pictures = images >= 0 && !(llm_json_type_of(d, images) == LLM_JSON_ARRAY && !llm_json_size(d, images));
    if (llm__oai_has(k, "raw") && !llm_json_bool(d, llm__oai_get(d, 0, "raw"), &raw))
        return llm__oai_bad(k, "raw", "must be true or false");
    if (prompt >= 0 && !asked.p) return llm__oai_bad(k, "prompt", "must be a text");
    if (system >= 0 && !role.p) return llm__oai_bad(k, "system", "must be a text");
    if (raw && (role.n || k->before.len))
        return llm__oai_bad(k, "raw", ": true goes with neither system nor context, as no template is used");
    k->idle = !asked.n && !pictures;
    if (k->idle) return 1;
    if (raw) {
        k->info.kind = LLM_OPENAI_COMPLETION;
        llm_text_format(out, "%,'prompt':%j", d, prompt);
        if (!k->service.max_tokens && llm__ollama_said(k, "num_predict") < 0) llm_text_format(out, "%,'max_tokens':%l", (int64_t)9e18);
        if (!pictures) return 1;
        return llm__oai_bad(k, "images", "go with a prompt that is not raw");
    }
    llm_text_format(out, "%,'messages':[");
    if (role.n) llm_text_format(out, "{'role':'system','content':%j}", d, system);
    llm_text_format(out, "%,{'role':'user'");
    if (!llm__ollama_content(k, prompt, images, "images", out)) return 0;
    llm_text_str(out, "}]");
    return 1;
}

LLM__PRIVATE llm_openai_kind llm__ollama_kind(llm_openai_kind kind) {
    switch (kind) {
    case LLM_OPENAI_OLLAMA_CHAT:
    case LLM_OPENAI_OLLAMA_GENERATE: return LLM_OPENAI_CHAT;
    case LLM_OPENAI_OLLAMA_EMBED:
    case LLM_OPENAI_OLLAMA_EMBEDDINGS: return LLM_OPENAI_EMBEDDING;
    default: return kind;
    }
}

LLM__PRIVATE void llm__ollama_defaults(const llm_openai_service *s, llm_sampling *to) {
    llm_sampling plain, chat;
    llm_sampling_default(s->model, &plain);
    llm_sampling_chat(s->model, &chat);
    if (!memcmp(&plain, &chat, sizeof plain) || memcmp(&plain, &s->defaults, sizeof plain)) return; /* somebody said something */
    to->temperature = 0.8f;
    to->top_k = 40;
    to->top_p = 0.9f;
}

LLM__PRIVATE int llm__ollama_body(llm_openai_call *k) {
    const int chat = LLM__OLLAMA_CHATS & 1 << k->dialect, vectors = LLM__OLLAMA_VECTORS & 1 << k->dialect;
    LLM__SCOPED(llm_text_free) llm_text out = LLM__ZERO;
    k->idle = chat || vectors;
    k->keep_first = vectors;
    llm_text_str(&out, "{");
    if (!llm__ollama_members(k, 0, llm__ollama_fields, LLM__COUNT(llm__ollama_fields), llm__ollama_idle, &out)) return 0;
    if (k->dialect == LLM_OPENAI_OLLAMA_GENERATE && !llm__ollama_prompt(k, &out)) return 0;
    if (chat && !llm__oai_has(k, "stream")) llm_text_format(&out, "%,'stream':true");
    if (k->dialect == LLM_OPENAI_OLLAMA_EMBEDDINGS) llm_text_format(&out, "%,'normalize':false");
    if (k->idle && chat) llm_text_format(&out, "%,'messages':[{'role':'user','content':''}]"); /* the rest is checked even so */
    llm_text_str(&out, "}");
    return llm__oai_replaced(k, &out);
}
