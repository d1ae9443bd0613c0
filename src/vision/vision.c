#include "vision/vision.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/json.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/decode.h"
#include "model/tensors.h"
#include "model/source.h"
#include "model/facts.h"
#include "model/arch.h"
#include "model/loader.h"
#include "vision/resize.h"
#include "vision/tower_kinds.h"
#include "vision/towers.h"
#include "vision/mmproj.h"

/* ---- The processor ----
 * What a folder says of pictures stands in two or three JSON files, and half of it under two names. A request may change some of it. Every
 * number comes from the last of these that has it:
 *
 *     the processor's class       what its constructor has where nothing is said           llm__processor_usual, llm__processor_class
 *     the folder                  processor_config.json, or preprocessor_config.json       llm__processor_files
 *     --mm-processor-kwargs       for all requests of an engine
 *     mm_processor_kwargs         of one request
 *
 * Only when all is read are the ranges looked at: a minimum alone is no mistake before its maximum is known. Pictures and films have a
 * processor each, of one struct, because in some families their sizes differ and in others their means. */

/* A member of `size`, or of the object itself; `size` may also be the number. */
static double llm__length_of(const llm_json *d, int object, const char *size, const char *member, double otherwise) {
    int v = llm_json_find(d, object, size), is_object = llm_json_type_of(d, v) == LLM_JSON_OBJECT;
    double x = otherwise;
    llm_json_num(d, is_object ? llm_json_find(d, v, member) : v, &x);
    return x;
}

static double llm__number_of(const llm_json *d, int object, const char *name, double otherwise) {
    llm_json_num(d, llm_json_find(d, object, name), &otherwise);
    return otherwise;
}

/* Whether a number that a file or a request has lies in its range. */
static llm_result llm__processor_range(const char *name, double x, double lo, double hi) {
    if (x >= lo && x <= hi) return LLM_OK;
    return llm__error(LLM_ERR_ARG, "%s: %.9g, %.9g to %.9g was expected", name, x, lo, hi);
}

/* Three numbers, of a channel each. */
static void llm__channels_of(const llm_json *d, int object, const char *name, double out[3]) {
    int v = llm_json_first(d, llm_json_find(d, object, name));
    for (int i = 0; i < 3 && v >= 0; i++, v = llm_json_next(d, v)) llm_json_num(d, v, &out[i]);
}

/* image_grid_pinpoints: [[height, width], ...]. */
static void llm__pinpoints_of(const llm_json *d, int list, llm__processor *p) {
    if (llm_json_size(d, list) < 1) return;
    p->n_pinpoints = 0;
    for (int v = llm_json_first(d, list); v >= 0 && p->n_pinpoints < LLM__MAX_PINPOINTS; v = llm_json_next(d, v)) {
        int64_t h = llm__json_whole(d, llm_json_first(d, v), 0), w = llm__json_whole(d, llm_json_next(d, llm_json_first(d, v)), 0);
        if (h < 1 || w < 1 || h > 16384 || w > 16384) continue;
        p->pinpoint[p->n_pinpoints][0] = (int32_t)h;
        p->pinpoint[p->n_pinpoints++][1] = (int32_t)w;
    }
}

/* A number of a file or a request as a whole one, no farther from 0 than `most`. */
static int64_t llm__bounded(double x, double most) { return (int64_t)LLM__MAX(LLM__MIN(x, most), -most); }

/* Of LLaVA, whose towers differ, the class says more than its members: CLIP's cuts the middle out, others squeeze into a square. A
 * class that is not named is CLIP's, as in the first folders; SigLIP's and ViT's have constants and filters of their own where a file is
 * silent. */
static void llm__processor_class(const llm_json *d, int object, llm__processor *p) {
    const char *type = llm_json_str(d, llm_json_find(d, object, "image_processor_type"), NULL);
    if (!type || !strncmp(type, "CLIP", 4)) return;
    if (!strncmp(type, "LlavaImageProcessor", 19)) { /* CLIP's knows no padding */
        p->pad = llm__json_flag(d, object, "do_pad", 0);
        return;
    }
    p->crop = 0;
    p->filter = !strncmp(type, "ViT", 3) ? LLM__FILTER_BILINEAR : LLM__FILTER_BICUBIC;
    for (int c = 0; c < 3; c++) p->mean[c] = llm__constants[LLM__HALF][c], p->std[c] = llm__constants[LLM__HALF][3 + c];
}

/* 1 if views are squares, or tiles, of one size; else a picture keeps its shape. */
static int llm__fit_fixed(const llm__vision *v) {
    const llm__fit_kind fit = v->family->fit;
    return fit != LLM__FIT_PATCHES && fit != LLM__FIT_EDGE && fit != LLM__FIT_LIMIT && fit != LLM__FIT_BUDGET;
}

/* A processor that has been made for patches, or blocks of them, of another size does not fit the tower. */
static llm_result llm__processor_fits(const llm__vision *v, const llm_json *d, int object, const char *patches, const char *pools) {
    const double patch = llm__number_of(d, object, patches, v->patch), pool = llm__number_of(d, object, pools, v->pool);
    if (patch == v->patch && pool == v->pool) return LLM_OK;
    return llm__error(LLM_ERR_FORMAT, "%s: %.9g, %s: %.9g; the tower's %d and %d were expected", patches, patch, pools, pool, (int)v->patch,
                      (int)v->pool);
}

/* Gemma 4's tower takes 2 x - 1 of pixels from 0 to 1, which its processor does not normalise. That is what a mean and a deviation of one
 * half come to, which its row has, and so what the files say of both is not read. A processor that does otherwise does not fit it. */
static llm_result llm__processor_budget(const llm__vision *v, const llm_json *d, int object) {
    if (llm__json_flag(d, object, "do_normalize", 0))
        return llm__error(LLM_ERR_UNSUPPORTED, "do_normalize: true, but the tower takes pixels that are not normalised");
    return llm__processor_fits(v, d, object, "patch_size", "pooling_kernel_size");
}

/* What LFM2-VL's has of its own. */
static llm_result llm__processor_tokens(const llm__vision *v, const llm_json *d, int object, llm__processor *p) {
    p->size = (int32_t)llm__bounded(llm__number_of(d, object, "tile_size", p->size), 1e6);
    p->min_tiles = (int32_t)llm__bounded(llm__number_of(d, object, "min_tiles", p->min_tiles), 1e6);
    p->max_tiles = (int32_t)llm__bounded(llm__number_of(d, object, "max_tiles", p->max_tiles), 1e6);
    p->least = (int32_t)llm__bounded(llm__number_of(d, object, "min_image_tokens", p->least), 1e6);
    p->tolerance = llm__number_of(d, object, "max_pixels_tolerance", p->tolerance);
    p->thumbnail = llm__json_flag(d, object, "use_thumbnail", p->thumbnail);
    p->numbered = llm__json_flag(d, object, "use_image_special_tokens", p->numbered);
    return llm__processor_fits(v, d, object, "encoder_patch_size", "downsample_factor");
}

