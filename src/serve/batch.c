/* batch: many prompts or chats at once.
 *
 * Every prompt is a call of >>openai, as in a server: its fields are read and its errors told there. A window of them is in flight; what
 * has ended is copied out and its call freed, so that memory grows with the answers only.
 *
 *   prompt {"Why?"}, params {"temperature": 0, "max_new_tokens": 8}
 *   body   {"prompt":"Why?","temperature":0,"max_tokens":8,"stream":false,"return_token_ids":true}
 *
 * The shapes are those of the offline interfaces that people come from: params and outputs are FastDeploy's LLM.generate and LLM.chat, with
 * LMDeploy's names of parameters understood too. A prompt that is refused is an output with an error of its own; the others go on. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/batch.h"
#include "api/tokenizer.h"
#include "api/json.h"
#include "api/chat.h"
#include "api/options.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/json.h"
#include "base/fields.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "serve/options.h"
#include "serve/openai.h"
#include "serve/setup.h"
#include "serve/easy.h"

/* llm_load with its settings as JSON: {"max_model_len": 4096, "tensor_parallel_size": 2}, by the names of the command line's options, whose
 * rows it shares (>>options). What only a server has a use for is passed over, a name that nobody knows is an error. NULL: an error,
 * llm_last_error says which. */
LLM_API llm *llm_open(const char *model, const char *config) {
    struct target {
        llm_setup setup;
    };
    static const llm_option table[] = {
        LLM_OPTIONS_SETUP(struct target, setup),
        LLM_OPT_NONE(IGNORED, "port|metrics-port|model-name|chat-template-config|log-level", "nothing is served here"),
        LLM_OPT_NONE(IGNORED, "enable-mm|limit-mm-per-prompt", "a message with an image is refused by itself"), LLM_OPTIONS_FOREIGN};
    unsigned char given[LLM__COUNT(table)];
    struct target t;
    llm_engine_config *e = &t.setup.engine;
    LLM__SCOPED(llm_options_free) llm_options o;
    llm *l = NULL;
    llm_setup_init(&t.setup);
    e->max_num_seqs = 16;
    llm_result r = llm__options_inner(&o, table, LLM__COUNT(table), &t, given, "config", config, LLM_FROM_USER, NULL);
    if (!r) r = llm__setup_check(&t.setup, NULL);
    e->early_stop = t.setup.early_stop;
    if (!e->kv_cache_memory_bytes) e->kv_cache_memory_bytes = (int64_t)4 << 30;
    if (!r) l = llm__easy_open(model, &t.setup.files, e);
    if (l && t.setup.reasoning_parser) l->reasoning = llm_reasoning_named(t.setup.reasoning_parser);
    if (l && t.setup.tool_parser) l->tool_format = llm_tools_named(t.setup.tool_parser);
    llm_setup_free(&t.setup);
    return l;
}

/* A batch on its way. Everything is in the caller's thread; only the engine may have threads of its own. */
typedef struct llm__batch {
    llm_openai_service service;
    llm_text params;        /* members of every body, with a comma before each */
    llm_openai_call **call; /* (n_prompts): those in flight */
    llm__outputs *out;
    int32_t n_prompts, width; /* width: answers to each */
    int chat;
} llm__batch;

/* Every text and list in an output is a copy of its own: the outputs outlive calls, engine and model. */
LLM_API void llm_outputs_free(llm_outputs *o) {
    llm__outputs *all = (llm__outputs *)o; /* its first member */
    for (int32_t i = 0; all && i < all->shown.n; i++) {
        const llm_request_output *x = &all->own[i];
        const void *const owned[] = {x->request_id,        x->prompt,       x->prompt_token_ids,
                                     x->outputs.token_ids, x->outputs.text, x->outputs.reasoning_content,
                                     x->error_msg};
        for (int k = 0; k < LLM__COUNT(owned); k++) LLM_FREE((void *)(uintptr_t)owned[k]);
    }
    if (!all) return;
    if (all->shown.items != all->own) LLM_FREE(all->shown.items);
    LLM_FREE(all->own);
    LLM_FREE(all);
}

