#include "vision/gif.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "vision/picture.h"

/* What stands between two frames' pictures. */
typedef struct llm__gif_frame {
    int32_t x, y, w, h, dispose, transparent, interlaced, n_palette;
    double delay;
    const uint8_t *palette; /* its own, or the screen's */
    size_t data;            /* where its pixels begin: the size of codes, then blocks */
    size_t next;
} llm__gif_frame;

static int32_t llm__gif_u16(const uint8_t *p) { return p[0] | p[1] << 8; }

/* Behind a chain of blocks, each with its length before it; the end of the file where it breaks off. */
static size_t llm__gif_skip(const uint8_t *p, size_t n, size_t at) {
    while (at < n && p[at]) at += 1 + (size_t)p[at];
    return at < n ? at + 1 : n;
}

/* The next frame from `at` on. 0: there is none. */
static int llm__gif_find(const llm__gif *g, size_t at, llm__gif_frame *f) {
    const uint8_t *p = g->data;
    memset(f, 0, sizeof *f);
    f->transparent = -1;
    for (; g->n - at >= 2; at = llm__gif_skip(p, g->n, at + 2)) {
        if (p[at] == ',') break;
        if (p[at] != '!') return 0;
        if (p[at + 1] != 0xF9 || g->n - at < 8 || p[at + 2] < 4) continue; /* how the next picture is shown */
        f->dispose = p[at + 3] >> 2 & 7;
        f->delay = llm__gif_u16(p + at + 4) / 100.0;
        f->transparent = p[at + 3] & 1 ? p[at + 6] : -1;
    }
    if (g->n - at < 11 || p[at] != ',') return 0;
    f->x = llm__gif_u16(p + at + 1);
    f->y = llm__gif_u16(p + at + 3);
    f->w = llm__gif_u16(p + at + 5);
    f->h = llm__gif_u16(p + at + 7);
    const int flags = p[at + 9];
    f->interlaced = flags >> 6 & 1;
    f->palette = flags & 0x80 ? p + at + 10 : g->palette;
    f->n_palette = flags & 0x80 ? 2 << (flags & 7) : g->n_palette;
    f->data = at + 10 + (flags & 0x80 ? (size_t)f->n_palette * 3 : 0);
    if (f->data >= g->n) return 0;
    f->next = llm__gif_skip(p, g->n, f->data + 1);
    if (f->delay < 0.02) f->delay = 0.1; /* as browsers have it */
    return 1;
}

LLM__PRIVATE void llm__gif_close(llm__gif *g) {
    LLM_FREE(g->canvas);
    LLM_FREE(g->before);
    LLM_FREE(g->indices);
    memset(g, 0, sizeof *g);
}

LLM__PRIVATE llm_result llm__gif_open(const uint8_t *data, size_t n, llm__gif *g) {
    llm__gif_frame f;
    memset(g, 0, sizeof *g);
    if (n < 13 || (memcmp(data, "GIF87a", 6) && memcmp(data, "GIF89a", 6)))
        return llm__error(LLM_ERR_FORMAT, "a GIF that is cut short, or none");
    g->data = data;
    g->n = n;
    g->w = llm__gif_u16(data + 6);
    g->h = llm__gif_u16(data + 8);
    g->next = 13;
    if (data[10] & 0x80) {
        g->palette = data + 13;
        g->n_palette = 2 << (data[10] & 7);
        g->next += (size_t)g->n_palette * 3;
    }
    if (g->next > n) return llm__error(LLM_ERR_FORMAT, "a GIF that is cut short");
    llm_result r = llm__picture_size(g->w, g->h);
    for (size_t at = g->next; !r && llm__gif_find(g, at, &f); at = f.next) g->n_frames++, g->seconds += f.delay;
    if (!r && !g->n_frames) r = llm__error(LLM_ERR_FORMAT, "a GIF without a picture in it");
    if (r) return r;
    const size_t pixels = (size_t)g->w * (size_t)g->h;
    g->canvas = (uint8_t *)llm__calloc(pixels, 4);
    g->before = (uint8_t *)llm__calloc(pixels, 4);
    g->indices = (uint8_t *)llm__calloc(pixels, 1);
    return g->canvas && g->before && g->indices ? LLM_OK : llm__nomem();
}

/* Reads codes of up to 12 bits out of blocks, the lowest bit first. */
typedef struct llm__gif_bits {
    const uint8_t *p;
    size_t at, n;
    int left; /* bytes of the block */
    uint32_t bits;
    int n_bits;
} llm__gif_bits;

