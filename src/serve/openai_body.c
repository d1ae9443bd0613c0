#include "serve/openai_body.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/model.h"
#include "api/media.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/json.h"
#include "api/template.h"
#include "api/chat.h"
#include "api/grammar.h"
#include "api/options.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "base/threads.h"
#include "base/json.h"
#include "chat/template.h"
#include "chat/tools.h"
#include "model/loader.h"
#include "engine/scheduler.h"
#include "engine/adapters.h"
#include "serve/reports.h"
#include "serve/openai.h"
#include "serve/openai_tools.h"
#include "serve/openai_fields.h"
#include "serve/openai_media.h"
#include "serve/openai_messages.h"
#include "serve/ollama.h"
#include "serve/anthropic.h"

/* An embedding takes what depends on the prompt, and nothing that depends on an answer. */
static int llm__oai_embedding(llm_openai_call *k) {
    const int32_t size = llm_model_get_info(k->service.model)->embedding_size;
    k->s = k->service.defaults;
    k->s.n = k->s.best_of = k->s.max_tokens = 1;
    k->tools = -1;
    if (k->info.stream) return k->info.stream = 0, llm__oai_bad(k, "stream", ": an embedding comes whole, and so do classes");
    return k->dimensions <= size || llm__oai_bad(k, "dimensions", "must be 1 to %d, got %lld", size, (long long)k->dimensions);
}

/* No prompt is cut to nothing. */
static int llm__oai_truncation(llm_openai_call *k) {
    const int v = llm__oai_get(k->body, 0, "truncate_prompt_tokens");
    if (!k->truncate_prompt && v >= 0) return llm__oai_bad(k, "truncate_prompt_tokens", "must be -1, or 1 or more, got 0");
    if (!k->truncate_prompt && k->cut_end >= 0) llm__report_name(&k->ignored, llm__lit("truncation_side"));
    return !k->truncate_prompt || k->cut_end || !k->service.model->arch.encoder ||
           llm__oai_bad(k, "truncation_side", ": left, but of a text that this model reads the beginning is kept");
}

/* The answer's id, if the request chooses it. It stands in headers and logs, so it is plain. */
static int llm__oai_id(llm_openai_call *k) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-";
    if (!k->request_id) return 1;
    if (k->request_id[strspn(k->request_id, plain)])
        return llm__oai_bad(k, "request_id", "must have letters, digits, '_', '.', ':' and '-' only");
    k->info.id = k->request_id;
    return 1;
}

/* Every plain field; of a call that generates, then what depends on several. What is left to submit is what its kind needs: prompts, names
 * of files. */
static int llm__oai_read(llm_openai_call *k) {
    int chat = llm__oai_chats(k), response = k->info.kind == LLM_OPENAI_RESPONSE;
    llm_result r = llm_options_json(&k->fields, k->body, 0, LLM_FROM_REQUEST, &k->ignored);
    if (r) return llm__oai_refused(k, r, k->fields.at);
    llm__oai_reports(k);
    if (k->activation >= 0) k->normalize = k->activation, k->raw_scores = !k->activation;
    if (k->thoughts_plain) k->service.reasoning = LLM_REASONING_NONE;
    if (k->info.kind == LLM_OPENAI_COMPLETION && llm__oai_has(k, "prompt") && llm__oai_has(k, "prompt_token_ids"))
        llm__report_name(&k->ignored, llm__lit("prompt_token_ids"));
    if (!llm__oai_id(k) || !llm__oai_truncation(k)) return 0;
    if (k->info.kind >= LLM_OPENAI_TOKENIZE && !llm__oai_pools(k))
        return k->info.stream = 0, 1; /* these come whole, whatever was asked for */
    if (!llm__oai_stops(k) || !llm__oai_bias(k) || !llm__oai_stream_options(k) || !llm__oai_tools(k)) return 0;
    if (llm__oai_pools(k)) return llm__oai_embedding(k);
    if (response && !llm__oai_response_fields(k)) return 0;
    if (!llm__oai_format(k) || !llm__oai_forms(k, 0) || !llm__oai_structured(k)) return 0;
    if (!llm__oai_tool_choice(k) || !llm__oai_sampling(k) || !llm__oai_logprobs(k) || !llm__oai_early_stop(k) || !llm__oai_repetition(k))
        return 0;
    if (!chat) k->tools = -1;
    if (!llm__oai_last_n(k) || !llm__oai_media_data(k) || (chat && !llm__oai_messages(k))) return 0;
    if (!llm__oai_tool_form(k) || !llm__oai_length(k)) return 0;
    r = llm_sampling_check(k->service.model, &k->s);
    if (!r) return 1;
    llm__oai_at(k, "%.*s", (int)strcspn(llm_last_error(), ".:"), llm_last_error()); /* the sentence begins with the field's name */
    return llm__oai_refused(k, r, NULL);
}

