/* llm_cli.c - the command line of llm.h: chat, generate, tokenize, score, measure.
 *
 * It uses the public part of llm.h only, so it is an example of it too. Read from the bottom: main, the table of commands, then
 * the cli_cmd_* function of a command. One table of options (cli_table) serves the command line, LLM_ARG_* in the environment,
 * a config file and /set in a chat. Sections: messages and output, options, the model and its engine, answers, text
 * conversions, score, batch, info, bench, load test, line editor, conversation, main.
 *
 * Answers and JSON go to standard output, everything else to standard error. Exit 0 done, 1 failed, 2 usage, 130 interrupted;
 * a failure ends with one line "llm_cli: error: what: value, what was expected". */
#define _GNU_SOURCE
#include "llm.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define CLI_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define CLI_NEW(type, n) ((type *)cli_alloc((size_t)(n), sizeof(type)))
#define CLI_MAX_INPUT ((size_t)64 << 20) /* a prompt of more bytes fits no context */

/* ---------------------------------------------------------------------------
 * Messages and output. A function that can fail returns 0 and leaves the reason in cli_why; the command decides whether that ends the
 * program (cli_die) or only a line of a batch or chat. What is quoted may be hostile: control characters are shown as \xNN, and a
 * message is one line.
 * --------------------------------------------------------------------------- */

static volatile sig_atomic_t cli_interrupts; /* SIGINTs so far */
static char cli_why[700];                    /* why the latest cli_bad refused something */
static llm_text cli_notes;                   /* lines that wait until the work has begun, so that an error stands alone */

/* Ends the program with the error line. */
#define cli_die(code, ...) (cli_say("llm_cli: error: ", __VA_ARGS__), exit(code))
/* Remembers why something was refused; the value 0 makes "return cli_bad(...)" read as failure. */
#define cli_bad(...) cli_refused(snprintf(cli_why, sizeof cli_why, __VA_ARGS__))

/* Returns 0, whatever was printed. */
static int cli_refused(int printed) {
    (void)printed;
    return 0;
}

/* Appends text in which no terminal finds a command: C0 and C1 controls, DEL and the marks that turn the writing direction become \xNN;
 * newline and tab stay when `lines`. */
static void cli_add_harmless(llm_text *out, const char *s, size_t n, int lines) {
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i], d = i + 1 < n ? (unsigned char)s[i + 1] : 0, e = i + 2 < n ? (unsigned char)s[i + 2] : 0;
        int bidi = c == 0xE2 && ((d == 0x80 && e >= 0xAA && e <= 0xAE) || (d == 0x81 && e >= 0xA6 && e <= 0xA9));
        size_t bad = bidi ? 3 : c == 0xC2 && d >= 0x80 && d < 0xA0 ? 2 : (c < 32 && !(lines && (c == '\n' || c == '\t'))) || c == 127;
        if (!bad) llm_text_add(out, s + i++, 1);
        for (; bad; bad--) {
            char hex[8];
            llm_text_add(out, hex, (size_t)snprintf(hex, sizeof hex, "\\x%02x", (unsigned char)s[i++]));
        }
    }
}

/* One line on standard error. */
static void cli_say(const char *prefix, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void cli_say(const char *prefix, const char *format, ...) {
    char message[1000];
    llm_text t = {0};
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    llm_text_str(&t, prefix);
    cli_add_harmless(&t, message, strlen(message), 0);
    fprintf(stderr, "%s\n", t.data ? t.data : message);
    llm_text_free(&t);
}

/* A remark of the option readers. */
static void cli_note(void *user, const char *line) {
    (void)user;
    llm_text_str(&cli_notes, "llm_cli: note: ");
    cli_add_harmless(&cli_notes, line, strlen(line), 0);
    llm_text_str(&cli_notes, "\n");
}

static void cli_show_notes(void) {
    if (cli_notes.len) fputs(cli_notes.data, stderr);
    llm_text_free(&cli_notes);
}

/* Ends the program with the library's sentence if something failed. An argument out of range is a usage error. */
static void cli_check(llm_result r) {
    if (r != LLM_OK && cli_interrupts) exit(130);
    if (r != LLM_OK) cli_die(r == LLM_ERR_ARG ? 2 : 1, "%s", llm_last_error());
}

/* The same for a call whose failure ends this input only. */
static int cli_try(llm_result r) { return r == LLM_OK || cli_bad("%s", llm_last_error()); }

/* Zeroed memory; without any the program ends. */
static void *cli_alloc(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    if (!p) cli_die(1, "memory: %zu times %zu bytes could not be had", n, size);
    return p;
}

/* A value as messages quote it: at most 60 bytes. Four may be alive at once. */
static const char *cli_clip(const char *value) {
    static char ring[4][80];
    static unsigned at;
    char *s = ring[at++ % 4];
    snprintf(s, 80, strlen(value) > 60 ? "%.57s..." : "%s", value);
    return s;
}

/* Every byte of an answer goes through here; what cannot be written ends the program. */
static void cli_write(const char *s, size_t n) {
    llm_text safe = {0};
    if (isatty(1)) {
        cli_add_harmless(&safe, s, n, 1);
        s = safe.data;
        n = safe.len;
    }
    if ((n && fwrite(s, 1, n, stdout) != n) || fflush(stdout) != 0)
        cli_die(1, "standard output: %s, an open file or pipe was expected", errno == EPIPE ? "closed by its reader" : strerror(errno));
    llm_text_free(&safe);
}

/* Writes and frees. */
static void cli_out(llm_text *t) {
    if (t->failed) cli_die(1, "memory: an answer of %zu bytes did not fit", t->len);
    cli_write(t->data ? t->data : "", t->len);
    llm_text_free(t);
}

/* Appends as printf; JSON is written with llm_text_format. */
static void cli_add(llm_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void cli_add(llm_text *t, const char *format, ...) {
    char piece[1200];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    llm_text_add(t, piece, n < 0 ? 0 : n < (int)sizeof piece ? (size_t)n : sizeof piece - 1);
}

/* Length of the code point at s (at least 1), its value in *cp (-1: a bad byte). */
static size_t cli_utf8(const char *s, size_t n, int32_t *cp) {
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* of a sequence of so many bytes: anything shorter is not minimal */
    unsigned char c = (unsigned char)s[0];
    size_t len = c < 0x80 ? 1 : c >= 0xC2 && c < 0xE0 ? 2 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
    int32_t v = len == 1 ? c : c & (0xFF >> (len + 1));
    *cp = -1;
    if (!len || len > n) return 1;
    for (size_t i = 1; i < len; i++) {
        if (((unsigned char)s[i] & 0xC0) != 0x80) return 1;
        v = v << 6 | (s[i] & 0x3F);
    }
    if (v < least[len] || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000)) return 1;
    *cp = v;
    return len;
}

/* Seconds of a clock that never jumps. */
static double cli_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Waits for more of a descriptor; it does not miss an interrupt that comes just before. */
static void cli_wait_input(int fd) {
    struct pollfd p = {fd, POLLIN, 0};
    for (int waited = 0; poll(&p, 1, 200) <= 0; waited++) {
        if (cli_interrupts) exit(130);
        if (waited == 14 && !isatty(fd)) fputs("llm_cli: waiting for standard input\n", stderr);
    }
}

/* Appends a file, or standard input for "-". 0 with cli_why. */
static int cli_read(const char *path, llm_text *out) {
    char block[65536];
    ssize_t n = 1;
    int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : 0;
    const char *name = fd ? cli_clip(path) : "standard input";
    if (fd < 0) return cli_bad("%s: %s", name, strerror(errno));
    while (n > 0) {
        cli_wait_input(fd);
        n = read(fd, block, sizeof block);
        if (n < 0) return cli_bad("%s: %s", name, strerror(errno));
        llm_text_add(out, block, (size_t)n);
        if (out->len > CLI_MAX_INPUT || out->failed)
            return cli_bad("%s: more than %zu MiB, a text that fits a context was expected", name, CLI_MAX_INPUT >> 20);
    }
    if (fd) close(fd);
    return 1;
}

/* ---------------------------------------------------------------------------
 * Options: one table for the command line, the environment, a config file and /set in a chat. The rows of the library's own
 * structs are the library's (LLM_OPTIONS_*), so both programs spell them alike.
 *
 * A value passes three tests: its row's (type and range, at once), cli_finish (what one value alone cannot show: JSON, lists of
 * ids, UTF-8; before a model is opened, so that a mistake costs no loading), and llm_sampling_check (what needs the vocabulary).
 * What was said is kept apart from what is in force: `given` tells which fields to lay over the model's own defaults, so that
 * an explicit 0 stays 0.
 * --------------------------------------------------------------------------- */

typedef struct cli_options {
    llm_sampling s; /* what was said, to be laid over the model's defaults */
    llm_engine_config e;
    llm_model_config m;
    const char *model, *cuda_library, *config, *prompt, *file, *system, *token_ids, *in, *out, *batch, *url;
    const char *json_schema, *regex, *grammar; /* the form of the answer: at most one; @FILE reads it */
    llm_grammar *form;                         /* compiled, owned */
    const char *early_stop_config, *logit_bias, *template_kwargs, *reasoning_parser, *visible_devices;
    llm_option_list stop, bad_words, stop_ids;
    int32_t log_level, prefix_cache, json, jsonl, add_special, parse_special, skip_special, top_logprobs, logprobs, early_stop;
    int32_t do_preprocess, repetitions, max_concurrency, num_prompts, input_len, output_len;
    float request_rate;
    unsigned char given[128]; /* by index of cli_table: the source that set it */
    llm_options by_name;      /* fills in this struct */
    int32_t *ids;             /* parsed forms of the lists above, owned */
    llm_logit_bias *bias;
} cli_options;

enum { CLI_MODEL, CLI_SAMPLING, CLI_IO, CLI_BENCH }; /* groups of the help; -1: not listed */

#define AT(field) offsetof(cli_options, field)
#define MAX_INT 2147483647.0
#define TEXT LLM_OPTION_TEXT
#define INT LLM_OPTION_INT
#define BOOL LLM_OPTION_BOOL
#define LIST LLM_OPTION_LIST

/* clang-format off */
static const llm_option cli_table[] = {
    {"m|model", TEXT, CLI_MODEL, AT(model), 0, 0, "PATH", "GGUF file, folder, or ORG/NAME in the Hugging Face cache"},
    LLM_OPTIONS_MODEL(cli_options, m, CLI_MODEL),
    LLM_OPTIONS_ENGINE(cli_options, e, CLI_MODEL),
    {"cuda-library|$LLM_CUDA_LIBRARY", TEXT, CLI_MODEL, AT(cuda_library), 0, 0, "PATH", "libllm_cuda.so (beside this program)"},
    {"log-level", LLM_OPTION_ENUM, CLI_MODEL, AT(log_level), 0, 0, "error|warn=1|warning=1|info=2|debug=3",
     "what is told on standard error (warn)"},

    LLM_OPTIONS_SAMPLING(cli_options, s, CLI_SAMPLING),
    {"use-beam-search", BOOL, CLI_SAMPLING, AT(s.use_beam_search), 0, 0, NULL, "the likeliest answers of --best-of beams, with --temp 0"},
    {"length-penalty", LLM_OPTION_FLOAT, CLI_SAMPLING, AT(s.length_penalty), -100, 100, "X", "of a beam's score (1)"},
    {"stop|stop-words", LIST, CLI_SAMPLING, AT(stop), 0, 0, "TEXT", "ends the answer; may be repeated"},
    {"stop-token-ids", LIST, CLI_SAMPLING, AT(stop_ids), 0, 0, "IDS", "ids that end the answer: 1,2 or [1,2]"},
    {"bad-words", LIST, CLI_SAMPLING, AT(bad_words), 0, 0, "TEXT", "must not appear; may be repeated"},
    {"logit-bias", TEXT, CLI_SAMPLING, AT(logit_bias), 0, 0, "JSON", "{\"id\": -100 to 100, ...} added to the logits"},
    {"json-schema|guided-json", TEXT, CLI_SAMPLING, AT(json_schema), 0, 0, "JSON|@FILE", "the answer is JSON that keeps this schema"},
    {"regex|guided-regex", TEXT, CLI_SAMPLING, AT(regex), 0, 0, "REGEX|@FILE", "the answer matches it from end to end"},
    {"grammar|guided-grammar", TEXT, CLI_SAMPLING, AT(grammar), 0, 0, "GBNF|@FILE", "the answer follows its rule root"},
    {"enable-early-stop", BOOL, CLI_SAMPLING, AT(early_stop), 0, 0, NULL, "end an answer that repeats itself"},
    {"early-stop-config", TEXT, CLI_SAMPLING, AT(early_stop_config), 0, 0, "JSON",
     "{\"enable_early_stop\", \"strategy\", \"window_size\", \"threshold\"}"},
    {"skip-special-tokens", BOOL, CLI_SAMPLING, AT(skip_special), 0, 0, NULL, "--no-: special tokens appear in the text"},

    {"p|prompt", TEXT, CLI_IO, AT(prompt), 0, 0, "TEXT", "the prompt; bench: number of prompt tokens (512)"},
    {"f|file", TEXT, CLI_IO, AT(file), 0, 0, "FILE", "the prompt from a file; -: standard input"},
    {"token-ids", TEXT, CLI_IO, AT(token_ids), 0, 0, "IDS", "the prompt as ids: '[1,2]'"},
    {"sys|system|system-prompt", TEXT, CLI_IO, AT(system), 0, 0, "TEXT", "system message of a chat"},
    {"chat-template-kwargs", TEXT, CLI_IO, AT(template_kwargs), 0, 0, "JSON", "template variables: '{\"enable_thinking\": false}'"},
    {"reasoning-parser", TEXT, CLI_IO, AT(reasoning_parser), 0, 0, "NAME", "how reasoning is marked (as the template says)"},
    {"json", BOOL, CLI_IO, AT(json), 0, 0, NULL, "the result as JSON"},
    {"jsonl", BOOL, CLI_IO, AT(jsonl), 0, 0, NULL, "one JSON value a line, in and out"},
    {"add-special", BOOL, CLI_IO, AT(add_special), 0, 0, NULL, "tokenize: BOS and EOS as the model says"},
    {"parse-special", BOOL, CLI_IO, AT(parse_special), 0, 0, NULL, "tokenize: text may become special tokens"},
    {"logprobs", INT, CLI_IO, AT(logprobs), 0, MAX_INT - 1, "N", "log-probabilities of each token and the N likeliest"},
    {"top-logprobs", INT, CLI_IO, AT(top_logprobs), 0, MAX_INT, "K", "score: the K likeliest at each place"},
    {"i|input", TEXT, CLI_IO, AT(in), 0, 0, "FILE", "batch: requests, one JSON object a line"},
    {"o|output-file", TEXT, CLI_IO, AT(out), 0, 0, "FILE", "batch: answers"},
    {"config", TEXT, CLI_IO, AT(config), 0, 0, "FILE", "JSON object of options by name"},

    {"b|batch", TEXT, CLI_BENCH, AT(batch), 0, 0, "LIST", "sequences decoded together: 1,8,16 (1)"},
    {"r|repetitions", INT, CLI_BENCH, AT(repetitions), 1, 1000, "N", "times each test runs (5)"},
    {"url", TEXT, CLI_BENCH, AT(url), 0, 0, "URL", "load test of a server: http://127.0.0.1:8180"},
    {"request-rate", LLM_OPTION_FLOAT, CLI_BENCH, AT(request_rate), 1e-3, 1e6, "X", "requests a second, Poisson (all at once)"},
    {"max-concurrency", INT, CLI_BENCH, AT(max_concurrency), 1, 1024, "N", "requests in flight at most (64)"},
    {"num-prompts", INT, CLI_BENCH, AT(num_prompts), 1, 1e6, "N", "requests in all (64)"},
    {"random-input-len", INT, CLI_BENCH, AT(input_len), 1, 1e6, "N", "prompt tokens (128)"},
    {"random-output-len", INT, CLI_BENCH, AT(output_len), 1, 1e6, "N", "answer tokens (64)"},

    {"do-preprocess", BOOL, -1, AT(do_preprocess), 0, 0, NULL, NULL},
    {"enable-prefix-caching|cache-prompt", BOOL, -1, AT(prefix_cache), 0, 0, NULL, NULL},
    {"$ASCEND_RT_VISIBLE_DEVICES", TEXT, -1, AT(visible_devices), 0, 0, NULL, NULL},
    {"host|port|metrics-port|api-key|model-name|served-model-name|a|alias|$VLLM_ENGINE_ITERATION_TIMEOUT_S",
     LLM_OPTION_IGNORED, -1, 0, 0, 0, NULL, "it belongs to llm_serve"},
    LLM_OPTIONS_FOREIGN,
};
/* clang-format on */

static void cli_options_init(cli_options *o) {
    o->logprobs = -1;
    o->skip_special = o->do_preprocess = o->prefix_cache = 1;
    o->log_level = LLM_LOG_WARN;
    o->by_name.table = cli_table;
    o->by_name.n = CLI_COUNT(cli_table);
    o->by_name.target = o;
    o->by_name.given = o->given;
    o->by_name.note = cli_note;
}

/* Was this option said anywhere? Its value may equal the default. */
static int cli_given(const cli_options *o, const char *name) {
    return o->given[llm_options_find(&o->by_name, name, strlen(name)) - cli_table];
}

/* Reads a whole number in a range to its end. */
static int cli_whole(const char *text, int64_t low, int64_t high, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return *text && !isspace((unsigned char)*text) && !*end && !errno && *out >= low && *out <= high;
}

/* Appends the ids of "[1,2]" or "1,2". */
static int cli_parse_ids(const char *said, const char *text, llm_tokens *out) {
    llm_text list = {0};
    llm_json *doc = NULL;
    int64_t id;
    llm_text_format(&list, text[strspn(text, " \t\r\n")] == '[' ? "%s" : "[%s]", text);
    int ok = llm_json_parse(list.data ? list.data : "", list.len, NULL, &doc) == LLM_OK && llm_json_type_of(doc, 0) == LLM_JSON_ARRAY;
    for (int i = ok ? llm_json_first(doc, 0) : -1; ok && i >= 0; i = llm_json_next(doc, i)) {
        ok = llm_json_int(doc, i, &id) && id >= 0 && id <= INT32_MAX;
        if (ok) llm_tokens_add(out, (int32_t)id);
    }
    llm_json_free(doc);
    llm_text_free(&list);
    return ok && !out->failed ? 1 : cli_bad("%s: %s, token ids as '[1,2]' were expected", said, cli_clip(text));
}

/* --logit-bias into o->bias. Values are clamped to +-100, as in vLLM. */
static int cli_parse_logit_bias(cli_options *o) {
    const char *text = o->logit_bias ? o->logit_bias : "{}";
    llm_json *doc = NULL;
    int64_t id = 0;
    double bias = 0;
    int ok = llm_json_parse(text, strlen(text), NULL, &doc) == LLM_OK && llm_json_type_of(doc, 0) == LLM_JSON_OBJECT;
    free(o->bias);
    o->s.logit_bias = o->bias = CLI_NEW(llm_logit_bias, llm_json_size(doc, 0));
    o->s.n_logit_bias = 0;
    for (int i = ok ? llm_json_first(doc, 0) : -1; ok && i >= 0; i = llm_json_next(doc, i)) {
        llm_logit_bias *b = &o->bias[o->s.n_logit_bias++];
        ok = cli_whole(llm_json_key(doc, i, NULL), 0, INT32_MAX, &id) && llm_json_num(doc, i, &bias);
        b->id = (int32_t)id;
        b->bias = (float)(bias > 100 ? 100 : bias < -100 ? -100 : bias);
    }
    llm_json_free(doc);
    return ok ? 1 : cli_bad("--logit-bias: %s, a JSON object {\"id\": bias} was expected", cli_clip(text));
}

/* What one value alone cannot show: early stop, logit bias, lists of ids, names, UTF-8. 0 with cli_why. */
static int cli_finish(cli_options *o) {
    llm_tokens ids = {0};
    char have[120], want[40];
    const char *texts[] = {o->prompt ? o->prompt : "", o->system ? o->system : ""};
    int32_t cp = 0;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0, n = strlen(texts[t]); i < n;) {
            i += cli_utf8(texts[t] + i, n - i, &cp);
            if (cp < 0) return cli_bad("%s: not UTF-8, UTF-8 text was expected", t ? "--system" : "-p, --prompt");
        }
    for (int i = 0; i < o->stop_ids.n; i++)
        if (!cli_parse_ids("--stop-token-ids", o->stop_ids.items[i], &ids)) return 0;
    for (int i = 0; i < o->stop.n; i++)
        if (!*o->stop.items[i]) return cli_bad("--stop: an empty text, at least one character was expected");
    free(o->ids);
    o->ids = ids.data;
    if (o->reasoning_parser && llm_reasoning_named(o->reasoning_parser) < 0)
        return cli_bad("--reasoning-parser: %s, a name as qwen3, deepseek_r1 or none was expected", cli_clip(o->reasoning_parser));
    snprintf(have, sizeof have, " %s ", llm_isa_list());
    snprintf(want, sizeof want, " %s ", o->e.isa ? o->e.isa : "scalar");
    if (!strstr(have, want)) return cli_bad("--isa: %s, this CPU has: %s", cli_clip(o->e.isa), llm_isa_list());
    if (!o->early_stop_config && o->early_stop) o->early_stop_config = "{\"enable_early_stop\": true}";
    if (o->early_stop_config && !cli_try(llm_early_stop_parse(o->early_stop_config, o->early_stop, &o->s.early_stop))) return 0;
    o->s.stop_token_ids = ids.data, o->s.n_stop_token_ids = (int32_t)ids.len;
    o->s.stop = o->stop.items, o->s.n_stop = o->stop.n;
    o->s.bad_words = o->bad_words.items, o->s.n_bad_words = o->bad_words.n;
    return cli_parse_logit_bias(o);
}

