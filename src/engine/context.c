/* context: kept contexts: the prefix cache in files.
 *
 * To answer a question about a text of 30,000 tokens, a small model on a CPU reads for minutes and then speaks for seconds. What it has
 * read is in pages of keys and values, which the prefix cache finds again by the tokens they belong to (>>kv). So nothing is new here but a
 * file: pages with their tokens go out, and come back as cached pages. A prompt that begins with these tokens finds them like any others,
 * and since they are the very bytes that were computed, so are the answers.
 *
 *     magic (8 bytes)   fields (u64 each)   tokens (i32: pages x page size)   pages (of each: ranks x bytes)   checksum (u64)
 *
 * The fields say under which conditions these bytes mean what they meant: model, dtype, KV type, ranks, page size, adapter. A model is
 * known by a fingerprint: names, types and shapes of its tensors, and samples of their bytes. Everything is checked before the first page
 * is touched: a file that is cut, changed or foreign is one sentence, and the cache is as before.
 *
 * A prompt of 1,000 tokens, with pages of 16, leaves 62 whole pages of 992 tokens; the other 8 stand in no page that can be found again,
 * and are read anew each time. The file holds the text itself, as ids: it is as private as the text.
 *
 * Pages belong to the stepping thread. Both functions take turns with its steps, for one page at a time, and pin what they work on: a
 * context of gigabytes delays nobody by more than a page. A saved file appears under its name when it is whole (rename). */
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/engine.h"
#include "api/request.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/map.h"
#include "base/files.h"
#include "model/net.h"
#include "engine/kv.h"
#include "engine/scheduler.h"
#include "engine/pages.h"
#include "engine/engine.h"
#include "engine/adapters.h"

/* The fields of a file, in their order. Those up to LAST must be equal in file and engine. */
/* clang-format off */
enum {
    LLM__CX_VERSION, LLM__CX_DEVICE, LLM__CX_MODEL, LLM__CX_DTYPE, LLM__CX_KV, LLM__CX_RANKS, LLM__CX_BLOCK, LLM__CX_BYTES,
    LLM__CX_ADAPTER, LLM__CX_LAST = LLM__CX_ADAPTER, LLM__CX_ROPE, LLM__CX_PAGES, LLM__CX_FIELDS
};
/* clang-format on */

typedef struct llm__context {
    char magic[8];
    uint64_t field[LLM__CX_FIELDS];
} llm__context;

/* The conditions in this engine, with the adapter in a slot (-1: none). */
static void llm__context_here(const llm_engine *e, int32_t lora, llm__context *c) {
    memset(c, 0, sizeof *c);
    memcpy(c->magic, "LLMKEPT", 8);
    c->field[LLM__CX_VERSION] = 3;
    c->field[LLM__CX_DEVICE] = llm__hash(e->backend->name, strlen(e->backend->name), 1);
    c->field[LLM__CX_MODEL] = llm__model_mark(e->p.model);
    c->field[LLM__CX_DTYPE] = (uint64_t)e->p.c.dtype;
    c->field[LLM__CX_KV] = (uint64_t)e->kv_type;
    c->field[LLM__CX_RANKS] = (uint64_t)e->n_ranks | (uint64_t)e->p.c.pipeline_parallel_size << 32;
    c->field[LLM__CX_BLOCK] = (uint64_t)e->kv.page_tokens;
    c->field[LLM__CX_BYTES] = (uint64_t)e->page_bytes;
    c->field[LLM__CX_ADAPTER] = lora >= 0 ? e->adapters.slot[lora].content : 0;
}

/* Lets n pinned pages go, the last first, and the adapter that was held. */
static void llm__context_leave(llm_engine *e, int32_t *pages, int32_t n, int32_t lora) {
    llm__turn_take(e);
    while (n > 0) llm__kv_drop(&e->kv, pages[--n]);
    llm__turn_give(e);
    if (lora >= 0) llm__lora_drop(e, lora);
    LLM_FREE(pages);
}

