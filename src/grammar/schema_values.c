#include "grammar/schema_values.h"
#include "api/text.h"
#include "api/json.h"
#include "api/grammar.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "text/regex.h"
#include "grammar/machine.h"
#include "grammar/finish.h"
#include "grammar/schema.h"
#include "grammar/schema_rules.h"

LLM__PRIVATE void llm__gr_words_add(llm__gr_build *b, llm__gr_words *w) {
    if (!llm__grow((void **)&w->word, &w->cap, w->n + 1, sizeof *w->word) || w->all.failed) b->failed = llm__nomem();
    else w->word[w->n++].n = w->all.len; /* its end, until all are there and `all` moves no more */
}

/* By bytes, a prefix first. */
static int llm__gr_str_order(const void *a, const void *b) { return llm__str_order(*(const llm__str *)a, *(const llm__str *)b); }

LLM__PRIVATE void llm__gr_words_sort(llm__gr_words *w, size_t cut) {
    for (size_t i = 0, begin = 0, end; i < w->n; i++, begin = end) {
        end = w->word[i].n;
        w->word[i] = llm__s(w->all.data + begin + cut, end - begin - 2 * cut);
    }
    if (w->n) qsort(w->word, w->n, sizeof *w->word, llm__gr_str_order);
}

LLM__PRIVATE void llm__gr_words_free(llm__gr_words *w) {
    LLM_FREE(w->word);
    llm_text_free(&w->all);
}

/* A value as the model must write it: its compact text, and around the marks of lists and objects the usual space. */
static llm__gr_frag llm__js_literal(llm__js *js, llm__str text) {
    llm__gr_build *b = js->b;
    llm__gr_frag f = llm__gr_empty(b);
    for (size_t i = 0, inside = 0; i < text.n && !b->failed; i++) {
        char c = text.p[i];
        int mark = !inside && strchr("[]{},:", c) != NULL;
        if (mark && strchr("]}", c)) f = llm__gr_seq(b, f, llm__js_space(js));
        f = llm__gr_seq(b, f, llm__gr_text(b, llm__s(text.p + i, 1)));
        if (mark && !strchr("]}", c)) f = llm__gr_seq(b, f, llm__js_space(js));
        if (c == '\\') f = llm__gr_seq(b, f, llm__gr_text(b, llm__s(text.p + ++i, 1)));
        else if (c == '"') inside = !inside;
    }
    return f;
}

LLM__PRIVATE int llm__js_next_given(const llm__js *js, const llm__js_view *v, int i, int at, int no) {
    int list = no ? llm__js_find_not(js, v, i, "enum") : llm__js_find(js, v, i, "enum");
    int one = no ? llm__js_find_not(js, v, i, "const") : llm__js_find(js, v, i, "const");
    if (at < 0) return list >= 0 && llm_json_size(js->doc, list) ? llm_json_first(js->doc, list) : one;
    int next = at == one ? -1 : llm_json_next(js->doc, at);
    return next < 0 && at != one ? one : next;
}

/* 1 if a node is written as this text. */
static int llm__js_written(const llm__js *js, int node, llm__str text) {
    llm_text t = llm__text_none();
    if (!llm__gr_spend(js->b, 4 + text.n / 64)) return 0;
    llm_json_write(js->doc, node, &t);
    if (t.failed) js->b->failed = llm__nomem();
    int same = llm__str_same(llm__text_str(&t), text);
    return llm_text_free(&t), same;
}

LLM__PRIVATE int llm__js_among(const llm__js *js, const llm__js_view *v, llm__str value, int no) {
    for (int i = 0; i < v->n; i++)
        for (int at = llm__js_next_given(js, v, i, -1, no); at >= 0; at = llm__js_next_given(js, v, i, at, no))
            if (llm__js_written(js, at, value)) return 1;
    return 0;
}

LLM__PRIVATE int llm__js_value_type(const llm__js *js, int node) {
    static const int bits[] = {0, LLM__JS_NULL, LLM__JS_BOOL, LLM__JS_NUM, LLM__JS_STR, LLM__JS_ARR, LLM__JS_OBJ}; /* by llm_json_type */
    int64_t whole;
    return llm_json_int(js->doc, node, &whole) ? LLM__JS_INT : bits[llm_json_type_of(js->doc, node)];
}

