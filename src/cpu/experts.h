/* experts: mixtures of experts: rows sorted by expert, products of each.
 *
 * Each row goes through its k experts. The pairs (row, choice) are slots, sorted by expert, rows ascending; the tokens of an expert then
 * form tiles as in any other product. A row's results are added in the order of its choices, so they do not depend on who else is in the
 * batch. Many rows go in turns, as many at a time as the scratch memory holds. Three rows of two choices each:
 *
 *     row 0: experts 5, 2     row 1: 2, 7     row 2: 5, 2
 *     slot      0   1   2   3   4   5
 *     expert    2   2   2   5   5   7        begin of expert 2: 0, of 5: 3, of 7: 5
 *     row       0   1   2   0   2   1        slot_of row 0: 3, 0; row 1: 1, 5; row 2: 4, 2
 *
 * Llama 4 multiplies what an expert reads by its weight, not what it gives: y = down(act(gate w x) * up w x). Then the weights are taken in
 * where rows are gathered, and the sum at the end has none. Experts without a gate (Nemotron-H: down(relu(up x)^2)) have one matrix of ff
 * rows instead of one of 2 ff, whose products end in the activation.
 *
 * The passes: sort (one thread); gather the slots' rows; for gate and up, then for down: round, beside A x of adapters, then their B low,
 * then the product; add up by row. In a product the experts' grids are laid end to end and cut into parts of the same
 * cost, so threads share the work evenly however uneven the routing is; of many rows they take the parts in turn. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "cpu/linear.h"

/* Scratch memory that llm__run_experts wants for `rows` rows with k experts each; with less (at least that of one row) it takes turns. */
LLM__PRIVATE size_t llm__experts_scratch(int64_t rows, int64_t k, int64_t n_experts, int64_t hidden, int64_t ff);

/* Passes of an operation over n_rows rows. */
LLM__PRIVATE int llm__experts_passes(const llm_experts_op *op, int n_rows, size_t scratch_bytes);

/* After an operation over n_rows rows: what expert e was given, of `down` its second layer, row by row; returns how many rows. -1: they are
 * not all there any more, for the rows went in turns. */
LLM__PRIVATE int llm__experts_inputs(const llm_experts_op *op, int n_rows, void *scratch, size_t scratch_bytes, int e, int down,
                                     const float **x);

/* Choices of n_rows rows, *experts: how many experts they are. */
LLM__PRIVATE int llm__experts_chosen(const llm_experts_op *op, int n_rows, int *experts);

/* This thread's part of one pass: see above. Rows, choices and weights come in op->routes (rows, 2 k): ids, then weights, as floats. */
LLM__PRIVATE void llm__run_experts(const llm__exec *e, const llm_experts_op *op, int pass);
