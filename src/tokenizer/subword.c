#include "tokenizer/subword.h"
#include "api/config.h"
#include "api/text.h"
#include "api/tokenizer.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "base/index.h"
#include "text/unicode_classes.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/encode.h"

LLM__PRIVATE int32_t llm__tok_find(const llm__tokenizer *t, llm__str s) {
    if (s.n > t->max_token) return -1;
    int32_t id = llm__map_get(&t->ids, s);
    return id < t->n_vocab ? id : -1;
}

/* 1 if every byte of s has a token <0x..>. */
static int llm__has_bytes(const llm__tokenizer *t, llm__str s) {
    for (size_t i = 0; i < s.n; i++)
        if (t->byte_id[(uint8_t)s.p[i]] < 0) return 0;
    return 1;
}

LLM__PRIVATE llm__merge *llm__merge_slot(const llm__tokenizer *t, int32_t left, int32_t right) {
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    size_t i = (size_t)(h >> 24) & (t->merge_cap - 1);
    while (t->merge[i].id >= 0 && (t->merge[i].left != left || t->merge[i].right != right)) i = (i + 1) & (t->merge_cap - 1);
    return &t->merge[i];
}

/* The text of a symbol. */
static llm__str llm__symbol_text(const llm__encode *e, llm__str word, const llm__symbol *s) {
    return llm__s(word.p + s->at, (s->next >= 0 ? e->symbol[s->next].at : word.n) - s->at);
}

/* The token that a symbol and the next merge into, and its priority (smallest first); -1: none. Ranked pairs are looked up by the two ids,
 * the other two sources by the text that the two cover. Where pairs count a barrier merges with nothing; by text it may still become part
 * of a token. */
static int32_t llm__bpe_merged(const llm__encode *e, llm__str word, const llm__symbol *a, uint32_t *priority) {
    const llm__tokenizer *t = e->t;
    const llm__symbol *b = &e->symbol[a->next];
    if (!t->merge) {
        int32_t id = llm__tok_find(t, llm__s(word.p + a->at, llm__symbol_text(e, word, b).n + b->at - a->at));
        if (id >= 0) *priority = t->token[id].rank;
        return id >= 0 && *priority < UINT32_MAX ? id : -1;
    }
    if (a->id < 0 || b->id < 0) return -1;
    const llm__merge *m = llm__merge_slot(t, a->id, b->id);
    *priority = (uint32_t)m->rank;
    return m->id;
}

/* Puts the pair of a symbol and the next on the heap, if it can be merged. */
static void llm__bpe_try(llm__encode *e, llm__str word, int32_t left) {
    uint32_t priority;
    if (left < 0 || e->symbol[left].next < 0) return;
    int32_t id = llm__bpe_merged(e, word, &e->symbol[left], &priority);
    if (id >= 0) llm__heap_push(e, (uint64_t)priority << 32 | (uint32_t)left, id);
}

/* Merges pairs, the one with the smallest priority first, of those the leftmost, until none is left: n log n for a word of n symbols. The
 * method is Sennrich, Haddow and Birch 2016; the heap over a linked list is SentencePiece's and llama.cpp's. "lower" with the merges
 * l o (1), lo w (2), e r (3), low er (4):
 *
 *   symbols            heap (priority: pair)          popped
 *   l o w e r          1: l o   3: e r                l o
 *   lo w e r           2: lo w  3: e r                lo w     the new symbol is tried with both its neighbours
 *   low e r            3: e r                         e r
 *   low er             4: low er                      low er
 *   lower
 *
 * Nothing is taken off the heap when it goes out of date; that is seen when it is popped: its left symbol was merged away or is the last
 * now, or one of the two has grown, so that they make another token or none. */
