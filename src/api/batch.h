/* batch: Many prompts or chats at once: the offline interface of FastDeploy (LLM, generate, chat) and LMDeploy (pipeline).
 *
 *     llm *l = llm_open("models/x", "{\"tensor_parallel_size\": 1, \"max_model_len\": 8192}");
 *     llm_prompt prompts[2] = {{"Shanghai is"}, {"Hi, pls intro yourself"}};
 *     llm_outputs *o = llm_generate_batch(l, prompts, 2, NULL);
 *     for (int i = 0; i < o->n; i++) puts(o->items[i].outputs.text);
 *     llm_outputs_free(o);
 *
 * They run together as far as the engine has room; one that fails has its error, the others their answers. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/easy.h"
#include "api/sampler.h"
#include "api/request.h"

/* Opens a model for that: a path, or ORG/NAME in the Hugging Face cache (download_dir, or the user's own). `config` is a JSON object (NULL:
 * none) with options by the names of FastDeploy's LLM, LMDeploy's TurbomindEngineConfig and PytorchEngineConfig, vLLM's, or ours: whatever
 * llm_serve has as a flag works here, or a note says why it has no meaning. An unknown name is an error with the nearest one. NULL on
 * error. */
LLM_API llm *llm_open(const char *model, const char *config);
/* The same. env (NULL: none): getenv, for HF_HUB_CACHE, HF_HOME, LLM_CUDA_LIBRARY, and whatever else the programs read. log (NULL: none):
 * gets what the library tells up to the option log_level, and the notes. */
LLM_API llm *llm_open_with(const char *model, const char *config, char *(*env)(const char *name), llm_log_fn log, void *log_user);
/* What was taken and has no effect, a line each; "": nothing. Lives as long as l. */
LLM_API const char *llm_notes(const llm *l);

typedef llm_sampling llm_sampling_params;

typedef struct llm_prompt { /* one of these four */
    const char *prompt;     /* a text; of llm_chat_batch the user's message */
    const int32_t *prompt_token_ids;
    int32_t n_prompt_token_ids;
    const char *messages; /* llm_chat_batch: a JSON list of {"role": ..., "content": ...} */
    const char *json; /* a prompt as FastDeploy and vLLM have it: {"prompt": text} or {"prompt_token_ids": ids}, or {"messages": list} */
} llm_prompt;

typedef struct llm_batch_config {
    const llm_sampling_params *sampling_params; /* NULL: the model's own; max_tokens 0: 512 */
    const char *params;       /* JSON object of what is to be different: any member of a request's body, FastDeploy's and LMDeploy's
                                     names of them (max_new_tokens, random_seed, stop_words ...), chat_template_kwargs, adapter_name,
                                     do_preprocess (false: a chat's text goes to the model as it is); NULL: nothing */
    llm_progress_fn progress; /* FastDeploy's use_tqdm: after each answer; NULL: none. Non-zero cancels all */
    void *progress_user;
} llm_batch_config;

typedef struct llm_completion_output {
    int32_t index;            /* of the prompt in the batch */
    int32_t send_idx;         /* number of the latest token: n_token_ids - 1, at least 0 */
    const int32_t *token_ids; /* with EOS and stop tokens */
    int32_t n_token_ids;
    const char *text;              /* the answer; without its thoughts, if it has been told apart from them */
    const char *reasoning_content; /* NULL: none */
    const char *finish_reason;     /* "stop", "length", "error" */
    double cum_logprob;
} llm_completion_output;

typedef struct llm_request_output {
    const char *request_id;
    const char *prompt; /* its text as it was given, of a chat as the template made it; "" of ids */
    const int32_t *prompt_token_ids;
    int32_t n_prompt_token_ids;
    llm_completion_output outputs;
    int32_t finished; /* 1 */
    llm_request_metrics metrics;
    int32_t num_cached_tokens;
    int32_t error_code;    /* 0, or HTTP's status for such an error: 400 the caller's, 500 ours */
    const char *error_msg; /* NULL: none */
} llm_request_output;

typedef struct llm_outputs {
    llm_request_output *items; /* (n): prompt by prompt, and of each the n answers that were asked for */
    int32_t n, n_failed;
    const char *ignored; /* parameters that have no effect, "a, b"; "": none */
} llm_outputs;

/* Continues texts or ids, or answers chats through the model's template, in the caller's thread. cfg may be NULL. NULL only if there can be
 * no answer at all: no memory, parameters that are no JSON object or have a name that nobody knows, a failing engine, cancelled. */
LLM_API llm_outputs *llm_generate_batch(llm *l, const llm_prompt *prompts, int32_t n, const llm_batch_config *cfg);
LLM_API llm_outputs *llm_chat_batch(llm *l, const llm_prompt *prompts, int32_t n, const llm_batch_config *cfg);
LLM_API void llm_outputs_free(llm_outputs *o); /* NULL is fine */
