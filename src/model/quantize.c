/* quantize: a GGUF file of smaller weights. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/quantize.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "base/save.h"
#include "base/threads.h"
#include "cpu/dtypes.h"
#include "cpu/quantise.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/source.h"
#include "model/source_open.h"
#include "model/mixture.h"
#include "model/gguf_write.h"
#include "model/convert.h"
#include "model/imatrix.h"

/* ---- The file ---- Its keys are the source's, byte for byte, but for the two that say how it is quantised, and those about parts.
 * Tensors go in the order of their layers. Rows are made some at a time, by all threads, and written: memory holds no tensor whole. */

enum { LLM__QUANTIZE_CHUNK = 16 << 20, LLM__QUANTIZE_SOME = 8192 };

/* What is being written. */
typedef struct llm__quantizing {
    const char *to;
    const llm_quantize_config *cfg;
    llm__source source; /* a GGUF file; of a folder what it would be as one, which the conversion owns */
    llm__conversion *folder;
    const llm__tensor **order; /* (n) */
    int32_t *type;             /* (n) what each becomes */
    size_t n;
    const llm__mixture *mixture;
    llm__imatrix imatrix;
    int64_t n_unweighted;
    llm__save file;
    llm__pool *pool;
    uint8_t *out;      /* a chunk of rows as they are written */
    float *scratch;    /* (threads, widest) */
    size_t widest;     /* floats of a thread's part */
    int64_t done, all; /* bytes of the source's tensors */
    /* of the chunk that all threads work on */
    const llm__tensor *tensor;
    int32_t to_type;
    int64_t row, rows;
    const float *weights; /* (its matrices, columns); NULL: nothing is known of them */
    int bad;
    llm_result r;
} llm__quantizing;

static void llm__quantizing_close(llm__quantizing *q) {
    llm__save_close(&q->file);
    llm__pool_close(q->pool);
    LLM_FREE(q->order);
    LLM_FREE(q->type);
    LLM_FREE(q->out);
    LLM_FREE(q->scratch);
    llm__imatrix_free(&q->imatrix);
    if (q->folder) {
        q->source.gguf = NULL;
        memset(&q->source.tensors, 0, sizeof q->source.tensors);
        llm__convert_close(q->folder);
        LLM_FREE(q->folder);
    }
    llm__source_close(&q->source);
}

/* n rows of a tensor, from `row` on, as another type to `to`. weights: of the columns of each of its matrices, or NULL. scratch: as many
 * floats. 0: a value is not finite. */
static int llm__quantize_rows(const llm__conversion *folder, const llm__tensor *t, int32_t type, int64_t row, int64_t n,
                              const float *weights, float *scratch, uint8_t *to) {
    const int64_t cols = t->shape[t->n_dims - 1], each = t->n_dims > 1 ? t->shape[t->n_dims - 2] : 1, bytes = llm__row_bytes(type, cols);
    for (int64_t i = 0; i < n; i++) {
        if (folder) llm__convert_values(folder, t, row + i, scratch + i * cols);
        else llm__tensor_values(t, row + i, cols, 0, cols, scratch + i * cols);
    }
    for (int64_t i = 0, some; i < n; i += some) {
        some = LLM__MIN(n - i, each - (row + i) % each); /* of one matrix */
        const float *w = weights ? weights + (row + i) / each * cols : NULL;
        if (!llm__quantise(type, scratch + i * cols, w, some, cols, to + i * bytes)) return 0;
    }
    return 1;
}

/* A thread's share of the rows of a chunk. */
static void llm__quantize_part(void *arg, int pass, int part, int n_parts) {
    llm__quantizing *q = (llm__quantizing *)arg;
    const int64_t cols = q->tensor->shape[q->tensor->n_dims - 1], some = LLM__MAX(1, LLM__QUANTIZE_SOME / cols),
                  bytes = llm__row_bytes(q->to_type, cols);
    const int64_t first = q->rows * part / n_parts, end = q->rows * (part + 1) / n_parts;
    (void)pass;
    for (int64_t i = first; i < end; i += some) {
        const int64_t n = LLM__MIN(some, end - i);
        if (!llm__quantize_rows(q->folder, q->tensor, q->to_type, q->row + i, n, q->weights, q->scratch + (size_t)part * q->widest,
                                q->out + i * bytes))
            __atomic_store_n(&q->bad, 1, __ATOMIC_RELAXED);
    }
}

