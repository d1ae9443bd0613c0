/* A device without a model, for tests of the scheduler. Its keys and values are token ids; its logits are a hash of all ids that a row
 * reads through its page table, so any mix-up of pages shows in the tokens. fake_oracle says what a request must give. */
#ifndef FAKE_H
#define FAKE_H
#include "test.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "base/index.h"
#include "cpu/isa.h"
#include "cpu/kernels.h"
#include "grammar/machine.h"
#include "grammar/masks.h"
#include "grammar/grammar.h"
#include "engine/sampler.h"
#include "engine/kv.h"
#include "engine/speculate.h"
#include "engine/scheduler.h"
#include "engine/pages.h"
#include "engine/results.h"
#include "engine/engine.h"

enum { FAKE_VOCAB = 24, FAKE_EOS = 23, FAKE_STOP = 22, FAKE_FLIGHT = LLM_FLIGHT_MAX };

typedef struct fake_device {
    int32_t page_tokens, n_pages;
    int32_t *kv; /* (n_pages, page_ints) token ids, and behind them the state of a recurrent layer */
    int32_t page_ints;
    float *logits;                   /* (FAKE_FLIGHT, max_out, FAKE_VOCAB) of the latest steps */
    llm_drawn *drawn;                /* (FAKE_FLIGHT, max_out) */
    int32_t *in_flight[FAKE_FLIGHT]; /* (max_seqs, max_pages) pages of a step until it is collected */
    int32_t n_in_flight[FAKE_FLIGHT];
    long begun, collected;          /* steps */
    llm_result result[FAKE_FLIGHT]; /* what collect will say */
    llm_engine *engine;
    llm_backend table;
    int32_t fail, fail_late, fail_copy, fail_swap, not_finite; /* so many calls fail; not_finite: which logit is not a number */
    int32_t max_rows, max_seqs, max_out, max_len;
    int64_t clock_ms; /* submitters read it too */
    int32_t pieces;   /* a step must be worked on in so many pieces of 3 ms at most; 0: it is computed at once */
    int32_t n_pieces; /* left of the step in flight */
    long steps, bad_steps, copies, swaps, placeholders, drafted, dropped;
} fake_device;

static const llm__kernels *fake_kernels(void) {
    llm__isa isa;
    return llm__kernels_of(llm__isa_find(NULL, &isa) ? LLM__ISA_SCALAR : isa);
}

static uint64_t fake_hash_begin(void) { return 0x1234; }
static uint64_t fake_hash_add(uint64_t h, int32_t id) { return llm__mix(h * 31 + (uint64_t)id + 7); }

/* What the model says after a history with this hash. */
static void fake_logits(uint64_t h, float *x) {
    for (int i = 0; i < FAKE_VOCAB; i++) x[i] = (float)(llm__mix(h + (uint64_t)i) % 4096) / 500.0f;
    if (h % 5 < 3) x[h % FAKE_VOCAB] += 10; /* often sure */
    x[FAKE_EOS] -= 3;
}

/* Where a page begins. */
static int32_t *fake_page(const fake_device *f, int32_t page) { return f->kv + (int64_t)page * f->page_ints; }

/* Reads a token through the page table of sequence i. */
static int32_t fake_token(const fake_device *f, const llm_step *s, int32_t i, int32_t at) {
    return fake_page(f, s->pages[(int64_t)i * s->page_stride + at / f->page_tokens])[at % f->page_tokens];
}

/* A recurrent layer whose state is the hash of all tokens so far: passes sequence i's rows over it, out of the page before them and into
 * theirs, but for guesses. Returns 0 if the state behind a row is not that of the tokens before it. */
static int fake_recur(const fake_device *f, const llm_step *s, int32_t i) {
    const int32_t begin = s->seq_begin[i], *pages = s->pages + (int64_t)i * s->page_stride, first = s->positions[begin];
    uint64_t h = fake_hash_begin(), right = h;
    if (first) memcpy(&h, fake_page(f, pages[(first - 1) / f->page_tokens]) + f->page_tokens, sizeof h);
    for (int32_t at = 0; at < first; at++) right = fake_hash_add(right, fake_token(f, s, i, at));
    for (int32_t row = begin; row < s->seq_begin[i + 1]; row++) {
        const int32_t at = s->positions[row];
        if (h != right) return 0;
        right = h = fake_hash_add(h, fake_token(f, s, i, at));
        if (row - begin < s->seq_keep[i]) memcpy(fake_page(f, pages[at / f->page_tokens]) + f->page_tokens, &h, sizeof h);
    }
    return 1;
}

