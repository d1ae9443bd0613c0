/* llm_cli.c - the command line of llm.h: chat, generate, tokenize, score, measure.
 *
 * It uses the public part of llm.h only, so it is an example of it too. Read from the bottom: main, the table of commands, then
 * the cli_cmd_* function of a command. One table of options (cli_table) serves the command line, LLM_ARG_* in the environment,
 * a config file and /set in a chat. One way leads to an answer (cli_call): chat, generate, the conversation and batch write the body of
 * an OpenAI request and read its answer, as a client of llm_serve does, but without a socket. Sections: output, options, the
 * model and its engine, calls, text conversions, score, batch, info, bench, load test, line editor, conversation, main.
 *
 * Answers and JSON go to standard output, everything else to standard error. Exit 0 done, 1 failed, 2 usage, 130 interrupted;
 * a failure ends with one line "llm_cli: error: what: value, what was expected". */
#define _GNU_SOURCE
#include "llm.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
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
#include <wchar.h>

#define CLI_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define CLI_NEW(type, n) ((type *)cli_alloc((size_t)(n), sizeof(type)))
#define CLI_MAX_INPUT ((size_t)64 << 20) /* a prompt of more bytes fits no context */

/* ---------------------------------------------------------------------------
 * Output and input. A function that can fail returns 0 and leaves the reason in cli_why; the command decides whether that ends the
 * program (cli_die) or only one message of a chat. What is quoted may be hostile: control characters are shown as \xNN, and an
 * error is one line. JSON is written with llm_text_format, tables with printf; both go through one check of standard output.
 * --------------------------------------------------------------------------- */

static volatile sig_atomic_t cli_interrupts; /* SIGINTs so far */
static char cli_why[700];                    /* why the latest cli_bad refused something */
static llm_text cli_notes;                   /* lines that wait until the work has begun, so that an error stands alone */
static const char *cli_output = "standard output";

/* Ends the program with the error line. */
#define cli_die(code, ...) (cli_say("llm_cli: error: ", __VA_ARGS__), exit(code))
/* Remembers why something was refused; the value 0 makes "return cli_bad(...)" read as failure. */
#define cli_bad(...) (snprintf(cli_why, sizeof cli_why, __VA_ARGS__) < 0)

/* Prints text in which no terminal finds a command: C0 and C1 controls, DEL and the marks that turn the writing direction become
 * \xNN; newline and tab stay when `lines`. Returns 0 if it could not be written. */
static int cli_print(FILE *to, const char *s, size_t n, int lines) {
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i], d = i + 1 < n ? (unsigned char)s[i + 1] : 0, e = i + 2 < n ? (unsigned char)s[i + 2] : 0;
        int bidi = c == 0xE2 && ((d == 0x80 && e >= 0xAA && e <= 0xAE) || (d == 0x81 && e >= 0xA6 && e <= 0xA9));
        int bad = bidi ? 3 : c == 0xC2 && d >= 0x80 && d < 0xA0 ? 2 : (c < 32 && !(lines && (c == '\n' || c == '\t'))) || c == 127;
        if (!bad) putc(s[i++], to);
        for (; bad; bad--) fprintf(to, "\\x%02x", (unsigned char)s[i++]);
    }
    return !fflush(to) && !ferror(to);
}

