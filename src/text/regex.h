/* regex: regular expressions over code points, compiled to a program.
 *
 * Tokenizers say with a regex where words end, and their regexes come in files, so any may come. A pattern becomes a small program, as in
 * Thompson's and Pike's machines (Cox, "Regular Expression Matching: the Virtual Machine Approach"): SET matches one code point, SPLIT
 * tries two ways, LOOP repeats one set (most of what such patterns do, without a stack entry a turn), LOOK and ATOMIC run a part of the
 * program on its own. 's| ?\p{L}+|\s+(?!\S), a third of GPT-2's pattern, becomes
 *
 *    0 SPLIT 1 or 4     1 SET '            2 SET s            3 JUMP 12
 *    4 SPLIT 5 or 8     5 LOOP " " 0..1    6 LOOP \p{L} 1..   7 JUMP 12
 *    8 LOOP \s 1..      9 LOOK (not) 10   12 MATCH
 *                      10 SET \S          11 MATCH            (the body of the look-ahead)
 *
 * The matcher backtracks, in the order that Perl and Oniguruma define, with its stack on the heap. Two things keep it fast. For every
 * instruction the compiler finds the ASCII characters that a match from there on can begin with, so a SPLIT mostly sees which of its ways
 * is hopeless, and an alternative costs one bit test. And backtracking, which can be exponential, has a memory: when a match takes many
 * more steps than it has characters, the matcher begins to remember which (instruction, position) failed and never tries one twice; in a
 * look-ahead also which succeeded. Without back-references (refused) the outcome of such a state depends on nothing else, so the work is
 * bounded by program times text. Pattern size, nesting, stack and steps have hard limits besides.
 *
 * Known: . ^ $ \A \z \Z \b \B [..] [^..] [a-z&&[^..]] [:alpha:] \p{..} \P{..} \d \s \w \h, escapes \xHH \x{H..} \uHHHH, (..) (?:..)
 * (?i:..) (?i) (?>..) (?=..) (?!..) (?<=..) (?<!..), and * + ? {n} {n,} {n,m} {,m}, each greedy, lazy or possessive. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "text/unicode_classes.h"

/* x: register of MARK and CHECK; distance to go of JUMP, to the first way of SPLIT, to what follows the body of LOOK and ATOMIC, which ends
 * in MATCH. y: distance to the second way of SPLIT, of CHECK to go when nothing was matched since its MARK. Distances are relative, so that
 * a block of code can be moved and copied. */
/* clang-format off */
typedef enum llm__rx_op {
    LLM__RX_MATCH, LLM__RX_SET, LLM__RX_LOOP, LLM__RX_SPLIT, LLM__RX_JUMP, LLM__RX_LOOK, LLM__RX_ATOMIC, LLM__RX_MARK, LLM__RX_CHECK,
    LLM__RX_LINE_BEGIN, LLM__RX_LINE_END, LLM__RX_TEXT_BEGIN, LLM__RX_TEXT_END, LLM__RX_TEXT_END_LINE, LLM__RX_WORD_EDGE,
    LLM__RX_NO_WORD_EDGE
} llm__rx_op;
/* clang-format on */

enum { LLM__RX_GREEDY, LLM__RX_LAZY, LLM__RX_POSSESSIVE }; /* modes of repeating; of LOOP: greedy or possessive */
enum { LLM__RX_NOT = 1, LLM__RX_BEHIND = 2 };              /* modes of LOOK */

/* Hard limits: of the pattern's bytes, its code, the changes of its sets, the work of making them, empty loops, nesting and counts; of
 * a look-behind's characters, of the stack's and the memory's entries. */
enum {
    LLM__RX_MAX_PATTERN = 65536,
    LLM__RX_MAX_CODE = 16384,
    LLM__RX_MAX_CHANGES = 1 << 20,
    LLM__RX_MAX_WORK = 16 << 20,
    LLM__RX_MAX_REGS = 32,
    LLM__RX_MAX_DEPTH = 48,
    LLM__RX_MAX_COUNT = 1000,
    LLM__RX_MAX_BEHIND = 64,
    LLM__RX_MAX_STACK = 16 << 20,
    LLM__RX_MAX_MEMO = 4 << 20
};

typedef struct llm__rx_code {
    uint8_t op, mode;
    int32_t x, y, min, max; /* min, max: turns of LOOP (max -1: any number) */
    uint32_t set, set_n;    /* of SET and LOOP: where the changes of the set are in llm__regex.change, how many */
    uint32_t ascii[4];      /* the set's ASCII characters, to be looked up at once */
    uint32_t first[4];      /* ASCII characters that a match from here on can begin with; all if it can be empty */
} llm__rx_code;

/* A compiled pattern: read only, any number of runs at once. All sets' changes stand in one array, not NULL where there is a set. */
typedef struct llm__regex {
    llm__rx_code *code;
    size_t n, cap;
    int32_t *change;
    size_t n_change, change_cap;
    int n_regs;
    size_t work; /* of all sets, see llm__set; the rest takes as long as the pattern is */
} llm__regex;

/* Zero-initialise. */
typedef struct llm__set {
    int32_t *v; /* the owner frees it */
    size_t n, cap;
    int failed;  /* no memory */
    size_t work; /* steps of some nanoseconds that it took to make */
} llm__set;

/* What llm__set_combine keeps. Bit 0: what is in neither list; 1: only in the set; 2: only in the other; 3: in both. */
enum { LLM__SET_NOT = 1, LLM__SET_ONLY = 2, LLM__SET_AND = 8, LLM__SET_OR_NOT = 11, LLM__SET_OR = 14 };

/* 1 if c is a member of a list of n changes. */
LLM__INLINE int llm__set_has(const int32_t *change, size_t n, int32_t c) {
    int last = n ? llm__uni_find(change, (int)n, 4, 0, c) : 0;
    return n && c >= change[last] && !(last & 1);
}

/* Combines a set with another list of changes. */
LLM__PRIVATE void llm__set_combine(llm__set *s, const int32_t *other, size_t n, int keep);

/* Adds a range. The tables' come in order, so that most are appended; a list of odd length has no end to append to. */
LLM__PRIVATE void llm__set_add(llm__set *s, int32_t lo, int32_t hi);

/* NULL is fine. No run over it may be used after. */
LLM__PRIVATE void llm__regex_close(llm__regex *re);

/* What \d, \s, \w and \h stand for, on which dialects differ. UNICODE: Unicode's classes. NARROWEST: the characters that every dialect puts
 * there (ASCII), so that what matches here matches in any of them; for the same reason \D, \S and \W leave out whatever some dialect takes
 * for a digit, a space or a letter. WIDEST: the other way round; a pattern that is read as NARROWEST turns to it within [^...] and (?!...),
 * where a larger class makes the match smaller. What only Oniguruma reads, as a** is, these two refuse. */
typedef enum llm__rx_classes { LLM__RX_UNICODE, LLM__RX_NARROWEST, LLM__RX_WIDEST } llm__rx_classes;

/* Compiles a pattern of any bytes. On error *out is NULL and the sentence shows the pattern and what was expected. */
LLM__PRIVATE llm_result llm__regex_compile(const char *pattern, size_t len, llm__rx_classes classes, llm__regex **out);

/* How many instructions at its beginning are ^ and look-ahead, which have to hold for the whole text. */
LLM__PRIVATE int32_t llm__rx_lead(const llm__regex *re);

/* The same with Unicode's classes. */
LLM__PRIVATE llm_result llm__regex_open(const char *pattern, size_t len, llm__regex **out);
