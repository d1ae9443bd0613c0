/* importance: makes importance matrices.
 *
 * A text is read (>>calibrate), and the squares of what comes to each column of each matrix are added up; the file is that of >>imatrix. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/quantize.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "base/output.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/loader.h"
#include "model/gguf_write.h"
#include "engine/calibrate.h"

/* The sums of one tensor, or of those that share its input. */
typedef struct llm__squares {
    const llm__tensor *tensor[LLM__FED_MOST];
    int32_t n_tensors, n_matrices, n_counts;
    int64_t cols;
    double *sum, *count; /* (n_matrices, cols), (n_counts) */
} llm__squares;

typedef struct llm__importance {
    const llm_model *model;
    llm__squares *of; /* (n) by the number of the first tensor in the file */
    size_t n;
} llm__importance;

static void llm__importance_free(llm__importance *m) {
    for (size_t i = 0; i < m->n && m->of; i++) {
        LLM_FREE(m->of[i].sum);
        LLM_FREE(m->of[i].count);
    }
    LLM_FREE(m->of);
}

enum { LLM__SQUARE_COLS = 256 };

/* What threads share: each takes some columns. */
typedef struct llm__squaring {
    const llm__fed *fed;
    double *sum;
} llm__squaring;

static void llm__square_columns(void *arg, int part) {
    const llm__squaring *s = (const llm__squaring *)arg;
    const int32_t from = part * LLM__SQUARE_COLS, to = LLM__MIN(from + LLM__SQUARE_COLS, s->fed->cols);
    for (int32_t r = 0; r < s->fed->rows; r++) {
        const float *x = s->fed->x + r * s->fed->stride;
        for (int32_t c = from; c < to; c++) s->sum[c] += (double)(x[c] * x[c]);
    }
}

/* llm__fed_fn */
static llm_result llm__importance_add(void *user, const llm__fed *fed) {
    llm__importance *m = (llm__importance *)user;
    llm__squares *s = &m->of[fed->tensor[0] - m->model->source.tensors.item];
    if (fed->layer < 0) return LLM_OK; /* llama.cpp has none of the output layer either */
    if (!s->sum) {
        memcpy((void *)s->tensor, (const void *)fed->tensor, sizeof s->tensor);
        s->n_tensors = fed->n_tensors;
        s->n_matrices = fed->n_experts;
        s->n_counts = fed->experts_own ? fed->n_experts : 1;
        s->cols = fed->cols;
        s->sum = LLM__NEW(double, s->n_matrices * s->cols);
        s->count = LLM__NEW(double, s->n_counts);
        if (!s->sum || !s->count) return llm__nomem();
    }
    llm__squaring job = {fed, s->sum + fed->expert * s->cols};
    fed->parallel(fed->threads, llm__square_columns, &job, (fed->cols + LLM__SQUARE_COLS - 1) / LLM__SQUARE_COLS);
    if (fed->experts_own || !fed->expert) s->count[fed->experts_own ? fed->expert : 0] += fed->rows;
    double all = 0;
    for (int32_t c = 0; c < fed->cols; c++) all += job.sum[c];
    return all < 1e37 ? LLM_OK : llm__bad(m->model->path, "tensor", fed->tensor[0]->name, "what it is multiplied with is not finite");
}

/* Numbers as the file has them. */
static void llm__importance_put(llm__output *o, const double *x, int64_t n) {
    static const char zeros[LLM__GGUF_ALIGN] = {0};
    for (int64_t i = 0; i < n; i++) {
        const float v = (float)x[i];
        llm__output_put(o, &v, 4);
    }
    llm__output_put(o, zeros, (size_t)(-n * 4 & (LLM__GGUF_ALIGN - 1)));
}

/* The entries of one tensor in the file's head. */
static void llm__importance_entry(const llm__squares *s, const llm__tensor *t, llm_text *tensors, uint64_t *at) {
    LLM__SCOPED(llm_text_free) llm_text name = LLM__ZERO;
    const int64_t sums[2] = {s->n_counts, s->n_matrices / s->n_counts * s->cols}, counts[2] = {s->n_counts, 1};
    llm_text_format(&name, "%s.in_sum2", t->name.p);
    llm__gguf_put_tensor(tensors, llm__text_str(&name), 2, sums, LLM_TYPE_F32, at);
    name.len = 0;
    llm_text_format(&name, "%s.counts", t->name.p);
    llm__gguf_put_tensor(tensors, llm__text_str(&name), 2, counts, LLM_TYPE_F32, at);
    if (name.failed) tensors->failed = 1;
}

