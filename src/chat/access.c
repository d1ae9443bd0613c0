#include "chat/access.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/text.h"
#include "chat/template.h"
#include "chat/values.h"
#include "chat/functions.h"

/* loop.index and its like. UNSET if there is none of that name. */
static llm__val llm__tpl_loop_attr(const llm__vobject *l, llm__str name) {
    const int n = l->items->n, at = l->at, value[] = {at + 1, at, n - at, n - at - 1, n, 1, 0, at == 0, at == n - 1};
    int i = llm__word_index("index index0 revindex revindex0 length depth depth0 first last previtem nextitem", name);
    if (i == 9) return at ? l->items->v[at - 1] : llm__v_undef(llm__lit("loop.previtem"));
    if (i == 10) return at + 1 < n ? l->items->v[at + 1] : llm__v_undef(llm__lit("loop.nextitem"));
    return i < 0 ? llm__v(LLM__V_UNSET) : llm__v_num(i < 7 ? LLM__V_INT : LLM__V_BOOL, value[i]);
}

/* What Python's getattr finds on a value; UNSET if nothing. A method is bound to its value: "a b".split alone is a value too. */
static llm__val llm__tpl_python_attr(llm__tpl *x, llm__val v, llm__str name) {
    const llm__tpl_row *row = llm__tpl_named(1 << v.type, name);
    const llm__val *found = v.type == LLM__V_NAMESPACE ? llm__tpl_dict_find(x, v.as.list, llm__v_str(name)) : NULL;
    if (found) return *found;
    if (v.type == LLM__V_LOOP) return llm__tpl_loop_attr(v.as.object, name);
    if (v.type == LLM__V_MACRO && llm__str_eq(name, "name")) return v.as.object->self;
    if (!row) return llm__v(LLM__V_UNSET);
    llm__val f = llm__tpl_object(x, LLM__V_FUNC);
    f.as.object->row = row;
    f.as.object->self = v;
    return f;
}

/* What Python's v[key] finds. UNSET where Python raises TypeError, IndexError or KeyError. */
static llm__val llm__tpl_python_item(llm__tpl *x, llm__val v, llm__val key) {
    if (v.type == LLM__V_DICT && !LLM__V_IN(key, LLM__M_NO_KEY)) {
        const llm__val *found = llm__tpl_dict_find(x, v.as.list, key);
        return found ? *found : llm__v(LLM__V_UNSET);
    }
    if (!LLM__V_IN(key, LLM__M_INT) || !LLM__V_IN(v, LLM__M_SLICED)) return llm__v(LLM__V_UNSET);
    int64_t n = llm__tpl_len(x, v), i = (int64_t)key.as.f + (key.as.f < 0 ? n : 0);
    if (i < 0 || i >= n) return llm__v(LLM__V_UNSET);
    return v.type == LLM__V_STR ? llm__v_str(llm__tpl_part(llm__v_s(v), i, i + 1)) : v.as.list->v[i];
}

LLM__PRIVATE llm__val llm__tpl_member_of(llm__tpl *x, llm__val v, llm__val key, int op) {
    llm__val r = llm__v(LLM__V_UNSET);
    llm__tpl_defined(x, v);
    for (int turn = 0; turn < 2 && r.type == LLM__V_UNSET; turn++) {
        if (turn == (op == '.')) r = llm__tpl_python_item(x, v, key);
        else if (key.type == LLM__V_STR) r = llm__tpl_python_attr(x, v, llm__v_s(key));
    }
    return r.type != LLM__V_UNSET ? r : llm__v_undef(key.type == LLM__V_STR ? llm__v_s(key) : llm__lit("item"));
}

LLM__PRIVATE llm__val llm__tpl_pick(llm__tpl *x, llm__val item, llm__val attribute, llm__val absent) {
    if (LLM__V_IN(attribute, LLM__M_ABSENT)) return item;
    if (attribute.type != LLM__V_STR) return llm__tpl_member_of(x, item, attribute, '[');
    for (llm__str path = llm__v_s(attribute); path.p;) {
        const size_t n = llm__str_until(path, ".");
        const llm__str key_text = llm__s(path.p, n);
        llm__val key = llm__v_str(key_text);
        if (n && strspn(path.p, "0123456789") >= n) key = llm__v_digits(key_text);
        item = llm__tpl_member_of(x, item, key, '[');
        if (item.type == LLM__V_UNDEF && !LLM__V_IN(absent, LLM__M_ABSENT)) item = absent;
        path = n < path.n ? llm__str_from(path, n + 1) : llm__s(NULL, 0);
    }
    return item;
}

