#include "vision/patches.h"
#include "api/media.h"
#include "base/platform.h"
#include "vision/picture.h"
#include "vision/tower_kinds.h"
#include "vision/vision.h"
#include "vision/fit.h"

LLM__PRIVATE void llm__patch_place(const llm__vision *v, const llm__media_view *view, int32_t i, int32_t *row, int32_t *col) {
    const int32_t k = v->pool, block = i / (k * k), in = i % (k * k), across = view->cols / k;
    *row = block / across * k + in / k;
    *col = block % across * k + in % k;
}

/* The value of a bf16 that is nearest, of two the even one. */
static float llm__patch_short(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &u, 4);
    return x;
}

/* A pixel scaled, moved and divided as a processor does it that computes in bf16. */
static float llm__patch_brief(uint8_t pixel, float rescale, float mean, float std) {
    const float x = llm__patch_short(llm__patch_short((float)pixel * rescale) - llm__patch_short(mean));
    return llm__patch_short(x / llm__patch_short(std));
}

LLM__PRIVATE void llm__patch_values(const llm_media *m, const llm__media_view *view, int32_t i, float *out) {
    const llm__vision *v = m->vision;
    const llm__processor *p = &m->processor;
    const int32_t side = v->patch;
    int32_t row, col;
    llm__patch_place(v, view, i, &row, &col);
    const int brief = (v->family->flags & LLM__EYES_BRIEF) != 0;
    for (int c = 0; c < 3; c++) {
        const double mean = p->mean[c], std = p->std[c];
        for (int f = 0; f < v->frames; f++) {
            const llm__picture *pixels = f && view->pixels[1].rgb ? &view->pixels[1] : &view->pixels[0];
            for (int32_t y = 0; y < side; y++) {
                const uint8_t *at = pixels->rgb + ((size_t)(row * side + y) * (size_t)pixels->w + (size_t)col * (size_t)side) * 3 + c;
                for (int32_t x = 0; x < side; x++, at += 3)
                    *out++ = brief ? llm__patch_brief(*at, (float)p->rescale, (float)mean, (float)std)
                                   : (float)((*at * p->rescale - mean) / std);
            }
        }
    }
}
