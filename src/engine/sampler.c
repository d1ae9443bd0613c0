#include "engine/sampler.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/model.h"
#include "api/sampler.h"
#include "api/request.h"
#include "api/json.h"
#include "api/raw.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/map.h"
#include "base/fields.h"
#include "cpu/isa.h"
#include "cpu/kernels.h"
#include "model/loader.h"
#include "engine/badwords.h"

LLM__PRIVATE double llm__uniform(uint64_t seed, uint64_t position) {
    uint64_t key = llm__mix(seed + 0x9E3779B97F4A7C15u);
    return (double)(llm__mix(key ^ llm__mix(position * 0xD1342543DE82EF95u + 0x632BE59BD9B4E019u)) >> 11) * (1.0 / 9007199254740992.0);
}

/* Restores a heap below `at`, the only place where it may be broken. Its root is the worst that is kept, the last in
 * llm__before's order: the one that a better value replaces. */
static void llm__top_sift(llm_token_logprob *heap, int32_t n, int32_t at) {
    for (int32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && llm__before(heap[child].logprob, heap[child].id, heap[child + 1].logprob, heap[child + 1].id)) child++;
        if (llm__before(heap[child].logprob, heap[child].id, heap[at].logprob, heap[at].id)) return;
        llm_token_logprob t = heap[at];
        heap[at] = heap[child];
        heap[child] = t;
    }
}

LLM__PRIVATE int32_t llm__top_logprobs(const float *x, int32_t n, int32_t k, double log_sum, llm_token_logprob *out) {
    k = LLM__MIN(k, n);
    for (int32_t i = 0; i < k; i++) out[i].id = i, out[i].logprob = x[i];
    for (int32_t i = k / 2 - 1; i >= 0; i--) llm__top_sift(out, k, i);
    for (int32_t i = k; k && i < n; i++) {
        if (!(x[i] > out[0].logprob)) continue; /* a later equal has the higher id */
        out[0].id = i, out[0].logprob = x[i];
        llm__top_sift(out, k, 0);
    }
    for (int32_t m = k - 1; m > 0; m--) {
        llm_token_logprob last = out[0];
        out[0] = out[m];
        out[m] = last;
        llm__top_sift(out, m, 0);
    }
    for (int32_t i = 0; i < k; i++) out[i].logprob = (float)((double)out[i].logprob - log_sum);
    return k;
}

LLM__PRIVATE int32_t llm__logprobs_of(const float *x, const int32_t *ids, int32_t n, double log_sum, llm_token_logprob *out) {
    for (int32_t i = 0; i < n; i++) out[i].id = ids[i], out[i].logprob = (float)((double)x[ids[i]] - log_sum);
    return n;
}

LLM__PRIVATE int llm__scratch_open(llm__scratch *k, int32_t vocab, const llm__kernels *kernels, llm__arena *a) {
    llm__isa isa;
    if (!kernels && !llm__isa_find(NULL, &isa)) kernels = llm__kernels_of(isa);
    k->kernels = kernels;
    k->x = (float *)llm__arena_get(a, (size_t)vocab * sizeof *k->x);
    k->w = (float *)llm__arena_get(a, (size_t)vocab * sizeof *k->w);
    k->id = (int32_t *)llm__arena_get(a, (size_t)vocab * sizeof *k->id);
    k->mass = (double *)llm__arena_get(a, 2048 * sizeof *k->mass);
    k->allowed = (uint32_t *)llm__arena_get(a, ((size_t)vocab + 31) / 32 * sizeof *k->allowed);
    return k->x && k->w && k->id && k->mass && k->allowed;
}

/* The value at which a descending sum of the weights (by_mass) or of ones reaches `target`; *above: the sum of what is larger. With ones
 * this is the target-th largest (top-k), with weights where the probable part ends (top-p). A radix select: the bits of positive floats
 * order as the floats do, so three histograms of 11, 11 and 10 bits find it without sorting. Each level walks down from the largest bin
 * to the one that crosses the target, and the next level looks only at the values of this bin. mass: (2048). */