/* One line on standard error. */
static void cli_say(const char *prefix, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void cli_say(const char *prefix, const char *format, ...) {
    char message[1000];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    fputs(prefix, stderr);
    cli_print(stderr, message, strlen(message), 0);
    fputs("\n", stderr);
}

/* A remark of the option readers. */
static void cli_note(void *user, const char *line) {
    (void)user;
    llm_text_format(&cli_notes, "llm_cli: note: %s\n", line);
}

static void cli_show_notes(void) {
    cli_print(stderr, cli_notes.data, cli_notes.len, 1);
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

/* Every byte of an answer goes through here, or through printf and a call with nothing; what cannot be written ends the program. */
static void cli_write(const char *s, size_t n) {
    int ok = isatty(1) ? cli_print(stdout, s, n, 1) : (!n || fwrite(s, 1, n, stdout) == n) && !ferror(stdout) && !fflush(stdout);
    if (!ok) cli_die(1, "%s: %s", cli_output, errno == EPIPE ? "closed by its reader, an open file or pipe was expected" : strerror(errno));
}

/* Writes and frees. */
static void cli_out(llm_text *t) {
    if (t->failed) cli_die(1, "memory: an answer of %zu bytes did not fit", t->len);
    cli_write(t->data, t->len);
    llm_text_free(t);
}

/* Seconds of a clock that never jumps. */
static double cli_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Appends a file, or standard input for "-". 0 with cli_why. Waiting goes by poll, which does not miss an interrupt that comes just
 * before it, as read would. */
static int cli_read(const char *path, llm_text *out) {
    char block[65536];
    ssize_t n = 1;
    int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : 0;
    const char *name = fd ? path : "standard input";
    if (fd < 0) return cli_bad("%.60s: %s", name, strerror(errno));
    while (n > 0) {
        for (struct pollfd p = {fd, POLLIN, 0}; poll(&p, 1, 200) <= 0;)
            if (cli_interrupts) exit(130);
        n = read(fd, block, sizeof block);
        if (n < 0) return cli_bad("%.60s: %s", name, strerror(errno));
        llm_text_add(out, block, (size_t)n);
        if (out->len > CLI_MAX_INPUT || out->failed)
            return cli_bad("%.60s: more than %zu MiB, a text that fits a context was expected", name, CLI_MAX_INPUT >> 20);
    }
    if (fd) close(fd);
    return 1;
}

/* The next line of a file without its end, until the next call; NULL when there is none. */
static char *cli_line(FILE *f, size_t *n) {
    static char *line;
    static size_t room;
    ssize_t got = cli_interrupts ? -1 : getline(&line, &room, f);
    if (ferror(f) && !cli_interrupts) cli_die(1, "input: %s", strerror(errno));
    while (got > 0 && (line[got - 1] == '\n' || line[got - 1] == '\r')) line[--got] = 0;
    *n = got < 0 ? 0 : (size_t)got;
    return got < 0 ? NULL : line;
}

/* Bytes of the character at s, its code point in *cp; -1 and one byte where there is no UTF-8. */
static size_t cli_char(const char *s, size_t n, int32_t *cp) {
    wchar_t wide = 0;
    mbstate_t state = {0};
    size_t len = mbrtowc(&wide, s, n, &state); /* over n for the two kinds of error, 0 for NUL */
    *cp = len <= n && (long)wide <= 0x10FFFF ? (int32_t)wide : -1;
    return *cp > 0 ? len : 1;
}

/* ---------------------------------------------------------------------------
 * Options: one table for the command line, the environment, a config file and /set in a chat. The rows of the library's own
 * structs are the library's (LLM_OPTIONS_*), so both programs spell them alike. A value passes two tests: its row's (type and
 * range, at once) and, when it is part of a request, the one that requests have in >>openai (lists, JSON, what needs the vocabulary).
 * `given` tells what was said, so that an explicit 0 stays 0 when it is laid over the model's own defaults.
 * --------------------------------------------------------------------------- */

typedef struct cli_options {
    llm_sampling s; /* what was said, to be laid over the model's defaults */
    llm_engine_config e;
    llm_model_config m;
    const char *model, *config, *prompt, *file, *system, *token_ids, *in, *out, *batch, *url;
    const char *json_schema, *regex, *grammar; /* the form of the answer: at most one */
    const char *early_stop_config, *logit_bias, *template_kwargs, *reasoning_parser, *tool_parser, *visible_devices, *stop_ids;
    llm_option_list stop, bad_words;
    int32_t pooling, log_level, prefix_cache, json, jsonl, add_special, parse_special, skip_special, top_logprobs, logprobs, early_stop;
    int32_t do_preprocess, repetitions, stages, max_concurrency, num_prompts, input_len, output_len;
    float request_rate;
    unsigned char given[128]; /* by index of cli_table: the source that set it */
    llm_options by_name;      /* fills in this struct */
    llm_text draft;           /* the model named in --speculative-config */
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
    {"log-level", LLM_OPTION_ENUM, CLI_MODEL, AT(log_level), 0, 0, "error|warn=1|warning=1|info=2|debug=3",
     "what is told on standard error (warn)"},

    LLM_OPTIONS_SAMPLING(cli_options, s, CLI_SAMPLING),
    {"use-beam-search", BOOL, CLI_SAMPLING, AT(s.use_beam_search), 0, 0, NULL, "the likeliest answers of --best-of beams, with --temp 0"},
    {"length-penalty", LLM_OPTION_FLOAT, CLI_SAMPLING, AT(s.length_penalty), -100, 100, "X", "of a beam's score (1)"},
    {"stop|stop-words", LIST, CLI_SAMPLING, AT(stop), 0, 0, "TEXT", "ends the answer; may be repeated"},
    {"stop-token-ids", TEXT, CLI_SAMPLING, AT(stop_ids), 0, 0, "IDS", "ids that end the answer: 1,2 or [1,2]"},
    {"bad-words", LIST, CLI_SAMPLING, AT(bad_words), 0, 0, "TEXT", "must not appear; may be repeated"},
    {"logit-bias", TEXT, CLI_SAMPLING, AT(logit_bias), 0, 0, "JSON", "{\"id\": -100 to 100, ...} added to the logits"},
    {"json-schema|guided-json", TEXT, CLI_SAMPLING, AT(json_schema), 0, 0, "JSON|@FILE", "the answer is JSON that keeps this schema"},
    {"regex|guided-regex", TEXT, CLI_SAMPLING, AT(regex), 0, 0, "REGEX|@FILE", "the answer matches it from end to end"},
    {"grammar|guided-grammar", TEXT, CLI_SAMPLING, AT(grammar), 0, 0, "GBNF|@FILE", "the answer follows its rule root"},
    {"enable-early-stop", BOOL, CLI_SAMPLING, AT(early_stop), 0, 0, NULL, "end an answer that repeats itself"},
    {"early-stop-config", TEXT, CLI_SAMPLING, AT(early_stop_config), 0, 0, "CONFIG",
     "{\"enable_early_stop\", \"strategy\", \"window_size\", \"threshold\"}"},
    {"skip-special-tokens", BOOL, CLI_SAMPLING, AT(skip_special), 0, 0, NULL, "--no-: special tokens appear in the text"},
    {"chat-template-kwargs", TEXT, CLI_SAMPLING, AT(template_kwargs), 0, 0, "JSON", "template variables: '{\"enable_thinking\": false}'"},

    {"p|prompt", TEXT, CLI_IO, AT(prompt), 0, 0, "TEXT", "the prompt; bench: number of prompt tokens (512)"},
    {"f|file", TEXT, CLI_IO, AT(file), 0, 0, "FILE", "the prompt from a file; -: standard input"},
    {"token-ids", TEXT, CLI_IO, AT(token_ids), 0, 0, "IDS", "the prompt as ids: '[1,2]'"},
    {"sys|system|system-prompt", TEXT, CLI_IO, AT(system), 0, 0, "TEXT", "system message of a chat"},
    {"reasoning-parser", TEXT, CLI_IO, AT(reasoning_parser), 0, 0, "NAME", "how reasoning is marked (as the template says)"},
    {"pooling", LLM_OPTION_ENUM, CLI_IO, AT(pooling), 0, 0, "last=1|mean=2", "what becomes an embedding, in a batch (last)"},
    {"tool-call-parser", TEXT, CLI_IO, AT(tool_parser), 0, 0, "NAME", "how tool calls are written, in a batch (as the template says)"},
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
    {"stages", BOOL, CLI_BENCH, AT(stages), 0, 0, NULL, "what each part of a step takes, and how near it is to what the machine can do"},
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

/* The defaults that are not 0. Where 0 has a meaning of its own (logprobs), `given` tells it from the default. */
static void cli_options_init(cli_options *o) {
    o->skip_special = o->do_preprocess = o->prefix_cache = 1;
    o->log_level = LLM_LOG_WARN;
    o->num_prompts = o->output_len = o->max_concurrency = 64;
    o->input_len = 128;
    o->repetitions = 5;
    o->batch = "1";
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

/* Appends the ids of "[1,2]" or "1,2". */
static int cli_parse_ids(const char *said, const char *text, llm_tokens *out) {
    llm_text list = {0};
    llm_json *doc = NULL;
    int64_t id;
    llm_text_format(&list, text[strspn(text, " \t\r\n")] == '[' ? "%s" : "[%s]", text);
    int ok = !llm_json_parse(list.data, list.len, NULL, &doc) && llm_json_type_of(doc, 0) == LLM_JSON_ARRAY;
    for (int i = ok ? llm_json_first(doc, 0) : -1; ok && i >= 0; i = llm_json_next(doc, i)) {
        ok = llm_json_int(doc, i, &id) && id >= 0 && id <= INT32_MAX;
        llm_tokens_add(out, (int32_t)id);
    }
    llm_json_free(doc);
    llm_text_free(&list);
    return ok && !out->failed ? 1 : cli_bad("%s: %.60s, token ids as '[1,2]' were expected", said, text);
}

/* What a row of the table cannot test and no request does either. */
static void cli_finish(cli_options *o) {
    const char *const texts[] = {o->prompt ? o->prompt : "", o->system ? o->system : ""};
    char have[120], want[40];
    int32_t cp = 0;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0, n = strlen(texts[t]); i < n;) {
            i += cli_char(texts[t] + i, n - i, &cp);
            if (cp < 0) cli_die(2, "%s: not UTF-8, UTF-8 text was expected", t ? "--system" : "-p, --prompt");
        }
    if (o->reasoning_parser && llm_reasoning_named(o->reasoning_parser) < 0)
        cli_die(2, "--reasoning-parser: %.60s, a name as qwen3, deepseek_r1 or none was expected", o->reasoning_parser);
    if (o->tool_parser && llm_tools_named(o->tool_parser) < 0)
        cli_die(2, "--tool-call-parser: %.60s, a name as hermes, mistral or json was expected", o->tool_parser);
    snprintf(have, sizeof have, " %s ", llm_isa_list());
    snprintf(want, sizeof want, " %s ", o->e.isa ? o->e.isa : "scalar");
    if (!strstr(have, want)) cli_die(2, "--isa: %.60s, this CPU has: %s", o->e.isa, llm_isa_list());
    llm_result r = llm_speculative_parse(&o->e, getenv, &o->draft);
    if (r != LLM_OK) cli_die(r == LLM_ERR_ARG ? 2 : 1, "%s", llm_last_error());
}

/* An option's text as a JSON value: JSON and lists of ids as they are, other texts quoted; @FILE stands for what is in a file. */
static int cli_json_value(const llm_option *option, const char *text, llm_text *body) {
    llm_text value = {0};
    llm_json *doc = NULL;
    int ids = !strcmp(option->words, "IDS"), plain = !ids && strcmp(option->words, "JSON"), ok = 1;
    if (*text == '@' && strstr(option->words, "@FILE")) ok = cli_read(text + 1, &value);
    else llm_text_format(&value, ids && *text != '[' ? "[%s]" : "%s", text);
    if (ok && !plain && llm_json_parse(value.data ? value.data : "", value.len, NULL, &doc)) ok = cli_bad("%.60s, JSON was expected", text);
    if (plain) llm_text_format(body, "%Q", value.data, value.len);
    else llm_text_format(body, "%s", value.data ? value.data : "");
    llm_json_free(doc);
    llm_text_free(&value);
    return ok;
}

/* Appends the options of an answer that are not plain numbers as members of a request's body; the numbers are in its defaults
 * (cli_defaults). 0 with cli_why, which names the option. */
static int cli_add_members(const cli_options *o, llm_text *body) {
    static const char *const names[] = {"stop", "bad_words", "stop_token_ids", "logit_bias", "json_schema", "regex", "grammar",
                                        "enable_early_stop", "early_stop_config", "skip_special_tokens", "chat_template_kwargs"};
    if (!!o->json_schema + !!o->regex + !!o->grammar > 1)
        return cli_bad("--%s: only one of --json-schema, --regex and --grammar was expected", o->grammar ? "grammar" : "regex");
    for (int i = 0; i < CLI_COUNT(names); i++) {
        const llm_option *option = llm_options_find(&o->by_name, names[i], strlen(names[i]));
        const void *at = (const char *)o + option->at;
        if (!o->given[option - cli_table]) continue;
        llm_text_format(body, ",%q:", names[i]);
        if (option->kind == BOOL) {
            llm_text_str(body, *(const int32_t *)at ? "true" : "false");
        } else if (option->kind == LIST) {
            const llm_option_list *list = (const llm_option_list *)at;
            for (int k = 0; k < list->n; k++) llm_text_format(body, k ? ",%q" : "[%q", list->items[k]);
            llm_text_str(body, list->n ? "]" : "[]");
        } else if (!cli_json_value(option, *(const char *const *)at, body)) {
            char why[sizeof cli_why];
            memcpy(why, cli_why, sizeof why);
            return cli_bad("--%.*s: %.600s", (int)strcspn(option->names, "|"), option->names, why);
        }
    }
    return 1;
}

/* ---------------------------------------------------------------------------
 * The model and its engine. Memory is taken for what the command needs: one sequence of prompt and answer, or a batch.
 * --------------------------------------------------------------------------- */

typedef struct cli_session { /* what a command works with */
    cli_options *o;
    llm_model *model;
    llm_engine *engine;
    llm_openai_service service; /* how requests are read and answers written */
    llm_text said;              /* the latest answer that was shown */
    int thinking;               /* thoughts are being shown */
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
    static double begin;
    (void)user;
    if (begin <= 0) begin = cli_now();
    if (isatty(2) && cli_now() - begin > 0.7) fprintf(stderr, done < 1 ? "\r%s %3.0f %%\x1b[K" : "\r\x1b[K", what, done * 100);
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
        cli_die(1, "%.60s%s%s", c->o->model ? c->o->model : "", c->o->model ? ": " : "", llm_last_error());
    cli_check(llm_model_open(path.data, &cfg, &c->model));
    llm_text_free(&path);
    cli_show_notes();
}

/* Opens an engine for `seqs` sequences of at most `need` tokens (0: all that the model can): memory is taken for these only. */
static void cli_open_engine(cli_session *c, int64_t need, int32_t seqs) {
    llm_engine_config cfg = c->o->e;
    int32_t own = llm_model_get_info(c->model)->max_model_len;
    llm_text library = {0};
    llm_backend_find(&cfg, &library);
    if (need > 0 && (!cfg.max_model_len || need < cfg.max_model_len) && (own <= 0 || cfg.max_model_len <= own))
        cfg.max_model_len = (int32_t)need;
    cfg.max_num_seqs = seqs;
    cfg.disable_prefix_caching = !c->o->prefix_cache;
    cfg.log = cli_log;
    cfg.log_user = c->o;
    cfg.progress = cli_progress;
    cli_check(llm_engine_open(c->model, &cfg, &c->engine));
    llm_text_free(&library);
    c->service.engine = c->engine;
}

/* Tokens that a sequence may have: --max-model-len, else the model's own; 0: no limit. */
static int32_t cli_limit(const cli_session *c) {
    int32_t own = llm_model_get_info(c->model)->max_model_len, said = c->o->e.max_model_len;
    return said && (own <= 0 || said < own || c->o->e.allow_long_max_model_len) ? said : own;
}

/* Tokens that this sequence needs. A prompt that leaves no room for an answer is told with both numbers. */
static int64_t cli_need(const cli_session *c, int64_t n_prompt, int32_t max_tokens) {
    int32_t limit = cli_limit(c);
    if (n_prompt == 0) cli_die(2, "prompt: 0 tokens, at least one was expected");
    if (limit > 0 && n_prompt >= limit)
        cli_die(1, "prompt: %lld tokens, the context has %d and the answer needs one", (long long)n_prompt, limit);
    return max_tokens < 0 || (limit > 0 && n_prompt + max_tokens > limit) ? limit : n_prompt + max_tokens;
}

/* ---------------------------------------------------------------------------
 * Calls: the body of an OpenAI request goes in, its answer comes out, in one piece or as a stream of events.
 *
 *   options --cli_add_members--> body --llm_openai_begin, submit--> llm_engine_step, llm_openai_next, again ... --> JSON of the answer
 *
 * The loop is the whole of what a program needs to do: this thread steps the engine, and between steps takes what is new. Streams
 * are shown as they come; --json and several answers are written when all is there.
 * --------------------------------------------------------------------------- */

/* The defaults of all requests: the model's own, the numbers that were said over them, and `max_tokens` unless it was said. */
static void cli_defaults(cli_session *c, int32_t max_tokens) {
    const cli_options *o = c->o;
    llm_sampling *s = &c->service.defaults;
    if (!c->service.model) llm_openai_service_init(&c->service, c->model, c->engine);
    llm_sampling_default(c->model, s);
    llm_options_sampling(&o->by_name, AT(s), s);
    c->service.max_tokens = cli_given(o, "max-tokens") ? o->s.max_tokens : max_tokens;
    c->service.max_logprobs = o->logprobs > 20 ? o->logprobs : 20;
    c->service.pooling = (llm_pooling)o->pooling;
    if (o->tool_parser) c->service.tool_format = llm_tools_named(o->tool_parser);
    if (o->reasoning_parser) c->service.reasoning = (llm_reasoning_kind)llm_reasoning_named(o->reasoning_parser);
}

/* Colours where a person looks, unless NO_COLOR (no-color.org) or the terminal says otherwise. */
static const char *cli_color(int fd, const char *sequence) {
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fd) && !(no_color && *no_color) && !(term && !strcmp(term, "dumb")) ? sequence : "";
}

/* One event of a stream. Thoughts are dim and for people only: in a pipe there is the answer alone. */
static void cli_show(cli_session *c, const llm_json *event) {
    int choice = llm_json_first(event, llm_json_find(event, 0, "choices")), delta = llm_json_find(event, choice, "delta");
    size_t n_thought = 0, n = 0;
    const char *thought = llm_json_str(event, llm_json_find(event, delta, "reasoning_content"), &n_thought),
               *text = llm_json_str(event, delta < 0 ? llm_json_find(event, choice, "text") : llm_json_find(event, delta, "content"), &n);
    if (thought && isatty(1)) {
        if (!c->thinking++) fputs(cli_color(1, "\x1b[2m"), stdout);
        cli_write(thought, n_thought);
    }
    if (c->thinking && (n || llm_json_str(event, llm_json_find(event, choice, "finish_reason"), NULL))) {
        printf("%s\n", cli_color(1, "\x1b[0m"));
        c->thinking = 0;
    }
    if (n) cli_write(text, n);
    if (n) llm_text_add(&c->said, text, n);
}

/* "[prompt 31 tokens, 410.2 tok/s | answer 52 tokens, 190.1 tok/s | first token 0.08 s]" */
static void cli_show_speed(const llm_request *request) {
    llm_request_metrics m;
    llm_output out;
    llm_request_get_metrics(request, &m);
    if (llm_request_get_output(request, 0, &out) != LLM_OK || m.first_token_time <= 0) return;
    double first = m.first_token_time - m.inference_start_time, rest = m.finish_time - m.first_token_time;
    fprintf(stderr, "%s[prompt %d tokens", cli_color(2, "\x1b[2m"), m.n_prompt_tokens);
    if (m.n_cached_tokens) fprintf(stderr, " (%d cached)", m.n_cached_tokens);
    fprintf(stderr, ", %.1f tok/s | answer %zu tokens", first > 0 ? (m.n_prompt_tokens - m.n_cached_tokens) / first : 0, out.n_token_ids);
    if (out.n_token_ids > 1 && rest > 0) fprintf(stderr, ", %.1f tok/s", (double)(out.n_token_ids - 1) / rest);
    fprintf(stderr, " | first token %.2f s]\n", m.first_token_time - m.arrival_time);
    if (out.finish == LLM_FINISH_LENGTH) fprintf(stderr, "[cut after %zu tokens; max-tokens allows more]\n", out.n_token_ids);
    fputs(cli_color(2, "\x1b[0m"), stderr);
}

/* The error object of an answer into cli_why, under the name that the option has here. Returns 2 for a wrong option, else 1. */
static int cli_failed(const cli_session *c, const llm_json *doc, int error) {
    size_t n = 0;
    const char *param = llm_json_str(doc, llm_json_find(doc, error, "param"), &n);
    const llm_option *option = param ? llm_options_find(&c->o->by_name, param, n) : NULL;
    const char *why = llm_json_str(doc, llm_json_find(doc, error, "message"), NULL), *names = option ? strchr(option->names, '|') : NULL;
    names = option && names && names - option->names < 3 ? names + 1 : option ? option->names : ""; /* not the one of one letter */
    (void)cli_bad("%s%.*s%s%.600s", option ? "--" : "", (int)strcspn(names, "|"), names, option ? ": " : "", why ? why : "the request failed");
    return option ? 2 : 1;
}

/* Sends a body of the members in `what` and of those that the options add. Streams are shown; else *answer gets the whole, to be freed.
 * Returns the exit status: 0, 130 if Ctrl-C ended the answer, 1 or 2 with cli_why. Frees `what`. */
static int cli_call(cli_session *c, llm_openai_kind kind, llm_text *what, llm_json **answer) {
    llm_text body = {0}, piece = {0};
    int code = 0, stopped = 0;
    llm_text_format(&body, answer ? "{%t" : "{'stream':true,%t", what);
    if (!cli_add_members(c->o, &body)) return llm_text_free(&body), 2;
    llm_text_str(&body, "}");
    llm_openai_call *call = body.failed ? NULL : llm_openai_begin(&c->service, kind, body.data, body.len, NULL);
    if (!call) cli_die(1, "memory: a request of %zu bytes did not fit", body.len);
    const llm_openai_info *info = llm_openai_get_info(call);
    c->said.len = 0;
    llm_openai_submit(call);
    while (!info->done) {
        llm_json *doc = NULL;
        if (!llm_openai_next(call, &piece)) {
            for (int32_t i = 0; cli_interrupts && !stopped++ && i < info->n_requests; i++) llm_request_cancel(info->requests[i]);
            cli_check(llm_engine_step(c->engine, NULL));
            continue;
        }
        const char *json = strncmp(piece.data, "data: ", 6) ? piece.data : piece.data + 6;
        if (llm_json_parse(json, strcspn(json, "\n"), NULL, &doc)) doc = NULL; /* [DONE] */
        int error = llm_json_find(doc, 0, "error");
        if (error >= 0) code = cli_failed(c, doc, error);
        else if (!answer) cli_show(c, doc);
        else *answer = doc, doc = NULL;
        llm_json_free(doc);
        piece.len = 0;
    }
    if (!answer && !code) {
        if (isatty(1) || !c->said.len || c->said.data[c->said.len - 1] != '\n') cli_write("\n", 1);
        if (isatty(2) && stopped) fputs("[stopped]\n", stderr);
        if (isatty(2)) cli_show_speed(info->requests[0]);
    }
    llm_openai_free(call);
    llm_text_free(&piece);
    llm_text_free(&body);
    return code ? code : stopped ? 130 : 0;
}

/* A whole answer as the object of --json: a choice of /v1/completions or /v1/chat/completions with usage and metrics beside it. */
static void cli_add_choice(const llm_json *doc, int choice, llm_text *t) {
    size_t n;
    const char *content = llm_json_str(doc, llm_json_find(doc, llm_json_find(doc, choice, "message"), "content"), &n);
    llm_json_write(doc, choice, t);
    t->len--; /* its brace */
    if (content) llm_text_format(t, ",'text':%Q", content, n);
    llm_text_str(t, ",\"usage\":");
    llm_json_write(doc, llm_json_find(doc, 0, "usage"), t);
    llm_text_str(t, ",\"metrics\":");
    llm_json_write(doc, llm_json_find(doc, 0, "metrics"), t);
    llm_text_str(t, "}\n");
}

/* Answers a prompt of n tokens, streaming, or each answer when all are there. Returns the exit status. */
static int cli_answer(cli_session *c, llm_openai_kind kind, llm_text *what, int64_t n_prompt) {
    const cli_options *o = c->o;
    const llm_sampling *s = &c->service.defaults;
    int32_t n = s->n > 1 ? s->n : 1, width = s->best_of > n ? s->best_of : n;
    int streaming = !o->json && width == 1;
    llm_text t = {0};
    llm_json *doc = NULL;
    if (c->service.max_tokens == 0) cli_die(2, "--max-tokens: 0, a whole number from 1, or -1, was expected");
    cli_open_engine(c, cli_need(c, n_prompt, c->service.max_tokens), width);
    if (o->json) llm_text_str(what, ",\"return_token_ids\":true,\"return_metrics\":true");
    if (cli_given(o, "logprobs")) llm_text_format(what, kind == LLM_OPENAI_CHAT ? ",'logprobs':true,'top_logprobs':%d" : ",'logprobs':%d", o->logprobs);
    int code = cli_call(c, kind, what, streaming ? NULL : &doc);
    if (code && code != 130) cli_die(code, "%s", cli_why);
    for (int i = llm_json_first(doc, llm_json_find(doc, 0, "choices")); i >= 0 && !code; i = llm_json_next(doc, i)) {
        int text = llm_json_find(doc, i, "text");
        if (text < 0) text = llm_json_find(doc, llm_json_find(doc, i, "message"), "content");
        if (o->json) cli_add_choice(doc, i, &t);
        else llm_text_format(&t, "%s\n", llm_json_str(doc, text, NULL));
    }
    cli_out(&t);
    llm_json_free(doc);
    return code;
}

/* The text to work on: -p, -f or standard input. */
static void cli_input(const cli_options *o, llm_text *text) {
    if (o->prompt && o->file) cli_die(2, "--file: %.60s, but --prompt is given too; one of them was expected", o->file);
    if (!o->prompt && !o->file && isatty(0)) cli_die(2, "no prompt: give -p TEXT, -f FILE, --token-ids '[1,2]', or text on standard input");
    if (o->prompt) llm_text_str(text, o->prompt);
    else if (!cli_read(o->file ? o->file : "-", text)) cli_die(1, "%s", cli_why);
    llm_text_add(text, "", 0);
}

/* Opens the model; ids of --token-ids as they are, of a text with BOS as the model says. chop: the newline that echo puts behind a piped
 * prompt is not part of it. */
static void cli_prompt_ids(cli_session *c, int chop, llm_tokens *ids) {
    const cli_options *o = c->o;
    llm_text text = {0};
    if (o->token_ids && (o->prompt || o->file)) cli_die(2, "--token-ids: given beside --prompt or --file, one of them was expected");
    if (o->token_ids && !cli_parse_ids("--token-ids", o->token_ids, ids)) cli_die(2, "%s", cli_why);
    if (!o->token_ids) cli_input(o, &text);
    if (chop && !o->prompt && !o->file && text.len && text.data[text.len - 1] == '\n') text.len--;
    cli_open_model(c, 0);
    if (!o->token_ids) cli_check(llm_tokenize(c->model, text.data, text.len, LLM_TOK_ADD_SPECIAL | LLM_TOK_PARSE_SPECIAL, ids));
    llm_text_free(&text);
}

static int cli_cmd_generate(cli_session *c) {
    llm_tokens ids = {0};
    llm_text what = {0};
    cli_prompt_ids(c, 1, &ids);
    cli_defaults(c, 256);
    llm_text_format(&what, "'prompt':%i", ids.data, ids.len);
    int code = cli_answer(c, LLM_OPENAI_COMPLETION, &what, (int64_t)ids.len);
    llm_tokens_free(&ids);
    return code;
}

/* Appends a message to the elements of a JSON array. */
static void cli_add_message(llm_text *messages, const char *role, const char *text, size_t n) {
    llm_text_format(messages, messages->len ? ", {'role': %q, 'content': %Q}" : "{'role': %q, 'content': %Q}", role, text, n);
}

/* What is asked of a chat: -p or -f, and behind it what stands on standard input. */
static void cli_question(const cli_options *o, llm_text *text) {
    llm_text piped = {0};
    struct stat st;
    int said = o->prompt || o->file, taken = o->file && !strcmp(o->file, "-");
    if (said) cli_input(o, text);
    int more = !fstat(0, &st) && (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) && !taken;
    if (more && !cli_read("-", &piped)) cli_die(1, "%s", cli_why);
    while (piped.len && (piped.data[piped.len - 1] == '\n' || piped.data[piped.len - 1] == '\r')) piped.len--;
    if (text->len && piped.len) llm_text_str(text, "\n");
    llm_text_format(text, "%t", &piped);
    if (!text->len) cli_die(2, "no prompt: give -p TEXT, -f FILE, or text on standard input");
}

static int cli_interactive(cli_session *c);

/* One answer; at a terminal without a question a conversation. How long the rendered prompt is tells a first call that only tokenizes,
 * so that the engine takes memory for just that. */
static int cli_cmd_chat(cli_session *c) {
    const cli_options *o = c->o;
    llm_text text = {0}, messages = {0}, what = {0};
    llm_json *doc = NULL;
    int64_t n = 0;
    if (o->token_ids) cli_die(2, "--token-ids: a chat takes text, use generate");
    if (!o->prompt && !o->file && isatty(0)) return cli_interactive(c);
    cli_question(o, &text);
    cli_open_model(c, 0);
    cli_defaults(c, 2048);
    if (o->system) cli_add_message(&messages, "system", o->system, strlen(o->system));
    cli_add_message(&messages, "user", text.data, text.len);
    if (o->do_preprocess) llm_text_format(&what, "'messages':[%s]", messages.data);
    else llm_text_format(&what, "'prompt':%Q", text.data, text.len);
    llm_text again = {0};
    llm_text_add(&again, what.data, what.len);
    int code = cli_call(c, LLM_OPENAI_TOKENIZE, &what, &doc);
    if (code) cli_die(code, "%s", cli_why);
    llm_json_int(doc, llm_json_find(doc, 0, "count"), &n);
    llm_json_free(doc);
    llm_text_free(&text);
    llm_text_free(&messages);
    return cli_answer(c, o->do_preprocess ? LLM_OPENAI_CHAT : LLM_OPENAI_COMPLETION, &again, n);
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
    if (c->o->jsonl) llm_text_format(out, "%Q", text.data, text.len);
    else llm_text_add(out, text.data, text.len);
    llm_text_free(&text);
    llm_tokens_free(&ids);
    return ok;
}

static llm_template *cli_template; /* of render --chat-template */

/* Seconds since 1970 of "YYYY-MM-DD HH:MM:SS" or a number; 0: neither. */
static int cli_parse_time(const llm_json *doc, int node, int64_t *out) {
    struct tm tm = {0};
    const char *text = llm_json_str(doc, node, NULL);
    if (!text) return llm_json_int(doc, node, out);
    const char *end = strptime(text, "%Y-%m-%d", &tm);
    if (end && *end) end = strptime(end + 1, "%H:%M:%S", &tm);
    *out = (int64_t)timegm(&tm);
    return end != NULL;
}

/* The context's members are the template's variables; `now` stands for the clock. With --jsonl an error is an answer too. */
static int cli_render(cli_session *c, const char *in, size_t n, llm_text *out) {
    llm_render_options how = {0};
    llm_json *doc = NULL;
    llm_text text = {0};
    int ok = cli_try(llm_json_parse(in, n, NULL, &doc)), now = llm_json_find(doc, 0, "now");
    if (ok && llm_json_type_of(doc, 0) != LLM_JSON_OBJECT) ok = cli_bad("a JSON object {\"messages\": ...} was expected");
    if (ok && now >= 0 && !cli_parse_time(doc, now, &how.now))
        ok = cli_bad("now: seconds since 1970 or \"YYYY-MM-DD HH:MM:SS\" were expected");
    if (ok) ok = cli_try(cli_template ? llm_template_render(cli_template, doc, &how, &text) : llm_render(c->model, doc, &how, &text));
    if (!c->o->jsonl) llm_text_add(out, text.data, text.len);
    else if (ok) llm_text_format(out, "{'text': %Q}", text.data, text.len);
    else llm_text_format(out, "{'error': %q}", cli_why);
    llm_json_free(doc);
    llm_text_free(&text);
    return ok || c->o->jsonl;
}

/* Converts the whole input, or each of its lines; a bad line is told by its number. Returns the exit status. */
static int cli_convert(cli_session *c, cli_convert_fn fn, const char *end) {
    llm_text text = {0}, out = {0};
    char *line;
    size_t n;
    if (!c->o->jsonl) {
        cli_input(c->o, &text);
        if (!fn(c, text.data, text.len, &out)) cli_die(1, "%s", cli_why);
        llm_text_str(&out, end);
        cli_out(&out);
        llm_text_free(&text);
        return 0;
    }
    for (long number = 1; (line = cli_line(stdin, &n)); number++) {
        if (!fn(c, line, n, &out)) cli_die(1, "standard input, line %ld: %s", number, cli_why);
        llm_text_str(&out, "\n");
        cli_out(&out);
    }
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
    if (source && llm_template_open(text.data, text.len, &cli_template)) cli_die(1, "%.60s: %s", source, llm_last_error());
    int code = cli_convert(c, cli_render, "");
    llm_template_close(cli_template);
    llm_text_free(&text);
    return code;
}

/* ---------------------------------------------------------------------------
 * score: one request gives both the log-probabilities of the prompt and the first token after it. They are the model's raw ones
 * (log-softmax of the logits), before temperature and penalties: what evaluation harnesses sum up, and what perplexity means.
 * --------------------------------------------------------------------------- */

/* [[id, logprob], ...] of the k most likely of n, which come best first. */
static void cli_add_top(llm_text *t, const llm_token_logprob *top, int n, int k) {
    llm_text_str(t, "[");
    for (int i = 0; i < n && i < k; i++) llm_text_format(t, "%s[%d, %f]", i ? ", " : "", top[i].id, (double)top[i].logprob);
    llm_text_str(t, "]");
}

/* One line a token: log-probability, id, text. */
static void cli_print_score(const llm_model *model, int32_t id, double logprob) {
    llm_text piece = {0}, quoted = {0};
    llm_token_bytes(model, id, &piece);
    llm_text_format(&quoted, "%Q", piece.data, piece.len);
    printf("%12.6f  %7d  %s\n", logprob, id, quoted.data);
    llm_text_free(&piece);
    llm_text_free(&quoted);
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
    cli_open_engine(c, cfg.score_only ? cli_limit(c) : cli_need(c, (int64_t)ids.len, 1), 1);
    cli_check(llm_request_submit(c->engine, &cfg, &request));
    for (llm_event event; !llm_request_done(request);) {
        if (cli_interrupts) return 130;
        cli_check(llm_engine_step(c->engine, NULL));
        while (llm_request_poll(request, &event))
            if (event.finish == LLM_FINISH_ERROR) cli_die(1, "%s", llm_request_error(request));
    }
    const float *lp = llm_request_prompt_logprobs(request, &top, &counts, &stride);
    for (size_t i = 0; i < ids.len; i++) {
        double x = i ? (double)lp[i] : 0;
        sum += x;
        if (!json) cli_print_score(c->model, ids.data[i], x);
        llm_text_format(&lps, i ? ", %f" : "null", x);
        llm_text_str(&tops, i ? ", " : "null");
        if (i) cli_add_top(&tops, top + i * (size_t)stride, counts[i], k);
    }
    double perplexity = ids.len > 1 ? exp(-sum / (double)(ids.len - 1)) : NAN;
    if (!json) printf("perplexity %.6g of %zu tokens, log-probability %.6f\n", perplexity, ids.len, sum);
    int answered = llm_request_get_output(request, 0, &out) == LLM_OK && out.top && out.n_token_ids;
    cli_add_top(&next, answered ? out.top : NULL, answered ? out.top_counts[0] : 0, k ? k : 5);
    llm_text_format(&t, "{'token_ids': %i, 'logprobs': [%t], ", ids.data, ids.len, &lps);
    if (k) llm_text_format(&t, "'top_logprobs': [%t], ", &tops);
    llm_text_format(&t, "'next': %t, 'n_tokens': %d, 'perplexity': ", &next, (int)ids.len);
    llm_text_num(&t, perplexity);
    llm_text_str(&t, "}\n");
    if (!json) llm_text_free(&t);
    cli_out(&t);
    llm_text_free(&tops);
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

/* Begins the call of a line {"custom_id": ..., "method": "POST", "url": "/v1/chat/completions", "body": {...}}. Whatever is wrong becomes
 * its answer; the others go on. */
static void cli_job_start(const llm_openai_service *service, cli_job *job, const char *line, size_t n, long number) {
    static const char *const urls[] = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"};
    static const llm_openai_kind kinds[] = {LLM_OPENAI_CHAT, LLM_OPENAI_COMPLETION, LLM_OPENAI_EMBEDDING, LLM_OPENAI_RESPONSE};
    llm_json *doc = NULL;
    llm_text body = {0};
    memset(job, 0, sizeof *job);
    if (llm_json_parse(line, n, NULL, &doc) || llm_json_type_of(doc, 0) != LLM_JSON_OBJECT) {
        llm_text_format(&job->line, "{'id':null,'custom_id':null,'response':null,'error':{'code':'invalid_line',");
        llm_text_format(&job->line, "'message':'line %l: a JSON object was expected'}}\n", (int64_t)number);
        llm_json_free(doc);
        return;
    }
    const char *url = llm_json_str(doc, llm_json_find(doc, 0, "url"), NULL);
    const char *method = llm_json_str(doc, llm_json_find(doc, 0, "method"), NULL);
    int kind = 0, id = llm_json_find(doc, 0, "custom_id");
    while (kind < CLI_COUNT(urls) && !(url && !strcmp(url, urls[kind]))) kind++;
    if (id >= 0) llm_json_write(doc, id, &job->id);
    llm_json_write(doc, llm_json_find(doc, 0, "body"), &body);
    job->call = llm_openai_begin(service, kinds[kind % CLI_COUNT(kinds)], body.data ? body.data : "", body.len, NULL);
    if (!job->call) cli_die(1, "memory: a request of %zu bytes did not fit", body.len);
    if (method && strcmp(method, "POST")) llm_openai_fail(job->call, 405, "method: POST was expected");
    else if (kind == CLI_COUNT(urls))
        llm_openai_fail(job->call, 404, "url: /v1/chat/completions, /v1/completions, /v1/embeddings or /v1/responses was expected");
    else if (llm_openai_get_info(job->call)->stream) llm_openai_fail(job->call, 400, "stream: true, a batch has none");
    llm_openai_submit(job->call);
    llm_text_free(&body);
    llm_json_free(doc);
}

/* Writes the line of a job that has come to its end: HTTP status and body, as the batch API has them. */
static void cli_job_poll(cli_job *job) {
    llm_text body = {0};
    if (!job->call || !llm_openai_next(job->call, &body)) return;
    const llm_openai_info *info = llm_openai_get_info(job->call);
    const char *id = info->status == 200 ? info->id : NULL;
    llm_text_format(&job->line, id ? "{'id':'batch_req_%s'," : "{'id':null,", id);
    llm_text_format(&job->line, "'custom_id':%s,'response':{'status_code':%d,'request_id':%q,'body':%t},'error':null}\n",
                    job->id.len ? job->id.data : "null", info->status, id, &body);
    llm_openai_free(job->call);
    job->call = NULL;
}

/* Bytes of f16 keys and values of one token. */
static int64_t cli_kv_bytes(const llm_model_info *i) {
    return 4 * (int64_t)i->n_layers * (i->n_kv_heads > 0 ? i->n_kv_heads : 1) * (i->head_dim > 0 ? i->head_dim : 1);
}

/* Opens the engine for a batch: 1 GiB of KV memory unless said otherwise, and no longer a context than fits it. */
static void cli_open_batch(cli_session *c) {
    cli_options *o = c->o;
    const llm_model_info *info = llm_model_get_info(c->model);
    if (!o->e.kv_cache_memory_bytes) o->e.kv_cache_memory_bytes = (int64_t)1 << 30;
    int64_t fits = o->e.kv_cache_memory_bytes / cli_kv_bytes(info) / 64 * 64;
    if (!o->e.max_model_len && (info->max_model_len <= 0 || fits < info->max_model_len))
        o->e.max_model_len = (int32_t)(fits < 1 << 24 ? fits : 1 << 24);
    if (!o->e.max_num_seqs) o->e.max_num_seqs = 16;
    cli_open_engine(c, 0, o->e.max_num_seqs);
    cli_defaults(c, 0);
}

/* Input and output files take the place of the standard streams. */
static void cli_redirect(const cli_options *o) {
    struct stat a, b;
    if (!o->in) cli_die(2, "--input: missing, a file with one request a line was expected (-: standard input)");
    if (strcmp(o->in, "-") && !freopen(o->in, "re", stdin)) cli_die(1, "%.60s: %s", o->in, strerror(errno));
    if (!o->out || !strcmp(o->out, "-")) return;
    if (!fstat(0, &a) && !stat(o->out, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev)
        cli_die(2, "--output-file: %.60s is the input too", o->out);
    if (!freopen(o->out, "we", stdout)) cli_die(1, "%.60s: %s", o->out, strerror(errno));
    cli_output = o->out;
}

/* The jobs are a ring. Fill it, run one step for all of it, take what has ended, write what is due: until no line and no job is left. */
static int cli_cmd_batch(cli_session *c) {
    const char *line = c->o->in; /* not NULL while there may be lines */
    size_t n = 0;
    long number = 0, head = 0, tail = 0; /* jobs head to tail - 1 are in flight */
    cli_redirect(c->o);
    cli_open_model(c, 0);
    cli_open_batch(c);
    int32_t window = 4 * c->o->e.max_num_seqs;
    cli_job *jobs = CLI_NEW(cli_job, window);
    while (line || head < tail) {
        while (line && tail - head < window && (line = cli_line(stdin, &n))) {
            number++;
            if (strspn(line, " \t") < n) cli_job_start(&c->service, &jobs[tail++ % window], line, n, number);
        }
        if (cli_interrupts) return 130;
        cli_check(llm_engine_step(c->engine, NULL));
        for (long i = head; i < tail; i++) cli_job_poll(&jobs[i % window]);
        for (; head < tail && !jobs[head % window].call; head++) {
            cli_out(&jobs[head % window].line);
            llm_text_free(&jobs[head % window].id);
            if (isatty(2) && !isatty(1)) fprintf(stderr, "\rbatch: %ld answered\x1b[K", head + 1);
        }
    }
    if (isatty(2) && !isatty(1)) fputs("\n", stderr);
    free(jobs);
    return 0;
}

/* ---------------------------------------------------------------------------
 * info: what a model file is, and whether it fits in memory with a cache for its whole context: weights as they are in the file,
 * and 2 (keys and values) x layers x heads x size x 2 bytes (f16) for each token of it. It is written as JSON; the text is made of that.
 * --------------------------------------------------------------------------- */

/* A number in a file of the kernel, by the pattern of its line; -1: it is not there. */
static int64_t cli_kernel_number(const char *path, const char *pattern) {
    char line[200];
    long long value = -1;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f) && sscanf(line, pattern, &value) != 1) continue;
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

/* Tensor types with their sums as JSON members. Few types are many tensors: those of a type are counted at the first of them. */
static void cli_add_types(const llm_model *model, llm_text *t) {
    int n = llm_model_get_info(model)->n_tensors;
    for (int first = 0; first < n; first++) {
        int64_t count = 0, sum = 0, bytes = 0;
        const char *type = NULL, *other = NULL;
        int seen = 0;
        llm_model_tensor(model, first, NULL, &type, NULL, NULL, NULL);
        for (int i = 0; i < n && !seen; i++) {
            llm_model_tensor(model, i, NULL, &other, NULL, NULL, &bytes);
            if (strcmp(type, other)) continue;
            seen = i < first;
            count++;
            sum += bytes;
        }
        if (!seen) llm_text_format(t, "%s%q: {'tensors': %l, 'bytes': %l}", t->len ? ", " : "", type, count, sum);
    }
}

/* An object as lines "name value", members of members further in; a number of bytes in MiB, a long text by its beginning. */
static void cli_print_object(const llm_json *doc, int object, int indent) {
    for (int v = llm_json_first(doc, object); v >= 0; v = llm_json_next(doc, v)) {
        const char *key = llm_json_key(doc, v, NULL), *text = llm_json_str(doc, v, NULL);
        int64_t number = 0;
        llm_text t = {0};
        llm_json_write(doc, v, &t);
        printf("%*s%-*s ", indent, "", 24 - indent, key);
        if (llm_json_type_of(doc, v) == LLM_JSON_OBJECT) {
            printf("\n");
            cli_print_object(doc, v, indent + 2);
        } else {
            if (strstr(key, "bytes") && llm_json_int(doc, v, &number)) printf("%.1f MiB", (double)number / 1048576);
            else cli_print(stdout, text ? text : t.data, strnlen(text ? text : t.data, text ? 100 : t.len), 0);
            printf("\n");
        }
        llm_text_free(&t);
    }
}

static int cli_cmd_info(cli_session *c) {
    llm_text t = {0}, types = {0};
    llm_json *doc = NULL;
    cli_open_model(c, 0);
    const llm_model_info *i = llm_model_get_info(c->model);
    int64_t context = cli_limit(c), kv = context * cli_kv_bytes(i), have = cli_free_memory(), need = i->weight_bytes + kv;
    cli_add_types(c->model, &types);
    llm_text_format(&t, "{'path': %q, 'format': %q, 'architecture': %q, 'family': %q, 'file_type': %q, 'tokenizer': %q, ", i->path, i->format,
                    i->architecture, i->family, i->file_type, i->tokenizer_kind);
    llm_text_format(&t, "'n_params': %l, 'n_layers': %d, 'hidden_size': %d, 'n_heads': %d, 'n_kv_heads': %d, 'head_dim': %d, ", i->n_params,
                    i->n_layers, i->hidden_size, i->n_heads, i->n_kv_heads, i->head_dim);
    llm_text_format(&t, "'vocab_size': %d, 'max_position_embeddings': %d, 'sliding_window': %d, 'n_experts': %d, 'n_experts_used': %d, ",
                    i->vocab_size, i->max_position_embeddings, i->sliding_window, i->n_experts, i->n_experts_used);
    llm_text_format(&t, "'bos_id': %d, 'eos_id': %d, 'stop_ids': %i, 'n_tensors': %d, 'tensor_types': {%t}, 'weight_bytes': %l, ", i->bos_id,
                    i->eos_id, i->stop_ids, (size_t)i->n_stop_ids, i->n_tensors, &types, i->weight_bytes);
    llm_text_format(&t, "'context': %l, 'kv_bytes': %l, 'bytes_needed': %l, 'bytes_available': %l, 'fits': %s, 'chat_template': %q}\n", context,
                    kv, need, have, have < 0 ? "null" : need <= have ? "true" : "false", i->chat_template);
    if (!c->o->json) {
        cli_check(llm_json_parse(t.data, t.len, NULL, &doc));
        cli_print_object(doc, 0, 0);
        llm_text_free(&t);
    }
    cli_out(&t);
    llm_json_free(doc);
    return 0;
}

/* ---------------------------------------------------------------------------
 * bench: the forward pass alone. pp: one prompt at position 0; tg: every step adds a token to each of b sequences, the choice of the
 * next (the most likely) counted. read_gb_s is what a step reads of the weights times steps a second; peak_gb_s is what all threads
 * read of 1 GiB of memory in the same run, so that the two can be compared: decoding cannot be faster than memory.
 * --------------------------------------------------------------------------- */

/* Runs fn in n threads, thread i with the i-th of the arguments of `size` bytes each, and waits for all. */
static void cli_threads(int n, void *(*fn)(void *), void *args, size_t size) {
    pthread_t *threads = CLI_NEW(pthread_t, n);
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, fn, (char *)args + (size_t)i * size))
            cli_die(1, "bench: no thread %d of %d could be started", i + 1, n);
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    free(threads);
}

typedef struct cli_reader {
    char *data;
    size_t n;
    const void *found;
} cli_reader;

/* Reads its part: looks for a byte that is not there. */
static void *cli_read_memory(void *arg) {
    cli_reader *r = (cli_reader *)arg;
    r->found = memchr(r->data, 1, r->n);
    return NULL;
}

/* GB/s of the best of four passes over 1 GiB, or 0 where so much memory cannot be had. */
static double cli_peak_bandwidth(int n_threads) {
    size_t bytes = (size_t)1 << 30, share = bytes / (size_t)n_threads;
    int64_t have = cli_free_memory();
    double best = 0;
    if (have >= 0 && have < (int64_t)bytes + (64 << 20)) return 0;
    char *data = (char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return 0;
    cli_reader *readers = CLI_NEW(cli_reader, n_threads);
    madvise(data, bytes, MADV_HUGEPAGE);
    memset(data, 2, bytes); /* pages that nobody has written are all the same one */
    for (int i = 0; i < n_threads; i++) readers[i] = (cli_reader){data + share * (size_t)i, share, NULL};
    for (int pass = 0; pass < 4; pass++) {
        double begin = cli_now();
        cli_threads(n_threads, cli_read_memory, readers, sizeof *readers);
        double rate = (double)bytes * 1e-9 / (cli_now() - begin);
        if (rate > best) best = rate;
    }
    munmap(data, bytes);
    free(readers);
    return best;
}

/* Bytes of weights that a step of one row reads: not the rows of an untied embedding, of the experts those used. */
static double cli_step_bytes(const llm_model *model) {
    const llm_model_info *info = llm_model_get_info(model);
    double total = 0, embedding = 0, share = info->n_experts > 0 ? (double)info->n_experts_used / info->n_experts : 1;
    int head = 0;
    for (int i = 0; i < info->n_tensors; i++) {
        const char *name = "";
        int64_t bytes = 0;
        llm_model_tensor(model, i, &name, NULL, NULL, NULL, &bytes);
        total += (strstr(name, "_exps") || strstr(name, ".experts") ? share : 1) * (double)bytes;
        if (strstr(name, "token_embd.weight") || strstr(name, "embed_tokens.weight") || strstr(name, "wte.weight"))
            embedding += (double)bytes;
        head |= !strcmp(name, "output.weight") || strstr(name, "lm_head.weight");
    }
    return head ? total - embedding : total;
}

static int cli_compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value that a share of n sorted ones lies below, between two of them by their distance, as in NumPy. */
static double cli_percentile(const double *sorted, int n, double share) {
    double at = share * (n - 1);
    int low = (int)at;
    if (n == 0) return 0;
    return low + 1 < n ? sorted[low] + (at - low) * (sorted[low + 1] - sorted[low]) : sorted[low];
}

typedef struct cli_bench {
    cli_session *c;
    int n_threads;
    char isa[40];
    double peak, step_bytes;
    double peak_ops;        /* billions a second, of all threads; 0: not measured */
    llm_spent *stage;       /* (LLM_SPENT_KINDS), then the sampler; NULL: not wanted */
    float *logits; /* (sequences, vocab) */
    int32_t vocab;
} cli_bench;

/* The parts of what took `seconds`: share of the time, and the rates within it beside the machine's. */
static void cli_bench_stages(const cli_bench *b, const char *test, double seconds) {
    static const char *const names[] = {"embed", "linear", "attention", "head", "norm", "sampler"};
    for (int i = 0; i <= LLM_SPENT_KINDS && b->stage; i++) {
        const llm_spent *s = &b->stage[i];
        llm_text t = {0};
        double read = s->seconds > 0 ? s->bytes / s->seconds * 1e-9 : 0, ops = s->seconds > 0 ? s->ops / s->seconds * 1e-9 : 0;
        llm_text_format(&t, "{'test': %q, 'stage': %q, 'share': %f, 'read_gb_s': %f, 'gops': %f, 'peak_gops': %f}\n", test, names[i],
                        s->seconds / seconds, read, ops, b->peak_ops);
        if (b->c->o->json) cli_out(&t);
        else printf("  %-9s %6.1f %% of the time %8.1f GB/s %5.0f %% %8.1f GOPS %5.0f %%\n", names[i], 100 * s->seconds / seconds, read,
                    b->peak > 0 ? 100 * read / b->peak : 0, ops, b->peak_ops > 0 ? 100 * ops / b->peak_ops : 0);
        llm_text_free(&t);
    }
}

static void *cli_bench_peak(void *arg) {
    double *rate = (double *)arg;
    *rate = llm_isa_peak(NULL);
    return NULL;
}

/* One test's rates as a row of the table or a line of JSON. */
static void cli_bench_row(const cli_bench *b, const char *test, double *rates, double steps_per_token) {
    llm_text t = {0}, list = {0};
    int n = b->c->o->repetitions;
    for (int i = 0; i < n; i++) llm_text_format(&list, i ? ", %f" : "%f", rates[i]);
    qsort(rates, (size_t)n, sizeof *rates, cli_compare_doubles);
    double median = cli_percentile(rates, n, 0.5), read = median * steps_per_token * b->step_bytes * 1e-9;
    llm_text_format(&t, "{'test': %q, 'tokens_per_s': [%t], 'median': %f, 'threads': %d, 'isa': %q, 'model': %q, ", test, &list, median,
                    b->n_threads, b->isa, llm_model_get_info(b->c->model)->path);
    llm_text_format(&t, "'read_gb_s': %f, 'peak_gb_s': %f}\n", read, b->peak);
    if (!b->c->o->json) {
        llm_text_free(&t);
        printf("%-10s %10.1f %10.1f %10.1f %9.1f %6.0f %%\n", test, median, rates[0], rates[n - 1], read,
               b->peak > 0 ? 100 * read / b->peak : 0);
    }
    cli_out(&t);
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
    const cli_options *o = b->c->o;
    double *rates = CLI_NEW(double, o->repetitions), begin = 0, total = 0, from;
    int32_t *seqs = CLI_NEW(int32_t, 4 * width), *positions = seqs + width, *counts = positions + width, *ids = counts + width;
    int32_t *prompt = CLI_NEW(int32_t, p + 16), rows = o->e.max_num_batched_tokens ? o->e.max_num_batched_tokens : 512;
    char test[40];
    for (int r = -1; r < o->repetitions; r++) {
        for (int s = 0; s < width; s++) { /* different prompts; for decoding also of different lengths */
            int len = p ? (r < 0 && p > 64 ? 64 : p) : 1 + s % 16;
            for (int i = 0; i < len; i++) prompt[i] = cli_synthetic(b, p ? r : s, i);
            begin = cli_now();
            cli_check(llm_forward(b->c->engine, s, 0, prompt, len, b->logits, 1));
            if (p && r >= 0) total += from = cli_now() - begin, rates[r] = p / from;
            ids[s] = llm_sample(b->logits, b->vocab, &greedy, 0, 0);
            seqs[s] = s, positions[s] = len, counts[s] = 1;
        }
        if (b->stage && r < (p ? 0 : o->repetitions)) memset(b->stage, 0, (LLM_SPENT_KINDS + 1) * sizeof *b->stage), total = 0;
        begin = cli_now();
        for (int i = 0; i < (r < 0 && n > 4 ? 4 : n) && !cli_interrupts; i++) {
            cli_check(llm_forward_batch(b->c->engine, width, seqs, positions, counts, ids, b->logits));
            for (int s = 0; s < width; s++) {
                from = b->stage ? cli_now() : 0;
                ids[s] = llm_sample(b->logits + (size_t)s * (size_t)b->vocab, b->vocab, &greedy, 0, i);
                if (b->stage) b->stage[LLM_SPENT_KINDS].seconds += cli_now() - from;
                positions[s]++;
            }
        }
        if (n && r >= 0) total += from = cli_now() - begin, rates[r] = (double)n * width / from;
        if (cli_interrupts) exit(130);
    }
    snprintf(test, sizeof test, p ? "pp%d" : width > 1 ? "tg%d@%d" : "tg%d", p ? p : n, width);
    cli_bench_row(b, test, rates, p ? (double)((p + rows - 1) / rows) / p : 1.0 / width);
    cli_bench_stages(b, test, total);
    free(rates), free(seqs), free(prompt);
}

/* The next number of a comma list, which goes on behind it; -p is a text for the other commands. */
static int cli_bench_number(const char *flag, const char **list, int low) {
    char *end;
    long n = strtol(*list, &end, 10);
    if (!isdigit((unsigned char)**list) || (*end && *end != ',') || n < low || n > 1000000)
        cli_die(2, "%s: %.60s, whole numbers from %d to 1000000 were expected", flag, *list, low);
    *list = end + (*end == ',');
    return (int)n;
}

static int cli_load_test(cli_session *c);

/* Prepares what all tests share, then runs them in turn. Memory is taken for the widest. */
static int cli_cmd_bench(cli_session *c) {
    const cli_options *o = c->o;
    const char *prompt = o->prompt ? o->prompt : "512";
    cli_bench b = {0};
    int widths[32], n_widths = 0, most = 1, p = cli_bench_number("--prompt", &prompt, 0), n = cli_given(o, "max-tokens") ? o->s.max_tokens : 128;
    cpu_set_t cpus;
    llm_engine_stats stats;
    if (o->url) return cli_load_test(c);
    for (const char *list = o->batch; *list && n_widths < CLI_COUNT(widths); n_widths++) {
        widths[n_widths] = cli_bench_number("--batch", &list, 1);
        if (n && widths[n_widths] > most) most = widths[n_widths];
    }
    if (n < 0) cli_die(2, "--max-tokens: %d, a whole number from 0 was expected", n);
    cli_open_model(c, 0);
    b.c = c;
    b.step_bytes = cli_step_bytes(c->model);
    b.n_threads = o->e.n_threads ? o->e.n_threads : sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    b.peak = cli_peak_bandwidth(b.n_threads);
    if (o->stages) {
        double *rate = CLI_NEW(double, b.n_threads);
        cli_threads(b.n_threads, cli_bench_peak, rate, sizeof *rate);
        for (int i = 0; i < b.n_threads; i++) b.peak_ops += rate[i];
        c->o->e.spent = b.stage = CLI_NEW(llm_spent, LLM_SPENT_KINDS + 1);
        free(rate);
    }
    cli_open_engine(c, (n && n + 32 > p ? n + 32 : p) + 1, most);
    llm_engine_get_stats(c->engine, &stats);
    sscanf(stats.backend, "%*[^:]: %39[^,]", b.isa);
    b.vocab = llm_logits_size(c->engine);
    b.logits = CLI_NEW(float, (size_t)b.vocab * (size_t)most);
    if (!o->json) {
        printf("%s, %s; memory reads %.1f GB/s", llm_model_get_info(c->model)->path, stats.backend, b.peak);
        printf(o->stages ? "; products of bytes %.1f GOPS\n" : "\n", b.peak_ops);
        printf("%-10s %10s %10s %10s %9s %8s\n", "test", "tokens/s", "slowest", "fastest", "GB/s", "of peak");
    }
    if (p) cli_bench_test(&b, p, 0, 1);
    for (int i = 0; i < n_widths && n; i++) cli_bench_test(&b, 0, n, widths[i]);
    free(b.logits), free(b.stage);
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

typedef struct cli_flight { /* one request */
    double start, sent, first, last; /* seconds; start: when it may be sent; first 0: nothing came */
    int64_t tokens;
    int n_gaps;
    double *gaps;    /* (output_len) between tokens */
    char error[120]; /* "": it went well */
} cli_flight;

typedef struct cli_load {
    const cli_options *o;
    char host[256], port[8], path[256];
    int next;            /* atomic: the next request that nobody has taken */
    double begin;
    cli_flight *flights; /* (num_prompts) */
} cli_load;

/* A stream to and from the server, opened by a blocking connect; NULL: nobody answers. */
static FILE *cli_connect(const cli_load *load) {
    struct addrinfo hints = {0}, *list = NULL;
    int fd = -1;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(load->host, load->port, &hints, &list)) return NULL;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen)) close(fd), fd = -1;
    }
    freeaddrinfo(list);
    return fd < 0 ? NULL : fdopen(fd, "r+");
}

