/* Speculation: nothing that is said changes. Answers with drafts against the same requests without, to the bit, with every rule that can end an answer or
 * bend a choice; the distribution of sampled tokens; how long drafts get. The books and faults are in tests/unit/engine/test_sim.c. */
#include "../fake.h"
#include "../safetensors.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/map.h"
#include "base/files.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "grammar/grammar.h"
#include "engine/speculate.h"
#include "engine/scheduler.h"
#include "engine/draft.h"
#include "serve/options.h"

enum { SPEC_SEQS = 3, SPEC_TOKENS = 48 };

/* What a request said without drafts, kept where a drafter finds it. */
typedef struct spec_said {
    llm_request *plain;
    int32_t n;
} spec_said;

/* A drafter that knows the answers, and is wrong once in eight tokens. */
static void spec_cheat(llm_engine *e, llm__seq *const *seq, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        llm__seq *s = seq[i];
        const llm__seq *plain = &((const spec_said *)s->request->user)->plain->seq[s->index];
        for (int32_t k = 0; k < s->draft.n; k++) {
            uint64_t dice = llm__mix((uint64_t)e->count.steps * 4096 + (uint64_t)(s->n_ids + k));
            s->draft.ids[k] = s->n_ids + k < plain->n_ids && dice % 8 ? plain->ids[s->n_ids + k] : (int32_t)(dice >> 40) % 50;
        }
    }
}

static int spec_equal(const llm_request *a, const llm_request *b, int32_t n) {
    int ok = 1;
    for (int32_t i = 0; i < n && ok; i++) {
        llm_output x, y;
        ok = !llm_request_get_output(a, i, &x) && !llm_request_get_output(b, i, &y) && x.n_token_ids == y.n_token_ids &&
             x.text_len == y.text_len;
        if (!ok) return 0;
        ok = !memcmp(x.token_ids, y.token_ids, x.n_token_ids * sizeof(int32_t)) && !memcmp(x.text, y.text, x.text_len);
        ok &= x.finish == y.finish && x.stop_id == y.stop_id &&
              !strcmp(x.stop_reason ? x.stop_reason : "", y.stop_reason ? y.stop_reason : "");
        ok &= x.cum_logprob == y.cum_logprob && x.top_stride == y.top_stride && !x.logprobs == !y.logprobs;
        if (!ok || !x.logprobs) continue;
        ok = !memcmp(x.logprobs, y.logprobs, x.n_token_ids * sizeof(float)) &&
             !memcmp(x.top_counts, y.top_counts, x.n_token_ids * sizeof(int32_t));
        ok &= !memcmp(x.top, y.top, x.n_token_ids * (size_t)x.top_stride * sizeof *x.top);
    }
    return ok;
}

/* Request number i: every rule alone and many together. */
static void spec_rules(int i, llm_sampling *s, llm_grammar *grammar) {
    static const char *const stop[] = {"the", "an"}, *const bad[] = {"a", "er"};
    static const int32_t ids[] = {7, 19, 33};
    static const llm_logit_bias bias[] = {{40, 6}, {41, 5.5f}, {42, -100}};
    memset(s, 0, sizeof *s);
    s->max_tokens = 5 + i % 40;
    s->ignore_eos = i % 3 != 0;
    s->has_seed = 1, s->seed = i;
    if (i % 2) s->temperature = 0.3f + (float)(i % 5) / 4;
    if (i % 7 == 3) s->top_k = 12, s->top_p = 0.8f;
    if (i % 11 == 4) s->min_p = 0.05f;
    if (i % 5 == 1) s->n = 1 + i % 3;
    if (i % 13 == 5) s->best_of = 3, s->n = 1;
    if (i % 6 == 2) s->logprobs = 4;
    if (i % 8 == 3) s->repetition_penalty = 1.2f, s->frequency_penalty = 0.4f;
    if (i % 9 == 4) s->presence_penalty = -0.5f;
    if (i % 10 == 6) s->stop = stop, s->n_stop = 2, s->include_stop_str_in_output = i % 20 == 6;
    if (i % 12 == 7) s->stop_token_ids = ids, s->n_stop_token_ids = 3;
    if (i % 4 == 1) s->min_tokens = 4 < s->max_tokens ? 4 : 0;
    if (i % 14 == 8) s->bad_words = bad, s->n_bad_words = 2;
    if (i % 15 == 9) s->logit_bias = bias, s->n_logit_bias = 3;
    if (i % 7 == 3) s->repetition_detection.max_pattern_size = 3, s->repetition_detection.min_count = 2 + i % 2;
    if (i % 5 == 2) s->early_stop.enable = 1, s->early_stop.window_size = 2 + i % 9, s->early_stop.threshold = i % 2 ? 0.02f : 0.0f;
    if (i % 6 == 5) s->grammar = grammar;
    if (i % 16 == 10) s->prompt_logprobs = 2;
}

static llm_request *spec_submit(llm_engine *e, const int32_t *prompt, int n, int i, llm_grammar *grammar, spec_said *said) {
    llm_request_config c;
    llm_request *r;
    memset(&c, 0, sizeof c);
    c.prompt_ids = prompt, c.n_prompt_ids = (size_t)n, c.user = said;
    spec_rules(i, &c.sampling, grammar);
    return CHECK(!llm_request_submit(e, &c, &r)) ? r : NULL;
}

/* A clock that stands still: then nothing costs anything, and everything is drafted that can be. */
static double spec_no_time(llm_engine *ctx) { return (void)ctx, 1.0; }

/* `n` requests alone without drafts, then three at a time with drafts on pages that are too few; both kinds of drafter. */
static void spec_test_equal(const char *path, const char *draft, int n, int32_t pages) {
    llm_engine_config c;
    llm_engine *plain = NULL, *e = NULL;
    llm_model *m;
    llm_grammar *grammar;
    llm_grammar_config g;
    llm_engine_stats stats;
    spec_said said[SPEC_SEQS];
    llm_request *r[SPEC_SEQS];
    int equal = 0;
    memset(&c, 0, sizeof c);
    memset(&g, 0, sizeof g);
    g.kind = LLM_GRAMMAR_REGEX, g.text = "(ab|c[de]|f )*[xyz]{2,40}", g.len = strlen(g.text);
    c.n_threads = 1, c.max_model_len = 128, c.block_size = 16, c.max_num_seqs = SPEC_SEQS + 1;
    if (!CHECK(!llm_model_open(path, NULL, &m)) || !CHECK(!llm_engine_open(m, &c, &plain)) || !CHECK(!llm_grammar_open(m, &g, &grammar)))
        return;
    c.speculative_model = draft, c.num_speculative_tokens = 7, c.num_gpu_blocks = pages, c.ngram_prompt_lookup_min = 1;
    for (int i = 0; i < n; i += SPEC_SEQS) {
        if (i % 120 == 0) { /* another engine: swap, and the drafter that cheats */
            if (e)
                llm_engine_get_stats(e, &stats), CHECK(stats.accepted_tokens > (e->p.driver.draft == spec_cheat ? 100 : 0)),
                    llm_engine_close(e);
            c.preemption_swap = i % 240 == 0;
            if (!CHECK(!llm_engine_open(m, &c, &e))) return;
            e->p.driver.now = spec_no_time;
            if (i % 360 && draft[0] == '[') e->p.driver.draft = spec_cheat;
        }
        for (int k = 0; k < SPEC_SEQS; k++) {
            int32_t prompt[40];
            int length = 1 + (int)(llm__mix((uint64_t)(i + k)) % 39);
            for (int j = 0; j < length; j++)
                prompt[j] = 5 + (int32_t)(llm__mix((uint64_t)(i + k) * 64 + (uint64_t)(j % 11)) % 200); /* it repeats itself */
            said[k].plain = spec_submit(plain, prompt, length, i + k, grammar, NULL);
            CHECK(!llm_request_run(plain, said[k].plain));
            r[k] = spec_submit(e, prompt, length, i + k, grammar, &said[k]);
        }
        for (int k = 0; k < SPEC_SEQS; k++) {
            CHECK(!llm_request_run(e, r[k]));
            equal += spec_equal(said[k].plain, r[k], r[k]->sampling.n);
            if (r[k]->prompt.logprobs)
                CHECK(!memcmp(r[k]->prompt.logprobs + 1, said[k].plain->prompt.logprobs + 1,
                              (size_t)(r[k]->seq[0].n_prompt - 1) * sizeof(float)));
        }
        for (int k = 0; k < SPEC_SEQS; k++) llm_request_free(r[k]), llm_request_free(said[k].plain);
    }
    CHECK(equal == (n + SPEC_SEQS - 1) / SPEC_SEQS * SPEC_SEQS);
    llm_engine_close(e);
    llm_engine_close(plain);
    llm_grammar_close(grammar);
    llm_model_close(m);
}

