/* gptq: column by column, what rounding loses going to the columns that come later.
 *
 * With H = U D U' (U above the diagonal), column c of W is rounded as
 *
 *     v = w + sum over the columns i before it of (w_i - q_i) U[i, c]        q = round(v)
 *
 * which is GPTQ with the inverse of H spared (Chee et al. 2023 show that both give the same). Why: with e = w - q for all columns the loss
 * is e H e' = sum over c of D[c] (e_c + sum over i < c of e_i U[i, c])^2, and v makes each bracket what the rounding of v itself loses.
 *
 * The columns with the largest inputs come first, while there are still many to take what they lose (act-order). Groups are of columns as
 * they stand, with scales of the weights as they are (static groups: files that every kernel reads fast), or with desc_act of columns as
 * they come, with scales from what these are by then: a little better, and g_idx says which column is of which group. Scales are those with
 * which a group loses least. D and H are sums over tokens; a share of the mean of H's diagonal is added to it, more where it does not
 * suffice. An expert that no token chose has H = 0: its columns then
 * count as equal and unrelated, which is rounding to nearest. */
#include "api/config.h"
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

enum { LLM__GPTQ_ROWS = 24, LLM__GPTQ_BLOCK = 128, LLM__GPTQ_SHRINKS = 10 };

/* A matrix while its rows are rounded. */
typedef struct llm__gptq_rounding {
    llm__rounded *out;
    const llm__kernels *k;
    const float *w, *u;   /* w (rows, cols) in the file's order; u (wide, wide) in `order` */
    const int32_t *order; /* (cols) the column that comes as number i */
    int64_t wide;
    int act_groups; /* groups are of columns as they come, else as they stand */
    float *memory;  /* of each part: 2 * GPTQ_ROWS rows of wide */
} llm__gptq_rounding;

/* The scale of n values with which rounding them loses least: cutting the largest off may be worth it. */
static void llm__gptq_scale(const llm__rounded *m, const float *x, int64_t n, float *scale, uint8_t *zero) {
    const float most = (float)((1 << m->bits) - 1);
    double least = INFINITY;
    for (int i = 0; i < LLM__GPTQ_SHRINKS; i++) {
        float s;
        uint8_t z;
        double lost = 0;
        llm__scale_of(m, x, 1, n, 1 - (float)i / (float)(3 * (int)LLM__GPTQ_SHRINKS), &s, &z);
        const float by = 1 / s, zf = (float)z;
        for (int64_t c = 0; c < n; c++) {
            const float d = ((float)llm__code_of(x[c], by, zf, most) - zf) * s - x[c];
            lost += (double)(d * d);
        }
        if (lost < least) least = lost, *scale = s, *zero = z;
    }
}

/* Scales of all groups of some rows, from the weights as they are. */
static void llm__gptq_static(const llm__gptq_rounding *g, int64_t row, int64_t rows) {
    const llm__rounded *m = g->out;
    for (int64_t r = row; r < row + rows; r++)
        for (int64_t i = 0; i < m->groups; i++)
            llm__gptq_scale(m, g->w + r * m->cols + i * m->group, LLM__MIN(m->group, m->cols - i * m->group), &m->scale[r * m->groups + i],
                            &m->zero[r * m->groups + i]);
}

/* Scales of the group that begins with column `at` (in order), of some rows. */
static void llm__gptq_scales(const llm__gptq_rounding *g, int64_t row, int64_t rows, int64_t at, const float *v) {
    const int64_t n = LLM__MIN(g->out->group, g->out->cols - at), group = at / g->out->group;
    for (int64_t r = 0; r < rows; r++)
        llm__gptq_scale(g->out, v + r * g->wide + at, n, &g->out->scale[(row + r) * g->out->groups + group],
                        &g->out->zero[(row + r) * g->out->groups + group]);
}

/* Columns [at, end) of some rows, whose v has what all before `at` have lost. e: losses. */
static void llm__gptq_columns(const llm__gptq_rounding *g, int64_t row, int64_t rows, int64_t at, int64_t end, float *v, float *e) {
    llm__rounded *m = g->out;
    for (int64_t r = 0; r < rows; r++) {
        float *vr = v + r * g->wide, *er = e + r * g->wide;
        for (int64_t c = at; c < end; c++) {
            const int64_t to = (row + r) * m->cols + g->order[c],
                          group = (row + r) * m->groups + (g->act_groups ? c : g->order[c]) / m->group;
            const uint8_t code = llm__code_of(vr[c], 1 / m->scale[group], (float)m->zero[group], (float)((1 << m->bits) - 1));
            m->code[to] = code;
            er[c] = g->w[to] - (float)((int)code - (int)m->zero[group]) * m->scale[group];
            if (c + 1 < end) g->k->add(vr + c + 1, g->u + c * g->wide + c + 1, er[c], (int)(end - c - 1));
        }
    }
}