/* Writes n bytes; the first failure stays. */
static void llm__quantize_put(llm__quantizing *q, const void *p, size_t n) {
    llm__save_put(&q->file, p, n);
    if (!q->r) q->r = q->file.r;
}

/* A key as the source has it. Texts of an array follow each other with their lengths. */
static void llm__quantize_key(llm_text *t, const llm__gguf_kv *kv) {
    const uint8_t *end = kv->data;
    if (kv->type == LLM__GGUF_STR)
        for (uint64_t i = 0; i < kv->count; i++) llm__gguf_string(&end);
    else end += kv->count * (uint64_t)llm__gguf_size_of(kv->type);
    llm__gguf_put_text(t, kv->key);
    if (kv->is_array) llm__gguf_put_number(t, LLM__GGUF_ARRAY, 4);
    llm__gguf_put_number(t, (uint64_t)kv->type, 4);
    if (kv->is_array) llm__gguf_put_number(t, kv->count, 8);
    llm_text_add(t, (const char *)kv->data, (size_t)(end - kv->data));
}

/* How it was weighted, as llama-quantize says it. Returns the number of keys. */
static uint64_t llm__quantize_imatrix_keys(const llm__quantizing *q, llm_text *keys) {
    const llm__imatrix *m = &q->imatrix;
    llm__gguf_put_str(keys, "quantize.imatrix.file", llm__lit(q->cfg->imatrix));
    if (m->dataset.p) llm__gguf_put_str(keys, "quantize.imatrix.dataset", m->dataset);
    llm__gguf_put_int(keys, "quantize.imatrix.entries_count", (int64_t)m->n);
    if (m->n_chunks) llm__gguf_put_int(keys, "quantize.imatrix.chunks_count", m->n_chunks);
    return 2 + (m->dataset.p != NULL) + (m->n_chunks != 0);
}

/* The head of the file: keys, then names, shapes, types and places of the tensors. */
static llm_result llm__quantize_head(const llm__quantizing *q, llm_text *t) {
    LLM__SCOPED(llm_text_free) llm_text keys = LLM__ZERO, tensors = LLM__ZERO;
    const llm__gguf *g = q->source.gguf;
    uint64_t n = 2, at = 0;
    for (size_t i = 0; i < g->n_kv; i++) {
        const llm__str key = g->kv[i].key;
        if (llm__starts(key, llm__lit("split.")) || llm__str_eq(key, "general.alignment") || llm__str_eq(key, "general.file_type") ||
            llm__str_eq(key, "general.quantization_version") || (q->imatrix.n && llm__starts(key, llm__lit("quantize.imatrix."))))
            continue;
        llm__quantize_key(&keys, &g->kv[i]);
        n++;
    }
    llm__gguf_put_int(&keys, "general.file_type", q->mixture->number);
    llm__gguf_put_int(&keys, "general.quantization_version", 2);
    if (q->imatrix.n) n += llm__quantize_imatrix_keys(q, &keys);
    for (size_t i = 0; i < q->n; i++) {
        const llm__tensor *x = q->order[i];
        llm__gguf_put_tensor(&tensors, x->name, x->n_dims, x->shape, q->type[i], &at);
    }
    llm__gguf_put_head(t, &keys, n, &tensors, q->n);
    return t->failed || keys.failed || tensors.failed ? llm__nomem() : LLM_OK;
}

/* Tells how far it is. */
static void llm__quantize_tell(llm__quantizing *q) {
    const llm_quantize_config *c = q->cfg;
    if (!q->r && c->progress && c->progress(c->progress_user, "quantizing", q->all ? (double)q->done / (double)q->all : 1))
        q->r = llm__error(LLM_ERR_CANCELLED, "%s: quantizing was cancelled", q->to);
}

/* The weights of a tensor's columns, to be freed; NULL: none are known, or the type has no choice. */
static void llm__quantize_weights(llm__quantizing *q, const llm__tensor *t, int32_t type, float **out) {
    const llm__imatrix_entry *e = q->imatrix.n ? llm__imatrix_find(&q->imatrix, t->name.p) : NULL;
    const int64_t cols = t->shape[t->n_dims - 1], n = t->n_dims > 2 ? t->shape[0] : 1;
    if (!e || q->r || llm__type_block(type) == 1) return;
    *out = LLM__NEW(float, n *cols);
    if (!*out) q->r = llm__nomem();
    for (int64_t i = 0; i < n && !q->r; i++) q->r = llm__imatrix_weights(q->cfg->imatrix, e, i, n, cols, *out + i * cols);
}

