#include "model/gguf.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "model/tensors.h"

/* A place in bytes that are not trusted. After the first failure everything reads as zero; `r` keeps the error. */
typedef struct llm__cursor {
    const char *path;
    const uint8_t *data;
    size_t size, at;
    llm_result r;
} llm__cursor;

/* 1 if n more bytes are there; else the error says what was to be read. Compares with what is left: at + n could wrap around. */
static int llm__cursor_has(llm__cursor *c, uint64_t n, const char *what) {
    if (c->r) return 0;
    if (n <= c->size - c->at) return 1;
    c->r = llm__error(LLM_ERR_FORMAT, "%s: %s at byte %zu needs %zu bytes, the file has %zu more: truncated or malformed", c->path, what,
                      c->at, (size_t)n, c->size - c->at);
    return 0;
}

LLM__PRIVATE uint64_t llm__load_le(const uint8_t *p, int bytes) {
    uint64_t v = 0;
    for (int i = bytes; i-- > 0;) v = v << 8 | p[i];
    return v;
}

/* The next number of so many bytes. */
static uint64_t llm__cursor_uint(llm__cursor *c, int bytes, const char *what) {
    if (!llm__cursor_has(c, (uint64_t)bytes, what)) return 0;
    c->at += (size_t)bytes;
    return llm__load_le(c->data + c->at - bytes, bytes);
}

/* The next text: a view into the file, not NUL-terminated. */
static llm__str llm__cursor_str(llm__cursor *c, const char *what) {
    uint64_t n = llm__cursor_uint(c, 8, what);
    if (!llm__cursor_has(c, n, what)) return llm__s("", 0);
    c->at += n;
    return llm__s((const char *)c->data + c->at - n, (size_t)n);
}

LLM__PRIVATE void llm__gguf_free(llm__gguf *g) {
    LLM_FREE(g->kv);
    llm__map_free(&g->by_key);
    memset(g, 0, sizeof *g);
}

