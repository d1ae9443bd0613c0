/* normal_form: normal forms: decompose, put marks in order, compose again (UAX #15).
 *
 * What looks the same should be the same bytes: e with an acute accent is one code point, or two. NFD takes everything apart and puts the
 * marks on a letter in a fixed order, NFC then composes again what has a code point of its own; NFKD and NFKC also replace what is only a
 * variant of something (ligatures, full width, superscripts). Tokenizers mostly ask for NFC, BERT takes accents off by way of NFD. */
#pragma once
#include "api/text.h"
#include "base/platform.h"
#include "base/text.h"
#include "text/unicode_tables.h"

typedef enum llm__uni_form { LLM__NFC, LLM__NFD, LLM__NFKC, LLM__NFKD } llm__uni_form; /* bit 0: not composed, bit 1: compatibility */

/* The decompositions unpacked, 130 kB; made when a tokenizer that needs them is opened. */
typedef struct llm__uni_norm {
    int32_t key[LLM__UNI_DECOMPOSITIONS];       /* code points in order */
    uint16_t from[LLM__UNI_DECOMPOSITIONS + 1]; /* where the decomposition of each starts in cell */
    uint8_t kind[LLM__UNI_DECOMPOSITIONS];      /* 0 canonical, 1 canonical but never composed, 2 compatibility */
    int32_t cell[LLM__UNI_CELLS];
    uint16_t pair[4096]; /* open hash of composable pairs: entry + 1 */
} llm__uni_norm;

/* Unpacks into `m`, zeroed. Entries are: (distance from the last code point << 2 | kind), length, then each cell's difference to the cell
 * at the same place of the entry before, its sign in bit 0. */
LLM__PRIVATE void llm__uni_norm_unpack(llm__uni_norm *m);

/* Appends a text in a normalization form; out->failed if there is no memory. ASCII is its own normal form, but what follows it may attach
 * to its last character. */
LLM__PRIVATE void llm__uni_normalize(const llm__uni_norm *m, llm__uni_form form, llm__str s, llm_text *out);
