/* Recurrent layers: convolutions, linear attention and gates against plain references in double, and the promise that a row's bits do not
 * depend on chunks, pages, batch or threads, though each row changes what the next one reads. */
#include "../recur_net.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/map.h"
#include "cpu/backend.h"
#include "cpu/recur_bodies.h"
#include "cpu/recurrent.h"
#include "cpu/run.h"
#include "model/families.h"
#include "model/arch_recurrent.h"
#include "model/load_recurrent.h"
#include "model/forward_recurrent.h"

static void re_test_case(const re_case *c, const char *isa) {
    float *first = NULL;
    for (int plan = 0; plan < RE_PLANS; plan++)
        for (int threads = 1; threads <= 3; threads += 2) {
            re_net n;
            re_open(&n, llm_backend_cpu(), c, isa, threads);
            float *out = re_run(&n, plan, 5 + (uint32_t)plan);
            if (!first) {
                const double error = re_error(c, out);
                if (!CHECK(error < 2e-5)) printf("  %s, %s: error %g\n", c->name, isa, error);
                first = out;
            } else {
                if (!CHECK(re_same(c, first, out))) printf("  %s, %s: plan %d with %d threads differs\n", c->name, isa, plan, threads);
                LLM_FREE(out);
            }
            re_close(&n);
        }
    LLM_FREE(first);
}

/* Each instruction set's kernels against the plain ones, at widths that end within a vector. */
static void re_test_kernels(const char *name) {
    llm__isa isa;
    float a[2][100], g[100], state[2][40 * 100], past[2][LLM__CONV_PAST], w[LLM__CONV_PAST], bias[LLM__CONV] = {0}, y[2][300];
    CHECK(!llm__isa_find(name, &isa));
    const llm__kernels *k = llm__kernels_of(isa);
    for (int n = 1; n <= 100; n += 11) {
        for (int i = 0; i < n; i++) a[0][i] = a[1][i] = re_value(1, (uint32_t)i, 0), g[i] = 3 * re_value(2, (uint32_t)i, 0);
        k->gate(a[0], g, n, n % 2);
        llm__body_gate(a[1], g, n, n % 2);
        for (int i = 0; i < n; i++) CHECK(fabs((double)(a[0][i] - a[1][i])) < 1e-6);
        for (int i = 0; i < 40 * 100; i++) state[0][i] = state[1][i] = re_value(3, (uint32_t)i, 0);
        const float decay[2] = {0.9f, 0.5f}, write[2] = {0.3f, 0.7f};
        llm__recur r = {.q = state[0] + 7,
                        .k = g,
                        .decay = decay,
                        .write = write,
                        .v = w,
                        .stride = n,
                        .key_stride = 1,
                        .v_stride = 3,
                        .out_stride = 100,
                        .rows = 2,
                        .dk = 19,
                        .n = n,
                        .delta = 1,
                        .skip = 0.1f};
        for (int i = 0; i < LLM__CONV_PAST; i++) w[i] = past[0][i] = past[1][i] = re_value(4, (uint32_t)i, 0);
        for (int i = 0; i < 2; i++) {
            r.state = state[i], r.out = y[i], r.q = bias;
            if (i) llm__body_recur(&r);
            else k->recur(&r);
        }
        for (int i = 0; i < 19 * n; i++) CHECK(fabs((double)(state[0][i] - state[1][i])) < 1e-5);
        llm__conv c = {.x = state[1],
                       .stride = 100,
                       .y_stride = 100,
                       .n = LLM__MIN(n, (int)LLM__CONV),
                       .rows = 3,
                       .taps = 4,
                       .silu = 1,
                       .weight = w,
                       .bias = bias};
        for (int i = 0; i < 2; i++) {
            c.y = y[i], c.past = past[i];
            if (i) llm__body_conv(&c);
            else k->conv(&c);
        }
        for (int i = 0; i < 3 * 100; i++)
            if (i % 100 < c.n) CHECK(fabs((double)(y[0][i] - y[1][i])) < 1e-5);
        CHECK(!memcmp(past[0], past[1], sizeof past[0]));
    }
}

