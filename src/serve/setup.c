#include "serve/setup.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/model.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/json.h"
#include "api/chat.h"
#include "api/options.h"
#include "api/openai.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "base/json.h"
#include "chat/builtin.h"
#include "cpu/isa.h"
#include "cpu/tuning.h"
#include "model/quant.h"
#include "model/source.h"
#include "model/meta.h"
#include "model/loader.h"
#include "vision/mmproj.h"
#include "engine/scheduler.h"
#include "serve/reports.h"
#include "serve/cached.h"
#include "serve/fetch.h"
#include "serve/pull.h"
#include "serve/options.h"

LLM_API void llm_setup_init(llm_setup *s) {
    memset(s, 0, sizeof *s);
    s->prefix_caching = 1;
    s->log_level = LLM_LOG_WARN;
}

/* Numbers that two options say, or that one says in a way of its own. LMDeploy's document has 8 bits for quant_policy 4, its later versions
 * 4 bits: one line says which is meant. */
static llm_result llm__setup_numbers(llm_setup *s, const llm_options *o) {
    static const char *const sizes[] = {"kv-cache-memory-bytes", "num-gpu-blocks", "cache-max-entry-count"};
    llm_engine_config *e = &s->engine;
    const char *sized = NULL;
    e->disable_prefix_caching = !s->prefix_caching;
    e->disable_chunked_prefill = llm_options_given(o, "enable-chunked-prefill") && !s->chunked_prefill;
    if (llm_options_given(o, "max-queue") && !e->max_queue) e->max_queue = -1;
    if (s->kv_cache_gib > 0 && !llm_options_given(o, sizes[0])) e->kv_cache_memory_bytes = (int64_t)((double)s->kv_cache_gib * (1 << 30));
    for (int i = 0; i < LLM__COUNT(sizes); i++) {
        if (!llm_options_given(o, sizes[i])) continue;
        if (sized)
            return llm__error(LLM_ERR_ARG, "%s and %s both say how large the KV cache is, one of them was expected", sized, sizes[i]);
        sized = sizes[i];
    }
    if (!s->quant_policy) return LLM_OK;
    if (llm_options_given(o, "kv-cache-dtype") && e->kv_cache_dtype != LLM_KV_INT8)
        return llm__error(LLM_ERR_ARG, "quant_policy: %d means 8 bits, and kv_cache_dtype says another type", (int)s->quant_policy);
    e->kv_cache_dtype = LLM_KV_INT8;
    if (s->quant_policy == 4)
        llm__report_note(o, "quant_policy", ": ", "4 means 8 bits, as LMDeploy's document says; for 4 bits there is kv_cache_dtype int4");
    return LLM_OK;
}

/* vLLM's override_generation_config: its members are sampling options, weaker than those that were said by themselves. What holds, the
 * strongest first:
 *
 *   a request's field
 *   --temperature and its like
 *   --override-generation-config '{"temperature": 0.5}'
 *   generation_config.json, or the keys of a GGUF file
 *   the defaults of the way in: those of the API, or those of conversations */
static llm_result llm__setup_generation(llm_setup *s, const llm_options *o) {
    struct config {
        llm_sampling sampling;
    };
    static const llm_option table[] = {LLM_OPTIONS_SAMPLING(struct config, sampling, 0)};
    unsigned char given[LLM__COUNT(table)];
    struct config read = LLM__ZERO;
    LLM__SCOPED(llm_options_free) llm_options inner;
    llm_result r = llm__options_inner(&inner, table, LLM__COUNT(table), &read, given, o, "override_generation_config",
                                      s->override_generation_config, LLM_FROM_REQUEST);
    for (int i = 0; i < LLM__COUNT(table) && !r; i++) {
        const char *names = table[i].names;
        llm__str name;
        llm__list_next(&names, "|", &name);
        const llm_option *p = given[i] ? llm_options_find(o, name.p, name.n) : NULL;
        if (!p || o->given[p - o->table]) continue;
        memcpy((char *)&s->sampling + table[i].at, (const char *)&read + table[i].at, table[i].kind == LLM_OPTION_INT64 ? 8 : 4);
        o->given[p - o->table] = LLM_FROM_FILE;
    }
    return r;
}