static void llm__bpe_merge(llm__encode *e, llm__str word, int32_t n) {
    const size_t lookup = e->t->merge ? 1 : 1 + LLM__MIN(e->t->max_token, word.n) / 16; /* of a pair, or of a text of that length */
    size_t turns = 0;
    e->heap_n = 0;
    llm__encode_spend(e, (size_t)n * lookup);
    for (int32_t i = 0; i + 1 < n && !e->result; i++) llm__bpe_try(e, word, i);
    while (e->heap_n && !e->result) {
        if (!(++turns & 1023)) llm__encode_spend(e, 1024 * lookup);
        llm__pair top = llm__heap_pop(e);
        int32_t left = (int32_t)(uint32_t)top.key;
        llm__symbol *a = &e->symbol[left];
        uint32_t priority;
        if (a->prev == INT32_MIN || a->next < 0 || llm__bpe_merged(e, word, a, &priority) != top.id) continue;
        llm__symbol *b = &e->symbol[a->next];
        a->id = top.id;
        a->next = b->next;
        b->prev = INT32_MIN;
        if (a->next >= 0) e->symbol[a->next].prev = left;
        llm__bpe_try(e, word, a->prev);
        llm__bpe_try(e, word, left);
    }
}

/* Appends a symbol to the n of a word. Returns the new count. */
static int32_t llm__bpe_add(llm__encode *e, int32_t n, int32_t id, size_t at) {
    if (!llm__encode_grow(e, (void **)&e->symbol, &e->symbol_cap, (size_t)n + 1, sizeof *e->symbol)) return n;
    llm__symbol *s = &e->symbol[n];
    s->id = id;
    s->at = (uint32_t)at;
    s->prev = n - 1;
    s->next = -1;
    if (n) e->symbol[n - 1].next = n;
    return n + 1;
}

/* One character of a word with the prefix or suffix that the model puts to it. */
static llm__str llm__bpe_char(llm__encode *e, llm__str word, size_t at, size_t next) {
    const llm__tokenizer *t = e->t;
    llm__str one = llm__s(word.p + at, next - at);
    int prefix = t->prefix.n && at, suffix = t->suffix.n && next == word.n;
    if (!prefix && !suffix) return one;
    e->scratch.len = 0;
    if (prefix) llm__add_str(&e->scratch, t->prefix);
    llm__add_str(&e->scratch, one);
    if (suffix) llm__add_str(&e->scratch, t->suffix);
    if (e->scratch.failed) llm__encode_fail(e, LLM_ERR_NOMEM);
    return llm__text_str(&e->scratch);
}

/* The first symbols of a word: its characters (or bytes). Unknown ones stay as barriers, which are seen to at the
 * end; or vanish, where nothing can stand for them. Returns how many. */
static int32_t llm__bpe_symbols(llm__encode *e, llm__str word) {
    const llm__tokenizer *t = e->t;
    int32_t n = 0;
    for (size_t at = 0, next = 0; at < word.n && !e->result; at = next) {
        if (t->bytes) next++;
        else (void)llm__uni_next(word, &next);
        int32_t id = llm__map_get(&t->ids, llm__bpe_char(e, word, at, next));
        if (id >= 0 || t->barrier) n = llm__bpe_add(e, n, id, at);
    }
    return n;
}

/* What is left of a barrier: its bytes as tokens, where there are such, or the unknown token. */
static void llm__bpe_leftover(llm__encode *e, llm__str s, int *unknown) {
    const llm__tokenizer *t = e->t;
    int known = t->alphabet_fallback || (t->byte_fallback && (t->drop_unknown || llm__has_bytes(t, s)));
    for (size_t i = 0; i < s.n && known; i++) {
        int32_t id = t->alphabet_fallback ? llm__tok_find(t, llm__s(s.p + i, 1)) : t->byte_id[(uint8_t)s.p[i]];
        if (id >= 0) llm__emit(e, id);
    }
    if (known || t->unk_id < 0) return;
    if (!*unknown || !t->fuse_unk) llm__emit(e, t->unk_id);
    *unknown = 1;
}

