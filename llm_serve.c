/* llm_serve - an OpenAI-compatible server on llm.h.
 *
 *     ./llm_serve --port 8180
 *
 * One event thread (sockets), one engine thread (the model), a few workers (JSON, templates, tokenizing, long answers). Uses the public
 * API of llm.h only: what a request means and how its answer is written is its section >>openai; here are the sockets, the
 * threads, the routes, the metrics and the page. A request's way: conn_receive takes its bytes, http_parse_head its head,
 * serve_head finds the route, call_begin begins a call, a worker submits it, the engine steps, conn_answer writes what is
 * new, conn_send sends it. Sections, bottom-up: >>server >>options >>http >>connections >>models >>calls >>metrics >>answers >>page
 * >>routes >>documents >>main. */
#define _GNU_SOURCE
#if defined(LLM_IMPLEMENTATION) && !defined(LLM_NO_VISION)
#define LLM_IMAGE_IMPLEMENTATION /* stb_image too */
#endif
#include "llm.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* ============================================================================
 * >>server   What all parts share: the configuration, the log.
 * ============================================================================
 * One struct of globals, written before the threads start or by the one thread named here:
 *
 *   cfg, bound   main, from the options, before anything listens
 *   ready        the event thread
 *   signals      the signal handler
 *
 * Everything else has one owner: connections and calls belong to the event thread, what waits between threads to `queue`; of models >>models
 * says it. */

#define UNUSED __attribute__((unused))
#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

/* What is declared with these is freed when its block is left, wherever that is. */
#define SCOPED_TEXT __attribute__((cleanup(llm_text_free))) llm_text

typedef struct configuration {
    llm_setup setup; /* the model, the engine, the defaults of requests */
    const char *models_dir;
    int32_t max_loaded; /* models; 0: as many as fit */
    const char *host, *unix_socket, *key_file, *lora_dir, *context_dir;
    llm_option_list names, keys, origins, allowed_hosts;
    int32_t port, metrics_port, max_logprobs, strict_model_name, no_page, n_workers;
    float shutdown_timeout, request_timeout, ping_interval, step_timeout, drain;
    int64_t max_contexts, max_context_bytes;
    const char *log_file;
    int32_t log_requests, log_prompts, log_json, no_docs;
    const char *metrics_prefix, *template_kwargs, *reasoning_effort;
    int32_t thinking, thinking_budget, force_usage, tokens_as_ids, request_metrics;
    llm_launch launch;
} configuration;

static struct {
    configuration cfg;
    char bound[160];
    int ready;                /* atomic: requests are served; -1: they cannot be */
    int loopback;             /* bound to a loopback address */
    double started, launched; /* by the calendar; by llm_now, when main began */
    int argc;
    char **argv;
    volatile sig_atomic_t signals, hangups;
    FILE *log;              /* NULL: standard error */
    llm_nodes_config place; /* which of several processes this is; n 0: there is one */
    llm_text address;       /* of process 0, as place has it */
    llm_nodes *nodes;
    pthread_t watcher;
    int leaving, lost; /* atomic: the others may end; one of them has gone */
} server;

/* Where the log goes: standard error, or --log-file, which SIGHUP opens anew. Any thread: a FILE locks itself. */
static FILE *log_stream(void) { return server.log ? server.log : stderr; }

#define LOG_JSON_TIME "%Y-%m-%dT%H:%M:%S%z"

static void log_stamp(char stamp[40], const char *form) {
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    strftime(stamp, 40, form, &tm);
}

/* One line of the log, with level and time, if the level is wanted; an object with --log-format json. Any thread. */
static void on_library_log(UNUSED void *user, int level, const char *message) {
    static const char *const name[] = {"ERROR", "WARN", "INFO", "DEBUG"};
    char stamp[40];
    if (level > server.cfg.setup.log_level) return;
    level = level < 0 ? 0 : level > 3 ? 3 : level;
    log_stamp(stamp, server.cfg.log_json ? LOG_JSON_TIME : "%m-%d %H:%M:%S");
    if (!server.cfg.log_json) {
        fprintf(log_stream(), "%s %s %s\n", name[level], stamp, message);
        return;
    }
    SCOPED_TEXT t = {0};
    llm_text_format(&t, "{'time':%q,'level':%q,'message':%q}\n", stamp, name[level], message);
    if (!t.failed) fwrite(t.data, 1, t.len, log_stream());
}

/* --log-file: appended to. Buffered by lines, so that lines of several threads do not mix. */
static int log_open(void) {
    FILE *f = fopen(server.cfg.log_file, "ae");
    if (!f) return 0;
    setvbuf(f, NULL, _IOLBF, 4096);
    if (server.log) fclose(server.log);
    server.log = f;
    return 1;
}

__attribute__((format(printf, 2, 3))) static void server_log(int level, const char *format, ...) {
    char line[1400];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    on_library_log(NULL, level, line);
}

/* ============================================================================
 * >>options   Flags: vLLM's names, with the aliases of FastDeploy, LMDeploy and llama.cpp.
 * ============================================================================
 * The rows of the library's own structs are the library's (LLM_OPTIONS_*), so llm_cli spells them alike; here stand those of the server.
 * Each option may also come as LLM_ARG_NAME from the environment, under a document's own variable ('$NAME'), or from --config. */

#define IN_CFG(member) offsetof(configuration, member)

/* clang-format off */
static const llm_option options_table[] = {
    LLM_OPTIONS_PROGRAM_OF_MODELS(configuration, setup),
    {"models-dir", LLM_OPTION_TEXT, LLM_HELP_MODEL, IN_CFG(models_dir), 0, 0, "PATH",
     "folder of GGUF files and model folders: each is loaded when a request names it"},
    {"max-loaded-models|models-max", LLM_OPTION_INT, LLM_HELP_MODEL, IN_CFG(max_loaded), 1, 100000, "N",
     "of several models so many are loaded at once, and the longest unused goes (as many as fit into memory)"},
    LLM_OPTIONS_SETUP(configuration, setup),
    {"served-model-name|a|alias", LLM_OPTION_LIST, LLM_HELP_MODEL, IN_CFG(names), 1, 0, "NAME ...",
     "names that answers and /v1/models carry"},
    {"host|server-name", LLM_OPTION_TEXT, LLM_HELP_OWN, IN_CFG(host), 0, 0, "ADDRESS", "address to listen on (127.0.0.1); a path ending in .sock: Unix socket"},
    {"port|server-port", LLM_OPTION_INT, LLM_HELP_OWN, IN_CFG(port), 0, 65535, "N", "port (8000); 0: any free one"},
    {"uds", LLM_OPTION_TEXT, LLM_HELP_OWN, IN_CFG(unix_socket), 0, 0, "PATH", "listen on a Unix socket"},
    {"metrics-port", LLM_OPTION_INT, LLM_HELP_OWN, IN_CFG(metrics_port), 0, 65535, "N", "/metrics on a port of its own too"},
    {"api-key|api-keys|$LLM_API_KEY|$VLLM_API_KEY|$LLAMA_API_KEY", LLM_OPTION_LIST, LLM_HELP_OWN, IN_CFG(keys), 1, 0, "KEY ...",
     "keys that are let in (or LLM_API_KEY, VLLM_API_KEY, LLAMA_API_KEY)"},
    {"api-key-file", LLM_OPTION_TEXT, LLM_HELP_OWN, IN_CFG(key_file), 0, 0, "FILE", "keys, one a line"},
    {"cors-origins|allowed-origins|allow-origins", LLM_OPTION_LIST, LLM_HELP_OWN, IN_CFG(origins), 1, 0, "ORIGIN ...", "pages that may call (loopback ones); *: all"},
    {"allowed-hosts", LLM_OPTION_LIST, LLM_HELP_OWN, IN_CFG(allowed_hosts), 1, 0, "NAME ...", "Host names served besides loopback ones"},
    {"shutdown-timeout|timeout-graceful-shutdown", LLM_OPTION_FLOAT, LLM_HELP_OWN, IN_CFG(shutdown_timeout), 0, 86400, "S", "to finish what runs after SIGTERM (30)"},
    {"timeout|to", LLM_OPTION_FLOAT, LLM_HELP_OWN, IN_CFG(request_timeout), 0, 1e6, "S", "longest life of a request (none)"},
    {"drain", LLM_OPTION_FLOAT, LLM_HELP_OWN, IN_CFG(drain), 0, 86400, "S",
     "after SIGTERM: serve on for so long while /health says 503, so that a router looks elsewhere (0)"},
    {"log-requests|enable-log-requests", LLM_OPTION_BOOL, LLM_HELP_OWN, IN_CFG(log_requests), 0, 0, NULL,
     "a line for every request: status, times, tokens, id"},
    {"log-prompts", LLM_OPTION_BOOL, LLM_HELP_OWN, IN_CFG(log_prompts), 0, 0, NULL, "and the body of each, up to 2,000 bytes"},
    {"log-format", LLM_OPTION_ENUM, LLM_HELP_OWN, IN_CFG(log_json), 0, 0, "text|json=1", "lines to read, or JSON objects"},
    {"log-file", LLM_OPTION_TEXT, LLM_HELP_OWN, IN_CFG(log_file), 0, 0, "FILE", "the log, instead of standard error; SIGHUP opens it anew"},
    {"no-ui|no-webui", LLM_OPTION_BOOL, LLM_HELP_OWN, IN_CFG(no_page), 0, 0, NULL, "no chat page at /"},
    {"disable-fastapi-docs", LLM_OPTION_BOOL, LLM_HELP_OWN, IN_CFG(no_docs), 0, 0, NULL, "neither /docs nor /openapi.json"},
    {"metrics-prefix", LLM_OPTION_CHOICE, LLM_HELP_OWN, IN_CFG(metrics_prefix), 0, 0, "vllm|fastdeploy|lmdeploy|llm", "what names of metrics begin with (vllm)"},
    {"default-chat-template-kwargs|chat-template-kwargs", LLM_OPTION_TEXT, LLM_HELP_ANSWERS, IN_CFG(template_kwargs), 0, 0, "JSON",
     "variables of the chat template where requests do not set them: {\"enable_thinking\": false}"},
    {"reasoning|rea", LLM_OPTION_ENUM, LLM_HELP_ANSWERS, IN_CFG(thinking), 0, 0, "auto|on=1|off=-1", "whether models think first, where requests do not say it"},
    {"reasoning-effort", LLM_OPTION_TEXT, LLM_HELP_ANSWERS, IN_CFG(reasoning_effort), 0, 0, "LEVEL", "how long, where requests do not say it: low, medium, high, ..."},
    {"thinking-token-budget|reasoning-budget", LLM_OPTION_INT, LLM_HELP_ANSWERS, IN_CFG(thinking_budget), -1, INT32_MAX - 1, "N",
     "most tokens of thoughts, where requests do not say it (-1: any number)"},
    {"enable-force-include-usage", LLM_OPTION_BOOL, LLM_HELP_ANSWERS, IN_CFG(force_usage), 0, 0, NULL, "every stream ends with its usage"},
    {"return-tokens-as-token-ids", LLM_OPTION_BOOL, LLM_HELP_ANSWERS, IN_CFG(tokens_as_ids), 0, 0, NULL,
     "log-probabilities name tokens token_id:N, unless a request says false"},
    {"enable-per-request-metrics", LLM_OPTION_BOOL, LLM_HELP_ANSWERS, IN_CFG(request_metrics), 0, 0, NULL, "answers tell their times (return_metrics)"},
    LLM_OPT_NONE(IGNORED, "max-concurrency", "--max-num-seqs and --max-queue have bounds"),
    LLM_OPT_NONE(REFUSED, "logit-bias|grammar|json-schema", "that for all requests (each says logit_bias, grammar or json_schema)"),
    {"lora-dir", LLM_OPTION_TEXT, LLM_HELP_ENGINE, IN_CFG(lora_dir), 0, 0, "PATH", "folder whose adapters may be loaded while serving"},
    {"context-dir", LLM_OPTION_TEXT, LLM_HELP_ENGINE, IN_CFG(context_dir), 0, 0, "PATH", "folder of kept contexts: /v1/contexts/save and /load"},
    {"max-contexts", LLM_OPTION_INT64, LLM_HELP_ENGINE, IN_CFG(max_contexts), 0, 1e9, "N", "most files in it that a client's save may lead to (256); 0: any number"},
    {"max-context-bytes", LLM_OPTION_INT64, LLM_HELP_ENGINE, IN_CFG(max_context_bytes), 0, 9e18, "BYTES", "and most bytes of them (64 GiB)"},
    {"max-logprobs", LLM_OPTION_INT, LLM_HELP_ANSWERS, IN_CFG(max_logprobs), 0, 1000, "N", "most logprobs a request may ask for (20)"},
    {"strict-model-name", LLM_OPTION_BOOL, LLM_HELP_ANSWERS, IN_CFG(strict_model_name), 0, 0, NULL, "unknown model names are 404"},
    {"sse-ping-interval", LLM_OPTION_FLOAT, LLM_HELP_OWN, IN_CFG(ping_interval), 0, 86400, "S",
     "comments that keep a silent stream alive (15); 0: none"},
    {"engine-iteration-timeout|$VLLM_ENGINE_ITERATION_TIMEOUT_S", LLM_OPTION_FLOAT, LLM_HELP_ENGINE, IN_CFG(step_timeout), 0, 1e6, "S",
     "a step that takes longer fails the requests, not the server (none)"},
    {"workers", LLM_OPTION_INT, LLM_HELP_OWN, IN_CFG(n_workers), 1, 64, "N", "threads for what grows with a request: JSON, templates, tokenizing, long answers (2)"},
    {"nnodes", LLM_OPTION_INT, LLM_HELP_ENGINE, IN_CFG(launch.nnodes), 1, 256, "N", "GPU: nodes that share the model, a process each; torchrun, mpirun and srun say so themselves (1)"},
    {"node-rank", LLM_OPTION_INT, LLM_HELP_ENGINE, IN_CFG(launch.node_rank), 0, 255, "N", "which of them this is; the first one serves"},
    {"master-addr", LLM_OPTION_TEXT, LLM_HELP_ENGINE, IN_CFG(launch.master_addr), 0, 0, "ADDRESS", "of the first one, where it waits for the others"},
    {"master-port", LLM_OPTION_INT, LLM_HELP_ENGINE, IN_CFG(launch.master_port), 1, 65535, "N", "and its port for that (29501)"},
    {"ips", LLM_OPTION_TEXT, LLM_HELP_ENGINE, IN_CFG(launch.ips), 0, 0, "LIST", "the same as addresses of all nodes, the first one's first: 10.0.0.1,10.0.0.2"},
    {"nodes-timeout", LLM_OPTION_FLOAT, LLM_HELP_ENGINE, IN_CFG(launch.timeout), 0.1, 1e6, "S", "until all must have come (600)"},
    {"$LLM_NODES_SECRET", LLM_OPTION_TEXT, -1, IN_CFG(launch.secret), 0, 0, NULL, NULL},
    {"b", LLM_OPTION_INT, -1, IN_CFG(setup.engine.max_num_batched_tokens), 1, 65536, "N", NULL},
    LLM_OPTIONS_FOREIGN};
/* clang-format on */

static unsigned char options_given[N_OF(options_table)];
static llm_options options = {options_table, (int)N_OF(options_table), &server.cfg, options_given, NULL, NULL, {NULL, 0}, NULL};

/* Ends the program before it serves: 2 for what was said wrongly, 1 for what could not be done. */
__attribute__((format(printf, 2, 3), noreturn)) static void die(int code, const char *format, ...) {
    va_list args;
    fputs("llm_serve: error: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs("\n", stderr);
    exit(code);
}

/* Remarks of the option readers: accepted without effect, given twice. */
static void on_note(UNUSED void *user, const char *line) {
    SCOPED_TEXT t = {0};
    llm_options_sentence((const llm_options *)user, server.argc, server.argv, getenv, line, &t);
    fprintf(stderr, "llm_serve: note: %s\n", t.data ? t.data : line);
}

/* all: 0: what most people want to know, on one screen; 1: every option, also what is understood and has no effect; 2: every name as
 * JSON. */
static void print_help(int all) {
    static const char *const network = "Network and server";
    llm_text t = {0};
    if (all < 2) llm_text_str(&t, "usage: llm_serve [MODEL] [options]\n");
    if (all == 1) llm_options_help(&options, &network, 1, &t), llm_options_idle(&options, &t);
    if (all == 2) llm_options_verdicts(&options, &t), llm_text_str(&t, "\n");
    if (!all) {
        llm_text_str(&t, "\n  llm_serve              the default model at http://127.0.0.1:8000\n"
                         "  llm_serve model.gguf   this one: a file, folder or ORG/NAME\n\nOften used\n");
        llm_options_rows(&options, -1, "m|models-dir|c|np|t|served-model-name|host|port|api-key|log-requests", &t);
        llm_text_str(&t, "\nllm_serve --help-all: all options.\n");
    }
    if (t.failed || fputs(t.data, stdout) < 0 || fflush(stdout)) die(1, "writing to standard output failed");
    llm_text_free(&t);
    exit(0);
}

/* --api-key-file: a key a line. Readable by everybody deserves a remark, not an error: it may be a container's secret. */
static void read_keys(const char *path) {
    struct stat st;
    FILE *f = fopen(path, "re");
    if (!f) die(2, "--api-key-file: the file cannot be read");
    if (!fstat(fileno(f), &st) && (st.st_mode & 0004)) fprintf(stderr, "llm_serve: note: %s can be read by everybody\n", path);
    char *line = NULL;
    int n = 0;
    for (size_t room = 0; getline(&line, &room, f) > 0;) {
        line[strcspn(line, "\r\n")] = 0;
        if (!*line) continue;
        llm_options_set(&options, llm_options_find(&options, "api-key", 7), "--api-key-file", strdup(line), LLM_FROM_USER);
        n++;
    }
    free(line);
    fclose(f);
    if (!n) die(2, "--api-key-file: no key in it");
}

/* A key that is empty would let everybody in; one that no header can carry, nobody. An empty variable is none, as ever, but worth a remark. */
static void check_keys(const llm_option_list *keys) {
    static const char *const variables[] = {"LLM_API_KEY", "VLLM_API_KEY", "LLAMA_API_KEY"};
    for (int i = 0; i < 3 && !keys->n; i++)
        if (getenv(variables[i]) && !*getenv(variables[i]))
            fprintf(stderr, "llm_serve: note: %s is empty: no key is asked for\n", variables[i]);
    for (int i = 0; i < keys->n; i++) {
        const char *key = keys->items[i];
        const size_t n = strlen(key);
        int bad = !n || key[0] == ' ' || key[n - 1] == ' ';
        for (size_t k = 0; k < n; k++) bad |= (unsigned char)key[k] < 32 || key[k] == 127;
        if (!n) die(2, "--api-key: a key is empty and would let everybody in: give it a text, or leave the option out");
        if (bad) die(2, "--api-key: a key begins or ends in a space or has a control character, which no client can send");
    }
}

/* A sentence of the library, in the words of the command line. */
static void say_of_library(void) {
    SCOPED_TEXT t = {0};
    llm_options_sentence(&options, server.argc, server.argv, getenv, llm_last_error(), &t);
    fprintf(stderr, "llm_serve: error: %s\n", t.data ? t.data : "out of memory");
}

/* A wrong option ends the program here with 2, a model that is not there with 1. */
static void check_setup(llm_result r) {
    if (r) say_of_library(), exit(r == LLM_ERR_ARG ? 2 : 1);
}

/* vLLM's --allowed-origins is a JSON list in one word. */
static void read_origins(llm_option_list *list) {
    for (int i = 0; i < list->n; i++) {
        SCOPED_TEXT t = {0};
        llm_json *d = NULL;
        const int before = list->n;
        if (*list->items[i] != '[') continue;
        llm_text_format(&t, "{'cors-origins':%s}", list->items[i]);
        if (t.failed || llm_json_parse(t.data, t.len, NULL, &d))
            die(2, "--cors-origins: %.100s, origins or a JSON list of them were expected", list->items[i]);
        check_setup(llm_options_json(&options, d, 0, LLM_FROM_USER, NULL));
        llm_json_free(d);
        list->items[i--] = list->items[before];
        memmove(&list->items[before], &list->items[before + 1], (size_t)(--list->n - before) * sizeof *list->items);
    }
}

/* Everything that is known before a socket is opened: argv, environment, file, in falling strength; then what
 * contradicts itself. A mistake ends the program here, so that nothing has to be undone. */
static void read_options(int argc, char **argv) {
    llm_option_list words = {NULL, 0};
    configuration *c = &server.cfg;
    llm_engine_config *e = &c->setup.engine;
    /* Defaults of the flags; a zero in the engine's and the sampling's structs is a default already. */
    llm_setup_init(&c->setup);
    server.argc = argc;
    server.argv = argv;
    options.note = on_note;
    options.user = &options;
    c->setup.log_level = LLM_LOG_INFO;
    c->port = 8000;
    c->n_workers = 2;
    c->max_logprobs = 20;
    c->thinking_budget = -1;
    c->shutdown_timeout = 30;
    c->ping_interval = 15;
    c->max_contexts = 256;
    c->max_context_bytes = (int64_t)64 << 30;
    e->max_num_seqs = 64;
    c->launch.node_rank = -1;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) print_help(0);
        if (!strcmp(argv[i], "--help-all")) print_help(i + 1 < argc && !strcmp(argv[i + 1], "--json") ? 2 : 1);
        if (!strcmp(argv[i], "--version")) printf("llm_serve %s (isa: %s)\n", LLM_VERSION_STRING, llm_isa_list()), exit(0);
    }
    check_setup(llm_setup_read(&c->setup, &options, argc, argv, getenv, &words));
    if (c->setup.visible_devices) setenv("CUDA_VISIBLE_DEVICES", c->setup.visible_devices, 0);
    if (words.n && c->setup.models.n) die(2, "%s: a model is given by --model already", words.items[0]);
    for (int i = 0; i < words.n; i++)
        llm_options_set(&options, llm_options_find(&options, "model", 5), "--model", words.items[i], LLM_FROM_USER);
    if (c->setup.models.n) c->setup.model = c->setup.models.items[0];
    if (c->key_file) read_keys(c->key_file);
    check_keys(&c->keys);
    read_origins(&c->origins);
    if (c->template_kwargs && llm_openai_kwargs_check(c->template_kwargs)) die(2, "--default-chat-template-kwargs: %s", llm_last_error());
    llm_options_strangers(&options, (const char *const *)environ);
    const int32_t tensor = e->tensor_parallel_size, stages = e->pipeline_parallel_size;
    check_setup(llm_launch_read(&c->launch, (tensor ? tensor : 1) * (stages ? stages : 1), getenv, &server.address, &server.place));
    if (server.place.n && (c->models_dir || c->setup.models.n > 1))
        die(2, "several processes serve one model: --model is to be given once, --models-dir not");
    if (c->lora_dir && !llm_options_given(&options, "max-cpu-loras")) e->max_cpu_loras += 16; /* for those that come while it serves */
    if (c->lora_dir && !llm_options_given(&options, "max-loras")) e->max_loras = e->max_cpu_loras;
    free((void *)words.items);
}

/* ============================================================================
 * >>http   Reading requests: strict HTTP/1.1 (RFC 9112).
 * ============================================================================
 * A head is a request line and fields, ended by an empty line; a body follows by Content-Length or in chunks:
 *
 *     POST /v1/completions HTTP/1.1 CR LF          5 CR LF
 *     Host: localhost CR LF                        hello CR LF
 *     Transfer-Encoding: chunked CR LF CR LF       0 CR LF CR LF
 *
 * http_parse_head looks at a complete head and says either what was asked or which error to answer; it keeps no state and
 * allocates nothing, so that it can be fuzzed. What proxies and servers read differently (two lengths, bare line ends, folded lines,
 * spaces before a colon) is refused: request smuggling lives on such differences. After a refused head the connection is closed. */

enum {
    HTTP_MAX_LINE = 8 << 10,  /* request line */
    HTTP_MAX_HEAD = 32 << 10, /* request line and fields */
    HTTP_MAX_FIELDS = 100,
    HTTP_MAX_NAME = 256,
    HTTP_MAX_BODY = 32 << 20,
    HTTP_MAX_OVERHEAD = 4096,  /* chunk extensions and trailers of a body */
    HTTP_SMALL_BODY = 64 << 10 /* read and dropped where it is not wanted; larger ones take turns, see >>connections */
};
typedef struct slice {
    const char *p;
    size_t n;
} slice;

/* Equal to a literal, byte by byte. Methods and paths are case-sensitive. */
static int slice_is(slice a, const char *b) { return a.n == strlen(b) && !memcmp(a.p, b, a.n); }

/* Equal but for case: field names and tokens of HTTP. In the C locale, which nobody here changes, only ASCII has a case. */
static int slice_is_nocase(slice a, const char *b) { return a.n == strlen(b) && !strncasecmp(a.p, b, a.n); }

static slice slice_trim(slice a) { /* optional white space of a field value: space and tab */
    while (a.n && (*a.p == ' ' || *a.p == '\t')) a.p++, a.n--;
    while (a.n && (a.p[a.n - 1] == ' ' || a.p[a.n - 1] == '\t')) a.n--;
    return a;
}

