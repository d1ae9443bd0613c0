/* gguf_vocab: vocabularies of GGUF files, as llama.cpp reads them.
 *
 * What the header has, a list or a value each:
 *
 *     tokenizer.ggml.model          "gpt2": BPE over bytes; "llama": SentencePiece's BPE; "t5": Unigram; "bert": WordPiece
 *     tokenizer.ggml.tokens         texts; of "gpt2" in the byte alphabet
 *     tokenizer.ggml.scores         of SentencePiece's models
 *     tokenizer.ggml.token_type     1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
 *     tokenizer.ggml.merges         of "gpt2"
 *
 * So it has the tokens with scores and types and, for BPE, the merges; but how text is cut is only a name, tokenizer.ggml.pre, whose
 * regexes are in llama.cpp's source. So they are here: a row lists the names that share them. What llama.cpp decides by the text of a
 * token or the kind of the model (which tokens end a turn, default ids, who gets BOS) is here too. Rules that differ from Hugging Face's:
 * no normal forms, added tokens longest first, unknown characters stay between their neighbours. */
#pragma once
#include "api/config.h"
#include "api/model.h"
#include "base/platform.h"
#include "model/source.h"

/* Tokens that end a turn, in llama.cpp as here. */
#define LLM__SP "\xE2\x96\x81"
#define LLM__DS(name) "<\xEF\xBD\x9C" name "\xEF\xBD\x9C> " /* DeepSeek's bars are U+FF5C */
#define LLM__ENDS \
    "<|im_end|> <|eot_id|> <|eom_id|> <|end|> <|return|> <|call|> <end_of_turn> <turn|> <|endoftext|> <|end_of_text|> <EOT> " \
    "[EOT] <end_of_utterance> <eoa> " LLM__DS("end" LLM__SP "of" LLM__SP "sentence")

/* Opens the tokenizer: the one that was asked for (a folder, a file, or a GGUF, whose tensors are of no interest), else the model's. */
LLM__PRIVATE llm_result llm__source_tokenizer(llm__source *s, const llm_model_config *cfg);
