#include "vision/fit.h"
#include "api/config.h"
#include "api/media.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "vision/picture.h"
#include "vision/resize.h"
#include "vision/tower_kinds.h"
#include "vision/vision.h"

/* Python's round: halves go to the even neighbour. */
static int64_t llm__round_even(double x) {
    const double low = floor(x), rest = x - low;
    return (int64_t)low + (rest > 0.5 || (rest == 0.5 && (int64_t)low % 2));
}

/* Adds a view; takes the pixels over. */
static llm_result llm__view_add(llm_media *m, llm__picture *first, llm__picture *second) {
    size_t cap = (size_t)m->cap;
    const int32_t patch = m->vision->patch;
    int ok = llm__grow((void **)&m->view, &cap, (size_t)m->n_views + 1, sizeof *m->view);
    m->cap = (int32_t)cap;
    if (ok) {
        llm__media_view *view = &m->view[m->n_views++];
        memset(view, 0, sizeof *view);
        view->pixels[0] = *first;
        if (second) view->pixels[1] = *second;
        view->rows = first->h / patch;
        view->cols = first->w / patch;
        first->rgb = NULL;
        if (second) second->rgb = NULL;
    }
    llm__picture_free(first);
    if (second) llm__picture_free(second);
    return ok ? LLM_OK : llm__nomem();
}

/* Adds a view of a picture resized to w x h. */
static llm_result llm__view_resized(llm_media *m, const llm__picture *p, int32_t w, int32_t h) {
    llm__picture to = LLM__ZERO;
    llm_result r = llm__resize(p, w, h, m->processor.filter, &to);
    return r ? r : llm__view_add(m, &to, NULL);
}

/* Adds the tiles of a picture, rows of them from above. */
static llm_result llm__view_tiles(llm_media *m, const llm__picture *p, int32_t w, int32_t h) {
    llm_result r = LLM_OK;
    for (int32_t y = 0; y < p->h && !r; y += h)
        for (int32_t x = 0; x < p->w && !r; x += w) {
            llm__picture tile = LLM__ZERO;
            r = llm__picture_cut(p, x, y, w, h, &tile);
            if (!r) r = llm__view_add(m, &tile, NULL);
        }
    return r;
}

/* A picture in the middle of a square of the mean colour. */
static llm_result llm__squared(const llm_media *m, const llm__picture *p, llm__picture *square) {
    const int32_t side = LLM__MAX(p->w, p->h);
    llm_result r = llm__picture_size(side, side);
    if (r) return r;
    if (!llm__picture_new(side, side, square)) return LLM_ERR_NOMEM;
    for (size_t i = 0; i < (size_t)side * (size_t)side * 3; i++) square->rgb[i] = (uint8_t)(255 * m->processor.mean[i % 3]);
    llm__picture_paste(square, p, (side - p->w) / 2, (side - p->h) / 2);
    return LLM_OK;
}

/* The shorter side to a length, then the middle. */
static llm_result llm__fit_crop(llm_media *m, const llm__picture *p) {
    const llm__processor *how = &m->processor;
    LLM__SCOPED(llm__picture_free) llm__picture to = LLM__ZERO, square = LLM__ZERO;
    llm__picture middle = LLM__ZERO;
    llm_result r = how->pad ? llm__squared(m, p, &square) : LLM_OK;
    if (r) return r;
    if (how->pad) p = &square;
    const int tall = p->h > p->w;
    const int32_t other = (int32_t)((double)how->shortest * (tall ? p->h : p->w) / (tall ? p->w : p->h)), S = how->size;
    if (!how->crop) return llm__view_resized(m, p, S, S);
    if (other > LLM__MAX_SIDE || (int64_t)other * how->shortest > LLM__MAX_PIXELS)
        return llm__error(LLM_ERR_LIMIT, "a picture of %d x %d pixels is too long for a model that sees squares", p->w, p->h);
    r = llm__resize(p, tall ? how->shortest : other, tall ? other : how->shortest, how->filter, &to);
    if (!r) r = llm__picture_cut(&to, (to.w - S) / 2, (to.h - S) / 2, S, S, &middle);
    return r ? r : llm__view_add(m, &middle, NULL);
}

