/* The harness of the unit tests, which see all that the parts of src/ offer to each other.
 *
 * A file tests/unit/LAYER/test_NAME.c has TEST_GROUP(NAME) { ... }; all of them become one program, `build/dev/unit [GROUP...]`, linked with the
 * parts as `make dev` compiles them one by one. Its last line is "N passed, N failed, N skipped". */
#ifndef TEST_H
#define TEST_H

#include "api/api.h"
#include "base/platform.h"
#include "memory.h"

extern int test_passed, test_failed, test_skipped;

/* What was said behind "--": for groups that are also run by hand. */
extern int test_argc;
extern char **test_argv;

static inline int test_check(int ok, const char *what, const char *file, int line) {
    if (ok) __atomic_add_fetch(&test_passed, 1, __ATOMIC_RELAXED);
    else if (__atomic_add_fetch(&test_failed, 1, __ATOMIC_RELAXED) <= 50)
        printf("%s:%d: FAILED: %s (last error: %s)\n", file, line, what, llm_last_error());
    return ok;
}

static inline void test_skip(const char *why) {
    printf("skipped: %s\n", why);
    test_skipped++;
}

/* Under sanitizers, and where LLM_TEST_BRIEF is set (make check), what only takes long, and runs no code that other rows do not, is left out
 * or shortened. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TEST_BRIEF 1
#else
#define TEST_BRIEF (getenv("LLM_TEST_BRIEF") != NULL)
#endif

/* How much slower than usual things go: LLM_TEST_SLOW, as for the end-to-end tests. */
static inline double test_slow(void) { return getenv("LLM_TEST_SLOW") ? LLM__MAX(1, atof(getenv("LLM_TEST_SLOW"))) : 1; }

#define CHECK(condition) test_check(!!(condition), #condition, __FILE__, __LINE__)
#define SKIP(why) test_skip(why)

/* 1 if a file or folder is there. */
static inline int test_exists(const char *path) { return access(path, R_OK) == 0; }

/* The folder of a tiny checkpoint, a family of tests/data/checkpoints. */
#define TEST_CHECKPOINT(family) "build/checkpoints/" family

/* 1 if a file or folder that make has to make is there; else a failed row, which names the target. make check needs no network, so there
 * what wants the model is skipped without it. */
static inline int test_made(const char *path, const char *target) {
    if (test_exists(path)) return 1;
    const int skipped = TEST_BRIEF && !strcmp(target, "model");
    printf("%s: %s is not there: run make %s\n", skipped ? "skipped" : "FAILED", path, target);
    *(skipped ? &test_skipped : &test_failed) += 1;
    return 0;
}

typedef struct test_group {
    const char *name;
    void (*run)(void);
    struct test_group *next;
} test_group;

extern test_group *test_groups; /* by name */
void test_register(test_group *g);
int test_done(void); /* prints the last line; what main returns */

#define TEST_GROUP(NAME) \
    static void test_group_##NAME(void); \
    __attribute__((constructor)) static void test_register_##NAME(void) { \
        static test_group g = {#NAME, test_group_##NAME, NULL}; \
        test_register(&g); \
    } \
    static void test_group_##NAME(void)

#endif