/* ---- jumps of grammars ---- */

/* clang-format off */
static const struct { llm_grammar_kind kind; const char *text; } spec_forms[] = {
    {LLM_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"identifier\":{\"type\":\"integer\"},\"condition\":{\"enum\":[\"excellent\",\"exhausted\"]}},\"required\":[\"identifier\",\"condition\"]}"},
    {LLM_GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"minItems\":2,\"maxItems\":4,\"items\":{\"const\":{\"monument\":null}}}"},
    {LLM_GRAMMAR_CHOICE, "[\"the quick brown fox\",\"the quiet brown bear\",\"\\u00e9t\\u00e9\"]"},
    {LLM_GRAMMAR_REGEX, "(kzq[01]){2,8}!{1,9}"},
    {LLM_GRAMMAR_GBNF, "root ::= \"BEGIN \" item+ \"END\"\nitem ::= \"row \" [0-9]{1,3} \";\" root?"},
    {LLM_GRAMMAR_STRUCTURAL_TAG, "{\"structures\":[{\"begin\":\"<call=\",\"schema\":{\"type\":\"boolean\"},\"end\":\"</call>\"}],\"triggers\":[\"<\"]}"}};
/* clang-format on */

static llm_grammar *spec_form(const llm_model *m, int i) {
    llm_grammar_config c;
    llm_grammar *g = NULL;
    memset(&c, 0, sizeof c);
    c.kind = spec_forms[i].kind, c.text = spec_forms[i].text, c.len = strlen(c.text);
    CHECK(!llm_grammar_open(m, &c, &g));
    return g;
}

/* Answers of tokens drawn evenly from the masks. Whatever must come next is what the mask says, and nothing that must is missed. */
static void spec_test_forced(const char *path) {
    llm_model *m;
    int sure = 0, likely = 0;
    if (!CHECK(!llm_model_open(path, NULL, &m))) return;
    int32_t n_words = (llm_vocab_size(m) + 31) / 32, ids[LLM__JUMP_MAX];
    uint32_t *mask = LLM__NEW(uint32_t, n_words);
    for (int i = 0; i < LLM__COUNT(spec_forms); i++) {
        llm_grammar *g = spec_form(m, i);
        for (uint64_t walk = 0; g && walk < 40; walk++) {
            llm_matcher *matcher = llm_matcher_open(g);
            for (uint64_t at = 0; at < 60; at++) {
                int32_t allowed, n_sure, id = 0;
                int over, can_end = llm_matcher_can_end(matcher), n = llm__matcher_ahead(matcher, ids, LLM__JUMP_MAX, &n_sure, &over);
                if (!CHECK(!llm_matcher_mask(matcher, mask, &allowed))) break;
                CHECK(n_sure <= n && (n_sure > 0) == (allowed == 1 && !can_end) && (n || over == (!allowed && can_end)));
                if (n) CHECK(!can_end && mask[ids[0] / 32] >> ids[0] % 32 & 1);
                sure += n_sure, likely += n - n_sure;
                if (!allowed) break;
                int32_t skip = (int32_t)(llm__mix(llm__mix(walk) + at) % (uint64_t)allowed);
                while (!(mask[id / 32] >> id % 32 & 1) || skip--) id++;
                CHECK(!llm_matcher_token(matcher, id));
            }
            llm_matcher_close(matcher);
        }
        llm_grammar_close(g);
    }
    CHECK(sure > 100 && likely > 100);
    LLM_FREE(mask);
    llm_model_close(m);
}

/* The same answers, without and with jumps, in fewer steps; with other drafts beside them too. */
static void spec_test_jumps(const char *path, const char *draft) {
    llm_engine_config c;
    llm_engine *e[2];
    llm_model *m;
    int64_t steps[2] = {0, 0};
    memset(&c, 0, sizeof c);
    c.n_threads = 1, c.max_model_len = 128, c.block_size = 16, c.max_num_seqs = 4, c.num_gpu_blocks = 16;
    if (!CHECK(!llm_model_open(path, NULL, &m)) || !CHECK(!llm_engine_open(m, &c, &e[0]))) return;
    c.speculative_model = draft, c.num_speculative_tokens = draft ? 4 : 0;
    if (!CHECK(!llm_engine_open(m, &c, &e[1]))) return;
    e[0]->p.n_jump = 0;
    e[0]->p.driver.now = e[1]->p.driver.now = spec_no_time;
    for (int i = 0; i < LLM__COUNT(spec_forms); i++) {
        llm_grammar *g = spec_form(m, i);
        for (int seed = 0; g && seed < 6; seed++) {
            static const int32_t prompt[] = {5, 80, 31, 7, 31};
            llm_request_config q;
            llm_request *r[2];
            llm_engine_stats before, after;
            memset(&q, 0, sizeof q);
            q.prompt_ids = prompt, q.n_prompt_ids = 5, q.sampling.grammar = g, q.sampling.logprobs = 3;
            q.sampling.max_tokens = 9 + 13 * seed, q.sampling.n = 1 + seed % 3, q.sampling.temperature = seed % 2 ? 1.2f : 0;
            q.sampling.has_seed = 1, q.sampling.seed = seed, q.sampling.min_tokens = 2 * (seed % 3),
            q.sampling.repetition_penalty = seed == 4 ? 1.3f : 1;
            if (seed == 5) q.sampling.early_stop.enable = 1, q.sampling.early_stop.window_size = 6, q.sampling.early_stop.threshold = 0.5f;
            for (int k = 0; k < 2; k++) {
                llm_engine_get_stats(e[k], &before);
                if (!CHECK(!llm_request_submit(e[k], &q, &r[k]) && !llm_request_run(e[k], r[k]))) return;
                llm_engine_get_stats(e[k], &after);
                steps[k] += after.steps - before.steps;
            }
            CHECK(spec_equal(r[0], r[1], q.sampling.n));
            for (int k = 0; k < 2; k++) llm_request_free(r[k]);
        }
        llm_grammar_close(g);
    }
    CHECK(steps[1] < steps[0] * 3 / 4);
    printf("answers of grammars, drafts of %s: %lld steps without jumps, %lld with\n", draft ? draft : "grammars alone",
           (long long)steps[0], (long long)steps[1]);
    for (int k = 0; k < 2; k++) llm_engine_close(e[k]);
    llm_model_close(m);
}

