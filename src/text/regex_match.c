#include "text/regex_match.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/text.h"
#include "text/unicode_classes.h"
#include "text/regex.h"

enum { LLM__RX_TRY, LLM__RX_DONE, LLM__RX_SHORTER, LLM__RX_RESTORE };

/* Notes why the walk ends without an answer. Always -1. */
static int llm__rx_give_up(llm__rx_run *r, llm_result why) {
    r->result = why;
    return -1;
}

LLM__PRIVATE void llm__rx_remember(llm__rx_run *r) {
    r->memo_cap = 64;
    while (r->memo_cap < LLM__RX_MAX_MEMO && r->memo_cap / r->re->n <= r->n) r->memo_cap *= 2;
    r->memo = LLM__NEW(uint64_t, r->memo_cap);
    r->no_memo = !r->memo;
}

/* 1 while states are remembered. */
static int llm__rx_slow(const llm__rx_run *r) { return r->memo && !r->no_memo; }

/* Where it is remembered that a state failed (*failed) or matched (*failed + 1). Slots follow each other as states do, so that the memory
 * is a window on the text: if it is too small for all, what was found out last stays, which lies next to where the matcher is. */
static uint64_t *llm__rx_memo(const llm__rx_run *r, int pc, size_t pos, uint64_t *failed) {
    uint64_t state = (uint64_t)pos * r->re->n + (uint64_t)pc;
    *failed = 2 * state + 2;
    return &r->memo[state & (r->memo_cap - 1)];
}

/* Remembers what became of a state. */
static void llm__rx_memo_put(llm__rx_run *r, int pc, size_t pos, int matched) {
    uint64_t failed, *slot = llm__rx_memo(r, pc, pos, &failed);
    *slot = failed + (uint64_t)matched;
}

/* 1, or -1 if the stack is full. */
static int llm__rx_push(llm__rx_run *r, int kind, int pc, size_t pos, size_t aux) {
    if (r->sp >= LLM__RX_MAX_STACK) return llm__rx_give_up(r, LLM_ERR_LIMIT);
    if (!llm__grow((void **)&r->stack, &r->cap, r->sp + 1, sizeof *r->stack)) return llm__rx_give_up(r, LLM_ERR_NOMEM);
    llm__rx_entry *e = &r->stack[r->sp++];
    e->kind = kind;
    e->pc = pc;
    e->pos = (uint32_t)pos;
    e->aux = (uint32_t)aux;
    return 1;
}

/* Enters a state that is to be remembered: 1 unknown so far, and its failure will be noted; 0 it fails, 2 it matches, -1 gave up. */
static int llm__rx_enter(llm__rx_run *r, int pc, size_t pos) {
    uint64_t failed, *known = llm__rx_memo(r, pc, pos, &failed);
    return *known == failed ? 0 : *known == failed + 1 ? 2 : llm__rx_push(r, LLM__RX_DONE, pc, pos, 0);
}

/* Length of the code point at pos if it is in the set of a SET or LOOP, else 0. */
LLM__INLINE size_t llm__rx_step(const llm__rx_run *r, const llm__rx_code *c, size_t pos) {
    if (pos >= r->n) return 0;
    unsigned char b = (unsigned char)r->s[pos];
    if (b < 128) return c->ascii[b >> 5] >> (b & 31) & 1;
    size_t at = pos;
    int32_t code_point = llm__uni_next(llm__s(r->s, r->n), &at);
    return llm__set_has(r->re->change + c->set, c->set_n, code_point) ? at - pos : 0;
}

/* 1 if an instruction that is an edge (^ $ \b ...) holds at pos. */
static int llm__rx_edge(const llm__rx_run *r, int op, size_t pos) {
    llm__str s = llm__s(r->s, r->n);
    size_t back = pos ? llm__uni_back(r->s, pos) : 0, at = pos;
    int before = pos > 0 && llm__uni_word(llm__uni_next(s, &back)), after = pos < r->n && llm__uni_word(llm__uni_next(s, &at));
    switch (op) {
    case LLM__RX_LINE_BEGIN: return pos == 0 || r->s[pos - 1] == '\n';
    case LLM__RX_LINE_END: return pos == r->n || r->s[pos] == '\n';
    case LLM__RX_TEXT_BEGIN: return pos == 0;
    case LLM__RX_TEXT_END: return pos == r->n;
    case LLM__RX_TEXT_END_LINE: return pos == r->n || (pos + 1 == r->n && r->s[pos] == '\n');
    default: return (op == LLM__RX_WORD_EDGE) == (before != after);
    }
}

