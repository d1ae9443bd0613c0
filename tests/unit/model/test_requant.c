/* Quantising while loading: names, which matrices, and that rows are the same however they are asked for: whole, in pieces, from parts, across. */
#include "../test.h"
#include "api/backend.h"
#include "cpu/dtypes.h"
#include "cpu/quantise.h"
#include "model/loader.h"
#include "model/requant.h"

enum { REQ_ROWS = 5, REQ_COLS = 512 };

static float req_x[REQ_ROWS * REQ_COLS], req_across[REQ_ROWS * REQ_COLS], req_part[2][REQ_ROWS * REQ_COLS / 2];

/* The segment of a matrix that is quantised while it is loaded as `form`; 0: it stays as it is. */
static int req_segment(llm__loader *L, int form, int slot, const llm__tensor *t, int across, llm_segment *s) {
    llm_model *m = (llm_model *)calloc(1, sizeof *m);
    memset(s, 0, sizeof *s);
    m->requant = form;
    m->path = (char *)(uintptr_t) "file";
    L->m = m;
    L->backend = llm_backend_cpu();
    s->data = t->parts ? (const void *)t->parts : t->data;
    s->type = LLM_TYPE_F32;
    s->transposed = across;
    s->stored_cols = across ? REQ_ROWS : REQ_COLS;
    llm__requant(L, slot, t, REQ_ROWS, REQ_COLS, s);
    free(m);
    return s->read != NULL;
}

/* All rows at once; 64 columns of every second row; from columns that stand across; from halves. All must be the same blocks. */
static void req_form(const char *name, int32_t type) {
    static uint8_t whole[REQ_ROWS * REQ_COLS * 4], some[REQ_ROWS * REQ_COLS * 4];
    const int form = llm__requant_named(name), block = LLM__MAX(llm__type_block(type), 32);
    const uint8_t *halves[2] = {(const uint8_t *)req_part[0], (const uint8_t *)req_part[1]};
    const llm__tensor_parts parts = {halves, REQ_ROWS, REQ_COLS, 2, LLM_TYPE_F32, 1};
    const int64_t bytes = llm__row_bytes(type, REQ_COLS);
    llm__arch a = LLM__ZERO;
    llm__loader L = LLM__ZERO;
    llm__tensor t = LLM__ZERO;
    llm_segment s;
    L.a = &a;
    t.name = llm__lit("w"), t.type = LLM_TYPE_F32, t.n_dims = 2, t.shape[0] = REQ_ROWS, t.shape[1] = REQ_COLS;
    t.data = (const uint8_t *)req_x;
    if (!CHECK(form && req_segment(&L, form, LLM__W_Q, &t, 0, &s) && s.type == type && s.stored_cols == REQ_COLS)) return;
    s.read(s.data, 0, 1, REQ_ROWS, 0, REQ_COLS, whole);
    if (strcmp(name, "weight_only_int8") && strcmp(name, "fp8") && strcmp(name, "nf4"))
        CHECK(llm__quantise(type, req_x, NULL, REQ_ROWS, REQ_COLS, some) && !memcmp(whole, some, (size_t)(bytes * REQ_ROWS)));
    for (int64_t c = 0; c < REQ_COLS; c += block) {
        s.read(s.data, 1, 2, 2, c, block, some);
        for (int r = 0; r < 2; r++)
            CHECK(!memcmp(some + r * llm__row_bytes(type, block), whole + (1 + 2 * r) * bytes + llm__row_bytes(type, c),
                          (size_t)llm__row_bytes(type, block)));
    }
    t.data = (const uint8_t *)req_across;
    CHECK(req_segment(&L, form, LLM__W_DOWN, &t, 1, &s) && !s.transposed);
    s.read(s.data, 0, 1, REQ_ROWS, 0, REQ_COLS, some);
    CHECK(!memcmp(some, whole, (size_t)(bytes * REQ_ROWS)));
    t.data = NULL, t.parts = &parts;
    CHECK(req_segment(&L, form, LLM__W_E_UP, &t, 0, &s));
    s.read(s.data, 0, 1, REQ_ROWS, 0, REQ_COLS, some);
    CHECK(!memcmp(some, whole, (size_t)(bytes * REQ_ROWS)));
    t.data = (const uint8_t *)req_x, t.parts = NULL;
    double lost = 0, all = 0;
    float back[REQ_COLS];
    for (int r = 0; r < REQ_ROWS; r++) {
        llm__dequant_columns(type, whole + r * bytes, 0, REQ_COLS, back);
        for (int i = 0; i < REQ_COLS && s.scales; i++) back[i] *= s.scales[r];
        for (int i = 0; i < REQ_COLS; i++)
            lost += pow((double)back[i] - (double)req_x[r * REQ_COLS + i], 2), all += pow((double)req_x[r * REQ_COLS + i], 2);
    }
    if (!CHECK(lost < all * (type == LLM_TYPE_Q2_K ? 0.1 : type == LLM_TYPE_Q3_K ? 0.03 : type == LLM_TYPE_MXFP4 ? 0.03 : 0.02)))
        printf("%s: %g\n", name, lost / all);
    CHECK(!req_segment(&L, form, LLM__W_ROUTER, &t, 0, &s) && !req_segment(&L, 0, LLM__W_Q, &t, 0, &s));
    L.layer = -1;
    CHECK(!req_segment(&L, form, LLM__W_EMBED, &t, 0, &s));
    L.heading = 1;
    CHECK(req_segment(&L, form, LLM__W_EMBED, &t, 0, &s) == (form > 4) &&
          (form <= 4 || s.type == (type == LLM_TYPE_Q8_0 ? LLM_TYPE_Q8_0 : LLM_TYPE_Q6_K)));
    CHECK(!strcmp(llm__requant_name(form), name) && !L.r);
    llm__arena_free(&L.keep);
}

TEST_GROUP(requant) {
    static const struct {
        const char *name;
        int32_t type;
    } rows[] = {{"weight_only_int8", LLM_TYPE_Q8_0},
                {"fp8", LLM_TYPE_F8_E4M3},
                {"nf4", LLM_TYPE_NF4},
                {"mxfp4", LLM_TYPE_MXFP4},
                {"q8_0", LLM_TYPE_Q8_0},
                {"q6_k", LLM_TYPE_Q6_K},
                {"q5_k", LLM_TYPE_Q5_K},
                {"q5_0", LLM_TYPE_Q5_0},
                {"q4_k", LLM_TYPE_Q4_K},
                {"q4_1", LLM_TYPE_Q4_1},
                {"q4_0", LLM_TYPE_Q4_0},
                {"q3_k", LLM_TYPE_Q3_K},
                {"q2_k", LLM_TYPE_Q2_K}};
    uint64_t seed = 7;
    for (int i = 0; i < REQ_ROWS * REQ_COLS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        req_x[i] = (float)(int32_t)(seed >> 32) / 4294967296.0f;
        req_across[i % REQ_COLS * REQ_ROWS + i / REQ_COLS] = req_x[i];
        req_part[i % REQ_COLS / (REQ_COLS / 2)][i / REQ_COLS * (REQ_COLS / 2) + i % (REQ_COLS / 2)] = req_x[i];
    }
    for (int i = 0; i < LLM__COUNT(rows); i++) req_form(rows[i].name, rows[i].type);
    CHECK(!llm__requant_named("awq") && llm__requant_named("Q4-K") == llm__requant_named("q4_k") && llm__requant_named("wint8") == 1 &&
          llm__requant_named("bitsandbytes") == llm__requant_named("nf4"));
}
