/* gguf_write: the bytes of a GGUF file's head, as they are read again.
 *
 *     keys and tensors are each collected in a text of their own, then:
 *     llm__gguf_put_head(&head, &keys, n_keys, &tensors, n_tensors);    // "GGUF", counts, keys, tensors, zeros
 *     ... and behind it the data of the tensors, each filled up to LLM__GGUF_ALIGN */
#pragma once
#include "api/text.h"
#include "base/platform.h"
#include "base/text.h"

enum { LLM__GGUF_ALIGN = 32 };

/* A little-endian number. */
LLM__PRIVATE void llm__gguf_put_number(llm_text *t, uint64_t v, int bytes);

/* A text with its length. */
LLM__PRIVATE void llm__gguf_put_text(llm_text *t, llm__str s);

/* Keys: integers as u32, as files have them; numbers as f32. */
LLM__PRIVATE void llm__gguf_put_int(llm_text *keys, const char *key, int64_t v);
LLM__PRIVATE void llm__gguf_put_float(llm_text *keys, const char *key, double v);
LLM__PRIVATE void llm__gguf_put_bool(llm_text *keys, const char *key, int v);
LLM__PRIVATE void llm__gguf_put_str(llm_text *keys, const char *key, llm__str v);

/* The beginning of an array of n elements of a llm__gguf_type. */
LLM__PRIVATE void llm__gguf_put_array(llm_text *keys, const char *key, int32_t type, uint64_t n);

/* A tensor: shape row-major, outermost first. *at: where the data of the next one begins, moved on. */
LLM__PRIVATE void llm__gguf_put_tensor(llm_text *tensors, llm__str name, int n_dims, const int64_t *shape, int32_t type, uint64_t *at);

/* The whole head. */
LLM__PRIVATE void llm__gguf_put_head(llm_text *head, const llm_text *keys, uint64_t n_keys, const llm_text *tensors, uint64_t n_tensors);