/* The model's own defaults and what was said over them, so that an explicit 0 stays 0. */
static void cli_overlay(const cli_options *o, llm_sampling *s) {
    llm_options_sampling(&o->by_name, AT(s), s);
    s->stop = o->s.stop, s->n_stop = o->s.n_stop;
    s->bad_words = o->s.bad_words, s->n_bad_words = o->s.n_bad_words;
    s->stop_token_ids = o->s.stop_token_ids, s->n_stop_token_ids = o->s.n_stop_token_ids;
    s->logit_bias = o->s.logit_bias, s->n_logit_bias = o->s.n_logit_bias;
    if (o->early_stop_config) s->early_stop = o->s.early_stop;
    s->skip_special_tokens_off = !o->skip_special;
    if (o->logprobs >= 0) s->logprobs = o->logprobs + 1;
}

/* --json-schema, --regex or --grammar, compiled for the model, into s. 0 with cli_why. */
static int cli_form(cli_options *o, const llm_model *model, llm_sampling *s) {
    const struct { const char *name, *text; llm_grammar_kind kind; } forms[] = {{"--json-schema", o->json_schema, LLM_GRAMMAR_JSON_SCHEMA},
        {"--regex", o->regex, LLM_GRAMMAR_REGEX}, {"--grammar", o->grammar, LLM_GRAMMAR_GBNF}};
    int ok = 1;
    llm_grammar_close(o->form);
    o->form = NULL;
    for (int i = 0; i < 3 && ok; i++) {
        llm_text text = {0};
        if (!forms[i].text) continue;
        if (o->form) return cli_bad("%s: only one of --json-schema, --regex and --grammar was expected", forms[i].name);
        if (forms[i].text[0] != '@') llm_text_str(&text, forms[i].text);
        else ok = cli_read(forms[i].text + 1, &text);
        llm_grammar_config cfg = {forms[i].kind, text.data ? text.data : "", text.len, NULL, NULL};
        if (ok && llm_grammar_open(model, &cfg, &o->form)) ok = cli_bad("%s: %s", forms[i].name, llm_last_error());
        llm_text_free(&text);
    }
    s->grammar = o->form;
    return ok;
}

/* Sampling of one answer; `max_tokens` unless it was said. 0 with cli_why. */
static int cli_sampling(cli_options *o, const llm_model *model, int32_t max_tokens, llm_sampling *s) {
    llm_sampling_default(model, s);
    s->max_tokens = max_tokens;
    cli_overlay(o, s);
    if (s->max_tokens == 0) return cli_bad("--max-tokens: 0, a whole number from 1, or -1, was expected");
    return cli_form(o, model, s) && cli_try(llm_sampling_check(model, s));
}

/* ---------------------------------------------------------------------------
 * The model and its engine. Memory is taken for what the command needs: one sequence of prompt and answer, or a batch.
 * --------------------------------------------------------------------------- */

typedef struct cli_session { /* what a command works with */
    cli_options *o;
    llm_model *model;
    llm_engine *engine;
    llm_text rendered; /* the latest prompt of a chat, guarded: its end tells whether the thoughts are open */
} cli_session;

/* At the usual level two warnings are enough to say that something is odd. */
static void cli_log(void *user, int level, const char *message) {
    static int warnings;
    int wanted = ((const cli_options *)user)->log_level;
    if (level > wanted || (wanted == LLM_LOG_WARN && level == LLM_LOG_WARN && ++warnings > 2)) return;
    cli_say(level == LLM_LOG_WARN ? "llm_cli: warning: " : "llm_cli: ", "%s", message);
}

/* A line on a terminal when loading takes long enough to wonder; Ctrl-C ends it. */
static int cli_progress(void *user, const char *what, double done) {
    static double begin, shown;
    double now = cli_now();
    (void)user;
    if (begin <= 0) begin = now;
    if (isatty(2) && now - begin > 0.7 && (now - shown > 0.1 || done >= 1)) {
        fprintf(stderr, done < 1 ? "\r%s %3.0f %%\x1b[K" : "\r\x1b[K", what, done * 100);
        shown = now;
    }
    return cli_interrupts > 0;
}

/* Folder of this program, with a slash at its end; "" if unknown. */
static const char *cli_program_folder(void) {
    static char path[4000];
    ssize_t n = path[0] ? 0 : readlink("/proc/self/exe", path, sizeof path - 1);
    if (n > 0) path[n] = 0, *(strrchr(path, '/') + 1) = 0;
    return path;
}

/* vocab_only: tokenizer and template; then a --tokenizer alone will do. */
static void cli_open_model(cli_session *c, int vocab_only) {
    llm_model_config cfg = c->o->m;
    llm_text path = {0};
    cfg.vocab_only = vocab_only;
    cfg.log = cli_log;
    cfg.log_user = c->o;
    cfg.progress = cli_progress;
    if (vocab_only && !c->o->model && cfg.tokenizer) llm_text_str(&path, cfg.tokenizer);
    else if (llm_model_find(c->o->model, cli_program_folder(), getenv, &path) != LLM_OK)
        cli_die(1, "%s%s%s", c->o->model ? cli_clip(c->o->model) : "", c->o->model ? ": " : "", llm_last_error());
    cli_check(llm_model_open(path.data, &cfg, &c->model));
    llm_text_free(&path);
    cli_show_notes();
}

/* libllm_cuda.so where it is asked for, or there; NULL: the CPU. */
static const llm_backend *cli_backend(const cli_session *c) {
    const llm_backend *backend = NULL;
    char path[4200];
    const char *device = c->o->e.device ? c->o->e.device : "auto";
    snprintf(path, sizeof path, "%slibllm_cuda.so", cli_program_folder());
    if (c->o->cuda_library) snprintf(path, sizeof path, "%.4000s", c->o->cuda_library);
    if (!strcmp(device, "cpu") || (!strcmp(device, "auto") && !c->o->cuda_library && access(path, R_OK))) return NULL;
    llm_result r = llm_backend_load(path, &backend);
    if (r != LLM_OK && (!strcmp(device, "cuda") || c->o->cuda_library)) cli_check(r);
    if (r != LLM_OK) cli_log(c->o, LLM_LOG_WARN, llm_last_error());
    return backend;
}

/* Opens an engine for `seqs` sequences of at most `need` tokens (0: all that the model can): memory is taken for these only. */
static void cli_open_engine(cli_session *c, int64_t need, int32_t seqs) {
    llm_engine_config cfg = c->o->e;
    int32_t own = llm_model_get_info(c->model)->max_model_len;
    cfg.backend = cli_backend(c);
    if (need > 0 && (!cfg.max_model_len || need < cfg.max_model_len) && (own <= 0 || cfg.max_model_len <= own))
        cfg.max_model_len = (int32_t)need;
    cfg.max_num_seqs = seqs;
    cfg.disable_prefix_caching = !c->o->prefix_cache;
    cfg.log = cli_log;
    cfg.log_user = c->o;
    cfg.progress = cli_progress;
    cli_check(llm_engine_open(c->model, &cfg, &c->engine));
}

/* Tokens that a sequence may have: --max-model-len, else the model's own; 0: no limit. */
static int32_t cli_limit(const cli_session *c) {
    int32_t own = llm_model_get_info(c->model)->max_model_len, said = c->o->e.max_model_len;
    return said && (own <= 0 || said < own || c->o->e.allow_long_max_model_len) ? said : own;
}

/* Tokens that this sequence needs. A prompt that leaves no room for an answer is told with both numbers. */
static int64_t cli_need(const cli_session *c, size_t n_prompt, int32_t max_tokens) {
    int32_t limit = cli_limit(c);
    if (n_prompt == 0) cli_die(2, "prompt: 0 tokens, at least one was expected");
    if (limit > 0 && n_prompt >= (size_t)limit)
        cli_die(1, "prompt: %zu tokens, the context has %d and the answer needs one", n_prompt, limit);
    return max_tokens < 0 || (limit > 0 && (int64_t)n_prompt + max_tokens > limit) ? limit : (int64_t)n_prompt + max_tokens;
}

/* ---------------------------------------------------------------------------
 * Answers: one request from begin to end, shown as it comes or written as JSON; the commands generate and chat (of one answer).
 *
 *   text or messages --> ids --> llm_request_submit --> llm_engine_step, llm_request_poll, again ... --> llm_request_output
 *
 * The loop is the whole of what a program needs to do: this thread steps the engine, and between steps takes what is new.
 * A chat's messages become a prompt by the model's own template, as in the server (llm_openai_render).
 * --------------------------------------------------------------------------- */

