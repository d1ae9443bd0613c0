/* Pages: the manager against a plain list of what each page holds; then what sequences do with them, over the fake device. */
#include "../fake.h"
#include "engine/ends.h"

/* ---- the manager ---- */

enum { PG_PAGES = 9, PG_SIZE = 2, PG_CHAINS = 3 };

/* A plain twin: the content of each page as the tokens from the beginning on (empty: none known), and the order of those nobody uses. */
typedef struct pg_twin {
    int32_t ref[PG_PAGES], line[PG_PAGES], n_line; /* line: the next to be taken first */
    char known[PG_PAGES][16], held[PG_PAGES][16];  /* found by; what its owner computes */
} pg_twin;

static uint64_t pg_seed;
static int32_t pg_random(int32_t n) { return (int32_t)(llm__mix(pg_seed++) % (uint64_t)n); }

static void pg_unline(pg_twin *t, int32_t page) {
    int32_t at = 0;
    while (t->line[at] != page) at++;
    memmove(t->line + at, t->line + at + 1, (size_t)(--t->n_line - at) * sizeof *t->line);
}

static int32_t pg_known(const pg_twin *t, const char *text) {
    for (int32_t i = 0; i < PG_PAGES; i++)
        if (t->known[i][0] && !strcmp(t->known[i], text)) return i;
    return -1;
}

static int32_t pg_get(pg_twin *t) {
    if (!t->n_line) return -1;
    const int32_t page = t->line[0];
    pg_unline(t, page);
    t->ref[page] = 1;
    t->known[page][0] = t->held[page][0] = 0;
    return page;
}

static void pg_drop(pg_twin *t, int32_t page) {
    if (--t->ref[page]) return;
    const int32_t at = t->known[page][0] ? t->n_line : 0;
    memmove(t->line + at + 1, t->line + at, (size_t)(t->n_line++ - at) * sizeof *t->line);
    t->line[at] = page;
}

static int pg_same(const llm__kv *kv, const pg_twin *t) {
    int32_t at = 0, n_cached = 0, ok = 1;
    for (int32_t p = kv->next[PG_PAGES]; p != PG_PAGES && at < PG_PAGES; p = kv->next[p]) ok &= at < t->n_line && t->line[at++] == p;
    for (int32_t i = 0; i < PG_PAGES; i++) {
        ok &= kv->ref[i] == t->ref[i] && kv->known[i] == (t->known[i][0] != 0);
        n_cached += t->known[i][0] && !t->ref[i];
    }
    return ok && at == t->n_line && llm__kv_room(kv) == t->n_line && kv->n_cached == n_cached;
}

/* The key of a text of pages, from a root on. */
static llm__kv_key pg_key(const llm__kv *kv, const char *text, int32_t *tokens) {
    llm__kv_key key = llm__kv_root(kv, 0, 0, NULL);
    for (; *text; text += PG_SIZE) {
        for (int i = 0; i < PG_SIZE; i++) tokens[i] = text[i];
        key = llm__kv_hash(kv, key, tokens, PG_SIZE * sizeof *tokens);
    }
    return key;
}