/* BPE: a word that is a token as a whole may be taken so (ignore_merges); else its symbols are merged, and what is left is emitted. */
static void llm__model_bpe(llm__encode *e, llm__str word) {
    const llm__tokenizer *t = e->t;
    int32_t whole = t->whole == 1 || (t->whole && word.p[0] == '\n') ? llm__tok_find(t, word) : -1;
    if (whole >= 0) {
        llm__emit(e, whole);
        return;
    }
    int32_t n = llm__bpe_symbols(e, word);
    int unknown = 0;
    llm__bpe_merge(e, word, n);
    for (int32_t i = n ? 0 : -1; i >= 0 && !e->result; i = e->symbol[i].next) {
        const llm__symbol *s = &e->symbol[i];
        if (s->id >= 0 && s->id < t->n_vocab) llm__emit(e, s->id), unknown = 0;
        else llm__bpe_leftover(e, llm__symbol_text(e, word, s), &unknown);
    }
}

/* A way to b of which a token is the last step: the better one stays, of equal ones the first. */
static void llm__unigram_try(const llm__tokenizer *t, llm__best *b, double score, size_t from, int32_t id) {
    if (t->float_sums) score = (float)score;
    if (b->from != UINT32_MAX && score <= b->score) return;
    b->score = score;
    b->from = (uint32_t)from;
    b->id = id;
}

/* Unigram: the tokens with the largest sum of scores (log-probabilities). Viterbi from left to right: best[i] is the best way to byte i;
 * every token that begins at a reached character extends it, and a character that is no token by itself may always be passed as unknown,
 * at a cost below any token's. Read back from the end, the ids come in reverse.
 *
 * With the scores a -2, b -3, c -2, ab -4, bc -3.5 the word "abc" goes so:
 *
 *   from 0:  a  makes best[1] = -2        ab makes best[2] = -4
 *   from 1:  b  offers best[2] -5: no     bc makes best[3] = -5.5
 *   from 2:  c  offers best[3] -6: no
 *
 * Back from 3: bc came from 1, a from 0, so the word is a, bc. The longest first token, ab, would have led to the worse sum: this is what
 * a greedy search cannot see. The work is at most the word's bytes times the longest token's, a step in the sorted index for each. */
static void llm__model_unigram(llm__encode *e, llm__str word) {
    const llm__tokenizer *t = e->t;
    if (!llm__encode_grow(e, (void **)&e->best, &e->best_cap, word.n + 1, sizeof *e->best)) return;
    llm__best *best = e->best;
    for (size_t i = 0; i <= word.n; i++) best[i].id = -1, best[i].score = 0, best[i].from = UINT32_MAX;
    for (size_t at = 0, next = 0, steps = 0; at < word.n; at = next) {
        (void)llm__uni_next(word, &next);
        size_t lo = 0, hi = t->pieces.n;
        int single = 0;
        if (steps > 4096 && !llm__encode_spend(e, steps)) return;
        if (steps > 4096) steps = 0;
        for (size_t end = at + 1; end <= word.n && lo < hi; end++, steps++) {
            if (!llm__index_step(&t->pieces, &lo, &hi, end - at - 1, (uint8_t)word.p[end - 1])) continue;
            int32_t id = t->pieces.v[lo].value;
            llm__unigram_try(t, &best[end], best[at].score + (double)t->token[id].score, at, id);
            single |= end == next;
        }
        if (!single) llm__unigram_try(t, &best[next], best[at].score + t->unk_score, at, t->unk_id);
    }
    size_t first = e->out->len;
    for (size_t end = word.n, from; end; end = from) { /* back along the best path; a run of unknown characters is one */
        int32_t id = best[end].id;
        from = best[end].from;
        while (id == t->unk_id && from && best[from].id == t->unk_id && t->fuse_unk) from = best[from].from;
        llm__str s = llm__s(word.p + from, end - from);
        int32_t same = id == t->unk_id ? llm__tok_find(t, s) : id;
        int fallback = same < 0 && t->byte_fallback && llm__has_bytes(t, s);
        for (size_t i = s.n; fallback && i-- > 0;) llm__emit(e, t->byte_id[(uint8_t)s.p[i]]);
        if (!fallback) llm__emit(e, same >= 0 ? same : id);
    }
    /* The ids came from the end: turn them round. */
    for (size_t i = first, k = e->out->len; !e->out->failed && i + 1 < k; i++) {
        int32_t swap = e->out->data[--k];
        e->out->data[k] = e->out->data[i];
        e->out->data[i] = swap;
    }
}

