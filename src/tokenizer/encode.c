#include "tokenizer/encode.h"
#include "api/config.h"
#include "api/text.h"
#include "api/tokenizer.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/index.h"
#include "text/unicode.h"
#include "text/unicode_classes.h"
#include "text/normal_form.h"
#include "text/regex.h"
#include "text/regex_match.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/subword.h"

LLM__PRIVATE int llm__encode_fail(llm__encode *e, llm_result r) {
    if (e->result) return 0;
    e->result = r == LLM_ERR_NOMEM       ? llm__nomem()
                : r == LLM_ERR_CANCELLED ? llm__error(r, "tokenizer: stopped")
                                         : llm__error(r, "tokenizer: this text needs too many steps");
    return 0;
}

LLM__PRIVATE int llm__encode_spend(llm__encode *e, size_t steps) {
    e->fuel -= (int64_t)LLM__MIN(steps, (size_t)INT32_MAX);
    if (e->fuel < 0) return llm__encode_fail(e, LLM_ERR_LIMIT);
    if (e->stop && __atomic_load_n(e->stop, __ATOMIC_RELAXED)) return llm__encode_fail(e, LLM_ERR_CANCELLED);
    return !e->result;
}

LLM__PRIVATE int llm__encode_grow(llm__encode *e, void **array, size_t *cap, size_t need, size_t size) {
    return llm__grow(array, cap, need, size) || llm__encode_fail(e, LLM_ERR_NOMEM);
}

LLM__PRIVATE void llm__encode_open(llm__encode *e, const llm__tokenizer *t, size_t len) {
    memset(e, 0, sizeof *e);
    e->t = t;
    e->fuel = (1 << 24) + 1024 * (int64_t)len;
    e->steps = t->normalizers.n + t->words.n;
    e->stage = LLM__NEW(llm__encode_stage, e->steps);
    if (!e->stage) llm__encode_fail(e, LLM_ERR_NOMEM);
}

LLM__PRIVATE void llm__encode_close(llm__encode *e) {
    for (int k = 0; e->stage && k < e->t->normalizers.n + e->t->words.n; k++) {
        llm__rx_end(&e->stage[k].rx);
        llm_text_free(&e->stage[k].text);
    }
    LLM_FREE(e->stage);
    llm_text_free(&e->clean);
    llm_text_free(&e->scratch);
    LLM_FREE(e->symbol);
    LLM_FREE(e->heap);
    LLM_FREE(e->best);
}

/* Hands the part [from, end) of what came to step k to the next. */
static void llm__encode_part(llm__encode *e, int k, llm__str s, size_t from, size_t end, int begin) {
    llm__encode_feed(e, k + 1, llm__s(s.p + from, end - from), begin && !from);
}

LLM__PRIVATE void llm__emit(llm__encode *e, int32_t id) { llm_tokens_add(e->out, id); }

LLM__PRIVATE void llm__clean_utf8(llm__str s, llm_text *out) {
    for (size_t n; s.n; s = llm__str_from(s, n)) {
        n = llm__utf8_valid(s.p, s.n);
        llm_text_add(out, s.p, n);
        if (n < s.n) llm__add_str(out, llm__bad_utf8), n++;
    }
}

LLM__PRIVATE void llm__heap_push(llm__encode *e, uint64_t key, int32_t id) {
    if (!llm__encode_grow(e, (void **)&e->heap, &e->heap_cap, e->heap_n + 1, sizeof *e->heap)) return;
    size_t i = e->heap_n++;
    for (size_t up; i && e->heap[up = (i - 1) / 2].key > key; i = up) e->heap[i] = e->heap[up];
    e->heap[i].key = key;
    e->heap[i].id = id;
}

LLM__PRIVATE llm__pair llm__heap_pop(llm__encode *e) {
    llm__pair top = e->heap[0], last = e->heap[--e->heap_n];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < e->heap_n; i = k) {
        if (k + 1 < e->heap_n && e->heap[k + 1].key < e->heap[k].key) k++;
        if (e->heap[k].key >= last.key) break;
        e->heap[i] = e->heap[k];
    }
    e->heap[i] = last;
    return top;
}

/* ---- Steps that rewrite ----
 * Each appends what it makes of one span to a text. They are Hugging Face's normalizers, SentencePiece's, and those pre-tokenizers that
 * change the text rather than cut it. */

/* Bytes of a replaced text at most: real ones have 18. Without a bound the file could send every search through the whole text. */
enum { LLM__CHARSMAP_KEY = 128 };