/* 500 greedy prompts, many at once, without drafts and with each kind of them: the same tokens, texts and log-probabilities. */
static void spec_test_greedy(const char *path) {
    enum { MOST = 500 };
    const int n_prompts = TEST_BRIEF ? 25 : MOST;
    const struct {
        const char *draft;
        int grammar, jump;
    } ways[] = {{NULL, 0, 0}, {"[ngram]", 0, 0}, {path, 0, 0}, {NULL, 1, 0}, {NULL, 1, LLM__JUMP_MAX}, {path, 1, LLM__JUMP_MAX}};
    static llm_request *r[2][MOST]; /* without drafts, with */
    llm_grammar *g[LLM__COUNT(spec_forms)];
    llm_model *m;
    if (!CHECK(!llm_model_open(path, NULL, &m))) return;
    llm_engine *plain = NULL;
    for (int i = 0; i < LLM__COUNT(spec_forms); i++) g[i] = spec_form(m, i);
    for (int way = 0; way < LLM__COUNT(ways); way++) {
        int without = way == 0 || way == 3, equal = 0;
        llm_engine_config c;
        llm_engine_stats stats;
        llm_engine *e;
        memset(&c, 0, sizeof c);
        c.n_threads = 1, c.max_model_len = 96, c.block_size = 16, c.max_num_seqs = 16;
        c.speculative_model = ways[way].draft, c.num_speculative_tokens = c.speculative_model ? 4 : 0, c.ngram_prompt_lookup_min = 1;
        if (!CHECK(!llm_engine_open(m, &c, &e))) return;
        e->p.n_jump = ways[way].jump, e->p.driver.now = spec_no_time;
        for (int i = 0; i < n_prompts; i++) {
            int32_t prompt[48];
            llm_request_config q;
            memset(&q, 0, sizeof q);
            for (int k = 0; k < 48; k++) prompt[k] = 5 + (int32_t)(llm__mix((uint64_t)i * 64 + (uint64_t)(k % (3 + i % 40))) % 250);
            q.prompt_ids = prompt, q.n_prompt_ids = (size_t)(1 + i % 48), q.sampling.max_tokens = 8 + i % 32, q.sampling.logprobs = i % 3,
            q.sampling.ignore_eos = !ways[way].grammar;
            q.sampling.grammar = ways[way].grammar ? g[i % LLM__COUNT(spec_forms)] : NULL;
            if (!CHECK(!llm_request_submit(e, &q, &r[!without][i]))) return;
        }
        for (int i = 0; i < n_prompts; i++) CHECK(!llm_request_run(e, r[!without][i]));
        for (int i = 0; i < n_prompts && !without; i++) {
            equal += spec_equal(r[0][i], r[1][i], 1);
            llm_request_free(r[1][i]);
        }
        llm_engine_get_stats(e, &stats);
        CHECK(without ? !stats.drafts : equal == n_prompts && stats.accepted_tokens > n_prompts / (TEST_BRIEF ? 4 : 2));
        if (!without)
            printf("%d of %d greedy answers equal with drafts of %s%s: %lld of %lld kept\n", equal, n_prompts,
                   ways[way].draft ? ways[way].draft : "", ways[way].grammar ? " and a grammar" : "", (long long)stats.accepted_tokens,
                   (long long)stats.draft_tokens);
        if (without || way + 1 == LLM__COUNT(ways) || way == 2) { /* who has the answers to compare with stays until they were */
            if (!without)
                for (int i = 0; i < n_prompts; i++) llm_request_free(r[0][i]);
            if (plain) llm_engine_close(plain);
            plain = without ? e : NULL;
        }
        if (!without) llm_engine_close(e);
    }
    for (int i = 0; i < LLM__COUNT(spec_forms); i++) llm_grammar_close(g[i]);
    llm_model_close(m);
}

/* A model that guesses for itself, on one thread, while time stands still; and the start of a request to it. */
static int spec_self(const char *path, llm_model **m, llm_engine **e, llm_request_config *q) {
    static const int32_t prompt[] = {5, 80, 31, 7, 31};
    llm_engine_config c;
    memset(&c, 0, sizeof c);
    memset(q, 0, sizeof *q);
    c.n_threads = 1, c.max_model_len = 128, c.speculative_model = path, c.num_speculative_tokens = 5;
    if (!CHECK(!llm_model_open(path, NULL, m)) || !CHECK(!llm_engine_open(*m, &c, e))) return 0;
    (*e)->p.driver.now = spec_no_time;
    q->prompt_ids = prompt, q->n_prompt_ids = 5, q->sampling.has_seed = 1;
    return 1;
}

/* One answer of it that must match the regular expression. */
static int spec_self_answer(llm_model *m, llm_engine *e, llm_request_config *q, const char *form) {
    llm_grammar_config g;
    llm_request *r;
    memset(&g, 0, sizeof g);
    g.kind = LLM_GRAMMAR_REGEX, g.text = form, g.len = strlen(form);
    if (!CHECK(!llm_grammar_open(m, &g, &q->sampling.grammar)) || !CHECK(!llm_request_submit(e, q, &r) && !llm_request_run(e, r))) return 0;
    llm_request_free(r);
    llm_grammar_close(q->sampling.grammar);
    return 1;
}

/* A model that guesses for itself reads what the grammar has jumped over before it guesses again: so it is right behind a fixed text, too. */
static void spec_test_behind(const char *path) {
    llm_engine_stats stats;
    llm_request_config q;
    llm_engine *e;
    llm_model *m;
    if (!spec_self(path, &m, &e, &q)) return;
    q.sampling.max_tokens = 100, q.sampling.ignore_eos = 1;
    for (int i = 0; i < 4; i++) {
        q.sampling.temperature = (float)i / 4;
        if (!spec_self_answer(m, e, &q, "kzqkzqkzqkzq(.|\n)*")) return;
    }
    llm_engine_get_stats(e, &stats);
    printf("behind a fixed text: %lld of %lld drafted tokens kept\n", (long long)stats.accepted_tokens, (long long)stats.draft_tokens);
    CHECK(stats.accepted_tokens > 150 && stats.accepted_tokens == stats.draft_tokens);
    llm_engine_close(e);
    llm_model_close(m);
}

/* A model that guesses for itself under a grammar that leaves it a choice everywhere: the mask bends its guesses as it bends its answers, so all are kept. */
static void spec_test_masked(const char *path) {
    static const char *const form[] = {"(ab|c[de]|f |x[0-9]{1,9},)*[xyz]{2,40}", "([A-Za-z]+( [0-9]+)?[.,;] )*"};
    llm_engine_stats stats;
    llm_request_config q;
    llm_engine *e;
    llm_model *m;
    if (!spec_self(path, &m, &e, &q)) return;
    e->p.n_jump = 0;
    q.sampling.max_tokens = 60;
    for (int i = 0; i < 8; i++) {
        q.sampling.temperature = (float)i / 4, q.sampling.seed = i, q.sampling.n = 1 + i % 3;
        if (!spec_self_answer(m, e, &q, form[i % 2])) return;
    }
    llm_engine_get_stats(e, &stats);
    CHECK(stats.draft_tokens > 200 && stats.accepted_tokens == stats.draft_tokens);
    llm_engine_close(e);
    llm_model_close(m);
}

/* ---- masks while the device computes ---- */

static long spec_masks_then; /* when the latest step was collected */

static long spec_masks_now(void) {
    long n = 0;
    for (int i = 0; i < FAKE_GRAMMARS; i++) n += (long)fake_grammar[i]->n_masks;
    return n;
}

static llm_result spec_wait(llm_backend_ctx *ctx) {
    spec_masks_then = spec_masks_now();
    return fake_wait(ctx);
}

/* A device that computes beside the host: when its step is done, every mask that the step's rows ask for is there, behind drafted tokens too. One that has
 * computed when it begins leaves nothing to wait for: masks are made when they are asked for. */
static void spec_test_masks_ahead(void) {
    long late[2] = {0, 0}, made[2];
    for (int lag = 0; lag < 2; lag++) {
        fake_device f;
        llm__engine_params params = fake_params(200, 4, 8, 64, 64);
        llm_request *r[40];
        if (!CHECK(fake_grammars_open())) return;
        params.lag = lag, params.n_draft = 4, params.max_out = 60, params.driver.draft = fake_draft;
        llm_engine *e = fake_open(&f, params);
        f.table.wait = spec_wait;
        for (int i = 0; i < 40; i++) {
            int32_t prompt[3] = {i % 20, 2, 3};
            llm_request_config c;
            memset(&c, 0, sizeof c);
            c.prompt_ids = prompt, c.n_prompt_ids = 3;
            c.sampling.temperature = 2, c.sampling.max_tokens = 40, c.sampling.has_seed = 1, c.sampling.seed = i, c.sampling.n = 1 + i % 2;
            c.sampling.grammar = fake_grammar[i % FAKE_GRAMMARS];
            CHECK(!llm_request_submit(e, &c, &r[i]));
        }
        for (int busy = 1; busy;) {
            spec_masks_then = spec_masks_now();
            CHECK(!llm_engine_step(e, &busy));
            late[lag] += spec_masks_now() - spec_masks_then;
        }
        made[lag] = spec_masks_now();
        for (int i = 0; i < 40; i++) llm_request_free(r[i]);
        fake_close(&f);
        fake_grammars_close();
    }
    CHECK(late[0] == made[0] && late[0] > 50 && late[1] == 0 && made[1] >= made[0]);
    printf("masks that a step asked for and that were not there: %ld of %ld, %ld of %ld where the device computes beside the host\n",
           late[0], made[0], late[1], made[1]);
}