/* Reads the importance matrix and holds it against the model: entries of other sizes, or none that fits, are another model's. */
static llm_result llm__quantize_importance(llm__quantizing *q) {
    int64_t found = 0;
    llm_result r = llm__imatrix_read(q->cfg->imatrix, &q->imatrix);
    for (size_t i = 0; i < q->n && !r; i++) {
        const llm__tensor *t = q->order[i];
        const llm__imatrix_entry *e = llm__imatrix_find(&q->imatrix, t->name.p);
        LLM__SCOPED(llm__drop) float *weights = NULL;
        if (q->type[i] == t->type || llm__type_block(q->type[i]) == 1) continue;
        found += e != NULL;
        q->n_unweighted += !e && llm__mixing_layer(t->name.p) >= 0;
        const int64_t cols = t->shape[t->n_dims - 1], n = t->n_dims > 2 ? t->shape[0] : 1;
        weights = e ? LLM__NEW(float, cols) : NULL;
        if (e && !weights) r = llm__nomem();
        if (weights) r = llm__imatrix_weights(q->cfg->imatrix, e, 0, n, cols, weights);
    }
    if (!r && !found)
        r = llm__error(LLM_ERR_FORMAT, "%s: none of its %zu entries is of a tensor that is quantised here: made of another model?",
                       q->cfg->imatrix, q->imatrix.n);
    return r;
}

/* The data of one tensor. What has been read of the source is given back, so that memory does not fill with the file. */
static void llm__quantize_tensor(llm__quantizing *q, const llm__tensor *t, int32_t type) {
    static const uint8_t zeros[LLM__GGUF_ALIGN] = {0};
    const int64_t cols = t->shape[LLM__MAX(t->n_dims, 1) - 1],
                  rows = cols ? t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] / cols : 0;
    const int64_t from = llm__row_bytes(t->type, cols), bytes = llm__row_bytes(type, cols),
                  most = LLM__MAX(1, LLM__QUANTIZE_CHUNK / LLM__MAX(bytes, 1));
    LLM__SCOPED(llm__drop) float *weights = NULL;
    if (type != t->type && t->n_dims > 1) llm__quantize_weights(q, t, type, &weights);
    q->weights = weights;
    for (int64_t row = 0, n; row < rows && !q->r; row += n) {
        n = LLM__MIN(most, rows - row);
        if (type == t->type && !q->folder) {
            llm__quantize_put(q, t->data + row * from, (size_t)(n * from));
        } else {
            q->tensor = t, q->to_type = type, q->row = row, q->rows = n;
            llm__pool_run(q->pool, llm__quantize_part, q, 1);
            if (q->bad)
                q->r = llm__bad(q->source.path, "tensor", t->name, "a value is not finite, or too large for %s", llm__type_name(type));
            llm__quantize_put(q, q->out, (size_t)(n * bytes));
        }
        if (n * from > 1 << 20 && !q->folder) llm__file_rest(t->data + row * from, (size_t)(n * from));
        q->done += n * from;
        llm__quantize_tell(q);
    }
    if (q->folder) llm__convert_rest(q->folder, t);
    llm__quantize_put(q, zeros, (size_t)((LLM__GGUF_ALIGN - rows * bytes % LLM__GGUF_ALIGN) % LLM__GGUF_ALIGN));
}

/* By layer, then by name. */
static int llm__quantize_order(const void *a, const void *b) {
    const llm__tensor *x = *(const llm__tensor *const *)a, *y = *(const llm__tensor *const *)b;
    const int i = llm__mixing_layer(x->name.p), k = llm__mixing_layer(y->name.p);
    return i != k ? (i < k ? -1 : 1) : strcmp(x->name.p, y->name.p);
}

/* A type by its name, of those that can be made. */
static llm_result llm__quantize_type(const char *name, const char *what, int32_t *out) {
    const llm__mixture *m = name ? llm__mixture_find(name) : NULL;
    *out = m ? m->base : -1;
    return !name || m ? LLM_OK : llm__error(LLM_ERR_ARG, "%s: %.40s, one of %s expected", what, name, llm__mixture_names());
}

/* What the tensors are in all. */
typedef struct llm__quantize_sums {
    int64_t n_params, bytes_before, bytes_after, n_changed;
} llm__quantize_sums;

