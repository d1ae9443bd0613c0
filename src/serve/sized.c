/* sized: the functions that take or fill structs of the program's, for a program of any version.
 *
 * Each makes the program's struct over (>>sizes), calls the function of the same name without _sized, and makes over what that filled in.
 * The pointers have the types of this version, but what they point to is read and written by >>sizes alone. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/model.h"
#include "api/media.h"
#include "api/quantize.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/batch.h"
#include "api/json.h"
#include "api/template.h"
#include "api/chat.h"
#include "api/grammar.h"
#include "api/raw.h"
#include "api/options.h"
#include "api/openai.h"
#include "api/sizes.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "serve/sizes.h"
#include "serve/setup.h"
#include "serve/easy.h"

#ifndef LLM_STATIC
#define LLM__SIZED(name, ...) \
    static const llm__layout llm__sized_##name = {"llm_" #name, sizeof(llm_##name), offsetof(llm_sizes, name), {__VA_ARGS__}}
#define LLM__INNER(name, member, inner) \
    { offsetof(llm_##name, member), &llm__sized_##inner }
#define LLM__NONE \
    { 0, NULL }
LLM__SIZED(json_limits, LLM__NONE);
LLM__SIZED(model_config, LLM__NONE);
LLM__SIZED(render_options, LLM__NONE);
LLM__SIZED(template_caps, LLM__NONE);
LLM__SIZED(grammar_config, LLM__NONE);
LLM__SIZED(sampling, LLM__NONE);
LLM__SIZED(engine_config, LLM__NONE);
LLM__SIZED(engine_stats, LLM__NONE);
LLM__SIZED(request_config, LLM__INNER(request_config, sampling, sampling));
LLM__SIZED(event, LLM__NONE);
LLM__SIZED(output, LLM__NONE);
LLM__SIZED(request_metrics, LLM__NONE);
LLM__SIZED(prompt, LLM__NONE);
LLM__SIZED(batch_config, LLM__NONE);
LLM__SIZED(completion_output, LLM__NONE);
LLM__SIZED(request_output, LLM__INNER(request_output, outputs, completion_output), LLM__INNER(request_output, metrics, request_metrics));
LLM__SIZED(setup, LLM__INNER(setup, files, model_config), LLM__INNER(setup, engine, engine_config), LLM__INNER(setup, sampling, sampling));
LLM__SIZED(openai_service, LLM__INNER(openai_service, caps, template_caps), LLM__INNER(openai_service, defaults, sampling));
LLM__SIZED(answer, LLM__NONE);
LLM__SIZED(file, LLM__NONE);
LLM__SIZED(estimate, LLM__NONE);
LLM__SIZED(media_config, LLM__NONE);
LLM__SIZED(media_info, LLM__NONE);
LLM__SIZED(quantize_config, LLM__NONE);
LLM__SIZED(quantize_folder_config, LLM__NONE);

LLM_API llm_result llm_json_parse_sized(const llm_sizes *sizes, const char *text, size_t len, const llm_json_limits *limits,
                                        llm_json **out) {
    llm_json_limits own;
    *out = NULL;
    llm_result r = limits ? llm__struct_in(sizes, &llm__sized_json_limits, limits, &own) : LLM_OK;
    return r ? r : llm_json_parse(text, len, limits ? &own : NULL, out);
}

LLM_API llm_result llm_model_open_sized(const llm_sizes *sizes, const char *path, const llm_model_config *cfg, llm_model **out) {
    llm_model_config own;
    *out = NULL;
    llm_result r = cfg ? llm__struct_in(sizes, &llm__sized_model_config, cfg, &own) : LLM_OK;
    return r ? r : llm_model_open(path, cfg ? &own : NULL, out);
}

/* The program's list as one of ours, to be freed; NULL: r says why. */
static llm_file *llm__files_in(const llm_sizes *sizes, const llm_file *files, int32_t n, llm_result *r) {
    size_t size = llm__size_of(sizes, &llm__sized_file);
    llm_file *own = LLM__NEW(llm_file, (size_t)LLM__MAX(n, 0) + 1);
    *r = own ? LLM_OK : llm__nomem();
    for (int32_t i = 0; files && i < n && !*r; i++)
        *r = llm__struct_in(sizes, &llm__sized_file, (const char *)files + (size_t)i * size, &own[i]);
    return own;
}

