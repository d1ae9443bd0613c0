#include "grammar/schema.h"
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "base/json.h"
#include "grammar/machine.h"
#include "grammar/grammar_regex.h"

enum { LLM__JS_ALL_TYPES = 127 };

/* The JSON pointer of a node: found by search, since only errors ask. 0: it is not below `from`. */
static int llm__js_pointer(const llm_json *doc, int from, int node, llm_text *out) {
    size_t len = out->len;
    if (from == node) return 1;
    int i = 0;
    for (int child = llm_json_first(doc, from); child >= 0; child = llm_json_next(doc, child), i++) {
        llm__str key = llm__json_key(doc, child);
        llm_text_str(out, "/");
        if (!key.p) llm_text_int(out, i);
        for (size_t k = 0; k < key.n; k++)
            if (key.p[k] == '~' || key.p[k] == '/') llm_text_str(out, key.p[k] == '~' ? "~0" : "~1");
            else llm_text_add(out, key.p + k, 1);
        if (llm__js_pointer(doc, child, node, out)) return 1;
        out->len = len;
    }
    return 0;
}

LLM__PRIVATE llm__gr_frag llm__js_refuse(llm__js *js, llm_result r, int node, const char *keyword, const char *what) {
    llm_text at = llm__text_none();
    at.limit = 300;
    if (js->b->failed) return llm__gr_never;
    llm__js_pointer(js->doc, js->root, node, &at);
    if (keyword) llm_text_str(&at, "/"), llm_text_str(&at, keyword);
    js->b->failed = llm__error(r, "JSON schema: #%s: %s", at.len ? at.data : "", what);
    llm_text_free(&at);
    return llm__gr_never;
}

/* The node a reference names: "#", "#/a/b" with ~0 ~1 and %XX; -1 with an error. A JSON pointer (RFC 6901) in a URI fragment:
 * "#/a~1b/%7E0/2" is item 2 of member "~" of member "a/b": percent signs are undone first, tildes after. Other documents are never fetched.
 */
static int llm__js_ref(llm__js *js, int node, int ref) {
    llm__str s = llm__json_text(js->doc, ref);
    int at = js->root;
    int64_t k;
    if (!s.n || s.p[0] != '#' || (s.n > 1 && s.p[1] != '/'))
        return llm__js_refuse(js, LLM_ERR_UNSUPPORTED, node, "$ref", "a reference into this document (#/...) expected"), -1;
    for (size_t i = 1; i < s.n && at >= 0;) {
        char key[512];
        size_t len = 0;
        for (i++; i < s.n && s.p[i] != '/' && len < sizeof key; i++) {
            int32_t c = s.p[i] == '%' ? llm__hex_digits(s.p + i + 1, s.n - i - 1, 2) : -1;
            i += c < 0 ? 0 : 2;
            if (c < 0) c = s.p[i];
            if (c == '~' && i + 1 < s.n && (s.p[i + 1] == '0' || s.p[i + 1] == '1')) c = s.p[++i] == '0' ? '~' : '/';
            key[len++] = (char)c;
        }
        (void)llm__gr_spend(js->b, (size_t)llm_json_size(js->doc, at) / 4);
        if (llm_json_type_of(js->doc, at) != LLM_JSON_ARRAY) {
            at = llm__json_member(js->doc, at, llm__s(key, len));
        } else {
            at = llm__parse_int(key, len, &k) && k >= 0 ? llm_json_first(js->doc, at) : -1;
            for (; at >= 0 && k > 0; k--) at = llm_json_next(js->doc, at);
        }
    }
    if (at < 0) llm__js_refuse(js, LLM_ERR_FORMAT, node, "$ref", "names nothing in this document");
    return at;
}

LLM__PRIVATE int llm__js_find(const llm__js *js, const llm__js_view *v, int i, const char *key) {
    return v->used[i] & LLM__JS_NOT ? -1 : llm_json_find(js->doc, v->node[i], key);
}

LLM__PRIVATE int llm__js_find_not(const llm__js *js, const llm__js_view *v, int i, const char *key) {
    return v->used[i] & LLM__JS_NOT ? llm_json_find(js->doc, v->node[i], key) : -1;
}

LLM__PRIVATE int llm__js_listed(const llm__js *js, const char *words, int member) {
    return llm__word_index(words, llm__json_key(js->doc, member)) >= 0;
}

LLM__PRIVATE int llm__js_any(const llm__js *js, const llm__js_view *v, const char *key) {
    for (int i = 0, at; i < v->n; i++)
        if ((at = llm__js_find(js, v, i, key)) >= 0) return at;
    return -1;
}

