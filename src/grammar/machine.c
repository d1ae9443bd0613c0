#include "grammar/machine.h"
#include "api/config.h"
#include "api/grammar.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"

/* ---- building: fragments of a machine with one way in and one way out, joined like bricks ----
 * As in Thompson's construction (CACM 1968) a fragment's way out is a SPLIT that leads nowhere yet; whoever uses the fragment leads it on.
 * So every form is built from four functions, llm__gr_seq, llm__gr_alt, llm__gr_repeat and llm__gr_call, and from sets of bytes. An
 * example, a{2,3}b:
 *
 *   0 SPLIT -> 4 (the way in)     4 REPEAT body 2, min 2, max 3, then 6     6 SPLIT -> 7
 *   2 BYTES {a} -> 3              3 SPLIT -> 5    5 AGAIN 4                 7 BYTES {b} -> 8 (the way out)
 *
 * Walking through "aa" the stack holds one frame (REPEAT 4, count): pushed with 0 on entry, replaced by one with 1 at the first AGAIN, and
 * popped at the second, where the machine is in two places: behind the loop, and, with count 2, in a third turn. */

LLM__PRIVATE int llm__gr_spend(llm__gr_build *b, size_t cost) {
    if (!b->failed && (*b->g->fuel -= (int64_t)cost) < 0)
        b->failed = llm__error(LLM_ERR_LIMIT, "grammar: it takes too long to make, a smaller or less ambiguous one expected");
    return !b->failed;
}

LLM__PRIVATE int32_t llm__gr_add(llm__gr_build *b, llm__gr_kind kind, int32_t a, int32_t next) {
    llm_grammar *g = b->g;
    if (!llm__gr_spend(b, 1)) return 0;
    if (g->n_ops >= LLM__GR_MAX_OPS) {
        b->failed = llm__error(LLM_ERR_LIMIT, "grammar: more than %d instructions, a smaller grammar expected", LLM__GR_MAX_OPS);
        return 0;
    }
    if (!llm__grow((void **)&g->op, &g->ops_cap, g->n_ops + 1, sizeof *g->op)) {
        b->failed = llm__nomem();
        return 0;
    }
    llm__gr_op *op = &g->op[g->n_ops];
    memset(op, 0, sizeof *op);
    op->kind = (uint8_t)kind, op->a = a, op->next = next, op->other = -1;
    return (int32_t)g->n_ops++;
}

LLM__PRIVATE llm__gr_frag llm__gr_empty(llm__gr_build *b) {
    llm__gr_frag f;
    f.in = f.out = llm__gr_add(b, LLM__GR_SPLIT, 0, -1);
    return f;
}

LLM__PRIVATE llm__gr_frag llm__gr_seq(llm__gr_build *b, llm__gr_frag f, llm__gr_frag then) {
    if (f.in < 0 || then.in < 0) return llm__gr_never;
    b->g->op[f.out].next = then.in;
    f.out = then.out;
    return f;
}

LLM__PRIVATE void llm__gr_goto(llm__gr_build *b, llm__gr_frag f, int32_t to) {
    if (f.in >= 0) b->g->op[f.out].next = to;
}

LLM__PRIVATE llm__gr_frag llm__gr_alt(llm__gr_build *b, llm__gr_frag f, llm__gr_frag or_else) {
    if (f.in < 0) return or_else;
    if (or_else.in < 0) return f;
    int32_t out = llm__gr_add(b, LLM__GR_SPLIT, 0, -1), split = llm__gr_add(b, LLM__GR_SPLIT, 0, f.in);
    b->g->op[split].other = or_else.in;
    b->g->op[f.out].next = b->g->op[or_else.out].next = out;
    f.in = split, f.out = out;
    return f;
}

LLM__PRIVATE llm__gr_frag llm__gr_repeat(llm__gr_build *b, llm__gr_frag f, int32_t min, int32_t max) {
    if (f.in < 0) return min ? f : llm__gr_empty(b);
    if (max == 0) return llm__gr_empty(b);
    if (min == 1 && max == 1) return f;
    if (min == 0 && max == 1) return llm__gr_alt(b, f, llm__gr_empty(b));
    int32_t out = llm__gr_add(b, LLM__GR_SPLIT, 0, -1), loop;
    if (max < 0 && min <= 1) {
        loop = llm__gr_add(b, LLM__GR_SPLIT, 0, f.in);
        b->g->op[loop].other = out;
        b->g->op[f.out].next = loop;
        if (min == 0) f.in = loop;
    } else {
        loop = llm__gr_add(b, LLM__GR_REPEAT, f.in, out);
        int32_t again = llm__gr_add(b, LLM__GR_AGAIN, loop, -1);
        b->g->op[loop].min = min, b->g->op[loop].max = max;
        b->g->op[f.out].next = again;
        f.in = loop;
    }
    f.out = out;
    return f;
}