/* Begins to split the answer to the latest rendered prompt into thoughts and answer; without a chat all is answer. */
static void cli_reasoning(const cli_session *c, llm_reasoning *r) {
    int kind = c->o->reasoning_parser ? llm_reasoning_named(c->o->reasoning_parser)
                                      : (int)llm_reasoning_detect(llm_model_get_info(c->model)->chat_template);
    if (!c->rendered.len) kind = LLM_REASONING_NONE;
    llm_reasoning_begin(r, (llm_reasoning_kind)kind, c->rendered.data, c->rendered.len);
}

/* Thoughts are dim and for people only: in a pipe there is the answer alone. `dim` says whether they are being shown. */
static void cli_show(const llm_event *event, llm_reasoning *r, int color, int *dim) {
    llm_text thoughts = {0}, answer = {0};
    llm_reasoning_push(r, event->text, event->text_len, &thoughts, &answer);
    if (event->finish) llm_reasoning_end(r, &thoughts, &answer);
    if (thoughts.len && isatty(1)) {
        if (!*dim) fputs(color ? "\x1b[2m" : "", stdout);
        *dim = 1;
        cli_write(thoughts.data, thoughts.len);
    }
    if (*dim && (answer.len || event->finish)) {
        fputs(color ? "\x1b[0m\n" : "\n", stdout);
        *dim = 0;
    }
    if (answer.len) cli_write(answer.data, answer.len);
    llm_text_free(&thoughts);
    llm_text_free(&answer);
}

/* Colours where a person looks, unless NO_COLOR (no-color.org) or the terminal says otherwise. */
static int cli_color(int fd) {
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fd) && !(no_color && *no_color) && !(term && !strcmp(term, "dumb"));
}

/* Runs one request to its end; `shown`: its text goes out as it comes. A first Ctrl-C ends the answer; 1 if that happened. */
static int cli_run(cli_session *c, llm_request *request, int shown) {
    int cancelled = 0, dim = 0, color = cli_color(1);
    llm_event event;
    llm_reasoning reasoning;
    cli_reasoning(c, &reasoning);
    while (!llm_request_done(request)) {
        if (cli_interrupts && !cancelled++) llm_request_cancel(request);
        cli_check(llm_engine_step(c->engine, NULL));
        while (llm_request_poll(request, &event)) {
            if (event.finish == LLM_FINISH_ERROR)
                cli_die(1, "%s", llm_request_error(request) ? llm_request_error(request) : "the request failed");
            if (shown) cli_show(&event, &reasoning, color, &dim);
        }
    }
    return cancelled > 0;
}

/* "[prompt 31 tokens, 410.2 tok/s | answer 52 tokens, 190.1 tok/s | first token 0.08 s]" */
static void cli_show_speed(const llm_request *request) {
    llm_request_metrics m;
    llm_output out;
    llm_request_get_metrics(request, &m);
    if (llm_request_output(request, 0, &out) != LLM_OK || m.first_token_time <= 0) return;
    double first = m.first_token_time - m.inference_start_time, rest = m.finish_time - m.first_token_time;
    fprintf(stderr, "[prompt %d tokens", m.n_prompt_tokens);
    if (m.n_cached_tokens) fprintf(stderr, " (%d cached)", m.n_cached_tokens);
    fprintf(stderr, ", %.1f tok/s | answer %zu tokens", first > 0 ? (m.n_prompt_tokens - m.n_cached_tokens) / first : 0, out.n_token_ids);
    if (out.n_token_ids > 1 && rest > 0) fprintf(stderr, ", %.1f tok/s", (double)(out.n_token_ids - 1) / rest);
    fprintf(stderr, " | first token %.2f s]\n", m.first_token_time - m.arrival_time);
    if (out.finish == LLM_FINISH_LENGTH) fprintf(stderr, "[cut after %zu tokens; max-tokens allows more]\n", out.n_token_ids);
}

/* The object of --json: the parts are those of /v1/completions; a chat has its thoughts apart too. */
static void cli_add_answer(llm_text *t, const cli_session *c, const llm_request *request, int32_t index) {
    llm_output out;
    llm_request_metrics m;
    size_t n;
    const int32_t *prompt = llm_request_prompt(request, &n);
    cli_check(llm_request_output(request, index, &out));
    llm_request_get_metrics(request, &m);
    llm_text_format(t, "{'index': %d, 'text': %Q, 'token_ids': %i, ", index, out.text, out.text_len, out.token_ids, out.n_token_ids);
    if (c->rendered.len) {
        llm_text thoughts = {0}, answer = {0};
        llm_reasoning r;
        cli_reasoning(c, &r);
        llm_reasoning_push(&r, out.text, out.text_len, &thoughts, &answer);
        llm_reasoning_end(&r, &thoughts, &answer);
        if (r.kind != LLM_REASONING_NONE) llm_text_format(t, "'reasoning_content': %Q, ", thoughts.data, thoughts.len);
        llm_text_format(t, "'content': %Q, ", answer.data, answer.len);
        llm_text_free(&thoughts);
        llm_text_free(&answer);
    }
    llm_openai_finish(t, &out, llm_text_chars(out.text, out.text_len));
    llm_text_format(t, ", 'seed': %l, 'prompt_token_ids': %i, ", llm_request_seed(request), prompt, n);
    llm_openai_usage(t, m.n_prompt_tokens, (int64_t)out.n_token_ids, m.n_cached_tokens, 0);
    llm_text_str(t, ", ");
    llm_openai_metrics(t, request);
    llm_text_str(t, ", \"logprobs\": ");
    if (c->o->logprobs >= 0) llm_openai_logprobs(t, c->model, &out, c->o->logprobs);
    else llm_text_str(t, "null");
    llm_text_str(t, "}\n");
}

/* Runs the prompt and prints the answer: streaming, or each answer when all are there. Returns the exit status. */
static int cli_answer(cli_session *c, const llm_tokens *ids, int32_t max_tokens) {
    llm_request_config cfg = {0};
    llm_request *request = NULL;
    llm_text t = {0};
    llm_output out;
    if (!cli_sampling(c->o, c->model, max_tokens, &cfg.sampling)) cli_die(2, "%s", cli_why);
    int32_t n = cfg.sampling.n > 1 ? cfg.sampling.n : 1, width = cfg.sampling.best_of > n ? cfg.sampling.best_of : n;
    int streaming = !c->o->json && width == 1;
    cli_open_engine(c, cli_need(c, ids->len, cfg.sampling.max_tokens), width);
    if (c->o->json && !cfg.sampling.logprobs) cfg.sampling.logprobs = 1; /* for cum_log_probs */
    cfg.prompt_ids = ids->data;
    cfg.n_prompt_ids = ids->len;
    cli_check(llm_request_submit(c->engine, &cfg, &request));
    int cancelled = cli_run(c, request, streaming);
    for (int32_t i = 0; i < n && !cancelled; i++) {
        cli_check(llm_request_output(request, i, &out));
        if (c->o->json) cli_add_answer(&t, c, request, i);
        else if (!streaming) llm_text_format(&t, "%s\n", out.text);
        else if (isatty(1) || (out.text_len && out.text[out.text_len - 1] != '\n')) llm_text_str(&t, "\n");
    }
    cli_out(&t);
    if (streaming && isatty(2)) cli_show_speed(request);
    llm_request_free(request);
    return cancelled ? 130 : 0;
}

/* The text to work on: -p, -f or standard input. */
static void cli_input(const cli_options *o, llm_text *text) {
    if (o->prompt && o->file) cli_die(2, "--file: %s, but --prompt is given too; one of them was expected", cli_clip(o->file));
    if (!o->prompt && !o->file && isatty(0)) cli_die(2, "no prompt: give -p TEXT, -f FILE, --token-ids '[1,2]', or text on standard input");
    if (o->prompt) llm_text_str(text, o->prompt);
    else if (!cli_read(o->file ? o->file : "-", text)) cli_die(1, "%s", cli_why);
    llm_text_add(text, "", 0);
}

/* Opens the model; ids of --token-ids as they are, of a text with BOS as the model says. */
static void cli_prompt_ids(cli_session *c, int chop, llm_tokens *ids) {
    const cli_options *o = c->o;
    llm_text text = {0};
    if (o->token_ids && (o->prompt || o->file)) cli_die(2, "--token-ids: given beside --prompt or --file, one of them was expected");
    if (o->token_ids && !cli_parse_ids("--token-ids", o->token_ids, ids)) cli_die(2, "%s", cli_why);
    if (!o->token_ids) cli_input(o, &text);
    if (chop && !o->prompt && !o->file && text.len && text.data[text.len - 1] == '\n') text.len--; /* of echo */
    cli_open_model(c, 0);
    if (!o->token_ids) cli_check(llm_tokenize(c->model, text.data, text.len, LLM_TOK_ADD_SPECIAL | LLM_TOK_PARSE_SPECIAL, ids));
    llm_text_free(&text);
}

/* The newline that echo puts behind a piped prompt is not part of it. */
static int cli_cmd_generate(cli_session *c) {
    llm_tokens ids = {0};
    cli_prompt_ids(c, 1, &ids);
    int code = cli_answer(c, &ids, 256);
    llm_tokens_free(&ids);
    return code;
}

/* Appends a message to the elements of a JSON array. */
static void cli_add_message(llm_text *messages, const char *role, const char *text, size_t n) {
    llm_text_format(messages, messages->len ? ", {'role': %q, 'content': %Q}" : "{'role': %q, 'content': %Q}", role, text, n);
}

/* Messages through the model's template: c->rendered and its ids. 0 with cli_why. */
static int cli_chat_ids(cli_session *c, const llm_text *messages, llm_tokens *ids) {
    const char *kwargs = c->o->template_kwargs ? c->o->template_kwargs : "{}";
    llm_openai_service service;
    llm_text body = {0};
    llm_json *doc = NULL;
    if (llm_json_parse(kwargs, strlen(kwargs), NULL, &doc) != LLM_OK || llm_json_type_of(doc, 0) != LLM_JSON_OBJECT)
        return cli_bad("--chat-template-kwargs: %s, a JSON object was expected", cli_clip(kwargs));
    llm_json_free(doc);
    llm_openai_service_init(&service, c->model, NULL);
    llm_text_format(&body, "{'messages': [%s], 'chat_template_kwargs': ", messages->data ? messages->data : "");
    llm_text_format(&body, "%s}", kwargs);
    int ok = cli_try(llm_json_parse(body.data, body.len, NULL, &doc));
    llm_text_free(&c->rendered);
    ok = ok && cli_try(llm_openai_render(&service, doc, &c->rendered));
    llm_text_add(&c->rendered, "", 0);
    ok = ok && cli_try(llm_tokenize(c->model, c->rendered.data, c->rendered.len, LLM_TOK_PARSE_SPECIAL | LLM_TOK_GUARDED, ids));
    llm_json_free(doc);
    llm_text_free(&body);
    return ok;
}

static int cli_interactive(cli_session *c);

/* The prompt: -p or -f, and what stands on standard input; at a terminal without either a conversation. */
static int cli_cmd_chat(cli_session *c) {
    const cli_options *o = c->o;
    llm_text text = {0}, piped = {0}, messages = {0};
    llm_tokens ids = {0};
    struct stat st;
    int said = o->prompt || o->file;
    if (o->token_ids) cli_die(2, "--token-ids: a chat takes text, use generate");
    if (!said && isatty(0)) return cli_interactive(c);
    if (said) cli_input(o, &text);
    int more =
        !fstat(0, &st) && (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) && !(o->file && !strcmp(o->file, "-"));
    if (more && !cli_read("-", &piped)) cli_die(1, "%s", cli_why);
    while (piped.len && (piped.data[piped.len - 1] == '\n' || piped.data[piped.len - 1] == '\r')) piped.len--;
    if (text.len && piped.len) llm_text_str(&text, "\n");
    llm_text_format(&text, "%t", &piped);
    if (!text.len) cli_die(2, "no prompt: give -p TEXT, -f FILE, or text on standard input");
    cli_open_model(c, 0);
    if (o->system) cli_add_message(&messages, "system", o->system, strlen(o->system));
    cli_add_message(&messages, "user", text.data, text.len);
    if (!o->do_preprocess) cli_check(llm_tokenize(c->model, text.data, text.len, LLM_TOK_ADD_SPECIAL | LLM_TOK_PARSE_SPECIAL, &ids));
    else if (!cli_chat_ids(c, &messages, &ids)) cli_die(1, "%s", cli_why);
    int code = cli_answer(c, &ids, 2048);
    llm_text_free(&text);
    llm_text_free(&messages);
    llm_tokens_free(&ids);
    return code;
}

/* ---------------------------------------------------------------------------
 * tokenize, detokenize, render: one text in, one text out, or many as lines (--jsonl). Only the tokenizer and the template are
 * opened, no weights. With --jsonl an output line follows each input line at once, so that another program may drive this one
 * through two pipes and ask as it goes.
 * --------------------------------------------------------------------------- */

/* One input to its output. 0 with cli_why. */
typedef int (*cli_convert_fn)(cli_session *c, const char *in, size_t n, llm_text *out);

/* A text, or with --jsonl a JSON string, to a JSON array of ids. */
static int cli_tokenize(cli_session *c, const char *in, size_t n, llm_text *out) {
    int flags = (c->o->add_special ? LLM_TOK_ADD_SPECIAL : 0) | (c->o->parse_special ? LLM_TOK_PARSE_SPECIAL : 0);
    llm_tokens ids = {0};
    llm_json *doc = NULL;
    if (c->o->jsonl) in = llm_json_parse(in, n, NULL, &doc) == LLM_OK ? llm_json_str(doc, 0, &n) : NULL;
    int ok = in ? cli_try(llm_tokenize(c->model, in, n, flags, &ids)) : cli_bad("a JSON string was expected");
    llm_text_format(out, "%i", ids.data, ids.len);
    llm_json_free(doc);
    llm_tokens_free(&ids);
    return ok;
}

/* An array of ids to their text, special tokens shown, or with --jsonl to a JSON string. */
static int cli_detokenize(cli_session *c, const char *in, size_t n, llm_text *out) {
    llm_tokens ids = {0};
    llm_text text = {0};
    int ok = (n == strlen(in) && cli_parse_ids("input", in, &ids)) || cli_bad("an array of token ids was expected");
    ok = ok && cli_try(llm_detokenize(c->model, ids.data, ids.len, LLM_DETOK_KEEP_SPECIAL, &text));
    if (c->o->jsonl) llm_text_format(out, "%Q", text.data, text.len), llm_text_free(&text);
    else llm_text_format(out, "%t", &text);
    llm_tokens_free(&ids);
    return ok;
}

static llm_template *cli_template; /* of render --chat-template */

