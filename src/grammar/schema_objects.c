#include "grammar/schema_objects.h"
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "api/grammar.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "text/regex.h"
#include "text/regex_match.h"
#include "grammar/machine.h"
#include "grammar/finish.h"
#include "grammar/grammar_regex.h"
#include "grammar/schema.h"
#include "grammar/schema_values.h"
#include "grammar/schema_strings.h"
#include "grammar/schema_rules.h"

/* 1 if the pattern (a key of patternProperties) is found in a property's name; -1: it is no regex. */
static int llm__js_key_matches(llm__js *js, int property, llm__str key) {
    size_t from, to;
    llm__rx_run run = LLM__ZERO;
    if (!js->pattern || js->pattern_of != property) {
        llm__regex_close(js->pattern);
        js->pattern = llm__gr_regex_read(js->b, llm__json_key(js->doc, property), LLM__RX_UNICODE);
        js->pattern_of = property;
    }
    if (!js->pattern) return -1;
    llm__rx_begin(&run, js->pattern, key.p, key.n);
    int hit = llm__rx_next(&run, &from, &to) > 0;
    (void)llm__gr_spend(js->b, (size_t)run.steps);
    llm__rx_end(&run);
    return hit;
}

/* A property's schema in an object of them; -1: it is not there, or the property has no name. */
static int llm__js_schema_of(const llm__js *js, int schemas, llm__str key) { return key.p ? llm__json_member(js->doc, schemas, key) : -1; }

LLM__PRIVATE int llm__js_property_view(llm__js *js, const llm__js_view *v, llm__str key, llm__js_view *out) {
    int said[LLM__JS_VIEW];
    memset(out, 0, sizeof *out);
    for (int i = 0; i < v->n && !js->b->failed; i++) {
        int no = llm__js_find_not(js, v, i, "properties"), yes = 1, at = llm__js_schema_of(js, no, key), matched = 0;
        llm__str name = llm__json_text(js->doc, llm_json_first(js->doc, llm__js_find_not(js, v, i, "required")));
        (void)llm__gr_spend(js->b, 16 + (size_t)llm_json_size(js->doc, llm__js_find(js, v, i, "properties")) / 4);
        if (at >= 0) llm__js_bring(js, out, -1, at, LLM__JS_NOT);
        else if (no < 0 && name.p && key.p && llm__str_same(name, key)) return 0;
        if ((at = llm__js_schema_of(js, llm__js_find(js, v, i, "properties"), key)) >= 0) llm__js_bring(js, out, -1, at, 0), matched = 1;
        for (int p = llm_json_first(js->doc, llm__js_find(js, v, i, "patternProperties")); p >= 0 && !js->b->failed;
             p = llm_json_next(js->doc, p))
            if (llm__js_key_matches(js, p, key) > 0) llm__js_bring(js, out, -1, p, 0), matched = 1;
        at = matched ? -1 : llm__js_find(js, v, i, "additionalProperties");
        if (llm_json_bool(js->doc, at, &yes) && !yes) return 0;
        if (at >= 0) llm__js_bring(js, out, -1, at, 0);
        said[i] = matched || at >= 0;
    }
    for (int i = 0, at; i < v->n && !js->b->failed; i++) {
        int yes = 1, evaluated = 0;
        if ((at = llm__js_find(js, v, i, "unevaluatedProperties")) < 0) continue;
        for (int k = 0; k < v->n; k++) evaluated |= said[k] && llm__js_within_of(v, k, v->node[i]);
        if (!evaluated && llm_json_bool(js->doc, at, &yes) && !yes) return 0;
        if (!evaluated) llm__js_bring(js, out, -1, at, 0);
    }
    return 1;
}

/* What the names of properties must satisfy, all members together. Returns how many schemas that are. */
static int llm__js_names(llm__js *js, const llm__js_view *v, llm__js_view *out) {
    memset(out, 0, sizeof *out);
    for (int i = 0, at; i < v->n; i++)
        if ((at = llm__js_find(js, v, i, "propertyNames")) >= 0) llm__js_bring(js, out, -1, at, LLM__JS_KEY);
    return out->n;
}

