#include "chat/values.h"
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "base/map.h"
#include "text/unicode.h"
#include "text/unicode_tables.h"
#include "text/unicode_classes.h"
#include "tokenizer/encode.h"
#include "chat/template.h"

LLM__PRIVATE LLM__NORETURN LLM__PRINTF(3, 4) void llm__tpl_error(llm__tpl *x, llm_result r, const char *format, ...) {
    char message[400];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    x->err = llm__error(r, "template line %d: %s", x->line, message);
    longjmp(x->out, 1);
}

LLM__PRIVATE llm_result llm__tpl_guard(llm__tpl *x, void (*phase)(llm__tpl *x)) {
    if (!setjmp(x->out)) phase(x);
    return x->err;
}

LLM__PRIVATE void llm__tpl_spend(llm__tpl *x, int64_t n) {
    x->fuel -= n;
    if (x->fuel < 0) llm__tpl_error(x, LLM_ERR_LIMIT, "the template takes too many steps");
}

LLM__PRIVATE void *llm__tpl_get(llm__tpl *x, size_t bytes) {
    void *p = llm__arena_get(x->arena, bytes);
    const int limit = !p && x->arena->limit && bytes > x->arena->limit - LLM__MIN(x->arena->total, x->arena->limit);
    if (!p) llm__tpl_error(x, limit ? LLM_ERR_LIMIT : LLM_ERR_NOMEM, limit ? "the template takes too much memory" : "out of memory");
    return p;
}

LLM__PRIVATE void llm__tpl_enter(llm__tpl *x) {
    if (++x->depth > (x->made ? LLM__TPL_DEPTH : LLM__TPL_RUN_DEPTH))
        llm__tpl_error(x, x->made ? LLM_ERR_TEMPLATE : LLM_ERR_LIMIT, "nesting is too deep");
}

/* ---- making values ---- */

LLM__PRIVATE llm__val llm__v(llm__vtype type) {
    llm__val v = LLM__ZERO;
    v.type = (uint8_t)type;
    return v;
}

LLM__PRIVATE llm__val llm__v_num(llm__vtype type, double f) {
    llm__val v = llm__v(type);
    v.as.f = f;
    return v;
}

LLM__PRIVATE llm__val llm__v_int(int64_t i) { return llm__v_num(LLM__V_INT, (double)i); }
LLM__PRIVATE llm__val llm__v_bool(int b) { return llm__v_num(LLM__V_BOOL, b != 0); }
LLM__PRIVATE llm__val llm__v_float(double f) { return llm__v_num(LLM__V_FLOAT, f); }

/* A text, or another type that has one, whose bytes live long enough already. Undefined has a name for the error when it is used: jinja2
 * says which of a.b.c was missing only when d is asked of it. */
static llm__val llm__v_text(llm__vtype type, llm__str s) {
    llm__val v = llm__v(type);
    v.as.s = s.p;
    v.n = (uint32_t)s.n;
    return v;
}

LLM__PRIVATE llm__val llm__v_str(llm__str s) { return llm__v_text(LLM__V_STR, s); }
LLM__PRIVATE llm__val llm__v_undef(llm__str name) { return llm__v_text(LLM__V_UNDEF, name); }

LLM__PRIVATE llm__str llm__v_s(llm__val v) { return llm__s(v.n ? v.as.s : "", v.n); }

LLM__PRIVATE llm__val llm__v_digits(llm__str s) {
    int64_t i;
    return llm__parse_int(s.p, s.n, &i) && i <= LLM__TPL_INT && i >= -LLM__TPL_INT ? llm__v_int(i) : llm__v_text(LLM__V_BIG, s);
}

LLM__PRIVATE llm__val llm__v_list(llm__vtype type, llm__vlist *list) {
    llm__val v = llm__v(type);
    v.as.list = list;
    return v;
}

