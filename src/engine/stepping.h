/* stepping: opening an engine, stepping it, closing it.
 *
 * One step is planned while those before it, of a pipeline as many as it has stages but one, are in flight. They lie in a ring; the oldest
 * is applied first, so results come in order. A step that fails takes its requests with it and nothing else. */
#pragma once
#include "api/request.h"
#include "base/platform.h"
#include "engine/scheduler.h"

/* 1 if every sequence has ended. Any thread. */
LLM__PRIVATE int llm__request_ended(llm_request *r);
