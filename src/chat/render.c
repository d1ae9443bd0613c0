#include "chat/render.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "api/template.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "base/map.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "chat/template.h"
#include "chat/values.h"
#include "chat/lexer.h"
#include "chat/functions.h"
#include "chat/expressions.h"
#include "chat/statements.h"

/* A text of the context, guarded if the options say so. */
static llm__val llm__tpl_from_text(llm__tpl *x, llm__str s) {
    if (!x->guard) return llm__tpl_copy(x, LLM__V_STR, s);
    x->aside.len = 0;
    llm__guard(x->guard, s, &x->aside);
    if (x->aside.failed) llm__tpl_error(x, LLM_ERR_NOMEM, "out of memory");
    return llm__tpl_copy(x, LLM__V_STR, llm__s(x->aside.data, x->aside.len));
}

LLM__PRIVATE llm__val llm__tpl_from_json(llm__tpl *x, const llm_json *doc, int node) {
    llm__val v = llm__v_float(0);
    llm_json_type type = llm_json_type_of(doc, node);
    if (type == LLM_JSON_NULL) return llm__v(LLM__V_NONE);
    if (type == LLM_JSON_STRING) return llm__tpl_from_text(x, llm__json_text(doc, node));
    if (type == LLM_JSON_BOOL || type == LLM_JSON_NUMBER) {
        llm__str s = llm__json_raw(doc, node);
        if (type == LLM_JSON_BOOL) return llm__v_bool(s.p[0] == 't');
        if (llm__str_until(s, ".eE") == s.n) v = llm__v_digits(s);
        else llm__parse_double(s.p, s.n, &v.as.f);
        return v.type == LLM__V_BIG ? llm__tpl_copy(x, LLM__V_BIG, s) : v;
    }
    llm__vlist *l = llm__tpl_empty(x);
    llm__tpl_enter(x);
    for (int i = llm_json_first(doc, node); i >= 0; i = llm_json_next(doc, i)) {
        v = llm__tpl_from_json(x, doc, i);
        if (type == LLM_JSON_OBJECT) llm__tpl_dict_set(x, l, llm__tpl_from_text(x, llm__json_key(doc, i)), v);
        else llm__tpl_push(x, l, v);
    }
    x->depth--;
    return llm__v_list(type == LLM_JSON_OBJECT ? LLM__V_DICT : LLM__V_LIST, l);
}

/* ---- opening and rendering ----
 * Opening copies the text, and tokens, names and constants are views of that copy. Rendering makes a struct llm__tpl on its stack, an arena
 * and a buffer, all of its own: between two renders, or two threads, nothing is shared but the tokens. */

LLM_API void llm_template_close(llm_template *t) {
    if (!t) return;
    llm__arena_free(&t->arena);
    llm__map_free(&t->names);
    LLM_FREE(t->tok);
    LLM_FREE(t);
}

/* What the guard runs: the lexer, and the check. The lexer gets a copy of the source with \r\n and \r as \n, without one line feed at the
 * end; it looks a few bytes ahead, at zeros, and one byte back, at a line feed. */
static void llm__tpl_check(llm__tpl *x) {
    const llm__str text = x->source;
    char *s = (char *)llm__tpl_get(x, text.n + 9), *to = s;
    *to++ = '\n';
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] != '\r' || i + 1 == text.n || text.p[i + 1] != '\n') *to++ = (char)(text.p[i] == '\r' ? '\n' : text.p[i]);
    if (to > s + 1 && to[-1] == '\n') *--to = 0;
    x->source = llm__s(s + 1, (size_t)(to - s) - 1);
    llm__lex_all(x);
    x->tok = x->made->tok;
    llm__tpl_block(x, 0, 0);
}

/* After an error all of the template goes. Errors name the line: of syntax here, of values in the render. */
LLM_API llm_result llm_template_open(const char *text, size_t len, llm_template **out) {
    llm__tpl x = LLM__ZERO;
    const size_t valid = llm__utf8_valid(text, len);
    *out = NULL;
    if (len > (size_t)16 << 20) return llm__error(LLM_ERR_LIMIT, "template: %zu bytes, at most 16 MiB expected", len);
    if (valid < len) return llm__error(LLM_ERR_TEMPLATE, "template: byte %zu is not UTF-8", valid);
    x.made = LLM__NEW(llm_template, 1);
    if (!x.made) return llm__nomem();
    x.arena = &x.made->arena;
    x.arena->limit = (size_t)1 << 30;
    x.source = llm__s(text, len);
    x.fuel = INT64_MAX; /* the check is linear */
    x.line = 1;
    llm_result r = llm__tpl_guard(&x, llm__tpl_check);
    if (r) llm_template_close(x.made);
    else *out = x.made;
    return r;
}

/* Sets a variable of the context, if the template names it. */
static void llm__tpl_give(llm__tpl *x, llm__str name, llm__val v) {
    int32_t id = llm__map_get(&x->t->names, name);
    if (id >= 0) llm__tpl_assign(x, (uint16_t)id, v);
}

/* A member of a dict by its name; NULL if v is NULL, is no dict, or has none. */
static llm__val *llm__tpl_member(llm__tpl *x, const llm__val *v, const char *name) {
    return v && v->type == LLM__V_DICT ? llm__tpl_dict_find(x, v->as.list, llm__v_str(llm__lit(name))) : NULL;
}

