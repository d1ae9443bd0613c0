/* Floats made quantised blocks: what comes back is near them, nearer than plain rounding brings it, the same on every instruction set. */
#include "../test.h"
#include "cpu/dtypes.h"
#include "cpu/isa.h"
#include "cpu/quantise.h"

enum { QUA_COLS = 768, QUA_ROWS = 7 };

/* Numbers much like those of weights: sums of six even ones, with a large one here and there. */
static void qua_fill(float *x, int n, uint64_t seed) {
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < 6; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(int32_t)(seed >> 32) / 2147483648.0f;
        }
        x[i] = 0.02f * sum * (i % 97 == 3 ? 4.0f : 1.0f);
    }
}

/* Weighted squares of what is lost, of the squares. */
static double qua_loss(int32_t type, const uint8_t *row, const float *x, const float *importance) {
    static float back[QUA_COLS];
    double lost = 0, all = 0;
    for (int r = 0; r < QUA_ROWS; r++, row += llm__row_bytes(type, QUA_COLS), x += QUA_COLS) {
        llm__dequant_columns(type, row, 0, QUA_COLS, back);
        for (int i = 0; i < QUA_COLS; i++) {
            const double g = importance ? importance[i] : 1, d = (double)back[i] - (double)x[i];
            lost += g * d * d;
            all += g * (double)x[i] * (double)x[i];
        }
    }
    return lost / all;
}

/* Plain rounding with the same number of bits: a scale in f32 for each `block`, from the largest value, or from the least to the largest. */
static double qua_plain(int block, int levels, int affine, const float *x) {
    double lost = 0, all = 0;
    for (int at = 0; at < QUA_ROWS * QUA_COLS; at += block) {
        double lo = 0, hi = 0;
        for (int i = 0; i < block; i++) lo = fmin(lo, x[at + i]), hi = fmax(hi, x[at + i]);
        const double size = fmax(-lo, hi), step = affine ? (hi - lo) / (levels - 1) : size / (levels / 2), from = affine ? lo : 0;
        for (int i = 0; i < block; i++) {
            const double q = fmax(fmin(rint((x[at + i] - from) / step), affine ? levels - 1 : levels / 2 - 1), affine ? 0 : -levels / 2);
            lost += (from + q * step - x[at + i]) * (from + q * step - x[at + i]);
            all += (double)x[at + i] * (double)x[at + i];
        }
    }
    return lost / all;
}

static void qua_types(void) {
    static const struct {
        int32_t type;
        int block, levels, affine;
        double worst; /* of plain rounding's loss */
    } rows[] = {{LLM_TYPE_Q4_0, 32, 16, 0, 0.95},  {LLM_TYPE_Q4_1, 32, 16, 1, 0.95}, {LLM_TYPE_Q5_0, 32, 32, 0, 0.98},
                {LLM_TYPE_Q5_1, 32, 32, 1, 0.98},  {LLM_TYPE_Q8_0, 32, 256, 0, 1.1}, {LLM_TYPE_Q2_K, 16, 4, 1, 0.9},
                {LLM_TYPE_Q3_K, 16, 8, 0, 0.95},   {LLM_TYPE_Q4_K, 32, 16, 1, 1},    {LLM_TYPE_Q5_K, 32, 32, 1, 1.05},
                {LLM_TYPE_Q6_K, 16, 64, 0, 1.05},  {LLM_TYPE_MXFP4, 32, 16, 0, 3},   {LLM_TYPE_IQ4_NL, 32, 16, 0, 0.9},
                {LLM_TYPE_IQ4_XS, 32, 16, 0, 0.92}};
    static float x[QUA_ROWS * QUA_COLS], importance[QUA_COLS];
    static uint8_t a[QUA_ROWS * QUA_COLS * 4], b[QUA_ROWS * QUA_COLS * 4];
    qua_fill(x, QUA_ROWS * QUA_COLS, 5);
    for (int i = 0; i < QUA_COLS; i++) importance[i] = i % 5 ? 0.01f : 10;
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        const int32_t type = rows[i].type;
        const size_t bytes = (size_t)(QUA_ROWS * llm__row_bytes(type, QUA_COLS));
        CHECK(llm__quantise(type, x, NULL, QUA_ROWS, QUA_COLS, a));
        const double loss = qua_loss(type, a, x, NULL), plain = qua_plain(rows[i].block, rows[i].levels, rows[i].affine, x);
        if (!CHECK(loss < plain * rows[i].worst)) printf("%s: %g, %g by plain rounding\n", llm__type_name(type), loss, plain);
        for (int isa = 0; isa <= LLM__ISA_AVX2; isa++) {
            if (!llm__isa_here((llm__isa)isa)) continue;
            memset(b, 0xEE, sizeof b);
            CHECK(llm__quantise_on((llm__isa)isa, type, x, NULL, QUA_ROWS, QUA_COLS, b) && !memcmp(a, b, bytes) && b[bytes] == 0xEE);
        }
        for (int r = 0; r < QUA_ROWS; r++) /* rows do not depend on each other */
            CHECK(llm__quantise(type, x + r * QUA_COLS, NULL, 1, QUA_COLS, b) &&
                  !memcmp(a + (size_t)r * bytes / QUA_ROWS, b, bytes / QUA_ROWS));
        const double without = qua_loss(type, a, x, importance);
        CHECK(llm__quantise(type, x, importance, QUA_ROWS, QUA_COLS, a));
        if (type != LLM_TYPE_Q8_0 && type != LLM_TYPE_MXFP4 && !CHECK(qua_loss(type, a, x, importance) < 0.97 * without))
            printf("%s: %g with importance, %g without\n", llm__type_name(type), qua_loss(type, a, x, importance), without);
    }
}

