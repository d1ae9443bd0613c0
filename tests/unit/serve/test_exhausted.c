/* llm_serve where memory runs out: every kind of request with its n-th allocation failing, for every n. The answer must be whole and right, or an
 * error (503 with an error object, an error event, or a connection that ends before its answer does); never part of an answer that looks whole.
 * Nothing may be lost, and the next request must be answered as ever.
 *
 *     build/dev/unit exhausted -- EVERY      EVERY: 1 for all points, else one in so many
 *
 * The whole server runs here in one thread, with a real model, on fake sockets. */
#define SERVE_MAIN exhausted_main
#include "world.h"

typedef struct asked {
    const char *request; /* method and path */
    const char *body;    /* NULL: none */
} asked;

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"abc def\"}]"
#define SHORT "\"max_tokens\":6,\"temperature\":0,\"ignore_eos\":true"
#define TOOLS \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,22]}},\"required\":[\"a\"],\"additionalProperties\":false}}}]"
#define FLAT_TOOLS \
    "\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,22]}},\"required\":[\"a\"],\"additionalProperties\":false}}]"

/* The whole surface. */
static const asked surface[] = {
    {"GET /health", NULL},
    {"GET /v1/models", NULL},
    {"GET /v1/models/tiny", NULL},
    {"GET /metrics", NULL},
    {"GET /page.js", NULL},
    {"GET /tokenizer_info", NULL},
    {"GET /nothing", NULL},
    {"HEAD /page.css", NULL},
    {"OPTIONS /v1/completions", NULL},
    {"GET /version", NULL},
    {"POST /v1/chat/completions", "{" USER "," SHORT "}"},
    {"POST /v1/chat/completions", "{" USER "," SHORT ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}"},
    {"POST /v1/chat/completions",
     "{" USER "," SHORT ",\"logprobs\":true,\"top_logprobs\":3,\"n\":2,\"return_token_ids\":true,\"prompt_logprobs\":1}"},
    {"POST /v1/chat/completions",
     "{" USER "," SHORT ",\"stream\":true,\"logprobs\":true,\"top_logprobs\":2,\"n\":2,\"return_token_ids\":true}"},
    {"POST /v1/chat/completions",
     "{" USER "," TOOLS ",\"tool_choice\":\"required\",\"max_tokens\":60,\"temperature\":0,\"parallel_tool_calls\":false}"},
    {"POST /v1/chat/completions",
     "{" USER "," TOOLS ",\"tool_choice\":\"required\",\"max_tokens\":60,\"temperature\":0,\"stream\":true,\"parallel_tool_calls\":false}"},
    {"POST /v1/chat/completions",
     "{" USER
     ",\"max_tokens\":40,\"temperature\":0,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,22]}},\"required\":[\"a\"],\"additionalProperties\":false}}}}"},
    {"POST /v1/chat/completions",
     "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"p1\"},{\"type\":\"text\",\"text\":\"p2\"}]},{\"role\":\"assistant\",\"content\":\"bc\"}],\"continue_final_message\":true,\"add_generation_prompt\":false," SHORT
     "}"},
    {"POST /v1/completions", "{\"prompt\":\"abc\"," SHORT ",\"echo\":true,\"logprobs\":2}"},
    {"POST /v1/completions", "{\"prompt\":[\"a\",\"bcd\"],\"n\":2," SHORT ",\"stream\":true,\"echo\":true,\"logprobs\":1}"},
    {"POST /v1/completions",
     "{\"prompt\":[5,6,7]," SHORT
     ",\"stop\":[\"zzz\"],\"bad_words\":[\"qq\"],\"logit_bias\":{\"5\":1},\"stop_token_ids\":[3],\"user\":\"u\",\"unknown\":1}"},
    {"POST /v1/completions", "{\"prompt\":\"a\",\"max_tokens\":8,\"temperature\":0,\"guided_choice\":[\"yes\",\"no\"]}"},
    {"POST /v1/completions", "{\"prompt\":\"a\",\"max_tokens\":8,\"temperature\":0,\"guided_regex\":\"[a-z]{3}\"}"},
    {"POST /v1/completions",
     "{\"prompt\":\"a\",\"max_tokens\":8,\"temperature\":0,\"guided_grammar\":\"root ::= \\\"Blue\\\" | \\\"Red\\\"\"}"},
    {"POST /v1/completions", "{\"prompt\":\"a\"," SHORT ",\"best_of\":2,\"n\":1,\"seed\":5}"},
    {"POST /v1/completions", "{\"prompt\":\"a\",\"max_tokens\":4,\"use_beam_search\":true,\"n\":2,\"ignore_eos\":true}"},
    {"POST /v1/completions",
     "{\"prompt\":\"a\",\"max_tokens\":30,\"temperature\":0,\"ignore_eos\":true,\"stream\":true,\"repetition_penalty\":1.1}"},
    {"POST /v1/messages", "{" USER ",\"max_tokens\":6,\"temperature\":0,\"system\":\"s\"}"},
    {"POST /v1/messages",
     "{" USER
     ",\"max_tokens\":60,\"temperature\":0,\"stream\":true,\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,22]}},\"required\":[\"a\"],\"additionalProperties\":false}}],\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":true}}"},
    {"POST /v1/messages/count_tokens", "{" USER ",\"tools\":[{\"name\":\"f\"}]}"},
    {"POST /generate", "{\"prompt\":\"a\"," SHORT "}"},
    {"POST /generate", "{\"prompt\":\"a\"," SHORT ",\"stream\":true}"},
    {"POST /v1/embeddings", "{\"input\":[\"a\",\"b c\"],\"dimensions\":4}"},
    {"POST /v1/embeddings", "{\"input\":\"a\",\"encoding_format\":\"base64\"}"},
    {"POST /v1/responses", "{\"input\":\"abc\",\"max_output_tokens\":6,\"temperature\":0,\"ignore_eos\":true}"},
    {"POST /v1/responses",
     "{\"input\":\"abc\",\"max_output_tokens\":6,\"temperature\":0,\"ignore_eos\":true,\"stream\":true,\"include\":[\"message.output_text.logprobs\"],\"top_logprobs\":2}"},
    {"POST /v1/responses",
     "{\"instructions\":\"i\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"5\"}],\"max_output_tokens\":60,\"temperature\":0," FLAT_TOOLS
     ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false}"},
    {"POST /v1/responses", "{\"input\":\"abc\",\"max_output_tokens\":60,\"temperature\":0," FLAT_TOOLS
                           ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false,\"stream\":true}"},
    {"POST /tokenize", "{\"prompt\":\"abc def ghi\",\"return_token_strs\":true}"},
    {"POST /tokenize", "{\"content\":\"abc\",\"with_pieces\":true}"},
    {"POST /tokenize", "{" USER "}"},
    {"POST /detokenize", "{\"tokens\":[5,6,7]}"},
    {"POST /apply-template", "{" USER "}"},
    {"POST /apply-template", "{" USER "," TOOLS "}"},
    {"POST /v1/contexts/save",
     "{\"name\":\"kept\",\"prompt\":\"abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc abc\"}"},
    {"POST /v1/contexts/load", "{\"name\":\"kept\"}"},
    {"POST /v1/load_lora_adapter", "{\"lora_name\":\"a\",\"lora_path\":\"none\"}"},
    {"POST /v1/unload_lora_adapter", "{\"lora_name\":\"a\"}"},
    {"POST /v1/completions", "{\"prompt\":\"a\",\"n\":0}"},
    {"POST /v1/completions", "{\"prompt\":"},
    {"POST /v1/chat/completions", "{" USER ",\"model\":\"gpt\",\"guided_json\":{\"type\":\"hiccup\"}}"}};

