/* The sampler beside one look at its logits: top-k 40, top-p 0.95, min-p 0.05 over 262,144 logits, against the plain loop for the maximum, and
 * the vector kernel's. Best of many runs, microseconds.
 *     cc -O2 tests/bench/bench_sampler.c -o build/bench_sampler -lm -lpthread && build/bench_sampler */
#define _GNU_SOURCE
#define LLM_IMPLEMENTATION
#include "../../llm.h"

enum { N = 262144 };

static float plain_max(const float *x, int n) {
    float top = x[0];
    for (int i = 1; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}

int main(void) {
    float *x = (float *)llm__pages_get(N * sizeof *x), seen = 0;
    double best[4] = {1, 1, 1, 1};
    llm__isa isa;
    llm__scratch k;
    llm__rules r;
    llm_sampling s;
    llm__arena memory;
    memset(&memory, 0, sizeof memory);
    memset(&r, 0, sizeof r);
    memset(&s, 0, sizeof s);
    s.temperature = 0.8f;
    r.s = &s;
    if (llm__isa_find(NULL, &isa) || !llm__scratch_open(&k, N, NULL, &memory)) return 1;
    uint64_t state = 1;
    for (int i = 0; i < N; i++) { /* a sum of four even numbers: nearly a bell, of width 3 */
        float sum = 0;
        for (int j = 0; j < 4; j++)
            state = state * 6364136223846793005u + 1442695040888963407u, sum += (float)(state >> 40) / 16777216.0f - 0.5f;
        x[i] = 5.2f * sum;
    }
    for (int i = 0; i < 300; i++) {
        int bad = 0;
        double t[5];
        t[0] = llm__now();
        seen += plain_max(x, N);
        t[1] = llm__now();
        seen += llm__kernels_of(isa)->top(x, N, &bad);
        t[2] = llm__now();
        s.top_k = 40, s.top_p = 0.95f, s.min_p = 0.05f;
        seen += (float)llm__choose(x, N, &r, 7, i, &k).id;
        t[3] = llm__now();
        s.top_k = 0, s.top_p = 0.95f, s.min_p = 0;
        seen += (float)llm__choose(x, N, &r, 7, i, &k).id;
        t[4] = llm__now();
        for (int j = 0; j < 4; j++) best[j] = LLM__MIN(best[j], t[j + 1] - t[j]);
    }
    printf(
        "plain maximum %.1f us, vector maximum %.1f us; top-k 40 + top-p 0.95 + min-p 0.05: %.1f us, %.2f of the plain one and %.2f of the vector's; top-p alone %.1f us (%g)\n",
        best[0] * 1e6, best[1] * 1e6, best[2] * 1e6, best[2] / best[0], best[2] / best[1], best[3] * 1e6, (double)seen);
    return 0;
}
