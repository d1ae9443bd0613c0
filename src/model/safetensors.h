/* safetensors: reading safetensors.
 *
 * Eight bytes: the length of the header; the header, JSON; the data. The format demands that the tensors cover the data without hole,
 * overlap or rest, so that no second file (a zip, a PDF) can hide in it. We demand it too, and that the header begins with '{' at once and
 * has no key twice: what Python's json module would make of it is then the same as what we make of it. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "model/tensors.h"

/* A tail for messages about a file that is not what its name says. */
LLM__PRIVATE const char *llm__looks_like(const uint8_t *p, size_t n);

/* Reads a safetensors file that lies at data: the header's length (8 bytes), the header, then data that the tensors cover exactly. */
LLM__PRIVATE llm_result llm__safetensors_parse(const char *path, const uint8_t *data, size_t size, llm__tensors *tensors);
