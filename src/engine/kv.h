/* kv: which page of the KV cache belongs to which sequences, and what may be used again.
 *
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
 * free + cached + used = all, always; tests/unit/engine/test_sim.c checks this and that references are as many as table entries
 * after every step. The idea is vLLM's (PagedAttention, Kwon et al. 2023), the chained keys are its automatic prefix
 * caching; the secret keeps one client from guessing what others have asked by timing (salts part the clients). */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"

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
    uint64_t released; /* counts pages that became available: sequences that wait for pages look here */
} llm__kv;

/* Every page is free and nothing is known. Its arrays are zeros, and go with the arena. */
LLM__PRIVATE llm_result llm__kv_open(llm__kv *kv, int32_t n_pages, int32_t page_tokens, int no_cache, llm__arena *a);

/* Pages that can be had now: those that are free, and those that are kept only for a prompt that may never come. */
LLM__PRIVATE int32_t llm__kv_room(const llm__kv *kv);

/* The key of `n` bytes that follow what `parent` stands for: two hashes with a secret each, into which the parent's two
 * halves go crosswise, so that no half depends on one hash alone. */
LLM__PRIVATE llm__kv_key llm__kv_hash(const llm__kv *kv, llm__kv_key parent, const void *data, size_t n);

/* Where a prompt's chain of keys begins: with whatever else decides what keys and values tokens have, as two numbers. Requests with
 * different salts share nothing; without one (NULL) they share, and "" is a salt. */
LLM__PRIVATE llm__kv_key llm__kv_root(const llm__kv *kv, uint64_t lora, uint64_t rope, const char *salt);

/* One more owner of a page. A cached one leaves the ring. */
LLM__PRIVATE void llm__kv_hold(llm__kv *kv, int32_t page);

/* One owner less. Without any the page is cached if it can be found again, last in the ring; else free, and first. */
LLM__PRIVATE void llm__kv_drop(llm__kv *kv, int32_t page);

/* A page with one owner and no content, or -1 when every page is used: a free one, else the one that was let go longest ago, which is
 * evicted. */
LLM__PRIVATE int32_t llm__kv_get(llm__kv *kv);

/* The page that holds these tokens behind what *key stands for, pinned; or -1. *key becomes the page's own either way. */
LLM__PRIVATE int32_t llm__kv_find(llm__kv *kv, llm__kv_key *key, const int32_t *tokens);

/* A used page is full and computed: from now on it can be found. tokens: (page_tokens) that it holds. Where an equal
 * page is known already, that one stays: two prompts that were computed at the same time. */
LLM__PRIVATE void llm__kv_publish(llm__kv *kv, int32_t page, llm__kv_key key, const int32_t *tokens);

/* Cached pages become free: what was known of them is forgotten. Used pages stay known. */
LLM__PRIVATE void llm__kv_flush(llm__kv *kv);

/* The page that is known for these tokens under this key, or -1. Tokens are compared: colliding keys miss. */
LLM__PRIVATE int32_t llm__kv_lookup(const llm__kv *kv, llm__kv_key key, const int32_t *tokens);
