/* What all parts stand on: sizes that cannot overflow, memory, views of text and their search, UTF-8, errors, locks, the system's clocks and
 * random bytes. Against plain twins, at the edges, exhaustively where that is little. */
#include "../test.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"

__extension__ typedef unsigned __int128 basics_wide;

/* Sums and products of everything near a power of two, against 128 bits: 63 bits fit. */
static void basics_sizes(void) {
    uint64_t n[3 * 65];
    int count = 0, wrong = 0;
    for (int i = 0; i < 64; i++)
        for (int k = -1; k <= 1; k++) n[count++] = ((uint64_t)1 << i) + (uint64_t)(int64_t)k;
    n[count++] = UINT64_MAX, n[count++] = (uint64_t)3037000499u, n[count++] = (uint64_t)3037000500u; /* about the root of 2^63 */
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++) {
            const basics_wide a = n[i], b = n[k], most = INT64_MAX;
            int ok = 1, ok_sum = 1, none = 0;
            const uint64_t product = llm__mul(n[i], n[k], &ok), sum = llm__add(n[i], n[k], &ok_sum);
            wrong |= ok != (a * b <= most) || product != (ok ? n[i] * n[k] : 0);
            wrong |= ok_sum != (a + b <= most) || sum != (ok_sum ? n[i] + n[k] : 0);
            wrong |= llm__mul(n[i], n[k], &none) || llm__add(n[i], n[k], &none) || none; /* what has failed stays so */
        }
    for (uint64_t to = 1; to <= 64; to *= 2)
        for (uint64_t a = 0; a < 200; a++) {
            int ok = 1;
            wrong |= llm__align_up(a, to, &ok) != (a + to - 1) / to * to || !ok;
        }
    int ok = 1;
    CHECK(!wrong && llm__align_up((uint64_t)INT64_MAX - 6, 8, &ok) == 0 && !ok);
}

static void basics_memory(void) {
    static const char zero[1000] = {0};
    char *array = NULL, *copy = llm__strndup("abcdef", 3), *all = llm__strdup("abc"), *none = (char *)llm__calloc(0, 8);
    size_t cap = 0;
    CHECK(copy && all && !strcmp(copy, "abc") && !strcmp(all, "abc") && !llm__strdup(NULL) && none);
    LLM_FREE(none);
    llm__drop(&copy), llm__drop(&all);
    CHECK((none = (char *)llm__calloc(10, 100)) != NULL && !memcmp(none, zero, 1000));
    LLM_FREE(none);
    CHECK(!llm__calloc(SIZE_MAX / 2, 4) && !llm__grow((void **)&array, &cap, SIZE_MAX / 4, 8) && !array && !cap);
    for (size_t n = 1, grown = 0, before = 0; n < 10000; n++) {
        if (!llm__grow((void **)&array, &cap, n, 1) || cap < n) CHECK(!"it grows");
        grown += cap != before, before = cap;
        if (grown > 12) CHECK(!"it doubles from 8 on");
        array[n - 1] = (char)n;
        if (n % 1000 == 0)
            for (size_t i = 0; i < n; i++)
                if (array[i] != (char)(i + 1)) CHECK(!"what was there is kept");
    }
    const size_t had = cap;
    test_fail_at = test_allocations + 1;
    CHECK(!llm__grow((void **)&array, &cap, cap + 1, 1) && cap == had && array && array[0] == 1);
    test_fail_at = 0;
    llm__drop(&array);
}

