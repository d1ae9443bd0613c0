/* llm_cli.c - the command line of llm.h: chat, generate, tokenize, score, measure.
 *
 * It uses the public part of llm.h only, so it is an example of it too. Read from the bottom: main, then the cli_cmd_* function of a
 * command. One table of options (cli_table) serves the command line, LLM_ARG_* in the environment, a config file, /set in a chat and
 * the bodies of batch files.
 *
 * Answers and JSON go to standard output, everything else to standard error. Exit 0 done, 1 failed, 2 usage, 130 interrupted;
 * a failure ends with one line "llm_cli: error: what: value, what was expected". */
#define _GNU_SOURCE
#include "llm.h"

#include <ctype.h>
#include <dirent.h>
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
#include <strings.h>
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
 * Messages and output. What is quoted may be hostile: a control character is shown as \xNN, a message is one line.
 * --------------------------------------------------------------------------- */

static volatile sig_atomic_t cli_interrupts; /* SIGINTs so far */
static char cli_why[700];                    /* why the latest cli_bad refused something */
static llm_text cli_notes;                   /* lines that wait until the work has begun, so that an error stands alone */

/* Ends the program with the error line. */
#define cli_die(code, ...) (cli_say("llm_cli: error: ", __VA_ARGS__), exit(code))
/* Remembers why something was refused; the value 0 makes "return cli_bad(...)" read as failure. */
#define cli_bad(...) cli_refused(snprintf(cli_why, sizeof cli_why, __VA_ARGS__))

static int cli_refused(int printed) {
    (void)printed;
    return 0;
}

/* Appends text in which no terminal finds a command: C0 and C1 controls, DEL and bidirectional marks become \xNN;
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
    if ((n && fwrite(s, 1, n, stdout) != n) || fflush(stdout) != 0) {
        cli_die(1, "standard output: %s, an open file or pipe was expected", errno == EPIPE ? "closed by its reader" : strerror(errno));
    }
    llm_text_free(&safe);
}

static void cli_out(llm_text *t) { /* writes and frees */
    if (t->failed) cli_die(1, "memory: an answer of %zu bytes did not fit", t->len);
    cli_write(t->data ? t->data : "", t->len);
    llm_text_free(t);
}

static void cli_add(llm_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void cli_add(llm_text *t, const char *format, ...) {
    char piece[1200];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    llm_text_add(t, piece, n < 0 ? 0 : n < (int)sizeof piece ? (size_t)n : sizeof piece - 1);
}

/* Appends JSON: ' stands for ", and %d int, %l int64_t, %f double, %s text as it is, %q quoted text (NULL: null), %Q quoted bytes
 * and their number, %i ids and their number, %t an llm_text, which is freed. JSON has no infinity: it is written as vLLM does. */
static void cli_json(llm_text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    for (const char *f = format; *f; f++) {
        if (*f != '%') {
            llm_text_add(t, *f == '\'' ? "\"" : f, 1);
            continue;
        }
        f++;
        if (*f == 'd') llm_text_int(t, va_arg(args, int));
        if (*f == 'l') llm_text_int(t, va_arg(args, int64_t));
        if (*f == 's') llm_text_str(t, va_arg(args, const char *));
        if (*f == 'f') {
            double x = va_arg(args, double);
            llm_text_num(t, isfinite(x) ? x : x > 0 ? 9999.0 : -9999.0);
        } else if (*f == 'q' || *f == 'Q') {
            const char *s = va_arg(args, const char *);
            size_t n = *f == 'Q' ? va_arg(args, size_t) : s ? strlen(s) : 0;
            if (s || n) llm_text_json(t, s, n);
            else llm_text_str(t, *f == 'Q' ? "\"\"" : "null");
        } else if (*f == 'i') {
            const int32_t *ids = va_arg(args, const int32_t *);
            size_t n = va_arg(args, size_t);
            llm_text_str(t, "[");
            for (size_t i = 0; i < n; i++) cli_json(t, i ? ",%d" : "%d", ids[i]);
            llm_text_str(t, "]");
        } else if (*f == 't') {
            llm_text *piece = va_arg(args, llm_text *);
            llm_text_add(t, piece->data ? piece->data : "", piece->len);
            t->failed |= piece->failed;
            llm_text_free(piece);
        }
    }
    va_end(args);
}

/* Length of the code point at s (at least 1), its value in *cp (-1: a bad byte). */
static size_t cli_utf8(const char *s, size_t n, int32_t *cp) {
    unsigned char c = (unsigned char)s[0];
    size_t len = c < 0x80 ? 1 : c >= 0xC2 && c < 0xE0 ? 2 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
    int32_t v = len == 1 ? c : c & (0xFF >> (len + 1));
    *cp = -1;
    if (!len || len > n) return 1;
    for (size_t i = 1; i < len; i++) {
        if (((unsigned char)s[i] & 0xC0) != 0x80) return 1;
        v = v << 6 | (s[i] & 0x3F);
    }
    if ((len == 3 && v < 0x800) || (len == 4 && (v < 0x10000 || v > 0x10FFFF)) || (v >= 0xD800 && v < 0xE000)) return 1;
    *cp = v;
    return len;
}

static double cli_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------------------
 * Options: one table for the command line, the environment, a config file, /set in a chat and the bodies of batch files.
 * --------------------------------------------------------------------------- */

typedef struct cli_options {
    llm_sampling s; /* first: what was said, to be laid over the model's defaults */
    llm_engine_config e;
    llm_model_config m;
    const char *model, *cuda_library, *config, *prompt, *file, *system, *token_ids, *in, *out, *batch, *url;
    const char *early_stop_config, *logit_bias, *template_kwargs, *reasoning_parser, *logprobs_text;
    llm_option_list stop, bad_words, stop_ids;
    int32_t device, log_level, prefix_cache, json, jsonl, add_special, parse_special, skip_special, top_logprobs, logprobs, early_stop;
    int32_t do_preprocess, stream, echo, repetitions, max_concurrency, num_prompts, input_len, output_len;
    float request_rate;
    unsigned char given[96]; /* by index of cli_table: the source that set it */
    llm_options by_name;     /* fills in this struct */
    int32_t *ids;            /* parsed forms of the lists above, owned */
    llm_logit_bias *bias;
} cli_options;

enum { CLI_HIDDEN = -1, CLI_MODEL, CLI_SAMPLING, CLI_IO, CLI_BENCH }; /* groups of the help */

#define AT(field) offsetof(cli_options, field)
#define MAX_INT 2147483647.0
#define TEXT LLM_OPTION_TEXT
#define INT LLM_OPTION_INT
#define INT64 LLM_OPTION_INT64
#define FLOAT LLM_OPTION_FLOAT
#define BOOL LLM_OPTION_BOOL
#define ENUM LLM_OPTION_ENUM
#define LIST LLM_OPTION_LIST
#define IGNORED LLM_OPTION_IGNORED
#define IGNORED_FLAG LLM_OPTION_IGNORED_FLAG
#define REFUSED LLM_OPTION_REFUSED

/* clang-format off */
static const llm_option cli_table[] = {
    {"m|model", TEXT, CLI_MODEL, AT(model), 0, 0, "PATH", "GGUF file, folder, or ORG/NAME in the Hugging Face cache"},
    {"tokenizer", TEXT, CLI_MODEL, AT(m.tokenizer), 0, 0, "PATH", "tokenizer of another folder or file"},
    {"t|threads", INT, CLI_MODEL, AT(e.n_threads), 1, 1024, "N", "threads (all cores)"},
    {"device", ENUM, CLI_MODEL, AT(device), 0, 0, "auto|cpu=1|cuda=2", "where to compute"},
    {"cuda-library", TEXT, CLI_MODEL, AT(cuda_library), 0, 0, "PATH", "libllm_cuda.so (beside this program)"},
    {"isa", TEXT, CLI_MODEL, AT(e.isa), 0, 0, "NAME", "instruction set: scalar, avx2, avxvnni, avx512, avx512vnni, neon"},
    {"tp|tensor-parallel-size", INT, CLI_MODEL, AT(e.tensor_parallel_size), 1, 64, "N", "ranks that share every layer"},
    {"dtype", ENUM, CLI_MODEL, AT(e.dtype), 0, 0, "auto|float32=1|float=1|f32=1|bfloat16=2|bf16=2|float16=3|half=3|f16=3",
     "arithmetic"},
    {"c|max-model-len|ctx-size|session-len", INT, CLI_MODEL, AT(e.max_model_len), 1, MAX_INT, "N",
     "context: tokens of prompt and answer"},
    {"allow-long-max-model-len", BOOL, CLI_MODEL, AT(e.allow_long_max_model_len), 0, 0, "", "let it exceed the model's own length"},
    {"kv-cache-dtype|ctk", ENUM, CLI_MODEL, AT(e.kv_cache_dtype), 0, 0,
     "auto|fp8=4|fp8_e4m3=4|fp8_e5m2=5|int8=6|int4=7|q8_0=6|q4_0=7|float32=1|f32=1|float16=2|f16=2|bfloat16=3|bf16=3",
     "type of the KV cache"},
    {"kv-cache-memory-bytes", INT64, CLI_MODEL, AT(e.kv_cache_memory_bytes), 1, 9e18, "N",
     "memory of the KV cache (what the run needs)"},
    {"np|max-num-seqs|max-batch-size|parallel", INT, CLI_MODEL, AT(e.max_num_seqs), 1, 4096, "N",
     "batch: sequences that run together (16)"},
    {"max-num-batched-tokens", INT, CLI_MODEL, AT(e.max_num_batched_tokens), 1, 65536, "N", "tokens of one step (512)"},
    {"block-size", ENUM, CLI_MODEL, AT(e.block_size), 0, 0, "16=16|32=32|64=64|128=128", "tokens of a KV page (32)"},
    {"load-format", ENUM, CLI_MODEL, AT(m.dummy_weights), 0, 0, "auto|dummy=1", "dummy: random weights from config.json alone"},
    {"log-level", ENUM, CLI_MODEL, AT(log_level), 0, 0, "error|warn=1|warning=1|info=2|debug=3",
     "what is told on standard error (warn)"},

    {"max-tokens|max-new-tokens|request-output-len|max-completion-tokens|n-predict", INT, CLI_SAMPLING, AT(s.max_tokens), -1, MAX_INT,
     "N", "longest answer, also -n; -1: to the end of the context (generate 256, chat 2048; bench: decoded tokens, 128)"},
    {"temperature|temp", FLOAT, CLI_SAMPLING, AT(s.temperature), 0, 2, "X", "0: the most likely token, always"},
    {"top-k", INT, CLI_SAMPLING, AT(s.top_k), -1, MAX_INT, "N", "of the N most likely; 0 or -1: all"},
    {"top-p", FLOAT, CLI_SAMPLING, AT(s.top_p), 0, 1, "X", "of the fewest that reach this probability"},
    {"min-p", FLOAT, CLI_SAMPLING, AT(s.min_p), 0, 1, "X", "none below this share of the best"},
    {"min-tokens|min-new-tokens", INT, CLI_SAMPLING, AT(s.min_tokens), 0, MAX_INT, "N", "no end before"},
    {"repetition-penalty|repeat-penalty", FLOAT, CLI_SAMPLING, AT(s.repetition_penalty), 1e-6, 2, "X", "above 0 to 2; 1: none"},
    {"presence-penalty", FLOAT, CLI_SAMPLING, AT(s.presence_penalty), -2, 2, "X", "-2 to 2"},
    {"frequency-penalty", FLOAT, CLI_SAMPLING, AT(s.frequency_penalty), -2, 2, "X", "-2 to 2"},
    {"seed|random-seed", INT64, CLI_SAMPLING, AT(s.seed), -9.3e18, 9.3e18, "N", "the same seed gives the same answer"},
    {"num-answers|n", INT, CLI_SAMPLING, AT(s.n), 1, 128, "N", "answers to one prompt, also --n"},
    {"best-of", INT, CLI_SAMPLING, AT(s.best_of), 1, 128, "N", "the likeliest of so many"},
    {"stop|stop-words", LIST, CLI_SAMPLING, AT(stop), 0, 0, "TEXT", "ends the answer; may be repeated"},
    {"stop-token-ids", LIST, CLI_SAMPLING, AT(stop_ids), 0, 0, "IDS", "ids that end the answer: 1,2 or [1,2]"},
    {"bad-words", LIST, CLI_SAMPLING, AT(bad_words), 0, 0, "TEXT", "must not appear; may be repeated"},
    {"ignore-eos", BOOL, CLI_SAMPLING, AT(s.ignore_eos), 0, 0, "", "EOS does not end the answer"},
    {"include-stop-str-in-output", BOOL, CLI_SAMPLING, AT(s.include_stop_str_in_output), 0, 0, "", "the text keeps what ended it"},
    {"logit-bias", TEXT, CLI_SAMPLING, AT(logit_bias), 0, 0, "JSON", "{\"id\": -100 to 100, ...} added to the logits"},
    {"enable-early-stop", BOOL, CLI_SAMPLING, AT(early_stop), 0, 0, "", "end an answer that repeats itself"},
    {"early-stop-config", TEXT, CLI_SAMPLING, AT(early_stop_config), 0, 0, "JSON",
     "{\"enable_early_stop\", \"strategy\", \"window_size\", \"threshold\"}"},
    {"skip-special-tokens", BOOL, CLI_SAMPLING, AT(skip_special), 0, 0, "", "--no-: special tokens appear in the text"},

    {"p|prompt", TEXT, CLI_IO, AT(prompt), 0, 0, "TEXT", "the prompt; bench: number of prompt tokens (512)"},
    {"f|file", TEXT, CLI_IO, AT(file), 0, 0, "FILE", "the prompt from a file; -: standard input"},
    {"token-ids", TEXT, CLI_IO, AT(token_ids), 0, 0, "IDS", "the prompt as ids: '[1,2]'"},
    {"sys|system|system-prompt", TEXT, CLI_IO, AT(system), 0, 0, "TEXT", "system message of a chat"},
    {"chat-template|chat-template-file", TEXT, CLI_IO, AT(m.chat_template), 0, 0, "FILE", "chat template: a file, or its text"},
    {"chat-template-kwargs", TEXT, CLI_IO, AT(template_kwargs), 0, 0, "JSON", "template variables: '{\"enable_thinking\": false}'"},
    {"reasoning-parser", TEXT, CLI_IO, AT(reasoning_parser), 0, 0, "NAME", "how reasoning is marked (as the template says)"},
    {"json", BOOL, CLI_IO, AT(json), 0, 0, "", "the result as JSON"},
    {"jsonl", BOOL, CLI_IO, AT(jsonl), 0, 0, "", "one JSON value a line, in and out"},
    {"add-special", BOOL, CLI_IO, AT(add_special), 0, 0, "", "tokenize: BOS and EOS as the model says"},
    {"parse-special", BOOL, CLI_IO, AT(parse_special), 0, 0, "", "tokenize: text may become special tokens"},
    {"logprobs", TEXT, CLI_IO, AT(logprobs_text), 0, 0, "N", "log-probabilities of each token and the N likeliest"},
    {"top-logprobs", INT, CLI_IO, AT(top_logprobs), 0, MAX_INT, "K", "score: the K likeliest at each place"},
    {"i|input", TEXT, CLI_IO, AT(in), 0, 0, "FILE", "batch: requests, one JSON object a line"},
    {"o|output-file", TEXT, CLI_IO, AT(out), 0, 0, "FILE", "batch: answers"},
    {"config", TEXT, CLI_IO, AT(config), 0, 0, "FILE", "JSON object of options by name"},

    {"b|batch", TEXT, CLI_BENCH, AT(batch), 0, 0, "LIST", "sequences decoded together: 1,8,16 (1)"},
    {"r|repetitions", INT, CLI_BENCH, AT(repetitions), 1, 1000, "N", "times each test runs (5)"},
    {"url", TEXT, CLI_BENCH, AT(url), 0, 0, "URL", "load test of a server: http://127.0.0.1:8180"},
    {"request-rate", FLOAT, CLI_BENCH, AT(request_rate), 1e-3, 1e6, "X", "requests a second, Poisson (all at once)"},
    {"max-concurrency", INT, CLI_BENCH, AT(max_concurrency), 1, 1024, "N", "requests in flight at most (64)"},
    {"num-prompts", INT, CLI_BENCH, AT(num_prompts), 1, 1e6, "N", "requests in all (64)"},
    {"random-input-len", INT, CLI_BENCH, AT(input_len), 1, 1e6, "N", "prompt tokens (128)"},
    {"random-output-len", INT, CLI_BENCH, AT(output_len), 1, 1e6, "N", "answer tokens (64)"},

    {"stream", BOOL, CLI_HIDDEN, AT(stream), 0, 0, "", ""},
    {"echo", BOOL, CLI_HIDDEN, AT(echo), 0, 0, "", ""},
    {"do-preprocess", BOOL, CLI_HIDDEN, AT(do_preprocess), 0, 0, "", ""},
    {"quant-policy", ENUM, CLI_HIDDEN, AT(e.kv_cache_dtype), 0, 0, "0|4=7|8=6", ""},
    {"enable-prefix-caching|cache-prompt", BOOL, CLI_HIDDEN, AT(prefix_cache), 0, 0, "", ""},
    {"gpu-memory-utilization", FLOAT, CLI_HIDDEN, AT(e.gpu_memory_utilization), 0.01, 1, "X", ""},
    {"q|quantization|model-format", IGNORED, CLI_HIDDEN, 0, 0, 0, "NAME", "the file says what it is"},
    {"host|port|metrics-port|api-key|model-name|served-model-name|a|alias|eviction-type|prefill-interval|scheduler-delay-factor|"
     "num-scheduler-steps",
     IGNORED, CLI_HIDDEN, 0, 0, 0, "VALUE", "it belongs to llm_serve"},
    {"cache-max-entry-count|num-gpu-blocks|num-cpu-blocks|swap-space", IGNORED, CLI_HIDDEN, 0, 0, 0, "N",
     "the KV cache takes what the run needs"},
    {"engine-worker-queue-port|distributed-executor-backend", IGNORED, CLI_HIDDEN, 0, 0, 0, "VALUE", "one process does everything"},
    {"max-seq-len-to-capture|cuda-graph-sizes|rope-scaling-factor", IGNORED, CLI_HIDDEN, 0, 0, 0, "VALUE",
     "the model's configuration and the device decide"},
    {"use-logn-attn|enforce-eager", IGNORED_FLAG, CLI_HIDDEN, 0, 0, 0, "", "the model's configuration and the device decide"},
    {"trust-remote-code", IGNORED_FLAG, CLI_HIDDEN, 0, 0, 0, "", "nothing of a model folder is ever executed"},
    {"use-tqdm|disable-log-requests|disable-log-stats", IGNORED_FLAG, CLI_HIDDEN, 0, 0, 0, "", "progress is shown on a terminal only"},
    {"enable-chunked-prefill|use-v2-block-manager|disable-async-output-proc", IGNORED_FLAG, CLI_HIDDEN, 0, 0, 0, "",
     "this engine always works that way"},
    {"j|json-schema|regex|grammar|guided-json|guided-regex|guided-choice|guided-grammar|response-format", REFUSED, CLI_HIDDEN, 0, 0, 0,
     "", "structured output"},
    {"use-beam-search|length-penalty", REFUSED, CLI_HIDDEN, 0, 0, 0, "", "beam search"},
    {"enable-lora|lora-modules|lora|adapters|max-loras|max-lora-rank|max-cpu-loras", REFUSED, CLI_HIDDEN, 0, 0, 0, "", "adapters"},
    {"md|speculative-model|speculative-config|num-speculative-tokens|speculative-draft-tensor-parallel-size", REFUSED, CLI_HIDDEN, 0, 0,
     0, "", "speculation"},
    {"image", REFUSED, CLI_HIDDEN, 0, 0, 0, "", "images"},
    {"pp|pipeline-parallel-size", REFUSED, CLI_HIDDEN, 0, 0, 0, "", "pipeline parallelism"},
};
/* clang-format on */

static void cli_options_init(cli_options *o) {
    memset(o, 0, sizeof *o);
    o->logprobs = -1;
    o->skip_special = o->do_preprocess = o->prefix_cache = 1;
    o->log_level = LLM_LOG_WARN;
    o->by_name.table = cli_table;
    o->by_name.n = CLI_COUNT(cli_table);
    o->by_name.target = o;
    o->by_name.given = o->given;
}

static void cli_options_free(cli_options *o) {
    llm_options_free(&o->by_name);
    free(o->ids);
    free(o->bias);
}

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
    cli_json(&list, text[strspn(text, " \t\r\n")] == '[' ? "%s" : "[%s]", text);
    int ok = llm_json_parse(list.data ? list.data : "", list.len, NULL, &doc) == LLM_OK && llm_json_type_of(doc, 0) == LLM_JSON_ARRAY;
    for (int i = ok ? llm_json_first(doc, 0) : -1; ok && i >= 0; i = llm_json_next(doc, i)) {
        ok = llm_json_int(doc, i, &id) && id >= 0 && id <= INT32_MAX;
        if (ok) llm_tokens_add(out, (int32_t)id);
    }
    llm_json_free(doc);
    llm_text_free(&list);
    return ok && !out->failed ? 1 : cli_bad("%s: %s, token ids as '[1,2]' were expected", said, cli_clip(text));
}

