#include "chat/expressions.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/text.h"
#include "chat/template.h"
#include "chat/values.h"
#include "chat/lexer.h"
#include "chat/access.h"
#include "chat/calls.h"
#include "chat/functions.h"
#include "chat/statements.h"

LLM__PRIVATE llm__scope *llm__tpl_scope(llm__tpl *x, llm__scope *up) {
    llm__scope *s = (llm__scope *)llm__tpl_get(x, sizeof *s), *outer = x->scope;
    s->up = up;
    x->scope = s;
    return outer;
}

/* The variable of a scope; NULL if there is none of that name. */
static llm__val *llm__tpl_variable(const llm__scope *s, uint16_t name) {
    for (int i = 0; i < s->vars.n; i++)
        if (s->vars.v[i].tag == name) return &s->vars.v[i];
    return NULL;
}

LLM__PRIVATE void llm__tpl_assign(llm__tpl *x, uint16_t name, llm__val v) {
    llm__val *old = llm__tpl_variable(x->scope, name);
    v.tag = name;
    llm__tpl_spend(x, x->scope->vars.n / 16);
    if (old) *old = v;
    else llm__tpl_push(x, &x->scope->vars, v);
}

LLM__PRIVATE llm__val llm__tpl_lookup(llm__tpl *x, const llm__tpl_token *t) {
    const llm__val *found = NULL;
    for (const llm__scope *s = x->scope; s && !found; s = s->up) found = llm__tpl_variable(s, t->name);
    return found ? *found : llm__v_undef(llm__v_s(t->v));
}

/* ---- reading tokens ---- */

LLM__PRIVATE LLM__NORETURN void llm__tpl_syntax(llm__tpl *x, const char *what) {
    const llm__tpl_token *t = &x->tok[x->at];
    const llm__str s = t->v.type == LLM__V_STR ? llm__v_s(t->v) : llm__lit("");
    x->line = t->line;
    llm__tpl_fail(x, "%s%s%.*s", what, s.n ? " at " : "", (int)LLM__MIN(s.n, (size_t)40), s.p);
}

LLM__PRIVATE char llm__tpl_type(const llm__tpl *x) { return x->tok[x->at].type; }

LLM__PRIVATE int llm__tpl_word(llm__tpl *x, int word) { return x->tok[x->at].name == word ? (x->at++, 1) : 0; }
LLM__PRIVATE int llm__tpl_skip(llm__tpl *x, char type) { return llm__tpl_type(x) == type ? (x->at++, 1) : 0; }

LLM__PRIVATE void llm__tpl_want(llm__tpl *x, char type, const char *what) {
    if (!llm__tpl_skip(x, type)) llm__tpl_syntax(x, what);
}

LLM__PRIVATE void llm__tpl_comma(llm__tpl *x, char close, const char *what) {
    if (!llm__tpl_skip(x, ',') && llm__tpl_type(x) != close) llm__tpl_syntax(x, what);
}

LLM__PRIVATE const llm__tpl_token *llm__tpl_name(llm__tpl *x) {
    if (!x->tok[x->at].name) llm__tpl_syntax(x, "a name was expected");
    return &x->tok[x->at++];
}

/* ---- expressions ----
 * Recursive descent, with a table for the operators between operands. Precedence, loosest first: if-else, or, and, not, comparisons, + -,
 * ~, * / // %, **, signs, postfix (. [] ()), filters and tests. The grammar, as jinja2 3.1 has it (x* any number, [x] perhaps):
 *
 *   expr     = or ["if" or ["else" expr]]
 *   or       = and ("or" and)*                         and = not ("and" not)*      not = "not" not | compare
 *   compare  = sum (("==" | "<" | "in" | "not in" ...) sum)*
 *   sum      = concat (("+" | "-") concat)*            concat = product ("~" product)*
 *   product  = power (("*" | "/" | "//" | "%") power)* power = unary ("**" unary)*
 *   unary    = ("-" | "+") unary, no filters | postfix ("|" name [args] | "is" ["not"] name [args | postfix] | args)*
 *   postfix  = primary ("." name | "." number | "[" index or slice "]" | args)*
 *   primary  = name | literal | "(" tuple ")" | "[" expr, ... "]" | "{" expr ":" expr, ... "}"
 *
 * Oddities that are jinja2's and stay: ** goes from left to right, -2 ** 2 is 4, and a filter binds closer than any operator. Each function
 * reads its tokens and gives their value; while x->dead, some value, and nothing is looked up, called or combined. */

