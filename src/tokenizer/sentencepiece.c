#include "tokenizer/sentencepiece.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/build.h"

/* Takes a number off the front of m; m->p NULL: there is none. */
static uint64_t llm__proto_varint(llm__str *m) {
    uint64_t v = 0;
    for (int shift = 0; shift < 64 && m->n; shift += 7) {
        uint8_t b = (uint8_t)*m->p++;
        m->n--;
        v |= (uint64_t)(b & 127) << shift;
        if (b < 128) return v;
    }
    *m = llm__s(NULL, 0);
    return 0;
}

/* Takes the next field off the front of m: its number, 0 at the end, -1 if it is damaged. Numbers go to *value (a float as its bits),
 * bytes to *bytes. Groups are long gone. */
static int llm__proto_field(llm__str *m, uint64_t *value, llm__str *bytes) {
    if (!m->n) return 0;
    uint64_t key = llm__proto_varint(m), number = key >> 3, wire = key & 7, size = wire == 1 ? 8 : wire == 5 ? 4 : 0;
    *value = wire == 0 ? llm__proto_varint(m) : 0;
    if (wire == 2) size = llm__proto_varint(m);
    if (!m->p || wire > 5 || wire == 3 || wire == 4 || size > m->n || number > 1 << 28 || number == 0) return -1;
    if (wire == 5) memcpy(value, m->p, 4);
    *bytes = llm__s(m->p, (size_t)size);
    *m = llm__s(m->p + size, m->n - (size_t)size);
    return (int)number;
}

/* One piece: 1 text, 2 score, 3 type. User-defined ones and control tokens are added tokens. */
static void llm__spm_piece(llm__tokenizer *t, llm__str s, int32_t id) {
    static const uint8_t flags[] = {
        0, 0, LLM__TOKEN_SPECIAL | LLM__TOKEN_PLAIN, LLM__TOKEN_SPECIAL | LLM__TOKEN_PLAIN, LLM__TOKEN_USER, 0, LLM__TOKEN_BYTE};
    llm__str text = llm__nothing, bytes;
    uint64_t v, type = 1;
    float score = 0;
    int f;
    while ((f = llm__proto_field(&s, &v, &bytes)) > 0) {
        uint32_t bits = (uint32_t)v;
        if (f == 1) text = bytes;
        if (f == 2) memcpy(&score, &bits, 4);
        if (f == 3) type = v;
    }
    if (f < 0 || !text.n || score != score || type < 1 || type > 6) {
        LLM__TOK_BAD(t, "tokenizer.model: piece %d: text, score and type expected", (int)id);
        return;
    }
    llm__tok_enter(t, text, id, flags[type], (double)score);
    if (type == LLM__VOCAB_CONTROL) llm__tok_enter_added(t, text, id, LLM__ADDED_SPECIAL);
    if (type == LLM__VOCAB_USER) llm__tok_enter_added(t, text, id, LLM__ADDED_PIECE);
}

LLM__PRIVATE void llm__tok_load_spm(llm__tokenizer *t, llm__str data) {
    llm__str s, field, charsmap = llm__nothing;
    uint64_t v, x;
    int32_t n = 0, special[4] = {0, 1, 2, -1}; /* unk, bos, eos, pad */
    int model = 1, dummy_prefix = 1, merge_spaces = 1, escape = 1, suffix = 0, f, g = 0;
    /* How many pieces there are is known only at the end; ids count up, so until then any will do. */
    t->max_id = INT32_MAX / 8;
    while ((f = llm__proto_field(&data, &v, &s)) > 0 && g >= 0 && !t->result) {
        if (f == 1) llm__spm_piece(t, s, n++);
        while ((f == 2 || f == 3) && (g = llm__proto_field(&s, &x, &field)) > 0) {
            if (f == 2 && g == 3) model = (int)x;
            if (f == 2 && g == 24) suffix = x != 0;
            if (f == 2 && g == 35) t->byte_fallback = x != 0;
            if (f == 2 && g >= 40 && g <= 43) special[g - 40] = (int32_t)x;
            if (f == 3 && g == 2) charsmap = field;
            if (f == 3 && g == 3) dummy_prefix = x != 0;
            if (f == 3 && g == 4) merge_spaces = x != 0;
            if (f == 3 && g == 5) escape = x != 0;
        }
    }
    if (f < 0 || g < 0 || !n) LLM__TOK_BAD(t, "tokenizer.model: a SentencePiece model expected");
    if (model != 1 && model != 2)
        LLM__TOK_FAIL(t, LLM_ERR_UNSUPPORTED, "tokenizer.model: model_type %d: 1 (unigram) or 2 (bpe) expected", model);
    for (int i = 0; i < 4; i++) special[i] = special[i] < n ? special[i] : -1;
    t->unk_id = special[0], t->bos_id = special[1], t->eos_id = special[2], t->pad_id = special[3];
    if (t->unk_id < 0) LLM__TOK_BAD(t, "tokenizer.model: an unknown token expected");
    t->kind = model == 1 ? "Unigram" : "SPM";
    t->model = model == 1 ? LLM__TOK_UNIGRAM : LLM__TOK_BPE;
    t->fuse_unk = t->barrier = t->float_sums = 1;
    /* Unigram: a user-defined token must win over any way to split it, so its score is its length times the best score of all. */
    float best = n && !t->result ? t->token[0].score : 0;
    for (int32_t i = 0; i < n && !t->result; i++) best = LLM__MAX(best, t->token[i].score);
    for (int32_t i = 0; i < n && !t->result && model == 1; i++)
        if (t->token[i].type & LLM__TOKEN_USER) t->token[i].score = (float)t->token[i].text.n * best - 0.1f;
    llm__tok_use_scores(t, LLM__TOKEN_SPECIAL | LLM__TOKEN_BYTE | (model == 2 ? LLM__TOKEN_USER : 0));
    llm__tok_set_charsmap(t, charsmap);
    llm__tok_add_spaces(t, merge_spaces * (1 + escape), dummy_prefix && !suffix, suffix, escape ? llm__spm_mark : llm__blank);
    llm__tok_add_literal(t, escape ? LLM__LITERAL_SPACES : LLM__LITERAL_TEXT,
                         merge_spaces   ? LLM__SPACES_LEADING
                         : dummy_prefix ? LLM__SPACES_FIRST
                                        : LLM__SPACES_KEEP);
    t->max_id = 4 * (int64_t)n + 100000;
}
