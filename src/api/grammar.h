/* grammar: Answers that must have a form. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/model.h"

typedef struct llm_grammar llm_grammar; /* compiled; may be used by many requests at once */

typedef enum llm_grammar_kind {
    LLM_GRAMMAR_JSON_SCHEMA = 1, /* a schema of draft 2020-12 or draft-07: what cannot be enforced is refused with its JSON pointer. One
                                    that refers to itself nests values 32 levels deep at most, as free JSON does, so that every answer
                                    comes to an end; a schema that spells out more levels has them */
    LLM_GRAMMAR_JSON_OBJECT,     /* any JSON object; the text is not looked at */
    LLM_GRAMMAR_REGEX,           /* the whole answer matches */
    LLM_GRAMMAR_CHOICE,          /* a JSON list of strings: the answer is one of them */
    LLM_GRAMMAR_GBNF,            /* llama.cpp's notation; the rule "root" */
    LLM_GRAMMAR_STRUCTURAL_TAG   /* {"structures": [{"begin", "schema", "end"}], "triggers": [...]}; in their texts the name of a special
                                    token stands for the token */
} llm_grammar_kind;

typedef struct llm_grammar_config {
    llm_grammar_kind kind;
    const char *text; /* at most 1 MiB */
    size_t len;
    const char *space; /* a regex of what may stand between the tokens of JSON; NULL: one space or none */
    const char *after; /* free text up to this marker comes first ("</think>"), at most 127 bytes; NULL: none */
} llm_grammar_config;

/* Compiles a grammar, or finds it among the model's latest. The model gives the vocabulary and must outlive it; NULL: bytes only, no masks.
 * On error *out is NULL. Any thread. */
LLM_API llm_result llm_grammar_open(const llm_model *model, const llm_grammar_config *cfg, llm_grammar **out);
LLM_API void llm_grammar_close(llm_grammar *grammar); /* NULL is fine; requests and matchers that use it keep it */

/* One answer on its way through a grammar, for samplers of your own. Any thread, one at a time. */
typedef struct llm_matcher llm_matcher;
LLM_API llm_matcher *llm_matcher_open(llm_grammar *grammar); /* NULL: no memory */
LLM_API void llm_matcher_close(llm_matcher *m);
/* Goes on by some bytes, usually those of a token. LLM_ERR_ARG: the grammar forbids them, and the matcher stays where it was. */
LLM_API llm_result llm_matcher_bytes(llm_matcher *m, const char *bytes, size_t n);
/* The same by a token's bytes. Special tokens are forbidden but for those in the texts of tags and markers, and in free text. */
LLM_API llm_result llm_matcher_token(llm_matcher *m, int32_t id);
/* Bit id of words, (llm_vocab_size + 31) / 32 of them: token id may come next. Tokens that end an answer are not among them: see
 * llm_matcher_can_end. */
LLM_API llm_result llm_matcher_mask(llm_matcher *m, uint32_t *words, int32_t *n_allowed);
LLM_API int llm_matcher_can_end(const llm_matcher *m); /* the text is complete here; it may still be able to go on */
