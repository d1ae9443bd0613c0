/* forward: the forward pass.
 *
 * Read >>reference first: it is the same for one family, written plainly. This is the path of every family; what adapters, EAGLE heads,
 * ranks and pipelines add to it stands apart, in >>forward_extras.
 *
 * Every call below enqueues one operation of the backend's table on one rank; nothing is computed here. What the fields of an operation
 * mean is said in >>api-backend; fields that are not named are 0 or NULL. Shapes are this rank's: T rows of tokens, D hidden size. */
#pragma once
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "model/net.h"

/* Hands one step over to all ranks. Operations are only enqueued: ranks that are devices run side by side, and meet in the
 * sums. The first operation that fails is told by wait. */
LLM__PRIVATE llm_result llm__net_begin(llm__net *net, const llm_step *step);

/* The same; the logits of its out rows can be read afterwards. */
LLM__PRIVATE llm_result llm__net_step(llm__net *net, const llm_step *step);