/* One random operation on both: a page taken, computed, published, found, held once more, let go. */
static void pg_move(llm__kv *kv, pg_twin *t) {
    int32_t tokens[PG_SIZE], page = pg_random(PG_PAGES), want;
    char text[16] = "";
    for (int32_t i = 0, n = 1 + pg_random(3); i < n; i++) snprintf(text + 2 * i, 3, "%c%c", 'a' + pg_random(2), 'a' + pg_random(2));
    switch (pg_random(6)) {
    case 0:
        want = pg_get(t);
        CHECK(llm__kv_get(kv) == want);
        if (want >= 0) strcpy(t->held[want], text);
        break;
    case 1: /* full: it can be found, unless an equal one is known */
        if (!t->ref[page] || t->known[page][0]) break;
        llm__kv_publish(kv, page, pg_key(kv, t->held[page], tokens), tokens);
        if (pg_known(t, t->held[page]) < 0) strcpy(t->known[page], t->held[page]);
        break;
    case 2: {
        char before[16];
        strcpy(before, text);
        before[strlen(text) - PG_SIZE] = 0;
        llm__kv_key key = pg_key(kv, before, tokens);
        const llm__kv_key own = pg_key(kv, text, tokens);
        want = pg_known(t, text);
        CHECK(llm__kv_lookup(kv, own, tokens) == want);
        CHECK(llm__kv_find(kv, &key, tokens) == want && key.a == own.a && key.b == own.b);
        if (want >= 0 && !t->ref[want]++) pg_unline(t, want);
        break;
    }
    case 3:
        if (!t->ref[page]) break;
        llm__kv_hold(kv, page), t->ref[page]++;
        break;
    default:
        if (!t->ref[page]) break;
        llm__kv_drop(kv, page), pg_drop(t, page);
    }
}

static void pg_manager(uint64_t seed) {
    llm__arena memory = LLM__ZERO;
    llm__kv kv;
    pg_twin t;
    pg_seed = seed << 32;
    memset(&t, 0, sizeof t);
    for (int32_t i = 0; i < PG_PAGES; i++) t.line[t.n_line++] = i;
    CHECK(!llm__kv_open(&kv, PG_PAGES, PG_SIZE, 0, &memory));
    for (int32_t i = 0, ok = 1; i < 3000 && ok; i++) {
        pg_move(&kv, &t);
        ok = CHECK(pg_same(&kv, &t));
    }
    llm__kv_flush(&kv);
    for (int32_t i = 0; i < PG_PAGES; i++) CHECK(kv.known[i] == (t.ref[i] && t.known[i][0])); /* those in use stay known */
    CHECK(!kv.n_cached && kv.n_free == t.n_line);
    llm__arena_free(&memory);
}

/* Each thing that decides what keys and values a token has parts the chains: parents, tokens and their number, adapter, scaling, salt;
 * and so does the secret of each cache. */
static void pg_keys(void) {
    llm__arena memory = LLM__ZERO;
    llm__kv kv[2];
    llm__kv_key all[64];
    int32_t n = 0, tokens[4] = {0, 0, 0, 0};
    for (int i = 0; i < 2; i++) {
        CHECK(!llm__kv_open(&kv[i], 1, 4, 0, &memory));
        all[n++] = llm__kv_root(&kv[i], 0, 0, NULL);
        all[n++] = llm__kv_root(&kv[i], 0, 0, "");
        all[n++] = llm__kv_root(&kv[i], 0, 0, "salt");
        all[n++] = llm__kv_root(&kv[i], 0, 0, "salt2");
        all[n++] = llm__kv_root(&kv[i], 1, 0, NULL);
        all[n++] = llm__kv_root(&kv[i], 0, 1, NULL);
        all[n++] = llm__kv_root(&kv[i], 1, 1, NULL);
        for (int k = 0; k < 5; k++) {
            if (k < 4) tokens[k] = 1;
            all[n++] = llm__kv_hash(&kv[i], all[0], tokens, sizeof tokens);
            if (k < 4) tokens[k] = 0;
        }
        all[n++] = llm__kv_hash(&kv[i], all[0], tokens, 3 * sizeof *tokens);
        all[n++] = llm__kv_hash(&kv[i], all[1], tokens, sizeof tokens);
        const llm__kv_key turned = {all[0].b, all[0].a};
        all[n++] = llm__kv_hash(&kv[i], turned, tokens, sizeof tokens);
    }
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < i; k++) CHECK(all[i].a != all[k].a && all[i].b != all[k].b);
    const llm__kv_key again = llm__kv_root(&kv[1], 0, 0, "salt");
    CHECK(again.a == all[n / 2 + 2].a && again.b == all[n / 2 + 2].b);
    llm__arena_free(&memory);
}

/* ---- sequences ---- */