/* How many crops a picture whose longer side is `longer` is cut into; 0: none, because it is not long, or they would be small. */
static int32_t llm__pan_crops(const llm__processor *how, int32_t longer, int32_t shorter) {
    const double ratio = (double)longer / shorter;
    if (!how->pan || ratio < how->pan_ratio) return 0;
    const int32_t fitting = (int32_t)LLM__MIN(longer / how->pan_least, floor(ratio + 0.5));
    const int32_t n = LLM__MIN(LLM__MAX(fitting, 2), how->pan_most), side = (longer + n - 1) / n;
    return LLM__MIN(side, shorter) < how->pan_least ? 0 : n;
}

/* All of it squeezed into a square; then, of a long one with do_pan_and_scan, pieces of it along its longer side. */
static llm_result llm__fit_square(llm_media *m, const llm__picture *p) {
    const int32_t S = m->processor.size, wide = p->w >= p->h, longer = LLM__MAX(p->w, p->h);
    const int32_t n = llm__pan_crops(&m->processor, longer, LLM__MIN(p->w, p->h)), step = n ? (longer + n - 1) / n : longer;
    llm_result r = llm__view_resized(m, p, S, S);
    for (int32_t at = 0; n && at < longer && !r; at += step) {
        LLM__SCOPED(llm__picture_free) llm__picture crop = LLM__ZERO;
        const int32_t side = LLM__MIN(step, longer - at);
        r = llm__picture_cut(p, wide ? at : 0, wide ? 0 : at, wide ? side : p->w, wide ? p->h : side, &crop);
        if (!r) r = llm__view_resized(m, &crop, S, S);
    }
    m->grid_rows = n && !wide ? m->n_views - 1 : n > 0;
    m->grid_cols = n && wide ? m->n_views - 1 : n > 0;
    return r;
}

