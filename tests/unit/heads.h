/* EAGLE-3 heads and models' own next layers (tests/data/checkpoints/head_*): what they guess behind a prompt, beside what torch and transformers
 * computed. On any backend. */
#ifndef HEADS_H
#define HEADS_H
#include "test.h"
#include "base/platform.h"
#include "base/json.h"
#include "engine/draft.h"
#include "engine/scheduler.h"

static const char *const head_names[] = {"eagle3", "eagle3_speculators", "deepseek_v3", "glm4_moe",
                                         "mimo",   "ernie4_5_moe",       "qwen3_5",     "qwen3_next"};
enum { HEAD_GUESSES = 4 };

/* What a prompt of expected.json asks for, and how many of the guesses were seen. */
static struct {
    int32_t n_prompt, next, guesses[HEAD_GUESSES];
    int seen, wrong;
} head_truth;

static inline double head_no_time(llm_engine *e) { return (void)e, 1.0; }

/* The engine's drafts: those behind the model's first token are compared. */
static inline void head_draft(llm_engine *e, llm__seq *const *seq, int32_t n) {
    llm__drive_draft(e, seq, n);
    for (int32_t i = 0; i < n; i++) {
        const llm__seq *s = seq[i];
        if (s->n_ids != head_truth.n_prompt + 1) continue;
        head_truth.wrong += s->ids[s->n_ids - 1] != head_truth.next;
        for (int32_t k = 0; k < s->draft.n; k++, head_truth.seen++) head_truth.wrong += s->draft.ids[k] != head_truth.guesses[k];
    }
}

/* One prompt, on an engine of its own. */
static inline void head_prompt(const llm_backend *backend, const llm_model *m, const char *head, int ranks, const llm_json *j, int prompt) {
    llm_engine_config c = LLM__ZERO;
    llm_request_config q = LLM__ZERO;
    llm_engine *e = NULL;
    llm_request *r = NULL;
    int32_t ids[160];
    c.backend = backend;
    c.n_threads = 1, c.max_model_len = 256, c.max_num_seqs = 2, c.block_size = 16, c.dtype = LLM_COMPUTE_F32;
    c.tensor_parallel_size = ranks, c.speculative_model = head, c.num_speculative_tokens = HEAD_GUESSES;
    if (!CHECK(!llm_engine_open(m, &c, &e))) return;
    CHECK(e->drafter.eagle && e->p.driver.draft == llm__drive_draft);
    e->p.driver.draft = head_draft;
    e->p.driver.now = head_no_time;
    q.prompt_ids = ids, q.sampling.max_tokens = 12, q.sampling.ignore_eos = 1;
    for (int v = llm_json_first(j, llm_json_find(j, prompt, "token_ids")); v >= 0 && q.n_prompt_ids < 160; v = llm_json_next(j, v))
        ids[q.n_prompt_ids++] = (int32_t)llm__json_whole(j, v, -1);
    head_truth.n_prompt = (int32_t)q.n_prompt_ids, head_truth.next = (int32_t)llm__json_whole(j, llm_json_find(j, prompt, "next"), -1);
    int v = llm_json_first(j, llm_json_find(j, prompt, "guesses"));
    for (int k = 0; k < HEAD_GUESSES; k++, v = llm_json_next(j, v)) head_truth.guesses[k] = (int32_t)llm__json_whole(j, v, -1);
    CHECK(!llm_request_submit(e, &q, &r) && !llm_request_run(e, r));
    llm_request_free(r);
    llm_engine_close(e);
}

/* The first n prompts of a head. */
static inline void head_family(const llm_backend *backend, const char *name, int ranks, int n) {
    char path[300], file[340], model[300];
    llm_json *j = NULL;
    llm_model *m = NULL;
    snprintf(path, sizeof path, TEST_CHECKPOINT("head_%s"), name);
    snprintf(file, sizeof file, "%s/expected.json", path);
    if (!test_made(path, "checkpoints") || !CHECK(!llm__json_file(file, 0, &j))) return;
    snprintf(model, sizeof model, TEST_CHECKPOINT("%s"), llm_json_str(j, llm_json_find(j, 0, "head_of"), NULL));
    if (CHECK(!llm_model_open(model, NULL, &m))) {
        char with[320];
        snprintf(with, sizeof with, "%s%s", strncmp(name, "eagle3", 6) ? "[mtp]" : "", path);
        head_truth.seen = head_truth.wrong = 0;
        int p = llm_json_first(j, llm_json_find(j, 0, "prompts"));
        for (int i = 0; i < n; i++, p = llm_json_next(j, p)) head_prompt(backend, m, with, ranks, j, p);
        if (!CHECK(head_truth.seen == n * HEAD_GUESSES && !head_truth.wrong))
            printf("head_%s, %d ranks: %d guesses, %d wrong; %s\n", name, ranks, head_truth.seen, head_truth.wrong, llm_last_error());
    }
    llm_model_close(m);
    llm__json_drop(&j);
}

#endif