/* The next token's, at temperature 2. */
static void spec_probabilities(const int32_t *ids, int n, double *p) {
    uint64_t h = fake_hash_begin();
    float x[FAKE_VOCAB];
    double sum = 0;
    for (int i = 0; i < n; i++) h = fake_hash_add(h, ids[i]);
    fake_logits(h, x);
    for (int i = 0; i < FAKE_VOCAB; i++) sum += p[i] = exp((double)x[i] / 2);
    for (int i = 0; i < FAKE_VOCAB; i++) p[i] /= sum;
}

/* The third token of 200,000 sampled answers, with drafts that are right now and then, against its exact probabilities. 23 degrees of freedom: 49.7 is
 * passed once in a thousand; the seeds are fixed, so it stays as it is. */
static void spec_test_distribution(void) {
    enum { CHOICES = 125 };
    const int answers = TEST_BRIEF ? 50000 : 200000;
    int32_t prompt[4] = {3, 1, 4, 1}, count[FAKE_VOCAB] = {0};
    double exact[FAKE_VOCAB] = {0}, chi = 0, p[3][FAKE_VOCAB];
    fake_device f;
    llm__engine_params params = fake_params(600, 4, 128, 1000, 64);
    llm_request_config c;
    params.n_draft = 4, params.max_out = 900, params.driver.draft = fake_draft;
    llm_engine *e = fake_open(&f, params);
    memset(&c, 0, sizeof c);
    c.prompt_ids = prompt, c.n_prompt_ids = 4;
    c.sampling.temperature = 2, c.sampling.max_tokens = 8, c.sampling.ignore_eos = 1, c.sampling.has_seed = 1, c.sampling.n = CHOICES;
    for (int i = 0; i < answers / CHOICES; i++) {
        llm_request *r;
        c.sampling.seed = (int64_t)i * CHOICES;
        if (!CHECK(!llm_request_submit(e, &c, &r)) || llm_request_run(e, r)) return;
        for (int32_t k = 0; k < CHOICES; k++) count[r->seq[k].ids[4 + 2]]++;
        llm_request_free(r);
    }
    spec_probabilities(prompt, 4, p[0]);
    for (int a = 0; a < FAKE_VOCAB * FAKE_VOCAB; a++) { /* the sum over both tokens before it */
        int32_t ids[6] = {prompt[0], prompt[1], prompt[2], prompt[3], a / FAKE_VOCAB, a % FAKE_VOCAB};
        if (ids[5] == 0) spec_probabilities(ids, 5, p[1]);
        spec_probabilities(ids, 6, p[2]);
        for (int i = 0; i < FAKE_VOCAB; i++) exact[i] += p[0][ids[4]] * p[1][ids[5]] * p[2][i];
    }
    for (int i = 0; i < FAKE_VOCAB; i++) chi += (count[i] - exact[i] * answers) * (count[i] - exact[i] * answers) / (exact[i] * answers);
    printf("chi-square of %d samples with drafts: %.1f (23 degrees of freedom), %lld of %lld drafted tokens kept\n", answers, chi,
           (long long)e->count.accepted_tokens, (long long)e->count.draft_tokens);
    CHECK(chi < 49.7 && e->count.accepted_tokens > answers / 4 && e->count.accepted_tokens < e->count.draft_tokens);
    fake_close(&f);
}

/* Where a lookup finds what, and what it makes of it. */
static void spec_test_lookup(void) {
    static const int32_t ids[] = {1, 2, 3, 9, 8, 7, 2, 3, 5, 6, 1, 2, 3}, loop[] = {4, 5, 6, 4, 5, 6};
    int32_t draft[8];
    CHECK(llm__draft_lookup(ids, 13, 1, 8, draft, 4) == 4 && draft[0] == 9 && draft[1] == 8 &&
          draft[3] == 2);                                                    /* the longest match, not the latest */
    CHECK(llm__draft_lookup(ids, 13, 1, 2, draft, 4) == 4 && draft[0] == 5); /* as long: the latest */
    CHECK(llm__draft_lookup(ids, 13, 4, 8, draft, 4) == 0);
    CHECK(llm__draft_lookup(ids, 10, 1, 8, draft, 4) == 0 && llm__draft_lookup(ids, 1, 1, 8, draft, 4) == 0);
    CHECK(llm__draft_lookup(loop, 6, 3, 8, draft, 8) == 8 && draft[0] == 4 && draft[2] == 6 && draft[7] == 5); /* goes on in itself */
}

/* Steps of n rows take `fixed + n * row` seconds. */
static llm__bargain spec_bargain(double fixed, double row, int32_t n) {
    llm__pace p;
    memset(&p, 0, sizeof p);
    for (int i = 0; i < 200; i++) llm__pace_note(&p, n + i % 5, i == 150 ? 10.0 : fixed + row * (n + i % 5)); /* one was held up */
    return llm__pace_step(&p, n);
}

/* How far a draft goes: as the bargain says, and it recovers. */
static void spec_test_length(void) {
    llm__bargain b = spec_bargain(0.008, 0.002, 1);
    float chance = 0.9f, poor = 0.1f;
    CHECK(fabs(b.row - 0.002) < 0.0007 && fabs(b.seconds - 0.010) < 0.0015);
    int32_t n = llm__draft_length(&chance, &b, 32);
    CHECK(n >= 4 && n <= 16 && b.tokens > 3 && chance == 0.9f);
    b = spec_bargain(0.008, 0.002, 1);
    CHECK(llm__draft_length(&poor, &b, 32) == 0 && poor > 0.1f && b.tokens == 1);
    b = spec_bargain(0.008, 0.002, 64); /* a large batch: rows cost what they give */
    CHECK(llm__draft_length(&chance, &b, 32) == 0);
    b = spec_bargain(0.010, 0, 1); /* a line that noise has bent: more rows cost nothing */
    CHECK(b.row > 0.03 * b.seconds);
    b = spec_bargain(0.008, 0.002, 1);
    float edge = (float)(1.1 * b.row / b.seconds), above = 1.2f * edge; /* a guess that would just pay is not enough */
    CHECK(llm__draft_length(&edge, &b, 1) == 0 && llm__draft_length(&above, &b, 1) == 1);
    for (int i = 0; i < 2000 && poor < 0.4f; i++) b = spec_bargain(0.001, 0.01, 4), llm__draft_length(&poor, &b, 32);
    CHECK(poor >= 0.4f);
    CHECK(llm__chance_after(0.5f, 4, 4) > 0.7f && llm__chance_after(0.5f, 4, 0) < 0.45f && llm__chance_after(0.5f, 0, 0) == 0.5f);
}

/* What is refused, with which words; what vLLM's JSON says. */
static void spec_test_config(void) {
    /* clang-format off */
    static const char *const bad[][2] = {{"{\"method\":\"ngram\"}", "num_speculative_tokens"}, {"[1]", "object"}, {"{\"num_speculative_tokens\":3}", "speculative_model"},
        {"{\"method\":\"medusa\",\"num_speculative_tokens\":3}", "medusa"}, {"{\"method\":\"ngram\",\"num_speculative_tokens\":0}", "num_speculative_tokens"},
        {"{\"method\":\"ngram\",\"num_speculative_tokens\":33}", "33"}, {"{\"methd\":\"ngram\"}", "methd"}, {"{", "object"}};
    /* clang-format on */
    llm_engine_config c;
    llm_text model;
    memset(&model, 0, sizeof model);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memset(&c, 0, sizeof c);
        c.speculative_config = bad[i][0];
        if (!CHECK(llm__speculative_parse(NULL, &c, NULL, &model) == LLM_ERR_ARG && strstr(llm_last_error(), bad[i][1])))
            printf("%s: %s\n", bad[i][0], llm_last_error());
    }
    memset(&c, 0, sizeof c);
    CHECK(!llm__speculative_parse(NULL, &c, NULL, &model) && !c.speculative_model);
    c.num_speculative_tokens = 3;
    CHECK(llm__speculative_parse(NULL, &c, NULL, &model) == LLM_ERR_ARG);
    c.speculative_config =
        "{\"model\": \"[ngram]\", \"num_speculative_tokens\": 5, \"prompt_lookup_max\": 4, \"prompt_lookup_min\": 2, \"disable_by_batch_size\": 8}";
    CHECK(!llm__speculative_parse(NULL, &c, NULL, &model) && !strcmp(c.speculative_model, "[ngram]") && c.num_speculative_tokens == 5);
    CHECK(c.ngram_prompt_lookup_max == 4 && c.ngram_prompt_lookup_min == 2 && !c.speculative_config);
    CHECK(!llm__speculative_parse(NULL, &c, NULL, &model) && !strcmp(c.speculative_model, "[ngram]")); /* twice is once */
    llm_text_free(&model);
}

