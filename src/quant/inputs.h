/* inputs: what the layers of a model read when it reads a text.
 *
 * One layer is a net of its own (llm__net_config.alone): it reads the residual stream of all samples from a file, and what it gives is the
 * stream that the next one reads. A layer is run twice: with the weights of the source, to record what its matrices are multiplied with
 * (>>trace), and once it is quantised with what was made of them, so that the next layer's inputs have the errors that they will have. So
 * two passes of the model are all it takes, whatever its depth, and memory holds the matrices of one layer.
 *
 * Samples are packed into steps of up to 1,024 rows, each a sequence of its own from position 0 on, so attention sees what it would see in
 * use. The pass computes in f32, on the threads that the caller gave. Of the last layer nobody needs what it gives: it is recorded only.
 *
 *     layer            0             1             2
 *     recorded from    tokens        states.1      states.0
 *     moved on to      states.1      states.0      ... */
#pragma once
#include "base/platform.h"
#include "quant/codes.h"
#include "quant/job.h"

/* Reads the samples of the job's files. Not an error if there are none and the method needs none. */
LLM__PRIVATE void llm__samples_read(llm__qjob *j);

/* Records the inputs of the job's layer, lets the method change and round its matrices (in the order of the plan), and moves the residual
 * stream on. */
LLM__PRIVATE void llm__calibrated_layer(llm__qjob *j, llm__rounded_list *rounded);
