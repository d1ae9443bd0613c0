#include "chat/tools.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/json.h"
#include "api/template.h"
#include "api/chat.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "chat/template.h"
#include "chat/render.h"
#include "chat/literals.h"
#include "chat/reasoning.h"
#include "chat/tool_forms.h"

LLM_API int llm_tools_named(const char *name) {
    for (int i = 0; i < LLM__COUNT(llm__tool_rows); i++)
        if (llm__alias_among(llm__tool_rows[i].names, llm__lit(name), NULL)) return i;
    return -1;
}

LLM_API int llm_tools_detect(const char *chat_template) {
    for (int i = 1; chat_template && i < LLM__COUNT(llm__tool_rows); i++)
        if (llm__tool_rows[i].sign && strstr(chat_template, llm__tool_rows[i].sign)) return i;
    return 0;
}

LLM__PRIVATE int llm__tools_are_special(const llm__tokenizer *tokenizer, int format) {
    const char *begin = llm__tool_rows[format].begin[0];
    return begin ? llm__mark_is_special(tokenizer, begin) : 0;
}

LLM__PRIVATE int llm__tool_function(const llm_json *d, int tool) {
    int f = llm_json_find(d, tool, "function");
    return f >= 0 ? f : tool;
}

/* Writes the tag by the row's `call`, whose text before and behind the arguments stands around the function's schema. In the form "hermes",
 * for one tool that may be called:
 *
 *   {"structures":[{"begin":"<tool_call>\n{\"name\": \"weather\", \"arguments\": ","schema":{...},"end":"}\n</tool_call>"}],
 *    "triggers":["<tool_call>"],"separator":"\n","at_least_one":false,"stop_after_first":false}
 *
 * Text is free until a trigger is written; from there on one of the structures must follow. A form that begins with a bare brace has no
 * such trigger, and some rows have no `call`: these are the cases that give -1 or plain JSON. A function without parameters has an empty
 * object for arguments. */
LLM_API int llm_tools_grammar(LLM__UNUSED const llm_model *model, int format, const llm_json *tools, int list, int only, int must, int many,
                              llm_text *out) {
    static const char none[] = "{'type':'object','properties':{},'additionalProperties':false}";
    if (!llm__tool_rows[format].call) format = must ? 0 : -1;
    if (!must && (format < 0 || llm__tool_rows[format].bare)) return -1; /* nothing tells such a call from text */
    const llm__tool_row *row = &llm__tool_rows[format];
    const char *behind = strchr(row->call, '%') + 1;
    int i = 0;
    llm_text_str(out, "{\"structures\":[");
    for (int t = llm_json_first(tools, list); t >= 0; t = llm_json_next(tools, t)) {
        int f = llm__tool_function(tools, t), schema = llm_json_find(tools, f, "parameters");
        llm_text begin = LLM__ZERO;
        if (only >= 0 && i++ != only) continue;
        llm_text_add(&begin, row->call, (size_t)(behind - 1 - row->call));
        llm_text_format(&begin, "%s%s", llm_json_str(tools, llm_json_find(tools, f, "name"), NULL), behind);
        out->failed |= begin.failed;
        llm_text_format(out, "%,{'begin':%Q,'schema':", begin.data, begin.len);
        llm_text_format(out, llm_json_type_of(tools, schema) == LLM_JSON_OBJECT && llm_json_size(tools, schema) ? "%j" : none, tools,
                        schema);
        llm_text_format(out, ",'end':%q}", row->call_end);
        llm_text_free(&begin);
    }
    llm_text_format(out, "],'triggers':[%q],'separator':'\\n','at_least_one':%b,'stop_after_first':%b}", row->begin[0], must, !many);
    return format;
}

typedef enum llm__tool_state {
    LLM__TOOL_TEXT = 0,
    LLM__TOOL_BETWEEN,
    LLM__TOOL_NAME,
    LLM__TOOL_OBJECT,
    LLM__TOOL_ELEMENTS
} llm__tool_state;

enum { LLM__TOOL_NAME_MAX = 128, LLM__TOOL_GAP = 96 }; /* bytes of a name, and between it and its arguments */

/* One answer's parser. `held` is what is not decided yet, and all offsets count from its beginning: [0, at) was looked at, the rest was
 * not. Whatever is decided leaves at the front (llm__tool_drop), so held stays as short as one call. */