LLM__PRIVATE llm__gr_frag llm__gr_bytes(llm__gr_build *b, const uint32_t set[8]) {
    llm_grammar *g = b->g;
    size_t k = g->n_sets, least = k > 256 ? k - 256 : 0;
    while (k > least && memcmp(g->set[k - 1], set, 32)) k--;
    if (k == least) {
        if (llm__gr_spend(b, 32) && !llm__grow((void **)&g->set, &g->sets_cap, g->n_sets + 1, sizeof *g->set)) b->failed = llm__nomem();
        if (b->failed) return llm__gr_never;
        memcpy(g->set[g->n_sets++], set, 32);
        k = g->n_sets;
    }
    llm__gr_frag f = llm__gr_empty(b);
    f.in = llm__gr_add(b, LLM__GR_BYTES, (int32_t)k - 1, f.out);
    return f;
}

LLM__PRIVATE llm__gr_frag llm__gr_range(llm__gr_build *b, int lo, int hi) {
    uint32_t set[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int c = lo; c <= hi; c++) set[c >> 5] |= 1u << (c & 31);
    return llm__gr_bytes(b, set);
}

LLM__PRIVATE llm__gr_frag llm__gr_text(llm__gr_build *b, llm__str s) {
    llm__gr_frag f = llm__gr_empty(b);
    for (size_t i = 0; i < s.n && !b->failed; i++) f = llm__gr_seq(b, f, llm__gr_range(b, (unsigned char)s.p[i], (unsigned char)s.p[i]));
    return f;
}

LLM__PRIVATE llm__gr_frag llm__gr_word(llm__gr_build *b, const char *s) { return llm__gr_text(b, llm__lit(s)); }

/* Code points [lo, hi] of one UTF-8 length: split where the continuation bytes would not run from 80 to BF, then byte by byte. U+0400 to
 * U+052F, D0 80 to D4 AF, are not [D0-D4][80-AF], but two boxes:
 *
 *   [D0-D3][80-BF]      U+0400 to U+04FF
 *   D4     [80-AF]      U+0500 to U+052F
 *
 * At most seven boxes for four bytes: up to three cut off at either end, and the middle. (RE2's Compiler::AddRuneRangeUTF8 and
 * Utf8Sequences of Rust's regex-syntax cut in the same places.) */
static llm__gr_frag llm__gr_utf8_range(llm__gr_build *b, int32_t lo, int32_t hi) {
    char first[4], last[4];
    int n = llm__utf8_put(first, lo);
    for (int i = 1; i < n; i++) {
        int32_t low_bits = (1 << (6 * i)) - 1;
        if ((lo & ~low_bits) == (hi & ~low_bits)) continue;
        if (lo & low_bits) return llm__gr_alt(b, llm__gr_utf8_range(b, lo, lo | low_bits), llm__gr_utf8_range(b, (lo | low_bits) + 1, hi));
        if ((hi & low_bits) != low_bits)
            return llm__gr_alt(b, llm__gr_utf8_range(b, lo, (hi & ~low_bits) - 1), llm__gr_utf8_range(b, hi & ~low_bits, hi));
    }
    llm__utf8_put(last, hi);
    llm__gr_frag f = llm__gr_empty(b);
    for (int i = 0; i < n; i++) f = llm__gr_seq(b, f, llm__gr_range(b, (unsigned char)first[i], (unsigned char)last[i]));
    return f;
}

