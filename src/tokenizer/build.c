#include "tokenizer/build.h"
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "base/index.h"
#include "text/regex.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/subword.h"

LLM__PRIVATE void llm__tokenizer_close(llm__tokenizer *t) {
    if (!t) return;
    if (t->attached) t->attached->free(t->attached);
    llm__tok_steps *lists[3] = {&t->normalizers, &t->words, &t->decoders};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < lists[k]->n; i++) llm__regex_close(lists[k]->v[i].re);
    llm__map_free(&t->ids);
    LLM_FREE(t->token);
    LLM_FREE(t->pieces.v);
    LLM_FREE(t->early.v);
    LLM_FREE(t->late.v);
    LLM_FREE(t->added);
    llm_tokens_free(&t->before);
    llm_tokens_free(&t->after);
    llm_text_free(&t->scratch);
    llm__arena_free(&t->arena);
    LLM_FREE(t);
}

LLM__PRIVATE llm__tok_step *llm__tok_add(llm__tokenizer *t, llm__tok_steps *steps, llm__tok_kind kind) {
    if (steps->n >= LLM__TOK_MAX_STEPS)
        LLM__TOK_FAIL(t, LLM_ERR_LIMIT, "tokenizer: at most %d steps in a sequence expected", LLM__TOK_MAX_STEPS);
    if (t->result && steps->n) return &steps->v[steps->n - 1];
    llm__tok_step *step = &steps->v[steps->n++];
    memset(step, 0, sizeof *step);
    step->kind = kind;
    return step;
}

LLM__PRIVATE void *llm__tok_get(llm__tokenizer *t, size_t n) {
    void *p = t->result ? NULL : llm__arena_get(&t->arena, n);
    if (!p && !t->result) t->result = llm__nomem();
    return p;
}

LLM__PRIVATE llm__str llm__tok_keep(llm__tokenizer *t, llm__str s) {
    char *p = (char *)llm__tok_get(t, s.n);
    if (!p) return llm__nothing;
    if (s.n) memcpy(p, s.p, s.n);
    return llm__s(p, s.n);
}

LLM__PRIVATE llm__tokenizer *llm__tok_new(void) {
    llm__tokenizer *t = LLM__NEW(llm__tokenizer, 1);
    if (!t) return NULL;
    t->bos_id = t->eos_id = t->pad_id = t->unk_id = -1;
    t->ids.seed = llm__seed(t);
    llm__tok_add(t, &t->normalizers, LLM__TOK_ADDED);
    llm__tok_add(t, &t->words, LLM__TOK_ADDED)->as.late = 1;
    llm__tok_add(t, &t->words, LLM__TOK_UNGUARD);
    return t;
}

LLM__PRIVATE void llm__tok_reserve(llm__tokenizer *t, int64_t n) {
    t->max_id = 4 * n + 100000;
    if (t->max_id > INT32_MAX / 2) LLM__TOK_FAIL(t, LLM_ERR_LIMIT, "tokenizer: %lld tokens", (long long)n);
    else if (!llm__map_reserve(&t->ids, (size_t)n)) t->result = llm__nomem();
}

/* The token of an id, for which the table is grown; NULL: a failure was noted. */
static llm__token *llm__tok_at(llm__tokenizer *t, int64_t id) {
    size_t old = t->token_cap;
    if (id < 0 || id >= t->max_id)
        LLM__TOK_FAIL(t, LLM_ERR_LIMIT, "tokenizer: id %lld with only %lld tokens", (long long)id, (long long)(t->max_id - 100000) / 4);
    else if (!t->result && !llm__grow((void **)&t->token, &t->token_cap, (size_t)id + 1, sizeof *t->token)) t->result = llm__nomem();
    if (t->result) return NULL;
    if (t->token_cap > old) memset(t->token + old, 0, (t->token_cap - old) * sizeof *t->token);
    t->n_vocab = LLM__MAX(t->n_vocab, (int32_t)id + 1);
    return &t->token[id];
}

LLM__PRIVATE void llm__tok_enter(llm__tokenizer *t, llm__str text, int64_t id, int type, double score) {
    llm__token *token = llm__tok_at(t, id);
    if (token && token->type) LLM__TOK_BAD(t, "vocabulary: id %d twice", (int)id);
    text = llm__tok_keep(t, text);
    if (!token || t->result) return;
    int put = llm__map_put(&t->ids, text, (int32_t)id);
    if (put < 0) t->result = llm__nomem();
    if (put == 0) LLM__TOK_BAD(t, "vocabulary: \"%.*s\" twice", llm__shown(text), text.p);
    token->text = text;
    token->score = (float)score;
    token->type = (uint8_t)(LLM__TOKEN_KNOWN | type);
    t->max_token = LLM__MAX(t->max_token, text.n);
}

