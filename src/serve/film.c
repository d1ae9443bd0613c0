#include "serve/film.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/media.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "base/child.h"
#include "vision/picture.h"
#include "vision/tower_kinds.h"
#include "vision/vision.h"
#include "vision/fit.h"

static const int64_t llm__film_memory = (int64_t)4 << 30; /* what ffmpeg may take */

LLM__PRIVATE const char *llm__film_kind(llm__str data) {
    static const char *const kinds[][2] = {{"an MP4 or QuickTime video", "mov"},
                                           {"a WebM or Matroska video", "matroska"},
                                           {"an AVI video", "avi"},
                                           {"a Flash video", "flv"},
                                           {"an Ogg video", "ogg"},
                                           {"an MPEG video", "mpeg"}};
    const char *kind = llm__picture_kind((const uint8_t *)data.p, data.n);
    for (int i = 0; kind && i < LLM__COUNT(kinds); i++)
        if (!strcmp(kind, kinds[i][0])) return kinds[i][1];
    return NULL;
}

LLM__PRIVATE void llm__film_free(llm__film *film) {
    LLM_FREE(film->frames);
    llm_text_free(&film->bytes);
}

typedef struct llm__film_wait {
    const llm__film_rules *rules;
    double end;
} llm__film_wait;

static int llm__film_tick(void *user) {
    const llm__film_wait *w = (const llm__film_wait *)user;
    return llm__now() > w->end || (w->rules->cancelled && __atomic_load_n(w->rules->cancelled, __ATOMIC_RELAXED));
}

/* Runs ffmpeg over the file from its beginning; `more` ends with NULL. */
static llm_result llm__film_run(const llm__film_wait *w, int fd, const char *kind, const char *const *more, size_t limit, llm_text *out) {
    const char *argv[48] = {"ffmpeg", "-nostdin", "-v", "error", "-protocol_whitelist", "file", "-format_whitelist",
                            kind,     "-threads", "2",  "-i",    "file:/dev/stdin",     "-map", "0:v:0"};
    static const char *const none[] = {NULL};
    int code = 0, n = 0;
    while (argv[n]) n++;
    while (*more && n < LLM__COUNT(argv) - 1) argv[n++] = *more++;
    const llm__child child = {argv, none, {NULL, 0}, fd, 0, limit, llm__film_tick, (void *)(uintptr_t)w, llm__film_memory};
    const llm_result r = llm__child_run(&child, out, &code);
    if (r == LLM_ERR_IO) return llm__error(r, "%s; such videos are decoded by ffmpeg, which must be installed", llm_last_error());
    if (r == LLM_ERR_CANCELLED) return llm__error(LLM_ERR_IO, "ffmpeg: nothing whole came within %g s", w->rules->seconds);
    if (r) return r;
    return code ? llm__error(LLM_ERR_IO, "ffmpeg cannot decode it (exit code %d)", code) : LLM_OK;
}

/* Of "stream, dts, pts, duration, size, checksum", as framecrc tells of a packet, the pts. 0: it tells of none. */
static int llm__film_stamp(llm__str line, double *pts) {
    llm__str rest = line;
    for (int i = 0; i < 2; i++) rest = llm__str_from(rest, LLM__MIN(llm__str_until(rest, ",") + 1, rest.n));
    while (rest.n && *rest.p == ' ') rest = llm__str_from(rest, 1);
    return line.n && *line.p != '#' && llm__parse_double(rest.p, llm__str_until(rest, ","), pts) && fabs(*pts) < 1e18;
}

/* Of "#tb 0: 1/25" the seconds of a tick; 0: it is another line. */
static double llm__film_tick_of(llm__str line) {
    double over = 0, under = 0;
    if (!llm__starts(line, llm__lit("#tb 0: "))) return 0;
    const llm__str rest = llm__str_from(line, 7);
    const size_t n = llm__str_until(rest, "/");
    return n < rest.n && llm__parse_double(rest.p, n, &over) && llm__parse_double(rest.p + n + 1, rest.n - n - 1, &under) && under > 0
               ? over / under
               : 0;
}