/* Pieces of an arena are aligned, apart, zeroed; its limit is kept to the byte, and what failed is remembered. */
static void basics_arena(void) {
    llm__arena a = LLM__ZERO, little = LLM__ZERO;
    unsigned char *piece[300];
    for (int i = 0; i < 300; i++) {
        piece[i] = (unsigned char *)llm__arena_get(&a, (size_t)i * 7);
        if (!CHECK(piece[i] && (uintptr_t)piece[i] % 8 == 0)) break;
        for (int k = 0; k < i * 7; k++)
            if (piece[i][k]) CHECK(!"zeroed");
        memset(piece[i], i, (size_t)i * 7);
    }
    for (int i = 0; i < 300; i++)
        for (int k = 0; k < i * 7; k++)
            if (piece[i][k] != (unsigned char)i) CHECK(!"nothing else lies there");
    CHECK(a.total >= 300 * 299 / 2 * 7 && !a.failed);
    llm__arena_free(&a);
    CHECK(!a.head && !a.total);
    little.limit = 10000;
    CHECK(llm__arena_take(&little, 4096) && llm__arena_take(&little, 5896) && !llm__arena_take(&little, 16) && little.failed);
    CHECK(llm__arena_take(&little, 8) && !llm__arena_take(&little, 1) && little.total == 10000);
    llm__arena_free(&little);
    char *pages = (char *)llm__pages_get(5 << 20);
    CHECK(pages && (uintptr_t)pages % (2 << 20) == 0 && !pages[0] && !pages[(5 << 20) - 1]);
    if (pages) pages[(6 << 20) - 1] = 1; /* whole pages of 2 MiB */
    llm__pages_free(pages, 5 << 20);
    llm__pages_free(NULL, 1);
    CHECK(!llm__pages_get(SIZE_MAX / 2 + 1) && llm_memory_free() > 0 && llm_memory_free() <= llm__memory_all());
}

static const char *basics_find(llm__str s, llm__str wanted) {
    for (size_t i = 0; i + wanted.n <= s.n; i++)
        if (!memcmp(s.p + i, wanted.p, wanted.n)) return s.p + i;
    return NULL;
}

/* All texts of up to 9 letters a and b and a NUL, all that may stand in them; and long ones, made to be slow. */
static void basics_search(void) {
    static const char letters[] = {'a', 'b', '\0'};
    int wrong = 0;
    char s[9], w[4], *slow = (char *)malloc(60000);
    for (int x = 0; x < 19683; x++) {
        for (int i = 0, rest = x; i < 9; i++, rest /= 3) s[i] = letters[rest % 3];
        for (size_t n = x % 10, m = 0; m <= 4; m++) {
            for (int i = 0, rest = x / 7; i < 4; i++, rest /= 3) w[i] = letters[rest % 3];
            const llm__str text = llm__s(s, n), wanted = llm__s(w, m);
            wrong |= llm__str_find(text, wanted) != basics_find(text, wanted);
            wrong |= llm__starts(text, wanted) != (n >= m && !memcmp(s, w, m));
            const int order = llm__str_order(text, wanted), bytes = memcmp(s, w, LLM__MIN(n, m));
            const int want = bytes ? bytes : (n > m) - (n < m);
            wrong |= (order > 0) - (order < 0) != (want > 0) - (want < 0);
            if (m <= n) wrong |= llm__str_from(text, m).p != s + m || llm__str_from(text, m).n != n - m;
        }
    }
    CHECK(!wrong);
    if (!slow) return;
    memset(slow, 'a', 60000);
    for (size_t m = 20000; m <= 40000; m += 20000)
        for (int hit = 0; hit < 3; hit++) { /* nowhere; at the very end; in the middle */
            slow[hit == 2 ? 45000 : 59999] = 'b';
            const llm__str text = llm__s(slow, hit ? 60000 : 59999);
            char *wanted = (char *)malloc(m);
            if (!wanted) break;
            memset(wanted, 'a', m), wanted[m - 1] = 'b';
            CHECK(llm__str_find(text, llm__s(wanted, m)) == (hit ? slow + (hit == 2 ? 45001 : 60000) - m : NULL));
            slow[hit == 2 ? 45000 : 59999] = 'a';
            free(wanted);
        }
    free(slow);
}

