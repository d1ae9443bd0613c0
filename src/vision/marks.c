#include "vision/marks.h"
#include "api/config.h"
#include "api/text.h"
#include "api/media.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "vision/tower_kinds.h"
#include "vision/vision.h"
#include "vision/fit.h"

LLM__PRIVATE llm__unpad llm__unpad_of(const llm_media *m) {
    const llm__vision *v = m->vision;
    const int32_t side = m->view[0].rows / v->pool, ow = m->info.width, oh = m->info.height;
    llm__unpad u = {m->grid_rows * side, m->grid_cols * side, 0, 0, 0, 0, 0, 0};
    u.h = u.gh, u.w = u.gw;
    if ((double)ow / oh > (double)u.gw / u.gh) {
        const int32_t kept = (int32_t)(rint(oh * ((double)u.gw / ow) * 1e7) / 1e7);
        u.top = LLM__MAX(u.gh - kept, 0) / 2;
        u.h = u.gh - 2 * u.top;
    } else {
        const int32_t kept = (int32_t)(rint(ow * ((double)u.gh / oh) * 1e7) / 1e7);
        u.left = LLM__MAX(u.gw - kept, 0) / 2;
        u.w = u.gw - 2 * u.left;
    }
    u.to_h = u.h, u.to_w = u.w;
    if (!v->shrink_tiles) return u;
    const double ratio = sqrt((double)u.h * u.w / ((double)v->shrink_tiles * side * side));
    if (ratio > 1.1) u.to_h = (int32_t)floor(u.h / ratio), u.to_w = (int32_t)floor(u.w / ratio);
    return u;
}

LLM__PRIVATE int64_t llm__media_rows(const llm_media *m) {
    const llm__vision *v = m->vision;
    int64_t n = 0;
    if (v->family->flags & LLM__EYES_NEWLINES) {
        const llm__unpad u = llm__unpad_of(m);
        n = llm__view_rows(v, &m->view[0]);
        return n + (m->grid_rows ? (int64_t)u.to_h * (u.to_w + 1) : 1);
    }
    for (int32_t i = 0; i < m->n_views; i++) n += llm__view_rows(v, &m->view[i]);
    return v->family->flags & LLM__EYES_TWICE && m->info.kind == LLM_MEDIA_VIDEO ? n / 2 : n;
}

/* ---- Places ---- */

/* Its runs of tokens with places in time, height and width; run i: 0 when there is none. */
static int llm__media_tokens(const llm_media *m, int32_t i, llm__token_run *run) {
    const llm__vision *v = m->vision;
    const int apart = (v->family->flags & LLM__EYES_TIMES) || m->info.kind == LLM_MEDIA_IMAGE; /* views one by one */
    const int32_t both = v->family->flags & LLM__EYES_TWICE && m->info.kind == LLM_MEDIA_VIDEO ? 2 : 1;
    run->t = apart ? 1 : m->n_views / both;
    run->h = m->view[0].rows / v->pool;
    run->w = m->view[0].cols / v->pool;
    return i < (apart ? m->n_views : 1);
}

LLM__PRIVATE int llm__media_kind_of(const llm__vision *v, int32_t id, int *film) {
    if (v->film_begin < 0) return id < 0 ? -1 : id == v->video_id ? LLM_MEDIA_VIDEO : id == v->image_id ? LLM_MEDIA_IMAGE : -1;
    if (id == v->film_begin || id == v->film_end) *film = id == v->film_begin;
    return id != v->image_id ? -1 : *film ? LLM_MEDIA_VIDEO : LLM_MEDIA_IMAGE;
}

/* Places of one run from p on. Returns the place behind it. */
static int32_t llm__run_places(const llm_media *m, const llm__token_run *run, int32_t p, int32_t n, int32_t at, int32_t *places) {
    int32_t last = p;
    for (int32_t i = 0; i < run->t * run->h * run->w && at + i < n; i++) {
        const int32_t t = i / (run->h * run->w), y = i / run->w % run->h, x = i % run->w;
        const int32_t when = m->vision->tokens_per_second > 0 ? (int32_t)(t * m->vision->tokens_per_second * m->pair_seconds) : t;
        places[at + i] = p + when;
        places[n + at + i] = p + y;
        places[2 * n + at + i] = p + x;
        last = LLM__MAX(last, p + LLM__MAX(when, LLM__MAX(y, x)));
    }
    return last + 1;
}