LLM_API llm_result llm_model_open_files_sized(const llm_sizes *sizes, const llm_file *files, int32_t n, const llm_model_config *cfg,
                                              llm_model **out) {
    llm_model_config own;
    llm_result r;
    *out = NULL;
    LLM__SCOPED(llm__drop) llm_file *list = llm__files_in(sizes, files, n, &r);
    if (!r && cfg) r = llm__struct_in(sizes, &llm__sized_model_config, cfg, &own);
    return r ? r : llm_model_open_files(files ? list : NULL, n, cfg ? &own : NULL, out);
}

LLM_API llm_result llm_template_render_sized(const llm_sizes *sizes, const llm_template *t, const llm_json *context,
                                             const llm_render_options *options, llm_text *out) {
    llm_render_options own;
    llm_result r = options ? llm__struct_in(sizes, &llm__sized_render_options, options, &own) : LLM_OK;
    return r ? r : llm_template_render(t, context, options ? &own : NULL, out);
}

LLM_API llm_result llm_render_sized(const llm_sizes *sizes, const llm_model *model, const llm_json *context,
                                    const llm_render_options *options, llm_text *out) {
    llm_render_options own;
    llm_result r = options ? llm__struct_in(sizes, &llm__sized_render_options, options, &own) : LLM_OK;
    return r ? r : llm_render(model, context, options ? &own : NULL, out);
}

LLM_API void llm_template_get_caps_sized(const llm_sizes *sizes, const llm_template *t, llm_template_caps *out) {
    llm_template_caps own;
    llm_template_get_caps(t, &own);
    llm__struct_out(sizes, &llm__sized_template_caps, &own, out);
}

LLM_API llm_result llm_grammar_open_sized(const llm_sizes *sizes, const llm_model *model, const llm_grammar_config *cfg,
                                          llm_grammar **out) {
    llm_grammar_config own;
    *out = NULL;
    llm_result r = llm__struct_in(sizes, &llm__sized_grammar_config, cfg, &own);
    return r ? r : llm_grammar_open(model, &own, out);
}

LLM_API void llm_sampling_default_sized(const llm_sizes *sizes, const llm_model *model, llm_sampling *s) {
    llm_sampling own;
    llm_sampling_default(model, &own);
    llm__struct_out(sizes, &llm__sized_sampling, &own, s);
}

LLM_API void llm_sampling_chat_sized(const llm_sizes *sizes, const llm_model *model, llm_sampling *s) {
    llm_sampling own;
    llm_sampling_chat(model, &own);
    llm__struct_out(sizes, &llm__sized_sampling, &own, s);
}

LLM_API llm_result llm_sampling_check_sized(const llm_sizes *sizes, const llm_model *model, const llm_sampling *s) {
    llm_sampling own;
    llm_result r = llm__struct_in(sizes, &llm__sized_sampling, s, &own);
    return r ? r : llm_sampling_check(model, &own);
}

LLM_API llm_result llm_engine_open_sized(const llm_sizes *sizes, const llm_model *model, const llm_engine_config *cfg, llm_engine **out) {
    llm_engine_config own;
    *out = NULL;
    llm_result r = cfg ? llm__struct_in(sizes, &llm__sized_engine_config, cfg, &own) : LLM_OK;
    return r ? r : llm_engine_open(model, cfg ? &own : NULL, out);
}

LLM_API llm_result llm_model_estimate_sized(const llm_sizes *sizes, const llm_model *model, const llm_engine_config *cfg,
                                            llm_estimate *out) {
    llm_engine_config own;
    llm_estimate found;
    memset(&found, 0, sizeof found);
    llm_result r = cfg ? llm__struct_in(sizes, &llm__sized_engine_config, cfg, &own) : LLM_OK;
    if (!r) r = llm_model_estimate(model, cfg ? &own : NULL, &found);
    llm__struct_out(sizes, &llm__sized_estimate, &found, out);
    return r;
}

LLM_API void llm_engine_get_stats_sized(const llm_sizes *sizes, const llm_engine *engine, llm_engine_stats *out) {
    llm_engine_stats own;
    llm_engine_get_stats(engine, &own);
    llm__struct_out(sizes, &llm__sized_engine_stats, &own, out);
}

LLM_API llm_result llm_request_submit_sized(const llm_sizes *sizes, llm_engine *engine, const llm_request_config *cfg, llm_request **out) {
    llm_request_config own;
    *out = NULL;
    llm_result r = llm__struct_in(sizes, &llm__sized_request_config, cfg, &own);
    return r ? r : llm_request_submit(engine, &own, out);
}

