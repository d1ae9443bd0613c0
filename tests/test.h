/* The test harness: a few macros over the implementation itself, so that tests reach its statics.
 *
 * A file tests/test_NAME.c holds TEST_GROUP(NAME) { ... } and builds alone into build/test_NAME; tests/test_all.c includes all of
 * them into one program. The last line printed is "N passed, N failed, N skipped". */
#ifndef TEST_H
#define TEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <stdlib.h>

/* The implementation's memory is counted, and can be made to fail: the allocation number test_fail_at does (0: none). */
static long test_allocations, test_fail_at;

static inline int test_memory_fails(void) { return __atomic_add_fetch(&test_allocations, 1, __ATOMIC_RELAXED) == test_fail_at; }
static inline void *test_malloc(size_t n) { return test_memory_fails() ? NULL : malloc(n); }
static inline void *test_realloc(void *p, size_t n) { return test_memory_fails() ? NULL : realloc(p, n); }

#ifndef LLM_MALLOC
#define LLM_MALLOC(n) test_malloc(n)
#define LLM_REALLOC(p, n) test_realloc(p, n)
#define LLM_FREE(p) free(p)
#endif
#ifndef LLM_IMPLEMENTATION
#define LLM_IMPLEMENTATION
#endif
#include "../llm.h"

static int test_passed, test_failed, test_skipped;

static inline int test_check(int ok, const char *what, const char *file, int line) {
    if (ok) {
        test_passed++;
    } else if (++test_failed <= 50) {
        printf("%s:%d: FAILED: %s (last error: %s)\n", file, line, what, llm_last_error());
    }
    return ok;
}

static inline void test_skip(const char *why) {
    printf("skipped: %s\n", why);
    test_skipped++;
}

/* Under sanitizers what only takes long, and runs no code that other rows do not, is left out or shortened. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { TEST_BRIEF = 1 };
#else
enum { TEST_BRIEF = 0 };
#endif

#define CHECK(condition) test_check(!!(condition), #condition, __FILE__, __LINE__)
#define SKIP(why) test_skip(why)

static inline int test_done(void) {
    printf("%d passed, %d failed, %d skipped\n", test_passed, test_failed, test_skipped);
    return test_failed ? 1 : 0;
}

/* 1 if a file or folder is there. */
static inline int test_exists(const char *path) { return access(path, R_OK) == 0; }

#ifdef TEST_ALL
#define TEST_GROUP(name) static void test_group_##name(void)
#else
#define TEST_GROUP(name) \
    static void test_group_##name(void); \
    int main(void) { \
        test_group_##name(); \
        return test_done(); \
    } \
    static void test_group_##name(void)
#endif

#endif