/* One line of an answer: the status, or an event of the stream (an error has no "data:"). The sizes of chunks are lines of their own and
 * mean nothing here. */
static void cli_flight_line(const cli_load *load, cli_flight *f, const char *line) {
    const char *data = *line == '{' ? line : !strncmp(line, "data:", 5) ? line + 5 + strspn(line + 5, " ") : "";
    int status;
    llm_json *doc = NULL;
    if (sscanf(line, "HTTP/1.%*d %d", &status) == 1 && status != 200) snprintf(f->error, sizeof f->error, "HTTP status %d", status);
    if (!*data || llm_json_parse(data, strcspn(data, "\r\n"), NULL, &doc) != LLM_OK) return;
    const char *why = llm_json_str(doc, llm_json_find(doc, llm_json_find(doc, 0, "error"), "message"), NULL);
    if (why) snprintf(f->error, sizeof f->error, "%.100s", why);
    llm_json_int(doc, llm_json_find(doc, llm_json_find(doc, 0, "usage"), "completion_tokens"), &f->tokens);
    if (llm_json_size(doc, llm_json_find(doc, 0, "choices")) > 0) {
        double now = cli_now();
        if (f->first <= 0) f->first = now;
        else if (f->n_gaps < load->o->output_len) f->gaps[f->n_gaps++] = now - f->last;
        f->last = now;
    }
    llm_json_free(doc);
}

