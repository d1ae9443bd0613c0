/* Pictures, their preparation and towers: against Pillow, against transformers' processors (build/data/vision), and each way of computing
 * against the others, to the bit. What the models then say is looked at by tests/e2e/test_vision.py. */
#include "../folder.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/text.h"
#include "base/json.h"
#include "base/files.h"
#include "model/loader.h"
#include "vision/picture.h"
#include "vision/resize.h"
#include "vision/gif.h"
#include "vision/tower_kinds.h"
#include "vision/vision.h"
#include "vision/fit.h"
#include "vision/marks.h"
#include "vision/patches.h"
#include "vision/assemble.h"
#include "vision/tower.h"
#include "vision/tower_load.h"
#include "engine/kv.h"
#include "engine/scheduler.h"
#include "engine/sight.h"
#include "serve/openai.h"
#include "serve/openai_media.h"

/* ---- pictures ---- */

static uint32_t vi_crc(const uint8_t *p, size_t n) {
    uint32_t c = ~0u;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0xEDB88320u : 0);
    }
    return ~c;
}

/* Checksums of what Pillow 12 makes of the same 13 x 9 pixels. */
static void vi_test_resize(void) {
    static const struct {
        int filter, w, h;
        uint32_t crc;
    } pillow[] = {
        {1, 7, 4, 0x00a40065u}, {1, 29, 20, 0x77488ad7u}, {1, 13, 5, 0x7518a9c6u}, {1, 40, 9, 0x12fbbae0u}, {1, 1, 1, 0x4aa52149u},
        {2, 7, 4, 0x22f1099fu}, {2, 29, 20, 0x9bdfea52u}, {2, 13, 5, 0x2ee72432u}, {2, 40, 9, 0x14d40ba7u}, {2, 1, 1, 0x168f421cu},
        {3, 7, 4, 0xf763b220u}, {3, 29, 20, 0x72f538e1u}, {3, 13, 5, 0x0798285du}, {3, 40, 9, 0x8773ca26u}, {3, 1, 1, 0x3da211dfu},
        {4, 7, 4, 0xbfd3acd4u}, {4, 29, 20, 0x1b2aa3e9u}, {4, 13, 5, 0x71dc4fdfu}, {4, 40, 9, 0x0601c7f3u}, {4, 1, 1, 0xdccecabeu},
        {5, 7, 4, 0x33e1c33eu}, {5, 29, 20, 0x595fc3aeu}, {5, 13, 5, 0x0b3df9d4u}, {5, 40, 9, 0xcdf361a4u}, {5, 1, 1, 0x41178fadu}};
    llm__picture src, to;
    if (!CHECK(llm__picture_new(13, 9, &src))) return;
    for (int i = 0; i < 13 * 9 * 3; i++) src.rgb[i] = (uint8_t)(i * i * 7 + (i >> 2) * 31 + i * 3);
    for (int i = 0; i < LLM__COUNT(pillow); i++) {
        if (!CHECK(!llm__resize(&src, pillow[i].w, pillow[i].h, (llm__filter)pillow[i].filter, &to))) continue;
        if (!CHECK(vi_crc(to.rgb, (size_t)to.w * (size_t)to.h * 3) == pillow[i].crc))
            printf("  filter %d, %d x %d\n", pillow[i].filter, pillow[i].w, pillow[i].h);
        llm__picture_free(&to);
    }
    llm__picture_free(&src);
}

/* Three frames of 5 x 4, written and read by Pillow. */
static void vi_test_gif(void) {
    static const char hex[] =
        "47494638396105000400830000a0b40078b40050b4008c780050780014b400287800007800a03c00783c00503c00283c00003c008c000050000014000021ff"
        "0b4e45545343415045322e30030100000021f904080a0000002c0000000005000400000819001f3c70d0a00183050a1220386080c08001050a080800202000"
        "21f90408140000002c000000000500040083b4b4648cb46464b464a0786464786428b4643c7864147864b43c648c3c64643c643c3c64143c64a00064640064"
        "2800640819001f3c70d0a00183050a1220386080c08001050a08080020200021f904081e0000002c000000000500040083c8b4c8a0b4c878b4c8b478c87878"
        "c83cb4c85078c82878c8c83cc8a03cc8783cc8503cc8283cc8b400c87800c83c00c80819001f3c70d0a00183050a1220386080c08001050a0808002020003b";
    uint8_t file[400];
    const size_t n = (sizeof hex - 1) / 2;
    llm__gif g;
    for (size_t i = 0; i < n; i++) {
        unsigned byte = 0;
        sscanf(hex + 2 * i, "%2x", &byte);
        file[i] = (uint8_t)byte;
    }
    CHECK(!llm__gif_open(file, n, &g) && g.w == 5 && g.h == 4 && g.n_frames == 3 && fabs(g.seconds - 0.6) < 1e-9);
    for (int k = 0; k < 3; k++) {
        uint8_t rgb[60];
        CHECK(!llm__gif_next(&g));
        for (int i = 0; i < 20; i++) memcpy(rgb + 3 * i, g.canvas + 4 * i, 3);
        const uint8_t first[3][3] = {{0x14, 0x00, 0x00}, {0x28, 0x00, 0x64}, {0x3c, 0x00, 0xc8}};
        CHECK(!memcmp(rgb, first[k], 3) && g.canvas[3] == 255);
    }
    llm__gif_close(&g);
    for (size_t cut = 0; cut < n; cut += 7) { /* shorter files end, or have fewer frames */
        llm_result r = llm__gif_open(file, cut, &g);
        for (int k = 0; !r && k < g.n_frames; k++) r = llm__gif_next(&g);
        llm__gif_close(&g);
        CHECK(r == LLM_OK || r == LLM_ERR_FORMAT);
    }
}

