/* config: Version, results, log.
 *
 * What holds for all functions below: LLM_OK is 0 and the only success. A function that makes an object and fails sets it to NULL; one that
 * appends to an llm_text leaves that to the caller to free. Texts are UTF-8; where a length is asked for they need no NUL. A const pointer
 * that is returned belongs to the object it came from and dies with it. "Any thread" means several at once on one object; everything
 * else wants one thread at a time for each object. */
#pragma once
#include "api/linkage.h"

#define LLM_VERSION 100 /* major * 10000 + minor * 100 + patch */
#define LLM_VERSION_STRING "0.1.0"

typedef enum llm_result {
    LLM_OK = 0,
    LLM_ERR_ARG = -1,         /* an argument or option is out of its range */
    LLM_ERR_NOMEM = -2,       /* memory could not be had */
    LLM_ERR_IO = -3,          /* a file could not be opened or read */
    LLM_ERR_FORMAT = -4,      /* a file or text is malformed */
    LLM_ERR_UNSUPPORTED = -5, /* well-formed, but not supported here */
    LLM_ERR_LIMIT = -6,       /* over a limit: context length, size, depth, fuel */
    LLM_ERR_CANCELLED = -7,   /* the caller cancelled it */
    LLM_ERR_BACKEND = -8,     /* the device failed */
    LLM_ERR_BUSY = -9,        /* the request queue is full */
    LLM_ERR_TEMPLATE = -10    /* a chat template raised an error */
} llm_result;

/* A short English name of a result, "unknown result" for a number that is none. Cannot fail. Any thread. */
LLM_API const char *llm_result_str(llm_result r);

/* The sentence behind this thread's latest error: what, which value, what was expected. Never NULL; at most 1023 bytes without control
 * characters, so that it may go to a terminal. It says something only after a call that failed, and until the next call of this library in
 * this thread. */
LLM_API const char *llm_last_error(void);
LLM_API double llm_now(void); /* seconds of a clock that never jumps; any thread */

/* What the KV cache keeps numbers as, and what is computed in. AUTO: the best that the processor has. */
typedef enum llm_kv_type {
    LLM_KV_AUTO = 0,
    LLM_KV_F32,
    LLM_KV_F16,
    LLM_KV_BF16,
    LLM_KV_FP8_E4M3,
    LLM_KV_FP8_E5M2,
    LLM_KV_INT8,
    LLM_KV_INT4
} llm_kv_type;
typedef enum llm_compute { LLM_COMPUTE_AUTO = 0, LLM_COMPUTE_F32, LLM_COMPUTE_BF16, LLM_COMPUTE_F16 } llm_compute;

/* How an answer ended; NONE while it goes on. LENGTH: it has as many tokens as it may, or the context is full. REPETITION: what its
 * request's repetition_detection looks for was found. */
typedef enum llm_finish {
    LLM_FINISH_NONE = 0,
    LLM_FINISH_STOP,
    LLM_FINISH_LENGTH,
    LLM_FINISH_CANCELLED,
    LLM_FINISH_ERROR,
    LLM_FINISH_REPETITION
} llm_finish;
LLM_API const char *llm_finish_str(llm_finish f); /* "stop", "length", "abort", "error", "repetition" */

typedef enum llm_log_level { LLM_LOG_ERROR = 0, LLM_LOG_WARN = 1, LLM_LOG_INFO = 2, LLM_LOG_DEBUG = 3 } llm_log_level;

/* Called with one line without its newline; `level` is an llm_log_level. The message is gone afterwards. May be called from any thread of
 * the engine. */
typedef void (*llm_log_fn)(void *user, int level, const char *message);

/* What an operation of a step has given, for llm_engine_config.trace. */
typedef struct llm_trace {
    const char *op;      /* "embed", "norm", "linear", "q", "k", "v" (turned by their positions), "attention_weights", "attention",
                            "residual", "route" (ids of the chosen experts, then their weights), "experts", "gate", "streams", "index" (an
                            indexer's key), "lora", "logits"; with trace_inputs only "input", what a weight is multiplied with */
    const char *weight;  /* name of the weight in the model's files, of several that are one the first; NULL: none */
    int32_t layer, head; /* -1: of none; head: of attention_weights only; of the input of an expert, which one */
    int32_t rows, cols;  /* a row for each token of the step; of logits, and behind the last layer, for those whose logits are wanted */
    const float *values; /* row r begins at values + r * stride; gone afterwards */
    int64_t stride;
    const void *multiplied; /* of "input", for who knows backends: the llm_weight */
} llm_trace;

/* Called in the thread that steps. */
typedef void (*llm_trace_fn)(void *user, const llm_trace *t);

/* Called during long work; done is 0 to 1. A non-zero return cancels the work (LLM_ERR_CANCELLED). */
typedef int (*llm_progress_fn)(void *user, const char *what, double done);