/* A model that guesses for itself is always right: every token of every draft is kept, though pages are shared, forked, cached, taken away and given back. So
 * the draft model's own keys are what they should be. */
static void spec_test_same(const char *path, const char *draft) {
    llm_engine_config c;
    llm_engine *e;
    llm_engine_stats stats;
    llm_model *m;
    llm_request *r[8];
    memset(&c, 0, sizeof c);
    c.n_threads = 1, c.max_model_len = 128, c.block_size = 16, c.max_num_seqs = 4, c.max_num_batched_tokens = 24;
    c.speculative_model = draft, c.num_speculative_tokens = 5;
    if (!CHECK(!llm_model_open(path, NULL, &m))) return;
    for (int round = 0; round < 4; round++) {
        c.num_gpu_blocks = round % 2 ? 40 : 11, c.preemption_swap = round / 2;
        c.tensor_parallel_size = round == 3 ? 2 : 1, c.kv_cache_dtype = round == 1 ? LLM_KV_INT8 : LLM_KV_AUTO;
        if (!CHECK(!llm_engine_open(m, &c, &e))) return;
        e->p.driver.now = spec_no_time;
        for (int i = 0; i < 8; i++) { /* prompts share beginnings; one in two is sampled; some have several answers */
            int32_t prompt[70];
            llm_request_config q;
            memset(&q, 0, sizeof q);
            for (int k = 0; k < 70; k++) prompt[k] = 5 + (int32_t)(llm__mix((uint64_t)(k < 40 ? k + 100 * (i % 3) : k + 100 * i)) % 300);
            q.prompt_ids = prompt, q.n_prompt_ids = (size_t)(20 + 6 * i);
            q.sampling.ignore_eos = 1, q.sampling.max_tokens = 40, q.sampling.n = 1 + i % 3, q.sampling.temperature = i % 2 ? 1.0f : 0;
            q.sampling.has_seed = 1, q.sampling.seed = i;
            CHECK(!llm_request_submit(e, &q, &r[i]));
            for (int k = 0; k < 9; k++) CHECK(!llm_engine_step(e, NULL)); /* they come one after the other */
        }
        for (int i = 0; i < 8; i++) CHECK(!llm_request_run(e, r[i]));
        llm_engine_get_stats(e, &stats);
        CHECK(stats.accepted_tokens == stats.draft_tokens && stats.draft_tokens > 100);
        CHECK(e->drafter.eagle == (path != draft));
        CHECK(round % 2 ? stats.cached_tokens > 0 : stats.preemptions > 0);
        for (int i = 0; i < 8; i++) llm_request_free(r[i]);
        llm_engine_close(e);
    }
    llm_model_close(m);
}

/* ---- EAGLE ---- */

enum {
    EAGLE_D = 96,
    EAGLE_H = 6,
    EAGLE_K = 2,
    EAGLE_HD = 16,
    EAGLE_FF = 40,
    EAGLE_KV = EAGLE_K * EAGLE_HD,
    EAGLE_VOCAB = 512,
    EAGLE_MOST = 160
};
/* RIGHT: it guesses what spec_echo says; NEAR: mostly. */
enum { EAGLE_LAB = 0, EAGLE_VLLM = 1, EAGLE_NORMS = 2, EAGLE_BIAS = 4, EAGLE_RIGHT = 8, EAGLE_NEAR = 16 };

/* A tensor of a head: its name without what a layout puts before it, and its place among the head's numbers. */
typedef struct spec_tensor {
    const char *name;
    int rows, cols, kinds; /* cols 0: a vector; kinds: not 0: only where one of these is asked for */
} spec_tensor;

/* clang-format off */
static const spec_tensor spec_head[] = {{"fc.weight", EAGLE_D, 2 * EAGLE_D, 0}, {"fc.bias", EAGLE_D, 0, EAGLE_BIAS}, {"layers.0.self_attn.q_proj.weight", EAGLE_D, EAGLE_D, 0},
    {"layers.0.self_attn.k_proj.weight", EAGLE_KV, EAGLE_D, 0}, {"layers.0.self_attn.v_proj.weight", EAGLE_KV, EAGLE_D, 0}, {"layers.0.self_attn.q_proj.bias", EAGLE_D, 0, EAGLE_BIAS},
    {"layers.0.self_attn.k_proj.bias", EAGLE_KV, 0, EAGLE_BIAS}, {"layers.0.self_attn.v_proj.bias", EAGLE_KV, 0, EAGLE_BIAS},
    {"layers.0.self_attn.o_proj.weight", EAGLE_D, EAGLE_D, 0}, {"layers.0.post_attention_layernorm.weight", EAGLE_D, 0, 0}, {"layers.0.mlp.gate_proj.weight", EAGLE_FF, EAGLE_D, 0},
    {"layers.0.mlp.up_proj.weight", EAGLE_FF, EAGLE_D, 0}, {"layers.0.mlp.down_proj.weight", EAGLE_D, EAGLE_FF, 0}, {"layers.0.input_layernorm.weight", EAGLE_D, 0, EAGLE_NORMS},
    {"norm.weight", EAGLE_D, 0, EAGLE_NORMS | EAGLE_RIGHT}, {"embed_tokens.weight", EAGLE_VOCAB, EAGLE_D, EAGLE_VLLM}};
/* clang-format on */
enum { FC, FC_BIAS, HQ, HK, HV, HQ_BIAS, HK_BIAS, HV_BIAS, HO, HPOST, HGATE, HUP, HDOWN, HPRE, HNORM, HEMBED, H_TENSORS };

/* A head's numbers; NULL: it has no such tensor. */
typedef struct spec_eagle {
    float *w[H_TENSORS];
    int kind;
} spec_eagle;

/* A head of random numbers in `folder`. The embedding that some heads carry must not be used: it is not the model's. */
static spec_eagle spec_eagle_make(const test_folder *folder, int kind, const char *config, uint64_t seed) {
    spec_eagle h;
    safe_file file = LLM__ZERO;
    memset(&h, 0, sizeof h);
    h.kind = kind;
    for (int i = 0; i < H_TENSORS; i++) {
        const spec_tensor *t = &spec_head[i];
        char name[128];
        int n = t->rows * (t->cols ? t->cols : 1), vllm = kind & EAGLE_VLLM && i != FC && i != FC_BIAS;
        if (t->kinds && !(t->kinds & kind)) continue;
        h.w[i] = LLM__NEW(float, n);
        for (int k = 0; k < n; k++) {
            float x = (float)(llm__mix(llm__mix(seed * 64 + (uint64_t)i) + (uint64_t)k) >> 40) / (1 << 23) - 1;
            h.w[i][k] = t->cols ? x * 3 / sqrtf((float)t->cols) : strstr(t->name, "norm") ? 1 + x / 2 : x / 2;
            if (kind & (EAGLE_RIGHT | EAGLE_NEAR))
                h.w[i][k] = i == FC ? k / t->cols == k % t->cols : i == HO || i == HDOWN ? 0 : i == HNORM ? 1 : h.w[i][k];
            if (kind & EAGLE_NEAR && (i == FC || i == HO)) h.w[i][k] += x / 60;
        }
        snprintf(name, sizeof name, "%s%s", vllm ? "model." : "", t->name);
        safe_add(&file, name, t->rows, t->cols, h.w[i]);
    }
    safe_write(&file, folder, "model.safetensors");
    folder_write_text(folder, "config.json", config);
    return h;
}

static void spec_eagle_free(spec_eagle *h) {
    for (int i = 0; i < H_TENSORS; i++) LLM_FREE(h->w[i]);
}

#define EAGLE_LAYER \
    "\"model_type\":\"llama\",\"hidden_size\":96,\"num_attention_heads\":6,\"num_key_value_heads\":2,\"intermediate_size\":40,\"num_hidden_layers\":1,\"rms_norm_eps\":1e-5,\"rope_theta\":5000,\"max_position_embeddings\":2048,\"vocab_size\":512"