static float llm__select(const float *w, int32_t n, int by_mass, double target, double *mass, double *above) {
    static const int low[3] = {21, 10, 0}, width[3] = {11, 11, 10};
    uint32_t prefix = 0, bits;
    float value;
    *above = 0;
    for (int level = 0; level < 3; level++) {
        uint32_t mask = (1u << width[level]) - 1, at = mask;
        memset(mass, 0, 2048 * sizeof *mass);
        for (int32_t i = 0; i < n; i++) {
            memcpy(&bits, &w[i], 4);
            if (level && bits >> (low[level] + width[level]) != prefix) continue;
            mass[bits >> low[level] & mask] += by_mass ? (double)w[i] : 1.0;
        }
        while (at > 0 && *above + mass[at] < target) *above += mass[at--];
        prefix = prefix << width[level] | at;
    }
    memcpy(&value, &prefix, 4);
    return value;
}

/* Keeps the candidates above `least` and the first `ties` equal to it, in place and in order. Returns how many. */
static int32_t llm__keep(llm__scratch *k, int32_t n, float least, double ties) {
    int32_t m = 0;
    for (int32_t i = 0; i < n; i++) {
        if (k->w[i] < least || (k->w[i] == least && ties < 1)) continue;
        ties -= k->w[i] == least;
        k->w[m] = k->w[i];
        k->id[m++] = k->id[i];
    }
    return m;
}

enum { LLM__ROW_BLOCK = 64 }; /* weights whose sum is looked at together */