LLM__PRIVATE llm__val llm__tpl_object(llm__tpl *x, llm__vtype type) {
    llm__val v = llm__v(type);
    v.as.object = (llm__vobject *)llm__tpl_get(x, sizeof *v.as.object);
    return v;
}

LLM__PRIVATE llm__val llm__tpl_copy(llm__tpl *x, llm__vtype type, llm__str s) {
    llm__tpl_spend(x, (int64_t)(s.n / 64));
    char *p = (char *)llm__tpl_get(x, s.n + 1);
    if (s.n) memcpy(p, s.p, s.n);
    return llm__v_text(type, llm__s(p, s.n));
}

LLM__PRIVATE void llm__tpl_push_all(llm__tpl *x, llm__vlist *l, const llm__val *v, int32_t n) {
    llm__tpl_spend(x, n);
    if (n > l->cap - l->n) {
        int64_t cap = LLM__MAX((int64_t)l->n * 2, LLM__MAX((int64_t)l->n + n, 4));
        if (cap > INT32_MAX) llm__tpl_error(x, LLM_ERR_LIMIT, "the template takes too much memory");
        llm__val *p = (llm__val *)llm__tpl_get(x, (size_t)cap * sizeof *p);
        if (l->n) memcpy(p, l->v, (size_t)l->n * sizeof *p);
        l->v = p;
        l->cap = (int32_t)cap;
    }
    if (n) memcpy(l->v + l->n, v, (size_t)n * sizeof *v);
    l->n += n;
}

LLM__PRIVATE void llm__tpl_push(llm__tpl *x, llm__vlist *l, llm__val v) { llm__tpl_push_all(x, l, &v, 1); }

LLM__PRIVATE llm__vlist *llm__tpl_list(llm__tpl *x, const llm__val *v, int32_t n) {
    llm__vlist *l = (llm__vlist *)llm__tpl_get(x, sizeof *l);
    llm__tpl_push_all(x, l, v, n);
    return l;
}

LLM__PRIVATE llm__vlist *llm__tpl_empty(llm__tpl *x) { return llm__tpl_list(x, NULL, 0); }

LLM__PRIVATE const char *llm__v_type_name(llm__val v) {
    static const char *const name[] = {"missing", "undefined", "NoneType",  "bool",      "int",  "float",     "int",   "str",      "list",
                                       "tuple",   "range",     "dict view", "generator", "dict", "namespace", "macro", "function", "loop"};
    return name[v.type];
}

LLM__PRIVATE void llm__tpl_defined(llm__tpl *x, llm__val v) {
    if (v.type == LLM__V_UNDEF) llm__tpl_fail(x, "'%.*s' is undefined", (int)LLM__MIN(v.n, 80u), llm__v_s(v).p);
}

LLM__PRIVATE void llm__tpl_expect(llm__tpl *x, llm__val v, int mask, const char *what) {
    if (!LLM__V_IN(v, mask)) llm__tpl_fail(x, "%s was expected, got '%s'", what, llm__v_type_name(v));
}

/* ---- texts: code points and the classes of Python's str ----
 * Python counts code points, UTF-8 has bytes. No index is kept beside a text: s[i], len and slices walk from its begin, which is paid for
 * by its length, so a template that loops over s[i] is slow in fuel as it is in time. Searching and cutting work on bytes: in UTF-8 no
 * character is found in the middle of another. */

LLM__PRIVATE int llm__tpl_space(int32_t c) { return (c >= 28 && c <= 31) || llm__uni_space(c); }

LLM__PRIVATE int llm__tpl_digit(int32_t c) { return c >= '0' && c <= '9'; }

/* Python's str.isprintable for one code point: repr() escapes the others. */
static int llm__tpl_printable(int32_t c) { return c == ' ' || !llm__uni_in(c, LLM__CATS_C | LLM__CATS_Z); }

