#include "serve/easy.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/model.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/tokenizer.h"
#include "api/json.h"
#include "api/template.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/json.h"
#include "model/loader.h"
#include "engine/scheduler.h"
#include "serve/sizes.h"

/* ---- answers ---- */

static void llm__reply_begin(llm__reply *a) {
    a->text.len = a->stop.len = 0;
    a->text.failed = a->stop.failed = 0;
    if (a->text.data) a->text.data[0] = 0;
    a->error[0] = 0;
    memset(&a->shown, 0, sizeof a->shown);
}

/* What a request can tell in numbers, whether it has ended or not. */
static void llm__reply_figures(llm_answer *a, const llm_engine *engine, const llm_request *r) {
    llm_request_metrics m;
    llm_engine_stats stats;
    llm_output out;
    llm_request_get_metrics(r, &m);
    llm_engine_get_stats(engine, &stats);
    if (llm_request_get_output(r, 0, &out)) return;
    a->finish = out.finish;
    a->prompt_tokens = m.n_prompt_tokens;
    a->cached_tokens = m.n_cached_tokens;
    a->completion_tokens = (int32_t)out.n_token_ids;
    a->context_left = stats.max_model_len - m.n_prompt_tokens - (int32_t)out.n_token_ids;
    a->first_token_s = m.first_token_time > 0 ? m.inference_start_time + m.first_token_time - m.arrival_time : 0;
    a->total_s = m.finish_time > 0 ? m.finish_time - m.arrival_time : m.model_execute_time;
}

static void llm__reply_note(llm__reply *a, const llm_engine *engine, const llm_request *r) {
    llm_output out;
    llm__reply_figures(&a->shown, engine, r);
    if (a->shown.finish == LLM_FINISH_ERROR) snprintf(a->error, sizeof a->error, "%s", llm_request_error(r));
    if (!llm_request_get_output(r, 0, &out) && out.stop_reason) llm_text_str(&a->stop, out.stop_reason);
}

static void llm__reply_get(const llm__reply *a, llm_answer *out) {
    *out = a->shown;
    out->text = a->text.data ? a->text.data : "";
    out->text_len = a->text.len;
    out->error = out->finish == LLM_FINISH_ERROR ? a->error : NULL;
    out->stop_reason = a->stop.len ? a->stop.data : NULL;
}

static void llm__reply_free(llm__reply *a) {
    llm_text_free(&a->text);
    llm_text_free(&a->stop);
}

/* An engine for a model that was opened into l, unless r says that it was not. */
static llm *llm__easy_engine(llm *l, llm_engine_config *c, llm_result r) {
    if (!r && !c->max_model_len)
        c->max_model_len = LLM__MIN(8192, l->model->arch.max_len); /* enough to talk; a long context takes gigabytes */
    if (!r) r = llm_engine_open(l->model, c, &l->engine);
    if (l) l->reasoning = l->tool_format = -1;
    if (!r) return l;
    llm_free(l);
    return NULL;
}

LLM__PRIVATE llm *llm__easy_open(const char *path, llm_model_config *m, llm_engine_config *c) {
    llm *l = LLM__NEW(llm, 1);
    m->log = c->log;
    m->log_user = c->log_user;
    return llm__easy_engine(l, c, l ? llm_model_open(path, m, &l->model) : llm__nomem());
}

/* cfg is copied, so it need not outlive the call; its log and progress serve the model's loading too. */
LLM_API llm *llm_load(const char *path, const llm_engine_config *cfg) {
    llm_model_config m = LLM__ZERO;
    llm_engine_config c = LLM__ZERO;
    if (cfg) c = *cfg;
    return llm__easy_open(path, &m, &c);
}

LLM_API llm *llm_load_files(const llm_file *files, int32_t n, const llm_engine_config *cfg) {
    llm_model_config m = LLM__ZERO;
    llm_engine_config c = LLM__ZERO;
    llm *l = LLM__NEW(llm, 1);
    if (cfg) c = *cfg;
    m.log = c.log;
    m.log_user = c.log_user;
    return llm__easy_engine(l, &c, l ? llm_model_open_files(files, n, &m, &l->model) : llm__nomem());
}