/* Which tensor becomes what, and the memory for it. */
static llm_result llm__quantize_plan(llm__quantizing *q, llm__quantize_sums *info) {
    const llm__tensors *t = &q->source.tensors;
    llm__mixing mix;
    int threads = q->cfg->n_threads > 0 ? q->cfg->n_threads : llm__cores();
    llm__mixing_open(q->mixture, q->source.gguf, t, &mix);
    mix.pure = q->cfg->pure;
    mix.keep_output = q->cfg->keep_output;
    mix.importance = q->cfg->imatrix != NULL;
    llm_result r = llm__quantize_type(q->cfg->output_type, "output_type", &mix.output);
    if (!r) r = llm__quantize_type(q->cfg->embedding_type, "embedding_type", &mix.embedding);
    q->n = t->n;
    q->order = LLM__NEW(const llm__tensor *, t->n + 1);
    q->type = LLM__NEW(int32_t, t->n + 1);
    q->pool = llm__pool_open(threads);
    if (!r && (!q->order || !q->type || !q->pool)) r = llm__nomem();
    for (size_t i = 0; i < t->n && !r; i++) q->order[i] = &t->item[i];
    if (!r) qsort((void *)q->order, q->n, sizeof *q->order, llm__quantize_order);
    q->widest = LLM__QUANTIZE_SOME;
    int64_t row = LLM__QUANTIZE_CHUNK;
    for (size_t i = 0; i < q->n && !r; i++) {
        const llm__tensor *x = q->order[i];
        const int64_t cols = x->shape[LLM__MAX(x->n_dims, 1) - 1];
        q->type[i] = llm__mixing_type(&mix, x);
        if (q->folder && q->mixture->base == LLM_TYPE_F32) q->type[i] = LLM_TYPE_F32; /* what llama.cpp's converter writes then */
        if (!llm__type_info(x->type)) return llm__bad(q->source.path, "tensor", x->name, "its type is not known");
        info->n_params += x->shape[0] * x->shape[1] * x->shape[2] * x->shape[3];
        info->bytes_before += x->bytes;
        info->bytes_after += llm__row_bytes(q->type[i], x->shape[0] * x->shape[1] * x->shape[2] * x->shape[3]);
        info->n_changed += q->type[i] != x->type;
        if (q->type[i] == x->type && !q->folder) continue;
        if (!llm__type_readable(x->type))
            return llm__bad(q->source.path, "tensor", x->name, "type %s is not read here", llm__type_name(x->type));
        if (llm__type_block(x->type) > 1 && !q->cfg->allow_requantize)
            return llm__error(LLM_ERR_ARG,
                              "%s: tensor %s is %s already: quantise the model in F16, BF16 or F32, or allow it (--allow-requantize)",
                              q->source.path, x->name.p, llm__type_name(x->type));
        q->widest = LLM__MAX(q->widest, (size_t)cols);
        row = LLM__MAX(row, llm__row_bytes(q->type[i], cols));
    }
    q->all = info->bytes_before;
    if (!r && q->cfg->imatrix) r = llm__quantize_importance(q);
    if (r) return r;
    q->scratch = LLM__NEW(float, q->widest *(size_t)q->pool->n);
    q->out = LLM__NEW(uint8_t, row);
    return q->scratch && q->out ? LLM_OK : llm__nomem();
}

/* The file that was written says what it should. */
static llm_result llm__quantize_check(const llm__quantizing *q) {
    const char *part = q->file.part.data;
    LLM__SCOPED(llm__file_close) llm__file f = LLM__ZERO;
    LLM__SCOPED(llm__gguf_free) llm__gguf keys = LLM__ZERO;
    LLM__SCOPED(llm__tensors_free) llm__tensors tensors = LLM__ZERO;
    llm_result r = llm__file_open(part, 0, 0, &f);
    if (!r) r = llm__gguf_parse(part, f.data, f.size, &keys, &tensors);
    for (size_t i = 0; i < q->n && !r; i++) {
        const llm__tensor *t = llm__tensors_find(&tensors, q->order[i]->name.p);
        if (!t || t->type != q->type[i] || tensors.n != q->n)
            r = llm__error(LLM_ERR_IO, "%s: what was written is not what was read again", q->to);
    }
    return r;
}