static int cli_parse_logit_bias(cli_options *o) {
    const char *text = o->logit_bias ? o->logit_bias : "{}";
    llm_json *doc = NULL;
    size_t len;
    int64_t id = 0;
    double bias = 0;
    int ok = llm_json_parse(text, strlen(text), NULL, &doc) == LLM_OK && llm_json_type_of(doc, 0) == LLM_JSON_OBJECT;
    free(o->bias);
    o->bias = CLI_NEW(llm_logit_bias, llm_json_size(doc, 0));
    o->s.n_logit_bias = 0;
    for (int i = ok ? llm_json_first(doc, 0) : -1; ok && i >= 0; i = llm_json_next(doc, i)) {
        llm_logit_bias *b = &o->bias[o->s.n_logit_bias++];
        ok = cli_whole(llm_json_key(doc, i, &len), 0, INT32_MAX, &id) && llm_json_num(doc, i, &bias);
        b->id = (int32_t)id;
        b->bias = (float)(bias > 100 ? 100 : bias < -100 ? -100 : bias); /* clamped, as in vLLM */
    }
    llm_json_free(doc);
    o->s.logit_bias = o->bias;
    return ok ? 1 : cli_bad("--logit-bias: %s, a JSON object {\"id\": bias} was expected", cli_clip(text));
}

/* What one value alone cannot show: early stop, logit bias, lists of ids, names, UTF-8. 0 with cli_why. */
static int cli_finish(cli_options *o) {
    llm_tokens ids = {0};
    char have[120], want[40];
    const char *texts[] = {o->prompt ? o->prompt : "", o->system ? o->system : ""};
    int64_t k = -1;
    int32_t cp = 0;
    for (int t = 0; t < 2; t++) {
        for (size_t i = 0, n = strlen(texts[t]); i < n;) {
            i += cli_utf8(texts[t] + i, n - i, &cp);
            if (cp < 0) return cli_bad("%s: not UTF-8, UTF-8 text was expected", t ? "--system" : "-p, --prompt");
        }
    }
    for (int i = 0; i < o->stop_ids.n; i++) {
        if (!cli_parse_ids("--stop-token-ids", o->stop_ids.items[i], &ids)) return 0;
    }
    for (int i = 0; i < o->stop.n; i++) {
        if (!*o->stop.items[i]) return cli_bad("--stop: an empty text, at least one character was expected");
    }
    free(o->ids);
    o->ids = ids.data;
    o->s.stop_token_ids = ids.data, o->s.n_stop_token_ids = (int32_t)ids.len;
    o->s.stop = o->stop.items, o->s.n_stop = o->stop.n;
    o->s.bad_words = o->bad_words.items, o->s.n_bad_words = o->bad_words.n;
    const char *lp = o->logprobs_text;
    if (lp && !strcmp(lp, "true")) o->logprobs = o->top_logprobs; /* a chat body's */
    else if (lp && strcmp(lp, "false") && !cli_whole(lp, 0, INT32_MAX - 1, &k))
        return cli_bad("--logprobs: %s, a whole number from 0 was expected", cli_clip(lp));
    if (k >= 0) o->logprobs = (int32_t)k;
    if (o->reasoning_parser && llm_reasoning_named(o->reasoning_parser) < 0) {
        return cli_bad("--reasoning-parser: %s, a name as qwen3, deepseek_r1 or none was expected", cli_clip(o->reasoning_parser));
    }
    snprintf(have, sizeof have, " %s ", llm_isa_list());
    snprintf(want, sizeof want, " %s ", o->e.isa ? o->e.isa : "scalar");
    if (!strstr(have, want)) return cli_bad("--isa: %s, this CPU has: %s", cli_clip(o->e.isa), llm_isa_list());
    if (!o->early_stop_config && o->early_stop) o->early_stop_config = "{\"enable_early_stop\": true}";
    if (o->early_stop_config && llm_early_stop_parse(o->early_stop_config, o->early_stop, &o->s.early_stop) != LLM_OK)
        return cli_bad("%s", llm_last_error());
    return cli_parse_logit_bias(o);
}

/* Lays what was said over `s`. */
static void cli_overlay(const cli_options *o, llm_sampling *s) {
    for (int i = 0; i < CLI_COUNT(cli_table); i++) {
        const llm_option *opt = &cli_table[i];
        if (!o->given[i] || opt->at >= sizeof *s || opt->kind >= LIST || opt->kind == TEXT) continue;
        memcpy((char *)s + opt->at, (const char *)o + opt->at, opt->kind == INT64 ? 8 : 4);
        if (opt->at == AT(s.seed)) s->has_seed = 1;
        if (opt->at == AT(s.top_p) && s->top_p <= 0) s->top_p = 1e-6f; /* the struct's 0 is "off"; 0 said aloud leaves the best token */
    }
    if (o->s.n_stop) s->stop = o->s.stop, s->n_stop = o->s.n_stop;
    if (o->s.n_bad_words) s->bad_words = o->s.bad_words, s->n_bad_words = o->s.n_bad_words;
    if (o->s.n_stop_token_ids) s->stop_token_ids = o->s.stop_token_ids, s->n_stop_token_ids = o->s.n_stop_token_ids;
    if (o->s.n_logit_bias) s->logit_bias = o->s.logit_bias, s->n_logit_bias = o->s.n_logit_bias;
    if (o->early_stop_config) s->early_stop = o->s.early_stop;
    if (!o->skip_special) s->skip_special_tokens_off = 1;
    if (o->logprobs >= 0) s->logprobs = o->logprobs < INT32_MAX ? o->logprobs + 1 : INT32_MAX;
}

/* The model's own defaults and what was said over them, so that an explicit 0 stays 0. 0 with cli_why. */
static int cli_sampling(const cli_options *o, const llm_model *model, int32_t max_tokens, llm_sampling *s) {
    llm_sampling_default(model, s);
    s->max_tokens = max_tokens;
    cli_overlay(o, s);
    if (s->max_tokens == 0) return cli_bad("--max-tokens: 0, a whole number from 1, or -1, was expected");
    return llm_sampling_check(model, s) == LLM_OK ? 1 : cli_bad("%s", llm_last_error());
}

/* ---------------------------------------------------------------------------
 * Where options come from: the command line, the environment, a config file.
 * --------------------------------------------------------------------------- */

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

static void cli_read_config(cli_options *o) {
    llm_text text = {0};
    llm_json *doc = NULL;
    if (!cli_read(o->config, &text)) cli_die(2, "--config: %s", cli_why);
    if (llm_json_parse(text.data, text.len, NULL, &doc) != LLM_OK || llm_json_type_of(doc, 0) != LLM_JSON_OBJECT) {
        cli_die(2, "--config: %s: a JSON object of options was expected", cli_clip(o->config));
    }
    if (llm_options_json(&o->by_name, doc, 0, LLM_FROM_FILE, NULL) != LLM_OK)
        cli_die(2, "--config: %s: %s", cli_clip(o->config), llm_last_error());
    llm_json_free(doc);
    llm_text_free(&text);
}