static llm_request *pg_submit(llm_engine *e, const int32_t *ids, int32_t n, int32_t max_new) {
    llm_request_config c = LLM__ZERO;
    llm_request *r = NULL;
    c.prompt_ids = ids, c.n_prompt_ids = (size_t)n, c.sampling.max_tokens = max_new, c.sampling.ignore_eos = 1;
    CHECK(!llm_request_submit(e, &c, &r));
    llm__take_inbox(e);
    return r;
}

/* As the scheduler does it when a sequence finds a place. */
static int pg_run(llm_engine *e, llm__seq *s) {
    if (!llm__seq_place(e, s)) return 0;
    llm__queue_take(e, s);
    llm__running_put(e, s);
    return 1;
}

/* All of a sequence's tokens count as computed; the device gets them in its pages. */
static void pg_compute(fake_device *f, llm__seq *s) {
    for (int32_t at = s->n_computed; at < s->n_ids; at++)
        f->kv[s->pages.id[at / f->page_tokens] * f->page_tokens + at % f->page_tokens] = s->ids[at];
    s->n_fed = s->n_computed = s->n_ids;
    llm__seq_publish(f->engine, s);
}

static int pg_holds(const fake_device *f, const llm__seq *s) {
    for (int32_t at = 0; at < s->n_computed; at++)
        if (f->kv[s->pages.id[at / f->page_tokens] * f->page_tokens + at % f->page_tokens] != s->ids[at]) return 0;
    return 1;
}

/* Pages of tokens, and what is left of a sequence, for all small counts. */
static void pg_counts(void) {
    fake_device f;
    int32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8}, pages = 0;
    llm_engine *e = fake_open(&f, fake_params(16, 4, 2, 16, 60));
    for (int32_t n = 0; n < 40; n++) {
        pages += n % 4 == 1; /* the first token of a page */
        CHECK(llm__pages_of(e, n) == pages);
    }
    CHECK(llm__pages_of(e, INT32_MAX) == 1 << 29);
    llm_request *r = pg_submit(e, ids, 8, 4);
    llm__seq *s = &r->seq[0];
    for (s->n_ids = 8; s->n_ids < 12; s->n_ids++)
        for (s->n_ahead = 0; s->n_ahead < 2; s->n_ahead++)
            for (s->n_fed = 0; s->n_fed <= s->n_ids + s->n_ahead; s->n_fed++) {
                const int32_t left = s->n_ids + s->n_ahead - s->n_fed;
                CHECK(llm__seq_left(s) == left);
                CHECK(llm__decodes(s) == (left == 1 && s->n_ids + s->n_ahead > 8)); /* the last row of a prompt decodes nothing */
                for (s->pages.n = 0; s->pages.n < 4; s->pages.n++)
                    CHECK(llm__goes_on(e, s) == (left > 0 && s->pages.n * 4 >= s->n_ids + s->n_ahead));
                s->pages.n = 0;
            }
    s->n_ids = 8, s->n_ahead = s->n_fed = 0;
    llm_request_free(r);
    fake_close(&f);
}

/* Who comes second with the same beginning takes the full pages of the first, but computes one token at least; a page for each that runs
 * stays free, and who found none does not look again until one was let go. */