/* WordPiece: the longest token that fits, again and again, from the second on with the prefix in front ("##"); a word with a part that
 * none fits is unknown as a whole, and so is one of too many characters. The method of Schuster & Nakajima 2012 as BERT uses it: with the
 * tokens un, ##aff, ##able, ##a the word "unaffable" is
 *
 *   unaffable   un        the longest token that begins it
 *   affable     ##aff     ##aff before ##a, as it is longer
 *   able        ##able
 *
 * There is no way back: were ##able missing, ##a would be taken, nothing would fit "ble", and the ids that were emitted for the word would
 * be replaced by the one unknown id. */
static void llm__model_wordpiece(llm__encode *e, llm__str word) {
    const llm__tokenizer *t = e->t;
    size_t chars = 0, first = e->out->len;
    for (size_t at = 0; at < word.n; chars++) (void)llm__uni_next(word, &at);
    for (size_t at = 0, end; at < word.n && chars <= (size_t)t->max_word; at = end) {
        int32_t id = -1;
        size_t before = at ? t->prefix.n : 0;
        e->scratch.len = 0;
        end = at + LLM__MIN(word.n - at, t->max_token);
        llm_text_add(&e->scratch, t->prefix.p, before);
        llm_text_add(&e->scratch, word.p + at, end - at);
        if (e->scratch.failed) {
            llm__encode_fail(e, LLM_ERR_NOMEM);
            return;
        }
        while (end > at && (id = llm__tok_find(t, llm__s(e->scratch.data, before + end - at))) < 0 && llm__encode_spend(e, (end - at) / 16))
            end--;
        if (e->result) return;
        if (id < 0) chars = SIZE_MAX;
        else llm__emit(e, id);
    }
    if (chars <= (size_t)t->max_word) return;
    e->out->len = first;
    llm__emit(e, t->unk_id);
}

/* A word comes to the model. */
static void llm__encode_word(llm__encode *e, llm__str word) {
    const llm__tokenizer *t = e->t;
    if (t->model == LLM__TOK_BPE) llm__model_bpe(e, word);
    else if (t->model == LLM__TOK_UNIGRAM) llm__model_unigram(e, word);
    else if (t->model == LLM__TOK_WORDPIECE) llm__model_wordpiece(e, word);
    else llm__emit(e, llm__tok_find(t, word) >= 0 ? llm__tok_find(t, word) : t->unk_id);
}

LLM__PRIVATE void llm__encode_feed(llm__encode *e, int k, llm__str s, int begin) {
    const llm__tokenizer *t = e->t;
    if (!s.n || !llm__encode_spend(e, 1)) return;
    if (k == e->steps) {
        if (e->normalized) llm__add_str(e->normalized, s);
        else llm__encode_word(e, s);
        return;
    }
    const llm__tok_step *step = k < t->normalizers.n ? &t->normalizers.v[k] : &t->words.v[k - t->normalizers.n];
    llm_text *text = &e->stage[k].text;
    if (step->kind == LLM__TOK_SPLIT) {
        llm__cut_split(e, k, step, s, begin);
    } else if (step->kind == LLM__TOK_SCRIPTS) {
        llm__cut_scripts(e, k, s, begin);
    } else if (step->kind == LLM__TOK_ADDED) {
        llm__cut_added(e, k, step->as.late ? &t->late : &t->early, s, begin);
    } else if (step->kind == LLM__TOK_UNGUARD && !(e->flags & LLM_TOK_GUARDED)) {
        llm__encode_feed(e, k + 1, s, begin);
    } else {
        text->len = 0;
        llm__rewrite(e, k, step, s, begin, text);
        llm__encode_feed(e, k + 1, llm__text_str(text), begin);
    }
}

