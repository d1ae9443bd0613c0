/* Videos by a child: programs that stand in for ffmpeg, honest ones and others. Real ones are decoded in tests/e2e/test_vision.py. */
#include "../folder.h"
#include "../comma.h"
#include "base/platform.h"
#include "base/text.h"
#include "vision/tower_kinds.h"
#include "vision/vision.h"
#include "vision/fit.h"
#include "serve/film.h"

static const char fm_mp4[] = "\0\0\0\x18"
                             "ftypisom....",
                  fm_four[] = "#tb 0: 1/2\\n0, 0, 0, 1, 9, 0x0\\n0, 1, 2, 1, 9, 0x0\\n0, 2, 1, 1, 9, 0x0\\n0, 3, 3, 1, 9, 0x0\\n";

/* Reads a video by a program that says `length` when it is asked for the length, and does `decode` else. flags: of the family, beside that it
 * sees videos. fps 0: one. */
static llm_result fm_read_as(const test_folder *f, int flags, double fps, const char *length, const char *decode, double seconds,
                             const int *cancelled, llm__film *film) {
    llm__eyes_family family;
    llm__vision v;
    char script[1200];
    memset(&family, 0, sizeof family);
    memset(&v, 0, sizeof v);
    memset(film, 0, sizeof *film);
    family.flags = LLM__EYES_VIDEO | (uint32_t)flags;
    v.family = &family;
    v.frames = 2;
    v.video_processor.fps = 1, v.video_processor.min_frames = 2, v.video_processor.max_frames = 8;
    snprintf(script, sizeof script, "#!/bin/sh\ncase \"$*\" in\n*framecrc*) %s ;;\n*) %s ;;\nesac\n", length, decode);
    CHECK(folder_write_text(f, "ffmpeg", script) && !chmod(folder_file(f, "ffmpeg"), 0700));
    const llm__film_rules rules = {&v, NULL, fps, seconds, 1 << 20, cancelled};
    return llm__film_read(&rules, llm__s(fm_mp4, sizeof fm_mp4 - 1), film);
}

static llm_result fm_read(const test_folder *f, const char *length, const char *decode, double seconds, const int *cancelled,
                          llm__film *film) {
    return fm_read_as(f, 0, 0, length, decode, seconds, cancelled, film);
}

/* That it is refused with a sentence that holds `what`, within its time. */
static void fm_refuse(const test_folder *f, const char *length, const char *decode, double seconds, llm_result right, const char *what) {
    llm__film film;
    char said[200];
    snprintf(said, sizeof said, "printf '%s'", length);
    const llm_result r = fm_read(f, length[0] == '@' ? length + 1 : said, decode, seconds, NULL, &film);
    if (!CHECK(r == right && strstr(llm_last_error(), what))) printf("  %s, %s: %d, %s\n", length, decode, (int)r, llm_last_error());
    llm__film_free(&film);
}

static void fm_test_lies(const test_folder *f) {
    fm_refuse(f, fm_four, "exit 7", 60, LLM_ERR_IO, "exit code 7");
    fm_refuse(f, fm_four, "kill -9 $$", 60, LLM_ERR_IO, "exit code -1");
    fm_refuse(f, fm_four, "case $(ulimit -v).$(ulimit -f).$(ulimit -c).$(cat /proc/$$/environ) in *[0-9].0.0.) exit 17 ;; esac", 60,
              LLM_ERR_IO, "exit code 17"); /* bounds, and no environment */
    fm_refuse(f, fm_four, "", 60, LLM_ERR_FORMAT, "no frames");
    fm_refuse(f, fm_four, "printf 'hello'", 60, LLM_ERR_FORMAT, "something else");
    fm_refuse(f, fm_four, "printf 'P6\\n2 1\\n255\\nabc'", 60, LLM_ERR_FORMAT, "cut short");
    fm_refuse(f, fm_four, "printf 'P6\\n0 5\\n255\\n'", 60, LLM_ERR_FORMAT, "something else");
    fm_refuse(f, fm_four, "printf 'P6\\n999999999 999999999\\n255\\n'", 60, LLM_ERR_LIMIT, "");
    fm_refuse(f, fm_four, "printf 'P6\\n2 1\\n65535\\nabcdefabcdef'", 60, LLM_ERR_FORMAT, "something else");
    fm_refuse(f, fm_four, "printf 'P6\\n1 1\\n255\\nabcP6\\n1 1\\n255\\nabcP6\\n1 1\\n255\\nabc'", 60, LLM_ERR_LIMIT, "more than the 2");
    fm_refuse(f, fm_four, "while :; do printf '%1000000d' 1; done", 60, LLM_ERR_LIMIT, "bytes of output");
    fm_refuse(f, "#tb 0: 1/2\\n", "", 60, LLM_ERR_FORMAT, "no frames");
    fm_refuse(f, "0, 0\\n,,\\n,,,\\n\\n", "", 60, LLM_ERR_FORMAT, "no frames");
    fm_refuse(f, "0, 0, x, 1\\n#0, 0, 1, 1", "", 60, LLM_ERR_FORMAT, "no frames");
    fm_refuse(f, "0, 0, nan, 1\\n0, 0, 1e300, 1", "", 60, LLM_ERR_FORMAT, "no frames");
    fm_refuse(f, "#tb 0: 1/0\\n#tb 0: 1\\n#tb 0: /\\n0, 0, 1", "", 60, LLM_ERR_FORMAT, "no frames");
    fm_refuse(f, "@while :; do echo 0, 0, 1, 1; done", "", 60, LLM_ERR_LIMIT, "bytes of output");
    fm_refuse(f, "@sleep 1000", "", 0.3, LLM_ERR_IO, "within 0.3 s");
    fm_refuse(f, fm_four, "printf 'P6\\n2 1'; sleep 1000", 0.3, LLM_ERR_IO, "within 0.3 s");
    fm_refuse(f, fm_four, "exec >&-; sleep 1000", 0.3, LLM_ERR_IO, "within 0.3 s");             /* it writes no more, and stays */
    fm_refuse(f, fm_four, "sleep 1000 & sleep 1000 & exit 0", 0.3, LLM_ERR_IO, "within 0.3 s"); /* others have its output */
}