/* A prompt of synthetic ids, new ones in each run so that no prefix cache helps; then all lines of the answer. */
static void cli_flight_run(const cli_load *load, cli_flight *f, int index) {
    const cli_options *o = load->o;
    llm_text body = {0};
    uint32_t salt = (uint32_t)(o->s.seed ? o->s.seed : (int64_t)(load->begin * 1e3));
    char *line = NULL;
    size_t room = 0;
    FILE *server = cli_connect(load);
    llm_text_format(&body, "{'model':%q,'stream':true,'stream_options':{'include_usage':true},'temperature':0,'ignore_eos':true,'max_tokens':%d,"
                           "'prompt':[", o->model ? o->model : "default", o->output_len);
    for (int i = 0; i < o->input_len; i++)
        llm_text_format(&body, i ? ",%d" : "%d", (int)(20 + ((uint32_t)index * 7919u + (uint32_t)i * 104729u + salt) % 230u));
    llm_text_str(&body, "]}");
    f->sent = cli_now();
    if (!server || fprintf(server, "POST %s/v1/completions HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\nConnection: close\r\n"
                           "Content-Length: %zu\r\n\r\n%s", load->path, load->host, load->port, body.len, body.data) < 0 || fflush(server))
        snprintf(f->error, sizeof f->error, "%.80s:%s: no connection", load->host, load->port);
    while (server && getline(&line, &room, server) >= 0) cli_flight_line(load, f, line);
    if (server) fclose(server);
    if (!f->error[0] && f->first <= 0) snprintf(f->error, sizeof f->error, "the answer had no tokens");
    free(line);
    llm_text_free(&body);
}

