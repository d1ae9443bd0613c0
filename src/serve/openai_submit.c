#include "serve/openai_submit.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/model.h"
#include "api/media.h"
#include "api/request.h"
#include "api/tokenizer.h"
#include "api/json.h"
#include "api/template.h"
#include "api/chat.h"
#include "api/grammar.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "tokenizer/subword.h"
#include "chat/reasoning.h"
#include "chat/tools.h"
#include "model/loader.h"
#include "vision/vision.h"
#include "engine/scheduler.h"
#include "engine/request.h"
#include "serve/openai.h"
#include "serve/openai_tools.h"
#include "serve/openai_media.h"

/* The text of a content for templates that know texts only: a text, or those of a list of parts, one a line. Pictures are marks, where they
 * stood or, as in vLLM, all before the text. */
static void llm__oai_joined(const llm_openai_call *k, int content, llm_text *out) {
    const llm_json *d = k->chat;
    const llm__vision *v = k->service.model->vision;
    const int list = llm_json_type_of(d, content) == LLM_JSON_ARRAY, in_place = k->service.interleave_mm_strings || (v && v->in_text);
    size_t from = out->len;
    for (int pass = in_place; pass < 2; pass++)
        for (int part = list ? llm_json_first(d, content) : content; part >= 0; part = list ? llm_json_next(d, part) : -1) {
            const char *type = list ? llm__oai_word(d, part, "type") : NULL;
            int video = 0;
            const int seen = type && llm__oai_is_media(type, &video);
            if (!in_place && seen == pass) continue;
            if (out->len > from) llm_text_str(out, "\n");
            if (seen) llm__oai_media_mark(k, video, out);
            else llm__add_str(out, list ? llm__json_text_at(d, part, "text") : llm__json_text(d, part));
        }
}

/* Whether a list of parts has a picture. */
static int llm__oai_has_media(const llm_json *d, int content) {
    int video;
    for (int part = llm_json_first(d, content); part >= 0; part = llm_json_next(d, part)) {
        const char *type = llm__oai_word(d, part, "type");
        if (type && llm__oai_is_media(type, &video)) return 1;
    }
    return 0;
}

/* A content for templates that know parts: what is seen is named by its kind alone. */
static void llm__oai_parts(const llm_openai_call *k, int content, llm_text *out) {
    const llm_json *d = k->chat;
    int video;
    if (llm_json_type_of(d, content) != LLM_JSON_ARRAY) {
        if (llm_json_type_of(d, content) == LLM_JSON_NULL) llm_text_str(out, "\"\""); /* beside calls; as vLLM has it */
        else if (llm_json_str(d, content, NULL) && k->service.caps.parts_only)
            llm_text_format(out, "[{'type':'text','text':%j}]", d, content);
        else llm_text_format(out, "%j", d, content);
        return;
    }
    llm_text_str(out, "[");
    for (int part = llm_json_first(d, content); part >= 0; part = llm_json_next(d, part)) {
        const char *type = llm__oai_word(d, part, "type");
        if (!type || !llm__oai_is_media(type, &video)) llm_text_format(out, "%,%j", d, part);
        else llm_text_format(out, "%,{'type':%q}", video ? "video" : "image");
    }
    llm_text_str(out, "]");
}

/* A message's list of calls; -1: it has none. */
static int llm__oai_calls(const llm_json *d, int message) {
    const int calls = llm__oai_get(d, message, "tool_calls");
    return llm_json_size(d, calls) > 0 ? calls : -1;
}

/* What an assistant said for templates that know no tools: its text, then its calls as the JSON that it was told to write, one a line, so
 * that the model sees its earlier calls in the form in which it is asked for new ones: I look.\n{"name": "f", "arguments": {"x": 1}} */
static void llm__oai_said(const llm_json *d, int message, llm_text *out) {
    for (int c = llm_json_first(d, llm__oai_calls(d, message)); c >= 0; c = llm_json_next(d, c)) {
        int f = llm_json_find(d, c, "function"), v = llm__oai_get(d, f, "arguments");
        const llm__str text = llm__json_text(d, v);
        llm_text_format(out, out->len ? "\n{'name': %j, 'arguments': " : "{'name': %j, 'arguments': ", d, llm_json_find(d, f, "name"));
        if (text.n) llm__add_str(out, text);
        else llm_text_format(out, v < 0 || text.p ? "{}" : "%j", d, v);
        llm_text_str(out, "}");
    }
}