/* What an object (preprocessor_config.json, mm_processor_kwargs) says; what it leaves out stays. */
static llm_result llm__processor_read(const llm__vision *v, const llm_json *d, int object, llm__processor *p) {
    const llm__fit_kind fit = v->family->fit;
    const int budget = fit == LLM__FIT_BUDGET, slices = fit == LLM__FIT_SLICES, tokens = fit == LLM__FIT_TOKENS;
    const char *limit = budget ? "max_soft_tokens" : tokens ? "max_image_tokens" : "in_token_limit";
    const char *const norm[2] = {slices ? "norm_mean" : budget ? "" : "image_mean", slices ? "norm_std" : budget ? "" : "image_std"};
    if (llm_json_type_of(d, object) != LLM_JSON_OBJECT) return LLM_OK;
    if (fit == LLM__FIT_CROP) llm__processor_class(d, object, p);
    p->fps = llm__number_of(d, object, "fps", p->fps);
    p->min_frames = (int32_t)llm__bounded(llm__number_of(d, object, "min_frames", p->min_frames), 1e6);
    p->max_frames = (int32_t)llm__bounded(llm__number_of(d, object, "max_frames", p->max_frames), 1e6);
    const double least = llm__length_of(d, object, "size", "shortest_edge", (double)p->min_pixels),
                 most = llm__length_of(d, object, "size", "longest_edge", (double)p->max_pixels);
    p->min_pixels = llm__bounded(llm__number_of(d, object, "min_pixels", least), 1e12);
    p->max_pixels = llm__bounded(llm__number_of(d, object, "max_pixels", most), 1e12);
    p->shortest = (int32_t)llm__bounded(llm__length_of(d, object, "size", "shortest_edge", p->shortest), 1e6);
    double size = llm__length_of(d, object, "size", "height", llm__length_of(d, object, "size", "shortest_edge", p->size));
    if (fit == LLM__FIT_CROP) size = llm__length_of(d, object, "crop_size", "height", size);
    if (fit == LLM__FIT_SPLIT) size = llm__length_of(d, object, "max_image_size", "longest_edge", p->size);
    if (fit == LLM__FIT_SLICES) size = llm__number_of(d, object, "scale_resolution", p->size);
    p->longest = (int32_t)llm__bounded(llm__length_of(d, object, "size", "longest_edge", p->longest), 1e6);
    llm__channels_of(d, object, norm[0], p->mean);
    llm__channels_of(d, object, norm[1], p->std);
    for (int c = 0; c < 3 && !budget && !llm__json_flag(d, object, "do_normalize", 1); c++) p->mean[c] = 0, p->std[c] = 1;
    p->rescale = llm__number_of(d, object, "rescale_factor", p->rescale);
    if (!llm__json_flag(d, object, "do_rescale", 1)) p->rescale = 1;
    p->filter = (llm__filter)llm__bounded(llm__number_of(d, object, "resample", p->filter), 1e6);
    p->min_tiles = (int32_t)llm__bounded(llm__number_of(d, object, "min_patches", p->min_tiles), 1e6);
    p->max_tiles =
        (int32_t)llm__bounded(llm__number_of(d, object, "max_patches", llm__number_of(d, object, "max_slice_nums", p->max_tiles)), 1e6);
    p->split = llm__json_flag(d, object, "do_image_splitting", llm__json_flag(d, object, "slice_mode", p->split));
    if (v->family->flags & LLM__EYES_SCALE && !llm__json_flag(d, object, "crop_to_patches", 1)) p->max_tiles = 1;
    p->numbered = llm__json_flag(d, object, "use_image_id", p->numbered);
    p->resize = llm__json_flag(d, object, "do_resize", p->resize);
    p->largest = llm__json_flag(d, object, "resize_to_max_canvas", p->largest);
    p->crop = llm__json_flag(d, object, "do_center_crop", p->crop);
    /* a size of two sides: what is cut out then is all of it */
    if (fit == LLM__FIT_CROP && llm_json_find(d, llm_json_find(d, object, "size"), "height") >= 0) p->crop = 0;
    p->pan = llm__json_flag(d, object, "do_pan_and_scan", p->pan);
    p->pan_least = (int32_t)llm__bounded(llm__number_of(d, object, "pan_and_scan_min_crop_size", p->pan_least), 1e6);
    p->pan_most = (int32_t)llm__bounded(llm__number_of(d, object, "pan_and_scan_max_num_crops", p->pan_most), 1e6);
    p->pan_ratio = llm__number_of(d, object, "pan_and_scan_min_ratio_to_activate", p->pan_ratio);
    llm__pinpoints_of(d, llm_json_find(d, object, "image_grid_pinpoints"), p);
    p->limit = (int32_t)llm__bounded(llm__number_of(d, object, limit, p->limit), 1e6);
    p->pad = llm__json_flag(d, object, "pad_input", p->pad);
    if (llm__fit_fixed(v)) p->size = (int32_t)llm__bounded(LLM__MAX(size, 0), 1e6);
    if (tokens) return llm__processor_tokens(v, d, object, p);
    return budget ? llm__processor_budget(v, d, object) : LLM_OK;
}

/* The same of LFM2-VL's numbers. */
static llm_result llm__processor_check_tokens(const llm__processor *p) {
    llm_result r = llm__processor_range("max_image_tokens", p->limit, 1, 65536);
    if (!r) r = llm__processor_range("min_image_tokens", p->least, 1, p->limit);
    if (!r) r = llm__processor_range("max_pixels_tolerance", p->tolerance, 0.001, 1e6);
    if (!r) r = llm__processor_range("max_tiles", p->max_tiles, 1, 256);
    return r ? r : llm__processor_range("min_tiles", p->min_tiles, 1, p->max_tiles);
}