/* Seconds since 1970 of "YYYY-MM-DD HH:MM:SS" or a number; 0: neither. */
static int cli_parse_time(const llm_json *doc, int node, int64_t *out) {
    struct tm tm = {0};
    const char *text = llm_json_str(doc, node, NULL);
    if (!text) return llm_json_int(doc, node, out);
    if (sscanf(text, "%4d-%2d-%2d%*1[ T]%2d:%2d:%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec) < 3)
        return 0;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *out = (int64_t)timegm(&tm);
    return 1;
}

/* The context's members are the template's variables; `now` stands for the clock. With --jsonl an error is an answer
 * too. */
static int cli_render(cli_session *c, const char *in, size_t n, llm_text *out) {
    llm_render_options how = {0};
    llm_json *doc = NULL;
    llm_text text = {0};
    int ok = cli_try(llm_json_parse(in, n, NULL, &doc)), now = llm_json_find(doc, 0, "now");
    if (ok && llm_json_type_of(doc, 0) != LLM_JSON_OBJECT) ok = cli_bad("a JSON object {\"messages\": ...} was expected");
    if (ok && now >= 0 && !cli_parse_time(doc, now, &how.now))
        ok = cli_bad("now: seconds since 1970 or \"YYYY-MM-DD HH:MM:SS\" were expected");
    if (ok) ok = cli_try(cli_template ? llm_template_render(cli_template, doc, &how, &text) : llm_render(c->model, doc, &how, &text));
    if (c->o->jsonl && ok) llm_text_format(out, "{'text': %Q}", text.data, text.len);
    if (c->o->jsonl && !ok) llm_text_format(out, "{'error': %q}", cli_why);
    if (!c->o->jsonl) llm_text_add(out, text.data, text.len);
    llm_json_free(doc);
    llm_text_free(&text);
    return ok || c->o->jsonl;
}

/* Converts the whole input, or each of its lines; a bad line is told by its number. Returns the exit status. */
static int cli_convert(cli_session *c, cli_convert_fn fn, const char *end) {
    llm_text text = {0}, out = {0};
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    if (!c->o->jsonl) {
        cli_input(c->o, &text);
        if (!fn(c, text.data, text.len, &out)) cli_die(1, "%s", cli_why);
        llm_text_str(&out, end);
        cli_out(&out);
        llm_text_free(&text);
        return 0;
    }
    for (long number = 1; !cli_interrupts && (n = getline(&line, &cap, stdin)) >= 0; number++) {
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
        if (!fn(c, line, (size_t)n, &out)) cli_die(1, "standard input, line %ld: %s", number, cli_why);
        llm_text_str(&out, "\n");
        cli_out(&out);
    }
    free(line);
    if (ferror(stdin) && !cli_interrupts) cli_die(1, "standard input: %s", strerror(errno));
    return cli_interrupts ? 130 : 0;
}

static int cli_cmd_tokenize(cli_session *c) {
    cli_open_model(c, 1);
    return cli_convert(c, cli_tokenize, "\n");
}

static int cli_cmd_detokenize(cli_session *c) {
    cli_open_model(c, 1);
    return cli_convert(c, cli_detokenize, "");
}

/* With a template of its own no model is needed: its text, or the file that has it. */
static int cli_cmd_render(cli_session *c) {
    const char *source = c->o->m.chat_template;
    llm_text text = {0};
    if (!source) cli_open_model(c, 1);
    else if (strchr(source, '{') && access(source, R_OK)) llm_text_str(&text, source);
    else if (!cli_read(source, &text)) cli_die(1, "--chat-template: %s", cli_why);
    if (source && !cli_try(llm_template_open(text.data, text.len, &cli_template))) cli_die(1, "%s: %s", cli_clip(source), cli_why);
    int code = cli_convert(c, cli_render, "");
    llm_template_close(cli_template);
    llm_text_free(&text);
    return code;
}

/* ---------------------------------------------------------------------------
 * score: one request gives both the log-probabilities of the prompt and the first token after it. They are the model's raw ones
 * (log-softmax of the logits), before temperature and penalties: what evaluation harnesses sum up, and what perplexity means.
 * --------------------------------------------------------------------------- */

/* The likelier first, of equal ones the lower id: the order does not depend on the sort. */
static int cli_compare_logprobs(const void *a, const void *b) {
    const llm_token_logprob *x = (const llm_token_logprob *)a, *y = (const llm_token_logprob *)b;
    return x->logprob > y->logprob ? -1 : x->logprob < y->logprob ? 1 : (x->id > y->id) - (x->id < y->id);
}

/* [[id, logprob], ...] of the k most likely of n, best first. */
static void cli_add_top(llm_text *t, const llm_token_logprob *top, int n, int k) {
    llm_token_logprob *sorted = CLI_NEW(llm_token_logprob, n);
    if (n) memcpy(sorted, top, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, cli_compare_logprobs);
    llm_text_str(t, "[");
    for (int i = 0; i < n && i < k; i++) llm_text_format(t, "%s[%d, %f]", i ? ", " : "", sorted[i].id, (double)sorted[i].logprob);
    llm_text_str(t, "]");
    free(sorted);
}

/* perplexity = exp(-mean of the log-probabilities); the first token has none. */
static int cli_cmd_score(cli_session *c) {
    const llm_token_logprob *top = NULL;
    const int32_t *counts = NULL;
    int32_t stride = 0, k = c->o->top_logprobs, json = c->o->json;
    llm_tokens ids = {0};
    llm_request_config cfg = {0};
    llm_request *request = NULL;
    llm_output out;
    llm_text t = {0}, lps = {0}, tops = {0}, next = {0};
    double sum = 0;
    cli_prompt_ids(c, 0, &ids);
    cfg.score_only = ids.len && ids.len == (size_t)cli_limit(c); /* a prompt that fills the context has no next token */
    cfg.sampling.max_tokens = 1;
    cfg.sampling.prompt_logprobs = k + 1;
    cfg.sampling.logprobs = (k ? k : 5) + 1;
    cfg.prompt_ids = ids.data;
    cfg.n_prompt_ids = ids.len;
    cli_open_engine(c, cfg.score_only ? cli_limit(c) : cli_need(c, ids.len, 1), 1);
    cli_check(llm_request_submit(c->engine, &cfg, &request));
    if (cli_run(c, request, 0)) return 130;
    const float *lp = llm_request_prompt_logprobs(request, &top, &counts, &stride);
    if (!lp && ids.len > 1) cli_die(1, "score: the engine gave no log-probabilities");
    for (size_t i = 0; i < ids.len; i++) {
        llm_text piece = {0};
        double x = i ? (double)lp[i] : 0;
        sum += x;
        llm_token_bytes(c->model, ids.data[i], &piece);
        if (!json) cli_add(&t, i ? "%12.6f  %7d  " : "%12.0f  %7d  ", x, ids.data[i]), llm_text_format(&t, "%Q\n", piece.data, piece.len);
        if (json) llm_text_format(&lps, i ? ", %f" : "null", x);
        if (json && k) llm_text_str(&tops, i ? ", " : "null");
        if (json && k && i) cli_add_top(&tops, top + i * (size_t)stride, counts[i], k);
        llm_text_free(&piece);
    }
    double perplexity = ids.len > 1 ? exp(-sum / (double)(ids.len - 1)) : NAN;
    int answered = llm_request_output(request, 0, &out) == LLM_OK && out.top && out.n_token_ids;
    if (json) {
        cli_add_top(&next, answered ? out.top : NULL, answered ? out.top_counts[0] : 0, k ? k : 5);
        llm_text_format(&t, "{'token_ids': %i, 'logprobs': [%t], ", ids.data, ids.len, &lps);
        if (k) llm_text_format(&t, "'top_logprobs': [%t], ", &tops);
        llm_text_format(
            &t, ids.len > 1 ? "'next': %t, 'n_tokens': %d, 'perplexity': %f}\n" : "'next': %t, 'n_tokens': %d, 'perplexity': null}\n",
            &next, (int)ids.len, perplexity);
    } else {
        cli_add(&t, "perplexity %.6g of %zu tokens, log-probability %.6f\n", perplexity, ids.len, sum);
    }
    cli_out(&t);
    llm_request_free(request);
    llm_tokens_free(&ids);
    return 0;
}

/* ---------------------------------------------------------------------------
 * batch: OpenAI batch files. Every line is a call of >>openai, as in the server. A window of lines is in flight, four times what the
 * engine runs together, so that it never waits for the reader; answers leave in the order of the lines.
 * --------------------------------------------------------------------------- */

typedef struct cli_job {
    llm_openai_call *call; /* NULL: `line` is the answer already */
    llm_text id, line;     /* custom_id as JSON; the output line */
} cli_job;

/* The answer's line: HTTP status and body, as the batch API has them. Frees the body. */
static void cli_job_end(cli_job *job, int status, const char *request_id, llm_text *body) {
    llm_text_format(&job->line, request_id ? "{'id':'batch_req_%s'," : "{'id':null,", request_id);
    llm_text_format(&job->line, "'custom_id':%s,'response':{'status_code':%d,'request_id':%q,'body':%t},'error':null}\n",
                    job->id.len ? job->id.data : "null", status, request_id, body);
    llm_openai_free(job->call);
    job->call = NULL;
}

/* A line that is no request of ours: its answer is an error object. */
static void cli_job_refuse(cli_job *job, int status, const char *why) {
    llm_text body = {0};
    llm_openai_error(&body, status, why, NULL, NULL);
    cli_job_end(job, status, NULL, &body);
}

/* Writes the line of a job that has come to its end. */
static void cli_job_poll(cli_job *job) {
    llm_text body = {0};
    const llm_openai_info *info = llm_openai_get_info(job->call);
    if (llm_openai_next(job->call, &body)) cli_job_end(job, info->status, info->status == 200 ? info->id : NULL, &body);
}

/* Reads a line and submits its body. Whatever is wrong becomes the line's answer; the others go on. */
static void cli_job_start(const llm_openai_service *service, cli_job *job, const char *line, size_t n, long number) {
    llm_json *doc = NULL;
    llm_text text = {0};
    memset(job, 0, sizeof *job);
    /* {"custom_id": ..., "method": "POST", "url": "/v1/chat/completions", "body": {...}} */
    int object = llm_json_parse(line, n, NULL, &doc) == LLM_OK && llm_json_type_of(doc, 0) == LLM_JSON_OBJECT;
    int id = llm_json_find(doc, 0, "custom_id"), body = llm_json_find(doc, 0, "body");
    const char *url = llm_json_str(doc, llm_json_find(doc, 0, "url"), NULL),
               *method = llm_json_str(doc, llm_json_find(doc, 0, "method"), NULL);
    int chat = url && !strcmp(url, "/v1/chat/completions");
    if (id >= 0) llm_json_write(doc, id, &job->id);
    llm_json_write(doc, body, &text);
    if (!object)
        cli_add(&job->line,
                "{\"id\":null,\"custom_id\":null,\"response\":null,\"error\":{\"code\":\"invalid_line\",\"message\":\"line %ld: a JSON "
                "object was expected\"}}\n",
                number);
    else if (llm_json_type_of(doc, body) != LLM_JSON_OBJECT) cli_job_refuse(job, 400, "body: a JSON object was expected");
    else if (method && strcmp(method, "POST")) cli_job_refuse(job, 405, "method: POST was expected");
    else if (!chat && (!url || strcmp(url, "/v1/completions")))
        cli_job_refuse(job, 404, "url: /v1/chat/completions or /v1/completions was expected");
    else if (!(job->call = llm_openai_begin(service, chat ? LLM_OPENAI_CHAT : LLM_OPENAI_COMPLETION, text.data, text.len, NULL)))
        cli_job_refuse(job, 503, "out of memory");
    else if (llm_openai_get_info(job->call)->stream) cli_job_refuse(job, 400, "stream: true, a batch has none");
    else if (!llm_openai_submit(job->call)) cli_job_poll(job);
    llm_text_free(&text);
    llm_json_free(doc);
}

/* Bytes of f16 keys and values of one token. */
static int64_t cli_kv_bytes(const llm_model_info *i) {
    return 4 * (int64_t)i->n_layers * (i->n_kv_heads > 0 ? i->n_kv_heads : 1) * (i->head_dim > 0 ? i->head_dim : 1);
}

/* Opens the engine for a batch: 1 GiB of KV memory unless said otherwise, and no longer a context than fits it. */
static void cli_open_service(cli_session *c, llm_openai_service *service) {
    cli_options *o = c->o;
    const llm_model_info *info = llm_model_get_info(c->model);
    if (!o->e.kv_cache_memory_bytes) o->e.kv_cache_memory_bytes = (int64_t)1 << 30;
    int64_t fits = o->e.kv_cache_memory_bytes / cli_kv_bytes(info) / 64 * 64;
    if (!o->e.max_model_len && (info->max_model_len <= 0 || fits < info->max_model_len))
        o->e.max_model_len = (int32_t)(fits < 1 << 24 ? fits : 1 << 24);
    if (!o->e.max_num_seqs) o->e.max_num_seqs = 16;
    cli_open_engine(c, 0, o->e.max_num_seqs);
    llm_openai_service_init(service, c->model, c->engine);
    cli_overlay(o, &service->defaults);
    if (cli_given(o, "max-tokens")) service->max_tokens = o->s.max_tokens;
    if (o->reasoning_parser) service->reasoning = (llm_reasoning_kind)llm_reasoning_named(o->reasoning_parser);
}

/* The jobs are a ring: lines are read while there is room, answers are written while the oldest is done. */
static int cli_cmd_batch(cli_session *c) {
    const cli_options *o = c->o;
    struct stat a, b;
    llm_openai_service service;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = 0;
    long number = 0, head = 0, tail = 0; /* jobs head to tail - 1 are in flight */
    if (!o->in) cli_die(2, "--input: missing, a file with one request a line was expected (-: standard input)");
    FILE *in = strcmp(o->in, "-") ? fopen(o->in, "re") : stdin, *out = stdout;
    if (!in) cli_die(1, "%s: %s", cli_clip(o->in), strerror(errno));
    if (o->out && strcmp(o->out, "-")) {
        if (!fstat(fileno(in), &a) && !stat(o->out, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev)
            cli_die(2, "--output-file: %s is the input too", cli_clip(o->out));
        if (!(out = fopen(o->out, "we"))) cli_die(1, "%s: %s", cli_clip(o->out), strerror(errno));
    }
    cli_open_model(c, 0);
    cli_open_service(c, &service);
    int32_t window = 4 * o->e.max_num_seqs;
    cli_job *jobs = CLI_NEW(cli_job, window);
    /* Fill the window, run one step for all of it, take what has ended, write what is due: until no line and no job is left. */
    while (n >= 0 || head < tail) {
        while (n >= 0 && tail - head < window && (n = getline(&line, &cap, in)) >= 0) {
            number++;
            if (strspn(line, " \t\r\n") < (size_t)n) cli_job_start(&service, &jobs[tail++ % window], line, (size_t)n, number);
        }
        if (cli_interrupts) return 130;
        cli_check(llm_engine_step(c->engine, NULL));
        for (long i = head; i < tail; i++)
            if (jobs[i % window].call) cli_job_poll(&jobs[i % window]);
        for (; head < tail && !jobs[head % window].call; head++) {
            cli_job *job = &jobs[head % window];
            if (job->line.failed || (out != stdout && (fwrite(job->line.data, 1, job->line.len, out) != job->line.len || fflush(out))))
                cli_die(1, "%s: %s", cli_clip(o->out ? o->out : "answer"), job->line.failed ? "out of memory" : strerror(errno));
            if (out == stdout) cli_out(&job->line);
            llm_text_free(&job->line), llm_text_free(&job->id);
            if (isatty(2) && !isatty(1)) fprintf(stderr, "\rbatch: %ld answered\x1b[K", head + 1);
        }
    }
    if (isatty(2) && !isatty(1)) fputs("\n", stderr);
    if (ferror(in)) cli_die(1, "%s: %s", cli_clip(o->in), strerror(errno));
    if (out != stdout && fclose(out)) cli_die(1, "%s: %s", cli_clip(o->out), strerror(errno));
    free(line);
    free(jobs);
    return 0;
}

/* ---------------------------------------------------------------------------
 * info: what a model file is, and whether it fits in memory with a cache for its whole context: weights as they are in the file,
 * and 2 (keys and values) x layers x heads x size x 2 bytes (f16) for each token of it.
 * --------------------------------------------------------------------------- */

/* A number in a file of the kernel, after a prefix; -1: it is not there. */
static int64_t cli_kernel_number(const char *path, const char *format) {
    char line[200];
    long long value = -1;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f) && sscanf(line, format, &value) != 1) continue;
    if (f) fclose(f);
    return value;
}

/* Bytes of memory that could be had now, the control group's limit counted; -1: unknown. */
static int64_t cli_free_memory(void) {
    int64_t kib = cli_kernel_number("/proc/meminfo", "MemAvailable: %lld"), bytes = kib < 0 ? -1 : kib * 1024;
    int64_t limit = cli_kernel_number("/sys/fs/cgroup/memory.max", "%lld"),
            used = cli_kernel_number("/sys/fs/cgroup/memory.current", "%lld");
    return limit >= 0 && used >= 0 && (bytes < 0 || limit - used < bytes) ? limit - used : bytes;
}

/* Tensor types with their sums: as JSON members, or as a list. */
static void cli_info_types(const cli_session *c, llm_text *t) {
    struct {
        const char *type;
        int64_t count, bytes;
    } sums[64];
    const char *type;
    int64_t bytes;
    int n = 0;
    for (int i = 0, k; i < llm_model_get_info(c->model)->n_tensors; i++) {
        if (llm_model_tensor(c->model, i, NULL, &type, NULL, NULL, &bytes) != LLM_OK) continue;
        for (k = 0; k < n && strcmp(sums[k].type, type);) k++;
        if (k == n && n < CLI_COUNT(sums)) sums[n].type = type, sums[n].count = sums[n].bytes = 0, n++;
        if (k < n) sums[k].count++, sums[k].bytes += bytes;
    }
    for (int k = 0; k < n; k++) {
        llm_text_str(t, k ? ", " : "");
        if (c->o->json) llm_text_format(t, "%q: {'tensors': %l, 'bytes': %l}", sums[k].type, sums[k].count, sums[k].bytes);
        else cli_add(t, "%lld %s (%.2f MiB)", (long long)sums[k].count, sums[k].type, (double)sums[k].bytes / 1048576);
    }
}

static int cli_cmd_info(cli_session *c) {
    cli_open_model(c, 0);
    const llm_model_info *i = llm_model_get_info(c->model);
    int32_t context = cli_limit(c);
    int json = c->o->json;
    int64_t kv = context * cli_kv_bytes(i), have = cli_free_memory();
    const char *fits = have < 0                       ? "null"
                       : i->weight_bytes + kv <= have ? "true"
                                                      : "false",
               *shown = i->chat_template ? i->chat_template : "none";
    llm_text t = {0}, types = {0};
    const struct {
        const char *key, *value;
    } texts[] = {{"path", i->path},     {"format", i->format},       {"architecture", i->architecture},
                 {"family", i->family}, {"file_type", i->file_type}, {"tokenizer", i->tokenizer_kind}};
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"n_params", i->n_params},
                   {"n_layers", i->n_layers},
                   {"hidden_size", i->hidden_size},
                   {"n_heads", i->n_heads},
                   {"n_kv_heads", i->n_kv_heads},
                   {"head_dim", i->head_dim},
                   {"vocab_size", i->vocab_size},
                   {"max_position_embeddings", i->max_position_embeddings},
                   {"sliding_window", i->sliding_window},
                   {"n_experts", i->n_experts},
                   {"n_experts_used", i->n_experts_used},
                   {"bos_id", i->bos_id},
                   {"eos_id", i->eos_id},
                   {"n_tensors", i->n_tensors},
                   {"weight_bytes", i->weight_bytes},
                   {"context", context},
                   {"kv_bytes", kv},
                   {"bytes_needed", i->weight_bytes + kv},
                   {"bytes_available", have}};
    for (int k = 0; k < CLI_COUNT(texts); k++) {
        if (json) llm_text_format(&t, "%s%q: %q", k ? ", " : "{", texts[k].key, texts[k].value);
        else cli_add(&t, "%-24s %s\n", texts[k].key, texts[k].value ? texts[k].value : "none");
    }
    for (int k = 0; k < CLI_COUNT(numbers); k++) {
        if (json) llm_text_format(&t, ", %q: %l", numbers[k].key, numbers[k].value);
        else if (strstr(numbers[k].key, "bytes")) cli_add(&t, "%-24s %.1f MiB\n", numbers[k].key, (double)numbers[k].value / 1048576);
        else cli_add(&t, "%-24s %lld\n", numbers[k].key, (long long)numbers[k].value);
    }
    cli_info_types(c, &types);
    llm_text_format(&t,
                    json ? ", 'fits': %s, 'stop_ids': %i, 'tensor_types': {%t}, "
                         : "fits                     %s\nstop_ids                 %i\ntensor_types             %t\n",
                    fits, i->stop_ids, (size_t)i->n_stop_ids, &types);
    if (json) llm_text_format(&t, "'chat_template': %q}", i->chat_template);
    else llm_text_str(&t, "chat_template            "), cli_add_harmless(&t, shown, strnlen(shown, 100), 0);
    llm_text_str(&t, "\n");
    cli_out(&t);
    return 0;
}

