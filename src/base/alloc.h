/* alloc: memory: small things, arenas, whole pages; sizes that are checked.
 *
 * Three kinds of memory, by how long they live:
 *
 * - Small things come from LLM_MALLOC, LLM_REALLOC and LLM_FREE, which a program may define (all three or none). Arrays grow by llm__grow.
 * - What dies together (a parse tree, the values of a render) lives in an arena: getting is moving a pointer, freeing is one walk over a
 *   few blocks. Its byte limit is what bounds hostile input.
 * - Weights, KV pages and activations are whole pages from the system, in huge pages where it gives them: a weight matrix of 100 MB is
 *   25,000 pages of 4 KB, more than any TLB holds, but 50 of 2 MB.
 *
 * Sizes that come from files are added and multiplied only by the checked helpers. They share one flag: a whole computation is written down
 * and `ok` is looked at once, at its end. Every function here says by NULL or 0 that there is no memory; nothing aborts. */
#pragma once
#include "base/platform.h"

#if defined(LLM_MALLOC) && defined(LLM_REALLOC) && defined(LLM_FREE)
#elif !defined(LLM_MALLOC) && !defined(LLM_REALLOC) && !defined(LLM_FREE)
#define LLM_MALLOC(n) malloc(n)
#define LLM_REALLOC(p, n) realloc(p, n)
#define LLM_FREE(p) free(p)
#else
#error "llm.h: define all of LLM_MALLOC, LLM_REALLOC and LLM_FREE, or none"
#endif

/* A product or sum of sizes; 0 and *ok cleared if it does not fit 63 bits. */
LLM__PRIVATE uint64_t llm__mul(uint64_t a, uint64_t b, int *ok);

/* The sum, under the same rule. */
LLM__PRIVATE uint64_t llm__add(uint64_t a, uint64_t b, int *ok);

/* Rounds up to a multiple of `to`, a power of two, under the same rule. */
LLM__PRIVATE uint64_t llm__align_up(uint64_t a, uint64_t to, int *ok);

/* count * size bytes, zeroed; NULL if there is no memory or the product is too large. */
LLM__PRIVATE void *llm__calloc(size_t count, size_t size);

#define LLM__NEW(type, count) ((type *)llm__calloc((size_t)(count), sizeof(type)))

/* Grows an array to hold at least `need` elements of `size` bytes. Its capacity doubles, so that n additions copy O(n) elements in all. 0
 * if there is no memory: the array stays as it was. */
LLM__PRIVATE int llm__grow(void **array, size_t *cap, size_t need, size_t size);

/* n bytes as a NUL-terminated string of its own, or NULL without memory. */
LLM__PRIVATE char *llm__strndup(const char *s, size_t n);

LLM__PRIVATE char *llm__strdup(const char *s);

/* For LLM__SCOPED: frees what a pointer of any type points to. */
LLM__PRIVATE void llm__drop(void *pointer);

/* Memory that is freed all at once. Zero-initialise; `limit` 0 means none. Blocks begin at 4 KB and double up to 1 MB, so small arenas are
 * small and large ones need few calls; what does not fit into the newest block gets a new one. */
typedef struct llm__arena_block {
    struct llm__arena_block *next;
    size_t used, cap;
    uint64_t bytes[1]; /* starts here, aligned to 8 */
} llm__arena_block;

typedef struct llm__arena {
    llm__arena_block *head;
    size_t total, limit;
    int failed; /* something could not be given: who takes many arrays looks once */
} llm__arena;

/* n bytes aligned to 8, as they come; NULL without memory or over the limit. Where they fill system pages of their own, those that are
 * never written are never taken. */
LLM__PRIVATE void *llm__arena_take(llm__arena *a, size_t n);

/* n zeroed bytes, else the same. */
LLM__PRIVATE void *llm__arena_get(llm__arena *a, size_t n);

/* Frees everything the arena gave; it may be used again. */
LLM__PRIVATE void llm__arena_free(llm__arena *a);

/* Whole zeroed pages, aligned to 2 MiB so that huge pages can back them. NULL if there is no memory. mmap aligns to 4 KiB only, so 2 MiB
 * more are mapped and what stands out at both ends is given back. Pages that are never touched cost nothing: a page is taken when
 * written. */
LLM__PRIVATE void *llm__pages_get(size_t bytes);

/* Gives back what llm__pages_get gave for the same number of bytes. */
LLM__PRIVATE void llm__pages_free(void *p, size_t bytes);
