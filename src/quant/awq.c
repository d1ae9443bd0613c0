/* awq: scales of columns before rounding, and clipping, by activations.
 *
 * Of every column the mean size of its inputs and of its weights (as shares of their group's largest) are known; for each of 20 ratios r
 *
 *     s = inputs^r / weights^(1 - r)
 *
 * is tried, with all matrices that read the input, and the s that changes their outputs least is folded. Then each group's largest and
 * smallest values are shrunk by up to a half, where that changes the outputs less than cutting does. Queries and keys are not cut.
 *
 * In the public program (AutoAWQ) the error is that of the block's output, attention or MLP as a whole, over at most 512 tokens; here it
 * is that of the matrices' own outputs, as the paper has it, over all tokens, by their products (>>gram). s = 1 is tried as well, so the
 * search cannot lose to plain rounding by its own measure. Cutting is searched by products within a group only, as there.
 *
 * Where experts share a norm the search is over all of them and the shared one at once; columns that are never anything but 0 keep s = 1,
 * and s stays within 1e-4 and 1e4, so that norms in f16 hold what is folded into them.
 *
 * What it costs: a trial rounds all readers once (a few operations a weight) and multiplies what they lose with H, columns^2 * rows; there
 * are 21 of them. Cutting rounds ten times and multiplies with blocks of H on its diagonal. Both are shared out by rows. */
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/threads.h"
#include "cpu/kernels.h"
#include "quant/codes.h"
#include "quant/targets.h"
#include "quant/job.h"
#include "quant/gram.h"
#include "quant/methods.h"

enum { LLM__AWQ_RATIOS = 20, LLM__AWQ_SHRINKS = 10, LLM__AWQ_ROWS = 24 };

/* A matrix that is tried, or cut. */
typedef struct llm__awq_trial {
    const llm__gram *m;
    const llm__kernels *k;
    llm__rounded shape;
    float *w;
    const float *s; /* NULL: 1 */
    float *memory;  /* of each part: AWQ_ROWS + 1 rows of m->wide */
    double *error;  /* of each part */
} llm__awq_trial;

/* What rounding n values as a group, the largest cut by `shrink`, makes of them, less what they are; s NULL: as they are. */
static void llm__awq_differences(const llm__rounded *shape, const float *w, const float *s, int64_t n, float shrink, float *scaled,
                                 float *d) {
    const float most = (float)((1 << shape->bits) - 1);
    float scale;
    uint8_t zero;
    for (int64_t i = 0; i < n; i++) scaled[i] = s ? w[i] * s[i] : w[i];
    llm__scale_of(shape, scaled, 1, n, shrink, &scale, &zero);
    const float by = 1 / scale, z = (float)zero;
    for (int64_t i = 0; i < n; i++) d[i] = ((float)llm__code_of(scaled[i], by, z, most) - z) * scale;
    for (int64_t i = 0; i < n; i++) d[i] = (s ? d[i] / s[i] : d[i]) - w[i];
}

/* The rows of a part: what all columns together lose. */
static void llm__awq_try_part(void *arg, int pass, int part, int n_parts) {
    const llm__awq_trial *t = (const llm__awq_trial *)arg;
    const int64_t n = t->m->n, wide = t->m->wide, end = t->shape.rows * (part + 1) / n_parts;
    float *d = t->memory + (int64_t)part * (LLM__AWQ_ROWS + 1) * wide, *scaled = d + LLM__AWQ_ROWS * wide;
    double sum = 0;
    (void)pass;
    for (int64_t r = t->shape.rows * part / n_parts, some; r < end; r += some) {
        some = LLM__MIN((int64_t)LLM__AWQ_ROWS, end - r);
        for (int64_t i = 0; i < some; i++)
            for (int64_t g = 0; g < n; g += t->shape.group)
                llm__awq_differences(&t->shape, t->w + (r + i) * n + g, t->s ? t->s + g : NULL, LLM__MIN(t->shape.group, n - g), 1, scaled,
                                     d + i * wide + g);
        sum += llm__gram_error(t->m, t->k, d, some);
    }
    t->error[part] += sum;
}

/* Cuts the groups of a part's rows where that loses less. Only products of columns of the group count. */
static void llm__awq_clip_part(void *arg, int pass, int part, int n_parts) {
    const llm__awq_trial *t = (const llm__awq_trial *)arg;
    const int64_t n = t->m->n, wide = t->m->wide;
    float *scaled = t->memory + (int64_t)part * (LLM__AWQ_ROWS + 1) * wide, *d = scaled + wide;
    (void)pass;
    for (int64_t r = t->shape.rows * part / n_parts; r < t->shape.rows * (part + 1) / n_parts; r++)
        for (int64_t g = 0; g < n; g += t->shape.group) {
            const int64_t count = LLM__MIN(t->shape.group, n - g);
            float *w = t->w + r * n + g, least = INFINITY, best = 1, low = 0, high = 0;
            for (int i = 0; i < LLM__AWQ_SHRINKS; i++) {
                const float shrink = 1 - (float)i / (float)(2 * (int)LLM__AWQ_SHRINKS);
                float error = 0;
                llm__awq_differences(&t->shape, w, NULL, count, shrink, scaled, d);
                for (int64_t c = 0; c < count; c++) error += d[c] * t->k->dot(t->m->h + (g + c) * wide + g, d, (int)count);
                if (error < least) least = error, best = shrink;
            }
            for (int64_t c = 0; c < count; c++) low = LLM__MIN(low, w[c]), high = LLM__MAX(high, w[c]);
            for (int64_t c = 0; c < count && best < 1; c++) w[c] = LLM__MIN(LLM__MAX(w[c], low * best), high * best);
        }
}

