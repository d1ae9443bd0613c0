#include "model/tensors.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "cpu/dtypes.h"

/* ---- The table of tensors ----
 * Both readers fill it the same way: llm__tensors_add for each tensor as the header is read, then llm__tensors_place once for the whole
 * file, when it is known where its data starts and all ranges can be compared. Parts and shards go into one table. What later code may rely
 * on, for every tensor in it: its name is unique and plain text; the product of its shape is below 2^63; bytes is what its type needs for
 * that shape; [data, data + bytes) lies in the mapped file and shares no byte with another tensor, but for those of one storage of a file
 * of torch.save, which may be tied. */

LLM__PRIVATE void llm__tensors_free(llm__tensors *t) {
    LLM_FREE(t->item);
    llm__map_free(&t->by_name);
    llm__arena_free(&t->names);
    memset(t, 0, sizeof *t);
}

LLM__PRIVATE const llm__tensor *llm__tensors_find(const llm__tensors *t, const char *name) {
    int32_t i = llm__map_get(&t->by_name, llm__lit(name));
    return i < 0 ? NULL : &t->item[i];
}

LLM__PRIVATE LLM__PRINTF(4, 5) llm_result llm__bad(const char *path, const char *what, llm__str name, const char *format, ...) {
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return llm__error(LLM_ERR_FORMAT, "%s: %s %.*s: %s", path, what, (int)LLM__MIN(name.n, (size_t)128), name.p, text);
}

LLM__PRIVATE char *llm__arena_str(llm__arena *a, llm__str s) {
    char *p = (char *)llm__arena_get(a, s.n + 1);
    if (p && s.n) memcpy(p, s.p, s.n);
    return p;
}

LLM__PRIVATE int llm__plain_text(llm__str s, size_t most) {
    if (!s.n || s.n > most) return 0;
    for (size_t i = 0; i < s.n;) {
        int len;
        int32_t c = llm__utf8_get(s.p + i, s.n - i, &len);
        if (c < 32 || c == 127) return 0;
        i += (size_t)len;
    }
    return 1;
}

LLM__PRIVATE llm_result llm__tensors_add(llm__tensors *t, const char *path, llm__str name, llm__tensor *x) {
    const llm__type_desc *info = llm__type_info(x->type);
    uint64_t elements = 1;
    int ok = 1;
    for (int i = 0; i < 4; i++) {
        if (i >= x->n_dims) x->shape[i] = 1;
        elements = llm__mul(elements, (uint64_t)x->shape[i], &ok);
    }
    if (info && ok && x->n_dims && x->shape[x->n_dims - 1] % info->block)
        return llm__bad(path, "tensor", name, "rows of %lld elements, %s needs a multiple of %d", (long long)x->shape[x->n_dims - 1],
                        info->name, info->block);
    x->bytes = info ? (int64_t)llm__mul(elements / (uint64_t)info->block, (uint64_t)info->bytes, &ok) : 0;
    if (!ok) return llm__bad(path, "tensor", name, "its size overflows");
    char *copy = llm__arena_str(&t->names, name);
    if (!copy || t->n >= INT32_MAX || !llm__grow((void **)&t->item, &t->cap, t->n + 1, sizeof *t->item)) return llm__nomem();
    x->name = llm__s(copy, name.n);
    if (!t->by_name.seed) t->by_name.seed = llm__seed(t);
    int put = llm__map_put(&t->by_name, x->name, (int32_t)t->n);
    if (put <= 0) return put ? llm__nomem() : llm__bad(path, "tensor", name, "it is there twice");
    t->item[t->n++] = *x;
    return LLM_OK;
}

/* Order by place in the file; of two at one place the smaller first, so that an empty tensor overlaps nothing. */
static int llm__tensor_order(const void *a, const void *b) {
    const llm__tensor *x = *(const llm__tensor *const *)a, *y = *(const llm__tensor *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

LLM__PRIVATE llm_result llm__tensors_place(llm__tensors *t, size_t first, const char *path, const uint8_t *data, size_t data_at,
                                           size_t size, int covering) {
    size_t n = t->n - first;
    uint64_t end = 0;
    LLM__SCOPED(llm__drop) const llm__tensor **at = LLM__NEW(const llm__tensor *, n);
    if (!at) return llm__nomem();
    for (size_t i = 0; i < n; i++) at[i] = &t->item[first + i];
    /* in the order of their places each tensor has only its neighbour to be compared with */
    qsort((void *)at, n, sizeof *at, llm__tensor_order);
    for (size_t i = 0; i < n; i++) {
        int ok = 1;
        size_t begin = (size_t)at[i]->offset;
        uint64_t next = llm__add(begin, (uint64_t)at[i]->bytes, &ok);
        llm__add(next, data_at, &ok);
        if (!ok) return llm__bad(path, "tensor", at[i]->name, "offset %zu is beyond any file", begin);
        if (begin < end)
            return llm__bad(path, "tensor", at[i]->name, "byte %zu of the data: it overlaps tensor %s", begin, at[i - 1]->name.p);
        if (covering && begin > end) return llm__bad(path, "tensor", at[i]->name, "a hole before byte %zu of the data", begin);
        end = next;
    }
    if (end > size)
        return llm__error(LLM_ERR_FORMAT, "%s: truncated: the tensors need %zu bytes, the file has %zu", path, data_at + (size_t)end,
                          data_at + size);
    if (covering && end < size)
        return llm__error(LLM_ERR_FORMAT, "%s: %zu bytes after the last tensor, none expected", path, size - (size_t)end);
    for (size_t i = first; i < t->n; i++) t->item[i].data = data + t->item[i].offset;
    return LLM_OK;
}

LLM__PRIVATE void llm__parts_read(const void *parts, int64_t row, int64_t step, int64_t n, int64_t col, int64_t n_cols, void *to) {
    const llm__tensor_parts *p = (const llm__tensor_parts *)parts;
    const int64_t size = llm__type_block_bytes(p->type), rows = p->by_cols ? p->rows : p->rows / p->n,
                  cols = p->by_cols ? p->cols / p->n : p->cols;
    uint8_t *out = (uint8_t *)to;
    for (int64_t i = 0; i < n; i++, row += step)
        for (int64_t c = col, take; c < col + n_cols; c += take, out += take * size) {
            const uint8_t *from = p->data[p->by_cols ? c / cols : row / rows];
            take = LLM__MIN(col + n_cols - c, cols - c % cols);
            memcpy(out, from + ((row % rows) * cols + c % cols) * size, (size_t)(take * size));
        }
}

LLM__PRIVATE void llm__tensor_values(const llm__tensor *t, int64_t row, int64_t cols, int64_t from, int64_t n, float *out) {
    uint8_t some[1024];
    for (int64_t i = 0, m; t->parts && i < n; i += m) {
        m = LLM__MIN(n - i, (int64_t)sizeof some / 4);
        llm__parts_read(t->parts, row, 1, 1, from + i, m, some);
        llm__dequant_columns(t->type, some, 0, m, out + i);
    }
    if (!t->parts) llm__dequant_columns(t->type, t->data + row * llm__row_bytes(t->type, cols), from, n, out);
}
