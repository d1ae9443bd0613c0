/* ---- An index of strings ----
 * Answers "which of these strings does the text begin with", for added tokens, the tokens of Unigram and user-defined ones. */

/* Strings in order, to find those that a text begins with: each byte of the text narrows the range that still fits. Of a, ab, abc, b and
 * the text abd: behind a the first three are left, and a itself is found; behind b the second and third, ab is found; behind d none. */
typedef struct llm__index_entry {
    llm__str s;
    int32_t value;
} llm__index_entry;

typedef struct llm__index {
    llm__index_entry *v;
    size_t n, cap;
    uint32_t first[257]; /* where strings that begin with a byte start */
} llm__index;

/* Appends an entry, unless its text is empty; the text must outlive the index. It can be searched after llm__index_build. */
static void llm__index_add(llm__index *x, llm__str s, int32_t value, llm_result *result) {
    if (!s.n) return;
    if (!llm__grow((void **)&x->v, &x->cap, x->n + 1, sizeof *x->v)) {
        *result = llm__nomem();
        return;
    }
    x->v[x->n].s = s;
    x->v[x->n++].value = value;
}

/* By bytes, a prefix before what it is a prefix of; equal texts by value. */
static int llm__index_compare(const void *a, const void *b) {
    const llm__index_entry *x = (const llm__index_entry *)a, *y = (const llm__index_entry *)b;
    int order = llm__str_order(x->s, y->s);
    return order ? order : (x->value > y->value) - (x->value < y->value);
}

/* Sorts what is in v and notes where each first byte starts, so that the first step of a search is a look-up. Of equal strings the one
 * with the least value stays. */
static void llm__index_build(llm__index *x) {
    size_t n = 0;
    if (x->n > 1) qsort(x->v, x->n, sizeof *x->v, llm__index_compare);
    for (size_t i = 0; i < x->n; i++)
        if (!n || !llm__str_same(x->v[n - 1].s, x->v[i].s)) x->v[n++] = x->v[i];
    x->n = n;
    for (size_t i = 0, b = 0; b < 257; b++) {
        while (i < n && (uint8_t)x->v[i].s.p[0] < b) i++;
        x->first[b] = (uint32_t)i;
    }
}

/* Narrows [*lo, *hi), whose strings agree in their first `depth` bytes, to those with byte c next: two binary searches, which makes a
 * sorted array as good as a trie, without its memory. 1 if one of them ends there: *lo, for a prefix sorts first. */
static int llm__index_step(const llm__index *x, size_t *lo, size_t *hi, size_t depth, uint8_t c) {
    size_t bound[2] = {x->first[c], x->first[c + 1]};
    for (int k = 0; depth && k < 2; k++) {
        size_t a = *lo, b = *hi;
        while (a < b) {
            size_t mid = (a + b) / 2;
            const llm__str *s = &x->v[mid].s;
            if (s->n == depth || (uint8_t)s->p[depth] < c + k) a = mid + 1;
            else b = mid;
        }
        bound[k] = a;
    }
    *lo = bound[0];
    *hi = bound[1];
    return *lo < *hi && x->v[*lo].s.n == depth + 1;
}

/* The entry of the longest string that the text begins with, or NULL. */
static const llm__index_entry *llm__index_longest(const llm__index *x, llm__str s) {
    size_t lo = 0, hi = x->n;
    const llm__index_entry *best = NULL;
    for (size_t i = 0; i < s.n && lo < hi; i++)
        if (llm__index_step(x, &lo, &hi, i, (uint8_t)s.p[i])) best = &x->v[lo];
    return best;
}

