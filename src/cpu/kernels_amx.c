/* clang-format off */
#include "cpu/kernels_amx.h"
#include "base/platform.h"
#include "cpu/intrinsics.h"
#include "cpu/dtypes.h"
#include "cpu/packed.h"
#include "cpu/kernels.h"
#include "cpu/lanes.h"
#include "cpu/unpack.h"
#include "cpu/kernels_avx512.h"

#if LLM__X86 && LLM__HAS_2021

#ifdef LLM__TEST_EMULATE_AVX512
#define LLM__AMX
#else
#define LLM__AMX __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-int8,amx-bf16")))
#endif
enum { LLM__AMX_ROWS = 32, LLM__AMX_LEAST = 12 }; /* tokens at a time; from how many on bytes are worth it */

/* What was stored before this is in memory after it. gcc's _tile_loadd does not say that it reads any, its _tile_loadconfig says 8 bytes
 * of 64, so stores for them alone may be moved behind them or left out (llama.cpp's are, by gcc 12); _tile_stored says what it does. */
LLM__FORCE void llm__amx_settle(void) { __asm__ volatile("" ::: "memory"); }

/* Tiles 0 and 1 are the results of the first panel of weights with up to 16 tokens and 16 more, 2 and 3 those of the second; 4 and 5 the
 * tokens, `bytes` of each, 6 and 7 the panels. n tokens, 1 to 32. tiles: what they are set up for, which takes 200 cycles. */
LLM__FORCE LLM__AMX void llm__amx_shape(int n, int bytes, int *tiles) {
    if (*tiles == (n << 8 | bytes)) return;
    *tiles = n << 8 | bytes;
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } s; /* as ldtilecfg reads it */
    memset(&s, 0, sizeof s);
    s.palette = 1;
    LLM__UNROLL
    for (int i = 0; i < 8; i++) {
        s.rows[i] = (uint8_t)(i >= 6 ? bytes / 4 : i % 2 ? LLM__MAX(n - LLM__ROWS, 0) : LLM__MIN(n, (int)LLM__ROWS));
        s.row_bytes[i] = (uint16_t)(!s.rows[i] ? 0 : i == 4 || i == 5 ? bytes : 64);
    }
    llm__amx_settle();
    _tile_loadconfig(&s);
}

LLM__AMX static void llm__amx_rest(int *tiles) {
    if (*tiles) _tile_release();
    *tiles = 0;
}

/* What is kept from block to block: the pair whose sums wait to be scaled. */
struct llm__amx {
    int32_t sum[2][2][LLM__OUT]; /* of it and of the next pair, in turn; of both row blocks */
    const llm__cooked *w;        /* NULL: there is none */
    size_t at;
    int turn;
};

/* The sums of a pair of blocks with the tile, to sum (row blocks, LLM__OUT). Tiles are worked on in order, and a product takes 52 cycles:
 * those with the second row block are stored when the next sums are made, where `late` says. */
LLM__FORCE LLM__AMX void llm__amx_multiply(const llm__cooked *w, const int8_t *q, int second, int32_t (*sum)[LLM__OUT], int32_t *late) {
    llm__amx_settle();
    _tile_loadd(4, q, 32);
    _tile_loadd(6, w[0].u, 64);
    _tile_zero(0);
    _tile_dpbssd(0, 4, 6);
    _tile_stored(2, late, 64);
    if (second) {
        _tile_loadd(5, q + 32 * LLM__ROWS, 32);
        _tile_zero(1);
        _tile_dpbssd(1, 5, 6);
        _tile_stored(3, late + LLM__OUT / 2, 64);
    }
    _tile_loadd(7, w[1].u, 64);
    _tile_zero(2);
    _tile_dpbssd(2, 4, 7);
    _tile_stored(0, sum[0], 64);
    if (!second) return;
    _tile_zero(3);
    _tile_dpbssd(3, 5, 7);
    _tile_stored(1, sum[0] + LLM__OUT / 2, 64);
}

