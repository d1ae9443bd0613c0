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
#include "base/text.h"
#include "base/json.h"
#include "base/fields.h"
#include "chat/reasoning.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "serve/reports.h"
#include "serve/options.h"
#include "serve/openai.h"
#include "serve/setup.h"
#include "serve/easy.h"

/* ---- opening ---- */

/* Where what an llm tells goes: to its log, notes to its list too. The library's own lines up to a level. */
static void llm__voice_log(void *user, int level, const char *message) {
    const llm__voice *v = (const llm__voice *)user;
    if (v->log && level <= v->level) v->log(v->user, level, message);
}

static void llm__voice_note(void *user, const char *line) {
    llm__voice *v = (llm__voice *)user;
    llm_text_format(&v->notes, v->notes.len ? "\n%s" : "%s", line);
    if (v->log) v->log(v->user, LLM_LOG_WARN, line);
}

typedef struct llm__open_target {
    llm_setup setup;
} llm__open_target;

/* Every name that llm_serve knows. */
static const llm_option llm__open_table[] = {
    LLM_OPT_NONE_NUMBER("num-scheduler-steps", "N", 1, 1024, "answers come whole here"),
    LLM_OPT_NONE(IGNORED_FLAG, "use-tqdm", "progress is told to the function that a batch's config names"),
    LLM_OPTIONS_SETUP(llm__open_target, setup),
    LLM_OPTIONS_SAMPLING(llm__open_target, setup.sampling, LLM_HELP_ANSWERS),
    LLM_OPT_NONE(REFUSED, "m|model|config", "what llm_open has a parameter for"),
    LLM_OPT_NONE(IGNORED, "max-concurrency|default-chat-template-kwargs|chat-template-kwargs", "it belongs to llm_serve"),
    LLM_OPTIONS_SERVER,
    LLM_OPTIONS_FOREIGN};

/* What was said over the model's own sampling, for answers to come. */
static void llm__open_defaults(llm *l, const llm__open_target *t, const llm_options *o) {
    const size_t at = offsetof(llm__open_target, setup.sampling);
    llm_sampling_default(l->model, &l->defaults);
    llm__options_sampling(o, at, sizeof l->defaults, &l->defaults);
    if (llm_options_given(o, "max-tokens")) l->max_tokens = t->setup.sampling.max_tokens;
    if (t->setup.reasoning_parser) l->reasoning = llm_reasoning_named(t->setup.reasoning_parser);
    if (t->setup.tool_parser) l->tool_format = llm_tools_named(t->setup.tool_parser);
    l->raw = !t->setup.do_preprocess;
    l->limit_images = t->setup.limit_images;
    l->limit_videos = t->setup.limit_videos;
    l->interleave_mm_strings = t->setup.interleave_mm_strings;
    if (t->setup.allowed_local_media_path) llm_text_str(&l->voice->media_path, t->setup.allowed_local_media_path);
    llm__add_str(&l->voice->media_domains, llm__text_str(&t->setup.media_domains));
    l->voice->media_timeout_s = t->setup.media_timeout_s;
    l->voice->allow_ffmpeg = t->setup.allow_ffmpeg;
    if (t->setup.mm_processor_kwargs) llm_text_str(&l->voice->mm_processor_kwargs, t->setup.mm_processor_kwargs);
}

/* The options, then what follows from them. Texts of the config live until `o` is freed: the model and the engine are open by then. */
static llm_result llm__open_read(llm__open_target *t, llm_options *o, const char *config, char *(*env)(const char *name), llm__voice *v) {
    llm_setup *s = &t->setup;
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    llm_result r = config ? llm_json_parse(config, strlen(config), NULL, &doc) : LLM_OK;
    if (!r && doc && llm_json_type_of(doc, 0) != LLM_JSON_OBJECT) r = llm__error(LLM_ERR_ARG, "a JSON object was expected");
    if (!r && env) r = llm__options_environment(o, env);
    if (!r && doc) r = llm_options_json(o, doc, 0, LLM_FROM_USER, NULL);
    if (r) return llm__error(r, "config: %s", llm_last_error());
    r = llm__setup_check(s, o, env);
    v->level = s->log_level;
    if (!r && s->model_name && !s->files.builtin_template)
        llm__report_note(o, "model_name", " has no effect: ", "it is no built-in chat template, and nothing is served here");
    if (!r) r = llm_setup_find(s, env);
    s->engine.early_stop = s->early_stop;
    if (!s->engine.kv_cache_memory_bytes && !s->engine.num_gpu_blocks && s->engine.cache_max_entry_count <= 0 && !s->engine.cuda_library)
        s->engine.kv_cache_memory_bytes = (int64_t)4 << 30;
    s->files.log = s->engine.log = llm__voice_log;
    s->files.log_user = s->engine.log_user = v;
    return r;
}

