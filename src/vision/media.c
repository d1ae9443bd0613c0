/* media: pictures and videos of a request, prepared. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/media.h"
#include "api/tokenizer.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "model/loader.h"
#include "vision/picture.h"
#include "vision/resize.h"
#include "vision/tower_kinds.h"
#include "vision/vision.h"
#include "vision/fit.h"
#include "vision/marks.h"
#include "vision/gif.h"
#include "vision/patches.h"

LLM_API void llm_media_free(llm_media *m) {
    if (!m || __atomic_sub_fetch(&m->refs, 1, __ATOMIC_ACQ_REL)) return;
    for (int32_t i = 0; i < m->n_views; i++)
        for (int k = 0; k < 2; k++) llm__picture_free(&m->view[i].pixels[k]);
    LLM_FREE(m->view);
    LLM_FREE(m->times);
    LLM_FREE(m->values);
    LLM_FREE(m->raw);
    LLM_FREE(m);
}

/* For LLM__SCOPED. */
static void llm__media_drop(llm_media **m) { llm_media_free(*m); }

/* Made to fit 512 x 512, as OpenAI's detail "low" has it. */
static llm_result llm__media_low(llm__picture *p, llm__filter filter) {
    llm__picture small = LLM__ZERO;
    const double by = 512.0 / LLM__MAX(p->w, p->h);
    if (by >= 1) return LLM_OK;
    llm_result r = llm__resize(p, LLM__MAX(1, (int32_t)(p->w * by)), LLM__MAX(1, (int32_t)(p->h * by)), filter, &small);
    llm__picture_free(p);
    *p = small;
    return r;
}

/* Frame i of what was given. */
static llm_result llm__media_frame(const llm_media *m, const llm_media_config *cfg, int32_t i, llm__picture *out) {
    const int how = m->vision->family->flags & LLM__EYES_RAW ? LLM__DROP_ALPHA | LLM__KEEP_ORIENTATION : 0;
    llm_result r = cfg->n_files ? llm__picture_read(m->vision->reader, (const uint8_t *)cfg->files[i].data, cfg->files[i].size, how, out)
                                : llm__picture_pixels(&cfg->frames[i], how, out);
    return !r && cfg->detail == LLM_DETAIL_LOW ? llm__media_low(out, m->processor.filter) : r;
}

static llm_result llm__media_image(llm_media *m, const llm_media_config *cfg) {
    llm__picture p = LLM__ZERO;
    if (cfg->n_files + cfg->n_frames != 1)
        return llm__error(LLM_ERR_ARG, "a picture of %d files and %d frames, one was expected", cfg->n_files, cfg->n_frames);
    llm_result r = llm__media_frame(m, cfg, 0, &p);
    m->info.width = p.w;
    m->info.height = p.h;
    return r ? r : llm__fit(m, &p, LLM__MAX(cfg->n_images, 1));
}

/* ---- Videos ----
 * Frames come as they are, or a GIF has them. Of a GIF so many a second are taken as the family's processor does, spread evenly. */

/* Where a video's frames come from. */
typedef struct llm__reel {
    const llm_media_config *cfg;
    llm__gif gif;
    int32_t n, n_read; /* frames; of a GIF so many were read */
    int32_t source;    /* frames of the film they are of */
    double seconds;    /* between two */
    double step;       /* of a GIF: see llm__frame_step */
} llm__reel;

/* The i-th frame, later than those before. Of a GIF the frame that is shown at that time. */
static llm_result llm__reel_frame(const llm_media *m, llm__reel *reel, int32_t i, llm__picture *out) {
    llm_result r = LLM_OK;
    if (!reel->gif.canvas) return llm__media_frame(m, reel->cfg, i, out);
    while (reel->n_read <= i && !r) r = llm__gif_next(&reel->gif), reel->n_read++;
    const llm_frame frame = {reel->gif.canvas, reel->gif.w, reel->gif.h, 4};
    return r ? r : llm__picture_pixels(&frame, 0, out);
}

/* Puts frames into views, two and two where the family does so; a last one alone stands twice. */
static llm_result llm__media_views(llm_media *m, llm__reel *reel, int32_t taken) {
    const llm__vision *v = m->vision;
    const llm__processor *p = &m->processor;
    const int pairs = v->frames == 2, twice = v->family->flags & LLM__EYES_TWICE && taken % 2;
    int32_t size[2] = {0, 0};
    llm_result r = LLM_OK;
    for (int32_t i = 0; i < taken + twice && !r; i += 1 + pairs) {
        llm__picture first = LLM__ZERO, second = LLM__ZERO;
        const int32_t at = LLM__MIN(i, taken - 1), next = LLM__MIN(i + 1, taken - 1);
        r = llm__reel_frame(m, reel, llm__frame_at(v, at, reel->n, taken, reel->step), &first);
        if (!r && pairs && next > at) r = llm__reel_frame(m, reel, llm__frame_at(v, next, reel->n, taken, reel->step), &second);
        if (!i) {
            m->info.width = first.w;
            m->info.height = first.h;
            /* frames that were chosen one by one count as whole pairs */
            if (!r) r = llm__fit_film(v, p, first.h, first.w, taken + (reel->step > 0 && taken % 2), size);
        }
        if (!r) r = llm__fit_frames(m, &first, &second, size[1], size[0]);
        llm__picture_free(&first);
        llm__picture_free(&second);
    }
    return r;
}

