/* The values of templates against Python's rules, function by function: arithmetic, slices, order, dicts, texts, arguments, tokens,
 * expressions. Whole templates against what jinja2 made of them: test_template.c. */
#include "../test.h"
#include "chat/access.h"
#include "chat/calls.h"
#include "chat/expressions.h"
#include "chat/functions.h"
#include "chat/lexer.h"
#include "chat/render.h"
#include "chat/statements.h"
#include "chat/values.h"

/* ---- walks without a template ---- */

static int64_t val_fuel;

/* Runs a phase with empty memory; returns how it ended. */
static llm_result val_walk(void (*phase)(llm__tpl *x), const llm_template *t) {
    llm_render_options options = LLM__ZERO;
    llm__arena arena = LLM__ZERO;
    llm__tpl x = LLM__ZERO;
    arena.limit = (size_t)1 << 26;
    x.t = t, x.tok = t ? t->tok : NULL, x.options = &options, x.arena = &arena, x.fuel = 1 << 24, x.text.limit = 1 << 20;
    const llm_result r = llm__tpl_guard(&x, phase);
    val_fuel = ((int64_t)1 << 24) - x.fuel;
    llm_text_free(&x.text), llm_text_free(&x.aside), llm_json_free(x.json), llm__arena_free(&arena);
    return r;
}

#define VAL_RUN(phase) CHECK(val_walk(phase, NULL) == LLM_OK)
#define VAL_FAILS(phase, words) CHECK(val_walk(phase, NULL) == LLM_ERR_TEMPLATE && strstr(llm_last_error(), words))

static llm__val val_str(const char *s) { return llm__v_str(llm__s(s, strlen(s))); }
static int val_is(llm__str s, const char *want) { return llm__str_eq(s, want); }
/* What a value prints as, where this is `want`. */
static int val_prints(llm__tpl *x, llm__val v, const char *want) {
    const llm__str s = llm__tpl_str_of(x, v);
    const int ok = val_is(s, want);
    if (!ok) printf("  %.*s, %s expected\n", (int)s.n, s.p, want);
    return ok;
}

/* A list of small whole numbers. */
static llm__val val_list(llm__tpl *x, llm__vtype type, const int *v, int n) {
    llm__vlist *l = llm__tpl_empty(x);
    for (int i = 0; i < n; i++) llm__tpl_push(x, l, llm__v_int(v[i]));
    return llm__v_list(type, l);
}

/* ---- numbers ---- */

/* // rounds down and % has the sign of the divisor: for all small pairs, whole and float. */
static void val_division(llm__tpl *x) {
    int wrong = 0;
    for (int a = -9; a <= 9; a++)
        for (int b = -9; b <= 9; b++) {
            if (!b) continue;
            int q = 0;
            const int p = b < 0 ? -a : a, by = b < 0 ? -b : b; /* the largest q with q by <= p */
            while (q * by > p) q--;
            while ((q + 1) * by <= p) q++;
            llm__val d = llm__tpl_arith(x, 'D', llm__v_int(a), llm__v_int(b)), m = llm__tpl_arith(x, '%', llm__v_int(a), llm__v_int(b));
            wrong += d.type != LLM__V_INT || d.as.f != q || m.type != LLM__V_INT || m.as.f != a - q * b;
            d = llm__tpl_arith(x, 'D', llm__v_float(a), llm__v_int(b)),
            m = llm__tpl_arith(x, '%', llm__v_float(a / 2.0), llm__v_float(b / 2.0));
            wrong += d.type != LLM__V_FLOAT || d.as.f != q || m.as.f != (a - q * b) / 2.0;
            d = llm__tpl_arith(x, '/', llm__v_int(a), llm__v_int(b));
            wrong += d.type != LLM__V_FLOAT || d.as.f != (double)a / b;
        }
    CHECK(wrong == 0);
}

static void val_numbers(llm__tpl *x) {
    CHECK(val_prints(x, llm__tpl_arith(x, '+', llm__v_bool(1), llm__v_bool(1)), "2") &&
          val_prints(x, llm__tpl_arith(x, '-', llm__v_int(1), llm__v_float(0.5)), "0.5"));
    CHECK(val_prints(x, llm__tpl_arith(x, 'P', llm__v_int(2), llm__v_int(10)), "1024") &&
          val_prints(x, llm__tpl_arith(x, 'P', llm__v_int(2), llm__v_int(-1)), "0.5"));
    CHECK(val_prints(x, llm__tpl_arith(x, '*', llm__v_int(2), val_str("ab")), "abab") &&
          val_prints(x, llm__tpl_arith(x, '*', val_str("ab"), llm__v_int(-1)), ""));
    CHECK(val_prints(x, llm__tpl_arith(x, '~', llm__v_int(1), llm__v_float(2)), "12.0") &&
          val_prints(x, llm__tpl_arith(x, '+', val_str("a"), val_str("b")), "ab"));
    CHECK(val_prints(x, llm__tpl_signed(x, '-', llm__v_bool(1)), "-1") &&
          val_prints(x, llm__tpl_signed(x, '+', llm__v_float(-0.0)), "-0.0"));
    CHECK(llm__v_digits(llm__lit("9007199254740991")).type == LLM__V_INT && llm__v_digits(llm__lit("9007199254740992")).type == LLM__V_BIG);
    CHECK(llm__v_digits(llm__lit("-9007199254740991")).as.f == -9007199254740991.0 &&
          val_prints(x, llm__v_digits(llm__lit("18446744073709551616")), "18446744073709551616"));
    const int one[1] = {7}, two[2] = {8, 9};
    const llm__val a = val_list(x, LLM__V_LIST, one, 1), b = val_list(x, LLM__V_LIST, two, 2);
    CHECK(val_prints(x, llm__tpl_arith(x, '+', a, b), "[7, 8, 9]") && val_prints(x, a, "[7]") &&
          val_prints(x, llm__tpl_arith(x, '*', llm__v_int(2), b), "[8, 9, 8, 9]"));
    CHECK(val_prints(x, llm__tpl_arith(x, '+', val_list(x, LLM__V_TUPLE, one, 1), val_list(x, LLM__V_TUPLE, two, 2)), "(7, 8, 9)"));
}