LLM__PRIVATE int llm__oai_is_base(const llm_openai_service *s, llm__str name) {
    for (int32_t i = 0; i < s->n_names; i++)
        if (llm__str_eq(name, s->names[i])) return 1;
    return !name.n || llm__str_eq(name, "default") || llm__str_eq(name, "null");
}

/* 1 if an adapter of that name is loaded. .p NULL: any beside the engine's own, which requests need not name. */
static int llm__oai_is_lora(const llm_openai_service *s, llm__str name) {
    if (!s->engine) return 0;
    if (!name.p) return llm_lora_get(s->engine, s->engine->adapters.own >= 0, NULL, NULL, NULL);
    LLM__LOCKED(&s->engine->mutex); /* adapters come and go while it runs */
    return llm__lora_find(s->engine, name, 1) >= 0;
}

LLM_API int llm_openai_knows_model(const llm_openai_service *s, const char *name, size_t len) {
    return llm__oai_is_base(s, llm__s(name, len)) || llm__oai_is_lora(s, llm__s(name, len));
}

/* The member that says which model or adapter is meant: LMDeploy's is stronger. */
static const char *llm__oai_namer(const llm_openai_call *k) {
    const int adapts = 1 << k->info.kind & (LLM__OAI_PROMPTED | LLM__OAI_CONTEXT);
    return adapts && llm__oai_get(k->body, 0, "adapter_name") >= 0 ? "adapter_name" : "model";
}

LLM_API const char *llm_openai_model(const llm_openai_call *k, size_t *len) {
    if (k->info.status != 200) return *len = 0, (const char *)NULL;
    llm__str name = llm__json_text(k->body, llm__oai_get(k->body, 0, llm__oai_namer(k)));
    if (llm__oai_is_ollama(k)) name = llm__ollama_name_of(k->body);
    *len = name.n;
    return name.p;
}

/* A name that no model can have, and that is not quoted. */
static int llm__oai_odd(llm__str name) { return !name.p || name.n > 4096 || memchr(name.p, 0, name.n) != NULL; }

/* The error of a name that no model has. */
static int llm__oai_no_model(llm_openai_call *k, const char *own, llm__str name) {
    const int shown = (int)LLM__MIN(name.n, (size_t)64);
    if (llm__oai_odd(name)) llm__oai_bad(k, own, "The model does not exist.");
    else if (llm__oai_is_ollama(k)) llm__oai_bad(k, "", "model '%.*s' not found", shown, name.p);
    else llm__oai_bad(k, own, "The model `%.*s` does not exist.", shown, name.p);
    k->info.status = 404;
    k->code = "model_not_found";
    return 0;
}

/* The name answers carry, and whether the body's may be served: `model` may be left out, name the base model, or a loaded adapter, which
 * then is the one that answers. Any other name is served by the base model too, since clients send what they were written for ("gpt-4"),
 * but not where names are strict or an adapter is loaded: there it may be the name of one that is not. */
static int llm__oai_model(llm_openai_call *k) {
    const llm_openai_service *s = &k->service;
    const char *own = llm__oai_namer(k);
    int v = llm__oai_get(k->body, 0, own);
    const llm__str name = llm__json_text(k->body, v);
    k->model = s->n_names ? s->names[0] : name.p ? name.p : "default";
    if (v < 0) return 1;
    if (!name.p) return llm__oai_bad(k, own, "must be a text");
    const int odd = llm__oai_odd(name);
    if (!odd && llm__oai_is_base(s, name)) return 1;
    if (!odd && llm__oai_is_lora(s, name)) return k->model = k->lora = name.p, 1;
    if (!odd && !s->strict_names && *own == 'm' && !llm__oai_is_lora(s, llm__s(NULL, 0))) return 1;
    return llm__oai_no_model(k, own, name);
}