LLM__PRIVATE void llm__tok_enter_added(llm__tokenizer *t, llm__str text, int64_t id, int flags) {
    int32_t known = llm__tok_find(t, text);
    if (!text.n) LLM__TOK_BAD(t, "added token %d: its text is empty", (int)id);
    if (text.n > LLM__TOK_MAX_ADDED)
        LLM__TOK_FAIL(t, LLM_ERR_LIMIT, "added token %d: %zu bytes, at most %d expected", (int)id, text.n, LLM__TOK_MAX_ADDED);
    if (known >= 0 && known != id)
        llm__log(t->log, LLM_LOG_WARN, "tokenizer: added token %d is %d in the vocabulary, which holds", (int)id, (int)known);
    if (known >= 0) id = known;
    llm__token *token = llm__tok_at(t, id);
    if (token && known < 0 && token->type)
        LLM__TOK_BAD(t, "added token \"%.*s\": id %d is another token's", llm__shown(text), text.p, (int)id);
    text = known >= 0 ? t->token[id].text : llm__tok_keep(t, text);
    if (!t->result && !llm__grow((void **)&t->added, &t->added_cap, t->n_added + 1, sizeof *t->added)) t->result = llm__nomem();
    if (t->result) return;
    token->text = text;
    token->type |= LLM__TOKEN_KNOWN | LLM__TOKEN_ADDED | (flags & LLM__ADDED_SPECIAL ? LLM__TOKEN_SPECIAL : 0);
    llm__added *a = &t->added[t->n_added++];
    a->text = text;
    a->id = (int32_t)id;
    a->flags = flags;
}

LLM__PRIVATE void llm__tok_use_scores(llm__tokenizer *t, int without) {
    double least = INFINITY;
    for (int32_t i = 0; i < t->n_vocab && !t->result; i++) {
        llm__token *token = &t->token[i];
        int used = (token->type & LLM__TOKEN_KNOWN) && !(token->type & without);
        float key = -token->score + 0.0f;
        uint32_t bits;
        memcpy(&bits, &key, 4);
        token->rank = !used ? UINT32_MAX : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
        if (!used || t->model != LLM__TOK_UNIGRAM) continue;
        least = LLM__MIN(least, (double)token->score);
        llm__index_add(&t->pieces, token->text, i, &t->result);
    }
    llm__index_build(&t->pieces);
    t->unk_score = (least < INFINITY ? least : 0) - 10;
}

LLM__PRIVATE void llm__tok_merge_reserve(llm__tokenizer *t, int64_t n) {
    t->merge_cap = 16;
    while (t->merge_cap / 4 * 3 < (size_t)n) t->merge_cap *= 2;
    t->merge = (llm__merge *)llm__tok_get(t, t->merge_cap * sizeof *t->merge);
    for (size_t i = 0; t->merge && i < t->merge_cap; i++) t->merge[i].id = -1;
}

/* The id of a part of a merge. One that is no token gets the id *next, above them all, if there is such; else -1. */
static int32_t llm__tok_merge_part(llm__tokenizer *t, llm__str s, int32_t *next) {
    int32_t id = llm__map_get(&t->ids, s);
    if (id >= 0 || !next) return id;
    s = llm__tok_keep(t, s);
    if (!t->result && llm__map_put(&t->ids, s, *next) < 0) t->result = llm__nomem();
    return (*next)++;
}

LLM__PRIVATE int llm__tok_merge_enter(llm__tokenizer *t, llm__str a, llm__str b, size_t skip, int32_t rank, int32_t *next) {
    int32_t left = llm__tok_merge_part(t, a, next), right = llm__tok_merge_part(t, b, next);
    llm_text *both = &t->scratch;
    both->len = 0;
    llm__add_str(both, a);
    if (b.n >= skip) llm_text_add(both, b.p + skip, b.n - skip);
    if (both->failed && !t->result) t->result = llm__nomem();
    int32_t id = b.n >= skip ? llm__tok_merge_part(t, llm__text_str(both), next) : -1;
    if (t->result || left < 0 || right < 0 || id < 0) return t->result != LLM_OK;
    llm__merge *m = llm__merge_slot(t, left, right);
    if (m->id >= 0) return 1;
    m->left = left;
    m->right = right;
    m->rank = rank;
    m->id = id;
    return 1;
}

