/* ============================================================================
 * >>alloc   Memory.
 * ============================================================================
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

#if defined(LLM_MALLOC) && defined(LLM_REALLOC) && defined(LLM_FREE)
#elif !defined(LLM_MALLOC) && !defined(LLM_REALLOC) && !defined(LLM_FREE)
#define LLM_MALLOC(n) malloc(n)
#define LLM_REALLOC(p, n) realloc(p, n)
#define LLM_FREE(p) free(p)
#else
#error "llm.h: define all of LLM_MALLOC, LLM_REALLOC and LLM_FREE, or none"
#endif

/* A product or sum of sizes; 0 and *ok cleared if it does not fit 63 bits. */
LLM__UNUSED static uint64_t llm__mul(uint64_t a, uint64_t b, int *ok) {
    if (b && a > (uint64_t)INT64_MAX / b) *ok = 0;
    return *ok ? a * b : 0;
}

/* The sum, under the same rule. */
LLM__UNUSED static uint64_t llm__add(uint64_t a, uint64_t b, int *ok) {
    if (a > (uint64_t)INT64_MAX || b > (uint64_t)INT64_MAX - a) *ok = 0;
    return *ok ? a + b : 0;
}

/* Rounds up to a multiple of `to`, a power of two, under the same rule. */
LLM__UNUSED static uint64_t llm__align_up(uint64_t a, uint64_t to, int *ok) {
    return llm__add(a, to - 1, ok) & ~(to - 1);
}

/* count * size bytes, zeroed; NULL if there is no memory or the product is too large. */
static void *llm__calloc(size_t count, size_t size) {
    int ok = 1;
    uint64_t n = llm__mul(count, size, &ok);
    if (!ok) return NULL;
    void *p = LLM_MALLOC(n ? (size_t)n : 1);
    if (p) memset(p, 0, n ? (size_t)n : 1);
    return p;
}

#define LLM__NEW(type, count) ((type *)llm__calloc((size_t)(count), sizeof(type)))

/* Grows an array to hold at least `need` elements of `size` bytes. Its capacity doubles, so that n additions copy O(n) elements in all. 0
 * if there is no memory: the array stays as it was. */
static int llm__grow(void **array, size_t *cap, size_t need, size_t size) {
    if (need <= *cap) return 1;
    size_t n = LLM__MAX(need, LLM__MAX((size_t)8, *cap * 2));
    if (n > (size_t)INT64_MAX / size) return 0;
    void *p = LLM_REALLOC(*array, n * size);
    if (!p) return 0;
    *array = p;
    *cap = n;
    return 1;
}

/* n bytes as a NUL-terminated string of its own, or NULL without memory. */
static char *llm__strndup(const char *s, size_t n) {
    char *p = (char *)LLM_MALLOC(n + 1);
    if (!p) return NULL;
    if (n) memcpy(p, s, n);
    p[n] = 0;
    return p;
}

LLM__UNUSED static char *llm__strdup(const char *s) { return s ? llm__strndup(s, strlen(s)) : NULL; }

/* For LLM__SCOPED: frees what a pointer of any type points to. */
static void llm__drop(void *pointer) {
    void *p;
    memcpy(&p, pointer, sizeof p);
    LLM_FREE(p);
}

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

/* n bytes aligned to 8, as they come; NULL without memory or over the limit. Where they fill system pages of their own, those that are never
 * written are never taken. */
LLM__UNUSED static void *llm__arena_take(llm__arena *a, size_t n) {
    n = (n + 7) & ~(size_t)7;
    llm__arena_block *b = a->head;
    if (!b || b->cap - b->used < n) {
        size_t cap = LLM__MAX(n, b ? LLM__MIN(b->cap * 2, (size_t)1 << 20) : 4096), left = a->limit ? a->limit - a->total : SIZE_MAX;
        if (cap > left) cap = n; /* near the limit no room is taken in advance */
        b = cap > left ? NULL : (llm__arena_block *)LLM_MALLOC(sizeof *b + cap);
        if (!b) a->failed = 1;
        if (!b) return NULL;
        b->next = a->head;
        b->used = 0;
        b->cap = cap;
        a->head = b;
        a->total += cap;
    }
    b->used += n;
    return (char *)b->bytes + b->used - n;
}

/* n zeroed bytes, else the same. */
LLM__UNUSED static void *llm__arena_get(llm__arena *a, size_t n) {
    void *p = llm__arena_take(a, n);
    if (p) memset(p, 0, n);
    return p;
}

/* Frees everything the arena gave; it may be used again. */
LLM__UNUSED static void llm__arena_free(llm__arena *a) {
    for (llm__arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        LLM_FREE(b);
    }
    a->head = NULL;
    a->total = 0;
}

/* Whole zeroed pages, aligned to 2 MiB so that huge pages can back them. NULL if there is no memory. mmap aligns to 4 KiB only, so 2 MiB
 * more are mapped and what stands out at both ends is given back. Pages that are never touched cost nothing: a page is taken when written. */
LLM__UNUSED static void *llm__pages_get(size_t bytes) {
    const size_t huge = (size_t)2 << 20;
    if (bytes > (size_t)INT64_MAX - 2 * huge) return NULL;
    size_t span = (bytes + huge - 1) & ~(huge - 1);
    char *p = (char *)mmap(NULL, span + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == (char *)MAP_FAILED) return NULL;
    size_t skip = (huge - ((uintptr_t)p & (huge - 1))) & (huge - 1);
    if (skip) munmap(p, skip);
    munmap(p + skip + span, huge - skip);
#ifdef MADV_HUGEPAGE
    if (span >= 2 * huge) madvise(p + skip, span, MADV_HUGEPAGE);
#endif
    return p + skip;
}

/* Gives back what llm__pages_get gave for the same number of bytes. */
LLM__UNUSED static void llm__pages_free(void *p, size_t bytes) {
    const size_t huge = (size_t)2 << 20;
    if (p) munmap(p, (bytes + huge - 1) & ~(huge - 1));
}

LLM_API int64_t llm_memory_free(void) {
    static const char *const files[][2] = {{"/proc/meminfo", "MemAvailable: %lld"}, {"/sys/fs/cgroup/memory.max", "%lld"},
                                           {"/sys/fs/cgroup/memory.current", "%lld"}};
    long long n[] = {-1, -1, -1};
    char line[200];
    for (int i = 0; i < LLM__COUNT(files); i++) {
        FILE *f = fopen(files[i][0], "re");
        while (f && fgets(line, sizeof line, f) && sscanf(line, files[i][1], &n[i]) != 1) continue;
        if (f) fclose(f);
    }
    const int64_t bytes = n[0] < 0 ? -1 : n[0] * 1024;
    return n[1] >= 0 && n[2] >= 0 && (bytes < 0 || n[1] - n[2] < bytes) ? n[1] - n[2] : bytes;
}