/* Ranks share heads and groups; what cannot be divided is refused, and other families are left as they are. */
static void re_test_shares(void) {
    static llm__arch a;
    llm__net_state s = LLM__ZERO;
    llm__facts f = LLM__ZERO;
    llm__tensors none = LLM__ZERO;
    memset(&a, 0, sizeof a);
    a.family = &llm__families[0];
    a.n_layers = 2;
    llm__arch_recurrent(&f, &a, &none);
    CHECK(!a.recurrent && !llm__state_share(&a, 0, 3, &s) && !s.cols && !llm__state_page(&a));
    a.recurrent = 1;
    a.layer[1].mixer = LLM__MIX_DELTA;
    a.layer[0].n_kv_heads = 1, a.layer[0].head_dim = a.layer[0].v_head_dim = 8;
    a.state.taps = 4, a.state.n_heads = 4, a.state.n_groups = 2, a.state.dk = 8, a.state.dv = 10;
    CHECK(!llm__state_share(&a, 1, 2, &s) && s.heads.first == 2 && s.heads.n == 2 && s.groups.first == 1 && s.conv == 2 * 8 + 20);
    CHECK(s.q == 0 && s.k == 8 && s.v == 16 && s.z == 36 && s.decay == 56 && s.write == 58 && s.cols == 60);
    CHECK(s.n_state == 3 * 36 + 2 * 8 * 10 && llm__state_page(&a) == 64);
    CHECK(llm__state_share(&a, 0, 4, &s) == LLM_ERR_UNSUPPORTED && strstr(llm_last_error(), "4 heads in 2 groups"));
    a.state.turns = 1; /* heads 2 and 3 have the keys of groups 0 and 1, head 3 alone those of 1 */
    CHECK(!llm__state_share(&a, 1, 2, &s) && s.heads.first == 2 && s.heads.n == 2 && s.groups.first == 0 && s.groups.n == 2);
    CHECK(!llm__state_share(&a, 3, 4, &s) && s.heads.first == 3 && s.groups.first == 1 && s.groups.n == 1 && s.conv == 2 * 8 + 10 &&
          s.turns == 1);
    a.state.n_heads = 6; /* heads 3, 4 and 5 those of 1, 0 and 1 */
    CHECK(!llm__state_share(&a, 1, 2, &s) && s.heads.first == 3 && s.groups.n == 2 && s.turns == 2);
    CHECK(llm__state_share(&a, 0, 4, &s) == LLM_ERR_UNSUPPORTED && strstr(llm_last_error(), "6 heads in 2 groups"));
    a.state.n_heads = 4, a.state.n_groups = 2, a.state.turns = 0;
    a.layer[1].mixer = LLM__MIX_SSM;
    CHECK(!llm__state_share(&a, 0, 1, &s) && s.v == 0 && s.k == 40 && s.q == 56 && s.z == 72 && s.decay == 112 && s.write == -1);
}

static struct {
    llm_linear_op linear;
    llm_conv_op conv;
    llm_recur_op recur;
    llm_gate_op gate;
} re_said;

static void re_linear(llm_backend_ctx *ctx, int rank, const llm_linear_op *op) { (void)ctx, (void)rank, re_said.linear = *op; }
static void re_conv_op(llm_backend_ctx *ctx, int rank, const llm_conv_op *op) { (void)ctx, (void)rank, re_said.conv = *op; }
static void re_recur_op(llm_backend_ctx *ctx, int rank, const llm_recur_op *op) { (void)ctx, (void)rank, re_said.recur = *op; }
static void re_gate_op(llm_backend_ctx *ctx, int rank, const llm_gate_op *op) { (void)ctx, (void)rank, re_said.gate = *op; }

/* What the pass asks of a backend: the norm behind a delta net is a head's, before its gate; Mamba's a group's, behind it. */
static void re_test_pass(void) {
    static llm__arch a;
    const llm_backend be = {.linear = re_linear, .conv = re_conv_op, .recur = re_recur_op, .gate = re_gate_op};
    llm__net_rank rank = LLM__ZERO;
    llm__net_layer layer = LLM__ZERO;
    llm__pass p = {.be = &be, .rank = &rank, .a = &a, .first_layer = 3};
    memset(&a, 0, sizeof a);
    layer.kv = 2;
    a.n_layers = a.recurrent = 1;
    a.state.taps = 4, a.state.n_heads = 4, a.state.n_groups = 2, a.state.dk = 8, a.state.dv = 10, a.state.turns = 1;
    for (int kind = LLM__MIX_CONV; kind <= LLM__MIX_SSM; kind++) {
        a.layer[0].mixer = (int8_t)kind;
        memset(&re_said, 0, sizeof re_said);
        CHECK(!llm__state_share(&a, 0, 1, &rank.state));
        llm__pass_recurrent(&p, 0, &layer, NULL, NULL);
        CHECK(re_said.conv.layer == 5 && re_said.conv.n == rank.state.conv && re_said.conv.silu == (kind != LLM__MIX_CONV));
        CHECK((re_said.conv.before_col == 0) == (kind == LLM__MIX_CONV));
        if (kind == LLM__MIX_CONV) continue;
        CHECK(re_said.recur.layer == 5 && re_said.recur.state == 3 * rank.state.conv && re_said.recur.delta == (kind == LLM__MIX_DELTA));
        CHECK(re_said.recur.turns && re_said.gate.n == 40 && re_said.gate.part == (kind == LLM__MIX_DELTA ? 10 : 20) &&
              re_said.gate.gate_first == (kind == LLM__MIX_SSM));
    }
}

TEST_GROUP(recurrent) {
    const char *list = llm_isa_list();
    for (char isa[32]; sscanf(list, "%31s", isa) == 1; list += strspn(list, " ") + strlen(isa)) {
        for (int i = 0; i < LLM__COUNT(re_cases); i++) re_test_case(&re_cases[i], isa);
        re_test_kernels(isa);
        if (!list[strcspn(list, " ")]) break;
    }
    re_refusals(llm_backend_cpu());
    re_test_shares();
    re_test_pass();
    CHECK(llm__op_row_of(LLM__OP_CONV)->share == llm__run_conv && llm__op_row_of(LLM__OP_RECUR)->share == llm__run_recur);
    CHECK(llm__op_row_of(LLM__OP_GATE)->row == llm__run_gate);
}