/* The names of a list in propertyNames (an enum) that no listed property has. */
static llm__gr_frag llm__js_names_left(llm__js *js, const llm__js_view *names, int list, const llm__js_property *p, size_t n) {
    LLM__SCOPED(llm__gr_words_free) llm__gr_words w = LLM__ZERO;
    llm_grammar *trial = llm__js_trial(js, names);
    for (int at = llm_json_first(js->doc, list); at >= 0 && trial && !js->b->failed; at = llm_json_next(js->doc, at)) {
        const llm__str name = llm__json_text(js->doc, at);
        size_t begin = w.all.len, k = 0;
        while (k < n && !llm__str_same(name, p[k].key)) k++;
        if (!name.p || k < n) continue;
        llm_json_write(js->doc, at, &w.all);
        if (llm__js_passes(js, trial, llm__str_from(llm__text_str(&w.all), begin))) llm__gr_words_add(js->b, &w);
        else w.all.len = begin;
    }
    llm__gr_words_sort(&w, 0);
    if (trial) llm__grammar_free(trial);
    return w.n && !js->b->failed ? llm__gr_strings(js->b, w.word, w.n, 0, 0) : llm__gr_never;
}

/* The key of a property that nobody listed; p: the n listed ones. Any other name, or names that fit one pattern or propertyNames: those
 * must not fit a listed property, or it could be written again as another one, except where they are given one by one. view: of its
 * value. */
static llm__gr_frag llm__js_extra_key(llm__js *js, const llm__js_view *v, const llm__js_property *p, size_t n, llm__js_view *view) {
    llm__gr_build *b = js->b;
    llm__js_view names;
    int pattern = -1, patterns = 0, named = llm__js_names(js, v, &names), given = -1;
    for (int i = 0; i < v->n; i++) {
        int list = llm__js_find(js, v, i, "patternProperties");
        if (llm_json_size(js->doc, list)) patterns += llm_json_size(js->doc, list), pattern = llm_json_first(js->doc, list);
    }
    if (patterns > 1) return llm__js_refuse(js, LLM_ERR_UNSUPPORTED, pattern, NULL, "only one pattern of properties can be enforced");
    if (patterns && named) return llm__js_refuse(js, LLM_ERR_UNSUPPORTED, pattern, NULL, "cannot be enforced beside propertyNames");
    if (named && !llm__js_expand(js, &names)) return llm__gr_never;
    for (int i = 0; i < names.n && given < 0; i++) given = llm__js_find(js, &names, i, "enum");
    for (size_t i = 0; i < n && (patterns || named) && given < 0 && !b->failed; i++)
        if (patterns ? llm__js_key_matches(js, pattern, p[i].key) > 0 : p[i].named)
            return llm__js_refuse(js, LLM_ERR_UNSUPPORTED, patterns ? pattern : names.node[0], NULL,
                                  "cannot be enforced where a listed property fits it");
    if (patterns) {
        llm__js_bring(js, view, -1, pattern, 0);
        return llm__js_quoted(js, llm__gr_regex_frag(b, llm__json_key(js->doc, pattern), LLM__GR_IN_JSON));
    }
    if (!llm__js_property_view(js, v, llm__s(NULL, 0), view)) return llm__gr_never;
    if (named) return given < 0 ? llm__js_rule(js, &names) : llm__js_names_left(js, &names, given, p, n);
    llm__gr_words w = LLM__ZERO;
    for (size_t i = 0; i < n && !b->failed; i++) {
        llm_text_json(&w.all, p[i].key.p, p[i].key.n);
        llm__gr_words_add(b, &w);
    }
    return llm__js_quoted(js, llm__js_other(js, &w));
}

/* "key": value of a property that nobody listed. Never: there are none. They are made only if the schema asks for them
 * (additionalProperties true or a schema, a pattern, or nothing but "type": "object"): a model that may invent keys in every object invents
 * some. */