/* Seconds at which the i-th frame of those taken is shown. A family that takes frames from the first to the last tells the model when
 * they are shown to the frame: of frames that another program has taken of a film the same way, `source` says how many the film has, and
 * so between which two of them a place lies. */
static double llm__media_time(const llm_media *m, const llm__reel *reel, int32_t i, int32_t taken) {
    if (reel->step > 0) return reel->seconds * llm__frame_at(m->vision, i, reel->n, taken, reel->step);
    if (!llm__frames_to_the_last(m->vision)) return i * (reel->seconds * reel->n / taken);
    if (reel->source <= reel->n || taken < 2) return reel->seconds * llm__frame_at(m->vision, i, reel->n, taken, 0);
    return reel->seconds * (taken - 1) / (reel->source - 1) * llm__frame_at(m->vision, i, reel->source, taken, 0);
}

/* When each view is shown: the middle of its frames' times, or the first one's. */
static llm_result llm__media_times(llm_media *m, const llm__reel *reel, int32_t taken) {
    const int32_t unit = m->vision->frames;
    m->times = LLM__NEW(double, m->n_views);
    m->pair_seconds = reel->seconds * reel->n / taken * unit;
    for (int32_t i = 0; i < m->n_views && m->times; i++) {
        const int32_t last = m->vision->family->flags & LLM__EYES_BEHIND ? unit * i : LLM__MIN(unit * i + unit - 1, taken - 1);
        m->times[i] = (llm__media_time(m, reel, unit * i, taken) + llm__media_time(m, reel, last, taken)) / 2;
    }
    return m->times ? LLM_OK : llm__nomem();
}

static llm_result llm__media_video(llm_media *m, const llm_media_config *cfg) {
    llm__reel reel = {.cfg = cfg,
                      .n = cfg->n_files + cfg->n_frames,
                      .seconds = 1 / (cfg->fps > 0           ? cfg->fps
                                      : m->processor.fps > 0 ? m->processor.fps
                                                             : 2)};
    int32_t taken = reel.n;
    llm_result r = LLM_OK;
    if (!(m->vision->family->flags & LLM__EYES_VIDEO)) return llm__error(LLM_ERR_UNSUPPORTED, "the model sees pictures, and no videos");
    if (reel.n < 1 || (cfg->n_files && cfg->n_frames))
        return llm__error(LLM_ERR_ARG, "a video of %d files and %d frames, either of them was expected", cfg->n_files, cfg->n_frames);
    const char *kind = cfg->n_files == 1 ? llm__picture_kind((const uint8_t *)cfg->files[0].data, cfg->files[0].size) : NULL;
    if (kind && !strcmp(kind, "a GIF")) {
        r = llm__gif_open((const uint8_t *)cfg->files[0].data, cfg->files[0].size, &reel.gif);
        reel.n = reel.gif.n_frames;
        if (cfg->fps > 0) m->processor.fps = cfg->fps;
        if (!r) reel.seconds = reel.gif.seconds / reel.n;
        if (!r && (double)reel.n * reel.gif.w * reel.gif.h > 4e9)
            r = llm__error(LLM_ERR_LIMIT, "a GIF of %d frames of %d x %d pixels is too long", (int)reel.n, (int)reel.gif.w,
                           (int)reel.gif.h);
        if (!r) taken = llm__frames_taken(m->vision, &m->processor, reel.n, reel.gif.seconds);
        if (!r) reel.step = llm__frame_step(m->vision, &m->processor, reel.n, reel.gif.seconds);
    }
    if (!r && (cfg->n_source < 0 || cfg->n_source > INT32_MAX / 2))
        r = llm__error(LLM_ERR_ARG, "n_source: %lld, 0 to %d was expected", (long long)cfg->n_source, INT32_MAX / 2);
    if (!reel.gif.canvas) reel.source = (int32_t)cfg->n_source;
    if (!r && taken > m->processor.max_frames)
        r = llm__error(LLM_ERR_LIMIT, "a video of %d frames, at most %d were expected", (int)taken, (int)m->processor.max_frames);
    if (!r) r = llm__media_views(m, &reel, taken);
    if (!r) r = llm__media_times(m, &reel, taken);
    llm__gif_close(&reel.gif);
    return r;
}

