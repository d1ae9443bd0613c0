#include "model/zip.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "model/tensors.h"
#include "model/gguf.h"

/* Bytes of each kind of record before its names. */
enum {
    LLM__ZIP_LOCAL = 30,
    LLM__ZIP_ENTRY = 46,
    LLM__ZIP_END = 22,
    LLM__ZIP_LOCATOR = 20,
    LLM__ZIP_END64 = 56,
    LLM__ZIP_MEMBERS = 1 << 20
};

LLM__PRIVATE int llm__zip_is(const uint8_t *data, size_t size) { return size >= 4 && !memcmp(data, "PK\3\4", 4); }

LLM__PRIVATE void llm__zip_close(llm__zip *z) {
    LLM_FREE(z->item);
    llm__map_free(&z->by_name);
    memset(z, 0, sizeof *z);
}

LLM__PRIVATE const llm__zip_item *llm__zip_find(const llm__zip *z, llm__str name) {
    const int32_t i = llm__map_get(&z->by_name, name);
    return i < 0 ? NULL : &z->item[i];
}

/* Where the directory stands: n entries in [at, end). */
typedef struct llm__zip_directory {
    uint64_t n, at, end;
} llm__zip_directory;

/* The end of the directory is found from behind, for a comment of up to 65535 bytes may follow it. */
static llm_result llm__zip_end(const char *path, const uint8_t *data, size_t size, llm__zip_directory *out) {
    size_t back = LLM__ZIP_END;
    const size_t most = LLM__MIN(size, (size_t)LLM__ZIP_END + 65535);
    while (back <= most && (memcmp(data + size - back, "PK\5\6", 4) || llm__load_le(data + size - back + 20, 2) != back - LLM__ZIP_END))
        back++;
    if (size < LLM__ZIP_END || back > most)
        return llm__error(LLM_ERR_FORMAT, "%s: truncated, or no zip file: the end of its directory is missing", path);
    size_t end = size - back;
    const uint8_t *p = data + end;
    uint64_t n = llm__load_le(p + 10, 2), bytes = llm__load_le(p + 12, 4), at = llm__load_le(p + 16, 4);
    int whole = llm__load_le(p + 4, 2) == 0 && llm__load_le(p + 6, 2) == 0 && llm__load_le(p + 8, 2) == n;
    if (end >= LLM__ZIP_LOCATOR + LLM__ZIP_END64 && !memcmp(p - LLM__ZIP_LOCATOR, "PK\6\7", 4)) {
        const uint64_t place = llm__load_le(p - LLM__ZIP_LOCATOR + 8, 8);
        end -= LLM__ZIP_LOCATOR;
        const uint8_t *q = data + LLM__MIN(place, (uint64_t)end);
        whole = place <= end - LLM__ZIP_END64 && !memcmp(q, "PK\6\6", 4) && llm__load_le(q + 4, 8) == end - place - 12 &&
                llm__load_le(q + 16, 8) == 0 && llm__load_le(q + 24, 8) == llm__load_le(q + 32, 8);
        if (whole) n = llm__load_le(q + 32, 8), bytes = llm__load_le(q + 40, 8), at = llm__load_le(q + 48, 8), end = (size_t)place;
    }
    if (!whole || at > end || bytes != end - at || n > bytes / LLM__ZIP_ENTRY)
        return llm__error(LLM_ERR_FORMAT, "%s: zip: %llu entries in %llu bytes at %llu do not fit what stands before the directory's end",
                          path, (unsigned long long)n, (unsigned long long)bytes, (unsigned long long)at);
    if (n > LLM__ZIP_MEMBERS)
        return llm__error(LLM_ERR_LIMIT, "%s: zip: %llu members, at most %d expected", path, (unsigned long long)n, (int)LLM__ZIP_MEMBERS);
    const llm__zip_directory d = {n, at, end};
    *out = d;
    return LLM_OK;
}

/* What an entry's extra fields say in 64 bits, in the order of the fields whose 32 bits are all ones. 0: they do not fit. */
static int llm__zip_wide(const uint8_t *extra, size_t n, uint64_t *const field[3]) {
    for (size_t at = 0; at + 4 <= n;) {
        const size_t id = (size_t)llm__load_le(extra + at, 2), bytes = (size_t)llm__load_le(extra + at + 2, 2);
        size_t next = at + 4;
        if (bytes > n - next) return 0;
        for (int i = 0; i < 3 && id == 1; i++) {
            if (*field[i] != UINT32_MAX) continue;
            if (next + 8 > at + 4 + bytes) return 0;
            *field[i] = llm__load_le(extra + next, 8);
            next += 8;
        }
        at += 4 + bytes;
    }
    return 1;
}