/* Draws as the library's own sampler does. own: a token that the device drew and the engine does not know of yet; -1: none. */
static llm_drawn fake_draw(const float *row, const llm_draw *d, int32_t own) {
    float x[FAKE_VOCAB], w[FAKE_VOCAB];
    int32_t id[FAKE_VOCAB], used[FAKE_VOCAB], counts[FAKE_VOCAB], at = 0;
    double mass[2048];
    llm__scratch k = {fake_kernels(), x, w, id, mass, NULL};
    llm__history h = {d->n_used, 1, used, counts, NULL};
    llm_sampling s = *d->sampling;
    llm__rules r;
    memset(&r, 0, sizeof r);
    for (int32_t i = 0; i < d->n_used; i++) used[i] = d->used[i], counts[i] = d->counts[i];
    while (at < h.n && used[at] != own) at++;
    if (own >= 0 && at == h.n) used[h.n] = own, counts[h.n++] = 0;
    if (own >= 0) counts[at]++;
    s.min_tokens = 0;
    r.s = &s, r.allowed = d->allowed, r.history = d->n_used ? &h : NULL;
    return llm__choose(row, FAKE_VOCAB, &r, d->seed, d->position, &k);
}

/* What the step before that of a slot has drawn. */
static const llm_drawn *fake_before(const fake_device *f, int slot) {
    return f->drawn + (slot + FAKE_FLIGHT - 1) % FAKE_FLIGHT * f->max_out;
}

/* Checks and writes the rows' keys; placeholders take what the step before drew. Returns 0 for a step that is wrong. */
static int fake_write(fake_device *f, const llm_step *s, int slot) {
    int ok = s->shape.n_rows > 0 && s->shape.n_rows <= f->max_rows && s->shape.n_seqs <= f->max_seqs && s->shape.n_out <= f->max_out;
    f->n_in_flight[slot] = 0;
    for (int32_t i = 0; i < s->shape.n_seqs; i++) {
        int32_t begin = s->seq_begin[i], end = s->seq_begin[i + 1];
        const int32_t *pages = s->pages + (int64_t)i * s->page_stride;
        ok &= end > begin && s->seq_len[i] == s->positions[end - 1] + 1;
        for (int32_t k = 0; k * f->page_tokens < s->seq_len[i]; k++) f->in_flight[slot][f->n_in_flight[slot]++] = pages[k];
        for (int32_t row = begin; row < end; row++) { /* all keys of the step are written before any row reads */
            int32_t at = s->positions[row], page = pages[at / f->page_tokens], from = s->token_from ? s->token_from[row] : -1;
            ok &= s->seq_of_row[row] == i && at == s->positions[begin] + row - begin && page >= 0 && page < f->n_pages;
            f->placeholders += from >= 0;
            ok &= at < f->max_len;
            ok &= from < 0 || (from < f->max_out && f->begun - f->collected == 1);
            fake_page(f, page)[at % f->page_tokens] = from < 0 ? s->tokens[row] : fake_before(f, slot)[from].id;
        }
        ok &= !s->seq_keep || fake_recur(f, s, i);
    }
    return ok;
}

static fake_device *fake_of(const llm_engine *e) { return (fake_device *)(void *)e->ctx; }

static double fake_now(llm_engine *ctx) { return (double)__atomic_load_n(&fake_of(ctx)->clock_ms, __ATOMIC_RELAXED) / 1000; }

static llm_result fake_forward(llm_engine *ctx, const llm_step *s) {
    fake_device *f = fake_of(ctx);
    int slot;
    int32_t n_out = 0;
    f->steps++;
    __atomic_add_fetch(&f->clock_ms, 10, __ATOMIC_RELAXED);
    if (f->fail > 0) return f->fail--, llm__error(LLM_ERR_BACKEND, "the fake device fails");
    if (f->pieces && f->begun != f->collected) { /* the step before was not wanted any more: it is forgotten */
        f->bad_steps += !f->n_pieces;
        f->n_in_flight[f->collected++ % FAKE_FLIGHT] = 0;
        f->dropped++;
    }
    slot = (int)(f->begun % FAKE_FLIGHT);
    f->n_pieces = f->pieces ? (int32_t)(llm__mix((uint64_t)f->steps) % (uint64_t)(f->pieces + 1)) : 0;
    int ok = fake_write(f, s, slot) && f->begun - f->collected <= f->engine->p.lag;
    for (int32_t i = 0; i < s->shape.n_seqs; i++)
        for (int32_t row = s->seq_begin[i]; row < s->seq_begin[i + 1]; row++) {
            if (n_out == s->shape.n_out || s->out_rows[n_out] != row) continue;
            float *x = f->logits + ((int64_t)slot * f->max_out + n_out) * FAKE_VOCAB;
            uint64_t h = fake_hash_begin();
            for (int32_t at = 0; at <= s->positions[row]; at++) h = fake_hash_add(h, fake_token(f, s, i, at));
            fake_logits(h, x);
            if (f->not_finite && !n_out) x[f->not_finite] = NAN, f->not_finite = 0;
            int32_t from = s->token_from ? s->token_from[row] : -1, own = from < 0 ? -1 : fake_before(f, slot)[from].id;
            if (s->draws && s->draws[n_out].wanted) f->drawn[slot * f->max_out + n_out] = fake_draw(x, &s->draws[n_out], own);
            n_out++;
        }
    f->bad_steps += !ok || n_out != s->shape.n_out;
    f->begun++;
    f->result[slot] = f->fail_late > 0 ? f->fail_late--, LLM_ERR_BACKEND : LLM_OK;
    return LLM_OK;
}

