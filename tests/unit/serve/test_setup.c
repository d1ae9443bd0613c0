/* From what a person says to a model, an engine and a service; many prompts at once; and all of it for a program whose structs are shorter
 * than ours: each function of the API that takes or fills one, once as it is and once through its _sized twin. */
#include "../folder.h"
#include "model/loader.h"
#include "serve/easy.h"
#include "serve/openai.h"
#include "serve/options.h"
#include "serve/setup.h"
#include "serve/sizes.h"

typedef struct setup_program {
    llm_setup setup;
    int32_t port;
} setup_program;

static const llm_option setup_table[] = {LLM_OPTIONS_PROGRAM(setup_program, setup), LLM_OPTIONS_SETUP(setup_program, setup),
                                         LLM_OPT_INT(setup_program, port, LLM_HELP_OWN, "port|p", 0, 65535, "the port"),
                                         LLM_OPTIONS_FOREIGN};
static unsigned char setup_given[LLM__COUNT(setup_table)];

static llm_options setup_options(setup_program *p) {
    const llm_options o = {setup_table, LLM__COUNT(setup_table), p, setup_given, NULL, NULL, {NULL, 0}, NULL};
    memset(setup_given, 0, sizeof setup_given);
    return o;
}

/* Every name of a table with what becomes of it. */
static void setup_verdicts(void) {
    setup_program p = LLM__ZERO;
    llm_options o = setup_options(&p);
    llm_text out = LLM__ZERO;
    llm_json *doc = NULL;
    llm_options_verdicts(&o, &out);
    CHECK(!llm_json_parse(out.data, out.len, NULL, &doc) && llm_json_type_of(doc, 0) == LLM_JSON_ARRAY);
    CHECK(strstr(out.data, "{\"name\":\"port\",\"verdict\":\"works\"") && strstr(out.data, "{\"name\":\"p\",\"verdict\":\"works\""));
    CHECK(strstr(out.data, "{\"name\":\"tokenizer-extension-path\",\"verdict\":\"ignored\",\"takes\":"));
    llm_json_free(doc);
    llm_text_free(&out);
    llm_options_free(&o);
}

static const char *setup_home; /* what the environment says of HF_HOME */

static char *setup_get(const char *name) {
    if (!strcmp(name, "LLM_ARG_MAX_NUM_SEQS")) return (char *)"3";
    if (!strcmp(name, "LLM_ARG_PORT")) return (char *)"7";
    return !strcmp(name, "HF_HOME") ? (char *)setup_home : NULL;
}

/* argv over the environment over the file. */
static void setup_read(void) {
    test_folder f;
    setup_program p;
    llm_option_list words = {NULL, 0};
    memset(&p, 0, sizeof p);
    if (!folder_open(&f)) return;
    folder_write_text(&f, "config.json", "{\"port\": 9, \"max-num-seqs\": 5, \"max_model_len\": \"2k\", \"temperature\": 0}");
    char *argv[] = {(char *)"prog",
                    (char *)"word",
                    (char *)"--port=8",
                    (char *)"--config",
                    (char *)folder_file(&f, "config.json"),
                    (char *)"--no-enable-prefix-caching",
                    (char *)"--tool-call-parser",
                    (char *)"hermes",
                    NULL};
    llm_setup_init(&p.setup);
    CHECK(p.setup.prefix_caching && p.setup.log_level == LLM_LOG_WARN);
    llm_options o = setup_options(&p);
    CHECK(!llm_setup_read(&p.setup, &o, 8, argv, setup_get, &words));
    CHECK(p.port == 8 && p.setup.engine.max_num_seqs == 3 && p.setup.engine.max_model_len == 2000 && p.setup.engine.disable_prefix_caching);
    CHECK(words.n == 1 && !strcmp(words.items[0], "word") && p.setup.sampling.temperature == 0);
    CHECK(llm_options_given(&o, "temperature") && !llm_options_given(&o, "top-p") && llm_options_find(&o, "max-num-seqs", 12) &&
          !llm_options_find(&o, "max-num-seq", 11));
    LLM_FREE((void *)words.items);
    llm_options_free(&o);
    o = setup_options(&p);
    CHECK(llm__options_file(&o, folder_file(&f, "absent.json")) == LLM_ERR_IO);
    folder_write_text(&f, "bad.json", "{\"prot\": 9}");
    CHECK(llm__options_file(&o, folder_file(&f, "bad.json")) == LLM_ERR_ARG && strstr(llm_last_error(), "prot"));
    llm_text help = LLM__ZERO;
    static const char *const titles[] = {"Own"};
    llm_options_help(&o, titles, 1, &help);
    CHECK(help.data && strstr(help.data, "--port") && strstr(help.data, "the port") && strstr(help.data, "--max-model-len") &&
          !strstr(help.data, "ASCEND"));
    llm_text_free(&help);
    llm_options_free(&o);
    folder_close(&f);
}

