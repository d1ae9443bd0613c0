#include "grammar/finish.h"
#include "api/config.h"
#include "api/grammar.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "grammar/machine.h"
#include "grammar/masks.h"

/* How many levels of values each way to the end goes down at least, and so whether there is one; a rule that can only call itself for ever
 * has none. Until nothing changes,
 * backwards, as fragments are mostly made in order of text, and forwards, as rules may call those behind them. (The least fixed point that
 * finds the productive symbols of a context-free grammar: Hopcroft & Ullman 1979.) Why: a mask promises that every token it allows can be
 * continued to a whole answer. In root ::= "a" | "b" loop, loop ::= "x" loop, the way over "b" never ends, and a model that was allowed
 * "b" would write x until its budget is spent. For the same reason a value begins only where the levels that are left are enough for it and
 * for all that must follow. Rules that call each other crosswise can make it take too long. */
static void llm__gr_needs(llm__gr_build *b) {
    llm_grammar *g = b->g;
    int changed = 1;
    for (size_t k = 0; k < g->n_ops; k++) g->op[k].need = LLM__GR_DEAD;
    for (int pass = 0; changed && llm__gr_spend(b, g->n_ops / 8); pass++) {
        changed = 0;
        for (size_t k = 0; k < g->n_ops; k++) {
            llm__gr_op *op = &g->op[pass & 1 ? k : g->n_ops - 1 - k];
            int next = op->next >= 0 ? g->op[op->next].need : (int)LLM__GR_DEAD, need = next;
            if (op->kind == LLM__GR_SPLIT && op->other >= 0) need = LLM__MIN(next, g->op[op->other].need);
            if (op->kind == LLM__GR_CALL) need = LLM__MAX(next, g->op[op->a].need + (op->max && g->op[op->a].need < LLM__GR_DEAD));
            if (op->kind == LLM__GR_REPEAT && op->min) need = LLM__MAX(next, g->op[op->a].need);
            if (op->kind == LLM__GR_RETURN || op->kind == LLM__GR_AGAIN || op->kind == LLM__GR_ACCEPT) need = 0;
            changed |= need != op->need;
            op->need = (uint8_t)LLM__MIN(need, LLM__GR_DEAD);
        }
    }
}

/* A rule that calls itself before it consumes anything would push frames for ever. Each rule is entered once here, with an empty stack.
 * expr ::= expr "+" num is entered with one frame, calls itself with two, then three ...: whether it ever stops is seen by letting one step
 * run: it goes on to the limit of the depth, or it does not. Rules that call themselves in a ring, or behind something that may be empty,
 * are found in the same way. */
static void llm__gr_check_left(llm__gr_build *b) {
    llm_grammar *g = b->g;
    uint8_t *done = LLM__NEW(uint8_t, g->n_ops);
    if (!done) b->failed = llm__nomem();
    g->every_frame = 1; /* or a ring of such calls would end by itself, as nothing new is met */
    for (size_t i = 0; i < g->n_ops && !b->failed; i++) {
        if (g->op[i].kind != LLM__GR_CALL || done[g->op[i].a]) continue;
        done[g->op[i].a] = 1;
        llm__gr_begin(g);
        llm__gr_work_clear(g);
        llm__gr_meet(g, g->op[i].a, 0, 0);
        llm__gr_follow(g);
        int deep = 0;
        for (size_t k = 0; k < g->n_work && !deep; k++) deep = g->frame[g->work[k].at.frame].depth >= LLM__GR_MAX_DEPTH - 1;
        if (llm__gr_spend(b, 64) && g->failed && !deep) b->failed = llm__gr_gave_up(g->failed);
        if (deep && !b->failed)
            b->failed = llm__error(LLM_ERR_UNSUPPORTED,
                                   "grammar: a rule begins with itself (left recursion), rules that first consume something expected");
    }
    g->every_frame = 0;
    LLM_FREE(done);
}

/* Numbers the bytes so that two have one number exactly if every set has both or neither. Each set splits the classes that it cuts through
 * (partition refinement: Hopcroft 1971; RE2's ByteMapBuilder does the same with ranges). For [0-9] and [0-9a-f]:
 *
 *   at first    0: every byte
 *   [0-9]       0: the others    1: 0 to 9
 *   [0-9a-f]    0: the others    1: 0 to 9     2: a to f       class 1 lies wholly within, and stays
 *
 * A state's row of steps has one column a class, not 256: that is what lets a thousand states stay in the cache. */
static void llm__gr_classes(llm_grammar *g) {
    g->n_classes = 1;
    for (size_t s = 0; s < g->n_sets; s++) {
        int32_t split[256]; /* the class that those of class k get which the set has; 0: not met yet */
        int32_t inside[256] = {0}, total[256] = {0};
        for (int c = 0; c < 256; c++) total[g->class_of[c]]++, inside[g->class_of[c]] += (int)(g->set[s][c >> 5] >> (c & 31) & 1);
        for (int k = 0; k < 256; k++) split[k] = -1;
        for (int c = 0; c < 256; c++) {
            int k = g->class_of[c];
            if (!(g->set[s][c >> 5] >> (c & 31) & 1) || inside[k] == total[k]) continue;
            if (split[k] < 0) split[k] = g->n_classes++;
            g->class_of[c] = (uint8_t)split[k];
        }
    }
    for (int c = 255; c >= 0; c--) g->class_byte[g->class_of[c]] = (uint8_t)c;
}

LLM__PRIVATE void llm__grammar_free(llm_grammar *g) {
    llm__gr_masks_free(g);
    void *const owned[] = {g->op, g->set, g->frame, g->thread, g->state, g->to, g->work, g->mask};
    for (int i = 0; i < LLM__COUNT(owned); i++) LLM_FREE(owned[i]);
    for (int i = 0; i < LLM__GR_INDEXES; i++) LLM_FREE(g->index[i].slot);
    pthread_mutex_destroy(&g->lock);
    LLM_FREE(g);
}

LLM__PRIVATE llm_grammar *llm__grammar_new(llm__gr_build *b, int64_t *fuel) {
    static const uint32_t nothing[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    llm_grammar *g = b->g = LLM__NEW(llm_grammar, 1);
    b->failed = g ? LLM_OK : llm__nomem();
    b->escape = b->levels = 0;
    if (!g) return NULL;
    pthread_mutex_init(&g->lock, NULL);
    g->refs = 1;
    g->fuel = fuel;
    (void)llm__gr_bytes(b, nothing);
    if (b->failed) llm__grammar_free(g), b->g = NULL;
    return b->g;
}

LLM__PRIVATE void llm__grammar_finish(llm__gr_build *b, llm__gr_frag f) {
    llm_grammar *g = b->g;
    llm__gr_goto(b, f, llm__gr_add(b, LLM__GR_ACCEPT, 0, -1));
    if (b->failed) return;
    llm__gr_classes(g);
    g->start = f.in;
    llm__gr_needs(b);
    if (!b->failed && (f.in < 0 || g->op[f.in].need == LLM__GR_DEAD))
        b->failed = llm__error(LLM_ERR_FORMAT, "grammar: no text can ever complete it: nothing can satisfy it");
    if (!b->failed) g->max_level = LLM__MAX(LLM__GR_MAX_LEVEL, LLM__MAX(b->levels, g->op[f.in].need));
    if (!b->failed) llm__gr_check_left(b);
    if (!b->failed) llm__gr_begin(g);
    if (!b->failed && g->failed) b->failed = llm__gr_gave_up(g->failed);
}