LLM_API llm *llm_open_with(const char *model, const char *config, char *(*env)(const char *name), llm_log_fn log, void *log_user) {
    unsigned char given[LLM__COUNT(llm__open_table)] = {0};
    llm__open_target t;
    llm *l = NULL;
    llm__voice *v = LLM__NEW(llm__voice, 1);
    llm_options o = {llm__open_table, LLM__COUNT(llm__open_table), &t, given, llm__voice_note, v, {NULL, 0}, NULL};
    llm_setup_init(&t.setup);
    t.setup.model = model;
    t.setup.do_preprocess = 1;
    t.setup.engine.max_num_seqs = 16;
    llm_result r = v ? LLM_OK : llm__nomem();
    if (v) v->log = log, v->user = log_user;
    if (!r) r = llm__open_read(&t, &o, config, env, v);
    if (!r) l = llm__easy_open(t.setup.path.data, &t.setup.files, &t.setup.engine);
    if (l) {
        l->voice = v;
        llm__open_defaults(l, &t, &o);
        llm_options_report(&o, l->engine);
        const int failed = v->media_path.failed || v->media_domains.failed || v->mm_processor_kwargs.failed;
        r = failed ? llm__nomem() : llm_setup_adapters(&t.setup, l->engine, NULL);
    } else if (v) {
        llm_text_free(&v->notes);
        LLM_FREE(v);
    }
    if (r) llm_free(l), l = NULL;
    llm_options_free(&o);
    llm_setup_free(&t.setup);
    return l;
}

LLM_API llm *llm_open(const char *model, const char *config) { return llm_open_with(model, config, NULL, NULL, NULL); }

LLM_API const char *llm_notes(const llm *l) { return l->voice && l->voice->notes.data ? l->voice->notes.data : ""; }

/* ---- batches ---- */

/* A batch on its way. Everything is in the caller's thread; only the engine may have threads of its own. */
typedef struct llm__batch {
    llm_openai_service service;
    llm_text params;        /* members of every body, with a comma before each */
    llm_openai_call **call; /* (n_prompts): those in flight */
    llm__outputs *out;
    int32_t n_prompts, width; /* width: answers to each */
    int chat, raw;            /* raw: a chat's texts go to the model as they are */
    llm_text ignored;         /* names of parameters that have no effect */
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
    LLM_FREE((void *)(uintptr_t)all->shown.ignored);
    if (all->shown.items != all->own) LLM_FREE(all->shown.items);
    LLM_FREE(all->own);
    LLM_FREE(all);
}

/* The parameters as members of a body, which knows the names of FastDeploy, vLLM and LMDeploy. A name that it does not know is a mistake
 * here, where nobody writes for several servers. */
static llm_result llm__batch_params(llm__batch *b, const char *params) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    const llm_options fields = {llm__oai_fields, LLM__COUNT(llm__oai_fields), NULL, NULL, NULL, NULL, {NULL, 0}, NULL};
    int64_t n;
    int preprocess = 1;
    llm_sampling s = LLM__ZERO;
    llm_result r = params ? llm_json_parse(params, strlen(params), NULL, &doc) : LLM_OK;
    if (!r && params && llm_json_type_of(doc, 0) != LLM_JSON_OBJECT) r = llm__error(LLM_ERR_ARG, "params: a JSON object was expected");
    for (int v = r ? -1 : llm_json_first(doc, 0); v >= 0 && !r; v = llm_json_next(doc, v)) {
        const llm__str key = llm__json_key(doc, v);
        if (llm__str_eq(key, "do_preprocess")) {
            if (!llm_json_bool(doc, v, &preprocess)) r = llm__error(LLM_ERR_ARG, "params: do_preprocess must be true or false");
        } else if (llm__alias_member("stream|use_tqdm", key)) {
            llm__report_name(&b->ignored, key); /* answers come whole, and progress has a function */
        } else if (!llm__options_member(&fields, key, LLM_FROM_REQUEST)) {
            r = llm__error(LLM_ERR_ARG, "params: %s", (llm__option_unknown(&fields, key, 0), llm_last_error()));
        } else llm_text_format(&b->params, ",%q:%j", key.p, doc, v);
    }
    b->raw |= !preprocess;
    if (llm_json_int(doc, llm_json_find(doc, 0, "n"), &n) &&
        llm__fields_put(llm__sampling_fields, LLM__SAMPLING_FIELDS, &s, "n", (double)n))
        b->width = s.n;
    return !r && b->params.failed ? llm__nomem() : r;
}

/* A prompt that is a JSON object, as members of a body without its first brace; ids have the name of texts there. What it is depends on
 * its members, so a chat may be one of ids. 0: the sentence says what is wrong. */