struct llm_tool_parser {
    llm__tool_row row; /* a copy: with `exact` begin and end are those of row.call */
    char begin[64];    /* what stands before the name in row.call */
    const llm_json *tools;
    int list, exact;
    int32_t most;
    llm__tool_state state;
    int fresh;                   /* the answer has had no text yet */
    int section;                 /* a call was read since the last `begin` */
    int named;                   /* a name may come: behind begin and open */
    llm_text held;               /* not decided yet */
    size_t at;                   /* what is before it in held was looked at */
    size_t name, name_end, from; /* in held: the name, -1 before one; where the arguments begin, or the object with both */
    int depth, in_string;        /* of the object; in_string 2: behind a backslash */
    llm_text elements;           /* arguments so far, as JSON */
    llm_tool_call *calls;
    int32_t n_calls, cap;
    int failed;
};

/* With `exact` the row's marks are replaced by those of its `call`: what the grammar lets the model write is narrower than what the form
 * allows, so begin reaches up to the name and end begins with the brace behind the arguments. Forms without `call` have no such grammar. */
LLM_API llm_tool_parser *llm_tool_parser_create(int format, int exact, const llm_json *tools, int list, int32_t most) {
    llm_tool_parser *p = LLM__NEW(llm_tool_parser, 1);
    if (!p) return NULL;
    p->row = llm__tool_rows[format];
    p->tools = tools;
    p->list = list;
    p->exact = exact && p->row.call;
    p->most = most > 0 ? most : INT32_MAX;
    p->fresh = 1;
    if (!p->exact) return p;
    snprintf(p->begin, sizeof p->begin, "%.*s", (int)strcspn(p->row.call, "%"), p->row.call);
    p->row.begin[0] = p->begin;
    p->row.end = p->row.call_end;
    p->row.begin[1] = NULL;
    p->row.bare = 0;
    return p;
}

LLM_API void llm_tool_parser_free(llm_tool_parser *p) {
    if (!p) return;
    for (int32_t i = 0; i < p->n_calls; i++) llm_text_free(&p->calls[i].name), llm_text_free(&p->calls[i].arguments);
    LLM_FREE(p->calls);
    llm_text_free(&p->held);
    llm_text_free(&p->elements);
    LLM_FREE(p);
}

LLM_API const llm_tool_call *llm_tool_parser_calls(const llm_tool_parser *p, int32_t *n) {
    *n = p->n_calls;
    return p->calls;
}

/* Forgets the first n bytes that are held. */
static void llm__tool_drop(llm_tool_parser *p, size_t n) {
    memmove(p->held.data, p->held.data + n, p->held.len - n);
    p->held.len -= n;
    p->at = 0;
}

/* Bytes of the mark that the held text has at `at`; 0: not there, and *more if the text ends in the middle of it. */
static size_t llm__tool_mark(const llm_tool_parser *p, size_t at, const char *mark, int *more) {
    size_t left = p->held.len - at, n = mark ? strlen(mark) : 0;
    if (!n || memcmp(p->held.data + at, mark, LLM__MIN(left, n))) return 0;
    *more |= left < n;
    return left < n ? 0 : n;
}

/* 1: calls are written as Python's. */
static int llm__tool_python(const llm_tool_parser *p) { return p->row.quote && p->row.quote[0] == '\''; }

/* What was held is no call: it is text, as far as it was looked at. Behind a call only marks and white space were looked at. */
static int llm__tool_refuse(llm_tool_parser *p, llm_text *content) {
    if (!p->section) llm_text_add(content, p->held.data, p->at);
    llm__tool_drop(p, p->at);
    p->state = LLM__TOOL_TEXT;
    p->fresh = 0;
    return 1;
}

/* Text, up to what may begin a call and the white space before it. Each state returns 1 when another goes on, 0 when it wants more text. */
static int llm__tool_text(llm_tool_parser *p, llm_text *content) {
    size_t i = p->at, n = 0, shown;
    int more = 0;
    for (; i < p->held.len; i++) {
        char c = p->held.data[i];
        for (int k = 0; k < 2 && !n; k++) n = llm__tool_mark(p, i, p->row.begin[k], &more);
        int bare = p->row.bare && p->fresh && (c == '{' || c == '[');
        if (n || more || bare) break;
        p->fresh &= llm__tool_space(c);
    }
    int found = n || (i < p->held.len && !more);
    for (shown = i; shown && llm__tool_space(p->held.data[shown - 1]);) shown--;
    llm_text_add(content, p->held.data, shown);
    llm__tool_drop(p, shown);
    p->at = i - shown + n;
    p->section = 0;
    p->named = n > 0;
    if (found) p->state = LLM__TOOL_BETWEEN;
    return found;
}

