/* llm_cli.c - the command line of llm.h: chat, generate, tokenize, score, measure.
 *
 * It uses the public part of llm.h only, so it is an example of it too. Read from the bottom: main, the table of commands, then
 * the cli_cmd_* function of a command. One table of options (cli_table) serves the command line, LLM_ARG_* in the environment,
 * a config file and /set in a chat. One way leads to an answer (cli_call): chat, generate, the conversation and batch write the body of
 * an OpenAI request and read its answer, as a client of llm_serve does, but without a socket. What a command finds out is written as
 * JSON, and its text is made of that (cli_result).
 *
 * Answers and JSON go to standard output, everything else to standard error. Exit 0 done, 1 failed, 2 usage, 130 interrupted;
 * a failure ends with one line "llm_cli: error: what: value, what was expected". */
#define _GNU_SOURCE
#if defined(LLM_IMPLEMENTATION) && !defined(LLM_NO_VISION)
#define LLM_IMAGE_IMPLEMENTATION /* stb_image too */
#endif
#include "llm.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#define CLI_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define CLI_UNUSED __attribute__((unused))
/* Variables that free what they hold where their block ends, however it is left. */
#define CLI_TEXT __attribute__((cleanup(cli_text_free))) llm_text
static void cli_text_free(llm_text *t);
#define CLI_TOKENS __attribute__((cleanup(llm_tokens_free))) llm_tokens
#define CLI_JSON __attribute__((cleanup(cli_json_free))) llm_json
static void cli_json_free(llm_json **doc) { llm_json_free(*doc); }
#define CLI_MAX_INPUT ((size_t)64 << 20) /* a prompt of more bytes fits no context */
#define CLI_WIDEST 4096                  /* the most answers beside each other that bench and batch reckon with */

/* ---------------------------------------------------------------------------
 * Output and input. A function that can fail returns an llm_result, as the library's do, and leaves its sentence where llm_last_error
 * finds it (cli_bad); the command decides whether that ends the program (cli_check) or only one message of a chat. What is quoted may be
 * hostile: control characters are shown as \xNN, and an error is one line. JSON is written with llm_text_format, tables with printf;
 * both go through one check of standard output.
 * --------------------------------------------------------------------------- */

static volatile sig_atomic_t cli_interrupts = -1; /* SIGINTs since an answer began; -1: none has */
static llm_text cli_notes;                        /* lines that wait until the work has begun, so that an error stands alone */
static char cli_sentence[1000];
static const char *cli_output = "standard output";
static int cli_argc; /* as main got them */
static char **cli_argv;

/* Keeps a sentence of our own for llm_last_error and returns r, so that a function that fails ends in one line. */
#define cli_bad(r, ...) (snprintf(cli_sentence, sizeof cli_sentence, __VA_ARGS__), llm_backend_error(r, cli_sentence))
/* One line on standard error, as harmless as those of the library; the error line ends the program. */
#define cli_say(prefix, ...) (cli_bad(LLM_OK, __VA_ARGS__), fprintf(stderr, "%s%s\n", prefix, llm_last_error()))
#define cli_die(code, ...) (cli_say("llm_cli: error: ", __VA_ARGS__), exit(code))

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

/* A remark of the option readers, in the words of the command line. */
static void cli_note(void *user, const char *line) {
    llm_text_str(&cli_notes, "llm_cli: note: ");
    llm_options_sentence((const llm_options *)user, cli_argc, cli_argv, getenv, line, &cli_notes);
    llm_text_str(&cli_notes, "\n");
}

/* A text that lacks a part for want of memory ends the program: nothing is made of it. It is looked at before its bytes are, and in the end. */
static void cli_whole(const llm_text *t) {
    if (t->failed) cli_die(1, "memory: a text of more than %zu bytes did not fit", t->len);
}

static void cli_text_free(llm_text *t) {
    cli_whole(t);
    llm_text_free(t);
}

/* Standard output has failed, in this write or in an earlier one: what errno says now may be of something else, so a byte asks for the cause
 * once more. If who read has enough, as in `llm_cli ... | head`, the program ends without a word, as SIGPIPE ends others. */
static void cli_broken(void) {
    const int cause = write(1, "\n", 1) < 0 ? errno : EIO;
    if (cause == EPIPE) signal(SIGPIPE, SIG_DFL), raise(SIGPIPE);
    cli_die(1, "%s: %s", cli_output, strerror(cause));
}

/* Every byte of an answer goes through here, or through printf and a call with nothing; what cannot be written ends the program. */
static void cli_write(const char *s, size_t n) {
    cli_print(stderr, cli_notes.data, cli_notes.len, 1);
    llm_text_free(&cli_notes);
    int ok = isatty(1) ? cli_print(stdout, s, n, 1) : (!n || fwrite(s, 1, n, stdout) == n) && !ferror(stdout) && !fflush(stdout);
    if (!ok) cli_broken();
}

/* Writes and frees. */
static void cli_out(llm_text *t) {
    cli_whole(t);
    cli_write(t->data, t->len);
    llm_text_free(t);
}

/* Appends a file, or standard input for "-". */
static llm_result cli_read(const char *path, llm_text *out) {
    char block[65536];
    FILE *f = strcmp(path, "-") ? fopen(path, "re") : stdin;
    out->limit = CLI_MAX_INPUT;
    for (size_t n; f && !out->failed && (n = fread(block, 1, sizeof block, f)) > 0;) llm_text_add(out, block, n);
    llm_result r = f && !ferror(f) ? LLM_OK : cli_bad(LLM_ERR_IO, "%.60s: %s", f == stdin ? "standard input" : path, strerror(errno));
    llm_text_add(out, "", 0);
    if (out->failed && out->len + sizeof block > CLI_MAX_INPUT) {
        llm_text_free(out);
        r = cli_bad(LLM_ERR_LIMIT, "%.60s: more than %zu MiB, a text that fits a context was expected", path, CLI_MAX_INPUT >> 20);
    }
    if (f && f != stdin) fclose(f);
    if (!r) cli_whole(out);
    return r;
}

/* The next line of standard input without its end, until the next call; NULL when there is none. */
static char *cli_line(size_t *n) {
    static char *line;
    static size_t room;
    errno = 0;
    ssize_t got = getline(&line, &room, stdin);
    if (ferror(stdin) || (got < 0 && errno == ENOMEM)) cli_die(1, "input: %s", strerror(errno));
    while (got > 0 && (line[got - 1] == '\n' || line[got - 1] == '\r')) line[--got] = 0;
    *n = got < 0 ? 0 : (size_t)got;
    return got < 0 ? NULL : line;
}

/* ---------------------------------------------------------------------------
 * Options: one table for the command line, the environment, a config file and /set in a chat. The rows that both programs have are the
 * library's (LLM_OPTIONS_*), so they spell them alike. A value passes two tests: its row's (type and range, at once) and, when it is
 * part of a request, the one that requests have in >>openai (lists, JSON, what needs the vocabulary). The number options of an answer
 * are laid over the model's own defaults (llm_setup_service); the others are members of the request's body.
 * --------------------------------------------------------------------------- */

typedef struct cli_options {
    llm_setup setup;
    const char *prompt, *file, *system, *token_ids, *in, *out, *batch, *url;
    const char *draft_path, *draft_weights, *base_path, *base_weights;
    const char *type, *output_type, *embedding_type, *imatrix; /* quantize */
    int32_t allow_requantize, leave_output, pure, convert, chunk_tokens, chunks;
    const char *quant_type, *storage, *calibration_ids; /* of folders */
    float smooth, damp;
    int32_t group_size, bits, desc_act, multi_query;
    const char *name;                          /* of the Hub's: pull, rm */
    const char *json_schema, *regex, *grammar; /* the form of the answer: at most one */
    const char *logit_bias, *template_kwargs, *stop_ids;
    llm_option_list stop, bad_words, images;
    const char *messages;
    const char *query, *instruction; /* rerank */
    llm_option_list documents;       /* its words */
    int32_t json, jsonl, add_special, parse_special, skip_special, top_logprobs, logprobs, help, help_all, version, plain, verbose, yes;
    int32_t layer, head, repetitions, depth, stages, max_concurrency, num_prompts, input_len, output_len;
    float request_rate;
} cli_options;

/* clang-format off */
static cli_options opt = {.skip_special = 1, .layer = -1, .head = -1, .repetitions = 5, .batch = "1", .max_concurrency = 64, .num_prompts = 64,
                          .input_len = 128, .output_len = 64, .smooth = -1};
/* clang-format on */

enum { CLI_IO = LLM_HELP_OWN, CLI_BENCH, CLI_ANSWERS = LLM_HELP_ANSWERS }; /* groups of the help; -1: not listed */

/* clang-format off */
static const llm_option cli_table[] = {
    LLM_OPT_BOOL(cli_options, verbose, CLI_IO, "v|verbose", "tokens a second after each answer"),
    LLM_OPTIONS_PROGRAM(cli_options, setup),
    LLM_OPTIONS_SETUP(cli_options, setup),
    LLM_OPT_BOOL(cli_options, setup.sampling.use_beam_search, CLI_ANSWERS, "use-beam-search", "the likeliest answers of --best-of beams, with --temp 0"),
    LLM_OPT_FLOAT(cli_options, setup.sampling.length_penalty, CLI_ANSWERS, "length-penalty", -100, 100, "of a beam's score (1)"),
    {"stop|stop-words", LLM_OPTION_LIST, CLI_ANSWERS, offsetof(cli_options, stop), 0, 0, "TEXT", "ends the answer; may be repeated"},
    {"bad-words", LLM_OPTION_LIST, CLI_ANSWERS, offsetof(cli_options, bad_words), 0, 0, "TEXT", "must not appear; may be repeated"},
    LLM_OPT_TEXT(cli_options, stop_ids, CLI_ANSWERS, "stop-token-ids", "IDS", "ids that end the answer: 1,2 or [1,2]"),
    LLM_OPT_TEXT(cli_options, logit_bias, CLI_ANSWERS, "logit-bias", "JSON", "{\"id\": -100 to 100, ...} added to the logits"),
    LLM_OPT_TEXT(cli_options, json_schema, CLI_ANSWERS, "json-schema|guided-json", "JSON|@FILE", "the answer is JSON that keeps this schema"),
    LLM_OPT_TEXT(cli_options, regex, CLI_ANSWERS, "regex|guided-regex", "REGEX|@FILE", "the answer matches it from end to end"),
    LLM_OPT_TEXT(cli_options, grammar, CLI_ANSWERS, "grammar|guided-grammar", "GBNF|@FILE", "the answer follows its rule root"),
    LLM_OPT_BOOL(cli_options, skip_special, CLI_ANSWERS, "skip-special-tokens", "--no-: special tokens appear in the text"),
    LLM_OPT_TEXT(cli_options, template_kwargs, CLI_ANSWERS, "chat-template-kwargs|default-chat-template-kwargs", "JSON", "template variables: '{\"enable_thinking\": false}'"),
    LLM_OPT_TEXT(cli_options, prompt, CLI_IO, "p|prompt", "TEXT", "the prompt"),
    LLM_OPT_TEXT(cli_options, file, CLI_IO, "f|file", "FILE", "the prompt from a file; -: standard input"),
    LLM_OPT_TEXT(cli_options, token_ids, CLI_IO, "token-ids", "IDS", "the prompt as ids: '[1,2]'"),
    LLM_OPT_TEXT(cli_options, system, CLI_IO, "system|sys|system-prompt", "TEXT", "system message of a chat"),
    LLM_OPT_TEXT(cli_options, messages, CLI_IO, "messages", "FILE", "a chat as JSON messages; \"file:NAME\" in a url is a picture beside it"),
    {"image", LLM_OPTION_LIST, CLI_IO, offsetof(cli_options, images), 0, 0, "FILE", "a picture that the question is about; may be repeated"},
    LLM_OPT_BOOL(cli_options, json, CLI_IO, "json", "the result as JSON"),
    LLM_OPT_BOOL(cli_options, jsonl, CLI_IO, "jsonl", "one JSON value a line, in and out"),
    LLM_OPT_BOOL(cli_options, add_special, CLI_IO, "add-special", "tokenize: BOS and EOS as the model says"),
    LLM_OPT_BOOL(cli_options, parse_special, CLI_IO, "parse-special", "tokenize: text may become special tokens"),
    LLM_OPT_INT(cli_options, logprobs, CLI_IO, "logprobs", 0, INT32_MAX - 1, "log-probabilities of each token and the N likeliest"),
    LLM_OPT_TEXT(cli_options, query, CLI_IO, "query", "TEXT", "rerank: what the documents shall answer; also -q TEXT"),
    LLM_OPT_TEXT(cli_options, instruction, CLI_IO, "instruction", "TEXT", "rerank: what the query is (a web search)"),
    LLM_OPT_INT(cli_options, top_logprobs, CLI_IO, "top-logprobs", 0, INT32_MAX, "score: the N likeliest at each place"),
    LLM_OPT_INT(cli_options, layer, CLI_IO, "layer", 0, INT32_MAX, "explain: the layer that is shown from inside"),
    LLM_OPT_INT(cli_options, head, CLI_IO, "head", 0, INT32_MAX, "explain: the head of attention that is shown"),
    LLM_OPT_TEXT(cli_options, in, CLI_IO, "i|input", "FILE", "batch: requests, one JSON object a line"),
    LLM_OPT_TEXT(cli_options, out, CLI_IO, "o|output-file", "FILE", "batch: answers"),
    LLM_OPT_TEXT(cli_options, type, CLI_IO, "type|outtype", "NAME", "quantize, convert: q4_k_m, q8_0, q6_k, q5_k_m, q4_0, ... (q4_k_m)"),
    LLM_OPT_BOOL(cli_options, allow_requantize, CLI_IO, "allow-requantize", "quantize: matrices may be quantised already, which loses twice"),
    LLM_OPT_BOOL(cli_options, leave_output, CLI_IO, "leave-output-tensor", "quantize: the output layer stays as it is"),
    LLM_OPT_BOOL(cli_options, pure, CLI_IO, "pure", "quantize: one type for all matrices"),
    LLM_OPT_TEXT(cli_options, output_type, CLI_IO, "output-tensor-type", "NAME", "quantize: the type of the output layer"),
    LLM_OPT_TEXT(cli_options, embedding_type, CLI_IO, "token-embedding-type", "NAME", "quantize: the type of the embedding"),
    LLM_OPT_TEXT(cli_options, imatrix, CLI_IO, "imatrix", "FILE", "quantize: an importance matrix, of llm_cli imatrix or llama-imatrix"),
    LLM_OPT_INT(cli_options, chunk_tokens, CLI_IO, "chunk-size", 8, 1 << 20, "imatrix, -quant_type: tokens that are read at a time (512)"),
    LLM_OPT_INT(cli_options, chunks, CLI_IO, "chunks", 1, INT32_MAX, "chunks of the text at most (imatrix: all, -quant_type: 128)"),
    LLM_OPT_TEXT(cli_options, quant_type, CLI_IO, "quant-type", "NAME", "quantize: a folder by weight_only_int8, smooth_quant, awq or gptq"),
    LLM_OPT_TEXT(cli_options, storage, CLI_IO, "storage-type", "TYPE", "quantize: of a folder, what is not quantised: fp16, bf16; also -t fp16"),
    LLM_OPT_TEXT(cli_options, calibration_ids, CLI_IO, "token|tokenids-path", "FILE", "quantize: token ids to calibrate with, a line a sequence; -f: a text (a built-in one)"),
    LLM_OPT_FLOAT(cli_options, smooth, CLI_IO, "sq|smoothquant", 0, 1, "quantize: smooth_quant's alpha (0.8, of GLM 0.75)"),
    LLM_OPT_INT(cli_options, group_size, CLI_IO, "group-size", -1, 128, "quantize: awq, gptq: columns that share a scale, -1: rows (128, or what fits)"),
    LLM_OPT_INT(cli_options, bits, CLI_IO, "bits", 2, 8, "quantize: gptq: 2, 3, 4 or 8 (4)"),
    LLM_OPT_BOOL(cli_options, desc_act, CLI_IO, "desc-act|act-order", "quantize: gptq: groups of columns in the order of what they weigh"),
    LLM_OPT_FLOAT(cli_options, damp, CLI_IO, "damp-percent", 0, 1, "quantize: gptq: share of the mean that the diagonal gets (0.05)"),
    LLM_OPT_BOOL(cli_options, multi_query, CLI_IO, "multi-query-mode", "quantize: no effect, heads of k and v are as the model has them"),
    LLM_OPT_TEXT(cli_options, draft_path, CLI_IO, "draft-path", "DIR", "convert-eagle: the head, converted where it is unless TO is given"),
    LLM_OPT_TEXT(cli_options, base_path, CLI_IO, "base-path", "DIR", "convert-eagle: the model, whose output layer is put beside the head"),
    LLM_OPT_TEXT(cli_options, draft_weights, CLI_IO, "draft-weight-name", "NAME", "convert-eagle: the head's file, if not as usual"),
    LLM_OPT_TEXT(cli_options, base_weights, CLI_IO, "base-weight-name", "NAME", "convert-eagle: the model's file that has the output layer (lm_head)"),
    LLM_OPT_BOOL(cli_options, plain, CLI_IO, "plain", "at a terminal: the answer as it comes, not wrapped, Markdown as written"),
    LLM_OPT_BOOL(cli_options, yes, CLI_IO, "y|yes", "rm: does not ask"),
    LLM_OPT_BOOL(cli_options, help, -1, "h|help", NULL),
    LLM_OPT_BOOL(cli_options, help_all, -1, "help-all", NULL),
    LLM_OPT_BOOL(cli_options, version, -1, "version", NULL),
    LLM_OPT_TEXT(cli_options, batch, CLI_BENCH, "b|batch", "LIST", "sequences decoded together: 1,8,16 (1)"),
    LLM_OPT_INT(cli_options, repetitions, CLI_BENCH, "r|repetitions", 1, 1000, "times each test runs (5)"),
    LLM_OPT_INT(cli_options, depth, CLI_BENCH, "depth", 0, 1e6, "tokens in the context before decoding begins"),
    LLM_OPT_BOOL(cli_options, stages, CLI_BENCH, "stages", "what each part of a step takes (on the CPU)"),
    LLM_OPT_TEXT(cli_options, url, CLI_BENCH, "url", "URL", "load test of a server: http://127.0.0.1:8180"),
    LLM_OPT_FLOAT(cli_options, request_rate, CLI_BENCH, "request-rate", 1e-3, 1e6, "requests a second, Poisson (all at once)"),
    LLM_OPT_INT(cli_options, max_concurrency, CLI_BENCH, "max-concurrency", 1, 1024, "requests in flight at most (64)"),
    LLM_OPT_INT(cli_options, num_prompts, CLI_BENCH, "num-prompts", 1, 1e6, "requests in all (64)"),
    LLM_OPT_INT(cli_options, input_len, CLI_BENCH, "random-input-len", 1, 1e6, "prompt tokens (128)"),
    LLM_OPT_INT(cli_options, output_len, CLI_BENCH, "random-output-len", 1, 1e6, "answer tokens (64)"),
    LLM_OPTIONS_SERVER,
    LLM_OPTIONS_FOREIGN,
};
/* clang-format on */

static unsigned char cli_given[CLI_COUNT(cli_table)]; /* tells an explicit 0 from a default */
static llm_options cli_names = {cli_table, CLI_COUNT(cli_table), &opt, cli_given, cli_note, &cli_names, {NULL, 0}, NULL};

/* Ends the program with the sentence, in the words of the command line, if something failed. An argument out of range is a usage error. */
static void cli_check(llm_result r) {
    CLI_TEXT t = {0};
    if (r == LLM_OK) return;
    llm_options_sentence(&cli_names, cli_argc, cli_argv, getenv, llm_last_error(), &t);
    cli_die(r == LLM_ERR_ARG ? 2 : 1, "%s", t.failed ? llm_last_error() : t.data);
}

/* Parses a text that should be JSON; 0: it is none. */
static int cli_json(const llm_text *t, llm_json **doc) {
    cli_whole(t);
    const llm_result r = llm_json_parse(t->data, t->len, NULL, doc);
    if (r == LLM_ERR_NOMEM) cli_check(r);
    return !r;
}

/* Appends the numbers of "[1,2]" or "1,2": ids, or sizes. */
static llm_result cli_parse_ids(const char *said, const char *text, llm_tokens *out) {
    CLI_TEXT list = {0};
    CLI_JSON *doc = NULL;
    int64_t id;
    llm_text_format(&list, text[strspn(text, " \t\r\n")] == '[' ? "%s" : "[%s]", text);
    int ok = cli_json(&list, &doc) && llm_json_type_of(doc, 0) == LLM_JSON_ARRAY;
    for (int i = ok ? llm_json_first(doc, 0) : -1; ok && i >= 0; i = llm_json_next(doc, i)) {
        ok = llm_json_int(doc, i, &id) && id >= 0 && id <= INT32_MAX;
        llm_tokens_add(out, (int32_t)id);
    }
    if (out->failed) cli_die(1, "memory: %zu ids did not fit", out->len);
    return ok ? LLM_OK : cli_bad(LLM_ERR_ARG, "%s: %.60s, whole numbers as '[1,2]' were expected", said, text);
}

/* Appends the options of an answer that are no numbers as members of a request's body, under their first names: JSON and lists of ids as
 * they are, others quoted; @FILE stands for what is in a file. */
