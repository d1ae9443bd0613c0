/* pooling: from the rows of a prompt to one vector.
 *
 * A request with `pooling` asks for the hidden states of some rows of its prompt, as one that is scored asks for logits: of the first, of
 * the last, or of all (prompt.score_from, score_end). Each is added to a sum when its step has been computed, and the last one makes the
 * mean; then come the layers that the model's files have behind it (>>pooler). A prompt of five tokens in two chunks, all rows wanted:
 *
 *     step 1   rows 0 1 2   sum = h0 + h1 + h2
 *     step 2   rows 3 4     sum += h3 + h4;  x = sum / 5;  x = act(W x + b) ...
 *
 * The prompt of an encoder is never cut: see llm__plan_rows. */
#pragma once
#include "api/config.h"
#include "api/engine.h"
#include "api/request.h"
#include "base/platform.h"
#include "engine/scheduler.h"

/* How the prompt becomes a vector, and the kinds of its tokens. */
LLM__PRIVATE llm_result llm__pooling_submit(llm_request *r, const llm_request_config *cfg, size_t n);

/* Room for the vector of a prompt of n tokens, and which of its rows are wanted. */
LLM__PRIVATE llm_result llm__pooling_room(llm_request *r, size_t n);

/* What a row is given for the kind of its token. */
LLM__PRIVATE void llm__pooling_type(llm_engine *e, const llm__seq *s, int32_t at, int32_t row);

/* Adds the hidden state of a row of the prompt, in order of position: the sum is the same however the prompt was cut. The last row
 * makes the embedding, and what stands behind the model turns it into what was asked for. 0: it is not finite. */
LLM__PRIVATE int llm__pooling_row(llm_engine *e, llm_request *r, const llm__job *job);
