#include "chat/functions.h"
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/number.h"
#include "base/text.h"
#include "text/unicode.h"
#include "text/unicode_classes.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/encode.h"
#include "chat/template.h"
#include "chat/values.h"
#include "chat/access.h"
#include "chat/calls.h"
#include "chat/render.h"

/* op: l lower, u upper, c capitalize, t title as the method does it, T as the filter does it. */
LLM__TPL_FN(llm__fn_case) {
    int32_t c;
    int start = 1;
    char out[4];
    for (llm__str rest = llm__tpl_str_of(x, self); llm__tpl_next_char(x, &rest, &c);) {
        const int up = op == 'u' || (op != 'l' && start);
        if (c == 0xDF && op == 'u') llm__tpl_puts(x, "SS");
        else llm__tpl_put(x, llm__s(out, (size_t)llm__utf8_put(out, up ? llm__tpl_upper(c) : llm__uni_case(c, 1))));
        /* The filter begins words behind blanks and -({[<, the method behind everything that is no letter. */
        start = op == 'T' ? llm__tpl_space(c) || (c > 0 && c < 128 && strchr("-({[<", c)) : op == 't' && !llm__uni_in(c, LLM__CATS_L);
    }
    return LLM__WRITTEN;
}

/* op: the sides. */
LLM__TPL_FN(llm__fn_strip) {
    const llm__val v = llm__tpl_str(x, self);
    const llm__str set = llm__arg_str(x, a[0], NULL);
    llm__tpl_spend(x, (int64_t)(v.n / 64 + v.n / 32 * (set.n / 32)));
    llm__val r = llm__v_str(llm__strip(llm__v_s(v), op, set.p ? NULL : llm__tpl_space, set));
    r.flag = v.flag;
    return r;
}

