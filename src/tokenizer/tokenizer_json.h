/* tokenizer_json: reading tokenizer.json.
 *
 * One object: "model" with its vocabulary, "added_tokens", and four components that may each be null, one object with a "type", or a
 * Sequence of such: "normalizer", "pre_tokenizer", "post_processor" (our frame), "decoder":
 *
 *     {"added_tokens": [{"id": 2, "content": "<|im_end|>", "special": true, "lstrip": false, ...}, ...],
 *      "normalizer": null,
 *      "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, {"type": "ByteLevel", ...}]},
 *      "post_processor": null,
 *      "decoder": {"type": "ByteLevel", ...},
 *      "model": {"type": "BPE", "unk_token": null, "vocab": {"!": 0, "\"": 1, ...}, "merges": ["h e", "i n", ...], ...}}
 *
 * Members that we do not know are passed over, types that we do not know are refused: text would come out wrong without a sign. */
#pragma once
#include "api/json.h"
#include "base/platform.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"

/* Adds the steps of a component by its name. 0: there is no such component. Without a document, all its flags are as if not given. */
LLM__PRIVATE int llm__tok_add_parts(llm__tokenizer *t, const llm_json *d, int node, char list, llm__str type, llm__tok_steps *steps);

/* The flags of an added token. Unless it says so, a token is sought in normalized text if and only if it is not special. */
LLM__PRIVATE int llm__json_added_flags(const llm_json *d, int node);

/* Reads a parsed tokenizer.json. The vocabulary comes first, for all else names its tokens; added tokens before the post-processor's
 * ids. */
LLM__PRIVATE void llm__tok_load_json(llm__tokenizer *t, const llm_json *d);