static void val_zero(llm__tpl *x) { llm__tpl_arith(x, '%', llm__v_int(1), llm__v_int(0)); }
static void val_far(llm__tpl *x) { llm__tpl_arith(x, '*', llm__v_int((int64_t)1 << 52), llm__v_int(2)); }
static void val_mixed(llm__tpl *x) { llm__tpl_arith(x, '+', val_str("a"), llm__v_int(1)); }
static void val_none_plus(llm__tpl *x) { llm__tpl_arith(x, '+', llm__v(LLM__V_NONE), llm__v_int(1)); }
static void val_undef_plus(llm__tpl *x) { llm__tpl_arith(x, '+', llm__v_undef(llm__lit("who")), llm__v_int(1)); }
static void val_over(llm__tpl *x) { llm__tpl_overflow(x); }
static void val_signed_str(llm__tpl *x) { llm__tpl_signed(x, '-', val_str("a")); }

/* ---- slices ---- */

enum { VAL_NONE = 99 };

static llm__val val_bound(int i) { return i == VAL_NONE ? llm__v(LLM__V_NONE) : llm__v_int(i); }

/* Python's slice.indices, from its documentation, for lists and texts of up to 5 items and all bounds near. */
static void val_slices(llm__tpl *x) {
    static const int range[] = {VAL_NONE, -7, -5, -3, -2, -1, 0, 1, 2, 4, 5, 6}, steps[] = {VAL_NONE, -3, -2, -1, 1, 2, 3, 9, -9},
                     all[5] = {0, 1, 2, 3, 4};
    int wrong = 0;
    for (int n = 0; n <= 5; n++)
        for (int i = 0; i < LLM__COUNT(range); i++)
            for (int k = 0; k < LLM__COUNT(range); k++)
                for (int s = 0; s < LLM__COUNT(steps); s++) {
                    const int step = steps[s] == VAL_NONE ? 1 : steps[s], low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
                    int from = range[i] == VAL_NONE ? (step < 0 ? high : low)
                               : range[i] < 0       ? LLM__MAX(range[i] + n, low)
                                                    : LLM__MIN(range[i], high);
                    const int to = range[k] == VAL_NONE ? (step < 0 ? low : high)
                                   : range[k] < 0       ? LLM__MAX(range[k] + n, low)
                                                        : LLM__MIN(range[k], high);
                    int want[8], n_want = 0;
                    for (; step < 0 ? from > to : from < to; from += step) want[n_want++] = from;
                    const llm__val bound[3] = {val_bound(range[i]), val_bound(range[k]), val_bound(steps[s])};
                    const llm__val got = llm__tpl_slice(x, val_list(x, LLM__V_LIST, all, n), bound),
                                   text = llm__tpl_slice(x, llm__v_str(llm__s("abcde", (size_t)n)), bound);
                    wrong += got.type != LLM__V_LIST || got.as.list->n != n_want || (int)text.n != n_want;
                    for (int at = 0; at < n_want && !wrong; at++)
                        wrong += got.as.list->v[at].as.f != want[at] || text.as.s[at] != 'a' + want[at];
                    x->text.len = 0;
                }
    CHECK(wrong == 0);
    const llm__val bound[3] = {val_bound(1), val_bound(3), val_bound(VAL_NONE)};
    CHECK(val_prints(x, llm__tpl_slice(x, val_str("\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80z"), bound),
                     "\xE2\x82\xAC\xF0\x9F\x98\x80")); /* code points */
}

static void val_no_step(llm__tpl *x) {
    const llm__val bound[3] = {val_bound(0), val_bound(1), val_bound(0)};
    llm__tpl_slice(x, val_str("a"), bound);
}
static void val_slice_int(llm__tpl *x) {
    const llm__val bound[3] = {val_bound(0), val_bound(1), val_bound(1)};
    llm__tpl_slice(x, llm__v_int(3), bound);
}

/* ---- equality, order, sorting ---- */

static void val_equality(llm__tpl *x) {
    const int ab[2] = {1, 2}, ba[2] = {2, 1};
    const llm__val one[] = {llm__v_int(1), llm__v_bool(1), llm__v_float(1)}, l = val_list(x, LLM__V_LIST, ab, 2);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) CHECK(llm__tpl_equal(x, one[i], one[k]) && llm__tpl_order(x, one[i], one[k]) == 0);
    CHECK(!llm__tpl_equal(x, llm__v_int(1), val_str("1")) && !llm__tpl_equal(x, llm__v(LLM__V_NONE), llm__v_bool(0)) &&
          !llm__tpl_equal(x, llm__v_float(NAN), llm__v_float(NAN)));
    CHECK(llm__tpl_equal(x, l, val_list(x, LLM__V_LIST, ab, 2)) && !llm__tpl_equal(x, l, val_list(x, LLM__V_LIST, ba, 2)) &&
          !llm__tpl_equal(x, l, val_list(x, LLM__V_TUPLE, ab, 2)));
    llm__vlist *d = llm__tpl_empty(x), *e = llm__tpl_empty(x);
    llm__tpl_dict_set(x, d, val_str("a"), llm__v_int(1)), llm__tpl_dict_set(x, d, val_str("b"), llm__v_int(2));
    llm__tpl_dict_set(x, e, val_str("b"), llm__v_int(2)), llm__tpl_dict_set(x, e, val_str("a"), llm__v_int(1));
    CHECK(llm__tpl_equal(x, llm__v_list(LLM__V_DICT, d), llm__v_list(LLM__V_DICT, e)));
    llm__tpl_dict_set(x, e, val_str("a"), llm__v_int(3));
    CHECK(!llm__tpl_equal(x, llm__v_list(LLM__V_DICT, d), llm__v_list(LLM__V_DICT, e)));
    CHECK(llm__tpl_order(x, val_str("a"), val_str("ab")) < 0 && llm__tpl_order(x, val_str("b"), val_str("ab")) > 0 &&
          llm__tpl_order(x, val_str("z"), val_str("\xC3\xA4")) < 0);
    CHECK(llm__tpl_order(x, l, val_list(x, LLM__V_LIST, ba, 2)) < 0 && llm__tpl_order(x, l, val_list(x, LLM__V_LIST, ab, 1)) > 0);
    CHECK(llm__tpl_compare(x, 'L', llm__v_int(1), llm__v_int(1)) && llm__tpl_compare(x, 'G', llm__v_int(1), llm__v_int(1)) &&
          !llm__tpl_compare(x, '<', llm__v_int(1), llm__v_int(1)));
    CHECK(llm__tpl_compare(x, 'N', llm__v_int(1), val_str("1")) && llm__tpl_compare(x, 'E', l, l) &&
          llm__tpl_compare(x, '>', val_str("b"), val_str("a")));
    CHECK(llm__tpl_compare(x, 'I', val_str("bc"), val_str("abcd")) && llm__tpl_compare(x, 'J', val_str("cb"), val_str("abcd")) &&
          llm__tpl_compare(x, 'I', llm__v_float(2), l));
    CHECK(llm__tpl_compare(x, 'I', val_str("a"), llm__v_list(LLM__V_DICT, d)) &&
          llm__tpl_compare(x, 'J', llm__v_int(1), llm__v_list(LLM__V_DICT, d)));
}

