/* stb: stb_image as the reader of pictures.
 *
 * It stands in a file of its own, since a program may do without: whoever includes llm.h with LLM_IMAGE_IMPLEMENTATION gets
 * llm_picture_reader_stb. Only what is asked for is compiled: JPEG, PNG and BMP; no files, no floats. */
#include "api/linkage.h"
#include "api/model.h"
#include "base/alloc.h"

#ifndef LLM_STB_IMAGE_H
#define LLM_STB_IMAGE_H <stb/stb_image.h>
#endif
#if defined(__has_include)
#if !__has_include(LLM_STB_IMAGE_H)
#error "llm.h: stb_image.h is missing: run make deps (Debian's libstb-dev), or define LLM_STB_IMAGE_H as its place"
#endif
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
#define STBI_MALLOC(n) LLM_MALLOC(n)
#define STBI_REALLOC(p, n) LLM_REALLOC(p, n)
#define STBI_FREE(p) LLM_FREE(p)
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wshadow"
#endif
#include LLM_STB_IMAGE_H
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

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