static llm_result cli_add_members(llm_text *body) {
    for (int i = 0; i < CLI_COUNT(cli_table); i++) {
        const llm_option *row = &cli_table[i];
        const void *at = (const char *)&opt + row->at;
        CLI_TEXT name = {0}, value = {0};
        CLI_JSON *doc = NULL;
        if (row->group != CLI_ANSWERS || !cli_given[i]) continue;
        llm_text_add(&name, row->names, strcspn(row->names, "|"));
        cli_whole(&name);
        for (char *dash = name.data; (dash = strchr(dash, '-'));) *dash = '_';
        if (row->kind == LLM_OPTION_BOOL) llm_text_format(body, ",%q:%b", name.data, *(const int32_t *)at);
        if (row->kind == LLM_OPTION_LIST) {
            const llm_option_list *list = (const llm_option_list *)at;
            llm_text_format(body, ",%q:[", name.data);
            for (int32_t k = 0; k < list->n; k++) llm_text_format(body, "%,%q", list->items[k]);
            llm_text_str(body, "]");
        }
        if (row->kind != LLM_OPTION_TEXT) continue;
        const char *text = *(const char *const *)at;
        int ids = !strcmp(row->words, "IDS"), json = ids || !strcmp(row->words, "JSON");
        if (*text != '@' || !strstr(row->words, "@FILE")) llm_text_format(&value, ids && *text != '[' ? "[%s]" : "%s", text);
        else if (cli_read(text + 1, &value)) return LLM_ERR_ARG;
        if (json && !cli_json(&value, &doc))
            return cli_bad(LLM_ERR_ARG, "--%.*s: %.60s, JSON was expected", (int)name.len, row->names, text);
        llm_text_format(body, json ? ",%q:%s" : ",%q:%Q", name.data, value.data, value.len);
    }
    return LLM_OK;
}

/* ---------------------------------------------------------------------------
 * The model and its engine. Memory is taken for what the command needs: one sequence of prompt and answer, or a batch.
 * --------------------------------------------------------------------------- */

static struct { /* what the commands work with */
    llm_model *model;
    llm_engine *engine;
    llm_openai_service service; /* how requests are read and answers written */
    llm_text said;              /* the latest answer that was shown */
    int view, thinking;         /* answers are laid out for a terminal; thoughts are being shown */
    const char *dim, *plain;    /* to be printed before and behind what is less important; "": no colours are wanted */
    int stopped;                /* Ctrl-C ended it */
    int32_t limit;              /* tokens that a sequence may have: --max-model-len, else the model's own; 0: no limit */
    llm_text pictures;          /* of the next message: parts of its content */
    llm_openai_call *prompt;    /* that has read --messages, with its pictures; NULL: none */
    char *folder;               /* of --messages */
} cli = {.dim = "", .plain = ""};

/* At the usual level two warnings are enough to say that something is odd. */
static void cli_log(CLI_UNUSED void *user, int level, const char *message) {
    static int warnings;
    if (level > opt.setup.log_level || (level == LLM_LOG_WARN && level == opt.setup.log_level && ++warnings > 2)) return;
    fputs(level == LLM_LOG_WARN ? "llm_cli: warning: " : "llm_cli: ", stderr); /* not cli_say: llm_last_error is for the caller */
    cli_print(stderr, message, strlen(message), 0);
    fputs("\n", stderr);
}

/* A line on a terminal when loading takes long enough to wonder. */
static int cli_progress(CLI_UNUSED void *user, const char *what, double done) {
    static double begin;
    if (begin <= 0) begin = llm_now();
    if (isatty(2) && llm_now() - begin > 0.7) fprintf(stderr, done < 1 ? "\r%s %3.0f %%\x1b[K" : "\r\x1b[K", what, done * 100);
    return 0;
}

/* How far a model is fetched, on a terminal. What was there before does not count for how fast it goes. */
static int cli_pulled(CLI_UNUSED void *user, const char *file, int64_t done, int64_t total) {
    static double begin, told;
    static int64_t before;
    const double now = llm_now();
    if (begin <= 0) begin = now, before = done;
    if (!isatty(2) || (now - told < 0.15 && done < total)) return 0;
    const double rate = now > begin ? (double)(done - before) / (now - begin) : 0, left = rate > 0 ? (double)(total - done) / rate : 0;
    const char *base = strrchr(file, '/');
    told = now;
    fprintf(stderr, "\r%3.0f %%  %.1f of %.1f MB  %.1f MB/s  %d:%02d left  ", total ? 100.0 * (double)done / (double)total : 100,
            (double)done / 1e6, (double)total / 1e6, rate / 1e6, (int)fmin(left / 60, 9999), (int)fmod(left, 60));
    base = base ? base + 1 : file;
    cli_print(stderr, base, strnlen(base, 30), 0);
    fputs("\x1b[K", stderr);
    if (done >= total) fputs("\r\x1b[K", stderr);
    return 0;
}

/* vocab_only: tokenizer and template; then a --tokenizer alone will do. */
static void cli_open_model(int vocab_only) {
    llm_setup *s = &opt.setup;
    s->files.vocab_only = vocab_only;
#ifndef LLM_NO_VISION
    s->files.picture_reader = llm_picture_reader_stb();
#endif
    s->files.log = s->engine.log = cli_log;
    s->engine.progress = cli_progress;
    if (vocab_only && !s->model && !s->hf_repo) s->model = s->files.tokenizer;
    s->pull_progress = cli_pulled;
    cli_check(llm_setup_find(s, getenv));
    cli_check(llm_model_open(s->path.data, &s->files, &cli.model));
    cli_write("", 0); /* only the notes */
    cli.limit = llm_model_get_info(cli.model)->max_model_len;
    if (s->engine.max_model_len && (cli.limit <= 0 || s->engine.max_model_len < cli.limit || s->engine.allow_long_max_model_len))
        cli.limit = s->engine.max_model_len;
}

/* Opens an engine for `seqs` sequences of at most `need` tokens (0, or more than it can: all that the model can): memory is taken for
 * these only. */
static void cli_open_engine(int64_t need, int32_t seqs) {
    llm_engine_config *e = &opt.setup.engine;
    if (need > 0 && (cli.limit <= 0 || need < cli.limit) && e->max_model_len <= cli.limit) e->max_model_len = (int32_t)need;
    e->max_num_seqs = seqs;
    cli_check(llm_engine_open(cli.model, e, &cli.engine));
    cli_check(llm_setup_adapters(&opt.setup, cli.engine, NULL));
    llm_options_report(&cli_names, cli.engine);
    cli_write("", 0); /* only the notes */
    cli.service.engine = cli.engine;
}

/* ---------------------------------------------------------------------------
 * The answer on a terminal. Words wrap at the terminal's width while they stream, and the marks of Markdown that models write most become
 * what they mean: bold, code, headings, lists, rules, fences. A mark counts when it is whole, so a few characters may wait for the
 * next. In a pipe, and with --plain, every byte goes out as it came.
 *
 *   view_add: UTF-8 characters --> view_char: marks at the begin of a line --> view_inline: ** and ` --> view_put: words --> view_flush
 * --------------------------------------------------------------------------- */

enum { VIEW_BOLD = 1, VIEW_BOLD_END, VIEW_CODE, VIEW_CODE_END, VIEW_MARKS }; /* stand as bytes in a word */
enum { FENCE_NONE, FENCE_TITLE, FENCE_CODE };

static struct {
    int marks;                /* Markdown becomes what it means */
    int columns, col;         /* of the terminal; written of this row */
    int hang, gap;            /* blanks that later rows of this line begin with; blanks before the word */
    llm_text head, word;      /* what may be a mark at the begin of a line; the word that is not written yet */
    int width;                /* columns of the word */
    int begins, fence, stars; /* nothing of this line was written; FENCE_*; asterisks that wait */
    int bold, code, heading;
    char before; /* the first byte of the character before */
} view = {.begins = 1, .before = ' '};

/* Bytes of the character at s; its columns in *width, -1 for a control character, -2 and one byte where no UTF-8 begins. */
static size_t cli_char(const char *s, size_t n, int *width) {
    wchar_t wide = 0;
    mbstate_t state = {0};
    size_t len = mbrtowc(&wide, s, n, &state); /* over n for the two kinds of error, 0 for NUL */
    *width = len > n || (long)wide > 0x10FFFF ? -2 : wcwidth(wide);
    return *width == -2 || !len ? 1 : len;
}

/* Takes the last n bytes of what waits at a line's begin away. */
static void view_cut(size_t n) {
    view.head.len -= n;
    llm_text_add(&view.head, "", 0);
}

static void view_style(const char *sgr) {
    if (view.marks) fputs(sgr, stdout);
}

static void view_spaces(int n) {
    for (; n > 0; n--) putc(' ', stdout);
}

/* A dim line across, with a title at its left end. */
static void view_rule(const char *title, size_t n) {
    int left = (view.columns < 60 ? view.columns : 60) - (n ? (int)n + 4 : 0);
    fputs(cli.dim, stdout);
    if (n) fputs("\u2500\u2500 ", stdout), cli_print(stdout, title, n, 0), putc(' ', stdout);
    for (; left > 0; left--) fputs("\u2500", stdout);
    fputs(cli.plain, stdout);
}

/* Writes the word, in the next row if it does not fit into this one. */
static void view_flush(void) {
    static const char *const sgr[VIEW_MARKS] = {"", "\x1b[1m", "\x1b[22m", "\x1b[36m", "\x1b[39m"};
    const char *s = view.word.data;
    cli_whole(&view.word);
    if (!view.word.len) return;
    if (view.col + view.gap + view.width > view.columns && view.col > view.hang) {
        putc('\n', stdout);
        view_spaces(view.col = view.hang);
    } else if (view.width) view_spaces(view.gap), view.col += view.gap;
    if (view.width) view.gap = 0;
    for (size_t i = 0, n; i < view.word.len; i += n) {
        n = (unsigned char)s[i] < VIEW_MARKS ? 1 : 0;
        if (n) view_style(sgr[(unsigned char)s[i]]);
        else {
            while (i + n < view.word.len && (unsigned char)s[i + n] >= VIEW_MARKS) n++;
            cli_print(stdout, s + i, n, 0);
        }
    }
    view.col += view.width;
    view.word.len = 0;
    view.width = 0;
}

static void view_mark(int mark) {
    const char byte = (char)mark;
    llm_text_add(&view.word, &byte, 1);
}

/* The line's end: what was left open ends with it. */
static void view_newline(void) {
    if (view.bold || view.heading) view_mark(VIEW_BOLD_END);
    if (view.code) view_mark(VIEW_CODE_END);
    view_flush();
    putc('\n', stdout);
    view.bold = view.code = view.heading = view.hang = view.gap = view.col = 0;
    view.begins = 1;
    view.before = ' ';
}

/* One character of text. Between wide ones a row may end too: their languages have no blanks. */
static void view_put(const char *s, size_t n, int width) {
    if (*s == '\n') {
        view_newline();
        return;
    }
    if (*s == ' ' || *s == '\t') {
        view_flush();
        view.gap += *s == '\t' ? 4 : 1;
        view.before = ' ';
        return;
    }
    if (width == 2) view_flush();
    if (width >= 0 || n > 1) llm_text_add(&view.word, s, n);
    else llm_text_format(&view.word, "?"), width = 1; /* a control character, or no UTF-8 */
    view.width += width > 0 ? width : 0;
    view.before = *s;
}

/* Asterisks that wait are bold's begin before a word, its end behind one, or themselves: 5**2 is no bold text. */
static void view_stars(int before_blank) {
    const int n = view.stars;
    view.stars = 0;
    if (n < 2 || (view.bold ? view.before == ' ' : before_blank || ((view.before & 128) == 0 && isalnum((unsigned char)view.before))))
        for (int i = 0; i < n; i++) view_put("*", 1, 1);
    else view.bold = !view.bold, view_mark(view.bold ? VIEW_BOLD : VIEW_BOLD_END);
}

static void view_inline(const char *s, size_t n, int width) {
    if (view.marks && *s == '*' && !view.code) {
        view.stars++;
        return;
    }
    if (view.stars) view_stars(strchr(" \t\n", *s) != NULL);
    if (view.marks && *s == '`') view.code = !view.code, view_mark(view.code ? VIEW_CODE : VIEW_CODE_END);
    else view_put(s, n, width);
}

/* Can these bytes still become a mark at a line's begin? Blanks, and then `, #, or any of -*_ repeated, or +, or a number and . or ) */
static int view_may_begin(const char *s, size_t n) {
    const size_t blanks = strspn(s, " "), rest = n - blanks;
    const char *m = s + blanks;
    const size_t digits = strspn(m, "0123456789");
    if (blanks > 12 || n > 60) return 0;
    if (!rest) return 1;
    if (digits) return digits < 4 && (rest == digits || (rest == digits + 1 && strchr(".)", m[digits])));
    const size_t same = strspn(m, (const char[]){*m, 0});
    return same == rest && (*m == '`' ? same <= 3 : *m == '#' ? same <= 6 : *m == '+' ? same == 1 : strchr("-*_", *m) != NULL);
}

/* The line's begin is known as soon as character c follows it. Returns 1 if c belongs to the mark. */
static int view_begin(int c) {
    const char *h = view.head.data, *m = h + strspn(h, " ");
    const int rest = (int)strlen(m), blank = c == ' ' && rest,
              item = blank && (strchr("+-*", *m) ? rest == 1 : strchr(".)", m[rest - 1]) != NULL);
    view.begins = 0;
    if (blank && *m == '#') view.heading = 1, view_mark(VIEW_BOLD);
    else if (item) {
        view_spaces((int)(m - h));
        fprintf(stdout, "%s ", strchr("+-*", *m) ? "\u2022" : m);
        view.col = view.hang = (int)(m - h) + rest + 1;
    } else if (rest == 3 && *m == '`') view.fence = FENCE_TITLE;
    else if (rest > 2 && c == '\n' && strchr("-*_", *m)) view_rule("", 0);
    else
        for (const char *p = h; *p; p++) view_inline(p, 1, 1);
    view_cut(view.head.len);
    return view.heading || item;
}

/* Inside of a fence nothing wraps, and nothing is a mark but its end. The title is what stands behind its begin. */
static void view_fenced(const char *s, size_t n) {
    const int newline = *s == '\n', waits = view.fence == FENCE_TITLE ? !newline : view.begins && strchr(" `", *s) && view.head.len < 12;
    if (waits) {
        llm_text_add(&view.head, s, n);
        cli_whole(&view.head);
        return;
    }
    const char *h = view.head.data ? view.head.data : "";
    if (view.fence == FENCE_TITLE) view_rule(h, strnlen(h, 40)), view.fence = FENCE_CODE;
    else if (view.begins && newline && !strcmp(h + strspn(h, " "), "```")) view_rule("", 0), view.fence = FENCE_NONE;
    else cli_print(stdout, h, strlen(h), 0);
    cli_print(stdout, s, n, 1);
    view.begins = newline;
    view_cut(view.head.len);
}

static void view_char(const char *s, size_t n, int width) {
    if (!view.fence && view.marks && view.begins) {
        llm_text_add(&view.head, s, n);
        cli_whole(&view.head);
        if (view_may_begin(view.head.data, view.head.len)) return;
        view_cut(n);
        if (view_begin((unsigned char)*s)) return;
    }
    view.fence ? view_fenced(s, n) : view_inline(s, n, width);
}

/* Shows more of an answer, or of the thoughts before it, in which nothing is a mark. */
static void view_add(const char *s, size_t n, int thoughts) {
    struct winsize size = {0};
    int width;
    cli_write("", 0);
    view.columns = ioctl(1, TIOCGWINSZ, &size) || size.ws_col < 8 ? 80 : size.ws_col;
    view.marks = !thoughts && *cli.dim;
    for (size_t i = 0, len; i < n; i += len) {
        len = cli_char(s + i, n - i, &width);
        view_char(s + i, len, width);
    }
    cli_write("", 0);
}

/* What waits is written, and what is open closed. */
static void view_end(void) {
    const char *h = view.head.data ? view.head.data : "";
    if (view.fence == FENCE_CODE && !strcmp(h + strspn(h, " "), "```")) view_rule("", 0);
    else if (view.fence) cli_print(stdout, h, strlen(h), 0);
    else
        for (; *h; h++) view_inline(h, 1, 1);
    if (view.stars) view_stars(1);
    if (view.bold || view.heading) view_mark(VIEW_BOLD_END);
    if (view.code) view_mark(VIEW_CODE_END);
    view_flush();
    llm_text_free(&view.head);
    llm_text_free(&view.word);
    memset(&view, 0, sizeof view);
    view.begins = 1;
    view.before = ' ';
}

/* ---------------------------------------------------------------------------
 * Calls: the body of an OpenAI request goes in, its answer comes out, in one piece or as a stream of events.
 *
 *   options --cli_add_members--> body --llm_openai_begin, submit--> llm_engine_step, llm_openai_next, again ... --> JSON of the answer
 *
 * The loop is the whole of what a program needs to do: this thread steps the engine, and between steps takes what is new. Streams
 * are shown as they come; --json and several answers are written when all is there.
 * --------------------------------------------------------------------------- */

/* How requests are answered: as was said, else by the model's own defaults, and `max_tokens` unless that was said. */
static void cli_service(int32_t max_tokens) {
    llm_openai_service *s = &cli.service;
    llm_setup_service(&opt.setup, &cli_names, cli.model, cli.engine, s);
    if (!llm_options_given(&cli_names, "max-tokens")) s->max_tokens = max_tokens;
    if (!s->media_path) s->media_path = cli.folder ? cli.folder : "/"; /* the user's own files */
    if (opt.logprobs > s->max_logprobs) s->max_logprobs = opt.logprobs;
}

/* The text at the end of a path of members; NULL: there is none. */
static const char *cli_text(const llm_json *doc, int node, const char *outer, const char *inner, size_t *n) {
    return llm_json_str(doc, llm_json_find(doc, outer ? llm_json_find(doc, node, outer) : node, inner), n);
}

/* One event of a stream. Thoughts are dim and for people only: in a pipe there is the answer alone. */
static void cli_show(const llm_json *event) {
    int choice = llm_json_first(event, llm_json_find(event, 0, "choices"));
    size_t n_thought = 0, n = 0;
    const char *thought = cli_text(event, choice, "delta", "reasoning_content", &n_thought),
               *text = cli_text(event, choice, "delta", "content", &n);
    if (!text) text = cli_text(event, choice, NULL, "text", &n);
    if (thought && isatty(1)) {
        fputs(cli.dim, stdout);
        cli.view ? view_add(thought, n_thought, 1) : cli_write(thought, n_thought);
        fputs(cli.plain, stdout);
        cli.thinking = 1;
    }
    if (!n) return;
    if (cli.thinking) fputs(cli.dim, stdout), view_end(), fputs(cli.plain, stdout), cli_write("\n", 1);
    cli.thinking = 0;
    cli.view ? view_add(text, n, 0) : cli_write(text, n);
    llm_text_add(&cli.said, text, n);
    cli_whole(&cli.said);
}

/* That an answer was cut, and with --verbose
 * "[prompt 31 tokens, 0 cached, 410.2 tok/s | answer 52 tokens, 190.1 tok/s | first token 0.08 s]" */
static void cli_show_speed(const llm_request *request) {
    llm_request_metrics m;
    llm_output out;
    llm_request_get_metrics(request, &m);
    if (llm_request_get_output(request, 0, &out) != LLM_OK || m.first_token_time <= 0) return;
    if (out.finish == LLM_FINISH_LENGTH)
        fprintf(stderr, "%s[cut after %zu tokens; max-tokens allows more]%s\n", cli.dim, out.n_token_ids, cli.plain);
    if (!opt.verbose) return;
    const double begin = m.inference_start_time, first = fmax(m.first_token_time, 1e-6), rest = fmax(m.finish_time - begin - first, 1e-6);
    fprintf(stderr, "%s[prompt %d tokens, %d cached, %.1f tok/s | answer %zu tokens, %.1f tok/s | first token %.2f s]%s\n", cli.dim,
            m.n_prompt_tokens, m.n_cached_tokens, (m.n_prompt_tokens - m.n_cached_tokens) / first, out.n_token_ids,
            ((double)out.n_token_ids - 1) / rest, begin + first - m.arrival_time, cli.plain);
}

/* Begins a call with a body. */
static llm_openai_call *cli_begin(llm_openai_kind kind, const llm_text *body) {
    cli_whole(body);
    llm_openai_call *call = llm_openai_begin(&cli.service, kind, body->data, body->len, NULL);
    if (!call) cli_die(1, "memory: a request of %zu bytes did not fit", body->len);
    return call;
}

/* Sends a body of the members in `what` and of those that the options add. Streams are shown; else *answer gets the whole, to be freed.
 * The error object becomes an error of ours: of a field that is an option here under the option's name, and as a usage error. */
static llm_result cli_call(llm_openai_kind kind, const llm_text *what, llm_json **answer) {
    CLI_TEXT body = {0}, piece = {0};
    cli_whole(what);
    llm_text_format(&body, answer ? "{%s" : "{'stream':true,%s", what->data);
    llm_result r = cli_add_members(&body);
    if (r) return r;
    llm_text_str(&body, "}");
    llm_openai_call *call = cli_begin(kind, &body);
    const llm_openai_info *info = llm_openai_get_info(call);
    const sig_atomic_t before = cli_interrupts;
    cli.said.len = 0;
    cli_interrupts = 0; /* from here on Ctrl-C ends the answer, a second one the program */
    llm_openai_submit(call);
    while (!info->done) {
        CLI_JSON *doc = NULL;
        if (!llm_openai_next(call, &piece)) {
            for (int32_t i = 0; cli_interrupts && i < info->n_requests; i++) llm_request_cancel(info->requests[i]);
            cli_check(llm_engine_step(cli.engine, NULL));
            continue;
        }
        cli_whole(&piece);
        const char *json = strncmp(piece.data, "data: ", 6) ? piece.data : piece.data + 6;
        if (*json == '{') cli_check(llm_json_parse(json, strcspn(json, "\n"), NULL, &doc)); /* else [DONE] */
        int error = llm_json_find(doc, 0, "error");
        const char *why = cli_text(doc, error, NULL, "message", NULL), *param = cli_text(doc, error, NULL, "param", NULL);
        const llm_option *row = param ? llm_options_find(&cli_names, param, strlen(param)) : NULL;
        if (row && row->group == CLI_ANSWERS && info->status < 500)
            r = cli_bad(LLM_ERR_ARG, "--%.*s: %.600s", (int)strcspn(row->names, "|"), row->names, why);
        else if (why) r = cli_bad(LLM_ERR_FORMAT, "%.600s", why);
        else if (!answer) cli_show(doc);
        else *answer = doc, doc = NULL;
        piece.len = 0;
    }
    if (!answer && !r) {
        view_end();
        if (isatty(1) || !cli.said.len || cli.said.data[cli.said.len - 1] != '\n') cli_write("\n", 1);
        if (isatty(2) && cli_interrupts) fputs("[stopped]\n", stderr);
        if (isatty(2)) cli_show_speed(info->requests[0]);
    }
    cli.stopped = cli_interrupts > 0;
    cli_interrupts = before;
    llm_openai_free(call);
    return r;
}

