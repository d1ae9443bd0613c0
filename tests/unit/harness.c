/* The harness: counts, memory that fails, the list of groups. */
#include "test.h"

long test_allocations, test_live, test_fail_at;
int test_fail_on, test_passed, test_failed, test_skipped, test_argc;
char **test_argv;
test_group *test_groups;

static int memory_fails(void) {
    const long n = __atomic_add_fetch(&test_allocations, 1, __ATOMIC_RELAXED);
    return n == test_fail_at || (test_fail_on && test_fail_at && n > test_fail_at);
}

void *test_malloc(size_t n) {
    void *p = memory_fails() ? NULL : malloc(n);
    __atomic_add_fetch(&test_live, p != NULL, __ATOMIC_RELAXED);
    return p;
}

void *test_realloc(void *p, size_t n) {
    void *q = memory_fails() ? NULL : realloc(p, n);
    __atomic_add_fetch(&test_live, q && !p, __ATOMIC_RELAXED);
    return q;
}

void test_free(void *p) {
    __atomic_sub_fetch(&test_live, p != NULL, __ATOMIC_RELAXED);
    free(p);
}

void test_register(test_group *g) {
    test_group **at = &test_groups;
    while (*at && strcmp((*at)->name, g->name) < 0) at = &(*at)->next;
    g->next = *at;
    *at = g;
}

int test_done(void) {
    printf("%d passed, %d failed, %d skipped\n", test_passed, test_failed, test_skipped);
    return test_failed != 0;
}