/* ---------------------------------------------------------------------------
 * bench: the forward pass alone. pp: one prompt at position 0; tg: every step adds a token to each of b sequences, the choice of the
 * next (the most likely) counted. read_gb_s is what a step reads of the weights times steps a second; peak_gb_s is what all threads
 * read of 1 GiB of memory in the same run, so that the two can be compared: decoding cannot be faster than memory.
 * --------------------------------------------------------------------------- */

typedef struct cli_reader {
    pthread_t thread;
    pthread_barrier_t *barrier;
    uint64_t *data, sum;
    size_t n;
    double seconds; /* of the fastest pass */
} cli_reader;

/* Reads its part four times, in step with the others. */
static void *cli_read_memory(void *arg) {
    cli_reader *r = (cli_reader *)arg;
    uint64_t sums[16] = {0}; /* sixteen chains of additions: the loads are not waited for */
    for (size_t i = 0; i < r->n; i++) r->data[i] = i; /* the pages are made by the thread that reads them */
    for (int pass = 0; pass < 4; pass++) {
        pthread_barrier_wait(r->barrier);
        double begin = cli_now();
        for (size_t i = 0; i + 16 <= r->n; i += 16)
            for (int k = 0; k < 16; k++) sums[k] += r->data[i + (size_t)k];
        pthread_barrier_wait(r->barrier);
        if (!pass || cli_now() - begin < r->seconds) r->seconds = cli_now() - begin;
    }
    for (int k = 0; k < 16; k++) r->sum += sums[k];
    return NULL;
}

/* GB/s of the best pass over 1 GiB, or 0 where so much memory cannot be had. */
static double cli_peak_bandwidth(int n_threads) {
    size_t bytes = (size_t)1 << 30, words = bytes / 8 / (size_t)n_threads / 16 * 16;
    int64_t have = cli_free_memory();
    pthread_barrier_t barrier;
    if (have >= 0 && have < (int64_t)bytes + (64 << 20)) return 0;
    uint64_t *data = (uint64_t *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return 0;
    cli_reader *readers = CLI_NEW(cli_reader, n_threads);
    madvise((void *)data, bytes, MADV_HUGEPAGE);
    pthread_barrier_init(&barrier, NULL, (unsigned)n_threads);
    for (int i = 0; i < n_threads; i++) {
        cli_reader *r = &readers[i];
        r->barrier = &barrier, r->data = data + words * (size_t)i, r->n = words;
        if (pthread_create(&r->thread, NULL, cli_read_memory, r))
            cli_die(1, "bench: no thread %d of %d could be started", i + 1, n_threads);
    }
    for (int i = 0; i < n_threads; i++) pthread_join(readers[i].thread, NULL);
    double rate = (double)words * 8e-9 * n_threads / readers[0].seconds;
    pthread_barrier_destroy(&barrier);
    munmap((void *)data, bytes);
    free(readers);
    return rate;
}

/* Bytes of weights that a step of one row reads: not the rows of an untied embedding, of the experts those used. */
static double cli_step_bytes(const llm_model *model) {
    const llm_model_info *info = llm_model_get_info(model);
    double total = 0, embedding = 0, share = info->n_experts > 0 ? (double)info->n_experts_used / info->n_experts : 1;
    int head = 0;
    for (int i = 0; i < info->n_tensors; i++) {
        const char *name = NULL;
        int64_t bytes = 0;
        if (llm_model_tensor(model, i, &name, NULL, NULL, NULL, &bytes) != LLM_OK) continue;
        total += (strstr(name, "_exps") || strstr(name, ".experts") ? share : 1) * (double)bytes;
        if (strstr(name, "token_embd.weight") || strstr(name, "embed_tokens.weight") || strstr(name, "wte.weight"))
            embedding += (double)bytes;
        head |= !strcmp(name, "output.weight") || strstr(name, "lm_head.weight");
    }
    return head ? total - embedding : total;
}

typedef struct cli_bench {
    cli_session *c;
    int n_threads, repetitions;
    char isa[40];
    double peak, step_bytes;
    float *logits; /* (sequences, vocab) */
    int32_t vocab;
} cli_bench;

static int cli_compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One test's rates as a row of the table or a line of JSON. */
static void cli_bench_row(const cli_bench *b, const char *test, double *rates, double steps_per_token) {
    llm_text t = {0}, list = {0};
    int n = b->repetitions;
    for (int i = 0; i < n; i++) cli_add(&list, "%s%.3f", i ? ", " : "", rates[i]);
    qsort(rates, (size_t)n, sizeof *rates, cli_compare_doubles);
    double median = (rates[n / 2] + rates[(n - 1) / 2]) / 2, read = median * steps_per_token * b->step_bytes * 1e-9;
    if (b->c->o->json) {
        llm_text_format(&t, "{'test': %q, 'tokens_per_s': [%t], 'median': %f, 'threads': %d, 'isa': %q, 'model': %q, ", test, &list, median,
                        b->n_threads, b->isa, llm_model_get_info(b->c->model)->path);
        llm_text_format(&t, "'read_gb_s': %f, 'peak_gb_s': %f}\n", read, b->peak);
    } else {
        cli_add(&t, "%-10s %10.1f %10.1f %10.1f %9.1f %6.0f %%\n", test, median, rates[0], rates[n - 1], read,
                b->peak > 0 ? 100 * read / b->peak : 0);
    }
    cli_out(&t);
    llm_text_free(&list);
}

/* A token that depends on sequence and position only, none of the first few (which are special in most vocabularies). */
static int32_t cli_synthetic(const cli_bench *b, int seq, int position) {
    uint32_t x = (uint32_t)seq * 2654435761u + (uint32_t)position * 40503u + 12345u;
    x = (x ^ x >> 15) * 2246822519u;
    int32_t n = b->vocab, from = n > 2000 ? 1000 : 0;
    return from + (int32_t)((x ^ x >> 13) % (uint32_t)(n - from));
}

/* `width` sequences: prompt processing of p tokens (width 1), or n decoded tokens each. A first short run warms up. */
static void cli_bench_test(const cli_bench *b, int p, int n, int width) {
    const llm_sampling greedy = {0};
    double *rates = CLI_NEW(double, b->repetitions), begin = 0;
    int32_t *seqs = CLI_NEW(int32_t, 4 * width), *positions = seqs + width, *counts = positions + width, *ids = counts + width;
    int32_t *prompt = CLI_NEW(int32_t, p + 16), rows = b->c->o->e.max_num_batched_tokens ? b->c->o->e.max_num_batched_tokens : 512;
    char test[40];
    for (int r = -1; r < b->repetitions; r++) {
        for (int s = 0; s < width; s++) { /* different prompts; for decoding also of different lengths */
            int len = p ? (r < 0 && p > 64 ? 64 : p) : 1 + s % 16;
            for (int i = 0; i < len; i++) prompt[i] = cli_synthetic(b, p ? r : s, i);
            begin = cli_now();
            cli_check(llm_forward(b->c->engine, s, 0, prompt, len, b->logits, 1));
            if (p && r >= 0) rates[r] = p / (cli_now() - begin);
            ids[s] = llm_sample(b->logits, b->vocab, &greedy, 0, 0);
            seqs[s] = s, positions[s] = len, counts[s] = 1;
        }
        begin = cli_now();
        for (int i = 0; i < (r < 0 && n > 4 ? 4 : n) && !cli_interrupts; i++) {
            cli_check(llm_forward_batch(b->c->engine, width, seqs, positions, counts, ids, b->logits));
            for (int s = 0; s < width; s++) {
                ids[s] = llm_sample(b->logits + (size_t)s * (size_t)b->vocab, b->vocab, &greedy, 0, i);
                positions[s]++;
            }
        }
        if (n && r >= 0) rates[r] = (double)n * width / (cli_now() - begin);
        if (cli_interrupts) exit(130);
    }
    snprintf(test, sizeof test, p ? "pp%d" : width > 1 ? "tg%d@%d" : "tg%d", p ? p : n, width);
    cli_bench_row(b, test, rates, p ? (double)((p + rows - 1) / rows) / p : 1.0 / width);
    free(rates), free(seqs), free(prompt);
}

/* A number of a list or of -p, which is a text for the other commands. */
static int cli_bench_number(const char *flag, const char *text, int low) {
    int64_t n;
    if (!cli_whole(text, low, 1000000, &n)) cli_die(2, "%s: %s, a whole number from %d to 1000000 was expected", flag, cli_clip(text), low);
    return (int)n;
}

static int cli_load_test(cli_session *c);

/* Prepares what all tests share, then runs them in turn. Memory is taken for the widest. */
static int cli_cmd_bench(cli_session *c) {
    cli_options *o = c->o;
    cli_bench b = {0};
    int widths[32], n_widths = 0, most = 1, p = cli_bench_number("--prompt", o->prompt ? o->prompt : "512", 0),
                    n = cli_given(o, "max-tokens") ? o->s.max_tokens : 128;
    char list[200];
    cpu_set_t cpus;
    llm_engine_stats stats;
    if (o->url) return cli_load_test(c);
    snprintf(list, sizeof list, "%s", o->batch ? o->batch : "1");
    for (char *at = NULL, *w = strtok_r(list, ",", &at); w && n_widths < CLI_COUNT(widths); w = strtok_r(NULL, ",", &at)) {
        widths[n_widths] = cli_bench_number("--batch", w, 1);
        if (n && widths[n_widths] > most) most = widths[n_widths];
        n_widths++;
    }
    if (n < 0) cli_die(2, "--max-tokens: %d, a whole number from 0 was expected", n);
    cli_open_model(c, 0);
    b.c = c;
    b.repetitions = o->repetitions ? o->repetitions : 5;
    b.step_bytes = cli_step_bytes(c->model);
    b.n_threads = o->e.n_threads ? o->e.n_threads : sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    b.peak = cli_peak_bandwidth(b.n_threads);
    cli_open_engine(c, (n && n + 32 > p ? n + 32 : p) + 1, most);
    llm_engine_get_stats(c->engine, &stats);
    const char *colon = strstr(stats.backend, ": ");
    snprintf(b.isa, sizeof b.isa, "%.*s", colon ? (int)strcspn(colon + 2, ",") : 0, colon ? colon + 2 : "");
    b.vocab = llm_logits_size(c->engine);
    b.logits = CLI_NEW(float, (size_t)b.vocab *(size_t)most);
    if (!o->json) {
        llm_text t = {0};
        cli_add(&t, "%s, %s; memory reads %.1f GB/s\n", llm_model_get_info(c->model)->path, stats.backend, b.peak);
        cli_add(&t, "%-10s %10s %10s %10s %9s %8s\n", "test", "tokens/s", "slowest", "fastest", "GB/s", "of peak");
        cli_out(&t);
    }
    if (p) cli_bench_test(&b, p, 0, 1);
    for (int i = 0; i < n_widths && n; i++) cli_bench_test(&b, 0, n, widths[i]);
    free(b.logits);
    return 0;
}

/* ---------------------------------------------------------------------------
 * bench --url: a load test over HTTP, one thread a request in flight, streams read as they come. The figures are those of vLLM's
 * bench:
 *
 *   sent ------------ first token - token - ... - last token
 *   |<---- TTFT ---->|        ITL: each of the gaps        |    TPOT = (last - first) / (tokens - 1)
 *   |<------------------------ E2EL ---------------------->|
 *
 * Prompts are lists of ids, so that their length is exact. A stream has one event a token, and a last one with the usage, which
 * tells how many tokens there were.
 * --------------------------------------------------------------------------- */

enum { CLI_TTFT, CLI_TPOT, CLI_ITL, CLI_E2EL, CLI_METRICS };

typedef struct cli_load {
    const cli_options *o;
    char host[256], port[8], path[256], error[160]; /* error: the latest */
    int n, next, input_len, output_len, failed;
    double begin, *start;  /* (n) when each may be sent, seconds after begin */
    double *values[CLI_METRICS];
    int n_values[CLI_METRICS];
    int64_t tokens;
    pthread_mutex_t mutex; /* of what the calls report */
} cli_load;

typedef struct cli_call { /* one request in flight */
    double sent, first, last; /* seconds; first 0: nothing came */
    int tokens, n_gaps;
    double *gaps;    /* (output_len) */
    char error[120]; /* "": it went well */
} cli_call;

/* A blocking socket to the server; -1: nobody answers. */
static int cli_connect(const cli_load *load) {
    struct addrinfo hints = {0}, *list = NULL;
    int fd = -1;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(load->host, load->port, &hints, &list)) return -1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen)) close(fd), fd = -1;
    }
    freeaddrinfo(list);
    return fd;
}