/* Scales them and adds them to p->out: the latter half of llm__avx512_tile. */
LLM__AVX512_INLINE void llm__amx_scale(const llm__kind kind, const llm__cooked *w, const llm__product *p, size_t at,
                                       int32_t (*sum)[LLM__OUT]) {
    const int with_m = llm__kind_info(kind).min != LLM__SCALE_NONE;
    __m512 d[2], m[2], taken[2];
    float *to = p->out;
    LLM__UNROLL
    for (int r = 0; r < 2; r++) {
        d[r] = _mm512_load_ps(w[r].d[0]);
        m[r] = _mm512_load_ps(w[r].m[0]);
        taken[r] = llm__avx512_taken(d[r]);
    }
    for (int t = 0; t < p->n; t++, at++, to += LLM__ROWS) {
        llm__fetch(p->fetch, p->ahead, p->near, 2 * llm__kind_block(kind), t, p->n);
        const __m512 scale = _mm512_set1_ps(p->act.d[at]), s = _mm512_set1_ps(p->act.s[2 * at]);
        LLM__UNROLL
        for (int r = 0; r < 2; r++) {
            const __m512i all = _mm512_add_epi32(_mm512_load_si512(sum[r] + LLM__ROWS * t), _mm512_set1_epi32(LLM__MAGIC));
            __m512 acc = _mm512_loadu_ps(to + r * LLM__OUT);
            if (with_m) acc = _mm512_fmadd_ps(m[r], s, acc);
            const __m512 x = _mm512_fmadd_ps(d[r], _mm512_castsi512_ps(all), taken[r]);
            _mm512_storeu_ps(to + r * LLM__OUT, _mm512_fmadd_ps(x, scale, acc));
        }
    }
}

/* Multiplies this pair and scales the one before; the last one both. */
LLM__FORCE LLM__AMX void llm__amx_block(const llm__kind kind, const llm__cooked *w, const llm__product *p, size_t at) {
    struct llm__amx *a = p->amx;
    const int second = p->n > LLM__ROWS, last = at == p->at + (size_t)(p->n_blocks - 1) * (size_t)p->n;
    a->turn ^= 1;
    llm__amx_multiply(w, p->act.q + 32 * at, second, a->sum[a->turn], a->sum[a->turn ^ 1][1]);
    if (a->w) llm__amx_scale(kind, a->w, p, a->at, a->sum[a->turn ^ 1]);
    a->w = w;
    a->at = at;
    if (!last) return;
    _tile_stored(2, a->sum[a->turn][1], 64);
    if (second) _tile_stored(3, a->sum[a->turn][1] + LLM__OUT / 2, 64);
    llm__amx_scale(kind, w, p, at, a->sum[a->turn]);
}

LLM__FORCE LLM__AMX void llm__amx_walk(const llm__kind kind, const int8_t *table, const llm__product *p) {
    if (llm__kind_x2(kind)) return;
    llm__walk(kind, table, 2, LLM__LESS, llm__amx_block, p, llm__avx512_half, llm__avx512_bytes, llm__avx512_look_up);
}

/* Few tokens fill no tile, and halves of a block with scales of their own would be two products: there vectors are faster. */
LLM__AMX static void llm__amx_product(llm__kind kind, const llm__product *p) {
    struct llm__amx a __attribute__((aligned(64)));
    llm__product mine = *p;
    if (p->pair != 2 || p->n < LLM__AMX_LEAST || llm__kind_x2(kind)) {
        llm__avx512vnni_product(kind, p);
        return;
    }
    a.w = NULL;
    a.at = 0;
    a.turn = 0;
    mine.amx = &a;
    llm__amx_shape(p->n, 32, p->tiles);
    switch (kind) { /* many tokens share what it costs to ask for the others */
        LLM__COMMON_KINDS(llm__amx_walk, llm__kind_table(kind), &mine)
    default: llm__amx_walk(kind, llm__kind_table(kind), &mine);
    }
}

/* c of the rows [i, i + n), n <= 32, from k on up to `end`, `step` columns a tile. fresh: c starts with 0. */
LLM__FORCE LLM__AMX void llm__amx_rows(const llm__mac *m, int i, int n, int k, int end, int step, int fresh) {
    const int second = n > LLM__ROWS, two = m->step != 0;
    float *c = m->c + (int64_t)i * m->ldc, *below = c + (int64_t)LLM__ROWS * m->ldc;
    const size_t c_row = sizeof(float) * (size_t)m->ldc, a_row = 2 * (size_t)m->lda, b_row = 4 * (size_t)m->ldb;
    llm__amx_shape(n, 2 * step, m->tiles);
    llm__amx_settle();
    if (fresh) {
        _tile_zero(0);
        if (two) _tile_zero(2);
        if (second) _tile_zero(1);
        if (two && second) _tile_zero(3);
    } else {
        _tile_loadd(0, c, c_row);
        if (two) _tile_loadd(2, c + m->step, c_row);
        if (second) _tile_loadd(1, below, c_row);
        if (two && second) _tile_loadd(3, below + m->step, c_row);
    }
    for (; k < end; k += step) {
        const uint16_t *a = m->half + (int64_t)i * m->lda + k;
        for (int j = 0; j < step && !i; j += 2) {
            __builtin_prefetch(m->fetch[0] + (k + j) * m->pace);
            __builtin_prefetch(m->fetch[1] + (k + j) * m->pace);
        }
        _tile_loadd(4, a, a_row);
        _tile_loadd(6, (const uint16_t *)m->b[0] + (int64_t)k * m->ldb, b_row);
        _tile_dpbf16ps(0, 4, 6);
        if (second) {
            _tile_loadd(5, a + (int64_t)LLM__ROWS * m->lda, a_row);
            _tile_dpbf16ps(1, 5, 6);
        }
        if (!two) continue;
        _tile_loadd(7, (const uint16_t *)m->b[1] + (int64_t)k * m->ldb, b_row);
        _tile_dpbf16ps(2, 4, 7);
        if (second) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_row);
    if (two) _tile_stored(2, c + m->step, c_row);
    if (second) _tile_stored(1, below, c_row);
    if (two && second) _tile_stored(3, below + m->step, c_row);
}