/* What is another in each answer: ids, times, and how much was in the cache. */
static void mask(world_queue *text) {
    static const char *const keys[] = {"\"id\":", "\"item_id\":", "\"call_id\":", "\"created\":", "\"created_at\":", "\"cached_tokens\":"};
    for (size_t i = text->at; i < text->len; i++)
        for (size_t k = 0; k < N_OF(keys); k++) {
            const size_t n = strlen(keys[k]);
            if (i + n > text->len || memcmp(text->data + i, keys[k], n)) continue;
            for (size_t at = i + n + (text->data[i + n] == '"'); at < text->len && !strchr("\",}", text->data[at]); at++)
                text->data[at] = '#';
        }
}

/* One request on a connection of its own, to its end. 0: it was closed without a whole answer; `rest` has what came of it. */
static int ask(const asked *q, world_answer *a, world_queue *rest) {
    char head[400];
    world_socket *s = world_connect(1 << 24);
    const size_t n = q->body ? strlen(q->body) : 0;
    int busy, whole;
    memset(rest, 0, sizeof *rest);
    const int len = snprintf(
        head, sizeof head,
        "%s HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:1\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
        q->request, n);
    world_put(&s->in, head, (size_t)len);
    world_put(&s->in, q->body ? q->body : "", n);
    conn_accept(0, 0);
    do {
        world_settle();
        llm_engine_step(default_model()->engine, &busy);
    } while (world_settle() || busy);
    whole = world_take_answer(&s->out, !strncmp(q->request, "HEAD", 4), a);
    CHECK(whole >= 0);
    if (!whole) {
        static char part[4096];
        for (size_t got; (got = world_get(&s->out, part, sizeof part)) > 0;) world_put(rest, part, got);
        CHECK(s->server_shut || !s->open);
    } else mask(&a->body);
    const int bare = CHECK(!world_waiting(&s->out));
    world_leave(s);
    world_settle();
    llm_engine_step(default_model()->engine, &busy);
    world_settle();
    return bare && whole > 0;
}

static int has(const world_queue *q, const char *text) { return q->data && memmem(q->data, q->len, text, strlen(text)) != NULL; }