static void pg_place(void) {
    fake_device f;
    int32_t ids[13] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    llm_engine *e = fake_open(&f, fake_params(8, 4, 4, 32, 24));
    llm_request *a = pg_submit(e, ids, 12, 4), *b = pg_submit(e, ids, 12, 4), *c = pg_submit(e, ids, 13, 4),
                *d = pg_submit(e, ids + 1, 12, 4);
    CHECK(pg_run(e, a->seq) && a->seq->pages.n == 3 && !a->seq->n_computed && llm__kv_room(&e->kv) == 5);
    pg_compute(&f, a->seq);
    CHECK(a->seq->pages.n_published == 3);
    CHECK(pg_run(e, b->seq) && b->seq->n_computed == 8 && b->seq->pages.n == 3); /* of 12 tokens the last must be computed */
    CHECK(b->seq->pages.id[1] == a->seq->pages.id[1] && b->seq->pages.id[2] != a->seq->pages.id[2]);
    CHECK(pg_run(e, c->seq) && c->seq->n_computed == 12 && c->seq->pages.n == 4 && c->seq->pages.id[2] == a->seq->pages.id[2]);
    CHECK(pg_holds(&f, c->seq) && e->kv.ref[a->seq->pages.id[0]] == 3);
    const uint64_t released = e->kv.released;
    CHECK(llm__kv_room(&e->kv) == 3 && !llm__seq_place(e, d->seq) && !d->seq->pages.n && d->seq->pages.blocked == released + 1);
    CHECK(!llm__seq_place(e, d->seq) && e->kv.released == released);
    llm__running_take(e, a->seq);
    llm__seq_release(e, a->seq); /* its last page is cached; the others are b's and c's too */
    CHECK(!a->seq->pages.n && !a->seq->n_computed && !a->seq->pages.n_published && a->seq->pages.key.a == a->root.a);
    llm__queue_put(e, a->seq);
    llm__running_take(e, b->seq);
    llm__seq_release(e, b->seq);
    llm__queue_put(e, b->seq);
    CHECK(llm__kv_room(&e->kv) == 4 && pg_run(e, d->seq) && d->seq->pages.n == 3);
    llm_request_free(a), llm_request_free(b), llm_request_free(c), llm_request_free(d);
    fake_close(&f);
}

/* The pages that a sequence takes when it has given way so often: those of its tokens, then some ahead, then all that it can need, and no more
 * (400 tokens of answer take 100). */
static void pg_ahead(void) {
    static const int32_t want[] = {3, 3, 3, 3 + 8, 3 + 16, 3 + 32, 3 + 64, 102, 102};
    fake_device f;
    int32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    llm_engine *e = fake_open(&f, fake_params(128, 4, 2, 16, 500));
    llm_request *r = pg_submit(e, ids, 8, 400);
    llm__seq *s = r->seq;
    s->n_ids = 9;
    for (int32_t often = 0; often < LLM__COUNT(want); often++) {
        CHECK(pg_run(e, s) && s->n_preempted == often && s->pages.n == want[often]);
        llm__preempt(e, s);
    }
    s->n_preempted = 3;
    CHECK(pg_run(e, s) && s->pages.n == 11);
    for (s->n_ids = 10; s->n_ids < 52; s->n_ids++)
        CHECK(llm__grow_pages(e, 0) == 1 && s->pages.n == LLM__MAX(11, llm__pages_of(e, s->n_ids)));
    s->n_ids = 9;
    llm__preempt(e, s);
    s->n_preempted = 1000, s->n_ids = 8;
    CHECK(pg_run(e, s) && s->pages.n == 102);
    llm_request_free(r);
    fake_close(&f);
}

/* Who gives way waits again at its place, and its pages come back from host memory, the begun one too; a page that cannot be read is
 * computed again with all behind it; without room for all nothing is copied. */
