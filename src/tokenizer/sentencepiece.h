/* sentencepiece: reading SentencePiece's tokenizer.model, a protocol buffer.
 *
 * A message of fields, each a key (number << 3 | wire type) and a value: wire type 0 a variable-length number, 1 and 5 eight and four
 * bytes, 2 a length and bytes, which may be a message again. Read front to back; a view that shrinks is the whole state. */
#pragma once
#include "base/platform.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"

/* Pieces are field 1; 2 says how the model was trained, 3 how text is normalized. */
LLM__PRIVATE void llm__tok_load_spm(llm__tokenizer *t, llm__str data);