static llm_result fake_wait(llm_backend_ctx *ctx) {
    fake_device *f = (fake_device *)(void *)ctx;
    int slot = (int)(f->collected++ % FAKE_FLIGHT);
    f->bad_steps += f->collected > f->begun;
    f->n_pieces = 0;
    f->n_in_flight[slot] = 0;
    return f->result[slot] ? llm__error(f->result[slot], "the fake device failed") : LLM_OK;
}

static int fake_work(llm_backend_ctx *ctx, double until, double *longest) {
    fake_device *f = (fake_device *)(void *)ctx;
    *longest = LLM__MAX(*longest, 0.003);
    do {
        if (!f->n_pieces) return 1;
        __atomic_add_fetch(&f->clock_ms, 3, __ATOMIC_RELAXED);
    } while (--f->n_pieces && fake_now(f->engine) < until);
    return !f->n_pieces;
}

static int64_t fake_row_at(const fake_device *f, int out_row) { return (f->collected - 1) % FAKE_FLIGHT * f->max_out + out_row; }
static const float *fake_row(llm_backend_ctx *ctx, int out_row) {
    fake_device *f = (fake_device *)(void *)ctx;
    return f->logits + fake_row_at(f, out_row) * FAKE_VOCAB;
}

static const llm_drawn *fake_drawn(llm_backend_ctx *ctx, int out_row) {
    fake_device *f = (fake_device *)(void *)ctx;
    return f->drawn + fake_row_at(f, out_row);
}

/* A page to host memory (in NULL) or back; the place in host memory must be one for a page. */
static llm_result fake_swap(llm_backend_ctx *ctx, int32_t page, void *out, const void *in) {
    fake_device *f = (fake_device *)(void *)ctx;
    int32_t *here = fake_page(f, page);
    int64_t at = (const uint8_t *)(out ? out : in) - f->engine->swap.memory, bytes = f->page_ints * (int64_t)sizeof *here;
    if (f->fail_swap > 0) return f->fail_swap--, llm__error(LLM_ERR_BACKEND, "the fake device cannot swap");
    f->bad_steps += page < 0 || page >= f->n_pages || at < 0 || at % bytes || at / bytes >= f->engine->p.n_swap;
    memcpy(out ? out : (void *)here, out ? (const void *)here : in, (size_t)bytes);
    f->swaps++;
    return LLM_OK;
}

static llm_result fake_read(llm_backend_ctx *ctx, int rank, int32_t page, void *host) {
    return (void)rank, fake_swap(ctx, page, host, NULL);
}
static llm_result fake_back(llm_backend_ctx *ctx, int rank, int32_t page, const void *host) {
    return (void)rank, fake_swap(ctx, page, NULL, host);
}

static llm_result fake_copy(llm_backend_ctx *ctx, const int32_t *from, const int32_t *to, int n) {
    fake_device *f = (fake_device *)(void *)ctx;
    if (f->fail_copy > 0) return f->fail_copy--, llm__error(LLM_ERR_BACKEND, "the fake device cannot copy");
    for (int i = 0; i < n; i++) memcpy(fake_page(f, to[i]), fake_page(f, from[i]), (size_t)f->page_ints * sizeof *f->kv);
    f->copies += n;
    return LLM_OK;
}

/* Guesses what the model will say, as a good draft model would: three in four tokens are right, as long as no rule bends them. */
static void fake_draft(llm_engine *ctx, llm__seq *const *seq, int32_t n) {
    fake_device *f = fake_of(ctx);
    for (int32_t i = 0; i < n; i++) {
        llm__seq *s = seq[i];
        uint64_t h = fake_hash_begin(), dice = llm__mix((uint64_t)f->steps * 64 + (uint64_t)i);
        for (int32_t at = 0; at < s->n_ids; at++) h = fake_hash_add(h, s->ids[at]);
        s->draft.n = LLM__MIN(s->draft.n, (int32_t)(dice >> 40) % 16); /* it need not guess all it may */
        for (int32_t k = 0; k < s->draft.n; k++) {
            float row[FAKE_VOCAB];
            llm_draw d;
            memset(&d, 0, sizeof d);
            d.seed = s->seed, d.position = s->n_ids + k - s->n_prompt;
            d.sampling = &s->request->sampling;
            fake_logits(h, row);
            dice = llm__mix(dice);
            s->draft.ids[k] = dice % 4 ? fake_draw(row, &d, -1).id : (int32_t)(dice >> 40) % FAKE_VOCAB;
            h = fake_hash_add(h, s->draft.ids[k]);
            f->drafted++;
        }
    }
}