/* The engine goes first: it reads the model's weights. Chats must have been freed. */
LLM_API void llm_free(llm *l) {
    if (!l) return;
    llm_engine_close(l->engine);
    llm_model_close(l->model);
    llm__reply_free(&l->reply);
    if (l->voice) {
        llm_text_free(&l->voice->notes);
        llm_text_free(&l->voice->media_path);
        llm_text_free(&l->voice->media_domains);
        llm_text_free(&l->voice->mm_processor_kwargs);
    }
    LLM_FREE(l->voice);
    LLM_FREE(l);
}

LLM_API const llm_model *llm_get_model(const llm *l) { return l->model; }
LLM_API llm_engine *llm_get_engine(const llm *l) { return l->engine; }
LLM_API void llm_string_free(char *s) { LLM_FREE(s); }

/* One request from begin to end in the caller's thread: the text goes in as it is, without a chat template. NULL: an
 * error, llm_last_error says which. */
LLM_API char *llm_generate(llm *l, const char *prompt, const llm_sampling *s) {
    llm_request_config c = LLM__ZERO;
    llm_request *r;
    llm_output out;
    c.prompt = prompt;
    c.prompt_len = strlen(prompt);
    c.tokenize_flags = LLM_TOK_ADD_SPECIAL;
    if (s) c.sampling = *s;
    else llm_sampling_chat(l->model, &c.sampling);
    llm__reply_begin(&l->reply);
    if (llm_request_submit(l->engine, &c, &r)) return NULL;
    llm_result result = llm_request_run(l->engine, r);
    llm__reply_note(&l->reply, l->engine, r);
    if (!llm_request_get_output(r, 0, &out)) llm_text_add(&l->reply.text, out.text, out.text_len);
    llm_request_free(r);
    if (result) return NULL;
    char *text = l->reply.text.failed ? NULL : llm__strndup(l->reply.text.data, l->reply.text.len);
    if (!text) llm__nomem();
    return text;
}

LLM_API void llm_get_answer(const llm *l, llm_answer *out) { llm__reply_get(&l->reply, out); }

/* ---- messages ---- */

/* A message as JSON text: any bytes are safe there, and the template reads the same tree as from a server's request. On error nothing has
 * changed. */
static llm_result llm__chat_put(llm_chat *c, const char *role, const char *content, size_t len) {
    LLM__SCOPED(llm_text_free) llm_text all = LLM__ZERO;
    if (!llm__grow((void **)&c->end, &c->end_cap, c->n + 1, sizeof *c->end)) return llm__nomem();
    llm_text_format(&all, c->n ? ",{'role':%q,'content':%Q}" : "{'role':%q,'content':%Q}", role, content, len);
    if (all.failed || !llm__grow((void **)&c->messages.data, &c->messages.cap, c->messages.len + all.len + 1, 1)) return llm__nomem();
    llm_text_add(&c->messages, all.data, all.len);
    c->end[c->n++] = c->messages.len;
    return LLM_OK;
}

/* The model's own sampling, but answers of at most 1024 tokens. NULL: no memory. */
LLM_API llm_chat *llm_chat_new(llm *l, const char *system) {
    llm_chat *c = LLM__NEW(llm_chat, 1);
    if (!c) return NULL;
    c->l = l;
    llm_sampling_chat(l->model, &c->sampling);
    c->sampling.max_tokens = 1024; /* a small model may never end by itself */
    if (!system || !llm__chat_put(c, "system", system, strlen(system))) return c;
    llm_chat_free(c);
    return NULL;
}

LLM_API void llm_chat_free(llm_chat *c) {
    if (!c) return;
    llm_request_free(c->request);
    llm__reply_free(&c->reply);
    llm_text_free(&c->messages);
    llm_text_free(&c->tools);
    llm_text_free(&c->piece);
    llm_text_free(&c->role);
    LLM_FREE(c->end);
    LLM_FREE(c);
}

LLM_API llm_sampling *llm_chat_sampling(llm_chat *c) { return &c->sampling; }

LLM_API llm_result llm_chat_add(llm_chat *c, const char *role, const char *content) {
    llm_result r = llm_chat_stop(c);
    if (!r && (!role || !*role || !content)) r = llm__error(LLM_ERR_ARG, "message: a role and a content expected");
    return r ? r : llm__chat_put(c, role, content, strlen(content));
}