/* The whole file. The checksum goes on from part to part. */
static llm_result llm__context_write(llm_engine *e, FILE *f, const char *path, const llm__context *c, const int32_t *ids,
                                     const int32_t *pages) {
    size_t n = (size_t)c->field[LLM__CX_PAGES], id_bytes = n * (size_t)e->kv.page_tokens * sizeof *ids,
           bytes = (size_t)(e->page_bytes * e->n_ranks);
    uint64_t sum = llm__hash(ids, id_bytes, llm__hash(c, sizeof *c, 0));
    LLM__SCOPED(llm__drop) uint8_t *page = (uint8_t *)LLM_MALLOC(bytes + 1);
    llm_result r = page ? LLM_OK : llm__nomem();
    int ok = fwrite(c, sizeof *c, 1, f) == 1 && fwrite(ids, id_bytes, 1, f) == 1;
    for (size_t i = 0; i < n && !r && ok; i++) {
        llm__turn_take(e);
        r = llm__page_move(e, pages[i], page, NULL);
        llm__turn_give(e);
        if (!r) sum = llm__hash(page, bytes, sum), ok = fwrite(page, bytes, 1, f) == 1;
    }
    ok = ok && fwrite(&sum, sizeof sum, 1, f) == 1;
    if (fclose(f)) ok = 0;
    return r || ok ? r : llm__error(LLM_ERR_IO, "%s: %s", path, strerror(errno));
}

/* Walks the chain of keys as a new request with these tokens would (>>kv): the key of a page is made of the one before and its own tokens,
 * under a root of adapter, RoPE variant and salt. Each page found is pinned, the first that is missing ends the walk. Then one page at a
 * time goes to a file with a random ending, which takes its name at the end; two that save the same name each write their own. */
LLM_API llm_result llm_context_save(llm_engine *e, const char *path, const int32_t *ids, size_t n, const char *lora, const char *cache_salt,
                                    int64_t *kept) {
    uint64_t most = (uint64_t)n / (uint64_t)e->kv.page_tokens, random;
    int32_t slot, n_pages = 0, variant, size = e->kv.page_tokens;
    float base;
    llm__context c;
    llm_result r = llm__lora_hold(e, lora, &slot);
    if (r) return r;
    int32_t *pages = LLM__NEW(int32_t, LLM__MIN(most, (uint64_t)e->kv.n_pages));
    if (!pages) r = llm__nomem();
    e->p.driver.rope_of(e, (int32_t)LLM__MIN(n, (size_t)INT32_MAX), &variant, &base);
    llm__context_here(e, slot, &c);
    c.field[LLM__CX_ROPE] = llm__rope_number(variant, base);
    llm__kv_key key = llm__prompt_root(e, slot, c.field[LLM__CX_ROPE], cache_salt);
    llm__turn_take(e);
    for (int32_t page = 0; !r && page >= 0 && (uint64_t)n_pages < most && n_pages < e->kv.n_pages;)
        if ((page = llm__kv_find(&e->kv, &key, ids + (int64_t)n_pages * size)) >= 0) pages[n_pages++] = page;
    llm__turn_give(e);
    c.field[LLM__CX_PAGES] = (uint64_t)n_pages;
    if (!r && !n_pages)
        r = llm__error(LLM_ERR_ARG, "%s: nothing to keep: of %zu tokens no whole page of %d is in the prefix cache", path, n, (int)size);
    LLM__SCOPED(llm_text_free) llm_text temporary = LLM__ZERO;
    llm__random_bytes(&random, sizeof random);
    llm_text_format(&temporary, "%s.%d", path, (int)(random >> 33));
    if (!r && temporary.failed) r = llm__nomem();
    FILE *f = r ? NULL : fopen(temporary.data, "wbxe");
    if (!r) r = f ? llm__context_write(e, f, path, &c, ids, pages) : llm__error(LLM_ERR_IO, "%s: %s", path, strerror(errno));
    if (!r && rename(temporary.data, path)) r = llm__error(LLM_ERR_IO, "%s: %s", path, strerror(errno));
    if (r && f) remove(temporary.data);
    if (!r && kept) *kept = (int64_t)n_pages * size;
    llm__context_leave(e, pages, n_pages, slot);
    return r;
}

/* Checks a file against this engine: every condition, size and checksum, in an order in which every size is checked before it is
 * used. LLM_ERR_FORMAT: it is no such file, or damaged; LLM_ERR_ARG: kept by another engine, and the sentence says what differs;
 * LLM_ERR_LIMIT: more pages than the cache has at all. */
