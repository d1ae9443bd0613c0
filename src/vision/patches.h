/* patches: what the tower reads of a view: its patches' values, and where they stand.
 *
 * Pixels go from bytes to values as the family's processor computes it, for some were trained with what it rounds: Llama 4's scales, moves
 * and divides in bf16, in that order, so that 200 becomes 0.5703125 and not 0.56862745.
 *
 * Patches are taken in blocks of pool x pool, blocks from left to right and from above, and so within a block: those that make a row of the
 * language model follow each other, whatever the family. Attention does not care, for every patch brings its place along. */
#pragma once
#include "api/media.h"
#include "base/platform.h"
#include "vision/vision.h"
#include "vision/fit.h"

/* Row and column of a view's i-th patch. */
LLM__PRIVATE void llm__patch_place(const llm__vision *v, const llm__media_view *view, int32_t i, int32_t *row, int32_t *col);

/* (patch_values) values of it, as the weights of the first layer have them: channel by channel, in each frame by frame, row by row. */
LLM__PRIVATE void llm__patch_values(const llm_media *m, const llm__media_view *view, int32_t i, float *out);