/* Channels, alpha over white or dropped; kinds by the first bytes; sizes. */
static void vi_test_pixels(void) {
    const uint8_t grey_alpha[] = {100, 128, 7, 0}, rgba[] = {10, 20, 30, 255, 200, 0, 0, 51};
    llm_frame f = {grey_alpha, 2, 1, 2};
    llm__picture p;
    const uint8_t over[] = {177, 177, 177, 255, 255, 255}, dropped[] = {100, 100, 100, 7, 7, 7}, colour[] = {10, 20, 30, 244, 204, 204};
    CHECK(!llm__picture_pixels(&f, 0, &p) && !memcmp(p.rgb, over, 6));
    llm__picture_free(&p);
    CHECK(!llm__picture_pixels(&f, LLM__DROP_ALPHA, &p) && !memcmp(p.rgb, dropped, 6));
    llm__picture_free(&p);
    f.pixels = rgba, f.channels = 4;
    CHECK(!llm__picture_pixels(&f, 0, &p) && !memcmp(p.rgb, colour, 6));
    llm__picture_free(&p);
    f.channels = 5;
    CHECK(llm__picture_pixels(&f, 0, &p) == LLM_ERR_ARG);
    f.channels = 3, f.width = 70000;
    CHECK(llm__picture_pixels(&f, 0, &p) == LLM_ERR_LIMIT);
    CHECK(!strcmp(llm__picture_kind((const uint8_t *)"RIFF....WEBPVP8 ", 16), "a WebP picture"));
    CHECK(llm__picture_kind((const uint8_t *)"hello", 5) == NULL);
    CHECK(llm__picture_read(llm_picture_reader_stb(), (const uint8_t *)"RIFF....WEBPVP8 ", 16, 0, &p) == LLM_ERR_UNSUPPORTED &&
          strstr(llm_last_error(), "WebP"));
    CHECK(llm__picture_read(NULL, (const uint8_t *)"\x89PNG\r\n\x1A\n", 8, 0, &p) == LLM_ERR_UNSUPPORTED);
    CHECK(llm__picture_read(llm_picture_reader_stb(), (const uint8_t *)"\x89PNG\r\n\x1A\n", 8, 0, &p) == LLM_ERR_FORMAT);
}

/* Known sizes of Qwen2-VL's processor. */
static void vi_test_blocks(void) {
    static const struct {
        int32_t h, w, to_h, to_w;
    } known[] = {{300, 500, 308, 504}, {28, 28, 56, 56}, {1, 200, 28, 812}, {4000, 3000, 1148, 840}, {56, 56, 56, 56}, {70, 42, 56, 56}};
    int32_t to[2];
    for (int i = 0; i < LLM__COUNT(known); i++) {
        if (CHECK(!llm__fit_blocks(known[i].h, known[i].w, 1, 28, 56 * 56, 28 * 28 * 1280, 0, to)) &&
            !CHECK(to[0] == known[i].to_h && to[1] == known[i].to_w))
            printf("  %d x %d: %d x %d\n", known[i].h, known[i].w, to[0], to[1]);
    }
    CHECK(llm__fit_blocks(1, 201, 1, 28, 3136, 1003520, 0, to) != LLM_OK);                           /* over 200 times as long as high */
    CHECK(!llm__fit_blocks(5, 10000, 1, 32, 65536, 262144, 1, to) && to[0] == 32 && to[1] == 22880); /* of any shape, as LFM2-VL's */
}

/* n frames (a picture has one, or counts as two) of h x w become to_h x to_w. */
typedef struct vi_size {
    int32_t n, h, w, to_h, to_w;
} vi_size;

static void vi_check_sizes(const llm__vision *v, const llm__processor *p, const vi_size *known, int n) {
    int32_t to[2];
    for (int i = 0; i < n; i++)
        if (CHECK(!llm__fit_film(v, p, known[i].h, known[i].w, known[i].n, to)) && !CHECK(to[0] == known[i].to_h && to[1] == known[i].to_w))
            printf("  %d of %d x %d: %d x %d\n", known[i].n, known[i].h, known[i].w, to[0], to[1]);
}

/* Known sizes of Qwen3-VL's processor of videos, whose frames' pixels count together. */
static void vi_test_films(void) {
    static const vi_size known[] = {{4, 101, 324, 96, 320},  {5, 466, 443, 224, 192}, {7, 286, 422, 128, 224},
                                    {9, 263, 274, 160, 160}, {5, 366, 227, 288, 160}, {4, 20, 400, 32, 640}};
    static const llm__eyes_family family = {.flags = LLM__EYES_VIDEO | LLM__EYES_TIMES};
    llm__vision v;
    llm__processor p;
    memset(&v, 0, sizeof v);
    memset(&p, 0, sizeof p);
    v.family = &family;
    v.patch = 16, v.merge = 2;
    p.min_pixels = 65536, p.max_pixels = 262144;
    vi_check_sizes(&v, &p, known, LLM__COUNT(known));
}

/* Known sizes of GLM-4.1V's processors, whose pictures count as two frames, and which frames its videos have: how many, the first ones and
 * the last, and their sum. */