static void basics_words(void) {
    const char *words = "one|two||four";
    llm__str w;
    CHECK(llm__list_next(&words, "|", &w) && llm__str_eq(w, "one") && llm__list_next(&words, "|", &w) && llm__str_same(w, llm__lit("two")));
    CHECK(!llm__list_next(&words, "|", &w) && !strcmp(words, "four")); /* an empty word ends a list */
    CHECK(llm__word_index("a bc d", llm__lit("bc")) == 1 && llm__word_index("a bc d", llm__lit("b")) == -1 &&
          llm__word_index("a bc d", llm__lit("")) == -1 && llm__word_index("", llm__lit("a")) == -1);
    CHECK(llm__str_until(llm__lit("abc,d"), ",b") == 1 && llm__str_until(llm__lit("abc"), ",") == 3 &&
          llm__str_until(llm__s("a\0b,", 4), ",") == 3); /* a NUL is no stop */
    CHECK(llm__shown(llm__s("", 0)) == 0 && llm__shown(llm__s("", 64)) == 64 && llm__shown(llm__s("", 65)) == 64);
    llm_text t = llm__text_none();
    CHECK(!t.data && !t.len && !t.limit && llm__text_str(&t).p && !llm__text_str(&t).n);
    llm__add_str(&t, llm__s("a\0b", 3));
    CHECK(t.len == 3 && !memcmp(t.data, "a\0b", 4) && llm__str_same(llm__text_str(&t), llm__s("a\0b", 3)));
    t.limit = 5, llm_text_str(&t, "cde");
    CHECK(t.failed && t.len == 3);
    llm_text_free(&t);
    llm_text_num(&t, 3), llm_text_str(&t, " "), llm_text_num(&t, -0.5), llm_text_str(&t, " "), llm_text_num(&t, (double)INFINITY);
    llm_text_json(&t, "a\"\\\n\x1F\x7F\xC3\xA4\xF0\x9F\x98\x80\xFF", 13);
    CHECK(!strcmp(t.data, "3 -0.5 null\"a\\\"\\\\\\n\\u001f\\u007f\xC3\xA4\xF0\x9F\x98\x80\xEF\xBF\xBD\""));
    llm_text_free(&t);
}

/* What n bytes begin with, by the table of RFC 3629 written down as ranges. */
static int basics_part(const uint8_t *s, size_t n, int *len) {
    static const uint8_t forms[9][9] = {{0x00, 0x7F},
                                        {0xC2, 0xDF, 0x80, 0xBF},
                                        {0xE0, 0xE0, 0xA0, 0xBF, 0x80, 0xBF},
                                        {0xE1, 0xEC, 0x80, 0xBF, 0x80, 0xBF},
                                        {0xED, 0xED, 0x80, 0x9F, 0x80, 0xBF},
                                        {0xEE, 0xEF, 0x80, 0xBF, 0x80, 0xBF},
                                        {0xF0, 0xF0, 0x90, 0xBF, 0x80, 0xBF, 0x80, 0xBF},
                                        {0xF1, 0xF3, 0x80, 0xBF, 0x80, 0xBF, 0x80, 0xBF},
                                        {0xF4, 0xF4, 0x80, 0x8F, 0x80, 0xBF, 0x80, 0xBF}};
    *len = 1;
    for (int f = 0; f < 9; f++) {
        if (s[0] < forms[f][0] || s[0] > forms[f][1]) continue;
        for (int k = 1; k < 4 && forms[f][2 * k + 1]; k++, ++*len) {
            if ((size_t)k == n) return -1;
            if (s[k] < forms[f][2 * k] || s[k] > forms[f][2 * k + 1]) return 0;
        }
        return 1;
    }
    return 0;
}

