#include "engine/badwords.h"
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "grammar/machine.h"

/* The node below `at` by a byte; 0: none. */
static int32_t llm__badwords_child(const llm__badwords *w, int32_t at, uint8_t byte) {
    int32_t c = w->child[at];
    while (c && w->byte[c] != byte) c = w->sibling[c];
    return c;
}

/* Where the automaton goes from a node by a byte. */
static int32_t llm__badwords_step(const llm__badwords *w, int32_t at, uint8_t byte) {
    int32_t next = llm__badwords_child(w, at, byte);
    while (!next && at) {
        at = w->fail[at];
        next = llm__badwords_child(w, at, byte);
    }
    return next;
}

static void llm__badwords_add(llm__badwords *w, const char *word) {
    int32_t at = 0, depth = 0;
    for (; word[depth]; depth++) {
        const uint8_t byte = (uint8_t)word[depth];
        int32_t next = llm__badwords_child(w, at, byte);
        if (!next) {
            next = w->n++;
            w->byte[next] = byte;
            w->sibling[next] = w->child[at];
            w->child[at] = next;
        }
        at = next;
    }
    w->ends[at] = 1;
    w->longest = LLM__MAX(w->longest, depth);
}

/* The failure links, level by level: a node's parent and all shorter nodes have theirs. queue: (n). */
static void llm__badwords_link(llm__badwords *w, int32_t *queue) {
    int32_t n = 0;
    for (int32_t c = w->child[0]; c; c = w->sibling[c]) queue[n++] = c;
    for (int32_t i = 0; i < n; i++)
        for (int32_t c = w->child[queue[i]]; c; c = w->sibling[c]) {
            queue[n++] = c;
            w->fail[c] = llm__badwords_step(w, w->fail[queue[i]], w->byte[c]);
            w->ends[c] |= w->ends[w->fail[c]];
        }
}

/* Tokens in which a word stands. Their beginnings are shared: where one completes a word, all below it do. */
static void llm__badwords_whole(llm__badwords *w) {
    const llm__gr_trie *t = w->trie;
    int32_t at[256] = {0};
    for (int32_t i = 0, next; i < t->n; i = next) {
        const int d = t->depth[i];
        next = i + 1;
        at[d] = llm__badwords_step(w, at[d - 1], t->byte[i]);
        if (!w->ends[at[d]]) continue;
        next = t->skip[i];
        for (int32_t k = t->from[i]; k < t->from[next]; k++) w->always[t->order[k] >> 5] |= 1u << (t->order[k] & 31);
    }
}

LLM__PRIVATE llm_result llm__badwords_make(llm__badwords *w, const llm__gr_trie *trie, const char *const *words, int32_t n, llm__arena *a) {
    size_t most = 1;
    for (int32_t i = 0; i < n; i++) most += strlen(words[i]);
    LLM__SCOPED(llm__drop) int32_t *queue = LLM__NEW(int32_t, most);
    w->trie = trie;
    w->n = 1;
    w->byte = (uint8_t *)llm__arena_get(a, most);
    w->ends = (uint8_t *)llm__arena_get(a, most);
    w->child = (int32_t *)llm__arena_get(a, most * sizeof *w->child);
    w->sibling = (int32_t *)llm__arena_get(a, most * sizeof *w->sibling);
    w->fail = (int32_t *)llm__arena_get(a, most * sizeof *w->fail);
    w->always = trie ? (uint32_t *)llm__arena_get(a, ((size_t)trie->vocab + 31) / 32 * sizeof *w->always) : NULL;
    if (!trie || !queue || a->failed) return llm__nomem();
    for (int32_t i = 0; i < n; i++) llm__badwords_add(w, words[i]);
    llm__badwords_link(w, queue);
    llm__badwords_whole(w);
    return LLM_OK;
}

/* Bans the tokens below nodes [i, end) of the trie, all of one depth or deeper, that go on from the words' node `at` to the end of one. As
 * deep as a token is long: 255 bytes at most. */
static void llm__badwords_walk(const llm__badwords *w, int32_t at, int32_t i, int32_t end, float *x, int32_t n_x) {
    const llm__gr_trie *t = w->trie;
    for (; i < end; i = t->skip[i]) {
        const int32_t next = llm__badwords_child(w, at, t->byte[i]);
        if (!next) continue;
        if (!w->ends[next]) llm__badwords_walk(w, next, i + 1, t->skip[i], x, n_x);
        for (int32_t k = t->from[i]; w->ends[next] && k < t->from[t->skip[i]]; k++)
            if (t->order[k] < n_x) x[t->order[k]] = -INFINITY;
    }
}

/* Where the automaton stands behind an answer. Only the last bytes, fewer than the longest word has, may be the begin of one. */
static int32_t llm__badwords_behind(const llm__badwords *w, const int32_t *output, int32_t n_output) {
    const llm__gr_trie *t = w->trie;
    int32_t from = n_output, bytes = 0, at = 0;
    while (from > 0 && bytes < w->longest - 1) {
        const int32_t id = output[--from];
        if (id >= 0 && id < t->vocab) bytes += t->end[id] - (id ? t->end[id - 1] : 0);
    }
    for (; from < n_output; from++) {
        const int32_t id = output[from];
        if (id < 0 || id >= t->vocab) continue;
        for (int32_t b = id ? t->end[id - 1] : 0; b < t->end[id]; b++) at = llm__badwords_step(w, at, (uint8_t)t->spelling[b]);
    }
    return at;
}

LLM__PRIVATE void llm__badwords_ban(const llm__badwords *w, const int32_t *output, int32_t n_output, float *x, int32_t n_x) {
    const int32_t n = LLM__MIN(n_x, w->trie->vocab);
    for (int32_t i = 0; i < n; i += 32)
        for (uint32_t bits = w->always[i / 32]; bits; bits &= bits - 1) {
            const int32_t id = i + __builtin_ctz(bits);
            if (id < n) x[id] = -INFINITY;
        }
    for (int32_t at = llm__badwords_behind(w, output, n_output); at; at = w->fail[at]) llm__badwords_walk(w, at, 0, w->trie->n, x, n_x);
}