/* Unit i, or 0 where there is none: the offsets in it come from the file. */
static uint32_t llm__charsmap_unit(const llm__charsmap *m, size_t i) {
    uint32_t u = 0;
    if (i < m->n_units) memcpy(&u, m->units + 4 * i, 4);
    return u;
}

/* What the start of s is replaced with: *taken bytes of it (0: nothing). longest: of several the longest, else the shortest. The double
 * array is Darts-clone's: a unit has a label (low byte, 31), a leaf flag (8) and its children's offset (10-30, times 256 if 9 is set). */
static llm__str llm__charsmap_find(const llm__charsmap *m, llm__str s, int longest, size_t *taken) {
    llm__str with = llm__nothing;
    *taken = 0;
    if (!m->n_units) return with;
    uint32_t unit = llm__charsmap_unit(m, 0);
    size_t node = (unit >> 10) << ((unit & 512) >> 6);
    for (size_t i = 0; i < LLM__MIN(s.n, (size_t)LLM__CHARSMAP_KEY) && s.p[i]; i++) {
        node ^= (uint8_t)s.p[i];
        unit = llm__charsmap_unit(m, node);
        if (node >= m->n_units || (unit & 0x800000FFu) != (uint8_t)s.p[i]) break;
        node ^= (size_t)((unit >> 10) << ((unit & 512) >> 6));
        if (!(unit >> 8 & 1)) continue;
        size_t at = llm__charsmap_unit(m, node) & 0x7FFFFFFF;
        if (at >= m->n_strings || !memchr(m->strings + at, 0, m->n_strings - at)) break;
        with = llm__s(m->strings + at, strlen(m->strings + at));
        *taken = i + 1;
        if (!longest) break;
    }
    return with;
}

/* End of the user-perceived character at `at`, as far as it matters here: marks, joiners and Hangul jamo stay with what is before. */
static size_t llm__grapheme_end(llm__str s, size_t at) {
    int32_t before = llm__uni_next(s, &at), c;
    for (size_t next = at; next < s.n; at = next, before = c) {
        c = llm__uni_next(s, &next);
        int extend = llm__uni_in(c, LLM__CATS_M) || c == 0x200C || c == 0x200D || c == 0xFF9E || c == 0xFF9F;
        int jamo = before >= 0x1100 && before < 0x1200 && c >= 0x1160 && c < 0x1200;
        /* Never between CR and LF, nor within a Hangul syllable written in jamo. */
        if ((before == '\r' && c == '\n') || jamo) continue;
        if (!extend || before < 32) break;
    }
    return at;
}

/* Replaces by the charsmap. Hugging Face's Precompiled: short graphemes as a whole, else character by character. SentencePiece itself
 * (longest): the longest that fits, but nothing in tokens that are sought after normalizing. */
static void llm__norm_charsmap(const llm__tokenizer *t, int longest, llm__str s, llm_text *out) {
    for (size_t at = 0, end = 0, taken; at < s.n; at += taken) {
        llm__str rest = llm__str_from(s, at), with = llm__nothing;
        size_t one = 0, found = 0, steps = 0;
        const llm__index_entry *user = longest ? llm__index_longest(&t->late, rest, &steps) : NULL;
        (void)llm__uni_next(rest, &one);
        taken = 0;
        if (user) with = user->s, taken = with.n;
        if (!longest && at >= end) {
            end = llm__grapheme_end(s, at);
            if (end - at < 6) with = llm__charsmap_find(&t->charsmap, llm__s(rest.p, end - at), 0, &found);
            if (found) taken = end - at;
        }
        if (!taken) {
            with = llm__charsmap_find(&t->charsmap, longest ? rest : llm__s(rest.p, one), longest, &found);
            taken = longest && found ? found : one;
            if (!found) with = llm__s(rest.p, one);
        }
        llm__add_str(out, with);
    }
}

/* 1 if the character at s.p + *at, which is stepped over, is of a class, or for is_in NULL one of those in `set`. */
static int llm__strips(llm__str s, size_t *at, int (*is_in)(int32_t c), llm__str set) {
    const char *from = s.p + *at;
    int32_t c = llm__uni_next(s, at);
    return is_in ? is_in(c) : llm__str_find(set, llm__s(from, (size_t)(s.p + *at - from))) != NULL;
}