/* One more call; with its arguments (freed) if they are whole. NULL: it is one too many, or there is no memory. */
static llm_tool_call *llm__tool_add(llm_tool_parser *p, llm__str name, llm_text *arguments) {
    size_t cap = (size_t)p->cap;
    llm_tool_call *call = NULL;
    if (p->n_calls < p->most && p->n_calls == p->cap) p->failed |= !llm__grow((void **)&p->calls, &cap, cap + 1, sizeof *p->calls);
    p->cap = (int32_t)cap;
    if (p->n_calls < p->most && !p->failed) {
        call = &p->calls[p->n_calls++];
        memset(call, 0, sizeof *call);
        call->done = arguments != NULL;
        llm__add_str(&call->name, name);
        llm_text_str(&call->arguments, "");
    }
    if (call && arguments) llm_text_format(&call->arguments, "%t", arguments);
    else if (arguments) llm_text_free(arguments);
    if (call) p->failed |= call->name.failed | call->arguments.failed;
    return call;
}

/* The function of a name among the tools; -1. */
static int llm__tool_find(const llm_tool_parser *p, llm__str name) {
    for (int t = llm_json_first(p->tools, p->list); t >= 0; t = llm_json_next(p->tools, t)) {
        int f = llm__tool_function(p->tools, t);
        llm__str own = llm__json_text_at(p->tools, f, "name");
        if (own.p && llm__str_same(own, name)) return f;
    }
    return -1;
}

/* The name that is held; n 0: none came before the arguments. */
static llm__str llm__tool_held(const llm_tool_parser *p) { return llm__s(p->held.data + p->name, p->name_end - p->name); }

/* A call is whole: behind it others may come. */
static int llm__tool_done(llm_tool_parser *p) {
    llm__tool_drop(p, p->at);
    p->state = LLM__TOOL_BETWEEN;
    p->section = 1;
    p->named = llm__tool_python(p);
    return 1;
}

/* Between begin and a call, and behind a call: marks of the row, and the commas and brackets of a list of calls, are passed over. A letter
 * begins a name where one may stand, a brace an object; `close` ends the section. Anything else was no call after all. */
static int llm__tool_between(llm_tool_parser *p, llm_text *content) {
    while (p->at < p->held.len) {
        char c = p->held.data[p->at];
        int more = 0;
        size_t n = llm__tool_mark(p, p->at, p->row.close, &more), name = 0;
        if (n) {
            llm__tool_drop(p, p->at + n);
            p->state = LLM__TOOL_TEXT;
            p->fresh = 0;
            return 1;
        }
        for (int k = 0; k < 4 && !name; k++) name = llm__tool_mark(p, p->at, k < 2 ? p->row.open[k] : p->row.begin[k - 2], &more);
        p->named |= name > 0;
        n = name ? name : llm__tool_mark(p, p->at, p->row.end, &more);
        if (more) return 0;
        if (!n && (llm__tool_space(c) || (c && !p->exact && strchr(",;[]`", c)))) n = 1;
        if (c == '[' && !name) p->named = llm__tool_python(p); /* a list has objects, Python's has names */
        if (c == ']' && llm__tool_python(p)) p->named = 0;
        p->at += n;
        if (n) continue;
        if (p->named && c && strchr(llm__tool_letters, c)) {
            p->name = p->at;
            p->state = LLM__TOOL_NAME;
            return 1;
        }
        if (c != '{' || p->exact || llm__tool_python(p)) return llm__tool_refuse(p, content);
        p->from = p->name = p->name_end = p->at;
        p->depth = p->in_string = 0;
        p->state = LLM__TOOL_OBJECT;
        return 1;
    }
    return 0;
}

/* A name, and what stands between it and the arguments: at most LLM__TOOL_GAP bytes of whatever the form has there (">", "[ARGS]", a fence
 * with "json"), up to a brace, the first element, or the end of a call without arguments. Python has nothing there but a parenthesis. */
