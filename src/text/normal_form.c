#include "text/normal_form.h"
#include "api/text.h"
#include "base/platform.h"
#include "base/text.h"
#include "text/unicode_tables.h"
#include "text/unicode_classes.h"

/* Hangul is composed by arithmetic: a syllable is (leading * 21 + vowel) * 28 + trailing, counted from U+AC00. */
enum { LLM__HANGUL_S = 0xAC00, LLM__HANGUL_L = 0x1100, LLM__HANGUL_V = 0x1161, LLM__HANGUL_T = 0x11A7, LLM__HANGUL_COUNT = 11172 };

/* A number of the packed text: 5 bits a character, least significant first; digits from 32 on say that more follow. */
static uint32_t llm__uni_vlq(const char **p) {
    uint32_t v = 0;
    for (int shift = 0;; shift += 5) {
        uint32_t digit = (uint32_t)(strchr(llm__uni_digits, *(*p)++) - llm__uni_digits);
        v |= (digit & 31) << shift;
        if (digit < 32) return v;
    }
}

/* Where the search for a pair begins: the upper 12 bits of a mixed product. 1,000 pairs in 4,096 slots. */
static uint32_t llm__uni_pair_slot(int32_t a, int32_t b) { return ((uint32_t)a * 0x9E3779B1u ^ (uint32_t)b * 0x85EBCA6Bu) >> 20; }

LLM__PRIVATE void llm__uni_norm_unpack(llm__uni_norm *m) {
    const char *p = llm__uni_decompositions[0];
    int32_t c = 0, last[20] = {0};
    int cells = 0, line = 0;
    for (int i = 0; i < LLM__UNI_DECOMPOSITIONS; i++) {
        if (!*p) p = llm__uni_decompositions[++line];
        uint32_t head = llm__uni_vlq(&p), n = llm__uni_vlq(&p);
        m->key[i] = c += (int32_t)(head >> 2);
        m->kind[i] = (uint8_t)(head & 3);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t v = llm__uni_vlq(&p);
            last[k] += v & 1 ? -(int32_t)(v / 2) - 1 : (int32_t)(v / 2);
            m->cell[cells++] = last[k];
        }
        m->from[i + 1] = (uint16_t)cells;
        if (m->kind[i] || n != 2) continue;
        uint32_t slot = llm__uni_pair_slot(last[0], last[1]);
        while (m->pair[slot]) slot = (slot + 1) & 4095;
        m->pair[slot] = (uint16_t)(i + 1);
    }
}

/* Adds the full decomposition of c: canonical, or with `compat` also what only looks or sounds alike (ligatures, widths, fractions). The
 * table holds one step, so the result is decomposed again; the recursion is short, as no chain of steps is longer than 4. */
static void llm__uni_decompose(const llm__uni_norm *m, int32_t c, int compat, llm_tokens *out) {
    uint32_t s = (uint32_t)(c - LLM__HANGUL_S);
    if (s < LLM__HANGUL_COUNT) {
        llm_tokens_add(out, LLM__HANGUL_L + (int32_t)(s / 588));
        llm_tokens_add(out, LLM__HANGUL_V + (int32_t)(s % 588 / 28));
        if (s % 28) llm_tokens_add(out, LLM__HANGUL_T + (int32_t)(s % 28));
        return;
    }
    int i = c < m->key[0] ? 0 : llm__uni_find(m->key, LLM__UNI_DECOMPOSITIONS, 4, 0, c);
    if (m->key[i] != c || (m->kind[i] == 2 && !compat)) llm_tokens_add(out, c);
    else
        for (int k = m->from[i]; k < m->from[i + 1]; k++) llm__uni_decompose(m, m->cell[k], compat, out);
}

/* The composition of a pair, or 0. Hangul is arithmetic; others are found by the hash. Singletons and exclusions (kind 1) are not in it,
 * so that what decomposes for good stays apart. */
static int32_t llm__uni_compose(const llm__uni_norm *m, int32_t a, int32_t b) {
    uint32_t l = (uint32_t)(a - LLM__HANGUL_L), s = (uint32_t)(a - LLM__HANGUL_S);
    if (l < 19 && (uint32_t)(b - LLM__HANGUL_V) < 21) return LLM__HANGUL_S + (int32_t)(l * 588) + (b - LLM__HANGUL_V) * 28;
    if (s < LLM__HANGUL_COUNT && s % 28 == 0 && (uint32_t)(b - LLM__HANGUL_T - 1) < 27) return a + (b - LLM__HANGUL_T);
    for (uint32_t slot = llm__uni_pair_slot(a, b); m->pair[slot]; slot = (slot + 1) & 4095) {
        int i = m->pair[slot] - 1;
        if (m->cell[m->from[i]] == a && m->cell[m->from[i] + 1] == b) return m->key[i];
    }
    return 0;
}

/* Puts runs of marks in the order of their classes: stable, and by counting, so that a hostile run of a million marks takes linear time. */
static void llm__uni_order(int32_t *v, size_t n, llm_tokens *spare) {
    for (size_t i = 0, end; i < n; i = end) {
        uint32_t count[257] = {0};
        int last = 0, sorted = 1;
        for (end = i; end < n; end++) {
            int k = llm__uni_class(v[end]);
            if (!k) break;
            sorted &= k >= last;
            last = k;
            count[k + 1]++;
        }
        if (end == i) end++;
        if (sorted) continue;
        for (int k = 1; k < 257; k++) count[k] += count[k - 1];
        spare->len = 0;
        for (size_t k = i; k < end; k++) llm_tokens_add(spare, v[k]);
        for (size_t k = 0; k < end - i && !spare->failed; k++) v[i + count[llm__uni_class(spare->data[k])]++] = spare->data[k];
    }
}

/* Canonical composition in place: a mark joins the starter before it unless a mark of its own class or a higher one stands between.
 * Returns the new length. */
static size_t llm__uni_recompose(const llm__uni_norm *m, int32_t *v, size_t n) {
    size_t to = 0, starter = SIZE_MAX;
    int last = 0; /* class of the code point before, 0 just after the starter */
    for (size_t i = 0; i < n; i++) {
        int32_t c = v[i], both = 0;
        int k = llm__uni_class(c);
        if (starter != SIZE_MAX && (to == starter + 1 || (last < k && last))) both = llm__uni_compose(m, v[starter], c);
        if (both) {
            v[starter] = both;
            continue;
        }
        if (!k) starter = to;
        last = k;
        v[to++] = c;
    }
    return to;
}

LLM__PRIVATE void llm__uni_normalize(const llm__uni_norm *m, llm__uni_form form, llm__str s, llm_text *out) {
    LLM__SCOPED(llm_tokens_free) llm_tokens cps = LLM__ZERO, spare = LLM__ZERO;
    size_t plain = 0;
    while (plain < s.n && (signed char)s.p[plain] >= 0) plain++;
    if (plain < s.n && plain) plain--;
    llm_text_add(out, s.p, plain);
    for (size_t at = plain; at < s.n && !cps.failed;) llm__uni_decompose(m, llm__uni_next(s, &at), form & 2, &cps);
    if (!cps.failed) {
        llm__uni_order(cps.data, cps.len, &spare);
        if (!(form & 1)) cps.len = llm__uni_recompose(m, cps.data, cps.len);
        for (size_t i = 0; i < cps.len; i++) llm__uni_put(out, cps.data[i]);
    }
    out->failed |= cps.failed | spare.failed;
}
