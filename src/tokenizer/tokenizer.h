/* tokenizer: what a tokenizer is made of.
 *
 * Four kinds of files say how a model reads text: tokenizer.json (Hugging Face), a GGUF header, SentencePiece's tokenizer.model, and
 * tiktoken's rank files. All become one llm__tokenizer, which runs the same chain of small steps over the pieces of a text:
 *
 *     added         cuts out text such as <|im_end|>, which becomes a token at once and is passed over by all that follows
 *     normalizers   rewrite what is left: Unicode forms, lower case, space to U+2581, ...
 *     added         once more, for tokens that are to be found in normalized text
 *     words         cut it into words by regexes and the like, which no token crosses; bytes become letters of GPT-2's byte alphabet
 *     model         BPE, Unigram, WordPiece or WordLevel turns each word into ids
 *     frame         BOS, EOS and their like around the ids
 *
 * With a vocabulary of GPT-2's kind, | between pieces:
 *
 *     text     Hi you<|im_end|>
 *     added    Hi you | (the token <|im_end|>)
 *     words    Hi |  you | (token)                the space belongs to the word behind it
 *     letters  Hi | U+0120 you | (token)          in the byte alphabet, see below
 *     model    id of Hi | id of U+0120 you | id of <|im_end|>
 *
 * Most of Hugging Face's normalizers and cutters are a regex with a behaviour, so that a handful of kinds of steps remains, and one table
 * (llm__parts) says which steps a component of tokenizer.json stands for. BPE (Sennrich et al. 2016) keeps its symbols in a linked list
 * and the mergeable pairs in a heap, so a word of n letters (Gemma makes one word of a whole prompt) takes n log n. It serves three
 * sources: ranked pairs, scores of the merged text (SentencePiece), ranks of the merged text (tiktoken). Unigram (Kudo 2018) is a Viterbi
 * search. Decoding is a chain of steps through which tokens are pushed one at a time; decoding a whole list pushes them all, so that
 * streamed and whole text are equal by construction.
 *
 * The references are Hugging Face's library for tokenizer.json, llama.cpp for GGUF and sentencepiece for tokenizer.model. Where they drop
 * bytes without a sound (a byte-level vocabulary that lacks some bytes) so do we.
 *
 * A tokenizer is immutable once open and may be used by any thread; everything an encode or decode changes lives in a struct of that
 * call. While one is being built, t->result holds the first failure, and what comes after it does nothing. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "base/index.h"
#include "text/normal_form.h"
#include "text/regex.h"

/* Types of tokens, in GGUF as in SentencePiece's files. */
enum {
    LLM__VOCAB_NORMAL = 1,
    LLM__VOCAB_UNKNOWN = 2,
    LLM__VOCAB_CONTROL = 3,
    LLM__VOCAB_USER = 4,
    LLM__VOCAB_UNUSED = 5,
    LLM__VOCAB_BYTE = 6
};

typedef enum llm__tok_model { LLM__TOK_BPE, LLM__TOK_UNIGRAM, LLM__TOK_WORDPIECE, LLM__TOK_WORDLEVEL } llm__tok_model;

/* Kinds of steps. Those of the first line cut spans, the next ones rewrite them; those of the last decode, as do
 * REPLACE and METASPACE. */
/* clang-format off */
typedef enum llm__tok_kind {
    LLM__TOK_ADDED, LLM__TOK_SPLIT, LLM__TOK_SCRIPTS,
    LLM__TOK_FORM, LLM__TOK_LOWER, LLM__TOK_REPLACE, LLM__TOK_PREPEND, LLM__TOK_CHARSMAP, LLM__TOK_BYTES,
    LLM__TOK_CHINESE, LLM__TOK_METASPACE, LLM__TOK_UNGUARD,
    LLM__TOK_STRIP, LLM__TOK_LITERAL, LLM__TOK_UTF8, LLM__TOK_FALLBACK, LLM__TOK_FUSE, LLM__TOK_JOIN, LLM__TOK_SUFFIX, LLM__TOK_CONTINUE,
    LLM__TOK_CTC
} llm__tok_kind;
/* clang-format on */