/* Answers a prompt of n tokens: streaming, or when all is there a line for each answer, which is its text or the object of --json: the choice
 * of /v1/completions or /v1/chat/completions, with text, usage and metrics in it. */
static void cli_answer(llm_openai_kind kind, llm_text *what, int64_t n_prompt) {
    const llm_sampling *s = &cli.service.defaults;
    const int32_t wanted = s->n > 1 ? s->n : 1, width = s->best_of > wanted ? s->best_of : wanted, most = cli.service.max_tokens;
    llm_text t = {0};
    CLI_JSON *doc = NULL;
    if (most == 0) cli_die(2, "--max-tokens: 0, a whole number from 1, or -1, was expected");
    cli_open_engine(most < 0 ? 0 : n_prompt + most, width);
    if (opt.json) llm_text_str(what, ",\"return_token_ids\":true,\"return_metrics\":true");
    if (llm_options_given(&cli_names, "logprobs"))
        llm_text_format(what, kind == LLM_OPENAI_CHAT ? ",'logprobs':true,'top_logprobs':%d" : ",'logprobs':%d", opt.logprobs);
    cli_check(cli_call(kind, what, opt.json || width > 1 ? &doc : NULL));
    for (int i = llm_json_first(doc, llm_json_find(doc, 0, "choices")); i >= 0; i = llm_json_next(doc, i)) {
        size_t n = 0;
        const char *content = cli_text(doc, i, "message", "content", &n), *text = content ? content : cli_text(doc, i, NULL, "text", &n);
        if (opt.json) {
            llm_json_write(doc, i, &t);
            t.len--; /* its brace */
            if (content) llm_text_format(&t, ",'text':%Q", content, n);
            llm_text_format(&t, ",'usage':%j,'metrics':%j}", doc, llm_json_find(doc, 0, "usage"), doc, llm_json_find(doc, 0, "metrics"));
        } else llm_text_add(&t, text, n);
        llm_text_str(&t, "\n");
    }
    cli_out(&t);
}

/* The text to work on: -p, -f or standard input; of a chat (`more`) what standard input holds follows the first two. */
static void cli_input(int more, llm_text *text) {
    const int piped = !isatty(0) && (more || (!opt.prompt && !opt.file));
    if (opt.prompt && opt.file) cli_die(2, "--file: %.60s, but --prompt is given too; one of them was expected", opt.file);
    if (!opt.prompt && !opt.file && !piped) cli_die(2, "no prompt: give -p TEXT, -f FILE, --token-ids '[1,2]', or text on standard input");
    llm_text_str(text, opt.prompt ? opt.prompt : "");
    if (opt.file) cli_check(cli_read(opt.file, text));
    if (piped && text->len) llm_text_str(text, "\n");
    if (piped) cli_check(cli_read("-", text));
    cli_whole(text);
}

/* The messages of --messages as a member of a body: a list, or an object that has them. */
static void cli_messages(llm_text *what) {
    CLI_TEXT text = {0};
    CLI_JSON *doc = NULL;
    const char *slash = strrchr(opt.messages, '/');
    if (opt.token_ids || opt.prompt || opt.file) cli_die(2, "--messages: given beside another prompt, one of them was expected");
    cli_check(cli_read(opt.messages, &text));
    if (llm_json_parse(text.data ? text.data : "", text.len, NULL, &doc)) cli_die(1, "%s: %s", opt.messages, llm_last_error());
    const int list = llm_json_type_of(doc, 0) == LLM_JSON_ARRAY ? 0 : llm_json_find(doc, 0, "messages");
    if (list < 0) cli_die(1, "%s: a JSON list of messages was expected", opt.messages);
    cli.folder = slash ? strndup(opt.messages, (size_t)(slash - opt.messages) + !(slash - opt.messages)) : strdup(".");
    llm_text_format(what, "'messages':%j", doc, list);
}

/* The ids of a chat. Its pictures stay with the call that has read them. */
static void cli_chat_ids(const llm_text *what, llm_tokens *ids) {
    CLI_TEXT body = {0}, piece = {0};
    CLI_JSON *doc = NULL;
    cli_whole(what);
    llm_text_format(&body, "{%s}", what->data);
    cli.prompt = cli_begin(LLM_OPENAI_TOKENIZE, &body);
    llm_openai_submit(cli.prompt);
    llm_openai_next(cli.prompt, &piece);
    cli_whole(&piece);
    cli_check(llm_json_parse(piece.data, piece.len, NULL, &doc));
    const char *why = cli_text(doc, 0, "error", "message", NULL);
    if (why) cli_die(1, "%.600s", why);
    for (int v = llm_json_first(doc, llm_json_find(doc, 0, "tokens")); v >= 0; v = llm_json_next(doc, v)) {
        int64_t id = 0;
        llm_json_int(doc, v, &id);
        llm_tokens_add(ids, (int32_t)id);
    }
}

/* Opens the model; ids of --token-ids as they are, of a text with BOS as the model says. chop: the newline that echo puts behind a piped
 * prompt is not part of it. */
static void cli_prompt_ids(int chop, llm_tokens *ids) {
    CLI_TEXT text = {0}, what = {0};
    if (opt.messages) {
        cli_messages(&what);
        cli_open_model(0);
        cli_service(256);
        cli_chat_ids(&what, ids);
        return;
    }
    if (opt.token_ids && (opt.prompt || opt.file)) cli_die(2, "--token-ids: given beside --prompt or --file, one of them was expected");
    if (opt.token_ids) cli_check(cli_parse_ids("--token-ids", opt.token_ids, ids));
    else cli_input(0, &text);
    if (chop && !opt.prompt && !opt.file && text.len && text.data[text.len - 1] == '\n') text.len--;
    cli_open_model(0);
    if (!opt.token_ids) cli_check(llm_tokenize(cli.model, text.data, text.len, LLM_TOK_ADD_SPECIAL | LLM_TOK_PARSE_SPECIAL, ids));
    if (!ids->len) cli_die(2, "prompt: 0 tokens, at least one was expected");
}

static void cli_cmd_generate(void) {
    CLI_TOKENS ids = {0};
    CLI_TEXT what = {0};
    cli_prompt_ids(1, &ids);
    if (opt.messages) {
        cli_messages(&what);
        cli_answer(LLM_OPENAI_CHAT, &what, (int64_t)ids.len);
        return;
    }
    cli_service(256);
    llm_text_format(&what, "'prompt':%i", ids.data, ids.len);
    cli_answer(LLM_OPENAI_COMPLETION, &what, (int64_t)ids.len);
}

/* ---------------------------------------------------------------------------
 * explain: one token from text to text, with the numbers of this model. Five screens of 80 columns and 24 lines: the prompt as tokens, the
 * way through all layers, one layer from inside, what a head looks at, and how the next token is chosen; --json has all of it.
 *
 *   messages --llm_render--> text --llm_tokenize--> ids --llm_forward, watched by cli_explain_watch--> logits --llm_sample_steps--> token
 * --------------------------------------------------------------------------- */

enum { EXPLAIN_TOKENS = 2048, EXPLAIN_TOP = 10, EXPLAIN_STEPS = 8 };

typedef struct explain_stage { /* what an operation gave */
    char op[24], weight[96];
    int layer, rows, cols;
    double length; /* of the last token's row: the root of the sum of squares */
} explain_stage;

typedef struct explain_step { /* what a step of the sampler left */
    char name[16];
    double value;
    int n_left, n_top;
    llm_token_logprob top[EXPLAIN_TOP];
} explain_step;

static struct {
    llm_text rendered;
    llm_tokens ids;
    llm_text stages;  /* explain_stage, one behind the other */
    llm_text weights; /* floats (T, T) of the head that is shown */
    int layer, head;  /* which that is */
    double marked;    /* how much it looks at one other token; the head where this is most is shown */
    explain_step step[EXPLAIN_STEPS];
    int n_steps, token;
    int64_t seed;
} explain;

/* How many stages there are, and stage i. */
static int explain_count(void) { return (int)(explain.stages.len / sizeof(explain_stage)); }
static const explain_stage *explain_at(int i) { return (const explain_stage *)(const void *)explain.stages.data + i; }

/* Keeps the weights of the head that was asked for; or else of the one whose last token looks hardest at a token that is neither itself nor
 * the first, where heads that have nothing to do rest their eyes. */
static void explain_head(const llm_trace *t) {
    const float *last = t->values + (t->rows - 1) * t->stride;
    double marked = 0;
    for (int i = 1; i + 1 < t->cols; i++) marked = fmax(marked, (double)last[i]);
    if ((opt.layer >= 0 && t->layer != opt.layer) || (opt.head >= 0 && t->head != opt.head)) return;
    if (explain.weights.len && marked <= explain.marked) return;
    explain.layer = t->layer, explain.head = t->head, explain.marked = marked;
    explain.weights.len = 0;
    for (int r = 0; r < t->rows; r++)
        llm_text_add(&explain.weights, (const char *)(t->values + r * t->stride), (size_t)t->cols * sizeof(float));
}

/* llm_engine_config.trace: the engine tells of every operation. */
static void cli_explain_watch(CLI_UNUSED void *user, const llm_trace *t) {
    const float *last = t->values + (t->rows - 1) * t->stride;
    explain_stage s = {.layer = t->layer, .rows = t->rows, .cols = t->cols};
    if (!strcmp(t->op, "attention_weights")) {
        explain_head(t);
        if (t->head) return; /* a stage for all heads */
    }
    snprintf(s.op, sizeof s.op, "%s", t->op);
    snprintf(s.weight, sizeof s.weight, "%s", t->weight ? t->weight : "");
    for (int i = 0; i < t->cols; i++) s.length += (double)last[i] * (double)last[i];
    s.length = sqrt(s.length);
    llm_text_add(&explain.stages, (const char *)&s, sizeof s);
}

static void cli_explain_step(CLI_UNUSED void *user, const llm_sample_step *step) {
    explain_step *s = &explain.step[explain.n_steps];
    if (explain.n_steps == EXPLAIN_STEPS) return;
    snprintf(s->name, sizeof s->name, "%s", step->name);
    s->value = step->value;
    s->n_left = step->n_left;
    s->n_top = step->n_top;
    memcpy(s->top, step->top, (size_t)step->n_top * sizeof *s->top);
    explain.n_steps++;
}

/* ---- what is found out ---- */

/* The prompt as the model reads it: through its template, or with do-preprocess off, or without one, as it is. */
static void explain_prompt(void) {
    CLI_TEXT text = {0}, context = {0}, guarded = {0};
    CLI_JSON *doc = NULL;
    llm_render_options how = {0};
    const char *const form[] = {opt.json_schema, opt.regex, opt.grammar, opt.logit_bias, opt.template_kwargs};
    for (int i = 0; i < CLI_COUNT(form); i++)
        if (form[i] || opt.bad_words.n)
            cli_die(2, "explain: forms of answers, biases, bad words and template variables have no screen here; without them");
    const int raw = !opt.setup.do_preprocess || !llm_model_get_info(cli.model)->chat_template;
    cli_input(0, &text);
    while (text.len && text.data[text.len - 1] == '\n') text.data[--text.len] = 0;
    if (!text.len) cli_die(2, "no prompt: give -p TEXT, -f FILE, or text on standard input");
    if (raw) {
        llm_text_add(&explain.rendered, text.data, text.len);
        cli_check(llm_tokenize(cli.model, text.data, text.len, LLM_TOK_ADD_SPECIAL, &explain.ids));
        return;
    }
    llm_text_format(&context, "{'add_generation_prompt':true,'messages':[");
    if (opt.system) llm_text_format(&context, "{'role':'system','content':%q},", opt.system);
    llm_text_format(&context, "{'role':'user','content':%Q}]", text.data, text.len);
    llm_text_str(&context, "}");
    cli_check(llm_json_parse(context.data, context.len, NULL, &doc));
    how.as_chat = 1;
    cli_check(llm_render(cli.model, doc, &how, &explain.rendered));
    how.guard = cli.model;
    cli_check(llm_render(cli.model, doc, &how, &guarded));
    cli_check(llm_tokenize(cli.model, guarded.data, guarded.len, LLM_TOK_PARSE_SPECIAL | LLM_TOK_GUARDED, &explain.ids));
}

/* One step over the whole prompt, watched, and the choice of the next token. */
static void explain_run(void) {
    const int n = (int)explain.ids.len;
    llm_engine_config *e = &opt.setup.engine;
    llm_sampling s;
    const llm_model_info *info = llm_model_get_info(cli.model);
    if (opt.layer >= info->n_layers) cli_die(2, "--layer: %d, the model has 0 to %d", opt.layer, info->n_layers - 1);
    if (opt.head >= info->n_heads) cli_die(2, "--head: %d, the model has 0 to %d", opt.head, info->n_heads - 1);
    if (n > EXPLAIN_TOKENS) cli_die(1, "prompt: %d tokens, at most %d can be explained", n, EXPLAIN_TOKENS);
    explain.layer = opt.layer >= 0 ? opt.layer : info->n_layers / 2;
    if (e->max_num_batched_tokens < n) e->max_num_batched_tokens = n;
    e->trace = cli_explain_watch;
    cli_open_engine(n + 1, 1);
    cli_service(256);
    s = cli.service.defaults;
    float *logits = (float *)calloc((size_t)llm_logits_size(cli.engine), sizeof *logits);
    if (!logits) cli_die(1, "memory: %d logits did not fit", llm_logits_size(cli.engine));
    const int32_t first = 0, count = n; /* in one step, so that all weights of attention are there */
    cli_check(llm_forward_batch(cli.engine, 1, &first, &first, &count, explain.ids.data, logits));
    explain.seed = s.has_seed ? s.seed : 0;
    explain.token = llm_sample_steps(logits, llm_logits_size(cli.engine), &s, explain.ids.data, n, n, explain.seed, cli_explain_step, NULL);
    free(logits);
    if (explain.token < 0) cli_die(1, "%s", llm_last_error());
}

/* ---- as screens ---- */

/* A piece of text on one line, as wide as some columns (0: as it is); returns how many bytes it shows: a blank is shown as a dot in the middle, what is no character as \\xNN. */
static size_t explain_shown(const char *s, size_t n, int columns, llm_text *out) {
    int width, used = 0;
    size_t i = 0;
    const int most = columns ? columns : 1 << 20;
    for (size_t len; i < n; i += len) {
        char plain[8] = "";
        len = cli_char(s + i, n - i, &width);
        if (s[i] == ' ') memcpy(plain, "\xC2\xB7", 3), width = 1;
        else if (s[i] == '\n') memcpy(plain, "\\n", 3), width = 2;
        else if (width <= 0) width = snprintf(plain, sizeof plain, "\\x%02x", (unsigned)(unsigned char)s[i]), len = 1;
        else memcpy(plain, s + i, len < 7 ? len : 7), plain[len < 7 ? len : 7] = 0;
        if (used + width > most) break;
        llm_text_str(out, plain);
        used += width;
    }
    for (; used < columns; used++) llm_text_str(out, " ");
    return i;
}

/* The same of a token. */
static void explain_token(int32_t id, int columns, llm_text *out) {
    CLI_TEXT piece = {0};
    if (llm_token_bytes(cli.model, id, &piece) == LLM_OK && !piece.len)
        (void)llm_detokenize(cli.model, &id, 1, LLM_DETOK_KEEP_SPECIAL, &piece);
    explain_shown(piece.data ? piece.data : "", piece.len, columns, out);
}

/* Between two screens, at a terminal, somebody reads. */
static void explain_pause(void) {
    if (!isatty(0) || !isatty(1)) return;
    fprintf(stdout, "%s-- Enter: the next screen --%s", cli.dim, cli.plain);
    fflush(stdout);
    for (int c = getchar(); c != '\n' && c != EOF;) c = getchar();
}

static void explain_title(const char *title) {
    static int number;
    if (number) cli_write("", 0), explain_pause();
    printf("%s%d. %s\n", number ? "\n" : "", number + 1, title);
    number++;
}

/* The first screen: the beginning of the prompt, and its pieces with their numbers; of many the middle is left out. */
static void explain_tokens(void) {
    enum { EACH = 4, LINES = 11, TEXT = 7 };
    CLI_TEXT line = {0};
    const int n = (int)explain.ids.len, half = EACH * LINES / 2, skips = n > 2 * half;
    const char *s = explain.rendered.data, *end = s + explain.rendered.len;
    explain_title("The prompt becomes tokens");
    printf("What the model reads:\n");
    for (int row = 0; s < end && row < TEXT; row++) {
        const char *newline = (const char *)memchr(s, '\n', (size_t)(end - s));
        line.len = 0;
        s += explain_shown(s, (size_t)((newline ? newline + 1 : end) - s), 72, &line);
        while (line.len && line.data[line.len - 1] == ' ') line.data[--line.len] = 0;
        printf("  %s%s\n", line.data, row == TEXT - 1 && s < end ? " ..." : "");
    }
    printf("Its %d pieces, and their numbers in the vocabulary of %d%s:\n", n, llm_vocab_size(cli.model), skips ? " (some left out)" : "");
    for (int at = 0; at < (skips ? 2 * half : n); at++) {
        const int32_t id = explain.ids.data[skips && at >= half ? n - 2 * half + at : at];
        line.len = 0;
        explain_token(id, 12, &line);
        printf(" %6d %s%s", id, line.data, at % EACH == EACH - 1 || at == (skips ? 2 * half : n) - 1 ? "\n" : "");
    }
}

/* The length of the last stage of a kind in a layer; below 0: there is none. behind: only stages that come after this one. */
static double explain_length(int layer, const char *op, const char *behind, int last) {
    double length = -1;
    int open = !behind;
    for (int i = 0; i < explain_count(); i++) {
        const explain_stage *s = explain_at(i);
        if (s->layer != layer) continue;
        if (open && !strcmp(s->op, op) && (last || length < 0)) length = s->length;
        open |= behind && !strcmp(s->op, behind);
    }
    return length;
}

/* The second screen: what each layer adds to the last token's vector. */
static void explain_layers(void) {
    const llm_model_info *info = llm_model_get_info(cli.model);
    const int n = info->n_layers, each = (n + 53) / 54, shown = (n + each - 1) / each, rows = (shown + 2) / 3;
    char title[100];
    snprintf(title, sizeof title, "Through %d layers", n);
    explain_title(title);
    printf("Each token is a vector of %d numbers, its row of the embeddings. Every layer\n"
           "adds to it: first what attention has found in the tokens before, then what the\n"
           "%s make%s of that. Lengths (root of the sum of squares) for the last token:\n\n",
           info->hidden_size, info->n_experts ? "experts" : "MLP", info->n_experts ? "" : "s");
    printf("embedding %8.4g\n\n", explain_length(-1, "embed", NULL, 1));
    for (int c = 0; c < 3 && c < shown; c++) printf("%s  no +found  +made  whole", c ? "  " : "");
    printf("\n");
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < 3 && c * rows + r < shown; c++) {
            const int at = (c * rows + r) * each, layer = at < n ? at : n - 1;
            const double experts = explain_length(layer, "experts", NULL, 1), made = explain_length(layer, "linear", NULL, 1);
            printf("%s%4d %6.4g %6.4g %6.4g", c ? "  " : "", layer, explain_length(layer, "linear", "attention", 0),
                   experts >= 0 ? experts : made, explain_length(layer, "residual", NULL, 1));
        }
        printf("\n");
    }
    if (each > 1) printf("\n(every layer of %d)\n", each);
}

/* The third screen: all operations of one layer. */
static void explain_inside(void) {
    char title[100];
    int rows = 0;
    snprintf(title, sizeof title, "Layer %d from inside", explain.layer);
    explain_title(title);
    printf("What each operation gives: rows (tokens) x numbers, the length of the last row,\nand the weight that it used:\n\n");
    for (int i = 0; i < explain_count() && rows < 16; i++) {
        const explain_stage *s = explain_at(i);
        if (s->layer != explain.layer) continue;
        printf("  %-18s %5d x %-6d %10.2f  %.32s\n", s->op, s->rows, s->cols, s->length, s->weight);
        rows++;
    }
    printf("\nq, k and v are queries, keys and values, q and k turned by their positions.\n"
           "Their matrices are one here, as are gate and up, with the activation.\n");
}

/* The fourth screen: the weights of a head as a map, the last 15 tokens against the last 60. */
static void explain_attention(void) {
    enum { ROWS = 15, COLUMNS = 60 };
    static const char shade[] = " .:-=+*#%@";
    const int n = (int)explain.ids.len, top = n > ROWS ? n - ROWS : 0, left = n > COLUMNS ? n - COLUMNS : 0;
    const float *w = (const float *)(const void *)explain.weights.data;
    CLI_TEXT line = {0};
    char title[100];
    if (!explain.weights.len) {
        explain_title("Attention");
        printf("This model keeps no keys that queries are compared with: its attention is latent.\n");
        return;
    }
    snprintf(title, sizeof title, "What head %d of layer %d looks at", explain.head, explain.layer);
    explain_title(title);
    printf(
        "A row for each of the last tokens, a column for each token before it (from\nnumber %d on); from ' ' (nothing) over \"%s\" to '@' (all):\n\n",
        left, shade + 1);
    for (int r = top; r < n; r++) {
        line.len = 0;
        explain_token(explain.ids.data[r], 14, &line);
        printf("%4d %s|", r, line.data);
        for (int c = left; c <= r; c++) putchar(shade[(int)(sqrt((double)w[r * n + c]) * 9.99)]);
        printf("\n");
    }
    printf("\nThe last looks at:");
    for (int k = 0, taken[3] = {-1, -1, -1}; k < 3 && k < n; k++) {
        for (int c = 0; c < n; c++)
            if (c != taken[0] && c != taken[1] && (taken[k] < 0 || w[(n - 1) * n + c] > w[(n - 1) * n + taken[k]])) taken[k] = c;
        line.len = 0;
        explain_token(explain.ids.data[taken[k]], 0, &line);
        printf("%s %d %.12s %.0f %%", k ? "," : "", taken[k], line.data, 100 * (double)w[(n - 1) * n + taken[k]]);
    }
    printf("\n");
}