/* Whether a message's thoughts go by the word "thinking" too: gpt-oss and LFM2 know no other. Beside a call and words of its own gpt-oss
 * takes none. */
static int llm__oai_as_thinking(const llm_openai_call *k, int m) {
    const char *known = llm_model_get_info(k->service.model)->chat_template;
    const llm__str content = llm__json_text_at(k->chat, m, "content");
    return known && strstr(known, "message.thinking") && llm_json_find(k->chat, m, "thinking") < 0 &&
           !(content.n && llm__oai_calls(k->chat, m) >= 0);
}

/* Message m as the template of this service wants it: what it cannot read is written as text. */
static void llm__oai_write_message(const llm_openai_call *k, int m, llm_text *out) {
    const llm_openai_service *s = &k->service;
    const llm_json *d = k->chat;
    const char *known = llm_model_get_info(s->model)->chat_template, *role = llm__oai_word(d, m, "role");
    int calls = !s->caps.tools && llm__oai_calls(d, m) >= 0, content = llm__oai_get(d, m, "content");
    int joined = calls || (llm_json_type_of(d, content) == LLM_JSON_ARRAY &&
                           (!s->caps.content_parts || (!s->caps.image_parts && llm__oai_has_media(d, content))));
    LLM__SCOPED(llm_text_free) llm_text text = LLM__ZERO;
    llm_text_str(out, "{");
    if (joined) llm__oai_joined(k, content, &text);
    if (calls) llm__oai_said(d, m, &text);
    out->failed |= text.failed;
    if (calls) llm_text_format(out, "'content':%Q", text.data, text.len);
    for (int v = llm_json_first(d, m); v >= 0; v = llm_json_next(d, v)) {
        size_t n;
        const char *key = llm_json_key(d, v, &n);
        if (calls && (!strcmp(key, "content") || !strcmp(key, "tool_calls"))) continue;
        if (!strcmp(key, "reasoning") && llm_json_str(d, v, NULL) && llm_json_find(d, m, "reasoning_content") < 0)
            llm_text_format(out, "%,'reasoning_content':%j", d, v); /* vLLM's newer word; templates know the older one */
        if (llm__word_index("reasoning_content reasoning", llm__lit(key)) >= 0 && llm__oai_as_thinking(k, m))
            llm_text_format(out, "%,'thinking':%j", d, v);
        llm_text_format(out, "%,%Q:", key, n);
        if (joined && !strcmp(key, "content")) llm_text_format(out, "%Q", text.data, text.len);
        else if (!strcmp(key, "role") && !strcmp(role, "developer") && known && !strstr(known, role))
            llm_text_str(out, "\"system\""); /* OpenAI's newer word */
        else if (!strcmp(key, "content")) llm__oai_parts(k, v, out);
        else llm_text_format(out, "%j", d, v);
    }
    llm_text_str(out, "}");
}

/* The list of tools, each with its function in an object of its own. */
static void llm__oai_write_tools(const llm_json *d, int tools, llm_text *out) {
    llm_text_str(out, "[");
    for (int t = llm_json_first(d, tools); t >= 0; t = llm_json_next(d, t)) {
        int flat = llm__tool_function(d, t) == t;
        llm_text_format(out, flat ? "%,{'type':'function','function':{" : "%,%j", d, t);
        for (int v = flat ? llm_json_first(d, t) : -1; v >= 0; v = llm_json_next(d, v))
            if (strcmp(llm_json_key(d, v, NULL), "type")) llm_text_format(out, "%,%q:%j", llm_json_key(d, v, NULL), d, v);
        if (flat) llm_text_str(out, "}}");
    }
    llm_text_str(out, "]");
}

/* What a model is told of its tools where the template has no place for them: a system message, or the end of the chat's own, at m. Returns
 * the message to go on with. */
