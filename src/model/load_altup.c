#include "model/load_altup.h"
#include "api/backend.h"
#include "base/platform.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/take.h"
#include "model/net.h"

LLM__PRIVATE void llm__load_streams(llm__loader *L, llm__net_rank *rank) {
    const llm__arch *a = L->a;
    const llm__slice D = llm__all(a->hidden);
    for (int out = 0; out < 2; out++)
        for (int i = 0; i < a->n_streams - 1 && (out ? rank->last : rank->first); i++) {
            const int slot = out ? LLM__W_ALTUP_OUT : LLM__W_ALTUP_IN;
            llm__take(L, slot, llm__slice_of(a->n_streams - 1, i, 1), D, D, -1);
            llm__make(L, LLM_ROLE_LINEAR, slot, 0, out ? &rank->stream_out[i] : &rank->stream_in[i]);
        }
}

LLM__PRIVATE void llm__load_altup(llm__loader *L, llm__net_layer *layer) {
    const llm__arch *a = L->a;
    const int64_t n = a->n_streams;
    const llm__slice D = llm__all(a->hidden), rank = llm__all(a->laurel_rank);
    llm__load(L, LLM_ROLE_LINEAR, LLM__W_LAUREL_L, rank, D, -1, &layer->laurel[0]);
    llm__load(L, LLM_ROLE_LINEAR, LLM__W_LAUREL_R, D, rank, -1, &layer->laurel[1]);
    llm__load_vector(L, LLM__W_LAUREL_NORM, D, 1, -1, &layer->laurel_norm);
    llm__load(L, LLM_ROLE_LINEAR, LLM__W_ALTUP_ROUTER, llm__all(n), D, -1, &layer->altup_router);
    llm__load_vector(L, LLM__W_ALTUP_PREDICT, llm__all(n * n * n), 1, -1, &layer->predict);
    llm__load_vector(L, LLM__W_ALTUP_CORRECT, llm__all(n * n), 1, -1, &layer->correct);
    if (a->stream_scale) llm__load_vector(L, LLM__W_ALTUP_SCALE, D, 1, -1, &layer->stream_scale);
    const float *norm = llm__load_values(L, LLM__W_ALTUP_NORM, a->hidden, 1 / (float)a->hidden);
    if (norm) llm__load_numbers(L, "norm of what routes streams", norm, a->hidden, &layer->router_norm.w);
}

LLM__PRIVATE void llm__load_sparse(llm__loader *L, llm__net_layer *layer) {
    const llm__arch *a = L->a;
    const llm__slice D = llm__all(a->hidden);
    llm__load(L, LLM_ROLE_LINEAR, LLM__W_GATE, llm__all(a->layer[L->layer].ff), D, a->mlp_bias, &layer->gates);
    llm__load(L, LLM_ROLE_LINEAR, LLM__W_UP, layer->ff, D, a->mlp_bias, &layer->up);
    llm__load(L, LLM_ROLE_LINEAR, LLM__W_DOWN, D, layer->ff, a->mlp_bias, &layer->down);
}