/* One thread: takes the next request, waits for its time, measures it. */
static void *cli_load_worker(void *arg) {
    cli_load *load = (cli_load *)arg;
    for (int i; (i = __atomic_fetch_add(&load->next, 1, __ATOMIC_RELAXED)) < load->o->num_prompts && !cli_interrupts;) {
        cli_flight *f = &load->flights[i];
        double wait = load->begin + f->start - cli_now();
        if (wait > 0) usleep((useconds_t)(wait * 1e6));
        f->gaps = CLI_NEW(double, load->o->output_len);
        cli_flight_run(load, f, i);
    }
    return NULL;
}

/* The values of metric m, in milliseconds, of all requests that went well; returns how many. */
static int cli_load_values(const cli_load *load, int m, double *values) {
    int n = 0;
    for (int i = 0; i < load->o->num_prompts; i++) {
        const cli_flight *f = &load->flights[i];
        double span = f->last - f->first;
        if (f->error[0]) continue;
        for (int k = 0; m == 2 && k < f->n_gaps; k++) values[n++] = f->gaps[k] * 1e3;
        if (m == 0) values[n++] = (f->first - f->sent) * 1e3;
        if (m == 1 && f->tokens > 1) values[n++] = span * 1e3 / (double)(f->tokens - 1);
        if (m == 3) values[n++] = (f->last - f->sent) * 1e3;
    }
    return n;
}

