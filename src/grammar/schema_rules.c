#include "grammar/schema_rules.h"
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "text/regex.h"
#include "grammar/machine.h"
#include "grammar/schema.h"
#include "grammar/schema_numbers.h"
#include "grammar/schema_values.h"
#include "grammar/schema_strings.h"
#include "grammar/schema_arrays.h"
#include "grammar/schema_objects.h"

/* 1 if no document can satisfy both schemas, as far as it is plain to see: other types, or a property that both require with other
 * constants.
 * That is how unions are told apart in practice: {"kind": {"const": "circle"}, ...} or {"kind": {"const": "square"}, ...}, both requiring
 * kind. 0 means "not known to": of integer and number, or of two patterns, it says 0. depth: 4 levels of properties are looked into. */
static int llm__js_disjoint(llm__js *js, int a, int b, int depth) {
    llm__js_view x = LLM__ZERO, y = LLM__ZERO, px, py;
    (void)llm__gr_spend(js->b, 64);
    llm__js_bring(js, &x, -1, a, 0);
    llm__js_bring(js, &y, -1, b, 0);
    if (depth > 4 || !llm__js_expand(js, &x) || !llm__js_expand(js, &y)) return !js->b->failed && depth <= 4;
    int both = llm__js_types(js, &x) & llm__js_types(js, &y), listed = 0, given = 0, meet = 0;
    for (int k = 0; k < y.n; k++) listed |= llm__js_next_given(js, &y, k, -1, 0) >= 0;
    for (int i = 0; i < x.n && both && listed; i++) /* lists that have nothing in common */
        for (int p = llm__js_next_given(js, &x, i, -1, 0); p >= 0 && !js->b->failed; p = llm__js_next_given(js, &x, i, p, 0)) {
            llm_text t = llm__text_none();
            llm_json_write(js->doc, p, &t);
            if (t.failed) js->b->failed = llm__nomem();
            given = 1, meet |= llm__js_among(js, &y, llm__text_str(&t), 0);
            llm_text_free(&t);
        }
    if (!both || (given && !meet)) return 1;
    if (both != LLM__JS_OBJ) return 0;
    size_t n = 0, m = 0;
    int found = 0;
    llm__js_property *p = llm__js_properties(js, &x, &n), *q = llm__js_properties(js, &y, &m);
    for (size_t k = 0; k < m && !found; k++) found = q[k].required && !llm__js_property_view(js, &x, q[k].key, &px);
    for (size_t i = 0; i < n && !found; i++) {
        if (!p[i].required) continue;
        found = !llm__js_property_view(js, &y, p[i].key, &py); /* one requires what the other forbids */
        size_t k = 0;
        while (k < m && !llm__str_same(p[i].key, q[k].key)) k++;
        if (!found && k < m && q[k].required && p[i].view.n && py.n) found = llm__js_disjoint(js, p[i].view.node[0], py.node[0], depth + 1);
    }
    LLM_FREE(p);
    LLM_FREE(q);
    return found;
}

/* anyOf and oneOf (`flag`) of member i: each way with the rest of the view. Why oneOf needs more: it forbids what satisfies two ways. Where
 * no document can satisfy two, oneOf is anyOf; else each way denies the others, if they can be denied. n ways take n * n comparisons. */