/* Sums of the rows [i, i + n) that are multiplied before they are added up were made apart: (2, 32, 16). */
LLM__AMX static void llm__amx_factor(const llm__mac *m, int i, int n, const float *sum) {
    for (int r = 0; r < n; r++)
        for (int j = 0; j < (m->step ? 2 : 1); j++) {
            float *c = m->c + (int64_t)(i + r) * m->ldc + j * m->step;
            const __m512 x = _mm512_mul_ps(_mm512_loadu_ps(sum + j * LLM__OUT + r * LLM__ROWS), _mm512_loadu_ps(m->factor[j]));
            _mm512_storeu_ps(c, m->add ? _mm512_add_ps(_mm512_loadu_ps(c), x) : x);
        }
}

/* The columns in stretches of whole groups of 32, before and after them what is left of one. */
LLM__AMX static void llm__amx_mac(const llm__mac *m) {
    const int panels = m->step ? 2 : 1;
    if (!m->half) {
        llm__avx512_mac(m);
        return;
    }
    for (int i = 0; i < m->n && m->factor[0]; i += LLM__AMX_ROWS) { /* without `scale` */
        float sum[2 * LLM__OUT];
        llm__mac apart = *m;
        apart.half += (int64_t)i * m->lda, apart.n = LLM__MIN(m->n - i, (int)LLM__AMX_ROWS);
        apart.factor[0] = NULL, apart.add = 0, apart.c = sum, apart.ldc = LLM__ROWS, apart.step = m->step ? LLM__OUT : 0;
        llm__amx_mac(&apart);
        llm__amx_factor(m, i, apart.n, sum);
    }
    if (m->factor[0]) return;
    for (int i = 0; i < m->n && m->scale; i++)
        for (int j = 0; j < panels; j++) {
            float *c = m->c + (int64_t)i * m->ldc + j * m->step;
            _mm512_storeu_ps(c, _mm512_mul_ps(_mm512_loadu_ps(c), _mm512_set1_ps(m->scale[i])));
        }
    for (int i = 0; i < m->n; i += LLM__AMX_ROWS)
        for (int k = 0, step, end; k < m->k; k = end) {
            step = LLM__MIN(32 - (m->phase + k) % 32, m->k - k);
            end = k + (step < 32 ? step : (m->k - k) / 32 * 32);
            llm__amx_rows(m, i, LLM__MIN(m->n - i, (int)LLM__AMX_ROWS), k, end, step, !k && !m->add && !m->scale);
        }
}

LLM__PRIVATE const llm__kernels llm__kernels_amx = {
    .quantise = llm__avx512_quantise, .finish = llm__avx512_finish, .sum = llm__avx512_sum, .dot = llm__avx512_dot,
    .add = llm__avx512_add, .affine = llm__avx512_affine, .rotate = llm__avx512_rotate, .to_half = llm__avx512_to_half,
    .to_bf16 = llm__avx512_to_bf16, .expand = llm__avx512_expand, .bias = llm__avx512_bias, .soften = llm__avx512_soften,
    .conv = llm__avx512_conv, .recur = llm__avx512_recur, .gate = llm__avx512_gate,
    .top = llm__avx512_top, .weigh = llm__avx512_weigh, .mac = llm__amx_mac,
    .widen_f8 = llm__avx512_widen_f8, .product = llm__amx_product, .bf16 = 1,
    .rest = llm__amx_rest, .peak = llm__avx512vnni_peak,
};

#endif
