/* Gemma 3n's streams: what is loaded for them, and what the forward pass asks of a backend. What comes out is in test_model.c. */
#include "../test.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/take.h"
#include "model/net.h"
#include "model/load_altup.h"
#include "model/forward_altup.h"

/* Weights of the tiny checkpoint with three streams of 64 values, a detour of rank 6 and an MLP of 96 whose gates are sparse. */
static void al_load(void) {
    llm_model *m = NULL;
    llm__loader L;
    llm__net_rank rank = LLM__ZERO;
    llm__net_layer layer = LLM__ZERO;
    if (!CHECK(!llm_model_open(TEST_CHECKPOINT("gemma3n_three"), NULL, &m))) return;
    llm__loader_begin(&L, m, 1, 1);
    L.layer = -1;
    llm__load_streams(&L, &rank);
    CHECK(!L.r && !L.n_params); /* of neither the first stage nor the last */
    rank.first = 1;
    llm__load_streams(&L, &rank);
    CHECK(!L.r && L.n_params == 2 * 64 * 64);
    rank.last = 1;
    llm__load_streams(&L, &rank);
    CHECK(!L.r && L.n_params == 6 * 64 * 64);
    L.layer = 0, L.n_params = 0;
    llm__load_altup(&L, &layer);
    CHECK(!L.r && L.n_params == 2 * 6 * 64 + 64 + 3 * 64 + 27 + 9 + 64); /* nothing is scaled */
    L.n_params = 0, layer.ff = llm__slice_of(96, 32, 64);
    llm__load_sparse(&L, &layer);
    CHECK(!L.r && L.n_params == 96 * 64 + 2 * 64 * 64); /* all gates, a part of the rest */
    L.layer = 3;
    llm__load_altup(&L, &layer);
    CHECK(L.r == LLM_ERR_FORMAT && strstr(llm_last_error(), "layers.3.laurel.linear_left.weight is missing"));
    llm__loader_end(&L);
    llm_model_close(m);
}

/* Quantised while they are loaded the small matrices stay as they are, as they do in GGUF files. */
static void al_quantised(void) {
    const llm_model_config cfg = {.quantization = "q8_0"};
    static const struct {
        int slot, rows, cols, type;
    } table[] = {{LLM__W_LAUREL_L, 6, 64, LLM_TYPE_BF16},
                 {LLM__W_ALTUP_ROUTER, 3, 64, LLM_TYPE_BF16},
                 {LLM__W_PL_GATE, 12, 64, LLM_TYPE_Q8_0},
                 {LLM__W_GATE, 96, 64, LLM_TYPE_Q8_0}};
    llm_model *m = NULL;
    llm__loader L;
    if (!CHECK(!llm_model_open(TEST_CHECKPOINT("gemma3n_three"), &cfg, &m))) return;
    llm__loader_begin(&L, m, 1, 1);
    for (int i = 0; i < LLM__COUNT(table); i++) {
        llm__take(&L, table[i].slot, llm__all(1), llm__all(table[i].rows), llm__all(table[i].cols), -1);
        CHECK(!L.r && L.list[0].segment[i].type == table[i].type);
    }
    llm__loader_end(&L);
    llm_model_close(m);
}

/* A backend that writes down what it is asked for, a letter each: Norm, Copy, Linear, Gate, All_reduce; streams Even, Predicted, corrected. */
static char al_asked[64];
static int al_col;

static void al_note(char what) {
    const size_t n = strlen(al_asked);
    if (n + 1 < sizeof al_asked) al_asked[n] = what, al_asked[n + 1] = 0;
}

static void al_norm(llm_backend_ctx *ctx, int rank, const llm_norm_op *op) {
    (void)ctx, (void)rank;
    al_col = op->add ? op->dst_col : op->src_col;
    al_note(op->kind == LLM_NORM_NONE ? 'C' : 'N');
}
static void al_linear(llm_backend_ctx *ctx, int rank, const llm_linear_op *op) { (void)ctx, (void)rank, (void)op, al_note('L'); }
static void al_gate(llm_backend_ctx *ctx, int rank, const llm_gate_op *op) {
    (void)ctx, (void)rank;
    CHECK(op->width == 40 && op->cut == 1.5f && op->col == 10 && op->n == 20 && op->act == LLM_GATE_GELU_TANH);
    al_note('G');
}
static void al_streams(llm_backend_ctx *ctx, int rank, const llm_streams_op *op) {
    (void)ctx, (void)rank;
    CHECK(op->n == 3 && op->active == 1 && op->cols == 8);
    al_note("EPc"[op->kind]);
}
static void al_reduce(llm_backend_ctx *ctx, int rank, llm_rows rows, llm_buffer *buf, int32_t n) {
    (void)ctx, (void)rank, (void)rows, (void)buf;
    CHECK(n == 8);
    al_note('A');
}

/* The letters of what was asked for since the last call. */
static void al_said(const char *what, const char *letters) {
    if (!CHECK(!strcmp(al_asked, letters))) printf("  %s: %s, %s expected\n", what, al_asked, letters);
    al_asked[0] = 0;
}

static void al_pass(void) {
    static llm__arch a;
    static llm__net_rank rank;
    static const llm_backend be = {.norm = al_norm, .linear = al_linear, .gate = al_gate, .streams = al_streams, .all_reduce = al_reduce};
    const llm__net_layer layer = {.ff = llm__slice_of(40, 10, 20)};
    llm__pass p = {.be = &be, .n_group = 1, .rank = &rank, .a = &a};
    a.n_streams = 3, a.active_stream = 1, a.hidden = 8, a.norm = LLM_NORM_RMS, a.act = LLM_ACT_GELU_TANH, a.layer[0].ff = 40,
    a.layer[0].cut = 1.5f;
    llm__altup_spread(&p);
    al_said("spread", "CLLE");
    llm__altup_predict(&p, &layer);
    al_said("predict", "NLPNLLNC");
    llm__altup_sparse(&p, 0, &layer, &rank.token);
    al_said("sparse", "LLG");
    llm__altup_correct(&p, &layer, &rank.token);
    al_said("correct", "Lc");
    llm__altup_add(&p, &layer, &rank.token);
    CHECK(al_col == 16); /* the last stream's columns */
    al_said("add", "NN");
    p.n_group = 2;
    llm__altup_add(&p, &layer, &rank.token);
    al_said("add, two ranks", "ANN");
    llm__altup_join(&p, &rank.token);
    al_said("join", "CLCLEN");
}

TEST_GROUP(altup) {
    al_pass();
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints")) return;
    al_load();
    al_quantised();
}