LLM__PRIVATE llm__str llm__strip(llm__str s, int sides, int (*is_in)(int32_t c), llm__str set) {
    for (size_t at = 0; (sides & 1) && s.n && llm__strips(s, &at, is_in, set); at = 0) s = llm__str_from(s, at);
    for (size_t at, end; (sides & 2) && s.n; s.n = at) {
        end = at = llm__uni_back(s.p, s.n);
        if (!llm__strips(s, &end, is_in, set)) break;
    }
    return s;
}

/* Without white space there, as Unicode has it. */
static llm__str llm__strip_space(llm__str s, int sides) { return llm__strip(s, sides, llm__uni_space, llm__nothing); }

LLM__PRIVATE llm_result llm__replace_regex(llm__rx_run *rx, const llm__regex *re, llm__str s, llm__str with, llm_text *out) {
    size_t from, end, done = 0;
    int found = 0;
    if (re) llm__rx_begin(rx, re, s.p, s.n);
    while (re && (found = llm__rx_next(rx, &from, &end)) > 0) {
        llm_text_add(out, s.p + done, from - done);
        llm__add_str(out, with);
        done = end;
    }
    llm_text_add(out, s.p + done, s.n - done);
    return found < 0 ? rx->result : LLM_OK;
}

LLM__PRIVATE void llm__replace_all(llm__str s, llm__str from, llm__str to, llm_text *out) {
    for (const char *hit; s.n && from.n && (hit = llm__str_find(s, from)) != NULL;) {
        llm_text_add(out, s.p, (size_t)(hit - s.p));
        llm__add_str(out, to);
        s = llm__str_from(s, (size_t)(hit - s.p) + from.n);
    }
    llm__add_str(out, s);
}

/* Changes one character at a time: lower case, or spaces around Chinese characters. */
static void llm__norm_chars(llm__tok_kind kind, llm__str s, llm_text *out) {
    for (size_t at = 0; at < s.n;) {
        int32_t c = llm__uni_next(s, &at);
        int apart = kind == LLM__TOK_CHINESE && llm__uni_among(llm__uni_chinese, LLM__COUNT(llm__uni_chinese), c);
        if (apart) llm_text_str(out, " ");
        if (kind == LLM__TOK_LOWER && c == 0x130) llm_text_str(out, "i\xCC\x87"); /* the only one that becomes two */
        else llm__uni_put(out, kind == LLM__TOK_LOWER ? llm__uni_case(c, 1) : c);
        if (apart) llm_text_str(out, " ");
    }
}

LLM__PRIVATE void llm__rewrite(llm__encode *e, int k, const llm__tok_step *step, llm__str s, int begin, llm_text *out) {
    llm_result r = LLM_OK;
    switch (step->kind) {
    case LLM__TOK_FORM: llm__uni_normalize(e->t->norm, (llm__uni_form)step->as.form, s, out); break;
    case LLM__TOK_REPLACE:
        r = llm__replace_regex(&e->stage[k].rx, step->re, s, step->with, out);
        if (step->re) llm__encode_spend(e, (size_t)e->stage[k].rx.steps);
        break;
    case LLM__TOK_CHARSMAP: llm__norm_charsmap(e->t, step->as.longest, s, out); break;
    case LLM__TOK_BYTES: llm__bytes_to_letters(s, out); break;
    case LLM__TOK_UNGUARD: llm__unguard(s, out); break;
    case LLM__TOK_PREPEND:
        llm__add_str(out, step->text);
        llm__add_str(out, s);
        break;
    case LLM__TOK_METASPACE:
        if (s.p[0] != ' ' && !llm__starts(s, step->text) &&
            (step->as.scheme == LLM__PREPEND_ALWAYS || (step->as.scheme == LLM__PREPEND_FIRST && begin)))
            llm__add_str(out, step->text);
        llm__replace_all(s, llm__blank, step->text, out);
        break;
    default: llm__norm_chars(step->kind, s, out);
    }
    if (!r && (out->failed || out->len > LLM__TOK_MAX_TEXT)) r = LLM_ERR_NOMEM;
    if (r) llm__encode_fail(e, r);
}

/* ---- Steps that cut ----
 * Each divides what comes to it into parts, or tokens that were found. Offsets are bytes. */

