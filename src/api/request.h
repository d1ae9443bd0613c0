/* request: One prompt, n answers. Submit from any thread; one thread steps the engine. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/media.h"
#include "api/sampler.h"
#include "api/engine.h"

typedef struct llm_request llm_request;

typedef struct llm_token_logprob {
    int32_t id;
    float logprob;
} llm_token_logprob;

/* How a prompt becomes one vector: the last hidden state (the head's input) of its last token, the mean over all its tokens, or the state
 * of its first token. OWN: as the model's files say (modules.json, GGUF's pooling_type), else LAST, of an encoder FIRST or MEAN. What the
 * files have behind that (dense modules) follows in any case. SCORE: the values of an encoder's classifier. */
typedef enum llm_pooling {
    LLM_POOLING_NONE = 0,
    LLM_POOLING_LAST,
    LLM_POOLING_MEAN,
    LLM_POOLING_FIRST,
    LLM_POOLING_OWN,
    LLM_POOLING_SCORE
} llm_pooling;

typedef struct llm_request_config {
    const char *prompt; /* text; or NULL with prompt_ids */
    size_t prompt_len;
    int32_t tokenize_flags; /* of the text: LLM_TOK_* */
    const int32_t *prompt_ids;
    size_t n_prompt_ids;
    llm_sampling sampling;  /* copied, with what it points to. All zero: greedy, at most 256 tokens; see llm_sampling_default, _chat */
    int32_t priority;       /* lower first */
    const char *cache_salt; /* prefix cache of its own; NULL: shared */
    const char *lora;       /* name of a loaded adapter; NULL: llm_engine_config.lora, if any */
    int32_t score_only;     /* prompt_logprobs and no answer */
    llm_pooling pooling;    /* not NONE: an embedding of the prompt and no answer */
    double deadline_s;      /* seconds from submission; 0: none; then it ends as LLM_FINISH_CANCELLED */
    const char *id;         /* request id of the caller, for llm_request_id; NULL: made */
    /* Called in the stepping thread whenever the request has news: poll it there or later. May be NULL. Must not block. Not called
     * after llm_request_free has returned. */
    void (*on_news)(void *user, llm_request *request);
    void *user;
    double received; /* llm_now() when it came to the caller: what has passed since was preprocessing; 0: now */
    /* Pictures and videos of the prompt, (n_media), in the order of their placeholders. Among ids a placeholder stands as often as its
     * picture has tokens (llm_media_tokenize); a text's are replaced. The caller may free them when this returns. */
    struct llm_media *const *media;
    int64_t n_media;
    const int32_t *prompt_types; /* (n_prompt_ids) the kind of each token, below llm_model_info.n_token_types; NULL: 0, or of a text 0 */
} llm_request_config;

/* Checks everything, copies the config and queues. LLM_ERR_ARG, LLM_ERR_LIMIT (prompt over the context, both numbers said), LLM_ERR_BUSY.
 * Any thread. */
LLM_API llm_result llm_request_submit(llm_engine *engine, const llm_request_config *cfg, llm_request **out);
LLM_API void llm_request_cancel(llm_request *request); /* heard within some 10 ms, in the middle of a step too; any thread */
LLM_API void llm_request_free(llm_request *request);   /* cancels if need be; the handle is gone, the engine cleans up; any thread */

/* One piece of news: a token of an answer, or the end of one. Strings live until the next poll or free of the request. */
typedef struct llm_event {
    int32_t index;     /* which of the n answers */
    int32_t has_token; /* token fields are valid; the end may come with a token or alone */
    int32_t id;        /* token id */
    const char *text;  /* what may be shown now: whole code points, nothing that could still become a stop string */
    size_t text_len;
    float logprob;                /* raw log-softmax of the token; 0 unless logprobs were asked for */
    const llm_token_logprob *top; /* n_top most likely */
    int32_t n_top;
    llm_finish finish;       /* NONE while it goes on */
    const char *stop_reason; /* the stop string, "repetition", "repetition_detected", or NULL; a stop id is in stop_id */
    int32_t stop_id;         /* -1: none */
} llm_event;

/* Takes the next event. 1: *event is filled; 0: none now. Any one thread. */
LLM_API int llm_request_poll(llm_request *request, llm_event *event);
LLM_API int llm_request_done(const llm_request *request); /* every answer has ended and been polled */