LLM__PRIVATE void llm__media_places(const llm__vision *v, const int32_t *ids, int32_t n, llm_media *const *media, int32_t n_media,
                                    int32_t *places, int32_t *next) {
    int32_t p = 0, which[2] = {0, 0}, part[2] = {0, 0}; /* of pictures, of videos: which of them, and which of its runs */
    for (int32_t at = 0, film = 0; at < n;) {
        const int kind = llm__media_kind_of(v, ids[at], &film), video = kind == LLM_MEDIA_VIDEO, seen = kind >= 0;
        llm__token_run run = LLM__ZERO;
        int32_t *m = &which[video];
        while (seen && *m < n_media && ((int)media[*m]->info.kind != kind || !llm__media_tokens(media[*m], part[video], &run)))
            ++*m, part[video] = 0;
        if (!seen || *m >= n_media) {
            places[at] = places[n + at] = places[2 * n + at] = p++;
            at++;
            continue;
        }
        part[video]++;
        p = llm__run_places(media[*m], &run, p, n, at, places);
        at += run.t * run.h * run.w;
    }
    *next = p;
}

/* ---- Text ---- */

static void llm__add_times(llm_text *out, const char *token, int64_t n) {
    for (int64_t i = 0; i < n; i++) llm_text_str(out, token);
}

/* Idefics 3: a mark before each tile, a line for each row of them, then the whole. */
static void llm__mark_grid(const llm_media *m, llm_text *out) {
    const llm__vision *v = m->vision;
    const int32_t n = llm__view_rows(v, &m->view[0]);
    char mark[64];
    for (int32_t y = 0; y < m->grid_rows; y++) {
        for (int32_t x = 0; x < m->grid_cols; x++) {
            snprintf(mark, sizeof mark, "<fake_token_around_image><row_%d_col_%d>", (int)y + 1, (int)x + 1);
            llm_text_str(out, mark);
            llm__add_times(out, v->image_token, n);
        }
        llm_text_str(out, "\n");
    }
    llm_text_str(out, m->grid_rows ? "\n<fake_token_around_image><global-img>" : "<fake_token_around_image><global-img>");
    llm__add_times(out, v->image_token, n);
    llm_text_str(out, "<fake_token_around_image>");
}

/* Pixtral: a token behind each row, another one behind the last. */
static void llm__mark_rows(const llm_media *m, llm_text *out) {
    const llm__vision *v = m->vision;
    const int32_t rows = m->view[0].rows / v->pool, cols = m->view[0].cols / v->pool;
    for (int32_t y = 0; y < rows; y++) {
        llm__add_times(out, v->image_token, cols);
        llm_text_str(out, y + 1 < rows ? v->row_end : v->last_end);
    }
}

/* Aya Vision: each tile's number before it, in words, and then the whole. */
static void llm__mark_numbered(const llm_media *m, llm_text *out) {
    const llm__vision *v = m->vision;
    const int32_t n = llm__view_rows(v, &m->view[0]);
    llm_text_str(out, v->family->begin);
    for (int32_t i = 1; i <= m->grid_rows * m->grid_cols; i++) {
        llm_text_str(out, "TILE_");
        llm_text_int(out, i);
        llm__add_times(out, v->image_token, n);
    }
    llm_text_str(out, "TILE_GLOBAL");
    llm__add_times(out, v->image_token, n);
    llm_text_str(out, v->family->end);
}

/* Cohere2 Vision: a token behind each tile and behind the whole. */
static void llm__mark_broken(const llm_media *m, llm_text *out) {
    const llm__vision *v = m->vision;
    llm_text_str(out, v->family->begin);
    for (int32_t i = 0; i < m->n_views; i++) {
        llm__add_times(out, v->image_token, llm__view_rows(v, &m->view[i]));
        llm_text_str(out, v->row_end);
    }
    llm_text_str(out, v->family->end);
}