static void pg_swap(int n_swap, int fails) {
    fake_device f;
    int32_t ids[11] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    llm__engine_params p = fake_params(8, 4, 4, 32, 24);
    p.n_swap = n_swap, p.c.disable_prefix_caching = 1;
    llm_engine *e = fake_open(&f, p);
    llm_request *a = pg_submit(e, ids, 11, 4);
    llm__seq *s = a->seq;
    CHECK(pg_run(e, s));
    pg_compute(&f, s);
    if (fails == 1) f.fail_swap = 1;
    llm__preempt(e, s);
    const int swapped = n_swap >= 3 && fails != 1;
    CHECK(s->state == LLM__SEQ_WAITING && !s->pages.n && s->n_preempted == 1 && a->metrics.n_preemptions == 1 && e->count.preemptions == 1);
    CHECK(s->swap.n == (swapped ? 3 : 0) && e->swap.n_free == n_swap - s->swap.n && (!swapped || s->swap.n_tokens == 11));
    memset(f.kv, 0, 8 * 4 * sizeof *f.kv); /* others have used the pages meanwhile */
    if (fails == 2) f.fail_swap = 1;
    CHECK(pg_run(e, s) && s->n_computed == (swapped && fails != 2 ? 11 : 0) && s->n_fed == s->n_computed && pg_holds(&f, s));
    CHECK(!s->swap.n && e->swap.n_free == n_swap);
    s->swap.slot[s->swap.n++] = e->swap.free[--e->swap.n_free]; /* as if it waited once more */
    llm__swap_drop(e, s);
    CHECK(!s->swap.n && e->swap.n_free == n_swap);
    if (swapped) CHECK(!llm__page_move(e, s->pages.id[0], e->swap.memory, NULL) && !memcmp(e->swap.memory, f.kv + 4 * s->pages.id[0], 16));
    llm_request_free(a);
    fake_close(&f);
}

/* Two sequences in a cache that is full: the later one gives way, unless it shares all it has; a step in flight must end first. */
static void pg_grow(void) {
    fake_device f;
    int32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8}, other[4] = {9, 10, 11, 12};
    llm_engine *e = fake_open(&f, fake_params(4, 4, 4, 32, 16));
    llm_request *a = pg_submit(e, ids, 8, 8), *b = pg_submit(e, other, 4, 8);
    llm__seq *s = a->seq, *t = b->seq;
    CHECK(pg_run(e, s) && pg_run(e, t));
    pg_compute(&f, s), pg_compute(&f, t);
    s->ids[s->n_ids++] = 1, t->ids[t->n_ids++] = 2;
    CHECK(llm__grow_pages(e, 0) == 1 && s->pages.n == 3 && !llm__kv_room(&e->kv));
    CHECK(llm__grow_pages(e, 0) == 1 && s->pages.n == 3); /* it has what it needs */
    e->flights.n = 1;
    CHECK(llm__grow_pages(e, 1) == -1 && t->state == LLM__SEQ_RUNNING);
    e->flights.n = 0;
    CHECK(llm__grow_pages(e, 1) == 0 && t->state == LLM__SEQ_WAITING && !t->pages.n); /* nobody stands behind it */
    llm__queue_take(e, t);
    llm__running_put(e, t);
    CHECK(llm__kv_room(&e->kv) == 1 && llm__grow_pages(e, 1) == 0); /* two pages are wanted, one is there */
    CHECK(t->n_preempted == 2 && s->state == LLM__SEQ_RUNNING && pg_holds(&f, s));
    pg_compute(&f, s);
    for (int32_t i = 0; i < 4; i++) s->ids[s->n_ids++] = 3;
    llm__queue_take(e, t);
    llm__running_put(e, t);
    t->pages.id[t->pages.n++] = llm__kv_get(&e->kv);
    CHECK(llm__grow_pages(e, 0) == 1 && s->pages.n == 4 && t->n_preempted == 3 && t->state == LLM__SEQ_WAITING); /* the later one */
    llm__queue_take(e, t);
    llm__running_put(e, t);
    llm__kv_drop(&e->kv, s->pages.id[--s->pages.n]);
    t->pages.id[t->pages.n++] = llm__kv_get(&e->kv);
    CHECK(llm__grow_pages(e, 0) == 0 && s->state == LLM__SEQ_WAITING && t->state == LLM__SEQ_RUNNING); /* three times are enough */
    llm_request_free(a), llm_request_free(b);
    fake_close(&f);
}

TEST_GROUP(pages) {
    for (uint64_t seed = 1; seed <= 5; seed++) pg_manager(seed);
    pg_keys();
    pg_counts();
    pg_place();
    pg_ahead();
    for (int fails = 0; fails < 3; fails++) pg_swap(4, fails);
    pg_swap(2, 0);
    pg_grow();
}
