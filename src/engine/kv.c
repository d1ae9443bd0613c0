/* ============================================================================
 * >>kv   Who owns which page of the KV cache, and what may be used again.
 * ============================================================================
 * The cache is n pages of a fixed number of tokens; a sequence has a table of pages. This manager never touches
 * the keys and values themselves, it only counts. A page is in one of three states:
 *   used    ref > 0: in the tables of `ref` sequences. With ref > 1 it is full and nobody writes it.
 *   cached  ref = 0, but its content is known by its key: a prompt that begins in the same way takes it.
 *   free    ref = 0, no key.
 * The key of a full page is a hash of (key of the page before, its tokens); the first one's parent is a hash of the salt, the adapter and
 * the rotary scaling; all are keyed by a secret drawn at open. They have 128 bits, and a hit compares the tokens too, so a collision costs
 * a miss and never gives a wrong page. A page found is pinned in the look-up.
 *
 * Pages that nobody uses stand in one ring: first the free ones, then the cached in the order they were let go. Whoever needs a page takes
 * the first. A sequence lets go of its last page first, so tails are evicted before the beginnings that more prompts share. Every operation
 * takes constant time and no memory.
 *
 *            get                  publish, then the last drop
 *     free ------> used (ref 1) ------------------------------> cached
 *       ^           |   ^  hold / drop: ref + 1 / - 1             |  |
 *       |  drop     |   +-------------- find (pins it) -----------+  |
 *       +-----------+ (not published)                                |
 *       +------------------------- get, when nothing is free --------+  (the oldest; its key is forgotten)
 *
 * free + cached + used = all, always; tests/test_sim.c checks this and that references are as many as table entries
 * after every step. The idea is vLLM's (PagedAttention, Kwon et al. 2023), the chained keys are its automatic prefix
 * caching; the secret keeps one client from guessing what others have asked by timing (salts part the clients). */

typedef struct llm__kv_key {
    uint64_t a, b;
} llm__kv_key;

typedef struct llm__kv {
    int32_t n_pages, page_tokens;
    int32_t n_free, n_cached;
    int32_t no_cache;        /* prefix caching is off */
    int32_t *ref;            /* (n_pages) */
    int32_t *prev, *next;    /* (n_pages + 1) the ring of pages that nobody uses; place n_pages is no page, but where it begins and ends */
    llm__kv_key *key;        /* (n_pages) */
    uint8_t *known;          /* (n_pages) stands in the index */
    uint8_t *drafted;        /* (n_pages) a draft model has computed it, too */
    int32_t *tokens;         /* (n_pages, page_tokens) of known pages */
    int32_t *bucket, *chain; /* (mask + 1) first page, (n_pages) next page of the same bucket; -1 ends */
    uint32_t mask;
    uint64_t secret[2];
    uint64_t released;       /* counts pages that became available: who waits for pages looks here */
} llm__kv;

/* Every page is free and nothing is known. Its arrays are zeros, and go with the arena. */
static llm_result llm__kv_open(llm__kv *kv, int32_t n_pages, int32_t page_tokens, int no_cache, llm__arena *a) {
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

/* Pages that can be had now: those that are free, and those that are kept only for a prompt that may never come. */
static int32_t llm__kv_room(const llm__kv *kv) { return kv->n_free + kv->n_cached; }

/* The key of `n` bytes that follow what `parent` stands for: two hashes with a secret each, into which the parent's two
 * halves go crosswise, so that no half depends on one hash alone. */
static llm__kv_key llm__kv_hash(const llm__kv *kv, llm__kv_key parent, const void *data, size_t n) {
    llm__kv_key k;
    k.a = llm__mix(llm__hash(data, n, kv->secret[0] ^ llm__mix(parent.a)) ^ parent.b);
    k.b = llm__mix(llm__hash(data, n, kv->secret[1] ^ llm__mix(parent.b + 1)) ^ parent.a);
    return k;
}

/* Where a prompt's chain of keys begins: with whatever else decides what keys and values tokens have, as two numbers. Requests with
 * different salts share nothing; without one (NULL) they share, and "" is a salt. */
static llm__kv_key llm__kv_root(const llm__kv *kv, uint64_t lora, uint64_t rope, const char *salt) {
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

/* One more owner of a page. A cached one leaves the ring. */
static void llm__kv_hold(llm__kv *kv, int32_t page) {
    if (!kv->ref[page]++) llm__kv_unlink(kv, page);
}

/* One owner less. Without any the page is cached if it can be found again, last in the ring; else free, and first. */
static void llm__kv_drop(llm__kv *kv, int32_t page) {
    if (--kv->ref[page]) return;
    const int32_t before = kv->known[page] ? kv->prev[kv->n_pages] : kv->n_pages, after = kv->next[before];
    kv->prev[page] = before;
    kv->next[page] = after;
    kv->next[before] = kv->prev[after] = page;
    kv->n_cached += kv->known[page];
    kv->n_free += !kv->known[page];
    kv->released++;
}

/* A page with one owner and no content, or -1 when every page is used: a free one, else the one that was let go longest ago, which is
 * evicted. */
static int32_t llm__kv_get(llm__kv *kv) {
    const int32_t page = kv->next[kv->n_pages];
    if (page == kv->n_pages) return -1;
    llm__kv_unlink(kv, page);
    if (kv->known[page]) llm__kv_forget(kv, page);
    kv->ref[page] = 1;
    kv->drafted[page] = 0;
    return page;
}

/* The page that is known for these tokens under this key, or -1. Tokens are compared: colliding keys miss. */
static int32_t llm__kv_lookup(const llm__kv *kv, llm__kv_key key, const int32_t *tokens) {
    int32_t page = kv->bucket[key.a & kv->mask];
    for (; page >= 0; page = kv->chain[page])
        if (kv->key[page].a == key.a && kv->key[page].b == key.b &&
            !memcmp(kv->tokens + (int64_t)page * kv->page_tokens, tokens, (size_t)kv->page_tokens * sizeof *tokens)) return page;
    return -1;
}

/* The page that holds these tokens behind what *key stands for, pinned; or -1. *key becomes the page's own either way. */
static int32_t llm__kv_find(llm__kv *kv, llm__kv_key *key, const int32_t *tokens) {
    *key = llm__kv_hash(kv, *key, tokens, (size_t)kv->page_tokens * sizeof *tokens);
    int32_t page = kv->no_cache ? -1 : llm__kv_lookup(kv, *key, tokens);
    if (page >= 0) llm__kv_hold(kv, page);
    return page;
}

/* A used page is full and computed: from now on it can be found. tokens: (page_tokens) that it holds. Where an equal
 * page is known already, that one stays: two prompts that were computed at the same time. */
static void llm__kv_publish(llm__kv *kv, int32_t page, llm__kv_key key, const int32_t *tokens) {
    if (kv->no_cache || kv->known[page] || llm__kv_lookup(kv, key, tokens) >= 0) return;
    int32_t *bucket = &kv->bucket[key.a & kv->mask];
    memcpy(kv->tokens + (int64_t)page * kv->page_tokens, tokens, (size_t)kv->page_tokens * sizeof *tokens);
    kv->key[page] = key;
    kv->known[page] = 1;
    kv->chain[page] = *bucket;
    *bucket = page;
}

/* Cached pages become free: what was known of them is forgotten. Used pages stay known. */
static void llm__kv_flush(llm__kv *kv) {
    while (kv->n_cached) {
        const int32_t page = kv->prev[kv->n_pages];
        llm__kv_unlink(kv, page);
        llm__kv_forget(kv, page);
        kv->ref[page] = 1;
        llm__kv_drop(kv, page);
    }
}

