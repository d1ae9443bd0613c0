#include "chat/statements.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/text.h"
#include "chat/template.h"
#include "chat/values.h"
#include "chat/lexer.h"
#include "chat/calls.h"
#include "chat/expressions.h"

static void llm__tpl_tag_end(llm__tpl *x) { llm__tpl_want(x, 'b', "the end of the tag was expected"); }

/* A block in a scope of its own, and the tag that ends it. */
static void llm__tpl_scoped(llm__tpl *x, uint32_t ends, int live) {
    llm__scope *outer = llm__tpl_scope(x, x->scope);
    llm__tpl_block(x, ends, live);
    x->scope = outer;
    x->at++;
    llm__tpl_tag_end(x);
}

/* What is assigned to: a name, namespace.name, or several of those, with commas and perhaps in parentheses, to unpack a value into. */
typedef struct llm__targets {
    const llm__tpl_token *name[LLM__TPL_MAX_TARGETS], *member[LLM__TPL_MAX_TARGETS];
    int n, several;
} llm__targets;

static llm__targets llm__tpl_targets(llm__tpl *x) {
    llm__targets t = LLM__ZERO;
    const int closed = llm__tpl_skip(x, '(');
    do {
        if (llm__tpl_type(x) != 'n' || x->tok[x->at].name <= LLM__W_NONE2 || t.n == LLM__TPL_MAX_TARGETS)
            llm__tpl_syntax(x, "this cannot be assigned to");
        t.name[t.n] = llm__tpl_name(x);
        t.member[t.n++] = llm__tpl_skip(x, '.') ? llm__tpl_name(x) : NULL;
    } while (llm__tpl_skip(x, ',') && (t.several = 1) && llm__tpl_type(x) == 'n');
    if (closed) llm__tpl_want(x, ')', "')' was expected");
    return t;
}

static void llm__tpl_assign_to(llm__tpl *x, const llm__targets *t, llm__val v) {
    const llm__vlist one = {&v, 1, 1, 0}, *l = t->several ? llm__tpl_iter(x, v) : &one;
    if (l->n != t->n) llm__tpl_fail(x, "%d values were expected to unpack, got %d", t->n, l->n);
    for (int i = 0; i < t->n; i++) {
        if (!t->member[i]) {
            llm__tpl_assign(x, t->name[i]->name, l->v[i]);
            continue;
        }
        const llm__val ns = llm__tpl_lookup(x, t->name[i]);
        if (ns.type != LLM__V_NAMESPACE) llm__tpl_fail(x, "only attributes of a namespace can be set");
        llm__tpl_dict_set(x, ns.as.list, t->member[i]->v, l->v[i]);
    }
}

/* Filters with bars between; the first needs none if it must be there, as in {% filter upper | trim %}. */
static llm__val llm__tpl_filters(llm__tpl *x, llm__val v, int first) {
    for (; first || llm__tpl_skip(x, '|'); first = 0) v = llm__tpl_filter(x, v, LLM__IN_FILTER);
    return v;
}

/* The text of a block up to {% `end` %}, under the filters that stand in its tag, which are read twice: on the way to it, and on its
 * text. */
static llm__val llm__tpl_captured(llm__tpl *x, int end, int first) {
    const int32_t filters = x->at;
    const size_t mark = x->text.len;
    x->dead++;
    llm__tpl_filters(x, llm__v(LLM__V_NONE), first);
    x->dead--;
    llm__tpl_tag_end(x);
    llm__tpl_scoped(x, 1u << end, !x->dead);
    const int32_t behind = x->at;
    x->at = filters;
    const llm__val v = llm__tpl_filters(x, llm__tpl_take(x, mark), first);
    x->at = behind;
    return v;
}

/* {% set x = 1 %}, or with a block {% set x | filters %}...{% endset %}. */
static void llm__tpl_set(llm__tpl *x) {
    const llm__targets targets = llm__tpl_targets(x);
    const int block = !llm__tpl_skip(x, '=');
    const llm__val v = block ? llm__tpl_captured(x, LLM__W_ENDSET, 0) : llm__tpl_tuple(x, 0);
    if (!block) llm__tpl_tag_end(x);
    if (!x->dead && !x->flow) llm__tpl_assign_to(x, &targets, v);
}

/* if, elif ... else. Behind the branch that is taken all others are only checked. A set within an if is seen behind it: it has no scope. */
static void llm__tpl_if(llm__tpl *x) {
    const uint32_t ends = 1u << LLM__W_ELIF | 1u << LLM__W_ELSE | 1u << LLM__W_ENDIF;
    const int dead = x->dead;
    int word = LLM__W_ELIF;
    while (word != LLM__W_ENDIF) {
        const int taken = word == LLM__W_ELSE || llm__v_truth(llm__tpl_tuple(x, 1));
        llm__tpl_tag_end(x);
        llm__tpl_block(x, word == LLM__W_ELSE ? 1u << LLM__W_ENDIF : ends, taken);
        x->dead += taken;
        word = x->tok[x->at++].name;
    }
    llm__tpl_tag_end(x);
    x->dead = dead;
}

