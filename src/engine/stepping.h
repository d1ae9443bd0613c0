/* stepping: opening an engine, stepping it, closing it.
 *
 * At most two steps are known at a time: one in flight, one being planned. They lie in a ring of two; the oldest is applied first, so
 * results come in order. A step that fails takes its requests with it and nothing else. */
#pragma once
#include "api/request.h"
#include "base/platform.h"
#include "engine/scheduler.h"

/* 1 if every sequence has ended. Any thread. */
LLM__PRIVATE int llm__request_ended(llm_request *r);
