/* decode: from tokens to text, as a chain of stages.
 *
 * Hugging Face's decoders map a list of tokens to a list of tokens, whose texts are joined at the end. Here a token goes down the chain as
 * soon as it can: llm__detok_feed hands it to step i, in parts if a step above makes one long token (FUSE, UTF8): begin and end say whether
 * a part starts, completes it. Steps that need whole tokens collect the parts. What must wait for more stays in the step's llm__stage.
 *
 * Llama 2's chain, for instance, is REPLACE (U+2581 by a space), FALLBACK (<0xE4><0xB8><0xAD> by the character of these bytes), FUSE (all
 * is one token now), STRIP (its first space). A token passes the first three at once; STRIP looks at the first part of the one long token
 * and lets all others through, so that text is shown as it comes.
 *
 * Files made for llama.cpp, sentencepiece and tiktoken name no steps: their tokens are "literal", each stands for bytes by itself, and the
 * whole chain is LITERAL, UTF8. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/tokenizer.h"
#include "base/platform.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"

/* NULL: no memory. */
LLM__PRIVATE llm_detok *llm__detok_open(const llm__tokenizer *t, int flags);

/* d goes on from where another of the same tokenizer and flags is. */
LLM__PRIVATE llm_result llm__detok_copy(llm_detok *d, const llm_detok *from);

/* Appends the text of n ids; bytes: what they stand for in the middle of a text. */
LLM__PRIVATE llm_result llm__tokenizer_decode(const llm__tokenizer *t, const int32_t *ids, size_t n, int flags, int bytes, llm_text *out);

/* Appends the bytes that a token stands for in the middle of a text, special or not. LLM_ERR_ARG if there is no such token. */
LLM__PRIVATE llm_result llm__tokenizer_piece(const llm__tokenizer *t, int32_t id, llm_text *out);

/* The id of an exact token, or -1. */
LLM__PRIVATE int32_t llm__tokenizer_id(const llm__tokenizer *t, llm__str token);

/* 1 for tokens that are not text: they are left out of decoded text unless it is asked for. */
LLM__PRIVATE int llm__tokenizer_is_special(const llm__tokenizer *t, int32_t id);