/* A step that is no whole number is told with a point, whatever the program's locale is; and few frames of a long film have a rate that a
 * video may have. */
static void fm_test_numbers(const test_folder *f, locale_t comma) {
    static const char step[] = "case \"$*\" in *'/1.3333333333333333)*1.3333333333333333,'*) ;; *) exit 9 ;; esac; "
                               "printf 'P6\\n1 1\\n255\\nabcP6\\n1 1\\n255\\nabcP6\\n1 1\\n255\\nabc'";
    llm__film film;
    char said[200];
    locale_t plain = uselocale((locale_t)0);
    snprintf(said, sizeof said, "printf '%s'", fm_four);
    for (int i = 0; i < 1 + (comma != (locale_t)0); i++) {
        if (i) uselocale(comma);
        CHECK(!fm_read_as(f, LLM__EYES_BEHIND, 1.5, said, step, 60, NULL, &film) && film.n == 3);
        uselocale(plain);
        llm__film_free(&film);
    }
    CHECK(!fm_read(f, "printf '#tb 0: 1/1\\n0, 0, 0, 1\\n0, 90000, 90000, 1\\n'", "printf 'P6\\n1 1\\n255\\nabcP6\\n1 1\\n255\\nabc'", 60,
                   NULL, &film) &&
          film.n == 2 && film.source == 2 && LLM__FPS_FITS(film.fps));
    llm__film_free(&film);
}

TEST_GROUP(film) {
    test_folder f;
    llm__film film;
    const char *path = getenv("PATH");
    const int cancelled = 1;
    locale_t comma = comma_locale(); /* while PATH has localedef */
    char *kept = path ? strdup(path) : NULL;
    CHECK(llm__film_kind(llm__s(fm_mp4, sizeof fm_mp4 - 1)) && !llm__film_kind(llm__lit("GIF89a..........")) &&
          !llm__film_kind(llm__lit("")));
    CHECK(!llm__film_kind(llm__lit("#EXTM3U\nfile:///etc/passwd")) && !llm__film_kind(llm__lit("ffconcat version 1.0")));
    if (!comma) SKIP("localedef, which makes a locale with a comma, is not there");
    if (!folder_open(&f)) return;
    CHECK(!setenv("PATH", f.path, 1));
    CHECK(!fm_read(&f, "printf '#tb 0: 1/1000\\n0, 0, 0, 1\\n0, 500, 1000, 1\\n0, 1000, 500, 1\\n0, 1500, 1500, 1\\n'",
                   "printf 'P6\\n2 1\\n255\\nabcdefP6\\n1 2\\n255\\nghijkl'", 60, NULL, &film));
    CHECK(film.n == 2 && film.frames[0].width == 2 && film.frames[1].height == 2 && !memcmp(film.frames[1].pixels, "ghijkl", 6));
    CHECK(fabs(film.fps - 1) < 1e-9); /* two of the four frames, which last two seconds */
    llm__film_free(&film);
    fm_test_numbers(&f, comma);
    fm_test_lies(&f);
    CHECK(fm_read(&f, "sleep 1000", "", 60, &cancelled, &film) == LLM_ERR_IO);
    CHECK(!setenv("PATH", "/nowhere", 1));
    CHECK(fm_read(&f, "", "", 60, NULL, &film) == LLM_ERR_IO && strstr(llm_last_error(), "must be installed"));
    if (kept) setenv("PATH", kept, 1);
    free(kept);
    if (comma) freelocale(comma);
    folder_close(&f);
}