/* What holds whatever was said. */
static llm_result llm__processor_check(const llm__vision *v, const llm__processor *p) {
    llm_result r = LLM_OK;
    const llm__fit_kind fit = v->family->fit;
    const int fixed = llm__fit_fixed(v);
    if (fit == LLM__FIT_LIMIT && !p->pad)
        return llm__error(LLM_ERR_UNSUPPORTED, "pad_input: false, but pictures are always filled up to whole blocks here");
    if (fit == LLM__FIT_LIMIT) r = llm__processor_range("in_token_limit", p->limit, 1, 65536);
    if (fit == LLM__FIT_BUDGET && p->limit != 70 && p->limit != 140 && p->limit != 280 && p->limit != 560 && p->limit != 1120)
        return llm__error(LLM_ERR_ARG, "max_soft_tokens: %d, 70, 140, 280, 560 or 1120 was expected", (int)p->limit);
    if (!p->resize) return llm__error(LLM_ERR_UNSUPPORTED, "do_resize: false, but pictures are always made to fit here");
    if (p->filter < LLM__FILTER_LANCZOS || p->filter > LLM__FILTER_HAMMING)
        return llm__error(LLM_ERR_UNSUPPORTED, "resample: %d, 1 (Lanczos) to 5 was expected", (int)p->filter);
    if (fit == LLM__FIT_TOKENS) r = llm__processor_check_tokens(p);
    if (!r && fixed) r = llm__processor_range(fit == LLM__FIT_TOKENS ? "tile_size" : "size", p->size, v->patch, 4096);
    if (!r && v->family->fit == LLM__FIT_CROP) r = llm__processor_range("shortest_edge", p->shortest, p->size, 16384);
    if (!r && fixed && v->family->fit != LLM__FIT_SLICES && p->size / v->patch % v->pool)
        r = llm__error(LLM_ERR_ARG, "size: %d, %d patches a side, which %d a side do not divide", (int)p->size, (int)(p->size / v->patch),
                       (int)v->pool);
    if (!r && v->family->fit == LLM__FIT_PATCHES) {
        r = llm__processor_range("min_pixels", (double)p->min_pixels, 1, 1e9);
        if (!r)
            r = llm__processor_range("max_pixels", (double)p->max_pixels, (double)p->min_pixels,
                                     v->family->flags & LLM__EYES_TIMES ? 1e12 : 1e9); /* perhaps of all frames together */
    }
    if (!r && (v->family->fit == LLM__FIT_EDGE || v->family->fit == LLM__FIT_SPLIT))
        r = llm__processor_range("longest_edge", p->longest, v->patch, 16384);
    if (!r && (v->family->fit == LLM__FIT_TILES || v->family->fit == LLM__FIT_SLICES || v->family->fit == LLM__FIT_CANVAS))
        r = llm__processor_range("max_patches", p->max_tiles, 1, 256);
    if (!r && v->family->fit == LLM__FIT_TILES) r = llm__processor_range("min_patches", p->min_tiles, 1, p->max_tiles);
    if (!r && v->family->flags & LLM__EYES_VIDEO) r = llm__processor_range("max_frames", p->max_frames, 1, 4096);
    if (!r && v->family->flags & LLM__EYES_VIDEO) r = llm__processor_range("fps", p->fps, v->tenths ? 0 : LLM__FPS_LEAST, LLM__FPS_MOST);
    if (!r && p->pan) r = llm__processor_range("pan_and_scan_min_crop_size", p->pan_least, 1, 16384);
    if (!r && p->pan) r = llm__processor_range("pan_and_scan_max_num_crops", p->pan_most, 1, 64);
    if (!r && p->pan) r = llm__processor_range("pan_and_scan_min_ratio_to_activate", p->pan_ratio, 1, 1e6);
    for (int c = 0; c < 3 && !r; c++)
        if (!(fabs(p->std[c]) > 1e-6)) r = llm__error(LLM_ERR_ARG, "image_std: %.9g, a number other than 0 was expected", p->std[c]);
    return r;
}

LLM__PRIVATE llm_result llm__processor_change(const llm__vision *v, const char *json, llm__processor *p) {
    /* what means something for each way of fitting, in the order of llm__fit_kind */
    static const char *const known[] = {("resample do_pan_and_scan pan_and_scan_min_crop_size pan_and_scan_max_num_crops "
                                         "pan_and_scan_min_ratio_to_activate"), /* SQUARE */
                                        "resample",                             /* CROP */
                                        "min_pixels max_pixels size resample",
                                        "size resample",
                                        "size max_image_size do_image_splitting resample",
                                        "image_grid_pinpoints resample",
                                        "crop_to_patches min_patches max_patches min_dynamic_patch max_dynamic_patch resample",
                                        "max_slice_nums slice_mode resample",
                                        "in_token_limit resample",
                                        "max_soft_tokens resample",
                                        ("min_image_tokens max_image_tokens max_pixels_tolerance do_image_splitting min_tiles max_tiles "
                                         "tile_size use_thumbnail use_image_special_tokens resample"),
                                        "max_patches resize_to_max_canvas resample"};
    static const char moving[] = "fps min_frames max_frames num_frames";
    const char *mine = known[v->family->fit];
    LLM__SCOPED(llm__json_drop) llm_json *d = NULL;
    llm_result r = llm_json_parse(json, strlen(json), NULL, &d);
    if (r || llm_json_type_of(d, 0) != LLM_JSON_OBJECT) return llm__error(LLM_ERR_ARG, "mm_processor_kwargs: a JSON object was expected");
    for (int m = llm_json_first(d, 0); m >= 0; m = llm_json_next(d, m))
        if (llm__word_index(mine, llm__json_key(d, m)) < 0 &&
            (llm__word_index(moving, llm__json_key(d, m)) < 0 || !(v->family->flags & LLM__EYES_VIDEO)))
            return llm__error(LLM_ERR_ARG, "mm_processor_kwargs: \"%.64s\" means nothing to this model; %s%s%s do",
                              llm_json_key(d, m, NULL), mine, v->family->flags & LLM__EYES_VIDEO ? " " : "",
                              v->family->flags & LLM__EYES_VIDEO ? moving : "");
    r = llm__processor_read(v, d, 0, p);
    p->max_tiles = (int32_t)llm__bounded(llm__number_of(d, 0, "max_dynamic_patch", p->max_tiles), 1e6);
    p->min_tiles = (int32_t)llm__bounded(llm__number_of(d, 0, "min_dynamic_patch", p->min_tiles), 1e6);
    p->min_frames = (int32_t)llm__bounded(llm__number_of(d, 0, "num_frames", p->min_frames), 1e6);
    p->max_frames = (int32_t)llm__bounded(llm__number_of(d, 0, "num_frames", p->max_frames), 1e6);
    if (!llm__json_flag(d, 0, "crop_to_patches", 1)) p->max_tiles = 1;
    return r ? r : llm__processor_check(v, p);
}

/* The family's usual parameters: those of the processor's class in transformers, which its files may leave out. Numbers of pixels are
 * the classes' own: they do not grow with the patches. Sides come from the tower, since a class's habit (224, 384) fits few models. */