static void val_no_order(llm__tpl *x) { llm__tpl_order(x, val_str("a"), llm__v_int(1)); }
static void val_no_order_dict(llm__tpl *x) {
    llm__tpl_order(x, llm__v_list(LLM__V_DICT, llm__tpl_empty(x)), llm__v_list(LLM__V_DICT, llm__tpl_empty(x)));
}

/* Random keys with many equal ones: in order, and equal ones in the order they had, both upwards and downwards. */
static void val_sorting(llm__tpl *x) {
    uint64_t seed = 5;
    for (int n = 0; n < 60; n++)
        for (int reverse = 0; reverse < 2; reverse++) {
            llm__vlist *v = llm__tpl_empty(x), *key = llm__tpl_empty(x);
            int wrong = 0;
            for (int i = 0; i < n; i++) {
                seed = seed * 6364136223846793005u + 1;
                llm__tpl_push(x, v, llm__v_int(i)), llm__tpl_push(x, key, llm__v_int((int64_t)(seed >> 33) % 10));
            }
            llm__tpl_sort(x, v, key, reverse);
            for (int i = 1; i < n; i++) {
                const double a = key->v[i - 1].as.f, b = key->v[i].as.f;
                wrong += reverse ? a < b : a > b;
                wrong += a == b && v->v[i - 1].as.f > v->v[i].as.f;
            }
            CHECK(wrong == 0 && v->n == n && key->n == n);
        }
}

/* ---- dicts, walks ---- */

static void val_dicts(llm__tpl *x) {
    llm__vlist *d = llm__tpl_empty(x);
    llm__tpl_dict_set(x, d, val_str("b"), llm__v_int(1));
    llm__tpl_dict_set(x, d, llm__v_int(1), llm__v_int(2));
    llm__tpl_dict_set(x, d, llm__v(LLM__V_NONE), llm__v_int(3));
    llm__tpl_dict_set(x, d, llm__v_bool(1), llm__v_int(4)); /* the same key as 1 */
    llm__tpl_dict_set(x, d, val_str("b"), llm__v_int(5));   /* in its old place */
    CHECK(val_prints(x, llm__v_list(LLM__V_DICT, d), "{'b': 5, 1: 4, None: 3}") && d->n == 6);
    CHECK(llm__tpl_dict_find(x, d, llm__v_float(1))->as.f == 4 && !llm__tpl_dict_find(x, d, llm__v_int(2)) &&
          !llm__tpl_dict_find(x, d, val_str("1")));
    CHECK(val_prints(x, llm__v_list(LLM__V_LIST, llm__tpl_view(x, d, 0)), "['b', 1, None]") &&
          val_prints(x, llm__v_list(LLM__V_LIST, llm__tpl_view(x, d, 1)), "[5, 4, 3]"));
    CHECK(val_prints(x, llm__v_list(LLM__V_LIST, llm__tpl_view(x, d, 2)), "[('b', 5), (1, 4), (None, 3)]") &&
          llm__tpl_len(x, llm__v_list(LLM__V_DICT, d)) == 3);
    llm__vlist *many = llm__tpl_empty(x);
    char key[16];
    for (int i = 0; i < 300; i++)
        snprintf(key, sizeof key, "k%d", i), llm__tpl_dict_set(x, many, llm__tpl_copy(x, LLM__V_STR, llm__lit(key)), llm__v_int(i));
    for (int i = 0; i < 300; i++) snprintf(key, sizeof key, "k%d", i), CHECK(llm__tpl_dict_find(x, many, val_str(key))->as.f == i);
}

static void val_walks(llm__tpl *x) {
    const int v[3] = {1, 2, 3};
    const llm__val l = val_list(x, LLM__V_LIST, v, 3), gen = val_list(x, LLM__V_GEN, v, 3);
    CHECK(llm__tpl_iter(x, l) == l.as.list && llm__tpl_list_of(x, l) != l.as.list && llm__tpl_len(x, l) == 3);
    CHECK(llm__tpl_iter(x, gen)->n == 3 && llm__tpl_iter(x, gen)->n == 0); /* once */
    const llm__vlist *chars = llm__tpl_iter(x, val_str("a\xC3\xA4\xF0\x9F\x98\x80"));
    CHECK(chars->n == 3 && val_is(llm__v_s(chars->v[1]), "\xC3\xA4") && val_is(llm__v_s(chars->v[2]), "\xF0\x9F\x98\x80"));
    CHECK(llm__tpl_len(x, val_str("a\xC3\xA4\xF0\x9F\x98\x80")) == 3 && llm__tpl_iter(x, llm__v_undef(llm__lit("u")))->n == 0);
    llm__vlist *d = llm__tpl_list(x, llm__tpl_list(x, NULL, 0)->v, 0);
    llm__tpl_dict_set(x, d, val_str("k"), llm__v_int(1));
    CHECK(llm__tpl_iter(x, llm__v_list(LLM__V_DICT, d))->n == 1 &&
          val_is(llm__v_s(llm__tpl_iter(x, llm__v_list(LLM__V_DICT, d))->v[0]), "k"));
    llm__tpl_push_all(x, d, l.as.list->v, 0);
    CHECK(d->n == 2 && !strcmp(llm__v_type_name(l), "list") && !strcmp(llm__v_type_name(llm__v(LLM__V_NONE)), "NoneType") &&
          !strcmp(llm__v_type_name(llm__v(LLM__V_LOOP)), "loop"));
}

