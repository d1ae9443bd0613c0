#include "quant/gram.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/threads.h"
#include "cpu/dtypes.h"
#include "cpu/kernels.h"

enum { LLM__GRAM_ROWS = 512, LLM__PANEL = 32 };

LLM__PRIVATE void llm__gram_tile(const llm__kernels *k, const float *a, int64_t lda, int64_t n, const float *b, int64_t ldb, float *c,
                                 int64_t ldc, int64_t depth, int add) {
    llm__mac m;
    int tiles = 0;
    memset(&m, 0, sizeof m);
    m.a = a;
    m.b[0] = b;
    m.b[1] = b + 16;
    m.fetch[0] = m.fetch[1] = (const uint8_t *)b;
    m.c = c;
    m.lda = (int)lda;
    m.ldb = (int)ldb;
    m.ldc = (int)ldc;
    m.n = (int)n;
    m.k = (int)depth;
    m.add = add;
    m.step = 16;
    m.type = LLM__KIND_F32;
    m.tiles = &tiles;
    k->mac(&m);
    if (k->rest) k->rest(&tiles);
}

LLM__PRIVATE llm_result llm__gram_open(llm__gram *m, int64_t n, int products) {
    m->n = n;
    m->wide = (n + LLM__PANEL - 1) / LLM__PANEL * LLM__PANEL;
    m->h = products ? LLM__NEW(float, m->wide * m->wide) : NULL;
    m->sum = LLM__NEW(double, n);
    m->top = LLM__NEW(float, n);
    return (m->h || !products) && m->sum && m->top ? LLM_OK : llm__nomem();
}

LLM__PRIVATE void llm__gram_close(llm__gram *m) {
    LLM_FREE(m->h);
    LLM_FREE(m->sum);
    LLM_FREE(m->top);
    m->h = NULL, m->sum = NULL, m->top = NULL;
}

/* Some rows of inputs. */
typedef struct llm__gram_rows {
    llm__gram *m;
    const llm__kernels *k;
    const float *x;
    int64_t stride, rows;
    float *own, *across; /* (rows, wide), (wide, MOMENT_ROWS) */
} llm__gram_rows;

/* Pass 0: columns are copied and summed; pass 1: tiles of the products, of which half is enough. */
static void llm__gram_part(void *arg, int pass, int part, int n_parts) {
    const llm__gram_rows *q = (const llm__gram_rows *)arg;
    llm__gram *m = q->m;
    const int64_t first = m->n * part / n_parts, end = m->n * (part + 1) / n_parts, panels = m->wide / LLM__PANEL;
    for (int64_t t = 0; t < q->rows && !pass; t++)
        for (int64_t i = first; i < end; i++) {
            const float x = q->x[t * q->stride + i], size = fabsf(x);
            m->sum[i] += (double)size;
            m->top[i] = LLM__MAX(m->top[i], size);
            if (m->h) q->own[t * m->wide + i] = q->across[i * LLM__GRAM_ROWS + t] = x;
        }
    for (int64_t i = 0, number = 0; i < panels && pass && m->h; i++)
        for (int64_t c = i; c < panels; c++, number++)
            if (number % n_parts == part)
                llm__gram_tile(q->k, q->across + i * LLM__PANEL * LLM__GRAM_ROWS, LLM__GRAM_ROWS, LLM__PANEL, q->own + c * LLM__PANEL,
                               m->wide, m->h + i * LLM__PANEL * m->wide + c * LLM__PANEL, m->wide, q->rows, 1);
}

/* The other half. */
static void llm__gram_mirror(void *arg, int pass, int part, int n_parts) {
    const llm__gram *m = (const llm__gram *)arg;
    (void)pass;
    for (int64_t i = m->wide * part / n_parts; i < m->wide * (part + 1) / n_parts; i++)
        for (int64_t c = 0; c < i / LLM__PANEL * LLM__PANEL; c++) m->h[i * m->wide + c] = m->h[c * m->wide + i];
}

LLM__PRIVATE llm_result llm__gram_add(llm__gram *m, const llm__kernels *k, llm__pool *pool, const float *x, int64_t stride, int64_t rows) {
    LLM__SCOPED(llm__drop) float *own = m->h ? LLM__NEW(float, m->wide *LLM__GRAM_ROWS) : NULL;
    LLM__SCOPED(llm__drop) float *across = m->h ? LLM__NEW(float, m->wide *LLM__GRAM_ROWS) : NULL;
    if (m->h && (!own || !across)) return llm__nomem();
    for (int64_t at = 0; at < rows; at += LLM__GRAM_ROWS) {
        llm__gram_rows q = {m, k, x + at * stride, stride, LLM__MIN((int64_t)LLM__GRAM_ROWS, rows - at), own, across};
        llm__pool_run(pool, llm__gram_part, &q, 2);
    }
    m->tokens += (double)rows;
    if (m->h) llm__pool_run(pool, llm__gram_mirror, m, 1);
    return LLM_OK;
}