/* The parameters as members of a body, which knows the names of FastDeploy, vLLM and LMDeploy. */
static llm_result llm__batch_params(llm__batch *b, const char *params) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    int64_t n;
    llm_sampling s = LLM__ZERO;
    llm_result r = params ? llm_json_parse(params, strlen(params), NULL, &doc) : LLM_OK;
    if (!r && params && llm_json_type_of(doc, 0) != LLM_JSON_OBJECT) r = llm__error(LLM_ERR_ARG, "params: a JSON object was expected");
    for (int v = r ? -1 : llm_json_first(doc, 0); v >= 0; v = llm_json_next(doc, v))
        llm_text_format(&b->params, ",%q:%j", llm_json_key(doc, v, NULL), doc, v);
    if (llm_json_int(doc, llm_json_find(doc, 0, "n"), &n) &&
        llm__fields_put(llm__sampling_fields, LLM__SAMPLING_FIELDS, &s, "n", (double)n))
        b->width = s.n;
    return !r && b->params.failed ? llm__nomem() : r;
}

/* Begins the call of prompt i and submits it. 0: no memory. What is wrong with a prompt its own call will tell. A parameter `stream` is a
 * key that stands there twice, which a body may not have. */
static int llm__batch_start(llm__batch *b, int32_t i, const llm_prompt *p) {
    LLM__SCOPED(llm_text_free) llm_text body = LLM__ZERO;
    if (!b->chat && p->prompt_token_ids) llm_text_format(&body, "{'prompt':%i", p->prompt_token_ids, (size_t)p->n_prompt_token_ids);
    else if (!b->chat) llm_text_format(&body, "{'prompt':%q", p->prompt);
    else if (p->messages) llm_text_format(&body, "{'messages':%s", p->messages);
    else llm_text_format(&body, "{'messages':[{'role':'user','content':%q}]", p->prompt);
    llm_text_format(&body, "%s,'stream':false}", b->params.len ? b->params.data : "");
    if (!body.failed)
        b->call[i] = llm_openai_begin(&b->service, b->chat ? LLM_OPENAI_CHAT : LLM_OPENAI_COMPLETION, body.data, body.len, NULL);
    if (b->call[i]) llm_openai_submit(b->call[i]);
    return b->call[i] != NULL;
}

/* One more than is needed, so that an empty list is not NULL, which means that there was no memory. */
static int32_t *llm__ids_copy(const int32_t *ids, size_t n) {
    int32_t *copy = LLM__NEW(int32_t, n + 1);
    if (copy && n) memcpy(copy, ids, n * sizeof *ids);
    return copy;
}

/* Answer k of prompt i. A chat's text is what a client of the server would see, without thoughts and calls. A call that was refused has no
 * request: its output has the error's status and sentence, and empty lists. 0: no memory. */
static int llm__batch_item(llm__batch *b, int32_t i, int32_t k) {
    llm_request_output *x = &b->out->own[i * b->width + k];
    const llm_openai_call *call = b->call[i];
    const llm_request *request = call->info.n_requests && k < call->info.n_choices ? call->request[0] : NULL;
    const llm__oai_choice *c = request ? &call->choice[k] : NULL;
    llm_completion_output *o = &x->outputs;
    llm_output answer = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text prompt = LLM__ZERO;
    size_t n = 0;
    x->request_id = llm__strdup(call->id);
    x->finished = 1;
    o->index = i;
    if (call->info.status != 200) {
        x->error_code = call->info.status;
        x->error_msg = llm__strdup(call->message);
        b->out->shown.n_failed++;
    }
    const int32_t *ids = request ? llm_request_prompt(request, &n) : NULL;
    if (request) llm_request_get_output(request, k, &answer);
    if (request) llm_request_get_metrics(request, &x->metrics);
    if (request) llm_detokenize(b->service.model, ids, n, LLM_DETOK_KEEP_SPECIAL, &prompt);
    o->text = llm__strndup(c ? c->content.data : NULL, c ? c->content.len : 0);
    if (c && c->thoughts.len) o->reasoning_content = llm__strndup(c->thoughts.data, c->thoughts.len);
    x->prompt = llm__strndup(prompt.data, prompt.len);
    x->num_cached_tokens = x->metrics.n_cached_tokens;
    x->prompt_token_ids = llm__ids_copy(ids, n);
    x->n_prompt_token_ids = (int32_t)n;
    o->token_ids = llm__ids_copy(answer.token_ids, answer.n_token_ids);
    o->n_token_ids = (int32_t)answer.n_token_ids;
    o->send_idx = LLM__MAX(o->n_token_ids - 1, 0);
    o->finish_reason = x->error_code ? "error" : llm_finish_str(answer.finish);
    o->cum_logprob = answer.cum_logprob;
    return x->request_id && o->text && x->prompt && x->prompt_token_ids && o->token_ids;
}