static int llm__tool_name(llm_tool_parser *p, llm_text *content) {
    size_t end = p->name, arg; /* where the arguments may begin */
    int more = 0;
    while (end < p->held.len && end - p->name <= LLM__TOOL_NAME_MAX && p->held.data[end] && strchr(llm__tool_letters, p->held.data[end]))
        end++;
    for (arg = end; arg < p->held.len && arg - end < LLM__TOOL_GAP && end - p->name <= LLM__TOOL_NAME_MAX; arg++) {
        size_t n = llm__tool_mark(p, arg, p->row.end, &more), key = llm__tool_mark(p, arg, p->row.key, &more);
        const size_t open = llm__tool_mark(p, arg, p->row.open[0], &more);
        if (more) return 0;
        if (open) { /* what came before was the call's id */
            p->name = arg + open;
            return 1;
        }
        p->name_end = end;
        p->from = p->at = arg;
        p->depth = p->in_string = 0;
        p->elements.len = 0;
        if (llm__tool_python(p) && !strchr("( ", p->held.data[arg])) break;
        if (p->held.data[arg] == (llm__tool_python(p) ? '(' : '{')) {
            p->state = LLM__TOOL_OBJECT;
            if (p->exact) llm__tool_add(p, llm__tool_held(p), NULL);
            return 1;
        }
        if (!n && !key) continue;
        p->state = LLM__TOOL_ELEMENTS;
        return 1;
    }
    p->at = arg;
    return arg == p->held.len && end - p->name <= LLM__TOOL_NAME_MAX ? 0 : llm__tool_refuse(p, content);
}

/* The arguments of an object that holds name and arguments, under the names that models give them: {"name", "arguments"}, Llama's
 * "parameters", Cohere's "tool_name", OpenAI's {"function": {...}}. *name: its node. -1: there are none. */
static int llm__tool_parts(const llm_json *d, int *name) {
    static const char *const names[] = {"name", "tool_name", "function"}, *const args[] = {"arguments", "parameters", "args"};
    int object = llm_json_type_of(d, llm_json_find(d, 0, "function")) == LLM_JSON_OBJECT ? llm_json_find(d, 0, "function") : 0, v = -1;
    *name = -1;
    for (int i = 0; i < 3 && *name < 0; i++) *name = llm_json_find(d, object, names[i]);
    for (int i = 0; i < 3 && v < 0; i++) v = llm_json_find(d, object, args[i]);
    return v;
}

/* Apertus' {"weather": {...}}: the name is the only key. */
static int llm__tool_keyed(const llm_json *d, llm__str *name) {
    size_t n = 0;
    const int v = llm_json_size(d, 0) == 1 ? llm_json_first(d, 0) : -1;
    const char *key = llm_json_type_of(d, v) == LLM_JSON_OBJECT ? llm_json_key(d, v, &n) : NULL;
    if (key) *name = llm__s(key, n);
    return v;
}

/* Writes the arguments at a node as one object: they may be a text that holds one, or missing. 0: they are neither. */
static int llm__tool_arguments(const llm_json *d, int v, llm_text *out) {
    llm__str s = llm__json_text(d, v);
    llm_json *inner = NULL;
    int ok = llm_json_type_of(d, v) == LLM_JSON_OBJECT || llm_json_type_of(d, v) <= LLM_JSON_NULL;
    const llm_result r = s.p ? llm_json_parse(s.p, s.n, NULL, &inner) : LLM_OK;
    if (s.p && !r) ok = llm_json_type_of(inner, 0) == LLM_JSON_OBJECT;
    out->failed |= r == LLM_ERR_NOMEM;
    if (ok && inner) llm_json_write(inner, 0, out);
    else if (ok && llm_json_type_of(d, v) == LLM_JSON_OBJECT) llm_json_write(d, v, out);
    else if (ok) llm_text_str(out, "{}");
    llm_json_free(inner);
    return ok;
}