static void llm__processor_usual(const llm__vision *v, const llm_json *config, int video, llm__processor *p) {
    const int twice = (v->family->flags & LLM__EYES_TWICE) != 0, times = (v->family->flags & LLM__EYES_TIMES) != 0;
    const int glm = (v->family->flags & LLM__EYES_BEHIND) != 0, qwen3 = video && times && !glm;
    const int64_t block = qwen3 ? 32 * 32 : 28 * 28; /* the classes' numbers, whatever the patches are */
    const double *constants = llm__constants[qwen3 ? (int)LLM__HALF : (int)v->family->constants];
    p->filter = (llm__filter)v->family->filter;
    p->rescale = 1 / 255.0;
    for (int c = 0; c < 3; c++) p->mean[c] = constants[c], p->std[c] = constants[3 + c];
    p->min_pixels = (!video ? 4 : twice ? 299 : 128) * block;
    p->max_pixels = (video ? (twice ? 1196 : 768) : twice ? 6177 : 1280) * block;
    if (v->family->flags & LLM__EYES_GROWS) p->min_pixels = 384 * 384, p->max_pixels = 1536 * 1536;
    if (glm) p->min_pixels = 16 * block, p->max_pixels = (video ? 60000 : 15000) * block;
    p->size = v->side * v->patch;
    p->longest = p->shortest = v->side * v->patch;
    p->min_tiles = (int32_t)llm__bounded(llm__number_of(config, 0, "min_dynamic_patch", 1), 1e6);
    p->max_tiles = (int32_t)llm__bounded(llm__number_of(config, 0, "max_dynamic_patch",
                                                        v->family->fit == LLM__FIT_SLICES   ? 9
                                                        : v->family->fit == LLM__FIT_CANVAS ? 16
                                                                                            : 12),
                                         1e6);
    p->split = p->numbered = p->resize = p->crop = 1;
    p->limit = v->family->fit == LLM__FIT_BUDGET ? 280 : 4096, p->pad = v->family->fit == LLM__FIT_LIMIT;
    p->least = 64, p->tolerance = 2, p->thumbnail = 1;
    if (v->family->fit == LLM__FIT_TOKENS) p->size = 512, p->min_tiles = 2, p->max_tiles = 10, p->limit = 256;
    p->pan_least = 256, p->pan_most = 4, p->pan_ratio = 1.2;
    p->fps = 2;
    p->min_frames = twice ? 16 : glm ? 1 : 4;
    p->max_frames = twice ? 180 : glm ? 600 : 768;
    llm__pinpoints_of(config, llm_json_find(config, 0, "image_grid_pinpoints"), p);
}

/* Where nobody names sizes of grids: five of LLaVA-NeXT, all of up to six tiles a side of LLaVA-OneVision. */
static void llm__pinpoints_usual(const llm__vision *v, llm__processor *p) {
    static const uint8_t next[5][2] = {{1, 2}, {2, 1}, {2, 2}, {3, 1}, {1, 3}};
    const int all = (v->family->flags & LLM__EYES_SHRINK) != 0, n = all ? 36 : 5;
    for (int i = 0; i < n && !p->n_pinpoints && v->family->fit == LLM__FIT_ANYRES; i++) {
        p->pinpoint[i][0] = p->size * (all ? 1 + i / 6 : next[i][0]);
        p->pinpoint[i][1] = p->size * (all ? 1 + i % 6 : next[i][1]);
    }
    if (!p->n_pinpoints && v->family->fit == LLM__FIT_ANYRES) p->n_pinpoints = n;
}

/* 1 if an object names the classes of GLM-4.6V, whose model_type is that of GLM-4.1V or 4.5V. */
static int llm__processor_is46(const llm_json *d, int object) {
    const char *whole = llm_json_str(d, llm_json_find(d, object, "processor_class"), NULL);
    const char *part = llm_json_str(d, llm_json_find(d, object, "image_processor_type"), NULL);
    return (whole && !strncmp(whole, "Glm46V", 6)) || (part && !strncmp(part, "Glm46V", 6));
}

/* What the folder's files say. Since version 5 transformers writes all of it into processor_config.json, as "image_processor" and
 * "video_processor"; before, there was a file for pictures and, in some folders, one for videos, else the one for pictures held for both.
 * Where both forms are there the newer one counts, as in transformers. */
static llm_result llm__processor_files(llm_model *m, llm__vision *v) {
    static const char *const names[3] = {"processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"};
    LLM__SCOPED(llm__json_drop) llm_json *all = NULL, *picture = NULL, *video = NULL;
    llm_json **const files[3] = {&all, &picture, &video};
    llm_result r = LLM_OK;
    for (int i = 0; i < 3 && !r; i++) r = llm__folder_json(&m->source, m->source.path, names[i], 16000000, files[i]);
    const int pictures = all ? llm_json_find(all, 0, "image_processor") : -1, videos = all ? llm_json_find(all, 0, "video_processor") : -1;
    if (v->family->flags & LLM__EYES_BEHIND)
        v->tenths |= (all && llm__processor_is46(all, 0)) || (pictures >= 0 && llm__processor_is46(all, pictures)) ||
                     (picture && llm__processor_is46(picture, 0));
    if (!r && pictures >= 0) r = llm__processor_read(v, all, pictures, &v->processor);
    else if (!r && picture) r = llm__processor_read(v, picture, 0, &v->processor);
    if (r || !(v->family->flags & LLM__EYES_VIDEO)) return r;
    if (videos >= 0) return llm__processor_read(v, all, videos, &v->video_processor);
    return video || picture ? llm__processor_read(v, video ? video : picture, 0, &v->video_processor) : LLM_OK;
}

/* Of the document that stands for the folder's files, where there is one. */
static llm_result llm__processor_open(llm_model *m, llm__vision *v, const llm_json *config, const llm_json *given) {
    llm__processor *p = &v->processor, *video = &v->video_processor;
    llm__processor_usual(v, config, 0, p);
    llm__processor_usual(v, config, 1, video);
    llm_result r = given ? llm__processor_read(v, given, 0, p) : llm__processor_files(m, v);
    if (given) memcpy(video->mean, p->mean, sizeof p->mean), memcpy(video->std, p->std, sizeof p->std);
    llm__pinpoints_usual(v, p);
    if (v->tenths) video->fps = 0, video->max_frames = 640; /* its class works them out, whatever its files say */
    if (!r) r = llm__processor_check(v, p);
    if (!r && v->family->flags & LLM__EYES_VIDEO) r = llm__processor_check(v, video);
    return r ? llm__error(r == LLM_ERR_ARG ? LLM_ERR_FORMAT : r, "%s: %s%.700s", v->path,
                          given ? "" : "its processor's configuration: ", llm_last_error())
             : LLM_OK;
}

