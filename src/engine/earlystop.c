#include "engine/earlystop.h"
#include "api/sampler.h"
#include "base/platform.h"

LLM__PRIVATE llm_early_stop llm__early_resolve(const llm_early_stop *own, const llm_early_stop *engine) {
    llm_early_stop e = own->enable ? *own : *engine;
    e.enable = e.enable > 0;
    if (!e.window_size) {
        e.window_size = 3000;
        e.threshold = 0.99f;
    }
    return e;
}

LLM__PRIVATE int llm__early_hit(const llm_early_stop *e, int32_t *count, float prob) {
    if (!e->enable) return 0;
    *count = prob > e->threshold ? *count + 1 : 0;
    if (*count < e->window_size) return 0;
    *count = 0;
    return 1;
}

LLM__PRIVATE int llm__repeats(const llm_repetition_detection *d, const int32_t *ids, int32_t n) {
    for (int32_t size = LLM__MAX(d->min_pattern_size, 1); size <= d->max_pattern_size && (int64_t)size * d->min_count <= n; size++) {
        const int32_t *at = ids + n, *from = at - (int64_t)size * (d->min_count - 1);
        while (at > from && at[-1] == at[-1 - size]) at--;
        if (at == from) return 1;
    }
    return 0;
}