static void val_walk_int(llm__tpl *x) { llm__tpl_iter(x, llm__v_int(1)); }
static void val_len_none(llm__tpl *x) { llm__tpl_len(x, llm__v(LLM__V_NONE)); }
static void val_use_undef(llm__tpl *x) { llm__tpl_defined(x, llm__v_undef(llm__lit("name"))); }
static void val_expect_str(llm__tpl *x) { llm__tpl_expect(x, llm__v_int(1), LLM__M_STR, "a text"); }
static void val_too_many(llm__tpl *x) { llm__tpl_spend(x, (1 << 24) + 1); }
static void val_too_deep(llm__tpl *x) {
    for (int i = 0; i <= LLM__TPL_RUN_DEPTH; i++) llm__tpl_enter(x);
}
static void val_deep_enough(llm__tpl *x) {
    for (int i = 0; i < LLM__TPL_RUN_DEPTH; i++) llm__tpl_enter(x);
}
static void val_too_long(llm__tpl *x) { llm__tpl_repeat(x, llm__lit("0123456789abcdef"), 1 << 17); }

/* ---- texts ---- */

static void val_truth(llm__tpl *x) {
    const int one[1] = {0};
    const llm__val yes[] = {llm__v_bool(1),
                            llm__v_int(-1),
                            llm__v_float(0.1),
                            val_str("0"),
                            val_list(x, LLM__V_LIST, one, 1),
                            llm__v_digits(llm__lit("99999999999999999999"))};
    const llm__val no[] = {llm__v_bool(0),
                           llm__v_int(0),
                           llm__v_float(-0.0),
                           val_str(""),
                           val_list(x, LLM__V_LIST, one, 0),
                           llm__v(LLM__V_NONE),
                           llm__v_undef(llm__lit("u"))};
    for (int i = 0; i < LLM__COUNT(yes); i++) CHECK(llm__v_truth(yes[i]));
    for (int i = 0; i < LLM__COUNT(no); i++) CHECK(!llm__v_truth(no[i]));
}

/* As Python prints: str() of the value, repr() of what is in it. */
static void val_printing(llm__tpl *x) {
    static const int none[1] = {0}, one[1] = {1};
    const llm__tpl_style json = {1, 0, 1, llm__s(NULL, 0), llm__s(", ", 2), llm__s(": ", 2)};
    llm__vlist *d = llm__tpl_empty(x);
    const size_t mark = x->text.len;
    CHECK(val_prints(x, llm__v(LLM__V_NONE), "None") && val_prints(x, llm__v_bool(1), "True") &&
          val_prints(x, llm__v_undef(llm__lit("u")), "") && val_prints(x, val_str("it's"), "it's"));
    CHECK(val_prints(x, llm__v_float(1e22), "1e+22") && val_prints(x, llm__v_float(1e-7), "1e-07") &&
          val_prints(x, llm__v_float(0.1), "0.1") && val_prints(x, llm__v_float(123456789), "123456789.0"));
    CHECK(val_prints(x, llm__v_float(1e16), "1e+16") && val_prints(x, llm__v_float(NAN), "nan") &&
          val_prints(x, llm__v_float(-INFINITY), "-inf"));
    CHECK(val_prints(x, val_list(x, LLM__V_TUPLE, one, 1), "(1,)") && val_prints(x, val_list(x, LLM__V_TUPLE, none, 0), "()") &&
          val_prints(x, val_list(x, LLM__V_LIST, none, 0), "[]"));
    llm__tpl_dict_set(x, d, val_str("b"), val_str("it's\n\x01\xC3\xA4"));
    llm__tpl_dict_set(x, d, val_str("a"), val_str("\"'\\"));
    CHECK(val_prints(x, llm__v_list(LLM__V_DICT, d), "{'b': \"it's\\n\\x01\xC3\xA4\", 'a': '\"\\'\\\\'}"));
    llm__tpl_write(x, llm__v_list(LLM__V_DICT, d), &json, 0);
    CHECK(val_prints(x, llm__tpl_take(x, mark), "{\"a\": \"\\\"'\\\\\", \"b\": \"it's\\n\\u0001\xC3\xA4\"}") && x->text.len == mark);
    llm__tpl_puts(x, "out"), llm__tpl_put(x, llm__lit("put"));
    const size_t inner = x->text.len;
    llm__tpl_print(x, llm__v_int(7)), llm__tpl_repeat(x, llm__lit("ab"), 3);
    const llm__val taken = llm__tpl_take(x, inner);
    llm__tpl_puts(x, "xxxxxxxx"); /* over the bytes that were taken */
    CHECK(val_is(llm__v_s(taken), "7ababab") && val_is(llm__v_s(llm__tpl_str(x, taken)), "7ababab"));
}

static int val_near_space(int32_t c) { return c == 0x20 || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F) || c == 0x85 || c == 0xA0; }

