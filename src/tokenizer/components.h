/* components: the components of tokenizer.json as data.
 *
 * Hugging Face has some forty components; nearly all are one or a few of our steps with a regex, so they are data. */
#pragma once
#include "text/normal_form.h"
#include "tokenizer/tokenizer.h"

/* Patterns, and parts of patterns, that many tokenizers share. */
#define LLM__RX_GPT2_TEXT "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define LLM__RX_TAIL " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLM__RX_ANY_CASE "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LLM__RX_ASCII_CASE "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define LLM__RX_WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define LLM__RX_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LLM__RX_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LLM__RX_CASED(upper, lower, rest, digits, slash) \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" rest "|[^\\r\\n\\p{L}\\p{N}]?" upper "+" lower "*" rest "|" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n" slash "]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* ASCII's punctuation and symbols, and the P categories, as BERT has it. */
#define LLM__TOK_PUNCT "[!-/:-@\\[-`{-~\\p{P}]"

/* Rows of one name in one list (n normalizers, p pretokenizers, d decoders) are steps one after the other. pattern: a regex; NULL: the
 * file's, if the kind has one. text: REPLACE: with; METASPACE: the mark; NULL: the file's. how: of FORM, SPLIT, METASPACE and LITERAL what
 * llm__tok_step has of it; of SPLIT LLM__TOK_ASK: the file's behaviour. only: a flag of the component that must be set, or with '!' must
 * not, for the row to count; otherwise: its value if the file does not say, -1: that of "lowercase". */
enum { LLM__TOK_ASK = -1 };

typedef struct llm__tok_part {
    char list;
    const char *type;
    llm__tok_kind kind;
    int how;
    const char *pattern, *text, *only;
    int otherwise;
} llm__tok_part;

