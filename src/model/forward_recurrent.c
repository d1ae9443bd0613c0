#include "model/forward_recurrent.h"
#include "api/backend.h"
#include "base/platform.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/net.h"
#include "model/forward_extras.h"

/* What the states give for each row, then its gate. */
static void llm__pass_states(const llm__pass *p, int i, const llm__net_layer *layer, llm_buffer *dst) {
    const llm__arch_state *a = &p->a->state;
    const llm__net_state *s = &p->rank->state;
    const int kda = p->a->layer[i].mixer == LLM__MIX_KDA, delta = kda || p->a->layer[i].mixer == LLM__MIX_DELTA;
    const int32_t n = (int32_t)s->heads.n * a->dv;
    const llm_recur_op recur = {.dst = dst,
                                .src = p->rank->mix,
                                .q_col = s->q,
                                .k_col = s->k,
                                .v_col = s->v,
                                .decay_col = s->decay,
                                .write_col = s->write,
                                .n_heads = (int32_t)s->heads.n,
                                .n_groups = (int32_t)s->groups.n,
                                .dk = a->dk,
                                .dv = a->dv,
                                .delta = delta,
                                .unit = delta,
                                .turns = s->turns,
                                .step_keys = kda,
                                .decay_keys = p->a->layer[i].mixer == LLM__MIX_S6,
                                .decay = layer->decay,
                                .decay_bias = layer->step_bias,
                                .skip = layer->skip,
                                .step_min = a->step_min,
                                .step_max = a->step_max,
                                .layer = p->first_layer + layer->kv,
                                .state = (a->taps - 1) * s->conv};
    const llm_gate_op gate = {.dst = dst,
                              .gate = p->rank->mix,
                              .n = n,
                              .each = 1,
                              .col = s->z,
                              .act = kda ? LLM_GATE_SIGMOID : LLM_GATE_SILU,
                              .part = a->no_norm ? 0
                                      : delta    ? a->dv
                                                 : n / (int32_t)s->groups.n,
                              .gate_first = !delta && !a->norm_first,
                              .weight = layer->gate_norm.w,
                              .eps = p->a->eps};
    p->be->recur(p->ctx, p->rank_index, &recur);
    p->be->gate(p->ctx, p->rank_index, &gate);
}

/* Mamba 1: dt, B and C of what the convolution has given, their norms if it has any, and the steps that dt makes. */
static void llm__pass_s6(const llm__pass *p, const llm__net_layer *layer) {
    const llm__arch_state *a = &p->a->state;
    const llm__net_state *s = &p->rank->state;
    llm_buffer *low = p->rank->state_low[0], *mix = p->rank->mix;
    const struct {
        llm_buffer *dst;
        const llm__net_pair *norm;
        int32_t from, to, n;
    } norms[] = {{low, &layer->dt_norm, 0, 0, a->rank},
                 {mix, &layer->b_norm, a->rank, s->k, a->dk},
                 {mix, &layer->c_norm, a->rank + a->dk, s->q, a->dk}};
    llm__extra_linear(p, LLM_ROWS_TOKENS, &layer->low[0], mix, low, 0);
    if (p->n_group > 1) p->be->all_reduce(p->ctx, p->rank_index, LLM_ROWS_TOKENS, low, s->low[0]);
    for (int i = 0; i < LLM__COUNT(norms); i++) {
        const llm_norm_op op = {.rows = LLM_ROWS_TOKENS,
                                .dst = norms[i].dst,
                                .src = low,
                                .src_col = norms[i].from,
                                .dst_col = norms[i].to,
                                .n = norms[i].n,
                                .kind = a->low_norm, /* without one B and C are copied */
                                .weight = norms[i].norm->w,
                                .eps = a->low_eps};
        if (i || a->low_norm) p->be->norm(p->ctx, p->rank_index, &op);
    }
    llm__extra_linear(p, LLM_ROWS_TOKENS, &layer->wide[0], low, mix, s->decay);
}

LLM__PRIVATE void llm__pass_recurrent(const llm__pass *p, int i, const llm__net_layer *layer, const llm_buffer *src, llm_buffer *dst) {
    const llm__net_state *s = &p->rank->state;
    const int kind = p->a->layer[i].mixer, alone = kind == LLM__MIX_CONV;
    const llm_conv_op conv = {.buf = p->rank->mix,
                              .dst = alone ? dst : NULL,
                              .col = alone ? 2 * s->conv : 0,
                              .n = s->conv,
                              .taps = p->a->state.taps,
                              .before_col = alone ? 0 : -1,
                              .after_col = alone ? s->conv : -1,
                              .weight = layer->conv.w,
                              .bias = layer->conv_bias.w,
                              .silu = !alone,
                              .layer = p->first_layer + layer->kv};
    llm__extra_linear(p, LLM_ROWS_TOKENS, &layer->mix, src, p->rank->mix, 0);
    for (int k = 0; k < 2 && kind == LLM__MIX_KDA; k++) {
        llm__extra_linear(p, LLM_ROWS_TOKENS, &layer->low[k], src, p->rank->state_low[k], 0);
        llm__extra_linear(p, LLM_ROWS_TOKENS, &layer->wide[k], p->rank->state_low[k], p->rank->mix, k ? s->z : s->decay);
    }
    p->be->conv(p->ctx, p->rank_index, &conv);
    if (kind == LLM__MIX_S6) llm__pass_s6(p, layer);
    if (!alone) llm__pass_states(p, i, layer, dst);
}
