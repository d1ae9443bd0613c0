#include "chat/reasoning.h"
#include "api/linkage.h"
#include "api/text.h"
#include "api/chat.h"
#include "base/platform.h"
#include "base/number.h"
#include "base/text.h"
#include "text/unicode_classes.h"
#include "chat/values.h"

/* ---- lists of names: of parsers, options, roles */

LLM__PRIVATE size_t llm__alias_bare(llm__str word) {
    const char *equals = (const char *)memchr(word.p, '=', word.n);
    return equals ? (size_t)(equals - word.p) : word.n;
}

LLM__PRIVATE char llm__alias_dash(char c) { return (char)(c == '_' ? '-' : c); }

/* A letter of a name of more than one, in which case means nothing. */
static char llm__alias_letter(char c, size_t len) { return llm__alias_dash(len > 1 ? llm__uni_lower_ascii(c) : c); }

LLM__PRIVATE int llm__alias_among(const char *words, llm__str name, int32_t *number) {
    for (llm__str w; llm__list_next(&words, "|", &w);) {
        size_t len = llm__alias_bare(w), i = 0;
        int64_t value = 0;
        while (i < len && len == name.n && llm__alias_letter(name.p[i], len) == llm__alias_letter(w.p[i], len)) i++;
        if (i < len || len != name.n) continue;
        if (len < w.n) llm__parse_int(w.p + len + 1, w.n - len - 1, &value);
        if (number) *number = (int32_t)value;
        return 1;
    }
    return 0;
}

LLM__PRIVATE const llm__reasoning_row *llm__reasoning_of(llm_reasoning_kind kind) {
    static const llm__reasoning_row row[] = {
        {"none|identity", "", "", 0, 0},
        {"think|qwen3|glm45|glm47|hunyuan|minimax|step3|step3p5|nemotron|nemotron_v3|exaone4|olmo3|holo2|"
         "deepseek_v3|deepseek_v31|deepseek_v32|kimi_k2|qwen_qwq|intern_s1|mimo",
         "<think>", "</think>", 0, 0},
        {"deepseek_r1|deepseek|minimax_m2", "<think>", "</think>", 1, 0},
        {"ernie_45_vl|ernie_45_vl_thinking|ernie45|ernie_x1", "<think>", "</think>", 0, 1},
        {"mistral|magistral", "[THINK]", "[/THINK]", 0, 0},
        {"seed_oss", "<seed:think>", "</seed:think>", 0, 0},
        {"kimi", "\xE2\x97\x81think\xE2\x96\xB7", "\xE2\x97\x81/think\xE2\x96\xB7", 0, 0}};
    return kind >= 0 && (int)kind < LLM__COUNT(row) ? &row[kind] : NULL;
}

LLM_API int llm_reasoning_named(const char *name) {
    for (int k = 0; llm__reasoning_of((llm_reasoning_kind)k); k++)
        if (llm__alias_among(llm__reasoning_of((llm_reasoning_kind)k)->names, llm__lit(name), NULL)) return k;
    return -1;
}

/* By the closing tag, the rarest first; DeepSeek-R1's template by what is its alone. */
LLM_API llm_reasoning_kind llm_reasoning_detect(const char *chat_template) {
    static const llm_reasoning_kind order[] = {LLM_REASONING_SEED_OSS, LLM_REASONING_KIMI, LLM_REASONING_MISTRAL, LLM_REASONING_THINK};
    for (int i = 0; chat_template && i < LLM__COUNT(order); i++) {
        const llm__reasoning_row *row = llm__reasoning_of(order[i]);
        if (!strstr(chat_template, row->close)) continue;
        if (order[i] != LLM_REASONING_THINK) return order[i];
        return strstr(chat_template, "<\xEF\xBD\x9C"
                                     "Assistant\xEF\xBD\x9C><think>")
                   ? LLM_REASONING_DEEPSEEK_R1
                   : LLM_REASONING_THINK;
    }
    return LLM_REASONING_NONE;
}

/* White space at the end of the prompt does not count. A row that thinks unasked (DeepSeek-R1) has open thoughts unless the prompt ends
 * with the closing tag, which is how its template says "don't"; of the others the later of the two tags decides, and none means not yet. */
LLM_API void llm_reasoning_begin(llm_reasoning *r, llm_reasoning_kind kind, const char *prompt, size_t len) {
    const llm__reasoning_row *row = llm__reasoning_of(kind);
    memset(r, 0, sizeof *r);
    r->kind = row ? kind : LLM_REASONING_NONE;
    r->started = r->kind == LLM_REASONING_NONE;
    if (r->started) return;
    llm__str s = llm__tpl_trim(llm__s(prompt, prompt ? len : 0), 2), close = llm__lit(row->close);
    int64_t opened = llm__tpl_find(s, llm__lit(row->open), -1), closed = llm__tpl_find(s, close, -1);
    r->thinking = row->thinks ? closed < 0 || closed + (int64_t)close.n < (int64_t)s.n : opened > closed;
}

/* The first n bytes that are held are certainly no tag and go where they belong: `thinking` says where, at this moment. */
static void llm__reasoning_emit(llm_reasoning *r, int n, llm_text *reasoning, llm_text *content) {
    if (n) llm_text_add(r->thinking ? reasoning : content, r->held, (size_t)n);
    r->n_held -= n;
    memmove(r->held, r->held + n, (size_t)r->n_held);
}

/* Takes one byte. Before the first text, white space and an opening tag are held back. Then what is held is always a beginning of the tag
 * that is watched for, so as soon as it is not, its first bytes go out. */
static void llm__reasoning_byte(llm_reasoning *r, char byte, llm_text *reasoning, llm_text *content) {
    const llm__reasoning_row *row = llm__reasoning_of(r->kind);
    int tag = (int)strlen(row->close), skip = 0;
    r->held[r->n_held++] = byte;
    if (!r->started) {
        llm__str s = llm__tpl_trim(llm__s(r->held, (size_t)r->n_held), 1), open = llm__lit(row->open);
        int begins = s.n <= open.n && !memcmp(s.p, open.p, s.n);
        if (begins && s.n < open.n && (size_t)r->n_held < sizeof r->held - 1) return;
        r->started = 1;
        if (begins && s.n == open.n) {
            r->thinking = 1;
            r->n_held = 0;
        }
    }
    int watch = r->thinking || row->drop; /* for the closing tag */
    while (skip < r->n_held && !(watch && r->n_held - skip <= tag && !memcmp(r->held + skip, row->close, (size_t)(r->n_held - skip))))
        skip++;
    llm__reasoning_emit(r, skip, reasoning, content);
    if (r->n_held && r->n_held == tag) r->thinking = r->n_held = 0;
}

LLM_API void llm_reasoning_push(llm_reasoning *r, const char *piece, size_t len, llm_text *reasoning, llm_text *content) {
    if (r->kind == LLM_REASONING_NONE) llm_text_add(content, piece, len);
    else
        for (size_t i = 0; i < len; i++) llm__reasoning_byte(r, piece[i], reasoning, content);
}

LLM_API void llm_reasoning_end(llm_reasoning *r, llm_text *reasoning, llm_text *content) {
    llm__reasoning_emit(r, r->n_held, reasoning, content);
}