LLM_API int llm_request_poll_sized(const llm_sizes *sizes, llm_request *request, llm_event *event) {
    llm_event own;
    int news = llm_request_poll(request, &own);
    if (news) llm__struct_out(sizes, &llm__sized_event, &own, event);
    return news;
}

LLM_API llm_result llm_request_get_output_sized(const llm_sizes *sizes, const llm_request *request, int32_t index, llm_output *out) {
    llm_output own;
    llm_result r = llm_request_get_output(request, index, &own);
    if (!r) llm__struct_out(sizes, &llm__sized_output, &own, out);
    return r;
}

LLM_API void llm_request_get_metrics_sized(const llm_sizes *sizes, const llm_request *request, llm_request_metrics *out) {
    llm_request_metrics own;
    llm_request_get_metrics(request, &own);
    llm__struct_out(sizes, &llm__sized_request_metrics, &own, out);
}

LLM_API int32_t llm_sample_sized(const llm_sizes *sizes, const float *logits, int32_t n, const llm_sampling *s, int64_t seed,
                                 int64_t position) {
    llm_sampling own;
    return llm__struct_in(sizes, &llm__sized_sampling, s, &own) ? -1 : llm_sample(logits, n, &own, seed, position);
}

LLM_API int32_t llm_sample_steps_sized(const llm_sizes *sizes, const float *logits, int32_t n, const llm_sampling *s, const int32_t *ids,
                                       int32_t n_prompt, int32_t n_ids, int64_t seed, llm_sample_fn fn, void *user) {
    llm_sampling own;
    return llm__struct_in(sizes, &llm__sized_sampling, s, &own) ? -1
                                                                : llm_sample_steps(logits, n, &own, ids, n_prompt, n_ids, seed, fn, user);
}

LLM_API llm *llm_load_sized(const llm_sizes *sizes, const char *path, const llm_engine_config *cfg) {
    llm_engine_config own;
    if (cfg && llm__struct_in(sizes, &llm__sized_engine_config, cfg, &own)) return NULL;
    return llm_load(path, cfg ? &own : NULL);
}

LLM_API llm *llm_load_files_sized(const llm_sizes *sizes, const llm_file *files, int32_t n, const llm_engine_config *cfg) {
    llm_engine_config own;
    llm_result r;
    LLM__SCOPED(llm__drop) llm_file *list = llm__files_in(sizes, files, n, &r);
    if (!r && cfg) r = llm__struct_in(sizes, &llm__sized_engine_config, cfg, &own);
    return r ? NULL : llm_load_files(files ? list : NULL, n, cfg ? &own : NULL);
}

LLM_API char *llm_generate_sized(const llm_sizes *sizes, llm *l, const char *prompt, const llm_sampling *s) {
    llm_sampling own;
    if (s && llm__struct_in(sizes, &llm__sized_sampling, s, &own)) return NULL;
    return llm_generate(l, prompt, s ? &own : NULL);
}

LLM_API void llm_get_answer_sized(const llm_sizes *sizes, const llm *l, llm_answer *out) {
    llm_answer own;
    llm_get_answer(l, &own);
    llm__struct_out(sizes, &llm__sized_answer, &own, out);
}

LLM_API llm_result llm_chat_reply_sized(const llm_sizes *sizes, llm_chat *c, const llm_sampling *s) {
    llm_sampling own;
    llm_result r = s ? llm__struct_in(sizes, &llm__sized_sampling, s, &own) : LLM_OK;
    return r ? r : llm_chat_reply(c, s ? &own : NULL);
}

LLM_API void llm_chat_get_answer_sized(const llm_sizes *sizes, const llm_chat *c, llm_answer *out) {
    llm_answer own;
    llm_chat_get_answer(c, &own);
    llm__struct_out(sizes, &llm__sized_answer, &own, out);
}

/* The items again, one program's struct after the other. */
static llm_outputs *llm__outputs_give(const llm_sizes *sizes, llm_outputs *o) {
    size_t size = llm__size_of(sizes, &llm__sized_request_output);
    llm__outputs *all = (llm__outputs *)o;
    if (!o) return NULL;
    char *items = LLM__NEW(char, (size_t)o->n *size + 1);
    for (int32_t i = 0; items && i < o->n; i++) llm__struct_out(sizes, &llm__sized_request_output, &all->own[i], items + (size_t)i * size);
    if (items) o->items = (llm_request_output *)(void *)items;
    if (items) return o;
    llm_outputs_free(o);
    return llm__nomem(), (llm_outputs *)NULL;
}