/* What no row can tell. */
static void setup_check(void) {
    static const struct {
        const char *words, *option, *value, *option_2, *value_2;
    } rows[] = {{"--reasoning-parser: nobody", "--reasoning-parser", "nobody", NULL, NULL},
                {"--tool-call-parser: nobody", "--tool-call-parser", "nobody", NULL, NULL},
                {"--isa: z80, this CPU has: ", "--isa", "z80", NULL, NULL},
                {"--tuning: fast, auto, measure, ahead=N", "--tuning", "fast", NULL, NULL},
                {"window_size", "--early-stop-config", "{\"window_size\":0}", NULL, NULL},
                {"magic", "--speculative-config", "{\"method\":\"magic\"}", NULL, NULL},
                {"model_name: nobody, one of ", "--chat-template-config", "{\"model_name\":\"nobody\"}", NULL, NULL},
                {"hf, llama, awq, gptq", "--model-format", "gguf", NULL, NULL},
                {"quantization says gptq", "--model-format", "awq", "--quantization", "gptq"},
                {"both say how large the KV cache is", "--num-gpu-blocks", "5", "--kv-cache-memory-bytes", "1000000"},
                {"--kv-cache-dtype says another type", "--quant-policy", "4", "--kv-cache-dtype", "int4"},
                {"NAME=PATH or {", "--lora-modules", "nameless", NULL, NULL},
                {"--max-cpu-loras (2)", "--max-loras", "4", "--max-cpu-loras", "2"},
                {"softmax", "--pooler-config", "{\"softmax\":true}", NULL, NULL},
                {"a JSON object was expected", "--mm-processor-kwargs", "[]", NULL, NULL},
                {"a folder was expected", "--allowed-local-media-path", "/no/such/folder", NULL, NULL},
                {"the name of a host was expected", "--allowed-media-domains", "a/b", NULL, NULL},
                {"--limit-mm-per-prompt: image: x", "--limit-mm-per-prompt", "{\"image\":\"x\"}", NULL, NULL}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        setup_program p;
        llm_option_list words = {NULL, 0};
        char *argv[] = {(char *)"prog",           (char *)rows[i].option,  (char *)rows[i].value,
                        (char *)rows[i].option_2, (char *)rows[i].value_2, NULL};
        memset(&p, 0, sizeof p);
        llm_setup_init(&p.setup);
        llm_options o = setup_options(&p);
        llm_result r = llm_setup_read(&p.setup, &o, rows[i].option_2 ? 5 : 3, argv, setup_get, &words);
        if (!CHECK(r && strstr(llm_last_error(), rows[i].words))) printf("  %s\n", llm_last_error());
        LLM_FREE((void *)words.items);
        llm_options_free(&o);
        llm_setup_free(&p.setup);
    }
}

