/* A bound on thoughts, token by token: when it is due, what it forces, when it lets go. (In the scheduler, beside a plain twin: test_sim.c.) */
#include "../test.h"
#include "base/platform.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/thoughts.h"

enum { THOUGHTS_VOCAB = 40, THOUGHTS_PROMPT = 2 };

/* Goes through an answer that the model would write ("a" to "z" are tokens 0 to 25), taking what is forced instead of its own token. */
static void thoughts_run(const llm_sampling *p, const char *own, const uint32_t *allowed, char *out) {
    llm_request r;
    llm__seq s;
    int32_t ids[64] = {7, 8};
    memset(&r, 0, sizeof r);
    memset(&s, 0, sizeof s);
    r.sampling = *p;
    s.request = &r, s.ids = ids, s.n_ids = s.n_prompt = THOUGHTS_PROMPT;
    llm__think_begin(&s);
    for (int i = 0; own[i]; i++) {
        uint32_t mask[(THOUGHTS_VOCAB + 31) / 32] = {~0u, ~0u};
        llm__rules rules;
        memset(&rules, 0, sizeof rules);
        rules.allowed = allowed;
        llm__think_narrow(&s, &rules, mask, LLM__COUNT(mask));
        int32_t id = own[i] - 'a';
        if (rules.allowed == mask) CHECK(mask[0] && !(mask[0] & (mask[0] - 1)) && !mask[1]), id = __builtin_ctz(mask[0]);
        ids[s.n_ids++] = id;
        out[i] = (char)('a' + id), out[i + 1] = 0;
        llm__think_note(&s);
    }
}

TEST_GROUP(thoughts) {
    static const int32_t open[] = {14}, close[] = {2, 11}; /* o; c l */
    static const struct {
        int budget, is_open, n_close;
        const char *own, *want;
    } rows[] = {{-1, 1, 2, "aaaaaaaa", "aaaaaaaa"}, {3, 1, 2, "aaaaaaaa", "aaaclaaa"},     {0, 1, 2, "aaaa", "claa"},
                {3, 0, 2, "aaaaaaaa", "aaaaaaaa"},  {2, 0, 2, "oaaaaaaa", "oaaclaaa"},     {2, 0, 2, "bboaaaaa", "bboaaclaa"},
                {3, 1, 2, "claaaaaa", "claaaaaa"},  {3, 1, 2, "aaclaaaa", "aaclaaaa"},     {3, 1, 2, "aacaaaaa", "aaclaaaa"},
                {3, 1, 1, "aaaaaa", "aaacaa"},      {1, 1, 2, "aaaaoaaaaa", "aclaoaaaaa"}, {2, 0, 1, "oacoaaaa", "oacoaaaa"}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_sampling p;
        char out[64];
        memset(&p, 0, sizeof p);
        p.thinking_tokens = rows[i].budget + 1, p.thinking_open = rows[i].is_open;
        p.think_open = open, p.n_think_open = 1, p.think_close = close, p.n_think_close = rows[i].n_close;
        thoughts_run(&p, rows[i].own, NULL, out);
        if (!CHECK(!strncmp(out, rows[i].want, strlen(rows[i].own)))) printf("  row %d: %s, %s expected\n", i, out, rows[i].want);
    }
    llm_sampling p;
    char out[64];
    const uint32_t no_close[2] = {~(1u << 2), ~0u}, all[2] = {~0u, ~0u};
    memset(&p, 0, sizeof p);
    p.thinking_tokens = 2, p.thinking_open = 1, p.think_close = close, p.n_think_close = 2;
    thoughts_run(&p, "aaaaa", no_close, out);
    CHECK(!strcmp(out, "aaaaa")); /* a grammar that has no place for the tag is stronger */
    thoughts_run(&p, "aaaaa", all, out);
    CHECK(!strcmp(out, "aclaa"));
}
