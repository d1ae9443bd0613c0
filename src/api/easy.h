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
struct llm_file;

typedef struct llm llm; /* a model with an engine of its own */

/* cfg may be NULL; max_model_len 0 means the model's, at most 8192. NULL on error: llm_last_error() */
LLM_API llm *llm_load(const char *path, const struct llm_engine_config *cfg);
/* The same for a model whose files the program has in memory, behind a reader, or open: see llm_file in >>api-model. */
LLM_API llm *llm_load_files(const struct llm_file *files, int32_t n, const struct llm_engine_config *cfg);
LLM_API void llm_free(llm *l);
LLM_API const struct llm_model *llm_get_model(const llm *l);
LLM_API struct llm_engine *llm_get_engine(const llm *l);

/* How an answer came out, or stands. Texts live until the next answer of the same object begins. */
typedef struct llm_answer {
    const char *text; /* all of it so far */
    size_t text_len;
    llm_finish finish;                                       /* NONE: it goes on, or there was none */
    const char *error;                                       /* of ERROR: the sentence; else NULL */
    const char *stop_reason;                                 /* the stop string, or "repetition"; NULL: the model ended it */
    int32_t prompt_tokens, cached_tokens, completion_tokens; /* cached: of the prompt, found in the prefix cache */
    int32_t context_left;                                    /* tokens that the context still holds behind the answer */
    double first_token_s, total_s;                           /* seconds from its begin; 0: not yet */
} llm_answer;

/* Continues a text. Returns malloc'ed text (free with llm_string_free) or NULL; llm_get_answer says how it ended. s NULL: as a person is
 * answered (llm_sampling_chat: mostly temperature 0.8), with at most 256 tokens. That is not what a zeroed llm_sampling says: greedy, with
 * at most 256 tokens. */
LLM_API char *llm_generate(llm *l, const char *prompt, const struct llm_sampling *s);
LLM_API void llm_string_free(char *s);
LLM_API void llm_get_answer(const llm *l, llm_answer *out); /* of the latest llm_generate */

typedef struct llm_chat llm_chat; /* a conversation: its messages, and the answer under way, if there is one */

LLM_API llm_chat *llm_chat_new(llm *l, const char *system); /* system may be NULL. NULL: no memory */
LLM_API void llm_chat_free(llm_chat *c);
/* How its answers are sampled, to be changed: llm_sampling_chat at first, with at most 1024 tokens. */
LLM_API struct llm_sampling *llm_chat_sampling(llm_chat *c);

/* Adds the user's message and begins the answer, which follows by llm_chat_next. An answer under way is stopped first. On error the message
 * is taken back: LLM_ERR_UNSUPPORTED: the model has no chat template (llm_generate continues a text); LLM_ERR_LIMIT: the conversation is
 * longer than the context, both numbers said. */
LLM_API llm_result llm_chat_say(llm_chat *c, const char *user_message);
/* Begins an answer to the messages as they stand, after llm_chat_add for example. s: how this one is sampled; NULL: as llm_chat_sampling
 * says, which a zeroed llm_sampling does not mean (that is greedy). n and best_of count as 1. */
LLM_API llm_result llm_chat_reply(llm_chat *c, const struct llm_sampling *s);
LLM_API const char *llm_chat_next(llm_chat *c); /* next piece of the answer; NULL at its end: llm_chat_get_answer says why */
/* The same, for a loop that has other things to do: works for `ms` milliseconds at most (llm_engine_step_for). NULL: nothing to show yet,
 * or the end, which llm_chat_busy tells apart. */
LLM_API const char *llm_chat_next_for(llm_chat *c, double ms);
LLM_API int llm_chat_busy(const llm_chat *c);                         /* 1: an answer is under way */
LLM_API void llm_chat_get_answer(const llm_chat *c, llm_answer *out); /* of the latest */
/* Ends the answer here, which is LLM_FINISH_CANCELLED then; what was said stays in the conversation. */
LLM_API llm_result llm_chat_stop(llm_chat *c);
/* For a stop button: the same from any thread, while another waits in llm_chat_next, which returns NULL within some 20 ms, in the middle of
 * a long prompt too. Nothing if no answer is under way. */
LLM_API void llm_chat_cancel(llm_chat *c);

/* The messages. All of these stop an answer under way first. */
LLM_API llm_result llm_chat_add(llm_chat *c, const char *role, const char *content); /* "system", "user", "assistant", "tool", ... */
/* Takes the place of all messages: a JSON list of objects with a "role", as OpenAI has them, of any content that the template understands
 * (tool_calls, lists of parts). On error nothing has changed. */
LLM_API llm_result llm_chat_load(llm_chat *c, const char *messages, size_t len);
/* Tools that the template tells the model of: OpenAI's list as JSON; NULL: none. >>api-chat finds the calls in an answer. */
LLM_API llm_result llm_chat_set_tools(llm_chat *c, const char *tools);
LLM_API const char *llm_chat_messages(llm_chat *c); /* that list, to be kept; lives until the next call. NULL: no memory */
LLM_API int32_t llm_chat_count(llm_chat *c);
/* The content of message i, and its role (NULL: not wanted). A content that is no string comes as JSON. Both live until the next call.
 * NULL: there are not so many, or no memory. */
LLM_API const char *llm_chat_message(llm_chat *c, int32_t i, const char **role);
LLM_API void llm_chat_keep(llm_chat *c, int32_t n); /* forgets all messages but the first n */
LLM_API void llm_chat_reset(llm_chat *c);           /* forgets all but a system message at the begin */
