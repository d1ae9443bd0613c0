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
#include "base/save.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/loader.h"
#include "model/gguf_write.h"
#include "model/convert.h"
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
    const llm__squares **owner; /* (n) of each tensor; NULL: none */
} llm__importance;

static void llm__importance_free(llm__importance *m) {
    for (size_t i = 0; i < m->n && m->of; i++) {
        LLM_FREE(m->of[i].sum);
        LLM_FREE(m->of[i].count);
    }
    LLM_FREE(m->of);
    LLM_FREE((void *)m->owner);
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

/* An entry of the file: the sums of `n` inputs one behind the other; `of` has NULL where none came. */
typedef struct llm__importance_entry {
    const char *name;
    const llm__squares *const *of;
    int32_t n, repeat; /* repeat: one input for so many matrices */
    int64_t each;      /* values of one of the inputs */
    int64_t n_counts;  /* of all */
} llm__importance_entry;

typedef struct llm__importance_list {
    llm__importance_entry *entry;
    size_t n, cap;
    llm__arena memory;
} llm__importance_list;

static void llm__importance_list_free(llm__importance_list *l) {
    LLM_FREE(l->entry);
    llm__arena_free(&l->memory);
}

/* The sums of a stored tensor; NULL: it is no linear layer's, or nothing came to it. */
static const llm__squares *llm__importance_of(const llm__importance *m, const char *name) {
    const llm__tensor *t = llm__tensors_find(&m->model->source.tensors, name);
    return t ? m->owner[t - m->model->source.tensors.item] : NULL;
}

/* A new entry of n inputs, which the caller fills in; NULL: no memory. */
static const llm__squares **llm__importance_new(llm__importance_list *l, const char *name, int32_t n) {
    const llm__squares **of = (const llm__squares **)llm__arena_get(&l->memory, (size_t)n * sizeof *of);
    if (!of || !llm__grow((void **)&l->entry, &l->cap, l->n + 1, sizeof *l->entry)) return NULL;
    llm__importance_entry *e = &l->entry[l->n++];
    memset(e, 0, sizeof *e);
    e->name = name, e->of = of, e->n = n, e->repeat = 1;
    return of;
}

/* Of a GGUF file: its tensors. */
static llm_result llm__importance_stored(const llm__importance *m, llm__importance_list *l) {
    for (size_t i = 0; i < m->model->source.tensors.n; i++) {
        const llm__squares *s = m->owner[i];
        const llm__squares **of = s ? llm__importance_new(l, m->model->source.tensors.item[i].name.p, 1) : NULL;
        if (s && !of) return llm__nomem();
        if (!s) continue;
        of[0] = s;
        l->entry[l->n - 1].each = s->n_matrices * s->cols;
        l->entry[l->n - 1].n_counts = s->n_counts;
    }
    return LLM_OK;
}

/* Of a folder: the tensors that it has as GGUF. */
static llm_result llm__importance_converted(const llm__importance *m, const llm__conversion *c, llm__importance_list *l) {
    for (size_t i = 0; i < c->tensors.n; i++) {
        const llm__tensor *t = &c->tensors.item[i];
        const llm__convert_row *how = &c->row[i];
        int met = 0;
        for (int k = 0; k < how->n && how->cut != 1; k++) met |= llm__importance_of(m, how->stack[k]->name.p) != NULL;
        if (!met || t->n_dims < 2) continue;
        const llm__squares **of = llm__importance_new(l, t->name.p, how->n);
        if (!of) return llm__nomem();
        llm__importance_entry *e = &l->entry[l->n - 1];
        for (int k = 0; k < how->n; k++) of[k] = llm__importance_of(m, how->stack[k]->name.p);
        e->each = t->shape[t->n_dims - 1] * (how->n == 1 && !how->cut ? of[0]->n_matrices : 1);
        e->n_counts = how->n > 1 ? how->n : of[0]->n_counts;
        if (how->cut) e->repeat = (int32_t)t->shape[0];
    }
    return LLM_OK;
}

/* What an entry has in the file's head. */
static void llm__importance_tensor(const llm__importance_entry *e, llm_text *tensors, uint64_t *at) {
    LLM__SCOPED(llm_text_free) llm_text name = LLM__ZERO;
    const int64_t sums[2] = {e->n_counts, e->n * e->repeat * e->each / e->n_counts}, counts[2] = {e->n_counts, 1};
    llm_text_format(&name, "%s.in_sum2", e->name);
    llm__gguf_put_tensor(tensors, llm__text_str(&name), 2, sums, LLM_TYPE_F32, at);
    name.len = 0;
    llm_text_format(&name, "%s.counts", e->name);
    llm__gguf_put_tensor(tensors, llm__text_str(&name), 2, counts, LLM_TYPE_F32, at);
    if (name.failed) tensors->failed = 1;
}

/* n numbers as the file has them; x NULL: zeros. *done: of the tensor so far. */
static void llm__importance_put(llm__save *o, const double *x, int64_t n, int64_t *done) {
    for (int64_t i = 0; i < n; i++) {
        const float v = x ? (float)x[i] : 0;
        llm__save_put(o, &v, 4);
    }
    *done += n;
}

static void llm__importance_pad(llm__save *o, int64_t done) {
    static const char zeros[LLM__GGUF_ALIGN] = {0};
    llm__save_put(o, zeros, (size_t)(-done * 4 & (LLM__GGUF_ALIGN - 1)));
}

/* Writes the file. */
static llm_result llm__importance_write(const llm__importance_list *l, const char *to, const char *dataset, int64_t chunks, int32_t chunk) {
    LLM__SCOPED(llm_text_free) llm_text keys = LLM__ZERO, tensors = LLM__ZERO, head = LLM__ZERO;
    LLM__SCOPED(llm__save_close) llm__save o = LLM__ZERO;
    uint64_t at = 0;
    llm__gguf_put_str(&keys, "general.type", llm__lit("imatrix"));
    llm__gguf_put_array(&keys, "imatrix.datasets", LLM__GGUF_STR, 1);
    llm__gguf_put_text(&keys, llm__lit(dataset));
    llm__gguf_put_int(&keys, "imatrix.chunk_count", chunks);
    llm__gguf_put_int(&keys, "imatrix.chunk_size", chunk);
    for (size_t i = 0; i < l->n; i++) llm__importance_tensor(&l->entry[i], &tensors, &at);
    llm__gguf_put_head(&head, &keys, 4, &tensors, 2 * l->n);
    if (head.failed || keys.failed || tensors.failed) return llm__nomem();
    llm_result r = llm__save_open(&o, to);
    if (r) return r;
    llm__save_put(&o, head.data, head.len);
    for (size_t i = 0; i < l->n; i++) {
        const llm__importance_entry *e = &l->entry[i];
        int64_t done = 0, counted = 0;
        for (int k = 0; k < e->n * e->repeat; k++) {
            const llm__squares *s = e->of[k / e->repeat];
            llm__importance_put(&o, s ? s->sum : NULL, e->each, &done);
        }
        llm__importance_pad(&o, done);
        for (int k = 0; k < e->n; k++) llm__importance_put(&o, e->of[k] ? e->of[k]->count : NULL, e->n_counts / e->n, &counted);
        llm__importance_pad(&o, counted);
    }
    return llm__save_done(&o);
}

/* What was made, and matrices to which no token came. */
static llm_result llm__importance_report(const llm__importance_list *l, const llm__calibration_config *c, llm_text *report) {
    int64_t unmet = 0;
    for (size_t i = 0; i < l->n; i++)
        for (int k = 0; k < l->entry[i].n; k++) {
            const llm__squares *s = l->entry[i].of[k];
            unmet += !s;
            for (int e = 0; s && e < s->n_counts; e++) unmet += s->count[e] <= 0;
        }
    if (!report) return LLM_OK;
    llm_text_format(report, "{'n_entries': %l, 'n_tokens': %l, 'n_chunks': %l, 'chunk': %d, 'n_unmet': %l}", (int64_t)l->n, c->n,
                    c->n / c->chunk, (int)c->chunk, unmet);
    return report->failed ? llm__nomem() : LLM_OK;
}

/* Whose sums belong to which tensor: those that share an input have the same. */
static llm_result llm__importance_owners(llm__importance *m) {
    m->owner = LLM__NEW(const llm__squares *, m->n + 1);
    if (!m->owner) return llm__nomem();
    for (size_t i = 0; i < m->n; i++)
        for (int k = 0; k < m->of[i].n_tensors; k++) m->owner[m->of[i].tensor[k] - m->model->source.tensors.item] = &m->of[i];
    return LLM_OK;
}

LLM_API llm_result llm_imatrix(const llm_model *model, const char *text, size_t len, const char *to, const llm_quantize_config *cfg,
                               llm_text *report) {
    LLM__SCOPED(llm__importance_free) llm__importance m = LLM__ZERO;
    LLM__SCOPED(llm_tokens_free) llm_tokens ids = LLM__ZERO;
    LLM__SCOPED(llm__convert_close) llm__conversion folder = LLM__ZERO;
    LLM__SCOPED(llm__importance_list_free) llm__importance_list list = LLM__ZERO;
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
    if (!model->source.gguf) r = llm__convert_open(model->path, &folder); /* entries are called as in the file that will be made of it */
    if (!r) r = llm__calibrate(&c);
    if (!r) r = llm__importance_owners(&m);
    if (!r) r = model->source.gguf ? llm__importance_stored(&m, &list) : llm__importance_converted(&m, &folder, &list);
    if (!r) r = llm__importance_write(&list, to, cfg && cfg->calibration_name ? cfg->calibration_name : "text", c.n / c.chunk, c.chunk);
    return r ? r : llm__importance_report(&list, &c, report);
}
