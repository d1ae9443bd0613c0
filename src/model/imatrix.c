#include "model/imatrix.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "base/files.h"
#include "model/tensors.h"
#include "model/gguf.h"

LLM__PRIVATE void llm__imatrix_free(llm__imatrix *m) {
    LLM_FREE(m->entry);
    llm__map_free(&m->by_name);
    llm__arena_free(&m->memory);
}

LLM__PRIVATE const llm__imatrix_entry *llm__imatrix_find(const llm__imatrix *m, const char *name) {
    const int32_t i = llm__map_get(&m->by_name, llm__lit(name));
    return i < 0 ? NULL : &m->entry[i];
}

/* Adds an entry: means of `sums` by the counts of its matrices (counts NULL: all by `all`). */
static llm_result llm__imatrix_add(llm__imatrix *m, const char *path, llm__str name, const uint8_t *sums, int64_t n, const uint8_t *counts,
                                   int64_t n_counts, float all) {
    if (!llm__plain_text(name, 200)) return llm__error(LLM_ERR_FORMAT, "%s: entry %zu: a name of 1 to 200 letters expected", path, m->n);
    if (n < 1 || n_counts < 1 || n % n_counts)
        return llm__bad(path, "entry", name, "%lld values of %lld matrices", (long long)n, (long long)n_counts);
    float *mean = (float *)llm__arena_take(&m->memory, (size_t)n * sizeof *mean);
    char *own = llm__arena_str(&m->memory, name);
    if (!mean || !own || !llm__grow((void **)&m->entry, &m->cap, m->n + 1, sizeof *m->entry)) return llm__nomem();
    for (int64_t i = 0; i < n; i++) {
        float x, by = all;
        memcpy(&x, sums + 4 * i, 4);
        if (counts) memcpy(&by, counts + i / (n / n_counts) * 4, 4);
        if (!(x >= 0) || !(x < 1e38f) || !(by >= 0) || !(by < 1e38f))
            return llm__bad(path, "entry", name, "value %lld is %g of %g rows, a sum of squares expected", (long long)i, (double)x,
                            (double)by);
        mean[i] = by > 0 ? x / by : 0;
    }
    m->entry[m->n].name = llm__s(own, name.n);
    m->entry[m->n].n = n;
    m->entry[m->n].n_counts = (int32_t)n_counts;
    m->entry[m->n].mean = mean;
    const int put = llm__map_put(&m->by_name, m->entry[m->n].name, (int32_t)m->n);
    m->n++;
    return put < 0 ? llm__nomem() : put ? LLM_OK : llm__bad(path, "entry", name, "it stands there twice");
}

/* The form since 2025. */
static llm_result llm__imatrix_gguf(llm__imatrix *m, const char *path, const llm__file *f) {
    static const llm__str sums = {".in_sum2", 8};
    LLM__SCOPED(llm__gguf_free) llm__gguf keys = LLM__ZERO;
    LLM__SCOPED(llm__tensors_free) llm__tensors t = LLM__ZERO;
    llm_result r = llm__gguf_parse(path, f->data, f->size, &keys, &t);
    if (!r && !llm__str_eq(llm__gguf_str(&keys, "general.type"), "imatrix"))
        r = llm__error(LLM_ERR_FORMAT, "%s: a GGUF file, but no importance matrix: its general.type is not imatrix", path);
    if (r) return r;
    const llm__gguf_kv *sets = llm__gguf_find(&keys, "imatrix.datasets");
    if (sets && sets->is_array && sets->type == LLM__GGUF_STR && sets->count) {
        const uint8_t *at = sets->data;
        const llm__str text = llm__gguf_string(&at);
        const char *own = llm__plain_text(text, 1000) ? llm__arena_str(&m->memory, text) : NULL;
        if (own) m->dataset = llm__s(own, text.n);
    }
    m->n_chunks = (int32_t)LLM__MAX(llm__gguf_int(&keys, "imatrix.chunk_count", 0), 0);
    m->chunk = (int32_t)LLM__MAX(llm__gguf_int(&keys, "imatrix.chunk_size", 0), 0);
    for (size_t i = 0; i < t.n && !r; i++) {
        const llm__tensor *x = &t.item[i];
        char name[256];
        if (!llm__ends_with(x->name.p, sums.p)) continue;
        snprintf(name, sizeof name, "%.*s.counts", (int)LLM__MIN(x->name.n - sums.n, (size_t)240), x->name.p);
        const llm__tensor *c = llm__tensors_find(&t, name);
        if (!c || c->type != LLM_TYPE_F32 || x->type != LLM_TYPE_F32) r = llm__bad(path, "tensor", x->name, "F32 sums and counts expected");
        else r = llm__imatrix_add(m, path, llm__s(x->name.p, x->name.n - sums.n), x->data, x->bytes / 4, c->data, c->bytes / 4, 0);
    }
    return r;
}