/* Values that the format has come back as they are; blocks of one value, of zeros, of large and of tiny ones; what is no number is told. */
static void qua_odd(void) {
    static const int32_t types[] = {LLM_TYPE_Q4_0, LLM_TYPE_Q4_1, LLM_TYPE_Q5_0, LLM_TYPE_Q5_1, LLM_TYPE_Q8_0, LLM_TYPE_Q2_K,
                                    LLM_TYPE_Q3_K, LLM_TYPE_Q4_K, LLM_TYPE_Q5_K, LLM_TYPE_Q6_K, LLM_TYPE_MXFP4};
    float x[256], back[256];
    uint8_t row[1024];
    for (int t = 0; t < LLM__COUNT(types); t++)
        for (int kind = 0; kind < 7; kind++) {
            for (int i = 0; i < 256; i++) {
                x[i] = kind == 0   ? 0
                       : kind == 1 ? 0.5f
                       : kind == 2 ? -0.5f
                       : kind == 3 ? (float)(i % 3 - 1)
                       : kind == 4 ? (i == 77)
                       : kind == 5 ? 1e-30f * (float)i
                                   : 3000.0f * (float)(i % 2);
            }
            if (!CHECK(llm__quantise(types[t], x, NULL, 1, 256, row))) continue;
            llm__dequant_columns(types[t], row, 0, 256, back);
            double worst = 0, most = 0;
            for (int i = 0; i < 256; i++) worst = fmax(worst, fabs((double)back[i] - (double)x[i])), most = fmax(most, fabs((double)x[i]));
            const double far = kind == 5                                                                             ? 1e-20
                               : types[t] == LLM_TYPE_MXFP4                                                          ? 0.27 * most
                               : types[t] == LLM_TYPE_Q2_K || types[t] == LLM_TYPE_Q3_K || types[t] == LLM_TYPE_Q4_0 ? 0.26 * most
                                                                                                                     : 0.04 * most;
            if (!CHECK(worst <= far)) printf("%s, kind %d: off by %g\n", llm__type_name(types[t]), kind, worst);
            x[200] = kind % 2 ? INFINITY : NAN;
            CHECK(!llm__quantise(types[t], x, NULL, 1, 256, row));
        }
    for (int i = 0; i < 256; i++) x[i] = (float)(i % 16 - 8) * 0.25f;
    CHECK(llm__quantise(LLM_TYPE_Q4_0, x, NULL, 1, 256, row));
    llm__dequant_columns(LLM_TYPE_Q4_0, row, 0, 256, back);
    CHECK(!memcmp(x, back, sizeof x));
    CHECK(llm__quantise(LLM_TYPE_F16, x, NULL, 2, 128, row));
    llm__dequant_columns(LLM_TYPE_F16, row, 0, 256, back);
    CHECK(!memcmp(x, back, sizeof x) && llm__quantise(LLM_TYPE_BF16, x, NULL, 1, 256, row));
    x[9] = 1e30f;
    CHECK(!llm__quantise(LLM_TYPE_F16, x, NULL, 1, 256, row) && llm__quantise(LLM_TYPE_F32, x, NULL, 1, 256, (uint8_t *)back));
}

TEST_GROUP(quantise) {
    qua_types();
    qua_odd();
}