LLM__PRIVATE void llm__gram_scale(llm__gram *m, const float *s) {
    for (int64_t i = 0; i < m->n; i++) {
        m->sum[i] /= (double)s[i];
        m->top[i] /= s[i];
        for (int64_t c = 0; c < m->n && m->h; c++) m->h[i * m->wide + c] /= s[i] * s[c];
    }
}

LLM__PRIVATE double llm__gram_error(const llm__gram *m, const llm__kernels *k, const float *d, int64_t n) {
    float y[24 * LLM__PANEL];
    double sum = 0;
    for (int64_t r = 0; r < n; r += 24)
        for (int64_t c = 0; c < m->wide; c += LLM__PANEL) {
            const int64_t rows = LLM__MIN((int64_t)24, n - r);
            llm__gram_tile(k, d + r * m->wide, m->wide, rows, m->h + c, m->wide, y, LLM__PANEL, m->wide, 0);
            for (int64_t i = 0; i < rows; i++) sum += (double)k->dot(y + i * LLM__PANEL, d + (r + i) * m->wide + c, LLM__PANEL);
        }
    return sum;
}

/* A step of the factorisation: of columns [at, at + 32), when those behind are done. */
typedef struct llm__factoring {
    float *h, *panel; /* panel: (wide, 32) the rows of the columns, across and negated */
    int64_t at, n, wide;
    const llm__kernels *k;
    int bad;
} llm__factoring;

/* Rows [first, end) less what the columns behind give. */
static void llm__factor_less(const llm__factoring *f, int64_t first, int64_t end) {
    const int64_t behind = f->at + LLM__PANEL;
    llm__gram_tile(f->k, f->h + first * f->wide + behind, f->wide, end - first, f->panel, LLM__PANEL, f->h + first * f->wide + f->at,
                   f->wide, f->wide - behind, 1);
}

/* The block on the diagonal. Afterwards h[i][i] is the root of D, and what stands above is U times that. */
static void llm__factor_block(llm__factoring *f) {
    for (int64_t c = f->at + LLM__PANEL - 1; c >= f->at; c--) {
        float *col = f->h + c;
        double d = (double)col[c * f->wide];
        for (int64_t m = c + 1; m < f->at + LLM__PANEL; m++) d -= (double)f->h[c * f->wide + m] * (double)f->h[c * f->wide + m];
        if (!(d > 0)) f->bad = 1, d = 1;
        const double root = sqrt(d);
        col[c * f->wide] = (float)root;
        for (int64_t i = f->at; i < c; i++) {
            double x = (double)col[i * f->wide];
            for (int64_t m = c + 1; m < f->at + LLM__PANEL; m++) x -= (double)f->h[i * f->wide + m] * (double)f->h[c * f->wide + m];
            col[i * f->wide] = (float)(x / root);
        }
    }
}

/* The rows above the block, a thread's share. */
static void llm__factor_part(void *arg, int pass, int part, int n_parts) {
    const llm__factoring *f = (const llm__factoring *)arg;
    const int64_t first = f->at * part / n_parts, end = f->at * (part + 1) / n_parts;
    (void)pass;
    if (first < end && f->at + LLM__PANEL < f->wide) llm__factor_less(f, first, end);
    for (int64_t i = first; i < end; i++) {
        float *row = f->h + i * f->wide;
        for (int64_t c = f->at + LLM__PANEL - 1; c >= f->at; c--) {
            double x = (double)row[c];
            for (int64_t m = c + 1; m < f->at + LLM__PANEL; m++) x -= (double)row[m] * (double)f->h[c * f->wide + m];
            row[c] = (float)(x / (double)f->h[c * f->wide + c]);
        }
    }
}

/* Like Cholesky's, but from the last column to the first: h = R R' with R above the diagonal; U is R with each column divided by its root.
 * What U has in row i and column c is what the loss of column i adds to column c (LDLQ, Chee et al. 2023, which is what GPTQ does). */
LLM__PRIVATE int llm__gram_factor(float *h, int64_t n, int64_t wide, const llm__kernels *k, llm__pool *pool) {
    LLM__SCOPED(llm__drop) float *panel = LLM__NEW(float, wide *LLM__PANEL);
    llm__factoring f = {h, panel, 0, n, wide, k, !panel};
    for (int64_t i = n; i < wide; i++) h[i * wide + i] = 1; /* filling */
    for (f.at = wide - LLM__PANEL; f.at >= 0 && !f.bad; f.at -= LLM__PANEL) {
        const int64_t behind = f.at + LLM__PANEL;
        for (int64_t c = 0; c < LLM__PANEL; c++)
            for (int64_t i = behind; i < wide; i++) panel[(i - behind) * LLM__PANEL + c] = -h[(f.at + c) * wide + i];
        if (behind < wide) llm__factor_less(&f, f.at, behind);
        llm__factor_block(&f);
        llm__pool_run(pool, llm__factor_part, &f, 1);
    }
    for (int64_t i = 0; i < wide && !f.bad; i++)
        for (int64_t c = 0; c < wide; c++)
            if (c > i) h[i * wide + c] /= h[c * wide + c];
    for (int64_t i = 0; i < wide && !f.bad; i++)
        for (int64_t c = 0; c <= i; c++) h[i * wide + c] = c == i;
    return !f.bad;
}