LLM__PRIVATE llm_grammar *llm__js_trial(llm__js *js, const llm__js_view *v) {
    llm__gr_build b;
    llm__js trial = *js;
    if (!llm__gr_spend(js->b, 1024)) return NULL;
    trial.b = &b, trial.memo = NULL, trial.n_memo = trial.memo_cap = 0, trial.lenient = 1, trial.space = NULL, trial.pattern = NULL;
    if (llm__grammar_new(&b, js->b->g->fuel)) {
        llm__gr_frag f = llm__js_rule(&trial, v);
        llm__grammar_finish(&b, llm__gr_alt(&b, f, llm__gr_range(&b, 1, 0))); /* even if nothing keeps it */
    }
    llm__regex_close(trial.pattern);
    LLM_FREE(trial.memo);
    js->b->failed = b.failed;
    if (b.failed && b.g) llm__grammar_free(b.g);
    return b.failed ? NULL : b.g;
}

LLM__PRIVATE int llm__js_passes(llm__js *js, llm_grammar *trial, llm__str text) {
    int32_t state = 1;
    for (size_t i = 0; i < text.n && state; i++) state = llm__gr_step(trial, state, (uint8_t)text.p[i]);
    if (trial->failed && llm__gr_spend(js->b, text.n)) js->b->failed = llm__gr_gave_up(trial->failed);
    return trial->state[state].accept;
}

/* What given values must keep besides being in their list, as a trial, if that is more than a type. NULL: nothing more, or an error. */
static llm_grammar *llm__js_filter(llm__js *js, const llm__js_view *v) {
    int more = 0;
    for (int i = 0; i < v->n; i++)
        for (int key = v->used[i] & LLM__JS_NOT ? -1 : llm_json_first(js->doc, v->node[i]); key >= 0; key = llm_json_next(js->doc, key)) {
            int dealt = llm__js_listed(js, llm__js_notes, key) || llm__js_listed(js, "type $ref allOf not", key);
            for (int k = 0; k < LLM__COUNT(llm__js_dealt); k++)
                dealt |= v->used[i] & llm__js_dealt[k].flag && llm__js_listed(js, llm__js_dealt[k].keys, key);
            more |= !dealt;
        }
    if (!more) return NULL;
    llm__js_view view = LLM__ZERO;
    for (int i = 0; i < v->n; i++) /* what a value may not be is looked up, not built */
        if (llm__js_next_given(js, v, i, -1, 1) < 0)
            view.node[view.n] = v->node[i], view.by[view.n] = v->by[i], view.used[view.n++] = v->used[i];
    return llm__js_trial(js, &view);
}

/* 1 if a given value, with its JSON, keeps the rest of the view: the filter (NULL: only the types), and not to be denied. */
static int llm__js_keeps(llm__js *js, const llm__js_view *v, llm_grammar *filter, int types, int node, llm__str text) {
    int fits = filter ? llm__js_passes(js, filter, text) : (types & llm__js_value_type(js, node)) != 0;
    return fits && !llm__js_among(js, v, text, 1);
}

LLM__PRIVATE llm__gr_frag llm__js_kept(llm__js *js, const llm__js_view *v, int list, int one, llm__gr_words *w) {
    llm__gr_build *b = js->b;
    llm__gr_frag f = llm__gr_never;
    int types = llm__js_types(js, v);
    llm_grammar *filter = llm__js_filter(js, v);
    for (int at = list >= 0 ? llm_json_first(js->doc, list) : one; at >= 0 && !b->failed;
         at = list >= 0 ? llm_json_next(js->doc, at) : -1) {
        size_t begin = w->all.len;
        llm_json_write(js->doc, at, &w->all);
        if (w->all.failed) b->failed = llm__nomem();
        llm_json_type type = llm_json_type_of(js->doc, at);
        llm__str value = llm__str_from(llm__text_str(&w->all), begin);
        int keeps = llm__gr_spend(b, 4 + value.n / 8) && llm__js_keeps(js, v, filter, types, at, value);
        if (keeps && type != LLM_JSON_ARRAY && type != LLM_JSON_OBJECT) {
            llm__gr_words_add(b, w);
            continue;
        }
        if (keeps) f = llm__gr_alt(b, f, llm__js_literal(js, value));
        w->all.len = begin;
    }
    if (filter) llm__grammar_free(filter);
    llm__gr_words_sort(w, 0);
    return f;
}

LLM__PRIVATE llm__gr_frag llm__js_values(llm__js *js, const llm__js_view *v, int list, int one) {
    llm__gr_build *b = js->b;
    LLM__SCOPED(llm__gr_words_free) llm__gr_words w = LLM__ZERO;
    llm__gr_frag f = llm__js_kept(js, v, list, one, &w);
    return w.n && !b->failed ? llm__gr_alt(b, f, llm__gr_strings(b, w.word, w.n, 0, 0)) : f;
}