/* The items of a loop that pass its filter, which sees the target in a scope of its own. All before the first turn, so that loop.length
 * and loop.last are known and count only what passes: {% for i in [1, 2, 3] if i > 1 %} has length 2. */
static llm__vlist *llm__tpl_where(llm__tpl *x, const llm__vlist *all, const llm__targets *targets) {
    const int32_t test = x->at;
    llm__vlist *l = llm__tpl_empty(x);
    x->dead++;
    llm__tpl_expr(x); /* to its end, should there be nothing to test */
    x->dead--;
    for (int i = 0; i < all->n; i++) {
        llm__scope *outer = llm__tpl_scope(x, x->scope);
        x->at = test;
        llm__tpl_assign_to(x, targets, all->v[i]);
        if (llm__v_truth(llm__tpl_expr(x))) llm__tpl_push(x, l, all->v[i]);
        x->scope = outer;
    }
    return l;
}

/* A loop. `loop` is an object with the turn's number; index, first, last and so on are worked out when they are asked for
 * (llm__tpl_loop_attr). One scope serves all turns: it is emptied before each, so that what a turn has set is gone in the next. */
static void llm__tpl_for(llm__tpl *x) {
    const uint32_t ends = 1u << LLM__W_ELSE | 1u << LLM__W_ENDFOR;
    int ended = 0; /* the else branch runs unless one turn came to its end: in jinja2 also after a break or continue in all of them */
    const llm__targets targets = llm__tpl_targets(x);
    llm__tpl_want(x, 'I', "'in' was expected");
    const llm__val all = llm__tpl_tuple(x, 1);
    const llm__vlist *l = x->dead ? llm__tpl_empty(x) : llm__tpl_iter(x, all);
    if (llm__tpl_word(x, LLM__W_IF)) l = llm__tpl_where(x, l, &targets);
    llm__tpl_tag_end(x);
    const int32_t body = x->at;
    llm__scope *outer = llm__tpl_scope(x, x->scope);
    llm__val loop = llm__tpl_object(x, LLM__V_LOOP);
    loop.as.object->items = l;
    x->loops++;
    for (int i = 0; i < l->n && x->flow != LLM__W_BREAK; i++) {
        llm__tpl_spend(x, 1);
        x->at = body;
        x->flow = 0;
        loop.as.object->at = i;
        x->scope->vars.n = 0;
        llm__tpl_assign(x, LLM__W_LOOP, loop);
        llm__tpl_assign_to(x, &targets, l->v[i]);
        llm__tpl_block(x, ends, 1);
        ended |= !x->flow;
    }
    x->flow = 0;
    x->scope = outer;
    x->at = body;
    llm__tpl_block(x, ends, 0); /* to its end, in one jump but for the check */
    x->loops--;
    const int otherwise = x->tok[x->at++].name == LLM__W_ELSE;
    llm__tpl_tag_end(x);
    if (otherwise) llm__tpl_scoped(x, 1u << LLM__W_ENDFOR, !ended);
}

/* {% macro name(...) %} sets a name to a macro, bound to the scope that is open. {% call(...) f(...) %} makes a macro of its body, calls f
 * with it as the argument `caller`, and prints what that gives. */
static void llm__tpl_macro(llm__tpl *x, int word) {
    const int loops = x->loops, call = word == LLM__W_CALL;
    const llm__tpl_token *name = call ? NULL : llm__tpl_name(x);
    llm__val m = llm__tpl_object(x, LLM__V_MACRO);
    int32_t from, open, depth = 1;
    if (!call) llm__tpl_want(x, '(', "'(' was expected");
    if (!call || llm__tpl_skip(x, '(')) m.as.object->at = x->at;
    m.as.object->scope = x->scope;
    m.as.object->self = call ? llm__v_str(llm__lit("caller")) : name->v;
    x->loops = 0; /* the body's break belongs to no loop around the macro */
    x->dead++;
    for (int defaults = 0; m.as.object->at && !llm__tpl_skip(x, ')');) {
        llm__tpl_name(x);
        const int has = llm__tpl_skip(x, '=');
        if (has) llm__tpl_expr(x);
        else if (defaults) llm__tpl_syntax(x, "a parameter without default after one that has it");
        defaults |= has;
        llm__tpl_comma(x, ')', "')' was expected");
    }
    from = x->at;
    if (call) llm__tpl_expr(x);
    open = x->at - 1; /* goes back to the '(' of the last call */
    if (call && (x->tok[open].type != ')' || open < from)) llm__tpl_syntax(x, "a call was expected");
    while (call && depth) open--, depth += (x->tok[open].type == ')') - (x->tok[open].type == '(');
    llm__tpl_tag_end(x);
    if (call) m.as.object->body = x->at;
    llm__tpl_scoped(x, 1u << (call ? LLM__W_ENDCALL : LLM__W_ENDMACRO), 0);
    x->dead--;
    x->loops = loops;
    if (x->dead) return;
    if (!call) {
        llm__tpl_assign(x, name->name, m);
        return;
    }
    const int32_t behind = x->at;
    x->at = from;
    x->call_at = open;
    x->caller = m;
    llm__tpl_print(x, llm__tpl_expr(x));
    x->at = behind;
}

