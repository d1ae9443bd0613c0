/* The kernels of every instruction set of this CPU, function by function, against plain loops in double, over all short lengths; what the
 * machine can do at most; the first mistake of a step. */
#include "../test.h"
#include "cpu/backend.h"
#include "cpu/bodies.h"
#include "cpu/dtypes.h"
#include "cpu/isa.h"
#include "cpu/kernels_avx2.h"
#include "cpu/kernels.h"
#include "cpu/mac.h"
#include "cpu/unpack.h"

enum { KER_MOST = 83 };
static float ker_x[KER_MOST + 40], ker_y[KER_MOST + 40], ker_w[KER_MOST + 40], ker_b[KER_MOST + 40];

static void ker_fill(float *x, int n, uint64_t seed) {
    for (int i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(int32_t)(seed >> 32) / 1073741824.0f;
    }
}

/* Sums: near the plain ones, the same bits wherever the row stands, and of a longer row's beginning. */
static void ker_sums(const llm__kernels *k) {
    for (int n = 0; n <= KER_MOST; n++) {
        double sum = 0, dot = 0, size = 0, products = 0;
        float moved[2][KER_MOST + 8];
        for (int i = 0; i < n; i++)
            sum += (double)ker_x[i], size += fabs((double)ker_x[i]), dot += (double)ker_x[i] * (double)ker_y[i],
                products += fabs((double)ker_x[i] * (double)ker_y[i]);
        const float s = k->sum(ker_x, n), d = k->dot(ker_x, ker_y, n);
        CHECK(fabs((double)s - sum) <= 1e-6 * size && fabs((double)d - dot) <= 1e-6 * products);
        for (int shift = 1; shift < 8; shift += 3) {
            memcpy(moved[0] + shift, ker_x, (size_t)n * sizeof **moved), memcpy(moved[1] + shift, ker_y, (size_t)n * sizeof **moved);
            const float again = k->sum(moved[0] + shift, n), dot_again = k->dot(moved[0] + shift, moved[1] + shift, n);
            CHECK(!memcmp(&again, &s, 4) && !memcmp(&dot_again, &d, 4));
        }
    }
}

/* x += scale y and the end of a norm: n numbers, and none behind them; dst may be src. */
static void ker_rows(const llm__kernels *k) {
    for (int n = 0; n <= KER_MOST; n++) {
        float got[KER_MOST + 8], in_place[KER_MOST + 8];
        double worst = 0;
        memcpy(got, ker_x, sizeof got);
        k->add(got, ker_y, -0.75f, n);
        for (int i = 0; i < n; i++) worst = LLM__MAX(worst, fabs((double)got[i] - ((double)ker_x[i] - 0.75 * (double)ker_y[i])));
        CHECK(worst < 1e-6 && !memcmp(got + n, ker_x + n, 8 * sizeof *got));
        for (int with = 0; with < 4; with++) {
            const float *w = with & 1 ? ker_w : NULL, *b = with & 2 ? ker_b : NULL;
            worst = 0;
            memcpy(got, ker_y, sizeof got), memcpy(in_place, ker_x, sizeof in_place);
            k->affine(got, ker_x, 0.25f, 1.5f, w, b, n), k->affine(in_place, in_place, 0.25f, 1.5f, w, b, n);
            for (int i = 0; i < n; i++)
                worst = LLM__MAX(
                    worst, fabs((double)got[i] - (((double)ker_x[i] - 0.25) * 1.5 * (w ? (double)w[i] : 1) + (b ? (double)b[i] : 0))));
            CHECK(worst < 2e-6 && !memcmp(got + n, ker_y + n, 8 * sizeof *got) && !memcmp(got, in_place, (size_t)n * sizeof *got));
        }
    }
}

/* Pairs turn by their angles, neighbours or half a head apart. */
static void ker_rotate(const llm__kernels *k) {
    for (int half = 1; half <= 40; half++)
        for (int interleaved = 0; interleaved < 2; interleaved++) {
            float rope[80], got[84];
            double worst = 0;
            for (int i = 0; i < half; i++) rope[i] = (float)cos(i * 0.37), rope[half + i] = (float)sin(i * 0.37);
            memcpy(got, ker_x, sizeof got);
            k->rotate(got, rope, half, interleaved);
            for (int i = 0; i < half; i++) {
                const int a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : half + i;
                const double c = cos(i * 0.37), s = sin(i * 0.37), u = (double)ker_x[a], v = (double)ker_x[b];
                worst = LLM__MAX(worst, LLM__MAX(fabs((double)got[a] - (u * c - v * s)), fabs((double)got[b] - (v * c + u * s))));
            }
            CHECK(worst < 1e-6 && !memcmp(got + 2 * half, ker_x + 2 * half, 4 * sizeof *got));
        }
}

