/* What speculation gains: the same greedy answers with and without it, in turns, each pair right after one another; tokens must be equal.
 * Prints tokens/s of answers that copy much of their prompt, and of free text, with the worst prompt and the median of the pairs; then the ratio for
 * many answers at once, where drafting must turn itself down.
 *     cc -O2 tests/bench/speculate.c -o build/speculate -lm -lpthread && build/speculate MODEL.gguf [TOKENS [ROUNDS [THREADS [DRAFT_MODEL]]]]
 * With one thread, time is processor time, which other jobs disturb less. */
#define LLM_STATIC
#define LLM_IMPLEMENTATION
#include "../../llm.h"

enum { ANSWER = 160, PAIRS = 400, TOGETHER = 24 };

static const char *const edits[] = {
    "Repeat this text exactly, but write \"autumn\" instead of \"spring\": In spring the gardens behind the old railway station are full of people. They "
    "come with spades and baskets, they dig up the beds that have slept all winter, and they talk about seeds, about the weather, and about the "
    "price of bread. In spring even the station master leaves his office for an hour and walks along the fence, where the first green "
    "leaves come out of the ground.",
    "Correct the spelling of this text and write it again: The comittee has recieved your letter of the third of March and has discused it at lenght. "
    "We regret that the buildng at the corner of Mill Street can not be opened to the public before the end of the year, becuase the roof is still "
    "beeing repaired. We will write to you again as soon as the work is finished, and we thank you for your patience in this matter.",
    "Rename the function add to sum in this program and print the whole program:\n\nint add(int a, int b) {\n    return a + b;\n}\n\nint main(void) {\n    "
    "int total = 0;\n    for (int i = 0; i < 10; i++) {\n        total = add(total, i);\n    }\n    printf(\"%d\\n\", total);\n    return 0;\n}\n",
    "Write this list again in the same order, with a full stop at the end of each line:\n- two pounds of flour from the mill\n- a dozen eggs from the farm\n"
    "- one bottle of red wine vinegar\n- three lemons and a bunch of parsley\n- half a pound of butter without salt\n- a bag of brown sugar\n- four "
    "large onions and a clove of garlic\n- one loaf of rye bread\n",
    "Copy this letter word by word, with \"Madam\" for \"Sir\": Dear Sir, we thank you for your order of the second of June. The twelve chairs and the "
    "oak table have left our workshop in Bristol this morning and will arrive at your house within five days. Should anything be broken or "
    "missing, please write to us at once, so that we can send another one with the next coach. We remain, dear Sir, your faithful servants.",
    "Repeat this table exactly:\n\n| city | country | people |\n| --- | --- | --- |\n| Lisbon | Portugal | 545000 |\n| Vienna | Austria | 1975000 |\n| "
    "Oslo | Norway | 709000 |\n| Athens | Greece | 643000 |\n| Dublin | Ireland | 592000 |\n| Prague | Czechia | 1357000 |\n"};

/* clang-format off */
static const char *const stories[] = {
    "Write a story about a fisherman who finds a clock in the belly of a fish.", "Explain how a steam engine works to a child of ten years.",
    "What are the advantages of living in a small town? Give your own opinion.", "Describe a morning in a busy kitchen of a restaurant.",
    "Write a letter to a friend in which you invite her to a journey through Norway.", "Why do cats sleep so much? Explain it in a few paragraphs."};
/* clang-format on */

static llm_model *model;
static llm_engine *engine;
static double pairs[PAIRS];