/* NAME=PATH, in which a path may have a '=' too, or vLLM's {"name", "path"}. */
static llm_result llm__lora_module(const char *text, llm_text *name, llm_text *path) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    const char *equal = strchr(text, '=');
    if (*text != '{' && equal) llm_text_add(name, text, (size_t)(equal - text)), llm_text_str(path, equal + 1);
    if (*text == '{' && !llm_json_parse(text, strlen(text), NULL, &doc)) {
        llm__add_str(name, llm__json_text_at(doc, 0, "name"));
        llm__add_str(path, llm__json_text_at(doc, 0, "path"));
    }
    if (name->failed || path->failed) return llm__nomem();
    if (name->len && path->len) return LLM_OK;
    return llm__error(LLM_ERR_ARG, "lora_modules: \"%.200s\", NAME=PATH or {\"name\": ..., \"path\": ...} was expected", text);
}

/* What adapters there are to be, and slots for them: one for each that is named, unless it is said how many; all may compute together
 * unless fewer are asked for. */
static llm_result llm__setup_slots(llm_setup *s) {
    llm_engine_config *e = &s->engine;
    const int32_t most = s->lora_modules.n + (e->lora != NULL);
    for (int32_t i = 0; i < s->lora_modules.n; i++) {
        LLM__SCOPED(llm_text_free) llm_text name = LLM__ZERO, path = LLM__ZERO;
        llm_result r = llm__lora_module(s->lora_modules.items[i], &name, &path);
        if (r) return r;
    }
    if (e->max_cpu_loras && e->max_cpu_loras < e->max_loras)
        return llm__error(LLM_ERR_ARG, "max_cpu_loras (%d) must be greater than or equal to max_loras (%d)", (int)e->max_cpu_loras,
                          (int)e->max_loras);
    if (!s->enable_lora && !most) return LLM_OK;
    if (!e->max_cpu_loras) e->max_cpu_loras = LLM__MAX(LLM__MAX(e->max_loras, most), 1);
    if (!e->max_loras) e->max_loras = e->max_cpu_loras;
    return LLM_OK;
}

/* LMDeploy's ChatTemplateConfig: the name of a template. Its pieces of a template would be a second language for one. */
static llm_result llm__setup_template(llm_setup *s, const llm_options *o) {
    struct config {
        const char *model_name, *capability;
    };
    static const llm_option table[] = {
        LLM_OPT_TEXT(struct config, model_name, 0, "model_name", NULL, NULL),
        LLM_OPT_CHOICE(struct config, capability, 0, "capability", "chat|completion", NULL),
        LLM_OPT_NONE(REFUSED, "system|meta_instruction|eosys|user|eoh|assistant|eoa|separator|stop_words", "a chat template in pieces")};
    unsigned char given[LLM__COUNT(table)];
    struct config read = {NULL, NULL};
    LLM__SCOPED(llm_options_free) llm_options inner;
    llm_result r = llm__options_inner(&inner, table, LLM__COUNT(table), &read, given, o, "chat_template_config", s->chat_template_config,
                                      LLM_FROM_USER);
    const llm__builtin *named = read.model_name ? llm__builtin_find(read.model_name) : NULL;
    if (!r && read.model_name && !named) {
        LLM__SCOPED(llm_text_free) llm_text names = LLM__ZERO;
        llm__builtin_names(&names);
        r = llm__error(LLM_ERR_ARG, "chat_template_config: model_name: %.60s, one of %s was expected", read.model_name, names.data);
    }
    if (!named && s->model_name) named = llm__builtin_find(s->model_name);
    if (named) s->files.builtin_template = named->name;
    if (read.capability && *read.capability == 'c' && read.capability[1] == 'o') s->do_preprocess = 0;
    return r;
}

/* model_format: a layout, of which the files are asked when they are found, or a method of quantisation, which --quantization says too
 * (None says nothing). */
static llm_result llm__setup_format(llm_setup *s) {
    const char *f = s->model_format, *q = s->files.quantization;
    const int method = q ? llm__quant_named(q) : LLM__QUANT_NONE;
    if (!f || llm__word_index("hf llama", llm__lit(f)) >= 0) return LLM_OK;
    if (method != LLM__QUANT_NONE && method != llm__quant_named(f))
        return llm__error(LLM_ERR_ARG, "model_format: %s, and quantization says %.40s", f, q);
    s->files.quantization = f;
    return LLM_OK;
}