static void fake_parallel(llm_backend_ctx *ctx, void (*fn)(void *arg, int i), void *arg, int n) {
    (void)ctx;
    for (int i = n - 1; i >= 0; i--) fn(arg, i);
}

static void fake_closed(llm_backend_ctx *ctx) { (void)ctx; }
static void fake_rope(llm_engine *ctx, int32_t prompt_len, int32_t *variant, float *base) {
    (void)ctx, (void)prompt_len, *variant = 0, *base = 1;
}

/* ---- grammars without a tokenizer: tokens of letters, of pairs and of words ---- */

enum { FAKE_GRAMMARS = 5 };
static llm_grammar *fake_grammar[FAKE_GRAMMARS];
static llm__gr_trie *fake_trie;

/* Compiles all of them over one vocabulary; tokens that only other tokens can spell, and such that nothing else can. */
static int fake_grammars_open(void) {
    static const char text[FAKE_VOCAB][8] = {"a", "b",   "c", "d", "ab", "abc", "bc", "cd", "{",    "}", "\"", ":",
                                             ",", "{\"", "1", "2", "12", "x",   "xy", "y",  "true", "e", "!",  ""};
    static const char *const form[FAKE_GRAMMARS] = {"(ab|cd|!)*x{2,40}", "\\{\"abc\":[12]+(,\"d\":\"[abc]*\")?(,\"cd\":(true|[12]))?\\}",
                                                    "(\\{\"ab\":true\\},?)+", "abcabcdxyxytrue!e{3,60}", "[abc]{0,60}(xxyyee|x:x:x:)?"};
    llm__index_entry s[FAKE_VOCAB];
    llm_text all;
    int ok;
    memset(&all, 0, sizeof all);
    fake_trie = LLM__NEW(llm__gr_trie, 1);
    fake_trie->vocab = FAKE_VOCAB;
    fake_trie->end = LLM__NEW(int32_t, FAKE_VOCAB);
    for (int32_t i = 0; i < FAKE_VOCAB; i++) {
        llm_text_str(&all, text[i]);
        fake_trie->end[i] = (int32_t)all.len;
        fake_trie->longest = LLM__MAX(fake_trie->longest, (int32_t)strlen(text[i]));
    }
    for (int32_t i = 0; i < FAKE_EOS; i++) s[i].value = i, s[i].s = llm__s(all.data + fake_trie->end[i] - strlen(text[i]), strlen(text[i]));
    fake_trie->spelling = all.data;
    ok = llm__gr_trie_lay(fake_trie, s, FAKE_EOS);
    for (int i = 0; i < FAKE_GRAMMARS && ok; i++) {
        llm_grammar_config c;
        memset(&c, 0, sizeof c);
        c.kind = LLM_GRAMMAR_REGEX, c.text = form[i], c.len = strlen(form[i]);
        ok = !llm__grammar_make(NULL, fake_trie, &c, &fake_grammar[i]);
    }
    return ok;
}

static void fake_grammars_close(void) {
    for (int i = 0; i < FAKE_GRAMMARS; i++) llm_grammar_close(fake_grammar[i]), fake_grammar[i] = NULL;
    llm__gr_trie_free(fake_trie), fake_trie = NULL;
}

/* What every test changes a little. */
static llm__engine_params fake_params(int32_t n_pages, int32_t page_tokens, int32_t max_seqs, int32_t max_rows, int32_t max_len) {
    static const int32_t eos[] = {FAKE_EOS};
    llm__engine_params p;
    memset(&p, 0, sizeof p);
    p.n_pages = n_pages;
    p.c.block_size = page_tokens;
    p.c.max_num_batched_tokens = max_rows;
    p.c.max_num_seqs = max_seqs;
    p.max_out = max_seqs + 3;
    p.driver.forward = fake_forward;
    p.driver.rope_of = fake_rope;
    p.driver.now = fake_now;
    p.n_jump = LLM__JUMP_MAX;
    p.eos = eos;
    p.n_eos = 1;
    p.eos_id = FAKE_EOS;
    p.vocab = FAKE_VOCAB;
    p.max_len = max_len;
    p.c.max_queue = 64;
    p.c.n_threads = 2;
    return p;
}

/* A scheduler over the device. */
static llm_result fake_engine(fake_device *f, const llm__engine_params *p, llm_engine **out) {
    llm_engine *e = llm__engine_alloc();
    llm_result r = e ? LLM_OK : LLM_ERR_NOMEM;
    f->table.close = fake_closed, f->table.wait = fake_wait, f->table.parallel = fake_parallel;
    f->table.logits_row = fake_row, f->table.drawn = fake_drawn;
    f->table.kv_copy = fake_copy, f->table.kv_read = fake_read, f->table.kv_write = fake_back;
    if (e) {
        e->p = *p;
        e->backend = &f->table, e->ctx = (llm_backend_ctx *)(void *)f;
        e->n_ranks = 1, e->page_bytes = f->page_ints * (int64_t)sizeof(int32_t);
        e->swap.memory = (uint8_t *)llm__calloc((size_t)p->n_swap, (size_t)e->page_bytes);
        r = e->swap.memory ? llm__engine_init(e) : LLM_ERR_NOMEM;
    }
    if (r) llm__engine_destroy(e);
    *out = r ? NULL : e;
    return r;
}

