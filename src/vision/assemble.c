#include "vision/assemble.h"
#include "api/media.h"
#include "base/platform.h"
#include "vision/fit.h"
#include "vision/marks.h"

/* The row of the whole grid at (y, x): tiles stand row by row behind the first view. */
static const float *llm__grid_row(const llm_media *m, int32_t side, int32_t y, int32_t x) {
    const int32_t tile = 1 + y / side * m->grid_cols + x / side, in = y % side * side + x % side;
    return m->raw + ((size_t)tile * (size_t)side * (size_t)side + (size_t)in) * (size_t)m->raw_width;
}

/* Place i of n that stretch over `size`: half-pixel centres, no antialiasing; the two it lies between, and how far it is from the first. */
static float llm__between(int32_t i, int32_t n, int32_t size, int32_t at[2]) {
    const float place = LLM__MAX(((float)i + 0.5f) * ((float)size / (float)n) - 0.5f, 0);
    at[0] = LLM__MIN((int32_t)place, size - 1);
    at[1] = LLM__MIN(at[0] + 1, size - 1);
    return place - (float)at[0];
}

LLM__PRIVATE void llm__assemble(llm_media *m, const float *newline) {
    const llm__unpad u = llm__unpad_of(m);
    const int32_t side = m->view[0].rows / m->vision->pool, D = m->raw_width;
    const size_t bytes = (size_t)D * sizeof(float);
    float *to = m->values + (size_t)side * (size_t)side * (size_t)D;
    memcpy(m->values, m->raw, (size_t)side * (size_t)side * bytes);
    if (!m->grid_rows) memcpy(to, newline, bytes);
    for (int32_t i = 0; i < u.to_h && m->grid_rows; i++, to += D) {
        for (int32_t j = 0; j < u.to_w; j++, to += D) {
            int32_t y[2], x[2];
            const float dy = llm__between(i, u.to_h, u.h, y), dx = llm__between(j, u.to_w, u.w, x);
            const float *from[4];
            for (int k = 0; k < 4; k++) from[k] = llm__grid_row(m, side, u.top + y[k / 2], u.left + x[k % 2]);
            if (u.to_h == u.h && u.to_w == u.w) memcpy(to, from[0], bytes);
            else
                for (int32_t c = 0; c < D; c++)
                    to[c] = (1 - dy) * ((1 - dx) * from[0][c] + dx * from[1][c]) + dy * ((1 - dx) * from[2][c] + dx * from[3][c]);
        }
        memcpy(to, newline, bytes);
    }
}
