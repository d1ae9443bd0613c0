/* gif: animations, frame by frame.
 *
 * A GIF (89a) is a screen of w x h pixels, onto which pictures of 256 colours are put one after the other; before each stands how long it
 * is shown and what becomes of it afterwards: it stays, its place is cleared, or what was there before comes back. Pixels are packed by LZW
 * (Welch 1984). Frames are decoded one at a time onto one canvas, so that an animation of any length takes the memory of three screens. */
#pragma once
#include "api/config.h"
#include "base/platform.h"

typedef struct llm__gif {
    int32_t w, h;
    uint8_t *canvas; /* (h, w, 4) RGBA: the frame that was read last */
    int32_t n_frames;
    double seconds; /* that all frames are shown */
    double at;      /* when the frame on the canvas begins to be shown */
    /* how far the file was read, and what is to be done before the next frame */
    const uint8_t *data;
    size_t n, next;
    uint8_t *before;  /* the canvas before the latest frame, where it has to come back */
    uint8_t *indices; /* (h, w) of a frame */
    const uint8_t *palette;
    int32_t n_palette, dispose, x, y, fw, fh; /* of the latest frame */
    double delay;
} llm__gif;

/* Counts the frames and makes a canvas. `data` must outlive it. On error too llm__gif_close is to be called. */
LLM__PRIVATE llm_result llm__gif_open(const uint8_t *data, size_t n, llm__gif *g);

/* Puts the next frame onto the canvas; to be called at most n_frames times. What a broken frame lacks stays as it was. */
LLM__PRIVATE llm_result llm__gif_next(llm__gif *g);

/* For LLM__SCOPED. */
LLM__PRIVATE void llm__gif_close(llm__gif *g);
