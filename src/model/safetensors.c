#include "model/safetensors.h"
#include "api/config.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/gguf.h"

LLM__PRIVATE const char *llm__looks_like(const uint8_t *p, size_t n) {
    static const struct {
        const char *start, *what;
    } known[] = {
        {"version https://git-lfs", " (a Git LFS pointer, not the file itself: git lfs pull fetches it)"},
        {"PK\x03\x04", " (a zip, as torch.save writes: its name is pytorch_model.bin in a folder with config.json)"},
        {"\x80\x02", " (a Python pickle, not of torch.save)"},
        {"lmgg", " (a ggml file older than GGUF)"},
        {"tjgg", " (a ggml file older than GGUF)"},
        {"<!DOCTYPE", " (a web page)"},
    };
    for (int i = 0; i < LLM__COUNT(known); i++)
        if (n >= strlen(known[i].start) && !memcmp(p, known[i].start, strlen(known[i].start))) return known[i].what;
    return "";
}

/* The type of a dtype's name; -1: none of safetensors. Quantised types have names in GGUF only. */
static int32_t llm__safetensors_type(const char *name) {
    const llm__type_desc *d;
    for (int i = 0; (d = llm__type_at(i)) != NULL; i++)
        if (d->block == 1 && !strcmp(d->name, name)) return d->type;
    return -1;
}

/* Reads a shape. Dimensions before the last four are folded into one (a 3-D convolution of an image tower has five). 0: not whole numbers
 * from 0 on, or too large. */
static int llm__safetensors_shape(const llm_json *doc, int shape, llm__tensor *x) {
    int ok = 1, n_dims = llm_json_size(doc, shape), extra = LLM__MAX(0, n_dims - 4), i = 0;
    int64_t dim;
    x->n_dims = n_dims - extra;
    for (int v = llm_json_first(doc, shape); v >= 0 && ok; v = llm_json_next(doc, v), i++) {
        if (!llm_json_int(doc, v, &dim) || dim < 0) return 0;
        int to = LLM__MAX(0, i - extra);
        x->shape[to] = i && !to ? (int64_t)llm__mul((uint64_t)x->shape[0], (uint64_t)dim, &ok) : dim;
    }
    return ok;
}

/* "name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}: these three members, no more. */
static llm_result llm__safetensors_item(const char *path, const llm_json *doc, int node, llm__tensors *tensors) {
    llm__tensor x = LLM__ZERO;
    llm__str name = llm__json_key(doc, node);
    int64_t begin = -1, end = -1;
    int dtype = llm_json_find(doc, node, "dtype"), shape = llm_json_find(doc, node, "shape"),
        places = llm_json_find(doc, node, "data_offsets");
    const char *type = llm_json_str(doc, dtype, NULL);
    if (!llm__plain_text(name, 65535)) return llm__error(LLM_ERR_FORMAT, "%s: a tensor name is no plain text of 1 to 65535 bytes", path);
    if (llm_json_size(doc, node) != 3 || !type || llm_json_type_of(doc, shape) != LLM_JSON_ARRAY ||
        llm_json_type_of(doc, places) != LLM_JSON_ARRAY)
        return llm__bad(path, "tensor", name, "dtype, shape and data_offsets expected");
    x.type = llm__safetensors_type(type);
    if (x.type < 0) return llm__bad(path, "tensor", name, "dtype \"%.32s\" is not known", type);
    if (!llm__safetensors_shape(doc, shape, &x))
        return llm__bad(path, "tensor", name, "shape: whole numbers from 0 on with a product below 2^63 expected");
    int first = llm_json_first(doc, places), last = llm_json_next(doc, first);
    if (llm_json_size(doc, places) != 2 || !llm_json_int(doc, first, &begin) || !llm_json_int(doc, last, &end) || begin < 0 || end < begin)
        return llm__bad(path, "tensor", name, "data_offsets: two ascending whole numbers expected");
    x.offset = (uint64_t)begin;
    /* the length is said twice, by the shape and by the offsets */
    llm_result r = llm__tensors_add(tensors, path, name, &x);
    if (r || x.bytes == end - begin) return r;
    return llm__bad(path, "tensor", name, "data_offsets hold %lld bytes, %s of its shape needs %lld", (long long)(end - begin), type,
                    (long long)x.bytes);
}

LLM__PRIVATE llm_result llm__safetensors_parse(const char *path, const uint8_t *data, size_t size, llm__tensors *tensors) {
    static const llm_json_limits limits = {8, 16000000, 0};
    const size_t limit = 100000000; /* the format's own */
    size_t first = tensors->n, n = size >= 8 ? (size_t)llm__load_le(data, 8) : 0;
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    int metadata = 0;
    if (size < 10 || n < 2 || n > limit || n > size - 8)
        return llm__error(LLM_ERR_FORMAT, "%s: no safetensors file: %zu bytes, of which its header claims %zu%s", path, size, n,
                          llm__looks_like(data, size));
    if (data[8] != '{') return llm__error(LLM_ERR_FORMAT, "%s: the safetensors header starts with byte %d, '{' expected", path, data[8]);
    llm_result r = llm_json_parse((const char *)data + 8, n, &limits, &doc);
    if (r) return llm__error(r, "%s: safetensors header: %s", path, llm_last_error());
    for (int v = llm_json_first(doc, 0); v >= 0 && !r; v = llm_json_next(doc, v)) {
        if (!llm__str_eq(llm__json_key(doc, v), "__metadata__")) r = llm__safetensors_item(path, doc, v, tensors);
        else if (metadata++) r = llm__error(LLM_ERR_FORMAT, "%s: __metadata__ is there twice", path); /* once: nobody asks for it here */
    }
    return r ? r : llm__tensors_place(tensors, first, path, data + 8 + n, 8 + n, size - 8 - n, 1);
}
