/* A hash of n bytes, 8 at a time: each is mixed in by a multiplication, whose high half, where every bit has met every other, is folded
 * back down. `seed` is the key: where files or clients choose the bytes, one that they do not know keeps them from aiming at collisions. */
LLM__UNUSED static uint64_t llm__hash(const void *data, size_t n, uint64_t seed) {
    const uint8_t *p = (const uint8_t *)data;
    uint64_t h = seed ^ (n * 0x9E3779B97F4A7C15u);
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = (h ^ v) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    uint64_t v = 0;
    if (n) memcpy(&v, p, n);
    h = (h ^ v) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ (h >> 29);
}

/* A strong mix of 64 bits (Stafford's variant 13 of the splitmix finaliser): a permutation in which each bit of x moves
 * each bit of the result with probability 1/2. Random numbers, page keys and hash tables of this file are made of it. */
static uint64_t llm__mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* A seed for a table whose keys come from strangers. Without it somebody could prepare a file of a million names that all fall on one slot,
 * and opening it would take quadratic time. Address and clock are not secret, but nobody knows them when the file is written. */
LLM__UNUSED static uint64_t llm__seed(const void *p) { return (uint64_t)(uintptr_t)p ^ (uint64_t)(llm__now() * 1e9); }

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

/* The slot that holds the key, or the free one where it would go (linear probing; the table is never full). */
LLM__UNUSED static llm__map_slot *llm__map_slot_of(const llm__map *m, llm__str key, uint32_t hash) {
    size_t i = hash & (m->cap - 1);
    while (m->slot[i].key.p && (m->slot[i].hash != hash || m->slot[i].key.n != key.n || memcmp(m->slot[i].key.p, key.p, key.n)))
        i = (i + 1) & (m->cap - 1);
    return &m->slot[i];
}

/* Makes room for n keys in all: a tokenizer that knows its size spares the rehashing on the way. 0: no memory. */
LLM__UNUSED static int llm__map_reserve(llm__map *m, size_t n) {
    size_t cap = 16;
    while (cap / 4 * 3 < n) cap *= 2;
    if (cap <= m->cap) return 1;
    llm__map bigger = *m;
    bigger.cap = cap;
    bigger.slot = LLM__NEW(llm__map_slot, cap);
    if (!bigger.slot) return 0;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slot[i].key.p) *llm__map_slot_of(&bigger, m->slot[i].key, m->slot[i].hash) = m->slot[i];
    LLM_FREE(m->slot);
    *m = bigger;
    return 1;
}

/* The value of a key, or -1. */
LLM__UNUSED static int32_t llm__map_get(const llm__map *m, llm__str key) {
    if (!m->cap) return -1;
    const llm__map_slot *s = llm__map_slot_of(m, key, (uint32_t)llm__hash(key.p, key.n, m->seed));
    return s->key.p ? s->value : -1;
}

/* Adds a key that is not there; 1 added, 0 it was there (kept as it was), -1 no memory. key.p must not be NULL. */
LLM__UNUSED static int llm__map_put(llm__map *m, llm__str key, int32_t value) {
    if (!llm__map_reserve(m, m->len + 1)) return -1;
    uint32_t hash = (uint32_t)llm__hash(key.p, key.n, m->seed);
    llm__map_slot *s = llm__map_slot_of(m, key, hash);
    if (s->key.p) return 0;
    s->key = key;
    s->hash = hash;
    s->value = value;
    m->len++;
    return 1;
}

/* Frees the table; the keys live elsewhere. An empty map is fine. */
LLM__UNUSED static void llm__map_free(llm__map *m) {
    LLM_FREE(m->slot);
    memset(m, 0, sizeof *m);
}

