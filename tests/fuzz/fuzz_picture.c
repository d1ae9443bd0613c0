/* Pictures and videos of strangers, as requests bring them: a byte that says for which family and how, mm_processor_kwargs up to the first NUL, then a
 * file. What is accepted gives finite values for every view, as many tokens as its rows are, and the same again; what is refused says why. Needs the
 * tiny models that see. */
#include "../unit/test.h"
#include "base/platform.h"
#include "base/log.h"
#include "model/loader.h"
#include "vision/fit.h"
#include "vision/marks.h"

enum { FUZZ_FAMILIES = 11, FUZZ_PIXELS = 1 << 21 };
static llm_model *fuzz_model[FUZZ_FAMILIES];

static void fuzz_check(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "%s: %s\n", what, llm_last_error());
    __builtin_trap();
}

static const llm_model *fuzz_open(int family) {
    static const char *const names[FUZZ_FAMILIES] = {"ernie4_5_vl_moe", "gemma3",          "idefics3", "internvl_tiles",
                                                     "llava_next",      "llava_onevision", "minicpmv", "mistral3",
                                                     "qwen2_5_vl",      "qwen2_vl_chat",   "qwen3_vl"};
    char path[128];
    llm_model_config c;
    memset(&c, 0, sizeof c);
    c.picture_reader = llm_picture_reader_stb();
    snprintf(path, sizeof path, "build/data/vision/%s", names[family]);
    if (!fuzz_model[family] && !test_made(path, "data")) exit(1);
    if (!fuzz_model[family]) fuzz_check(!llm_model_open(path, &c, &fuzz_model[family]), "model");
    return fuzz_model[family];
}

/* 1: so many pixels that only the machine's memory would be tried. */
static int fuzz_large(const uint8_t *p, size_t n) {
    int32_t w = 0, h = 0;
    const char *why;
    if (n >= 10 && !memcmp(p, "GIF8", 4)) w = p[6] | p[7] << 8, h = p[8] | p[9] << 8;
    else if ((n && *p == 0xFF) || !llm_picture_reader_stb()->size(p, n, &w, &h, &why)) return 0; /* a JPEG is looked at first */
    return (int64_t)w * h > FUZZ_PIXELS;
}

static void fuzz_values(const llm_media *m) {
    llm_media_info info;
    llm_media_get_info(m, &info);
    fuzz_check(info.n_tokens > 0 && info.n_views > 0 && info.width > 0 && info.height > 0, "what it is");
    fuzz_check(llm__media_rows(m) == info.n_tokens, "as many rows as tokens");
    for (int32_t i = 0; i < info.n_views; i++) {
        const int64_t n = llm_media_values(m, i, NULL, 0);
        fuzz_check(n > 0, "values");
        float *values = (float *)malloc((size_t)n * sizeof *values);
        fuzz_check(values && llm_media_values(m, i, values, n) == n, "values");
        for (int64_t k = 0; k < n; k++) fuzz_check(isfinite(values[k]) && fabsf(values[k]) < 1e9f, "a value");
        free(values);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = size > 1 ? (const uint8_t *)memchr(data + 1, 0, size - 1) : NULL;
    if (!end || end - data > 400) return 0;
    const llm_model *model = fuzz_open(data[0] % FUZZ_FAMILIES);
    const llm_media_file file[2] = {{end + 1, size - (size_t)(end - data) - 1}, {end + 1, size - (size_t)(end - data) - 1}};
    const int how = data[0] / FUZZ_FAMILIES;
    llm_media *m[2] = {NULL, NULL};
    llm_media_config c;
    if (fuzz_large((const uint8_t *)file[0].data, file[0].size)) return 0;
    memset(&c, 0, sizeof c);
    c.kind = how & 1 ? LLM_MEDIA_VIDEO : LLM_MEDIA_IMAGE;
    c.files = file, c.n_files = how & 2 && how & 1 ? 2 : 1; /* the same frame twice */
    c.detail = how & 4 ? LLM_DETAIL_LOW : LLM_DETAIL_AUTO;
    c.n_images = how & 8 ? 2 : 1;
    c.mm_processor_kwargs = end > data + 1 ? (const char *)data + 1 : NULL;
    const llm_result r = llm_media_open(model, &c, &m[0]);
    fuzz_check(!r == (m[0] != NULL), "given if it is right");
    if (r) return fuzz_check(strlen(llm_last_error()) > 5, "says why"), 0;
    fuzz_values(m[0]);
    fuzz_check(!llm_media_open(model, &c, &m[1]) && !memcmp(m[0]->hash, m[1]->hash, sizeof m[0]->hash), "the same again");
    for (int i = 0; i < 2; i++) llm_media_free(m[i]);
    return 0;
}