/* The member that an entry is about. Its own header must be there and have its name. */
static llm_result llm__zip_member(const char *path, const uint8_t *data, uint64_t limit, const uint8_t *entry, llm__zip_item *m) {
    const size_t name = (size_t)llm__load_le(entry + 28, 2), extra = (size_t)llm__load_le(entry + 30, 2);
    const unsigned flags = (unsigned)llm__load_le(entry + 8, 2), method = (unsigned)llm__load_le(entry + 10, 2);
    uint64_t packed = llm__load_le(entry + 20, 4), at = llm__load_le(entry + 42, 4), end = 0;
    uint64_t *const wide[3] = {&m->size, &packed, &at};
    m->size = llm__load_le(entry + 24, 4);
    m->name = llm__s((const char *)entry + LLM__ZIP_ENTRY, name);
    if (!llm__plain_text(m->name, 1024))
        return llm__error(LLM_ERR_FORMAT, "%s: zip: the name of a member is no plain text of 1 to 1024 bytes", path);
    if (!llm__zip_wide(entry + LLM__ZIP_ENTRY + name, extra, wide))
        return llm__bad(path, "zip member", m->name, "its extra fields do not fit");
    if (flags & 1) return llm__bad(path, "zip member", m->name, "it is encrypted");
    if (method)
        return llm__bad(path, "zip member", m->name, "it is compressed (method %u), stored data expected, as torch.save writes them",
                        method);
    const uint8_t *own = data + LLM__MIN(at, limit);
    int ok = packed == m->size && at <= limit && limit - at >= LLM__ZIP_LOCAL && !memcmp(own, "PK\3\4", 4) &&
             llm__load_le(own + 8, 2) == 0 && llm__load_le(own + 26, 2) == name;
    if (ok) end = at + LLM__ZIP_LOCAL + name + llm__load_le(own + 28, 2);
    ok = ok && end <= limit && !memcmp(own + LLM__ZIP_LOCAL, m->name.p, name);
    if (!ok) return llm__bad(path, "zip member", m->name, "its own header is not where, or not what, the directory says");
    if (m->size > limit - end)
        return llm__bad(path, "zip member", m->name, "%llu bytes from %llu on, but the directory begins at %llu",
                        (unsigned long long)m->size, (unsigned long long)end, (unsigned long long)limit);
    m->data = data + end;
    m->begin = at;
    m->end = end + m->size;
    return LLM_OK;
}

static int llm__zip_order(const void *a, const void *b) {
    const llm__zip_item *x = *(const llm__zip_item *const *)a, *y = *(const llm__zip_item *const *)b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static llm_result llm__zip_apart(const char *path, const llm__zip *z) {
    LLM__SCOPED(llm__drop) const llm__zip_item **at = LLM__NEW(const llm__zip_item *, z->n + 1);
    if (!at) return llm__nomem();
    for (size_t i = 0; i < z->n; i++) at[i] = &z->item[i];
    qsort((void *)at, z->n, sizeof *at, llm__zip_order);
    for (size_t i = 1; i < z->n; i++)
        if (at[i]->begin < at[i - 1]->end)
            return llm__bad(path, "zip member", at[i]->name, "it overlaps %.*s", (int)LLM__MIN(at[i - 1]->name.n, (size_t)128),
                            at[i - 1]->name.p);
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__zip_open(const char *path, const uint8_t *data, size_t size, llm__zip *out) {
    llm__zip_directory d = LLM__ZERO;
    memset(out, 0, sizeof *out);
    llm_result r = llm__zip_end(path, data, size, &d);
    out->by_name.seed = llm__seed(out);
    for (uint64_t i = 0, at = r ? 0 : d.at; !r && i < d.n; i++) {
        llm__zip_item m = LLM__ZERO;
        const uint8_t *entry = data + at;
        int fits = d.end - at >= LLM__ZIP_ENTRY && !memcmp(entry, "PK\1\2", 4);
        if (fits) at += LLM__ZIP_ENTRY + llm__load_le(entry + 28, 2) + llm__load_le(entry + 30, 2) + llm__load_le(entry + 32, 2);
        if (!fits || at > d.end || (i + 1 == d.n && at != d.end))
            return llm__error(LLM_ERR_FORMAT, "%s: zip: entry %llu of the directory does not fit", path, (unsigned long long)i);
        r = llm__zip_member(path, data, d.at, entry, &m);
        if (r) return r;
        if (!llm__grow((void **)&out->item, &out->cap, out->n + 1, sizeof *out->item)) return llm__nomem();
        const int put = llm__map_put(&out->by_name, m.name, (int32_t)out->n);
        if (put <= 0) return put ? llm__nomem() : llm__bad(path, "zip member", m.name, "it is there twice");
        out->item[out->n++] = m;
    }
    return r ? r : llm__zip_apart(path, out);
}
