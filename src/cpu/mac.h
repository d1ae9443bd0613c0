/* mac: products of floats, once for all instruction sets. */
#pragma once
/* clang-format off */

/* mac with the vectors of an instruction set, `lanes` floats each; its intrinsics begin with mm. Rows [i, i + n) at a time, n <= most:
 * their sums stay in registers, and what is loaded of b serves all of them; then 4, then 3 (queries of a group of heads), then one: every
 * other count would be one more instance of the loop. in: which inputs of llm__mac are read. load: lanes of b, of pairs of bf16 the former
 * or the latter (`apart`: one after the other); spread: an input in all lanes; step: s + x v. The order of the steps is such that few
 * registers hold inputs. */
#define LLM__MAC(rows, all, TARGET, mm, vector, lanes, most, in, apart, load, spread, step) \
    LLM__FORCE TARGET void rows(const llm__mac *m, int i, const int n, const llm__kind type) { \
        const int each = 32 / (lanes), two = type == LLM__KIND_BF16 ? 2 : 1; \
        vector s[most][32 / (lanes)], v[32 / (lanes)], x[most]; \
        float *const first = m->c + (int64_t)i * m->ldc, *c = first; \
        LLM__UNROLL \
        for (int r = 0; r < n; r++, c += m->ldc) \
            LLM__UNROLL \
            for (int j = 0; j < each; j++) \
                s[r][j] = m->scale ? mm##_mul_ps(mm##_loadu_ps(LLM__MAC_TO(j, lanes)), mm##_set1_ps(m->scale[i + r])) : mm##_set1_ps(0); \
        for (int k = 0; k < m->k; k += two) \
            LLM__UNROLL \
            for (int h = 0; h < ((apart) ? two : 1); h++) \
                LLM__UNROLL \
                for (int q = 0; q < n * each; q++) { \
                    const int r = (most) > each ? q / each : q % n, j = (most) > each ? q % each : q / n; \
                    if (r == 0 && j * (lanes) % 16 == 0) __builtin_prefetch(m->fetch[j * (lanes) / 16] + (k + h) * m->pace); \
                    if (r == 0 && !(apart)) __builtin_prefetch(m->fetch[j * (lanes) / 16] + (k + 1) * m->pace); /* cores forget some */ \
                    if (r == 0) v[j] = load(type, m->b[j * (lanes) / 16], (int64_t)k * m->ldb + j * (lanes) % 16 * two, h); \
                    if (j == 0) x[r] = spread(m->in + (int64_t)(i + r) * m->lda + k + h); \
                    s[r][j] = step(x[r], v[j], s[r][j]); \
                } \
        c = first; \
        LLM__UNROLL \
        for (int r = 0; r < n; r++, c += m->ldc) { \
            if (!m->add) break; \
            LLM__UNROLL \
            for (int j = 0; j < each; j++) s[r][j] = mm##_add_ps(mm##_loadu_ps(LLM__MAC_TO(j, lanes)), s[r][j]); \
        } \
        c = first; \
        LLM__UNROLL \
        for (int r = 0; r < n; r++, c += m->ldc) \
            LLM__UNROLL \
            for (int j = 0; j < each; j++) mm##_storeu_ps(LLM__MAC_TO(j, lanes), s[r][j]); \
    } \
    LLM__FORCE TARGET void all(const llm__mac *m, const llm__kind type) { \
        int i = 0; \
        for (; i + (most) <= m->n; i += (most)) rows(m, i, most, type); \
        for (; (most) > 4 && i + 4 <= m->n; i += 4) rows(m, i, 4, type); \
        for (; (most) > 3 && i + 3 <= m->n; i += 3) rows(m, i, 3, type); \
        for (; i < m->n; i++) rows(m, i, 1, type); \
    }

/* Where a row's vector j goes in c. */
#define LLM__MAC_TO(j, lanes) (c + (j) * (lanes) / 16 * m->step + (j) * (lanes) % 16)

/* One loop for each type. */
#define LLM__MAC_TYPES(all, m) \
    if ((m)->type == LLM__KIND_F32) all(m, LLM__KIND_F32); \
    else if ((m)->type == LLM__KIND_F16) all(m, LLM__KIND_F16); \
    else all(m, LLM__KIND_BF16);
