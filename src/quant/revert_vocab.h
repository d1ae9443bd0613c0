/* revert_vocab: the words of a GGUF file as tokenizer.json and tokenizer_config.json.
 *
 * The other way of >>convert_vocab. BPE over bytes ("gpt2") keeps its tokens and merges; the name of how text is cut becomes the regexes
 * that it stands for (>>gguf_pre). SentencePiece's BPE ("llama") has scores instead of merges: every way to put a word together of two
 * others is a merge, in the order of the scores, as transformers makes them of tokenizer.model. Control and user-defined words become added
 * tokens.
 *
 *     tokenizer.ggml.tokens ["the", ...]              model.vocab {"the": 261, ...}, but for control and user-defined words
 *     tokenizer.ggml.merges ["t h", ...]              model.merges [["t", "h"], ...]
 *     tokenizer.ggml.scores                           model.merges: "abc" of score -7 is ["a", "bc"] and ["ab", "c"], before those of -8
 *     tokenizer.ggml.token_type 3, 4                  added_tokens [{"content": "<s>", "special": true}, ...]
 *     tokenizer.ggml.pre "llama-bpe"                  pre_tokenizer: its regexes one behind the other, then ByteLevel
 *     tokenizer.ggml.add_bos_token, add_eos_token     post_processor: a template around the text
 *     tokenizer.ggml.add_space_prefix                 normalizer: Prepend; decoder: Strip
 *     tokenizer.chat_template, ..._token_id           tokenizer_config.json
 *
 * What comes of a vocabulary of "gpt2", in short:
 *
 *     {"added_tokens": [{"id": 0, "content": "<|endoftext|>", "special": true, ...}],
 *      "normalizer": null,
 *      "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "..."}, "behavior": "Isolated"},
 *                                                              {"type": "ByteLevel", "use_regex": false}]},
 *      "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]},
 *      "decoder": {"type": "ByteLevel"},
 *      "model": {"type": "BPE", "ignore_merges": false, "vocab": {"!": 17, ...}, "merges": [["t", "h"], ...]}}
 *
 * Whether both cut alike is tried by >>revert. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "base/platform.h"

/* Appends the whole of tokenizer.json. LLM_ERR_UNSUPPORTED: another kind of vocabulary. */
LLM__PRIVATE llm_result llm__revert_tokenizer(const llm_model *m, llm_text *out);

/* Appends tokenizer_config.json: what has a task, and the chat template. */
LLM__PRIVATE void llm__revert_tokenizer_config(const llm_model *m, llm_text *out);
