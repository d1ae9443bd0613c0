/* trace: the CPU's table, one operation at a time, for who wants to watch.
 *
 * A table around another one. Every operation is handed on and computed at once, as a step of its own: buffers, pages and logits outlive a
 * step, so what it gives is the same to the bit. Then whoever watches is told what came out. Where nobody does, none of this is there: the
 * engine takes this table only when llm_engine_config.trace is set.
 *
 * With trace_inputs it tells of what every weight is multiplied with, and of nothing else: for calibration (>>calibrate). Inputs of experts
 * are told expert by expert, those of their second layer too, which no buffer outside of the operation has.
 *
 * The weights of attention are no buffer of the fast one; they are worked out again by >>plain_attention from the queries and keys of the
 * step, which must begin with the sequence's first token. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"

/* For one rank. llm_backend_config.trace is called in the thread that steps. */
LLM__PRIVATE const llm_backend *llm__trace_backend(void);