/* LLM_ARG_MAX_TOKENS=8 and so on, and the variables that the documents name. */
static void cli_read_environment(cli_options *o) {
    /* clang-format off */
    static const char no_meaning[][36] = { /* the first three: attention */
        "USE_PFA_HIGH_PRECISION_MODE", "USE_IFA_HIGH_PRECISION_MODE", "USE_PREFIX_HIGH_PRECISION_MODE", "HCCL_OP_EXPANSION_MODE",
        "PYTORCH_NPU_ALLOC_CONF", "INFER_MODE", "PTA_TORCHAIR_DECODE_GEAR_ENABLE", "PTA_TORCHAIR_DECODE_GEAR_LIST",
        "VLLM_IMAGE_FETCH_TIMEOUT",
        "VLLM_ENGINE_ITERATION_TIMEOUT_S", "ENABLE_SPEC_METRIC", "EAGLE_USE_SAFE_AI_LAB_STYLE"};
    /* clang-format on */
    if (llm_options_environment(&o->by_name, "LLM_ARG_", getenv) != LLM_OK) cli_die(2, "%s", llm_last_error());
    for (int i = 0; i < CLI_COUNT(no_meaning); i++) {
        llm_text line = {0};
        if (getenv(no_meaning[i]))
            cli_json(&line, "%s has no effect%s", no_meaning[i], i < 3 ? ": attention always accumulates in float32" : " here");
        if (line.len) cli_note(NULL, line.data);
        llm_text_free(&line);
    }
    const char *devices = getenv("ASCEND_RT_VISIBLE_DEVICES"), *allow = getenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN"),
               *library = getenv("LLM_CUDA_LIBRARY");
    if (devices) setenv("CUDA_VISIBLE_DEVICES", devices, 0);
    if (allow && !strcmp(allow, "1")) o->e.allow_long_max_model_len = 1;
    if (library && *library && !o->cuda_library) o->cuda_library = library;
}

/* The commands; `help` NULL: a later version. */
static const struct cli_command {
    const char *name, *help;
} cli_commands[] = {
    {"chat", "one answer to -p or standard input; at a terminal a conversation"},
    {"generate", "continue -p TEXT, -f FILE or --token-ids without a template"},
    {"score", "log-probability of every token of a text"},
    {"tokenize", "text on standard input to ids"},
    {"detokenize", "ids on standard input to text"},
    {"render", "a chat template: JSON {messages, ...} to the prompt's text"},
    {"batch", "OpenAI batch file: -i in.jsonl -o out.jsonl"},
    {"bench", "tokens a second; with --url a load test of a server"},
    {"info", "what a model file is and whether it fits in memory"},
    {"quantize", NULL},
    {"convert-eagle", NULL},
};

static void cli_help(const cli_options *o) {
    static const char *const titles[] = {"Model and device", "Sampling", "Input and output", "Measuring"};
    llm_text t = {0};
    llm_text_str(&t, "usage: llm_cli [COMMAND] [options]\n\nCommands (without one: chat)\n");
    for (int i = 0; cli_commands[i].help; i++) cli_add(&t, "  %-11s %s\n", cli_commands[i].name, cli_commands[i].help);
    for (int g = 0; g < CLI_COUNT(titles); g++) {
        cli_add(&t, "\n%s\n", titles[g]);
        llm_options_help(&o->by_name, g, &t);
    }
    llm_text_str(
        &t, "\nSpellings: --a b, --a=b, _ for -, --no-a for switches. Every option also as\nLLM_ARG_NAME in the environment and by name "
            "in --config FILE.\nExit: 0 done, 1 failed, 2 usage, 130 interrupted.\n");
    cli_out(&t);
    exit(0);
}

/* A word that is no option: the command, a model's path, or a prompt with a blank. */
static void cli_parse_word(cli_options *o, const char *word, const char **command) {
    for (int k = 0; k < CLI_COUNT(cli_commands) && !*command; k++) {
        if (strcmp(word, cli_commands[k].name)) continue;
        if (!cli_commands[k].help) cli_die(1, "%s: this command is not in this version", word);
        *command = cli_commands[k].name;
        return;
    }
    if (!o->model && access(word, F_OK) == 0) o->model = word;
    else if (!o->prompt && strchr(word, ' ')) o->prompt = word;
    else
        cli_die(2, "%s: no such command or file; commands are chat, generate, score, tokenize, detokenize, render, batch, bench, info",
                cli_clip(word));
}

/* Reads everything that was said; returns the command's name. */
static const char *cli_parse(cli_options *o, int argc, char **argv) {
    static char max_tokens[] = "--max-tokens";
    const char *command = NULL;
    llm_option_list words = {0};
    cli_options_init(o);
    o->by_name.note = cli_note;
    if (argc > 1 && (!strcmp(argv[1], "quantize") || !strcmp(argv[1], "convert-eagle"))) cli_parse_word(o, argv[1], &command);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) cli_help(o);
        if (!strcmp(argv[i], "-n")) argv[i] = max_tokens; /* "n" alone is the number of answers, as in JSON */
        if (strcmp(argv[i], "--version")) continue;
        llm_text t = {0};
        cli_add(&t, "llm_cli %s (instruction sets: %s)\n", LLM_VERSION_STRING, llm_isa_list());
        cli_out(&t);
        exit(0);
    }
    if (llm_options_argv(&o->by_name, argc, argv, &words) != LLM_OK) cli_die(2, "%s", llm_last_error());
    for (int i = 0; i < words.n; i++) cli_parse_word(o, words.items[i], &command);
    free((void *)words.items);
    cli_read_environment(o);
    if (o->config) cli_read_config(o);
    if (!cli_finish(o)) cli_die(2, "%s", cli_why);
    return command ? command : "chat";
}

/* ---------------------------------------------------------------------------
 * The model and its engine.
 * --------------------------------------------------------------------------- */