static llm__gr_frag llm__js_extra(llm__js *js, const llm__js_view *v, const llm__js_property *p, size_t n) {
    llm__js_view view = LLM__ZERO;
    int asked = js->lenient || (!n && llm__js_any(js, v, "additionalProperties") < 0 && llm__js_any(js, v, "properties") < 0);
    for (int i = 0; i < v->n; i++) {
        int more = llm__js_find(js, v, i, "additionalProperties"), yes = 1;
        asked |= llm_json_size(js->doc, llm__js_find(js, v, i, "patternProperties")) > 0;
        if (more >= 0 && (!llm_json_bool(js->doc, more, &yes) || yes)) asked = 1;
    }
    llm__gr_frag key = asked ? llm__js_extra_key(js, v, p, n, &view) : llm__gr_never;
    return llm__gr_seq(js->b, llm__gr_seq(js->b, key, llm__js_mark(js, ":")), llm__js_value(js, &view));
}

/* The property of a name among the n that were met before, or a new one. NULL: an error. */
static llm__js_property *llm__js_property_of(llm__js *js, llm__js_property **p, size_t *n, size_t *cap, llm__str key) {
    size_t k = 0;
    while (k < *n && !llm__str_same((*p)[k].key, key)) k++;
    if (!llm__gr_spend(js->b, k / 4)) return NULL;
    if (k < *n) return *p + k;
    if (k >= 4096) js->b->failed = llm__error(LLM_ERR_LIMIT, "JSON schema: an object with more than 4096 properties, fewer expected");
    else if (!llm__grow((void **)p, cap, k + 1, sizeof **p)) js->b->failed = llm__nomem();
    if (js->b->failed) return NULL;
    memset(*p + k, 0, sizeof **p);
    (*p)[k].key = key;
    *n = k + 1;
    return *p + k;
}

LLM__PRIVATE llm__js_property *llm__js_properties(llm__js *js, const llm__js_view *v, size_t *count) {
    static const struct {
        const char *key, *what;
        llm_json_type type;
    } lists[] = {{"properties", "an object expected", LLM_JSON_OBJECT}, {"required", "a list of names expected", LLM_JSON_ARRAY}};
    llm__js_property *p = NULL, *one;
    size_t cap = 0;
    *count = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < v->n && !js->b->failed; i++) {
            int list = llm_json_find(js->doc, v->node[i], lists[pass].key), no = v->used[i] & LLM__JS_NOT;
            if (list >= 0 && llm_json_type_of(js->doc, list) != lists[pass].type)
                llm__js_refuse(js, LLM_ERR_FORMAT, v->node[i], lists[pass].key, lists[pass].what);
            for (int at = llm_json_first(js->doc, list); at >= 0 && !js->b->failed; at = llm_json_next(js->doc, at)) {
                llm__str key = pass ? llm__json_text(js->doc, at) : llm__json_key(js->doc, at);
                if (!key.p) llm__js_refuse(js, LLM_ERR_FORMAT, v->node[i], "required", "names (strings) expected");
                else if ((one = llm__js_property_of(js, &p, count, &cap, key)) != NULL)
                    /* {"properties": ...} is only false of what is there */
                    one->required |= no ? !pass && llm_json_find(js->doc, v->node[i], "required") < 0 : pass;
            }
        }
    for (size_t k = 0; k < *count && !js->b->failed; k++) p[k].never = !llm__js_property_view(js, v, p[k].key, &p[k].view);
    return p;
}

/* Which of the n listed properties have a name that propertyNames lets through; the others must not be there. */
static void llm__js_name(llm__js *js, const llm__js_view *v, llm__js_property *p, size_t n) {
    llm__js_view names;
    llm_grammar *trial = llm__js_names(js, v, &names) && n && !js->b->failed ? llm__js_trial(js, &names) : NULL;
    for (size_t k = 0; k < n && trial; k++) {
        llm_text name = llm__text_none();
        llm_text_json(&name, p[k].key.p, p[k].key.n);
        p[k].named = llm__js_passes(js, trial, llm__text_str(&name));
        p[k].never |= !p[k].named;
        llm_text_free(&name);
    }
    if (trial) llm__grammar_free(trial);
}

/* What may follow when all listed properties are behind and c of them are written: others, then the end. n: of the listed ones; rule: one
 * of the others, -1: there are none. */