/* A model by its path, or ORG/NAME in the Hub's cache, from the snapshot that refs/main names. */
static void setup_find(void) {
    static const char *const folders[] = {"hub", "hub/models--org--name", "hub/models--org--name/refs", "hub/models--org--name/snapshots",
                                          "hub/models--org--name/snapshots/abc"};
    test_folder f;
    llm_setup s;
    llm_text path = LLM__ZERO;
    if (!folder_open(&f)) return;
    for (int i = 0; i < LLM__COUNT(folders); i++) CHECK(!mkdir(folder_file(&f, folders[i]), 0700));
    folder_write_text(&f, "hub/models--org--name/refs/main", "abc");
    folder_write_text(&f, "hub/models--org--name/snapshots/abc/config.json", "{}");
    setup_home = f.path;
    CHECK(!llm__model_find("org/name", NULL, NULL, setup_get, &path) && strstr(path.data, "snapshots/abc"));
    path.len = 0;
    CHECK(!llm__model_find(folder_file(&f, "hub"), NULL, NULL, setup_get, &path) && !strcmp(path.data, folder_file(&f, "hub")));
    path.len = 0;
    CHECK(llm__model_find("org/other", NULL, NULL, setup_get, &path) && strstr(llm_last_error(), "org/other"));
    llm_text_free(&path);
    llm_setup_init(&s);
    s.model = "org/name";
    CHECK(!llm_setup_find(&s, setup_get) && strstr(s.path.data, "snapshots/abc") && !strcmp(s.model, "org/name"));
    llm_setup_free(&s);
    setup_home = NULL;
    folder_close(&f);
}

/* What was said of the service over what the model says. */
static void setup_service(const llm_model *m, llm_engine *e) {
    setup_program p;
    llm_openai_service s;
    llm_option_list words = {NULL, 0};
    char *argv[] = {(char *)"prog",
                    (char *)"--temperature",
                    (char *)"0",
                    (char *)"--max-tokens",
                    (char *)"77",
                    (char *)"--tool-call-parser",
                    (char *)"mistral",
                    (char *)"--pooling",
                    (char *)"mean",
                    (char *)"--enable-early-stop",
                    NULL};
    memset(&p, 0, sizeof p);
    llm_setup_init(&p.setup);
    llm_options o = setup_options(&p);
    CHECK(!llm_setup_read(&p.setup, &o, 10, argv, setup_get, &words));
    llm_setup_service(&p.setup, &o, m, e, &s);
    CHECK(s.defaults.temperature == 0 && s.max_tokens == 77 && s.pooling == LLM_POOLING_MEAN &&
          s.tool_format == llm_tools_named("mistral") && s.defaults.early_stop.enable && s.engine == e);
    llm_sampling own;
    memset(&own, 0, sizeof own);
    own.top_k = 5, own.temperature = 1;
    llm__options_sampling(&o, offsetof(setup_program, setup.sampling), sizeof own, &own);
    CHECK(own.temperature == 0 && own.top_k == 5); /* only what was given */
    llm_setup_service(&p.setup, NULL, m, e, &s);
    CHECK(s.defaults.temperature > 0 && s.max_tokens == 0);
    p.setup.chat_sampling = 1;
    llm_setup_service(&p.setup, NULL, m, e, &s);
    CHECK(s.defaults.top_k == 40);
    LLM_FREE((void *)words.items);
    llm_options_free(&o);
    llm_setup_free(&p.setup);
}

/* ---- many at once ---- */

static int setup_seen(void *user, const char *what, double done) { return (void)what, (void)done, ++*(int *)user > 100; }

