#include "grammar/schema_arrays.h"
#include "api/config.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "grammar/machine.h"
#include "grammar/schema.h"
#include "grammar/schema_values.h"
#include "grammar/schema_rules.h"

/* What member i says of item k of a list: -1 nothing. *n: how many items it names one by one. In draft-07 `items` as a list is what
 * prefixItems is now, and additionalItems what `items` is. */
static int llm__js_item_of(const llm__js *js, const llm__js_view *v, int i, int k, int *n) {
    int items = llm__js_find(js, v, i, "items"), prefix = llm__js_find(js, v, i, "prefixItems");
    if (llm_json_type_of(js->doc, items) == LLM_JSON_ARRAY) prefix = items, items = llm__js_find(js, v, i, "additionalItems");
    *n = llm_json_size(js->doc, prefix);
    int at = k < *n ? llm_json_first(js->doc, prefix) : items;
    for (int j = 0; j < k && k < *n; j++) at = llm_json_next(js->doc, at);
    return at;
}

/* What all members say of item k. */
static llm__js_view llm__js_item_view(llm__js *js, const llm__js_view *v, int k) {
    llm__js_view item = LLM__ZERO;
    for (int i = 0, at, n; i < v->n; i++)
        if ((at = llm__js_item_of(js, v, i, k, &n)) >= 0) llm__js_bring(js, &item, -1, at, 0);
    return item;
}

/* Where what comes next in a list depends on what it holds already, the list is an automaton of states; state 0: nothing is read. Each is
 * two instructions. Those of state 0, which has no comma, are one. */
typedef struct llm__js_list_state {
    int32_t behind_item;  /* here the list ends or a comma comes */
    int32_t behind_comma; /* here the ways to other states begin */
} llm__js_list_state;

/* n states. NULL: an error; else freed by the caller. */
static llm__js_list_state *llm__js_list_states(llm__js *js, int32_t n) {
    llm__gr_build *b = js->b;
    llm__js_list_state *s = LLM__NEW(llm__js_list_state, n);
    if (!s) b->failed = llm__nomem();
    for (int32_t i = 0; i < n && s; i++) {
        s[i].behind_item = s[i].behind_comma = llm__gr_add(b, LLM__GR_SPLIT, 0, -1);
        if (!i) continue;
        s[i].behind_comma = llm__gr_add(b, LLM__GR_SPLIT, 0, -1);
        llm__gr_frag comma = llm__js_mark(js, ",");
        llm__gr_goto(b, comma, s[i].behind_comma);
        llm__gr_way(b, s[i].behind_item, comma.in);
    }
    return s;
}

/* A way from a state to another one, by an item (a rule; -1: there is none). */
static void llm__js_way(llm__js *js, llm__js_list_state from, int32_t rule, llm__js_list_state to) {
    if (rule < 0) return;
    llm__gr_frag item = llm__gr_call(js->b, rule);
    if (!js->b->failed) js->b->g->op[item.in].max = 1; /* as llm__js_value */
    llm__gr_goto(js->b, item, to.behind_item);
    llm__gr_way(js->b, from.behind_comma, item.in);
}

/* A rule of what a fragment matches; -1: nothing. */
static int32_t llm__js_rule_of(llm__js *js, llm__gr_frag f) {
    int32_t rule = f.in < 0 ? -1 : llm__gr_rule(js->b);
    if (f.in >= 0) llm__gr_rule_is(js->b, rule, f);
    return js->b->failed ? -1 : rule;
}

enum { LLM__JS_SET = 10, LLM__JS_STATES_MAX = 4096 };

/* The different values that the items of a list can have, each as a rule, if they are given or true, false and null. Returns how many, or
 * -1: too many, or they are not known. A number may be given twice, as 1 and 1.0. */