/* Turns held JSON into a call: the arguments of a name that came before them, or an object with both. 0: it is none. */
static int llm__tool_take(llm_tool_parser *p) {
    llm_json *d = NULL;
    llm_text arguments = LLM__ZERO;
    llm__str name = llm__tool_held(p);
    const llm_result r = llm_json_parse(p->held.data + p->from, p->at - p->from, NULL, &d);
    int ok = !r, node = -1, v = ok && !name.n ? llm__tool_parts(d, &node) : 0;
    p->failed |= r == LLM_ERR_NOMEM;
    if (!name.n) name = llm__json_text(d, node);
    if (!name.n && ok) v = llm__tool_keyed(d, &name);
    ok = ok && name.n && name.n <= LLM__TOOL_NAME_MAX && (!p->row.bare || llm__tool_find(p, name) >= 0);
    ok = ok && llm__tool_arguments(d, v, &arguments);
    p->failed |= arguments.failed;
    if (ok) llm__tool_add(p, name, &arguments);
    llm_json_free(d);
    return ok;
}

/* Turns held literals into a call. 0: they are none. */
static int llm__tool_translate(llm_tool_parser *p) {
    llm_text arguments = LLM__ZERO;
    const llm__str name = llm__tool_held(p);
    const int python = llm__tool_python(p), known = !p->row.bare || llm__tool_find(p, name) >= 0;
    const llm__str inside = llm__s(p->held.data + p->from + 1, p->at - p->from - 2);
    const int ok = name.n && known && llm__literal_arguments(inside, python ? NULL : p->row.quote, &arguments);
    p->failed |= arguments.failed;
    if (ok) llm__tool_add(p, name, &arguments);
    else llm_text_free(&arguments);
    return ok;
}

/* Looks at what stands at p->at, inside of a text or not. Returns how many bytes it takes, 0: more must come before that can be told. */
static size_t llm__tool_literal(llm_tool_parser *p) {
    const char c = p->held.data[p->at];
    int more = 0;
    const size_t n = llm__tool_python(p) ? 0 : llm__tool_mark(p, p->at, p->row.quote, &more);
    if (more) return 0;
    if (n) p->in_string = !p->in_string;
    if (n) return n;
    if (p->in_string && !llm__tool_python(p)) return 1;
    if (p->in_string && c == '\\') return p->at + 1 < p->held.len ? 2 : 0;
    if (p->in_string) p->in_string = c == p->in_string ? 0 : p->in_string;
    else if (llm__tool_python(p) && (c == '\'' || c == '"')) p->in_string = c;
    else if (strchr("([{", c ? c : ' ')) p->depth++;
    else if (strchr(")]}", c ? c : ' ')) p->depth--;
    return 1;
}

/* Arguments as literals, to the bracket that closes the first one. */
static int llm__tool_literals(llm_tool_parser *p, llm_text *content) {
    for (size_t n; p->at < p->held.len && (n = llm__tool_literal(p)) > 0;) {
        p->at += n;
        if (!p->depth) return llm__tool_translate(p) ? llm__tool_done(p) : llm__tool_refuse(p, content);
    }
    return 0;
}

/* A JSON object, to its closing brace: braces and brackets are counted, those in strings are not. Each byte is looked at once, however the
 * pieces were cut. With `exact` the call was added with its name, and what is new is its arguments; else the whole is parsed at its end. */
static int llm__tool_object(llm_tool_parser *p, llm_text *content) {
    size_t from = p->at;
    if (p->row.quote) return llm__tool_literals(p, content);
    for (int whole = 0; p->at < p->held.len && !whole; p->at++) {
        char c = p->held.data[p->at];
        if (p->in_string) p->in_string = p->in_string == 2 ? 1 : c == '\\' ? 2 : c != '"';
        else if (c == '"') p->in_string = 1;
        else if (c == '{' || c == '[') p->depth++;
        else if (c == '}' || c == ']') whole = --p->depth == 0;
    }
    int whole = p->at > p->from && !p->depth;
    llm_tool_call *call = p->exact && p->n_calls ? &p->calls[p->n_calls - 1] : NULL;
    if (call && !call->done) {
        llm_text_add(&call->arguments, p->held.data + from, p->at - from);
        p->failed |= call->arguments.failed;
        call->done = whole;
    }
    if (!whole) return 0;
    return p->exact || llm__tool_take(p) ? llm__tool_done(p) : llm__tool_refuse(p, content);
}

/* Types that a parameter's schema lists, as bits 1 << llm_json_type. A whole number has a bit of its own besides, which "number" does not
 * ask for. LLM__TOOL_ANY: all but a text. */
enum { LLM__TOOL_TEXTS = 1 << LLM_JSON_STRING, LLM__TOOL_WHOLE = 1 << (LLM_JSON_OBJECT + 1), LLM__TOOL_ANY = 0xFF & ~LLM__TOOL_TEXTS };