/* Writes the whole file. */
static llm_result llm__quantize_write(llm__quantizing *q) {
    LLM__SCOPED(llm_text_free) llm_text head = LLM__ZERO;
    q->r = llm__quantize_head(q, &head);
    if (q->r) return q->r;
    q->r = llm__save_open(&q->file, q->to);
    if (q->r) return q->r;
    llm__quantize_tell(q);
    llm__quantize_put(q, head.data, head.len);
    for (size_t i = 0; i < q->n && !q->r; i++) llm__quantize_tensor(q, q->order[i], q->type[i]);
    if (!q->r) q->r = llm__save_flush(&q->file);
    if (!q->r) q->r = llm__source_whole(&q->source);
    if (!q->r) q->r = llm__quantize_check(q);
    if (!q->r && q->folder) q->r = llm__convert_check(q->folder->model, q->file.part.data, "in GGUF");
    return q->r ? q->r : llm__save_done(&q->file);
}

/* The source: a GGUF file, of split ones the first, or a folder. */
static llm_result llm__quantize_open(llm__quantizing *q, const char *path) {
    llm__file f;
    q->source.path = path;
    if (llm__path_kind_of(path) == LLM__PATH_DIR) {
        q->folder = LLM__NEW(llm__conversion, 1);
        llm_result made = q->folder ? llm__convert_open(path, q->folder) : llm__nomem();
        if (made) return made;
        q->source.gguf = &q->folder->keys;
        q->source.tensors = q->folder->tensors;
        return LLM_OK;
    }
    llm_result r = llm__source_file(&q->source, path, &f);
    if (!r && !llm__is_gguf(&f)) r = llm__error(LLM_ERR_FORMAT, "%s: a GGUF file expected", path);
    return r ? r : llm__source_gguf(&q->source, path, f);
}

/* The type that most of the matrices have: F32, F16 or BF16. */
static void llm__quantize_auto(llm__quantizing *q) {
    int64_t bytes[3] = {0, 0, 0};
    static const int32_t types[3] = {LLM_TYPE_F32, LLM_TYPE_F16, LLM_TYPE_BF16};
    int best = 1;
    for (size_t i = 0; i < q->source.tensors.n; i++)
        for (int k = 0; k < 3; k++)
            if (q->source.tensors.item[i].n_dims > 1 && q->source.tensors.item[i].type == types[k])
                bytes[k] += q->source.tensors.item[i].bytes;
    for (int k = 0; k < 3; k++) best = bytes[k] > bytes[best] ? k : best;
    q->mixture = llm__mixture_find(best == 0 ? "f32" : best == 1 ? "f16" : "bf16");
}

LLM_API llm_result llm_quantize(const char *path, const char *to, const llm_quantize_config *cfg, llm_text *report) {
    static const llm_quantize_config usual = LLM__ZERO;
    LLM__SCOPED(llm__quantizing_close) llm__quantizing q = LLM__ZERO;
    llm__quantize_sums sums = LLM__ZERO;
    q.cfg = cfg ? cfg : &usual;
    q.to = to;
    if (!path || !*path || !to || !*to) return llm__error(LLM_ERR_ARG, "quantize: a model and the name of a new file expected");
    const char *type = q.cfg->type ? q.cfg->type : "q4_k_m";
    q.mixture = llm__mixture_find(strcmp(type, "auto") ? type : "f16");
    if (!q.mixture) return llm__error(LLM_ERR_ARG, "type: %.40s, one of %s expected", q.cfg->type, llm__mixture_names());
    if (llm__path_kind_of(to) == LLM__PATH_DIR) return llm__error(LLM_ERR_ARG, "%s: a folder, the name of a new file expected", to);
    if (llm__path_same(path, to)) return llm__error(LLM_ERR_ARG, "%s: the model itself, the name of a new file expected", to);
    llm_result r = llm__quantize_open(&q, path);
    if (!r && !strcmp(type, "auto")) llm__quantize_auto(&q);
    if (!r) r = llm__quantize_plan(&q, &sums);
    if (!r) r = llm__quantize_write(&q);
    if (r || !report) return r;
    llm_text_format(report, "{'type': %q, 'n_params': %l, 'bytes_before': %l, 'bytes_after': %l, 'bits_per_weight': %f, ", q.mixture->name,
                    sums.n_params, sums.bytes_before, sums.bytes_after,
                    sums.n_params ? 8 * (double)sums.bytes_after / (double)sums.n_params : 0);
    llm_text_format(report, "'n_tensors': %l, 'n_changed': %l, 'n_unweighted': %l}", (int64_t)q.n, sums.n_changed, q.n_unweighted);
    return report->failed ? llm__nomem() : LLM_OK;
}