static int32_t llm__js_item_values(llm__js *js, const llm__js_view *given, int32_t rule[LLM__JS_SET]) {
    static const char *const words[] = {"null", "true", "false"};
    llm__js_view v = *given;
    LLM__SCOPED(llm__gr_words_free) llm__gr_words w = LLM__ZERO;
    llm__str seen[LLM__JS_SET];
    int32_t n = 0;
    if (!llm__js_expand(js, &v)) return 0;
    int types = llm__js_types(js, &v), list = -1, one = -1, other = types & ~(LLM__JS_NULL | LLM__JS_BOOL);
    for (int i = 0; i < v.n && list < 0 && one < 0; i++) {
        list = llm__js_find(js, &v, i, "enum"), one = llm__js_find(js, &v, i, "const");
        v.used[i] |= (uint16_t)(list >= 0 ? LLM__JS_ENUM : one >= 0 ? LLM__JS_CONST : 0);
    }
    for (int k = 0; k < LLM__COUNT(words) && list < 0 && one < 0 && !other; k++)
        if (types & (k ? LLM__JS_BOOL : LLM__JS_NULL) && !llm__js_among(js, &v, llm__lit(words[k]), 1))
            rule[n++] = llm__js_rule_of(js, llm__gr_word(js->b, words[k]));
    if (list < 0 && one < 0) return other ? -1 : n;
    if (llm__js_kept(js, &v, list, one, &w).in >= 0) n = -1;
    for (size_t i = 0; i < w.n && n >= 0 && !js->b->failed; i++) {
        int again = 0;
        double value, before;
        for (int32_t k = 0; k < n; k++)
            again |= llm__str_same(seen[k], w.word[i]) || (llm__parse_double(w.word[i].p, w.word[i].n, &value) &&
                                                           llm__parse_double(seen[k].p, seen[k].n, &before) && before == value);
        if (again) continue;
        if (n < LLM__JS_SET) seen[n] = w.word[i], rule[n] = llm__js_rule_of(js, llm__gr_text(js->b, w.word[i]));
        n = n < LLM__JS_SET ? n + 1 : -1;
    }
    return n;
}

/* The items of a list without equal ones: a state for every set of values that were written, as bits. For the values a and b:
 *
 *   {} --a--> {a} --, b--> {a, b}          {} --b--> {b} --, a--> {a, b}
 *
 * The number of items is that of the bits, so minItems and maxItems (-1: none) say which sets may end and which go on. */
static llm__gr_frag llm__js_set(llm__js *js, const llm__js_view *v, int owner, int64_t min, int64_t max) {
    llm__gr_build *b = js->b;
    int32_t rule[LLM__JS_SET], n_prefix = 0;
    llm__js_view item = llm__js_item_view(js, v, 0);
    for (int i = 0, n; i < v->n; i++, n_prefix = LLM__MAX(n_prefix, n)) (void)llm__js_item_of(js, v, i, 0, &n);
    int32_t n = n_prefix ? -1 : llm__js_item_values(js, &item, rule);
    if (n < 0)
        return llm__js_refuse(js, LLM_ERR_UNSUPPORTED, owner, "uniqueItems",
                              "can be enforced for at most 10 given values (or with maxItems 1)");
    llm__gr_frag f = llm__gr_empty(b);
    int32_t end = f.out;
    llm__js_list_state *state = llm__js_list_states(js, 1 << n);
    for (int32_t set = 0; set < 1 << n && !b->failed; set++) {
        int size = __builtin_popcount((unsigned)set);
        if (size >= min) b->g->op[state[set].behind_item].next = end;
        for (int32_t i = 0; i < n && (max < 0 || size < max); i++)
            if (!(set >> i & 1)) llm__js_way(js, state[set], rule[i], state[set | 1 << i]);
    }
    if (!b->failed) f.in = state[0].behind_item;
    LLM_FREE(state);
    return f;
}

/* The items of a list of which some (`contains`, minContains, maxContains) satisfy one more schema. A state for every pair of items and
 * matches so far; more than matter count as one. An item of the first kind may happen to satisfy the schema too: where there is no
 * maxContains that does no harm, else it must deny it. contains: the schema; n_prefix: items with views of their own. */
static llm__gr_frag llm__js_containing(llm__js *js, const llm__js_view *v, int contains, int32_t n_prefix, int64_t min, int64_t max) {
    llm__gr_build *b = js->b;
    int64_t least = llm__js_count(js, v, "minContains", 0, 1), most = llm__js_count(js, v, "maxContains", 1, -1);
    int64_t items = max >= 0 ? LLM__MAX(max, 1) : LLM__MAX(LLM__MAX(min, 1), n_prefix), matches = most >= 0 ? most : least;
    if (items > LLM__JS_STATES_MAX || (items + 1) * (matches + 1) > LLM__JS_STATES_MAX)
        return llm__js_refuse(js, LLM_ERR_LIMIT, contains, NULL, "so many items or matches cannot be counted");
    int32_t plain_rule = -1, match_rule = -1;
    llm__js_list_state *states = llm__js_list_states(js, (int32_t)((items + 1) * (matches + 1)));
    llm__gr_frag f = llm__gr_empty(b);
    int32_t end = f.out;
    for (int64_t n = 0; n <= items && !b->failed; n++) {
        const llm__js_list_state *row = states + n * (matches + 1), *next = n < items ? row + matches + 1 : row;
        if (n <= n_prefix) { /* another view begins */
            llm__js_view plain = llm__js_item_view(js, v, (int)n), match = plain;
            llm__js_bring(js, &match, -1, contains, 0);
            if (most >= 0) llm__js_bring(js, &plain, -1, contains, LLM__JS_NOT);
            plain_rule = llm__js_rule_of(js, llm__js_rule(js, &plain));
            match_rule = llm__js_rule_of(js, llm__js_rule(js, &match));
        }
        for (int64_t found = 0; found <= matches && !b->failed; found++) {
            if (n >= min && found >= least) b->g->op[row[found].behind_item].next = end;
            if (max >= 0 && n >= max) continue;
            llm__js_way(js, row[found], plain_rule, next[found]);
            if (most < 0 || found < most) llm__js_way(js, row[found], match_rule, next[LLM__MIN(found + 1, matches)]);
        }
    }
    if (!b->failed) f.in = states[0].behind_item;
    LLM_FREE(states);
    return f;
}

