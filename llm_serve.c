/* llm_serve - an OpenAI-compatible server on llm.h.
 *
 *     ./llm_serve --port 8180
 *
 * One event thread (sockets and JSON), one engine thread (the model), a few workers (templates and tokenizing). Uses the public
 * API of llm.h only: what a request means and how its answer is written is its section >>openai; here are the sockets, the
 * threads, the routes, the metrics and the page. A request's way: conn_read takes its bytes, http_parse_head its head,
 * serve_request finds the route, route_call begins a call, a worker submits it, the engine steps, call_advance writes what is
 * new, conn_flush sends it. Sections, bottom-up: >>server >>options >>http >>connections >>calls >>metrics >>answers >>page
 * >>routes >>main. */
#define _GNU_SOURCE
#if defined(LLM_IMPLEMENTATION) && !defined(LLM_NO_VISION)
#define LLM_IMAGE_IMPLEMENTATION /* stb_image too */
#endif
#include "llm.h"

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
 * >>server   What all parts share: the model, the engine, the configuration.
 * ============================================================================
 * One struct of globals, written before the threads start or by the one thread named here:
 *
 *   cfg, path, bound     main, from the options, before anything listens
 *   model, engine,       the loader thread; others look at them only after they saw `ready`, which is stored last (release)
 *   service              and loaded first (acquire)
 *   signals              the signal handler
 *
 * Everything else has one owner: connections and calls belong to the event thread, what waits between threads to `queue`. */

#define UNUSED __attribute__((unused))
#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

/* What is declared with these is freed when its block is left, wherever that is. */
#define SCOPED_TEXT __attribute__((cleanup(llm_text_free))) llm_text

typedef struct configuration {
    llm_setup setup; /* the model, the engine, the defaults of requests */
    const char *host, *unix_socket, *key_file, *lora_dir, *context_dir;
    llm_option_list names, keys, origins, allowed_hosts;
    int32_t port, metrics_port, max_logprobs, strict_model_name, no_page, n_workers;
    float shutdown_timeout, request_timeout, ping_interval, step_timeout, drain;
    const char *log_file;
    int32_t log_requests, log_prompts, log_json;
} configuration;

static struct {
    configuration cfg;
    llm_model *model;
    llm_engine *engine;
    llm_openai_service service; /* how requests are read and answers written */
    int n_served;               /* of cfg.names: the others are accepted only */
    char bound[160];
    int ready;                /* atomic: the engine is open */
    int loopback;             /* bound to a loopback address or a Unix socket */
    double started, launched; /* by the calendar; by llm_now, when main began */
    int argc;
    char **argv;
    volatile sig_atomic_t signals, hangups;
    FILE *log; /* NULL: standard error */
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
    LLM_OPTIONS_PROGRAM(configuration, setup),
    LLM_OPTIONS_SETUP(configuration, setup),
    {"served-model-name|a|alias", LLM_OPTION_LIST, LLM_HELP_MODEL, IN_CFG(names), 1, 0, "NAME ...",
     "names that answers and /v1/models carry"},
    {"host", LLM_OPTION_TEXT, LLM_HELP_OWN, IN_CFG(host), 0, 0, "ADDRESS", "address to listen on (127.0.0.1); a path ending in .sock: Unix socket"},
    {"port", LLM_OPTION_INT, LLM_HELP_OWN, IN_CFG(port), 0, 65535, "N", "port (8000); 0: any free one"},
    {"uds", LLM_OPTION_TEXT, LLM_HELP_OWN, IN_CFG(unix_socket), 0, 0, "PATH", "listen on a Unix socket"},
    {"metrics-port", LLM_OPTION_INT, LLM_HELP_OWN, IN_CFG(metrics_port), 0, 65535, "N", "/metrics on a port of its own too"},
    {"api-key|$LLM_API_KEY|$VLLM_API_KEY", LLM_OPTION_LIST, LLM_HELP_OWN, IN_CFG(keys), 1, 0, "KEY ...",
     "keys that are let in (or LLM_API_KEY, VLLM_API_KEY)"},
    {"api-key-file", LLM_OPTION_TEXT, LLM_HELP_OWN, IN_CFG(key_file), 0, 0, "FILE", "keys, one a line"},
    {"cors-origins|allowed-origins", LLM_OPTION_LIST, LLM_HELP_OWN, IN_CFG(origins), 1, 0, "ORIGIN ...", "pages that may call (loopback ones)"},
    {"allowed-hosts", LLM_OPTION_LIST, LLM_HELP_OWN, IN_CFG(allowed_hosts), 1, 0, "NAME ...", "Host names served besides loopback ones"},
    {"shutdown-timeout", LLM_OPTION_FLOAT, LLM_HELP_OWN, IN_CFG(shutdown_timeout), 0, 86400, "S", "to finish what runs after SIGTERM (30)"},
    {"timeout|to", LLM_OPTION_FLOAT, LLM_HELP_OWN, IN_CFG(request_timeout), 0, 1e6, "S", "longest life of a request (none)"},
    {"drain", LLM_OPTION_FLOAT, LLM_HELP_OWN, IN_CFG(drain), 0, 86400, "S",
     "after SIGTERM: serve on for so long while /health says 503, so that a router looks elsewhere (0)"},
    {"log-requests|enable-log-requests", LLM_OPTION_BOOL, LLM_HELP_OWN, IN_CFG(log_requests), 0, 0, NULL,
     "a line for every request: status, times, tokens, id"},
    {"log-prompts", LLM_OPTION_BOOL, LLM_HELP_OWN, IN_CFG(log_prompts), 0, 0, NULL, "and the body of each, up to 2,000 bytes"},
    {"log-format", LLM_OPTION_ENUM, LLM_HELP_OWN, IN_CFG(log_json), 0, 0, "text|json=1", "lines to read, or JSON objects"},
    {"log-file", LLM_OPTION_TEXT, LLM_HELP_OWN, IN_CFG(log_file), 0, 0, "FILE", "the log, instead of standard error; SIGHUP opens it anew"},
    {"no-ui|no-webui", LLM_OPTION_BOOL, LLM_HELP_OWN, IN_CFG(no_page), 0, 0, NULL, "no chat page at /"},
    {"lora-dir", LLM_OPTION_TEXT, LLM_HELP_ENGINE, IN_CFG(lora_dir), 0, 0, "PATH", "folder whose adapters may be loaded while serving"},
    {"context-dir", LLM_OPTION_TEXT, LLM_HELP_ENGINE, IN_CFG(context_dir), 0, 0, "PATH", "folder of kept contexts: /v1/contexts/save and /load"},
    {"max-logprobs", LLM_OPTION_INT, LLM_HELP_ANSWERS, IN_CFG(max_logprobs), 0, 1000, "N", "most logprobs a request may ask for (20)"},
    {"strict-model-name", LLM_OPTION_BOOL, LLM_HELP_ANSWERS, IN_CFG(strict_model_name), 0, 0, NULL, "unknown model names are 404"},
    {"sse-ping-interval", LLM_OPTION_FLOAT, LLM_HELP_OWN, IN_CFG(ping_interval), 0, 86400, "S",
     "comments that keep a silent stream alive (15); 0: none"},
    {"engine-iteration-timeout|$VLLM_ENGINE_ITERATION_TIMEOUT_S", LLM_OPTION_FLOAT, LLM_HELP_ENGINE, IN_CFG(step_timeout), 0, 1e6, "S",
     "a step that takes longer fails the requests, not the server (none)"},
    {"workers", LLM_OPTION_INT, LLM_HELP_OWN, IN_CFG(n_workers), 1, 64, "N", "threads for templates and tokenizing (2)"},
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

/* all: 1: what is understood and has no effect too; 2: every name as JSON. */
static void print_help(int all) {
    static const char *const network = "Network and server";
    llm_text t = {0};
    if (all < 2) {
        llm_text_str(&t, "usage: llm_serve [MODEL] [options]\n");
        llm_options_help(&options, &network, 1, &t);
    }
    if (all == 1) llm_options_idle(&options, &t);
    if (all == 2) llm_options_verdicts(&options, &t), llm_text_str(&t, "\n");
    fputs(t.data, stdout);
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

/* A sentence of the library, in the words of the command line. */
static void die_of_library(int code) {
    SCOPED_TEXT t = {0};
    llm_options_sentence(&options, server.argc, server.argv, getenv, llm_last_error(), &t);
    die(code, "%s", t.data ? t.data : "out of memory");
}

/* A wrong option ends the program here with 2, a model that is not there with 1. */
static void check_setup(llm_result r) {
    if (r) die_of_library(r == LLM_ERR_ARG ? 2 : 1);
}

/* Everything that is known before a socket is opened: argv, environment, file, in falling strength; then what
 * contradicts itself. A mistake ends the program here, so that nothing has to be undone. */
/* models/SmolLM2-135M.gguf is called SmolLM2-135M where nobody chose it. */
static const char *model_name(const char *path) {
    static char name[256];
    const char *slash = strrchr(path, '/');
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : path);
    char *end = strstr(name, ".gguf");
    if (end && !end[5]) *end = 0;
    return name;
}

static void read_options(int argc, char **argv) {
    llm_option_list words = {NULL, 0};
    configuration *c = &server.cfg;
    llm_engine_config *e = &c->setup.engine;
    const llm_option *names = llm_options_find(&options, "served-model-name", 17);
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
    c->shutdown_timeout = 30;
    c->ping_interval = 15;
    e->max_num_seqs = 64;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) print_help(0);
        if (!strcmp(argv[i], "--help-all")) print_help(i + 1 < argc && !strcmp(argv[i + 1], "--json") ? 2 : 1);
        if (!strcmp(argv[i], "--version")) printf("llm_serve %s (isa: %s)\n", LLM_VERSION_STRING, llm_isa_list()), exit(0);
    }
    check_setup(llm_setup_read(&c->setup, &options, argc, argv, getenv, &words));
    if (c->setup.visible_devices) setenv("CUDA_VISIBLE_DEVICES", c->setup.visible_devices, 0);
    if (words.n > 1) die(2, "one model was expected");
    if (words.n && c->setup.model) die(2, "the model is given twice");
    if (words.n) c->setup.model = words.items[0];
    if (c->key_file) read_keys(c->key_file);
    const int chosen = c->setup.model != NULL;
    check_setup(llm_setup_find(&c->setup, getenv));
    const int cpu = !e->cuda_library && !(e->device && !strcmp(e->device, "cuda"));
    if (!cpu && !llm_options_given(&options, "max-num-seqs")) e->max_num_seqs = 256;
    if (e->max_num_batched_tokens && e->max_num_batched_tokens < e->max_num_seqs)
        die(2, "--max-num-batched-tokens (%d) must be greater than or equal to --max-num-seqs (%d).", e->max_num_batched_tokens,
            e->max_num_seqs);
    if (c->lora_dir && !llm_options_given(&options, "max-cpu-loras")) e->max_cpu_loras += 16; /* for those that come while it serves */
    if (c->lora_dir && !llm_options_given(&options, "max-loras")) e->max_loras = e->max_cpu_loras;
    if (c->setup.model_name && !c->names.n) llm_options_set(&options, names, "model_name", c->setup.model_name, LLM_FROM_FILE);
    if (!c->names.n && !chosen) llm_options_set(&options, names, "model", model_name(c->setup.model), LLM_FROM_FILE);
    if (!c->names.n) llm_options_set(&options, names, "model", c->setup.model, LLM_FROM_FILE);
    server.n_served = c->names.n; /* the path and its last component are known too */
    llm_options_set(&options, names, "model", c->setup.model, LLM_FROM_USER);
    if (strrchr(c->setup.model, '/')) llm_options_set(&options, names, "model", strrchr(c->setup.model, '/') + 1, LLM_FROM_USER);
    if (cpu && !e->kv_cache_memory_bytes && !e->num_gpu_blocks && e->cache_max_entry_count <= 0)
        e->kv_cache_memory_bytes = (int64_t)4 << 30;
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
    HTTP_MAX_KEY = 8 << 10,
    HTTP_MAX_BODY = 32 << 20,
    HTTP_MAX_OVERHEAD = 4096, /* chunk extensions and trailers of a body */
    HTTP_MAX_DRAIN = 64 << 10 /* body of a GET that is read and dropped */
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
    slice host, origin, authorization, api_key, content_type, request_id, ask_headers;
    int64_t content_length; /* -1: none */
    int chunked, keep_alive, expect_continue, n_authorization;
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