/* model_format hf and llama: a folder of Hugging Face's, or one as Meta gives it. */
static llm_result llm__setup_layout(const llm_setup *s) {
    const char *f = s->model_format, *path = s->path.data;
    const llm__source bare = LLM__ZERO;
    if (!f || llm__word_index("hf llama", llm__lit(f)) < 0) return LLM_OK;
    if (llm__path_kind_of(path) != LLM__PATH_DIR) return llm__error(LLM_ERR_ARG, "model_format: %s, and %.200s is no folder", f, path);
    const int meta = llm__meta_is(&bare, path), wanted = !strcmp(f, "llama");
    if (meta == wanted) return LLM_OK;
    return llm__error(LLM_ERR_ARG, "model_format: %s, and %.200s is a folder %s", f, path,
                      meta ? "as Meta gives it (llama): params.json" : "of Hugging Face's (hf): config.json, where Meta has params.json");
}

/* vLLM's PoolerConfig. */
static llm_result llm__setup_pooler(llm_setup *s, const llm_options *o) {
    struct config {
        int32_t type, normalize;
    };
    static const llm_option table[] = {
        LLM_OPT_ENUM(struct config, type, 0, "pooling_type", "LAST=1|last=1|MEAN=2|mean=2|CLS=3|cls=3", NULL),
        LLM_OPT_BOOL(struct config, normalize, 0, "normalize", NULL),
        LLM_OPT_NONE(REFUSED, "softmax|activation|step_tag_id|returned_token_ids|dimensions|enable_chunked_processing|max_embed_len",
                     "embeddings that are not a token's state or the mean of them")};
    unsigned char given[LLM__COUNT(table)];
    struct config read = {0, 2}; /* 2: it does not say */
    LLM__SCOPED(llm_options_free) llm_options inner;
    llm_result r = llm__options_inner(&inner, table, LLM__COUNT(table), &read, given, o, "pooler_config", s->pooler_config, LLM_FROM_USER);
    if (r) return r;
    if (read.type) s->pooling = read.type;
    if (read.normalize < 2) s->raw_embeddings = read.normalize ? -1 : 1;
    return LLM_OK;
}

/* vLLM's limit_mm_per_prompt. */
static llm_result llm__setup_media(llm_setup *s, const llm_options *o) {
    struct config {
        int32_t image, video;
    };
    static const llm_option table[] = {LLM_OPT_INT(struct config, image, 0, "image", 0, 999, NULL),
                                       LLM_OPT_INT(struct config, video, 0, "video", 0, 999, NULL),
                                       LLM_OPT_NONE(REFUSED, "audio", "sound")};
    unsigned char given[LLM__COUNT(table)];
    struct config read = {-1, -1};
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    LLM__SCOPED(llm_options_free) llm_options inner = LLM__ZERO;
    const char *how = s->mm_processor_kwargs;
    if (how && (llm_json_parse(how, strlen(how), NULL, &doc) || llm_json_type_of(doc, 0) != LLM_JSON_OBJECT))
        return llm__error(LLM_ERR_ARG, "mm_processor_kwargs: %.60s, a JSON object was expected", how);
    if (s->allowed_local_media_path && llm__path_kind_of(s->allowed_local_media_path) != LLM__PATH_DIR)
        return llm__error(LLM_ERR_ARG, "allowed_local_media_path: %.200s, a folder was expected", s->allowed_local_media_path);
    for (int32_t i = 0; i < s->allowed_media_domains.n; i++) {
        const char *list = s->allowed_media_domains.items[i];
        for (llm__str name; llm__list_next(&list, ",", &name);) {
            if (!llm__fetch_domain(name))
                return llm__error(LLM_ERR_ARG, "allowed_media_domains: %.*s, the name of a host was expected, as cdn.example.com",
                                  llm__shown(name), name.p);
            if (s->media_domains.len) llm_text_str(&s->media_domains, ",");
            llm__add_str(&s->media_domains, name);
        }
    }
    if (s->media_domains.failed) return llm__nomem();
    if (!s->limit_mm_per_prompt) return LLM_OK;
    llm_result r =
        llm__options_inner(&inner, table, LLM__COUNT(table), &read, given, o, "limit_mm_per_prompt", s->limit_mm_per_prompt, LLM_FROM_USER);
    s->limit_images = read.image < 0 ? 0 : read.image ? read.image : -1;
    s->limit_videos = read.video < 0 ? 0 : read.video ? read.video : -1;
    return r;
}