/* The items of the prefix, each with its own view, then any number of others. Built from the end, since every item of the prefix may be the
 * last one:
 *
 *   item0 (, item1 (, item2 (, rest){min-3, max-3})?)?        minItems decides which of the ? are there */
static llm__gr_frag llm__js_items(llm__js *js, const llm__js_view *v, int n_prefix, int64_t min, int64_t max) {
    llm__gr_build *b = js->b;
    int shown = max >= 0 ? (int)LLM__MIN(n_prefix, max) : n_prefix, more = max < 0 || max > n_prefix;
    llm__gr_frag tail = llm__gr_empty(b);
    for (int k = more ? shown : shown - 1; k >= 0 && !b->failed; k--) { /* item k, and what follows; k == shown: all the others */
        llm__js_view item = llm__js_item_view(js, v, k);
        llm__gr_frag one = llm__js_value(js, &item), next = llm__gr_seq(b, llm__js_mark(js, ","), llm__js_value(js, &item));
        int32_t least = (int32_t)LLM__MAX(0, min - k), most = max < 0 ? -1 : (int32_t)max - k;
        if (k < shown) tail = llm__gr_seq(b, k ? next : one, tail);
        else if (k) tail = llm__gr_repeat(b, next, least, most);
        else tail = llm__gr_seq(b, one, llm__gr_repeat(b, next, LLM__MAX(0, least - 1), most < 0 ? -1 : most - 1));
        if (k >= min && (k < shown || !k)) tail = llm__gr_alt(b, tail, llm__gr_empty(b));
    }
    return tail;
}

LLM__PRIVATE llm__gr_frag llm__js_array(llm__js *js, const llm__js_view *v) {
    llm__gr_build *b = js->b;
    int64_t min = llm__js_count(js, v, "minItems", 0, 0), max = llm__js_count(js, v, "maxItems", 1, -1);
    int n_prefix = 0, n, yes, unique = -1, contains = -1, at;
    for (int i = 0; i < v->n; i++) {
        yes = 1;
        (void)llm_json_bool(js->doc, llm__js_item_of(js, v, i, INT32_MAX, &n), &yes);
        if (!yes) max = max < 0 ? n : LLM__MIN(max, n); /* no more than those that are named */
        n_prefix = LLM__MAX(n_prefix, n);
        if (llm_json_bool(js->doc, llm__js_find(js, v, i, "uniqueItems"), &yes) && yes) unique = v->node[i];
        if ((at = llm__js_find(js, v, i, "contains")) < 0) continue;
        if (llm_json_bool(js->doc, at, &yes) && !yes && llm__js_count(js, v, "minContains", 0, 1) < 1)
            continue; /* what never is there may stay away */
        if (contains >= 0) return llm__js_refuse(js, LLM_ERR_UNSUPPORTED, at, NULL, "a second one cannot be enforced");
        contains = at;
    }
    if (max >= 0 && max < 2) unique = -1;
    if (contains >= 0 && unique >= 0)
        return llm__js_refuse(js, LLM_ERR_UNSUPPORTED, unique, "uniqueItems", "cannot be enforced beside contains");
    if (n_prefix > 256) return llm__js_refuse(js, LLM_ERR_LIMIT, v->node[0], "prefixItems", "at most 256 expected");
    if (max >= 0 && min > max) return llm__gr_never;
    llm__gr_frag f = unique >= 0     ? llm__js_set(js, v, unique, min, max)
                     : contains >= 0 ? llm__js_containing(js, v, contains, n_prefix, min, max)
                                     : llm__js_items(js, v, n_prefix, min, max);
    return llm__gr_seq(b, llm__js_mark(js, "["), llm__gr_seq(b, f, llm__gr_seq(b, llm__js_space(js), llm__gr_word(b, "]"))));
}
