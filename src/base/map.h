/* map: hashes, and a map from byte strings to numbers. */
#pragma once
#include "base/platform.h"
#include "base/text.h"

/* A hash of n bytes, 8 at a time: each is mixed in by a multiplication, whose high half, where every bit has met every other, is folded
 * back down. `seed` is the key: where files or clients choose the bytes, one that they do not know keeps them from aiming at collisions. */
LLM__PRIVATE uint64_t llm__hash(const void *data, size_t n, uint64_t seed);

/* A strong mix of 64 bits (Stafford's variant 13 of the splitmix finaliser): a permutation in which each bit of x moves
 * each bit of the result with probability 1/2. Random numbers, page keys and hash tables of this file are made of it. */
LLM__PRIVATE uint64_t llm__mix(uint64_t x);

/* A seed for a table whose keys come from strangers. Without it somebody could prepare a file of a million names that all fall on one slot,
 * and opening it would take quadratic time. Address and clock are not secret, but nobody knows them when the file is written. */
LLM__PRIVATE uint64_t llm__seed(const void *p);

/* From byte strings, which live elsewhere, to numbers from 0 up. Open addressing: a key lies in the slot that its hash names or in the next
 * free one behind, so a look-up is one jump and a short walk. At most 3/4 full, no removal. Zero-initialise; `seed` may be set first. */
typedef struct llm__map_slot {
    llm__str key;
    uint32_t hash;
    int32_t value;
} llm__map_slot;

typedef struct llm__map {
    llm__map_slot *slot; /* key.p NULL: free */
    size_t cap, len;     /* cap: 0 or a power of two */
    uint64_t seed;
} llm__map;

/* Makes room for n keys in all: a tokenizer that knows its size spares the rehashing on the way. 0: no memory. */
LLM__PRIVATE int llm__map_reserve(llm__map *m, size_t n);

/* The value of a key, or -1. */
LLM__PRIVATE int32_t llm__map_get(const llm__map *m, llm__str key);

/* Adds a key that is not there; 1 added, 0 it was there (kept as it was), -1 no memory. key.p must not be NULL. */
LLM__PRIVATE int llm__map_put(llm__map *m, llm__str key, int32_t value);

/* Frees the table; the keys live elsewhere. An empty map is fine. */
LLM__PRIVATE void llm__map_free(llm__map *m);
