/* nodes: a backend whose ranks are in several processes: process 0 plans and tells, the others follow.
 *
 * What every process computes follows from llm_step alone (>>backend), so that is all that is sent: each process records the operations of
 * its own ranks from it, by the same forward pass over the same model. The table here stands between engine and device. It has the ranks
 * of all processes; of those that are elsewhere weights and buffers are names only, and operations do nothing.
 *
 *     process 0         a step                           its end
 *     begin_step   ->   the device's, then a frame       wait   ->   the device's, then a frame to each, and its answer
 *     process r         frame: begin_step, forward, end_step         frame: wait; logits of its share of the vocabulary, if wanted
 *
 * Drawn tokens come to process 0 on the devices (llm_cuda.cu, its part on ranks). Copies of pages, pages that are read and written, and
 * rows of hidden states are a frame each. Frames come one after the other on a connection, in the order in which process 0 called. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "api/nodes.h"
#include "api/backend.h"
#include "base/platform.h"
#include "engine/link.h"

/* The table whose ranks are those of all processes, over the one that has this process's. *b is what it is to be opened with. */
LLM__PRIVATE llm_result llm__nodes_wrap(llm_nodes *l, const llm_backend *inner, const llm_model *model, llm_backend_config *b,
                                        const llm_backend **out);
