#include "tokenizer/decode.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/tokenizer.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "text/regex_match.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/encode.h"
#include "tokenizer/subword.h"

typedef struct llm__stage { /* what a step keeps between tokens */
    int64_t tokens;         /* begun so far */
    int cut;                /* STRIP: characters cut from the token under way; LITERAL: 1 when there is nothing more to strip */
    llm_text made[2];       /* what the step makes of a token */
    llm_text held;          /* a token that comes in parts, and is needed whole */
    llm_text kept;          /* FALLBACK: bytes so far; SUFFIX, CTC: the token before; UTF8: part of a character */
} llm__stage;

/* A stream of tokens on its way to text: belongs to one thread at a time; the tokenizer must outlive it. */
struct llm_detok {
    const llm__tokenizer *t;
    int flags;
    int bytes;  /* as in the middle of a text, and bytes as they are */
    int32_t id; /* of the token that was pushed last */
    llm_text *out;
    llm__stage *stage; /* (decoders.n + 1) of each step, and of the text behind them all; lies behind this struct */
};

static void llm__detok_feed(struct llm_detok *d, int i, llm__str s, int begin, int end);

/* s with every `from` replaced; it lies in the one of the step's two buffers that s is not in. */
static llm__str llm__replaced(llm__stage *g, llm__str s, llm__str from, llm__str to) {
    llm_text *out = &g->made[s.p == g->made[0].data];
    out->len = 0;
    llm__replace_all(s, from, to, out);
    return llm__text_str(out);
}