static int llm__tool_type_of(const llm_json *d, int node) {
    int64_t whole;
    return 1 << llm_json_type_of(d, node) | (llm_json_int(d, node, &whole) ? LLM__TOOL_WHOLE : 0);
}

/* The types of a schema, in whatever way it lists them; 0: it says nothing. What a reference leads to may be anything, and so may a type of
 * an unknown name. */
static int llm__tool_types(const llm_json *d, int schema, int depth) {
    /* JSON Schema's, and what clients write for them */
    static const char words[] = "null=1|boolean=2|bool=2|binary=2|number=3|float=3|double=3|string=4|str=4|text=4|varchar=4|char=4|enum=4|"
                                "array=5|list=5|arr=5|object=6|dict=6|map=6|integer=7|int=7|long=7";
    static const char *const lists[] = {"anyOf", "oneOf", "allOf"};
    const int type = llm_json_find(d, schema, "type"), listed = llm_json_type_of(d, type) == LLM_JSON_ARRAY;
    int types = llm_json_find(d, schema, "$ref") >= 0 ? LLM__TOOL_ANY : 0, given = llm_json_find(d, schema, "const");
    for (int v = listed ? llm_json_first(d, type) : type; v >= 0; v = listed ? llm_json_next(d, v) : -1) {
        int32_t bit;
        types |= llm__alias_among(words, llm__json_text(d, v), &bit) ? 1 << bit : LLM__TOOL_ANY;
    }
    if (!types && given >= 0) types = llm__tool_type_of(d, given);
    given = llm_json_find(d, schema, "enum");
    for (int v = types ? -1 : llm_json_first(d, given); v >= 0; v = llm_json_next(d, v)) types |= llm__tool_type_of(d, v);
    for (int i = 0; i < 3 && depth < 8; i++)
        for (int v = llm_json_first(d, llm_json_find(d, schema, lists[i])); v >= 0; v = llm_json_next(d, v))
            types |= llm__tool_types(d, v, depth + 1);
    return types;
}