static int llm__oai_tool_words(const llm_openai_call *k, int m, llm_text *out) {
    LLM__SCOPED(llm_text_free) llm_text words = LLM__ZERO;
    const char *role = llm__oai_word(k->chat, m, "role");
    const llm__str own = llm__json_text_at(k->chat, m, "content");
    int joined = own.p && role && !strcmp(role, "system");
    if (joined) llm__add_str(&words, own), llm_text_str(&words, "\n\n");
    llm_text_str(&words, "You can call these functions:\n");
    llm__oai_write_tools(k->body, k->tools, &words);
    llm_text_str(&words, "\nTo call one, answer with nothing but JSON: {\"name\": the function's name, \"arguments\": {...}}");
    out->failed |= words.failed;
    llm_text_format(out, "{'role':'system','content':%Q}", words.data, words.len);
    return joined ? llm_json_next(k->chat, m) : m;
}

static void llm__reverse(char *s, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        const char c = s[i];
        s[i] = s[n - 1 - i];
        s[n - 1 - i] = c;
    }
}

/* continue_final_message: the prompt ends with the last message's text, without what the template puts behind it. context: what was
 * rendered, guarded against `model` (NULL: plain). Where a template writes <|im_start|>assistant\nOnce upon<|im_end|>\n, the prompt is cut
 * behind "upon", the last place where the text stands: the first of the two turned round, which llm__str_find finds in linear time,
 * whatever the texts. White space at its end is not looked for: most templates trim it. */
LLM_API void llm_template_cut(const llm_model *model, const llm_json *context, llm_text *prompt) {
    LLM__SCOPED(llm_text_free) llm_text text = LLM__ZERO;
    int last = -1;
    for (int m = llm_json_first(context, llm_json_find(context, 0, "messages")); m >= 0; m = llm_json_next(context, m)) last = m;
    const llm__str content = llm__json_text_at(context, last, "content");
    if (content.p && model) llm_guard(model, content.p, content.n, &text);
    else llm__add_str(&text, content);
    prompt->failed |= text.failed;
    while (text.len && strchr(" \n\t\r", text.data[text.len - 1])) text.len--;
    if (!text.len || !prompt->len) return;
    llm__reverse(text.data, text.len);
    llm__reverse(prompt->data, prompt->len);
    const char *found = llm__str_find(llm__text_str(prompt), llm__text_str(&text));
    const size_t behind = found ? (size_t)(found - prompt->data) : 0;
    llm__reverse(prompt->data, prompt->len);
    prompt->len -= behind;
    prompt->data[prompt->len] = 0;
}

/* The service's variables of the template, but those that the request has among its own, or decides by other members: `but`, "a|b". */
static llm_result llm__oai_default_kwargs(const llm_openai_call *k, int kwargs, const char *but, llm_text *context) {
    const char *json = k->service.template_kwargs;
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    const llm_result r = json ? llm_json_parse(json, strlen(json), NULL, &doc) : LLM_OK;
    for (int v = doc ? llm_json_first(doc, 0) : -1; v >= 0 && !r; v = llm_json_next(doc, v)) {
        const llm__str key = llm__json_key(doc, v);
        if (llm_json_find(k->body, kwargs, key.p) >= 0 || llm__alias_among(but, key, NULL)) continue;
        llm_text_format(context, ",%Q:%j", key.p, key.n, doc, v);
    }
    return r;
}

/* Whether and how long the model thinks: what the request says, in one of its words, else the service. As in vLLM, who names an effort
 * switches thinking on, or by "none" off. Variables of the request's own are stronger. */
static llm_result llm__oai_write_thinking(const llm_openai_call *k, int kwargs, llm_text *context) {
    const llm_openai_service *s = &k->service;
    const llm_json *d = k->body;
    int effort = llm__oai_get(d, 0, "reasoning_effort"), flag = llm__oai_get(d, 0, "enable_thinking"), on = 0, said = 1;
    const char *type = k->info.kind == LLM_OPENAI_CHAT ? llm__oai_word(d, llm__oai_get(d, 0, "thinking"), "type") : NULL;
    if (effort < 0) effort = llm__oai_get(d, llm__oai_get(d, 0, "reasoning"), "effort");
    llm__str level = llm__json_text(d, effort);
    if (flag >= 0) llm_json_bool(d, flag, &on);
    else if (type) on = !strcmp(type, "enabled");
    else if (level.p) on = !llm__str_eq(level, "none");
    else said = 0;
    if (!said && s->thinking) said = 1, on = s->thinking > 0;
    if (!level.p && s->reasoning_effort) level = llm__lit(s->reasoning_effort);
    if (level.p && llm_json_find(d, kwargs, "reasoning_effort") < 0) llm_text_format(context, ",'reasoning_effort':%Q", level.p, level.n);
    if (said && llm_json_find(d, kwargs, "enable_thinking") < 0) llm_text_format(context, ",'enable_thinking':%b", on);
    return llm__oai_default_kwargs(k, kwargs,
                                   said && level.p ? "enable_thinking|reasoning_effort"
                                   : said          ? "enable_thinking"
                                   : level.p       ? "reasoning_effort"
                                                   : "",
                                   context);
}