/* The share of a token behind a step: a number, or that it was cut, or that it is not among those that were told. */
static void explain_share(const explain_step *s, int32_t id) {
    for (int i = 0; i < s->n_top; i++)
        if (s->top[i].id == id) {
            printf("%9.2f%%", 100 * exp((double)s->top[i].logprob));
            return;
        }
    printf("%10s", s->n_left > s->n_top ? "less" : "cut");
}

/* The fifth screen: what the steps of the sampler do to the five likeliest tokens. */
static void explain_choice(void) {
    const explain_step *last = &explain.step[explain.n_steps - 1];
    const int shown = explain.n_steps - 1;
    CLI_TEXT line = {0};
    explain_title("The next token");
    printf("Behind the last layer every token of the vocabulary gets a number, its logit.\n"
           "They become shares (softmax); each step bends them, or cuts the unlikely off:\n\n%20s",
           "");
    for (int i = 0; i < shown; i++) printf("%10s", strcmp(explain.step[i].name, "temperature") ? explain.step[i].name : "temp");
    printf("\n%20s", "");
    for (int i = 0; i < shown; i++) explain.step[i].value ? (void)printf("%10.4g", explain.step[i].value) : (void)printf("%10s", "");
    printf("\n%-20s", "tokens left");
    for (int i = 0; i < shown; i++) printf("%10d", explain.step[i].n_left);
    printf("\n\n");
    for (int k = 0; k < 5 && k < explain.step[0].n_top; k++) {
        const int32_t id = explain.step[0].top[k].id;
        line.len = 0;
        explain_token(id, 12, &line);
        printf("%6d %s ", id, line.data);
        for (int i = 0; i < shown; i++) explain_share(&explain.step[i], id);
        printf("\n");
    }
    line.len = 0;
    explain_token(explain.token, 0, &line);
    if (!strcmp(last->name, "greedy")) printf("\nTemperature 0: the likeliest is taken: %d \"%s\".\n", explain.token, line.data);
    else
        printf("\nThe random number of seed %lld, %.4f, falls on %d \"%s\".\n", (long long)explain.seed, last->value, explain.token,
               line.data);
    printf("It joins the prompt, and all begins again with one row: the cache has the rest.\n");
}

/* ---- as JSON ---- */

/* {"id": n, "text": "..."}, and a member more. */
static void explain_add_token(llm_text *t, int32_t id, const char *more, double value) {
    CLI_TEXT piece = {0};
    if (llm_token_bytes(cli.model, id, &piece) == LLM_OK && !piece.len)
        (void)llm_detokenize(cli.model, &id, 1, LLM_DETOK_KEEP_SPECIAL, &piece);
    llm_text_format(t, "{'id':%d,'text':%Q", id, piece.data ? piece.data : "", piece.len);
    if (more) llm_text_format(t, ",%q:%f", more, value);
    llm_text_str(t, "}");
}

static void explain_json(void) {
    const llm_model_info *info = llm_model_get_info(cli.model);
    const int n = (int)explain.ids.len;
    const float *w = (const float *)(const void *)explain.weights.data;
    llm_text t = {0};
    llm_text_format(&t, "{'model':%q,'n_layers':%d,'hidden_size':%d,'n_heads':%d,'n_kv_heads':%d,'vocab_size':%d,'prompt':%Q,'tokens':[",
                    info->path, info->n_layers, info->hidden_size, info->n_heads, info->n_kv_heads, info->vocab_size, explain.rendered.data,
                    explain.rendered.len);
    for (int i = 0; i < n; i++) llm_text_format(&t, "%,"), explain_add_token(&t, explain.ids.data[i], NULL, 0);
    llm_text_str(&t, "],\"stages\":[");
    for (int i = 0; i < explain_count(); i++) {
        const explain_stage *s = explain_at(i);
        llm_text_format(&t, "%,{'op':%q,'layer':%d,'weight':%q,'shape':[%d,%d],'length':%f}", s->op, s->layer,
                        *s->weight ? s->weight : NULL, s->rows, s->cols, s->length);
    }
    llm_text_str(&t, "],\"attention\":");
    if (explain.weights.len) llm_text_format(&t, "{'layer':%d,'head':%d,'weights':[", explain.layer, explain.head);
    for (int r = 0; explain.weights.len && r < n; r++) {
        llm_text_str(&t, r ? ",[" : "[");
        for (int c = 0; c < n; c++) llm_text_format(&t, "%,%f", (double)w[r * n + c]);
        llm_text_str(&t, "]");
    }
    llm_text_str(&t, explain.weights.len ? "]}" : "null");
    llm_text_format(&t, ",'seed':%l,'steps':[", explain.seed);
    for (int i = 0; i < explain.n_steps; i++) {
        const explain_step *s = &explain.step[i];
        llm_text_format(&t, "%,{'name':%q,'value':%f,'n_left':%d,'top':[", s->name, s->value, s->n_left);
        for (int k = 0; k < s->n_top; k++)
            llm_text_format(&t, "%,"), explain_add_token(&t, s->top[k].id, "probability", exp((double)s->top[k].logprob));
        llm_text_str(&t, "]}");
    }
    llm_text_str(&t, "],\"token\":");
    explain_add_token(&t, explain.token, NULL, 0);
    llm_text_str(&t, "}\n");
    cli_out(&t);
}

static void cli_cmd_explain(void) {
    cli_open_model(0);
    explain_prompt();
    explain_run();
    if (opt.json) {
        explain_json();
        return;
    }
    explain_tokens();
    explain_layers();
    explain_inside();
    explain_attention();
    explain_choice();
    cli_write("", 0);
}

/* ---------------------------------------------------------------------------
 * tokenize, detokenize, render: one text in, one text out, or many as lines (--jsonl). Only the tokenizer and the template are
 * opened, no weights. With --jsonl an output line follows each input line at once, so that another program may drive this one
 * through two pipes and ask as it goes.
 * --------------------------------------------------------------------------- */

/* A text, or with --jsonl a JSON string, to a JSON array of ids. */
static llm_result cli_tokenize(const char *in, size_t n, llm_text *out) {
    int flags = (opt.add_special ? LLM_TOK_ADD_SPECIAL : 0) | (opt.parse_special ? LLM_TOK_PARSE_SPECIAL : 0);
    CLI_TOKENS ids = {0};
    CLI_JSON *doc = NULL;
    if (opt.jsonl) in = llm_json_parse(in, n, NULL, &doc) == LLM_OK ? llm_json_str(doc, 0, &n) : NULL;
    llm_result r = in ? llm_tokenize(cli.model, in, n, flags, &ids) : cli_bad(LLM_ERR_FORMAT, "a JSON string was expected");
    llm_text_format(out, "%i", ids.data, ids.len);
    return r;
}

/* An array of ids to their text, special tokens shown, or with --jsonl to a JSON string. */
static llm_result cli_detokenize(const char *in, CLI_UNUSED size_t n, llm_text *out) {
    CLI_TOKENS ids = {0};
    CLI_TEXT text = {0};
    llm_result r = cli_parse_ids("input", in, &ids);
    if (!r) r = llm_detokenize(cli.model, ids.data, ids.len, LLM_DETOK_KEEP_SPECIAL, &text);
    if (opt.jsonl) llm_text_format(out, "%Q", text.data, text.len);
    else llm_text_add(out, text.data, text.len);
    return r;
}

static llm_template *cli_template; /* of render --chat-template */

/* The context's members are the template's variables; `now` stands for the clock: seconds since 1970 or a date. With --jsonl an error is an
 * answer too. */
static llm_result cli_render(const char *in, size_t n, llm_text *out) {
    llm_render_options how = {0};
    struct tm tm = {0};
    CLI_JSON *doc = NULL;
    CLI_TEXT text = {0};
    int to_be_continued = 0;
    llm_result r = llm_json_parse(in, n, NULL, &doc);
    const int now = llm_json_find(doc, 0, "now");
    const char *date = llm_json_str(doc, now, NULL);
    if (date && strptime(date, "%Y-%m-%d %H:%M:%S", &tm)) how.now = (int64_t)timegm(&tm);
    else if (now >= 0 && !llm_json_int(doc, now, &how.now))
        r = cli_bad(LLM_ERR_FORMAT, "now: seconds since 1970 or \"YYYY-MM-DD HH:MM:SS\" were expected");
    if (!r) r = cli_template ? llm_template_render(cli_template, doc, &how, &text) : llm_render(cli.model, doc, &how, &text);
    if (!r && llm_json_bool(doc, llm_json_find(doc, 0, "continue_final_message"), &to_be_continued) && to_be_continued)
        llm_template_cut(NULL, doc, &text);
    if (!opt.jsonl || r == LLM_ERR_NOMEM) llm_text_add(out, text.data, text.len);
    else llm_text_format(out, r ? "{'error': %q}" : "{'text': %Q}", r ? llm_last_error() : text.data, text.len);
    return opt.jsonl && r != LLM_ERR_NOMEM ? LLM_OK : r;
}

/* Converts the whole input, or each of its lines; a bad one is told by its number. */
static void cli_convert(llm_result (*fn)(const char *in, size_t n, llm_text *out), const char *end) {
    CLI_TEXT text = {0}, out = {0};
    const char *in;
    if (!opt.jsonl) cli_input(0, &text);
    for (long number = 1; (in = opt.jsonl ? cli_line(&text.len) : number == 1 ? text.data : NULL); number++) {
        if (fn(in, text.len, &out)) cli_die(1, "input, %s %ld: %s", opt.jsonl ? "line" : "text", number, llm_last_error());
        llm_text_str(&out, opt.jsonl ? "\n" : end);
        cli_out(&out);
    }
}

static void cli_cmd_tokenize(void) { cli_open_model(1), cli_convert(cli_tokenize, "\n"); }
static void cli_cmd_detokenize(void) { cli_open_model(1), cli_convert(cli_detokenize, ""); }

/* With a template of its own no model is needed: its text, or the file that has it. */
static void cli_cmd_render(void) {
    const char *source = opt.setup.files.chat_template;
    CLI_TEXT text = {0};
    if (!source) cli_open_model(1);
    else if (access(source, F_OK) && llm_template_builtin(source)) llm_text_str(&text, llm_template_builtin(source));
    else if (strchr(source, '{') && access(source, R_OK)) llm_text_str(&text, source);
    else if (cli_read(source, &text)) cli_die(1, "--chat-template: %s", llm_last_error());
    if (source && llm_template_open(text.data, text.len, &cli_template)) cli_die(1, "%.60s: %s", source, llm_last_error());
    cli_convert(cli_render, "");
    llm_template_close(cli_template);
}

/* ---------------------------------------------------------------------------
 * score: one request gives both the log-probabilities of the prompt and the first token after it. They are the model's raw ones
 * (log-softmax of the logits), before temperature and penalties: what evaluation harnesses sum up, and what perplexity means.
 * --------------------------------------------------------------------------- */

/* [[id, logprob], ...] of the k most likely of n, which come best first. */
static void cli_add_top(llm_text *t, const llm_token_logprob *top, int n, int k) {
    llm_text_str(t, "[");
    for (int i = 0; i < n && i < k; i++) llm_text_format(t, "%,[%d, %f]", top[i].id, (double)top[i].logprob);
    llm_text_str(t, "]");
}

/* perplexity = exp(-mean of the log-probabilities); the first token has none. As text a line a token: log-probability, id, its bytes. */
static void cli_cmd_score(void) {
    const llm_token_logprob *top = NULL;
    const int32_t *counts = NULL;
    int32_t stride = 0, k = opt.top_logprobs;
    CLI_TOKENS ids = {0};
    CLI_TEXT lps = {0}, tops = {0}, next = {0}, number = {0}, t = {0};
    llm_request *request = NULL;
    llm_output out = {0};
    double sum = 0;
    cli_prompt_ids(0, &ids);
    /* clang-format off */
    int32_t n_media = 0;
    struct llm_media *const *media = cli.prompt ? llm_openai_media(cli.prompt, &n_media) : NULL;
    const llm_request_config cfg = {
        .media = media, .n_media = n_media,
        .prompt_ids = ids.data, .n_prompt_ids = ids.len, .score_only = ids.len == (size_t)cli.limit, /* a full context has no next token */
        .sampling = {.max_tokens = 1, .prompt_logprobs = k + 1, .logprobs = (k ? k : 5) + 1}};
    /* clang-format on */
    cli_open_engine((int64_t)ids.len + 1, 1);
    cli_check(llm_request_submit(cli.engine, &cfg, &request));
    cli_check(llm_request_run(cli.engine, request));
    const float *lp = llm_request_prompt_logprobs(request, &top, &counts, &stride);
    for (size_t i = 0; i < ids.len; i++) {
        CLI_TEXT piece = {0};
        sum += (double)lp[i];
        llm_text_format(&lps, i ? ", %f" : "null", (double)lp[i]);
        llm_text_str(&tops, i ? ", " : "null");
        if (i) cli_add_top(&tops, top + i * (size_t)stride, counts[i], k);
        if (opt.json) continue;
        cli_check(llm_token_bytes(cli.model, ids.data[i], &piece));
        printf("%12.6f  %7d  \"", (double)lp[i], ids.data[i]);
        cli_print(stdout, piece.data, piece.len, 0);
        puts("\"");
    }
    const double perplexity = ids.len > 1 ? exp(-sum / (double)(ids.len - 1)) : NAN;
    llm_request_get_output(request, 0, &out);
    cli_add_top(&next, out.top, out.top && out.n_token_ids ? out.top_counts[0] : 0, k ? k : 5);
    llm_text_num(&number, perplexity);
    llm_text_format(&t, "{'token_ids': %i, 'logprobs': [%t], ", ids.data, ids.len, &lps);
    if (k) llm_text_format(&t, "'top_logprobs': [%t], ", &tops);
    llm_text_format(&t, "'next': %t, 'n_tokens': %d, 'perplexity': %t}\n", &next, (int)ids.len, &number);
    if (opt.json) cli_out(&t);
    else printf("perplexity %.6g of %zu tokens, log-probability %.6f\n", perplexity, ids.len, sum);
    llm_request_free(request);
}

/* embed: the vector of a text, as /v1/embeddings gives it. */
static void cli_cmd_embed(void) {
    CLI_TOKENS ids = {0};
    CLI_TEXT what = {0}, t = {0};
    CLI_JSON *doc = NULL;
    cli_prompt_ids(0, &ids);
    cli_service(1);
    cli_open_engine((int64_t)ids.len, 1);
    llm_text_format(&what, "'input':%i", ids.data, ids.len);
    cli_check(cli_call(LLM_OPENAI_EMBEDDING, &what, &doc));
    const int data = llm_json_find(doc, 0, "data"), vector = llm_json_find(doc, llm_json_first(doc, data), "embedding");
    if (opt.json) llm_text_format(&t, "{'embedding': %j, 'tokens': %d}\n", doc, vector, (int)ids.len);
    for (int v = opt.json ? -1 : llm_json_first(doc, vector); v >= 0; v = llm_json_next(doc, v)) llm_text_format(&t, "%j\n", doc, v);
    cli_out(&t);
}

/* ---------------------------------------------------------------------------
 * rerank: how well documents answer a query, as /v1/rerank tells it: a reranker of BERT's kind, or Qwen3-Reranker.
 * --------------------------------------------------------------------------- */

/* The documents are words of the command line, or with -f lines of a file. */
static void rerank_documents(void) {
    static llm_text text;
    if (opt.documents.n && opt.file) cli_die(2, "--file: given beside documents, one of them was expected");
    if (opt.file) {
        size_t lines = 1;
        cli_check(cli_read(opt.file, &text));
        for (size_t i = 0; i < text.len; i++) lines += text.data[i] == '\n';
        opt.documents.items = (const char **)calloc(lines, sizeof *opt.documents.items);
        if (!opt.documents.items) cli_die(1, "memory: %zu documents did not fit", lines);
        for (char *at = strtok(text.data, "\r\n"); at; at = strtok(NULL, "\r\n")) opt.documents.items[opt.documents.n++] = at;
    }
    if (!opt.query) cli_die(2, "rerank: no query: -q QUERY DOC... was expected");
    if (!opt.documents.n) cli_die(2, "rerank: no documents: -q QUERY DOC..., or -f FILE with one a line, was expected");
}

enum { RERANK_TOGETHER = 512, RERANK_BESIDE = 16 }; /* documents of a call; of them those that are read side by side */

typedef struct rerank_document {
    double score;
    int index;
} rerank_document;

static int rerank_better(const void *a, const void *b) {
    const rerank_document *x = (const rerank_document *)a, *y = (const rerank_document *)b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1) : x->index - y->index;
}

static void cli_cmd_rerank(void) {
    CLI_TEXT t = {0};
    size_t longest = 0;
    rerank_documents();
    cli_open_model(0);
    cli_service(1);
    const int n = opt.documents.n;
    rerank_document *docs = (rerank_document *)calloc((size_t)n, sizeof *docs);
    if (!docs) cli_die(1, "memory: %d documents did not fit", n);
    for (int i = 0; i < n; i++)
        if (strlen(opt.documents.items[i]) > longest) longest = strlen(opt.documents.items[i]);
    /* a token has a byte at least, and beside the texts stand those of a chat */
    longest += strlen(opt.query) + (opt.instruction ? strlen(opt.instruction) : 0) + 256;
    const int32_t own = llm_model_get_info(cli.model)->max_model_len;
    cli_open_engine((int64_t)longest < own ? (int64_t)longest : own, n < RERANK_BESIDE ? n : RERANK_BESIDE);
    for (int done = 0, end; done < n; done = end) {
        CLI_TEXT what = {0};
        CLI_JSON *doc = NULL;
        end = done + RERANK_TOGETHER < n ? done + RERANK_TOGETHER : n;
        llm_text_format(&what, "'query':%q,'return_documents':false,", opt.query);
        if (opt.instruction) llm_text_format(&what, "'instruction':%q,", opt.instruction);
        llm_text_str(&what, "\"documents\":[");
        for (int i = done; i < end; i++) llm_text_format(&what, "%,%q", opt.documents.items[i]);
        llm_text_str(&what, "]");
        cli_check(cli_call(LLM_OPENAI_RERANK, &what, &doc));
        for (int v = llm_json_first(doc, llm_json_find(doc, 0, "results")); v >= 0; v = llm_json_next(doc, v)) {
            int64_t index = 0;
            llm_json_int(doc, llm_json_find(doc, v, "index"), &index);
            docs[done + index].index = done + (int)index;
            llm_json_num(doc, llm_json_find(doc, v, "relevance_score"), &docs[done + index].score);
        }
        cli_progress(NULL, "reading", (double)end / n);
    }
    qsort(docs, (size_t)n, sizeof *docs, rerank_better);
    if (opt.json) llm_text_str(&t, "{\"results\": [");
    for (int i = 0; i < n; i++) {
        if (opt.json) llm_text_format(&t, "%,{'index': %d, 'relevance_score': %f}", docs[i].index, docs[i].score);
        else llm_text_format(&t, "%f\t%d\t%s\n", docs[i].score, docs[i].index, opt.documents.items[docs[i].index]);
    }
    if (opt.json) llm_text_str(&t, "]}\n");
    cli_out(&t);
    free(docs);
    free((void *)opt.documents.items);
}

/* ---------------------------------------------------------------------------
 * batch: OpenAI batch files. Every line is a call of >>openai, as in the server. A window of lines is in flight, four times what the
 * engine runs together, so that it never waits for the reader; lines of many requests, or large ones, fill it sooner. Answers leave in
 * the order of the lines.
 * --------------------------------------------------------------------------- */

typedef struct cli_job {
    llm_openai_call *call; /* NULL: the line was no request, and `text` is its answer */
    llm_text text;         /* else: custom_id as JSON */
} cli_job;

/* Begins the call of a line {"custom_id": ..., "method": "POST", "url": "/v1/chat/completions", "body": {...}}. Whatever is wrong becomes
 * its answer; the others go on. */
static cli_job cli_job_start(const char *line, size_t n, long number) {
    /* clang-format off */
    static const struct { const char *url; llm_openai_kind kind; } routes[] = {
        {"/v1/chat/completions", LLM_OPENAI_CHAT}, {"/v1/completions", LLM_OPENAI_COMPLETION},
        {"/v1/embeddings", LLM_OPENAI_EMBEDDING}, {"/v1/responses", LLM_OPENAI_RESPONSE}};
    /* clang-format on */
    CLI_JSON *doc = NULL;
    CLI_TEXT body = {0};
    cli_job job = {0};
    int route = 0;
    const llm_result r = llm_json_parse(line, n, NULL, &doc);
    if (r == LLM_ERR_NOMEM) cli_check(r);
    if (r || llm_json_type_of(doc, 0) != LLM_JSON_OBJECT) {
        llm_text_format(&job.text,
                        "{'id':null,'custom_id':null,'response':null,'error':{'code':'invalid_line',"
                        "'message':'line %l: a JSON object was expected'}}\n",
                        (int64_t)number);
        return job;
    }
    const char *url = cli_text(doc, 0, NULL, "url", NULL), *method = cli_text(doc, 0, NULL, "method", NULL);
    while (route < CLI_COUNT(routes) && !(url && !strcmp(url, routes[route].url))) route++;
    llm_text_format(&job.text, "%j", doc, llm_json_find(doc, 0, "custom_id"));
    llm_text_format(&body, "%j", doc, llm_json_find(doc, 0, "body"));
    job.call = cli_begin(routes[route % CLI_COUNT(routes)].kind, &body);
    if (method && strcmp(method, "POST")) llm_openai_fail(job.call, 405, "method: POST was expected");
    else if (route == CLI_COUNT(routes))
        llm_openai_fail(job.call, 404, "url: /v1/chat/completions, /v1/completions, /v1/embeddings or /v1/responses was expected");
    else if (llm_openai_get_info(job.call)->stream) llm_openai_fail(job.call, 400, "stream: true, a batch has none");
    llm_openai_submit(job.call);
    return job;
}

