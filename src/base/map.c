#include "base/map.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/text.h"

LLM__PRIVATE uint64_t llm__hash(const void *data, size_t n, uint64_t seed) {
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

LLM__PRIVATE uint64_t llm__mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

LLM__PRIVATE uint64_t llm__seed(const void *p) { return (uint64_t)(uintptr_t)p ^ (uint64_t)(llm__now() * 1e9); }

/* The slot that holds the key, or the free one where it would go (linear probing; the table is never full). */
static llm__map_slot *llm__map_slot_of(const llm__map *m, llm__str key, uint32_t hash) {
    size_t i = hash & (m->cap - 1);
    while (m->slot[i].key.p && (m->slot[i].hash != hash || m->slot[i].key.n != key.n || memcmp(m->slot[i].key.p, key.p, key.n)))
        i = (i + 1) & (m->cap - 1);
    return &m->slot[i];
}

LLM__PRIVATE int llm__map_reserve(llm__map *m, size_t n) {
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

LLM__PRIVATE int32_t llm__map_get(const llm__map *m, llm__str key) {
    if (!m->cap) return -1;
    const llm__map_slot *s = llm__map_slot_of(m, key, (uint32_t)llm__hash(key.p, key.n, m->seed));
    return s->key.p ? s->value : -1;
}

LLM__PRIVATE int llm__map_put(llm__map *m, llm__str key, int32_t value) {
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

LLM__PRIVATE void llm__map_free(llm__map *m) {
    LLM_FREE(m->slot);
    memset(m, 0, sizeof *m);
}
