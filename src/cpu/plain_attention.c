#include "cpu/plain_attention.h"
#include "base/platform.h"

/* The largest score is taken off all of them, which changes no weight, so that exp cannot overflow. */
LLM__PRIVATE void llm__plain_attention(const llm__plain_query *x, float *weight, float *out) {
    double most = x->sink ? (double)*x->sink : -INFINITY, sum = 0;
    memset(weight, 0, (size_t)x->to * sizeof *weight);
    for (int32_t j = x->from; j < x->to; j++) {
        double score = 0;
        for (int32_t i = 0; i < x->d; i++) score += (double)x->q[i] * (double)x->k[j * x->k_stride + i];
        score *= (double)x->scale;
        if (x->softcap > 0) score = (double)x->softcap * tanh(score / (double)x->softcap);
        weight[j] = (float)(score - (double)x->slope * (x->at - j));
        most = LLM__MAX(most, (double)weight[j]);
    }
    if (x->sink) sum = exp((double)*x->sink - most);
    for (int32_t j = x->from; j < x->to; j++) sum += (double)(weight[j] = (float)exp((double)weight[j] - most));
    for (int32_t j = x->from; j < x->to; j++) weight[j] = (float)((double)weight[j] / sum);
    for (int32_t i = 0; out && i < x->v_d; i++) {
        double all = 0;
        for (int32_t j = x->from; j < x->to; j++) all += (double)weight[j] * (double)x->v[j * x->v_stride + i];
        out[i] = (float)all;
    }
}