/* Reads a value between tags as JSON, in which Python's words, lists and dicts are known too. NULL: it is none. */
static llm_json *llm__tool_read(llm__str value, llm_text *out) {
    static const char *const python[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    LLM__SCOPED(llm_text_free) llm_text literal = llm__text_none();
    llm_json *d = NULL;
    for (int i = 0; i < 3; i++)
        if (llm__str_eq(value, python[i][0])) value = llm__lit(python[i][1]);
    llm_result r = llm_json_parse(value.p, value.n, NULL, &d);
    if (r && r != LLM_ERR_NOMEM && llm__literal_list_or_dict(value, &literal)) r = llm_json_parse(literal.data, literal.len, NULL, &d);
    out->failed |= r == LLM_ERR_NOMEM || literal.failed;
    return d;
}

/* A value between tags has no type of its own: it is a text where the tag says so (`is_text`) or the schema lists nothing else. Where that
 * lists texts among others, it is one of the others if it reads as such; where it lists no text, what reads as JSON is JSON. */
static void llm__tool_value(const llm_tool_parser *p, llm__str key, llm__str value, int is_text, llm_text *out) {
    const int f = llm__tool_find(p, llm__tool_held(p));
    const int properties = llm_json_find(p->tools, llm_json_find(p->tools, f, "parameters"), "properties");
    int types = llm__tool_types(p->tools, llm__json_member(p->tools, properties, key), 0);
    if (!types) types = p->row.untyped ? LLM__TOOL_ANY : LLM__TOOL_TEXTS;
    if (value.n && value.p[0] == '\n') value.p++, value.n--;
    if (value.n && value.p[value.n - 1] == '\n') value.n--;
    llm_json *d = is_text || types == LLM__TOOL_TEXTS ? NULL : llm__tool_read(value, out);
    if (d && (!(types & LLM__TOOL_TEXTS) || types & ~LLM__TOOL_TEXTS & llm__tool_type_of(d, 0))) llm_json_write(d, 0, out);
    else llm_text_json(out, value.p, value.n);
    llm_json_free(d);
}

/* One element: its key, its value, whether its tag says that this is a text, and the bytes of it all. A key that ends with a quote alone
 * has attributes behind it (DeepSeek's string="true", Kimi K3's type="string"). A value may stand in a CDATA section, which its end tag is
 * sought behind. */
typedef struct llm__tool_element {
    llm__str key, value;
    int is_text;
    size_t n;
} llm__tool_element;

/* Where a key ends, and in *behind the bytes up to its value. NULL: not yet. */
static const char *llm__tool_key_end(llm__str s, const char *mark, size_t *behind) {
    const llm__str first = llm__s(mark, strcspn(mark, "\n")), second = llm__lit(mark + first.n + (mark[first.n] != 0));
    llm__str rest = s;
    for (const char *end; (end = llm__str_find(rest, first)) != NULL;) {
        rest = llm__str_from(s, (size_t)(end - s.p) + first.n);
        llm__str value = rest;
        while (second.n && value.n && llm__tool_space(value.p[0])) value = llm__str_from(value, 1);
        *behind = (size_t)(value.p - s.p) + second.n;
        if (llm__starts(value, second)) return end;
    }
    return NULL;
}

/* Reads the element whose key begins at p->at + mark. 0: it is not whole yet. */
static int llm__tool_element_of(const llm_tool_parser *p, size_t mark, llm__tool_element *e) {
    static const char cdata[] = "<![CDATA[", cdata_end[] = "]]>";
    const llm__str all = llm__s(p->held.data + p->at, p->held.len - p->at);
    llm__str s = llm__str_from(all, mark);
    size_t behind = 0;
    const char *end = llm__tool_key_end(s, p->row.key_end, &behind);
    if (!end) return 0;
    e->key = llm__s(s.p, (size_t)(end - s.p));
    s = llm__str_from(s, behind);
    if (!strcmp(p->row.key_end, "\"")) {
        end = llm__str_find(s, llm__lit(">"));
        if (!end) return 0;
        const llm__str attributes = llm__s(s.p, (size_t)(end - s.p));
        e->is_text = llm__str_find(attributes, llm__lit("\"true\"")) || llm__str_find(attributes, llm__lit("\"string\""));
        s = llm__str_from(s, (size_t)(end - s.p) + 1);
    }
    if (s.n < strlen(cdata) && !memcmp(cdata, s.p, s.n)) return 0;
    const int section = llm__starts(s, llm__lit(cdata));
    const char *closed = section ? llm__str_find(s, llm__lit(cdata_end)) : s.p;
    if (!closed) return 0;
    end = llm__str_find(llm__str_from(s, (size_t)(closed - s.p)), llm__lit(p->row.value_end));
    if (!end) return 0;
    e->value = section ? llm__s(s.p + strlen(cdata), (size_t)(closed - s.p) - strlen(cdata)) : llm__s(s.p, (size_t)(end - s.p));
    e->is_text |= section;
    e->n = (size_t)(end - all.p) + strlen(p->row.value_end);
    return 1;
}

/* Arguments as elements, one whole element at a time: held from `at` on is <key>value</key>, or the end of the call. */
static int llm__tool_elements(llm_tool_parser *p, llm_text *content) {
    for (;;) {
        int more = 0;
        while (p->at < p->held.len && llm__tool_space(p->held.data[p->at])) p->at++;
        if (p->at == p->held.len) return 0;
        const size_t key = llm__tool_mark(p, p->at, p->row.key, &more), n = llm__tool_mark(p, p->at, p->row.end, &more);
        llm__tool_element e = LLM__ZERO;
        if (!key && !n) return more ? 0 : llm__tool_refuse(p, content);
        if (n) break;
        if (!llm__tool_element_of(p, key, &e)) return 0;
        llm_text_format(&p->elements, p->elements.len ? ", %Q: " : "{%Q: ", e.key.p, e.key.n);
        llm__tool_value(p, e.key, e.value, e.is_text, &p->elements);
        p->at += e.n;
    }
    llm_text_str(&p->elements, p->elements.len ? "}" : "{}");
    llm__tool_add(p, llm__tool_held(p), &p->elements);
    return llm__tool_done(p);
}

/* Steps as long as a state hands over to another; one that wants more text keeps its place until the next push. */
LLM_API void llm_tool_parser_push(llm_tool_parser *p, const char *piece, size_t len, llm_text *content) {
    static int (*const step[])(llm_tool_parser * p, llm_text * content) = {llm__tool_text, llm__tool_between, llm__tool_name,
                                                                           llm__tool_object, llm__tool_elements};
    llm_text_add(&p->held, piece, len);
    while (p->held.len && !p->held.failed && step[p->state](p, content)) continue;
    content->failed |= p->failed | p->held.failed;
}

/* A call that was begun and is not whole is text, unless its arguments have been told already. White space behind the last call goes. */
LLM_API void llm_tool_parser_end(llm_tool_parser *p, llm_text *content) {
    int told = p->exact && p->state == LLM__TOOL_OBJECT, behind = p->state == LLM__TOOL_BETWEEN && p->section, blank = p->n_calls > 0;
    for (size_t i = 0; i < p->held.len; i++) blank &= llm__tool_space(p->held.data[i]);
    if (!told && !behind && !blank) llm_text_add(content, p->held.data, p->held.len);
    p->held.len = 0;
    p->state = LLM__TOOL_TEXT;
}

/* Renders a context, given as llm_text_format has it. 0: the template refuses it (raise_exception), or *lost: there was no memory. */
static int llm__chat_try(const llm_template *t, const char *context, llm_text *text, int *lost) {
    llm_json *doc = NULL;
    llm_text json = LLM__ZERO;
    llm_text_format(&json, context);
    llm_result r = json.failed ? llm__nomem() : llm_json_parse(json.data, json.len, NULL, &doc);
    if (!r) r = llm__template_render(t, doc, NULL, NULL, text);
    *lost |= r == LLM_ERR_NOMEM;
    llm_text_free(&json);
    llm_json_free(doc);
    return !r && text->data;
}

/* Is `probe` in the text rendered from a context, and `not_probe` not? */
static int llm__chat_probe(const llm_template *t, const char *context, const char *probe, const char *not_probe, int *lost) {
    LLM__SCOPED(llm_text_free) llm_text text = LLM__ZERO;
    return llm__chat_try(t, context, &text, lost) && strstr(text.data, probe) && !strstr(text.data, not_probe);
}

/* Whether a picture leaves a trace. */
static int llm__chat_shows(const llm_template *t, int *lost) {
    LLM__SCOPED(llm_text_free) llm_text with = LLM__ZERO, without = LLM__ZERO;
    return llm__chat_try(t,
                         "{'messages':[{'role':'user','content':[{'type':'image'},{'type':'text','text':'x'}]}],'bos_token':'',"
                         "'eos_token':'','add_generation_prompt':true}",
                         &with, lost) &&
           llm__chat_try(t,
                         "{'messages':[{'role':'user','content':[{'type':'text','text':'x'}]}],'bos_token':'','eos_token':'',"
                         "'add_generation_prompt':true}",
                         &without, lost) &&
           strcmp(with.data, without.data) != 0;
}

/* Whether a name occurs is known from the parser's list of names; what is done with a message only a render can tell. content_parts: a
 * template made for texts prints a list of parts as Python would, with the word "type" in quotes. */
LLM__PRIVATE llm_result llm__template_caps(const llm_template *t, llm_template_caps *out) {
    static const char system_role[] =
        "{'messages':[{'role':'system','content':'PR0BE'},{'role':'user','content':'x'}],'bos_token':'','eos_token':''}",
                      parts[] = "{'messages':[{'role':'user','content':[{'type':'text','text':'PR0BE'}]}],'bos_token':'','eos_token':''}",
                      plain[] = "{'messages':[{'role':'user','content':'PR0BE'}],'bos_token':'','eos_token':''}";
    int lost = 0;
    out->tools = llm__map_get(&t->names, llm__lit("tools")) >= 0;
    out->thinking_switch = llm__map_get(&t->names, llm__lit("enable_thinking")) >= 0 || llm__map_get(&t->names, llm__lit("thinking")) >= 0;
    out->system_role = llm__chat_probe(t, system_role, "PR0BE", "\x01", &lost);
    out->content_parts = llm__chat_probe(t, parts, "PR0BE", "type'", &lost) && llm__chat_probe(t, parts, "PR0BE", "type\"", &lost);
    out->parts_only = out->content_parts && !llm__chat_probe(t, plain, "PR0BE", "\x01", &lost);
    out->image_parts = out->content_parts && llm__chat_shows(t, &lost);
    return lost ? llm__nomem() : LLM_OK;
}

LLM_API void llm_template_get_caps(const llm_template *t, llm_template_caps *out) { (void)llm__template_caps(t, out); }