/* What becomes of the matches of a SPLIT: left out, words by themselves, joined to the piece before or after, or touching ones together. */
enum { LLM__SPLIT_REMOVED, LLM__SPLIT_ISOLATED, LLM__SPLIT_PREVIOUS, LLM__SPLIT_NEXT, LLM__SPLIT_CONTIGUOUS };
/* What LITERAL takes a token for: its text, text with U+2581 for spaces, letters of the byte alphabet. */
enum { LLM__LITERAL_TEXT, LLM__LITERAL_SPACES, LLM__LITERAL_LETTERS };
/* Which spaces LITERAL takes back, because the encoder put them in front of the text: none, the first token's first, all before text. */
enum { LLM__SPACES_KEEP, LLM__SPACES_FIRST, LLM__SPACES_LEADING };
/* Which words METASPACE puts its mark in front of, unless they begin with a space: all, the one that begins the text, none. */
enum { LLM__PREPEND_ALWAYS, LLM__PREPEND_FIRST, LLM__PREPEND_NEVER };
enum { LLM__TOK_MAX_STEPS = 64, LLM__TOK_MAX_DEPTH = 16, LLM__TOK_MAX_TEXT = 1 << 30, LLM__TOK_MAX_ADDED = 1024 };

/* One step of a chain. Which members count, and which of the union, depends on its kind. */
typedef struct llm__tok_step {
    llm__tok_kind kind;
    llm__regex *re;      /* what REPLACE and SPLIT look for; NULL: nothing */
    llm__str text, with; /* text: what to look for, or to put in front; with: what replaces it */
    union {
        int late;     /* ADDED: those that are sought in normalized text */
        int form;     /* FORM: an llm__uni_form */
        int longest;  /* CHARSMAP: of several replacements the longest, as SentencePiece does it */
        int one_char; /* REPLACE: the text is one character, so that no match lies across parts of a token */
        int scheme;   /* METASPACE: LLM__PREPEND_* */
        int clean_up; /* CONTINUE, CTC: takes away spaces before English punctuation */
        struct {
            int behaviour, invert; /* LLM__SPLIT_*; the matches are the pieces, or what is between them */
        } split;
        struct {
            int left, right; /* STRIP: how many characters at most */
        } strip;
        struct {
            int tokens, spaces; /* LITERAL: LLM__LITERAL_*, LLM__SPACES_* */
        } literal;
    } as;
} llm__tok_step;

/* A chain: of normalizers, of cutters, of decoders. */
typedef struct llm__tok_steps {
    llm__tok_step v[LLM__TOK_MAX_STEPS];
    int n;
} llm__tok_steps;

/* clang-format off */
enum { /* what a token is */
    LLM__TOKEN_KNOWN = 1, LLM__TOKEN_SPECIAL = 2, LLM__TOKEN_ADDED = 4, LLM__TOKEN_BYTE = 8, /* <0x0A>: stands for a byte */
    LLM__TOKEN_UNUSED = 16, LLM__TOKEN_PLAIN = 32, /* decodes to its text, no matter how others do */
    LLM__TOKEN_USER = 64,                          /* user-defined in SentencePiece's sense */
    /* how an added token is found */
    LLM__ADDED_WORD = 1, LLM__ADDED_LSTRIP = 2, LLM__ADDED_RSTRIP = 4, LLM__ADDED_SPECIAL = 8,
    LLM__ADDED_NORMALIZED = 16, LLM__ADDED_PIECE = 32 /* in normalized text, and its own text is to be normalized, or is it already */
};
/* clang-format on */

typedef struct llm__token {
    llm__str text;
    float score;   /* Unigram: log-probability; BPE by text: order, larger first */
    uint32_t rank; /* BPE by text: order, smaller first; UINT32_MAX: nothing merges into it */
    uint8_t type;  /* 0: there is no such id */
} llm__token;

/* A token that is found in text before the model sees it; flags: LLM__ADDED_*. */
typedef struct llm__added {
    llm__str text;
    int32_t id;
    int flags;
} llm__added;

/* BPE: the tokens left and right make the token id; of all pairs in a word the one of the smallest rank is merged first. */
typedef struct llm__merge {
    int32_t left, right, rank, id; /* id < 0: free */
} llm__merge;

/* What stands at a place of two texts: the first, the second, or a token; and the kind of its tokens. "Who?" and "She." as BERT reads them:
 *
 *     place    [CLS]   first    [SEP]   second   [SEP]
 *     tokens   [CLS]   who ?    [SEP]   she .    [SEP]
 *     kinds      0     0   0      0      1  1      1
 */
enum { LLM__PLACE_FIRST = -1, LLM__PLACE_SECOND = -2, LLM__TOK_PLACES = 16 };
typedef struct llm__tok_place {
    int32_t what, type; /* LLM__PLACE_* or an id */
} llm__tok_place;

