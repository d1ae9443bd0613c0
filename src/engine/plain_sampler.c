#include "engine/plain_sampler.h"
#include "api/sampler.h"
#include "api/request.h"
#include "api/raw.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "engine/sampler.h"

enum { LLM__SHOWN = 10 }; /* of the likeliest, with each step */

typedef struct llm__choosing {
    llm_token_logprob *token; /* (n) that are left, the likeliest first; `logprob` is a logit */
    int32_t n;
    double sum; /* of exp(logit - the first one's) of those that are left */
    llm_sample_fn fn;
    void *user;
} llm__choosing;

static int llm__likelier(const void *a, const void *b) {
    const llm_token_logprob *x = (const llm_token_logprob *)a, *y = (const llm_token_logprob *)b;
    return x->logprob != y->logprob ? (x->logprob < y->logprob ? 1 : -1) : (x->id > y->id) - (x->id < y->id);
}

/* exp of a logit, by the first one's: 1 for that. Its share of what is left is this by c->sum. */
static double llm__weight_of(const llm__choosing *c, int32_t i) { return exp((double)c->token[i].logprob - (double)c->token[0].logprob); }

/* Counts anew what is left, and tells. */
static void llm__choosing_told(llm__choosing *c, const char *name, double value) {
    llm_token_logprob top[LLM__SHOWN];
    llm_sample_step step = {name, value, c->n, LLM__MIN(c->n, LLM__SHOWN), top};
    c->sum = 0;
    for (int32_t i = 0; i < c->n; i++) c->sum += llm__weight_of(c, i);
    for (int32_t i = 0; i < step.n_top; i++) {
        top[i].id = c->token[i].id;
        top[i].logprob = (float)log(llm__weight_of(c, i) / c->sum);
    }
    if (c->fn) c->fn(c->user, &step);
}

/* All tokens with their logits, sorted; those that are forbidden are left out. */
static void llm__choosing_fill(llm__choosing *c, const float *x, int32_t n) {
    c->n = 0;
    for (int32_t i = 0; i < n; i++)
        if (x[i] > -INFINITY) c->token[c->n].id = i, c->token[c->n++].logprob = x[i];
    qsort(c->token, (size_t)c->n, sizeof *c->token, llm__likelier);
}

/* min_p, top_k and top_p cut the list off at its end. */
static void llm__choosing_cut(llm__choosing *c, const llm_sampling *s) {
    int32_t n = 0;
    if (s->min_p > 0) {
        while (n < c->n && llm__weight_of(c, n) >= (double)s->min_p) n++;
        c->n = n;
        llm__choosing_told(c, "min_p", (double)s->min_p);
    }
    if (s->top_k > 0) {
        for (n = LLM__MIN(s->top_k, c->n); n < c->n && c->token[n].logprob == c->token[n - 1].logprob;) n++;
        c->n = n;
        llm__choosing_told(c, "top_k", s->top_k);
    }
    if (s->top_p > 0 && s->top_p < 1) {
        double before = 0;
        for (n = 0; n < c->n && before < (double)s->top_p * c->sum; n++) before += llm__weight_of(c, n);
        c->n = LLM__MAX(n, 1);
        llm__choosing_told(c, "top_p", (double)s->top_p);
    }
}

static int llm__by_id(const void *a, const void *b) {
    const llm_token_logprob *x = (const llm_token_logprob *)a, *y = (const llm_token_logprob *)b;
    return (x->id > y->id) - (x->id < y->id);
}

/* The token on which u of [0, 1) falls. */
static int32_t llm__choosing_draw(llm__choosing *c, double u) {
    const double first = (double)c->token[0].logprob, target = u * c->sum;
    double at = 0;
    qsort(c->token, (size_t)c->n, sizeof *c->token, llm__by_id);
    for (int32_t i = 0; i < c->n; i++)
        if ((at += exp((double)c->token[i].logprob - first)) > target) return c->token[i].id;
    return c->token[c->n - 1].id;
}

/* What the rules do to the logits, in memory of their own. NULL: nothing. */
static float *llm__plain_rules(const float *row, int32_t n, const llm__rules *r) {
    float *x = LLM__NEW(float, n);
    if (!x) return NULL;
    memcpy(x, row, (size_t)n * sizeof *x);
    llm__rules_apply(r, x, n);
    return x;
}

LLM__PRIVATE int32_t llm__plain_sample(const float *row, int32_t n, const llm__rules *r, uint64_t seed, int64_t position, llm_sample_fn fn,
                                       void *user) {
    LLM__SCOPED(llm__drop) llm_token_logprob *token = LLM__NEW(llm_token_logprob, n);
    LLM__SCOPED(llm__drop) float *x = llm__plain_rules(row, n, r);
    llm__choosing c = {token, 0, 0, fn, user};
    for (int32_t i = 0; i < n; i++)
        if (!isfinite(row[i])) return -1;
    if (!token || !x) return -1;
    llm__choosing_fill(&c, row, n);
    llm__choosing_told(&c, "logits", 0);
    if (memcmp(x, row, (size_t)n * sizeof *x)) {
        llm__choosing_fill(&c, x, n);
        if (!c.n) return -1;
        llm__choosing_told(&c, "rules", 0);
    }
    const int greedy = r->s->temperature < 1e-5f;
    if (!greedy && r->s->temperature != 1) {
        for (int32_t i = 0; i < c.n; i++) c.token[i].logprob /= r->s->temperature;
        llm__choosing_told(&c, "temperature", (double)r->s->temperature);
    }
    if (!greedy) llm__choosing_cut(&c, r->s);
    const double u = greedy ? 0 : llm__uniform(seed, (uint64_t)position);
    const int32_t id = greedy ? c.token[0].id : llm__choosing_draw(&c, u);
    const llm_token_logprob drawn = {id, 0};
    const llm_sample_step step = {greedy ? "greedy" : "draw", u, 1, 1, &drawn};
    if (fn) fn(user, &step);
    return id;
}