/* Percent-decodes the path once. Bad escapes, NUL, control characters and bad UTF-8 are refused. */
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
    if (slice_is_nocase(name, "connection")) { /* else the version's default stays */
        if (http_list_has(v, "close")) h->keep_alive = 0;
        else if (http_list_has(v, "keep-alive")) h->keep_alive = 1;
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
 *
 *   IDLE    keep-alive: nothing is there, no memory is held          120 s
 *   HEAD    the head arrives                                          10 s
 *   BODY    the body arrives                                          20 s and 1 s a KiB
 *   BUSY    somebody works on the answer                              none: it ends with the call, or when the client goes
 *   LINGER  the answer is out and we said that we close: what is still sent to us is read and dropped, so that the
 *           kernel does not answer it with a reset that would destroy the answer on its way
 *
 * A connection is read until one request is whole; then it waits (state CONN_BUSY) until the answer is written, and goes on
 * with what was pipelined behind. While busy, at most 64 KiB more are read. Idle connections own no buffers. Every state has a
 * deadline; a sweep four times a second closes what is over. Output that a slow reader does not take is bounded: over 1 MiB and
 * 30 seconds without progress the connection is dropped and its requests cancelled. */

enum {
    CONN_MAX = 12000,  /* connections held at once */
    CONN_HEAD_S = 10,  /* to send a whole head */
    CONN_BODY_S = 20,  /* plus one second a KiB: to send a body */
    CONN_IDLE_S = 120, /* keep-alive */
    CONN_STUCK_S = 30, /* output without progress */
    CONN_MAX_OUT = 1 << 20,
    CONN_MAX_AHEAD = 64 << 10
};

typedef enum conn_state { CONN_IDLE = 0, CONN_HEAD, CONN_BODY, CONN_BUSY, CONN_LINGER } conn_state;

typedef enum stream_state { STREAM_NONE = 0, STREAM_LINES, STREAM_EVENTS } stream_state; /* of JSON, or server-sent */

typedef struct conn {
    int fd;
    conn_state state;
    uint32_t events;       /* what epoll watches */
    llm_text in;           /* received, not yet used: from in_at on */
    size_t in_at, scanned; /* scanned: bytes of whole lines of a head, none of them empty */
    llm_text body;
    llm_text out;
    size_t out_at;
    http_head head; /* its slices point into head_text */
    llm_text head_text;
    http_chunks chunks;
    int64_t body_left;         /* of a Content-Length body */
    double deadline, progress; /* progress: when output last moved */
    int close_after, half_closed, probed, advancing;
    stream_state streaming;             /* the head of a streamed answer is out */
    int admin;                          /* accepted on the metrics port */
    int status;                         /* of the answer to `head`; 0: none yet */
    double began;                       /* when the request was whole; 0: none is being served */
    char client[INET6_ADDRSTRLEN + 20]; /* its address; "unix" */
    llm_openai_call *call;              /* the request being answered */
    /* guarded by queue.mutex; gone: closed, but a worker still has its call */
    int preparing, on_list, gone;
    struct conn *next_work, *next_news;
    struct conn *prev, *next;
} conn;

static struct {
    int epoll, wake, spare_fd; /* wake: an eventfd that other threads write */
    conn *list;
    int n;
    double now;
    int leaving;  /* a signal came: /health says so, and --drain seconds later */
    int draining; /* nothing new is accepted */
} net;

/* Tells epoll what we wait for: input unless a busy connection has read ahead enough, room for output only while there
 * is some. */
static void conn_watch(conn *c) {
    size_t ahead = c->in.len - c->in_at;
    /* RDHUP tells at once that a client has gone, even while nothing is to be read; half-closed, it would tell so for ever. */
    uint32_t want = EPOLLRDHUP;
    if (!c->half_closed && (c->state != CONN_BUSY || ahead < CONN_MAX_AHEAD)) want |= EPOLLIN;
    if (c->half_closed) want &= ~(uint32_t)EPOLLRDHUP;
    if (c->out_at < c->out.len) want |= EPOLLOUT;
    if (want == c->events) return;
    struct epoll_event ev;
    ev.events = c->events = want;
    ev.data.ptr = c;
    epoll_ctl(net.epoll, EPOLL_CTL_MOD, c->fd, &ev);
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

static void log_request(conn *c, int gone); /* the request is answered, or its client is gone */
static void call_end(conn *c);
static int call_gone(conn *c); /* 1: a worker still has the call and will bring it back */

/* Closes and frees. A request that was being answered is cancelled at once, also in the queue and in the middle of a prompt, streamed or not:
 * nobody is there to read. */
static void conn_close(conn *c) {
    log_request(c, 1);
    close(c->fd);
    if (c->prev) c->prev->next = c->next;
    else net.list = c->next;
    if (c->next) c->next->prev = c->prev;
    net.n--;
    llm_text_free(&c->in);
    llm_text_free(&c->body);
    llm_text_free(&c->out);
    llm_text_free(&c->head_text);
    if (!call_gone(c)) free(c);
}

/* Sends what can be sent. 0: the connection is dead. */
static int conn_flush(conn *c) {
    while (c->out_at < c->out.len) {
        /* One call for all that is there: events of several tokens leave together when the reader is slower than the model. */
        ssize_t n = send(c->fd, c->out.data + c->out_at, c->out.len - c->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (n <= 0) return 0;
        c->out_at += (size_t)n;
        c->progress = net.now;
    }
    const int whole = !c->out.failed; /* else bytes are missing in it */
    if (c->out_at == c->out.len) c->progress = net.now;
    buffer_drop(&c->out, &c->out_at);
    return whole;
}

static void conn_next_request(conn *c);

/* The answer is complete in `out`: go on with the next request, or close when all is sent. */
static void conn_answered(conn *c) {
    log_request(c, 0);
    call_end(c);
    c->streaming = STREAM_NONE;
    llm_text_free(&c->body);
    llm_text_free(&c->head_text);
    c->state = c->close_after || net.draining ? CONN_LINGER : CONN_IDLE;
    c->deadline = net.now + (c->state == CONN_LINGER ? 5 : CONN_IDLE_S);
    if (c->state == CONN_IDLE) conn_next_request(c);
}

/* ---- answers */

static void common_headers(conn *c, llm_text *t);

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
    llm_text_str(t, c->close_after ? "Connection: close\r\n\r\n" : "\r\n");
}

/* A whole answer, after which the connection is free for its next request. HEAD gets the head of it. */
static void http_answer(conn *c, int status, const char *type, const llm_text *body, const char *extra) {
    http_head_out(c, status, type, (int64_t)body->len, extra);
    if (!slice_is(c->head.method, "HEAD")) llm_text_add(&c->out, body->data, body->len);
    conn_answered(c);
}

/* OpenAI's error object with its status. */
static void http_answer_error(conn *c, int status, const char *message, const char *param, const char *code) {
    SCOPED_TEXT t = {0};
    llm_openai_error(&t, status, message, param, code);
    server_log(LLM_LOG_DEBUG, "%d: %s", status, message);
    http_answer(c, status, "application/json", &t, NULL);
}

/* Bytes of a stream: a chunk of HTTP/1.1, or just bytes up to the end of the connection. */
static void stream_bytes(conn *c, const char *p, size_t n) {
    char size[20];
    if (!n) return;
    if (c->head.minor == 1) llm_text_add(&c->out, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", n));
    llm_text_add(&c->out, p, n);
    if (c->head.minor == 1) llm_text_str(&c->out, "\r\n");
}

/* A framing error, as the head says: answered once, then closed, and nothing behind it is read. */
static void conn_refuse(conn *c) {
    const http_head none = {.bad = c->head.bad, .message = c->head.message};
    if (c->state != CONN_BODY) c->head = none; /* nothing in it is to be relied on */
    c->close_after = 1;
    c->in_at = c->in.len;
    c->state = CONN_BUSY;
    http_answer_error(c, c->head.bad, c->head.message, NULL, NULL);
}

/* ---- reading */

static void serve_request(conn *c); /* the request is whole: head and body */

/* The request is whole. From here until conn_answered it has no deadline of ours: its length is the model's. */
static void conn_body_done(conn *c) {
    c->state = CONN_BUSY;
    c->deadline = 0;
    c->began = net.now;
    serve_request(c);
}

/* Takes body bytes from `in`. */
static void conn_read_body(conn *c) {
    size_t have = c->in.len - c->in_at;
    if (c->head.chunked) {
        int64_t used = http_chunks_take(&c->chunks, c->in.data + c->in_at, have, &c->body, &c->head);
        if (used >= 0) c->in_at += (size_t)used;
        if (used < 0) conn_refuse(c);
        else if (c->chunks.state == CHUNK_DONE) conn_body_done(c);
    } else {
        size_t n = (int64_t)have < c->body_left ? have : (size_t)c->body_left;
        llm_text_add(&c->body, c->in.data + c->in_at, n);
        c->in_at += n;
        c->body_left -= (int64_t)n;
        if (!c->body_left) conn_body_done(c);
    }
}

/* A head of n bytes stands in `in`. Its slices live as long as head_text; then the body is awaited, however it is
 * framed. */
static void conn_head_done(conn *c, size_t n) {
    llm_text_add(&c->head_text, c->in.data + c->in_at, n);
    c->in_at += n;
    c->scanned = 0;
    if (!http_parse_head(c->head_text.data, c->head_text.len, &c->head)) {
        conn_refuse(c);
        return;
    }
    memset(&c->chunks, 0, sizeof c->chunks);
    c->body_left = c->head.content_length > 0 ? c->head.content_length : 0;
    c->state = CONN_BODY;
    c->deadline = net.now + CONN_BODY_S + (double)c->body_left / 1024;
    if (c->head.chunked) c->deadline = net.now + 60;
    int wants_body = slice_is(c->head.method, "POST");
    if (!wants_body && (c->head.chunked || c->body_left > HTTP_MAX_DRAIN)) {
        http_bad(&c->head, 413, "this method takes no body");
        conn_refuse(c);
        return;
    }
    if (c->head.expect_continue && (c->body_left || c->head.chunked) && c->in_at == c->in.len)
        llm_text_str(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
    if (c->head.chunked || c->body_left) conn_read_body(c);
    else conn_body_done(c);
}

/* Looks for the end of a head in what has been received: an empty line. Whole lines are looked at once (`scanned`), so a head that drips in
 * costs no more. */
static void conn_read_head(conn *c) {
    char *p = c->in.data + c->in_at;
    size_t n = c->in.len - c->in_at;
    slice line = {NULL, 1};
    int whole = 1;
    if (c->state == CONN_IDLE) {
        while (n >= 2 && p[0] == '\r' && p[1] == '\n')
            p += 2, n -= 2, c->in_at += 2; /* RFC 9112: empty lines before a request are skipped */
        if (!n || (n == 1 && *p == '\r')) return;
        c->state = CONN_HEAD;
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
}

/* Advances through what has been received, one request after another, until one is being answered. */
static void conn_next_request(conn *c) {
    if (c->advancing) return; /* an answer given at once: the loop below goes on */
    c->advancing = 1;
    while (c->in_at < c->in.len && (c->state == CONN_IDLE || c->state == CONN_HEAD || c->state == CONN_BODY)) {
        size_t before = c->in_at;
        conn_state was = c->state;
        if (c->state == CONN_BODY) conn_read_body(c);
        else conn_read_head(c);
        if (c->in_at == before && c->state == was) break;
        if (c->state == CONN_IDLE && c->out.len - c->out_at > CONN_MAX_OUT) break; /* answers pile up unread */
    }
    c->advancing = 0;
    buffer_drop(&c->in, &c->in_at);
}

/* The peer will send no more. A request being answered is still answered (a half-closed client reads on); whether anyone is
 * there at all shows when we send something: an interim response, or a comment in a stream of events, brings a reset from a closed
 * socket. Lines have no comments: the next one will show it. */
static int conn_end_of_input(conn *c) {
    c->half_closed = 1;
    c->close_after = 1;
    if (c->state != CONN_BUSY && c->out_at == c->out.len) return 0;
    if (c->streaming == STREAM_EVENTS) stream_bytes(c, ":\n\n", 3);
    else if (!c->streaming && c->head.minor == 1 && c->out_at == c->out.len) llm_text_str(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
    c->probed = 1;
    return 1;
}

/* Reads what is there. 0: the connection is dead. */
static int conn_read(conn *c) {
    char chunk[65536];
    for (int turn = 0; turn < 16; turn++) {
        ssize_t n = recv(c->fd, chunk, sizeof chunk, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
        if (n == 0) return conn_end_of_input(c);
        if (c->state == CONN_LINGER) continue; /* dropped: we only wait for the peer to close */
        llm_text_add(&c->in, chunk, (size_t)n);
        if (c->in.failed) return 0;
        conn_next_request(c);
        if (n < (ssize_t)sizeof chunk || (c->state == CONN_BUSY && c->in.len - c->in_at >= CONN_MAX_AHEAD)) break;
    }
    return 1;
}

/* After anything happened to a connection: sends, closes when done, and tells epoll what to watch. */
static void conn_settle(conn *c) {
    if (!conn_flush(c) || (c->state == CONN_LINGER && c->out_at == c->out.len && c->half_closed)) {
        conn_close(c);
        return;
    }
    if (c->state == CONN_LINGER && c->out_at == c->out.len && !c->probed) {
        shutdown(c->fd, SHUT_WR);
        c->probed = 1;
        c->deadline = net.now + 1;
    }
    conn_watch(c);
}

/* Accepts all that wait, bounded a turn so that open connections get theirs. Without descriptors one is kept in
 * reserve to accept and close: else the listener would stay readable for ever. */
static void conn_accept(int listener, int admin) {
    for (int turn = 0; turn < 256; turn++) {
        struct sockaddr_storage from;
        socklen_t len = sizeof from;
        int fd = accept4(listener, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) &&
            net.spare_fd >= 0) { /* out of descriptors: take one off the queue and drop it */
            close(net.spare_fd);
            fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            if (fd >= 0) close(fd);
            net.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
            continue;
        }
        if (fd < 0) return;
        conn *c = net.n < CONN_MAX ? (conn *)calloc(1, sizeof *c) : NULL;
        if (!c) {
            close(fd);
            continue;
        }
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (from.ss_family == AF_UNIX || getnameinfo((struct sockaddr *)&from, len, c->client, sizeof c->client, NULL, 0, NI_NUMERICHOST))
            snprintf(c->client, sizeof c->client, "unix");
        c->fd = fd;
        c->admin = admin;
        c->deadline = net.now + CONN_HEAD_S;
        c->progress = net.now;
        c->next = net.list;
        if (net.list) net.list->prev = c;
        net.list = c;
        net.n++;
        struct epoll_event ev;
        ev.events = c->events = EPOLLIN | EPOLLRDHUP;
        ev.data.ptr = c;
        epoll_ctl(net.epoll, EPOLL_CTL_ADD, fd, &ev);
    }
}

/* A stream of events that has been silent for long, because its prompt is long or the queue is, gets a comment: proxies and
 * clients close what says nothing. One that is read too slowly has something to send and needs none. */
static void conn_ping(conn *c) {
    double silent = net.now - c->progress;
    if (c->streaming != STREAM_EVENTS || c->out_at < c->out.len || server.cfg.ping_interval <= 0 ||
        silent < (double)server.cfg.ping_interval)
        return;
    stream_bytes(c, ":\n\n", 3);
    c->progress = net.now;
    conn_settle(c);
}

static void conn_sweep(void) {
    for (conn *c = net.list, *next; c; c = next) {
        next = c->next;
        int stuck = c->out_at < c->out.len && net.now - c->progress > CONN_STUCK_S;
        int over = c->deadline > 0 && net.now > c->deadline;
        if (stuck || (over && (c->state == CONN_LINGER || c->state == CONN_IDLE))) {
            conn_close(c);
        } else if (over && c->state != CONN_BUSY) {
            http_bad(&c->head, 408, "the request did not arrive in time");
            conn_refuse(c);
            conn_settle(c);
        } else {
            conn_ping(c);
        }
    }
}

/* ============================================================================
 * >>calls   One HTTP request being served: who does what, in which thread.
 * ============================================================================
 *   event thread   llm_openai_begin (parses the JSON, checks every field) and llm_openai_next (writes every answer)
 *   workers        llm_openai_submit: renders the template, tokenizes, submits to the engine (what grows with the prompt)
 *   engine thread  steps the engine; its news only put the call on a list and wake the event thread
 *
 *   route_call --> work list --> worker --> news list --> call_advance --> ... --> call_advance --> free
 *                                               ^                                      ^
 *                                               '------- engine: a token, an end ------'
 *
 * News come far more often than the event thread looks: a connection stands on the list at most once, and one wake is written for
 * a list that was empty. When a client goes, its call is cancelled and freed, and when a worker has it then, as soon as it is
 * prepared. A call is never freed by a worker or the engine, so the event thread needs no lock to use it. */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t work_ready;
    conn *work;          /* for the workers */
    conn *news;          /* for the event thread */
    int compiling, stop; /* workers that compile a form now */
    int64_t step_began;  /* atomic: milliseconds of net.now's clock; 0: no step runs */
} queue = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, NULL, 0, 0, 0};

/* An eventfd is a counter: any number of wakes before the next look are one. */
static void wake_event_thread(void) {
    uint64_t one = 1;
    ssize_t n = write(net.wake, &one, sizeof one);
    (void)n;
}

/* Puts a connection on the event thread's list; with `prepared` its call also leaves its worker's hands. Any thread. */
static void call_news(conn *c, int prepared) {
    pthread_mutex_lock(&queue.mutex);
    int first = !queue.news;
    if (prepared) c->preparing = 0;
    if (!c->on_list) {
        c->on_list = 1;
        c->next_news = queue.news;
        queue.news = c;
    }
    pthread_mutex_unlock(&queue.mutex);
    if (first) wake_event_thread();
}

static void on_call_news(void *user, UNUSED llm_openai_call *call) { call_news((conn *)user, 0); }

/* Frees the call, if there is one. Then no news of it can come any more, and those on the list are taken off. */
static void call_end(conn *c) {
    if (!c->call) return;
    llm_openai_free(c->call);
    c->call = NULL;
    pthread_mutex_lock(&queue.mutex);
    conn **at = &queue.news;
    while (*at && *at != c) at = &(*at)->next_news;
    if (*at) *at = c->next_news;
    c->on_list = 0;
    pthread_mutex_unlock(&queue.mutex);
}

static int call_gone(conn *c) {
    pthread_mutex_lock(&queue.mutex);
    int busy = c->gone = c->preparing;
    pthread_mutex_unlock(&queue.mutex);
    if (!busy) call_end(c);
    return busy;
}

/* Takes the first connection off the work list whose call may be prepared now; with queue.mutex held. NULL: none. A form may take a quarter of
 * a second to compile: were all workers at it, a crowd of them would hold up everyone, so one worker is left for calls without. */
static conn *work_take(void) {
    int may_compile = queue.compiling < (server.cfg.n_workers > 1 ? server.cfg.n_workers - 1 : 1);
    conn **at = &queue.work, *c;
    while ((c = *at) != NULL && !c->gone && !may_compile && llm_openai_get_info(c->call)->form) at = &c->next_work;
    if (c) *at = c->next_work;
    return c;
}

/* Takes calls in the order of arrival, but for forms. What a worker does grows with the prompt: a long one delays nobody but the other
 * prompts. One whose client is gone is only handed back. */
static void *worker_main(UNUSED void *unused) {
    pthread_mutex_lock(&queue.mutex);
    for (;;) {
        conn *c;
        while (!(c = work_take()) && !queue.stop) pthread_cond_wait(&queue.work_ready, &queue.mutex);
        if (!c) break;
        int gone = c->gone, form = llm_openai_get_info(c->call)->form;
        queue.compiling += form;
        pthread_mutex_unlock(&queue.mutex);
        if (!gone) llm_openai_submit(c->call);
        call_news(c, 1);
        pthread_mutex_lock(&queue.mutex);
        queue.compiling -= form;
    }
    pthread_mutex_unlock(&queue.mutex);
    return NULL;
}

static void start_preparing(conn *c) {
    pthread_mutex_lock(&queue.mutex);
    conn **end = &queue.work;
    while (*end) end = &(*end)->next_work;
    *end = c;
    c->next_work = NULL;
    c->preparing = 1;
    pthread_cond_signal(&queue.work_ready);
    pthread_mutex_unlock(&queue.mutex);
}

/* The one thread that steps the engine. Submitting wakes it. */
static void *engine_main(UNUSED void *unused) {
    while (!__atomic_load_n(&queue.stop, __ATOMIC_ACQUIRE)) {
        int busy = 0;
        __atomic_store_n(&queue.step_began, (int64_t)(llm_now() * 1e3), __ATOMIC_RELEASE);
        if (llm_engine_step(server.engine, &busy)) server_log(LLM_LOG_ERROR, "%s", llm_last_error());
        __atomic_store_n(&queue.step_began, 0, __ATOMIC_RELEASE);
        if (!busy) llm_engine_wait(server.engine, 0.2);
    }
    return NULL;
}

/* ============================================================================
 * >>metrics   Prometheus text with vLLM's names and buckets.
 * ============================================================================
 * Counters and histograms live in the event thread, which sees every event; what the engine counts is asked of it. Nothing is
 * locked and nothing is sampled. Where a request spends its time:
 *
 *   arrival --- queue ---> start --- prefill ---> first token --- decode ---> end
 *   |<------------- time to first token ------------->|  time per output token = decode / (tokens - 1)
 *   |<------------------------- end to end latency ------------------------>|
 *
 * The inter-token latency is what a reader of a stream sees: the gap between two tokens of one choice. */

typedef struct histogram {
    const char *name, *help;
    const double *bound;
    int n;
    int64_t count[24];
    double sum;
} histogram;

static const double bounds_ttft[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
static const double bounds_token[] = {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
static const double bounds_latency[] = {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960};
static const double bounds_size[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
static const double bounds_n[] = {1, 2, 5, 10, 20};

#define HISTOGRAM(name, help, bounds) \
    { name, help, bounds, (int)N_OF(bounds), {0}, 0 }
/* clang-format off */
enum {
    H_TTFT, H_TPOT, H_ITL, H_E2E, H_QUEUE, H_INFERENCE, H_PREFILL, H_DECODE, H_PROMPT, H_GENERATION, H_MAX_TOKENS, H_N, H_BEST_OF, H_COUNT
};
/* clang-format on */

static histogram histograms[H_COUNT] = {
    HISTOGRAM("time_to_first_token_seconds", "Time from arrival to the first token.", bounds_ttft),
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

static struct {
    uint64_t finished[5]; /* by llm_finish */
    uint64_t refused, prompt_tokens, generation_tokens, cached_tokens;
} counters;

/* One value into its bucket; the sums over buckets are made when they are asked for. */
static void observe(int h, double v) {
    histogram *x = &histograms[h];
    int i = 0;
    while (i < x->n && v > x->bound[i]) i++;
    x->count[i]++;
    x->sum += v;
}

/* The tokens of a prompt and its answers, which are returned. */
static int64_t count_tokens(const llm_openai_info *info, const llm_request *request) {
    llm_request_metrics m;
    int64_t generated = 0;
    llm_request_get_metrics(request, &m);
    for (int i = 0; i < info->n_choices; i++) {
        llm_output o;
        if (!llm_request_get_output(request, i, &o)) generated += (int64_t)o.n_token_ids;
    }
    counters.prompt_tokens += (uint64_t)m.n_prompt_tokens;
    counters.cached_tokens += (uint64_t)m.n_cached_tokens;
    counters.generation_tokens += (uint64_t)generated;
    return generated;
}

/* From a request's arrival to its first token. */
static double first_token_after(const llm_request_metrics *m) { return m->inference_start_time + m->first_token_time - m->arrival_time; }

/* All figures of a prompt whose choices have ended. */
static void count_request_end(const llm_openai_info *info, const llm_request *request) {
    const int64_t generated = count_tokens(info, request);
    llm_request_metrics m;
    llm_request_get_metrics(request, &m);
    observe(H_E2E, m.finish_time - m.arrival_time);
    observe(H_QUEUE, m.time_in_queue);
    observe(H_PROMPT, m.n_prompt_tokens);
    observe(H_GENERATION, (double)generated);
    observe(H_MAX_TOKENS, (double)info->sampling->max_tokens);
    observe(H_N, info->n_choices);
    observe(H_BEST_OF, info->sampling->best_of > 0 ? info->sampling->best_of : info->n_choices);
    if (m.inference_start_time > 0) observe(H_INFERENCE, m.finish_time - m.inference_start_time);
    if (m.first_token_time <= 0) return;
    const double answering = m.finish_time - m.inference_start_time - m.first_token_time;
    observe(H_TTFT, first_token_after(&m));
    observe(H_PREFILL, m.first_token_time);
    observe(H_DECODE, answering);
    if (generated > 1) observe(H_TPOT, answering / (double)(generated - 1));
}

/* Called by llm_openai_next for every piece of news. */
static void count_event(UNUSED void *user, llm_openai_call *api, llm_request *request, const llm_event *e, double gap) {
    if (gap > 0) observe(H_ITL, gap);
    if (e->finish == LLM_FINISH_NONE) return;
    counters.finished[e->finish]++;
    if (llm_request_done(request)) count_request_end(llm_openai_get_info(api), request);
}

/* Requests whose client is gone: their tokens count, and they ended as "abort". How long they would have taken nobody knows. */
static void count_abandoned(const llm_openai_info *info) {
    for (int i = 0; i < info->n_requests; i++) {
        llm_request *r = info->requests[i];
        if (!r || llm_request_done(r)) continue;
        llm_request_cancel(r);
        counters.finished[LLM_FINISH_CANCELLED] += (uint64_t)info->n_choices;
        count_tokens(info, r);
    }
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
    if (info) log_usage(info, tokens, &first);
    if (server.cfg.log_json) {
        log_stamp(stamp, LOG_JSON_TIME);
        llm_text_format(&t, "{'time':%q,'level':'INFO','client':%q,'method':%Q,'path':%Q,'status':%d,'seconds':%f,", stamp, c->client,
                        c->head.method.p, c->head.method.n, c->head.path.p, c->head.path.n, status, seconds);
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
    if (info && info->user) llm_text_format(&t, ", user %q", info->user);
    if (!t.failed) on_library_log(NULL, LLM_LOG_INFO, t.data);
}

static void log_request(conn *c, int gone) {
    const llm_openai_info *info = NULL;
    if (!c->began) return;
    pthread_mutex_lock(&queue.mutex);
    if (c->call && !c->preparing) info = llm_openai_get_info(c->call);
    pthread_mutex_unlock(&queue.mutex);
    if (gone && info && !info->done) count_abandoned(info);
    if (server.cfg.log_requests) log_line(c, info, gone ? 499 : c->status);
    c->began = 0;
}

/* Prometheus wants each family's help and type once, before its values. */
static void metric_head(llm_text *t, const char *name, const char *help, const char *type) {
    llm_text_format(t, "# HELP vllm:%s %s\n# TYPE vllm:%s %s\n", name, help, name, type);
}

/* name{model_name=...,labels} value */
static void metric_value(llm_text *t, const char *name, const char *labels, double v) {
    llm_text_format(t, "vllm:%s{model_name=%q%s} ", name, server.cfg.names.items[0], labels);
    llm_text_num(t, v);
    llm_text_str(t, "\n");
}

/* A family with one value. */
static void metric(llm_text *t, const char *name, const char *help, const char *type, double v) {
    metric_head(t, name, help, type);
    metric_value(t, name, "", v);
}

/* Buckets are cumulative: each counts what is at most its bound. */
static void write_histogram(llm_text *t, const histogram *h) {
    const char *model = server.cfg.names.items[0];
    int64_t sum = 0;
    metric_head(t, h->name, h->help, "histogram");
    for (int i = 0; i <= h->n; i++) {
        sum += h->count[i];
        llm_text_format(t, "vllm:%s_bucket{model_name=%q,le='", h->name, model);
        if (i < h->n) llm_text_num(t, h->bound[i]);
        else llm_text_str(t, "+Inf");
        llm_text_format(t, "'} %l\n", sum);
    }
    llm_text_format(t, "vllm:%s_count{model_name=%q} %l\nvllm:%s_sum{model_name=%q} ", h->name, model, sum, h->name, model);
    llm_text_num(t, h->sum);
    llm_text_str(t, "\n");
}

/* What speculation guessed, and how much of it was right. Without a --speculative-model only grammars draft: shown once one has. */
static void write_drafts(llm_text *t, const llm_engine_stats *s) {
    char label[64];
    int n = (int)N_OF(s->accepted_per_position);
    if (!server.cfg.setup.engine.speculative_model && !s->drafts) return;
    metric(t, "spec_decode_num_drafts_total", "Drafts that were checked.", "counter", (double)s->drafts);
    metric(t, "spec_decode_num_draft_tokens_total", "Tokens in them.", "counter", (double)s->draft_tokens);
    metric(t, "spec_decode_num_accepted_tokens_total", "Of these, tokens that were right.", "counter", (double)s->accepted_tokens);
    metric(t, "spec_decode_num_emitted_tokens_total", "Tokens that steps with a draft gave.", "counter",
           (double)(s->accepted_tokens + s->drafts));
    metric_head(t, "spec_decode_num_accepted_tokens_per_pos_total", "Tokens that were right, by their place in the draft.", "counter");
    while (n > server.cfg.setup.engine.num_speculative_tokens && !s->accepted_per_position[n - 1])
        n--; /* a grammar may draft more than that */
    for (int i = 0; i < n; i++) {
        snprintf(label, sizeof label, ",position=\"%d\"", i);
        metric_value(t, "spec_decode_num_accepted_tokens_per_pos_total", label, (double)s->accepted_per_position[i]);
    }
}

/* Which adapters run and wait, as labels of a figure that is the time, as in vLLM. */
static void write_loras(llm_text *t) {
    SCOPED_TEXT running = {0}, waiting = {0}, labels = {0}, name = {0};
    int32_t count[2];
    if (!server.cfg.setup.engine.max_loras) return;
    for (int32_t i = 0; llm_lora_get(server.engine, i, &name, NULL, count); i++, name.len = 0) {
        if (count[0]) llm_text_format(&running, "%s%s", running.len ? "," : "", name.data);
        if (count[1]) llm_text_format(&waiting, "%s%s", waiting.len ? "," : "", name.data);
    }
    llm_text_format(&labels, ",max_lora='%d',running_lora_adapters=%q,waiting_lora_adapters=%q", (int)server.cfg.setup.engine.max_loras,
                    running.data ? running.data : "", waiting.data ? waiting.data : "");
    metric_head(t, "lora_requests_info", "Adapters of requests that run and that wait.", "gauge");
    if (!labels.failed) metric_value(t, "lora_requests_info", labels.data, (double)time(NULL));
}

/* Everything at /metrics. The names are vLLM's, so its boards and routers work. */
static void write_metrics(llm_text *t) {
    llm_engine_stats s;
    char label[200];
    llm_engine_get_stats(server.engine, &s);
    double used = s.total_blocks ? (double)(s.total_blocks - s.free_blocks - s.cached_blocks) / (double)s.total_blocks : 0;
    metric(t, "num_requests_running", "Sequences being computed.", "gauge", s.n_running);
    metric(t, "num_requests_waiting", "Requests in the queue.", "gauge", s.n_waiting);
    metric(t, "kv_cache_usage_perc", "Share of KV pages in use, cached ones not counted (0 to 1).", "gauge", used);
    metric(t, "gpu_cache_usage_perc", "The same under its older name.", "gauge", used);
    metric(t, "num_preemptions_total", "Preempted sequences.", "counter", (double)s.preemptions);
    metric(t, "prompt_tokens_total", "Prompt tokens of finished requests.", "counter", (double)counters.prompt_tokens);
    metric(t, "generation_tokens_total", "Generated tokens of finished requests.", "counter", (double)counters.generation_tokens);
    metric(t, "prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", "counter", (double)counters.prompt_tokens);
    metric(t, "prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", "counter", (double)counters.cached_tokens);
    write_drafts(t, &s);
    write_loras(t);
    metric(t, "requests_refused_total", "Requests answered with an error.", "counter", (double)counters.refused);
    metric(t, "connections", "Open connections.", "gauge", net.n);
    metric_head(t, "request_success_total", "Finished choices by reason.", "counter");
    for (int f = LLM_FINISH_STOP; f <= LLM_FINISH_ERROR; f++) {
        snprintf(label, sizeof label, ",finished_reason=\"%s\"", llm_finish_str((llm_finish)f));
        metric_value(t, "request_success_total", label, (double)counters.finished[f]);
    }
    metric_head(t, "cache_config_info", "KV cache configuration.", "gauge");
    snprintf(label, sizeof label, ",block_size=\"%d\",num_gpu_blocks=\"%lld\",enable_prefix_caching=\"%s\"", s.block_size,
             (long long)s.total_blocks, server.cfg.setup.engine.disable_prefix_caching ? "False" : "True");
    metric_value(t, "cache_config_info", label, 1);
    for (int i = 0; i < H_COUNT; i++) write_histogram(t, &histograms[i]);
}

/* ============================================================================
 * >>answers   What llm_openai_next writes, put into HTTP.
 * ============================================================================
 * A call on the news list is advanced: whatever it has to say goes into its connection's output. Streams stop at 1 MiB that the
 * reader has not taken; the engine keeps the rest, which is bounded by max_tokens. Errors are pieces like others, so there is
 * one way out. */

/* The status line of a stream goes out before the first token: a client sees that it was heard. */
static void stream_start(conn *c, const llm_openai_info *info) {
    c->streaming = info->kind == LLM_OPENAI_GENERATE ? STREAM_LINES : STREAM_EVENTS;
    c->progress = net.now;
    c->close_after |= c->head.minor == 0;
    http_head_out(c, 200, c->streaming == STREAM_LINES ? "application/json" : "text/event-stream; charset=utf-8", -1,
                  "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
}

/* Writes what is new of a call's answer. A stream stops when its reader has not taken the bytes before; conn_event comes back to it. */
static void call_advance(conn *c) {
    const llm_openai_info *info = llm_openai_get_info(c->call);
    int streaming = info->stream && info->status == 200;
    SCOPED_TEXT t = {0};
    if (streaming && !c->streaming) stream_start(c, info);
    while (c->out.len - c->out_at < CONN_MAX_OUT && llm_openai_next(c->call, &t)) {
        if (!streaming) break;
        stream_bytes(c, t.data, t.len);
        t.len = 0;
    }
    if (!info->done) return;
    counters.refused += info->status != 200;
    if (info->status != 200) server_log(LLM_LOG_DEBUG, "%.*s", (int)(t.len < 1000 ? t.len : 1000), t.len ? t.data : "");
    if (!streaming) {
        int text = info->status == 200 && (info->kind == LLM_OPENAI_LORA_LOAD || info->kind == LLM_OPENAI_LORA_UNLOAD);
        http_answer(c, info->status, text ? "text/plain; charset=utf-8" : "application/json", &t, NULL);
    } else {
        if (c->head.minor == 1) llm_text_str(&c->out, "0\r\n\r\n");
        conn_answered(c);
    }
}

/* VLLM_ENGINE_ITERATION_TIMEOUT_S: when one step of the engine takes too long, whoever waits for it gets an error. The engine
 * is kept: if the step ends, the server goes on. */
static void watch_step(void) {
    int64_t began = __atomic_load_n(&queue.step_began, __ATOMIC_ACQUIRE);
    if (server.cfg.step_timeout <= 0 || !began || net.now - (double)began * 1e-3 < (double)server.cfg.step_timeout) return;
    for (conn *c = net.list, *next; c; c = next) {
        next = c->next;
        pthread_mutex_lock(&queue.mutex);
        int waits = c->call && !c->preparing;
        pthread_mutex_unlock(&queue.mutex);
        if (!waits) continue;
        llm_openai_fail(c->call, 500, "the engine did not finish a step in time");
        server_log(LLM_LOG_ERROR, "a step of the engine takes too long: a request is failed");
        call_advance(c);
        conn_settle(c);
    }
}

/* Everything on the news list. */
static void calls_news(void) {
    for (;;) {
        pthread_mutex_lock(&queue.mutex);
        conn *c = queue.news;
        if (c) {
            queue.news = c->next_news;
            c->on_list = 0;
        }
        int busy = c && c->preparing;
        pthread_mutex_unlock(&queue.mutex);
        if (!c) return;
        if (busy) continue; /* its worker will bring it back */
        if (c->gone) {      /* the client left while a worker had the call: now nobody else has it */
            call_end(c);
            free(c);
        } else {
            call_advance(c);
            conn_settle(c);
        }
    }
}

/* ============================================================================
 * >>page   The chat page at /: HTML, style and script, as lines. It is made from src/page/ by src/amalgamate.py.
 * ============================================================================
 * Served as three routes so that the Content-Security-Policy can forbid everything inline. Text of the model becomes text nodes,
 * never markup. Conversations stay in the browser. */

/* generated: begin */
static const char *const page_html[] = {
    "<!doctype html>",
    "<html lang=\"en\">",
    "<head>",
    "<meta charset=\"utf-8\">",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">",
    "<meta name=\"color-scheme\" content=\"light dark\">",
    "<title>llm.h</title>",
    "<link rel=\"icon\" href=\"data:,\">",
    "<link rel=\"stylesheet\" href=\"page.css\">",
    "<script src=\"page.js\" defer></script>",
    "</head>",
    "<body>",
    "<aside id=\"side\" aria-label=\"Conversations\">",
    "<div class=\"bar\">",
    "<span class=\"brand\">llm.h</span>",
    "<button id=\"theme\" class=\"icon\" title=\"Light or dark\" aria-label=\"Light or dark\">&#9680;</button>",
    "</div>",
    "<button id=\"new\" title=\"Ctrl+Shift+O\"><span aria-hidden=\"true\">+</span> New chat</button>",
    "<nav id=\"list\"></nav>",
    "<div id=\"model\" class=\"foot\"></div>",
    "</aside>",
    "<main>",
    "<header>",
    "<button id=\"menu\" class=\"icon\" aria-label=\"Conversations\" aria-expanded=\"false\" aria-controls=\"side\">&#9776;</button>",
    "<h1 id=\"title\">New chat</h1>",
    "<button id=\"tune\" aria-expanded=\"false\" aria-controls=\"settings\">Settings</button>",
    "</header>",
    "<section id=\"settings\" hidden>",
    "<label class=\"wide\">System prompt",
    "<textarea id=\"system\" rows=\"2\" placeholder=\"You are a helpful assistant.\"></textarea></label>",
    "<label>Temperature<input id=\"temperature\" type=\"number\" min=\"0\" max=\"2\" step=\"0.1\" placeholder=\"default\"></label>",
    "<label>Top p<input id=\"top_p\" type=\"number\" min=\"0.01\" max=\"1\" step=\"0.05\" placeholder=\"default\"></label>",
    "<label>Top k<input id=\"top_k\" type=\"number\" min=\"-1\" step=\"1\" placeholder=\"default\"></label>",
    "<label>Max tokens<input id=\"max_tokens\" type=\"number\" min=\"1\" step=\"1\" placeholder=\"no limit\"></label>",
    "<label>Repetition penalty",
    "<input id=\"repetition_penalty\" type=\"number\" min=\"0.1\" max=\"2\" step=\"0.05\" placeholder=\"default\"></label>",
    "<label>Seed<input id=\"seed\" type=\"number\" step=\"1\" placeholder=\"random\"></label>",
    "<label class=\"wide\">API key",
    "<input id=\"key\" type=\"password\" autocomplete=\"off\" placeholder=\"only if the server asks for one\"></label>",
    "</section>",
    "<div id=\"log\" role=\"log\" aria-live=\"polite\"></div>",
    "<form id=\"form\">",
    "<div class=\"box\">",
    "<textarea id=\"input\" rows=\"1\" placeholder=\"Message\" aria-label=\"Message\" autofocus></textarea>",
    "<button id=\"send\" type=\"submit\" aria-label=\"Send\"></button>",
    "</div>",
    "<p class=\"hint\">Enter sends &middot; Shift+Enter starts a new line &middot; Esc stops</p>",
    "</form>",
    "</main>",
    "</body>",
    "</html>"};

static const char *const page_css[] = {
    ":root {",
    "color-scheme: light; --bg: #ffffff; --fg: #1b1d20; --soft: #666b72; --line: #e3e4e6; --panel: #f6f6f4; --user: #eef1f6;",
    "--accent: #2457a7; --on: #ffffff; --code: #f6f6f4; --bad: #b3261e; --shade: 0 2px 14px rgb(0 0 0 / 8%);",
    "}",
    ":root[data-theme=\"dark\"] {",
    "color-scheme: dark; --bg: #18191b; --fg: #e8e8e5; --soft: #9a9fa6; --line: #303337; --panel: #1f2023; --user: #282c33;",
    "--accent: #8ab4f8; --on: #10233f; --code: #121315; --bad: #f2a29b; --shade: 0 2px 14px rgb(0 0 0 / 35%);",
    "}",
    "* { box-sizing: border-box; }",
    "html, body { height: 100%; margin: 0; }",
    "body { display: flex; background: var(--bg); color: var(--fg);",
    "font: 16px/1.6 system-ui, -apple-system, \"Segoe UI\", Roboto, sans-serif; }",
    "button, input, textarea { font: inherit; color: inherit; }",
    "button { border: 1px solid var(--line); background: var(--bg); border-radius: 10px; padding: 6px 14px; cursor: pointer; }",
    "button:hover { border-color: var(--soft); }",
    ":focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }",
    "a { color: var(--accent); }",
    "aside { width: 256px; flex: none; display: flex; flex-direction: column; background: var(--panel);",
    "border-right: 1px solid var(--line); }",
    ".bar { display: flex; align-items: center; justify-content: space-between; height: 56px; padding: 0 10px 0 18px; }",
    ".brand { font-weight: 700; letter-spacing: -.01em; }",
    ".icon { border: 0; background: none; padding: 4px 9px; font-size: 17px; line-height: 1.4; }",
    ".icon:hover { background: var(--user); }",
    "#new { margin: 0 12px 12px; text-align: left; }",
    "#new span { color: var(--soft); margin-right: 4px; }",
    "#list { flex: 1; overflow-y: auto; padding: 0 8px; }",
    "#list .row { display: flex; align-items: center; border-radius: 10px; font-size: 15px; }",
    "#list .row:hover, #list .row.on { background: var(--user); }",
    "#list a {",
    "flex: 1; min-width: 0; padding: 6px 10px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;",
    "color: inherit; text-decoration: none; border-radius: 10px;",
    "}",
    "#list .row button { border: 0; background: none; color: var(--soft); padding: 4px 10px; opacity: 0; }",
    "#list .row:hover button, #list .row button:focus-visible { opacity: 1; }",
    ".foot { padding: 12px 18px; color: var(--soft); font-size: 12.5px; line-height: 1.45; overflow-wrap: anywhere; }",
    "main { flex: 1; min-width: 0; display: flex; flex-direction: column; }",
    "header { display: flex; align-items: center; gap: 8px; height: 56px; flex: none; padding: 0 16px; }",
    "h1 { flex: 1; margin: 0; font-size: 15px; font-weight: 600; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }",
    "#menu { display: none; }",
    "#tune { font-size: 14px; padding: 4px 12px; }",
    "#tune[aria-expanded=\"true\"] { background: var(--user); }",
    "#settings {",
    "display: grid; grid-template-columns: repeat(auto-fill, minmax(min(200px, 45%), 1fr)); gap: 12px; width: calc(100% - 32px);",
    "max-width: 760px;",
    "max-height: 60vh; overflow-y: auto; margin: 0 auto 8px; padding: 16px; border: 1px solid var(--line); border-radius: 16px;",
    "box-shadow: var(--shade);",
    "}",
    "#settings[hidden] { display: none; }",
    "#settings label { display: flex; flex-direction: column; gap: 3px; font-size: 13px; color: var(--soft); }",
    "#settings .wide { grid-column: 1 / -1; }",
    "#settings input, #settings textarea, .edit textarea {",
    "width: 100%; background: var(--panel); border: 1px solid var(--line); border-radius: 10px; padding: 7px 10px; color: var(--fg);",
    "}",
    "#settings textarea, .edit textarea { resize: vertical; }",
    "#log { flex: 1; overflow-y: auto; padding: 12px 16px 24px; }",
    ".msg { max-width: 760px; margin: 0 auto 10px; overflow-wrap: anywhere; }",
    ".msg.user .body { background: var(--user); border-radius: 18px; padding: 9px 16px; width: fit-content; max-width: 82%;",
    "margin-left: auto; white-space: pre-wrap; }",
    ".msg .tools { display: flex; gap: 2px; align-items: center; min-height: 30px; font-size: 13px; color: var(--soft); opacity: 0; }",
    ".msg:hover .tools, .msg:focus-within .tools, .msg:last-child .tools { opacity: 1; }",
    ".msg.user .tools { justify-content: flex-end; }",
    ".msg.assistant .tools { margin-left: -8px; }",
    ".msg .tools button { border: 0; background: none; color: var(--soft); padding: 2px 8px; font-size: 13px; }",
    ".msg .tools button:hover { color: var(--fg); background: var(--user); }",
    ".msg .tools span { padding: 0 8px; }",
    ".body p { margin: 0 0 12px; }",
    ".body > :last-child { margin-bottom: 0; }",
    ".body h2, .body h3, .body h4 { margin: 20px 0 8px; font-size: 18px; line-height: 1.35; }",
    ".body ul, .body ol { margin: 0 0 12px; padding-left: 26px; }",
    ".body li { margin: 3px 0; }",
    ".body blockquote { margin: 0 0 12px; padding-left: 14px; border-left: 3px solid var(--line); color: var(--soft); }",
    ".body code { background: var(--code); border-radius: 6px; padding: 2px 5px;",
    "font: .88em/1.5 ui-monospace, \"DejaVu Sans Mono\", Menlo, monospace; }",
    ".body table { border-collapse: collapse; margin-bottom: 14px; display: block; overflow-x: auto; font-size: 15px; }",
    ".body td, .body th { border-bottom: 1px solid var(--line); padding: 6px 18px 6px 0; text-align: left; }",
    ".code { margin: 0 0 14px; border: 1px solid var(--line); border-radius: 12px; overflow: hidden; background: var(--code); }",
    ".code div { display: flex; justify-content: space-between; align-items: center; padding: 5px 6px 0 14px; font-size: 12.5px;",
    "color: var(--soft); }",
    ".code button { border: 0; background: none; padding: 2px 8px; font-size: 12.5px; color: var(--soft); }",
    ".code button:hover { color: var(--fg); }",
    ".code pre { margin: 0; padding: 8px 14px 14px; overflow-x: auto; }",
    ".code pre code { background: none; padding: 0; font-size: 14px; }",
    "details.think { margin: 0 0 12px; color: var(--soft); font-size: 14.5px; white-space: pre-wrap; }",
    "details.think summary { cursor: pointer; }",
    "details.think[open] { border-left: 3px solid var(--line); padding-left: 14px; }",
    ".error { color: var(--bad); }",
    ".wait { width: 10px; height: 10px; margin: 8px 0; border-radius: 50%; background: var(--soft);",
    "animation: beat 1.1s ease-in-out infinite; }",
    "@keyframes beat { 50% { transform: scale(.55); opacity: .4; } }",
    ".empty { max-width: 640px; margin: 20vh auto 0; text-align: center; }",
    ".empty h2 { margin: 0 0 6px; font-size: 26px; font-weight: 600; letter-spacing: -.01em; }",
    ".empty p { margin: 0 0 24px; color: var(--soft); }",
    ".empty div { display: flex; flex-wrap: wrap; gap: 8px; justify-content: center; }",
    ".empty button { border-radius: 18px; font-size: 14px; }",
    "form { width: 100%; max-width: 792px; margin: 0 auto; padding: 0 16px 8px; }",
    ".box { display: flex; align-items: flex-end; gap: 6px; padding: 6px; border: 1px solid var(--line); border-radius: 24px;",
    "box-shadow: var(--shade); }",
    ".box:focus-within { border-color: var(--soft); }",
    "#input { flex: 1; min-width: 0; resize: none; max-height: 40vh; border: 0; background: none; padding: 6px 6px 6px 14px;",
    "outline: none; }",
    "#send { position: relative; width: 38px; height: 38px; flex: none; border: 0; border-radius: 50%; padding: 0;",
    "background: var(--accent); color: var(--on); font-size: 18px; }",
    "#send::before { content: \"\\2191\"; }",
    "#send.stop { background: var(--fg); }",
    "#send.stop::before { content: \"\"; position: absolute; inset: 13px; border-radius: 2px; background: var(--bg); }",
    ".hint { margin: 6px 0 0; text-align: center; font-size: 12px; color: var(--soft); }",
    ".edit { display: flex; flex-direction: column; gap: 8px; padding-bottom: 8px; }",
    "@media (max-width: 720px) {",
    "aside { position: fixed; inset: 0 auto 0 0; z-index: 2; width: min(300px, 82%); display: none; box-shadow: var(--shade); }",
    "body.side aside { display: flex; }",
    "body.side main { opacity: .35; }",
    "#menu { display: block; }",
    "#list .row button { opacity: 1; }",
    ".hint { display: none; }",
    "form { padding-bottom: 14px; }",
    ".empty { margin-top: 12vh; }",
    "}",
    "@media (hover: none) { .msg .tools { opacity: 1; } }",
    "@media (prefers-reduced-motion: reduce) { .wait { animation: none; } }"};

static const char *const page_js[] = {
    "\"use strict\";",
    "const $ = id => document.getElementById(id);",
    "const FIELDS = [\"temperature\", \"top_p\", \"top_k\", \"max_tokens\", \"repetition_penalty\", \"seed\"];",
    "const store = {",
    "  get(k, d) {",
    "    try { const v = localStorage.getItem(\"llm.\" + k); return v === null ? d : JSON.parse(v); } catch (e) { return d; }",
    "  },",
    "  set(k, v) {",
    "    try { localStorage.setItem(\"llm.\" + k, JSON.stringify(v)); } catch (e) { /* a full or closed store loses only history */ }",
    "  }",
    "};",
    "const IDEAS = [\"Explain how rainbows form\", \"Write a haiku about autumn\", \"Plan a simple dinner for two\"];",
    "let chats = store.get(\"chats\", []), current = store.get(\"current\", null), running = null;",
    "",
    "function chat() { return chats.find(c => c.id === current) || null; }",
    "function save() {",
    "  store.set(\"chats\", chats.slice(0, 100).map(c => ({ ...c, messages: c.messages.filter(m => !m.live) })));",
    "  store.set(\"current\", current);",
    "}",
    "function el(tag, props, ...children) {",
    "  const e = document.createElement(tag);",
    "  for (const k in props || {}) {",
    "    if (k === \"on\") for (const n in props.on) e.addEventListener(n, props.on[n]);",
    "    else if (k === \"class\") e.className = props[k];",
    "    else e.setAttribute(k, props[k]);",
    "  }",
    "  for (const c of children) e.append(c);",
    "  return e;",
    "}",
    "",
    "function button(text, click, props) { return el(\"button\", { type: \"button\", on: { click }, ...props }, text); }",
    "",
    "/* Markdown, as nodes: text never becomes markup. */",
    "function inline(tag, text) {",
    ("  const rule = /`([^`\\n]+)`|\\*\\*([^*\\n]+)\\*\\*|\\*([^*\\s][^*\\n]*)\\*|\\[([^\\]\\n]+)\\]\\((https?:\\/\\/[^\\s)]+)\\)/, "
     "into = el(tag);"),
    "  for (let m; (m = rule.exec(text)); text = text.slice(m.index + m[0].length)) {",
    "    into.append(text.slice(0, m.index));",
    "    if (m[1] !== undefined) into.append(el(\"code\", null, m[1]));",
    "    else if (m[2] !== undefined) into.append(inline(\"strong\", m[2]));",
    "    else if (m[3] !== undefined) into.append(inline(\"em\", m[3]));",
    "    else into.append(el(\"a\", { href: m[5], rel: \"noopener noreferrer nofollow\", target: \"_blank\" }, m[4]));",
    "  }",
    "  into.append(text);",
    "  return into;",
    "}",
    "function codeBlock(lang, text) {",
    "  const head = el(\"div\", null, el(\"span\", null, lang || \"text\"), button(\"Copy\", e => copyText(text, e.target)));",
    "  return el(\"div\", { class: \"code\" }, head, el(\"pre\", null, el(\"code\", null, text)));",
    "}",
    "const ITEM = /^\\s*(?:[-*+]|\\d+[.)])\\s+/, BLOCK = /^\\s*(```|~~~|#{1,6}\\s|>\\s?)/;",
    "function tableRow(tag, line) {",
    "  return el(\"tr\", null, ...line.trim().replace(/^\\||\\|$/g, \"\").split(\"|\").map(s => inline(tag, s.trim())));",
    "}",
    "function markdown(text) {",
    "  const out = document.createDocumentFragment(), lines = text.split(\"\\n\");",
    "  let i = 0;",
    "  const take = ok => { const from = i; while (i < lines.length && ok(lines[i], i - from)) i++; return lines.slice(from, i); };",
    "  while (i < lines.length) {",
    "    const line = lines[i];",
    "    let m;",
    "    if ((m = /^\\s*(```+|~~~+)\\s*(\\S*)/.exec(line))) {",
    "      i++;",
    "      out.append(codeBlock(m[2], take(l => !l.trim().startsWith(m[1])).join(\"\\n\")));",
    "      i++;",
    "    } else if ((m = /^(#{1,6})\\s+(.*)/.exec(line))) {",
    "      out.append(inline(\"h\" + Math.min(m[1].length + 1, 4), m[2]));",
    "      i++;",
    "    } else if (ITEM.test(line)) {",
    "      const number = parseInt(line, 10), list = isNaN(number) ? el(\"ul\") : el(\"ol\", { start: number });",
    "      while (i < lines.length && ITEM.test(lines[i])) {",
    "        const item = take((l, n) => !n || (/^\\s{2,}\\S/.test(l) && !ITEM.test(l)));",
    "        list.append(inline(\"li\", item.map((l, n) => n ? l.trim() : l.replace(ITEM, \"\")).join(\" \")));",
    "      }",
    "      out.append(list);",
    "    } else if (/^>\\s?/.test(line)) {",
    "      out.append(inline(\"blockquote\", take(l => /^>\\s?/.test(l)).map(l => l.replace(/^>\\s?/, \"\")).join(\"\\n\")));",
    "    } else if (line.includes(\"|\") && i + 1 < lines.length && /^\\s*\\|?[\\s:|-]+\\|[\\s:|-]*$/.test(lines[i + 1])) {",
    "      i += 2;",
    "      out.append(el(\"table\", null, tableRow(\"th\", line), ...take(l => l.includes(\"|\")).map(l => tableRow(\"td\", l))));",
    "    } else if (!line.trim()) i++;",
    "    else out.append(inline(\"p\", take((l, n) => !n || (l.trim() && !BLOCK.test(l) && !ITEM.test(l))).join(\"\\n\")));",
    "  }",
    "  return out;",
    "}",
    "function copyText(text, button) {",
    "  const old = button.textContent;",
    "  const done = () => { button.textContent = \"Copied\"; setTimeout(() => { button.textContent = old; }, 1200); };",
    "  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, () => {});",
    "  else {",
    "    const t = el(\"textarea\"); t.value = text; document.body.append(t); t.select();",
    "    try { document.execCommand(\"copy\"); done(); } catch (e) { /* the browser refuses: nothing to do */ }",
    "    t.remove();",
    "  }",
    "}",
    "",
    "function fill(node, m) {",
    "  node.replaceChildren();",
    "  if (m.role === \"user\") { node.append(m.content); return; }",
    "  if (m.reasoning) {",
    "    const d = el(\"details\", { class: \"think\" }, el(\"summary\", null, \"Thinking\"), m.reasoning);",
    "    d.open = !m.content;",
    "    node.append(d);",
    "  }",
    "  node.append(markdown(m.content || \"\"));",
    "  if (m.error) node.append(el(\"p\", { class: \"error\" }, m.error));",
    "  if (m.live && !m.content) node.append(el(\"div\", { class: \"wait\" }));",
    "}",
    "function message(m, i) {",
    "  const body = el(\"div\", { class: \"body\" }), tools = el(\"div\", { class: \"tools\" });",
    "  const node = el(\"div\", { class: \"msg \" + m.role }, body, tools);",
    "  fill(body, m);",
    "  if (m.live) { m.node = body; m.tools = tools; return node; }",
    "  if (m.role === \"user\") tools.append(button(\"Edit\", () => edit(node, i)));",
    "  else {",
    "    tools.append(button(\"Copy\", e => copyText(m.content, e.target)));",
    "    const again = () => { if (!running) { chat().messages.pop(); answer(); } };",
    "    if (i === chat().messages.length - 1) tools.append(button(\"Regenerate\", again));",
    "    if (m.stats) tools.append(el(\"span\", null, m.stats));",
    "  }",
    "  return node;",
    "}",
    "function edit(node, i) {",
    "  if (running) return;",
    "  const area = el(\"textarea\", { rows: \"4\" });",
    "  area.value = chat().messages[i].content;",
    "  const go = () => { const text = area.value.trim(); if (text) { chat().messages.length = i; say(text); } };",
    "  area.addEventListener(\"keydown\", e => {",
    "    if (e.key === \"Enter\" && (e.ctrlKey || e.metaKey)) go();",
    "    if (e.key === \"Escape\") draw();",
    "  });",
    "  const buttons = el(\"div\", null, button(\"Send\", go), \" \", button(\"Cancel\", draw));",
    "  node.replaceChildren(el(\"div\", { class: \"edit\" }, area, buttons));",
    "  area.focus();",
    "}",
    "function welcome() {",
    "  const ideas = IDEAS.map(text => button(text, () => say(text)));",
    "  const head = [el(\"h2\", null, \"What can I help with?\"), el(\"p\", null, \"Everything stays on this machine.\")];",
    "  return el(\"div\", { class: \"empty\" }, ...head, el(\"div\", null, ...ideas));",
    "}",
    "function side(on) {",
    "  document.body.classList.toggle(\"side\", on);",
    "  $(\"menu\").setAttribute(\"aria-expanded\", String(document.body.classList.contains(\"side\")));",
    "}",
    "function draw() {",
    "  const c = chat(), log = $(\"log\");",
    "  $(\"title\").textContent = c ? c.title : \"New chat\";",
    "  document.title = (c ? c.title + \" - \" : \"\") + \"llm.h\";",
    "  $(\"list\").replaceChildren(...chats.map(x => {",
    "    const a = el(\"a\", { href: \"#\", on: { click: e => { e.preventDefault(); open(x.id); } } }, x.title);",
    "    const del = button(\"\\u00d7\", () => remove(x.id), { title: \"Delete \" + x.title, \"aria-label\": \"Delete \" + x.title });",
    "    return el(\"div\", { class: \"row\" + (x.id === current ? \" on\" : \"\") }, a, del);",
    "  }));",
    "  log.replaceChildren(...(c && c.messages.length ? c.messages.map(message) : [welcome()]));",
    "  $(\"system\").value = c ? c.system || \"\" : store.get(\"system\", \"\");",
    "  log.scrollTop = log.scrollHeight;",
    "}",
    "function stop() { if (running) running.abort(); }",
    "function open(id) { stop(); current = id; side(false); save(); draw(); $(\"input\").focus(); }",
    "function remove(id) {",
    "  stop();",
    "  chats = chats.filter(c => c.id !== id);",
    "  if (current === id) current = chats.length ? chats[0].id : null;",
    "  save();",
    "  draw();",
    "}",
    "",
    "function say(text) {",
    "  let c = chat();",
    "  if (!c) {",
    "    const id = Date.now() + \"-\" + Math.random().toString(36).slice(2);",
    "    c = { id, title: text.replace(/\\s+/g, \" \").slice(0, 60), system: $(\"system\").value, messages: [] };",
    "    chats.unshift(c);",
    "    current = c.id;",
    "  }",
    "  c.messages.push({ role: \"user\", content: text });",
    "  answer();",
    "}",
    "function body(c) {",
    "  const b = { model: \"\", stream: true, stream_options: { include_usage: true }, messages: [] };",
    "  if (c.system) b.messages.push({ role: \"system\", content: c.system });",
    "  for (const m of c.messages) if (m.content) b.messages.push({ role: m.role, content: m.content });",
    "  for (const f of FIELDS) if ($(f).value !== \"\") b[f] = Number($(f).value);",
    "  return b;",
    "}",
    "function setRunning(controller) {",
    "  running = controller;",
    "  $(\"send\").setAttribute(\"aria-label\", controller ? \"Stop\" : \"Send\");",
    "  $(\"send\").classList.toggle(\"stop\", !!controller);",
    "}",
    "async function answer() {",
    "  const c = chat(), m = { role: \"assistant\", content: \"\", live: true }, request = body(c), controller = new AbortController();",
    "  c.messages.push(m);",
    "  setRunning(controller);",
    "  save();",
    "  draw();",
    "  const start = performance.now();",
    "  let first = 0, tokens = 0;",
    "  const show = () => {",
    "    const log = $(\"log\"), near = log.scrollHeight - log.scrollTop - log.clientHeight < 80;",
    "    fill(m.node, m);",
    "    const s = (performance.now() - first) / 1000;",
    "    const speed = (tokens / s).toFixed(1), wait = ((first - start) / 1000).toFixed(2);",
    "    m.stats = first && s > 0.05 ? tokens + \" tokens, \" + speed + \" tokens/s, first after \" + wait + \" s\" : \"\";",
    "    m.tools.textContent = m.stats;",
    "    if (near) log.scrollTop = log.scrollHeight;",
    "  };",
    "  let pending = false;",
    "  const later = () => {",
    "    if (!pending) requestAnimationFrame(() => { pending = false; if (m.live) show(); });",
    "    pending = true;",
    "  };",
    "  try {",
    "    const headers = { \"Content-Type\": \"application/json\" };",
    "    if ($(\"key\").value) headers.Authorization = \"Bearer \" + $(\"key\").value;",
    "    const how = { method: \"POST\", headers, body: JSON.stringify(request), signal: controller.signal };",
    "    const r = await fetch(\"v1/chat/completions\", how);",
    "    if (!r.ok) {",
    "      const e = await r.json().catch(() => null);",
    "      throw new Error(e && e.error ? e.error.message : \"HTTP \" + r.status);",
    "    }",
    "    const reader = r.body.getReader(), decoder = new TextDecoder();",
    "    for (let buffer = \"\", part; !(part = await reader.read()).done;) {",
    "      buffer += decoder.decode(part.value, { stream: true });",
    "      for (let end; (end = buffer.indexOf(\"\\n\\n\")) >= 0; buffer = buffer.slice(end + 2)) {",
    "        const event = buffer.slice(0, end);",
    "        if (!event.startsWith(\"data: \") || event === \"data: [DONE]\") continue;",
    "        const data = JSON.parse(event.slice(6));",
    "        if (data.error) throw new Error(data.error.message);",
    "        if (data.usage) tokens = data.usage.completion_tokens;",
    "        const delta = data.choices.length ? data.choices[0].delta : null;",
    "        if (!delta || delta.role) continue;",
    "        if (!first && (delta.content || delta.reasoning_content)) first = performance.now();",
    "        if (delta.reasoning_content) m.reasoning = (m.reasoning || \"\") + delta.reasoning_content;",
    "        if (delta.content) m.content += delta.content;",
    "        if (!data.usage) tokens++;",
    "        later();",
    "      }",
    "    }",
    "    show();",
    "  } catch (e) {",
    "    if (e.name !== \"AbortError\") m.error = e.message || \"The server is gone.\";",
    "  }",
    "  delete m.live; delete m.node; delete m.tools;",
    "  setRunning(null);",
    "  save();",
    "  if (chat() === c) draw();",
    "  $(\"input\").focus();",
    "}",
    "",
    "function grow() { const t = $(\"input\"); t.style.height = \"auto\"; t.style.height = t.scrollHeight + \"px\"; }",
    "$(\"form\").addEventListener(\"submit\", e => {",
    "  e.preventDefault();",
    "  if (running) { stop(); return; }",
    "  const text = $(\"input\").value.trim();",
    "  if (!text) return;",
    "  $(\"input\").value = \"\";",
    "  grow();",
    "  say(text);",
    "});",
    "$(\"input\").addEventListener(\"input\", grow);",
    "$(\"input\").addEventListener(\"keydown\", e => {",
    "  if (e.key !== \"Enter\" || e.shiftKey || e.isComposing) return;",
    "  e.preventDefault();",
    "  $(\"form\").requestSubmit();",
    "});",
    "document.addEventListener(\"keydown\", e => {",
    "  if (e.key === \"Escape\" && running) stop();",
    "  if (e.ctrlKey && e.shiftKey && e.key.toLowerCase() === \"o\") { e.preventDefault(); open(null); }",
    "});",
    "$(\"new\").addEventListener(\"click\", () => open(null));",
    "$(\"menu\").addEventListener(\"click\", e => { e.stopPropagation(); side(); });",
    "document.querySelector(\"main\").addEventListener(\"click\", () => side(false));",
    "$(\"tune\").addEventListener(\"click\", () => {",
    "  $(\"settings\").hidden = !$(\"settings\").hidden;",
    "  $(\"tune\").setAttribute(\"aria-expanded\", String(!$(\"settings\").hidden));",
    "});",
    "$(\"system\").addEventListener(\"change\", () => {",
    "  const c = chat(), text = $(\"system\").value;",
    "  if (c) c.system = text;",
    "  else store.set(\"system\", text);",
    "  save();",
    "});",
    "for (const f of FIELDS) { $(f).value = store.get(f, \"\"); $(f).addEventListener(\"change\", () => store.set(f, $(f).value)); }",
    "function theme(t) { document.documentElement.dataset.theme = t; store.set(\"theme\", t); }",
    "theme(store.get(\"theme\", matchMedia(\"(prefers-color-scheme: dark)\").matches ? \"dark\" : \"light\"));",
    "$(\"theme\").addEventListener(\"click\", () => theme(document.documentElement.dataset.theme === \"dark\" ? \"light\" : \"dark\"));",
    "fetch(\"v1/models\").then(r => r.json()).then(d => {",
    "  const m = d.data[0];",
    "  $(\"model\").textContent = m.id.replace(/.*\\//, \"\").replace(/\\.gguf$/, \"\") + \" \\u00b7 \" + m.max_model_len + \" tokens\";",
    "}).catch(() => {});",
    "if (current && !chat()) current = null;",
    "draw();"};
/* generated: end */

/* ============================================================================
 * >>routes   What is served where.
 * ============================================================================
 * Who may ask comes first: a key where one is set; a Host that is ours, since a page of another site could otherwise reach a
 * server on loopback under a name of its own (DNS rebinding); an Origin that may read the answer (CORS). */

/* Whether the engine is open. The loading thread says so last: who sees it sees all that it set up. */
static int is_ready(void) { return __atomic_load_n(&server.ready, __ATOMIC_ACQUIRE); }

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
    else if ((end = (const char *)memchr(v.p, ':', v.n)) != NULL) v.n = (size_t)(end - v.p);
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

/* A page of another site must not reach a server on loopback under its own name (DNS rebinding). */
static int host_allowed(slice host) {
    if (!server.loopback || !host.n || is_loopback_name(host)) return 1;
    for (int i = 0; i < server.cfg.allowed_hosts.n; i++)
        if (!strcmp(server.cfg.allowed_hosts.items[i], "*") || slice_is_nocase(host_part(host), server.cfg.allowed_hosts.items[i]))
            return 1;
    return 0;
}

/* Headers of every answer. */
static void common_headers(conn *c, llm_text *t) {
    const llm_openai_info *info = c->call ? llm_openai_get_info(c->call) : NULL;
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
    const llm_text none = {0};
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

/* vLLM's members and llama.cpp's meta: clients ask for one or the other. */
static void add_model_card(llm_text *t, const char *name, const char *root, const char *parent) {
    const llm_model_info *info = llm_model_get_info(server.model);
    llm_engine_stats s;
    llm_engine_get_stats(server.engine, &s);
    llm_text_format(t,
                    "%,{'id':%q,'object':'model','created':%l,'owned_by':'llm.h','root':%q,'parent':%q,'max_model_len':%d,'permission':[],",
                    name, (int64_t)server.started, root, parent, s.max_model_len);
    llm_text_format(t, "'meta':{'n_ctx_train':%d,'n_params':%l,'n_vocab':%d,'n_embd':%d,'size':%l}}", info->max_position_embeddings,
                    info->n_params, info->vocab_size, info->hidden_size, info->weight_bytes);
}

/* The served names, then the adapters; or (only.p not NULL) the adapter of that name. The path is accepted as a name but not listed. */
static void add_model_cards(llm_text *t, slice only) {
    SCOPED_TEXT name = {0}, path = {0};
    for (int i = 0; i < server.n_served && !only.p; i++) add_model_card(t, server.cfg.names.items[i], server.cfg.setup.model, NULL);
    for (int i = 0; llm_lora_get(server.engine, i, &name, &path, NULL); i++, name.len = path.len = 0)
        if (!only.p || slice_is(only, name.data)) add_model_card(t, name.data, path.data, server.cfg.names.items[0]);
}

static void route_models(conn *c) {
    const slice all = {NULL, 0};
    SCOPED_TEXT t = {0};
    llm_text_str(&t, "{\"object\":\"list\",\"data\":[");
    add_model_cards(&t, all);
    llm_text_str(&t, "]}");
    http_answer(c, 200, "application/json", &t, NULL);
}

/* Paths are served with and without /v1 and with a trailing slash. */
static slice plain_path(slice p) {
    if (p.n >= 3 && !memcmp(p.p, "/v1", 3) && (p.n == 3 || p.p[3] == '/')) p.p += 3, p.n -= 3;
    if (p.n > 1 && p.p[p.n - 1] == '/') p.n--;
    return p;
}

/* One model by any of its names. */
static void route_model(conn *c) {
    slice name = plain_path(c->head.path);
    SCOPED_TEXT t = {0};
    name.p += strlen("/models/"), name.n -= strlen("/models/");
    if (!llm_openai_knows_model(&server.service, name.p, name.n)) {
        llm_text_str(&t, "The model `");
        llm_text_add(&t, name.p, name.n < 64 ? name.n : 64);
        llm_text_str(&t, "` does not exist.");
        http_answer_error(c, 404, t.data, "model", "model_not_found");
        return;
    }
    add_model_cards(&t, name);
    if (!t.len) add_model_card(&t, server.cfg.names.items[0], server.cfg.setup.model, NULL);
    http_answer(c, 200, "application/json", &t, NULL);
}

static void route_metrics(conn *c) {
    SCOPED_TEXT t = {0};
    write_metrics(&t);
    http_answer(c, 200, "text/plain; version=0.0.4; charset=utf-8", &t, NULL);
}

/* What lm-eval needs to use this server's tokenizer instead of its own. */
static void route_tokenizer_info(conn *c) {
    static const char *const name[4] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    const llm_model_info *info = llm_model_get_info(server.model);
    const int32_t id[4] = {info->bos_id, info->eos_id, info->pad_id, info->unk_id};
    SCOPED_TEXT t = {0};
    llm_text_format(&t, "{'tokenizer_class':%q", info->tokenizer_kind);
    for (int i = 0; i < 4; i++) {
        SCOPED_TEXT raw = {0};
        if (id[i] >= 0) llm_token_bytes(server.model, id[i], &raw);
        llm_text_format(&t, ",%q:%q", name[i], raw.data);
    }
    llm_text_format(&t, ",'vocab_size':%d,'model_max_length':%d,'chat_template':%q}", llm_vocab_size(server.model),
                    info->max_position_embeddings, info->chat_template);
    http_answer(c, 200, "application/json", &t, NULL);
}

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

/* ---- routes with a JSON body */

/* A request with a body. Its fields are checked here, in the event thread; the rest goes to a worker. */
static void route_call(conn *c, llm_openai_kind kind) {
    c->call = llm_openai_begin(&server.service, kind, c->body.data ? c->body.data : "", c->body.len, c);
    llm_text_free(&c->body);
    if (!c->call) http_answer_error(c, 503, "out of memory", NULL, NULL);
    else if (llm_openai_get_info(c->call)->status == 200) start_preparing(c);
    else call_advance(c);
}

/* ---- the table */

typedef struct route {
    const char *method, *path; /* a path that ends in '/' is that of all below it, but for "/" */
    void (*get)(conn *c);
    llm_openai_kind kind;
    int open, early; /* open: needs no key; early: answered before the model is ready */
} route;

/* clang-format off */
static const route routes[] = {
    {"GET", "/health", route_health, LLM_OPENAI_CHAT, 1, 1},
    {"GET", "/ping", route_health, LLM_OPENAI_CHAT, 1, 1},
    {"GET", "/", route_page, LLM_OPENAI_CHAT, 1, 1},
    {"GET", "/page.css", route_page, LLM_OPENAI_CHAT, 1, 1},
    {"GET", "/page.js", route_page, LLM_OPENAI_CHAT, 1, 1},
    {"GET", "/version", route_version, LLM_OPENAI_CHAT, 0, 1},
    {"GET", "/models", route_models, LLM_OPENAI_CHAT, 0, 0},
    {"GET", "/models/", route_model, LLM_OPENAI_CHAT, 0, 0},
    {"GET", "/metrics", route_metrics, LLM_OPENAI_CHAT, 1, 0},
    {"GET", "/tokenizer_info", route_tokenizer_info, LLM_OPENAI_CHAT, 0, 0},
    {"POST", "/chat/completions", NULL, LLM_OPENAI_CHAT, 0, 0},
    {"POST", "/completions", NULL, LLM_OPENAI_COMPLETION, 0, 0},
    {"POST", "/generate", NULL, LLM_OPENAI_GENERATE, 0, 0},
    {"POST", "/responses", NULL, LLM_OPENAI_RESPONSE, 0, 0},
    {"POST", "/embeddings", NULL, LLM_OPENAI_EMBEDDING, 0, 0},
    {"POST", "/tokenize", NULL, LLM_OPENAI_TOKENIZE, 0, 0},
    {"POST", "/detokenize", NULL, LLM_OPENAI_DETOKENIZE, 0, 0},
    {"POST", "/apply-template", NULL, LLM_OPENAI_TEMPLATE, 0, 0},
    {"POST", "/load_lora_adapter", NULL, LLM_OPENAI_LORA_LOAD, 0, 0},
    {"POST", "/unload_lora_adapter", NULL, LLM_OPENAI_LORA_UNLOAD, 0, 0},
    {"POST", "/contexts/save", NULL, LLM_OPENAI_CONTEXT_SAVE, 0, 0},
    {"POST", "/contexts/load", NULL, LLM_OPENAI_CONTEXT_LOAD, 0, 0}};
/* clang-format on */

/* curl -d says application/x-www-form-urlencoded unless told otherwise, and that is refused: a page of another site
 * can send such a body without asking first. */
static int body_is_json(const conn *c) {
    slice t = c->head.content_type;
    if (!t.n) return 1;
    slice kind = t;
    const char *semicolon = (const char *)memchr(t.p, ';', t.n);
    if (semicolon) kind.n = (size_t)(semicolon - t.p);
    if (!slice_is_nocase(slice_trim(kind), "application/json")) return 0;
    return !semicolon || !memmem(semicolon, t.n - kind.n, "utf-16", 6);
}

/* The doors in their order: key, loading, shutting down, media type. */
static void serve_route(conn *c, const route *r) {
    if (!r->open && !authorized(c))
        http_answer_error(c, 401, "Unauthorized: send a valid key as Authorization: Bearer KEY", NULL, "invalid_api_key");
    else if (!r->early && !is_ready()) http_answer_error(c, 503, "Loading model", NULL, NULL);
    else if (r->get) r->get(c);
    else if (net.draining) http_answer_error(c, 503, "Shutting down", NULL, NULL);
    else if (!body_is_json(c)) http_answer_error(c, 415, "Content-Type must be application/json", NULL, NULL);
    else route_call(c, r->kind);
}

/* Finds the route. The metrics port serves /metrics and /health only. */
static void serve_request(conn *c) {
    slice path = plain_path(c->head.path), method = c->head.method;
    log_body(c);
    const int head = slice_is(method, "HEAD");
    const char *known = NULL; /* the method of this path */
    if (!host_allowed(c->head.host)) {
        const slice host = host_part(c->head.host);
        SCOPED_TEXT t = {0};
        llm_text_format(&t, "this server was asked for by the name %Q, which it does not serve: start it with --allowed-hosts NAME", host.p,
                        host.n);
        http_answer_error(c, 403, t.failed ? "this Host is not served here" : t.data, NULL, NULL);
        return;
    }
    if (slice_is(method, "OPTIONS")) {
        answer_preflight(c);
        return;
    }
    for (size_t i = 0; i < N_OF(routes); i++) {
        size_t n = strlen(routes[i].path),
               below = n > 1 && routes[i].path[n - 1] == '/' && path.n > n && !memcmp(path.p, routes[i].path, n);
        if (!below && !slice_is(path, routes[i].path)) continue;
        if (c->admin && strcmp(routes[i].path, "/metrics") && strcmp(routes[i].path, "/health")) continue;
        known = routes[i].method;
        if (!slice_is(method, routes[i].method) && !(head && !strcmp(routes[i].method, "GET"))) continue;
        serve_route(c, &routes[i]);
        return;
    }
    if (known) {
        SCOPED_TEXT t = {0};
        llm_openai_error(&t, 405, "this method is not allowed here", NULL, NULL);
        http_answer(c, 405, "application/json", &t, strcmp(known, "GET") ? "Allow: POST, OPTIONS\r\n" : "Allow: GET, HEAD, OPTIONS\r\n");
    } else http_answer_error(c, 404, "not found", NULL, NULL);
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
    else server.signals += 1 + (s == SIGINT && server.signals > 0);
    wake_event_thread();
}

/* A line while loading, on a terminal; a signal cancels it. */
static int on_progress(UNUSED void *user, const char *what, double done) {
    if (isatty(2)) fprintf(stderr, "\r%s %3.0f %%%s", what, done * 100, done >= 1 ? "\r\033[K" : "");
    return server.signals > 0;
}

/* What the flags, the model and the memory have come to, a line to paste, and on standard output the line that scripts
 * wait for. */
static void say_ready(void) {
    const llm_model_info *info = llm_model_get_info(server.model);
    const llm_engine_config *e = &server.cfg.setup.engine;
    const llm_sampling *d = &server.service.defaults;
    llm_engine_stats s;
    llm_engine_get_stats(server.engine, &s);
    server_log(LLM_LOG_INFO, "%s: %s %s, %.0f M parameters, %.0f MiB; %s", server.cfg.setup.model, info->family, info->file_type,
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
    if (!strncmp(server.bound, "http", 4))
        server_log(LLM_LOG_INFO,
                   "try: curl %s/v1/chat/completions -H 'Content-Type: application/json'%s -d '{\"messages\": [{\"role\": \"user\", "
                   "\"content\": \"Hello\"}]}'",
                   server.bound, server.cfg.keys.n ? " -H 'Authorization: Bearer KEY'" : "");
    server_log(LLM_LOG_INFO, "server launch time cost: %.3f s", llm_now() - server.launched);
    printf("listening on %s\n", server.bound);
    fflush(stdout);
}

/* What the flags say about requests, laid over what the model says. */
static void set_service(void) {
    llm_openai_service *s = &server.service;
    const configuration *c = &server.cfg;
    llm_setup_service(&c->setup, &options, server.model, server.engine, s);
    s->max_logprobs = c->max_logprobs;
    s->deadline_s = (double)c->request_timeout;
    s->names = c->names.items;
    s->n_names = c->names.n;
    s->strict_names = c->strict_model_name;
    s->lora_dir = c->lora_dir;
    s->context_dir = c->context_dir;
    if (llm_setup_adapters(&c->setup, server.engine, s)) die_of_library(1);
    s->on_news = on_call_news;
    s->on_event = count_event;
}

/* Loads while the event thread already answers /health with 503. */
static void *load_main(UNUSED void *unused) {
    llm_setup *c = &server.cfg.setup;
    c->files.log = c->engine.log = on_library_log;
#ifndef LLM_NO_VISION
    c->files.picture_reader = llm_picture_reader_stb();
#endif
    c->engine.progress = on_progress;
    if (llm_model_open(c->path.data, &c->files, &server.model) || llm_engine_open(server.model, &c->engine, &server.engine)) {
        if (!server.signals) die_of_library(1);
        exit(0);
    }
    set_service();
    llm_options_report(&options, server.engine);
    __atomic_store_n(&server.ready, 1, __ATOMIC_RELEASE);
    say_ready();
    return engine_main(NULL);
}

static void add_listener(int fd, void *tag) {
    struct epoll_event ev;
    ev.events = EPOLLIN;
    ev.data.ptr = tag;
    epoll_ctl(net.epoll, EPOLL_CTL_ADD, fd, &ev);
}

/* What epoll says about a connection. */
static void conn_event(conn *c, uint32_t events) {
    if (events & (EPOLLERR | EPOLLHUP)) {
        conn_close(c);
        return;
    }
    if ((events & (EPOLLIN | EPOLLRDHUP)) && !conn_read(c)) {
        conn_close(c);
        return;
    }
    if ((events & EPOLLOUT) && c->call && c->streaming) call_news(c, 0); /* there may be room for more of the stream */
    conn_settle(c);
}

/* Is anything still being answered or sent? */
static int streams_left(void) {
    for (conn *c = net.list; c; c = c->next)
        if (c->call || c->out_at < c->out.len) return 1;
    return 0;
}

/* Sockets, news of calls, the clock. Returns when a shutdown is complete or its time is up. */
static void event_loop(int listener, int metrics) {
    static char tag_listen, tag_metrics, tag_wake;
    double sweep = 0, leave_at = 0, drain_until = 0;
    add_listener(listener, &tag_listen);
    if (metrics >= 0) add_listener(metrics, &tag_metrics);
    add_listener(net.wake, &tag_wake);
    for (;;) {
        struct epoll_event ev[256];
        int n = epoll_wait(net.epoll, ev, 256, 250);
        net.now = llm_now();
        int news = 0;
        for (int i = 0; i < n; i++) {
            if (ev[i].data.ptr == &tag_listen || ev[i].data.ptr == &tag_metrics)
                conn_accept(ev[i].data.ptr == &tag_listen ? listener : metrics, ev[i].data.ptr == &tag_metrics);
            else if (ev[i].data.ptr == &tag_wake) news = 1;
            else conn_event((conn *)ev[i].data.ptr, ev[i].events);
        }
        if (news) {
            uint64_t count;
            ssize_t got = read(net.wake, &count, sizeof count);
            (void)got;
        }
        calls_news();
        if (server.hangups) {
            server.hangups = 0;
            if (server.cfg.log_file && !log_open()) server_log(LLM_LOG_ERROR, "--log-file: %s: %s", server.cfg.log_file, strerror(errno));
        }
        if (server.signals && !net.leaving) {
            net.leaving = 1;
            leave_at = net.now + server.cfg.drain;
            if (server.cfg.drain > 0) server_log(LLM_LOG_INFO, "shutting down in %g s: /health says 503", (double)server.cfg.drain);
        }
        if (net.leaving && !net.draining && (net.now >= leave_at || server.signals > 1)) {
            net.draining = 1;
            drain_until = net.now + server.cfg.shutdown_timeout;
            close(listener);
            server_log(LLM_LOG_INFO, "shutting down: finishing what runs");
        }
        if (net.draining && (server.signals > 1 || net.now > drain_until || !streams_left())) return;
        if (net.now - sweep > 0.25) {
            sweep = net.now;
            conn_sweep();
            watch_step();
        }
    }
}

/* The socket is bound before the model is loaded: a port in use is told at once, and /health answers from the start. */
int main(int argc, char **argv) {
    pthread_t loader, worker[64];
    server.launched = llm_now();
    read_options(argc, argv);
    configuration *c = &server.cfg;
    if (c->log_file && !log_open()) die(1, "--log-file: %.300s: %s", c->log_file, strerror(errno));
    server.started = (double)time(NULL);
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
    /* From here on sockets: first our own means, then signals, then what listens, then the threads. */
    net.epoll = epoll_create1(EPOLL_CLOEXEC);
    net.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    net.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    signal(SIGTERM, on_signal);
    signal(SIGHUP, on_signal);
    signal(SIGINT, on_signal);
    signal(SIGPIPE, SIG_IGN);
    const char *host = c->host ? c->host : "127.0.0.1", *path = c->unix_socket;
    if (!path && strlen(host) > 5 && !strcmp(host + strlen(host) - 5, ".sock")) path = host;
    int listener = path ? listen_unix(path) : listen_tcp(host, c->port, 1);
    int metrics = llm_options_given(&options, "metrics-port") && c->metrics_port != c->port
                      ? listen_tcp(path ? "127.0.0.1" : host, c->metrics_port, 0)
                      : -1;
    if (!path && !server.loopback && !c->keys.n)
        server_log(LLM_LOG_WARN, "%s is open to everybody who reaches this machine: --api-key KEY lets in only who knows it", server.bound);
    pthread_create(&loader, NULL, load_main, NULL);
    for (int i = 0; i < c->n_workers; i++) pthread_create(&worker[i], NULL, worker_main, NULL);
    event_loop(listener, metrics);
    /* The end, in the order of who uses whom: connections and their calls, then workers and engine, then what they worked on. */
    for (conn *k = net.list, *next; k; k = next) {
        next = k->next;
        conn_close(k);
    }
    pthread_mutex_lock(&queue.mutex);
    __atomic_store_n(&queue.stop, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&queue.work_ready);
    pthread_mutex_unlock(&queue.mutex);
    if (!is_ready()) _exit(0); /* still loading: nothing to save */
    pthread_join(loader, NULL);
    for (int i = 0; i < c->n_workers; i++) pthread_join(worker[i], NULL);
    calls_news();
    llm_engine_close(server.engine);
    llm_model_close(server.model);
    if (path) unlink(path);
    llm_options_free(&options);
    llm_setup_free(&c->setup);
    return 0;
}