/* Copies the answers of call i, if it has ended, and frees it. 1: it had ended; 0: not yet; -1: no memory. */
static int llm__batch_take(llm__batch *b, int32_t i) {
    LLM__SCOPED(llm_text_free) llm_text text = LLM__ZERO;
    int ok = llm_openai_next(b->call[i], &text);
    if (!ok) return 0;
    for (int32_t k = 0; k < b->width && ok; k++) ok = llm__batch_item(b, i, k);
    llm_openai_free(b->call[i]);
    b->call[i] = NULL;
    return ok ? 1 : -1;
}

/* Fills the window, runs a step for all of it, takes what has ended, until nothing is left. Four prompts a sequence keep the engine's queue
 * from running dry, while the requests that wait cost little. A step that fails ends its requests, and the batch with it. */
static llm_result llm__batch_run(llm__batch *b, llm *l, const llm_prompt *prompts, const llm_batch_config *cfg) {
    llm_engine_stats stats;
    llm_engine_get_stats(l->engine, &stats);
    int32_t window = 4 * stats.max_num_seqs, next = 0, done = 0, first = 0; /* first: before it all have ended */
    llm_result r = LLM_OK;
    while (done < b->n_prompts && !r) {
        for (; next < b->n_prompts && next - done < window && !r; next++)
            if (!llm__batch_start(b, next, &prompts[next])) r = llm__nomem();
        if (!r) r = llm_engine_step(l->engine, NULL);
        for (int32_t i = first; i < next && !r; i++) {
            int ended = b->call[i] ? llm__batch_take(b, i) : 0;
            if (ended < 0) r = llm__nomem();
            done += ended > 0;
            if (ended > 0 && cfg && cfg->progress && cfg->progress(cfg->progress_user, "answers", (double)done / b->n_prompts))
                r = llm__error(LLM_ERR_CANCELLED, "the batch was cancelled after %d of %d prompts", done, b->n_prompts);
            if (i == first && !b->call[i]) first++;
        }
    }
    return r;
}

/* Both batches. Answers lie in the order of the prompts, `width` of each, whichever ended first. NULL: an error of the batch as a whole
 * (bad params, no memory, cancelled), and nothing is left of it. */
static llm_outputs *llm__batch_all(llm *l, int chat, const llm_prompt *prompts, int32_t n, const llm_batch_config *cfg) {
    const llm_sampling_params *params = cfg ? cfg->sampling_params : NULL;
    llm__batch b = LLM__ZERO;
    b.chat = chat;
    b.n_prompts = n;
    llm_openai_service_init(&b.service, l->model, l->engine);
    if (params) b.service.defaults = *params;
    if (l->reasoning >= 0) b.service.reasoning = (llm_reasoning_kind)l->reasoning;
    if (l->tool_format >= 0) b.service.tool_format = l->tool_format;
    b.service.max_tokens = params && params->max_tokens ? params->max_tokens : 512;
    b.width = params && params->n > 1 ? params->n : 1;
    llm_result r = llm__batch_params(&b, cfg ? cfg->params : NULL);
    b.call = LLM__NEW(llm_openai_call *, n + 1);
    b.out = LLM__NEW(llm__outputs, 1);
    if (b.out) b.out->shown.items = b.out->own = LLM__NEW(llm_request_output, (size_t)n * (size_t)b.width + 1);
    if (!r && (!b.call || !b.out || !b.out->own)) r = llm__nomem();
    if (!r) b.out->shown.n = n * b.width;
    if (!r) r = llm__batch_run(&b, l, prompts, cfg);
    for (int32_t i = 0; b.call && i < n; i++) llm_openai_free(b.call[i]);
    LLM_FREE(b.call);
    llm_text_free(&b.params);
    if (!r) return &b.out->shown;
    llm_outputs_free(b.out ? &b.out->shown : NULL);
    return NULL;
}

LLM_API llm_outputs *llm_generate_batch(llm *l, const llm_prompt *prompts, int32_t n, const llm_batch_config *cfg) {
    return llm__batch_all(l, 0, prompts, n, cfg);
}

LLM_API llm_outputs *llm_chat_batch(llm *l, const llm_prompt *prompts, int32_t n, const llm_batch_config *cfg) {
    return llm__batch_all(l, 1, prompts, n, cfg);
}