LLM__PRIVATE void llm__js_bring(llm__js *js, llm__js_view *v, int by, int node, int how) {
    llm_json_type type = llm_json_type_of(js->doc, node);
    int yes = type == LLM_JSON_OBJECT && !llm_json_size(js->doc, node), no = how & LLM__JS_NOT;
    (void)llm_json_bool(js->doc, node, &yes);
    for (int i = 0; i < v->n; i++)
        if (v->node[i] == node && (v->used[i] & LLM__JS_NOT) == no) return;
    if (type != LLM_JSON_OBJECT && type != LLM_JSON_BOOL)
        llm__js_refuse(js, LLM_ERR_FORMAT, node, NULL, "a schema (an object, true or false) expected");
    else if (v->n == LLM__JS_VIEW)
        llm__js_refuse(js, LLM_ERR_LIMIT, node, NULL, "more than 16 schemas that must hold together, fewer expected");
    else if (no ? yes || type == LLM_JSON_OBJECT : !yes) v->used[v->n] = (uint16_t)how, v->by[v->n] = by, v->node[v->n++] = node;
}

LLM__PRIVATE int llm__js_within_of(const llm__js_view *v, int k, int from) {
    for (int steps = 0; v->node[k] != from && steps < v->n; steps++)
        for (int i = 0, by = v->by[k]; i < v->n; i++)
            if (v->node[i] == by && !(v->used[i] & LLM__JS_NOT)) k = i;
    return v->node[k] == from;
}

/* A schema that must not hold: what can be denied is one keyword, or two that belong together. {"not": S} is S, of $ref and anyOf the parts
 * are denied; llm__js_types, llm__js_values and llm__js_property_view read the rest. */
static void llm__js_deny(llm__js *js, llm__js_view *v, int i) {
    static const char *const groups[] = {"not", "$ref", "anyOf", "type", "type enum const", "type properties required"};
    int node = v->node[i], best = -1, at, last = -1;
    for (int k = LLM__COUNT(groups); k-- > 0;) {
        int fits = 1;
        for (int key = llm_json_first(js->doc, node); key >= 0; key = llm_json_next(js->doc, key)) {
            if (llm__js_listed(js, llm__js_notes, key)) continue;
            fits &= llm__js_listed(js, groups[k], key);
            last = key;
        }
        if (fits) best = k;
    }
    int properties = llm_json_find(js->doc, node, "properties"), required = llm_json_find(js->doc, node, "required");
    llm__str name = llm__json_text(js->doc, llm_json_first(js->doc, required)),
             key = llm__json_key(js->doc, llm_json_first(js->doc, properties));
    int one =
        llm_json_size(js->doc, properties) <= 1 && llm_json_size(js->doc, required) <= 1 && (!name.p || !key.p || llm__str_same(name, key));
    if (best < 0 || last < 0 || (best == 5 && !one))
        llm__js_refuse(js, LLM_ERR_UNSUPPORTED, last < 0 ? node : last, NULL, "cannot be denied");
    if (best == 0) llm__js_bring(js, v, -1, llm_json_find(js->doc, node, "not"), 0);
    if (best == 1 && (at = llm__js_ref(js, node, llm_json_find(js->doc, node, "$ref"))) >= 0) llm__js_bring(js, v, -1, at, LLM__JS_NOT);
    for (at = best == 2 ? llm_json_first(js->doc, llm_json_find(js->doc, node, "anyOf")) : -1; at >= 0; at = llm_json_next(js->doc, at))
        llm__js_bring(js, v, -1, at, LLM__JS_NOT);
}

LLM__PRIVATE int llm__js_expand(llm__js *js, llm__js_view *v) {
    static const char refused[] = "dependentRequired dependentSchemas dependencies unevaluatedItems $dynamicRef $recursiveRef "
                                  "contentEncoding contentSchema";
    for (int i = 0; i < v->n && !js->b->failed; i++) {
        int node = v->node[i], at;
        if (llm_json_type_of(js->doc, node) == LLM_JSON_BOOL || !llm_json_size(js->doc, node)) return 0;
        if (v->used[i] & LLM__JS_NOT) {
            llm__js_deny(js, v, i);
            continue;
        }
        for (at = llm_json_first(js->doc, node); at >= 0; at = llm_json_next(js->doc, at))
            if (llm__js_listed(js, refused, at) &&
                !(llm__js_listed(js, "contentEncoding", at) && llm_json_find(js->doc, node, "pattern") >= 0))
                llm__js_refuse(js, LLM_ERR_UNSUPPORTED, at, NULL, "this keyword cannot be enforced");
        if ((at = llm_json_find(js->doc, node, "not")) >= 0 && !(v->used[i] & LLM__JS_DENIED)) {
            v->used[i] |= LLM__JS_DENIED;
            llm__js_bring(js, v, -1, at, LLM__JS_NOT);
        }
        if ((at = llm_json_find(js->doc, node, "$ref")) >= 0 && !(v->used[i] & LLM__JS_REF)) {
            int to = llm__js_ref(js, node, at), before = v->n;
            v->used[i] |= LLM__JS_REF;
            if (to >= 0) llm__js_bring(js, v, node, to, 0);
            if (to >= 0 && v->n == before && llm_json_find(js->doc, to, "$ref") >= 0)
                llm__js_refuse(js, LLM_ERR_FORMAT, node, "$ref", "leads back to itself");
        }
        if ((at = llm_json_find(js->doc, node, "allOf")) >= 0 && !(v->used[i] & LLM__JS_ALL)) {
            v->used[i] |= LLM__JS_ALL;
            if (llm_json_type_of(js->doc, at) != LLM_JSON_ARRAY) llm__js_refuse(js, LLM_ERR_FORMAT, node, "allOf", "a list expected");
            for (int one = llm_json_first(js->doc, at); one >= 0; one = llm_json_next(js->doc, one)) llm__js_bring(js, v, node, one, 0);
        }
    }
    return !js->b->failed;
}