/* The mean size of each column's weights, as a share of the largest of their group, over all readers. */
static void llm__awq_weights(llm__qjob *j, const llm__gram *m, double *mean) {
    double rows = 0;
    for (int64_t i = -1; (i = llm__readers_next(j, m, i)) >= 0 && !j->r;) {
        const llm__qplan_matrix *x = &j->plan.matrix[i];
        const llm__rounded shape = llm__qplan_rounded(&j->plan, x);
        const float *w = llm__qjob_values(j, x->t);
        for (int64_t r = 0; r < x->rows && w; r++)
            for (int64_t g = 0; g < x->cols; g += shape.group) {
                const int64_t end = LLM__MIN(g + shape.group, x->cols);
                float top = 0;
                for (int64_t c = g; c < end; c++) top = LLM__MAX(top, fabsf(w[r * x->cols + c]));
                for (int64_t c = g; c < end; c++) mean[c] += (double)(fabsf(w[r * x->cols + c]) / (top + 1e-6f));
            }
        rows += (double)x->rows;
    }
    for (int64_t c = 0; c < m->n; c++) mean[c] /= LLM__MAX(rows, 1);
}

/* s of a ratio, about 1. What is never anything but 0 stays as it is. */
static void llm__awq_scales(const llm__gram *m, const double *mean, double ratio, float *s) {
    double least = INFINITY, most = 0;
    for (int64_t c = 0; c < m->n; c++) {
        if (!(m->sum[c] > 0)) continue;
        const double x = LLM__MAX(pow(m->sum[c] / m->tokens, ratio) / (pow(mean[c], 1 - ratio) + 1e-4), 1e-4);
        least = LLM__MIN(least, x), most = LLM__MAX(most, x);
        s[c] = (float)x;
    }
    const float by = most > 0 ? (float)(1 / sqrt(least * most)) : 1;
    for (int64_t c = 0; c < m->n; c++) s[c] = m->sum[c] > 0 ? LLM__MIN(LLM__MAX(s[c] * by, 1e-4f), 1e4f) : 1;
}

/* What the readers lose with s. */
static double llm__awq_error(llm__qjob *j, llm__awq_trial *t, const float *s) {
    double sum = 0;
    t->s = s;
    for (int i = 0; i < j->pool->n; i++) t->error[i] = 0;
    for (int64_t i = -1; (i = llm__readers_next(j, t->m, i)) >= 0 && !j->r;) {
        t->shape = llm__qplan_rounded(&j->plan, &j->plan.matrix[i]);
        t->w = llm__qjob_values(j, j->plan.matrix[i].t);
        if (!j->r) llm__pool_run(j->pool, llm__awq_try_part, t, 1);
    }
    for (int i = 0; i < j->pool->n; i++) sum += t->error[i];
    return sum;
}

/* The best s, folded. */
static void llm__awq_search(llm__qjob *j, llm__gram *m, llm__awq_trial *t, float *s, float *best, double *mean) {
    double least = llm__awq_error(j, t, NULL);
    int found = 0;
    llm__awq_weights(j, m, mean);
    for (int i = 0; i < LLM__AWQ_RATIOS && !j->r; i++) {
        llm__awq_scales(m, mean, (double)i / (double)(int)LLM__AWQ_RATIOS, s);
        const double error = llm__awq_error(j, t, s);
        if (error < least) least = error, found = 1, memcpy(best, s, (size_t)m->n * sizeof *s);
    }
    if (!found || j->r) return;
    llm__fold(j, m, best);
    llm__gram_scale(m, best);
}

LLM__PRIVATE void llm__awq_input(llm__qjob *j, llm__gram *m) {
    const int parts = j->pool->n;
    LLM__SCOPED(llm__drop) float *memory = LLM__NEW(float, (int64_t)parts *(LLM__AWQ_ROWS + 1) * m->wide);
    LLM__SCOPED(llm__drop) float *s = LLM__NEW(float, 2 * m->n);
    LLM__SCOPED(llm__drop) double *mean = LLM__NEW(double, m->n + parts);
    llm__awq_trial t = LLM__ZERO;
    if (!memory || !s || !mean) j->r = llm__nomem();
    if (j->r || !(m->tokens > 0)) return; /* no token has chosen this expert */
    t.m = m;
    t.k = j->kernels;
    t.memory = memory;
    t.error = mean + m->n;
    if (llm__fold(j, m, NULL)) llm__awq_search(j, m, &t, s, s + m->n, mean);
    for (int64_t i = -1; (i = llm__readers_next(j, m, i)) >= 0 && !j->r;) {
        const llm__qplan_matrix *x = &j->plan.matrix[i];
        const int asks = x->slot == LLM__W_Q || x->slot == LLM__W_K || x->slot == LLM__W_QKV || x->slot == LLM__W_Q_A ||
                         x->slot == LLM__W_Q_B || x->slot == LLM__W_KV_A; /* queries and keys */
        if (asks) continue;
        t.shape = llm__qplan_rounded(&j->plan, x);
        t.w = llm__qjob_values(j, x->t);
        if (!j->r) llm__pool_run(j->pool, llm__awq_clip_part, &t, 1);
    }
}