/* ---- The tower ---- */

/* The row of a family by a model_type. */
static const llm__eyes_family *llm__eyes_of(const char *type) {
    for (int i = 0; i < LLM__COUNT(llm__eyes); i++)
        if (llm__word_in(llm__eyes[i].names, type)) return &llm__eyes[i];
    return NULL;
}

static const llm__tower_family *llm__tower_of(const char *type) {
    for (int i = 0; i < LLM__COUNT(llm__towers); i++)
        if (llm__word_in(llm__towers[i].names, type)) return &llm__towers[i];
    return NULL;
}

static const llm__projector *llm__projector_of(const char *name) {
    for (int i = 0; i < LLM__COUNT(llm__projectors); i++)
        if (llm__word_in(llm__projectors[i].names, name)) return &llm__projectors[i];
    return NULL;
}

/* An activation by Hugging Face's name; where there is none, the family's. */
static llm_act llm__tower_act(llm__facts *f, const char *key, llm_act usual) {
    static const struct {
        const char *names;
        llm_act act;
    } table[] = {{"gelu", LLM_ACT_GELU},
                 {"gelu_pytorch_tanh gelu_new gelu_fast", LLM_ACT_GELU_TANH},
                 {"quick_gelu", LLM_ACT_QUICK_GELU},
                 {"silu swish", LLM_ACT_SILU},
                 {"relu", LLM_ACT_RELU}};
    char name[64];
    llm__fact_str(f, key, name);
    for (int i = 0; i < LLM__COUNT(table) && name[0]; i++)
        if (llm__word_in(table[i].names, name)) return table[i].act;
    if (name[0] && !f->r) f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: %s: \"%.40s\" is not supported", f->path, key, name);
    return usual;
}

/* Patches a side that become one row, by the share of a side that stays: 2 of 0.5; `usual` where none is said. */
static int32_t llm__tower_share(llm__facts *f, const char *key, int32_t usual) {
    const double ratio = llm__fact_num(f, key, 0, 0, 1), by = ratio > 0 ? LLM__MIN(1 / ratio, 1e6) : usual;
    if ((by > 16 || fabs(by - floor(by + 0.5)) > 1e-3) && !f->r)
        f->r = llm__error(LLM_ERR_FORMAT, "%s: config.json: %s: %.9g, one by a whole number of 1 to 16 expected", f->path, key, ratio);
    return f->r ? usual : (int32_t)lround(by);
}

/* What Gemma 4's towers have of their own. */
static void llm__tower_axes(llm__facts *f, llm__vision *v) {
    v->side = llm__fact_int(f, "position_embedding_size", LLM__MUST, 1, 1 << 16);
    v->merge = llm__fact_int(f, "pooling_kernel_size", LLM__MUST, 1, 16);
    v->bounded = llm__fact_bool(f, "use_clipped_linears", 0);
    v->standard = llm__fact_bool(f, "standardize", 0);
    if (!f->r && llm__fact_int(f, "num_key_value_heads", v->n_heads, 1, 1024) != v->n_heads)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: vision_config: num_key_value_heads: %d, num_attention_heads, as many were expected",
                          f->path, llm__fact_int(f, "num_key_value_heads", v->n_heads, 1, 1024));
}

/* Widths and counts. */
static void llm__tower_shapes(llm__facts *f, llm__facts *root, llm__vision *v) {
    v->hidden = llm__fact_int(f, "embed_dim hidden_size", LLM__MUST, 8, 1 << 16);
    v->n_layers = llm__fact_int(f, "depth num_hidden_layers", LLM__MUST, 1, LLM__MAX_LAYERS);
    v->n_heads = llm__fact_int(f, "num_heads num_attention_heads", LLM__MUST, 1, 1024);
    v->head_dim = llm__fact_int(f, "head_dim", v->hidden / LLM__MAX(v->n_heads, 1), 1, 1024);
    const char *wide = v->flags & LLM__SEES_WIDE ? "out_hidden_size" : "intermediate_size";
    v->ff = llm__fact_int(f, wide, (int64_t)(v->hidden * llm__fact_num(f, "mlp_ratio", 4, 0.1, 64)), 1, 1 << 18);
    v->patch = llm__fact_item(f, "patch_size", 0, LLM__MUST, 1, 256);
    v->frames = v->family->flags & LLM__EYES_PAIRS ? llm__fact_int(f, "temporal_patch_size", 2, 1, 8) : 1;
    v->side = llm__fact_item(f, "image_size", 0, 0, 0, 16384) / LLM__MAX(v->patch, 1);
    int32_t table = llm__fact_int(f, v->flags & LLM__SEES_SMOOTH ? "num_patches" : "num_position_embeddings", 0, 0, 1 << 24);
    if (table) v->side = (int32_t)lround(sqrt(table));
    if (table && v->side * v->side != table && !f->r)
        f->r = llm__error(LLM_ERR_FORMAT, "%s: vision_config: a table of positions of %d, a square number was expected", f->path, table);
    v->side = llm__fact_int(f, "init_pos_emb_height", v->side, 0, 4096);
    if (!f->r && llm__fact_int(f, "init_pos_emb_width", v->side, 1, 4096) != v->side)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: vision_config: init_pos_emb_width: %d, as init_pos_emb_height is, was expected",
                          f->path, v->side);
    v->merge = llm__fact_int(root, "scale_factor downsample_factor",
                             llm__fact_int(f, "spatial_merge_size", llm__fact_int(root, "spatial_merge_size", 1, 1, 16), 1, 16), 1, 16);
    v->merge = llm__fact_item(f, "merge_kernel_size", 0, v->merge, 1, 16);
    if (v->flags & LLM__SEES_AXES) llm__tower_axes(f, v);
    v->merge = llm__tower_share(root, "downsample_ratio", llm__tower_share(f, "pixel_shuffle_ratio", v->merge));
    v->pool = v->merge;
    int32_t mean = llm__fact_int(root, "mm_tokens_per_image", 0, 0, 1 << 20);
    if (mean) v->pool = (int32_t)LLM__MAX(1, v->side / LLM__MAX(1, lround(sqrt(mean))));
    v->eps = (float)llm__fact_num(f, "layer_norm_eps rms_norm_eps", (double)v->tower->eps, 1e-20, 1);
    llm__facts rope = llm__facts_in(f, llm__facts_find(f, "rope_parameters").node);
    v->theta = llm__fact_num(&rope, "rope_theta", 10000, 1.0001, 1e18);
    if (!f->r) f->r = rope.r;
    v->act = llm__tower_act(f, "hidden_act hidden_activation", v->tower->act);
    v->own_eps = (float)llm__fact_num(root, "adapter_layer_norm_eps", 1e-6, 1e-20, 1);
    if (v->bounded && v->act != LLM_ACT_GELU_TANH && v->act != LLM_ACT_GELU && v->act != LLM_ACT_SILU && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: hidden_activation: beside use_clipped_linears gelu or silu expected",
                          f->path);
    v->plain = !llm__fact_bool(root, "projector_use_layernorm", 1);
    v->projector_act = llm__tower_act(root, "projector_hidden_act", LLM_ACT_GELU);
    v->patch_values = 3 * v->frames * v->patch * v->patch;
    if (f->r) return;
    if (v->n_heads * v->head_dim > 1 << 16 || v->head_dim % 2)
        f->r = llm__error(LLM_ERR_FORMAT, "%s: vision_config: %d heads of %d values", f->path, v->n_heads, v->head_dim);
    else if (v->flags & LLM__SEES_ROPE && v->head_dim % 4)
        f->r = llm__error(LLM_ERR_FORMAT, "%s: vision_config: heads of %d values, a multiple of 4 expected", f->path, v->head_dim);
    else if (v->flags & LLM__SEES_TABLE && v->side < 1)
        f->r =
            llm__error(LLM_ERR_FORMAT, "%s: vision_config: a table of positions of %d a side, at least 1 was expected", f->path, v->side);
    else if (v->flags & LLM__SEES_SMOOTH && v->side > LLM__MAX_TAPS)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: vision_config: num_patches: %d, at most %d were expected", f->path, table,
                          LLM__MAX_TAPS * LLM__MAX_TAPS);
    else if (v->frames != 1 && v->frames != 2)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: vision_config: temporal_patch_size %d, 1 or 2 expected", f->path, v->frames);
}

