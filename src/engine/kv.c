#include "engine/kv.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/map.h"

LLM__PRIVATE llm_result llm__kv_open(llm__kv *kv, int32_t n_pages, int32_t page_tokens, int no_cache, llm__arena *a) {
    size_t n = (size_t)n_pages;
    memset(kv, 0, sizeof *kv);
    kv->n_pages = kv->n_free = n_pages;
    kv->page_tokens = page_tokens;
    kv->no_cache = no_cache;
    for (kv->mask = 15; kv->mask < (uint32_t)n_pages; kv->mask = kv->mask * 2 + 1) {}
    kv->ref = (int32_t *)llm__arena_get(a, n * sizeof *kv->ref);
    kv->prev = (int32_t *)llm__arena_get(a, (n + 1) * sizeof *kv->prev);
    kv->next = (int32_t *)llm__arena_get(a, (n + 1) * sizeof *kv->next);
    kv->key = (llm__kv_key *)llm__arena_get(a, n * sizeof *kv->key);
    kv->known = (uint8_t *)llm__arena_get(a, 2 * n);
    kv->drafted = kv->known + n;
    kv->tokens = (int32_t *)llm__arena_get(a, n * (size_t)page_tokens * sizeof *kv->tokens);
    kv->bucket = (int32_t *)llm__arena_get(a, ((size_t)kv->mask + 1) * sizeof *kv->bucket);
    kv->chain = (int32_t *)llm__arena_get(a, n * sizeof *kv->chain);
    if (a->failed) return llm__nomem();
    for (int32_t i = 0; i <= n_pages; i++) kv->prev[(i + 1) % (n_pages + 1)] = i, kv->next[i] = (i + 1) % (n_pages + 1);
    for (uint32_t i = 0; i <= kv->mask; i++) kv->bucket[i] = -1;
    llm__random_bytes(kv->secret, sizeof kv->secret);
    return LLM_OK;
}

LLM__PRIVATE int32_t llm__kv_room(const llm__kv *kv) { return kv->n_free + kv->n_cached; }

LLM__PRIVATE llm__kv_key llm__kv_hash(const llm__kv *kv, llm__kv_key parent, const void *data, size_t n) {
    llm__kv_key k;
    k.a = llm__mix(llm__hash(data, n, kv->secret[0] ^ llm__mix(parent.a)) ^ parent.b);
    k.b = llm__mix(llm__hash(data, n, kv->secret[1] ^ llm__mix(parent.b + 1)) ^ parent.a);
    return k;
}

LLM__PRIVATE llm__kv_key llm__kv_root(const llm__kv *kv, uint64_t lora, uint64_t rope, const char *salt) {
    llm__kv_key how = {lora, rope};
    return llm__kv_hash(kv, how, salt ? salt : "", salt ? strlen(salt) + 1 : 0);
}

/* Takes a page out of the ring. */
static void llm__kv_unlink(llm__kv *kv, int32_t page) {
    kv->next[kv->prev[page]] = kv->next[page];
    kv->prev[kv->next[page]] = kv->prev[page];
    kv->n_cached -= kv->known[page];
    kv->n_free -= !kv->known[page];
}

/* Takes a known page out of the index: no prompt will find it again. */
static void llm__kv_forget(llm__kv *kv, int32_t page) {
    int32_t *at = &kv->bucket[kv->key[page].a & kv->mask];
    while (*at != page) at = &kv->chain[*at];
    *at = kv->chain[page];
    kv->known[page] = 0;
}

LLM__PRIVATE void llm__kv_hold(llm__kv *kv, int32_t page) {
    if (!kv->ref[page]++) llm__kv_unlink(kv, page);
}

LLM__PRIVATE void llm__kv_drop(llm__kv *kv, int32_t page) {
    if (--kv->ref[page]) return;
    const int32_t before = kv->known[page] ? kv->prev[kv->n_pages] : kv->n_pages, after = kv->next[before];
    kv->prev[page] = before;
    kv->next[page] = after;
    kv->next[before] = kv->prev[after] = page;
    kv->n_cached += kv->known[page];
    kv->n_free += !kv->known[page];
    kv->released++;
}

LLM__PRIVATE int32_t llm__kv_get(llm__kv *kv) {
    const int32_t page = kv->next[kv->n_pages];
    if (page == kv->n_pages) return -1;
    llm__kv_unlink(kv, page);
    if (kv->known[page]) llm__kv_forget(kv, page);
    kv->ref[page] = 1;
    kv->drafted[page] = 0;
    return page;
}

LLM__PRIVATE int32_t llm__kv_lookup(const llm__kv *kv, llm__kv_key key, const int32_t *tokens) {
    int32_t page = kv->bucket[key.a & kv->mask];
    for (; page >= 0; page = kv->chain[page])
        if (kv->key[page].a == key.a && kv->key[page].b == key.b &&
            !memcmp(kv->tokens + (int64_t)page * kv->page_tokens, tokens, (size_t)kv->page_tokens * sizeof *tokens))
            return page;
    return -1;
}

LLM__PRIVATE int32_t llm__kv_find(llm__kv *kv, llm__kv_key *key, const int32_t *tokens) {
    *key = llm__kv_hash(kv, *key, tokens, (size_t)kv->page_tokens * sizeof *tokens);
    int32_t page = kv->no_cache ? -1 : llm__kv_lookup(kv, *key, tokens);
    if (page >= 0) llm__kv_hold(kv, page);
    return page;
}

LLM__PRIVATE void llm__kv_publish(llm__kv *kv, int32_t page, llm__kv_key key, const int32_t *tokens) {
    if (kv->no_cache || kv->known[page] || llm__kv_lookup(kv, key, tokens) >= 0) return;
    int32_t *bucket = &kv->bucket[key.a & kv->mask];
    memcpy(kv->tokens + (int64_t)page * kv->page_tokens, tokens, (size_t)kv->page_tokens * sizeof *tokens);
    kv->key[page] = key;
    kv->known[page] = 1;
    kv->chain[page] = *bucket;
    *bucket = page;
}

LLM__PRIVATE void llm__kv_flush(llm__kv *kv) {
    while (kv->n_cached) {
        const int32_t page = kv->prev[kv->n_pages];
        llm__kv_unlink(kv, page);
        llm__kv_forget(kv, page);
        kv->ref[page] = 1;
        llm__kv_drop(kv, page);
    }
}