/* Lines, as Python's splitlines finds them: \n, \r\n and some more end one. */
static llm__vlist *llm__tpl_lines(llm__tpl *x, llm__str s, int keep_ends) {
    llm__vlist *l = llm__tpl_empty(x);
    int32_t c;
    for (llm__str rest = s, line = s, at = s; llm__tpl_next_char(x, &rest, &c); at = rest) {
        /* line feed, vertical tab, form feed, return, the separators 28 to 30, next line, line and paragraph separator */
        int end = (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
        if (c == '\r' && rest.n && rest.p[0] == '\n') rest = llm__str_from(rest, 1);
        if (!end && rest.n) continue;
        llm__tpl_push(x, l, llm__v_str(llm__s(line.p, line.n - (end && !keep_ends ? at.n : rest.n))));
        line = rest;
    }
    return l;
}

/* splitlines(keepends) */
LLM__TPL_FN(llm__fn_splitlines) { return llm__v_list(LLM__V_LIST, llm__tpl_lines(x, llm__v_s(self), llm__v_truth(a[0]))); }

/* Pieces of s between separators, or white space where sep.p is NULL, after at most `max` cuts; -1: no limit. */
static llm__vlist *llm__tpl_pieces(llm__tpl *x, llm__str s, llm__str sep, int64_t max) {
    llm__vlist *l = llm__tpl_empty(x);
    if (sep.p && !sep.n) llm__tpl_fail(x, "an empty text cannot be searched for");
    for (;; max--) {
        llm__tpl_spend(x, 1);
        if (!sep.p) s = llm__tpl_trim(s, 1);
        if (!sep.p && !s.n) break;
        int64_t at = sep.p && max ? llm__tpl_find(s, sep, 1) : -1;
        size_t end = at < 0 ? s.n : (size_t)at;
        if (!sep.p && max) {
            int len;
            for (end = 0; end < s.n && !llm__tpl_space(llm__utf8_get(s.p + end, s.n - end, &len));) end += (size_t)len;
        }
        llm__tpl_spend(x, (int64_t)end / 16);
        llm__tpl_push(x, l, llm__v_str(llm__s(s.p, end)));
        if (!max || (sep.p && at < 0)) break;
        s = llm__str_from(s, end + sep.n);
    }
    return l;
}

/* split(sep, maxsplit). op 1: rsplit. */
LLM__TPL_FN(llm__fn_split) {
    int64_t max = llm__arg_int(x, a[1], -1);
    llm__vlist *l = llm__tpl_pieces(x, llm__v_s(self), llm__arg_str(x, a[0], NULL), op ? -1 : max);
    /* From the right: all cuts are made, and the pieces too many are one again, from the text's begin on. */
    if (op && max >= 0 && l->n > max + 1) {
        l->v += l->n - 1 - max;
        l->v->n += (uint32_t)(l->v->as.s - self.as.s);
        l->v->as.s = self.as.s;
        l->n = l->cap = (int32_t)max + 1;
    }
    return llm__v_list(LLM__V_LIST, l);
}

/* replace(old, new, count): pieces, joined anew. op 1: the filter, which takes values of all types. An empty text, which for Python stands
 * between all characters, is refused. */
LLM__TPL_FN(llm__fn_replace) {
    for (int i = 0; op && i < 2; i++) a[i] = llm__tpl_str(x, a[i]);
    const llm__str from = llm__arg_text(x, a[0]), to = llm__arg_text(x, a[1]);
    const int64_t count = op && a[2].type == LLM__V_NONE ? -1 : llm__arg_int(x, a[2], -1);
    const llm__vlist *l = llm__tpl_pieces(x, llm__tpl_str_of(x, self), from, count);
    for (int i = 0; i < l->n; i++) {
        if (i) llm__tpl_put(x, to);
        llm__tpl_put(x, llm__v_s(l->v[i]));
    }
    return LLM__WRITTEN;
}

/* count(sub): how often a text stands in another, without overlap. */
LLM__TPL_FN(llm__fn_str_count) { return llm__v_int(llm__tpl_pieces(x, llm__v_s(self), llm__arg_text(x, a[0]), -1)->n - 1); }

/* find, rfind: op 1, -1. Where a text stands first or last, in code points, or -1; paid by both lengths. */
LLM__TPL_FN(llm__fn_find) {
    llm__str s = llm__v_s(self), what = llm__arg_text(x, a[0]);
    llm__tpl_spend(x, (int64_t)(s.n / 32 * (what.n / 32)));
    int64_t at = llm__tpl_find(s, what, op);
    return llm__v_int(at < 0 ? -1 : llm_text_chars(s.p, (size_t)at));
}

/* Does s begin or end with a text? */
static int llm__tpl_has_affix(llm__str s, llm__str affix, int at_end) {
    return s.n >= affix.n && llm__starts(at_end ? llm__str_from(s, s.n - affix.n) : s, affix);
}

/* startswith, endswith (op 1): a text, or one of a tuple of texts. */
LLM__TPL_FN(llm__fn_has_affix) {
    llm__vlist one = {&a[0], 1, 1, 0}, *l = a[0].type == LLM__V_TUPLE ? a[0].as.list : &one;
    int found = 0;
    for (int i = 0; i < l->n; i++) found |= llm__tpl_has_affix(llm__v_s(self), llm__arg_text(x, l->v[i]), op);
    return llm__v_bool(found);
}

/* removeprefix, removesuffix (op 1). */
LLM__TPL_FN(llm__fn_remove_affix) {
    llm__str s = llm__v_s(self), affix = llm__arg_text(x, a[0]);
    return llm__tpl_has_affix(s, affix, op) ? llm__v_str(llm__s(s.p + (op ? 0 : affix.n), s.n - affix.n)) : self;
}

/* Are all code points of a text, which must have some, of a class? op: d digits, a letters, n both, s white space. */
LLM__TPL_FN(llm__fn_all_are) {
    int32_t c;
    int ok = self.n > 0;
    for (llm__str rest = llm__v_s(self); ok && llm__tpl_next_char(x, &rest, &c);)
        ok = op == 's' ? llm__tpl_space(c) : llm__uni_in(c, op == 'd' ? 1 << LLM__ND : op == 'a' ? LLM__CATS_L : LLM__CATS_L | LLM__CATS_N);
    return llm__v_bool(ok);
}

/* format: fields {}, {0} and {name}, each printed as it is. */
LLM__TPL_FN(llm__fn_format) {
    int64_t next = 0, i;
    for (llm__str s = llm__v_s(self); s.n;) {
        const size_t n = llm__str_until(s, "{}"), twice = n + 1 < s.n && s.p[n] == s.p[n + 1]; /* {{ and }} */
        llm__tpl_spend(x, 1);
        llm__tpl_put(x, llm__s(s.p, n + twice));
        if (n == s.n) break;
        const llm__str field = llm__s(s.p + n + 1, llm__str_until(llm__str_from(s, n + 1), "{}"));
        if (!twice && (s.p[n] == '}' || field.n == s.n - n - 1 || field.p[field.n] == '{')) llm__tpl_fail(x, "format: a single brace");
        s = llm__str_from(s, n + 2 + (twice ? 0 : field.n));
        if (twice) continue;
        const llm__val *v = field.n ? llm__args_named(x, g, field) : NULL;
        if (!field.n) i = next++;
        else if (!llm__parse_int(field.p, field.n, &i)) i = -1;
        if (!v && i >= 0 && i < g->pos.n) v = &g->pos.v[i];
        if (!v) llm__tpl_fail(x, "format: no value for '{%.*s}'", (int)LLM__MIN(field.n, (size_t)40), field.p);
        llm__tpl_print(x, *v);
    }
    return LLM__WRITTEN;
}

/* join(sep, attribute): items of any type, as str() writes them. op 1: the method of a separator, which takes nothing but texts. */
LLM__TPL_FN(llm__fn_join) {
    const llm__vlist *l = llm__tpl_iter(x, op ? a[0] : self);
    llm__str sep = op ? llm__v_s(self) : a[0].type == LLM__V_UNSET ? llm__lit("") : llm__tpl_str_of(x, a[0]);
    for (int i = 0; i < l->n; i++) {
        if (i) llm__tpl_put(x, sep);
        if (op) llm__tpl_put(x, llm__arg_text(x, l->v[i]));
        else llm__tpl_print(x, llm__tpl_pick(x, l->v[i], a[1], llm__v(LLM__V_UNSET)));
    }
    return LLM__WRITTEN;
}

/* ---- methods of dicts ----
 * Those that change a dict are hidden by the sandbox, so few are left. */

/* dict.get(key, default): None where nothing is found. */
LLM__TPL_FN(llm__fn_get) {
    const llm__val *v = llm__tpl_dict_find(x, self.as.list, a[0]);
    return v ? *v : a[1].type == LLM__V_UNSET ? llm__v(LLM__V_NONE) : a[1];
}

/* keys, values, items: op 0, 1, 2. */
LLM__TPL_FN(llm__fn_view) {
    llm__val v = llm__v_list(LLM__V_VIEW, llm__tpl_view(x, self.as.list, op));
    v.flag = (uint8_t)op;
    return v;
}

/* ---- filters ----
 * As jinja2 has them: most take any value and make a text of it, or walk through it. Those that Python writes as generators give a value
 * that can be walked through once, has no length and no items: {{ x|map("upper")|length }} is an error in Python, and here.
 *
 * Undefined passes through most of them as an empty text or an empty list; where Python refuses it, llm__tpl_defined does. */

/* default(value, boolean): replaces undefined, with `boolean` all that is false. */
LLM__TPL_FN(llm__fn_default) {
    if (self.type != LLM__V_UNDEF && (!llm__v_truth(a[1]) || llm__v_truth(self))) return self;
    return a[0].type == LLM__V_UNSET ? llm__v_str(llm__lit("")) : a[0];
}

LLM__TPL_FN(llm__fn_length) { return llm__v_int(llm__tpl_len(x, self)); }
LLM__TPL_FN(llm__fn_list) { return llm__v_list(LLM__V_LIST, llm__tpl_list_of(x, self)); }

/* string; safe (op 1): marks a text as safe HTML: joined by + to another text, it makes that one escaped, as nobody wants in a prompt. But
 * there are templates that do it, and models that were trained on what came out. */
LLM__TPL_FN(llm__fn_string) {
    llm__val v = llm__tpl_str(x, self);
    v.flag |= (uint8_t)op;
    return v;
}

LLM__PRIVATE llm__val llm__tpl_escape(llm__tpl *x, llm__val v) {
    const size_t mark = x->text.len;
    if (v.type == LLM__V_STR && v.flag) return v;
    for (llm__str s = llm__tpl_str_of(x, v); s.n;) {
        static const char *const entity[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
        const size_t n = llm__str_until(s, "&<>\"'");
        llm__tpl_spend(x, 1);
        llm__tpl_put(x, llm__s(s.p, n));
        if (n < s.n) llm__tpl_puts(x, entity[strchr("&<>\"'", s.p[n]) - "&<>\"'"]);
        s = llm__str_from(s, LLM__MIN(n + 1, s.n));
    }
    v = llm__tpl_take(x, mark);
    v.flag = 1;
    return v;
}

LLM__TPL_FN(llm__fn_escape) { return llm__tpl_escape(x, self); }

/* A number of blanks, or a text, to indent by. */
static llm__str llm__arg_indent(llm__tpl *x, llm__val v, int64_t absent) {
    const size_t mark = x->text.len;
    if (v.type == LLM__V_STR) return llm__v_s(v);
    llm__tpl_repeat(x, llm__lit(" "), llm__arg_int(x, v, absent));
    return llm__v_s(llm__tpl_take(x, mark));
}

/* tojson(ensure_ascii, indent, separators, sort_keys), as transformers has it. */
LLM__TPL_FN(llm__fn_tojson) {
    const int pretty = !LLM__V_IN(a[1], LLM__M_ABSENT);
    llm__tpl_style o = {1, llm__v_truth(a[0]), llm__v_truth(a[3]), {NULL, 0}, llm__lit(pretty ? "," : ", "), llm__lit(": ")};
    if (pretty) o.indent = llm__arg_indent(x, a[1], 0);
    if (!LLM__V_IN(a[2], LLM__M_ABSENT)) {
        const llm__vlist *l = llm__tpl_iter(x, a[2]);
        if (l->n != 2) llm__tpl_fail(x, "tojson: separators must be two texts");
        o.comma = llm__arg_text(x, l->v[0]);
        o.colon = llm__arg_text(x, l->v[1]);
    }
    llm__tpl_write(x, self, &o, 0);
    return LLM__WRITTEN;
}

LLM__PRIVATE llm__val llm__tpl_parse_json(llm__tpl *x, llm__str s) {
    llm__val v = llm__v(LLM__V_UNSET);
    x->aside.len = 0;
    llm_text_str(&x->aside, "");
    if (x->guard) llm__unguard(s, &x->aside), s = llm__s(x->aside.data, x->aside.len);
    if (x->aside.failed) llm__tpl_error(x, LLM_ERR_NOMEM, "out of memory");
    if (llm_json_parse(s.p, s.n, NULL, &x->json)) return v;
    v = llm__tpl_from_json(x, x->json, 0);
    llm_json_free(x->json);
    x->json = NULL;
    return v;
}

/* from_json: not of jinja2, but some templates of llama.cpp use it. */
LLM__TPL_FN(llm__fn_from_json) {
    llm__str s = llm__arg_text(x, self);
    llm__tpl_spend(x, (int64_t)s.n / 8);
    llm__val v = llm__tpl_parse_json(x, s);
    if (v.type == LLM__V_UNSET) llm__tpl_fail(x, "from_json: %.200s", llm_last_error());
    return v;
}

/* Pairs of a mapping, as a generator. */
LLM__TPL_FN(llm__fn_items) {
    if (!LLM__V_IN(self, LLM__M_DICT | LLM__M_UNDEF)) llm__tpl_fail(x, "items: a mapping was expected, got '%s'", llm__v_type_name(self));
    return llm__v_list(LLM__V_GEN, self.type == LLM__V_DICT ? llm__tpl_view(x, self.as.list, 2) : llm__tpl_empty(x));
}

/* first, last (op 1), or undefined. Of a generator one item is taken; its end is not reached: Python reverses what it is given. */
LLM__TPL_FN(llm__fn_end_item) {
    if (op && self.type == LLM__V_GEN) llm__tpl_fail(x, "last: a generator has no end to begin from");
    const llm__vlist *l = llm__tpl_iter(x, self);
    if (!l->n) return llm__v_undef(llm__lit(op ? "last item" : "first item"));
    if (self.type == LLM__V_GEN) self.as.list->at -= l->n - 1;
    return l->v[op ? l->n - 1 : 0];
}

/* A text turned round is a text, all else becomes a generator. */
LLM__TPL_FN(llm__fn_reverse) {
    const llm__val back[3] = {llm__v(LLM__V_UNSET), llm__v(LLM__V_UNSET), llm__v_int(-1)};
    if (self.type == LLM__V_STR) return llm__tpl_slice(x, self, back);
    return llm__v_list(LLM__V_GEN, llm__tpl_slice(x, llm__fn_list(x, self, a, g, 0), back).as.list);
}

/* A copy of a list, sorted by an attribute of each item, which is in lower case if it is a text and case does not count; the keys that it
 * was sorted by in *by. Not sorted with reverse -1. */
static llm__vlist *llm__tpl_sorted(llm__tpl *x, const llm__vlist *all, llm__val attribute, llm__val case_sensitive, int reverse,
                                   llm__vlist *by) {
    llm__vlist *l = llm__tpl_list(x, all->v, all->n);
    memset(by, 0, sizeof *by);
    for (int i = 0; i < l->n; i++) {
        const size_t mark = x->text.len;
        llm__val key = llm__tpl_pick(x, l->v[i], attribute, llm__v(LLM__V_UNSET));
        if (key.type == LLM__V_STR && !llm__v_truth(case_sensitive)) {
            llm__fn_case(x, key, NULL, NULL, 'l');
            key = llm__tpl_take(x, mark);
        }
        llm__tpl_push(x, by, key);
    }
    if (reverse >= 0) llm__tpl_sort(x, l, by, reverse);
    return l;
}

/* sort(reverse, case_sensitive, attribute) */
LLM__TPL_FN(llm__fn_sort) {
    llm__vlist by;
    return llm__v_list(LLM__V_LIST, llm__tpl_sorted(x, llm__tpl_iter(x, self), a[2], a[1], llm__v_truth(a[0]), &by));
}

/* dictsort(case_sensitive, by, reverse) */
LLM__TPL_FN(llm__fn_dictsort) {
    llm__vlist by;
    const int which = llm__word_index("key value", llm__arg_str(x, a[1], "key"));
    if (self.type != LLM__V_DICT) llm__tpl_fail(x, "dictsort: a mapping was expected, got '%s'", llm__v_type_name(self));
    if (which < 0) llm__tpl_fail(x, "dictsort: by must be 'key' or 'value'");
    const llm__vlist *pairs = llm__tpl_view(x, self.as.list, 2);
    return llm__v_list(LLM__V_LIST, llm__tpl_sorted(x, pairs, llm__v_int(which), a[0], llm__v_truth(a[2]), &by));
}

/* min, max: op 0, 1. (case_sensitive, attribute) */
LLM__TPL_FN(llm__fn_extreme) {
    llm__vlist by;
    const llm__vlist *l = llm__tpl_sorted(x, llm__tpl_iter(x, self), a[1], a[0], op, &by);
    return l->n ? l->v[0] : llm__v_undef(llm__lit("least or greatest item"));
}

/* unique(case_sensitive, attribute): the first of each, in their order. */
LLM__TPL_FN(llm__fn_unique) {
    llm__vlist *out = llm__tpl_empty(x), *seen = llm__tpl_empty(x), by;
    const llm__vlist *l = llm__tpl_sorted(x, llm__tpl_iter(x, self), a[1], a[0], -1, &by);
    for (int i = 0; i < l->n; i++) {
        if (llm__tpl_dict_find(x, seen, by.v[i])) continue;
        llm__tpl_dict_set(x, seen, by.v[i], llm__v(LLM__V_NONE));
        llm__tpl_push(x, out, l->v[i]);
    }
    return llm__v_list(LLM__V_GEN, out);
}

/* sum(attribute, start) */
LLM__TPL_FN(llm__fn_sum) {
    const llm__vlist *l = llm__tpl_iter(x, self);
    llm__val total = a[1].type == LLM__V_UNSET ? llm__v_int(0) : a[1];
    if (total.type == LLM__V_STR) llm__tpl_fail(x, "sum: texts cannot be added up");
    for (int i = 0; i < l->n; i++) total = llm__tpl_arith(x, '+', total, llm__tpl_pick(x, l->v[i], a[0], llm__v(LLM__V_UNSET)));
    return total;
}

/* map("filter", ...), map(attribute="a.b", default=...): op 0; select, reject("test", ...): 1, 2; selectattr, rejectattr("attribute",
 * "test", ...): 3, 4. What stands behind the filter's or test's name are its arguments: map("replace", "a", "b"). */
LLM__TPL_FN(llm__fn_each) {
    const int attr = op > 2, where = op ? LLM__IN_TEST : LLM__IN_FILTER;
    const llm__val none = llm__v(LLM__V_UNSET), *absent = llm__args_named(x, g, llm__lit("default"));
    const llm__args rest = llm__args_after(g, attr + 1);
    llm__vlist *out = llm__tpl_empty(x);
    const llm__vlist *l = llm__v_truth(self) ? llm__tpl_iter(x, self) : out;
    const llm__tpl_row *row = l->n && g->pos.n > attr ? llm__tpl_row_of(x, where, llm__arg_text(x, g->pos.v[attr])) : NULL;
    const llm__val *by = attr && g->pos.n ? g->pos.v : !op && !row ? llm__args_named(x, g, llm__lit("attribute")) : NULL;
    if (l->n && !by && (attr || (!op && !row))) llm__tpl_fail(x, "a filter or an attribute was expected");
    if (l->n && !op && !row && g->named.n != 2 + 2 * (absent != NULL)) llm__tpl_fail(x, "map: unexpected argument");
    for (int i = 0; i < l->n; i++) {
        llm__val v = llm__tpl_pick(x, l->v[i], by ? *by : none, !op && absent ? *absent : none);
        if (row) v = llm__tpl_apply(x, row, v, &rest);
        if (!op) llm__tpl_push(x, out, v);
        else if (llm__v_truth(v) == (op & 1)) llm__tpl_push(x, out, l->v[i]);
    }
    return llm__v_list(LLM__V_GEN, out);
}

/* indent(width, first, blank): every line but the first, and those that are empty, unless asked for. */
LLM__TPL_FN(llm__fn_indent) {
    llm__str s = llm__arg_text(x, self), by = llm__arg_indent(x, a[0], 4);
    const size_t mark = x->text.len;
    llm__tpl_put(x, s);
    llm__tpl_puts(x, "\n"); /* so that every line has its end */
    const llm__vlist *l = llm__tpl_lines(x, llm__v_s(llm__tpl_take(x, mark)), 0);
    for (int i = 0; i < l->n; i++) {
        if (i) llm__tpl_puts(x, "\n");
        if (i ? (l->v[i].n || llm__v_truth(a[2])) : llm__v_truth(a[1])) llm__tpl_put(x, by);
        llm__tpl_put(x, llm__v_s(l->v[i]));
    }
    return LLM__WRITTEN;
}

/* int(default), float(default): op 1. Of a text, the number in it; a fraction is cut off. */
LLM__TPL_FN(llm__fn_number) {
    llm__val v = self;
    llm__tpl_defined(x, self);
    if (LLM__V_IN(self, LLM__M_STR | LLM__M_BIG)) {
        llm__str s = llm__tpl_trim(llm__v_s(self), 3);
        if (s.n > 1 && s.p[0] == '+' && s.p[1] != '-') s = llm__str_from(s, 1);
        v = llm__v_float(0);
        if (!llm__parse_double(s.p, s.n, &v.as.f)) v = llm__v(LLM__V_UNSET);
        else if (!op && self.type == LLM__V_BIG) return self;
    }
    if (!LLM__V_IN(v, LLM__M_NUMBER) || (!op && v.as.f - v.as.f != 0))
        return a[0].type != LLM__V_UNSET ? a[0] : op ? llm__v_float(0) : llm__v_int(0);
    if (!op && fabs(v.as.f) > (double)LLM__TPL_INT) llm__tpl_overflow(x);
    return op ? llm__v_float(v.as.f) : llm__v_int((int64_t)v.as.f);
}

/* Python's abs: of a bool a whole number. */
LLM__TPL_FN(llm__fn_abs) {
    llm__tpl_expect(x, self, LLM__M_NUMBER, "a number");
    return llm__v_num(self.type == LLM__V_FLOAT ? LLM__V_FLOAT : LLM__V_INT, fabs(self.as.f));
}

/* ---- tests ----
 * `x is NAME` calls a function as a filter does, and what it gives is taken for true or false. Most tests ask for a type: for them `op` is
 * the set of types. The comparisons stand here too, for select("gt", 1) and its like. */

/* op: the types. */
LLM__TPL_FN(llm__fn_is_type) { return llm__v_bool(LLM__V_IN(self, op) != 0); }
LLM__TPL_FN(llm__fn_is_bool) { return llm__v_bool(self.type == LLM__V_BOOL && self.as.f == op); }

/* op: the comparison's token. */
LLM__TPL_FN(llm__fn_is_compared) { return llm__v_bool(llm__tpl_compare(x, op, self, a[0])); }

/* Does dividing by the argument, or by 2, leave op? */
LLM__TPL_FN(llm__fn_is_rest) {
    llm__val rest = llm__tpl_arith(x, '%', self, a[0].type == LLM__V_UNSET ? llm__v_int(2) : a[0]);
    return llm__v_bool(llm__tpl_equal(x, rest, llm__v_int(op)));
}

/* Python's `is`: the same object. */
LLM__TPL_FN(llm__fn_is_same) {
    if (self.type != a[0].type) return llm__v_bool(0);
    return llm__v_bool(self.type >= LLM__V_LIST ? self.as.list == a[0].as.list : llm__tpl_equal(x, self, a[0]));
}

/* ---- global functions ----
 * What stands in no context and is a name all the same. A context may have a member of the same name: that one counts. */

/* The template's own refusal; of its text 256 bytes are kept. */
LLM__TPL_FN(llm__fn_raise_exception) {
    llm__str s = llm__tpl_str_of(x, a[0]);
    llm__tpl_fail(x, "%.*s", (int)LLM__MIN(s.n, (size_t)256), s.p);
}

/* range(stop), range(start, stop, step), of limited length as in jinja2's sandbox. */
LLM__TPL_FN(llm__fn_range) {
    const int one = a[1].type == LLM__V_UNSET;
    const int64_t start = one ? 0 : llm__arg_int(x, a[0], 0), stop = llm__arg_int(x, a[!one], 0), step = llm__arg_int(x, a[2], 1);
    llm__vlist *l = llm__tpl_empty(x);
    if (step == 0) llm__tpl_fail(x, "range: the step is 0");
    for (int64_t i = start, over = 0; !over && (step > 0 ? i < stop : i > stop); over = __builtin_add_overflow(i, step, &i)) {
        if (l->n == LLM__TPL_RANGE) llm__tpl_error(x, LLM_ERR_LIMIT, "range: over %d values", LLM__TPL_RANGE);
        llm__tpl_push(x, l, llm__v_int(i));
    }
    return llm__v_list(LLM__V_RANGE, l);
}

/* dict, and namespace (op: the type): a mapping or pairs, then names with values. */
LLM__TPL_FN(llm__fn_dict) {
    llm__vlist *d = llm__tpl_empty(x);
    if (g->pos.n > 1) llm__tpl_fail(x, "dict: at most one argument by position");
    const llm__val *from = g->pos.n ? &g->pos.v[0] : NULL;
    const llm__vlist *l = !from ? d : from->type == LLM__V_DICT ? llm__tpl_view(x, from->as.list, 2) : llm__tpl_iter(x, *from);
    for (int i = 0; i < l->n; i++) {
        const llm__vlist *pair = llm__tpl_iter(x, l->v[i]);
        if (pair->n != 2) llm__tpl_fail(x, "dict: pairs were expected");
        llm__tpl_dict_set(x, d, pair->v[0], pair->v[1]);
    }
    for (int i = 0; i < g->named.n; i += 2) llm__tpl_dict_set(x, d, g->named.v[i], g->named.v[i + 1]);
    return llm__v_list((llm__vtype)op, d);
}

/* strftime_now(format): transformers' clock, local time by the caller's offset, in the C locale and without a zone. */
LLM__TPL_FN(llm__fn_strftime_now) {
    const int64_t span = 8640000000000; /* 100 million days */
    const int64_t now = x->options->now ? x->options->now : (int64_t)llm__wall_clock();
    const time_t local = now > span || now < -span ? 0 : (time_t)(now + x->options->utc_offset_s);
    const llm__val format = llm__tpl_copy(x, LLM__V_STR, llm__arg_text(x, a[0])); /* ends in NUL */
    char out[1024];
    struct tm t;
    if (now > span || now < -span || !gmtime_r(&local, &t)) llm__tpl_fail(x, "strftime_now: the time is out of range");
    t.tm_isdst = -1; /* neither %Z nor %z has anything to say */
    t.tm_zone = "";
    locale_t c, old = llm__c_locale_begin(&c);
    const size_t n = strftime(out, sizeof out, format.as.s, &t);
    llm__c_locale_end(c, old);
    if (!n && format.n) llm__tpl_fail(x, "strftime_now: the format is too long, or gives nothing");
    llm__tpl_put(x, llm__s(out, n));
    return LLM__WRITTEN;
}

/* Everything that has a name. Methods of texts are Python's str, without those that templates have no use for (encode, partition,
 * expandtabs ...); a dash before a parameter: Python takes it by position only. Filters have jinja2's names and order of parameters, since
 * templates pass them by both. */
/* clang-format off */
static const llm__tpl_row llm__tpl_rows[] = {
    {"split", LLM__M_STR, "sep maxsplit", llm__fn_split, 0}, {"rsplit", LLM__M_STR, "sep maxsplit", llm__fn_split, 1},
    {"splitlines", LLM__M_STR, "keepends", llm__fn_splitlines, 0}, {"strip", LLM__M_STR, "-chars", llm__fn_strip, 3},
    {"lstrip", LLM__M_STR, "-chars", llm__fn_strip, 1}, {"rstrip", LLM__M_STR, "-chars", llm__fn_strip, 2},
    {"startswith", LLM__M_STR, "-prefix!", llm__fn_has_affix, 0}, {"endswith", LLM__M_STR, "-suffix!", llm__fn_has_affix, 1},
    {"replace", LLM__M_STR, "-old! -new! -count", llm__fn_replace, 0}, {"join", LLM__M_STR, "-iterable!", llm__fn_join, 1},
    {"format", LLM__M_STR, NULL, llm__fn_format, 0}, {"lower", LLM__M_STR | LLM__IN_FILTER, "", llm__fn_case, 'l'},
    {"upper", LLM__M_STR | LLM__IN_FILTER, "", llm__fn_case, 'u'}, {"title", LLM__M_STR, "", llm__fn_case, 't'},
    {"capitalize", LLM__M_STR | LLM__IN_FILTER, "", llm__fn_case, 'c'}, {"title", LLM__IN_FILTER, "", llm__fn_case, 'T'},
    {"count", LLM__M_STR, "-sub!", llm__fn_str_count, 0}, {"find", LLM__M_STR, "-sub!", llm__fn_find, 1},
    {"rfind", LLM__M_STR, "-sub!", llm__fn_find, -1}, {"isdigit isdecimal isnumeric", LLM__M_STR, "", llm__fn_all_are, 'd'},
    {"isalpha", LLM__M_STR, "", llm__fn_all_are, 'a'}, {"isalnum", LLM__M_STR, "", llm__fn_all_are, 'n'},
    {"isspace", LLM__M_STR, "", llm__fn_all_are, 's'}, {"removeprefix", LLM__M_STR, "-prefix!", llm__fn_remove_affix, 0},
    {"removesuffix", LLM__M_STR, "-suffix!", llm__fn_remove_affix, 1}, {"get", LLM__M_DICT, "-key! -default", llm__fn_get, 0},
    {"items", LLM__M_DICT, "", llm__fn_view, 2}, {"keys", LLM__M_DICT, "", llm__fn_view, 0}, {"values", LLM__M_DICT, "", llm__fn_view, 1},

    {"tojson", LLM__IN_FILTER, "ensure_ascii indent separators sort_keys", llm__fn_tojson, 0},
    {"length count", LLM__IN_FILTER, "", llm__fn_length, 0}, {"trim", LLM__IN_FILTER, "chars", llm__fn_strip, 3},
    {"string", LLM__IN_FILTER, "", llm__fn_string, 0}, {"default d", LLM__IN_FILTER, "default_value boolean", llm__fn_default, 0},
    {"join", LLM__IN_FILTER, "d attribute", llm__fn_join, 0}, {"items", LLM__IN_FILTER, "", llm__fn_items, 0},
    {"list", LLM__IN_FILTER, "", llm__fn_list, 0}, {"select", LLM__IN_FILTER, NULL, llm__fn_each, 1},
    {"reject", LLM__IN_FILTER, NULL, llm__fn_each, 2}, {"selectattr", LLM__IN_FILTER, NULL, llm__fn_each, 3},
    {"rejectattr", LLM__IN_FILTER, NULL, llm__fn_each, 4}, {"map", LLM__IN_FILTER, NULL, llm__fn_each, 0},
    {"safe", LLM__IN_FILTER, "", llm__fn_string, 1}, {"escape e", LLM__IN_FILTER, "", llm__fn_escape, 0},
    {"dictsort", LLM__IN_FILTER, "case_sensitive by reverse", llm__fn_dictsort, 0},
    {"replace", LLM__IN_FILTER, "old! new! count", llm__fn_replace, 1},
    {"unique", LLM__IN_FILTER, "case_sensitive attribute", llm__fn_unique, 0},
    {"sort", LLM__IN_FILTER, "reverse case_sensitive attribute", llm__fn_sort, 0},
    {"min", LLM__IN_FILTER, "case_sensitive attribute", llm__fn_extreme, 0},
    {"max", LLM__IN_FILTER, "case_sensitive attribute", llm__fn_extreme, 1}, {"sum", LLM__IN_FILTER, "attribute start", llm__fn_sum, 0},
    {"first", LLM__IN_FILTER, "", llm__fn_end_item, 0}, {"last", LLM__IN_FILTER, "", llm__fn_end_item, 1},
    {"int", LLM__IN_FILTER, "default", llm__fn_number, 0}, {"float", LLM__IN_FILTER, "default", llm__fn_number, 1},
    {"abs", LLM__IN_FILTER, "", llm__fn_abs, 0}, {"indent", LLM__IN_FILTER, "width first blank", llm__fn_indent, 0},
    {"reverse", LLM__IN_FILTER, "", llm__fn_reverse, 0}, {"from_json", LLM__IN_FILTER, "", llm__fn_from_json, 0},

    {"defined", LLM__IN_TEST, "", llm__fn_is_type, ~LLM__M_UNDEF}, {"undefined", LLM__IN_TEST, "", llm__fn_is_type, LLM__M_UNDEF},
    {"none", LLM__IN_TEST, "", llm__fn_is_type, 1 << LLM__V_NONE}, {"boolean", LLM__IN_TEST, "", llm__fn_is_type, 1 << LLM__V_BOOL},
    {"true", LLM__IN_TEST, "", llm__fn_is_bool, 1}, {"false", LLM__IN_TEST, "", llm__fn_is_bool, 0},
    {"integer", LLM__IN_TEST, "", llm__fn_is_type, 1 << LLM__V_INT | LLM__M_BIG},
    {"float", LLM__IN_TEST, "", llm__fn_is_type, 1 << LLM__V_FLOAT},
    {"number", LLM__IN_TEST, "", llm__fn_is_type, LLM__M_NUMBER | LLM__M_BIG}, {"string", LLM__IN_TEST, "", llm__fn_is_type, LLM__M_STR},
    {"mapping", LLM__IN_TEST, "", llm__fn_is_type, LLM__M_DICT}, {"sequence", LLM__IN_TEST, "", llm__fn_is_type, LLM__M_SEQUENCE},
    {"iterable", LLM__IN_TEST, "", llm__fn_is_type, LLM__M_SEQUENCE | LLM__M_LISTED | 1 << LLM__V_GEN | 1 << LLM__V_LOOP},
    {"callable", LLM__IN_TEST, "", llm__fn_is_type, LLM__M_UNDEF | 1 << LLM__V_MACRO | 1 << LLM__V_FUNC},
    {"divisibleby", LLM__IN_TEST, "num!", llm__fn_is_rest, 0}, {"even", LLM__IN_TEST, "", llm__fn_is_rest, 0},
    {"odd", LLM__IN_TEST, "", llm__fn_is_rest, 1}, {"sameas", LLM__IN_TEST, "other!", llm__fn_is_same, 0},
    {"in", LLM__IN_TEST, "seq!", llm__fn_is_compared, 'I'}, {"eq == equalto", LLM__IN_TEST, "-b!", llm__fn_is_compared, 'E'},
    {"ne !=", LLM__IN_TEST, "-b!", llm__fn_is_compared, 'N'}, {"lt < lessthan", LLM__IN_TEST, "-b!", llm__fn_is_compared, '<'},
    {"le <=", LLM__IN_TEST, "-b!", llm__fn_is_compared, 'L'}, {"gt > greaterthan", LLM__IN_TEST, "-b!", llm__fn_is_compared, '>'},
    {"ge >=", LLM__IN_TEST, "-b!", llm__fn_is_compared, 'G'},

    {"raise_exception", LLM__IN_GLOBAL, "message!", llm__fn_raise_exception, 0},
    {"range", LLM__IN_GLOBAL, "-start! -stop -step", llm__fn_range, 0}, {"dict", LLM__IN_GLOBAL, NULL, llm__fn_dict, LLM__V_DICT},
    {"namespace", LLM__IN_GLOBAL, NULL, llm__fn_dict, LLM__V_NAMESPACE},
    {"strftime_now", LLM__IN_GLOBAL, "format!", llm__fn_strftime_now, 0}};
/* clang-format on */

LLM__PRIVATE const llm__tpl_row *llm__tpl_row_at(int i) { return i < LLM__COUNT(llm__tpl_rows) ? &llm__tpl_rows[i] : NULL; }
LLM__PRIVATE int llm__tpl_row_number(const llm__tpl_row *row) { return (int)(row - llm__tpl_rows); }

LLM__PRIVATE const llm__tpl_row *llm__tpl_named(int where, llm__str name) {
    for (int i = 0; i < LLM__COUNT(llm__tpl_rows); i++)
        if ((llm__tpl_rows[i].where & where) && llm__word_index(llm__tpl_rows[i].names, name) >= 0) return &llm__tpl_rows[i];
    return NULL;
}