/* WordPiece's clean-up of English, one replacement after the other. */
static llm__str llm__clean_english(llm__stage *g, llm__str s) {
    static const char *const pair[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                          {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                          {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (int i = 0; i < LLM__COUNT(pair); i++) s = llm__replaced(g, s, llm__lit(pair[i][0]), llm__lit(pair[i][1]));
    return s;
}

/* ---- a function a kind of step ----
 * i: the step's number; s: a token, or a part of one that the step lets through; the stage has counted it already. Those that return a text
 * give what the step makes of it; the others hand on themselves. */

/* UTF8: bytes become the text of one token. A token of a byte vocabulary may end within a character: of the Chinese sign E4 B8 AD one token
 * may bring E4 B8, which llm__utf8_part calls the start of one, so it is kept in g->kept and shown with the AD of the next token. That is
 * why a stream never shows half a character and never a U+FFFD that the whole text would not have. What is no UTF-8 becomes U+FFFD; an
 * unfinished character waits for more, but not at the end. */
static void llm__decode_utf8(struct llm_detok *d, int i, llm__str s, int last) {
    llm_text *kept = &d->stage[i].kept;
    size_t at = 0;
    llm__add_str(kept, s);
    while (at < kept->len) {
        size_t from = at;
        int len = 0;
        at += llm__utf8_valid(kept->data + at, kept->len - at);
        if (at > from) llm__detok_feed(d, i + 1, llm__s(kept->data + from, at - from), !d->stage[i + 1].tokens, 0);
        if (at == kept->len || (llm__utf8_part(kept->data + at, kept->len - at, &len) < 0 && !last)) break;
        llm__detok_feed(d, i + 1, llm__bad_utf8, !d->stage[i + 1].tokens, 0);
        at += (size_t)len;
    }
    if (at) memmove(kept->data, kept->data + at, kept->len - at);
    kept->len -= at;
}

/* The byte of a token <0xAB>, or -1. */
static int llm__byte_token(llm__str s) {
    int byte = s.n == 6 && !memcmp(s.p, "<0x", 3) && s.p[5] == '>' && llm__hex(s.p[3]) >= 0 ? llm__hex(s.p[4]) : -1;
    return byte < 0 ? -1 : llm__hex(s.p[3]) * 16 + byte;
}

/* FALLBACK: a run of <0x..> tokens ends: it is text if it is UTF-8 as a whole, else one U+FFFD a byte. */
static void llm__decode_fallback_end(struct llm_detok *d, int i) {
    llm_text *kept = &d->stage[i].kept;
    size_t n = kept->len;
    int good = llm__utf8_valid(kept->data, n) == n;
    kept->len = 0;
    if (n && (good || d->bytes)) llm__detok_feed(d, i + 1, llm__s(kept->data, n), 1, 1);
    for (size_t k = 0; k < n && !good && !d->bytes; k++) llm__detok_feed(d, i + 1, llm__bad_utf8, 1, 1);
}

/* FALLBACK: 1 if the token is a byte, which waits until the run ends. */
static int llm__decode_fallback(struct llm_detok *d, int i, llm__str s) {
    const int byte = llm__byte_token(s);
    const char c = (char)byte;
    if (byte >= 0) llm_text_add(&d->stage[i].kept, &c, 1);
    else llm__decode_fallback_end(d, i);
    return byte >= 0;
}

/* SUFFIX (BPE): the end-of-word mark is a space, but nothing in the last token; so one token waits. */
static void llm__decode_suffix(struct llm_detok *d, int i, llm__str s, int last) {
    llm__stage *g = &d->stage[i];
    llm__str with = last && !d->bytes ? llm__nothing : llm__blank;
    if (g->tokens > !last) llm__detok_feed(d, i + 1, llm__replaced(g, llm__text_str(&g->kept), d->t->decoders.v[i].text, with), 1, 1);
    g->kept.len = 0;
    llm__add_str(&g->kept, s);
}

/* METASPACE: the mark is a space, but nothing in the first token, where the encoder put one. */
static llm__str llm__decode_metaspace(struct llm_detok *d, int i, llm__str s) {
    const llm__tok_step *step = &d->t->decoders.v[i];
    int put = d->stage[i].tokens <= 1 && step->as.scheme != LLM__PREPEND_NEVER && !d->bytes;
    return llm__replaced(&d->stage[i], s, step->text, put ? llm__nothing : llm__blank);
}

/* STRIP: characters off the token's begin, then off its end (where that is wanted the token is whole). */
static llm__str llm__decode_strip(struct llm_detok *d, int i, llm__str s, int begin) {
    const llm__tok_step *step = &d->t->decoders.v[i];
    llm__stage *g = &d->stage[i];
    if (begin) g->cut = d->bytes ? step->as.strip.left : 0;
    while (g->cut < step->as.strip.left && s.n) {
        int cut = llm__starts(s, step->text);
        g->cut = cut ? g->cut + 1 : step->as.strip.left;
        if (cut) s = llm__str_from(s, step->text.n);
    }
    for (int k = 0; k < step->as.strip.right && s.n >= step->text.n; k++)
        if (llm__str_same(llm__str_from(s, s.n - step->text.n), step->text)) s.n -= step->text.n;
    return s;
}

/* REPLACE: a text, or a regex, which may give up. */
static llm__str llm__decode_replace(struct llm_detok *d, int i, llm__str s) {
    const llm__tok_step *step = &d->t->decoders.v[i];
    llm__stage *g = &d->stage[i];
    LLM__SCOPED(llm__rx_end) llm__rx_run rx = LLM__ZERO;
    if (step->text.n) return llm__replaced(g, s, step->text, step->with);
    g->made[0].len = 0;
    if (llm__replace_regex(&rx, step->re, s, step->with, &g->made[0])) d->out->failed = 1;
    return llm__text_str(&g->made[0]);
}

/* CONTINUE (WordPiece): a space before every token but the first and those with the prefix "##". */
static llm__str llm__decode_continue(struct llm_detok *d, int i, llm__str s) {
    const llm__tok_step *step = &d->t->decoders.v[i];
    llm__stage *g = &d->stage[i];
    int inside = g->tokens > 1 && llm__starts(s, step->text);
    g->made[0].len = 0;
    if (g->tokens > 1 && !inside) llm_text_str(&g->made[0], " ");
    llm__add_str(&g->made[0], llm__str_from(s, inside ? step->text.n : 0));
    s = llm__text_str(&g->made[0]);
    return step->as.clean_up ? llm__clean_english(g, s) : s;
}

/* CTC: equal tokens in a row are one; padding vanishes, the delimiter is a space. */
static llm__str llm__decode_ctc(struct llm_detok *d, int i, llm__str s) {
    const llm__tok_step *step = &d->t->decoders.v[i];
    llm__stage *g = &d->stage[i];
    int same = g->tokens > 1 && llm__str_same(s, llm__text_str(&g->kept));
    g->kept.len = 0;
    llm__add_str(&g->kept, s);
    s = same ? llm__nothing : llm__replaced(g, s, step->text, llm__nothing);
    return step->as.clean_up && s.n ? llm__replaced(g, llm__clean_english(g, s), step->with, llm__blank) : s;
}

/* LITERAL: a token is its text, text with marks for spaces, or letters that stand for bytes. */
static llm__str llm__decode_literal(struct llm_detok *d, int i, llm__str s) {
    const llm__tok_step *step = &d->t->decoders.v[i];
    llm__stage *g = &d->stage[i];
    const int type = d->t->token[d->id].type, tokens = type & LLM__TOKEN_PLAIN ? LLM__LITERAL_TEXT : step->as.literal.tokens;
    const int spaces = step->as.literal.spaces, byte = type & LLM__TOKEN_BYTE ? llm__byte_token(s) : -1;
    const char c = (char)byte;
    g->made[0].len = 0;
    if (byte >= 0) llm_text_add(&g->made[0], &c, 1);
    else if (tokens == LLM__LITERAL_LETTERS) llm__letters_to_bytes(s, &g->made[0]);
    else llm__replace_all(s, tokens == LLM__LITERAL_SPACES ? llm__spm_mark : llm__nothing, llm__blank, &g->made[0]);
    s = llm__text_str(&g->made[0]);
    if (spaces != LLM__SPACES_KEEP && !g->cut && !d->bytes && llm__starts(s, llm__blank)) s = llm__str_from(s, 1);
    g->cut |= spaces == LLM__SPACES_FIRST || s.n;
    return s;
}

/* 1 if a step takes a token in parts, as they come; else it waits for the whole. */
static int llm__takes_parts(const llm__tok_step *step) {
    return step->kind == LLM__TOK_FUSE || step->kind == LLM__TOK_METASPACE || (step->kind == LLM__TOK_STRIP && !step->as.strip.right) ||
           (step->kind == LLM__TOK_REPLACE && step->as.one_char);
}

/* A token, or a part of one (whole characters), comes to step i. */
static void llm__detok_feed(struct llm_detok *d, int i, llm__str s, int begin, int end) {
    llm__stage *g = &d->stage[i];
    g->tokens += begin;
    if (i >= d->t->decoders.n) {
        llm__add_str(d->out, s);
        return;
    }
    const llm__tok_step *step = &d->t->decoders.v[i];
    if (!llm__takes_parts(step) && !(begin && end)) {
        if (begin) g->held.len = 0;
        llm__add_str(&g->held, s);
        if (!end) return;
        s = llm__text_str(&g->held);
        begin = 1;
    }
    switch (step->kind) {
    case LLM__TOK_FUSE:
        begin = !d->stage[i + 1].tokens;
        end = 0;
        break;
    case LLM__TOK_UTF8:
        if (d->bytes) break;
        llm__decode_utf8(d, i, s, 0);
        return;
    case LLM__TOK_FALLBACK:
        if (llm__decode_fallback(d, i, s)) return;
        break;
    case LLM__TOK_SUFFIX: llm__decode_suffix(d, i, s, 0); return;
    case LLM__TOK_JOIN:
        if (g->tokens > 1) llm__detok_feed(d, i + 1, llm__blank, 1, 1);
        break;
    case LLM__TOK_METASPACE: s = llm__decode_metaspace(d, i, s); break;
    case LLM__TOK_STRIP: s = llm__decode_strip(d, i, s, begin); break;
    case LLM__TOK_REPLACE: s = llm__decode_replace(d, i, s); break;
    case LLM__TOK_CONTINUE: s = llm__decode_continue(d, i, s); break;
    case LLM__TOK_CTC:
        s = llm__decode_ctc(d, i, s);
        if (!s.n) return;
        break;
    default: s = llm__decode_literal(d, i, s);
    }
    llm__detok_feed(d, i + 1, s, begin, end);
}

/* Ends what the steps have under way, from the first on, so that what one lets go still runs through those behind it. A step that makes
 * one token of everything ends it now. */
static void llm__detok_end(struct llm_detok *d) {
    for (int i = 0; i < d->t->decoders.n; i++) {
        llm__tok_kind kind = d->t->decoders.v[i].kind;
        if (kind == LLM__TOK_UTF8) llm__decode_utf8(d, i, llm__nothing, 1);
        if (kind == LLM__TOK_FALLBACK) llm__decode_fallback_end(d, i);
        if (kind == LLM__TOK_SUFFIX) llm__decode_suffix(d, i, llm__nothing, 1);
        if (kind == LLM__TOK_FUSE || (kind == LLM__TOK_UTF8 && !d->bytes))
            llm__detok_feed(d, i + 1, llm__nothing, !d->stage[i + 1].tokens, 1);
    }
}

/* Begins anew, with the next token as the first; the buffers stay, so that a stream that is used again allocates nothing. */
LLM_API void llm_detok_reset(llm_detok *d) {
    for (int i = 0; i <= d->t->decoders.n; i++) {
        llm__stage *g = &d->stage[i];
        g->tokens = 0;
        g->cut = 0;
        g->held.len = g->kept.len = 0;
    }
}

LLM__PRIVATE llm_result llm__detok_copy(llm_detok *d, const llm_detok *from) {
    int failed = 0;
    llm_detok_reset(d);
    for (int i = 0; i <= d->t->decoders.n; i++) {
        llm__stage *g = &d->stage[i];
        const llm__stage *f = &from->stage[i];
        g->tokens = f->tokens;
        g->cut = f->cut;
        if (f->held.len) llm_text_add(&g->held, f->held.data, f->held.len);
        if (f->kept.len) llm_text_add(&g->kept, f->kept.data, f->kept.len);
        failed |= g->held.failed | g->kept.failed;
    }
    return failed ? llm__nomem() : LLM_OK;
}

/* NULL is fine. What was held back is lost: llm_detok_flush gives it out. */
LLM_API void llm_detok_free(llm_detok *d) {
    for (int i = 0; d && i <= d->t->decoders.n; i++) {
        llm_text_free(&d->stage[i].held);
        llm_text_free(&d->stage[i].kept);
        llm_text_free(&d->stage[i].made[0]);
        llm_text_free(&d->stage[i].made[1]);
    }
    LLM_FREE(d);
}

/* One for a single token's bytes is opened often: it is as small as the chain is short. */
LLM__PRIVATE llm_detok *llm__detok_open(const llm__tokenizer *t, int flags) {
    llm_detok *d = (llm_detok *)llm__calloc(1, sizeof *d + (size_t)(t->decoders.n + 1) * sizeof *d->stage);
    if (!d) return NULL;
    d->stage = (llm__stage *)(void *)(d + 1);
    d->t = t;
    d->flags = flags;
    return d;
}

/* Without memory for a step's texts, or for the output, what was said is not the whole text. */
static llm_result llm__detok_result(const struct llm_detok *d) {
    int failed = d->out->failed;
    for (int i = 0; i < d->t->decoders.n; i++) {
        const llm__stage *g = &d->stage[i];
        failed |= g->held.failed | g->kept.failed | g->made[0].failed | g->made[1].failed;
    }
    return failed ? llm__nomem() : LLM_OK;
}

/* Appends the text that is certain once this token is there: whole characters only, as a character may lie across tokens. Ids without a
 * token add nothing, special ones only if that was asked for. */
LLM_API llm_result llm_detok_push(llm_detok *d, int32_t id, llm_text *out) {
    const llm__tokenizer *t = d->t;
    if (id < 0 || id >= t->n_vocab || !(t->token[id].type & LLM__TOKEN_KNOWN) || (t->token[id].type & LLM__TOKEN_UNUSED)) return LLM_OK;
    if ((t->token[id].type & LLM__TOKEN_SPECIAL) && !(d->flags & LLM_DETOK_KEEP_SPECIAL)) return LLM_OK;
    d->out = out;
    d->id = id;
    llm__detok_feed(d, 0, t->token[id].text, 1, 1);
    return llm__detok_result(d);
}

/* Appends what was held back, and begins anew. */
LLM_API llm_result llm_detok_flush(llm_detok *d, llm_text *out) {
    d->out = out;
    llm__detok_end(d);
    llm_detok_reset(d);
    return llm__detok_result(d);
}

LLM__PRIVATE llm_result llm__tokenizer_decode(const llm__tokenizer *t, const int32_t *ids, size_t n, int flags, int bytes, llm_text *out) {
    llm_detok *d = llm__detok_open(t, flags);
    if (!d) return llm__nomem();
    d->bytes = bytes;
    for (int i = 0; bytes && i <= t->decoders.n; i++) d->stage[i].tokens = 2; /* not the first */
    llm_result r = LLM_OK;
    for (size_t i = 0; i < n && !r; i++) r = llm_detok_push(d, ids[i], out);
    if (!r) r = llm_detok_flush(d, out);
    llm_detok_free(d);
    return r;
}

LLM__PRIVATE llm_result llm__tokenizer_piece(const llm__tokenizer *t, int32_t id, llm_text *out) {
    if (id < 0 || id >= t->n_vocab || !(t->token[id].type & LLM__TOKEN_KNOWN))
        return llm__error(LLM_ERR_ARG, "token id %d: 0 to %d expected", (int)id, (int)t->n_vocab - 1);
    return llm__tokenizer_decode(t, &id, 1, LLM_DETOK_KEEP_SPECIAL, 1, out);
}

LLM__PRIVATE int32_t llm__tokenizer_id(const llm__tokenizer *t, llm__str token) {
    int32_t id = llm__tok_find(t, token);
    for (size_t i = 0; i < t->n_added && id < 0; i++)
        if (llm__str_same(token, t->added[i].text)) id = t->added[i].id;
    return id;
}

LLM__PRIVATE int llm__tokenizer_is_special(const llm__tokenizer *t, int32_t id) {
    return id >= 0 && id < t->n_vocab && (t->token[id].type & LLM__TOKEN_SPECIAL) != 0;
}