/* LFM2-VL: each tile's row and column before it, and a mark before the whole if there are tiles. */
static void llm__mark_places(const llm_media *m, llm_text *out) {
    const llm__vision *v = m->vision;
    const int32_t tiles = m->grid_rows * m->grid_cols;
    const int marked = m->processor.numbered;
    char mark[64];
    if (marked) llm_text_str(out, v->family->begin);
    for (int32_t i = 0; i < m->n_views; i++) {
        if (i < tiles) snprintf(mark, sizeof mark, "<|img_row_%d_col_%d|>", (int)(i / m->grid_cols) + 1, (int)(i % m->grid_cols) + 1);
        if (marked && tiles) llm_text_str(out, i < tiles ? mark : "<|img_thumbnail|>");
        llm__add_times(out, v->image_token, llm__view_rows(v, &m->view[i]));
    }
    if (marked) llm_text_str(out, v->family->end);
}

/* Llama 4: tiles with a token between them, and one behind a row of them; then the whole, or the only tile. */
static void llm__mark_tiles(const llm_media *m, llm_text *out) {
    const llm__vision *v = m->vision;
    const int32_t n = llm__view_rows(v, &m->view[0]);
    llm_text_str(out, v->family->begin);
    for (int32_t i = 0; i < m->grid_rows * m->grid_cols; i++) {
        llm__add_times(out, v->image_token, n);
        llm_text_str(out, (i + 1) % m->grid_cols ? v->row_end : v->last_end);
    }
    llm_text_str(out, v->family->token);
    llm__add_times(out, v->image_token, n);
    llm_text_str(out, v->family->end);
}

/* MiniCPM-V: its number, the whole, then a line for each row of slices. */
static void llm__mark_slices(const llm_media *m, int32_t number, llm_text *out) {
    const llm__vision *v = m->vision;
    if (m->processor.numbered) {
        llm_text_str(out, "<image_id>");
        llm_text_int(out, number);
        llm_text_str(out, "</image_id>");
    }
    llm_text_str(out, "<image>");
    llm__add_times(out, v->image_token, v->n_query);
    llm_text_str(out, "</image>");
    for (int32_t i = 0; i < m->grid_rows * m->grid_cols; i++) {
        if (i && i % m->grid_cols == 0) llm_text_str(out, "\n");
        llm_text_str(out, "<slice>");
        llm__add_times(out, v->image_token, v->n_query);
        llm_text_str(out, "</slice>");
    }
}

/* Python's "%.1f": the nearest tenth, of two as near the even one. The product is rounded and may seem to lie halfway between two tenths
 * where t does not: fma tells without rounding on which side. */
static void llm__mark_seconds(double t, llm_text *out) {
    const double low = floor(t * 10), beyond = fma(t, 10, -(low + 0.5));
    const int64_t tenths = (int64_t)low + (beyond > 0 || (beyond == 0 && (int64_t)low % 2));
    llm_text_int(out, tenths / 10);
    llm_text_str(out, ".");
    llm_text_int(out, tenths % 10);
    llm_text_str(out, " seconds");
}

/* Qwen3-VL: a video is pairs of frames, each with its time before it. GLM-4.1V: with whole seconds behind it. */
static void llm__mark_times(const llm_media *m, llm_text *out) {
    const llm__vision *v = m->vision;
    const int behind = (v->family->flags & LLM__EYES_BEHIND) != 0;
    for (int32_t i = 0; i < m->n_views; i++) {
        if (!behind) llm_text_str(out, "<"), llm__mark_seconds(m->times[i], out), llm_text_str(out, ">");
        llm_text_str(out, v->start);
        llm__add_times(out, behind ? v->image_token : v->video_token, llm__view_rows(v, &m->view[i]));
        llm_text_str(out, v->stop);
        if (behind && v->tenths) llm__mark_seconds(m->times[i], out);
        else if (behind) llm_text_int(out, (int64_t)m->times[i]);
    }
}