/* All first three bytes, the fourth of every kind; all characters there and back. */
static void basics_utf8(void) {
    static const uint8_t more[] = {0x00, 0x7F, 0x80, 0xBF, 0xC0, 0xFF};
    int wrong = 0;
    for (int x = 0; x < 1 << 24 && !wrong; x++) {
        const uint8_t second = (uint8_t)(x >> 8), third = (uint8_t)x;
        if (second % 16 > 1 && second % 16 < 15) continue; /* bounds lie at multiples of 16 */
        const uint8_t s[4] = {(uint8_t)(x >> 16), second, third, more[x % 6]};
        for (size_t n = 1; n <= 4; n++) {
            int len, plain_len, get_len;
            const int part = llm__utf8_part((const char *)s, n, &len), plain = basics_part(s, n, &plain_len);
            const int32_t c = llm__utf8_get((const char *)s, n, &get_len);
            wrong |= part != plain || len != plain_len || (c >= 0) != (part == 1) || get_len != (part == 1 ? len : 1);
        }
    }
    for (int32_t c = 0; c <= 0x10FFFF && !wrong; c++) {
        char s[4];
        int len = 0;
        const int n = llm__utf8_put(s, c), surrogate = c >= 0xD800 && c < 0xE000;
        wrong |= n != (c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
        wrong |= llm__utf8_get(s, (size_t)n, &len) != (surrogate ? -1 : c) || llm__utf8_valid(s, (size_t)n) != (surrogate ? 0 : (size_t)n);
    }
    CHECK(!wrong && llm__utf8_valid("a\xC3\xA4\xE2\x82", 5) == 3 && llm__utf8_valid("", 0) == 0);
}

static int basics_level;
static char basics_line[1024];

static void basics_hook(void *user, int level, const char *line) {
    basics_level = level + *(int *)user;
    snprintf(basics_line, sizeof basics_line, "%s", line);
}

static void *basics_other_thread(void *arg) {
    *(int *)arg = !*llm_last_error(); /* its own, and empty */
    llm__error(LLM_ERR_ARG, "another");
    return NULL;
}

static void basics_errors(void) {
    char much[3000];
    int user = 40, own = 0;
    pthread_t thread;
    const llm__logger hook = {basics_hook, &user}, none = LLM__ZERO;
    CHECK(llm__error(LLM_ERR_IO, "%s: %d", "a", 5) == LLM_ERR_IO && !strcmp(llm_last_error(), "a: 5"));
    CHECK(llm__error(LLM_ERR_ARG, "b: %s", llm_last_error()) == LLM_ERR_ARG && !strcmp(llm_last_error(), "b: a: 5"));
    llm__error(LLM_ERR_ARG, "\x1b[1m\x7f \xC3\xA4 \xC2\x9b \xC2\xA0");
    CHECK(!strcmp(llm_last_error(), "\\x1b[1m\\x7f \xC3\xA4 \\x9b \xC2\xA0"));
    memset(much, 1, sizeof much), much[sizeof much - 1] = 0;
    llm__error(LLM_ERR_ARG, "%s", much);
    CHECK(strlen(llm_last_error()) > 1000 && strlen(llm_last_error()) < 1024);
    CHECK(!pthread_create(&thread, NULL, basics_other_thread, &own) && !pthread_join(thread, NULL) && own);
    CHECK(llm__nomem() == LLM_ERR_NOMEM && !strcmp(llm_last_error(), "out of memory"));
    llm__log(&hook, 2, "%d apples", 3), llm__log(&none, 2, "none"), llm__log(NULL, 2, "none");
    CHECK(basics_level == 42 && !strcmp(basics_line, "3 apples"));
    for (int r = 0; r >= -10; r--)
        for (int other = 0; other > r; other--) CHECK(strcmp(llm_result_str((llm_result)r), llm_result_str((llm_result)other)));
    CHECK(!strcmp(llm_result_str((llm_result)-11), "unknown result") && !strcmp(llm_result_str((llm_result)1), "unknown result"));
}

static void basics_system(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, *held = &mutex;
    pthread_cond_t cond;
    uint8_t a[16], b[16];
    const double begin = llm__now(), wall = llm__wall_clock();
    CHECK(begin > 0 && llm_now() >= begin && wall > 1.7e9 && fabs(wall - (double)time(NULL)) < 2);
    CHECK(llm__cores() >= 1 && llm__cores() <= sysconf(_SC_NPROCESSORS_CONF) && llm__memory_all() > 1 << 28);
    llm__random_bytes(a, sizeof a), llm__random_bytes(b, sizeof b);
    CHECK(memcmp(a, b, sizeof a) != 0);
    CHECK(llm__lock(&mutex) == &mutex && pthread_mutex_trylock(&mutex) == EBUSY);
    llm__timed_open(&cond);
    for (int i = 0; i < 2; i++) { /* a wait ends when its time is up, and not before */
        const struct timespec end = llm__timed_end(i * 0.02);
        const double from = llm__now();
        CHECK(pthread_cond_timedwait(&cond, &mutex, &end) == ETIMEDOUT && llm__now() - from >= i * 0.0199 && end.tv_nsec < 1000000000);
    }
    pthread_cond_destroy(&cond);
    llm__unlock(&held);
    {
        LLM__LOCKED(&mutex);
        CHECK(pthread_mutex_trylock(&mutex) == EBUSY);
    }
    CHECK(!pthread_mutex_trylock(&mutex) && !pthread_mutex_unlock(&mutex));
}

TEST_GROUP(basics) {
    basics_sizes();
    basics_memory();
    basics_arena();
    basics_search();
    basics_words();
    basics_utf8();
    basics_errors();
    basics_system();
}