/* May one more line come? Not while as many requests wait as lines may, or half of the bytes that an engine lets wait. */
static int cli_batch_more(long in_flight, int32_t window) {
    llm_engine_stats stats;
    llm_engine_get_stats(cli.engine, &stats);
    return in_flight < window && stats.queued < window && stats.queued_bytes < (int64_t)128 << 20;
}

/* The files take the place of the standard streams. The jobs are a ring: fill it, run one step for all of it, write what is due, until no
 * line and no job is left. The context is the longest that fits 1 GiB of KV memory unless said otherwise (the engine sees to it). */
static void cli_cmd_batch(void) {
    static cli_job jobs[4 * CLI_WIDEST];
    llm_engine_config *e = &opt.setup.engine;
    const char *line = opt.in; /* not NULL while there may be lines */
    size_t n = 0;
    long number = 0, head = 0, tail = 0; /* jobs head to tail - 1 are in flight */
    struct stat a, b;
    llm_text out = {0};
    if (!opt.in) cli_die(2, "--input: missing, a file with one request a line was expected (-: standard input)");
    if (strcmp(opt.in, "-") && !freopen(opt.in, "re", stdin)) cli_die(1, "%.60s: %s", opt.in, strerror(errno));
    if (opt.out && !fstat(0, &a) && !stat(opt.out, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev)
        cli_die(2, "--output-file: %.60s is the input too", opt.out);
    if (opt.out && strcmp(opt.out, "-") && !freopen(cli_output = opt.out, "we", stdout)) cli_die(1, "%.60s: %s", opt.out, strerror(errno));
    cli_open_model(0);
    if (!e->kv_cache_memory_bytes) e->kv_cache_memory_bytes = (int64_t)1 << 30;
    if (!e->max_queue) e->max_queue = INT32_MAX; /* a line may bring thousands of requests */
    cli_open_engine(0, e->max_num_seqs ? e->max_num_seqs : 16);
    cli_service(0);
    const int32_t window = 4 * (e->max_num_seqs < CLI_WIDEST ? e->max_num_seqs : CLI_WIDEST), watched = isatty(2) && !isatty(1);
    while (line || head < tail) {
        for (; line && cli_batch_more(tail - head, window) && (line = cli_line(&n)); number++)
            if (strspn(line, " \t") < n) jobs[tail++ % window] = cli_job_start(line, n, number + 1);
        cli_check(llm_engine_step(cli.engine, NULL));
        for (; head < tail; head++) { /* HTTP status and body, as the batch API has them */
            cli_job *job = &jobs[head % window];
            CLI_TEXT body = {0};
            if (job->call && !llm_openai_next(job->call, &body)) break;
            if (job->call) {
                const llm_openai_info *info = llm_openai_get_info(job->call);
                const char *id = info->status == 200 ? info->id : NULL;
                llm_text_format(&out, id ? "{'id':'batch_req_%s'," : "{'id':null,", id);
                llm_text_format(&out, "'custom_id':%t,'response':{'status_code':%d,'request_id':%q,", &job->text, info->status, id);
                if (*info->ignored) llm_text_format(&out, "'ignored':%q,", info->ignored);
                llm_text_format(&out, "'body':%t},'error':null}\n", &body);
            }
            llm_text_format(&out, "%t", &job->text);
            cli_out(&out);
            llm_openai_free(job->call);
            if (watched) fprintf(stderr, "\rbatch: %ld answered\x1b[K", head + 1);
        }
    }
    if (watched) fputs("\n", stderr);
}

/* ---------------------------------------------------------------------------
 * info: what a model file is, and whether one sequence of its whole context fits in memory on this machine: weights, KV cache and buffers
 * as an engine with these options would take them (llm_model_estimate).
 * --------------------------------------------------------------------------- */

/* An object as lines "name value", members of members further in; a number of bytes in MiB, a long text by its beginning. */
static void cli_print_object(const llm_json *doc, int object, int indent) {
    for (int v = llm_json_first(doc, object); v >= 0; v = llm_json_next(doc, v)) {
        const char *key = llm_json_key(doc, v, NULL), *text = llm_json_str(doc, v, NULL);
        const int inner = llm_json_type_of(doc, v) == LLM_JSON_OBJECT;
        double number = 0;
        CLI_TEXT t = {0};
        if (text) llm_text_str(&t, text);
        else if (!inner) llm_json_write(doc, v, &t);
        printf("%*s%-*s ", indent, "", 24 - indent, key);
        if (llm_json_num(doc, v, &number) && strstr(key, "bytes")) printf("%.1f MiB", number / 1048576);
        else if (fmod(number, 1) != 0) printf("%.5g", number);
        else cli_print(stdout, t.data, t.len < 100 ? t.len : 100, 0);
        printf("\n");
        cli_print_object(doc, inner ? v : -1, indent + 2);
    }
}

/* Writes what a command found out, an object: with --json as it is, else as lines. Frees it. */
static void cli_result(llm_text *json) {
    CLI_JSON *doc = NULL;
    if (!opt.json) {
        cli_check(llm_json_parse(json->data, json->len, NULL, &doc));
        cli_print_object(doc, 0, 0);
        llm_text_free(json);
    }
    cli_out(json);
}

static void cli_cmd_info(void) {
    struct {
        const char *name;
        int64_t n, bytes;
    } types[64] = {{0}}; /* more than there are */
    llm_text t = {0};
    cli_open_model(0);
    const llm_model_info *i = llm_model_get_info(cli.model);
    llm_engine_config engine = opt.setup.engine;
    llm_estimate memory;
    engine.device = "cpu";
    engine.max_model_len = cli.limit > 0 ? cli.limit : 0;
    cli_check(llm_model_estimate(cli.model, &engine, &memory));
    for (int k = 0; k < i->n_tensors; k++) {
        const char *type = NULL;
        int64_t bytes = 0;
        int at = 0;
        llm_model_tensor(cli.model, k, NULL, &type, NULL, NULL, &bytes);
        while (types[at].name && strcmp(types[at].name, type)) at++;
        types[at].name = type, types[at].n++, types[at].bytes += bytes;
    }
    llm_text_format(&t, "{'path': %q, 'format': %q, 'architecture': %q, 'family': %q, 'file_type': %q, 'tokenizer': %q, ", i->path,
                    i->format, i->architecture, i->family, i->file_type, i->tokenizer_kind);
    llm_text_format(&t, "'n_params': %l, 'n_layers': %d, 'hidden_size': %d, 'n_heads': %d, 'n_kv_heads': %d, 'head_dim': %d, ", i->n_params,
                    i->n_layers, i->hidden_size, i->n_heads, i->n_kv_heads, i->head_dim);
    llm_text_format(
        &t,
        "'vocab_size': %d, 'max_position_embeddings': %d, 'sliding_window': %d, 'n_experts': %d, 'n_experts_used': %d, 'n_states': %d, ",
        i->vocab_size, i->max_position_embeddings, i->sliding_window, i->n_experts, i->n_experts_used, i->n_states);
    llm_text_format(&t, "'bos_id': %d, 'eos_id': %d, 'stop_ids': %i, 'n_tensors': %d, 'tensor_types': {", i->bos_id, i->eos_id, i->stop_ids,
                    (size_t)i->n_stop_ids, i->n_tensors);
    for (int k = 0; types[k].name; k++)
        llm_text_format(&t, "%,%q: {'tensors': %l, 'bytes': %l}", types[k].name, types[k].n, types[k].bytes);
    llm_text_format(&t, "}, 'weight_bytes': %l, 'context': %l, 'kv_bytes': %l, 'bytes_needed': %l, 'bytes_available': %l, 'fits': %s, ",
                    i->weight_bytes, (int64_t)memory.max_model_len, memory.kv_bytes, memory.peak_bytes, memory.available_bytes,
                    memory.available_bytes < 0 ? "null"
                    : memory.fits              ? "true"
                                               : "false");
    llm_text_format(&t, "'quantization': %q, 'bits_per_weight': %f, 'weight_bytes_in_memory': %l, ", i->quantization, i->bits_per_weight,
                    memory.weight_bytes);
    llm_text_format(&t, "'isa': %q, 'tuning': %q, 'chat_template': %q}\n", memory.isa, memory.tuning, i->chat_template);
    cli_result(&t);
}

static void cli_cmd_convert(void) {
    const char *head = opt.draft_path ? opt.draft_path : opt.setup.model, *to = opt.out ? opt.out : head;
    if (!head) cli_die(2, "convert-eagle: HEAD TO, or --draft-path HEAD, was expected");
    if (llm_convert_eagle(head, opt.draft_weights, opt.base_path, opt.base_weights, to)) cli_die(1, "%s", llm_last_error());
    cli_say("", "%s: in vLLM's layout", to);
}

/* How far it is, on a terminal, and the time that is left. Ctrl-C ends it. user: a line that is said when it begins, or NULL. */
static int cli_quantizing(void *user, CLI_UNUSED const char *what, double done) {
    static double begin, told;
    const double now = llm_now();
    if (user && begin <= 0) cli_say("llm_cli: note: ", "%s", (const char *)user);
    if (done <= 0 || begin <= 0) begin = now;
    const double left = done > 0 ? (now - begin) / done * (1 - done) : 0;
    if (isatty(2) && now - begin > 0.7 && (now - told > 0.15 || done >= 1)) {
        char bar[41];
        told = now;
        for (int i = 0; i < 40; i++) bar[i] = i < done * 40 ? '#' : '.';
        bar[40] = 0;
        if (done < 1) fprintf(stderr, "\r%s %3.0f %%  %d:%02d left ", bar, 100 * done, (int)left / 60, (int)left % 60);
        else fputs("\r\x1b[K", stderr);
    }
    return cli_interrupts > 0;
}

/* Parses what a quantisation told, and writes it with --json. 0: it was stopped. A failure ends the program. */
static int cli_quantised(llm_result r, llm_text *t, llm_json **doc) {
    cli_interrupts = -1;
    if (r && isatty(2)) fputs("\r\x1b[K", stderr);
    cli.stopped = r == LLM_ERR_CANCELLED;
    if (r && !cli.stopped) cli_die(r == LLM_ERR_ARG ? 2 : 1, "%s", llm_last_error());
    if (r) return 0;
    cli_check(llm_json_parse(t->data, t->len, NULL, doc));
    if (opt.json) llm_text_str(t, "\n"), cli_write(t->data, t->len);
    return 1;
}

/* A folder of smaller weights. */
static void cli_quantize_folder(void) {
    static char own_text[] = "calibrating with a built-in text: one like those that the model will read (-token FILE, -f TEXT) does better";
    llm_quantize_folder_config c;
    CLI_TEXT t = {0};
    CLI_JSON *doc = NULL;
    double was = 0, is = 0;
    int64_t after = 0, before = 0, left = 0;
    const char *from = opt.in ? opt.in : opt.setup.model;
    if (!from || !opt.out) cli_die(2, "quantize: -i DIR -o DIR -quant_type NAME was expected");
    if (opt.type || opt.allow_requantize || opt.leave_output || opt.pure || opt.output_type || opt.embedding_type || opt.imatrix)
        cli_die(2, "quantize: --type and what belongs to it are for GGUF files, --quant_type is for folders");
    memset(&c, 0, sizeof c);
    c.method = opt.quant_type, c.dtype = opt.storage, c.token_ids = opt.calibration_ids, c.text = opt.file;
    c.n_samples = opt.chunks, c.sample_len = opt.chunk_tokens, c.group_size = opt.group_size, c.bits = opt.bits;
    c.desc_act = opt.desc_act, c.damp = opt.damp, c.alpha = opt.smooth, c.alpha_given = opt.smooth >= 0;
    c.tensor_parallel_size = opt.setup.engine.tensor_parallel_size;
    c.n_threads = opt.setup.engine.n_threads;
    c.progress = cli_quantizing;
    if (!c.token_ids && !c.text && strcmp(c.method, "weight_only_int8")) c.progress_user = own_text;
    if (opt.multi_query) cli_note(&cli_names, "multi-query-mode has no effect: config.json says which heads share keys and values");
    if (c.tensor_parallel_size > 1)
        cli_note(&cli_names, "tp only checks that the model can be cut so: one folder serves any number of ranks");
    cli_interrupts = 0;
    if (!cli_quantised(llm_quantize_folder(from, opt.out, &c, &t), &t, &doc) || opt.json) return;
    llm_json_int(doc, llm_json_find(doc, 0, "bytes_before"), &before);
    llm_json_int(doc, llm_json_find(doc, 0, "bytes_after"), &after);
    llm_json_int(doc, llm_json_find(doc, 0, "n_left"), &left);
    llm_json_num(doc, llm_json_find(doc, 0, "perplexity_before"), &was);
    cli_say("", "%s: %s, %.1f MiB of %.1f MiB", opt.out, c.method, (double)after / 1048576, (double)before / 1048576);
    if (left) cli_say("", "%lld linear layers stay as they are: their sizes cannot be packed", (long long)left);
    if (llm_json_num(doc, llm_json_find(doc, 0, "perplexity_after"), &is))
        cli_say("", "perplexity of what it was calibrated with: %.4f before, %.4f after", was, is);
}

/* A GGUF file of smaller weights. */
static void cli_cmd_quantize(void) {
    llm_quantize_config c;
    CLI_TEXT t = {0};
    CLI_JSON *doc = NULL;
    double bits = 0;
    int64_t after = 0, before = 0, unweighted = 0;
    if (opt.quant_type) {
        cli_quantize_folder();
        return;
    }
    if (opt.in || opt.storage || opt.calibration_ids || opt.smooth >= 0 || opt.group_size || opt.bits || opt.desc_act || opt.damp > 0 ||
        opt.multi_query || opt.chunks || opt.chunk_tokens || opt.file)
        cli_die(2, "quantize: --quant_type weight_only_int8, smooth_quant, awq or gptq was expected with the options of folders");
    if (!opt.setup.model || !opt.out)
        cli_die(2, opt.convert ? "convert: DIR OUT.gguf [TYPE] was expected, or IN.gguf DIR [TYPE]"
                               : "quantize: MODEL OUT.gguf [TYPE] was expected, a GGUF file or a folder");
    memset(&c, 0, sizeof c);
    c.type = opt.type ? opt.type : opt.convert ? "auto" : NULL;
    c.n_threads = opt.setup.engine.n_threads;
    c.allow_requantize = opt.allow_requantize, c.pure = opt.pure, c.keep_output = opt.leave_output;
    c.output_type = opt.output_type, c.embedding_type = opt.embedding_type;
    c.imatrix = opt.imatrix;
    c.progress = cli_quantizing;
    cli_interrupts = 0;
    const double begin = llm_now();
    if (!cli_quantised(llm_quantize(opt.setup.model, opt.out, &c, &t), &t, &doc)) return;
    llm_json_num(doc, llm_json_find(doc, 0, "bits_per_weight"), &bits);
    llm_json_int(doc, llm_json_find(doc, 0, "bytes_before"), &before);
    llm_json_int(doc, llm_json_find(doc, 0, "bytes_after"), &after);
    llm_json_int(doc, llm_json_find(doc, 0, "n_unweighted"), &unweighted);
    if (unweighted) cli_say("", "%s: nothing of %d matrices; they were rounded without it", opt.imatrix, (int)unweighted);
    if (!opt.json)
        cli_say("", "%s: %s, %.1f MiB of %.1f MiB, %.2f bits a weight, %.1f s", opt.out, cli_text(doc, 0, NULL, "type", NULL),
                (double)after / 1048576, (double)before / 1048576, bits, llm_now() - begin);
}

/* A GGUF file as a folder. */
static void cli_convert_back(void) {
    llm_quantize_config c;
    CLI_TEXT t = {0};
    CLI_JSON *doc = NULL;
    int64_t after = 0;
    if (opt.allow_requantize || opt.leave_output || opt.pure || opt.output_type || opt.embedding_type || opt.imatrix)
        cli_die(2, "convert: a folder is of one type, f32, f16 or bf16: --type and nothing else has a meaning");
    memset(&c, 0, sizeof c);
    c.type = opt.type;
    c.progress = cli_quantizing;
    cli_interrupts = 0;
    const double begin = llm_now();
    if (!cli_quantised(llm_convert_folder(opt.setup.model, opt.out, &c, &t), &t, &doc) || opt.json) return;
    llm_json_int(doc, llm_json_find(doc, 0, "bytes_after"), &after);
    cli_say("", "%s: %s, %s, %.1f MiB, %.1f s", opt.out, cli_text(doc, 0, NULL, "model_type", NULL), cli_text(doc, 0, NULL, "dtype", NULL),
            (double)after / 1048576, llm_now() - begin);
}

/* A folder as a GGUF file, in its own type unless another is asked for; or a GGUF file as a folder, where that is what the names say. */
static void cli_cmd_gguf(void) {
    const size_t n = opt.out ? strlen(opt.out) : 0;
    struct stat st;
    opt.convert = 1;
    if (n && (n < 5 || strcmp(opt.out + n - 5, ".gguf")) && opt.setup.model && !stat(opt.setup.model, &st) && S_ISREG(st.st_mode)) {
        cli_convert_back();
        return;
    }
    cli_cmd_quantize();
}

/* An importance matrix for quantize. */
static void cli_cmd_imatrix(void) {
    const char *to = opt.out ? opt.out : "imatrix.gguf";
    llm_quantize_config c;
    CLI_TEXT text = {0}, t = {0};
    CLI_JSON *doc = NULL;
    int64_t n[3] = {0, 0, 0};
    if (!opt.file && !opt.prompt)
        cli_die(2, "imatrix: -f TEXT was expected, a file of some 50,000 words like those that the model will read");
    memset(&c, 0, sizeof c);
    if (opt.prompt) llm_text_str(&text, opt.prompt);
    else cli_check(cli_read(opt.file, &text));
    c.n_threads = opt.setup.engine.n_threads;
    c.calibration_tokens = opt.chunk_tokens, c.calibration_chunks = opt.chunks, c.calibration_name = opt.file;
    c.progress = cli_quantizing;
    cli_open_model(0);
    cli_interrupts = 0;
    const double begin = llm_now();
    const llm_result r = llm_imatrix(cli.model, text.data, text.len, to, &c, &t);
    cli_interrupts = -1;
    if (r && isatty(2)) fputs("\r\x1b[K", stderr);
    cli.stopped = r == LLM_ERR_CANCELLED;
    if (cli.stopped) return;
    cli_check(r);
    cli_check(llm_json_parse(t.data, t.len, NULL, &doc));
    llm_json_int(doc, llm_json_find(doc, 0, "n_entries"), &n[0]);
    llm_json_int(doc, llm_json_find(doc, 0, "n_tokens"), &n[1]);
    llm_json_int(doc, llm_json_find(doc, 0, "n_unmet"), &n[2]);
    if (n[2]) cli_say("", "to %d matrices of experts no token came: a longer text, or a more varied one, has something for all", (int)n[2]);
    if (opt.json) llm_text_str(&t, "\n"), cli_write(t.data, t.len);
    else cli_say("", "%s: %d matrices, %d tokens, %.1f s", to, (int)n[0], (int)n[1], llm_now() - begin);
}

/* ---------------------------------------------------------------------------
 * pull, list, rm: models of the Hugging Face Hub and its local cache.
 * --------------------------------------------------------------------------- */

/* What a command for one model is asked about. */
static const char *cli_hub_name(const char *command) {
    const char *name = opt.name ? opt.name : opt.setup.hf_repo;
    if (!name)
        cli_die(2, "%s: ORG/NAME or ORG/NAME:QUANT was expected, as in llm_cli %s Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M", command,
                command);
    return name;
}

/* Fetches a model; the path of it is what is written. */
static void cli_cmd_pull(void) {
    CLI_TEXT path = {0}, name = {0};
    llm_text json = {0};
    llm_text_str(&name, cli_hub_name("pull"));
    if (opt.setup.revision && !strchr(name.data, '@')) llm_text_format(&name, "@%s", opt.setup.revision);
    const llm_result r = llm_hub_pull(name.data, opt.setup.download_dir, getenv, cli_pulled, NULL, &path);
    if (isatty(2)) fputs("\r\x1b[K", stderr);
    cli_check(r);
    if (opt.json) llm_text_format(&json, "{'name': %q, 'path': %q}\n", name.data, path.data);
    else llm_text_str(&json, path.data), llm_text_str(&json, "\n");
    cli_out(&json);
}

/* A table, or with --json the library's own list. */
static void cli_cmd_list(void) {
    llm_text json = {0};
    CLI_JSON *doc = NULL;
    int wide = 4;
    cli_check(llm_hub_list(opt.setup.download_dir, getenv, &json));
    llm_text_str(&json, "\n");
    if (opt.json) {
        cli_out(&json);
        return;
    }
    cli_check(llm_json_parse(json.data, json.len, NULL, &doc));
    llm_text_free(&json);
    for (int m = llm_json_first(doc, 0); m >= 0; m = llm_json_next(doc, m)) {
        const int n = (int)strlen(cli_text(doc, m, NULL, "name", NULL));
        wide = n > wide ? n : wide;
    }
    for (int m = llm_json_first(doc, 0); m >= 0; m = llm_json_next(doc, m)) {
        int64_t bytes = 0, modified = 0;
        char date[32] = "";
        llm_json_int(doc, llm_json_find(doc, m, "bytes"), &bytes);
        llm_json_int(doc, llm_json_find(doc, m, "modified"), &modified);
        const time_t when = (time_t)modified;
        struct tm day;
        if (localtime_r(&when, &day)) strftime(date, sizeof date, "%Y-%m-%d", &day);
        const char *name = cli_text(doc, m, NULL, "name", NULL);
        if (m == llm_json_first(doc, 0)) printf("%-*s  %-11s  %10s  %s\n", wide, "NAME", "FORMAT", "SIZE", "DATE");
        cli_print(stdout, name, strlen(name), 0);
        printf("%*s  %-11s  %7.1f MB  %s\n", wide - (int)strlen(name), "", cli_text(doc, m, NULL, "format", NULL), (double)bytes / 1e6,
               date);
    }
    if (!llm_json_size(doc, 0)) cli_say("", "no model of the Hub is here yet: llm_cli pull ORG/NAME fetches one");
}

/* Asks at a terminal; where nobody can be asked, -y must say it. */
static void cli_cmd_rm(void) {
    const char *name = cli_hub_name("rm");
    size_t n = 0;
    if (!opt.yes && !isatty(0)) cli_die(2, "rm: there is no terminal to ask at, -y was expected");
    if (!opt.yes) {
        fputs("remove ", stderr);
        cli_print(stderr, name, strlen(name), 0);
        fputs(" from the cache? [y/N] ", stderr);
        const char *line = cli_line(&n);
        if (!line || (*line != 'y' && *line != 'Y')) cli_die(1, "rm: nothing was removed");
    }
    cli_check(llm_hub_remove(name, opt.setup.download_dir, getenv));
    cli_say("", "%s was removed", name);
}

/* ---------------------------------------------------------------------------
 * bench: the forward pass alone. pp: one prompt at position 0; tg: every step adds a token to each of b sequences, the choice of the
 * next (the most likely) counted. read_gb_s is what a step reads of the weights times steps a second; peak_gb_s is what all threads
 * read of 1 GiB of memory in the same run, so that the two can be compared: decoding cannot be faster than memory.
 * --------------------------------------------------------------------------- */

static struct {
    int n_threads; /* of the CPU; 0: a device computes */
    char isa[40], tuning[100];
    double peak;                           /* of the machine: GB/s read; 0 with a device */
    llm_spent stages[LLM_SPENT_KINDS + 1]; /* the engine's, then the sampler's */
    float *logits;                         /* (sequences, vocab) */
    int32_t vocab;
} cli_bench;

static int cli_compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts n values. Then the one that a share of them lies below, between two by their distance, as in NumPy. */
static double cli_percentile(double *values, int n, double share) {
    double at = share * (n - 1);
    int low = (int)at;
    if (n == 0) return 0;
    qsort(values, (size_t)n, sizeof *values, cli_compare_doubles);
    return low + 1 < n ? values[low] + (at - low) * (values[low + 1] - values[low]) : values[low];
}

/* Feeds n random tokens to a sequence, from its beginning on. Returns the seconds. */
static double cli_bench_prompt(int32_t seq, int n, unsigned seed) {
    const int32_t from = cli_bench.vocab > 2000 ? 1000 : 0; /* the first are special in most vocabularies */
    CLI_TOKENS ids = {0};
    for (int i = 0; i < n; i++) llm_tokens_add(&ids, from + rand_r(&seed) % (cli_bench.vocab - from));
    double begin = llm_now();
    cli_check(llm_forward(cli.engine, seq, 0, ids.data, n, cli_bench.logits, 1));
    return llm_now() - begin;
}

/* Decodes n tokens of `width` sequences behind prompts of different lengths, which are fed if this is the first time, or where a state cannot
 * go back to them. Returns the seconds. */
static double cli_bench_decode(int n, int32_t width, int first) {
    const llm_sampling greedy = {0};
    static int32_t seqs[CLI_WIDEST], positions[CLI_WIDEST], counts[CLI_WIDEST], ids[CLI_WIDEST];
    for (int32_t s = 0; s < width; s++) {
        seqs[s] = ids[s] = s, counts[s] = 1, positions[s] = 1 + s % 16 + opt.depth;
        if (first || llm_model_get_info(cli.model)->n_states) cli_bench_prompt(s, positions[s], (unsigned)s);
    }
    double begin = llm_now();
    for (int i = 0; i < n; i++) {
        cli_check(llm_forward_batch(cli.engine, width, seqs, positions, counts, ids, cli_bench.logits));
        cli_bench.stages[LLM_SPENT_KINDS].seconds -= llm_now();
        for (int32_t s = 0; s < width; s++, positions[s - 1]++)
            ids[s] = llm_sample(cli_bench.logits + (size_t)s * (size_t)cli_bench.vocab, cli_bench.vocab, &greedy, 0, i);
        cli_bench.stages[LLM_SPENT_KINDS].seconds += llm_now();
    }
    return llm_now() - begin;
}

/* --stages: the parts of what took `seconds`: share of the time, and the rates within it beside the machine's. */
static void cli_bench_stages(const char *test, double seconds) {
    static const char *const names[] = {"embed", "linear", "attention", "head", "norm", "sampler"};
    const double peak = llm_isa_peak(NULL) * cli_bench.n_threads;
    for (int i = 0; i <= LLM_SPENT_KINDS; i++) {
        const llm_spent *s = &cli_bench.stages[i];
        const double per = s->seconds > 0 ? 1e-9 / s->seconds : 0, read = s->bytes * per, ops = s->ops * per, share = s->seconds / seconds;
        CLI_TEXT t = {0};
        llm_text_format(&t, "{'test': %q, 'stage': %q, 'share': %f, 'read_gb_s': %f, 'gops': %f, 'peak_gops': %f}\n", test, names[i], share,
                        read, ops, peak);
        if (opt.json) cli_write(t.data, t.len);
        else printf("  %-9s %5.1f %% of the time %23.1f GB/s %10.1f of %.1f GOPS\n", names[i], 100 * share, read, ops, peak);
    }
}

/* Prompts of n tokens, or n decoded tokens of `width` sequences each (`decode`), as often as was said; a first short run warms up. Their
 * rates are a row of the table or a line of JSON. */
static void cli_bench_test(int decode, int n, int32_t width) {
    const int32_t said = opt.setup.engine.max_num_batched_tokens, rows = said ? said : 512, warm = decode ? 4 : 64;
    double rates[1000], total = 0;
    char test[40];
    CLI_TEXT list = {0}, t = {0};
    snprintf(test, sizeof test, !decode ? "pp%d" : width > 1 ? "tg%d@%d" : "tg%d", n, width);
    for (int r = -1; r < opt.repetitions; r++) {
        int count = r < 0 && n > warm ? warm : n;
        double seconds = decode ? cli_bench_decode(count, width, r < 0) : cli_bench_prompt(0, count, (unsigned)r);
        if (r < 0) memset(cli_bench.stages, 0, sizeof cli_bench.stages);
        else rates[r] = (double)count * width / seconds, total += seconds;
        if (r >= 0) llm_text_format(&list, r ? ", %f" : "%f", rates[r]);
    }
    const double median = cli_percentile(rates, opt.repetitions, 0.5), steps = decode ? 1.0 / width : (double)((n + rows - 1) / rows) / n;
    const double read = median * steps * (double)llm_model_get_info(cli.model)->step_bytes * 1e-9,
                 share = cli_bench.peak > 0 ? 100 * read / cli_bench.peak : 0;
    llm_text_format(&t, "{'test': %q, 'tokens_per_s': [%t], 'median': %f, 'threads': %d, 'isa': %q, 'model': %q, ", test, &list, median,
                    cli_bench.n_threads, cli_bench.isa, opt.setup.path.data);
    llm_text_format(&t, "'read_gb_s': %f, 'peak_gb_s': %f, 'tuning': %q}\n", read, cli_bench.peak, cli_bench.tuning);
    if (opt.json) cli_out(&t);
    else
        printf("%-10s %10.1f %10.1f %10.1f %9.1f %6.0f %% of %.1f\n", test, median, rates[0], rates[opt.repetitions - 1], read, share,
               cli_bench.peak);
    if (opt.stages) cli_bench_stages(test, total);
}

/* Prepares what all tests share, then runs them in turn. Memory is taken for the widest. */
static void cli_bench_all(void) {
    int32_t n = llm_options_given(&cli_names, "max-tokens") ? opt.setup.sampling.max_tokens : 128, longest = n ? n + 32 + opt.depth : 0,
            widest = 1;
    CLI_TOKENS prompts = {0}, widths = {0};
    llm_engine_stats stats;
    cli_check(cli_parse_ids("--prompt", opt.prompt ? opt.prompt : "512", &prompts));
    cli_check(cli_parse_ids("--batch", opt.batch, &widths));
    for (size_t i = 0; i < prompts.len; i++) longest = prompts.data[i] > longest ? prompts.data[i] : longest;
    for (size_t i = 0; i < widths.len && n; i++) widest = widths.data[i] > widest ? widths.data[i] : widest;
    if (n < 0) cli_die(2, "--max-tokens: %d, a whole number from 0 was expected", n);
    if (widest > CLI_WIDEST) cli_die(2, "--batch: %d, at most %d was expected", widest, CLI_WIDEST);
    if (opt.stages) opt.setup.engine.spent = cli_bench.stages;
    cli_open_model(0);
    cli_open_engine((int64_t)longest + 1, widest);
    llm_engine_get_stats(cli.engine, &stats);
    /* "cpu: avx2, 2 threads; ahead=..."; of a device "cuda: its name, ...", and neither threads nor this machine's memory say anything about it. */
    const int device =
        sscanf(stats.backend, "cpu: %39[^,], %d %*[^;]; %99[^\n]", cli_bench.isa, &cli_bench.n_threads, cli_bench.tuning) < 2;
    if (device) sscanf(stats.backend, "%*[^:]: %39[^,]", cli_bench.isa);
    else cli_bench.peak = llm_memory_peak(cli_bench.n_threads);
    cli_bench.vocab = llm_logits_size(cli.engine);
    cli_bench.logits = (float *)calloc((size_t)cli_bench.vocab * (size_t)widest, sizeof(float));
    if (!cli_bench.logits) cli_die(1, "memory: logits of %d sequences did not fit", widest);
    if (!opt.json) {
        printf("%s, %s\n", opt.setup.path.data, stats.backend);
        printf("%-10s %10s %10s %10s %9s %8s\n", "test", "tokens/s", "slowest", "fastest", "GB/s", "of the memory's");
    }
    for (size_t i = 0; i < prompts.len; i++)
        if (prompts.data[i]) cli_bench_test(0, prompts.data[i], 1);
    for (size_t i = 0; i < widths.len; i++)
        if (n && widths.data[i]) cli_bench_test(1, n, widths.data[i]);
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
    double due;             /* when it may be sent, in seconds from the test's begin */
    llm_text times;         /* doubles, milliseconds: when it was sent, then when each event with tokens came */
    int64_t tokens;
    llm_text error; /* empty: it went well */
} cli_flight;

static struct {
    char host[256], port[8], path[256];
    cli_flight *flights; /* (num_prompts) */
    int begun;           /* atomic: how many of them were taken */
    double begin;
} cli_load = {.port = "80"};

/* A stream to and from the server, opened by a blocking connect; NULL: nobody answers. */
static FILE *cli_connect(void) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int fd = -1;
    if (getaddrinfo(cli_load.host, cli_load.port, &hints, &list)) return NULL;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen)) close(fd), fd = -1;
    }
    freeaddrinfo(list);
    return fd < 0 ? NULL : fdopen(fd, "r+");
}

