/* take: handing weights to a backend. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "model/arch.h"
#include "model/loader.h"

/* Adds rows of a stored matrix, cut to some columns, to the weight that is put together; without columns (size 0)
 * values of a vector. bias: required (1), used where there is one (0), never (-1). Of a product that is summed over
 * ranks one rank has it. */
LLM__PRIVATE void llm__take(llm__loader *L, int slot, llm__slice which, llm__slice rows, llm__slice cols, int bias);

/* What a slot's values are multiplied by: see llm__arch_fold. part: which of those of ssm, where it is the matrix that leads in. A bias is
 * added behind what multiplies the input. */
LLM__PRIVATE float llm__fold_by(const llm__arch *a, int slot, int part, int bias);

/* Makes what was taken into a weight and its bias. */
LLM__PRIVATE void llm__make(llm__loader *L, llm_role role, int slot, int32_t n_experts, llm__net_pair *out);

/* A weight out of one stored matrix: the usual case. */
LLM__PRIVATE void llm__load(llm__loader *L, llm_role role, int slot, llm__slice rows, llm__slice cols, int bias, llm__net_pair *out);

/* A vector: norm weights, sinks, corrections. Absent and not a must: *out stays NULL, which operations take for none. */
LLM__PRIVATE void llm__load_vector(llm__loader *L, int slot, llm__slice values, int must, int bias, llm__net_pair *out);

/* n numbers of a slot times `by`; a model of random weights has `by` alone. NULL: an error, or an adapter is loaded, which changes none. */
LLM__PRIVATE float *llm__load_values(llm__loader *L, int slot, int64_t n, float by);

/* by[c] = 1 / (length of column c + 1e-7) of a slot's matrix (rows, cols), which is of floats; by NULL: only whether it is. */
LLM__PRIVATE void llm__column_lengths(llm__loader *L, int slot, int64_t rows, int64_t cols, float *by);

/* n numbers that were worked out here, not stored; they live in the model. */
LLM__PRIVATE void llm__load_numbers(llm__loader *L, const char *name, const float *numbers, int64_t n, llm_weight **out);