static void setup_batch(void) {
    llm_prompt prompts[3];
    llm_batch_config c;
    llm_sampling s;
    int seen = 0;
    llm *l = llm_open(TEST_CHECKPOINT("llama"), "{\"max_num_seqs\": 2, \"max_model_len\": 128, \"tensor_parallel_size\": 1}");
    if (!CHECK(l != NULL)) return;
    CHECK(!llm_open(TEST_CHECKPOINT("llama"), "{\"max_num_seqs\": \"x\"}") && !llm_open(TEST_CHECKPOINT("llama"), "{\"maxnumseqs\": 1}") &&
          strstr(llm_last_error(), "maxnumseqs"));
    CHECK(!llm_open("/no/such/model", NULL));
    memset(prompts, 0, sizeof prompts), memset(&c, 0, sizeof c), memset(&s, 0, sizeof s);
    prompts[0].prompt = "one", prompts[1].prompt = "two";
    static const int32_t ids[3] = {5, 6, 512};
    prompts[2].prompt_token_ids = ids, prompts[2].n_prompt_token_ids = 3; /* no such id: this one alone fails */
    s.max_tokens = 4, s.ignore_eos = 1;
    c.sampling_params = &s, c.progress = setup_seen, c.progress_user = &seen;
    llm_outputs *o = llm_generate_batch(l, prompts, 3, &c);
    if (CHECK(o && o->n == 3 && o->n_failed == 1 && seen == 3)) {
        for (int i = 0; i < 2; i++)
            CHECK(!o->items[i].error_code && o->items[i].outputs.n_token_ids == 4 && o->items[i].outputs.index == i &&
                  o->items[i].outputs.send_idx == 3 && !strcmp(o->items[i].outputs.finish_reason, "length") && o->items[i].finished);
        CHECK(o->items[2].error_code == 400 && strstr(o->items[2].error_msg, "512") && !strcmp(o->items[2].outputs.finish_reason, "error"));
    }
    llm_outputs_free(o);
    c.params = "{\"n\": 2, \"max_new_tokens\": 3}";
    o = llm_chat_batch(l, prompts, 1, &c);
    CHECK(o && o->n == 2 && o->items[1].outputs.n_token_ids == 3 && strstr(o->items[0].prompt, "one"));
    llm_outputs_free(o);
    c.params = "[]";
    CHECK(!llm_generate_batch(l, prompts, 1, &c));
    seen = 100, c.params = NULL;
    CHECK(!llm_generate_batch(l, prompts, 2, &c)); /* the callback cancels */
    llm_outputs_free(NULL);
    llm_free(l);
}

/* ---- a program whose structs are shorter ---- */

enum { CUT = 8 };

/* Where structs that can grow stand in another, in ascending order. */
typedef struct setup_inner {
    size_t at, size;
} setup_inner;

/* Our struct as the program has it: each that can grow ends CUT bytes earlier, and what follows it has moved. And back: what it lacks is 0. */
static void setup_pack(void *out, const void *own, size_t size, const setup_inner *inner, int n) {
    char *to = (char *)out;
    const char *from = (const char *)own;
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        const size_t end = inner[i].at + inner[i].size;
        memcpy(to, from + at, end - CUT - at), to += end - CUT - at, at = end;
    }
    memcpy(to, from + at, size - CUT - at);
}

static void setup_unpack(void *own, const void *in, size_t size, const setup_inner *inner, int n) {
    const char *from = (const char *)in;
    size_t at = 0;
    memset(own, 0, size);
    for (int i = 0; i < n; i++) {
        const size_t end = inner[i].at + inner[i].size;
        memcpy((char *)own + at, from, end - CUT - at), from += end - CUT - at, at = end;
    }
    memcpy((char *)own + at, from, size - CUT - at);
}

#define SETUP_INNER(T, member) \
    { offsetof(T, member), sizeof(((T *)0)->member) }
static const setup_inner setup_of_request[] = {SETUP_INNER(llm_request_config, sampling)};
static const setup_inner setup_of_setup[] = {SETUP_INNER(llm_setup, files), SETUP_INNER(llm_setup, engine),
                                             SETUP_INNER(llm_setup, sampling)};
static const setup_inner setup_of_service[] = {SETUP_INNER(llm_openai_service, caps), SETUP_INNER(llm_openai_service, defaults)};
static const setup_inner setup_of_output[] = {SETUP_INNER(llm_request_output, outputs), SETUP_INNER(llm_request_output, metrics)};

static llm_sizes setup_sizes(void) {
    llm_sizes t = LLM_SIZES_HERE;
    for (uint32_t *size = &t.sizes + 1; size < &t.sizes + sizeof t / sizeof *size; size++) *size -= CUT;
    t.request_config -= CUT, t.setup -= 3 * CUT, t.openai_service -= 2 * CUT, t.request_output -= 2 * CUT;
    return t;
}

/* Bytes behind what the program has are left alone. */
typedef union setup_room {
    char bytes[4096];
    double aligned;
} setup_room;

