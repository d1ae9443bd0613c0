/* unicode: what a code point is: category, script, case.
 *
 * The tables are made by src/text/gen_unicode.py and kept small. Categories and scripts are sorted runs, "from this code point on, this
 * value"; long stretches where upper and lower case take turns are one run with a value of its own. Case mappings are runs with a
 * stride and a distance. Decompositions are one text of small numbers that is unpacked only when a tokenizer needs normal forms. All
 * are searched by one function, llm__uni_find; ASCII never comes to a table.
 *
 * Classes are those of Unicode 16.0. The normal forms (UAX #15) are those of Unicode 11, because the tokenizers that models were trained
 * with do not compose what came later. Everything here is constant data or works on the caller's memory: any thread. */
#pragma once

/* General categories, in the order of the generated table. */
/* clang-format off */
typedef enum llm__cat {
    LLM__CN, LLM__CC, LLM__CF, LLM__CO, LLM__CS, LLM__LL, LLM__LM, LLM__LO, LLM__LT, LLM__LU, LLM__MC, LLM__ME, LLM__MN, LLM__ND, LLM__NL,
    LLM__NO, LLM__PC, LLM__PD, LLM__PE, LLM__PF, LLM__PI, LLM__PO, LLM__PS, LLM__SC, LLM__SK, LLM__SM, LLM__SO, LLM__ZL, LLM__ZP, LLM__ZS
} llm__cat;
/* clang-format on */

/* Sets of categories: bit 1 << category. WORD is what \w holds, but for the letters in llm__uni_circled. */
/* clang-format off */
enum {
    LLM__CATS_C = 0x1F, LLM__CATS_L = 0x1F << LLM__LL, LLM__CATS_M = 7 << LLM__MC, LLM__CATS_N = 7 << LLM__ND,
    LLM__CATS_P = 0x7F << LLM__PC, LLM__CATS_S = 0xF << LLM__SC, LLM__CATS_Z = 7 << LLM__ZL, LLM__CATS_ALL = 0x3FFFFFFF,
    LLM__CATS_WORD = LLM__CATS_L | LLM__CATS_M | 1 << LLM__ND | 1 << LLM__NL | 1 << LLM__PC
};
/* clang-format on */

typedef struct llm__uni_case_run {
    int32_t first, last;
    int8_t stride;
    int32_t add;
    int8_t which; /* 1 lower case, 2 case folding, 3 both */
} llm__uni_case_run;

typedef struct llm__uni_mark_run {
    int32_t first;
    uint8_t more, combining_class;
} llm__uni_mark_run;