static void vi_test_glm(void) {
    static const llm__eyes_family family = {.flags = LLM__EYES_VIDEO | LLM__EYES_TIMES | LLM__EYES_DOUBLE | LLM__EYES_BEHIND};
    static const vi_size sizes[] = {{2, 300, 500, 308, 504}, {2, 20, 400, 28, 560},   {2, 30, 30, 84, 84},    {2, 1200, 3000, 280, 756},
                                    {6, 101, 324, 112, 336}, {5, 466, 443, 308, 280}, {7, 286, 422, 196, 308}};
    static const struct {
        int32_t n;
        double fps;
        int32_t taken, first[3], last;
        int64_t sum;
    } films[] = {{100, 25, 8, {0, 13, 25}, 88, 352},
                 {37, 12.5, 5, {0, 7, 13}, 25, 64},
                 {9, 1, 9, {0, 1, 2}, 8, 36},
                 {20, 3, 13, {0, 2, 3}, 18, 120},
                 {10000, 25, 600, {0, 17, 34}, 9999, 3000298},
                 {590, 1.9, 590, {0, 1, 2}, 589, 173755},
                 {1, 10, 1, {0, 0, 0}, 0, 0},
                 {7, 2, 7, {0, 1, 2}, 6, 21}};
    llm__vision v;
    llm__processor p;
    memset(&v, 0, sizeof v);
    memset(&p, 0, sizeof p);
    v.family = &family;
    v.patch = 14, v.merge = 2, v.frames = 2;
    p.min_pixels = 12544, p.max_pixels = 28 * 28 * 600;
    p.fps = 2, p.min_frames = 1, p.max_frames = 600;
    vi_check_sizes(&v, &p, sizes, LLM__COUNT(sizes));
    for (int i = 0; i < LLM__COUNT(films); i++) {
        const double seconds = films[i].n / films[i].fps, step = llm__frame_step(&v, &p, films[i].n, seconds);
        const int32_t taken = llm__frames_taken(&v, &p, films[i].n, seconds);
        int64_t sum = 0;
        int32_t at = 0;
        for (int32_t k = 0; k < taken; k++) {
            at = llm__frame_at(&v, k, films[i].n, taken, step);
            if (k < 3) CHECK(at == films[i].first[k]);
            sum += at;
        }
        if (!CHECK(taken == films[i].taken && at == films[i].last && sum == films[i].sum))
            printf("  film %d: %d frames, the last %d, sum %lld\n", i, taken, at, (long long)sum);
    }
    /* GLM-4.6V's rate falls with the length */
    p.fps = 0, p.max_frames = 640;
    CHECK(llm__frames_taken(&v, &p, 300, 10) == 60 && llm__frames_taken(&v, &p, 3000, 100) == 200 &&
          llm__frames_taken(&v, &p, 15000, 500) == 500 && llm__frames_taken(&v, &p, 90000, 3000) == 640);
}

/* Times of frames as Python's "%.1f" writes them, which are not what ten times as much is rounded to. */
static void vi_test_seconds(void) {
    static const double times[] = {0, 0.25, 0.75, 0.15, 0.35, 0.45, 0.05, 1.05, 2.5, 9.95, 0.95, 1234.65, 0.04999999999999999};
    static const char *const known[] = {"0.0", "0.2", "0.8", "0.1", "0.3", "0.5", "0.1", "1.1", "2.5", "9.9", "0.9", "1234.7", "0.0"};
    static const llm__eyes_family family = {.flags = LLM__EYES_VIDEO | LLM__EYES_TIMES};
    llm__vision v;
    memset(&v, 0, sizeof v);
    v.family = &family, v.start = "", v.stop = "", v.image_token = v.placeholder = "[i]", v.video_token = v.video_placeholder = "[v]",
    v.pool = 1;
    for (int i = 0; i < LLM__COUNT(times); i++) {
        double at = times[i];
        llm__media_view view;
        llm_media m, *list = &m;
        llm_text out = LLM__ZERO;
        char wanted[40];
        memset(&view, 0, sizeof view);
        memset(&m, 0, sizeof m);
        view.rows = view.cols = 1;
        m.vision = &v, m.view = &view, m.n_views = 1, m.times = &at, m.info.kind = LLM_MEDIA_VIDEO, m.info.n_tokens = 1;
        snprintf(wanted, sizeof wanted, "<%s seconds>[v]", known[i]);
        CHECK(!llm__media_text(&v, llm__lit("[v]"), &list, 1, &out));
        if (!CHECK(out.data && !strcmp(out.data, wanted))) printf("  %.17g: %s\n", at, out.data ? out.data : "");
        llm_text_free(&out);
    }
}

/* ---- checkpoints ---- */

typedef struct vi_model {
    llm_model *model;
    llm_json *expected;
    char path[128];
} vi_model;

static int vi_open(vi_model *t, const char *family) {
    llm_model_config c;
    llm__file f;
    memset(t, 0, sizeof *t);
    memset(&c, 0, sizeof c);
    c.picture_reader = llm_picture_reader_stb();
    snprintf(t->path, sizeof t->path, "build/data/vision/%s/expected.json", family);
    if (!CHECK(!llm__file_open(t->path, 1 << 24, 1, &f))) return 0;
    const int ok = CHECK(!llm_json_parse((const char *)f.data, f.size, NULL, &t->expected));
    llm__file_close(&f);
    t->path[strlen(t->path) - strlen("/expected.json")] = 0;
    return ok && CHECK(!llm_model_open(t->path, &c, &t->model)) && CHECK(t->model->vision != NULL);
}

static void vi_close(vi_model *t) {
    llm_json_free(t->expected);
    llm_model_close(t->model);
}

/* Picture k of a prompt's list, prepared. */
static llm_media *vi_media(const vi_model *t, int prompt, int k) {
    int list = llm_json_find(t->expected, prompt, "images"), v = llm_json_first(t->expected, list);
    char path[256];
    llm__file f;
    llm_media *m = NULL;
    for (int i = 0; i < k; i++) v = llm_json_next(t->expected, v);
    snprintf(path, sizeof path, "%s/%s", t->path, llm_json_str(t->expected, v, NULL));
    if (!CHECK(!llm__file_open(path, 1 << 24, 1, &f))) return NULL;
    const llm_media_file file = {f.data, f.size};
    llm_media_config c;
    memset(&c, 0, sizeof c);
    c.files = &file, c.n_files = 1, c.n_images = llm_json_size(t->expected, list);
    CHECK(!llm_media_open(t->model, &c, &m));
    llm__file_close(&f);
    return m;
}

