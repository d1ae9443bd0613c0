/* sampler: How the next token is chosen, and when an answer ends. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/model.h"
#include "api/grammar.h"

typedef struct llm_logit_bias {
    int32_t id;
    float bias; /* -100 to 100, added to the logit */
} llm_logit_bias;

/* Early stop on repetition (FastDeploy's early_stop_config): ends an answer when the sampled token's probability was
 * strictly above `threshold` for `window_size` tokens in a row. */
typedef struct llm_early_stop {
    int enable;          /* 1: on; 0: off, of a request as the engine has it; -1: off */
    int32_t window_size; /* 0: 3000 */
    float threshold;     /* 0 to 1; used as given when window_size is given, else 0.99 */
} llm_early_stop;

/* Ends an answer whose last tokens are one pattern, min_count times in a row (vLLM's repetition_detection). */
typedef struct llm_repetition_detection {
    int32_t max_pattern_size; /* tokens of the longest pattern looked for; 0: off */
    int32_t min_pattern_size; /* of the shortest, at most max_pattern_size; 0: 1 */
    int32_t min_count;        /* at least 2 */
} llm_repetition_detection;

/* All zero: greedy, at most 256 tokens. llm_sampling_default fills in what the model's generation_config.json and vLLM say. */
typedef struct llm_sampling {
    int32_t max_tokens;       /* of the answer; 0: 256; -1: up to the context's end */
    int32_t min_tokens;       /* EOS and stops are forbidden before, but where a grammar's text is complete */
    float temperature;        /* 0 to 2; below 1e-5: greedy */
    float top_p;              /* 0 to 1; 0 or 1: off */
    float min_p;              /* 0 to 1; 0: off */
    int32_t top_k;            /* 0 or -1: off */
    float repetition_penalty; /* above 0 to 2; 0 or 1: off */
    float presence_penalty;   /* -2 to 2 */
    float frequency_penalty;  /* -2 to 2 */
    int32_t has_seed; /* 0: the engine draws one (llm_request_seed tells it). Answer i of n is drawn as that of a request with seed + i */
    int64_t seed;
    int32_t n;                       /* answers to one prompt; 0: 1; at most 128 */
    int32_t best_of;                 /* 0: n; the n best of so many by cumulative log-probability */
    int32_t ignore_eos;              /* EOS may be generated and does not end the answer */
    int32_t skip_special_tokens_off; /* 1: special tokens appear in the text */
    int32_t include_stop_str_in_output;
    int32_t logprobs;        /* 0: none; k + 1: the token's and the k most likely; raw log-softmax of the model */
    int32_t prompt_logprobs; /* the same for the prompt's tokens */
    const char *const *stop; /* n_stop strings that end the answer */
    int32_t n_stop;
    const int32_t *stop_token_ids;
    int32_t n_stop_token_ids;
    const char *const *bad_words; /* n_bad_words strings that must not appear */
    int32_t n_bad_words;
    const llm_logit_bias *logit_bias;
    int32_t n_logit_bias;
    llm_early_stop early_stop;   /* of this request; enable 0: the engine's; -1: none. Not together with use_beam_search */
    struct llm_grammar *grammar; /* the form every answer must have; the request keeps it. Not together with use_beam_search. NULL: none */
    int32_t use_beam_search;     /* best_of beams, all at once; the n answers of the best score. No sampling, no events before the end */
    float length_penalty;   /* score: sum of log-probabilities / (tokens of prompt and answer)^length_penalty; llm_sampling_default: 1 */
    int32_t early_stopping; /* the search ends with best_of answers: 0: when none likely is better; 1: at once; 2: when none can be */
    /* They narrow what a grammar lets through, and logit_bias, bad_words and min_tokens narrow them further: where nothing is left, the
     * request fails and says so. */
    const int32_t *allowed_token_ids; /* (n_allowed_token_ids) the only tokens that may come, EOS and stops among them; n 0: all */
    int64_t n_allowed_token_ids;
    /* Thoughts of at most so many tokens: then think_close is written for the model, and the answer goes on behind it. Bounds the first
     * thoughts of an answer, if it has some. Not together with use_beam_search. */
    int32_t thinking_tokens;    /* 0: no bound; k + 1: k tokens */
    int32_t thinking_open;      /* 1: the prompt has left thoughts open; 0: they begin behind think_open */
    const int32_t *think_open;  /* (n_think_open) ids of the tag before thoughts; 0: only the prompt opens them */
    const int32_t *think_close; /* (n_think_close) ids of the tag behind them, at least one where there is a bound */
    int32_t n_think_open, n_think_close;
    /* (n_logprob_token_ids) at most 128: what `logprobs`, then one more than their number, gives of each token of the answer is their
     * log-probabilities, in this order, and not those of the likeliest. */
    const int32_t *logprob_token_ids;
    int32_t n_logprob_token_ids;
    llm_repetition_detection repetition_detection; /* not before min_tokens. Not together with use_beam_search */
} llm_sampling;

