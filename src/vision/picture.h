/* picture: pictures as three bytes a pixel, out of files and raw pixels.
 *
 * Files come from strangers. What they are is told by their first bytes; how large they say they are is compared with a bound before
 * anything is decoded; and what decodes JPEG, PNG and BMP is a reader that the program hands in (>>api-media), for llm.h has none itself.
 * GIFs are read here (>>gif). Alpha and orientation are treated as the processor of the model's family does. Of channels of 16 bits the
 * upper eight count: Pillow does the same in colours, but makes grey ones white above 255, and nothing is left to see of the picture. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "api/media.h"
#include "base/platform.h"

/* Pixels of a picture at most: a photograph of 108 million is common, and one of 9,000 x 9,000 more than any model looks at. */
enum { LLM__MAX_PIXELS = 128 << 20, LLM__MAX_SIDE = 65535 };

typedef struct llm__picture {
    int32_t w, h;
    uint8_t *rgb; /* (h, w, 3) */
} llm__picture;

/* How a family's processor makes three bytes of what a file has. */
enum { LLM__DROP_ALPHA = 1, LLM__KEEP_ORIENTATION = 2 };

/* For LLM__SCOPED. */
LLM__PRIVATE void llm__picture_free(llm__picture *p);

/* A black picture. 0: no memory, which is the error. */
LLM__PRIVATE int llm__picture_new(int32_t w, int32_t h, llm__picture *out);

/* Checks a size that a file or a caller claims. */
LLM__PRIVATE llm_result llm__picture_size(int64_t w, int64_t h);

/* Pixels of 1 to 4 channels become three bytes: grey three times; alpha over white, or dropped. */
LLM__PRIVATE llm_result llm__picture_pixels(const llm_frame *frame, int how, llm__picture *out);

/* What the file is, by its first bytes: "a PNG", "a WebP picture", ...; NULL: none of those that are known here. */
LLM__PRIVATE const char *llm__picture_kind(const uint8_t *data, size_t n);

/* Decodes a file of a still picture, or the first frame of a GIF. reader NULL: GIFs only. */
LLM__PRIVATE llm_result llm__picture_read(const llm_picture_reader *reader, const uint8_t *data, size_t n, int how, llm__picture *out);

/* The w x h pixels of src from (x, y) on, as a picture of its own. */
LLM__PRIVATE llm_result llm__picture_cut(const llm__picture *src, int32_t x, int32_t y, int32_t w, int32_t h, llm__picture *out);

/* Puts src onto dst with its corner at (x, y); all of it lies within. */
LLM__PRIVATE void llm__picture_paste(llm__picture *dst, const llm__picture *src, int32_t x, int32_t y);