/* The sum of m values in the order of four lanes, whoever asks: so equal weights give equal sums everywhere. */
LLM__INLINE double llm__sum_block(const float *w, int m) {
    double lane[4] = {0, 0, 0, 0};
    int k = 0;
    for (; k + 4 <= m; k += 4)
        for (int j = 0; j < 4; j++) lane[j] += (double)w[k + j];
    for (; k < m; k++) lane[k & 3] += (double)w[k];
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

/* The index whose share of the weights holds u of [0, 1), in order of index: inversion of the cumulative sum. Blocks
 * are skipped by their sums first, which are made in the same order as the total, so the walk ends inside; should
 * rounding still carry it past the end, the last with any weight is taken. */
static int32_t llm__draw(const float *w, int32_t n, double u) {
    double total = 0, sum = 0, block = 0;
    int32_t i = 0, last = 0;
    for (i = 0; i < n; i += LLM__ROW_BLOCK) total += llm__sum_block(w + i, LLM__MIN(LLM__ROW_BLOCK, n - i));
    for (i = 0; i < n; i += LLM__ROW_BLOCK, sum += block) {
        block = llm__sum_block(w + i, LLM__MIN(LLM__ROW_BLOCK, n - i));
        if (sum + block > u * total) break;
    }
    for (; i < n; i++) {
        if (w[i] > 0) last = i;
        sum += (double)w[i];
        if (sum > u * total) return i;
    }
    return last;
}

LLM__PRIVATE int32_t llm__pick(llm__scratch *k, int32_t n, const llm_sampling *s, double u, float *weight) {
    double above, sum = 0;
    int32_t m = 0;
    int top_p = s->top_p > 0 && s->top_p < 1;
    float least = s->min_p > 1e-30f ? s->min_p : 1e-30f, keep = least;
    if (s->min_p <= 0 && s->top_k <= 0 && !top_p) {
        int32_t id = llm__draw(k->w, n, u);
        *weight = k->w[id];
        return id;
    }
    if (top_p && s->top_k <= 0)
        keep = LLM__MAX(least, (1 - s->top_p) / (float)n); /* n of these are less than what top-p cuts off: only summed */
    for (int32_t i = 0; i < n; i++) {
        if (k->w[i] < least) continue;
        sum += (double)k->w[i];
        if (k->w[i] < keep) continue;
        k->w[m] = k->w[i];
        k->id[m++] = i;
    }
    if (s->top_k > 0 && s->top_k < m) { /* all ties of the k-th stay, as in vLLM */
        least = llm__select(k->w, m, 0, s->top_k, k->mass, &above);
        m = llm__keep(k, m, least, m);
        sum = 0;
        for (int32_t i = 0; i < m; i++) sum += (double)k->w[i];
    }
    if (top_p) { /* a token stays if what is before it sums to less than top_p */
        double target = (double)s->top_p * sum;
        least = llm__select(k->w, m, 1, target, k->mass, &above);
        m = llm__keep(k, m, least, ceil(LLM__MAX(1.0, (target - above) / (double)least)));
    }
    int32_t i = llm__draw(k->w, m, u);
    *weight = k->w[i];
    return k->id[i];
}

LLM__PRIVATE void llm__history_add(llm__history *h, int32_t id, int32_t in_output) {
    if (!h->mask) return;
    uint32_t at = (uint32_t)llm__mix((uint64_t)id) & h->mask;
    while (h->slot[at] && h->id[h->slot[at] - 1] != id) at = (at + 1) & h->mask;
    if (!h->slot[at]) {
        h->id[h->n] = id;
        h->count[h->n] = 0;
        h->slot[at] = ++h->n;
    }
    h->count[h->slot[at] - 1] += in_output;
}

/* A banned token has weight 0 whatever follows. Ids beyond the row are ignored. */
static void llm__ban(float *x, int32_t n, int32_t id) {
    if (id >= 0 && id < n) x[id] = -INFINITY;
}

/* 1 if the rules leave every logit as it is. */
static int llm__rules_idle(const llm__rules *r) {
    return !r->bad && !r->s->n_logit_bias && r->n_output >= r->s->min_tokens && !(r->history && r->history->mask) && !r->allowed;
}

/* repetition: tokens of prompt or output, once an id, pushed away from the likely side whatever the sign of the logit (CTRL's rule);
 * frequency (times the count) and presence: tokens of the output only; in this order, on raw logits, as in vLLM. */
static void llm__penalise(float *x, int32_t n, const llm_sampling *s, const llm__history *h) {
    for (int32_t i = 0; i < h->n; i++) {
        int32_t id = h->id[i];
        if (id < 0 || id >= n) continue;
        float v = x[id] > 0 ? x[id] / s->repetition_penalty : x[id] * s->repetition_penalty;
        v -= s->frequency_penalty * (float)h->count[i];
        x[id] = h->count[i] > 0 ? v - s->presence_penalty : v;
    }
}

/* Bans what a grammar does not let through. */
static void llm__ban_others(float *x, int32_t n, const uint32_t *allowed) {
    for (int32_t i = 0; i < n; i += 32) {
        uint32_t bits = allowed[i / 32];
        for (int32_t k = 0; bits != UINT32_MAX && k < 32 && i + k < n; k++)
            if (!(bits >> k & 1)) x[i + k] = -INFINITY;
    }
}

LLM__PRIVATE void llm__rules_apply(const llm__rules *r, float *x, int32_t n) {
    const llm_sampling *s = r->s;
    if (r->allowed) llm__ban_others(x, n, r->allowed);
    if (r->bad) llm__badwords_ban(r->bad, r->output, r->n_said, x, n);
    if (r->n_output < s->min_tokens) {
        for (int32_t i = 0; i < r->n_eos; i++) llm__ban(x, n, r->eos[i]);
        for (int32_t i = 0; i < s->n_stop_token_ids; i++) llm__ban(x, n, s->stop_token_ids[i]);
    }
    for (int32_t i = 0; i < s->n_logit_bias; i++) {
        float bias = LLM__MIN(100.0f, LLM__MAX(-100.0f, s->logit_bias[i].bias));
        if (s->logit_bias[i].id >= 0 && s->logit_bias[i].id < n) x[s->logit_bias[i].id] += bias;
    }
    if (r->history && r->history->mask) llm__penalise(x, n, s, r->history);
}

/* The row after the rules: in place where they do nothing, else in k->x. k->w: exp((x - *max) * scale), *sum their sum. NULL: not
 * finite, or all of it banned. Fills in c what needs no choice. */
static const float *llm__weigh(const float *row, int32_t n, const llm__rules *r, float scale, llm__scratch *k, llm__choice *c, float *max,
                               double *sum) {
    int bad, idle = llm__rules_idle(r);
    const float *x = row;
    memset(c, 0, sizeof *c);
    c->id = LLM__CHOICE_NOT_FINITE;
    *max = k->kernels->top(row, n, &bad);
    if (bad) return NULL;
    *sum = k->kernels->weigh(row, k->w, n, *max, 1.0f);
    c->log_sum = (double)*max + log(*sum);
    if (!idle) {
        memcpy(k->x, row, (size_t)n * sizeof *row);
        llm__rules_apply(r, k->x, n);
        x = k->x;
        *max = k->kernels->top(x, n, &bad);
        if (bad && *max == -INFINITY) c->id = LLM__CHOICE_FORBIDDEN;
        if (bad) return NULL;
    }
    if (!idle || scale != 1.0f) *sum = k->kernels->weigh(x, k->w, n, *max, scale);
    return x;
}

/* The first of the values that is max, which one of them must be. */
static int32_t llm__find(const float *x, float max) {
    int32_t at = 0;
    while (x[at] != max) at++;
    return at;
}

LLM__PRIVATE llm__choice llm__choose(const float *row, int32_t n, const llm__rules *r, uint64_t seed, int64_t position, llm__scratch *k) {
    llm__choice c;
    int greedy = r->s->temperature < 1e-5f;
    float max, weight = 1;
    double sum;
    const float *x = llm__weigh(row, n, r, greedy ? 1.0f : 1.0f / r->s->temperature, k, &c, &max, &sum);
    if (!x) return c;
    c.id = greedy ? llm__find(x, max) : llm__pick(k, n, r->s, llm__uniform(seed, (uint64_t)position), &weight);
    c.prob = (float)((double)weight / sum);
    c.logprob = (float)((double)row[c.id] - c.log_sum);
    return c;
}

LLM__PRIVATE llm__choice llm__candidates(const float *row, int32_t n, const llm__rules *r, int32_t most, llm__scratch *k,
                                         llm_token_logprob *best, float *raw, int32_t *count) {
    llm__choice c;
    float max;
    double sum;
    const float *x = llm__weigh(row, n, r, 1.0f, k, &c, &max, &sum);
    *count = x ? llm__top_logprobs(x, n, most, (double)max + log(sum), best) : 0;
    while (*count && best[*count - 1].logprob < -1e30f) --*count; /* banned */
    for (int32_t i = 0; i < *count; i++) raw[i] = (float)((double)row[best[i].id] - c.log_sum);
    if (*count) c.id = best[0].id;
    return c;
}

LLM__PRIVATE const uint32_t *llm__only_tokens(const llm_sampling *s, int32_t vocab, llm__arena *a) {
    const size_t words = ((size_t)vocab + 31) / 32;
    uint32_t *only = s->n_allowed_token_ids > 0 ? (uint32_t *)llm__arena_get(a, words * sizeof *only) : NULL;
    if (only) memset(only, 0, words * sizeof *only);
    for (int64_t i = 0; only && i < s->n_allowed_token_ids; i++) {
        const int32_t id = s->allowed_token_ids[i];
        if (id >= 0 && id < vocab) only[id / 32] |= 1u << id % 32;
    }
    return only;
}

/* A row on its own, for programs with a loop of their own: no history, so penalties, min_tokens and bad words do not act. */
LLM_API int32_t llm_sample(const float *logits, int32_t n, const llm_sampling *s, int64_t seed, int64_t position) {
    llm__scratch k;
    llm__rules r = LLM__ZERO;
    LLM__SCOPED(llm__arena_free) llm__arena memory = LLM__ZERO;
    llm_sampling plain = *s;
    plain.min_tokens = 0; /* needs what only a request knows */
    r.s = &plain;
    r.allowed = n > 0 ? llm__only_tokens(s, n, &memory) : NULL;
    if (memory.failed) return -1;
    llm__isa isa;
    int bad;
    if (n > 0 && plain.temperature < 1e-5f && llm__rules_idle(&r) && !llm__isa_find(NULL, &isa)) { /* no weights, no memory */
        float max = llm__kernels_of(isa)->top(logits, n, &bad);
        return bad ? -1 : llm__find(logits, max);
    }
    if (n < 1 || !llm__scratch_open(&k, n, NULL, &memory)) return -1;
    return llm__choose(logits, n, &r, (uint64_t)seed, position, &k).id;
}

/* clang-format off */
LLM__PRIVATE const llm__field llm__sampling_fields[LLM__SAMPLING_FIELDS] = {
    LLM__FIELD(llm_sampling, max_tokens),
    LLM__FIELD(llm_sampling, min_tokens),
    LLM__FIELD(llm_sampling, temperature),
    LLM__FIELD(llm_sampling, top_p),
    LLM__FIELD(llm_sampling, min_p),
    LLM__FIELD(llm_sampling, top_k),
    LLM__FIELD(llm_sampling, repetition_penalty),
    LLM__FIELD(llm_sampling, presence_penalty),
    LLM__FIELD(llm_sampling, frequency_penalty),
    LLM__FIELD(llm_sampling, n),
    LLM__FIELD(llm_sampling, best_of),
    LLM__FIELD(llm_sampling, logprobs),
    LLM__FIELD(llm_sampling, prompt_logprobs),
    LLM__FIELD(llm_sampling, length_penalty),
    LLM__FIELD(llm_sampling, early_stopping),
    LLM__FIELD(llm_sampling, thinking_tokens)};
/* clang-format on */

LLM__PRIVATE llm_result llm__check_id(const char *name, int32_t id, int32_t vocab) {
    if (id >= 0 && (vocab <= 0 || id < vocab)) return LLM_OK;
    return llm__error(LLM_ERR_ARG, "%s: %d is no token, ids run from 0 to %d", name, (int)id, (int)vocab - 1);
}

/* Stop strings or bad words: their count, their total length, none empty. */
static llm_result llm__check_strings(const char *name, const char *const *s, int32_t n) {
    size_t total = 0;
    if (n < 0 || n > LLM__STOPS_MAX || (n && !s))
        return llm__error(LLM_ERR_ARG, "%s: %d strings, must be 0 to %d", name, (int)n, LLM__STOPS_MAX);
    for (int32_t i = 0; i < n; i++) {
        if (!s[i] || !*s[i]) return llm__error(LLM_ERR_ARG, "%s: cannot contain an empty string", name);
        total += strlen(s[i]);
    }
    if (total > LLM__STOP_BYTES_MAX) return llm__error(LLM_ERR_ARG, "%s: %zu bytes, must be at most %d", name, total, LLM__STOP_BYTES_MAX);
    return LLM_OK;
}

/* Lists of ids: each must be a token of the model. */
static llm_result llm__check_ids(const llm_sampling *s, int32_t vocab) {
    llm_result r = LLM_OK;
    if (s->n_stop_token_ids < 0 || (s->n_stop_token_ids && !s->stop_token_ids))
        return llm__error(LLM_ERR_ARG, "stop_token_ids: no list given");
    if (s->n_logit_bias < 0 || (s->n_logit_bias && !s->logit_bias)) return llm__error(LLM_ERR_ARG, "logit_bias: no list given");
    if (s->n_allowed_token_ids < 0 || (s->n_allowed_token_ids && !s->allowed_token_ids))
        return llm__error(LLM_ERR_ARG, "allowed_token_ids: no list given");
    if (s->n_think_open < 0 || (s->n_think_open && !s->think_open) || s->n_think_close < 0 || (s->n_think_close && !s->think_close))
        return llm__error(LLM_ERR_ARG, "think_open, think_close: no list given");
    if (s->thinking_tokens && !s->n_think_close) return llm__error(LLM_ERR_ARG, "thinking_tokens: no tag given that ends thoughts");
    if (s->n_logprob_token_ids < 0 || s->n_logprob_token_ids > LLM__LOGPROB_IDS_MAX || (s->n_logprob_token_ids && !s->logprob_token_ids))
        return llm__error(LLM_ERR_ARG, "logprob_token_ids: %d ids, must be 0 to %d", (int)s->n_logprob_token_ids, LLM__LOGPROB_IDS_MAX);
    if (s->n_logprob_token_ids && s->logprobs != s->n_logprob_token_ids + 1)
        return llm__error(LLM_ERR_ARG, "logprobs: %d, must be %d with so many logprob_token_ids and the token's own", (int)s->logprobs,
                          (int)s->n_logprob_token_ids + 1);
    for (int32_t i = 0; i < s->n_logprob_token_ids && !r; i++) r = llm__check_id("logprob_token_ids", s->logprob_token_ids[i], vocab);
    for (int32_t i = 0; i < s->n_think_open && !r; i++) r = llm__check_id("think_open", s->think_open[i], vocab);
    for (int32_t i = 0; i < s->n_think_close && !r; i++) r = llm__check_id("think_close", s->think_close[i], vocab);
    for (int32_t i = 0; i < s->n_stop_token_ids && !r; i++) r = llm__check_id("stop_token_ids", s->stop_token_ids[i], vocab);
    for (int64_t i = 0; i < s->n_allowed_token_ids && !r; i++) r = llm__check_id("allowed_token_ids", s->allowed_token_ids[i], vocab);
    for (int32_t i = 0; i < s->n_logit_bias && !r; i++) {
        r = llm__check_id("logit_bias", s->logit_bias[i].id, vocab);
        if (!r) r = llm__check_number("logit_bias", (double)s->logit_bias[i].bias, -1e30, 1e30, "a number");
    }
    return r;
}

LLM__PRIVATE llm_result llm__check_early_stop(const llm_early_stop *e) {
    static const llm__field fields[] = {LLM__FIELD(llm_early_stop, window_size), LLM__FIELD(llm_early_stop, threshold)};
    llm_result r = llm__fields_check(fields, LLM__COUNT(fields), e);
    return r ? llm__error(r, "early_stop.%s", llm_last_error()) : LLM_OK;
}

static llm_result llm__check_repetition(const llm_repetition_detection *d) {
    static const llm__field fields[] = {LLM__FIELD(llm_repetition_detection, max_pattern_size),
                                        LLM__FIELD(llm_repetition_detection, min_pattern_size),
                                        LLM__FIELD(llm_repetition_detection, min_count)};
    llm_result r = llm__fields_check(fields, LLM__COUNT(fields), d);
    if (!r) r = llm__check_number("min_pattern_size", d->min_pattern_size, 0, d->max_pattern_size, "at most max_pattern_size");
    if (!r && d->max_pattern_size) r = llm__check_number("min_count", d->min_count, 2, INT32_MAX, "at least 2 (times in a row)");
    return r ? llm__error(r, "repetition_detection.%s", llm_last_error()) : LLM_OK;
}

/* A beam search takes the likeliest: nothing is sampled, nothing depends on what was said. */
static llm_result llm__check_beams(const llm_sampling *s) {
    int32_t width = LLM__MAX(s->best_of, s->n);
    if (width < 2 || width > LLM__BEAMS_MAX)
        return llm__error(LLM_ERR_ARG, "best_of: %d, must be greater than 1 and at most %d when using beam search", (int)width,
                          LLM__BEAMS_MAX);
    if (s->temperature >= 1e-5f || s->min_p > 0 || s->top_k > 0 || (s->top_p > 0 && s->top_p < 1))
        return llm__error(LLM_ERR_ARG, "use_beam_search: temperature must be 0, top_p 1, top_k -1 and min_p 0");
    if ((s->repetition_penalty > 0 && s->repetition_penalty != 1) || s->presence_penalty != 0 || s->frequency_penalty != 0)
        return llm__error(LLM_ERR_ARG, "use_beam_search: penalties cannot be used with it");
    if (s->grammar) return llm__error(LLM_ERR_ARG, "use_beam_search: a grammar cannot be used with it");
    if (s->early_stop.enable > 0) return llm__error(LLM_ERR_ARG, "use_beam_search: early stop cannot be used with it");
    if (s->repetition_detection.max_pattern_size)
        return llm__error(LLM_ERR_ARG, "use_beam_search: repetition_detection cannot be used with it");
    if (s->thinking_tokens) return llm__error(LLM_ERR_ARG, "use_beam_search: a bound on thoughts cannot be used with it");
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__check_sampling(const llm_sampling *s, int32_t vocab) {
    const int32_t most = s->max_tokens ? s->max_tokens : 256, n = s->n ? s->n : 1, row = vocab > 0 ? vocab + 1 : INT32_MAX;
    llm_result r = llm__fields_check(llm__sampling_fields, LLM__SAMPLING_FIELDS, s);
    if (!r && most > 0) r = llm__check_number("min_tokens", s->min_tokens, 0, most, "at most max_tokens");
    if (!r && s->best_of) r = llm__check_number("best_of", s->best_of, n, INT32_MAX, "at least n");
    if (!r) r = llm__check_number("logprobs", s->logprobs, 0, row, "at most the vocabulary");
    if (!r) r = llm__check_number("prompt_logprobs", s->prompt_logprobs, 0, row, "at most the vocabulary");
    if (!r && s->use_beam_search) r = llm__check_beams(s);
    if (!r) r = llm__check_strings("stop", s->stop, s->n_stop);
    if (!r) r = llm__check_strings("bad_words", s->bad_words, s->n_bad_words);
    if (!r) r = llm__check_ids(s, vocab);
    if (!r) r = llm__check_repetition(&s->repetition_detection);
    return r ? r : llm__check_early_stop(&s->early_stop);
}

LLM_API llm_result llm_sampling_check(const llm_model *model, const llm_sampling *s) {
    return llm__check_sampling(s, model ? llm_model_get_info(model)->vocab_size : 0);
}

LLM__PRIVATE void llm__sampling_resolve(llm_sampling *s) {
    llm__fields_default(llm__sampling_fields, LLM__SAMPLING_FIELDS, s);
    if (s->top_k < 0) s->top_k = 0;
    if (s->best_of < s->n) s->best_of = s->n;
}

/* vLLM's defaults, then what generation_config.json says, as vLLM does it. Values out of range there are ignored, not errors. */
LLM_API void llm_sampling_default(const llm_model *model, llm_sampling *s) {
    static const char *const names[][2] = {{"temperature", "temperature"},
                                           {"top_p", "top_p"},
                                           {"min_p", "min_p"},
                                           {"repetition_penalty", "repetition_penalty"},
                                           {"top_k", "top_k"},
                                           {"max_new_tokens", "max_tokens"}};
    memset(s, 0, sizeof *s);
    s->temperature = s->top_p = s->repetition_penalty = s->length_penalty = 1;
    s->n = 1;
    const llm_json *config = model && !model->plain_sampling ? model->source.generation_config : NULL;
    double v;
    for (int i = 0; config && i < LLM__COUNT(names); i++)
        if (llm_json_num(config, llm_json_find(config, 0, names[i][0]), &v))
            llm__fields_put(llm__sampling_fields, LLM__SAMPLING_FIELDS, s, names[i][1], v);
}

LLM_API void llm_sampling_chat(const llm_model *model, llm_sampling *s) {
    static const char *const said[] = {"temperature", "top_p", "top_k", "min_p"};
    const llm_json *config = model && !model->plain_sampling ? model->source.generation_config : NULL;
    llm_sampling_default(model, s);
    for (int i = 0; config && i < LLM__COUNT(said); i++)
        if (llm_json_find(config, 0, said[i]) >= 0) return;
    s->temperature = 0.8f;
    s->top_k = 40;
    s->top_p = 0.95f;
    s->min_p = 0.05f;
}
