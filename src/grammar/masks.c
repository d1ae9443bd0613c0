#include "grammar/masks.h"
#include "api/config.h"
#include "api/text.h"
#include "api/grammar.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "base/index.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/decode.h"
#include "grammar/machine.h"

static void llm__gr_slice_free(llm__gr_slice *s) {
    LLM_FREE(s->kinds);
    LLM_FREE(s->runs);
    s->kinds = s->runs = NULL;
}

LLM__PRIVATE void llm__gr_trie_free(llm__gr_trie *t) {
    if (!t) return;
    void *const owned[] = {t->spelling, t->end, t->byte, t->depth, t->skip, t->from, t->order};
    for (int i = 0; i < LLM__COUNT(owned); i++) LLM_FREE(owned[i]);
    for (int k = 0; k < LLM__GR_SLICES; k++) llm__gr_slice_free(&t->slice[k]);
    pthread_mutex_destroy(&t->lock);
    LLM_FREE(t);
}

/* Nodes for the bytes of token `at` in order beyond those it shares with the token before it. open[d]: the node of depth d + 1 that may
 * still get children. Tokens come in order, so whatever the last one has beyond the shared beginning is complete: its subtrees end here
 * (`skip`). Byte-level vocabularies have few tokens of equal bytes, but SentencePiece ones have: a byte token <0x41> and the piece "A". */
static void llm__gr_trie_token(llm__gr_trie *t, const llm__index_entry *token, int32_t at, int32_t *open) {
    const llm__str s = token->s, before = at ? token[-1].s : s;
    int32_t shared = 0, n = (int32_t)s.n, n_before = (int32_t)before.n;
    while (at && shared < LLM__MIN(n, n_before) && s.p[shared] == before.p[shared]) shared++;
    for (int32_t d = at ? n_before - 1 : -1; d >= shared; d--) t->skip[open[d]] = t->n;
    for (int32_t d = shared; d < n; d++) {
        open[d] = t->n;
        t->byte[t->n] = (uint8_t)s.p[d];
        t->depth[t->n] = (uint8_t)(d + 1);
        t->from[t->n++] = at;
    }
    t->order[at] = token->value;
    t->from[t->n] = at + 1;
}

/* Spells every token: t->spelling and t->end, and in s those that a grammar may let through. Those longer than 255 bytes and the end
 * of text it never does: they count as empty. Returns how many; -1: no memory. */
static int32_t llm__gr_spell(const llm__tokenizer *tokenizer, llm__gr_trie *t, llm__index_entry *s) {
    llm_text all = llm__text_none();
    int32_t n = 0;
    llm_text_str(&all, "");
    for (int32_t id = 0; id < t->vocab; id++) {
        size_t begin = all.len;
        const char sign = (char)LLM__GR_SPECIAL;
        if (id != tokenizer->eos_id && llm__tokenizer_is_special(tokenizer, id)) llm_text_add(&all, &sign, 1);
        if (id != tokenizer->eos_id) all.failed |= llm__tokenizer_piece(tokenizer, id, &all) == LLM_ERR_NOMEM;
        if (all.len - begin > LLM__GR_MAX_TOKEN) all.len = begin;
        t->end[id] = (int32_t)all.len;
        if (all.len == begin) continue;
        s[n].s.n = all.len - begin, s[n++].value = id;
        t->longest = LLM__MAX(t->longest, (int32_t)(all.len - begin));
    }
    t->spelling = all.data;
    for (int32_t i = 0; i < n; i++) s[i].s.p = all.data + t->end[s[i].value] - s[i].s.n;
    return all.failed || all.len > INT32_MAX ? -1 : n;
}

/* ---- slices: what a set of characters makes of the trie ----
 * Inside a string, a word, a label of a host name, nine of ten tokens are runs of one set of characters, as [A-Za-z0-9]. Where the grammar
 * lets so many of them follow, all such tokens are copied as bits, and a walk looks only for the others: runs that are too long, and tokens
 * that leave the set by a byte that can be read somewhere in the run. In a host name those have a dot behind letters: some hundred nodes.
 *
 * kinds of a node, of the tokens at it and below it:
 *   bits 1 to 13     runs of so many characters of the set and nothing else; bit 14: of 14 or more
 *   bits 16 to 31    tokens that leave the set before that, by the first byte that does: its remainder by 15, or 31: not ASCII
 *   bit 15           tokens that leave it later */