LLM__PRIVATE int32_t llm__tpl_upper(int32_t c) {
    static const int32_t more[] = {0xB5, 0x39C, 0x131, 'I', 0x17F, 'S', 0x3C2, 0x3A3};
    if (c < 128) return c >= 'a' && c <= 'z' ? c - 32 : c;
    for (int i = 0; i < LLM__COUNT(llm__uni_cases); i++) {
        const llm__uni_case_run *r = &llm__uni_cases[i];
        int32_t up = c - r->add;
        if ((r->which & 1) && up >= r->first && up <= r->last && (up - r->first) % r->stride == 0) return up;
    }
    for (int i = 0; i < LLM__COUNT(more); i += 2)
        if (more[i] == c) return more[i + 1];
    return c;
}

LLM__PRIVATE int llm__tpl_next_char(llm__tpl *x, llm__str *rest, int32_t *c) {
    int len;
    if (!rest->n) return 0;
    *c = llm__utf8_get(rest->p, rest->n, &len);
    llm__tpl_spend(x, (int64_t)(rest->n / 8 - (rest->n - (size_t)len) / 8));
    *rest = llm__str_from(*rest, (size_t)len);
    return 1;
}

/* The byte at which code point k starts; the end if there are fewer. */
static size_t llm__tpl_byte_of(llm__str s, int64_t k) {
    size_t i = 0;
    while (i < s.n && !((s.p[i] & 0xC0) != 0x80 && k-- == 0)) i++; /* where one begins, k counts down */
    return i;
}

LLM__PRIVATE llm__str llm__tpl_part(llm__str s, int64_t from, int64_t to) {
    llm__str rest = llm__str_from(s, llm__tpl_byte_of(s, from));
    return llm__s(rest.p, to > from ? llm__tpl_byte_of(rest, to - from) : 0);
}

LLM__PRIVATE int64_t llm__tpl_find(llm__str s, llm__str needle, int step) {
    const char *found = step > 0 && s.n ? llm__str_find(s, needle) : NULL;
    if (step > 0) return found ? found - s.p : needle.n ? -1 : 0;
    for (int64_t i = (int64_t)s.n - (int64_t)needle.n; i >= 0; i--)
        if (!memcmp(s.p + i, needle.p, needle.n)) return i;
    return -1;
}

LLM__PRIVATE llm__str llm__tpl_trim(llm__str s, int sides) { return llm__strip(s, sides, llm__tpl_space, llm__nothing); }

/* ---- building texts at the end of the output ----
 * x->text is the output. Whoever needs a text as a value notes x->text.len, writes on, and takes what stands behind the mark. Marks nest as
 * calls do. While {{ m(1) ~ "b" }} runs, where m writes A and "out" is there already, | being a mark:
 *
 *   out             m is called                                    out|Ab          ~ writes both operands behind a mark of its own
 *   out|A           it writes behind its mark                      out             which is taken off: Ab is a value
 *   out             which is taken off: A is a value               outAb           and printed
 *
 * So one buffer serves all that is built at a time, however deeply it is nested. */

LLM__PRIVATE void llm__tpl_put(llm__tpl *x, llm__str s) {
    llm__tpl_spend(x, (int64_t)(s.n / 64));
    if (s.n > x->text.limit - x->text.len) llm__tpl_error(x, LLM_ERR_LIMIT, "the output is over %zu bytes", x->text.limit);
    llm_text_add(&x->text, s.p, s.n);
    if (x->text.failed) llm__tpl_error(x, LLM_ERR_NOMEM, "out of memory");
}

LLM__PRIVATE void llm__tpl_puts(llm__tpl *x, const char *s) { llm__tpl_put(x, llm__lit(s)); }

LLM__PRIVATE void llm__tpl_repeat(llm__tpl *x, llm__str s, int64_t count) {
    for (; s.n && count > 0; count--) llm__tpl_spend(x, 1), llm__tpl_put(x, s);
}