/* A token of RFC 9110: what names of methods and fields are made of. */
static int http_token_char(int c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

typedef struct http_head {
    slice method, path; /* path is decoded, in path_text */
    char path_text[1024];
    int minor; /* HTTP/1.minor */
    slice host, origin, fetch_site, authorization, api_key, content_type, request_id, ask_headers;
    int64_t content_length; /* -1: none */
    int chunked, keep_alive, closes, expect_continue, n_authorization;
    int bad;             /* the status of the error that ends it, */
    const char *message; /* and its sentence */
} http_head;

/* Keeps the error and returns 0, so that a check that fails ends in one line. */
static int http_bad(http_head *h, int status, const char *message) {
    h->bad = status;
    h->message = message;
    return 0;
}

static int hex_digit(int c) { return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1; }

/* Percent-decodes the path once. Bad escapes, NUL and control characters are refused. */
static int http_decode_path(slice raw, http_head *h) {
    size_t n = 0;
    for (size_t i = 0; i < raw.n; i++) {
        int c = (unsigned char)raw.p[i];
        if (c == '%') {
            int high = i + 2 < raw.n ? hex_digit((unsigned char)raw.p[i + 1]) : -1,
                low = high >= 0 ? hex_digit((unsigned char)raw.p[i + 2]) : -1;
            if (low < 0) return http_bad(h, 400, "bad percent escape in the request target");
            c = high * 16 + low;
            i += 2;
        }
        if (c < 32 || c == 127) return http_bad(h, 400, "control character in the request target");
        if (n + 1 >= sizeof h->path_text) return http_bad(h, 414, "request target too long");
        h->path_text[n++] = (char)c;
    }
    h->path_text[n] = 0;
    h->path.p = h->path_text;
    h->path.n = n;
    return 1;
}

/* Only the origin form is served (and * for OPTIONS): a proxy's absolute form names a host twice, which is one too
 * many. What stands behind '?' nobody here asks for. */
static int http_parse_target(slice target, http_head *h) {
    if (slice_is(target, "*") && slice_is(h->method, "OPTIONS")) return h->path = target, 1;
    if (!target.n || target.p[0] != '/') return http_bad(h, 400, "the request target must start with '/'");
    for (size_t i = 0; i < target.n; i++)
        if ((unsigned char)target.p[i] <= 32 || (unsigned char)target.p[i] >= 127)
            return http_bad(h, 400, "bad byte in the request target");
    const char *question = (const char *)memchr(target.p, '?', target.n);
    if (question) target.n = (size_t)(question - target.p);
    return http_decode_path(target, h);
}

/* METHOD SP target SP HTTP/1.x. The target may hold no space, so the last space ends it. */
static int http_parse_request_line(slice line, http_head *h) {
    const char *space = (const char *)memchr(line.p, ' ', line.n);
    if (!space || space == line.p) return http_bad(h, 400, "bad request line");
    h->method.p = line.p;
    h->method.n = (size_t)(space - line.p);
    for (size_t i = 0; i < h->method.n; i++)
        if (!http_token_char((unsigned char)h->method.p[i])) return http_bad(h, 400, "bad method");
    if (h->method.n > 32) return http_bad(h, 501, "unknown method");
    slice rest = {space + 1, line.n - h->method.n - 1};
    const char *last = rest.n ? (const char *)memrchr(rest.p, ' ', rest.n) : NULL;
    slice version = {last ? last + 1 : line.p + line.n, last ? (size_t)(line.p + line.n - last - 1) : 0};
    if (version.n != 8 || memcmp(version.p, "HTTP/", 5) || version.p[6] != '.') return http_bad(h, 400, "bad request line");
    if (version.p[5] != '1' || (version.p[7] != '0' && version.p[7] != '1'))
        return http_bad(h, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    h->minor = version.p[7] - '0';
    h->keep_alive = h->minor == 1;
    rest.n = (size_t)(last - rest.p);
    return http_parse_target(rest, h);
}

/* Digits only: no sign, no blank, no 0x, no second one. Readings that differ between a proxy and us are how requests
 * are smuggled. */
static int http_parse_length(slice v, http_head *h) {
    if (h->content_length >= 0) return http_bad(h, 400, "more than one Content-Length");
    if (!v.n || strspn(v.p, "0123456789") < v.n) return http_bad(h, 400, "bad Content-Length");
    h->content_length = v.n > 18 ? INT64_MAX : strtoll(v.p, NULL, 10); /* a line end stands behind it */
    return 1;
}

/* Whether a comma list holds a word. */
static int http_list_has(slice list, const char *word) {
    for (size_t i = 0; i <= list.n;) {
        const char *comma = (const char *)memchr(list.p + i, ',', list.n - i);
        size_t end = comma ? (size_t)(comma - list.p) : list.n;
        slice item = {list.p + i, end - i};
        if (slice_is_nocase(slice_trim(item), word)) return 1;
        i = end + 1;
    }
    return 0;
}

/* One Host, without the characters that would let it pass for a URL with a user or a path. */
static int http_parse_host(slice v, http_head *h) {
    if (h->host.p) return http_bad(h, 400, "more than one Host");
    for (size_t i = 0; i < v.n; i++)
        if (!v.p[i] || strchr("/@?# \t,", v.p[i]) || (unsigned char)v.p[i] >= 127) return http_bad(h, 400, "bad Host");
    h->host = v;
    return 1;
}

/* Keeps what the server asks about and drops the rest. What would change the framing is checked here and refused when
 * unknown. */
static int http_parse_field(slice name, slice v, http_head *h) {
    if (slice_is_nocase(name, "content-length")) return http_parse_length(v, h);
    if (slice_is_nocase(name, "host")) return http_parse_host(v, h);
    if (slice_is_nocase(name, "connection")) { /* else the version's default stays; of several fields "close" wins */
        h->closes |= http_list_has(v, "close");
        h->keep_alive = !h->closes && (h->keep_alive || http_list_has(v, "keep-alive"));
    } else if (slice_is_nocase(name, "transfer-encoding")) {
        if (h->chunked) return http_bad(h, 400, "more than one Transfer-Encoding");
        if (!slice_is_nocase(v, "chunked"))
            return http_bad(h, http_list_has(v, "chunked") ? 400 : 501, "only the transfer coding chunked is known");
        h->chunked = 1;
    } else if (slice_is_nocase(name, "expect")) {
        if (!slice_is_nocase(v, "100-continue")) return http_bad(h, 417, "only Expect: 100-continue is known");
        h->expect_continue = 1;
    } else if (slice_is_nocase(name, "content-encoding")) {
        if (!slice_is_nocase(v, "identity")) return http_bad(h, 415, "bodies must not be compressed");
    } else if (slice_is_nocase(name, "authorization")) {
        h->authorization = v;
        h->n_authorization++;
    } else if (slice_is_nocase(name, "x-api-key")) h->api_key = v;
    else if (slice_is_nocase(name, "content-type")) h->content_type = v;
    else if (slice_is_nocase(name, "origin")) h->origin = v;
    else if (slice_is_nocase(name, "sec-fetch-site")) h->fetch_site = v;
    else if (slice_is_nocase(name, "x-request-id")) h->request_id = v;
    else if (slice_is_nocase(name, "access-control-request-headers")) h->ask_headers = v;
    return 1;
}

/* name ':' value, with blanks around the value only. */
static int http_parse_field_line(slice line, http_head *h) {
    size_t colon = 0;
    if (line.p[0] == ' ' || line.p[0] == '\t') return http_bad(h, 400, "folded header fields are refused");
    while (colon < line.n && http_token_char((unsigned char)line.p[colon])) colon++;
    if (!colon || colon == line.n || line.p[colon] != ':') return http_bad(h, 400, "bad header field");
    if (colon > HTTP_MAX_NAME) return http_bad(h, 431, "header field name too long");
    slice name = {line.p, colon}, v = {line.p + colon + 1, line.n - colon - 1};
    for (size_t i = 0; i < v.n; i++)
        if (((unsigned char)v.p[i] < 32 && v.p[i] != '\t') || v.p[i] == 127) return http_bad(h, 400, "control character in a header field");
    return http_parse_field(name, slice_trim(v), h);
}

/* The line that begins at p, of which n bytes are there, without its CR LF. 1: it is whole; 0: its end is still to come; -1: a CR or LF stands
 * alone in it. */
static int http_line(const char *p, size_t n, slice *line) {
    const char *cr = (const char *)memchr(p, '\r', n);
    line->p = p;
    line->n = cr ? (size_t)(cr - p) : n;
    if (memchr(p, '\n', line->n) || (cr && cr + 1 < p + n && cr[1] != '\n')) return -1;
    return cr && cr + 1 < p + n;
}

/* Reads a head of n bytes that ends in an empty line. 0: h->bad says what to answer. Slices point into `text`. */
static int http_parse_head(const char *text, size_t n, http_head *h) {
    slice line = {NULL, 1};
    memset(h, 0, sizeof *h);
    h->content_length = -1;
    for (size_t at = 0, lines = 0; line.n; lines++, at += line.n + 2) {
        if (http_line(text + at, n - at, &line) <= 0) return http_bad(h, 400, "lines must end in CR LF");
        if (!lines && line.n > HTTP_MAX_LINE) return http_bad(h, 414, "request line too long");
        if (lines > HTTP_MAX_FIELDS && line.n) return http_bad(h, 431, "too many header fields");
        if (!lines && !http_parse_request_line(line, h)) return 0;
        if (lines && line.n && !http_parse_field_line(line, h)) return 0;
    }
    if (h->minor == 1 && !h->host.p) return http_bad(h, 400, "Host is missing");
    if (h->chunked && (h->content_length >= 0 || h->minor == 0))
        return http_bad(h, 400, "Transfer-Encoding beside Content-Length, or in HTTP/1.0");
    if (h->content_length > HTTP_MAX_BODY) return http_bad(h, 413, "body larger than 32 MiB");
    if (h->n_authorization > 1) return http_bad(h, 400, "more than one Authorization");
    return 1;
}

/* ---- chunked bodies: lines, and data between them */

typedef enum chunk_state { CHUNK_SIZE = 0, CHUNK_DATA, CHUNK_END, CHUNK_TRAILER, CHUNK_DONE } chunk_state;

typedef struct http_chunks {
    chunk_state state; /* what comes next */
    size_t left;       /* of the data */
    size_t overhead;   /* bytes of extensions and trailers, which are read and dropped */
} http_chunks;

/* A line before, behind or after the data of a chunk. Sizes have at most 8 digits, so `left` cannot overflow. */
static int http_chunk_line(http_chunks *k, slice line, http_head *h) {
    size_t digits = 0;
    if (k->state == CHUNK_END) {
        k->state = CHUNK_SIZE;
        return !line.n || http_bad(h, 400, "chunk data must end in CR LF");
    }
    if (k->state == CHUNK_SIZE) {
        for (k->left = 0; digits < line.n && digits < 9 && hex_digit(line.p[digits]) >= 0; digits++)
            k->left = k->left * 16 + (size_t)hex_digit(line.p[digits]);
        if (!digits || digits > 8 || (digits < line.n && line.p[digits] != ';')) return http_bad(h, 400, "bad chunk size");
        k->state = k->left ? CHUNK_DATA : CHUNK_TRAILER;
    } else if (!line.n) {
        k->state = CHUNK_DONE;
    }
    k->overhead += line.n - digits;
    return k->overhead <= HTTP_MAX_OVERHEAD || http_bad(h, 400, "too many bytes of chunk extensions or trailers");
}

/* Takes bytes of a chunked body; data goes to `body`. Returns how many bytes were used, which leaves out a line whose end is still to come, or -1
 * with h->bad. Ends in CHUNK_DONE. */
static int64_t http_chunks_take(http_chunks *k, const char *p, size_t n, llm_text *body, http_head *h) {
    size_t i = 0;
    while (i < n && k->state != CHUNK_DONE) {
        if (k->state == CHUNK_DATA) {
            size_t m = k->left < n - i ? k->left : n - i;
            if (body->len + k->left > HTTP_MAX_BODY) return http_bad(h, 413, "body larger than 32 MiB"), -1;
            llm_text_add(body, p + i, m);
            i += m;
            k->left -= m;
            if (!k->left) k->state = CHUNK_END;
            continue;
        }
        slice line;
        int whole = http_line(p + i, n - i, &line);
        if (whole < 0 || line.n > HTTP_MAX_OVERHEAD + 8 || memchr(line.p, 0, line.n))
            return http_bad(h, 400, "bad line in a chunked body"), -1;
        if (!whole) break;
        if (!http_chunk_line(k, line, h)) return -1;
        i += line.n + 2;
    }
    return (int64_t)i;
}

/* "200 OK". */
static const char *http_status(int status) {
    /* clang-format off */
    static const char *const table[] = {
        "200 OK", "400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found", "405 Method Not Allowed", "408 Request Timeout",
        "413 Content Too Large", "414 URI Too Long", "415 Unsupported Media Type", "417 Expectation Failed", "429 Too Many Requests",
        "431 Request Header Fields Too Large", "499 Client Closed Request", "501 Not Implemented", "503 Service Unavailable",
        "505 HTTP Version Not Supported"};
    /* clang-format on */
    for (size_t i = 0; i < N_OF(table); i++)
        if (atoi(table[i]) == status) return table[i];
    return "500 Internal Server Error";
}

/* ============================================================================
 * >>connections   Sockets: one event thread, epoll, no blocking anywhere.
 * ============================================================================
 *
 *          first byte         empty line         body is whole          answer is written
 *   IDLE ------------> HEAD ------------> BODY ----------------> BUSY -------------------> IDLE, or LINGER
 *                       |
 *                       '--- answered from its head alone: a GET, a refusal ---> SKIP, while its body is dropped
 *
 *   IDLE    keep-alive: nothing is there, no memory is held           120 s; before the first request 10 s
 *   HEAD    the head arrives                                          10 s
 *   BODY    the body arrives                                          80 KiB in each 20 s, or its end
 *   SKIP    a small body that nobody wants is dropped                 10 s
 *   BUSY    a call works on the answer                                none: it ends with the call, or when the client goes
 *   LINGER  the answer is out and we said that we close: what is still sent to us is read and dropped, so that the kernel
 *           does not answer it with a reset that would destroy the answer on its way: 2 s of silence, 30 s in all
 *
 * conn_turn does all that can be done for a connection: bytes from the socket, a request from the bytes, an answer from the request's
 * call, output to the socket, round and round until nothing moves. Then conn_wait, and nothing else, says what it waits for, so that each
 * connection has a wake-up that is owed to it:
 *
 *   input      in all states but BUSY, where it stays with the system; and not while 1 MiB of output waits
 *   output     while some is left, or when the turn was cut short for others' sake
 *   its call   a worker brings it back, or the engine has news of it (>>calls)
 *   the clock  the deadlines above; output that waits must move by 30 KiB in each 30 s. conn_sweep looks four times a second
 *
 * What all connections hold together is bounded too. Heads: at 24 MiB the one that has been arriving for longest is refused. Bodies, small and
 * large ones apart, from their first byte to the end of their call: at 128 MiB the one that arrives slowest is refused, or the call whose body
 * took more when it was read. Output: a whole answer has 64 MiB at most; at 128 MiB of all nobody gets more than one piece ahead, whole answers
 * larger than that are refused, and slow readers are dropped sooner. Descriptors: the connection that has been at rest for longest makes room. */

enum {
    CONN_MAX = 12000, /* connections held at once, */
    CONN_FILES = 64,  /* and descriptors that are left to models, adapters and logs */
    CONN_HEAD_S = 10,
    CONN_IDLE_S = 120,
    CONN_BODY_S = 20,
    CONN_BODY_PACE = 80 << 10,
    CONN_OUT_S = 30,
    CONN_OUT_PACE = 30 << 10,
    CONN_CROWDED_S = 5, /* the same while all have more output than there should be */
    CONN_CROWDED_PACE = 320 << 10,
    CONN_SILENT_S = 2,
    CONN_LINGER_S = 30,
    CONN_MAX_OUT = 1 << 20,
    CONN_MAX_AHEAD = 64 << 10,
    CONN_PIECE = 4 << 10, /* read at a time where it is not known how much of it is wanted now: the rest stays with the system */
    CONN_ROUNDS = 8,      /* of a turn: 512 KiB in, or eight requests */
    NET_MAX_HEADS = 24 << 20,
    NET_MAX_BODIES = 128 << 20,
    NET_MAX_OUT = 128 << 20,
    NET_MAX_ANSWER = 64 << 20 /* one that is no stream */
};

typedef enum conn_state { CONN_IDLE = 0, CONN_HEAD, CONN_BODY, CONN_SKIP, CONN_BUSY, CONN_LINGER } conn_state;

typedef enum conn_list { LIST_NONE = 0, LIST_REST, LIST_HEADS, LIST_BODIES, N_LISTS } conn_list; /* see conn_place */

typedef enum stream_state { STREAM_NONE = 0, STREAM_LINES, STREAM_EVENTS } stream_state; /* of JSON, or server-sent */

/* Bytes that have to move, counted over spans of time. */
typedef struct pace {
    double since; /* 0: nothing has to */
    size_t bytes;
} pace;

typedef struct conn {
    int fd; /* -1: closed, and freed at the end of this round of events */
    conn_state state;
    uint32_t events;        /* what epoll watches */
    int readable, writable; /* as far as we know */
    llm_text in;            /* received, not yet used: from in_at on */
    size_t in_at, scanned;  /* scanned: bytes of whole lines of a head, none of them empty */
    llm_text body;
    size_t held; /* of it, in net.bodies */
    int large;   /* which of these */
    llm_text out;
    size_t out_at, counted; /* counted: of it, in net.unsent, */
    size_t counted_in;      /* and of `in` and head_text, in net.heads */
    http_head head;         /* its slices point into head_text */
    llm_text head_text;
    const struct route *route; /* that waits for the body */
    http_chunks chunks;
    int64_t body_left;           /* of a Content-Length body */
    double deadline, linger_end; /* 0: none */
    double progress;             /* when output last moved */
    pace in_pace, out_pace;
    int close_after, half_closed, leaving, probed, shut; /* leaving: the peer will send no more; half_closed: and all of it was read */
    int dead;                                            /* memory is out in the middle of an answer */
    stream_state streaming;                              /* the head of a streamed answer is out */
    int admin;                                           /* accepted on the metrics port */
    int status;                                          /* of the answer to `head`; 0: none yet */
    double arrived;                                      /* when the request began to come */
    double began;                                        /* when it was let in, and anew when it was whole; 0: none is being served */
    char client[INET6_ADDRSTRLEN + 20];                  /* its address; "unix" */
    struct call *call;                                   /* the request being answered */
    struct conn *prev, *next;                            /* all */
    conn_list on;                                        /* the list that it is on */
    struct conn *on_prev, *on_next;
} conn;

static struct {
    int epoll, wake, spare_fd; /* wake: an eventfd that other threads write */
    conn *list;                /* all; closed ones until net_bury */
    struct {
        conn *first, *last;
    } lists[N_LISTS];
    int n, n_most, n_closed, n_ended; /* connections; closed ones; how many, and calls, have ended since memory went back to the system */
    size_t heads, bodies[2], unsent;  /* bytes of heads, of bodies, small and large, and of output */
    double now;
    int leaving;  /* a signal came: /health says so, and --drain seconds later */
    int draining; /* nothing new is accepted */
} net = {.epoll = -1, .wake = -1, .spare_fd = -1, .n_most = CONN_MAX};

/* An eventfd is a counter: any number of wakes before the next look are one. */
static void wake_event_thread(void) {
    uint64_t one = 1;
    ssize_t n = write(net.wake, &one, sizeof one);
    (void)n;
}

static size_t conn_unsent(const conn *c) { return c->out.len - c->out_at; }
static size_t conn_ahead(const conn *c) { return c->in.len - c->in_at; }

/* Whether more may be put into the output. */
static int conn_has_room(const conn *c) { return conn_unsent(c) < (net.unsent < NET_MAX_OUT ? CONN_MAX_OUT : 1); }

/* Whether bytes are wanted from the socket. */
static int conn_takes_input(const conn *c) {
    if (c->half_closed) return 0;
    return c->state == CONN_LINGER || (c->state != CONN_BUSY && conn_has_room(c) && conn_ahead(c) < CONN_MAX_AHEAD);
}

/* Forgets the first *at bytes, which are used up, if they are all, or so many that moving the others costs less than what they cost. */
static void buffer_drop(llm_text *t, size_t *at) {
    size_t left = t->len - *at;
    if (left && (*at < 65536 || *at < left)) return;
    if (left) memmove(t->data, t->data + *at, left);
    t->len = left;
    *at = 0;
    if (!left) llm_text_free(t);
}

/* Whether fewer than so many bytes moved in a span of so many seconds that is over; then the next begins. */
static int pace_slow(pace *p, double seconds, size_t bytes) {
    if (p->since <= 0 || net.now - p->since < seconds) return 0;
    const int slow = p->bytes < bytes;
    p->since = net.now;
    p->bytes = 0;
    return slow;
}

/* ---- what all hold together */

static void conn_unlist(conn *c) {
    if (!c->on) return;
    *(c->on_prev ? &c->on_prev->on_next : &net.lists[c->on].first) = c->on_next;
    *(c->on_next ? &c->on_next->on_prev : &net.lists[c->on].last) = c->on_prev;
    c->on = LIST_NONE;
}

/* Puts the connection at the end of the list that it belongs to, unless it stands there already. Who may have to make room is found on these, the
 * longest first: at rest is who could be closed without a loss, since nothing is to be answered or sent; others send a head, or a body. */
static void conn_place(conn *c) {
    const int rests = !conn_unsent(c) && (c->state == CONN_IDLE || c->state == CONN_LINGER),
              sends_body = c->state == CONN_BODY || c->state == CONN_SKIP;
    const conn_list on = c->fd < 0               ? LIST_NONE
                         : rests                 ? LIST_REST
                         : c->state == CONN_HEAD ? LIST_HEADS
                         : sends_body            ? LIST_BODIES
                                                 : LIST_NONE;
    if (on == c->on) return;
    conn_unlist(c);
    if (!on) return;
    c->on = on;
    c->on_prev = net.lists[on].last;
    c->on_next = NULL;
    *(c->on_prev ? &c->on_prev->on_next : &net.lists[on].first) = c;
    net.lists[on].last = c;
}

/* Counts the body as it is now. */
static void conn_hold(conn *c) {
    net.bodies[c->large] += c->body.len - c->held;
    c->held = c->body.len;
}

/* Counts input and output as they are now. */
static void conn_count(conn *c) {
    const size_t unsent = conn_unsent(c), in = c->in.cap + c->head_text.cap;
    net.unsent += unsent - c->counted;
    c->counted = unsent;
    net.heads += in - c->counted_in;
    c->counted_in = in;
    if (!unsent) c->out_pace.since = 0;
    else if (c->out_pace.since <= 0) c->out_pace.since = net.now, c->out_pace.bytes = 0;
}

static void log_request(conn *c, int gone); /* the request is answered, or its client is gone */
static void call_leave(conn *c);            /* the connection has no call any more */

/* Closes. A request that was being answered is cancelled at once, also in the queue and in the middle of a prompt, streamed or not: nobody is
 * there to read. The struct stays until net_bury, since events of this round may name it. */
static void conn_close(conn *c) {
    if (c->fd < 0) return;
    log_request(c, 1);
    epoll_ctl(net.epoll, EPOLL_CTL_DEL, c->fd, NULL); /* close would not: a child that is being started has the socket until it execs */
    close(c->fd);
    c->fd = -1;
    net.n--;
    net.n_closed++;
    llm_text_free(&c->in);
    llm_text_free(&c->body);
    llm_text_free(&c->out);
    llm_text_free(&c->head_text);
    c->in_at = c->out_at = 0;
    conn_hold(c);
    conn_count(c);
    conn_place(c);
    call_leave(c);
}

/* Frees what was closed. */
static void net_bury(void) {
    for (conn *c = net.n_closed ? net.list : NULL, *next; c; c = next) {
        next = c->next;
        if (c->fd >= 0) continue;
        *(c->prev ? &c->prev->next : &net.list) = next;
        if (next) next->prev = c->prev;
        free(c);
    }
    net.n_ended += net.n_closed;
    net.n_closed = 0;
}

/* ---- answers */

static void common_headers(conn *c, llm_text *t);

/* The answer is complete in `out`: on to the next request, or to the end when all is sent. */
static void conn_answered(conn *c) {
    log_request(c, 0);
    call_leave(c);
    c->streaming = STREAM_NONE;
    llm_text_free(&c->body);
    llm_text_free(&c->head_text);
    conn_hold(c);
    c->in_pace.since = 0;
    c->state = c->close_after || net.draining ? CONN_LINGER : CONN_IDLE;
    c->deadline = c->state == CONN_LINGER ? 0 : net.now + CONN_IDLE_S;
}

/* What is said where memory is out: no byte of it has to be made. Without memory even for that the connection ends. */
static void http_answer_exhausted(conn *c) {
    static const char body[] = "{\"error\":{\"message\":\"out of memory\",\"type\":\"overloaded_error\",\"param\":null,\"code\":null}}";
    char head[200];
    const int n = snprintf(head, sizeof head,
                           "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nRetry-After: 1\r\n"
                           "Connection: close\r\n\r\n",
                           http_status(503), sizeof body - 1);
    c->status = 503;
    c->close_after = 1;
    llm_text_add(&c->out, head, (size_t)n);
    if (!slice_is(c->head.method, "HEAD")) llm_text_str(&c->out, body);
    c->dead |= c->out.failed;
    conn_answered(c);
}

/* Writes a head. length < 0: chunked. `extra` holds whole header lines or is NULL. */
static void http_head_out(conn *c, int status, const char *type, int64_t length, const char *extra) {
    llm_text *t = &c->out;
    c->status = status;
    llm_text_format(t, "HTTP/1.1 %s\r\nContent-Type: %s\r\n", http_status(status), type);
    if (length >= 0) llm_text_format(t, "Content-Length: %l\r\n", length);
    else if (c->head.minor == 1) llm_text_str(t, "Transfer-Encoding: chunked\r\n");
    common_headers(c, t);
    if (extra) llm_text_str(t, extra);
    if (status == 401) llm_text_str(t, "WWW-Authenticate: Bearer\r\n");
    if (status == 429 || status == 503) llm_text_str(t, "Retry-After: 1\r\n");
    if (!c->head.keep_alive || net.draining) c->close_after = 1;
    if (c->close_after) llm_text_str(t, "Connection: close\r\n");
    else if (c->head.minor == 0) llm_text_str(t, "Connection: keep-alive\r\n"); /* which HTTP/1.0 has to be told */
    llm_text_str(t, "\r\n");
}

/* A whole answer, after which the connection is free for its next request. HEAD gets the head of it. It is whole or it is not begun: where
 * memory ran out, in `body` or here, another answer takes its place. */
static void http_answer(conn *c, int status, const char *type, const llm_text *body, const char *extra) {
    const size_t before = c->out.len;
    http_head_out(c, status, type, (int64_t)body->len, extra);
    if (!slice_is(c->head.method, "HEAD")) llm_text_add(&c->out, body->data ? body->data : "", body->len);
    if (!body->failed && !c->out.failed) {
        conn_answered(c);
        return;
    }
    c->out.len = before;
    c->out.failed = 0;
    http_answer_exhausted(c);
}

/* Paths are served with and without /v1 and with a trailing slash. */
static slice plain_path(slice p) {
    if (p.n >= 3 && !memcmp(p.p, "/v1", 3) && (p.n == 3 || p.p[3] == '/')) p.p += 3, p.n -= 3;
    if (p.n > 1 && p.p[p.n - 1] == '/') p.n--;
    return p;
}

/* A path of Ollama's API. */
static int path_is_ollama(slice path) { return path.n > 5 && !memcmp(path.p, "/api/", 5); }

/* Of Anthropic's. */
static int path_is_anthropic(slice path) {
    static const char own[] = "/messages";
    const size_t n = sizeof own - 1;
    path = plain_path(path);
    return path.n >= n && !memcmp(path.p, own, n) && (path.n == n || path.p[n] == '/');
}

/* OpenAI's error object with its status; on Ollama's and Anthropic's paths theirs. extra: as in http_head_out. */
static void http_answer_error_with(conn *c, int status, const char *message, const char *param, const char *code, const char *extra) {
    SCOPED_TEXT t = {0};
    if (path_is_ollama(c->head.path)) llm_text_format(&t, "{'error':%q}", message);
    else if (path_is_anthropic(c->head.path)) llm_anthropic_error(&t, status, message);
    else llm_openai_error(&t, status, message, param, code);
    server_log(LLM_LOG_DEBUG, "%d: %s", status, message);
    http_answer(c, status, "application/json", &t, extra);
}

static void http_answer_error(conn *c, int status, const char *message, const char *param, const char *code) {
    http_answer_error_with(c, status, message, param, code, NULL);
}

/* Bytes of a stream: a chunk of HTTP/1.1, or just bytes up to the end of the connection. A stream with a hole in it must not go on. */
static void stream_bytes(conn *c, const char *p, size_t n) {
    char size[20];
    if (!n) return;
    if (c->head.minor == 1) llm_text_add(&c->out, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", n));
    llm_text_add(&c->out, p, n);
    if (c->head.minor == 1) llm_text_str(&c->out, "\r\n");
    c->dead |= c->out.failed;
}

/* An error before the request was whole, as the head says: answered once, then closed, and nothing behind it is read. */
static void conn_refuse(conn *c) {
    const http_head none = {.bad = c->head.bad, .message = c->head.message};
    if (c->state != CONN_BODY) c->head = none; /* nothing in it is to be relied on */
    c->close_after = 1;
    c->in_at = c->in.len;
    http_answer_error(c, c->head.bad, c->head.message, NULL, NULL);
}

/* ---- requests from bytes */

static const struct route *serve_head(conn *c); /* the route that waits for the body; NULL: the request is answered */
static void serve_body(conn *c);                /* the body is whole: a call begins */
static void conn_turn(conn *c);

/* The request is whole. From here until conn_answered it has no deadline of ours: its length is the model's. */
static void conn_body_done(conn *c) {
    c->state = CONN_BUSY;
    c->deadline = c->in_pace.since = 0;
    c->began = net.now;
    serve_body(c);
}

/* Who of those whose bodies arrive, small or large ones, has brought least in its time. */
static conn *conn_slowest(int large) {
    conn *found = NULL;
    double least = 0;
    for (conn *c = net.lists[LIST_BODIES].first; c; c = c->on_next) {
        if (c->state != CONN_BODY || c->large != large) continue;
        const double rate = (double)c->held / (net.now - c->arrived + 0.01);
        if (!found || rate < least) found = c, least = rate;
    }
    return found;
}

/* Room for what this request's head takes, also while its body arrives and its answer is made; who has been sending a head for longest makes it. 0:
 * that is this one itself, or there is no other. */
static int conn_head_room(conn *c) {
    conn_place(c);
    conn_count(c);
    while (net.heads > NET_MAX_HEADS) {
        conn *longest = net.lists[LIST_HEADS].first ? net.lists[LIST_HEADS].first : c;
        http_bad(&longest->head, 503, "the server holds as many requests as it may, and this one has been arriving for longest");
        conn_refuse(longest);
        if (longest == c) return 0;
        conn_turn(longest);
    }
    return 1;
}

/* Room for n more bytes of this body; the slowest of its kind makes it. 0: that is this one itself. */
static int conn_body_room(conn *c, size_t n) {
    while (net.bodies[c->large] + n > NET_MAX_BODIES) {
        conn *slowest = conn_slowest(c->large);
        http_bad(&slowest->head, 503, "the server holds as many request bodies as it may, and this one arrives slowest");
        conn_refuse(slowest);
        if (slowest == c) return 0;
        conn_turn(slowest);
    }
    return 1;
}

/* Takes body bytes from `in`. */
static void conn_take_body(conn *c) {
    size_t have = conn_ahead(c), used = have;
    if (!conn_body_room(c, have)) return;
    if (c->head.chunked) {
        const int64_t n = http_chunks_take(&c->chunks, c->in.data + c->in_at, have, &c->body, &c->head);
        if (n < 0) {
            conn_refuse(c);
            return;
        }
        used = (size_t)n;
    } else {
        if (c->body_left < (int64_t)have) used = (size_t)c->body_left;
        llm_text_add(&c->body, c->in.data + c->in_at, used);
        c->body_left -= (int64_t)used;
    }
    c->in_at += used;
    c->in_pace.bytes += used;
    conn_hold(c);
    if (c->body.failed) {
        http_bad(&c->head, 503, "out of memory");
        conn_refuse(c);
    } else if (c->head.chunked ? c->chunks.state == CHUNK_DONE : !c->body_left) conn_body_done(c);
}

/* A head of n bytes stands in `in`. Its slices live as long as head_text. Whether the request may come in is decided here, before anything
 * of its body is taken: host, route, method, key. Whoever is refused in the middle of sending much has to be told that we stop listening. */
static void conn_head_done(conn *c, size_t n) {
    llm_text_add(&c->head_text, c->in.data + c->in_at, n);
    c->in_at += n;
    c->scanned = 0;
    if (c->head_text.failed) {
        c->dead = 1; /* not even its method is known */
        return;
    }
    http_parse_head(c->head_text.data, c->head_text.len, &c->head);
    c->body_left = c->head.content_length > 0 ? c->head.content_length : 0;
    const int large = c->head.chunked || c->body_left > HTTP_SMALL_BODY;
    if (!c->head.bad && large && !slice_is(c->head.method, "POST")) http_bad(&c->head, 413, "this method takes no body");
    if (c->head.bad) {
        conn_refuse(c);
        return;
    }
    c->began = net.now;
    c->close_after = large || (c->body_left && c->head.expect_continue);
    c->route = serve_head(c);
    if (!c->route) {
        if (c->state != CONN_IDLE || !c->body_left) return;
        c->state = CONN_SKIP;
        c->deadline = net.now + CONN_HEAD_S;
        return;
    }
    memset(&c->chunks, 0, sizeof c->chunks);
    c->close_after = 0;
    c->state = CONN_BODY;
    c->large = large;
    c->deadline = 0;
    c->in_pace.since = net.now;
    c->in_pace.bytes = 0;
    if (!conn_head_room(c)) return;
    if (!c->head.chunked && !c->body_left) conn_body_done(c);
    else if (c->head.expect_continue && !conn_ahead(c)) llm_text_str(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
}

/* Looks for the end of a head in what has been received: an empty line. Whole lines are looked at once (`scanned`), so a head that drips in
 * costs no more. */
static void conn_take_head(conn *c) {
    char *p = c->in.data + c->in_at;
    size_t n = conn_ahead(c);
    slice line = {NULL, 1};
    int whole = 1;
    if (c->state == CONN_IDLE) {
        while (n >= 2 && p[0] == '\r' && p[1] == '\n')
            p += 2, n -= 2, c->in_at += 2; /* RFC 9112: empty lines before a request are skipped */
        if (!n || (n == 1 && *p == '\r')) return;
        c->state = CONN_HEAD;
        conn_unlist(c); /* one head after the other is not one that has been arriving for long */
        conn_place(c);
        c->arrived = net.now;
        c->deadline = net.now + CONN_HEAD_S;
    }
    while (line.n && (whole = http_line(p + c->scanned, n - c->scanned, &line)) > 0) c->scanned += line.n + 2;
    c->head.bad = 0;
    if (!http_token_char((unsigned char)p[0])) http_bad(&c->head, 400, "this is not HTTP");
    else if (whole < 0) http_bad(&c->head, 400, "lines must end in CR LF");
    else if (!c->scanned && line.n > HTTP_MAX_LINE) http_bad(&c->head, 414, "request line too long");
    else if ((whole ? c->scanned : n) > HTTP_MAX_HEAD) http_bad(&c->head, 431, "request head larger than 32 KiB");
    if (c->head.bad) conn_refuse(c);
    else if (whole) conn_head_done(c, c->scanned);
    else conn_head_room(c);
}

/* A small body behind a request that is answered already. */
static void conn_skip_body(conn *c) {
    const size_t have = conn_ahead(c), n = c->body_left < (int64_t)have ? (size_t)c->body_left : have;
    c->in_at += n;
    c->body_left -= (int64_t)n;
    if (c->body_left) return;
    c->state = CONN_IDLE;
    c->deadline = net.now + CONN_IDLE_S;
}

/* ---- the four steps of a turn. Each returns whether anything moved. */

/* A client that has closed its side may be there and read, or be gone. Which of the two shows when we send something: an interim response,
 * or a comment in a stream of events, brings a reset from a closed socket. Lines have no comments: the next one will show it. */
static void conn_probe(conn *c) {
    if (c->probed || c->state != CONN_BUSY || conn_unsent(c)) return;
    c->probed = 1;
    if (c->streaming == STREAM_EVENTS) stream_bytes(c, ":\n\n", 3);
    else if (!c->streaming && c->head.minor == 1) llm_text_str(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
}

/* Bytes from the socket. */
static int conn_receive(conn *c) {
    static char chunk[65536];
    const int counts = (c->state == CONN_BODY && !c->head.chunked) || c->state == CONN_SKIP;
    size_t most = counts || c->state == CONN_LINGER ? sizeof chunk : CONN_PIECE;
    if (!c->readable || !conn_takes_input(c)) return 0;
    if (counts && c->body_left > 0 && c->body_left < (int64_t)most) most = (size_t)c->body_left;
    const ssize_t n = recv(c->fd, chunk, most, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) return 1;
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) c->dead = 1;
    c->readable = n == (ssize_t)most; /* else epoll tells again */
    if (n == 0) c->half_closed = c->leaving = 1;
    if (n <= 0) return n == 0;
    if (c->state != CONN_LINGER) llm_text_add(&c->in, chunk, (size_t)n);
    else if (c->linger_end > 0) c->deadline = net.now + CONN_SILENT_S < c->linger_end ? net.now + CONN_SILENT_S : c->linger_end;
    c->dead |= c->in.failed;
    return 1;
}

/* A request from the bytes, if all that came before is answered. Whoever has sent his last and not all of a request gets no answer to it. */
static int conn_take(conn *c) {
    const size_t before = c->in_at;
    const conn_state was = c->state;
    if (was == CONN_BUSY || (was != CONN_LINGER && !conn_has_room(c))) return 0;
    if (was == CONN_LINGER) c->in_at = c->in.len;
    else if (conn_ahead(c) && was == CONN_BODY) conn_take_body(c);
    else if (conn_ahead(c) && was == CONN_SKIP) conn_skip_body(c);
    else if (conn_ahead(c)) conn_take_head(c);
    int moved = c->in_at != before || c->state != was;
    buffer_drop(&c->in, &c->in_at);
    if (moved || !c->half_closed || was == CONN_LINGER) return moved;
    c->state = CONN_LINGER;
    c->deadline = 0;
    return 1;
}

static int conn_answer(conn *c); /* an answer from the call */

/* Output to the socket. One call for all that is there: events of several tokens leave together when the reader is slower than the model. */
static int conn_send(conn *c) {
    if (!conn_unsent(c) || !c->writable || c->dead) return 0;
    const ssize_t n = send(c->fd, c->out.data + c->out_at, conn_unsent(c), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) return 1;
    c->writable = n == (ssize_t)conn_unsent(c);
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) c->dead = 1;
    if (n <= 0) return 0;
    c->out_at += (size_t)n;
    c->progress = net.now;
    c->out_pace.bytes += (size_t)n;
    buffer_drop(&c->out, &c->out_at);
    if (!conn_unsent(c) && c->state == CONN_IDLE) c->deadline = net.now + CONN_IDLE_S;
    return 1;
}

/* What the connection waits for: the one place that says it. more: the turn was cut short, and goes on as soon as the socket takes output,
 * which is at once unless it is full. */
static void conn_wait(conn *c, int more) {
    struct epoll_event ev;
    uint32_t want = 0;
    if (conn_takes_input(c)) want |= EPOLLIN;
    if (!c->leaving) want |= EPOLLRDHUP; /* tells at once that a client has gone, even while nothing is to be read */
    if (more || conn_unsent(c)) want |= EPOLLOUT;
    if (want == c->events) return;
    ev.events = c->events = want;
    ev.data.ptr = c;
    if (epoll_ctl(net.epoll, EPOLL_CTL_MOD, c->fd, &ev)) conn_close(c);
}

/* Does what can be done, a bounded part of it at a time. */
static void conn_turn(conn *c) {
    int moved = 1;
    if (c->fd < 0) return;
    for (int round = 0; round < CONN_ROUNDS && moved && !c->dead; round++) {
        moved = conn_receive(c);
        moved |= conn_take(c);
        moved |= conn_answer(c);
        if (c->leaving) conn_probe(c);
        moved |= conn_send(c);
        conn_count(c);
    }
    const int sent = c->state == CONN_LINGER && !conn_unsent(c);
    if (c->dead || (sent && c->half_closed)) {
        conn_close(c);
        return;
    }
    if (sent && !c->shut) {
        shutdown(c->fd, SHUT_WR);
        c->shut = 1;
        c->linger_end = net.now + CONN_LINGER_S;
        c->deadline = net.now + CONN_SILENT_S;
    }
    conn_place(c);
    conn_wait(c, moved);
}

/* ---- what epoll and the clock say */

static void conn_event(conn *c, uint32_t events) {
    if (c->fd < 0) return; /* closed earlier in this round */
    if (events & (EPOLLERR | EPOLLHUP)) {
        conn_close(c);
        return;
    }
    c->readable |= (events & (EPOLLIN | EPOLLRDHUP)) != 0;
    c->writable |= (events & EPOLLOUT) != 0;
    c->leaving |= (events & EPOLLRDHUP) != 0;
    conn_turn(c);
}

/* A stream of events that has been silent for long, because its prompt is long or the queue is, gets a comment: proxies and
 * clients close what says nothing. One that is read too slowly has something to send and needs none. */
static void conn_ping(conn *c) {
    if (c->streaming != STREAM_EVENTS || conn_unsent(c) || server.cfg.ping_interval <= 0 ||
        net.now - c->progress < (double)server.cfg.ping_interval)
        return;
    stream_bytes(c, ":\n\n", 3);
    c->progress = net.now;
    conn_turn(c);
}

/* The clock's part: readers that take nothing, requests that do not come, silence. */
static void conn_sweep(void) {
    const int crowded = net.unsent >= NET_MAX_OUT;
    if (net.spare_fd < 0) net.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (conn *c = net.list; c; c = c->next) {
        if (c->fd < 0) continue;
        const int over = c->deadline > 0 && net.now > c->deadline;
        const int late = c->state == CONN_HEAD ? over : c->state == CONN_BODY && pace_slow(&c->in_pace, CONN_BODY_S, CONN_BODY_PACE);
        const int stuck = pace_slow(&c->out_pace, crowded ? CONN_CROWDED_S : CONN_OUT_S, crowded ? CONN_CROWDED_PACE : CONN_OUT_PACE);
        if (stuck || (over && !late && !conn_unsent(c))) {
            conn_close(c);
        } else if (late) {
            http_bad(&c->head, 408, "the request did not arrive in time");
            conn_refuse(c);
            conn_turn(c);
        } else {
            conn_ping(c);
        }
    }
}

/* ---- new connections */

/* Closes the connection that has been at rest for longest; where none is, that whose request has been arriving for longest, and for more than
 * five seconds. 0: there is none. */
static int conn_make_room(void) {
    conn *found = net.lists[LIST_REST].first;
    double oldest = net.now - CONN_CROWDED_S;
    for (int i = LIST_HEADS; !found && i <= LIST_BODIES; i++) {
        conn *c = net.lists[i].first;
        if (c && c->arrived < oldest) found = c;
    }
    if (found) conn_close(found);
    return found != NULL;
}

static void conn_open(int fd, const struct sockaddr_storage *from, socklen_t len, int admin) {
    struct epoll_event ev;
    int one = 1;
    if (net.n >= net.n_most) conn_make_room();
    conn *c = net.n < net.n_most ? (conn *)calloc(1, sizeof *c) : NULL;
    ev.events = EPOLLIN | EPOLLRDHUP;
    ev.data.ptr = c;
    if (!c || epoll_ctl(net.epoll, EPOLL_CTL_ADD, fd, &ev)) {
        free(c);
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (from->ss_family == AF_UNIX || getnameinfo((const struct sockaddr *)from, len, c->client, sizeof c->client, NULL, 0, NI_NUMERICHOST))
        snprintf(c->client, sizeof c->client, "unix");
    c->fd = fd;
    c->admin = admin;
    c->events = ev.events;
    c->writable = 1;
    c->deadline = net.now + CONN_HEAD_S;
    c->progress = net.now;
    c->next = net.list;
    if (net.list) net.list->prev = c;
    net.list = c;
    net.n++;
    conn_place(c);
}

/* Accepts all that wait, bounded a turn so that open connections get theirs. Without descriptors somebody makes room; where nobody can, one
 * is kept in reserve to accept and close: else the listener would stay readable for ever. */
static void conn_accept(int listener, int admin) {
    for (int turn = 0; turn < 256; turn++) {
        struct sockaddr_storage from;
        socklen_t len = sizeof from;
        int fd = accept4(listener, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            conn_open(fd, &from, len, admin);
            continue;
        }
        if (errno == ECONNABORTED || errno == EINTR) continue;
        if (errno != EMFILE && errno != ENFILE) return;
        if (conn_make_room()) continue;
        if (net.spare_fd < 0) return;
        close(net.spare_fd);
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) close(fd);
        net.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
}

/* ============================================================================
 * >>models   What is served: models by their names, each with its engine and the thread that steps it.
 * ============================================================================
 * All that the options name stands in one table from the start; what is asked for is loaded, and the longest unused makes room:
 *
 *                .---------------- it has failed, and the next request tries again -----------------.
 *                v                                                                                  |
 *   UNLOADED --------> LOADING -------> LOADED -------> LEAVING --------> UNLOADING --> UNLOADED   FAILED
 *      a request asks           <--'      |    another needs its room, and   no call
 *      for it                 no room:    |    it has calls: new ones wait   has it
 *                             another     '---- the same, and it has no calls ----^
 *                             goes first
 *
 * One thread, the loader, opens and closes models, one at a time, so that neither the event thread nor a worker ever waits for a file. What
 * it does is decided by the event thread (models_turn), and by nobody else: a model's state changes there alone. A call holds its model from
 * the moment it may use it until it is freed, and a model with calls is not unloaded. A call whose model is not loaded waits for it in the
 * event thread (call_wait), and wants nothing but to be looked at when a load has ended.
 *
 *   names, setup           main, before the threads start
 *   state, waiting         the event thread changes them under models.mutex; others read them under it
 *   calls, last_use, kept  whoever has models.mutex
 *   model, engine, service and facts, the loader while it is LOADING or UNLOADING; whoever holds the model, and the event thread, may read
 *   error                  them in the other states
 *
 * Each engine computes with --threads threads of its own. Those of an idle model sleep; two that are busy share the cores as the system
 * lets them. */

/* What is counted of a model's requests, see >>metrics. */
/* clang-format off */
enum {
    H_TTFT, H_TPOT, H_ITL, H_E2E, H_QUEUE, H_INFERENCE, H_PREFILL, H_DECODE, H_PROMPT, H_GENERATION, H_MAX_TOKENS, H_N, H_BEST_OF, H_COUNT
};
/* clang-format on */

typedef struct tally {
    int64_t count[24]; /* of each bucket by itself */
    double sum;
} tally;

typedef struct counters {
    tally histograms[H_COUNT];
    uint64_t finished[LLM_FINISH_REPETITION + 1]; /* by llm_finish */
    uint64_t refused, prompt_tokens, generation_tokens, cached_tokens;
} counters;

typedef enum model_state { MODEL_UNLOADED = 0, MODEL_LOADING, MODEL_LOADED, MODEL_LEAVING, MODEL_UNLOADING, MODEL_FAILED } model_state;

/* What the loader's latest work on a model has come to. */
typedef enum model_outcome { MODEL_DONE = 0, MODEL_NO_ROOM, MODEL_NO } model_outcome;

/* What is told of a model, also when it is not loaded any more. */
typedef struct model_facts {
    int known; /* it was loaded once */
    int32_t max_model_len, trained_len, vocab_size, hidden_size, vision;
    int64_t n_params, weight_bytes, kv_bytes; /* kv_bytes: that it may take, page by page as they are used */
    llm_sampling chat;                        /* see add_chat_sampling */
} model_facts;

typedef struct served_model {
    llm_setup setup;       /* the configuration's, with this model's path */
    llm_option_list names; /* that requests may use; */
    int n_listed;          /* the first of them stand in /v1/models, the very first in answers */
    model_state state;
    int calls, waiting;      /* that hold it; that wait for it */
    int asked;               /* to be loaded although nobody waits */
    int alone, crowded;      /* while it is LOADING: no other is loaded; as many as there may be are */
    int no_room;             /* its load found no room */
    int n_failed;            /* loads */
    double last_use, wanted; /* wanted: since when one waits */
    llm_model *model;
    llm_engine *engine;
    llm_openai_service service; /* how requests are read and answers written */
    model_facts facts;
    pthread_t stepper;
    int stop;           /* atomic: the engine is stepped no more */
    int64_t step_began; /* atomic: milliseconds of net.now's clock; 0: no step runs */
    model_outcome outcome;
    llm_result why;              /* it failed, */
    llm_text error;              /* and the sentence */
    llm_option_list kept;        /* of one that is not loaded: its adapters, name and path in turn */
    counters counted;            /* guarded by metrics_mutex; */
    uint64_t n_loads, n_unloads; /* these two are the event thread's */
} served_model;

static struct {
    served_model *list; /* (n), the default one first */
    int n;
    pthread_mutex_t mutex;
    pthread_cond_t job_ready;
    served_model *job, *done; /* for the loader; by the loader, for the event thread */
    int stop;                 /* the loader ends */
} models = {.mutex = PTHREAD_MUTEX_INITIALIZER, .job_ready = PTHREAD_COND_INITIALIZER};

/* The one that is meant where a request names none. */
static served_model *default_model(void) { return &models.list[0]; }

/* Whether the event thread, or who has the mutex, may look into its engine. */
static int is_loaded(const served_model *m) { return m->state == MODEL_LOADED || m->state == MODEL_LEAVING; }

/* A line while loading, on a terminal. A signal cancels the load that the start waits for, a second one any. */
static int on_progress(UNUSED void *user, const char *what, double done) {
    if (isatty(2)) fprintf(stderr, "\r%s %3.0f %%%s", what, done * 100, done >= 1 ? "\r\033[K" : "");
    const int signals = __atomic_load_n(&server.signals, __ATOMIC_RELAXED), ready = __atomic_load_n(&server.ready, __ATOMIC_ACQUIRE) != 0;
    return signals > ready;
}

/* ---- the table, made at the start */

/* Appends a copy. 0: no memory. */
static int list_add(llm_option_list *list, const char *text, size_t n) {
    const char **items = (const char **)realloc((void *)list->items, (size_t)(list->n + 1) * sizeof *items);
    if (!items) return 0;
    list->items = items;
    items[list->n] = strndup(text, n);
    return items[list->n] && ++list->n;
}

static void list_free(llm_option_list *list) {
    for (int i = 0; i < list->n; i++) free((void *)(uintptr_t)list->items[i]);
    free((void *)list->items);
    list->items = NULL;
    list->n = 0;
}

static int list_has(const llm_option_list *list, int n, const char *text, size_t len) {
    for (int i = 0; i < n && i < list->n; i++)
        if (strlen(list->items[i]) == len && !memcmp(list->items[i], text, len)) return 1;
    return 0;
}

/* The file or folder of a path. */
static const char *path_last(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* Bytes of such a name without what says that it is a GGUF file, or the first of several. */
static size_t name_stem(const char *name) {
    static const char first[] = "-00001-of-00000";
    size_t n = strlen(name);
    if (n <= 5 || strcasecmp(name + n - 5, ".gguf")) return n;
    n -= 5;
    if (n > sizeof first - 1 && !memcmp(name + n - (sizeof first - 1), first, 10) && strspn(name + n - 5, "0123456789") >= 5)
        n -= sizeof first - 1;
    return n;
}

/* Defaults that depend on where a model computes. */
static void set_defaults(llm_engine_config *e) {
    const int cpu = !e->cuda_library && !(e->device && !strcmp(e->device, "cuda"));
    if (!cpu && !llm_options_given(&options, "max-num-seqs")) e->max_num_seqs = 256;
    if (e->max_num_batched_tokens && e->max_num_batched_tokens < e->max_num_seqs)
        die(2, "--max-num-batched-tokens (%d) must be greater than or equal to --max-num-seqs (%d).", e->max_num_batched_tokens,
            e->max_num_seqs);
    if (cpu && !e->kv_cache_memory_bytes && !e->num_gpu_blocks && e->cache_max_entry_count <= 0)
        e->kv_cache_memory_bytes = (int64_t)4 << 30;
}

/* One more model, found on the disk: as the user said it. */
static served_model *add_model(const char *said) {
    served_model *list = (served_model *)realloc(models.list, (size_t)(models.n + 1) * sizeof *list);
    if (!list) die(1, "out of memory");
    models.list = list;
    served_model *m = &list[models.n];
    memset(m, 0, sizeof *m);
    m->setup = server.cfg.setup;
    m->setup.model = said;
    memset(&m->setup.path, 0, sizeof m->setup.path);
    memset(&m->setup.library, 0, sizeof m->setup.library);
    memset(&m->setup.mmproj, 0, sizeof m->setup.mmproj);
    llm_engine_config *e = &m->setup.engine;
    if (models.n) {
        m->setup.hf_repo = NULL;
        e->lora = NULL; /* an adapter, a draft model and what a GGUF file sees with fit one model, the first */
        m->setup.files.mmproj = NULL;
        if (e->speculative_model && strcmp(e->speculative_model, "[ngram]")) e->speculative_model = NULL;
        memset(&m->setup.lora_modules, 0, sizeof m->setup.lora_modules);
    }
    check_setup(llm_setup_find(&m->setup, getenv));
    set_defaults(e);
    models.n++;
    return m;
}

/* Its names: first those that are shown, then others by which it is known: what the user said, and the last component of that. */
static void name_model(served_model *m, const llm_option_list *shown, const char *id, size_t len) {
    const char *said = m->setup.model, *last = path_last(said);
    int all = 1;
    for (int i = 0; shown && i < shown->n; i++) all &= list_add(&m->names, shown->items[i], strlen(shown->items[i]));
    if (!m->names.n) all &= list_add(&m->names, id, len);
    m->n_listed = m->names.n;
    all &= list_add(&m->names, said, strlen(said));
    all &= list_add(&m->names, last, strlen(last));
    all &= list_add(&m->names, last, name_stem(last));
    if (!all) die(1, "out of memory");
}

/* Whether a file's name is that of a model: not of a part of one, and not of a tower that goes with one. */
static int is_model_file(const char *name) {
    const size_t n = strlen(name);
    const char *part = n > 20 ? name + n - 20 : ""; /* -00002-of-00003.gguf */
    if (n <= 5 || strcasecmp(name + n - 5, ".gguf") || strstr(name, "mmproj")) return 0;
    return !(*part == '-' && strspn(part + 1, "0123456789") == 5 && !strncmp(part + 6, "-of-", 4)) || !strncmp(part, "-00001", 6);
}

static int is_model_entry(const struct dirent *e) { return *e->d_name != '.'; }
static int is_gguf_entry(const struct dirent *e) { return *e->d_name != '.' && is_model_file(e->d_name); }

/* Whether a folder is a model: of a Hugging Face folder's files, or of GGUF files. */
static int is_model_folder(const char *path) {
    SCOPED_TEXT config = {0};
    struct dirent **entries = NULL;
    llm_text_format(&config, "%s/config.json", path);
    if (config.failed) die(1, "out of memory");
    const int n = access(config.data, R_OK) ? scandir(path, &entries, is_gguf_entry, NULL) : 1;
    for (int i = 0; entries && i < n; i++) free(entries[i]);
    free((void *)entries);
    return n > 0;
}

/* A model out of a folder of them, unless it is one of the first n, which were named. */
static void add_found(const char *path, const char *name, int n) {
    struct stat here, other;
    served_model *m = add_model(path);
    int known = stat(m->setup.path.data, &here);
    for (int k = 0; k < n && !known; k++)
        known = !stat(models.list[k].setup.path.data, &other) && other.st_ino == here.st_ino && other.st_dev == here.st_dev;
    if (known) {
        llm_setup_free(&m->setup);
        models.n--;
        return;
    }
    m->setup.model = m->setup.path.data;
    name_model(m, NULL, name, name_stem(name));
}

/* --models-dir: each GGUF file, each folder of a model. One that was named already is not served twice. */
static void add_folder(const char *folder) {
    struct dirent **entries = NULL;
    const int n = scandir(folder, &entries, is_model_entry, alphasort), before = models.n;
    if (n < 0) die(2, "--models-dir: %.300s: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        SCOPED_TEXT path = {0};
        const char *name = entries[i]->d_name;
        struct stat here;
        llm_text_format(&path, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", name);
        if (path.failed) die(1, "out of memory");
        if (!stat(path.data, &here) && (S_ISDIR(here.st_mode) ? is_model_folder(path.data) : is_model_file(name)))
            add_found(path.data, name, before);
        free(entries[i]);
    }
    free((void *)entries);
    if (!models.n)
        die(2, "--models-dir: %.300s: a folder with GGUF files, or folders that have some or a config.json, was expected", folder);
}

/* No name is shown for two. */
static void check_names(int i) {
    const served_model *m = &models.list[i];
    for (int k = 0; k < m->n_listed; k++)
        for (const served_model *other = models.list; other < m; other++)
            if (list_has(&other->names, other->n_listed, m->names.items[k], strlen(m->names.items[k])))
                die(2, "two models would be called %.200s: %.300s and %.300s", m->names.items[k], other->setup.model, m->setup.model);
}

/* What add_model() leaves to the first model is said. */
static void note_first_only(void) {
    const llm_engine_config *e = &server.cfg.setup.engine;
    const char *draft = e->speculative_model;
    const struct {
        int given;
        const char *option;
    } rows[] = {{e->lora || server.cfg.setup.lora_modules.n, "--lora-modules"},
                {draft && strcmp(draft, "[ngram]"), "--speculative-model"},
                {server.cfg.setup.files.mmproj != NULL, "--mmproj"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given)
            fprintf(stderr, "llm_serve: note: %s fits one model: it holds for %s, the first\n", rows[i].option,
                    models.list[0].names.items[0]);
}

/* What the options name. */
static void add_models(void) {
    configuration *c = &server.cfg;
    const int n = c->setup.models.n;
    const int chosen = c->setup.model || c->setup.hf_repo;
    c->setup.files.log = c->setup.engine.log = on_library_log;
#ifndef LLM_NO_VISION
    c->setup.files.picture_reader = llm_picture_reader_stb();
#endif
    c->setup.engine.progress = on_progress;
    if (c->models_dir && !chosen && c->names.n) die(2, "--served-model-name: it names the model of --model, and there is none");
    for (int i = 0; i < n || (!i && (!c->models_dir || chosen)); i++) {
        served_model *m = add_model(i ? c->setup.models.items[i] : c->setup.model);
        const char *said = m->setup.model, *shown = c->setup.model_name && !i ? c->setup.model_name : chosen ? said : path_last(said);
        name_model(m, i ? NULL : &c->names, shown, chosen ? strlen(shown) : name_stem(shown));
    }
    if (c->models_dir) add_folder(c->models_dir);
    for (int i = 0; i < models.n; i++) check_names(i);
    if (models.n > 1) note_first_only();
    if (c->max_loaded && models.n == 1) fprintf(stderr, "llm_serve: note: --max-loaded-models has no effect: one model is served\n");
}

/* ---- by name */

/* The i-th adapter of a model, also of one that is not loaded. With models.mutex held, or in the event thread. */
static int adapter_get(const served_model *m, int i, llm_text *name, llm_text *path) {
    if (is_loaded(m)) return llm_lora_get(m->engine, i, name, path, NULL);
    if (2 * i >= m->kept.n) return 0;
    if (name) llm_text_str(name, m->kept.items[2 * i]);
    if (path) llm_text_str(path, m->kept.items[2 * i + 1]);
    return 1;
}

static int has_adapter(const served_model *m, const char *name, size_t len) {
    SCOPED_TEXT own = {0};
    for (int i = 0; adapter_get(m, i, &own, NULL); i++, own.len = 0)
        if (own.len == len && !memcmp(own.data, name, len)) return 1;
    return 0;
}

/* The model that a name means, or whose adapter it is; NULL: nobody has it. Shown names before others. With models.mutex held. */
static served_model *model_named(const char *name, size_t len) {
    if (!len || (len == 7 && !memcmp(name, "default", 7)) || (len == 4 && !memcmp(name, "null", 4))) return default_model();
    for (int shown = 1; shown >= 0; shown--)
        for (int i = 0; i < models.n; i++)
            if (list_has(&models.list[i].names, shown ? models.list[i].n_listed : models.list[i].names.n, name, len))
                return &models.list[i];
    for (int i = 0; i < models.n; i++)
        if (has_adapter(&models.list[i], name, len)) return &models.list[i];
    return NULL;
}

/* ---- the loader */

/* ---- several processes: ranks of one model (>>api-nodes of llm.h). The first serves, the others follow it */

enum { NODES_GRACE = 8 }; /* seconds that a process has to end when another one has gone, whatever it is waiting for */

/* A device may wait for ever for one of a process that is gone, and a driver may not let it be asked. So the end has a limit. */
static void *watch_nodes(UNUSED void *unused) {
    double lost = 0;
    while (!__atomic_load_n(&server.leaving, __ATOMIC_ACQUIRE) || lost > 0) {
        usleep(100000);
        if (__atomic_load_n(&server.leaving, __ATOMIC_ACQUIRE) == 2) break;
        if (!(lost > 0) && llm_nodes_lost(server.nodes)) lost = llm_now();
        if (lost > 0 && llm_now() - lost > NODES_GRACE) {
            fputs("llm_serve: error: a process of the model has gone, and a device does not come back\n", stderr);
            _exit(1);
        }
    }
    return NULL;
}

/* 1: another process has gone: this one ends as after SIGTERM, but with 1. */
static int nodes_lost(void) {
    if (!server.nodes || __atomic_load_n(&server.leaving, __ATOMIC_ACQUIRE) || !llm_nodes_lost(server.nodes)) return 0;
    if (!__atomic_exchange_n(&server.lost, 1, __ATOMIC_ACQ_REL)) {
        server_log(LLM_LOG_ERROR, "a process of the model has gone: this one ends, too");
        kill(getpid(), SIGTERM);
    }
    return 1;
}

/* Waits for the other processes, before anything is loaded. */
static llm_result nodes_join(llm_engine_config *e) {
    const llm_nodes_config *c = &server.place;
    if (!c->n || server.nodes) return LLM_OK;
    const llm_result r = llm_nodes_open(c, &server.nodes);
    if (r) return r;
    e->nodes = server.nodes;
    server_log(LLM_LOG_INFO, "process %d of %d, process 0 at %s:%d", c->rank, c->n, c->address, c->port);
    return pthread_create(&server.watcher, NULL, watch_nodes, NULL) ? LLM_ERR_NOMEM : LLM_OK;
}

/* Behind the engine. leaving 2: the watcher ends, too. */
static void nodes_part(void) {
    if (!server.nodes) return;
    __atomic_store_n(&server.leaving, 2, __ATOMIC_RELEASE);
    pthread_join(server.watcher, NULL);
    llm_nodes_close(server.nodes);
    server.nodes = NULL;
}

/* All that a process behind the first one does. */
static int follow(served_model *m) {
    llm_result r = nodes_join(&m->setup.engine);
    if (!r) r = llm_model_open(m->setup.path.data, &m->setup.files, &m->model);
    if (!r) r = llm_engine_open(m->model, &m->setup.engine, &m->engine);
    if (!r) r = llm_engine_follow(m->engine);
    if (r) say_of_library();
    if (!r) __atomic_store_n(&server.leaving, 1, __ATOMIC_RELEASE);
    llm_engine_close(m->engine);
    llm_model_close(m->model);
    nodes_part();
    return !r ? 0 : r == LLM_ERR_ARG ? 2 : 1;
}

/* The thread that steps a model's engine. Submitting wakes it. */
static void *engine_main(void *user) {
    served_model *m = (served_model *)user;
    while (!__atomic_load_n(&m->stop, __ATOMIC_ACQUIRE)) {
        int busy = 0;
        __atomic_store_n(&m->step_began, (int64_t)(llm_now() * 1e3), __ATOMIC_RELEASE);
        if (llm_engine_step(m->engine, &busy)) server_log(LLM_LOG_ERROR, "%s", llm_last_error());
        __atomic_store_n(&m->step_began, 0, __ATOMIC_RELEASE);
        if (!busy && nodes_lost()) break;
        if (!busy) llm_engine_wait(m->engine, 0.2);
    }
    return NULL;
}

/* What the flags, the model and the memory have come to. */
static void say_model(const served_model *m) {
    const llm_model_info *info = llm_model_get_info(m->model);
    const llm_engine_config *e = &m->setup.engine;
    const llm_sampling *d = &m->service.defaults;
    llm_engine_stats s;
    llm_engine_get_stats(m->engine, &s);
    server_log(LLM_LOG_INFO, "%s: %s %s, %.0f M parameters, %.0f MiB; %s", m->setup.model, info->family, info->file_type,
               (double)info->n_params / 1e6, (double)info->weight_bytes / 1048576, s.backend);
    server_log(LLM_LOG_INFO,
               "max_model_len %d, max_num_seqs %d, max_num_batched_tokens %d, block_size %d, total_block_num:%lld (%lld tokens of KV), "
               "memory %.0f MiB, prefix caching %s",
               s.max_model_len, s.max_num_seqs, e->max_num_batched_tokens ? e->max_num_batched_tokens : 512, s.block_size,
               (long long)s.total_blocks, (long long)s.total_blocks * s.block_size, (double)s.memory_bytes / 1048576,
               e->disable_prefix_caching ? "off" : "on");
    server_log(LLM_LOG_INFO, "sampling defaults: temperature %g, top_p %g, top_k %d, min_p %g, repetition_penalty %g; early stop %s",
               (double)d->temperature, d->top_p > 0 ? (double)d->top_p : 1.0, d->top_k, (double)d->min_p,
               d->repetition_penalty > 0 ? (double)d->repetition_penalty : 1.0, server.cfg.setup.early_stop.enable ? "on" : "off");
}

static void on_call_news(void *user, llm_openai_call *api);
static void count_event(void *user, llm_openai_call *api, llm_request *request, const llm_event *e, double gap);

/* The adapters that the options name; of a model that was loaded before, those that it had then. */
static llm_result load_adapters(served_model *m) {
    if (!m->facts.known) return llm_setup_adapters(&m->setup, m->engine, &m->service);
    for (int i = 0; i < m->kept.n; i += 2)
        if (llm_lora_load(m->engine, m->kept.items[i], m->kept.items[i + 1]))
            server_log(LLM_LOG_WARN, "%s: the adapter %s is not loaded again: %s", m->names.items[0], m->kept.items[i], llm_last_error());
    return LLM_OK;
}

/* What the flags say about requests, laid over what the model says. */
static llm_result set_service(served_model *m) {
    llm_openai_service *s = &m->service;
    const configuration *c = &server.cfg;
    llm_setup_service(&c->setup, &options, m->model, m->engine, s);
    s->max_logprobs = c->max_logprobs;
    s->deadline_s = (double)c->request_timeout;
    s->max_answer_bytes = NET_MAX_ANSWER;
    s->names = m->names.items;
    s->n_names = m->names.n;
    s->strict_names = c->strict_model_name;
    s->template_kwargs = c->template_kwargs;
    s->reasoning_effort = c->reasoning_effort;
    s->thinking = c->thinking;
    s->thinking_tokens = c->thinking_budget + 1;
    s->force_usage = c->force_usage;
    s->tokens_as_ids = c->tokens_as_ids;
    s->metrics = c->request_metrics;
    s->lora_dir = c->lora_dir;
    s->context_dir = c->context_dir;
    s->max_contexts = c->max_contexts;
    s->max_context_bytes = c->max_context_bytes;
    s->on_news = on_call_news;
    s->on_event = count_event;
    return load_adapters(m);
}

static void set_facts(served_model *m) {
    const llm_model_info *info = llm_model_get_info(m->model);
    llm_engine_stats s;
    llm_engine_get_stats(m->engine, &s);
    m->facts.known = 1;
    m->facts.max_model_len = s.max_model_len;
    m->facts.trained_len = info->max_position_embeddings;
    m->facts.vocab_size = info->vocab_size;
    m->facts.hidden_size = info->hidden_size;
    m->facts.vision = info->vision;
    m->facts.n_params = info->n_params;
    m->facts.weight_bytes = info->weight_bytes;
    llm_sampling_chat(m->model, &m->facts.chat);
}

/* Bytes that the models which are loaded may take yet: KV pages that nobody has used. */
static int64_t memory_promised(void) {
    int64_t sum = 0;
    for (int i = 0; i < models.n; i++) {
        const served_model *m = &models.list[i];
        llm_engine_stats s;
        if (!is_loaded(m) || m->setup.engine.kv_cache_prealloc) continue; /* no other state changes while the loader works */
        llm_engine_get_stats(m->engine, &s);
        if (s.total_blocks) sum += (int64_t)((double)m->facts.kv_bytes * (double)s.free_blocks / (double)s.total_blocks);
    }
    return sum;
}

/* Whether an opened model has room beside those that are loaded. Where nothing can be told, opening its engine will show it. */
static int has_room(served_model *m) {
    llm_estimate e;
    if (llm_model_estimate(m->model, &m->setup.engine, &e)) return 1;
    m->facts.kv_bytes = e.kv_bytes;
    return e.fits && (e.available_bytes < 0 || e.peak_bytes <= e.available_bytes - memory_promised());
}

static void close_model(served_model *m) {
    llm_engine_close(m->engine);
    llm_model_close(m->model);
    m->engine = NULL;
    m->model = NULL;
#ifdef M_TRIM_THRESHOLD
    malloc_trim(0);
#endif
}

static model_outcome load_model(served_model *m) {
    const char *none = "no thread could be started";
    m->stop = 0;
    m->error.len = 0;
    m->why = nodes_join(&m->setup.engine);
    if (!m->why) m->why = llm_model_open(m->setup.path.data, &m->setup.files, &m->model);
    const int fits = !m->why && has_room(m);
    int room = m->why || m->alone || (!m->crowded && fits); /* what cannot be read takes nobody's room */
    if (room && !m->why) m->why = llm_engine_open(m->model, &m->setup.engine, &m->engine);
    if (m->why == LLM_ERR_NOMEM && !m->alone) room = 0;
    if (room && !m->why) m->why = set_service(m);
    if (room && m->why) llm_options_sentence(&options, server.argc, server.argv, getenv, llm_last_error(), &m->error);
    if (room && !m->why && pthread_create(&m->stepper, NULL, engine_main, m)) m->why = LLM_ERR_NOMEM, llm_text_str(&m->error, none);
    if (room && !m->why) {
        if (!m->facts.known) llm_options_report(&options, m->engine);
        set_facts(m);
        say_model(m);
        return MODEL_DONE;
    }
    close_model(m);
    return room ? MODEL_NO : MODEL_NO_ROOM;
}

static void unload_model(served_model *m) {
    SCOPED_TEXT name = {0}, path = {0};
    int all = 1;
    pthread_mutex_lock(&models.mutex);
    list_free(&m->kept);
    for (int i = 0; all && llm_lora_get(m->engine, i, &name, &path, NULL); i++, name.len = path.len = 0)
        all = !name.failed && !path.failed && list_add(&m->kept, name.data, name.len) && list_add(&m->kept, path.data, path.len);
    if (!all) server_log(LLM_LOG_WARN, "%s: out of memory: some of its adapters are not loaded again", m->names.items[0]);
    m->kept.n &= ~1; /* a name without its path */
    pthread_mutex_unlock(&models.mutex);
    __atomic_store_n(&m->stop, 1, __ATOMIC_RELEASE);
    pthread_join(m->stepper, NULL);
    close_model(m);
}

/* At the end, when nobody else is there. */
static void free_models(void) {
    for (int i = 0; i < models.n; i++) {
        served_model *m = &models.list[i];
        if (is_loaded(m)) unload_model(m);
        list_free(&m->names);
        list_free(&m->kept);
        llm_text_free(&m->error);
        llm_text_free(&m->setup.path);
        llm_text_free(&m->setup.mmproj);
        llm_text_free(&m->setup.library);
    }
    free(models.list);
    llm_setup_free(&server.cfg.setup);
}

/* Loads and unloads what it is given, one model after the other. */
static void *loader_main(UNUSED void *unused) {
    pthread_mutex_lock(&models.mutex);
    while (!models.stop) {
        served_model *m = models.done ? NULL : models.job;
        if (!m) {
            pthread_cond_wait(&models.job_ready, &models.mutex);
            continue;
        }
        const int load = m->state == MODEL_LOADING;
        pthread_mutex_unlock(&models.mutex);
        m->outcome = MODEL_DONE;
        if (load) m->outcome = load_model(m);
        else unload_model(m);
        pthread_mutex_lock(&models.mutex);
        models.done = m;
        wake_event_thread();
    }
    pthread_mutex_unlock(&models.mutex);
    return NULL;
}

/* A state that others may see. */
static void set_state(served_model *m, model_state state) {
    pthread_mutex_lock(&models.mutex);
    m->state = state;
    pthread_mutex_unlock(&models.mutex);
}

/* Has the loader work on a model. The event thread, or main before there is one. */
static void give_loader(served_model *m, model_state state) {
    int n = 0;
    for (int i = 0; i < models.n; i++) n += is_loaded(&models.list[i]);
    m->alone = !n;
    m->crowded = server.cfg.max_loaded && n >= server.cfg.max_loaded;
    pthread_mutex_lock(&models.mutex);
    m->state = state;
    models.job = m;
    pthread_cond_signal(&models.job_ready);
    pthread_mutex_unlock(&models.mutex);
}

/* Which of those that are loaded is to make room: the longest unused without calls; where all have some, the longest unused. Calls that it
 * has, or that are about to get it, are counted in *busy. */
static served_model *model_to_go(int *busy) {
    served_model *found = NULL;
    pthread_mutex_lock(&models.mutex);
    for (int i = 0; i < models.n; i++) {
        served_model *m = &models.list[i];
        const int calls = m->calls + (m->state == MODEL_LOADED ? m->waiting : 0);
        if (!is_loaded(m)) continue;
        if (!found || (*busy ? !calls || m->last_use < found->last_use : !calls && m->last_use < found->last_use)) found = m, *busy = calls;
    }
    pthread_mutex_unlock(&models.mutex);
    return found;
}

/* ============================================================================
 * >>calls   One HTTP request with a body being served: who does what, in which thread.
 * ============================================================================
 *   event thread   llm_openai_next, unless it may take long: what is written of an answer in one go
 *   workers        llm_openai_parse (the JSON), llm_openai_check (every field), llm_openai_submit (renders the template, tokenizes, submits
 *                  to the engine), and llm_openai_next of answers that are long: what grows with what was sent or asked for
 *   engine thread  steps a model's engine; its news only put the call on a list and wake the event thread
 *
 *   serve_body --> work list --> worker --> news list --> conn_answer --> ... --> conn_answer --> free
 *                      ^                      ^   |                                   ^
 *                      '----- a long answer --+---'------ engine: a token, an end ----'
 *
 * News come far more often than the event thread looks: a call stands on the list at most once, and one wake is written for a list that
 * was empty. A call belongs to the event thread, or (away) to the worker it was given to, who brings it back by the news list; so it
 * needs no lock but for the flags of the lists. When a client goes, its call is cancelled and freed; when a worker has it then, as soon as
 * he brings it back, which llm_openai_cancel hurries on.
 *
 * Nothing that is short waits for something long: of n workers at most n - 1 do what may take long at one time. */

enum {
    CALL_PIECE = 64 << 10, /* bytes that are written of a stream in one go */
    CALL_ROWS = 20000,     /* an answer of more tokens, each of their alternatives counted, takes long to write, */
    CALL_CHOICES = 64,     /* and so do news of so many choices, */
    CALL_VECTORS = 4,      /* or so many embeddings */
    CALL_LATE_S = 1        /* after --timeout, if the engine has not ended the request by then */
};

typedef enum call_stage { CALL_BEGIN = 0, CALL_CHECK, CALL_SUBMIT, CALL_ANSWER } call_stage; /* what comes next */

typedef struct call {
    struct conn *conn; /* whom it answers; NULL: gone */
    llm_openai_kind kind;
    call_stage stage;
    served_model *model;   /* that it asks for; NULL: none, or that is not known yet */
    int holds, waits;      /* the model is loaded for it, or to be */
    int n_failed;          /* of the model, when it began to wait */
    llm_text body;         /* until it has begun */
    llm_text piece;        /* of the answer, not yet in the connection's output */
    size_t held;           /* bytes that the body takes, in net.bodies until the end, */
    int large;             /* which of these */
    int slow;              /* takes long: not every worker may have it */
    int more;              /* llm_openai_next may have something */
    int away;              /* given to a worker, as the event thread sees it */
    const char *why;       /* it is to be ended with these words; NULL: it is not */
    int failed;            /* and was */
    llm_openai_call *api;  /* NULL: not begun, or no memory for it. Until the worker has begun it guarded by queue.mutex, as these are: */
    int with_worker, gone; /* gone: nobody waits for it */
    int on_list, news;     /* news: of the engine */
    struct call *next_work, *next_news;
} call;

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t work_ready;
    call *work, *work_last; /* for the workers */
    call *news, *news_last; /* for the event thread */
    int n_news;
    int slow, stop; /* workers that do what takes long now */
    int trim;       /* memory that was freed is to go back to the system */
} queue = {.mutex = PTHREAD_MUTEX_INITIALIZER, .work_ready = PTHREAD_COND_INITIALIZER};

/* Puts a call on the event thread's list: as one that its worker brings back, or with news of the engine. Any thread. */
static void call_tell(call *k, int back) {
    pthread_mutex_lock(&queue.mutex);
    const int first = !queue.news;
    if (back) k->with_worker = 0;
    else k->news = 1;
    if (!k->on_list) {
        k->on_list = 1;
        k->next_news = NULL;
        *(queue.news ? &queue.news_last->next_news : &queue.news) = k;
        queue.news_last = k;
        queue.n_news++;
    }
    pthread_mutex_unlock(&queue.mutex);
    if (first) wake_event_thread();
}

static void on_call_news(void *user, UNUSED llm_openai_call *api) { call_tell((call *)user, 0); }

/* What there is to know of a connection's call. NULL: it has none, or a worker has it. */
static const llm_openai_info *call_info(const conn *c) {
    return c->call && !c->call->away && c->call->api ? llm_openai_get_info(c->call->api) : NULL;
}

static void count_abandoned(counters *n, const llm_openai_info *info);

/* Frees a call that no worker has. Then no news of it can come any more, and those on the list are taken off. */
static void call_free(call *k) {
    if (k->api && k->stage == CALL_ANSWER && k->model && !llm_openai_get_info(k->api)->done)
        count_abandoned(&k->model->counted, llm_openai_get_info(k->api));
    llm_openai_free(k->api);
    if (k->model) {
        pthread_mutex_lock(&models.mutex);
        k->model->calls -= k->holds;
        k->model->waiting -= k->waits;
        pthread_mutex_unlock(&models.mutex);
    }
    pthread_mutex_lock(&queue.mutex);
    call *before = NULL, *at = k->on_list ? queue.news : NULL;
    while (at && at != k) before = at, at = at->next_news;
    if (at) {
        *(before ? &before->next_news : &queue.news) = k->next_news;
        if (queue.news_last == k) queue.news_last = before;
        queue.n_news--;
    }
    pthread_mutex_unlock(&queue.mutex);
    net.bodies[k->large] -= k->held;
    net.n_ended++;
    llm_text_free(&k->body);
    llm_text_free(&k->piece);
    free(k);
}

/* Its body was read: counts what it takes now, which may be many times its bytes. Where that is too much, it makes room itself. */
static void call_weigh(call *k) {
    const size_t now = k->api ? (size_t)llm_openai_get_info(k->api)->body_bytes : 0;
    if (k->stage == CALL_BEGIN || now == k->held) return;
    net.bodies[k->large] += now - k->held;
    k->held = now;
    const int kind = k->api ? (int)llm_openai_get_info(k->api)->kind : LLM_OPENAI_TOKENIZE;
    const int runs = kind < LLM_OPENAI_TOKENIZE || kind == LLM_OPENAI_RERANK || kind == LLM_OPENAI_SCORE ||
                     kind == LLM_OPENAI_CLASSIFY; /* others have their answer now, and nothing is gained by refusing it */
    if (runs && net.bodies[k->large] > NET_MAX_BODIES) k->why = "the server holds as many request bodies as it may";
}

/* The connection's call is answered, or its client gone. */
static void call_leave(conn *c) {
    call *k = c->call;
    if (!k) return;
    c->call = NULL;
    k->conn = NULL;
    pthread_mutex_lock(&queue.mutex);
    const int away = k->gone = k->with_worker;
    if (away && k->api) llm_openai_cancel(k->api);
    pthread_mutex_unlock(&queue.mutex);
    if (!away) call_free(k);
}

/* To the end of the work list. The caller holds queue.mutex. */
static void work_put(call *k) {
    k->next_work = NULL;
    *(queue.work ? &queue.work_last->next_work : &queue.work) = k;
    queue.work_last = k;
    pthread_cond_signal(&queue.work_ready);
}

/* Gives a call to the workers. */
static void call_give(call *k) {
    pthread_mutex_lock(&queue.mutex);
    k->away = k->with_worker = 1;
    work_put(k);
    pthread_mutex_unlock(&queue.mutex);
}

/* Whether what is asked for may keep a worker for long, however short the body is: it computes a prompt, or reads files. */
static int kind_is_slow(llm_openai_kind kind) {
    return kind == LLM_OPENAI_CONTEXT_SAVE || kind == LLM_OPENAI_CONTEXT_LOAD || kind == LLM_OPENAI_LORA_LOAD;
}

/* A request whose body is whole. */
static void call_begin(conn *c, llm_openai_kind kind) {
    call *k = (call *)calloc(1, sizeof *k);
    if (!k) {
        http_answer_exhausted(c);
        return;
    }
    k->conn = c;
    k->kind = kind;
    k->body = c->body;
    k->large = c->large;
    k->slow = c->large || kind_is_slow(kind);
    k->held = c->held;
    memset(&c->body, 0, sizeof c->body);
    c->held = 0;
    c->call = k;
    call_give(k);
}

/* Whether what is written of an answer at once may take more than some milliseconds: the whole of a long one, or what is told of many. */
static int call_is_long(const call *k) {
    const llm_openai_info *info = llm_openai_get_info(k->api);
    const llm_sampling *s = info->sampling;
    const double choices = (double)info->n_requests * info->n_choices;
    const double tokens = s->max_tokens >= 0 ? (double)s->max_tokens : (double)k->model->facts.max_model_len;
    const int whole = !info->stream || info->lines == 1;
    const int pools = info->kind == LLM_OPENAI_EMBEDDING || info->kind == LLM_OPENAI_CLASSIFY;
    const int many = choices > (pools ? CALL_VECTORS : CALL_CHOICES);
    return k->large || many || s->prompt_logprobs || (whole && choices * tokens * (1 + s->logprobs) > CALL_ROWS);
}

/* Takes what the call has to say, up to a piece. Whoever has the call. */
static void call_write(call *k) {
    const llm_openai_info *info = llm_openai_get_info(k->api);
    k->more = 0;
    while (llm_openai_next(k->api, &k->piece)) {
        k->more = !info->done;
        if (!info->stream || info->status != 200 || k->piece.len >= CALL_PIECE) return;
        k->more = 0;
    }
}

/* Takes the model for the call if it is loaded. Whoever has the call, with models.mutex held. */
static void call_hold(call *k) {
    if (k->model->state != MODEL_LOADED) return;
    k->model->last_use = llm_now();
    k->model->calls++;
    k->model->waiting -= k->waits;
    k->waits = 0;
    k->holds = 1;
}

/* Finds the model that the body names. Where one is served, another name may be good enough for it (llm_openai_check). */
static void call_find(call *k) {
    size_t len = 0;
    const char *name = k->api ? llm_openai_model(k->api, &len) : NULL;
    if (!k->api || llm_openai_get_info(k->api)->status != 200) return;
    pthread_mutex_lock(&models.mutex);
    k->model = model_named(name, len);
    if (!k->model && models.n == 1) k->model = default_model();
    if (k->model) call_hold(k);
    pthread_mutex_unlock(&models.mutex);
}

/* A worker's part of a call. 1: not all of it, for the rest takes long and this worker may have to be there for others. */
static int call_work(call *k) {
    if (k->stage == CALL_BEGIN) {
        llm_openai_call *api = llm_openai_parse(k->kind, k->body.data ? k->body.data : "", k->body.len, k);
        llm_text_free(&k->body);

        pthread_mutex_lock(&queue.mutex);
        k->api = api;
        pthread_mutex_unlock(&queue.mutex);
        k->stage = CALL_CHECK;
        call_find(k);
        if (k->model && !k->holds) return 0; /* it has to be loaded */
    }
    if (k->stage == CALL_CHECK) {
        static const llm_openai_service nobody = {0}; /* whose model no name is */
        if (k->api) llm_openai_check(k->api, k->model ? &k->model->service : &nobody);
        k->stage = CALL_SUBMIT;
        if (k->api && !k->slow && llm_openai_get_info(k->api)->form) return k->slow = 1; /* a grammar to be compiled */
        if (k->large) return 0;                                                          /* to be weighed before it runs */
    }
    if (k->stage == CALL_SUBMIT) {
        if (k->api) llm_openai_submit(k->api);
        k->stage = CALL_ANSWER;
        k->more = 1;
    } else {
        call_write(k);
    }
    return 0;
}

/* Takes the first call off the work list that may be worked on now; with queue.mutex held. NULL: none. What takes long would hold up everyone,
 * were all workers at it. */
static call *work_take(void) {
    const int may_be_slow = queue.slow < (server.cfg.n_workers > 1 ? server.cfg.n_workers - 1 : 1);
    call *before = NULL, *k = queue.work;
    while (k && !k->gone && !may_be_slow && k->slow) before = k, k = k->next_work;
    if (!k) return NULL;
    *(before ? &before->next_work : &queue.work) = k->next_work;
    if (queue.work_last == k) queue.work_last = before;
    return k;
}

/* Works on what work_take gave, with queue.mutex held before and after. One whose client is gone is only handed back. */
static void work_do(call *k) {
    const int slow = k->slow, gone = k->gone;
    queue.slow += slow;
    pthread_mutex_unlock(&queue.mutex);
    const int again = !gone && call_work(k);
    if (!again) call_tell(k, 1);
    pthread_mutex_lock(&queue.mutex);
    queue.slow -= slow;
    if (again) work_put(k);
    else if (slow && queue.work) pthread_cond_signal(&queue.work_ready);
}

/* What calls have left in the C library's heap goes back to the system: it keeps pages between those that are in use, and a request with
 * thousands of answers leaves tens of megabytes of such. With queue.mutex held before and after. */
static void work_trim(void) {
    queue.trim = 0;
    pthread_mutex_unlock(&queue.mutex);
#ifdef M_TRIM_THRESHOLD
    malloc_trim(0);
#endif
    pthread_mutex_lock(&queue.mutex);
}

/* Every two seconds if calls or connections have ended; for a worker to do. */
static void ask_for_trim(void) {
    static double last;
    if (!net.n_ended || net.now - last < 2) return;
    last = net.now;
    net.n_ended = 0;
    pthread_mutex_lock(&queue.mutex);
    queue.trim = 1;
    pthread_cond_signal(&queue.work_ready);
    pthread_mutex_unlock(&queue.mutex);
}

/* Takes calls in the order of arrival, but for those that take long. */
static void *worker_main(UNUSED void *unused) {
    pthread_mutex_lock(&queue.mutex);
    for (;;) {
        call *k;
        while (!(k = work_take()) && !queue.stop && !queue.trim) pthread_cond_wait(&queue.work_ready, &queue.mutex);
        if (k) work_do(k);
        else if (queue.trim) work_trim();
        else break;
    }
    pthread_mutex_unlock(&queue.mutex);
    return NULL;
}

/* ============================================================================
 * >>metrics   Prometheus text with vLLM's names and buckets.
 * ============================================================================
 * Who writes an answer sees its events and counts them: mostly the event thread, at times a worker, so there is a lock. What the engine
 * counts is asked of it; nothing is sampled. Where a request spends its time:
 *
 *   arrival --- queue ---> start --- prefill ---> first token --- decode ---> end
 *   |<------------- time to first token ------------->|  time per output token = decode / (tokens - 1)
 *   |<------------------------- end to end latency ------------------------>|
 *
 * The inter-token latency is what a reader of a stream sees: the gap between two tokens of one choice. */

static const double bounds_ttft[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
static const double bounds_token[] = {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
static const double bounds_latency[] = {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960};
static const double bounds_size[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
static const double bounds_n[] = {1, 2, 5, 10, 20};

#define HISTOGRAM(name, help, bounds) \
    { name, help, bounds, (int)N_OF(bounds) }
static const struct {
    const char *name, *help;
    const double *bound;
    int n;
} histograms[H_COUNT] = {HISTOGRAM("time_to_first_token_seconds", "Time from arrival to the first token.", bounds_ttft),
                         HISTOGRAM("time_per_output_token_seconds", "Time per output token after the first.", bounds_token),
                         HISTOGRAM("inter_token_latency_seconds", "Time between two tokens of a choice.", bounds_token),
                         HISTOGRAM("e2e_request_latency_seconds", "Time from arrival to the end.", bounds_latency),
                         HISTOGRAM("request_queue_time_seconds", "Time in the waiting queue.", bounds_latency),
                         HISTOGRAM("request_inference_time_seconds", "Time running.", bounds_latency),
                         HISTOGRAM("request_prefill_time_seconds", "Time from the start to the first token.", bounds_latency),
                         HISTOGRAM("request_decode_time_seconds", "Time from the first token to the end.", bounds_latency),
                         HISTOGRAM("request_prompt_tokens", "Prompt tokens of a request.", bounds_size),
                         HISTOGRAM("request_generation_tokens", "Generated tokens of a request.", bounds_size),
                         HISTOGRAM("request_params_max_tokens", "max_tokens of a request.", bounds_size),
                         HISTOGRAM("request_params_n", "n of a request.", bounds_n),
                         HISTOGRAM("request_params_best_of", "best_of of a request.", bounds_n)};

/* Of what is counted of all models: who writes an answer counts, and that may be a worker. */
static pthread_mutex_t metrics_mutex = PTHREAD_MUTEX_INITIALIZER;

/* One value into its bucket; the sums over buckets are made when they are asked for. */
static void observe(counters *n, int h, double v) {
    int i = 0;
    while (i < histograms[h].n && v > histograms[h].bound[i]) i++;
    n->histograms[h].count[i]++;
    n->histograms[h].sum += v;
}

/* The tokens of a prompt and its answers, which are returned. */
static int64_t count_tokens(counters *n, const llm_openai_info *info, const llm_request *request) {
    llm_request_metrics m;
    int64_t generated = 0;
    llm_request_get_metrics(request, &m);
    for (int i = 0; i < info->n_choices; i++) {
        llm_output o;
        if (!llm_request_get_output(request, i, &o)) generated += (int64_t)o.n_token_ids;
    }
    n->prompt_tokens += (uint64_t)m.n_prompt_tokens;
    n->cached_tokens += (uint64_t)m.n_cached_tokens;
    n->generation_tokens += (uint64_t)generated;
    return generated;
}

/* From a request's arrival to its first token. */
static double first_token_after(const llm_request_metrics *m) { return m->inference_start_time + m->first_token_time - m->arrival_time; }

/* All figures of a prompt whose choices have ended. */
static void count_request_end(counters *n, const llm_openai_info *info, const llm_request *request) {
    const int64_t generated = count_tokens(n, info, request);
    llm_request_metrics m;
    llm_request_get_metrics(request, &m);
    observe(n, H_E2E, m.finish_time - m.arrival_time);
    observe(n, H_QUEUE, m.time_in_queue);
    observe(n, H_PROMPT, m.n_prompt_tokens);
    observe(n, H_GENERATION, (double)generated);
    observe(n, H_MAX_TOKENS, (double)info->sampling->max_tokens);
    observe(n, H_N, info->n_choices);
    observe(n, H_BEST_OF, info->sampling->best_of > 0 ? info->sampling->best_of : info->n_choices);
    if (m.inference_start_time > 0) observe(n, H_INFERENCE, m.finish_time - m.inference_start_time);
    if (m.first_token_time <= 0) return;
    const double answering = m.finish_time - m.inference_start_time - m.first_token_time;
    observe(n, H_TTFT, first_token_after(&m));
    observe(n, H_PREFILL, m.first_token_time);
    observe(n, H_DECODE, answering);
    if (generated > 1) observe(n, H_TPOT, answering / (double)(generated - 1));
}

/* Called by llm_openai_next for every piece of news. */
static void count_event(void *user, llm_openai_call *api, llm_request *request, const llm_event *e, double gap) {
    counters *n = &((call *)user)->model->counted;
    pthread_mutex_lock(&metrics_mutex);
    if (gap > 0) observe(n, H_ITL, gap);
    if (e->finish != LLM_FINISH_NONE) n->finished[e->finish]++;
    if (e->finish != LLM_FINISH_NONE && llm_request_done(request)) count_request_end(n, llm_openai_get_info(api), request);
    pthread_mutex_unlock(&metrics_mutex);
}

/* Requests whose client is gone: their tokens count, and they ended as "abort". How long they would have taken nobody knows. */
static void count_abandoned(counters *n, const llm_openai_info *info) {
    pthread_mutex_lock(&metrics_mutex);
    for (int i = 0; i < info->n_requests; i++) {
        llm_request *r = info->requests[i];
        if (!r || llm_request_done(r)) continue;
        llm_request_cancel(r);
        n->finished[LLM_FINISH_CANCELLED] += (uint64_t)info->n_choices;
        count_tokens(n, info, r);
    }
    pthread_mutex_unlock(&metrics_mutex);
}

/* What a call's requests took so far. */
static void log_usage(const llm_openai_info *info, int64_t tokens[3], double *first) {
    for (int i = 0; i < info->n_requests; i++) {
        llm_request_metrics m;
        if (!info->requests[i]) continue;
        llm_request_get_metrics(info->requests[i], &m);
        tokens[0] += m.n_prompt_tokens;
        tokens[1] += m.n_cached_tokens;
        if (m.first_token_time > 0 && (*first <= 0 || first_token_after(&m) < *first)) *first = first_token_after(&m);
        for (int k = 0; k < info->n_choices; k++) {
            llm_output o;
            if (!llm_request_get_output(info->requests[i], k, &o)) tokens[2] += (int64_t)o.n_token_ids;
        }
    }
}

/* Who asks for what, as the log says it. What clients sent is quoted as JSON, so that a line stays a line. */
static void log_who(const conn *c, llm_text *t) {
    llm_text_format(t, "%s ", c->client);
    llm_text_add(t, c->head.method.p, c->head.method.n);
    llm_text_format(t, " %Q", c->head.path.p, c->head.path.n);
}

/* --log-prompts: the body of a request, as it came. */
static void log_body(const conn *c) {
    SCOPED_TEXT t = {0};
    if (!server.cfg.log_prompts || !c->body.len) return;
    log_who(c, &t);
    llm_text_format(&t, " %Q", c->body.data, c->body.len < 2000 ? c->body.len : (size_t)2000);
    if (!t.failed) on_library_log(NULL, LLM_LOG_INFO, t.data);
}

/* --log-requests: a line for each request when its answer is complete, or its client is gone (status 499, as nginx has it). */
static void log_line(const conn *c, const llm_openai_info *info, int status) {
    SCOPED_TEXT t = {0};
    int64_t tokens[3] = {0, 0, 0}; /* of the prompt, of these cached, of the answers */
    double first = 0, seconds = llm_now() - c->began;
    char stamp[40], times[120];
    const char *model = info && models.n > 1 && c->call->model ? c->call->model->names.items[0] : NULL;
    if (info) log_usage(info, tokens, &first);
    if (server.cfg.log_json) {
        log_stamp(stamp, LOG_JSON_TIME);
        llm_text_format(&t, "{'time':%q,'level':'INFO','client':%q,'method':%Q,'path':%Q,'status':%d,'seconds':%f,", stamp, c->client,
                        c->head.method.p, c->head.method.n, c->head.path.p, c->head.path.n, status, seconds);
        if (model) llm_text_format(&t, "'model':%q,", model);
        llm_text_format(&t, "'prompt_tokens':%l,'cached_tokens':%l,'completion_tokens':%l,'first_token_seconds':%f,'id':%q,'user':%q}\n",
                        tokens[0], tokens[1], tokens[2], first, info ? info->id : NULL, info ? info->user : NULL);
        if (!t.failed) fwrite(t.data, 1, t.len, log_stream());
        return;
    }
    snprintf(times, sizeof times, first > 0 ? " %d %.3f s, first token %.3f s, " : " %d %.3f s", status, seconds, first);
    log_who(c, &t);
    llm_text_str(&t, times);
    if (first > 0) llm_text_format(&t, "%l prompt (%l cached) and %l answer tokens", tokens[0], tokens[1], tokens[2]);
    if (info) llm_text_format(&t, ", %s", info->id);
    if (model) llm_text_format(&t, ", model %q", model);
    if (info && info->user) llm_text_format(&t, ", user %q", info->user);
    if (!t.failed) on_library_log(NULL, LLM_LOG_INFO, t.data);
}

static void log_request(conn *c, int gone) {
    if (c->began > 0 && server.cfg.log_requests) log_line(c, call_info(c), gone ? 499 : c->status);
    c->began = 0;
}

/* What the names of all metrics begin with. */
static const char *metric_prefix(void) { return server.cfg.metrics_prefix ? server.cfg.metrics_prefix : "vllm"; }

/* Prometheus wants each family's help and type once, before its values. */
static void metric_head(llm_text *t, const char *name, const char *help, const char *type) {
    const char *prefix = metric_prefix();
    llm_text_format(t, "# HELP %s:%s %s\n# TYPE %s:%s %s\n", prefix, name, help, prefix, name, type);
}

/* name{model_name=...,labels} value */
static void metric_value(llm_text *t, const served_model *m, const char *name, const char *labels, double v) {
    llm_text_format(t, "%s:%s{model_name=%q%s} ", metric_prefix(), name, m->names.items[0], labels);
    llm_text_num(t, v);
    llm_text_str(t, "\n");
}

/* The figures of a model as they are now. */
typedef struct figures {
    const served_model *m;
    llm_engine_stats s;
    double running, waiting, usage, preemptions, prompt_tokens, generation_tokens, cached_tokens, refused, loaded, loads, unloads;
    double media_queries, media_hits, media_bytes, tower_seconds;
} figures;

/* Families with one value for each model. */
typedef struct family {
    const char *name, *help, *type;
    size_t at; /* of the value in figures, a double */
} family;

static const family families[] = {
    {"num_requests_running", "Sequences being computed.", "gauge", offsetof(figures, running)},
    {"num_requests_waiting", "Requests in the queue.", "gauge", offsetof(figures, waiting)},
    {"kv_cache_usage_perc", "Share of KV pages in use, cached ones not counted (0 to 1).", "gauge", offsetof(figures, usage)},
    {"gpu_cache_usage_perc", "The same under its older name.", "gauge", offsetof(figures, usage)},
    {"num_preemptions_total", "Preempted sequences.", "counter", offsetof(figures, preemptions)},
    {"prompt_tokens_total", "Prompt tokens of finished requests.", "counter", offsetof(figures, prompt_tokens)},
    {"generation_tokens_total", "Generated tokens of finished requests.", "counter", offsetof(figures, generation_tokens)},
    {"prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", "counter", offsetof(figures, prompt_tokens)},
    {"prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", "counter", offsetof(figures, cached_tokens)},
    {"mm_cache_queries_total", "Pictures and videos looked up in the cache.", "counter", offsetof(figures, media_queries)},
    {"mm_cache_hits_total", "Pictures and videos found in the cache.", "counter", offsetof(figures, media_hits)},
    {"mm_cache_bytes", "Memory of the cache of pictures in use.", "gauge", offsetof(figures, media_bytes)},
    {"mm_tower_seconds_total", "Seconds spent in the towers of models that see.", "counter", offsetof(figures, tower_seconds)},
    {"requests_refused_total", "Requests answered with an error.", "counter", offsetof(figures, refused)},
    {"model_loaded", "Whether the model is loaded.", "gauge", offsetof(figures, loaded)},
    {"model_loads_total", "Times that it was loaded.", "counter", offsetof(figures, loads)},
    {"model_unloads_total", "Times that it made room for another.", "counter", offsetof(figures, unloads)}};

static figures figures_of(const served_model *m) {
    figures f = {.m = m};
    const llm_engine_stats *s = &f.s;
    if (is_loaded(m)) llm_engine_get_stats(m->engine, &f.s);
    f.loaded = is_loaded(m);
    f.loads = (double)m->n_loads;
    f.unloads = (double)m->n_unloads;
    f.running = s->n_running;
    f.waiting = s->n_waiting;
    f.usage = s->total_blocks ? (double)(s->total_blocks - s->free_blocks - s->cached_blocks) / (double)s->total_blocks : 0;
    f.preemptions = (double)s->preemptions;
    f.prompt_tokens = (double)m->counted.prompt_tokens;
    f.generation_tokens = (double)m->counted.generation_tokens;
    f.cached_tokens = (double)m->counted.cached_tokens;
    f.media_queries = (double)s->media_queries;
    f.media_hits = (double)s->media_hits;
    f.media_bytes = (double)s->media_bytes;
    f.tower_seconds = s->tower_seconds;
    f.refused = (double)m->counted.refused;
    return f;
}

static void write_families(llm_text *t, const family *list, int n_list, const figures *f, int n) {
    for (int i = 0; i < n_list; i++) {
        metric_head(t, list[i].name, list[i].help, list[i].type);
        for (int k = 0; k < n; k++) {
            double v;
            memcpy(&v, (const char *)&f[k] + list[i].at, sizeof v);
            metric_value(t, f[k].m, list[i].name, "", v);
        }
    }
}

/* Buckets are cumulative: each counts what is at most its bound. */
static void write_histogram(llm_text *t, int h, const figures *f, int n) {
    const char *name = histograms[h].name, *prefix = metric_prefix();
    metric_head(t, name, histograms[h].help, "histogram");
    for (int k = 0; k < n; k++) {
        const char *model = f[k].m->names.items[0];
        const tally *x = &f[k].m->counted.histograms[h];
        int64_t sum = 0;
        for (int i = 0; i <= histograms[h].n; i++) {
            sum += x->count[i];
            llm_text_format(t, "%s:%s_bucket{model_name=%q,le='", prefix, name, model);
            if (i < histograms[h].n) llm_text_num(t, histograms[h].bound[i]);
            else llm_text_str(t, "+Inf");
            llm_text_format(t, "'} %l\n", sum);
        }
        llm_text_format(t, "%s:%s_count{model_name=%q} %l\n%s:%s_sum{model_name=%q} ", prefix, name, model, sum, prefix, name, model);
        llm_text_num(t, x->sum);
        llm_text_str(t, "\n");
    }
}

/* What speculation guessed, and how much of it was right. Without a --speculative-model only grammars draft: shown once one has. */
static void write_drafts(llm_text *t, const figures *f, int n) {
    static const struct {
        const char *name, *help;
    } drafts[] = {{"spec_decode_num_drafts_total", "Drafts that were checked."},
                  {"spec_decode_num_draft_tokens_total", "Tokens in them."},
                  {"spec_decode_num_accepted_tokens_total", "Of these, tokens that were right."},
                  {"spec_decode_num_emitted_tokens_total", "Tokens that steps with a draft gave."}};
    const char *by_place = "spec_decode_num_accepted_tokens_per_pos_total";
    int any = server.cfg.setup.engine.speculative_model != NULL;
    for (int k = 0; k < n; k++) any |= f[k].s.drafts > 0;
    if (!any) return;
    for (size_t i = 0; i < N_OF(drafts); i++) {
        metric_head(t, drafts[i].name, drafts[i].help, "counter");
        for (int k = 0; k < n; k++) {
            const llm_engine_stats *s = &f[k].s;
            const int64_t v[] = {s->drafts, s->draft_tokens, s->accepted_tokens, s->accepted_tokens + s->drafts};
            metric_value(t, f[k].m, drafts[i].name, "", (double)v[i]);
        }
    }
    metric_head(t, by_place, "Tokens that were right, by their place in the draft.", "counter");
    for (int k = 0; k < n; k++) {
        const int64_t *right = f[k].s.accepted_per_position;
        int places = LLM_SPECULATIVE_MAX; /* a grammar may draft more than num_speculative_tokens */
        while (places > server.cfg.setup.engine.num_speculative_tokens && !right[places - 1]) places--;
        for (int i = 0; i < places; i++) {
            char label[64];
            snprintf(label, sizeof label, ",position=\"%d\"", i);
            metric_value(t, f[k].m, by_place, label, (double)right[i]);
        }
    }
}

/* Which adapters run and wait, as labels of a figure that is the time, as in vLLM. */
static void write_loras(llm_text *t, const figures *f, int n) {
    const int most = (int)server.cfg.setup.engine.max_loras;
    if (!most) return;
    metric_head(t, "lora_requests_info", "Adapters of requests that run and that wait.", "gauge");
    for (int k = 0; k < n; k++) {
        SCOPED_TEXT running = {0}, waiting = {0}, labels = {0}, name = {0};
        int32_t count[2];
        if (!is_loaded(f[k].m)) continue;
        for (int32_t i = 0; llm_lora_get(f[k].m->engine, i, &name, NULL, count); i++, name.len = 0) {
            if (count[0]) llm_text_format(&running, "%s%s", running.len ? "," : "", name.data);
            if (count[1]) llm_text_format(&waiting, "%s%s", waiting.len ? "," : "", name.data);
        }
        llm_text_format(&labels, ",max_lora='%d',running_lora_adapters=%q,waiting_lora_adapters=%q", most, running.data ? running.data : "",
                        waiting.data ? waiting.data : "");
        if (!labels.failed) metric_value(t, f[k].m, "lora_requests_info", labels.data, (double)time(NULL));
    }
}

/* What is told of a model by labels. */
static void write_labelled(llm_text *t, const figures *f, int n) {
    char label[200];
    metric_head(t, "request_success_total", "Finished choices by reason.", "counter");
    for (int k = 0; k < n; k++)
        for (int end = LLM_FINISH_STOP; end <= LLM_FINISH_REPETITION; end++) {
            snprintf(label, sizeof label, ",finished_reason=\"%s\"", llm_finish_str((llm_finish)end));
            metric_value(t, f[k].m, "request_success_total", label, (double)f[k].m->counted.finished[end]);
        }
    metric_head(t, "cache_config_info", "KV cache configuration.", "gauge");
    for (int k = 0; k < n; k++) {
        if (!is_loaded(f[k].m)) continue;
        snprintf(label, sizeof label, ",block_size=\"%d\",num_gpu_blocks=\"%lld\",enable_prefix_caching=\"%s\"", f[k].s.block_size,
                 (long long)f[k].s.total_blocks, server.cfg.setup.engine.disable_prefix_caching ? "False" : "True");
        metric_value(t, f[k].m, "cache_config_info", label, 1);
    }
}

/* Everything at /metrics, of the models that are or were loaded. The names are vLLM's, so its boards and routers work. */
static void write_metrics(llm_text *t, const figures *f, int n) {
    write_families(t, families, (int)N_OF(families), f, n);
    write_drafts(t, f, n);
    write_loras(t, f, n);
    metric_head(t, "connections", "Open connections.", "gauge");
    metric_value(t, default_model(), "connections", "", net.n);
    write_labelled(t, f, n);
    for (int h = 0; h < H_COUNT; h++) write_histogram(t, h, f, n);
}

/* ============================================================================
 * >>answers   What llm_openai_next writes, put into HTTP.
 * ============================================================================
 * A call that has news is asked for what it has to say, and that goes into its connection's output. Streams stop at 1 MiB that the reader has
 * not taken; the engine keeps the rest, which is bounded by max_tokens. Errors are pieces like others, so there is one way out. */

/* The status line of a stream goes out before the first token: a client sees that it was heard. */
static void stream_start(conn *c, const llm_openai_info *info) {
    static const char *const types[] = {"text/event-stream; charset=utf-8", "application/json", "application/x-ndjson"};
    c->streaming = info->lines ? STREAM_LINES : STREAM_EVENTS;
    c->progress = net.now;
    c->close_after |= c->head.minor == 0;
    http_head_out(c, 200, types[info->lines], -1, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    c->dead |= c->out.failed;
}

/* Whether a large answer has been written for which there is no place: others, who read theirs slowly, have it. */
static int call_has_no_place(const call *k) {
    if (net.unsent < NET_MAX_OUT || k->piece.len <= CALL_PIECE) return 0;
    const llm_openai_info *info = llm_openai_get_info(k->api);
    return info->done && !info->stream;
}

/* Puts what was written of a call's answer into the output. Returns whether that was anything. */
static int call_deliver(conn *c, call *k, const llm_openai_info *info) {
    const int streaming = info->stream && info->status == 200, begins = streaming && !c->streaming, some = begins || k->piece.len;
    if (k->piece.failed && streaming) return c->dead = 1;
    if (begins) stream_start(c, info);
    if (streaming) stream_bytes(c, k->piece.data, k->piece.len), k->piece.len = 0;
    if (!info->done) return some;
    if (info->status != 200) {
        (k->model ? k->model : default_model())->counted.refused++;
        server_log(LLM_LOG_DEBUG, "%.*s", (int)(k->piece.len < 1000 ? k->piece.len : 1000), k->piece.len ? k->piece.data : "");
    }
    if (call_has_no_place(k)) {
        http_answer_error(c, 503, "the server holds as many answers as it may: ask again later, or for a stream", NULL, NULL);
    } else if (!streaming) {
        int text = info->status == 200 && (info->kind == LLM_OPENAI_LORA_LOAD || info->kind == LLM_OPENAI_LORA_UNLOAD);
        http_answer(c, info->status, text ? "text/plain; charset=utf-8" : "application/json", &k->piece, NULL);
    } else {
        if (c->head.minor == 1) llm_text_str(&c->out, "0\r\n\r\n");
        c->dead |= c->out.failed;
        conn_answered(c);
    }
    return 1;
}

/* A call whose model is not loaded, or was not when a worker looked: it waits, goes on, or is told why it cannot. */
static void call_wait(call *k) {
    served_model *m = k->model;
    const int most = server.cfg.setup.engine.max_queue > 0 ? server.cfg.setup.engine.max_queue : 1024;
    SCOPED_TEXT t = {0};
    pthread_mutex_lock(&models.mutex);
    call_hold(k);
    const int starts = !k->holds && !k->waits, full = starts && m->waiting >= most, fails = k->waits && k->n_failed != m->n_failed;
    if (starts && !full) {
        if (!m->waiting++) m->wanted = net.now;
        k->waits = 1;
        k->n_failed = m->n_failed;
    }
    if (fails) m->waiting--, k->waits = 0;
    pthread_mutex_unlock(&models.mutex);
    if (!full && !fails) return;
    if (full) llm_text_format(&t, "%d requests wait for the model %s already", most, m->names.items[0]);
    else llm_text_format(&t, "the model %s could not be loaded: %s", m->names.items[0], m->error.data ? m->error.data : "out of memory");
    llm_openai_fail(k->api, full || m->why == LLM_ERR_NOMEM ? 503 : 500, t.failed ? "out of memory" : t.data);
    k->stage = CALL_ANSWER;
    k->failed = k->more = 1;
}

/* An answer from the call, as far as there is one now and room for it. */
static int conn_answer(conn *c) {
    call *k = c->call;
    if (c->state != CONN_BUSY || !k || k->away) return 0;
    if (!conn_has_room(c) && !call_has_no_place(k)) return 0;
    if (!k->api) {
        if (k->why) http_answer_error(c, 503, k->why, NULL, NULL);
        else http_answer_exhausted(c);
        return 1;
    }
    const llm_openai_info *info = llm_openai_get_info(k->api);
    if (k->why && !k->failed && !info->done) {
        llm_openai_fail(k->api, 503, k->why);
        k->stage = CALL_ANSWER;
        k->failed = k->more = 1;
    }
    if (k->stage == CALL_CHECK) call_wait(k);
    if (k->stage == CALL_SUBMIT || (k->stage == CALL_CHECK && k->holds)) {
        call_give(k);
        return 0;
    }
    if (k->stage == CALL_CHECK) return 0;
    k->slow = info->status == 200 && call_is_long(k);
    if (k->more && !k->piece.len && !info->done) {
        if (!k->slow) call_write(k);
        else call_give(k);
    }
    return !k->away && call_deliver(c, k, info);
}

/* Ends a request for a reason of ours, in words. Whoever has its call may have to bring it back first. */
static void call_stop(conn *c, const char *why) {
    call *k = c->call;
    if (!k || k->why) return;
    k->why = why;
    pthread_mutex_lock(&queue.mutex);
    k->gone = k->with_worker;
    if (k->gone && k->api) llm_openai_cancel(k->api);
    pthread_mutex_unlock(&queue.mutex);
    conn_turn(c);
}

/* Fails what runs and waits for the engine. */
static void call_fail(conn *c, int status, const char *message) {
    call *k = c->call;
    if (!k || k->away || !k->api || llm_openai_get_info(k->api)->done) return;
    llm_openai_fail(k->api, status, message);
    k->more = 1;
    conn_turn(c);
}

/* Whether a step of the model's engine takes longer than it may. */
static int is_stuck(const served_model *m) {
    const int64_t began = m && server.cfg.step_timeout > 0 ? __atomic_load_n(&m->step_began, __ATOMIC_ACQUIRE) : 0;
    return began && net.now - (double)began * 1e-3 >= (double)server.cfg.step_timeout;
}

/* VLLM_ENGINE_ITERATION_TIMEOUT_S: when one step of the engine takes too long, whoever waits for it gets an error. The engine is kept: if
 * the step ends, the server goes on. --timeout: the engine ends a request in time, between two steps; where a step is long, or the request
 * has not come to the engine, it is ended here. */
static void watch_calls(void) {
    const double step = server.cfg.step_timeout, life = server.cfg.request_timeout;
    if (step <= 0 && life <= 0) return;
    for (conn *c = net.list; c; c = c->next) {
        if (c->fd < 0 || !c->call) continue;
        if (life > 0 && net.now - c->began > life + CALL_LATE_S) call_stop(c, "the request took longer than --timeout lets it");
        else if (call_info(c) && c->call->holds && is_stuck(c->call->model)) {
            server_log(LLM_LOG_ERROR, "a step of the engine takes too long: a request is failed");
            call_fail(c, 500, "the engine did not finish a step in time");
        }
    }
}

/* What stands on the news list now. Returns whether more has come meanwhile. */
static int calls_news(void) {
    pthread_mutex_lock(&queue.mutex);
    for (int n = queue.n_news; n > 0 && queue.news; n--) {
        call *k = queue.news;
        const int busy = k->with_worker; /* who will bring it back */
        queue.news = k->next_news;
        queue.n_news--;
        k->on_list = 0;
        if (busy) continue;
        k->more |= k->news;
        k->news = k->away = k->gone = 0;
        pthread_mutex_unlock(&queue.mutex);
        call_weigh(k);
        if (k->conn) conn_turn(k->conn);
        else call_free(k);
        pthread_mutex_lock(&queue.mutex);
    }
    const int left = queue.news != NULL;
    pthread_mutex_unlock(&queue.mutex);
    return left;
}

/* ---- which models are loaded */

/* Lets those go on who wait for a model. */
static void waiting_turn(void) {
    for (conn *c = net.list; c; c = c->next)
        if (c->fd >= 0 && c->call && !c->call->away && c->call->waits) conn_turn(c);
}

static void say_ready(void);

/* The loader has ended its work on a model. The first load of all decides whether there is a server. */
static void model_done(served_model *m) {
    const int load = m->state == MODEL_LOADING;
    const model_outcome outcome = m->outcome;
    m->no_room = outcome == MODEL_NO_ROOM;
    if (outcome != MODEL_NO_ROOM) m->asked = 0;
    m->last_use = net.now;
    m->n_loads += load && outcome == MODEL_DONE;
    m->n_unloads += !load;
    m->n_failed += outcome == MODEL_NO;
    set_state(m, outcome == MODEL_NO ? MODEL_FAILED : load && outcome == MODEL_DONE ? MODEL_LOADED : MODEL_UNLOADED);
    for (int i = 0; i < models.n && !load; i++) models.list[i].no_room = 0;
    const char *why = m->error.data && !m->error.failed ? m->error.data : "out of memory";
    if (!load) server_log(LLM_LOG_INFO, "%s: unloaded", m->names.items[0]);
    if (outcome == MODEL_NO && server.ready) server_log(LLM_LOG_ERROR, "%s: %s", m->names.items[0], why);
    else if (outcome == MODEL_NO && !server.signals) fprintf(stderr, "llm_serve: error: %s\n", why);
    if (!server.ready) __atomic_store_n(&server.ready, outcome == MODEL_NO ? -1 : 1, __ATOMIC_RELEASE);
    else return;
    if (server.ready > 0) say_ready();
}

/* Who has been waited for longest, of those that are not loaded. */
static served_model *model_wanted(void) {
    served_model *found = NULL;
    for (int i = 0; i < models.n; i++) {
        served_model *m = &models.list[i];
        if ((m->state != MODEL_UNLOADED && m->state != MODEL_FAILED) || (!m->waiting && !m->asked)) continue;
        if (!found || m->wanted < found->wanted) found = m;
    }
    return found;
}

/* Decides what the loader does next. Whoever is asked for gets room: from the longest unused without calls, or, where all have some, from
 * the longest unused as soon as it has none; meanwhile its new calls wait, and it is loaded again for them. So everyone's turn comes. */
static void models_turn(void) {
    pthread_mutex_lock(&models.mutex);
    served_model *done = models.done;
    if (done) models.done = models.job = NULL;
    const int works = models.job != NULL;
    pthread_mutex_unlock(&models.mutex);
    if (done) model_done(done), waiting_turn();
    served_model *wanted = works ? NULL : model_wanted(), *leaving = NULL;
    int n = 0, busy = 0;
    for (int i = 0; i < models.n; i++) {
        n += is_loaded(&models.list[i]);
        if (models.list[i].state == MODEL_LEAVING) leaving = &models.list[i];
    }
    if (works || (!wanted && !leaving)) return;
    const int full = wanted && wanted->no_room && n;
    served_model *first = full ? model_to_go(&busy) : NULL;
    if (leaving && (!full || !busy) && leaving != first) { /* its room is not needed any more */
        set_state(leaving, MODEL_LOADED);
        waiting_turn();
    }
    if (wanted && !full) give_loader(wanted, MODEL_LOADING);
    else if (first && !busy) give_loader(first, MODEL_UNLOADING);
    else if (first && !leaving) set_state(first, MODEL_LEAVING);
}

/* ============================================================================
 * >>page   The chat page at /: HTML, style and script, as lines. It is made from src/page/ by src/amalgamate.py.
 * ============================================================================
 * Served as three routes so that the Content-Security-Policy can forbid everything inline. Text of the model becomes text nodes,
 * never markup. Conversations stay in the browser. */

/* generated: begin */
static const char *const page_html[] = {
    ("<!doctype html><html lang=en><head><meta name=viewport content=\"width=device-width, initial-scale=1\"><title>llm.h</title"
     "><link rel=icon href=\"data:,\"><link rel=stylesheet href=page.css><script src=page.js defer></script></head><body><button"
     " class=skip data-do=skip>Skip to the message</button><aside id=side aria-label=\"Side bar\"><div class=bar><b>llm.h</b><bu"
     "tton class=tool data-do=side data-icon=close aria-label=\"Close the list\" id=unside></button></div><button id=new data-do"
     "=newChat data-icon=new>New chat</button><label class=search data-icon=search><input id=search type=search placeholder=Se"
     "arch aria-label=\"Search conversations\"></label><nav id=list aria-label=Conversations></nav><div id=about></div></aside><"
     "main id=main><header><button id=menu class=tool data-do=side data-icon=menu aria-label=Conversations aria-expanded=false"
     "></button><h1 id=title>New chat</h1><button id=tune data-do=tune data-icon=settings aria-label=Settings aria-expanded=fa"
     "lse><span>Settings</span></button></header><div id=log role=region aria-label=Conversation tabindex=0></div><form id=for"
     "m><button id=jump class=tool data-do=jump data-icon=down aria-label=\"To the newest message\" hidden></button><div class=b"
     "ox><div id=files></div><textarea id=input rows=1 placeholder=Message aria-label=Message dir=auto></textarea><div class=r"
     "ow><button class=tool data-do=attach data-icon=clip aria-label=\"Attach files\"></button><select id=model aria-label=Model"
     "></select><span id=meter role=meter aria-label=\"Context used\" hidden></span><button id=line class=tool data-do=newLine d"
     "ata-icon=line aria-label=\"New line\"></button><button id=queue class=send data-do=queue data-icon=up aria-label=\"Queue th"
     "is message\" hidden></button><button id=send class=send type=submit data-icon=up aria-label=Send></button></div></div><p "
     "class=hint>Enter sends &middot; Shift+Enter starts a new line &middot; Esc stops</p></form></main><dialog id=settings ar"
     "ia-label=Settings></dialog><input id=pick type=file multiple hidden><input id=load type=file accept=.json hidden><div id"
     "=toast role=status></div><div id=say class=hidden role=log aria-label=Answers></div></body></html>")};

static const char *const page_css[] = {
    (":root{color-scheme:light dark;--d:light-dark(#fff,#17181a);--c:light-dark(#1c1e21,#e9e9e6);--j:light-dark(#5d626a,#a3a8b"
     "0);--a:1px solid light-dark(#e3e3df,#323539);--h:light-dark(#8b8f96,#70757d);--i:1px solid var(--h);--e:light-dark(#f7f7"
     "f5,#1e2023);--k:light-dark(#edf1f7,#2a2e35);--b:light-dark(#2457a7,#8ab4f8);--g:light-dark(#b3261e,#f4a8a1);--l:light-da"
     "rk(#8a5300,#e6b656);--f:0 4px 24px light-dark(#0001,#0007)}*{box-sizing:border-box}html,body{height:100%;margin:0}body{b"
     "ackground:var(--d);color:var(--c);font:16px/1.6 system-ui,sans-serif}button,input,textarea,select{font:inherit;color:inh"
     "erit;background:var(--d);border:var(--i);border-radius:10px;padding:6px 10px;min-width:0}button{border:var(--a);padding:"
     "5px 13px;cursor:pointer}button:hover,.item:hover,.item.on{background:var(--k)}button:disabled{opacity:.4;cursor:default}"
     ":focus-visible{outline:2px solid var(--b);outline-offset:1px}"),
    ("::placeholder{color:var(--j);opacity:1}[hidden],#toast:empty{display:none!important}a,.f{color:var(--b)}h1,h2,p{margin:0"
     ";font-size:inherit}svg{width:18px;height:18px;flex:none;fill:none;stroke:currentColor;stroke-width:1.8;stroke-linecap:ro"
     "und;stroke-linejoin:round}body,.bar,.tool,#new,#tune,.search,.item,header,.tools,.chip,.chip summary,.row,#meter,.send,#"
     "toast,.wait,.check{display:flex;align-items:center;gap:8px}body,.item{align-items:stretch;gap:0}.tool,.stats,#list :is(h"
     "2,p,small),#about,.tools,.notice,.cut,.think,.wait,.empty p,.body blockquote,.code .bar,#model,#meter,.hint,dialog :is(l"
     "abel,p),.c{color:var(--j)}#new,#tune,#search,#model,.think,.notice,.cut,.chip,.item,.empty button,.acts button,legend{fo"
     "nt-size:14.5px}.tools,#about,.hint,.code .bar,#list h2,#meter,dialog :is(label,p){font-size:13px}.hidden,.skip:not(:focu"
     "s){position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}"),
    (".skip{position:fixed;top:8px;z-index:9}.tool{border:0;background:none;padding:6px}.tool:hover{color:var(--c)}.bar{justif"
     "y-content:space-between}.item a,.item small,.stats,h1{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}.notice,"
     ".chip,.code{border:var(--a);border-radius:12px}aside,main{display:flex;flex-direction:column}aside{width:264px;flex:none"
     ";gap:8px;padding:12px 10px;background:var(--e);border-right:var(--a)}aside .bar{height:34px;padding-left:8px}#unside,#me"
     "nu,#line{display:none}.search{position:relative}.search svg{position:absolute;left:11px}#search{padding-left:38px;border"
     ":var(--a)}#list{flex:1;overflow-y:auto;margin:0 -4px;padding:0 4px}#list :is(h2,p){margin:14px 8px 4px}.item{border-radi"
     "us:9px}.item a{flex:1;padding:6px 8px;color:inherit;text-decoration:none}.item small{display:block}.item input{flex:1}.i"
     "tem .tool{display:none;padding:5px}.item.on .tool,.item:hover .tool{display:flex}"),
    ("#about{padding:0 8px;overflow-wrap:anywhere}.dot,.wait::before{content:\"\";display:inline-block;width:10px;height:10px;ma"
     "rgin-right:8px;border-radius:50%;background:var(--b);animation:beat 1.2s infinite}@keyframes beat{50%{opacity:.3}}main{f"
     "lex:1;min-width:0}header{padding:10px 16px}h1{flex:1;font-size:15px}#log{flex:1;overflow-y:auto;padding:12px 16px 8px;ou"
     "tline-offset:-2px}#log>*{max-width:760px;margin:0 auto 14px;overflow-wrap:anywhere}.user .body,.edit{display:flex;flex-d"
     "irection:column;align-items:flex-end;gap:6px}.bubble{background:var(--k);border-radius:18px;padding:9px 16px;max-width:8"
     "5%;white-space:pre-wrap}.queued .bubble{background:none;border:1px dashed var(--h)}.tools{gap:2px;min-height:32px;margin"
     ":2px -6px 0;opacity:0}.user .tools{justify-content:flex-end}.msg:is(:hover,:focus-within,:last-child,.queued) .tools{opa"
     "city:1}.stats{padding:0 6px}.notice{margin:10px 0 4px;padding:9px 14px}"),
    (".notice button,.cut button{margin:8px 8px 0 0;color:var(--c)}:is(.notice,.cut,.acts) button{padding:3px 12px}.error,.err"
     "or p{color:var(--g);border-color:var(--g)}.cut{text-align:center;border-bottom:var(--i);padding-bottom:10px}.think{margi"
     "n-bottom:12px}.think div{margin-top:6px;white-space:pre-wrap}.think div,.body blockquote{padding-left:14px;border-left:3"
     "px solid var(--h)}summary{cursor:pointer}.chip{max-width:100%;padding:2px 10px}img{height:180px;max-width:100%;border-ra"
     "dius:8px;object-fit:contain}#files img{height:36px;max-width:90px;margin:2px 0;object-fit:cover}.chip pre{max-height:300"
     "px;margin:6px 0;overflow:auto;font-size:13px}.empty{padding-top:18vh;text-align:center}.empty h2{font-size:26px;font-wei"
     "ght:600}.empty p{margin:4px 0 22px}.empty div,.acts,#files{display:flex;flex-wrap:wrap;gap:8px}.empty div{justify-conten"
     "t:center}.empty button{border-radius:18px}.body :is(p,li,td,th,h3,h4,h5,h6){unicode-bidi:plaintext;"),
    ("text-align:start;white-space:pre-line}.body :is(p,ul,ol,blockquote){margin:0 0 12px}.body>:last-child{margin-bottom:0}.b"
     "ody :is(h3,h4,h5,h6){margin:20px 0 8px;font-size:1.08em;line-height:1.35}.body h3{font-size:1.4em}.body h4{font-size:1.2"
     "em}.body>:first-child{margin-top:0}.body :is(ul,ol){padding-left:28px}.body :is(li,li>ul,li>ol){margin:4px 0}.task{list-"
     "style:none;text-indent:-22px}.body li>.code{margin-top:6px}.body hr{border:0;border-top:var(--a);margin:20px 0}code,pre{"
     "font:.9em/1.5 ui-monospace,monospace}.body code{background:var(--e);border:var(--a);border-radius:6px;padding:1px 5px}.c"
     "ode{margin:0 0 14px;overflow:hidden;background:var(--e)}.code .bar{padding:4px 6px 0 14px}.code button{border:0;backgrou"
     "nd:none;padding:2px 8px}.code pre{margin:0;padding:6px 14px 14px;overflow-x:auto;font-size:14px}.body pre code{font:inhe"
     "rit;background:none;border:0;padding:0;white-space:pre}.wide,.display{display:block;"),
    ("overflow-x:auto;padding-bottom:6px}table{border-collapse:collapse;font-size:15px;margin-bottom:8px}.body :is(th,td){bord"
     "er-bottom:var(--a);padding:7px 20px 7px 0;vertical-align:top;overflow-wrap:normal}.body .center{text-align:center}.body "
     ".right{text-align:end}.body .left{text-align:start}math{font-size:1.1em}mtd{padding:3px 4px}.boxed{border:1px solid;padd"
     "ing:3px}.c{font-style:italic}.s{color:light-dark(#1a6b3c,#8fd0a5)}.k{color:light-dark(#7a3e9d,#cfa6ee)}.n,.m,#meter.warn"
     "{color:var(--l)}.v,#meter.bad{color:var(--g)}form{position:relative;max-width:792px;margin:0 auto;padding:0 16px 8px}.bo"
     "x{padding:6px;border:var(--i);border-radius:22px;box-shadow:var(--f)}.box:focus-within{border-color:var(--b)}#input,.edi"
     "t textarea,#search,form{width:100%}#input{resize:none;field-sizing:content;max-height:40vh;border:0;padding:7px 12px 3px"
     ";outline:none}#files:not(:empty){padding:4px 6px}.row .tool{padding:9px}"),
    ("#model{margin-right:auto;border:0;padding:4px;max-width:45%;text-overflow:ellipsis;cursor:pointer}progress{width:40px;ac"
     "cent-color:currentcolor}.send{justify-content:center;width:36px;height:36px;flex:none;padding:0;border:0;border-radius:5"
     "0%}.send,.main{background:var(--b)!important;color:var(--d)}.stop svg{fill:currentColor}.hint{margin-top:6px;text-align:"
     "center}#jump{position:absolute;top:-44px;left:calc(50% - 16px);border:var(--a);background:var(--d);border-radius:50%;box"
     "-shadow:var(--f)}.drop .box{outline:2px dashed var(--b);outline-offset:3px}#toast{position:fixed;top:56px;left:50%;trans"
     "form:translateX(-50%);z-index:5;max-width:92vw;width:max-content;padding:7px 10px 7px 18px;border-radius:14px;background"
     ":var(--c);color:var(--d);box-shadow:var(--f)}#toast button{background:none;color:inherit}dialog{width:350px;height:100%;"
     "max-height:none;flex:none;position:static;margin:0;border:0;border-left:var(--a);"),
    ("padding:10px 18px;background:var(--e);color:var(--c);overflow-y:auto}dialog:modal{position:fixed;inset:0 0 0 auto;max-wi"
     "dth:100%}::backdrop{background:#0007}fieldset{display:grid;grid-template-columns:1fr 1fr;gap:10px 12px;margin:0;padding:"
     "12px 0 16px;border:0;border-bottom:var(--a)}legend{float:left;padding:0;font-weight:600}dialog :is(.wide,.acts,legend){g"
     "rid-column:1 / -1;padding:0;overflow:visible}dialog label{min-width:0;white-space:nowrap}dialog label :is(input,textarea"
     ",select){display:block;width:100%;color:var(--c);font-size:14px}dialog .check{align-self:end;padding-bottom:8px}.check i"
     "nput{width:auto!important}dialog p{margin:12px 0}@media (max-width: 860px){aside{position:fixed;inset:0 auto 0 0;z-index"
     ":4;width:min(310px,86%);display:none;box-shadow:var(--f)}.side aside,#menu,#unside,#line{display:flex}.side main{opacity"
     ":.35}}@media (max-width: 560px){#tune span,.hint{display:none}"),
    ("#tune{border:0}header,form{padding:8px}.empty{padding-top:12vh}.wide table{width:max-content}.body :is(th,td){min-width:"
     "4em;max-width:14em}input,textarea,select{font-size:16px!important}}@media (hover: none){.tools{opacity:1}#line{display:f"
     "lex}.hint{display:none}}@media (prefers-reduced-motion){*{animation:none!important}}@media print{aside,form,.tools{displ"
     "ay:none!important}html,body,#log{display:block;overflow:visible;height:auto}}")};

static const char *const page_js[] = {
    "\"use strict\";",
    ("let H=document,af=void 0,S=Object,j=null,u=Math,aJ=Number,aX=RegExp,aZ=String,av=JSON,ab=Date,K=\"key\",dA=\"aria-hidden\",X"
     "=\"true\",cf=\"button\",cg=\"data-do\",ao=\"aria-label\",bw=\"textarea\",y=\" \",O=\"|\",bz=\"para\",bA=\"list\",bB=\"item\",ba=\"left\",bD=\"r"
     "ight\",aM=\"code\",E=\"\\n\",C=\"div\",W=\"span\",w=\"input\",an=\"mrow\",Y=\"settings\",az=\"model\",ch=\"shorten\",ai=\"system\",ci=\"assista"
     "nt\",bx=\"error\",a$=\"tune\",cj=\"Settings\",by=\"close\",aA=\"user\",a_=\"edit\",ck=\"data-focus\",cl=\"presets\",bC=\"preset\",bb=\"prese"
     "tName\",bc=\"enter\",dB=\".item input\",cm=\"change\",g=a=>H.getElementById(a),bL=\"http://www.w3.org/\",dU={svg:bL+\"2000/svg\",ma"
     "th:bL+\"1998/Math/MathML\"},aa=H.body,U={},now=()=>performance.now(),aw=(b,h=bL+\"1999/xhtml\")=>{if(I(b))return H.createTex"
     "tNode(b);let[e,d,...g]=b,a=H.createElementNS(dU[e]||h,e);for(let c in d)if(c!==K)a.setAttribute(c,d[c]);for(let f of g)a"
     ".append(aw(f,a.namespaceURI));a.tree=b;return a},aV=a=>a&&!I(a)?a[1].key:af,ep=(a,b)=>I(b)?a.nodeType===3:a.tree&&a.tree"
     "[0]===b[0]&&aV(a.tree)===aV(b),eL=(a,b)=>"),
    ("{if(I(b)){let d=0;while(d<b.length&&a.data[d]===b[d])d++;if(a.data!==b)a.replaceData(d,a.length,b.slice(d))}else if(a.tr"
     "ee!==b){let[,f]=a.tree,[,e]=b;for(let c in f)if(!(c in e))a.removeAttribute(c);for(let c in e)if(e[c]!==f[c]&&c!==K)a.se"
     "tAttribute(c,e[c]);M(a,b.slice(2));a.tree=b}},M=(c,bE)=>{let f=new Map();for(let e of c.children)if(aV(e.tree)!==af)f.se"
     "t(aV(e.tree),e);let a=c.firstChild;for(let d of bE){let b=f.get(aV(d))||(a&&ep(a,d)&&a);if(b)eL(b,d);if(b===a&&a)a=a.nex"
     "tSibling;else c.insertBefore(b||aw(d,c.namespaceURI),a)}while(a){let g=a;a=a.nextSibling;g.remove()}},dM={new:\"M12 5v14M"
     "5 12h14\",menu:\"M4 7h16M4 12h16M4 17h16\",close:\"M6 6l12 12M18 6L6 18\",up:\"M12 19V5M6 11l6-6 6 6\",down:\"M12 5v14M6 13l6 6 "
     "6-6\",stop:\"M7 7h10v10H7z\",copy:\"M9 9h11v11H9zM15 9V4H4v11h5\",edit:\"M4 20l1-4L16 5l3 3L8 19zM14 7l3 3\",again:\"M20 12a8 8 "
     "0 1 1-2.3-5.6L20 9M20 4v5h-5\",delete:\"M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13\",clip:\"M19 11l-8 8a5 5 0 0 1-7-7l9-9a3.3 3.3 0 "
     "0 1 5 5l-9 8a1.6 1.6 0 0 1-2-2l7-7\","),
    ("settings:\"M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4\",line:\"M19 6v6a2 2 0 0 1-2 2H6M10 10l-4 4 4 4\",left:\"M14 6l-6 6 6 6"
     "\",right:\"M10 6l6 6-6 6\",search:\"M10.5 17a6.5 6.5 0 1 1 0-13 6.5 6.5 0 0 1 0 13zM15.5 15.5L20 20\",file:\"M6 3h8l4 4v14H6zM"
     "14 3v5h4\",check:\"M5 13l4 4L19 7\"},aG=a=>[\"svg\",{viewBox:\"0 0 24 24\",[dA]:X},[\"path\",{d:dM[a]}]],Z=(d,b,a,c)=>[cf,{class:"
     "\"tool\",[cg]:d,title:a,[ao]:a,...c},aG(b)],ej=(e,b)=>{let d=()=>{let a=aw([bw,{}]),c=H.activeElement;a.value=e;aa.append("
     "a);a.select();if(H.execCommand(\"copy\"))b();a.remove();if(c)c.focus()};if(navigator.clipboard)navigator.clipboard.writeTe"
     "xt(e).then(b,d);else d()},cu=24,A=S.assign,cx=/^(?:(?:\\*[ \\t]*){3,}|(?:_[ \\t]*){3,}|(?:-[ \\t]*){3,})$/,dJ=/^(?:(`{3,})(["
     "^`]*)|(~{3,})(.*))$/,dO=/^(?:[*+-]|(\\d{1,9})([.)]))(?=[ \\t]|$)/,ea=/^\\|?[ \\t]*:?-+:?(?:[ \\t]*\\|[ \\t]*:?-+:?)*(?:[ \\t]*\\|"
     ")?$/,dZ=\"\\\"(?:[^\\\"\\\\\\\\]|\\\\\\\\[^]){0,999}\\\"|'(?:[^'\\\\\\\\]|\\\\\\\\[^]){0,999}'|\\\\((?:[^()\\\\\\\\]|\\\\\\\\[^]){0,999}\\\\)\",dY=\"<((?:[^<"
     ">\\\\\\\\\\\\n]|\\\\\\\\.){0,999})>\",dP=\"\\\\[((?:[^[\\\\]\\\\\\\\]|\\\\\\\\[^]){0,999})\\\\]\","),
    ("d$=/^\\[((?:[^[\\]\\\\]|\\\\.){1,999})\\]:[ \\t]*(?:<([^<>]*)>|([^\\s<]\\S*))(?:[ \\t]+(?:\"[^\"]*\"|'[^']*'|\\([^()]*\\)))?$/,cA={$$:\"$"
     "$\",\"\\\\[\":\"\\\\]\"},bZ=a=>a===y||a===\"\\t\",P=a=>a[a.length-1],bS=d=>{let a=[\"\"];for(let b of d.trim().match(/\\\\\\||\\\\|\\||[^|\\\\"
     "]+/g)||[]){if(b===O)a.push(\"\");else a[a.length-1]+=b==\"\\\\|\"?O:b}if(a[1]!==af&&!a[0].trim())a.shift();if(a[1]!==af&&!P(a)"
     ".trim())a.pop();return a.map(c=>c.trim())},eh=ad=>{let T={kids:[]},F=new Map(),h=[T],a=j,b,o,n,r,t=()=>r===h.length,s=()"
     "=>a?.type===bz&&!a.math?a:j,q=()=>{let f=0,e=o;for(;bZ(b[f]);f++)e+=b[f]===y?1:4-e%4;return[e-o,f]},p=D=>{while(D>0&&b){"
     "let d=b[0]===\"\\t\"?4-o%4:1,H=u.min(D,d);b=y.repeat(d-H)+b.slice(1);o+=H;D-=H}},w=X=>{a=j;while(h.length>X){let e=h.pop();"
     "if(e.kids.length)e.end=u.max(e.end,P(e.kids).end)}},m=v=>{w(r);if(P(h).type===bA&&v.type!==bB)w(h.length-1);P(h).kids.pu"
     "sh(A(v,{start:n,end:n}));if(v.kids)h.push(v);else a=v;r=h.length},V=d=>{p(d);b=b.slice(1);o++;if(bZ(b[0]))p(1)},_=()=>{f"
     "or(let f=1;f<h.length;f++){let e=h[f],[d,"),
    ("l]=q();if(e.type==\"quote\"){if(d>3||b[l]!=\">\")return f;V(d);e.end=n}else if(e.type===bB){if(l===b.length?!e.kids.length:d"
     "<e.width)return f;p(e.width)}}return h.length},Z=()=>{let[d,l]=q(),g=b.slice(l).trimEnd();a.end=n;if(d<4&&g.startsWith(a"
     ".mark)&&/^(.)\\1*$/.test(g))a=j;else{p(u.min(d,a.indent));a.lines.push(b)}},N=()=>{let[d,l]=q(),M=l===b.length;if(d<4&&!M"
     ")return!1;p(4);a.lines.push(b);if(!M)a.end=n;return!0},L=i=>{a.lines.push(i);a.end=n},$=()=>{let i=b.trim(),k=cA[a.math]"
     ";if(i)L(i);if(!i||i.endsWith(k))a=j},W=g=>s()&&t()&&/^(?:=+|-+)$/.test(g),aa=()=>{let[d,l]=q(),g=b.slice(l),c=dO.exec(g)"
     ";if(d>3||h.length>cu)return!1;if(g[0]==\">\"){m({type:\"quote\",kids:[]});V(d);return!0}if(!c||cx.test(g)||W(g.trimEnd()))re"
     "turn!1;let J=g.slice(c[0].length),B=c[2]||g[0],ay=c[1]&&aJ(c[1]),Q=h[r-1];if(s()&&t()&&(!J.trim()||(c[1]&&ay!==1)))retur"
     "n!1;if(Q.type!==bA||Q.kind!==B)m({type:bA,kind:B,number:ay,kids:[]});m({type:bB,kids:[]});p(d);b=J;o+=c[0].length;let[U]"
     "=q(),S=b.trim()&&U<5?U:1;p(S);P(h).width=d+c[0].length+S;"),
    ("return!0},ac=G=>{let C=s(),z=C&&t()&&P(C.lines),B=e=>(e[0]==\":\"?1:0)+(e.endsWith(\":\")?2:0);if(!z||!z.includes(O)||G.leng"
     "th<2||!ea.test(G))return!1;let K=bS(G).map(e=>[\"\",ba,bD,\"center\"][B(e)]);if(bS(z).length!==K.length)return!1;C.lines.pop"
     "();C.end--;m({type:\"table\",align:K,lines:[z]});a.start--;return!0},ab=()=>{let[d,l]=q(),g=b.slice(l),k=g.trimEnd(),c;if("
     "d>3){if(s())return!1;m({type:aM,lines:[]});return N()}if((c=dJ.exec(g))){m({type:\"fence\",mark:c[1]||c[3],info:(c[2]||c[4"
     "]||\"\").trim(),indent:d,lines:[]});return!0}if((c=/^#{1,6}(?=[ \\t]|$)/.exec(g))){let x=k.slice(c[0].length).trim(),f=x.le"
     "ngth;while(x[f-1]==\"#\")f--;m({type:\"heading\",level:c[0].length,lines:[!f||bZ(x[f-1])?x.slice(0,f).trim():x]})}else if(!s"
     "()&&(c=d$.exec(k))){if(!F.has(bl(c[1])))F.set(bl(c[1]),co(c[3]||c[2]));w(r)}else if(ac(k))return!0;else if(W(k))A(a,{typ"
     "e:\"heading\",level:k[0]==\"=\"?1:2,end:n});else if(cx.test(g))m({type:\"hr\"});else return!1;a=j;return!0},Y=()=>{let i=b.tri"
     "mStart(),R=i.slice(0,2),k=cA[R];if(s()||"),
    ("(a?.type==\"table\"&&t()&&q()[0]<4))L(i);else m({type:bz,lines:[i],math:k&&!i.slice(2).includes(k)&&R})};ad.replace(/\\r\\n?"
     "/g,E).replace(/\\n$/,\"\").replace(/\\0/g,\"\\ufffd\").split(E).forEach((i,f)=>{[b,o,n]=[i,0,f];r=_();let I=a&&t()&&(a.math?\"ma"
     "th\":a.type);if(I==\"fence\")Z();else if(I==\"math\")$();else if(I!==aM||!N()){while(aa());if(!b.trim())w(r);else if(!ab())Y("
     ")}});w(1);return{kids:T.kids,refs:F}},be=/[\\p{P}\\p{S}]/u,ct=/[\\u1100-\\u11ff\\u2e80-\\ua4cf\\uac00-\\ud7ff\\uf900-\\ufaff\\ufe30"
     "-\\ufe4f\\uff00-\\uffef]/,dW=/[^\\\\`*_~[\\]!<&$:\\n]+/y,dT=\"[!-/:-@[-`{-~]\",dI=\"&(?:#x([0-9a-f]{1,6})|#(\\\\d{1,7})|([a-z][a-z0-"
     "9]{1,31}));\",dF=/<([a-z][a-z0-9+.-]{1,31}:[^\\s<>]*|([\\w.!#$%&'*+/=?^`{|}~-]+@[\\w-]+(?:\\.[\\w-]+)*))>/iy,d_=new aX(\":\\\\/\\\\"
     "/(?:[^\\\\s@/[\\\\]()<>]{1,99}@)?[\\\\p{L}\\\\p{N}](?:[\\\\p{L}\\\\p{N}.-]{0,252}[\\\\p{L}\\\\p{N}])?(?::\\\\d{1,5})?(?:[/?#](?:[^\\\\s<>\\\\u"
     "ff5c()[\\\\]{}.,\\\"'?!;:]|\\\\[[^\\\\s\\\\]]{0,999}\\\\]|\\\\([^\\\\s)]{0,999}\\\\)|\\\\{[^\\\\s}]{0,999}\\\\}|(?:\\\\.+|!+|[,;:?'\\\"])(?=[^\\\\s.,;"
     ":!?)\\\\]}\\\"']))+|\\\\/)?\",\"uy\"),bd=new Map("),
    ("),cR=a=>{if(!bd.has(a)&&bd.size<5000){let b=new DOMParser().parseFromString(\"&\"+a+\";\",\"text/html\").body.textContent;bd.s"
     "et(a,b.endsWith(\";\")&&a!=\"semi\"?\"\":b)}return bd.get(a)||\"\"},cO={},L=(a,c,b)=>{if(I(a))a=cO[a]=cO[a]||new aX(a,\"iy\");a.la"
     "stIndex=b;return a.exec(c)},bl=a=>a.trim().replace(/\\s+/g,y).toLowerCase().toUpperCase(),cX=(d,b,e,c)=>{let a=b?parseInt"
     "(b,16):aJ(e);if(c)return cR(c)||d;return a&&a<0x110000&&(a<0xd800||a>0xdfff)?aZ.fromCodePoint(a):\"\\ufffd\"},co=d=>d.repla"
     "ce(new aX(`\\\\\\\\(${dT})|${dI}`,\"gi\"),(a,b,...c)=>b||cX(a,...c)),b$=(a,b)=>[\"a\",/^(?:https?:\\/\\/|mailto:)/i.test(a)?{href:"
     "a,rel:\"noreferrer\",target:\"_blank\"}:{},...b],db=a=>/^\\s*(?:javascript|vbscript|file|data):/i.test(a),ev=(b,k)=>{let g=h="
     ">h+L(/\\s*/y,b,h)[0].length,c=g(k+1),f=L(dY,b,c),a=c,d=0;if(f)a+=f[0].length;else if(b[c]==\"<\")return j;else for(;a<b.len"
     "gth&&a<c+2000&&d<33&&b[a]>y&&b[a]!=\"\\x7f\";a++){if(b[a]==\"\\\\\"&&b[a+1]>y)a++;else if(b[a]==\"(\")d++;else if(b[a]==\")\"&&--d<"
     "0)break}let l=f?f[1]:b.slice(c,a),e=g(a),"),
    ("i=e>a&&L(dZ,b,e);a=i?g(e+i[0].length):e;return d<1&&b[a]==\")\"?[co(l),a+1]:j},eg=(c,a)=>{let d=/(?:^|[^a-z0-9.+-])(https?"
     ")$/i.exec(c.slice(u.max(0,a-6),a)),b=d&&L(d_,c,a);return b&&[a-d[1].length,a+b[0].replace(/\\*{1,99}$/,\"\").length]},eu=(d"
     ",e,b,c)=>{let a=d.slice(e,b);if(!/[\\p{L}\\d]/u.test(a))return!1;if(c==\"$\")return!/^\\s|\\s$/.test(a)&&!/\\d/.test(d[b+1]||\"\""
     ")&&!/\\p{Ll}{3}|\\s\\p{Ll}{2}\\s/u.test(a.replace(/\\\\[a-z]+|\\{[^{}]*\\}/gi,y));return/[\\\\^_=+\\-*/<>\\d|]/.test(a)||(c!=\"\\\\]\"&&"
     "/^\\s*\\p{L}\\s*$/u.test(a))},eF=(c,a,f)=>{let e=a?(/[\\udc00-\\udfff]/.test(c[a-1])?c.slice(a-2,a):c[a-1]):y,d=f<c.length?aZ"
     ".fromCodePoint(c.codePointAt(f)):y,j=b=>/\\s/.test(b),l=b=>be.test(b)&&!ct.test(b),k=b=>j(b)||be.test(b)||ct.test(b),g=!j"
     "(d)&&(!l(d)||k(e)),i=!j(e)&&(!l(e)||k(d)),h=f-a,m=c[a]==\"_\";if(c[a]==\"~\")return{mark:\"~~\",n:h>>1,len:0,open:g,close:i};r"
     "eturn{mark:c[a],n:h,len:h,open:g&&(!m||!i||be.test(e)),close:i&&(!m||!g||be.test(d))}},I=a=>typeof a==\"string\",cn=b=>b.m"
     "ap(a=>I(a)?a:cn(a.slice(2))).join(\"\"),b_=a=>"),
    ("A(a,{deep:1+a.slice(2).reduce((b,c)=>u.max(b,c.deep||0),0)}),dD=a=>{if(I(a))return[a];let b=a.slice(2).flatMap(dD);retur"
     "n a[0]==\"a\"?b:[b_([a[0],a[1],...b])]},df=d=>{let a=[];for(let c of d){let b=c.mark?c.mark.repeat(c.n):c;if(I(b)&&I(P(a))"
     ")a[a.length-1]+=b;else if(b!==\"\")a.push(b)}return a},cW=p=>{let c=[],e=[],g=new Map(),q=(b,f)=>b.mark===f.mark&&!((b.clo"
     "se||f.open)&&f.len%3&&(b.len+f.len)%3===0),k=i=>{e.length=i;for(let[o,r]of g)if(r>i)g.set(o,i)};for(let a of p){let l=a."
     "mark+a.open+a.len%3;while(a.mark&&a.close&&a.n){let m=g.get(l)||0,d=e.length-1;while(d>=m&&!q(c[e[d]],a))d--;if(d<m){g.s"
     "et(l,e.length);break}let h=e[d],b=c[h],j=a.len&&a.n>1&&b.n>1?2:1,n=b_([a.len?j>1?\"strong\":\"em\":\"del\",{},...df(c.slice(h+"
     "1))]);if(n.deep>cu){k(0);break}b.n-=j;a.n-=j;c.length=h+(b.n?1:0);k(b.n?d+1:d);c.push(n)}if(a.mark&&a.open&&a.n)e.push(c"
     ".length);c.push(a)}return df(c)},et=(b,A)=>{let o=[],w=[],K={},a=0,f=\"\",n=j,s=0,h=(r,c)=>{if(f)o.push(f);if(r)o.push(r);"
     "f=\"\";a=c},B=M=>{f+=M;a+=M.length},x=c=>h("),
    ("[\"br\",{}],b[c]===E?c+1:c),T=()=>{let q=0;while(b[a-q-1]===y)q++;if(q){f=f.slice(0,-q);h(j,a)}if(q>1)x(a);else B(E)},z=(O"
     ",c)=>{let t=a+O.length;if(t<=(K[c]?\?-1))return!1;let g=b.indexOf(c,t);if(g<0||!eu(b,t,g,c)){K[c]=g<0?Infinity:g;return!1"
     "}let r=ey(b.slice(t,g),c==\"$$\"||c==\"\\\\]\");if(r)h(r,g+c.length);else if(c==\"$\")return!1;else B(b.slice(a,g+c.length));ret"
     "urn!0},N=()=>{let e=b[a+1];if((e==\"(\"&&z(\"\\\\(\",\"\\\\)\"))||(e==\"[\"&&z(\"\\\\[\",\"\\\\]\")))return;if(e===E)x(a+1);else if(e&&L(dT,"
     "e,0)){f+=e;a+=2}else B(\"\\\\\")},R=()=>{let i=L(/`+/y,b,a)[0].length;if(!n){n=new Map();for(let d of b.matchAll(/`+/g)){if("
     "!n.has(d[0].length))n.set(d[0].length,{next:0,at:[]});n.get(d[0].length).at.push(d.index)}}let ae=n.get(i)||{next:0,at:["
     "]};while(ae.at[ae.next]<a+i)ae.next++;let c=ae.at[ae.next];if(c===af)return B(\"`\".repeat(i));let m=b.slice(a+i,c).replac"
     "e(/\\n/g,y);if(m[0]===y&&P(m)===y&&m.trim())m=m.slice(1,-1);h([aM,{},m],c+i)},S=()=>{let c=a+L(/\\*+|_+|~+/y,b,a)[0].lengt"
     "h,J=eF(b,a,c),G=b[a]==\"~\"&&(c-a)%2?\"~\":"),
    ("\"\";if(!J.close)f+=G;h(J,c);if(J.close)f=G},U=k=>{let p=a+1,C=b[p]==\"(\"&&ev(b,p);if(C||!A.size)return C;let v=L(dP,b,p),I"
     "=b.slice(k.from,a),c=v?p+v[0].length:p,F=v?.[1].trim()?v[1]:I.length<1000?I:\"\";return A.has(bl(F))&&[A.get(bl(F)),c]},H="
     "l=>{h(l,a+l.length);w.push({image:l[1],index:o.length-1,from:a})},Q=()=>{let k=w.pop(),i=w.length,g=k&&(k.image||i>=s)&&"
     "U(k);s=u.min(s,i);if(!g||db(g[0]))return B(\"]\");h(j,a);let D=cW(o.splice(k.index).slice(1));h(b_(b$(g[0],k.image?[cn(D)|"
     "|g[0]]:D.flatMap(dD))),g[1]);if(!k.image)s=i};while(a<b.length){let e=b[a],d;if((d=L(dW,b,a)))B(d[0]);else if(e==\"\\\\\")N("
     ");else if(e==\"`\")R();else if(e==\"*\"||e==\"_\"||e==\"~\")S();else if(e==\"[\")H(\"[\");else if(e==\"!\"&&b[a+1]==\"[\")H(\"![\");else i"
     "f(e==\"]\")Q();else if(e===E)T();else if(e==\"$\"){let l=b[a+1]==\"$\"?\"$$\":\"$\";if(!z(l,l))B(l)}else if(e==\"&\"&&(d=L(dI,b,a)))"
     "{f+=cX(...d);a+=d[0].length}else if(e==\"<\"&&(d=L(/<br[ \\t]*\\/?>/iy,b,a)))x(a+d[0].length);else if(e==\"<\"&&(d=L(dF,b,a))&"
     "&!db(d[1]))h(b$(d[2]?\"mailto:\"+d[2]:d[1],"),
    ("[d[1]]),a+d[0].length);else if(e==\":\"&&(d=eg(b,a))&&f.length>=a-d[0]){f=f.slice(0,f.length-(a-d[0]));h(b$(b.slice(...d),"
     "[b.slice(...d)]),d[1])}else B(e)}h(j,a);return cW(o)},cM=(c,d)=>{let a=c.replace(/[^\\w+#.-]/g,\"\").slice(0,30),b=[C,{clas"
     "s:\"bar\"},[W,{},a||\"text\"],[cf,{[cg]:\"copyCode\"},\"Copy\"]];return[C,{class:aM},b,[\"pre\",{tabindex:\"0\"},[aM,a?{class:\"langu"
     "age-\"+a}:{},...er(d,a)]]]},ex=F=>{let{kids:x,refs:D}=eh(F);let G=10000,h=A=>et(A.join(E).trimEnd(),D),l=p=>p.some((e,d)="
     ">d&&p[d-1].end+1<e.start),v=(b,g)=>{let[f]=b.kids,c=f?.type===bz&&/^\\[([ xX])\\](?=[ \\t]+\\S)/.exec(f.lines[0]||\"\"),n=c&&["
     "w,{type:\"checkbox\",disabled:\"\",...(c[1]===y?{[ao]:\"To do\"}:{[ao]:\"Done\",checked:\"\"})}];if(c)f.lines[0]=f.lines[0].slice("
     "3);let i=b.kids.flatMap(e=>e.type===bz&&!g?h(e.lines):j(e));if(c&&g)i[0].splice(2,0,n);else if(c)i.unshift(n);return[\"li"
     "\",c?{class:\"task\"}:{},...i]},Q=(H,s,z)=>{let o=bS(z);return[\"tr\",{},...s.flatMap((k,d)=>d>=o.length&&--G<0?[]:[[H,k?{cla"
     "ss:k}:{},...h([o[d]||\"\"])]])]},I={para:a=>"),
    ("a.lines.length?[[\"p\",{},...h(a.lines)]]:[],heading:a=>[[\"h\"+u.min(a.level+2,6),{},...h(a.lines)]],hr:()=>[[\"hr\",{}]],quo"
     "te:a=>[[\"blockquote\",{},...a.kids.flatMap(j)]],code:a=>{while(!P(a.lines).trim())a.lines.pop();return[cM(\"\",a.lines.join"
     "(E))]},fence:a=>[cM(co(a.info).split(/\\s/,1)[0],a.lines.join(E))],list:a=>{let g=l(a.kids)||a.kids.some(b=>l(b.kids));re"
     "turn[[a.number===af?\"ul\":\"ol\",a.number!==af&&a.number!==1?{start:a.number}:{},...a.kids.map(b=>v(b,g))]]},table:a=>{let["
     "t,...q]=a.lines,r=[\"table\",{},[\"thead\",{},Q(\"th\",a.align,t)]];if(q.length)r.push([\"tbody\",{},...q.map(B=>Q(\"td\",a.align,"
     "B))]);return[[C,{class:\"wide\",tabindex:\"0\",role:\"group\",[ao]:\"Table\"},r]]}},j=m=>I[m.type](m);return x.flatMap(j)},dH=40"
     ",bm=a=>new Set(a.split(y)),cN=c=>new Map(c.split(y).map(d=>d.split(\":\")).map(([b,a])=>[b,aZ.fromCharCode(parseInt(a,16))"
     "])),ec=cN("),
    ("\"infty:221e partial:2202 degree:b0 circ:2218 ldots:2026 dots:2026 dotsc:2026 cdots:22ef dotsb:22ef dotsm:22ef vdots:22ee"
     " ddots:22f1 cdot:22c5 ast:2217 star:22c6 land:2227 lor:2228 neg:ac lnot:ac neq:2260 exists:2203 to:2192 gets:2190 implie"
     "s:27f9 iff:27fa lvert:7c rvert:7c lVert:2016 rVert:2016 |:2016 {:7b }:7d backslash:5c %:25 $:24 #:23 &:26 _:5f iint:222c"
     " phi:3d5 varphi:3c6 epsilon:3f5 varepsilon:3b5\"),dG=/[()[\\]{}|\\u2016\\u2308-\\u230b\\u27e8\\u27e9]/,dX=/[\\p{L}\\u221e\\u2202\\u"
     "2207\\u2205\\xb0\\u2218\\u2026\\u22ee-\\u22f1\\u22a4\\u22a5\\u2220\\u25a1\\u25b5\\u2032\\u2713]/u,dR=bm(\"lim max min sup inf limsup l"
     "iminf argmax argmin det gcd Pr\"),eb=/^(?:sum|(?:co)?prod|big[a-z]+)$/,dK=bm(\"sin cos tan cot sec csc sinh cosh tanh coth"
     " arcsin arccos arctan log ln lg exp arg deg dim ker hom rank tr sgn\"),cr=cN(\"hat:5e widehat:5e bar:af overline:af vec:21"
     "92 overrightarrow:2192 dot:2d9 ddot:a8 tilde:2dc widetilde:2dc check:2c7 overbrace:23de underline:5f underbrace:23df\"),c"
     "F={__proto__:j,\",\":.17,\":\":.22,\";\":.28,[y]:"),
    (".25,\"!\":-.17,quad:1,qquad:2},ee=/^(?:text(?:rm|bf|it|tt|sf|normal)?|mbox)$/,aO={__proto__:j,mathbf:[0x1d400,0x1d41a,0x1d"
     "7ce],boldsymbol:[0x1d468,0x1d482,0x1d7ce],mathbb:[0x1d538,0x1d552,0x1d7d8,\"C2102 H210d N2115 P2119 Q211a R211d Z2124\"],m"
     "athcal:[0x1d49c,0x1d4b6,48,\"B212c E2130 F2131 H210b I2110 L2112 M2133 R211b e212f g210a o2134\"],mathsf:[0x1d5a0,0x1d5ba,"
     "0x1d7e2],mathtt:[0x1d670,0x1d68a,0x1d7f6],mathfrak:[0x1d504,0x1d51e,48,\"C212d H210c I2111 R211c Z2128\"]};aO.bm=aO.boldsy"
     "mbol;aO.mathscr=aO.mathcal;let cw={matrix:\"\",smallmatrix:\"\",array:\"\",pmatrix:\"()\",bmatrix:\"[]\",Bmatrix:\"{}\",vmatrix:\"||\""
     ",Vmatrix:\"\\u2016\\u2016\",cases:\"{\"},cv=/^[()[\\]|/]$/,dS=/^(?:align|split|gather|equation)/,eI=(a,[h,f,d,g])=>{let b=new a"
     "X(a+\"([0-9a-f]{4})\").exec(g||\"\"),c=a.charCodeAt(0),e=/[A-Z]/.test(a)?h-65:/[a-z]/.test(a)?f-97:/\\d/.test(a)?d-48:0;retur"
     "n aZ.fromCodePoint(b?parseInt(b[1],16):e+c)},bW=(a,c)=>{if(a[0]==\"mi\"||a[0]==\"mn\")return c(a);return[a[0],a[1],...a.slic"
     "e(2).map(b=>I(b)?b:bW(b,c))]};class cG extends Error{"),
    ("}let $=()=>{throw new cG()},dy=a=>ec.get(a)||cR(a)||$(),dc=u=>{let ag=[],g=0,D=0,U=0,q=()=>{let Y=L(/\\s*(\\\\(?:[A-Za-z]+\\"
     "*?|[^])|\\d+(?:[.,]\\d+)*|[\\ud800-\\udbff][\\udc00-\\udfff]|\\S|$)/y,u,g);D=g+Y[0].length;return Y[1]},M=()=>{let b=q();g=D;re"
     "turn b},i=N=>{if(q()!==N)return!1;g=D;return!0},t=N=>i(N)||$(),s=()=>{t(\"{\");let ap=g;for(let Z=1;Z;g++){if(g>=u.length)"
     "$();Z+=(u[g]==\"{\")-(u[g]==\"}\")}return u.slice(ap,g-1)},h=(d,at={})=>[\"mo\",at,d],F=d=>h(d,{stretchy:\"false\"}),x=d=>d?[h(d"
     ",{stretchy:X,fence:X})]:[],v=B=>[\"mspace\",{width:B+\"em\"}],E=e=>e.length===1?e[0]:[an,{},...e],_=au=>{if(++U>dH)$();let a"
     "q=au();U--;return aq},Q=ah=>_(()=>{let f=[];for(let b;(b=q())&&!/^(?:\\}|&|\\\\\\\\|\\\\right|\\\\middle|\\\\end)$/.test(b)&&!(ah&&"
     "b==\"]\");){let O=T(),k=av(O);if(k)f.push(k);if(O?.name&&/^(?:\\w|\\\\(?!left|right|end)[a-z])/i.test(q()))f.push(v(.17))}ret"
     "urn f}),J=()=>{let f=[[Q()]];for(;;){if(i(\"&\"))P(f).push(Q());else if(i(\"\\\\\\\\\")){let W=L(/\\s*\\[-?[\\d.]+[a-z]{2}\\]/y,u,g)"
     ";if(W)g+=W[0].length;f.push([Q()])}else break}"),
    ("if(f[1]&&!P(f)[0].length&&!P(f)[1])f.pop();return f},K=(e,w,ay)=>[\"mtable\",ay?{displaystyle:X}:{},...e.map(aj=>[\"mtr\",{}"
     ",...aj.map((ai,p)=>[\"mtd\",w(p)?{class:w(p)}:{},...ai])])],ae=p=>p%2?ba:bD,c=al=>{if(al&&/^\\d/.test(q()))return[\"mn\",{},u"
     "[(g=D-q().length+1)-1]];if(!i(\"{\"))return _(T)||$();let e=Q();t(\"}\");return E(e)},as=()=>{if(!i(\"[\"))return j;let e=Q(!0"
     ");t(\"]\");return E(e)},av=G=>{let y=j,o=j,C=G?.limits;for(;;){if(i(\"\\\\limits\"))C=!0;else if(i(\"\\\\nolimits\"))C=!1;else if("
     "!y&&i(\"_\"))y=c();else if(!o&&i(\"^\"))o=c();else if(!o&&q()==\"'\"){let ac=\"\";while(i(\"'\"))ac+=\"\\u2032\";o=h(ac,{lspace:\"0\",r"
     "space:\"0\"});if(i(\"^\"))o=[an,{},o,c()]}else break}if(!y&&!o)return G;let ax=(y?C?\"under\":\"sub\":\"\")+(o?C?\"over\":\"sup\":\"\");"
     "return[\"m\"+ax,{},G||[an,{}],...[y,o].filter(m=>m)]},T=()=>{let b=q();if(b==\"{\")return c();if(b==\"^\"||b==\"_\"||b==\"'\")retu"
     "rn j;M();if(b[0]==\"\\\\\"&&b[1])return ak(b.slice(1));if(/^\\d/.test(b))return[\"mn\",{},b];if(/^\\p{L}/u.test(b))return[\"mi\",{"
     "},b];if(b==\"~\")return v(.25);if(cv.test("),
    ("b))return F(b);if(b>\"\\x7f\"||/^[-+=<>*,.;:!?%]$/.test(b))return h(b===\"-\"?\"\\u2212\":b==\"*\"?\"\\u2217\":b);return $()},ak=a=>{"
     "let aa=n[a.replace(/^[dtc](?=frac|binom)/,\"\")],af=/^([bB]igg?)[lrm]?$/.exec(a),R=aO[a];if(aa)return aa(a);if(dR.has(a)){"
     "return A(h(a.replace(/^(lim|arg)(?=.)/,\"$1\\u2009\"),{movablelimits:X,lspace:\"0\",rspace:\"0\"}),{limits:!0,name:a})}if(dK.ha"
     "s(a))return A([\"mi\",{},a],{name:a});if(cF[a])return v(cF[a]);if(cr.has(a)){let I=h(cr.get(a),{stretchy:aZ(/^(?:wide|over"
     "|under)/.test(a))});return A([a[0]==\"u\"?\"munder\":\"mover\",{accent:X},c(),I],{limits:a.endsWith(\"brace\")})}if(ee.test(a))r"
     "eturn aA(s());if(R)return bW(c(),m=>[m[0],m[1],Array.from(m[2],d=>eI(d,R)).join(\"\")]);if(af){let B={big:1.2,Big:1.6,bigg"
     ":2.2,Bigg:2.8}[af[1]]+\"em\";return h(z(),{minsize:B,maxsize:B})}let d=dy(a);if(dX.test(d))return[\"mi\",/^[A-Z]/.test(a)?{m"
     "athvariant:\"normal\"}:{},d];return A(dG.test(d)?F(d):h(d),{limits:eb.test(a)})},aA=az=>E(az.split(\"$\").map((ab,p)=>p%2?[a"
     "n,{},...dc(ab)]:[\"mtext\",{},ab.replace("),
    ("/\\\\([%#&_{} ])/g,\"$1\").replace(/^ | $/g,\"\\u00a0\")]).filter(m=>m[2])),z=()=>{let b=M();return b===\".\"?\"\":b==\"<\"?\"\\u27e8\":"
     "b==\">\"?\"\\u27e9\":cv.test(b)?b:b[1]?dy(b.slice(1)):$()},am=()=>{let a=s(),V=cw[a]||\"\",H=dS.test(a),w=H&&!/^(?:gather|equat"
     "ion)/.test(a)?ae:()=>a==\"cases\"?ba:\"\";if(!H&&!S.hasOwn(cw,a))$();if(/^alignedat/.test(a))s();if(a==\"array\"){let aw=s().r"
     "eplace(/[^lcr]/g,\"\");w=p=>({l:ba,r:bD})[aw[p]]||\"\"}let ar=K(J(),w,H);t(\"\\\\end\");if(s()!==a)$();return E([...x(V[0]),ar,."
     "..x(V[1])])},ao=()=>{let f=[...x(z()),...Q()];while(i(\"\\\\middle\"))f.push(...x(z()),...Q());t(\"\\\\right\");return[an,{},..."
     "f,...x(z())]},n={__proto__:j,begin:am,left:ao,frac:a=>{let k=[\"mfrac\",{},c(1),c(1)];return/^[dc]/.test(a)?[\"mstyle\",{dis"
     "playstyle:X},k]:k},binom:()=>[an,{},h(\"(\"),[\"mfrac\",{linethickness:\"0\"},c(),c()],h(\")\")],sqrt:()=>{let ad=as();return ad"
     "?[\"mroot\",{},c(),ad]:[\"msqrt\",{},c()]},overset:a=>{let I=c();return[a==\"underset\"?\"munder\":\"mover\",{},c(),I]},xrightarro"
     "w:()=>[\"mover\",{},h(\"\\u2192\",{stretchy:X}"),
    ("),c()],operatorname:a=>A([\"mi\",{},s().replace(/\\\\,/g,\"\\u2009\")],{name:a,limits:a.endsWith(\"*\")}),mathrm:()=>bW(c(),m=>[m"
     "[0],{mathvariant:\"normal\"},m[2]]),mathit:()=>c(),not:()=>{let k=c();return k[0]==\"mo\"?h(k[2]+\"\\u0338\"):$()},pmod:()=>[an"
     ",{},v(.5),F(\"(\"),[\"mi\",{},\"mod\"],v(.3),c(),F(\")\")],bmod:()=>h(\"mod\",{lspace:\".22em\",rspace:\".22em\"}),boxed:()=>[an,{clas"
     "s:\"boxed\"},c()],substack:()=>{t(\"{\");let k=K(J(),()=>\"\");t(\"}\");return k},tag:()=>(ag.push(v(2),[\"mtext\",{},\"(\"+s()+\")\"]"
     "),j),label:()=>(s(),j),displaystyle:()=>[\"mstyle\",{displaystyle:X},...Q()]};n[\"operatorname*\"]=n.operatorname;n.mathop=n"
     ".mathit;n.underset=n.stackrel=n.overset;for(let a of[\"nonumber\",\"notag\",\"hline\",\"textstyle\",\"scriptstyle\"])n[a]=()=>j;le"
     "t e=J();if(M())$();return[...(e[1]||e[0][1]?[K(e,ae,!0)]:e[0][0]),...ag]},ey=(d,b)=>{try{let a=[\"math\",{alttext:d.trim()"
     ",...(b&&{display:\"block\"})},...dc(d)];if(!a[2])return j;return b?[W,{class:\"display\",tabindex:\"0\"},a]:a}catch(c){if(c in"
     "stanceof cG)return j;throw c}},aj=a=>[\"k\","),
    ("\"\\\\b(?:\"+a.replace(/ /g,O)+\")\\\\b\"],br=(a,b)=>a+\"(?:[^\"+a+\"\\\\\\\\\"+b+\"]+|\\\\\\\\[^])*\"+a+\"?\",aP=br(\"\\\"\",\"\\\\n\"),aQ=br(\"'\",\"\\\\n\""
     "),cy=br(\"\\\"\",\"\"),aS=(a,b)=>a+\"[^]*?(?:\"+b+\"|$(?![^]))\",bG=aS(\"\\\\/\\\\*\",\"\\\\*\\\\/\"),cz=aS(\"\\\"\\\"\\\"\",\"\\\"\\\"\\\"\"),aC=[\"c\",bG+\"|\\\\"
     "/\\\\/.*\"],dL=[\"c\",\"#.*\"],bf=[\"s\",aP+O+aQ],bK=a=>`${a}(?<=^[ \\\\t]*${a})`,ar=[\"n\",\"\\\\b0[xX][\\\\da-fA-F_]+\\\\w*|(?:\\\\b\\\\d[\\\\d_"
     "]*(?:\\\\.(?!\\\\.)[\\\\d_]*)?|(?<![.\\\\w])\\\\.\\\\d[\\\\d_]*)(?:[eE][+-]?\\\\d+)?[a-zA-Z]*\"],aB=[\"f\",\"\\\\b[A-Za-z_]\\\\w*(?=\\\\()\"],cs=\"b"
     "reak case continue default do else for if return switch while true false null const static void new this class enum int "
     "float char bool catch delete double long namespace override private protected public short throw try using virtual volat"
     "ile \",cC=cs+\"async await boolean extends finally implements import in instanceof interface readonly string super var \",e"
     "d=[[\"k\",\"^<\\\\/?[\\\\w:.-]+|\\\\/?>$\"],[\"s\",\"\\\"[^\\\"]*\\\"?|'[^']*'?\"],[\"v\",\"[\\\\w:@.-]+\"]],dQ={__proto__:j,python:[dL,[\"s\",\"(?:\\"
     "\\b[rRbBfFuU]{1,2})?(?:\"+cz+O+aS(\"'''\","),
    ("\"'''\")+O+aP+O+aQ+\")\"],[\"m\",bK(\"@\")+\"[\\\\w.]+\"],aj(\"and as assert async await break class continue def del elif else excep"
     "t finally for from global if import in is lambda nonlocal not or pass raise return try while with yield True False None\""
     "),ar,aB],c:[aC,[\"m\",bK(\"#\")+\"[ \\\\t]*\\\\w+(?:[ \\\\t]*<[^>\\\\n]*>)?\"],bf,aj(cs+\"auto constexpr explicit extern goto inline no"
     "except nullptr operator register signed sizeof size_t struct template typedef typename union unsigned u?int(?:8|16|32|64"
     ")_t NULL\"),ar,aB],javascript:[aC,[\"s\",aP+O+aQ+O+br(\"`\",\"\")+\"|\\\\/(?<=(?:[(,=:[!&|?{};]|^|return)[ \\\\t]*\\\\/)(?![*/ ])(?:[^"
     "\\\\/\\\\\\\\[\\\\n]|\\\\\\\\.|\\\\[(?:[^\\\\]\\\\\\\\\\\\n]|\\\\\\\\.){0,99}\\\\]){1,99}\\\\/[a-z]*\"],aj(cC+\"any as debugger export from function let"
     " number of type typeof undefined with yield\"),ar,aB],java:[aC,[\"m\",\"@\\\\w+\"],[\"s\",cz+O+aP+O+aQ],aj(cC+\"abstract assert by"
     "te final foreach is package record synchronized throws transient\"),ar,aB],go:[aC,[\"s\",aP+O+aQ+\"|`[^`]*`?\"],aj("),
    ("\"break case chan const continue default defer else fallthrough for func go goto if import interface map package range re"
     "turn select struct switch type var nil true false any bool byte error float32 float64 u?int(?:8|16|32|64)? rune string\")"
     ",ar,aB],rust:[aC,[\"m\",\"#!?\\\\[[^\\\\]\\\\n]*\\\\]?\"],[\"s\",\"\\\\bb?r(?<hash>#{0,9})\"+aS(\"\\\"\",\"\\\"\\\\k<hash>\")+\"|b?\"+cy+\"|b?'(?:[^'\\\\"
     "\\\\\\\\n]|\\\\\\\\[^'\\\\n]{1,9})'\"],aj(\"as async await break const continue crate dyn else enum extern fn for if impl in let loo"
     "p match mod move mut pub ref return self Self static struct super trait type unsafe use where while true false bool char"
     " str String [iu](?:8|16|32|64|128|size) f32 f64\"),ar,[\"f\",\"\\\\b[A-Za-z_]\\\\w*!?(?=\\\\()|\\\\b[a-z_]+!\"]],bash:[[\"c\",\"(?<![^\\\\"
     "s;(])#.*\"],[\"s\",cy+\"|'[^']*'?\"],[\"v\",\"\\\\$(?:\\\\w+|\\\\{[^}\\\\n]*\\\\}?|[#?@*!$-])|\\\\b\\\\w+(?==)\"],[\"k\",\"(?<![-\\\\w./])(?:if|then"
     "|else|elif|fi|for|in|do|done|while|until|case|esac|function|return|export|local|echo|printf|cd|source|read|set|unset|exi"
     "t|exec|eval|trap)(?![-\\\\w./=])\"],[\"n\","),
    ("\"(?<![-\\\\w./])\\\\d+(?![-\\\\w./])\"]],sql:[[\"c\",\"--.*|\"+bG],[\"s\",\"'(?:[^']+|'')*'?\"],[\"v\",\"\\\"[^\\\"\\\\n]*\\\"?|`[^`\\\\n]*`?\"],aj(\""
     "add all alter and as asc begin between by case check column commit create cross default delete desc distinct drop else e"
     "nd exists foreign from full group having if in index inner insert into is join key left like limit not null offset on or"
     " order outer over partition primary references returning right select set table then union unique update using values vi"
     "ew when where with boolean date int integer numeric real text timestamp varchar\"),ar,aB],json:[[\"v\",\"\\\"(?:[^\\\"\\\\\\\\\\\\n]|\\"
     "\\\\\\.)*\\\"(?=\\\\s{0,99}:)\"],bf,aC,aj(\"true false null\"),[\"n\",\"-?\\\\b\\\\d+(?:\\\\.\\\\d+)?(?:[eE][+-]?\\\\d+)?\"]],html:[[\"c\",aS(\"<!-"
     "-\",\"-->\")],[\"m\",\"<[!?]\\\\w[^>]*>?\"],[\"tag\",\"<\\\\/?[A-Za-z](?:[^<>\\\"']+|\\\"[^\\\"]*\\\"?|'[^']*'?)*>?\"],[\"n\",\"&#?\\\\w{1,31};\"]],c"
     "ss:[[\"c\",bG],bf,[\"m\",\"@[\\\\w-]+|!important\"],[\"v\",\"[\\\\w-](?<=[{;]\\\\s*[\\\\w-])[\\\\w-]*(?=\\\\s{0,99}:)|--[\\\\w-]+\"],[\"n\","),
    ("\"#[\\\\da-fA-F]{3,8}\\\\b|(?<![\\\\w-])[-+]?(?:\\\\d+\\\\.?\\\\d*|\\\\.\\\\d+)(?:%|[a-z]+)?\"],[\"f\",\"\\\\b[a-z][\\\\w-]*(?=\\\\()\"],[\"k\",\"[.#]["
     "A-Za-z][\\\\w-]*\"]],yaml:[[\"c\",\"(?<!\\\\S)#.*\"],[\"v\",\"[\\\\w./-](?<=^[ \\\\t]*(?:- {1,3}){0,9}[\\\\w./-])[\\\\w./-]*(?=:\\\\s|[ \\\\t]*="
     ")\"],[\"k\",bK(\"\\\\[\")+\".*\\\\]|(?<=[:=-] {1,9})(?:true|false|null|yes|no|on|off)(?!\\\\S)\"],bf,[\"n\",\"(?<=[:=-] {1,9})-?\\\\d[\\\\d."
     "]*(?![^\\\\s,])\"],[\"m\",\"^---\"]],diff:[[\"m\",\"^(?:@@|diff|index|---|\\\\+\\\\+\\\\+).*\"],[\"s\",\"^\\\\+.*\"],[\"k\",\"^-.*\"]]},dE=new Map("
     "(\"python py python3,javascript js jsx mjs ts tsx typescript,java cs csharp c# kotlin,c h cpp c++ cc hpp cuda,go golang,r"
     "ust rs,bash sh shell zsh console,sql postgresql mysql sqlite,json jsonc jsonl,html xml svg vue,css scss,yaml yml toml in"
     "i,diff patch\").split(\",\").flatMap(b=>b.split(y).map((c,d,a)=>[c,a[0]]))),ap=(d,g,h)=>{let c=[],i=new aX(g.map(([,k],e)=>"
     "`(?<g${e}>${k})`).join(O),h),b=0;for(let a of d.matchAll(i)){if(!a[0])continue;if(a.index>b)c.push(d.slice(b,a.index));l"
     "et f=g.find((j,e)=>a.groups[\"g\"+e]!==af)[0];"),
    ("if(f==\"tag\")c.push(...ap(a[0],ed,\"g\"));else c.push([W,{class:f},a[0]]);b=a.index+a[0].length}if(b<d.length)c.push(d.slic"
     "e(b));return c},er=(a,d)=>{let e=d.toLowerCase(),b=dE.get(e),c=dQ[b];return c?ap(a,c,b==\"sql\"?\"gim\":\"gm\"):a?[a]:[]},di=c"
     "=>{let e={};return{get(a,d=\"\"){try{let b=window[c].getItem(\"llm.\"+a);return b===j?d:av.parse(b)}catch(f){return e[a]?\?d}"
     "},set(a,b){e[a]=b;try{window[c].setItem(\"llm.\"+a,av.stringify(b))}catch(f){}}}},D=di(\"localStorage\"),bs=di(\"sessionStora"
     "ge\"),cZ=(c,b)=>S.fromEntries([...c.split(y).map(a=>[a,\"\"]),...b.split(y).map(a=>[a,0])]),bH=cZ(\"title system model leaf "
     "from\",\"gone rev\"),cB=cZ(\"id up role text think end error more act model stats\",\"rev live queued gone used thought\"),ag=n"
     "ew Map(),aD=j,bT=j,bu=0,aY=()=>(bu=u.max(bu+1,ab.now())),du=a=>aJ.isInteger(a)&&a<36**8,aK=a=>{if(du(a))bu=u.max(bu,a)},"
     "dl=()=>aY().toString(36)+u.random().toString(36).slice(2,8),ez=(c,d,b)=>{let a={...bH,id:dl(),system:c,title:d,model:b,t"
     "ime:ab.now(),rev:aY(),nodes:{}};ag.set(a.id,"),
    ("a);return a},bg=(b,a)=>(b.nodes[a.id=dl()]={...cB,files:[],...a,rev:aY()}),bn=(a,b)=>S.hasOwn(a.nodes,b)?a.nodes[b]:af,d"
     "k=(b,a)=>{for(let c in a.nodes){if(!bn(b,c))b.nodes[c]=a.nodes[c];else if(b.nodes[c].rev<a.nodes[c].rev)A(b.nodes[c],a.n"
     "odes[c]);aK(a.nodes[c].rev)}aK(a.rev);if(b.rev<a.rev)for(let d in bH)b[d]=a[d];b.time=u.max(b.time,a.time)},bN=a=>{if(!a"
     "g.has(a.id))ag.set(a.id,a);dk(ag.get(a.id),a);return ag.get(a.id)},dz=aI=>bT?.postMessage(aI),bM=(d,e)=>new Promise((b,c"
     ")=>{let a=aD.transaction(\"chats\",d);a.oncomplete=b;a.onabort=()=>c(a.error);e(a.objectStore(\"chats\"))}),eG=async a=>{if("
     "aD){await bM(\"readwrite\",b=>{b.get(a.id).onsuccess=c=>{if(c.target.result)dk(a,c.target.result);b.put(a)}})}dz({wrote:a."
     "id})},eE=c=>aD&&bM(\"readonly\",b=>{b.get(c).onsuccess=a=>a.target.result&&bN(a.target.result)}),eB=async bY=>{if(window.B"
     "roadcastChannel){bT=new BroadcastChannel(\"llm\");bT.onmessage=c=>bY(c.data)}await new Promise(e=>{let a=indexedDB.open(\"l"
     "lm\",1);a.onupgradeneeded=()=>a.result.createObjectStore("),
    ("\"chats\",{keyPath:\"id\"});a.onsuccess=()=>e(aD=a.result);a.onerror=e}).catch(()=>{});if(!aD)return;await bM(\"readwrite\",d="
     ">{d.getAll().onsuccess=c=>{for(let b of c.target.result)if(b.gone&&b.gone<ab.now()-60000)d.delete(b.id);else bN(b)}})},b"
     "p=(c,d)=>{let b=new Set();for(let a=bn(c,d);a&&!b.has(a);a=bn(c,a.up))b.add(a);return[...b].reverse()},cL=(d,e)=>S.value"
     "s(d.nodes).filter(a=>a.up===e&&!a.queued&&!a.gone).sort((b,c)=>b.id<c.id?-1:1),eo=(c,a)=>{for(let b;(b=cL(c,a)).length;)"
     "a=P(b).id;return a},dV=/^data:image\\/\\w+;base64,[\\w+/=]+$/,es=o=>{let i=(d,h)=>{let k={};for(let b in h)k[b]=typeof d[b]"
     "==typeof h[b]&&(I(d[b])||du(d[b]))?d[b]:h[b];return k},j=d=>I(d)&&/^[^\\W_][\\w-]{0,63}$/.test(d),g=av.parse(o),n=Array.is"
     "Array(g)?g:g.chats;return n.filter(a=>a&&j(a.id)&&a.nodes&&!a.gone).map(a=>{let f={};for(let c of S.values(a.nodes)){if("
     "!c||!j(c.id)||!/^(?:user|assistant)$/.test(c.role))continue;let l=Array.isArray(c.files)?c.files.filter(e=>e&&I(e.name)&"
     "&I(e.text)):[];f[c.id]={...i(c,cB),live:"),
    ("0,files:l.map(e=>({...i(e,{name:\"\",text:\"\"}),url:dV.exec(e.url)?.[0]}))}}for(let m in f)bp({nodes:f},m)[0].up=\"\";return{"
     "...i(a,bH),id:a.id,time:aJ(a.time)||ab.now(),nodes:f}})},bI=[[\"temperature\",0,2,.1,\"\"],[\"top_k\",-1,\"\",1,\"\"],[\"top_p\",0,1"
     ",.05,\"\"],[\"min_p\",0,1,.01,\"\"],[\"max_tokens\",1,\"\",1,\"no limit\"],[\"min_tokens\",0,\"\",1,0],[\"repetition_penalty\",0,2,.05,1],"
     "[\"presence_penalty\",-2,2,.1,0],[\"frequency_penalty\",-2,2,.1,0],[\"seed\",\"\",\"\",1,\"random\"]],ef=[\"stop\",\"thinking\",\"extra\"]"
     ",bJ=\"The model is loading\\u2026\",ah=[],aq=\"\",dt=0,T=D.get(Y,{}),ae=new Map(),al=a=>a?.model?ah.find(b=>b.id===a.model)||"
     "{id:a.model,state:\"not here\"}:ah.find(a=>a.id===D.get(az))||ah[0],bv=a=>a.state&&a.state!=\"loaded\"?a.state:\"\",cK=a=>a.sl"
     "ice(0,1).toUpperCase()+a.slice(1),ca=a=>a.id.replace(/.*\\//,\"\").replace(/\\.gguf$/,\"\"),cS=a=>a?.default_sampling_params||"
     "{},aT=a=>a?.max_model_len||0,aH=()=>D.get(K)||bs.get(K),dd=()=>({\"Content-Type\":\"application/json\",...(aH()&&{Authorizat"
     "ion:\"Bearer \"+aH()})}),cE={401:[\"This server asks for an API key.\","),
    ("Y],404:[\"This model is not here any more.\"],429:[\"The server is busy.\"],503:[\"The server is shutting down.\"],500:[\"The s"
     "erver could not do it.\"]},dq=(a,{message:aI=\"HTTP \"+a,code:b}={})=>{let[c,z=\"\"]=b==\"context_length_exceeded\"?[\"This is l"
     "onger than the model can read.\",ch]:cE[a]||[\"The server refused this.\"];return A(new Error(aI),{told:{error:c,more:z===Y"
     "?\"\":cK(aI),act:z}})},aW=async()=>{try{let a=await fetch(\"v1/models\",{headers:dd()});aq=a.ok?\"\":{401:K,503:bJ}[a.status]|"
     "|\"HTTP \"+a.status;if(a.ok)ah=(await a.json()).data}catch(c){aq=\"The server does not answer\\u2026\"}clearTimeout(dt);if((a"
     "q&&aq!==K)||ah.some(b=>bv(b)==\"loading\"))dt=setTimeout(aW,1500);R()},bj=d=>{let e=a=>{let c=\"`\".repeat(u.max(3,...(a.tex"
     "t.match(/`+/g)||[]).map(b=>b.length+1)));return a.name+\":\\n\"+c+E+a.text.replace(/\\n$/,\"\")+E+c};return[...d.files.filter("
     "a=>!a.url).map(e),d.text].filter(b=>b).join(\"\\n\\n\")},dm=c=>{let b=bj(c),d=c.files.filter(a=>a.url).map(a=>({type:\"image_"
     "url\",image_url:{url:a.url}}));return d.length?[...d,"),
    ("...(b?[{type:\"text\",text:b}]:[])]:b},eD=(b,f)=>{let g=bp(b,f.up),k=g.findIndex(c=>c.id===b.from),d=al(b),a={model:d?d.id"
     ":\"\",stream:!0,stream_options:{include_usage:!0,continuous_usage_stats:!0},messages:[]};if(b.system)a.messages.push({role"
     ":ai,content:b.system});for(let c of g.slice(u.max(k,0)))if(dm(c))a.messages.push({role:c.role,content:dm(c)});if(f.text)"
     "{a.messages.push({role:ci,content:f.text});A(a,{add_generation_prompt:!1,continue_final_message:!0})}for(let[e]of bI){le"
     "t i=T[e]||cS(d)[e];if(i!==af)a[e]=aJ(i)}let h=(T.stop||\"\").split(E).filter(l=>l);if(h.length)a.stop=h;if(T.thinking)a.ch"
     "at_template_kwargs={enable_thinking:T.thinking==\"on\"};if(T.extra){try{A(a,av.parse(T.extra))}catch(j){throw new Error(\"M"
     "ore fields of the request must be JSON: \"+j.message)}}return a};async function*eventsOf(e){let f=e.body.pipeThrough(new "
     "TextDecoderStream()).getReader();for(let b=\"\",d;!(d=await f.read()).done;){let c=(b+d.value).split(E);b=c.pop();for(let "
     "a of c)if(a.startsWith(\"data: \")&&a!=\"data: [DONE]\")yield av.parse("),
    ("a.slice(6))}}let J=async(b,a)=>{let e=new AbortController(),w=now(),t=a.text,g=al(b),l={status:ah.includes(g)&&bv(g)?bJ:"
     "\"\",node:a,stop:()=>e.abort()},f=0,ap=0,r=0,x=c=>{let i=c.usage,as=c.choices?.[0]||{},{content:n=\"\",reasoning_content:q=\""
     "\"}=as.delta||{};if(c.error)throw dq(500,c.error);if(i)a.used=i.total_tokens;a.end=as.finish_reason||a.end;if(!n&&!q)retu"
     "rn;f=f||now();let m=(now()-f)/1000;ap=i?i.completion_tokens:ap+1;if(!a.text)a.thought=u.ceil(m);a.think+=q;a.text+=n;a.s"
     "tats=ap+(ap===1?\" token\":\" tokens\")+\" \\u00b7 \"+(m>.05?(ap/m).toFixed(1)+\" tokens/s \\u00b7 \":\"\")+\"first after \"+((f-w)/10"
     "00).toFixed(2)+\" s\"};A(a,{live:1,error:\"\",more:\"\",act:\"\",end:\"\",model:g?ca(g):\"\"});ae.set(b.id,l);G(b,{},a);try{let aa=a"
     "v.stringify(eD(b,a)),p=()=>fetch(\"v1/chat/completions\",{method:\"POST\",headers:dd(),body:aa,signal:e.signal}),d=await p()"
     ";for(;!d.ok;d=await p()){let o=dq(d.status,(await d.json().catch(()=>j))?.error);if(d.status!==503||!/loading/i.test(o.m"
     "essage))throw o;l.status=bJ;R();await new Promise("),
    ("s=>setTimeout(s,1000));e.signal.throwIfAborted()}l.status=\"\";for await(let c of eventsOf(d)){x(c);a.rev=aY();R(!0);if(no"
     "w()-r>500){r=now();dg(b)}}if(!a.end)throw new TypeError()}catch(k){let v=a.text===t?\"The server cannot be reached. Is ll"
     "m_serve still running?\":\"The connection was lost.\";a.end=e.signal.aborted?\"abort\":bx;if(a.end===bx)A(a,{error:k instance"
     "of TypeError?v:k.message},k.told);e.abort()}ae.delete(b.id);G(b,{live:0},a);if(b===h())dx(a);aW()},ac=location.hash.slic"
     "e(1),at=\"\",am=\"\",cc=\"\",V=[],au=!0,cI=0,bE=new WeakMap(),cV=new Map(),dN=[\"Explain how rainbows form\",\"Write a haiku abou"
     "t autumn\",\"Plan a simple dinner for two\"],h=()=>ag.get(ac),F=a=>ae.get(a?.id),ax=a=>bn(a,a.leaf)||{},bF=(a,b)=>b.live&&("
     "F(a)||ab.now()-(cV.get(a.id)||cI)<3000),cp=a=>a?bp(a,a.leaf):[],ay=a=>a.toLocaleString(\"en\"),z=(c,b,a)=>[cf,{[cg]:c,...a"
     "},b],N=(c,b,...a)=>[c,{class:b},...a],ds=b=>{let a=bE.get(b);if(!a||a.text!==b.text){a={text:b.text};try{a.tree=ex(b.tex"
     "t)}catch(c){a.tree=[[\"p\",{},b.text]]}bE.set("),
    ("b,a)}return a.tree},eJ=a=>{let b=a.live&&!a.text,c=b?\"Thinking\\u2026\":\"Thought for \"+a.thought+\" s\";return[\"details\",{cl"
     "ass:\"think\",...(b&&{open:\"\"})},[\"summary\",{},c],[C,{},a.think]]},dj=(c,e)=>{let b=bp(c,e.up),f=u.max(0,...b.map(a=>a.use"
     "d)),d=aT(al(c))/2;return b[b.findIndex(a=>a.used&&f-a.used<=d)+1||b.length]},eA=(c,a,ax)=>{let f=aT(al(c)),b=z(\"again\",\""
     "Try again\"),d=a.text?[z(\"goOn\",\"Continue\")]:[],g=[...(dj(c,a)?[z(ch,\"Leave out the oldest messages\")]:[]),z(\"newChat\",\"N"
     "ew chat\")],B=(i,e,h=\"\")=>[N(C,\"notice \"+h,[\"p\",{},i],...(ax&&!F(c)?e:[]))];if(a.live)return bF(c,a)?[]:B(\"This answer wa"
     "s interrupted.\",[...d,b]);if(a.end===bx){let e=a.act===Y?[z(a$,cj),b]:a.act===ch?g:[...d,b];return B(a.error+y+a.more,e,"
     "bx)}if(a.end==\"length\"&&f&&a.used>=f){return B(\"The context is full: this model reads \"+ay(f)+\" tokens. A larger --max-m"
     "odel-len lets the server read more.\",g)}if(a.end==\"length\")return B(\"The answer was cut at the limit of tokens.\",d);if(a"
     ".end==\"abort\")return B(\"Stopped.\",d);"),
    ("return a.text||a.think?[]:B(\"The model said nothing.\",[b])},ei=(e,c)=>{let a=cL(e,c.up),b=a.indexOf(c),ak=(g,d,f)=>Z(\"br"
     "anch\",g,f,d?{\"data-to\":d.id}:{disabled:\"\"});return a[1]?[ak(ba,a[b-1],\"Previous version\"),[W,{},b+1+\"/\"+a.length],ak(bD,"
     "a[b+1],\"Next version\")]:[]},c_=(c,e)=>c.map((a,d)=>{let bq=a.url&&[\"img\",{src:a.url,alt:a.name}],b=[W,{},a.name];if(e)re"
     "turn N(W,\"chip\",bq||aG(\"file\"),b,Z(\"detach\",by,\"Remove \"+a.name,{\"data-at\":d}));return bq||N(\"details\",\"chip\",[\"summary\""
     ",{},aG(\"file\"),b],[\"pre\",{tabindex:\"0\"},a.text])}),cJ=a=>N(C,\"body\",...c_(a.files),...(a.text?[[C,{class:\"bubble\",dir:\"a"
     "uto\"},a.text]]:[])),bi=(a,d,b,...c)=>{return[\"article\",{class:\"msg \"+d,key:a.id,\"data-id\":a.id,[ao]:b,...(a.live&&{\"aria"
     "-busy\":X})},N(\"h2\",\"hidden\",b),...c]},aI=(b,a,ax)=>{let d=a.role===aA,J=F(b),f=[W,{class:\"stats\",title:a.model},a.stats]"
     ";if(at===a.id){return bi(a,aA,\"You\",N(C,a_,[bw,{rows:\"4\",[ao]:\"Message\",dir:\"auto\",[ck]:\"\"},a.text],[C,{},z(\"cancelEdit\""
     ",\"Cancel\"),z(\"sendEdit\",\"Send\",{class:"),
    ("\"main\",...(J&&{disabled:\"\"})})]))}let e=J?[]:[d?Z(a_,a_,\"Edit\"):Z(\"again\",\"again\",\"Regenerate\")],c=N(C,\"tools\",...(a.liv"
     "e?[]:[Z(\"copy\",\"copy\",\"Copy\"),...e,...ei(b,a)]),f);if(d)return bi(a,aA,\"You\",cJ(a),c);let aa=[...(a.think?[eJ(a)]:[]),.."
     ".ds(a)];if(!a.text&&bF(b,a))aa.push(N(C,\"wait\",J?.status||\"\"));return bi(a,ci,\"Answer\",N(C,\"body\",...aa),...eA(b,a,ax),c"
     ")},dp=d=>S.values(d.nodes).filter(a=>a.queued&&!a.gone).sort((b,c)=>b.queued-c.queued),eM=(b,a)=>bi(a,\"user queued\",\"Que"
     "ued message\",cJ(a),N(C,\"tools\",[W,{},\"Queued\"],...(F(b)?[]:[z(\"sendQueued\",\"Send now\")]),Z(\"unqueue\",a_,\"Back to the inp"
     "ut\"),Z(\"dropQueued\",by,\"Remove\"))),eN=()=>{let b=aq===K?[cE[401][0]]:aq?[[W,{class:\"dot\"}],aq]:[\"Conversations stay in t"
     "his browser.\"],a=aq===K?[z(a$,cj)]:dN.map(c=>z(\"idea\",c));return N(C,\"empty\",[\"h2\",{},\"What can I help with?\"],[\"p\",{rol"
     "e:\"status\"},...b],[C,{},...a])},el=a=>{let c=g(\"log\"),d=cp(a),f=d[0]?.id!==a?.from&&a?.from,e=d.flatMap((b,h)=>[...(b.id"
     "===f?[[\"p\",{class:\"cut\"},"),
    ("\"The model does not get what is above. \",z(\"sendAll\",\"Send all\")]]:[]),aI(a,b,h===d.length-1)]);if(a)e.push(...dp(a).map"
     "(b=>eM(a,b)));M(c,e.length?e:[eN()]);if(au)c.scrollTop=c.scrollHeight;g(\"jump\").hidden=au},cH=b=>{let a=u.floor((new ab("
     ").setHours(24,0,0,0)-b)/864e5);return a<1?\"Today\":a<2?\"Yesterday\":a<8?\"Last week\":\"Older\"},eq=d=>{let c=cc.toLowerCase()"
     ",b=a=>a.gone?-1:a.text.toLowerCase().indexOf(c);if(!c||d.title.toLowerCase().includes(c))return\"\";let a=S.values(d.nodes"
     ").find(e=>b(e)>=0);return a?a.text.slice(u.max(0,b(a)-20),b(a)+60):j},Q=(a,c)=>{let l=a.id===ac,b=a.title,aH={key:a.id,\""
     "data-id\":a.id,class:l?\"item on\":bB},d=l?{}:{tabindex:\"-1\"};if(am===a.id)return[C,aH,[w,{[ao]:\"Title\",value:b,[ck]:\"\"}]];"
     "let e=F(a)?[[W,{class:\"dot\",role:\"img\",[ao]:\"Writing\"}]]:[];return[C,aH,[\"a\",{href:\"#\"+a.id,title:b,...(l&&{\"aria-curren"
     "t\":\"page\"})},...e,b,...(c?[[\"small\",{},c]]:[])],Z(\"rename\",a_,\"Rename \"+b,d),Z(\"remove\",\"delete\",\"Delete \"+b,d)]},bO=()="
     ">[...ag.values()].filter(c=>!c.gone).sort("),
    ("(a,b)=>b.time-a.time),ek=()=>{let b=[],c=\"\";for(let a of bO()){let d=eq(a);if(d===j)continue;if(c!==cH(a.time))b.push([\""
     "h2\",{key:c=cH(a.time)},c]);b.push(Q(a,d))}M(g(bA),b.length||!cc?b:[[\"p\",{},\"Nothing was found.\"]])},cU=(d,a)=>{let J=F(d"
     "),e=!g(w).value.trim()&&!V.length,c=g(\"send\"),f=a&&!ah.includes(a)?[...ah,a]:ah;A(c,{className:J?\"send stop\":\"send\",disa"
     "bled:!J&&e,title:J?\"Stop\":\"Send\"}).ariaLabel=c.title;M(c,[aG(J?\"stop\":\"up\")]);g(\"queue\").hidden=!J||e;M(g(\"files\"),c_(V,"
     "!0));M(g(az),f.map(b=>[\"option\",{value:b.id},ca(b)+(bv(b)?\" (\"+bv(b)+\")\":\"\")]));if(a)g(az).value=a.id;en(d,aT(a),g(\"mete"
     "r\"))},en=(j,a,h)=>{let f=cp(j),d=f.findLastIndex(e=>e.used),k=[...f.slice(d+1),{text:g(w).value,files:V}],c=u.round(k.re"
     "duce((e,l)=>e+bj(l).length/4,d<0?0:f[d].used)),b=u.min(100,u.round(c/a*100)),i=\"Context: \"+ay(c)+\" of \"+ay(a)+\" tokens\";"
     "A(h,{title:i,hidden:!a||!c,className:b>95?\"bad\":b>80?\"warn\":\"\",ariaValueMax:a,ariaValueNow:u.min(c,a),ariaValueText:i});"
     "M(h,[[\"progress\",{max:100,value:b,[dA]:X}"),
    ("],b+\"%\"])},cb=0,cQ=0,cT=()=>{let e=now(),a=h(),b=al(a),d=a?a.title:\"New chat\";cb=0;el(a);ek();cU(a,b);if(F(a))dx(F(a).no"
     "de);g(\"title\").textContent=d;H.title=d+\" - llm.h\";g(\"about\").textContent=b?ca(b)+(aT(b)?\", \"+ay(aT(b))+\" tokens of conte"
     "xt\":\"\"):\"\";let c=H.querySelector(\"[data-focus]\");if(c){c.removeAttribute(ck);c.focus();c.select()}cQ=now()-e},R=a=>{if(!"
     "cb)cb=setTimeout(cT,a?u.max(30,cQ*5):0)},aL=j,B=a=>g(\"say\").append(aw([\"p\",{},a])),dx=a=>{let b=ds(a),c=a.live?b.length-"
     "1:b.length;if(!aL||aL.node!==a){aL={node:a,n:0};M(g(\"say\"),[])}for(;aL.n<c;aL.n++)B(cn([b[aL.n]]));if(a.error&&!a.live)B"
     "(a.error)},dC=0,aN=(b,...a)=>{clearTimeout(dC);M(g(\"toast\"),[[W,{},b],...a,Z(\"untoast\",by,\"Close\")]);dC=setTimeout(()=>M"
     "(g(\"toast\"),[]),12000)},cD={Default:{},Precise:{temperature:\"0.2\"},Creative:{temperature:\"1.1\"},\"Always the same\":{tempe"
     "rature:\"0\"}},bo=()=>D.get(cl,{}),aE=(b,c,a,d)=>[\"label\",d?{class:\"wide\"}:{},c,[a.rows?bw:w,{id:b,...a}]],as=(a,b,c)=>[\"l"
     "abel\",{},b,[\"select\",{id:a},...S.entries("),
    ("c).map(([e,d])=>[\"option\",{value:e},d])]],aU=(b,...a)=>[\"fieldset\",{},[\"legend\",{},b],...a],aF=()=>{let b=h(),k=al(b),e="
     "S.keys(bo()),c=(...j)=>N(C,\"acts\",...j),bm=S.fromEntries([\"\",...S.keys(cD),...e].map(f=>[f,f||\"Choose\\u2026\"])),n=bI.map"
     "(([a,m,l,o,p])=>aE(a,cK(a).replace(/_/g,y),{type:\"number\",min:m,max:l,step:o,placeholder:cS(k)[a]?\?p}));M(g(Y),[N(C,\"bar"
     "\",[\"h2\",{},cj],Z(a$,by,\"Close the settings\")),aU(\"Preset\",as(bC,\"Use\",bm),aE(bb,\"Save what is set as\",{placeholder:\"Name"
     "\"}),c(z(\"savePreset\",\"Save\"),...e.map(d=>z(\"dropPreset\",\"Delete \"+d,{\"data-name\":d})))),aU(\"Conversation\",aE(ai,\"System "
     "prompt\",{rows:\"3\",placeholder:\"How should the model behave?\"},!0)),aU(\"Sampling\",...n,as(\"thinking\",\"Thinking\",{\"\":\"defa"
     "ult\",on:\"on\",off:\"off\"}),aE(\"stop\",\"Stop texts, one a line\",{rows:\"2\"},!0),aE(\"extra\",\"More fields of the request\",{rows"
     ":\"2\",placeholder:\"{\\\"ignore_eos\\\": true}\"},!0)),aU(\"This browser\",as(\"theme\",\"Theme\",{\"\":ai,light:\"light\",dark:\"dark\"}),"
     "as(bc,\"Enter key\",{\"\":\"sends\",line:"),
    ("\"starts a line\"}),aE(K,\"API key\",{type:\"password\",autocomplete:\"off\",placeholder:\"if the server asks\"}),N(\"label\",\"check"
     "\",[w,{id:\"keep\",type:\"checkbox\"}],\"Remember the key\")),aU(\"Conversations\",c(...(b?[z(\"exportText\",\"Export as Markdown\"),"
     "z(\"exportOne\",\"Export as JSON\")]:[]),z(\"exportAll\",\"Export all\"),z(\"import\",\"Import\"),z(\"removeAll\",\"Delete all\"))),[\"p\""
     ",{},\"Keys: Ctrl+Shift+O new chat, Ctrl+K search, Ctrl+, settings, Up edits the last message.\"]]);for(let a of[...bI.map("
     "i=>i[0]),...ef])g(a).value=T[a]||\"\";for(let a of[\"theme\",bc,ai])g(a).value=D.get(a);if(b)g(ai).value=b.system;g(K).value"
     "=aH();g(\"keep\").checked=!!D.get(K)},dw=(a,b)=>{if(a===ai&&h())G(h(),{system:b});else if(/^(?:system|theme|enter)$/.test("
     "a))D.set(a,b);else if(/^ke/.test(a)){bs.set(K,g(K).value);D.set(K,g(\"keep\").checked?g(K).value:\"\");aW()}else if(a===bC){"
     "let{system:c,...d}={...cD,...bo()}[b]||T;D.set(Y,T=d);if(c)dw(ai,c);aF();g(bC).value=b}else if(a!==bb)D.set(Y,A(T,{[a]:b"
     "}));bP()},bP=()=>{H.documentElement.style.colorScheme=D.get("),
    ("\"theme\");g(w).enterKeyHint=D.get(bc)?bc:\"send\"};A(U,{tune:()=>{let a=g(Y),l=!a.open;if(l)aF();if(!l)a.close();else if(in"
     "nerWidth<1100)a.showModal();else a.show();g(a$).ariaExpanded=l;if(!l)g(a$).focus()},savePreset:()=>{let b=g(bb).value.tr"
     "im();if(!b)return g(bb).focus();D.set(cl,{...bo(),[b]:{...T,system:g(ai).value}});g(bb).value=\"\";aF();g(bC).value=b},dro"
     "pPreset:c=>{let{[c.dataset.name]:e,...d}=bo();D.set(cl,d);aF()}});let bk=new Map(),dg=a=>eG(a).catch(b=>aN(\"This could n"
     "ot be saved: \"+b.message)),G=(a,c,b=a)=>{A(b,c,{rev:aY()});dg(a);R()},bt=a=>{let l=aa.classList.toggle(\"side\",a);g(\"menu"
     "\").ariaExpanded=l;g(\"main\").inert=l&&innerWidth<861},da=()=>matchMedia(\"(hover: hover)\").matches&&g(w).focus(),bX=()=>{l"
     "et a=g(w);if(!CSS.supports(\"field-sizing\",\"content\")){a.style.height=\"auto\";a.style.height=a.scrollHeight+\"px\"}cU(h(),al"
     "(h()))},cd=(b,a)=>{g(w).value=b;V=a;bX();R()},bQ=()=>{at=am=\"\";au=!0;bt(!1);cd(...(bk.get(ac)||[\"\",[]]));cI=ab.now();aF("
     ");da()},dh=()=>bk.set(ac,[g(w).value,V]),"),
    ("ak=a=>{dh();history.pushState(j,\"\",a?\"#\"+a:location.pathname);ac=a;bQ()},bY=async({live:c,wrote:b})=>{if(c)cV.set(c,ab.n"
     "ow());if(b)await eE(b);let a=ag.get(b);if(a?.gone){F(a)?.stop();if(a===h())ak(\"\")}R()};setInterval(()=>{for(let a of ae."
     "keys())dz({live:a});if(h()&&ax(h()).live)R()},1000);let ce=()=>{let b=g(w).value.trim(),a=V;if(b||a.length){cd(\"\",[]);dn"
     "(b,a)}},eK=b=>{let a=b.replace(/\\s+/g,y);return a.length<61?a:a.slice(0,60).replace(/\\s\\S{0,20}$/,\"\")+\"\\u2026\"},dn=(c,b)"
     "=>{let a=h();if(!a){a=ez(D.get(ai),eK(c||b[0].name),g(az).value);bk.delete(\"\");ac=a.id;history.pushState(j,\"\",\"#\"+ac)}a."
     "time=ab.now();if(F(a)||bF(a,ax(a)))G(a,{},bg(a,{role:aA,text:c,files:b,queued:a.time,up:bF(a,ax(a))?\"\":a.leaf}));else bh"
     "(a,bg(a,{role:aA,text:c,files:b,up:a.leaf}).id)},bh=async(a,c)=>{let b=bg(a,{role:ci,up:c});au=!0;G(a,{leaf:b.id});await"
     " cq(a,b)},cq=async(a,c)=>{await J(a,c);let b=dp(a)[0];if(b&&!/^(?:error|abort)$/.test(c.end))dv(a,b,b.up||c.id)},dv=(a,b"
     ",c)=>{G(a,{queued:0,up:c},b);bh(a,b.id)}"),
    (",dr=a=>{for(let b of a){F(b)?.stop();G(b,{gone:ab.now()})}if(a.includes(h()))ak(\"\");U.undo=()=>{for(let b of a)G(b,{gone"
     ":0});U.untoast()};aN(\"Deleted: \"+(a.length>1?a.length+\" conversations\":a[0].title),z(\"undo\",\"Undo\"))},eC=async a=>{let b"
     "=new TextDecoder(\"utf-8\",{fatal:!0}).decode(await a.arrayBuffer());if(b.includes(\"\\0\"))throw new Error();return{name:a.n"
     "ame,text:b}},bq=async b=>{let a=await createImageBitmap(b),g=u.min(1,1600/u.max(a.width,a.height)),e=u.ceil(a.width*g),c"
     "=u.ceil(a.height*g),f=aw([\"canvas\",{width:e,height:c}]),d=f.getContext(\"2d\");d.fillStyle=\"#fff\";d.fillRect(0,0,e,c);d.dr"
     "awImage(a,0,0,e,c);return{name:b.name,text:\"\",url:f.toDataURL(b.size<5e5&&/png|gif|bmp/.test(b.type)?\"image/png\":\"image/"
     "jpeg\")}},bR=async e=>{for(let a of e){let aK=/^image\\/(?!svg)/.test(a.type),d=al(h())?.modalities?.vision===!1,b=aK?d&&\""
     " is a picture: this model reads text only.\":a.size>4e6&&\" is larger than 4 MB.\";try{let c=!b&&await(aK?bq:eC)(a);if(c)V="
     "[...V,c]}catch(f){b=aK?\" is no picture that can be read.\":"),
    ("\" is not a text in UTF-8.\"}if(b)aN(a.name+b)}R();da()},bV=(b,c)=>{let a=aw([\"a\",{href:URL.createObjectURL(new Blob([c]))"
     ",download:b}]);a.click();setTimeout(()=>URL.revokeObjectURL(a.href),9999)},c$=a=>h().title.replace(/[^\\p{L}\\p{N}]+/gu,\"-"
     "\")+a,cY=a=>av.stringify({format:\"llm.h\",chats:a},j,1),eH=a=>\"## \"+(a.role===aA?\"You\":\"Answer\")+\"\\n\\n\"+bj(a)+E,ew=async d"
     "=>{try{let a=es(await d.text());for(let b of a)G(bN(b),{gone:0});aN(a.length+\" imported.\")}catch(c){aN(\"This file holds "
     "no conversations. \"+c.message)}},aR=b=>a=>{if(!F(h()))b(a)},de=a=>a.closest(\"[data-id]\").dataset.id,ad=a=>h().nodes[de(a"
     ")],bU=a=>ag.get(de(a)),cP=(a,c)=>{ej(c,()=>{let b=a.tree.slice(2);M(a,I(b[0])?[\"Copied\"]:[aG(\"check\")]);setTimeout(()=>M"
     "(a,b),1500);B(\"Copied\")})};A(U,{skip:()=>g(w).focus(),side:()=>{bt();g(aa.classList.contains(\"side\")?\"unside\":\"menu\").fo"
     "cus()},newChat:()=>ak(\"\"),jump:()=>{au=!0},idea:a=>dn(a.textContent,[]),attach:()=>g(\"pick\").click(),detach:a=>{V=V.filt"
     "er((k,i)=>i!==aJ(a.dataset.at))},newLine:"),
    ("()=>{let b=g(w);b.setRangeText(E,b.selectionStart,b.selectionEnd,\"end\");b.focus();bX()},queue:ce,untoast:()=>M(g(\"toast\""
     "),[]),copyCode:a=>cP(a,a.closest(\".code\").querySelector(aM).textContent),copy:a=>cP(a,bj(ad(a))),edit:a=>{at=ad(a).id},c"
     "ancelEdit:()=>{at=\"\"},sendEdit:aR(a=>{let{files:f,up:j}=ad(a),d=a.closest(\".edit\").querySelector(bw).value.trim();at=\"\";"
     "if(d)bh(h(),bg(h(),{role:aA,text:d,files:f,up:j}).id)}),again:aR(a=>bh(h(),ad(a).up)),goOn:aR(a=>cq(h(),ad(a))),shorten:"
     "aR(a=>{G(h(),{from:dj(h(),ad(a)).id});cq(h(),ad(a))}),sendAll:()=>G(h(),{from:\"\"}),branch:a=>{au=!1;G(h(),{leaf:eo(h(),a"
     ".dataset.to)})},sendQueued:aR(a=>dv(h(),ad(a),h().leaf)),dropQueued:a=>G(h(),{gone:1},ad(a)),unqueue:a=>{let c=ad(a),e=g"
     "(w).value;U.dropQueued(a);cd(c.text+(e&&E+e),[...c.files,...V]);g(w).focus()},rename:a=>{am=bU(a).id},remove:a=>dr([bU(a"
     ")]),removeAll:()=>dr(bO()),exportText:()=>bV(c$(\".md\"),\"# \"+h().title+\"\\n\\n\"+cp(h()).map(eH).join(E)),exportOne:()=>bV(c"
     "$(\".json\"),cY([h()])),exportAll:()=>bV("),
    ("\"llm-chats.json\",cY(bO())),import:()=>g(\"load\").click()});let l=(c,a,b)=>c.addEventListener(a,b);l(H,\"click\",a=>{let b=a"
     ".target.closest(\"[data-do]\"),c=a.target.closest(\"#list a\");if(b){a.preventDefault();U[b.dataset.do](b);if(at||am)cT();el"
     "se R()}else if(c&&!a.ctrlKey&&!a.metaKey&&!a.shiftKey){a.preventDefault();ak(c.hash.slice(1))}else if(!a.target.closest("
     "\"#side\"))bt(!1)});l(g(\"form\"),\"submit\",a=>{a.preventDefault();if(F(h()))F(h()).stop();else ce()});l(g(w),w,bX);l(g(w),\"p"
     "aste\",a=>{if(a.clipboardData.files.length)a.preventDefault();bR([...a.clipboardData.files])});l(H,\"keydown\",a=>{if(a.isC"
     "omposing||a.keyCode===229)return;let b=a.target,c=a.ctrlKey||a.metaKey,d=a.key==\"Enter\",e=i=>b.closest(i),f=a.key==\"Arro"
     "wUp\"&&b.id===w&&!b.value&&[...H.querySelectorAll(\".msg [data-do=edit]\")].pop();if(a.key==\"Escape\"){if(e(\".edit, .item\"))"
     "at=am=\"\";else if(g(Y).open)U.tune();else if(aa.classList.contains(\"side\"))U.side();else if(F(h()))F(h()).stop()}else if("
     "c&&a.shiftKey&&a.key==\"O\")ak(\"\");else if("),
    ("c&&a.key==\"k\"){bt(!0);g(\"search\").focus()}else if(c&&a.key==\",\")U.tune();else if(d&&e(dB))b.blur();else if(d&&c&&e(\".edi"
     "t\"))U.sendEdit(b);else if(d&&b.id===w&&(D.get(bc)?c:!a.shiftKey))ce();else if(f)U.edit(f);else return;a.preventDefault()"
     ";R()});l(H,\"focusout\",a=>{let b=am&&a.target.closest(dB)&&a.target.value.trim();if(b)G(bU(a.target),{title:b});am=b?\"\":a"
     "m});l(g(\"search\"),w,a=>{cc=a.target.value.trim();R()});l(g(Y),cm,a=>dw(a.target.id,a.target.value));l(g(az),\"focus\",aW);"
     "l(g(az),cm,a=>{D.set(az,a.target.value);if(h())G(h(),{model:a.target.value});R();aF()});l(g(\"log\"),\"scroll\",()=>{let a=g"
     "(\"log\");g(\"jump\").hidden=au=a.scrollHeight-a.scrollTop-a.clientHeight<60});for(let[c,d]of[[\"pick\",bR],[\"load\",([b])=>ew("
     "b)]]){l(g(c),cm,a=>{d([...a.target.files]);a.target.value=\"\"})}for(let b of[\"dragover\",\"dragleave\",\"drop\"]){l(H,b,a=>{if"
     "(!a.dataTransfer.types.includes(\"Files\"))return;a.preventDefault();aa.classList.toggle(\"drop\",b==\"dragover\");if(b==\"drop"
     "\")bR([...a.dataTransfer.files])})}l("),
    ("window,\"pagehide\",()=>bs.set(\"draft\",g(w).value));l(window,\"popstate\",()=>{dh();ac=location.hash.slice(1);bQ()});l(windo"
     "w,\"storage\",()=>{T=D.get(Y,{});bP()});for(let a of H.querySelectorAll(\"[data-icon]\")){a.prepend(aw(aG(a.dataset.icon)));"
     "a.title=a.ariaLabel||\"\"}bP();eB(bY).catch(()=>{}).then(()=>{if(!aD)aN(\"This browser keeps nothing: conversations are los"
     "t when the page is closed.\");if(!h()||h().gone)ac=\"\";bk.set(ac,[bs.get(\"draft\"),[]]);bQ();aW()});")};
/* generated: end */

/* ============================================================================
 * >>routes   What is served where.
 * ============================================================================
 * Who may ask comes first, from the head alone: a Host that is ours, since a page of another site could otherwise reach a server on loopback
 * under a name of its own (DNS rebinding); for what does something, a page that may do it, since a browser asks nobody before it sends a
 * simple request (CSRF); a key where one is set. An Origin that is allowed may read the answer (CORS). */

/* Whether the model that the start waits for is loaded. */
static int is_ready(void) { return __atomic_load_n(&server.ready, __ATOMIC_ACQUIRE) > 0; }

/* Constant-time comparison of a key with one of ours. */
static int key_equal(slice a, const char *b) {
    size_t n = strlen(b);
    unsigned diff = (unsigned)(a.n != n);
    for (size_t i = 0; i < n; i++) diff |= (unsigned)((unsigned char)b[i] ^ (unsigned char)(i < a.n ? a.p[i] : 0));
    return !diff;
}

/* Is a key of ours in Authorization or x-api-key? Without --api-key everybody is let in. */
static int authorized(const conn *c) {
    slice key = c->head.api_key;
    int ok = !server.cfg.keys.n;
    if (c->head.authorization.n > 7 && !strncasecmp(c->head.authorization.p, "Bearer ", 7)) {
        key.p = c->head.authorization.p + 7;
        key.n = c->head.authorization.n - 7;
    }
    for (int i = 0; i < server.cfg.keys.n; i++) ok |= key_equal(key, server.cfg.keys.items[i]); /* all are compared, whichever fits */
    return ok;
}

/* host of "host:port" or "[::1]:port" or "http://host:port". */
static slice host_part(slice v) {
    if (v.n > 7 && !memcmp(v.p, "http://", 7)) v.p += 7, v.n -= 7;
    else if (v.n > 8 && !memcmp(v.p, "https://", 8)) v.p += 8, v.n -= 8;
    const char *end = v.n && v.p[0] == '[' ? (const char *)memchr(v.p, ']', v.n) : NULL;
    if (end) v.p++, v.n = (size_t)(end - v.p);
    else if (v.n && (end = (const char *)memchr(v.p, ':', v.n)) != NULL) v.n = (size_t)(end - v.p);
    return v;
}

/* localhost, 127.0.0.0/8, ::1: names that no other machine can have. */
static int is_loopback_name(slice v) {
    slice h = host_part(v);
    const char *rest = h.p + h.n, *end = v.p + v.n; /* behind the name: nothing, or a port */
    if (rest < end && *rest == ']') rest++;
    if (rest < end && (*rest != ':' || strspn(rest + 1, "0123456789") < (size_t)(end - rest - 1))) return 0;
    return slice_is_nocase(h, "localhost") || slice_is(h, "::1") ||
           (h.n > 4 && !memcmp(h.p, "127.", 4) && strspn(h.p, "0123456789.") >= h.n);
}

/* Pages of which origin may call. Without --cors-origins those of this machine. */
static int origin_allowed(slice origin) {
    for (int i = 0; i < server.cfg.origins.n; i++)
        if (!strcmp(server.cfg.origins.items[i], "*") || slice_is_nocase(origin, server.cfg.origins.items[i])) return 1;
    return !server.cfg.origins.n && is_loopback_name(origin);
}

/* Whether a Host is an address: no page of another site has that for its name. */
static int is_address(slice v) {
    char text[64];
    unsigned char bytes[16];
    const slice h = host_part(v);
    if (h.n >= sizeof text) return 0;
    memcpy(text, h.p, h.n);
    text[h.n] = 0;
    return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

/* A page of another site must not reach us under its own name (DNS rebinding): not on loopback, and not elsewhere where it is said which names
 * are ours. */
static int host_allowed(slice host) {
    if (!host.n || is_loopback_name(host)) return 1;
    if (!server.loopback && (!server.cfg.allowed_hosts.n || is_address(host))) return 1;
    for (int i = 0; i < server.cfg.allowed_hosts.n; i++)
        if (!strcmp(server.cfg.allowed_hosts.items[i], "*") || slice_is_nocase(host_part(host), server.cfg.allowed_hosts.items[i]))
            return 1;
    return 0;
}

/* Whether a request may do something (POST) as far as its page goes, if it comes from one: a page that is allowed, or one of our own. What a
 * browser says in Sec-Fetch-Site no script can change. */
static int page_allowed(const http_head *h) {
    if (!h->origin.n) return !slice_is(h->fetch_site, "cross-site");
    if (origin_allowed(h->origin) || slice_is(h->fetch_site, "same-origin")) return 1;
    const char *scheme = (const char *)memmem(h->origin.p, h->origin.n, "://", 3);
    const slice own = {h->host.p, scheme ? (size_t)(h->origin.p + h->origin.n - scheme) - 3 : 0}; /* as long as what follows it */
    return own.n && own.n == h->host.n && !strncasecmp(own.p, scheme + 3, own.n);
}

/* Headers of every answer. */
static void common_headers(conn *c, llm_text *t) {
    const llm_openai_info *info = call_info(c);
    if (c->head.origin.n && origin_allowed(c->head.origin)) {
        llm_text_str(t, "Access-Control-Allow-Origin: ");
        llm_text_add(t, c->head.origin.p, c->head.origin.n);
        llm_text_str(t, "\r\nVary: Origin\r\n");
    }
    slice id = c->head.request_id;
    int plain = id.n > 0 && id.n <= 128;
    for (size_t i = 0; plain && i < id.n; i++)
        plain = (id.p[i] && strchr("_.-", id.p[i])) || (http_token_char((unsigned char)id.p[i]) && !strchr("!#$%&'*+^`|~", id.p[i]));
    static uint64_t answers; /* of requests that have no id: errors before a call, pages */
    char made[40];
    snprintf(made, sizeof made, "req-%08llx%08llx", (unsigned long long)server.started,
             (unsigned long long)__atomic_add_fetch(&answers, 1, __ATOMIC_RELAXED));
    llm_text_str(t, "x-request-id: ");
    if (plain) llm_text_add(t, id.p, id.n);
    else llm_text_str(t, info ? info->id : made);
    llm_text_str(t, "\r\n");
    if (info && info->ignored[0]) llm_text_format(t, "x-llm-ignored: %s\r\n", info->ignored);
}

/* OPTIONS before a page's real request: what it may send. Never asks for a key, as it cannot carry one. */
static void answer_preflight(conn *c) {
    SCOPED_TEXT extra = {0};
    llm_text_str(&extra, "Access-Control-Allow-Methods: GET, POST, DELETE, OPTIONS\r\nAccess-Control-Allow-Headers: ");
    if (c->head.ask_headers.n && c->head.ask_headers.n < 1024) llm_text_add(&extra, c->head.ask_headers.p, c->head.ask_headers.n);
    else llm_text_str(&extra, "authorization, content-type");
    llm_text_str(&extra, "\r\nAccess-Control-Max-Age: 600\r\n");
    const llm_text none = {.failed = extra.failed};
    http_answer(c, 200, "text/plain", &none, c->head.origin.n && !origin_allowed(c->head.origin) ? NULL : extra.data);
}

/* 200 only when a request would be served: loading and shutting down are 503, which routers understand. */
static void route_health(conn *c) {
    SCOPED_TEXT t = {0};
    llm_text_str(&t, "{\"status\":\"ok\"}");
    if (is_ready() && !net.leaving) http_answer(c, 200, "application/json", &t, NULL);
    else http_answer_error(c, 503, net.leaving ? "Shutting down" : "Loading model", NULL, NULL);
}

static void route_version(conn *c) {
    SCOPED_TEXT t = {0};
    llm_text_str(&t, "{\"version\":\"" LLM_VERSION_STRING "\"}");
    http_answer(c, 200, "application/json", &t, NULL);
}

/* What a conversation takes where it says nothing itself: the model's own values, or those of llm_sampling_chat. A float is written
 * as it was meant, not with the digits of its rounding. */
static void add_chat_sampling(llm_text *t, const llm_sampling *s) {
    float v[4] = {s->temperature, s->top_p > 0 ? s->top_p : 1, s->min_p, s->repetition_penalty > 0 ? s->repetition_penalty : 1};
    double r[4];
    for (int i = 0; i < 4; i++) r[i] = (double)(int64_t)((double)v[i] * 1e6 + 0.5) / 1e6;
    llm_text_format(t, "'default_sampling_params':{'temperature':%f,'top_k':%d,'top_p':%f,'min_p':%f,'repetition_penalty':%f},", r[0],
                    s->top_k > 0 ? s->top_k : -1, r[1], r[2], r[3]);
}

/* vLLM's members and llama.cpp's meta and modalities: clients ask for one or the other. `status` is that of llama.cpp's router, `state` the same in a
 * word. Of a model that was never loaded little is known. */
static void add_model_card(llm_text *t, const served_model *m, const char *name, const char *root, const char *parent) {
    static const char *const states[] = {"unloaded", "loading", "loaded", "loaded", "unloaded", "failed"};
    const model_facts *f = &m->facts;
    const int failed = m->state == MODEL_FAILED;
    llm_text_format(t, "%,{'id':%q,'object':'model','created':%l,'owned_by':'llm.h','root':%q,'parent':%q,'permission':[],", name,
                    (int64_t)server.started, root, parent);
    if (m->state != MODEL_LOADING && f->known) {
        llm_text_format(t, "'max_model_len':%d,'modalities':{'vision':%s},", f->max_model_len, f->vision ? "true" : "false");
        add_chat_sampling(t, &f->chat);
        llm_text_format(t, "'meta':{'n_ctx_train':%d,'n_params':%l,'n_vocab':%d,'n_embd':%d,'size':%l},", f->trained_len, f->n_params,
                        f->vocab_size, f->hidden_size, f->weight_bytes);
    }
    llm_text_format(t, "'state':%q,'status':{'value':%q%s}", states[m->state], failed ? "unloaded" : states[m->state],
                    failed ? ",\"failed\":true" : "");
    if (failed) llm_text_format(t, ",'error':%q", m->error.data);
    llm_text_str(t, "}");
}

/* The served names of a model, then its adapters; or (only.p not NULL) the adapter of that name. The path is accepted as a name but not
 * listed. */
static void add_model_cards(llm_text *t, const served_model *m, slice only) {
    SCOPED_TEXT name = {0}, path = {0};
    for (int i = 0; i < m->n_listed && !only.p; i++) add_model_card(t, m, m->names.items[i], m->setup.model, NULL);
    for (int i = 0; adapter_get(m, i, &name, &path); i++, name.len = path.len = 0)
        if (!only.p || slice_is(only, name.data)) add_model_card(t, m, name.data, path.data, m->names.items[0]);
}

static void route_models(conn *c) {
    const slice all = {NULL, 0};
    SCOPED_TEXT t = {0};
    llm_text_str(&t, "{\"object\":\"list\",\"data\":[");
    pthread_mutex_lock(&models.mutex);
    for (int i = 0; i < models.n; i++) add_model_cards(&t, &models.list[i], all);
    pthread_mutex_unlock(&models.mutex);
    llm_text_str(&t, "]}");
    http_answer(c, 200, "application/json", &t, NULL);
}

/* One model by any of its names. */
static void route_model(conn *c) {
    slice name = plain_path(c->head.path);
    SCOPED_TEXT t = {0};
    name.p += strlen("/models/"), name.n -= strlen("/models/");
    pthread_mutex_lock(&models.mutex);
    const served_model *m = model_named(name.p, name.n);
    if (m) add_model_cards(&t, m, name);
    pthread_mutex_unlock(&models.mutex);
    if (!m) {
        llm_text_str(&t, "The model `");
        llm_text_add(&t, name.p, name.n < 64 ? name.n : 64);
        llm_text_str(&t, "` does not exist.");
        http_answer_error(c, 404, t.data, "model", "model_not_found");
        return;
    }
    if (!t.len) add_model_card(&t, m, m->names.items[0], m->setup.model, NULL);
    http_answer(c, 200, "application/json", &t, NULL);
}

static void route_metrics(conn *c) {
    SCOPED_TEXT t = {0};
    figures *f = (figures *)calloc((size_t)models.n, sizeof *f);
    int n = 0;
    pthread_mutex_lock(&metrics_mutex);
    for (int i = 0; f && i < models.n; i++)
        if (models.list[i].n_loads) f[n++] = figures_of(&models.list[i]);
    if (f) write_metrics(&t, f, n);
    else t.failed = 1;
    pthread_mutex_unlock(&metrics_mutex);
    free(f);
    http_answer(c, 200, "text/plain; version=0.0.4; charset=utf-8", &t, NULL);
}

/* What vLLM's router asks. */
static void route_load(conn *c) {
    SCOPED_TEXT t = {0};
    int64_t n = 0;
    pthread_mutex_lock(&models.mutex);
    for (int i = 0; i < models.n; i++) {
        llm_engine_stats s = {0};
        if (is_loaded(&models.list[i])) llm_engine_get_stats(models.list[i].engine, &s);
        n += s.n_running + s.n_waiting;
    }
    pthread_mutex_unlock(&models.mutex);
    llm_text_format(&t, "{'server_load':%l}", n);
    http_answer(c, 200, "application/json", &t, NULL);
}

/* What lm-eval needs to use this server's tokenizer instead of its own: of the default model, which is loaded if it is not. */
static void route_tokenizer_info(conn *c) {
    static const char *const name[4] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    if (!is_loaded(default_model())) {
        default_model()->asked = 1;
        http_answer_error(c, 503, "Loading model", NULL, NULL);
        return;
    }
    const llm_model *model = default_model()->model;
    const llm_model_info *info = llm_model_get_info(model);
    const int32_t id[4] = {info->bos_id, info->eos_id, info->pad_id, info->unk_id};
    SCOPED_TEXT t = {0};
    llm_text_format(&t, "{'tokenizer_class':%q", info->tokenizer_kind);
    for (int i = 0; i < 4; i++) {
        SCOPED_TEXT raw = {0};
        if (id[i] >= 0 && llm_token_bytes(model, id[i], &raw)) t.failed = 1;
        t.failed |= raw.failed;
        llm_text_format(&t, ",%q:%q", name[i], raw.data);
    }
    llm_text_format(&t, ",'vocab_size':%d,'model_max_length':%d,'chat_template':%q}", llm_vocab_size(model), info->max_position_embeddings,
                    info->chat_template);
    http_answer(c, 200, "application/json", &t, NULL);
}

/* The version of Ollama's API whose fields are read and answered: its clients ask for one before they use what is newer. */
#define OLLAMA_API "0.12.11"

static void route_ollama_version(conn *c) {
    SCOPED_TEXT t = {0};
    llm_text_str(&t, "{\"version\":\"" OLLAMA_API "\",\"server\":\"llm.h " LLM_VERSION_STRING "\"}");
    http_answer(c, 200, "application/json", &t, NULL);
}

/* The listed names and the adapters of each model, as Ollama lists them; loaded: with what only those have that are. */
static void ollama_models(conn *c, int loaded) {
    SCOPED_TEXT t = {0}, name = {0};
    llm_text_str(&t, "{\"models\":[");
    pthread_mutex_lock(&models.mutex);
    for (int k = 0; k < models.n; k++) {
        const served_model *m = &models.list[k];
        const llm_model *model = is_loaded(m) ? m->model : NULL;
        const int32_t most = loaded ? m->facts.max_model_len : 0;
        if (loaded && !model) continue;
        for (int i = 0; i < m->n_listed; i++) llm_ollama_card(model, m->names.items[i], server.started, most, &t);
        for (int i = 0; adapter_get(m, i, &name, NULL); i++, name.len = 0)
            llm_ollama_card(model, name.data ? name.data : "", server.started, most, &t);
    }
    pthread_mutex_unlock(&models.mutex);
    llm_text_str(&t, "]}");
    t.failed |= name.failed;
    http_answer(c, 200, "application/json", &t, NULL);
}

static void route_ollama_tags(conn *c) { ollama_models(c, 0); }
static void route_ollama_ps(conn *c) { ollama_models(c, 1); }

/* A file of the page. The policy lets it talk to this server only, and nothing else run in it. */
static void route_page(conn *c) {
    static const struct {
        const char *path, *type;
        const char *const *line;
        size_t n;
    } files[] = {{"/", "text/html; charset=utf-8", page_html, N_OF(page_html)},
                 {"/page.css", "text/css; charset=utf-8", page_css, N_OF(page_css)},
                 {"/page.js", "text/javascript; charset=utf-8", page_js, N_OF(page_js)}};
    SCOPED_TEXT t = {0};
    size_t i = 0;
    while (!slice_is(plain_path(c->head.path), files[i].path)) i++;
    for (size_t k = 0; k < files[i].n; k++) llm_text_format(&t, "%s\n", files[i].line[k]);
    if (server.cfg.no_page) http_answer_error(c, 404, "the page is switched off", NULL, NULL);
    else
        http_answer(c, 200, files[i].type, &t,
                    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
                    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
                    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n");
}

/* ---- the table */

typedef struct route {
    const char *method, *path; /* with or without /v1 it is the same; one that ends in '/' is that of all below it, but for "/" */
    void (*get)(conn *c);
    llm_openai_kind kind; /* of the call that answers a body; with `get` without meaning */
    int open, early;      /* open: needs no key; early: answered before the model is ready */
    const char *what;     /* what it does, in a line, for >>documents */
} route;

static void route_openapi(conn *c);
static void route_docs(conn *c);

/* clang-format off */
static const route routes[] = {
    {"GET", "/health", route_health, LLM_OPENAI_CHAT, 1, 1, "200 when requests are served; 503 while loading and while shutting down"},
    {"GET", "/ping", route_health, LLM_OPENAI_CHAT, 1, 1, "The same"},
    {"POST", "/ping", route_health, LLM_OPENAI_CHAT, 1, 1, "The same (SageMaker)"},
    {"GET", "/load", route_load, LLM_OPENAI_CHAT, 0, 0, "How many requests run or wait (vLLM)"},
    {"GET", "/", route_page, LLM_OPENAI_CHAT, 1, 1, "The chat page"},
    {"GET", "/page.css", route_page, LLM_OPENAI_CHAT, 1, 1, "Its style"},
    {"GET", "/page.js", route_page, LLM_OPENAI_CHAT, 1, 1, "Its script"},
    {"GET", "/docs", route_docs, LLM_OPENAI_CHAT, 1, 1, "This list, to read"},
    {"GET", "/openapi.json", route_openapi, LLM_OPENAI_CHAT, 1, 1, "This list, as OpenAPI 3.1"},
    {"GET", "/version", route_version, LLM_OPENAI_CHAT, 0, 1, "The server's version"},
    {"GET", "/metrics", route_metrics, LLM_OPENAI_CHAT, 1, 0, "Prometheus, with vLLM's names"},
    {"GET", "/v1/models", route_models, LLM_OPENAI_CHAT, 0, 0, "The models and adapters that are served"},
    {"GET", "/v1/models/", route_model, LLM_OPENAI_CHAT, 0, 0, "One of them"},
    {"POST", "/v1/chat/completions", NULL, LLM_OPENAI_CHAT, 0, 0, "The next message of a chat (OpenAI)"},
    {"POST", "/v1/completions", NULL, LLM_OPENAI_COMPLETION, 0, 0, "What follows a prompt (OpenAI)"},
    {"POST", "/v1/responses", NULL, LLM_OPENAI_RESPONSE, 0, 0, "The same as a chat, in items (OpenAI); nothing is kept"},
    {"POST", "/v1/messages", NULL, LLM_OPENAI_MESSAGES, 0, 0, "The next message of a chat, in blocks (Anthropic)"},
    {"POST", "/v1/messages/count_tokens", NULL, LLM_OPENAI_COUNT_TOKENS, 0, 0, "How many tokens its prompt has (Anthropic)"},
    {"POST", "/v1/embeddings", NULL, LLM_OPENAI_EMBEDDING, 0, 0, "Vectors of texts (OpenAI)"},
    {"POST", "/v1/rerank", NULL, LLM_OPENAI_RERANK, 0, 0, "Documents by how well they answer a query, best first (vLLM, Jina, Cohere)"},
    {"POST", "/v2/rerank", NULL, LLM_OPENAI_RERANK, 0, 0, "The same (Cohere)"},
    {"POST", "/v1/score", NULL, LLM_OPENAI_SCORE, 0, 0, "How well texts answer others (vLLM)"},
    {"POST", "/classify", NULL, LLM_OPENAI_CLASSIFY, 0, 0, "What a classifier says of texts (vLLM)"},
    {"POST", "/generate", NULL, LLM_OPENAI_GENERATE, 0, 0, "What follows a prompt, as vLLM's demonstration server has it"},
    {"POST", "/tokenize", NULL, LLM_OPENAI_TOKENIZE, 0, 0, "The token ids of a text or a chat (vLLM, llama.cpp)"},
    {"POST", "/detokenize", NULL, LLM_OPENAI_DETOKENIZE, 0, 0, "The text of token ids"},
    {"GET", "/tokenizer_info", route_tokenizer_info, LLM_OPENAI_CHAT, 0, 0, "The tokenizer's special tokens and the chat template"},
    {"POST", "/apply-template", NULL, LLM_OPENAI_TEMPLATE, 0, 0, "A chat as the prompt that the model sees"},
    {"POST", "/v1/load_lora_adapter", NULL, LLM_OPENAI_LORA_LOAD, 0, 0, "Loads an adapter of --lora-dir (vLLM)"},
    {"POST", "/v1/unload_lora_adapter", NULL, LLM_OPENAI_LORA_UNLOAD, 0, 0, "Unloads an adapter (vLLM)"},
    {"POST", "/v1/contexts/save", NULL, LLM_OPENAI_CONTEXT_SAVE, 0, 0, "Keeps a prompt's cache as a file of --context-dir"},
    {"POST", "/v1/contexts/load", NULL, LLM_OPENAI_CONTEXT_LOAD, 0, 0, "Reads such a file into the cache"},
    {"POST", "/api/chat", NULL, LLM_OPENAI_OLLAMA_CHAT, 0, 0, "The next message of a chat (Ollama)"},
    {"POST", "/api/generate", NULL, LLM_OPENAI_OLLAMA_GENERATE, 0, 0, "What follows a prompt (Ollama)"},
    {"POST", "/api/embed", NULL, LLM_OPENAI_OLLAMA_EMBED, 0, 0, "Vectors of texts (Ollama)"},
    {"POST", "/api/embeddings", NULL, LLM_OPENAI_OLLAMA_EMBEDDINGS, 0, 0, "A vector, not normalised (Ollama's older form)"},
    {"POST", "/api/show", NULL, LLM_OPENAI_OLLAMA_SHOW, 0, 0, "What a model is (Ollama)"},
    {"GET", "/api/tags", route_ollama_tags, LLM_OPENAI_CHAT, 0, 0, "The models that are served (Ollama)"},
    {"GET", "/api/ps", route_ollama_ps, LLM_OPENAI_CHAT, 0, 0, "The models that are loaded (Ollama)"},
    {"GET", "/api/version", route_ollama_version, LLM_OPENAI_CHAT, 0, 1, "The version of Ollama's API that is spoken"}};
/* clang-format on */

/* curl -d says application/x-www-form-urlencoded unless told otherwise, and that is refused, as is a body without a type: a page of another
 * site can send either without asking first. */
static int body_is_json(const conn *c) {
    slice t = c->head.content_type, kind = t;
    const int page = c->head.origin.n || c->head.fetch_site.n; /* every browser of today says so with a POST */
    if (!c->head.chunked && c->head.content_length <= 0) return 1;
    if (path_is_ollama(c->head.path) && !page) return 1; /* Ollama's documents show curl -d without a type */
    if (!t.n) return 0;
    const char *semicolon = (const char *)memchr(t.p, ';', t.n);
    if (semicolon) kind.n = (size_t)(semicolon - t.p);
    if (!slice_is_nocase(slice_trim(kind), "application/json")) return 0;
    return !semicolon || !memmem(semicolon, t.n - kind.n, "utf-16", 6);
}

/* The doors in their order: key, loading, shutting down, media type. Returns the route if it waits for the body. */
static const route *serve_route(conn *c, const route *r) {
    if (!r->open && !authorized(c))
        http_answer_error(c, 401, "Unauthorized: send a valid key as Authorization: Bearer KEY", NULL, "invalid_api_key");
    else if (!r->early && !is_ready()) http_answer_error(c, 503, "Loading model", NULL, NULL);
    else if (r->get) r->get(c);
    else if (net.draining) http_answer_error(c, 503, "Shutting down", NULL, NULL);
    else if (!body_is_json(c)) http_answer_error(c, 415, "Content-Type must be application/json", NULL, NULL);
    else return r;
    return NULL;
}

/* 403 with a sentence that names what was sent (%Q in it). */
static void answer_forbidden(conn *c, const char *pattern, slice what) {
    SCOPED_TEXT t = {0};
    llm_text_format(&t, pattern, what.p, what.n < 200 ? what.n : (size_t)200);
    http_answer_error(c, 403, t.failed ? "this is not served here" : t.data, NULL, NULL);
}

/* Host and page, and what a browser asks before it sends. 0: the request is answered. */
static int may_come_in(conn *c) {
    const slice method = c->head.method, host = host_part(c->head.host);
    const int reads = slice_is(method, "GET") || slice_is(method, "HEAD");
    if (!host_allowed(c->head.host))
        answer_forbidden(c, "this server was asked for by the name %Q, which it does not serve: start it with --allowed-hosts NAME", host);
    else if (slice_is(method, "OPTIONS")) answer_preflight(c);
    else if (!reads && !page_allowed(&c->head))
        answer_forbidden(c, "a page of another site, %Q, may not use this server: start it with --cors-origins ORIGIN", c->head.origin);
    else return 1;
    return 0;
}

/* ---- >>documents   What is served, from the table of routes and the tables that read bodies: for programs and for people. */

/* {"$ref": ...} of an error's form, which is Ollama's on its paths. */
static void add_answers(llm_text *t, const route *r) {
    const slice path = {r->path, strlen(r->path)};
    const int streams = !r->get && (r->kind <= LLM_OPENAI_GENERATE || r->kind == LLM_OPENAI_RESPONSE || r->kind == LLM_OPENAI_MESSAGES);
    const char *lines = r->kind == LLM_OPENAI_OLLAMA_CHAT || r->kind == LLM_OPENAI_OLLAMA_GENERATE ? "application/x-ndjson" : NULL;
    const char *type = !r->get                        ? "application/json"
                       : r->get == route_page         ? "text/html"
                       : r->get == route_docs         ? "text/html"
                       : !strcmp(r->path, "/metrics") ? "text/plain"
                                                      : "application/json";
    llm_text_format(t, "'responses':{'200':{'description':'OK','content':{%q:{}", type);
    if (streams) llm_text_str(t, ",\"text/event-stream\":{}");
    if (lines && !r->get) llm_text_format(t, ",%q:{}", lines);
    llm_text_format(t, "}},'default':{'$ref':'#/components/responses/%s'}}", path_is_ollama(path) ? "OllamaError" : "Error");
}

/* A route as an operation. operationId: its method and path with what is no letter as '_'. */
static void add_operation(llm_text *t, const route *r) {
    char id[80];
    size_t n = (size_t)snprintf(id, sizeof id, "%s%s", r->method, r->path);
    for (size_t i = 0; i < n; i++)
        if (!((id[i] | 32) >= 'a' && (id[i] | 32) <= 'z') && !(id[i] >= '0' && id[i] <= '9')) id[i] = '_';
    const int below = r->path[1] && r->path[strlen(r->path) - 1] == '/';
    llm_text_format(t, "'%s':{'operationId':%q,'summary':%q,", !strcmp(r->method, "GET") ? "get" : "post", id, r->what);
    if (below) llm_text_format(t, "'parameters':[{'name':'name','in':'path','required':true,'schema':{'type':'string'}}],");
    if (r->open) llm_text_format(t, "'security':[],");
    if (!r->get) {
        llm_text_format(t, "'requestBody':{'required':true,'content':{'application/json':{'schema':");
        llm_openai_schema(r->kind, t);
        llm_text_str(t, "}}},");
    }
    add_answers(t, r);
    llm_text_str(t, "}");
}

static void write_openapi(llm_text *t) {
    static const char error[] =
        "{'description':'An error','content':{'application/json':{'schema':{'type':'object','properties':{'error':%s}}}}}";
    llm_text_format(t, "{'openapi':'3.1.0','info':{'title':'llm_serve','version':%q,'description':%q},'security':[%s],'paths':{",
                    LLM_VERSION_STRING,
                    "What begins with /v1 is served without it too. Members without effect are named in the header x-llm-ignored.",
                    server.cfg.keys.n ? "{\"key\":[]}" : "");
    for (size_t i = 0; i < N_OF(routes); i++) {
        const route *r = &routes[i];
        const int below = r->path[1] && r->path[strlen(r->path) - 1] == '/';
        const int first = !i || strcmp(r->path, routes[i - 1].path) != 0,
                  last = i + 1 == N_OF(routes) || strcmp(r->path, routes[i + 1].path) != 0;
        if (first) llm_text_format(t, below ? "%,'%s{name}':{" : "%,'%s':{", r->path);
        else llm_text_str(t, ",");
        add_operation(t, r);
        if (last) llm_text_str(t, "}");
    }
    llm_text_str(t, "},\"components\":{\"responses\":{\"Error\":");
    llm_text_format(
        t, error,
        "{\"type\":\"object\",\"properties\":{\"message\":{\"type\":\"string\"},\"type\":{\"type\":\"string\"},\"param\":{\"type\":"
        "[\"string\",\"null\"]},\"code\":{\"type\":[\"string\",\"null\"]}}}");
    llm_text_str(t, ",\"OllamaError\":");
    llm_text_format(t, error, "{\"type\":\"string\"}");
    llm_text_str(t, "},\"securitySchemes\":{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\"}}}}");
}

static void route_openapi(conn *c) {
    SCOPED_TEXT t = {0};
    if (server.cfg.no_docs) {
        http_answer_error(c, 404, "the documents are switched off", NULL, NULL);
        return;
    }
    write_openapi(&t);
    http_answer(c, 200, "application/json", &t, NULL);
}

/* A text in HTML. */
static void html_text(llm_text *t, const char *s) {
    for (; s && *s; s++) {
        if (*s == '&') llm_text_str(t, "&amp;");
        else if (*s == '<') llm_text_str(t, "&lt;");
        else if (*s == '>') llm_text_str(t, "&gt;");
        else llm_text_add(t, s, 1);
    }
}

/* The types and the range of a member's schema: "integer, -1 to 20". */
static void html_schema(llm_text *t, const llm_json *d, int v) {
    const int type = llm_json_find(d, v, "type"), low = llm_json_find(d, v, "minimum"), high = llm_json_find(d, v, "maximum"),
              one = llm_json_find(d, v, "enum"), list = llm_json_type_of(d, type) == LLM_JSON_ARRAY ? type : one;
    const char *sign = "", *alone = llm_json_str(d, type, NULL);
    if (alone) html_text(t, alone);
    for (int e = llm_json_first(d, list); e >= 0; e = llm_json_next(d, e)) {
        const char *word = llm_json_str(d, e, NULL);
        if (llm_json_type_of(d, e) == LLM_JSON_NULL || (word && !strcmp(word, "null"))) continue;
        llm_text_str(t, sign);
        if (word) html_text(t, word);
        else llm_json_write(d, e, t);
        sign = " or ";
    }
    if (low >= 0) llm_text_format(t, high >= 0 ? ", %j to %j" : ", at least %j", d, low, d, high);
    if (llm_json_find(d, v, "description") < 0) return;
    llm_text_str(t, "; ");
    html_text(t, llm_json_str(d, llm_json_find(d, v, "description"), NULL));
}

/* The members of a body, as rows; those of `options` below it. */
static void html_members(llm_text *t, const llm_json *d, int schema, const char *before) {
    for (int v = llm_json_first(d, llm_json_find(d, schema, "properties")); v >= 0; v = llm_json_next(d, v)) {
        llm_text_str(t, "<tr><td><code>");
        html_text(t, before);
        html_text(t, llm_json_key(d, v, NULL));
        llm_text_str(t, "</code><td>");
        html_schema(t, d, v);
        llm_text_str(t, "\n");
        if (!strcmp(llm_json_key(d, v, NULL), "options")) html_members(t, d, v, "options.");
    }
}

static void html_route(llm_text *t, const llm_json *d, int path) {
    for (int m = llm_json_first(d, path); m >= 0; m = llm_json_next(d, m)) {
        static const char *const way[] = {"requestBody", "content", "application/json", "schema"};
        int schema = m;
        for (size_t i = 0; i < N_OF(way); i++) schema = llm_json_find(d, schema, way[i]);
        llm_text_str(t, schema >= 0 ? "<details><summary><code>" : "<p><code>");
        llm_text_str(t, !strcmp(llm_json_key(d, m, NULL), "get") ? "GET " : "POST ");
        html_text(t, llm_json_key(d, path, NULL));
        llm_text_str(t, "</code> ");
        html_text(t, llm_json_str(d, llm_json_find(d, m, "summary"), NULL));
        if (schema >= 0) {
            llm_text_str(t, "</summary><table>\n");
            html_members(t, d, schema, "");
            llm_text_str(t, "</table></details>");
        }
        llm_text_str(t, "\n");
    }
}

/* The same to read: what the document holds, without a script. */
static void route_docs(conn *c) {
    SCOPED_TEXT json = {0}, t = {0};
    llm_json *d = NULL;
    if (server.cfg.no_docs) {
        http_answer_error(c, 404, "the documents are switched off", NULL, NULL);
        return;
    }
    write_openapi(&json);
    if (json.failed || llm_json_parse(json.data, json.len, NULL, &d)) {
        http_answer_exhausted(c);
        return;
    }
    llm_text_str(
        &t,
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width, initial-scale=1\">"
        "<meta name=color-scheme content=\"light dark\"><title>llm_serve: routes</title>\n"
        "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:auto;padding:1rem}td{vertical-align:top;padding:0 1rem 0 0}"
        "code{font-size:.95em}p,details{margin:.3rem 0}summary{cursor:pointer}table{margin:.5rem 0 1rem 1.2rem}</style>\n"
        "<h1>llm_serve " LLM_VERSION_STRING "</h1>\n<p>");
    html_text(&t, llm_json_str(d, llm_json_find(d, llm_json_find(d, 0, "info"), "description"), NULL));
    llm_text_str(&t, server.cfg.keys.n ? " A key is asked for: <code>Authorization: Bearer KEY</code>.\n" : "\n");
    for (int v = llm_json_first(d, llm_json_find(d, 0, "paths")); v >= 0; v = llm_json_next(d, v)) html_route(&t, d, v);
    llm_json_free(d);
    http_answer(c, 200, "text/html; charset=utf-8", &t,
                "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
                "frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n");
}

/* Paths of other servers that are not served here, with what there is instead. One that ends in '/' stands for all below it too. */
static const struct {
    const char *path, *why;
} strange_paths[] = {
    {"/messages/batches/", "batches are not kept here: llm_cli batch runs a batch file"},
    {"/completion", "llama-server's own form is not spoken here: /v1/completions takes the same fields"},
    {"/infill", "nothing is filled in between two texts here: /v1/completions goes on with one"},
    {"/embedding", "/v1/embeddings has vectors"},
    {"/embed", "/v1/embeddings has vectors"},
    {"/v2/embed", "Cohere's form of vectors is not spoken here: /v1/embeddings has them"},
    {"/reranking", "/v1/rerank ranks documents"},
    {"/pooling", "a model's hidden states are not told here: /v1/embeddings, /v1/rerank and /v1/score have what is pooled of them"},
    {"/generative_scoring", "/v1/completions has log-probabilities (logprobs), /v1/score the scores of rerankers"},
    {"/decisions", "/v1/chat/completions with structured_outputs has answers of a form"},
    {"/audio/", "no model here hears or speaks"},
    {"/realtime", "no model here hears or speaks"},
    {"/images/", "no model here draws"},
    {"/moderations", "no model here moderates"},
    {"/files", "files are not kept here: llm_cli batch runs a batch file"},
    {"/batches", "batches are not kept here: llm_cli batch runs a batch file"},
    {"/fine_tuning/", "nothing is trained here"},
    {"/assistants", "nothing is kept between two requests: /v1/chat/completions and /v1/responses take the whole conversation"},
    {"/threads", "nothing is kept between two requests: /v1/chat/completions and /v1/responses take the whole conversation"},
    {"/responses/", "responses are not kept: nothing can be fetched or cancelled by its id; closing the connection cancels"},
    {"/chat/completions/",
     "only /v1/chat/completions itself: chats are not kept, /apply-template and /tokenize show a prompt, llm_cli batch runs many"},
    {"/completions/", "only /v1/completions itself: /tokenize shows a prompt"},
    {"/chat/interactive", "/v1/chat/completions takes the whole conversation, whose beginning stays in the prefix cache"},
    {"/encode", "/tokenize has the ids of a text"},
    {"/invocations", "SageMaker's single path is not served: /v1/chat/completions, /v1/completions, /v1/embeddings and /v1/rerank are"},
    {"/inference/", "/v1/completions takes token ids as its prompt, and gives them with return_token_ids"},
    {"/abort_requests", "a request ends when its connection is closed"},
    {"/abort_request", "a request ends when its connection is closed"},
    {"/props", "/v1/models tells of the models, /tokenizer_info of the template"},
    {"/slots/", "there are no slots: /metrics tells of requests, /v1/contexts/save and /load keep contexts (--context-dir)"},
    {"/lora-adapters", "/v1/models lists adapters, and a request's `model` names one"},
    {"/models/load", "a model is loaded when a request names it"},
    {"/models/unload", "the longest unused model makes room for another (--max-loaded-models)"},
    {"/server_info", "llm_serve --help-all lists the options, /v1/models the models"},
    {"/config-info", "llm_serve --help-all lists the options, /v1/models the models"},
    {"/get_model_info", "/v1/models tells of the models"},
    {"/info", "/v1/models tells of the models"},
    {"/health_generate", "/health tells whether requests are served"},
    {"/redoc", "/docs lists the routes"},
    {"/list_models", "/v1/models tells of the models"},
    {"/reset_prefix_cache", "the prefix cache cannot be emptied from outside: cache_salt keeps a request's pages apart"},
    {"/reset_mm_cache", "the caches cannot be emptied from outside"},
    {"/sleep", "a model stays loaded until another needs its room (--max-loaded-models)"},
    {"/wake_up", "a model stays loaded until another needs its room (--max-loaded-models)"},
    {"/is_sleeping", "a model stays loaded until another needs its room (--max-loaded-models)"},
    {"/pause", "the engine is not stopped from outside: SIGTERM ends the server when what runs is done"},
    {"/resume", "the engine is not stopped from outside: SIGTERM ends the server when what runs is done"},
    {"/start_profile", "nothing is profiled from outside: perf or nsys can, and llm_cli bench tells speeds"},
    {"/stop_profile", "nothing is profiled from outside: perf or nsys can, and llm_cli bench tells speeds"},
    {"/collective_rpc", "nothing is run for clients"},
    {"/update_weights", "weights are not changed while they serve"},
    {"/scale_elastic_ep", "ranks do not change while they serve"},
    {"/api/pull", "nothing is fetched for a request: llm_cli pull ORG/NAME does"},
    {"/api/push", "models are not pushed from here"},
    {"/api/create", "models are not made by a request: llm_cli quantize and convert do"},
    {"/api/copy", "models are not copied by a request"},
    {"/api/delete", "models are not deleted by a request: llm_cli rm ORG/NAME does"},
    {"/api/blobs/", "models are not uploaded"}};

static void answer_unknown(conn *c, slice path) {
    for (size_t i = 0; i < N_OF(strange_paths); i++) {
        const char *own = strange_paths[i].path;
        const size_t n = strlen(own), below = own[n - 1] == '/';
        if (!slice_is(path, own) && !(below && path.n + 1 >= n && !memcmp(path.p, own, path.n < n ? path.n : n))) continue;
        http_answer_error(c, 404, strange_paths[i].why, NULL, NULL);
        return;
    }
    http_answer_error(c, 404, "not found; /docs lists what is served", NULL, NULL);
}

/* Finds the route. The metrics port serves /metrics and /health only. */
static const route *serve_head(conn *c) {
    const slice path = plain_path(c->head.path), method = c->head.method;
    const int head = slice_is(method, "HEAD");
    const char *known = NULL; /* the method of this path */
    if (!may_come_in(c)) return NULL;
    for (size_t i = 0; i < N_OF(routes); i++) {
        const char *own = routes[i].path + (strncmp(routes[i].path, "/v1/", 4) ? 0 : 3);
        size_t n = strlen(own), below = n > 1 && own[n - 1] == '/' && path.n > n && !memcmp(path.p, own, n);
        if (!below && !slice_is(path, own)) continue;
        if (c->admin && strcmp(routes[i].path, "/metrics") && strcmp(routes[i].path, "/health")) continue;
        known = routes[i].method;
        if (slice_is(method, known) || (head && !strcmp(known, "GET"))) return serve_route(c, &routes[i]);
    }
    if (known) {
        http_answer_error_with(c, 405, "this method is not allowed here", NULL, NULL,
                               strcmp(known, "GET") ? "Allow: POST, OPTIONS\r\n" : "Allow: GET, HEAD, OPTIONS\r\n");
    } else answer_unknown(c, path);
    return NULL;
}

/* The body is whole. */
static void serve_body(conn *c) {
    log_body(c);
    call_begin(c, c->route->kind);
}

/* ============================================================================
 * >>main   Listening, loading, the event loop, the end.
 * ============================================================================
 * SIGTERM stops accepting, finishes what runs (--shutdown-timeout) and exits 0. All state is freed at the end so that leak
 * checkers see leaks. */

/* A Unix socket. One that is left behind by a server that is gone is replaced; one that answers is not. */
static int listen_unix(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path) die(2, "the path of the Unix socket is too long");
    memcpy(a.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct stat st;
    if (connect(probe, (struct sockaddr *)&a, sizeof a) && errno == ECONNREFUSED && !stat(path, &st) && S_ISSOCK(st.st_mode))
        unlink(path); /* left behind by a server that is gone */
    close(probe);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 1024)) die(1, "%s: %s", path, strerror(errno));
    snprintf(server.bound, sizeof server.bound, "unix:%.140s", path);
    server.loopback = 0; /* no page of a browser reaches a Unix socket */
    return fd;
}

/* The first address of the name that can be bound. With `first` the address goes into the banner and decides whether
 * only this machine can reach us. */
static int listen_tcp(const char *host, int port, int first) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list = NULL;
    char service[8];
    snprintf(service, sizeof service, "%d", port);
    int e = getaddrinfo(host, service, &hints, &list), fd = -1, one = 1;
    if (e) die(1, "--host: %.200s: %s", host, gai_strerror(e));
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, 4096)) break;
        e = errno;
        close(fd);
        fd = -1;
        if (e == EADDRINUSE) break; /* else a second server would stand beside the first, on another address of the same name */
    }
    if (fd < 0)
        die(1, "port %d on %.150s: %s%s", port, host, strerror(e),
            e == EADDRINUSE ? "; another server runs there: take another --port" : "");
    freeaddrinfo(list);
    if (!first) return fd;
    struct sockaddr_storage s;
    socklen_t n = sizeof s;
    char name[NI_MAXHOST];
    getsockname(fd, (struct sockaddr *)&s, &n);
    getnameinfo((struct sockaddr *)&s, n, name, sizeof name, service, sizeof service, NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(server.bound, sizeof server.bound, strchr(name, ':') ? "http://[%.100s]:%s" : "http://%.100s:%s", name, service);
    const slice bound = {server.bound, strlen(server.bound)};
    server.loopback = is_loopback_name(bound);
    return fd;
}

/* SIGHUP asks for a new log file. Of the others the first asks for a graceful end, the second SIGINT for an immediate one. Only what is async-signal-safe happens
 * here. */
static void on_signal(int s) {
    if (s == SIGHUP) server.hangups = 1;
    else __atomic_fetch_add(&server.signals, 1 + (s == SIGINT && server.signals > 0), __ATOMIC_RELAXED); /* the loader reads it, too */
    wake_event_thread();
}

/* A line to paste, and on standard output the line that scripts wait for. */
static void say_ready(void) {
    if (!strncmp(server.bound, "http", 4))
        server_log(LLM_LOG_INFO,
                   "try: curl %s/v1/chat/completions -H 'Content-Type: application/json'%s -d '{\"messages\": [{\"role\": \"user\", "
                   "\"content\": \"Hello\"}]}'",
                   server.bound, server.cfg.keys.n ? " -H 'Authorization: Bearer KEY'" : "");
    server_log(LLM_LOG_INFO, "server launch time cost: %.3f s", llm_now() - server.launched);
    printf("listening on %s\n", server.bound);
    fflush(stdout);
}

static void add_listener(int fd, void *tag) {
    struct epoll_event ev;
    ev.events = EPOLLIN;
    ev.data.ptr = tag;
    epoll_ctl(net.epoll, EPOLL_CTL_ADD, fd, &ev);
}

/* Is anything still being answered or sent? */
static int streams_left(void) {
    for (conn *c = net.list; c; c = c->next)
        if (c->fd >= 0 && (c->call || conn_unsent(c))) return 1;
    return 0;
}

/* The first signal: /health says so, --drain seconds later nothing new is accepted, and what runs has --shutdown-timeout to end. A second
 * signal ends it at once. Returns whether all is over. */
static int shutting_down(int listener) {
    static double next; /* when the next stage begins */
    const int hurry = server.signals > 1;
    if (server.signals && !net.leaving) {
        net.leaving = 1;
        next = net.now + server.cfg.drain;
        if (server.cfg.drain > 0) server_log(LLM_LOG_INFO, "shutting down in %g s: /health says 503", (double)server.cfg.drain);
    }
    if (net.leaving && !net.draining && (net.now >= next || hurry)) {
        net.draining = 1;
        next = net.now + server.cfg.shutdown_timeout;
        close(listener);
        server_log(LLM_LOG_INFO, "shutting down: finishing what runs");
    }
    return net.draining && (hurry || net.now > next || !streams_left());
}

/* Once a round, and four times a second. */
static void event_round_end(void) {
    static double sweep;
    if (server.hangups) {
        server.hangups = 0;
        if (server.cfg.log_file && !log_open()) server_log(LLM_LOG_ERROR, "--log-file: %s: %s", server.cfg.log_file, strerror(errno));
    }
    if (net.now - sweep > 0.25) {
        sweep = net.now;
        conn_sweep();
        watch_calls();
        ask_for_trim();
    }
    net_bury();
}

/* Sockets, news of calls, the clock. Returns when a shutdown is complete or its time is up, or nothing could be loaded. */
static void event_loop(int listener, int metrics) {
    static char tag_listen, tag_metrics, tag_wake;
    int left = 0;
    add_listener(listener, &tag_listen);
    if (metrics >= 0) add_listener(metrics, &tag_metrics);
    add_listener(net.wake, &tag_wake);
    while (__atomic_load_n(&server.ready, __ATOMIC_ACQUIRE) >= 0 && !shutting_down(listener)) {
        struct epoll_event ev[64];
        int n = epoll_wait(net.epoll, ev, N_OF(ev), left ? 0 : 250);
        net.now = llm_now();
        for (int i = 0; i < n; i++) {
            uint64_t count;
            if (ev[i].data.ptr == &tag_listen || ev[i].data.ptr == &tag_metrics)
                conn_accept(ev[i].data.ptr == &tag_listen ? listener : metrics, ev[i].data.ptr == &tag_metrics);
            else if (ev[i].data.ptr != &tag_wake) conn_event((conn *)ev[i].data.ptr, ev[i].events);
            else if (read(net.wake, &count, sizeof count) < 0) continue;
        }
        left = calls_news();
        models_turn();
        event_round_end();
    }
}

/* ---- the beginning and the end */

/* Without the loader nothing can be served; without some of the workers, more slowly. Returns how many there are. */
static int start_threads(pthread_t *loader, pthread_t *worker) {
    int n = 0, e = pthread_create(loader, NULL, loader_main, NULL);
    while (!e && n < server.cfg.n_workers && !(e = pthread_create(&worker[n], NULL, worker_main, NULL))) n++;
    if (!n) die(1, "no thread could be started: %s", strerror(e));
    if (n < server.cfg.n_workers) {
        server_log(LLM_LOG_WARN, "only %d of %d workers could be started: %s", n, server.cfg.n_workers, strerror(e));
        server.cfg.n_workers = n;
    }
    return n;
}

/* What still runs is told so; workers have half a second to bring back what they have. What can be sent at once is sent. */
static void end_connections(void) {
    int away = 1;
    for (conn *c = net.list; c; c = c->next)
        if (c->fd >= 0) call_stop(c, "the server is shutting down");
    for (int turn = 0; away && turn < 50 && server.signals < 2; turn++) {
        if (turn) usleep(10000);
        calls_news();
        away = 0;
        for (conn *c = net.list; c; c = c->next) away |= c->call && c->call->away;
    }
    for (conn *c = net.list; c; c = c->next) conn_close(c);
    net_bury();
}

/* Where the loader works, or in a hurry, the program ends at once: there is nothing to save. */
static void end_threads(pthread_t loader, const pthread_t *worker, int n_workers) {
    pthread_mutex_lock(&models.mutex);
    const int works = models.job && !models.done;
    models.stop = 1;
    pthread_cond_signal(&models.job_ready);
    pthread_mutex_unlock(&models.mutex);
    if (works || server.signals > 1) _exit(0);
    pthread_join(loader, NULL);
    if (models.done && models.done->engine) models.done->state = MODEL_LOADED; /* nobody was told any more */
    pthread_mutex_lock(&queue.mutex);
    queue.stop = 1;
    pthread_cond_broadcast(&queue.work_ready);
    pthread_mutex_unlock(&queue.mutex);
    for (int i = 0; i < n_workers; i++) pthread_join(worker[i], NULL);
    calls_news();
}

/* What says at start who is kept out, where not only this machine can reach us. */
static void say_doors(void) {
    const char *names =
        server.cfg.allowed_hosts.n ? "" : "; pages of any site that name this address theirs can ask too: --allowed-hosts NAME";
    if (server.loopback || !strncmp(server.bound, "unix", 4)) return;
    if (!server.cfg.keys.n)
        server_log(LLM_LOG_WARN, "%s is open to everybody who reaches this machine: --api-key KEY lets in only who knows it%s",
                   server.bound, names);
    else
        server_log(LLM_LOG_INFO, "%s is protected by its %s; without TLS they travel in clear", server.bound,
                   server.cfg.allowed_hosts.n ? "keys and names" : "keys");
}

/* The socket is bound before the model is loaded: a port in use is told at once, and /health answers from the start. */
int main(int argc, char **argv) {
    pthread_t loader, worker[64];
    server.launched = llm_now();
    read_options(argc, argv);
    add_models();
    configuration *c = &server.cfg;
    if (c->log_file && !log_open()) die(1, "--log-file: %.300s: %s", c->log_file, strerror(errno));
    server.started = (double)time(NULL);
    if (server.place.rank) return signal(SIGPIPE, SIG_IGN), follow(default_model());
    net.now = llm_now();
#ifdef M_MMAP_THRESHOLD
    /* A freed body or prompt goes back to the system at once. Left alone, glibc raises this limit to the largest block it ever freed (up to 32 MiB)
       and from then on each thread's heap keeps what one hostile request needed. */
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 256 << 10);
    mallopt(M_ARENA_MAX, 2);
#endif
    /* A connection is a descriptor: as many as the system lets us have, not the thousand of a shell. */
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) files.rlim_cur = files.rlim_max, setrlimit(RLIMIT_NOFILE, &files);
    if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur < CONN_MAX + CONN_FILES)
        net.n_most = files.rlim_cur > 2 * CONN_FILES ? (int)files.rlim_cur - CONN_FILES : CONN_FILES;
    /* From here on sockets: first our own means, then signals, then what listens, then the threads. */
    net.epoll = epoll_create1(EPOLL_CLOEXEC);
    net.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    net.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    signal(SIGTERM, on_signal);
    signal(SIGHUP, on_signal);
    signal(SIGINT, on_signal);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may grow no further is an error of the write */
    const char *host = c->host ? c->host : "127.0.0.1", *path = c->unix_socket;
    if (!path && strlen(host) > 5 && !strcmp(host + strlen(host) - 5, ".sock")) path = host;
    int listener = path ? listen_unix(path) : listen_tcp(host, c->port, 1);
    int metrics = llm_options_given(&options, "metrics-port") && c->metrics_port != c->port
                      ? listen_tcp(path ? "127.0.0.1" : host, c->metrics_port, 0)
                      : -1;
    say_doors();
    if (c->setup.model || c->setup.hf_repo || !c->models_dir) give_loader(default_model(), MODEL_LOADING);
    else server.ready = 1, say_ready();
    const int n_workers = start_threads(&loader, worker);
    event_loop(listener, metrics);
    /* The end, in the order of who uses whom: connections and their calls, then workers and engine, then what they worked on. */
    end_connections();
    if (path) unlink(path);
    end_threads(loader, worker, n_workers);
    const int failed = server.ready >= 0 || server.signals ? 0 : default_model()->why == LLM_ERR_ARG ? 2 : 1; /* 2: an option's value */
    if (!server.lost) __atomic_store_n(&server.leaving, 1, __ATOMIC_RELEASE);
    free_models();
    nodes_part();
    llm_text_free(&server.address);
    llm_options_free(&options);
    return server.lost ? 1 : failed;
}