/* Throughput, then mean, median and P99 of each metric. */
static void cli_load_report(const cli_load *load, int failed, double seconds) {
    static const char *const names[][2] = {{"TTFT", "ttft"}, {"TPOT", "tpot"}, {"ITL", "itl"}, {"E2EL", "e2el"}};
    const cli_options *o = load->o;
    int done = o->num_prompts - failed;
    int64_t tokens = 0;
    double *v = CLI_NEW(double, (size_t)o->num_prompts * (size_t)o->output_len);
    llm_text t = {0};
    for (int i = 0; i < o->num_prompts; i++) tokens += load->flights[i].error[0] ? 0 : load->flights[i].tokens;
    double requests = done / seconds, out = (double)tokens / seconds, total = out + requests * o->input_len;
    llm_text_format(&t, "{'completed': %d, 'failed': %d, 'duration': %f, 'request_throughput': %f, 'output_throughput': %f, ", done, failed,
                    seconds, requests, out);
    llm_text_format(&t, "'total_token_throughput': %f", total);
    if (!o->json)
        printf("requests %d done, %d failed in %.2f s: %.2f requests/s, %.1f tokens/s out, %.1f in and out\n", done, failed, seconds,
               requests, out, total);
    for (int m = 0; m < CLI_COUNT(names); m++) {
        const char *name = names[m][1];
        double sum = 0;
        int n = cli_load_values(load, m, v);
        qsort(v, (size_t)n, sizeof *v, cli_compare_doubles);
        for (int i = 0; i < n; i++) sum += v[i];
        double mean = n ? sum / n : 0, p50 = cli_percentile(v, n, 0.5), p99 = cli_percentile(v, n, 0.99);
        llm_text_format(&t, ", 'mean_%s_ms': %f, 'median_%s_ms': %f, 'p99_%s_ms': %f", name, mean, name, p50, name, p99);
        if (!o->json) printf("%-6s mean %9.2f ms   P50 %9.2f ms   P99 %9.2f ms\n", names[m][0], mean, p50, p99);
    }
    llm_text_str(&t, "}\n");
    if (!o->json) llm_text_free(&t);
    cli_out(&t);
    free(v);
}

/* The base URL may end in /v1 or not. Requests start at once, or at random times of the given rate. */
static int cli_load_test(cli_session *c) {
    const cli_options *o = c->o;
    cli_load load = {o, "", "80", "", 0, 0, NULL};
    uint64_t x = 88172645463325252u + (uint64_t)o->s.seed;
    int n = o->num_prompts, failed = 0, bad = 0;
    int parts = sscanf(o->url, "http://%255[^:/]:%7[0-9]%255[^?#]", load.host, load.port, load.path);
    if (parts < 2) parts = sscanf(o->url, "http://%255[^:/]%255[^?#]", load.host, load.path);
    if (parts < 1 || load.path[0] == ':') cli_die(2, "--url: %.60s, http://HOST:PORT was expected", o->url);
    size_t len = strlen(load.path);
    while (len && load.path[len - 1] == '/') load.path[--len] = 0;
    if (len >= 3 && !strcmp(load.path + len - 3, "/v1")) load.path[len - 3] = 0;
    load.flights = CLI_NEW(cli_flight, n);
    for (int i = 1; i < n && o->request_rate > 0; i++) { /* exponential gaps make a Poisson process */
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        load.flights[i].start = load.flights[i - 1].start - log(((double)(x >> 11) + 1) / 9007199254740993.0) / (double)o->request_rate;
    }
    load.begin = cli_now();
    cli_threads(o->max_concurrency < n ? o->max_concurrency : n, cli_load_worker, &load, 0);
    double seconds = cli_now() - load.begin;
    if (cli_interrupts) return 130;
    for (int i = 0; i < n; i++)
        if (load.flights[i].error[0]) failed++, bad = i;
    if (failed < n) cli_load_report(&load, failed, seconds);
    if (failed) cli_die(1, "--url: %.60s: %d of %d requests failed: %s", o->url, failed, n, load.flights[bad].error);
    for (int i = 0; i < n; i++) free(load.flights[i].gaps);
    free(load.flights);
    return 0;
}

/* ---------------------------------------------------------------------------
 * The line editor: raw mode, UTF-8 with display widths, history, bracketed paste. A key is read as one number (cli_key), which changes the
 * text or the cursor (cli_edit_key); then the whole text is laid out and drawn again. The line breaks are written by us, so that
 * nothing depends on how a terminal wraps.
 *
 * The few control sequences that are used (ECMA-48, in every terminal since the VT100): ESC [ n A, cursor up n rows; ESC [ n C, right n
 * columns; ESC [ J, erase to the end; ESC [ H, to the top; ESC [ ? 2004 h, mark pastes with ESC [ 200 ~ and ESC [ 201 ~. The
 * cursor's place is never asked for: `row` remembers how far below the prompt's first row it was left.
 * --------------------------------------------------------------------------- */

enum { CLI_EDIT_TEXT, CLI_EDIT_END, CLI_EDIT_INTERRUPT }; /* how an edit ended */

#define KEY_CTRL(letter) ((letter) & 31)
/* Keys beside bytes and control keys. */
enum { KEY_END = -1, KEY_SIGNAL = -2, KEY_LATE = -3, KEY_NONE = 256, KEY_DELETE, KEY_WORD_LEFT, KEY_WORD_RIGHT, KEY_KILL_WORD, KEY_NEW_LINE, KEY_PASTE, KEY_PASTED };

typedef struct cli_editor {
    llm_text text;
    size_t cursor; /* byte offset */
    FILE *tty;
    int row;       /* of the cursor as drawn */
    int pasting;   /* between the marks of a paste; behind a carriage return there: 2 */
    struct termios cooked;
    char **history; /* (n_history), owned */
    int n_history, at; /* at: n_history is the new line */
    char *fresh;       /* the new line while older ones are looked at */
    char path[4300];   /* file of the history */
} cli_editor;

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