/* Whether the class token's row goes on with the others: "full" in LLaVA's words, "default" drops what stands first. Of a tower that has no
 * such token that would be a patch, which nobody means; of tiles, whose rows form a grid, one row more fits nowhere. */
static void llm__tower_select(llm__facts *root, llm__vision *v) {
    char text[64];
    const int has_class = (v->flags & LLM__SEES_CLASS) != 0;
    if (!llm__fact_str(root, "vision_feature_select_strategy", text)[0] || root->r) return;
    if (strcmp(text, "full") && strcmp(text, "default"))
        root->r = llm__error(LLM_ERR_FORMAT, "%s: config.json: vision_feature_select_strategy: \"%.40s\", \"default\" or \"full\" expected",
                             root->path, text);
    else if (!strcmp(text, "full")) v->keeps_class = has_class;
    else if (!has_class && strcmp(v->projector->names, "pixtral"))
        root->r = llm__error(LLM_ERR_UNSUPPORTED,
                             "%s: config.json: vision_feature_select_strategy: \"default\" drops a patch of a tower without a class token; "
                             "\"full\" was expected",
                             root->path);
    if (!root->r && v->keeps_class && v->family->fit != LLM__FIT_CROP)
        root->r = llm__error(LLM_ERR_UNSUPPORTED,
                             "%s: config.json: vision_feature_select_strategy: \"full\" is supported for LLaVA 1.5's way of fitting only",
                             root->path);
}

/* Another layer of DeepStack: they are kept in the order in which they are computed, for the language model takes them so. */
static void llm__tower_deepen(llm__vision *v, int32_t layer) {
    int32_t at = v->n_deep;
    for (; at > 0 && v->deep[at - 1] > layer; at--) v->deep[at] = v->deep[at - 1], v->merger[at] = v->merger[at - 1];
    v->deep[at] = layer;
    v->merger[at] = v->n_deep++;
}

/* A layer by its number, as vision_feature_layer has it: 1 is the first, -1 the last. 0: there is none of that number. */
static int32_t llm__tower_numbered(const llm__vision *v, int64_t number) {
    const int64_t layer = number < 0 ? v->n_layers + 1 + number : number;
    return layer >= 1 && layer <= v->n_layers ? (int32_t)layer : 0;
}

/* The layers whose rows the projector gets: one, or (LLaVA's projector) a list of them, side by side in the order of the list. */
static void llm__tower_feature_layers(llm__facts *f, llm__facts *root, llm__vision *v) {
    const llm__fact list = llm__facts_find(root, "vision_feature_layer");
    const int several = llm_json_size(root->json, list.node) > 1;
    int64_t number = 0;
    int bad = several && strncmp(v->projector->names, "llava", 5); /* others take one */
    v->n_used = llm__tower_numbered(v, llm__fact_item(root, "vision_feature_layer select_layer", 0, -1, -512, 512));
    for (int x = several ? llm_json_first(root->json, list.node) : -1; x >= 0 && !bad; x = llm_json_next(root->json, x)) {
        const int32_t layer = llm_json_int(root->json, x, &number) ? llm__tower_numbered(v, number) : 0;
        bad = v->n_taken == LLM__MAX_TAKEN || !layer;
        if (!bad) v->taken[v->n_taken++] = layer;
        v->n_used = LLM__MAX(v->n_used, layer);
    }
    if (llm__fact_bool(root, "drop_vision_last_layer", 0)) v->n_used--; /* MiniCPM-V 2.5 */
    if (!f->r && (bad || v->n_used < 1))
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: vision_feature_layer: %s of the tower's %d layers expected", f->path,
                          strncmp(v->projector->names, "llava", 5) ? "one" : "one, or a list of 16 at most,", v->n_layers);
}

/* Which layers see windows, and which have something for the language model's own layers. */
static void llm__tower_layers(llm__facts *f, llm__vision *v) {
    int64_t i;
    const int unit = v->patch * v->merge;
    const llm__fact full = llm__facts_find(f, "fullatt_block_indexes"), deep = llm__facts_find(f, "deepstack_visual_indexes");
    if (!strcmp(v->family->names, "qwen2_5_vl")) v->window = llm__fact_int(f, "window_size", 112, unit, 1 << 16) / LLM__MAX(unit, 1);
    for (int k = 7; k < LLM__MIN(v->n_layers, 32) && v->window && full.node < 0; k += 8)
        v->full[k] = 1; /* as the classes have it: 7, 15, 23, 31 */
    for (int x = llm_json_first(f->json, full.node); x >= 0; x = llm_json_next(f->json, x))
        if (llm_json_int(f->json, x, &i) && i >= 0 && i < v->n_layers) v->full[i] = 1;
    for (int k = 8; k < LLM__MIN(v->n_layers, 25) && deep.node < 0 && v->flags & LLM__SEES_DEEP; k += 8) llm__tower_deepen(v, k);
    for (int x = llm_json_first(f->json, deep.node); x >= 0; x = llm_json_next(f->json, x)) {
        if (llm_json_int(f->json, x, &i) && i >= 0 && i < v->n_layers && v->n_deep < LLM__MAX_DEEP) llm__tower_deepen(v, (int32_t)i);
        else if (!f->r)
            f->r = llm__error(LLM_ERR_FORMAT, "%s: vision_config: deepstack_visual_indexes: at most %d layers expected", f->path,
                              LLM__MAX_DEEP);
    }
}

