/* tokenizer: Text to ids and back, with the model's own tokenizer.
 *
 * All of it may be called from any thread; a model without a tokenizer (dummy weights in a bare folder) answers LLM_ERR_UNSUPPORTED, an
 * empty vocabulary, or no token. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"

enum {
    LLM_TOK_ADD_SPECIAL = 1,    /* put BOS/EOS where the model's own tokenizer does */
    LLM_TOK_PARSE_SPECIAL = 2,  /* text such as <|im_end|> becomes the special token */
    LLM_DETOK_KEEP_SPECIAL = 4, /* special tokens appear in the text */
    LLM_TOK_GUARDED = 8         /* the text is guarded, see llm_guard */
};

/* Appends the ids of `len` bytes of UTF-8 (a bad byte counts as U+FFFD). */
LLM_API llm_result llm_tokenize(const llm_model *model, const char *text, size_t len, int flags, llm_tokens *out);
/* Appends the ids of two texts side by side, as a reranker of BERT's kind reads a query and a document, and the kinds of their tokens
 * (llm_request_config.prompt_types). most above 0: so many tokens at most, of which the longer text loses its last ones first. */
LLM_API llm_result llm_tokenize_pair(const llm_model *model, const char *a, size_t a_len, const char *b, size_t b_len, int flags,
                                     size_t most, llm_tokens *ids, llm_tokens *types);
/* Appends the text of n ids: bytes, which are UTF-8 if the model keeps to it. Ids without a token add nothing. */
LLM_API llm_result llm_detokenize(const llm_model *model, const int32_t *ids, size_t n, int flags, llm_text *out);

/* Detokenizing as tokens arrive: whole code points only; what the pushes and the flush add is exactly llm_detokenize's text.
 * One thread at a time uses a detok; the model must outlive it. A push appends what is certain now, the flush the rest; reset
 * makes it new. free(NULL) is fine. */
typedef struct llm_detok llm_detok;
LLM_API llm_detok *llm_detok_create(const llm_model *model, int flags); /* NULL: no memory, or no tokenizer */
LLM_API llm_result llm_detok_push(llm_detok *d, int32_t id, llm_text *out);
LLM_API llm_result llm_detok_flush(llm_detok *d, llm_text *out);
LLM_API void llm_detok_reset(llm_detok *d);
LLM_API void llm_detok_free(llm_detok *d);

LLM_API int32_t llm_vocab_size(const llm_model *model);                  /* ids the tokenizer knows: 0 .. n-1 */
LLM_API int32_t llm_token_id(const llm_model *model, const char *token); /* of an exact token; -1 */
LLM_API llm_result llm_token_bytes(const llm_model *model, int32_t id,
                                   llm_text *out); /* the bytes it stands for, as in the middle of a text */
LLM_API int llm_token_is_special(const llm_model *model, int32_t id);

/* A stranger's text for the middle of a prompt. Appends it with marks (U+FDD0), so that LLM_TOK_PARSE_SPECIAL | LLM_TOK_GUARDED finds none
 * of the model's control tokens in it, wherever it stands; without the marks, which that takes away, it is as it was. Chat templates do it
 * to all of their context (llm_render_options). llm_unguard appends the text without marks. */
LLM_API llm_result llm_guard(const llm_model *model, const char *text, size_t len, llm_text *out);
LLM_API void llm_unguard(const char *text, size_t len, llm_text *out);