LLM__PRIVATE llm__val llm__tpl_take(llm__tpl *x, size_t mark) {
    llm__val v = llm__tpl_copy(x, LLM__V_STR, llm__s(x->text.data ? x->text.data + mark : "", x->text.len - mark));
    x->text.len = mark;
    return v;
}

/* ---- truth, equality, order ----
 * The three questions that Python asks of any two values. Bool, int and float mix; all other types are equal or ordered only among
 * themselves. Lists may be deep (a namespace may even hold itself), so each level is counted. */

LLM__PRIVATE int llm__v_truth(llm__val v) {
    if (LLM__V_IN(v, LLM__M_ABSENT | LLM__M_UNDEF)) return 0;
    if (LLM__V_IN(v, LLM__M_NUMBER)) return v.as.f != 0;
    if (v.type == LLM__V_STR) return v.n != 0;
    return !LLM__V_IN(v, LLM__M_LISTED | LLM__M_DICT) || v.as.list->n != 0;
}

LLM__PRIVATE int llm__tpl_equal(llm__tpl *x, llm__val a, llm__val b) {
    llm__tpl_spend(x, 1);
    if (LLM__V_IN(a, LLM__M_NUMBER) && LLM__V_IN(b, LLM__M_NUMBER)) return a.as.f == b.as.f;
    if (a.type != b.type) return 0;
    if (LLM__V_IN(a, LLM__M_ABSENT | LLM__M_UNDEF)) return 1;
    if (LLM__V_IN(a, LLM__M_STR | LLM__M_BIG)) return llm__str_same(llm__v_s(a), llm__v_s(b));
    if (!LLM__V_IN(a, LLM__M_LISTED | LLM__M_DICT)) return a.as.list == b.as.list;
    const int dict = a.type == LLM__V_DICT, n = a.as.list->n;
    int same = n == b.as.list->n;
    llm__tpl_enter(x);
    for (int i = 0; same && i < n; i += 1 + dict) {
        const llm__val *v = dict ? llm__tpl_dict_find(x, b.as.list, a.as.list->v[i]) : &b.as.list->v[i];
        same = v && llm__tpl_equal(x, a.as.list->v[i + dict], *v);
    }
    x->depth--;
    return same;
}

LLM__PRIVATE int llm__tpl_order(llm__tpl *x, llm__val a, llm__val b) {
    int order = 0, i = 0;
    llm__tpl_spend(x, 1);
    llm__tpl_defined(x, a);
    llm__tpl_defined(x, b);
    if (LLM__V_IN(a, LLM__M_NUMBER) && LLM__V_IN(b, LLM__M_NUMBER)) return (a.as.f > b.as.f) - (a.as.f < b.as.f);
    if (a.type != b.type || !LLM__V_IN(a, LLM__M_ROW | LLM__M_STR))
        llm__tpl_fail(x, "'%s' and '%s' have no order", llm__v_type_name(a), llm__v_type_name(b));
    if (a.type == LLM__V_STR) return llm__str_order(llm__v_s(a), llm__v_s(b));
    const llm__vlist *p = a.as.list, *q = b.as.list;
    llm__tpl_enter(x);
    while (i < p->n && i < q->n && llm__tpl_equal(x, p->v[i], q->v[i])) i++;
    order = i < p->n && i < q->n ? llm__tpl_order(x, p->v[i], q->v[i]) : (p->n > q->n) - (p->n < q->n);
    x->depth--;
    return order;
}

LLM__PRIVATE void llm__tpl_sort(llm__tpl *x, llm__vlist *v, llm__vlist *key, int reverse) {
    for (int32_t i = 1; i < v->n; i++) {
        const llm__val item = v->v[i], by = key->v[i];
        int32_t lo = 0, hi = i;
        while (lo < hi) {
            int32_t mid = lo + (hi - lo) / 2;
            int order = llm__tpl_order(x, by, key->v[mid]);
            if (reverse ? order > 0 : order < 0) hi = mid;
            else lo = mid + 1;
        }
        llm__tpl_spend(x, (i - lo) / 16);
        memmove(v->v + lo + 1, v->v + lo, (size_t)(i - lo) * sizeof item);
        memmove(key->v + lo + 1, key->v + lo, (size_t)(i - lo) * sizeof by);
        v->v[lo] = item;
        key->v[lo] = by;
    }
}