/* A text in the model's arena. */
static const char *llm__vision_text(llm_model *m, llm__str s) { return s.p ? llm__arena_str(&m->source.arena, s) : NULL; }

/* The id of a placeholder, by the config's number or by its text; and its text. */
static int32_t llm__placeholder(llm_model *m, llm__facts *root, const char *keys, const char *usual, const char **text) {
    LLM__SCOPED(llm_text_free) llm_text piece = LLM__ZERO;
    int32_t id = llm__fact_int(root, keys, usual ? llm__tokenizer_id(m->source.tokenizer, llm__lit(usual)) : -1, -1, INT32_MAX - 1);
    if (id >= 0 && id < m->source.tokenizer->n_vocab && !llm__tokenizer_piece(m->source.tokenizer, id, &piece))
        *text = llm__vision_text(m, llm__text_str(&piece));
    return *text ? id : -1;
}

/* What the prompt has for a picture. */
static void llm__vision_marks(llm_model *m, llm__facts *root, llm__vision *v) {
    static const char *const sets[] = {"image_start_token_id", "image_end_token_id", "video_start_token_id", "video_end_token_id"};
    static const char *const names[] = {"<|IMAGE_START|>", "<|IMAGE_END|>", "<|VIDEO_START|>", "<|VIDEO_END|>"};
    const llm__tokenizer *t = m->source.tokenizer;
    const int slices = v->family->marks == LLM__MARKS_SLICES, tiles = v->family->marks == LLM__MARKS_TILES;
    const int numbered = v->family->marks == LLM__MARKS_NUMBERED;
    v->image_id = llm__placeholder(m, root, slices ? "" : "image_token_id image_token_index media_placeholder_token_id",
                                   slices     ? "<unk>"
                                   : tiles    ? "<|patch|>"
                                   : numbered ? "<|IMG_PATCH|>"
                                              : v->family->token,
                                   &v->image_token);
    v->in_text = (v->family->flags & LLM__EYES_IN_TEXT) != 0;
    if (v->gguf && v->image_id < 0 && !strcmp(v->family->projector, "llava")) {
        /* the vocabulary of LLaVA 1.5's language model has no token for pictures, and its template knows none */
        v->image_id = llm__placeholder(m, root, "", "<unk>", &v->image_token);
        v->in_text = v->image_id >= 0;
    }
    v->video_id = llm__placeholder(m, root, "video_token_id video_token_index", v->family->video_token, &v->video_token);
    if (!(v->family->flags & LLM__EYES_VIDEO)) v->video_id = -1;
    v->placeholder = v->in_text || tiles || numbered || v->family->begin[0] == '\n' || !v->image_token ? v->family->token : v->image_token;
    v->video_placeholder = v->video_token;
    v->row_end = tiles ? "<|tile_x_separator|>" : v->family->marks == LLM__MARKS_BROKEN ? "<|IMG_LINE_BREAK|>" : "[IMG_BREAK]";
    v->last_end = tiles ? "<|tile_y_separator|>" : "[IMG_END]";
    v->start = "<|vision_start|>";
    v->stop = "<|vision_end|>";
    v->film_begin = v->film_end = -1;
    if (v->family->flags & LLM__EYES_BEHIND) {
        v->start = "<|begin_of_image|>";
        v->stop = "<|end_of_image|>";
        v->film_begin = llm__tokenizer_id(t, llm__lit("<|begin_of_video|>"));
        v->film_end = llm__tokenizer_id(t, llm__lit("<|end_of_video|>"));
        if (v->film_begin < 0 || v->film_end < 0) v->video_id = -1;
    }
    for (int i = 0; i < 4 && m->arch.n_sets > 1; i++) {
        int32_t id = llm__fact_int(root, sets[i], llm__tokenizer_id(t, llm__lit(names[i])), -1, INT32_MAX - 1);
        if (id >= 0) v->set_ids[v->n_set_ids++] = id;
    }
    if (m->arch.n_sets > 1 && v->image_id >= 0) v->set_ids[v->n_set_ids++] = v->image_id;
    if (m->arch.n_sets > 1 && v->video_id >= 0) v->set_ids[v->n_set_ids++] = v->video_id;
}

/* Whether the tokens of a picture see each other both ways, see llm__arch.both_ways. Gemma 4's smaller models are causal throughout; of a
 * GGUF file only their width tells them, as in llama.cpp. */
static int32_t llm__vision_spans(const llm_model *m, const llm__facts *root, const llm__vision *v) {
    const llm_json *d = root->json;
    const char *how = llm_json_str(d, llm_json_find(d, llm_json_find(d, 0, "text_config"), "use_bidirectional_attention"), NULL);
    if (!strcmp(v->projector->names, "gemma3")) return 1;
    if (strcmp(v->projector->names, "gemma4")) return 0;
    if (v->gguf) return m->arch.hidden == 1536 || m->arch.hidden == 2560 ? 0 : 2;
    return how && !strcmp(how, "vision") ? 2 : 0;
}

/* What config.json says beside the shapes. */
static void llm__vision_rest(llm_model *m, llm__facts *root, llm__vision *v) {
    char text[64];
    v->out = m->arch.hidden;
    v->text_eps = m->arch.eps;
    v->row_scale = llm__arch_is(&m->arch, "granite granitemoe") ? m->arch.embed_scale : 1; /* theirs is for all rows, others' for tokens */
    v->n_query = llm__fact_int(root, "query_num", 64, 1, 4096);
    llm__facts in = llm__facts_in(root, llm__facts_find(root, "vision_config").node);
    v->tokens_per_second = llm__fact_num(&in, "tokens_per_second", v->family->flags & LLM__EYES_SECONDS ? 4 : 1, 0, 1e6);
    if (!(v->family->flags & LLM__EYES_SECONDS)) v->tokens_per_second = 0;
    llm__fact_str(root, "vision_aspect_ratio", text);
    if (!text[0]) memcpy(text, "anyres_max_9", 13);
    if (v->family->flags & LLM__EYES_SHRINK && !strncmp(text, "anyres_max_", 11)) v->shrink_tiles = (int32_t)strtol(text + 11, NULL, 10);
    m->arch.n_deepstack = v->n_deep;
    m->arch.both_ways = llm__vision_spans(m, root, v);
    const llm__facts words = llm__facts_in(root, llm__facts_find(root, "text_config").node);
    const int64_t blank = llm__json_whole(words.json, llm_json_find(words.json, words.node[0], "pad_token_id"), 0);
    v->blank_id = !m->arch.per_layer ? -1 : v->gguf ? 0 : (int32_t)LLM__MIN(LLM__MAX(blank, 0), m->arch.vocab - 1);
    v->seq_len = 0;
}

