#include "grammar/grammar.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "api/grammar.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "grammar/machine.h"
#include "grammar/masks.h"
#include "grammar/finish.h"
#include "grammar/grammar_regex.h"
#include "grammar/gbnf.h"
#include "grammar/schema_values.h"
#include "grammar/schema_rules.h"
#include "grammar/tags.h"

/* A JSON list of strings, one of which the answer must be. */
static llm__gr_frag llm__gr_choice_frag(llm__gr_build *b, const llm_json *doc) {
    LLM__SCOPED(llm__gr_words_free) llm__gr_words w = LLM__ZERO;
    if (llm_json_type_of(doc, 0) != LLM_JSON_ARRAY || !llm_json_size(doc, 0))
        return b->failed = llm__error(LLM_ERR_FORMAT, "choice: a list of at least one string expected"), llm__gr_never;
    for (int at = llm_json_first(doc, 0); at >= 0 && !b->failed; at = llm_json_next(doc, at)) {
        llm__str text = llm__json_text(doc, at);
        if (text.n) llm__add_str(&w.all, text), llm__gr_words_add(b, &w);
        else b->failed = llm__error(LLM_ERR_FORMAT, "choice: item %zu: a string that is not empty expected", w.n);
    }
    llm__gr_words_sort(&w, 0);
    return b->failed ? llm__gr_never : llm__gr_strings(b, w.word, w.n, 0, 0);
}

/* The machine of any form; after an error never, and b->failed is set. JSON is parsed with a bound on its depth, since schemas are walked
 * recursively. */
static llm__gr_frag llm__gr_frag_of(llm__gr_build *b, const llm_grammar_config *cfg) {
    static const char object[] = "{\"type\":\"object\"}";
    llm_grammar_kind kind = cfg->kind;
    llm__str text = llm__s(cfg->text ? cfg->text : "", cfg->len);
    static const llm_json_limits limits = {256, 1 << 20, 0};
    llm_json *doc = NULL;
    llm__gr_frag f = llm__gr_never;
    if (kind == LLM_GRAMMAR_REGEX) return llm__gr_regex_frag(b, text, LLM__GR_WHOLE);
    if (kind == LLM_GRAMMAR_GBNF) return llm__gr_bnf_frag(b, text);
    if (kind == LLM_GRAMMAR_JSON_OBJECT) text = llm__lit(object);
    b->failed = llm_json_parse(text.p, text.n, &limits, &doc);
    if (b->failed) return f;
    if (kind == LLM_GRAMMAR_CHOICE) f = llm__gr_choice_frag(b, doc);
    else if (kind == LLM_GRAMMAR_STRUCTURAL_TAG) f = llm__gr_tags_frag(b, doc, cfg->space);
    else f = llm__js_frag(b, doc, 0, cfg->space);
    llm_json_free(doc);
    return f;
}

static llm_grammar *llm__grammar_hold(llm_grammar *g) {
    __atomic_fetch_add(&g->refs, 1, __ATOMIC_RELAXED);
    return g;
}

LLM_API void llm_grammar_close(llm_grammar *g) {
    if (g && __atomic_fetch_sub(&g->refs, 1, __ATOMIC_ACQ_REL) == 1) llm__grammar_free(g);
}

/* With its tokenizer: no request runs any more, but a program may still hold a grammar. */
static void llm__gr_shelf_free(llm__attached *it) {
    struct llm__gr_shelf *s = (struct llm__gr_shelf *)(void *)it;
    for (int32_t i = 0; i < s->n_kept; i++) {
        llm_grammar_close(s->kept[i].grammar);
        LLM_FREE(s->kept[i].key);
    }
    llm__gr_trie_free(s->trie);
    pthread_mutex_destroy(&s->lock);
    LLM_FREE(s);
}