LLM_API llm_result llm_chat_load(llm_chat *c, const char *messages, size_t len) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    LLM__SCOPED(llm_text_free) llm_text all = LLM__ZERO;
    llm_result r = llm_chat_stop(c);
    if (!r) r = llm_json_parse(messages, len, NULL, &doc);
    if (!r && llm_json_type_of(doc, 0) != LLM_JSON_ARRAY) r = llm__error(LLM_ERR_FORMAT, "messages: a JSON list expected");
    if (r) return r;
    size_t *end = LLM__NEW(size_t, llm_json_size(doc, 0)), n = 0;
    for (int m = llm_json_first(doc, 0); m >= 0 && end && !r; m = llm_json_next(doc, m)) {
        if (!llm_json_str(doc, llm_json_find(doc, m, "role"), NULL))
            r = llm__error(LLM_ERR_FORMAT, "messages[%zu]: an object with a \"role\" expected", n);
        if (n) llm_text_str(&all, ",");
        llm_json_write(doc, m, &all);
        end[n++] = all.len;
    }
    if (!r && (!end || all.failed)) r = llm__nomem();
    if (r) {
        LLM_FREE(end);
        return r;
    }
    const llm_text old = c->messages;
    c->messages = all;
    all = old;
    LLM_FREE(c->end);
    c->end = end;
    c->n = c->end_cap = n;
    return LLM_OK;
}

LLM_API llm_result llm_chat_set_tools(llm_chat *c, const char *tools) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    LLM__SCOPED(llm_text_free) llm_text own = LLM__ZERO;
    llm_result r = llm_chat_stop(c);
    if (!r && tools) r = llm_json_parse(tools, strlen(tools), NULL, &doc);
    if (!r && tools && llm_json_type_of(doc, 0) != LLM_JSON_ARRAY) r = llm__error(LLM_ERR_FORMAT, "tools: a JSON list expected");
    if (!r && tools) llm_json_write(doc, 0, &own);
    if (!r && own.failed) r = llm__nomem();
    if (r) return r;
    const llm_text old = c->tools;
    c->tools = own;
    own = old;
    return LLM_OK;
}

LLM_API const char *llm_chat_messages(llm_chat *c) {
    llm_chat_stop(c);
    c->piece.len = c->piece.failed = 0;
    llm_text_str(&c->piece, "[");
    llm_text_add(&c->piece, c->messages.data, c->messages.len);
    llm_text_str(&c->piece, "]");
    return c->piece.failed ? NULL : c->piece.data;
}

LLM_API int32_t llm_chat_count(llm_chat *c) {
    llm_chat_stop(c);
    return (int32_t)c->n;
}

LLM_API const char *llm_chat_message(llm_chat *c, int32_t i, const char **role) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    size_t len = 0;
    if (role) *role = NULL;
    llm_chat_stop(c);
    if (i < 0 || (size_t)i >= c->n) return NULL;
    size_t begin = i ? c->end[i - 1] + 1 : 0;
    if (llm_json_parse(c->messages.data + begin, c->end[i] - begin, NULL, &doc)) return NULL;
    int content = llm_json_find(doc, 0, "content");
    const char *text = llm_json_str(doc, content, &len);
    c->piece.len = c->role.len = 0;
    c->piece.failed = c->role.failed = 0;
    llm_text_add(&c->piece, text, len);
    if (!text && content >= 0) llm_json_write(doc, content, &c->piece);
    llm_text_str(&c->role, llm_json_str(doc, llm_json_find(doc, 0, "role"), NULL));
    if (c->piece.failed || c->role.failed) return NULL;
    if (role) *role = c->role.data;
    return c->piece.data;
}

LLM_API void llm_chat_keep(llm_chat *c, int32_t n) {
    llm_chat_stop(c);
    if (n < 0 || (size_t)n >= c->n) return;
    c->n = (size_t)n;
    c->messages.len = n ? c->end[n - 1] : 0;
    if (c->messages.data) c->messages.data[c->messages.len] = 0;
}

LLM_API void llm_chat_reset(llm_chat *c) {
    const char *role;
    llm_chat_message(c, 0, &role);
    llm_chat_keep(c, role && !strcmp(role, "system"));
}

/* ---- turns ---- */

/* Renders the whole conversation by the model's own template and submits it. Guarded: a user who types a control token gets its letters,
 * not the token. */
