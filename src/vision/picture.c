#include "vision/picture.h"
#include "api/config.h"
#include "api/model.h"
#include "api/media.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "vision/gif.h"

LLM__PRIVATE void llm__picture_free(llm__picture *p) {
    LLM_FREE(p->rgb);
    p->rgb = NULL;
}

LLM__PRIVATE int llm__picture_new(int32_t w, int32_t h, llm__picture *out) {
    out->w = w;
    out->h = h;
    out->rgb = (uint8_t *)llm__calloc((size_t)w * (size_t)h, 3);
    if (!out->rgb) llm__nomem();
    return out->rgb != NULL;
}

LLM__PRIVATE llm_result llm__picture_size(int64_t w, int64_t h) {
    if (w < 1 || h < 1)
        return llm__error(LLM_ERR_FORMAT, "a picture of %lld x %lld pixels, at least 1 x 1 was expected", (long long)w, (long long)h);
    if (w <= LLM__MAX_SIDE && h <= LLM__MAX_SIDE && w * h <= LLM__MAX_PIXELS) return LLM_OK;
    return llm__error(LLM_ERR_LIMIT, "a picture of %lld x %lld pixels is too large: at most %d in all and %d a side", (long long)w,
                      (long long)h, LLM__MAX_PIXELS, LLM__MAX_SIDE);
}

/* c over white, as a fraction of 255, rounded. */
static uint8_t llm__over_white(unsigned c, unsigned alpha) {
    const unsigned v = c * alpha + 255 * (255 - alpha) + 128;
    return (uint8_t)((v + (v >> 8)) >> 8);
}

LLM__PRIVATE llm_result llm__picture_pixels(const llm_frame *frame, int how, llm__picture *out) {
    const int n = frame->channels, alpha = n == 2 || n == 4, grey = n < 3;
    const uint8_t *p = frame->pixels;
    if (n < 1 || n > 4 || !p) return llm__error(LLM_ERR_ARG, "pixels of %d channels, 1 to 4 were expected", n);
    llm_result r = llm__picture_size(frame->width, frame->height);
    if (r) return r;
    if (!llm__picture_new(frame->width, frame->height, out)) return LLM_ERR_NOMEM;
    const size_t total = (size_t)out->w * (size_t)out->h;
    uint8_t *to = out->rgb;
    for (size_t i = 0; i < total; i++, p += n, to += 3)
        for (int c = 0; c < 3; c++)
            to[c] = alpha && !(how & LLM__DROP_ALPHA) ? llm__over_white(p[grey ? 0 : c], p[n - 1]) : p[grey ? 0 : c];
    return LLM_OK;
}

LLM__PRIVATE const char *llm__picture_kind(const uint8_t *data, size_t n) {
    static const struct {
        uint8_t at, len;
        const char *magic, *kind;
    } kinds[] = {
        {0, 3, "\xFF\xD8\xFF", "a JPEG"},
        {0, 8, "\x89PNG\r\n\x1A\n", "a PNG"},
        {0, 4, "GIF8", "a GIF"},
        {0, 2, "BM", "a BMP"},
        {8, 4, "WEBP", "a WebP picture"},
        {4, 8, "ftypheic", "a HEIC picture"},
        {4, 8, "ftypavif", "an AVIF picture"},
        {4, 4, "ftyp", "an MP4 or QuickTime video"},
        {0, 4, "\x1A\x45\xDF\xA3", "a WebM or Matroska video"},
        {8, 4, "AVI ", "an AVI video"},
        {0, 4, "FLV\1", "a Flash video"},
        {0, 4, "OggS", "an Ogg video"},
        {0, 4, "\0\0\1\xBA", "an MPEG video"},
        {0, 4, "II*\0", "a TIFF picture"},
        {0, 4, "MM\0*", "a TIFF picture"},
        {0, 4, "%PDF", "a PDF document"},
        {0, 4, "<svg", "an SVG drawing"},
    };
    for (int i = 0; i < LLM__COUNT(kinds); i++)
        if (n >= (size_t)(kinds[i].at + kinds[i].len) && !memcmp(data + kinds[i].at, kinds[i].magic, kinds[i].len)) return kinds[i].kind;
    return NULL;
}

