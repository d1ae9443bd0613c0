/* fit: how a picture becomes views: resized, padded and cut as the family's processor does it.
 *
 * A view is what the tower sees at once: a picture in its own shape (Qwen2-VL, Pixtral), a square of fixed size (CLIP, Gemma 3), or one of
 * several tiles or slices, with the whole picture small before or behind them. Of a video a view is a frame, or two frames that share their
 * patches. Where a formula looks odd it is the one that the model was trained with.
 *
 *     500 x 300, InternVL with tiles of 448, 1 to 12:   grid 5 x 3 has the nearest shape, so 2240 x 1344 in 15 tiles, and the whole as 16th
 *     500 x 300, Cohere2 Vision with tiles of 512, to 12:  1 tile; 1000 x 600: grid 2 x 2, so 1024 x 1024 in 4 tiles, and the whole as 5th
 *     500 x 300, Idefics 3 with tiles of 364 to 1456:   1456 x 874, then 1456 x 1092 in 3 rows of 4 tiles, and the whole
 *     500 x 300, Llama 4 with tiles of 336 to 16: the same size on black of 672 x 336, in 2 tiles, and the whole
 *     500 x 300, Qwen2-VL with blocks of 28:            504 x 308, 36 x 22 patches
 *     500 x 300, LFM2-VL with blocks of 32, 64 to 256 tokens:  512 x 288; 1000 x 600: 3 x 2 tiles of 512, and 640 x 384
 *      20 x  10, PaddleOCR-VL with blocks of 28:         as 56 x 28, and then as Qwen2-VL's
 *     500 x 300, Kimi-VL with blocks of 28:             the same size, on black of 504 x 308
 *     500 x 300, Gemma 4 with blocks of 48 and 280 tokens:  1008 x 576, 63 x 36 patches
 *     900 x 300, Gemma 3 with do_pan_and_scan:          the whole as a square, and three pieces of 300 x 300 as squares
 *
 * Llama 4 has canvases of up to max_patches tiles, rows x columns in every shape. A picture takes the one in which it has to grow least, or
 * if none is large enough the one in which it shrinks least; of those the smallest. It stands in the upper left corner of it, with its own
 * size if it is larger than a tile and fits, else its longer side is as long as a tile or as the canvas lets it be; the rest is black:
 *
 *      40 x  30 of tiles of 32:   1 x 2 tiles, the picture as it is, and all of it squeezed into a third one
 *      20 x  32                   1 tile, the picture as it is, and no other
 *     300 x 200, at most 4        2 x 2 tiles, 64 x 42
 *
 * Gemma 4 fills a budget: of a picture of w x h a side becomes floor(side sqrt(tokens block^2 / (w h)) / block) blocks, a block being 3
 * patches of 16. So small pictures grow, and one that is too long for a block across gets one, and as many along as its shape asks for.
 * How many tokens a picture may have (70 to 1120) its processor says, and a request may.
 *
 * Sizes are compared with those of the processors in transformers (make vision-shapes), and pixels with theirs: the prompt has a token for
 * each row that a view gives, so a picture that is one patch larger here would shift all that stands behind it. */
#pragma once
#include "api/config.h"
#include "api/media.h"
#include "base/platform.h"
#include "vision/picture.h"
#include "vision/vision.h"

typedef struct llm__media_view {
    llm__picture pixels[2]; /* the second of a pair of frames; none: the first again */
    int32_t rows, cols;     /* patches */
} llm__media_view;

/* Tokens of the prompt that stand side by side and have places of their own: (t, h, w) of them. */
typedef struct llm__token_run {
    int32_t t, h, w;
} llm__token_run;

/* One picture or video. Written by llm_media_open; `rows` by the stepping thread of an engine, before it sets `ready`. */
struct llm_media {
    int refs; /* atomic */
    const llm__vision *vision;
    llm_media_info info;
    llm__processor processor;
    llm__media_view *view; /* (n_views) */
    int32_t n_views, cap;
    int32_t grid_rows, grid_cols; /* of tiles or slices; 0: the picture was not cut */
    double pair_seconds, *times;  /* of a video: seconds that a view lasts, (n_views) and when it is shown */
    int32_t new_rows;             /* 1: each row of tiles, or the picture, ends in a newline */
    uint64_t hash[2];             /* of all that the tower and the language model see of it */
    size_t bytes;                 /* of pixels and rows */
    float *values;                /* (n_tokens, width) what the language model sees; NULL: there is no room for it yet */
    float *raw;                   /* (rows of all views, raw_width) where the last step is made here: see >>assemble; NULL: nowhere */
    int32_t raw_width;
    int ready;          /* atomic */
    const void *engine; /* that knows it, under that engine's mutex; NULL: none */
};

/* The views of a picture; frames of a video one after the other. Takes the pixels over, in errors too. */
LLM__PRIVATE llm_result llm__fit(llm_media *m, llm__picture *picture, int n_images);

/* Height and width of a picture in its own shape, as Qwen2-VL's smart_resize. frames: of a video whose pixels count together; 1: else. any:
 * 1: a side is a block at least before the bounds are looked at, and may be as long as it is (LFM2-VL). */
LLM__PRIVATE llm_result llm__fit_blocks(int64_t h, int64_t w, int64_t frames, int64_t factor, int64_t least, int64_t most, int any,
                                        int32_t out[2]);

/* Height and width of a video's frames. taken: how many are taken of it. The bounds are those of a frame, and of Qwen3-VL those of all
 * frames together, whose number is rounded to pairs before they are compared; there, too, a small frame grows first until its shorter
 * side is a block. */
LLM__PRIVATE llm_result llm__fit_film(const llm__vision *v, const llm__processor *p, int64_t h, int64_t w, int64_t taken, int32_t out[2]);

/* Two frames of one size as a view; second may have no pixels. Takes them over. */
LLM__PRIVATE llm_result llm__fit_frames(llm_media *m, llm__picture *first, llm__picture *second, int32_t w, int32_t h);

/* How many of n frames that last `seconds` are taken, a whole number of pairs where frames are taken together. */
LLM__PRIVATE int32_t llm__frames_taken(const llm__vision *v, const llm__processor *p, int32_t n, double seconds);

/* 1 if they are spread from the first frame to the last (Qwen3-VL); else each stands at the head of an equal share. */
LLM__PRIVATE int llm__frames_to_the_last(const llm__vision *v);

/* Frames of a film from one that is taken to the next, each the first at its time or later (GLM-4.1V); 0: of other families. */
LLM__PRIVATE double llm__frame_step(const llm__vision *v, const llm__processor *p, int32_t n, double seconds);

/* Which of n frames is the i-th taken. */
LLM__PRIVATE int32_t llm__frame_at(const llm__vision *v, int32_t i, int32_t n, int32_t taken, double step);

/* Rows of the language model that a view gives. */
LLM__PRIVATE int32_t llm__view_rows(const llm__vision *v, const llm__media_view *view);
