#include "grammar/grammar_regex.h"
#include "api/config.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "text/regex.h"
#include "grammar/machine.h"

LLM__PRIVATE llm__gr_frag llm__gr_set(llm__gr_build *b, llm__set *s) {
    if (s->failed && !b->failed) b->failed = llm__nomem();
    (void)llm__gr_spend(b, s->work / 4);
    llm__gr_frag f = b->failed ? llm__gr_never : llm__gr_chars(b, s->v, s->n);
    LLM_FREE(s->v);
    return f;
}

LLM__PRIVATE llm__gr_frag llm__gr_json_set(llm__gr_build *b, const int32_t *change, size_t n) {
    llm__gr_frag f = llm__gr_never;
    llm__set plain = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text t = llm__text_none();
    for (char c = 0; c <= '\\'; c++, t.len = 0) {
        if ((c >= 32 && c != '"' && c != '\\') || !llm__set_has(change, n, c)) continue;
        llm_text_json(&t, &c, 1);
        f = llm__gr_alt(b, f, llm__gr_text(b, llm__s(t.data + 1, t.failed ? 0 : t.len - 2)));
    }
    if (t.failed) b->failed = llm__nomem();
    llm__set_combine(&plain, change, n, LLM__SET_OR);
    llm__set_combine(&plain, llm__gr_plain, LLM__COUNT(llm__gr_plain), LLM__SET_AND);
    return llm__gr_alt(b, f, llm__gr_set(b, &plain));
}

LLM__PRIVATE llm__gr_frag llm__gr_json_char(llm__gr_build *b) {
    static const char escape[] = "[\"\\\\/bfnrt]|u(?:(?:[0-9a-cefA-CEF][0-9a-fA-F]|[dD][0-7])[0-9a-fA-F]{2}"
                                 "|[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2})";
    llm__gr_frag plain = llm__gr_chars(b, llm__gr_plain, LLM__COUNT(llm__gr_plain)), backslash = llm__gr_word(b, "\\");
    if (!b->escape) llm__gr_rule_is(b, b->escape = llm__gr_rule(b), llm__gr_regex_frag(b, llm__lit(escape), LLM__GR_WHOLE));
    return llm__gr_alt(b, plain, llm__gr_seq(b, backslash, llm__gr_call(b, b->escape)));
}

/* A place is an instruction of the regex, in one of its three copies, with what is counted: characters so far, if the match must have a
 * length, and turns of its LOOP. Two instructions are added behind those of the regex, for a pattern that is sought: BEFORE and AFTER
 * consume any character and stay. */
typedef struct llm__gr_regex {
    llm__gr_build *b;
    const llm__regex *re;
    int how;
    int32_t min, max;      /* length of the match in characters; max -1: no bound */
    int32_t counts, turns; /* numbers of characters and of turns that are told apart */
    int32_t *at;           /* by place: instruction here; 0: none yet */
    int32_t *rule;         /* by instruction: the rule of its characters, where many places need them; 0: none yet */
    size_t *todo;          /* places to be carried over */
    size_t n_todo, todo_cap;
    int32_t end;        /* where a match goes */
    int32_t from, lead; /* where the regex begins; instructions at its beginning whose look-ahead is seen to elsewhere */
} llm__gr_regex;

enum { LLM__GR_START, LLM__GR_MIDDLE, LLM__GR_LAST, LLM__GR_MAX_PLACES = 1 << 22 };

/* Where a place begins here: made when it is first asked for, and filled later from the list of things to do. -1: the match is too long.
 * Counts that mean the same are one: without a bound above, all from the minimum on. */
static int32_t llm__gr_regex_at(llm__gr_regex *x, int32_t pc, int copy, int32_t count, int32_t turn) {
    if (x->max >= 0 && count > x->max) return -1;
    size_t place =
        (((size_t)pc * 3 + (size_t)copy) * (size_t)x->counts + (size_t)LLM__MIN(count, x->counts - 1)) * (size_t)x->turns + (size_t)turn;
    if (x->at[place] || x->b->failed) return x->at[place];
    if (!llm__grow((void **)&x->todo, &x->todo_cap, x->n_todo + 1, sizeof *x->todo)) x->b->failed = llm__nomem();
    else x->todo[x->n_todo++] = place;
    return x->at[place] = llm__gr_add(x->b, LLM__GR_SPLIT, 0, -1);
}