/* Renders probes through the template to learn what it can do, so it takes a moment: once a program, not once a call. */
LLM_API void llm_openai_service_init(llm_openai_service *s, const llm_model *model, llm_engine *engine) {
    const llm_model_info *info = llm_model_get_info(model);
    llm_engine_stats stats = LLM__ZERO;
    llm_template *t = NULL;
    char all[400];
    memset(s, 0, sizeof *s);
    s->model = model;
    s->engine = engine;
    s->max_logprobs = 20;
    s->raw_embeddings = info->raw_embeddings;
    llm_sampling_default(model, &s->defaults);
    s->reasoning = llm_reasoning_detect(info->chat_template);
    s->tool_format = llm_tools_detect(info->chat_template);
    llm_result r = info->chat_template ? llm_template_open(info->chat_template, strlen(info->chat_template), &t) : LLM_OK;
    if (t) r = llm__template_caps(t, &s->caps);
    llm_template_close(t);
    if (engine) llm_engine_get_stats(engine, &stats);
    snprintf(all, sizeof all, "%s %s %lld %lld %s", LLM_VERSION_STRING, info->architecture, (long long)info->n_params,
             (long long)info->weight_bytes, stats.backend ? stats.backend : "");
    snprintf(s->fingerprint, sizeof s->fingerprint, "b%016llx", (unsigned long long)llm__hash(all, strlen(all), 1));
    s->starved = r == LLM_ERR_NOMEM;
}

/* The call comes back with every kind of body: with one that is wrong its status is not 200, submit does nothing and next writes the error.
 * NULL means that there was no memory for the call itself. Defaults that are not 0 are set first, then the body's fields over them. The
 * JSON limits keep a hostile body cheap: 64 levels, 4 million values, no key twice. */
LLM_API llm_openai_call *llm_openai_parse(llm_openai_kind kind, const char *body, size_t len, void *user) {
    static const llm_json_limits limits = {64, 4 << 20, 1};
    llm_openai_call *k = LLM__NEW(llm_openai_call, 1);
    uint64_t bits[2] = {0, 0};
    if (!k) return llm__nomem(), (llm_openai_call *)NULL;
    k->dialect = kind;
    k->info.kind = llm__anthropic_kind(llm__ollama_kind(kind));
    const char *prefix = llm__oai_kinds[kind].prefix ? llm__oai_kinds[kind].prefix : llm__oai_kinds[k->info.kind].prefix;
    llm__random_bytes(bits, sizeof bits);
    snprintf(k->id, sizeof k->id, "%s%016llx%08llx", prefix, (unsigned long long)bits[0], (unsigned long long)bits[1] & 0xFFFFFFFF);
    k->user = user;
    k->created = (int64_t)llm__wall_clock();
    k->received = llm__now();
    k->generation_prompt = k->parse_special = k->tool_many = 1;
    k->add_special = k->messages = k->tools = k->tool_only = k->prompt_logprobs = -1;
    k->thinking_budget = -2;
    k->max_tokens = k->max_completion_tokens = -1;
    k->media_data = k->return_documents = k->cut_end = k->activation = -1;
    k->thoughts_told = 1;
    k->mark = bits[0] ^ bits[1] * 0x9E3779B97F4A7C15u;
    const llm_options fields = {llm__oai_fields, LLM__COUNT(llm__oai_fields), k, k->given, NULL, NULL, k->fields.owned, NULL};
    k->fields = fields;
    k->info.lines = llm__oai_is_ollama(k) ? 2 : kind == LLM_OPENAI_GENERATE;
    k->info.id = k->id;
    k->info.ignored = "";
    k->info.n_choices = 1;
    k->info.status = 200;
    k->info.sampling = &k->s;
    const llm_result r = llm_json_parse(body, len, &limits, &k->body);
    k->info.body_bytes = (int64_t)llm__json_memory(k->body);
    if (r) llm__oai_refused(k, r, "");
    else if (llm_json_type_of(k->body, 0) != LLM_JSON_OBJECT) llm__oai_bad(k, "", "the body must be a JSON object");
    return k;
}