/* Narrow floats are the nearest there are, as the plain conversions say; of all 65,536 f16 and bf16 the way there and back. */
static void ker_narrow(const llm__kernels *k) {
    uint16_t half[KER_MOST + 8];
    static float wide[65536];
    static uint16_t all[65536], back[65536];
    int wrong = 0;
    for (int n = 0; n <= KER_MOST; n++) {
        memset(half, 0x77, sizeof half);
        k->to_half(half, ker_x, n);
        for (int i = 0; i < n; i++) wrong += half[i] != llm__f32_to_f16(ker_x[i]);
        wrong += half[n] != 0x7777;
        memset(half, 0x77, sizeof half);
        k->to_bf16(half, ker_x, n);
        for (int i = 0; i < n; i++) wrong += half[i] != llm__f32_to_bf16(ker_x[i]);
        wrong += half[n] != 0x7777;
    }
    for (int type = 0; type < 2; type++) {
        for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
        k->expand(type ? LLM_KV_BF16 : LLM_KV_F16, (const uint8_t *)all, 65536, wide, NULL);
        (type ? k->to_bf16 : k->to_half)(back, wide, 65536);
        for (int i = 0; i < 65536; i++) {
            const float x = type ? llm__bf16_to_f32(all[i]) : llm__f16_to_f32(all[i]);
            const uint16_t want = !type && x - x != 0 ? (uint16_t)(all[i] - 1) : all[i]; /* of f16 infinity becomes the largest number */
            wrong += x == x && (memcmp(&wide[i], &x, 4) || back[i] != want);
        }
    }
    CHECK(wrong == 0);
}

/* Bytes of the KV cache by their types: 256 values each. */
static void ker_expand(const llm__kernels *k) {
    uint8_t bytes[256];
    float low[256], high[256];
    int wrong = 0;
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    k->expand(LLM_KV_INT8, bytes, 256, low, NULL);
    for (int i = 0; i < 256; i++) wrong += low[i] != (float)i;
    k->expand(LLM_KV_INT4, bytes, 256, low, high);
    for (int i = 0; i < 256; i++) wrong += low[i] != (float)(i & 15) || high[i] != (float)(i >> 4);
    k->expand(LLM_KV_FP8_E4M3, bytes, 256, low, NULL), k->expand(LLM_KV_FP8_E5M2, bytes, 256, high, NULL);
    for (int i = 0; i < 256; i++) {
        const float a = llm__element(LLM_TYPE_F8_E4M3, bytes, i), b = llm__element(LLM_TYPE_F8_E5M2, bytes, i);
        wrong += (a == a && low[i] != a) || (b - b == 0 && high[i] != b);
    }
    CHECK(wrong == 0);
}

/* The largest of a row, and rows that no token can be drawn from; weights against exp. */
static void ker_logits(const llm__kernels *k) {
    for (int n = 1; n <= KER_MOST; n++) {
        float x[KER_MOST], w[KER_MOST + 4];
        double worst = 0, sum = 0;
        int bad;
        memcpy(x, ker_x, sizeof x);
        float top = -INFINITY;
        for (int i = 0; i < n; i++) top = LLM__MAX(top, x[i]);
        CHECK(k->top(x, n, &bad) == top && !bad);
        w[n] = 7;
        const double got = k->weigh(x, w, n, top, 2.0f);
        for (int i = 0; i < n; i++) {
            const double want = exp(2 * ((double)x[i] - (double)top));
            sum += want, worst = LLM__MAX(worst, fabs((double)w[i] / want - 1));
        }
        CHECK(worst < 1e-6 && fabs(got / sum - 1) < 1e-6 && w[n] == 7);
        x[n / 2] = -INFINITY;
        k->top(x, n, &bad);
        CHECK(bad == (n == 1)); /* a ban; but one token must be left */
        x[n / 2] = INFINITY, k->top(x, n, &bad), CHECK(bad);
        x[n / 2] = (float)NAN, k->top(x, n, &bad), CHECK(bad);
    }
}

/* llm__act.n as one number: AVX2 keeps it as two of 16 bits. */
static int ker_sum_of(const llm__kernels *k, int32_t n) {
#if LLM__X86
    if (k->quantise == llm__kernels_avx2.quantise) return (int16_t)n + (n >> 16);
#endif
    (void)k;
    return n;
}