static llm_engine *fake_open(fake_device *f, llm__engine_params p) {
    memset(f, 0, sizeof *f);
    f->n_pages = p.n_pages;
    f->page_tokens = p.c.block_size;
    f->page_ints = f->page_tokens + (int32_t)(sizeof(uint64_t) / sizeof(int32_t));
    f->max_rows = p.c.max_num_batched_tokens;
    f->max_seqs = p.c.max_num_seqs;
    f->max_out = p.max_out;
    f->max_len = p.max_len;
    f->kv = (int32_t *)calloc((size_t)p.n_pages * (size_t)f->page_ints, sizeof *f->kv);
    f->logits = (float *)calloc(FAKE_FLIGHT * (size_t)f->max_out * FAKE_VOCAB, sizeof *f->logits);
    f->drawn = (llm_drawn *)calloc(FAKE_FLIGHT * (size_t)f->max_out, sizeof *f->drawn);
    for (int i = 0; i < FAKE_FLIGHT; i++)
        f->in_flight[i] = (int32_t *)calloc((size_t)p.c.max_num_seqs * ((size_t)p.max_len / (size_t)p.c.block_size + 1), sizeof(int32_t));
    f->clock_ms = 100000;
    CHECK(!fake_engine(f, &p, &f->engine));
    return f->engine;
}

static void fake_close(fake_device *f) {
    CHECK(f->bad_steps == 0);
    llm_engine_close(f->engine);
    free(f->kv);
    free(f->logits);
    free(f->drawn);
    for (int i = 0; i < FAKE_FLIGHT; i++) free(f->in_flight[i]);
}

/* ---- what a request must give, computed without pages, batches or steps ---- */

typedef struct fake_want {
    int32_t ids[512], n;
    llm_finish finish;
    double cum_logprob;
} fake_want;

/* The tokens that the grammar allows, and those that end an answer where it may end. Returns how many the grammar itself allows. */
static int32_t fake_allowed(const llm_request *r, llm_matcher *m, uint32_t *allowed) {
    int32_t n = 0;
    CHECK(!llm_matcher_mask(m, allowed, &n));
    if (llm_matcher_can_end(m)) *allowed |= 1u << FAKE_EOS | (r->sampling.n_stop_token_ids ? 1u << FAKE_STOP : 0);
    return n;
}

/* What the bound on thoughts demands next, from the whole answer so far: -1: nothing. Thoughts begin at the prompt or behind the first opening
 * tag, and end with the first closing one behind that. */
static int32_t fake_thought(const llm_sampling *s, const int32_t *ids, int32_t n) {
    int32_t from = s->thinking_open ? 0 : -1, tag = s->n_think_close;
    for (int32_t i = 0; i < n && from < 0; i++)
        if (ids[i] == s->think_open[0]) from = i + 1;
    if (!s->thinking_tokens || from < 0) return -1;
    for (int32_t i = from; i + tag <= n; i++)
        if (!memcmp(ids + i, s->think_close, (size_t)tag * sizeof *ids)) return -1;
    int32_t written = tag - 1;
    while (written > 0 && (n < written || memcmp(ids + n - written, s->think_close, (size_t)written * sizeof *ids))) written--;
    return n - from >= s->thinking_tokens - 1 ? s->think_close[written] : -1;
}

/* Does an answer end with so many times the same tokens? Every window is compared with the last. */
static int fake_repeats(const llm_repetition_detection *d, const int32_t *ids, int32_t n) {
    int found = 0;
    for (int32_t size = d->min_pattern_size ? d->min_pattern_size : 1; size <= d->max_pattern_size; size++) {
        int32_t times = 1;
        while ((times + 1) * size <= n && !memcmp(ids + n - size, ids + n - (times + 1) * size, (size_t)size * sizeof *ids)) times++;
        found |= size <= n && times >= d->min_count;
    }
    return found;
}