LLM__PRIVATE size_t llm__tokenizer_longest(const llm__tokenizer *t) { return LLM__MAX(t->max_token, (size_t)64); }

LLM__PRIVATE llm_result llm__tokenizer_encode(const llm__tokenizer *t, const char *text, size_t len, int flags, llm_tokens *out) {
    return llm__tokenizer_encode_until(t, text, len, flags, NULL, out);
}

LLM__PRIVATE llm_result llm__tokenizer_encode_until(const llm__tokenizer *t, const char *text, size_t len, int flags, const int *stop,
                                                    llm_tokens *out) {
    llm__encode e;
    size_t before = out->len;
    int framed = flags & LLM_TOK_ADD_SPECIAL;
    if (!t->n_vocab) return llm__error(LLM_ERR_UNSUPPORTED, "the model has no tokenizer");
    if (len > LLM__TOK_MAX_TEXT / 4)
        return llm__error(LLM_ERR_LIMIT, "tokenizer: text of %zu bytes, at most %d expected", len, LLM__TOK_MAX_TEXT / 4);
    llm__encode_open(&e, t, len);
    e.stop = stop;
    e.out = out;
    e.flags = flags;
    for (size_t i = 0; framed && i < t->before.len; i++) llm__emit(&e, t->before.data[i]);
    llm__clean_utf8(llm__s(text, len), &e.clean);
    llm__encode_feed(&e, 0, llm__text_str(&e.clean), 1);
    for (size_t i = 0; framed && i < t->after.len; i++) llm__emit(&e, t->after.data[i]);
    if (out->failed || e.clean.failed) llm__encode_fail(&e, LLM_ERR_NOMEM);
    if (e.result) out->len = before;
    llm__encode_close(&e);
    return e.result;
}

LLM__PRIVATE void llm__pair_cut(size_t *first, size_t *second, size_t room) {
    size_t *less = *first > *second ? second : first, *more = less == first ? second : first;
    *more = LLM__MIN(*more, LLM__MAX(*less, room - LLM__MIN(*less, room)));
    if (*less + *more <= room) return;
    *less = room / 2;
    *more = room - room / 2;
}

LLM__PRIVATE llm_result llm__tokenizer_pair(const llm__tokenizer *t, llm__str a, llm__str b, int flags, size_t most, llm_tokens *ids,
                                            llm_tokens *types) {
    LLM__SCOPED(llm_tokens_free) llm_tokens first = LLM__ZERO;
    LLM__SCOPED(llm_tokens_free) llm_tokens second = LLM__ZERO;
    flags &= ~LLM_TOK_ADD_SPECIAL;
    if (!t->n_pair) return llm__error(LLM_ERR_UNSUPPORTED, "the model's tokenizer has no form for two texts (post_processor, pair)");
    llm_result r = llm__tokenizer_encode(t, a.p, a.n, flags, &first);
    if (!r) r = llm__tokenizer_encode(t, b.p, b.n, flags, &second);
    if (r) return r;
    size_t rest = 0;
    for (int i = 0; i < t->n_pair; i++) rest += t->pair[i].what >= 0;
    if (most) llm__pair_cut(&first.len, &second.len, most - LLM__MIN(most, rest));
    for (int i = 0; i < t->n_pair; i++) {
        const llm__tok_place *p = &t->pair[i];
        const llm_tokens *text = p->what == LLM__PLACE_FIRST ? &first : &second;
        for (size_t k = 0; k < (p->what >= 0 ? 1 : text->len); k++) {
            llm_tokens_add(ids, p->what >= 0 ? p->what : text->data[k]);
            llm_tokens_add(types, p->type);
        }
    }
    return ids->failed || types->failed ? llm__nomem() : LLM_OK;
}