static uint32_t llm__gr_leaves(uint8_t byte) { return 1u << (byte < 0x80 ? 16 + byte % 15 : 31); }

/* 1 if a byte begins a character of a set. */
static int llm__gr_begins(const uint32_t ascii[4], int wide, uint8_t byte) {
    return byte < 0x80 ? (int)(ascii[byte >> 5] >> (byte & 31) & 1) : wide;
}

/* Makes a slice of s->ascii and s->wide, in one pass in preorder: a node's bits go to its parent when the pass leaves its subtree. open[d]:
 * the node of depth d on the path, all of whose characters are of the set; begin[d]: where the character of byte d of the path begins;
 * count[d]: characters in d bytes. 0: no memory. */
static int llm__gr_slice_make(const llm__gr_trie *t, llm__gr_slice *s) {
    char path[LLM__GR_MAX_TOKEN];
    int32_t open[LLM__GR_MAX_TOKEN + 1], begin[LLM__GR_MAX_TOKEN + 1], count[LLM__GR_MAX_TOKEN + 1], top = 0, len;
    const size_t n_words = ((size_t)t->vocab + 31) / 32;
    s->kinds = LLM__NEW(uint32_t, t->n), s->runs = LLM__NEW(uint32_t, (LLM__GR_RUNS + 1) * n_words);
    if (!s->kinds || !s->runs) return 0;
    begin[0] = count[0] = 0;
    for (int32_t i = 0, next; i < t->n; i = next) {
        int32_t d = t->depth[i], from = begin[d - 1], before = count[d - 1];
        for (; top >= d; top--)
            if (top > 1) s->kinds[open[top - 1]] |= s->kinds[open[top]];
        path[d - 1] = (char)t->byte[i];
        uint8_t first = (uint8_t)path[from];
        int32_t c = first < 0x80 ? first : llm__utf8_get(path + from, (size_t)(d - from), &len);
        int in = llm__gr_begins(s->ascii, s->wide, first) && (c >= 0 || (first >= 0xC2 && first < 0xF5 && d - from < 4));
        uint32_t leaves = before < LLM__GR_RUNS ? llm__gr_leaves(first) : 1u << (LLM__GR_RUNS + 1);
        next = in ? i + 1 : t->skip[i];
        if (!in) {
            for (int32_t k = i; k < next; k++) s->kinds[k] = leaves;
            if (d > 1) s->kinds[open[d - 1]] |= leaves;
            continue;
        }
        begin[d] = c < 0 ? from : d, count[d] = before + (c >= 0);
        open[top = d] = i;
        if (t->from[i] == t->from[next]) continue;
        size_t size = (size_t)LLM__MIN(count[d], LLM__GR_RUNS);
        s->kinds[i] = c < 0 ? leaves : 1u << size;
        for (int32_t k = t->from[i]; c >= 0 && k < t->from[next]; k++)
            s->runs[size * n_words + (size_t)(t->order[k] >> 5)] |= 1u << (t->order[k] & 31);
    }
    for (; top > 1; top--) s->kinds[open[top - 1]] |= s->kinds[open[top]];
    for (size_t i = n_words; i < (LLM__GR_RUNS + 1) * n_words; i++) s->runs[i] |= s->runs[i - n_words];
    return 1;
}

/* The slice of a set, which is made if it is not there, in the place of the one that was used longest ago. NULL: it is not worth it, as few
 * tokens begin with the set, or there is no memory. Held while its `users` say so. */