/* How many frames it has, and how long they last: packets are listed with their times, nothing is decoded. */
static llm_result llm__film_length(const llm__film_wait *w, int fd, const char *kind, int32_t *n, double *seconds) {
    static const char *const list[] = {"-an", "-sn", "-dn", "-c", "copy", "-f", "framecrc", "-", NULL};
    LLM__SCOPED(llm_text_free) llm_text told = LLM__ZERO;
    double tick = 0, pts = 0, first = 0, last = 0;
    const llm_result r = llm__film_run(w, fd, kind, list, 16 << 20, &told);
    if (r) return r;
    *n = 0;
    llm__str rest = llm__text_str(&told);
    while (rest.n) {
        const llm__str line = llm__s(rest.p, llm__str_until(rest, "\n"));
        if (!*n) tick = LLM__MAX(tick, llm__film_tick_of(line));
        if (llm__film_stamp(line, &pts)) {
            first = *n ? LLM__MIN(first, pts) : pts;
            last = *n ? LLM__MAX(last, pts) : pts;
            ++*n;
        }
        rest = llm__str_from(rest, LLM__MIN(line.n + 1, rest.n));
    }
    if (!*n) return llm__error(LLM_ERR_FORMAT, "ffmpeg finds no frames in it");
    const double span = (last - first) * tick;
    *seconds = span > 0 && span < 1e6 ? span * *n / (*n - 1) : *n / 25.0;
    return LLM_OK;
}

/* The filter that leaves those of n frames that llm__frame_at takes, written the other way round: is frame n one of them? To the last: of
 * the two places that may round to it, halves to even, one does. Of steps the last one up to it is past the frame before. */
static void llm__film_select(const llm__vision *v, int32_t n, int32_t taken, double step, char out[384]) {
    out[0] = 0;
    char every[40];
    llm__format_double(step, every);
    if (step > 0) snprintf(out, 384, "select='gt(floor((n+.000001)/%s)*%s,n-.999999)',", every, every);
    else if (taken < 2 && llm__frames_to_the_last(v)) snprintf(out, 384, "select='eq(n,0)',");
    else if (taken < n && llm__frames_to_the_last(v))
        snprintf(out, 384,
                 "select='st(0,%d/%d);st(1,ceil((n-.5)/ld(0)));st(2,ld(1)*ld(0));st(3,(ld(1)+1)*ld(0));"
                 "eq(n,floor(ld(2)+.5)-eq(ld(2)-floor(ld(2)),.5)*mod(floor(ld(2)+.5),2))+"
                 "eq(n,floor(ld(3)+.5)-eq(ld(3)-floor(ld(3)),.5)*mod(floor(ld(3)+.5),2))',",
                 (int)n - 1, (int)taken - 1);
    else if (taken < n) snprintf(out, 384, "select='lt(ceil(n*%d/%d),ceil((n+1)*%d/%d))',", (int)taken, (int)n, (int)taken, (int)n);
}

/* The filters that leave `taken` of n frames, each of so many pixels at most. */
static void llm__film_filters(const llm__vision *v, int32_t n, int32_t taken, double step, size_t bytes, char out[768]) {
    const int64_t pixels = LLM__MAX((int64_t)bytes / 3 / taken * 9 / 10, 4096);
    char take[384];
    llm__film_select(v, n, taken, step, take);
    snprintf(out, 768,
             "%sscale=w='max(1,trunc(iw*min(1,sqrt(%lld/(iw*ih)))))':h='max(1,trunc(ih*min(1,sqrt(%lld/(iw*ih)))))':flags=bicubic,"
             "settb=1/25,setpts=N",
             take, (long long)pixels, (long long)pixels);
}

/* A number of a PPM's head, behind white space. 0: there is none. */
static int64_t llm__film_number(llm__str *rest) {
    int64_t v = 0;
    while (rest->n && (*rest->p == ' ' || *rest->p == '\n')) *rest = llm__str_from(*rest, 1);
    for (int i = 0; i < 9 && rest->n && *rest->p >= '0' && *rest->p <= '9'; i++) {
        v = 10 * v + (*rest->p - '0');
        *rest = llm__str_from(*rest, 1);
    }
    return v;
}