LLM__PRIVATE llm_result llm__setup_check(llm_setup *s, const llm_options *o, char *(*get)(const char *name)) {
    llm_engine_config *e = &s->engine;
    const llm__chip any = LLM__ZERO;
    const char *tuned;
    llm__tuning tuning;
    llm__isa isa;
    if (!s->model && s->models.n) s->model = s->models.items[0];
    if (s->reasoning_parser && !strcmp(s->reasoning_parser, "auto")) s->reasoning_parser = NULL;
    if (s->tool_parser && !strcmp(s->tool_parser, "auto")) s->tool_parser = NULL;
    if (s->reasoning_parser && llm_reasoning_named(s->reasoning_parser) < 0)
        return llm__error(LLM_ERR_ARG, "reasoning_parser: %.60s, a name as qwen3, deepseek_r1, ernie-45-vl or none was expected",
                          s->reasoning_parser);
    if (s->tool_parser && llm_tools_named(s->tool_parser) < 0)
        return llm__error(LLM_ERR_ARG, "tool_call_parser: %.60s, a name as hermes, llama3_json, mistral or json was expected",
                          s->tool_parser);
    if (e->isa && llm__isa_find(e->isa, &isa)) return llm__error(LLM_ERR_ARG, "isa: %.60s, this CPU has: %s", e->isa, llm_isa_list());
    if (e->tuning && llm__tuning_of(e->tuning, &any, &tuning, &tuned)) return LLM_ERR_ARG;
    if (!s->hf_repo && (!s->model || llm__path_kind_of(s->model) != LLM__PATH_NONE)) {
        const char *why = "the model is a path, not ORG/NAME in a cache";
        if (s->download_dir) llm__report_note(o, "download_dir", " has no effect: ", why);
        if (s->revision) llm__report_note(o, "revision", " has no effect: ", why);
    }
    llm_result r = llm__setup_numbers(s, o);
    if (!r) r = llm__setup_generation(s, o);
    if (!r && (s->enable_early_stop || s->early_stop_config))
        r = llm__early_stop_parse(o, s->early_stop_config, s->enable_early_stop, &s->early_stop);
    if (!r) r = llm__setup_slots(s);
    if (!r) r = llm__setup_template(s, o);
    if (!r) r = llm__setup_format(s);
    if (!r && s->pooler_config) r = llm__setup_pooler(s, o);
    if (!r) r = llm__setup_media(s, o);
    return r ? r : llm__speculative_parse(o, e, get, &s->draft);
}

/* Whatever is wrong with a value, a file of options that cannot be read too, is what the user said: LLM_ERR_ARG. */
LLM__PRIVATE llm_result llm__setup_options(const char *const *config, llm_options *o, int argc, char **argv, char *(*get)(const char *name),
                                           llm_option_list *words) {
    llm_result r = llm__options_argv(o, argc, argv, words);
    if (!r) r = llm__options_environment(o, get);
    if (!r && *config) r = llm__options_file(o, *config);
    return r && r != LLM_ERR_NOMEM ? LLM_ERR_ARG : r;
}

/* An error in the words of the user. */
LLM__PRIVATE llm_result llm__setup_said(llm_result r, const llm_options *o, int argc, char **argv, char *(*get)(const char *name)) {
    LLM__SCOPED(llm_text_free) llm_text t = LLM__ZERO;
    if (!r || r == LLM_ERR_NOMEM) return r;
    llm_options_sentence(o, argc, argv, get, llm_last_error(), &t);
    return t.failed ? r : llm__error(r, "%s", t.data);
}

LLM_API llm_result llm_setup_read(llm_setup *s, llm_options *o, int argc, char **argv, char *(*get)(const char *name),
                                  llm_option_list *words) {
    llm_result r = llm__setup_options(&s->config, o, argc, argv, get, words);
    return llm__setup_said(r ? r : llm__setup_check(s, o, get), o, argc, argv, get);
}

/* The model of hf_repo: from the cache if it is there whole, else fetched. */
static llm_result llm__setup_fetch(llm_setup *s, char *(*get)(const char *name)) {
    LLM__SCOPED(llm_text_free) llm_text name = LLM__ZERO;
    if (s->model && s->model != s->hf_repo)
        return llm__error(LLM_ERR_ARG, "hf_repo: %.100s, and the model is %.200s: one of them was expected", s->hf_repo, s->model);
    llm_text_str(&name, s->hf_repo);
    if (s->revision && !strchr(s->hf_repo, '@')) llm_text_format(&name, "@%s", s->revision);
    s->model = s->hf_repo;
    return name.failed ? llm__nomem() : llm__hub_get(name.data, s->download_dir, get, s->pull_progress, s->pull_user, &s->path);
}

