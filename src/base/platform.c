#include "base/platform.h"
#include "api/linkage.h"
#include "api/config.h"

LLM__PRIVATE double llm__now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
LLM_API double llm_now(void) { return llm__now(); }

LLM__PRIVATE double llm__wall_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

LLM__PRIVATE void llm__random_bytes(void *out, size_t n) {
    if (!getentropy(out, n)) return;
    uint64_t x = (uint64_t)(llm__wall_clock() * 1e6) ^ (uint64_t)(uintptr_t)out; /* a system without a source: still different */
    for (size_t i = 0; i < n; i++) ((uint8_t *)out)[i] = (uint8_t)((x = x * 0x9E3779B97F4A7C15u + 1) >> 56);
}

/* The kernel's own call: the C library's has a type for the set that only GNU's declarations show. */
LLM__PRIVATE int llm__cores(void) {
    unsigned long set[128]; /* 8,192 cores */
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof set, set);
    int n = 0;
    for (long i = 0; i < bytes / (long)sizeof *set; i++) n += __builtin_popcountl(set[i]);
    return n ? n : (int)LLM__MAX(1, sysconf(_SC_NPROCESSORS_ONLN));
}

LLM__PRIVATE int64_t llm__memory_all(void) { return (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE); }

#ifdef SYS_arch_prctl
LLM__PRIVATE LLM__UNUSED int llm__ask_for_tiles(void) {
    return !syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */);
}
#endif