static llm__gr_slice *llm__gr_slice_take(llm__gr_trie *t, const uint32_t ascii[4], int wide) {
    llm__gr_slice *s = NULL, *one = t->slice, *end = one + LLM__GR_SLICES;
    int32_t nodes = 0;
    for (int32_t i = 0; i < t->n; i = t->skip[i])
        if (llm__gr_begins(ascii, wide, t->byte[i])) nodes += t->skip[i] - i;
    if (nodes < LLM__GR_SLICE_NODES) return NULL;
    pthread_mutex_lock(&t->lock);
    for (; one < end && !(one->kinds && one->wide == wide && !memcmp(one->ascii, ascii, sizeof one->ascii)); one++)
        if (!__atomic_load_n(&one->users, __ATOMIC_ACQUIRE) && (!s || one->used < s->used)) s = one;
    if (one < end) s = one;
    else if (s) {
        llm__gr_slice_free(s);
        memcpy(s->ascii, ascii, sizeof s->ascii);
        s->wide = wide;
        if (!llm__gr_slice_make(t, s)) llm__gr_slice_free(s), s = NULL;
    }
    if (s) s->used = ++t->clock, __atomic_fetch_add(&s->users, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&t->lock);
    return s;
}

LLM__PRIVATE int llm__gr_trie_lay(llm__gr_trie *t, llm__index_entry *s, int32_t n) {
    int32_t open[LLM__GR_MAX_TOKEN];
    size_t bytes = n > 0 ? (size_t)t->end[t->vocab - 1] : 0;
    t->order = LLM__NEW(int32_t, t->vocab), t->byte = LLM__NEW(uint8_t, bytes), t->depth = LLM__NEW(uint8_t, bytes);
    t->skip = LLM__NEW(int32_t, bytes), t->from = LLM__NEW(int32_t, bytes + 1);
    if (!t->order || !t->byte || !t->depth || !t->skip || !t->from) return 0;
    qsort(s, (size_t)n, sizeof *s, llm__index_compare); /* a prefix first: preorder of the trie */
    for (int32_t i = 0; i < n; i++) llm__gr_trie_token(t, &s[i], i, open);
    for (int32_t d = n ? (int32_t)s[n - 1].s.n - 1 : -1; d >= 0; d--) t->skip[open[d]] = t->n;
    return 1;
}

LLM__PRIVATE llm__gr_trie *llm__gr_trie_make(const llm__tokenizer *tokenizer) {
    int32_t n = -1;
    llm__gr_trie *t = LLM__NEW(llm__gr_trie, 1);
    if (!t) return NULL;
    pthread_mutex_init(&t->lock, NULL);
    t->vocab = tokenizer->n_vocab;
    t->end = LLM__NEW(int32_t, t->vocab);
    llm__index_entry *s = LLM__NEW(llm__index_entry, t->vocab);
    if (s && t->end) n = llm__gr_spell(tokenizer, t, s);
    int ok = n >= 0 && llm__gr_trie_lay(t, s, n);
    LLM_FREE(s);
    static const uint32_t plain[4] = {0, ~4u, ~(1u << 28), ~0u}; /* what all schemas need: what stands in a string as it is */
    llm__gr_slice *slice = ok ? llm__gr_slice_take(t, plain, 1) : NULL;
    if (slice) __atomic_fetch_sub(&slice->users, 1, __ATOMIC_RELEASE);
    if (ok) return t;
    llm__gr_trie_free(t);
    return NULL;
}

/* What a mask depends on: the threads, with the counts of their loops cut off where no single token can reach. 128 bits of a keyed hash
 * stand for it; a sum over the threads, since their order within a state means nothing.
 *
 * Why counts are cut off. A turn of a loop takes at least one byte, so a token of at most L bytes completes at most L turns. In a string of
 * maxLength 1000 there are 997 turns left after 3 characters, and 700 after 300; with L = 16 no token can tell one from the other, and both
 * positions have the same mask. So what is still needed, and what is left, count in the key only up to L + 1:
 *
 *   done   needed (min 20)   left (max 1000)   in the key, L = 16
 *   0      20                1000              17, 17
 *   3      17                997               17, 17        the same mask as before
 *   4      16                996               16, 17        one token of 16 characters could reach the end of what is needed
 *   300    0                 700               0, 17
 *   990    0                 10                0, 10         from 984 on each position has its own
 *
 * Without it each character of each string would cost a walk over most of the vocabulary. The states themselves stay exact: a mask may be
 * shared, a place in the text may not. */
