/* What is chosen for a processor: what is known, what is forced, what is refused, and the measurement. That no choice changes a bit is shown
 * by test_linear.c, whose products run with different ones. */
#include "../test.h"
#include "api/backend.h"
#include "base/alloc.h"
#include "base/platform.h"
#include "cpu/backend.h"
#include "cpu/tuning.h"

static llm__tuning tun_of(const char *text, const char *vendor, int family, int model, const char **why) {
    llm__chip p = LLM__ZERO;
    llm__tuning t = LLM__ZERO;
    snprintf(p.vendor, sizeof p.vendor, "%s", vendor);
    p.family = family, p.model = model;
    CHECK(!llm__tuning_of(text, &p, &t, why));
    return t;
}

static int tun_is(llm__tuning t, int ahead, int near, int band, int signs, int bits) {
    return t.ahead == ahead && t.near == near && t.band == band && t.signs == signs && t.bits == bits;
}

static void tun_choice(void) {
    const llm__tuning u = llm__tuning_usual();
    const char *why;
    llm__tuning t = tun_of(NULL, "AuthenticAMD", 25, 1, &why);
    CHECK(why && !strcmp(why, "AMD Zen 3") && t.bits == 1);
    t = tun_of("auto", "AuthenticAMD", 25, 0x11, &why);
    CHECK(why && !strcmp(why, "AMD Zen 4") && tun_is(t, u.ahead, 2048, u.band, u.signs, 1));
    t = tun_of("auto", "AuthenticAMD", 25, 0x61, &why); /* Zen 4 beside another memory: not measured */
    CHECK(!why && tun_is(t, u.ahead, u.near, u.band, u.signs, 1));
    t = tun_of(NULL, "GenuineIntel", 6, 143, &why);
    CHECK(why && strstr(why, "Sapphire") && t.bits == 0);
    t = tun_of(NULL, "GenuineIntel", 25, 1, &why);
    CHECK(!why && tun_is(t, u.ahead, u.near, u.band, u.signs, 0));
    tun_of("measure", "AuthenticAMD", 25, 1, &why);
    CHECK(!why);
    t = tun_of("ahead=4096,near=1024,band=7,signs=33,bits=1", "", 0, 0, &why);
    CHECK(why && !strcmp(why, "forced") && tun_is(t, 4096, 1024, 7, 33, 1));
    t = tun_of("ahead=0", "", 0, 0, &why);
    CHECK(why && tun_is(t, 0, u.near, u.band, u.signs, 0));
    t = tun_of("band=9", "", 0, 0, &why); /* the distance is still to be measured */
    CHECK(!why && t.band == 9);
    t = tun_of("band=9", "AuthenticAMD", 25, 1, &why);
    CHECK(why && !strcmp(why, "forced") && t.band == 9);
}

static void tun_refused(void) {
    static const char *const bad[] = {"fast",      "ahead",  "ahead=",  "ahead=-64", "ahead=100",       "ahead=9999872",
                                      "band=0",    "band=x", "signs=0", "signs=34",  "ahead=64,what=1", "ahead =64",
                                      "ahead=64 ", "bits=2", "bits=",   "near=-64",  "near=1"};
    const llm__chip p = LLM__ZERO;
    for (int i = 0; i < LLM__COUNT(bad); i++) {
        llm__tuning t;
        const char *why;
        if (!CHECK(llm__tuning_of(bad[i], &p, &t, &why) == LLM_ERR_ARG && strstr(llm_last_error(), "ahead=N"))) printf("  %s\n", bad[i]);
    }
}

/* Two rounds each: the first one stays, unless another beats both of its rates with both of its own. */
static void tun_better(void) {
    static const struct {
        int64_t rates[6];
        int want;
    } cases[] = {{{100, 90, 104, 101, 90, 103}, 0},
                 {{100, 90, 120, 101, 90, 119}, 2},
                 {{100, 130, 120, 100, 90, 119}, 2},
                 {{100, 120, 90, 118, 125, 90}, 0},
                 {{100, 110, 125, 100, 110, 124}, 2},
                 {{100, 120, 120, 0, 0, 0}, 0},
                 {{0, 0, 0, 0, 0, 0}, 0}};
    for (int i = 0; i < LLM__COUNT(cases); i++) CHECK(llm__tuning_better(cases[i].rates, 3) == cases[i].want);
}

/* A backend with one weight: of bytes there is something to measure with, if the machine gives time; of floats there is not. */
static void tun_measured(int32_t type, int threads, const char *text, const char *want) {
    static uint8_t data[64 * 256 * 4];
    const llm_backend *be = llm_backend_cpu();
    llm_backend_config c = LLM__ZERO;
    llm_backend_ctx *ctx;
    llm_weight_desc d = LLM__ZERO;
    llm_segment s = LLM__ZERO;
    llm_weight *w;
    c.n_threads = threads;
    c.max_rows = c.max_seqs = c.max_pages_per_seq = 1;
    c.tuning = text;
    if (!CHECK(!be->open(&c, &ctx))) return;
    s.data = data;
    s.type = type;
    s.n_rows = d.rows = 64;
    s.n_cols = s.stored_cols = d.cols = 256;
    d.name = "w";
    d.role = LLM_ROLE_LINEAR;
    d.segments = &s;
    d.n_segments = 1;
    CHECK(!be->weight(ctx, 0, &d, &w) && !be->weights_done(ctx));
    const int ahead = ctx->tuning.ahead, near = ctx->tuning.near;
    if (!CHECK(strstr(be->describe(ctx), want) && (ahead == 8192 || (!near && ahead == 16384) || ahead == 4096)))
        printf("  %s\n", be->describe(ctx));
    be->close(ctx);
}

TEST_GROUP(tuning) {
    tun_choice();
    tun_refused();
    tun_better();
    tun_measured(LLM_TYPE_Q8_0, 2, "measure", "measured)");
    tun_measured(LLM_TYPE_Q4_K, 3, "measure", "measured)");
    tun_measured(LLM_TYPE_F32, 2, "measure", "(usual, nothing could be measured)");
    tun_measured(LLM_TYPE_Q8_0, 1, "ahead=4096,near=64,bits=0", "1 thread; ahead=4096,near=64,band=4,signs=16,bits=0 (forced)");
}