/* A bound of a slice within n items, as Python moves it; `absent` where it is left out. */
static int64_t llm__tpl_bound(llm__tpl *x, llm__val v, int64_t n, int64_t lower, int64_t upper, int64_t absent) {
    if (LLM__V_IN(v, LLM__M_ABSENT)) return absent;
    if (!LLM__V_IN(v, LLM__M_INT)) llm__tpl_fail(x, "the bounds of a slice must be whole numbers");
    int64_t i = (int64_t)v.as.f + (v.as.f < 0 ? n : 0);
    return i < lower ? lower : i > upper ? upper : i;
}

LLM__PRIVATE llm__val llm__tpl_slice(llm__tpl *x, llm__val v, const llm__val *bound) {
    if (!LLM__V_IN(v, LLM__M_SLICED)) llm__tpl_fail(x, "'%s' cannot be sliced", llm__v_type_name(v));
    /* Python's slice.indices: for a step upwards both bounds lie in 0 ... n, downwards in -1 ... n - 1, where -1 is before the first. */
    int64_t n = llm__tpl_len(x, v), by = llm__tpl_bound(x, bound[2], 0, INT64_MIN, INT64_MAX, 1), lower = by > 0 ? 0 : -1,
            upper = by > 0 ? n : n - 1;
    int64_t i = llm__tpl_bound(x, bound[0], n, lower, upper, by > 0 ? lower : upper),
            end = llm__tpl_bound(x, bound[1], n, lower, upper, by > 0 ? upper : lower);
    if (by == 0) llm__tpl_fail(x, "the step of a slice is 0");
    if (v.type == LLM__V_STR && by == 1) return llm__v_str(llm__tpl_part(llm__v_s(v), i, end)); /* a view, without a copy */
    const llm__vlist *all = llm__tpl_iter(x, v);
    llm__vlist *l = llm__tpl_empty(x);
    const size_t mark = x->text.len;
    while (by > 0 ? i < end : i > end) {
        if (v.type == LLM__V_STR) llm__tpl_put(x, llm__v_s(all->v[i]));
        else llm__tpl_push(x, l, all->v[i]);
        if (by > 0 ? by >= end - i : by <= end - i) break; /* the next would pass the end, perhaps beyond 64 bits */
        i += by;
    }
    return v.type == LLM__V_STR ? llm__tpl_take(x, mark) : llm__v_list(v.type == LLM__V_TUPLE ? LLM__V_TUPLE : LLM__V_LIST, l);
}

/* Python's `a in b`. */
static int llm__tpl_in(llm__tpl *x, llm__val a, llm__val b) {
    if (b.type == LLM__V_STR) {
        if (a.type != LLM__V_STR) llm__tpl_fail(x, "a text was expected before 'in', got '%s'", llm__v_type_name(a));
        llm__tpl_spend(x, 1 + b.n / 16);
        return llm__tpl_find(llm__v_s(b), llm__v_s(a), 1) >= 0;
    }
    if (b.type == LLM__V_DICT) return llm__tpl_dict_find(x, b.as.list, a) != NULL;
    const llm__vlist *l = llm__tpl_iter(x, b);
    for (int i = 0; i < l->n; i++)
        if (llm__tpl_equal(x, l->v[i], a)) return 1;
    return 0;
}

/* ---- operators ----
 * Whole numbers are doubles here; beyond 2^53, where Python would go on, it is an error, never a wrong number. Bools count as 0 and 1.
 * Division by / is a float always; // and % round down, to minus infinity, where C goes to zero: -7 // 2 is -4 and -7 % 2 is 1. */

LLM__PRIVATE LLM__NORETURN void llm__tpl_overflow(llm__tpl *x) { llm__tpl_fail(x, "a whole number is beyond 2^53"); }