/* Both batches: `run` is the function of this version. */
static llm_outputs *llm__batch_sized(const llm_sizes *sizes, llm *l, const llm_prompt *prompts, int32_t n, const llm_batch_config *cfg,
                                     llm_outputs *(*run)(llm *, const llm_prompt *, int32_t, const llm_batch_config *)) {
    size_t size = llm__size_of(sizes, &llm__sized_prompt);
    llm_prompt *own = LLM__NEW(llm_prompt, (size_t)LLM__MAX(n, 0) + 1);
    llm_batch_config config = LLM__ZERO;
    llm_sampling sampling;
    llm_outputs *o = NULL;
    llm_result r = own ? LLM_OK : llm__nomem();
    for (int32_t i = 0; i < n && !r; i++) r = llm__struct_in(sizes, &llm__sized_prompt, (const char *)prompts + (size_t)i * size, &own[i]);
    if (!r && cfg) r = llm__struct_in(sizes, &llm__sized_batch_config, cfg, &config);
    if (!r && config.sampling_params) {
        r = llm__struct_in(sizes, &llm__sized_sampling, config.sampling_params, &sampling);
        config.sampling_params = &sampling;
    }
    if (!r) o = llm__outputs_give(sizes, run(l, own, n, cfg ? &config : NULL));
    LLM_FREE(own);
    return o;
}

LLM_API llm_outputs *llm_generate_batch_sized(const llm_sizes *sizes, llm *l, const llm_prompt *prompts, int32_t n,
                                              const llm_batch_config *cfg) {
    return llm__batch_sized(sizes, l, prompts, n, cfg, llm_generate_batch);
}

LLM_API llm_outputs *llm_chat_batch_sized(const llm_sizes *sizes, llm *l, const llm_prompt *prompts, int32_t n,
                                          const llm_batch_config *cfg) {
    return llm__batch_sized(sizes, l, prompts, n, cfg, llm_chat_batch);
}

LLM_API void llm_setup_init_sized(const llm_sizes *sizes, llm_setup *s) {
    llm_setup own;
    llm_setup_init(&own);
    llm__struct_out(sizes, &llm__sized_setup, &own, s);
}

/* The options write into the program's struct, as its table says; what follows reads ours. `config` stands before all that can grow. */
LLM_API llm_result llm_setup_read_sized(const llm_sizes *sizes, llm_setup *s, llm_options *o, int argc, char **argv,
                                        char *(*get)(const char *name), llm_option_list *words) {
    llm_setup own;
    llm_result r = llm__setup_options(&s->config, o, argc, argv, get, words);
    if (!r) r = llm__struct_in(sizes, &llm__sized_setup, s, &own);
    if (r) return llm__setup_said(r, o, argc, argv, get);
    r = llm__setup_check(&own, o, get);
    llm__struct_out(sizes, &llm__sized_setup, &own, s);
    return llm__setup_said(r, o, argc, argv, get);
}

LLM_API llm_result llm_setup_find_sized(const llm_sizes *sizes, llm_setup *s, char *(*get)(const char *name)) {
    llm_setup own;
    llm_result r = llm__struct_in(sizes, &llm__sized_setup, s, &own);
    if (r) return r;
    r = llm_setup_find(&own, get);
    llm__struct_out(sizes, &llm__sized_setup, &own, s);
    return r;
}

/* Cannot fail: what llm_setup_read has let pass is known here. The program's sampling stands behind the two structs that can grow. */
LLM_API void llm_setup_service_sized(const llm_sizes *sizes, const llm_setup *s, const llm_options *o, const llm_model *model,
                                     llm_engine *engine, llm_openai_service *out) {
    llm_setup own;
    llm_openai_service service;
    size_t at = o ? (size_t)((const char *)s - (const char *)o->target) : 0;
    size_t grown = llm__size_of(sizes, &llm__sized_model_config) + llm__size_of(sizes, &llm__sized_engine_config);
    llm__struct_in(sizes, &llm__sized_setup, s, &own);
    llm__setup_service(&own, o, at + offsetof(llm_setup, sampling) + grown - sizeof own.files - sizeof own.engine,
                       LLM__MIN(sizeof own.sampling, llm__size_of(sizes, &llm__sized_sampling)), model, engine, &service);
    llm__struct_out(sizes, &llm__sized_openai_service, &service, out);
}