LLM__PRIVATE llm__tok_step *llm__tok_add_regex(llm__tokenizer *t, llm__tok_steps *steps, llm__tok_kind kind, llm__str pattern,
                                               int literal) {
    llm__tok_step *step = llm__tok_add(t, steps, kind);
    llm_text *escaped = &t->scratch;
    escaped->len = 0;
    for (size_t i = 0; i < pattern.n; i++) {
        if (literal && pattern.p[i] && strchr("\\^$.[]|()?*+{}-&#", pattern.p[i])) llm_text_str(escaped, "\\");
        llm_text_add(escaped, pattern.p + i, 1);
    }
    if (escaped->failed && !t->result) t->result = llm__nomem();
    if (pattern.n && !t->result) t->result = llm__regex_open(escaped->data, escaped->len, &step->re);
    return step;
}

LLM__PRIVATE void llm__tok_set_charsmap(llm__tokenizer *t, llm__str s) {
    uint32_t n = 0;
    if (!s.n) return;
    if (s.n >= 4) memcpy(&n, s.p, 4);
    if (s.n < 4 || n > s.n - 4 || n % 4) LLM__TOK_BAD(t, "precompiled_charsmap: %u bytes of units in %zu bytes", (unsigned)n, s.n);
    s = llm__tok_keep(t, s);
    if (t->result) return;
    t->charsmap.units = (const uint8_t *)s.p + 4;
    t->charsmap.n_units = n / 4;
    t->charsmap.strings = s.p + 4 + n;
    t->charsmap.n_strings = s.n - 4 - n;
}

LLM__PRIVATE void llm__tok_add_spaces(llm__tokenizer *t, int merge, int front, int behind, llm__str mark) {
    if (t->charsmap.n_units) llm__tok_add(t, &t->normalizers, LLM__TOK_CHARSMAP)->as.longest = 1;
    if (merge) llm__tok_add_regex(t, &t->normalizers, LLM__TOK_REPLACE, llm__lit("  +"), 0)->with = llm__blank;
    llm__str ends = llm__lit(merge == 2 ? "\\A |[ \\x{2581}]+\\z" : "\\A | \\z");
    if (merge) llm__tok_add_regex(t, &t->normalizers, LLM__TOK_REPLACE, ends, 0)->with = llm__nothing;
    if (front) llm__tok_add(t, &t->normalizers, LLM__TOK_PREPEND)->text = llm__blank;
    if (behind) llm__tok_add_regex(t, &t->normalizers, LLM__TOK_REPLACE, llm__lit("\\z"), 0)->with = llm__blank;
    llm__tok_add_regex(t, &t->normalizers, LLM__TOK_REPLACE, llm__blank, 1)->with = mark;
}

LLM__PRIVATE void llm__tok_add_literal(llm__tokenizer *t, int tokens, int spaces) {
    llm__tok_step *step = llm__tok_add(t, &t->decoders, LLM__TOK_LITERAL);
    step->as.literal.tokens = tokens;
    step->as.literal.spaces = spaces;
    llm__tok_add(t, &t->decoders, LLM__TOK_UTF8);
}

LLM__PRIVATE void llm__frame_add(llm__tokenizer *t, llm_tokens *frame, size_t at, int64_t id, const char *otherwise) {
    if (id < 0 || id >= t->n_vocab) LLM__TOK_BAD(t, "tokenizer.json: %s", otherwise);
    llm_tokens_add(frame, (int32_t)id);
    if (frame->failed && !t->result) t->result = llm__nomem();
    if (t->result) return;
    memmove(frame->data + at + 1, frame->data + at, (frame->len - 1 - at) * sizeof *frame->data);
    frame->data[at] = (int32_t)id;
}

LLM__PRIVATE void llm__pair_add(llm__tokenizer *t, int64_t what, int64_t type) {
    if (what < LLM__PLACE_SECOND || what >= t->n_vocab || type < 0 || type > UINT16_MAX)
        LLM__TOK_BAD(t, "tokenizer.json: post_processor: pair: the id of a token and a type_id of at most %d expected", UINT16_MAX);
    if (t->n_pair >= LLM__TOK_PLACES)
        LLM__TOK_FAIL(t, LLM_ERR_LIMIT, "tokenizer.json: post_processor: pair: at most %d pieces expected", LLM__TOK_PLACES);
    if (t->result) return;
    t->pair[t->n_pair].what = (int32_t)what;
    t->pair[t->n_pair++].type = (int32_t)type;
}
