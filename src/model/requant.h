/* requant: quantising while loading: --quantization q4_k of a folder whose weights are floats.
 *
 * Rows are made when a backend reads them (llm_segment.read), some at a time, from the mapped file, whose pages are given back: memory
 * holds the result and what is being worked on. What is made is what a file with these quantised weights would have, so the logits are the
 * same to the bit.
 *
 *     weight_only_int8, wint8     bytes, a scale a row: its largest size / 127, as f16 (so that blocks of Q8_0 hold it)
 *     fp8                         e4m3, a scale a row in f32: its largest size / 448
 *     nf4                         bitsandbytes' table, a scale for 64 columns of a row
 *     mxfp4, q8_0, q4_0, q4_k, ...  as >>quantise makes blocks; rows that are no whole blocks take the next type that fits, as in GGUF
 *
 * The layers' matrices become these, experts too; routers, norms and biases stay as they are, and so does the embedding, of which only
 * rows are read. So does the output layer, as other engines have it, but for types of GGUF files: there it becomes Q6_K, or Q8_0. */
#pragma once
#include "api/backend.h"
#include "base/platform.h"
#include "model/tensors.h"
#include "model/loader.h"

/* The llm__requant_form of a name as command lines have it; 0: none of these. */
LLM__PRIVATE int llm__requant_named(const char *name);

/* Its name, "q4_k". */
LLM__PRIVATE const char *llm__requant_name(int form);

/* Makes a segment of floats, whose fields say how the matrix (rows, cols) of a slot is stored, one that is read as quantised rows, if the
 * model is quantised while it is loaded and this matrix is one that becomes so. t: where it stands. Errors are L->r. */
LLM__PRIVATE void llm__requant(llm__loader *L, int slot, const llm__tensor *t, int64_t rows, int64_t cols, llm_segment *s);