static const char spec_lab[] = "{\"architectures\":[\"LlamaForCausalLM\"],\"bias\":true," EAGLE_LAYER "}";
static const char spec_vllm[] =
    "{\"architectures\":[\"EAGLEModel\"],\"model_type\":\"eagle\",\"truncated_vocab_size\":512,\"model\":{\"architectures\":[\"LlamaForCausalLM\"]," EAGLE_LAYER
    "}}";

/* out (rows) = w x + b. */
static void spec_product(const float *w, const float *b, const double *x, int rows, int cols, double *out) {
    for (int r = 0; r < rows; r++, w += cols) {
        double sum[4] = {b ? b[r] : 0};
        for (int c = 0; c < cols; c++) sum[c % 4] += (double)w[c] * x[c];
        out[r] = sum[0] + sum[1] + sum[2] + sum[3];
    }
}

static void spec_norm(const float *w, const double *x, double *out) {
    double sum = 0;
    for (int i = 0; i < EAGLE_D; i++) sum += x[i] * x[i];
    for (int i = 0; i < EAGLE_D; i++) out[i] = x[i] / sqrt(sum / EAGLE_D + 1e-5) * (double)w[i];
}

static void spec_rotate(double *x, int position) {
    for (int i = 0; i < EAGLE_HD / 2; i++) {
        double angle = position * pow(5000, -2.0 * i / EAGLE_HD), a = x[i], b = x[i + EAGLE_HD / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + EAGLE_HD / 2] = b * cos(angle) + a * sin(angle);
    }
}

/* The head, read plainly from the paper: token t at `position` behind the hidden state `before`, keys and values of all positions so far; the new hidden state. */
static void spec_eagle_layer(const spec_eagle *h, const float *embedding, const double *before, int position, double (*keys)[EAGLE_KV],
                             double (*values)[EAGLE_KV], double *out) {
    double both[2 * EAGLE_D], x[EAGLE_D], in[EAGLE_D], q[EAGLE_D], att[EAGLE_D], y[EAGLE_D], gate[EAGLE_FF], up[EAGLE_FF], p[EAGLE_MOST];
    for (int i = 0; i < EAGLE_D; i++) both[i] = (double)embedding[i], both[EAGLE_D + i] = before[i];
    spec_product(h->w[FC], h->w[FC_BIAS], both, EAGLE_D, 2 * EAGLE_D, x);
    if (!position) memset(x, 0, sizeof x);
    memcpy(in, x, sizeof in);
    if (h->w[HPRE]) spec_norm(h->w[HPRE], x, in);
    spec_product(h->w[HQ], h->w[HQ_BIAS], in, EAGLE_D, EAGLE_D, q);
    spec_product(h->w[HK], h->w[HK_BIAS], in, EAGLE_KV, EAGLE_D, keys[position]);
    spec_product(h->w[HV], h->w[HV_BIAS], in, EAGLE_KV, EAGLE_D, values[position]);
    for (int i = 0; i < EAGLE_K; i++) spec_rotate(keys[position] + i * EAGLE_HD, position);
    for (int head = 0; head < EAGLE_H; head++) {
        double sum = 0, *own = q + head * EAGLE_HD;
        int kv = head / (EAGLE_H / EAGLE_K) * EAGLE_HD;
        spec_rotate(own, position);
        for (int j = 0; j <= position; j++) {
            p[j] = 0;
            for (int i = 0; i < EAGLE_HD; i++) p[j] += own[i] * keys[j][kv + i];
            sum += p[j] = exp(p[j] / sqrt(EAGLE_HD));
        }
        for (int i = 0; i < EAGLE_HD; i++) {
            att[head * EAGLE_HD + i] = 0;
            for (int j = 0; j <= position; j++) att[head * EAGLE_HD + i] += p[j] / sum * values[j][kv + i];
        }
    }
    spec_product(h->w[HO], NULL, att, EAGLE_D, EAGLE_D, y);
    for (int i = 0; i < EAGLE_D; i++) x[i] += y[i];
    spec_norm(h->w[HPOST], x, in);
    spec_product(h->w[HGATE], NULL, in, EAGLE_FF, EAGLE_D, gate);
    spec_product(h->w[HUP], NULL, in, EAGLE_FF, EAGLE_D, up);
    for (int i = 0; i < EAGLE_FF; i++) up[i] *= gate[i] / (1 + exp(-gate[i]));
    spec_product(h->w[HDOWN], NULL, up, EAGLE_D, EAGLE_FF, y);
    for (int i = 0; i < EAGLE_D; i++) x[i] += y[i];
    if (h->w[HNORM]) spec_norm(h->w[HNORM], x, out);
    else memcpy(out, x, sizeof x);
}

/* What the drafts are compared with: the head, the model's embedding and output layer, and an engine without drafts that tells hidden states. */
static struct {
    spec_eagle head;
    float *embed, *out; /* (EAGLE_VOCAB, EAGLE_D) */
    llm_engine *plain;
    int compared, wrong;
} spec_truth;

static float *spec_matrix(const llm_model *m, const char *name) {
    const llm__tensor *t = llm__tensors_find(&m->source.tensors, name);
    float *x = LLM__NEW(float, EAGLE_VOCAB *EAGLE_D);
    for (int r = 0; r < EAGLE_VOCAB && CHECK(t && t->shape[1] == EAGLE_D); r++)
        llm__dequant_columns(t->type, t->data + r * llm__row_bytes(t->type, EAGLE_D), 0, EAGLE_D, x + r * EAGLE_D);
    return x;
}

/* The model's last hidden state behind n tokens. */
static void spec_hidden(const int32_t *ids, int n, double *f) {
    llm_request_config q;
    llm_request *r;
    int32_t width;
    memset(&q, 0, sizeof q);
    q.prompt_ids = ids, q.n_prompt_ids = (size_t)n, q.pooling = LLM_POOLING_LAST;
    if (!CHECK(!llm_request_submit(spec_truth.plain, &q, &r) && !llm_request_run(spec_truth.plain, r))) return;
    const float *x = llm_request_embedding(r, &width);
    for (int i = 0; i < EAGLE_D && CHECK(x && width == EAGLE_D); i++) f[i] = (double)x[i];
    llm_request_free(r);
}

/* The hidden states of a request's first n tokens. */
typedef struct spec_states {
    int n;
    double f[EAGLE_MOST][EAGLE_D];
} spec_states;

/* The engine's drafts, and beside them those of the plain computation. */
static void spec_eagle_draft(llm_engine *ctx, llm__seq *const *seq, int32_t n) {
    static double keys[EAGLE_MOST][EAGLE_KV], values[EAGLE_MOST][EAGLE_KV], zero[EAGLE_D], logits[EAGLE_VOCAB];
    llm__drive_draft(ctx, seq, n);
    for (int32_t i = 0; i < n; i++) {
        const llm__seq *s = seq[i];
        spec_states *known = (spec_states *)s->request->user;
        double(*f)[EAGLE_D] = known->f;
        if (!s->draft.n) continue;
        for (; known->n + 1 < s->n_ids; known->n++) spec_hidden(s->ids, known->n + 1, f[known->n]);
        for (int at = 0; at < s->n_ids + s->draft.n - 1; at++) {
            int32_t id = at < s->n_ids ? s->ids[at] : s->draft.ids[at - s->n_ids], best = 0;
            double mine[EAGLE_D];
            spec_eagle_layer(&spec_truth.head, spec_truth.embed + id * EAGLE_D, at ? f[at - 1] : zero, at, keys, values, mine);
            if (at < s->n_ids - 1) continue;
            memcpy(f[at], mine, sizeof mine);
            spec_product(spec_truth.out, NULL, mine, EAGLE_VOCAB, EAGLE_D, logits);
            for (int k = 1; k < EAGLE_VOCAB; k++) best = logits[k] > logits[best] ? k : best;
            int32_t said = s->draft.ids[at + 1 - s->n_ids];
            spec_truth.compared++;
            spec_truth.wrong += said != best && logits[said] < logits[best] - 1e-3;
        }
    }
}

/* Every drafted token of heads of all kinds is that of the plain computation: behind cached pages, chunked prompts and drafts that were right or wrong, and
 * when pages are taken away; on two ranks, too. */