/* ---- dicts, and walking through values ----
 * A dict is a list of key, value, key, value ... found by walking through. Chat templates have dicts of a few keys; a long one costs fuel
 * by its length. The tag of a key that is a text holds bits of its hash, so that nearly always the 16 bytes of the key itself say no. */

/* The tag of a key: 0 for what is no text. An error for what Python cannot hash. */
static uint16_t llm__tpl_tag(llm__tpl *x, llm__val key) {
    if (LLM__V_IN(key, LLM__M_NO_KEY)) llm__tpl_fail(x, "a '%s' cannot be a key", llm__v_type_name(key));
    return key.type == LLM__V_STR ? (uint16_t)llm__hash(key.as.s, key.n, 1) : 0;
}

LLM__PRIVATE llm__val *llm__tpl_dict_find(llm__tpl *x, const llm__vlist *d, llm__val key) {
    const uint16_t tag = llm__tpl_tag(x, key);
    llm__tpl_spend(x, d->n / 256);
    for (int i = 0; i < d->n; i += 2)
        if (d->v[i].tag == tag && llm__tpl_equal(x, d->v[i], key)) return &d->v[i + 1];
    return NULL;
}

LLM__PRIVATE void llm__tpl_dict_set(llm__tpl *x, llm__vlist *d, llm__val key, llm__val value) {
    llm__val *old = llm__tpl_dict_find(x, d, key);
    if (old) {
        *old = value;
        return;
    }
    key.tag = llm__tpl_tag(x, key);
    llm__tpl_push(x, d, key);
    llm__tpl_push(x, d, value);
}

LLM__PRIVATE llm__vlist *llm__tpl_view(llm__tpl *x, const llm__vlist *d, int which) {
    llm__vlist *l = llm__tpl_empty(x);
    for (int i = 0; i < d->n; i += 2)
        llm__tpl_push(x, l, which == 2 ? llm__v_list(LLM__V_TUPLE, llm__tpl_list(x, d->v + i, 2)) : d->v[i + which]);
    return l;
}

LLM__PRIVATE llm__vlist *llm__tpl_iter(llm__tpl *x, llm__val v) {
    if (LLM__V_IN(v, LLM__M_LISTED)) return v.as.list;
    if (v.type == LLM__V_DICT) return llm__tpl_view(x, v.as.list, 0);
    llm__vlist *l = llm__tpl_empty(x);
    if (v.type == LLM__V_GEN) {
        for (llm__vlist *from = v.as.list; from->at < from->n; from->at++) llm__tpl_push(x, l, from->v[from->at]);
    } else if (v.type == LLM__V_STR) {
        int32_t c;
        for (llm__str rest = llm__v_s(v), at = rest; llm__tpl_next_char(x, &rest, &c); at = rest)
            llm__tpl_push(x, l, llm__v_str(llm__s(at.p, at.n - rest.n)));
    } else if (v.type != LLM__V_UNDEF) {
        llm__tpl_fail(x, "'%s' cannot be walked through", llm__v_type_name(v));
    }
    return l;
}

LLM__PRIVATE llm__vlist *llm__tpl_list_of(llm__tpl *x, llm__val v) {
    const llm__vlist *all = llm__tpl_iter(x, v);
    return llm__tpl_list(x, all->v, all->n);
}

