#include "chat/reasoning.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/tokenizer.h"
#include "api/chat.h"
#include "base/platform.h"
#include "base/number.h"
#include "base/text.h"
#include "text/unicode_classes.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/subword.h"
#include "tokenizer/decode.h"
#include "chat/values.h"
#include "chat/harmony.h"

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

LLM__PRIVATE int llm__alias_member(const char *words, llm__str name) {
    for (llm__str w; llm__list_next(&words, "|", &w);) {
        size_t i = 0;
        while (i < w.n && w.n == name.n && name.p[i] == (w.p[i] == '-' ? '_' : w.p[i])) i++;
        if (i == w.n && w.n == name.n && *w.p != '-') return 1;
    }
    return 0;
}

#define LLM__NO_TAGS \
    { NULL, NULL, NULL, NULL }
#define LLM__THINK_TAGS(names, sign, open, close) \
    { names, sign, {open, NULL}, {close, NULL}, LLM__NO_TAGS, NULL, 0, 0 }

/* One row a kind. Templates are asked for the signs from the last row up: </think> stands in many of them beside what is theirs alone.
 *
 * DeepSeek-R1's template opens the thoughts, so an answer may have a closing tag only. ERNIE's models write one where they have not thought
 * at all. Cohere's and Hunyuan's put their answers between marks too. Gemma 4 names its channel, "thought". Solar Open begins its answer as
 * a message of its own, Kimi K3's stands between marks. Granite and Apriel have no tags, but sentences. */