/* Fills the template with a context, which is JSON. */
static llm_result llm__oai_render_text(const llm_openai_call *k, const llm_text *context, llm_text *out) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    llm_render_options how = LLM__ZERO;
    how.as_chat = 1;
    how.guard = k->service.model;
    out->len = 0;
    llm_result r = context->failed ? llm__nomem() : llm_json_parse(context->data, context->len, NULL, &doc);
    if (!r) r = llm_render(k->service.model, doc, &how, out);
    if (!r && k->continue_final) llm_template_cut(k->service.model, doc, out);
    return !r && out->failed ? llm__nomem() : r;
}

/* Whether the prompt leaves thoughts open is for the template to say, and for an answer that goes on; not for what users, tools and
 * documents say, whose tags would count for the template's in the rendered text. Where there are any, it is asked of a prompt without them:
 * only then it is rendered twice. texts: where in the context they are, two stretches. */
static llm_result llm__oai_begin_thoughts(llm_openai_call *k, llm_text *context, const size_t texts[4]) {
    const llm_reasoning_kind kind = k->service.reasoning;
    LLM__SCOPED(llm_text_free) llm_text prompt = LLM__ZERO;
    const int first = llm__reasoning_blank(kind, context->data + texts[0], texts[1] - texts[0]),
              second = llm__reasoning_blank(kind, context->data + texts[2], texts[3] - texts[2]);
    const llm_result r = first || second ? llm__oai_render_text(k, context, &prompt) : LLM_OK;
    const llm_text *asked = first || second ? &prompt : &k->text;
    if (!r) llm_reasoning_begin(&k->reasoning, kind, asked->data, asked->len);
    return r;
}

LLM__PRIVATE int llm__oai_render(llm_openai_call *k) {
    const llm_openai_service *s = &k->service;
    const llm_json *d = k->body;
    LLM__SCOPED(llm_text_free) llm_text context = LLM__ZERO;
    const int kwargs = llm__oai_get(d, 0, "chat_template_kwargs"), documents = llm__oai_get(d, 0, "documents"),
              asks = k->generation_prompt && !k->continue_final;
    size_t texts[4] = {0, 0, 0, 0};
    llm_text_str(&context, "{\"messages\":[");
    int m = llm_json_first(k->chat, k->messages);
    if (k->tools >= 0 && !s->caps.tools && s->caps.system_role) m = llm__oai_tool_words(k, m, &context);
    for (; m >= 0; m = llm_json_next(k->chat, m)) {
        const int goes_on = llm_json_next(k->chat, m) < 0 && llm__str_eq(llm__json_text_at(k->chat, m, "role"), "assistant");
        llm_text_format(&context, "%,");
        if (goes_on) texts[1] = context.len;
        llm__oai_write_message(k, m, &context);
        if (!goes_on) texts[1] = context.len;
    }
    llm_text_str(&context, "]");
    for (int v = llm_json_first(d, kwargs); v >= 0; v = llm_json_next(d, v)) {
        llm__str key = llm__json_key(d, v);
        llm_text_format(&context, ",%Q:%j", key.p, key.n, d, v);
    }
    texts[2] = context.len;
    if (k->tools >= 0) llm_text_str(&context, ",\"tools\":"), llm__oai_write_tools(d, k->tools, &context);
    if (documents >= 0) llm_text_format(&context, ",'documents':%j", d, documents);
    texts[3] = context.len;
    llm_result r = llm__oai_write_thinking(k, kwargs, &context);
    llm_text_format(&context, ",'add_generation_prompt':%b}", asks);
    if (!r) r = llm__oai_render_text(k, &context, &k->text);
    if (!r) r = llm__oai_begin_thoughts(k, &context, texts);
    if (r) return llm__oai_failed(k, r, NULL);
    return s->model->vision && k->n_wanted[0] + k->n_wanted[1] ? llm__oai_media_marked(k, &k->text) : 1;
}

