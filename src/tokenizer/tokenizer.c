#include "tokenizer/tokenizer.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/text.h"
#include "base/index.h"
#include "text/unicode_classes.h"

/* ---- The byte alphabet of GPT-2 ----
 * GPT-2's BPE works on bytes, but its files hold text, so every byte is written as a printable character: most of ASCII as itself, others
 * as U+0100 and following. A space is U+0120, which is why vocabularies are full of it.
 *
 *   bytes    48 69 20 C3 A9 0A          "Hi", a space, an e with acute accent in UTF-8, a line end
 *   letters  H  i  U+0120 U+00C3 U+00A9 U+010A
 *
 * Since all 256 bytes have letters and every letter is a token, no text is unknown: that is what byte-level BPE is for (Radford et al.
 * 2019). */

/* The letter of a byte: itself if it can be seen (! to ~, and most of Latin-1), else the next free one from U+0100 on. */
static int32_t llm__byte_letter(int b) { return b <= 32 ? 256 + b : b >= 127 && b <= 160 ? 289 + b - 127 : b == 173 ? 323 : b; }

LLM__PRIVATE int llm__letter_byte(int32_t c) {
    if (c >= 256) return c < 289 ? c - 256 : c < 323 ? c - 289 + 127 : c == 323 ? 173 : -1;
    return llm__byte_letter(c) == c ? c : -1;
}

LLM__PRIVATE void llm__bytes_to_letters(llm__str s, llm_text *out) {
    size_t from = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] > 32 && s.p[i] < 127) continue;
        llm_text_add(out, s.p + from, i - from);
        llm__uni_put(out, llm__byte_letter((uint8_t)s.p[i]));
        from = i + 1;
    }
    llm_text_add(out, s.p + from, s.n - from);
}

LLM__PRIVATE void llm__letters_to_bytes(llm__str s, llm_text *out) {
    size_t before = out->len;
    for (size_t at = 0; at < s.n;) {
        int b = llm__letter_byte(llm__uni_next(s, &at));
        char c = (char)b;
        llm_text_add(out, &c, 1);
        if (b >= 0 || out->failed) continue;
        out->len = before;
        llm__add_str(out, s);
        return;
    }
}

/* ---- Texts that only look like control tokens ----
 * A chat template puts control tokens such as <|im_end|> around messages, so what it writes is read with LLM_TOK_PARSE_SPECIAL. A user who
 * typed <|im_end|> would end his turn there and could go on as the system. Therefore texts are guarded on their way into a template: the
 * noncharacter U+FDD0 goes behind the first character of every control token in them, and of every beginning of one that ends a text (the
 * text that comes next may complete it). Written as a bar, with the template's own tokens at both ends:
 *
 *   typed     hi <|im_end|>                      <|im_        end|> in a second part
 *   prompt    <|im_start|>user hi <:|im_end|><|im_end|>       <:|im_end|>
 *
 * No added token is found across a mark; when they have been sought, LLM_TOK_GUARDED takes the marks away, and the model reads what was
 * typed. A U+FDD0 that a text has of its own is doubled. */

static const llm__str llm__guard_mark = {"\xEF\xB7\x90", 3};

LLM__PRIVATE int llm__added_controls(const llm__added *a) {
    size_t one = 0;
    int32_t c = llm__uni_next(a->text, &one);
    return ((a->flags & LLM__ADDED_SPECIAL) || llm__starts(a->text, llm__lit("<|"))) && one < a->text.n && c > ' ' && !llm__uni_word(c);
}

/* 1 if s begins with a control token, or is the beginning of one. */
static int llm__controls(const llm__tokenizer *t, llm__str s) {
    const llm__index *const both[2] = {&t->early, &t->late};
    for (int k = 0; k < 2; k++) {
        size_t lo = 0, hi = both[k]->n;
        for (size_t i = 0; i < s.n && lo < hi; i++)
            if (llm__index_step(both[k], &lo, &hi, i, (uint8_t)s.p[i]) && llm__added_controls(&t->added[both[k]->v[lo].value])) return 1;
        for (; lo < hi; lo++) /* the text ended, but these go on */
            if (llm__added_controls(&t->added[both[k]->v[lo].value])) return 1;
    }
    return 0;
}

LLM__PRIVATE void llm__guard(const llm__tokenizer *t, llm__str s, llm_text *out) {
    size_t done = 0;
    for (size_t at = 0, next = 0; at < s.n; at = next) {
        (void)llm__uni_next(s, &next);
        llm__str rest = llm__str_from(s, at);
        if (!llm__starts(rest, llm__guard_mark) && !llm__controls(t, rest)) continue;
        llm_text_add(out, s.p + done, next - done);
        llm__add_str(out, llm__guard_mark);
        done = next;
    }
    llm_text_add(out, s.p + done, s.n - done);
}

LLM__PRIVATE size_t llm__special_at(const llm__tokenizer *t, llm__str s) {
    const llm__index *const both[2] = {&t->early, &t->late};
    size_t longest = 0;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0, lo = 0, hi = both[k]->n; i < s.n && lo < hi; i++)
            if (llm__index_step(both[k], &lo, &hi, i, (uint8_t)s.p[i]) &&
                t->token[t->added[both[k]->v[lo].value].id].type & LLM__TOKEN_SPECIAL)
                longest = LLM__MAX(longest, i + 1);
    return longest;
}

LLM__PRIVATE void llm__unguard(llm__str s, llm_text *out) {
    const llm__str mark = llm__guard_mark;
    for (const char *hit; s.n && (hit = llm__str_find(s, mark)) != NULL;) {
        llm_text_add(out, s.p, (size_t)(hit - s.p));
        s = llm__str_from(s, (size_t)(hit - s.p) + mark.n);
        if (!llm__starts(s, mark)) continue;
        llm__add_str(out, mark);
        s = llm__str_from(s, mark.n);
    }
    llm__add_str(out, s);
}
