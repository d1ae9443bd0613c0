/* A program on libllm.so that hands over every struct of >>api-sizes and prints what came of it: abi MODEL. tests/e2e/test_abi.py compiles it
 * with this, an earlier and a later header and runs it with this and a later library; it has to print the same.
 *
 * Behind every struct stand bytes that are not 0: a library that reads on takes them for settings, one that writes on is found out.
 * With -DABI_LATER, and a header in which every struct has a member `later`, each is set to 1 in turn, which an earlier library refuses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "llm.h"

enum { GUARD = 256 };

static void failed(const char *what) {
    printf("%s: %s\n", what, llm_last_error());
    exit(1);
}

static void guard(void *at) { memset(at, 0xA5, GUARD); }

static void guarded(const char *name, const void *at) {
    const unsigned char *bytes = (const unsigned char *)at;
    for (int i = 0; i < GUARD; i++) {
        if (bytes[i] == 0xA5) continue;
        printf("%s: written behind its end\n", name);
        exit(1);
    }
}

/* A struct of 0s and its guard: x.s */
#define BOX(type, x) \
    struct { \
        type s; \
        unsigned char behind[GUARD]; \
    } x; \
    memset(&x.s, 0, sizeof x.s); \
    guard(x.behind)
#define UNBOX(type, x) guarded(#type, x.behind)