/* One line of an answer: the status, or an event of the stream (an error has no "data:"). The sizes of chunks are lines of their own and
 * mean nothing here. */
static void cli_call_line(const cli_load *load, cli_call *call, const char *line) {
    const char *data = *line == '{' ? line : !strncmp(line, "data:", 5) ? line + 5 + strspn(line + 5, " ") : "";
    int status;
    int64_t tokens;
    llm_json *doc = NULL;
    if (sscanf(line, "HTTP/1.%*d %d", &status) == 1 && status != 200) snprintf(call->error, sizeof call->error, "HTTP status %d", status);
    if (!*data || llm_json_parse(data, strcspn(data, "\r\n"), NULL, &doc) != LLM_OK) return;
    const char *why = llm_json_str(doc, llm_json_find(doc, llm_json_find(doc, 0, "error"), "message"), NULL);
    if (why) snprintf(call->error, sizeof call->error, "%.100s", why);
    if (llm_json_int(doc, llm_json_find(doc, llm_json_find(doc, 0, "usage"), "completion_tokens"), &tokens)) call->tokens = (int)tokens;
    if (llm_json_size(doc, llm_json_find(doc, 0, "choices")) > 0) {
        double now = cli_now();
        if (call->first <= 0) call->first = now;
        else if (call->n_gaps < load->output_len) call->gaps[call->n_gaps++] = now - call->last;
        call->last = now;
    }
    llm_json_free(doc);
}

/* A prompt of synthetic ids, new ones in each run so that no prefix cache helps; then all lines of the answer. */
static void cli_call_run(const cli_load *load, cli_call *call, int index) {
    llm_text body = {0}, out = {0};
    uint32_t salt = (uint32_t)(load->o->s.seed ? load->o->s.seed : (int64_t)(load->begin * 1e3));
    char *line = NULL;
    size_t cap = 0;
    int fd = cli_connect(load);
    FILE *f = fd >= 0 ? fdopen(fd, "r+") : NULL;
    llm_text_format(
        &body,
        "{'model':%q,'stream':true,'stream_options':{'include_usage':true},'temperature':0,'ignore_eos':true,'max_tokens':%d,'prompt':[",
        load->o->model ? load->o->model : "default", load->output_len);
    for (int i = 0; i < load->input_len; i++)
        cli_add(&body, "%s%u", i ? "," : "", 20 + ((uint32_t)index * 7919u + (uint32_t)i * 104729u + salt) % 230u);
    llm_text_str(&body, "]}");
    cli_add(&out,
            "POST %s/v1/completions HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
            "%zu\r\n\r\n",
            load->path, load->host, load->port, body.len);
    llm_text_format(&out, "%t", &body);
    call->sent = cli_now();
    if (!f || fwrite(out.data, 1, out.len, f) != out.len || fflush(f))
        snprintf(call->error, sizeof call->error, "%.80s:%s: no connection", load->host, load->port);
    while (f && getline(&line, &cap, f) >= 0) cli_call_line(load, call, line);
    if (f) fclose(f);
    if (!call->error[0] && call->first <= 0) snprintf(call->error, sizeof call->error, "the answer had no tokens");
    free(line);
    llm_text_free(&out);
}

static void cli_load_value(cli_load *load, int metric, double value) { load->values[metric][load->n_values[metric]++] = value; }

/* One thread: takes the next request, waits for its time, measures it. */
static void *cli_load_worker(void *arg) {
    cli_load *load = (cli_load *)arg;
    for (int i; (i = __atomic_fetch_add(&load->next, 1, __ATOMIC_RELAXED)) < load->n && !cli_interrupts;) {
        cli_call call = {0};
        double wait = load->begin + load->start[i] - cli_now();
        if (wait > 0) usleep((useconds_t)(wait * 1e6));
        call.gaps = CLI_NEW(double, load->output_len);
        cli_call_run(load, &call, i);
        pthread_mutex_lock(&load->mutex);
        if (call.error[0]) {
            load->failed++;
            snprintf(load->error, sizeof load->error, "%s", call.error);
        } else {
            load->tokens += call.tokens;
            cli_load_value(load, CLI_TTFT, call.first - call.sent);
            cli_load_value(load, CLI_E2EL, call.last - call.sent);
            if (call.tokens > 1) cli_load_value(load, CLI_TPOT, (call.last - call.first) / (call.tokens - 1));
            for (int k = 0; k < call.n_gaps; k++) cli_load_value(load, CLI_ITL, call.gaps[k]);
        }
        pthread_mutex_unlock(&load->mutex);
        free(call.gaps);
    }
    return NULL;
}

/* Throughput, then mean, median and P99 of each metric in milliseconds. */
static void cli_load_report(cli_load *load, double seconds) {
    static const char *const names[CLI_METRICS][2] = {{"TTFT", "ttft"}, {"TPOT", "tpot"}, {"ITL", "itl"}, {"E2EL", "e2el"}};
    int done = load->n - load->failed, json = load->o->json;
    double requests = done / seconds, out = (double)load->tokens / seconds, total = out + requests * load->input_len;
    llm_text t = {0};
    if (json)
        llm_text_format(&t,
                        "{'completed': %d, 'failed': %d, 'duration': %f, 'request_throughput': %f, 'output_throughput': %f, "
                        "'total_token_throughput': %f",
                        done, load->failed, seconds, requests, out, total);
    else
        cli_add(&t, "requests %d done, %d failed in %.2f s: %.2f requests/s, %.1f tokens/s out, %.1f in and out\n", done, load->failed,
                seconds, requests, out, total);
    for (int m = 0; m < CLI_METRICS; m++) {
        double *v = load->values[m], sum = 0;
        int n = load->n_values[m];
        qsort(v, (size_t)n, sizeof *v, cli_compare_doubles);
        for (int i = 0; i < n; i++) sum += v[i];
        double mean = n ? sum / n * 1e3 : 0, p50 = n ? v[(n - 1) / 2] * 1e3 : 0, p99 = n ? v[(int)ceil(0.99 * (n - 1))] * 1e3 : 0;
        const char *name = names[m][1];
        if (json) llm_text_format(&t, ", 'mean_%s_ms': %f, 'median_%s_ms': %f, 'p99_%s_ms': %f", name, mean, name, p50, name, p99);
        else cli_add(&t, "%-6s mean %9.2f ms   P50 %9.2f ms   P99 %9.2f ms\n", names[m][0], mean, p50, p99);
    }
    llm_text_str(&t, json ? "}\n" : "");
    cli_out(&t);
}

/* The base URL may end in /v1 or not. Requests start at once, or at random times of the given rate. */
static int cli_load_test(cli_session *c) {
    const cli_options *o = c->o;
    static cli_load load;
    uint64_t x = 88172645463325252u + (uint64_t)o->s.seed;
    int threads = o->max_concurrency ? o->max_concurrency : 64;
    int parts = sscanf(o->url, "http://%255[^:/]:%7[0-9]%255[^?#]", load.host, load.port, load.path);
    if (parts < 2) parts = sscanf(o->url, "http://%255[^:/]%255[^?#]", load.host, load.path), strcpy(load.port, "80");
    if (parts < 1 || load.path[0] == ':') cli_die(2, "--url: %s, http://HOST:PORT was expected", cli_clip(o->url));
    size_t len = strlen(load.path);
    while (len && load.path[len - 1] == '/') load.path[--len] = 0;
    if (len >= 3 && !strcmp(load.path + len - 3, "/v1")) load.path[len - 3] = 0;
    load.o = o;
    load.n = o->num_prompts ? o->num_prompts : 64;
    load.input_len = o->input_len ? o->input_len : 128;
    load.output_len = o->output_len ? o->output_len : 64;
    load.start = CLI_NEW(double, load.n);
    for (int m = 0; m < CLI_METRICS; m++) load.values[m] = CLI_NEW(double, (size_t)load.n *(size_t)(m == CLI_ITL ? load.output_len : 1));
    for (int i = 1; i < load.n && o->request_rate > 0; i++) { /* exponential gaps make a Poisson process */
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        load.start[i] = load.start[i - 1] - log(((double)(x >> 11) + 1) / 9007199254740993.0) / (double)o->request_rate;
    }
    if (threads > load.n) threads = load.n;
    pthread_t *workers = CLI_NEW(pthread_t, threads);
    pthread_mutex_init(&load.mutex, NULL);
    load.begin = cli_now();
    for (int i = 0; i < threads; i++)
        if (pthread_create(&workers[i], NULL, cli_load_worker, &load))
            cli_die(1, "bench: no thread %d of %d could be started", i + 1, threads);
    for (int i = 0; i < threads; i++) pthread_join(workers[i], NULL);
    double seconds = cli_now() - load.begin;
    if (cli_interrupts) return 130;
    if (load.failed < load.n) cli_load_report(&load, seconds);
    if (load.failed) cli_die(1, "--url: %s: %d of %d requests failed: %s", cli_clip(o->url), load.failed, load.n, load.error);
    for (int m = 0; m < CLI_METRICS; m++) free(load.values[m]);
    free(load.start);
    free(workers);
    return 0;
}

/* ---------------------------------------------------------------------------
 * The line editor: raw mode, UTF-8 with display widths, history, bracketed paste. After a key the whole text is laid out and drawn
 * again; the line breaks are written by us, so that nothing depends on how a terminal wraps.
 *
 * The few control sequences that are used (ECMA-48, in every terminal since the VT100): ESC [ n A, cursor up n rows; ESC [ n C, right n
 * columns; ESC [ J, erase to the end; ESC [ H, to the top; ESC [ ? 2004 h, mark pastes with ESC [ 200 ~ and ESC [ 201 ~. The
 * cursor's place is never asked for: `row` remembers how far below the prompt's first row it was left.
 * --------------------------------------------------------------------------- */

enum { CLI_HISTORY = 1000 };
enum { CLI_EDIT_TEXT, CLI_EDIT_END, CLI_EDIT_INTERRUPT }; /* how an edit ended */

typedef struct cli_editor {
    llm_text text;
    size_t cursor; /* byte offset */
    int fd, row;   /* of output; of the cursor as drawn */
    struct termios cooked;
    char *history[CLI_HISTORY];
    int n_history, at;  /* at: n_history is the new line */
    char *fresh, *path; /* the new line while older ones are looked at; file of the history */
} cli_editor;

/* Columns that a code point takes: 0 for combining marks, 2 for wide East Asian characters and emoji. */
static int cli_width(int32_t cp) {
    static const int32_t ranges[][3] = {
        {0, 0x300, 0x36F},     {0, 0x483, 0x489},     {0, 0x591, 0x5BD},    {0, 0x5BF, 0x5C7},   {0, 0x610, 0x61A},   {0, 0x64B, 0x65F},
        {0, 0x6D6, 0x6DC},     {0, 0x6DF, 0x6E4},     {0, 0x900, 0x902},    {0, 0x93A, 0x93C},   {0, 0x941, 0x948},   {0, 0x94D, 0x94D},
        {0, 0xE31, 0xE31},     {0, 0xE34, 0xE3A},     {0, 0xE47, 0xE4E},    {0, 0x1AB0, 0x1AFF}, {0, 0x1DC0, 0x1DFF}, {0, 0x200B, 0x200F},
        {0, 0x2060, 0x2064},   {0, 0x20D0, 0x20FF},   {0, 0x302A, 0x302D},  {0, 0x3099, 0x309A}, {0, 0xFE00, 0xFE0F}, {0, 0xFE20, 0xFE2F},
        {0, 0x1F3FB, 0x1F3FF}, {0, 0xE0100, 0xE01EF}, {2, 0x1100, 0x115F},  {2, 0x231A, 0x231B}, {2, 0x23E9, 0x23EC}, {2, 0x2614, 0x2615},
        {2, 0x26A1, 0x26A1},   {2, 0x2705, 0x2705},   {2, 0x2728, 0x2728},  {2, 0x2E80, 0x303E}, {2, 0x3041, 0xA4CF}, {2, 0xA960, 0xA97C},
        {2, 0xAC00, 0xD7A3},   {2, 0xF900, 0xFAFF},   {2, 0xFE30, 0xFE6F},  {2, 0xFF00, 0xFF60}, {2, 0xFFE0, 0xFFE6}, {2, 0x1F300, 0x1F64F},
        {2, 0x1F680, 0x1F6FF}, {2, 0x1F900, 0x1FAFF}, {2, 0x20000, 0x3FFFD}};
    for (int i = 0; i < CLI_COUNT(ranges); i++)
        if (cp >= ranges[i][1] && cp <= ranges[i][2]) return ranges[i][0];
    return 1;
}

/* Editing must not be buffered, or a key would show late. */
static void cli_tty_write(const cli_editor *e, const char *s, size_t n) {
    for (ssize_t w; n; s += w > 0 ? w : 0, n -= w > 0 ? (size_t)w : 0) {
        w = write(e->fd, s, n);
        if (w < 0 && errno != EINTR && errno != EAGAIN) cli_die(1, "terminal: %s", strerror(errno));
    }
}