/* Everything that config.json says. */
static llm_result llm__vision_config(llm_model *m, llm__vision *v, const llm_json *config) {
    llm__facts root = LLM__ZERO, f;
    char type[64], tower[64];
    root.path = v->path;
    root.json = config;
    root.n_nodes = 1;
    llm__fact_str(&root, "model_type", type);
    v->family = llm__eyes_of(type);
    const int object = llm__facts_find(&root, "vision_config").node;
    f = root;
    f.node[0] = object;
    root.defaults = v->family ? v->family->defaults : NULL;
    if (llm_json_type_of(root.json, object) != LLM_JSON_OBJECT)
        return llm__error(LLM_ERR_FORMAT, "%s: config.json: vision_config: an object expected", v->path);
    llm__fact_str(&f, "model_type", tower);
    v->tower = llm__tower_of(tower[0] ? tower : type);
    if (!v->tower && v->family) v->tower = llm__tower_of(type);
    if (!v->family || !v->tower)
        return llm__error(LLM_ERR_UNSUPPORTED,
                          "%s: config.json: a model that sees of the type \"%.40s\" with a tower of the type \"%.40s\" is not supported",
                          v->path, type, tower);
    v->tenths = !strcmp(type, "glm46v");
    if (!strcmp(tower, "pixtral")) v->family = llm__eyes_of("mistral3"); /* also in LLaVA's clothes */
    v->projector = llm__projector_of(v->family->projector);
    v->flags = v->tower->flags;
    f.defaults = v->tower->defaults;
    if (v->family->fit == LLM__FIT_SLICES) v->flags |= LLM__SEES_BUCKETS;
    if (!strcmp(llm__fact_str(&f, "norm_type", type), "rms_norm")) v->flags |= LLM__SEES_RMS;
    v->unplaced = !llm__fact_bool(&f, "use_absolute_position_embeddings", 1);
    llm__vision_marks(m, &root, v); /* without a token for pictures nothing is asked of a tower */
    if (v->image_id < 0 || root.r) return root.r;
    llm__tower_shapes(&f, &root, v);
    if (!f.r) llm__tower_feature_layers(&f, &root, v);
    if (!f.r) llm__tower_layers(&f, v);
    if (!f.r) llm__tower_select(&root, v);
    if (f.r || root.r) return f.r ? f.r : root.r;
    llm__vision_rest(m, &root, v);
    if (v->gguf && v->family->flags & (LLM__EYES_BEHIND | LLM__EYES_GROWS) && m->arch.position_rows != 3 && !root.r)
        root.r = llm__error(LLM_ERR_FORMAT, "%s: no %s.rope.dimension_sections: converted as a model of text, one that sees was expected",
                            m->path, m->arch.name);
    return root.r;
}

/* 1 if the model's files say that it sees, and that is asked for. */
static int llm__sees(const llm_model *m, const llm_model_config *cfg) {
    const llm_json *config = m->source.config;
    const int told = llm_json_find(config, 0, "vision_config");
    /* null: a model of texts alone that was made of one that sees */
    if (m->source.gguf || (cfg && cfg->language_model_only) || told < 0 || llm_json_type_of(config, told) == LLM_JSON_NULL) return 0;
    return llm__eyes_of(llm_json_str(config, llm_json_find(config, 0, "model_type"), NULL)) != NULL;
}

/* stb_image, where the program has it and names no other reader. */
#if !defined(LLM_STATIC)
LLM_API const llm_picture_reader *llm_picture_reader_stb(void) __attribute__((weak));
static const llm_picture_reader *llm__reader_there(void) { return llm_picture_reader_stb ? llm_picture_reader_stb() : NULL; }
#elif defined(LLM_IMAGE_IMPLEMENTATION)
static const llm_picture_reader *llm__reader_there(void) { return llm_picture_reader_stb(); }
#else
static const llm_picture_reader *llm__reader_there(void) { return NULL; }
#endif

LLM__PRIVATE llm_result llm__vision_open(llm_model *m, const llm_model_config *cfg) {
    LLM__SCOPED(llm__json_drop) llm_json *config = NULL, *processor = NULL;
    const char *mmproj = cfg ? cfg->mmproj : NULL;
    if (mmproj && (cfg->language_model_only || !m->source.gguf))
        return llm__error(LLM_ERR_ARG, "mmproj: %.300s: %s", mmproj,
                          m->source.gguf ? "with language_model_only the model does not see; one of them was expected"
                                         : "such a file goes with a GGUF model; a folder has its tower in its own files");
    if (!m->arch.n_layers || (!mmproj && !llm__sees(m, cfg))) return LLM_OK;
    llm__vision *v = (llm__vision *)llm__arena_get(&m->source.arena, sizeof *v);
    if (!v) return llm__nomem();
    v->path = m->path;
    v->tensors = mmproj ? &m->source.mmproj : &m->source.tensors;
    v->gguf = mmproj != NULL;
    v->reader = cfg && cfg->picture_reader ? cfg->picture_reader : llm__reader_there();
    llm__random_bytes(v->secret, sizeof v->secret);
    llm_result r = mmproj ? llm__mmproj_open(m, mmproj, &v->path, &config, &processor) : LLM_OK;
    if (!r) r = llm__vision_config(m, v, config ? config : m->source.config);
    if (!r && v->image_id >= 0) r = llm__processor_open(m, v, config ? config : m->source.config, processor);
    if (r || v->image_id >= 0) {
        if (!r) m->vision = v;
        return r;
    }
    if (mmproj) return llm__error(LLM_ERR_FORMAT, "%s: its tokenizer has no \"%s\", which stands for a picture", m->path, v->family->token);
    m->blind = 1;
    llm__log(&m->source.log, LLM_LOG_WARN,
             "%s: its tokenizer has no \"%s\", which stands for a picture: it is read as a model that does not see", m->path,
             v->family->token);
    return LLM_OK;
}

LLM__PRIVATE int32_t llm__vision_set(const llm__vision *v, int32_t id) {
    for (int32_t i = 0; i < v->n_set_ids; i++)
        if (v->set_ids[i] == id) return 1;
    return 0;
}