/* Texts that are only counted, or of which only the end is wanted, may be longer than the context: up to 4 MiB. */
enum { LLM__OAI_COUNTED = 4 << 20 };

LLM__PRIVATE int llm__oai_prompt_ids(llm_openai_call *k, int v, int add_special, llm_tokens *ids) {
    const size_t least = k->info.kind == LLM_OPENAI_TOKENIZE || k->truncate_prompt || k->keep_first ? LLM__OAI_COUNTED : 0;
    size_t n = 0;
    const char *s = llm_json_str(k->body, v, &n);
    int list = llm_json_type_of(k->body, v) == LLM_JSON_ARRAY && llm_json_size(k->body, v) > 0;
    if (v < 0 && !llm__oai_render(k)) return 0;
    if (v < 0) s = k->text.data ? k->text.data : "", n = k->text.len;
    if (!s && !list) return llm__oai_bad(k, NULL, "must be a text, a list of texts, a list of token ids, or a list of those");
    if (!s) return llm__oai_media_open(k) && llm__oai_ids(k, v, ids);
    int flags = (k->parse_special ? LLM_TOK_PARSE_SPECIAL : 0) | (v < 0 ? LLM_TOK_GUARDED : 0);
    if (k->add_special < 0 ? add_special : k->add_special) flags |= LLM_TOK_ADD_SPECIAL;
    if (!llm__oai_media_open(k)) return 0;
    for (size_t i = 0; i < k->before.len; i++) llm_tokens_add(ids, k->before.data[i]);
    llm_result r = k->service.engine ? llm__prompt_fits(k->service.engine, n, least) : LLM_OK;
    if (!r && k->n_media) r = llm_media_tokenize(k->service.model, s, n, flags, k->media, k->n_media, ids);
    else if (!r) r = llm__tokenizer_encode_until(k->service.model->source.tokenizer, s, n, flags, &k->cancelled, ids);
    if (r == LLM_ERR_CANCELLED) return llm__oai_awaited(k);
    return r ? llm__oai_failed(k, r, NULL) : 1;
}

LLM__PRIVATE void llm__oai_news(void *user, LLM__UNUSED llm_request *request) {
    llm_openai_call *k = (llm_openai_call *)user;
    k->service.on_news(k->user, k);
}

/* Compiles the form that the answers must have, once for all prompts of the call: of what comes behind the thoughts, where the prompt
 * leaves them open (r). A form that is wrong is the user's mistake and is told with the field that held it. But tools whose schemas are
 * right and cannot be enforced are let pass where no call is asked for and none is strict: then the calls are only looked for. */
static int llm__oai_compile(llm_openai_call *k, const llm_reasoning *r) {
    int strict = k->tool_must;
    if (!k->form.kind || k->grammar) return 1;
    k->form.text = k->form_text.data ? k->form_text.data : "";
    k->form.len = k->form_text.len;
    k->form.after = llm__oai_form_after(k, r);
    llm_result e = k->form_text.failed ? llm__nomem() : llm_grammar_open(k->service.model, &k->form, &k->grammar);
    k->s.grammar = k->grammar;
    for (int t = llm_json_first(k->body, k->tools); t >= 0 && !strict; t = llm_json_next(k->body, t))
        llm_json_bool(k->body, llm_json_find(k->body, llm__tool_function(k->body, t), "strict"), &strict);
    if (!e) return 1;
    if (!k->tool_exact || strict || e == LLM_ERR_FORMAT || e == LLM_ERR_NOMEM) return llm__oai_refused(k, e, k->form_name);
    k->form.kind = (llm_grammar_kind)0;
    k->tool_exact = 0;
    return 1;
}

/* How many of a prompt's n ids are kept, its last ones unless truncation_side says otherwise: all, truncate_prompt_tokens of them, or for
 * -1 all that the context holds. Of a prompt that it does not hold, that is what leaves room for max_tokens, as in vLLM, or for one where
 * these would fill it. */
static size_t llm__oai_kept(const llm_openai_call *k, size_t n) {
    const int64_t room = k->service.engine->p.max_len, asked = k->s.max_tokens;
    if (k->truncate_prompt >= 0) return k->truncate_prompt && (uint64_t)k->truncate_prompt < n ? (size_t)k->truncate_prompt : n;
    return n < (size_t)room ? n : (size_t)(room - (asked > 0 && asked < room ? asked : 1));
}