/* What the family has around a picture; of one that was cut by do_pan_and_scan (Gemma 3) each piece has it, within a sentence. */
static void llm__mark_plain(const llm_media *m, llm_text *out) {
    const llm__vision *v = m->vision;
    const int32_t parts = v->family->fit == LLM__FIT_SQUARE ? m->n_views : 1;
    if (parts > 1) llm_text_str(out, "Here is the original image ");
    for (int32_t i = 0; i < parts; i++) {
        if (i) llm_text_str(out, i == 1 ? " and here are some crops to help you see better " : " ");
        llm_text_str(out, v->family->begin);
        llm__add_times(out, v->image_token, m->info.n_tokens / parts);
        llm_text_str(out, v->family->end);
    }
}

/* What stands for picture `number`. */
static void llm__media_mark(const llm_media *m, int32_t number, llm_text *out) {
    const llm__vision *v = m->vision;
    if (m->info.kind == LLM_MEDIA_VIDEO) {
        if (v->family->flags & LLM__EYES_TIMES) llm__mark_times(m, out);
        else llm__add_times(out, v->video_token, m->info.n_tokens);
        return;
    }
    switch (v->family->marks) {
    case LLM__MARKS_GRID: llm__mark_grid(m, out); return;
    case LLM__MARKS_ROWS: llm__mark_rows(m, out); return;
    case LLM__MARKS_NUMBERED: llm__mark_numbered(m, out); return;
    case LLM__MARKS_BROKEN: llm__mark_broken(m, out); return;
    case LLM__MARKS_PLACES: llm__mark_places(m, out); return;
    case LLM__MARKS_TILES: llm__mark_tiles(m, out); return;
    case LLM__MARKS_SLICES: llm__mark_slices(m, number, out); return;
    case LLM__MARKS_PLAIN: break;
    }
    llm__mark_plain(m, out);
}

/* The next placeholder; NULL: there is none. */
static const char *llm__placeholder_next(llm__str text, const char *image, const char *video, int *is_video) {
    const char *a = image ? llm__str_find(text, llm__lit(image)) : NULL, *b = video ? llm__str_find(text, llm__lit(video)) : NULL;
    *is_video = b && (!a || b < a);
    return *is_video ? b : a;
}

LLM__PRIVATE llm_result llm__media_text(const llm__vision *v, llm__str text, llm_media *const *media, int32_t n_media, llm_text *out) {
    const char *video = v->video_id >= 0 ? v->video_placeholder : NULL, *at;
    int32_t next[2] = {0, 0}, found[2] = {0, 0}, given[2] = {0, 0};
    int is_video;
    for (int32_t i = 0; i < n_media; i++) given[media[i]->info.kind == LLM_MEDIA_VIDEO]++;
    /* a text that repeats the placeholder is walked once for each: bound what may come of it */
    for (; n_media && (at = llm__placeholder_next(text, v->placeholder, video, &is_video)) != NULL; found[is_video]++) {
        size_t before = (size_t)(at - text.p), len = strlen(is_video ? video : v->placeholder);
        int32_t *m = &next[is_video];
        while (*m < n_media && (media[*m]->info.kind == LLM_MEDIA_VIDEO) != is_video) ++*m;
        if (*m >= n_media) break;
        const size_t start = strlen(v->start), stop = strlen(v->stop);
        if (is_video && v->family->flags & LLM__EYES_TIMES && before >= start && text.n - before - len >= stop &&
            !memcmp(at - start, v->start, start) && !memcmp(at + len, v->stop, stop))
            before -= start, len += start + stop;
        llm_text_add(out, text.p, before);
        llm__media_mark(media[*m], found[0], out);
        ++*m;
        text = llm__str_from(text, before + len);
    }
    llm_text_add(out, text.p, text.n);
    for (int k = 0; k < 2; k++)
        if (found[k] < given[k])
            return llm__error(LLM_ERR_ARG, "%d %s given, and the prompt has %d placeholder%s (%s) for them", (int)given[k],
                              given[k] == 1 ? (k ? "video is" : "picture is")
                              : k           ? "videos are"
                                            : "pictures are",
                              (int)found[k], found[k] == 1 ? "" : "s", k ? video ? video : "none" : v->placeholder);
    return out->failed ? llm__nomem() : LLM_OK;
}