LLM__PRIVATE llm_result llm__fit_blocks(int64_t h, int64_t w, int64_t frames, int64_t factor, int64_t least, int64_t most, int any,
                                        int32_t out[2]) {
    if (!any && LLM__MAX(h, w) > 200 * LLM__MIN(h, w))
        return llm__error(LLM_ERR_ARG, "a picture of %lld x %lld pixels: one side may be 200 times as long as the other at most",
                          (long long)w, (long long)h);
    /* frames count in whole pairs for the bounds, and as they are for what is to be done: Qwen3-VL's way */
    const double f = (double)factor, area = (double)h * (double)w * (double)frames,
                 whole = frames > 1 ? 2 * (double)llm__round_even((double)frames / 2) : 1;
    double hf = (double)llm__round_even((double)h / f) * f, wf = (double)llm__round_even((double)w / f) * f;
    if (any) hf = LLM__MAX(hf, f), wf = LLM__MAX(wf, f);
    if (hf * wf * whole > (double)most) {
        const double by = sqrt(area / (double)most);
        hf = LLM__MAX(f, floor((double)h / by / f) * f);
        wf = LLM__MAX(f, floor((double)w / by / f) * f);
    } else if (hf * wf * whole < (double)least) {
        const double by = sqrt((double)least / area);
        hf = ceil((double)h * by / f) * f;
        wf = ceil((double)w * by / f) * f;
    }
    const double longest = LLM__MAX_SIDE, all = LLM__MAX_PIXELS;
    if (!(hf >= 1 && wf >= 1 && hf <= longest && wf <= longest && hf * wf <= all))
        return llm__error(LLM_ERR_LIMIT, "a picture of %lld x %lld pixels would become one of %.0f x %.0f", (long long)w, (long long)h, wf,
                          hf);
    out[0] = (int32_t)hf;
    out[1] = (int32_t)wf;
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__fit_film(const llm__vision *v, const llm__processor *p, int64_t h, int64_t w, int64_t taken, int32_t out[2]) {
    const int64_t factor = (int64_t)v->patch * v->merge;
    const int together = (v->family->flags & LLM__EYES_TIMES) != 0;
    if (together && (h < factor || w < factor)) { /* grows until its shorter side is a block */
        const double by = LLM__MAX((double)factor / (double)h, (double)factor / (double)w);
        h = (int64_t)((double)h * by), w = (int64_t)((double)w * by);
    }
    return llm__fit_blocks(h, w, together ? LLM__MAX(taken, 2) : 1, factor, p->min_pixels, p->max_pixels, 0, out);
}

/* Its own shape in whole blocks. */
static llm_result llm__fit_patches(llm_media *m, const llm__picture *p) {
    const llm__vision *v = m->vision;
    const llm__processor *how = &m->processor;
    const int64_t unit = (int64_t)v->patch * v->merge;
    int64_t h = p->h, w = p->w;
    int32_t to[2];
    if (v->family->flags & LLM__EYES_GROWS && h < unit) w = llm__round_even((double)(w * unit) / (double)h), h = unit;
    if (v->family->flags & LLM__EYES_GROWS && w < unit) h = llm__round_even((double)(h * unit) / (double)w), w = unit;
    llm_result r = v->family->flags & LLM__EYES_DOUBLE ? llm__fit_film(v, how, h, w, 2, to)
                                                       : llm__fit_blocks(h, w, 1, unit, how->min_pixels, how->max_pixels, 0, to);
    return r ? r : llm__view_resized(m, p, to[1], to[0]);
}

/* Its own shape, the longest side bounded, sides up to whole blocks. */
static llm_result llm__fit_edge(llm_media *m, const llm__picture *p) {
    const int32_t block = m->vision->patch * m->vision->merge, longest = m->processor.longest;
    const double ratio = LLM__MAX((double)p->h / longest, (double)p->w / longest);
    double h = p->h, w = p->w;
    if (ratio > 1) h = LLM__MAX(floor(h / ratio), 1), w = LLM__MAX(floor(w / ratio), 1);
    const int32_t rows = ((int32_t)h - 1) / block + 1, cols = ((int32_t)w - 1) / block + 1;
    return llm__view_resized(m, p, cols * block, rows * block);
}

/* Its own shape, smaller where it has more patches than the limit, on black up to whole blocks. */
static llm_result llm__fit_limit(llm_media *m, const llm__picture *p) {
    enum { MOST = 512 }; /* places that the tower knows a side */
    const int32_t patch = m->vision->patch, block = patch * m->vision->merge;
    const double n = (double)(p->w / patch) * (p->h / patch), by = sqrt(m->processor.limit / n);
    LLM__SCOPED(llm__picture_free) llm__picture smaller = LLM__ZERO;
    llm__picture canvas = LLM__ZERO;
    llm_result r = LLM_OK;
    if (n > m->processor.limit) {
        r = llm__resize(p, LLM__MAX((int32_t)(p->w * by), 1), LLM__MAX((int32_t)(p->h * by), 1), m->processor.filter, &smaller);
        p = &smaller;
    }
    if (r) return r;
    const int32_t w = (p->w + block - 1) / block * block, h = (p->h + block - 1) / block * block;
    if (w / patch >= MOST || h / patch >= MOST)
        return llm__error(LLM_ERR_LIMIT, "a picture of %d x %d patches, fewer than %d a side were expected", w / patch, h / patch, MOST);
    if (!llm__picture_new(w, h, &canvas)) return LLM_ERR_NOMEM;
    llm__picture_paste(&canvas, p, 0, 0);
    return llm__view_add(m, &canvas, NULL);
}

/* Its own shape, as many patches as may be: the largest size in whole blocks, which a small picture grows to. */
static llm_result llm__fit_budget(llm_media *m, const llm__picture *p) {
    const llm__vision *v = m->vision;
    const int32_t block = v->patch * v->merge, limit = m->processor.limit;
    const double area = (double)limit * block * block, by = sqrt(area / ((double)p->w * p->h));
    double w = floor(by * p->w / block) * block, h = floor(by * p->h / block) * block;
    if (w < 1 && h >= 1) w = block, h = LLM__MIN(floor((double)p->h / p->w), (double)limit) * block;
    else if (h < 1 && w >= 1) h = block, w = LLM__MIN(floor((double)p->w / p->h), (double)limit) * block;
    if (w < 1 || h < 1 || w * h > area || LLM__MAX(w, h) / v->patch > v->side)
        return llm__error(LLM_ERR_LIMIT, "a picture of %d x %d pixels would become one of %.0f x %.0f, of %d patches a side at most", p->w,
                          p->h, w, h, (int)v->side);
    llm_result r = llm__picture_size((int64_t)w, (int64_t)h);
    return r ? r : llm__view_resized(m, p, (int32_t)w, (int32_t)h);
}

/* Tiles of T after two resizings, then the whole. */
static llm_result llm__fit_split(llm_media *m, const llm__picture *p) {
    const int32_t T = m->processor.size, longest = m->processor.longest;
    LLM__SCOPED(llm__picture_free) llm__picture first = LLM__ZERO, second = LLM__ZERO;
    const double aspect = (double)p->w / p->h;
    const int wide = p->w >= p->h;
    int32_t other = (int32_t)(wide ? longest / aspect : longest * aspect);
    other = LLM__MAX(other + other % 2, 1);
    if (longest > 4096) return llm__error(LLM_ERR_ARG, "longest_edge: %d, at most 4096 was expected", longest);
    llm_result r = llm__resize(p, wide ? longest : other, wide ? other : longest, m->processor.filter, &first);
    if (r || !m->processor.split) return r ? r : llm__view_resized(m, &first, T, T);
    const double shape = (double)first.w / first.h;
    int32_t w = (first.w + T - 1) / T * T, h = (first.h + T - 1) / T * T;
    if (first.w >= first.h) h = ((int32_t)(w / shape) + T - 1) / T * T;
    else w = ((int32_t)(h * shape) + T - 1) / T * T;
    w = LLM__MAX(w, T), h = LLM__MAX(h, T);
    r = llm__resize(&first, w, h, m->processor.filter, &second);
    if (!r && (h > T || w > T)) {
        m->grid_rows = h / T;
        m->grid_cols = w / T;
        r = llm__view_tiles(m, &second, T, T);
    }
    return r ? r : llm__view_resized(m, &second, T, T);
}

/* The pinpoint that keeps most of a picture and wastes least. */
static void llm__best_pinpoint(const llm__processor *how, const llm__picture *p, int32_t out[2]) {
    int64_t most = -1, least = INT64_MAX;
    for (int i = 0; i < how->n_pinpoints; i++) {
        const int32_t h = how->pinpoint[i][0], w = how->pinpoint[i][1];
        const double s = LLM__MIN((double)w / p->w, (double)h / p->h);
        const int64_t kept = LLM__MIN((int64_t)(p->w * s) * (int64_t)(p->h * s), (int64_t)p->w * p->h), waste = (int64_t)w * h - kept;
        if (kept < most || (kept == most && waste >= least)) continue;
        most = kept;
        least = waste;
        out[0] = h;
        out[1] = w;
    }
}

/* All of it in a square: of LLaVA-OneVision's pictures when a prompt has several, none of which is cut into tiles then. */
static llm_result llm__fit_padded(llm_media *m, const llm__picture *p) {
    LLM__SCOPED(llm__picture_free) llm__picture square = LLM__ZERO;
    llm_result r = llm__squared(m, p, &square);
    return r ? r : llm__view_resized(m, &square, m->processor.size, m->processor.size);
}

/* The whole, squeezed into a square, then tiles of the best size, on black. */
static llm_result llm__fit_anyres(llm_media *m, const llm__picture *p, int n_images) {
    const llm__processor *how = &m->processor;
    LLM__SCOPED(llm__picture_free) llm__picture canvas = LLM__ZERO, fitted = LLM__ZERO;
    const int32_t S = how->size;
    int32_t best[2] = {S, S};
    if (m->vision->family->flags & LLM__EYES_SHRINK && n_images > 1) return llm__fit_padded(m, p);
    llm__best_pinpoint(how, p, best);
    if (best[0] % S || best[1] % S)
        return llm__error(LLM_ERR_FORMAT, "image_grid_pinpoints: %d x %d, multiples of %d were expected", best[0], best[1], S);
    const double sw = (double)best[1] / p->w, sh = (double)best[0] / p->h;
    const int32_t w = sw < sh ? best[1] : (int32_t)LLM__MIN(ceil(p->w * sh), (double)best[1]);
    const int32_t h = sw < sh ? (int32_t)LLM__MIN(ceil(p->h * sw), (double)best[0]) : best[0];
    llm_result r = llm__picture_size(best[1], best[0]);
    if (!r) r = llm__resize(p, w, h, how->filter, &fitted);
    if (!r && !llm__picture_new(best[1], best[0], &canvas)) r = LLM_ERR_NOMEM;
    if (!r) llm__picture_paste(&canvas, &fitted, (best[1] - w) / 2, (best[0] - h) / 2);
    if (!r) r = llm__view_resized(m, p, S, S);
    m->grid_rows = best[0] / S;
    m->grid_cols = best[1] / S;
    return r ? r : llm__view_tiles(m, &canvas, S, S);
}

/* The canvas of up to max_tiles tiles for a picture of w x h: the one in which it has to grow least, or to shrink least if it is larger
 * than all; with `largest` the one in which it may grow most. Of equals the smallest. Scales are floats, as the processor has them. */
static void llm__canvas(const llm__processor *how, int32_t w, int32_t h, int32_t *rows, int32_t *cols) {
    float best = 0;
    *rows = *cols = 0;
    for (int32_t r = 1; r <= how->max_tiles; r++)
        for (int32_t c = 1; r * c <= how->max_tiles; c++) {
            const float by = LLM__MIN((float)(r * how->size) / (float)h, (float)(c * how->size) / (float)w);
            const int grows = by >= 1, grew = best >= 1;
            const int better = grows != grew ? grows : grows && !how->largest ? by < best : by > best;
            if (*rows && !better && !(by == best && r * c < *rows * *cols)) continue;
            best = by, *rows = r, *cols = c;
        }
}

/* The tiles of the grid of columns and rows whose shape is nearest, or that the picture fits best; none if that is a grid of one tile. */
static llm_result llm__grid_tiles(llm_media *m, const llm__picture *p) {
    const llm__processor *how = &m->processor;
    LLM__SCOPED(llm__picture_free) llm__picture all = LLM__ZERO;
    const int32_t T = how->size;
    const double aspect = (double)p->w / p->h;
    double best = INFINITY;
    int32_t cols = 1, rows = 1;
    for (int32_t n = LLM__MAX(how->min_tiles, 1); n <= how->max_tiles; n++)
        for (int32_t c = 1; c <= n; c++) {
            const int32_t r = n / c;
            const double off = fabs(aspect - (double)c / r);
            if (n % c || off > best || (off == best && !((double)p->w * p->h > 0.5 * T * T * n))) continue;
            best = off;
            cols = c;
            rows = r;
        }
    if (m->vision->family->flags & LLM__EYES_SCALE) llm__canvas(how, p->w, p->h, &rows, &cols);
    if (cols * rows == 1) return LLM_OK;
    llm_result r = llm__picture_size((int64_t)cols * T, (int64_t)rows * T);
    if (!r) r = llm__resize(p, cols * T, rows * T, how->filter, &all);
    m->grid_rows = rows;
    m->grid_cols = cols;
    return r ? r : llm__view_tiles(m, &all, T, T);
}

/* Tiles, and the whole as another one. */
static llm_result llm__fit_tiles(llm_media *m, const llm__picture *p) {
    const int32_t T = m->processor.size;
    llm_result r = llm__grid_tiles(m, p);
    return r ? r : llm__view_resized(m, p, T, T);
}

/* Its own shape in whole blocks; of a picture that is too large for as many tokens, tiles first. */
static llm_result llm__fit_tokens(llm_media *m, const llm__picture *p) {
    const llm__processor *how = &m->processor;
    const int32_t patch = m->vision->patch, unit = patch * m->vision->pool, T = how->size;
    const double square = (double)unit * unit, h = (double)llm__round_even((double)p->h / unit) * unit,
                 w = (double)llm__round_even((double)p->w / unit) * unit;
    const int large = LLM__MAX(h, patch) * LLM__MAX(w, patch) > how->limit * square * how->tolerance;
    int32_t to[2];
    llm_result r = llm__fit_blocks(p->h, p->w, 1, unit, (int64_t)(how->least * square), (int64_t)(how->limit * square), 1, to);
    if (r || !large || !how->split || how->max_tiles == 1) return r ? r : llm__view_resized(m, p, to[1], to[0]);
    r = llm__grid_tiles(m, p);
    if (r || (m->grid_rows && !how->thumbnail)) return r;
    return m->grid_rows ? llm__view_resized(m, p, to[1], to[0]) : llm__view_resized(m, p, T, T);
}

/* Width and height that a picture gets in a frame, which it fills one way. A side of the canvas is a number of the processor's that makes
 * its quotients floats; another one keeps them double. */
static void llm__canvas_size(int32_t w, int32_t h, const int32_t frame[2], const int canvas[2], int32_t to[2]) {
    const double by_w = canvas[0] ? (double)((float)frame[0] / (float)w) : (double)frame[0] / w;
    const double by_h = canvas[1] ? (double)((float)frame[1] / (float)h) : (double)frame[1] / h;
    const int wide = canvas[0] || canvas[1] ? (float)by_w < (float)by_h : by_w < by_h;
    const double high = canvas[0] ? (double)((float)h * (float)by_w) : h * by_w;
    const double broad = canvas[1] ? (double)((float)w * (float)by_h) : w * by_h;
    to[0] = wide ? frame[0] : (int32_t)LLM__MAX(LLM__MIN(floor(broad), (double)frame[0]), 1);
    to[1] = wide ? (int32_t)LLM__MAX(LLM__MIN(floor(high), (double)frame[1]), 1) : frame[1];
}

/* In the upper left corner of a black canvas, no larger than it is or than a tile; its tiles, and the whole if there are several. */
static llm_result llm__fit_canvas(llm_media *m, const llm__picture *p) {
    const llm__processor *how = &m->processor;
    LLM__SCOPED(llm__picture_free) llm__picture canvas = LLM__ZERO, fitted = LLM__ZERO;
    const int32_t S = how->size;
    int32_t rows, cols, to[2];
    llm__canvas(how, p->w, p->h, &rows, &cols);
    const int32_t most[2] = {how->largest ? cols * S : LLM__MAX(p->w, S), how->largest ? rows * S : LLM__MAX(p->h, S)};
    const int32_t frame[2] = {LLM__MIN(most[0], cols * S), LLM__MIN(most[1], rows * S)};
    const int is_canvas[2] = {how->largest || cols * S < most[0], how->largest || rows * S < most[1]};
    llm__canvas_size(p->w, p->h, frame, is_canvas, to);
    llm_result r = llm__picture_size((int64_t)cols * S, (int64_t)rows * S);
    if (!r) r = llm__resize(p, to[0], to[1], how->filter, &fitted);
    if (!r && !llm__picture_new(cols * S, rows * S, &canvas)) r = LLM_ERR_NOMEM;
    if (!r) llm__picture_paste(&canvas, &fitted, 0, 0);
    if (!r) r = llm__view_tiles(m, &canvas, S, S);
    if (r || rows * cols == 1) return r;
    m->grid_rows = rows;
    m->grid_cols = cols;
    return llm__view_resized(m, p, S, S);
}

/* Width and height of a slice: about S * S pixels in whole patches; smaller pictures grow only with `up`. */
static void llm__slice_best(double w, double h, double S, double patch, int up, int32_t out[2]) {
    if (w * h > S * S || up) {
        const double ratio = w / h;
        h = trunc(S / sqrt(ratio));
        w = trunc(h * ratio);
    }
    out[0] = (int32_t)LLM__MAX((double)llm__round_even(w / patch) * patch, patch);
    out[1] = (int32_t)LLM__MAX((double)llm__round_even(h / patch) * patch, patch);
}

/* The whole, then slices in the grid whose shape is nearest among those of about as many slices as the picture has pixels for. */
static llm_result llm__fit_slices(llm_media *m, const llm__picture *p) {
    const llm__processor *how = &m->processor;
    LLM__SCOPED(llm__picture_free) llm__picture all = LLM__ZERO;
    const double S = how->size, wide = p->w, high = p->h, patch = m->vision->patch;
    const int32_t n = how->split ? (int32_t)LLM__MIN(ceil(wide * high / (S * S)), (double)how->max_tiles) : 1;
    int32_t to[2], cols = 1, rows = 1;
    double best = INFINITY;
    llm__slice_best(wide, high, S, patch, n <= 1, to);
    llm_result r = llm__picture_size(to[0], to[1]);
    if (!r) r = llm__view_resized(m, p, to[0], to[1]);
    if (r || n <= 1) return r;
    for (int32_t k = n - 1; k <= n + 1; k++)
        for (int32_t c = 1; c <= k && k > 1 && k <= how->max_tiles; c++) {
            const double off = k % c ? INFINITY : fabs(log(wide / high) - log((double)c / (k / c)));
            if (off < best) best = off, cols = c, rows = k / c;
        }
    const double w = LLM__MAX((double)llm__round_even(wide / cols) * cols, (double)cols),
                 h = LLM__MAX((double)llm__round_even(high / rows) * rows, (double)rows);
    llm__slice_best(w / cols, h / rows, S, patch, 1, to);
    r = llm__resize(p, to[0] * cols, to[1] * rows, how->filter, &all);
    m->grid_rows = rows;
    m->grid_cols = cols;
    return r ? r : llm__view_tiles(m, &all, to[0], to[1]);
}

LLM__PRIVATE llm_result llm__fit(llm_media *m, llm__picture *p, int n_images) {
    llm_result r = LLM_OK;
    switch (m->vision->family->fit) {
    case LLM__FIT_SQUARE: r = llm__fit_square(m, p); break;
    case LLM__FIT_CROP: r = llm__fit_crop(m, p); break;
    case LLM__FIT_PATCHES: r = llm__fit_patches(m, p); break;
    case LLM__FIT_EDGE: r = llm__fit_edge(m, p); break;
    case LLM__FIT_SPLIT: r = llm__fit_split(m, p); break;
    case LLM__FIT_ANYRES: r = llm__fit_anyres(m, p, n_images); break;
    case LLM__FIT_TILES: r = llm__fit_tiles(m, p); break;
    case LLM__FIT_SLICES: r = llm__fit_slices(m, p); break;
    case LLM__FIT_LIMIT: r = llm__fit_limit(m, p); break;
    case LLM__FIT_BUDGET: r = llm__fit_budget(m, p); break;
    case LLM__FIT_TOKENS: r = llm__fit_tokens(m, p); break;
    case LLM__FIT_CANVAS: r = llm__fit_canvas(m, p); break;
    }
    llm__picture_free(p);
    return r;
}

LLM__PRIVATE llm_result llm__fit_frames(llm_media *m, llm__picture *first, llm__picture *second, int32_t w, int32_t h) {
    llm__picture to[2] = {LLM__ZERO, LLM__ZERO};
    llm_result r = llm__resize(first, w, h, m->processor.filter, &to[0]);
    if (!r && second->rgb) r = llm__resize(second, w, h, m->processor.filter, &to[1]);
    llm__picture_free(first);
    llm__picture_free(second);
    if (!r) return llm__view_add(m, &to[0], &to[1]);
    llm__picture_free(&to[0]);
    llm__picture_free(&to[1]);
    return r;
}

LLM__PRIVATE int32_t llm__view_rows(const llm__vision *v, const llm__media_view *view) {
    if (v->family->fit == LLM__FIT_SLICES) return v->n_query;
    return view->rows / v->pool * (view->cols / v->pool) + v->keeps_class;
}

/* ---- Frames ----
 * Of a film of n frames that lasts s seconds, r frames a second are taken, between a least and a largest number. The i-th of them is
 *
 *     Qwen2-VL    at the head of an equal share               floor(i n / taken)
 *     Qwen3-VL    spread from the first to the last           round(i (n - 1) / (taken - 1)), halves to even
 *     GLM-4.1V    the first that is shown at i / r or later   ceil(i n / (r s))
 */

/* Frames a second that are taken of a film of so many seconds: GLM-4.6V's fewer of long ones. */
static double llm__frames_rate(const llm__processor *p, double seconds) {
    return p->fps > 0 ? p->fps : seconds <= 30 ? 6 : seconds <= 300 ? 2 : 1;
}

LLM__PRIVATE int32_t llm__frames_taken(const llm__vision *v, const llm__processor *p, int32_t n, double seconds) {
    const int alone = llm__frames_to_the_last(v) || v->family->flags & LLM__EYES_BEHIND;
    const int32_t unit = alone ? 1 : v->family->flags & LLM__EYES_TWICE ? 2 : v->frames;
    double want = LLM__MIN(LLM__MAX(seconds * llm__frames_rate(p, seconds), (double)p->min_frames), (double)p->max_frames);
    int32_t taken = (int32_t)LLM__MIN(want, (double)n) / unit * unit;
    return LLM__MAX(taken, LLM__MIN(unit, n));
}

LLM__PRIVATE int llm__frames_to_the_last(const llm__vision *v) {
    return (v->family->flags & (LLM__EYES_TIMES | LLM__EYES_BEHIND)) == LLM__EYES_TIMES;
}

LLM__PRIVATE double llm__frame_step(const llm__vision *v, const llm__processor *p, int32_t n, double seconds) {
    const double want = seconds * llm__frames_rate(p, seconds);
    if (!(v->family->flags & LLM__EYES_BEHIND)) return 0;
    if (want <= p->max_frames || n <= p->max_frames) return LLM__MAX(n / want, 1);
    return (double)n / LLM__MAX(p->max_frames - 1, 1); /* a long one's are spread from its begin to its end */
}

LLM__PRIVATE int32_t llm__frame_at(const llm__vision *v, int32_t i, int32_t n, int32_t taken, double step) {
    if (step > 0) return (int32_t)LLM__MIN(ceil(i * step - 1e-6), n - 1.0); /* a step that is whole but for its last bit stays so */
    if (!llm__frames_to_the_last(v)) return (int32_t)((int64_t)i * n / taken);
    return taken > 1 ? (int32_t)rint(i * ((double)(n - 1) / (taken - 1))) : 0;
}