static int llm__batch_json(const char *json, int *chat, llm_text *body) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    static const char known[] = "prompt|prompt_token_ids|messages|multimodal_data|multi_modal_data|mm_processor_kwargs";
    llm_result r = llm_json_parse(json, strlen(json), NULL, &doc);
    const int some =
        llm_json_find(doc, 0, "prompt") >= 0 || llm_json_find(doc, 0, "prompt_token_ids") >= 0 || llm_json_find(doc, 0, "messages") >= 0;
    if (!r && !some) r = llm__error(LLM_ERR_ARG, "prompt: an object with prompt, prompt_token_ids or messages was expected");
    const int text = *chat && llm_json_find(doc, 0, "messages") < 0 && llm_json_str(doc, llm_json_find(doc, 0, "prompt"), NULL);
    if (!text) *chat = llm_json_find(doc, 0, "messages") >= 0;
    for (int v = r ? -1 : llm_json_first(doc, 0); v >= 0 && !r; v = llm_json_next(doc, v)) {
        const llm__str key = llm__json_key(doc, v);
        if (!llm__alias_member(known, key)) r = llm__error(LLM_ERR_ARG, "prompt: %.64s is none of its members %s", key.p, known);
        else if (text && llm__str_eq(key, "prompt")) llm_text_format(body, "%,'messages':[{'role':'user','content':%j}]", doc, v);
        else llm_text_format(body, "%,%q:%j", llm__str_eq(key, "prompt_token_ids") ? "prompt" : key.p, doc, v);
    }
    return !r;
}

/* Begins the call of prompt i and submits it. 0: no memory. What is wrong with a prompt its own call will tell. */
static int llm__batch_start(llm__batch *b, int32_t i, const llm_prompt *p) {
    LLM__SCOPED(llm_text_free) llm_text body = LLM__ZERO;
    int chat = b->chat && !(b->raw && (p->prompt || p->json)), good = 1;
    llm_text_str(&body, "{");
    if (p->json) good = llm__batch_json(p->json, &chat, &body);
    else if (!chat && p->prompt_token_ids) llm_text_format(&body, "'prompt':%i", p->prompt_token_ids, (size_t)p->n_prompt_token_ids);
    else if (!chat) llm_text_format(&body, "'prompt':%q", p->prompt);
    else if (p->messages) llm_text_format(&body, "'messages':%s", p->messages);
    else llm_text_format(&body, "'messages':[{'role':'user','content':%q}]", p->prompt);
    if (b->params.len) llm_text_add(&body, b->params.data, b->params.len);
    llm_text_str(&body, ",\"stream\":false}");
    llm_openai_call *k = NULL;
    if (!body.failed)
        k = llm_openai_begin(&b->service, chat ? LLM_OPENAI_CHAT : LLM_OPENAI_COMPLETION, good ? body.data : "{}", good ? body.len : 2, b);
    if (!k) return 0;
    if (!good) llm_openai_fail(k, 400, llm_last_error());
    if (!b->out->shown.ignored && k->info.status == 200) {
        const char *more = k->info.ignored;
        llm_text_format(&b->ignored, "%s%s", b->ignored.len && *more ? ", " : "", more);
        b->out->shown.ignored = llm__strndup(b->ignored.data, b->ignored.len);
    }
    b->call[i] = k;
    llm_openai_submit(k);
    return 1;
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
    const llm__str given = llm__json_text_at(call->body, 0, "prompt");
    size_t n = 0;
    x->request_id = llm__strdup(call->info.id);
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
    if (given.p) llm__add_str(&prompt, given);
    else if (call->text.data) llm_unguard(call->text.data, call->text.len, &prompt);
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

/* May one more prompt come? Four a sequence keep the engine's queue from running dry, and the engine refuses nothing of what it waits for:
 * not more requests than its queue has places, nor half of the bytes that may wait. */
static int llm__batch_more(const llm_engine *e, int32_t in_flight) {
    const int64_t window = 4 * (int64_t)e->p.c.max_num_seqs, places = e->p.c.max_queue > 0 ? e->p.c.max_queue : window;
    llm_engine_stats stats;
    llm_engine_get_stats(e, &stats);
    return in_flight < window && stats.queued < LLM__MIN(window, places) && stats.queued_bytes < (int64_t)128 << 20;
}

/* Fills the window, runs a step for all of it, takes what has ended, until nothing is left. A step that fails ends its requests, and the
 * batch with it. */
static llm_result llm__batch_run(llm__batch *b, llm *l, const llm_prompt *prompts, const llm_batch_config *cfg) {
    int32_t next = 0, done = 0, first = 0; /* first: before it all have ended */
    llm_result r = LLM_OK;
    while (done < b->n_prompts && !r) {
        for (; next < b->n_prompts && llm__batch_more(l->engine, next - done) && !r; next++)
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
    else if (l->voice) b.service.defaults = l->defaults;
    if (l->reasoning >= 0) b.service.reasoning = (llm_reasoning_kind)l->reasoning;
    if (l->tool_format >= 0) b.service.tool_format = l->tool_format;
    b.service.max_tokens = params && params->max_tokens ? params->max_tokens : l->max_tokens ? l->max_tokens : 512;
    b.service.limit_images = l->limit_images;
    b.service.limit_videos = l->limit_videos;
    b.service.interleave_mm_strings = l->interleave_mm_strings;
    if (l->voice) {
        b.service.media_path = l->voice->media_path.data;
        b.service.media_domains = l->voice->media_domains.data;
        b.service.media_timeout_s = l->voice->media_timeout_s;
        b.service.allow_ffmpeg = l->voice->allow_ffmpeg;
        b.service.mm_processor_kwargs = l->voice->mm_processor_kwargs.data;
    }
    b.width = LLM__MAX(b.service.defaults.n, 1);
    b.raw = l->raw;
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
    llm_text_free(&b.ignored);
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