static void llm__gr_mask_name(const llm_grammar *g, int32_t state, uint64_t key[2]) {
    const llm__gr_state *s = &g->state[state];
    int32_t far = g->trie->longest + 1;
    key[0] = key[1] = 0;
    for (int32_t i = 0; i < s->n; i++) {
        const llm__gr_thread *t = &g->thread[s->from + i];
        uint64_t a = llm__mix((uint64_t)t->op + 1), b = llm__mix(a ^ 0x9E3779B97F4A7C15u);
        for (int32_t f = t->frame; f > 0; f = g->frame[f].parent) {
            const llm__gr_op *op = &g->op[g->frame[f].op];
            uint64_t word = (uint64_t)(uint32_t)g->frame[f].op << 32;
            if (op->kind == LLM__GR_REPEAT) {
                int32_t need = LLM__MAX(0, op->min - g->frame[f].count), left = op->max < 0 ? far : op->max - g->frame[f].count;
                word |= (uint64_t)LLM__MIN(need, far) << 16 | (uint64_t)LLM__MIN(left, far);
            }
            a = llm__mix(a ^ word), b = llm__mix(b + word);
        }
        key[0] += a, key[1] += b;
    }
}

LLM__PRIVATE void llm__gr_masks_free(llm_grammar *g) {
    for (size_t i = 0; i < g->n_masks; i++) LLM_FREE(g->mask[i].words);
    g->n_masks = 0;
    llm__gr_index_clear(g, LLM__GR_MASKS);
}

/* The bytes that may come next, as a set. Returns the one that must, or -1: there are several, or none, or the text may end. */
static int llm__gr_next_bytes(const llm_grammar *g, int32_t state, uint32_t set[8]) {
    const llm__gr_state *s = &g->state[state];
    int n = 0, byte = -1;
    memset(set, 0, 8 * sizeof *set);
    for (int32_t i = 0; i < s->n; i++)
        for (int word = 0; word < 8; word++) set[word] |= g->set[g->op[g->thread[s->from + i].op].a][word];
    for (int word = 0; word < 8; word++)
        if (set[word]) n += 1 + !!(set[word] & (set[word] - 1)), byte = 32 * word + __builtin_ctz(set[word]);
    return n == 1 && !s->accept ? byte : -1;
}

/* The set of characters of the BYTES of a state that has the most, as *ascii and *wide. Returns how large it is; 0: of a few characters. */
static int llm__gr_largest(const llm_grammar *g, int32_t state, uint32_t ascii[4], int *wide) {
    const llm__gr_state *s = &g->state[state];
    int best = 7;
    for (int32_t i = 0; i < s->n; i++) {
        const llm__gr_op *op = &g->op[g->thread[s->from + i].op];
        int n = 64 * op->wide;
        for (int k = 0; k < 4; k++) n += __builtin_popcount(g->set[op->a][k]);
        if (n > best) best = n, *wide = op->wide, memcpy(ascii, g->set[op->a], 4 * sizeof *ascii);
    }
    return best > 7 ? best : 0;
}

/* The state behind one more character of a set: where every one of them leads, as far as single threads read them all (sure 1); or
 * all places where some may lead, in one state (sure 0). 0: there is none; -1: not known. */
static int32_t llm__gr_run(llm_grammar *g, const uint32_t ascii[4], int wide, int32_t state, int sure) {
    const llm__gr_state s = g->state[state];
    llm__gr_work_clear(g);
    for (int32_t i = 0; i < s.n; i++) {
        llm__gr_thread t = g->thread[s.from + i];
        const llm__gr_op *op = &g->op[t.op];
        const uint32_t *set = g->set[op->a];
        uint32_t in = 0, out = 0;
        for (int k = 0; k < 4; k++) in |= ascii[k] & set[k], out |= ascii[k] & ~set[k];
        if (wide && !op->part && (set[4] | set[5] | set[6] | set[7]) && !sure) return -1;
        if (sure ? !out && op->wide >= wide : in || (wide && op->wide)) llm__gr_meet(g, op->next, t.frame, INT32_MAX);
    }
    llm__gr_follow(g);
    int32_t to = llm__gr_intern(g);
    if (g->failed) g->failed = NULL, to = -1; /* the walk itself may do with less */
    return to;
}

