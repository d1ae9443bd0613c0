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

LLM__PRIVATE llm *llm__easy_open(const char *path, llm_model_config *m, llm_engine_config *c) {
    llm *l = LLM__NEW(llm, 1);
    m->log = c->log;
    m->log_user = c->log_user;
    llm_result r = l ? llm_model_open(path, m, &l->model) : llm__nomem();
    if (!r && !c->max_model_len)
        c->max_model_len = LLM__MIN(8192, l->model->arch.max_len); /* enough to talk; a long context takes gigabytes */
    if (!r) r = llm_engine_open(l->model, c, &l->engine);
    if (l) l->reasoning = l->tool_format = -1;
    if (!r) return l;
    llm_free(l);
    return NULL;
}

/* cfg is copied, so it need not outlive the call; its log and progress serve the model's loading too. */
LLM_API llm *llm_load(const char *path, const llm_engine_config *cfg) {
    llm_model_config m = LLM__ZERO;
    llm_engine_config c = LLM__ZERO;
    if (cfg) c = *cfg;
    return llm__easy_open(path, &m, &c);
}

/* The engine goes first: it reads the model's weights. Chats must have been freed. */
LLM_API void llm_free(llm *l) {
    if (!l) return;
    llm_engine_close(l->engine);
    llm_model_close(l->model);
    if (l->voice) llm_text_free(&l->voice->notes);
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
    if (llm_request_submit(l->engine, &c, &r)) return NULL;
    char *text = NULL;
    if (!llm_request_run(l->engine, r) && !llm_request_get_output(r, 0, &out)) text = llm__strndup(out.text, out.text_len);
    llm_request_free(r);
    return text;
}

/* Adds a message as JSON text: any bytes are safe there, and the template reads the same tree as from a server's request. */
static void llm__chat_add(llm_text *messages, const char *role, const char *text, size_t len) {
    llm_text_format(messages, messages->len ? ",{'role':%q,'content':%Q}" : "{'role':%q,'content':%Q}", role, text, len);
}

/* The model's own sampling, but answers of at most 1024 tokens. NULL: no memory. */
LLM_API llm_chat *llm_chat_new(llm *l, const char *system) {
    llm_chat *c = LLM__NEW(llm_chat, 1);
    if (!c) return NULL;
    c->l = l;
    llm_sampling_chat(l->model, &c->sampling);
    c->sampling.max_tokens = 1024; /* a small model may never end by itself */
    if (system) llm__chat_add(&c->messages, "system", system, strlen(system));
    c->first = c->messages.len;
    return c;
}

LLM_API llm_sampling *llm_chat_sampling(llm_chat *c) { return &c->sampling; }

/* Forgets messages beyond `len` bytes. */
static void llm__chat_cut(llm_chat *c, size_t len) {
    c->messages.len = len;
    if (c->messages.data) c->messages.data[len] = 0;
    c->messages.failed = 0;
}

/* The request goes, what it said so far becomes a message: the next turn is rendered with it, whether the answer had ended or was left in
 * the middle. Without an answer under way there is nothing to do. */
LLM_API llm_result llm_chat_stop(llm_chat *c) {
    if (!c->request) return LLM_OK;
    llm_request_free(c->request);
    c->request = NULL;
    llm__chat_add(&c->messages, "assistant", c->answer.data, c->answer.len);
    return c->messages.failed || c->answer.failed ? llm__nomem() : LLM_OK;
}

/* An answer under way is stopped first. */
LLM_API void llm_chat_reset(llm_chat *c) {
    llm_chat_stop(c);
    llm__chat_cut(c, c->first);
}

LLM_API void llm_chat_free(llm_chat *c) {
    if (!c) return;
    llm_request_free(c->request);
    llm_text_free(&c->messages);
    llm_text_free(&c->answer);
    llm_text_free(&c->piece);
    LLM_FREE(c);
}

/* Renders the whole conversation by the model's own template and submits it. Guarded: a user who types a control token gets its letters,
 * not the token. On error, as that of a model without a template, the message is taken back, so that the caller may try another. */
LLM_API llm_result llm_chat_say(llm_chat *c, const char *user_message) {
    llm_render_options how = LLM__ZERO;
    llm_request_config cfg = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text context = LLM__ZERO, prompt = LLM__ZERO;
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    llm_result r = llm_chat_stop(c);
    if (!r) r = llm__unset("llm_sampling", c->unknown, sizeof c->unknown);
    size_t before = c->messages.len;
    llm__chat_add(&c->messages, "user", user_message, strlen(user_message));
    llm_text_format(&context, "{'messages':[%s],'add_generation_prompt':true}", c->messages.data ? c->messages.data : "");
    if (!r && (context.failed || c->messages.failed)) r = llm__nomem();
    how.guard = c->l->model;
    if (!r) r = llm_json_parse(context.data, context.len, NULL, &doc);
    if (!r) r = llm_render(c->l->model, doc, &how, &prompt);
    cfg.prompt = prompt.data;
    cfg.prompt_len = prompt.len;
    cfg.tokenize_flags = LLM_TOK_PARSE_SPECIAL | LLM_TOK_GUARDED;
    cfg.sampling = c->sampling;
    cfg.sampling.n = cfg.sampling.best_of = 1;
    if (!r) r = llm_request_submit(c->l->engine, &cfg, &c->request);
    if (r) llm__chat_cut(c, before);
    c->answer.len = 0;
    return r;
}

/* Steps the engine until there is text to show. At the end the answer joins the conversation. The piece lives until the
 * next call. A failed step ends the answer like its own end: what was said stays. */
LLM_API const char *llm_chat_next(llm_chat *c) {
    llm_event event;
    while (c->request) {
        if (!llm_request_poll(c->request, &event)) {
            if (llm_request_done(c->request)) llm_chat_stop(c);
            else llm_engine_step(c->l->engine, NULL);
            continue;
        }
        if (!event.text_len) continue;
        c->piece.len = 0;
        llm_text_add(&c->piece, event.text, event.text_len);
        llm_text_add(&c->answer, event.text, event.text_len);
        return c->piece.failed ? NULL : c->piece.data;
    }
    return NULL;
}