/* Of a text that an encoder reads the end is cut, but for what the tokenizer has put behind it. */
static int llm__oai_cut(const llm_openai_call *k, const llm_tokens *from, size_t most, llm_tokens *to) {
    const size_t behind = LLM__MIN(k->service.model->source.tokenizer->after.len, most);
    if (!k->service.model->arch.encoder || from->len <= most) return 0;
    for (size_t i = 0; i < most; i++) llm_tokens_add(to, from->data[i < most - behind ? i : from->len - most + i]);
    return 1;
}

/* Hands one prompt to the engine, which copies it, and prepares its choices. The choices come first, for the request may have news before
 * llm_request_submit returns; n_requests counts only those that run. given: the prompt's text as it was sent, if it was one. */
static int llm__oai_submit_ids(llm_openai_call *k, const llm_tokens *ids, llm__str given) {
    const llm_openai_service *s = &k->service;
    const int whole = s->model->arch.encoder && (k->truncate_prompt < 0 || k->keep_first); /* it needs no place for an answer */
    const size_t kept = whole ? (size_t)s->engine->p.max_len : llm__oai_kept(k, ids->len);
    LLM__SCOPED(llm_tokens_free) llm_tokens cut = LLM__ZERO;
    if (llm__oai_cut(k, ids, kept, &cut)) ids = &cut;
    if (cut.failed) return llm__oai_failed(k, llm__nomem(), NULL);
    const size_t skip = k->cut_end > 0 ? 0 : ids->len - LLM__MIN(kept, ids->len);
    const size_t most = k->keep_first && !whole ? (size_t)s->engine->p.max_len - 1 : k->cut_end > 0 ? kept : ids->len;
    int parsed = k->tools >= 0 && (!k->form.kind || k->tool_exact);
    llm_request_config c = LLM__ZERO;
    c.prompt_ids = ids->data + skip;
    c.n_prompt_ids = LLM__MIN(ids->len - skip, most);
    c.priority = k->priority;
    c.cache_salt = k->cache_salt;
    c.lora = k->lora;
    c.score_only = k->max_tokens == 0;
    if (k->info.kind == LLM_OPENAI_EMBEDDING) c.pooling = s->pooling ? s->pooling : LLM_POOLING_OWN;
    if (k->info.kind == LLM_OPENAI_CLASSIFY) c.pooling = LLM_POOLING_SCORE;
    c.deadline_s = s->deadline_s;
    c.id = k->info.id;
    c.received = k->received;
    c.media = k->media;
    c.n_media = k->n_media;
    c.user = k;
    if (s->on_news) c.on_news = llm__oai_news;
    llm__oai_choice *first = k->choice + k->info.n_requests * k->info.n_choices;
    for (int32_t i = 0; i < k->info.n_choices; i++) {
        llm_text *before =
            k->info.kind == LLM_OPENAI_GENERATE || (k->info.kind == LLM_OPENAI_COMPLETION && k->echo) ? &first[i].content : NULL;
        const int shown = before && given.p && k->info.kind == LLM_OPENAI_GENERATE;
        llm_result r = LLM_OK;
        if (shown) llm__add_str(before, given);
        else if (before)
            r = llm_detokenize(s->model, c.prompt_ids, c.n_prompt_ids, k->skip_special ? 0 : LLM_DETOK_KEEP_SPECIAL,
                               before); /* what the model sees, as the echo's logprobs */
        if (r) return llm__oai_failed(k, r, NULL);
        if (before) first[i].chars = llm_text_chars(before->data, before->len);
        first[i].reasoning = k->reasoning;
        if (!i && !llm__oai_compile(k, &first->reasoning)) return 0;
        k->s.thinking_open = first->reasoning.thinking;
        if (!parsed) continue;
        first[i].tools = llm_tool_parser_create(k->tool_format, k->tool_exact, k->body, k->tools, k->tool_many ? 0 : 1);
        llm__random_bytes(&first[i].call_id, sizeof first[i].call_id);
        if (!first[i].tools) return llm__oai_failed(k, llm__nomem(), NULL);
    }
    c.sampling = k->s;
    if (!c.n_prompt_ids) return llm__oai_bad(k, NULL, "Prompt cannot be empty");
    llm_result r = llm_request_submit(s->engine, &c, &k->request[k->info.n_requests]);
    if (r) return llm__oai_failed(k, r, NULL);
    k->info.n_requests++;
    return 1;
}

