#include "serve/setup.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/model.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/chat.h"
#include "api/options.h"
#include "api/openai.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/files.h"
#include "cpu/isa.h"
#include "model/loader.h"
#include "engine/scheduler.h"
#include "serve/options.h"

LLM_API void llm_setup_init(llm_setup *s) {
    memset(s, 0, sizeof *s);
    s->prefix_caching = 1;
    s->log_level = LLM_LOG_WARN;
}

LLM__PRIVATE llm_result llm__setup_check(llm_setup *s, char *(*get)(const char *name)) {
    llm_engine_config *e = &s->engine;
    llm__isa isa;
    if (s->reasoning_parser && llm_reasoning_named(s->reasoning_parser) < 0)
        return llm__error(LLM_ERR_ARG, "reasoning_parser: %.60s, a name as qwen3, deepseek_r1, ernie-45-vl or none was expected",
                          s->reasoning_parser);
    if (s->tool_parser && llm_tools_named(s->tool_parser) < 0)
        return llm__error(LLM_ERR_ARG, "tool_call_parser: %.60s, a name as hermes, llama3_json, mistral or json was expected",
                          s->tool_parser);
    if (e->isa && llm__isa_find(e->isa, &isa)) return llm__error(LLM_ERR_ARG, "--isa: %.60s, this CPU has: %s", e->isa, llm_isa_list());
    e->disable_prefix_caching = !s->prefix_caching;
    llm_result r = LLM_OK;
    if (s->enable_early_stop || s->early_stop_config)
        r = llm__early_stop_parse(s->early_stop_config ? s->early_stop_config : "{}", s->enable_early_stop, &s->early_stop);
    return r ? r : llm__speculative_parse(e, get, &s->draft);
}

/* Whatever is wrong with a value, a file of options that cannot be read too, is what the user said: LLM_ERR_ARG. */
LLM__PRIVATE llm_result llm__setup_options(const char *const *config, llm_options *o, int argc, char **argv, char *(*get)(const char *name),
                                           llm_option_list *words) {
    llm_result r = llm__options_argv(o, argc, argv, words);
    if (!r) r = llm__options_environment(o, get);
    if (!r && *config) r = llm__options_file(o, *config);
    return r && r != LLM_ERR_NOMEM ? LLM_ERR_ARG : r;
}

LLM_API llm_result llm_setup_read(llm_setup *s, llm_options *o, int argc, char **argv, char *(*get)(const char *name),
                                  llm_option_list *words) {
    llm_result r = llm__setup_options(&s->config, o, argc, argv, get, words);
    return r ? r : llm__setup_check(s, get);
}

/* Without a device the library is not even looked at, unless device cuda is asked for. */
LLM_API llm_result llm_setup_find(llm_setup *s, char *(*get)(const char *name)) {
    llm_engine_config *e = &s->engine;
    llm_result r = llm__model_find(s->model, get, &s->path);
    if (!s->model) s->model = s->path.data;
    if (e->cuda_library || (!(e->device && !strcmp(e->device, "cuda")) && llm__path_kind_of("/dev/nvidiactl") == LLM__PATH_NONE)) return r;
    llm__program_folder(&s->library);
    llm_text_str(&s->library, "libllm_cuda.so");
    if (!s->library.failed && llm__path_readable(s->library.data)) e->cuda_library = s->library.data;
    return r;
}

LLM__PRIVATE void llm__setup_service(const llm_setup *s, const llm_options *o, size_t sampling, size_t size, const llm_model *model,
                                     llm_engine *engine, llm_openai_service *out) {
    llm_openai_service_init(out, model, engine);
    if (s->chat_sampling) llm_sampling_chat(model, &out->defaults);
    if (o) llm__options_sampling(o, sampling, size, &out->defaults);
    if (o && llm_options_given(o, "max-tokens")) out->max_tokens = s->sampling.max_tokens;
    out->defaults.early_stop = s->early_stop;
    out->pooling = (llm_pooling)s->pooling;
    if (s->reasoning_parser) out->reasoning = (llm_reasoning_kind)llm_reasoning_named(s->reasoning_parser);
    if (s->tool_parser) out->tool_format = llm_tools_named(s->tool_parser);
}

LLM_API void llm_setup_service(const llm_setup *s, const llm_options *o, const llm_model *model, llm_engine *engine,
                               llm_openai_service *out) {
    size_t at = o ? (size_t)((const char *)&s->sampling - (const char *)o->target) : 0;
    llm__setup_service(s, o, at, sizeof s->sampling, model, engine, out);
}

LLM_API void llm_setup_free(llm_setup *s) {
    llm_text_free(&s->path);
    llm_text_free(&s->draft);
    llm_text_free(&s->library);
}