static void val_texts(llm__tpl *x) {
    llm__str s = llm__lit("a\xC3\xA4\xE2\x82\xAC");
    int32_t c = 0, wrong = 0;
    CHECK(llm__tpl_next_char(x, &s, &c) && c == 'a' && llm__tpl_next_char(x, &s, &c) && c == 0xE4 && llm__tpl_next_char(x, &s, &c) &&
          c == 0x20AC && !llm__tpl_next_char(x, &s, &c));
    s = llm__lit("a\xC3\xA4\xE2\x82\xAC z");
    CHECK(val_is(llm__tpl_part(s, 1, 3), "\xC3\xA4\xE2\x82\xAC") && val_is(llm__tpl_part(s, 4, 99), "z") &&
          val_is(llm__tpl_part(s, 3, 2), "") && val_is(llm__tpl_part(s, 9, 12), ""));
    CHECK(llm__tpl_find(llm__lit("abcabc"), llm__lit("bc"), 1) == 1 && llm__tpl_find(llm__lit("abcabc"), llm__lit("bc"), -1) == 4 &&
          llm__tpl_find(llm__lit("abc"), llm__lit("x"), 1) == -1);
    CHECK(llm__tpl_find(llm__lit(""), llm__lit(""), 1) == 0 && llm__tpl_find(llm__lit("ab"), llm__lit(""), -1) == 2 &&
          llm__tpl_find(llm__lit(""), llm__lit("a"), -1) == -1);
    CHECK(val_is(llm__tpl_trim(llm__lit(" \xC2\xA0\x1C a b\n"), 3), "a b") && val_is(llm__tpl_trim(llm__lit(" a "), 1), "a ") &&
          val_is(llm__tpl_trim(llm__lit(" a "), 2), " a") && val_is(llm__tpl_trim(llm__lit(" "), 3), ""));
    for (int32_t k = 0; k < 256; k++) wrong += !!llm__tpl_space(k) != val_near_space(k) || !!llm__tpl_digit(k) != (k >= '0' && k <= '9');
    for (int32_t k = 0; k < 128; k++) wrong += llm__tpl_upper(k) != (k >= 0x61 && k <= 0x7A ? k - 32 : k);
    CHECK(wrong == 0 && llm__tpl_space(0x2003) && llm__tpl_space(0x3000) && !llm__tpl_space(0x200B) && !llm__tpl_space(0x180E));
    CHECK(llm__tpl_upper(0xE4) == 0xC4 && llm__tpl_upper(0x3C3) == 0x3A3 && llm__tpl_upper(0x3C2) == 0x3A3 &&
          llm__tpl_upper(0xFF) == 0x178 && llm__tpl_upper(0x44F) == 0x42F && llm__tpl_upper(0x131) == 'I' &&
          llm__tpl_upper(0x4E00) == 0x4E00);
}

/* ---- members ---- */

static void val_members(llm__tpl *x) {
    llm__vlist *d = llm__tpl_empty(x), *in = llm__tpl_empty(x);
    const int v[3] = {5, 6, 7};
    llm__tpl_dict_set(x, in, val_str("b"), val_list(x, LLM__V_LIST, v, 3));
    llm__tpl_dict_set(x, d, val_str("items"), llm__v_int(1)), llm__tpl_dict_set(x, d, val_str("k"), llm__v_int(2)),
        llm__tpl_dict_set(x, d, val_str("a"), llm__v_list(LLM__V_DICT, in));
    const llm__val m = llm__v_list(LLM__V_DICT, d), l = val_list(x, LLM__V_LIST, v, 3);
    CHECK(llm__tpl_member_of(x, m, val_str("items"), '.').type == LLM__V_FUNC &&
          llm__tpl_member_of(x, m, val_str("items"), '[').as.f == 1); /* as access.h has it */
    CHECK(llm__tpl_member_of(x, m, val_str("k"), '.').as.f == 2 && llm__tpl_member_of(x, m, val_str("k"), '[').as.f == 2 &&
          llm__tpl_member_of(x, m, val_str("get"), '[').type == LLM__V_FUNC);
    CHECK(llm__tpl_member_of(x, m, val_str("z"), '.').type == LLM__V_UNDEF &&
          llm__tpl_member_of(x, l, llm__v_int(3), '[').type == LLM__V_UNDEF && llm__tpl_member_of(x, l, llm__v_int(-1), '[').as.f == 7);
    CHECK(llm__tpl_member_of(x, l, llm__v_int(-4), '[').type == LLM__V_UNDEF &&
          val_is(llm__v_s(llm__tpl_member_of(x, val_str("a\xC3\xA4"), llm__v_int(1), '[')), "\xC3\xA4"));
    CHECK(llm__tpl_member_of(x, l, val_str("append"), '.').type == LLM__V_UNDEF);
    CHECK(llm__tpl_pick(x, m, val_str("a.b.2"), llm__v(LLM__V_UNSET)).as.f == 7 &&
          llm__tpl_pick(x, m, llm__v(LLM__V_UNSET), llm__v(LLM__V_UNSET)).type == LLM__V_DICT);
    CHECK(llm__tpl_pick(x, l, llm__v_int(1), llm__v(LLM__V_UNSET)).as.f == 6 &&
          llm__tpl_pick(x, m, val_str("zz"), llm__v_int(9)).as.f == 9 &&
          llm__tpl_pick(x, m, val_str("zz"), llm__v(LLM__V_UNSET)).type == LLM__V_UNDEF);
}
static void val_member_undef(llm__tpl *x) { llm__tpl_member_of(x, llm__v_undef(llm__lit("z")), val_str("y"), '.'); }

/* ---- calls ---- */

/* Every row is found by each of its names where it counts, and by its number. */
static void val_rows(void) {
    const llm__tpl_row *row;
    int n = 0;
    for (; (row = llm__tpl_row_at(n)) != NULL; n++) {
        llm__str name;
        CHECK(llm__tpl_row_number(row) == n);
        for (const char *names = row->names; llm__list_next(&names, " ", &name);)
            for (int bit = 0; bit < 31; bit++)
                if (row->where >> bit & 1) CHECK(llm__tpl_named(1 << bit, name) == row);
    }
    CHECK(n > 80 && !llm__tpl_row_at(n) && !llm__tpl_named(LLM__IN_FILTER, llm__lit("spli")) &&
          !llm__tpl_named(LLM__IN_TEST, llm__lit("split")));
}

static llm__args val_args(llm__tpl *x, const llm__val *pos, int n, const char *name, llm__val named) {
    llm__args g = LLM__ZERO;
    llm__tpl_push_all(x, &g.pos, pos, n);
    if (name) llm__tpl_dict_set(x, &g.named, val_str(name), named);
    return g;
}