static int by_value(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double processor_time(llm_engine *ctx) {
    struct timespec t;
    (void)ctx;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(llm_result r) {
    if (!r) return;
    printf("%s\n", llm_last_error());
    exit(1);
}

static llm_request *ask(const char *question, int32_t n_draft) {
    llm_request_config c;
    llm_request *r;
    llm_text prompt;
    memset(&prompt, 0, sizeof prompt);
    memset(&c, 0, sizeof c);
    llm_text_str(&prompt, "<|im_start|>user\n");
    llm_text_str(&prompt, question);
    llm_text_str(&prompt, "<|im_end|>\n<|im_start|>assistant\n");
    c.prompt = prompt.data;
    c.prompt_len = prompt.len;
    c.tokenize_flags = LLM_TOK_PARSE_SPECIAL;
    c.sampling.max_tokens = ANSWER;
    engine->p.n_draft = n_draft;
    must(llm_request_submit(engine, &c, &r));
    llm_text_free(&prompt);
    return r;
}

/* Tokens and seconds of one answer, from its first token on: the prompt is not what is measured. */
static int32_t answer(const char *question, int32_t n_draft, int32_t *ids, double *seconds) {
    llm_output out;
    llm_request_metrics m;
    llm_request *r = ask(question, n_draft);
    must(llm_request_run(engine, r));
    must(llm_request_get_output(r, 0, &out));
    llm_request_get_metrics(r, &m);
    *seconds += m.finish_time - m.inference_start_time - m.first_token_time;
    memcpy(ids, out.token_ids, out.n_token_ids * sizeof *ids);
    int32_t n = (int32_t)out.n_token_ids;
    llm_request_free(r);
    return n;
}

/* Seconds for all answers of both sets at once, each prompt so many times. */
static double together(int copies, int32_t n_draft) {
    enum { EDITS = sizeof edits / sizeof *edits, STORIES = sizeof stories / sizeof *stories };
    llm_request *r[TOGETHER];
    int n = 0, busy = 1;
    for (; n < copies * (EDITS + STORIES); n++)
        r[n] = ask(n % (EDITS + STORIES) < EDITS ? edits[n % (EDITS + STORIES)] : stories[n % (EDITS + STORIES) - EDITS], n_draft);
    double begin = engine->p.driver.now(engine);
    while (busy) must(llm_engine_step(engine, &busy));
    for (int i = 0; i < n; i++) llm_request_free(r[i]);
    return engine->p.driver.now(engine) - begin;
}

/* All prompts of a set, so many times; the order within a pair changes. */
static void measure(const char *name, const char *const *prompts, int n, int rounds, int32_t n_draft) {
    int32_t ids[2][ANSWER], counts[2];
    double total[2] = {0, 0}, each[16][2] = {{0}}, tokens = 0, unused = 0, worst = 1e9;
    int n_pairs = 0, equal = 1;
    llm_engine_stats before, after;
    for (int i = 0; i < n; i++) answer(prompts[i], 0, ids[0], &unused); /* the prompts are in the prefix cache */
    llm_engine_get_stats(engine, &before);
    for (int k = 0; k < n * rounds && n_pairs < PAIRS; k++) {
        double seconds[2] = {0, 0};
        for (int j = 0; j < 2; j++) {
            int with = (j + k + k / n) & 1;
            counts[with] = answer(prompts[k % n], with ? n_draft : 0, ids[with], &seconds[with]);
        }
        equal &= counts[0] == counts[1] && !memcmp(ids[0], ids[1], (size_t)counts[0] * sizeof ids[0][0]);
        for (int j = 0; j < 2; j++) total[j] += seconds[j], each[k % n][j] += seconds[j];
        tokens += counts[0] - 1;
        if (counts[0] > 16) pairs[n_pairs++] = seconds[0] / seconds[1];
    }
    llm_engine_get_stats(engine, &after);
    for (int i = 0; i < n; i++) worst = fmin(worst, each[i][0] / each[i][1]);
    qsort(pairs, (size_t)n_pairs, sizeof *pairs, by_value);
    printf(
        "%s: %.1f tokens/s, with drafts %.1f: %.3f, of the worst prompt %.3f; median of %d pairs %.3f (%.3f to %.3f); kept %lld of %lld drafted; tokens %s\n",
        name, tokens / total[0], tokens / total[1], total[0] / total[1], worst, n_pairs, pairs[n_pairs / 2], pairs[0], pairs[n_pairs - 1],
        (long long)(after.accepted_tokens - before.accepted_tokens), (long long)(after.draft_tokens - before.draft_tokens),
        equal ? "equal" : "DIFFER");
    fflush(stdout);
}

int main(int argc, char **argv) {
    llm_engine_config c;
    int32_t n_draft = argc > 2 ? (int32_t)strtol(argv[2], NULL, 10) : 8;
    int rounds = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 3;
    memset(&c, 0, sizeof c);
    c.max_model_len = 1024;
    c.max_num_seqs = TOGETHER;
    c.kv_cache_memory_bytes = 1 << 29;
    c.speculative_model = argc > 5 ? argv[5] : "[ngram]";
    c.num_speculative_tokens = n_draft;
    c.n_threads = argc > 4 ? (int32_t)strtol(argv[4], NULL, 10) : 0;
    if (argc < 2) return printf("usage: speculate MODEL [TOKENS [ROUNDS [THREADS [DRAFT_MODEL]]]]\n"), 2;
    must(llm_model_open(argv[1], NULL, &model));
    must(llm_engine_open(model, &c, &engine));
    if (c.n_threads == 1) engine->p.driver.now = processor_time;
    measure("edit this text", edits, sizeof edits / sizeof *edits, rounds, n_draft);
    measure("free text", stories, sizeof stories / sizeof *stories, rounds, n_draft);
    for (int copies = 1; copies <= 2; copies++) {
        double seconds[2] = {0, 0};
        together(copies, 0);
        for (int i = 0; i < 2 * LLM__MAX(1, rounds / 3); i++) seconds[i & 1] += together(copies, i & 1 ? n_draft : 0);
        printf("%d answers of both kinds at once: %.3f\n", 12 * copies, seconds[0] / seconds[1]);
    }
    llm_engine_close(engine);
    llm_model_close(model);
    return 0;
}