/* What the answers of all prompts may keep until the last of them has ended. */
static int llm__oai_values_fit(llm_openai_call *k) {
    const int64_t answers = (int64_t)k->n_room * (k->s.use_beam_search ? 4 * k->s.best_of : LLM__MAX(k->s.best_of, k->info.n_choices)),
                  room = k->service.engine->p.max_len, tokens = k->s.max_tokens < 0 ? room : LLM__MIN(k->s.max_tokens, room),
                  each = tokens * LLM__MAX(k->s.logprobs, 1);
    if (answers < 2 || each <= LLM__OAI_VALUES / answers) return 1;
    return llm__oai_bad(k, "max_tokens", ": %lld answers of up to %lld tokens, with %d log-probabilities each, are more than %d values",
                        (long long)answers, (long long)tokens, (int)LLM__MAX(k->s.logprobs, 1), LLM__OAI_VALUES);
}

LLM__PRIVATE int llm__oai_submit_all(llm_openai_call *k) {
    const llm_json *d = k->body;
    const int ids_only = k->info.kind == LLM_OPENAI_COMPLETION && !llm__oai_has(k, "prompt") && llm__oai_has(k, "prompt_token_ids");
    const char *name = ids_only ? "prompt_token_ids" : llm__oai_kinds[k->info.kind].prompt; /* FastDeploy's, and everybody's */
    int chat = llm__oai_chats(k), embedding = llm__oai_pools(k), most = embedding ? LLM__OAI_INPUTS : LLM__OAI_PROMPTS;
    int v = chat ? -1 : llm__oai_get(d, 0, name), n = llm_json_size(d, v), first = llm_json_first(d, v);
    int many = llm_json_type_of(d, v) == LLM_JSON_ARRAY &&
               (llm_json_type_of(d, first) == LLM_JSON_STRING || llm_json_type_of(d, first) == LLM_JSON_ARRAY);
    if (k->info.kind == LLM_OPENAI_CLASSIFY && !k->service.model->pooler.n_labels)
        return llm__oai_bad(k, "model", ": it has no classifier, a BERT or its kin ForSequenceClassification was expected");
    llm__oai_at(k, "%s", name);
    if (!chat && v < 0) return llm__oai_bad(k, NULL, "must be a text, a list of texts, a list of token ids, or a list of those");
    if (llm_json_type_of(d, v) == LLM_JSON_ARRAY && !n) return llm__oai_bad(k, NULL, "Prompt cannot be empty");
    if (many && n > most) return llm__oai_bad(k, NULL, ": at most %d prompts, got %d", most, n);
    if (many && n > 1 && k->media_data >= 0) return llm__oai_bad(k, NULL, ": pictures and videos go with one prompt, not with %d", n);
    k->n_room = many ? n : 1;
    if ((int64_t)k->n_room * k->info.n_choices > LLM__OAI_CHOICES)
        return llm__oai_bad(k, "n", ": %d answers to each of %d prompts, at most %d in one request", k->info.n_choices, k->n_room,
                            LLM__OAI_CHOICES);
    if (!llm__oai_values_fit(k)) return 0;
    k->request = LLM__NEW(llm_request *, k->n_room);
    k->choice = LLM__NEW(llm__oai_choice, k->n_room * k->info.n_choices);
    k->info.requests = k->request;
    if (!k->request || !k->choice) return llm__oai_failed(k, llm__nomem(), NULL);
    int e = many ? first : v;
    do {
        LLM__SCOPED(llm_tokens_free) llm_tokens ids = LLM__ZERO;
        size_t len = 1;
        if (many && llm_json_type_of(d, e) != llm_json_type_of(d, first))
            return llm__oai_bad(k, NULL, "must be a list of one kind of prompts");
        if (embedding && llm_json_str(d, e, &len) && !len) return llm__oai_bad(k, NULL, ": a text is empty");
        if (!llm__oai_awaited(k) || !llm__oai_prompt_ids(k, e, !chat, &ids) || !llm__oai_submit_ids(k, &ids, llm__json_text(d, e)))
            return 0;
        e = many ? llm_json_next(d, e) : -1;
    } while (e >= 0);
    return 1;
}