static void val_calls(llm__tpl *x) {
    const int v[4] = {3, 1, 2, 1};
    const llm__val l = val_list(x, LLM__V_LIST, v, 4), three[3] = {llm__v_int(1), llm__v_int(2), llm__v_int(3)};
    const llm__tpl_row *sort = llm__tpl_row_of(x, LLM__IN_FILTER, llm__lit("sort")),
                       *divides = llm__tpl_row_of(x, LLM__IN_TEST, llm__lit("divisibleby"));
    llm__args none = val_args(x, NULL, 0, NULL, l), yes = val_args(x, three, 1, NULL, l),
              named = val_args(x, NULL, 0, "reverse", llm__v_bool(1));
    CHECK(val_prints(x, llm__tpl_apply(x, sort, l, &none), "[1, 1, 2, 3]") &&
          val_prints(x, llm__tpl_apply(x, sort, l, &yes), "[3, 2, 1, 1]") &&
          val_prints(x, llm__tpl_apply(x, sort, l, &named), "[3, 2, 1, 1]"));
    llm__args by3 = val_args(x, three + 2, 1, NULL, l);
    CHECK(val_prints(x, llm__tpl_apply(x, divides, llm__v_int(9), &by3), "True") &&
          val_prints(x, llm__tpl_apply(x, divides, llm__v_int(8), &by3), "False"));
    const llm__args g = val_args(x, three, 3, "n", llm__v_int(9)), rest = llm__args_after(&g, 2), nothing = llm__args_after(&g, 7),
                    bare = llm__args_after(&none, 3);
    CHECK(rest.pos.n == 1 && rest.pos.v[0].as.f == 3 && nothing.pos.n == 0 && bare.pos.n == 0 && rest.named.n == 2);
    CHECK(llm__args_named(x, &g, llm__lit("n"))->as.f == 9 && !llm__args_named(x, &g, llm__lit("m")) &&
          !llm__args_named(x, &none, llm__lit("n")));
    CHECK(llm__arg_int(x, llm__v(LLM__V_UNSET), 5) == 5 && llm__arg_int(x, llm__v_int(-3), 5) == -3 &&
          llm__arg_int(x, llm__v_bool(1), 5) == 1);
    CHECK(val_is(llm__arg_text(x, val_str("t")), "t") && val_is(llm__arg_str(x, llm__v(LLM__V_NONE), "d"), "d") &&
          val_is(llm__arg_str(x, val_str("t"), "d"), "t") && !llm__arg_str(x, llm__v(LLM__V_UNSET), NULL).p);
    llm__val safe = llm__tpl_escape(x, val_str("<a href=\"x\">&'"));
    CHECK(safe.flag && val_is(llm__v_s(safe), "&lt;a href=&#34;x&#34;&gt;&amp;&#39;") &&
          val_is(llm__v_s(llm__tpl_escape(x, safe)), "&lt;a href=&#34;x&#34;&gt;&amp;&#39;"));
    CHECK(val_prints(x, llm__tpl_arith(x, '+', safe, val_str("<")), "&lt;a href=&#34;x&#34;&gt;&amp;&#39;&lt;"));
    CHECK(val_prints(x, llm__tpl_parse_json(x, llm__lit("{\"a\":[1,2.5,null,true,\"\\u00e4\"],\"b\":123456789012345678901}")),
                     "{'a': [1, 2.5, None, True, '\xC3\xA4'], 'b': 123456789012345678901}"));
    CHECK(llm__tpl_parse_json(x, llm__lit("{\"a\":}")).type == LLM__V_UNSET && llm__tpl_parse_json(x, llm__lit("")).type == LLM__V_UNSET);
}

static void val_call(llm__tpl *x, int n, const char *name) {
    const llm__val v[4] = {llm__v_bool(1), llm__v_bool(1), val_str("a"), llm__v_int(1)};
    const llm__args g = val_args(x, v, n, name, v[0]);
    llm__tpl_apply(x, llm__tpl_row_of(x, LLM__IN_FILTER, llm__lit("sort")), llm__v_list(LLM__V_LIST, llm__tpl_empty(x)), &g);
}
static void val_call_twice(llm__tpl *x) { val_call(x, 1, "reverse"); }
static void val_call_other(llm__tpl *x) { val_call(x, 1, "key"); }
static void val_call_many(llm__tpl *x) { val_call(x, 4, NULL); }
static void val_call_none(llm__tpl *x) { llm__tpl_row_of(x, LLM__IN_FILTER, llm__lit("nosuch")); }
static void val_call_missing(llm__tpl *x) {
    const llm__args g = val_args(x, NULL, 0, NULL, llm__v_int(0));
    llm__tpl_apply(x, llm__tpl_row_of(x, LLM__IN_TEST, llm__lit("divisibleby")), llm__v_int(1), &g);
}
static void val_int_text(llm__tpl *x) { llm__arg_int(x, val_str("1"), 0); }

/* ---- tokens ---- */

/* The types of a text's tokens, with texts outside of tags in quotes. */
static const char *val_tokens(const char *source) {
    static char out[300];
    llm_template *t = NULL;
    size_t n = 0;
    if (llm_template_open(source, strlen(source), &t)) return llm_last_error();
    for (size_t i = 0; i < t->n_tok && n < 250; i++) {
        const llm__str s = llm__v_s(t->tok[i].v);
        if (t->tok[i].type == 'd') n += (size_t)snprintf(out + n, 60, "d\"%.*s\" ", (int)s.n, s.p);
        else n += (size_t)snprintf(out + n, 60, "%c ", t->tok[i].type ? t->tok[i].type : '0');
    }
    out[n] = 0;
    llm_template_close(t);
    return out;
}

