/* regex_match: running the program of a regular expression.
 *
 * Positions are 32 bits: a text has less than 2 GiB (LLM__TOK_MAX_TEXT). A match is one loop over the program with a stack of what to do
 * when the way taken turns out wrong. Each step costs fuel, so that no pattern can hold a request for ever: what is not found by then is an
 * error of the text, not an endless loop. The stack grows on the heap and is kept from match to match.
 *
 * How \s+(?!\S) takes all spaces but the one before a word, on two spaces and an x:
 *
 *     LOOP \s      takes both; on the stack: SHORTER, from 2 down to 1
 *     LOOK not \S  at 2: the x is no space, so what must not come comes: fails
 *     backtrack    SHORTER gives one back: position 1, nothing more to give, so the entry goes
 *     LOOK not \S  at 1: a space: holds
 *     MATCH        of the first space alone; the other is left for " x" */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "text/regex.h"

/* What to do when what came after fails. TRY: go on at pc and pos. SHORTER: a LOOP gives back one character, down to aux. DONE: state (pc,
 * pos) has failed. RESTORE: register pc was pos. */
typedef struct llm__rx_entry {
    int32_t kind, pc;
    uint32_t pos, aux;
} llm__rx_entry;

/* One walk over a text; zero it before the first. */
typedef struct llm__rx_run {
    const llm__regex *re;
    const char *s;
    size_t n; /* the text; a look-behind shortens it */
    llm__rx_entry *stack;
    size_t sp, cap;
    uint64_t *memo;  /* what is known of states, see llm__rx_memo; NULL: they are not remembered yet */
    size_t memo_cap; /* a power of two */
    int no_memo;     /* not now: within look-behinds, and without memory */
    int64_t steps, fuel;
    size_t reach;          /* farthest position seen */
    size_t next, last_end; /* where to look for the next match; where the last ended */
    uint32_t reg[LLM__RX_MAX_REGS];
    llm_result result; /* why a match gave up */
} llm__rx_run;

/* Starts a walk over the matches in a text, which must stay where it is until the walk ends. `r` is zeroed, or was used before with the
 * same or another regex: its stack is used again. The fuel is generous for a program times the text, which is all that a match with
 * remembered states can need. */
LLM__PRIVATE void llm__rx_begin(llm__rx_run *r, const llm__regex *re, const char *s, size_t n);

/* Frees what a walk holds; it is zeroed, so that it may begin another. */
LLM__PRIVATE void llm__rx_end(llm__rx_run *r);

/* The next match, from r->next on: 1 and *start, *end; 0: no more; -1: gave up (r->result says why). An empty match just after a match
 * does not count. Where no match can begin is seen from the character, without a try. */
LLM__PRIVATE int llm__rx_next(llm__rx_run *r, size_t *start, size_t *end);

/* Begins to remember states. Without memory for that it goes on as before, until its fuel is spent. */
LLM__PRIVATE void llm__rx_remember(llm__rx_run *r);