/* The farthest of the first n values from a list's, from its `at`th on. */
static double vi_off(const llm_json *d, int list, int at, const float *values, int n) {
    double worst = 0, x;
    int v = llm_json_first(d, list);
    for (int i = 0; i < at; i++) v = llm_json_next(d, v);
    for (int i = 0; i < n; i++, v = llm_json_next(d, v))
        worst = llm_json_num(d, v, &x) ? LLM__MAX(worst, fabs(x - (double)values[i])) : INFINITY;
    return worst;
}

/* A row of pixels at the beginning of the first patch and at the end of the last one, as the processor has them, and how many. */
static void vi_test_values(const vi_model *t, int prompt, const llm_media *m) {
    const llm_json *d = t->expected;
    double tolerance = 0, pixels = 0;
    const int row = LLM__MIN(t->model->vision->patch, 16);
    int64_t total = 0, n = 0;
    llm_media_info info;
    llm_media_get_info(m, &info);
    llm_json_num(d, llm_json_find(d, prompt, "pixel_tolerance"), &tolerance);
    llm_json_num(d, llm_json_find(d, prompt, "pixels"), &pixels);
    const char *what = llm_json_str(d, llm_json_find(d, prompt, "case"), NULL);
    if (!strcmp(what, "jpeg")) tolerance = 0.1; /* decoders differ by some levels */
    float *values = NULL;
    for (int32_t i = 0; i < info.n_views; i++) {
        n = llm_media_values(m, i, NULL, 0);
        values = (float *)realloc(values, (size_t)n * sizeof *values);
        CHECK(llm_media_values(m, i, values, n) == n);
        if (!i) CHECK(vi_off(d, llm_json_find(d, prompt, "pixel_values_first"), 0, values, row) <= tolerance * 1.01);
        total += n;
    }
    const int list = llm_json_find(d, prompt, "pixel_values_last");
    if ((double)total == pixels && !CHECK(vi_off(d, list, 16 - row, values + n - row, row) <= tolerance * 1.01))
        printf("  %s, %s\n", t->path, what);
    free(values);
}

/* Each prompt's tokens, of which the pictures' are as many as the processor has; their values; every patch in one place. */
static void vi_test_prompts(const vi_model *t) {
    const llm_json *d = t->expected;
    for (int p = llm_json_first(d, llm_json_find(d, 0, "prompts")); p >= 0; p = llm_json_next(d, p)) {
        const int n = LLM__MAX(llm_json_size(d, llm_json_find(d, p, "images")), 0), ids = llm_json_find(d, p, "token_ids");
        llm_media *m[4] = {NULL, NULL, NULL, NULL};
        llm_tokens got;
        size_t len;
        memset(&got, 0, sizeof got);
        if (llm_json_size(d, llm_json_find(d, p, "videos")) > 0) continue;
        for (int i = 0; i < n; i++) m[i] = vi_media(t, p, i);
        const char *text = llm_json_str(d, llm_json_find(d, p, "rendered"), &len);
        CHECK(!llm_media_tokenize(t->model, text, len, LLM_TOK_PARSE_SPECIAL, m, n, &got));
        int same = (int)got.len == llm_json_size(d, ids), v = llm_json_first(d, ids);
        for (size_t i = 0; same && i < got.len; i++, v = llm_json_next(d, v)) same = llm__json_whole(d, v, -1) == got.data[i];
        if (!CHECK(same)) printf("  %s, %s: %d tokens\n", t->path, llm_json_str(d, llm_json_find(d, p, "case"), NULL), (int)got.len);
        CHECK(!n || llm_media_tokenize(t->model, "no place", 8, 0, m, n, &got) == LLM_ERR_ARG);
        if (n == 1) vi_test_values(t, p, m[0]);
        for (int i = 0; i < n && m[i]; i++) {
            CHECK(llm__media_rows(m[i]) == m[i]->info.n_tokens);
            const llm__media_view *view = &m[i]->view[0];
            int32_t row, col, sum = 0;
            for (int32_t k = 0; k < view->rows * view->cols; k++) {
                llm__patch_place(t->model->vision, view, k, &row, &col);
                sum += row >= 0 && row < view->rows && col >= 0 && col < view->cols ? row * view->cols + col - k : 1 << 20;
            }
            CHECK(sum == 0);
            llm_media_free(m[i]);
        }
        llm_tokens_free(&got);
    }
}

/* Ways of computing the same answers. */
enum { VI_ALONE, VI_TOGETHER, VI_CHUNKS, VI_THREADS, VI_RECOMPUTE, VI_SWAP, VI_LOOKUP, VI_WAYS };
static const char *const vi_ways[] = {"from the cache",     "together",   "in chunks", "with two threads", "given way and computed again",
                                      "given way and back", "with lookup"};

static llm_engine *vi_engine(const vi_model *t, int way, int blocks) {
    llm_engine_config c;
    llm_engine *e = NULL;
    memset(&c, 0, sizeof c);
    c.n_threads = way == VI_THREADS ? 2 : 1;
    c.max_num_seqs = 8;
    c.max_num_batched_tokens = way != VI_CHUNKS ? 0 : t->model->arch.both_ways == 2 ? 80 : 24; /* a picture in one piece */
    c.num_gpu_blocks = blocks;
    c.preemption_swap = way == VI_SWAP;
    if (way == VI_LOOKUP) c.speculative_model = "[ngram]", c.num_speculative_tokens = 3, c.ngram_prompt_lookup_min = 1;
    c.block_size = 16;
    c.max_model_len = blocks ? 16 * blocks : 256;
    return CHECK(!llm_engine_open(t->model, &c, &e)) ? e : NULL;
}