typedef struct llm__charsmap { /* SentencePiece's replacements: a double array of units, then NUL-terminated strings */
    const uint8_t *units;
    size_t n_units;
    const char *strings;
    size_t n_strings;
} llm__charsmap;

/* What a later part of the library keeps beside a tokenizer, as the first member of a struct of its own: made when first needed, put there
 * by compare-and-swap, freed with the tokenizer. */
typedef struct llm__attached {
    void (*free)(struct llm__attached *it);
} llm__attached;

/* What an open model has of it. All four kinds of files fill the same fields; see the head of this section for who uses them. */
typedef struct llm__tokenizer {
    const char *kind;
    int32_t n_vocab, bos_id, eos_id, pad_id, unk_id; /* ids -1: none */
    llm__tok_model model;
    llm__token *token; /* (n_vocab) */
    size_t token_cap;
    llm__map ids;     /* of the model's vocabulary; ids from n_vocab on are parts of merges that are no tokens */
    size_t max_token; /* bytes of the longest token */
    /* BPE */
    llm__merge *merge; /* open hash of pairs; NULL: the merged text is looked up */
    size_t merge_cap;
    int bytes;      /* begins with bytes, not code points */
    int whole;      /* a word that is a token is not taken apart; 2: only one that begins with a newline */
    int barrier;    /* a code point that is no token stays between its neighbours; else it vanishes */
    int float_sums; /* Unigram: sums of scores are rounded as SentencePiece does, which decides between equal ways */
    int fuse_unk, byte_fallback, drop_unknown, alphabet_fallback; /* what becomes of unknown characters */
    int32_t byte_id[256];                                         /* of <0x00> ..., -1 */
    int plain_bytes;                                              /* a byte that has no such token may have one of its own */
    llm__str prefix, suffix;                                      /* continuing_subword_prefix (WordPiece's too), end_of_word_suffix */
    /* Unigram, WordPiece */
    llm__index pieces;
    double unk_score; /* of an unknown character */
    int max_word;     /* longer words are unknown */
    /* Encoding around the model */
    llm__added *added;
    size_t n_added, added_cap;
    llm__index early, late;               /* added tokens sought before and after normalizing */
    llm__tok_steps normalizers, words;    /* each begins with ADDED; words goes on with UNGUARD */
    llm_tokens before, after;             /* the frame */
    llm__tok_place pair[LLM__TOK_PLACES]; /* (n_pair) the same of two texts; 0: there is none */
    int n_pair;
    llm__uni_norm *norm;
    llm__charsmap charsmap;
    /* Decoding */
    llm__tok_steps decoders;
    /* Building */
    llm__arena arena;
    llm_result result;
    llm_text scratch;
    int64_t max_id; /* an id this large is refused: a far id must not make a table of 2^31 */
    const llm__logger *log;
    llm__attached *attached; /* the vocabulary as a trie, and the latest grammars (>>grammar); atomic; NULL: nobody needed it yet */
} llm__tokenizer;

static const llm__str llm__spm_mark = {"\xE2\x96\x81", 3}; /* U+2581, SentencePiece's visible space */
static const llm__str llm__blank = {" ", 1}, llm__nothing = {"", 0}, llm__bad_utf8 = {"\xEF\xBF\xBD", 3};

/* The byte of a letter, or -1. */
LLM__PRIVATE int llm__letter_byte(int32_t c);

/* Appends the letters of bytes; runs of what stays itself are copied at once. */
LLM__PRIVATE void llm__bytes_to_letters(llm__str s, llm_text *out);

/* Appends the bytes of a token of letters; one with other characters is appended as it is. */
LLM__PRIVATE void llm__letters_to_bytes(llm__str s, llm_text *out);

/* Appends a text with marks. */
LLM__PRIVATE void llm__guard(const llm__tokenizer *t, llm__str s, llm_text *out);

/* Bytes of the longest special token that a text begins with; 0: it begins with none. */
LLM__PRIVATE size_t llm__special_at(const llm__tokenizer *t, llm__str s);

/* Appends a text without its marks; a doubled one is one of the text's own. */
LLM__PRIVATE void llm__unguard(llm__str s, llm_text *out);

/* 1 for added tokens that may not come from a stranger: special ones, and those of gpt-oss that no file calls so. Not those that begin
 * like a word or with white space, for templates compare and trim such texts; nor single characters, which have no room for a mark. */
LLM__PRIVATE int llm__added_controls(const llm__added *a);