/* A number of 2 or 4 bytes in the order that a TIFF header states. */
static uint32_t llm__tiff_number(const uint8_t *p, int bytes, int big) {
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint32_t)p[big ? bytes - 1 - i : i] << 8 * i;
    return v;
}

/* The orientation (tag 0x0112) of the first directory of EXIF data, which is a TIFF file; 1 (upright) if it says none. */
static int llm__exif_orientation(const uint8_t *p, size_t n) {
    if (n < 8 || (memcmp(p, "II*\0", 4) && memcmp(p, "MM\0*", 4))) return 1;
    const int big = p[0] == 'M';
    const size_t at = llm__tiff_number(p + 4, 4, big);
    if (at > n || n - at < 2) return 1;
    const size_t count = llm__tiff_number(p + at, 2, big);
    for (size_t i = 0; i < count && n - at >= 2 + 12 * (i + 1); i++) {
        const uint8_t *entry = p + at + 2 + 12 * i;
        if (llm__tiff_number(entry, 2, big) != 0x0112 || llm__tiff_number(entry + 2, 2, big) != 3) continue;
        const uint32_t v = llm__tiff_number(entry + 8, 2, big);
        return v >= 1 && v <= 8 ? (int)v : 1;
    }
    return 1;
}

/* The orientation that a JPEG or PNG states. */
static int llm__picture_orientation(const uint8_t *p, size_t n) {
    const int png = n > 8 && p[0] == 0x89;
    size_t at = png ? 8 : 2;
    while (n - at >= 12) {
        if (png) { /* length, name, data, checksum */
            const size_t len = llm__tiff_number(p + at, 4, 1);
            if (len > n - at - 12 || !memcmp(p + at + 4, "IDAT", 4)) return 1;
            if (!memcmp(p + at + 4, "eXIf", 4)) return llm__exif_orientation(p + at + 8, len);
            at += 12 + len;
        } else { /* marker, length with itself, data */
            const size_t len = llm__tiff_number(p + at + 2, 2, 1);
            if (p[at] != 0xFF || p[at + 1] == 0xDA || len < 2 || len > n - at - 2) return 1;
            if (p[at + 1] == 0xE1 && len >= 8 && !memcmp(p + at + 4, "Exif\0\0", 6)) return llm__exif_orientation(p + at + 10, len - 8);
            at += 2 + len;
        }
    }
    return 1;
}

/* Whether each table of codes that begins in a JPEG's DHT segment has 256 codes at most, as in the standard. n: bytes to the file's end. */
static int llm__jpeg_codes(const uint8_t *p, size_t len, size_t n) {
    for (size_t at = 2; at < len && at + 17 <= n;) {
        size_t codes = 0;
        for (int i = 1; i <= 16; i++) codes += p[at + (size_t)i];
        if (codes > 256) return 0;
        at += 17 + codes;
    }
    return 1;
}

/* The same of all segments: stb_image writes behind its tables where there are more. Markers are found as it finds them: after a segment
 * by its length, after a scan's head at the next 0xFF that is neither stuffed nor a restart. */
static int llm__jpeg_sound(const uint8_t *p, size_t n) {
    for (size_t at = 2; at + 4 <= n;) {
        const int marker = p[at + 1];
        if (p[at] != 0xFF || marker == 0xFF || !marker || (marker >= 0xD0 && marker <= 0xD8)) {
            at++;
            continue;
        }
        const size_t len = llm__tiff_number(p + at + 2, 2, 1);
        if (marker == 0xC4 && !llm__jpeg_codes(p + at + 2, len, n - at - 2)) return 0;
        at += 2 + LLM__MAX(len, (size_t)2);
    }
    return 1;
}

/* Turns and mirrors a picture upright. 2: mirrored; 3: upside down; 4: both; 5 to 8: rows are columns. */
static llm_result llm__picture_turn(llm__picture *p, int orientation) {
    const int across = orientation > 4, flip_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8,
              flip_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    llm__picture to;
    if (orientation < 2) return LLM_OK;
    if (!llm__picture_new(across ? p->h : p->w, across ? p->w : p->h, &to)) return LLM_ERR_NOMEM;
    for (int32_t y = 0; y < to.h; y++)
        for (int32_t x = 0; x < to.w; x++) {
            int32_t sx = across ? y : x, sy = across ? x : y; /* of the stored picture */
            if (flip_x) sx = p->w - 1 - sx;
            if (flip_y) sy = p->h - 1 - sy;
            memcpy(to.rgb + ((size_t)y * (size_t)to.w + (size_t)x) * 3, p->rgb + ((size_t)sy * (size_t)p->w + (size_t)sx) * 3, 3);
        }
    llm__picture_free(p);
    *p = to;
    return LLM_OK;
}