static void setup_untouched(const setup_room *room, size_t size) {
    int touched = 0;
    for (size_t i = size; i < sizeof room->bytes; i++) touched += room->bytes[i] != 0x5A;
    CHECK(touched == 0);
}

static void setup_fresh(setup_room *room) { memset(room->bytes, 0x5A, sizeof room->bytes); }

/* Model, template, grammar, sampling. */
static void sized_model(const llm_sizes *t, llm_model **out) {
    setup_room room;
    llm_model_config mc;
    llm_sampling own, got;
    llm_template_caps caps, plain;
    llm_template *template_ = NULL;
    llm_json *context = NULL;
    llm_text a = LLM__ZERO, b = LLM__ZERO;
    llm_render_options options = LLM__ZERO;
    llm_grammar_config gc;
    llm_grammar *g = NULL;
    memset(&mc, 0, sizeof mc), memset(&gc, 0, sizeof gc);
    mc.vocab_only = 1;
    CHECK(!llm_model_open_sized(t, TEST_CHECKPOINT("llama"), &mc, out) && (*out)->arch.n_layers == 0);
    llm_model_close(*out);
    mc.vocab_only = 0;
    CHECK(!llm_model_open_sized(t, TEST_CHECKPOINT("llama"), &mc, out) && (*out)->arch.n_layers > 0);
    CHECK(llm_model_open_sized(t, "/no/such", NULL, &(llm_model *){NULL}) != LLM_OK);
    static const char source[] = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    CHECK(!llm_template_open(source, sizeof source - 1, &template_) &&
          !llm_json_parse("{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", 44, NULL, &context));
    options.bos_token = "B";
    CHECK(!llm_template_render_sized(t, template_, context, &options, &a) && !llm_template_render(template_, context, &options, &b) &&
          !strcmp(a.data, b.data) && !strcmp(a.data, "B<user>x"));
    a.len = b.len = 0;
    CHECK(!llm_render_sized(t, *out, context, &options, &a) && !llm_render(*out, context, &options, &b) && a.len == b.len);
    setup_fresh(&room);
    llm_template_get_caps_sized(t, template_, (llm_template_caps *)(void *)room.bytes);
    llm_template_get_caps(template_, &plain);
    setup_unpack(&caps, room.bytes, sizeof caps, NULL, 0);
    CHECK(!memcmp(&caps, &plain, sizeof caps - CUT));
    setup_untouched(&room, t->template_caps);
    gc.kind = LLM_GRAMMAR_REGEX, gc.text = "a+", gc.len = 2;
    CHECK(!llm_grammar_open_sized(t, *out, &gc, &g) && g);
    llm_grammar_close(g);
    for (int chat = 0; chat < 2; chat++) {
        setup_fresh(&room);
        (chat ? llm_sampling_chat_sized : llm_sampling_default_sized)(t, *out, (llm_sampling *)(void *)room.bytes);
        (chat ? llm_sampling_chat : llm_sampling_default)(*out, &own);
        setup_unpack(&got, room.bytes, sizeof got, NULL, 0);
        CHECK(!memcmp(&got, &own, sizeof own - CUT));
        setup_untouched(&room, t->sampling);
    }
    CHECK(!llm_sampling_check_sized(t, *out, &own));
    own.temperature = -1;
    CHECK(llm_sampling_check_sized(t, *out, &own) == LLM_ERR_ARG);
    static const float logits[3] = {0, 2, 1};
    memset(&own, 0, sizeof own);
    CHECK(llm_sample_sized(t, logits, 3, &own, 1, 0) == 1);
    llm_template_close(template_), llm_json_free(context), llm_text_free(&a), llm_text_free(&b);
}

