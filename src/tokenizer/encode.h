/* encode: from text to words: rewriting, cutting.
 *
 * A text runs through the steps depth first: a step hands each piece that it makes to the next step as soon as it has it, and behind the
 * last the piece is a word for the model. So a step that rewrites needs memory for one piece only, in its llm__encode_stage, and ids come
 * out from left to right. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/text.h"
#include "base/index.h"
#include "text/regex.h"
#include "text/regex_match.h"
#include "tokenizer/tokenizer.h"

typedef struct llm__encode_stage {
    llm__rx_run rx; /* of SPLIT, REPLACE */
    llm_text text;  /* what it made of the piece under way, if it rewrites */
} llm__encode_stage;

typedef struct llm__symbol { /* of BPE */
    int32_t id, prev, next;  /* id -1: no token; prev INT32_MIN: merged into its neighbour */
    uint32_t at;             /* where its text begins in the word */
} llm__symbol;

typedef struct llm__pair { /* of the heap: two symbols that may be merged */
    uint64_t key;          /* priority << 32 | left symbol */
    int32_t id;            /* of the merged token */
} llm__pair;

typedef struct llm__best { /* Unigram: the best way to a position */
    double score;
    uint32_t from; /* UINT32_MAX: none yet */
    int32_t id;
} llm__best;

/* One call of encode. A failure is noted in `result` and ends all loops; what was put out then does not count. */
typedef struct llm__encode {
    const llm__tokenizer *t;
    llm_tokens *out;
    int flags;
    llm__encode_stage *stage; /* (steps): of the normalizers, then of the cutters */
    int steps;                /* how many of them run */
    llm_text *normalized;     /* NULL, or where text goes behind the last step instead of the model */
    int64_t fuel;             /* steps that may still be taken */
    const int *stop;          /* not NULL: another thread may set it, and wants this to end */
    llm_text clean, scratch;
    llm__symbol *symbol;
    size_t symbol_cap;
    llm__pair *heap;
    size_t heap_n, heap_cap;
    llm__best *best;
    size_t best_cap;
    llm_result result;
} llm__encode;

/* Remembers the first failure of a call. */
LLM__PRIVATE int llm__encode_fail(llm__encode *e, llm_result r);

/* llm__grow that notes a failure. */
LLM__PRIVATE int llm__encode_grow(llm__encode *e, void **array, size_t *cap, size_t need, size_t size);

/* Begins a call, zeroed, for a text of so many bytes. */
LLM__PRIVATE void llm__encode_open(llm__encode *e, const llm__tokenizer *t, size_t len);

/* Takes steps off the fuel, which is generous for any text of a real tokenizer: time grows with the text, whatever the files and the text
 * are. 0: it is spent, or somebody wants the call to end; that was noted. */
LLM__PRIVATE int llm__encode_spend(llm__encode *e, size_t steps);

/* Frees all that a call holds, but not its output. */
LLM__PRIVATE void llm__encode_close(llm__encode *e);

/* One id of the result; without memory e->out->failed says so, which is looked at once in the end. */
LLM__PRIVATE void llm__emit(llm__encode *e, int32_t id);

/* Appends a text with every bad byte replaced by U+FFFD. */
LLM__PRIVATE void llm__clean_utf8(llm__str s, llm_text *out);

/* A binary heap by key: what is pushed rises past larger keys. */
LLM__PRIVATE void llm__heap_push(llm__encode *e, uint64_t key, int32_t id);

/* Takes the smallest key; the last element sinks from the top to where no child is smaller. */
LLM__PRIVATE llm__pair llm__heap_pop(llm__encode *e);

/* A text without such characters at its ends: sides 1 left, 2 right, 3 both. */
LLM__PRIVATE llm__str llm__strip(llm__str s, int sides, int (*is_in)(int32_t c), llm__str set);

/* Replaces all matches of a regex (NULL: there are none). */
LLM__PRIVATE llm_result llm__replace_regex(llm__rx_run *rx, const llm__regex *re, llm__str s, llm__str with, llm_text *out);

/* Replaces every `from` (empty: none), appending to out. */
LLM__PRIVATE void llm__replace_all(llm__str s, llm__str from, llm__str to, llm_text *out);

/* Runs a step that rewrites, appending to out. begin: the text begins there. */
LLM__PRIVATE void llm__rewrite(llm__encode *e, int k, const llm__tok_step *step, llm__str s, int begin, llm_text *out);

/* Cuts at the matches of a regex. Pieces come in turn, matches and what is between them (invert: the other way round); by the behaviour a
 * piece joins the word under way, or begins a new one, or is left out. ab-cd--e, cut at "-":
 *
 *     REMOVED      ab | cd | e              PREVIOUS     ab- | cd- | - | e
 *     ISOLATED     ab | - | cd | - | - | e  NEXT         ab | -cd | - | -e
 *     CONTIGUOUS   ab | - | cd | -- | e */
LLM__PRIVATE void llm__cut_split(llm__encode *e, int k, const llm__tok_step *step, llm__str s, int begin);

/* Cuts where the script changes (ICU's Script property); Hiragana, Katakana and the long vowel mark count as Han, spaces and what has no
 * script as what is around. Text before the first letter of any script is dropped, as the reference does. */
LLM__PRIVATE void llm__cut_scripts(llm__encode *e, int k, llm__str s, int begin);

/* Cuts out added tokens: from the left, the longest at each place; one that may not stand there still hides the shorter ones. */
LLM__PRIVATE void llm__cut_added(llm__encode *e, int k, const llm__index *x, llm__str s, int begin);