LLM_API llm_result llm_setup_adapters_sized(const llm_sizes *sizes, const llm_setup *s, llm_engine *engine,
                                            const llm_openai_service *service) {
    llm_setup own;
    llm_openai_service known;
    llm_result r = llm__struct_in(sizes, &llm__sized_setup, s, &own);
    if (!r && service) r = llm__struct_in(sizes, &llm__sized_openai_service, service, &known);
    return r ? r : llm_setup_adapters(&own, engine, service ? &known : NULL);
}

LLM_API void llm_setup_free_sized(const llm_sizes *sizes, llm_setup *s) {
    llm_setup own;
    llm__struct_in(sizes, &llm__sized_setup, s, &own);
    llm_setup_free(&own);
    llm__struct_out(sizes, &llm__sized_setup, &own, s);
}

LLM_API void llm_openai_service_init_sized(const llm_sizes *sizes, llm_openai_service *s, const llm_model *model, llm_engine *engine) {
    llm_openai_service own;
    llm_openai_service_init(&own, model, engine);
    llm__struct_out(sizes, &llm__sized_openai_service, &own, s);
}

/* Cannot fail, and has no need to: llm_openai_begin looks at all of the service. */
LLM_API int llm_openai_knows_model_sized(const llm_sizes *sizes, const llm_openai_service *s, const char *name, size_t len) {
    llm_openai_service own;
    llm__struct_in(sizes, &llm__sized_openai_service, s, &own);
    return llm_openai_knows_model(&own, name, len);
}

LLM_API llm_openai_call *llm_openai_begin_sized(const llm_sizes *sizes, const llm_openai_service *s, llm_openai_kind kind, const char *body,
                                                size_t len, void *user) {
    llm_openai_service own;
    if (llm__struct_in(sizes, &llm__sized_openai_service, s, &own)) return NULL;
    return llm_openai_begin(&own, kind, body, len, user);
}

LLM_API int llm_openai_check_sized(const llm_sizes *sizes, llm_openai_call *k, const llm_openai_service *s) {
    llm_openai_service own;
    if (!llm__struct_in(sizes, &llm__sized_openai_service, s, &own)) return llm_openai_check(k, &own);
    llm_openai_fail(k, 500, llm_last_error());
    return 0;
}

LLM_API llm_result llm_media_open_sized(const llm_sizes *sizes, const llm_model *model, const llm_media_config *cfg, llm_media **out) {
    llm_media_config own;
    *out = NULL;
    llm_result r = llm__struct_in(sizes, &llm__sized_media_config, cfg, &own);
    return r ? r : llm_media_open(model, &own, out);
}

LLM_API llm_result llm_quantize_sized(const llm_sizes *sizes, const char *path, const char *to, const llm_quantize_config *cfg,
                                      llm_text *report) {
    llm_quantize_config own;
    llm_result r = cfg ? llm__struct_in(sizes, &llm__sized_quantize_config, cfg, &own) : LLM_OK;
    return r ? r : llm_quantize(path, to, cfg ? &own : NULL, report);
}

LLM_API llm_result llm_quantize_folder_sized(const llm_sizes *sizes, const char *path, const char *to,
                                             const llm_quantize_folder_config *cfg, llm_text *report) {
    llm_quantize_folder_config own;
    llm_result r = cfg ? llm__struct_in(sizes, &llm__sized_quantize_folder_config, cfg, &own) : LLM_OK;
    return r ? r : llm_quantize_folder(path, to, cfg ? &own : NULL, report);
}

LLM_API llm_result llm_convert_folder_sized(const llm_sizes *sizes, const char *path, const char *to, const llm_quantize_config *cfg,
                                            llm_text *report) {
    llm_quantize_config own;
    llm_result r = cfg ? llm__struct_in(sizes, &llm__sized_quantize_config, cfg, &own) : LLM_OK;
    return r ? r : llm_convert_folder(path, to, cfg ? &own : NULL, report);
}

LLM_API llm_result llm_imatrix_sized(const llm_sizes *sizes, const llm_model *model, const char *text, size_t len, const char *to,
                                     const llm_quantize_config *cfg, llm_text *report) {
    llm_quantize_config own;
    llm_result r = cfg ? llm__struct_in(sizes, &llm__sized_quantize_config, cfg, &own) : LLM_OK;
    return r ? r : llm_imatrix(model, text, len, to, cfg ? &own : NULL, report);
}

LLM_API void llm_media_get_info_sized(const llm_sizes *sizes, const llm_media *media, llm_media_info *out) {
    llm_media_info own;
    llm_media_get_info(media, &own);
    llm__struct_out(sizes, &llm__sized_media_info, &own, out);
}
#endif