/* The first frame of a GIF. */
static llm_result llm__picture_gif(const uint8_t *data, size_t n, int how, llm__picture *out) {
    LLM__SCOPED(llm__gif_close) llm__gif gif;
    llm_result r = llm__gif_open(data, n, &gif);
    if (!r) r = llm__gif_next(&gif);
    const llm_frame frame = {gif.canvas, gif.w, gif.h, 4};
    return r ? r : llm__picture_pixels(&frame, how, out);
}

LLM__PRIVATE llm_result llm__picture_read(const llm_picture_reader *reader, const uint8_t *data, size_t n, int how, llm__picture *out) {
    const char *kind = llm__picture_kind(data, n), *why = NULL;
    llm_frame frame = {NULL, 0, 0, 0};
    if (n >= 4 && !memcmp(data, "GIF8", 4)) return llm__picture_gif(data, n, how, out);
    if (!n) return llm__error(LLM_ERR_FORMAT, "a picture of 0 bytes");
    const int ours = kind && (!strcmp(kind, "a JPEG") || !strcmp(kind, "a PNG") || !strcmp(kind, "a BMP"));
    if (!ours)
        return llm__error(LLM_ERR_UNSUPPORTED, "%s%s: JPEG, PNG, GIF or BMP expected", kind ? "it is " : "it is no picture",
                          kind ? kind : "");
    if (!reader) return llm__error(LLM_ERR_UNSUPPORTED, "it is %s, and this program was built without a reader of pictures", kind);
    if (*data == 0x89 && n >= 24) { /* a reader may not say how large one is that it does not take */
        llm_result large = llm__picture_size(llm__tiff_number(data + 16, 4, 1), llm__tiff_number(data + 20, 4, 1));
        if (large) return large;
    }
    if (*data == 0xFF && !llm__jpeg_sound(data, n))
        return llm__error(LLM_ERR_FORMAT, "a JPEG that cannot be read: a table of more than 256 codes");
    if (!reader->size(data, n, &frame.width, &frame.height, &why))
        return llm__error(LLM_ERR_FORMAT, "%s that cannot be read: %s", kind, why);
    llm_result r = llm__picture_size(frame.width, frame.height);
    if (r) return r;
    uint8_t *pixels = reader->read(data, n, &frame.width, &frame.height, &frame.channels, &why);
    if (!pixels) return llm__error(LLM_ERR_FORMAT, "%s that cannot be read: %s", kind, why);
    frame.pixels = pixels;
    r = llm__picture_pixels(&frame, how, out);
    reader->release(pixels);
    if (!r && !(how & LLM__KEEP_ORIENTATION) && data[0] != 'B') r = llm__picture_turn(out, llm__picture_orientation(data, n));
    if (r) llm__picture_free(out);
    return r;
}

LLM__PRIVATE llm_result llm__picture_cut(const llm__picture *src, int32_t x, int32_t y, int32_t w, int32_t h, llm__picture *out) {
    if (!llm__picture_new(w, h, out)) return LLM_ERR_NOMEM;
    for (int32_t row = 0; row < h; row++)
        memcpy(out->rgb + (size_t)row * (size_t)w * 3, src->rgb + ((size_t)(y + row) * (size_t)src->w + (size_t)x) * 3, (size_t)w * 3);
    return LLM_OK;
}

LLM__PRIVATE void llm__picture_paste(llm__picture *dst, const llm__picture *src, int32_t x, int32_t y) {
    for (int32_t row = 0; row < src->h; row++)
        memcpy(dst->rgb + ((size_t)(y + row) * (size_t)dst->w + (size_t)x) * 3, src->rgb + (size_t)row * (size_t)src->w * 3,
               (size_t)src->w * 3);
}
