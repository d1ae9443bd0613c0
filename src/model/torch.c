#include "model/torch.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/safetensors.h"
#include "model/zip.h"
#include "model/pickle.h"

/* How a file of torch 0.1.10 to 1.5 begins: a pickle of the number 0x1950a86a20f9469cfc6c. */
static const uint8_t llm__torch_magic[15] = {0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

enum { LLM__TORCH_DIMS = 16, LLM__TORCH_DEPTH = 3, LLM__TORCH_PICKLE = 32 << 20 };

/* A file while it is read. */
typedef struct llm__torch {
    const char *path;
    llm__tensors *tensors;
    llm__arena *arena;
    llm__pickle pickle;
    llm__zip zip;            /* of an old file: items are storages, by their keys */
    char folder[256];        /* of storages in the zip: "archive/data/" */
    uint64_t copies, budget; /* bytes of tensors that were put in order, and how many may be */
} llm__torch;

static void llm__torch_close(llm__torch *f) {
    llm__pickle_close(&f->pickle);
    llm__zip_close(&f->zip);
}

LLM__PRIVATE int llm__torch_is(const uint8_t *data, size_t size) {
    return llm__zip_is(data, size) || (size >= sizeof llm__torch_magic && !memcmp(data, llm__torch_magic, sizeof llm__torch_magic));
}

/* A storage, and a view of it: sizes and strides in elements. */
typedef struct llm__torch_view {
    const uint8_t *data;
    uint64_t bytes; /* of the storage */
    int64_t offset, shape[LLM__TORCH_DIMS], stride[LLM__TORCH_DIMS];
    int32_t type;
    int n_dims;
} llm__torch_view;

/* A whole number that is not negative; -1: it is none. */
static int64_t llm__torch_count(const llm__pickle *p, int32_t value) {
    return llm__pickle_is(p, value, LLM__PICKLE_INT) && p->value[value].n >= 0 ? p->value[value].n : -1;
}

/* Numbers of a tuple or list; -1: they are none, negative, or too many. */
static int llm__torch_counts(const llm__pickle *p, int32_t value, int64_t out[LLM__TORCH_DIMS]) {
    int n = 0;
    if (!llm__pickle_is(p, value, LLM__PICKLE_TUPLE) && !llm__pickle_is(p, value, LLM__PICKLE_LIST)) return -1;
    for (int32_t link = p->value[value].first; link >= 0; link = p->link[link].next, n++)
        if (n == LLM__TORCH_DIMS || (out[n] = llm__torch_count(p, p->link[link].value)) < 0) return -1;
    return n;
}

/* The type of a name's dtype; -1: of raw bytes. */
static int32_t llm__torch_type(llm__pickle_name name) {
    const char *dtype = llm__pickle_dtype(name);
    const llm__type_desc *d;
    for (int i = 0; dtype && *dtype && (d = llm__type_at(i)) != NULL; i++)
        if (d->block == 1 && !strcmp(d->name, dtype)) return d->type;
    return -1;
}

/* The bytes of a storage: ('storage', type, key, place, elements). */
static llm_result llm__torch_storage(const llm__torch *f, llm__str name, int32_t value, llm__torch_view *v) {
    const llm__pickle *p = &f->pickle;
    const int32_t type = llm__pickle_part(p, value, 1), key = llm__pickle_part(p, value, 2);
    const int64_t n = llm__torch_count(p, llm__pickle_part(p, value, 4));
    char path[400];
    int ok = 1;
    if (!llm__pickle_is(p, type, LLM__PICKLE_NAME) || !llm__pickle_dtype((llm__pickle_name)p->value[type].name) || n < 0 ||
        !llm__pickle_is(p, key, LLM__PICKLE_TEXT) || !llm__plain_text(p->value[key].text, 100))
        return llm__bad(f->path, "tensor", name, "its storage: a type, a key and a number of elements expected");
    v->type = llm__torch_type((llm__pickle_name)p->value[type].name);
    const int size = snprintf(path, sizeof path, "%s%.*s", f->folder, (int)p->value[key].text.n, p->value[key].text.p);
    const llm__zip_item *item = llm__zip_find(&f->zip, llm__s(path, (size_t)size));
    if (!item) return llm__bad(f->path, "tensor", name, "storage %s is missing", path);
    v->data = item->data;
    v->bytes = llm__mul((uint64_t)n, v->type < 0 ? 1 : (uint64_t)llm__type_block_bytes(v->type), &ok);
    if (ok && v->bytes == item->size) return LLM_OK;
    return llm__bad(f->path, "tensor", name, "storage %s: %lld elements are said, it has %llu bytes", path, (long long)n,
                    (unsigned long long)item->size);
}

/* What a call of one of the three functions says of a tensor: (storage, offset, sizes, strides, grad, hooks, dtype or metadata). */
static llm_result llm__torch_view_of(const llm__torch *f, llm__str name, int32_t call, llm__torch_view *v) {
    const llm__pickle *p = &f->pickle;
    const int32_t storage = llm__pickle_part(p, call, 0), seventh = llm__pickle_part(p, call, 6);
    const int third = p->value[call].name == LLM__PY_TENSOR3;
    int64_t last = 0, n = 1;
    int ok = 1;
    if (!llm__pickle_is(p, storage, LLM__PICKLE_STORAGE)) return llm__bad(f->path, "tensor", name, "it has no storage");
    llm_result r = llm__torch_storage(f, name, storage, v);
    if (r) return r;
    if (third && llm__pickle_is(p, seventh, LLM__PICKLE_NAME)) v->type = llm__torch_type((llm__pickle_name)p->value[seventh].name);
    if (v->type < 0) return llm__bad(f->path, "tensor", name, "a dtype expected");
    if (!third && llm__pickle_is(p, seventh, LLM__PICKLE_DICT) && p->value[seventh].n)
        return llm__bad(f->path, "tensor", name, "it is a view that changes values (conjugated or negated)");
    v->offset = llm__torch_count(p, llm__pickle_part(p, call, 1));
    v->n_dims = llm__torch_counts(p, llm__pickle_part(p, call, 2), v->shape);
    const int strides = llm__torch_counts(p, llm__pickle_part(p, call, 3), v->stride);
    if (v->offset < 0 || v->n_dims < 0 || strides != v->n_dims)
        return llm__bad(f->path, "tensor", name, "an offset, at most %d sizes and as many strides expected, whole numbers from 0 on",
                        (int)LLM__TORCH_DIMS);
    for (int i = 0; i < v->n_dims; i++) {
        n = (int64_t)llm__mul((uint64_t)n, (uint64_t)v->shape[i], &ok);
        if (v->shape[i] == 1) v->stride[i] = 0; /* which nothing steps by */
    }
    for (int i = 0; i < v->n_dims && n && ok; i++)
        last = (int64_t)llm__add((uint64_t)last, llm__mul((uint64_t)v->shape[i] - 1, (uint64_t)v->stride[i], &ok), &ok);
    last = (int64_t)llm__add((uint64_t)last, llm__add((uint64_t)v->offset, 1, &ok), &ok);
    const uint64_t end = llm__mul((uint64_t)last, (uint64_t)llm__type_block_bytes(v->type), &ok);
    if (ok && (!n || end <= v->bytes)) return LLM_OK;
    return llm__bad(f->path, "tensor", name, "it reaches beyond its storage of %llu bytes", (unsigned long long)v->bytes);
}

/* 1 if elements follow each other in the storage as in the tensor. */
static int llm__torch_in_order(const llm__torch_view *v) {
    int64_t step = 1;
    for (int i = v->n_dims - 1; i >= 0; i--) {
        if (v->shape[i] != 1 && v->stride[i] != step) return 0;
        step *= v->shape[i];
    }
    return 1;
}

/* Copies the elements of a view in the order of its indices. */
static void llm__torch_copy(const llm__torch_view *v, int64_t n, uint8_t *to) {
    int64_t index[LLM__TORCH_DIMS] = {0}, at = v->offset;
    const size_t size = (size_t)llm__type_block_bytes(v->type);
    for (int64_t i = 0; i < n; i++, to += size) {
        memcpy(to, v->data + (size_t)at * size, size);
        for (int d = v->n_dims - 1; d >= 0; d--) {
            at += v->stride[d];
            if (++index[d] < v->shape[d]) break;
            at -= v->stride[d] * v->shape[d];
            index[d] = 0;
        }
    }
}

/* Adds a tensor to the table. Dimensions before the last four are folded into one, as of safetensors. */
static llm_result llm__torch_add(llm__torch *f, llm__str name, const llm__torch_view *v) {
    llm__tensor x = LLM__ZERO;
    const int extra = LLM__MAX(0, v->n_dims - 4);
    int ok = 1;
    if (!llm__plain_text(name, 65535)) return llm__error(LLM_ERR_FORMAT, "%s: a tensor name is no plain text of 1 to 65535 bytes", f->path);
    x.type = v->type;
    x.n_dims = v->n_dims - extra;
    for (int i = 0; i < v->n_dims; i++)
        x.shape[LLM__MAX(0, i - extra)] =
            i && i <= extra ? (int64_t)llm__mul((uint64_t)x.shape[0], (uint64_t)v->shape[i], &ok) : v->shape[i];
    llm_result r = ok ? llm__tensors_add(f->tensors, f->path, name, &x) : llm__bad(f->path, "tensor", name, "its size overflows");
    if (r) return r;
    llm__tensor *t = &f->tensors->item[f->tensors->n - 1];
    t->data = v->data + (t->bytes ? v->offset * llm__type_block_bytes(v->type) : 0);
    if (!t->bytes || llm__torch_in_order(v)) return LLM_OK;
    f->copies += (uint64_t)t->bytes;
    if (f->copies > f->budget)
        return llm__bad(f->path, "tensor", name,
                        "its elements and those of others, which do not lie in order, would be more than the file has");
    uint8_t *own = (uint8_t *)llm__arena_take(f->arena, (size_t)t->bytes);
    if (!own) return llm__nomem();
    llm__torch_copy(v, t->bytes / llm__type_block_bytes(t->type), own);
    t->data = own;
    return LLM_OK;
}

/* The tensor that a value is, perhaps within a parameter; -1: it is something else. */
static int32_t llm__torch_tensor(const llm__pickle *p, int32_t value) {
    if (llm__pickle_is(p, value, LLM__PICKLE_CALL) && p->value[value].name == LLM__PY_PARAMETER) value = llm__pickle_part(p, value, 0);
    return llm__pickle_is(p, value, LLM__PICKLE_CALL) && p->value[value].name != LLM__PY_PARAMETER ? value : -1;
}

/* The dictionary of tensors: the root, or within it what training programs call it. -1: there is none. */
static int32_t llm__torch_dictionary(const llm__pickle *p, int32_t value, int depth) {
    int32_t within = -1;
    if (!llm__pickle_is(p, value, LLM__PICKLE_DICT)) return -1;
    for (int32_t link = p->value[value].first; link >= 0;) {
        const int32_t key = p->link[link].value, next = p->link[link].next, item = p->link[next].value;
        if (llm__torch_tensor(p, item) >= 0) return value;
        if (llm__pickle_is(p, key, LLM__PICKLE_TEXT) &&
            llm__word_index("state_dict model module model_state_dict", p->value[key].text) >= 0)
            within = item;
        link = p->link[next].next;
    }
    return depth ? llm__torch_dictionary(p, within, depth - 1) : -1;
}

/* All tensors of the dictionary; what is none (a number of steps) is no weight. */
static llm_result llm__torch_collect(llm__torch *f) {
    const llm__pickle *p = &f->pickle;
    const int32_t dictionary = llm__torch_dictionary(p, p->root, LLM__TORCH_DEPTH);
    llm_result r = LLM_OK;
    if (dictionary < 0) return llm__error(LLM_ERR_FORMAT, "%s: pickle: a dictionary of tensors expected", f->path);
    for (int32_t link = p->value[dictionary].first; link >= 0 && !r;) {
        const int32_t key = p->link[link].value, next = p->link[link].next, call = llm__torch_tensor(p, p->link[next].value);
        llm__torch_view v = LLM__ZERO;
        link = p->link[next].next;
        if (call < 0) continue;
        if (!llm__pickle_is(p, key, LLM__PICKLE_TEXT))
            return llm__error(LLM_ERR_FORMAT, "%s: pickle: the name of a tensor is no text", f->path);
        r = llm__torch_view_of(f, p->value[key].text, call, &v);
        if (!r) r = llm__torch_add(f, p->value[key].text, &v);
    }
    return r;
}

/* The pickle in the zip, and where its storages are. */
static llm_result llm__torch_zip(llm__torch *f, const uint8_t *data, size_t size) {
    static const char ending[] = "/data.pkl";
    const llm__zip_item *pickle = NULL;
    llm_result r = llm__zip_open(f->path, data, size, &f->zip);
    for (size_t i = 0; i < f->zip.n && !r; i++) {
        const llm__str name = f->zip.item[i].name;
        const size_t n = llm__str_until(name, "/");
        if (!llm__str_eq(llm__str_from(name, n), ending)) continue;
        if (pickle || n > 200) return llm__error(LLM_ERR_FORMAT, "%s: one data.pkl in a folder of a short name expected", f->path);
        pickle = &f->zip.item[i];
        snprintf(f->folder, sizeof f->folder, "%.*s/byteorder", (int)n, name.p);
    }
    if (r) return r;
    if (!pickle) return llm__error(LLM_ERR_FORMAT, "%s: no file of torch.save: data.pkl is missing", f->path);
    const llm__zip_item *order = llm__zip_find(&f->zip, llm__lit(f->folder));
    if (order && !llm__str_eq(llm__s((const char *)order->data, (size_t)order->size), "little"))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: byteorder: little expected", f->path);
    strcpy(strchr(f->folder, '/'), "/data/");
    if (pickle->size > LLM__TORCH_PICKLE)
        return llm__error(LLM_ERR_LIMIT, "%s: data.pkl has %llu bytes, at most %d expected", f->path, (unsigned long long)pickle->size,
                          (int)LLM__TORCH_PICKLE);
    r = llm__pickle_open(f->path, pickle->data, (size_t)pickle->size, &f->pickle);
    if (!r && f->pickle.used != pickle->size) r = llm__error(LLM_ERR_FORMAT, "%s: pickle: bytes after its end", f->path);
    return r;
}

/* One pickle of an old file, at *at. */
static llm_result llm__torch_next(const char *path, const uint8_t *data, size_t size, size_t *at, llm__pickle *out) {
    llm_result r = llm__pickle_open(path, data + *at, LLM__MIN(size - *at, (size_t)LLM__TORCH_PICKLE), out);
    *at += out->used;
    return r;
}

/* The storages of an old file, in the order of a list of their keys: a number of elements, then these. Their types are said where tensors
 * name them. */
static llm_result llm__torch_storages(llm__torch *f, const llm__pickle *keys, const uint8_t *data, size_t size, size_t at) {
    const llm__pickle *p = &f->pickle;
    LLM__SCOPED(llm__map_free) llm__map types = LLM__ZERO;
    types.seed = f->zip.by_name.seed = llm__seed(f);
    for (size_t i = 0; i < p->n; i++) {
        const int32_t key = llm__pickle_part(p, (int32_t)i, 2);
        if (p->value[i].kind == LLM__PICKLE_STORAGE && llm__pickle_is(p, key, LLM__PICKLE_TEXT) && p->value[key].text.n &&
            llm__map_put(&types, p->value[key].text, llm__pickle_part(p, (int32_t)i, 1)) < 0)
            return llm__nomem();
    }
    for (int32_t link = keys->root < 0 ? -1 : keys->value[keys->root].first; link >= 0; link = keys->link[link].next) {
        const int32_t key = keys->link[link].value;
        llm__zip_item s = LLM__ZERO;
        int ok = llm__pickle_is(keys, key, LLM__PICKLE_TEXT) && keys->value[key].text.n && size - at >= 8;
        const int32_t name = ok ? llm__map_get(&types, keys->value[key].text) : -1,
                      type = llm__pickle_is(p, name, LLM__PICKLE_NAME) ? llm__torch_type((llm__pickle_name)p->value[name].name) : -1;
        if (ok && type >= 0) s.size = llm__mul(llm__load_le(data + at, 8), (uint64_t)llm__type_block_bytes(type), &ok);
        if (!ok || type < 0 || s.size > size - at - 8)
            return llm__error(LLM_ERR_FORMAT, "%s: truncated, or a storage at byte %zu that no tensor has", f->path, at);
        s.name = keys->value[key].text;
        s.data = data + at + 8;
        at += 8 + (size_t)s.size;
        if (!llm__grow((void **)&f->zip.item, &f->zip.cap, f->zip.n + 1, sizeof *f->zip.item)) return llm__nomem();
        const int put = llm__map_put(&f->zip.by_name, s.name, (int32_t)f->zip.n);
        if (put <= 0) return put ? llm__nomem() : llm__bad(f->path, "storage", s.name, "it is there twice");
        f->zip.item[f->zip.n++] = s;
    }
    return at == size ? LLM_OK : llm__error(LLM_ERR_FORMAT, "%s: %zu bytes after the last storage, none expected", f->path, size - at);
}

/* A file from before torch 1.6: its version, how its machine stores numbers, the tensors, and the keys of the storages, each a pickle. */
static llm_result llm__torch_old(llm__torch *f, const uint8_t *data, size_t size) {
    LLM__SCOPED(llm__pickle_close) llm__pickle version = LLM__ZERO;
    LLM__SCOPED(llm__pickle_close) llm__pickle machine = LLM__ZERO;
    LLM__SCOPED(llm__pickle_close) llm__pickle keys = LLM__ZERO;
    size_t at = sizeof llm__torch_magic;
    llm_result r = llm__torch_next(f->path, data, size, &at, &version);
    if (!r && llm__torch_count(&version, version.root) != 1001)
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: version 1001 of torch.save's old files expected", f->path);
    if (!r) r = llm__torch_next(f->path, data, size, &at, &machine);
    if (r) return r;
    for (int32_t i = 0, key;
         llm__pickle_is(&machine, machine.root, LLM__PICKLE_DICT) && (key = llm__pickle_part(&machine, machine.root, i)) >= 0 && i < 16;
         i += 2) {
        const int32_t value = llm__pickle_part(&machine, machine.root, i + 1);
        if (llm__pickle_is(&machine, key, LLM__PICKLE_TEXT) && llm__str_eq(machine.value[key].text, "little_endian") &&
            machine.value[value].n != 1)
            return llm__error(LLM_ERR_UNSUPPORTED, "%s: little_endian: true expected", f->path);
    }
    r = llm__torch_next(f->path, data, size, &at, &f->pickle);
    if (!r) r = llm__torch_next(f->path, data, size, &at, &keys);
    return r ? r : llm__torch_storages(f, &keys, data, size, at);
}

LLM__PRIVATE llm_result llm__torch_parse(const char *path, const uint8_t *data, size_t size, llm__arena *copies, llm__tensors *tensors) {
    LLM__SCOPED(llm__torch_close) llm__torch f = LLM__ZERO;
    if (!llm__torch_is(data, size)) return llm__error(LLM_ERR_FORMAT, "%s: no file of torch.save%s", path, llm__looks_like(data, size));
    f.path = path;
    f.tensors = tensors;
    f.arena = copies;
    f.budget = size;
    llm_result r = llm__zip_is(data, size) ? llm__torch_zip(&f, data, size) : llm__torch_old(&f, data, size);
    return r ? r : llm__torch_collect(&f);
}
