#include "cpu/tuning.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "base/threads.h"
#include "cpu/intrinsics.h"
#include "cpu/dtypes.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"
#include "cpu/backend.h"

LLM__PRIVATE llm__tuning llm__tuning_usual(void) {
    const llm__tuning t = {8192, 0, 4, 16, 0};
    return t;
}

/* Those that were measured (tests/bench/RESULTS.md): no other distance gains on Zen 3; 4 KB costs Sapphire Rapids a sixth, and on Zen 5
 * Q8_0 a seventh. Zen 4 (servers) reads weights a third faster by way of the second cache. */
static const struct llm__tuned {
    const char *vendor, *name;
    int32_t family, first, last; /* first to last: models */
    llm__tuning use;
} llm__tuned_table[] = {
    {"AuthenticAMD", "AMD Zen 3", 0x19, 0x00, 0x0F, {8192, 0, 4, 16, 1}},
    {"AuthenticAMD", "AMD Zen 4", 0x19, 0x10, 0x1F, {8192, 2048, 4, 16, 1}},
    {"AuthenticAMD", "AMD Zen 5", 0x1A, 0x00, 0xFF, {8192, 0, 4, 16, 1}},
    {"GenuineIntel", "Intel Sapphire Rapids", 0x06, 0x8F, 0x8F, {8192, 0, 4, 16, 0}},
};

LLM__PRIVATE llm__chip llm__chip_here(void) {
    llm__chip p = LLM__ZERO;
#if LLM__X86
    unsigned a = 0, b, c, d, name[3];
    if (!__get_cpuid(0, &a, &name[0], &name[2], &name[1])) return p;
    memcpy(p.vendor, name, 12);
    if (!__get_cpuid(1, &a, &b, &c, &d)) return p;
    p.family = (int32_t)(a >> 8 & 15);
    p.model = (int32_t)(a >> 4 & 15);
    if (p.family == 6 || p.family == 15) p.model += (int32_t)(a >> 16 & 15) << 4;
    if (p.family == 15) p.family += (int32_t)(a >> 20 & 255);
#endif
    return p;
}

/* One part of the text. 0: no such name or value. */
static int llm__tuning_set(llm__str word, llm__tuning *t, int *fetching) {
    static const struct {
        const char *name;
        int32_t least, most, step;
    } fields[] = {
        {"ahead=", 0, 1 << 20, 64}, {"near=", 0, 1 << 20, 64}, {"band=", 1, 1024, 1}, {"signs=", 1, LLM__TILE + 1, 1}, {"bits=", 0, 1, 1}};
    int32_t *const to[] = {&t->ahead, &t->near, &t->band, &t->signs, &t->bits};
    for (int i = 0; i < LLM__COUNT(fields); i++) {
        const size_t n = strlen(fields[i].name);
        int64_t x = 0;
        if (word.n <= n || memcmp(word.p, fields[i].name, n)) continue;
        if (!llm__parse_int(word.p + n, word.n - n, &x) || x < fields[i].least || x > fields[i].most || x % fields[i].step) return 0;
        *to[i] = (int32_t)x;
        *fetching |= i < 2;
        return 1;
    }
    return 0;
}

LLM__PRIVATE llm_result llm__tuning_of(const char *text, const llm__chip *of, llm__tuning *out, const char **why) {
    const char *words = text ? text : "auto";
    int measure = 0, fetching = 0, forced = 0;
    llm__str word;
    *out = llm__tuning_usual();
    out->bits = !strcmp(of->vendor, "AuthenticAMD");
    *why = NULL;
    for (int i = 0; i < LLM__COUNT(llm__tuned_table); i++) {
        const struct llm__tuned *t = &llm__tuned_table[i];
        if (strcmp(t->vendor, of->vendor) || t->family != of->family || of->model < t->first || of->model > t->last) continue;
        *out = t->use;
        *why = t->name;
    }
    while (llm__list_next(&words, ",", &word)) {
        if (llm__str_eq(word, "auto")) continue;
        if (llm__str_eq(word, "measure")) measure = 1;
        else if (llm__tuning_set(word, out, &fetching)) forced = 1;
        else
            return llm__error(LLM_ERR_ARG,
                              "tuning: %.*s, auto, measure, ahead=N (bytes, whole lines of 64), near=N, band=N (1 to 1024), signs=N (1 "
                              "to %d) or bits=0|1 was expected",
                              (int)LLM__MIN(word.n, (size_t)40), word.p, LLM__TILE + 1);
    }
    if (measure) *why = NULL;
    if (forced && (fetching || *why)) *why = "forced"; /* else fetching is still open */
    return LLM_OK;
}