/* Of a folder of GGUF files the one that is chosen there. With a model of the Hub or of a folder goes what it sees with, where that lies
 * beside it and is of a kind that is known: one that is not, such as an encoder of sound, must not keep a model of texts from being
 * opened, so it only gets a line. */
static llm_result llm__setup_pair(llm_setup *s) {
    LLM__SCOPED(llm_text_free) llm_text found = LLM__ZERO;
    const int folder = llm__path_kind_of(s->path.data) == LLM__PATH_DIR, own = s->model == s->path.data;
    LLM__SCOPED(llm__drop) char *config = folder ? llm__path_join(s->path.data, "config.json") : NULL;
    llm_result r = LLM_OK;
    s->mmproj.len = 0;
    if (folder && config && llm__path_kind_of(config) == LLM__PATH_NONE) r = llm__hub_in_folder(s->path.data, &found);
    if (r || (folder && !found.len)) return r;
    if (found.len) {
        s->path.len = 0;
        llm_text_str(&s->path, found.data);
        if (s->path.failed) return llm__nomem();
        if (own) s->model = s->path.data;
    } else if (!strcmp(s->model, s->path.data)) return LLM_OK; /* a file that was named is taken as it is */
    if (s->files.mmproj || s->files.language_model_only) return LLM_OK;
    r = llm__hub_companion(s->path.data, folder, &s->mmproj);
    if (r || !s->mmproj.len) return r;
    const llm__logger log = {s->files.log, s->files.log_user};
    if (llm__mmproj_known(s->mmproj.data)) llm__log(&log, LLM_LOG_WARN, "%s: the model takes text only", llm_last_error());
    else s->files.mmproj = s->mmproj.data;
    return LLM_OK;
}

/* Without a device the library is not even looked at, unless device cuda is asked for. */
LLM_API llm_result llm_setup_find(llm_setup *s, char *(*get)(const char *name)) {
    llm_engine_config *e = &s->engine;
    llm_result r = s->hf_repo ? llm__setup_fetch(s, get) : llm__model_find(s->model, s->download_dir, s->revision, get, &s->path);
    if (!s->model) s->model = s->path.data;
    if (!r) r = llm__setup_pair(s);
    if (!r) r = llm__setup_layout(s);
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
    out->num_scheduler_steps = s->num_scheduler_steps;
    out->media_path = s->allowed_local_media_path;
    out->media_domains = s->media_domains.data;
    out->media_timeout_s = s->media_timeout_s;
    out->allow_ffmpeg = s->allow_ffmpeg;
    out->mm_processor_kwargs = s->mm_processor_kwargs;
    out->interleave_mm_strings = s->interleave_mm_strings;
    out->limit_images = s->limit_images;
    out->limit_videos = s->limit_videos;
    out->pooling = (llm_pooling)s->pooling;
    if (s->raw_embeddings) out->raw_embeddings = s->raw_embeddings > 0;
    if (s->reasoning_parser) out->reasoning = (llm_reasoning_kind)llm_reasoning_named(s->reasoning_parser);
    if (s->tool_parser) out->tool_format = llm_tools_named(s->tool_parser);
}

LLM_API void llm_setup_service(const llm_setup *s, const llm_options *o, const llm_model *model, llm_engine *engine,
                               llm_openai_service *out) {
    size_t at = o ? (size_t)((const char *)&s->sampling - (const char *)o->target) : 0;
    llm__setup_service(s, o, at, sizeof s->sampling, model, engine, out);
}

LLM_API llm_result llm_setup_adapters(const llm_setup *s, llm_engine *engine, const llm_openai_service *service) {
    llm_result r = LLM_OK;
    for (int32_t i = 0; i < s->lora_modules.n && !r; i++) {
        LLM__SCOPED(llm_text_free) llm_text name = LLM__ZERO, path = LLM__ZERO;
        r = llm__lora_module(s->lora_modules.items[i], &name, &path);
        if (!r && service && llm_openai_knows_model(service, name.data, name.len)) r = llm__error(LLM_ERR_ARG, "the name is taken");
        if (!r) r = llm_lora_load(engine, name.data, path.data);
        if (r) r = llm__error(r, "lora_modules: %.100s: %s", s->lora_modules.items[i], llm_last_error());
    }
    return r;
}

LLM_API void llm_setup_free(llm_setup *s) {
    llm_text_free(&s->path);
    llm_text_free(&s->draft);
    llm_text_free(&s->library);
    llm_text_free(&s->media_domains);
    llm_text_free(&s->mmproj);
}
