/* resize: resizing as Pillow does it, to the bit.
 *
 * Models were trained on what Pillow makes of pictures, so this is its way: a filter that is stretched when a picture shrinks (so that
 * every pixel of the source counts, "antialiasing"), one axis after the other, the result of each rounded to bytes: across first, unless
 * the height loses more than twice as many pixels as the width. A pixel of the result is
 *
 *     sum over x of f((x + 0.5 - centre) / stretch) * source[x],  centre = (i + 0.5) * in / out,  stretch = max(1, in / out)
 *
 * with the weights made to sum to one, then rounded to 22 bits behind the point. An axis that keeps its length is left alone. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "vision/picture.h"

/* By the numbers that preprocessor_config.json's "resample" has from Pillow. */
typedef enum llm__filter {
    LLM__FILTER_LANCZOS = 1,
    LLM__FILTER_BILINEAR = 2,
    LLM__FILTER_BICUBIC = 3,
    LLM__FILTER_BOX = 4,
    LLM__FILTER_HAMMING = 5
} llm__filter;

/* The picture with w x h pixels; out is new, also where nothing changes. */
LLM__PRIVATE llm_result llm__resize(const llm__picture *src, int32_t w, int32_t h, llm__filter filter, llm__picture *out);
