/* forward_altup: the forward pass where the residual is several streams (Gemma 3n).
 *
 * A layer computes one of n streams s_j, the active one s_a; the others follow it (AltUp, see >>streams). The buffer `streams` has all of
 * them, x the one at work:
 *
 *   spread     s_0 = x;  s_j = size(in_j x)                                    size: at the root mean square of s_0
 *   layer      m = tanh(R norm(s_a) / D);  s_j += sum of c_ji s_i, c = P m;  x = s_a
 *              h = norm(x);  x += h + norm(right left h)                       the detour (LAUREL)
 *              x = (x + norm(att(h))) / root 2;  x += norm(mlp(norm(x)))       in >>forward, as other families'
 *              m = tanh(R norm(x) / D);  s_j += (1 + k_j) (x - s_a), k = C m
 *              s_j += norm(proj(gelu(gate(s_a * scale)) * own)), j > 0         layers' own values for a token, as in Gemma 4
 *   join       x = mean of s_0 and size(out_j s_j);  h = norm(x)
 *
 * Every rank has all streams, as it has x. Routers read norm(...) / D, which the norm's weights take in. */
#pragma once
#include "base/platform.h"
#include "model/net.h"
#include "model/forward_extras.h"

/* Streams of the embedding x. */
LLM__PRIVATE void llm__altup_spread(const llm__pass *p);

/* A layer's beginning: streams are predicted, h is what attention reads, x all that joins its result. */
LLM__PRIVATE void llm__altup_predict(const llm__pass *p, const llm__net_layer *layer);

/* ff_act = act(sparse gates) * up of an MLP that reads h: see llm_gate_op. */
LLM__PRIVATE void llm__altup_sparse(const llm__pass *p, int i, const llm__net_layer *layer, const llm__net_lane *lane);

/* Its end: streams are corrected by x, whose routing norm is h; then h is the active one, scaled. */
LLM__PRIVATE void llm__altup_correct(const llm__pass *p, const llm__net_layer *layer, const llm__net_lane *lane);

/* Streams but the first get norm(sum over ranks of y). */
LLM__PRIVATE void llm__altup_add(const llm__pass *p, const llm__net_layer *layer, const llm__net_lane *lane);

/* x of the streams, and h, its last norm. */
LLM__PRIVATE void llm__altup_join(const llm__pass *p, const llm__net_lane *lane);