/* An engine and a request, from its config to its last event. */
static void sized_request(const llm_sizes *t, const llm_model *m) {
    setup_room room;
    llm_engine_config ec = LLM__ZERO;
    llm_engine_stats stats, plain_stats;
    llm_request_config q = LLM__ZERO;
    llm_request_metrics metrics, plain_metrics;
    llm_output output, plain_output;
    llm_event event;
    llm_engine *e = NULL;
    llm_request *r = NULL;
    static const int32_t ids[3] = {5, 6, 7};
    ec.n_threads = 1, ec.max_model_len = 64, ec.max_num_seqs = 2;
    if (!CHECK(!llm_engine_open_sized(t, m, &ec, &e))) return;
    q.prompt_ids = ids, q.n_prompt_ids = 3, q.sampling.max_tokens = 3, q.sampling.ignore_eos = 1, q.priority = 4, q.id = "me";
    setup_pack(room.bytes, &q, sizeof q, setup_of_request, 1);
    CHECK(!llm_request_submit_sized(t, e, (const llm_request_config *)(const void *)room.bytes, &r) && !llm_request_run(e, r) &&
          !strcmp(llm_request_id(r), "me") && r->priority == 4);
    int n = 0;
    for (setup_fresh(&room); llm_request_poll_sized(t, r, (llm_event *)(void *)room.bytes); n++) {
        setup_unpack(&event, room.bytes, sizeof event, NULL, 0);
        CHECK(event.has_token && event.id == r->seq[0].ids[3 + n]);
        setup_untouched(&room, t->event);
    }
    CHECK(n == 3);
    setup_fresh(&room);
    CHECK(!llm_request_get_output_sized(t, r, 0, (llm_output *)(void *)room.bytes) && !llm_request_get_output(r, 0, &plain_output));
    setup_unpack(&output, room.bytes, sizeof output, NULL, 0);
    CHECK(!memcmp(&output, &plain_output, sizeof output - CUT) &&
          llm_request_get_output_sized(t, r, 9, (llm_output *)(void *)room.bytes) == LLM_ERR_ARG);
    setup_untouched(&room, t->output);
    setup_fresh(&room);
    llm_request_get_metrics_sized(t, r, (llm_request_metrics *)(void *)room.bytes);
    llm_request_get_metrics(r, &plain_metrics);
    setup_unpack(&metrics, room.bytes, sizeof metrics, NULL, 0);
    CHECK(!memcmp(&metrics, &plain_metrics, sizeof metrics - CUT));
    setup_fresh(&room);
    llm_engine_get_stats_sized(t, e, (llm_engine_stats *)(void *)room.bytes);
    llm_engine_get_stats(e, &plain_stats);
    setup_unpack(&stats, room.bytes, sizeof stats, NULL, 0);
    CHECK(!memcmp(&stats, &plain_stats, sizeof stats - CUT) && stats.steps > 0);
    setup_untouched(&room, t->engine_stats);
    llm_request_free(r);
    llm_engine_close(e);
}

/* How an answer ended, as the program reads it and as it is. */
static void sized_answer(const llm_sizes *t, const setup_room *room, const llm_answer *plain) {
    llm_answer answer;
    setup_unpack(&answer, room->bytes, sizeof answer, NULL, 0);
    CHECK(!memcmp(&answer, plain, sizeof answer - CUT) && plain->text && plain->text[0]);
    setup_untouched(room, t->answer);
}