/* The tower layer by layer and at once: the same bits. */
static void vi_test_pieces(const vi_model *t, llm_engine *e, int prompt) {
    llm_media *m[2] = {vi_media(t, prompt, 0), vi_media(t, prompt, 0)};
    llm__tower *tower = e->sight.tower;
    int pieces[2] = {0, 0};
    CHECK(llm__sight_memory(e) > 0 && !llm__tower_check(t->model, (llm__vision *)t->model->vision));
    for (int k = 0; k < 2; k++) {
        CHECK(!llm__tower_room(tower, m[k]));
        llm__tower_begin(tower, m[k]);
        for (; !m[k]->ready && pieces[k] < 10000; pieces[k]++) CHECK(!llm__tower_piece(tower, k ? 1e18 : 1));
    }
    CHECK(pieces[0] > pieces[1] && !memcmp(m[0]->hash, m[1]->hash, sizeof m[0]->hash));
    CHECK(!memcmp(m[0]->values, m[1]->values, (size_t)m[0]->info.n_tokens * (size_t)tower->width * sizeof(float)));
    for (int k = 0; k < 2; k++) llm_media_free(m[k]);
}

/* n: answers. */
static llm_request *vi_submit(const vi_model *t, llm_engine *e, int prompt, int answers) {
    const llm_json *d = t->expected;
    const int n = LLM__MAX(llm_json_size(d, llm_json_find(d, prompt, "images")), 0);
    llm_media *m[4];
    llm_request_config c;
    llm_request *r = NULL;
    memset(&c, 0, sizeof c);
    for (int i = 0; i < n; i++) m[i] = vi_media(t, prompt, i);
    c.prompt = llm_json_str(d, llm_json_find(d, prompt, "rendered"), &c.prompt_len);
    c.tokenize_flags = LLM_TOK_PARSE_SPECIAL;
    c.media = m, c.n_media = n;
    c.sampling.max_tokens = 12, c.sampling.ignore_eos = 1, c.sampling.logprobs = 1, c.sampling.n = answers;
    CHECK(!llm_request_submit(e, &c, &r));
    for (int i = 0; i < n; i++) llm_media_free(m[i]);
    return r;
}

/* Adds an answer's tokens and log-probabilities to `bits`, or compares them with those there. */
static void vi_answer(llm_request *r, int answer, float *bits, int compare, const char *how) {
    llm_output o;
    float got[24];
    if (!CHECK(!llm_request_get_output(r, answer, &o) && o.n_token_ids == 12)) return;
    for (int i = 0; i < 12; i++) got[2 * i] = (float)o.token_ids[i], got[2 * i + 1] = o.logprobs[i];
    if (!compare) memcpy(bits, got, sizeof got);
    else if (!CHECK(!memcmp(bits, got, sizeof got))) printf("  %s: other bits\n", how);
}

/* Every prompt alone, again out of the cache, and all together in each other way: the same bits. Two answers of one prompt are equal where
 * nothing is drawn. */
static void vi_test_bits(const vi_model *t, int64_t *preempted, int64_t *accepted) {
    const llm_json *d = t->expected;
    float bits[8][24];
    int prompt[8], n = 0, with = -1, pages = 0;
    llm_engine_stats stats;
    for (int p = llm_json_first(d, llm_json_find(d, 0, "prompts")); p >= 0; p = llm_json_next(d, p)) {
        if (llm_json_size(d, llm_json_find(d, p, "videos")) > 0) continue;
        if (with < 0 && llm_json_size(d, llm_json_find(d, p, "images")) > 0) with = p;
        pages = LLM__MAX(pages, (llm_json_size(d, llm_json_find(d, p, "token_ids")) + 12 + 15) / 16);
        prompt[n++] = p;
    }
    for (int way = 0; way < VI_WAYS; way++) {
        llm_engine *e = vi_engine(t, way, way == VI_RECOMPUTE || way == VI_SWAP ? pages + 1 : 0);
        if (!e) return;
        llm_request *r[8];
        for (int i = 0; i < n && way == VI_ALONE; i++)
            for (int again = 0; again < 2; again++) {
                r[i] = vi_submit(t, e, prompt[i], 1 + again);
                CHECK(!llm_request_run(e, r[i]));
                for (int k = 0; k <= again; k++) vi_answer(r[i], k, bits[i], again, vi_ways[way]);
                llm_request_free(r[i]);
            }
        for (int i = 0; i < n && way; i++) r[i] = vi_submit(t, e, prompt[i], 1);
        for (int i = 0; i < n && way; i++) {
            CHECK(!llm_request_run(e, r[i]));
            vi_answer(r[i], 0, bits[i], 1, vi_ways[way]);
            llm_request_free(r[i]);
        }
        if (!way) CHECK(e->sight.n_hits >= n - 1);
        if (!way && with >= 0) vi_test_pieces(t, e, with);
        llm_engine_get_stats(e, &stats);
        preempted[way == VI_SWAP] += stats.preemptions;
        *accepted += stats.accepted_tokens;
        llm_engine_close(e);
    }
}

/* An answer's tokens and log-probabilities after a picture of one colour, whose prompt is the same whatever the colour is. Returns how many
 * of the prompt's tokens came from the cache. */
static int vi_tinted(const vi_model *t, llm_engine *e, int prompt, uint8_t colour, float *bits, int compare) {
    uint8_t pixels[56 * 56 * 3];
    const llm_frame frame = {pixels, 56, 56, 3};
    llm_media_config mc;
    llm_media *m = NULL;
    llm_request_config c;
    llm_request *r = NULL;
    llm_request_metrics metrics;
    memset(pixels, colour, sizeof pixels);
    memset(&mc, 0, sizeof mc);
    mc.frames = &frame, mc.n_frames = 1;
    memset(&c, 0, sizeof c);
    c.prompt = llm_json_str(t->expected, llm_json_find(t->expected, prompt, "rendered"), &c.prompt_len);
    c.tokenize_flags = LLM_TOK_PARSE_SPECIAL;
    c.media = &m, c.n_media = 1;
    c.sampling.max_tokens = 12, c.sampling.ignore_eos = 1, c.sampling.logprobs = 1;
    if (!CHECK(!llm_media_open(t->model, &mc, &m)) || !CHECK(!llm_request_submit(e, &c, &r))) return 0;
    llm_media_free(m);
    CHECK(!llm_request_run(e, r));
    vi_answer(r, 0, bits, compare, "pictures of one colour");
    llm_request_get_metrics(r, &metrics);
    llm_request_free(r);
    return metrics.n_cached_tokens;
}