/* clang-format off */
static const llm__reasoning_row llm__reasoning_rows[] = {
    LLM__THINK_TAGS("none|identity", NULL, "", ""),
    LLM__THINK_TAGS("think|qwen3|glm45|glm47|hunyuan|minimax|step3|step3p5|nemotron|nemotron_v3|exaone4|olmo3|holo2|deepseek_v3|"
                    "deepseek_v31|deepseek_v32|deepseek_v4|kimi_k2|qwen_qwq|intern_s1|mimo|poolside_v1", "</think>", "<think>", "</think>"),
    {"deepseek_r1|deepseek|minimax_m2", "<\xEF\xBD\x9C" "Assistant\xEF\xBD\x9C><think>", {"<think>", NULL}, {"</think>", NULL},
     LLM__NO_TAGS, NULL, 1, 0},
    {"ernie_45_vl|ernie_45_vl_thinking|ernie45|ernie_x1", NULL, {"<think>", NULL}, {"</think>", NULL}, {"</think>"}, NULL, 0, 0},
    LLM__THINK_TAGS("mistral|magistral", "[/THINK]", "[THINK]", "[/THINK]"),
    LLM__THINK_TAGS("seed_oss", "</seed:think>", "<seed:think>", "</seed:think>"),
    LLM__THINK_TAGS("kimi", "\xE2\x97\x81/think\xE2\x96\xB7", "\xE2\x97\x81think\xE2\x96\xB7", "\xE2\x97\x81/think\xE2\x96\xB7"),
    {"cohere|cohere_command3|cohere_command4", "<|START_THINKING|>", {"<|START_THINKING|>", NULL}, {"<|END_THINKING|>", NULL},
     {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}, NULL, 0, 0},
    {"gemma4", "<|channel>", {"<|channel>", NULL}, {"<channel|>", NULL}, LLM__NO_TAGS, "thought\n", 0, 0},
    LLM__THINK_TAGS("apertus", "<|inner_prefix|>", "<|inner_prefix|>", "<|inner_suffix|>"),
    {"granite", "Here is my thought process:", {"Here is my thought process:", "Here's my thought process:"},
     {"Here is my response:", "Here's my response:"}, LLM__NO_TAGS, NULL, 0, 0},
    {"hunyuan_a13b", "</answer>", {"<think>", NULL}, {"</think>", NULL}, {"<answer>", "</answer>"}, NULL, 0, 1},
    {"apriel", "[BEGIN FINAL RESPONSE]", {"Here are my reasoning steps:", NULL}, {"[BEGIN FINAL RESPONSE]", NULL},
     {"[END FINAL RESPONSE]"}, NULL, 0, 1},
    {"solar_open", "<|begin|>assistant<|think|>", {"<|think|>", NULL}, {"<|end|>", NULL}, {"<|begin|>assistant", "<|content|>"},
     NULL, 0, 0},
    {"hy_v3", "<think{}>", {"<think:opensource>", "<think>"}, {"</think:opensource>", "</think>"}, LLM__NO_TAGS, NULL, 0, 0},
    LLM__THINK_TAGS("openai_gptoss|gpt_oss|openai|harmony", "<|channel|>analysis", "<|channel|>", "<|end|>"),
    {"kimi_k3", "open_tag('think')", {"<|open|>think<|sep|>", NULL}, {"<|close|>think<|sep|>", NULL},
     {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"}, NULL, 0, 0},
    LLM__THINK_TAGS("minimax_m3", "<mm:think>", "<mm:think>", "</mm:think>")};
/* clang-format on */

/* The row of a kind; NULL if there is no such kind. */
static const llm__reasoning_row *llm__reasoning_of(llm_reasoning_kind kind) {
    return kind >= 0 && (int)kind < LLM__COUNT(llm__reasoning_rows) ? &llm__reasoning_rows[kind] : NULL;
}

LLM_API int llm_reasoning_named(const char *name) {
    for (int k = 0; llm__reasoning_of((llm_reasoning_kind)k); k++)
        if (llm__alias_among(llm__reasoning_of((llm_reasoning_kind)k)->names, llm__lit(name), NULL)) return k;
    return -1;
}

LLM_API llm_reasoning_kind llm_reasoning_detect(const char *chat_template) {
    int k = LLM__COUNT(llm__reasoning_rows) - 1;
    while (chat_template && k > 0 &&
           !(llm__reasoning_of((llm_reasoning_kind)k)->sign && strstr(chat_template, llm__reasoning_of((llm_reasoning_kind)k)->sign)))
        k--;
    return chat_template ? (llm_reasoning_kind)k : LLM_REASONING_NONE;
}

LLM__PRIVATE int llm__mark_is_special(const llm__tokenizer *tokenizer, const char *mark) {
    llm_tokens ids = LLM__ZERO;
    const llm_result r = tokenizer->n_vocab ? llm__tokenizer_encode(tokenizer, mark, strlen(mark), LLM_TOK_PARSE_SPECIAL, &ids) : LLM_OK;
    int special = r == LLM_ERR_NOMEM ? -1 : 0;
    for (size_t i = 0; i < ids.len && !r; i++) special |= llm__tokenizer_is_special(tokenizer, ids.data[i]);
    llm_tokens_free(&ids);
    return special;
}

LLM__PRIVATE int llm__reasoning_is_special(const llm__tokenizer *tokenizer, llm_reasoning_kind kind) {
    const llm__reasoning_row *row = llm__reasoning_of(kind);
    const int open = row->open[0][0] ? llm__mark_is_special(tokenizer, row->open[0]) : 0;
    return open ? open : row->open[0][0] ? llm__mark_is_special(tokenizer, row->close[0]) : 0;
}

LLM__PRIVATE const char *llm__reasoning_opening(llm_reasoning_kind kind) {
    if (kind == LLM_REASONING_HARMONY) return "<|channel|>analysis<|message|>";
    return kind == LLM_REASONING_NONE ? NULL : llm__reasoning_of(kind)->open[0];
}

LLM__PRIVATE const char *llm__reasoning_closing(llm_reasoning_kind kind) {
    return kind == LLM_REASONING_NONE ? NULL : llm__reasoning_of(kind)->close[0];
}

LLM__PRIVATE const char *llm__reasoning_marker(const llm_reasoning *r) {
    if (r->kind == LLM_REASONING_HARMONY) return llm__harmony_marker(r);
    return r->thinking ? llm__reasoning_of(r->kind)->close[0] : NULL;
}

/* ---- the splitter: how far it came */
enum {
    LLM__THINK_FRESH = 0, /* nothing yet: white space and an opening tag are held back */
    LLM__THINK_LABEL,     /* behind the opening tag */
    LLM__THINK_BLANK,     /* behind a tag: white space is passed over */
    LLM__THINK_TEXT
};

/* The last place of any of n tags in a text; -1. *behind: where it ends. */
static int64_t llm__reasoning_last(llm__str s, const char *const *tag, int n, size_t *behind) {
    int64_t last = -1;
    for (int i = 0; i < n && tag[i]; i++) {
        const int64_t at = llm__tpl_find(s, llm__lit(tag[i]), -1);
        if (at > last) last = at, *behind = (size_t)at + strlen(tag[i]);
    }
    return last;
}

LLM__PRIVATE int llm__reasoning_blank(llm_reasoning_kind kind, char *text, size_t len) {
    const llm__reasoning_row *row = llm__reasoning_of(kind);
    int found = 0;
    for (int i = 0; row && i < 4; i++) {
        const char *tag = (i < 2 ? row->open : row->close)[i % 2];
        llm__str s = llm__s(text, len);
        for (const char *at; tag && *tag && (at = llm__str_find(s, llm__lit(tag))) != NULL; found = 1) {
            s = llm__str_from(s, (size_t)(at - s.p) + strlen(tag));
            memset(text + (at - text), '_', strlen(tag));
        }
    }
    return found;
}

/* White space at the end of the prompt does not count. A row that thinks unasked (DeepSeek-R1) has open thoughts unless the prompt ends
 * with the closing tag, which is how its template says "don't"; of the others the later of the two tags decides, and none means not yet. */
LLM_API void llm_reasoning_begin(llm_reasoning *r, llm_reasoning_kind kind, const char *prompt, size_t len) {
    const llm__reasoning_row *row = llm__reasoning_of(kind);
    memset(r, 0, sizeof *r);
    r->kind = row ? kind : LLM_REASONING_NONE;
    if (r->kind == LLM_REASONING_NONE) return;
    if (r->kind == LLM_REASONING_HARMONY) {
        llm__harmony_begin(r, llm__s(prompt, prompt ? len : 0));
        return;
    }
    llm__str s = llm__tpl_trim(llm__s(prompt, prompt ? len : 0), 2);
    size_t behind = 0;
    const int64_t closed = llm__reasoning_last(s, row->close, 2, &behind), ends = behind == s.n,
                  opened = llm__reasoning_last(s, row->open, 2, &behind);
    r->thinking = row->thinks ? closed < 0 || !ends : opened > closed;
}

/* The first n bytes that are held are certainly no tag and go where they belong: `thinking` says where, at this moment. */
static void llm__reasoning_emit(llm_reasoning *r, int n, llm_text *reasoning, llm_text *content) {
    if (n) llm_text_add(r->thinking ? reasoning : content, r->held, (size_t)n);
    r->n_held -= n;
    memmove(r->held, r->held + n, (size_t)r->n_held);
}

/* What a text is to the n tags: 2, one of them; 1, the beginning of one; 0, neither. */
static int llm__reasoning_tag(llm__str s, const char *const *tag, int n) {
    for (int i = 0; i < n && tag[i]; i++) {
        const size_t len = strlen(tag[i]);
        if (s.n <= len && !memcmp(tag[i], s.p, s.n)) return 1 + (s.n == len);
    }
    return 0;
}

/* What is held is the opening tag or may become it: 1, and nothing is decided; 0: the first text has come, or a tag has opened thoughts. */
static int llm__reasoning_fresh(llm_reasoning *r, const llm__reasoning_row *row) {
    const int tag = llm__reasoning_tag(llm__tpl_trim(llm__s(r->held, (size_t)r->n_held), 1), row->open, 2);
    if (tag == 1 && (size_t)r->n_held < sizeof r->held - 1) return 1;
    r->started = LLM__THINK_TEXT;
    if (tag == 2) {
        r->thinking = 1;
        r->n_held = 0;
        r->started = row->label ? LLM__THINK_LABEL : row->trim ? LLM__THINK_BLANK : LLM__THINK_TEXT;
    }
    return 0;
}

/* Takes one byte. What is held is always a beginning of a tag that is watched for, so as soon as it is not, its first bytes go out. Where
 * white space beside tags belongs to nobody, such a beginning may have it in front. */
static void llm__reasoning_byte(llm_reasoning *r, char byte, llm_text *reasoning, llm_text *content) {
    const llm__reasoning_row *row = llm__reasoning_of(r->kind);
    int skip = 0, tag = 0;
    r->held[r->n_held++] = byte;
    if (r->started == LLM__THINK_FRESH && llm__reasoning_fresh(r, row)) return;
    if (r->started == LLM__THINK_LABEL) {
        tag = llm__reasoning_tag(llm__s(r->held, (size_t)r->n_held), &row->label, 1);
        if (tag == 1) return;
        if (tag == 2) r->n_held = 0;
        r->started = LLM__THINK_TEXT;
    }
    if (r->started == LLM__THINK_BLANK && r->n_held == 1 && llm__tpl_trim(llm__s(&byte, 1), 1).n == 0) r->n_held = 0;
    for (tag = 0; skip < r->n_held && !tag; skip += !tag) {
        llm__str s = llm__s(r->held + skip, (size_t)(r->n_held - skip));
        if (row->trim) s = llm__tpl_trim(s, 1);
        if (r->n_held - skip == (int)sizeof r->held) continue; /* too much white space */
        tag = llm__reasoning_tag(s, r->thinking ? row->close : row->drop, r->thinking ? 2 : 4);
    }
    if (skip) r->started = LLM__THINK_TEXT;
    llm__reasoning_emit(r, skip, reasoning, content);
    if (tag < 2) return;
    r->thinking = r->n_held = 0;
    r->started = row->trim ? LLM__THINK_BLANK : LLM__THINK_TEXT;
}

LLM_API void llm_reasoning_push(llm_reasoning *r, const char *piece, size_t len, llm_text *reasoning, llm_text *content) {
    if (r->kind == LLM_REASONING_NONE) llm_text_add(content, piece, len);
    else if (r->kind == LLM_REASONING_HARMONY)
        for (size_t i = 0; i < len; i++) llm__harmony_byte(r, piece[i], reasoning, content);
    else
        for (size_t i = 0; i < len; i++) llm__reasoning_byte(r, piece[i], reasoning, content);
}

LLM_API void llm_reasoning_end(llm_reasoning *r, llm_text *reasoning, llm_text *content) {
    if (r->kind == LLM_REASONING_HARMONY) llm__harmony_end(r, reasoning, content);
    else llm__reasoning_emit(r, r->n_held, reasoning, content);
}