LLM_API int llm_openai_check(llm_openai_call *k, const llm_openai_service *s) {
    size_t n = 0;
    if (k->info.status != 200) return 0;
    k->service = *s;
    if (!s->model) {
        const char *name = llm_openai_model(k, &n);
        return llm__oai_no_model(k, llm__oai_namer(k), llm__s(name, n));
    }
    k->s = s->defaults;
    if (llm__oai_is_ollama(k)) llm__ollama_defaults(s, &k->s);
    k->skip_special = !s->defaults.skip_special_tokens_off;
    k->normalize = !s->raw_embeddings;
    k->as_ids = s->tokens_as_ids;
    k->metrics = s->metrics;
    if (s->starved) llm__oai_failed(k, llm__nomem(), "");
    else if ((!llm__oai_is_ollama(k) || llm__ollama_body(k)) && (!llm__oai_is_anthropic(k) || llm__anthropic_body(k)) &&
             llm__oai_model(k) && llm__oai_read(k) && k->ignored.failed)
        llm__oai_failed(k, llm__nomem(), "");
    k->info.body_bytes = (int64_t)llm__json_memory(k->body);
    k->info.user = k->user_name;
    if (k->ignored.data && !k->ignored.failed) k->info.ignored = k->ignored.data;
    k->info.n_choices = k->s.n > 0 ? k->s.n : 1;
    k->info.form = k->form.kind != 0 || k->n_wanted[0] + k->n_wanted[1] > 0;
    return k->info.status == 200;
}

LLM_API llm_openai_call *llm_openai_begin(const llm_openai_service *s, llm_openai_kind kind, const char *body, size_t len, void *user) {
    llm_openai_call *k = llm_openai_parse(kind, body, len, user);
    if (k) llm_openai_check(k, s);
    return k;
}

LLM_API const llm_openai_info *llm_openai_get_info(const llm_openai_call *k) { return &k->info; }

LLM_API struct llm_media *const *llm_openai_media(const llm_openai_call *k, int32_t *n) {
    *n = k->n_media;
    return k->media;
}

/* In a stream whose requests run, the status line has gone out with 200 and stays so; the error will be an event. */
LLM_API void llm_openai_fail(llm_openai_call *k, int status, const char *message) {
    for (int32_t i = 0; i < k->info.n_requests; i++) llm_request_cancel(k->request[i]);
    llm__oai_bad(k, "", "%s", message);
    k->info.status = k->info.stream && k->info.n_requests ? 200 : status;
    k->failed = status;
}

LLM_API void llm_openai_cancel(llm_openai_call *k) { __atomic_store_n(&k->cancelled, 1, __ATOMIC_RELAXED); }

/* Requests first: once llm_request_free is back, on_news is never called for them again. A request that still runs lives on in the engine
 * for a step, with its own copies of what it was given and its own hold on the grammar; it reads nothing of the call. */
LLM_API void llm_openai_free(llm_openai_call *k) {
    if (!k) return;
    llm_text *const texts[] = {&k->text, &k->form_text, &k->ignored, &k->items, &k->item, &k->logs};
    for (int32_t i = 0; i < k->info.n_requests; i++) llm_request_free(k->request[i]);
    for (int32_t i = 0; k->choice && i < k->n_room * k->info.n_choices; i++) {
        llm_text_free(&k->choice[i].thoughts);
        llm_text_free(&k->choice[i].content);
        llm_tool_parser_free(k->choice[i].tools);
    }
    for (int i = 0; i < LLM__COUNT(texts); i++) llm_text_free(texts[i]);
    llm_grammar_close(k->grammar);
    llm__oai_media_free(k);
    LLM_FREE(k->request);
    LLM_FREE(k->choice);
    llm_tokens_free(&k->stop_ids);
    llm_tokens_free(&k->only_ids);
    llm_tokens_free(&k->logprob_ids);
    llm_tokens_free(&k->tags);
    llm_tokens_free(&k->before);
    llm_options_free(&k->fields);
    llm_json_free(k->items_said);
    llm_json_free(k->body);
    LLM_FREE(k);
}