/* Everything about one answer so far. Pointers live until the request steps again or is freed. */
typedef struct llm_output {
    const int32_t *token_ids; /* with EOS and stop tokens */
    size_t n_token_ids;
    const char *text; /* without what stopped it, unless include_stop_str_in_output */
    size_t text_len;
    llm_finish finish;
    const char *stop_reason;
    int32_t stop_id;
    double cum_logprob;           /* sum over token_ids */
    const float *logprobs;        /* (n_token_ids) */
    const llm_token_logprob *top; /* (n_token_ids, top_stride): top_counts[i] valid in each row, of the likeliest or of logprob_token_ids */
    const int32_t *top_counts;
    int32_t top_stride;
} llm_output;

LLM_API llm_result llm_request_get_output(const llm_request *request, int32_t index, llm_output *out);

typedef struct llm_request_metrics {
    double arrival_time, inference_start_time; /* when: seconds since 1970; 0: not yet */
    double first_token_time;                   /* how long: from there to the first token */
    double finish_time;                        /* when */
    double time_in_queue;                      /* how long: from the end of preprocessing to inference_start_time */
    double model_forward_time;                 /* from there to the latest token */
    double model_execute_time;                 /* from arrival_time to it: preprocessing, waiting and computing */
    int32_t n_prompt_tokens, n_cached_tokens, n_preemptions;
    double preprocess_cost_time; /* rendering and tokenizing */
} llm_request_metrics;

LLM_API void llm_request_get_metrics(const llm_request *request, llm_request_metrics *out);
LLM_API const int32_t *llm_request_prompt(const llm_request *request, size_t *n);
/* Log-probabilities of the prompt (prompt_logprobs or score_only): logprobs[0] is 0 and means nothing. As in llm_output. NULL: not asked
 * for or not there yet. */
LLM_API const float *llm_request_prompt_logprobs(const llm_request *request, const llm_token_logprob **top, const int32_t **top_counts,
                                                 int32_t *top_stride);
/* How many tokens were likelier than each of the prompt's, and one: 1 for the likeliest. NULL as above. */
LLM_API const int32_t *llm_request_prompt_ranks(const llm_request *request);
/* The embedding (pooling), embedding_size values as they are, not normalised, or the values of the labels. NULL: not asked for, or the
 * request has not ended well. */
LLM_API const float *llm_request_embedding(const llm_request *request, int32_t *n);
LLM_API const char *llm_request_id(const llm_request *request);
LLM_API int64_t llm_request_seed(const llm_request *request);
LLM_API const char *llm_request_error(const llm_request *request); /* of LLM_FINISH_ERROR; else NULL */

/* Runs one step of everything that waits or runs. *busy (may be NULL): something is left to do. One thread at a time. */
LLM_API llm_result llm_engine_step(llm_engine *engine, int *busy);
/* The same with a budget of time, for a loop that has other things to do: works for `ms` milliseconds, or until nothing is left, and leaves
 * a step that is not done where it is; the next call, or llm_engine_step, goes on with it. A game calls it with 5 for each picture. What is
 * said is the same to the bit. Over the budget goes at most one piece that cannot be interrupted (one operation of one layer, or a part of
 * a large product; prompts are read in chunks so small, as measured while it runs, that none should take half the budget) and the choice of
 * the tokens. ms 0: one piece.
 * A device that computes by itself has whole steps. */
LLM_API llm_result llm_engine_step_for(llm_engine *engine, double ms, int *busy);
/* Waits until something was submitted, at most timeout_s. */
LLM_API void llm_engine_wait(llm_engine *engine, double timeout_s);
/* Steps until the request is done. Its own failure is an error, else that of the last step. */
LLM_API llm_result llm_request_run(llm_engine *engine, llm_request *request);

/* Kept contexts: the keys and values that tokens have in the prefix cache go to a file and come back, in this process or a later one, so
 * that a long text is read once and asked often. A prompt that begins with the same tokens then finds them, and says the same bits.
 *
 * save writes what the cache has of these n tokens: whole pages from the first on, so they must have been in a request before. The file
 * appears when it is whole; *kept (may be NULL): tokens in it. load puts a file's pages into the cache and appends its tokens to `ids` (may
 * be NULL). A file of another model, dtype, KV type, page size, number of ranks or adapter is refused, as is one of which a byte has
 * changed. lora and cache_salt as in llm_request_config. Any thread, but in no callback; steps go on meanwhile. */
LLM_API llm_result llm_context_save(llm_engine *engine, const char *path, const int32_t *ids, size_t n, const char *lora,
                                    const char *cache_salt, int64_t *kept);
LLM_API llm_result llm_context_load(llm_engine *engine, const char *path, const char *lora, const char *cache_salt, llm_tokens *ids);
