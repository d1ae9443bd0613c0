#include "base/alloc.h"
#include "api/linkage.h"
#include "api/backend.h"
#include "base/platform.h"

LLM__PRIVATE uint64_t llm__mul(uint64_t a, uint64_t b, int *ok) {
    if (b && a > (uint64_t)INT64_MAX / b) *ok = 0;
    return *ok ? a * b : 0;
}

LLM__PRIVATE uint64_t llm__add(uint64_t a, uint64_t b, int *ok) {
    if (a > (uint64_t)INT64_MAX || b > (uint64_t)INT64_MAX - a) *ok = 0;
    return *ok ? a + b : 0;
}

LLM__PRIVATE uint64_t llm__align_up(uint64_t a, uint64_t to, int *ok) { return llm__add(a, to - 1, ok) & ~(to - 1); }

LLM__PRIVATE void *llm__calloc(size_t count, size_t size) {
    int ok = 1;
    uint64_t n = llm__mul(count, size, &ok);
    if (!ok) return NULL;
    void *p = LLM_MALLOC(n ? (size_t)n : 1);
    if (p) memset(p, 0, n ? (size_t)n : 1);
    return p;
}

LLM__PRIVATE int llm__grow(void **array, size_t *cap, size_t need, size_t size) {
    if (need <= *cap) return 1;
    size_t n = LLM__MAX(need, LLM__MAX((size_t)8, *cap * 2));
    if (n > (size_t)INT64_MAX / size) return 0;
    void *p = LLM_REALLOC(*array, n * size);
    if (!p) return 0;
    *array = p;
    *cap = n;
    return 1;
}

LLM__PRIVATE char *llm__strndup(const char *s, size_t n) {
    char *p = (char *)LLM_MALLOC(n + 1);
    if (!p) return NULL;
    if (n) memcpy(p, s, n);
    p[n] = 0;
    return p;
}

LLM__PRIVATE char *llm__strdup(const char *s) { return s ? llm__strndup(s, strlen(s)) : NULL; }

LLM__PRIVATE void llm__drop(void *pointer) {
    void *p;
    memcpy(&p, pointer, sizeof p);
    LLM_FREE(p);
}

LLM__PRIVATE void *llm__arena_take(llm__arena *a, size_t n) {
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

LLM__PRIVATE void *llm__arena_get(llm__arena *a, size_t n) {
    void *p = llm__arena_take(a, n);
    if (p) memset(p, 0, n);
    return p;
}

LLM__PRIVATE void llm__arena_free(llm__arena *a) {
    for (llm__arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        LLM_FREE(b);
    }
    a->head = NULL;
    a->total = 0;
}

LLM__PRIVATE void *llm__pages_get(size_t bytes) {
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

LLM__PRIVATE void llm__pages_free(void *p, size_t bytes) {
    const size_t huge = (size_t)2 << 20;
    if (p) munmap(p, (bytes + huge - 1) & ~(huge - 1));
}

LLM_API int64_t llm_memory_free(void) {
    static const char *const files[][2] = {{"/proc/meminfo", "MemAvailable: %lld"},
                                           {"/sys/fs/cgroup/memory.max", "%lld"},
                                           {"/sys/fs/cgroup/memory.current", "%lld"},
                                           {"/proc/self/statm", "%lld"}};
    long long n[] = {-1, -1, -1, -1};
    struct rlimit limit; /* ulimit -v, of address space: what is mapped counts, used or not */
    char line[200];
    for (int i = 0; i < LLM__COUNT(files); i++) {
        FILE *f = fopen(files[i][0], "re");
        while (f && fgets(line, sizeof line, f) && sscanf(line, files[i][1], &n[i]) != 1) continue;
        if (f) fclose(f);
    }
    int64_t bytes = n[0] < 0 ? -1 : n[0] * 1024;
    if (n[3] >= 0 && !getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY) {
        const int64_t left = (int64_t)limit.rlim_cur - n[3] * (int64_t)sysconf(_SC_PAGESIZE);
        if (bytes < 0 || left < bytes) bytes = LLM__MAX(left, 0);
    }
    return n[1] >= 0 && n[2] >= 0 && (bytes < 0 || n[1] - n[2] < bytes) ? n[1] - n[2] : bytes;
}