LLM__PRIVATE llm__val llm__tpl_call_macro(llm__tpl *x, const llm__vobject *m, const llm__args *g) {
    const int32_t behind = x->at;
    llm__scope *outer = llm__tpl_scope(x, m->scope);
    int used = 0;
    if (++x->calls > LLM__TPL_CALLS) llm__tpl_error(x, LLM_ERR_LIMIT, "macros call each other too deeply");
    x->at = m->at;
    const llm__val *caller = llm__args_named(x, g, llm__lit("caller"));
    llm__tpl_assign(x, LLM__W_CALLER, caller ? *caller : llm__v_undef(llm__lit("caller")));
    used += caller != NULL;
    for (int n = 0; m->at && !llm__tpl_skip(x, ')'); n++) {
        const llm__tpl_token *name = llm__tpl_name(x);
        const llm__val *v = n < g->pos.n ? &g->pos.v[n] : llm__args_named(x, g, llm__v_s(name->v));
        llm__val absent = llm__v_undef(llm__v_s(name->v));
        const int given = v != NULL;
        x->dead += given;
        if (llm__tpl_skip(x, '=')) absent = llm__tpl_expr(x);
        x->dead -= given;
        llm__tpl_assign(x, name->name, v ? *v : absent);
        used += given;
        llm__tpl_skip(x, ',');
    }
    /* a parameter that has its value by position takes no second by name */
    if (used != g->pos.n + g->named.n / 2) llm__tpl_fail(x, "a macro got an unexpected argument");
    if (m->body) x->at = m->body;
    else llm__tpl_tag_end(x);
    const size_t mark = x->text.len;
    llm__tpl_block(x, 1u << (m->body ? LLM__W_ENDCALL : LLM__W_ENDMACRO), 1);
    x->at = behind;
    x->scope = outer;
    x->calls--;
    return llm__tpl_take(x, mark);
}

/* One tag with all that belongs to it; x behind {%. */
static void llm__tpl_statement(llm__tpl *x) {
    const int word = x->tok[x->at].name;
    llm__val v;
    x->at++;
    switch (word) {
    case LLM__W_IF: llm__tpl_if(x); break;
    case LLM__W_FOR: llm__tpl_for(x); break;
    case LLM__W_SET: llm__tpl_set(x); break;
    case LLM__W_MACRO:
    case LLM__W_CALL: llm__tpl_macro(x, word); break;
    case LLM__W_GENERATION:
        llm__tpl_tag_end(x);
        llm__tpl_scoped(x, 1u << LLM__W_ENDGENERATION, 1);
        break;
    case LLM__W_FILTER:
        v = llm__tpl_captured(x, LLM__W_ENDFILTER, 1);
        if (!x->dead && !x->flow) llm__tpl_print(x, v);
        break;
    case LLM__W_BREAK:
    case LLM__W_CONTINUE:
        if (!x->loops) llm__tpl_syntax(x, "outside of a loop");
        llm__tpl_tag_end(x);
        if (!x->dead) x->flow = word;
        break;
    default: x->at--; llm__tpl_syntax(x, "no such tag, or none that may stand here");
    }
}

LLM__PRIVATE void llm__tpl_block(llm__tpl *x, uint32_t ends, int live) {
    const int32_t from = x->at, end = x->tok[from].jump;
    llm__tpl_enter(x);
    x->dead += !live;
    while (!x->flow && (!x->dead || !end)) {
        const llm__tpl_token *t = &x->tok[x->at];
        llm__tpl_spend(x, 1);
        x->line = t->line;
        if (!t->type && ends) llm__tpl_syntax(x, "the text ends inside of a block");
        /* The tag that ends a block is recognised by its first word and left to the one who waits for it. */
        if (!t->type || (t->type == 'B' && t[1].name < 32 && (ends >> t[1].name & 1))) break;
        x->at++;
        if (t->type == 'B') {
            llm__tpl_statement(x);
            continue;
        }
        const llm__val v = t->type == 'd' ? t->v : llm__tpl_tuple(x, 0);
        if (t->type == 'V') llm__tpl_want(x, 'v', "the end of the expression was expected");
        if (!x->dead) llm__tpl_print(x, v);
    }
    if (x->made) x->made->tok[from].jump = x->at + 1;
    x->at = end ? end : x->at + 1;
    x->dead -= !live;
    x->depth--;
}
