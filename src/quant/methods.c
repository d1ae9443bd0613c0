#include "quant/methods.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/threads.h"
#include "model/tensors.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/net.h"
#include "quant/codes.h"
#include "quant/targets.h"
#include "quant/job.h"
#include "quant/gram.h"

LLM__PRIVATE int llm__reads_norm(llm__reads reads) {
    return reads == LLM__READS_ATTENTION || reads == LLM__READS_Q || reads == LLM__READS_KV || reads == LLM__READS_MLP;
}

/* 1 if a matrix reads what was recorded; experts are among the readers of the norm before all of them. */
static int llm__readers_has(const llm__gram *m, const llm__qplan_matrix *x, int layer) {
    if (x->layer != layer) return 0;
    if (m->reads == LLM__READS_MLP && x->reads == LLM__READS_EXPERT) return 1;
    return x->reads == m->reads && x->expert == m->expert;
}

LLM__PRIVATE int64_t llm__readers_next(const llm__qjob *j, const llm__gram *m, int64_t after) {
    const llm__qplan *p = &j->plan;
    for (int64_t i = LLM__MAX(after + 1, (int64_t)p->first[j->layer]); i < (int64_t)p->first[j->layer + 1]; i++)
        if (llm__readers_has(m, &p->matrix[i], j->layer)) return i;
    return -1;
}

/* Columns of a matrix that stays or becomes codes, times s. */
static void llm__fold_columns(llm__qjob *j, const llm__tensor *t, const float *s) {
    const int64_t cols = t->shape[t->n_dims - 1], rows = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] / LLM__MAX(cols, 1);
    float *w = llm__qjob_values(j, t);
    for (int64_t r = 0; r < rows && w; r++)
        for (int64_t i = 0; i < cols; i++) w[r * cols + i] *= s[i];
}

/* n rows of a matrix from `row` on, or values of a vector, divided by s. */
static void llm__fold_rows(llm__qjob *j, const llm__tensor *t, int64_t row, int64_t n, const float *s) {
    const int64_t cols = t->n_dims > 1 ? t->shape[1] : 1;
    float *w = llm__qjob_values(j, t);
    for (int64_t r = 0; r < n && w; r++)
        for (int64_t i = 0; i < cols; i++) w[(row + r) * cols + i] /= s[r];
}

/* A norm: its weight, of some families less one, and its bias. */
static int llm__fold_norm(llm__qjob *j, llm__loader *L, int slot, int64_t n, const float *s) {
    char name[256];
    const llm__tensor *w = llm__loader_find(L, slot, 0, 0, name), *b = llm__loader_find(L, slot, 0, 1, name);
    const float plus = L->a->flags & LLM__NORM_PLUS1 ? 1.0f : 0.0f;
    if (!w || w->bytes == 0 || w->n_dims != 1 || w->shape[0] != n) return 0;
    if (!s) return 1;
    float *value = llm__qjob_values(j, w);
    for (int64_t i = 0; i < n && value; i++) value[i] = (value[i] + plus) / s[i] - plus;
    if (b) llm__fold_rows(j, b, 0, n, s);
    return 1;
}

/* The matrix before, whose rows from `row` on give the input: value rows of attention, or up. NULL: there is none, or what stands between
 * is not linear in it (BitNet's norms, Gemma 4's of values, gpt-oss's limit), or up's rows stand where they are not looked for (GTE's). */
static const llm__tensor *llm__fold_before(const llm__loader *L, const llm__gram *m, const llm__tensor **bias, int64_t *row) {
    const int down = m->reads != LLM__READS_O, expert = LLM__MAX(m->expert, 0);
    int slot = m->reads == LLM__READS_O             ? LLM__W_V
               : m->reads == LLM__READS_DOWN        ? LLM__W_UP
               : m->reads == LLM__READS_SHARED_DOWN ? LLM__W_S_UP
                                                    : LLM__W_E_UP;
    const llm__arch *a = L->a;
    char name[256];
    *row = 0;
    if (llm__has(L, down ? LLM__W_FFN_SUB : LLM__W_ATTN_SUB)) return NULL;
    if (down ? a->flags & LLM__NO_GATE || a->act == LLM_ACT_SWIGLU_OAI || llm__arch_is(a, "gte") : a->flags & LLM__MLA || a->v_norm)
        return NULL;
    const llm__tensor *t = llm__loader_find(L, slot, expert, 0, name);
    if (down && (!t || (t->n_dims == 2 && t->shape[0] == 2 * m->n))) { /* gate and up in one: up's rows stand behind */
        if (!t) slot = slot == LLM__W_UP ? LLM__W_GATE_UP : slot == LLM__W_S_UP ? LLM__W_S_GATE_UP : LLM__W_E_GATE_UP;
        t = llm__loader_find(L, slot, expert, 0, name);
        *row = m->n;
    }
    if (!t || t->n_dims != 2 || t->parts || t->shape[0] != *row + m->n) return NULL;
    *bias = llm__loader_find(L, slot, expert, 1, name);
    return t;
}