static void cli_add_figure(llm_text *list, double x) { llm_text_add(list, (const char *)&x, sizeof x); }

/* Sends a prompt of random ids, new ones in each run so that no prefix cache helps; then reads all lines of the answer: the status, and the
 * events of the stream (an error has no "data:"). The sizes of chunks are lines of their own and mean nothing here. */
static void cli_flight_run(cli_flight *f, unsigned seed) {
    CLI_TEXT body = {0};
    char *line = NULL;
    size_t room = 0;
    int status;
    FILE *server = cli_connect();
    llm_text_format(&body,
                    "{'model':%q,'stream':true,'stream_options':{'include_usage':true},'temperature':0,'ignore_eos':true,'max_tokens':%d",
                    opt.setup.model ? opt.setup.model : "default", opt.output_len);
    llm_text_str(&body, ",\"prompt\":[");
    for (int i = 0; i < opt.input_len; i++) llm_text_format(&body, "%,%d", 20 + rand_r(&seed) % 230);
    llm_text_str(&body, "]}");
    cli_whole(&body);
    cli_add_figure(&f->times, 1e3 * llm_now());
    if (!server ||
        fprintf(server,
                "POST %s/v1/completions HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\nConnection: close\r\n"
                "Content-Length: %zu\r\n\r\n%s",
                cli_load.path, cli_load.host, cli_load.port, body.len, body.data) < 0 ||
        fflush(server))
        llm_text_format(&f->error, "%s:%s: no connection", cli_load.host, cli_load.port);
    while (server && getline(&line, &room, server) >= 0) {
        const char *data = strncmp(line, "data:", 5) ? line : line + 5;
        CLI_JSON *doc = NULL;
        if (sscanf(line, "HTTP/1.%*d %d", &status) == 1 && status != 200) llm_text_format(&f->error, "HTTP status %d", status);
        if (!strchr(data, '{') || llm_json_parse(data, strcspn(data, "\r\n"), NULL, &doc) != LLM_OK) continue;
        const char *why = cli_text(doc, 0, "error", "message", NULL);
        if (why) llm_text_format(&f->error, f->error.len ? ": %s" : "%s", why);
        llm_json_int(doc, llm_json_find(doc, llm_json_find(doc, 0, "usage"), "completion_tokens"), &f->tokens);
        if (llm_json_size(doc, llm_json_find(doc, 0, "choices")) > 0) cli_add_figure(&f->times, 1e3 * llm_now());
    }
    if (server) fclose(server);
    cli_whole(&f->times);
    if (!f->error.len && f->times.len == sizeof(double)) llm_text_str(&f->error, "the answer had no tokens");
    free(line);
}

/* One thread: takes the next request and waits for its time, until there is none. */
static void *cli_load_worker(CLI_UNUSED void *number) {
    unsigned seed = (unsigned)(opt.setup.sampling.seed ? opt.setup.sampling.seed : (int64_t)(cli_load.begin * 1e3));
    for (int i; (i = __atomic_fetch_add(&cli_load.begun, 1, __ATOMIC_RELAXED)) < opt.num_prompts;) {
        double wait = cli_load.begin + cli_load.flights[i].due - llm_now();
        const struct timespec pause = {(time_t)wait, (long)(fmod(wait, 1) * 1e9)};
        if (wait > 0) nanosleep(&pause, NULL);
        cli_flight_run(&cli_load.flights[i], seed + (unsigned)i * 1000003u);
    }
    return NULL;
}

/* Mean, median and P99 of a metric: of ITL a request tells many figures, of the others one. */
static void cli_load_metric(llm_text *t, const char *metric) {
    CLI_TEXT list = {0};
    double sum = 0;
    for (int i = 0; i < opt.num_prompts; i++) {
        const cli_flight *f = &cli_load.flights[i];
        const double *at = (const double *)(const void *)f->times.data;
        const size_t last = f->error.len ? 0 : f->times.len / sizeof *at - 1; /* event */
        if (last && !strcmp(metric, "ttft")) cli_add_figure(&list, at[1] - at[0]);
        if (last && !strcmp(metric, "e2el")) cli_add_figure(&list, at[last] - at[0]);
        if (f->tokens > 1 && last && !strcmp(metric, "tpot")) cli_add_figure(&list, (at[last] - at[1]) / (double)(f->tokens - 1));
        for (size_t k = 2; k <= last && !strcmp(metric, "itl"); k++) cli_add_figure(&list, at[k] - at[k - 1]);
    }
    double *v = (double *)(void *)list.data;
    const int n = (int)(list.len / sizeof *v);
    for (int i = 0; i < n; i++) sum += v[i];
    llm_text_format(t, ", 'mean_%s_ms': %f, 'median_%s_ms': %f, 'p99_%s_ms': %f", metric, n ? sum / n : 0, metric,
                    cli_percentile(v, n, 0.5), metric, cli_percentile(v, n, 0.99));
}

/* The base URL may end in /v1 or not. Requests start at once, or at random times of the given rate: exponential gaps make a Poisson process. */
static void cli_load_test(void) {
    static const char *const metrics[] = {"ttft", "tpot", "itl", "e2el"};
    const char *why = NULL;
    double due = 0, tokens = 0;
    pthread_t threads[1024]; /* as many as the option allows */
    llm_text t = {0};
    int n = opt.num_prompts, failed = 0,
        parts = sscanf(opt.url, "http://%255[^:/]:%7[0-9]%255[^?#]", cli_load.host, cli_load.port, cli_load.path);
    if (parts < 2) parts = sscanf(opt.url, "http://%255[^:/]%255[^?#]", cli_load.host, cli_load.path);
    if (parts < 1 || cli_load.path[0] == ':') cli_die(2, "--url: %.60s, http://HOST:PORT was expected", opt.url);
    size_t len = strlen(cli_load.path);
    while (len && cli_load.path[len - 1] == '/') cli_load.path[--len] = 0;
    if (len >= 3 && !strcmp(cli_load.path + len - 3, "/v1")) cli_load.path[len - 3] = 0;
    srand48((long)opt.setup.sampling.seed);
    cli_load.flights = (cli_flight *)calloc((size_t)n, sizeof *cli_load.flights);
    if (!cli_load.flights) cli_die(1, "memory: %d requests did not fit", n);
    for (int i = 0; i < n && opt.request_rate > 0; i++) cli_load.flights[i].due = due, due -= log(1 - drand48()) / (double)opt.request_rate;
    cli_load.begin = llm_now();
    for (int i = 0; i < opt.max_concurrency; i++)
        if (pthread_create(&threads[i], NULL, cli_load_worker, NULL))
            cli_die(1, "bench: no thread %d of %d could be started", i + 1, opt.max_concurrency);
    for (int i = 0; i < opt.max_concurrency; i++) pthread_join(threads[i], NULL);
    const double seconds = llm_now() - cli_load.begin;
    for (const cli_flight *f = cli_load.flights; f < cli_load.flights + n; f++)
        if (f->error.len) why = f->error.data, failed++;
        else tokens += (double)f->tokens;
    const double requests = (n - failed) / seconds, out = tokens / seconds;
    llm_text_format(&t, "{'completed': %d, 'failed': %d, 'duration': %f, 'request_throughput': %f, 'output_throughput': %f, ", n - failed,
                    failed, seconds, requests, out);
    llm_text_format(&t, "'total_token_throughput': %f", out + requests * opt.input_len);
    for (int m = 0; m < CLI_COUNT(metrics); m++) cli_load_metric(&t, metrics[m]);
    llm_text_str(&t, "}\n");
    if (failed < n && !opt.json)
        puts("TTFT: to the first token, TPOT: each token behind it, ITL: between two events, E2EL: the whole; P99: 99 of 100 are below");
    if (failed < n) cli_result(&t);
    if (failed) cli_die(1, "--url: %.60s: %d of %d requests failed: %.200s", opt.url, failed, n, why);
}

static void cli_cmd_bench(void) { opt.url ? cli_load_test() : cli_bench_all(); }

/* ---------------------------------------------------------------------------
 * The line editor: raw mode, UTF-8 with display widths, history, bracketed paste. A key is read whole (cli_key) and does something to the
 * text or the cursor (cli_edit_key); then the whole text is laid out and drawn again. The line breaks are written by us, so that nothing
 * depends on how a terminal wraps.
 *
 * The few control sequences that are used (ECMA-48, in every terminal since the VT100): ESC [ n A, cursor up n rows; ESC [ n C, right n
 * columns; ESC [ J, erase to the end; ESC [ H, to the top; ESC [ ? 2004 h, mark pastes with ESC [ 200 ~ and ESC [ 201 ~. The
 * cursor's place is never asked for: `row` remembers how far below the prompt's first row it was left.
 * --------------------------------------------------------------------------- */

/* Keys go by their names in Emacs and readline: 'A' is Ctrl-A, '?' is Backspace, 'b' is Alt-b. Beside them: */
enum {
    KEY_TEXT = 256,
    KEY_NEW_LINE,
    KEY_DELETE,
    KEY_PASTE,
    KEY_PASTED,
    KEY_GONE /* the terminal's end */,
    KEY_SIGNAL,
    KEY_LATE /* none came in time */
};

/* What terminals send behind ESC for keys of their own. */
/* clang-format off */
static const struct { const char *bytes; int key; } cli_keys[] = {
    {"[H", 'A'}, {"[1~", 'A'}, {"[7~", 'A'}, {"[F", 'E'}, {"[4~", 'E'}, {"[8~", 'E'}, {"[D", 'B'}, {"[C", 'F'}, {"[A", 'P'}, {"[B", 'N'},
    {"[3~", KEY_DELETE}, {"\x7f", 'W'}, {"\r", KEY_NEW_LINE}, {"\n", KEY_NEW_LINE}, {"[200~", KEY_PASTE}, {"[201~", KEY_PASTED},
};
/* clang-format on */

#define CLI_QUOTES "\"\"\""

static struct {
    llm_text text;
    size_t cursor; /* byte offset */
    int row;       /* of the cursor as drawn */
    struct termios cooked;
    llm_text history;       /* a JSON string a line, the oldest first, as in its file */
    size_t at;              /* where the line begins that is looked at */
    llm_text newest;        /* the new line, while older ones are looked at */
    FILE *file;             /* of the history, to be appended to; NULL: none */
    void (*complete)(void); /* Tab behind a text that begins with '/' */
} edit;

/* raw: keys come one by one; signals: Ctrl-C interrupts instead of being a key. */
static void cli_tty_mode(int raw, int signals) {
    struct termios t = edit.cooked;
    if (raw) cfmakeraw(&t);
    t.c_oflag = edit.cooked.c_oflag; /* a newline still goes to the row's begin */
    if (signals) t.c_lflag |= ISIG | NOFLSH;
    tcsetattr(0, TCSADRAIN, &t);
}

/* The place behind the character at the cursor, or before the one that ends there (by -1), with the marks on it, which have no width; or
 * behind or before blanks and a word. */
static size_t cli_edit_place(int by, int word) {
    size_t at = edit.cursor, end = by < 0 ? 0 : edit.text.len;
    for (int width = 0; !word && at != end && (width == 0 || width == -2);) /* -2: inside of a character */
        at += (size_t)by, cli_char(edit.text.data + at, edit.text.len - at, &width);
    for (int in = 0; word && in < 2; in++)
        while (at != end && (strchr(" \t\n", edit.text.data[at - (by < 0)]) == NULL) == in) at += (size_t)by;
    return at;
}