static void fake_oracle(const llm_request *r, int32_t index, int32_t max_new, fake_want *w) {
    int32_t n_prompt = r->seq[0].n_prompt, early = 0, history_ids[FAKE_VOCAB], history_counts[FAKE_VOCAB], slots[64];
    float x[FAKE_VOCAB];
    llm__scratch k;
    llm__arena memory;
    llm__rules rules;
    llm__history h;
    memset(&memory, 0, sizeof memory);
    memset(&rules, 0, sizeof rules);
    memset(&h, 0, sizeof h);
    memset(slots, 0, sizeof slots);
    memset(w, 0, sizeof *w);
    llm__scratch_open(&k, FAKE_VOCAB, NULL, &memory);
    h.mask = 63, h.id = history_ids, h.count = history_counts, h.slot = slots;
    uint64_t hash = fake_hash_begin();
    for (int32_t i = 0; i < n_prompt; i++) hash = fake_hash_add(hash, r->seq[0].ids[i]), llm__history_add(&h, r->seq[0].ids[i], 0);
    rules.s = &r->sampling, rules.eos = r->engine->p.eos, rules.n_eos = 1, rules.history = &h, rules.output = w->ids;
    llm_matcher *matcher = r->sampling.grammar ? llm_matcher_open(r->sampling.grammar) : NULL;
    while (!w->finish) {
        fake_logits(hash, x);
        rules.n_output = w->n;
        if (matcher && !fake_allowed(r, matcher, k.allowed)) rules.n_output = INT32_MAX; /* it may end before min_tokens */
        rules.allowed = matcher ? k.allowed : NULL;
        const int32_t thought = fake_thought(&r->sampling, w->ids, w->n);
        if (thought >= 0 && (!matcher || *k.allowed >> thought & 1)) *k.allowed = 1u << thought, rules.allowed = k.allowed;
        llm__choice c = llm__choose(x, FAKE_VOCAB, &rules, (uint64_t)r->sampling.seed + (uint64_t)index, w->n, &k);
        int ends = (w->n + 1 >= r->sampling.min_tokens || matcher) &&
                   ((c.id == FAKE_EOS && !r->sampling.ignore_eos) || (r->sampling.n_stop_token_ids && c.id == FAKE_STOP));
        int hit = 0;
        if (r->sampling.early_stop.enable) {
            early = c.prob > r->sampling.early_stop.threshold ? early + 1 : 0;
            hit = early >= r->sampling.early_stop.window_size && !ends;
            if (early >= r->sampling.early_stop.window_size) early = 0;
        }
        if (hit) c.id = FAKE_EOS; /* the sum counts what was sampled */
        w->ids[w->n++] = c.id;
        w->cum_logprob += (double)c.logprob;
        if (matcher && c.id != FAKE_EOS && !(r->sampling.n_stop_token_ids && c.id == FAKE_STOP)) CHECK(!llm_matcher_token(matcher, c.id));
        llm__history_add(&h, c.id, 1);
        hash = fake_hash_add(hash, c.id);
        if (ends) w->finish = LLM_FINISH_STOP;
        else if (w->n == max_new) w->finish = LLM_FINISH_LENGTH;
        else if (hit) w->finish = LLM_FINISH_STOP;
        else if (w->n >= r->sampling.min_tokens && fake_repeats(&r->sampling.repetition_detection, w->ids, w->n))
            w->finish = LLM_FINISH_REPETITION;
    }
    llm_matcher_close(matcher);
    llm__arena_free(&memory);
}

/* ---- beam search, plainly: every continuation of every beam, sorted; whole forward passes ---- */

enum { FAKE_BEAMS = 16 };

typedef struct fake_beam {
    int32_t ids[160], n;
    double sum, score;
    llm_finish finish;
} fake_beam;

typedef struct fake_next {
    double sum;
    int32_t beam, id;
} fake_next;

static int fake_next_order(const void *a, const void *b) {
    const fake_next *x = (const fake_next *)a, *y = (const fake_next *)b;
    if (x->sum != y->sum) return x->sum > y->sum ? -1 : 1;
    return x->beam != y->beam ? x->beam - y->beam : x->id - y->id;
}

static int fake_beam_order(const void *a, const void *b) {
    double x = ((const fake_beam *)a)->score, y = ((const fake_beam *)b)->score;
    return x > y ? -1 : x < y;
}