/* What their numbers may be, as in >>api-engine: kind, least, most, default, unit. */
/* clang-format off */
#define LLM_FIELD_window_size        INT, 1, 2147483647, 3000, "tokens"
#define LLM_FIELD_threshold          FLOAT, 0, 1, 0, NULL
#define LLM_FIELD_max_pattern_size   INT, 0, 4096, 0, "tokens; 0: off"
#define LLM_FIELD_min_pattern_size   INT, 0, 4096, 0, "tokens; 0: 1"
#define LLM_FIELD_min_count          INT, 2, 2147483647, 0, "times in a row"
#define LLM_FIELD_max_tokens         INT, -1, 2147483647, 256, "tokens; -1: up to the context's end"
#define LLM_FIELD_min_tokens         INT, 0, 2147483647, 0, "tokens"
#define LLM_FIELD_temperature        FLOAT, 0, 2, 0, NULL
#define LLM_FIELD_top_p              FLOAT, 0, 1, 0, NULL
#define LLM_FIELD_min_p              FLOAT, 0, 1, 0, NULL
#define LLM_FIELD_top_k              INT, -1, 2147483647, 0, "tokens; -1 and 0: all"
#define LLM_FIELD_repetition_penalty FLOAT, 1e-6, 2, 1, NULL
#define LLM_FIELD_presence_penalty   FLOAT, -2, 2, 0, NULL
#define LLM_FIELD_frequency_penalty  FLOAT, -2, 2, 0, NULL
#define LLM_FIELD_n                  INT, 1, 128, 1, "answers"
#define LLM_FIELD_best_of            INT, 1, 128, 0, "answers; 0: n"
#define LLM_FIELD_logprobs           INT, 0, 2147483647, 0, "0: none; k + 1: the k likeliest"
#define LLM_FIELD_prompt_logprobs    INT, 0, 2147483647, 0, "0: none; k + 1: the k likeliest"
#define LLM_FIELD_length_penalty     FLOAT, -100, 100, 0, NULL
#define LLM_FIELD_early_stopping     INT, 0, 2, 0, NULL
#define LLM_FIELD_thinking_tokens    INT, 0, 2147483647, 0, "0: no bound; k + 1: k tokens"
/* clang-format on */

LLM_API void llm_sampling_default(const llm_model *model, llm_sampling *s);
/* For a conversation with a person, as llm_cli, the server's page and the easy level take it: where the model's files say nothing
 * about sampling, temperature 0.8, top_k 40, top_p 0.95 and min_p 0.05, since a small model at temperature 1 rambles; else as
 * llm_sampling_default. */
LLM_API void llm_sampling_chat(const llm_model *model, llm_sampling *s);
/* Checks every range; LLM_ERR_ARG names the field, its value and what is allowed. Needs the model for ids. */
LLM_API llm_result llm_sampling_check(const llm_model *model, const llm_sampling *s);