static const llm__tok_part llm__parts[] = {
#define LLM__PLAIN NULL, NULL, NULL, 0
    {'n', "NFC", LLM__TOK_FORM, LLM__NFC, LLM__PLAIN},
    {'n', "NFD", LLM__TOK_FORM, LLM__NFD, LLM__PLAIN},
    {'n', "NFKC", LLM__TOK_FORM, LLM__NFKC, LLM__PLAIN},
    {'n', "NFKD", LLM__TOK_FORM, LLM__NFKD, LLM__PLAIN},
    {'n', "Lowercase", LLM__TOK_LOWER, 0, LLM__PLAIN},
    {'n', "Strip", LLM__TOK_REPLACE, 0, "\\A\\s+", "", "strip_left", 1},
    {'n', "Strip", LLM__TOK_REPLACE, 0, "\\s+\\z", "", "strip_right", 1},
    {'n', "Replace", LLM__TOK_REPLACE, 0, LLM__PLAIN},
    {'n', "Prepend", LLM__TOK_PREPEND, 0, LLM__PLAIN},
    {'n', "Precompiled", LLM__TOK_CHARSMAP, 0, LLM__PLAIN},
    {'n', "ByteLevel", LLM__TOK_BYTES, 0, LLM__PLAIN},
    {'n', "StripAccents", LLM__TOK_REPLACE, 0, "\\p{M}", "", NULL, 0},
    {'n', "Nmt", LLM__TOK_REPLACE, 0, "[\\x{1}-\\x{8}\\x{B}\\x{E}-\\x{1F}\\x{7F}\\x{8F}\\x{9F}]", "", NULL, 0},
    {'n', "Nmt", LLM__TOK_REPLACE, 0, "[\\t\\n\\f\\r\\x{1680}\\x{200B}-\\x{200F}\\x{2028}\\x{2029}\\x{2581}\\x{FEFF}\\x{FFFD}]", " ", NULL,
     0},
    {'n', "BertNormalizer", LLM__TOK_REPLACE, 0, "[\\x{0}\\x{FFFD}[\\p{Cc}\\p{Cf}\\p{Co}&&[^\\t\\n\\r]]]", "", "clean_text", 1},
    {'n', "BertNormalizer", LLM__TOK_REPLACE, 0, "\\s", " ", "clean_text", 1},
    {'n', "BertNormalizer", LLM__TOK_CHINESE, 0, NULL, NULL, "handle_chinese_chars", 1},
    {'n', "BertNormalizer", LLM__TOK_FORM, LLM__NFD, NULL, NULL, "strip_accents", -1},
    {'n', "BertNormalizer", LLM__TOK_REPLACE, 0, "\\p{Mn}", "", "strip_accents", -1},
    {'n', "BertNormalizer", LLM__TOK_LOWER, 0, NULL, NULL, "lowercase", 1},
    {'n', "GGUF bert", LLM__TOK_FORM, LLM__NFD, LLM__PLAIN},
    {'n', "GGUF bert", LLM__TOK_REPLACE, 0, "[\\x{0}\\x{FFFD}\\p{M}[\\p{Cc}\\p{Cf}\\p{Co}&&[^\\s]]]", "", NULL, 0},
    {'n', "GGUF bert", LLM__TOK_LOWER, 0, LLM__PLAIN},
    {'n', "GGUF bert", LLM__TOK_CHINESE, 0, LLM__PLAIN},
    {'p', "Split", LLM__TOK_SPLIT, LLM__TOK_ASK, LLM__PLAIN},
    {'p', "ByteLevel", LLM__TOK_METASPACE, LLM__PREPEND_ALWAYS, NULL, " ", "add_prefix_space", 1}, /* a space for a space */
    {'p', "ByteLevel", LLM__TOK_SPLIT, LLM__SPLIT_ISOLATED, LLM__RX_GPT2_TEXT "|\\s+", NULL, "use_regex", 1},
    {'p', "ByteLevel", LLM__TOK_BYTES, 0, LLM__PLAIN},
    {'p', "Metaspace", LLM__TOK_METASPACE, 0, LLM__PLAIN},
    {'p', "Metaspace", LLM__TOK_SPLIT, LLM__SPLIT_NEXT, NULL, NULL, "split", 1},
    {'p', "Digits", LLM__TOK_SPLIT, LLM__SPLIT_ISOLATED, "\\p{N}", NULL, "individual_digits", 0},
    {'p', "Digits", LLM__TOK_SPLIT, LLM__SPLIT_CONTIGUOUS, "\\p{N}", NULL, "!individual_digits", 0},
    {'p', "Punctuation", LLM__TOK_SPLIT, LLM__TOK_ASK, LLM__TOK_PUNCT, NULL, NULL, 0},
    {'p', "WhitespaceSplit", LLM__TOK_SPLIT, LLM__SPLIT_REMOVED, "\\s", NULL, NULL, 0},
    {'p', "Whitespace", LLM__TOK_SPLIT, LLM__SPLIT_ISOLATED, "[^\\w\\x{200C}\\x{200D}]+", NULL, NULL, 0},
    {'p', "Whitespace", LLM__TOK_SPLIT, LLM__SPLIT_REMOVED, "\\s", NULL, NULL, 0},
    {'p', "BertPreTokenizer", LLM__TOK_SPLIT, LLM__SPLIT_REMOVED, "\\s", NULL, NULL, 0},
    {'p', "BertPreTokenizer", LLM__TOK_SPLIT, LLM__SPLIT_ISOLATED, LLM__TOK_PUNCT, NULL, NULL, 0},
    {'p', "CharDelimiterSplit", LLM__TOK_SPLIT, LLM__SPLIT_REMOVED, LLM__PLAIN},
    {'p', "FixedLength", LLM__TOK_SPLIT, LLM__SPLIT_ISOLATED, LLM__PLAIN},
    {'p', "UnicodeScripts", LLM__TOK_SCRIPTS, 0, LLM__PLAIN},
    {'d', "ByteLevel", LLM__TOK_LITERAL, LLM__LITERAL_LETTERS, LLM__PLAIN},
    {'d', "ByteLevel", LLM__TOK_UTF8, 0, LLM__PLAIN},
    {'d', "ByteFallback", LLM__TOK_FALLBACK, 0, LLM__PLAIN},
    {'d', "Fuse", LLM__TOK_FUSE, 0, LLM__PLAIN},
    {'d', "Strip", LLM__TOK_STRIP, 0, LLM__PLAIN},
    {'d', "Replace", LLM__TOK_REPLACE, 0, LLM__PLAIN},
    {'d', "Metaspace", LLM__TOK_METASPACE, 0, LLM__PLAIN},
    {'d', "BPEDecoder", LLM__TOK_SUFFIX, 0, LLM__PLAIN},
    {'d', "WordPiece", LLM__TOK_CONTINUE, 0, LLM__PLAIN},
    {'d', "CTC", LLM__TOK_CTC, 0, LLM__PLAIN}
#undef LLM__PLAIN
};
