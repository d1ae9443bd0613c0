#include "base/index.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"

LLM__PRIVATE void llm__index_add(llm__index *x, llm__str s, int32_t value, llm_result *result) {
    if (!s.n) return;
    if (!llm__grow((void **)&x->v, &x->cap, x->n + 1, sizeof *x->v)) {
        *result = llm__nomem();
        return;
    }
    x->v[x->n].s = s;
    x->v[x->n++].value = value;
}

LLM__PRIVATE int llm__index_compare(const void *a, const void *b) {
    const llm__index_entry *x = (const llm__index_entry *)a, *y = (const llm__index_entry *)b;
    int order = llm__str_order(x->s, y->s);
    return order ? order : (x->value > y->value) - (x->value < y->value);
}

LLM__PRIVATE void llm__index_build(llm__index *x) {
    size_t n = 0;
    if (x->n > 1) qsort(x->v, x->n, sizeof *x->v, llm__index_compare);
    for (size_t i = 0; i < x->n; i++)
        if (!n || !llm__str_same(x->v[n - 1].s, x->v[i].s)) x->v[n++] = x->v[i];
    x->n = n;
    for (size_t i = 0, b = 0; b < 257; b++) {
        while (i < n && (uint8_t)x->v[i].s.p[0] < b) i++;
        x->first[b] = (uint32_t)i;
    }
}

LLM__PRIVATE int llm__index_step(const llm__index *x, size_t *lo, size_t *hi, size_t depth, uint8_t c) {
    size_t bound[2] = {x->first[c], x->first[c + 1]};
    for (int k = 0; depth && k < 2; k++) {
        size_t a = *lo, b = *hi;
        while (a < b) {
            size_t mid = (a + b) / 2;
            const llm__str *s = &x->v[mid].s;
            if (s->n == depth || (uint8_t)s->p[depth] < c + k) a = mid + 1;
            else b = mid;
        }
        bound[k] = a;
    }
    *lo = bound[0];
    *hi = bound[1];
    return *lo < *hi && x->v[*lo].s.n == depth + 1;
}

LLM__PRIVATE const llm__index_entry *llm__index_longest(const llm__index *x, llm__str s, size_t *steps) {
    size_t lo = 0, hi = x->n;
    const llm__index_entry *best = NULL;
    for (size_t i = 0; i < s.n && lo < hi; i++, ++*steps)
        if (llm__index_step(x, &lo, &hi, i, (uint8_t)s.p[i])) best = &x->v[lo];
    return best;
}
