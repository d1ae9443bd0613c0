#include "model/forward_recurrent.h"
#include "api/backend.h"
#include "base/platform.h"
#include "model/arch.h"
#include "model/net.h"
#include "model/forward_extras.h"

/* What the states give for each row, then its gate. */
static void llm__pass_states(const llm__pass *p, int i, const llm__net_layer *layer, llm_buffer *dst) {
    const llm__arch_state *a = &p->a->state;
    const llm__net_state *s = &p->rank->state;
    const int delta = p->a->layer[i].mixer == LLM__MIX_DELTA;
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
                              .act = LLM_GATE_SILU,
                              .part = a->no_norm ? 0
                                      : delta    ? a->dv
                                                 : n / (int32_t)s->groups.n,
                              .gate_first = !delta && !a->norm_first,
                              .weight = layer->gate_norm.w,
                              .eps = p->a->eps};
    p->be->recur(p->ctx, p->rank_index, &recur);
    p->be->gate(p->ctx, p->rank_index, &gate);
}

LLM__PRIVATE void llm__pass_recurrent(const llm__pass *p, int i, const llm__net_layer *layer, const llm_buffer *src, llm_buffer *dst) {
    const llm__net_state *s = &p->rank->state;
    const int alone = p->a->layer[i].mixer == LLM__MIX_CONV;
    const llm_linear_op in = {.rows = LLM_ROWS_TOKENS,
                              .dst = p->rank->mix,
                              .src = src,
                              .weight = layer->mix.w,
                              .bias = layer->mix.b,
                              .plus = llm__extra_plus(p, LLM_ROWS_TOKENS, p->rank->plus, src, &layer->mix)};
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
    p->be->linear(p->ctx, p->rank_index, &in);
    p->be->conv(p->ctx, p->rank_index, &conv);
    if (!alone) llm__pass_states(p, i, layer, dst);
}
