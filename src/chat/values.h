/* values: the values of templates: Python's, as far as templates see.
 *
 * The first error ends the walk: its sentence is kept and longjmp goes back to llm__tpl_guard, as an exception would in the Python that
 * this stands for. So no function here can fail, and none looks at what it got. It is safe because nothing is owned in between: all
 * memory is the arena, two buffers and x->json, which whoever called the guard frees. Not one function of the host program is jumped over.
 *
 * Fuel is what time is measured in, because it is the same on every machine: an operand read, a value compared, an item pushed cost 1
 * each, bytes that are looked at 1/8 to 1/64. A conversation of a hundred messages takes 4,000 to 30,000 steps; the 5 million of the
 * default are spent in a fraction of a second, whatever a template does. What grows faster than it is paid for would be a hole, so searches
 * with long needles and dicts with many keys pay by the product of their sizes.
 *
 * Memory is bounded apart from it: an arena of at most 512 MiB a render, an output of max_output bytes. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "base/text.h"
#include "chat/template.h"

/* Ends the walk with an error. */
LLM__PRIVATE LLM__NORETURN LLM__PRINTF(3, 4) void llm__tpl_error(llm__tpl *x, llm_result r, const char *format, ...);

#define llm__tpl_fail(x, ...) llm__tpl_error(x, LLM_ERR_TEMPLATE, __VA_ARGS__)

/* Runs a phase up to its end or its first error, whose code it returns. The only place that is jumped to. */
LLM__PRIVATE llm_result llm__tpl_guard(llm__tpl *x, void (*phase)(llm__tpl *x));

/* Pays for n units of work. */
LLM__PRIVATE void llm__tpl_spend(llm__tpl *x, int64_t n);

/* Zeroed memory that lives as long as the render. */
LLM__PRIVATE void *llm__tpl_get(llm__tpl *x, size_t bytes);

/* Goes one level down; every caller undoes it by x->depth--. The check is shallower, so that what it let pass can be called from macros. */
LLM__PRIVATE void llm__tpl_enter(llm__tpl *x);

/* A value of a type that needs nothing else. */
LLM__PRIVATE llm__val llm__v(llm__vtype type);

/* A number: bool, int or float. All are kept as doubles: what does not fit exactly, beyond 2^53, is BIG. */
LLM__PRIVATE llm__val llm__v_num(llm__vtype type, double f);

LLM__PRIVATE llm__val llm__v_int(int64_t i);
LLM__PRIVATE llm__val llm__v_bool(int b);
LLM__PRIVATE llm__val llm__v_float(double f);

LLM__PRIVATE llm__val llm__v_str(llm__str s);
LLM__PRIVATE llm__val llm__v_undef(llm__str name);

/* The text of a value: p is never NULL. */
LLM__PRIVATE llm__str llm__v_s(llm__val v);

/* Decimal digits, as INT or BIG. */
LLM__PRIVATE llm__val llm__v_digits(llm__str s);

/* A container as a value. */
LLM__PRIVATE llm__val llm__v_list(llm__vtype type, llm__vlist *list);

/* A macro, function or loop, whose object the caller fills in. */
LLM__PRIVATE llm__val llm__tpl_object(llm__tpl *x, llm__vtype type);

/* A copy of bytes; type STR or BIG. */
LLM__PRIVATE llm__val llm__tpl_copy(llm__tpl *x, llm__vtype type, llm__str s);

/* Appends n values to a list that is still being made. Arenas cannot grow an array in place: it moves, and as its capacity doubles, what is
 * left behind is never more than what is used. */
LLM__PRIVATE void llm__tpl_push_all(llm__tpl *x, llm__vlist *l, const llm__val *v, int32_t n);

LLM__PRIVATE void llm__tpl_push(llm__tpl *x, llm__vlist *l, llm__val v);

/* A new list of n values; v may be NULL when n is 0. */
LLM__PRIVATE llm__vlist *llm__tpl_list(llm__tpl *x, const llm__val *v, int32_t n);

LLM__PRIVATE llm__vlist *llm__tpl_empty(llm__tpl *x);

/* The type as Python calls it, for errors. In the order of llm__vtype. */
LLM__PRIVATE const char *llm__v_type_name(llm__val v);

/* For use where Python wants a value: an error if v is undefined. */
LLM__PRIVATE void llm__tpl_defined(llm__tpl *x, llm__val v);

/* For use where only some types will do. */
LLM__PRIVATE void llm__tpl_expect(llm__tpl *x, llm__val v, int mask, const char *what);

/* Python's str.isspace for one code point: White_Space, and the four separators of ASCII. */
LLM__PRIVATE int llm__tpl_space(int32_t c);