static llm__gr_frag llm__js_fork(llm__js *js, const llm__js_view *v, int i, const char *key, int flag) {
    int list = llm__js_find(js, v, i, key);
    llm__gr_frag f = llm__gr_never;
    if (llm_json_type_of(js->doc, list) != LLM_JSON_ARRAY || !llm_json_size(js->doc, list))
        return llm__js_refuse(js, LLM_ERR_FORMAT, v->node[i], key, "a list of schemas expected");
    if (flag == LLM__JS_ONE && llm_json_size(js->doc, list) > 256)
        return llm__js_refuse(js, LLM_ERR_LIMIT, v->node[i], key, "at most 256 schemas expected");
    for (int one = llm_json_first(js->doc, list); one >= 0 && !js->b->failed; one = llm_json_next(js->doc, one)) {
        llm__js_view way = *v;
        way.used[i] |= (uint16_t)flag;
        llm__js_bring(js, &way, v->node[i], one, 0);
        for (int other = llm_json_first(js->doc, list); other >= 0 && flag == LLM__JS_ONE && !js->b->failed;
             other = llm_json_next(js->doc, other))
            if (other != one && !llm__js_disjoint(js, one, other, 0)) llm__js_bring(js, &way, -1, other, LLM__JS_NOT);
        if (!js->b->failed) f = llm__gr_alt(js->b, f, llm__js_rule(js, &way));
    }
    return f;
}

/* if, then and else of member i: what satisfies `if` and `then`, or denies `if` and satisfies `else`. */
static llm__gr_frag llm__js_if(llm__js *js, const llm__js_view *v, int i) {
    llm__gr_frag f = llm__gr_never;
    for (int no = 0; no < 2 && !js->b->failed; no++) {
        llm__js_view way = *v;
        int at = llm__js_find(js, v, i, no ? "else" : "then");
        way.used[i] |= LLM__JS_IF;
        llm__js_bring(js, &way, v->node[i], llm__js_find(js, v, i, "if"), no ? LLM__JS_NOT : 0);
        if (at >= 0) llm__js_bring(js, &way, v->node[i], at, 0);
        f = llm__gr_alt(js->b, f, llm__js_rule(js, &way));
    }
    return f;
}

/* What a view allows: a fork, given values, or one alternative for each type.
 * In this order, as each step makes the next one simpler: below a fork the view has one way more and one question less; where values are
 * given, types need not be built; each type then reads only its own keywords. */
static llm__gr_frag llm__js_body(llm__js *js, const llm__js_view *v) {
    static const struct {
        const char *text;
        int type;
    } words[] = {{"null", LLM__JS_NULL}, {"true", LLM__JS_BOOL}, {"false", LLM__JS_BOOL}};
    llm__gr_build *b = js->b;
    llm__gr_frag f = llm__gr_never;
    for (int i = 0; i < v->n; i++) {
        if (llm__js_find(js, v, i, "anyOf") >= 0 && !(v->used[i] & LLM__JS_ANY)) return llm__js_fork(js, v, i, "anyOf", LLM__JS_ANY);
        if (llm__js_find(js, v, i, "oneOf") >= 0 && !(v->used[i] & LLM__JS_ONE)) return llm__js_fork(js, v, i, "oneOf", LLM__JS_ONE);
        if (llm__js_find(js, v, i, "if") >= 0 && !(v->used[i] & LLM__JS_IF)) return llm__js_if(js, v, i);
    }
    for (int i = 0; i < v->n; i++) {
        llm__js_view rest = *v;
        int list = v->used[i] & LLM__JS_ENUM ? -1 : llm__js_find(js, v, i, "enum"),
            one = v->used[i] & LLM__JS_CONST ? -1 : llm__js_find(js, v, i, "const");
        if (list >= 0 && llm_json_type_of(js->doc, list) != LLM_JSON_ARRAY)
            return llm__js_refuse(js, LLM_ERR_FORMAT, v->node[i], "enum", "a list expected");
        rest.used[i] |= (uint16_t)(one >= 0 ? LLM__JS_CONST : LLM__JS_ENUM);
        if (list >= 0 || one >= 0) return llm__js_values(js, &rest, one >= 0 ? -1 : list, one);
    }
    int types = llm__js_types(js, v), numbers = LLM__JS_NUM | LLM__JS_INT;
    for (int i = 0; i < v->n; i++)
        for (int at = llm__js_next_given(js, v, i, -1, 1); at >= 0; at = llm__js_next_given(js, v, i, at, 1))
            if (types & llm__js_value_type(js, at) & (numbers | LLM__JS_ARR | LLM__JS_OBJ))
                return llm__js_refuse(js, LLM_ERR_UNSUPPORTED, at, NULL, "only strings, true, false and null can be denied");
    for (int k = 0; k < LLM__COUNT(words); k++)
        if (types & words[k].type && !llm__js_among(js, v, llm__lit(words[k].text), 1))
            f = llm__gr_alt(b, f, llm__gr_word(b, words[k].text));
    if (types & numbers) f = llm__gr_alt(b, f, llm__js_number(js, v, !(types & LLM__JS_NUM)));
    if (types & LLM__JS_STR) f = llm__gr_alt(b, f, llm__js_string(js, v));
    if (types & LLM__JS_ARR) f = llm__gr_alt(b, f, llm__js_array(js, v));
    if (types & LLM__JS_OBJ) f = llm__gr_alt(b, f, llm__js_object(js, v));
    return f;
}