/* A model whose files the program names, what it would take, and a conversation. */
static void sized_files(const llm_sizes *t) {
    static setup_room room;
    llm_file file = LLM__ZERO;
    llm_engine_config ec = LLM__ZERO;
    llm_estimate estimate, plain_estimate;
    llm_answer plain;
    llm_model *m = NULL;
    char files[sizeof file];
    file.name = "no.gguf", file.data = "GGUF", file.size = 4;
    memcpy(files, &file, t->file);
    CHECK(llm_model_open_files_sized(t, (const llm_file *)(const void *)files, 1, NULL, &m) == LLM_ERR_FORMAT && !m &&
          strstr(llm_last_error(), "no.gguf") && !llm_load_files_sized(t, (const llm_file *)(const void *)files, 1, NULL));
    CHECK(llm_model_open_files_sized(t, NULL, 0, NULL, &m) == LLM_ERR_ARG);
    if (!CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), NULL, &m))) return;
    ec.n_threads = 1, ec.max_model_len = 64;
    setup_fresh(&room);
    CHECK(!llm_model_estimate_sized(t, m, &ec, (llm_estimate *)(void *)room.bytes) && !llm_model_estimate(m, &ec, &plain_estimate));
    setup_unpack(&estimate, room.bytes, sizeof estimate, NULL, 0);
    CHECK(estimate.weight_bytes > 0 && estimate.weight_bytes == plain_estimate.weight_bytes &&
          estimate.kv_bytes == plain_estimate.kv_bytes);
    setup_untouched(&room, t->estimate);
    llm_model_close(m);
    llm *l = llm_load_sized(t, TEST_CHECKPOINT("llama"), &ec);
    llm_chat *c = l ? llm_chat_new(l, NULL) : NULL;
    llm_sampling s = LLM__ZERO;
    s.max_tokens = 3, s.ignore_eos = 1;
    if (CHECK(c && !llm_chat_add(c, "user", "one") && !llm_chat_reply_sized(t, c, &s))) {
        while (llm_chat_next(c))
            ;
        setup_fresh(&room);
        llm_chat_get_answer_sized(t, c, (llm_answer *)(void *)room.bytes);
        llm_chat_get_answer(c, &plain);
        sized_answer(t, &room, &plain);
    }
    char *text = l ? llm_generate_sized(t, l, "one", &s) : NULL;
    setup_fresh(&room);
    if (CHECK(text)) {
        llm_get_answer_sized(t, l, (llm_answer *)(void *)room.bytes);
        llm_get_answer(l, &plain);
        sized_answer(t, &room, &plain);
    }
    LLM_FREE(text);
    llm_chat_free(c);
    llm_free(l);
}

/* The easy level: prompts and outputs stand in arrays of the program's own structs. */
static void sized_easy(const llm_sizes *t) {
    llm_engine_config ec = LLM__ZERO;
    llm_sampling s = LLM__ZERO;
    llm_prompt p = LLM__ZERO;
    llm_batch_config bc = LLM__ZERO;
    llm_request_output own;
    char prompts[2 * sizeof p];
    ec.n_threads = 1, ec.max_model_len = 64;
    llm *l = llm_load_sized(t, TEST_CHECKPOINT("llama"), &ec);
    if (!CHECK(l != NULL)) return;
    s.max_tokens = 4;
    char *text = llm_generate_sized(t, l, "one", &s), *plain = llm_generate(l, "one", &s);
    CHECK(text && plain && !strcmp(text, plain));
    LLM_FREE(text);
    LLM_FREE(plain);
    for (int i = 0; i < 2; i++) p.prompt = i ? "two" : "one", memcpy(prompts + (size_t)i * t->prompt, &p, t->prompt);
    bc.sampling_params = &s;
    for (int chat = 0; chat < 2; chat++) {
        llm_outputs *o = (chat ? llm_chat_batch_sized : llm_generate_batch_sized)(t, l, (const llm_prompt *)(const void *)prompts, 2, &bc);
        if (!CHECK(o && o->n == 2)) continue;
        for (int i = 0; i < 2; i++) {
            setup_unpack(&own, (const char *)o->items + (size_t)i * t->request_output, sizeof own, setup_of_output, 2);
            CHECK(own.finished == 1 && own.outputs.index == i && own.outputs.n_token_ids <= 4 && own.outputs.text &&
                  strstr(own.prompt, i ? "two" : "one") && !own.error_msg);
        }
        llm_outputs_free(o);
    }
    llm_free(l);
}