static void val_lexer(void) {
    /* those of lexer.h */
    CHECK(!strcmp(val_tokens("a\n  {% if x -%}\n b {{ y[0] }}{% endif %}"), "d\"a\n\" B n n b d\"b \" V n [ i ] v B n b 0 "));
    CHECK(!strcmp(val_tokens("x\n  {% set t = 1 %}\n y"), "d\"x\n\" B n n = i b d\" y\" 0 "));
    CHECK(!strcmp(val_tokens("x\n  {%+ set t = 1 +%}\n y"), "d\"x\n  \" B n n = i b d\"\n y\" 0 "));
    CHECK(!strcmp(val_tokens("x\n  {%- set t = 1 -%}\n y"), "d\"x\" B n n = i b d\"y\" 0 "));
    CHECK(!strcmp(val_tokens("x\n  {{ t }}\n y"), "d\"x\n  \" V n v d\"\n y\" 0 "));
    CHECK(!strcmp(val_tokens("{# c {{ #}a{{ {'k': 1.5, \"l\": [1]} }}"), "d\"a\" V { s : f , s : [ i ] } v 0 "));
    CHECK(!strcmp(val_tokens("{{ a == b != c }}{{ a // b ** c }}{{ not a and b or c in d is none }}"),
                  "V n E n N n v V n D n P n v V ! n A n O n I n ? n v 0 "));
    CHECK(strstr(val_tokens("{{ 'a }}"), "template line 1") && strstr(val_tokens("{# a"), "a comment without its end") &&
          strstr(val_tokens("{{ ) }}"), "unexpected"));
}

/* The same straight from the lexer, without the check behind it. */
static void val_lex_all(llm__tpl *x) {
    static const char source[] = "a{{ b }}\0\0\0\0\0\0\0\0\0";
    llm_template made = LLM__ZERO;
    x->made = &made, x->source = llm__s(source, 8), x->line = 1;
    llm__lex_all(x);
    CHECK(made.n_tok == 5 && made.tok[0].type == 'd' && made.tok[1].type == 'V' && made.tok[2].type == 'n' && made.tok[3].type == 'v' &&
          made.tok[4].type == 0);
    CHECK(made.tok[2].name > LLM__W_CALLER && llm__map_get(&made.names, llm__lit("b")) == made.tok[2].name &&
          llm__map_get(&made.names, llm__lit("endfor")) == LLM__W_ENDFOR);
    llm__map_free(&made.names);
    LLM_FREE(made.tok);
    x->made = NULL;
}

/* ---- expressions and statements ---- */

static const char *val_want;

/* The walk stands at an expression in {{ }}, whose value prints as expected; x is 5 in the scope around, 2 in the inner one. */
static void val_expression(llm__tpl *x) {
    const int32_t name = llm__map_get(&x->t->names, llm__lit("x")), outer = llm__map_get(&x->t->names, llm__lit("y"));
    CHECK(!llm__tpl_scope(x, NULL));
    if (outer >= 0) llm__tpl_assign(x, (uint16_t)outer, val_str("far"));
    if (name >= 0) llm__tpl_assign(x, (uint16_t)name, llm__v_int(5));
    llm__scope *up = llm__tpl_scope(x, x->scope);
    if (name >= 0) llm__tpl_assign(x, (uint16_t)name, llm__v_int(1)), llm__tpl_assign(x, (uint16_t)name, llm__v_int(2));
    CHECK(llm__tpl_type(x) == 'V' && llm__tpl_skip(x, 'V') && !llm__tpl_skip(x, 'V') && x->at == 1);
    const llm__val v = llm__tpl_tuple(x, 0);
    CHECK(val_prints(x, v, val_want));
    llm__tpl_want(x, 'v', "}}");
    CHECK(llm__tpl_type(x) == 0);
    x->scope = up;
    if (name >= 0) {
        llm__tpl_token t = LLM__ZERO;
        t.name = (uint16_t)name;
        CHECK(llm__tpl_lookup(x, &t).as.f == 5);
    }
}

/* Each as jinja2 prints it. */
static void val_expressions(void) {
    static const char *const rows[][2] = {{"x", "2"},
                                          {"y ~ x", "far2"},
                                          {"none is none and not false", "True"},
                                          {"1 + 2 * 3", "7"},
                                          {"(1 + 2) * 3", "9"},
                                          {"2 ** 3 ** 1", "8"},
                                          {"-2 ** 2", "4"},
                                          {"7 // 2 * 2", "6"},
                                          {"1 < 2 < 3", "True"},
                                          {"3 > 2 > 2", "False"},
                                          {"1 if x > 1 else 0", "1"},
                                          {"'a' if x > 5 else 'b' if x == 2 else 'c'", "b"},
                                          {"x and 'yes'", "yes"},
                                          {"0 or none or 'z'", "z"},
                                          {"1, 2", "(1, 2)"},
                                          {"(1,)", "(1,)"},
                                          {"[1, 'a', [x]]", "[1, 'a', [2]]"},
                                          {"{'k': x, 'l': {}}", "{'k': 2, 'l': {}}"},
                                          {"[1, 2, 3][-1]", "3"},
                                          {"'abc'[1:]", "bc"},
                                          {"'a,b'.split(',')", "['a', 'b']"},
                                          {"' a '|trim|upper", "A"},
                                          {"[3, 1]|sort(reverse=true)|first", "3"},
                                          {"x is divisibleby 2", "True"},
                                          {"x is not odd", "True"},
                                          {"'b' in 'abc' and 'z' not in 'abc'", "True"},
                                          {"not x == 2", "False"},
                                          {"z is defined", "False"},
                                          {"z|default('d')", "d"},
                                          {"1.5 + true", "2.5"},
                                          {"'%' ~ 1e3", "%1000.0"},
                                          {"range(1, 6, 2)|list", "[1, 3, 5]"},
                                          {"dict(a=1)['a']", "1"},
                                          {"{'a': 1}.get('b', 4)", "4"},
                                          {"'x' * x", "xx"},
                                          {"[[1, 2], [3]]|map('length')|sum", "3"}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        char source[100];
        llm_template *t = NULL;
        llm_text out = LLM__ZERO;
        llm_json *context = NULL;
        snprintf(source, sizeof source, "{{ %s }}", rows[i][0]);
        val_want = rows[i][1];
        if (!CHECK(!llm_template_open(source, strlen(source), &t))) continue;
        if (!strstr(rows[i][0], "range") && !strstr(rows[i][0], "dict("))
            CHECK(val_walk(val_expression, t) == LLM_OK && val_fuel > 0); /* these two are of the context */
        CHECK(!llm_json_parse("{\"x\":2,\"y\":\"far\"}", 17, NULL, &context) && !llm__template_render(t, context, NULL, NULL, &out));
        CHECK(!strcmp(out.data, val_want));
        llm_text_free(&out), llm_json_free(context), llm_template_close(t);
    }
}