LLM__PRIVATE int64_t llm__tpl_len(llm__tpl *x, llm__val v) {
    if (v.type == LLM__V_UNDEF) return 0;
    if (v.type == LLM__V_STR) return llm__tpl_spend(x, v.n / 64), llm_text_chars(llm__v_s(v).p, v.n);
    if (LLM__V_IN(v, LLM__M_LISTED)) return v.as.list->n;
    if (v.type == LLM__V_DICT) return v.as.list->n / 2;
    llm__tpl_fail(x, "'%s' has no length", llm__v_type_name(v));
}

/* ---- values as text ----
 * Python has three ways to write a value: str(), what {{ }} prints; repr(), how things look inside of lists; and json.dumps(), the filter
 * tojson as transformers calls it. Containers, numbers and quoted texts are written alike, so one writer does all three: its style is NULL
 * for str(), and tells repr() and JSON apart by a few signs and words:
 *
 *   value           str()          repr()          json.dumps()
 *   text            a"b            'a"b'           "a\"b"
 *   None, True      None, True     None, True      null, true
 *   undefined       (nothing)      Undefined       an error
 *   1e22, inf       1e+22, inf     1e+22, inf      1e+22, Infinity
 *   list            its items as repr() has them   [1, "a"]
 *   tuple           (1, 'a')       (1, 'a')        [1, "a"]
 *   dict            {'k': 1}       {'k': 1}        {"k": 1} */

static const llm__tpl_style llm__tpl_repr = {0, 0, 0, {NULL, 0}, {", ", 2}, {": ", 2}};

/* json.dumps escapes nothing above the control characters, or with ensure_ascii all that is not ASCII. */
static int llm__tpl_any(int32_t c) { return c > 0; }
static int llm__tpl_ascii(int32_t c) { return c < 127; }

/* A text in quotes: repr() takes single ones unless only those are in the text. */
static void llm__tpl_put_quoted(llm__tpl *x, llm__str s, const llm__tpl_style *o) {
    const int twofold = o->json || (memchr(s.p, '\'', s.n) && !memchr(s.p, '"', s.n));
    llm__tpl_spend(x, (int64_t)(s.n / 16));
    llm__text_quoted(&x->text, s, twofold ? '"' : '\'', !o->json, !o->json ? llm__tpl_printable : o->ascii ? llm__tpl_ascii : llm__tpl_any);
    if (x->text.failed) llm__tpl_error(x, LLM_ERR_LIMIT, "the output is over %zu bytes, or memory", x->text.limit);
}

/* Where an indent is asked for, a new line. */
static void llm__tpl_write_line(llm__tpl *x, const llm__tpl_style *o, int level) {
    if (o->indent.p) llm__tpl_puts(x, "\n"), llm__tpl_repeat(x, o->indent, level);
}

/* A key in JSON is a text: numbers, true, false and null are put in quotes, other types are an error. */
static void llm__tpl_write_key(llm__tpl *x, llm__val key, const llm__tpl_style *o) {
    const char *quote = o->json && key.type != LLM__V_STR ? "\"" : "";
    if (*quote && !LLM__V_IN(key, LLM__M_NUMBER | LLM__M_BIG | 1 << LLM__V_NONE))
        llm__tpl_fail(x, "a '%s' cannot be a key in JSON", llm__v_type_name(key));
    llm__tpl_puts(x, quote);
    llm__tpl_write(x, key, o, 0);
    llm__tpl_puts(x, quote);
    llm__tpl_put(x, o->colon);
}