/* Puts a text where from `from` to `to` was another; the cursor stands behind it. */
static void cli_edit_replace(size_t from, size_t to, const char *s) {
    CLI_TEXT tail = {0};
    llm_text_add(&tail, edit.text.data + to, edit.text.len - to);
    edit.text.len = from;
    llm_text_str(&edit.text, s);
    edit.cursor = edit.text.len;
    llm_text_add(&edit.text, tail.data, tail.len);
    cli_whole(&edit.text);
}

/* Draws prompt and text in rows, the cursor in its place; of a text taller than the screen those rows that end with the cursor's. */
static void cli_edit_draw(void) {
    struct winsize size = {0};
    CLI_TEXT rows = {0}, out = {0};
    int last = 0, col = 2, row = 0, cursor_col = 0;
    if (ioctl(2, TIOCGWINSZ, &size) || size.ws_col < 8 || !size.ws_row) size.ws_col = 80, size.ws_row = 24;
    llm_text_str(&rows, "> ");
    for (size_t i = 0, n = 1; n; i += n) {
        int width = 1;
        n = i < edit.text.len ? cli_char(edit.text.data + i, edit.text.len - i, &width) : 0;
        int newline = n && edit.text.data[i] == '\n', shown = width >= 0, w = newline ? 0 : shown ? width : 1;
        if (col + w > size.ws_col) llm_text_str(&rows, "\n"), last++, col = 0;
        if (i == edit.cursor) row = last, cursor_col = col;
        if (newline) llm_text_str(&rows, "\n  "), last++, col = 2;
        else if (n) llm_text_add(&rows, shown ? edit.text.data + i : "?", shown ? n : 1), col += w;
    }
    cli_whole(&rows);
    const int top = row < size.ws_row ? 0 : row + 1 - size.ws_row; /* rows top to last are shown */
    if (last > top + size.ws_row - 1) last = top + size.ws_row - 1;
    const char *from = rows.data, *to = from;
    for (int r = 0; r <= last; r++, to += strcspn(to, "\n") + 1)
        if (r == top) from = to;
    if (edit.row) llm_text_format(&out, "\x1b[%dA", edit.row);
    llm_text_str(&out, "\r\x1b[J");
    llm_text_add(&out, from, (size_t)(to - 1 - from));
    if (last > row) llm_text_format(&out, "\x1b[%dA", last - row);
    llm_text_format(&out, cursor_col ? "\r\x1b[%dC" : "\r", cursor_col);
    fwrite(out.data, 1, out.len, stderr);
    edit.row = row - top;
}

/* Next byte of the terminal, or KEY_GONE, KEY_SIGNAL, KEY_LATE. */
static int cli_key_byte(int wait_ms) {
    unsigned char c;
    struct pollfd p = {0, POLLIN, 0};
    int ready = poll(&p, 1, wait_ms);
    if (ready <= 0) return ready ? KEY_SIGNAL : KEY_LATE;
    return read(0, &c, 1) == 1 ? c : KEY_GONE;
}

/* Reads a key and its bytes, NUL behind them: a code point, a control character, or ESC and what belongs to it. 0: one that is not known. */
static int cli_key(char bytes[24], int wait_ms) {
    int c = cli_key_byte(wait_ms), n = 0, most = c == 27 ? 20 : c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4, width;
    memset(bytes, 0, 24);
    if (c >= KEY_GONE) return c;
    bytes[n++] = (char)c;
    if ((c < 32 && c != 27) || c == 127) return c ^ 64;
    /* ESC [ and ESC O are followed by anything up to a letter or ~; after ESC alone comes the key that Alt was held with. */
    while (n < most && (c = cli_key_byte(50)) < KEY_GONE) {
        bytes[n++] = (char)c;
        if (bytes[0] == 27 && n == 2 && c == 'O') bytes[1] = '[';
        else if (bytes[0] == 27 && (bytes[1] != '[' || (n > 2 && c >= 64))) break;
    }
    if (bytes[0] != 27) return cli_char(bytes, (size_t)n, &width) == (size_t)n && width >= 0 ? KEY_TEXT : 0;
    if (strchr(bytes, ';') && (c == 'C' || c == 'D')) return c == 'C' ? 'f' : 'b'; /* with shift, alt or control */
    for (int i = 0; i < CLI_COUNT(cli_keys); i++)
        if (!strcmp(cli_keys[i].bytes, bytes + 1)) return cli_keys[i].key;
    return n == 2 && c >= 'a' && c <= 'z' ? c : 0;
}

/* Shows an older (by -1) or newer line; the new one is kept while older ones are looked at. */
static void cli_edit_history(int by) {
    const llm_text *h = &edit.history;
    CLI_JSON *doc = NULL;
    if (edit.at == (by < 0 ? 0 : h->len)) return;
    if (edit.at == h->len) edit.newest.len = 0, llm_text_str(&edit.newest, edit.text.data), cli_whole(&edit.newest);
    do edit.at += (size_t)by;
    while (edit.at && edit.at < h->len && h->data[edit.at - 1] != '\n');
    const int old = !llm_json_parse(h->data + edit.at, strcspn(h->data + edit.at, "\n"), NULL, &doc) && llm_json_str(doc, 0, NULL);
    cli_edit_replace(0, edit.text.len, old ? llm_json_str(doc, 0, NULL) : edit.newest.data);
}

/* A text that begins with three quotes goes on over line ends until it ends with three. */
static int cli_edit_open(void) {
    const char *s = edit.text.data;
    const size_t n = edit.text.len;
    return n > 2 && !strncmp(s, CLI_QUOTES, 3) && (n < 6 || strcmp(s + n - 3, CLI_QUOTES));
}

/* What one key does: the cursor goes to a place, or what is between goes away. Returns 0 to go on, else 'M' (Enter), 'C' or 'D'. */
static int cli_edit_key(int key, char bytes[24]) {
    const size_t from = edit.cursor, end = edit.text.len;
    size_t to = from;
    switch (key) {
    case 'A':
    case 'U': to = 0; break;
    case 'E':
    case 'K': to = end; break;
    case 'B':
    case 'H':
    case '?': to = cli_edit_place(-1, 0); break;
    case 'F':
    case 'D':
    case KEY_DELETE: to = cli_edit_place(1, 0); break;
    case 'b':
    case 'W': to = cli_edit_place(-1, 1); break;
    case 'f':
    case 'd': to = cli_edit_place(1, 1); break;
    case 'I':
        if (edit.complete && edit.text.data[0] == '/' && from == end) {
            edit.complete();
            return 0;
        } /* fall through */
    case KEY_TEXT:
    case KEY_NEW_LINE: cli_edit_replace(from, from, key == KEY_NEW_LINE ? "\n" : bytes); return 0;
    case KEY_PASTE: /* up to its mark or until nothing came for two seconds keys are text, and every kind of line end is a newline */
        for (char before = 0; (key = cli_key(bytes, 2000)) != KEY_PASTED && key != KEY_LATE && key != KEY_GONE; before = *bytes) {
            const int newline = key == 'M' || (key == 'J' && before != '\r');
            if (newline || key == KEY_TEXT || key == 'I') cli_edit_replace(edit.cursor, edit.cursor, newline ? "\n" : bytes);
        }
        return 0;
    case 'P':
    case 'N': cli_edit_history(key == 'P' ? -1 : 1); return 0;
    case 'L': fputs("\x1b[H\x1b[2J", stderr), edit.row = 0; return 0;
    case 'Z': cli_tty_mode(0, 0), raise(SIGTSTP), cli_tty_mode(1, 0); return 0;
    case 'C': return 'C';
    case 'J':
    case 'M':
        if (!cli_edit_open()) return 'M';
        cli_edit_replace(from, from, "\n");
        return 0;
    case KEY_GONE: return 'D';
    default: return 0;
    }
    if (key == 'D' && !end) return 'D'; /* in a text it is the key Del */
    if (key == KEY_DELETE || strchr("UKH?DWd", key)) cli_edit_replace(from < to ? from : to, from < to ? to : from, "");
    else edit.cursor = to;
    return 0;
}

/* Reads one message into edit.text. Returns the key that ended it. */
static int cli_edit(void) {
    char bytes[24];
    int end = 0;
    struct pollfd more = {0, POLLIN, 0};
    cli_edit_replace(0, edit.text.len, "");
    edit.row = 0, edit.at = edit.history.len;
    cli_tty_mode(1, 0);
    fputs("\x1b[?2004h", stderr); /* pastes come between marks from now on */
    while (!end) {
        if (poll(&more, 1, 0) <= 0) cli_edit_draw(); /* not for each byte of a burst */
        end = cli_edit_key(cli_key(bytes, -1), bytes);
    }
    edit.cursor = edit.text.len;
    cli_edit_draw();
    fputs("\n\x1b[?2004l", stderr);
    cli_tty_mode(0, 0);
    return end;
}

/* Adds a line to the history, and to its file, unless it is the same as the one before. */
static void cli_history_add(const char *line) {
    llm_text *h = &edit.history;
    CLI_TEXT json = {0};
    llm_text_format(&json, "%q\n", line);
    if (h->len >= json.len && !memcmp(h->data + h->len - json.len, json.data, json.len)) return;
    llm_text_add(h, json.data, json.len);
    if (edit.file) fputs(json.data, edit.file), fflush(edit.file);
}

/* Reads $XDG_STATE_HOME/llm_cli/history, which nobody else may read, and makes it and its folder. */
static void cli_history_open(void) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char path[4300];
    const int given = state && *state == '/';
    snprintf(path, sizeof path, "%.4000s%s/llm_cli/history", given ? state : home ? home : "", given ? "" : "/.local/state");
    for (char *slash = path + 1; (slash = strchr(slash, '/')); *slash++ = '/') *slash = 0, mkdir(path, 0700);
    const int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || cli_read(path, &edit.history)) return;
    edit.file = fdopen(fd, "a"); /* what is said from now on goes there */
}

/* ---------------------------------------------------------------------------
 * The conversation at a terminal. The messages are kept as JSON text, just as requests, /save and /load want them: a message
 * is added by appending, and taken back by cutting. Each turn renders and submits the whole conversation; the engine's prefix
 * cache knows all but the latest words of it.
 * --------------------------------------------------------------------------- */

static struct {
    llm_text messages; /* elements of an array: {...},{...} */
    size_t asked;      /* their length up to and with the latest user message; 0: nothing was asked */
    size_t system;     /* the length of the system message that they begin with, as one is set here; 0: none */
} talk;

/* Adds a message; where the latest question ends is remembered for /regen. */
static void cli_talk_push(const char *role, const char *text, size_t n) {
    const int user = !strcmp(role, "user");
    if (!user || !cli.pictures.len) llm_text_format(&talk.messages, "%,{'role': %q, 'content': %Q}", role, text, n);
    else llm_text_format(&talk.messages, "%,{'role': %q, 'content': [%s,{'type': 'text', 'text': %Q}]}", role, cli.pictures.data, text, n);
    cli_whole(&talk.messages);
    if (user) talk.asked = talk.messages.len, cli.pictures.len = 0;
}

/* A picture for the next message: a file that can be read. 0: it cannot. */
static int cli_picture(const char *path) {
    char *whole = realpath(path, NULL);
    CLI_TEXT url = {0};
    if (!whole || access(whole, R_OK)) return free(whole), 0;
    llm_text_format(&url, "file://%s", whole);
    cli_whole(&url);
    llm_text_format(&cli.pictures, "%,{'type': 'image_url', 'image_url': {'url': %Q}}", url.data, url.len);
    cli_whole(&cli.pictures);
    free(whole);
    return 1;
}

/* /image: the next message is about it. */
static void cli_talk_image(char *path) {
    if (!cli_picture(path)) cli_say("llm_cli: ", "%s: %s", path, strerror(errno));
    else cli_say("", "%s: the next message is about it", path);
}

/* Takes back all messages behind the first n bytes of them, of which `asked` end with the latest question. */
static void cli_talk_cut(size_t n, size_t asked) {
    talk.messages.len = n;
    talk.asked = asked;
    llm_text_add(&talk.messages, "", 0);
    cli_whole(&talk.messages);
}

/* Forgets all but the system message. */
static void cli_talk_reset(CLI_UNUSED char *rest) {
    cli_talk_cut(0, 0);
    if (opt.system) cli_talk_push("system", opt.system, strlen(opt.system));
    talk.system = talk.messages.len;
}

/* What was said goes on under the system message that is set now. */
static void cli_talk_renew(void) {
    CLI_TEXT later = {0};
    const size_t asked = talk.asked, len = talk.messages.len;
    llm_text_add(&later, talk.messages.data + talk.system, len - talk.system);
    cli_whole(&later);
    cli_talk_reset(NULL);
    const char *from = later.data + (*later.data == ',');
    if (talk.system && *from) llm_text_str(&talk.messages, ",");
    llm_text_str(&talk.messages, from);
    if (asked) talk.asked = talk.messages.len - (len - asked);
}

/* Asks a new message, or the latest once more (""). One that cannot be answered is told and taken back. */
static void cli_talk_ask(char *text) {
    CLI_TEXT what = {0};
    const size_t asked = talk.asked, before = *text || !asked ? talk.messages.len : asked;
    cli_talk_cut(before, asked);
    if (*text) cli_talk_push("user", text, strlen(text));
    llm_text_format(&what, "'messages':[%s]", talk.messages.data);
    cli.service.defaults.n = cli.service.defaults.best_of = 1;
    cli_tty_mode(1, 1); /* keys pressed now are for the next message; Ctrl-C is a signal */
    llm_result r = talk.asked ? cli_call(LLM_OPENAI_CHAT, &what, NULL) : cli_bad(LLM_ERR_ARG, "nothing was asked yet");
    cli_tty_mode(0, 0);
    if (!r) cli_talk_push("assistant", cli.said.data, cli.said.len);
    else cli_say("llm_cli: ", "%s", llm_last_error()), cli_talk_cut(before, asked);
}

/* Beside a saved FILE stands FILE.kv: what the conversation has in the KV cache, so that who goes on with it computes nothing again. Nothing is
 * said of a file that is not there, or of a conversation too short to be kept. */
static void cli_talk_keep(const char *path, llm_openai_kind kind) {
    CLI_TEXT what = {0}, file = {0};
    CLI_JSON *doc = NULL;
    int64_t n = 0;
    int load = kind == LLM_OPENAI_CONTEXT_LOAD;
    llm_text_format(&file, "%s.kv", path);
    cli_whole(&file);
    char *slash = strrchr(file.data, '/');
    if (slash) *slash = 0;
    cli.service.context_dir = slash ? file.data : ".";
    llm_text_format(&what, "'name':%q,'messages':[%s]", slash ? slash + 1 : file.data, talk.messages.data);
    llm_result r = cli_call(kind, &what, &doc);
    if (llm_json_int(doc, llm_json_find(doc, 0, "tokens"), &n))
        cli_say("", "%lld tokens of context %s", (long long)n, load ? "loaded" : "saved");
    else if (r && !strstr(llm_last_error(), load ? "no such file" : "nothing to keep")) cli_say("llm_cli: ", "%s", llm_last_error());
}

/* Writes a file beside its place, to which it moves when it is whole and on the disk, so that what was there stays until then. A place that is
 * no regular file (a pipe, /dev/stdout) is written to. 0: errno says why not. */
static int cli_save(const char *path, const llm_text *t) {
    char real[PATH_MAX], aside[PATH_MAX + 32];
    struct stat there;
    if (!realpath(path, real)) snprintf(real, sizeof real, "%s", path); /* through links, to where the file is */
    const int known = !stat(real, &there), direct = known && !S_ISREG(there.st_mode);
    snprintf(aside, sizeof aside, direct ? "%s" : "%s.%ld.part", real, (long)getpid());
    FILE *f = fopen(aside, direct ? "we" : "wxe");
    if (!f) return 0;
    if (known && !direct) fchmod(fileno(f), there.st_mode & 0777);
    int ok = fwrite(t->data, 1, t->len, f) == t->len && !fflush(f) && (direct || !fsync(fileno(f)));
    int why = errno;
    if (fclose(f) && ok) ok = 0, why = errno;
    if (ok && !direct && rename(aside, real)) ok = 0, why = errno;
    if (!ok && !direct) unlink(aside);
    errno = why;
    return ok;
}

/* The conversation as {"messages": [...]}, which /load and the chat API read. */
static void cli_talk_save(char *path) {
    CLI_TEXT t = {0};
    llm_text_format(&t, "{'messages': [%s]}\n", talk.messages.data);
    cli_whole(&t);
    const int ok = cli_save(path, &t);
    cli_say("", ok ? "saved" : "not saved: %s: %s", path, strerror(errno));
    if (ok) cli_talk_keep(path, LLM_OPENAI_CONTEXT_SAVE);
}

/* What is no message with a role and a text is left out. A file that cannot be read changes nothing. */
static void cli_talk_load(char *path) {
    CLI_JSON *doc = NULL;
    CLI_TEXT t = {0};
    size_t n;
    int loaded = 0;
    if (cli_read(path, &t) || llm_json_parse(t.data, t.len, NULL, &doc)) cli_say("llm_cli: ", "%s", llm_last_error());
    else cli_talk_cut(0, 0);
    for (int m = llm_json_first(doc, llm_json_find(doc, 0, "messages")); m >= 0; m = llm_json_next(doc, m)) {
        const char *role = cli_text(doc, m, NULL, "role", NULL), *text = cli_text(doc, m, NULL, "content", &n);
        if (role && text) cli_talk_push(role, text, n), loaded++;
        if (role && text && loaded == 1) talk.system = strcmp(role, "system") ? 0 : talk.messages.len;
    }
    if (doc) cli_say("", "%d messages loaded", loaded);
    if (loaded) cli_talk_keep(path, LLM_OPENAI_CONTEXT_LOAD);
}

/* NAME VALUE: the options of answers by the names of the command line, and the system message. What is wrong changes nothing. */
static void cli_talk_set(char *rest) {
    const size_t n = strcspn(rest, " =");
    const llm_option *row = llm_options_find(&cli_names, rest, n);
    const int system = row && row->at == offsetof(cli_options, system), list = row && row->kind == LLM_OPTION_LIST;
    const cli_options before = opt;
    unsigned char given[sizeof cli_given];
    CLI_TEXT t = {0};
    CLI_JSON *doc = NULL;
    memcpy(given, cli_given, sizeof given);
    if (list) ((llm_option_list *)(void *)((char *)&opt + row->at))->n = 0; /* it is said anew, in the same memory */
    llm_text_format(&t, "{%Q: %q}", rest, n,
                    rest + n + strspn(rest + n, " =")); /* JSON, because its texts are owned by the option reader */
    cli_check(llm_json_parse(t.data, t.len, NULL, &doc));
    const char *want = row && row->group != CLI_ANSWERS && !system ? "an option of answers, or system,"
                       : row && !rest[n] && !system && !list       ? "a value"
                                                                   : NULL;
    llm_result r = want ? cli_bad(LLM_ERR_ARG, "%.*s: %s was expected", (int)n, rest, want) : LLM_OK;
    if (!r) r = llm_options_json(&cli_names, doc, 0, LLM_FROM_USER, NULL);
    if (!r) r = cli_add_members(&t);
    if (r && !list) opt = before, memcpy(cli_given, given, sizeof given);
    if (r) cli_say("llm_cli: ", "%s", llm_last_error());
    else if (system) cli_talk_renew();
    cli_service(2048);
}

/* The system message, or a new one. */
static void cli_talk_system(char *rest) {
    CLI_TEXT t = {0};
    llm_text_format(&t, "system %s", rest);
    if (*rest) cli_talk_set(t.data);
    else cli_say("", "system: %s", opt.system ? opt.system : "(none)");
}

/* What answers, and what the next answer will be sampled with. */
static void cli_talk_show(CLI_UNUSED char *rest) {
    const llm_model_info *i = llm_model_get_info(cli.model);
    const llm_sampling *s = &cli.service.defaults;
    llm_engine_stats stats;
    llm_engine_get_stats(cli.engine, &stats);
    fprintf(stderr, "%s (%s, %s)\n", i->path, i->architecture, i->file_type ? i->file_type : "");
    cli_say("", "%.*s, context %d of %d tokens", (int)strcspn(stats.backend, ";"), stats.backend, stats.max_model_len, i->max_model_len);
    cli_say("", "temperature %g, top-p %g, top-k %d, min-p %g, repetition-penalty %g, max-tokens %d", (double)s->temperature,
            (double)s->top_p, s->top_k, (double)s->min_p, (double)s->repetition_penalty, cli.service.max_tokens);
    cli_say("", "system: %s", opt.system ? opt.system : "(none)");
}

/* clang-format off */
static const struct cli_said { const char *name, *value, *help; void (*run)(char *value); } cli_talk_commands[] = {
    {"/clear", "", "forget the conversation (also /reset)", cli_talk_reset},
    {"/reset", "", NULL, cli_talk_reset},
    {"/regen", "", "answer the last message again", cli_talk_ask},
    {"/set", "NAME VALUE", "temperature, top-p, max-tokens, seed, system, ...", cli_talk_set},
    {"/system", "TEXT", "the system message from here on; without TEXT: shows it", cli_talk_system},
    {"/image", "FILE", "a picture that the next message is about", cli_talk_image},
    {"/show", "", "model and settings", cli_talk_show},
    {"/save", "FILE", "the conversation as JSON", cli_talk_save},
    {"/load", "FILE", "go on with a saved one", cli_talk_load},
    {"/bye", "", "leave (also /exit, exit, Ctrl-D)", NULL}, {"/exit", "", NULL, NULL}, {"/quit", "", NULL, NULL}, {NULL, NULL, NULL, NULL}};
/* clang-format on */

/* One thing that the word at the text's end may become: `common` is cut to what all of them begin with. */
static void cli_talk_candidate(const char *name, const char *word, llm_text *common, llm_text *list) {
    if (strncmp(name, word, strlen(word))) return;
    if (!list->len) llm_text_str(common, name);
    while (strncmp(name, common->data, common->len)) common->len--, llm_text_add(common, "", 0);
    llm_text_format(list, list->len ? "  %s" : "%s", name);
}

