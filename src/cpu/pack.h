/* pack: packing weights. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/linear.h"

enum { LLM__CHUNK = 256 }; /* columns of floats packed, or summed, in one go */

/* Gives back the file's pages of a weight, but of small segments and those that are stored across. Who has yet to read some gets them
 * again. */
LLM__PRIVATE void llm__weight_rest(const llm_weight *w);

/* Fills this thread's share of the weight. Every thread calls it. A large one gives back what it has read of its file every 4 MB. */
LLM__PRIVATE void llm__weight_pack(llm_weight *w, int thread, int n_threads);