LLM__PRIVATE llm__gr_frag llm__gr_chars(llm__gr_build *b, const int32_t *change, size_t n) {
    static const int32_t edge[] = {0, 0x80, 0x800, 0xD800, 0xE000, 0x10000, 0x110000};
    uint32_t ascii[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    llm__gr_frag f = llm__gr_never;
    int any = 0, wide = 0;
    size_t part = b->g->n_ops;
    for (size_t i = 0; i < n; i += 2) {
        int32_t from = change[i], end = i + 1 < n ? change[i + 1] : 0x110000;
        wide += (from <= 0x80 && end >= 0xD800) + (from <= 0xE000 && end >= 0x110000);
        for (int32_t c = from; c < end && c < 0x80; c++) ascii[c >> 5] |= 1u << (c & 31), any = 1;
        for (int k = 1; k < 6; k++) {
            int32_t lo = LLM__MAX(from, edge[k]), hi = LLM__MIN(end, edge[k + 1]) - 1;
            if (k != 3 && lo <= hi) f = llm__gr_alt(b, f, llm__gr_utf8_range(b, lo, hi));
        }
    }
    if (!any) return f;
    for (; wide == 2 && part < b->g->n_ops; part++) b->g->op[part].part = 1;
    llm__gr_frag one = llm__gr_bytes(b, ascii);
    if (one.in >= 0) b->g->op[one.in].wide = wide == 2;
    return llm__gr_alt(b, one, f);
}

LLM__PRIVATE llm__gr_frag llm__gr_strings(llm__gr_build *b, const llm__str *s, size_t n, size_t at, int depth) {
    size_t from = at;
    while (at < s[0].n && at < s[n - 1].n && s[0].p[at] == s[n - 1].p[at]) at++;
    llm__gr_frag f = llm__gr_text(b, llm__s(s[0].p + from, at - from)), rest = llm__gr_never;
    if (depth > 512 && !b->failed)
        b->failed = llm__error(LLM_ERR_LIMIT, "grammar: strings that begin alike, 512 levels deep, fewer expected");
    for (size_t i = 0, k; i < n && !b->failed; i = k) {
        for (k = i + 1; k < n && s[k].n > at && s[i].n > at && s[k].p[at] == s[i].p[at];) k++;
        if (s[i].n <= at) {
            while (k < n && s[k].n <= at) k++;
            rest = llm__gr_alt(b, rest, llm__gr_empty(b));
        } else {
            rest = llm__gr_alt(b, rest, llm__gr_strings(b, s + i, k - i, at, depth + 1));
        }
    }
    return llm__gr_seq(b, f, rest);
}

LLM__PRIVATE void llm__gr_way(llm__gr_build *b, int32_t place, int32_t in) {
    int32_t split = llm__gr_add(b, LLM__GR_SPLIT, 0, in);
    b->g->op[split].other = b->g->op[place].other;
    b->g->op[place].other = split;
}

LLM__PRIVATE int32_t llm__gr_rule(llm__gr_build *b) { return llm__gr_add(b, LLM__GR_SPLIT, 0, -1); }

LLM__PRIVATE void llm__gr_rule_is(llm__gr_build *b, int32_t rule, llm__gr_frag body) {
    int32_t end = llm__gr_add(b, LLM__GR_RETURN, 0, -1);
    b->g->op[rule].next = body.in;
    llm__gr_goto(b, body, end);
}

LLM__PRIVATE llm__gr_frag llm__gr_call(llm__gr_build *b, int32_t rule) {
    llm__gr_frag f = llm__gr_empty(b);
    f.in = llm__gr_add(b, LLM__GR_CALL, rule, f.out);
    return f;
}

/* ---- the machine ----
 * A step takes all threads of a state that consume the byte and follows what consumes nothing (the closure) until only BYTES are left:
 *
 *   state --byte--> threads behind their BYTES --llm__gr_follow--> threads before the next BYTES --sorted, numbered--> state
 *
 * An example, the schema {"type": "array", "items": {"$ref": "#"}} (lists of lists of lists ...) while it reads [[]]. C is the CALL of the
 * whole, I the CALL of an item within the rule of a list; stacks are written from the bottom to the top:
 *
 *   read     threads: what may come, on which stack
 *            [ on C
 *   [        space or ] on C        [ on C I            the list may end, or an item begins: the CALL of an item is followed at once
 *   [[       space or ] on C I      [ on C I I
 *   [[]      space , ] on C                             ] ended the inner list: RETURN popped I, behind which stand , and ]
 *   [[]]     none; accepts                              RETURN popped C too, and ACCEPT stands behind it
 *
 * What has been read is in the stacks, so one list of instructions reads any depth, up to LLM__GR_MAX_LEVEL values and LLM__GR_MAX_DEPTH
 * frames; what would go deeper is not allowed to begin.
 *
 * The work list of a step holds what was met, in order; it is its own queue. Everything is bounded: the list, the threads of a state, the
 * depth of a stack. An answer that goes beyond ends with a sentence; others that use its grammar go on. */

/* The n bytes that tell entry i of its kind from others. Two stacks are equal if their top frames are, since `parent` is a number too: a
 * whole stack is compared by three integers. The work of a step: a thread, and how much of its stack is new. A set of threads is stored
 * sorted, so equal sets are equal memory. */
static const void *llm__gr_key(const llm_grammar *g, llm__gr_found kind, size_t i, size_t *n) {
    switch (kind) {
    case LLM__GR_FRAMES: return *n = offsetof(llm__gr_frame, depth), &g->frame[i];
    case LLM__GR_STATES: return *n = (size_t)g->state[i].n * sizeof *g->thread, g->thread + g->state[i].from;
    case LLM__GR_WORK: return *n = offsetof(llm__gr_met, base), &g->work[i];
    default: return *n = sizeof g->mask->key, g->mask[i].key;
    }
}

LLM__PRIVATE llm_result llm__gr_gave_up(const char *failed) {
    return llm__error(strcmp(failed, llm__out_of_memory) ? LLM_ERR_LIMIT : LLM_ERR_NOMEM, "grammar: %s", failed);
}

LLM__PRIVATE int32_t llm__gr_find(llm_grammar *g, llm__gr_found kind, size_t n) {
    llm__gr_index *x = &g->index[kind];
    if (4 * (n + 1) > 3 * x->cap) {
        size_t cap = x->cap ? 2 * x->cap : 256;
        int32_t *slot = LLM__NEW(int32_t, cap);
        if (!slot) return g->failed = llm__out_of_memory, -1;
        LLM_FREE(x->slot);
        x->slot = slot, x->cap = cap;
        const int looking = g->looking;
        g->looking = 0;
        for (size_t i = 0; i < n; i++) (void)llm__gr_find(g, kind, i);
        g->looking = looking;
    }
    size_t len, other, at;
    const void *key = llm__gr_key(g, kind, n, &len), *there;
    for (at = (size_t)llm__hash(key, len, 0) & (x->cap - 1); x->slot[at]; at = (at + 1) & (x->cap - 1)) {
        there = llm__gr_key(g, kind, (size_t)x->slot[at] - 1, &other);
        if (len == other && !memcmp(key, there, len)) break;
    }
    if (!x->slot[at] && !g->looking) x->slot[at] = (int32_t)n + 1;
    return x->slot[at] - 1;
}

LLM__PRIVATE void llm__gr_index_clear(llm_grammar *g, llm__gr_found kind) {
    llm__gr_index *x = &g->index[kind];
    if (x->cap > 1 << 14) LLM_FREE(x->slot), x->slot = NULL, x->cap = 0;
    if (x->cap) memset(x->slot, 0, x->cap * sizeof *x->slot);
}

/* The frame (op, count) on top of `parent`; -1: too deep, or no memory. */
static int32_t llm__gr_push(llm_grammar *g, int32_t parent, int32_t op, int32_t count) {
    int32_t depth = parent < 0 ? 0 : g->frame[parent].depth + 1;
    if (depth > LLM__GR_MAX_DEPTH) return -1;
    if (!llm__grow((void **)&g->frame, &g->frames_cap, g->n_frames + 1, sizeof *g->frame)) return g->failed = llm__out_of_memory, -1;
    llm__gr_frame *f = &g->frame[g->n_frames];
    f->op = op, f->count = count, f->parent = parent, f->depth = depth;
    f->level = parent < 0 ? 0 : g->frame[parent].level + (g->op[op].kind == LLM__GR_CALL && g->op[op].max);
    int32_t at = llm__gr_find(g, LLM__GR_FRAMES, g->n_frames);
    g->n_frames += at == (int32_t)g->n_frames;
    return at;
}

LLM__PRIVATE void llm__gr_meet(llm_grammar *g, int32_t op, int32_t frame, int32_t base) {
    while (op >= 0 && g->op[op].kind == LLM__GR_SPLIT && g->op[op].other < 0) op = g->op[op].next;
    if (frame < 0 || op < 0 || g->failed || g->op[op].need + g->frame[frame].level > g->max_level) return;
    if ((*g->fuel -= LLM__GR_MEET) < 0 || g->n_work >= LLM__GR_MAX_WORK) {
        g->failed = llm__gr_too_many;
        return;
    }
    if (!llm__grow((void **)&g->work, &g->work_cap, g->n_work + 1, sizeof *g->work)) {
        g->failed = llm__out_of_memory;
        return;
    }
    llm__gr_met *m = &g->work[g->n_work];
    m->at.op = op, m->at.frame = frame;
    m->base = LLM__MIN(base, g->frame[frame].depth);
    m->fresh = g->frame[frame].depth - m->base;
    g->n_work += llm__gr_find(g, LLM__GR_WORK, g->n_work) == (int32_t)g->n_work;
}

/* One turn of a loop is over: another, or out. `frame` is that of the REPEAT, with the turns done before; it is replaced by one with the
 * new count, or popped. For x{2,} counts stop at 2: beyond the minimum every count means the same, and one state serves all. */
static void llm__gr_again(llm_grammar *g, int32_t frame, int32_t base) {
    llm__gr_frame f = g->frame[frame];
    const llm__gr_op *r = &g->op[f.op];
    int32_t done = f.count + 1, nothing = f.depth > base;
    if (r->max < 0) done = LLM__MIN(done, r->min);
    if (done >= r->min || nothing) llm__gr_meet(g, r->next, f.parent, base);
    if ((r->max < 0 || done < r->max) && !nothing) {
        base = LLM__MIN(base, f.depth - 1);
        llm__gr_meet(g, r->a, llm__gr_push(g, f.parent, f.op, done), base);
    }
}

LLM__PRIVATE void llm__gr_follow(llm_grammar *g) {
    for (size_t i = 0; i < g->n_work && !g->failed; i++) {
        llm__gr_thread t = g->work[i].at;
        int32_t base = g->work[i].base;
        const llm__gr_op op = g->op[t.op];
        if (op.kind == LLM__GR_SPLIT) {
            llm__gr_meet(g, op.next, t.frame, base);
            llm__gr_meet(g, op.other, t.frame, base);
        } else if (op.kind == LLM__GR_CALL) {
            /* A call that is the last thing of a rule needs no frame: whoever called the rule is whom to return to. So rules that repeat
             * by calling themselves at their end (s ::= "a" s | "b") read texts of any length. Joints may stand before the RETURN. A value
             * of JSON has a frame all the same: its level is counted. */
            int32_t after = op.next;
            while (after >= 0 && g->op[after].kind == LLM__GR_SPLIT && g->op[after].other < 0) after = g->op[after].next;
            int last = after >= 0 && g->op[after].kind == LLM__GR_RETURN && !g->every_frame && !op.max;
            llm__gr_meet(g, op.a, last ? t.frame : llm__gr_push(g, t.frame, t.op, 0), base);
        } else if (op.kind == LLM__GR_RETURN && t.frame > 0) { /* at the bottom only where llm__gr_check_left tries a rule alone */
            llm__gr_meet(g, g->op[g->frame[t.frame].op].next, g->frame[t.frame].parent, base);
        } else if (op.kind == LLM__GR_REPEAT) {
            if (!op.min) llm__gr_meet(g, op.next, t.frame, base);
            llm__gr_meet(g, op.a, llm__gr_push(g, t.frame, t.op, 0), base);
        } else if (op.kind == LLM__GR_AGAIN) {
            llm__gr_again(g, t.frame, base);
        }
    }
}

/* By instruction, then by stack: any total order would do, as long as equal sets are sorted into equal memory. */
static int llm__gr_thread_order(const void *a, const void *b) {
    const llm__gr_thread *x = (const llm__gr_thread *)a, *y = (const llm__gr_thread *)b;
    return x->op != y->op ? (x->op > y->op) - (x->op < y->op) : (x->frame > y->frame) - (x->frame < y->frame);
}

LLM__PRIVATE int32_t llm__gr_intern(llm_grammar *g) {
    size_t row = (size_t)g->n_classes;
    int32_t n = 0, kept = 0, accept = 0;
    if (!llm__grow((void **)&g->thread, &g->threads_cap, g->n_threads + g->n_work, sizeof *g->thread) ||
        !llm__grow((void **)&g->state, &g->states_cap, g->n_states + 1, sizeof *g->state) ||
        !llm__grow((void **)&g->to, &g->to_cap, (g->n_states + 1) * row, sizeof *g->to))
        g->failed = llm__out_of_memory;
    if (g->failed) return 0;
    llm__gr_thread *t = g->thread + g->n_threads;
    for (size_t i = 0; i < g->n_work; i++) {
        int kind = g->op[g->work[i].at.op].kind;
        if (kind == LLM__GR_BYTES || kind == LLM__GR_ACCEPT) t[n++] = g->work[i].at;
        accept |= kind == LLM__GR_ACCEPT;
    }
    if (!n) return 0;
    qsort(t, (size_t)n, sizeof *t, llm__gr_thread_order);
    for (int32_t i = 0; i < n; i++)
        if (!kept || llm__gr_thread_order(&t[kept - 1], &t[i])) t[kept++] = t[i];
    if (kept > LLM__GR_MAX_THREADS) return g->failed = llm__gr_too_many, 0;
    llm__gr_state *s = &g->state[g->n_states];
    s->from = (int32_t)g->n_threads, s->n = kept, s->accept = accept;
    int32_t at = llm__gr_find(g, LLM__GR_STATES, g->n_states);
    if (at < (int32_t)g->n_states) return LLM__MAX(at, 0);
    memset(g->to + g->n_states++ * row, 0xFF, row * sizeof *g->to);
    g->n_threads += (size_t)kept;
    return at;
}

LLM__PRIVATE void llm__gr_work_clear(llm_grammar *g) {
    g->n_work = 0;
    llm__gr_index_clear(g, LLM__GR_WORK);
}

LLM__PRIVATE int32_t llm__gr_step_new(llm_grammar *g, int32_t state, int32_t k) {
    llm__gr_state s = g->state[state];
    int byte = g->class_byte[k];
    llm__gr_work_clear(g);
    for (int32_t i = 0; i < s.n; i++) {
        llm__gr_thread t = g->thread[s.from + i];
        const llm__gr_op *op = &g->op[t.op];
        if (g->set[op->a][byte >> 5] >> (byte & 31) & 1) llm__gr_meet(g, op->next, t.frame, INT32_MAX);
    }
    llm__gr_follow(g);
    int32_t to = llm__gr_intern(g);
    return g->failed ? 0 : (g->to[(size_t)state * (size_t)g->n_classes + (size_t)k] = to);
}

LLM__PRIVATE void llm__gr_begin(llm_grammar *g) {
    g->n_frames = g->n_threads = g->n_states = 0;
    llm__gr_index_clear(g, LLM__GR_FRAMES);
    llm__gr_index_clear(g, LLM__GR_STATES);
    llm__gr_work_clear(g);
    llm__gr_push(g, -1, -1, 0);
    if (!llm__grow((void **)&g->state, &g->states_cap, 1, sizeof *g->state) ||
        !llm__grow((void **)&g->to, &g->to_cap, (size_t)g->n_classes, sizeof *g->to))
        g->failed = llm__out_of_memory;
    if (g->failed) return;
    memset(&g->state[0], 0, sizeof *g->state);
    memset(g->to, 0, (size_t)g->n_classes * sizeof *g->to);
    g->n_states = 1;
    llm__gr_meet(g, g->start, 0, 0);
    llm__gr_follow(g);
    (void)llm__gr_intern(g);
}

LLM__PRIVATE void llm__gr_trim(llm_grammar *g) {
    if (g->n_states * (size_t)g->n_classes * 4 + g->n_threads * sizeof *g->thread + g->n_frames * sizeof *g->frame < LLM__GR_STATE_BYTES)
        return;
    llm__gr_frame *frame = g->frame;
    llm__gr_thread *thread = g->thread;
    llm__gr_state *state = g->state;
    int32_t stack[LLM__GR_MAX_DEPTH + 1];
    g->frame = NULL, g->thread = NULL, g->state = NULL;
    g->frames_cap = g->threads_cap = g->states_cap = 0;
    llm__gr_begin(g);
    for (struct llm_matcher *m = g->matchers; m; m = m->next) {
        llm__gr_work_clear(g);
        for (int32_t i = 0; i < state[m->state].n && !g->failed; i++) {
            llm__gr_thread t = thread[state[m->state].from + i];
            int32_t n = 0, at = 0;
            for (int32_t f = t.frame; f > 0; f = frame[f].parent) stack[n++] = f;
            while (n-- > 0) at = llm__gr_push(g, at, frame[stack[n]].op, frame[stack[n]].count);
            llm__gr_meet(g, t.op, at, INT32_MAX);
        }
        m->state = llm__gr_intern(g); /* 0, dead, if that fails */
    }
    LLM_FREE(frame);
    LLM_FREE(thread);
    LLM_FREE(state);
}