/* The place behind the character at `at`, with the marks on it, which have no width. */
static size_t cli_edit_next(const cli_editor *e, size_t at) {
    int32_t cp = 0;
    for (size_t begin = at, n = 0; at < e->text.len; at += n) {
        n = cli_char(e->text.data + at, e->text.len - at, &cp);
        if (at > begin && (cp < 0 || wcwidth((wchar_t)cp))) break;
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
    size_t tail = e->text.len - to;
    llm_text_add(&e->text, s, n); /* makes room */
    memmove(e->text.data + from + n, e->text.data + to, tail);
    memcpy(e->text.data + from, s, n);
    e->text.len = from + n + tail;
    e->text.data[e->text.len] = 0;
    e->cursor = from + n;
}

/* The text as rows of a screen of `cols` columns, with line breaks; where the cursor is; the last row's number. */
static int cli_edit_layout(const cli_editor *e, const char *prompt, int cols, llm_text *rows, int *cursor_row, int *cursor_col) {
    int row = 0, col = (int)strlen(prompt);
    llm_text_str(rows, prompt);
    for (size_t i = 0;;) {
        int32_t cp = ' ';
        size_t n = i < e->text.len ? cli_char(e->text.data + i, e->text.len - i, &cp) : 0;
        int width = wcwidth((wchar_t)cp), shown = width >= 0, w = cp == '\n' ? 0 : shown ? width : 1;
        if (col + w > cols) llm_text_str(rows, "\n"), row++, col = 0;
        if (i == e->cursor) *cursor_row = row, *cursor_col = col;
        if (!n) return row;
        if (cp == '\n') llm_text_str(rows, "\n  "), row++, col = 2;
        else llm_text_add(rows, shown ? e->text.data + i : "?", shown ? n : 1), col += w;
        i += n;
    }
}

/* Draws prompt and text with the cursor in its place; of a text taller than the screen the part around the cursor. */
static void cli_edit_draw(cli_editor *e, const char *prompt, int final) {
    struct winsize size = {0};
    llm_text rows = {0}, out = {0};
    int cursor_row = 0, cursor_col = 0, r = 0;
    if (ioctl(fileno(e->tty), TIOCGWINSZ, &size) || size.ws_col < 8) size.ws_col = 80, size.ws_row = 24;
    int last = cli_edit_layout(e, prompt, size.ws_col, &rows, &cursor_row, &cursor_col);
    int height = size.ws_row > 1 ? size.ws_row : 1, top = cursor_row - height / 2; /* rows top to last are shown */
    if (top + height > last + 1) top = last + 1 - height;
    if (top < 0) top = 0;
    if (last > top + height - 1) last = top + height - 1;
    if (e->row) llm_text_format(&out, "\x1b[%dA", e->row);
    llm_text_str(&out, "\r\x1b[J");
    for (size_t i = 0; i < rows.len; i++) {
        if (rows.data[i] == '\n') llm_text_str(&out, r >= top && r < last ? "\r\n" : ""), r++;
        else if (r >= top && r <= last) llm_text_add(&out, rows.data + i, 1);
    }
    if (!final && last > cursor_row) llm_text_format(&out, "\x1b[%dA", last - cursor_row);
    if (final) llm_text_str(&out, "\r\n");
    else llm_text_format(&out, cursor_col ? "\r\x1b[%dC" : "\r", cursor_col);
    fwrite(out.data, 1, out.len, e->tty);
    fflush(e->tty); /* or a key would show late */
    e->row = final ? 0 : cursor_row - top;
    llm_text_free(&rows);
    llm_text_free(&out);
}

/* Next byte of the terminal, or a negative key: at its end, when a signal came, when wait_ms passed. */
static int cli_key_byte(int wait_ms) {
    unsigned char c;
    struct pollfd p = {0, POLLIN, 0};
    int ready = poll(&p, 1, wait_ms);
    if (ready <= 0) return ready ? KEY_SIGNAL : KEY_LATE;
    ssize_t n = read(0, &c, 1);
    return n == 1 ? c : n < 0 && errno == EINTR ? KEY_SIGNAL : KEY_END;
}

/* A key: a byte, or what an escape sequence stands for, mostly the control key that does the same in Emacs and readline. */
static int cli_key(int wait_ms) {
    static const struct { const char *sequence; int key; } table[] = {
        {"[A", KEY_CTRL('P')}, {"[B", KEY_CTRL('N')}, {"[C", KEY_CTRL('F')}, {"[D", KEY_CTRL('B')}, {"[H", KEY_CTRL('A')}, {"[F", KEY_CTRL('E')},
        {"[1~", KEY_CTRL('A')}, {"[7~", KEY_CTRL('A')}, {"[4~", KEY_CTRL('E')}, {"[8~", KEY_CTRL('E')}, {"[3~", KEY_DELETE}, {"[200~", KEY_PASTE}, {"[201~", KEY_PASTED},
        {"b", KEY_WORD_LEFT}, {"f", KEY_WORD_RIGHT}, {"d", KEY_KILL_WORD}, {"\x7f", KEY_CTRL('W')}, {"\r", KEY_NEW_LINE}, {"\n", KEY_NEW_LINE}};
    char seq[24] = {0};
    int c = cli_key_byte(wait_ms);
    if (c != 27) return c;
    /* ESC [ and ESC O are followed by anything up to a letter or ~; after ESC alone comes the key that Alt was held with. */
    for (int n = 0; n < 20 && (c = cli_key_byte(50)) >= 0;) {
        seq[n] = (char)(!n && c == 'O' ? '[' : c);
        n++;
        if (seq[0] != '[' || (n > 1 && c >= 64)) break;
    }
    if (strchr(seq, ';') && (c == 'C' || c == 'D')) return c == 'C' ? KEY_WORD_RIGHT : KEY_WORD_LEFT; /* with shift, alt or control */
    for (int i = 0; i < CLI_COUNT(table); i++)
        if (!strcmp(table[i].sequence, seq)) return table[i].key;
    return KEY_NONE;
}

/* Shows an older or newer line; the new one is kept while older ones are looked at. */
static void cli_edit_history(cli_editor *e, int step) {
    int at = e->at + step;
    if (at < 0 || at > e->n_history) return;
    if (e->at == e->n_history) free(e->fresh), e->fresh = strdup(e->text.data);
    e->at = at;
    const char *line = at == e->n_history ? e->fresh : e->history[at];
    cli_edit_replace(e, 0, e->text.len, line, strlen(line));
}

/* Text: the byte c and the rest of its code point. */
static void cli_edit_insert(cli_editor *e, int c) {
    char s[4] = {(char)c};
    int n = 1, want = c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    int32_t cp;
    for (int b; n < want && (b = cli_key_byte(100)) >= 0;) s[n++] = (char)b;
    cli_char(s, (size_t)n, &cp);
    if (cp >= 32 || cp == '\t') cli_edit_replace(e, e->cursor, e->cursor, s, (size_t)n);
}

/* What one key does. Returns -1 to go on, else how the edit ended. */
static int cli_edit_key(cli_editor *e, int c) {
    size_t at = e->cursor, end = e->text.len;
    if (e->pasting && c >= 0 && (c < 32 || c > 255)) { /* no control key there; every kind of line end is a newline */
        int cr = e->pasting == 2;
        e->pasting = c == KEY_PASTED ? 0 : c == '\r' ? 2 : 1;
        if (c == '\t' || c == '\r' || (c == '\n' && !cr)) cli_edit_replace(e, at, at, c == '\t' ? "\t" : "\n", 1);
        return -1;
    }
    switch (c) {
    case KEY_NONE: case KEY_SIGNAL: case KEY_PASTED: break;
    case KEY_LATE: e->pasting = 0; break;
    case KEY_END: return CLI_EDIT_END;
    case '\r': case '\n': return CLI_EDIT_TEXT;
    case KEY_CTRL('C'): return CLI_EDIT_INTERRUPT;
    case KEY_CTRL('D'):
        if (!end) return CLI_EDIT_END; /* fall through */
    case KEY_DELETE: cli_edit_replace(e, at, cli_edit_next(e, at), "", 0); break;
    case KEY_CTRL('H'): case 127: cli_edit_replace(e, cli_edit_back(e, at), at, "", 0); break;
    case KEY_CTRL('W'): cli_edit_replace(e, cli_edit_word(e, at, 0), at, "", 0); break;
    case KEY_KILL_WORD: cli_edit_replace(e, at, cli_edit_word(e, at, 1), "", 0); break;
    case KEY_CTRL('U'): cli_edit_replace(e, 0, at, "", 0); break;
    case KEY_CTRL('K'): cli_edit_replace(e, at, end, "", 0); break;
    case KEY_CTRL('A'): e->cursor = 0; break;
    case KEY_CTRL('E'): e->cursor = end; break;
    case KEY_CTRL('B'): e->cursor = cli_edit_back(e, at); break;
    case KEY_CTRL('F'): e->cursor = cli_edit_next(e, at); break;
    case KEY_WORD_LEFT: case KEY_WORD_RIGHT: e->cursor = cli_edit_word(e, at, c == KEY_WORD_RIGHT); break;
    case KEY_CTRL('P'): case KEY_CTRL('N'): cli_edit_history(e, c == KEY_CTRL('N') ? 1 : -1); break;
    case KEY_CTRL('L'): fputs("\x1b[H\x1b[2J", e->tty), e->row = 0; break;
    case KEY_NEW_LINE: cli_edit_replace(e, at, at, "\n", 1); break;
    case KEY_PASTE: e->pasting = 1; break;
    case KEY_CTRL('Z'):
        cli_tty_mode(e, 0, 0);
        raise(SIGTSTP);
        cli_tty_mode(e, 1, 0);
        break;
    default: cli_edit_insert(e, c);
    }
    return -1;
}

/* Reads one message into e->text. */
static int cli_edit(cli_editor *e, const char *prompt) {
    int end = -1;
    struct pollfd more = {0, POLLIN, 0};
    e->text.len = 0;
    llm_text_add(&e->text, "", 0);
    e->cursor = 0, e->row = 0, e->at = e->n_history;
    cli_tty_mode(e, 1, 0);
    fputs("\x1b[?2004h", e->tty); /* pastes come between marks from now on */
    cli_edit_draw(e, prompt, 0);
    while (end < 0) {
        int c = cli_key(e->pasting ? 2000 : -1); /* a paste whose end never comes is over then */
        end = cli_edit_key(e, c);
        if (end >= 0) e->cursor = e->text.len;
        if (end >= 0 || c == KEY_SIGNAL || poll(&more, 1, 0) == 0) cli_edit_draw(e, prompt, end >= 0); /* not for each byte of a burst */
    }
    fputs("\x1b[?2004l", e->tty);
    fflush(e->tty);
    cli_tty_mode(e, 0, 0);
    return end;
}

/* Adds a line to the history and, as a JSON string, to its file (NULL: none). */
static void cli_history_add(cli_editor *e, const char *line, FILE *file) {
    llm_text t = {0};
    if (e->n_history && !strcmp(e->history[e->n_history - 1], line)) return;
    e->history = (char **)realloc((void *)e->history, (size_t)(e->n_history + 1) * sizeof *e->history);
    if (!e->history || !(e->history[e->n_history++] = strdup(line))) cli_die(1, "memory: no room for the history");
    llm_text_format(&t, "%q\n", line);
    if (file) fputs(t.data, file);
    llm_text_free(&t);
}

/* Reads $XDG_STATE_HOME/llm_cli/history, one JSON string a line, and makes its folder. One grown to 4 MiB begins anew, for nobody looks that
 * far back. */
static void cli_history_open(cli_editor *e) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int given = state && *state == '/';
    struct stat st;
    size_t n;
    snprintf(e->path, sizeof e->path, "%.4000s%s/llm_cli/history", given ? state : home ? home : "", given ? "" : "/.local/state");
    for (char *slash = e->path + 1; (slash = strchr(slash, '/')); *slash++ = '/') *slash = 0, mkdir(e->path, 0700);
    if (!stat(e->path, &st) && st.st_size > 4 << 20) unlink(e->path);
    FILE *f = fopen(e->path, "re");
    for (char *line; f && (line = cli_line(f, &n));) {
        llm_json *doc = NULL;
        if (llm_json_parse(line, n, NULL, &doc) == LLM_OK && llm_json_str(doc, 0, NULL)) cli_history_add(e, llm_json_str(doc, 0, NULL), NULL);
        llm_json_free(doc);
    }
    if (f) fclose(f);
}

/* Appends to the file, which nobody else may read. */
static void cli_history_save(cli_editor *e, const char *line) {
    int fd = open(e->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "a") : NULL;
    cli_history_add(e, line, f);
    if (f) fclose(f);
}

/* ---------------------------------------------------------------------------
 * The conversation at a terminal. The messages are kept as JSON text, just as requests, /save and /load want them: a message
 * is added by appending, and taken back by cutting. Each turn renders and submits the whole conversation; the engine's prefix
 * cache knows all but the latest words of it.
 * --------------------------------------------------------------------------- */

typedef struct cli_talk {
    cli_session *c;
    cli_editor e;
    llm_text messages; /* elements of an array: {...}, {...} */
    size_t asked;      /* their length up to and with the latest user message; 0: nothing was asked */
} cli_talk;

/* Adds a message; where the latest question ends is remembered for /regen. */
static void cli_talk_push(cli_talk *k, const char *role, const char *text, size_t n) {
    cli_add_message(&k->messages, role, text, n);
    if (!strcmp(role, "user")) k->asked = k->messages.len;
}

/* Takes back all messages behind the first n bytes of them. */
static void cli_talk_cut(cli_talk *k, size_t n) {
    k->messages.len = n;
    llm_text_add(&k->messages, "", 0);
}

/* Answers the last message. 0: it could not be, and why was told. */
static int cli_talk_answer(cli_talk *k) {
    llm_text what = {0};
    llm_text_format(&what, "'messages':[%s]", k->messages.data);
    cli_defaults(k->c, 2048);
    k->c->service.defaults.n = k->c->service.defaults.best_of = 1;
    cli_tty_mode(&k->e, 1, 1); /* keys pressed now are for the next message; Ctrl-C is a signal */
    int code = cli_call(k->c, LLM_OPENAI_CHAT, &what, NULL);
    cli_tty_mode(&k->e, 0, 0);
    cli_interrupts = 0;
    if (code && code != 130) cli_say("llm_cli: ", "%s", cli_why);
    else cli_talk_push(k, "assistant", k->c->said.data, k->c->said.len);
    return !code || code == 130;
}

