#include "quant/shards.h"
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/files.h"
#include "cpu/dtypes.h"

/* The first failure, of a file of the folder. */
static void llm__out_failed(llm__out *o, const char *name) {
    if (!o->r) o->r = llm__error(LLM_ERR_IO, "%s/%s: %s", o->part, name, strerror(errno));
}

LLM__PRIVATE void llm__out_close(llm__out *o) {
    for (int32_t i = 0; i < o->n_shards && o->shard; i++)
        if (o->shard[i].file) fclose(o->shard[i].file);
    LLM_FREE(o->tensor);
    LLM_FREE(o->shard);
    llm__arena_free(&o->arena);
    memset(o, 0, sizeof *o);
}

LLM__PRIVATE size_t llm__out_add(llm__out *o, const char *stem, const char *end, int32_t type, int32_t n_dims, const int64_t *shape) {
    if (!o->r && !llm__grow((void **)&o->tensor, &o->cap, o->n + 1, sizeof *o->tensor)) o->r = llm__nomem();
    char *name = o->r ? NULL : (char *)llm__arena_get(&o->arena, strlen(stem) + strlen(end) + 1);
    if (!o->r && !name) o->r = llm__nomem();
    if (o->r) return 0;
    llm__out_tensor *t = &o->tensor[o->n];
    memset(t, 0, sizeof *t);
    memcpy(name, stem, strlen(stem));
    memcpy(name + strlen(stem), end, strlen(end) + 1);
    t->name = name;
    t->type = type;
    t->n_dims = n_dims;
    int64_t values = 1;
    for (int i = 0; i < n_dims; i++) values *= t->shape[i] = shape[i];
    t->bytes = llm__row_bytes(type, values);
    o->bytes += t->bytes;
    return o->n++;
}

/* The header of a shard: its length in 8 bytes, then what lies where. Sets the tensors' places. */
static void llm__out_header(llm__out *o, int32_t shard, llm_text *t) {
    int64_t at = 0;
    llm_text_str(t, "12345678{'__metadata__': {'format': 'pt'}");
    for (size_t i = 0; i < t->len; i++)
        if (t->data[i] == '\'') t->data[i] = '"';
    for (size_t i = 0; i < o->n; i++) {
        llm__out_tensor *x = &o->tensor[i];
        if (x->shard != shard) continue;
        llm_text_format(t, ", %q: {'dtype': %q, 'shape': [", x->name, llm__type_name(x->type));
        for (int d = 0; d < x->n_dims; d++) llm_text_format(t, "%,%l", x->shape[d]);
        llm_text_format(t, "], 'data_offsets': [%l, %l]}", at, at + x->bytes);
        x->offset = at;
        at += x->bytes;
    }
    llm_text_str(t, "}");
    while (!t->failed && t->len % 8) llm_text_str(t, " ");
    for (int i = 0; i < 8 && !t->failed; i++) t->data[i] = (char)((uint64_t)(t->len - 8) >> 8 * i);
    for (size_t i = 0; i < o->n; i++)
        if (o->tensor[i].shard == shard) o->tensor[i].offset += (int64_t)t->len;
}

/* One file: made in its whole length, so that a limit is told now. */
static void llm__out_begin(llm__out *o, int32_t i, int again) {
    LLM__SCOPED(llm_text_free) llm_text head = LLM__ZERO;
    llm__out_shard *s = &o->shard[i];
    snprintf(s->name, sizeof s->name, "model-%05d-of-%05d.safetensors", (int)i + 1, (int)o->n_shards);
    if (o->n_shards == 1) snprintf(s->name, sizeof s->name, "model.safetensors");
    llm__out_header(o, i, &head);
    LLM__SCOPED(llm__drop) char *path = llm__path_join(o->part, s->name);
    if (!path || head.failed) o->r = llm__nomem();
    if (o->r) return;
    s->file = fopen(path, again ? "r+b" : "w+b");
    if (!s->file) llm__out_failed(o, s->name);
    if (!s->file || again) return;
    const int64_t last = (int64_t)head.len + s->bytes - 1;
    if (fwrite(head.data, 1, head.len, s->file) != head.len || fseeko(s->file, (off_t)last, SEEK_SET) ||
        (s->bytes && fputc(0, s->file) == EOF) || fflush(s->file))
        llm__out_failed(o, s->name);
}

LLM__PRIVATE void llm__out_open(llm__out *o, int64_t most, int again) {
    struct statvfs disk;
    int64_t in_shard = 0;
    for (size_t i = 0; i < o->n && !o->r; i++) {
        if (!i || (in_shard && in_shard + o->tensor[i].bytes > most)) o->n_shards++, in_shard = 0;
        o->tensor[i].shard = o->n_shards - 1;
        in_shard += o->tensor[i].bytes;
    }
    if (!o->r && !again && !statvfs(o->part, &disk) && (int64_t)disk.f_bavail * (int64_t)disk.f_frsize < o->bytes)
        o->r = llm__error(LLM_ERR_IO, "%s: %lld bytes are needed, the disk has room for %lld", o->part, (long long)o->bytes,
                          (long long)disk.f_bavail * (long long)disk.f_frsize);
    o->shard = o->r ? NULL : LLM__NEW(llm__out_shard, o->n_shards);
    if (!o->r && !o->shard) o->r = llm__nomem();
    for (size_t i = 0; i < o->n && !o->r; i++) o->shard[o->tensor[i].shard].bytes += o->tensor[i].bytes;
    for (int32_t i = 0; i < o->n_shards && !o->r; i++) llm__out_begin(o, i, again);
}

LLM__PRIVATE void llm__out_put(llm__out *o, size_t i, int64_t at, const void *data, size_t n) {
    if (o->r || !n) return;
    llm__out_shard *s = &o->shard[o->tensor[i].shard];
    if (fseeko(s->file, (off_t)(o->tensor[i].offset + at), SEEK_SET) || fwrite(data, 1, n, s->file) != n) llm__out_failed(o, s->name);
}

LLM__PRIVATE void llm__out_sync(llm__out *o) {
    for (int32_t i = 0; i < o->n_shards && !o->r; i++)
        if (fflush(o->shard[i].file) || fsync(fileno(o->shard[i].file))) llm__out_failed(o, o->shard[i].name);
}

LLM__PRIVATE void llm__out_text(llm__out *o, const char *name, const llm_text *text) {
    LLM__SCOPED(llm__drop) char *path = llm__path_join(o->part, name), *next = llm__path_join(o->part, ".next");
    if (!o->r && (!path || !next || text->failed)) o->r = llm__nomem();
    if (o->r) return;
    FILE *f = fopen(next, "wb");
    int ok = f && fwrite(text->data, 1, text->len, f) == text->len && !fflush(f) && !fsync(fileno(f));
    if (f && fclose(f)) ok = 0;
    if (!ok || rename(next, path)) llm__out_failed(o, name);
}

LLM__PRIVATE void llm__out_index(llm__out *o) {
    LLM__SCOPED(llm_text_free) llm_text t = LLM__ZERO;
    if (o->r || o->n_shards < 2) return;
    llm_text_format(&t, "{'metadata': {'total_size': %l}, 'weight_map': {", o->bytes);
    for (size_t i = 0; i < o->n; i++) llm_text_format(&t, "%,\n  %q: %q", o->tensor[i].name, o->shard[o->tensor[i].shard].name);
    llm_text_str(&t, "}}\n");
    llm__out_text(o, "model.safetensors.index.json", &t);
}