LLM__PRIVATE void llm__tuning_words(const llm__tuning *t, const char *why, char *out, size_t n) {
    snprintf(out, n, "ahead=%d,near=%d,band=%d,signs=%d,bits=%d (%s)", t->ahead, t->near, t->band, t->signs, t->bits, why);
}

/* ---- Measuring ----
 * Eight passes of 2.5 milliseconds, four ways twice:
 *
 *     pass        0      1      2      3      4      5      6      7
 *     distance    8192   4096   16384  8192   8192   4096   16384  8192
 *     near        0      0      0      2048   0      0      0      2048
 *
 * so that a neighbour who slows the machine down for a few milliseconds cannot decide alone. Each thread reads weights as in a step of one
 * answer, from a place of its own in each pass; inputs are zeros, for what is multiplied does not change the time. */

enum { LLM__TRIALS = 4, LLM__TRIAL_ROUNDS = 2 }; /* the usual way is the first one */
static const struct { int32_t ahead, near; } llm__trial_way[LLM__TRIALS] = {{8192, 0}, {4096, 0}, {16384, 0}, {8192, 2048}};

typedef struct llm__trial {
    const llm_backend_ctx *ctx;
    double end;                                    /* the time at which all of it is over */
    int64_t rate[LLM__TRIAL_ROUNDS * LLM__TRIALS]; /* of all threads */
} llm__trial;

LLM__PRIVATE int llm__tuning_better(const int64_t *rates, int n) {
    int best = 0;
    int64_t most = LLM__MAX(rates[0], rates[n]);
    most += most / 20;
    for (int i = 1; i < n; i++) {
        const int64_t least = LLM__MIN(rates[i], rates[n + i]);
        if (least > most && rates[0] && rates[n]) best = i, most = least;
    }
    return best;
}

/* One token's products with the blocks of a weight, until the time is over. Bytes that were read. */
static int64_t llm__trial_weight(const llm__kernels *k, const llm_weight *w, llm__product *p, double end) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < w->n_blocks && llm__now() < end; i += p->pair) {
        const llm__block *b = &w->block[i];
        p->pair = b->pair;
        if (llm__kind_is_float((llm__kind)b->kind)) continue;
        p->w = w->memory + b->offset;
        p->n_blocks = w->cols / 32;
        k->product((llm__kind)b->kind, p);
        bytes += llm__kind_row_bytes((llm__kind)b->kind, w->cols, b->pair);
    }
    return bytes;
}

/* Each pass tries a way for 2.5 milliseconds, and begins at another weight: what was just read would come from the cache. */
static void llm__trial_pass(void *arg, int pass, int part, int n_parts) {
    llm__trial *t = (llm__trial *)arg;
    const llm_backend_ctx *ctx = t->ctx;
    const llm__kernels *k = ctx->kernels;
    float out[2][LLM__OUT] __attribute__((aligned(64)));
    const double begin = llm__now(), end = LLM__MIN(begin + 0.0025, t->end);
    const size_t n = ctx->n_weights, first = n * (size_t)(pass * n_parts + part) / (size_t)(LLM__COUNT(t->rate) * n_parts);
    int64_t bytes = 0;
    int tiles = 0;
    llm__product p;
    memset(&p, 0, sizeof p);
    p.n = 1;
    p.out = out[0];
    p.tiles = &tiles;
    p.ahead = llm__trial_way[pass % LLM__TRIALS].ahead;
    p.near = llm__trial_way[pass % LLM__TRIALS].near;
    p.signs = ctx->tuning.signs;
    uint8_t *scratch = (uint8_t *)ctx->scratch + (size_t)part * ctx->scratch_bytes;
    for (size_t i = 0; i < n && llm__now() < end; i++) {
        const llm_weight *w = ctx->weight[(first + i) % n];
        const size_t blocks = (size_t)w->cols / 32;
        if (w->form == LLM__FORM_F32 || !w->block || llm__act_place(&p.act, scratch, blocks) > ctx->scratch_bytes) continue;
        memset(scratch, 0, llm__act_place(&p.act, scratch, blocks));
        bytes += llm__trial_weight(k, w, &p, end);
    }
    if (k->rest) k->rest(&tiles);
    if (bytes) __atomic_fetch_add(&t->rate[pass], (int64_t)((double)bytes / (llm__now() - begin)), __ATOMIC_RELAXED);
}

LLM__PRIVATE int llm__tuning_measure(llm_backend_ctx *ctx) {
    llm__trial t = LLM__ZERO;
    t.ctx = ctx;
    t.end = llm__now() + 0.02;
    llm__pool_run(ctx->pool, llm__trial_pass, &t, LLM__COUNT(t.rate));
    const int best = llm__tuning_better(t.rate, LLM__TRIALS);
    ctx->tuning.ahead = llm__trial_way[best].ahead;
    ctx->tuning.near = llm__trial_way[best].near;
    return t.rate[0] > 0;
}