static llm_result llm__context_check(const llm_engine *e, const char *path, const llm__file *f, const llm__context *here, llm__context *c) {
    static const char *const names[] = {"version of the format", "device",    "model",         "dtype",  "KV type",
                                        "number of ranks",       "page size", "size of pages", "adapter"};
    static const char *const dtypes[] = {"auto", "float32", "bfloat16", "float16", "unknown"};
    static const char *const kv_types[] = {"auto", "float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "unknown"};
    int ok = 1;
    memset(c, 0, sizeof *c);
    memcpy(c, f->data, LLM__MIN(f->size, sizeof *c));
    if (memcmp(c->magic, here->magic, sizeof c->magic)) return llm__error(LLM_ERR_FORMAT, "%s: not a kept context", path);
    for (int i = 0; i <= LLM__CX_LAST && f->size >= sizeof *c; i++) {
        const char *const *words = i == LLM__CX_KV ? kv_types : dtypes;
        const uint64_t last = i == LLM__CX_KV ? LLM__COUNT(kv_types) - 1 : LLM__COUNT(dtypes) - 1;
        if (c->field[i] == here->field[i]) continue;
        if (i != LLM__CX_KV && i != LLM__CX_DTYPE) return llm__error(LLM_ERR_ARG, "%s: kept with another %s", path, names[i]);
        return llm__error(LLM_ERR_ARG, "%s: kept with another %s (%s, here it is %s)", path, names[i], words[LLM__MIN(c->field[i], last)],
                          words[here->field[i]]);
    }
    uint64_t n = c->field[LLM__CX_PAGES], page = (uint64_t)(e->page_bytes * e->n_ranks),
             tokens = (uint64_t)e->kv.page_tokens * sizeof(int32_t);
    uint64_t want = llm__add(llm__mul(n, page + tokens, &ok), sizeof *c + 8, &ok);
    if (f->size < sizeof *c || !ok || want != f->size)
        return llm__error(LLM_ERR_FORMAT, "%s: %zu bytes, %llu expected: it was cut or is damaged", path, f->size,
                          (unsigned long long)want);
    const uint8_t *at = f->data + sizeof *c;
    uint64_t sum = llm__hash(at, (size_t)(n * tokens), llm__hash(c, sizeof *c, 0));
    at += n * tokens;
    for (uint64_t i = 0; i < n; i++, at += page) sum = llm__hash(at, (size_t)page, sum);
    if (memcmp(&sum, at, 8)) return llm__error(LLM_ERR_FORMAT, "%s: its checksum does not fit: it is damaged", path);
    if (n > (uint64_t)e->kv.n_pages)
        return llm__error(LLM_ERR_LIMIT, "%s: %llu pages, the cache has %d", path, (unsigned long long)n, (int)e->kv.n_pages);
    return LLM_OK;
}

/* Those pages that the cache has are taken from there. A page is published when it is written, so that from now on it is like any other;
 * all are pinned until the end, or the first would have to make room for the last. */
LLM_API llm_result llm_context_load(llm_engine *e, const char *path, const char *lora, const char *cache_salt, llm_tokens *ids) {
    int32_t slot, n_pages = 0, size = e->kv.page_tokens, *pages = NULL;
    llm__context here, c = LLM__ZERO;
    LLM__SCOPED(llm__file_close) llm__file f = LLM__ZERO;
    llm_result r = llm__lora_hold(e, lora, &slot);
    if (r) return r;
    if (e->kv.no_cache) r = llm__error(LLM_ERR_UNSUPPORTED, "%s: kept contexts need the prefix cache, which is off", path);
    if (!r) r = llm__file_open(path, 0, e->p.model && e->p.model->source.no_mmap, &f);
    llm__context_here(e, slot, &here);
    if (!r) r = llm__context_check(e, path, &f, &here, &c);
    if (!r && !(pages = LLM__NEW(int32_t, c.field[LLM__CX_PAGES]))) r = llm__nomem();
    llm__kv_key key = llm__prompt_root(e, slot, c.field[LLM__CX_ROPE], cache_salt);
    const int32_t *all = r ? NULL : (const int32_t *)(const void *)(f.data + sizeof c);
    for (uint64_t i = 0, n = c.field[LLM__CX_PAGES]; i < n && !r; i++) {
        const int32_t *tokens = all + i * (uint64_t)size;
        const uint8_t *data = (const uint8_t *)(all + n * (uint64_t)size) + i * (uint64_t)(e->page_bytes * e->n_ranks);
        llm__turn_take(e);
        int32_t page = llm__kv_find(&e->kv, &key, tokens);
        if (page < 0 && (page = llm__kv_get(&e->kv)) >= 0) {
            r = llm__page_move(e, page, NULL, data);
            if (!r) llm__kv_publish(&e->kv, page, key, tokens);
        }
        llm__turn_give(e);
        if (page >= 0) pages[n_pages++] = page;
        else r = llm__error(LLM_ERR_LIMIT, "%s: no room in the cache for %llu pages now", path, (unsigned long long)n);
    }
    for (uint64_t i = 0; i < c.field[LLM__CX_PAGES] * (uint64_t)size && ids && !r; i++) llm_tokens_add(ids, all[i]);
    llm__context_leave(e, pages, n_pages, slot);
    return !r && ids && ids->failed ? llm__nomem() : r;
}