/* ---- What both have ---- */

/* Two hashes over everything that decides about the rows, keyed so that nobody can aim at another's. */
static void llm__media_hash(llm_media *m) {
    const int32_t shape[6] = {m->info.kind, m->grid_rows, m->grid_cols, m->info.width, m->info.height, m->n_views};
    for (int k = 0; k < 2; k++) {
        uint64_t h = llm__hash(shape, sizeof shape, m->vision->secret[k]);
        h = llm__hash(&m->pair_seconds, sizeof m->pair_seconds, h);
        for (int32_t i = 0; i < m->n_views; i++)
            for (int j = 0; j < 2; j++) {
                const llm__picture *p = &m->view[i].pixels[j];
                const int32_t size[2] = {p->rgb ? p->w : 0, p->rgb ? p->h : 0};
                h = llm__hash(size, sizeof size, llm__mix(h));
                if (p->rgb) h = llm__hash(p->rgb, (size_t)p->w * (size_t)p->h * 3, llm__mix(h));
            }
        h = llm__hash(m->processor.mean, sizeof m->processor.mean, llm__mix(h));
        m->hash[k] = llm__hash(m->processor.std, sizeof m->processor.std, llm__mix(h));
    }
}

LLM_API llm_result llm_media_open(const llm_model *model, const llm_media_config *cfg, llm_media **out) {
    const llm__vision *v = model->vision;
    *out = NULL;
    if (!v) return llm__error(LLM_ERR_UNSUPPORTED, "%s is not a multimodal model: it takes text only", model->path);
    LLM__SCOPED(llm__media_drop) llm_media *m = LLM__NEW(llm_media, 1);
    if (!m) return llm__nomem();
    m->refs = 1;
    m->vision = v;
    m->processor = cfg->kind == LLM_MEDIA_VIDEO ? v->video_processor : v->processor;
    m->info.kind = cfg->kind;
    llm_result r = LLM_OK;
    if (!(cfg->fps == 0 || LLM__FPS_FITS(cfg->fps))) r = llm__error(LLM_ERR_ARG, "fps: %.9g, 0.001 to 1000 was expected", cfg->fps);
    if (!r && cfg->mm_processor_kwargs) r = llm__processor_change(v, cfg->mm_processor_kwargs, &m->processor);
    if (!r) r = cfg->kind == LLM_MEDIA_VIDEO ? llm__media_video(m, cfg) : llm__media_image(m, cfg);
    if (r) return r;
    const int64_t n = llm__media_rows(m);
    if (n < 1 || n > INT32_MAX / 4) return llm__error(LLM_ERR_LIMIT, "it would take %lld tokens", (long long)n);
    m->info.n_tokens = (int32_t)n;
    m->info.n_views = m->n_views;
    for (int32_t i = 0; i < m->n_views; i++)
        for (int k = 0; k < 2; k++)
            m->bytes += m->view[i].pixels[k].rgb ? (size_t)m->view[i].pixels[k].w * (size_t)m->view[i].pixels[k].h * 3 : 0;
    llm__media_hash(m);
    *out = m;
    m = NULL;
    return LLM_OK;
}

LLM_API void llm_media_get_info(const llm_media *media, llm_media_info *out) { *out = media->info; }

LLM_API int64_t llm_media_values(const llm_media *m, int32_t view, float *values, int64_t n) {
    const llm__vision *v = m->vision;
    if (view < 0 || view >= m->n_views) return 0;
    const int64_t all = (int64_t)m->view[view].rows * m->view[view].cols * v->patch_values;
    LLM__SCOPED(llm__drop) float *patch = LLM__NEW(float, v->patch_values);
    for (int64_t at = 0; at < n && at < all && patch; at += v->patch_values) {
        llm__patch_values(m, &m->view[view], (int32_t)(at / v->patch_values), patch);
        memcpy(values + at, patch, (size_t)LLM__MIN(n - at, (int64_t)v->patch_values) * sizeof *values);
    }
    return all;
}

LLM_API llm_result llm_media_tokenize(const llm_model *model, const char *text, size_t len, int flags, llm_media *const *media,
                                      int32_t n_media, llm_tokens *ids) {
    LLM__SCOPED(llm_text_free) llm_text whole = LLM__ZERO;
    if (!model->vision || !n_media) return llm_tokenize(model, text, len, flags, ids);
    llm_result r = llm__media_text(model->vision, llm__s(text, len), media, n_media, &whole);
    return r ? r : llm_tokenize(model, whole.data ? whole.data : "", whole.len, flags, ids);
}
