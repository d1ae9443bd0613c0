/* gguf_pre: how GGUF vocabularies cut text into words, by the names of tokenizer.ggml.pre, as data. */
#pragma once
#include "tokenizer/components.h"

/* A word that is a token is taken whole; BOS is added unless the file says no; spaces are U+2581; there is no BOS by default. */
enum { LLM__PRE_WHOLE = 1, LLM__PRE_BOS = 2, LLM__PRE_SPACES = 4, LLM__PRE_NO_BOS_ID = 8 };

/* Parts of patterns that several names share. Numbers of up to three digits, Chinese and Japanese, words with one punctuation mark in
 * front, digits in groups of three from the right. */
#define LLM__PRE_CJK "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define LLM__PRE_DEEP \
    "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}&&[^\\s]]+" /* to llama.cpp all white space is one character */
#define LLM__PRE_V3(tail) \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" \
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+" tail "|\\s+(?!\\S)|\\s+"
#define LLM__PRE_QWEN2 LLM__RX_ASCII_CASE "|" LLM__RX_WORD "|\\p{N}|" LLM__RX_TAIL
#define LLM__PRE_LLAMA3 LLM__RX_ASCII_CASE "|" LLM__RX_WORD "|\\p{N}{1,3}|" LLM__RX_TAIL
#define LLM__PRE_UPPER "[\\p{L}&&[^a-z]]"
#define LLM__PRE_LOWER "[\\p{L}&&[^A-Z]]"
#define LLM__PRE_DIGITS "[^\\p{N}]*\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))"
#define LLM__PRE_BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"
/* Letters with case, as a regex library without Unicode properties had to list them: those that came later, and a few scripts that were
 * left out (Georgian, mathematical letters ...), are none. */
#define LLM__PRE_LETTERS \
    "[\\p{Lu}\\p{Ll}\\p{Lt}&&[^\\x{560}-\\x{588}\\x{10C7}-\\x{10FF}\\x{1C80}-\\x{1C8F}\\x{2D00}-\\x{2D2F}\\x{A790}-\\x{A7FF}\\x{AB30}-" \
    "\\x{AB6F}\\x{10500}-\\x{105FF}\\x{10D00}-\\x{10DFF}\\x{11900}-\\x{1DFFF}]]"

/* tokenizer.ggml.pre is only a name. What llama.cpp does for it: regexes one after the other, each on the pieces of the one before.
 * Where it sees all letters as one class (its regexes know no cases), so do these. */