/* raw: keys come one by one; signals: Ctrl-C interrupts instead of being a key. */
static void cli_tty_mode(const cli_editor *e, int raw, int signals) {
    struct termios t = e->cooked;
    if (raw) {
        t.c_iflag &= ~(tcflag_t)(ICRNL | IXON | ISTRIP | INPCK | BRKINT);
        t.c_lflag &= ~(tcflag_t)(ECHO | ICANON | IEXTEN | (signals ? 0 : ISIG));
        t.c_cc[VMIN] = 1, t.c_cc[VTIME] = 0;
    }
    tcsetattr(0, TCSADRAIN, &t);
}

/* The place behind the character at `at`, with the marks on it. */
static size_t cli_edit_next(const cli_editor *e, size_t at) {
    int32_t cp = 'a';
    for (size_t begin = at, n = 0; at < e->text.len; at += n) {
        n = cli_utf8(e->text.data + at, e->text.len - at, &cp);
        if (at > begin && (cp < 0 || cli_width(cp))) break;
    }
    return at;
}

/* The place before the character that ends at `at`. UTF-8 could be walked backwards, marks not. */
static size_t cli_edit_back(const cli_editor *e, size_t at) {
    size_t begin = 0;
    for (size_t next; (next = cli_edit_next(e, begin)) < at;) begin = next;
    return begin;
}

/* Over blanks, then over a word. */
static size_t cli_edit_word(const cli_editor *e, size_t at, int forward) {
    const unsigned char *s = (const unsigned char *)e->text.data;
    for (int word = 0; word < 2; word++) {
        while (forward && at < e->text.len && (isspace(s[at]) == 0) == word) at++;
        while (!forward && at && (isspace(s[at - 1]) == 0) == word) at--;
    }
    return at;
}

/* Puts n bytes where from to `to` were; the cursor stands behind them. */
static void cli_edit_replace(cli_editor *e, size_t from, size_t to, const char *s, size_t n) {
    llm_text t = {0};
    llm_text_add(&t, e->text.data, from);
    llm_text_add(&t, s, n);
    llm_text_add(&t, e->text.data + to, e->text.len - to);
    llm_text_free(&e->text);
    e->text = t;
    e->cursor = from + n;
}

/* Draws prompt and text with the cursor in its place; of a text taller than the screen the part around the cursor. */
static void cli_edit_draw(cli_editor *e, const char *prompt, int final) {
    struct winsize size = {0};
    llm_text lines = {0}, out = {0};
    int cursor_row = 0, cursor_col = 0, row = 0, col = (int)strlen(prompt);
    /* First lay out all rows and find the cursor's, then draw those that the screen has room for. */
    if (ioctl(e->fd, TIOCGWINSZ, &size) || size.ws_col < 8) size.ws_col = 80, size.ws_row = 24;
    llm_text_str(&lines, prompt);
    for (size_t i = 0;;) {
        int32_t cp = ' ';
        size_t n = i < e->text.len ? cli_utf8(e->text.data + i, e->text.len - i, &cp) : 0;
        int control = cp < 32 || (cp >= 127 && cp < 160), w = control ? cp != '\n' : cli_width(cp);
        if (col + w > size.ws_col) llm_text_str(&lines, "\n"), row++, col = 0;
        if (i == e->cursor) cursor_row = row, cursor_col = col;
        if (!n) break;
        if (cp == '\n') llm_text_str(&lines, "\n  "), row++, col = 2;
        else llm_text_add(&lines, control ? "?" : e->text.data + i, control ? 1 : n), col += w;
        i += n;
    }
    int height = size.ws_row > 1 ? size.ws_row : 1, top = cursor_row - height / 2, r = 0; /* rows top to last are shown */
    if (top + height > row + 1) top = row + 1 - height;
    if (top < 0) top = 0;
    int last = row < top + height - 1 ? row : top + height - 1;
    if (e->row) cli_add(&out, "\x1b[%dA", e->row);
    llm_text_str(&out, "\r\x1b[J");
    for (size_t i = 0; i < lines.len; i++) {
        if (lines.data[i] == '\n') llm_text_str(&out, r >= top && r < last ? "\r\n" : ""), r++;
        else if (r >= top && r <= last) llm_text_add(&out, lines.data + i, 1);
    }
    if (!final && last > cursor_row) cli_add(&out, "\x1b[%dA", last - cursor_row);
    if (final) llm_text_str(&out, "\r\n");
    else cli_add(&out, cursor_col ? "\r\x1b[%dC" : "\r", cursor_col);
    cli_tty_write(e, out.data, out.len);
    e->row = final ? 0 : cursor_row - top;
    llm_text_free(&lines);
    llm_text_free(&out);
}

/* Next byte of the terminal: -1 at its end, -2 when a signal came, -3 when wait_ms passed. */
static int cli_key_byte(int wait_ms) {
    unsigned char c;
    struct pollfd p = {0, POLLIN, 0};
    int ready = poll(&p, 1, wait_ms);
    if (ready <= 0) return ready ? -2 : -3;
    ssize_t n = read(0, &c, 1);
    return n == 1 ? c : n < 0 && errno == EINTR ? -2 : -1;
}

/* Takes a paste up to its end mark, carriage returns as newlines. */
static void cli_edit_paste(cli_editor *e) {
    llm_text t = {0};
    size_t n = 0;
    for (int c, end = 0; !end && ((c = cli_key_byte(2000)) >= 0 || c == -2);) {
        char b = (char)c;
        if (c >= 0 && t.len < CLI_MAX_INPUT) llm_text_add(&t, &b, 1);
        if (t.len >= 6 && !memcmp(t.data + t.len - 6, "\x1b[201~", 6)) end = 1, t.len -= 6;
    }
    for (size_t i = 0, crlf; i < t.len; i += 1 + crlf) {
        crlf = t.data[i] == '\r' && i + 1 < t.len && t.data[i + 1] == '\n';
        t.data[n++] = t.data[i] == '\r' ? '\n' : t.data[i];
    }
    cli_edit_replace(e, e->cursor, e->cursor, t.data, n);
    llm_text_free(&t);
}

/* Shows an older or newer line; the new one is kept while older ones are looked at. */
static void cli_edit_history(cli_editor *e, int step) {
    int at = e->at + step;
    if (at < 0 || at > e->n_history) return;
    if (e->at == e->n_history) free(e->fresh), e->fresh = strdup(e->text.data);
    e->at = at;
    const char *line = at == e->n_history ? e->fresh : e->history[at];
    cli_edit_replace(e, 0, e->text.len, line ? line : "", line ? strlen(line) : 0);
}

/* Keys that begin with ESC become the control keys of cli_edit_key; what has none is done here. */
static int cli_edit_escape(cli_editor *e) {
    static const struct { const char *keys; int control; } table[] = {{"A", 16}, {"B", 14}, {"C", 6}, {"D", 2}, {"H1~7~", 1}, {"F4~8~", 5}};
    char seq[24] = {0};
    int n = 0, c = cli_key_byte(50);
    if (c == '\r' || c == '\n') cli_edit_replace(e, e->cursor, e->cursor, "\n", 1);
    if (c == 'd') cli_edit_replace(e, e->cursor, cli_edit_word(e, e->cursor, 1), "", 0);
    if (c == 'b' || c == 'f') e->cursor = cli_edit_word(e, e->cursor, c == 'f');
    if (c == 127) return 23;
    if (c != '[' && c != 'O') return 0;
    for (c = 0; n < 20 && c < 64 && (c = cli_key_byte(50)) >= 0;) seq[n++] = (char)c;
    if (!strcmp(seq, "200~")) cli_edit_paste(e);
    if (!strcmp(seq, "3~")) cli_edit_replace(e, e->cursor, cli_edit_next(e, e->cursor), "", 0);
    if (strchr(seq, ';') && (c == 'C' || c == 'D'))
        return e->cursor = cli_edit_word(e, e->cursor, c == 'C'), 0; /* with shift, alt or control */
    for (int i = 0; i < CLI_COUNT(table); i++)
        if (n && strstr(table[i].keys, seq)) return table[i].control;
    return 0;
}

/* One key. Returns -1 to go on, else how the edit ended. */
static int cli_edit_key(cli_editor *e, int c) {
    char s[4] = {(char)c};
    int n = 1, want = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    int32_t cp;
    if (c == 27) c = cli_edit_escape(e);
    if (c == 4 && !e->text.len) return CLI_EDIT_END;
    switch (c) { /* control keys as in Emacs and readline */
    case 0: break;
    case 1: e->cursor = 0; break;
    case 2: e->cursor = cli_edit_back(e, e->cursor); break;
    case 3: return CLI_EDIT_INTERRUPT;
    case 4: cli_edit_replace(e, e->cursor, cli_edit_next(e, e->cursor), "", 0); break;
    case 5: e->cursor = e->text.len; break;
    case 6: e->cursor = cli_edit_next(e, e->cursor); break;
    case 8: case 127: cli_edit_replace(e, cli_edit_back(e, e->cursor), e->cursor, "", 0); break;
    case 11: cli_edit_replace(e, e->cursor, e->text.len, "", 0); break;
    case 12: cli_tty_write(e, "\x1b[H\x1b[2J", 7), e->row = 0; break;
    case '\r': case '\n': return CLI_EDIT_TEXT;
    case 14: cli_edit_history(e, 1); break;
    case 16: cli_edit_history(e, -1); break;
    case 21: cli_edit_replace(e, 0, e->cursor, "", 0); break;
    case 23: cli_edit_replace(e, cli_edit_word(e, e->cursor, 0), e->cursor, "", 0); break;
    case 26:
        cli_tty_mode(e, 0, 0);
        raise(SIGTSTP);
        cli_tty_mode(e, 1, 0);
        break;
    default: /* text: the rest of its code point follows */
        for (int b; n < want && (b = cli_key_byte(100)) >= 0;) s[n++] = (char)b;
        cli_utf8(s, (size_t)n, &cp);
        if (cp >= 32 || cp == '\t') cli_edit_replace(e, e->cursor, e->cursor, s, (size_t)n);
    }
    return -1;
}

/* Reads one message into e->text. */
static int cli_edit(cli_editor *e, const char *prompt) {
    int end = -1;
    struct pollfd more = {0, POLLIN, 0};
    llm_text_free(&e->text);
    llm_text_add(&e->text, "", 0);
    e->cursor = 0, e->row = 0, e->at = e->n_history;
    cli_tty_mode(e, 1, 0);
    cli_tty_write(e, "\x1b[?2004h", 8); /* pastes come between marks from now on */
    cli_edit_draw(e, prompt, 0);
    while (end < 0) {
        int c = cli_key_byte(-1);
        if (c == -1) end = CLI_EDIT_END;
        else if (c >= 0) end = cli_edit_key(e, c);
        if (end >= 0) e->cursor = e->text.len;
        if (end >= 0 || c == -2 || poll(&more, 1, 0) == 0) cli_edit_draw(e, prompt, end >= 0); /* not for each byte of a burst */
    }
    cli_tty_write(e, "\x1b[?2004l", 8);
    cli_tty_mode(e, 0, 0);
    return end;
}

/* Adds a line to the history and, as a JSON string, to its file (NULL: none). The oldest goes when it is full. */
static void cli_history_add(cli_editor *e, const char *line, FILE *file) {
    llm_text t = {0};
    if (e->n_history && !strcmp(e->history[e->n_history - 1], line)) return;
    if (e->n_history == CLI_HISTORY) {
        free(e->history[0]);
        memmove(e->history, e->history + 1, sizeof e->history - sizeof e->history[0]);
        e->n_history--;
    }
    e->history[e->n_history++] = strdup(line);
    llm_text_format(&t, "%q\n", line);
    if (file) fputs(t.data, file);
    llm_text_free(&t);
}

/* Reads $XDG_STATE_HOME/llm_cli/history, one JSON string a line, and makes its folder. */
static void cli_history_open(cli_editor *e) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char path[4300], *line = NULL;
    size_t cap = 0;
    if (state && *state == '/') snprintf(path, sizeof path, "%.4000s/llm_cli/history", state);
    else snprintf(path, sizeof path, "%.4000s/.local/state/llm_cli/history", home ? home : "");
    for (char *slash = path + 1; (slash = strchr(slash, '/')); *slash++ = '/') *slash = 0, mkdir(path, 0700);
    e->path = strdup(path);
    FILE *f = fopen(path, "re");
    for (ssize_t n; f && (n = getline(&line, &cap, f)) >= 0;) {
        llm_json *doc = NULL;
        if (llm_json_parse(line, (size_t)n, NULL, &doc) == LLM_OK && llm_json_str(doc, 0, NULL))
            cli_history_add(e, llm_json_str(doc, 0, NULL), NULL);
        llm_json_free(doc);
    }
    if (f) fclose(f);
    free(line);
}

/* Appends to the file; one grown to 4 MiB begins anew, for nobody looks that far back. */
static void cli_history_save(cli_editor *e, const char *line) {
    struct stat st;
    int big = !stat(e->path, &st) && st.st_size > 4 << 20,
        fd = open(e->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (big ? O_TRUNC : 0), 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "a") : NULL;
    cli_history_add(e, line, f);
    if (f) fclose(f);
}

/* ---------------------------------------------------------------------------
 * The conversation at a terminal. The messages are kept as JSON text, just as the template, /save and /load want them: a message
 * is added by appending, and taken back by cutting. Each turn renders and submits the whole conversation; the engine's prefix
 * cache knows all but the latest words of it.
 * --------------------------------------------------------------------------- */

typedef struct cli_talk {
    cli_session *c;
    cli_editor e;
    llm_text messages; /* elements of an array: {...}, {...} */
    size_t asked;      /* their length up to and with the latest user message; 0: nothing was asked */
    int n, color;      /* n: messages */
} cli_talk;

/* Adds a message; where the latest question ends is remembered for /regen. */
static void cli_talk_push(cli_talk *k, const char *role, const char *text, size_t n) {
    cli_add_message(&k->messages, role, text, n);
    k->n++;
    if (!strcmp(role, "user")) k->asked = k->messages.len;
}

/* Forgets all but the system message. */
static void cli_talk_reset(cli_talk *k) {
    const char *system = k->c->o->system;
    llm_text_free(&k->messages);
    k->asked = 0;
    k->n = 0;
    if (system && *system) cli_talk_push(k, "system", system, strlen(system));
}

/* Answers the last message. 0: it could not be, and cli_why was told. */
static int cli_talk_answer(cli_talk *k) {
    llm_request_config cfg = {0};
    llm_request *request = NULL;
    llm_tokens ids = {0};
    llm_output out;
    int ok = cli_sampling(k->c->o, k->c->model, 2048, &cfg.sampling) && cli_chat_ids(k->c, &k->messages, &ids);
    cfg.sampling.n = cfg.sampling.best_of = 1;
    cfg.prompt_ids = ids.data;
    cfg.n_prompt_ids = ids.len;
    ok = ok && cli_try(llm_request_submit(k->c->engine, &cfg, &request));
    if (ok) {
        cli_tty_mode(&k->e, 1, 1); /* keys pressed now are for the next message; Ctrl-C is a signal */
        int cancelled = cli_run(k->c, request, 1);
        cli_tty_mode(&k->e, 0, 0);
        cli_check(llm_request_output(request, 0, &out));
        cli_write("\n", 1);
        fputs(cancelled ? "[stopped]\n" : "", stderr);
        fputs(k->color ? "\x1b[2m" : "", stderr);
        cli_show_speed(request);
        fputs(k->color ? "\x1b[0m" : "", stderr);
        cli_talk_push(k, "assistant", out.text, out.text_len);
    } else {
        cli_say("llm_cli: ", "%s", cli_why);
    }
    cli_interrupts = 0;
    llm_request_free(request);
    llm_tokens_free(&ids);
    return ok;
}

