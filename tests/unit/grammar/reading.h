/* What the tests of grammars share: a grammar from its text, and what it says of an answer. */
#ifndef READING_H
#define READING_H
#include "../test.h"
#include "base/platform.h"
#include "base/text.h"

/* Compiles; NULL: refused, llm_last_error says why. */
static inline llm_grammar *reading_open(const llm_model *model, llm_grammar_kind kind, const char *text, const char *space) {
    llm_grammar_config c;
    llm_grammar *g = NULL;
    memset(&c, 0, sizeof c);
    c.kind = kind, c.text = text, c.len = strlen(text), c.space = space;
    return llm_grammar_open(model, &c, &g) ? NULL : g;
}

/* 1: the grammar allows all of the answer, which may end there; 0: it does not. */
static inline int reading_whole(llm_grammar *g, const char *answer, size_t n) {
    llm_matcher *m = llm_matcher_open(g);
    const int whole = m && !llm_matcher_bytes(m, answer, n) && llm_matcher_can_end(m);
    llm_matcher_close(m);
    return whole;
}

/* A row: a grammar, answers that it allows and answers that it forbids, each list with '|' between, NULL: none. */
typedef struct reading_row {
    const char *grammar, *good, *bad;
} reading_row;

static inline void reading_list(llm_grammar *g, const char *grammar, const char *list, int expected) {
    for (const char *at = list; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        const size_t n = strcspn(at, "|");
        if (!CHECK(reading_whole(g, at, n) == expected)) printf("  %s\n  %.*s\n", grammar, (int)n, at);
    }
}

static inline void reading_rows(llm_grammar_kind kind, const reading_row *rows, int n) {
    for (int i = 0; i < n; i++) {
        llm_grammar *g = reading_open(NULL, kind, rows[i].grammar, NULL);
        if (!CHECK(g != NULL)) printf("  %s\n", rows[i].grammar);
        if (g) reading_list(g, rows[i].grammar, rows[i].good, 1), reading_list(g, rows[i].grammar, rows[i].bad, 0);
        llm_grammar_close(g);
    }
}

/* A grammar that is refused, and what its one sentence says. */
typedef struct reading_refusal {
    const char *grammar, *says;
} reading_refusal;

static inline void reading_refused(llm_grammar_kind kind, const reading_refusal *rows, int n) {
    for (int i = 0; i < n; i++) {
        llm_grammar *g = reading_open(NULL, kind, rows[i].grammar, NULL);
        if (!CHECK(!g && strstr(llm_last_error(), rows[i].says))) printf("  %s: \"%s\" expected\n", rows[i].grammar, rows[i].says);
        llm_grammar_close(g);
    }
}

#endif