/* clang-format off */
static const struct { const char *names; int flags; const char *regex[6]; } llm__pres[] = {
    {"default", 0, {"[\\p{P}\\$\\+<=>\\^~\\|]+", LLM__RX_GPT2_TEXT "|\\s+", "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", LLM__PRE_WHOLE | LLM__PRE_BOS, {LLM__PRE_LLAMA3}},
    {"dbrx smaug-bpe", 0, {LLM__PRE_LLAMA3}},
    {"chatglm-bpe", LLM__PRE_NO_BOS_ID, {LLM__PRE_LLAMA3}},
    {"glm4 glm5", LLM__PRE_WHOLE | LLM__PRE_NO_BOS_ID, {LLM__PRE_LLAMA3}},
    {"jais-2", 0, {LLM__RX_ASCII_CASE "|" LLM__RX_WORD "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)"
        "|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)"
        "|\\s{1}"}},
    {"deepseek-llm", 0, {"[\\r\\n]", "\\s?[" LLM__PRE_LETTERS "]+", "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}"
        "\\x{3001}\\x{3002}]+", "\\s+\\z", LLM__PRE_DEEP, "\\p{N}+"}},
    {"deepseek-coder", 0, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", LLM__PRE_DEEP, "\\p{N}"}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", 0, {"\\p{N}{1,3}", LLM__PRE_CJK, LLM__PRE_V3("[\\r\\n]*|\\s*[\\r\\n]+")}},
    {"spark2_5", 0, {"\\p{N}{1,3}", LLM__PRE_CJK, LLM__PRE_V3("|[\\r\\n]"), "\\p{N}"}},
    {"youtu", LLM__PRE_WHOLE, {"[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}"
        "\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|" LLM__PRE_CJK, LLM__RX_CASED(
        "[\\p{L}\\p{M}]", "[\\p{L}\\p{M}]", LLM__RX_ASCII_CASE "?", "\\p{N}", "/")}},
    {"falcon", 0, {"[\\p{P}\\$\\+<=>\\^~\\|`]+", LLM__RX_GPT2_TEXT "|\\s+", "[0-9][0-9][0-9]"}},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", 0, {"\\p{N}", LLM__RX_GPT2_TEXT "|\\s+"}},
    {"gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert mpt olmo jais trillion granite-docling exaone4 "
        "jina-v1-en jina-v2-code roberta-bpe", 0, {LLM__RX_GPT2_TEXT "|\\s+"}},
    {"qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez hunyuan solar-open grok-2", 0, {LLM__PRE_QWEN2}},
    {"qwen35", 0, {LLM__RX_ASCII_CASE "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
        "|\\s+(?!\\S)|\\s+"}},
    {"poro-chat bloom gpt3-finnish", 0, {LLM__PRE_BLOOM}},
    {"viking", 0, {LLM__PRE_BLOOM, "\\p{N}"}},
    {"tekken", LLM__PRE_WHOLE | LLM__PRE_BOS, {LLM__RX_CASED(LLM__PRE_UPPER, LLM__PRE_LOWER, "", "\\p{N}", "/")}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", 0, {LLM__RX_CASED(LLM__PRE_UPPER, LLM__PRE_LOWER, LLM__RX_ASCII_CASE "?", "\\p{N}{1,3}",
     "/")}},
    {"granite-embed-multi-97m", LLM__PRE_WHOLE, {LLM__RX_CASED("[\\p{L}\\p{M}&&[^a-z]]", "[\\p{L}\\p{M}&&[^A-Z]]", LLM__RX_ASCII_CASE "?",
        "\\p{N}{1,3}", "/")}},
    {"tiny_aya cohere2moe", 0, {LLM__PRE_DIGITS, LLM__RX_CASED("[\\p{L}\\p{M}]", "[\\p{L}\\p{M}]", LLM__RX_ASCII_CASE "?", "\\p{N}{1,3}",
     "/")}},
    {"chameleon", LLM__PRE_BOS, {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
        "[\\p{P}!-/:-@\\[-`{-~]", LLM__RX_GPT2_TEXT "|\\s+"}},
    {"kimi-k2", 0, {"[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{20000}-\\x{2A6DF}\\x{2A700}-\\x{2EBEF}\\x{2F800}-\\x{2FA1F}\\x{F900}-"
        "\\x{FAFF}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}&&[^\\p{Han}]]+" LLM__RX_ASCII_CASE "?|\\p{N}{1,3}|" LLM__RX_TAIL}},
    {"superbpe", 0, {"\\p{N}+", "(?=([0-9]{3})+(?![0-9]))"}},
    {"bailingmoe bailingmoe2 llada-moe", 0, {"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|" LLM__RX_WORD
        "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"seed-coder", 0, {LLM__RX_ASCII_CASE "|" LLM__RX_WORD "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"ufakzeka", 0, {LLM__RX_WORD "|\\p{N}|" LLM__RX_TAIL}},
    {"afmoe", 0, {LLM__PRE_DIGITS, "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{8C48}-\\x{FAFF}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}"
        "\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{E7F}\\x{E80}-\\x{EFF}\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}"
        "\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+", LLM__PRE_V3("[\\r\\n]*|\\s*[\\r\\n]+")}},
    {"laguna", 0, {"[^\\n]+|[\\n]+", LLM__PRE_QWEN2}},
    {"exaone-moe", 0, {LLM__RX_ASCII_CASE "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}"
        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"minicpm5", LLM__PRE_WHOLE, {"\\p{N}{1,3}", LLM__RX_ASCII_CASE "|" LLM__RX_WORD "|\\p{N}+|" LLM__RX_TAIL}},
    {"gemma4 granite-embed-multi-311m", LLM__PRE_SPACES | LLM__PRE_BOS, {"[^\\n]+|[\\n]+"}},
    {"sarvam-moe", LLM__PRE_SPACES, {"[^\\n]+|[\\n]+"}}};
/* clang-format on */