LLM__PRIVATE int64_t llm__js_count(llm__js *js, const llm__js_view *v, const char *key, int smallest, int64_t none) {
    int64_t best = none, value;
    int found = 0;
    for (int i = 0; i < v->n; i++) {
        int at = llm__js_find(js, v, i, key);
        if (at < 0) continue;
        if (!llm_json_int(js->doc, at, &value) || value < 0) {
            double big;
            if (!llm_json_num(js->doc, at, &big) || big < 0 || big != floor(big))
                llm__js_refuse(js, LLM_ERR_FORMAT, v->node[i], key, "a whole number, at least 0, expected");
            value = INT32_MAX;
        }
        value = LLM__MIN(value, INT32_MAX);
        best = !found || (smallest ? value < best : value > best) ? value : best;
        found = 1;
    }
    return best;
}

/* The types that "type" names: one or a list of them. Their bits stand in the order of the names; every integer is a number. */
static int llm__js_type_bits(llm__js *js, int owner, int at) {
    int bits = 0, list = llm_json_type_of(js->doc, at) == LLM_JSON_ARRAY;
    for (int one = list ? llm_json_first(js->doc, at) : at; one >= 0; one = list ? llm_json_next(js->doc, one) : -1) {
        int type = llm__word_index("null boolean integer number string array object", llm__json_text(js->doc, one));
        if (type < 0) llm__js_refuse(js, LLM_ERR_FORMAT, owner, "type", "string, number, integer, boolean, null, array or object expected");
        else bits |= 1 << type;
    }
    return bits | (bits & LLM__JS_NUM ? LLM__JS_INT : 0);
}

LLM__PRIVATE int llm__js_types(llm__js *js, const llm__js_view *v) {
    static const struct {
        const char *keys;
        int bits;
    } implied[] = {{"properties required additionalProperties patternProperties propertyNames minProperties maxProperties", LLM__JS_OBJ},
                   {"items prefixItems minItems maxItems uniqueItems contains minContains maxContains", LLM__JS_ARR},
                   {"minLength maxLength pattern format", LLM__JS_STR},
                   {"minimum maximum exclusiveMinimum exclusiveMaximum multipleOf", LLM__JS_NUM | LLM__JS_INT}};
    int types = LLM__JS_ALL_TYPES, said = js->lenient, hint = 0, denied = 0;
    for (int i = 0; i < v->n; i++) {
        int at = llm__js_find(js, v, i, "type"), no = llm__js_find_not(js, v, i, "type");
        if (v->used[i] & LLM__JS_KEY) types &= LLM__JS_STR;
        if (at >= 0) types &= llm__js_type_bits(js, v->node[i], at), said = 1;
        if (llm__js_find_not(js, v, i, "properties") >= 0 || llm__js_find_not(js, v, i, "required") >= 0) types &= LLM__JS_OBJ;
        else if (no >= 0 && llm__js_find_not(js, v, i, "enum") < 0 && llm__js_find_not(js, v, i, "const") < 0)
            types &= ~llm__js_type_bits(js, v->node[i], no), denied = v->node[i];
        for (int key = v->used[i] & LLM__JS_NOT ? -1 : llm_json_first(js->doc, v->node[i]); key >= 0; key = llm_json_next(js->doc, key))
            for (int k = 0; k < LLM__COUNT(implied); k++) hint |= llm__js_listed(js, implied[k].keys, key) ? implied[k].bits : 0;
    }
    if (hint && !said) types &= hint;
    if ((types & (LLM__JS_NUM | LLM__JS_INT)) == LLM__JS_NUM) /* only if the integers were denied */
        llm__js_refuse(js, LLM_ERR_UNSUPPORTED, denied, NULL, "numbers that are no integers cannot be told apart");
    return types;
}

LLM__PRIVATE llm__gr_frag llm__js_space(llm__js *js) {
    if (js->space) return llm__gr_regex_frag(js->b, llm__lit(js->space), LLM__GR_WHOLE);
    return llm__gr_repeat(js->b, llm__gr_word(js->b, " "), 0, 1);
}

LLM__PRIVATE llm__gr_frag llm__js_mark(llm__js *js, const char *s) { return llm__gr_seq(js->b, llm__gr_word(js->b, s), llm__js_space(js)); }
