#include "vision/resize.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "vision/picture.h"

static double llm__sinc(double x) { return x == 0 ? 1 : sin(x * 3.14159265358979323846) / (x * 3.14159265358979323846); }

/* How far a filter reaches, and its value there. */
static double llm__filter_reach(llm__filter f) {
    return f == LLM__FILTER_LANCZOS ? 3 : f == LLM__FILTER_BICUBIC ? 2 : f == LLM__FILTER_BOX ? 0.5 : 1;
}

static double llm__filter_at(llm__filter f, double x) {
    const double a = -0.5, d = fabs(x); /* a: of the cubic, Pillow's choice (Keys 1981) */
    switch (f) {
    case LLM__FILTER_LANCZOS: return x >= -3 && x < 3 ? llm__sinc(x) * llm__sinc(x / 3) : 0;
    case LLM__FILTER_BICUBIC: return d < 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : d < 2 ? (((d - 5) * d + 8) * d - 4) * a : 0;
    case LLM__FILTER_BOX: return x > -0.5 && x <= 0.5;
    case LLM__FILTER_HAMMING: return d >= 1 ? 0 : llm__sinc(d) * ((double)0.54f + (double)0.46f * cos(d * 3.14159265358979323846));
    default: return d < 1 ? 1 - d : 0;
    }
}

/* What one axis of the result is made of: pixel i of `n` source pixels from `from` on, weighed. */
typedef struct llm__taps {
    int32_t *from, *n; /* (out) */
    int32_t *weight;   /* (out, most) in units of 2^-22 */
    int32_t most;
    void *memory;
} llm__taps;

enum { LLM__TAP_BITS = 22 };

static llm_result llm__taps_make(int32_t in, int32_t out, llm__filter f, llm__taps *t) {
    const double scale = (double)in / out, stretch = LLM__MAX(scale, 1), reach = llm__filter_reach(f) * stretch;
    int ok = 1;
    t->most = (int32_t)ceil(reach) * 2 + 1;
    const uint64_t size = llm__mul((uint64_t)out, (uint64_t)t->most + 2, &ok);
    double *w = LLM__NEW(double, t->most);
    t->memory = w && ok ? llm__calloc((size_t)size, sizeof(int32_t)) : NULL;
    t->from = (int32_t *)t->memory;
    for (int32_t i = 0; i < out && t->memory; i++) {
        const double centre = (i + 0.5) * scale;
        const int32_t from = LLM__MAX((int32_t)(centre - reach + 0.5), 0), to = LLM__MIN((int32_t)(centre + reach + 0.5), in);
        double sum = 0;
        t->n = t->from + out;
        t->weight = t->n + out;
        t->from[i] = from;
        t->n[i] = to - from;
        for (int32_t x = 0; x < to - from; x++) sum += w[x] = llm__filter_at(f, (x + from - centre + 0.5) * (1 / stretch));
        for (int32_t x = 0; x < to - from; x++) {
            const double v = (sum != 0 ? w[x] / sum : w[x]) * (1 << LLM__TAP_BITS);
            t->weight[(int64_t)i * t->most + x] = (int32_t)(v < 0 ? v - 0.5 : v + 0.5);
        }
    }
    LLM_FREE(w);
    return t->memory ? LLM_OK : llm__nomem();
}

static uint8_t llm__tap_round(int32_t sum) {
    const int32_t v = sum >> LLM__TAP_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* Rows of src become `w` pixels wide. */
static void llm__resize_rows(const llm__picture *src, const llm__taps *t, llm__picture *out) {
    for (int32_t y = 0; y < out->h; y++) {
        const uint8_t *row = src->rgb + (size_t)y * (size_t)src->w * 3;
        uint8_t *to = out->rgb + (size_t)y * (size_t)out->w * 3;
        for (int32_t i = 0; i < out->w; i++, to += 3) {
            const int32_t *weight = t->weight + (int64_t)i * t->most;
            const uint8_t *p = row + (size_t)t->from[i] * 3;
            int32_t r = 1 << (LLM__TAP_BITS - 1), g = r, b = r;
            for (int32_t x = 0; x < t->n[i]; x++, p += 3) r += p[0] * weight[x], g += p[1] * weight[x], b += p[2] * weight[x];
            to[0] = llm__tap_round(r);
            to[1] = llm__tap_round(g);
            to[2] = llm__tap_round(b);
        }
    }
}

/* Columns of src become `h` pixels high: a row of sums at a time, `sums` (3 w). */
static void llm__resize_columns(const llm__picture *src, const llm__taps *t, int32_t *sums, llm__picture *out) {
    const int32_t n = out->w * 3;
    for (int32_t i = 0; i < out->h; i++) {
        for (int32_t x = 0; x < n; x++) sums[x] = 1 << (LLM__TAP_BITS - 1);
        for (int32_t y = 0; y < t->n[i]; y++) {
            const int32_t weight = t->weight[(int64_t)i * t->most + y];
            const uint8_t *row = src->rgb + (size_t)(t->from[i] + y) * (size_t)n;
            for (int32_t x = 0; x < n; x++) sums[x] += row[x] * weight;
        }
        for (int32_t x = 0; x < n; x++) out->rgb[(size_t)i * (size_t)n + (size_t)x] = llm__tap_round(sums[x]);
    }
}

/* One axis: across, then down. */
static llm_result llm__resize_axis(const llm__picture *src, int32_t size, int down, llm__filter f, llm__picture *out) {
    llm__taps t = LLM__ZERO;
    LLM__SCOPED(llm__drop) int32_t *sums = down ? LLM__NEW(int32_t, src->w * 3) : NULL;
    if (down && !sums) return llm__nomem();
    llm_result r = llm__taps_make(down ? src->h : src->w, size, f, &t);
    if (!r && !llm__picture_new(down ? src->w : size, down ? size : src->h, out)) r = LLM_ERR_NOMEM;
    if (!r && down) llm__resize_columns(src, &t, sums, out);
    else if (!r) llm__resize_rows(src, &t, out);
    LLM_FREE(t.memory);
    return r;
}

LLM__PRIVATE llm_result llm__resize(const llm__picture *src, int32_t w, int32_t h, llm__filter filter, llm__picture *out) {
    LLM__SCOPED(llm__picture_free) llm__picture half = LLM__ZERO;
    const int first = src->h > h && src->h - h > 2 * (src->w - w); /* which axis: Pillow's own rule, found by trial */
    if (w == src->w && h == src->h) return llm__picture_cut(src, 0, 0, w, h, out);
    if (w == src->w || h == src->h) return llm__resize_axis(src, w == src->w ? h : w, w == src->w, filter, out);
    llm_result r = llm__resize_axis(src, first ? h : w, first, filter, &half);
    return r ? r : llm__resize_axis(&half, first ? w : h, !first, filter, out);
}