#ifdef ABI_LATER
/* Sets the last member, calls, and wants the sentence. */
#define LATER(type, x, call) \
    do { \
        x.later = 1; \
        const int ok = !!(call); \
        printf("%s: %s\n", #type, ok ? "accepted" : llm_last_error()); \
        x.later = 0; \
    } while (0)
#else
#define LATER(type, x, call) (void)0
#endif

static void texts(void) {
    const char *source = "{{ bos_token }}{% for m in messages %}{{ m.content }};{% endfor %}",
               *json = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
    BOX(llm_json_limits, limits);
    BOX(llm_render_options, options);
    BOX(llm_template_caps, caps);
    llm_template *t = NULL;
    llm_json *d = NULL;
    llm_text out = {NULL, 0, 0, 0, 0};
    limits.s.unique_keys = 1;
    LATER(llm_json_limits, limits.s, !llm_json_parse(json, strlen(json), &limits.s, &d));
    if (llm_json_parse(json, strlen(json), &limits.s, &d)) failed("json");
    if (llm_template_open(source, strlen(source), &t)) failed("template");
    options.s.bos_token = "<s>";
    LATER(llm_render_options, options.s, !llm_template_render(t, d, &options.s, &out));
    if (llm_template_render(t, d, &options.s, &out)) failed("render");
    llm_template_get_caps(t, &caps.s);
    printf("%s %d %d %d %d\n", out.data, caps.s.tools, caps.s.system_role, caps.s.content_parts, caps.s.thinking_switch);
    UNBOX(llm_json_limits, limits);
    UNBOX(llm_render_options, options);
    UNBOX(llm_template_caps, caps);
    llm_text_free(&out);
    llm_template_close(t);
    llm_json_free(d);
}

static void print_sampling(const llm_sampling *s) {
    printf("sampling %d %g %g %g %d %g %g %d %g\n", s->max_tokens, s->temperature, s->top_p, s->min_p, s->top_k, s->repetition_penalty,
           s->presence_penalty, s->use_beam_search, s->length_penalty);
}

static void one_request(llm_model *model, llm_engine *engine) {
    BOX(llm_sampling, sampling);
    BOX(llm_request_config, config);
    BOX(llm_event, event);
    BOX(llm_output, output);
    BOX(llm_request_metrics, metrics);
    BOX(llm_engine_stats, stats);
    BOX(llm_grammar_config, form);
    llm_request *r = NULL;
    llm_grammar *grammar = NULL;
    llm_sampling_chat(model, &sampling.s);
    print_sampling(&sampling.s);
    llm_sampling_default(model, &sampling.s);
    print_sampling(&sampling.s);
    LATER(llm_sampling, sampling.s, !llm_sampling_check(model, &sampling.s));
    if (llm_sampling_check(model, &sampling.s)) failed("sampling");
    form.s.kind = LLM_GRAMMAR_REGEX;
    form.s.text = "[a-z ]*";
    form.s.len = strlen(form.s.text);
    LATER(llm_grammar_config, form.s, !llm_grammar_open(model, &form.s, &grammar));
    if (llm_grammar_open(model, &form.s, &grammar)) failed("grammar");
    config.s.prompt = "one two";
    config.s.prompt_len = strlen(config.s.prompt);
    config.s.sampling = sampling.s;
    config.s.sampling.max_tokens = 6;
    config.s.sampling.logprobs = 2;
    config.s.sampling.grammar = grammar;
    config.s.sampling.temperature = 0;
    config.s.id = "the-id";
    config.s.cache_salt = "salt"; /* stands behind the sampling */
    LATER(llm_request_config, config.s, !llm_request_submit(engine, &config.s, &r));
    LATER(llm_request_config.sampling, config.s.sampling, !llm_request_submit(engine, &config.s, &r));
    if (llm_request_submit(engine, &config.s, &r) || llm_request_run(engine, r)) failed("request");
    printf("request %s", llm_request_id(r));
    while (llm_request_poll(r, &event.s))
        printf(" [%.*s] %d %.3f %d %s", (int)event.s.text_len, event.s.text, event.s.id, event.s.logprob, event.s.n_top,
               llm_finish_str(event.s.finish));
    if (llm_request_get_output(r, 0, &output.s)) failed("output");
    llm_request_get_metrics(r, &metrics.s);
    llm_engine_get_stats(engine, &stats.s);
    printf("\noutput %s, %d tokens, %.3f %d; prompt %d\n", output.s.text, (int)output.s.n_token_ids, output.s.cum_logprob,
           output.s.top_stride, metrics.s.n_prompt_tokens);
    printf("engine %d %d %s %d\n", stats.s.block_size, stats.s.max_model_len, stats.s.backend,
           (int)stats.s.accepted_per_position[LLM_SPECULATIVE_MAX - 1]);
    llm_request_free(r);
    llm_grammar_close(grammar);
    UNBOX(llm_sampling, sampling);
    UNBOX(llm_request_config, config);
    UNBOX(llm_event, event);
    UNBOX(llm_output, output);
    UNBOX(llm_request_metrics, metrics);
    UNBOX(llm_engine_stats, stats);
    UNBOX(llm_grammar_config, form);
}

static void raw(llm_engine *engine) {
    BOX(llm_sampling, sampling);
    const int32_t ids[3] = {1, 2, 3}, n = llm_logits_size(engine);
    float *logits = (float *)calloc((size_t)n, sizeof *logits);
    if (!logits || llm_forward(engine, 0, 0, ids, 3, logits, 1)) failed("forward");
    LATER(llm_sampling of llm_sample, sampling.s, llm_sample(logits, n, &sampling.s, 1, 0) >= 0);
    printf("raw %d\n", llm_sample(logits, n, &sampling.s, 1, 0));
    UNBOX(llm_sampling, sampling);
    free(logits);
}

/* The model again from its bytes in memory: of a folder its files, or a GGUF file. */
static void given_files(const llm_model *model, const char *path) {
    static const char *const names[] = {"config.json", "tokenizer.json", "model.safetensors"};
    struct {
        llm_file s[3];
        unsigned char behind[GUARD];
    } files;
    char at[1000];
    llm_model *again = NULL;
    int n = 0;
    memset(&files.s, 0, sizeof files.s);
    guard(files.behind);
    for (int i = 0; i < 3; i++) {
        snprintf(at, sizeof at, "%s/%s", path, names[i]);
        FILE *f = fopen(at, "rb");
        if (!f && !i) f = fopen(path, "rb");
        if (!f) continue;
        fseek(f, 0, SEEK_END);
        files.s[n].name = names[i];
        files.s[n].size = ftell(f);
        void *bytes = malloc((size_t)files.s[n].size);
        rewind(f);
        if (!bytes || fread(bytes, 1, (size_t)files.s[n].size, f) != (size_t)files.s[n].size) failed("read");
        files.s[n++].data = bytes;
        fclose(f);
    }
    LATER(llm_file, files.s[n - 1], !llm_model_open_files(files.s, n, NULL, &again));
    LATER(llm_file of llm_load_files, files.s[n - 1], llm_load_files(files.s, n, NULL));
    if (llm_model_open_files(files.s, n, NULL, &again)) failed("files");
    printf("given: %s, %d\n", llm_model_get_info(again)->path, llm_model_get_info(again)->n_params == llm_model_get_info(model)->n_params);
    llm_model_close(again);
    for (int i = 0; i < n; i++) free((void *)(uintptr_t)files.s[i].data);
    UNBOX(llm_file, files);
}

static void request_level(const char *path) {
    BOX(llm_estimate, estimate);
    BOX(llm_model_config, files);
    BOX(llm_engine_config, config);
    llm_model *model = NULL;
    llm_engine *engine = NULL;
    files.s.no_mmap = 1;
    LATER(llm_model_config, files.s, !llm_model_open(path, &files.s, &model));
    if (llm_model_open(path, &files.s, &model)) failed(path);
#ifdef ABI_LATER
    BOX(llm_media_config, media);
    llm_media *picture = NULL;
    LATER(llm_media_config, media.s, !llm_media_open(model, &media.s, &picture));
    UNBOX(llm_media_config, media);
    BOX(llm_quantize_config, smaller);
    LATER(llm_quantize_config, smaller.s, !llm_quantize("no such file", "nowhere", &smaller.s, NULL));
    UNBOX(llm_quantize_config, smaller);
    BOX(llm_quantize_folder_config, folder);
    LATER(llm_quantize_folder_config, folder.s, !llm_quantize_folder("no such folder", "nowhere", &folder.s, NULL));
    UNBOX(llm_quantize_folder_config, folder);
#endif
    const llm_model_info *info = llm_model_get_info(model);
    printf("model %s %d %d %d\n", info->architecture, info->n_layers, info->vocab_size, (int)info->step_bytes);
    config.s.n_threads = 1;
    config.s.max_model_len = 256;
    config.s.block_size = 16;
    LATER(llm_engine_config of llm_model_estimate, config.s, !llm_model_estimate(model, &config.s, &estimate.s));
    if (llm_model_estimate(model, &config.s, &estimate.s)) failed("estimate");
    printf("estimate %d tokens, KV cache %d bytes, fits %d\n", estimate.s.max_model_len, (int)estimate.s.kv_bytes, estimate.s.fits);
    given_files(model, path);
    LATER(llm_engine_config, config.s, !llm_engine_open(model, &config.s, &engine));
    if (llm_engine_open(model, &config.s, &engine)) failed("engine");
    one_request(model, engine);
    raw(engine);
    llm_engine_close(engine);
    llm_model_close(model);
    UNBOX(llm_model_config, files);
    UNBOX(llm_engine_config, config);
    UNBOX(llm_estimate, estimate);
}

static void print_outputs(llm_outputs *o) {
    if (!o) failed("batch");
    for (int i = 0; i < o->n; i++) {
        const llm_request_output *x = &o->items[i];
        printf("batch %d [%s] -> [%s] %d tokens, %s, %d of %d, %d %s\n", x->outputs.index, x->prompt, x->outputs.text,
               x->outputs.n_token_ids, x->outputs.finish_reason, x->metrics.n_prompt_tokens, x->n_prompt_token_ids, x->error_code,
               x->error_msg ? x->error_msg : "-");
    }
    llm_outputs_free(o);
}

static void easy_level(const char *path) {
    BOX(llm_engine_config, config);
    BOX(llm_sampling, sampling);
    BOX(llm_batch_config, batch);
    BOX(llm_answer, answer);
    struct {
        llm_prompt s[3];
        unsigned char behind[GUARD];
    } prompts;
    const int32_t ids[3] = {5, 6, 7};
    memset(&prompts.s, 0, sizeof prompts.s);
    guard(prompts.behind);
    config.s.n_threads = 1;
    config.s.max_model_len = 256;
    config.s.max_num_seqs = 2;
    LATER(llm_engine_config of llm_load, config.s, llm_load(path, &config.s));
    llm *l = llm_load(path, &config.s);
    if (!l) failed("load");
    sampling.s.max_tokens = 5;
    LATER(llm_sampling of llm_generate, sampling.s, llm_generate(l, "one", &sampling.s));
    char *text = llm_generate(l, "one", &sampling.s);
    llm_get_answer(l, &answer.s);
    printf("easy [%s] %s, %d tokens\n", text ? text : llm_last_error(), llm_finish_str(answer.s.finish), answer.s.completion_tokens);
    llm_string_free(text);
    prompts.s[0].prompt = "two three";
    prompts.s[1].prompt_token_ids = ids;
    prompts.s[1].n_prompt_token_ids = 3;
    prompts.s[2].messages = "[{\"role\": \"user\", \"content\": \"four\"}]"; /* in a batch of texts: refused by itself */
    batch.s.sampling_params = &sampling.s;
    batch.s.params = "{\"max_new_tokens\": 4}";
    LATER(llm_prompt, prompts.s[1], llm_generate_batch(l, prompts.s, 3, &batch.s));
    LATER(llm_batch_config, batch.s, llm_generate_batch(l, prompts.s, 3, &batch.s));
    LATER(llm_sampling of llm_batch_config, sampling.s, llm_generate_batch(l, prompts.s, 3, &batch.s));
    print_outputs(llm_generate_batch(l, prompts.s, 3, &batch.s));
    print_outputs(llm_chat_batch(l, &prompts.s[2], 1, &batch.s));
    llm_chat *c = llm_chat_new(l, "Be brief.");
    llm_chat_sampling(c)->max_tokens = 6;
    llm_chat_sampling(c)->temperature = 0;
    LATER(llm_sampling of llm_chat_sampling, (*llm_chat_sampling(c)), !llm_chat_say(c, "hello"));
    if (llm_chat_say(c, "hello")) failed("chat");
    for (const char *piece; (piece = llm_chat_next(c)) != NULL;) printf("{%s}", piece);
    llm_chat_get_answer(c, &answer.s);
    printf(" %s, %d of %d tokens\n", llm_finish_str(answer.s.finish), answer.s.completion_tokens, answer.s.prompt_tokens);
    LATER(llm_sampling of llm_chat_reply, sampling.s, !llm_chat_reply(c, &sampling.s));
    if (llm_chat_add(c, "user", "again") || llm_chat_reply(c, &sampling.s)) failed("reply");
    for (const char *piece; (piece = llm_chat_next(c)) != NULL;) printf("{%s}", piece);
    printf("\n");
    llm_chat_free(c);
    llm_free(l);
    UNBOX(llm_engine_config, config);
    UNBOX(llm_sampling, sampling);
    UNBOX(llm_batch_config, batch);
    UNBOX(llm_answer, answer);
    UNBOX(llm_prompt, prompts);
}

typedef struct program {
    llm_setup setup;
    unsigned char behind[GUARD];
    int32_t port;
} program;

static const llm_option table[] = {LLM_OPTIONS_PROGRAM(program, setup), LLM_OPTIONS_SETUP(program, setup),
                                   LLM_OPT_INT(program, port, 0, "port", 0, 65535, "a port"), LLM_OPTIONS_FOREIGN};
static unsigned char given[sizeof table / sizeof *table];

static void one_call(const llm_openai_service *service, llm_engine *engine) {
    const char *body = "{\"prompt\": \"five six\", \"seed\": 3, \"unheard_of\": 1}";
    llm_text out = {NULL, 0, 0, 0, 0};
    llm_openai_call *k = llm_openai_begin(service, LLM_OPENAI_COMPLETION, body, strlen(body), NULL);
    if (!k) failed("call");
    llm_openai_submit(k);
    while (!llm_openai_get_info(k)->done) {
        llm_engine_step(engine, NULL);
        while (llm_openai_next(k, &out)) continue;
    }
    const char *choices = out.data ? strstr(out.data, "\"choices\"") : NULL;
    printf("call %d %s %.90s\n", llm_openai_get_info(k)->status, llm_openai_get_info(k)->ignored, choices ? choices : out.data);
    llm_openai_free(k);
    llm_text_free(&out);
}

static void program_level(char *path) {
    char *said[] = {(char *)"abi", (char *)"-m",     path,          (char *)"--max-model-len",
                    (char *)"256", (char *)"-t",     (char *)"1",   (char *)"--max-tokens",
                    (char *)"7",   (char *)"--temp", (char *)"0.5", (char *)"--top-k",
                    (char *)"3",   (char *)"--port", (char *)"81",  NULL};
    program p;
    llm_options o = {table, (int32_t)(sizeof table / sizeof *table), &p, given, NULL, NULL, {NULL, 0}, NULL};
    llm_option_list words = {NULL, 0};
    llm_model *model = NULL;
    llm_engine *engine = NULL;
    BOX(llm_openai_service, service);
    guard(p.behind);
    llm_setup_init(&p.setup);
    LATER(llm_setup, p.setup, !llm_setup_read(&p.setup, &o, 15, said, getenv, &words));
    LATER(llm_setup.engine, p.setup.engine, !llm_setup_find(&p.setup, getenv));
    if (llm_setup_read(&p.setup, &o, 15, said, getenv, &words)) failed("options");
    if (llm_setup_find(&p.setup, getenv)) failed("find");
    printf("setup %s %d %d %d %g %d, port %d\n", p.setup.path.data, p.setup.prefix_caching, p.setup.log_level, p.setup.engine.max_model_len,
           p.setup.sampling.temperature, p.setup.sampling.max_tokens, p.port);
    if (llm_model_open(p.setup.path.data, &p.setup.files, &model)) failed("model");
    if (llm_engine_open(model, &p.setup.engine, &engine)) failed("engine");
    llm_openai_service_init(&service.s, model, engine);
    print_sampling(&service.s.defaults);
    llm_setup_service(&p.setup, &o, model, engine, &service.s);
    print_sampling(&service.s.defaults);
    const char *names[] = {"abi"};
    service.s.names = names;
    service.s.n_names = 1;
    printf("service %d %d %d %d %d\n", service.s.caps.system_role, (int)service.s.reasoning, service.s.tool_format, service.s.max_logprobs,
           llm_openai_knows_model(&service.s, "abi", 3));
    LATER(llm_openai_service, service.s, llm_openai_begin(&service.s, LLM_OPENAI_COMPLETION, "{}", 2, NULL));
    LATER(llm_openai_service.defaults, service.s.defaults, llm_openai_begin(&service.s, LLM_OPENAI_COMPLETION, "{}", 2, NULL));
    one_call(&service.s, engine);
    UNBOX(llm_openai_service, service);
    UNBOX(llm_setup, p);
    llm_engine_close(engine);
    llm_model_close(model);
    llm_setup_free(&p.setup);
    printf("setup %d\n", p.setup.path.data != NULL);
    llm_options_free(&o);
}

int main(int n, char **arg) {
    if (n != 2) return 2;
    texts();
    request_level(arg[1]);
    easy_level(arg[1]);
    program_level(arg[1]);
    return 0;
}