static void spec_test_eagle(const char *path, const test_folder *folder, int near) {
    /* clang-format off */
    static const struct { int kind; const char *config; int lab, ranks; } rows[] = {{EAGLE_LAB, spec_lab, 0, 1}, {EAGLE_BIAS, spec_lab, 0, 2}, {EAGLE_VLLM, spec_vllm, 0, 1},
        {EAGLE_VLLM | EAGLE_NORMS | EAGLE_BIAS, spec_vllm, 0, 2}, {EAGLE_VLLM | EAGLE_NORMS, spec_vllm, 1, 1}, {EAGLE_VLLM | EAGLE_NEAR, spec_vllm, 0, 1}};
    /* clang-format on */
    llm_engine_config c;
    llm_model *m;
    if (!CHECK(!llm_model_open(path, NULL, &m))) return;
    memset(&c, 0, sizeof c);
    c.n_threads = 1, c.max_model_len = 128, c.max_num_seqs = 3, c.block_size = 16, c.dtype = LLM_COMPUTE_F32;
    spec_truth.embed = spec_matrix(m, "model.embed_tokens.weight"), spec_truth.out = spec_matrix(m, "lm_head.weight");
    if (!CHECK(!llm_engine_open(m, &c, &spec_truth.plain))) return;
    c.speculative_model = folder->path, c.num_speculative_tokens = 4, c.max_num_batched_tokens = 12;
    for (int k = near ? LLM__COUNT(rows) - 1 : 0; k < LLM__COUNT(rows) - !near; k += TEST_BRIEF ? 2 : 1) {
        llm_engine *e;
        llm_engine_stats stats;
        llm_request *r[4];
        static spec_states states[4];
        memset(states, 0, sizeof states);
        spec_truth.head = spec_eagle_make(folder, rows[k].kind, rows[k].config, (uint64_t)k + 1);
        for (int i = 0; i < 2 && rows[k].lab; i++)
            LLM_FREE(spec_truth.head.w[i ? HNORM : HPRE]), spec_truth.head.w[i ? HNORM : HPRE] = NULL;
        spec_truth.compared = spec_truth.wrong = 0;
        c.eagle_lab_style = rows[k].lab, c.tensor_parallel_size = rows[k].ranks, c.num_gpu_blocks = k % 2 ? 8 : 40,
        c.preemption_swap = k > 1;
        if (!CHECK(!llm_engine_open(m, &c, &e))) break;
        CHECK(e->drafter.eagle && e->p.driver.draft == llm__drive_draft);
        e->p.driver.draft = spec_eagle_draft;
        e->p.driver.now = spec_no_time;
        for (int i = 0; i < 4; i++) {
            int32_t prompt[40];
            llm_request_config q;
            memset(&q, 0, sizeof q);
            for (int j = 0; j < 40; j++) prompt[j] = 5 + (int32_t)(llm__mix((uint64_t)(j < 18 ? j : j + 100 * i)) % 300);
            q.prompt_ids = prompt, q.n_prompt_ids = i == 3 ? 1 : 22 + 4 * (size_t)i, q.sampling.ignore_eos = 1,
            q.sampling.max_tokens = k % 2 ? 40 : 24;
            q.user = &states[i];
            CHECK(!llm_request_submit(e, &q, &r[i]));
            for (int j = 0; j < (k % 2 ? 4 : 12); j++) CHECK(!llm_engine_step(e, NULL));
        }
        for (int i = 0; i < 4; i++) CHECK(!llm_request_run(e, r[i])), llm_request_free(r[i]);
        llm_engine_get_stats(e, &stats);
        CHECK(!near || (stats.accepted_tokens > stats.draft_tokens / 5 && stats.accepted_tokens < stats.draft_tokens * 9 / 10));
        CHECK(spec_truth.compared > (near ? 60 : 150) && !spec_truth.wrong && stats.cached_tokens > 0 &&
              (near || k % 2 == 0 || stats.preemptions > 0));
        printf("EAGLE head of kind %d, %d ranks: %d drafted tokens as computed plainly, %d others; %lld kept, %lld preemptions\n",
               rows[k].kind, rows[k].ranks, spec_truth.compared - spec_truth.wrong, spec_truth.wrong, (long long)stats.accepted_tokens,
               (long long)stats.preemptions);
        llm_engine_close(e);
        spec_eagle_free(&spec_truth.head);
    }
    LLM_FREE(spec_truth.embed);
    LLM_FREE(spec_truth.out);
    llm_engine_close(spec_truth.plain);
    llm_model_close(m);
}

/* A copy of the model whose layers add nothing, with a final norm of ones: what comes next follows from the token alone, so a head of kind RIGHT knows it. */
static void spec_echo(const char *path, const test_folder *folder) {
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"};
    llm_model *m;
    if (!CHECK(!llm_model_open(path, NULL, &m))) return;
    for (int i = 0; i < 4; i++) {
        char from[512];
        llm__file f;
        snprintf(from, sizeof from, "%s/%s", path, files[i]);
        if (!CHECK(!llm__file_open(from, 0, 1, &f))) return;
        uint8_t *copy = (uint8_t *)malloc(f.size);
        memcpy(copy, f.data, f.size);
        for (size_t t = 0; t < m->source.tensors.n && i == 3; t++) {
            const llm__tensor *x = &m->source.tensors.item[t];
            uint8_t *to = copy + (x->data - m->source.files[0].data);
            if (strstr(x->name.p, "o_proj") || strstr(x->name.p, "down_proj")) memset(to, 0, (size_t)x->bytes);
            for (int64_t k = 0; k < x->bytes && !strcmp(x->name.p, "model.norm.weight"); k += 2) to[k] = 0x80, to[k + 1] = 0x3F;
        }
        folder_write(folder, files[i], copy, f.size);
        free(copy);
        llm__file_close(&f);
    }
    llm_model_close(m);
}

/* What the model answers with a draft head, whose config is `config`; 0: the head was refused. */
static int spec_mutant(llm_model *m, const test_folder *folder, const char *config, const llm_engine_config *c, int32_t *out) {
    static const int32_t prompt[] = {5, 17, 300, 44, 5, 17};
    llm_engine *e = NULL;
    llm_request *r = NULL;
    llm_request_config q;
    llm_output o;
    folder_write_text(folder, "config.json", config);
    if (llm_engine_open(m, c, &e)) return CHECK(!e && strlen(llm_last_error()) > 10), 0;
    memset(&q, 0, sizeof q);
    q.prompt_ids = prompt, q.n_prompt_ids = 6, q.sampling.max_tokens = 8, q.sampling.ignore_eos = 1;
    CHECK(!llm_request_submit(e, &q, &r) && !llm_request_run(e, r) && !llm_request_get_output(r, 0, &o) && o.n_token_ids == 8);
    memcpy(out, o.token_ids, 8 * sizeof *out);
    llm_request_free(r);
    llm_engine_close(e);
    return 1;
}

/* A head's tensors as they stand elsewhere. */
static void spec_copy(const char *from, const test_folder *folder) {
    llm__file f = LLM__ZERO;
    if (CHECK(!llm__file_open(from, 1 << 24, 1, &f))) folder_write(folder, "model.safetensors", (const char *)f.data, f.size);
    llm__file_close(&f);
}

/* Configs of heads by strangers: each value another one, and the text cut anywhere. A head is refused with a sentence, or it guesses, and what is
 * guessed changes no answer. */