LLM__PRIVATE void llm__cut_split(llm__encode *e, int k, const llm__tok_step *step, llm__str s, int begin) {
    llm__rx_run *rx = &e->stage[k].rx;
    size_t from = 0, end = 0, done = 0, word_at = 0, word_end = 0;
    const int behaviour = step->as.split.behaviour;
    int found = 0, started = 0, last = 0; /* last: the piece before was a match */
    if (step->re) llm__rx_begin(rx, step->re, s.p, s.n);
    for (int more = 1; more && !e->result; done = end) {
        const int64_t before = rx->steps;
        found = step->re ? llm__rx_next(rx, &from, &end) : 0;
        llm__encode_spend(e, (size_t)(rx->steps - before));
        more = found > 0;
        if (!more) from = end = s.n;
        for (int which = 0; which < 2; which++) { /* what is before the match; the match */
            size_t at = which ? from : done, to = which ? end : from;
            int match = which != step->as.split.invert, join = 0;
            if ((which ? !more : at == to) || (behaviour == LLM__SPLIT_REMOVED && match)) continue;
            if (behaviour == LLM__SPLIT_CONTIGUOUS) join = last == match;
            if (behaviour == LLM__SPLIT_PREVIOUS) join = match && !last;
            if (behaviour == LLM__SPLIT_NEXT) join = !match && last;
            if (started && !join) llm__encode_part(e, k, s, word_at, word_end, begin);
            if (!started || !join) word_at = at;
            word_end = to;
            started = 1;
            last = match;
        }
    }
    if (found < 0) llm__encode_fail(e, rx->result);
    if (started) llm__encode_part(e, k, s, word_at, word_end, begin);
}

LLM__PRIVATE void llm__cut_scripts(llm__encode *e, int k, llm__str s, int begin) {
    int hiragana = llm__uni_script_find(llm__lit("Hira")), katakana = llm__uni_script_find(llm__lit("Kana")),
        han = llm__uni_script_find(llm__lit("Hani"));
    size_t from = s.n;
    int last = -1;
    for (size_t at = 0, next = 0; at < s.n; at = next) {
        int32_t c = llm__uni_next(s, &next);
        int script = llm__uni_script(c);
        if (script == hiragana || script == katakana || c == 0x30FC) script = han;
        if (c == ' ' || !script) continue;
        if (script != last) {
            if (from < at) llm__encode_part(e, k, s, from, at, begin);
            from = at;
        }
        last = script;
    }
    llm__encode_part(e, k, s, from, s.n, begin);
}

/* 1 if the text around [at, end) lets a token that must be a word by itself stand there: no word character or joiner touches it. */
static int llm__word_alone(llm__str s, size_t at, size_t end) {
    size_t before = at ? llm__uni_back(s.p, at) : 0;
    int32_t left = at ? llm__uni_next(s, &before) : ' ', right = end < s.n ? llm__uni_next(s, &end) : ' ';
    return !llm__uni_word(left) && !llm__uni_word(right) && left >> 1 != 0x200C >> 1 && right >> 1 != 0x200C >> 1;
}

LLM__PRIVATE void llm__cut_added(llm__encode *e, int k, const llm__index *x, llm__str s, int begin) {
    size_t done = 0;
    for (size_t at = 0, step, steps = 0; x->n && at < s.n && !e->result; at += step) {
        const llm__index_entry *hit = llm__index_longest(x, llm__str_from(s, at), &steps);
        step = hit ? hit->s.n : 1;
        if (steps > 4096 && llm__encode_spend(e, steps)) steps = 0;
        if (!hit) continue;
        const llm__added *a = &e->t->added[hit->value];
        size_t from = at, end = at + step;
        if ((a->flags & LLM__ADDED_SPECIAL) && !(e->flags & LLM_TOK_PARSE_SPECIAL)) continue;
        if ((a->flags & LLM__ADDED_PIECE) && e->t->model == LLM__TOK_UNIGRAM) continue; /* its score decides */
        if ((a->flags & LLM__ADDED_WORD) && !llm__word_alone(s, from, end)) continue;
        /* White space beside the token may belong to it, but not what an earlier token took. */
        if (a->flags & LLM__ADDED_LSTRIP) from = from > done ? done + llm__strip_space(llm__s(s.p + done, from - done), 2).n : done;
        if (a->flags & LLM__ADDED_RSTRIP) end = (size_t)(llm__strip_space(llm__str_from(s, end), 1).p - s.p);
        steps += end - at;
        llm__encode_part(e, k, s, done, LLM__MAX(from, done), begin);
        if (from < end) llm__emit(e, a->id); /* else it is white space that the token before took */
        done = end;
    }
    llm__encode_part(e, k, s, done, s.n, begin);
}