/* A new message; one that cannot be answered is taken back. */
static void cli_talk_ask(cli_talk *k, const char *text, size_t n) {
    size_t before = k->messages.len, asked = k->asked;
    cli_talk_push(k, "user", text, n);
    if (cli_talk_answer(k)) return;
    cli_talk_cut(k, before);
    k->asked = asked;
}

/* The commands of a conversation get what stands behind their name. */

/* Forgets all but the system message. */
static void cli_talk_reset(cli_talk *k, char *rest) {
    const char *system = k->c->o->system;
    (void)rest;
    cli_talk_cut(k, 0);
    k->asked = 0;
    if (system && *system) cli_talk_push(k, "system", system, strlen(system));
}

/* Cuts behind the latest user message and answers it again. */
static void cli_talk_regen(cli_talk *k, char *rest) {
    (void)rest;
    if (!k->asked) {
        fputs("nothing was asked yet\n", stderr);
        return;
    }
    cli_talk_cut(k, k->asked);
    cli_talk_answer(k);
}

/* Beside a saved FILE stands FILE.kv: what the conversation has in the KV cache, so that who goes on with it computes nothing again. Nothing is
 * said of a file that is not there, or of a conversation too short to be kept. */
static void cli_talk_keep(cli_talk *k, const char *path, llm_openai_kind kind) {
    const char *slash = strrchr(path, '/');
    llm_text what = {0}, name = {0}, folder = {0};
    llm_json *doc = NULL;
    int64_t n = 0;
    int load = kind == LLM_OPENAI_CONTEXT_LOAD;
    llm_text_add(&folder, slash ? path : ".", slash ? (size_t)(slash - path) : 1);
    llm_text_str(&name, slash ? slash + 1 : path);
    llm_text_str(&name, ".kv");
    llm_text_format(&what, "'name':%q,'messages':[%s]", name.data, k->messages.data);
    k->c->service.context_dir = folder.data;
    int code = cli_call(k->c, kind, &what, &doc);
    if (!code && llm_json_int(doc, llm_json_find(doc, 0, "tokens"), &n))
        cli_say("", "%lld tokens of context %s", (long long)n, load ? "loaded" : "saved");
    else if (load && !strstr(cli_why, "no such file")) cli_say("llm_cli: ", "%s", cli_why);
    llm_json_free(doc);
    llm_text_free(&name);
    llm_text_free(&folder);
}

/* The conversation as {"messages": [...]}, which /load and the chat API read. */
static void cli_talk_save(cli_talk *k, char *path) {
    FILE *f = fopen(path, "we");
    int ok = f && fprintf(f, "{\"messages\": [%s]}\n", k->messages.data) > 0;
    if (f && fclose(f)) ok = 0;
    cli_say("", ok ? "saved" : "not saved: %s", strerror(errno));
    if (ok) cli_talk_keep(k, path, LLM_OPENAI_CONTEXT_SAVE);
}

/* What is no message with a role and a text is left out. A file that cannot be read changes nothing. */
static void cli_talk_load(cli_talk *k, char *path) {
    llm_json *doc = NULL;
    llm_text t = {0};
    size_t n;
    int ok = cli_read(path, &t) && cli_try(llm_json_parse(t.data, t.len, NULL, &doc)), loaded = 0;
    if (ok) cli_talk_cut(k, k->asked = 0);
    for (int m = llm_json_first(doc, llm_json_find(doc, 0, "messages")); m >= 0; m = llm_json_next(doc, m)) {
        const char *role = llm_json_str(doc, llm_json_find(doc, m, "role"), NULL),
                   *text = llm_json_str(doc, llm_json_find(doc, m, "content"), &n);
        if (role && text) cli_talk_push(k, role, text, n), loaded++;
    }
    if (ok) cli_say("", "%d messages loaded", loaded);
    else cli_say("llm_cli: ", "%s", cli_why);
    if (loaded) cli_talk_keep(k, path, LLM_OPENAI_CONTEXT_LOAD);
    llm_json_free(doc);
    llm_text_free(&t);
}

/* NAME VALUE: the sampling options by the names of the command line, and the system message. What is wrong changes nothing: the option's
 * place is kept and put back. */
static void cli_talk_set(cli_talk *k, char *rest) {
    cli_options *o = k->c->o;
    size_t n = strcspn(rest, " =");
    const char *value = rest + n + strspn(rest + n, " =");
    const llm_option *option = llm_options_find(&o->by_name, rest, n);
    llm_text t = {0}, scratch = {0};
    llm_json *doc = NULL;
    rest[n] = 0;
    if (!option || !*value || !(option->group == CLI_SAMPLING || option->at == AT(system))) {
        fputs("/set NAME VALUE; names are those of the sampling options, system, chat-template-kwargs\n", stderr);
        return;
    }
    void *place = (char *)o + option->at;
    unsigned char *given = &o->given[option - cli_table], was = *given;
    llm_option_list before; /* the widest that an option is */
    memcpy(&before, place, sizeof before);
    if (option->kind == LIST) memset(place, 0, sizeof before);
    llm_text_format(&t, "{%q: %q}", rest, value); /* a JSON value, because its text is owned by the option reader */
    cli_check(llm_json_parse(t.data, t.len, NULL, &doc));
    int ok = cli_try(llm_options_json(&o->by_name, doc, 0, LLM_FROM_USER, NULL)) && cli_add_members(o, &scratch);
    if (!ok) cli_say("llm_cli: ", "%s", cli_why);
    if (option->kind == LIST) free((void *)(ok ? before.items : ((llm_option_list *)place)->items));
    if (!ok) memcpy(place, &before, sizeof before), *given = was;
    llm_json_free(doc);
    llm_text_free(&t);
    llm_text_free(&scratch);
    llm_text_free(&cli_notes);
    if (ok && option->at == AT(system) && !k->asked) cli_talk_reset(k, rest);
    else if (ok && option->at == AT(system)) fputs("it counts from the next /reset on\n", stderr);
}

/* The model and what the next answer will be sampled with. */
static void cli_talk_show(cli_talk *k, char *rest) {
    const llm_model_info *i = llm_model_get_info(k->c->model);
    const char *system = k->c->o->system;
    const llm_sampling *s = &k->c->service.defaults;
    llm_engine_stats stats;
    (void)rest;
    cli_defaults(k->c, 2048);
    llm_engine_get_stats(k->c->engine, &stats);
    cli_say("", "model %s (%s, %s), context %d tokens, %s", i->path, i->architecture, i->file_type ? i->file_type : "", stats.max_model_len,
            stats.backend);
    cli_say("", "temperature %g, top-p %g, top-k %d, min-p %g, repetition-penalty %g, max-tokens %d", (double)s->temperature,
            (double)s->top_p, s->top_k, (double)s->min_p, (double)s->repetition_penalty, k->c->service.max_tokens);
    cli_say("", "system: %s", system && *system ? system : "(none)");
}

static const struct {
    const char *name, *argument, *help; /* argument "": none */
    void (*run)(cli_talk *k, char *rest);
} cli_talk_commands[] = {
    {"/reset", "", "forget the conversation", cli_talk_reset},
    {"/regen", "", "answer the last message again", cli_talk_regen},
    {"/set", "NAME VALUE", "temperature, top-p, max-tokens, seed, system, ...", cli_talk_set},
    {"/show", "", "model and settings", cli_talk_show},
    {"/save", "FILE", "the conversation as JSON", cli_talk_save},
    {"/load", "FILE", "go on with a saved one", cli_talk_load},
    {"/exit", "", "leave (or Ctrl-D)", NULL},
};

/* A line that begins with '/'. 0: leave. */
static int cli_talk_command(cli_talk *k, char *line) {
    size_t n = strcspn(line, " ");
    char *rest = line + n + strspn(line + n, " ");
    line[n] = 0;
    for (int i = 0; i < CLI_COUNT(cli_talk_commands); i++) {
        if (strcmp(line, cli_talk_commands[i].name) || (*cli_talk_commands[i].argument && !*rest)) continue;
        if (!cli_talk_commands[i].run) return 0;
        cli_talk_commands[i].run(k, rest);
        return 1;
    }
    if (strcmp(line, "/help")) fputs("no such command; these are there:\n", stderr);
    for (int i = 0; i < CLI_COUNT(cli_talk_commands); i++)
        fprintf(stderr, "%s %-*s %s\n", cli_talk_commands[i].name, 17 - (int)strlen(cli_talk_commands[i].name), cli_talk_commands[i].argument,
                cli_talk_commands[i].help);
    fputs("Alt-Enter begins a new line, a paste stays one message, Ctrl-C stops an answer.\n", stderr);
    return 1;
}

/* Reads, answers, until Ctrl-D, /exit or two Ctrl-C. */
static int cli_interactive(cli_session *c) {
    static cli_talk k;
    int interrupts = 0, leave = 0;
    llm_engine_stats stats;
    k.c = c;
    k.e.tty = isatty(1) ? stdout : stderr;
    if (tcgetattr(0, &k.e.cooked)) cli_die(1, "terminal: %s", strerror(errno));
    cli_open_model(c, 0);
    const llm_model_info *info = llm_model_get_info(c->model);
    if (!info->chat_template)
        cli_die(1, "%.60s: no chat template, use the command generate or give --chat-template FILE", info->path);
    int32_t limit = cli_limit(c);
    cli_open_engine(c, c->o->e.max_model_len ? c->o->e.max_model_len : limit > 0 && limit < 8192 ? limit : 8192, 1);
    cli_history_open(&k.e);
    cli_talk_reset(&k, NULL);
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
    free((void *)k.e.history), free(k.e.fresh);
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
    printf("usage: llm_cli [COMMAND] [options]\n\nCommands (without one: chat)\n");
    for (int i = 0; cli_commands[i].help; i++) printf("  %-11s %s\n", cli_commands[i].name, cli_commands[i].help);
    for (int g = 0; g < CLI_COUNT(titles); g++) {
        llm_text_format(&t, "\n%s\n", titles[g]);
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
        cli_die(2, "%.60s: no such command or file; commands are chat, generate, score, tokenize, detokenize, render, batch, bench, info", word);
}

/* Reads everything that was said; returns the command. */
static const struct cli_command *cli_parse(cli_options *o, int argc, char **argv) {
    static char max_tokens[] = "--max-tokens";
    const struct cli_command *command = NULL;
    llm_option_list words = {0};
    cli_options_init(o);
    if (argc > 1 && (!strcmp(argv[1], "quantize") || !strcmp(argv[1], "convert-eagle"))) cli_parse_word(o, argv[1], &command);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) cli_help(o);
        if (!strcmp(argv[i], "-n")) argv[i] = max_tokens; /* "n" alone is the number of answers, as in JSON */
        if (strcmp(argv[i], "--version")) continue;
        printf("llm_cli %s (instruction sets: %s)\n", LLM_VERSION_STRING, llm_isa_list());
        cli_write("", 0);
        exit(0);
    }
    if (llm_options_argv(&o->by_name, argc, argv, &words) != LLM_OK) cli_die(2, "%s", llm_last_error());
    for (int i = 0; i < words.n; i++) cli_parse_word(o, words.items[i], &command);
    free((void *)words.items);
    if (llm_options_environment(&o->by_name, "LLM_ARG_", getenv) != LLM_OK) cli_die(2, "%s", llm_last_error());
    if (o->visible_devices) setenv("CUDA_VISIBLE_DEVICES", o->visible_devices, 0);
    if (o->config && llm_options_file(&o->by_name, o->config) != LLM_OK) cli_die(2, "%s", llm_last_error());
    cli_finish(o);
    return command ? command : &cli_commands[0];
}

static void cli_on_signal(int number) { /* the first interrupt is waited for until the step ends; a second one is impatience */
    if (number == SIGINT && ++cli_interrupts > 1) _exit(130);
}

/* Every command gets what was said and leaves its exit status. */
int main(int argc, char **argv) {
    static cli_options options;
    static cli_session c;
    struct sigaction action;
    for (int fd = 0; fd < 3; fd++) /* a closed standard stream must not become a model's file */
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_RDWR) < 0) return 1;
    memset(&action, 0, sizeof action);
    action.sa_handler = cli_on_signal;
    sigaction(SIGINT, &action, NULL); /* no SA_RESTART: a read is interrupted */
    sigaction(SIGWINCH, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (!setlocale(LC_CTYPE, "C.UTF-8")) setlocale(LC_CTYPE, ""); /* for mbrtowc and wcwidth; numbers stay as they are in C */
    c.o = &options;
    int code = cli_parse(&options, argc, argv)->run(&c);
    cli_write("", 0);
    cli_show_notes();
    llm_engine_close(c.engine);
    llm_model_close(c.model);
    llm_text_free(&c.said);
    llm_options_free(&options.by_name);
    return code;
}