static llm__val llm__tpl_operation(llm__tpl *x, int level);
static llm__val llm__tpl_postfix(llm__tpl *x, llm__val v, int filters);

LLM__PRIVATE llm__val llm__tpl_tuple(llm__tpl *x, int plain) {
    llm__vlist *l = NULL;
    llm__val v;
    for (int commas = 0;; commas++) {
        v = plain ? llm__tpl_operation(x, LLM__LEVEL_OR) : llm__tpl_expr(x);
        if (!x->dead && (commas || llm__tpl_type(x) == ',')) llm__tpl_push(x, l = l ? l : llm__tpl_empty(x), v);
        if (!llm__tpl_skip(x, ',') || strchr("vb)]", llm__tpl_type(x))) return l ? llm__v_list(LLM__V_TUPLE, l) : v;
    }
}

/* The items of a list, or a dict's keys and values, up to the bracket `close`, which is skipped. */
static llm__val llm__tpl_display(llm__tpl *x, llm__vtype type, char close) {
    llm__vlist *l = llm__tpl_empty(x);
    while (!llm__tpl_skip(x, close)) {
        const llm__val v = llm__tpl_expr(x);
        if (type == LLM__V_DICT) {
            llm__tpl_want(x, ':', "':' was expected");
            const llm__val value = llm__tpl_expr(x);
            if (!x->dead) llm__tpl_dict_set(x, l, v, value);
        } else if (!x->dead) {
            llm__tpl_push(x, l, v);
        }
        llm__tpl_comma(x, close, "the end of a list was expected");
    }
    return llm__v_list(type, l);
}

/* A name, a literal, a list, a dict, or what stands in parentheses. */
static llm__val llm__tpl_primary(llm__tpl *x) {
    const llm__tpl_token *t = &x->tok[x->at];
    llm__val v;
    llm__tpl_spend(x, 1);
    x->line = t->line;
    if (!t->type || !strchr("nsif([{", t->type)) llm__tpl_syntax(x, "an expression was expected");
    x->at++;
    if (t->type == '[') return llm__tpl_display(x, LLM__V_LIST, ']');
    if (t->type == '{') return llm__tpl_display(x, LLM__V_DICT, '}');
    if (t->type == '(' && llm__tpl_skip(x, ')')) return llm__v_list(LLM__V_TUPLE, llm__tpl_empty(x));
    if (t->type == '(') {
        v = llm__tpl_tuple(x, 0);
        llm__tpl_want(x, ')', "')' was expected");
        return v;
    }
    if (t->type != 'n') return t->v;
    if (t->name >= LLM__W_TRUE && t->name <= LLM__W_FALSE2) return llm__v_bool(t->name <= LLM__W_TRUE2);
    return t->name == LLM__W_NONE || t->name == LLM__W_NONE2 || x->dead ? llm__v(LLM__V_NONE) : llm__tpl_lookup(x, t);
}

/* Adds arguments by name, n / 2 of them. */
static void llm__args_name(llm__tpl *x, llm__args *g, const llm__val *pairs, int32_t n) {
    for (int32_t i = 0; i < n; i += 2) {
        if (llm__tpl_dict_find(x, &g->named, pairs[i])) llm__tpl_fail(x, "an argument is given twice");
        llm__tpl_dict_set(x, &g->named, pairs[i], pairs[i + 1]);
    }
}