/* The tokenizer's shelf. Whoever needs it first makes it; of two that do so at once one throws its own away. NULL: no memory. */
static struct llm__gr_shelf *llm__gr_shelf_of(const llm__tokenizer *t) {
    llm__attached **shared = &((llm__tokenizer *)(uintptr_t)t)->attached, *there = __atomic_load_n(shared, __ATOMIC_ACQUIRE);
    struct llm__gr_shelf *s = there ? (struct llm__gr_shelf *)(void *)there : LLM__NEW(struct llm__gr_shelf, 1);
    if (there || !s) return s;
    s->attached.free = llm__gr_shelf_free;
    pthread_mutex_init(&s->lock, NULL);
    s->trie = llm__gr_trie_make(t);
    if (s->trie && __atomic_compare_exchange_n(shared, &there, &s->attached, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return s;
    llm__gr_shelf_free(&s->attached);
    return (struct llm__gr_shelf *)(void *)there;
}

LLM__PRIVATE const llm__gr_trie *llm__gr_vocabulary(const llm__tokenizer *tokenizer) {
    const struct llm__gr_shelf *s = llm__gr_shelf_of(tokenizer);
    return s ? s->trie : NULL;
}

/* Bytes that a grammar takes now, nearly: small things are left out. Under its lock, as answers that run make states and masks. */
static size_t llm__gr_bytes_of(llm_grammar *g) {
    pthread_mutex_lock(&g->lock);
    size_t n =
        g->ops_cap * sizeof *g->op + g->frames_cap * sizeof *g->frame + g->threads_cap * sizeof *g->thread + g->to_cap * sizeof *g->to;
    n += g->n_masks * (((size_t)g->trie->vocab + 31) / 32) * 4;
    pthread_mutex_unlock(&g->lock);
    return n;
}

/* The kept grammar of a key, which becomes the latest; or `fresh` (NULL: only look) is put there. Returns it with a hold for the caller. */
static llm_grammar *llm__gr_shelf_get(struct llm__gr_shelf *s, const llm_text *key, llm_grammar *fresh) {
    struct llm__gr_kept one = {NULL, key->len, NULL};
    int32_t at = 0;
    pthread_mutex_lock(&s->lock);
    while (at < s->n_kept && (s->kept[at].n != key->len || memcmp(s->kept[at].key, key->data, key->len))) at++;
    if (at < s->n_kept) one = s->kept[at];
    else if (fresh && (one.key = llm__strndup(key->data, key->len)) != NULL) {
        one.grammar = llm__grammar_hold(fresh);
        at = LLM__MIN(s->n_kept, LLM__GR_SHELF - 1);
        if (s->n_kept == LLM__GR_SHELF) llm_grammar_close(s->kept[at].grammar), LLM_FREE(s->kept[at].key);
        else s->n_kept++;
    }
    if (one.key) {
        memmove(s->kept + 1, s->kept, (size_t)at * sizeof *s->kept);
        s->kept[0] = one;
        llm__grammar_hold(one.grammar);
    }
    size_t bytes = 0;
    for (int32_t i = 0; i < s->n_kept; i++) {
        bytes += llm__gr_bytes_of(s->kept[i].grammar) + s->kept[i].n;
        if (bytes <= LLM__GR_SHELF_BYTES || !i) continue;
        for (; s->n_kept > i; s->n_kept--) llm_grammar_close(s->kept[s->n_kept - 1].grammar), LLM_FREE(s->kept[s->n_kept - 1].key);
    }
    pthread_mutex_unlock(&s->lock);
    return one.grammar;
}

LLM__PRIVATE llm_result llm__grammar_make(const llm__tokenizer *tokenizer, llm__gr_trie *trie, const llm_grammar_config *cfg,
                                          llm_grammar **out) {
    llm__gr_build b;
    int64_t fuel = LLM__GR_FUEL;
    if (!llm__grammar_new(&b, &fuel)) return b.failed;
    b.g->tokenizer = tokenizer;
    b.g->trie = trie;
    llm__gr_frag f = llm__gr_frag_of(&b, cfg);
    if (cfg->after) f = llm__gr_after(&b, cfg->after, f);
    llm__grammar_finish(&b, f);
    if (b.failed) llm__grammar_free(b.g);
    else *out = b.g;
    return b.failed;
}

LLM__PRIVATE llm_result llm__grammar_open(const llm__tokenizer *tokenizer, const llm_grammar_config *cfg, llm_grammar **out) {
    llm_text key = llm__text_none();
    llm_result r = LLM_OK;
    *out = NULL;
    if (cfg->len > LLM__GR_MAX_TEXT)
        return llm__error(LLM_ERR_LIMIT, "grammar: %zu bytes, at most %d expected", cfg->len, LLM__GR_MAX_TEXT);
    if (!tokenizer) return llm__grammar_make(NULL, NULL, cfg, out);
    struct llm__gr_shelf *shelf = llm__gr_shelf_of(tokenizer);
    llm_text_int(&key, cfg->kind);
    llm_text_json(&key, cfg->space ? cfg->space : "-", cfg->space ? strlen(cfg->space) : 1);
    llm_text_json(&key, cfg->after ? cfg->after : "", cfg->after ? strlen(cfg->after) : 0);
    llm_text_str(&key, cfg->space ? "+" : "");
    if (cfg->len) llm_text_add(&key, cfg->text, cfg->len);
    if (!shelf || key.failed) r = llm__nomem();
    if (!r) *out = llm__gr_shelf_get(shelf, &key, NULL);
    if (!r && !*out && !(r = llm__grammar_make(tokenizer, shelf->trie, cfg, out))) {
        llm_grammar *kept = llm__gr_shelf_get(shelf, &key, *out);
        if (kept) llm_grammar_close(*out), *out = kept;
    }
    llm_text_free(&key);
    return r;
}

/* A matcher is a state and a place in its grammar's list, where llm__gr_trim finds it. Under the lock, as others step and trim. */
LLM_API llm_matcher *llm_matcher_open(llm_grammar *g) {
    llm_matcher *m = LLM__NEW(llm_matcher, 1);
    if (!m) return NULL;
    m->grammar = llm__grammar_hold(g);
    m->state = 1;
    pthread_mutex_lock(&g->lock);
    m->next = g->matchers;
    m->link = &g->matchers;
    if (m->next) m->next->link = &m->next;
    g->matchers = m;
    pthread_mutex_unlock(&g->lock);
    return m;
}

LLM_API void llm_matcher_close(llm_matcher *m) {
    if (!m) return;
    pthread_mutex_lock(&m->grammar->lock);
    *m->link = m->next;
    if (m->next) m->next->link = m->link;
    pthread_mutex_unlock(&m->grammar->lock);
    llm_grammar_close(m->grammar);
    LLM_FREE(m);
}

LLM_API int llm_matcher_can_end(const llm_matcher *m) {
    pthread_mutex_lock(&m->grammar->lock);
    int yes = (size_t)m->state < m->grammar->n_states && m->grammar->state[m->state].accept;
    pthread_mutex_unlock(&m->grammar->lock);
    return yes;
}

/* All bytes or none: where one is refused the matcher stays before the first, so that a caller may try something else. */
LLM_API llm_result llm_matcher_bytes(llm_matcher *m, const char *bytes, size_t n) {
    llm_grammar *g = m->grammar;
    int32_t state = m->state;
    int64_t fuel = LLM__GR_FUEL + 256 * (int64_t)n;
    pthread_mutex_lock(&g->lock);
    g->fuel = &fuel, g->failed = NULL;
    for (size_t i = 0; i < n && state; i++) state = llm__gr_step(g, state, (uint8_t)bytes[i]);
    m->failed = g->failed;
    if (state) m->state = state;
    pthread_mutex_unlock(&g->lock);
    if (m->failed) return llm__gr_gave_up(m->failed);
    return state ? LLM_OK : llm__error(LLM_ERR_ARG, "grammar: the text cannot go on with these %zu bytes", n);
}

/* By the bytes of the trie, not of the tokenizer: what a mask allowed and what is taken here are the same bytes. */
static llm__str llm__gr_token(const llm__gr_trie *t, int32_t id) {
    int32_t begin = id > 0 && id < t->vocab ? t->end[id - 1] : 0, end = id >= 0 && id < t->vocab ? t->end[id] : begin;
    return llm__s(t->spelling + begin, (size_t)(end - begin));
}

LLM_API llm_result llm_matcher_token(llm_matcher *m, int32_t id) {
    llm__str text = m->grammar->trie ? llm__gr_token(m->grammar->trie, id) : llm__s(NULL, 0);
    if (!text.n) return llm__error(LLM_ERR_ARG, "grammar: token %d stands for no text", (int)id);
    return llm_matcher_bytes(m, text.p, text.n);
}

LLM__PRIVATE int32_t llm__matcher_mask(llm_matcher *m, const int32_t *ids, int32_t n, uint32_t *words, size_t n_words, int kept,
                                       int *can_end) {
    llm_grammar *g = m->grammar;
    int64_t fuel = LLM__GR_FUEL;
    pthread_mutex_lock(&g->lock);
    g->fuel = &fuel, g->failed = NULL;
    llm__gr_trim(g);
    int32_t state = m->state, allowed = -1;
    for (int32_t i = 0; i < n && g->trie; i++) {
        llm__str text = llm__gr_token(g->trie, ids[i]);
        for (size_t k = 0; k < text.n; k++) state = llm__gr_step(g, state, (uint8_t)text.p[k]);
        if (!text.n) state = 0;
    }
    g->looking = kept;
    const llm__gr_mask *mask = g->failed || !g->trie ? NULL : llm__gr_mask_of(g, state);
    g->looking = 0;
    size_t n_kept = mask ? LLM__MIN(n_words, ((size_t)g->trie->vocab + 31) / 32) : 0;
    if (mask) allowed = mask->n_allowed;
    if (n_kept) memcpy(words, mask->words, n_kept * sizeof *words);
    m->failed = g->failed;
    *can_end = !g->failed && g->state[state].accept;
    pthread_mutex_unlock(&g->lock);
    for (; n_kept < n_words; n_kept++) words[n_kept] = 0;
    return allowed;
}

LLM__PRIVATE int32_t llm__matcher_ahead(llm_matcher *m, int32_t *ids, int32_t most, int32_t *n_sure, int *over) {
    llm_grammar *g = m->grammar;
    int32_t state = m->state, n = 0;
    int alone = 1;
    int64_t fuel = LLM__GR_FUEL;
    pthread_mutex_lock(&g->lock);
    g->fuel = &fuel, g->failed = NULL;
    for (*n_sure = 0; g->trie && n < most && (ids[n] = llm__gr_forced(g, &state, &alone)) >= 0; n++) *n_sure += alone && *n_sure == n;
    *over = g->state[state].accept && g->state[state].n == 1;
    pthread_mutex_unlock(&g->lock);
    return n;
}

LLM_API llm_result llm_matcher_mask(llm_matcher *m, uint32_t *words, int32_t *n_allowed) {
    llm_grammar *g = m->grammar;
    int can_end;
    if (!g->trie) return llm__error(LLM_ERR_ARG, "grammar: it was opened without a model, so it has no masks");
    int32_t n = llm__matcher_mask(m, NULL, 0, words, ((size_t)g->trie->vocab + 31) / 32, 0, &can_end);
    if (n_allowed) *n_allowed = n;
    return n < 0 ? llm__gr_gave_up(m->failed) : LLM_OK;
}