static void spec_test_mutants(const char *path, const test_folder *folder) {
    static const char *const values[] = {"-1",  "0",     "1",    "7",    "97",    "1e9", "2147483648",
                                         "0.5", "1e400", "null", "true", "\"x\"", "[]",  "{}"};
    static const char third[] = /* of head_eagle3 */
        "{\"architectures\":[\"LlamaForCausalLMEagle3\"],\"draft_vocab_size\":160,\"hidden_size\":96,\"intermediate_size\":120,\"max_position_"
        "embeddings\":2048,\"model_type\":\"llama\",\"num_attention_heads\":4,\"num_hidden_layers\":1,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-5,"
        "\"rope_theta\":20000,\"vocab_size\":512,\"eagle_config\":{\"use_aux_hidden_state\":true,\"norm_before_residual\":false}}";
    static const char *const configs[] = {spec_lab, spec_vllm, third};
    llm_engine_config c;
    llm_model *m;
    int32_t plain[8], got[8];
    int refused = 0, opened = 0;
    if (!CHECK(!llm_model_open(path, NULL, &m))) return;
    memset(&c, 0, sizeof c);
    c.n_threads = 1, c.max_model_len = 64, c.max_num_seqs = 1, c.num_gpu_blocks = 8;
    CHECK(spec_mutant(m, folder, "{}", &c, plain));
    c.speculative_model = folder->path, c.num_speculative_tokens = 3;
    for (int k = 0; k < LLM__COUNT(configs); k++) {
        spec_eagle h = spec_eagle_make(folder, k ? EAGLE_VLLM : EAGLE_LAB, configs[k], 9);
        const char *text = configs[k];
        if (k == 2) spec_copy(TEST_CHECKPOINT("head_eagle3") "/model.safetensors", folder);
        char config[1024];
        for (const char *at = strchr(text, ':'); at; at = strchr(at + 1, ':')) {
            const char *behind = at + 1 + strcspn(at + 1, ",}");
            for (int v = 0; v < LLM__COUNT(values) && at[1] != '{' && at[1] != '['; v += TEST_BRIEF ? 3 : 1) {
                snprintf(config, sizeof config, "%.*s%s%s", (int)(at + 1 - text), text, values[v], behind);
                const int ok = spec_mutant(m, folder, config, &c, got);
                opened += ok, refused += !ok;
                CHECK(!ok || !memcmp(got, plain, sizeof plain));
            }
        }
        for (size_t n = 0; n < strlen(text); n += TEST_BRIEF ? 5 : 1) {
            snprintf(config, sizeof config, "%.*s", (int)n, text);
            CHECK(!spec_mutant(m, folder, config, &c, got));
        }
        CHECK(spec_mutant(m, folder, text, &c, got) && !memcmp(got, plain, sizeof plain));
        spec_eagle_free(&h);
    }
    CHECK(refused > (TEST_BRIEF ? 30 : 100) && opened > (TEST_BRIEF ? 6 : 20));
    printf("configs of heads: %d refused, %d guess\n", refused, opened);
    llm_model_close(m);
}

/* Heads that do not fit, each with its sentence. */
static void spec_test_eagle_bad(const char *path, const test_folder *folder) {
    /* clang-format off */
    static const struct { const char *from, *to, *said; } rows[] = {{"\"num_hidden_layers\":1", "\"num_hidden_layers\":2", "2 layers"}, {"\"hidden_size\":96", "\"hidden_size\":48", "hidden size 48"},
        {"EAGLEModel", "Eagle3LlamaForCausalLM", "fc.weight has shape (96, 192), (96, 288) expected"}, {"\"intermediate_size\":40", "\"intermediate_size\":41", "mlp.gate_proj.weight has shape (40, 96), (41, 96) expected"},
        {"\"num_attention_heads\":6", "\"num_attention_heads\":0", "num_attention_heads"}, {"\"model_type\":\"llama\"", "\"model_type\":\"gpt2\"", "kind gpt2"}};
    /* clang-format on */
    llm_engine_config c;
    llm_engine *e;
    llm_model *m;
    char config[1024];
    memset(&c, 0, sizeof c);
    c.n_threads = 1, c.max_model_len = 64, c.num_speculative_tokens = 3, c.speculative_model = folder->path;
    if (!CHECK(!llm_model_open(path, NULL, &m))) return;
    spec_eagle h = spec_eagle_make(folder, EAGLE_VLLM, spec_vllm, 1);
    spec_eagle_free(&h);
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        const char *at = strstr(spec_vllm, rows[i].from);
        snprintf(config, sizeof config, "%.*s%s%s", (int)(at - spec_vllm), spec_vllm, rows[i].to, at + strlen(rows[i].from));
        folder_write_text(folder, "config.json", config);
        if (!CHECK(llm_engine_open(m, &c, &e) && !e && strstr(llm_last_error(), rows[i].said)))
            printf("%s: %s\n", rows[i].to, llm_last_error());
    }
    const char *gone = folder_file(folder, "model.safetensors"), *pickle = folder_file(folder, "pytorch_model.bin");
    CHECK(!rename(gone, pickle));
    CHECK(llm_engine_open(m, &c, &e) == LLM_ERR_FORMAT && strstr(llm_last_error(), "pytorch_model.bin: no file of torch.save"));
    CHECK(!rename(pickle, gone));
    llm_model_close(m);
}

/* All of it, in folders of their own. */
static void spec_test_eagles(const char *path) {
    test_folder head, echo;
    if (!folder_open(&head) || !folder_open(&echo)) return;
    spec_test_eagle(path, &head, 0);
    spec_echo(path, &echo);
    spec_test_eagle(echo.path, &head, 1);
    spec_eagle h = spec_eagle_make(&head, EAGLE_VLLM | EAGLE_RIGHT, spec_vllm, 9);
    spec_test_same(echo.path, head.path);
    spec_test_equal(echo.path, head.path, TEST_BRIEF ? 12 : 60, 12); /* right but for what rules change */
    spec_eagle_free(&h);
    h = spec_eagle_make(&head, EAGLE_BIAS, spec_lab, 3);
    spec_test_equal(path, head.path, TEST_BRIEF ? 12 : 150, 12); /* mostly wrong */
    spec_eagle_free(&h);
    spec_test_eagle_bad(path, &head);
    spec_test_mutants(path, &head);
    folder_close(&head);
    folder_close(&echo);
}

/* Draft models that are none. */
static void spec_test_strangers(const char *path) {
    llm_engine_config c;
    llm_engine *e;
    llm_model *m;
    memset(&c, 0, sizeof c);
    c.n_threads = 1, c.max_model_len = 64, c.num_speculative_tokens = 5, c.speculative_model = "/no/such/model";
    if (!CHECK(!llm_model_open(path, NULL, &m))) return;
    CHECK(llm_engine_open(m, &c, &e) == LLM_ERR_IO && !e && strstr(llm_last_error(), "/no/such/model"));
    c.speculative_model = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (test_exists(c.speculative_model))
        CHECK(llm_engine_open(m, &c, &e) == LLM_ERR_ARG && !e && strstr(llm_last_error(), "same tokenizer"));
    c.speculative_model = path, c.num_speculative_tokens = 33;
    CHECK(llm_engine_open(m, &c, &e) == LLM_ERR_ARG && strstr(llm_last_error(), "33"));
    llm_model_close(m);
}

TEST_GROUP(speculate) {
    static const char path[] = TEST_CHECKPOINT("llama");
    spec_test_lookup();
    spec_test_length();
    spec_test_config();
    spec_test_distribution();
    spec_test_masks_ahead();
    if (!test_made(path, "checkpoints")) return;
    spec_test_same(path, path);
    spec_test_eagles(path);
    spec_test_forced(path);
    spec_test_forced(TEST_CHECKPOINT("qwen3"));
    spec_test_jumps(path, NULL);
    spec_test_jumps(path, "[ngram]");
    spec_test_jumps(path, path);
    spec_test_jumps(TEST_CHECKPOINT("qwen3_next"), "[ngram]");
    spec_test_behind(path);
    spec_test_masked(path);
    spec_test_strangers(path);
    spec_test_greedy(path);
    spec_test_equal(path, "[ngram]", TEST_BRIEF ? 25 : 600, 12);
    spec_test_equal(path, path, TEST_BRIEF ? 12 : 510, 12);
    spec_test_equal(path, TEST_CHECKPOINT("gemma2"), TEST_BRIEF ? 12 : 60, 12);            /* mostly wrong */
    spec_test_equal(TEST_CHECKPOINT("gemma3_text"), "[ngram]", TEST_BRIEF ? 12 : 120, 14); /* windows */
    spec_test_equal(TEST_CHECKPOINT("deepseek_v2_lite"), path, TEST_BRIEF ? 12 : 120, 14); /* latent attention, experts */
    spec_test_equal(path, TEST_CHECKPOINT("deepseek_v2_lite"), 30, 14);
    spec_test_equal(TEST_CHECKPOINT("qwen3_5"), "[ngram]", TEST_BRIEF ? 25 : 400, 14); /* states: what is kept is fed again */
    spec_test_equal(TEST_CHECKPOINT("mamba2"), "[ngram]", TEST_BRIEF ? 12 : 150, 14);
    spec_test_equal(TEST_CHECKPOINT("lfm2"), path, TEST_BRIEF ? 12 : 60, 14);
}