/* Arguments up to ')', which is skipped: f(1, x=2) has pos = 1 and named = x: 2; f(*a, **b) the items of a and the members of b. */
static llm__args llm__tpl_args(llm__tpl *x) {
    llm__args g = LLM__ZERO;
    for (int by_name = 0; !llm__tpl_skip(x, ')');) {
        const llm__tpl_token *t = &x->tok[x->at];
        /* A name is that of an argument only if '=' follows: f(a) passes the variable a, f(a=1) names a parameter. */
        const int named = t->name && t[1].type == '=', spread = t->type == '*' || t->type == 'P';
        if (by_name && !named && !spread) llm__tpl_syntax(x, "an argument by position after one by name");
        x->at += spread + 2 * named;
        by_name |= named || spread;
        const llm__val v = llm__tpl_expr(x);
        llm__tpl_comma(x, ')', "')' was expected");
        if (x->dead) continue;
        const llm__val pair[2] = {t->v, v};
        const llm__vlist *l = t->type == '*' ? llm__tpl_iter(x, v) : v.as.list;
        if (t->type == 'P' && v.type != LLM__V_DICT) llm__tpl_fail(x, "a dict was expected behind **");
        if (t->type == 'P') llm__args_name(x, &g, l->v, l->n);
        else if (named) llm__args_name(x, &g, pair, 2);
        else llm__tpl_push_all(x, &g.pos, spread ? l->v : &v, spread ? l->n : 1);
    }
    return g;
}

LLM__PRIVATE llm__val llm__tpl_filter(llm__tpl *x, llm__val v, int where) {
    const int test = where == LLM__IN_TEST, negated = test && llm__tpl_skip(x, '!');
    const int32_t at = x->at;
    const llm__tpl_token *t = llm__tpl_name(x);
    llm__args g = LLM__ZERO;
    if (x->made) {
        const llm__tpl_row *row = llm__tpl_named(where, llm__v_s(t->v));
        x->made->tok[at].jump = row ? llm__tpl_row_number(row) + 1 : 0;
    }
    if (llm__tpl_skip(x, '(')) {
        g = llm__tpl_args(x);
    } else if (test && llm__tpl_type(x) == '?') {
        llm__tpl_syntax(x, "tests cannot be chained");
    } else if (test && llm__tpl_type(x) && strchr("nsif[{", llm__tpl_type(x)) && x->tok[x->at].name != LLM__W_ELSE) {
        const llm__val argument = llm__tpl_postfix(x, llm__tpl_primary(x), 0);
        if (!x->dead) llm__tpl_push(x, &g.pos, argument);
    }
    if (x->dead) return v;
    v = llm__tpl_apply(x, t->jump ? llm__tpl_row_at(t->jump - 1) : llm__tpl_row_of(x, where, llm__v_s(t->v)), v, &g);
    return test ? llm__v_bool(llm__v_truth(v) != negated) : v;
}

/* v[...], with the first bracket skipped: an index, or from:to:step, of which all may be left out. */
static llm__val llm__tpl_subscript(llm__tpl *x, llm__val v) {
    llm__val part[3];
    int colons = 0;
    memset(part, 0, sizeof part);
    if (llm__tpl_type(x) == ']') llm__tpl_syntax(x, "an index was expected");
    do {
        if (llm__tpl_type(x) != ':' && llm__tpl_type(x) != ']') part[colons] = llm__tpl_tuple(x, 0);
    } while (colons < 2 && llm__tpl_skip(x, ':') && ++colons);
    llm__tpl_want(x, ']', "']' was expected");
    return x->dead ? v : colons ? llm__tpl_slice(x, v, part) : llm__tpl_member_of(x, v, part[0], '[');
}

/* Calls a value. */
static llm__val llm__tpl_call(llm__tpl *x, llm__val f, const llm__args *g) {
    llm__tpl_defined(x, f);
    if (!LLM__V_IN(f, 1 << LLM__V_MACRO | 1 << LLM__V_FUNC)) llm__tpl_fail(x, "a '%s' cannot be called so", llm__v_type_name(f));
    return f.type == LLM__V_MACRO ? llm__tpl_call_macro(x, f.as.object, g) : llm__tpl_apply(x, f.as.object->row, f.as.object->self, g);
}

/* What may follow a primary, any number of times: .name, .0, [...] and (...); then, with `filters`, filters, tests and calls of what they
 * give: x|f(1)(2). */