typedef struct cli_session { /* what a command works with */
    cli_options *o;
    llm_model *model;
    llm_engine *engine;
    llm_text rendered; /* the latest prompt of a chat: its end tells whether the thoughts are open */
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

/* The model of someone who named none: SmolLM2, else the first one in models/, here or beside the program. */
static const char *cli_default_model(void) {
    static char path[4800];
    for (int pass = 0; pass < 4; pass++) {
        char folder[4200], config[5000];
        struct dirent **entries = NULL;
        int n = 0, found = 0;
        snprintf(folder, sizeof folder, "%smodels", pass % 2 ? cli_program_folder() : "");
        snprintf(path, sizeof path, "%s/SmolLM2-135M-Instruct.Q4_1.gguf", folder);
        if (pass < 2 && access(path, R_OK) == 0) return path;
        if (pass >= 2) n = scandir(folder, &entries, NULL, alphasort);
        for (int k = 0; k < n; k++) {
            const char *name = entries[k]->d_name, *dot = strrchr(name, '.');
            snprintf(config, sizeof config, "%s/%s/config.json", folder, name);
            if (!found && ((dot && !strcasecmp(dot, ".gguf")) || (*name != '.' && access(config, R_OK) == 0))) {
                snprintf(path, sizeof path, "%s/%s", folder, name);
                found = 1;
            }
            free(entries[k]);
        }
        free(entries);
        if (found) return path;
    }
    cli_die(1, "models/: no model is there, run `make model` to fetch the default one, or give -m PATH");
}

/* Path of what -m names: a path, or ORG/NAME in the Hugging Face cache. */
static const char *cli_model_path(const char *name) {
    static llm_text found;
    struct stat st;
    char cache[4200];
    if (!name) return cli_default_model();
    if (stat(name, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) return name;
    const char *slash = strchr(name, '/'), *dirs[] = {getenv("HF_HUB_CACHE"), getenv("HF_HOME"), getenv("HOME")};
    if (access(name, F_OK) == 0 || strstr(name, ".gguf") || !slash || slash == name || strchr(slash + 1, '/') || !slash[1] ||
        *name == '.' || strstr(name, "..")) {
        cli_die(1, "%s: no such file or folder, a GGUF file, a folder with safetensors, or ORG/NAME in the Hugging Face cache was expected",
                cli_clip(name));
    }
    if (dirs[0] && *dirs[0]) snprintf(cache, sizeof cache, "%.4000s", dirs[0]);
    else if (dirs[1] && *dirs[1]) snprintf(cache, sizeof cache, "%.4000s/hub", dirs[1]);
    else snprintf(cache, sizeof cache, "%.4000s/.cache/huggingface/hub", dirs[2] ? dirs[2] : "");
    if (llm_hub_find(cache, name, &found) == LLM_OK && found.data) return found.data;
    cli_die(1, "%s: no such path, and not in the cache %s; to download it: hf download %s", cli_clip(name), cli_clip(cache),
            cli_clip(name));
}

static void cli_open_model(cli_session *c, int vocab_only) {
    llm_model_config cfg = c->o->m;
    cfg.vocab_only = vocab_only;
    cfg.log = cli_log;
    cfg.log_user = c->o;
    cfg.progress = cli_progress;
    cli_check(llm_model_open(vocab_only && !c->o->model && cfg.tokenizer ? cfg.tokenizer : cli_model_path(c->o->model), &cfg, &c->model));
    cli_show_notes();
}

static const llm_backend *cli_backend(const cli_session *c) {
    const llm_backend *backend = NULL;
    char path[4200];
    if (c->o->device == 1) return NULL;
    snprintf(path, sizeof path, "%slibllm_cuda.so", cli_program_folder());
    if (c->o->cuda_library) snprintf(path, sizeof path, "%.4000s", c->o->cuda_library);
    else if (c->o->device == 0 && access(path, R_OK)) return NULL;
    llm_result r = llm_backend_load(path, &backend);
    if (r != LLM_OK && (c->o->device == 2 || c->o->cuda_library)) cli_check(r);
    if (r != LLM_OK) cli_log(c->o, LLM_LOG_WARN, llm_last_error());
    return backend;
}

/* Opens an engine for `seqs` sequences of at most `need` tokens (0: all that the model can): memory is taken for these only. */
static void cli_open_engine(cli_session *c, int64_t need, int32_t seqs) {
    llm_engine_config cfg = c->o->e;
    int32_t own = llm_model_get_info(c->model)->max_model_len;
    cfg.device = c->o->device == 1 ? "cpu" : c->o->device == 2 ? "cuda" : NULL;
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

/* Called for each event of a running request. */
typedef void (*cli_event_fn)(void *user, const llm_event *event);

/* Runs one request to its end. A first Ctrl-C ends the answer; 1 if that happened. */
static int cli_run(llm_engine *engine, llm_request *request, cli_event_fn show, void *user) {
    int cancelled = 0;
    llm_event event;
    while (!llm_request_done(request)) {
        if (cli_interrupts && !cancelled++) llm_request_cancel(request);
        cli_check(llm_engine_step(engine, NULL));
        while (llm_request_poll(request, &event)) {
            if (event.finish == LLM_FINISH_ERROR)
                cli_die(1, "%s", llm_request_error(request) ? llm_request_error(request) : "the request failed");
            if (show) show(user, &event);
        }
    }
    return cancelled > 0;
}

/* ---------------------------------------------------------------------------
 * tokenize, detokenize, render: one text in, one text out, or many as lines.
 * --------------------------------------------------------------------------- */

/* One input to its output. 0 with cli_why. */
typedef int (*cli_convert_fn)(cli_session *c, const char *in, size_t n, llm_text *out);

static int cli_tokenize(cli_session *c, const char *in, size_t n, llm_text *out) {
    int flags = (c->o->add_special ? LLM_TOK_ADD_SPECIAL : 0) | (c->o->parse_special ? LLM_TOK_PARSE_SPECIAL : 0);
    llm_tokens ids = {0};
    llm_json *doc = NULL;
    if (c->o->jsonl) in = llm_json_parse(in, n, NULL, &doc) == LLM_OK ? llm_json_str(doc, 0, &n) : NULL;
    int ok = in ? llm_tokenize(c->model, in, n, flags, &ids) == LLM_OK || cli_bad("%s", llm_last_error())
                : cli_bad("a JSON string was expected");
    cli_json(out, "%i", ids.data, ids.len);
    llm_json_free(doc);
    llm_tokens_free(&ids);
    return ok;
}

static int cli_detokenize(cli_session *c, const char *in, size_t n, llm_text *out) {
    llm_tokens ids = {0};
    llm_text text = {0};
    int ok = n == strlen(in) && cli_parse_ids("input", in, &ids);
    llm_result r = ok ? llm_detokenize(c->model, ids.data, ids.len, LLM_DETOK_KEEP_SPECIAL, &text) : LLM_OK;
    if (c->o->jsonl) cli_json(out, "%Q", text.data, text.len), llm_text_free(&text);
    else cli_json(out, "%t", &text);
    llm_tokens_free(&ids);
    if (!ok) return cli_bad("an array of token ids was expected");
    return r == LLM_OK || cli_bad("%s", llm_last_error());
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

static int cli_render(cli_session *c, const char *in, size_t n, llm_text *out) {
    llm_render_options options = {0};
    llm_json *doc = NULL;
    llm_text text = {0};
    int ok = llm_json_parse(in, n, NULL, &doc) == LLM_OK || cli_bad("%s", llm_last_error()), now = llm_json_find(doc, 0, "now");
    if (ok && llm_json_type_of(doc, 0) != LLM_JSON_OBJECT) ok = cli_bad("a JSON object {\"messages\": ...} was expected");
    if (ok && now >= 0 && !cli_parse_time(doc, now, &options.now))
        ok = cli_bad("now: seconds since 1970 or \"YYYY-MM-DD HH:MM:SS\" were expected");
    if (ok &&
        (cli_template ? llm_template_render(cli_template, doc, &options, &text) : llm_render(c->model, doc, &options, &text)) != LLM_OK)
        ok = cli_bad("%s", llm_last_error());
    if (c->o->jsonl && ok) cli_json(out, "{'text': %Q}", text.data, text.len);
    if (c->o->jsonl && !ok) cli_json(out, "{'error': %q}", cli_why);
    if (!c->o->jsonl) llm_text_add(out, text.data ? text.data : "", text.len);
    llm_json_free(doc);
    llm_text_free(&text);
    return ok || c->o->jsonl;
}

/* The text to work on: -p, -f or standard input. */
static void cli_input(const cli_options *o, llm_text *text) {
    if (o->prompt && o->file) cli_die(2, "--file: %s, but --prompt is given too; one of them was expected", cli_clip(o->file));
    if (!o->prompt && !o->file && isatty(0)) cli_die(2, "no prompt: give -p TEXT, -f FILE, --token-ids '[1,2]', or text on standard input");
    if (o->prompt) llm_text_str(text, o->prompt);
    else if (!cli_read(o->file ? o->file : "-", text)) cli_die(1, "%s", cli_why);
    llm_text_add(text, "", 0);
}

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

static int cli_cmd_render(cli_session *c) {
    const char *source = c->o->m.chat_template;
    llm_text text = {0};
    if (!source) {
        cli_open_model(c, 1);
        return cli_convert(c, cli_render, "");
    }
    if (strchr(source, '{') && access(source, R_OK)) llm_text_str(&text, source);
    else if (!cli_read(source, &text)) cli_die(1, "--chat-template: %s", cli_why);
    if (llm_template_open(text.data, text.len, &cli_template) != LLM_OK) cli_die(1, "%s: %s", cli_clip(source), llm_last_error());
    int code = cli_convert(c, cli_render, "");
    llm_template_close(cli_template);
    llm_text_free(&text);
    return code;
}

/* ---------------------------------------------------------------------------
 * Answers as JSON: the object of generate and chat --json, and the parts of it that batch needs.
 * --------------------------------------------------------------------------- */

static int64_t cli_code_points(const char *s, size_t n) {
    int64_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)s[i] & 0xC0) != 0x80;
    return count;
}

/* Text of one token, as in the middle of a text. */
static const llm_text *cli_token_text(const llm_model *model, int32_t id) {
    static llm_text piece;
    llm_text_free(&piece);
    llm_token_bytes(model, id, &piece);
    llm_text_add(&piece, "", 0);
    return &piece;
}

/* Log-probabilities as /v1/completions has them: for each token the n likeliest and itself, and where it begins. */
static void cli_add_logprobs(llm_text *t, const llm_model *model, const llm_output *out, int n) {
    llm_text offsets = {0}, values = {0}, tokens = {0}, tops = {0};
    int64_t at = 0;
    for (size_t i = 0; i < out->n_token_ids; i++) {
        const llm_token_logprob *top = out->top ? out->top + i * (size_t)out->top_stride : NULL;
        const llm_text *piece = cli_token_text(model, out->token_ids[i]);
        const char *comma = i ? ", " : "";
        double own = out->logprobs ? (double)out->logprobs[i] : 0;
        int k = top ? out->top_counts[i] : 0, seen = 0;
        cli_json(&offsets, "%s%l", comma, at);
        cli_json(&values, "%s%f", comma, own);
        cli_json(&tokens, "%s%Q", comma, piece->data, piece->len);
        cli_json(&tops, "%s{", comma);
        at += cli_code_points(piece->data, piece->len);
        for (int j = 0; j < k && j < n; j++) {
            piece = cli_token_text(model, top[j].id);
            cli_json(&tops, "%s%Q: %f", j ? ", " : "", piece->data, piece->len, (double)top[j].logprob);
            seen |= top[j].id == out->token_ids[i];
        }
        piece = cli_token_text(model, out->token_ids[i]);
        if (!seen) cli_json(&tops, "%s%Q: %f", k && n ? ", " : "", piece->data, piece->len, own);
        llm_text_str(&tops, "}");
    }
    cli_json(t, "{'text_offset': [%t], 'token_logprobs': [%t], 'tokens': [%t], 'top_logprobs': [%t]}", &offsets, &values, &tokens, &tops);
}

static void cli_add_usage(llm_text *t, const llm_request_metrics *m, int64_t completion) {
    cli_json(t, "{'prompt_tokens': %d, 'completion_tokens': %l, 'total_tokens': %l, 'prompt_tokens_details': {'cached_tokens': %d}}",
             m->n_prompt_tokens, completion, m->n_prompt_tokens + completion, m->n_cached_tokens);
}

/* The fields that say how an answer ended. */
static void cli_add_end(llm_text *t, const llm_output *out) {
    cli_json(t, "'finish_reason': %q, 'stop_reason': ", llm_finish_str(out->finish));
    if (!out->stop_reason && out->stop_id >= 0) llm_text_int(t, out->stop_id);
    else cli_json(t, "%q", out->stop_reason);
    cli_json(t, ", 'cum_log_probs': %f, 'sentence_length': %l", out->cum_logprob, cli_code_points(out->text, out->text_len));
}

/* Begins to split the answer to the latest rendered prompt into thoughts and answer. */
static void cli_reasoning(const cli_session *c, llm_reasoning *r) {
    int kind = c->o->reasoning_parser ? llm_reasoning_named(c->o->reasoning_parser)
                                      : (int)llm_reasoning_detect(llm_model_get_info(c->model)->chat_template);
    if (!c->rendered.len) kind = LLM_REASONING_NONE; /* no chat */
    llm_reasoning_begin(r, (llm_reasoning_kind)kind, c->rendered.data, c->rendered.len);
}

/* 'reasoning_content' and 'content' of a whole answer. */
static void cli_add_content(llm_text *t, llm_reasoning r, const llm_output *out) {
    llm_text thoughts = {0}, answer = {0};
    llm_reasoning_push(&r, out->text, out->text_len, &thoughts, &answer);
    llm_reasoning_end(&r, &thoughts, &answer);
    if (r.kind != LLM_REASONING_NONE) cli_json(t, "'reasoning_content': %Q, ", thoughts.data, thoughts.len);
    cli_json(t, "'content': %Q", answer.data, answer.len);
    llm_text_free(&thoughts);
    llm_text_free(&answer);
}

static void cli_add_answer(llm_text *t, const cli_session *c, llm_request *request, int32_t index) {
    llm_output out;
    llm_request_metrics m;
    size_t n;
    const int32_t *prompt = llm_request_prompt(request, &n);
    cli_check(llm_request_output(request, index, &out));
    llm_request_get_metrics(request, &m);
    cli_json(t, "{'index': %d, 'text': %Q, 'token_ids': %i, ", index, out.text, out.text_len, out.token_ids, out.n_token_ids);
    if (c->rendered.len) {
        llm_reasoning reasoning;
        cli_reasoning(c, &reasoning);
        cli_add_content(t, reasoning, &out);
        llm_text_str(t, ", ");
    }
    cli_add_end(t, &out);
    cli_json(t, ", 'seed': %l, 'prompt_token_ids': %i, 'usage': ", llm_request_seed(request), prompt, n);
    cli_add_usage(t, &m, (int64_t)out.n_token_ids);
    cli_json(
        t, ", 'metrics': {'arrival_time': %f, 'inference_start_time': %f, 'first_token_time': %f, 'finish_time': %f, 'time_in_queue': %f, ",
        m.arrival_time, m.inference_start_time, m.first_token_time, m.finish_time, m.time_in_queue);
    cli_json(t, "'model_forward_time': %f, 'model_execute_time': %f}, 'logprobs': ", m.model_forward_time, m.model_execute_time);
    if (c->o->logprobs >= 0) cli_add_logprobs(t, c->model, &out, c->o->logprobs);
    else llm_text_str(t, "null");
    llm_text_str(t, "}\n");
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

/* ---------------------------------------------------------------------------
 * generate, score, and a chat of one answer.
 * --------------------------------------------------------------------------- */

/* Opens the model; ids of --token-ids as they are, of a text with BOS as the model says. */
static void cli_prompt_ids(cli_session *c, int chop, llm_tokens *ids) {
    const cli_options *o = c->o;
    llm_text text = {0};
    if (o->token_ids) {
        if (o->prompt || o->file) cli_die(2, "--token-ids: given beside --prompt or --file, one of them was expected");
        if (!cli_parse_ids("--token-ids", o->token_ids, ids)) cli_die(2, "%s", cli_why);
        cli_open_model(c, 0);
        return;
    }
    cli_input(o, &text);
    if (chop && !o->prompt && !o->file && text.len && text.data[text.len - 1] == '\n') text.data[--text.len] = 0; /* of echo */
    cli_open_model(c, 0);
    cli_check(llm_tokenize(c->model, text.data, text.len, LLM_TOK_ADD_SPECIAL | LLM_TOK_PARSE_SPECIAL, ids));
    llm_text_free(&text);
}

typedef struct cli_show { /* an answer that is shown as it comes */
    llm_reasoning reasoning;
    llm_text thoughts, answer;
    int color, dim;
} cli_show;

static int cli_color(int fd) {
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fd) && !(no_color && *no_color) && !(term && !strcmp(term, "dumb"));
}

/* Thoughts are dim and for people only: in a pipe there is the answer alone. */
static void cli_show_text(void *user, const llm_event *event) {
    cli_show *s = (cli_show *)user;
    llm_reasoning_push(&s->reasoning, event->text, event->text_len, &s->thoughts, &s->answer);
    if (event->finish) llm_reasoning_end(&s->reasoning, &s->thoughts, &s->answer);
    if (s->thoughts.len && isatty(1)) {
        if (!s->dim) fputs(s->color ? "\x1b[2m" : "", stdout);
        s->dim = 1;
        cli_write(s->thoughts.data, s->thoughts.len);
    }
    if (s->dim && (s->answer.len || event->finish)) {
        fputs(s->color ? "\x1b[0m\n" : "\n", stdout);
        s->dim = 0;
    }
    if (s->answer.len) cli_write(s->answer.data, s->answer.len);
    llm_text_free(&s->thoughts);
    llm_text_free(&s->answer);
}

/* Runs one request to its end and shows its answer. 1 if it was stopped. */
static int cli_run_shown(cli_session *c, llm_request *request) {
    cli_show show;
    memset(&show, 0, sizeof show);
    show.color = cli_color(1);
    cli_reasoning(c, &show.reasoning);
    return cli_run(c->engine, request, cli_show_text, &show);
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
    if (c->o->json && !cfg.sampling.logprobs) cfg.sampling.logprobs = 1;
    cfg.prompt_ids = ids->data;
    cfg.n_prompt_ids = ids->len;
    cli_check(llm_request_submit(c->engine, &cfg, &request));
    int cancelled = streaming ? cli_run_shown(c, request) : cli_run(c->engine, request, NULL, NULL);
    for (int32_t i = 0; i < n && !cancelled; i++) {
        cli_check(llm_request_output(request, i, &out));
        if (c->o->json) cli_add_answer(&t, c, request, i);
        else if (!streaming) cli_json(&t, "%s\n", out.text);
        else if (isatty(1) || (out.text_len && out.text[out.text_len - 1] != '\n')) llm_text_str(&t, "\n");
    }
    cli_out(&t);
    if (streaming && isatty(2)) cli_show_speed(request);
    llm_request_free(request);
    return cancelled ? 130 : 0;
}

static int cli_cmd_generate(cli_session *c) {
    llm_tokens ids = {0};
    cli_prompt_ids(c, 1, &ids);
    int code = cli_answer(c, &ids, 256);
    llm_tokens_free(&ids);
    return code;
}

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
    for (int i = 0; i < n && i < k; i++) cli_json(t, "%s[%d, %f]", i ? ", " : "", sorted[i].id, (double)sorted[i].logprob);
    llm_text_str(t, "]");
    free(sorted);
}

/* One request gives both: the log-probabilities of the prompt, and a first token after it. A prompt that fills the context has none. */
static int cli_cmd_score(cli_session *c) {
    const llm_token_logprob *top = NULL;
    const int32_t *counts = NULL;
    int32_t stride = 0, k = c->o->top_logprobs;
    llm_tokens ids = {0};
    llm_request_config cfg = {0};
    llm_request *request = NULL;
    llm_output out;
    llm_text t = {0}, lps = {0}, tops = {0}, next = {0};
    double sum = 0;
    cli_prompt_ids(c, 0, &ids);
    cfg.score_only = ids.len && ids.len == (size_t)cli_limit(c);
    cfg.sampling.max_tokens = 1;
    cfg.sampling.prompt_logprobs = k + 1;
    cfg.sampling.logprobs = (k ? k : 5) + 1;
    cfg.prompt_ids = ids.data;
    cfg.n_prompt_ids = ids.len;
    cli_open_engine(c, cfg.score_only ? cli_limit(c) : cli_need(c, ids.len, 1), 1);
    cli_check(llm_request_submit(c->engine, &cfg, &request));
    if (cli_run(c->engine, request, NULL, NULL)) return 130;
    const float *lp = llm_request_prompt_logprobs(request, &top, &counts, &stride);
    if (!lp && ids.len > 1) cli_die(1, "score: the engine gave no log-probabilities");
    for (size_t i = 0; i < ids.len; i++) {
        const llm_text *piece = cli_token_text(c->model, ids.data[i]);
        double x = i ? (double)lp[i] : 0;
        sum += x;
        if (!c->o->json) cli_add(&t, i ? "%12.6f  %7d  " : "%12.0f  %7d  ", x, ids.data[i]), cli_json(&t, "%Q\n", piece->data, piece->len);
        if (c->o->json) cli_json(&lps, i ? ", %f" : "null", x);
        if (c->o->json && k) llm_text_str(&tops, i ? ", " : "null");
        if (c->o->json && k && i) cli_add_top(&tops, top + i * (size_t)stride, counts[i], k);
    }
    double perplexity = ids.len > 1 ? exp(-sum / (double)(ids.len - 1)) : NAN;
    int answered = llm_request_output(request, 0, &out) == LLM_OK && out.top && out.n_token_ids;
    if (c->o->json) {
        cli_add_top(&next, answered ? out.top : NULL, answered ? out.top_counts[0] : 0, k ? k : 5);
        cli_json(&t, "{'token_ids': %i, 'logprobs': [%t], ", ids.data, ids.len, &lps);
        if (k) cli_json(&t, "'top_logprobs': [%t], ", &tops);
        cli_json(&t, ids.len > 1 ? "'next': %t, 'n_tokens': %d, 'perplexity': %f}\n" : "'next': %t, 'n_tokens': %d, 'perplexity': null}\n",
                 &next, (int)ids.len, perplexity);
    } else {
        cli_add(&t, "perplexity %.6g of %zu tokens, log-probability %.6f\n", perplexity, ids.len, sum);
    }
    cli_out(&t);
    llm_request_free(request);
    llm_tokens_free(&ids);
    return 0;
}

typedef struct cli_message {
    const char *role;
    char *text; /* owned */
} cli_message;

static void cli_add_messages(llm_text *t, const cli_message *messages, int n) {
    for (int i = 0; i < n; i++) cli_json(t, "%s{'role': %q, 'content': %q}", i ? ", " : "[", messages[i].role, messages[i].text);
    llm_text_str(t, n ? "]" : "[]");
}

/* Appends `, "key": value` of every member of an object. */
static void cli_add_members(llm_text *t, const llm_json *doc, int object) {
    size_t n;
    for (int i = llm_json_first(doc, object); i >= 0; i = llm_json_next(doc, i)) {
        const char *key = llm_json_key(doc, i, &n);
        cli_json(t, ", %Q: ", key, n);
        llm_json_write(doc, i, t);
    }
}

/* A template's context through the template, as ids; frees the context. 0 with cli_why. */
static int cli_context_ids(cli_session *c, llm_text *context, llm_tokens *ids) {
    llm_json *doc = NULL;
    llm_render_options options = {0};
    options.as_chat = 1;
    llm_result r = llm_json_parse(context->data, context->len, NULL, &doc);
    llm_text_free(&c->rendered);
    if (r == LLM_OK) r = llm_render(c->model, doc, &options, &c->rendered);
    llm_text_add(&c->rendered, "", 0);
    if (r == LLM_OK) r = llm_tokenize(c->model, c->rendered.data, c->rendered.len, LLM_TOK_PARSE_SPECIAL, ids);
    llm_json_free(doc);
    llm_text_free(context);
    return r == LLM_OK || cli_bad("%s", llm_last_error());
}

static int cli_chat_ids(cli_session *c, const cli_message *messages, int n, llm_tokens *ids) {
    const char *kwargs = c->o->template_kwargs ? c->o->template_kwargs : "{}";
    llm_text context = {0};
    llm_json *doc = NULL;
    int ok = llm_json_parse(kwargs, strlen(kwargs), NULL, &doc) == LLM_OK && llm_json_type_of(doc, 0) == LLM_JSON_OBJECT;
    llm_text_str(&context, "{\"messages\": ");
    cli_add_messages(&context, messages, n);
    llm_text_str(&context, ", \"add_generation_prompt\": true");
    cli_add_members(&context, doc, 0);
    llm_text_str(&context, "}");
    llm_json_free(doc);
    return ok ? cli_context_ids(c, &context, ids) : cli_bad("--chat-template-kwargs: %s, a JSON object was expected", cli_clip(kwargs));
}

static int cli_interactive(cli_session *c);

/* The prompt: -p or -f, and what stands on standard input; at a terminal without either a conversation. */
static int cli_cmd_chat(cli_session *c) {
    const cli_options *o = c->o;
    llm_text text = {0}, piped = {0};
    llm_tokens ids = {0};
    cli_message messages[2];
    struct stat st;
    int n = 0, said = o->prompt || o->file;
    if (o->token_ids) cli_die(2, "--token-ids: a chat takes text, use generate");
    if (!said && isatty(0)) return cli_interactive(c);
    if (said) cli_input(o, &text);
    int more =
        fstat(0, &st) == 0 && (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) && !(o->file && !strcmp(o->file, "-"));
    if (more && !cli_read("-", &piped)) cli_die(1, "%s", cli_why);
    while (piped.len && (piped.data[piped.len - 1] == '\n' || piped.data[piped.len - 1] == '\r')) piped.len--;
    if (text.len && piped.len) llm_text_str(&text, "\n");
    cli_json(&text, "%t", &piped);
    if (!text.len) cli_die(2, "no prompt: give -p TEXT, -f FILE, or text on standard input");
    cli_open_model(c, 0);
    if (!o->do_preprocess) {
        cli_check(llm_tokenize(c->model, text.data, text.len, LLM_TOK_ADD_SPECIAL | LLM_TOK_PARSE_SPECIAL, &ids));
    } else {
        if (o->system) messages[n].role = "system", messages[n++].text = (char *)(uintptr_t)o->system;
        messages[n].role = "user", messages[n++].text = text.data;
        if (!cli_chat_ids(c, messages, n, &ids)) cli_die(1, "%s", cli_why);
    }
    int code = cli_answer(c, &ids, 2048);
    llm_text_free(&text);
    llm_tokens_free(&ids);
    return code;
}

/* ---------------------------------------------------------------------------
 * batch: OpenAI batch files. Many requests run together, answers leave in the order of the lines.
 * --------------------------------------------------------------------------- */

typedef struct cli_job {
    int chat, done, top_logprobs; /* top_logprobs: -1 none */
    llm_request *request;         /* NULL: `line` is the answer already */
    llm_text id, model, line;     /* id and model as JSON */
    llm_reasoning reasoning;      /* of a chat */
} cli_job;

/* Messages with their text parts joined by newlines, as templates expect them. 0: a part that is no text. */
static int cli_add_body_messages(llm_text *t, const llm_json *doc, int messages) {
    size_t n;
    for (int m = llm_json_first(doc, messages), first = 1; m >= 0; m = llm_json_next(doc, m), first = 0) {
        llm_text_str(t, first ? "{" : ", {");
        for (int i = llm_json_first(doc, m), begin = 1; i >= 0; i = llm_json_next(doc, i), begin = 0) {
            const char *key = llm_json_key(doc, i, &n);
            int parts = key && !strcmp(key, "content") && llm_json_type_of(doc, i) == LLM_JSON_ARRAY;
            llm_text joined = {0};
            cli_json(t, begin ? "%q: " : ", %q: ", key ? key : "");
            for (int p = parts ? llm_json_first(doc, i) : -1; p >= 0; p = llm_json_next(doc, p)) {
                const char *text = llm_json_str(doc, llm_json_find(doc, p, "text"), &n);
                if (!text) return cli_bad("messages: content parts of type text were expected");
                if (joined.len) llm_text_str(&joined, "\n");
                llm_text_add(&joined, text, n);
            }
            if (parts) cli_json(t, "%Q", joined.data, joined.len);
            else llm_json_write(doc, i, t);
            llm_text_free(&joined);
        }
        llm_text_str(t, "}");
    }
    return 1;
}

/* Prompt ids of a body: messages through the template, or a prompt of text or ids. 0 with cli_why. */
static int cli_job_ids(cli_session *c, cli_job *job, const llm_json *doc, int body, llm_tokens *ids) {
    int messages = llm_json_find(doc, body, "messages"), prompt = llm_json_find(doc, body, "prompt"),
        tools = llm_json_find(doc, body, "tools");
    size_t n;
    llm_text t = {0};
    if (job->chat) {
        if (llm_json_type_of(doc, messages) != LLM_JSON_ARRAY || !llm_json_size(doc, messages))
            return cli_bad("messages: an array of messages was expected");
        llm_text_str(&t, "{\"messages\": [");
        if (!cli_add_body_messages(&t, doc, messages)) return 0;
        llm_text_str(&t, "], \"add_generation_prompt\": true");
        if (llm_json_size(doc, tools)) llm_text_str(&t, ", \"tools\": "), llm_json_write(doc, tools, &t);
        cli_add_members(&t, doc, llm_json_find(doc, body, "chat_template_kwargs"));
        llm_text_str(&t, "}");
        if (!cli_context_ids(c, &t, ids)) return 0;
        cli_reasoning(c, &job->reasoning);
        return 1;
    }
    if (llm_json_size(doc, prompt) == 1 && llm_json_str(doc, llm_json_first(doc, prompt), NULL)) prompt = llm_json_first(doc, prompt);
    const char *text = llm_json_str(doc, prompt, &n);
    if (text)
        return llm_tokenize(c->model, text, n, LLM_TOK_ADD_SPECIAL | LLM_TOK_PARSE_SPECIAL, ids) == LLM_OK ||
               cli_bad("%s", llm_last_error());
    llm_json_write(doc, prompt, &t);
    int ok = t.data && cli_parse_ids("prompt", t.data, ids);
    llm_text_free(&t);
    return ok ? 1 : cli_bad("prompt: a text or an array of token ids was expected");
}

static int cli_job_submit(cli_session *c, cli_job *job, const llm_json *doc, int body, cli_options *o) {
    llm_request_config cfg = {0};
    llm_tokens ids = {0};
    llm_text unknown = {0};
    const char *model = llm_json_str(doc, llm_json_find(doc, body, "model"), NULL);
    cli_json(&job->model, "%q", model ? model : c->o->model ? c->o->model : "default");
    int ok = llm_options_json(&o->by_name, doc, body, LLM_FROM_USER, &unknown) == LLM_OK || cli_bad("%s", llm_last_error());
    if (ok && (o->stream || o->echo)) ok = cli_bad("%s: true, a batch has none", o->stream ? "stream" : "echo");
    ok = ok && cli_finish(o) && cli_job_ids(c, job, doc, body, &ids);
    job->top_logprobs = o->logprobs;
    llm_text_free(&unknown);
    llm_sampling_default(c->model, &cfg.sampling);
    cfg.sampling.max_tokens = job->chat ? -1 : 16; /* OpenAI's defaults */
    cli_overlay(c->o, &cfg.sampling);
    cli_overlay(o, &cfg.sampling);
    cfg.sampling.logprobs = job->top_logprobs >= 0 ? job->top_logprobs + 1 : 1;
    cfg.prompt_ids = ids.data;
    cfg.n_prompt_ids = ids.len;
    if (ok && cfg.sampling.max_tokens == 0) ok = cli_bad("max_tokens: 0, a whole number from 1 was expected");
    if (ok && llm_request_submit(c->engine, &cfg, &job->request) != LLM_OK) ok = cli_bad("%s", llm_last_error());
    llm_tokens_free(&ids);
    return ok;
}

/* The line of a request that was refused; status 0: the line was no request. */
static void cli_job_refuse(cli_job *job, int status, const char *why) {
    job->done = 1;
    cli_json(&job->line, "{'id': null, 'custom_id': %s, ", job->id.len ? job->id.data : "null");
    if (status)
        cli_json(&job->line,
                 "'response': {'status_code': %d, 'request_id': null, 'body': {'error': {'message': %q, 'type': %q, 'param': null, 'code': "
                 "null}}}, 'error': null}\n",
                 status, why, status < 500 ? "invalid_request_error" : "server_error");
    else cli_json(&job->line, "'response': null, 'error': {'code': 'invalid_line', 'message': %q}}\n", why);
}

static void cli_job_start(cli_session *c, cli_job *job, const char *line, size_t n, long number) {
    cli_options o;
    llm_json *doc = NULL;
    memset(job, 0, sizeof *job);
    job->top_logprobs = -1;
    cli_options_init(&o);
    int object = llm_json_parse(line, n, NULL, &doc) == LLM_OK && llm_json_type_of(doc, 0) == LLM_JSON_OBJECT;
    int id = llm_json_find(doc, 0, "custom_id"), body = llm_json_find(doc, 0, "body");
    const char *url = llm_json_str(doc, llm_json_find(doc, 0, "url"), NULL),
               *method = llm_json_str(doc, llm_json_find(doc, 0, "method"), NULL);
    job->chat = url && !strcmp(url, "/v1/chat/completions");
    if (id >= 0) llm_json_write(doc, id, &job->id);
    cli_bad("line %ld: a JSON object was expected", number);
    if (!object) cli_job_refuse(job, 0, cli_why);
    else if (llm_json_type_of(doc, body) != LLM_JSON_OBJECT) cli_job_refuse(job, 400, "body: a JSON object was expected");
    else if (method && strcmp(method, "POST")) cli_job_refuse(job, 405, "method: POST was expected");
    else if (!job->chat && (!url || strcmp(url, "/v1/completions")))
        cli_job_refuse(job, 404, "url: /v1/chat/completions or /v1/completions was expected");
    else if (!cli_job_submit(c, job, doc, body, &o)) cli_job_refuse(job, 400, cli_why);
    cli_options_free(&o);
    llm_json_free(doc);
}

/* The log-probabilities of a chat answer. */
static void cli_add_chat_logprobs(llm_text *t, const llm_model *model, const llm_output *out, int n) {
    llm_text_str(t, "{\"content\": [");
    for (size_t i = 0; i < out->n_token_ids; i++) {
        const llm_token_logprob *top = out->top ? out->top + i * (size_t)out->top_stride : NULL;
        for (int j = -1; j < (top ? out->top_counts[i] : 0) && j < n; j++) { /* -1: the token itself, then the likeliest */
            const llm_text *piece = cli_token_text(model, j < 0 ? out->token_ids[i] : top[j].id);
            cli_json(t, "%s{'token': %Q, 'logprob': %f, 'bytes': [", j > 0 || (j < 0 && i) ? ", " : "", piece->data, piece->len,
                     j >= 0          ? (double)top[j].logprob
                     : out->logprobs ? (double)out->logprobs[i]
                                     : 0.0);
            for (size_t b = 0; b < piece->len; b++) cli_json(t, b ? ",%d" : "%d", (unsigned char)piece->data[b]);
            llm_text_str(t, j < 0 ? "], \"top_logprobs\": [" : "]}");
        }
        llm_text_str(t, "]}");
    }
    llm_text_str(t, "]}");
}

static void cli_job_finish(const cli_session *c, cli_job *job) {
    llm_text *t = &job->line;
    llm_request_metrics m;
    llm_output out;
    int64_t completion = 0;
    const char *id = llm_request_id(job->request);
    llm_request_get_metrics(job->request, &m);
    cli_json(t, "{'id': 'batch_req_%s', 'custom_id': %s, 'response': {'status_code': 200, 'request_id': %q, ", id,
             job->id.len ? job->id.data : "null", id);
    cli_json(t, "'body': {'id': '%s%s', 'object': %q, 'created': %l, 'model': %s, 'choices': [", job->chat ? "chatcmpl-" : "cmpl-", id,
             job->chat ? "chat.completion" : "text_completion", (int64_t)m.arrival_time, job->model.data);
    for (int32_t i = 0; llm_request_output(job->request, i, &out) == LLM_OK; i++) {
        completion += (int64_t)out.n_token_ids;
        cli_json(t, "%s{'index': %d, ", i ? ", " : "", i);
        if (job->chat)
            llm_text_str(t, "\"message\": {\"role\": \"assistant\", "), cli_add_content(t, job->reasoning, &out), llm_text_str(t, "}, ");
        else cli_json(t, "'text': %Q, ", out.text, out.text_len);
        cli_add_end(t, &out);
        llm_text_str(t, ", \"logprobs\": ");
        if (job->top_logprobs < 0) llm_text_str(t, "null");
        else if (job->chat) cli_add_chat_logprobs(t, c->model, &out, job->top_logprobs);
        else cli_add_logprobs(t, c->model, &out, job->top_logprobs);
        llm_text_str(t, "}");
    }
    llm_text_str(t, "], \"usage\": ");
    cli_add_usage(t, &m, completion);
    llm_text_str(t, "}}, \"error\": null}\n");
    job->done = 1;
}

/* Takes the news of a running job; an engine error ends this job only. */
static void cli_job_poll(const cli_session *c, cli_job *job) {
    llm_event event;
    int failed = 0;
    while (llm_request_poll(job->request, &event)) failed |= event.finish == LLM_FINISH_ERROR;
    if (failed) cli_job_refuse(job, 500, llm_request_error(job->request) ? llm_request_error(job->request) : "the request failed");
    else if (llm_request_done(job->request)) cli_job_finish(c, job);
    else return;
    llm_request_free(job->request);
    job->request = NULL;
}

/* Bytes of f16 keys and values of one token. */
static int64_t cli_kv_bytes(const llm_model_info *i) {
    return 4 * (int64_t)i->n_layers * (i->n_kv_heads > 0 ? i->n_kv_heads : 1) * (i->head_dim > 0 ? i->head_dim : 1);
}

static int cli_cmd_batch(cli_session *c) {
    cli_options *o = c->o;
    struct stat a, b;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = 0;
    long number = 0, head = 0, tail = 0;
    if (!o->in) cli_die(2, "--input: missing, a file with one request a line was expected (-: standard input)");
    FILE *in = strcmp(o->in, "-") ? fopen(o->in, "re") : stdin, *out = stdout;
    if (!in) cli_die(1, "%s: %s", cli_clip(o->in), strerror(errno));
    cli_open_model(c, 0);
    if (o->out && strcmp(o->out, "-")) {
        if (fstat(fileno(in), &a) == 0 && stat(o->out, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev)
            cli_die(2, "--output-file: %s is the input too", cli_clip(o->out));
        out = fopen(o->out, "we");
        if (!out) cli_die(1, "%s: %s", cli_clip(o->out), strerror(errno));
    }
    int32_t seqs = o->e.max_num_seqs ? o->e.max_num_seqs : 16, window = 4 * seqs, own = llm_model_get_info(c->model)->max_model_len;
    if (!o->e.kv_cache_memory_bytes) o->e.kv_cache_memory_bytes = (int64_t)1 << 30;
    int64_t fits = o->e.kv_cache_memory_bytes / cli_kv_bytes(llm_model_get_info(c->model)) / 64 * 64;
    if (!o->e.max_model_len && (own <= 0 || fits < own)) o->e.max_model_len = (int32_t)(fits < 1 << 24 ? fits : 1 << 24);
    cli_open_engine(c, 0, seqs);
    cli_job *jobs = CLI_NEW(cli_job, window);
    while (n >= 0 || head < tail) {
        while (n >= 0 && tail - head < window && (n = getline(&line, &cap, in)) >= 0) {
            number++;
            if (strspn(line, " \t\r\n") < (size_t)n) cli_job_start(c, &jobs[tail++ % window], line, (size_t)n, number);
        }
        if (cli_interrupts) return 130;
        cli_check(llm_engine_step(c->engine, NULL));
        for (long i = head; i < tail; i++) {
            if (jobs[i % window].request) cli_job_poll(c, &jobs[i % window]);
        }
        for (; head < tail && jobs[head % window].done; head++) {
            cli_job *job = &jobs[head % window];
            if (job->line.failed || (out != stdout && (fwrite(job->line.data, 1, job->line.len, out) != job->line.len || fflush(out)))) {
                cli_die(1, "%s: %s", cli_clip(o->out ? o->out : "answer"), job->line.failed ? "out of memory" : strerror(errno));
            }
            if (out == stdout) cli_out(&job->line);
            llm_text_free(&job->line), llm_text_free(&job->id), llm_text_free(&job->model);
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
 * info
 * --------------------------------------------------------------------------- */

/* Bytes of memory that could be had now, the control group's limit counted; -1: unknown. */
static int64_t cli_free_memory(void) {
    char line[200];
    long long kib = -1, limit, used;
    FILE *f = fopen("/proc/meminfo", "re"), *max = fopen("/sys/fs/cgroup/memory.max", "re"),
         *current = fopen("/sys/fs/cgroup/memory.current", "re");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %lld", &kib) != 1) continue;
    int64_t bytes = kib < 0 ? -1 : kib * 1024;
    if (max && current && fscanf(max, "%lld", &limit) == 1 && fscanf(current, "%lld", &used) == 1 && (bytes < 0 || limit - used < bytes))
        bytes = limit - used;
    if (f) fclose(f);
    if (max) fclose(max);
    if (current) fclose(current);
    return bytes;
}

/* Tensor types: as JSON members, or as lines. */
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
    for (int k = 0; k < n && c->o->json; k++)
        cli_json(t, "%s%q: {'tensors': %l, 'bytes': %l}", k ? ", " : "", sums[k].type, sums[k].count, sums[k].bytes);
    for (int k = 0; k < n && !c->o->json; k++)
        cli_add(t, "%s%lld %s (%.2f MiB)", k ? ", " : "", (long long)sums[k].count, sums[k].type, (double)sums[k].bytes / 1048576);
}

static int cli_cmd_info(cli_session *c) {
    cli_open_model(c, 0);
    const llm_model_info *i = llm_model_get_info(c->model);
    int32_t context = cli_limit(c);
    int json = c->o->json;
    int64_t kv = context * cli_kv_bytes(i), have = cli_free_memory();
    const char *fits = have < 0 ? "null" : i->weight_bytes + kv <= have ? "true" : "false";
    llm_text t = {0}, types = {0};
    /* clang-format off */
    const struct { const char *key, *value; } texts[] = {{"path", i->path}, {"format", i->format}, {"architecture", i->architecture},
        {"family", i->family},
        {"file_type", i->file_type}, {"tokenizer", i->tokenizer_kind}};
    const struct { const char *key; int64_t value; } numbers[] = {{"n_params", i->n_params}, {"n_layers", i->n_layers}, {"hidden_size",
        i->hidden_size},
        {"n_heads", i->n_heads}, {"n_kv_heads", i->n_kv_heads}, {"head_dim", i->head_dim}, {"vocab_size", i->vocab_size},
        {"max_position_embeddings", i->max_position_embeddings}, {"sliding_window", i->sliding_window}, {"n_experts", i->n_experts},
        {"n_experts_used", i->n_experts_used}, {"bos_id", i->bos_id}, {"eos_id", i->eos_id}, {"n_tensors", i->n_tensors}, {"weight_bytes",
         i->weight_bytes},
        {"context", context}, {"kv_bytes", kv}, {"bytes_needed", i->weight_bytes + kv}, {"bytes_available", have}};
    /* clang-format on */
    for (int k = 0; k < CLI_COUNT(texts); k++) {
        if (json) cli_json(&t, "%s%q: %q", k ? ", " : "{", texts[k].key, texts[k].value);
        else cli_add(&t, "%-24s %s\n", texts[k].key, texts[k].value ? texts[k].value : "none");
    }
    for (int k = 0; k < CLI_COUNT(numbers); k++) {
        if (json) cli_json(&t, ", %q: %l", numbers[k].key, numbers[k].value);
        else if (strstr(numbers[k].key, "bytes")) cli_add(&t, "%-24s %.1f MiB\n", numbers[k].key, (double)numbers[k].value / 1048576);
        else cli_add(&t, "%-24s %lld\n", numbers[k].key, (long long)numbers[k].value);
    }
    cli_info_types(c, &types);
    if (json) {
        cli_json(&t, ", 'fits': %s, 'stop_ids': %i, 'tensor_types': {%t}, 'chat_template': %q}\n", fits, i->stop_ids, (size_t)i->n_stop_ids,
                 &types, i->chat_template);
    } else {
        cli_json(&t, "fits                     %s\nstop_ids                 %i\ntensor_types             %t\nchat_template            ",
                 fits, i->stop_ids, (size_t)i->n_stop_ids, &types);
        cli_add_harmless(&t, i->chat_template ? i->chat_template : "none", strnlen(i->chat_template ? i->chat_template : "none", 100), 0);
        llm_text_str(&t, "\n");
    }
    cli_out(&t);
    return 0;
}

/* ---------------------------------------------------------------------------
 * bench: the forward pass alone. pp: one prompt at position 0; tg: every step adds a token to each of b sequences, the choice of
 * the next (the most likely) counted. read_gb_s is what a step reads of the weights times steps a second; peak_gb_s is
 * what all threads read of 1 GiB of memory in the same run, so that the two can be compared.
 * --------------------------------------------------------------------------- */

enum { CLI_PASSES = 4 };

typedef struct cli_reader {
    pthread_t thread;
    pthread_barrier_t *barrier;
    uint64_t *data, sum;
    size_t n;
} cli_reader;

static void *cli_read_memory(void *arg) {
    cli_reader *r = (cli_reader *)arg;
    uint64_t sums[16] = {0};
    for (size_t i = 0; i < r->n; i++) r->data[i] = i; /* the pages are made by the thread that reads them */
    for (int pass = 0; pass < CLI_PASSES; pass++) {
        pthread_barrier_wait(r->barrier);
        for (size_t i = 0; i + 16 <= r->n; i += 16) {
            for (int k = 0; k < 16; k++) sums[k] += r->data[i + (size_t)k];
        }
        pthread_barrier_wait(r->barrier);
    }
    for (int k = 0; k < 16; k++) r->sum += sums[k];
    return NULL;
}

/* GB/s of the best pass over 1 GiB, or 0 where so much memory cannot be had. */
static double cli_peak_bandwidth(int n_threads) {
    size_t bytes = (size_t)1 << 30, words = bytes / 8 / (size_t)n_threads / 16 * 16;
    int64_t have = cli_free_memory();
    pthread_barrier_t barrier;
    double best = 0;
    if (have >= 0 && have < (int64_t)bytes + (64 << 20)) return 0;
    uint64_t *data = (uint64_t *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return 0;
    cli_reader *readers = CLI_NEW(cli_reader, n_threads);
    madvise((void *)data, bytes, MADV_HUGEPAGE);
    pthread_barrier_init(&barrier, NULL, (unsigned)n_threads + 1);
    for (int i = 0; i < n_threads; i++) {
        cli_reader *r = &readers[i];
        r->barrier = &barrier, r->data = data + words * (size_t)i, r->n = words;
        if (pthread_create(&r->thread, NULL, cli_read_memory, r))
            cli_die(1, "bench: no thread %d of %d could be started", i + 1, n_threads);
    }
    for (int pass = 0; pass < CLI_PASSES; pass++) {
        pthread_barrier_wait(&barrier);
        double begin = cli_now();
        pthread_barrier_wait(&barrier);
        double rate = (double)words * 8e-9 * n_threads / (cli_now() - begin);
        if (rate > best) best = rate;
    }
    for (int i = 0; i < n_threads; i++) pthread_join(readers[i].thread, NULL);
    pthread_barrier_destroy(&barrier);
    munmap((void *)data, bytes);
    free(readers);
    return best;
}

/* Bytes of weights that a step of one row reads: not the rows of an untied embedding, of the experts those used. */
static double cli_step_bytes(const cli_session *c) {
    const llm_model_info *info = llm_model_get_info(c->model);
    double total = 0, embedding = 0, share = info->n_experts > 0 ? (double)info->n_experts_used / info->n_experts : 1;
    int head = 0;
    for (int i = 0; i < info->n_tensors; i++) {
        const char *name = NULL;
        int64_t bytes = 0;
        if (llm_model_tensor(c->model, i, &name, NULL, NULL, NULL, &bytes) != LLM_OK) continue;
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

static void cli_bench_row(const cli_bench *b, const char *test, double *rates, double steps_per_token) {
    llm_text t = {0}, list = {0};
    int n = b->repetitions;
    for (int i = 0; i < n; i++) cli_add(&list, "%s%.3f", i ? ", " : "", rates[i]);
    qsort(rates, (size_t)n, sizeof *rates, cli_compare_doubles);
    double median = (rates[n / 2] + rates[(n - 1) / 2]) / 2, read = median * steps_per_token * b->step_bytes * 1e-9;
    if (b->c->o->json) {
        cli_json(
            &t,
            "{'test': %q, 'tokens_per_s': [%t], 'median': %f, 'threads': %d, 'isa': %q, 'model': %q, 'read_gb_s': %f, 'peak_gb_s': %f}\n",
            test, &list, median, b->n_threads, b->isa, llm_model_get_info(b->c->model)->path, read, b->peak);
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
    int32_t *seqs = CLI_NEW(int32_t, width), *positions = CLI_NEW(int32_t, width), *counts = CLI_NEW(int32_t, width),
            *ids = CLI_NEW(int32_t, width);
    int32_t *prompt = CLI_NEW(int32_t, p + 16);
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
    int rows = b->c->o->e.max_num_batched_tokens ? b->c->o->e.max_num_batched_tokens : 512;
    snprintf(test, sizeof test, p ? "pp%d" : width > 1 ? "tg%d@%d" : "tg%d", p ? p : n, width);
    cli_bench_row(b, test, rates, p ? (double)((p + rows - 1) / rows) / p : 1.0 / width);
    free(rates), free(seqs), free(positions), free(counts), free(ids), free(prompt);
}

static int cli_bench_number(const char *flag, const char *text, int low) {
    int64_t n;
    if (!cli_whole(text, low, 1000000, &n)) cli_die(2, "%s: %s, a whole number from %d to 1000000 was expected", flag, cli_clip(text), low);
    return (int)n;
}

static int cli_load_test(cli_session *c);

static int cli_cmd_bench(cli_session *c) {
    cli_options *o = c->o;
    cli_bench b = {0};
    int widths[32], n_widths = 0, most = 1, p = cli_bench_number("--prompt", o->prompt ? o->prompt : "512", 0);
    int n = cli_given(o, "max-tokens") ? o->s.max_tokens : 128;
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
    b.step_bytes = cli_step_bytes(c);
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
 * bench: TTFT (first token after sending), TPOT (rest of the time over the rest of the tokens), ITL (gaps between tokens), E2EL.
 * --------------------------------------------------------------------------- */

typedef struct cli_call {
    double start, sent, first, end; /* seconds; first 0: nothing came */
    int tokens, n_gaps;
    double *gaps;    /* (output_len) */
    char error[120]; /* "": it went well */
} cli_call;

typedef struct cli_load {
    char host[256], port[8], path[256], model[200];
    cli_call *calls;
    int n, next, input_len, output_len;
    double begin;
    uint32_t salt;
} cli_load;

static int cli_connect(const cli_load *load) {
    struct addrinfo hints, *list = NULL;
    int fd = -1;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(load->host, load->port, &hints, &list)) return -1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen)) close(fd), fd = -1;
    }
    freeaddrinfo(list);
    return fd;
}

/* One line of an answer: the status, or an event of the stream. The sizes of chunks are lines of their own and mean nothing here. */
static void cli_call_line(const cli_load *load, cli_call *call, const char *line) {
    const char *data = *line == '{'                ? line
                       : strncmp(line, "data:", 5) ? ""
                                                   : line + 5 + strspn(line + 5, " "); /* an error has no "data:" */
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
        else if (call->n_gaps < load->output_len) call->gaps[call->n_gaps++] = now - call->end;
        call->end = now;
    }
    llm_json_free(doc);
}

static void cli_call_run(cli_load *load, cli_call *call, int index) {
    llm_text body = {0}, out = {0}, in = {0};
    char block[16384];
    ssize_t n = 0;
    int fd = cli_connect(load);
    call->gaps = CLI_NEW(double, load->output_len);
    cli_json(&body,
             "{'model': %q, 'stream': true, 'stream_options': {'include_usage': true}, 'temperature': 0, 'ignore_eos': true, 'max_tokens': "
             "%d, 'prompt': [",
             load->model, load->output_len);
    for (int i = 0; i < load->input_len; i++)
        cli_add(&body, "%s%u", i ? "," : "", 20 + ((uint32_t)index * 7919u + (uint32_t)i * 104729u + load->salt) % 230u);
    llm_text_str(&body, "]}");
    cli_add(&out,
            "POST %s/v1/completions HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
            "%zu\r\n\r\n",
            load->path, load->host, load->port, body.len);
    cli_json(&out, "%t", &body);
    call->sent = cli_now();
    for (size_t at = 0; fd >= 0 && at < out.len && n >= 0; at += n > 0 ? (size_t)n : 0) n = write(fd, out.data + at, out.len - at);
    if (fd < 0 || n < 0) snprintf(call->error, sizeof call->error, "%.80s:%s: no connection", load->host, load->port);
    while (fd >= 0 && (n = read(fd, block, sizeof block)) > 0) {
        llm_text_add(&in, block, (size_t)n);
        char *begin = in.data, *end;
        while ((end = (char *)memchr(begin, '\n', in.len - (size_t)(begin - in.data)))) {
            *end = 0;
            cli_call_line(load, call, begin);
            begin = end + 1;
        }
        in.len -= (size_t)(begin - in.data);
        memmove(in.data, begin, in.len + 1);
    }
    if (in.data) cli_call_line(load, call, in.data);
    if (fd >= 0) close(fd);
    if (!call->error[0] && call->first <= 0) snprintf(call->error, sizeof call->error, "the answer had no tokens");
    llm_text_free(&out);
    llm_text_free(&in);
}

static void *cli_load_worker(void *arg) {
    cli_load *load = (cli_load *)arg;
    for (int i; (i = __atomic_fetch_add(&load->next, 1, __ATOMIC_RELAXED)) < load->n && !cli_interrupts;) {
        double wait = load->begin + load->calls[i].start - cli_now();
        if (wait > 0) usleep((useconds_t)(wait * 1e6));
        cli_call_run(load, &load->calls[i], i);
    }
    return NULL;
}

/* Mean, median and P99 of one metric in milliseconds. */
static void cli_load_metric(llm_text *t, int json, const char *name, double *values, int n) {
    double sum = 0;
    qsort(values, (size_t)n, sizeof *values, cli_compare_doubles);
    for (int i = 0; i < n; i++) sum += values[i];
    double mean = n ? sum / n * 1e3 : 0, p50 = n ? values[(n - 1) / 2] * 1e3 : 0, p99 = n ? values[(int)ceil(0.99 * (n - 1))] * 1e3 : 0;
    if (json) cli_json(t, ", 'mean_%s_ms': %f, 'median_%s_ms': %f, 'p99_%s_ms': %f", name, mean, name, p50, name, p99);
    else cli_add(t, "%-6s mean %9.2f ms   P50 %9.2f ms   P99 %9.2f ms\n", name, mean, p50, p99);
    free(values);
}

static void cli_load_report(const cli_load *load, int json, double seconds) {
    int done = 0, n_gaps = 0, n_tpot = 0;
    int64_t tokens = 0;
    llm_text t = {0};
    double *ttft = CLI_NEW(double, load->n), *tpot = CLI_NEW(double, load->n), *e2el = CLI_NEW(double, load->n);
    double *itl = CLI_NEW(double, (size_t)load->n *(size_t)load->output_len);
    for (int i = 0; i < load->n; i++) {
        const cli_call *call = &load->calls[i];
        if (call->error[0]) continue;
        tokens += call->tokens;
        ttft[done] = call->first - call->sent;
        e2el[done++] = call->end - call->sent;
        if (call->tokens > 1) tpot[n_tpot++] = (call->end - call->first) / (call->tokens - 1);
        for (int k = 0; k < call->n_gaps; k++) itl[n_gaps++] = call->gaps[k];
    }
    double requests = done / seconds, out = (double)tokens / seconds, total = out + requests * load->input_len;
    if (json)
        cli_json(&t,
                 "{'completed': %d, 'failed': %d, 'duration': %f, 'request_throughput': %f, 'output_throughput': %f, "
                 "'total_token_throughput': %f",
                 done, load->n - done, seconds, requests, out, total);
    else
        cli_add(&t, "requests %d done, %d failed in %.2f s: %.2f requests/s, %.1f tokens/s out, %.1f in and out\n", done, load->n - done,
                seconds, requests, out, total);
    cli_load_metric(&t, json, json ? "ttft" : "TTFT", ttft, done);
    cli_load_metric(&t, json, json ? "tpot" : "TPOT", tpot, n_tpot);
    cli_load_metric(&t, json, json ? "itl" : "ITL", itl, n_gaps);
    cli_load_metric(&t, json, json ? "e2el" : "E2EL", e2el, done);
    llm_text_str(&t, json ? "}\n" : "");
    cli_out(&t);
}

static int cli_load_test(cli_session *c) {
    const cli_options *o = c->o;
    cli_load load;
    double at = 0;
    uint64_t x = 88172645463325252u + (uint64_t)o->s.seed;
    const char *error = NULL;
    int failed = 0, threads = o->max_concurrency ? o->max_concurrency : 64;
    memset(&load, 0, sizeof load);
    int parts = sscanf(o->url, "http://%255[^:/]:%7[0-9]%255[^?#]", load.host, load.port, load.path);
    if (parts < 2) parts = sscanf(o->url, "http://%255[^:/]%255[^?#]", load.host, load.path), strcpy(load.port, "80");
    if (parts < 1 || load.path[0] == ':') cli_die(2, "--url: %s, http://HOST:PORT was expected", cli_clip(o->url));
    for (size_t n = strlen(load.path); n && load.path[n - 1] == '/';) load.path[--n] = 0;
    size_t len = strlen(load.path);
    if (len >= 3 && !strcmp(load.path + len - 3, "/v1")) load.path[len - 3] = 0;
    snprintf(load.model, sizeof load.model, "%s", o->model ? o->model : "default");
    load.n = o->num_prompts ? o->num_prompts : 64;
    load.input_len = o->input_len ? o->input_len : 128;
    load.output_len = o->output_len ? o->output_len : 64;
    load.salt = (uint32_t)(o->s.seed ? o->s.seed : (int64_t)time(NULL)); /* new prompts each time: no prefix cache helps */
    load.calls = CLI_NEW(cli_call, load.n);
    for (int i = 0; i < load.n && o->request_rate > 0; i++) { /* exponential gaps make a Poisson process */
        load.calls[i].start = at;
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        at += -log(((double)(x >> 11) + 1) / 9007199254740993.0) / (double)o->request_rate;
    }
    if (threads > load.n) threads = load.n;
    pthread_t *workers = CLI_NEW(pthread_t, threads);
    load.begin = cli_now();
    for (int i = 0; i < threads; i++) {
        if (pthread_create(&workers[i], NULL, cli_load_worker, &load))
            cli_die(1, "bench: no thread %d of %d could be started", i + 1, threads);
    }
    for (int i = 0; i < threads; i++) pthread_join(workers[i], NULL);
    double seconds = cli_now() - load.begin;
    if (cli_interrupts) return 130;
    for (int i = 0; i < load.n; i++) {
        if (load.calls[i].error[0]) error = load.calls[i].error, failed++;
    }
    if (failed < load.n) cli_load_report(&load, o->json, seconds);
    if (failed) cli_die(1, "--url: %s: %d of %d requests failed: %s", cli_clip(o->url), failed, load.n, error);
    for (int i = 0; i < load.n; i++) free(load.calls[i].gaps);
    free(load.calls);
    free(workers);
    return 0;
}

/* ---------------------------------------------------------------------------
 * The line editor: raw mode, UTF-8 with display widths, history, bracketed paste. After a key the whole text is laid out and drawn
 * again; the line breaks are written by us, so that nothing depends on how a terminal wraps.
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
    /* clang-format off */
    static const int32_t ranges[][3] = {{0, 0x300, 0x36F}, {0, 0x483, 0x489}, {0, 0x591, 0x5BD}, {0, 0x5BF, 0x5C7}, {0, 0x610, 0x61A}, {0,
        0x64B, 0x65F},
        {0, 0x6D6, 0x6DC}, {0, 0x6DF, 0x6E4}, {0, 0x900, 0x902}, {0, 0x93A, 0x93C}, {0, 0x941, 0x948}, {0, 0x94D, 0x94D}, {0, 0xE31, 0xE31},
        {0, 0xE34, 0xE3A}, {0, 0xE47, 0xE4E}, {0, 0x1AB0, 0x1AFF}, {0, 0x1DC0, 0x1DFF}, {0, 0x200B, 0x200F}, {0, 0x2060, 0x2064}, {0,
        0x20D0, 0x20FF},
        {0, 0x302A, 0x302D}, {0, 0x3099, 0x309A}, {0, 0xFE00, 0xFE0F}, {0, 0xFE20, 0xFE2F}, {0, 0x1F3FB, 0x1F3FF}, {0, 0xE0100, 0xE01EF},
        {2, 0x1100, 0x115F}, {2, 0x231A, 0x231B}, {2, 0x23E9, 0x23EC}, {2, 0x2614, 0x2615}, {2, 0x26A1, 0x26A1}, {2, 0x2705, 0x2705}, {2,
        0x2728, 0x2728},
        {2, 0x2E80, 0x303E}, {2, 0x3041, 0xA4CF}, {2, 0xA960, 0xA97C}, {2, 0xAC00, 0xD7A3}, {2, 0xF900, 0xFAFF}, {2, 0xFE30, 0xFE6F}, {2,
        0xFF00, 0xFF60},
        {2, 0xFFE0, 0xFFE6}, {2, 0x1F300, 0x1F64F}, {2, 0x1F680, 0x1F6FF}, {2, 0x1F900, 0x1FAFF}, {2, 0x20000, 0x3FFFD}};
    /* clang-format on */
    for (int i = 0; i < CLI_COUNT(ranges); i++) {
        if (cp >= ranges[i][1] && cp <= ranges[i][2]) return ranges[i][0];
    }
    return 1;
}

static void cli_tty_write(const cli_editor *e, const char *s, size_t n) {
    for (ssize_t w; n; s += w > 0 ? w : 0, n -= w > 0 ? (size_t)w : 0) {
        w = write(e->fd, s, n);
        if (w < 0 && errno != EINTR && errno != EAGAIN) cli_die(1, "terminal: %s", strerror(errno));
    }
}

static void cli_tty_mode(const cli_editor *e, int raw, int signals) {
    struct termios t = e->cooked;
    if (raw) {
        t.c_iflag &= ~(tcflag_t)(ICRNL | IXON | ISTRIP | INPCK | BRKINT);
        t.c_lflag &= ~(tcflag_t)(ECHO | ICANON | IEXTEN | (signals ? 0 : ISIG));
        t.c_cc[VMIN] = 1, t.c_cc[VTIME] = 0;
    }
    tcsetattr(0, TCSADRAIN, &t);
}

static size_t cli_edit_next(const cli_editor *e, size_t at) { /* past a character and the marks on it */
    int32_t cp = 'a';
    for (size_t begin = at, n = 0; at < e->text.len; at += n) {
        n = cli_utf8(e->text.data + at, e->text.len - at, &cp);
        if (at > begin && (cp < 0 || cli_width(cp))) break;
    }
    return at;
}

static size_t cli_edit_back(const cli_editor *e, size_t at) {
    size_t begin = 0;
    for (size_t next; (next = cli_edit_next(e, begin)) < at;) begin = next;
    return begin;
}

static size_t cli_edit_word(const cli_editor *e, size_t at, int forward) {
    const unsigned char *s = (const unsigned char *)e->text.data;
    if (forward) {
        while (at < e->text.len && isspace(s[at])) at++;
        while (at < e->text.len && !isspace(s[at])) at++;
    } else {
        while (at && isspace(s[at - 1])) at--;
        while (at && !isspace(s[at - 1])) at--;
    }
    return at;
}

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
    int height = size.ws_row > 1 ? size.ws_row : 1, top = cursor_row - height / 2;
    if (top + height > row + 1) top = row + 1 - height;
    if (top < 0) top = 0;
    int last = row < top + height - 1 ? row : top + height - 1, r = 0;
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
    for (size_t i = 0; i < t.len; i++) {
        if (t.data[i] != '\n' || !i || t.data[i - 1] != '\r') t.data[n++] = t.data[i];
    }
    for (size_t i = 0; i < n; i++) t.data[i] = t.data[i] == '\r' ? '\n' : t.data[i];
    cli_edit_replace(e, e->cursor, e->cursor, t.data, n);
    llm_text_free(&t);
}

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
    char seq[24] = {0};
    int n = 0, c = cli_key_byte(50);
    if (c == '\r' || c == '\n') cli_edit_replace(e, e->cursor, e->cursor, "\n", 1);
    if (c == 'd') cli_edit_replace(e, e->cursor, cli_edit_word(e, e->cursor, 1), "", 0);
    if (c == 'b' || c == 'f') e->cursor = cli_edit_word(e, e->cursor, c == 'f');
    if (c == 127) return 23;
    if (c != '[' && c != 'O') return 0;
    for (c = 0; n < 20 && c < 64 && (c = cli_key_byte(50)) >= 0;) seq[n++] = (char)c;
    int number = atoi(seq), key = n ? seq[n - 1] : 0;
    if ((key == 'C' || key == 'D') && strchr(seq, ';'))
        e->cursor = cli_edit_word(e, e->cursor, key == 'C'); /* with shift, alt or control */
    else if (key == 'C' || key == 'D') return key == 'C' ? 6 : 2;
    if (key == 'A' || key == 'B') return key == 'A' ? 16 : 14;
    if (key == 'H' || (key == '~' && (number == 1 || number == 7))) return 1;
    if (key == 'F' || (key == '~' && (number == 4 || number == 8))) return 5;
    if (key == '~' && number == 3) cli_edit_replace(e, e->cursor, cli_edit_next(e, e->cursor), "", 0);
    if (key == '~' && number == 200) cli_edit_paste(e);
    return 0;
}

/* clang-format off */
/* One key. Returns -1 to go on, else how the edit ended. */
static int cli_edit_key(cli_editor *e, int c) {
    char s[4] = {(char)c};
    int n = 1, want = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    int32_t cp;
    if (c == 27) c = cli_edit_escape(e);
    switch (c) {
    case 0: break;
    case 1: e->cursor = 0; break;
    case 2: e->cursor = cli_edit_back(e, e->cursor); break;
    case 3: return CLI_EDIT_INTERRUPT;
    case 4:
        if (!e->text.len) return CLI_EDIT_END;
        cli_edit_replace(e, e->cursor, cli_edit_next(e, e->cursor), "", 0);
        break;
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
/* clang-format on */

/* Reads one message into e->text. */
static int cli_edit(cli_editor *e, const char *prompt) {
    int end = -1;
    struct pollfd more = {0, POLLIN, 0};
    llm_text_free(&e->text);
    llm_text_add(&e->text, "", 0);
    e->cursor = 0, e->row = 0, e->at = e->n_history;
    cli_tty_mode(e, 1, 0);
    cli_tty_write(e, "\x1b[?2004h", 8);
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

static void cli_history_add(cli_editor *e, const char *line, FILE *file) {
    llm_text t = {0};
    if (e->n_history && !strcmp(e->history[e->n_history - 1], line)) return;
    if (e->n_history == CLI_HISTORY) {
        free(e->history[0]);
        memmove(e->history, e->history + 1, sizeof e->history - sizeof e->history[0]);
        e->n_history--;
    }
    e->history[e->n_history++] = strdup(line);
    cli_json(&t, "%q\n", line);
    if (file) fputs(t.data, file);
    llm_text_free(&t);
}

/* Reads $XDG_STATE_HOME/llm_cli/history, one JSON string a line, and makes its folder. A file grown to twice what is kept is cut. */
static void cli_history_open(cli_editor *e) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char path[4300], *line = NULL;
    size_t cap = 0;
    int count = 0, in_state = state && *state == '/';
    snprintf(path, sizeof path, in_state ? "%.4000s/llm_cli/history" : "%.4000s/.local/state/llm_cli/history",
             in_state ? state
             : home   ? home
                      : "");
    for (char *slash = path + 1; (slash = strchr(slash, '/')); *slash++ = '/') *slash = 0, mkdir(path, 0700);
    e->path = strdup(path);
    FILE *f = fopen(path, "re");
    for (ssize_t n; f && (n = getline(&line, &cap, f)) >= 0; count++) {
        llm_json *doc = NULL;
        if (llm_json_parse(line, (size_t)n, NULL, &doc) == LLM_OK && llm_json_str(doc, 0, NULL))
            cli_history_add(e, llm_json_str(doc, 0, NULL), NULL);
        llm_json_free(doc);
    }
    if (f) fclose(f);
    free(line);
    int kept = count > 2 * CLI_HISTORY ? e->n_history : 0;
    if (!kept || !(f = fopen(path, "we"))) return;
    for (int i = 0; i < kept; i++) {
        llm_text t = {0};
        cli_json(&t, "%q\n", e->history[i]);
        fputs(t.data, f);
        llm_text_free(&t);
    }
    fclose(f);
}

static void cli_history_save(cli_editor *e, const char *line) {
    int fd = open(e->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "a") : NULL;
    cli_history_add(e, line, f);
    if (f) fclose(f);
}

/* ---------------------------------------------------------------------------
 * The conversation at a terminal.
 * --------------------------------------------------------------------------- */

typedef struct cli_talk {
    cli_session *c;
    cli_editor e;
    cli_message *messages;
    int n, color;
} cli_talk;

static void cli_talk_push(cli_talk *k, const char *role, const char *text, size_t n) {
    cli_message *grown = (cli_message *)realloc((void *)k->messages, (size_t)(k->n + 1) * sizeof *grown);
    char *copy = strndup(text, n);
    if (!grown || !copy) cli_die(1, "memory: no room for message %d", k->n);
    k->messages = grown;
    k->messages[k->n].role = !strcmp(role, "system") ? "system" : !strcmp(role, "assistant") ? "assistant" : "user";
    k->messages[k->n++].text = copy;
}

static void cli_talk_cut(cli_talk *k, int n) {
    while (k->n > n) free(k->messages[--k->n].text);
}

static void cli_talk_reset(cli_talk *k) {
    const char *system = k->c->o->system;
    cli_talk_cut(k, 0);
    if (system && *system) cli_talk_push(k, "system", system, strlen(system));
}

/* Answers the last message. What cannot be answered is told and taken back. */
static void cli_talk_answer(cli_talk *k) {
    llm_request_config cfg = {0};
    llm_request *request = NULL;
    llm_tokens ids = {0};
    llm_output out;
    int ok = cli_sampling(k->c->o, k->c->model, 2048, &cfg.sampling) && cli_chat_ids(k->c, k->messages, k->n, &ids);
    cfg.sampling.n = cfg.sampling.best_of = 1;
    cfg.prompt_ids = ids.data;
    cfg.n_prompt_ids = ids.len;
    if (ok && llm_request_submit(k->c->engine, &cfg, &request) != LLM_OK) ok = cli_bad("%s", llm_last_error());
    if (ok) {
        cli_tty_mode(&k->e, 1, 1); /* keys pressed now are for the next message; Ctrl-C is a signal */
        int cancelled = cli_run_shown(k->c, request);
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
        cli_talk_cut(k, k->n - 1);
    }
    cli_interrupts = 0;
    llm_request_free(request);
    llm_tokens_free(&ids);
}

static void cli_talk_save(const cli_talk *k, const char *path) {
    llm_text t = {0};
    llm_text_str(&t, "{\"messages\": ");
    cli_add_messages(&t, k->messages, k->n);
    llm_text_str(&t, "}\n");
    FILE *f = fopen(path, "we");
    int ok = f && fwrite(t.data, 1, t.len, f) == t.len;
    if (f && fclose(f)) ok = 0;
    cli_say("", ok ? "%d messages saved" : "%d messages not saved: %s", k->n, strerror(errno));
    llm_text_free(&t);
}

static void cli_talk_load(cli_talk *k, const char *path) {
    llm_json *doc = NULL;
    llm_text t = {0};
    size_t n;
    if (!cli_read(path, &t) ||
        (llm_json_parse(t.data, t.len, NULL, &doc) != LLM_OK && !cli_bad("%s: %s", cli_clip(path), llm_last_error()))) {
        cli_say("llm_cli: ", "%s", cli_why);
    } else {
        cli_talk_cut(k, 0);
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
    cli_json(&t, "{%q: %q}", rest, value);
    cli_check(llm_json_parse(t.data, t.len, NULL, &doc));
    int ok = llm_options_json(&o->by_name, doc, 0, LLM_FROM_USER, NULL) == LLM_OK || cli_bad("%s", llm_last_error());
    if (!ok || !cli_finish(o) || !cli_sampling(o, k->c->model, 2048, &check)) {
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

static void cli_talk_show(const cli_talk *k) {
    const llm_model_info *i = llm_model_get_info(k->c->model);
    llm_engine_stats stats;
    llm_sampling s;
    llm_engine_get_stats(k->c->engine, &stats);
    if (!cli_sampling(k->c->o, k->c->model, 2048, &s)) return;
    cli_say("", "model %s (%s, %s), context %d tokens, %s", i->path, i->architecture, i->file_type ? i->file_type : "", stats.max_model_len,
            stats.backend);
    cli_say("", "temperature %g, top-p %g, top-k %d, min-p %g, repetition-penalty %g, max-tokens %d", (double)s.temperature,
            (double)s.top_p, s.top_k, (double)s.min_p, (double)s.repetition_penalty, s.max_tokens);
    cli_say("", "system: %s", k->n && !strcmp(k->messages[0].role, "system") ? k->messages[0].text : "(none)");
    cli_say("", "%d messages", k->n);
}

/* A line that begins with '/'. 0: leave. */
static int cli_talk_command(cli_talk *k, char *line) {
    size_t n = strcspn(line, " ");
    char *rest = line + n + strspn(line + n, " ");
    int user = k->n - 1;
    line[n] = 0;
    if (!strcmp(line, "/exit") || !strcmp(line, "/quit")) return 0;
    if (!strcmp(line, "/reset")) {
        cli_talk_reset(k);
        fputs("a new conversation\n", stderr);
    } else if (!strcmp(line, "/regen")) {
        while (user >= 0 && strcmp(k->messages[user].role, "user")) user--;
        if (user < 0) fputs("nothing was asked yet\n", stderr);
        else cli_talk_cut(k, user + 1), cli_talk_answer(k);
    } else if (!strcmp(line, "/set")) {
        cli_talk_set(k, rest);
    } else if (!strcmp(line, "/show")) {
        cli_talk_show(k);
    } else if (*rest && (!strcmp(line, "/save") || !strcmp(line, "/load"))) {
        if (line[1] == 's') cli_talk_save(k, rest);
        else cli_talk_load(k, rest);
    } else {
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
        if (end == CLI_EDIT_INTERRUPT) {
            interrupts = n ? 0 : interrupts + 1;
            leave = interrupts > 1;
            if (interrupts == 1) fputs("(once more, or Ctrl-D, to leave)\n", stderr);
            continue;
        }
        interrupts = 0;
        leave = end == CLI_EDIT_END;
        if (leave || strspn(text, " \t\n") == n) continue;
        cli_history_save(&k.e, text);
        if (text[0] == '/' && !memchr(text, '\n', n)) {
            leave = !cli_talk_command(&k, text);
        } else {
            cli_talk_push(&k, "user", text, n);
            cli_talk_answer(&k);
        }
    }
    cli_talk_cut(&k, 0);
    free((void *)k.messages);
    while (k.e.n_history) free(k.e.history[--k.e.n_history]);
    free(k.e.fresh), free(k.e.path);
    llm_text_free(&k.e.text);
    return 0;
}

/* --------------------------------------------------------------------------- */

static void cli_on_signal(int number) { /* the first interrupt is waited for until the step ends; a second one is impatience */
    if (number == SIGINT && ++cli_interrupts > 1) _exit(130);
}

int main(int argc, char **argv) {
    /* clang-format off */
    static const struct { const char *name; int (*run)(cli_session *c); } commands[] = {
        {"chat", cli_cmd_chat}, {"generate", cli_cmd_generate}, {"score", cli_cmd_score}, {"tokenize", cli_cmd_tokenize},
        {"detokenize", cli_cmd_detokenize}, {"render", cli_cmd_render}, {"batch", cli_cmd_batch}, {"bench", cli_cmd_bench}, {"info",
         cli_cmd_info}};
    /* clang-format on */
    static cli_options options;
    cli_session c = {&options, NULL, NULL, {0}};
    struct sigaction action;
    int code = 2;
    for (int fd = 0; fd < 3; fd++) { /* a closed standard stream must not become a model's file */
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_RDWR) < 0) return 1;
    }
    memset(&action, 0, sizeof action);
    action.sa_handler = cli_on_signal;
    sigaction(SIGINT, &action, NULL); /* no SA_RESTART: a read is interrupted */
    sigaction(SIGWINCH, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    const char *command = cli_parse(&options, argc, argv);
    for (int i = 0; i < CLI_COUNT(commands); i++) {
        if (!strcmp(commands[i].name, command)) code = commands[i].run(&c);
    }
    cli_show_notes();
    llm_engine_close(c.engine);
    llm_model_close(c.model);
    llm_text_free(&c.rendered);
    cli_options_free(&options);
    return code;
}