/* Tab: commands, and behind /set the settings, by their first letters. What stays open is listed. */
static void cli_talk_complete(void) {
    CLI_TEXT common = {0}, list = {0};
    const int set = !strncmp(edit.text.data, "/set ", 5);
    const char *word = edit.text.data + (set ? 5 : 0);
    for (const struct cli_said *c = cli_talk_commands; !set && c->name; c++) cli_talk_candidate(c->name, word, &common, &list);
    for (int i = 0; set && i < CLI_COUNT(cli_table); i++) {
        const char *names = cli_table[i].names, *last = strrchr(names, '|');
        char name[64];
        if ((cli_table[i].group != CLI_ANSWERS && cli_table[i].at != offsetof(cli_options, system)) || !cli_table[i].help) continue;
        if (strcspn(names, "|") < 3 && last) names = last + 1; /* the long spelling */
        snprintf(name, sizeof name, "%.*s", (int)strcspn(names, "|"), names);
        cli_talk_candidate(name, word, &common, &list);
    }
    cli_whole(&common);
    if (!list.len) return;
    const int open = strstr(list.data, "  ") != NULL;
    if (open && common.len == strlen(word)) fprintf(stderr, "\n%s%s%s\n", cli.dim, list.data, cli.plain), edit.row = 0;
    cli_edit_replace(edit.text.len - strlen(word), edit.text.len, common.data);
    if (!open) cli_edit_replace(edit.text.len, edit.text.len, " ");
}

/* A line that begins with '/'. 0: leave. */
static int cli_talk_command(char *line) {
    const size_t n = strcspn(line, " ");
    char *rest = line + n + strspn(line + n, " ");
    line[n] = 0;
    for (const struct cli_said *c = cli_talk_commands; c->name; c++) {
        if (strcmp(line, c->name)) continue;
        if (*c->value && !*rest && c->run != cli_talk_system) fprintf(stderr, "%s: %s is missing\n", line, c->value);
        else if (c->run) c->run(rest);
        return c->run != NULL;
    }
    if (strcmp(line, "/help")) fputs("no such command; these are there:\n", stderr);
    for (const struct cli_said *c = cli_talk_commands; c->name; c++)
        if (c->help) fprintf(stderr, "%-7s %-11s %s\n", c->name, c->value, c->help);
    fputs("Alt-Enter begins a new line; a paste, or what stands between " CLI_QUOTES ",\n"
          "stays one message. Tab completes, Ctrl-C stops an answer.\n",
          stderr);
    return 1;
}

/* Reads, answers, until Ctrl-D, /exit or two Ctrl-C at an empty line. */
static void cli_interactive(void) {
    if (tcgetattr(0, &edit.cooked)) cli_die(1, "terminal: %s", strerror(errno));
    cli_open_model(0);
    cli_open_engine(opt.setup.engine.max_model_len ? 0 : 8192, 1);
    cli_service(2048);
    cli.view = isatty(1) && !opt.plain;
    cli_history_open();
    edit.complete = cli_talk_complete;
    cli_talk_reset(NULL);
    cli_talk_show(NULL);
    fputs("/help lists the commands.\n", stderr);
    cli_interrupts = 0;    /* Ctrl-C is a key while a line is edited */
    cli_names.note = NULL; /* what is set again is no mistake */
    for (int leave = 0, interrupts = 0; !leave;) {
        const int end = cli_edit();
        char *text = edit.text.data;
        interrupts = end == 'C' && !*text ? interrupts + 1 : 0;
        leave = end == 'D' || interrupts > 1;
        if (interrupts == 1) fputs("(once more, or Ctrl-D, to leave)\n", stderr);
        if (end != 'M' || !text[strspn(text, " \t\n")]) continue;
        cli_history_add(text);
        if (!strncmp(text, CLI_QUOTES, 3)) text[edit.text.len - 3] = 0, text += 3;
        if (!strcmp(text, "exit") || !strcmp(text, "quit") || !strcmp(text, "bye")) leave = 1;
        else if (text[0] == '/' && !strchr(text, '\n')) leave = !cli_talk_command(text);
        else if (text[strspn(text, " \t\n")]) cli_talk_ask(text);
    }
    cli.stopped = 0; /* leaving is no failure */
}

/* At a terminal a conversation, else one question through the chat template. How long the rendered prompt is tells a first call that only
 * tokenizes, so that the engine takes memory for just that. */
static void cli_cmd_chat(void) {
    CLI_TEXT text = {0}, what = {0};
    CLI_JSON *doc = NULL;
    int64_t n = 0;
    if (opt.token_ids) cli_die(2, "--token-ids: a chat takes text, use generate");
    for (int32_t i = 0; i < opt.images.n; i++)
        if (!cli_picture(opt.images.items[i])) cli_die(1, "--image: %s: %s", opt.images.items[i], strerror(errno));
    if (opt.messages) {
        CLI_TOKENS ids = {0};
        cli_prompt_ids(0, &ids);
        cli.view = isatty(1) && !opt.plain;
        cli_service(2048);
        cli_messages(&what);
        cli_answer(LLM_OPENAI_CHAT, &what, (int64_t)ids.len);
        return;
    }
    if (!opt.prompt && !opt.file && isatty(0)) {
        cli_interactive();
        return;
    }
    cli_input(1, &text);
    while (text.len && strchr("\r\n", text.data[text.len - 1])) text.data[--text.len] = 0;
    if (!text.len) cli_die(2, "no prompt: give -p TEXT, -f FILE, or text on standard input");
    cli_open_model(0);
    cli_service(2048);
    cli.view = isatty(1) && !opt.plain;
    cli_talk_reset(NULL);
    cli_talk_push("user", text.data, text.len);
    llm_text_format(&what, "'messages':[%t]", &talk.messages);
    cli_check(cli_call(LLM_OPENAI_TOKENIZE, &what, &doc));
    llm_json_int(doc, llm_json_find(doc, 0, "count"), &n);
    cli_answer(LLM_OPENAI_CHAT, &what, n);
}

/* ---------------------------------------------------------------------------
 * The commands, what was said on the command line, and main.
 * --------------------------------------------------------------------------- */

static void cli_cmd_help(void);
static void cli_cmd_version(void) { printf("llm_cli %s (instruction sets: %s)\n", LLM_VERSION_STRING, llm_isa_list()); }

/* `options`: those of the command, beside the groups of answers and measuring. */
/* clang-format off */
static const struct cli_command {
    const char *name, *words, *help, *options;
    int group; /* of options besides; -1: none */
    void (*run)(void);
} cli_commands[] = {
    {"chat", "[MODEL] [PROMPT]", "one answer to -p or standard input; at a terminal a conversation", "p|f|image|messages|system|json|logprobs|plain|v", CLI_ANSWERS, cli_cmd_chat},
    {"generate", "[MODEL] [PROMPT]", "continue -p TEXT, -f FILE or --token-ids without a template", "p|f|token-ids|messages|json|logprobs|v", CLI_ANSWERS, cli_cmd_generate},
    {"run", "MODEL [PROMPT]", "chat with this model", "p|f|image|messages|system|json|logprobs|plain|v", CLI_ANSWERS, cli_cmd_chat},
    {"explain", "[MODEL] [PROMPT]", "how one token is made, with all its numbers, in five screens", "p|f|system|json|layer|head|temperature|top-k|top-p|min-p|seed", -1, cli_cmd_explain},
    {"score", "[MODEL]", "log-probability of every token of a text", "p|f|token-ids|messages|json|top-logprobs", -1, cli_cmd_score},
    {"embed", "[MODEL]", "the vector of a text, its numbers a line each", "p|f|token-ids|json", -1, cli_cmd_embed},
    {"rerank", "[MODEL] -q QUERY DOC...", "how well documents answer a query, best first", "query|f|instruction|json", -1, cli_cmd_rerank},
    {"tokenize", "[MODEL]", "text on standard input to ids", "jsonl|add-special|parse-special", -1, cli_cmd_tokenize},
    {"detokenize", "[MODEL]", "ids on standard input to text", "jsonl|skip-special-tokens", -1, cli_cmd_detokenize},
    {"render", "[MODEL]", "a chat template: JSON {messages, ...} to the prompt's text", "jsonl|chat-template|chat-template-kwargs", -1, cli_cmd_render},
    {"batch", "[MODEL]", "OpenAI batch file: -i in.jsonl -o out.jsonl", "i|o", CLI_ANSWERS, cli_cmd_batch},
    {"bench", "[MODEL]", "tokens a second; with --url a load test of a server", "p|max-tokens|json", CLI_BENCH, cli_cmd_bench},
    {"info", "[MODEL]", "what a model file is and whether it fits in memory", "json", -1, cli_cmd_info},
    {"pull", "NAME", "fetch ORG/NAME[:QUANT] from the Hugging Face Hub", "json|revision|download-dir", -1, cli_cmd_pull},
    {"list", "", "the models of the Hugging Face cache", "json|download-dir", -1, cli_cmd_list},
    {"rm", "NAME", "remove ORG/NAME[:QUANT] from the cache", "y|download-dir", -1, cli_cmd_rm},
    {"convert-eagle", "HEAD TO", "an EAGLE head, from SafeAILab's layout to vLLM's", "o|draft-path|base-path|draft-weight-name|base-weight-name|json", -1, cli_cmd_convert},
    {"quantize", "MODEL OUT [TYPE]", "smaller weights: a GGUF file, or a folder by -quant_type",
     "type|allow-requantize|leave-output-tensor|pure|output-tensor-type|token-embedding-type|imatrix|i|o|quant-type|storage-type|tp|token|f|sq|group-size|bits|desc-act|damp-percent|chunks|chunk-size|multi-query-mode|t|json", -1, cli_cmd_quantize},
    {"convert", "FROM TO [TYPE]", "a Hugging Face folder as a GGUF file (TO.gguf), or a GGUF file as a folder: f16, bf16, ...", "type|allow-requantize|leave-output-tensor|pure|output-tensor-type|token-embedding-type|imatrix|t|json", -1, cli_cmd_gguf},
    {"imatrix", "-m MODEL -f TEXT", "an importance matrix for quantize, of a text that the model reads", "m|p|f|o|chunks|chunk-size|t|json", -1, cli_cmd_imatrix},
    {"help", "[COMMAND]", "this, or a command's options; --help-all: every option", "", -1, cli_cmd_help},
    {"version", "", "version and instruction sets", "", -1, cli_cmd_version},
};
/* clang-format on */

/* Whether a command takes an option of the groups of this program. */
static int cli_takes(const struct cli_command *c, const llm_option *row) {
    if (row->group == c->group) return 1;
    for (const char *at = c->options; *at; at += strcspn(at, "|"), at += *at == '|')
        if (llm_options_find(&cli_names, at, strcspn(at, "|")) == row) return 1;
    return 0;
}

/* Of the command line: what does nothing in this command is refused, or, of answers where there are none, noted. The environment and a
 * file of options are for all commands. */
static void cli_refuse_idle(const struct cli_command *c) {
    for (int i = 0; i < CLI_COUNT(cli_table); i++) {
        const llm_option *row = &cli_table[i];
        const int own = row->group == CLI_IO || row->group == CLI_BENCH, n = (int)strcspn(row->names, "|");
        CLI_TEXT note = {0};
        if (cli_given[i] != LLM_FROM_USER || (!own && row->group != CLI_ANSWERS) || cli_takes(c, row)) continue;
        if (!strcmp(row->names, "image") && cli_takes(c, llm_options_find(&cli_names, "messages", 8)))
            cli_die(2, "--image: %s takes no pictures but in --messages FILE; chat and run do", c->name);
        if (own) cli_die(2, "%s%.*s: %s does not take it", n > 1 ? "--" : "-", n, row->names, c->name);
        const char *name = row->names + (n > 1 ? 0 : n + 1); /* not the letter */
        llm_text_add(&note, name, strcspn(name, "|"));
        llm_text_format(&note, " has no effect: %s gives no answer", c->name);
        cli_whole(&note);
        cli_note(&cli_names, note.data);
    }
}

static const struct cli_command *cli_asked; /* whose help is wanted; NULL: the program's */

/* --help-all: the commands, then the options by group. */
static void cli_help_all(void) {
    static const char *const titles[] = {"Input and output", "Measuring"};
    llm_text t = {0};
    if (opt.json) { /* every name and what it comes to */
        llm_options_verdicts(&cli_names, &t);
        llm_text_str(&t, "\n");
        cli_out(&t);
        return;
    }
    printf("usage: llm_cli [COMMAND] [options]\n\nCommands (without one: chat)\n");
    for (int i = 0; i < CLI_COUNT(cli_commands); i++) printf("  %-13s %s\n", cli_commands[i].name, cli_commands[i].help);
    llm_options_help(&cli_names, titles, CLI_COUNT(titles), &t);
    llm_options_idle(&cli_names, &t);
    llm_text_str(&t, "\nExit: 0 done, 1 failed, 2 usage, 130 interrupted.\n");
    cli_out(&t);
}

/* --help: what most people want to know, on one screen. */
static void cli_help(void) {
    llm_text t = {0};
    printf("usage: llm_cli [COMMAND] [MODEL] [PROMPT] [options]\n\n"
           "  llm_cli                            talk with the default model\n"
           "  llm_cli run model.gguf             with this one: a file, folder or ORG/NAME\n"
           "  llm_cli -hf ORG/NAME:Q4_K_M        with one of the Hugging Face Hub\n"
           "  llm_cli -p \"Why is the sky blue?\"  one answer; what is piped in comes last\n\n"
           "Commands (without one: chat; --help-all has the rest)\n");
    for (int i = 0; i < CLI_COUNT(cli_commands); i++)
        if (!strstr("embed rerank detokenize render convert-eagle imatrix version", cli_commands[i].name))
            printf("  %-13s %s\n", cli_commands[i].name, cli_commands[i].help);
    printf("\nOften used\n");
    llm_options_rows(&cli_names, -1, "m|max-tokens|n|temperature|system|json", &t);
    llm_text_str(&t, "llm_cli COMMAND --help: its options; llm_cli --help-all: all of them.\n");
    cli_out(&t);
}

/* What an option is in one command, where the line of --help-all, which is for all of them, says something else. */
static const struct cli_sense {
    const char *command, *option, *help;
} cli_senses[] = {
    {"bench", "prompt", "tokens of the prompt (512); 0: no prompt"},
    {"bench", "max-tokens", "tokens that are decoded, also -n (128); 0: none"},
    {"rerank", "file", "the documents, one a line"},
    {"imatrix", "prompt", "the text that the model reads"},
    {"imatrix", "file", "the same from a file; -: standard input"},
    {"imatrix", "output-file", "the matrix (imatrix.gguf)"},
    {"quantize", "file", "a folder's: the text to calibrate with (one that is built in)"},
    {"quantize", "input", "the folder to read, as MODEL"},
    {"quantize", "output-file", "the file or folder to write, as OUT"},
    {"convert", "type", "f16, bf16, f32, q8_0, ... (as the weights are)"},
    {"convert-eagle", "output-file", "the folder to write, as TO"},
};

/* The help of a row for one command: its own, or the general one without the commands that this begins with. */
static const char *cli_sense(const struct cli_command *c, const llm_option *row) {
    for (int i = 0; i < CLI_COUNT(cli_senses); i++)
        if (!strcmp(c->name, cli_senses[i].command) &&
            llm_options_find(&cli_names, cli_senses[i].option, strlen(cli_senses[i].option)) == row)
            return cli_senses[i].help;
    const size_t n = row->help ? strcspn(row->help, ",:") : 0;
    for (int i = 0; i < CLI_COUNT(cli_commands); i++)
        if (n && strlen(cli_commands[i].name) == n && !strncmp(cli_commands[i].name, row->help, n)) return strstr(row->help, ": ") + 2;
    return row->help;
}

/* A command's own options. */
static void cli_help_command(const struct cli_command *c) {
    static llm_option rows[CLI_COUNT(cli_table)];
    llm_options own = cli_names;
    llm_text t = {0};
    memcpy(rows, cli_table, sizeof rows);
    for (int i = 0; i < CLI_COUNT(rows); i++) rows[i].help = cli_sense(c, &cli_table[i]);
    own.table = rows;
    printf("usage: llm_cli %s %s%s[options]\n%s\n\n", c->name, c->words, *c->words ? " " : "", c->help);
    llm_options_rows(&own, -1, c->options, &t);
    if (c->group >= 0)
        llm_text_str(&t, c->group == CLI_BENCH ? "\nMeasuring\n" : "\nAnswers\n"), llm_options_rows(&own, c->group, NULL, &t);
    llm_text_str(&t, "\nOptions of the model and the engine: llm_cli --help-all\n");
    cli_out(&t);
}

static void cli_cmd_help(void) { opt.help_all ? cli_help_all() : cli_asked ? cli_help_command(cli_asked) : cli_help(); }

/* Reads everything that was said; returns the command. A word that is no option is a command, a model's path, or a prompt with a blank. */
static const struct cli_command *cli_arguments(int argc, char **argv) {
    const struct cli_command *command = NULL;
    llm_option_list words = {0};
    static char storage[] = "--storage-type", query[] = "--query";
    for (int i = 2; i + 1 < argc && !strcmp(argv[1], "quantize"); i++) /* there -t is also a type, as AIAK's document has it */
        if (!strcmp(argv[i], "-t") && !isdigit((unsigned char)argv[i + 1][0])) argv[i] = storage;
    for (int i = 2; i < argc && !strcmp(argv[1], "rerank"); i++) /* elsewhere -q is --quantization */
        if (!strcmp(argv[i], "-q")) argv[i] = query;
    llm_setup_init(&opt.setup);
    cli_argc = argc;
    cli_argv = argv;
    opt.setup.chat_sampling = opt.setup.do_preprocess = 1;
    for (int i = 1; i < argc; i++) /* then --download-dir and --revision have a meaning without a model, too */
        if (!strcmp(argv[i], "pull") || !strcmp(argv[i], "list") || !strcmp(argv[i], "rm")) opt.setup.hf_repo = "";
    cli_check(llm_setup_read(&opt.setup, &cli_names, argc, argv, getenv, &words));
    llm_options_strangers(&cli_names, (const char *const *)environ);
    if (opt.setup.model_name && !opt.setup.files.builtin_template)
        cli_note(&cli_names, "model_name has no effect: it is no built-in chat template, and nothing is served here");
    for (int i = 0; i < words.n; i++) {
        const char *word = words.items[i];
        int named = 0;
        const int model =
            llm_options_given(&cli_names, "model") >= LLM_FROM_USER || opt.draft_path; /* a word is stronger than the environment */
        const int run = command && !strcmp(command->name, "run"), helps = command && command->run == cli_cmd_help;
        const char *as = !model && (run || !access(word, F_OK)) ? "model" : !opt.prompt && strchr(word, ' ') ? "prompt" : NULL;
        while (named < CLI_COUNT(cli_commands) && ((command && !helps) || strcmp(word, cli_commands[named].name))) named++;
        if (named < CLI_COUNT(cli_commands)) *(helps ? &cli_asked : &command) = &cli_commands[named];
        else if (command && (command->run == cli_cmd_pull || command->run == cli_cmd_rm) && !opt.name) opt.name = word;
        else if (command && (command->run == cli_cmd_convert || command->run == cli_cmd_quantize || command->run == cli_cmd_gguf) &&
                 model && !opt.out)
            opt.out = word;
        else if (command && (command->run == cli_cmd_quantize || command->run == cli_cmd_gguf) && model && !opt.type) opt.type = word;
        else if (command && command->run == cli_cmd_rerank && (model || opt.documents.n || access(word, F_OK)))
            words.items[opt.documents.n++] = word; /* i is no less */
        else if (as) cli_check(llm_options_set(&cli_names, llm_options_find(&cli_names, as, strlen(as)), as, word, LLM_FROM_USER));
        else
            cli_die(
                2,
                "%.60s: no such command or file; commands are chat, generate, run, explain, score, embed, rerank, tokenize, detokenize, render, batch, bench, info, pull, list, rm, quantize, convert, imatrix, help",
                word);
    }
    if (opt.documents.n) opt.documents.items = words.items;
    else free((void *)words.items);
    if (opt.setup.hf_repo && !*opt.setup.hf_repo) opt.setup.hf_repo = NULL;
    if (opt.help && command && command->run != cli_cmd_help) cli_asked = command;
    if (opt.setup.visible_devices) setenv("CUDA_VISIBLE_DEVICES", opt.setup.visible_devices, 0);
    if (!command || command->run == cli_cmd_chat) command = &cli_commands[!opt.setup.do_preprocess]; /* LMDeploy's word for: no template */
    return command;
}

static void cli_on_signal(int number) { /* while an answer is shown the first interrupt ends it; a second one is impatience */
    if (number == SIGINT && (cli_interrupts < 0 || ++cli_interrupts > 1)) _exit(130);
}

int main(int argc, char **argv) {
    for (int fd = 0; fd < 3; fd++) /* a closed standard stream must not become a model's file */
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_RDWR) < 0) return 1;
    signal(SIGINT, cli_on_signal);
    signal(SIGWINCH, cli_on_signal); /* only so that poll ends: the editor draws anew */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);                                          /* a file that may grow no further is an error of the write */
    setvbuf(stdout, NULL, _IOLBF, 0);                                  /* what an interrupt leaves is whole lines */
    if (!setlocale(LC_CTYPE, "C.UTF-8")) setlocale(LC_CTYPE, "");      /* for mbrtowc and wcwidth; numbers stay as they are in C */
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM"); /* no-color.org */
    if (isatty(2) && !(no_color && *no_color) && !(term && !strcmp(term, "dumb"))) cli.dim = "\x1b[2m", cli.plain = "\x1b[0m";
    const struct cli_command *command = cli_arguments(argc, argv);
    if (!opt.help && !opt.version) cli_refuse_idle(command);
    if (opt.version) cli_cmd_version();
    else opt.help || opt.help_all ? cli_cmd_help() : command->run();
    cli_write("", 0);
    llm_engine_close(cli.engine);
    llm_model_close(cli.model);
    return cli.stopped ? 130 : 0;
}