/* logits: of the whole of `ids`. The pool, best first, in `pool` (FAKE_BEAMS); returns how many. */
static int32_t fake_beam_search(const llm_request *r, int32_t max_new, void (*logits)(void *ctx, const int32_t *ids, int32_t n, float *row),
                                void *ctx, fake_beam *pool) {
    static fake_beam live[FAKE_BEAMS], child[2 * FAKE_BEAMS];
    const llm_sampling *s = &r->sampling;
    int32_t V = r->engine->p.vocab, n_prompt = r->seq[0].n_prompt, width = s->best_of, n_live = 1, n_pool = 0, bad;
    int32_t ids[512];
    fake_next *next = (fake_next *)malloc((size_t)width * (size_t)V * sizeof *next);
    float *row = (float *)malloc((size_t)V * sizeof *row), *w = (float *)malloc((size_t)V * sizeof *w);
    memcpy(ids, r->seq[0].ids, (size_t)n_prompt * sizeof *ids);
    memset(&live[0], 0, sizeof live[0]);
    while (n_live) {
        int32_t n_next = 0, n_child = 0, n = live[0].n;
        for (int32_t b = 0; b < n_live; b++) {
            memcpy(ids + n_prompt, live[b].ids, (size_t)n * sizeof *ids);
            logits(ctx, ids, n_prompt + n, row);
            for (int32_t i = 0; n < s->min_tokens && i < r->engine->p.n_eos; i++) row[r->engine->p.eos[i]] = -INFINITY;
            for (int32_t i = 0; n < s->min_tokens && i < s->n_stop_token_ids; i++) row[s->stop_token_ids[i]] = -INFINITY;
            float max = fake_kernels()->top(row, V, &bad);
            double log_sum = (double)max + log(fake_kernels()->weigh(row, w, V, max, 1));
            for (int32_t i = 0; i < V; i++)
                if (row[i] > -INFINITY)
                    next[n_next].sum = live[b].sum + (double)(float)((double)row[i] - log_sum), next[n_next].beam = b,
                    next[n_next++].id = i;
        }
        qsort(next, (size_t)n_next, sizeof *next, fake_next_order);
        for (int32_t i = 0; i < n_next && i < 2 * width; i++) {
            fake_beam c = live[next[i].beam];
            int eos = llm__has_id(r->engine->p.eos, r->engine->p.n_eos, next[i].id) && !s->ignore_eos, may = n + 1 >= s->min_tokens;
            c.ids[c.n++] = next[i].id;
            c.sum = next[i].sum;
            c.score = c.sum / pow(n_prompt + c.n - (eos && may), (double)s->length_penalty);
            c.finish = may && (eos || llm__has_id(s->stop_token_ids, s->n_stop_token_ids, next[i].id)) ? LLM_FINISH_STOP
                       : c.n == max_new                                                                ? LLM_FINISH_LENGTH
                                                                                                       : LLM_FINISH_NONE;
            if (c.finish) pool[n_pool++] = c;
            else if (n_child < width) child[n_child++] = c;
            if (n_pool == FAKE_BEAMS || i + 1 == LLM__MIN(n_next, 2 * width))
                qsort(pool, (size_t)n_pool, sizeof *pool, fake_beam_order), n_pool = LLM__MIN(n_pool, width);
        }
        if (n_child && n_pool == width) {
            double longest = s->early_stopping == 2 && s->length_penalty > 0 ? r->engine->p.max_len : n_prompt + n + 1;
            if (s->early_stopping == 1 || pool[width - 1].score >= child[0].sum / pow(longest, (double)s->length_penalty)) n_child = 0;
        }
        memcpy(live, child, (size_t)n_child * sizeof *child);
        n_live = n_child;
    }
    free(next), free(row), free(w);
    return n_pool;
}

static void fake_whole(void *ctx, const int32_t *ids, int32_t n, float *row) {
    uint64_t h = fake_hash_begin();
    (void)ctx;
    for (int32_t i = 0; i < n; i++) h = fake_hash_add(h, ids[i]);
    fake_logits(h, row);
}

/* ---- invariants of the books (the numbers are those of the list in tests/unit/engine/test_sim.c) ---- */

/* What a sequence that has pages must look like; adds them to refs. first: (n_pages) which sequence was seen first with each page. */
static const char *fake_check_seq(const llm_engine *e, const llm__seq *s, int32_t *refs, const llm__seq **first) {
    int32_t size = e->kv.page_tokens, done = s->state == LLM__SEQ_DONE;
    if (s->n_computed < 0 || s->n_fed < s->n_computed || s->n_ids > s->n_prompt + s->max_new) return "K17: a sequence's counts";
    if (!done && (s->n_ahead < 0 || s->n_ahead > (e->p.lag && e->p.c.pipeline_parallel_size < 2))) return "K17: tokens ahead";
    if (!done && (s->n_fed > s->n_ids + s->n_ahead || (s->n_fed == s->n_ids + s->n_ahead && !s->n_flight && !s->beam.n_next)))
        return "K17: a sequence has nothing to feed";
    if (!done && s->n_again && llm__seq_left(s) != 1 + s->n_again) return "K17: drafted tokens to be fed again";
    if (!done && s->pages.n < llm__pages_of(e, s->n_fed)) return "K8: a page table is too short";
    if (!done && s->n_preempted < LLM__PREEMPT_MAX &&
        s->pages.n > llm__pages_of(e, s->n_ids + 1 + s->n_ahead + LLM__MAX(e->p.n_draft, e->p.n_jump)))
        return "K8: a page table is too long";
    for (int32_t k = 0; k < s->pages.n; k++) {
        int32_t page = s->pages.id[k];
        if (page < 0 || page >= e->kv.n_pages) return "K8: a page that does not exist";
        for (int32_t j = 0; j < k; j++)
            if (s->pages.id[j] == page) return "K8: a page twice in a table";
        if (refs[page]++) {
            const llm__seq *o = first[page];
            int32_t end = (k + 1) * size;
            if (end > s->n_computed || end > o->n_computed) return "K3: a page that is not full is shared";
            if (k >= o->pages.n || o->pages.id[k] != page || memcmp(o->ids, s->ids, (size_t)end * sizeof *s->ids))
                return "K8: a page shared by different beginnings";
            if (memcmp(&o->request->root, &s->request->root, sizeof s->request->root)) return "K8: a page shared by different salts";
        }
        first[page] = s;
    }
    return NULL;
}