static llm__val llm__tpl_postfix(llm__tpl *x, llm__val v, int filters) {
    for (int filtered = 0;;) {
        if (llm__tpl_skip(x, '(')) {
            const int with_caller = x->at - 1 == x->call_at;
            const llm__val caller = x->caller;
            llm__args g = llm__tpl_args(x);
            if (!x->dead && with_caller) llm__tpl_dict_set(x, &g.named, llm__v_str(llm__lit("caller")), caller);
            if (!x->dead) v = llm__tpl_call(x, v, &g);
        } else if (filters && (llm__tpl_type(x) == '|' || llm__tpl_type(x) == '?')) {
            v = llm__tpl_filter(x, v, x->tok[x->at++].type == '|' ? LLM__IN_FILTER : LLM__IN_TEST);
            filtered = 1;
        } else if (!filtered && llm__tpl_skip(x, '.')) {
            const llm__tpl_token *key = llm__tpl_type(x) == 'i' ? &x->tok[x->at++] : llm__tpl_name(x);
            if (!x->dead) v = llm__tpl_member_of(x, v, key->v, key->type == 'i' ? '[' : '.');
        } else if (!filtered && llm__tpl_skip(x, '[')) {
            v = llm__tpl_subscript(x, v);
        } else {
            return v;
        }
    }
}

/* A value with its sign and all that follows it. */
static llm__val llm__tpl_unary(llm__tpl *x, int filters) {
    const char op = llm__tpl_type(x);
    llm__val v;
    if (op != '-' && op != '+') return llm__tpl_postfix(x, llm__tpl_primary(x), filters);
    x->at++;
    llm__tpl_enter(x);
    v = llm__tpl_unary(x, 0);
    x->depth--;
    return llm__tpl_postfix(x, x->dead ? v : llm__tpl_signed(x, op, v), filters);
}

/* Operands with operators between them that bind as close as `level` or closer. What is closer than the operator just read is its right
 * operand, so that 1 + 2 * 3 reads 2 * 3 one level down. `and` and `or` give the value of the operand that decides; what stands behind it
 * is only checked. a < b < c holds if both do; what stands behind a false comparison is not evaluated. */
static llm__val llm__tpl_operation(llm__tpl *x, int level) {
    llm__val v, left; /* what the next comparison begins with */
    if (level <= LLM__LEVEL_NOT && llm__tpl_skip(x, '!')) {
        llm__tpl_enter(x);
        v = llm__v_bool(!llm__v_truth(llm__tpl_operation(x, LLM__LEVEL_NOT)));
        x->depth--;
    } else {
        v = llm__tpl_unary(x, 1);
    }
    left = v;
    for (int last = 0;;) {
        const llm__tpl_token *t = &x->tok[x->at];
        const int not_in = t->type == '!' && t[1].type == 'I', op = not_in ? 'J' : t->type, at_level = t[not_in].level;
        const int compare = at_level == LLM__LEVEL_COMPARE, chained = compare && last == LLM__LEVEL_COMPARE;
        if (at_level < level || op == '!') return v;
        const int decided = op == 'O' ? llm__v_truth(v) : (op == 'A' || chained) && !llm__v_truth(v);
        if (!chained) left = v;
        x->at += 1 + not_in;
        x->dead += decided;
        const llm__val right = llm__tpl_operation(x, at_level + 1);
        if (!x->dead && compare) v = llm__v_bool(llm__tpl_compare(x, op, left, right));
        else if (!x->dead) v = op == 'O' || op == 'A' ? right : llm__tpl_arith(x, op, v, right);
        x->dead -= decided;
        left = right;
        last = at_level;
    }
}

LLM__PRIVATE llm__val llm__tpl_expr(llm__tpl *x) {
    const int32_t from = x->at, test = x->tok[from].jump;
    llm__val v = llm__v(LLM__V_NONE), other = llm__v_undef(llm__lit("an if without else"));
    llm__tpl_enter(x);
    if (!test) v = llm__tpl_operation(x, LLM__LEVEL_OR);
    if (test || llm__tpl_word(x, LLM__W_IF)) {
        if (test) x->at = test;
        else x->made->tok[from].jump = x->at;
        const int holds = llm__v_truth(llm__tpl_operation(x, LLM__LEVEL_OR));
        const int32_t behind = x->at;
        x->dead += !holds;
        if (test) x->at = from, v = llm__tpl_operation(x, LLM__LEVEL_OR);
        x->dead += holds - !holds;
        x->at = behind;
        if (llm__tpl_word(x, LLM__W_ELSE)) other = llm__tpl_expr(x);
        x->dead -= holds;
        if (!holds) v = other;
    }
    x->depth--;
    return v;
}