LLM__PRIVATE llm__gr_frag llm__js_rule(llm__js *js, const llm__js_view *given) {
    llm__gr_build *b = js->b;
    llm__js_view v = *given;
    if (b->failed || !llm__js_expand(js, &v)) return llm__gr_never;
    for (int i = 1; i < v.n; i++) /* one order, so that equal views are found */
        for (int k = i; k > 0 && v.node[k] < v.node[k - 1]; k--) {
            int32_t node = v.node[k], by = v.by[k];
            uint16_t used = v.used[k];
            v.node[k] = v.node[k - 1], v.used[k] = v.used[k - 1], v.by[k] = v.by[k - 1];
            v.node[k - 1] = node, v.used[k - 1] = used, v.by[k - 1] = by;
        }
    for (int i = 0; i < v.n; i++) (void)llm__gr_spend(b, 64 + 16 * (size_t)llm_json_size(js->doc, v.node[i]));
    if (!llm__gr_spend(b, js->n_memo / 4)) return llm__gr_never;
    for (size_t i = 0; i < js->n_memo; i++)
        if (!memcmp(&js->memo[i].view, &v, sizeof v)) return js->memo[i].rule < 0 ? llm__gr_never : llm__gr_call(b, js->memo[i].rule);
    if (++js->depth > LLM__GR_MAX_NEST)
        return llm__js_refuse(js, LLM_ERR_LIMIT, v.n ? v.node[0] : 0, NULL, "nested more than 64 levels deep");
    if (!llm__grow((void **)&js->memo, &js->memo_cap, js->n_memo + 1, sizeof *js->memo)) return b->failed = llm__nomem(), llm__gr_never;
    size_t at = js->n_memo++;
    int32_t rule = llm__gr_rule(b);
    js->memo[at].view = v, js->memo[at].rule = rule;
    b->levels = LLM__MAX(b->levels, js->depth);
    llm__gr_frag body = llm__js_body(js, &v);
    js->depth--;
    llm__gr_rule_is(b, rule, body);
    if (body.in < 0) js->memo[at].rule = -1;
    return body.in < 0 ? llm__gr_never : llm__gr_call(b, rule);
}

LLM__PRIVATE llm__gr_frag llm__js_value(llm__js *js, const llm__js_view *v) {
    llm__gr_frag f = llm__js_rule(js, v);
    if (f.in >= 0 && !js->b->failed) js->b->g->op[f.in].max = 1;
    return f;
}

LLM__PRIVATE llm__gr_frag llm__js_frag(llm__gr_build *b, const llm_json *doc, int node, const char *space) {
    llm__js js = LLM__ZERO;
    llm__js_view v = LLM__ZERO;
    js.b = b, js.doc = doc, js.space = space, js.root = node;
    llm__js_bring(&js, &v, -1, node, 0);
    llm__gr_frag f = llm__js_value(&js, &v);
    llm__regex_close(js.pattern);
    LLM_FREE(js.memo);
    return f;
}