/* 1 if no token can tell two states apart: what follows a loop without end, or one whose end is far, is that again. */
static int llm__gr_alike(const llm_grammar *g, int32_t a, int32_t b) {
    uint64_t x[2], y[2];
    llm__gr_mask_name(g, a, x);
    llm__gr_mask_name(g, b, y);
    return x[0] == y[0] && x[1] == y[1];
}

/* What a walk need not look at. */
typedef struct llm__gr_look {
    llm__gr_slice *slice; /* NULL: look at everything */
    int32_t sure;         /* runs of at most so many characters (LLM__GR_RUNS: of any number) are allowed, whatever they are */
    uint32_t need;        /* kinds of other tokens that may be */
} llm__gr_look;

/* Finds that for a state, with its slice held: of the largest set that may come next. */
static llm__gr_look llm__gr_ahead(llm_grammar *g, int32_t state) {
    llm__gr_look x = {NULL, 0, 0};
    uint32_t ascii[4], bytes[8], all[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    const uint32_t late = 1u << (LLM__GR_RUNS + 1);
    const int64_t fuel = *g->fuel;
    int wide = 0, k = 0;
    int32_t to = llm__gr_largest(g, state, ascii, &wide) ? llm__gr_run(g, ascii, wide, state, 1) : 0, at = to;
    if (to <= 0 || !(x.slice = llm__gr_slice_take(g->trie, ascii, wide))) return x;
    for (x.sure = 1; x.sure < LLM__GR_RUNS - 1 && (to = llm__gr_run(g, ascii, wide, at, 1)) > 0; at = to)
        x.sure = llm__gr_alike(g, at, to) ? LLM__GR_RUNS : x.sure + 1;
    for (at = state;; at = to, k++) { /* after k characters */
        x.need |= 1u << k | (k == LLM__GR_RUNS ? late : 0);
        (void)llm__gr_next_bytes(g, at, bytes);
        for (int word = 0; word < 8; word++) all[word] |= bytes[word];
        if (k == LLM__GR_RUNS || !(to = llm__gr_run(g, ascii, wide, at, 0))) break;
        if (to < 0) memset(all, 0xFF, sizeof all);
        if (to > 0 && !(k && llm__gr_alike(g, at, to))) continue;
        x.need |= (2 * late - 1) & ~0u << k;
        break;
    }
    for (int byte = 0; byte < 256; byte++)
        if (all[byte >> 5] >> (byte & 31) & 1 && !(byte < 0x80 && llm__gr_begins(ascii, 0, (uint8_t)byte)))
            x.need |= llm__gr_leaves((uint8_t)byte);
    x.need &= ~0u << (x.sure + 1);
    *g->fuel = fuel;
    return x;
}

/* Walks the trie: sets the bit of every token that leads to a living state. Returns how many.
 * words: zeroed. at[d] is the state behind d bytes of the path to node i: in preorder the ancestors of a node are the last ones of each
 * smaller depth that were visited, so one array serves as the stack. States that are new are numbered on the way (llm__gr_step). */
static int32_t llm__gr_walk(llm_grammar *g, int32_t state, uint32_t *words) {
    llm__gr_trie *t = g->trie;
    const size_t n_words = ((size_t)t->vocab + 31) / 32;
    int32_t at[LLM__GR_MAX_TOKEN + 1], n = 0;
    llm__gr_look look = llm__gr_ahead(g, state);
    const uint32_t *kinds = look.slice ? look.slice->kinds : NULL;
    at[0] = state;
    if (look.slice) memcpy(words, look.slice->runs + (size_t)look.sure * n_words, n_words * sizeof *words);
    for (int32_t i = 0, next; i < t->n; i = next) {
        int32_t d = t->depth[i], byte = t->byte[i];
        next = t->skip[i];
        if (kinds && !(kinds[i] & look.need)) continue;
        int32_t to = llm__gr_step(g, at[d - 1], (uint8_t)byte);
        if (!to) continue;
        at[d] = to, next = i + 1;
        for (int32_t k = t->from[i]; k < t->from[next]; k++) words[t->order[k] >> 5] |= 1u << (t->order[k] & 31);
    }
    if (look.slice) __atomic_fetch_sub(&look.slice->users, 1, __ATOMIC_RELEASE);
    for (size_t i = 0; i < n_words; i++) n += __builtin_popcount(words[i]);
    return n;
}

LLM__PRIVATE const llm__gr_mask *llm__gr_mask_of(llm_grammar *g, int32_t state) {
    size_t n_words = ((size_t)g->trie->vocab + 31) / 32;
    if (g->n_masks * n_words * 4 > LLM__GR_MASK_BYTES) llm__gr_masks_free(g);
    if (!llm__grow((void **)&g->mask, &g->masks_cap, g->n_masks + 1, sizeof *g->mask)) g->failed = llm__out_of_memory;
    if (g->failed) return NULL;
    llm__gr_mask *mask = &g->mask[g->n_masks];
    const int kept = g->looking;
    g->looking = 1;
    llm__gr_mask_name(g, state, mask->key);
    const int32_t at = llm__gr_find(g, LLM__GR_MASKS, g->n_masks);
    g->looking = kept;
    if (at >= 0 && !g->mask[at].words) g->failed = llm__gr_too_many;
    if (at >= 0 || kept || g->failed) return at < 0 || g->failed ? NULL : &g->mask[at];
    mask->words = LLM__NEW(uint32_t, n_words);
    if (!mask->words) g->failed = llm__out_of_memory;
    else mask->n_allowed = llm__gr_walk(g, state, mask->words);
    if (g->failed) LLM_FREE(mask->words), mask->words = NULL;
    if (g->failed && !strcmp(g->failed, llm__out_of_memory)) return NULL; /* another time there may be some; what is too much stays so */
    g->n_masks += llm__gr_find(g, LLM__GR_MASKS, g->n_masks) == (int32_t)g->n_masks;
    return g->failed ? NULL : mask;
}

/* ---- jumps: where one text only may follow ----
 * Behind {"na a schema with the one key "name" leaves me": and nothing else. To ask masks for it would cost a walk for each token; a state
 * knows it by itself, as the union of its threads' sets then has one byte. The bytes lead down the trie until it has no longer token:
 *
 *   forced m e " :     the trie has m, me, men, met, "     m -> me -> no child with ": the tokens are m and me, and me is the longest
 *
 * All tokens that a mask would allow lie on this way. Is there one only, then it must come. Are there more, then the longest one will most
 * likely: tokenizers write so, and models have learned it. (Where several bytes may follow with which longer tokens go on, as behind the
 * colon above, they decide between the tokens, and nothing is said.) */

LLM__PRIVATE int32_t llm__gr_forced(llm_grammar *g, int32_t *state, int *alone) {
    const llm__gr_trie *t = g->trie;
    int32_t at = *state, id = -1, n = 0;
    for (int32_t node = 0, end = t->n; node < end; node++) {
        uint32_t set[8];
        int byte = llm__gr_next_bytes(g, at, set);
        while (node < end && !(set[t->byte[node] >> 5] >> (t->byte[node] & 31) & 1)) node = t->skip[node];
        if (node == end) break;
        if (byte < 0 || !(at = llm__gr_step(g, at, (uint8_t)byte))) return -1;
        end = t->skip[node];
        if (t->from[node + 1] == t->from[node]) continue;
        n += t->from[node + 1] - t->from[node];
        id = t->order[t->from[node]];
        *state = at;
    }
    *alone = n == 1;
    return id;
}
