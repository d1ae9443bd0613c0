/* Tables of strings: the index of texts by their beginnings and the map, against plain searches over the same strings. */
#include "../test.h"
#include "base/platform.h"
#include "base/index.h"
#include "base/map.h"

enum { TABLE_MOST = 400 };

static uint64_t table_seed = 1;
static char table_bytes[TABLE_MOST][8];
static llm__str table_text[TABLE_MOST];

static int table_random(int n) {
    table_seed = table_seed * 6364136223846793005u + 1442695040888963407u;
    return (int)(table_seed >> 33) % n;
}

/* n texts of up to 6 bytes out of few different ones, first and last values of a byte among them: many are equal, many begin alike. */
static void table_texts(int n, int kinds) {
    static const char bytes[] = {'a', '\xFF', '\0', 'b', '\x7F', '\x80'};
    for (int i = 0; i < n; i++) {
        size_t len = (size_t)table_random(7);
        for (size_t k = 0; k < len; k++) table_bytes[i][k] = bytes[table_random(kinds)];
        table_text[i] = llm__s(table_bytes[i], len);
    }
}

/* memcmp over the shorter one, then the shorter one first. */
static int table_order(llm__str a, llm__str b) {
    int order = memcmp(a.p, b.p, LLM__MIN(a.n, b.n));
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

/* What the search of every text of up to 5 bytes must find: the longest entry that it begins with, and of equal ones the least value. */
static void table_longest(const llm__index *x, int n, int kinds) {
    static const char bytes[] = {'a', '\xFF', '\0', 'b', '\x7F', '\x80'};
    int wrong = 0, all = 1;
    for (int i = 0; i < 5; i++) all *= kinds + 1;
    for (int code = 0; code < all; code++) {
        char text[5];
        size_t len = 0;
        int best = -1;
        for (int left = code; left % (kinds + 1) && len < 5; left /= kinds + 1) text[len++] = bytes[left % (kinds + 1) - 1];
        for (int i = 0; i < n; i++) {
            if (!table_text[i].n || table_text[i].n > len || memcmp(text, table_text[i].p, table_text[i].n)) continue;
            if (best < 0 || table_text[i].n > table_text[best].n) best = i;
        }
        size_t steps = 0;
        const llm__index_entry *e = llm__index_longest(x, llm__s(text, len), &steps);
        wrong += best < 0 ? e != NULL : !e || e->value != best || !llm__str_same(e->s, table_text[best]);
    }
    CHECK(wrong == 0);
}

/* One byte after the other, as a tokenizer walks: the range is that of all entries which begin with the bytes so far. */
static void table_steps(const llm__index *x) {
    int wrong = 0;
    for (size_t e = 0; e < x->n; e++) {
        size_t lo = 0, hi = x->n;
        const llm__str s = x->v[e].s;
        for (size_t depth = 0; depth < s.n; depth++) {
            int ends = llm__index_step(x, &lo, &hi, depth, (uint8_t)s.p[depth]), whole = 0;
            for (size_t i = 0; i < x->n; i++) {
                const llm__str other = x->v[i].s;
                int begins = other.n > depth && !memcmp(other.p, s.p, depth + 1);
                wrong += begins != (i >= lo && i < hi);
                whole |= begins && other.n == depth + 1;
            }
            wrong += ends != whole;
        }
    }
    CHECK(wrong == 0);
}

static void table_index(int n, int kinds) {
    llm__index x = LLM__ZERO;
    llm_result r = LLM_OK;
    int order = 0;
    table_texts(n, kinds);
    for (int i = n; i-- > 0;) llm__index_add(&x, table_text[i], i, &r); /* not in the order of their values */
    llm__index_build(&x);
    for (size_t i = 1; i < x.n; i++) {
        order += table_order(x.v[i - 1].s, x.v[i].s) >= 0; /* in order, and none twice */
        order += llm__index_compare(&x.v[i - 1], &x.v[i]) >= 0 || llm__index_compare(&x.v[i], &x.v[i - 1]) <= 0;
    }
    CHECK(!r && order == 0);
    table_longest(&x, n, kinds);
    table_steps(&x);
    LLM_FREE(x.v);
}

static void table_no_memory(void) {
    llm__index x = LLM__ZERO;
    llm_result r = LLM_OK;
    llm__index_add(&x, llm__lit(""), 1, &r); /* nothing is kept of it */
    CHECK(!r && !x.n);
    llm__index_build(&x);
    CHECK(!llm__index_longest(&x, llm__lit("a"), &(size_t){0}));
    test_fail_at = test_allocations + 1;
    llm__index_add(&x, llm__lit("a"), 1, &r);
    test_fail_at = 0;
    CHECK(r == LLM_ERR_NOMEM && !x.n);
    LLM_FREE(x.v);
}

/* Puts the texts into a map while it grows: the first of equal ones stays. Every one is found, and no other. */
static void table_map(int n, uint64_t seed) {
    llm__map m = LLM__ZERO;
    int wrong = 0, kept = 0;
    m.seed = seed;
    table_texts(n, 6);
    for (int i = 0; i < n; i++) {
        int first = 0;
        while (!llm__str_same(table_text[first], table_text[i])) first++;
        wrong += llm__map_get(&m, table_text[i]) != (first < i ? first : -1);
        wrong += llm__map_put(&m, table_text[i], i) != (first == i);
        kept += first == i;
        wrong += m.len != (size_t)kept || m.len * 4 > m.cap * 3;
    }
    for (int i = 0; i < n; i++) {
        int first = 0;
        while (!llm__str_same(table_text[first], table_text[i])) first++;
        wrong += llm__map_get(&m, table_text[i]) != first;
    }
    CHECK(wrong == 0 && llm__map_get(&m, llm__lit("absent")) == -1);
    llm__map_free(&m);
    CHECK(!m.cap && llm__map_get(&m, llm__lit("a")) == -1);
}

/* One slot of the hash for all keys: still right, only slower. And no memory: nothing changes. */
static void table_map_limits(void) {
    llm__map m = LLM__ZERO;
    CHECK(llm__map_reserve(&m, 12) && m.cap == 16 && llm__map_reserve(&m, 5) && m.cap == 16 && llm__map_reserve(&m, 13) && m.cap == 32);
    CHECK(llm__map_put(&m, llm__lit("a"), 7) == 1);
    test_fail_at = test_allocations + 1;
    CHECK(!llm__map_reserve(&m, 1000));
    test_fail_at = 0;
    CHECK(llm__map_get(&m, llm__lit("a")) == 7 && m.cap == 32);
    llm__map_free(&m);
    test_fail_at = test_allocations + 1;
    CHECK(llm__map_put(&m, llm__lit("a"), 7) == -1 && llm__map_get(&m, llm__lit("a")) == -1);
    test_fail_at = 0;
    llm__map_free(&m);
}

/* Hashes differ by every bit of the text, by its length and by the seed; a mix of 64 bits is a permutation whose bits all move. */
static void table_hashes(void) {
    uint8_t bytes[40] = {0};
    int wrong = 0;
    for (size_t n = 0; n <= 32; n++) {
        const uint64_t plain = llm__hash(bytes, n, 5);
        wrong += plain == llm__hash(bytes, n + 1, 5) || plain == llm__hash(bytes, n, 6) || plain != llm__hash(bytes, n, 5);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            wrong += (uint32_t)plain == (uint32_t)llm__hash(bytes, n, 5); /* maps keep the lower half */
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    }
    for (int bit = 0; bit < 64; bit++) {
        int moved[64] = {0};
        for (uint64_t i = 1; i <= 1024; i++) {
            uint64_t differ = llm__mix(i * 0x9E3779B97F4A7C15u) ^ llm__mix(i * 0x9E3779B97F4A7C15u ^ (uint64_t)1 << bit);
            for (int to = 0; to < 64; to++) moved[to] += (int)(differ >> to & 1);
        }
        for (int to = 0; to < 64; to++) wrong += abs(moved[to] - 512) > 16 * 6; /* half of them, give or take 6 standard deviations */
    }
    CHECK(wrong == 0);
    CHECK(llm__mix(0) == 0);
}

TEST_GROUP(tables) {
    for (int kinds = 1; kinds <= 6; kinds++) {
        table_index(kinds * 20, kinds);
        table_index(3, kinds);
    }
    table_no_memory();
    for (uint64_t seed = 0; seed < 20; seed++) table_map(TABLE_MOST, seed);
    table_map_limits();
    table_hashes();
}
