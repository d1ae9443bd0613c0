/* unicode_classes: looking code points up in the tables. */
#pragma once
#include "api/text.h"
#include "base/platform.h"
#include "base/text.h"
#include "text/unicode.h"

/* Ranges that are no categories: White_Space; letters among the symbols; what BERT takes for Chinese characters. */
static const int32_t llm__uni_spaces[][2] = {{9, 13},          {32, 32},         {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
                                             {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
static const int32_t llm__uni_circled[][2] = {{0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
static const int32_t llm__uni_chinese[][2] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},  {0x20000, 0x2A6DF},
                                              {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};

/* 1 if c lies in one of a few ranges. */
LLM__PRIVATE int llm__uni_among(const int32_t (*range)[2], int n, int32_t c);

/* The code point at *at of valid text, and steps over it. A bad byte counts as U+FFFD. */
LLM__PRIVATE int32_t llm__uni_next(llm__str s, size_t *at);

/* Where the code point before `at` > 0 begins. */
LLM__INLINE size_t llm__uni_back(const char *s, size_t at) {
    size_t from = at - 1;
    while (from > 0 && at - from < 4 && ((unsigned char)s[from] & 0xC0) == 0x80) from--;
    return from;
}

/* Appends a code point as UTF-8. */
LLM__PRIVATE void llm__uni_put(llm_text *out, int32_t c);

/* The search of all tables: rows of `size` bytes are sorted by their first 4 bytes, which shifted right by `shift` are a code point. The
 * index of the last row that begins at or before c; 0 too if none does. */
LLM__INLINE int llm__uni_find(const void *rows, int n, size_t size, int shift, int32_t c) {
    int lo = 0, hi = n;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        uint32_t first;
        memcpy(&first, (const char *)rows + (size_t)mid * size, 4);
        if ((int32_t)(first >> shift) <= c) lo = mid;
        else hi = mid;
    }
    return lo;
}

/* The category in a table value: 30 and 31 stand for upper and lower case in turn. */
LLM__PRIVATE llm__cat llm__uni_cat_of(uint32_t value, int32_t c);

/* 1 if the category of c is in a set of categories. */
LLM__PRIVATE int llm__uni_in(int32_t c, uint32_t cats);

LLM__PRIVATE char llm__uni_lower_ascii(char c);

/* \s: White_Space, which has U+0085 but neither U+001C nor U+200B. */
LLM__PRIVATE int llm__uni_space(int32_t c);

/* \w: alphabetic, marks, decimal digits, connectors. */
LLM__PRIVATE int llm__uni_word(int32_t c);

/* Number of the script that a code point belongs to; 0 for those of none that is known. */
LLM__PRIVATE int llm__uni_script(int32_t c);

/* 1 if two names of properties are the same: case, '_', '-' and ' ' do not matter. */
LLM__PRIVATE int llm__uni_same_name(llm__str a, llm__str b);

/* Number of a script by its short or long name ("Hani", "Han"), or -1. */
LLM__PRIVATE int llm__uni_script_find(llm__str name);

/* Simple mapping of one code point: which 1 lower case, 2 case folding. */
LLM__PRIVATE int32_t llm__uni_case(int32_t c, int which);

/* Canonical combining class: 0 for what stands by itself, so of all that is common, which is seen at once. */
LLM__PRIVATE int llm__uni_class(int32_t c);

/* The category of any code point, assigned or not. */
LLM__PRIVATE llm__cat llm__uni_cat(int32_t c);
