#include "engine/speculate.h"
#include "base/platform.h"

#define LLM__MARGIN 1.25 /* how many times what a row costs must be expected of it */

LLM__PRIVATE void llm__pace_note(llm__pace *p, double rows, double seconds) {
    double w = p->weight > 0 ? p->weight : 1, dr = rows - p->rows;
    if (w < 0.1) seconds = LLM__MIN(seconds, 1.5 * p->seconds * LLM__MAX(1.0, rows / p->rows));
    double ds = seconds - p->seconds;
    p->rows += w * dr;
    p->seconds += w * ds;
    p->rows2 = (1 - w) * (p->rows2 + w * dr * dr);
    p->both = (1 - w) * (p->both + w * dr * ds);
    p->weight = LLM__MAX(1.0 / 64, w / (1 + w));
}

LLM__PRIVATE llm__bargain llm__pace_step(const llm__pace *p, int32_t n) {
    llm__bargain b;
    double usual = 0.15 * p->seconds / (0.85 + 0.15 * p->rows), variance = 0.25 + p->rows * p->rows / 64;
    b.tokens = n;
    b.row = LLM__MAX(usual / 3, (p->both + variance * usual) / (p->rows2 + variance));
    b.seconds = LLM__MAX(b.row * n, p->seconds + b.row * (n - p->rows));
    return b;
}

LLM__PRIVATE int32_t llm__draft_length(float *chance, llm__bargain *b, int32_t most) {
    double all = (double)*chance;
    int32_t n = 0;
    for (; n < most && all * b->seconds >= LLM__MARGIN * b->row * b->tokens; n++, all *= (double)*chance) {
        b->tokens += all;
        b->seconds += b->row;
    }
    if (!n && most && *chance < LLM__CHANCE) *chance += (LLM__CHANCE - *chance) / 256;
    return n;
}

LLM__PRIVATE float llm__chance_after(float chance, int32_t n, int32_t kept) {
    for (int32_t i = 0; i < kept; i++) chance += (1 - chance) / 8;
    return kept < n ? chance - chance / 8 : chance;
}

LLM__PRIVATE int32_t llm__draft_lookup(const int32_t *ids, int32_t n, int32_t low, int32_t high, int32_t *draft, int32_t want) {
    int32_t best = low - 1, after = -1;
    for (int32_t at = n - 2; at >= 0 && best < high; at--) {
        int32_t length = 0;
        while (length < high && length <= at && ids[at - length] == ids[n - 1 - length]) length++;
        if (length > best) best = length, after = at + 1;
    }
    for (int32_t i = 0; after >= 0 && i < want; i++) draft[i] = after + i < n ? ids[after + i] : draft[after + i - n];
    return after >= 0 ? want : 0;
}