/* Numbers. The result is whole if both are, but for 1 / 2 and 2 ** -1. */
static llm__val llm__tpl_arith_num(llm__tpl *x, int op, llm__val a, llm__val b) {
    const double p = a.as.f, q = b.as.f;
    const int whole = a.type != LLM__V_FLOAT && b.type != LLM__V_FLOAT && op != '/' && !(op == 'P' && q < 0);
    double rest = op == 'D' || op == '%' ? fmod(p, q) : 0, r = p;
    if ((q == 0 && strchr("/D%", op)) || (p == 0 && q < 0 && op == 'P')) llm__tpl_fail(x, "division by zero");
    /* C's remainder has the sign of p, Python's that of q. */
    if (rest != 0 && (rest < 0) != (q < 0)) rest += q;
    switch (op) {
    case '+': r = p + q; break;
    case '-': r = p - q; break;
    case '*': r = p * q; break;
    case '/': r = p / q; break;
    case '%': r = rest == 0 ? copysign(0, q) : rest; break;
    case 'D': r = p - rest != 0 ? floor((p - rest) / q + 0.5) : copysign(0, p / q); break;
    default: r = pow(p, q);
    }
    if (whole && !(fabs(r) <= (double)LLM__TPL_INT)) llm__tpl_overflow(x);
    /* from finite numbers to infinity or NaN: Python raises */
    if (op == 'P' && r - r != 0 && p - p == 0 && q - q == 0) llm__tpl_fail(x, "a power is out of range");
    return whole ? llm__v_int((int64_t)r) : llm__v_float(r);
}

LLM__PRIVATE llm__val llm__tpl_arith(llm__tpl *x, int op, llm__val a, llm__val b) {
    const size_t mark = x->text.len;
    if (LLM__V_IN(a, LLM__M_NUMBER) && LLM__V_IN(b, LLM__M_NUMBER) && op != '~') return llm__tpl_arith_num(x, op, a, b);
    if (op == '~' || (op == '+' && a.type == LLM__V_STR && b.type == LLM__V_STR)) {
        const int safe = op == '+' && (a.flag || b.flag);
        llm__tpl_print(x, safe ? llm__tpl_escape(x, a) : a);
        llm__tpl_print(x, safe ? llm__tpl_escape(x, b) : b);
        llm__val v = llm__tpl_take(x, mark);
        v.flag = (uint8_t)safe;
        return v;
    }
    llm__tpl_defined(x, a);
    llm__tpl_defined(x, b);
    if (op == '+' && a.type == b.type && LLM__V_IN(a, LLM__M_ROW)) {
        llm__vlist *l = llm__tpl_list_of(x, a);
        llm__tpl_push_all(x, l, b.as.list->v, b.as.list->n);
        return llm__v_list((llm__vtype)a.type, l);
    }
    if (op == '*' && LLM__V_IN(a, LLM__M_INT)) { /* 2 * "a" is "a" * 2 */
        const llm__val swap = a;
        a = b;
        b = swap;
    }
    if (op == '*' && LLM__V_IN(b, LLM__M_INT) && a.type == LLM__V_STR) {
        llm__tpl_repeat(x, llm__v_s(a), (int64_t)b.as.f);
        return llm__tpl_take(x, mark);
    }
    if (op == '*' && LLM__V_IN(b, LLM__M_INT) && LLM__V_IN(a, LLM__M_ROW)) {
        llm__vlist *l = llm__tpl_empty(x);
        for (int64_t k = 0; a.as.list->n && k < b.as.f; k++) llm__tpl_push_all(x, l, a.as.list->v, a.as.list->n);
        return llm__v_list((llm__vtype)a.type, l);
    }
    if (a.type == LLM__V_BIG || b.type == LLM__V_BIG) llm__tpl_overflow(x);
    const char *sign = op == 'D' ? "//" : op == 'P' ? "**" : "";
    llm__tpl_fail(x, "'%s' and '%s' cannot be combined by '%s%c'", llm__v_type_name(a), llm__v_type_name(b), sign, *sign ? ' ' : op);
}

LLM__PRIVATE llm__val llm__tpl_signed(llm__tpl *x, int op, llm__val v) {
    llm__tpl_defined(x, v);
    if (v.type == LLM__V_BIG) llm__tpl_overflow(x);
    if (!LLM__V_IN(v, LLM__M_NUMBER)) llm__tpl_fail(x, "'%s' cannot have a sign", llm__v_type_name(v));
    return llm__tpl_arith(x, '*', v, llm__v_int(op == '-' ? -1 : 1));
}

LLM__PRIVATE int llm__tpl_compare(llm__tpl *x, int op, llm__val a, llm__val b) {
    if (op == 'I' || op == 'J') return llm__tpl_in(x, a, b) == (op == 'I');
    if (op == 'E' || op == 'N') return llm__tpl_equal(x, a, b) == (op == 'E');
    int order = llm__tpl_order(x, a, b);
    return op == '<' ? order < 0 : op == '>' ? order > 0 : op == 'L' ? order <= 0 : order >= 0;
}