/* Writes the file. */
static llm_result llm__importance_write(const llm__importance *m, const char *to, const char *dataset, int64_t chunks, int32_t chunk) {
    LLM__SCOPED(llm_text_free) llm_text keys = LLM__ZERO, tensors = LLM__ZERO, head = LLM__ZERO;
    LLM__SCOPED(llm__output_close) llm__output o = LLM__ZERO;
    uint64_t at = 0, n = 0;
    llm__gguf_put_str(&keys, "general.type", llm__lit("imatrix"));
    llm__gguf_put_array(&keys, "imatrix.datasets", LLM__GGUF_STR, 1);
    llm__gguf_put_text(&keys, llm__lit(dataset));
    llm__gguf_put_int(&keys, "imatrix.chunk_count", chunks);
    llm__gguf_put_int(&keys, "imatrix.chunk_size", chunk);
    for (size_t i = 0; i < m->n; i++)
        for (int k = 0; k < m->of[i].n_tensors; k++, n += 2) llm__importance_entry(&m->of[i], m->of[i].tensor[k], &tensors, &at);
    llm__gguf_put_head(&head, &keys, 4, &tensors, n);
    if (head.failed || keys.failed || tensors.failed) return llm__nomem();
    llm_result r = llm__output_open(&o, to);
    if (r) return r;
    llm__output_put(&o, head.data, head.len);
    for (size_t i = 0; i < m->n; i++)
        for (int k = 0; k < m->of[i].n_tensors; k++) {
            llm__importance_put(&o, m->of[i].sum, m->of[i].n_matrices * m->of[i].cols);
            llm__importance_put(&o, m->of[i].count, m->of[i].n_counts);
        }
    return llm__output_done(&o);
}

/* What was made, and experts to which no token came. */
static llm_result llm__importance_report(const llm__importance *m, const llm__calibration_config *c, llm_text *report) {
    int64_t n = 0, unmet = 0;
    for (size_t i = 0; i < m->n; i++) {
        n += m->of[i].n_tensors;
        for (int k = 0; k < m->of[i].n_counts && m->of[i].n_tensors; k++) unmet += m->of[i].n_tensors * (m->of[i].count[k] <= 0);
    }
    if (!report) return LLM_OK;
    llm_text_format(report, "{'n_entries': %l, 'n_tokens': %l, 'n_chunks': %l, 'chunk': %d, 'n_unmet': %l}", n, c->n, c->n / c->chunk,
                    (int)c->chunk, unmet);
    return report->failed ? llm__nomem() : LLM_OK;
}

LLM_API llm_result llm_imatrix(const llm_model *model, const char *text, size_t len, const char *to, const llm_quantize_config *cfg,
                               llm_text *report) {
    LLM__SCOPED(llm__importance_free) llm__importance m = LLM__ZERO;
    LLM__SCOPED(llm_tokens_free) llm_tokens ids = LLM__ZERO;
    llm__calibration_config c = LLM__ZERO;
    if (!to || !*to) return llm__error(LLM_ERR_ARG, "imatrix: the name of a new file expected");
    if (!model->arch.n_layers || model->dummy) return llm__error(LLM_ERR_ARG, "imatrix: a model with weights expected");
    if (llm__path_kind_of(to) == LLM__PATH_DIR) return llm__error(LLM_ERR_ARG, "%s: a folder, the name of a new file expected", to);
    if (llm__path_same(model->path, to)) return llm__error(LLM_ERR_ARG, "%s: the model itself, the name of a new file expected", to);
    c.model = model;
    c.chunk = cfg ? cfg->calibration_tokens : 0;
    llm_result r = llm__calibration_ids(model, text, len, cfg ? cfg->calibration_chunks : 0, &c.chunk, &ids);
    if (r) return r;
    m.model = model;
    m.n = model->source.tensors.n;
    m.of = LLM__NEW(llm__squares, m.n + 1);
    if (!m.of) return llm__nomem();
    c.n_threads = cfg ? cfg->n_threads : 0;
    c.ids = ids.data, c.n = (int64_t)ids.len;
    c.fn = llm__importance_add, c.user = &m;
    c.progress = cfg ? cfg->progress : NULL, c.progress_user = cfg ? cfg->progress_user : NULL;
    c.doing = "reading the text";
    r = llm__calibrate(&c);
    if (!r) r = llm__importance_write(&m, to, cfg && cfg->calibration_name ? cfg->calibration_name : "text", c.n / c.chunk, c.chunk);
    return r ? r : llm__importance_report(&m, &c, report);
}