/* The characters of a SET or LOOP, or any, as bytes. In JSON each is spelt as a writer would spell it: \n for a line end, never
 * \u000a. Where characters are counted there is a place for every count, and all of them call one rule. */
static llm__gr_frag llm__gr_regex_chars(llm__gr_regex *x, int32_t pc) {
    const llm__rx_code *c = (size_t)pc < x->re->n ? &x->re->code[pc] : NULL;
    const int32_t *change = c ? x->re->change + c->set : NULL;
    if (x->rule[pc]) return llm__gr_call(x->b, x->rule[pc]);
    llm__gr_frag f = !c                        ? llm__gr_json_char(x->b)
                     : x->how == LLM__GR_WHOLE ? llm__gr_chars(x->b, change, c->set_n)
                                               : llm__gr_json_set(x->b, change, c->set_n);
    if (x->counts == 1 || f.in < 0) return f;
    llm__gr_rule_is(x->b, x->rule[pc] = llm__gr_rule(x->b), f);
    return llm__gr_call(x->b, x->rule[pc]);
}

static void llm__gr_regex_refuse(llm__gr_build *b) {
    if (!b->failed)
        b->failed = llm__error(LLM_ERR_UNSUPPORTED,
                               "regex: look-around, atomic groups, possessive loops and word boundaries cannot be made into a grammar");
}

/* Carries one place over: the SPLIT that stands for it gets its ways. What consumes leads to MIDDLE. A LOOP (one set, counted, as
 * [a-z]{2,5}) becomes a REPEAT of at least one turn, and where it may be left out, a way around it that stays in its copy: behind ^a*$ with
 * no a at all we are still at the start. Where the length is counted too, its turns are places: two counters at once are a product. */
static void llm__gr_regex_op(llm__gr_regex *x, size_t place) {
    llm__gr_build *b = x->b;
    int32_t turn = (int32_t)(place % (size_t)x->turns), count = (int32_t)(place / (size_t)x->turns % (size_t)x->counts),
            here = x->at[place];
    int copy = (int)(place / (size_t)x->turns / (size_t)x->counts % 3);
    int32_t pc = (int32_t)(place / (size_t)x->turns / (size_t)x->counts / 3), n = (int32_t)x->re->n, next = -1, other = -1;
    static const llm__rx_code any = {LLM__RX_SET, 0, 0, 0, 0, 0, 0, 0, {0, 0, 0, 0}, {0, 0, 0, 0}};
    const llm__rx_code *c = pc < n ? &x->re->code[pc] : &any;
    int loop = c->op == LLM__RX_LOOP, sought = x->how == LLM__GR_IN_JSON;
    llm__gr_frag f = llm__gr_never;
    switch (c->op) {
    case LLM__RX_MATCH: /* what was sought is found: anything may follow, unless a $ forbids it */
        if (sought && copy != LLM__GR_LAST) next = llm__gr_regex_at(x, n + 1, LLM__GR_MIDDLE, count, 0);
        else if (count >= x->min) next = x->end;
        break;
    case LLM__RX_JUMP: next = llm__gr_regex_at(x, pc + c->x, copy, count, 0); break;
    case LLM__RX_MARK:
    case LLM__RX_CHECK: next = llm__gr_regex_at(x, pc + 1, copy, count, 0); break;
    case LLM__RX_SPLIT:
        next = llm__gr_regex_at(x, pc + c->x, copy, count, 0);
        other = llm__gr_regex_at(x, pc + c->y, copy, count, 0);
        break;
    case LLM__RX_LINE_BEGIN:
    case LLM__RX_TEXT_BEGIN:
        if (copy == LLM__GR_START) next = llm__gr_regex_at(x, pc + 1, copy, count, 0);
        break;
    case LLM__RX_LINE_END:
    case LLM__RX_TEXT_END:
    case LLM__RX_TEXT_END_LINE: next = llm__gr_regex_at(x, pc + 1, LLM__GR_LAST, count, 0); break;
    case LLM__RX_SET:
    case LLM__RX_LOOP:
        if (loop && c->mode == LLM__RX_POSSESSIVE) {
            llm__gr_regex_refuse(b);
            break;
        }
        if (copy != LLM__GR_LAST && (!loop || c->max < 0 || turn < c->max)) f = llm__gr_regex_chars(x, pc);
        if (loop && x->counts == 1 && f.in >= 0) f = llm__gr_repeat(b, f, LLM__MAX(c->min, 1), c->max);
        if (loop && turn >= c->min) other = llm__gr_regex_at(x, pc + 1, copy, count, 0);
        if (pc == n && copy == LLM__GR_MIDDLE) other = llm__gr_regex_at(x, x->from, copy, count, 0);
        if (pc > n && count >= x->min) other = x->end;
        if (f.in < 0) break;
        next = pc >= n ? llm__gr_regex_at(x, pc, LLM__GR_MIDDLE, count + 1, 0)
               : loop && x->counts > 1
                   ? llm__gr_regex_at(x, pc, LLM__GR_MIDDLE, count + 1, c->max < 0 ? LLM__MIN(turn + 1, c->min) : turn + 1)
                   : llm__gr_regex_at(x, pc + 1, LLM__GR_MIDDLE, count + 1, 0);
        llm__gr_goto(b, f, next);
        next = f.in;
        break;
    default:
        if (c->op == LLM__RX_LOOK && pc < x->lead) next = llm__gr_regex_at(x, pc + c->x, copy, count, 0);
        else llm__gr_regex_refuse(b);
    }
    b->g->op[here].next = next, b->g->op[here].other = other;
}