/* A container: brackets, items, commas; the nesting level counts the indents. */
static void llm__tpl_write_items(llm__tpl *x, llm__val v, const llm__tpl_style *o, int level) {
    static const char *const view[3] = {"dict_keys([", "dict_values([", "dict_items(["};
    const int dict = v.type == LLM__V_DICT || v.type == LLM__V_NAMESPACE, tuple = v.type == LLM__V_TUPLE && !o->json;
    llm__vlist *l = v.as.list, *pairs = dict && o->sort ? llm__tpl_view(x, l, 2) : NULL;
    /* Keys that have no order (1 and "a") are an error, as in json.dumps. */
    if (pairs) llm__tpl_sort(x, pairs, llm__tpl_view(x, l, 0), 0);
    const char *open = dict ? "{" : tuple ? "(" : "[", *close = dict ? "}" : !tuple ? "]" : l->n == 1 ? ",)" : ")";
    if (v.type == LLM__V_VIEW) open = view[v.flag], close = "])";
    if (v.type == LLM__V_NAMESPACE) open = "<Namespace {", close = "}>";
    llm__tpl_enter(x);
    llm__tpl_puts(x, open);
    for (int i = 0; i < l->n; i += 1 + dict) {
        const llm__val *item = pairs ? pairs->v[i / 2].as.list->v : &l->v[i];
        if (i) llm__tpl_put(x, o->comma);
        llm__tpl_write_line(x, o, level + 1);
        if (dict) llm__tpl_write_key(x, *item, o);
        llm__tpl_write(x, item[dict], o, level + 1);
    }
    if (l->n) llm__tpl_write_line(x, o, level);
    llm__tpl_puts(x, close);
    x->depth--;
}

LLM__PRIVATE void llm__tpl_write(llm__tpl *x, llm__val v, const llm__tpl_style *o, int level) {
    static const char *const word[2][6] = {{"None", "False", "True", "nan", "inf", "-inf"},
                                           {"null", "false", "true", "NaN", "Infinity", "-Infinity"}};
    const int json = o && o->json;
    char s[48];
    llm__tpl_spend(x, 1);
    if (v.type == LLM__V_NONE) {
        llm__tpl_puts(x, word[json][0]);
    } else if (v.type == LLM__V_BOOL) {
        llm__tpl_puts(x, word[json][1 + (v.as.f != 0)]);
    } else if (v.type == LLM__V_FLOAT && v.as.f - v.as.f != 0) {
        llm__tpl_puts(x, word[json][v.as.f != v.as.f ? 3 : v.as.f > 0 ? 4 : 5]);
    } else if (v.type == LLM__V_FLOAT) {
        llm__tpl_put(x, llm__s(s, (size_t)llm__format_double(v.as.f, s)));
    } else if (v.type == LLM__V_INT) {
        llm__tpl_put(x, llm__s(s, (size_t)snprintf(s, sizeof s, "%lld", (long long)v.as.f)));
    } else if (v.type == LLM__V_BIG || (v.type == LLM__V_STR && !o)) {
        llm__tpl_put(x, llm__v_s(v));
    } else if (v.type == LLM__V_STR) {
        llm__tpl_put_quoted(x, llm__v_s(v), o);
    } else if (json && !LLM__V_IN(v, LLM__M_ROW | LLM__M_DICT)) {
        llm__tpl_fail(x, "a value of type '%s' cannot be written as JSON", llm__v_type_name(v));
    } else if (LLM__V_IN(v, LLM__M_ROW | LLM__M_DICT | 1 << LLM__V_VIEW | 1 << LLM__V_NAMESPACE)) {
        llm__tpl_write_items(x, v, o ? o : &llm__tpl_repr, level);
    } else if (v.type == LLM__V_UNDEF) {
        llm__tpl_puts(x, o ? "Undefined" : "");
    } else {
        llm__tpl_puts(x, "<");
        llm__tpl_puts(x, llm__v_type_name(v));
        llm__tpl_puts(x, " object>");
    }
}

LLM__PRIVATE void llm__tpl_print(llm__tpl *x, llm__val v) { llm__tpl_write(x, v, NULL, 0); }

LLM__PRIVATE llm__val llm__tpl_str(llm__tpl *x, llm__val v) {
    size_t mark = x->text.len;
    if (v.type == LLM__V_STR) return v;
    llm__tpl_print(x, v);
    return llm__tpl_take(x, mark);
}

LLM__PRIVATE llm__str llm__tpl_str_of(llm__tpl *x, llm__val v) { return llm__v_s(llm__tpl_str(x, v)); }
