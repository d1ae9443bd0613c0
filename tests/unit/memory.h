/* The memory of the library in unit tests: counted, and made to fail; and what the library takes for granted, looked at. Included in front of
 * every part (-include). */
#ifndef TEST_MEMORY_H
#define TEST_MEMORY_H
#include <stddef.h>
#include <stdlib.h>

extern long test_allocations; /* so far, of all threads */
extern long test_live;        /* of these, not freed yet */
extern long test_fail_at;     /* the number of the allocation that fails; 0: none does */
extern int test_fail_on;      /* 1: so do all behind it */
void *test_malloc(size_t n);
void *test_realloc(void *p, size_t n);
void test_free(void *p);

#define LLM_MALLOC(n) test_malloc(n)
#define LLM_REALLOC(p, n) test_realloc(p, n)
#define LLM_FREE(p) test_free(p)
#define LLM_ASSERT(condition) ((condition) ? (void)0 : __builtin_trap())
#endif
