/* easy: Ten lines to a working program. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/model.h"
#include "api/sampler.h"
#include "api/engine.h"

struct llm_model; /* each has a section of its own below */
struct llm_engine;
struct llm_engine_config;
struct llm_sampling;

typedef struct llm llm; /* a model with an engine of its own */

/* cfg may be NULL; max_model_len 0 means the model's, at most 8192. NULL on error: llm_last_error() */
LLM_API llm *llm_load(const char *path, const struct llm_engine_config *cfg);
LLM_API void llm_free(llm *l);
LLM_API const struct llm_model *llm_get_model(const llm *l);
LLM_API struct llm_engine *llm_get_engine(const llm *l);
/* Continues a text. Returns malloc'ed text (free with llm_string_free) or NULL. s may be NULL. */
LLM_API char *llm_generate(llm *l, const char *prompt, const struct llm_sampling *s);
LLM_API void llm_string_free(char *s);

typedef struct llm_chat llm_chat; /* a conversation */

LLM_API llm_chat *llm_chat_new(llm *l, const char *system); /* system may be NULL */
LLM_API void llm_chat_free(llm_chat *c);
LLM_API struct llm_sampling *llm_chat_sampling(llm_chat *c); /* to change it */
/* The answer follows by llm_chat_next. LLM_ERR_UNSUPPORTED: the model has no chat template (llm_generate continues a text). */
LLM_API llm_result llm_chat_say(llm_chat *c, const char *user_message);
LLM_API const char *llm_chat_next(llm_chat *c); /* next piece of the answer; NULL at its end */
LLM_API llm_result llm_chat_stop(llm_chat *c);  /* ends the answer here; what was said stays in the conversation */
LLM_API void llm_chat_reset(llm_chat *c);       /* forgets all but the system message */
