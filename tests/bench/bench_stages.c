/* bench_stages.c - what each part of a step takes on the CPU, and how near it is to what the machine can do.
 *
 *     make build/bench_stages && build/bench_stages MODEL [THREADS [PROMPT [TOKENS [DEPTH]]]]
 *
 * A prompt of PROMPT tokens (512) and then TOKENS steps (128) of one sequence with DEPTH tokens (1) in its context, on THREADS threads (all).
 * A line of JSON each for embed, linear, attention, head, norm and sampler: its share of the time; GB a second of weights, or of keys and
 * values, that it read, beside what memory gives (llm_memory_peak); billions of operations a second beside what products of bytes alone
 * reach (llm_isa_peak of one thread, times the threads). */
#include "llm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static llm_engine *engine;
static llm_spent stages[LLM_SPENT_KINDS + 1]; /* the engine's, then the sampler's */
static float *logits;

/* Ends the program with the library's sentence. */
static void check(llm_result r) {
    if (!r) return;
    fprintf(stderr, "bench_stages: %s\n", llm_last_error());
    exit(1);
}

/* Feeds n tokens from a sequence's beginning on; the first ids, which are special in most vocabularies, are left out. */
static void feed(int n) {
    llm_tokens ids = {0};
    int32_t vocab = llm_logits_size(engine), from = vocab > 2000 ? 1000 : 0;
    for (int i = 0; i < n; i++) llm_tokens_add(&ids, from + (int32_t)((unsigned)rand() % (unsigned)(vocab - from)));
    check(llm_forward(engine, 0, 0, ids.data, n, logits, 1));
    llm_tokens_free(&ids);
}

/* Decodes n tokens behind `depth` that were fed. */
static void decode(int n, int depth) {
    const llm_sampling greedy = {0};
    int32_t id = 0, seq = 0, count = 1;
    for (int32_t i = 0, position = depth; i < n; i++, position++) {
        check(llm_forward_batch(engine, 1, &seq, &position, &count, &id, logits));
        double begin = llm_now();
        id = llm_sample(logits, llm_logits_size(engine), &greedy, 0, i);
        stages[LLM_SPENT_KINDS].seconds += llm_now() - begin;
    }
}

/* The parts of what took `seconds`. */
static void report(const char *test, int n, double seconds, double read, double ops) {
    static const char *const names[] = {"embed", "linear", "attention", "head", "norm", "sampler"};
    llm_text t = {0};
    for (int i = 0; i <= LLM_SPENT_KINDS; i++) {
        const llm_spent *s = &stages[i];
        double per = s->seconds > 0 ? 1e-9 / s->seconds : 0;
        llm_text_format(&t, "{'test': '%s%d', 'stage': %q, 'share': %f, ", test, n, names[i], s->seconds / seconds);
        llm_text_format(&t, "'read_gb_s': %f, 'peak_gb_s': %f, 'gops': %f, 'peak_gops': %f}\n", s->bytes * per, read, s->ops * per, ops);
    }
    if (t.failed || fputs(t.data, stdout) < 0) exit(1);
    llm_text_free(&t);
    memset(stages, 0, sizeof stages);
}

int main(int argc, char **argv) {
    int numbers[] = {0, 512, 128, 1}, n_threads = 1; /* THREADS, PROMPT, TOKENS, DEPTH */
    for (int i = 0; i < 4 && i + 2 < argc; i++) numbers[i] = atoi(argv[i + 2]);
    const int prompt = numbers[1], tokens = numbers[2], depth = numbers[3];
    llm_engine_config cfg = {.n_threads = numbers[0], .device = "cpu", .max_num_seqs = 1, .spent = stages};
    llm_engine_stats stats;
    llm_model *model = NULL;
    cfg.max_model_len = (prompt > tokens + depth ? prompt : tokens + depth) + 1;
    check(llm_model_open(argc > 1 ? argv[1] : "", NULL, &model));
    check(llm_engine_open(model, &cfg, &engine));
    llm_engine_get_stats(engine, &stats);
    sscanf(stats.backend, "%*[^,], %d", &n_threads);
    const double read = llm_memory_peak(n_threads), ops = llm_isa_peak(NULL) * n_threads;
    logits = (float *)calloc((size_t)llm_logits_size(engine), sizeof(float));
    if (!logits) return 1;
    for (int warm = 1; warm >= 0; warm--) {
        double begin = llm_now();
        feed(prompt);
        if (warm) memset(stages, 0, sizeof stages);
        else report("pp", prompt, llm_now() - begin, read, ops);
    }
    feed(depth);
    decode(4, depth);
    memset(stages, 0, sizeof stages);
    double begin = llm_now();
    decode(tokens, depth);
    report("tg", tokens, llm_now() - begin, read, ops);
    free(logits);
    llm_engine_close(engine);
    llm_model_close(model);
    return 0;
}