/* An error in the form of OpenAI's API or of Anthropic's. */
static int has_error(const world_queue *q) { return has(q, "{\"error\":{\"message\":") || has(q, "{\"type\":\"error\",\"error\":{"); }

/* What came of a request for which memory was out at some point. NULL: it is right. */
static const char *judge(const asked *q, int whole, const world_answer *a, const world_queue *rest, const world_answer *want) {
    const int live = !strcmp(q->request, "GET /metrics"),
              same = whole && a->status == want->status &&
                     (live || (a->body.len == want->body.len && (!a->body.len || !memcmp(a->body.data, want->body.data, a->body.len))));
    if (same) return NULL;
    if (!whole)
        return rest->len && !memmem(rest->data, rest->len, "Transfer-Encoding", 17)
                   ? "cut"
                   : NULL; /* a stream without its last chunk is seen to be cut */
    if (a->status >= 400 && has_error(&a->body))
        return a->status == 503 || a->status == 500 || a->status == want->status ? NULL : "an error that blames the client";
    if (a->status >= 400 && !strncmp(q->request, "HEAD", 4)) return NULL;
    if (a->chunked && (has_error(&a->body) || has(&a->body, "\"status\":\"failed\""))) return NULL;
    return "part of an answer, as if it were whole";
}

static void torture(const asked *q, long every, long *points, long *errors) {
    world_answer want, a;
    world_queue rest;
    for (int i = 0; i < 3; i++) { /* what is kept for later ones is there then */
        if (i) free(want.body.data);
        if (!CHECK(ask(q, &want, &rest))) printf("    %s %s: no whole answer\n", q->request, q->body ? q->body : "");
        free(rest.data);
    }
    const long before = test_allocations;
    if (ask(q, &a, &rest)) free(a.body.data);
    free(rest.data);
    const long n = test_allocations - before;
    const long live = test_live;
    for (long k = 1 + (long)world_random((uint64_t)every); k <= n; k += every) {
        test_fail_at = test_allocations + k;
        const int whole = ask(q, &a, &rest);
        test_fail_at = 0;
        const char *why = judge(q, whole, &a, &rest, &want);
        ++*points;
        *errors += whole ? a.status != want.status : 1;
        if (!CHECK(!why))
            printf("    %s %s: allocation %ld of %ld: %s: %d %.*s\n", q->request, q->body ? q->body : "", k, n, why, whole ? a.status : -1,
                   (int)(whole ? a.body.len : rest.len), whole ? (a.body.data ? a.body.data : "") : rest.data);
        if (whole) free(a.body.data);
        free(rest.data);
        if (!CHECK(ask(q, &a, &rest) && a.status == want.status))
            printf("    %s %s: after allocation %ld: %d\n", q->request, q->body ? q->body : "", k, a.status);
        free(a.body.data);
        free(rest.data);
        if (!CHECK(!net.list && !net.unsent && !net.bodies[0] && !net.bodies[1])) return;
    }
    if (!CHECK(test_live == live)) printf("    %s %s: %ld allocations are lost\n", q->request, q->body ? q->body : "", test_live - live);
    free(want.body.data);
}

static int open_server(llm_engine_config *c) {
    static const char *const names[] = {"tiny"};
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints")) return 0;
    memset(c, 0, sizeof *c);
    c->max_model_len = 512;
    c->max_num_seqs = 8;
    c->n_threads = 1;
    c->kv_cache_memory_bytes = 4 << 20;
    static served_model own;
    served_model *m = models.list = &own;
    models.n = 1;
    if (!CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), NULL, &m->model) && !llm_engine_open(m->model, c, &m->engine))) return 0;
    m->names.items = (const char **)(uintptr_t)names;
    m->names.n = m->n_listed = 1;
    m->setup.model = "tiny";
    m->state = MODEL_LOADED;
    server.cfg.n_workers = 2;
    server.cfg.setup.log_level = -1;
    server.loopback = 1;
    llm_openai_service_init(&m->service, m->model, m->engine);
    m->service.names = names;
    m->service.n_names = 1;
    m->service.on_news = on_call_news;
    m->service.on_event = count_event;
    set_facts(m);
    m->service.context_dir = m->service.lora_dir = "build/dev";
    server.ready = 1;
    net.now = 1000;
    world.random = 88172645463325252u;
    return 1;
}

TEST_GROUP(exhausted) {
    const long every = test_argc > 0 ? atol(test_argv[0]) : TEST_BRIEF ? 400 : 40;
    long points = 0, errors = 0;
    llm_engine_config c;
    if (!open_server(&c)) return;
    for (size_t i = 0; i < N_OF(surface) && test_failed < 30; i++)
        if (test_argc < 2 || (long)i == atol(test_argv[1])) torture(&surface[i], every, &points, &errors);
    llm_engine_close(default_model()->engine);
    llm_model_close(default_model()->model);
    remove("build/dev/kept");
    printf("    %ld points, %ld answered with an error\n", points, errors);
}