/* The next code; -1 at the end. */
static int llm__gif_code(llm__gif_bits *b, int size) {
    while (b->n_bits < size) {
        if (!b->left) {
            if (b->at >= b->n || !b->p[b->at]) return -1;
            b->left = b->p[b->at++];
        }
        if (b->at >= b->n) return -1;
        b->bits |= (uint32_t)b->p[b->at++] << b->n_bits;
        b->n_bits += 8;
        b->left--;
    }
    const int code = (int)(b->bits & ((1u << size) - 1));
    b->bits >>= size;
    b->n_bits -= size;
    return code;
}

/* Unpacks at most n indices; returns how many there were. A code stands for the string of an earlier one and one more index: its prefix
 * and its last, from which the string is written backwards. */
static size_t llm__gif_unpack(llm__gif_bits *b, int first, uint8_t *out, size_t n) {
    uint16_t prefix[4096], length[4096];
    uint8_t last[4096], head[4096]; /* the first index of each string */
    const int clear = 1 << first;
    int size = first + 1, next = clear + 2, before = -1;
    size_t done = 0;
    for (int i = 0; i < clear; i++) prefix[i] = 0, length[i] = 1, last[i] = head[i] = (uint8_t)i;
    while (done < n) {
        int code = llm__gif_code(b, size);
        if (code < 0 || code == clear + 1) break;
        if (code == clear) {
            size = first + 1, next = clear + 2, before = -1;
            continue;
        }
        if (code > next || (code >= clear && before < 0) || (code == next && next >= 4096)) break;
        if (before >= 0 && next < 4096) {
            prefix[next] = (uint16_t)before;
            length[next] = (uint16_t)(length[before] + 1);
            head[next] = head[before];
            last[next] = head[code == next ? before : code];
            next++;
            if (next == 1 << size && size < 12) size++;
        }
        size_t len = length[code];
        for (int c = code; len > 0; c = prefix[c])
            if (done + --len < n) out[done + len] = last[c];
        done += length[code];
        before = code;
    }
    return LLM__MIN(done, n);
}

/* What the latest frame leaves behind, before the next is put there. */
static void llm__gif_dispose(llm__gif *g) {
    const size_t row = (size_t)g->w * 4;
    if (g->dispose == 3) memcpy(g->canvas, g->before, row * (size_t)g->h);
    for (int32_t y = g->y; y < g->y + g->fh && g->dispose == 2; y++)
        memset(g->canvas + (size_t)y * row + (size_t)g->x * 4, 0, (size_t)g->fw * 4);
}

/* Row i of a frame as it is stored: of an interlaced one every eighth comes first, then those between. */
static int32_t llm__gif_row(int32_t i, int32_t h, int interlaced) {
    static const int32_t starts[4] = {0, 4, 2, 1}, steps[4] = {8, 8, 4, 2};
    for (int pass = 0; pass < 4 && interlaced; pass++) {
        const int32_t rows = (h - starts[pass] + steps[pass] - 1) / steps[pass];
        if (i < rows) return starts[pass] + i * steps[pass];
        i -= LLM__MAX(rows, 0);
    }
    return i;
}

LLM__PRIVATE llm_result llm__gif_next(llm__gif *g) {
    llm__gif_frame f;
    if (!llm__gif_find(g, g->next, &f)) return llm__error(LLM_ERR_FORMAT, "a GIF without a further picture in it");
    const int first = g->data[f.data];
    if (first < 1 || first > 8 || !f.palette) return llm__error(LLM_ERR_FORMAT, "a GIF with a picture that has no colours");
    if (f.w < 1 || f.h < 1 || f.x + f.w > g->w || f.y + f.h > g->h)
        return llm__error(LLM_ERR_FORMAT, "a GIF of %d x %d pixels with a picture that does not fit into it", g->w, g->h);
    llm__gif_dispose(g);
    if (f.dispose == 3) memcpy(g->before, g->canvas, (size_t)g->w * (size_t)g->h * 4);
    g->at += g->delay;
    g->delay = f.delay;
    llm__gif_bits bits = {g->data, f.data + 1, g->n, 0, 0, 0};
    const size_t n = llm__gif_unpack(&bits, first, g->indices, (size_t)f.w * (size_t)f.h);
    for (size_t i = 0; i < n; i++) {
        const int index = g->indices[i];
        if (index == f.transparent || index >= f.n_palette) continue;
        const int32_t y = f.y + llm__gif_row((int32_t)(i / (size_t)f.w), f.h, f.interlaced), x = f.x + (int32_t)(i % (size_t)f.w);
        uint8_t *to = g->canvas + ((size_t)y * (size_t)g->w + (size_t)x) * 4;
        memcpy(to, f.palette + index * 3, 3);
        to[3] = 255;
    }
    g->dispose = f.dispose;
    g->x = f.x, g->y = f.y, g->fw = f.w, g->fh = f.h;
    g->next = f.next;
    return LLM_OK;
}
