/* torch: the tensors of a file that torch.save wrote (pytorch_model.bin, consolidated.00.pth).
 *
 * A zip with one folder: data.pkl, a pickle of the dictionary of tensors; data/0, data/1, ..., the storages that it names; byteorder.
 * A tensor is a view of a storage: offset, sizes, strides. Several may be views of one (tied weights), which then share its bytes here,
 * too. What does not lie in order in its storage is copied, which is seldom. Files from before torch 1.6 are five pickles and then the
 * storages.
 *
 * Nothing is run: see >>pickle. Reference: torch/serialization.py, torch/_utils.py. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "model/tensors.h"

/* 1 if bytes begin as such a file does. */
LLM__PRIVATE int llm__torch_is(const uint8_t *data, size_t size);

/* Reads a file that lies at data; its tensors are added to `tensors`, and point into data, or into `copies`. */
LLM__PRIVATE llm_result llm__torch_parse(const char *path, const uint8_t *data, size_t size, llm__arena *copies, llm__tensors *tensors);