/* What reads the input besides: routers, indexers, and matrices that stay. 0: one of these cannot be scaled. */
static int llm__fold_others(llm__qjob *j, llm__loader *L, const llm__gram *m, const float *s) {
    static const struct {
        llm__slot slot;
        llm__reads reads;
    } others[] = {{LLM__W_ROUTER, LLM__READS_MLP},
                  {LLM__W_ROUTER2, LLM__READS_MLP},
                  {LLM__W_S_SCALE, LLM__READS_MLP},
                  {LLM__W_INDEX_K, LLM__READS_ATTENTION},
                  {LLM__W_INDEX_WEIGHTS, LLM__READS_ATTENTION},
                  {LLM__W_INDEX_Q, LLM__READS_Q}};
    char name[256];
    for (size_t i = 0; i < j->plan.n_left; i++) {
        const llm__qplan_matrix *x = &j->plan.left[i];
        if (!llm__readers_has(m, x, j->layer)) continue;
        if (x->t->n_dims != 2 || x->t->parts || x->cols != m->n) return 0;
        if (s) llm__fold_columns(j, x->t, s);
    }
    for (int i = 0; i < LLM__COUNT(others); i++) {
        if (m->reads != others[i].reads || (m->reads == LLM__READS_MLP && !L->a->layer[j->layer].moe)) continue;
        const llm__tensor *t = llm__loader_find(L, others[i].slot, 0, 0, name);
        if (t && t->shape[t->n_dims - 1] != m->n) return 0;
        if (t && s) llm__fold_columns(j, t, s);
    }
    return 1;
}

LLM__PRIVATE int llm__fold(llm__qjob *j, const llm__gram *m, const float *s) {
    static const llm__slot norms[] = {LLM__W_ATTN_NORM, LLM__W_Q_A_NORM, LLM__W_KV_A_NORM, LLM__W_SLOTS, LLM__W_FFN_NORM};
    const llm__tensor *bias = NULL, *before = NULL;
    int64_t row = 0;
    llm__loader L;
    llm__loader_begin(&L, j->model, 1, 1);
    L.layer = j->layer;
    const int is_norm = llm__reads_norm(m->reads), inner = m->reads == LLM__READS_Q || m->reads == LLM__READS_KV;
    if (is_norm && !inner && L.a->flags & LLM__NO_PRE_NORM) return 0;
    if (!llm__fold_others(j, &L, m, NULL)) return 0;
    if (is_norm && !llm__fold_norm(j, &L, norms[m->reads], m->n, NULL)) return 0;
    if (!is_norm && !(before = llm__fold_before(&L, m, &bias, &row))) return 0;
    if (!s) return 1;
    for (int64_t i = -1; (i = llm__readers_next(j, m, i)) >= 0 && !j->r;) llm__fold_columns(j, j->plan.matrix[i].t, s);
    llm__fold_others(j, &L, m, s);
    if (is_norm) llm__fold_norm(j, &L, norms[m->reads], m->n, s);
    else llm__fold_rows(j, before, row, m->n, s);
    if (bias) llm__fold_rows(j, bias, row, m->n, s);
    return 1;
}

/* SmoothQuant: s = (largest input)^alpha / (largest weight)^(1 - alpha), column by column. */
static void llm__smooth_input(llm__qjob *j, llm__gram *m) {
    const int glm = llm__arch_is(&j->model->arch, "chatglm glm glm4 glm4_moe");
    const double alpha = j->cfg->alpha_given ? (double)j->cfg->alpha : glm ? 0.75 : 0.8;
    LLM__SCOPED(llm__drop) float *s = LLM__NEW(float, m->n);
    if (!s) j->r = llm__nomem();
    if (j->r || !llm__fold(j, m, NULL)) return;
    for (int64_t i = -1; (i = llm__readers_next(j, m, i)) >= 0 && !j->r;) {
        const llm__qplan_matrix *x = &j->plan.matrix[i];
        const float *w = llm__qjob_values(j, x->t);
        for (int64_t r = 0; r < x->rows && w; r++)
            for (int64_t c = 0; c < m->n; c++) s[c] = LLM__MAX(s[c], fabsf(w[r * m->n + c]));
    }
    for (int64_t c = 0; c < m->n; c++) {
        const double a = LLM__MAX((double)m->top[c], 1e-5), w = LLM__MAX((double)s[c], 1e-5);
        s[c] = m->top[c] > 0 ? (float)LLM__MAX(pow(a, alpha) / pow(w, 1 - alpha), 1e-5) : 1;
    }
    llm__fold(j, m, s);
}

LLM__PRIVATE void llm__method_input(llm__qjob *j, llm__gram *m, llm__rounded_list *rounded) {
    if (!(m->tokens > 0) && m->expert < 0)
        j->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: layer %d: an input of its matrices was not seen", j->model->path, (int)j->layer);
    if (j->r) return;
    if (j->plan.method == LLM__SMOOTH_QUANT) llm__smooth_input(j, m);
    else if (j->plan.method == LLM__AWQ) llm__awq_input(j, m);
    else llm__gptq_input(j, m, rounded);
}

/* A matrix that threads round, and its values. */
typedef struct llm__method_rounding {
    const llm__rounded *m;
    float *w;
    int made; /* it has codes already */
} llm__method_rounding;

static void llm__method_round_part(void *arg, int pass, int part, int n_parts) {
    const llm__method_rounding *x = (const llm__method_rounding *)arg;
    const int64_t first = x->m->rows * part / n_parts, end = x->m->rows * (part + 1) / n_parts;
    (void)pass;
    if (!x->made) llm__round_rows(x->m, x->w, first, end);
    llm__rounded_values(x->m, first, end, x->w);
}

LLM__PRIVATE void llm__method_round(llm__qjob *j, llm__rounded_list *rounded) {
    for (size_t i = 0; i < rounded->n && !j->r; i++) {
        const llm__qplan_matrix *m = &j->plan.matrix[j->plan.first[j->layer] + i];
        const int made = rounded->item[i].code != NULL;
        llm__method_rounding x = {&rounded->item[i], llm__qjob_values(j, m->t), made};
        if (!made) rounded->item[i] = llm__qplan_rounded(&j->plan, m);
        if (!made && !j->r) j->r = llm__rounded_open(&rounded->item[i], 0);
        if (!j->r) llm__pool_run(j->pool, llm__method_round_part, &x, 1);
    }
}
