#include "cpu/latent.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/dtypes.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"

/* A matrix (depth, cols) in panels: columns that count are copied, the last panel's others are not. */
static void llm__latent_product(const llm__exec *e, const llm_weight *w, const uint8_t *b, int depth, int cols, const llm__latent_rows *x) {
    const llm__kernels *k = llm__kernels_of(e->isa);
    const int row = LLM__WIDE * (w->up == LLM__KIND_F16 ? 2 : 4);
    float sums[(int)LLM__QUERIES * (int)LLM__WIDE] __attribute__((aligned(64)));
    llm__mac m;
    memset(&m, 0, sizeof m);
    m.a = x->from;
    m.lda = (int)x->from_stride;
    m.ldb = m.ldc = LLM__WIDE;
    m.n = x->n;
    m.k = depth;
    m.c = sums;
    m.step = LLM__ROWS;
    m.type = w->up;
    m.pace = row;
    for (int c = 0; c < cols; c += LLM__WIDE, b += (int64_t)depth * row) {
        for (int i = 0; i < 2; i++) {
            m.b[i] = b + i * row / 2;
            m.fetch[i] = (const uint8_t *)m.b[i] + e->tuning->ahead;
        }
        k->mac(&m);
        for (int i = 0; i < x->n; i++)
            k->affine(x->to + i * x->to_stride + c, sums + i * LLM__WIDE, 0, x->scale, NULL, NULL, LLM__MIN(cols - c, (int)LLM__WIDE));
    }
}

LLM__PRIVATE void llm__latent_keys(const llm__exec *e, const llm_weight *w, int head, const llm__latent_rows *x) {
    llm__latent_product(e, w, w->memory + llm__latent_at(w, head, 0), w->n_keys, (int)w->cols, x);
}

LLM__PRIVATE void llm__latent_values(const llm__exec *e, const llm_weight *w, int head, const llm__latent_rows *x) {
    llm__latent_product(e, w, w->memory + llm__latent_at(w, head, 1), (int)w->cols, (int)(w->rows / w->n_heads) - w->n_keys, x);
}
