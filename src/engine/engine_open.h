/* engine_open: opening an engine. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "api/engine.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/fields.h"
#include "model/loader.h"
#include "engine/scheduler.h"

/* Which table computes: the one given, or the device's by name. "auto" without a cuda_library is the CPU, for no other
 * library is opened without being told. A table of another version is refused here, before any call. */
LLM__PRIVATE llm_result llm__engine_backend(const llm_engine_config *cfg, const llm_backend **out);

enum { LLM__ENGINE_FIELDS = 27 };

/* The numbers of an llm_engine_config. */
extern LLM__PRIVATE const llm__field llm__engine_fields[LLM__ENGINE_FIELDS];

/* Fills in c. Zero means default; contradictions are refused with a sentence that has both numbers, before any memory is taken. */
LLM__PRIVATE llm_result llm__engine_resolve(const llm_model *model, llm_engine_config *c);

/* Where the device may be chosen ("auto"), a CUDA library that finds none is not used. Found out by opening the smallest context. */
LLM__PRIVATE llm_result llm__engine_device(llm_engine *e, const llm_engine_config *c);

/* What a configuration takes on a CPU that is resolved, and the pages that it would have: an engine is assembled as far as no weight is
 * read. An error is what opening it would fail with; *out is filled in where it is for want of memory. */
LLM__PRIVATE llm_result llm__engine_plan(const llm_model *model, const llm_engine_config *c, llm_estimate *out, int32_t *n_pages);

/* Backend, weights, pages, then the scheduler over them: each needs what the one before has found out. How many pages
 * there are is known only when the weights have shown the layers' shapes. On error the engine is to be destroyed. */
LLM__PRIVATE llm_result llm__engine_assemble(llm_engine *e, const llm_model *model, const llm_engine_config *c);
