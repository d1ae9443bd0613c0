/* convert_vocab: tokenizer.json as the lists of GGUF.
 *
 *     tokenizer.json                                  GGUF
 *     model.vocab {"the": 261, ...}                   tokenizer.ggml.tokens, by their ids
 *     model.merges ["t h", ...]                       tokenizer.ggml.merges, or scores
 *     added_tokens [{"content": "<s>", "special"...}] tokens of the types 3 (control) and 4 (user-defined)
 *     pre_tokenizer (regexes)                         tokenizer.ggml.pre, a name
 *     post_processor (who gets BOS)                   tokenizer.ggml.add_bos_token, add_eos_token
 *     of other files: ids that end an answer          tokenizer.ggml.eos_token_id, eot_token_id
 *     chat_template                                   tokenizer.chat_template
 *
 * Rows of the embedding that have no word (padding) get one of the type 5, unused. Normal forms (Qwen's NFC) have no form in GGUF and are
 * left out, as llama.cpp does.
 *
 * BPE over bytes becomes "gpt2": tokens and merges as they are. BPE with byte tokens, which came from SentencePiece, becomes "llama": its
 * merges as scores, the earlier the better. How text is cut is a regex in tokenizer.json and a name in GGUF; the name is found by what the
 * regex has of its own, and llm__convert_check tries whether both cut alike. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "base/platform.h"

/* Appends tokenizer.*. LLM_ERR_UNSUPPORTED: a tokenizer that has no form in GGUF. */
LLM__PRIVATE llm_result llm__convert_vocab(const llm_model *m, llm_text *keys, uint64_t *n_keys);