/* Prompts with the same tokens and other pictures share what stands before the picture, and nothing behind it. */
static void vi_test_prefixes(const vi_model *t, int prompt) {
    float bits[2][24];
    int cached[2][2];
    for (int k = 0; k < 2; k++) { /* each alone */
        llm_engine *e = vi_engine(t, VI_ALONE, 0);
        if (!e) return;
        CHECK(vi_tinted(t, e, prompt, (uint8_t)(200 * k), bits[k], 0) == 0);
        llm_engine_close(e);
    }
    CHECK(memcmp(bits[0], bits[1], sizeof bits[0]) != 0); /* the picture is seen */
    llm_engine *e = vi_engine(t, VI_ALONE, 0);
    if (!e) return;
    for (int i = 0; i < 4; i++) cached[i / 2][i % 2] = vi_tinted(t, e, prompt, (uint8_t)(200 * (i % 2)), bits[i % 2], 1);
    CHECK(cached[0][0] == 0 && cached[1][0] > cached[0][1] && cached[1][1] > cached[0][1]);
    llm_engine_close(e);
}

/* What was estimated of a tower is what it takes. */
static void vi_test_estimate(const vi_model *t) {
    llm_model_config blind;
    llm_engine_config c;
    llm_estimate with, without;
    llm_model *m = NULL;
    llm_engine *e = vi_engine(t, VI_ALONE, 8);
    memset(&blind, 0, sizeof blind);
    memset(&c, 0, sizeof c);
    c.n_threads = 1, c.max_num_seqs = 8, c.block_size = 16, c.num_gpu_blocks = 8, c.max_model_len = 128;
    blind.language_model_only = 1;
    if (!e || !CHECK(!llm_model_open(t->path, &blind, &m))) return;
    CHECK(!llm_model_estimate(t->model, &c, &with) && !llm_model_estimate(m, &c, &without));
    const int64_t more = with.weight_bytes + with.buffer_bytes - without.weight_bytes - without.buffer_bytes;
    /* but for alignment; Gemma 3's pictures are read whole, which takes the language model larger steps */
    if (!CHECK(more > e->sight.tower->memory - 4096 && (t->model->arch.both_ways || more < e->sight.tower->memory + 4096)))
        printf("  %s: %lld estimated, %lld taken\n", t->path, (long long)more, (long long)e->sight.tower->memory);
    CHECK(with.weight_bytes - without.weight_bytes == e->sight.tower->weight_bytes && with.kv_bytes == without.kv_bytes);
    llm_engine_close(e);
    llm_model_close(m);
}

static int vi_blind_warned;

static void vi_blind_log(void *user, int level, const char *message) {
    (void)user;
    vi_blind_warned += level == LLM_LOG_WARN && strstr(message, "does not see") != NULL;
}

/* A folder without a token that stands for a picture is a model of texts, and says so once. */
static void vi_test_blind(void) {
    static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"};
    llm_file given[LLM__COUNT(names)];
    llm__file f[LLM__COUNT(names)];
    llm_model_config cfg;
    llm_model *m = NULL;
    char path[200];
    memset(given, 0, sizeof given);
    memset(&cfg, 0, sizeof cfg);
    cfg.log = vi_blind_log;
    for (int i = 0; i < LLM__COUNT(names); i++) {
        snprintf(path, sizeof path, "build/data/vision/qwen3_vl/%s", names[i]);
        if (!CHECK(!llm__file_open(path, 0, 0, &f[i]))) return;
        given[i].name = names[i], given[i].data = f[i].data, given[i].size = (int64_t)f[i].size;
    }
    char *config = (char *)malloc(f[0].size), *id;
    memcpy(config, f[0].data, f[0].size);
    for (size_t i = 0; i + 23 < f[0].size; i++)
        if (id = config + i, !memcmp(id, "\"image_token_id\": 501", 21)) id[18] = '9'; /* 901: the tokenizer has 512 at most */
    given[0].data = config;
    if (CHECK(!llm_model_open_files(given, LLM__COUNT(names), &cfg, &m))) {
        CHECK(!m->vision && vi_blind_warned == 1 && !m->arch.n_deepstack);
        llm_model_close(m);
    }
    free(config);
    for (int i = 0; i < LLM__COUNT(names); i++) llm__file_close(&f[i]);
}

/* A table of positions without any is refused. */
static void vi_test_no_places(void) {
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
    static const char was[] = "\"num_position_embeddings\": 36";
    test_folder folder;
    llm_model_config cfg;
    llm_model *m = NULL;
    llm__file f;
    char from[PATH_MAX + 100], here[PATH_MAX];
    if (!folder_open(&folder) || !CHECK(getcwd(here, sizeof here) && !llm__file_open("build/data/vision/qwen3_vl/config.json", 0, 1, &f)))
        return;
    char *config = (char *)calloc(f.size + 1, 1), *at;
    memcpy(config, f.data, f.size);
    if (CHECK((at = strstr(config, was)) != NULL)) memcpy(at + sizeof was - 3, " 0", 2);
    folder_write_text(&folder, "config.json", config);
    for (int i = 0; i < LLM__COUNT(names); i++) {
        snprintf(from, sizeof from, "%s/build/data/vision/qwen3_vl/%s", here, names[i]);
        CHECK(!symlink(from, folder_file(&folder, names[i])));
    }
    memset(&cfg, 0, sizeof cfg);
    cfg.dummy_weights = 1;
    CHECK(llm_model_open(folder.path, &cfg, &m) == LLM_ERR_FORMAT && strstr(llm_last_error(), "a table of positions of 0 a side"));
    llm_model_close(m);
    free(config);
    llm__file_close(&f);
    folder_close(&folder);
}

