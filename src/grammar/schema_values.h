/* schema_values: values that are given: enum and const. */
#pragma once
#include "api/text.h"
#include "api/grammar.h"
#include "base/platform.h"
#include "base/text.h"
#include "grammar/machine.h"
#include "grammar/schema.h"

/* Texts that are collected one by one and then sorted, as llm__gr_strings wants them. Zero-initialise; freed by llm__gr_words_free. */
typedef struct llm__gr_words {
    llm_text all;
    llm__str *word;
    size_t n, cap;
} llm__gr_words;

/* What was added to w->all since the last word is a word. */
LLM__PRIVATE void llm__gr_words_add(llm__gr_build *b, llm__gr_words *w);

/* Sorts them; `cut` bytes at both ends of each are left out (the quotes of JSON strings: 1). */
LLM__PRIVATE void llm__gr_words_sort(llm__gr_words *w, size_t cut);

LLM__PRIVATE void llm__gr_words_free(llm__gr_words *w);

/* Runs through the values that member i gives (no 0) or denies: the one behind `at`, or the first (at -1). */
LLM__PRIVATE int llm__js_next_given(const llm__js *js, const llm__js_view *v, int i, int at, int no);

/* 1 if a value, written as JSON, is one that a member gives (no 0) or denies. */
LLM__PRIVATE int llm__js_among(const llm__js *js, const llm__js_view *v, llm__str value, int no);

/* The type of a given value, as one bit. */
LLM__PRIVATE int llm__js_value_type(const llm__js *js, int node);

/* A machine of its own for a view, to try values that are there: whatever a schema can say, it says it here too. NULL: an error. What it
 * needs for values that it names is made anew, so schemas can be written that double the work with every line. */
LLM__PRIVATE llm_grammar *llm__js_trial(llm__js *js, const llm__js_view *v);

/* 1 if a value, written as JSON, satisfies the trial; 0 also when that gives up, which is an error. */
LLM__PRIVATE int llm__js_passes(llm__js *js, llm_grammar *trial, llm__str text);

/* The values of a list of nodes (list -1: the one node) that keep the rest of the view: strings, numbers and the like are added to w, which
 * is sorted then; lists and objects are returned, one by one. */
LLM__PRIVATE llm__gr_frag llm__js_kept(llm__js *js, const llm__js_view *v, int list, int one, llm__gr_words *w);

/* The same as a fragment: strings, numbers and the like as a trie of their JSON, so that a thousand cities share their beginnings. Never if
 * none keeps the view. */
LLM__PRIVATE llm__gr_frag llm__js_values(llm__js *js, const llm__js_view *v, int list, int one);