/* Runs a LOOP from *pos as far as it goes: 1 go on behind it at *pos, 0 fail, 2 the rest is known to match, -1 gave up. One entry on the
 * stack gives characters back; but when states are remembered, each position is a state, with an entry to leave the loop there. */
static int llm__rx_loop(llm__rx_run *r, int pc, size_t *pos) {
    const llm__rx_code *c = &r->re->code[pc];
    size_t p = *pos, least = *pos, step;
    int memo = llm__rx_slow(r) && c->max < 0, possessive = c->mode == LLM__RX_POSSESSIVE, ok = 1;
    for (int count = 0;; p += step, count++) {
        if (count == c->min) least = p;
        /* From the least count on, "in this loop at p" is a state that does not depend on where the loop began. */
        if (memo && count >= c->min) ok = llm__rx_enter(r, pc, p);
        if (memo && count >= c->min && ok == 1 && !possessive) ok = llm__rx_push(r, LLM__RX_TRY, pc + 1, p, 0);
        if (ok != 1 || count == c->max || !(step = llm__rx_step(r, c, p))) {
            if (count < c->min) ok = 0;
            break;
        }
    }
    r->steps += (int64_t)(p - *pos);
    r->reach = LLM__MAX(r->reach, p);
    *pos = p;
    if (ok != 1 || possessive) return ok;
    if (memo) return 0; /* the way on from here is on the stack */
    return p == least ? 1 : llm__rx_push(r, LLM__RX_SHORTER, pc, p, least);
}

/* Pops to the next way that is left since `base`, undoing registers and noting failed states on the way. 1: go on at *pc and *pos; 0:
 * none. */
static int llm__rx_backtrack(llm__rx_run *r, size_t base, int *pc, size_t *pos) {
    while (r->sp > base) {
        llm__rx_entry *e = &r->stack[--r->sp];
        *pc = e->pc;
        *pos = e->pos;
        if (e->kind == LLM__RX_TRY) return 1;
        if (e->kind == LLM__RX_DONE) llm__rx_memo_put(r, e->pc, e->pos, 0);
        if (e->kind == LLM__RX_RESTORE) r->reg[e->pc] = e->pos;
        if (e->kind != LLM__RX_SHORTER) continue;
        /* SHORTER: one character less; the entry stays as long as there is more to give back. */
        e->pos = (uint32_t)(*pos = llm__uni_back(r->s, e->pos));
        r->sp += e->pos > e->aux;
        ++*pc;
        return 1;
    }
    return 0;
}

static int llm__rx_match(llm__rx_run *r, int pc, size_t pos, size_t *end, int look);

/* A look-ahead or look-behind at pos: 1 holds, 0 does not, -1 gave up. */
static int llm__rx_look(llm__rx_run *r, int pc, size_t pos) {
    const llm__rx_code *c = &r->re->code[pc];
    size_t end, from = pos, n = r->n;
    int found = 0;
    if (!(c->mode & LLM__RX_BEHIND)) {
        found = llm__rx_match(r, pc + 1, pos, &end, 1);
    } else { /* tries the starts before pos, with the text ending at pos; what it would learn holds for that text only */
        r->no_memo++;
        r->n = pos;
        /* The body may have any length: nearest start first, at most 64 characters back. */
        for (int i = 0; !found && i <= LLM__RX_MAX_BEHIND; i++) {
            found = llm__rx_match(r, pc + 1, from, &end, 3);
            if (!from) break;
            from = llm__uni_back(r->s, from);
        }
        r->n = n;
        r->no_memo--;
    }
    return found < 0 ? -1 : found == !(c->mode & LLM__RX_NOT);
}

/* A SPLIT at pos: chooses the way to go in *pc and leaves the other on the stack, unless the next character says which can be; then a SPLIT
 * that follows, as in a list of alternatives, is seen to at once. */
static int llm__rx_split(llm__rx_run *r, int *pc, size_t pos) {
    const llm__rx_code *c = &r->re->code[*pc];
    int at = *pc, ok = 1;
    uint32_t word = pos < r->n ? (unsigned char)r->s[pos] >> 5 : 4, bit = word < 4 ? 1u << (r->s[pos] & 31) : 0;
    while (word < 4 && c->op == LLM__RX_SPLIT) {
        if (!(c[c->x].first[word] & bit)) c += c->y;
        else if (!(c[c->y].first[word] & bit)) c += c->x;
        else break;
    }
    *pc = at = (int)(c - r->re->code);
    if (c->op != LLM__RX_SPLIT) return 1;
    *pc += c->x;
    if (llm__rx_slow(r)) ok = llm__rx_enter(r, at, pos);
    return ok == 1 ? llm__rx_push(r, LLM__RX_TRY, at + c->y, pos, 0) : ok;
}