/* As many views run together as there are rows for their queries, and one with however many it has. */
static void vi_test_queries(int32_t n_query) {
    const llm__tower_config base = {NULL, llm_backend_cpu(), {.n_threads = 1}, 1 << 20, 0};
    uint8_t *pixels = (uint8_t *)calloc(200 * 300, 3);
    const llm_frame frame = {pixels, 200, 300, 3};
    llm__tower_config c = base;
    llm_media_config in;
    llm_model_config cfg;
    llm_model *model = NULL;
    llm_media *m = NULL;
    llm__tower *t = NULL;
    int most = 0;
    memset(&in, 0, sizeof in);
    memset(&cfg, 0, sizeof cfg);
    in.frames = &frame, in.n_frames = 1, cfg.dummy_weights = 1;
    if (!CHECK(!llm_model_open("build/data/vision/minicpmv", &cfg, &model) && model->vision)) return;
    model->vision->n_query = n_query;
    c.model = model;
    if (CHECK(!llm_media_open(model, &in, &m) && m->n_views > 4 && !llm__tower_open(&c, &t) && !llm__tower_room(t, m))) {
        llm__tower_begin(t, m);
        for (int fits = 1; fits && !m->ready;) {
            fits = CHECK(!llm__tower_piece(t, 1)) && CHECK(t->n_views * n_query <= t->max_rows);
            most = LLM__MAX(most, t->n_views);
        }
        CHECK(m->ready && most == LLM__MAX(t->max_rows / (n_query + 16), 1)); /* slices of 4 x 4 patches */
    }
    llm__tower_close(t);
    llm_media_free(m);
    llm_model_close(model);
    free(pixels);
}

/* A request whose numbers would make a small picture a very large one. */
static void vi_test_too_large(const vi_model *t, const char *kwargs) {
    uint8_t *pixels = (uint8_t *)calloc(64 * 64, 3);
    const llm_frame frame = {pixels, 64, 64, 3};
    llm_media_config c;
    llm_media *m = NULL;
    memset(&c, 0, sizeof c);
    c.frames = &frame, c.n_frames = 1, c.mm_processor_kwargs = kwargs;
    CHECK(llm_media_open(t->model, &c, &m) == LLM_ERR_LIMIT && strstr(llm_last_error(), "pixels is too large"));
    llm_media_free(m);
    free(pixels);
}

/* What an engine refuses. */
static void vi_test_refused(const vi_model *t, int prompt) {
    llm_engine *e = vi_engine(t, VI_ALONE, 0);
    llm_media *m = vi_media(t, prompt, 0);
    llm_request_config c;
    llm_request *r;
    const int32_t ids[3] = {5, 6, 7};
    if (!e || !m) return;
    memset(&c, 0, sizeof c);
    c.prompt_ids = ids, c.n_prompt_ids = 3, c.media = &m, c.n_media = 1;
    c.sampling.max_tokens = 1;
    CHECK(llm_request_submit(e, &c, &r) == LLM_ERR_ARG && strstr(llm_last_error(), "prompt"));
    c.n_media = 4;
    CHECK(llm_request_submit(e, &c, &r) == LLM_ERR_ARG && strstr(llm_last_error(), "media"));
    llm_media_config bad;
    llm_media *none;
    memset(&bad, 0, sizeof bad);
    CHECK(llm_media_open(t->model, &bad, &none) == LLM_ERR_ARG && !none);
    const uint8_t pixels[3] = {1, 2, 3};
    const llm_frame f = {pixels, 1, 1, 3};
    bad.frames = &f, bad.n_frames = 1;
    bad.mm_processor_kwargs = "{\"colour\": 1}";
    CHECK(llm_media_open(t->model, &bad, &none) == LLM_ERR_ARG && strstr(llm_last_error(), "colour"));
    bad.mm_processor_kwargs = "{\"do_image_splitting\": true, \"max_slice_nums\": 3}"; /* no family knows both */
    CHECK(llm_media_open(t->model, &bad, &none) == LLM_ERR_ARG && strstr(llm_last_error(), "means nothing"));
    bad.mm_processor_kwargs = NULL;
    static const double rates[] = {1e-9, 0.0009, 1001, -1, NAN};
    for (int i = 0; i < LLM__COUNT(rates); i++) {
        bad.fps = rates[i];
        if (!CHECK(llm_media_open(t->model, &bad, &none) == LLM_ERR_ARG && strstr(llm_last_error(), "fps: "))) printf("  %g\n", rates[i]);
    }
    bad.fps = 0.001;
    CHECK(!llm_media_open(t->model, &bad, &none)); /* one pixel is a picture */
    llm_media_free(none);
    llm_media_free(m);
    llm_engine_close(e);
}

/* A picture of w x h becomes so many views, those of a grid and the last one, which has so many patches. */
typedef struct vi_fit {
    int32_t w, h, n_views, grid_rows, grid_cols, rows, cols;
} vi_fit;

/* Sizes that transformers' processor of the family gives. */
static void vi_test_fits(const vi_model *t, const vi_fit *known, int n) {
    for (int i = 0; i < n; i++) {
        const vi_fit *k = &known[i];
        uint8_t *pixels = (uint8_t *)calloc((size_t)k->w * (size_t)k->h, 3);
        const llm_frame frame = {pixels, k->w, k->h, 3};
        llm_media_config c;
        llm_media *m;
        memset(&c, 0, sizeof c);
        c.frames = &frame, c.n_frames = 1;
        if (CHECK(!llm_media_open(t->model, &c, &m))) {
            const llm__media_view *last = &m->view[m->n_views - 1];
            if (!CHECK(m->n_views == k->n_views && m->grid_rows == k->grid_rows && m->grid_cols == k->grid_cols && last->rows == k->rows &&
                       last->cols == k->cols))
                printf("  %d x %d: %d views, %d x %d, the last %d x %d\n", (int)k->w, (int)k->h, (int)m->n_views, (int)m->grid_rows,
                       (int)m->grid_cols, (int)last->rows, (int)last->cols);
            llm_media_free(m);
        }
        free(pixels);
    }
}

