#include "chat/calls.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/text.h"
#include "chat/template.h"
#include "chat/values.h"
#include "chat/functions.h"

LLM__PRIVATE const llm__val *llm__args_named(llm__tpl *x, const llm__args *g, llm__str name) {
    return g->named.n ? llm__tpl_dict_find(x, &g->named, llm__v_str(name)) : NULL;
}

/* Puts arguments in the order of a spec, out[i] for its i-th name. With sort's spec "reverse case_sensitive attribute":
 *
 *   sort(true, attribute="a")     out = true, UNSET, "a"
 *   sort(true, reverse=true)      two values for 'reverse'
 *   sort(true, key="a")           unexpected argument: two were given, and the spec used one
 *
 * An error if they do not fit: a value too many or twice, one that is missing, a name that is not in the spec. */
static void llm__tpl_arrange(llm__tpl *x, const llm__tpl_row *e, const llm__args *g, llm__val *out) {
    const int shown = (int)strcspn(e->names, " ");
    int n = 0, used = 0;
    for (const char *s = e->spec; *s; n++) {
        llm__str name = llm__s(s, strcspn(s, " !")); /* "-prefix" with its dash: no caller can write that name */
        /* by name, unless a value by position stands there already */
        const llm__val *v = llm__args_named(x, g, name);
        if (v && n < g->pos.n) llm__tpl_fail(x, "%.*s: two values for '%.*s'", shown, e->names, (int)name.n, s);
        if (n < g->pos.n) v = &g->pos.v[n];
        if (v) out[n] = *v, used++;
        else if (s[name.n] == '!') llm__tpl_fail(x, "%.*s: '%.*s' is missing", shown, e->names, (int)name.n, s);
        s += name.n + (s[name.n] == '!');
        s += *s == ' ';
    }
    if (used != g->pos.n + g->named.n / 2) llm__tpl_fail(x, "%.*s: unexpected argument", shown, e->names);
}

LLM__PRIVATE llm__val llm__tpl_apply(llm__tpl *x, const llm__tpl_row *row, llm__val self, const llm__args *g) {
    llm__val a[LLM__TPL_MAX_ARGS] = LLM__ZERO;
    const size_t mark = x->text.len;
    llm__tpl_spend(x, 1);
    if (row->spec) llm__tpl_arrange(x, row, g, a);
    llm__val v = row->fn(x, self, a, g, row->op);
    return v.type == LLM__V_UNSET ? llm__tpl_take(x, mark) : v;
}

LLM__PRIVATE const llm__tpl_row *llm__tpl_row_of(llm__tpl *x, int where, llm__str name) {
    const llm__tpl_row *row = llm__tpl_named(where, name);
    if (!row) llm__tpl_fail(x, "no such %s at %.*s", where == LLM__IN_TEST ? "test" : "filter", (int)LLM__MIN(name.n, (size_t)40), name.p);
    return row;
}

LLM__PRIVATE llm__args llm__args_after(const llm__args *g, int k) {
    llm__args rest = *g;
    k = LLM__MIN(k, g->pos.n);
    if (k) rest.pos.v += k; /* there may be none at all */
    rest.pos.n -= k;
    return rest;
}

LLM__PRIVATE int64_t llm__arg_int(llm__tpl *x, llm__val v, int64_t absent) {
    if (v.type == LLM__V_UNSET) return absent;
    llm__tpl_expect(x, v, LLM__M_INT, "a whole number");
    return (int64_t)v.as.f;
}

LLM__PRIVATE llm__str llm__arg_text(llm__tpl *x, llm__val v) {
    llm__tpl_expect(x, v, LLM__M_STR, "a text");
    return llm__v_s(v);
}

LLM__PRIVATE llm__str llm__arg_str(llm__tpl *x, llm__val v, const char *absent) {
    return LLM__V_IN(v, LLM__M_ABSENT) ? llm__s(absent, absent ? strlen(absent) : 0) : llm__arg_text(x, v);
}