/* A new message; one that cannot be answered is taken back. */
static void cli_talk_ask(cli_talk *k, const char *text, size_t n) {
    size_t before = k->messages.len, asked = k->asked;
    cli_talk_push(k, "user", text, n);
    if (cli_talk_answer(k)) return;
    k->messages.data[k->messages.len = before] = 0;
    k->asked = asked;
    k->n--;
}

/* Cuts behind the latest user message and answers it again. */
static void cli_talk_regen(cli_talk *k) {
    if (!k->asked) {
        fputs("nothing was asked yet\n", stderr);
        return;
    }
    k->n -= k->messages.len > k->asked;
    k->messages.data[k->messages.len = k->asked] = 0;
    cli_talk_answer(k);
}

/* The conversation as {"messages": [...]}, which /load and the chat API read. */
static void cli_talk_save(const cli_talk *k, const char *path) {
    FILE *f = fopen(path, "we");
    int ok = f && fprintf(f, "{\"messages\": [%s]}\n", k->messages.data ? k->messages.data : "") > 0;
    if (f && fclose(f)) ok = 0;
    cli_say("", ok ? "%d messages saved" : "%d messages not saved: %s", k->n, strerror(errno));
}

/* What is no message with a role and a text is left out. A file that cannot be read changes nothing. */
static void cli_talk_load(cli_talk *k, const char *path) {
    llm_json *doc = NULL;
    llm_text t = {0};
    size_t n;
    if (!cli_read(path, &t) ||
        (llm_json_parse(t.data, t.len, NULL, &doc) != LLM_OK && !cli_bad("%s: %s", cli_clip(path), llm_last_error()))) {
        cli_say("llm_cli: ", "%s", cli_why);
    } else {
        llm_text_free(&k->messages);
        k->asked = 0;
        k->n = 0;
        for (int m = llm_json_first(doc, llm_json_find(doc, 0, "messages")); m >= 0; m = llm_json_next(doc, m)) {
            const char *role = llm_json_str(doc, llm_json_find(doc, m, "role"), NULL),
                       *text = llm_json_str(doc, llm_json_find(doc, m, "content"), &n);
            if (role && text) cli_talk_push(k, role, text, n);
        }
        cli_say("", "%d messages loaded", k->n);
    }
    llm_json_free(doc);
    llm_text_free(&t);
}

/* /set NAME VALUE: the sampling options by the names of the command line, and the system message. What is wrong changes nothing. */
static void cli_talk_set(cli_talk *k, char *rest) {
    cli_options *o = k->c->o, before;
    size_t n = strcspn(rest, " =");
    const char *value = rest + n + strspn(rest + n, " =");
    const llm_option *opt = llm_options_find(&o->by_name, rest, n);
    llm_sampling check;
    llm_json *doc = NULL;
    llm_text t = {0};
    rest[n] = 0;
    if (!opt || !*value || !(opt->group == CLI_SAMPLING || opt->at == AT(system) || opt->at == AT(template_kwargs))) {
        fputs("/set NAME VALUE; names are those of the sampling options, system, chat-template-kwargs\n", stderr);
        return;
    }
    if (opt->kind == LIST) ((llm_option_list *)(void *)((char *)o + opt->at))->n = 0;
    before = *o;
    llm_text_format(&t, "{%q: %q}", rest, value); /* a JSON value, because its text is owned by the option reader */
    cli_check(llm_json_parse(t.data, t.len, NULL, &doc));
    if (!cli_try(llm_options_json(&o->by_name, doc, 0, LLM_FROM_USER, NULL)) || !cli_finish(o) ||
        !cli_sampling(o, k->c->model, 2048, &check)) {
        cli_say("llm_cli: ", "%s", cli_why);
        before.stop.items = o->stop.items, before.bad_words.items = o->bad_words.items, before.stop_ids.items = o->stop_ids.items;
        before.ids = o->ids, before.bias = o->bias, before.by_name = o->by_name;
        *o = before;
        cli_finish(o);
    }
    llm_json_free(doc);
    llm_text_free(&t);
    llm_text_free(&cli_notes);
    if (opt->at == AT(system) && k->n <= 1) cli_talk_reset(k);
    else if (opt->at == AT(system)) fputs("it counts from the next /reset on\n", stderr);
}

/* The model and what the next answer will be sampled with. */
static void cli_talk_show(const cli_talk *k) {
    const llm_model_info *i = llm_model_get_info(k->c->model);
    const char *system = k->c->o->system;
    llm_engine_stats stats;
    llm_sampling s;
    llm_engine_get_stats(k->c->engine, &stats);
    if (!cli_sampling(k->c->o, k->c->model, 2048, &s)) return;
    cli_say("", "model %s (%s, %s), context %d tokens, %s", i->path, i->architecture, i->file_type ? i->file_type : "", stats.max_model_len,
            stats.backend);
    cli_say("", "temperature %g, top-p %g, top-k %d, min-p %g, repetition-penalty %g, max-tokens %d", (double)s.temperature,
            (double)s.top_p, s.top_k, (double)s.min_p, (double)s.repetition_penalty, s.max_tokens);
    cli_say("", "system: %s", system && *system ? system : "(none)");
    cli_say("", "%d messages", k->n);
}

/* A line that begins with '/'. 0: leave. */
static int cli_talk_command(cli_talk *k, char *line) {
    size_t n = strcspn(line, " ");
    char *rest = line + n + strspn(line + n, " ");
    line[n] = 0;
    if (!strcmp(line, "/exit") || !strcmp(line, "/quit")) return 0;
    if (!strcmp(line, "/reset")) cli_talk_reset(k), fputs("a new conversation\n", stderr);
    else if (!strcmp(line, "/regen")) cli_talk_regen(k);
    else if (!strcmp(line, "/set")) cli_talk_set(k, rest);
    else if (!strcmp(line, "/show")) cli_talk_show(k);
    else if (!strcmp(line, "/save") && *rest) cli_talk_save(k, rest);
    else if (!strcmp(line, "/load") && *rest) cli_talk_load(k, rest);
    else {
        if (strcmp(line, "/help")) fputs("no such command; these are there:\n", stderr);
        fputs(
            "/reset             forget the conversation\n/regen             answer the last message again\n"
            "/set NAME VALUE    temperature, top-p, max-tokens, seed, system, ...\n/show              model and settings\n"
            "/save FILE         the conversation as JSON\n/load FILE         go on with a saved one\n/exit              leave (or Ctrl-D)\n"
            "Alt-Enter begins a new line, a paste stays one message, Ctrl-C stops an answer.\n",
            stderr);
    }
    return 1;
}

/* Reads, answers, until Ctrl-D, /exit or two Ctrl-C. */
static int cli_interactive(cli_session *c) {
    static cli_talk k;
    int interrupts = 0, leave = 0;
    llm_engine_stats stats;
    k.c = c;
    k.e.fd = isatty(1) ? 1 : 2;
    k.color = cli_color(2);
    if (tcgetattr(0, &k.e.cooked)) cli_die(1, "terminal: %s", strerror(errno));
    cli_open_model(c, 0);
    const llm_model_info *info = llm_model_get_info(c->model);
    if (!info->chat_template)
        cli_die(1, "%s: no chat template, use the command generate or give --chat-template FILE", cli_clip(info->path));
    int32_t limit = cli_limit(c);
    cli_open_engine(c, c->o->e.max_model_len ? c->o->e.max_model_len : limit > 0 && limit < 8192 ? limit : 8192, 1);
    cli_history_open(&k.e);
    cli_talk_reset(&k);
    llm_engine_get_stats(c->engine, &stats);
    cli_say("", "%s, %s, context %d of %d tokens. /help lists the commands.", info->path, stats.backend, stats.max_model_len,
            info->max_model_len);
    while (!leave) {
        int end = cli_edit(&k.e, "> ");
        char *text = k.e.text.data;
        size_t n = k.e.text.len;
        if (end == CLI_EDIT_INTERRUPT) { /* the first at an empty line asks, the second leaves */
            interrupts = n ? 0 : interrupts + 1;
            leave = interrupts > 1;
            if (interrupts == 1) fputs("(once more, or Ctrl-D, to leave)\n", stderr);
            continue;
        }
        interrupts = 0;
        leave = end == CLI_EDIT_END;
        if (leave || strspn(text, " \t\n") == n) continue;
        cli_history_save(&k.e, text);
        if (text[0] == '/' && !memchr(text, '\n', n)) leave = !cli_talk_command(&k, text);
        else cli_talk_ask(&k, text, n);
    }
    while (k.e.n_history) free(k.e.history[--k.e.n_history]);
    free(k.e.fresh), free(k.e.path);
    llm_text_free(&k.messages);
    llm_text_free(&k.e.text);
    return 0;
}

/* ---------------------------------------------------------------------------
 * The commands, what was said on the command line, and main.
 * --------------------------------------------------------------------------- */

static const struct cli_command {
    const char *name, *help; /* help NULL: a later version */
    int (*run)(cli_session *c);
} cli_commands[] = {
    {"chat", "one answer to -p or standard input; at a terminal a conversation", cli_cmd_chat},
    {"generate", "continue -p TEXT, -f FILE or --token-ids without a template", cli_cmd_generate},
    {"score", "log-probability of every token of a text", cli_cmd_score},
    {"tokenize", "text on standard input to ids", cli_cmd_tokenize},
    {"detokenize", "ids on standard input to text", cli_cmd_detokenize},
    {"render", "a chat template: JSON {messages, ...} to the prompt's text", cli_cmd_render},
    {"batch", "OpenAI batch file: -i in.jsonl -o out.jsonl", cli_cmd_batch},
    {"bench", "tokens a second; with --url a load test of a server", cli_cmd_bench},
    {"info", "what a model file is and whether it fits in memory", cli_cmd_info},
    {"quantize", NULL, NULL},
    {"convert-eagle", NULL, NULL},
};

/* --help: the commands, then the options by group. */
static void cli_help(const cli_options *o) {
    static const char *const titles[] = {"Model and device", "Sampling", "Input and output", "Measuring"};
    llm_text t = {0};
    llm_text_str(&t, "usage: llm_cli [COMMAND] [options]\n\nCommands (without one: chat)\n");
    for (int i = 0; cli_commands[i].help; i++) cli_add(&t, "  %-11s %s\n", cli_commands[i].name, cli_commands[i].help);
    for (int g = 0; g < CLI_COUNT(titles); g++) {
        cli_add(&t, "\n%s\n", titles[g]);
        llm_options_help(&o->by_name, g, &t);
    }
    llm_text_str(&t, "\nSpellings: --a b, --a=b, _ for -, --no-a for switches. Every option also as\nLLM_ARG_NAME in the environment and "
                     "by name in --config FILE.\n"
                     "Exit: 0 done, 1 failed, 2 usage, 130 interrupted.\n");
    cli_out(&t);
    exit(0);
}

/* A word that is no option: the command, a model's path, or a prompt with a blank. */
static void cli_parse_word(cli_options *o, const char *word, const struct cli_command **command) {
    for (int k = 0; k < CLI_COUNT(cli_commands) && !*command; k++) {
        if (strcmp(word, cli_commands[k].name)) continue;
        if (!cli_commands[k].help) cli_die(1, "%s: this command is not in this version", word);
        *command = &cli_commands[k];
        return;
    }
    if (!o->model && access(word, F_OK) == 0) o->model = word;
    else if (!o->prompt && strchr(word, ' ')) o->prompt = word;
    else
        cli_die(2, "%s: no such command or file; commands are chat, generate, score, tokenize, detokenize, render, batch, bench, info",
                cli_clip(word));
}

/* --config: options by name, weaker than the command line and the environment. */
static void cli_read_config(cli_options *o) {
    llm_text text = {0};
    llm_json *doc = NULL;
    if (!cli_read(o->config, &text)) cli_die(2, "--config: %s", cli_why);
    if (llm_json_parse(text.data, text.len, NULL, &doc) != LLM_OK || llm_json_type_of(doc, 0) != LLM_JSON_OBJECT)
        cli_die(2, "--config: %s: a JSON object of options was expected", cli_clip(o->config));
    if (llm_options_json(&o->by_name, doc, 0, LLM_FROM_FILE, NULL) != LLM_OK)
        cli_die(2, "--config: %s: %s", cli_clip(o->config), llm_last_error());
    llm_json_free(doc);
    llm_text_free(&text);
}

/* Reads everything that was said; returns the command. */
static const struct cli_command *cli_parse(cli_options *o, int argc, char **argv) {
    static char max_tokens[] = "--max-tokens";
    const struct cli_command *command = NULL;
    llm_option_list words = {0};
    llm_text t = {0};
    cli_options_init(o);
    if (argc > 1 && (!strcmp(argv[1], "quantize") || !strcmp(argv[1], "convert-eagle"))) cli_parse_word(o, argv[1], &command);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) cli_help(o);
        if (!strcmp(argv[i], "-n")) argv[i] = max_tokens; /* "n" alone is the number of answers, as in JSON */
        if (strcmp(argv[i], "--version")) continue;
        cli_add(&t, "llm_cli %s (instruction sets: %s)\n", LLM_VERSION_STRING, llm_isa_list());
        cli_out(&t);
        exit(0);
    }
    if (llm_options_argv(&o->by_name, argc, argv, &words) != LLM_OK) cli_die(2, "%s", llm_last_error());
    for (int i = 0; i < words.n; i++) cli_parse_word(o, words.items[i], &command);
    free((void *)words.items);
    if (llm_options_environment(&o->by_name, "LLM_ARG_", getenv) != LLM_OK) cli_die(2, "%s", llm_last_error());
    if (o->visible_devices) setenv("CUDA_VISIBLE_DEVICES", o->visible_devices, 0);
    if (o->config) cli_read_config(o);
    if (!cli_finish(o)) cli_die(2, "%s", cli_why);
    return command ? command : &cli_commands[0];
}

static void cli_on_signal(int number) { /* the first interrupt is waited for until the step ends; a second one is impatience */
    if (number == SIGINT && ++cli_interrupts > 1) _exit(130);
}

/* Every command gets what was said and leaves its exit status. */
int main(int argc, char **argv) {
    static cli_options options;
    cli_session c = {&options, NULL, NULL, {0}};
    struct sigaction action;
    for (int fd = 0; fd < 3; fd++) /* a closed standard stream must not become a model's file */
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_RDWR) < 0) return 1;
    memset(&action, 0, sizeof action);
    action.sa_handler = cli_on_signal;
    sigaction(SIGINT, &action, NULL); /* no SA_RESTART: a read is interrupted */
    sigaction(SIGWINCH, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    int code = cli_parse(&options, argc, argv)->run(&c);
    cli_show_notes();
    llm_engine_close(c.engine);
    llm_grammar_close(options.form);
    llm_model_close(c.model);
    llm_text_free(&c.rendered);
    llm_options_free(&options.by_name);
    free(options.ids);
    free(options.bias);
    return code;
}