/* The frames that were written, at most so many: "P6 WIDTH HEIGHT 255", white space, and three bytes a pixel. */
static llm_result llm__film_frames(llm__film *film, int32_t most) {
    llm__str rest = llm__text_str(&film->bytes);
    film->frames = LLM__NEW(llm_frame, most);
    if (!film->frames) return llm__nomem();
    while (rest.n) {
        const int ppm = rest.n > 3 && !memcmp(rest.p, "P6", 2);
        rest = llm__str_from(rest, LLM__MIN(rest.n, (size_t)2));
        const int64_t w = llm__film_number(&rest), h = llm__film_number(&rest), deepest = llm__film_number(&rest);
        if (!ppm || w < 1 || h < 1 || deepest != 255 || rest.n < 1)
            return llm__error(LLM_ERR_FORMAT, "ffmpeg wrote something else than frames");
        const llm_result r = llm__picture_size(w, h);
        if (r) return r;
        rest = llm__str_from(rest, 1);
        if (rest.n < (size_t)(w * h * 3)) return llm__error(LLM_ERR_FORMAT, "ffmpeg wrote a frame that is cut short");
        if (film->n == most) return llm__error(LLM_ERR_LIMIT, "ffmpeg wrote more than the %d frames that were expected", (int)most);
        const llm_frame frame = {(const uint8_t *)rest.p, (int32_t)w, (int32_t)h, 3};
        film->frames[film->n++] = frame;
        rest = llm__str_from(rest, (size_t)(w * h * 3));
    }
    return film->n ? LLM_OK : llm__error(LLM_ERR_FORMAT, "ffmpeg finds no frames in it");
}

/* Both runs over the file. */
static llm_result llm__film_decode(const llm__film_wait *w, const llm__processor *p, int fd, const char *kind, llm__film *film) {
    char filters[768], number[16];
    const char *const decode[] = {"-an",  "-sn",  "-dn", "-vf", filters,      "-r", "25", "-frames:v",
                                  number, "-c:v", "ppm", "-f",  "image2pipe", "-",  NULL};
    double seconds = 0;
    int32_t n = 0;
    llm_result r = llm__film_length(w, fd, kind, &n, &seconds);
    if (r) return r;
    const int32_t taken = llm__frames_taken(w->rules->vision, p, n, seconds);
    const double step = llm__frame_step(w->rules->vision, p, n, seconds);
    llm__film_filters(w->rules->vision, n, taken, step, w->rules->limit, filters);
    snprintf(number, sizeof number, "%d", (int)taken);
    r = llm__film_run(w, fd, kind, decode, w->rules->limit, &film->bytes);
    if (!r) r = llm__film_frames(film, taken);
    film->source = n;
    film->fps = step > 0 ? n / seconds / step : film->n / seconds;
    if (llm__frames_to_the_last(w->rules->vision) && taken > 1) film->fps = n / seconds * (taken - 1) / (n - 1);
    film->fps = LLM__MIN(LLM__MAX(film->fps, LLM__FPS_LEAST), LLM__FPS_MOST);
    return r;
}

LLM__PRIVATE llm_result llm__film_read(const llm__film_rules *rules, llm__str data, llm__film *film) {
    const llm__film_wait w = {rules, llm__now() + rules->seconds};
    llm__processor p = rules->vision->video_processor;
    const char *kind = llm__film_kind(data);
    if (!(rules->vision->family->flags & LLM__EYES_VIDEO)) return llm__error(LLM_ERR_UNSUPPORTED, "the model sees pictures, and no videos");
    llm_result r = rules->kwargs ? llm__processor_change(rules->vision, rules->kwargs, &p) : LLM_OK;
    if (r) return r;
    if (rules->fps > 0) p.fps = rules->fps;
    const int fd = llm__child_file(data);
    if (fd < 0) return llm__nomem();
    r = llm__film_decode(&w, &p, fd, kind, film);
    close(fd);
    return r;
}