LLM__PRIVATE int llm__gguf_size_of(int32_t type) { /* bytes of a number; 0: not of fixed size */
    static const uint8_t size[LLM__GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return size[type];
}

LLM__PRIVATE const llm__gguf_kv *llm__gguf_find(const llm__gguf *g, const char *key) {
    int32_t i = llm__map_get(&g->by_key, llm__lit(key));
    return i < 0 ? NULL : &g->kv[i];
}

LLM__PRIVATE int llm__gguf_num_at(const llm__gguf_kv *kv, uint64_t i, double *out) {
    if (!kv || i >= kv->count || kv->type == LLM__GGUF_STR || kv->type == LLM__GGUF_BOOL) return 0;
    int bytes = llm__gguf_size_of(kv->type), is_float = kv->type == LLM__GGUF_F32 || kv->type == LLM__GGUF_F64;
    int is_signed = kv->type == LLM__GGUF_I8 || kv->type == LLM__GGUF_I16 || kv->type == LLM__GGUF_I32 || kv->type == LLM__GGUF_I64;
    uint64_t bits = llm__load_le(kv->data + i * (uint64_t)bytes, bytes), sign = (uint64_t)1 << (8 * bytes - 1);
    uint32_t low = (uint32_t)bits;
    float f;
    memcpy(&f, &low, 4);
    *out = is_signed ? (double)(int64_t)((bits ^ sign) - sign) : (double)bits; /* the sign bit goes up to bit 63 */
    if (kv->type == LLM__GGUF_F32) *out = f;
    if (kv->type == LLM__GGUF_F64) memcpy(out, &bits, 8);
    return is_float ? 1 : 2;
}

LLM__PRIVATE int64_t llm__gguf_int(const llm__gguf *g, const char *key, int64_t absent) {
    const llm__gguf_kv *kv = llm__gguf_find(g, key);
    double v;
    if (!kv || kv->is_array || llm__gguf_num_at(kv, 0, &v) != 2) return absent;
    return v >= -9223372036854775808.0 && v < 9223372036854775808.0 ? (int64_t)v : absent;
}

LLM__PRIVATE int llm__gguf_bool(const llm__gguf *g, const char *key, int absent) {
    const llm__gguf_kv *kv = llm__gguf_find(g, key);
    return kv && !kv->is_array && kv->type == LLM__GGUF_BOOL ? kv->data[0] : absent;
}

LLM__PRIVATE llm__str llm__gguf_text(const llm__gguf_kv *kv) {
    if (!kv || kv->is_array || kv->type != LLM__GGUF_STR) return llm__s(NULL, 0);
    return llm__s((const char *)kv->data + 8, (size_t)llm__load_le(kv->data, 8));
}

LLM__PRIVATE llm__str llm__gguf_str(const llm__gguf *g, const char *key) { return llm__gguf_text(llm__gguf_find(g, key)); }

LLM__PRIVATE llm__str llm__gguf_string(const uint8_t **at) {
    llm__str s = llm__s((const char *)*at + 8, (size_t)llm__load_le(*at, 8));
    *at += 8 + s.n;
    return s;
}

/* Checks `count` values and steps over them; numbers are known to be there. */
static void llm__gguf_skip(llm__cursor *c, int32_t type, uint64_t count) {
    for (uint64_t i = 0; type == LLM__GGUF_STR && i < count && !c->r; i++) llm__cursor_str(c, "a string");
    for (uint64_t i = 0; type == LLM__GGUF_BOOL && i < count; i++)
        if (c->data[c->at + i] > 1)
            c->r = llm__error(LLM_ERR_FORMAT, "%s: the boolean at byte %zu is %d, 0 or 1 expected", c->path, c->at + i, c->data[c->at + i]);
    c->at += count * (uint64_t)llm__gguf_size_of(type);
}

/* Reads one key and its value. The count is compared with the bytes left before the values are walked (a string has 8 bytes at least), so
 * the walk is linear in the file and not in what the file claims. */
static llm_result llm__gguf_read_kv(llm__cursor *c, llm__gguf *g) {
    llm__gguf_kv kv = LLM__ZERO;
    size_t at = c->at;
    kv.key = llm__cursor_str(c, "a key");
    uint64_t type = llm__cursor_uint(c, 4, "a value's type");
    if (c->r) return c->r;
    if (!llm__plain_text(kv.key, 65535))
        return llm__error(LLM_ERR_FORMAT, "%s: the key at byte %zu is no plain text of 1 to 65535 bytes", c->path, at);
    kv.is_array = type == LLM__GGUF_ARRAY;
    if (kv.is_array) type = llm__cursor_uint(c, 4, "an array's type");
    kv.count = kv.is_array ? llm__cursor_uint(c, 8, "an array's count") : 1;
    if (c->r) return c->r;
    if (type >= LLM__GGUF_TYPES || type == LLM__GGUF_ARRAY)
        return llm__bad(c->path, "key", kv.key, "value type %u is unknown%s", (unsigned)type, kv.is_array ? " in an array" : "");
    kv.type = (int32_t)type;
    kv.data = c->data + c->at;
    int bytes = llm__gguf_size_of(kv.type);
    size_t left = c->size - c->at;
    /* divided, not multiplied: count * bytes may wrap around */
    if (kv.count > left / (size_t)(bytes ? bytes : 8))
        return llm__bad(c->path, "key", kv.key, "%zu values are more than the %zu bytes left hold: truncated or malformed",
                        (size_t)kv.count, left);
    llm__gguf_skip(c, kv.type, kv.count);
    if (c->r) return c->r;
    if (!llm__grow((void **)&g->kv, &g->cap, g->n_kv + 1, sizeof *g->kv)) return llm__nomem();
    int put = llm__map_put(&g->by_key, kv.key, (int32_t)g->n_kv);
    if (put <= 0) return put ? llm__nomem() : llm__bad(c->path, "key", kv.key, "it is there twice");
    g->kv[g->n_kv++] = kv;
    return LLM_OK;
}

/* Reads one entry of the table of tensors. Its limits are ggml's: 63 bytes of name, 1 to 4 dimensions, none of them 0. */
static llm_result llm__gguf_read_tensor(llm__cursor *c, uint32_t alignment, llm__tensors *tensors) {
    llm__tensor x = LLM__ZERO;
    size_t at = c->at;
    llm__str name = llm__cursor_str(c, "a tensor's name");
    uint64_t n_dims = llm__cursor_uint(c, 4, "a tensor's number of dimensions");
    if (c->r) return c->r;
    if (!llm__plain_text(name, 63))
        return llm__error(LLM_ERR_FORMAT, "%s: the tensor name at byte %zu is no plain text of 1 to 63 bytes", c->path, at);
    if (n_dims < 1 || n_dims > 4) return llm__bad(c->path, "tensor", name, "%u dimensions, 1 to 4 expected", (unsigned)n_dims);
    x.n_dims = (int32_t)n_dims;
    for (int i = x.n_dims; i-- > 0;) { /* innermost first in the file */
        x.shape[i] = (int64_t)llm__cursor_uint(c, 8, "a dimension");
        if (!c->r && x.shape[i] < 1) return llm__bad(c->path, "tensor", name, "dimension %d is %lld", i, (long long)x.shape[i]);
    }
    x.type = (int32_t)(uint32_t)llm__cursor_uint(c, 4, "a tensor's type");
    x.offset = llm__cursor_uint(c, 8, "a tensor's offset");
    if (c->r) return c->r;
    /* an unknown type is no error here: the file can still be listed, and who needs the tensor will say so */
    if (x.type >= 1000) x.type = -1; /* numbers of ours that no GGUF file may name */
    if (x.offset % alignment) return llm__bad(c->path, "tensor", name, "offset %zu is no multiple of %u", (size_t)x.offset, alignment);
    return llm__tensors_add(tensors, c->path, name, &x);
}

/* general.alignment: what offsets of tensors are multiples of. */
static llm_result llm__gguf_read_alignment(const char *path, llm__gguf *g) {
    const llm__gguf_kv *kv = llm__gguf_find(g, "general.alignment");
    int64_t v = llm__gguf_int(g, "general.alignment", kv ? 0 : 32);
    if ((kv && kv->type != LLM__GGUF_U32) || v < 8 || v > 65536 || (v & (v - 1)))
        return llm__bad(path, "key", kv->key, "a 32-bit power of two from 8 to 65536 expected");
    g->alignment = (uint32_t)v;
    return LLM_OK;
}

/* Magic, version and the two counts. A key takes 14 bytes at least, a tensor 33; real files have about 50 and 1,000 of them. */
static llm_result llm__gguf_read_head(llm__cursor *c, uint64_t *n_tensors, uint64_t *n_kv) {
    uint64_t magic = llm__cursor_uint(c, 4, "the magic number"), version = llm__cursor_uint(c, 4, "the version");
    if (c->size >= 4 && magic != 0x46554747u)
        return llm__error(LLM_ERR_FORMAT, "%s: no GGUF file: it does not start with \"GGUF\"", c->path);
    if (c->r) return c->r;
    if (version & 0xFFFF0000u) return llm__error(LLM_ERR_UNSUPPORTED, "%s: a big-endian GGUF file is not supported", c->path);
    if (version != 2 && version != 3)
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: GGUF version %u, 2 or 3 expected", c->path, (unsigned)version);
    *n_tensors = llm__cursor_uint(c, 8, "the number of tensors");
    *n_kv = llm__cursor_uint(c, 8, "the number of keys");
    if (c->r) return c->r;
    /* both loops below run as often as the file says, so it must be able to hold as much */
    size_t left = c->size - c->at, most_kv = LLM__MIN((size_t)65536, left / 14), most_tensors = LLM__MIN((size_t)1000000, left / 33);
    if (*n_kv <= most_kv && *n_tensors <= most_tensors) return LLM_OK;
    return llm__error(LLM_ERR_FORMAT, "%s: %zu keys and %zu tensors claimed, at most %zu and %zu expected in %zu bytes", c->path,
                      (size_t)*n_kv, (size_t)*n_tensors, most_kv, most_tensors, c->size);
}

LLM__PRIVATE llm_result llm__gguf_parse(const char *path, const uint8_t *data, size_t size, llm__gguf *g, llm__tensors *tensors) {
    llm__cursor c = {path, data, size, 0, LLM_OK};
    uint64_t n_tensors = 0, n_kv = 0;
    size_t first = tensors->n;
    int ok = 1;
    memset(g, 0, sizeof *g);
    g->by_key.seed = llm__seed(g);
    llm_result r = llm__gguf_read_head(&c, &n_tensors, &n_kv);
    for (uint64_t i = 0; i < n_kv && !r; i++) r = llm__gguf_read_kv(&c, g);
    if (!r) r = llm__gguf_read_alignment(path, g);
    for (uint64_t i = 0; i < n_tensors && !r; i++) r = llm__gguf_read_tensor(&c, g->alignment, tensors);
    if (r || !n_tensors) return r;
    g->data_at = (size_t)llm__align_up(c.at, g->alignment, &ok);
    size_t at = LLM__MIN((size_t)g->data_at, size);
    r = llm__tensors_place(tensors, first, path, data + at, g->data_at, size - at, 0);
    for (size_t i = first; i < tensors->n && !r; i++)
        g->end = LLM__MAX(g->end, g->data_at + tensors->item[i].offset + (uint64_t)tensors->item[i].bytes);
    return r;
}
