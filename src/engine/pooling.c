#include "engine/pooling.h"
#include "api/config.h"
#include "api/engine.h"
#include "api/request.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "cpu/kernels.h"
#include "model/modules.h"
#include "model/pooler.h"
#include "model/net.h"
#include "engine/scheduler.h"

LLM__PRIVATE llm_result llm__pooling_submit(llm_request *r, const llm_request_config *cfg, size_t n) {
    const llm_engine *e = r->engine;
    const llm__pooler *p = e->p.pooler;
    const char *path = e->p.model ? e->p.model->path : "the model";
    const int32_t n_types = e->p.model ? LLM__MAX(e->p.model->arch.n_types, 1) : 1;
    if (cfg->pooling < LLM_POOLING_NONE || cfg->pooling > LLM_POOLING_SCORE)
        return llm__error(LLM_ERR_ARG, "pooling: %d, must be 0 to %d", (int)cfg->pooling, LLM_POOLING_SCORE);
    if (e->p.encoder && !cfg->pooling)
        return llm__error(LLM_ERR_UNSUPPORTED,
                          "%s is an encoder, which gives vectors of texts and no answers: an embedding or a score was expected", path);
    r->pooling.kind = cfg->pooling;
    r->pooling.scores = cfg->pooling == LLM_POOLING_SCORE;
    if (r->pooling.scores && !(p && p->n_labels))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s has no classifier: a reranker of BERT's kind was expected", path);
    if (r->pooling.scores) r->pooling.kind = p->class_kind;
    if (cfg->pooling == LLM_POOLING_OWN) r->pooling.kind = p ? p->kind : LLM_POOLING_LAST;
    if (!cfg->prompt_types) return LLM_OK;
    if (cfg->prompt) return llm__error(LLM_ERR_ARG, "prompt_types: beside a text; they go with prompt_ids");
    for (size_t i = 0; i < n; i++)
        if (cfg->prompt_types[i] < 0 || cfg->prompt_types[i] >= n_types)
            return llm__error(LLM_ERR_ARG, "prompt_types: entry %zu is %d, %s has kinds of tokens below %d", i, (int)cfg->prompt_types[i],
                              path, (int)n_types);
    r->pooling.types = (uint16_t *)llm__arena_get(&r->arena, n * sizeof *r->pooling.types);
    for (size_t i = 0; i < n && r->pooling.types; i++) r->pooling.types[i] = (uint16_t)cfg->prompt_types[i];
    return r->pooling.types ? LLM_OK : llm__nomem();
}

LLM__PRIVATE llm_result llm__pooling_room(llm_request *r, size_t n) {
    const size_t size = (size_t)r->engine->p.hidden, wide = r->engine->p.pooler ? (size_t)r->engine->p.pooler->wide : size;
    r->pooling.sum = (double *)llm__arena_get(&r->arena, size * sizeof *r->pooling.sum + 2 * wide * sizeof *r->pooling.embedding);
    r->pooling.embedding = r->pooling.sum ? (float *)(r->pooling.sum + size) : NULL;
    r->prompt.score_from = r->pooling.kind == LLM_POOLING_LAST ? (int32_t)n - 1 : 0;
    r->prompt.score_end = r->pooling.kind == LLM_POOLING_FIRST ? 1 : (int32_t)n;
    return r->pooling.sum ? LLM_OK : llm__nomem();
}

LLM__PRIVATE void llm__pooling_type(llm_engine *e, const llm__seq *s, int32_t at, int32_t row) {
    const uint16_t *types = s->request->pooling.types;
    if (!e->p.pooler || !e->p.pooler->types) return;
    e->step.given[row] = e->p.pooler->types + (size_t)(types && at < s->n_prompt ? types[at] : 0) * (size_t)e->p.hidden;
    e->step.any_given = 1;
}

/* What a dense layer does with each of its values. */
static float llm__dense_value(llm__dense_act act, float x) {
    switch (act) {
    case LLM__DENSE_TANH: return tanhf(x);
    case LLM__DENSE_RELU: return x > 0 ? x : 0;
    case LLM__DENSE_GELU: return 0.5f * x * (1 + erff(x * 0.70710678f));
    case LLM__DENSE_SIGMOID: return 1 / (1 + expf(-x));
    case LLM__DENSE_SILU: return x / (1 + expf(-x));
    default: return x;
    }
}

/* Computes in x (wide), which holds the pooled state (D); scratch (wide). Returns how many values x has then. scores: the classifier's. */
static int32_t llm__pooling_run(const llm__pooler *p, const llm__kernels *k, int scores, float *x, float *scratch) {
    const llm__dense *list = scores ? p->classes : p->dense;
    int32_t n = list[0].in;
    for (int i = 0; i < (scores ? p->n_class : p->n_dense); i++) {
        const llm__dense *d = &list[i];
        double mean = 0, square = 0;
        n = d->out;
        for (int32_t r = 0; r < n; r++)
            scratch[r] = llm__dense_value(d->act, k->dot(d->w + (int64_t)r * d->in, x, d->in) + (d->b ? d->b[r] : 0));
        for (int32_t r = 0; r < n; r++) mean += (double)scratch[r] / n;
        for (int32_t r = 0; r < n; r++) square += ((double)scratch[r] - mean) * ((double)scratch[r] - mean) / n;
        for (int32_t r = 0; r < n; r++) {
            x[r] = scratch[r];
            if (!d->norm) continue;
            x[r] = (float)(((double)x[r] - mean) / sqrt(square + (double)d->eps)) * d->norm[r] + (d->norm_b ? d->norm_b[r] : 0);
        }
    }
    return scores || p->n_dense ? n : p->size;
}

LLM__PRIVATE int llm__pooling_row(llm_engine *e, llm_request *r, const llm__job *job) {
    const float *row = llm__net_hidden(e->net, job->out_row);
    const llm__pooler *p = e->p.pooler;
    float *x = r->pooling.embedding;
    double finite = 0;
    for (int32_t i = 0; i < e->p.hidden; i++) {
        r->pooling.sum[i] += (double)row[i];
        finite += (double)(row[i] - row[i]);
    }
    if (job->scored < r->prompt.score_end) return finite == 0;
    for (int32_t i = 0; i < e->p.hidden; i++) x[i] = (float)(r->pooling.sum[i] / (r->prompt.score_end - r->prompt.score_from));
    r->pooling.size = p ? llm__pooling_run(p, e->scratch[0].kernels, r->pooling.scores, x, x + p->wide) : e->p.hidden;
    for (int32_t i = 0; i < r->pooling.size; i++) finite += (double)(x[i] - x[i]);
    return finite == 0;
}