/* Runs the program at pc from pos up to its MATCH. look: 1 only whether it matches counts, 2 a match must end at the end of the text.
 * 1 and *end, 0 no match, -1 gave up. The stack is left as it was. Recursion is as deep as the pattern's groups. */
static int llm__rx_match(llm__rx_run *r, int pc, size_t pos, size_t *end, int look) {
    size_t base = r->sp, step;
    for (;;) {
        const llm__rx_code *c = &r->re->code[pc];
        int ok = 1; /* go on at pc; 0 fail, 2 matched, -1 gave up */
        if (++r->steps > r->fuel) return llm__rx_give_up(r, LLM_ERR_LIMIT);
        /* 64 steps a character are many: the pattern backtracks over and over, so from now on states are remembered. */
        if (!r->memo && !r->no_memo && r->steps > 64 * (int64_t)(r->reach + 256)) llm__rx_remember(r);
        switch (c->op) {
        case LLM__RX_SET:
            step = llm__rx_step(r, c, pos);
            ok = step > 0;
            pos += step;
            pc++;
            break;
        case LLM__RX_LOOP: ok = llm__rx_loop(r, pc++, &pos); break;
        case LLM__RX_SPLIT: ok = llm__rx_split(r, &pc, pos); break;
        case LLM__RX_LOOK:
            ok = llm__rx_look(r, pc, pos);
            pc += c->x;
            break;
        case LLM__RX_ATOMIC:
            ok = llm__rx_match(r, pc + 1, pos, &pos, 0);
            pc += c->x;
            break;
        case LLM__RX_JUMP: pc += c->x; break;
        case LLM__RX_MARK:
            ok = llm__rx_push(r, LLM__RX_RESTORE, c->x, r->reg[c->x], 0);
            r->reg[c->x] = (uint32_t)pos;
            pc++;
            break;
        case LLM__RX_CHECK: pc += r->reg[c->x] == pos ? c->y : 1; break;
        case LLM__RX_MATCH: ok = !(look & 2) || pos == r->n ? 2 : 0; break;
        default: ok = llm__rx_edge(r, c->op, pos), pc++;
        }
        r->reach = LLM__MAX(r->reach, pos);
        if (ok == 0) ok = llm__rx_backtrack(r, base, &pc, &pos);
        else if (ok == 2) break;
        if (ok == 1) continue;
        r->sp = base;
        return ok;
    }
    /* In a look-ahead the states on the stack are known to match: they are all on the way here. Those next to it are noted last. */
    for (size_t i = r->sp; look == 1 && i-- > base;)
        if (r->stack[i].kind == LLM__RX_DONE) llm__rx_memo_put(r, r->stack[i].pc, r->stack[i].pos, 1);
    *end = pos;
    r->sp = base;
    return 1;
}

LLM__PRIVATE void llm__rx_begin(llm__rx_run *r, const llm__regex *re, const char *s, size_t n) {
    const llm__rx_run old = *r;
    LLM_FREE(r->memo);
    memset(r, 0, sizeof *r);
    r->stack = old.stack, r->cap = old.cap;
    r->re = re;
    r->s = s;
    r->n = n;
    r->last_end = SIZE_MAX;
    r->fuel = 1000000 + (int64_t)n * (256 + 8 * (int64_t)LLM__MIN(re->n, (size_t)512));
}

LLM__PRIVATE void llm__rx_end(llm__rx_run *r) {
    LLM_FREE(r->stack);
    LLM_FREE(r->memo);
    memset(r, 0, sizeof *r);
}

LLM__PRIVATE int llm__rx_next(llm__rx_run *r, size_t *start, size_t *end) {
    const uint32_t *first = r->re->code[0].first;
    for (size_t at = r->next; at <= r->n;) {
        int b = at < r->n ? (unsigned char)r->s[at] : 128;
        int found = b < 128 && !(first[b >> 5] >> (b & 31) & 1) ? 0 : llm__rx_match(r, 0, at, end, 0);
        if (found < 0) return -1;
        if (found && (*end > at || r->last_end != at)) {
            *start = at;
            r->next = r->last_end = *end;
            return 1;
        }
        if (at < r->n) (void)llm__uni_next(llm__s(r->s, r->n), &at);
        else at++;
    }
    r->next = r->n + 1;
    return 0;
}
