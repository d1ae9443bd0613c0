/* forward_recurrent: the forward pass of layers that keep a state. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "model/net.h"
#include "model/forward_extras.h"

/* dst = what layer i, which is recurrent, makes of src:
 *   LFM2               B, C, x = W src;  dst = C conv(B x)
 *   gated delta net    q, k, v, z, a, b = W src;  q, k, v = silu(conv(q, k, v));  dst_h = norm(delta_h(q, k, v, a, b)) silu(z_h)
 *   Mamba 2            x, B, C, z, dt = W src;  x, B, C = silu(conv(x, B, C));  dst = norm(ssm(C, B, x, dt) silu(z)), a norm a group
 *   Kimi's delta net   q, k, v, b = W src;  z = W2 W1 src;  f = W4 W3 src, a decay for each key;  z goes through a sigmoid
 *   Mamba 1            x, z = W src;  x = silu(conv(x));  dt, B, C = W1 x, normed;  dst = s6(C, B, x, W2 dt) silu(z), a head a channel */
LLM__PRIVATE void llm__pass_recurrent(const llm__pass *p, int i, const llm__net_layer *layer, const llm_buffer *src, llm_buffer *dst);
