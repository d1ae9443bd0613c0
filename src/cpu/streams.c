#include "cpu/streams.h"
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/kernels.h"
#include "cpu/products.h"
#include "cpu/operations.h"

/* Streams are brought to the size of the first; dst is their mean. */
static void llm__streams_level(const llm__kernels *k, const llm_streams_op *op, float *x, float *dst) {
    const int D = op->cols;
    const float size = sqrtf(k->dot(x, x, D) / (float)D);
    for (int j = 1; j < op->n; j++) {
        float *own = x + j * D;
        k->affine(own, own, 0, size / sqrtf(LLM__MAX(k->dot(own, own, D) / (float)D, 1e-5f)), NULL, NULL, D);
    }
    if (!dst) return;
    memcpy(dst, x, (size_t)D * sizeof *dst);
    for (int j = 1; j < op->n; j++) k->add(dst, x + j * D, 1, D);
    k->affine(dst, dst, 0, 1 / (float)op->n, NULL, NULL, D);
}

/* c (rows of the weight) = weight tanh(gate), for at most LLM_MAX_STREAMS squared rows. */
static void llm__streams_factors(const llm_streams_op *op, const float *gate, float *c) {
    const float *w = op->weight->f32;
    const int rows = op->kind == LLM_STREAMS_PREDICT ? op->n * op->n : op->n;
    float m[LLM_MAX_STREAMS];
    for (int i = 0; i < op->n; i++) m[i] = tanhf(gate[i]);
    for (int j = 0; j < rows; j++, w += op->n) {
        c[j] = 0;
        for (int i = 0; i < op->n; i++) c[j] += w[i] * m[i];
    }
}

LLM__PRIVATE void llm__run_streams(const llm__run *r, int row) {
    const llm_streams_op *op = &r->rec->op.streams;
    const llm__kernels *k = r->ctx->kernels;
    const int D = op->cols, n = op->n;
    float *x = llm__row(op->x, row), *was = (float *)r->e->scratch, *dst = op->dst ? llm__row(op->dst, row) : NULL;
    float c[LLM_MAX_STREAMS * LLM_MAX_STREAMS];
    if (op->kind == LLM_STREAMS_LEVEL) {
        llm__streams_level(k, op, x, dst);
        return;
    }
    llm__streams_factors(op, llm__row(op->gate, row), c);
    if (op->kind == LLM_STREAMS_PREDICT) {
        memcpy(was, x, (size_t)(n * D) * sizeof *was);
        for (int j = 0; j < n; j++)
            for (int i = 0; i < n; i++) k->add(x + j * D, was + i * D, c[j * n + i], D);
    } else {
        memcpy(was, llm__row(op->y, row), (size_t)D * sizeof *was);
        k->add(was, x + op->active * D, -1, D);
        for (int j = 0; j < n; j++) k->add(x + j * D, was, 1 + c[j], D);
    }
    if (dst) k->affine(dst, x + op->active * D, 0, 1, llm__vector(op->scale), NULL, D);
}