/* A part's rows, some at a time, so that what is read of u serves several. */
static void llm__gptq_part(void *arg, int pass, int part, int n_parts) {
    const llm__gptq_rounding *g = (const llm__gptq_rounding *)arg;
    const int64_t cols = g->out->cols, wide = g->wide, end = g->out->rows * (part + 1) / n_parts,
                  block = LLM__MIN(g->out->group, (int64_t)LLM__GPTQ_BLOCK);
    float *v = g->memory + (int64_t)part * 2 * LLM__GPTQ_ROWS * wide, *e = v + LLM__GPTQ_ROWS * wide;
    (void)pass;
    for (int64_t row = g->out->rows * part / n_parts, rows; row < end; row += rows) {
        rows = LLM__MIN((int64_t)LLM__GPTQ_ROWS, end - row);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < wide; c++) v[r * wide + c] = c < cols ? g->w[(row + r) * cols + g->order[c]] : 0;
        if (!g->act_groups) llm__gptq_static(g, row, rows);
        for (int64_t at = 0; at < cols; at += block) {
            const int64_t stop = LLM__MIN(at + block, cols);
            for (int64_t c = at; c < stop && at; c += 32) /* what all earlier columns have lost */
                llm__gram_tile(g->k, e, wide, rows, g->u + c, wide, v + c, wide, at, 1);
            if (at % g->out->group == 0 && g->act_groups) llm__gptq_scales(g, row, rows, at, v);
            llm__gptq_columns(g, row, rows, at, stop, v, e);
        }
    }
}

/* Columns by what they weigh, the heaviest first; equal ones as they stand. */
static void llm__gptq_order(const llm__gram *m, int32_t *order) {
    for (int64_t i = 0; i < m->n; i++) {
        int64_t at = i;
        const float weight = m->h[i * m->wide + i];
        for (; at > 0 && m->h[order[at - 1] * m->wide + order[at - 1]] < weight; at--) order[at] = order[at - 1];
        order[at] = (int32_t)i;
    }
}

/* h in the order of the columns, with the damping, as factors in u. */
static int llm__gptq_factor(llm__qjob *j, const llm__gram *m, const int32_t *order, double damp, float *u) {
    double mean = 0;
    for (int64_t i = 0; i < m->n; i++) mean += (double)m->h[i * m->wide + i] / (double)m->n;
    memset(u, 0, (size_t)(m->wide * m->wide) * sizeof *u);
    for (int64_t i = 0; i < m->n; i++) {
        const float *from = m->h + order[i] * m->wide;
        float *to = u + i * m->wide;
        for (int64_t c = 0; c < m->n; c++) to[c] = from[order[c]];
        to[i] += (float)(damp * mean);
        if (!(to[i] > 0)) to[i] = 1; /* a column that is always 0, where nothing else is known */
    }
    return llm__gram_factor(u, m->n, m->wide, j->kernels, j->pool);
}

/* One of the matrices. */
static void llm__gptq_matrix(llm__qjob *j, llm__gptq_rounding *g, int64_t i, llm__rounded *out) {
    const int act_order = j->cfg->desc_act != 0;
    *out = llm__qplan_rounded(&j->plan, &j->plan.matrix[i]);
    j->r = llm__rounded_open(out, act_order);
    g->w = llm__qjob_values(j, j->plan.matrix[i].t);
    g->out = out;
    for (int64_t c = 0; c < out->cols && act_order && !j->r; c++) out->g_idx[g->order[c]] = (int32_t)(c / out->group);
    if (!j->r) llm__pool_run(j->pool, llm__gptq_part, g, 1);
}

LLM__PRIVATE void llm__gptq_input(llm__qjob *j, llm__gram *m, llm__rounded_list *rounded) {
    LLM__SCOPED(llm__drop) float *u = LLM__NEW(float, m->wide * m->wide);
    LLM__SCOPED(llm__drop) float *memory = LLM__NEW(float, (int64_t)j->pool->n * 2 * LLM__GPTQ_ROWS * m->wide);
    LLM__SCOPED(llm__drop) int32_t *order = LLM__NEW(int32_t, m->n);
    llm__gptq_rounding g = LLM__ZERO;
    double damp = j->cfg->damp > 0 ? (double)j->cfg->damp : 0.05;
    if (!u || !memory || !order) j->r = llm__nomem();
    if (j->r) return;
    llm__gptq_order(m, order);
    g.act_groups = j->cfg->desc_act != 0;
    while (!llm__gptq_factor(j, m, order, damp, u) && damp < 10) damp *= 2;
    if (damp >= 10) j->r = llm__error(LLM_ERR_FORMAT, "%s: layer %d: its inputs are no finite numbers", j->model->path, (int)j->layer);
    g.k = j->kernels;
    g.u = u;
    g.order = order;
    g.wide = m->wide;
    g.memory = memory;
    for (int64_t i = -1; (i = llm__readers_next(j, m, i)) >= 0 && !j->r;)
        llm__gptq_matrix(j, &g, i, &rounded->item[i - (int64_t)j->plan.first[j->layer]]);
}