static llm__gr_frag llm__js_others(llm__js *js, const llm__js_view *v, size_t n, int32_t c, int32_t rule) {
    llm__gr_build *b = js->b;
    int64_t min = llm__js_count(js, v, "minProperties", 0, 0), max = llm__js_count(js, v, "maxProperties", 1, -1),
            need = LLM__MAX(0, min - c);
    int32_t left = max < 0 ? -1 : (int32_t)(max - c);
    if (need > 1 && rule >= 0 && !n)
        llm__js_refuse(js, LLM_ERR_UNSUPPORTED, v->node[0], "minProperties", "more than one property that is not listed cannot be counted");
    if ((max >= 0 && left < 0) || need > 1)
        return llm__gr_never; /* the same key twice would count once: no more than one can be demanded */
    if (rule < 0 || !left) return need ? llm__gr_never : llm__gr_empty(b);
    llm__gr_frag more = llm__gr_seq(b, llm__js_mark(js, ","), llm__gr_call(b, rule));
    if (c) return llm__gr_repeat(b, more, (int32_t)need, left);
    llm__gr_frag some = llm__gr_seq(b, llm__gr_call(b, rule), llm__gr_repeat(b, more, 0, left < 0 ? -1 : left - 1));
    return need ? some : llm__gr_alt(b, some, llm__gr_empty(b));
}

LLM__PRIVATE llm__gr_frag llm__js_object(llm__js *js, const llm__js_view *v) {
    llm__gr_build *b = js->b;
    int counted = llm__js_any(js, v, "minProperties") >= 0 || llm__js_any(js, v, "maxProperties") >= 0;
    size_t n = 0;
    llm__js_property *p = llm__js_properties(js, v, &n);
    llm__js_name(js, v, p, n);
    int32_t most = counted ? (int32_t)n : 1, row = most + 1, *at = LLM__NEW(int32_t, (n + 1) * (size_t)row), others = -1;
    if (!at && !b->failed) b->failed = llm__nomem();
    if (counted && n > 256) llm__js_refuse(js, LLM_ERR_LIMIT, v->node[0], "maxProperties", "at most 256 properties can be counted");
    llm__gr_frag f = llm__js_mark(js, "{"), end = llm__gr_seq(b, llm__js_space(js), llm__gr_word(b, "}")), extra = llm__gr_never;
    for (size_t i = 0; i < (n + 1) * (size_t)row && !b->failed; i++) at[i] = llm__gr_add(b, LLM__GR_SPLIT, 0, -1);
    if (!b->failed) extra = llm__js_extra(js, v, p, n);
    if (extra.in >= 0) llm__gr_rule_is(b, others = llm__gr_rule(b), extra);
    for (int32_t c = 0; c <= most && !b->failed; c++) {
        llm__gr_frag tail = llm__gr_seq(b, llm__js_others(js, v, n, c, others), llm__gr_empty(b));
        b->g->op[at[n * (size_t)row + (size_t)c]].next = tail.in;
        llm__gr_goto(b, tail, end.in);
    }
    for (size_t i = 0; i < n && !b->failed; i++) {
        llm_text key = llm__text_none();
        llm_text_json(&key, p[i].key.p, p[i].key.n);
        llm_text_str(&key, ":");
        llm__gr_frag value = p[i].never ? llm__gr_never : llm__js_value(js, &p[i].view);
        llm__gr_frag pair = llm__gr_seq(b, llm__gr_text(b, llm__text_str(&key)), llm__gr_seq(b, llm__js_space(js), value));
        int32_t rule = llm__gr_rule(b);
        llm__gr_rule_is(b, rule, pair);
        if (key.failed && !b->failed) b->failed = llm__nomem();
        llm_text_free(&key);
        for (int32_t c = 0; c <= LLM__MIN((int32_t)i, most) && !b->failed; c++) {
            int32_t *before = at + i * (size_t)row, *after = before + row;
            llm__gr_frag way = pair.in < 0 ? llm__gr_never : llm__gr_call(b, rule);
            if (c && way.in >= 0) way = llm__gr_seq(b, llm__js_mark(js, ","), way);
            llm__gr_goto(b, way, after[LLM__MIN(c + 1, most)]);
            b->g->op[before[c]].next = way.in;
            if (!p[i].required) b->g->op[before[c]].other = after[c];
        }
    }
    llm__gr_goto(b, f, b->failed ? -1 : at[0]);
    f.out = end.out;
    LLM_FREE(at);
    LLM_FREE(p);
    return b->failed ? llm__gr_never : f;
}