/* LLaVA's rows put together: two tiles of 1 x 1 in a row, then a newline. */
static void vi_test_assemble(const vi_model *t) {
    llm_media *m = vi_media(t, llm_json_next(t->expected, llm_json_first(t->expected, llm_json_find(t->expected, 0, "prompts"))), 0);
    if (!m) return;
    const int64_t n = m->info.n_tokens, W = 2;
    int64_t rows = 0;
    for (int32_t i = 0; i < m->n_views; i++) rows += llm__view_rows(m->vision, &m->view[i]);
    const float newline[2] = {-1, -2};
    m->raw_width = (int32_t)W;
    m->raw = LLM__NEW(float, rows *W);
    m->values = LLM__NEW(float, n *W);
    for (int64_t i = 0; i < rows * W; i++) m->raw[i] = (float)(i + 1);
    llm__assemble(m, newline);
    const int64_t base = llm__view_rows(m->vision, &m->view[0]);
    CHECK(!memcmp(m->values, m->raw, (size_t)(base * W) * sizeof(float))); /* the whole picture comes first, as it is */
    int64_t ends = 0;
    for (int64_t i = base; i < n; i++) ends += m->values[i * W] == -1 && m->values[i * W + 1] == -2;
    CHECK(ends == llm__unpad_of(m).to_h && m->values[(n - 1) * W] == -1);
    llm_media_free(m);
}

TEST_GROUP(vision) {
    static const char *const families[] = {"aya_vision", "cohere2_vision", "ernie4_5_vl_moe", "gemma3",         "gemma4",   "glm4v",
                                           "glm4v_moe",  "glm_ocr",        "idefics3",        "internvl_tiles", "kimi_vl",  "lfm2_vl",
                                           "llama4",     "llava_next",     "llava_onevision", "minicpmv",       "mistral3", "paddleocr_vl",
                                           "qwen2_5_vl", "qwen2_vl_chat",  "qwen3_5",         "qwen3_vl"};
    static const vi_fit paddle[] = {{20, 10, 1, 0, 0, 4, 6}, {1, 1, 1, 0, 0, 4, 4},   {3, 150, 1, 0, 0, 62, 2},   {150, 3, 1, 0, 0, 2, 62},
                                    {13, 14, 1, 0, 0, 6, 4}, {56, 56, 1, 0, 0, 8, 8}, {300, 200, 1, 0, 0, 6, 10}, {5, 20, 1, 0, 0, 8, 2}};
    static const vi_fit lfm2[] = {{56, 56, 1, 0, 0, 8, 8},   {97, 61, 3, 1, 2, 6, 10},  {40, 120, 4, 3, 1, 12, 4},
                                  {120, 40, 4, 1, 3, 4, 12}, {20, 30, 1, 0, 0, 8, 4},   {1, 1, 1, 0, 0, 4, 4},
                                  {3, 150, 1, 0, 0, 56, 2},  {200, 20, 1, 0, 0, 2, 24}, {500, 90, 5, 1, 4, 2, 18},
                                  {64, 64, 1, 0, 0, 8, 8},   {66, 62, 1, 0, 0, 6, 8},   {200, 199, 5, 2, 2, 6, 8}};
    int video;
    int64_t preempted[2] = {0, 0}, accepted = 0;
    vi_test_resize();
    vi_test_gif();
    vi_test_pixels();
    vi_test_blocks();
    vi_test_films();
    vi_test_glm();
    vi_test_seconds();
    CHECK(llm__oai_is_media("video_url", &video) && video && llm__oai_is_media("input_image", &video) && !video &&
          !llm__oai_is_media("text", &video));
    if (!test_made("build/data/vision", "data")) return;
    vi_test_blind();
    vi_test_no_places();
    vi_test_queries(300);
    vi_test_queries(1500);
    for (int i = 0; i < LLM__COUNT(families); i++) {
        vi_model t;
        if (vi_open(&t, families[i])) {
            const int prompts = llm_json_find(t.expected, 0, "prompts"),
                      second = llm_json_next(t.expected, llm_json_first(t.expected, prompts));
            vi_test_prompts(&t);
            vi_test_bits(&t, preempted, &accepted);
            vi_test_prefixes(&t, second);
            vi_test_refused(&t, second);
            vi_test_estimate(&t);
            if (!strcmp(families[i], "llava_next")) vi_test_assemble(&t);
            if (!strcmp(families[i], "llava_next")) vi_test_too_large(&t, "{\"image_grid_pinpoints\":[[12320,12320]]}");
            if (!strcmp(families[i], "lfm2_vl"))
                vi_test_too_large(&t, "{\"tile_size\":4096,\"min_tiles\":9,\"max_tiles\":9,\"max_pixels_tolerance\":0.001}");
            if (!strcmp(families[i], "lfm2_vl")) vi_test_fits(&t, lfm2, LLM__COUNT(lfm2));
            if (!strcmp(families[i], "paddleocr_vl")) vi_test_fits(&t, paddle, LLM__COUNT(paddle));
            CHECK(llm__vision_set(t.model->vision, t.model->vision->image_id) == (t.model->arch.n_sets > 1));
        }
        vi_close(&t);
    }
    CHECK(preempted[0] > 0 && preempted[1] > 0 && accepted > 0);
}