/* The lists of free and cached pages, and the count of references. */
static const char *fake_check_pages(const llm__kv *kv, const int32_t *refs) {
    int32_t used = 0, listed = 0;
    for (int32_t p = 0; p < kv->n_pages; p++) {
        if (refs[p] != kv->ref[p]) return "K2: references of a page";
        used += kv->ref[p] > 0;
    }
    for (int32_t p = kv->next[kv->n_pages], before = kv->n_pages; p != kv->n_pages && listed <= kv->n_pages;
         before = p, p = kv->next[p], listed++)
        if (kv->ref[p] || kv->known[p] != (listed >= kv->n_free) || kv->prev[p] != before)
            return "K1: a free page is used or known, or a cached page is used or not known";
    if (listed != kv->n_free + kv->n_cached || listed + used != kv->n_pages) return "K1: free + cached + used";
    return NULL;
}

/* Who owns what outside the list of those that run. */
static const char *fake_check_request(const llm_engine *e, const llm_request *r, int32_t *refs, const llm__seq **first, int32_t *swapped) {
    const char *why = NULL;
    int32_t flight = 0;
    for (int32_t i = 0; i < r->n_seqs && !why; i++) {
        const llm__seq *s = &r->seq[i];
        flight += s->n_flight;
        *swapped += s->swap.n;
        if (s->swap.n && s->state != LLM__SEQ_WAITING) return "K6: a sequence that does not wait owns host memory";
        if (s->state == LLM__SEQ_RUNNING) continue;
        if (s->pages.n && !(s->state == LLM__SEQ_DONE && s->n_flight)) return "K6: a sequence that does not run owns pages";
        if (s->pages.n) why = fake_check_seq(e, s, refs, first); /* K9: it ended, and its step has not */
    }
    if (!why && (flight != r->n_flight || flight < 0)) why = "K17: steps in flight of a request";
    return why;
}

/* NULL, or which rule of the books is broken between two steps. */
static const char *fake_books(const llm_engine *e) {
    static int32_t refs[1024];
    static const llm__seq *first[1024];
    int32_t fresh = 0, waiting = 0, swapped = 0;
    const char *why;
    memset(refs, 0, (size_t)e->kv.n_pages * sizeof *refs);
    for (int32_t i = 0; i < e->running.n; i++) {
        const llm__seq *s = e->running.seq[i];
        if (s->state != LLM__SEQ_RUNNING || (i && !llm__seq_before(e->running.seq[i - 1], s))) return "order of those that run";
        if ((why = fake_check_seq(e, s, refs, first)) != NULL) return why;
    }
    for (const llm_request *r = e->live; r; r = r->next) {
        fresh += r->fresh;
        if ((why = fake_check_request(e, r, refs, first, &swapped)) != NULL) return why;
    }
    if ((why = fake_check_pages(&e->kv, refs)) != NULL) return why;
    if (swapped + e->swap.n_free != e->p.n_swap) return "K1: host memory";
    for (const llm__seq *s = e->waiting.first; s; s = s->next, waiting++)
        if (s->state != LLM__SEQ_WAITING || (s->next && !llm__seq_before(s, s->next))) return "order of those that wait";
    if (waiting != e->waiting.n) return "K17: count of those that wait";
    for (const llm_request *r = e->inbox.first; r; r = r->inbox_next) fresh += r->fresh;
    return fresh == e->inbox.n_fresh && e->inbox.n_fresh >= 0 ? NULL : "K17: count of the queue";
}

/* Pages of a step in flight belong to somebody, so nobody else gets them. */
static const char *fake_check_flight(const fake_device *f) {
    if (f->pieces && !f->engine->flights.n) return NULL; /* what was in flight was dropped */
    for (int slot = 0; slot < FAKE_FLIGHT; slot++)
        for (int32_t i = 0; i < f->n_in_flight[slot]; i++)
            if (!f->engine->kv.ref[f->in_flight[slot][i]]) return "K9: a step in flight lost a page";
    return NULL;
}

/* What the index says a page holds is what the device holds there. */
static const char *fake_check_cache(const fake_device *f) {
    const llm__kv *kv = &f->engine->kv;
    for (int32_t p = 0; p < kv->n_pages; p++)
        if (kv->known[p] && memcmp(kv->tokens + p * kv->page_tokens, fake_page(f, p), (size_t)kv->page_tokens * sizeof *f->kv))
            return "K4: a known page holds something else";
    return NULL;
}

#endif
