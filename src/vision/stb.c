/* stb: stb_image as the reader of pictures.
 *
 * It stands in a file of its own, since a program may do without: whoever includes llm.h with LLM_IMAGE_IMPLEMENTATION gets
 * llm_picture_reader_stb. Only what is asked for is compiled: JPEG, PNG and BMP; no files, no floats. */
#include "api/linkage.h"
#include "api/model.h"
#include "base/alloc.h"

#ifndef LLM_MALLOC /* in a file of its own */
#include <stdlib.h>
#include <string.h>
#define LLM_MALLOC(n) malloc(n)
#define LLM_REALLOC(p, n) realloc(p, n)
#define LLM_FREE(p) free(p)
#endif

/* stb_image unpacks whatever a PNG's data hold before it looks at how much the picture needs: a thousand times the size of the file. It
 * takes what the picture needs first and asks for more as it goes, so each block remembers how large it was at first, and may grow to
 * twice that and 256 MB, room for the packed data that it collects likewise. */
#define LLM__STB_HEAD 16
static void *llm__stb_new(size_t n) {
    uint8_t *p = n > SIZE_MAX / 4 ? NULL : (uint8_t *)LLM_MALLOC(n + LLM__STB_HEAD);
    if (!p) return NULL;
    memcpy(p, &n, sizeof n);
    return p + LLM__STB_HEAD;
}

static void llm__stb_drop(void *p) {
    if (p) LLM_FREE((uint8_t *)p - LLM__STB_HEAD);
}

static void *llm__stb_grow(void *p, size_t n) {
    size_t first;
    if (!p) return llm__stb_new(n);
    memcpy(&first, (uint8_t *)p - LLM__STB_HEAD, sizeof first);
    if (n > 2 * first + ((size_t)256 << 20)) return NULL;
    uint8_t *more = (uint8_t *)LLM_REALLOC((uint8_t *)p - LLM__STB_HEAD, n + LLM__STB_HEAD);
    return more ? more + LLM__STB_HEAD : NULL;
}

#if defined(LLM_STB_IMAGE_H) || !defined(__has_include)
#elif __has_include(<stb/stb_image.h>)
#define LLM_STB_IMAGE_H <stb/stb_image.h>
#elif __has_include(<stb_image.h>)
#define LLM_STB_IMAGE_H <stb_image.h>
#else
#error "llm.h: stb_image.h is missing: run make deps (Debian's libstb-dev), or define LLM_STB_IMAGE_H as its place"
#endif
#ifndef LLM_STB_IMAGE_H
#define LLM_STB_IMAGE_H <stb/stb_image.h>
#endif
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STBI_ASSERT(x) ((void)0)
#define STBI_MALLOC(n) llm__stb_new(n)
#define STBI_REALLOC(p, n) llm__stb_grow(p, n)
#define STBI_FREE(p) llm__stb_drop(p)
/* Two functions are declared that are not there without GIF: */
#define stbi_load_gif_from_memory(...) llm__stb_no_gif(void)
#define stbi_set_unpremultiply_on_load_thread(...) llm__stb_no_thread(void)
#if defined(__GNUC__)
#define STBIDEF static __attribute__((unused))
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wshadow"
#endif
#include LLM_STB_IMAGE_H
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
STBIDEF stbi_uc *llm__stb_no_gif(void) { return NULL; }
STBIDEF void llm__stb_no_thread(void) {}

static int llm__stb_size(const void *data, size_t n, int32_t *width, int32_t *height, const char **why) {
    int channels;
    if (n > INT32_MAX) return *why = "over 2 GB", 0;
    if (stbi_info_from_memory((const stbi_uc *)data, (int)n, width, height, &channels)) return 1;
    return *why = stbi_failure_reason(), 0;
}

static uint8_t *llm__stb_read(const void *data, size_t n, int32_t *width, int32_t *height, int32_t *channels, const char **why) {
    uint8_t *pixels = n > INT32_MAX ? NULL : stbi_load_from_memory((const stbi_uc *)data, (int)n, width, height, channels, 0);
    if (!pixels) *why = n > INT32_MAX ? "over 2 GB" : stbi_failure_reason();
    return pixels;
}

static void llm__stb_release(uint8_t *pixels) { stbi_image_free(pixels); }

LLM_API const llm_picture_reader *llm_picture_reader_stb(void) {
    static const llm_picture_reader reader = {"stb_image", llm__stb_size, llm__stb_read, llm__stb_release};
    return &reader;
}