/* 32 values to bytes: a scale, the nearest of 127 steps, and the sums that products need; the finer form adds what was lost. */
static void ker_quantise(const llm__kernels *k) {
    for (int per = 1; per <= 2; per++) {
        int8_t q[4 * 32 * 2] __attribute__((aligned(64)));
        float d[8], s[16];
        int32_t n[16];
        const llm__act act = {q, d, s, n};
        double worst = 0;
        int wrong = 0;
        k->quantise(&act, 0, ker_x, 17, 3, per); /* three rows, 17 floats apart */
        for (int row = 0; row < 3; row++) {
            double top = 0;
            for (int i = 0; i < 32; i++) top = LLM__MAX(top, fabs((double)ker_x[17 * row + i]));
            for (int i = 0; i < 32; i++) {
                double x = 0;
                for (int p = 0; p < per; p++) x += (double)d[row * per + p] * q[(row * per + p) * 32 + i];
                worst = LLM__MAX(worst, fabs(x - (double)ker_x[17 * row + i]) / top);
            }
            for (int p = 0; p < per; p++) {
                const int at = row * per + p;
                int sums[2] = {0, 0}; /* of all, of the latter half */
                for (int i = 0; i < 32; i++) sums[0] += q[at * 32 + i], sums[1] += i < 16 ? 0 : q[at * 32 + i];
                for (int h = 0; h < 2; h++) {
                    wrong += ker_sum_of(k, n[2 * at + h]) != -sums[h];
                    wrong += fabsf(s[2 * at + h] - d[at] * (float)sums[h]) > 1e-5f;
                }
            }
        }
        CHECK(!wrong && worst <= (per == 1 ? 0.5 / 127 : 0.5 / 127 / 127) * 1.01);
    }
}

/* Pieces of 5 and 6 bits: every weight is put together from the vectors where the drawing in packed.h says its bits are. */
static void ker_unpack(void) {
    for (int bits = 4; bits <= 6; bits++) {
        uint8_t stored[6 * 64], want[8 * 64], got[8 * 64] __attribute__((aligned(64)));
        memset(stored, 0, sizeof stored);
        for (int i = 0; i < 8 * 64; i++) want[i] = (uint8_t)((i * 37 + i / 64) & ((1 << bits) - 1));
        for (int i = 0; i < 8; i++)
            for (int at = 0; at < 64; at++) {
                if (i < bits) stored[64 * i + at] |= want[64 * i + at];
                for (int p = 0; i >= bits && p < 3; p++) {
                    const llm__piece piece = llm__piece_of(bits, i, p);
                    stored[64 * piece.from + at] |= (uint8_t)((want[64 * i + at] & piece.mask) << piece.shift);
                }
            }
        llm__unpack_bits(bits, stored, 0, got);
        CHECK(!memcmp(got, want, sizeof got));
    }
    static const uint8_t eight[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    CHECK(llm__word(eight) == 0x0807060504030201 && llm__kind_zero(LLM__KIND_Q4Z, LLM__SIGNED) == 8 &&
          llm__kind_zero(LLM__KIND_Q8, LLM__UNSIGNED) == 128);
    CHECK(llm__kind_flips(LLM__KIND_Q8, LLM__APART) && !llm__kind_flips(LLM__KIND_Q8, LLM__SIGNED) &&
          !llm__kind_flips(LLM__KIND_Q4M, LLM__UNSIGNED));
}

/* Names and speeds: an unknown set reaches nothing, the plain one is not measured, others are. */
static void ker_peaks(void) {
    llm__isa isa;
    CHECK(llm_isa_peak("z80") == 0 && llm_memory_peak(0) == 0);
    CHECK(llm__isa_find("z80", &isa) == LLM_ERR_ARG && strstr(llm_last_error(), "scalar"));
    for (int i = 0; i < LLM__ISA_COUNT; i++) {
        if (!llm__isa_here((llm__isa)i)) continue;
        CHECK(!llm__isa_find(llm__isa_name((llm__isa)i), &isa) && (int)isa == i);
        const double peak = llm_isa_peak(llm__isa_name((llm__isa)i));
        CHECK((peak > 0) == (llm__kernels_of((llm__isa)i)->peak != NULL) && peak < 1e6);
    }
}

/* The first mistake of a step is kept; tokens and out rows are counted apart. */
static void ker_step(void) {
    static llm_backend_ctx ctx;
    ctx.step.shape.n_rows = 7, ctx.step.shape.n_out = 2;
    CHECK(llm__op_rows(&ctx, LLM_ROWS_TOKENS) == 7 && llm__op_rows(&ctx, LLM_ROWS_OUT) == 2);
    llm__cpu_fail(&ctx, LLM_ERR_ARG, "first"), llm__cpu_fail(&ctx, LLM_ERR_LIMIT, "second");
    CHECK(ctx.failed == LLM_ERR_ARG && !strcmp(ctx.why, "first"));
}

TEST_GROUP(kernels) {
    ker_fill(ker_x, KER_MOST + 40, 1), ker_fill(ker_y, KER_MOST + 40, 2), ker_fill(ker_w, KER_MOST + 40, 3),
        ker_fill(ker_b, KER_MOST + 40, 4);
    for (int isa = 0; isa < LLM__ISA_COUNT; isa++) {
        if (!llm__isa_here((llm__isa)isa)) continue;
        const llm__kernels *k = llm__kernels_of((llm__isa)isa);
        ker_sums(k);
        ker_rows(k);
        ker_rotate(k);
        ker_narrow(k);
        ker_expand(k);
        ker_logits(k);
        ker_quantise(k);
    }
    ker_unpack();
    ker_peaks();
    ker_step();
}