LLM__PRIVATE llm__gr_frag llm__gr_program_frag(llm__gr_build *b, const llm__regex *re, int32_t from, int32_t lead, int how, int64_t min,
                                               int64_t max) {
    llm__gr_regex x = LLM__ZERO;
    if (b->failed) return llm__gr_never;
    int64_t counts = LLM__MAX(min, max) + 1, turns = 1;
    for (size_t i = 0; i < re->n && counts > 1; i++)
        if (re->code[i].op == LLM__RX_LOOP) turns = LLM__MAX(turns, 1 + LLM__MAX(re->code[i].min, re->code[i].max));
    if (counts > LLM__GR_MAX_PLACES || counts * turns * 3 * ((int64_t)re->n + 2) > LLM__GR_MAX_PLACES)
        b->failed = llm__error(LLM_ERR_LIMIT, "a pattern and so large a length cannot be enforced together");
    x.b = b, x.re = re, x.how = how, x.min = (int32_t)min, x.max = (int32_t)max, x.counts = (int32_t)LLM__MAX(counts, 1),
    x.turns = (int32_t)turns, x.from = from, x.lead = lead;
    if (!b->failed) {
        x.at = LLM__NEW(int32_t, 3 * (re->n + 2) * (size_t)counts * (size_t)turns);
        x.rule = LLM__NEW(int32_t, re->n + 2);
        if (!x.at || !x.rule) b->failed = llm__nomem();
    }
    llm__gr_frag f = llm__gr_empty(b), out = llm__gr_empty(b);
    x.end = out.in;
    if (!b->failed) {
        f.out = llm__gr_regex_at(&x, from, LLM__GR_START, 0, 0);
        int32_t before = how == LLM__GR_IN_JSON && !from ? llm__gr_regex_at(&x, (int32_t)re->n, LLM__GR_START, 0, 0) : -1;
        if (!b->failed) b->g->op[f.in].next = f.out, b->g->op[f.in].other = before;
    }
    while (x.n_todo && !b->failed) llm__gr_regex_op(&x, x.todo[--x.n_todo]);
    LLM_FREE(x.at);
    LLM_FREE(x.rule);
    LLM_FREE(x.todo);
    f.out = out.out;
    return b->failed ? llm__gr_never : f;
}

LLM__PRIVATE llm__regex *llm__gr_regex_read(llm__gr_build *b, llm__str text, llm__rx_classes classes) {
    llm__regex *re = NULL;
    if (llm__gr_spend(b, 32 + 8 * text.n)) b->failed = llm__regex_compile(text.p, text.n, classes, &re);
    if (re) (void)llm__gr_spend(b, 4 * re->n_change + re->work / 4);
    return re;
}

LLM__PRIVATE llm__gr_frag llm__gr_regex_frag(llm__gr_build *b, llm__str text, int how) {
    llm__regex *re = llm__gr_regex_read(b, text, LLM__RX_NARROWEST);
    llm__gr_frag f = llm__gr_program_frag(b, re, 0, 0, how, 0, -1);
    llm__regex_close(re);
    return f;
}
