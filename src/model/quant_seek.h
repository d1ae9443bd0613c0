/* quant_seek: the tensors of a quantised matrix, found and checked. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "model/tensors.h"
#include "model/loader.h"

/* 1 if a tensor that a slot's name led to is the first of those of a quantised matrix. */
LLM__PRIVATE int llm__quant_is(const llm__loader *L, const llm__tensor *t);

/* Fills in what a segment says of the matrix (rows, cols) whose first tensor is t. Errors are L->r. */
LLM__PRIVATE void llm__quant_seek(llm__loader *L, const llm__tensor *t, int64_t rows, int64_t cols, llm_segment *s);

/* The bias of `rows` values that Ascend's static W8A8 folds into integers (NAME.quant_bias), where the matrix that a slot's name led to has
 * one: 1, and the segment has it. 0: it has none. */
LLM__PRIVATE int llm__quant_bias(llm__loader *L, const llm__tensor *matrix, int64_t rows, llm_segment *s);