/* A number of 32 bits at *at, moved on; 0 where the file ends. */
static int llm__imatrix_number(const llm__file *f, size_t *at, int32_t *out) {
    if (f->size - *at < 4) return 0;
    memcpy(out, f->data + *at, 4);
    *at += 4;
    return 1;
}

/* The form before. Behind the entries may stand the number of chunks and the name of the text. */
static llm_result llm__imatrix_dat(llm__imatrix *m, const char *path, const llm__file *f) {
    int32_t n, len, calls, values;
    size_t at = 0;
    if (!llm__imatrix_number(f, &at, &n) || n < 1 || n > 1 << 20) return llm__error(LLM_ERR_FORMAT, "%s: no importance matrix", path);
    for (int32_t i = 0; i < n; i++) {
        int ok = llm__imatrix_number(f, &at, &len) && len > 0 && (size_t)len <= f->size - at;
        const llm__str name = {ok ? (const char *)f->data + at : NULL, ok ? (size_t)len : 0};
        at += name.n;
        ok = ok && llm__imatrix_number(f, &at, &calls) && llm__imatrix_number(f, &at, &values);
        ok = ok && values > 0 && (size_t)values <= (f->size - at) / 4;
        if (!ok || calls < 0)
            return llm__error(LLM_ERR_FORMAT, "%s: an importance matrix that ends within its entry %d of %d", path, i + 1, n);
        llm_result r = llm__imatrix_add(m, path, name, f->data + at, values, NULL, 1, calls ? (float)calls : 1);
        if (r) return r;
        at += (size_t)values * 4;
    }
    if (llm__imatrix_number(f, &at, &m->n_chunks)) m->n_chunks = LLM__MAX(m->n_chunks, 0);
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__imatrix_read(const char *path, llm__imatrix *m) {
    LLM__SCOPED(llm__file_close) llm__file f = LLM__ZERO;
    llm_result r = llm__file_open(path, (size_t)1 << 36, 0, &f);
    if (r) return r;
    m->by_name.seed = llm__seed(m);
    r = f.size >= 4 && !memcmp(f.data, "GGUF", 4) ? llm__imatrix_gguf(m, path, &f) : llm__imatrix_dat(m, path, &f);
    if (!r && !m->n) r = llm__error(LLM_ERR_FORMAT, "%s: an importance matrix without entries", path);
    return r;
}

LLM__PRIVATE llm_result llm__imatrix_weights(const char *path, const llm__imatrix_entry *e, int64_t which, int64_t n_matrices, int64_t cols,
                                             float *out) {
    const int one = e->n == cols; /* of all matrices together */
    double sum = 0;
    if (!one && e->n != n_matrices * cols)
        return llm__bad(path, "entry", e->name, "%lld values, the model's tensor has %lld x %lld columns: made of another model?",
                        (long long)e->n, (long long)n_matrices, (long long)cols);
    const float *mean = e->mean + (one ? 0 : which * cols);
    for (int64_t i = 0; i < cols; i++) sum += (double)mean[i];
    const float least = (float)(sum / (double)cols * 1e-6);
    for (int64_t i = 0; i < cols; i++) out[i] = sum > 0 ? LLM__MAX(mean[i], LLM__MAX(least, 1e-30f)) : 1;
    return LLM_OK;
}
