/* peak: what this machine can do at most, measured. */
#include "api/linkage.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/threads.h"
#include "cpu/isa.h"
#include "cpu/kernels.h"

LLM_API double llm_isa_peak(const char *name) {
    double best = 0;
    llm__isa isa;
    if (llm__isa_find(name, &isa)) return 0;
    double (*const peak)(int64_t turns) = llm__kernels_of(isa)->peak;
    for (int i = 0; i < 20 && peak; i++) best = LLM__MAX(best, peak(100000));
    return best;
}

/* Reads a part: looks for a byte that is not there. */
static void llm__read_part(void *memory, int pass, int part, int n_parts) {
    const size_t n = ((size_t)1 << 30) / (size_t)n_parts;
    char *found = (char *)memchr((char *)memory + n * (size_t)part, 1, n);
    if (found) *found = (char)pass; /* never, but the compiler cannot know */
}

LLM_API double llm_memory_peak(int32_t n_threads) {
    const size_t bytes = (size_t)1 << 30;
    const int64_t have = llm_memory_free();
    void *memory = n_threads < 1 || (have >= 0 && have < (int64_t)bytes + (64 << 20)) ? NULL : llm__pages_get(bytes);
    llm__pool *pool = memory ? llm__pool_open(n_threads) : NULL;
    double best = 0;
    if (pool) memset(memory, 2, bytes); /* pages that nobody has written are all the same one */
    for (int i = 0; i < 4 && pool; i++) {
        double begin = llm__now();
        llm__pool_run(pool, llm__read_part, memory, 1);
        best = LLM__MAX(best, 1e-9 * (double)bytes / (llm__now() - begin));
    }
    llm__pool_close(pool);
    llm__pages_free(memory, bytes);
    return best;
}