static void val_syntax(llm__tpl *x) { llm__tpl_syntax(x, "what was expected"); }
static void val_want_name(llm__tpl *x) { x->at = 1, llm__tpl_name(x); }

/* Words, commas, names: what is skipped, what is an error. */
static void val_reading(llm__tpl *x) {
    llm__tpl_want(x, 'V', "a tag");
    CHECK(llm__tpl_skip(x, '[') && (llm__tpl_comma(x, ']', "an item"), x->at == 2)); /* it ends at once: no comma */
    CHECK(llm__tpl_skip(x, ']') && !llm__tpl_word(x, LLM__W_ELSE) && llm__tpl_word(x, LLM__W_IF) && x->at == 4);
    CHECK(val_is(llm__v_s(llm__tpl_name(x)->v), "some") && x->at == 5);
}

/* A block up to its end, live and not; then a macro with all kinds of arguments, as statements.h has it. */
static void val_statements(llm__tpl *x) {
    llm__tpl_scope(x, NULL);
    CHECK(llm__tpl_skip(x, 'B') && llm__tpl_word(x, LLM__W_IF) && (llm__tpl_expr(x), llm__tpl_skip(x, 'b')));
    const int32_t at = x->at;
    llm__tpl_block(x, 1u << LLM__W_ENDIF, 1);
    CHECK(val_is(llm__s(x->text.data, x->text.len), "in3") && llm__tpl_word(x, LLM__W_ENDIF));
    const int32_t end = x->at;
    x->text.len = 0, x->at = at;
    llm__tpl_block(x, 1u << LLM__W_ENDIF, 0);
    CHECK(x->text.len == 0 && llm__tpl_word(x, LLM__W_ENDIF) && x->at == end);
    llm__tpl_want(x, 'b', "the end");
    llm__tpl_block(x, 0, 1); /* defines f */
    llm__tpl_token t = LLM__ZERO;
    t.name = (uint16_t)llm__map_get(&x->t->names, llm__lit("f"));
    const llm__val f = llm__tpl_lookup(x, &t), args[2] = {llm__v_int(1), llm__v_int(7)};
    llm__args g = val_args(x, args, 1, NULL, args[0]);
    CHECK(f.type == LLM__V_MACRO && val_prints(x, llm__tpl_call_macro(x, f.as.object, &g), "1||2"));
    g = val_args(x, args, 2, "c", llm__v_int(9));
    CHECK(val_prints(x, llm__tpl_call_macro(x, f.as.object, &g), "1|7|9"));
    g = val_args(x, args, 1, "d", llm__v_int(4));
    llm__tpl_call_macro(x, f.as.object, &g); /* no parameter: the end of this walk */
}

static void val_walks_of_templates(void) {
    llm_template *t = NULL;
    const char *source = "{% if 1 %}in{{ 1 + 2 }}{% endif %}{% macro f(a, b, c=2) %}{{ a }}|{{ b }}|{{ c }}{% endmacro %}";
    if (CHECK(!llm_template_open(source, strlen(source), &t)))
        CHECK(val_walk(val_statements, t) == LLM_ERR_TEMPLATE && strstr(llm_last_error(), "a macro got an unexpected argument"));
    llm_template_close(t), t = NULL;
    if (CHECK(!llm_template_open("{{ [] if some else 1 }}", 23, &t))) CHECK(val_walk(val_reading, t) == LLM_OK);
    llm_template_close(t), t = NULL;
    if (CHECK(!llm_template_open("{{ 1 }}", 7, &t)))
        CHECK(val_walk(val_syntax, t) == LLM_ERR_TEMPLATE && val_walk(val_want_name, t) == LLM_ERR_TEMPLATE);
    llm_template_close(t);
}

TEST_GROUP(values) {
    VAL_RUN(val_division);
    VAL_RUN(val_numbers);
    VAL_FAILS(val_zero, "division by zero");
    VAL_FAILS(val_far, "beyond 2^53");
    VAL_FAILS(val_over, "beyond 2^53");
    VAL_FAILS(val_mixed, "'str' and 'int' cannot be combined by '+'");
    VAL_FAILS(val_none_plus, "'NoneType' and 'int'");
    VAL_FAILS(val_undef_plus, "'who' is undefined");
    VAL_FAILS(val_signed_str, "'str' cannot have a sign");
    VAL_RUN(val_slices);
    VAL_FAILS(val_no_step, "the step of a slice is 0");
    VAL_FAILS(val_slice_int, "'int' cannot be sliced");
    VAL_RUN(val_equality);
    VAL_FAILS(val_no_order, "str");
    VAL_FAILS(val_no_order_dict, "dict");
    VAL_RUN(val_sorting);
    VAL_RUN(val_dicts);
    VAL_RUN(val_walks);
    VAL_FAILS(val_walk_int, "int");
    VAL_FAILS(val_len_none, "NoneType");
    VAL_FAILS(val_use_undef, "'name' is undefined");
    VAL_FAILS(val_expect_str, "a text was expected, got 'int'");
    CHECK(val_walk(val_too_many, NULL) == LLM_ERR_LIMIT && val_walk(val_too_deep, NULL) == LLM_ERR_LIMIT &&
          val_walk(val_too_long, NULL) == LLM_ERR_LIMIT);
    VAL_RUN(val_deep_enough);
    VAL_RUN(val_truth);
    VAL_RUN(val_printing);
    VAL_RUN(val_texts);
    VAL_RUN(val_members);
    VAL_FAILS(val_member_undef, "'z' is undefined");
    val_rows();
    VAL_RUN(val_calls);
    VAL_FAILS(val_call_twice, "sort: two values for 'reverse'");
    VAL_FAILS(val_call_other, "sort: unexpected argument");
    VAL_FAILS(val_call_many, "sort: unexpected argument");
    VAL_FAILS(val_call_none, "no such filter at nosuch");
    VAL_FAILS(val_call_missing, "divisibleby: 'num' is missing");
    VAL_FAILS(val_int_text, "a whole number was expected, got 'str'");
    val_lexer();
    VAL_RUN(val_lex_all);
    val_expressions();
    val_walks_of_templates();
}