static llm_result llm__chat_submit(llm_chat *c, const llm_sampling *s) {
    llm_render_options how = LLM__ZERO;
    llm_request_config cfg = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text context = LLM__ZERO, prompt = LLM__ZERO;
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    llm_text_format(&context, "{'messages':[%s],'add_generation_prompt':true", c->messages.data ? c->messages.data : "");
    if (c->tools.len) llm_text_format(&context, ",'tools':%s", c->tools.data);
    llm_text_str(&context, "}");
    how.guard = c->l->model;
    how.as_chat = 1;
    llm_result r = context.failed ? llm__nomem() : llm_json_parse(context.data, context.len, NULL, &doc);
    if (!r) r = llm_render(c->l->model, doc, &how, &prompt);
    cfg.prompt = prompt.data;
    cfg.prompt_len = prompt.len;
    cfg.tokenize_flags = LLM_TOK_PARSE_SPECIAL | LLM_TOK_GUARDED;
    cfg.sampling = s ? *s : c->sampling;
    cfg.sampling.n = cfg.sampling.best_of = 1;
    return r ? r : llm_request_submit(c->l->engine, &cfg, &c->request);
}

LLM_API llm_result llm_chat_reply(llm_chat *c, const llm_sampling *s) {
    llm_result r = llm_chat_stop(c);
    if (!r && !s) r = llm__unset("llm_sampling", c->unknown, sizeof c->unknown);
    llm__reply_begin(&c->reply);
    __atomic_store_n(&c->cancelled, 0, __ATOMIC_RELEASE);
    return r ? r : llm__chat_submit(c, s);
}

LLM_API llm_result llm_chat_say(llm_chat *c, const char *user_message) {
    llm_result r = llm_chat_add(c, "user", user_message);
    if (r) return r;
    r = llm_chat_reply(c, NULL);
    if (r) llm_chat_keep(c, (int32_t)c->n - 1);
    return r;
}

/* The request goes, and what it said becomes a message: the next turn is rendered with it, whether the answer had ended or was left in the
 * middle. */
LLM_API llm_result llm_chat_stop(llm_chat *c) {
    if (!c->request) return LLM_OK;
    llm__reply_note(&c->reply, c->l->engine, c->request);
    if (!llm_request_done(c->request)) c->reply.shown.finish = LLM_FINISH_CANCELLED;
    llm_request_free(c->request);
    c->request = NULL;
    if (c->reply.text.failed) return llm__nomem();
    return llm__chat_put(c, "assistant", c->reply.text.data ? c->reply.text.data : "", c->reply.text.len);
}

LLM_API void llm_chat_cancel(llm_chat *c) { __atomic_store_n(&c->cancelled, 1, __ATOMIC_RELEASE); }
LLM_API int llm_chat_busy(const llm_chat *c) { return c->request != NULL; }

LLM_API void llm_chat_get_answer(const llm_chat *c, llm_answer *out) {
    llm__reply_get(&c->reply, out);
    if (!c->request) return;
    llm__reply_figures(out, c->l->engine, c->request);
    out->finish = LLM_FINISH_NONE; /* pieces of it are still to come */
}

/* Takes what has come. 1: there is text to show, in c->piece. */
static int llm__chat_take(llm_chat *c) {
    llm_event event;
    while (llm_request_poll(c->request, &event)) {
        if (!event.text_len) continue;
        c->piece.len = 0;
        llm_text_add(&c->piece, event.text, event.text_len);
        llm_text_add(&c->reply.text, event.text, event.text_len);
        return !c->piece.failed;
    }
    return 0;
}

/* Steps the engine until there is text to show or the time is over, and hears of a cancel every 10 ms. At the end the answer joins the
 * conversation. A failed step ends the answer like its own end: what was said stays. */
LLM_API const char *llm_chat_next_for(llm_chat *c, double ms) {
    const double end = llm__now() + ms / 1000;
    while (c->request) {
        if (__atomic_load_n(&c->cancelled, __ATOMIC_ACQUIRE)) llm_chat_stop(c);
        else if (llm__chat_take(c)) return c->piece.data;
        else if (llm_request_done(c->request)) llm_chat_stop(c);
        else {
            const double left = (end - llm__now()) * 1000;
            if (left <= 0) break;
            llm_engine_step_for(c->l->engine, LLM__MIN(left, 10), NULL);
        }
    }
    return NULL;
}

/* The piece lives until the next call. */
LLM_API const char *llm_chat_next(llm_chat *c) { return llm_chat_next_for(c, INFINITY); }