/* A call's arguments as an object: the text of one becomes it, and none, which may be missing, None or an empty text, is an empty one. */
static void llm__tpl_arguments(llm__tpl *x, const llm__val *function) {
    llm__val *v = llm__tpl_member(x, function, "arguments"), parsed = llm__v(LLM__V_UNSET);
    const int text = v && v->type == LLM__V_STR;
    if (!function || function->type != LLM__V_DICT) return;
    if (!v || v->type == LLM__V_NONE || (text && !llm__v_s(*v).n))
        llm__tpl_dict_set(x, function->as.list, llm__v_str(llm__lit("arguments")), llm__v_list(LLM__V_DICT, llm__tpl_empty(x)));
    else if (text) parsed = llm__tpl_parse_json(x, llm__v_s(*v));
    if (parsed.type == LLM__V_DICT) *v = parsed;
}

/* What chat servers do to messages before they are rendered, vLLM among them: arguments become objects, since OpenAI's API carries them as
 * text and templates write them by tojson, which would quote a text a second time; a list of no calls, or None for one, is taken out. */
static void llm__tpl_as_chat(llm__tpl *x, llm__val messages) {
    for (int i = 0; messages.type == LLM__V_LIST && i < messages.as.list->n; i++) {
        llm__vlist *message = messages.as.list->v[i].as.list;
        llm__val *calls = llm__tpl_member(x, &messages.as.list->v[i], "tool_calls");
        const int listed = calls && calls->type == LLM__V_LIST;
        for (int k = 0; listed && k < calls->as.list->n; k++) llm__tpl_arguments(x, llm__tpl_member(x, &calls->as.list->v[k], "function"));
        if (!calls || (listed ? calls->as.list->n > 0 : calls->type != LLM__V_NONE)) continue;
        memmove(calls - 1, calls + 1, (size_t)(message->v + message->n - (calls + 1)) * sizeof *calls);
        message->n -= 2;
    }
}

/* Variables: global functions, then the options' tokens, then the members of the context. For a chat, tools and documents are None where
 * nothing is given, as transformers' apply_chat_template passes them. */
static void llm__tpl_context(llm__tpl *x) {
    const llm_render_options *o = x->options;
    const llm__tpl_row *row;
    for (int i = 0; (row = llm__tpl_row_at(i)) != NULL; i++) {
        if (row->where != LLM__IN_GLOBAL) continue;
        llm__val f = llm__tpl_object(x, LLM__V_FUNC);
        f.as.object->row = row;
        llm__tpl_give(x, llm__lit(row->names), f);
    }
    if (o->bos_token) llm__tpl_give(x, llm__lit("bos_token"), llm__v_str(llm__lit(o->bos_token)));
    if (o->eos_token) llm__tpl_give(x, llm__lit("eos_token"), llm__v_str(llm__lit(o->eos_token)));
    if (o->as_chat) llm__tpl_give(x, llm__lit("tools"), llm__v(LLM__V_NONE));
    if (o->as_chat) llm__tpl_give(x, llm__lit("documents"), llm__v(LLM__V_NONE));
    for (int i = llm_json_first(x->input, 0); i >= 0; i = llm_json_next(x->input, i)) {
        llm__str key = llm__json_key(x->input, i);
        if (llm__map_get(&x->t->names, key) < 0) continue;
        llm__val v = llm__tpl_from_json(x, x->input, i);
        if (o->as_chat && llm__str_eq(key, "messages")) llm__tpl_as_chat(x, v);
        llm__tpl_give(x, key, v);
    }
}

/* What the guard runs: a render, with its result in x->text. Reading the context has fuel of its own: some millions of values, or one
 * object of 40,000 keys, since a dict is searched for each key that it gets. */
static void llm__tpl_render(llm__tpl *x) {
    x->fuel = 1 << 23;
    llm__tpl_scope(x, NULL);
    llm__tpl_context(x);
    x->fuel = x->options->fuel > 0 ? x->options->fuel : 5000000;
    llm__tpl_scope(x, x->scope);
    llm__tpl_block(x, 0, 1);
}

LLM__PRIVATE llm_result llm__template_render(const llm_template *t, const llm_json *context, const llm_render_options *options,
                                             const llm__tokenizer *guard, llm_text *out) {
    llm_render_options defaults = LLM__ZERO;
    LLM__SCOPED(llm__arena_free) llm__arena arena = LLM__ZERO;
    llm__tpl x = LLM__ZERO;
    if (llm_json_type_of(context, 0) != LLM_JSON_OBJECT) return llm__error(LLM_ERR_ARG, "template context: a JSON object was expected");
    x.t = t;
    x.tok = t->tok;
    x.input = context;
    x.options = options ? options : &defaults;
    x.guard = guard;
    x.arena = &arena;
    arena.limit = (size_t)1 << 29;
    x.text.limit = x.options->max_output ? x.options->max_output : (size_t)32 << 20;
    llm_result r = llm__tpl_guard(&x, llm__tpl_render);
    if (!r) llm_text_add(out, x.text.data ? x.text.data : "", x.text.len);
    if (!r && out->failed) r = llm__nomem();
    llm_text_free(&x.text);
    llm_text_free(&x.aside);
    llm_json_free(x.json);
    return r;
}
