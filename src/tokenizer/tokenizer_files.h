/* tokenizer_files: finding and opening the files of a tokenizer.
 *
 * A model's folder has a tokenizer file of one of the kinds, and often a tokenizer_config.json, which names BOS, EOS and padding. Rank
 * files and SentencePiece's need it for their added tokens; a tokenizer.json says all by itself. Where the two give one text different ids,
 * the file is refused: one of them is not this model's. */
#pragma once
#include "api/config.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/text.h"
#include "base/place.h"
#include "tokenizer/tokenizer.h"

/* The text of "bos_token" and the like in tokenizer_config.json: a string, or an object with its content. .p NULL: none. */
LLM__PRIVATE llm__str llm__config_token(const llm_json *d, const char *key);

/* What every tokenizer ends with: the tokens of bytes, and the indexes of added tokens; `late` ones are sought as normalizing leaves
 * them. */
LLM__PRIVATE void llm__tok_finish(llm__tokenizer *t);

/* Reads the bytes of a tokenizer file, with the tokenizer_config.json (or NULL) next to it. What kind it is shows by its first bytes: '{'
 * is JSON; base64, a space and a digit a rank file; else it must be a protocol buffer. name: the file's, for rank files. */
LLM__PRIVATE llm_result llm__tok_load(llm__tokenizer *t, llm__str s, const char *name, const llm_json *config);

/* Reads a folder, whose tokenizer_config.json is given (NULL: it has none), or a tokenizer.json, a tokenizer.model or a rank file, with the
 * one beside it. An error begins with the file's path. */
LLM__PRIVATE llm_result llm__tok_load_path(llm__tokenizer *t, const llm__place *place, const char *path, const llm_json *config);
