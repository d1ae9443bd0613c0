/* assemble: LLaVA's tiles put together: what was padded is cut off, what is too much is shrunk, and rows end in a newline. */
#pragma once
#include "api/media.h"
#include "base/platform.h"
#include "vision/fit.h"

/* From m->raw to m->values. newline: (raw_width). */
LLM__PRIVATE void llm__assemble(llm_media *m, const float *newline);
