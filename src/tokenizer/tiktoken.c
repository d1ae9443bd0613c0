#include "tokenizer/tiktoken.h"
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/build.h"
#include "tokenizer/components.h"

LLM__PRIVATE void llm__add_splits(llm__tokenizer *t, const char *const *regex, int most) {
    for (int i = 0; i < most && regex[i]; i++)
        llm__tok_add_regex(t, &t->words, LLM__TOK_SPLIT, llm__lit(regex[i]), 0)->as.split.behaviour = LLM__SPLIT_ISOLATED;
}

/* Families by a part of the file's name or the number of lines; special tokens with their ids, which such a file does not hold. */
static const struct llm__rank_file {
    const char *name;
    int32_t ranks;
    const char *pattern, *special;
} llm__rank_files[] = {{"o200k", 199998, LLM__RX_CASED(LLM__RX_UPPER, LLM__RX_LOWER, LLM__RX_ANY_CASE "?", "\\p{N}{1,3}", "/"),
                        "<|endoftext|> 199999 <|endofprompt|> 200018"},
                       {"cl100k", 100256, LLM__RX_ANY_CASE "|" LLM__RX_WORD "|\\p{N}{1,3}|\\s+\\z|" LLM__RX_TAIL,
                        "<|endoftext|> 100257 <|fim_prefix|> 100258 <|fim_middle|> 100259 <|fim_suffix|> 100260 <|endofprompt|> 100276"},
                       {"qwen", 151643, LLM__RX_ANY_CASE "|" LLM__RX_WORD "|\\p{N}|" LLM__RX_TAIL,
                        "<|endoftext|> 151643 <|im_start|> 151644 <|im_end|> 151645"},
                       {"kimi", 163584,
                        "\\p{Han}+|" LLM__RX_CASED("[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]",
                                                   "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]", LLM__RX_ANY_CASE "?", "\\p{N}{1,3}", ""),
                        ""},
                       {"50k", 50256, LLM__RX_GPT2_TEXT "|\\s+", "<|endoftext|> 50256"},
                       {"", 0, LLM__RX_ANY_CASE "|" LLM__RX_WORD "|\\p{N}{1,3}|" LLM__RX_TAIL, ""}}; /* Llama 3 and others */

/* Special tokens of a family whose ids are near enough to the ranks (a truncated file must not make a table of 200,000); Qwen has 205
 * more. */
static void llm__rank_specials(llm__tokenizer *t, const struct llm__rank_file *family) {
    char name[32];
    int64_t most = t->n_vocab + 512, id;
    llm__str token, digits;
    for (const char *p = family->special; llm__list_next(&p, " ", &token) && llm__list_next(&p, " ", &digits);)
        if (llm__parse_int(digits.p, digits.n, &id) && id < most) llm__tok_enter_added(t, token, id, LLM__ADDED_SPECIAL);
    for (int i = 0; i < 205 && !strcmp(family->name, "qwen") && 151646 + i < most; i++)
        llm__tok_enter_added(t, llm__s(name, (size_t)snprintf(name, sizeof name, "<|extra_%d|>", i)), 151646 + i, LLM__ADDED_SPECIAL);
}

LLM__PRIVATE void llm__tok_load_ranks(llm__tokenizer *t, llm__str s, const char *name, int own) {
    const struct llm__rank_file *family = llm__rank_files;
    int64_t lines = s.n && s.p[s.n - 1] != '\n', line = 1, rank;
    llm_text *bytes = &t->scratch;
    for (size_t i = 0; i < s.n; i++) lines += s.p[i] == '\n';
    /* The last row is for all others. */
    while (*family->name && !strstr(name, family->name) && family->ranks != lines) family++;
    int64_t most = lines + 512;
    llm__tok_reserve(t, lines);
    for (size_t at = 0; at < s.n && !t->result; line++) {
        const char *p = s.p + at, *end = (const char *)memchr(p, '\n', s.n - at);
        size_t n = end ? (size_t)(end - p) : s.n - at;
        at += n + 1;
        if (n && p[n - 1] == '\r') n--;
        const char *space = (const char *)memchr(p, ' ', n);
        size_t code = space ? (size_t)(space - p) : n;
        bytes->len = 0;
        if (!n) continue;
        int good = code < n && llm__base64(llm__s(p, code), bytes) && bytes->len && llm__parse_int(p + code + 1, n - code - 1, &rank);
        if (good && rank >= 0 && rank < most) llm__tok_enter(t, llm__text_str(bytes), rank, 0, 0);
        else LLM__TOK_BAD(t, "rank file: line %lld: a token in base64 and its rank below %lld expected", (long long)line, (long long)most);
    }
    if (bytes->failed && !t->result) t->result = llm__nomem();
    for (int32_t i = 0; i < t->n_vocab; i++) t->token[i].rank = (uint32_t)i;
    t->kind = "tiktoken";
    t->bytes = t->whole = t->barrier = 1;
    llm__add_splits(t, &family->pattern, 1);
    llm__tok_add_literal(t, LLM__LITERAL_TEXT, LLM__SPACES_KEEP);
    if (!own) llm__rank_specials(t, family);
}
