#include "quant/job.h"
#include "api/config.h"
#include "api/quantize.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/files.h"
#include "base/threads.h"
#include "model/tensors.h"

/* Rows that the threads expand. */
typedef struct llm__expanding {
    const llm__tensor *t;
    int64_t rows, cols;
    float *to;
} llm__expanding;

static void llm__qjob_expand(void *arg, int pass, int part, int n_parts) {
    const llm__expanding *x = (const llm__expanding *)arg;
    (void)pass;
    for (int64_t r = x->rows * part / n_parts; r < x->rows * (part + 1) / n_parts; r++)
        llm__tensor_values(x->t, r, x->cols, 0, x->cols, x->to + r * x->cols);
}

LLM__PRIVATE float *llm__qjob_values(llm__qjob *j, const llm__tensor *t) {
    for (size_t i = 0; i < j->n_patches; i++)
        if (j->patch[i].t == t) return j->patch[i].value;
    const int64_t n = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3], cols = t->shape[LLM__MAX(t->n_dims, 1) - 1];
    if (!j->r && !llm__grow((void **)&j->patch, &j->patches_cap, j->n_patches + 1, sizeof *j->patch)) j->r = llm__nomem();
    float *value = j->r ? NULL : LLM__NEW(float, n);
    if (!value && !j->r) j->r = llm__nomem();
    if (!value) return NULL;
    llm__expanding x = {t, n / LLM__MAX(cols, 1), cols, value};
    llm__pool_run(j->pool, llm__qjob_expand, &x, 1);
    memset(&j->patch[j->n_patches], 0, sizeof *j->patch);
    j->patch[j->n_patches].t = t;
    j->patch[j->n_patches++].value = value;
    if (!t->parts && t->bytes > 1 << 16) llm__file_rest(t->data, (size_t)t->bytes);
    for (int64_t i = 0; i < n && !j->r; i++)
        if (!(fabsf(value[i]) <= 3e38f))
            j->r = llm__bad(j->model->path, "tensor", t->name, "element %lld is no finite number", (long long)i);
    return j->r ? NULL : value;
}

LLM__PRIVATE void llm__qjob_apply(llm__qjob *j, int apply) {
    for (size_t i = 0; i < j->n_patches; i++) {
        llm__tensor *t = &j->model->source.tensors.item[j->patch[i].t - j->model->source.tensors.item];
        if (!apply) {
            *t = j->patch[i].was;
            continue;
        }
        j->patch[i].was = *t;
        t->bytes = 4 * t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
        t->type = LLM_TYPE_F32;
        t->data = (const uint8_t *)j->patch[i].value;
        t->parts = NULL;
    }
}

LLM__PRIVATE void llm__qjob_forget(llm__qjob *j) {
    for (size_t i = 0; i < j->n_patches; i++) LLM_FREE(j->patch[i].value);
    j->n_patches = 0;
}

LLM__PRIVATE void llm__qjob_tell(llm__qjob *j, const char *what, double part) {
    const llm_quantize_folder_config *c = j->cfg;
    const double done = (j->told + part) / LLM__MAX(j->all, 1);
    if (!j->r && c->progress && c->progress(c->progress_user, what, done < 1 ? done : 1))
        j->r = llm__error(LLM_ERR_CANCELLED, "%s: quantizing was cancelled; the same command goes on with it", j->to);
}