/* What a program reads from its words, with its own layout of the setup, up to a call. */
static void sized_setup(const llm_sizes *t, const llm_model *m) {
    static setup_room room, service_room;
    static llm_setup own;
    llm_openai_service service;
    llm_option table[LLM__COUNT(setup_table)];
    llm_option_list words = {NULL, 0};
    llm_options o = {table, LLM__COUNT(table), room.bytes, setup_given, NULL, NULL, {NULL, 0}, NULL};
    llm_setup *s = (llm_setup *)(void *)room.bytes;
    char *argv[] = {(char *)"prog",
                    (char *)"--temperature",
                    (char *)"0",
                    (char *)"--max-num-seqs",
                    (char *)"6",
                    (char *)"--max-tokens",
                    (char *)"9",
                    (char *)"-m",
                    (char *)TEST_CHECKPOINT("llama"),
                    NULL};
    memset(setup_given, 0, sizeof setup_given);
    memcpy(table, setup_table, sizeof table);
    for (int i = 0; i < LLM__COUNT(table); i++) /* offsets as the program's compiler had them */
        for (int k = 0; k < 3; k++) table[i].at -= setup_table[i].at >= setup_of_setup[k].at + setup_of_setup[k].size ? CUT : 0;
    setup_fresh(&room);
    llm_setup_init_sized(t, s);
    setup_untouched(&room, t->setup);
    CHECK(!llm_setup_read_sized(t, s, &o, 9, argv, setup_get, &words) && !llm_setup_find_sized(t, s, setup_get));
    setup_unpack(&own, room.bytes, sizeof own, setup_of_setup, 3);
    CHECK(own.engine.max_num_seqs == 6 && own.sampling.max_tokens == 9 && !strcmp(own.path.data, TEST_CHECKPOINT("llama")) &&
          own.log_level == LLM_LOG_WARN);
    setup_untouched(&room, t->setup + 16); /* behind it stands the program's port */
    setup_fresh(&service_room);
    llm_setup_service_sized(t, s, &o, m, NULL, (llm_openai_service *)(void *)service_room.bytes);
    setup_unpack(&service, service_room.bytes, sizeof service, setup_of_service, 2);
    CHECK(service.model == m && service.max_tokens == 9 && service.defaults.temperature == 0);
    setup_untouched(&service_room, t->openai_service);
    llm_setup_free_sized(t, s);
    setup_unpack(&own, room.bytes, sizeof own, setup_of_setup, 3);
    CHECK(!own.path.data);
    LLM_FREE((void *)words.items);
    llm_options_free(&o);
    setup_fresh(&service_room);
    llm_openai_service_init_sized(t, (llm_openai_service *)(void *)service_room.bytes, m, NULL);
    setup_unpack(&service, service_room.bytes, sizeof service, setup_of_service, 2);
    static const char *const name = "mine";
    service.names = &name, service.n_names = 1, service.max_tokens = 7;
    setup_pack(service_room.bytes, &service, sizeof service, setup_of_service, 2);
    const llm_openai_service *packed = (const llm_openai_service *)(const void *)service_room.bytes;
    CHECK(llm_openai_knows_model_sized(t, packed, "mine", 4) && !llm_openai_knows_model_sized(t, packed, "yours", 5));
    static const char body[] = "{\"prompt\":\"a\"}";
    llm_openai_call *k = llm_openai_begin_sized(t, packed, LLM_OPENAI_COMPLETION, body, sizeof body - 1, NULL);
    CHECK(k && k->s.max_tokens == 7 && !strcmp(k->model, "mine"));
    llm_openai_free(k);
}

TEST_GROUP(setup) {
    llm_model *m = NULL;
    llm_engine *e = NULL;
    llm_engine_config c = LLM__ZERO;
    const llm_sizes here = LLM_SIZES_HERE, shorter = setup_sizes();
    c.n_threads = 1, c.max_num_seqs = 2, c.max_model_len = 64;
    setup_verdicts();
    setup_read();
    setup_check();
    setup_find();
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints") ||
        !CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), NULL, &m) && !llm_engine_open(m, &c, &e)))
        return;
    setup_service(m, e);
    setup_batch();
    llm_engine_close(e);
    llm_model_close(m);
    CHECK(llm__unset("x", "\0\0", 2) == LLM_OK && llm__unset("x", "\0\1", 2) == LLM_ERR_ARG && here.sizes == shorter.sizes);
    sized_model(&shorter, &m);
    sized_request(&shorter, m);
    sized_files(&shorter);
    sized_easy(&shorter);
    sized_setup(&shorter, m);
    llm_model_close(m);
}