LLM__PRIVATE int llm__tpl_digit(int32_t c);

/* The code point that has c as its lower case, by searching the table from the other side; then those that are no one's lower case. */
LLM__PRIVATE int32_t llm__tpl_upper(int32_t c);

/* Takes the first code point off a text. 0 at its end; eight bytes cost a step. */
LLM__PRIVATE int llm__tpl_next_char(llm__tpl *x, llm__str *rest, int32_t *c);

/* The code points from `from` up to `to`, which may be beyond the end, as a view. */
LLM__PRIVATE llm__str llm__tpl_part(llm__str s, int64_t from, int64_t to);

/* Where `needle` stands first (step 1) or last (step -1) in s, or -1. */
LLM__PRIVATE int64_t llm__tpl_find(llm__str s, llm__str needle, int step);

/* Without white space at its ends (see llm__strip). */
LLM__PRIVATE llm__str llm__tpl_trim(llm__str s, int sides);

/* Appends bytes to what is being built. All output passes here: this is where it is limited and paid for. */
LLM__PRIVATE void llm__tpl_put(llm__tpl *x, llm__str s);

LLM__PRIVATE void llm__tpl_puts(llm__tpl *x, const char *s);

/* A text `count` times. */
LLM__PRIVATE void llm__tpl_repeat(llm__tpl *x, llm__str s, int64_t count);

/* Takes what was built since `mark` off the end, as a value: a copy, as the bytes behind the mark will be written over. */
LLM__PRIVATE llm__val llm__tpl_take(llm__tpl *x, size_t mark);

/* Python's truth. */
LLM__PRIVATE int llm__v_truth(llm__val v);

/* Python's ==: lists item by item, dicts in any order. */
LLM__PRIVATE int llm__tpl_equal(llm__tpl *x, llm__val a, llm__val b);

/* Python's < and >: negative, 0 or positive. An error where Python has no order. Texts are ordered by code points, which in UTF-8 is the
 * order of their bytes; lists by the first item that differs. */
LLM__PRIVATE int llm__tpl_order(llm__tpl *x, llm__val a, llm__val b);

/* Sorts v, and the keys to sort by with it, stable in both directions: each item goes into the sorted part before it, at a place found by
 * halving, behind all that are not greater. n * log2(n) comparisons, which pay, as do the moves: chat templates sort a dozen keys. */
LLM__PRIVATE void llm__tpl_sort(llm__tpl *x, llm__vlist *v, llm__vlist *key, int reverse);

/* The value of a key, or NULL. */
LLM__PRIVATE llm__val *llm__tpl_dict_find(llm__tpl *x, const llm__vlist *d, llm__val key);

/* Sets a key, in its old place if it is there, as Python does. */
LLM__PRIVATE void llm__tpl_dict_set(llm__tpl *x, llm__vlist *d, llm__val key, llm__val value);

/* What keys(), values() and items() show: which 0, 1, 2. */
LLM__PRIVATE llm__vlist *llm__tpl_view(llm__tpl *x, const llm__vlist *d, int which);

/* What a walk over v yields; an error where Python cannot walk. What it returns may be v's own list, so nobody may change it.
 *
 *   list, tuple, range, dict view   their items, without a copy
 *   dict                            its keys
 *   text                            its code points, as texts of one
 *   generator                       what is left in it, which is then gone: a second walk yields nothing
 *   undefined                       nothing; numbers, none, functions: an error */
LLM__PRIVATE llm__vlist *llm__tpl_iter(llm__tpl *x, llm__val v);

/* A new list of what a walk yields. */
LLM__PRIVATE llm__vlist *llm__tpl_list_of(llm__tpl *x, llm__val v);

/* Python's len. */
LLM__PRIVATE int64_t llm__tpl_len(llm__tpl *x, llm__val v);

typedef struct llm__tpl_style {
    int json;                      /* 0: repr(), and the rest stands still */
    int ascii, sort;               /* ensure_ascii, sort_keys */
    llm__str indent, comma, colon; /* what is put once a level, .p NULL: all in one line; the separators */
} llm__tpl_style;

/* Appends a value in a style; NULL: as str() has it. What has no value to show is written without Python's address. */
LLM__PRIVATE void llm__tpl_write(llm__tpl *x, llm__val v, const llm__tpl_style *o, int level);

/* Appends str(v). */
LLM__PRIVATE void llm__tpl_print(llm__tpl *x, llm__val v);

/* str(v) as a value. */
LLM__PRIVATE llm__val llm__tpl_str(llm__tpl *x, llm__val v);

/* Its bytes. */
LLM__PRIVATE llm__str llm__tpl_str_of(llm__tpl *x, llm__val v);
