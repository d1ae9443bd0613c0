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
 * Two processes, a rank each (-tp 2), a token of an answer that decodes:
 *
 *     process 0                                                   process 1
 *     plans: 1 row, sequence 0, position 41, page 7 3 12
 *     its device's begin_step has checked it, and goes on
 *     frame STEP, some 300 bytes                              ->  begin_step of its device, with the same numbers
 *     forward: operations of rank 0 are recorded,                 forward: those of rank 1 are recorded,
 *     those of rank 1 go nowhere                                  those of rank 0 go nowhere
 *     end_step: launched; sums over ranks by NCCL           <->   end_step: launched
 *     plans the next step, in which this token is drawn           waits for a frame
 *     wait of its device: the token is there
 *     frame WAIT                                              ->  wait of its device
 *     all right, no logits wanted                             <-  frame REPLY, empty
 *
 * The same lines write a step to bytes and read it from them (llm__wire_step), so that they cannot disagree about its form. What is not
 * sent is never needed by a device: texts, grammars (their masks are), stop strings, who asked.
 *
 * Who has the logits, with 2 stages of 2 ranks in 2 processes: ranks 2 and 3, both in process 1. It answers WAIT with its part of the
 * rows, if the host wants to read them: to choose by rules that a device does not know, or to report log-probabilities. Else a step costs
 * the network the STEP frame and an empty answer.
 *
 * What goes wrong ends all processes, for a sum of three ranks of four is worth nothing:
 *
 *     a process ends or is killed       its connection ends: process 0 finds that while it waits (llm__link_lost, asked by the device's
 *                                       waits), breaks the step off, fails its requests, and closes the other connections
 *     process 0 ends                    the same, seen by all others
 *     a machine loses its power         TCP's probes are not answered for six seconds: the connection ends
 *     a device fails                    its process says why, which is the sentence that clients get
 *     a process stands still            nobody but the step's own time limit (step_timeout) notices
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
