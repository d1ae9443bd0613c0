/* llm.h - v0.1 - LLM inference in one C header - MIT licence, see the end of the file
 *
 * DO THIS once, in one .c or .cpp file:
 *     #define LLM_IMPLEMENTATION
 *     #include "llm.h"
 * and include it without the define everywhere else. Compile with: cc -O2 main.c -lm -lpthread
 */

/* ============================================================================
 * PART B  THE API
 * ============================================================================ */
#if defined(LLM_IMPLEMENTATION) && !defined(_GNU_SOURCE) && !defined(_FEATURES_H)
#define _GNU_SOURCE 1 /* for >>platform: must stand before the first system header */
#endif

#ifndef LLM_H_INCLUDED
#define LLM_H_INCLUDED

#include <stddef.h>
#include <stdint.h>

#ifndef LLM_API
#if defined(LLM_STATIC)
#define LLM_API static
#elif defined(__GNUC__)
#define LLM_API extern __attribute__((visibility("default")))
#else
#define LLM_API extern
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------
 * >>api-config   Version, results, log.
 * --------------------------------------------------------------------------- */

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

/* A short English name of a result. Cannot fail. */
LLM_API const char *llm_result_str(llm_result r);

/* The sentence behind this thread's latest error: what, which value, what was expected. Never NULL.
 * Valid until the next call of this library in this thread. */
LLM_API const char *llm_last_error(void);

typedef enum llm_log_level { LLM_LOG_ERROR = 0, LLM_LOG_WARN = 1, LLM_LOG_INFO = 2, LLM_LOG_DEBUG = 3 } llm_log_level;

/* Called with one line without its newline. May be called from any thread of the engine. */
typedef void (*llm_log_fn)(void *user, int level, const char *message);

/* Called during long work; done is 0 to 1. A non-zero return cancels the work (LLM_ERR_CANCELLED). */
typedef int (*llm_progress_fn)(void *user, const char *what, double done);

/* ---------------------------------------------------------------------------
 * >>api-text   A growable byte string, and a growable list of token ids.
 * --------------------------------------------------------------------------- */

/* Zero-initialise; data is NUL-terminated once something was added. After a failed allocation or past
 * `limit` bytes (0: none) `failed` is set and further additions do nothing, so one test at the end is enough. */
typedef struct llm_text {
    char *data;
    size_t len, cap, limit;
    int failed;
} llm_text;

LLM_API void llm_text_add(llm_text *t, const char *bytes, size_t len);
LLM_API void llm_text_str(llm_text *t, const char *zero_terminated);
LLM_API void llm_text_int(llm_text *t, int64_t value);
LLM_API void llm_text_num(llm_text *t, double value);                         /* shortest text that reads back equal */
LLM_API void llm_text_json(llm_text *t, const char *bytes, size_t len);       /* quoted and escaped; bad UTF-8 becomes U+FFFD */
LLM_API void llm_text_free(llm_text *t);

typedef struct llm_tokens {
    int32_t *data;
    size_t len, cap;
    int failed;
} llm_tokens;

LLM_API void llm_tokens_add(llm_tokens *t, int32_t id);
LLM_API void llm_tokens_free(llm_tokens *t);

/* ---------------------------------------------------------------------------
 * >>api-json   Strict RFC 8259 reading, the parser that everything here uses.
 * --------------------------------------------------------------------------- */

typedef struct llm_json llm_json; /* a parsed document; nodes are indexes, 0 is the root, -1 is "absent" */

typedef enum llm_json_type {
    LLM_JSON_ABSENT = 0, LLM_JSON_NULL, LLM_JSON_BOOL, LLM_JSON_NUMBER, LLM_JSON_STRING, LLM_JSON_ARRAY, LLM_JSON_OBJECT
} llm_json_type;

typedef struct llm_json_limits {
    int max_depth;    /* nesting; 0: 512 */
    int max_tokens;   /* values and keys together; 0: 64 million */
    int unique_keys;  /* refuse an object that has a key twice, or more than 4096 keys */
} llm_json_limits;

/* Parses `len` bytes (copied). limits may be NULL. On error LLM_ERR_FORMAT or LLM_ERR_LIMIT with the byte offset; *out is NULL. */
LLM_API llm_result llm_json_parse(const char *text, size_t len, const llm_json_limits *limits, llm_json **out);
LLM_API void llm_json_free(llm_json *doc);
LLM_API llm_json_type llm_json_type_of(const llm_json *doc, int node);             /* of -1, or no document: LLM_JSON_ABSENT */
LLM_API int llm_json_size(const llm_json *doc, int node);                          /* elements or members; else 0 */
LLM_API int llm_json_first(const llm_json *doc, int node);                         /* first element, or value of the first member; -1 */
LLM_API int llm_json_next(const llm_json *doc, int node);                          /* next element, or next member's value; -1 */
LLM_API const char *llm_json_key(const llm_json *doc, int node, size_t *len);      /* key of a member's value; NULL for others */
LLM_API int llm_json_find(const llm_json *doc, int object, const char *key);       /* the member's value, the first if twice; -1 */
LLM_API const char *llm_json_str(const llm_json *doc, int node, size_t *len);      /* decoded bytes, NUL-terminated; NULL if no string */
LLM_API int llm_json_num(const llm_json *doc, int node, double *out);              /* 1 if a number that fits a double */
LLM_API int llm_json_int(const llm_json *doc, int node, int64_t *out);             /* 1 if a whole number that fits: 3, 3.0, not 3.5 */
LLM_API int llm_json_bool(const llm_json *doc, int node, int *out);                /* 1 if true or false */
LLM_API const char *llm_json_raw(const llm_json *doc, int node, size_t *len);      /* the source text of a number, true, false or null */
LLM_API void llm_json_write(const llm_json *doc, int node, llm_text *out);         /* compact text of a node, key order kept */

/* ---------------------------------------------------------------------------
 * >>api-model   A model: weights, tokenizer and chat template, read-only and shareable between engines and threads.
 * --------------------------------------------------------------------------- */

typedef struct llm_model llm_model;

typedef struct llm_model_config {
    const char *tokenizer;        /* path of a folder, tokenizer.json, tokenizer.model, rank file or GGUF; NULL: the model's */
    const char *chat_template;    /* path of a template, or the template itself (has a '{'); NULL: the model's */
    const char *chat_template_name; /* of several templates in one file: "tool_use", ...; NULL: "default" */
    int vocab_only;               /* tokenizer and template only: no weights, no config.json needed */
    int dummy_weights;            /* random weights from config.json alone (--load-format dummy) */
    int no_mmap;                  /* read files instead of mapping them */
    llm_log_fn log;               /* NULL: silent */
    void *log_user;
    llm_progress_fn progress;     /* NULL: none */
    void *progress_user;
} llm_model_config;

typedef struct llm_model_info {
    const char *path, *architecture, *family, *format; /* format: "gguf" or "safetensors" */
    const char *file_type;        /* what most weight bytes are: "Q4_1", "BF16", ... */
    int64_t n_params, weight_bytes;
    int32_t n_layers, hidden_size, n_heads, n_kv_heads, head_dim, vocab_size, max_position_embeddings;
    int32_t n_experts, n_experts_used, sliding_window;
    int32_t bos_id, eos_id, pad_id, unk_id; /* -1: none */
    const int32_t *stop_ids;      /* every id that ends an answer: eos ids of generation_config.json, end of turn */
    int32_t n_stop_ids;
    int32_t n_tensors;
    const char *tokenizer_kind;   /* "BPE", "Unigram", "WordPiece", "SPM" */
    const char *chat_template;    /* its text; NULL: none */
    int32_t max_model_len;        /* longest sequence; above max_position_embeddings where the rotary scaling grows with the prompt */
} llm_model_info;

/* Opens a GGUF file (the first of split files) or a Hugging Face folder. cfg may be NULL. On error *out is NULL. Any thread. */
LLM_API llm_result llm_model_open(const char *path, const llm_model_config *cfg, llm_model **out);
LLM_API void llm_model_close(llm_model *model); /* NULL is fine; close its engines first */
LLM_API const llm_model_info *llm_model_get_info(const llm_model *model);

/* One tensor of the file, for listings: i < info->n_tensors. Any pointer may be NULL. */
LLM_API llm_result llm_model_tensor(const llm_model *model, int i, const char **name, const char **type, int64_t shape[4], int *n_dims, int64_t *bytes);

/* Path of a model by its hub name ORG/NAME in the local cache (cache_dir: .../hub), newest snapshot. LLM_ERR_IO if it is not there. */
LLM_API llm_result llm_hub_find(const char *cache_dir, const char *name, llm_text *path);

/* ---------------------------------------------------------------------------
 * >>api-tokenizer
 * --------------------------------------------------------------------------- */

enum {
    LLM_TOK_ADD_SPECIAL = 1,   /* put BOS/EOS where the model's own tokenizer does */
    LLM_TOK_PARSE_SPECIAL = 2, /* text such as <|im_end|> becomes the special token */
    LLM_DETOK_KEEP_SPECIAL = 4 /* special tokens appear in the text */
};

/* Appends the ids of `len` bytes of UTF-8 (a bad byte counts as U+FFFD). Any thread. */
LLM_API llm_result llm_tokenize(const llm_model *model, const char *text, size_t len, int flags, llm_tokens *out);
/* Appends the text of n ids. Ids without a token add nothing. Any thread. */
LLM_API llm_result llm_detokenize(const llm_model *model, const int32_t *ids, size_t n, int flags, llm_text *out);

/* Detokenizing as tokens arrive: whole code points only; what the pushes and the flush add is exactly llm_detokenize's text. */
typedef struct llm_detok llm_detok;
LLM_API llm_detok *llm_detok_create(const llm_model *model, int flags); /* NULL: no memory */
LLM_API llm_result llm_detok_push(llm_detok *d, int32_t id, llm_text *out);
LLM_API llm_result llm_detok_flush(llm_detok *d, llm_text *out);
LLM_API void llm_detok_reset(llm_detok *d);
LLM_API void llm_detok_free(llm_detok *d);

LLM_API int32_t llm_vocab_size(const llm_model *model);                                      /* ids the tokenizer knows: 0 .. n-1 */
LLM_API int32_t llm_token_id(const llm_model *model, const char *token);                     /* of an exact token; -1 */
LLM_API llm_result llm_token_bytes(const llm_model *model, int32_t id, llm_text *out);       /* the bytes it stands for, as in the middle of a text */
LLM_API int llm_token_is_special(const llm_model *model, int32_t id);

/* ---------------------------------------------------------------------------
 * >>api-template   Chat templates (Jinja).
 * --------------------------------------------------------------------------- */

typedef struct llm_template llm_template;

/* Parses a template. On error LLM_ERR_TEMPLATE with the line. */
LLM_API llm_result llm_template_open(const char *text, size_t len, llm_template **out);
LLM_API void llm_template_close(llm_template *t);

typedef struct llm_render_options {
    const char *bos_token, *eos_token; /* template variables, unless the context has them; NULL: undefined */
    int64_t now;                       /* seconds since 1970 for strftime_now; 0: the clock */
    int utc_offset_s;                  /* of local time, for strftime_now */
    int64_t fuel;                      /* evaluation steps; 0: 5 million */
    size_t max_output;                 /* bytes; 0: 32 MiB */
    int as_chat;                       /* 1: as chat servers call it: tool-call arguments given as JSON text become objects; `tools` and
                                          `documents` are None when the context has none */
} llm_render_options;

/* Renders with every member of the context object as a variable (messages, tools, add_generation_prompt, ...). Appends to out. Any thread. */
LLM_API llm_result llm_template_render(const llm_template *t, const llm_json *context, const llm_render_options *options, llm_text *out);

/* The same with the model's own template and its BOS and EOS text. LLM_ERR_UNSUPPORTED if it has none. */
LLM_API llm_result llm_render(const llm_model *model, const llm_json *context, const llm_render_options *options, llm_text *out);

/* ---------------------------------------------------------------------------
 * >>api-chat   What a chat template can do, and reasoning ("thinking") apart from the answer.
 * --------------------------------------------------------------------------- */

typedef struct llm_template_caps {
    int tools;           /* it reads `tools` */
    int system_role;     /* a system message appears in its text */
    int content_parts;   /* content may be a list of {"type": "text", "text": ...}; else join the texts yourself */
    int thinking_switch; /* it reads `enable_thinking` or `thinking` */
} llm_template_caps;

/* Finds out by rendering small conversations. Cannot fail. Any thread. */
LLM_API void llm_template_get_caps(const llm_template *t, llm_template_caps *out);

typedef enum llm_reasoning_kind {
    LLM_REASONING_NONE = 0,    /* all is answer */
    LLM_REASONING_THINK,       /* <think> ... </think>; open when the prompt left it open or the answer begins with the tag */
    LLM_REASONING_QWEN3,       /* the same */
    LLM_REASONING_DEEPSEEK_R1, /* the same, but open at the start unless the prompt ends with </think> */
    LLM_REASONING_ERNIE_45_VL, /* open as the prompt's last tag says; a lone </think> is dropped */
    LLM_REASONING_MISTRAL,     /* [THINK] ... [/THINK] */
    LLM_REASONING_SEED_OSS,    /* <seed:think> ... </seed:think> */
    LLM_REASONING_KIMI         /* its own triangle brackets */
} llm_reasoning_kind;

/* Splits one answer as it arrives; fill it in with llm_reasoning_begin. Nothing to free. */
typedef struct llm_reasoning {
    llm_reasoning_kind kind;
    int thinking;  /* what comes next belongs to the reasoning */
    int started, n_held;
    char held[32]; /* may be the beginning of a tag */
} llm_reasoning;

/* The kind of a parser's name as vLLM or FastDeploy spell it ("qwen3", "deepseek_r1", "ernie-45-vl", "none"); -1: there is none. */
LLM_API int llm_reasoning_named(const char *name);
/* The kind that suits a chat template's text (NULL: none). */
LLM_API llm_reasoning_kind llm_reasoning_detect(const char *chat_template);
/* `prompt`: the rendered prompt, whose last tag tells whether the thoughts are open already; NULL: nothing was before. */
LLM_API void llm_reasoning_begin(llm_reasoning *r, llm_reasoning_kind kind, const char *prompt, size_t len);
/* Appends a piece of the answer to the one or the other, without the tags. At the end llm_reasoning_end appends what was held back. Without a
 * closing tag all is reasoning. The texts may be emptied (len = 0) between calls. */
LLM_API void llm_reasoning_push(llm_reasoning *r, const char *piece, size_t len, llm_text *reasoning, llm_text *content);
LLM_API void llm_reasoning_end(llm_reasoning *r, llm_text *reasoning, llm_text *content);

/* ---------------------------------------------------------------------------
 * >>api-sampler   How the next token is chosen, and when an answer ends.
 * --------------------------------------------------------------------------- */

typedef struct llm_logit_bias {
    int32_t id;
    float bias; /* -100 to 100, added to the logit */
} llm_logit_bias;

/* Early stop on repetition (FastDeploy's early_stop_config): ends an answer when the sampled token's probability was
 * strictly above `threshold` for `window_size` tokens in a row. */
typedef struct llm_early_stop {
    int enable;
    int32_t window_size; /* 0: 3000 */
    float threshold;     /* 0 to 1; used as given when window_size is given, else 0.99 */
} llm_early_stop;

/* All zero: greedy, at most 256 tokens. llm_sampling_default fills in what the model's generation_config.json and vLLM say. */
typedef struct llm_sampling {
    int32_t max_tokens;        /* of the answer; 0: 256; -1: up to the context's end */
    int32_t min_tokens;        /* EOS and stops are forbidden before */
    float temperature;         /* 0 to 2; below 1e-5: greedy */
    float top_p;               /* 0 to 1; 0 or 1: off */
    float min_p;               /* 0 to 1; 0: off */
    int32_t top_k;             /* 0 or -1: off */
    float repetition_penalty;  /* above 0 to 2; 0 or 1: off */
    float presence_penalty;    /* -2 to 2 */
    float frequency_penalty;   /* -2 to 2 */
    int32_t has_seed;          /* 0: the engine draws one (llm_request_seed tells it) */
    int64_t seed;
    int32_t n;                 /* answers to one prompt; 0: 1; at most 128 */
    int32_t best_of;           /* 0: n; the n best of so many by cumulative log-probability */
    int32_t ignore_eos;        /* EOS may be generated and does not end the answer */
    int32_t skip_special_tokens_off;   /* 1: special tokens appear in the text */
    int32_t include_stop_str_in_output;
    int32_t logprobs;          /* 0: none; k + 1: the token's and the k most likely; raw log-softmax of the model */
    int32_t prompt_logprobs;   /* the same for the prompt's tokens */
    const char *const *stop;   /* n_stop strings that end the answer */
    int32_t n_stop;
    const int32_t *stop_token_ids;
    int32_t n_stop_token_ids;
    const char *const *bad_words; /* n_bad_words strings that must not appear */
    int32_t n_bad_words;
    const llm_logit_bias *logit_bias;
    int32_t n_logit_bias;
    llm_early_stop early_stop; /* of this request; enable 0: the engine's */
} llm_sampling;

LLM_API void llm_sampling_default(const llm_model *model, llm_sampling *s);
/* Checks every range; LLM_ERR_ARG names the field, its value and what is allowed. Needs the model for ids. */
LLM_API llm_result llm_sampling_check(const llm_model *model, const llm_sampling *s);

/* ---------------------------------------------------------------------------
 * >>api-backend   The seam: one table of fused operations on opaque buffers. "Stop here" holds for it too:
 *                 only those who write a backend need it. The CPU table in this file is the executable specification.
 *
 * A backend computes for n ranks of a tensor-parallel group (1 without one). The forward pass is written once, in >>model, as
 * calls of these operations, once a rank. Operations only enqueue: between begin_step and end_step nothing waits, allocates, or reads a
 * host value that changes from step to step. What changes from step to step lies in llm_step, handed to begin_step and copied there. So the sequence of
 * operations depends on the llm_shape alone, and a backend may record it once for a shape and replay it. Results may be read after wait().
 * One thread at a time calls a context. A failed operation makes the context remember the first error; wait() returns it.
 * --------------------------------------------------------------------------- */

#define LLM_BACKEND_ABI 1

/* Types of stored tensors: GGUF's numbers, then those that only other formats have. */
typedef enum llm_type {
    LLM_TYPE_F32 = 0, LLM_TYPE_F16 = 1, LLM_TYPE_Q4_0 = 2, LLM_TYPE_Q4_1 = 3, LLM_TYPE_Q5_0 = 6, LLM_TYPE_Q5_1 = 7, LLM_TYPE_Q8_0 = 8,
    LLM_TYPE_Q2_K = 10, LLM_TYPE_Q3_K = 11, LLM_TYPE_Q4_K = 12, LLM_TYPE_Q5_K = 13, LLM_TYPE_Q6_K = 14, LLM_TYPE_IQ4_NL = 20,
    LLM_TYPE_IQ4_XS = 23, LLM_TYPE_I8 = 24, LLM_TYPE_I16 = 25, LLM_TYPE_I32 = 26, LLM_TYPE_I64 = 27, LLM_TYPE_F64 = 28, LLM_TYPE_BF16 = 30,
    LLM_TYPE_MXFP4 = 39, LLM_TYPE_F8_E4M3 = 1000, LLM_TYPE_F8_E5M2 = 1001, LLM_TYPE_U8 = 1002, LLM_TYPE_BOOL = 1003, LLM_TYPE_U16 = 1004,
    LLM_TYPE_U32 = 1005, LLM_TYPE_U64 = 1006,
    LLM_TYPE_RANDOM = 2000 /* no data: the backend makes seeded random values (load-format dummy) */
} llm_type;

typedef enum llm_kv_type { LLM_KV_AUTO = 0, LLM_KV_F32, LLM_KV_F16, LLM_KV_BF16, LLM_KV_FP8_E4M3, LLM_KV_FP8_E5M2, LLM_KV_INT8, LLM_KV_INT4 } llm_kv_type;
typedef enum llm_compute { LLM_COMPUTE_AUTO = 0, LLM_COMPUTE_F32, LLM_COMPUTE_BF16, LLM_COMPUTE_F16 } llm_compute;

typedef struct llm_backend_ctx llm_backend_ctx; /* the open devices */
typedef struct llm_buffer llm_buffer;           /* (rows, cols) of activations on one rank */
typedef struct llm_weight llm_weight;           /* a packed matrix, table or vector on one rank */

/* Some rows of a stored row-major matrix. Several stacked segments make a weight (q, k and v; rows of several shards). */
typedef struct llm_segment {
    const void *data;      /* first element of the stored matrix (stored_rows, stored_cols) */
    int32_t type;          /* llm_type */
    int32_t transposed;    /* 1: stored as (in, out): the weight's row r is the stored column r */
    int64_t stored_cols;   /* elements of one stored row */
    int64_t row, n_rows, row_step; /* the weight's rows: row, row + row_step, ... (row_step 0 means 1) */
    int64_t col, n_cols;   /* the columns taken */
    float scale;           /* each value is multiplied by it; 0 means 1 (per-tensor fp8 scales) */
} llm_segment;

typedef enum llm_role {
    LLM_ROLE_VECTOR = 0,      /* one row of f32: norm weights, biases, sinks, inverse frequencies; `add` is added to each */
    LLM_ROLE_EMBED = 1,       /* (vocab, hidden), rows are gathered */
    LLM_ROLE_LINEAR = 2,      /* (out, in) */
    LLM_ROLE_GATE_UP = 3,     /* (2 * ff, in): ff gate rows, then ff up rows; the backend may interleave them */
    LLM_ROLE_EXPERTS = 4,     /* n_experts matrices (out, in), stacked by rows */
    LLM_ROLE_EXPERTS_GATE_UP = 5, /* n_experts of (2 * ff, in), stacked by rows */
    LLM_ROLE_MLA_UP = 6,      /* kv_b of latent attention: (n_heads * (nope + v), rank) */
    LLM_ROLE_HEAD = 7         /* as LINEAR, for the output layer, whose input may be rounded more finely */
} llm_role;

typedef struct llm_weight_desc {
    const char *name;       /* for messages */
    llm_role role;
    const llm_segment *segments;
    int32_t n_segments;
    int32_t n_experts;      /* EXPERTS*: > 0 */
    int64_t rows, cols;     /* of the whole weight: all segments' rows; cols of each segment */
    float add;              /* VECTOR: added to every value (Gemma stores w - 1) */
} llm_weight_desc;

/* KV geometry of one layer on one rank. Latent attention: n_kv_heads 1, head_dim rank + rope, v_head_dim 0. */
typedef struct llm_kv_layer {
    int32_t n_kv_heads, head_dim, v_head_dim;
} llm_kv_layer;

typedef struct llm_backend_config {
    int32_t n_ranks;        /* tensor parallel size; 0: 1 */
    int32_t n_threads;      /* CPU; 0: all cores this process may use */
    const char *isa;        /* CPU; NULL: the best this CPU has */
    llm_compute compute;    /* F32: everything in f32, also with quantised weights */
    llm_kv_type kv_type;    /* AUTO: F16 on a CPU; F32 when compute is F32 */
    int32_t batch_invariant; /* the CPU always is */
    double memory_utilization; /* GPU: share of its memory */
    int32_t max_rows;       /* tokens in one step at most */
    int32_t max_out;        /* rows with logits in one step at most */
    int32_t max_seqs;       /* sequences in one step at most */
    int32_t max_pages_per_seq;
    llm_log_fn log;
    void *log_user;
} llm_backend_config;

/* What a recorded step depends on. The CPU gets exact counts; a GPU pads them to buckets. */
typedef struct llm_shape {
    int32_t n_rows;         /* token rows */
    int32_t n_seqs;
    int32_t n_out;          /* rows that go through the head */
} llm_shape;

/* Everything that changes from step to step. The rows of a sequence stand together, in order of position. */
typedef struct llm_step {
    llm_shape shape;
    const int32_t *tokens;       /* (n_rows) */
    const int32_t *positions;    /* (n_rows); with 3 position rows (3, n_rows) */
    int32_t n_position_rows;     /* 1 or 3 */
    const int32_t *seq_of_row;   /* (n_rows) index 0 .. n_seqs-1 */
    const int32_t *seq_begin;    /* (n_seqs + 1) first row of each sequence */
    const int32_t *seq_len;      /* (n_seqs) tokens in the KV cache after this step */
    const int32_t *seq_rope;     /* (n_seqs) which of the rope op's variants */
    const float *seq_rope_base;  /* (n_seqs) multiplies the RoPE base (dynamic NTK); 1 is neutral */
    const int32_t *pages;        /* (n_seqs, page_stride) page numbers of each sequence, from position 0 on */
    int32_t page_stride;
    const int32_t *out_rows;     /* (n_out) rows whose logits are wanted, ascending */
} llm_step;

typedef enum llm_rows { LLM_ROWS_TOKENS = 0, LLM_ROWS_OUT = 1 } llm_rows;
typedef enum llm_norm_kind { LLM_NORM_NONE = 0, LLM_NORM_RMS = 1, LLM_NORM_LAYER = 2 } llm_norm_kind;
typedef enum llm_act {
    LLM_ACT_NONE = 0, LLM_ACT_SILU, LLM_ACT_GELU, LLM_ACT_GELU_TANH, LLM_ACT_RELU, LLM_ACT_RELU2,
    LLM_ACT_SWIGLU_OAI /* gpt-oss: g = min(g, limit), u = clamp(u, -limit, limit); (u + 1) * g * sigmoid(1.702 g) */
} llm_act;

typedef struct llm_embed_op {
    llm_buffer *dst;             /* (n_rows, hidden) */
    const llm_weight *table;     /* EMBED (vocab, hidden) */
    const llm_weight *positions; /* EMBED (n_positions, hidden) added at positions + position_offset; NULL: none */
    int32_t position_offset;
    int32_t vocab_begin;         /* rank's first row of a split table; rows of other ranks give zeros */
    float scale;                 /* of the token's row; 0 means 1 */
} llm_embed_op;

/* cos and sin of every row's position, once a step: dst (n_rows, 2 * rope_dim / 2): cosines, then sines.
 * angle = position * inv_freq[i]; with seq_rope_base b: inv_freq[i] * b^(-2i / rope_dim). */
typedef struct llm_rope_op {
    llm_buffer *dst;
    const llm_weight *inv_freq;  /* VECTOR (n_variants * rope_dim / 2) */
    int32_t n_variants, rope_dim;
    const float *scale;          /* (n_variants) multiplies cosines and sines (attention factor); constant */
    int32_t sections[3];         /* with 3 position rows: frequencies that take row 0, 1, 2 */
} llm_rope_op;

/* x += scale * post_norm(sum over ranks of y); then h = norm(x). y NULL: only the norm. norm NONE: only the sum. With `replace`, x = h too. */
typedef struct llm_residual_op {
    llm_rows rows;
    llm_buffer *x;               /* (rows, hidden) */
    const llm_buffer *y;         /* (rows, hidden) this rank's part; NULL: none */
    float scale;                 /* 0 means 1 */
    llm_norm_kind post_kind;
    const llm_weight *post_weight, *post_bias;
    llm_buffer *h;               /* (rows, hidden) */
    llm_norm_kind kind;
    const llm_weight *weight, *bias; /* NULL: 1 and 0 */
    float eps;
    int32_t replace;
} llm_residual_op;

typedef struct llm_norm_op { /* dst = norm(src), columns [src_col, src_col + n) */
    llm_rows rows;
    llm_buffer *dst;
    const llm_buffer *src;
    int32_t src_col, n;
    llm_norm_kind kind;
    const llm_weight *weight, *bias;
    float eps;
} llm_norm_op;

/* dst[:, dst_col ...] = act(src W^T + bias) * scale. GATE_UP weights: dst = act(gate) * up. add: dst += instead of dst =. */
typedef struct llm_linear_op {
    llm_rows rows;
    llm_buffer *dst;
    const llm_buffer *src;
    const llm_weight *weight, *bias; /* bias VECTOR (out) or NULL */
    llm_act act;
    int32_t add;
    int32_t dst_col, src_col;
    float scale;                 /* 0 means 1 */
    float limit;                 /* SWIGLU_OAI */
} llm_linear_op;

typedef enum llm_qk_norm { LLM_QK_NORM_NONE = 0, LLM_QK_NORM_HEAD_RMS, LLM_QK_NORM_HEAD_LAYER, LLM_QK_NORM_WHOLE_RMS } llm_qk_norm;

/* Finishes q, k, v of every row: q/k norm, RoPE, then K and V go to the cache. q stays in qkv. */
typedef struct llm_qkv_op {
    llm_buffer *qkv;             /* (n_rows, ...) */
    int32_t q_col, k_col, v_col; /* where this rank's heads start */
    int32_t n_heads, n_kv_heads, head_dim, v_head_dim;
    llm_qk_norm norm;            /* HEAD_RMS: weights (head_dim); HEAD_LAYER: (heads, head_dim), this rank's; WHOLE_RMS: see below */
    const llm_weight *q_norm, *k_norm;
    float eps;
    int32_t whole_q_col, whole_q, whole_k_col, whole_k; /* WHOLE_RMS: first column and width the mean runs over (all ranks' heads); weights cover them */
    const llm_buffer *rope;      /* of llm_rope_op; NULL: no positions here */
    int32_t rope_dim, rope_interleaved; /* the first rope_dim of head_dim; pairs (2i, 2i+1) or (i, i + rope_dim/2) */
    int32_t layer;               /* of the KV cache */
    int32_t logn_from;           /* > 0: q *= log(position + 1) / log(logn_from) beyond it (Qwen 1, InternLM) */
} llm_qkv_op;

typedef struct llm_attention_op {
    llm_buffer *dst;             /* (n_rows, n_heads * v_head_dim) */
    const llm_buffer *qkv;
    int32_t q_col, layer;
    int32_t n_heads, n_kv_heads, head_dim, v_head_dim;
    float scale;                 /* of q k, usually 1/sqrt(head_dim) */
    float softcap;               /* 0: none; s = softcap * tanh(s / softcap) */
    int32_t window;              /* 0: none; a query sees the latest `window` positions, its own included */
    int32_t not_causal;          /* 1: every row of the sequence sees all rows of it */
    const llm_weight *sinks;     /* VECTOR (n_heads): a logit that takes part in the softmax only; NULL: none */
    const llm_weight *alibi;     /* VECTOR (n_heads) slopes; NULL: none */
} llm_attention_op;

/* Latent attention. Normalises the latent, rotates, writes (latent, rope key) to the cache, attends in the absorbed form. */
typedef struct llm_mla_op {
    llm_buffer *dst;             /* (n_rows, n_heads * v_dim) */
    llm_buffer *q;               /* (n_rows, n_heads * (nope + rope)) */
    llm_buffer *kv_a;            /* (n_rows, rank + rope) before its norm */
    const llm_weight *kv_norm;   /* VECTOR (rank) */
    const llm_weight *kv_b;      /* MLA_UP */
    const llm_buffer *rope;
    float eps, scale;
    int32_t rope_interleaved;
    int32_t layer, n_heads, nope, rope_dim, v_dim, rank;
} llm_mla_op;

typedef enum llm_route_score { LLM_ROUTE_SOFTMAX = 0, LLM_ROUTE_SIGMOID = 1, LLM_ROUTE_TOPK_SOFTMAX = 2 } llm_route_score;

/* Chooses k experts a row. dst holds them for llm_experts_op. Ties: the lower index. */
typedef struct llm_route_op {
    llm_buffer *dst;             /* (n_rows, 2 * k): ids, then weights */
    const llm_buffer *logits;    /* (n_rows, n_experts) */
    int32_t n_experts, k;
    llm_route_score score;       /* TOPK_SOFTMAX: softmax over the chosen logits */
    const llm_weight *correction; /* VECTOR (n_experts) added for the choice only; NULL: none */
    int32_t n_group, topk_group; /* 0 or 1: no groups */
    int32_t group_top2;          /* group score: sum of its two best (DeepSeek-V3), else its best */
    int32_t normalize;           /* chosen weights divided by their sum */
    float normalize_min;         /* the sum is at least this */
    float scale;                 /* of the weights; 0 means 1 */
} llm_route_op;

/* dst (+)= sum over the chosen experts e of weight_e * down_e(act(gate_e x) * up_e x). */
typedef struct llm_experts_op {
    llm_buffer *dst;             /* (n_rows, hidden) */
    const llm_buffer *src, *routes;
    const llm_weight *gate_up, *gate_up_bias; /* EXPERTS_GATE_UP; bias VECTOR (n_experts * 2 ff): gate, then up, of each */
    const llm_weight *down, *down_bias;       /* EXPERTS; bias VECTOR (n_experts * hidden) */
    llm_act act;
    float limit;
    int32_t k, n_experts, ff;
    int32_t add;
} llm_experts_op;

/* dst[:, j] *= sigmoid(src . w): the gate of Qwen2-MoE's shared expert. */
typedef struct llm_gate_op {
    llm_buffer *dst;             /* (n_rows, n) */
    const llm_buffer *gate;      /* (n_rows, 1) */
    int32_t n;
} llm_gate_op;

/* Logits of the out rows: softcap(scale * (src head^T + bias)). Rows [0, n_out) of dst on the host after wait(): logits(). */
typedef struct llm_logits_op {
    const llm_buffer *src;       /* (n_out, hidden), normalised */
    const llm_weight *head, *bias;
    int32_t vocab_begin, vocab;  /* this rank's share and the whole; the shares are gathered */
    float scale, softcap;        /* 0: 1 and none */
} llm_logits_op;

typedef struct llm_backend {
    int32_t abi;                 /* LLM_BACKEND_ABI */
    uint32_t struct_size;        /* sizeof(llm_backend) */
    const char *name;            /* "cpu", "cuda" */
    llm_result (*open)(const llm_backend_config *cfg, llm_backend_ctx **out);
    void (*close)(llm_backend_ctx *ctx);
    const char *(*describe)(llm_backend_ctx *ctx); /* "avx2, 2 threads" */
    /* At open time. Everything is freed by close. */
    llm_result (*buffer)(llm_backend_ctx *ctx, int rank, int64_t rows, int64_t cols, llm_buffer **out);
    llm_result (*weight)(llm_backend_ctx *ctx, int rank, const llm_weight_desc *desc, llm_weight **out);
    llm_result (*weights_done)(llm_backend_ctx *ctx); /* after the last weight: packing may run here, on all threads */
    int64_t (*kv_page_bytes)(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens); /* of one rank */
    llm_result (*kv_open)(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens, int64_t n_pages);
    int64_t (*memory_used)(llm_backend_ctx *ctx);
    /* The step. */
    llm_result (*begin_step)(llm_backend_ctx *ctx, const llm_step *step);
    void (*embed)(llm_backend_ctx *ctx, int rank, const llm_embed_op *op);
    void (*rope)(llm_backend_ctx *ctx, int rank, const llm_rope_op *op);
    void (*residual)(llm_backend_ctx *ctx, int rank, const llm_residual_op *op);
    void (*norm)(llm_backend_ctx *ctx, int rank, const llm_norm_op *op);
    void (*linear)(llm_backend_ctx *ctx, int rank, const llm_linear_op *op);
    void (*qkv)(llm_backend_ctx *ctx, int rank, const llm_qkv_op *op);
    void (*attention)(llm_backend_ctx *ctx, int rank, const llm_attention_op *op);
    void (*mla)(llm_backend_ctx *ctx, int rank, const llm_mla_op *op);
    void (*route)(llm_backend_ctx *ctx, int rank, const llm_route_op *op);
    void (*experts)(llm_backend_ctx *ctx, int rank, const llm_experts_op *op);
    void (*gate)(llm_backend_ctx *ctx, int rank, const llm_gate_op *op);
    void (*gather)(llm_backend_ctx *ctx, int rank, llm_buffer *dst, const llm_buffer *src); /* dst row i = src row out_rows[i] */
    void (*all_reduce)(llm_backend_ctx *ctx, int rank, llm_rows rows, llm_buffer *buf, int32_t n); /* sums columns [0, n) over the ranks */
    void (*logits)(llm_backend_ctx *ctx, int rank, const llm_logits_op *op);
    llm_result (*end_step)(llm_backend_ctx *ctx);
    llm_result (*wait)(llm_backend_ctx *ctx);
    /* After wait(). */
    const float *(*logits_row)(llm_backend_ctx *ctx, int out_row);  /* (vocab) */
    const float *(*buffer_row)(llm_backend_ctx *ctx, int rank, const llm_buffer *buf, int row); /* hidden states, for tests and embeddings */
    /* Between steps. */
    llm_result (*kv_copy)(llm_backend_ctx *ctx, const int32_t *from, const int32_t *to, int n);  /* whole pages */
    llm_result (*kv_read)(llm_backend_ctx *ctx, int rank, int32_t page, void *host);             /* kv_page_bytes bytes */
    llm_result (*kv_write)(llm_backend_ctx *ctx, int rank, int32_t page, const void *host);
    /* Runs fn(arg, i) for i in [0, n) on the backend's threads; NULL: the caller loops. For host-side row work such as sampling. */
    void (*parallel)(llm_backend_ctx *ctx, void (*fn)(void *arg, int i), void *arg, int n);
} llm_backend;

LLM_API const llm_backend *llm_backend_cpu(void);
/* Opens a backend library (libllm_cuda.so) and checks its abi. LLM_ERR_IO or LLM_ERR_UNSUPPORTED with a sentence. */
LLM_API llm_result llm_backend_load(const char *path, const llm_backend **out);
/* Names of the instruction sets this CPU runs, best last, separated by spaces ("scalar avx2"). Cannot fail. */
LLM_API const char *llm_isa_list(void);

/* ---------------------------------------------------------------------------
 * >>api-engine   Threads, backend, KV pages and scheduler for one model.
 * --------------------------------------------------------------------------- */

typedef struct llm_engine llm_engine;

typedef struct llm_engine_config {
    int32_t n_threads;             /* 0: all cores this process may use */
    const char *isa;               /* NULL: the best; a name of llm_isa_list */
    const char *device;            /* NULL or "auto", "cpu", "cuda" */
    const llm_backend *backend;    /* NULL: the CPU table */
    int32_t tensor_parallel_size;  /* 0: 1; on a CPU: ranks in this process */
    llm_compute dtype;             /* AUTO: the file's formats at full speed */
    llm_kv_type kv_cache_dtype;
    int64_t kv_cache_memory_bytes; /* 0: what max_num_seqs sequences of max_model_len need */
    int32_t max_model_len;         /* tokens of prompt and answer together; 0: the model's */
    int32_t allow_long_max_model_len;
    int32_t max_num_seqs;          /* sequences that run together; 0: 1 */
    int32_t max_num_batched_tokens; /* rows of one step; 0: 512 */
    int32_t block_size;            /* tokens of a KV page: 16, 32, 64, 128; 0: 32 */
    int32_t max_queue;             /* waiting requests; 0: 1024 */
    int32_t disable_prefix_caching;
    float gpu_memory_utilization;  /* 0: 0.9 */
    int32_t batch_invariant;       /* GPU; a CPU always is */
    llm_early_stop early_stop;     /* of every request that has none of its own */
    llm_log_fn log;
    void *log_user;
    llm_progress_fn progress;
    void *progress_user;
} llm_engine_config;

/* Packs the weights, takes all memory. cfg may be NULL. The model must outlive the engine. On error *out is NULL. */
LLM_API llm_result llm_engine_open(const llm_model *model, const llm_engine_config *cfg, llm_engine **out);
LLM_API void llm_engine_close(llm_engine *engine); /* cancels what runs; free its requests first */

typedef struct llm_engine_stats {
    int32_t n_running, n_waiting;
    int64_t total_blocks, free_blocks, cached_blocks; /* KV pages: all, unused, unused but kept for the prefix cache */
    int32_t block_size, max_model_len, max_num_seqs;
    int64_t memory_bytes;          /* weights, KV and buffers of the backend */
    int64_t prompt_tokens, generation_tokens, cached_tokens, steps, preemptions;
    double step_seconds, model_seconds; /* in llm_engine_step; of these in the forward pass */
    const char *backend;           /* "cpu: avx2, 2 threads" */
} llm_engine_stats;

LLM_API void llm_engine_get_stats(const llm_engine *engine, llm_engine_stats *out);

/* ---------------------------------------------------------------------------
 * >>api-request   One prompt, n answers. Submit from any thread; one thread steps the engine.
 * --------------------------------------------------------------------------- */

typedef struct llm_request llm_request;

typedef enum llm_finish { LLM_FINISH_NONE = 0, LLM_FINISH_STOP, LLM_FINISH_LENGTH, LLM_FINISH_CANCELLED, LLM_FINISH_ERROR } llm_finish;
LLM_API const char *llm_finish_str(llm_finish f); /* "stop", "length", "abort", "error" */

typedef struct llm_token_logprob {
    int32_t id;
    float logprob;
} llm_token_logprob;

typedef struct llm_request_config {
    const char *prompt;            /* text; or NULL with prompt_ids */
    size_t prompt_len;
    int32_t tokenize_flags;        /* of the text: LLM_TOK_* */
    const int32_t *prompt_ids;
    size_t n_prompt_ids;
    llm_sampling sampling;         /* copied, with what it points to */
    int32_t priority;              /* lower first */
    const char *cache_salt;        /* prefix cache of its own; NULL: shared */
    int32_t score_only;            /* prompt_logprobs and no answer */
    double deadline_s;             /* seconds from submission; 0: none; then it ends as LLM_FINISH_CANCELLED */
    const char *id;                /* request id of the caller, for llm_request_id; NULL: made */
    /* Called in the stepping thread whenever the request has news: poll it there or later. May be NULL. Must not block or free the request. */
    void (*on_news)(void *user, llm_request *request);
    void *user;
} llm_request_config;

/* Checks everything, copies the config and queues. LLM_ERR_ARG, LLM_ERR_LIMIT (prompt over the context, both numbers said), LLM_ERR_BUSY. Any thread. */
LLM_API llm_result llm_request_submit(llm_engine *engine, const llm_request_config *cfg, llm_request **out);
LLM_API void llm_request_cancel(llm_request *request);  /* takes effect at the next step; any thread */
LLM_API void llm_request_free(llm_request *request);    /* cancels if need be; the handle is gone, the engine cleans up; any thread */

/* One piece of news: a token of an answer, or the end of one. Strings live until the next poll or free of the request. */
typedef struct llm_event {
    int32_t index;                 /* which of the n answers */
    int32_t has_token;             /* token fields are valid; the end may come with a token or alone */
    int32_t id;                    /* token id */
    const char *text;              /* what may be shown now: whole code points, nothing that could still become a stop string */
    size_t text_len;
    float logprob;                 /* raw log-softmax of the token; 0 unless logprobs were asked for */
    const llm_token_logprob *top;  /* n_top most likely */
    int32_t n_top;
    llm_finish finish;             /* NONE while it goes on */
    const char *stop_reason;       /* the stop string, "repetition", or NULL; a stop id is in stop_id */
    int32_t stop_id;               /* -1: none */
} llm_event;

/* Takes the next event. 1: *event is filled; 0: none now. Any one thread. */
LLM_API int llm_request_poll(llm_request *request, llm_event *event);
LLM_API int llm_request_done(const llm_request *request); /* every answer has ended and been polled */

/* Everything about one answer so far. Pointers live until the request steps again or is freed. */
typedef struct llm_output {
    const int32_t *token_ids;      /* with EOS and stop tokens */
    size_t n_token_ids;
    const char *text;              /* without what stopped it, unless include_stop_str_in_output */
    size_t text_len;
    llm_finish finish;
    const char *stop_reason;
    int32_t stop_id;
    double cum_logprob;            /* sum over token_ids */
    const float *logprobs;         /* (n_token_ids) */
    const llm_token_logprob *top;  /* (n_token_ids, top_stride): top_counts[i] valid in each row */
    const int32_t *top_counts;
    int32_t top_stride;
} llm_output;

LLM_API llm_result llm_request_output(const llm_request *request, int32_t index, llm_output *out);

typedef struct llm_request_metrics {
    double arrival_time, inference_start_time, first_token_time, finish_time; /* seconds since 1970; 0: not yet */
    double time_in_queue, model_forward_time, model_execute_time;
    int32_t n_prompt_tokens, n_cached_tokens, n_preemptions;
} llm_request_metrics;

LLM_API void llm_request_get_metrics(const llm_request *request, llm_request_metrics *out);
LLM_API const int32_t *llm_request_prompt(const llm_request *request, size_t *n);
/* Log-probabilities of the prompt (prompt_logprobs or score_only): logprobs[0] is 0 and means nothing. As in llm_output. NULL: not asked for or not there yet. */
LLM_API const float *llm_request_prompt_logprobs(const llm_request *request, const llm_token_logprob **top, const int32_t **top_counts, int32_t *top_stride);
LLM_API const char *llm_request_id(const llm_request *request);
LLM_API int64_t llm_request_seed(const llm_request *request);
LLM_API const char *llm_request_error(const llm_request *request); /* of LLM_FINISH_ERROR; else NULL */

/* Runs one step of everything that waits or runs. *busy (may be NULL): something is left to do. One thread at a time. */
LLM_API llm_result llm_engine_step(llm_engine *engine, int *busy);
/* Waits until something was submitted, at most timeout_s. */
LLM_API void llm_engine_wait(llm_engine *engine, double timeout_s);
/* Steps until the request is done, or forever-safe: returns its first error. */
LLM_API llm_result llm_request_run(llm_engine *engine, llm_request *request);

/* ---------------------------------------------------------------------------
 * >>api-raw   The forward pass itself, for teaching, tests and own samplers.
 * --------------------------------------------------------------------------- */

/* Feeds n tokens of sequence `seq` (0 .. max_num_seqs-1) from position `position` on; logits (n_logits rows of the vocabulary,
 * those of the last n_logits tokens). Not to be mixed with running requests on the same engine. */
LLM_API llm_result llm_forward(llm_engine *engine, int32_t seq, int32_t position, const int32_t *ids, int32_t n, float *logits, int32_t n_logits);
/* The same for several sequences in one ragged batch: counts[i] tokens of sequence seqs[i]; logits (n_seqs, vocab) of each one's last token. */
LLM_API llm_result llm_forward_batch(llm_engine *engine, int32_t n_seqs, const int32_t *seqs, const int32_t *positions, const int32_t *counts, const int32_t *ids, float *logits);
LLM_API int32_t llm_logits_size(const llm_engine *engine); /* row length of logits: the model's vocabulary with padding */
/* Samples from one row as a request with s would at output position `position`. */
LLM_API int32_t llm_sample(const float *logits, int32_t n, const llm_sampling *s, int64_t seed, int64_t position);

/* ---------------------------------------------------------------------------
 * >>api-easy   Ten lines to a working program.
 * --------------------------------------------------------------------------- */

typedef struct llm llm; /* a model with an engine of its own */

LLM_API llm *llm_load(const char *path, const llm_engine_config *cfg); /* cfg may be NULL. NULL on error: llm_last_error() */
LLM_API void llm_free(llm *l);
LLM_API const llm_model *llm_get_model(const llm *l);
LLM_API llm_engine *llm_get_engine(const llm *l);
/* Continues a text. Returns malloc'ed text (free with llm_string_free) or NULL. s may be NULL. */
LLM_API char *llm_generate(llm *l, const char *prompt, const llm_sampling *s);
LLM_API void llm_string_free(char *s);

typedef struct llm_chat llm_chat; /* a conversation */

LLM_API llm_chat *llm_chat_new(llm *l, const char *system); /* system may be NULL */
LLM_API void llm_chat_free(llm_chat *c);
LLM_API llm_sampling *llm_chat_sampling(llm_chat *c);       /* to change it */
LLM_API llm_result llm_chat_say(llm_chat *c, const char *user_message); /* the answer follows by llm_chat_next */
LLM_API const char *llm_chat_next(llm_chat *c);             /* next piece of the answer; NULL at its end */
LLM_API llm_result llm_chat_stop(llm_chat *c);              /* ends the answer here; what was said stays in the conversation */
LLM_API void llm_chat_reset(llm_chat *c);                   /* forgets all but the system message */

#ifdef __cplusplus
}
#endif
#endif /* LLM_H_INCLUDED */

/* Stop here if you only want to use it; below is how it works. */

/* ============================================================================
 * PART C  THE IMPLEMENTATION
 * ============================================================================ */
#ifdef LLM_IMPLEMENTATION
#ifndef LLM_IMPLEMENTATION_DONE
#define LLM_IMPLEMENTATION_DONE

/* ============================================================================
 * >>platform   What we need of the operating system. All system calls stand here.
 * ============================================================================
 * Linux on x86-64 and aarch64. The implementation needs POSIX declarations (mmap, pthreads, clock_gettime). It asks for
 * them itself (at the top of this file) when it is the first thing its file includes; when a system header came first without them, the
 * build stops with one sentence instead of fifty errors. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <dirent.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define LLM__X86 1
#else
#define LLM__X86 0
#endif
#if defined(__aarch64__)
#include <arm_neon.h>
#define LLM__NEON 1
#else
#define LLM__NEON 0
#endif

#if !defined(MAP_ANONYMOUS) || !defined(CLOCK_MONOTONIC) || !defined(O_CLOEXEC)
#error "llm.h: POSIX declarations are needed; define _GNU_SOURCE before the first system header, or include llm.h first"
#endif

#define LLM__RESTRICT __restrict__
#define LLM__UNUSED __attribute__((unused))
#define LLM__INLINE static inline __attribute__((always_inline, unused))
#define LLM__THREAD_LOCAL __thread
#define LLM__MIN(a, b) ((a) < (b) ? (a) : (b))
#define LLM__MAX(a, b) ((a) > (b) ? (a) : (b))
#define LLM__COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Seconds of a clock that never jumps. */
static double llm__now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Seconds since 1970. */
LLM__UNUSED static double llm__wall_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ============================================================================
 * >>alloc   Memory.
 * ============================================================================
 * Small things come from LLM_MALLOC, LLM_REALLOC and LLM_FREE, which a program may define (all three or none). Parse trees and other
 * things that die together live in an arena with a byte limit. Weights, KV pages and activations are whole pages from the system,
 * in huge pages where it gives them. Sizes that come from files are added and multiplied only by the checked helpers. */

#if defined(LLM_MALLOC) && defined(LLM_REALLOC) && defined(LLM_FREE)
#elif !defined(LLM_MALLOC) && !defined(LLM_REALLOC) && !defined(LLM_FREE)
#define LLM_MALLOC(n) malloc(n)
#define LLM_REALLOC(p, n) realloc(p, n)
#define LLM_FREE(p) free(p)
#else
#error "llm.h: define all of LLM_MALLOC, LLM_REALLOC and LLM_FREE, or none"
#endif

/* A product or sum of sizes; 0 and *ok cleared if it does not fit 63 bits. */
LLM__UNUSED static uint64_t llm__mul(uint64_t a, uint64_t b, int *ok) {
    if (b && a > (uint64_t)INT64_MAX / b) *ok = 0;
    return *ok ? a * b : 0;
}

LLM__UNUSED static uint64_t llm__add(uint64_t a, uint64_t b, int *ok) {
    if (a > (uint64_t)INT64_MAX || b > (uint64_t)INT64_MAX - a) *ok = 0;
    return *ok ? a + b : 0;
}

/* Rounds up to a multiple of a power of two. */
LLM__UNUSED static uint64_t llm__align_up(uint64_t a, uint64_t to, int *ok) {
    return llm__add(a, to - 1, ok) & ~(to - 1);
}

/* count * size bytes, zeroed; NULL if there is no memory or the product is too large. */
static void *llm__calloc(size_t count, size_t size) {
    int ok = 1;
    uint64_t n = llm__mul(count, size, &ok);
    if (!ok) return NULL;
    void *p = LLM_MALLOC(n ? (size_t)n : 1);
    if (p) memset(p, 0, n ? (size_t)n : 1);
    return p;
}

#define LLM__NEW(type, count) ((type *)llm__calloc((size_t)(count), sizeof(type)))

/* Grows an array to hold at least `need` elements: capacity doubles. 0 if there is no memory (the array stays). */
static int llm__grow(void **array, size_t *cap, size_t need, size_t size) {
    if (need <= *cap) return 1;
    size_t n = LLM__MAX(need, LLM__MAX((size_t)8, *cap * 2));
    if (n > (size_t)INT64_MAX / size) return 0;
    void *p = LLM_REALLOC(*array, n * size);
    if (!p) return 0;
    *array = p;
    *cap = n;
    return 1;
}

static char *llm__strndup(const char *s, size_t n) {
    char *p = (char *)LLM_MALLOC(n + 1);
    if (!p) return NULL;
    if (n) memcpy(p, s, n);
    p[n] = 0;
    return p;
}

LLM__UNUSED static char *llm__strdup(const char *s) { return s ? llm__strndup(s, strlen(s)) : NULL; }

/* Memory that is freed all at once. Zero-initialise; `limit` 0 means none. */
typedef struct llm__arena_block {
    struct llm__arena_block *next;
    size_t used, cap;
    uint64_t bytes[1]; /* starts here, aligned to 8 */
} llm__arena_block;

typedef struct llm__arena {
    llm__arena_block *head;
    size_t total, limit;
} llm__arena;

/* n zeroed bytes aligned to 8, or NULL. */
LLM__UNUSED static void *llm__arena_get(llm__arena *a, size_t n) {
    n = (n + 7) & ~(size_t)7;
    llm__arena_block *b = a->head;
    if (!b || b->cap - b->used < n) {
        size_t cap = LLM__MAX(n, b ? LLM__MIN(b->cap * 2, (size_t)1 << 20) : 4096);
        if (a->limit && (cap > a->limit || a->total > a->limit - cap)) {
            cap = n;
            if (cap > a->limit || a->total > a->limit - cap) return NULL;
        }
        b = (llm__arena_block *)LLM_MALLOC(sizeof *b + cap);
        if (!b) return NULL;
        b->next = a->head;
        b->used = 0;
        b->cap = cap;
        a->head = b;
        a->total += cap;
    }
    void *p = (char *)b->bytes + b->used;
    b->used += n;
    memset(p, 0, n);
    return p;
}

LLM__UNUSED static void llm__arena_free(llm__arena *a) {
    for (llm__arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        LLM_FREE(b);
    }
    a->head = NULL;
    a->total = 0;
}

/* Whole zeroed pages, aligned to 2 MiB so that huge pages can back them. NULL if there is no memory. */
LLM__UNUSED static void *llm__pages_get(size_t bytes) {
    const size_t huge = (size_t)2 << 20;
    if (bytes > (size_t)INT64_MAX - 2 * huge) return NULL;
    size_t span = (bytes + huge - 1) & ~(huge - 1);
    char *p = (char *)mmap(NULL, span + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == (char *)MAP_FAILED) return NULL;
    size_t skip = (huge - ((uintptr_t)p & (huge - 1))) & (huge - 1);
    if (skip) munmap(p, skip);
    munmap(p + skip + span, huge - skip);
#ifdef MADV_HUGEPAGE
    if (span >= 2 * huge) madvise(p + skip, span, MADV_HUGEPAGE);
#endif
    return p + skip;
}

LLM__UNUSED static void llm__pages_free(void *p, size_t bytes) {
    const size_t huge = (size_t)2 << 20;
    if (p) munmap(p, (bytes + huge - 1) & ~(huge - 1));
}

/* ============================================================================
 * >>log   Errors and log lines.
 * ============================================================================
 * A function that fails writes one sentence for llm_last_error and returns its code: return llm__error(LLM_ERR_FORMAT, "...", ...).
 * The sentence names the thing, its value and what was expected. It is kept a thread; the outermost caller may prefix it. */

typedef struct llm__error_state {
    char text[1024];
} llm__error_state;

static llm__error_state *llm__error_here(void) {
    static LLM__THREAD_LOCAL llm__error_state state;
    return &state;
}

__attribute__((format(printf, 2, 3))) static llm_result llm__error(llm_result r, const char *format, ...) {
    char text[sizeof(llm__error_state)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 32 || *p == 127) *p = '?'; /* names from files must not write to the terminal */
    memcpy(llm__error_here()->text, text, sizeof text);
    return r;
}

LLM__UNUSED static llm_result llm__nomem(void) { return llm__error(LLM_ERR_NOMEM, "out of memory"); }

LLM_API const char *llm_last_error(void) { return llm__error_here()->text; }

LLM_API const char *llm_result_str(llm_result r) {
    switch (r) {
    case LLM_OK: return "ok";
    case LLM_ERR_ARG: return "invalid argument";
    case LLM_ERR_NOMEM: return "out of memory";
    case LLM_ERR_IO: return "input/output error";
    case LLM_ERR_FORMAT: return "malformed input";
    case LLM_ERR_UNSUPPORTED: return "not supported";
    case LLM_ERR_LIMIT: return "over a limit";
    case LLM_ERR_CANCELLED: return "cancelled";
    case LLM_ERR_BACKEND: return "device error";
    case LLM_ERR_BUSY: return "queue full";
    case LLM_ERR_TEMPLATE: return "template error";
    }
    return "unknown result";
}

typedef struct llm__logger {
    llm_log_fn fn;
    void *user;
} llm__logger;

__attribute__((format(printf, 3, 4), unused)) static void llm__log(const llm__logger *l, int level, const char *format, ...) {
    if (!l || !l->fn) return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    l->fn(l->user, level, text);
}

/* ============================================================================
 * >>numbers   Numbers and text, whatever the locale of the host program.
 * ============================================================================
 * strtod and printf's %g follow the locale: under de_DE "0.7" is 0. So reading is done here: exactly when the digits fit 53 bits and the power
 * of ten is exact in a double (Clinger 1990), else by comparing big integers. Printing asks snprintf for 15, 16, then 17
 * digits and takes the first that reads back equal. */

/* Big natural numbers for the exact path of llm__parse_double: little-endian 32-bit limbs. */
typedef struct llm__big {
    uint32_t limb[96]; /* 3072 bits: 800 decimal digits, or 10^324 * 2^1100 */
    int n;
} llm__big;

static void llm__big_mul(llm__big *b, uint32_t factor, uint32_t plus) {
    uint64_t carry = plus;
    for (int i = 0; i < b->n; i++) {
        carry += (uint64_t)b->limb[i] * factor;
        b->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry && b->n < LLM__COUNT(b->limb)) b->limb[b->n++] = (uint32_t)carry;
}

static void llm__big_shift(llm__big *b, int bits) {
    for (; bits >= 31; bits -= 31) llm__big_mul(b, 1u << 31, 0);
    llm__big_mul(b, 1u << bits, 0);
}

static int llm__big_compare(const llm__big *a, const llm__big *b) {
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    for (int i = a->n - 1; i >= 0; i--)
        if (a->limb[i] != b->limb[i]) return a->limb[i] < b->limb[i] ? -1 : 1;
    return 0;
}

/* Sign of digits * 10^exp10 - (mantissa + 1/2) * 2^exp2, exactly. */
static int llm__compare_half(const char *digits, int n_digits, int exp10, uint64_t mantissa, int exp2) {
    llm__big a, b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    for (int i = 0; i < n_digits; i++) llm__big_mul(&a, 10, (uint32_t)(digits[i] - '0'));
    uint64_t twice = 2 * mantissa + 1;
    b.limb[0] = (uint32_t)twice;
    b.limb[1] = (uint32_t)(twice >> 32);
    b.n = b.limb[1] ? 2 : 1;
    exp2--;
    for (int i = 0; i < (exp10 < 0 ? -exp10 : exp10); i++) llm__big_mul(exp10 < 0 ? &b : &a, 10, 0);
    llm__big_shift(exp2 < 0 ? &a : &b, exp2 < 0 ? -exp2 : exp2);
    return llm__big_compare(&a, &b);
}

/* digits * 10^exp10, rounded to nearest even. n_digits <= 780 without leading zeros; value within a double's range times 10^+-20. */
static double llm__decimal_exact(const char *digits, int n_digits, int exp10) {
    long double guess = 0;
    for (int i = 0; i < n_digits && i < 19; i++) guess = guess * 10 + (digits[i] - '0');
    int e = exp10 + (n_digits > 19 ? n_digits - 19 : 0);
    long double p = 10, scale = 1;
    for (int k = e < 0 ? -e : e; k; k >>= 1, p *= p)
        if (k & 1) scale *= p;
    guess = e < 0 ? guess / scale : guess * scale;
    double d = (double)guess;
    if (d > 1.7976931348623157e308) d = 1.7976931348623157e308;
    for (;;) { /* the guess is off by a unit at most where long double has 64 bits; walk to the right neighbour */
        int x;
        uint64_t bits;
        memcpy(&bits, &d, 8);
        uint64_t mantissa = bits & (((uint64_t)1 << 52) - 1);
        int exp2 = (int)(bits >> 52);
        if (exp2) mantissa |= (uint64_t)1 << 52;
        else exp2 = 1;
        x = llm__compare_half(digits, n_digits, exp10, mantissa, exp2 - 1075);
        if (x > 0 || (x == 0 && (mantissa & 1))) { /* above the middle to the next */
            bits++;
            memcpy(&d, &bits, 8);
            if (bits >> 52 == 2047) return d;
            if (x == 0) return d;
            continue;
        }
        if (!bits) return d;
        bits--; /* below the middle to the previous? */
        uint64_t below = bits & (((uint64_t)1 << 52) - 1);
        exp2 = (int)(bits >> 52);
        if (exp2) below |= (uint64_t)1 << 52;
        else exp2 = 1;
        x = llm__compare_half(digits, n_digits, exp10, below, exp2 - 1075);
        if (x > 0 || (x == 0 && !(mantissa & 1))) return d;
        memcpy(&d, &bits, 8);
        if (x == 0) return d;
    }
}

/* Reads a JSON number of exactly n bytes. 0 if it is none; out of range gives infinity or zero. */
static int llm__parse_double(const char *s, size_t n, double *out) {
    static const double tens[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    enum { KEEP = 780 };
    char digits[KEEP];
    int kept = 0, sticky = 0, any = 0;
    long exp10 = 0, e = 0;
    size_t i = 0;
    int negative = i < n && s[i] == '-';
    i += (size_t)negative;
    for (int fraction = 0; i < n && ((s[i] >= '0' && s[i] <= '9') || (s[i] == '.' && !fraction)); i++) {
        if (s[i] == '.') {
            fraction = 1;
            continue;
        }
        any = 1;
        if (kept < KEEP - 1) {
            if (kept || s[i] != '0') digits[kept++] = s[i];
            exp10 -= fraction;
        } else {
            sticky |= s[i] != '0';
            exp10 += !fraction;
        }
    }
    if (!any) return 0;
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        int sign = 1;
        if (++i < n && (s[i] == '+' || s[i] == '-')) sign = s[i++] == '-' ? -1 : 1;
        if (i >= n) return 0;
        for (; i < n && s[i] >= '0' && s[i] <= '9'; i++)
            if (e < 1000000000) e = e * 10 + (s[i] - '0');
        e *= sign;
    }
    if (i != n) return 0;
    if (sticky) digits[kept++] = '1', exp10--; /* breaks ties the right way */
    while (kept && digits[kept - 1] == '0') kept--, exp10++;
    exp10 += e;
    double d;
    if (!kept || exp10 + kept < -330) d = 0;
    else if (exp10 + kept > 310) d = (double)INFINITY;
    else if (kept <= 15 && exp10 >= -22 && exp10 <= 22) {
        uint64_t m = 0;
        for (int k = 0; k < kept; k++) m = m * 10 + (uint64_t)(digits[k] - '0');
        d = exp10 < 0 ? (double)m / tens[-exp10] : (double)m * tens[exp10];
    } else d = llm__decimal_exact(digits, kept, (int)exp10);
    *out = negative ? -d : d;
    return 1;
}

/* Reads a decimal integer of exactly n bytes. 0 if it is none or does not fit. */
static int llm__parse_int(const char *s, size_t n, int64_t *out) {
    int negative = n && s[0] == '-';
    uint64_t v = 0, top = (uint64_t)INT64_MAX + (uint64_t)negative;
    if (n == (size_t)negative) return 0;
    for (size_t i = (size_t)negative; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return 0;
        uint64_t digit = (uint64_t)(s[i] - '0');
        if (v > (top - digit) / 10) return 0;
        v = v * 10 + digit;
    }
    *out = negative ? (v == top ? INT64_MIN : -(int64_t)v) : (int64_t)v;
    return 1;
}

/* The shortest decimal that reads back as d: digits without point into `digits` (18 bytes), value 0.DIGITS * 10^*point. d finite, > 0. */
static int llm__shortest(double d, char *digits, int *point) {
    char s[40];
    for (int precision = 15; precision <= 17; precision++) {
        double back;
        int n = snprintf(s, sizeof s, "%.*e", precision - 1, d), k = 0, e = 0;
        char plain[40];
        for (int i = 0; i < n; i++) { /* the locale's decimal point, whatever its bytes, becomes a point */
            int keep = (s[i] >= '0' && s[i] <= '9') || s[i] == 'e' || s[i] == '-' || s[i] == '+';
            if (keep) plain[k++] = s[i];
            else if (k && plain[k - 1] != '.') plain[k++] = '.';
        }
        if (precision < 17 && (!llm__parse_double(plain, (size_t)k, &back) || back != d)) continue;
        int count = 0, i = 0;
        for (; i < k && plain[i] != 'e'; i++)
            if (plain[i] != '.') digits[count++] = plain[i];
        int sign = plain[i + 1] == '-' ? -1 : 1;
        for (i += 2; i < k; i++) e = e * 10 + (plain[i] - '0');
        while (count > 1 && digits[count - 1] == '0') count--;
        digits[count] = 0;
        *point = sign * e + 1;
        return count;
    }
    return 0;
}

/* Python's repr of a float: 1.0, 0.1, 1e+22, 1e-07. `out` holds 40 bytes. Returns its length. */
static int llm__format_double(double d, char *out) {
    char digits[24];
    int point, n = 0;
    if (d != d) return snprintf(out, 40, "nan");
    if (d < 0 || (d == 0 && signbit(d))) out[n++] = '-', d = -d;
    if (d > 1.7976931348623157e308) return n + snprintf(out + n, 40, "inf");
    if (d == 0) return n + snprintf(out + n, 40, "0.0");
    int count = llm__shortest(d, digits, &point);
    if (point > -4 && point <= 16) {
        if (point <= 0) {
            out[n++] = '0', out[n++] = '.';
            for (int i = point; i < 0; i++) out[n++] = '0';
            for (int i = 0; i < count; i++) out[n++] = digits[i];
        } else {
            for (int i = 0; i < count || i < point; i++) {
                if (i == point) out[n++] = '.';
                out[n++] = i < count ? digits[i] : '0';
            }
            if (count <= point) out[n++] = '.', out[n++] = '0';
        }
    } else {
        out[n++] = digits[0];
        if (count > 1) out[n++] = '.';
        for (int i = 1; i < count; i++) out[n++] = digits[i];
        n += snprintf(out + n, 10, "e%c%02d", point > 0 ? '+' : '-', point > 0 ? point - 1 : 1 - point);
    }
    out[n] = 0;
    return n;
}

/* A byte string that lives elsewhere. */
typedef struct llm__str {
    const char *p;
    size_t n;
} llm__str;

LLM__UNUSED static llm__str llm__s(const char *p, size_t n) {
    llm__str s;
    s.p = p;
    s.n = n;
    return s;
}

LLM__UNUSED static int llm__str_eq(llm__str a, const char *b) { return a.n == strlen(b) && !memcmp(a.p, b, a.n); }

LLM_API void llm_text_add(llm_text *t, const char *bytes, size_t len) {
    if (t->failed) return;
    if (len > ((size_t)INT64_MAX >> 1) - t->len - 1 || (t->limit && t->len + len > t->limit) || !llm__grow((void **)&t->data, &t->cap, t->len + len + 1, 1)) {
        t->failed = 1;
        return;
    }
    if (len) memcpy(t->data + t->len, bytes, len);
    t->len += len;
    t->data[t->len] = 0;
}

LLM_API void llm_text_str(llm_text *t, const char *zero_terminated) { llm_text_add(t, zero_terminated, strlen(zero_terminated)); }

LLM_API void llm_text_int(llm_text *t, int64_t value) {
    char s[24];
    llm_text_add(t, s, (size_t)snprintf(s, sizeof s, "%lld", (long long)value));
}

LLM_API void llm_text_num(llm_text *t, double value) {
    char s[48];
    int n = llm__format_double(value, s);
    if (value != value || value - value != 0) llm_text_str(t, "null"); /* JSON has no infinity */
    else llm_text_add(t, s, n > 2 && !strcmp(s + n - 2, ".0") ? (size_t)(n - 2) : (size_t)n);
}

LLM_API void llm_text_free(llm_text *t) {
    LLM_FREE(t->data);
    memset(t, 0, sizeof *t);
}

LLM_API void llm_tokens_add(llm_tokens *t, int32_t id) {
    if (t->failed || !llm__grow((void **)&t->data, &t->cap, t->len + 1, sizeof *t->data)) t->failed = 1;
    else t->data[t->len++] = id;
}

LLM_API void llm_tokens_free(llm_tokens *t) {
    LLM_FREE(t->data);
    memset(t, 0, sizeof *t);
}

/* The code point at p, of n > 0 bytes left, and its length in *len. A byte that starts no valid UTF-8 sequence gives -1 and length 1. */
static int32_t llm__utf8_get(const char *p, size_t n, int *len) {
    const uint8_t *s = (const uint8_t *)p;
    *len = 1;
    if (s[0] < 0x80) return s[0];
    int more = s[0] >= 0xF0 ? 3 : s[0] >= 0xE0 ? 2 : 1;
    if (s[0] < 0xC2 || s[0] > 0xF4 || n < (size_t)more + 1) return -1;
    int32_t c = s[0] & (0x3F >> more);
    for (int i = 1; i <= more; i++) {
        if ((s[i] & 0xC0) != 0x80) return -1;
        c = c << 6 | (s[i] & 0x3F);
    }
    if ((more == 2 && (c < 0x800 || (c >= 0xD800 && c < 0xE000))) || (more == 3 && (c < 0x10000 || c > 0x10FFFF))) return -1;
    *len = more + 1;
    return c;
}

/* Writes a code point (at most 4 bytes). Returns its length. */
static int llm__utf8_put(char *out, int32_t c) {
    if (c < 0x80) return out[0] = (char)c, 1;
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t lead[4] = {0, 0xC0, 0xE0, 0xF0};
    for (int i = more; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(lead[more] | c);
    return more + 1;
}

LLM_API void llm_text_json(llm_text *t, const char *bytes, size_t len) {
    llm_text_add(t, "\"", 1);
    for (size_t i = 0, from = 0; i <= len;) {
        int n = 1;
        int32_t c = i < len ? llm__utf8_get(bytes + i, len - i, &n) : 0;
        int plain = i < len && c >= 32 && c != '"' && c != '\\' && c != 127;
        if (plain) {
            i += (size_t)n;
            continue;
        }
        llm_text_add(t, bytes + from, i - from);
        if (i == len) break;
        char s[8];
        const char *short_form = c == '\n' ? "\\n" : c == '"' ? "\\\"" : c == '\\' ? "\\\\" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : NULL;
        if (c < 0) llm_text_str(t, "\xEF\xBF\xBD");
        else if (short_form) llm_text_str(t, short_form);
        else llm_text_add(t, s, (size_t)snprintf(s, sizeof s, "\\u%04x", (unsigned)c));
        i += (size_t)n;
        from = i;
    }
    llm_text_add(t, "\"", 1);
}

/* A hash of bytes, keyed so that files and clients cannot aim for collisions. */
LLM__UNUSED static uint64_t llm__hash(const void *data, size_t n, uint64_t seed) {
    const uint8_t *p = (const uint8_t *)data;
    uint64_t h = seed ^ (n * 0x9E3779B97F4A7C15u);
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = (h ^ v) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    uint64_t v = 0;
    if (n) memcpy(&v, p, n);
    h = (h ^ v) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ (h >> 29);
}

/* From byte strings, which live elsewhere, to numbers. Open addressing, at most 3/4 full. Zero-initialise. */
typedef struct llm__map_slot {
    llm__str key;
    uint32_t hash;
    int32_t value;
} llm__map_slot;

typedef struct llm__map {
    llm__map_slot *slot; /* key.p NULL: free */
    size_t cap, len;     /* cap: 0 or a power of two */
    uint64_t seed;
} llm__map;

LLM__UNUSED static llm__map_slot *llm__map_slot_of(const llm__map *m, llm__str key, uint32_t hash) {
    size_t i = hash & (m->cap - 1);
    while (m->slot[i].key.p && (m->slot[i].hash != hash || m->slot[i].key.n != key.n || memcmp(m->slot[i].key.p, key.p, key.n))) i = (i + 1) & (m->cap - 1);
    return &m->slot[i];
}

/* Makes room for n keys in all. 0: no memory. */
LLM__UNUSED static int llm__map_reserve(llm__map *m, size_t n) {
    size_t cap = 16;
    while (cap / 4 * 3 < n) cap *= 2;
    if (cap <= m->cap) return 1;
    llm__map bigger = *m;
    bigger.cap = cap;
    bigger.slot = LLM__NEW(llm__map_slot, cap);
    if (!bigger.slot) return 0;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slot[i].key.p) *llm__map_slot_of(&bigger, m->slot[i].key, m->slot[i].hash) = m->slot[i];
    LLM_FREE(m->slot);
    *m = bigger;
    return 1;
}

/* The value of a key, or -1. */
LLM__UNUSED static int32_t llm__map_get(const llm__map *m, llm__str key) {
    if (!m->cap) return -1;
    const llm__map_slot *s = llm__map_slot_of(m, key, (uint32_t)llm__hash(key.p, key.n, m->seed));
    return s->key.p ? s->value : -1;
}

/* Adds a key that is not there; 1 added, 0 it was there (kept as it was), -1 no memory. key.p must not be NULL. */
LLM__UNUSED static int llm__map_put(llm__map *m, llm__str key, int32_t value) {
    if (!llm__map_reserve(m, m->len + 1)) return -1;
    uint32_t hash = (uint32_t)llm__hash(key.p, key.n, m->seed);
    llm__map_slot *s = llm__map_slot_of(m, key, hash);
    if (s->key.p) return 0;
    s->key = key;
    s->hash = hash;
    s->value = value;
    m->len++;
    return 1;
}

LLM__UNUSED static void llm__map_free(llm__map *m) {
    LLM_FREE(m->slot);
    memset(m, 0, sizeof *m);
}

/* ============================================================================
 * >>files   Files are mapped, or read where mapping is refused.
 * ============================================================================
 * Only regular files are opened: a FIFO or a device as a model must not hang or fill the memory. */

typedef struct llm__file {
    const uint8_t *data;
    size_t size;
    int mapped;
} llm__file;

static llm_result llm__file_fd(const char *path, struct stat *st, int *fd) {
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*fd < 0) return llm__error(LLM_ERR_IO, "%s: %s", path, errno == ENOENT ? "no such file" : strerror(errno));
    if (!fstat(*fd, st) && S_ISREG(st->st_mode)) return LLM_OK;
    close(*fd);
    return llm__error(LLM_ERR_IO, "%s: not a regular file", path);
}

static llm_result llm__read_all(int fd, const char *path, uint8_t *to, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t got = read(fd, to + at, LLM__MIN(n - at, (size_t)1 << 30));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return llm__error(LLM_ERR_IO, "%s: %s at byte %zu of %zu", path, got ? strerror(errno) : "file ended", at, n);
        at += (size_t)got;
    }
    return LLM_OK;
}

/* Opens a file of at most `limit` bytes (0: any size). On error *out is empty. */
static llm_result llm__file_open(const char *path, size_t limit, int no_mmap, llm__file *out) {
    struct stat st;
    int fd;
    memset(out, 0, sizeof *out);
    llm_result r = llm__file_fd(path, &st, &fd);
    if (r) return r;
    size_t n = (size_t)st.st_size;
    if (limit && n > limit) r = llm__error(LLM_ERR_LIMIT, "%s: %zu bytes, at most %zu expected", path, n, limit);
    if (!r && n && !no_mmap) {
        void *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p != MAP_FAILED) out->data = (const uint8_t *)p, out->mapped = 1;
    }
    if (!r && !out->data) {
        uint8_t *p = (uint8_t *)llm__pages_get(n + 1);
        r = p ? llm__read_all(fd, path, p, n) : llm__error(LLM_ERR_NOMEM, "%s: out of memory for %zu bytes", path, n);
        if (r) llm__pages_free(p, n + 1);
        else out->data = p;
    }
    close(fd);
    if (!r) out->size = n;
    return r;
}

static void llm__file_close(llm__file *f) {
    if (f->mapped) munmap((void *)(uintptr_t)f->data, f->size);
    else if (f->data) llm__pages_free((void *)(uintptr_t)f->data, f->size + 1);
    memset(f, 0, sizeof *f);
}

typedef enum llm__path_kind { LLM__PATH_NONE = 0, LLM__PATH_FILE, LLM__PATH_DIR, LLM__PATH_OTHER } llm__path_kind;

LLM__UNUSED static llm__path_kind llm__path_kind_of(const char *path) {
    struct stat st;
    if (stat(path, &st)) return LLM__PATH_NONE;
    return S_ISREG(st.st_mode) ? LLM__PATH_FILE : S_ISDIR(st.st_mode) ? LLM__PATH_DIR : LLM__PATH_OTHER;
}

/* folder/name as a new string, or NULL without memory. */
LLM__UNUSED static char *llm__path_join(const char *folder, const char *name) {
    llm_text t;
    memset(&t, 0, sizeof t);
    llm_text_str(&t, folder);
    if (t.len && t.data[t.len - 1] != '/') llm_text_str(&t, "/");
    llm_text_str(&t, name);
    if (t.failed) llm_text_free(&t);
    return t.data;
}

/* ============================================================================
 * >>threads   A pool that spins between short jobs and sleeps between long pauses.
 * ============================================================================
 * run() hands one function to all threads (the caller is number 0) and returns when all are done; inside it, barrier() makes them meet.
 * A step of a small model has hundreds of such meetings, each worth well under a microsecond, so waiting threads spin; after 20,000 turns
 * they yield (another process may want the core), and between jobs, after about a millisecond, they sleep on a condition variable. */

typedef struct llm__pool llm__pool;
typedef void (*llm__pool_fn)(void *arg, int thread, int n_threads);

typedef struct llm__pool_worker {
    llm__pool *pool;
    pthread_t thread;
    int id;
} llm__pool_worker;

struct llm__pool {
    int n;                  /* threads, the caller's included */
    void *memory;           /* what was allocated: the struct stands in it, aligned */
    llm__pool_worker *worker;
    llm__pool_fn fn;
    void *arg;
    int stop;
    int sleepers;           /* guarded by mutex */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    int job __attribute__((aligned(64)));      /* counts jobs: a change starts one */
    int arrived __attribute__((aligned(64)));  /* of the barrier */
    int turn __attribute__((aligned(64)));
};

LLM__INLINE void llm__relax(void) {
#if LLM__X86
    _mm_pause();
#elif LLM__NEON
    __asm__ volatile("yield");
#endif
}

/* Waits until *at is no longer `old`: spins, then yields. Gives up after `turns` (0: never); 1 when it changed. */
static int llm__spin_while(const int *at, int old, int turns) {
    for (int i = 0; __atomic_load_n(at, __ATOMIC_ACQUIRE) == old; i++) {
        if (turns && i >= turns) return 0;
        if (i < 20000) llm__relax();
        else sched_yield();
    }
    return 1;
}

/* Every thread of the running job calls it; none goes on before all have. */
LLM__UNUSED static void llm__pool_barrier(llm__pool *p) {
    if (p->n == 1) return;
    int turn = __atomic_load_n(&p->turn, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&p->arrived, 1, __ATOMIC_ACQ_REL) == p->n) {
        __atomic_store_n(&p->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&p->turn, turn + 1, __ATOMIC_RELEASE);
    } else {
        llm__spin_while(&p->turn, turn, 0);
    }
}

static void *llm__pool_main(void *arg) {
    llm__pool_worker *w = (llm__pool_worker *)arg;
    llm__pool *p = w->pool;
    for (int seen = 0;; seen++) {
        if (!llm__spin_while(&p->job, seen, 30000)) {
            pthread_mutex_lock(&p->mutex);
            p->sleepers++;
            while (__atomic_load_n(&p->job, __ATOMIC_ACQUIRE) == seen) pthread_cond_wait(&p->wake, &p->mutex);
            p->sleepers--;
            pthread_mutex_unlock(&p->mutex);
        }
        if (p->stop) return NULL;
        p->fn(p->arg, w->id, p->n);
        llm__pool_barrier(p);
    }
}

static void llm__pool_start(llm__pool *p) {
    pthread_mutex_lock(&p->mutex);
    __atomic_add_fetch(&p->job, 1, __ATOMIC_ACQ_REL);
    if (p->sleepers) pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
}

/* Runs fn on all threads; returns when all are done. One caller at a time. */
LLM__UNUSED static void llm__pool_run(llm__pool *p, llm__pool_fn fn, void *arg) {
    if (p->n > 1) {
        p->fn = fn;
        p->arg = arg;
        llm__pool_start(p);
    }
    fn(arg, 0, p->n);
    llm__pool_barrier(p);
}

LLM__UNUSED static void llm__pool_close(llm__pool *p) {
    if (!p) return;
    p->stop = 1;
    llm__pool_start(p);
    for (int i = 1; i < p->n; i++) pthread_join(p->worker[i].thread, NULL);
    pthread_mutex_destroy(&p->mutex);
    pthread_cond_destroy(&p->wake);
    LLM_FREE(p->worker);
    LLM_FREE(p->memory);
}

/* Cores this process may use. */
LLM__UNUSED static int llm__cores(void) {
#ifdef CPU_COUNT
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return LLM__MAX(1, CPU_COUNT(&set));
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

/* A pool of n threads; fewer where the system refuses more. NULL: no memory. */
LLM__UNUSED static llm__pool *llm__pool_open(int n) {
    void *memory = llm__calloc(1, sizeof(llm__pool) + 64);
    if (!memory) return NULL;
    llm__pool *p = (llm__pool *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
    p->memory = memory;
    p->worker = LLM__NEW(llm__pool_worker, n);
    if (!p->worker) {
        LLM_FREE(memory);
        return NULL;
    }
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->n = n; /* workers read it only after the first job */
    for (int i = 1; i < n; i++) {
        p->worker[i].pool = p;
        p->worker[i].id = i;
        if (pthread_create(&p->worker[i].thread, NULL, llm__pool_main, &p->worker[i])) p->n = n = i;
    }
    return p;
}

/* ============================================================================
 * >>json   JSON, strictly RFC 8259.
 * ============================================================================
 * jsmn makes the tokens. It lets much pass that is not JSON and refuses a lone top-level number, so a validator of our own reads the text first: one
 * loop without recursion that checks syntax, UTF-8, escapes, surrogates and depth, and counts the tokens, so that the token array
 * is allocated once at its exact size. What jsmn then sees is known to be JSON. Strings are decoded in place in our copy of the text
 * and end in NUL; skip[i] is the index after node i's subtree, so stepping over a big value is one look-up. */

#ifndef LLM_JSMN_H
#define LLM_JSMN_H <jsmn.h>
#endif
#if defined(JSMN_H) && !defined(JSMN_PARENT_LINKS)
#error "llm.h: jsmn.h was included before without JSMN_PARENT_LINKS; include llm.h first or define JSMN_STATIC, JSMN_STRICT and JSMN_PARENT_LINKS before it"
#endif
#ifndef JSMN_H
#define JSMN_STATIC
#define JSMN_STRICT
#define JSMN_PARENT_LINKS
#ifdef __has_include
#if !__has_include(LLM_JSMN_H)
#error "llm.h: jsmn.h is missing: run make deps, install libjsmn-dev, or define LLM_JSMN_H as its path in quotes"
#endif
#endif
#include LLM_JSMN_H
#endif

struct llm_json {
    char *text;
    jsmntok_t *tok;
    uint32_t *skip;
    int n;
};

typedef struct llm__json_check {
    const char *s;
    size_t n, at;
    int64_t tokens, max_tokens;
    const char *what; /* of the error: what was expected */
} llm__json_check;

static int llm__json_bad(llm__json_check *c, const char *expected) {
    c->what = expected;
    return 0;
}

static void llm__json_space(llm__json_check *c) {
    while (c->at < c->n && (c->s[c->at] == ' ' || c->s[c->at] == '\n' || c->s[c->at] == '\r' || c->s[c->at] == '\t')) c->at++;
}

/* The value of four hexadecimal digits, or -1. */
static int32_t llm__hex4(const char *s, size_t n) {
    int32_t v = 0;
    if (n < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int c = s[i], low = c | 32;
        if (c >= '0' && c <= '9') v = v * 16 + c - '0';
        else if (low >= 'a' && low <= 'f') v = v * 16 + low - 'a' + 10;
        else return -1;
    }
    return v;
}

static int llm__json_check_escape(llm__json_check *c) { /* at the backslash */
    if (c->at + 1 >= c->n) return llm__json_bad(c, "an escape");
    char e = c->s[c->at + 1];
    if (e != 'u') {
        if (!e || !strchr("\"\\/bfnrt", e)) return llm__json_bad(c, "an escape that JSON has");
        c->at += 2;
        return 1;
    }
    int32_t v = llm__hex4(c->s + c->at + 2, c->n - c->at - 2);
    if (v < 0) return llm__json_bad(c, "four hexadecimal digits");
    if (v >= 0xDC00 && v < 0xE000) return llm__json_bad(c, "a high surrogate first");
    c->at += 6;
    if (v < 0xD800 || v >= 0xE000) return 1;
    if (c->n - c->at < 6 || c->s[c->at] != '\\' || c->s[c->at + 1] != 'u') return llm__json_bad(c, "a low surrogate");
    v = llm__hex4(c->s + c->at + 2, 4);
    if (v < 0xDC00 || v >= 0xE000) return llm__json_bad(c, "a low surrogate");
    c->at += 6;
    return 1;
}

static int llm__json_check_string(llm__json_check *c) {
    if (c->at >= c->n || c->s[c->at] != '"') return llm__json_bad(c, "a string");
    c->at++;
    c->tokens++;
    while (c->at < c->n) {
        unsigned char b = (unsigned char)c->s[c->at];
        if (b == '"') return c->at++, 1;
        if (b < 32) return llm__json_bad(c, "no control character in a string");
        if (b == '\\') {
            if (!llm__json_check_escape(c)) return 0;
        } else if (b < 128) {
            c->at++;
        } else {
            int len;
            if (llm__utf8_get(c->s + c->at, c->n - c->at, &len) < 0) return llm__json_bad(c, "valid UTF-8");
            c->at += (size_t)len;
        }
    }
    return llm__json_bad(c, "the end of a string");
}

static int llm__json_digits(llm__json_check *c) {
    size_t from = c->at;
    while (c->at < c->n && c->s[c->at] >= '0' && c->s[c->at] <= '9') c->at++;
    return c->at > from;
}

static int llm__json_check_number(llm__json_check *c) {
    c->tokens++;
    c->at += c->s[c->at] == '-';
    if (c->at < c->n && c->s[c->at] == '0') c->at++;
    else if (!llm__json_digits(c)) return llm__json_bad(c, "a value");
    if (c->at < c->n && c->s[c->at] == '.') {
        c->at++;
        if (!llm__json_digits(c)) return llm__json_bad(c, "digits after the point");
    }
    if (c->at < c->n && (c->s[c->at] | 32) == 'e') {
        c->at++;
        if (c->at < c->n && (c->s[c->at] == '+' || c->s[c->at] == '-')) c->at++;
        if (!llm__json_digits(c)) return llm__json_bad(c, "digits of an exponent");
    }
    return 1;
}

static int llm__json_check_scalar(llm__json_check *c) {
    static const char *const word[3] = {"true", "false", "null"};
    if (c->at < c->n && c->s[c->at] == '"') return llm__json_check_string(c);
    for (int i = 0; i < 3; i++) {
        size_t len = strlen(word[i]);
        if (c->n - c->at < len || memcmp(c->s + c->at, word[i], len)) continue;
        c->at += len;
        c->tokens++;
        return 1;
    }
    if (c->at >= c->n) return llm__json_bad(c, "a value");
    return llm__json_check_number(c);
}

/* The key and colon before a member's value. */
static int llm__json_check_key(llm__json_check *c) {
    llm__json_space(c);
    if (!llm__json_check_string(c)) return 0;
    llm__json_space(c);
    if (c->at >= c->n || c->s[c->at] != ':') return llm__json_bad(c, "':'");
    c->at++;
    return 1;
}

/* One document. `stack` holds max_depth bytes. */
static int llm__json_check_all(llm__json_check *c, char *stack, int max_depth) {
    int depth = 0;
    for (;;) {
        llm__json_space(c);
        if (c->tokens > c->max_tokens) return llm__json_bad(c, "fewer values");
        char b = c->at < c->n ? c->s[c->at] : 0;
        if (b == '[' || b == '{') {
            if (depth == max_depth) return llm__json_bad(c, "shallower nesting");
            stack[depth++] = b == '[' ? ']' : '}';
            c->tokens++;
            c->at++;
            llm__json_space(c);
            int empty = c->at < c->n && c->s[c->at] == stack[depth - 1];
            if (!empty && b == '{' && !llm__json_check_key(c)) return 0;
            if (!empty) continue;
        } else if (!llm__json_check_scalar(c)) {
            return 0;
        }
        for (;;) { /* after a value: close, or go on to the next */
            llm__json_space(c);
            if (!depth) return c->at == c->n ? 1 : llm__json_bad(c, "the end of the text");
            b = c->at < c->n ? c->s[c->at] : 0;
            if (b == stack[depth - 1]) {
                c->at++;
                depth--;
                continue;
            }
            if (b != ',') return llm__json_bad(c, stack[depth - 1] == ']' ? "',' or ']'" : "',' or '}'");
            c->at++;
            if (stack[depth - 1] == '}' && !llm__json_check_key(c)) return 0;
            break;
        }
    }
}

/* Decodes the escapes of n valid bytes in place. Returns the new length. */
static size_t llm__json_unescape(char *s, size_t n) {
    size_t to = 0;
    for (size_t i = 0; i < n;) {
        if (s[i] != '\\') {
            s[to++] = s[i++];
            continue;
        }
        char e = s[i + 1];
        i += 2;
        if (e != 'u') {
            s[to++] = e == 'b' ? '\b' : e == 'f' ? '\f' : e == 'n' ? '\n' : e == 'r' ? '\r' : e == 't' ? '\t' : e;
            continue;
        }
        int32_t c = llm__hex4(s + i, 4);
        i += 4;
        if (c >= 0xD800 && c < 0xDC00) {
            c = 0x10000 + ((c - 0xD800) << 10) + (llm__hex4(s + i + 2, 4) - 0xDC00);
            i += 6;
        }
        to += (size_t)llm__utf8_put(s + to, c);
    }
    return to;
}

static llm_result llm__json_unique(const llm_json *d) {
    for (int i = 0; i < d->n; i++) {
        if (d->tok[i].type != JSMN_OBJECT || !d->tok[i].size) continue;
        llm__map seen;
        memset(&seen, 0, sizeof seen);
        seen.seed = (uint64_t)(uintptr_t)d ^ (uint64_t)(llm__now() * 1e9);
        llm_result r = d->tok[i].size > 4096 ? llm__error(LLM_ERR_LIMIT, "JSON: an object has %d keys, at most 4096 expected", d->tok[i].size) : LLM_OK;
        for (int v = llm_json_first(d, i); !r && v >= 0; v = llm_json_next(d, v)) {
            llm__str key;
            key.p = llm_json_key(d, v, &key.n);
            int put = llm__map_put(&seen, key, v);
            if (put <= 0) r = put ? llm__nomem() : llm__error(LLM_ERR_FORMAT, "JSON: duplicate key \"%.*s\"", (int)LLM__MIN(key.n, (size_t)64), key.p);
        }
        llm__map_free(&seen);
        if (r) return r;
    }
    return LLM_OK;
}

/* Tokens of checked text, by jsmn; decodes the strings. */
static llm_result llm__json_tokens(llm_json *d, size_t len, int64_t count) {
    jsmn_parser parser;
    jsmn_init(&parser);
    d->n = (int)count;
    d->tok = LLM__NEW(jsmntok_t, count);
    d->skip = LLM__NEW(uint32_t, count);
    if (!d->tok || !d->skip) return llm__nomem();
    char first = 0;
    for (size_t i = 0; !first; i++)
        if (!strchr(" \t\r\n", d->text[i])) first = d->text[i];
    if (first != '[' && first != '{' && first != '"') { /* what strict jsmn refuses: a lone number, true, false or null */
        size_t from = strspn(d->text, " \t\r\n"), to = len;
        while (to > from && strchr(" \t\r\n", d->text[to - 1])) to--;
        d->tok[0].type = JSMN_PRIMITIVE;
        d->tok[0].start = (int)from;
        d->tok[0].end = (int)to;
        d->tok[0].parent = -1;
    } else if (jsmn_parse(&parser, d->text, len, d->tok, (unsigned)count) != (int)count) {
        return llm__error(LLM_ERR_FORMAT, "JSON: cannot be read");
    }
    for (int i = d->n - 1; i >= 0; i--) {
        jsmntok_t *t = &d->tok[i];
        d->skip[i] = LLM__MAX(d->skip[i], (uint32_t)i + 1);
        if (t->parent >= 0) d->skip[t->parent] = LLM__MAX(d->skip[t->parent], d->skip[i]);
        if (t->type != JSMN_STRING) continue;
        size_t n = (size_t)(t->end - t->start);
        if (memchr(d->text + t->start, '\\', n)) t->end = t->start + (int)llm__json_unescape(d->text + t->start, n);
        d->text[t->end] = 0;
    }
    return LLM_OK;
}

LLM_API llm_result llm_json_parse(const char *text, size_t len, const llm_json_limits *limits, llm_json **out) {
    int max_depth = limits && limits->max_depth > 0 ? LLM__MIN(limits->max_depth, 4096) : 512;
    char stack[4096];
    llm__json_check c;
    memset(&c, 0, sizeof c);
    *out = NULL;
    if (len > (size_t)INT32_MAX - 1) return llm__error(LLM_ERR_LIMIT, "JSON: %zu bytes, at most 2 GiB expected", len);
    c.s = text;
    c.n = len;
    c.max_tokens = limits && limits->max_tokens > 0 ? limits->max_tokens : 64 << 20;
    if (!llm__json_check_all(&c, stack, max_depth)) {
        if (!strcmp(c.what, "shallower nesting")) return llm__error(LLM_ERR_LIMIT, "JSON: byte %zu: nesting deeper than %d", c.at, max_depth);
        return llm__error(c.tokens > c.max_tokens ? LLM_ERR_LIMIT : LLM_ERR_FORMAT, "JSON: byte %zu: %s expected", c.at, c.what);
    }
    llm_json *d = LLM__NEW(llm_json, 1);
    if (!d) return llm__nomem();
    d->text = llm__strndup(text, len);
    llm_result r = d->text ? llm__json_tokens(d, len, c.tokens) : llm__nomem();
    if (!r && limits && limits->unique_keys) r = llm__json_unique(d);
    if (r) llm_json_free(d);
    else *out = d;
    return r;
}

LLM_API void llm_json_free(llm_json *doc) {
    if (!doc) return;
    LLM_FREE(doc->text);
    LLM_FREE(doc->tok);
    LLM_FREE(doc->skip);
    LLM_FREE(doc);
}

LLM_API llm_json_type llm_json_type_of(const llm_json *doc, int node) {
    if (!doc || node < 0) return LLM_JSON_ABSENT;
    const jsmntok_t *t = &doc->tok[node];
    if (t->type == JSMN_OBJECT) return LLM_JSON_OBJECT;
    if (t->type == JSMN_ARRAY) return LLM_JSON_ARRAY;
    if (t->type == JSMN_STRING) return LLM_JSON_STRING;
    char c = doc->text[t->start];
    return c == 'n' ? LLM_JSON_NULL : c == 't' || c == 'f' ? LLM_JSON_BOOL : LLM_JSON_NUMBER;
}

LLM_API int llm_json_size(const llm_json *doc, int node) {
    return doc && node >= 0 && (doc->tok[node].type == JSMN_OBJECT || doc->tok[node].type == JSMN_ARRAY) ? doc->tok[node].size : 0;
}

LLM_API int llm_json_first(const llm_json *doc, int node) {
    if (!llm_json_size(doc, node)) return -1;
    return doc->tok[node].type == JSMN_OBJECT ? node + 2 : node + 1;
}

/* The key token of a member's value, or -1. */
static int llm__json_key_of(const llm_json *doc, int node) {
    int p = node > 0 ? doc->tok[node].parent : -1;
    return p >= 0 && doc->tok[p].type == JSMN_STRING ? p : -1;
}

LLM_API int llm_json_next(const llm_json *doc, int node) {
    if (node <= 0) return -1;
    int key = llm__json_key_of(doc, node), parent = doc->tok[key >= 0 ? key : node].parent;
    uint32_t s = doc->skip[node];
    if (parent < 0 || s >= doc->skip[parent]) return -1;
    return (int)s + (key >= 0);
}

LLM_API const char *llm_json_key(const llm_json *doc, int node, size_t *len) {
    int key = llm__json_key_of(doc, node);
    if (len) *len = key >= 0 ? (size_t)(doc->tok[key].end - doc->tok[key].start) : 0;
    return key >= 0 ? doc->text + doc->tok[key].start : NULL;
}

LLM_API int llm_json_find(const llm_json *doc, int object, const char *key) {
    size_t want = strlen(key), len;
    if (llm_json_type_of(doc, object) != LLM_JSON_OBJECT) return -1;
    for (int v = llm_json_first(doc, object); v >= 0; v = llm_json_next(doc, v)) {
        const char *k = llm_json_key(doc, v, &len);
        if (len == want && !memcmp(k, key, len)) return v;
    }
    return -1;
}

LLM_API const char *llm_json_str(const llm_json *doc, int node, size_t *len) {
    int is = llm_json_type_of(doc, node) == LLM_JSON_STRING;
    if (len) *len = is ? (size_t)(doc->tok[node].end - doc->tok[node].start) : 0;
    return is ? doc->text + doc->tok[node].start : NULL;
}

LLM_API const char *llm_json_raw(const llm_json *doc, int node, size_t *len) {
    int is = node >= 0 && doc->tok[node].type == JSMN_PRIMITIVE;
    if (len) *len = is ? (size_t)(doc->tok[node].end - doc->tok[node].start) : 0;
    return is ? doc->text + doc->tok[node].start : NULL;
}

LLM_API int llm_json_num(const llm_json *doc, int node, double *out) {
    size_t n;
    if (llm_json_type_of(doc, node) != LLM_JSON_NUMBER) return 0;
    const char *s = llm_json_raw(doc, node, &n);
    double d;
    if (!llm__parse_double(s, n, &d) || d - d != 0) return 0;
    *out = d;
    return 1;
}

LLM_API int llm_json_int(const llm_json *doc, int node, int64_t *out) {
    size_t n;
    double d;
    if (llm_json_type_of(doc, node) != LLM_JSON_NUMBER) return 0;
    const char *s = llm_json_raw(doc, node, &n);
    if (llm__parse_int(s, n, out)) return 1;
    if (!llm__parse_double(s, n, &d) || d != floor(d) || fabs(d) > 9007199254740992.0 || !memchr(s, '.', n) || memchr(s, 'e', n) || memchr(s, 'E', n)) return 0;
    *out = (int64_t)d;
    return 1;
}

LLM_API int llm_json_bool(const llm_json *doc, int node, int *out) {
    if (llm_json_type_of(doc, node) != LLM_JSON_BOOL) return 0;
    *out = doc->text[doc->tok[node].start] == 't';
    return 1;
}

LLM_API void llm_json_write(const llm_json *doc, int node, llm_text *out) {
    if (node < 0) return;
    uint32_t end = doc->skip[node];
    /* Nodes stand in text order: a node first closes every open container that is not its parent. */
    int open = node;
    for (int i = node; i < (int)end; i++) {
        const jsmntok_t *t = &doc->tok[i];
        int is_key = t->type == JSMN_STRING && t->size == 1, key = llm__json_key_of(doc, i), parent = key >= 0 ? key : t->parent;
        if (i > node && key < 0) {
            while (open != parent) {
                llm_text_add(out, doc->tok[open].type == JSMN_OBJECT ? "}" : "]", 1);
                open = llm__json_key_of(doc, open) >= 0 ? doc->tok[llm__json_key_of(doc, open)].parent : doc->tok[open].parent;
            }
            if (i != parent + 1) llm_text_add(out, ",", 1);
        }
        if (t->type == JSMN_OBJECT || t->type == JSMN_ARRAY) {
            llm_text_add(out, t->type == JSMN_OBJECT ? "{" : "[", 1);
            if (t->size) open = i;
            else llm_text_add(out, t->type == JSMN_OBJECT ? "}" : "]", 1);
        } else if (t->type == JSMN_STRING) {
            llm_text_json(out, doc->text + t->start, (size_t)(t->end - t->start));
            if (is_key) llm_text_add(out, ":", 1);
        } else {
            llm_text_add(out, doc->text + t->start, (size_t)(t->end - t->start));
        }
    }
    for (;; open = llm__json_key_of(doc, open) >= 0 ? doc->tok[llm__json_key_of(doc, open)].parent : doc->tok[open].parent) {
        if (doc->tok[open].type != JSMN_OBJECT && doc->tok[open].type != JSMN_ARRAY) break;
        if (doc->tok[open].size) llm_text_add(out, doc->tok[open].type == JSMN_OBJECT ? "}" : "]", 1);
        if (open == node) break;
    }
}

/* Reads a whole file as JSON. */
LLM__UNUSED static llm_result llm__json_file(const char *path, size_t limit, llm_json **out) {
    llm__file f;
    *out = NULL;
    llm_result r = llm__file_open(path, limit, 0, &f);
    if (r) return r;
    r = llm_json_parse((const char *)f.data, f.size, NULL, out);
    llm__file_close(&f);
    if (r) {
        char why[900];
        snprintf(why, sizeof why, "%.899s", llm_last_error());
        return llm__error(r, "%s: %s", path, why);
    }
    return LLM_OK;
}

/* ============================================================================
 * >>unicode
 * ============================================================================ */
/* ---- section: unicode, regex, tokenizer (begin) ---- */
/* ---- section: unicode, regex, tokenizer (end) ---- */

/* ============================================================================
 * >>template
 * ============================================================================ */
/* ---- section: template, chat (begin) ---- */

typedef enum llm__vtype {
    LLM__V_UNSET = 0, /* an optional argument that was not given */
    LLM__V_UNDEF,     /* jinja2's Undefined; s: the name it was looked up by */
    LLM__V_NONE, LLM__V_BOOL, LLM__V_INT,
    LLM__V_BIG,       /* a whole number that does not fit 64 bits; s: its digits */
    LLM__V_FLOAT,
    LLM__V_STR,       /* valid UTF-8; flag 1: marked safe */
    LLM__V_LIST,
    LLM__V_TUPLE,     /* flag 1: of groupby */
    LLM__V_VIEW,      /* keys(), values() (flag 1) or items() (flag 2) of a dict */
    LLM__V_GEN,       /* a generator: a list that can be walked once */
    LLM__V_RANGE,     /* list of start, stop, step */
    LLM__V_DICT, LLM__V_NAMESPACE, LLM__V_MACRO,
    LLM__V_FUNC,      /* an entry of a table of functions, bound to a value */
    LLM__V_LOOP, LLM__V_CYCLER, LLM__V_JOINER
} llm__vtype;

/* A value: 16 bytes, never changed once made. What it points to lives in the arena of the render (constants: of the template). */
typedef struct llm__val {
    uint8_t type, flag;
    uint32_t n; /* bytes of a text or name */
    union {
        int64_t i;
        double f;
        const char *s;
        struct llm__vlist *list;
        struct llm__vdict *dict;
        struct llm__vloop *loop;
        struct llm__vmacro *macro;
        struct llm__vbound *bound;
    } as;
} llm__val;

typedef struct llm__vlist {
    llm__val *v;
    int32_t n, cap;
    int32_t at; /* of a generator: consumed; of a cycler or joiner: calls so far */
} llm__vlist;

typedef struct llm__vpair {
    llm__val key, value;
    uint32_t hash;
} llm__vpair;

typedef struct llm__vdict {
    llm__vpair *e; /* in the order of insertion */
    int32_t n, cap;
} llm__vdict;

typedef enum llm__node_kind {
    LLM__N_CONST, LLM__N_NAME, LLM__N_LIST, LLM__N_TUPLE, LLM__N_DICT, LLM__N_UNARY, LLM__N_BINARY, LLM__N_AND, LLM__N_OR, LLM__N_CONCAT,
    LLM__N_COMPARE, LLM__N_COND, LLM__N_ATTR, LLM__N_ITEM, LLM__N_SLICE, LLM__N_CALL, LLM__N_FILTER, LLM__N_TEST, LLM__N_ARG,
    LLM__N_DATA, LLM__N_PRINT, LLM__N_IF, LLM__N_FOR, LLM__N_SET, LLM__N_SET_BLOCK, LLM__N_MACRO, LLM__N_CALL_BLOCK, LLM__N_FILTER_BLOCK,
    LLM__N_WITH, LLM__N_SCOPE, LLM__N_BREAK, LLM__N_CONTINUE
} llm__node_kind;

/* What a, b, c and d are stands where the parser makes the node; lists hang together by `next`. */
typedef struct llm__node {
    uint8_t kind, op;
    int32_t line, name; /* name: id of a variable */
    struct llm__node *a, *b, *c, *d, *next;
    const struct llm__tpl_entry *entry; /* of a filter or test; NULL: not known, an error when it is reached */
    llm__val v;
} llm__node;

/* Variables of one scope; a name is looked up from the innermost outwards, then in the context, then among the global functions. */
typedef struct llm__scope {
    struct llm__scope *up;
    int32_t *name;
    llm__val *v;
    int32_t n, cap;
} llm__scope;

typedef struct llm__vmacro {
    const llm__node *def;
    llm__scope *scope; /* where it was defined */
} llm__vmacro;

typedef struct llm__vbound {
    const struct llm__tpl_entry *entry;
    llm__val self;
} llm__vbound;

typedef struct llm__vloop {
    llm__vlist *items;
    int32_t at;
    llm__val changed; /* UNSET: changed() was not called yet */
} llm__vloop;

struct llm_template {
    llm__arena arena;
    llm__node *body;
    llm__map names;      /* of variables, to their ids */
    llm__str *name;      /* (n_names) */
    int32_t n_names, loop_name; /* loop_name: id of "loop"; -1: not used */
    size_t cap_names;
};

/* One render. After the first error `err` is set, every function returns at once, and every value is UNDEF. */
typedef struct llm__tpl {
    const llm_template *t;
    const llm_render_options *options;
    llm__arena arena;
    llm_text text;     /* the output so far; what is being captured (macros, set blocks, texts being built) stands at its end */
    llm__scope *scope;
    llm__val *context; /* (n_names) */
    int64_t fuel;
    int depth, calls;
    int32_t line;
    llm_result err;
    int err_line;
    char message[400];
} llm__tpl;

/* Arguments of a call: first those by position, then those by name. */
typedef struct llm__args {
    llm__val *v;
    llm__str *name;
    int n, n_pos;
} llm__args;

/* A filter, test, method or function. `spec`: the names of its parameters in order, "!" after one that must be given; they come in `a`,
 * UNSET where not given. NULL: the arguments come in g as they were written. */
typedef struct llm__tpl_entry {
    const char *name, *spec;
    llm__val (*fn)(llm__tpl *x, llm__val self, llm__val *a, const llm__args *g);
} llm__tpl_entry;

enum { LLM__TPL_DEPTH = 128, LLM__TPL_EVAL_DEPTH = 1500, LLM__TPL_CALLS = 64, LLM__TPL_RANGE = 100000, LLM__TPL_MAX_ARGS = 12 };

/* ---- errors and limits ---- */

__attribute__((format(printf, 3, 4))) static llm__val llm__tpl_error(llm__tpl *x, llm_result r, const char *format, ...) {
    llm__val v;
    memset(&v, 0, sizeof v);
    v.type = LLM__V_UNDEF;
    if (x->err) return v;
    va_list args;
    va_start(args, format);
    vsnprintf(x->message, sizeof x->message, format, args);
    va_end(args);
    x->err = r;
    x->err_line = x->line;
    return v;
}

#define llm__tpl_fail(x, ...) llm__tpl_error(x, LLM_ERR_TEMPLATE, __VA_ARGS__)

/* Pays for n units of work; 0 when the fuel is spent or an error stands. */
static int llm__tpl_spend(llm__tpl *x, int64_t n) {
    if (x->err) return 0;
    x->fuel -= n;
    if (x->fuel < 0) llm__tpl_error(x, LLM_ERR_LIMIT, "the template takes too many steps");
    return !x->err;
}

static void *llm__tpl_get(llm__tpl *x, size_t bytes) {
    void *p = x->err ? NULL : llm__arena_get(&x->arena, bytes);
    if (!p && !x->err) llm__tpl_error(x, LLM_ERR_LIMIT, "the template takes too much memory");
    return p;
}

/* ---- making values ---- */

static llm__val llm__v(llm__vtype type) {
    llm__val v;
    memset(&v, 0, sizeof v);
    v.type = (uint8_t)type;
    return v;
}

static llm__val llm__v_bool(int b) {
    llm__val v = llm__v(LLM__V_BOOL);
    v.as.i = b != 0;
    return v;
}

static llm__val llm__v_int(int64_t i) {
    llm__val v = llm__v(LLM__V_INT);
    v.as.i = i;
    return v;
}

static llm__val llm__v_float(double f) {
    llm__val v = llm__v(LLM__V_FLOAT);
    v.as.f = f;
    return v;
}

/* A text that lives long enough already. */
static llm__val llm__v_text(llm__vtype type, const char *s, size_t n) {
    llm__val v = llm__v(type);
    v.as.s = s;
    v.n = (uint32_t)n;
    return v;
}

static llm__val llm__v_str(const char *s, size_t n) { return llm__v_text(LLM__V_STR, s, n); }
static llm__val llm__v_undef(const char *name) { return llm__v_text(LLM__V_UNDEF, name, strlen(name)); }
static llm__str llm__v_s(llm__val v) { return llm__s(v.n ? v.as.s : "", v.n); }

/* A copy of a text. */
static llm__val llm__tpl_copy(llm__tpl *x, const char *s, size_t n) {
    char *p = llm__tpl_spend(x, (int64_t)(n / 64)) ? (char *)llm__tpl_get(x, n + 1) : NULL;
    if (!p) return llm__v(LLM__V_UNDEF);
    if (n) memcpy(p, s, n);
    return llm__v_str(p, n);
}

static llm__val llm__v_list(llm__vtype type, llm__vlist *list) {
    llm__val v = llm__v(list ? type : LLM__V_UNDEF);
    v.as.list = list;
    return v;
}

/* An empty list with room for n values; NULL after an error. */
static llm__vlist *llm__tpl_list(llm__tpl *x, int64_t n) {
    if (n > (1 << 26)) n = 1 << 26; /* cannot be reached with this many units of fuel */
    llm__vlist *l = llm__tpl_spend(x, n / 4) ? (llm__vlist *)llm__tpl_get(x, sizeof *l) : NULL;
    if (!l) return NULL;
    l->v = n ? (llm__val *)llm__tpl_get(x, (size_t)n * sizeof *l->v) : NULL;
    l->cap = (int32_t)n;
    return x->err ? NULL : l;
}

static void llm__tpl_push(llm__tpl *x, llm__vlist *l, llm__val v) {
    if (!l || !llm__tpl_spend(x, 1)) return;
    if (l->n == l->cap) {
        int32_t cap = l->cap ? l->cap * 2 : 4;
        llm__val *p = (llm__val *)llm__tpl_get(x, (size_t)cap * sizeof *p);
        if (!p) return;
        if (l->n) memcpy(p, l->v, (size_t)l->n * sizeof *p);
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = v;
}

static llm__val llm__tpl_pair(llm__tpl *x, llm__vtype type, llm__val a, llm__val b) {
    llm__vlist *l = llm__tpl_list(x, 2);
    llm__tpl_push(x, l, a);
    llm__tpl_push(x, l, b);
    return llm__v_list(type, l);
}

static const char *llm__v_type_name(llm__val v) {
    static const char *const name[] = {"missing", "undefined", "NoneType", "bool", "int", "int", "float", "str", "list", "tuple", "dict view",
                                       "generator", "range", "dict", "namespace", "macro", "function", "loop", "cycler", "joiner"};
    return name[v.type];
}

/* ---- texts: UTF-8 by code points, the classes of Python's str ---- */

/* Python's str.isspace for one code point. */
static int llm__tpl_space(int32_t c) {
    if (c < 128) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static int32_t llm__tpl_lower(int32_t c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }
static int32_t llm__tpl_upper(int32_t c) { return c >= 'a' && c <= 'z' ? c - 32 : c; }
static int llm__tpl_alpha(int32_t c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }
static int llm__tpl_digit(int32_t c) { return c >= '0' && c <= '9'; }
static int llm__tpl_digit_of(int32_t c) { return llm__tpl_digit(c); }
static int llm__tpl_printable(int32_t c) { return c >= 32 && !(c >= 127 && c <= 160) && c != 0xAD && !(c > 160 && llm__tpl_space(c)); }

/* The number of code points. */
static int64_t llm__tpl_chars(llm__str s) {
    int64_t n = 0;
    for (size_t i = 0; i < s.n; i++) n += ((uint8_t)s.p[i] & 0xC0) != 0x80;
    return n;
}

/* The byte at which code point k starts (the end if there are fewer). */
static size_t llm__tpl_byte_of(llm__str s, int64_t k) {
    size_t i = 0;
    for (; i < s.n; i++)
        if (((uint8_t)s.p[i] & 0xC0) != 0x80 && k-- == 0) break;
    return i;
}

/* Where `needle` first (step 1) or last (step -1) stands in s, or -1. */
static int64_t llm__tpl_find(llm__str s, llm__str needle, int step) {
    if (needle.n > s.n) return -1;
    int64_t last = (int64_t)(s.n - needle.n);
    for (int64_t i = step > 0 ? 0 : last; i >= 0 && i <= last; i += step) {
        if (needle.n == 0 || (s.p[i] == needle.p[0] && !memcmp(s.p + i, needle.p, needle.n))) return i;
    }
    return -1;
}

/* Without the white space, or the code points in `set` (when set.p), at its ends: sides 1 left, 2 right, 3 both. */
static llm__str llm__tpl_strip(llm__str s, llm__str set, int sides) {
    int len;
    while ((sides & 1) && s.n) {
        int32_t c = llm__utf8_get(s.p, s.n, &len);
        if (set.p ? llm__tpl_find(set, llm__s(s.p, (size_t)len), 1) < 0 : !llm__tpl_space(c)) break;
        s.p += len;
        s.n -= (size_t)len;
    }
    while ((sides & 2) && s.n) {
        size_t at = s.n - 1;
        while (at && ((uint8_t)s.p[at] & 0xC0) == 0x80) at--;
        int32_t c = llm__utf8_get(s.p + at, s.n - at, &len);
        if (set.p ? llm__tpl_find(set, llm__s(s.p + at, s.n - at), 1) < 0 : !llm__tpl_space(c)) break;
        s.n = at;
    }
    return s;
}

/* ---- building texts at the end of the output ---- */

static void llm__tpl_put(llm__tpl *x, const char *s, size_t n) {
    if (!llm__tpl_spend(x, (int64_t)(n / 64))) return;
    llm_text_add(&x->text, s, n);
    if (x->text.failed) llm__tpl_error(x, LLM_ERR_LIMIT, "the output is over %zu bytes", x->text.limit);
}

static void llm__tpl_puts(llm__tpl *x, const char *s) { llm__tpl_put(x, s, strlen(s)); }

static void llm__tpl_put_char(llm__tpl *x, int32_t c) {
    char s[4];
    llm__tpl_put(x, s, (size_t)llm__utf8_put(s, c));
}

/* A text `count` times, checked against the limit before the first. */
static void llm__tpl_repeat(llm__tpl *x, llm__str s, int64_t count) {
    if (!s.n || count <= 0 || x->err) return;
    if ((uint64_t)count > (x->text.limit - x->text.len) / s.n) {
        llm__tpl_error(x, LLM_ERR_LIMIT, "the output is over %zu bytes", x->text.limit);
        return;
    }
    while (count-- > 0 && llm__tpl_spend(x, 1)) llm__tpl_put(x, s.p, s.n);
}

static void llm__tpl_spaces(llm__tpl *x, int64_t count) {
    static const char blank[65] = "                                                                ";
    llm__tpl_repeat(x, llm__s(blank, 64), count / 64);
    if (count > 0) llm__tpl_put(x, blank, (size_t)(count % 64));
}

/* Takes what was built since `mark` off the end, as a value. */
static llm__val llm__tpl_take(llm__tpl *x, size_t mark) {
    size_t n = x->text.len - mark;
    llm__val v = llm__tpl_copy(x, n ? x->text.data + mark : "", n);
    x->text.len = mark;
    return v;
}

/* ---- equality, order, truth ---- */

static int llm__v_is_number(llm__val v) { return v.type == LLM__V_BOOL || v.type == LLM__V_INT || v.type == LLM__V_FLOAT; }
static int llm__v_is_int(llm__val v) { return v.type == LLM__V_BOOL || v.type == LLM__V_INT; }
static int llm__v_is_list(llm__val v) { return v.type >= LLM__V_LIST && v.type <= LLM__V_GEN; }
static double llm__v_num(llm__val v) { return v.type == LLM__V_FLOAT ? v.as.f : (double)v.as.i; }

static int64_t llm__v_range_len(llm__val v) {
    int64_t start = v.as.list->v[0].as.i, stop = v.as.list->v[1].as.i, step = v.as.list->v[2].as.i;
    if (step > 0 ? start >= stop : start <= stop) return 0;
    uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    return (int64_t)((span - 1) / by + 1);
}

/* Python's truth. */
static int llm__v_truth(llm__val v) {
    switch (v.type) {
    case LLM__V_UNSET: case LLM__V_UNDEF: case LLM__V_NONE: return 0;
    case LLM__V_BOOL: case LLM__V_INT: return v.as.i != 0;
    case LLM__V_FLOAT: return v.as.f != 0;
    case LLM__V_STR: return v.n != 0;
    case LLM__V_LIST: case LLM__V_TUPLE: case LLM__V_VIEW: return v.as.list->n != 0;
    case LLM__V_RANGE: return llm__v_range_len(v) != 0;
    case LLM__V_DICT: return v.as.dict->n != 0;
    default: return 1;
    }
}

static llm__val *llm__tpl_dict_find(llm__tpl *x, const llm__vdict *d, llm__val key);

static int llm__tpl_equal(llm__tpl *x, llm__val a, llm__val b);

static int llm__tpl_equal_dict(llm__tpl *x, const llm__vdict *a, const llm__vdict *b) {
    if (a->n != b->n) return 0;
    for (int i = 0; i < a->n && !x->err; i++) {
        const llm__val *v = llm__tpl_dict_find(x, b, a->e[i].key);
        if (!v || !llm__tpl_equal(x, a->e[i].value, *v)) return 0;
    }
    return 1;
}

/* Python's ==. */
static int llm__tpl_equal(llm__tpl *x, llm__val a, llm__val b) {
    if (!llm__tpl_spend(x, 1)) return 0;
    if (llm__v_is_number(a) && llm__v_is_number(b)) {
        return a.type == LLM__V_FLOAT || b.type == LLM__V_FLOAT ? llm__v_num(a) == llm__v_num(b) : a.as.i == b.as.i;
    }
    if (a.type != b.type) return 0;
    int same = 1;
    switch (a.type) {
    case LLM__V_UNSET: case LLM__V_UNDEF: case LLM__V_NONE: return 1;
    case LLM__V_BIG: case LLM__V_STR: return a.n == b.n && !memcmp(llm__v_s(a).p, llm__v_s(b).p, a.n);
    case LLM__V_LIST: case LLM__V_TUPLE: case LLM__V_VIEW: case LLM__V_RANGE:
        if (a.as.list->n != b.as.list->n) return 0;
        if (++x->depth > LLM__TPL_EVAL_DEPTH) llm__tpl_fail(x, "values are nested too deeply to be compared");
        for (int i = 0; same && i < a.as.list->n && !x->err; i++) same = llm__tpl_equal(x, a.as.list->v[i], b.as.list->v[i]);
        x->depth--;
        return same;
    case LLM__V_DICT:
        if (++x->depth > LLM__TPL_EVAL_DEPTH) llm__tpl_fail(x, "values are nested too deeply to be compared");
        same = x->err ? 0 : llm__tpl_equal_dict(x, a.as.dict, b.as.dict);
        x->depth--;
        return same;
    default: return a.as.list == b.as.list;
    }
}

static int llm__str_order(llm__str a, llm__str b) {
    int c = memcmp(a.p, b.p, LLM__MIN(a.n, b.n));
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

/* Python's < and >: negative, 0 or positive. Error where Python has no order. */
static int llm__tpl_order(llm__tpl *x, llm__val a, llm__val b) {
    if (!llm__tpl_spend(x, 1)) return 0;
    if (llm__v_is_number(a) && llm__v_is_number(b)) {
        if (llm__v_is_int(a) && llm__v_is_int(b)) return (a.as.i > b.as.i) - (a.as.i < b.as.i);
        return (llm__v_num(a) > llm__v_num(b)) - (llm__v_num(a) < llm__v_num(b));
    }
    if (a.type == LLM__V_STR && b.type == LLM__V_STR) return llm__str_order(llm__v_s(a), llm__v_s(b));
    if (a.type != b.type || (a.type != LLM__V_LIST && a.type != LLM__V_TUPLE)) {
        llm__tpl_fail(x, "'%s' and '%s' have no order", llm__v_type_name(a), llm__v_type_name(b));
        return 0;
    }
    const llm__vlist *p = a.as.list, *q = b.as.list;
    if (++x->depth > LLM__TPL_EVAL_DEPTH) llm__tpl_fail(x, "values are nested too deeply to be compared");
    int order = (p->n > q->n) - (p->n < q->n);
    for (int i = 0; i < p->n && i < q->n && !x->err; i++) {
        if (llm__tpl_equal(x, p->v[i], q->v[i])) continue;
        order = llm__tpl_order(x, p->v[i], q->v[i]);
        break;
    }
    x->depth--;
    return order;
}

/* Merge sort of v by key (another array, or v itself), stable; both are reordered through an index. */
static void llm__tpl_sort(llm__tpl *x, llm__val *v, const llm__val *key, int n, int reverse) {
    int32_t *a = (int32_t *)llm__tpl_get(x, (size_t)n * sizeof *a), *b = (int32_t *)llm__tpl_get(x, (size_t)n * sizeof *b);
    llm__val *copy = (llm__val *)llm__tpl_get(x, (size_t)n * sizeof *copy);
    if (x->err) return;
    for (int i = 0; i < n; i++) a[i] = i, copy[i] = v[i];
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t lo = 0; lo < n; lo += 2 * width) {
            int64_t mid = LLM__MIN(lo + width, n), hi = LLM__MIN(lo + 2 * width, n), i = lo, k = mid;
            for (int64_t to = lo; to < hi; to++) {
                int right = i == mid;
                if (i < mid && k < hi) right = reverse ? llm__tpl_order(x, key[a[i]], key[a[k]]) < 0 : llm__tpl_order(x, key[a[k]], key[a[i]]) < 0;
                b[to] = right ? a[k++] : a[i++];
                if (x->err) return;
            }
        }
        int32_t *swap = a;
        a = b;
        b = swap;
    }
    for (int i = 0; i < n; i++) v[i] = copy[a[i]];
}

/* ---- dicts ---- */

/* Hash of a key; equal keys have equal hashes. Error for what Python cannot hash. */
static uint32_t llm__tpl_hash(llm__tpl *x, llm__val v) {
    if (v.type == LLM__V_STR || v.type == LLM__V_BIG) return (uint32_t)llm__hash(llm__v_s(v).p, v.n, 1);
    if (llm__v_is_number(v)) {
        double f = llm__v_num(v) + 0.0; /* -0.0 becomes 0.0 */
        return (uint32_t)llm__hash(&f, sizeof f, 2);
    }
    if (v.type == LLM__V_LIST || v.type == LLM__V_DICT || v.type == LLM__V_VIEW) llm__tpl_fail(x, "a '%s' cannot be a key", llm__v_type_name(v));
    uint32_t h = v.type;
    for (int i = 0; v.type == LLM__V_TUPLE && i < v.as.list->n && llm__tpl_spend(x, 1); i++) h = h * 31 + llm__tpl_hash(x, v.as.list->v[i]);
    return h;
}

static llm__vpair *llm__tpl_dict_slot(llm__tpl *x, const llm__vdict *d, llm__val key, uint32_t hash) {
    if (!llm__tpl_spend(x, d->n / 256)) return NULL;
    for (int i = 0; i < d->n; i++) {
        if (d->e[i].hash == hash && llm__tpl_equal(x, d->e[i].key, key)) return &d->e[i];
    }
    return NULL;
}

/* The value of a key, or NULL. */
static llm__val *llm__tpl_dict_find(llm__tpl *x, const llm__vdict *d, llm__val key) {
    uint32_t hash = llm__tpl_hash(x, key);
    llm__vpair *e = x->err ? NULL : llm__tpl_dict_slot(x, d, key, hash);
    return e ? &e->value : NULL;
}

static void llm__tpl_dict_set(llm__tpl *x, llm__vdict *d, llm__val key, llm__val value) {
    uint32_t hash = llm__tpl_hash(x, key);
    if (!d || !llm__tpl_spend(x, 1)) return;
    llm__vpair *e = llm__tpl_dict_slot(x, d, key, hash);
    if (e) {
        e->value = value;
        return;
    }
    if (d->n == d->cap) {
        int32_t cap = d->cap ? d->cap * 2 : 4;
        llm__vpair *p = (llm__vpair *)llm__tpl_get(x, (size_t)cap * sizeof *p);
        if (!p) return;
        if (d->n) memcpy(p, d->e, (size_t)d->n * sizeof *p);
        d->e = p;
        d->cap = cap;
    }
    if (x->err) return;
    e = &d->e[d->n++];
    e->key = key;
    e->value = value;
    e->hash = hash;
}

static llm__vdict *llm__tpl_dict(llm__tpl *x) { return (llm__vdict *)llm__tpl_get(x, sizeof(llm__vdict)); }

static llm__val llm__v_dict(llm__vtype type, llm__vdict *d) {
    llm__val v = llm__v(d ? type : LLM__V_UNDEF);
    v.as.dict = d;
    return v;
}

/* keys(), values(), items(): which 0, 1, 2. */
static llm__vlist *llm__tpl_view(llm__tpl *x, const llm__vdict *d, int which) {
    llm__vlist *l = llm__tpl_list(x, d->n);
    for (int i = 0; i < d->n && !x->err; i++) {
        llm__tpl_push(x, l, which == 0 ? d->e[i].key : which == 1 ? d->e[i].value : llm__tpl_pair(x, LLM__V_TUPLE, d->e[i].key, d->e[i].value));
    }
    return l;
}

/* What a walk over v yields; an error where Python cannot iterate. Consumes a generator. Never NULL without an error. */
static llm__vlist *llm__tpl_iter(llm__tpl *x, llm__val v) {
    llm__vlist *l = NULL;
    if (x->err) return NULL;
    if (v.type == LLM__V_LIST || v.type == LLM__V_TUPLE || v.type == LLM__V_VIEW) return v.as.list;
    if (v.type == LLM__V_DICT) return llm__tpl_view(x, v.as.dict, 0);
    if (v.type == LLM__V_UNDEF) return llm__tpl_list(x, 0);
    if (v.type == LLM__V_GEN) {
        if ((l = llm__tpl_list(x, 0)) == NULL) return NULL;
        l->v = v.as.list->v + v.as.list->at;
        l->n = l->cap = v.as.list->n - v.as.list->at;
        v.as.list->at = v.as.list->n;
    } else if (v.type == LLM__V_RANGE) {
        int64_t n = llm__v_range_len(v), start = v.as.list->v[0].as.i, step = v.as.list->v[2].as.i;
        l = llm__tpl_list(x, n);
        for (int64_t i = 0; i < n && !x->err; i++) llm__tpl_push(x, l, llm__v_int(start + i * step));
    } else if (v.type == LLM__V_STR) {
        int len;
        l = llm__tpl_list(x, llm__tpl_chars(llm__v_s(v)));
        for (uint32_t i = 0; i < v.n && !x->err; i += (uint32_t)len) {
            llm__utf8_get(v.as.s + i, v.n - i, &len);
            llm__tpl_push(x, l, llm__v_str(v.as.s + i, (size_t)len));
        }
    } else {
        llm__tpl_fail(x, "'%s' cannot be iterated", llm__v_type_name(v));
    }
    return x->err ? NULL : l;
}

/* Python's len, or -1 with an error. */
static int64_t llm__tpl_len(llm__tpl *x, llm__val v) {
    if (v.type == LLM__V_UNDEF) return 0;
    if (v.type == LLM__V_STR) return llm__tpl_spend(x, v.n / 64) ? llm__tpl_chars(llm__v_s(v)) : -1;
    if (v.type == LLM__V_LIST || v.type == LLM__V_TUPLE || v.type == LLM__V_VIEW) return v.as.list->n;
    if (v.type == LLM__V_DICT) return v.as.dict->n;
    if (v.type == LLM__V_RANGE) return llm__v_range_len(v);
    llm__tpl_fail(x, "'%s' has no length", llm__v_type_name(v));
    return -1;
}

/* ---- values as text: Python's str() and repr(), and json.dumps ---- */

static void llm__tpl_put_hex(llm__tpl *x, const char *prefix, int digits, int32_t c) {
    char s[24];
    llm__tpl_put(x, s, (size_t)snprintf(s, sizeof s, "%s%0*x", prefix, digits, (unsigned)c));
}

static void llm__tpl_put_repr(llm__tpl *x, llm__str s) {
    char quote = memchr(s.p, '\'', s.n) && !memchr(s.p, '"', s.n) ? '"' : '\'';
    int len;
    llm__tpl_put(x, &quote, 1);
    for (size_t i = 0; i < s.n && llm__tpl_spend(x, 1); i += (size_t)len) {
        int32_t c = llm__utf8_get(s.p + i, s.n - i, &len);
        const char *escape = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : c == '\\' ? "\\\\" : c == '\'' && quote == '\'' ? "\\'" : NULL;
        if (escape) llm__tpl_puts(x, escape);
        else if (llm__tpl_printable(c)) llm__tpl_put(x, s.p + i, (size_t)len);
        else if (c < 256) llm__tpl_put_hex(x, "\\x", 2, c);
        else llm__tpl_put_hex(x, c < 65536 ? "\\u" : "\\U", c < 65536 ? 4 : 8, c);
    }
    llm__tpl_put(x, &quote, 1);
}

static void llm__tpl_write(llm__tpl *x, llm__val v, int repr);

static void llm__tpl_write_list(llm__tpl *x, const llm__vlist *l, const char *open, const char *close) {
    llm__tpl_puts(x, open);
    for (int i = 0; i < l->n && !x->err; i++) {
        if (i) llm__tpl_puts(x, ", ");
        llm__tpl_write(x, l->v[i], 1);
    }
    llm__tpl_puts(x, close);
}

static void llm__tpl_write_dict(llm__tpl *x, const llm__vdict *d) {
    llm__tpl_puts(x, "{");
    for (int i = 0; i < d->n && !x->err; i++) {
        if (i) llm__tpl_puts(x, ", ");
        llm__tpl_write(x, d->e[i].key, 1);
        llm__tpl_puts(x, ": ");
        llm__tpl_write(x, d->e[i].value, 1);
    }
    llm__tpl_puts(x, "}");
}

static void llm__tpl_write_object(llm__tpl *x, llm__val v) {
    static const char *const view[3] = {"dict_keys([", "dict_values([", "dict_items(["};
    const llm__val *r = v.as.list->v;
    char s[120];
    if (v.type == LLM__V_LIST) llm__tpl_write_list(x, v.as.list, "[", "]");
    else if (v.type == LLM__V_TUPLE) llm__tpl_write_list(x, v.as.list, "(", v.as.list->n == 1 ? ",)" : ")");
    else if (v.type == LLM__V_VIEW) llm__tpl_write_list(x, v.as.list, view[v.flag], "])");
    else if (v.type == LLM__V_RANGE && r[2].as.i == 1) llm__tpl_put(x, s, (size_t)snprintf(s, sizeof s, "range(%lld, %lld)", (long long)r[0].as.i, (long long)r[1].as.i));
    else if (v.type == LLM__V_RANGE) llm__tpl_put(x, s, (size_t)snprintf(s, sizeof s, "range(%lld, %lld, %lld)", (long long)r[0].as.i, (long long)r[1].as.i, (long long)r[2].as.i));
    else llm__tpl_put(x, s, (size_t)snprintf(s, sizeof s, "<%s object>", llm__v_type_name(v)));
}

/* Appends str(v), or repr(v). */
static void llm__tpl_write(llm__tpl *x, llm__val v, int repr) {
    char s[48];
    if (!llm__tpl_spend(x, 1)) return;
    if (++x->depth > LLM__TPL_EVAL_DEPTH) llm__tpl_fail(x, "a value is nested too deeply to be printed");
    switch (v.type) {
    case LLM__V_UNSET: case LLM__V_UNDEF: llm__tpl_puts(x, repr ? "Undefined" : ""); break;
    case LLM__V_NONE: llm__tpl_puts(x, "None"); break;
    case LLM__V_BOOL: llm__tpl_puts(x, v.as.i ? "True" : "False"); break;
    case LLM__V_INT: llm__tpl_put(x, s, (size_t)snprintf(s, sizeof s, "%lld", (long long)v.as.i)); break;
    case LLM__V_BIG: llm__tpl_put(x, v.as.s, v.n); break;
    case LLM__V_FLOAT: llm__tpl_put(x, s, (size_t)llm__format_double(v.as.f, s)); break;
    case LLM__V_STR:
        if (repr && v.flag) llm__tpl_puts(x, "Markup(");
        if (repr) llm__tpl_put_repr(x, llm__v_s(v));
        else llm__tpl_put(x, llm__v_s(v).p, v.n);
        if (repr && v.flag) llm__tpl_puts(x, ")");
        break;
    case LLM__V_DICT: llm__tpl_write_dict(x, v.as.dict); break;
    case LLM__V_NAMESPACE:
        llm__tpl_puts(x, "<Namespace ");
        llm__tpl_write_dict(x, v.as.dict);
        llm__tpl_puts(x, ">");
        break;
    default: llm__tpl_write_object(x, v);
    }
    x->depth--;
}

/* str(v) as a value. */
static llm__val llm__tpl_str(llm__tpl *x, llm__val v) {
    if (v.type == LLM__V_STR) return v;
    size_t mark = x->text.len;
    llm__tpl_write(x, v, 0);
    return llm__tpl_take(x, mark);
}

typedef struct llm__json_style {
    int ascii, sort, pretty;
    llm__str indent, comma, colon;
} llm__json_style;

static void llm__tpl_dump_str(llm__tpl *x, llm__str s, int ascii) {
    int len;
    size_t from = 0, i = 0;
    llm__tpl_puts(x, "\"");
    for (; i < s.n && llm__tpl_spend(x, (i & 15) == 0); i += (size_t)len) {
        int32_t c = (uint8_t)s.p[i];
        len = 1;
        if (c >= 32 && c != '"' && c != '\\' && (!ascii || c < 127)) continue;
        if (ascii && c >= 128) c = llm__utf8_get(s.p + i, s.n - i, &len);
        const char *escape = c == '\n' ? "\\n" : c == '"' ? "\\\"" : c == '\\' ? "\\\\" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : c == '\b' ? "\\b" : c == '\f' ? "\\f" : NULL;
        llm__tpl_put(x, s.p + from, i - from);
        from = i + (size_t)len;
        if (escape) llm__tpl_puts(x, escape);
        else if (c >= 65536) llm__tpl_put_hex(x, "\\u", 4, 0xD800 + ((c - 0x10000) >> 10)), llm__tpl_put_hex(x, "\\u", 4, 0xDC00 + ((c - 0x10000) & 1023));
        else llm__tpl_put_hex(x, "\\u", 4, c);
    }
    if (!x->err) llm__tpl_put(x, s.p + from, s.n - from);
    llm__tpl_puts(x, "\"");
}

/* Between the values of a container: comma (not before the first), line, indentation. */
static void llm__tpl_dump_gap(llm__tpl *x, const llm__json_style *o, int comma, int level) {
    if (comma) llm__tpl_put(x, o->comma.p, o->comma.n);
    if (!o->pretty) return;
    llm__tpl_puts(x, "\n");
    llm__tpl_repeat(x, o->indent, level);
}

static void llm__tpl_dump_key(llm__tpl *x, llm__val key, const llm__json_style *o) {
    size_t mark = x->text.len;
    if (key.type == LLM__V_NONE) key = llm__v_str("null", 4);
    else if (key.type == LLM__V_BOOL) key = key.as.i ? llm__v_str("true", 4) : llm__v_str("false", 5);
    else if (key.type == LLM__V_INT || key.type == LLM__V_BIG || key.type == LLM__V_FLOAT) key = llm__tpl_str(x, key);
    if (key.type != LLM__V_STR) llm__tpl_fail(x, "a '%s' cannot be a key in JSON", llm__v_type_name(key));
    x->text.len = mark;
    llm__tpl_dump_str(x, llm__v_s(key), o->ascii);
    llm__tpl_put(x, o->colon.p, o->colon.n);
}

static void llm__tpl_dump(llm__tpl *x, llm__val v, const llm__json_style *o, int level);

static void llm__tpl_dump_dict(llm__tpl *x, const llm__vdict *d, const llm__json_style *o, int level) {
    llm__vlist *order = llm__tpl_view(x, d, 2), *keys = llm__tpl_view(x, d, 0);
    if (x->err) return;
    if (o->sort) llm__tpl_sort(x, order->v, keys->v, d->n, 0);
    llm__tpl_puts(x, "{");
    for (int i = 0; i < d->n && !x->err; i++) {
        llm__tpl_dump_gap(x, o, i > 0, level + 1);
        llm__tpl_dump_key(x, order->v[i].as.list->v[0], o);
        llm__tpl_dump(x, order->v[i].as.list->v[1], o, level + 1);
    }
    if (d->n) llm__tpl_dump_gap(x, o, 0, level);
    llm__tpl_puts(x, "}");
}

/* Appends json.dumps(v). */
static void llm__tpl_dump(llm__tpl *x, llm__val v, const llm__json_style *o, int level) {
    if (!llm__tpl_spend(x, 1)) return;
    if (level > LLM__TPL_EVAL_DEPTH / 2) llm__tpl_fail(x, "a value is nested too deeply for JSON");
    switch (v.type) {
    case LLM__V_NONE: llm__tpl_puts(x, "null"); break;
    case LLM__V_BOOL: llm__tpl_puts(x, v.as.i ? "true" : "false"); break;
    case LLM__V_STR: llm__tpl_dump_str(x, llm__v_s(v), o->ascii); break;
    case LLM__V_FLOAT:
        if (v.as.f - v.as.f != 0) llm__tpl_puts(x, v.as.f != v.as.f ? "NaN" : v.as.f > 0 ? "Infinity" : "-Infinity");
        else llm__tpl_write(x, v, 0);
        break;
    case LLM__V_INT: case LLM__V_BIG: llm__tpl_write(x, v, 0); break;
    case LLM__V_LIST: case LLM__V_TUPLE:
        llm__tpl_puts(x, "[");
        for (int i = 0; i < v.as.list->n && !x->err; i++) {
            llm__tpl_dump_gap(x, o, i > 0, level + 1);
            llm__tpl_dump(x, v.as.list->v[i], o, level + 1);
        }
        if (v.as.list->n) llm__tpl_dump_gap(x, o, 0, level);
        llm__tpl_puts(x, "]");
        break;
    case LLM__V_DICT: llm__tpl_dump_dict(x, v.as.dict, o, level); break;
    default: llm__tpl_fail(x, "a value of type '%s' cannot be written as JSON", llm__v_type_name(v));
    }
}

/* ---- from text to tokens ---- */

/* Tokens are named by a letter: d text outside of tags, V {{, v }}, B {%, b %}, n name, s text literal, i and f numbers, 0 the end; operators by
 * their character, those of two by E ==, N !=, G >=, L <=, D //, P **. */
typedef struct llm__tpl_token {
    char type;
    int32_t line;
    llm__str s;
} llm__tpl_token;

typedef struct llm__tpl_lexer {
    const char *s;
    size_t n, at;
    int32_t line;
    char pending;      /* a tag that begins after the text just returned */
    char end;          /* 'v' or 'b' inside of a tag, else 0 */
    int brackets;      /* open ones inside of a tag: }} and %} do not end it then */
    int line_starting; /* what was consumed last ended with a line feed */
    const char *error;
} llm__tpl_lexer;

static void llm__lex_skip(llm__tpl_lexer *l, size_t n) {
    for (; n && l->at < l->n; n--) l->line += l->s[l->at++] == '\n';
}

static char llm__lex_peek(const llm__tpl_lexer *l, size_t k) { return l->at + k < l->n ? l->s[l->at + k] : 0; }

static void llm__lex_spaces(llm__tpl_lexer *l) {
    int len;
    while (l->at < l->n && llm__tpl_space(llm__utf8_get(l->s + l->at, l->n - l->at, &len))) llm__lex_skip(l, (size_t)len);
}

/* Consumes what closes a tag, of `len` bytes with its sign, and the white space that belongs to it: all after '-', a line feed after %} and #}. */
static void llm__lex_close(llm__tpl_lexer *l, size_t len, char sign, int trim) {
    llm__lex_skip(l, len);
    if (sign == '-') llm__lex_spaces(l);
    else if (trim && sign != '+' && llm__lex_peek(l, 0) == '\n') llm__lex_skip(l, 1);
    l->line_starting = l->s[l->at - 1] == '\n';
}

/* The text before a tag at `to`, without the white space that the tag takes: all before '-', for blocks and comments that since the line's begin. */
static llm__str llm__lex_before(const llm__tpl_lexer *l, size_t from, size_t to, char sign, int block) {
    llm__str s = llm__s(l->s + from, to - from);
    if (sign == '-') return llm__tpl_strip(s, llm__s(NULL, 0), 2);
    if (sign == '+' || !block) return s;
    size_t start = s.n;
    while (start && s.p[start - 1] != '\n') start--;
    if ((start || l->line_starting) && !llm__tpl_strip(llm__s(s.p + start, s.n - start), llm__s(NULL, 0), 1).n) s.n = start;
    return s;
}

/* Length of {% raw %} or {% endraw %} at byte `at`, its closing sign in *sign; 0 if it is none. */
static size_t llm__lex_raw_tag(const llm__tpl_lexer *l, size_t at, const char *word, char *sign) {
    llm__tpl_lexer c = *l;
    c.at = at + 2;
    if (llm__lex_peek(&c, 0) == '-' || llm__lex_peek(&c, 0) == '+') c.at++;
    llm__lex_spaces(&c);
    size_t n = strlen(word);
    if (c.n - c.at < n || memcmp(c.s + c.at, word, n)) return 0;
    c.at += n;
    llm__lex_spaces(&c);
    *sign = llm__lex_peek(&c, 0);
    if (*sign == '-' || *sign == '+') c.at++;
    else *sign = 0;
    return llm__lex_peek(&c, 0) == '%' && llm__lex_peek(&c, 1) == '}' ? c.at + 2 - at : 0;
}

/* {% raw %}: what stands up to {% endraw %} is text. */
static llm__str llm__lex_raw(llm__tpl_lexer *l, size_t len, char sign) {
    llm__lex_close(l, len, sign, 0);
    size_t from = l->at, tag;
    for (size_t to = from; to + 1 < l->n; to++) {
        if (l->s[to] != '{' || l->s[to + 1] != '%' || (tag = llm__lex_raw_tag(l, to, "endraw", &sign)) == 0) continue;
        llm__str s = llm__lex_before(l, from, to, l->s[to + 2], 1);
        llm__lex_skip(l, to - from);
        llm__lex_close(l, tag, sign, 1);
        return s;
    }
    l->error = "{% raw %} without {% endraw %}";
    return llm__s("", 0);
}

/* {# ... #} */
static void llm__lex_comment(llm__tpl_lexer *l) {
    llm__lex_skip(l, llm__lex_peek(l, 2) == '-' || llm__lex_peek(l, 2) == '+' ? 3 : 2);
    int64_t end = llm__tpl_find(llm__s(l->s + l->at, l->n - l->at), llm__s("#}", 2), 1);
    if (end < 0) {
        l->error = "a comment without its end";
        return;
    }
    char sign = end ? l->s[l->at + (size_t)end - 1] : 0;
    llm__lex_skip(l, (size_t)end);
    llm__lex_close(l, 2, sign, 1);
}

/* Outside of tags: the text up to the next tag, or that tag's begin. */
static llm__tpl_token llm__lex_data(llm__tpl_lexer *l) {
    llm__tpl_token t;
    memset(&t, 0, sizeof t);
    t.line = l->line;
    if (l->pending) {
        t.type = l->pending;
        l->end = t.type == 'V' ? 'v' : 'b';
        l->pending = 0;
        l->line_starting = 0;
        llm__lex_skip(l, llm__lex_peek(l, 2) == '-' || llm__lex_peek(l, 2) == '+' ? 3 : 2);
        return t;
    }
    while (!t.s.n && !l->error && l->at < l->n && !l->pending) {
        size_t from = l->at, to = from;
        while (to < l->n && !(l->s[to] == '{' && to + 1 < l->n && memchr("{%#", l->s[to + 1], 3))) to++;
        if (to == l->n) {
            t.s = llm__s(l->s + from, to - from);
            l->at = to;
            break;
        }
        char kind = l->s[to + 1], sign = to + 2 < l->n ? l->s[to + 2] : 0, raw_sign;
        size_t raw = kind == '%' ? llm__lex_raw_tag(l, to, "raw", &raw_sign) : 0;
        t.s = llm__lex_before(l, from, to, sign, kind != '{');
        llm__lex_skip(l, to - from);
        if (kind == '#') llm__lex_comment(l);
        else if (!raw) l->pending = kind == '{' ? 'V' : 'B';
        else if (!t.s.n) t.s = llm__lex_raw(l, raw, raw_sign); /* otherwise it is the next token */
    }
    t.type = t.s.n ? 'd' : 0;
    return t.s.n || !l->pending ? t : llm__lex_data(l);
}

static int llm__lex_hex(char c) { return llm__tpl_digit(c) ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1; }

static size_t llm__lex_digits(const char *s, size_t n, size_t i, int hex) {
    while (i < n && (llm__tpl_digit(s[i]) || s[i] == '_' || (hex && llm__lex_hex(s[i]) >= 0))) i++;
    return i;
}

/* A number at l->at: 'i' or 'f'. */
static char llm__lex_number(const llm__tpl_lexer *l, size_t *end) {
    const char *s = l->s;
    size_t i = l->at;
    char base = (char)(llm__lex_peek(l, 1) | 32);
    if (s[i] == '0' && (base == 'x' || base == 'o' || base == 'b')) return *end = llm__lex_digits(s, l->n, i + 2, base == 'x'), 'i';
    i = llm__lex_digits(s, l->n, i, 0);
    char type = 'i';
    if (i + 1 < l->n && s[i] == '.' && llm__tpl_digit(s[i + 1]) && !(l->at && s[l->at - 1] == '.')) i = llm__lex_digits(s, l->n, i + 1, 0), type = 'f';
    size_t e = i + 1 < l->n && (s[i] | 32) == 'e' ? i + 1 + (s[i + 1] == '+' || s[i + 1] == '-') : l->n;
    if (e < l->n && llm__tpl_digit(s[e])) i = llm__lex_digits(s, l->n, e, 0), type = 'f';
    return *end = i, type;
}

static int llm__lex_is_name(char c) { return llm__tpl_alpha((uint8_t)c) || llm__tpl_digit(c) || c == '_' || (uint8_t)c >= 128; }

/* The next token. */
static llm__tpl_token llm__lex_next(llm__tpl_lexer *l) {
    static const char pairs[] = "==E!=N>=G<=L//D**P";
    llm__tpl_token t;
    if (!l->end) return llm__lex_data(l);
    llm__lex_spaces(l);
    memset(&t, 0, sizeof t);
    t.line = l->line;
    if (l->at >= l->n) return t;
    char c = llm__lex_peek(l, 0), c1 = llm__lex_peek(l, 1);
    size_t sign = l->end == 'b' ? (c == '-' || c == '+') : c == '-', end = l->at + 1;
    if (!l->brackets && llm__lex_peek(l, sign) == (l->end == 'b' ? '%' : '}') && llm__lex_peek(l, sign + 1) == '}') {
        t.type = l->end;
        llm__lex_close(l, sign + 2, sign ? c : 0, l->end == 'b');
        l->end = 0;
        return t;
    }
    if (llm__tpl_digit(c)) {
        t.type = llm__lex_number(l, &end);
    } else if (llm__lex_is_name(c)) {
        t.type = 'n';
        while (end < l->n && llm__lex_is_name(l->s[end])) end++;
    } else if (c == '"' || c == '\'') {
        t.type = 's';
        while (end < l->n && l->s[end] != c) end += l->s[end] == '\\' ? 2 : 1;
        if (end++ >= l->n) l->error = "a text literal without its end", end = l->n;
    } else {
        t.type = c && strchr("+-/*%~[](){}<>=.:|,;", c) ? c : '?';
        for (int i = 0; pairs[i]; i += 3)
            if (pairs[i] == c && pairs[i + 1] == c1) t.type = pairs[i + 2], end = l->at + 2;
        l->brackets += !!strchr("([{", t.type) - !!strchr(")]}", t.type);
        if (t.type == '?' || l->brackets < 0) l->error = "an unexpected character";
    }
    t.s = llm__s(l->s + l->at, end - l->at);
    llm__lex_skip(l, end - l->at);
    return t;
}

/* ---- from tokens to a tree ----
 * Precedence, loosest first: if-else, or, and, not, comparisons, + -, ~, * / // %, **, unary + -, postfix (. [] ()), filters and tests. */

typedef struct llm__tpl_parser {
    llm_template *t;
    llm__tpl_lexer lex;
    llm__tpl_token tok;
    int depth;
    int soft;          /* inside of an if: an unknown filter is an error only when it is reached */
    int special;       /* names seen in a macro: 1 caller, 2 varargs, 4 kwargs */
    int loops;         /* open ones, for break and continue */
    llm_result err;
    llm__node scrap;   /* handed out after an error, so that nodes are never NULL */
} llm__tpl_parser;

static void llm__parse_error(llm__tpl_parser *p, const char *what) {
    if (!p->err) {
        llm__str s = p->tok.s;
        p->err = llm__error(LLM_ERR_TEMPLATE, "template line %d: %s%s%.*s%s", p->tok.line, what, s.n ? " at '" : "", (int)LLM__MIN(s.n, (size_t)40), s.n ? s.p : "", s.n ? "'" : "");
    }
    memset(&p->tok, 0, sizeof p->tok);
    p->lex.at = p->lex.n;
}

static void llm__parse_next(llm__tpl_parser *p) {
    if (p->err) return;
    p->tok = llm__lex_next(&p->lex);
    if (p->lex.error) llm__parse_error(p, p->lex.error);
}

static void *llm__parse_get(llm__tpl_parser *p, size_t n) {
    void *m = p->err ? NULL : llm__arena_get(&p->t->arena, n);
    if (!m && !p->err) p->err = llm__error(LLM_ERR_LIMIT, "template: too large");
    return m;
}

static llm__node *llm__parse_node(llm__tpl_parser *p, llm__node_kind kind) {
    llm__node *n = (llm__node *)llm__parse_get(p, sizeof *n);
    if (!n) {
        memset(&p->scrap, 0, sizeof p->scrap);
        n = &p->scrap;
        p->lex.at = p->lex.n;
        memset(&p->tok, 0, sizeof p->tok);
    }
    n->kind = (uint8_t)kind;
    n->line = p->tok.line;
    return n;
}

static int llm__parse_is(const llm__tpl_parser *p, const char *word) { return p->tok.type == 'n' && llm__str_eq(p->tok.s, word); }

/* Skips a token if it is this one. */
static int llm__parse_skip(llm__tpl_parser *p, char type) {
    int is = p->tok.type == type;
    if (is) llm__parse_next(p);
    return is;
}

static int llm__parse_skip_word(llm__tpl_parser *p, const char *word) {
    int is = llm__parse_is(p, word);
    if (is) llm__parse_next(p);
    return is;
}

static void llm__parse_want(llm__tpl_parser *p, char type, const char *what) {
    if (!llm__parse_skip(p, type)) llm__parse_error(p, what);
}

/* A name, returned and skipped. */
static llm__str llm__parse_name(llm__tpl_parser *p) {
    llm__str s = p->tok.s;
    if (p->tok.type != 'n') llm__parse_error(p, "a name was expected");
    llm__parse_next(p);
    return p->err ? llm__s("", 0) : s;
}

/* The id of a variable. */
static int32_t llm__parse_id(llm__tpl_parser *p, llm__str s) {
    llm_template *t = p->t;
    int32_t id = llm__map_get(&t->names, s);
    if (id >= 0 || p->err) return id < 0 ? 0 : id;
    if (!llm__grow((void **)&t->name, &t->cap_names, (size_t)t->n_names + 1, sizeof *t->name) || llm__map_put(&t->names, s, t->n_names) < 0) {
        p->err = llm__nomem();
        return 0;
    }
    t->name[t->n_names] = s;
    return t->n_names++;
}

static int llm__parse_enter(llm__tpl_parser *p) {
    if (++p->depth > LLM__TPL_DEPTH) llm__parse_error(p, "nesting is too deep");
    return !p->err;
}

/* Decodes \n, \x41, \u00e9, \101, ...; an unknown escape stays as it is. Returns what it wrote. */
static size_t llm__parse_escape(const char *s, size_t n, size_t *at, char *to) {
    static const char plain[] = "n\nt\tr\r\\\\'\'\"\"a\ab\bf\fv\v";
    char c = s[*at];
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0, k = 0;
    int32_t code = 0;
    for (int i = 0; plain[i]; i += 2)
        if (plain[i] == c) return ++*at, to[0] = plain[i + 1], 1;
    if (c == '\n') return ++*at, 0;
    if (digits) {
        for (; k < digits && *at + 1 + (size_t)k < n && llm__lex_hex(s[*at + 1 + (size_t)k]) >= 0 && code < 0x110000; k++) code = code << 4 | llm__lex_hex(s[*at + 1 + (size_t)k]);
        if (k == digits && code < 0x110000) return *at += (size_t)(1 + k), (size_t)llm__utf8_put(to, code >= 0xD800 && code < 0xE000 ? 0xFFFD : code);
    }
    for (k = 0; k < 3 && *at + (size_t)k < n && s[*at + (size_t)k] >= '0' && s[*at + (size_t)k] <= '7'; k++) code = code * 8 + (s[*at + (size_t)k] - '0');
    if (!digits && k) return *at += (size_t)k, (size_t)llm__utf8_put(to, code);
    to[0] = '\\';
    return 1;
}

/* Text literals; those that follow each other become one. */
static llm__val llm__parse_string(llm__tpl_parser *p) {
    llm__val v = llm__v_str("", 0);
    while (p->tok.type == 's') {
        llm__str s = llm__s(p->tok.s.p + 1, p->tok.s.n - 2);
        char *to = (char *)llm__parse_get(p, v.n + s.n + 1);
        size_t n = v.n;
        if (!to) break;
        memcpy(to, llm__v_s(v).p, n);
        for (size_t i = 0; i < s.n;) {
            if (s.p[i] == '\\' && i + 1 < s.n) i++, n += llm__parse_escape(s.p, s.n, &i, to + n);
            else to[n++] = s.p[i++];
        }
        v = llm__v_str(to, n);
        llm__parse_next(p);
    }
    return v;
}

static llm__val llm__v_integer(const char *s, size_t n) {
    llm__val v = llm__v_int(0);
    if (llm__parse_int(s, n, &v.as.i)) return v;
    return llm__v_text(LLM__V_BIG, s, n);
}

static llm__val llm__parse_number(llm__tpl_parser *p) {
    char *s = (char *)llm__parse_get(p, p->tok.s.n + 1);
    size_t n = 0, i = 0;
    llm__str t = p->tok.s;
    if (!s) return llm__v_int(0);
    for (i = 0; i < t.n; i++)
        if (t.p[i] != '_') s[n++] = t.p[i];
    llm__val v = llm__v_int(0);
    char base = n > 1 && s[0] == '0' ? (char)(s[1] | 32) : 0;
    if (p->tok.type == 'f') {
        v = llm__v_float(0);
        llm__parse_double(s, n, &v.as.f);
    } else if (base == 'x' || base == 'o' || base == 'b') {
        for (i = 2; i < n && v.as.i < INT64_MAX >> 5; i++) v.as.i = v.as.i * (base == 'x' ? 16 : base == 'o' ? 8 : 2) + llm__lex_hex(s[i]);
        if (i < n) llm__parse_error(p, "a number that fits 64 bits was expected");
    } else {
        for (i = 0; i + 1 < n && s[i] == '0'; i++) {}
        v = llm__v_integer(s + i, n - i);
    }
    llm__parse_next(p);
    return v;
}

static llm__node *llm__parse_expr(llm__tpl_parser *p);
static llm__node *llm__parse_or(llm__tpl_parser *p);
static llm__node *llm__parse_unary(llm__tpl_parser *p, int with_filters);
static llm__node *llm__parse_postfix(llm__tpl_parser *p, llm__node *n);

/* Items up to a closing token: nodes in a list. A comma may stand at the end. */
static llm__node *llm__parse_items(llm__tpl_parser *p, char close, int dict) {
    llm__node *first = NULL, **tail = &first;
    while (p->tok.type != close && !p->err) {
        *tail = llm__parse_expr(p);
        tail = &(*tail)->next;
        if (dict) {
            llm__parse_want(p, ':', "':' was expected");
            *tail = llm__parse_expr(p);
            tail = &(*tail)->next;
        }
        if (!llm__parse_skip(p, ',')) break;
    }
    llm__parse_want(p, close, "the end of a list was expected");
    return p->err ? NULL : first;
}

static int llm__parse_tuple_ends(const llm__tpl_parser *p) {
    return p->tok.type == 0 || strchr("vb)", p->tok.type) || llm__parse_is(p, "in") || llm__parse_is(p, "recursive");
}

/* An expression, or several with commas: a tuple. With `simple`, primaries and their postfixes only (targets); else with_if says whether if-else may stand. */
static llm__node *llm__parse_tuple(llm__tpl_parser *p, int simple, int with_if) {
    llm__node *tuple = llm__parse_node(p, LLM__N_TUPLE), **tail = &tuple->a;
    int commas = 0;
    while (!p->err && !llm__parse_tuple_ends(p)) {
        *tail = simple ? llm__parse_postfix(p, llm__parse_unary(p, 2)) : with_if ? llm__parse_expr(p) : llm__parse_or(p);
        tail = &(*tail)->next;
        if (p->tok.type != ',') break;
        llm__parse_next(p);
        commas++;
    }
    if (!tuple->a && !commas) llm__parse_error(p, "an expression was expected");
    return commas ? tuple : p->err ? &p->scrap : tuple->a;
}

static llm__node *llm__parse_name_node(llm__tpl_parser *p) {
    static const char *const word[6] = {"true", "True", "false", "False", "none", "None"};
    static const char *const special[3] = {"caller", "varargs", "kwargs"};
    llm__node *n = llm__parse_node(p, LLM__N_NAME);
    for (int i = 0; i < 6; i++) {
        if (!llm__parse_is(p, word[i])) continue;
        n->kind = LLM__N_CONST;
        n->v = i < 4 ? llm__v_bool(i < 2) : llm__v(LLM__V_NONE);
    }
    for (int i = 0; i < 3; i++)
        if (llm__parse_is(p, special[i])) p->special |= 1 << i;
    llm__str s = llm__parse_name(p);
    if (n->kind == LLM__N_NAME) n->name = llm__parse_id(p, s);
    return n;
}

static llm__node *llm__parse_primary(llm__tpl_parser *p) {
    llm__node *n;
    switch (p->tok.type) {
    case 'n': return llm__parse_name_node(p);
    case 's': case 'i': case 'f':
        n = llm__parse_node(p, LLM__N_CONST);
        n->v = p->tok.type == 's' ? llm__parse_string(p) : llm__parse_number(p);
        return n;
    case '(':
        llm__parse_next(p);
        if (p->tok.type == ')') n = llm__parse_node(p, LLM__N_TUPLE);
        else n = llm__parse_tuple(p, 0, 1);
        llm__parse_want(p, ')', "')' was expected");
        return n;
    case '[': case '{':
        n = llm__parse_node(p, p->tok.type == '[' ? LLM__N_LIST : LLM__N_DICT);
        llm__parse_next(p);
        n->a = llm__parse_items(p, n->kind == LLM__N_LIST ? ']' : '}', n->kind == LLM__N_DICT);
        return n;
    default: llm__parse_error(p, "an expression was expected"); return llm__parse_node(p, LLM__N_CONST);
    }
}

/* What stands in brackets after a value: x[a] or x[from:to:step]. SLICE has its bounds as b, c and d; NULL where left out. */
static llm__node *llm__parse_subscript(llm__tpl_parser *p, llm__node *of) {
    llm__node *n = llm__parse_node(p, LLM__N_ITEM), *bound[3] = {NULL, NULL, NULL};
    int k = 0;
    llm__parse_next(p);
    for (; k < 3; k++) {
        if (p->tok.type != ':' && p->tok.type != ']') bound[k] = llm__parse_expr(p);
        if (k == 2 || !llm__parse_skip(p, ':')) break;
        n->kind = LLM__N_SLICE;
    }
    n->a = of;
    n->b = bound[0];
    n->c = bound[1];
    n->d = bound[2];
    if (n->kind == LLM__N_ITEM && !n->b) llm__parse_error(p, "an index was expected");
    if (n->kind == LLM__N_ITEM && p->tok.type == ',') { /* x[a, b]: the index is a tuple */
        llm__node *tuple = llm__parse_node(p, LLM__N_TUPLE);
        tuple->a = n->b;
        llm__parse_next(p);
        tuple->a->next = llm__parse_items(p, ']', 0);
        n->b = tuple;
        return n;
    }
    llm__parse_want(p, ']', "']' was expected");
    return n;
}

/* Arguments in parentheses. ARG: a the value, op 0 by position, 1 by name (v), 2 *list, 3 **dict. */
static llm__node *llm__parse_args(llm__tpl_parser *p) {
    llm__node *first = NULL, **tail = &first;
    int named = 0;
    llm__parse_want(p, '(', "'(' was expected");
    while (p->tok.type != ')' && !p->err) {
        llm__node *n = llm__parse_node(p, LLM__N_ARG);
        llm__tpl_lexer ahead = p->lex;
        n->op = llm__parse_skip(p, '*') ? 2 : llm__parse_skip(p, 'P') ? 3 : 0;
        if (!n->op && p->tok.type == 'n' && llm__lex_next(&ahead).type == '=') {
            n->op = 1;
            n->v = llm__v_str(p->tok.s.p, p->tok.s.n);
            llm__parse_next(p);
            llm__parse_next(p);
        }
        n->a = llm__parse_expr(p);
        if (n->op == 0 && named) llm__parse_error(p, "an argument by position after one by name");
        named |= n->op == 1 || n->op == 3;
        *tail = n;
        tail = &n->next;
        if (!llm__parse_skip(p, ',')) break;
    }
    llm__parse_want(p, ')', "')' was expected");
    return p->err ? NULL : first;
}

static llm__node *llm__parse_call(llm__tpl_parser *p, llm__node *of) {
    llm__node *n = llm__parse_node(p, LLM__N_CALL);
    n->a = of;
    n->b = llm__parse_args(p);
    return n;
}

static llm__node *llm__parse_postfix(llm__tpl_parser *p, llm__node *of) {
    int count = 0;
    for (; !p->err; count++) {
        if (count > LLM__TPL_DEPTH) llm__parse_error(p, "nesting is too deep");
        if (p->tok.type == '[') {
            of = llm__parse_subscript(p, of);
        } else if (p->tok.type == '(') {
            of = llm__parse_call(p, of);
        } else if (p->tok.type == '.') {
            llm__parse_next(p);
            llm__node *n = llm__parse_node(p, p->tok.type == 'i' ? LLM__N_ITEM : LLM__N_ATTR);
            n->a = of;
            if (n->kind == LLM__N_ITEM) {
                n->b = llm__parse_node(p, LLM__N_CONST);
                n->b->v = llm__parse_number(p);
            } else {
                llm__str s = llm__parse_name(p);
                n->v = llm__v_str(s.p, s.n);
            }
            of = n;
        } else {
            break;
        }
    }
    return of;
}

static const llm__tpl_entry *llm__tpl_filter_named(llm__str name);
static const llm__tpl_entry *llm__tpl_test_named(llm__str name);

/* The name of a filter or test, with dots, looked up. */
static void llm__parse_entry(llm__tpl_parser *p, llm__node *n, int test) {
    llm__str s = llm__parse_name(p);
    while (p->tok.type == '.') {
        llm__parse_next(p);
        llm__parse_name(p);
        s = llm__s("", 0);
    }
    n->v = llm__v_str(s.p, s.n);
    n->entry = test ? llm__tpl_test_named(s) : llm__tpl_filter_named(s);
    if (!n->entry && !p->soft && !p->err) {
        p->tok.s = s;
        llm__parse_error(p, test ? "no such test" : "no such filter");
    }
}

static llm__node *llm__parse_filter(llm__tpl_parser *p, llm__node *of) {
    llm__node *n = llm__parse_node(p, LLM__N_FILTER);
    n->a = of;
    llm__parse_entry(p, n, 0);
    if (p->tok.type == '(') n->b = llm__parse_args(p);
    return n;
}

/* After `is`. A test may have one argument without parentheses: x is divisibleby 3. */
static llm__node *llm__parse_test(llm__tpl_parser *p, llm__node *of) {
    llm__node *n = llm__parse_node(p, LLM__N_TEST);
    n->a = of;
    n->op = (uint8_t)llm__parse_skip_word(p, "not");
    llm__parse_entry(p, n, 1);
    if (p->tok.type == '(') {
        n->b = llm__parse_args(p);
    } else if (p->tok.type && strchr("nsif([{", p->tok.type) && !llm__parse_is(p, "else") && !llm__parse_is(p, "or") && !llm__parse_is(p, "and")) {
        if (llm__parse_is(p, "is")) llm__parse_error(p, "tests cannot be chained");
        n->b = llm__parse_node(p, LLM__N_ARG);
        n->b->a = llm__parse_postfix(p, llm__parse_primary(p));
    }
    return n;
}

/* with_filters 2: a primary only. */
static llm__node *llm__parse_unary(llm__tpl_parser *p, int with_filters) {
    llm__node *n;
    if (!llm__parse_enter(p)) return &p->scrap;
    if (with_filters != 2 && (p->tok.type == '-' || p->tok.type == '+')) {
        n = llm__parse_node(p, LLM__N_UNARY);
        n->op = (uint8_t)p->tok.type;
        llm__parse_next(p);
        n->a = llm__parse_unary(p, 0);
    } else {
        n = llm__parse_primary(p);
        if (with_filters != 2) n = llm__parse_postfix(p, n);
    }
    for (int count = 0; with_filters == 1 && !p->err; count++) {
        if (count > LLM__TPL_DEPTH) llm__parse_error(p, "nesting is too deep");
        if (llm__parse_skip(p, '|')) n = llm__parse_filter(p, n);
        else if (llm__parse_skip_word(p, "is")) n = llm__parse_test(p, n);
        else if (p->tok.type == '(') n = llm__parse_call(p, n);
        else break;
    }
    p->depth--;
    return n;
}

/* Binary operators of one level, left to right: 0 is + and -, 1 is ~, 2 is * / // %, 3 is **. */
static llm__node *llm__parse_binary(llm__tpl_parser *p, int level) {
    static const char *const ops[4] = {"+-", "~", "*/D%", "P"};
    if (level == 4) return llm__parse_unary(p, 1);
    llm__node *left = llm__parse_binary(p, level + 1);
    for (int count = 0; p->tok.type && strchr(ops[level], p->tok.type) && !p->err; count++) {
        if (count > LLM__TPL_DEPTH * 2) llm__parse_error(p, "an expression is too long");
        llm__node *n = llm__parse_node(p, level == 1 ? LLM__N_CONCAT : LLM__N_BINARY);
        n->op = (uint8_t)p->tok.type;
        llm__parse_next(p);
        n->a = left;
        n->b = llm__parse_binary(p, level + 1);
        left = n;
    }
    return left;
}

/* a < b <= c: COMPARE has a, then in b a list of ARG nodes with their operator in op ('I' in, 'J' not in). */
static llm__node *llm__parse_compare(llm__tpl_parser *p) {
    llm__node *left = llm__parse_binary(p, 0), *n = NULL, **tail = NULL;
    while (!p->err) {
        char op = p->tok.type;
        llm__tpl_lexer ahead = p->lex;
        if (llm__parse_is(p, "in")) op = 'I';
        else if (llm__parse_is(p, "not") && llm__str_eq(llm__lex_next(&ahead).s, "in")) op = 'J';
        if (!op || !strchr("EN<>GLIJ", op)) break;
        if (op == 'J') llm__parse_next(p);
        llm__parse_next(p);
        if (!n) {
            n = llm__parse_node(p, LLM__N_COMPARE);
            n->a = left;
            tail = &n->b;
        }
        llm__node *operand = llm__parse_node(p, LLM__N_ARG);
        operand->op = (uint8_t)op;
        operand->a = llm__parse_binary(p, 0);
        *tail = operand;
        tail = &operand->next;
    }
    return n ? n : left;
}

static llm__node *llm__parse_not(llm__tpl_parser *p) {
    if (!llm__parse_is(p, "not")) return llm__parse_compare(p);
    llm__node *n = llm__parse_node(p, LLM__N_UNARY);
    if (!llm__parse_enter(p)) return n;
    llm__parse_next(p);
    n->op = '!';
    n->a = llm__parse_not(p);
    p->depth--;
    return n;
}

/* AND and OR have a list of operands in a. */
static llm__node *llm__parse_logic(llm__tpl_parser *p, int is_or) {
    llm__node *first = is_or ? llm__parse_logic(p, 0) : llm__parse_not(p), *n = NULL, **tail = NULL;
    while (!p->err && llm__parse_skip_word(p, is_or ? "or" : "and")) {
        if (!n) {
            n = llm__parse_node(p, is_or ? LLM__N_OR : LLM__N_AND);
            n->a = first;
            tail = &first->next;
        }
        *tail = is_or ? llm__parse_logic(p, 0) : llm__parse_not(p);
        tail = &(*tail)->next;
    }
    return n ? n : first;
}

static llm__node *llm__parse_or(llm__tpl_parser *p) { return llm__parse_logic(p, 1); }

/* COND: a if b else c (NULL: undefined). */
static llm__node *llm__parse_expr(llm__tpl_parser *p) {
    if (!llm__parse_enter(p)) return &p->scrap;
    int soft = p->soft;
    llm__node *n = llm__parse_or(p);
    while (!p->err && llm__parse_skip_word(p, "if")) {
        llm__node *cond = llm__parse_node(p, LLM__N_COND);
        p->soft = 1;
        cond->a = n;
        cond->b = llm__parse_or(p);
        if (llm__parse_skip_word(p, "else")) cond->c = llm__parse_expr(p);
        n = cond;
    }
    p->soft = soft;
    p->depth--;
    return n;
}

static llm__node *llm__parse_block(llm__tpl_parser *p, const char *const *ends, int soft);

/* After the words of a tag: its end. */
static void llm__parse_tag_end(llm__tpl_parser *p) { llm__parse_want(p, 'b', "the end of the tag was expected"); }

/* The body of a tag up to {% end %}, which is consumed. */
static llm__node *llm__parse_body(llm__tpl_parser *p, const char *end, int soft) {
    const char *ends[2] = {end, NULL};
    llm__parse_tag_end(p);
    llm__node *body = llm__parse_block(p, ends, soft);
    llm__parse_next(p);
    llm__parse_tag_end(p);
    return body;
}

/* What may be assigned to: a name, namespace.name, or a tuple of those. */
static void llm__parse_check_target(llm__tpl_parser *p, const llm__node *n) {
    if (p->err) return;
    int ok = n->kind == LLM__N_NAME || (n->kind == LLM__N_ATTR && n->a->kind == LLM__N_NAME) || n->kind == LLM__N_TUPLE || n->kind == LLM__N_LIST;
    if (!ok) llm__parse_error(p, "this cannot be assigned to");
    for (const llm__node *c = n->a; ok && c && (n->kind == LLM__N_TUPLE || n->kind == LLM__N_LIST); c = c->next) llm__parse_check_target(p, c);
}

static llm__node *llm__parse_target(llm__tpl_parser *p) {
    llm__node *n = llm__parse_tuple(p, 1, 0);
    llm__parse_check_target(p, n);
    return n;
}

/* IF: a the test, b the body, c the else branch, or the IF of an elif (op 1). */
static llm__node *llm__parse_if(llm__tpl_parser *p) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last[] = {"endif", NULL};
    llm__node *first = llm__parse_node(p, LLM__N_IF), *n = first;
    int soft = p->soft;
    for (;;) {
        p->soft = 1;
        n->a = llm__parse_tuple(p, 0, 0);
        p->soft = soft;
        llm__parse_tag_end(p);
        n->b = llm__parse_block(p, ends, 1);
        if (!llm__parse_skip_word(p, "elif")) break;
        n->c = llm__parse_node(p, LLM__N_IF);
        n = n->c;
        n->op = 1;
    }
    if (llm__parse_skip_word(p, "else")) {
        llm__parse_tag_end(p);
        n->c = llm__parse_block(p, last, 1);
    }
    llm__parse_next(p);
    llm__parse_tag_end(p);
    return first;
}

/* FOR: a the target, b what is walked, c a SCOPE with the body (a) and the else branch (b), d the filter. */
static llm__node *llm__parse_for(llm__tpl_parser *p) {
    static const char *const ends[] = {"else", "endfor", NULL};
    static const char *const last[] = {"endfor", NULL};
    llm__node *n = llm__parse_node(p, LLM__N_FOR);
    n->a = llm__parse_target(p);
    if (!llm__parse_skip_word(p, "in")) llm__parse_error(p, "'in' was expected");
    n->b = llm__parse_tuple(p, 0, 0);
    if (llm__parse_skip_word(p, "if")) n->d = llm__parse_expr(p);
    if (llm__parse_is(p, "recursive")) llm__parse_error(p, "recursive loops are not supported");
    llm__parse_tag_end(p);
    n->c = llm__parse_node(p, LLM__N_SCOPE);
    p->loops++;
    n->c->a = llm__parse_block(p, ends, 0);
    p->loops--;
    if (llm__parse_skip_word(p, "else")) {
        llm__parse_tag_end(p);
        n->c->b = llm__parse_block(p, last, 0);
    }
    llm__parse_next(p);
    llm__parse_tag_end(p);
    return n;
}

/* SET: a the target, b the value. SET_BLOCK: a the target, b the body, c filters over a CONST that stands for the body's text. */
static llm__node *llm__parse_set(llm__tpl_parser *p) {
    llm__node *n = llm__parse_node(p, LLM__N_SET);
    n->a = llm__parse_target(p);
    if (llm__parse_skip(p, '=')) {
        n->b = llm__parse_tuple(p, 0, 1);
        llm__parse_tag_end(p);
        return n;
    }
    n->kind = LLM__N_SET_BLOCK;
    n->d = n->c = llm__parse_node(p, LLM__N_CONST);
    while (llm__parse_skip(p, '|')) n->c = llm__parse_filter(p, n->c);
    n->b = llm__parse_body(p, "endset", 0);
    return n;
}

/* The parameters of a macro: NAME nodes, a the default. */
static llm__node *llm__parse_params(llm__tpl_parser *p) {
    llm__node *first = NULL, **tail = &first;
    int defaults = 0;
    llm__parse_want(p, '(', "'(' was expected");
    while (p->tok.type != ')' && !p->err) {
        llm__node *n = llm__parse_node(p, LLM__N_NAME);
        n->name = llm__parse_id(p, llm__parse_name(p));
        if (llm__parse_skip(p, '=')) n->a = llm__parse_expr(p), defaults = 1;
        else if (defaults) llm__parse_error(p, "a parameter without default after one that has it");
        *tail = n;
        tail = &n->next;
        if (!llm__parse_skip(p, ',')) break;
    }
    llm__parse_want(p, ')', "')' was expected");
    return first;
}

/* MACRO: name, a the parameters, b the body, op: which of caller, varargs, kwargs it uses. Of a call block: c the call. */
static llm__node *llm__parse_macro(llm__tpl_parser *p, int call) {
    llm__node *n = llm__parse_node(p, call ? LLM__N_CALL_BLOCK : LLM__N_MACRO);
    int special = p->special, loops = p->loops;
    if (!call) n->name = llm__parse_id(p, llm__parse_name(p));
    if (!call || p->tok.type == '(') n->a = llm__parse_params(p);
    if (call) n->c = llm__parse_expr(p);
    if (call && n->c->kind != LLM__N_CALL) llm__parse_error(p, "a call was expected");
    p->special = p->loops = 0;
    n->b = llm__parse_body(p, call ? "endcall" : "endmacro", 0);
    n->op = (uint8_t)p->special;
    p->special = call ? special | p->special : special;
    p->loops = loops;
    return n;
}

/* FILTER_BLOCK: b the body, c filters over the CONST d that stands for its text. */
static llm__node *llm__parse_filter_block(llm__tpl_parser *p) {
    llm__node *n = llm__parse_node(p, LLM__N_FILTER_BLOCK);
    n->d = llm__parse_node(p, LLM__N_CONST);
    n->c = llm__parse_filter(p, n->d);
    while (llm__parse_skip(p, '|')) n->c = llm__parse_filter(p, n->c);
    n->b = llm__parse_body(p, "endfilter", 0);
    return n;
}

/* WITH: a a list of SET nodes, b the body. */
static llm__node *llm__parse_with(llm__tpl_parser *p) {
    llm__node *n = llm__parse_node(p, LLM__N_WITH), **tail = &n->a;
    while (p->tok.type != 'b' && !p->err) {
        llm__node *set = llm__parse_node(p, LLM__N_SET);
        set->a = llm__parse_postfix(p, llm__parse_primary(p));
        llm__parse_check_target(p, set->a);
        llm__parse_want(p, '=', "'=' was expected");
        set->b = llm__parse_expr(p);
        *tail = set;
        tail = &set->next;
        if (!llm__parse_skip(p, ',')) break;
    }
    n->b = llm__parse_body(p, "endwith", 0);
    return n;
}

static llm__node *llm__parse_statement(llm__tpl_parser *p) {
    llm__node *n;
    if (llm__parse_skip_word(p, "if")) return llm__parse_if(p);
    if (llm__parse_skip_word(p, "for")) return llm__parse_for(p);
    if (llm__parse_skip_word(p, "set")) return llm__parse_set(p);
    if (llm__parse_skip_word(p, "macro")) return llm__parse_macro(p, 0);
    if (llm__parse_skip_word(p, "call")) return llm__parse_macro(p, 1);
    if (llm__parse_skip_word(p, "filter")) return llm__parse_filter_block(p);
    if (llm__parse_skip_word(p, "with")) return llm__parse_with(p);
    if (llm__parse_is(p, "break") || llm__parse_is(p, "continue")) {
        n = llm__parse_node(p, llm__parse_is(p, "break") ? LLM__N_BREAK : LLM__N_CONTINUE);
        if (!p->loops) llm__parse_error(p, "outside of a loop");
        llm__parse_next(p);
        llm__parse_tag_end(p);
        return n;
    }
    n = llm__parse_node(p, LLM__N_SCOPE);
    if (llm__parse_skip_word(p, "generation")) n->a = llm__parse_body(p, "endgeneration", 0);
    else if (llm__parse_is(p, "include") || llm__parse_is(p, "import") || llm__parse_is(p, "from") || llm__parse_is(p, "extends")) llm__parse_error(p, "no other files can be reached");
    else llm__parse_error(p, "no such tag, or none that may stand here");
    return n;
}

/* Statements up to a tag that begins with one of `ends` (NULL: the end of the text), which stays. */
static llm__node *llm__parse_block(llm__tpl_parser *p, const char *const *ends, int soft) {
    llm__node *first = NULL, **tail = &first;
    int outer = p->soft;
    if (!llm__parse_enter(p)) return NULL;
    p->soft = soft;
    while (p->tok.type && !p->err) {
        llm__node *n = NULL;
        if (p->tok.type == 'd') {
            n = llm__parse_node(p, LLM__N_DATA);
            n->v = llm__v_str(p->tok.s.p, p->tok.s.n);
            llm__parse_next(p);
        } else if (p->tok.type == 'V') {
            n = llm__parse_node(p, LLM__N_PRINT);
            llm__parse_next(p);
            n->a = llm__parse_tuple(p, 0, 1);
            llm__parse_want(p, 'v', "the end of the expression was expected");
        } else {
            llm__parse_next(p);
            for (int i = 0; ends && ends[i] && p->tok.type; i++)
                if (llm__parse_is(p, ends[i])) goto done;
            n = llm__parse_statement(p);
        }
        *tail = n;
        tail = &n->next;
    }
    if (ends && !p->err) {
        llm__str none = {NULL, 0};
        p->tok.s = none;
        llm__parse_error(p, "the text ends inside of a block");
    }
done:
    p->soft = outer;
    p->depth--;
    return p->err ? NULL : first;
}

/* ---- attributes, items, slices ---- */

static const llm__tpl_entry *llm__tpl_method_named(llm__val v, llm__str name);

static llm__val llm__tpl_bind(llm__tpl *x, const llm__tpl_entry *entry, llm__val self) {
    llm__val v = llm__v(LLM__V_FUNC);
    v.as.bound = (llm__vbound *)llm__tpl_get(x, sizeof *v.as.bound);
    if (!v.as.bound) return llm__v(LLM__V_UNDEF);
    v.as.bound->entry = entry;
    v.as.bound->self = self;
    return v;
}

static llm__val llm__tpl_loop_attr(llm__tpl *x, llm__val v, llm__str name) {
    const llm__vloop *l = v.as.loop;
    int n = l->items->n;
    if (llm__str_eq(name, "index")) return llm__v_int(l->at + 1);
    if (llm__str_eq(name, "index0")) return llm__v_int(l->at);
    if (llm__str_eq(name, "revindex")) return llm__v_int(n - l->at);
    if (llm__str_eq(name, "revindex0")) return llm__v_int(n - l->at - 1);
    if (llm__str_eq(name, "first")) return llm__v_bool(l->at == 0);
    if (llm__str_eq(name, "last")) return llm__v_bool(l->at == n - 1);
    if (llm__str_eq(name, "length")) return llm__v_int(n);
    if (llm__str_eq(name, "depth")) return llm__v_int(1);
    if (llm__str_eq(name, "depth0")) return llm__v_int(0);
    if (llm__str_eq(name, "previtem")) return l->at ? l->items->v[l->at - 1] : llm__v_undef("loop.previtem");
    if (llm__str_eq(name, "nextitem")) return l->at + 1 < n ? l->items->v[l->at + 1] : llm__v_undef("loop.nextitem");
    const llm__tpl_entry *e = llm__tpl_method_named(v, name);
    return e ? llm__tpl_bind(x, e, v) : llm__v_text(LLM__V_UNDEF, name.p, name.n);
}

/* What Python's getattr finds on a value: methods, and a few plain attributes. UNSET if nothing. Names of methods that change their
 * value (list.append) are there, but undefined, as in jinja2's immutable sandbox. */
static llm__val llm__tpl_python_attr(llm__tpl *x, llm__val v, llm__str name) {
    static const char *const changing[] = {"append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "update", "popitem", "setdefault"};
    if (v.type == LLM__V_LOOP) return llm__tpl_loop_attr(x, v, name);
    if (v.type == LLM__V_NAMESPACE) {
        const llm__val *found = llm__tpl_dict_find(x, v.as.dict, llm__v_str(name.p, name.n));
        return found ? *found : llm__v(LLM__V_UNSET);
    }
    if (v.type == LLM__V_CYCLER && llm__str_eq(name, "current")) return v.as.list->v[v.as.list->at % v.as.list->n];
    if (v.type == LLM__V_TUPLE && v.flag && llm__str_eq(name, "grouper")) return v.as.list->v[0];
    if (v.type == LLM__V_TUPLE && v.flag && llm__str_eq(name, "list")) return v.as.list->v[1];
    if (v.type == LLM__V_MACRO && llm__str_eq(name, "name")) {
        llm__str s = v.as.macro->def->kind == LLM__N_MACRO ? x->t->name[v.as.macro->def->name] : llm__s("caller", 6);
        return llm__v_str(s.p, s.n);
    }
    const llm__tpl_entry *e = llm__tpl_method_named(v, name);
    if (e) return llm__tpl_bind(x, e, v);
    for (int i = 0; i < LLM__COUNT(changing); i++)
        if ((v.type == LLM__V_LIST || (v.type == LLM__V_DICT && i >= 4 && i != 6 && i != 7)) && llm__str_eq(name, changing[i])) return llm__v_text(LLM__V_UNDEF, changing[i], name.n);
    return llm__v(LLM__V_UNSET);
}

/* An index within n, counted from the end if negative; -1 if outside. */
static int64_t llm__tpl_index(int64_t i, int64_t n) {
    if (i < 0) i += n;
    return i >= 0 && i < n ? i : -1;
}

/* What Python's v[key] finds; UNSET where Python raises TypeError, IndexError or KeyError. */
static llm__val llm__tpl_python_item(llm__tpl *x, llm__val v, llm__val key) {
    llm__val none = llm__v(LLM__V_UNSET);
    if (v.type == LLM__V_DICT) {
        if (key.type == LLM__V_LIST || key.type == LLM__V_DICT || key.type == LLM__V_VIEW) return none;
        const llm__val *found = llm__tpl_dict_find(x, v.as.dict, key);
        return found ? *found : none;
    }
    if (!llm__v_is_int(key)) return none;
    if (v.type == LLM__V_STR) {
        llm__str s = llm__v_s(v);
        int64_t i = llm__tpl_index(key.as.i, llm__tpl_len(x, v));
        if (i < 0) return none;
        size_t from = llm__tpl_byte_of(s, i);
        return llm__v_str(s.p + from, llm__tpl_byte_of(llm__s(s.p + from, s.n - from), 1));
    }
    if (v.type == LLM__V_RANGE) {
        int64_t i = llm__tpl_index(key.as.i, llm__v_range_len(v));
        return i < 0 ? none : llm__v_int(v.as.list->v[0].as.i + i * v.as.list->v[2].as.i);
    }
    if (v.type != LLM__V_LIST && v.type != LLM__V_TUPLE) return none;
    int64_t i = llm__tpl_index(key.as.i, v.as.list->n);
    return i < 0 ? none : v.as.list->v[i];
}

static llm__val llm__tpl_undefined(llm__tpl *x, llm__val v, llm__str name) {
    (void)x;
    (void)v;
    return llm__v_text(LLM__V_UNDEF, name.p, name.n);
}

/* v.name: what Python's getattr finds, else v["name"], else undefined. */
static llm__val llm__tpl_attr(llm__tpl *x, llm__val v, llm__val name) {
    llm__str s = llm__v_s(name);
    if (v.type == LLM__V_UNDEF) return llm__tpl_fail(x, "'%.*s' is undefined, it has no attribute '%.*s'", (int)v.n, v.as.s, (int)s.n, s.p);
    llm__val r = llm__tpl_python_attr(x, v, s);
    if (r.type == LLM__V_UNSET) r = llm__tpl_python_item(x, v, name);
    return r.type == LLM__V_UNSET ? llm__tpl_undefined(x, v, s) : r;
}

/* v[key]: what Python finds there, else for a text the attribute, else undefined. */
static llm__val llm__tpl_item(llm__tpl *x, llm__val v, llm__val key) {
    if (v.type == LLM__V_UNDEF) return llm__tpl_fail(x, "'%.*s' is undefined, it has no items", (int)v.n, v.as.s);
    llm__val r = llm__tpl_python_item(x, v, key);
    if (r.type == LLM__V_UNSET && key.type == LLM__V_STR) r = llm__tpl_python_attr(x, v, llm__v_s(key));
    return r.type == LLM__V_UNSET ? llm__tpl_undefined(x, v, key.type == LLM__V_STR ? llm__v_s(key) : llm__s("item", 4)) : r;
}

static int64_t llm__tpl_clamp(llm__val v, int64_t n, int64_t lower, int64_t upper, int64_t absent) {
    if (v.type == LLM__V_UNSET || v.type == LLM__V_NONE) return absent;
    int64_t i = v.as.i < 0 ? v.as.i + n : v.as.i;
    return i < lower ? lower : i > upper ? upper : i;
}

/* v[from:to:by]; bounds are UNSET where left out. */
static llm__val llm__tpl_slice(llm__tpl *x, llm__val v, const llm__val *bound) {
    if (v.type == LLM__V_UNDEF) return llm__tpl_fail(x, "'%.*s' is undefined, it has no items", (int)v.n, v.as.s);
    for (int i = 0; i < 3; i++)
        if (bound[i].type != LLM__V_UNSET && bound[i].type != LLM__V_NONE && !llm__v_is_int(bound[i])) return llm__v_undef("slice");
    if (v.type != LLM__V_STR && v.type != LLM__V_LIST && v.type != LLM__V_TUPLE && v.type != LLM__V_RANGE) return llm__v_undef("slice");
    int64_t n = llm__tpl_len(x, v), step = bound[2].type == LLM__V_BOOL || bound[2].type == LLM__V_INT ? bound[2].as.i : 1;
    if (step == 0) return llm__tpl_fail(x, "the step of a slice is 0");
    if (x->err) return v;
    int64_t lower = step > 0 ? 0 : -1, upper = step > 0 ? n : n - 1;
    int64_t from = llm__tpl_clamp(bound[0], n, lower, upper, step > 0 ? lower : upper), to = llm__tpl_clamp(bound[1], n, lower, upper, step > 0 ? upper : lower);
    if (v.type == LLM__V_STR && step == 1) {
        llm__str s = llm__v_s(v);
        size_t a = llm__tpl_byte_of(s, from), b = from < to ? llm__tpl_byte_of(s, to) : a;
        return llm__v_str(s.p + a, b - a);
    }
    const llm__vlist *all = llm__tpl_iter(x, v);
    llm__vlist *l = llm__tpl_list(x, 0);
    size_t mark = x->text.len;
    for (int64_t i = from; !x->err && (step > 0 ? i < to : i > to); i += step) {
        if (v.type == LLM__V_STR) llm__tpl_write(x, all->v[i], 0);
        else llm__tpl_push(x, l, all->v[i]);
        if (step > 0 ? step >= to - i : step <= to - i) break; /* the next would pass the end, perhaps beyond 64 bits */
    }
    if (v.type == LLM__V_STR) return llm__tpl_take(x, mark);
    return llm__v_list(v.type == LLM__V_TUPLE ? LLM__V_TUPLE : LLM__V_LIST, l);
}

/* Python's `a in b`. */
static int llm__tpl_in(llm__tpl *x, llm__val a, llm__val b) {
    if (b.type == LLM__V_STR) {
        if (a.type != LLM__V_STR) llm__tpl_fail(x, "'in <text>' needs a text on its left, got '%s'", llm__v_type_name(a));
        if (!llm__tpl_spend(x, 1 + b.n / 16)) return 0;
        return llm__tpl_find(llm__v_s(b), llm__v_s(a), 1) >= 0;
    }
    if (b.type == LLM__V_DICT) return llm__tpl_dict_find(x, b.as.dict, a) != NULL;
    const llm__vlist *l = llm__tpl_iter(x, b);
    for (int i = 0; l && i < l->n && !x->err; i++)
        if (llm__tpl_equal(x, l->v[i], a)) return 1;
    return 0;
}

/* ---- calls ---- */

static llm__val llm__tpl_call_macro(llm__tpl *x, const llm__vmacro *m, const llm__args *g);

/* Puts arguments in the order of a spec. 0 with an error if they do not fit. */
static int llm__tpl_arrange(llm__tpl *x, const llm__tpl_entry *e, const llm__args *g, llm__val *out) {
    const char *s = e->spec;
    int n = 0, used = 0;
    memset(out, 0, LLM__TPL_MAX_ARGS * sizeof *out);
    for (; *s; n++) {
        size_t len = strcspn(s, " !");
        if (n < g->n_pos) out[n] = g->v[n], used++;
        for (int i = g->n_pos; i < g->n; i++) {
            if (g->name[i].n != len || memcmp(g->name[i].p, s, len)) continue;
            if (n < g->n_pos) llm__tpl_fail(x, "%s: two values for '%.*s'", e->name, (int)len, s);
            out[n] = g->v[i];
            used++;
        }
        if (s[len] == '!' && out[n].type == LLM__V_UNSET) llm__tpl_fail(x, "%s: '%.*s' is missing", e->name, (int)len, s);
        s += len + (s[len] == '!');
        s += *s == ' ';
    }
    if (used != g->n) llm__tpl_fail(x, "%s: unexpected argument", e->name);
    return !x->err;
}

/* Calls an entry of a table on a value. */
static llm__val llm__tpl_apply(llm__tpl *x, const llm__tpl_entry *e, llm__val self, const llm__args *g) {
    llm__val a[LLM__TPL_MAX_ARGS];
    if (!llm__tpl_spend(x, 1)) return llm__v(LLM__V_UNDEF);
    memset(a, 0, sizeof a);
    if (e->spec && !llm__tpl_arrange(x, e, g, a)) return llm__v(LLM__V_UNDEF);
    llm__val v = e->fn(x, self, a, g);
    return x->err ? llm__v(LLM__V_UNDEF) : v;
}

static llm__val llm__tpl_joiner_call(llm__tpl *x, llm__val v, const llm__args *g) {
    if (g->n) return llm__tpl_fail(x, "joiner: unexpected argument");
    return v.as.list->at++ ? v.as.list->v[0] : llm__v_str("", 0);
}

static llm__val llm__tpl_call(llm__tpl *x, llm__val f, const llm__args *g) {
    if (f.type == LLM__V_MACRO) return llm__tpl_call_macro(x, f.as.macro, g);
    if (f.type == LLM__V_FUNC) return llm__tpl_apply(x, f.as.bound->entry, f.as.bound->self, g);
    if (f.type == LLM__V_JOINER) return llm__tpl_joiner_call(x, f, g);
    if (f.type == LLM__V_UNDEF) return llm__tpl_fail(x, "'%.*s' is undefined, it cannot be called", (int)f.n, f.n ? f.as.s : "");
    return llm__tpl_fail(x, "'%s' cannot be called", llm__v_type_name(f));
}

/* ---- arguments of filters and methods ---- */

/* An optional whole number. */
static int64_t llm__arg_int(llm__tpl *x, llm__val v, int64_t absent) {
    if (v.type == LLM__V_UNSET) return absent;
    if (!llm__v_is_int(v)) llm__tpl_fail(x, "a whole number was expected, got '%s'", llm__v_type_name(v));
    return llm__v_is_int(v) ? v.as.i : absent;
}

/* An optional text; .p NULL if absent or None. */
static llm__str llm__arg_str(llm__tpl *x, llm__val v) {
    llm__str none = {NULL, 0};
    if (v.type == LLM__V_STR) return llm__v_s(v);
    if (v.type != LLM__V_UNSET && v.type != LLM__V_NONE) llm__tpl_fail(x, "a text was expected, got '%s'", llm__v_type_name(v));
    return none;
}

/* A text that must be one. */
static llm__str llm__arg_text(llm__tpl *x, llm__val v) {
    if (v.type != LLM__V_STR) llm__tpl_fail(x, "a text was expected, got '%s'", llm__v_type_name(v));
    return v.type == LLM__V_STR ? llm__v_s(v) : llm__s("", 0);
}

/* The item's attribute "a.b.0", or the item itself if there is no attribute. */
static llm__val llm__tpl_pick(llm__tpl *x, llm__val item, llm__val attribute, llm__val absent) {
    if (attribute.type == LLM__V_UNSET || attribute.type == LLM__V_NONE) return item;
    if (attribute.type != LLM__V_STR) return llm__tpl_item(x, item, attribute);
    llm__str s = llm__v_s(attribute);
    for (size_t i = 0; i <= s.n && !x->err;) {
        const char *dot = (const char *)memchr(s.p + i, '.', s.n - i);
        size_t n = dot ? (size_t)(dot - s.p) - i : s.n - i;
        llm__val key = llm__v_str(s.p + i, n), number = llm__v_int(0);
        item = llm__tpl_item(x, item, n && llm__tpl_digit(s.p[i]) && llm__parse_int(s.p + i, n, &number.as.i) ? number : key);
        if (absent.type != LLM__V_UNSET && absent.type != LLM__V_NONE && item.type == LLM__V_UNDEF) item = absent;
        i += n + 1;
    }
    return item;
}

/* ---- formatting: what str.format and the % operator share ---- */

typedef struct llm__tpl_spec {
    llm__str fill;
    char align;      /* < > ^ =; 0: left for texts, right for numbers */
    char sign;       /* '+' or ' '; 0: only minus */
    char type;       /* 0: by the value */
    int alternate, comma;
    int64_t width, precision; /* precision -1: absent */
} llm__tpl_spec;

static int64_t llm__spec_number(llm__str *s, int64_t absent) {
    int64_t v = s->n && llm__tpl_digit(s->p[0]) ? 0 : absent;
    for (; s->n && llm__tpl_digit(s->p[0]); s->p++, s->n--)
        if (v < 1000000000) v = v * 10 + (s->p[0] - '0');
    return v;
}

/* Python's format specification: [[fill]align][sign][#][0][width][,][.precision][type]. */
static llm__tpl_spec llm__spec_read(llm__tpl *x, llm__str s) {
    llm__tpl_spec o;
    int len = 1;
    memset(&o, 0, sizeof o);
    o.fill = llm__s(" ", 1);
    if (s.n) llm__utf8_get(s.p, s.n, &len);
    if (s.n > (size_t)len && memchr("<>^=", s.p[len], 4)) o.fill = llm__s(s.p, (size_t)len), o.align = s.p[len], s.p += len + 1, s.n -= (size_t)len + 1;
    else if (s.n && memchr("<>^=", s.p[0], 4)) o.align = s.p[0], s.p++, s.n--;
    if (s.n && memchr("+- ", s.p[0], 3)) o.sign = s.p[0] == '-' ? 0 : s.p[0], s.p++, s.n--;
    if (s.n && s.p[0] == '#') o.alternate = 1, s.p++, s.n--;
    if (s.n && s.p[0] == '0' && !o.align) o.fill = llm__s("0", 1), o.align = '=';
    o.width = llm__spec_number(&s, 0);
    if (s.n && s.p[0] == ',') o.comma = 1, s.p++, s.n--;
    o.precision = -1;
    if (s.n && s.p[0] == '.') s.p++, s.n--, o.precision = llm__spec_number(&s, -1);
    if (s.n) o.type = s.p[0], s.p++, s.n--;
    if (s.n || o.precision > 60 || (o.type && !strchr("sdfFeEgGxXob%", o.type))) llm__tpl_fail(x, "a format specification is not understood");
    return o;
}

/* A double in C's notation, with a point whatever the locale. Returns its length. `out` holds 400 bytes. */
static size_t llm__spec_double(double d, int64_t precision, char type, char *out) {
    int p = precision < 0 ? 6 : (int)precision, n;
    size_t k = 0;
    if (type == 'e') n = snprintf(out, 400, "%.*e", p, d);
    else if (type == 'g') n = snprintf(out, 400, "%.*g", p, d);
    else n = snprintf(out, 400, "%.*f", p, d);
    for (int i = 0; i < n; i++) {
        if (llm__tpl_digit(out[i]) || memchr("e+-infa", out[i], 7)) out[k++] = out[i];
        else if (k && out[k - 1] != '.') out[k++] = '.';
    }
    return k;
}

/* The digits of |v| as the type asks, without sign, into out (400 bytes); their number. 0 with an error if v is no such number. */
static size_t llm__spec_digits(llm__tpl *x, llm__val v, const llm__tpl_spec *o, char *out) {
    char type = (char)(o->type | (o->type >= 'A' && o->type <= 'Z' ? 32 : 0));
    if (type == 'f' || type == 'e' || type == 'g' || type == '%' || (v.type == LLM__V_FLOAT && !type && o->precision >= 0)) {
        double d = fabs(llm__v_num(v)) * (type == '%' ? 100 : 1);
        size_t n = llm__spec_double(d, o->precision, type ? type : 'g', out);
        if (type == '%') out[n++] = '%';
        return n;
    }
    if (v.type == LLM__V_FLOAT && !type) return (size_t)llm__format_double(fabs(v.as.f), out);
    uint64_t u = v.as.i < 0 ? 0 - (uint64_t)v.as.i : (uint64_t)v.as.i;
    if (v.type == LLM__V_FLOAT) llm__tpl_fail(x, "a whole number was expected for the format '%c'", type);
    if (type == 'x') return (size_t)snprintf(out, 400, o->type == 'X' ? "%llX" : "%llx", (unsigned long long)u);
    if (type == 'o') return (size_t)snprintf(out, 400, "%llo", (unsigned long long)u);
    if (type != 'b') return (size_t)snprintf(out, 400, "%llu", (unsigned long long)u);
    size_t n = 0;
    for (int bit = 63; bit >= 0; bit--)
        if (n || bit == 0 || u >> bit & 1) out[n++] = (char)('0' + (u >> bit & 1));
    return n;
}

/* Appends a value as the specification asks. */
static void llm__spec_put(llm__tpl *x, llm__val v, const llm__tpl_spec *o) {
    char digits[400], prefix[4] = {0}, align = o->align;
    size_t k = 0, mark = x->text.len;
    int number = llm__v_is_number(v) && o->type != 's' && !(v.type == LLM__V_BOOL && !o->type);
    if (!number && o->type && o->type != 's') llm__tpl_fail(x, "a number was expected for the format '%c', got '%s'", o->type, llm__v_type_name(v));
    if (number) {
        size_t n = llm__spec_digits(x, v, o, digits), whole = 0;
        if (llm__v_num(v) < 0 || (v.type == LLM__V_FLOAT && signbit(v.as.f))) prefix[k++] = '-';
        else if (o->sign) prefix[k++] = o->sign;
        if (o->alternate && strchr("xXob", o->type ? o->type : 'd')) prefix[k++] = '0', prefix[k++] = o->type;
        while (whole < n && llm__tpl_digit(digits[whole])) whole++;
        for (size_t i = 0; i < n; i++) {
            if (o->comma && i && i < whole && (whole - i) % 3 == 0) llm__tpl_puts(x, ",");
            llm__tpl_put(x, digits + i, 1);
        }
        if (!align) align = '>';
    } else {
        llm__tpl_write(x, v, 0);
        if (o->precision >= 0 && !x->err) x->text.len = mark + llm__tpl_byte_of(llm__s(x->text.data ? x->text.data + mark : "", x->text.len - mark), o->precision);
        if (!align || align == '=') align = '<';
    }
    llm__val body = llm__tpl_take(x, mark);
    int64_t pad = o->width - llm__tpl_chars(llm__v_s(body)) - (int64_t)k;
    int64_t before = pad <= 0 ? 0 : align == '>' ? pad : align == '^' ? pad / 2 : 0;
    llm__tpl_repeat(x, o->fill, before);
    llm__tpl_put(x, prefix, k);
    if (align == '=') llm__tpl_repeat(x, o->fill, pad), pad = 0;
    llm__tpl_put(x, llm__v_s(body).p, body.n);
    llm__tpl_repeat(x, o->fill, pad - before);
}

static const llm__val *llm__args_named(const llm__args *g, llm__str name) {
    for (int i = g->n_pos; i < g->n; i++)
        if (g->name[i].n == name.n && !memcmp(g->name[i].p, name.p, name.n)) return &g->v[i];
    return NULL;
}

/* The value of a replacement field: "", "0", "name", then .attribute or [index] parts. */
static llm__val llm__format_field(llm__tpl *x, llm__str field, const llm__args *g, int *next) {
    size_t n = 0;
    int64_t i = 0;
    while (n < field.n && field.p[n] != '.' && field.p[n] != '[') n++;
    const llm__val *v = n ? llm__args_named(g, llm__s(field.p, n)) : NULL;
    if (!n) i = (*next)++;
    else if (!llm__parse_int(field.p, n, &i)) i = -1;
    if (!v && i >= 0 && i < g->n_pos) v = &g->v[i];
    if (!v) return llm__tpl_fail(x, "format: no value for '{%.*s}'", (int)LLM__MIN(field.n, (size_t)40), field.p);
    llm__val value = *v;
    while (n < field.n && !x->err) {
        char kind = field.p[n++];
        size_t from = n;
        while (n < field.n && field.p[n] != '.' && field.p[n] != '[' && field.p[n] != ']') n++;
        llm__val key = llm__v_str(field.p + from, n - from), number = llm__v_int(0);
        if (kind == '[' && llm__parse_int(field.p + from, n - from, &number.as.i)) key = number;
        value = kind == '[' ? llm__tpl_item(x, value, key) : llm__tpl_attr(x, value, key);
        n += n < field.n && field.p[n] == ']';
    }
    return value;
}

/* str.format. */
static llm__val llm__fn_str_format(llm__tpl *x, llm__val self, llm__val *a, const llm__args *g) {
    llm__str s = llm__v_s(self);
    size_t mark = x->text.len;
    int next = 0;
    (void)a;
    for (size_t i = 0; i < s.n && llm__tpl_spend(x, 1); i++) {
        if (s.p[i] != '{' && s.p[i] != '}') {
            llm__tpl_put(x, s.p + i, 1);
        } else if (i + 1 < s.n && s.p[i + 1] == s.p[i]) {
            llm__tpl_put(x, s.p + i++, 1);
        } else {
            const char *close = s.p[i] == '{' ? (const char *)memchr(s.p + i, '}', s.n - i) : NULL;
            if (!close) return llm__tpl_fail(x, "format: a single brace");
            llm__str field = llm__s(s.p + i + 1, (size_t)(close - s.p) - i - 1), spec = llm__s("", 0);
            i = (size_t)(close - s.p);
            int64_t colon = llm__tpl_find(field, llm__s(":", 1), 1), bang;
            if (colon >= 0) spec = llm__s(field.p + colon + 1, field.n - (size_t)colon - 1), field.n = (size_t)colon;
            if ((bang = llm__tpl_find(field, llm__s("!", 1), 1)) >= 0) field.n = (size_t)bang;
            llm__val v = llm__format_field(x, field, g, &next);
            size_t from = x->text.len;
            if (bang >= 0) llm__tpl_write(x, v, field.p[bang + 1] == 'r'), v = llm__tpl_take(x, from);
            llm__tpl_spec o = llm__spec_read(x, spec);
            if (!x->err) llm__spec_put(x, v, &o);
        }
    }
    return llm__tpl_take(x, mark);
}

/* One conversion of the % operator, s at the byte after '%'. Returns the bytes it took. */
static size_t llm__percent_one(llm__tpl *x, llm__str s, llm__val values, const llm__vlist *l, int *next) {
    const char *begin = s.p;
    llm__val v = llm__v(LLM__V_UNSET);
    llm__tpl_spec o;
    memset(&o, 0, sizeof o);
    o.fill = llm__s(" ", 1);
    o.align = '>';
    o.precision = -1;
    if (s.n && s.p[0] == '(') {
        const char *close = (const char *)memchr(s.p, ')', s.n);
        if (!close || values.type != LLM__V_DICT) return llm__tpl_fail(x, "%%: a dict was expected"), 0;
        v = llm__tpl_item(x, values, llm__v_str(s.p + 1, (size_t)(close - s.p) - 1));
        s.n -= (size_t)(close + 1 - s.p);
        s.p = close + 1;
    }
    for (; s.n && memchr("-+ 0#", s.p[0], 5); s.p++, s.n--) {
        if (s.p[0] == '-') o.align = '<';
        else if (s.p[0] == '0' && o.align != '<') o.align = '=', o.fill = llm__s("0", 1);
        else if (s.p[0] == '#') o.alternate = 1;
        else if (s.p[0] != '0') o.sign = s.p[0];
    }
    o.width = llm__spec_number(&s, 0);
    if (s.n && s.p[0] == '.') s.p++, s.n--, o.precision = LLM__MIN(llm__spec_number(&s, 0), 60);
    char type = s.n ? s.p[0] : 0;
    size_t used = (size_t)(s.p + 1 - begin);
    if (type == '%') return llm__tpl_puts(x, "%"), used;
    if (!type || !strchr("srdiufFeEgGxXo", type)) return llm__tpl_fail(x, "%%: a format is not understood"), 0;
    if (v.type == LLM__V_UNSET) {
        if (*next >= l->n) return llm__tpl_fail(x, "%%: not enough values"), 0;
        v = l->v[(*next)++];
    }
    size_t mark = x->text.len;
    if (type == 'r') llm__tpl_write(x, v, 1), v = llm__tpl_take(x, mark);
    if ((type == 'd' || type == 'i' || type == 'u') && v.type == LLM__V_FLOAT && fabs(v.as.f) < 9e18) v = llm__v_int((int64_t)v.as.f);
    o.type = strchr("rs", type) ? 's' : strchr("iu", type) ? 'd' : type;
    if (o.type == 's' && o.align == '=') o.align = '>', o.fill = llm__s(" ", 1);
    llm__spec_put(x, v, &o);
    return used;
}

/* text % values. */
static llm__val llm__tpl_percent(llm__tpl *x, llm__val format, llm__val values) {
    llm__str s = llm__v_s(format);
    llm__vlist one, *l = values.type == LLM__V_TUPLE ? values.as.list : &one;
    size_t mark = x->text.len;
    int next = 0;
    one.v = &values;
    one.n = 1;
    for (size_t i = 0; i < s.n && llm__tpl_spend(x, 1);) {
        if (s.p[i] != '%') llm__tpl_put(x, s.p + i++, 1);
        else i += 1 + llm__percent_one(x, llm__s(s.p + i + 1, s.n - i - 1), values, l, &next);
    }
    if (next < l->n && values.type != LLM__V_DICT && values.type != LLM__V_LIST) llm__tpl_fail(x, "%%: not all values were used");
    return llm__tpl_take(x, mark);
}

/* ---- methods of texts, most of them filters too ---- */

/* The parameters of every entry of a table. */
#define LLM__TPL_FN(name) static llm__val name(LLM__UNUSED llm__tpl *x, LLM__UNUSED llm__val self, LLM__UNUSED llm__val *a, LLM__UNUSED const llm__args *g)

/* Each code point through one of: l lower, u upper, c capitalize, t title as a method, T title as a filter, s swapcase. */
static llm__val llm__tpl_map_case(llm__tpl *x, llm__val self, char how) {
    llm__val v = llm__tpl_str(x, self);
    size_t mark = x->text.len;
    int start = 1, len;
    for (uint32_t i = 0; i < v.n && llm__tpl_spend(x, (i & 7) == 0); i += (uint32_t)len) {
        int32_t c = llm__utf8_get(v.as.s + i, v.n - i, &len);
        int up = how == 'u' || (how == 's' && llm__tpl_lower(c) == c) || (strchr("ctT", how) && start);
        llm__tpl_put_char(x, up ? llm__tpl_upper(c) : llm__tpl_lower(c));
        if (how == 'c') start = 0;
        else if (how == 't') start = !llm__tpl_alpha(c);
        else start = llm__tpl_space(c) || (c < 128 && strchr("-({[<", c));
    }
    return llm__tpl_take(x, mark);
}

LLM__TPL_FN(llm__fn_lower) { return llm__tpl_map_case(x, self, 'l'); }
LLM__TPL_FN(llm__fn_upper) { return llm__tpl_map_case(x, self, 'u'); }
LLM__TPL_FN(llm__fn_capitalize) { return llm__tpl_map_case(x, self, 'c'); }
LLM__TPL_FN(llm__fn_str_title) { return llm__tpl_map_case(x, self, 't'); }
LLM__TPL_FN(llm__fn_title) { return llm__tpl_map_case(x, self, 'T'); }
LLM__TPL_FN(llm__fn_swapcase) { return llm__tpl_map_case(x, self, 's'); }

static llm__val llm__tpl_strip_to(llm__tpl *x, llm__val self, llm__val set, int sides) {
    llm__val v = llm__tpl_str(x, self);
    llm__str chars = llm__arg_str(x, set), s = llm__tpl_strip(llm__v_s(v), chars, sides);
    if (!llm__tpl_spend(x, v.n / 64)) return v;
    llm__val r = llm__v_str(s.p, s.n);
    r.flag = v.flag;
    return r;
}

LLM__TPL_FN(llm__fn_strip) { return llm__tpl_strip_to(x, self, a[0], 3); }
LLM__TPL_FN(llm__fn_lstrip) { return llm__tpl_strip_to(x, self, a[0], 1); }
LLM__TPL_FN(llm__fn_rstrip) { return llm__tpl_strip_to(x, self, a[0], 2); }

static llm__val llm__tpl_replace(llm__tpl *x, llm__str s, llm__str from, llm__str to, int64_t count) {
    size_t mark = x->text.len, i = 0;
    while (i <= s.n && count-- != 0 && llm__tpl_spend(x, 1)) {
        int64_t at = llm__tpl_find(llm__s(s.p + i, s.n - i), from, 1);
        if (at < 0) break;
        llm__tpl_put(x, s.p + i, (size_t)at);
        llm__tpl_put(x, to.p, to.n);
        i += (size_t)at + from.n;
        if (from.n) continue;
        int len = 1; /* nothing is replaced before every code point and at the end */
        if (i < s.n) llm__utf8_get(s.p + i, s.n - i, &len), llm__tpl_put(x, s.p + i, (size_t)len);
        i += (size_t)len;
    }
    if (i < s.n) llm__tpl_put(x, s.p + i, s.n - i);
    return llm__tpl_take(x, mark);
}

LLM__TPL_FN(llm__fn_replace) {
    return llm__tpl_replace(x, llm__v_s(self), llm__arg_text(x, a[0]), llm__arg_text(x, a[1]), llm__arg_int(x, a[2], -1));
}

LLM__TPL_FN(llm__fn_replace_filter) {
    llm__val s = llm__tpl_str(x, self), from = llm__tpl_str(x, a[0]), to = llm__tpl_str(x, a[1]);
    return llm__tpl_replace(x, llm__v_s(s), llm__v_s(from), llm__v_s(to), a[2].type == LLM__V_NONE ? -1 : llm__arg_int(x, a[2], -1));
}

/* The length of a line's end at s.p: \n, \r\n, and what else Python takes for one; 0 if none. */
static int llm__tpl_line_end(llm__str s) {
    int len;
    int32_t c = llm__utf8_get(s.p, s.n, &len);
    if (c == '\r' && s.n > 1 && s.p[1] == '\n') return 2;
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029 ? len : 0;
}

static llm__vlist *llm__tpl_lines(llm__tpl *x, llm__str s, int keep_ends) {
    llm__vlist *l = llm__tpl_list(x, 0);
    size_t from = 0;
    for (size_t i = 0; i < s.n && llm__tpl_spend(x, (i & 15) == 0);) {
        int end = llm__tpl_line_end(llm__s(s.p + i, s.n - i));
        i += end ? (size_t)end : 1;
        if (!end && i < s.n) continue;
        llm__tpl_push(x, l, llm__v_str(s.p + from, i - from - (keep_ends ? 0 : (size_t)end)));
        from = i;
    }
    return l;
}

LLM__TPL_FN(llm__fn_splitlines) { return llm__v_list(LLM__V_LIST, llm__tpl_lines(x, llm__v_s(self), llm__v_truth(a[0]))); }

/* Pieces of s between separators (white space if sep.p is NULL). */
static llm__vlist *llm__tpl_pieces(llm__tpl *x, llm__str s, llm__str sep, int64_t max) {
    llm__vlist *l = llm__tpl_list(x, 0);
    if (sep.p && !sep.n) llm__tpl_fail(x, "split: the separator is empty");
    while (llm__tpl_spend(x, 1)) {
        if (!sep.p) s = llm__tpl_strip(s, sep, 1);
        if (!sep.p && !s.n) break;
        int64_t end = (int64_t)s.n, skip = 0;
        int len;
        if (max != 0 && sep.p) end = llm__tpl_find(s, sep, 1), skip = (int64_t)sep.n;
        else if (max != 0)
            for (end = 0; end < (int64_t)s.n && !llm__tpl_space(llm__utf8_get(s.p + end, s.n - (size_t)end, &len)); end += len) {}
        if (end < 0) end = (int64_t)s.n, skip = 0, max = 0;
        llm__tpl_spend(x, end / 16);
        llm__tpl_push(x, l, llm__v_str(s.p, (size_t)end));
        if (max-- == 0 || !l) break;
        s = llm__s(s.p + end + skip, s.n - (size_t)(end + skip));
    }
    return l;
}

LLM__TPL_FN(llm__fn_split) { return llm__v_list(LLM__V_LIST, llm__tpl_pieces(x, llm__v_s(self), llm__arg_str(x, a[0]), llm__arg_int(x, a[1], -1))); }

LLM__TPL_FN(llm__fn_rsplit) {
    int64_t max = llm__arg_int(x, a[1], -1);
    llm__vlist *l = llm__tpl_pieces(x, llm__v_s(self), llm__arg_str(x, a[0]), -1);
    if (l && max >= 0 && l->n > max + 1) { /* the first pieces stay together */
        llm__val *v = l->v + (l->n - 1 - max);
        v->n = (uint32_t)(v->as.s + v->n - self.as.s);
        v->as.s = self.as.s;
        l->v = v;
        l->n = l->cap = (int32_t)max + 1;
    }
    return llm__v_list(LLM__V_LIST, l);
}

static llm__val llm__tpl_partition(llm__tpl *x, llm__val self, llm__val sep, int step) {
    llm__str s = llm__v_s(self), by = llm__arg_text(x, sep);
    llm__vlist *l = llm__tpl_list(x, 3);
    int64_t at = llm__tpl_find(s, by, step);
    if (!by.n) return llm__tpl_fail(x, "partition: the separator is empty");
    size_t cut = at < 0 ? (step > 0 ? s.n : 0) : (size_t)at, after = at < 0 ? cut : cut + by.n;
    llm__tpl_push(x, l, llm__v_str(s.p, cut));
    llm__tpl_push(x, l, at < 0 ? llm__v_str("", 0) : sep);
    llm__tpl_push(x, l, llm__v_str(s.p + after, s.n - after));
    return llm__v_list(LLM__V_TUPLE, l);
}

LLM__TPL_FN(llm__fn_partition) { return llm__tpl_partition(x, self, a[0], 1); }
LLM__TPL_FN(llm__fn_rpartition) { return llm__tpl_partition(x, self, a[0], -1); }

/* The part of a text from code point a[0] to a[1], which may be left out. *base: the code points before it. */
static llm__str llm__tpl_span(llm__tpl *x, llm__val self, const llm__val *a, int64_t *base) {
    llm__str s = llm__v_s(self);
    *base = 0;
    if (a[0].type == LLM__V_UNSET) return s;
    int64_t n = llm__tpl_chars(s), from = a[0].type == LLM__V_NONE ? 0 : llm__arg_int(x, a[0], 0), to = a[1].type == LLM__V_NONE ? n : llm__arg_int(x, a[1], n);
    from = from < 0 ? LLM__MAX(from + n, 0) : from;
    to = to < 0 ? LLM__MAX(to + n, 0) : LLM__MIN(to, n);
    if (from > to) return llm__s(NULL, 0);
    size_t begin = llm__tpl_byte_of(s, from);
    *base = from;
    return llm__s(s.p + begin, llm__tpl_byte_of(s, to) - begin);
}

static llm__val llm__tpl_find_in(llm__tpl *x, llm__val self, llm__val *a, int step, int must) {
    int64_t base;
    llm__str s = llm__tpl_span(x, self, a + 1, &base), what = llm__arg_text(x, a[0]);
    int64_t at = s.p ? llm__tpl_find(s, what, step) : -1;
    llm__tpl_spend(x, (int64_t)s.n / 16);
    if (at < 0 && must) return llm__tpl_fail(x, "index: the text was not found");
    return llm__v_int(at < 0 ? -1 : base + llm__tpl_chars(llm__s(s.p, (size_t)at)));
}

LLM__TPL_FN(llm__fn_find) { return llm__tpl_find_in(x, self, a, 1, 0); }
LLM__TPL_FN(llm__fn_rfind) { return llm__tpl_find_in(x, self, a, -1, 0); }
LLM__TPL_FN(llm__fn_str_index) { return llm__tpl_find_in(x, self, a, 1, 1); }
LLM__TPL_FN(llm__fn_rindex) { return llm__tpl_find_in(x, self, a, -1, 1); }

LLM__TPL_FN(llm__fn_str_count) {
    int64_t base, count = 0;
    llm__str s = llm__tpl_span(x, self, a + 1, &base), what = llm__arg_text(x, a[0]);
    if (s.p && !what.n) return llm__v_int(llm__tpl_chars(s) + 1);
    for (int64_t at; s.p && (at = llm__tpl_find(s, what, 1)) >= 0 && llm__tpl_spend(x, 1 + at / 16); count++) s = llm__s(s.p + at + what.n, s.n - (size_t)at - what.n);
    return llm__v_int(count);
}

/* Does the text begin (or end) with a text, or with one of a tuple of texts? */
static llm__val llm__tpl_has_affix(llm__tpl *x, llm__val self, llm__val *a, int at_end) {
    int64_t base;
    llm__str s = llm__tpl_span(x, self, a + 1, &base);
    int n = a[0].type == LLM__V_TUPLE ? a[0].as.list->n : 1, found = 0;
    for (int i = 0; i < n; i++) {
        llm__str what = llm__arg_text(x, a[0].type == LLM__V_TUPLE ? a[0].as.list->v[i] : a[0]);
        found |= s.p && s.n >= what.n && !memcmp(at_end ? s.p + s.n - what.n : s.p, what.p, what.n);
    }
    return llm__v_bool(found);
}

LLM__TPL_FN(llm__fn_startswith) { return llm__tpl_has_affix(x, self, a, 0); }
LLM__TPL_FN(llm__fn_endswith) { return llm__tpl_has_affix(x, self, a, 1); }

LLM__TPL_FN(llm__fn_removeprefix) {
    llm__str s = llm__v_s(self), p = llm__arg_text(x, a[0]);
    return s.n >= p.n && !memcmp(s.p, p.p, p.n) ? llm__v_str(s.p + p.n, s.n - p.n) : self;
}

LLM__TPL_FN(llm__fn_removesuffix) {
    llm__str s = llm__v_s(self), p = llm__arg_text(x, a[0]);
    return s.n >= p.n && !memcmp(s.p + s.n - p.n, p.p, p.n) ? llm__v_str(s.p, s.n - p.n) : self;
}

static llm__val llm__tpl_justify(llm__tpl *x, llm__val self, llm__val width, llm__val fill, char align) {
    llm__val v = llm__tpl_str(x, self);
    llm__str with = llm__arg_str(x, fill), s = llm__v_s(v);
    int64_t w = llm__arg_int(x, width, 80), pad = LLM__MAX(w - llm__tpl_chars(s), 0), before = align == '<' ? 0 : align == '>' ? pad : pad / 2 + (pad & w & 1);
    size_t mark = x->text.len;
    if (!with.p) with = llm__s(" ", 1);
    if (llm__tpl_chars(with) != 1) return llm__tpl_fail(x, "the fill must be one character");
    llm__tpl_repeat(x, with, before);
    llm__tpl_put(x, s.p, s.n);
    llm__tpl_repeat(x, with, pad - before);
    return llm__tpl_take(x, mark);
}

LLM__TPL_FN(llm__fn_ljust) { return llm__tpl_justify(x, self, a[0], a[1], '<'); }
LLM__TPL_FN(llm__fn_rjust) { return llm__tpl_justify(x, self, a[0], a[1], '>'); }
LLM__TPL_FN(llm__fn_center) { return llm__tpl_justify(x, self, a[0], a[1], '^'); }

LLM__TPL_FN(llm__fn_zfill) {
    llm__str s = llm__v_s(self);
    size_t mark = x->text.len, sign = s.n && (s.p[0] == '-' || s.p[0] == '+');
    llm__tpl_put(x, s.p, sign);
    llm__tpl_repeat(x, llm__s("0", 1), llm__arg_int(x, a[0], 0) - llm__tpl_chars(s));
    llm__tpl_put(x, s.p + sign, s.n - sign);
    return llm__tpl_take(x, mark);
}

/* Is every code point of a text, which is not empty, of a class? d digits, a letters, n both, s white space. */
static llm__val llm__tpl_all_are(llm__tpl *x, llm__val self, char kind) {
    int len, ok = self.n > 0;
    for (uint32_t i = 0; ok && i < self.n && llm__tpl_spend(x, (i & 15) == 0); i += (uint32_t)len) {
        int32_t c = llm__utf8_get(self.as.s + i, self.n - i, &len);
        ok = kind == 's' ? llm__tpl_space(c) : (kind != 'a' && llm__tpl_digit_of(c)) || (kind != 'd' && llm__tpl_alpha(c));
    }
    return llm__v_bool(ok);
}

LLM__TPL_FN(llm__fn_isdigit) { return llm__tpl_all_are(x, self, 'd'); }
LLM__TPL_FN(llm__fn_isalpha) { return llm__tpl_all_are(x, self, 'a'); }
LLM__TPL_FN(llm__fn_isalnum) { return llm__tpl_all_are(x, self, 'n'); }
LLM__TPL_FN(llm__fn_isspace) { return llm__tpl_all_are(x, self, 's'); }

/* Has the text letters with case, all of the one? Of any value, as str() writes it (the tests lower and upper). */
static llm__val llm__tpl_is_case(llm__tpl *x, llm__val self, int upper) {
    llm__val v = llm__tpl_str(x, self);
    int len, some = 0;
    for (uint32_t i = 0; i < v.n && llm__tpl_spend(x, (i & 15) == 0); i += (uint32_t)len) {
        int32_t c = llm__utf8_get(v.as.s + i, v.n - i, &len), low = llm__tpl_lower(c), up = llm__tpl_upper(c);
        if (low == up) continue;
        if (c != (upper ? up : low)) return llm__v_bool(0);
        some = 1;
    }
    return llm__v_bool(some);
}

LLM__TPL_FN(llm__fn_islower) { return llm__tpl_is_case(x, self, 0); }
LLM__TPL_FN(llm__fn_isupper) { return llm__tpl_is_case(x, self, 1); }

LLM__TPL_FN(llm__fn_str_join) {
    const llm__vlist *l = llm__tpl_iter(x, a[0]);
    size_t mark = x->text.len;
    for (int i = 0; l && i < l->n && !x->err; i++) {
        llm__str s = llm__arg_text(x, l->v[i]);
        if (i) llm__tpl_put(x, self.as.s, self.n);
        llm__tpl_put(x, s.p, s.n);
    }
    return llm__tpl_take(x, mark);
}

/* ---- methods of dicts, lists, loops, cyclers ---- */

LLM__TPL_FN(llm__fn_dict_get) {
    const llm__val *v = llm__tpl_dict_find(x, self.as.dict, a[0]);
    return v ? *v : a[1].type == LLM__V_UNSET ? llm__v(LLM__V_NONE) : a[1];
}

static llm__val llm__tpl_dict_view(llm__tpl *x, llm__val self, int which) {
    llm__val v = llm__v_list(LLM__V_VIEW, llm__tpl_view(x, self.as.dict, which));
    v.flag = (uint8_t)which;
    return v;
}

LLM__TPL_FN(llm__fn_keys) { return llm__tpl_dict_view(x, self, 0); }
LLM__TPL_FN(llm__fn_values) { return llm__tpl_dict_view(x, self, 1); }
LLM__TPL_FN(llm__fn_dict_items) { return llm__tpl_dict_view(x, self, 2); }
LLM__TPL_FN(llm__fn_copy) { return self; }

LLM__TPL_FN(llm__fn_list_index) {
    const llm__vlist *l = llm__tpl_iter(x, self);
    for (int i = 0; l && i < l->n && !x->err; i++)
        if (llm__tpl_equal(x, l->v[i], a[0])) return llm__v_int(i);
    return llm__tpl_fail(x, "index: the value is not in the list");
}

LLM__TPL_FN(llm__fn_list_count) {
    const llm__vlist *l = llm__tpl_iter(x, self);
    int64_t n = 0;
    for (int i = 0; l && i < l->n && !x->err; i++) n += llm__tpl_equal(x, l->v[i], a[0]);
    return llm__v_int(n);
}

LLM__TPL_FN(llm__fn_cycle) {
    if (!g->n_pos || g->n != g->n_pos) return llm__tpl_fail(x, "loop.cycle: values were expected");
    return g->v[self.as.loop->at % g->n_pos];
}

LLM__TPL_FN(llm__fn_changed) {
    llm__vlist *l = llm__tpl_list(x, g->n_pos);
    for (int i = 0; i < g->n_pos; i++) llm__tpl_push(x, l, g->v[i]);
    llm__val now = llm__v_list(LLM__V_TUPLE, l), before = self.as.loop->changed;
    if (x->err || (before.type != LLM__V_UNSET && llm__tpl_equal(x, before, now))) return llm__v_bool(0);
    self.as.loop->changed = now;
    return llm__v_bool(1);
}

LLM__TPL_FN(llm__fn_cycler_next) { return self.as.list->v[self.as.list->at++ % self.as.list->n]; }

LLM__TPL_FN(llm__fn_cycler_reset) {
    self.as.list->at = 0;
    return llm__v(LLM__V_NONE);
}

static const llm__tpl_entry llm__tpl_str_methods[] = {
    {"split", "sep maxsplit", llm__fn_split}, {"rsplit", "sep maxsplit", llm__fn_rsplit}, {"strip", "-chars", llm__fn_strip},
    {"lstrip", "-chars", llm__fn_lstrip}, {"rstrip", "-chars", llm__fn_rstrip}, {"startswith", "-prefix! -start -end", llm__fn_startswith},
    {"endswith", "-suffix! -start -end", llm__fn_endswith}, {"replace", "-old! -new! -count", llm__fn_replace}, {"lower", "", llm__fn_lower},
    {"upper", "", llm__fn_upper}, {"title", "", llm__fn_str_title}, {"capitalize", "", llm__fn_capitalize}, {"swapcase", "", llm__fn_swapcase},
    {"casefold", "", llm__fn_lower}, {"find", "-sub! -start -end", llm__fn_find}, {"rfind", "-sub! -start -end", llm__fn_rfind},
    {"index", "-sub! -start -end", llm__fn_str_index}, {"rindex", "-sub! -start -end", llm__fn_rindex}, {"count", "-sub! -start -end", llm__fn_str_count},
    {"join", "-iterable!", llm__fn_str_join}, {"format", NULL, llm__fn_str_format}, {"isdigit", "", llm__fn_isdigit}, {"isdecimal", "", llm__fn_isdigit},
    {"isnumeric", "", llm__fn_isdigit}, {"isalpha", "", llm__fn_isalpha}, {"isalnum", "", llm__fn_isalnum}, {"isspace", "", llm__fn_isspace},
    {"islower", "", llm__fn_islower}, {"isupper", "", llm__fn_isupper}, {"splitlines", "keepends", llm__fn_splitlines},
    {"removeprefix", "-prefix!", llm__fn_removeprefix}, {"removesuffix", "-suffix!", llm__fn_removesuffix}, {"partition", "-sep!", llm__fn_partition},
    {"rpartition", "-sep!", llm__fn_rpartition}, {"zfill", "-width!", llm__fn_zfill}, {"ljust", "-width! -fill", llm__fn_ljust},
    {"rjust", "-width! -fill", llm__fn_rjust}, {"center", "-width! -fill", llm__fn_center}, {NULL, NULL, NULL}};

static const llm__tpl_entry llm__tpl_dict_methods[] = {
    {"get", "-key! -default", llm__fn_dict_get}, {"items", "", llm__fn_dict_items}, {"keys", "", llm__fn_keys}, {"values", "", llm__fn_values},
    {"copy", "", llm__fn_copy}, {NULL, NULL, NULL}};

static const llm__tpl_entry llm__tpl_list_methods[] = {
    {"index", "-value!", llm__fn_list_index}, {"count", "-value!", llm__fn_list_count}, {"copy", "", llm__fn_copy}, {NULL, NULL, NULL}};

static const llm__tpl_entry llm__tpl_loop_methods[] = {{"cycle", NULL, llm__fn_cycle}, {"changed", NULL, llm__fn_changed}, {NULL, NULL, NULL}};

static const llm__tpl_entry llm__tpl_cycler_methods[] = {{"next", "", llm__fn_cycler_next}, {"reset", "", llm__fn_cycler_reset}, {NULL, NULL, NULL}};

static const llm__tpl_entry *llm__tpl_entry_named(const llm__tpl_entry *table, llm__str name) {
    for (; table->name; table++)
        if (table->name[0] == (name.n ? name.p[0] : 0) && llm__str_eq(name, table->name)) return table;
    return NULL;
}

static const llm__tpl_entry *llm__tpl_method_named(llm__val v, llm__str name) {
    const llm__tpl_entry *table = v.type == LLM__V_STR ? llm__tpl_str_methods : v.type == LLM__V_DICT ? llm__tpl_dict_methods
                                : v.type == LLM__V_LIST || v.type == LLM__V_TUPLE || v.type == LLM__V_RANGE ? llm__tpl_list_methods
                                : v.type == LLM__V_LOOP ? llm__tpl_loop_methods : v.type == LLM__V_CYCLER ? llm__tpl_cycler_methods : NULL;
    return table ? llm__tpl_entry_named(table, name) : NULL;
}

/* ---- filters ---- */

/* Arguments without the first k by position. */
static llm__args llm__args_after(const llm__args *g, int k) {
    llm__args rest = *g;
    k = LLM__MIN(k, g->n_pos);
    rest.v += k;
    rest.name += k;
    rest.n -= k;
    rest.n_pos -= k;
    return rest;
}

LLM__TPL_FN(llm__fn_default) { return self.type == LLM__V_UNDEF || (llm__v_truth(a[1]) && !llm__v_truth(self)) ? (a[0].type == LLM__V_UNSET ? llm__v_str("", 0) : a[0]) : self; }
LLM__TPL_FN(llm__fn_length) { return llm__v_int(llm__tpl_len(x, self)); }
LLM__TPL_FN(llm__fn_string) { return llm__tpl_str(x, self); }

LLM__TPL_FN(llm__fn_safe) {
    llm__val v = llm__tpl_str(x, self);
    v.flag = 1;
    return v;
}

/* Escaped for HTML unless marked safe. */
static llm__val llm__tpl_escape(llm__tpl *x, llm__val v) {
    size_t mark = x->text.len;
    if (v.type == LLM__V_STR && v.flag) return v;
    llm__str s = llm__v_s(llm__tpl_str(x, v));
    for (size_t i = 0; i < s.n && llm__tpl_spend(x, (i & 15) == 0); i++) {
        const char *e = s.p[i] == '&' ? "&amp;" : s.p[i] == '<' ? "&lt;" : s.p[i] == '>' ? "&gt;" : s.p[i] == '"' ? "&#34;" : s.p[i] == '\'' ? "&#39;" : NULL;
        if (e) llm__tpl_puts(x, e);
        else llm__tpl_put(x, s.p + i, 1);
    }
    v = llm__tpl_take(x, mark);
    v.flag = 1;
    return v;
}

LLM__TPL_FN(llm__fn_escape) { return llm__tpl_escape(x, self); }
LLM__TPL_FN(llm__fn_forceescape) { return self.flag = 0, llm__tpl_escape(x, self); }

LLM__TPL_FN(llm__fn_tojson) {
    llm__json_style o;
    size_t mark = x->text.len;
    memset(&o, 0, sizeof o);
    o.ascii = llm__v_truth(a[0]);
    o.sort = llm__v_truth(a[3]);
    o.pretty = a[1].type != LLM__V_UNSET && a[1].type != LLM__V_NONE;
    o.comma = o.pretty ? llm__s(",", 1) : llm__s(", ", 2);
    o.colon = llm__s(": ", 2);
    if (o.pretty && a[1].type == LLM__V_STR) {
        o.indent = llm__v_s(a[1]);
    } else if (o.pretty) {
        llm__tpl_spaces(x, llm__arg_int(x, a[1], 0));
        o.indent = llm__v_s(llm__tpl_take(x, mark));
    }
    if (a[2].type != LLM__V_UNSET && a[2].type != LLM__V_NONE) {
        const llm__vlist *l = llm__tpl_iter(x, a[2]);
        if (!l || l->n != 2) return llm__tpl_fail(x, "tojson: separators must be two texts");
        o.comma = llm__arg_text(x, l->v[0]);
        o.colon = llm__arg_text(x, l->v[1]);
    }
    llm__tpl_dump(x, self, &o, 0);
    return llm__tpl_take(x, mark);
}

static llm__val llm__tpl_from_json(llm__tpl *x, const llm_json *doc, int node, int depth);

LLM__TPL_FN(llm__fn_from_json) {
    llm_json *doc;
    llm__str s = llm__arg_text(x, self);
    if (x->err || !llm__tpl_spend(x, (int64_t)s.n / 8)) return self;
    llm_result r = llm_json_parse(s.p, s.n, NULL, &doc);
    if (r) return llm__tpl_error(x, r == LLM_ERR_NOMEM ? r : LLM_ERR_TEMPLATE, "from_json: %.200s", llm_last_error());
    llm__val v = llm__tpl_from_json(x, doc, 0, 0);
    llm_json_free(doc);
    return v;
}

LLM__TPL_FN(llm__fn_join) {
    const llm__vlist *l = llm__tpl_iter(x, self);
    llm__val sep = a[0].type == LLM__V_UNSET ? llm__v_str("", 0) : llm__tpl_str(x, a[0]);
    size_t mark = x->text.len;
    for (int i = 0; l && i < l->n && !x->err; i++) {
        llm__val item = llm__tpl_pick(x, l->v[i], a[1], llm__v(LLM__V_UNSET));
        if (i) llm__tpl_put(x, llm__v_s(sep).p, sep.n);
        llm__tpl_write(x, item, 0);
    }
    return llm__tpl_take(x, mark);
}

/* A new list of what a walk yields. */
static llm__vlist *llm__tpl_list_of(llm__tpl *x, llm__val v) {
    const llm__vlist *all = llm__tpl_iter(x, v);
    llm__vlist *l = all ? llm__tpl_list(x, all->n) : NULL;
    if (!l) return NULL;
    if (all->n) memcpy(l->v, all->v, (size_t)all->n * sizeof *l->v);
    l->n = all->n;
    return l;
}

LLM__TPL_FN(llm__fn_list) { return llm__v_list(LLM__V_LIST, llm__tpl_list_of(x, self)); }

LLM__TPL_FN(llm__fn_items) {
    if (self.type == LLM__V_UNDEF) return llm__v_list(LLM__V_GEN, llm__tpl_list(x, 0));
    if (self.type != LLM__V_DICT) return llm__tpl_fail(x, "items: a mapping was expected, got '%s'", llm__v_type_name(self));
    return llm__v_list(LLM__V_GEN, llm__tpl_view(x, self.as.dict, 2));
}

LLM__TPL_FN(llm__fn_first) {
    const llm__vlist *l = llm__tpl_iter(x, self);
    if (l && l->n && self.type == LLM__V_GEN) self.as.list->at = self.as.list->n - l->n + 1; /* one was taken */
    return l && l->n ? l->v[0] : llm__v_undef("first item");
}

LLM__TPL_FN(llm__fn_last) {
    if (self.type == LLM__V_GEN) return llm__tpl_fail(x, "last: a generator has no end to begin from");
    const llm__vlist *l = llm__tpl_iter(x, self);
    return l && l->n ? l->v[l->n - 1] : llm__v_undef("last item");
}

LLM__TPL_FN(llm__fn_reverse) {
    if (self.type == LLM__V_STR) {
        llm__val bound[3] = {llm__v(LLM__V_UNSET), llm__v(LLM__V_UNSET), llm__v_int(-1)};
        return llm__tpl_slice(x, self, bound);
    }
    llm__vlist *l = llm__tpl_list_of(x, self);
    for (int i = 0; l && i < l->n / 2; i++) {
        llm__val t = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = t;
    }
    return llm__v_list(LLM__V_GEN, l);
}

/* A key to compare by: the attribute, in lower case if it is a text and case does not count. */
static llm__val llm__tpl_key_of(llm__tpl *x, llm__val item, llm__val attribute, llm__val absent, llm__val case_sensitive) {
    llm__val key = llm__tpl_pick(x, item, attribute, absent);
    return key.type == LLM__V_STR && !llm__v_truth(case_sensitive) ? llm__tpl_map_case(x, key, 'l') : key;
}

static llm__vlist *llm__tpl_keys_of(llm__tpl *x, const llm__vlist *l, llm__val attribute, llm__val absent, llm__val case_sensitive) {
    llm__vlist *keys = l ? llm__tpl_list(x, l->n) : NULL;
    for (int i = 0; keys && i < l->n && !x->err; i++) llm__tpl_push(x, keys, llm__tpl_key_of(x, l->v[i], attribute, absent, case_sensitive));
    return x->err ? NULL : keys;
}

/* sort(reverse, case_sensitive, attribute); several attributes with commas become a tuple. */
LLM__TPL_FN(llm__fn_sort) {
    llm__vlist *l = llm__tpl_list_of(x, self), *keys = NULL, *parts = NULL;
    if (a[2].type == LLM__V_STR && memchr(a[2].as.s, ',', a[2].n)) {
        parts = llm__tpl_pieces(x, llm__v_s(a[2]), llm__s(",", 1), -1);
        keys = l ? llm__tpl_list(x, l->n) : NULL;
        for (int i = 0; keys && i < l->n && !x->err; i++) {
            llm__vlist *key = llm__tpl_list(x, parts->n);
            for (int k = 0; key && k < parts->n; k++) llm__tpl_push(x, key, llm__tpl_key_of(x, l->v[i], parts->v[k], llm__v(LLM__V_UNSET), a[1]));
            llm__tpl_push(x, keys, llm__v_list(LLM__V_TUPLE, key));
        }
    } else {
        keys = llm__tpl_keys_of(x, l, a[2], llm__v(LLM__V_UNSET), a[1]);
    }
    if (!x->err) llm__tpl_sort(x, l->v, keys->v, l->n, llm__v_truth(a[0]));
    return llm__v_list(LLM__V_LIST, l);
}

/* dictsort(case_sensitive, by, reverse) */
LLM__TPL_FN(llm__fn_dictsort) {
    if (self.type != LLM__V_DICT) return llm__tpl_fail(x, "dictsort: a mapping was expected, got '%s'", llm__v_type_name(self));
    llm__str by = a[1].type == LLM__V_UNSET ? llm__s("key", 3) : llm__arg_text(x, a[1]);
    if (!llm__str_eq(by, "key") && !llm__str_eq(by, "value")) return llm__tpl_fail(x, "dictsort: by must be 'key' or 'value'");
    llm__vlist *l = llm__tpl_view(x, self.as.dict, 2), *keys = llm__tpl_keys_of(x, l, llm__v_int(by.p[0] == 'v'), llm__v(LLM__V_UNSET), a[0]);
    if (keys) llm__tpl_sort(x, l->v, keys->v, l->n, llm__v_truth(a[2]));
    return llm__v_list(LLM__V_LIST, l);
}

static llm__val llm__tpl_extreme(llm__tpl *x, llm__val self, llm__val *a, int sign) {
    const llm__vlist *l = llm__tpl_iter(x, self), *keys = llm__tpl_keys_of(x, l, a[1], llm__v(LLM__V_UNSET), a[0]);
    int best = 0;
    for (int i = 1; keys && i < l->n && !x->err; i++)
        if (llm__tpl_order(x, keys->v[i], keys->v[best]) * sign > 0) best = i;
    return keys && l->n ? l->v[best] : llm__v_undef("the least or greatest of nothing");
}

LLM__TPL_FN(llm__fn_min) { return llm__tpl_extreme(x, self, a, -1); }
LLM__TPL_FN(llm__fn_max) { return llm__tpl_extreme(x, self, a, 1); }

LLM__TPL_FN(llm__fn_unique) {
    const llm__vlist *l = llm__tpl_iter(x, self), *keys = llm__tpl_keys_of(x, l, a[1], llm__v(LLM__V_UNSET), a[0]);
    llm__vlist *out = llm__tpl_list(x, 0);
    llm__vdict *seen = llm__tpl_dict(x);
    for (int i = 0; keys && seen && i < l->n && !x->err; i++) {
        int n = seen->n;
        llm__tpl_dict_set(x, seen, keys->v[i], llm__v(LLM__V_NONE));
        if (seen->n > n) llm__tpl_push(x, out, l->v[i]);
    }
    return llm__v_list(LLM__V_GEN, out);
}

/* groupby(attribute, default, case_sensitive): a list of (key, values). */
LLM__TPL_FN(llm__fn_groupby) {
    llm__vlist *l = llm__tpl_list_of(x, self), *keys = llm__tpl_keys_of(x, l, a[0], a[1], a[2]), *out = llm__tpl_list(x, 0);
    if (x->err) return self;
    llm__tpl_sort(x, l->v, keys->v, l->n, 0);
    for (int i = 0, end; i < l->n && !x->err; i = end) {
        llm__vlist *group = llm__tpl_list(x, 0);
        llm__val key = llm__tpl_key_of(x, l->v[i], a[0], a[1], a[2]);
        for (end = i; end < l->n && !x->err && (end == i || llm__tpl_equal(x, key, llm__tpl_key_of(x, l->v[end], a[0], a[1], a[2]))); end++) llm__tpl_push(x, group, l->v[end]);
        llm__val pair = llm__tpl_pair(x, LLM__V_TUPLE, llm__tpl_pick(x, l->v[i], a[0], a[1]), llm__v_list(LLM__V_LIST, group));
        pair.flag = 1;
        llm__tpl_push(x, out, pair);
    }
    return llm__v_list(LLM__V_LIST, out);
}

static llm__val llm__tpl_arith(llm__tpl *x, int op, llm__val a, llm__val b);

/* sum(attribute, start) */
LLM__TPL_FN(llm__fn_sum) {
    const llm__vlist *l = llm__tpl_iter(x, self);
    llm__val total = a[1].type == LLM__V_UNSET ? llm__v_int(0) : a[1];
    if (total.type == LLM__V_STR) return llm__tpl_fail(x, "sum: texts cannot be added up");
    for (int i = 0; l && i < l->n && !x->err; i++) total = llm__tpl_arith(x, '+', total, llm__tpl_pick(x, l->v[i], a[0], llm__v(LLM__V_UNSET)));
    return total;
}

/* Runs a filter or test named by a text on a value. */
static llm__val llm__tpl_apply_named(llm__tpl *x, llm__val name, int test, llm__val v, const llm__args *g) {
    llm__str s = llm__arg_text(x, name);
    const llm__tpl_entry *e = test ? llm__tpl_test_named(s) : llm__tpl_filter_named(s);
    if (!e) return llm__tpl_fail(x, "no such %s: '%.*s'", test ? "test" : "filter", (int)LLM__MIN(s.n, (size_t)40), s.p);
    return llm__tpl_apply(x, e, v, g);
}

/* map("filter", ...), map(attribute="a.b", default=...) */
LLM__TPL_FN(llm__fn_map) {
    llm__vlist *out = llm__tpl_list(x, 0);
    const llm__vlist *l = llm__v_truth(self) ? llm__tpl_iter(x, self) : out;
    const llm__val *attribute = llm__args_named(g, llm__s("attribute", 9)), *absent = llm__args_named(g, llm__s("default", 7));
    llm__args rest = llm__args_after(g, 1);
    if (l && l->n && g->n_pos == 0 && (!attribute || g->n != 1 + (absent != NULL))) return llm__tpl_fail(x, "map: a filter or an attribute was expected");
    for (int i = 0; l && i < l->n && !x->err; i++) {
        if (g->n_pos) llm__tpl_push(x, out, llm__tpl_apply_named(x, g->v[0], 0, l->v[i], &rest));
        else llm__tpl_push(x, out, llm__tpl_pick(x, l->v[i], *attribute, absent ? *absent : llm__v(LLM__V_UNSET)));
    }
    return llm__v_list(LLM__V_GEN, out);
}

/* select, reject ("test", ...) and selectattr, rejectattr("attribute", "test", ...) */
static llm__val llm__tpl_select(llm__tpl *x, llm__val self, const llm__args *g, int attr, int keep) {
    llm__vlist *out = llm__tpl_list(x, 0);
    const llm__vlist *l = llm__v_truth(self) ? llm__tpl_iter(x, self) : out;
    llm__args rest = llm__args_after(g, attr + 1);
    if (l && l->n && g->n_pos < attr) return llm__tpl_fail(x, "selectattr: an attribute was expected");
    for (int i = 0; l && i < l->n && !x->err; i++) {
        llm__val v = attr ? llm__tpl_pick(x, l->v[i], g->v[0], llm__v(LLM__V_UNSET)) : l->v[i];
        if (g->n_pos > attr) v = llm__tpl_apply_named(x, g->v[attr], 1, v, &rest);
        if (llm__v_truth(v) == keep) llm__tpl_push(x, out, l->v[i]);
    }
    return llm__v_list(LLM__V_GEN, out);
}

LLM__TPL_FN(llm__fn_select) { return llm__tpl_select(x, self, g, 0, 1); }
LLM__TPL_FN(llm__fn_reject) { return llm__tpl_select(x, self, g, 0, 0); }
LLM__TPL_FN(llm__fn_selectattr) { return llm__tpl_select(x, self, g, 1, 1); }
LLM__TPL_FN(llm__fn_rejectattr) { return llm__tpl_select(x, self, g, 1, 0); }

/* attr(name): as v.name, but without v["name"]. */
LLM__TPL_FN(llm__fn_attr) {
    llm__val v = llm__tpl_python_attr(x, self, llm__arg_text(x, a[0]));
    return v.type == LLM__V_UNSET ? llm__v_text(LLM__V_UNDEF, a[0].as.s, a[0].n) : v;
}

/* batch(linecount, fill_with) */
LLM__TPL_FN(llm__fn_batch) {
    const llm__vlist *l = llm__tpl_iter(x, self);
    llm__vlist *out = llm__tpl_list(x, 0), *row = NULL;
    int64_t n = llm__arg_int(x, a[0], 1);
    for (int i = 0; l && i < l->n && !x->err; i++) {
        if (!row || row->n >= n) llm__tpl_push(x, out, llm__v_list(LLM__V_LIST, row = llm__tpl_list(x, 0)));
        llm__tpl_push(x, row, l->v[i]);
    }
    while (row && row->n < n && a[1].type != LLM__V_UNSET && a[1].type != LLM__V_NONE && !x->err) llm__tpl_push(x, row, a[1]);
    return llm__v_list(LLM__V_GEN, out);
}

/* slice(slices, fill_with): columns of nearly equal length. */
LLM__TPL_FN(llm__fn_slice) {
    const llm__vlist *l = llm__tpl_iter(x, self);
    llm__vlist *out = llm__tpl_list(x, 0);
    int64_t n = llm__arg_int(x, a[0], 1), at = 0;
    if (n == 0) return llm__tpl_fail(x, "slice: 0 slices");
    for (int64_t k = 0; l && k < n && !x->err; k++) {
        int64_t size = l->n / n + (k < l->n % n);
        llm__vlist *row = llm__tpl_list(x, size);
        for (int64_t i = 0; i < size && !x->err; i++) llm__tpl_push(x, row, l->v[at++]);
        if (a[1].type != LLM__V_UNSET && a[1].type != LLM__V_NONE && k >= l->n % n) llm__tpl_push(x, row, a[1]);
        llm__tpl_push(x, out, llm__v_list(LLM__V_LIST, row));
    }
    return llm__v_list(LLM__V_GEN, out);
}

/* indent(width, first, blank) */
LLM__TPL_FN(llm__fn_indent) {
    llm__str s = llm__arg_text(x, self), by = llm__s("", 0);
    size_t mark = x->text.len;
    if (a[0].type == LLM__V_STR) {
        by = llm__v_s(a[0]);
    } else {
        llm__tpl_spaces(x, llm__arg_int(x, a[0], 4));
        by = llm__v_s(llm__tpl_take(x, mark));
    }
    llm__val text = llm__tpl_copy(x, s.p, s.n); /* with a line feed added, so that every line has its end */
    llm__tpl_put(x, llm__v_s(text).p, text.n);
    llm__tpl_puts(x, "\n");
    const llm__vlist *l = llm__tpl_lines(x, llm__v_s(llm__tpl_take(x, mark)), 0);
    for (int i = 0; l && i < l->n && !x->err; i++) {
        if (i) llm__tpl_puts(x, "\n");
        if (i ? (l->v[i].n || llm__v_truth(a[2])) : llm__v_truth(a[1])) llm__tpl_put(x, by.p, by.n);
        llm__tpl_put(x, l->v[i].as.s, l->v[i].n);
    }
    return llm__tpl_take(x, mark);
}

/* truncate(length, killwords, end, leeway) */
LLM__TPL_FN(llm__fn_truncate) {
    llm__val v = llm__tpl_str(x, self);
    int64_t length = llm__arg_int(x, a[0], 255), leeway = a[3].type == LLM__V_NONE ? 5 : llm__arg_int(x, a[3], 5), n = llm__tpl_len(x, self);
    llm__str end = a[2].type == LLM__V_UNSET ? llm__s("...", 3) : llm__arg_text(x, a[2]), s = llm__v_s(v);
    if (length < llm__tpl_chars(end) || leeway < 0) return llm__tpl_fail(x, "truncate: a length over that of its end was expected");
    if (n <= length + leeway) return self;
    s.n = llm__tpl_byte_of(s, length - llm__tpl_chars(end));
    int64_t blank = llm__v_truth(a[1]) ? -1 : llm__tpl_find(s, llm__s(" ", 1), -1);
    if (blank >= 0) s.n = (size_t)blank;
    size_t mark = x->text.len;
    llm__tpl_put(x, s.p, s.n);
    llm__tpl_put(x, end.p, end.n);
    return llm__tpl_take(x, mark);
}

LLM__TPL_FN(llm__fn_wordcount) {
    llm__val v = llm__tpl_str(x, self);
    int64_t count = 0;
    int inside = 0, len;
    for (uint32_t i = 0; i < v.n && llm__tpl_spend(x, (i & 15) == 0); i += (uint32_t)len) {
        int32_t c = llm__utf8_get(v.as.s + i, v.n - i, &len);
        int word = c == '_' || llm__tpl_alpha(c) || llm__tpl_digit_of(c);
        count += word && !inside;
        inside = word;
    }
    return llm__v_int(count);
}

static void llm__tpl_quote(llm__tpl *x, llm__val v, int query) {
    llm__str s = llm__v_s(llm__tpl_str(x, v));
    for (size_t i = 0; i < s.n && llm__tpl_spend(x, (i & 15) == 0); i++) {
        uint8_t c = (uint8_t)s.p[i];
        if (llm__tpl_digit(c) || (c < 128 && (llm__tpl_alpha(c) || (c && strchr("_.-~", c)))) || (c == '/' && !query)) llm__tpl_put(x, s.p + i, 1);
        else if (c == ' ' && query) llm__tpl_puts(x, "+");
        else llm__tpl_put_hex(x, "%", 2, c);
    }
}

LLM__TPL_FN(llm__fn_urlencode) {
    size_t mark = x->text.len;
    if (self.type == LLM__V_STR || !(llm__v_is_list(self) || self.type == LLM__V_DICT || self.type == LLM__V_UNDEF)) {
        llm__tpl_quote(x, self, 0);
        return llm__tpl_take(x, mark);
    }
    const llm__vlist *l = self.type == LLM__V_DICT ? llm__tpl_view(x, self.as.dict, 2) : llm__tpl_iter(x, self);
    for (int i = 0; l && i < l->n && !x->err; i++) {
        const llm__vlist *pair = llm__tpl_iter(x, l->v[i]);
        if (!pair || pair->n != 2) return llm__tpl_fail(x, "urlencode: pairs were expected");
        if (i) llm__tpl_puts(x, "&");
        llm__tpl_quote(x, pair->v[0], 1);
        llm__tpl_puts(x, "=");
        llm__tpl_quote(x, pair->v[1], 1);
    }
    return llm__tpl_take(x, mark);
}

/* A text as Python's int() or float() reads it: without blanks around, '_' between digits. 0 if it is no number. */
static int llm__tpl_read_number(llm__tpl *x, llm__str s, int64_t base, int is_float, llm__val *out) {
    char clean[64];
    size_t n = 0;
    s = llm__tpl_strip(s, llm__s(NULL, 0), 3);
    int negative = s.n && s.p[0] == '-';
    if (s.n && (s.p[0] == '-' || s.p[0] == '+')) s.p++, s.n--;
    if (base == 16 && s.n > 2 && s.p[0] == '0' && (s.p[1] | 32) == 'x') s.p += 2, s.n -= 2;
    for (size_t i = 0; i < s.n; i++) {
        int between = i && i + 1 < s.n && llm__lex_hex(s.p[i - 1]) >= 0 && llm__lex_hex(s.p[i + 1]) >= 0;
        if (s.p[i] == '_' && between) continue;
        if (n + 1 >= sizeof clean) return 0;
        clean[n++] = s.p[i];
    }
    clean[n] = 0;
    if (is_float) {
        double d = 0;
        int word = n && (!strcmp(clean, "inf") || !strcmp(clean, "nan"));
        if (!n || (!word && !llm__parse_double(clean, n, &d)) || clean[0] == '-') return 0;
        if (word) d = clean[0] == 'i' ? (double)INFINITY : (double)NAN;
        return *out = llm__v_float(negative ? -d : d), 1;
    }
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        int digit = llm__lex_hex(clean[i]);
        if (digit < 0 || digit >= base) return 0;
        if (v > ((uint64_t)INT64_MAX - (uint64_t)digit) / (uint64_t)base) return llm__tpl_fail(x, "a number does not fit 64 bits"), 0;
        v = v * (uint64_t)base + (uint64_t)digit;
    }
    return n ? (*out = llm__v_int(negative ? -(int64_t)v : (int64_t)v), 1) : 0;
}

/* int(default, base) */
LLM__TPL_FN(llm__fn_int) {
    llm__val v, absent = a[0].type == LLM__V_UNSET ? llm__v_int(0) : a[0];
    int64_t base = llm__arg_int(x, a[1], 10);
    if (base < 2 || base > 16) return llm__tpl_fail(x, "int: a base from 2 to 16 was expected");
    if (self.type == LLM__V_UNDEF) return llm__tpl_fail(x, "'%.*s' is undefined", (int)self.n, self.n ? self.as.s : "");
    if (self.type == LLM__V_BIG) return self;
    if (llm__v_is_int(self)) return llm__v_int(self.as.i);
    if (self.type == LLM__V_STR && llm__tpl_read_number(x, llm__v_s(self), base, 0, &v)) return v;
    if (self.type == LLM__V_STR && llm__tpl_read_number(x, llm__v_s(self), base, 1, &v)) self = v;
    if (self.type != LLM__V_FLOAT) return absent;
    if (self.as.f != self.as.f) return absent;
    if (fabs(self.as.f) < 9.2e18) return llm__v_int((int64_t)self.as.f);
    return self.as.f - self.as.f != 0 ? absent : llm__tpl_fail(x, "int: a number does not fit 64 bits");
}

/* float(default) */
LLM__TPL_FN(llm__fn_float) {
    llm__val v = llm__v_float(0);
    if (self.type == LLM__V_UNDEF) return llm__tpl_fail(x, "'%.*s' is undefined", (int)self.n, self.n ? self.as.s : "");
    if (self.type == LLM__V_BIG && llm__parse_double(self.as.s, self.n, &v.as.f)) return v;
    if (llm__v_is_number(self)) return llm__v_float(llm__v_num(self));
    if (self.type == LLM__V_STR && llm__tpl_read_number(x, llm__v_s(self), 10, 1, &v)) return v;
    return a[0].type == LLM__V_UNSET ? llm__v_float(0) : a[0];
}

LLM__TPL_FN(llm__fn_abs) {
    if (!llm__v_is_number(self)) return llm__tpl_fail(x, "abs: a number was expected, got '%s'", llm__v_type_name(self));
    if (self.type == LLM__V_FLOAT) return llm__v_float(fabs(self.as.f));
    if (self.as.i == INT64_MIN) return llm__tpl_fail(x, "abs: the result does not fit 64 bits");
    return llm__v_int(self.as.i < 0 ? -self.as.i : self.as.i);
}

/* round(precision, method): Python's round, which goes to even at .5, or up (ceil) or down (floor). */
LLM__TPL_FN(llm__fn_round) {
    int64_t p = llm__arg_int(x, a[0], 0);
    llm__str method = a[1].type == LLM__V_UNSET ? llm__s("common", 6) : llm__arg_text(x, a[1]);
    char s[400];
    double d = 0;
    if (!llm__v_is_number(self)) return llm__tpl_fail(x, "round: a number was expected, got '%s'", llm__v_type_name(self));
    if (p > 60 || p < -60) return llm__tpl_fail(x, "round: a precision within 60 was expected");
    double scale = pow(10, (double)(p < 0 ? -p : p)), v = llm__v_num(self);
    if (llm__str_eq(method, "ceil") || llm__str_eq(method, "floor")) {
        v = p < 0 ? v / scale : v * scale;
        v = method.p[0] == 'c' ? ceil(v) : floor(v);
        return llm__v_float(p < 0 ? v * scale : v / scale);
    }
    if (!llm__str_eq(method, "common")) return llm__tpl_fail(x, "round: method must be common, ceil or floor");
    if (llm__v_is_int(self)) return llm__v_int(p < 0 ? (int64_t)(rint(v / scale) * scale) : self.as.i);
    if (v - v != 0 || p <= 0) return llm__v_float(p < 0 ? rint(v / scale) * scale : rint(v));
    size_t n = llm__spec_double(fabs(v), p, 'f', s);
    llm__parse_double(s, n, &d);
    return llm__v_float(v < 0 ? -d : d);
}

/* "..."|format(values): the % operator. */
LLM__TPL_FN(llm__fn_format) {
    llm__vlist *l = llm__tpl_list(x, g->n_pos);
    llm__vdict *d = g->n > g->n_pos ? llm__tpl_dict(x) : NULL;
    if (d && g->n_pos) return llm__tpl_fail(x, "format: values by position or by name, not both");
    for (int i = 0; i < g->n && !x->err; i++) {
        if (d) llm__tpl_dict_set(x, d, llm__v_str(g->name[i].p, g->name[i].n), g->v[i]);
        else llm__tpl_push(x, l, g->v[i]);
    }
    return llm__tpl_percent(x, llm__tpl_str(x, self), d ? llm__v_dict(LLM__V_DICT, d) : llm__v_list(LLM__V_TUPLE, l));
}

static const llm__tpl_entry llm__tpl_filters[] = {
    {"tojson", "ensure_ascii indent separators sort_keys", llm__fn_tojson}, {"length", "", llm__fn_length}, {"count", "", llm__fn_length},
    {"trim", "chars", llm__fn_strip}, {"string", "", llm__fn_string}, {"default", "default_value boolean", llm__fn_default},
    {"d", "default_value boolean", llm__fn_default}, {"join", "d attribute", llm__fn_join}, {"items", "", llm__fn_items}, {"list", "", llm__fn_list},
    {"selectattr", NULL, llm__fn_selectattr}, {"rejectattr", NULL, llm__fn_rejectattr}, {"select", NULL, llm__fn_select},
    {"reject", NULL, llm__fn_reject}, {"map", NULL, llm__fn_map}, {"safe", "", llm__fn_safe}, {"escape", "", llm__fn_escape}, {"e", "", llm__fn_escape},
    {"forceescape", "", llm__fn_forceescape}, {"dictsort", "case_sensitive by reverse", llm__fn_dictsort}, {"lower", "", llm__fn_lower},
    {"upper", "", llm__fn_upper}, {"title", "", llm__fn_title}, {"capitalize", "", llm__fn_capitalize}, {"replace", "old! new! count", llm__fn_replace_filter},
    {"unique", "case_sensitive attribute", llm__fn_unique}, {"sort", "reverse case_sensitive attribute", llm__fn_sort},
    {"min", "case_sensitive attribute", llm__fn_min}, {"max", "case_sensitive attribute", llm__fn_max}, {"sum", "attribute start", llm__fn_sum},
    {"first", "", llm__fn_first}, {"last", "", llm__fn_last}, {"int", "default base", llm__fn_int}, {"float", "default", llm__fn_float},
    {"abs", "", llm__fn_abs}, {"round", "precision method", llm__fn_round}, {"indent", "width first blank", llm__fn_indent},
    {"reverse", "", llm__fn_reverse}, {"batch", "linecount! fill_with", llm__fn_batch}, {"slice", "slices! fill_with", llm__fn_slice},
    {"groupby", "attribute! default case_sensitive", llm__fn_groupby}, {"wordcount", "", llm__fn_wordcount},
    {"truncate", "length killwords end leeway", llm__fn_truncate}, {"from_json", "", llm__fn_from_json}, {"format", NULL, llm__fn_format},
    {"urlencode", "", llm__fn_urlencode}, {"center", "width", llm__fn_center}, {"attr", "name!", llm__fn_attr}, {NULL, NULL, NULL}};

static const llm__tpl_entry *llm__tpl_filter_named(llm__str name) { return llm__tpl_entry_named(llm__tpl_filters, name); }

/* ---- tests ---- */

LLM__TPL_FN(llm__fn_is_defined) { return llm__v_bool(self.type != LLM__V_UNDEF); }
LLM__TPL_FN(llm__fn_is_undefined) { return llm__v_bool(self.type == LLM__V_UNDEF); }
LLM__TPL_FN(llm__fn_is_none) { return llm__v_bool(self.type == LLM__V_NONE); }
LLM__TPL_FN(llm__fn_is_boolean) { return llm__v_bool(self.type == LLM__V_BOOL); }
LLM__TPL_FN(llm__fn_is_true) { return llm__v_bool(self.type == LLM__V_BOOL && self.as.i); }
LLM__TPL_FN(llm__fn_is_false) { return llm__v_bool(self.type == LLM__V_BOOL && !self.as.i); }
LLM__TPL_FN(llm__fn_is_integer) { return llm__v_bool(self.type == LLM__V_INT || self.type == LLM__V_BIG); }
LLM__TPL_FN(llm__fn_is_float) { return llm__v_bool(self.type == LLM__V_FLOAT); }
LLM__TPL_FN(llm__fn_is_number) { return llm__v_bool(llm__v_is_number(self) || self.type == LLM__V_BIG); }
LLM__TPL_FN(llm__fn_is_string) { return llm__v_bool(self.type == LLM__V_STR); }
LLM__TPL_FN(llm__fn_is_mapping) { return llm__v_bool(self.type == LLM__V_DICT); }
LLM__TPL_FN(llm__fn_is_escaped) { return llm__v_bool(self.type == LLM__V_STR && self.flag); }
LLM__TPL_FN(llm__fn_is_callable) { return llm__v_bool(self.type == LLM__V_UNDEF || self.type == LLM__V_MACRO || self.type == LLM__V_FUNC || self.type == LLM__V_JOINER); }

/* What can be walked; undefined too. */
LLM__TPL_FN(llm__fn_is_iterable) { return llm__v_bool(llm__v_is_list(self) || self.type == LLM__V_STR || self.type == LLM__V_DICT || self.type == LLM__V_UNDEF || self.type == LLM__V_LOOP); }

/* What has a length and items; dicts and undefined too. */
LLM__TPL_FN(llm__fn_is_sequence) {
    return llm__v_bool((llm__v_is_list(self) && self.type != LLM__V_VIEW && self.type != LLM__V_GEN) || self.type == LLM__V_STR || self.type == LLM__V_DICT || self.type == LLM__V_UNDEF);
}

LLM__TPL_FN(llm__fn_is_divisibleby) {
    llm__val rest = llm__tpl_arith(x, '%', self, a[0]);
    return llm__v_bool(llm__tpl_equal(x, rest, llm__v_int(0)));
}

LLM__TPL_FN(llm__fn_is_even) { return a[0] = llm__v_int(2), llm__fn_is_divisibleby(x, self, a, g); }
LLM__TPL_FN(llm__fn_is_odd) { return llm__v_bool(llm__tpl_equal(x, llm__tpl_arith(x, '%', self, llm__v_int(2)), llm__v_int(1))); }
LLM__TPL_FN(llm__fn_is_in) { return llm__v_bool(llm__tpl_in(x, self, a[0])); }
LLM__TPL_FN(llm__fn_is_eq) { return llm__v_bool(llm__tpl_equal(x, self, a[0])); }
LLM__TPL_FN(llm__fn_is_ne) { return llm__v_bool(!llm__tpl_equal(x, self, a[0])); }

static int llm__tpl_order_of(llm__tpl *x, llm__val a, llm__val b) {
    if (a.type == LLM__V_UNDEF || b.type == LLM__V_UNDEF) llm__tpl_fail(x, "'%.*s' is undefined, it has no order", (int)(a.type == LLM__V_UNDEF ? a.n : b.n), a.type == LLM__V_UNDEF ? a.as.s : b.as.s);
    return llm__tpl_order(x, a, b);
}

LLM__TPL_FN(llm__fn_is_lt) { return llm__v_bool(llm__tpl_order_of(x, self, a[0]) < 0); }
LLM__TPL_FN(llm__fn_is_le) { return llm__v_bool(llm__tpl_order_of(x, self, a[0]) <= 0); }
LLM__TPL_FN(llm__fn_is_gt) { return llm__v_bool(llm__tpl_order_of(x, self, a[0]) > 0); }
LLM__TPL_FN(llm__fn_is_ge) { return llm__v_bool(llm__tpl_order_of(x, self, a[0]) >= 0); }

LLM__TPL_FN(llm__fn_is_sameas) {
    if (self.type != a[0].type) return llm__v_bool(0);
    int object = self.type >= LLM__V_LIST;
    return llm__v_bool(object ? self.as.list == a[0].as.list : llm__tpl_equal(x, self, a[0]));
}

LLM__TPL_FN(llm__fn_is_filter) { return llm__v_bool(self.type == LLM__V_STR && llm__tpl_filter_named(llm__v_s(self)) != NULL); }
LLM__TPL_FN(llm__fn_is_test) { return llm__v_bool(self.type == LLM__V_STR && llm__tpl_test_named(llm__v_s(self)) != NULL); }

static const llm__tpl_entry llm__tpl_tests[] = {
    {"defined", "", llm__fn_is_defined}, {"undefined", "", llm__fn_is_undefined}, {"none", "", llm__fn_is_none}, {"boolean", "", llm__fn_is_boolean},
    {"true", "", llm__fn_is_true}, {"false", "", llm__fn_is_false}, {"integer", "", llm__fn_is_integer}, {"float", "", llm__fn_is_float},
    {"number", "", llm__fn_is_number}, {"string", "", llm__fn_is_string}, {"mapping", "", llm__fn_is_mapping}, {"escaped", "", llm__fn_is_escaped},
    {"callable", "", llm__fn_is_callable}, {"iterable", "", llm__fn_is_iterable}, {"sequence", "", llm__fn_is_sequence},
    {"divisibleby", "num!", llm__fn_is_divisibleby}, {"even", "", llm__fn_is_even}, {"odd", "", llm__fn_is_odd}, {"in", "seq!", llm__fn_is_in},
    {"eq", "-b!", llm__fn_is_eq}, {"==", "-b!", llm__fn_is_eq}, {"equalto", "-b!", llm__fn_is_eq}, {"ne", "-b!", llm__fn_is_ne}, {"!=", "-b!", llm__fn_is_ne},
    {"lt", "-b!", llm__fn_is_lt}, {"<", "-b!", llm__fn_is_lt}, {"lessthan", "-b!", llm__fn_is_lt}, {"le", "-b!", llm__fn_is_le}, {"<=", "-b!", llm__fn_is_le},
    {"gt", "-b!", llm__fn_is_gt}, {">", "-b!", llm__fn_is_gt}, {"greaterthan", "-b!", llm__fn_is_gt}, {"ge", "-b!", llm__fn_is_ge}, {">=", "-b!", llm__fn_is_ge},
    {"lower", "", llm__fn_islower}, {"upper", "", llm__fn_isupper}, {"sameas", "other!", llm__fn_is_sameas}, {"filter", "", llm__fn_is_filter},
    {"test", "", llm__fn_is_test}, {NULL, NULL, NULL}};

static const llm__tpl_entry *llm__tpl_test_named(llm__str name) { return llm__tpl_entry_named(llm__tpl_tests, name); }

/* ---- global functions ---- */

LLM__TPL_FN(llm__fn_raise_exception) {
    llm__val v = llm__tpl_str(x, a[0]);
    return llm__tpl_fail(x, "%.*s", (int)LLM__MIN(v.n, 256u), v.n ? v.as.s : "");
}

LLM__TPL_FN(llm__fn_range) {
    llm__vlist *l = llm__tpl_list(x, 3);
    int64_t first = llm__arg_int(x, a[0], 0), stop = llm__arg_int(x, a[1], 0), step = llm__arg_int(x, a[2], 1);
    int one = a[1].type == LLM__V_UNSET;
    if (step == 0) return llm__tpl_fail(x, "range: the step is 0");
    llm__tpl_push(x, l, llm__v_int(one ? 0 : first));
    llm__tpl_push(x, l, llm__v_int(one ? first : stop));
    llm__tpl_push(x, l, llm__v_int(step));
    llm__val v = llm__v_list(LLM__V_RANGE, l);
    if (!x->err && (llm__v_range_len(v) > LLM__TPL_RANGE || llm__v_range_len(v) < 0)) return llm__tpl_error(x, LLM_ERR_LIMIT, "range: over %d values", LLM__TPL_RANGE);
    return v;
}

/* dict(mapping or pairs, name=value, ...) */
LLM__TPL_FN(llm__fn_dict) {
    llm__vdict *d = llm__tpl_dict(x);
    if (g->n_pos > 1) return llm__tpl_fail(x, "dict: at most one argument by position");
    const llm__vlist *l = !g->n_pos ? NULL : g->v[0].type == LLM__V_DICT ? llm__tpl_view(x, g->v[0].as.dict, 2) : llm__tpl_iter(x, g->v[0]);
    for (int i = 0; l && i < l->n && !x->err; i++) {
        const llm__vlist *pair = llm__tpl_iter(x, l->v[i]);
        if (!pair || pair->n != 2) return llm__tpl_fail(x, "dict: pairs were expected");
        llm__tpl_dict_set(x, d, pair->v[0], pair->v[1]);
    }
    for (int i = g->n_pos; i < g->n && !x->err; i++) llm__tpl_dict_set(x, d, llm__v_str(g->name[i].p, g->name[i].n), g->v[i]);
    return llm__v_dict(LLM__V_DICT, d);
}

LLM__TPL_FN(llm__fn_namespace) {
    llm__val v = llm__fn_dict(x, self, a, g);
    if (!x->err) v.type = LLM__V_NAMESPACE;
    return v;
}

LLM__TPL_FN(llm__fn_joiner) {
    llm__vlist *l = llm__tpl_list(x, 1);
    llm__tpl_push(x, l, a[0].type == LLM__V_UNSET ? llm__v_str(", ", 2) : a[0]);
    return llm__v_list(LLM__V_JOINER, l);
}

LLM__TPL_FN(llm__fn_cycler) {
    llm__vlist *l = llm__tpl_list(x, g->n_pos);
    if (!g->n_pos || g->n != g->n_pos) return llm__tpl_fail(x, "cycler: values were expected");
    for (int i = 0; i < g->n_pos; i++) llm__tpl_push(x, l, g->v[i]);
    return llm__v_list(LLM__V_CYCLER, l);
}

/* A date, from days since 1970-01-01 (Howard Hinnant's civil_from_days). */
static void llm__tpl_date(int64_t days, int64_t *year, int *month, int *day) {
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int doe = (int)(days - era * 146097), yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    *day = doy - (153 * mp + 2) / 5 + 1;
    *month = mp < 10 ? mp + 3 : mp - 9;
    *year = yoe + era * 400 + (*month <= 2);
}

/* strftime in the C locale, whatever the host program's. */
LLM__TPL_FN(llm__fn_strftime_now) {
    static const char *const months[12] = {"January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"};
    static const char *const weekdays[7] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
    int64_t now = (x->options->now ? x->options->now : (int64_t)llm__wall_clock()) + x->options->utc_offset_s, year, year0;
    int64_t days = now / 86400 - (now % 86400 < 0), seconds = now - days * 86400;
    int month, day, month0, day0, hour = (int)(seconds / 3600), minute = (int)(seconds / 60 % 60), second = (int)(seconds % 60), weekday = (int)(((days + 4) % 7 + 7) % 7);
    llm__str f = llm__arg_text(x, a[0]);
    size_t mark = x->text.len;
    if (days > 100000000 || days < -100000000) return llm__tpl_fail(x, "strftime_now: the time is out of range");
    llm__tpl_date(days, &year, &month, &day);
    int64_t first = days;
    for (int k = 0; k < 366; k++, first--) { /* back to January 1st */
        llm__tpl_date(first, &year0, &month0, &day0);
        if (month0 == 1 && day0 == 1) break;
    }
    int hour12 = hour % 12 ? hour % 12 : 12;
    for (size_t i = 0; i < f.n && llm__tpl_spend(x, 1); i++) {
        char s[64] = {0}, c = f.p[i];
        int plain = 0;
        if (c != '%' || i + 1 >= f.n) {
            llm__tpl_put(x, f.p + i, 1);
            continue;
        }
        c = f.p[++i];
        if (c == '-' && i + 1 < f.n) plain = 1, c = f.p[++i];
        const char *two = plain ? "%d" : "%02d";
        int value = c == 'd' ? day : c == 'm' ? month : c == 'H' ? hour : c == 'I' ? hour12 : c == 'M' ? minute : c == 'S' ? second : c == 'y' ? (int)(year % 100) : -1;
        if (value >= 0) snprintf(s, sizeof s, two, value);
        else if (c == 'Y') snprintf(s, sizeof s, "%lld", (long long)year);
        else if (c == 'e') snprintf(s, sizeof s, "%2d", day);
        else if (c == 'j') snprintf(s, sizeof s, plain ? "%d" : "%03d", (int)(days - first) + 1);
        else if (c == 'B' || c == 'b' || c == 'h') snprintf(s, sizeof s, "%.*s", c == 'B' ? 20 : 3, months[month - 1]);
        else if (c == 'A' || c == 'a') snprintf(s, sizeof s, "%.*s", c == 'A' ? 20 : 3, weekdays[weekday]);
        else if (c == 'p') snprintf(s, sizeof s, "%s", hour < 12 ? "AM" : "PM");
        else if (c == 'F') snprintf(s, sizeof s, "%lld-%02d-%02d", (long long)year, month, day);
        else if (c == 'T' || c == 'X') snprintf(s, sizeof s, "%02d:%02d:%02d", hour, minute, second);
        else if (c == 'R') snprintf(s, sizeof s, "%02d:%02d", hour, minute);
        else if (c == 'D' || c == 'x') snprintf(s, sizeof s, "%02d/%02d/%02d", month, day, (int)(year % 100));
        else if (c == 'c') snprintf(s, sizeof s, "%.3s %.3s %2d %02d:%02d:%02d %lld", weekdays[weekday], months[month - 1], day, hour, minute, second, (long long)year);
        else if (c == 'u' || c == 'w') snprintf(s, sizeof s, "%d", c == 'u' && !weekday ? 7 : weekday);
        else if (c == 's') snprintf(s, sizeof s, "%lld", (long long)(now - x->options->utc_offset_s));
        else if (c == 'n' || c == 't' || c == '%') s[0] = c == 'n' ? '\n' : c == 't' ? '\t' : '%';
        else if (c != 'Z' && c != 'z') llm__tpl_put(x, f.p + i - 1, 2); /* a time without zone has neither */
        llm__tpl_puts(x, s);
    }
    return llm__tpl_take(x, mark);
}

static const llm__tpl_entry llm__tpl_globals[] = {
    {"raise_exception", "message!", llm__fn_raise_exception}, {"range", "-start! -stop -step", llm__fn_range}, {"dict", NULL, llm__fn_dict},
    {"namespace", NULL, llm__fn_namespace}, {"joiner", "sep", llm__fn_joiner}, {"cycler", NULL, llm__fn_cycler},
    {"strftime_now", "format!", llm__fn_strftime_now}, {NULL, NULL, NULL}};

/* ---- operators ---- */

/* Whole numbers; an error where the result does not fit 64 bits. */
static llm__val llm__tpl_arith_int(llm__tpl *x, int op, int64_t a, int64_t b) {
    int64_t r = 0;
    int over = 0;
    if (op == '+') over = __builtin_add_overflow(a, b, &r);
    else if (op == '-') over = __builtin_sub_overflow(a, b, &r);
    else if (op == '*') over = __builtin_mul_overflow(a, b, &r);
    else if (op == 'D' || op == '%') { /* rounded down; the remainder has the sign of b */
        if (b == 0) return llm__tpl_fail(x, "division by zero");
        if (b == -1) over = op == 'D' && a == INT64_MIN, r = op == 'D' && !over ? -a : 0;
        else if (op == 'D') r = a / b - (a % b && (a < 0) != (b < 0));
        else r = a % b && (a < 0) != (b < 0) ? a % b + b : a % b;
    } else { /* ** */
        int64_t base = a;
        r = 1;
        for (int64_t e = b; e && !over; e >>= 1) {
            if (e & 1) over = __builtin_mul_overflow(r, base, &r);
            if (e > 1 && __builtin_mul_overflow(base, base, &base)) over = 1;
        }
    }
    return over ? llm__tpl_fail(x, "a number does not fit 64 bits") : llm__v_int(r);
}

static llm__val llm__tpl_arith_num(llm__tpl *x, int op, llm__val a, llm__val b) {
    int whole = a.type != LLM__V_FLOAT && b.type != LLM__V_FLOAT;
    if (whole && op != '/' && !(op == 'P' && b.as.i < 0)) return llm__tpl_arith_int(x, op, a.as.i, b.as.i);
    double p = llm__v_num(a), q = llm__v_num(b), r;
    if ((q == 0 && (op == '/' || op == 'D' || op == '%')) || (p == 0 && q < 0 && op == 'P')) return llm__tpl_fail(x, "division by zero");
    if (op == '+') r = p + q;
    else if (op == '-') r = p - q;
    else if (op == '*') r = p * q;
    else if (op == '/') r = p / q;
    else if (op == 'P') r = pow(p, q);
    else {
        double rest = fmod(p, q);
        if (rest != 0 && (rest < 0) != (q < 0)) rest += q;
        r = op == '%' ? (rest == 0 ? copysign(0, q) : rest) : floor((p - rest) / q + 0.5);
    }
    if (op == 'P' && r - r != 0 && p - p == 0 && q - q == 0) return llm__tpl_fail(x, "a power is out of range");
    return llm__v_float(r);
}

static llm__val llm__tpl_join_lists(llm__tpl *x, llm__val a, llm__val b) {
    const llm__vlist *p = a.as.list, *q = b.as.list;
    llm__vlist *l = llm__tpl_list(x, (int64_t)p->n + q->n);
    for (int i = 0; i < p->n && !x->err; i++) llm__tpl_push(x, l, p->v[i]);
    for (int i = 0; i < q->n && !x->err; i++) llm__tpl_push(x, l, q->v[i]);
    return llm__v_list((llm__vtype)a.type, l);
}

/* A text or list times a number. */
static llm__val llm__tpl_times(llm__tpl *x, llm__val v, int64_t count) {
    size_t mark = x->text.len;
    if (v.type == LLM__V_STR) {
        llm__tpl_repeat(x, llm__v_s(v), count);
        return llm__tpl_take(x, mark);
    }
    llm__vlist *l = llm__tpl_list(x, 0);
    for (int64_t k = 0; v.as.list->n && k < count && !x->err; k++)
        for (int i = 0; i < v.as.list->n && !x->err; i++) llm__tpl_push(x, l, v.as.list->v[i]);
    return llm__v_list((llm__vtype)v.type, l);
}

/* Two texts, one after the other. If one is marked safe, the other is escaped. */
static llm__val llm__tpl_join_texts(llm__tpl *x, llm__val a, llm__val b) {
    int safe = a.flag | b.flag;
    size_t mark = x->text.len;
    if (safe) a = llm__tpl_escape(x, a), b = llm__tpl_escape(x, b);
    llm__tpl_put(x, llm__v_s(a).p, a.n);
    llm__tpl_put(x, llm__v_s(b).p, b.n);
    llm__val v = llm__tpl_take(x, mark);
    v.flag = (uint8_t)safe;
    return v;
}

/* + - * / // % ** as Python has them. */
static llm__val llm__tpl_arith(llm__tpl *x, int op, llm__val a, llm__val b) {
    int list = (a.type == LLM__V_LIST || a.type == LLM__V_TUPLE);
    if (llm__v_is_number(a) && llm__v_is_number(b)) return llm__tpl_arith_num(x, op, a, b);
    if (op == '%' && a.type == LLM__V_STR) return llm__tpl_percent(x, a, b);
    if (a.type == LLM__V_UNDEF || b.type == LLM__V_UNDEF) {
        llm__val u = a.type == LLM__V_UNDEF ? a : b;
        return llm__tpl_fail(x, "'%.*s' is undefined", (int)u.n, u.n ? u.as.s : "");
    }
    if (op == '+' && a.type == LLM__V_STR && b.type == LLM__V_STR) return llm__tpl_join_texts(x, a, b);
    if (op == '+' && list && a.type == b.type) return llm__tpl_join_lists(x, a, b);
    if (op == '*' && (list || a.type == LLM__V_STR) && llm__v_is_int(b)) return llm__tpl_times(x, a, b.as.i);
    if (op == '*' && (b.type == LLM__V_LIST || b.type == LLM__V_TUPLE || b.type == LLM__V_STR) && llm__v_is_int(a)) return llm__tpl_times(x, b, a.as.i);
    if (a.type == LLM__V_BIG || b.type == LLM__V_BIG) return llm__tpl_fail(x, "a number does not fit 64 bits");
    return llm__tpl_fail(x, "'%s' and '%s' cannot be combined by '%c'%s", llm__v_type_name(a), llm__v_type_name(b), op == 'D' ? '/' : op == 'P' ? '*' : op, op == 'D' || op == 'P' ? " twice" : "");
}

static int llm__tpl_compare_one(llm__tpl *x, int op, llm__val a, llm__val b) {
    switch (op) {
    case 'E': return llm__tpl_equal(x, a, b);
    case 'N': return !llm__tpl_equal(x, a, b);
    case 'I': return llm__tpl_in(x, a, b);
    case 'J': return !llm__tpl_in(x, a, b);
    case '<': return llm__tpl_order_of(x, a, b) < 0;
    case '>': return llm__tpl_order_of(x, a, b) > 0;
    case 'L': return llm__tpl_order_of(x, a, b) <= 0;
    default: return llm__tpl_order_of(x, a, b) >= 0;
    }
}

/* ---- variables ---- */

static llm__scope *llm__tpl_scope(llm__tpl *x, llm__scope *up) {
    llm__scope *s = (llm__scope *)llm__tpl_get(x, sizeof *s);
    if (s) s->up = up;
    return s;
}

static void llm__tpl_assign(llm__tpl *x, int32_t name, llm__val v) {
    llm__scope *s = x->scope;
    if (x->err) return;
    for (int i = 0; i < s->n; i++) {
        if (s->name[i] != name) continue;
        s->v[i] = v;
        return;
    }
    if (!llm__tpl_spend(x, s->n / 16)) return;
    if (s->n == s->cap) {
        int32_t cap = s->cap ? s->cap * 2 : 4, *names = (int32_t *)llm__tpl_get(x, (size_t)cap * sizeof *names);
        llm__val *p = (llm__val *)llm__tpl_get(x, (size_t)cap * sizeof *p);
        if (x->err) return;
        if (s->n) memcpy(names, s->name, (size_t)s->n * sizeof *names), memcpy(p, s->v, (size_t)s->n * sizeof *p);
        s->name = names;
        s->v = p;
        s->cap = cap;
    }
    s->name[s->n] = name;
    s->v[s->n++] = v;
}

static llm__val llm__tpl_lookup(llm__tpl *x, int32_t name) {
    for (const llm__scope *s = x->scope; s; s = s->up)
        for (int i = 0; i < s->n; i++)
            if (s->name[i] == name) return s->v[i];
    if (x->context[name].type != LLM__V_UNSET) return x->context[name];
    return llm__v_text(LLM__V_UNDEF, x->t->name[name].p, x->t->name[name].n);
}

/* ---- expressions ---- */

static llm__val llm__tpl_eval(llm__tpl *x, const llm__node *n);

static llm__val llm__tpl_eval_list(llm__tpl *x, const llm__node *n) {
    llm__vlist *l = llm__tpl_list(x, 0);
    for (const llm__node *c = n->a; c && !x->err; c = c->next) llm__tpl_push(x, l, llm__tpl_eval(x, c));
    return llm__v_list(n->kind == LLM__N_LIST ? LLM__V_LIST : LLM__V_TUPLE, l);
}

static llm__val llm__tpl_eval_dict(llm__tpl *x, const llm__node *n) {
    llm__vdict *d = llm__tpl_dict(x);
    for (const llm__node *c = n->a; c && !x->err; c = c->next->next) {
        llm__val key = llm__tpl_eval(x, c);
        llm__tpl_dict_set(x, d, key, llm__tpl_eval(x, c->next));
    }
    return llm__v_dict(LLM__V_DICT, d);
}

static llm__val llm__tpl_eval_unary(llm__tpl *x, const llm__node *n) {
    llm__val v = llm__tpl_eval(x, n->a);
    if (n->op == '!') return llm__v_bool(!llm__v_truth(v));
    if (v.type == LLM__V_UNDEF) return llm__tpl_fail(x, "'%.*s' is undefined", (int)v.n, v.n ? v.as.s : "");
    if (!llm__v_is_number(v)) return llm__tpl_fail(x, "'%s' has no sign", llm__v_type_name(v));
    if (v.type == LLM__V_FLOAT) return llm__v_float(n->op == '-' ? -v.as.f : v.as.f);
    return n->op == '-' ? llm__tpl_arith_int(x, '-', 0, v.as.i) : llm__v_int(v.as.i);
}

/* `and`, `or`: the value of the operand that decides. */
static llm__val llm__tpl_eval_logic(llm__tpl *x, const llm__node *n) {
    llm__val v = llm__v(LLM__V_UNDEF);
    for (const llm__node *c = n->a; c && !x->err; c = c->next) {
        v = llm__tpl_eval(x, c);
        if (llm__v_truth(v) == (n->kind == LLM__N_OR)) break;
    }
    return v;
}

static llm__val llm__tpl_eval_compare(llm__tpl *x, const llm__node *n) {
    llm__val left = llm__tpl_eval(x, n->a);
    for (const llm__node *c = n->b; c && !x->err; c = c->next) {
        llm__val right = llm__tpl_eval(x, c->a);
        if (x->err || !llm__tpl_compare_one(x, c->op, left, right)) return llm__v_bool(0);
        left = right;
    }
    return llm__v_bool(1);
}

static llm__val llm__tpl_eval_concat(llm__tpl *x, const llm__node *n) {
    llm__val a = llm__tpl_eval(x, n->a), b = llm__tpl_eval(x, n->b);
    size_t mark = x->text.len;
    llm__tpl_write(x, a, 0);
    llm__tpl_write(x, b, 0);
    return llm__tpl_take(x, mark);
}

static llm__val llm__tpl_eval_slice(llm__tpl *x, const llm__node *n) {
    const llm__node *node[3] = {n->b, n->c, n->d};
    llm__val v = llm__tpl_eval(x, n->a), bound[3];
    for (int i = 0; i < 3; i++) bound[i] = node[i] ? llm__tpl_eval(x, node[i]) : llm__v(LLM__V_UNSET);
    return x->err ? v : llm__tpl_slice(x, v, bound);
}

static void llm__args_add(llm__tpl *x, llm__vlist *v, llm__vlist *names, llm__val value, llm__val name) {
    llm__tpl_push(x, v, value);
    llm__tpl_push(x, names, name);
}

/* Evaluates arguments. `more`: room for that many by name, to be filled in by the caller. */
static llm__args llm__tpl_eval_args(llm__tpl *x, const llm__node *list, int more) {
    llm__vlist *v = llm__tpl_list(x, 0), *names = llm__tpl_list(x, 0);
    llm__args g;
    memset(&g, 0, sizeof g);
    for (int by_name = 0; by_name < 2; by_name++) {
        for (const llm__node *n = list; n && !x->err; n = n->next) {
            if ((n->op & 1) != by_name) continue;
            llm__val value = llm__tpl_eval(x, n->a);
            if (n->op < 2) {
                llm__args_add(x, v, names, value, n->v);
                continue;
            }
            if (by_name && value.type != LLM__V_DICT) llm__tpl_fail(x, "a mapping was expected after '**'");
            const llm__vlist *l = by_name ? llm__tpl_view(x, x->err ? NULL : value.as.dict, 2) : llm__tpl_iter(x, value);
            for (int i = 0; l && i < l->n && !x->err; i++) {
                const llm__val *pair = by_name ? l->v[i].as.list->v : NULL;
                llm__args_add(x, v, names, pair ? pair[1] : l->v[i], pair ? pair[0] : llm__v(LLM__V_UNSET));
            }
        }
        if (!by_name && v) g.n_pos = v->n;
    }
    g.name = x->err ? NULL : (llm__str *)llm__tpl_get(x, (size_t)(v->n + more) * sizeof *g.name);
    for (int i = 0; i < more; i++) llm__tpl_push(x, v, llm__v(LLM__V_UNSET));
    if (x->err) return memset(&g, 0, sizeof g), g;
    g.v = v->v;
    g.n = v->n - more;
    for (int i = 0; i < g.n; i++) g.name[i] = llm__v_s(names->v[i]);
    return g;
}

static llm__val llm__tpl_eval_call(llm__tpl *x, const llm__node *n) {
    llm__val f = llm__tpl_eval(x, n->a);
    llm__args g = llm__tpl_eval_args(x, n->b, 0);
    x->line = n->line;
    return x->err ? f : llm__tpl_call(x, f, &g);
}

static llm__val llm__tpl_eval_filter(llm__tpl *x, const llm__node *n) {
    llm__val v = llm__tpl_eval(x, n->a);
    llm__args g = llm__tpl_eval_args(x, n->b, 0);
    x->line = n->line;
    if (!n->entry) return llm__tpl_fail(x, "no such %s: '%.*s'", n->kind == LLM__N_TEST ? "test" : "filter", (int)LLM__MIN(n->v.n, 40u), n->v.as.s);
    v = x->err ? v : llm__tpl_apply(x, n->entry, v, &g);
    return n->kind == LLM__N_TEST && n->op ? llm__v_bool(!llm__v_truth(v)) : v;
}

static llm__val llm__tpl_eval_kind(llm__tpl *x, const llm__node *n) {
    llm__val v;
    switch (n->kind) {
    case LLM__N_CONST: return n->v;
    case LLM__N_NAME: return llm__tpl_lookup(x, n->name);
    case LLM__N_LIST: case LLM__N_TUPLE: return llm__tpl_eval_list(x, n);
    case LLM__N_DICT: return llm__tpl_eval_dict(x, n);
    case LLM__N_UNARY: return llm__tpl_eval_unary(x, n);
    case LLM__N_BINARY:
        v = llm__tpl_eval(x, n->a);
        return llm__tpl_arith(x, n->op, v, llm__tpl_eval(x, n->b));
    case LLM__N_AND: case LLM__N_OR: return llm__tpl_eval_logic(x, n);
    case LLM__N_CONCAT: return llm__tpl_eval_concat(x, n);
    case LLM__N_COMPARE: return llm__tpl_eval_compare(x, n);
    case LLM__N_COND: return llm__v_truth(llm__tpl_eval(x, n->b)) ? llm__tpl_eval(x, n->a) : n->c ? llm__tpl_eval(x, n->c) : llm__v_undef("the value of an if without else");
    case LLM__N_ATTR:
        v = llm__tpl_eval(x, n->a);
        return x->err ? v : llm__tpl_attr(x, v, n->v);
    case LLM__N_ITEM: {
        v = llm__tpl_eval(x, n->a);
        llm__val key = llm__tpl_eval(x, n->b);
        return x->err ? v : llm__tpl_item(x, v, key);
    }
    case LLM__N_SLICE: return llm__tpl_eval_slice(x, n);
    case LLM__N_CALL: return llm__tpl_eval_call(x, n);
    case LLM__N_FILTER: case LLM__N_TEST: return llm__tpl_eval_filter(x, n);
    default: return llm__tpl_fail(x, "not an expression");
    }
}

static llm__val llm__tpl_eval(llm__tpl *x, const llm__node *n) {
    x->line = x->err ? x->line : n->line;
    if (!llm__tpl_spend(x, 1)) return llm__v(LLM__V_UNDEF);
    if (++x->depth > LLM__TPL_EVAL_DEPTH) llm__tpl_fail(x, "calls are nested too deeply");
    llm__val v = x->err ? llm__v(LLM__V_UNDEF) : llm__tpl_eval_kind(x, n);
    x->depth--;
    return x->err ? llm__v(LLM__V_UNDEF) : v;
}

/* ---- statements ---- */

typedef enum llm__flow { LLM__FLOW_ON, LLM__FLOW_BREAK, LLM__FLOW_CONTINUE } llm__flow;

static llm__flow llm__tpl_run(llm__tpl *x, const llm__node *n);

/* The output of statements, in a scope of their own, as a value. */
static llm__val llm__tpl_capture(llm__tpl *x, const llm__node *body, llm__scope *scope) {
    llm__scope *outer = x->scope;
    size_t mark = x->text.len;
    if (!scope) return llm__v(LLM__V_UNDEF);
    x->scope = scope;
    llm__tpl_run(x, body);
    x->scope = outer;
    return llm__tpl_take(x, mark);
}

/* What a macro gets for caller, varargs and kwargs, if it uses them. */
static void llm__tpl_macro_specials(llm__tpl *x, const llm__node *def, const llm__args *g, int n_params, uint8_t *used) {
    static const char *const name[3] = {"caller", "varargs", "kwargs"};
    llm__val v[3] = {llm__v_undef("caller"), llm__v(LLM__V_UNSET), llm__v(LLM__V_UNSET)};
    llm__vlist *rest = llm__tpl_list(x, 0);
    llm__vdict *named = llm__tpl_dict(x);
    for (int i = n_params; i < g->n_pos; i++) llm__tpl_push(x, rest, g->v[i]);
    if (g->n_pos > n_params && !(def->op & 2)) llm__tpl_fail(x, "a macro got too many arguments");
    for (int i = g->n_pos; i < g->n && !x->err; i++) {
        if (used[i]) continue;
        if ((def->op & 1) && llm__str_eq(g->name[i], "caller")) v[0] = g->v[i];
        else if (!(def->op & 4)) llm__tpl_fail(x, "a macro got an unexpected argument '%.*s'", (int)LLM__MIN(g->name[i].n, (size_t)40), g->name[i].p);
        else llm__tpl_dict_set(x, named, llm__v_str(g->name[i].p, g->name[i].n), g->v[i]);
    }
    v[1] = llm__v_list(LLM__V_TUPLE, rest);
    v[2] = llm__v_dict(LLM__V_DICT, named);
    for (int i = 0; i < 3 && !x->err; i++)
        if (def->op >> i & 1) llm__tpl_assign(x, llm__map_get(&x->t->names, llm__s(name[i], strlen(name[i]))), v[i]);
}

static llm__val llm__tpl_call_macro(llm__tpl *x, const llm__vmacro *m, const llm__args *g) {
    llm__scope *outer = x->scope, *scope = llm__tpl_scope(x, m->scope);
    uint8_t *used = (uint8_t *)llm__tpl_get(x, (size_t)g->n + 1);
    int k = 0;
    llm__val v = llm__v(LLM__V_UNDEF);
    if (++x->calls > LLM__TPL_CALLS) llm__tpl_fail(x, "macros call each other too deeply");
    if (!x->err) {
        x->scope = scope;
        for (const llm__node *p = m->def->a; p && !x->err; p = p->next, k++) {
            llm__str name = x->t->name[p->name];
            llm__val value = k < g->n_pos ? g->v[k] : llm__v(LLM__V_UNSET);
            for (int i = g->n_pos; i < g->n && k >= g->n_pos; i++)
                if (g->name[i].n == name.n && !memcmp(g->name[i].p, name.p, name.n)) value = g->v[i], used[i] = 1;
            if (value.type == LLM__V_UNSET) value = p->a ? llm__tpl_eval(x, p->a) : llm__v_text(LLM__V_UNDEF, name.p, name.n);
            llm__tpl_assign(x, p->name, value);
        }
        llm__tpl_macro_specials(x, m->def, g, k, used);
        x->scope = outer;
        if (!x->err) v = llm__tpl_capture(x, m->def->b, scope);
    }
    x->calls--;
    return v;
}

static llm__val llm__tpl_macro(llm__tpl *x, const llm__node *def) {
    llm__val v = llm__v(LLM__V_MACRO);
    v.as.macro = (llm__vmacro *)llm__tpl_get(x, sizeof *v.as.macro);
    if (!v.as.macro) return llm__v(LLM__V_UNDEF);
    v.as.macro->def = def;
    v.as.macro->scope = x->scope;
    return v;
}

static void llm__tpl_assign_to(llm__tpl *x, const llm__node *target, llm__val v) {
    if (x->err) return;
    if (target->kind == LLM__N_NAME) {
        llm__tpl_assign(x, target->name, v);
    } else if (target->kind == LLM__N_ATTR) {
        llm__val ns = llm__tpl_lookup(x, target->a->name);
        if (ns.type != LLM__V_NAMESPACE) llm__tpl_fail(x, "only attributes of a namespace can be set");
        else llm__tpl_dict_set(x, ns.as.dict, target->v, v);
    } else {
        const llm__vlist *l = llm__tpl_iter(x, v);
        int i = 0, n = 0;
        for (const llm__node *t = target->a; t; t = t->next) n++;
        if (l && l->n != n) llm__tpl_fail(x, "%d values were expected to unpack, got %d", n, l->n);
        for (const llm__node *t = target->a; t && !x->err; t = t->next) llm__tpl_assign_to(x, t, l->v[i++]);
    }
}

/* The items of a loop that pass its filter. */
static llm__vlist *llm__tpl_loop_items(llm__tpl *x, const llm__node *n) {
    llm__vlist *all = llm__tpl_iter(x, llm__tpl_eval(x, n->b)), *l;
    llm__scope *outer = x->scope;
    if (!n->d || !all) return all;
    l = llm__tpl_list(x, 0);
    for (int i = 0; l && i < all->n && !x->err; i++) {
        x->scope = llm__tpl_scope(x, outer);
        llm__tpl_assign_to(x, n->a, all->v[i]);
        if (!x->err && llm__v_truth(llm__tpl_eval(x, n->d))) llm__tpl_push(x, l, all->v[i]);
    }
    x->scope = outer;
    return l;
}

static void llm__tpl_run_for(llm__tpl *x, const llm__node *n) {
    llm__vlist *l = llm__tpl_loop_items(x, n);
    llm__scope *outer = x->scope, *scope = llm__tpl_scope(x, outer);
    llm__val loop = llm__v(LLM__V_LOOP);
    loop.as.loop = (llm__vloop *)llm__tpl_get(x, sizeof *loop.as.loop);
    if (x->err) return;
    loop.as.loop->items = l;
    x->scope = scope;
    for (int i = 0; i < l->n && llm__tpl_spend(x, 1); i++) {
        scope->n = 0; /* what the body set is gone */
        loop.as.loop->at = i;
        if (x->t->loop_name >= 0) llm__tpl_assign(x, x->t->loop_name, loop);
        llm__tpl_assign_to(x, n->a, l->v[i]);
        if (llm__tpl_run(x, n->c->a) == LLM__FLOW_BREAK) break;
    }
    if (!l->n) llm__tpl_run(x, n->c->b);
    x->scope = outer;
}

/* Filters over the text of a block: n->c with the CONST n->d standing for it. */
static llm__val llm__tpl_filtered(llm__tpl *x, const llm__node *n) {
    llm__val text = llm__tpl_capture(x, n->b, llm__tpl_scope(x, x->scope));
    const llm__node *chain[LLM__TPL_DEPTH];
    int k = 0;
    for (const llm__node *f = n->c; f != n->d && k < LLM__TPL_DEPTH; f = f->a) chain[k++] = f;
    while (k-- > 0 && !x->err) {
        llm__args g = llm__tpl_eval_args(x, chain[k]->b, 0);
        if (!chain[k]->entry) llm__tpl_fail(x, "no such filter");
        else text = llm__tpl_apply(x, chain[k]->entry, text, &g);
    }
    return text;
}

/* {% call(...) f(...) %}: the call gets the body as a macro named caller. */
static void llm__tpl_run_call(llm__tpl *x, const llm__node *n) {
    llm__val f = llm__tpl_eval(x, n->c->a);
    llm__args g = llm__tpl_eval_args(x, n->c->b, 1);
    if (x->err) return;
    g.v[g.n] = llm__tpl_macro(x, n);
    g.name[g.n++] = llm__s("caller", 6);
    llm__tpl_write(x, llm__tpl_call(x, f, &g), 0);
}

static void llm__tpl_run_with(llm__tpl *x, const llm__node *n) {
    llm__scope *outer = x->scope, *scope = llm__tpl_scope(x, outer);
    for (const llm__node *s = n->a; s && !x->err; s = s->next) { /* values are those of the outer scope */
        llm__val v = llm__tpl_eval(x, s->b);
        x->scope = scope;
        llm__tpl_assign_to(x, s->a, v);
        x->scope = outer;
    }
    if (x->err) return;
    x->scope = scope;
    llm__tpl_run(x, n->b);
    x->scope = outer;
}

static llm__flow llm__tpl_run_if(llm__tpl *x, const llm__node *n) {
    for (;;) {
        if (llm__v_truth(llm__tpl_eval(x, n->a))) return llm__tpl_run(x, n->b);
        if (x->err || !n->c || !(n->c->kind == LLM__N_IF && n->c->op)) return llm__tpl_run(x, n->c);
        n = n->c;
    }
}

static llm__flow llm__tpl_run_one(llm__tpl *x, const llm__node *n) {
    llm__scope *outer = x->scope;
    llm__flow flow = LLM__FLOW_ON;
    switch (n->kind) {
    case LLM__N_DATA: llm__tpl_put(x, n->v.as.s, n->v.n); break;
    case LLM__N_PRINT: llm__tpl_write(x, llm__tpl_eval(x, n->a), 0); break;
    case LLM__N_IF: return llm__tpl_run_if(x, n);
    case LLM__N_FOR: llm__tpl_run_for(x, n); break;
    case LLM__N_SET: llm__tpl_assign_to(x, n->a, llm__tpl_eval(x, n->b)); break;
    case LLM__N_SET_BLOCK: llm__tpl_assign_to(x, n->a, llm__tpl_filtered(x, n)); break;
    case LLM__N_MACRO: llm__tpl_assign(x, n->name, llm__tpl_macro(x, n)); break;
    case LLM__N_CALL_BLOCK: llm__tpl_run_call(x, n); break;
    case LLM__N_FILTER_BLOCK: llm__tpl_write(x, llm__tpl_filtered(x, n), 0); break;
    case LLM__N_WITH: llm__tpl_run_with(x, n); break;
    case LLM__N_SCOPE:
        x->scope = llm__tpl_scope(x, outer);
        if (x->scope) flow = llm__tpl_run(x, n->a);
        x->scope = outer;
        break;
    case LLM__N_BREAK: return LLM__FLOW_BREAK;
    case LLM__N_CONTINUE: return LLM__FLOW_CONTINUE;
    default: llm__tpl_fail(x, "not a statement");
    }
    return flow;
}

/* Runs statements up to the end, break or continue. */
static llm__flow llm__tpl_run(llm__tpl *x, const llm__node *n) {
    llm__flow flow = LLM__FLOW_ON;
    if (++x->depth > LLM__TPL_EVAL_DEPTH) llm__tpl_fail(x, "calls are nested too deeply");
    for (; n && !flow && llm__tpl_spend(x, 1); n = n->next) {
        x->line = n->line;
        flow = llm__tpl_run_one(x, n);
    }
    x->depth--;
    return flow;
}

/* ---- values from JSON ---- */

static llm__val llm__tpl_from_number(llm__tpl *x, const llm_json *doc, int node) {
    size_t n;
    const char *s = llm_json_raw(doc, node, &n);
    llm__val v = llm__v_float(0);
    if (memchr(s, '.', n) || memchr(s, 'e', n) || memchr(s, 'E', n)) return llm__parse_double(s, n, &v.as.f), v;
    v = llm__v_integer(s, n);
    if (v.type != LLM__V_BIG) return v;
    v = llm__tpl_copy(x, s, n);
    v.type = x->err ? v.type : (uint8_t)LLM__V_BIG;
    return v;
}

static llm__val llm__tpl_from_json(llm__tpl *x, const llm_json *doc, int node, int depth) {
    size_t n;
    int yes = 0;
    const char *s;
    llm__vlist *list;
    llm__vdict *dict;
    if (depth > LLM__TPL_EVAL_DEPTH / 2) return llm__tpl_error(x, LLM_ERR_LIMIT, "a value is nested too deeply");
    switch (llm_json_type_of(doc, node)) {
    case LLM_JSON_BOOL: return llm_json_bool(doc, node, &yes), llm__v_bool(yes);
    case LLM_JSON_NUMBER: return llm__tpl_from_number(x, doc, node);
    case LLM_JSON_STRING:
        s = llm_json_str(doc, node, &n);
        return llm__tpl_copy(x, s, n);
    case LLM_JSON_ARRAY:
        list = llm__tpl_list(x, llm_json_size(doc, node));
        for (int i = llm_json_first(doc, node); i >= 0 && !x->err; i = llm_json_next(doc, i)) llm__tpl_push(x, list, llm__tpl_from_json(x, doc, i, depth + 1));
        return llm__v_list(LLM__V_LIST, list);
    case LLM_JSON_OBJECT:
        dict = llm__tpl_dict(x);
        for (int i = llm_json_first(doc, node); i >= 0 && !x->err; i = llm_json_next(doc, i)) {
            s = llm_json_key(doc, i, &n);
            llm__val key = llm__tpl_copy(x, s, n);
            llm__tpl_dict_set(x, dict, key, llm__tpl_from_json(x, doc, i, depth + 1));
        }
        return llm__v_dict(LLM__V_DICT, dict);
    default: return llm__v(LLM__V_NONE);
    }
}

/* ---- the public functions ---- */

LLM_API void llm_template_close(llm_template *t) {
    if (!t) return;
    llm__arena_free(&t->arena);
    llm__map_free(&t->names);
    LLM_FREE(t->name);
    LLM_FREE(t);
}

/* A copy of the source with \r\n and \r as \n and without one line feed at the end; an error if it is not UTF-8. */
static llm_result llm__tpl_source(llm_template *t, const char *text, size_t len, llm__str *out) {
    int n;
    for (size_t i = 0; i < len; i += (size_t)n)
        if (llm__utf8_get(text + i, len - i, &n) < 0) return llm__error(LLM_ERR_TEMPLATE, "template: byte %zu is not UTF-8", i);
    char *s = (char *)llm__arena_get(&t->arena, len + 1);
    size_t k = 0;
    if (!s) return llm__nomem();
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n') continue;
        s[k++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (k && s[k - 1] == '\n') k--;
    *out = llm__s(s, k);
    return LLM_OK;
}

LLM_API llm_result llm_template_open(const char *text, size_t len, llm_template **out) {
    llm__tpl_parser p;
    llm__str source = {NULL, 0};
    *out = NULL;
    if (len > (size_t)16 << 20) return llm__error(LLM_ERR_LIMIT, "template: %zu bytes, at most 16 MiB expected", len);
    llm_template *t = LLM__NEW(llm_template, 1);
    if (!t) return llm__nomem();
    t->arena.limit = (size_t)1 << 30;
    memset(&p, 0, sizeof p);
    p.t = t;
    p.err = llm__tpl_source(t, text, len, &source);
    if (!p.err) {
        p.lex.s = source.p;
        p.lex.n = source.n;
        p.lex.line = 1;
        p.lex.line_starting = 1;
        llm__parse_next(&p);
        t->body = llm__parse_block(&p, NULL, 0);
        t->loop_name = llm__map_get(&t->names, llm__s("loop", 4));
    }
    if (p.err) llm_template_close(t);
    else *out = t;
    return p.err;
}

/* Variables: global functions, then the options' tokens, then the members of the context. */
static void llm__tpl_context(llm__tpl *x, const llm_json *context) {
    const char *token[2] = {x->options->bos_token, x->options->eos_token};
    static const char *const token_name[2] = {"bos_token", "eos_token"};
    const llm__map *names = &x->t->names;
    int32_t id;
    for (const llm__tpl_entry *e = llm__tpl_globals; e->name; e++)
        if ((id = llm__map_get(names, llm__s(e->name, strlen(e->name)))) >= 0) x->context[id] = llm__tpl_bind(x, e, llm__v(LLM__V_NONE));
    for (int i = 0; i < 2; i++)
        if (token[i] && (id = llm__map_get(names, llm__s(token_name[i], strlen(token_name[i])))) >= 0) x->context[id] = llm__v_str(token[i], strlen(token[i]));
    for (int i = llm_json_first(context, 0); i >= 0 && !x->err; i = llm_json_next(context, i)) {
        llm__str key;
        key.p = llm_json_key(context, i, &key.n);
        if ((id = llm__map_get(names, key)) >= 0) x->context[id] = llm__tpl_from_json(x, context, i, 0);
    }
}

/* What chat servers do to a context before it is rendered. */
static void llm__tpl_as_chat(llm__tpl *x) {
    static const char *const absent[2] = {"tools", "documents"}, *const path[3] = {"tool_calls", "function", "arguments"};
    int32_t id;
    for (int i = 0; i < 2; i++)
        if ((id = llm__map_get(&x->t->names, llm__s(absent[i], strlen(absent[i])))) >= 0 && x->context[id].type == LLM__V_UNSET) x->context[id] = llm__v(LLM__V_NONE);
    if ((id = llm__map_get(&x->t->names, llm__s("messages", 8))) < 0 || x->context[id].type != LLM__V_LIST) return;
    const llm__vlist *messages = x->context[id].as.list;
    for (int i = 0; i < messages->n && !x->err; i++) {
        llm__val *calls = messages->v[i].type == LLM__V_DICT ? llm__tpl_dict_find(x, messages->v[i].as.dict, llm__v_str(path[0], 10)) : NULL;
        for (int k = 0; calls && calls->type == LLM__V_LIST && k < calls->as.list->n && !x->err; k++) {
            llm__val *v = &calls->as.list->v[k];
            for (int step = 1; v && step < 3; step++) v = v->type == LLM__V_DICT ? llm__tpl_dict_find(x, v->as.dict, llm__v_str(path[step], strlen(path[step]))) : NULL;
            llm_json *doc;
            if (!v || v->type != LLM__V_STR || llm_json_parse(llm__v_s(*v).p, v->n, NULL, &doc)) continue; /* no JSON: it stays a text */
            if (llm_json_type_of(doc, 0) == LLM_JSON_OBJECT) *v = llm__tpl_from_json(x, doc, 0, 0);
            llm_json_free(doc);
        }
    }
}

LLM_API llm_result llm_template_render(const llm_template *t, const llm_json *context, const llm_render_options *options, llm_text *out) {
    llm_render_options defaults;
    llm__tpl x;
    memset(&defaults, 0, sizeof defaults);
    memset(&x, 0, sizeof x);
    if (llm_json_type_of(context, 0) != LLM_JSON_OBJECT) return llm__error(LLM_ERR_ARG, "template context: a JSON object was expected");
    x.t = t;
    x.options = options ? options : &defaults;
    x.fuel = INT64_MAX; /* reading the context is free: it is as large as the caller allowed */
    x.arena.limit = (size_t)1 << 29;
    x.text.limit = x.options->max_output ? x.options->max_output : (size_t)32 << 20;
    x.context = (llm__val *)llm__tpl_get(&x, ((size_t)t->n_names + 1) * sizeof *x.context);
    if (!x.err) llm__tpl_context(&x, context);
    if (!x.err && x.options->as_chat) llm__tpl_as_chat(&x);
    x.fuel = x.options->fuel > 0 ? x.options->fuel : 5000000;
    x.scope = llm__tpl_scope(&x, NULL);
    if (!x.err) llm__tpl_run(&x, t->body);
    if (!x.err) {
        llm_text_add(out, x.text.data ? x.text.data : "", x.text.len);
        if (out->failed) llm__tpl_error(&x, LLM_ERR_NOMEM, "out of memory");
    }
    if (x.err == LLM_ERR_TEMPLATE || x.err == LLM_ERR_LIMIT) llm__error(x.err, "template line %d: %s", x.err_line, x.message);
    else if (x.err) llm__error(x.err, "%s", x.message);
    llm__arena_free(&x.arena);
    llm_text_free(&x.text);
    return x.err;
}

/* ============================================================================
 * >>chat   Reasoning apart from the answer, and what a chat template can do.
 * ============================================================================
 * Models that think first put it between two tags, in front of the answer. The opening tag may stand at the end of the prompt, so that the
 * model's text begins in the middle of its thoughts: the last tag of the prompt tells whether they are open. The parsers differ in their tags
 * and in what they take for granted without a tag (see the table).
 *
 * The splitter works on bytes as they arrive. It holds back what may be the beginning of a tag, never more than one tag and the white space
 * before it, so no half tag is ever shown, and what comes out does not depend on where the pieces were cut.
 *
 * What a template can do is found by trying: a probe is rendered and looked for in the result. */

typedef struct llm__reasoning_row {
    const char *names;       /* as users write them, with blanks around each */
    const char *open, *close;
    int thinks;              /* 1: thoughts are open unless the prompt ends with the closing tag */
    int drop;                /* 1: a closing tag in the answer is left out */
} llm__reasoning_row;

static const llm__reasoning_row *llm__reasoning_of(llm_reasoning_kind kind) {
    static const llm__reasoning_row row[] = {
        {" none ", "", "", 0, 0},
        {" think glm45 hunyuan minimax step3 nemotron exaone4 ", "<think>", "</think>", 0, 0},
        {" qwen3 ", "<think>", "</think>", 0, 0},
        {" deepseek_r1 deepseek minimax_m2 ", "<think>", "</think>", 1, 0},
        {" ernie_45_vl ernie45 ernie_x1 ", "<think>", "</think>", 0, 1},
        {" mistral magistral ", "[THINK]", "[/THINK]", 0, 0},
        {" seed_oss ", "<seed:think>", "</seed:think>", 0, 0},
        {" kimi ", "\xE2\x97\x81think\xE2\x96\xB7", "\xE2\x97\x81/think\xE2\x96\xB7", 0, 0}};
    return kind >= 0 && (int)kind < LLM__COUNT(row) ? &row[kind] : NULL;
}

LLM_API int llm_reasoning_named(const char *name) {
    char key[40];
    int n = 0;
    key[n++] = ' ';
    for (; *name && n < 37; name++) key[n++] = *name == '-' ? '_' : *name == ' ' ? '?' : (char)llm__tpl_lower((uint8_t)*name);
    key[n++] = ' ';
    key[n] = 0;
    for (int k = 0; llm__reasoning_of((llm_reasoning_kind)k); k++)
        if (strstr(llm__reasoning_of((llm_reasoning_kind)k)->names, key)) return k;
    return -1;
}

LLM_API llm_reasoning_kind llm_reasoning_detect(const char *chat_template) {
    static const llm_reasoning_kind order[] = {LLM_REASONING_SEED_OSS, LLM_REASONING_KIMI, LLM_REASONING_MISTRAL, LLM_REASONING_THINK};
    for (int i = 0; chat_template && i < LLM__COUNT(order); i++) {
        const llm__reasoning_row *row = llm__reasoning_of(order[i]);
        if (!strstr(chat_template, row->close)) continue;
        if (order[i] != LLM_REASONING_THINK) return order[i];
        if (strstr(chat_template, "<|im_start|>") && strstr(chat_template, "enable_thinking")) return LLM_REASONING_QWEN3;
        return strstr(chat_template, "<\xEF\xBD\x9C" "Assistant\xEF\xBD\x9C><think>") ? LLM_REASONING_DEEPSEEK_R1 : LLM_REASONING_THINK;
    }
    return LLM_REASONING_NONE;
}

LLM_API void llm_reasoning_begin(llm_reasoning *r, llm_reasoning_kind kind, const char *prompt, size_t len) {
    const llm__reasoning_row *row = llm__reasoning_of(kind);
    memset(r, 0, sizeof *r);
    r->kind = row ? kind : LLM_REASONING_NONE;
    r->started = r->kind == LLM_REASONING_NONE;
    if (r->started) return;
    llm__str s = llm__tpl_strip(llm__s(prompt, prompt ? len : 0), llm__s(NULL, 0), 2), close = llm__s(row->close, strlen(row->close));
    int64_t opened = llm__tpl_find(s, llm__s(row->open, strlen(row->open)), -1), closed = llm__tpl_find(s, close, -1);
    r->thinking = row->thinks ? closed < 0 || closed + (int64_t)close.n < (int64_t)s.n : opened > closed;
}

static void llm__reasoning_emit(const llm_reasoning *r, const char *s, size_t n, llm_text *reasoning, llm_text *content) {
    if (n) llm_text_add(r->thinking ? reasoning : content, s, n);
}

static void llm__reasoning_byte(llm_reasoning *r, char byte, llm_text *reasoning, llm_text *content);

/* Before the first text: white space and an opening tag are held back; what turns out to be neither goes the normal way. */
static void llm__reasoning_start(llm_reasoning *r, const llm__reasoning_row *row, llm_text *reasoning, llm_text *content) {
    llm__str s = llm__tpl_strip(llm__s(r->held, (size_t)r->n_held), llm__s(NULL, 0), 1);
    size_t tag = strlen(row->open);
    if (s.n < tag && !memcmp(s.p, row->open, s.n) && (size_t)r->n_held < sizeof r->held - 1) return;
    r->started = 1;
    if (s.n == tag && !memcmp(s.p, row->open, tag)) {
        r->thinking = 1;
        r->n_held = 0;
        return;
    }
    char held[sizeof r->held];
    int n = r->n_held;
    memcpy(held, r->held, sizeof held);
    r->n_held = 0;
    for (int i = 0; i < n; i++) llm__reasoning_byte(r, held[i], reasoning, content);
}

static void llm__reasoning_byte(llm_reasoning *r, char byte, llm_text *reasoning, llm_text *content) {
    const llm__reasoning_row *row = llm__reasoning_of(r->kind);
    int tag = (int)strlen(row->close), skip = 0;
    r->held[r->n_held++] = byte;
    if (!r->started) {
        llm__reasoning_start(r, row, reasoning, content);
        return;
    }
    int watch = r->thinking || row->drop; /* for the closing tag */
    while (skip < r->n_held && !(watch && !memcmp(r->held + skip, row->close, (size_t)(r->n_held - skip)))) skip++;
    llm__reasoning_emit(r, r->held, (size_t)skip, reasoning, content);
    r->n_held -= skip;
    memmove(r->held, r->held + skip, (size_t)r->n_held);
    if (r->n_held && r->n_held == tag) r->thinking = r->n_held = 0;
}

LLM_API void llm_reasoning_push(llm_reasoning *r, const char *piece, size_t len, llm_text *reasoning, llm_text *content) {
    if (r->kind == LLM_REASONING_NONE) llm_text_add(content, piece, len);
    else
        for (size_t i = 0; i < len; i++) llm__reasoning_byte(r, piece[i], reasoning, content);
}

LLM_API void llm_reasoning_end(llm_reasoning *r, llm_text *reasoning, llm_text *content) {
    llm__reasoning_emit(r, r->held, (size_t)r->n_held, reasoning, content);
    r->n_held = 0;
}

/* Is `probe` in the text rendered from a context, and `not_probe` not? */
static int llm__chat_probe(const llm_template *t, const char *context, const char *probe, const char *not_probe) {
    llm_json *doc = NULL;
    llm_text text;
    memset(&text, 0, sizeof text);
    if (llm_json_parse(context, strlen(context), NULL, &doc)) return 0;
    int found = !llm_template_render(t, doc, NULL, &text) && text.data && strstr(text.data, probe) && !strstr(text.data, not_probe);
    llm_text_free(&text);
    llm_json_free(doc);
    return found;
}

LLM_API void llm_template_get_caps(const llm_template *t, llm_template_caps *out) {
    memset(out, 0, sizeof *out);
    out->tools = llm__map_get(&t->names, llm__s("tools", 5)) >= 0;
    out->thinking_switch = llm__map_get(&t->names, llm__s("enable_thinking", 15)) >= 0 || llm__map_get(&t->names, llm__s("thinking", 8)) >= 0;
    out->system_role = llm__chat_probe(t, "{\"messages\":[{\"role\":\"system\",\"content\":\"PR0BE\"},{\"role\":\"user\",\"content\":\"x\"}],\"bos_token\":\"\",\"eos_token\":\"\"}", "PR0BE", "\x01");
    out->content_parts = llm__chat_probe(t, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"PR0BE\"}]}],\"bos_token\":\"\",\"eos_token\":\"\"}", "PR0BE", "type");
}
/* ---- section: template, chat (end) ---- */

/* ============================================================================
 * >>formats   GGUF and safetensors: where tensors, settings and vocabularies come from.
 * ============================================================================
 * A model is a GGUF file (or its parts) or a Hugging Face folder. Both end as one llm__source: a table of tensors that point into the mapped
 * files, the settings (GGUF keys, or config.json), the tokenizer, the chat template, and the ids that end an answer.
 *
 * Files are hostile until checked. A reader walks the bytes with a cursor that cannot pass the end, and everything is checked before anyone
 * sees it: counts against the bytes that are left, sizes by checked arithmetic, every tensor's range against the file and against its
 * neighbours. Tables grow with what was really read, never by what a header claims, so a lie of 100 GiB costs nothing. Where a reader could
 * take the first or the last of two (keys, tensors), the file is refused: two programs must not see two models in one file.
 * Big arrays (a vocabulary has 262,144 strings) are not copied: a key says type, count and place.
 *
 * In memory a tensor is row-major whatever the file: shape[0] is the outermost dimension. GGUF stores dimensions the other way round,
 * innermost first; the bytes are the same. In a safetensors file data need not be aligned to its elements: load with memcpy or unaligned loads.
 *
 * Nothing of a model folder is executed, and only files named here, or by a plain name in the index, are opened. Links are followed (the
 * Hugging Face cache is made of them), but what they lead to must be a regular file. Pickles (pytorch_model.bin) are never read.
 * References: ggml/docs/gguf.md; huggingface/safetensors README ("Format"). */
/* ---- section: formats (begin) ---- */

/* How elements of a type are stored: in blocks of so many elements and bytes. */
typedef struct llm__type_desc {
    int32_t type; /* llm_type; numbers that it lacks are listed for their names and sizes only */
    const char *name;
    int32_t block, bytes;
} llm__type_desc;

/* Those of one element a block are the dtypes of safetensors, by the same names. */
static const llm__type_desc llm__type_table[] = {
    {LLM_TYPE_F32, "F32", 1, 4}, {LLM_TYPE_F16, "F16", 1, 2}, {LLM_TYPE_BF16, "BF16", 1, 2}, {LLM_TYPE_F64, "F64", 1, 8},
    {LLM_TYPE_Q4_0, "Q4_0", 32, 18}, {LLM_TYPE_Q4_1, "Q4_1", 32, 20}, {LLM_TYPE_Q5_0, "Q5_0", 32, 22},
    {LLM_TYPE_Q5_1, "Q5_1", 32, 24}, {LLM_TYPE_Q8_0, "Q8_0", 32, 34}, {9, "Q8_1", 32, 36}, {LLM_TYPE_Q2_K, "Q2_K", 256, 84},
    {LLM_TYPE_Q3_K, "Q3_K", 256, 110}, {LLM_TYPE_Q4_K, "Q4_K", 256, 144}, {LLM_TYPE_Q5_K, "Q5_K", 256, 176},
    {LLM_TYPE_Q6_K, "Q6_K", 256, 210}, {15, "Q8_K", 256, 292}, {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50}, {LLM_TYPE_IQ4_NL, "IQ4_NL", 32, 18}, {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82}, {LLM_TYPE_IQ4_XS, "IQ4_XS", 256, 136}, {29, "IQ1_M", 256, 56}, {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66}, {LLM_TYPE_MXFP4, "MXFP4", 32, 17}, {40, "NVFP4", 64, 36}, {LLM_TYPE_I8, "I8", 1, 1},
    {LLM_TYPE_I16, "I16", 1, 2}, {LLM_TYPE_I32, "I32", 1, 4}, {LLM_TYPE_I64, "I64", 1, 8}, {LLM_TYPE_F8_E4M3, "F8_E4M3", 1, 1},
    {LLM_TYPE_F8_E5M2, "F8_E5M2", 1, 1}, {LLM_TYPE_U8, "U8", 1, 1}, {LLM_TYPE_BOOL, "BOOL", 1, 1}, {LLM_TYPE_U16, "U16", 1, 2},
    {LLM_TYPE_U32, "U32", 1, 4}, {LLM_TYPE_U64, "U64", 1, 8},
};

/* NULL for a type never heard of. Types of the table that no kernel reads are refused where the tensor is used. */
LLM__UNUSED static const llm__type_desc *llm__type_info(int32_t type) {
    for (int i = 0; i < LLM__COUNT(llm__type_table); i++)
        if (llm__type_table[i].type == type) return &llm__type_table[i];
    return NULL;
}

/* ---- The table of tensors ---- */

typedef struct llm__tensor {
    llm__str name;       /* NUL-terminated */
    int32_t type;        /* llm_type, or a GGUF number that llm__type_info may not know: then bytes is 0 */
    int32_t n_dims;      /* 0 to 4; more (never of a language model) are folded into the first */
    int64_t shape[4];    /* row-major: outermost first; 1 beyond n_dims */
    const uint8_t *data; /* in the mapped file */
    int64_t bytes;
    uint64_t offset;     /* of its file's data part */
} llm__tensor;

typedef struct llm__tensors {
    llm__tensor *item; /* (n) in the order of the files */
    size_t n, cap;
    llm__map by_name;
    llm__arena names;
} llm__tensors;

LLM__UNUSED static void llm__tensors_free(llm__tensors *t) {
    LLM_FREE(t->item);
    llm__map_free(&t->by_name);
    llm__arena_free(&t->names);
    memset(t, 0, sizeof *t);
}

/* NULL if absent. */
LLM__UNUSED static const llm__tensor *llm__tensors_find(const llm__tensors *t, const char *name) {
    int32_t i = llm__map_get(&t->by_name, llm__s(name, strlen(name)));
    return i < 0 ? NULL : &t->item[i];
}

/* LLM_ERR_FORMAT with "path: what name: " before the sentence. */
__attribute__((format(printf, 4, 5))) static llm_result llm__bad(const char *path, const char *what, llm__str name, const char *format,
                                                                 ...) {
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return llm__error(LLM_ERR_FORMAT, "%s: %s %.*s: %s", path, what, (int)LLM__MIN(name.n, (size_t)128), name.p, text);
}

/* A seed for a table whose keys come from a file. */
static uint64_t llm__seed(const void *p) { return (uint64_t)(uintptr_t)p ^ (uint64_t)(llm__now() * 1e9); }

/* A NUL-terminated copy. */
static char *llm__arena_str(llm__arena *a, llm__str s) {
    char *p = (char *)llm__arena_get(a, s.n + 1);
    if (p && s.n) memcpy(p, s.p, s.n);
    return p;
}

/* Text from a file that may stand in messages and listings: UTF-8 without control characters, 1 to `most` bytes. */
static int llm__plain_text(llm__str s, size_t most) {
    if (!s.n || s.n > most) return 0;
    for (size_t i = 0; i < s.n;) {
        int len;
        int32_t c = llm__utf8_get(s.p + i, s.n - i, &len);
        if (c < 32 || c == 127) return 0;
        i += (size_t)len;
    }
    return 1;
}

/* Checks and adds one tensor, whose data is not placed yet: type, n_dims, shape and offset are given; its bytes are worked out. */
static llm_result llm__tensors_add(llm__tensors *t, const char *path, llm__str name, llm__tensor *x) {
    const llm__type_desc *info = llm__type_info(x->type);
    uint64_t elements = 1;
    int ok = 1;
    for (int i = 0; i < 4; i++) {
        if (i >= x->n_dims) x->shape[i] = 1;
        if (x->shape[i] < 0) return llm__bad(path, "tensor", name, "dimension %d is %lld", i, (long long)x->shape[i]);
        elements = llm__mul(elements, (uint64_t)x->shape[i], &ok);
    }
    if (info && ok && x->n_dims && x->shape[x->n_dims - 1] % info->block)
        return llm__bad(path, "tensor", name, "rows of %lld elements, %s needs a multiple of %d", (long long)x->shape[x->n_dims - 1],
                        info->name, info->block);
    x->bytes = info ? (int64_t)llm__mul(elements / (uint64_t)info->block, (uint64_t)info->bytes, &ok) : 0;
    if (!ok) return llm__bad(path, "tensor", name, "its size overflows");
    char *copy = llm__arena_str(&t->names, name);
    if (!copy || t->n >= INT32_MAX || !llm__grow((void **)&t->item, &t->cap, t->n + 1, sizeof *t->item)) return llm__nomem();
    x->name = llm__s(copy, name.n);
    if (!t->by_name.seed) t->by_name.seed = llm__seed(t);
    int put = llm__map_put(&t->by_name, x->name, (int32_t)t->n);
    if (put <= 0) return put ? llm__nomem() : llm__bad(path, "tensor", name, "it is there twice");
    t->item[t->n++] = *x;
    return LLM_OK;
}

typedef struct llm__range {
    uint64_t begin, end;
    int32_t tensor;
} llm__range;

static int llm__range_order(const void *a, const void *b) {
    const llm__range *x = (const llm__range *)a, *y = (const llm__range *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Ranges in order of their places: no overlap, all within `size` bytes; `covering`: no gap and nothing after them either. */
static llm_result llm__ranges_check(const llm__tensors *t, const char *path, const llm__range *range, size_t n, size_t data_at, size_t size,
                                    int covering) {
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        llm__str name = t->item[range[i].tensor].name;
        if (range[i].begin < end)
            return llm__bad(path, "tensor", name, "byte %zu of the data: it overlaps tensor %s", (size_t)range[i].begin,
                            t->item[range[i - 1].tensor].name.p);
        if (covering && range[i].begin > end)
            return llm__bad(path, "tensor", name, "a hole before byte %zu of the data", (size_t)range[i].begin);
        end = range[i].end;
    }
    if (end > size)
        return llm__error(LLM_ERR_FORMAT, "%s: truncated: the tensors need %zu bytes, the file has %zu", path, data_at + (size_t)end,
                          data_at + size);
    if (covering && end < size)
        return llm__error(LLM_ERR_FORMAT, "%s: %zu bytes after the last tensor, none expected", path, size - (size_t)end);
    return LLM_OK;
}

/* Gives the tensors from `first` on their data: `size` bytes at data, which is at byte data_at of the file. Checks all ranges first. */
static llm_result llm__tensors_place(llm__tensors *t, size_t first, const char *path, const uint8_t *data, size_t data_at, size_t size,
                                     int covering) {
    size_t n = t->n - first;
    llm__range *range = LLM__NEW(llm__range, n);
    if (!range) return llm__nomem();
    llm_result r = LLM_OK;
    for (size_t i = 0; i < n && !r; i++) {
        int ok = 1;
        const llm__tensor *x = &t->item[first + i];
        range[i].begin = x->offset;
        range[i].end = llm__add(x->offset, (uint64_t)x->bytes, &ok);
        range[i].tensor = (int32_t)(first + i);
        llm__add(range[i].end, data_at, &ok);
        if (!ok) r = llm__bad(path, "tensor", x->name, "offset %zu is beyond any file", (size_t)x->offset);
    }
    if (!r) {
        qsort(range, n, sizeof *range, llm__range_order);
        r = llm__ranges_check(t, path, range, n, data_at, size, covering);
    }
    for (size_t i = first; i < t->n && !r; i++) t->item[i].data = data + t->item[i].offset;
    LLM_FREE(range);
    return r;
}

/* ---- GGUF ---- */

/* A place in bytes that are not trusted. After the first failure everything reads as zero; `r` keeps the error. */
typedef struct llm__cursor {
    const char *path;
    const uint8_t *data;
    size_t size, at;
    llm_result r;
} llm__cursor;

static int llm__cursor_has(llm__cursor *c, uint64_t n, const char *what) {
    if (c->r) return 0;
    if (n <= c->size - c->at) return 1;
    c->r = llm__error(LLM_ERR_FORMAT, "%s: %s at byte %zu needs %zu bytes, the file has %zu more: truncated or malformed", c->path, what,
                      c->at, (size_t)n, c->size - c->at);
    return 0;
}

/* A little-endian number of 1 to 8 bytes anywhere. */
static uint64_t llm__load_le(const uint8_t *p, int bytes) {
    uint64_t v = 0;
    for (int i = bytes; i-- > 0;) v = v << 8 | p[i];
    return v;
}

static uint64_t llm__cursor_uint(llm__cursor *c, int bytes, const char *what) {
    if (!llm__cursor_has(c, (uint64_t)bytes, what)) return 0;
    c->at += (size_t)bytes;
    return llm__load_le(c->data + c->at - bytes, bytes);
}

static llm__str llm__cursor_str(llm__cursor *c, const char *what) {
    uint64_t n = llm__cursor_uint(c, 8, what);
    if (!llm__cursor_has(c, n, what)) return llm__s("", 0);
    c->at += n;
    return llm__s((const char *)c->data + c->at - n, (size_t)n);
}

typedef enum llm__gguf_type {
    LLM__GGUF_U8 = 0, LLM__GGUF_I8, LLM__GGUF_U16, LLM__GGUF_I16, LLM__GGUF_U32, LLM__GGUF_I32, LLM__GGUF_F32, LLM__GGUF_BOOL,
    LLM__GGUF_STR, LLM__GGUF_ARRAY, LLM__GGUF_U64, LLM__GGUF_I64, LLM__GGUF_F64, LLM__GGUF_TYPES
} llm__gguf_type;

/* One key. Numbers stand unaligned and little-endian at `data`; a string is its 64-bit length and its bytes. */
typedef struct llm__gguf_kv {
    llm__str key;
    int32_t type;     /* llm__gguf_type of the value, or of the elements */
    int32_t is_array;
    uint64_t count;   /* elements; 1 */
    const uint8_t *data;
} llm__gguf_kv;

typedef struct llm__gguf {
    int32_t version;
    uint32_t alignment;
    llm__gguf_kv *kv;
    size_t n_kv, cap;
    llm__map by_key;
    size_t data_at, end; /* where the data starts; behind the last tensor */
} llm__gguf;

LLM__UNUSED static void llm__gguf_free(llm__gguf *g) {
    LLM_FREE(g->kv);
    llm__map_free(&g->by_key);
    memset(g, 0, sizeof *g);
}

static int llm__gguf_size_of(int32_t type) { /* bytes of a number; 0: not of fixed size */
    static const uint8_t size[LLM__GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return size[type];
}

LLM__UNUSED static const llm__gguf_kv *llm__gguf_find(const llm__gguf *g, const char *key) {
    int32_t i = llm__map_get(&g->by_key, llm__s(key, strlen(key)));
    return i < 0 ? NULL : &g->kv[i];
}

/* Element i (of a plain value: 0) as an integer; 0 if it is none or there is no such element. */
LLM__UNUSED static int llm__gguf_int_at(const llm__gguf_kv *kv, uint64_t i, int64_t *out) {
    if (!kv || i >= kv->count || kv->type == LLM__GGUF_F32 || kv->type == LLM__GGUF_F64 || kv->type == LLM__GGUF_STR) return 0;
    int bytes = llm__gguf_size_of(kv->type), is_signed = kv->type == LLM__GGUF_I8 || kv->type == LLM__GGUF_I16 || kv->type == LLM__GGUF_I32;
    uint64_t v = llm__load_le(kv->data + i * (uint64_t)bytes, bytes), sign = (uint64_t)1 << (8 * bytes - 1);
    if (kv->type == LLM__GGUF_U64 && v > (uint64_t)INT64_MAX) return 0;
    *out = (int64_t)(is_signed ? (v ^ sign) - sign : v);
    return 1;
}

/* The same as a number: integers too. */
LLM__UNUSED static int llm__gguf_num_at(const llm__gguf_kv *kv, uint64_t i, double *out) {
    int64_t v;
    if (kv && i < kv->count && kv->type == LLM__GGUF_F32) {
        float f;
        uint32_t bits = (uint32_t)llm__load_le(kv->data + i * 4, 4);
        memcpy(&f, &bits, 4);
        return *out = f, 1;
    }
    if (kv && i < kv->count && kv->type == LLM__GGUF_F64) {
        uint64_t bits = llm__load_le(kv->data + i * 8, 8);
        return memcpy(out, &bits, 8), 1;
    }
    if (!llm__gguf_int_at(kv, i, &v)) return 0;
    return *out = (double)v, 1;
}

/* Plain values, or `absent` if the key is not there or has another type. */
LLM__UNUSED static int64_t llm__gguf_int(const llm__gguf *g, const char *key, int64_t absent) {
    const llm__gguf_kv *kv = llm__gguf_find(g, key);
    int64_t v;
    return kv && !kv->is_array && kv->type != LLM__GGUF_BOOL && llm__gguf_int_at(kv, 0, &v) ? v : absent;
}

LLM__UNUSED static double llm__gguf_num(const llm__gguf *g, const char *key, double absent) {
    const llm__gguf_kv *kv = llm__gguf_find(g, key);
    double v;
    return kv && !kv->is_array && kv->type != LLM__GGUF_BOOL && llm__gguf_num_at(kv, 0, &v) ? v : absent;
}

LLM__UNUSED static int llm__gguf_bool(const llm__gguf *g, const char *key, int absent) {
    const llm__gguf_kv *kv = llm__gguf_find(g, key);
    return kv && !kv->is_array && kv->type == LLM__GGUF_BOOL ? kv->data[0] : absent;
}

/* .p NULL if absent. Not NUL-terminated. */
LLM__UNUSED static llm__str llm__gguf_str(const llm__gguf *g, const char *key) {
    const llm__gguf_kv *kv = llm__gguf_find(g, key);
    if (!kv || kv->is_array || kv->type != LLM__GGUF_STR) return llm__s(NULL, 0);
    return llm__s((const char *)kv->data + 8, (size_t)llm__load_le(kv->data, 8));
}

/* The array of a key if its elements have that type, else NULL. */
LLM__UNUSED static const llm__gguf_kv *llm__gguf_array(const llm__gguf *g, const char *key, llm__gguf_type type) {
    const llm__gguf_kv *kv = llm__gguf_find(g, key);
    return kv && kv->is_array && kv->type == (int32_t)type ? kv : NULL;
}

/* The strings of an array of strings, as many as it counts. */
LLM__UNUSED static void llm__gguf_strings(const llm__gguf_kv *kv, llm__str *out) {
    const uint8_t *p = kv->data;
    for (uint64_t i = 0; i < kv->count; i++) {
        out[i] = llm__s((const char *)p + 8, (size_t)llm__load_le(p, 8));
        p += 8 + out[i].n;
    }
}

/* Checks `count` values and steps over them. */
static void llm__gguf_skip(llm__cursor *c, int32_t type, uint64_t count) {
    int bytes = llm__gguf_size_of(type);
    if (type == LLM__GGUF_STR) { /* count was compared with the bytes left */
        for (uint64_t i = 0; i < count && !c->r; i++) llm__cursor_str(c, "a string");
        return;
    }
    for (uint64_t i = 0; type == LLM__GGUF_BOOL && i < count; i++)
        if (c->data[c->at + i] > 1)
            c->r = llm__error(LLM_ERR_FORMAT, "%s: the boolean at byte %zu is %d, 0 or 1 expected", c->path, c->at + i, c->data[c->at + i]);
    c->at += count * (uint64_t)bytes;
}

static llm_result llm__gguf_read_kv(llm__cursor *c, llm__gguf *g) {
    llm__gguf_kv kv;
    memset(&kv, 0, sizeof kv);
    size_t at = c->at;
    kv.key = llm__cursor_str(c, "a key");
    uint64_t type = llm__cursor_uint(c, 4, "a value's type");
    if (c->r) return c->r;
    if (!llm__plain_text(kv.key, 65535))
        return llm__error(LLM_ERR_FORMAT, "%s: the key at byte %zu is no plain text of 1 to 65535 bytes", c->path, at);
    kv.is_array = type == LLM__GGUF_ARRAY;
    if (kv.is_array) type = llm__cursor_uint(c, 4, "an array's type");
    kv.count = kv.is_array ? llm__cursor_uint(c, 8, "an array's count") : 1;
    if (c->r) return c->r;
    if (type >= LLM__GGUF_TYPES || type == LLM__GGUF_ARRAY)
        return llm__bad(c->path, "key", kv.key, "value type %u is unknown%s", (unsigned)type, kv.is_array ? " in an array" : "");
    kv.type = (int32_t)type;
    kv.data = c->data + c->at;
    int bytes = llm__gguf_size_of(kv.type);
    size_t left = c->size - c->at;
    if (kv.count > left / (size_t)(bytes ? bytes : 8))
        return llm__bad(c->path, "key", kv.key, "%zu values are more than the %zu bytes left hold: truncated or malformed",
                        (size_t)kv.count, left);
    llm__gguf_skip(c, kv.type, kv.count);
    if (c->r) return c->r;
    if (!llm__grow((void **)&g->kv, &g->cap, g->n_kv + 1, sizeof *g->kv)) return llm__nomem();
    int put = llm__map_put(&g->by_key, kv.key, (int32_t)g->n_kv);
    if (put <= 0) return put ? llm__nomem() : llm__bad(c->path, "key", kv.key, "it is there twice");
    g->kv[g->n_kv++] = kv;
    return LLM_OK;
}

static llm_result llm__gguf_read_tensor(llm__cursor *c, uint32_t alignment, llm__tensors *tensors) {
    llm__tensor x;
    size_t at = c->at;
    memset(&x, 0, sizeof x);
    llm__str name = llm__cursor_str(c, "a tensor's name");
    uint64_t n_dims = llm__cursor_uint(c, 4, "a tensor's number of dimensions");
    if (c->r) return c->r;
    if (!llm__plain_text(name, 63))
        return llm__error(LLM_ERR_FORMAT, "%s: the tensor name at byte %zu is no plain text of 1 to 63 bytes", c->path, at);
    if (n_dims < 1 || n_dims > 4) return llm__bad(c->path, "tensor", name, "%u dimensions, 1 to 4 expected", (unsigned)n_dims);
    x.n_dims = (int32_t)n_dims;
    for (int i = x.n_dims; i-- > 0;) { /* innermost first in the file */
        x.shape[i] = (int64_t)llm__cursor_uint(c, 8, "a dimension");
        if (!c->r && x.shape[i] < 1) return llm__bad(c->path, "tensor", name, "dimension %d is %lld", i, (long long)x.shape[i]);
    }
    x.type = (int32_t)(uint32_t)llm__cursor_uint(c, 4, "a tensor's type");
    x.offset = llm__cursor_uint(c, 8, "a tensor's offset");
    if (c->r) return c->r;
    if (x.type >= 1000) x.type = -1; /* numbers of ours that no GGUF file may name */
    if (x.offset % alignment) return llm__bad(c->path, "tensor", name, "offset %zu is no multiple of %u", (size_t)x.offset, alignment);
    return llm__tensors_add(tensors, c->path, name, &x);
}

static llm_result llm__gguf_read_alignment(const char *path, llm__gguf *g) {
    const llm__gguf_kv *kv = llm__gguf_find(g, "general.alignment");
    int64_t v = 32;
    if (kv && (kv->is_array || kv->type != LLM__GGUF_U32 || !llm__gguf_int_at(kv, 0, &v) || v < 8 || v > 65536 || (v & (v - 1))))
        return llm__bad(path, "key", kv->key, "a 32-bit power of two from 8 to 65536 expected");
    g->alignment = (uint32_t)v;
    return LLM_OK;
}

/* Magic, version and the two counts. A key takes 14 bytes at least, a tensor 33; real files have about 50 and 1,000 of them. */
static llm_result llm__gguf_read_head(llm__cursor *c, llm__gguf *g, uint64_t *n_tensors, uint64_t *n_kv) {
    uint64_t magic = llm__cursor_uint(c, 4, "the magic number"), version = llm__cursor_uint(c, 4, "the version");
    if (c->size >= 4 && magic != 0x46554747u)
        return llm__error(LLM_ERR_FORMAT, "%s: no GGUF file: it does not start with \"GGUF\"", c->path);
    if (c->r) return c->r;
    if (version & 0xFFFF0000u) return llm__error(LLM_ERR_UNSUPPORTED, "%s: a big-endian GGUF file is not supported", c->path);
    if (version != 2 && version != 3)
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: GGUF version %u, 2 or 3 expected", c->path, (unsigned)version);
    g->version = (int32_t)version;
    *n_tensors = llm__cursor_uint(c, 8, "the number of tensors");
    *n_kv = llm__cursor_uint(c, 8, "the number of keys");
    if (c->r) return c->r;
    size_t left = c->size - c->at, most_kv = LLM__MIN((size_t)65536, left / 14), most_tensors = LLM__MIN((size_t)1000000, left / 33);
    if (*n_kv <= most_kv && *n_tensors <= most_tensors) return LLM_OK;
    return llm__error(LLM_ERR_FORMAT, "%s: %zu keys and %zu tensors claimed, at most %zu and %zu expected in %zu bytes", c->path,
                      (size_t)*n_kv, (size_t)*n_tensors, most_kv, most_tensors, c->size);
}

/* Reads a GGUF file that lies at data; its tensors are added to `tensors`. All points into data. The caller frees *g, after errors too. */
LLM__UNUSED static llm_result llm__gguf_parse(const char *path, const uint8_t *data, size_t size, llm__gguf *g, llm__tensors *tensors) {
    llm__cursor c;
    uint64_t n_tensors = 0, n_kv = 0;
    size_t first = tensors->n;
    int ok = 1;
    memset(&c, 0, sizeof c);
    memset(g, 0, sizeof *g);
    c.path = path;
    c.data = data;
    c.size = size;
    g->by_key.seed = llm__seed(g);
    llm_result r = llm__gguf_read_head(&c, g, &n_tensors, &n_kv);
    for (uint64_t i = 0; i < n_kv && !r; i++) r = llm__gguf_read_kv(&c, g);
    if (!r) r = llm__gguf_read_alignment(path, g);
    for (uint64_t i = 0; i < n_tensors && !r; i++) r = llm__gguf_read_tensor(&c, g->alignment, tensors);
    if (r || !n_tensors) return r;
    g->data_at = (size_t)llm__align_up(c.at, g->alignment, &ok);
    size_t at = LLM__MIN((size_t)g->data_at, size);
    r = llm__tensors_place(tensors, first, path, data + at, g->data_at, size - at, 0);
    for (size_t i = first; i < tensors->n && !r; i++)
        g->end = LLM__MAX(g->end, g->data_at + tensors->item[i].offset + (uint64_t)tensors->item[i].bytes);
    return r;
}

/* ---- safetensors ---- */

/* A tail for messages about a file that is not what its name says. */
static const char *llm__looks_like(const uint8_t *p, size_t n) {
    static const struct { const char *start, *what; } known[] = {
        {"version https://git-lfs", " (a Git LFS pointer, not the file itself: git lfs pull fetches it)"},
        {"PK\x03\x04", " (a zip or PyTorch file; pickles are never read: convert it to safetensors)"},
        {"\x80\x02", " (a Python pickle, which is never read: convert it to safetensors)"},
        {"lmgg", " (a ggml file older than GGUF)"},
        {"tjgg", " (a ggml file older than GGUF)"},
        {"<!DOCTYPE", " (a web page)"},
    };
    for (int i = 0; i < LLM__COUNT(known); i++)
        if (n >= strlen(known[i].start) && !memcmp(p, known[i].start, strlen(known[i].start))) return known[i].what;
    return "";
}

/* -1: no dtype of safetensors. */
static int32_t llm__safetensors_type(const char *name) {
    for (int i = 0; i < LLM__COUNT(llm__type_table); i++)
        if (llm__type_table[i].block == 1 && !strcmp(llm__type_table[i].name, name)) return llm__type_table[i].type;
    return -1;
}

/* Dimensions before the last four are folded into one. 0: not whole numbers from 0 on, or too large. */
static int llm__safetensors_shape(const llm_json *doc, int shape, llm__tensor *x) {
    int ok = 1, n_dims = llm_json_size(doc, shape), extra = LLM__MAX(0, n_dims - 4), i = 0;
    int64_t dim;
    x->n_dims = n_dims - extra;
    for (int v = llm_json_first(doc, shape); v >= 0 && ok; v = llm_json_next(doc, v), i++) {
        if (!llm_json_int(doc, v, &dim) || dim < 0) return 0;
        int to = LLM__MAX(0, i - extra);
        x->shape[to] = i && !to ? (int64_t)llm__mul((uint64_t)x->shape[0], (uint64_t)dim, &ok) : dim;
    }
    return ok;
}

/* "name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}: these three members, no more. */
static llm_result llm__safetensors_item(const char *path, const llm_json *doc, int node, llm__tensors *tensors) {
    llm__tensor x;
    llm__str name;
    int64_t begin = -1, end = -1;
    int dtype = llm_json_find(doc, node, "dtype"), shape = llm_json_find(doc, node, "shape"),
        places = llm_json_find(doc, node, "data_offsets");
    memset(&x, 0, sizeof x);
    name.p = llm_json_key(doc, node, &name.n);
    const char *type = llm_json_str(doc, dtype, NULL);
    if (!llm__plain_text(name, 65535)) return llm__error(LLM_ERR_FORMAT, "%s: a tensor name is no plain text of 1 to 65535 bytes", path);
    if (llm_json_size(doc, node) != 3 || !type || llm_json_type_of(doc, shape) != LLM_JSON_ARRAY ||
        llm_json_type_of(doc, places) != LLM_JSON_ARRAY)
        return llm__bad(path, "tensor", name, "dtype, shape and data_offsets expected");
    x.type = llm__safetensors_type(type);
    if (x.type < 0) return llm__bad(path, "tensor", name, "dtype \"%.32s\" is not known", type);
    if (!llm__safetensors_shape(doc, shape, &x))
        return llm__bad(path, "tensor", name, "shape: whole numbers from 0 on with a product below 2^63 expected");
    int first = llm_json_first(doc, places), last = llm_json_next(doc, first);
    if (llm_json_size(doc, places) != 2 || !llm_json_int(doc, first, &begin) || !llm_json_int(doc, last, &end) || begin < 0 || end < begin)
        return llm__bad(path, "tensor", name, "data_offsets: two ascending whole numbers expected");
    x.offset = (uint64_t)begin;
    llm_result r = llm__tensors_add(tensors, path, name, &x);
    if (r || x.bytes == end - begin) return r;
    return llm__bad(path, "tensor", name, "data_offsets hold %lld bytes, %s of its shape needs %lld", (long long)(end - begin), type,
                    (long long)x.bytes);
}

/* "__metadata__" is an object of strings. */
static llm_result llm__safetensors_metadata(const char *path, const llm_json *doc, int node) {
    int bad = llm_json_type_of(doc, node) != LLM_JSON_OBJECT;
    for (int v = llm_json_first(doc, node); v >= 0 && !bad; v = llm_json_next(doc, v)) bad = llm_json_type_of(doc, v) != LLM_JSON_STRING;
    return bad ? llm__error(LLM_ERR_FORMAT, "%s: __metadata__: an object of strings expected", path) : LLM_OK;
}

/* Reads a safetensors file that lies at data: the header's length (8 bytes), the header, then data that the tensors cover exactly. */
LLM__UNUSED static llm_result llm__safetensors_parse(const char *path, const uint8_t *data, size_t size, llm__tensors *tensors) {
    const size_t limit = 100000000; /* the format's own */
    size_t first = tensors->n, n = size >= 8 ? (size_t)llm__load_le(data, 8) : 0;
    llm_json_limits limits;
    llm_json *doc = NULL;
    int metadata = 0;
    if (size < 10 || n < 2 || n > limit || n > size - 8)
        return llm__error(LLM_ERR_FORMAT, "%s: no safetensors file: %zu bytes, of which its header claims %zu%s", path, size, n,
                          llm__looks_like(data, size));
    if (data[8] != '{') return llm__error(LLM_ERR_FORMAT, "%s: the safetensors header starts with byte %d, '{' expected", path, data[8]);
    memset(&limits, 0, sizeof limits);
    limits.max_depth = 8;
    limits.max_tokens = 16000000;
    llm_result r = llm_json_parse((const char *)data + 8, n, &limits, &doc);
    if (r) {
        char why[400];
        snprintf(why, sizeof why, "%.399s", llm_last_error());
        return llm__error(r, "%s: safetensors header: %s", path, why);
    }
    for (int v = llm_json_first(doc, 0); v >= 0 && !r; v = llm_json_next(doc, v)) {
        llm__str key;
        key.p = llm_json_key(doc, v, &key.n);
        if (!llm__str_eq(key, "__metadata__")) r = llm__safetensors_item(path, doc, v, tensors);
        else r = metadata++ ? llm__error(LLM_ERR_FORMAT, "%s: __metadata__ is there twice", path) : llm__safetensors_metadata(path, doc, v);
    }
    llm_json_free(doc);
    return r ? r : llm__tensors_place(tensors, first, path, data + 8 + n, 8 + n, size - 8 - n, 1);
}
/* Stand-ins until the tokenizer is there: who lands it deletes this block. */
typedef struct llm__tokenizer {
    int32_t n_vocab, bos_id, eos_id, pad_id, unk_id;
    const char *kind;
} llm__tokenizer;
typedef struct llm__vocab_data {
    const char *model, *pre;
    int32_t n;
    const llm__str *token;
    const float *score;
    const int32_t *type;
    int32_t n_merges;
    const llm__str *merge;
    int32_t bos, eos, eot, eom, unk, sep, pad, mask;
    int add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
    llm__str precompiled_charsmap, hf_json;
} llm__vocab_data;
LLM__UNUSED static llm_result llm__tokenizer_open_path(const char *path, const llm__logger *log, llm__tokenizer **out) {
    (void)path, (void)log;
    *out = LLM__NEW(llm__tokenizer, 1);
    if (!*out) return llm__nomem();
    (*out)->bos_id = (*out)->eos_id = (*out)->pad_id = (*out)->unk_id = -1;
    return LLM_OK;
}
LLM__UNUSED static llm_result llm__tokenizer_open_gguf(const llm__vocab_data *v, const llm__logger *log, llm__tokenizer **out) {
    llm_result r = llm__tokenizer_open_path("", log, out);
    if (!r) (*out)->n_vocab = v->n, (*out)->bos_id = v->bos, (*out)->eos_id = v->eos, (*out)->pad_id = v->pad, (*out)->unk_id = v->unk;
    return r;
}
LLM__UNUSED static void llm__tokenizer_close(llm__tokenizer *t) { LLM_FREE(t); }
LLM__UNUSED static int32_t llm__tokenizer_id(const llm__tokenizer *t, llm__str s) { return (void)t, (void)s, -1; }
LLM__UNUSED static llm_result llm__tokenizer_piece(const llm__tokenizer *t, int32_t id, llm_text *out) {
    return (void)t, (void)id, (void)out, LLM_OK;
}
LLM__UNUSED static int llm__tokenizer_is_special(const llm__tokenizer *t, int32_t id) { return (void)t, (void)id, 0; }
LLM__UNUSED static llm_result llm__tokenizer_encode(const llm__tokenizer *t, const char *text, size_t len, int flags, llm_tokens *out) {
    return (void)t, (void)text, (void)len, (void)flags, (void)out, llm__error(LLM_ERR_UNSUPPORTED, "no tokenizer yet");
}
LLM__UNUSED static llm_result llm__tokenizer_decode(const llm__tokenizer *t, const int32_t *ids, size_t n, int flags, llm_text *out) {
    return (void)t, (void)ids, (void)n, (void)flags, (void)out, llm__error(LLM_ERR_UNSUPPORTED, "no tokenizer yet");
}
/* End of the tokenizer's stand-ins. */

/* ---- The source: everything a model is opened from ---- */

typedef struct llm__source {
    const char *path;
    llm__gguf *gguf;                          /* keys of the (first) file; NULL: a folder */
    llm_json *config, *generation_config, *tokenizer_config; /* of a folder; NULL: absent. Roots are objects */
    llm__tensors tensors;                     /* of all parts and shards; empty with vocab_only or dummy_weights */
    llm__tokenizer *tokenizer;                /* NULL only with dummy_weights in a folder without tokenizer files */
    llm_template *chat_template;              /* NULL: none, or chat_template_error says why not */
    char *chat_template_text, *chat_template_error;
    const char *bos_token, *eos_token;        /* their texts, for templates; NULL: none */
    int32_t bos_id, eos_id, pad_id, unk_id;   /* -1: none */
    llm_tokens stop_ids;                      /* every id that ends an answer, eos_id first */
    llm__file *files;                         /* stay open as long as the source */
    size_t n_files, files_cap;
    llm__gguf *vocab_gguf;                    /* the GGUF of the vocabulary: gguf, one of its own, or NULL */
    llm__arena arena;
    llm__logger log;
    int no_mmap;
} llm__source;

static llm_result llm__source_file(llm__source *s, const char *path, llm__file *out) {
    if (!llm__grow((void **)&s->files, &s->files_cap, s->n_files + 1, sizeof *s->files)) return llm__nomem();
    llm_result r = llm__file_open(path, 0, s->no_mmap, out);
    if (!r) s->files[s->n_files++] = *out;
    return r;
}

/* 1 if the file starts as a GGUF file; `like` is a tail for messages about what it is instead. */
static llm_result llm__is_gguf(const char *path, int *is, const char **like) {
    uint8_t head[64];
    struct stat st;
    int fd;
    llm_result r = llm__file_fd(path, &st, &fd);
    if (r) return r;
    size_t n = LLM__MIN((size_t)st.st_size, sizeof head);
    r = llm__read_all(fd, path, head, n);
    close(fd);
    *is = !r && n >= 4 && !memcmp(head, "GGUF", 4);
    *like = r ? "" : llm__looks_like(head, n);
    return r;
}

/* Opens and reads one GGUF file into *out (allocated), its tensors into `tensors`. */
static llm_result llm__source_gguf_file(llm__source *s, const char *path, llm__tensors *tensors, llm__gguf **out) {
    llm__file f;
    *out = LLM__NEW(llm__gguf, 1);
    if (!*out) return llm__nomem();
    llm_result r = llm__source_file(s, path, &f);
    if (!r) r = llm__gguf_parse(path, f.data, f.size, *out, tensors);
    if (!r && (*out)->end && f.size > (*out)->end + (*out)->alignment)
        llm__log(&s->log, LLM_LOG_WARN, "%s: %zu bytes after the last tensor are ignored", path, f.size - (*out)->end);
    return r;
}

static void llm__gguf_close(llm__gguf *g) {
    if (g) llm__gguf_free(g);
    LLM_FREE(g);
}

/* The name of part `no` (from 0) of a split file whose part `from` is called `path`; NULL if that does not end in -0000X-of-0000N.gguf. */
static char *llm__split_name(llm__source *s, const char *path, int from, int no, int count) {
    char suffix[40];
    size_t len = strlen(path), n = (size_t)snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", from + 1, count);
    char *name = len > n && !strcmp(path + len - n, suffix) ? (char *)llm__arena_get(&s->arena, len + 1) : NULL;
    if (!name) return NULL;
    memcpy(name, path, len - n);
    snprintf(name + len - n, n + 1, "-%05d-of-%05d.gguf", no + 1, count);
    return name;
}

/* A number about parts: at most 65535; -1 if it is none. */
static int llm__split_number(const llm__gguf *g, const char *key, int absent) {
    int64_t v = llm__gguf_int(g, key, absent);
    return v < 0 || v > 65535 ? -1 : (int)v;
}

/* A GGUF file and, if it is split, its other parts; each says which part of how many it is. */
static llm_result llm__source_gguf(llm__source *s, const char *path) {
    llm_result r = llm__source_gguf_file(s, path, &s->tensors, &s->gguf);
    if (r) return r;
    int count = llm__split_number(s->gguf, "split.count", 1), no = llm__split_number(s->gguf, "split.no", 0);
    if (count < 0 || no < 0 || no >= LLM__MAX(1, count)) return llm__error(LLM_ERR_FORMAT, "%s: split.no and split.count do not fit", path);
    if (count < 2) return LLM_OK;
    const char *first = llm__split_name(s, path, no, 0, count);
    if (!first)
        return llm__error(LLM_ERR_FORMAT, "%s: part %d of %d: a name ending in -%05d-of-%05d.gguf expected", path, no + 1, count, no + 1,
                          count);
    if (no) return llm__error(LLM_ERR_FORMAT, "%s: part %d of %d: open the first, %s", path, no + 1, count, first);
    for (int i = 1; i < count && !r; i++) {
        llm__gguf *part = NULL;
        const char *name = llm__split_name(s, path, 0, i, count);
        r = name ? llm__source_gguf_file(s, name, &s->tensors, &part) : llm__nomem();
        int own = r ? 0 : llm__split_number(part, "split.no", -1), of = r ? 0 : llm__split_number(part, "split.count", -1);
        if (!r && (own != i || of != count || part->version != s->gguf->version))
            r = llm__error(LLM_ERR_FORMAT, "%s: says it is part %d of %d, GGUF version %d; part %d of %d, version %d expected", name,
                           own + 1, of, part->version, i + 1, count, s->gguf->version);
        llm__gguf_close(part);
    }
    int64_t total = llm__gguf_int(s->gguf, "split.tensors.count", -1);
    if (r || total < 0 || (size_t)total == s->tensors.n) return r;
    return llm__error(LLM_ERR_FORMAT, "%s: split.tensors.count is %lld, the parts have %zu", path, (long long)total, s->tensors.n);
}

/* Reads a JSON file of a folder whose root is an object. Absent: LLM_OK and NULL. */
static llm_result llm__folder_json(const char *folder, const char *name, size_t limit, llm_json **out) {
    char *path = llm__path_join(folder, name);
    llm_result r = LLM_OK;
    *out = NULL;
    if (!path) return llm__nomem();
    if (llm__path_kind_of(path) != LLM__PATH_NONE) r = llm__json_file(path, limit, out);
    if (!r && *out && llm_json_type_of(*out, 0) != LLM_JSON_OBJECT) r = llm__error(LLM_ERR_FORMAT, "%s: an object expected", path);
    LLM_FREE(path);
    return r;
}

static int llm__ends_with(const char *s, const char *end) { return strlen(s) >= strlen(end) && !strcmp(s + strlen(s) - strlen(end), end); }

/* Says that a folder lacks a file, and what stands there instead. */
static llm_result llm__folder_lacks(const char *folder, const char *lacks) {
    static const struct { const char *ending, *advice; } kinds[] = {
        {".gguf", ": give the path of that file"},
        {".bin", ", a pickle, which is never read: convert the model to safetensors"},
        {".pth", ", a pickle, which is never read: convert the model to safetensors"},
        {".pdparams", ", a Paddle file: take a folder with safetensors"},
        {".safetensors", ": config.json beside model.safetensors, or beside shards and model.safetensors.index.json, expected"},
    };
    DIR *dir = opendir(folder);
    int best = LLM__COUNT(kinds);
    char found[256] = "";
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir))
        for (int i = 0; i < best; i++)
            if (llm__ends_with(e->d_name, kinds[i].ending)) snprintf(found, sizeof found, "%s", e->d_name), best = i;
    if (dir) closedir(dir);
    if (best == LLM__COUNT(kinds))
        return llm__error(LLM_ERR_IO, "%s: no %s there: a GGUF file, or a folder with config.json and safetensors expected", folder, lacks);
    return llm__error(LLM_ERR_IO, "%s: no %s there, but %.200s%s", folder, lacks, found, kinds[best].advice);
}

static llm_result llm__source_safetensors(llm__source *s, const char *folder, const char *name) {
    llm__file f;
    char *path = llm__path_join(folder, name);
    if (!path) return llm__nomem();
    llm_result r = llm__source_file(s, path, &f);
    if (!r) r = llm__safetensors_parse(path, f.data, f.size, &s->tensors);
    LLM_FREE(path);
    return r;
}

/* The shards that an index names. Its names come from strangers: plain names of .safetensors files in the same folder only. */
static llm_result llm__source_shards(llm__source *s, const char *folder, const llm_json *index) {
    int map = llm_json_find(index, 0, "weight_map");
    if (llm_json_type_of(index, map) != LLM_JSON_OBJECT) map = -1;
    llm_result r = LLM_OK;
    llm__map seen;
    memset(&seen, 0, sizeof seen);
    seen.seed = llm__seed(s);
    for (int v = llm_json_first(index, map); v >= 0 && !r; v = llm_json_next(index, v)) {
        llm__str name;
        name.p = llm_json_str(index, v, &name.n);
        int plain =
            name.p && llm__plain_text(name, 255) && name.p[0] != '.' && !strchr(name.p, '/') && llm__ends_with(name.p, ".safetensors");
        if (!plain)
            r = llm__error(LLM_ERR_FORMAT, "%s: weight_map: \"%.100s\": the plain name of a .safetensors file expected", folder,
                           name.p ? name.p : "");
        if (r) break;
        int put = llm__map_put(&seen, name, 0);
        if (put < 0) r = llm__nomem();
        else if (put) r = llm__source_safetensors(s, folder, name.p);
    }
    if (!r && !seen.len)
        r = llm__error(LLM_ERR_FORMAT, "%s: model.safetensors.index.json: weight_map: an object of shard names expected", folder);
    llm__map_free(&seen);
    return r;
}

/* model.safetensors, or else the shards of its index. */
static llm_result llm__source_weights(llm__source *s, const char *folder) {
    char *single = llm__path_join(folder, "model.safetensors");
    if (!single) return llm__nomem();
    int there = llm__path_kind_of(single) != LLM__PATH_NONE;
    LLM_FREE(single);
    if (there) return llm__source_safetensors(s, folder, "model.safetensors");
    llm_json *index;
    llm_result r = llm__folder_json(folder, "model.safetensors.index.json", 100000000, &index);
    if (!r) r = index ? llm__source_shards(s, folder, index) : llm__folder_lacks(folder, "model.safetensors");
    llm_json_free(index);
    return r;
}

/* A Hugging Face folder. */
static llm_result llm__source_folder(llm__source *s, const char *path, const llm_model_config *cfg) {
    llm_result r = llm__folder_json(path, "config.json", 16000000, &s->config);
    if (!r && !s->config && !cfg->vocab_only) r = llm__folder_lacks(path, "config.json");
    if (!r) r = llm__folder_json(path, "generation_config.json", 16000000, &s->generation_config);
    if (!r && !cfg->vocab_only && !cfg->dummy_weights) r = llm__source_weights(s, path);
    return r;
}

/* ---- The tokenizer of a source ---- */

static llm_result llm__vocab_bad(const char *path, const char *key, const char *expected) {
    return llm__error(LLM_ERR_FORMAT, "%s: %s: %s expected", path, key, expected);
}

/* Strings of an array of the vocabulary; absent: *out NULL and *n 0. */
static llm_result llm__vocab_strings(llm__source *s, const char *path, const char *key, const llm__str **out, int32_t *n) {
    const llm__gguf_kv *kv = llm__gguf_find(s->vocab_gguf, key);
    if (!kv) return LLM_OK;
    if (!kv->is_array || kv->type != LLM__GGUF_STR || kv->count > 4194304)
        return llm__vocab_bad(path, key, "an array of at most 4194304 strings");
    llm__str *to = (llm__str *)llm__arena_get(&s->arena, (size_t)kv->count * sizeof *to);
    if (!to) return llm__nomem();
    llm__gguf_strings(kv, to);
    *out = to;
    *n = (int32_t)kv->count;
    return LLM_OK;
}

/* Scores (f32) or types (i32) of the n tokens, aligned; absent: NULL. Both have 4 bytes. */
static llm_result llm__vocab_numbers(llm__source *s, const char *path, const char *key, llm__gguf_type type, int32_t n, const void **out) {
    const llm__gguf_kv *kv = llm__gguf_find(s->vocab_gguf, key);
    if (!kv) return LLM_OK;
    int fits =
        kv->is_array && kv->count == (uint64_t)n && (kv->type == (int32_t)type || (type == LLM__GGUF_I32 && kv->type == LLM__GGUF_U32));
    if (!fits) return llm__vocab_bad(path, key, type == LLM__GGUF_F32 ? "as many floats as tokens" : "as many 32-bit integers as tokens");
    uint32_t *to = (uint32_t *)llm__arena_get(&s->arena, (size_t)n * 4);
    if (!to) return llm__nomem();
    for (int32_t i = 0; i < n; i++) to[i] = (uint32_t)llm__load_le(kv->data + (size_t)i * 4, 4);
    *out = to;
    return LLM_OK;
}

/* A token id of the file; -1 if it is absent. Must be one of the n tokens. */
static llm_result llm__vocab_id(const llm__gguf *g, const char *path, const char *key, int32_t n, int32_t *out) {
    int64_t v;
    const llm__gguf_kv *kv = llm__gguf_find(g, key);
    if (!kv) return LLM_OK;
    if (kv->is_array || !llm__gguf_int_at(kv, 0, &v)) return llm__vocab_bad(path, key, "a whole number");
    if (v == -1 || v == 0xFFFFFFFF) return LLM_OK; /* how some writers say "none" */
    if (v < 0 || v >= n) return llm__error(LLM_ERR_FORMAT, "%s: %s: token id %lld, the vocabulary has %d", path, key, (long long)v, n);
    *out = (int32_t)v;
    return LLM_OK;
}

static const char *llm__vocab_text(llm__source *s, const char *key) {
    llm__str v = llm__gguf_str(s->vocab_gguf, key);
    return v.p ? llm__arena_str(&s->arena, v) : NULL;
}

static llm_result llm__vocab_ids(const llm__gguf *g, const char *path, llm__vocab_data *v) {
    const struct { const char *key; int32_t *to; } ids[] = {
        {"tokenizer.ggml.bos_token_id", &v->bos},       {"tokenizer.ggml.eos_token_id", &v->eos},
        {"tokenizer.ggml.eot_token_id", &v->eot},       {"tokenizer.ggml.eom_token_id", &v->eom},
        {"tokenizer.ggml.unknown_token_id", &v->unk},   {"tokenizer.ggml.seperator_token_id", &v->sep}, /* so spelled in files */
        {"tokenizer.ggml.padding_token_id", &v->pad},   {"tokenizer.ggml.mask_token_id", &v->mask},
    };
    llm_result r = LLM_OK;
    for (int i = 0; i < LLM__COUNT(ids) && !r; i++) {
        *ids[i].to = -1;
        r = llm__vocab_id(g, path, ids[i].key, v->n, ids[i].to);
    }
    return r;
}

/* The vocabulary of a GGUF file. Arrays live as long as the source. */
static llm_result llm__source_vocab(llm__source *s, const char *path, llm__vocab_data *v) {
    const llm__gguf *g = s->vocab_gguf;
    const void *score = NULL, *type = NULL;
    memset(v, 0, sizeof *v);
    v->model = llm__vocab_text(s, "tokenizer.ggml.model");
    v->pre = llm__vocab_text(s, "tokenizer.ggml.pre");
    if (!v->model) return llm__error(LLM_ERR_UNSUPPORTED, "%s: tokenizer.ggml.model is absent: the file has no tokenizer, give one", path);
    llm_result r = llm__vocab_strings(s, path, "tokenizer.ggml.tokens", &v->token, &v->n);
    if (!r) r = llm__vocab_strings(s, path, "tokenizer.ggml.merges", &v->merge, &v->n_merges);
    if (!r) r = llm__vocab_numbers(s, path, "tokenizer.ggml.scores", LLM__GGUF_F32, v->n, &score);
    if (!r) r = llm__vocab_numbers(s, path, "tokenizer.ggml.token_type", LLM__GGUF_I32, v->n, &type);
    if (!r && !v->n) r = llm__vocab_bad(path, "tokenizer.ggml.tokens", "at least one token");
    if (!r) r = llm__vocab_ids(g, path, v);
    v->score = (const float *)score;
    v->type = (const int32_t *)type;
    v->add_bos = llm__gguf_bool(g, "tokenizer.ggml.add_bos_token", -1);
    v->add_eos = llm__gguf_bool(g, "tokenizer.ggml.add_eos_token", -1);
    v->add_space_prefix = llm__gguf_bool(g, "tokenizer.ggml.add_space_prefix", -1);
    v->remove_extra_whitespaces = llm__gguf_bool(g, "tokenizer.ggml.remove_extra_whitespaces", -1);
    v->hf_json = llm__gguf_str(g, "tokenizer.huggingface.json");
    const llm__gguf_kv *map = llm__gguf_find(g, "tokenizer.ggml.precompiled_charsmap");
    if (map && map->is_array && (map->type == LLM__GGUF_U8 || map->type == LLM__GGUF_I8))
        v->precompiled_charsmap = llm__s((const char *)map->data, (size_t)map->count);
    return r;
}

/* Opens the tokenizer: the one that was asked for, else the model's. */
static llm_result llm__source_tokenizer(llm__source *s, const llm_model_config *cfg) {
    const char *path = cfg->tokenizer ? cfg->tokenizer : s->path, *like = "";
    int gguf = 0;
    llm_result r = LLM_OK;
    if (cfg->tokenizer && llm__path_kind_of(path) == LLM__PATH_FILE) r = llm__is_gguf(path, &gguf, &like);
    if (!r && gguf) {
        llm__tensors unused;
        memset(&unused, 0, sizeof unused);
        r = llm__source_gguf_file(s, path, &unused, &s->vocab_gguf);
        llm__tensors_free(&unused);
    } else if (!cfg->tokenizer) {
        s->vocab_gguf = s->gguf;
    }
    if (r) return r;
    if (!s->vocab_gguf) {
        r = llm__tokenizer_open_path(path, &s->log, &s->tokenizer);
        if (r != LLM_ERR_IO || !cfg->dummy_weights || cfg->tokenizer) return r;
        llm__log(&s->log, LLM_LOG_WARN, "%s", llm_last_error());
        return LLM_OK;
    }
    llm__vocab_data v;
    r = llm__source_vocab(s, path, &v);
    if (!r) r = llm__tokenizer_open_gguf(&v, &s->log, &s->tokenizer);
    return r;
}

/* ---- Special tokens and what ends an answer ---- */

/* A special token's text in tokenizer_config.json: a string, or an object with "content". .p NULL: none. */
static llm__str llm__special_text(const llm__source *s, const char *key) {
    llm__str text;
    int node = s->tokenizer_config ? llm_json_find(s->tokenizer_config, 0, key) : -1;
    if (llm_json_type_of(s->tokenizer_config, node) == LLM_JSON_OBJECT) node = llm_json_find(s->tokenizer_config, node, "content");
    text.p = llm_json_str(s->tokenizer_config, node, &text.n);
    return text;
}

/* The first id under a key of a JSON file: a number or a list of numbers; -1: none. */
static int32_t llm__json_id(const llm_json *doc, const char *key) {
    int64_t v;
    int node = doc ? llm_json_find(doc, 0, key) : -1;
    if (llm_json_type_of(doc, node) == LLM_JSON_ARRAY) node = llm_json_first(doc, node);
    return llm_json_int(doc, node, &v) && v >= 0 && v < INT32_MAX ? (int32_t)v : -1;
}

/* What a special token is: tokenizer_config.json's text first, then the ids of the other two files, then what the tokenizer itself says. */
static int32_t llm__special_id(const llm__source *s, const char *text_key, const char *id_key, int32_t own) {
    llm__str text = llm__special_text(s, text_key);
    int32_t id = text.p && s->tokenizer ? llm__tokenizer_id(s->tokenizer, text) : -1;
    if (id < 0) id = llm__json_id(s->generation_config, id_key);
    if (id < 0) id = llm__json_id(s->config, id_key);
    return id < 0 ? own : id;
}

/* The text of a special token for templates. tokenizer_config.json decides alone where it is (Qwen: a BOS id, but no BOS in templates). */
static llm_result llm__special_name(llm__source *s, const char *key, int32_t id, const char **out) {
    llm__str text = llm__special_text(s, key);
    llm_text piece;
    memset(&piece, 0, sizeof piece);
    if (!s->tokenizer_config && s->tokenizer && id >= 0) {
        llm_result r = llm__tokenizer_piece(s->tokenizer, id, &piece);
        if (r) return r;
        text = llm__s(piece.data, piece.len);
    }
    *out = text.p ? llm__arena_str(&s->arena, text) : NULL;
    llm_text_free(&piece);
    return LLM_OK;
}

static void llm__source_stop(llm__source *s, int64_t id) {
    if (id < 0 || id >= INT32_MAX) return;
    for (size_t i = 0; i < s->stop_ids.len; i++)
        if (s->stop_ids.data[i] == id) return;
    llm_tokens_add(&s->stop_ids, (int32_t)id);
}

static void llm__source_stops_of(llm__source *s, const llm_json *doc) {
    int64_t v;
    int node = doc ? llm_json_find(doc, 0, "eos_token_id") : -1;
    if (llm_json_int(doc, node, &v)) llm__source_stop(s, v);
    for (int e = llm_json_type_of(doc, node) == LLM_JSON_ARRAY ? llm_json_first(doc, node) : -1; e >= 0; e = llm_json_next(doc, e))
        if (llm_json_int(doc, e, &v)) llm__source_stop(s, v);
}

/* Ends of turn that files often forget to list, if the vocabulary has them as special tokens. */
static void llm__source_usual_stops(llm__source *s) {
    static const char *const names[] = {
        "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<turn|>", "<|end_of_text|>", "<|endoftext|>", "<|end_of_turn|>",
        "<|end|>", "<|return|>", "<|call|>", "<|EOT|>", "<EOT>", "[EOT]", "<end_of_utterance>", "<|END_OF_TURN_TOKEN|>",
        "<\357\275\234end\342\226\201of\342\226\201sentence\357\275\234>", /* DeepSeek's, with a full-width bar */
    };
    /* gpt-oss ends its thinking with <|end|> and goes on to answer */
    int harmony =
        llm__tokenizer_id(s->tokenizer, llm__s("<|return|>", 10)) >= 0 && llm__tokenizer_id(s->tokenizer, llm__s("<|channel|>", 11)) >= 0;
    for (int i = 0; i < LLM__COUNT(names); i++) {
        int32_t id = llm__tokenizer_id(s->tokenizer, llm__s(names[i], strlen(names[i])));
        if (id >= 0 && llm__tokenizer_is_special(s->tokenizer, id) && !(harmony && !strcmp(names[i], "<|end|>"))) llm__source_stop(s, id);
    }
}

static llm_result llm__source_specials(llm__source *s) {
    const llm__tokenizer *t = s->tokenizer;
    s->bos_id = llm__special_id(s, "bos_token", "bos_token_id", t ? t->bos_id : -1);
    s->eos_id = llm__special_id(s, "eos_token", "eos_token_id", t ? t->eos_id : -1);
    s->pad_id = llm__special_id(s, "pad_token", "pad_token_id", t ? t->pad_id : -1);
    s->unk_id = llm__special_id(s, "unk_token", "unk_token_id", t ? t->unk_id : -1);
    llm_result r = llm__special_name(s, "bos_token", s->bos_id, &s->bos_token);
    if (!r) r = llm__special_name(s, "eos_token", s->eos_id, &s->eos_token);
    if (r) return r;
    llm__source_stop(s, s->eos_id);
    llm__source_stops_of(s, s->generation_config);
    llm__source_stops_of(s, s->config);
    if (s->vocab_gguf) {
        llm__source_stop(s, llm__gguf_int(s->vocab_gguf, "tokenizer.ggml.eot_token_id", -1));
        llm__source_stop(s, llm__gguf_int(s->vocab_gguf, "tokenizer.ggml.eom_token_id", -1));
    }
    if (t) llm__source_usual_stops(s);
    return s->stop_ids.failed ? llm__nomem() : LLM_OK;
}

/* ---- The chat template ---- */

static int llm__template_keep(llm__source *s, llm__str text) { /* 1 taken, 0 there was none, -1 no memory */
    if (!text.p) return 0;
    s->chat_template_text = llm__strndup(text.p, text.n);
    return s->chat_template_text ? 1 : -1;
}

/* The template `name` of a JSON value: a string (which is "default"), or a list of {"name", "template"}. */
static llm__str llm__template_of(const llm_json *doc, const char *name) {
    llm__str text;
    int node = doc ? llm_json_find(doc, 0, "chat_template") : -1, found = -1;
    if (llm_json_type_of(doc, node) == LLM_JSON_STRING && !strcmp(name, "default")) found = node;
    for (int e = llm_json_type_of(doc, node) == LLM_JSON_ARRAY ? llm_json_first(doc, node) : -1; e >= 0 && found < 0;
         e = llm_json_next(doc, e)) {
        const char *own = llm_json_str(doc, llm_json_find(doc, e, "name"), NULL);
        if (own && !strcmp(own, name)) found = llm_json_find(doc, e, "template");
    }
    text.p = llm_json_str(doc, found, &text.n);
    return text;
}

/* A template file: its text, or with .json its "chat_template". LLM_OK and nothing kept if it is absent. */
static llm_result llm__template_file(llm__source *s, const char *folder, const char *file, const char *name) {
    char *path = folder ? llm__path_join(folder, file) : llm__strdup(file);
    llm_json *doc = NULL;
    llm__file f;
    int kept = 0;
    if (!path) return llm__nomem();
    llm_result r = LLM_OK;
    if (llm__ends_with(path, ".json")) {
        if (!folder || llm__path_kind_of(path) != LLM__PATH_NONE) r = llm__json_file(path, 16000000, &doc);
        if (!r && doc && llm_json_type_of(doc, 0) == LLM_JSON_OBJECT) kept = llm__template_keep(s, llm__template_of(doc, name));
    } else if (!folder || llm__path_kind_of(path) != LLM__PATH_NONE) {
        r = llm__file_open(path, 16000000, 1, &f);
        if (!r) kept = llm__template_keep(s, llm__s((const char *)f.data, f.size));
        if (!r) llm__file_close(&f);
    }
    llm_json_free(doc);
    LLM_FREE(path);
    return kept < 0 ? llm__nomem() : r;
}

/* The text of the template `name` that the model comes with, if any. */
static llm_result llm__template_find(llm__source *s, const char *name) {
    char key[160];
    int is_default = !strcmp(name, "default"),
        plain = llm__plain_text(llm__s(name, strlen(name)), 64) && !strchr(name, '/') && name[0] != '.';
    if (!plain) return llm__error(LLM_ERR_ARG, "chat template name \"%.64s\": a plain name expected", name);
    if (s->gguf) {
        snprintf(key, sizeof key, "tokenizer.chat_template%s%.64s", is_default ? "" : ".", is_default ? "" : name);
        return llm__template_keep(s, llm__gguf_str(s->gguf, key)) < 0 ? llm__nomem() : LLM_OK;
    }
    if (llm__path_kind_of(s->path) != LLM__PATH_DIR) return LLM_OK;
    snprintf(key, sizeof key, "additional_chat_templates/%.64s.jinja", name);
    llm_result r = llm__template_file(s, s->path, is_default ? "chat_template.jinja" : key, name);
    if (!r && !s->chat_template_text) r = llm__template_file(s, s->path, "chat_template.json", name);
    if (!r && !s->chat_template_text && llm__template_keep(s, llm__template_of(s->tokenizer_config, name)) < 0) r = llm__nomem();
    return r;
}

/* A template that was asked for must work; the model's own may be broken, and says so only when it is used. */
static llm_result llm__source_template(llm__source *s, const llm_model_config *cfg) {
    const char *name = cfg->chat_template_name ? cfg->chat_template_name : "default";
    llm_result r;
    if (cfg->chat_template && strchr(cfg->chat_template, '{'))
        r = llm__template_keep(s, llm__s(cfg->chat_template, strlen(cfg->chat_template))) < 0 ? llm__nomem() : LLM_OK;
    else if (cfg->chat_template) r = llm__template_file(s, NULL, cfg->chat_template, name);
    else r = llm__template_find(s, name);
    if (!r && !s->chat_template_text && (cfg->chat_template || cfg->chat_template_name))
        r = llm__error(LLM_ERR_ARG, "%s: it has no chat template named \"%.64s\"", cfg->chat_template ? cfg->chat_template : s->path, name);
    if (r || !s->chat_template_text) return r;
    r = llm_template_open(s->chat_template_text, strlen(s->chat_template_text), &s->chat_template);
    if (!r || r == LLM_ERR_NOMEM || cfg->chat_template) return r;
    s->chat_template_error = llm__strdup(llm_last_error());
    llm__log(&s->log, LLM_LOG_WARN, "%s: the chat template cannot be used: %s", s->path, llm_last_error());
    return s->chat_template_error ? LLM_OK : llm__nomem();
}

/* ---- Opening and closing ---- */

LLM__UNUSED static void llm__source_close(llm__source *s) {
    llm_template_close(s->chat_template);
    llm__tokenizer_close(s->tokenizer);
    LLM_FREE(s->chat_template_text);
    LLM_FREE(s->chat_template_error);
    llm_tokens_free(&s->stop_ids);
    if (s->vocab_gguf != s->gguf) llm__gguf_close(s->vocab_gguf);
    llm__gguf_close(s->gguf);
    llm_json_free(s->config);
    llm_json_free(s->generation_config);
    llm_json_free(s->tokenizer_config);
    llm__tensors_free(&s->tensors);
    for (size_t i = 0; i < s->n_files; i++) llm__file_close(&s->files[i]);
    LLM_FREE(s->files);
    llm__arena_free(&s->arena);
    memset(s, 0, sizeof *s);
}

/* tokenizer_config.json of the tokenizer's folder; older folders have special_tokens_map.json, which says the same of special tokens. */
static llm_result llm__source_tokenizer_config(llm__source *s, const llm_model_config *cfg) {
    const char *folder = cfg->tokenizer && llm__path_kind_of(cfg->tokenizer) == LLM__PATH_DIR ? cfg->tokenizer : s->path;
    if (llm__path_kind_of(folder) != LLM__PATH_DIR) return LLM_OK;
    llm_result r = llm__folder_json(folder, "tokenizer_config.json", 100000000, &s->tokenizer_config);
    return r || s->tokenizer_config ? r : llm__folder_json(folder, "special_tokens_map.json", 16000000, &s->tokenizer_config);
}

/* The file or folder itself: its settings and tensors. */
static llm_result llm__source_open_path(llm__source *s, const llm_model_config *cfg) {
    int gguf = 0;
    const char *like = "";
    llm__path_kind kind = llm__path_kind_of(s->path);
    if (kind == LLM__PATH_DIR) return llm__source_folder(s, s->path, cfg);
    llm_result r = llm__is_gguf(s->path, &gguf, &like);
    if (r || (!gguf && cfg->vocab_only && !cfg->tokenizer)) return r; /* a tokenizer file: its own reader looks at it */
    if (gguf) return llm__source_gguf(s, s->path);
    if (llm__ends_with(s->path, ".safetensors"))
        return llm__error(LLM_ERR_FORMAT, "%s: a safetensors file is a part of a model: give its folder, with config.json", s->path);
    return llm__error(LLM_ERR_FORMAT, "%s: no model%s: a GGUF file, or a folder with config.json and safetensors expected", s->path, like);
}

/* Opens what a model is made of. cfg may be NULL; path must outlive the source. On error nothing is left open. */
LLM__UNUSED static llm_result llm__source_open(const char *path, const llm_model_config *cfg, llm__source *out) {
    llm_model_config none;
    memset(&none, 0, sizeof none);
    memset(out, 0, sizeof *out);
    if (!cfg) cfg = &none;
    if (!path || !*path) return llm__error(LLM_ERR_ARG, "model: a path expected");
    out->path = path;
    out->no_mmap = cfg->no_mmap;
    out->log.fn = cfg->log;
    out->log.user = cfg->log_user;
    llm_result r = llm__source_open_path(out, cfg);
    if (!r && !out->tensors.n && !cfg->vocab_only && !cfg->dummy_weights)
        r = llm__error(LLM_ERR_FORMAT, "%s: it holds no tensors, only a vocabulary or less", path);
    if (!r) r = llm__source_tokenizer_config(out, cfg);
    if (!r) r = llm__source_tokenizer(out, cfg);
    if (!r) r = llm__source_specials(out);
    if (!r) r = llm__source_template(out, cfg);
    if (r) llm__source_close(out);
    return r;
}

/* ---- The local Hugging Face cache ---- */

/* A name that is safe as a part of a path: letters, digits, '-', '_', '.', and does not start with a dot. */
static int llm__hub_part(const char *s, size_t n) {
    if (!n || n > 200 || s[0] == '.') return 0;
    for (size_t i = 0; i < n; i++)
        if (!((s[i] | 32) >= 'a' && (s[i] | 32) <= 'z') && !(s[i] >= '0' && s[i] <= '9') && s[i] != '-' && s[i] != '_' && s[i] != '.')
            return 0;
    return 1;
}

/* The revision in refs/main, as a new string; NULL if there is none. */
static char *llm__hub_main(const char *repo) {
    char *path = llm__path_join(repo, "refs/main"), *rev = NULL;
    llm__file f;
    if (path && llm__path_kind_of(path) == LLM__PATH_FILE && !llm__file_open(path, 4096, 1, &f)) {
        size_t n = f.size;
        while (n && f.data[n - 1] <= ' ') n--;
        if (llm__hub_part((const char *)f.data, n)) rev = llm__strndup((const char *)f.data, n);
        llm__file_close(&f);
    }
    LLM_FREE(path);
    return rev;
}

/* The folder among the snapshots that changed last, as a new string; NULL if there is none. */
static char *llm__hub_newest(const char *snapshots) {
    DIR *dir = opendir(snapshots);
    char *best = NULL;
    struct timespec when;
    memset(&when, 0, sizeof when);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        struct stat st;
        char *path = llm__hub_part(e->d_name, strlen(e->d_name)) ? llm__path_join(snapshots, e->d_name) : NULL;
        int newer = path && !stat(path, &st) && S_ISDIR(st.st_mode) &&
                    (!best || st.st_mtim.tv_sec > when.tv_sec || (st.st_mtim.tv_sec == when.tv_sec && st.st_mtim.tv_nsec > when.tv_nsec));
        if (newer) when = st.st_mtim;
        LLM_FREE(newer ? best : path);
        if (newer) best = path;
    }
    if (dir) closedir(dir);
    return best;
}

LLM_API llm_result llm_hub_find(const char *cache_dir, const char *name, llm_text *path) {
    const char *slash = name ? strchr(name, '/') : NULL;
    if (!cache_dir || !*cache_dir) return llm__error(LLM_ERR_ARG, "cache folder: a path expected");
    if (!name || !llm__hub_part(name, slash ? (size_t)(slash - name) : strlen(name)) ||
        (slash && !llm__hub_part(slash + 1, strlen(slash + 1))))
        return llm__error(LLM_ERR_ARG, "model name \"%.100s\": ORG/NAME expected", name ? name : "");
    llm_text repo;
    memset(&repo, 0, sizeof repo);
    llm_text_str(&repo, cache_dir);
    llm_text_str(&repo, "/models--");
    llm_text_add(&repo, name, slash ? (size_t)(slash - name) : strlen(name));
    if (slash) llm_text_str(&repo, "--"), llm_text_str(&repo, slash + 1);
    char *snapshots = repo.failed ? NULL : llm__path_join(repo.data, "snapshots");
    char *rev = snapshots ? llm__hub_main(repo.data) : NULL, *found = rev ? llm__path_join(snapshots, rev) : NULL;
    if (found && llm__path_kind_of(found) != LLM__PATH_DIR) {
        LLM_FREE(found);
        found = NULL;
    }
    if (snapshots && !found) found = llm__hub_newest(snapshots);
    llm_result r = !snapshots ? llm__nomem() : found ? LLM_OK : llm__error(LLM_ERR_IO, "%s: not in the cache %s", name, cache_dir);
    if (found) llm_text_str(path, found);
    if (!r && path->failed) r = llm__nomem();
    LLM_FREE(rev);
    LLM_FREE(found);
    LLM_FREE(snapshots);
    llm_text_free(&repo);
    return r;
}
/* ---- section: formats (end) ---- */

/* ============================================================================
 * >>dtypes
 * ============================================================================ */
/* ---- section: dtypes, linear kernels (begin) ---- */

/* Types
 *
 * A stored row is a sequence of blocks of 1, 32 or 256 elements. Small floats widen exactly to f32. A quantised block holds small integers q
 * with one scale for 16 or 32 of them, and perhaps a minimum: w = scale * q + min. The formats differ in where the bits stand and in
 * how scales are stored, so one function a format takes 32 columns apart into this common form (llm__sub); reading a row and packing a
 * matrix for the kernels both start from it, so there is one place where a format's bits are known. */

static float llm__bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static uint32_t llm__f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static float llm__f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 1023;
    if (e == 31) return llm__bits_f32(sign | 0x7F800000 | m << 13);
    if (e) return llm__bits_f32(sign | (e + 112) << 23 | m << 13);
    return llm__bits_f32(sign | llm__f32_bits((float)m * (1.0f / 16777216)));
}

LLM__UNUSED static float llm__bf16_to_f32(uint16_t h) { return llm__bits_f32((uint32_t)h << 16); }

LLM__UNUSED static float llm__e5m2_to_f32(uint8_t b) { return llm__f16_to_f32((uint16_t)(b << 8)); }

/* fp8 e4m3fn: no infinities, one NaN of each sign. */
LLM__UNUSED static float llm__e4m3_to_f32(uint8_t b) {
    uint32_t sign = (uint32_t)(b & 0x80) << 24, e = (b >> 3) & 15, m = b & 7;
    if ((b & 0x7F) == 0x7F) return llm__bits_f32(sign | 0x7FC00000);
    if (e) return llm__bits_f32(sign | (e + 120) << 23 | m << 20);
    return llm__bits_f32(sign | llm__f32_bits((float)m * (1.0f / 512)));
}

/* Rounds to nearest even to a float of 1 + e_bits + m_bits bits; what is too large becomes `top`, NaN becomes `nan`. */
static uint32_t llm__f32_narrow(float f, int e_bits, int m_bits, uint32_t top, uint32_t nan) {
    uint32_t u = llm__f32_bits(f), a = u & 0x7FFFFFFF, sign = (u >> 31) << (e_bits + m_bits);
    if (a > 0x7F800000) return sign | nan;
    if (a == 0x7F800000) return sign | top;
    int e = (int)(a >> 23) - 128 + (1 << (e_bits - 1)), shift = 23 - m_bits;
    uint32_t m = (a & 0x7FFFFF) | 0x800000;
    if (e <= 0) {
        shift += 1 - e;
        e = 1;
    }
    if (shift > 24) return sign;
    uint32_t r = m >> shift, rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
    r += rest > half || (rest == half && (r & 1));
    r += (uint32_t)(e - 1) << m_bits; /* the hidden bit of r counts as one more exponent */
    return sign | LLM__MIN(r, top);
}

LLM__UNUSED static uint16_t llm__f32_to_f16(float f) { return (uint16_t)llm__f32_narrow(f, 5, 10, 0x7C00, 0x7E00); }
LLM__UNUSED static uint8_t llm__f32_to_e4m3(float f) { return (uint8_t)llm__f32_narrow(f, 4, 3, 0x7E, 0x7F); } /* saturates */
LLM__UNUSED static uint8_t llm__f32_to_e5m2(float f) { return (uint8_t)llm__f32_narrow(f, 5, 2, 0x7B, 0x7E); } /* saturates */

LLM__UNUSED static uint16_t llm__f32_to_bf16(float f) {
    uint32_t u = llm__f32_bits(f);
    if ((u & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

LLM__UNUSED static const char *llm__type_name(int32_t type) {
    const llm__type_desc *t = llm__type_info(type);
    return t ? t->name : type == LLM_TYPE_RANDOM ? "random" : "unknown";
}

LLM__UNUSED static int llm__type_block(int32_t type) { return llm__type_info(type) ? llm__type_info(type)->block : 1; }
LLM__UNUSED static int llm__type_block_bytes(int32_t type) { return llm__type_info(type) ? llm__type_info(type)->bytes : 0; }

/* Bytes of n elements of a stored row; n is a multiple of the block. */
static int64_t llm__row_bytes(int32_t type, int64_t n) { return n / llm__type_block(type) * llm__type_block_bytes(type); }

/* 32 columns of one stored row: w[i] = d * sc[i / 16] * q[i] + m * mc[i / 16]. The products d * sc and m * mc are exact in f32. */
typedef struct llm__sub {
    int8_t q[32];
    float d, m;
    int8_t sc[2];
    uint8_t mc[2];
} llm__sub;

static float llm__load_f16(const uint8_t *p) { return llm__f16_to_f32((uint16_t)(p[0] | p[1] << 8)); }

/* 16 bytes of nibbles: the low ones are elements 0..15, the high ones 16..31. */
static void llm__nibbles(const uint8_t *p, int minus, int8_t *q) {
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)((p[i] & 15) - minus);
        q[i + 16] = (int8_t)((p[i] >> 4) - minus);
    }
}

static const int8_t *llm__nibble_values(int32_t type) { /* what the 16 nibbles of a table format stand for */
    static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    static const int8_t e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}; /* doubled */
    return type == LLM_TYPE_MXFP4 ? e2m1 : iq4;
}

static void llm__sub_table(int32_t type, const uint8_t *nibbles, llm__sub *o) {
    const int8_t *table = llm__nibble_values(type);
    llm__nibbles(nibbles, 0, o->q);
    for (int i = 0; i < 32; i++) o->q[i] = table[o->q[i]];
}

static void llm__sub_q4(const uint8_t *p, int has_min, llm__sub *o) { /* Q4_0, Q4_1: d, (m,) 16 bytes */
    llm__nibbles(p + (has_min ? 4 : 2), has_min ? 0 : 8, o->q);
    o->d = llm__load_f16(p);
    if (has_min) o->m = llm__load_f16(p + 2);
}

static void llm__sub_q5(const uint8_t *p, int has_min, llm__sub *o) { /* Q5_0, Q5_1: d, (m,) 32 fifth bits, 16 bytes */
    const uint8_t *high = p + (has_min ? 4 : 2);
    uint32_t bits = (uint32_t)high[0] | (uint32_t)high[1] << 8 | (uint32_t)high[2] << 16 | (uint32_t)high[3] << 24;
    llm__nibbles(high + 4, has_min ? 0 : 16, o->q);
    for (int i = 0; i < 32; i++) o->q[i] = (int8_t)(o->q[i] + (int)((bits >> i & 1) << 4));
    o->d = llm__load_f16(p);
    if (has_min) o->m = llm__load_f16(p + 2);
}

static void llm__sub_q8_0(const uint8_t *p, llm__sub *o) {
    o->d = llm__load_f16(p);
    memcpy(o->q, p + 2, 32);
}

static void llm__sub_mxfp4(const uint8_t *p, llm__sub *o) { /* an exponent, 16 bytes; the table is doubled, so 2^(e - 128) */
    llm__sub_table(LLM_TYPE_MXFP4, p + 1, o);
    o->d = p[0] == 255 ? llm__bits_f32(0x7FC00000) : p[0] < 2 ? llm__bits_f32(0x00200000u << p[0]) : llm__bits_f32((uint32_t)(p[0] - 1) << 23);
}

static void llm__sub_q2_k(const uint8_t *p, int j, llm__sub *o) { /* 16 x (scale, min) nibbles, 64 bytes of 2 bits, d, dmin */
    const uint8_t *two = p + 16 + j / 4 * 32;
    for (int i = 0; i < 32; i++) o->q[i] = (int8_t)(two[i] >> (j % 4 * 2) & 3);
    for (int i = 0; i < 2; i++) {
        o->sc[i] = (int8_t)(p[2 * j + i] & 15);
        o->mc[i] = p[2 * j + i] >> 4;
    }
    o->d = llm__load_f16(p + 80);
    o->m = -llm__load_f16(p + 82);
}

static void llm__sub_q3_k(const uint8_t *p, int j, llm__sub *o) { /* 32 bytes of third bits, 64 of 2 bits, 12 of 6-bit scales, d */
    const uint8_t *two = p + 32 + j / 4 * 32, *six = p + 96;
    for (int i = 0; i < 32; i++) o->q[i] = (int8_t)((two[i] >> (j % 4 * 2) & 3) - (p[i] >> j & 1 ? 0 : 4));
    for (int i = 0; i < 2; i++) {
        int k = 2 * j + i, low = k < 8 ? six[k] & 15 : six[k - 8] >> 4, high = six[8 + k % 4] >> (k / 4 * 2) & 3;
        o->sc[i] = (int8_t)((low | high << 4) - 32);
    }
    o->d = llm__load_f16(p + 108);
}

static void llm__sub_q45_k(const uint8_t *p, int j, int five, llm__sub *o) { /* d, dmin, 12 bytes of 6-bit scales and mins, (32 of fifth bits,) 128 */
    const uint8_t *six = p + 4, *high = p + 16, *four = p + (five ? 48 : 16) + j / 2 * 32;
    for (int i = 0; i < 32; i++) {
        int q = j & 1 ? four[i] >> 4 : four[i] & 15;
        o->q[i] = (int8_t)(five ? q | (high[i] >> j & 1) << 4 : q);
    }
    int sc = j < 4 ? six[j] & 63 : (six[j + 4] & 15) | six[j - 4] >> 6 << 4;
    int mc = j < 4 ? six[j + 4] & 63 : six[j + 4] >> 4 | six[j] >> 6 << 4;
    o->sc[0] = o->sc[1] = (int8_t)sc;
    o->mc[0] = o->mc[1] = (uint8_t)mc;
    o->d = llm__load_f16(p);
    o->m = -llm__load_f16(p + 2);
}

static void llm__sub_q6_k(const uint8_t *p, int j, llm__sub *o) { /* 128 bytes of nibbles, 64 of 2 bits, 16 int8 scales, d */
    const uint8_t *low = p + j / 4 * 64 + j % 2 * 32, *high = p + 128 + j / 4 * 32;
    for (int i = 0; i < 32; i++) {
        int q = j % 4 < 2 ? low[i] & 15 : low[i] >> 4;
        o->q[i] = (int8_t)((q | (high[i] >> (j % 4 * 2) & 3) << 4) - 32);
    }
    memcpy(o->sc, p + 192 + 2 * j, 2);
    o->d = llm__load_f16(p + 208);
}

static void llm__sub_iq4_xs(const uint8_t *p, int j, llm__sub *o) { /* d, 16 bits of scale tops, 4 bytes of scale nibbles, 128 */
    int low = p[4 + j / 2] >> (j % 2 * 4) & 15, high = (p[2] | p[3] << 8) >> (2 * j) & 3;
    llm__sub_table(LLM_TYPE_IQ4_XS, p + 8 + 16 * j, o);
    o->sc[0] = o->sc[1] = (int8_t)((low | high << 4) - 32);
    o->d = llm__load_f16(p);
}

/* Columns [32 sub, 32 sub + 32) of a stored row of a quantised type. 0: not such a type. */
static int llm__sub_get(int32_t type, const uint8_t *row, int64_t sub, llm__sub *o) {
    const llm__type_desc *t = llm__type_info(type);
    if (!t || t->block < 32) return 0;
    const uint8_t *p = row + sub / (t->block / 32) * t->bytes;
    int j = (int)(sub % (t->block / 32));
    o->m = 0;
    o->sc[0] = o->sc[1] = 1;
    o->mc[0] = o->mc[1] = 1;
    switch (type) {
    case LLM_TYPE_Q4_0: llm__sub_q4(p, 0, o); break;
    case LLM_TYPE_Q4_1: llm__sub_q4(p, 1, o); break;
    case LLM_TYPE_Q5_0: llm__sub_q5(p, 0, o); break;
    case LLM_TYPE_Q5_1: llm__sub_q5(p, 1, o); break;
    case LLM_TYPE_Q8_0: llm__sub_q8_0(p, o); break;
    case LLM_TYPE_Q2_K: llm__sub_q2_k(p, j, o); break;
    case LLM_TYPE_Q3_K: llm__sub_q3_k(p, j, o); break;
    case LLM_TYPE_Q4_K: llm__sub_q45_k(p, j, 0, o); break;
    case LLM_TYPE_Q5_K: llm__sub_q45_k(p, j, 1, o); break;
    case LLM_TYPE_Q6_K: llm__sub_q6_k(p, j, o); break;
    case LLM_TYPE_IQ4_NL: llm__sub_table(type, p + 2, o), o->d = llm__load_f16(p); break;
    case LLM_TYPE_IQ4_XS: llm__sub_iq4_xs(p, j, o); break;
    case LLM_TYPE_MXFP4: llm__sub_mxfp4(p, o); break;
    default: return 0;
    }
    return 1;
}

/* Element i of a stored row of a type whose block is one element. */
static float llm__element(int32_t type, const uint8_t *p, int64_t i) {
    union {
        uint8_t u8[8];
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        int64_t i64;
        uint64_t u64;
        float f32;
        double f64;
    } v;
    int size = llm__type_block_bytes(type);
    memcpy(v.u8, p + i * size, (size_t)size);
    switch (type) {
    case LLM_TYPE_F32: return v.f32;
    case LLM_TYPE_F16: return llm__f16_to_f32(v.u16);
    case LLM_TYPE_BF16: return llm__bf16_to_f32(v.u16);
    case LLM_TYPE_F64: return (float)v.f64;
    case LLM_TYPE_F8_E4M3: return llm__e4m3_to_f32(v.u8[0]);
    case LLM_TYPE_F8_E5M2: return llm__e5m2_to_f32(v.u8[0]);
    case LLM_TYPE_I8: return (float)(int8_t)v.u8[0];
    case LLM_TYPE_U8:
    case LLM_TYPE_BOOL: return (float)v.u8[0];
    case LLM_TYPE_I16: return (float)v.i16;
    case LLM_TYPE_U16: return (float)v.u16;
    case LLM_TYPE_I32: return (float)v.i32;
    case LLM_TYPE_U32: return (float)v.u32;
    case LLM_TYPE_I64: return (float)v.i64;
    case LLM_TYPE_U64: return (float)v.u64;
    default: return 0;
    }
}

/* 1 if rows of the type can be read. */
static int llm__type_readable(int32_t type) {
    static const uint8_t zeros[256] = {0};
    const llm__type_desc *t = llm__type_info(type);
    llm__sub s;
    return t && (t->block == 1 || llm__sub_get(type, zeros, 0, &s));
}

/* Columns [from, from + n) of a stored row as f32: the meaning of every format. */
static void llm__dequant_columns(int32_t type, const uint8_t *row, int64_t from, int64_t n, float *dst) {
    if (type == LLM_TYPE_F32) {
        memcpy(dst, row + 4 * from, (size_t)n * 4);
        return;
    }
    if (llm__type_block(type) == 1) {
        for (int64_t i = 0; i < n; i++) dst[i] = llm__element(type, row, from + i);
        return;
    }
    llm__sub s;
    for (int64_t i = 0; i < n;) {
        int64_t sub = (from + i) / 32;
        int at = (int)((from + i) % 32), count = (int)LLM__MIN(n - i, (int64_t)32 - at);
        llm__sub_get(type, row, sub, &s);
        for (int k = at; k < at + count; k++) dst[i++] = s.d * (float)s.sc[k / 16] * (float)s.q[k] + s.m * (float)s.mc[k / 16];
    }
}

/* The first n elements of a stored row as f32. */
LLM__UNUSED static void llm__dequant_row(int32_t type, const void *src, float *dst, int64_t n) {
    llm__dequant_columns(type, (const uint8_t *)src, 0, n, dst);
}

/* ============================================================================
 * >>kernels-ref   Matrix products: packed weights, rounded activations, and the kernels in plain C.
 * ============================================================================
 * A weight is packed once, at load, into blocks of 16 rows. Every kernel computes 16 outputs for up to 16 tokens from one block: a weight is
 * read and unpacked once for all these tokens, and one layout serves a single token (where reading memory is the limit) and a long
 * prompt (where arithmetic is). It is also the same for every instruction set. */

/* ---- Instruction sets ---- */

typedef enum llm__isa {
    LLM__ISA_SCALAR = 0, LLM__ISA_AVX2, LLM__ISA_AVXVNNI, LLM__ISA_AVX512, LLM__ISA_AVX512VNNI, LLM__ISA_NEON, LLM__ISA_COUNT
} llm__isa;

static const char *llm__isa_name(llm__isa isa) {
    static const char *const names[LLM__ISA_COUNT] = {"scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "neon"};
    return names[isa];
}

/* Compilers disagree on the name of this feature: asked of the CPU itself, once avx2 is known to be there. */
static int llm__has_avxvnni(void) {
#if LLM__X86
    unsigned a = 0, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
#else
    return 0;
#endif
}

/* 1 if this CPU runs it. */
static int llm__isa_here(llm__isa isa) {
    if (isa == LLM__ISA_SCALAR) return 1;
#if LLM__X86
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#ifdef LLM__TEST_EMULATE_AVX512
    if (isa == LLM__ISA_AVX512 || isa == LLM__ISA_AVX512VNNI) return 1;
#endif
    if (isa == LLM__ISA_AVX2) return avx2;
    if (isa == LLM__ISA_AVXVNNI) return avx2 && llm__has_avxvnni();
    if (isa == LLM__ISA_AVX512) return avx512;
    if (isa == LLM__ISA_AVX512VNNI) return avx512 && __builtin_cpu_supports("avx512vnni");
#elif LLM__NEON
    if (isa == LLM__ISA_NEON) return 1;
#endif
    return 0;
}

LLM__UNUSED static llm__isa llm__isa_best(void) {
    for (int i = LLM__ISA_COUNT - 1; i > 0; i--)
        if (llm__isa_here((llm__isa)i)) return (llm__isa)i;
    return LLM__ISA_SCALAR;
}

LLM_API const char *llm_isa_list(void) {
    static const char *const lists[] = {
        "scalar", "scalar avx2", "scalar avx2 avxvnni", "scalar avx2 avx512", "scalar avx2 avxvnni avx512",
        "scalar avx2 avx512 avx512vnni", "scalar avx2 avxvnni avx512 avx512vnni", "scalar neon",
    };
    for (int i = 0; i < LLM__COUNT(lists); i++) {
        char all[64] = "scalar";
        for (int k = 1; k < LLM__ISA_COUNT; k++) {
            size_t at = strlen(all);
            if (llm__isa_here((llm__isa)k)) snprintf(all + at, sizeof all - at, " %s", llm__isa_name((llm__isa)k));
        }
        if (!strcmp(all, lists[i])) return lists[i];
    }
    return lists[0];
}

/* The instruction set of a name (NULL: the best). LLM_ERR_ARG with the names there are. */
LLM__UNUSED static llm_result llm__isa_find(const char *name, llm__isa *out) {
    *out = llm__isa_best();
    if (!name) return LLM_OK;
    for (int i = 0; i < LLM__ISA_COUNT; i++) {
        if (strcmp(name, llm__isa_name((llm__isa)i)) || !llm__isa_here((llm__isa)i)) continue;
        *out = (llm__isa)i;
        return LLM_OK;
    }
    return llm__error(LLM_ERR_ARG, "isa %s: this CPU has %s", name, llm_isa_list());
}

/* ---- Activations ----
 * A buffer is a matrix of f32. Linear layers over quantised weights read a copy of it rounded to int8: for each 32 columns a scale d,
 * x ~ d * q. The rows are grouped into tiles of up to 16 columns of a product; inside a tile of n, block b of column t stands at index
 * start * n_blocks + b * n + t, so a kernel reads memory in order. In the finer form every row takes two such columns: the second one holds what the
 * first one's rounding lost, and their two products are added. */

typedef enum llm__form { LLM__FORM_F32 = 0, LLM__FORM_I8 = 1, LLM__FORM_I8X2 = 2 } llm__form;

typedef struct llm__act {
    int8_t *q;   /* (blocks, 32) */
    float *d;    /* (blocks) */
    float *s;    /* (blocks) d * sum of q: what a minimum is multiplied with */
    int16_t *z;  /* (blocks, 4) sums of q: what a zero point is multiplied with. Of each 16 columns, those with c % 4 < 2 and the others */
} llm__act;

struct llm_buffer {
    float *data;             /* (rows, cols) */
    int64_t rows, cols, stride;
    int rank;
    struct llm__act *act;    /* its rounded copy, owned by the linear kernels */
    int form;                /* of the copy; whether it is current is the backend's knowledge */
};

/* What a kernel knows of the thread it runs in. Every thread of the pool calls it with its own. */
typedef struct llm__exec {
    llm__pool *pool;
    int thread, n_threads;
    llm__isa isa;
    const llm_step *step;
    int n_rows;              /* of this op */
    void *scratch;           /* shared by all threads: see llm__experts_scratch */
    size_t scratch_bytes;
} llm__exec;

enum { LLM__TILE = 16, LLM__ROWS = 16 }; /* columns of a tile; rows of a packed block */

/* Tile i of n columns cut into equal tiles (17 are 9 + 8, not 16 + 1), each a multiple of `per`. */
typedef struct llm__tile {
    int start, n;
} llm__tile;

static int llm__tiles(int rows, int per) { return (rows * per + LLM__TILE - 1) / LLM__TILE; }

static llm__tile llm__tile_at(int rows, int per, int i) {
    int64_t n = llm__tiles(rows, per);
    llm__tile t;
    t.start = (int)((int64_t)i * rows / n) * per;
    t.n = (int)((int64_t)(i + 1) * rows / n) * per - t.start;
    return t;
}

/* The share [*begin, *end) of n things that is this thread's. */
static void llm__share(const llm__exec *e, int64_t n, int64_t *begin, int64_t *end) {
    *begin = n * e->thread / e->n_threads;
    *end = n * (e->thread + 1) / e->n_threads;
}

/* Carves the parts of a rounded copy of `blocks` blocks out of memory; returns the bytes it takes (memory NULL: only that). */
static size_t llm__act_place(llm__act *a, uint8_t *memory, size_t blocks) {
    size_t n = (blocks + 15) & ~(size_t)15; /* each part starts on a cache line */
    if (memory) {
        a->q = (int8_t *)memory;
        a->d = (float *)(void *)(memory + n * 32);
        a->s = a->d + n;
        a->z = (int16_t *)(void *)(a->s + n);
    }
    return n * (32 + 16);
}

/* A buffer with room for its rounded copy in any form. */
LLM__UNUSED static llm_result llm__buffer_new(int rank, int64_t rows, int64_t cols, llm_buffer **out) {
    int ok = 1;
    uint64_t stride = llm__align_up((uint64_t)cols, 16, &ok);
    if (stride % 512 == 0) stride += 16; /* rows a power of two apart would share few cache sets */
    uint64_t data = llm__align_up(llm__mul(llm__mul((uint64_t)rows, stride, &ok), 4, &ok), 64, &ok);
    uint64_t blocks = llm__mul(2 * llm__mul((uint64_t)rows, ((uint64_t)cols + 31) / 32, &ok), 1, &ok);
    *out = NULL;
    if (!ok || blocks > (uint64_t)1 << 40) return llm__error(LLM_ERR_LIMIT, "buffer of %lld x %lld values is too large", (long long)rows, (long long)cols);
    llm_buffer *b = LLM__NEW(llm_buffer, 1);
    llm__act *act = LLM__NEW(llm__act, 1);
    uint8_t *memory = b && act ? (uint8_t *)llm__pages_get((size_t)data + llm__act_place(act, NULL, (size_t)blocks)) : NULL;
    if (!memory) {
        LLM_FREE(b);
        LLM_FREE(act);
        return llm__nomem();
    }
    b->data = (float *)(void *)memory;
    b->rows = rows;
    b->cols = cols;
    b->stride = (int64_t)stride;
    b->rank = rank;
    b->act = act;
    llm__act_place(act, memory + data, (size_t)blocks);
    *out = b;
    return LLM_OK;
}

LLM__UNUSED static void llm__buffer_free(llm_buffer *b) {
    if (!b) return;
    size_t data = ((size_t)b->rows * (size_t)b->stride * 4 + 63) & ~(size_t)63;
    llm__pages_free(b->data, data + llm__act_place(b->act, NULL, (size_t)b->rows * (size_t)((b->cols + 31) / 32) * 2));
    LLM_FREE(b->act);
    LLM_FREE(b);
}

/* ---- Packed weights ----
 * A packed block is 16 rows x 32 columns: vectors of 16 lanes (lane = row) of 4 bytes, vector i holding columns 4i .. 4i + 3. 8-bit
 * weights take 8 such vectors. 4-bit ones take four: vector j has the columns of i = 2j in the low nibbles and those of 2j + 1 in the high
 * ones. A fifth bit stands in one more vector (byte c, bit i: column 4i + c), fifth and sixth in two (byte c, bits 2 (i % 4), 2 (i % 4) + 1 of vector
 * i / 4). Scales and minimums follow, 16 of each, as the file has them: f16, or small integers with an f16 scale for 256 columns
 * in front of every eighth block. So w = scale * (u - zero) + minimum keeps the file's exact meaning. Formats without a
 * layout of their own become bytes with f32 scales for 16 columns (G16). Floats stay what they are: 16 rows of a column side by side. */

typedef enum llm__kind {
    LLM__KIND_F32 = 0, LLM__KIND_F16, LLM__KIND_BF16,                     /* floats */
    LLM__KIND_Q4Z, LLM__KIND_Q4M, LLM__KIND_Q5Z, LLM__KIND_Q5M,           /* 4 and 5 bits with a zero point or a minimum */
    LLM__KIND_Q8, LLM__KIND_IQ4, LLM__KIND_MXFP4,                         /* signed bytes; nibbles that index a table of them */
    LLM__KIND_Q4K, LLM__KIND_Q5K, LLM__KIND_Q6K, LLM__KIND_G16, LLM__KIND_G16M, LLM__KIND_COUNT
} llm__kind;

typedef enum llm__scale { LLM__SCALE_NONE = 0, LLM__SCALE_F16, LLM__SCALE_F32, LLM__SCALE_F32X2, LLM__SCALE_SUPER, LLM__SCALE_SUPERX2 } llm__scale;

typedef struct llm__kind_desc {
    int bits;          /* as stored */
    int zero;          /* what is subtracted from the stored value */
    llm__scale scale;  /* X2: one for 16 columns. SUPER: a byte, times an f16 for 256 columns */
    llm__scale min;
} llm__kind_desc;

LLM__INLINE llm__kind_desc llm__kind_info(llm__kind kind) {
    static const llm__kind_desc table[LLM__KIND_COUNT] = {
        {0, 0, LLM__SCALE_NONE, LLM__SCALE_NONE}, {0, 0, LLM__SCALE_NONE, LLM__SCALE_NONE}, {0, 0, LLM__SCALE_NONE, LLM__SCALE_NONE},
        {4, 8, LLM__SCALE_F16, LLM__SCALE_NONE}, {4, 0, LLM__SCALE_F16, LLM__SCALE_F16},
        {5, 16, LLM__SCALE_F16, LLM__SCALE_NONE}, {5, 0, LLM__SCALE_F16, LLM__SCALE_F16},
        {8, 0, LLM__SCALE_F16, LLM__SCALE_NONE}, {4, 0, LLM__SCALE_F32, LLM__SCALE_NONE}, {4, 0, LLM__SCALE_F32, LLM__SCALE_NONE},
        {4, 0, LLM__SCALE_SUPER, LLM__SCALE_SUPER}, {5, 0, LLM__SCALE_SUPER, LLM__SCALE_SUPER}, {6, 32, LLM__SCALE_SUPERX2, LLM__SCALE_NONE},
        {8, 0, LLM__SCALE_F32X2, LLM__SCALE_NONE}, {8, 0, LLM__SCALE_F32X2, LLM__SCALE_F32X2},
    };
    return table[kind];
}

LLM__INLINE int llm__kind_is_float(llm__kind kind) { return kind <= LLM__KIND_BF16; }
LLM__INLINE int llm__kind_is_table(llm__kind kind) { return kind == LLM__KIND_IQ4 || kind == LLM__KIND_MXFP4; }

LLM__INLINE int llm__scale_bytes(llm__scale s) { /* of 16 rows, in every block */
    return s == LLM__SCALE_F16 ? 32 : s == LLM__SCALE_F32 ? 64 : s == LLM__SCALE_F32X2 ? 128 : s == LLM__SCALE_SUPER ? 16 : s == LLM__SCALE_SUPERX2 ? 32 : 0;
}

LLM__INLINE int llm__scale_head(llm__scale s) { return s >= LLM__SCALE_SUPER ? 32 : 0; } /* in front of every eighth block */

LLM__INLINE int llm__kind_head(llm__kind kind) { return llm__scale_head(llm__kind_info(kind).scale) + llm__scale_head(llm__kind_info(kind).min); }

LLM__INLINE int llm__kind_block(llm__kind kind) {
    return 64 * llm__kind_info(kind).bits + llm__scale_bytes(llm__kind_info(kind).scale) + llm__scale_bytes(llm__kind_info(kind).min);
}

/* Bytes of 16 packed rows. */
static int64_t llm__kind_row_bytes(llm__kind kind, int64_t cols) {
    int64_t n = kind == LLM__KIND_F32 ? cols * 64 : llm__kind_is_float(kind) ? cols * 32 : cols / 32 * llm__kind_block(kind) + (cols / 32 + 7) / 8 * llm__kind_head(kind);
    return (n + 63) & ~(int64_t)63;
}

typedef struct llm__block {  /* up to 16 rows of the weight, packed */
    int64_t offset;          /* of its bytes in memory */
    int64_t row;             /* the first of its rows */
    int32_t n, kind;         /* n rows; the other lanes are zero */
    float scale;             /* of the segment, for the results */
} llm__block;

struct llm_weight {
    llm_role role;
    int64_t rows, cols;
    int32_t n_groups;        /* experts, else 1 */
    int gate_up;             /* blocks 2i and 2i + 1 of a group: gate rows and up rows of the same outputs */
    int n_segments;
    llm_segment *segment;    /* (n_segments) */
    int64_t *first_row;      /* (n_segments + 1) of the weight */
    uint64_t seed;           /* of random values */
    float add;
    llm__form form;          /* what its kernels read */
    llm__block *block;       /* (n_blocks) */
    int64_t n_blocks;
    int64_t *first_block;    /* (n_groups + 1) */
    uint8_t *memory;
    size_t bytes;
    float *f32;              /* VECTOR, MLA_UP: (rows, cols); else NULL */
};

/* Seeded noise for LLM_TYPE_RANDOM: even in [-0.02, 0.02]; the same whatever slices a matrix is read in. */
static float llm__random_weight(uint64_t seed, int64_t row, int64_t col) {
    int64_t at[2];
    at[0] = row;
    at[1] = col;
    return (float)((double)(llm__hash(at, sizeof at, seed) >> 40) / 16777216 * 0.04 - 0.02);
}

/* Columns [col, col + n) of a segment's row r as f32, with its scale: what the weight means. */
static void llm__segment_values(const llm_segment *s, uint64_t seed, int64_t r, int64_t col, int64_t n, float *dst) {
    int64_t row = s->row + r * (s->row_step ? s->row_step : 1);
    if (s->type == LLM_TYPE_RANDOM) {
        for (int64_t i = 0; i < n; i++) dst[i] = llm__random_weight(seed, row, s->col + col + i);
        return;
    }
    const uint8_t *data = (const uint8_t *)s->data;
    int64_t bytes = llm__row_bytes(s->type, s->stored_cols);
    if (!s->transposed) llm__dequant_columns(s->type, data + row * bytes, s->col + col, n, dst);
    else
        for (int64_t i = 0; i < n; i++) llm__dequant_columns(s->type, data + (s->col + col + i) * bytes, row, 1, dst + i);
    if (s->scale != 0 && s->scale != 1)
        for (int64_t i = 0; i < n; i++) dst[i] *= s->scale;
}

/* The segment of a row of the weight. */
static int llm__weight_segment(const llm_weight *w, int64_t row) {
    int low = 0, high = w->n_segments - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (w->first_row[mid] <= row) low = mid;
        else high = mid - 1;
    }
    return low;
}

/* Columns [col, col + n) of a row of the weight as f32. */
static void llm__weight_values(const llm_weight *w, int64_t row, int64_t col, int64_t n, float *dst) {
    int i = llm__weight_segment(w, row);
    llm__segment_values(&w->segment[i], w->seed + (uint64_t)i, row - w->first_row[i], col, n, dst);
}

/* How a segment is packed. */
static llm__kind llm__segment_kind(const llm_segment *s, llm_compute compute) {
    int whole = s->col % 32 == 0 && s->n_cols % 32 == 0, whole_super = s->col % 256 == 0 && s->n_cols % 256 == 0;
    if (compute == LLM_COMPUTE_F32) return LLM__KIND_F32;
    switch (s->type) {
    case LLM_TYPE_F16:
    case LLM_TYPE_F8_E4M3:
    case LLM_TYPE_F8_E5M2: return LLM__KIND_F16;
    case LLM_TYPE_BF16:
    case LLM_TYPE_RANDOM: return LLM__KIND_BF16;
    case LLM_TYPE_F32: return compute == LLM_COMPUTE_BF16 ? LLM__KIND_BF16 : compute == LLM_COMPUTE_F16 ? LLM__KIND_F16 : LLM__KIND_F32;
    }
    if (llm__type_block(s->type) == 1 || !whole || s->transposed) return LLM__KIND_F32;
    switch (s->type) {
    case LLM_TYPE_Q4_0: return LLM__KIND_Q4Z;
    case LLM_TYPE_Q4_1: return LLM__KIND_Q4M;
    case LLM_TYPE_Q5_0: return LLM__KIND_Q5Z;
    case LLM_TYPE_Q5_1: return LLM__KIND_Q5M;
    case LLM_TYPE_Q8_0: return LLM__KIND_Q8;
    case LLM_TYPE_IQ4_NL:
    case LLM_TYPE_IQ4_XS: return LLM__KIND_IQ4;
    case LLM_TYPE_MXFP4: return LLM__KIND_MXFP4;
    case LLM_TYPE_Q4_K: return whole_super ? LLM__KIND_Q4K : LLM__KIND_G16M;
    case LLM_TYPE_Q5_K: return whole_super ? LLM__KIND_Q5K : LLM__KIND_G16M;
    case LLM_TYPE_Q6_K: return whole_super ? LLM__KIND_Q6K : LLM__KIND_G16;
    case LLM_TYPE_Q2_K: return LLM__KIND_G16M;
    default: return LLM__KIND_G16;
    }
}

static llm_result llm__segment_check(const llm_weight_desc *d, const llm_segment *s) {
    if (s->type != LLM_TYPE_RANDOM && !llm__type_readable(s->type))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: type %s (%d) cannot be computed with", d->name, llm__type_name(s->type), s->type);
    int64_t line = s->transposed ? s->row + (s->n_rows - 1) * (s->row_step ? s->row_step : 1) + 1 : s->col + s->n_cols;
    if (s->n_rows <= 0 || s->n_cols != d->cols || s->row < 0 || s->col < 0 || line > s->stored_cols || s->stored_cols % llm__type_block(s->type))
        return llm__error(LLM_ERR_ARG, "%s: a segment of %lld x %lld values does not fit its weight of %lld columns", d->name, (long long)s->n_rows, (long long)s->n_cols, (long long)d->cols);
    return LLM_OK;
}

/* Adds a block of rows [row, row + n) at the end of the packed memory. */
static void llm__weight_add_block(llm_weight *w, int64_t row, int n, llm__kind kind) {
    float scale = w->segment[llm__weight_segment(w, row)].scale;
    if (w->block) {
        llm__block *b = &w->block[w->n_blocks];
        b->offset = (int64_t)w->bytes;
        b->row = row;
        b->n = n;
        b->kind = kind;
        b->scale = scale != 0 && !llm__kind_is_float(kind) ? scale : 1; /* floats are packed with it */
    }
    w->n_blocks++;
    w->bytes += (size_t)llm__kind_row_bytes(kind, w->cols);
}

/* Rows from `row` on, at most `most`, that can share a packed block; their kind. */
static int llm__weight_run(const llm_weight *w, llm_compute compute, int64_t row, int64_t most, llm__kind *kind) {
    int first = llm__weight_segment(w, row), last = first;
    *kind = w->form == LLM__FORM_F32 && compute != LLM_COMPUTE_F32 && !llm__kind_is_float(llm__segment_kind(&w->segment[first], compute)) ?
                LLM__KIND_F32 : llm__segment_kind(&w->segment[first], compute);
    most = LLM__MIN(most, (int64_t)LLM__ROWS);
    while (last + 1 < w->n_segments && w->first_row[last + 1] < row + most) {
        const llm_segment *a = &w->segment[first], *b = &w->segment[last + 1];
        if (a->type != b->type || a->scale != b->scale || a->transposed != b->transposed || a->col % 256 != b->col % 256) break;
        last++;
    }
    return (int)LLM__MIN(most, w->first_row[last + 1] - row);
}

/* Cuts the rows into blocks: with w->block NULL only counts. */
static void llm__weight_plan(llm_weight *w, llm_compute compute) {
    int64_t group = w->rows / w->n_groups, half = w->gate_up ? group / 2 : group;
    w->n_blocks = 0;
    w->bytes = 0;
    for (int g = 0; g < w->n_groups; g++) {
        int64_t base = g * group;
        if (w->block) w->first_block[g] = w->n_blocks;
        for (int64_t r = 0, n; r < half; r += n) {
            llm__kind kind, up_kind = LLM__KIND_F32;
            n = llm__weight_run(w, compute, base + r, half - r, &kind);
            if (w->gate_up) n = llm__weight_run(w, compute, base + half + r, n, &up_kind);
            llm__weight_add_block(w, base + r, (int)n, kind);
            if (w->gate_up) llm__weight_add_block(w, base + half + r, (int)n, up_kind);
        }
    }
    if (w->block) w->first_block[w->n_groups] = w->n_blocks;
}

LLM__UNUSED static void llm__weight_free(llm_weight *w) {
    if (!w) return;
    llm__pages_free(w->memory, w->bytes);
    LLM_FREE(w->segment);
    LLM_FREE(w->first_row);
    LLM_FREE(w->block);
    LLM_FREE(w->first_block);
    LLM_FREE(w);
}

/* Copies the segments and finds out whether all of them can be computed with int8. */
static llm_result llm__weight_segments(llm_weight *w, const llm_weight_desc *d, llm_compute compute) {
    int64_t rows = 0;
    int quantised = 1;
    w->segment = LLM__NEW(llm_segment, d->n_segments);
    w->first_row = LLM__NEW(int64_t, d->n_segments + 1);
    w->n_segments = d->n_segments;
    if (!w->segment || !w->first_row) return llm__nomem();
    for (int i = 0; i < d->n_segments; i++) {
        llm_result r = llm__segment_check(d, &d->segments[i]);
        if (r) return r;
        w->segment[i] = d->segments[i];
        w->first_row[i] = rows;
        rows += d->segments[i].n_rows;
        quantised &= !llm__kind_is_float(llm__segment_kind(&d->segments[i], compute));
    }
    w->first_row[d->n_segments] = rows;
    if (rows != d->rows) return llm__error(LLM_ERR_ARG, "%s: segments of %lld rows in all, %lld expected", d->name, (long long)rows, (long long)d->rows);
    w->form = !quantised ? LLM__FORM_F32 : d->role == LLM_ROLE_HEAD ? LLM__FORM_I8X2 : LLM__FORM_I8;
    return LLM_OK;
}

/* Plans and allocates a weight; llm__weight_pack fills it. What the segments point to must outlive an EMBED weight, and the packing of others. */
LLM__UNUSED static llm_result llm__weight_new(const llm_weight_desc *d, llm_compute compute, llm__isa isa, llm_weight **out) {
    (void)isa; /* one layout serves all */
    *out = NULL;
    int groups = d->role == LLM_ROLE_EXPERTS || d->role == LLM_ROLE_EXPERTS_GATE_UP ? d->n_experts : 1;
    int gate_up = d->role == LLM_ROLE_GATE_UP || d->role == LLM_ROLE_EXPERTS_GATE_UP;
    if (d->n_segments < 1 || d->rows < 1 || d->cols < 1 || d->rows > (int64_t)1 << 40 || d->cols > 1 << 24 || groups < 1 || d->rows % groups || (gate_up && d->rows / groups % 2))
        return llm__error(LLM_ERR_ARG, "%s: a weight of %lld x %lld values in %d parts is not possible", d->name, (long long)d->rows, (long long)d->cols, groups);
    if (d->rows > ((int64_t)1 << 45) / d->cols) return llm__error(LLM_ERR_LIMIT, "%s: %lld x %lld values are too many", d->name, (long long)d->rows, (long long)d->cols);
    llm_weight *w = LLM__NEW(llm_weight, 1);
    if (!w) return llm__nomem();
    w->role = d->role;
    w->rows = d->rows;
    w->cols = d->cols;
    w->n_groups = groups;
    w->gate_up = gate_up;
    w->add = d->add;
    w->seed = llm__hash(d->name, strlen(d->name), 1);
    llm_result r = llm__weight_segments(w, d, compute);
    int plain = d->role == LLM_ROLE_VECTOR || d->role == LLM_ROLE_MLA_UP;
    if (!r && plain) w->bytes = (size_t)w->rows * (size_t)w->cols * 4;
    if (!r && !plain && d->role != LLM_ROLE_EMBED) {
        llm__weight_plan(w, compute);
        w->block = LLM__NEW(llm__block, w->n_blocks);
        w->first_block = LLM__NEW(int64_t, groups + 1);
        if (!w->block || !w->first_block) r = llm__nomem();
        else llm__weight_plan(w, compute);
    }
    if (!r && w->bytes && !(w->memory = (uint8_t *)llm__pages_get(w->bytes))) r = llm__error(LLM_ERR_NOMEM, "%s: out of memory for %zu bytes", d->name, w->bytes);
    if (plain) w->f32 = (float *)(void *)w->memory;
    if (r) llm__weight_free(w);
    else *out = w;
    return r;
}

LLM__UNUSED static llm__form llm__weight_form(const llm_weight *w) { return w->form; }

/* ---- Packing ---- */

/* The nibble that stands for a value in a table format. */
static int llm__table_index(llm__kind kind, int8_t value) {
    const int8_t *table = llm__nibble_values(kind == LLM__KIND_MXFP4 ? LLM_TYPE_MXFP4 : LLM_TYPE_IQ4_NL);
    int i = 0;
    while (i < 15 && table[i] != value) i++;
    return i;
}

/* 32 values of one row into the vectors of a block. */
static void llm__pack_values(llm__kind kind, const int8_t *q, int lane, uint8_t *to) {
    llm__kind_desc k = llm__kind_info(kind);
    for (int c = 0; c < 32; c++) {
        int i = c / 4, at = 4 * lane + c % 4;
        int u = llm__kind_is_table(kind) ? llm__table_index(kind, q[c]) : q[c] + k.zero;
        if (k.bits == 8) {
            to[64 * i + at] = (uint8_t)u;
            continue;
        }
        to[64 * (i / 2) + at] |= (uint8_t)((u & 15) << (4 * (i & 1)));
        if (k.bits == 5) to[256 + at] |= (uint8_t)((u >> 4) << i);
        if (k.bits == 6) to[256 + 64 * (i / 4) + at] |= (uint8_t)((u >> 4) << (2 * (i % 4)));
    }
}

/* The scales (or minimums) of one row: d for 256 or 32 columns at head or to, b the small integers. Returns where the next ones stand. */
static uint8_t *llm__pack_scale(llm__scale scale, float d, const uint8_t b[2], int b_signed, int lane, uint8_t *to, uint8_t *head) {
    uint16_t half = llm__f32_to_f16(d);
    float product[2];
    for (int i = 0; i < 2; i++) product[i] = d * (b_signed ? (float)(int8_t)b[i] : (float)b[i]);
    if (scale == LLM__SCALE_F16) memcpy(to + 2 * lane, &half, 2);
    if (scale == LLM__SCALE_F32 || scale == LLM__SCALE_F32X2) memcpy(to + 4 * lane, &product[0], 4);
    if (scale == LLM__SCALE_F32X2) memcpy(to + 64 + 4 * lane, &product[1], 4);
    if (scale >= LLM__SCALE_SUPER) {
        memcpy(head + 2 * lane, &half, 2);
        to[lane] = b[0];
        if (scale == LLM__SCALE_SUPERX2) to[16 + lane] = b[1];
    }
    return to + llm__scale_bytes(scale);
}

/* Rows of a block of a quantised kind. `to` is zeroed. */
static void llm__pack_quantised(const llm_weight *w, const llm__block *b, uint8_t *to) {
    llm__kind kind = (llm__kind)b->kind;
    llm__kind_desc k = llm__kind_info(kind);
    const llm_segment *s[LLM__ROWS];
    const uint8_t *row[LLM__ROWS];
    for (int r = 0; r < b->n; r++) {
        int i = llm__weight_segment(w, b->row + r);
        s[r] = &w->segment[i];
        row[r] = (const uint8_t *)s[r]->data + (s[r]->row + (b->row + r - w->first_row[i]) * (s[r]->row_step ? s[r]->row_step : 1)) * llm__row_bytes(s[r]->type, s[r]->stored_cols);
    }
    uint8_t *head = to;
    for (int64_t j = 0; j < w->cols / 32; j++, to += llm__kind_block(kind)) {
        if (llm__kind_head(kind) && j % 8 == 0) {
            head = to;
            to += llm__kind_head(kind);
        }
        for (int r = 0; r < b->n; r++) {
            llm__sub sub;
            llm__sub_get(s[r]->type, row[r], s[r]->col / 32 + j, &sub);
            llm__pack_values(kind, sub.q, r, to);
            uint8_t *min = llm__pack_scale(k.scale, sub.d, (const uint8_t *)sub.sc, 1, r, to + 64 * k.bits, head);
            llm__pack_scale(k.min, sub.m, sub.mc, 0, r, min, head + 32);
        }
    }
}

/* Rows of a block of floats. */
static void llm__pack_floats(const llm_weight *w, const llm__block *b, uint8_t *to) {
    enum { COLS = 128 };
    float x[COLS];
    for (int64_t c = 0; c < w->cols; c += COLS) {
        int n = (int)LLM__MIN(w->cols - c, (int64_t)COLS);
        for (int r = 0; r < b->n; r++) {
            llm__weight_values(w, b->row + r, c, n, x);
            for (int i = 0; i < n; i++) {
                int64_t at = (c + i) * LLM__ROWS + r;
                uint16_t half = b->kind == LLM__KIND_BF16 ? llm__f32_to_bf16(x[i]) : llm__f32_to_f16(x[i]);
                if (b->kind == LLM__KIND_F32) memcpy(to + 4 * at, &x[i], 4);
                else memcpy(to + 2 * at, &half, 2);
            }
        }
    }
}

/* Fills this thread's share of the weight. Every thread calls it. */
LLM__UNUSED static void llm__weight_pack(llm_weight *w, int thread, int n_threads) {
    int64_t n = w->f32 ? w->rows : w->n_blocks;
    for (int64_t i = n * thread / n_threads; i < n * (thread + 1) / n_threads; i++) {
        if (w->f32) {
            llm__weight_values(w, i, 0, w->cols, w->f32 + i * w->cols);
            for (int64_t k = 0; k < w->cols && w->add != 0; k++) w->f32[i * w->cols + k] += w->add;
        } else if (llm__kind_is_float((llm__kind)w->block[i].kind)) {
            llm__pack_floats(w, &w->block[i], w->memory + w->block[i].offset);
        } else {
            llm__pack_quantised(w, &w->block[i], w->memory + w->block[i].offset);
        }
    }
}

/* ---- Rounding activations ---- */

/* 32 values to int8: block `at` of the copy. `lost` (may be NULL) takes what the rounding loses. */
static void llm__ref_quantise(const llm__act *a, size_t at, const float *x, float *lost) {
    float top = 0;
    int sum = 0;
    int8_t *q = a->q + at * 32;
    memset(a->z + 4 * at, 0, 4 * sizeof *a->z);
    for (int i = 0; i < 32; i++) top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
    float d = top * (1.0f / 127), inverse = top > 0 ? 127 / top : 0;
    for (int i = 0; i < 32; i++) {
        float v = rintf(x[i] * inverse);
        q[i] = (int8_t)(v >= -127 && v <= 127 ? (int)v : 0); /* what is no number becomes 0 */
        sum += q[i];
        a->z[4 * at + (size_t)(i / 16 * 2 + i / 2 % 2)] += q[i];
        if (lost) lost[i] = fmaf(-(float)q[i], d, x[i]);
    }
    a->d[at] = d;
    a->s[at] = d * (float)sum;
}

/* ---- Kernels in plain C ----
 * i8: out[t][lane] = sum over blocks b of scale_b[lane] * d_bt * (sum over columns of (u - zero) * q) + min_b[lane] * s_bt, for n <= 16 columns t.
 * All kernels of a kind do the same sums: integers inside a block are exact, and the blocks are added in order, whatever n is. */

typedef void (*llm__i8_fn)(llm__kind kind, const uint8_t *w, int64_t n_blocks, const llm__act *a, size_t first, int n, float *out);
typedef void (*llm__f32_fn)(llm__kind kind, const uint8_t *w, int64_t cols, const float *x, int64_t stride, int n, float *out);
typedef void (*llm__quantise_fn)(const llm__act *a, size_t at, const float *x, float *lost);

/* Column c of lane r of a packed block: the stored value minus its zero point. */
static int llm__ref_value(llm__kind kind, const uint8_t *w, int c, int r) {
    int i = c / 4, at = 4 * r + c % 4;
    if (llm__kind_info(kind).bits == 8) return (int8_t)w[64 * i + at];
    int u = w[64 * (i / 2) + at] >> (4 * (i & 1)) & 15;
    if (llm__kind_is_table(kind)) return llm__nibble_values(kind == LLM__KIND_MXFP4 ? LLM_TYPE_MXFP4 : LLM_TYPE_IQ4_NL)[u];
    if (llm__kind_info(kind).bits == 5) u |= (w[256 + at] >> i & 1) << 4;
    if (llm__kind_info(kind).bits == 6) u |= (w[256 + 64 * (i / 4) + at] >> (2 * (i % 4)) & 3) << 4;
    return u - llm__kind_info(kind).zero;
}

/* The scale (or minimum) of lane r for columns 16 * half on. */
static float llm__ref_scale(llm__scale scale, const uint8_t *at, const uint8_t *head, int b_signed, int half, int r) {
    float f;
    if (scale == LLM__SCALE_NONE) return 0;
    if (scale == LLM__SCALE_F16) return llm__load_f16(at + 2 * r);
    if (scale == LLM__SCALE_F32 || scale == LLM__SCALE_F32X2) {
        memcpy(&f, at + (scale == LLM__SCALE_F32X2 ? 64 * half : 0) + 4 * r, 4);
        return f;
    }
    uint8_t b = at[scale == LLM__SCALE_SUPERX2 ? 16 * half + r : r];
    return llm__load_f16(head + 2 * r) * (b_signed ? (float)(int8_t)b : (float)b);
}

static void llm__ref_i8(llm__kind kind, const uint8_t *w, int64_t n_blocks, const llm__act *a, size_t first, int n, float *out) {
    llm__kind_desc k = llm__kind_info(kind);
    const uint8_t *head = w;
    memset(out, 0, sizeof(float) * LLM__ROWS * (size_t)n);
    for (int64_t b = 0; b < n_blocks; b++, w += llm__kind_block(kind)) {
        if (llm__kind_head(kind) && b % 8 == 0) {
            head = w;
            w += llm__kind_head(kind);
        }
        const uint8_t *scales = w + 64 * k.bits, *mins = scales + llm__scale_bytes(k.scale);
        for (int r = 0; r < LLM__ROWS; r++) {
            int8_t v[32];
            for (int c = 0; c < 32; c++) v[c] = (int8_t)llm__ref_value(kind, w, c, r);
            for (int t = 0; t < n; t++) {
                size_t at = first + (size_t)b * (size_t)n + (size_t)t;
                const int8_t *q = a->q + at * 32;
                for (int half = 0; half < 2; half++) {
                    int dot = 0, sum = a->z[4 * at + (size_t)(2 * half)] + a->z[4 * at + (size_t)(2 * half) + 1];
                    for (int c = 16 * half; c < 16 * half + 16; c++) dot += v[c] * q[c];
                    out[t * LLM__ROWS + r] += llm__ref_scale(k.scale, scales, head, 1, half, r) * a->d[at] * (float)dot;
                    if (k.min) out[t * LLM__ROWS + r] += llm__ref_scale(k.min, mins, head + 32, 0, half, r) * (a->d[at] * (float)sum);
                }
            }
        }
    }
}

/* Floats: the columns are summed in chunks, the chunks are added in order. Short sums keep the rounding error small, and give the vector
 * kernels independent chains. */
enum { LLM__CHUNK = 64 };

static float llm__ref_float(llm__kind kind, const uint8_t *w, int64_t i) {
    return llm__element(kind == LLM__KIND_F32 ? LLM_TYPE_F32 : kind == LLM__KIND_F16 ? LLM_TYPE_F16 : LLM_TYPE_BF16, w, i);
}

static void llm__ref_f32(llm__kind kind, const uint8_t *w, int64_t cols, const float *x, int64_t stride, int n, float *out) {
    memset(out, 0, sizeof(float) * LLM__ROWS * (size_t)n);
    for (int64_t c = 0; c < cols; c += LLM__CHUNK)
        for (int t = 0; t < n; t++) {
            float sum[LLM__ROWS] = {0};
            for (int64_t k = c; k < LLM__MIN(cols, c + LLM__CHUNK); k++)
                for (int r = 0; r < LLM__ROWS; r++) sum[r] += llm__ref_float(kind, w, k * LLM__ROWS + r) * x[t * stride + k];
            for (int r = 0; r < LLM__ROWS; r++) out[t * LLM__ROWS + r] += sum[r];
        }
}

/* ============================================================================
 * >>kernels-simd   The same kernels, vectorised: one block an instruction set.
 * ============================================================================
 * Every block has the same functions in the same order: unpack 32 columns, integer dot product, rows (the loop over blocks and tokens), floats,
 * rounding, finishing. A format is a compile-time constant of one always-inlined function, so each format gets a loop of its own
 * from one source. Functions carry their instruction set as an attribute; nothing is compiled for more than the build asks for, and the CPU is asked at run time. */

/* Unrolls a loop of constant count whose array then lives in registers. */
#if defined(__clang__)
#define LLM__UNROLL _Pragma("clang loop unroll(full)")
#define LLM__UNROLL_2 _Pragma("clang loop unroll_count(2)")
#else
#define LLM__UNROLL _Pragma("GCC unroll 16")
#define LLM__UNROLL_2 _Pragma("GCC unroll 2")
#endif

#if LLM__X86
/* ---------------------------------------------------------------------------
 * >>kernels-avx2   8 rows at a time: vectors of 8 lanes x 4 bytes.
 * ---------------------------------------------------------------------------
 * vpmaddubsw multiplies unsigned weight bytes with signed activation bytes and adds pairs into 16 bits. For weights of up to 6 bits all pairs of
 * a block (6 bits: of its halves, which have scales of their own) are added up there before vpmaddwd widens them: with the middle of the
 * range as zero point the whole sum is at most 16 * 16 * 127 (8 * 32 * 127), so it is right even if a partial one wraps. Signed bytes would
 * saturate as unsigned ones: there the weight's sign goes to the activation, and each pair sum is widened at once. The sums of a tile stay in
 * memory (L1): a load and a store a token are hidden behind the multiplications. Four tokens share each load of weights, which is what limits it. */
#define LLM__AVX2 __attribute__((target("avx2,fma,f16c")))
#define LLM__AVX2_INLINE static inline LLM__AVX2 __attribute__((always_inline, unused))

/* Bytes that are signed as stored: with vpdpbusd they are made unsigned, with a zero point of 128. */
LLM__INLINE int llm__kind_signed(llm__kind kind) { return llm__kind_info(kind).bits == 8 || llm__kind_is_table(kind); }

/* Two scales in 32 columns. */
LLM__INLINE int llm__kind_x2(llm__kind kind) { return llm__kind_info(kind).scale == LLM__SCALE_F32X2 || llm__kind_info(kind).scale == LLM__SCALE_SUPERX2; }

/* Rows 8 * half .. of a block: v[i] has columns 4i .. 4i + 3. */
LLM__AVX2_INLINE void llm__avx2_unpack(const llm__kind kind, const int vnni, const uint8_t *w, int half, __m256i v[8]) {
    const int bits = llm__kind_info(kind).bits;
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i *at = (const __m256i *)(const void *)(w + 32 * half);
    LLM__UNROLL
    for (int j = 0; j < 4 && bits < 8; j++) {
        __m256i x = _mm256_loadu_si256(at + 2 * j);
        v[2 * j] = _mm256_and_si256(x, low);
        v[2 * j + 1] = _mm256_and_si256(_mm256_srli_epi16(x, 4), low);
    }
    if (bits == 5) {
        __m256i high = _mm256_loadu_si256(at + 8), mask = _mm256_set1_epi8(16);
        LLM__UNROLL
        for (int i = 0; i < 8; i++) {
            __m256i bit = i < 4 ? _mm256_slli_epi16(high, 4 - i) : _mm256_srli_epi16(high, i - 4);
            v[i] = _mm256_or_si256(v[i], _mm256_and_si256(bit, mask));
        }
    }
    LLM__UNROLL
    for (int p = 0; p < 2 && bits == 6; p++) {
        __m256i high = _mm256_loadu_si256(at + 8 + 2 * p), mask = _mm256_set1_epi8(48);
        LLM__UNROLL
        for (int i = 0; i < 4; i++) {
            __m256i two = i < 2 ? _mm256_slli_epi16(high, 4 - 2 * i) : _mm256_srli_epi16(high, 2 * i - 4);
            v[4 * p + i] = _mm256_or_si256(v[4 * p + i], _mm256_and_si256(two, mask));
        }
    }
    if (llm__kind_is_table(kind)) {
        __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)llm__nibble_values(kind == LLM__KIND_MXFP4 ? LLM_TYPE_MXFP4 : LLM_TYPE_IQ4_NL)));
        LLM__UNROLL
        for (int i = 0; i < 8; i++) v[i] = _mm256_shuffle_epi8(table, v[i]);
    }
    LLM__UNROLL
    for (int i = 0; i < 8 && bits == 8; i++) v[i] = _mm256_loadu_si256(at + 2 * i);
    if (!vnni || !llm__kind_signed(kind)) return;
    LLM__UNROLL
    for (int i = 0; i < 8; i++) v[i] = _mm256_xor_si256(v[i], _mm256_set1_epi8(-128));
}

/* The zero point that sums of 16 bits are made with. Where it is not the format's own, the minimum makes up for it. */
LLM__INLINE int llm__kind_centre(llm__kind kind) {
    return llm__kind_signed(kind) ? 0 : llm__kind_info(kind).bits == 4 ? llm__kind_info(kind).zero : 1 << (llm__kind_info(kind).bits - 1);
}

/* The pair sums of one block's 32 (or, with `part` 0 or 1, 16) activations in every lane. */
LLM__AVX2_INLINE __m256i llm__avx2_z(const llm__act *a, size_t at, const int part) {
    int32_t z[2];
    memcpy(z, a->z + 4 * at, 8);
    if (part >= 0) return _mm256_set1_epi32(z[part]);
    return _mm256_add_epi16(_mm256_set1_epi32(z[0]), _mm256_set1_epi32(z[1]));
}

/* Products of bytes with the signed bytes a, pairs of them added into 16 bits. */
LLM__AVX2_INLINE __m256i llm__avx2_mul(const int is_signed, __m256i w, __m256i a) {
    return is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w)) : _mm256_maddubs_epi16(w, a);
}

/* sum[t][half] = (u - centre) * q over the columns of vectors v[half][i], i from .. to - 1, for n tokens. The loop over columns is kept a loop:
 * wholly unrolled, compilers reorder the additions into a tree that does not fit the registers. */
LLM__AVX2_INLINE void llm__avx2_dot(const llm__kind kind, const int n, __m256i (*v)[8], const int part, const llm__act *a, size_t at, __m256i (*sum)[2]) {
    const int is_signed = llm__kind_signed(kind), wide = is_signed && kind != LLM__KIND_MXFP4, from = part > 0 ? 4 : 0, to = part == 0 ? 4 : 8;
    const int centre = llm__kind_centre(kind);
    const __m256i ones = _mm256_set1_epi16(1);
    const int8_t *q = a->q + 32 * at;
    LLM__UNROLL
    for (int t = 0; t < n; t++) sum[t][0] = sum[t][1] = centre ? _mm256_mullo_epi16(llm__avx2_z(a, at + (size_t)t, part), _mm256_set1_epi16((short)-centre)) : _mm256_setzero_si256();
    LLM__UNROLL_2
    for (int i = from; i < to; i++) {
        const __m256i w0 = v[0][i], w1 = v[1][i];
        LLM__UNROLL
        for (int t = 0; t < n; t++) {
            int32_t four;
            memcpy(&four, q + 32 * t + 4 * i, 4);
            const __m256i x = _mm256_set1_epi32(four), p0 = llm__avx2_mul(is_signed, w0, x), p1 = llm__avx2_mul(is_signed, w1, x);
            sum[t][0] = wide ? _mm256_add_epi32(sum[t][0], _mm256_madd_epi16(p0, ones)) : _mm256_add_epi16(sum[t][0], p0);
            sum[t][1] = wide ? _mm256_add_epi32(sum[t][1], _mm256_madd_epi16(p1, ones)) : _mm256_add_epi16(sum[t][1], p1);
        }
    }
    if (wide) return;
    LLM__UNROLL
    for (int t = 0; t < n; t++) {
        sum[t][0] = _mm256_madd_epi16(sum[t][0], ones);
        sum[t][1] = _mm256_madd_epi16(sum[t][1], ones);
    }
}

typedef void (*llm__avx2_dot_fn)(const llm__kind kind, const int n, __m256i (*v)[8], const int part, const llm__act *a, size_t at, __m256i (*sum)[2]);

/* 8 scales (or minimums) as f32, for columns 16 * x2 on. */
LLM__AVX2_INLINE __m256 llm__avx2_scale(const llm__scale scale, const uint8_t *at, const uint8_t *head, const int is_min, int half, int x2) {
    if (scale == LLM__SCALE_F16) return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(at + 16 * half)));
    if (scale == LLM__SCALE_F32 || scale == LLM__SCALE_F32X2) return _mm256_loadu_ps((const float *)(const void *)(at + 32 * half + 64 * x2));
    if (scale == LLM__SCALE_NONE) return _mm256_setzero_ps();
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(at + 8 * half + (scale == LLM__SCALE_SUPERX2 ? 16 * x2 : 0)));
    __m256i b = is_min ? _mm256_cvtepu8_epi32(bytes) : _mm256_cvtepi8_epi32(bytes);
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(head + 16 * half))), _mm256_cvtepi32_ps(b));
}

/* A block ready for use: 16 rows x 32 columns. */
typedef struct llm__avx2_block {
    __m256i v[2][8];         /* [half] */
    __m256 d[2][2], m[2][2]; /* scales and minimums: [half][second 16 columns] */
} llm__avx2_block;

/* n <= 4 tokens' products with a block, added to out (n, 16). */
LLM__AVX2_INLINE void llm__avx2_step(const llm__kind kind, const llm__avx2_dot_fn dot, const int n, llm__avx2_block *w, const llm__act *a, size_t at, float *out) {
    const int x2 = llm__kind_x2(kind), has_min = llm__kind_info(kind).min != LLM__SCALE_NONE;
    LLM__UNROLL
    for (int part = 0; part <= x2; part++) {
        __m256i sum[4][2];
        dot(kind, n, w->v, x2 ? part : -1, a, at, sum);
        LLM__UNROLL
        for (int t = 0; t < n; t++) {
            const __m256 d = _mm256_set1_ps(a->d[at + (size_t)t]);
            __m256 s = _mm256_setzero_ps();
            if (has_min && !x2) s = _mm256_set1_ps(a->s[at + (size_t)t]);
            if (has_min && x2) s = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_madd_epi16(llm__avx2_z(a, at + (size_t)t, part), _mm256_set1_epi16(1))));
            LLM__UNROLL
            for (int h = 0; h < 2; h++) {
                float *to = out + LLM__ROWS * t + 8 * h;
                __m256 acc = _mm256_loadu_ps(to);
                if (has_min) acc = _mm256_fmadd_ps(w->m[h][part], s, acc);
                _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_mul_ps(w->d[h][part], d), _mm256_cvtepi32_ps(sum[t][h]), acc));
            }
        }
    }
}

enum { LLM__AHEAD = 4096 }; /* bytes that weights are fetched ahead of their use; 1 to 16 KB made no difference (Zen 3, Sapphire Rapids) */

LLM__AVX2_INLINE void llm__avx2_rows(const llm__kind kind, const int vnni, const llm__avx2_dot_fn dot, const uint8_t *w, int64_t n_blocks, const llm__act *act, size_t at, int n, float *out) {
    const llm__kind_desc k = llm__kind_info(kind);
    const llm__act a = *act; /* its pointers in registers */
    const uint8_t *head = w;
    memset(out, 0, sizeof(float) * LLM__ROWS * (size_t)n);
    for (int64_t b = 0; b < n_blocks; b++, w += llm__kind_block(kind)) {
        llm__avx2_block block;
        float *to = out;
        int left = n;
        if (llm__kind_head(kind) && b % 8 == 0) {
            head = w;
            w += llm__kind_head(kind);
        }
        LLM__UNROLL
        for (int i = 0; i < llm__kind_block(kind); i += 64) _mm_prefetch((const char *)w + LLM__AHEAD + i, _MM_HINT_T0);
        const uint8_t *scales = w + 64 * k.bits, *mins = scales + llm__scale_bytes(k.scale);
        LLM__UNROLL
        for (int h = 0; h < 2; h++) {
            llm__avx2_unpack(kind, vnni, w, h, block.v[h]);
            for (int x = 0; x < 2; x++) {
                block.d[h][x] = llm__avx2_scale(k.scale, scales, head, 0, h, x);
                block.m[h][x] = llm__avx2_scale(k.min, mins, head + 32, 1, h, x);
                if (!vnni && k.min && llm__kind_centre(kind) != k.zero)
                    block.m[h][x] = _mm256_fmadd_ps(_mm256_set1_ps((float)(llm__kind_centre(kind) - k.zero)), block.d[h][x], block.m[h][x]);
            }
        }
        for (; left >= 4; left -= 4, at += 4, to += 4 * LLM__ROWS) llm__avx2_step(kind, dot, 4, &block, &a, at, to);
        if (left & 2) {
            llm__avx2_step(kind, dot, 2, &block, &a, at, to);
            at += 2;
            to += 2 * LLM__ROWS;
        }
        if (left & 1) llm__avx2_step(kind, dot, 1, &block, &a, at++, to);
    }
}

/* One loop a format. */
#define LLM__EACH_KIND(rows, ...) \
    switch (kind) { \
    case LLM__KIND_Q4Z: rows(LLM__KIND_Q4Z, __VA_ARGS__); break; \
    case LLM__KIND_Q4M: rows(LLM__KIND_Q4M, __VA_ARGS__); break; \
    case LLM__KIND_Q5Z: rows(LLM__KIND_Q5Z, __VA_ARGS__); break; \
    case LLM__KIND_Q5M: rows(LLM__KIND_Q5M, __VA_ARGS__); break; \
    case LLM__KIND_Q8: rows(LLM__KIND_Q8, __VA_ARGS__); break; \
    case LLM__KIND_IQ4: rows(LLM__KIND_IQ4, __VA_ARGS__); break; \
    case LLM__KIND_MXFP4: rows(LLM__KIND_MXFP4, __VA_ARGS__); break; \
    case LLM__KIND_Q4K: rows(LLM__KIND_Q4K, __VA_ARGS__); break; \
    case LLM__KIND_Q5K: rows(LLM__KIND_Q5K, __VA_ARGS__); break; \
    case LLM__KIND_Q6K: rows(LLM__KIND_Q6K, __VA_ARGS__); break; \
    case LLM__KIND_G16: rows(LLM__KIND_G16, __VA_ARGS__); break; \
    case LLM__KIND_G16M: rows(LLM__KIND_G16M, __VA_ARGS__); break; \
    default: break; \
    }

LLM__AVX2 static void llm__avx2_i8(llm__kind kind, const uint8_t *w, int64_t n_blocks, const llm__act *a, size_t first, int n, float *out) {
    LLM__EACH_KIND(llm__avx2_rows, 0, llm__avx2_dot, w, n_blocks, a, first, n, out)
}

/* Element i .. i + 7 of packed floats. */
LLM__AVX2_INLINE __m256 llm__avx2_load(const llm__kind kind, const uint8_t *w, int64_t i) {
    if (kind == LLM__KIND_F32) return _mm256_loadu_ps((const float *)(const void *)w + i);
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(w + 2 * i));
    if (kind == LLM__KIND_F16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* n tokens, m chunks of `len` columns from c on at once (independent sums hide the latency), added to out in order. */
LLM__AVX2_INLINE void llm__avx2_chunks(const llm__kind kind, const int n, const int m, const uint8_t *w, int64_t c, int len, const float *x, int64_t stride, float *out) {
    __m256 acc[8][2];
    LLM__UNROLL
    for (int i = 0; i < n * m; i++) acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    for (int k = 0; k < len; k++)
        LLM__UNROLL
        for (int j = 0; j < m; j++) {
            int64_t col = c + j * LLM__CHUNK + k;
            __m256 w0 = llm__avx2_load(kind, w, col * LLM__ROWS), w1 = llm__avx2_load(kind, w, col * LLM__ROWS + 8);
            LLM__UNROLL
            for (int t = 0; t < n; t++) {
                __m256 v = _mm256_broadcast_ss(x + t * stride + col);
                acc[j * n + t][0] = _mm256_fmadd_ps(w0, v, acc[j * n + t][0]);
                acc[j * n + t][1] = _mm256_fmadd_ps(w1, v, acc[j * n + t][1]);
            }
        }
    LLM__UNROLL
    for (int i = 0; i < n * m; i++)
        LLM__UNROLL
        for (int h = 0; h < 2; h++) {
            float *to = out + i % n * LLM__ROWS + 8 * h;
            _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), acc[i][h]));
        }
}

/* n tokens, all columns. */
LLM__AVX2_INLINE void llm__avx2_tokens(const llm__kind kind, const int n, const uint8_t *w, int64_t cols, const float *x, int64_t stride, float *out) {
    const int m = n == 1 ? 4 : n <= 3 ? 2 : 1;
    int64_t c = 0;
    for (; c + m * LLM__CHUNK <= cols; c += m * LLM__CHUNK) llm__avx2_chunks(kind, n, m, w, c, LLM__CHUNK, x, stride, out);
    for (; c < cols; c += LLM__CHUNK) llm__avx2_chunks(kind, n, 1, w, c, (int)LLM__MIN(cols - c, (int64_t)LLM__CHUNK), x, stride, out);
}

LLM__AVX2_INLINE void llm__avx2_floats(const llm__kind kind, const uint8_t *w, int64_t cols, const float *x, int64_t stride, int n, float *out) {
    memset(out, 0, sizeof(float) * LLM__ROWS * (size_t)n);
    for (int k; n > 0; n -= k, x += k * stride, out += k * LLM__ROWS) {
        k = n > 6 && n < 12 ? (n + 1) / 2 : LLM__MIN(n, 6);
        switch (k) {
        case 1: llm__avx2_tokens(kind, 1, w, cols, x, stride, out); break;
        case 2: llm__avx2_tokens(kind, 2, w, cols, x, stride, out); break;
        case 3: llm__avx2_tokens(kind, 3, w, cols, x, stride, out); break;
        case 4: llm__avx2_tokens(kind, 4, w, cols, x, stride, out); break;
        case 5: llm__avx2_tokens(kind, 5, w, cols, x, stride, out); break;
        default: llm__avx2_tokens(kind, 6, w, cols, x, stride, out);
        }
    }
}

LLM__AVX2 static void llm__avx2_f32(llm__kind kind, const uint8_t *w, int64_t cols, const float *x, int64_t stride, int n, float *out) {
    if (kind == LLM__KIND_F32) llm__avx2_floats(LLM__KIND_F32, w, cols, x, stride, n, out);
    else if (kind == LLM__KIND_F16) llm__avx2_floats(LLM__KIND_F16, w, cols, x, stride, n, out);
    else llm__avx2_floats(LLM__KIND_BF16, w, cols, x, stride, n, out);
}

LLM__AVX2 static void llm__avx2_quantise(const llm__act *a, size_t at, const float *x, float *lost) {
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
    __m256 v[4], top = _mm256_setzero_ps();
    __m256i q[4];
    LLM__UNROLL
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        top = _mm256_max_ps(_mm256_and_ps(v[i], no_sign), top);
    }
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    float most = _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m))), d = most * (1.0f / 127);
    __m256 inverse = _mm256_set1_ps(most > 0 ? 127 / most : 0);
    LLM__UNROLL
    for (int i = 0; i < 4; i++) {
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
        if (lost) _mm256_storeu_ps(lost + 8 * i, _mm256_fnmadd_ps(_mm256_cvtepi32_ps(q[i]), _mm256_set1_ps(d), v[i]));
    }
    __m256i half0 = _mm256_packs_epi32(q[0], q[1]), half1 = _mm256_packs_epi32(q[2], q[3]); /* 128-bit lanes interleaved: put right below */
    __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(half0, half1), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)(a->q + 32 * at), bytes);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes); /* 8 sums of 2 columns in each 128 bits: even and odd ones apart */
    pairs = _mm256_add_epi16(pairs, _mm256_shuffle_epi32(pairs, 0x4E));
    pairs = _mm256_add_epi16(pairs, _mm256_shuffle_epi32(pairs, 0xB1));
    int32_t z[2];
    z[0] = _mm256_cvtsi256_si32(pairs);
    z[1] = _mm256_extract_epi32(pairs, 4);
    memcpy(a->z + 4 * at, z, 8);
    a->d[at] = d;
    a->s[at] = d * (float)((int16_t)z[0] + (z[0] >> 16) + (int16_t)z[1] + (z[1] >> 16));
}
#endif /* LLM__X86 */

/* ============================================================================
 * >>linear   The linear operations: which thread computes which blocks, and what happens to the results.
 * ============================================================================
 * The work of a product is a grid of row blocks x tiles of tokens, cut into one contiguous range a thread in the order of the
 * rows: a thread reads its part of the weight from front to back. How it is cut changes no sum. The results of a tile (16 rows of up to 16
 * tokens) are finished while they are hot: bias, activation, scale, and into the buffer. */

/* What happens to the results of a product. */
typedef struct llm__finish {
    float *dst;              /* the first row's first output */
    int64_t stride;
    const float *bias;       /* (rows of the weight), or NULL */
    float scale, limit, softcap;
    llm_act act;
    int add, gate_up;
} llm__finish;

/* v = exp(v) for 16 values: e^x = 2^n e^r, |r| <= ln(2) / 2, and e^r by its series to r^7. */
LLM__INLINE void llm__exp16(float *v) {
    for (int i = 0; i < LLM__ROWS; i++) {
        float x = v[i] > 88 ? 88.0f : v[i] < -87 ? -87.0f : v[i];
        float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* to the nearest integer: 1.5 * 2^23 leaves no bits for a fraction */
        float r = x - n * 0.693359375f + n * 2.12194440e-4f, p = 1.0f / 5040;
        p = p * r + 1.0f / 720;
        p = p * r + 1.0f / 120;
        p = p * r + 1.0f / 24;
        p = p * r + 1.0f / 6;
        p = p * r + 0.5f;
        p = p * r + 1;
        p = p * r + 1;
        union {
            int32_t i;
            float f;
        } power;
        power.i = ((int32_t)n + 127) << 23;
        v[i] = p * power.f;
    }
}

/* g *= sigmoid(k g) for 16 values. */
LLM__INLINE void llm__silu16(float *g, const float *k_times_g) {
    float e[LLM__ROWS];
    for (int i = 0; i < LLM__ROWS; i++) e[i] = -k_times_g[i];
    llm__exp16(e);
    for (int i = 0; i < LLM__ROWS; i++) g[i] /= 1 + e[i];
}

/* g = act(g), times u where there is one. */
LLM__INLINE void llm__act16(llm_act act, float limit, float *g, const float *u) {
    float x[LLM__ROWS];
    switch (act) {
    case LLM_ACT_NONE: break;
    case LLM_ACT_SILU: llm__silu16(g, g); break;
    case LLM_ACT_GELU:
        for (int i = 0; i < LLM__ROWS; i++) g[i] *= 0.5f * (1 + erff(g[i] * 0.70710678f));
        break;
    case LLM_ACT_GELU_TANH: /* (1 + tanh y) / 2 = sigmoid(2 y) */
        for (int i = 0; i < LLM__ROWS; i++) x[i] = 1.59576912f * (g[i] + 0.044715f * g[i] * g[i] * g[i]);
        llm__silu16(g, x);
        break;
    case LLM_ACT_RELU:
    case LLM_ACT_RELU2:
        for (int i = 0; i < LLM__ROWS; i++) g[i] = g[i] > 0 ? g[i] : 0;
        for (int i = 0; i < LLM__ROWS && act == LLM_ACT_RELU2; i++) g[i] *= g[i];
        break;
    case LLM_ACT_SWIGLU_OAI:
        for (int i = 0; i < LLM__ROWS; i++) {
            g[i] = g[i] < limit ? g[i] : limit;
            x[i] = 1.702f * g[i];
        }
        llm__silu16(g, x);
        for (int i = 0; i < LLM__ROWS && u; i++) g[i] *= (u[i] < -limit ? -limit : u[i] > limit ? limit : u[i]) + 1;
        return;
    }
    for (int i = 0; i < LLM__ROWS && u; i++) g[i] *= u[i];
}

/* x = cap * tanh(x / cap) for 16 values. */
LLM__INLINE void llm__softcap16(float *x, float cap) {
    float e[LLM__ROWS];
    for (int i = 0; i < LLM__ROWS; i++) e[i] = 2 * x[i] / cap;
    llm__exp16(e);
    for (int i = 0; i < LLM__ROWS; i++) x[i] = cap * (1 - 2 / (e[i] + 1));
}

/* Finishes n tokens of one block: g (n, 16), and u (n, 16) of a gate_up pair. `col` is the output of lane 0, bias its bias (u_bias: of the up row). */
LLM__INLINE void llm__finish_body(const llm__finish *f, const llm__block *b, int64_t col, float *g, float *u, const float *bias, const float *u_bias, float *dst, int n) {
    for (int t = 0; t < n; t++, g += LLM__ROWS, u += LLM__ROWS, dst += f->stride) {
        for (int i = 0; i < b->n && bias; i++) g[i] += bias[i];
        for (int i = 0; i < b->n && u_bias; i++) u[i] += u_bias[i];
        llm__act16(f->act, f->limit, g, f->gate_up ? u : NULL);
        if (f->scale != 1)
            for (int i = 0; i < LLM__ROWS; i++) g[i] *= f->scale;
        if (f->softcap > 0) llm__softcap16(g, f->softcap);
        if (f->add)
            for (int i = 0; i < b->n; i++) dst[col + i] += g[i];
        else memcpy(dst + col, g, sizeof(float) * (size_t)b->n);
    }
}

typedef void (*llm__finish_fn)(const llm__finish *f, const llm__block *b, int64_t col, float *g, float *u, const float *bias, const float *u_bias, float *dst, int n);

static void llm__ref_finish(const llm__finish *f, const llm__block *b, int64_t col, float *g, float *u, const float *bias, const float *u_bias, float *dst, int n) {
    llm__finish_body(f, b, col, g, u, bias, u_bias, dst, n);
}

/* The kernels of an instruction set. */
typedef struct llm__kernels {
    llm__i8_fn i8;
    llm__f32_fn f32;
    llm__quantise_fn quantise;
    llm__finish_fn finish;
} llm__kernels;

#if LLM__X86
LLM__AVX2 static void llm__avx2_finish(const llm__finish *f, const llm__block *b, int64_t col, float *g, float *u, const float *bias, const float *u_bias, float *dst, int n) {
    llm__finish_body(f, b, col, g, u, bias, u_bias, dst, n);
}
#endif

static const llm__kernels *llm__kernels_of(llm__isa isa) {
    static const llm__kernels ref = {llm__ref_i8, llm__ref_f32, llm__ref_quantise, llm__ref_finish};
#if LLM__X86
    static const llm__kernels avx2 = {llm__avx2_i8, llm__avx2_f32, llm__avx2_quantise, llm__avx2_finish};
    if (isa == LLM__ISA_AVX2) return &avx2;
#endif
    return &ref;
}

/* The inputs of a product: rows of f32, and their rounded copy where the weight wants one. */
typedef struct llm__input {
    const float *x;
    int64_t stride;
    const llm__act *act;
    int rows;
} llm__input;

/* Makes this thread's share of a rounded copy of (rows, cols); cols is a multiple of 32. */
static void llm__act_fill(const llm__exec *e, const llm__act *a, llm__form form, const float *x, int64_t stride, int rows, int64_t cols) {
    llm__quantise_fn quantise = llm__kernels_of(e->isa)->quantise;
    int per = form == LLM__FORM_I8X2 ? 2 : 1;
    int64_t blocks = cols / 32, begin, end;
    float lost[32];
    llm__share(e, blocks * llm__tiles(rows, per), &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        llm__tile t = llm__tile_at(rows, per, (int)(i / blocks));
        size_t at = (size_t)t.start * (size_t)blocks + (size_t)(i % blocks) * (size_t)t.n;
        const float *from = x + t.start / per * stride + i % blocks * 32;
        for (int k = 0; k < t.n; k += per, at += (size_t)per, from += stride) {
            quantise(a, at, from, per == 2 ? lost : NULL);
            if (per == 2) quantise(a, at + 1, lost, NULL);
        }
    }
}

/* Rounds columns [src_col, src_col + cols) of the op's rows to the form a weight wants. Every thread does its share; a barrier must follow. */
LLM__UNUSED static void llm__act_make(const llm__exec *e, llm_buffer *b, int form, int32_t src_col, int64_t cols) {
    if (form != LLM__FORM_F32) llm__act_fill(e, b->act, (llm__form)form, b->data + src_col, b->stride, e->n_rows, cols);
}

/* One block times one tile: out (tile rows, 16). */
static void llm__block_tile(const llm__kernels *k, const llm_weight *w, const llm__block *b, const llm__input *in, llm__tile t, float *out) {
    const uint8_t *at = w->memory + b->offset;
    if (w->form == LLM__FORM_F32) {
        k->f32((llm__kind)b->kind, at, w->cols, in->x + t.start * in->stride, in->stride, t.n, out);
        return;
    }
    int64_t blocks = w->cols / 32;
    k->i8((llm__kind)b->kind, at, blocks, in->act, (size_t)t.start * (size_t)blocks, t.n, out);
    for (int i = 0; i < t.n * LLM__ROWS && b->scale != 1; i++) out[i] *= b->scale;
    for (int i = 0; i < t.n / 2 && w->form == LLM__FORM_I8X2; i++)
        for (int r = 0; r < LLM__ROWS; r++) out[i * LLM__ROWS + r] = out[2 * i * LLM__ROWS + r] + out[(2 * i + 1) * LLM__ROWS + r];
}

/* Rows of group g of the weight (its only one, or an expert) times all rows of the input: this thread's part [begin, end) of the items
 * (output blocks x tiles, tiles fastest). */
static void llm__product_items(const llm__exec *e, const llm_weight *w, int g, const llm__input *in, const llm__finish *f, int64_t begin, int64_t end) {
    const llm__kernels *k = llm__kernels_of(e->isa);
    float out[2][LLM__ROWS * LLM__TILE] __attribute__((aligned(64)));
    int per = w->form == LLM__FORM_I8X2 ? 2 : 1, pair = w->gate_up ? 2 : 1;
    int64_t tiles = llm__tiles(in->rows, per), base = g * (w->rows / w->n_groups);
    for (int64_t i = begin; i < end; i++) {
        const llm__block *b = &w->block[w->first_block[g] + i / tiles * pair];
        llm__tile t = llm__tile_at(in->rows, per, (int)(i % tiles));
        for (int p = 0; p < pair; p++) llm__block_tile(k, w, b + p, in, t, out[p]);
        const float *bias = f->bias ? f->bias + b->row : NULL, *u_bias = f->bias && w->gate_up ? f->bias + b[1].row : NULL;
        k->finish(f, b, b->row - base, out[0], out[1], bias, u_bias, f->dst + t.start / per * f->stride, t.n / per);
    }
}

/* Items of llm__product_items. */
static int64_t llm__product_count(const llm_weight *w, int g, int rows) {
    return (w->first_block[g + 1] - w->first_block[g]) / (w->gate_up ? 2 : 1) * llm__tiles(rows, w->form == LLM__FORM_I8X2 ? 2 : 1);
}

static llm__input llm__input_of(const llm__exec *e, const llm_buffer *src, int64_t src_col) {
    llm__input in;
    in.x = src->data + src_col;
    in.stride = src->stride;
    in.act = src->act;
    in.rows = e->n_rows;
    return in;
}

/* All threads; the rounded copy of src is current. */
LLM__UNUSED static void llm__run_linear(const llm__exec *e, const llm_linear_op *op) {
    llm__input in = llm__input_of(e, op->src, op->src_col);
    llm__finish f;
    int64_t begin, end;
    memset(&f, 0, sizeof f);
    f.dst = op->dst->data + op->dst_col;
    f.stride = op->dst->stride;
    f.bias = op->bias ? op->bias->f32 : NULL;
    f.scale = op->scale != 0 ? op->scale : 1;
    f.limit = op->limit;
    f.act = op->act;
    f.add = op->add;
    f.gate_up = op->weight->gate_up;
    llm__share(e, llm__product_count(op->weight, 0, in.rows), &begin, &end);
    llm__product_items(e, op->weight, 0, &in, &f, begin, end);
}

/* Logits of the op's rows to dst (rows, dst_stride), this rank's columns. All threads; the rounded copy of src is current. */
LLM__UNUSED static void llm__run_logits(const llm__exec *e, const llm_logits_op *op, float *dst, int64_t dst_stride) {
    llm__input in = llm__input_of(e, op->src, 0);
    llm__finish f;
    int64_t begin, end;
    memset(&f, 0, sizeof f);
    f.dst = dst + op->vocab_begin;
    f.stride = dst_stride;
    f.bias = op->bias ? op->bias->f32 : NULL;
    f.scale = op->scale != 0 ? op->scale : 1;
    f.softcap = op->softcap;
    llm__share(e, llm__product_count(op->head, 0, in.rows), &begin, &end);
    llm__product_items(e, op->head, 0, &in, &f, begin, end);
}

/* Rows of the table for this step's tokens, each thread some of them. */
LLM__UNUSED static void llm__run_embed(const llm__exec *e, const llm_embed_op *op) {
    float place[256];
    int64_t cols = op->table->cols, begin, end;
    llm__share(e, e->n_rows, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        float *x = op->dst->data + i * op->dst->stride, scale = op->scale != 0 ? op->scale : 1;
        int64_t row = (int64_t)e->step->tokens[i] - op->vocab_begin, at = (int64_t)e->step->positions[i] + op->position_offset;
        if (row >= 0 && row < op->table->rows) llm__weight_values(op->table, row, 0, cols, x);
        else memset(x, 0, sizeof(float) * (size_t)cols);
        for (int64_t c = 0; c < cols && scale != 1; c++) x[c] *= scale;
        for (int64_t c = 0; op->positions && at >= 0 && at < op->positions->rows && c < cols; c += LLM__COUNT(place)) {
            int64_t n = LLM__MIN(cols - c, (int64_t)LLM__COUNT(place));
            llm__weight_values(op->positions, at, c, n, place);
            for (int64_t k = 0; k < n; k++) x[c + k] += place[k];
        }
    }
}

/* ---- Experts ----
 * Each row goes through its k experts. The pairs (row, choice) are slots, sorted by expert, rows ascending; the tokens of an expert then form tiles as in any
 * other product. A row's results are added in the order of its choices, so they do not depend on who else is in the batch.
 * Many rows go in turns, as many at a time as the scratch memory holds. */

typedef struct llm__slots {
    int32_t *begin;          /* (n_experts + 1) first slot of each expert */
    int32_t *row;            /* (slots) the token of each slot */
    int32_t *slot_of;        /* (rows, k) */
    float *x;                /* (slots, hidden) gathered inputs */
    float *h;                /* (slots, ff) */
    float *y;                /* (slots, hidden) */
    llm__act x_act, h_act;
} llm__slots;

/* Places the parts for n slots in memory; returns the bytes (memory NULL: only that). */
static size_t llm__slots_place(llm__slots *s, uint8_t *memory, size_t n, size_t n_experts, size_t hidden, size_t ff) {
    size_t at = 0, bytes[6];
    uint8_t *part[6];
    bytes[0] = (n_experts + 1) * 4;
    bytes[1] = bytes[2] = n * 4;
    bytes[3] = bytes[5] = n * hidden * 4;
    bytes[4] = n * ff * 4;
    for (int i = 0; i < 6; at += (bytes[i++] + 63) & ~(size_t)63) part[i] = memory ? memory + at : NULL;
    s->begin = (int32_t *)(void *)part[0];
    s->row = (int32_t *)(void *)part[1];
    s->slot_of = (int32_t *)(void *)part[2];
    s->x = (float *)(void *)part[3];
    s->h = (float *)(void *)part[4];
    s->y = (float *)(void *)part[5];
    at += llm__act_place(&s->x_act, memory ? memory + at : NULL, n * ((hidden + 31) / 32));
    at = (at + 63) & ~(size_t)63;
    at += llm__act_place(&s->h_act, memory ? memory + at : NULL, n * ((ff + 31) / 32));
    return (at + 63) & ~(size_t)63;
}

/* Scratch memory that llm__run_experts wants for `rows` rows with k experts each; with less (at least that of one row) it takes turns. */
LLM__UNUSED static size_t llm__experts_scratch(int64_t rows, int64_t k, int64_t n_experts, int64_t hidden, int64_t ff) {
    llm__slots s;
    return llm__slots_place(&s, NULL, (size_t)(rows * k), (size_t)n_experts, (size_t)hidden, (size_t)ff);
}

/* The expert of choice j of a row, or -1. */
static int32_t llm__route_of(const llm_experts_op *op, int64_t row, int j) {
    float id = op->routes->data[row * op->routes->stride + j];
    return id >= 0 && id < (float)op->n_experts ? (int32_t)id : -1;
}

/* Sorts the slots of rows [row0, row0 + rows) by expert: counting sort, stable. */
static void llm__slots_sort(const llm__slots *s, const llm_experts_op *op, int64_t row0, int rows) {
    memset(s->begin, 0, sizeof(int32_t) * (size_t)(op->n_experts + 1));
    for (int i = 0; i < rows * op->k; i++) {
        int32_t expert = llm__route_of(op, row0 + i / op->k, i % op->k);
        if (expert >= 0) s->begin[expert + 1]++;
    }
    for (int i = 0; i < op->n_experts; i++) s->begin[i + 1] += s->begin[i];
    for (int i = 0; i < rows * op->k; i++) {
        int32_t expert = llm__route_of(op, row0 + i / op->k, i % op->k);
        s->slot_of[i] = -1;
        if (expert < 0) continue;
        s->slot_of[i] = s->begin[expert]++;
        s->row[s->slot_of[i]] = (int32_t)(row0 + i / op->k);
    }
    for (int i = op->n_experts; i > 0; i--) s->begin[i] = s->begin[i - 1];
    s->begin[0] = 0;
}

/* The input of expert g: its slots of a (slots, cols) matrix. */
static llm__input llm__slots_input(const llm__slots *s, int g, const float *x, int64_t cols, const llm__act *all, llm__act *own) {
    llm__input in;
    size_t blocks = (size_t)s->begin[g] * (size_t)((cols + 31) / 32);
    own->q = all->q + blocks * 32;
    own->d = all->d + blocks;
    own->s = all->s + blocks;
    own->z = all->z + 4 * blocks;
    in.x = x + (int64_t)s->begin[g] * cols;
    in.stride = cols;
    in.act = own;
    in.rows = s->begin[g + 1] - s->begin[g];
    return in;
}

/* out (slots, out_cols) = finish(x W_e^T) for every slot's expert e: all threads. */
static void llm__slots_product(const llm__exec *e, const llm__slots *s, const llm_weight *w, const float *x, const llm__act *act, llm__finish *f, float *out, int64_t out_cols) {
    int64_t total = 0, begin, end, at = 0;
    for (int g = 0; g < w->n_groups; g++) total += llm__product_count(w, g, s->begin[g + 1] - s->begin[g]);
    llm__share(e, total, &begin, &end);
    for (int g = 0; g < w->n_groups && at < end; g++) {
        llm__act own;
        llm__input in = llm__slots_input(s, g, x, w->cols, act, &own);
        int64_t n = llm__product_count(w, g, in.rows);
        f->dst = out + (int64_t)s->begin[g] * out_cols;
        f->stride = out_cols;
        if (at + n > begin) llm__product_items(e, w, g, &in, f, LLM__MAX(begin - at, (int64_t)0), LLM__MIN(end - at, n));
        at += n;
    }
}

/* Rounded copies of all slots, an expert's slots being a matrix of their own. */
static void llm__slots_round(const llm__exec *e, const llm__slots *s, const llm_weight *w, const float *x, const llm__act *act) {
    for (int g = 0; g < w->n_groups && w->form != LLM__FORM_F32; g++) {
        llm__act own;
        llm__input in = llm__slots_input(s, g, x, w->cols, act, &own);
        llm__exec turn = *e;
        turn.thread = (e->thread + g) % e->n_threads; /* small shares: not always the same thread's */
        llm__act_fill(&turn, &own, w->form, in.x, in.stride, in.rows, w->cols);
    }
}

/* dst (+)= sum over the choices, in their order, of weight * y. */
static void llm__slots_combine(const llm__exec *e, const llm__slots *s, const llm_experts_op *op, int64_t row0, int rows) {
    int64_t begin, end, hidden = op->down->rows / op->n_experts;
    llm__share(e, rows, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        float *to = op->dst->data + (row0 + i) * op->dst->stride;
        const float *weights = op->routes->data + (row0 + i) * op->routes->stride + op->k;
        if (!op->add) memset(to, 0, sizeof(float) * (size_t)hidden);
        for (int j = 0; j < op->k; j++) {
            int32_t slot = s->slot_of[i * op->k + j];
            const float *y = s->y + slot * hidden;
            for (int64_t c = 0; c < hidden && slot >= 0; c++) to[c] += weights[j] * y[c];
        }
    }
}

/* All threads, with barriers inside. */
LLM__UNUSED static void llm__run_experts(const llm__exec *e, const llm_experts_op *op) {
    int64_t hidden = op->gate_up->cols, ff = op->down->cols, out = op->down->rows / op->n_experts, wide = LLM__MAX(hidden, out);
    int turn = e->n_rows;
    llm__slots s;
    while (turn > 1 && llm__slots_place(&s, NULL, (size_t)turn * (size_t)op->k, (size_t)op->n_experts, (size_t)wide, (size_t)ff) > e->scratch_bytes) turn = (turn + 1) / 2;
    llm__slots_place(&s, (uint8_t *)e->scratch, (size_t)turn * (size_t)op->k, (size_t)op->n_experts, (size_t)wide, (size_t)ff);
    for (int row0 = 0; row0 < e->n_rows; row0 += turn) {
        int rows = LLM__MIN(turn, e->n_rows - row0);
        int64_t begin, end;
        llm__finish f;
        memset(&f, 0, sizeof f);
        if (e->thread == 0) llm__slots_sort(&s, op, row0, rows);
        llm__pool_barrier(e->pool);
        llm__share(e, s.begin[op->n_experts], &begin, &end);
        for (int64_t i = begin; i < end; i++) memcpy(s.x + i * hidden, op->src->data + s.row[i] * op->src->stride, sizeof(float) * (size_t)hidden);
        llm__pool_barrier(e->pool);
        llm__slots_round(e, &s, op->gate_up, s.x, &s.x_act);
        llm__pool_barrier(e->pool);
        f.scale = 1;
        f.limit = op->limit;
        f.act = op->act;
        f.gate_up = 1;
        f.bias = op->gate_up_bias ? op->gate_up_bias->f32 : NULL;
        llm__slots_product(e, &s, op->gate_up, s.x, &s.x_act, &f, s.h, ff);
        llm__pool_barrier(e->pool);
        llm__slots_round(e, &s, op->down, s.h, &s.h_act);
        llm__pool_barrier(e->pool);
        f.act = LLM_ACT_NONE;
        f.gate_up = 0;
        f.bias = op->down_bias ? op->down_bias->f32 : NULL;
        llm__slots_product(e, &s, op->down, s.h, &s.h_act, &f, s.y, out);
        llm__pool_barrier(e->pool);
        llm__slots_combine(e, &s, op, row0, rows);
        llm__pool_barrier(e->pool);
    }
}

/* ---- section: dtypes, linear kernels (end) ---- */

/* ============================================================================
 * >>backend
 * ============================================================================ */
/* ---- section: other kernels, cpu backend (begin) ---- */

/* ============================================================================
 * >>kernels-ops   The inner loops of everything but the linear layers, in plain C and for each instruction set.
 * ============================================================================
 * Activations are rows of f32, and every operation other than a linear layer works on one row (or one row's head) at a time. So a handful of
 * kernels is enough: sums, a scaled addition, the affine map at the end of a norm, a rotation, and three for attention.
 * Each is one function that is used for every row of every batch; that alone makes a row's bits independent of its neighbours, whatever
 * the compiler does about contraction and tails. Only `mac`, which works on several rows at once, comes in several shapes:
 * there each element of the result is one chain of fused multiply-adds in the order of k, whatever the shape.
 *
 * The table llm__row_kernels holds one set for an instruction set; a set takes over what it does not improve from the one below. */

#if defined(__clang__)
#define LLM__UNROLL _Pragma("clang loop unroll(full)")
#else
#define LLM__UNROLL _Pragma("GCC unroll 16")
#endif

enum { LLM__QUERIES = 24, LLM__BLOCK = 32, LLM__GROUP = 16 }; /* queries of an attention tile; positions of a softmax step; of a stored key group */

/* c[i][j] = (scale ? scale[i] * c[i][j] : 0) + sum over k of a[i][k] * b[j / 16][k][j % 16], for i < n and j < 16 * panels (1 or 2). */
typedef struct llm__mac {
    const float *a;
    const void *b[2]; /* f32, or f16 when `half` is set */
    float *c;
    const float *scale;
    int lda, ldb, ldc, n, k, panels, half;
} llm__mac;

/* Some queries of one sequence against one KV head: what attention keeps between the blocks. p holds scores, then weights. */
typedef struct llm__attend {
    float *q, *o, *p, *k, *v; /* (n, hd), (n, vdp), (n, 32), (2, hd, 16), (32, vdp) */
    int n, hd, vd, vdp;       /* vdp: vd rounded up to 16 */
    float m[LLM__QUERIES], l[LLM__QUERIES], scale[LLM__QUERIES]; /* running maximum and sum of each query; what the block multiplies o by */
    float slope[LLM__QUERIES];   /* ALiBi, in units of the base-2 logarithm */
    int at[LLM__QUERIES], from[LLM__QUERIES], to[LLM__QUERIES];  /* each query's position and the positions it sees */
    float softcap;            /* 0: none */
    int alibi;
} llm__attend;

typedef struct llm__row_kernels {
    float (*sum)(const float *x, int n);
    float (*dot)(const float *a, const float *b, int n);
    void (*add)(float *x, const float *y, float scale, int n); /* x += scale * y */
    void (*affine)(float *dst, const float *src, float shift, float scale, const float *w, const float *b, int n); /* (src - shift) * scale * w + b */
    void (*rotate)(float *x, const float *rope, int half, int interleaved); /* rope: half cosines, half sines */
    void (*to_half)(uint16_t *dst, const float *src, int n);
    void (*expand)(llm_kv_type type, const uint8_t *src, int n, float *low, float *high); /* n stored elements to f32; int4: high nibbles to high */
    void (*mac)(const llm__mac *m);
    void (*soften)(llm__attend *t, int block); /* scores of the block that starts at this position to weights */
    int reads_half;                            /* mac takes f16 */
} llm__row_kernels;

static float llm__sum_scalar(const float *x, int n) {
    double s = 0;
    for (int i = 0; i < n; i++) s += x[i];
    return (float)s;
}

static float llm__dot_scalar(const float *a, const float *b, int n) {
    double s = 0;
    for (int i = 0; i < n; i++) s += (double)a[i] * b[i];
    return (float)s;
}

static void llm__add_scalar(float *x, const float *y, float scale, int n) {
    for (int i = 0; i < n; i++) x[i] += scale * y[i];
}

static void llm__affine_scalar(float *dst, const float *src, float shift, float scale, const float *w, const float *b, int n) {
    for (int i = 0; i < n; i++) {
        float v = (src[i] - shift) * scale * (w ? w[i] : 1);
        dst[i] = b ? v + b[i] : v;
    }
}

static void llm__rotate_pairs(float *x, const float *rope, int from, int half, int interleaved) {
    int step = interleaved ? 2 : 1, other = interleaved ? 1 : half;
    for (int i = from; i < half; i++) {
        float c = rope[i], s = rope[half + i], u = x[i * step], v = x[i * step + other];
        x[i * step] = u * c - v * s;
        x[i * step + other] = v * c + u * s;
    }
}

static void llm__rotate_scalar(float *x, const float *rope, int half, int interleaved) { llm__rotate_pairs(x, rope, 0, half, interleaved); }

/* Values too large for f16 become its largest. */
static void llm__to_half_scalar(uint16_t *dst, const float *src, int n) {
    for (int i = 0; i < n; i++) dst[i] = llm__f32_to_f16(src[i] > 65504 ? 65504 : src[i] < -65504 ? -65504 : src[i]);
}

static void llm__expand_scalar(llm_kv_type type, const uint8_t *src, int n, float *low, float *high) {
    const uint16_t *h = (const uint16_t *)(const void *)src;
    for (int i = 0; i < n; i++) switch (type) {
        case LLM_KV_F16: low[i] = llm__f16_to_f32(h[i]); break;
        case LLM_KV_BF16: low[i] = llm__bf16_to_f32(h[i]); break;
        case LLM_KV_FP8_E4M3: low[i] = llm__e4m3_to_f32(src[i]); break;
        case LLM_KV_FP8_E5M2: low[i] = llm__e5m2_to_f32(src[i]); break;
        case LLM_KV_INT8: low[i] = src[i]; break;
        case LLM_KV_INT4:
            low[i] = (float)(src[i] & 15);
            high[i] = (float)(src[i] >> 4);
            break;
        default: memcpy(low + i, src + 4 * i, 4);
        }
}

static void llm__mac_scalar(const llm__mac *m) {
    for (int i = 0; i < m->n; i++)
        for (int p = 0; p < m->panels; p++)
            for (int j = 0; j < LLM__GROUP; j++) {
                float *c = m->c + i * m->ldc + p * LLM__GROUP + j, s = m->scale ? *c * m->scale[i] : 0;
                for (int k = 0; k < m->k; k++) s += m->a[i * m->lda + k] * ((const float *)m->b[p])[k * m->ldb + j];
                *c = s;
            }
}

/* What some models do to scores first: soft cap and ALiBi. Then scores are in units of the base-2 logarithm. */
static void llm__attend_bias(llm__attend *t, int block) {
    const float log2e = 1.44269504f;
    if (!t->softcap && !t->alibi) return;
    for (int i = 0; i < t->n; i++)
        for (int j = 0; j < LLM__BLOCK; j++) {
            float *s = t->p + i * LLM__BLOCK + j;
            if (t->softcap) *s = log2e * t->softcap * tanhf(*s / t->softcap);
            *s += t->slope[i] * (float)(block + j - t->at[i]);
        }
}

/* The part of the block that query i sees: [*from, *to) of 0 .. 32. */
LLM__INLINE void llm__attend_range(const llm__attend *t, int i, int block, int *from, int *to) {
    *from = LLM__MAX(t->from[i] - block, 0);
    *to = LLM__MIN(t->to[i] - block, LLM__BLOCK);
}

static void llm__soften_scalar(llm__attend *t, int block) {
    for (int i = 0; i < t->n; i++) {
        float *p = t->p + i * LLM__BLOCK, top = t->m[i], sum = 0;
        int from, to;
        llm__attend_range(t, i, block, &from, &to);
        for (int j = from; j < to; j++) top = p[j] > top ? p[j] : top;
        for (int j = 0; j < LLM__BLOCK; j++) {
            p[j] = j >= from && j < to ? exp2f(p[j] - top) : 0;
            sum += p[j];
        }
        t->scale[i] = exp2f(t->m[i] - top);
        t->l[i] = t->l[i] * t->scale[i] + sum;
        t->m[i] = top;
    }
}

#if LLM__X86
/* ---- AVX2 ---- */

LLM__AVX2_INLINE float llm__avx2_total(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

LLM__AVX2 static float llm__avx2_dot_rows(const float *a, const float *b, int n) {
    __m256 s[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    float tail = 0;
    int i = 0;
    for (; i + 32 <= n; i += 32)
        LLM__UNROLL for (int j = 0; j < 4; j++) s[j] = _mm256_fmadd_ps(_mm256_loadu_ps(a + i + 8 * j), _mm256_loadu_ps(b + i + 8 * j), s[j]);
    for (; i + 8 <= n; i += 8) s[0] = _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i), s[0]);
    for (; i < n; i++) tail += a[i] * b[i];
    return llm__avx2_total(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3]))) + tail;
}

LLM__AVX2 static float llm__avx2_sum(const float *x, int n) {
    __m256 s[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    float tail = 0;
    int i = 0;
    for (; i + 16 <= n; i += 16)
        LLM__UNROLL for (int j = 0; j < 2; j++) s[j] = _mm256_add_ps(s[j], _mm256_loadu_ps(x + i + 8 * j));
    for (; i < n; i++) tail += x[i];
    return llm__avx2_total(_mm256_add_ps(s[0], s[1])) + tail;
}

LLM__AVX2 static void llm__avx2_add(float *x, const float *y, float scale, int n) {
    const __m256 f = _mm256_set1_ps(scale);
    int i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(x + i, _mm256_fmadd_ps(f, _mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    for (; i < n; i++) x[i] += scale * y[i];
}

LLM__AVX2 static void llm__avx2_affine(float *dst, const float *src, float shift, float scale, const float *w, const float *b, int n) {
    const __m256 by = _mm256_set1_ps(shift), f = _mm256_set1_ps(scale);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(src + i), by), f);
        if (w) v = _mm256_mul_ps(v, _mm256_loadu_ps(w + i));
        if (b) v = _mm256_add_ps(v, _mm256_loadu_ps(b + i));
        _mm256_storeu_ps(dst + i, v);
    }
    llm__affine_scalar(dst + i, src + i, shift, scale, w ? w + i : NULL, b ? b + i : NULL, n - i);
}

LLM__AVX2 static void llm__avx2_rotate(float *x, const float *rope, int half, int interleaved) {
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    int i = 0;
    for (; i + 4 <= half && interleaved; i += 4) {
        __m256 v = _mm256_loadu_ps(x + 2 * i), c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(rope + i)), twice);
        __m256 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(rope + half + i)), twice);
        _mm256_storeu_ps(x + 2 * i, _mm256_fmaddsub_ps(v, c, _mm256_mul_ps(_mm256_permute_ps(v, 0xB1), s)));
    }
    for (; i + 8 <= half && !interleaved; i += 8) {
        __m256 u = _mm256_loadu_ps(x + i), v = _mm256_loadu_ps(x + half + i), c = _mm256_loadu_ps(rope + i), s = _mm256_loadu_ps(rope + half + i);
        _mm256_storeu_ps(x + i, _mm256_fmsub_ps(u, c, _mm256_mul_ps(v, s)));
        _mm256_storeu_ps(x + half + i, _mm256_fmadd_ps(v, c, _mm256_mul_ps(u, s)));
    }
    llm__rotate_pairs(x, rope, i, half, interleaved);
}

LLM__AVX2 static void llm__avx2_to_half(uint16_t *dst, const float *src, int n) {
    const __m256 top = _mm256_set1_ps(65504), bottom = _mm256_set1_ps(-65504);
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(dst + i), _mm256_cvtps_ph(_mm256_max_ps(bottom, _mm256_min_ps(top, _mm256_loadu_ps(src + i))), _MM_FROUND_TO_NEAREST_INT));
    llm__to_half_scalar(dst + i, src + i, n - i);
}

LLM__AVX2_INLINE __m256i llm__avx2_bytes(const void *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }

LLM__AVX2_INLINE __m256 llm__avx2_stored(llm_kv_type type, const uint8_t *p) {
    if (type == LLM_KV_F16) return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
    if (type == LLM_KV_BF16) return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16));
    if (type == LLM_KV_FP8_E5M2) return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), _mm_loadl_epi64((const __m128i *)(const void *)p)));
    if (type == LLM_KV_INT8) return _mm256_cvtepi32_ps(llm__avx2_bytes(p));
    if (type == LLM_KV_F32) return _mm256_loadu_ps((const float *)(const void *)p);
    __m256i b = llm__avx2_bytes(p); /* e4m3 is f32's layout with fewer bits: moved into place, the exponent is 120 too small */
    __m256i sign = _mm256_slli_epi32(_mm256_and_si256(b, _mm256_set1_epi32(0x80)), 24), rest = _mm256_slli_epi32(_mm256_and_si256(b, _mm256_set1_epi32(0x7F)), 20);
    return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_or_si256(sign, rest)), _mm256_castsi256_ps(_mm256_set1_epi32((127 + 120) << 23)));
}

LLM__AVX2 static void llm__avx2_expand(llm_kv_type type, const uint8_t *src, int n, float *low, float *high) {
    const int size = type == LLM_KV_F32 ? 4 : type == LLM_KV_F16 || type == LLM_KV_BF16 ? 2 : 1;
    const __m256i nibble = _mm256_set1_epi32(15);
    int i = 0;
    for (; i + 8 <= n && type == LLM_KV_INT4; i += 8) {
        __m256i b = llm__avx2_bytes(src + i);
        _mm256_storeu_ps(low + i, _mm256_cvtepi32_ps(_mm256_and_si256(b, nibble)));
        _mm256_storeu_ps(high + i, _mm256_cvtepi32_ps(_mm256_srli_epi32(b, 4)));
    }
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(low + i, llm__avx2_stored(type, src + i * size));
    llm__expand_scalar(type, src + i * size, n - i, low + i, high ? high + i : NULL);
}

/* Rows [i, i + n) of the product, n <= 3: 12 sums in registers. Every sum is one chain of fused multiply-adds, so n does not matter. */
LLM__AVX2_INLINE void llm__avx2_mac_rows(const llm__mac *m, int i, const int n, const int panels, const int half) {
    const float *a = m->a + i * m->lda;
    const char *b[2] = {(const char *)m->b[0], (const char *)m->b[1]};
    float *c = m->c + i * m->ldc;
    const int size = half ? 2 : 4;
    __m256 s[3][4], x[3];
    LLM__UNROLL for (int r = 0; r < n; r++)
        LLM__UNROLL for (int j = 0; j < 2 * panels; j++) s[r][j] = m->scale ? _mm256_mul_ps(_mm256_loadu_ps(c + r * m->ldc + 8 * j), _mm256_set1_ps(m->scale[i + r])) : _mm256_setzero_ps();
    for (int k = 0; k < m->k; k++) {
        LLM__UNROLL for (int r = 0; r < n; r++) x[r] = _mm256_set1_ps(a[r * m->lda + k]);
        LLM__UNROLL for (int j = 0; j < 2 * panels; j++) {
            const char *p = b[j / 2] + (int64_t)k * m->ldb * size + j % 2 * 8 * size;
            __m256 v = half ? _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)) : _mm256_loadu_ps((const float *)(const void *)p);
            LLM__UNROLL for (int r = 0; r < n; r++) s[r][j] = _mm256_fmadd_ps(x[r], v, s[r][j]);
        }
    }
    LLM__UNROLL for (int r = 0; r < n; r++)
        LLM__UNROLL for (int j = 0; j < 2 * panels; j++) _mm256_storeu_ps(c + r * m->ldc + 8 * j, s[r][j]);
}

LLM__AVX2_INLINE void llm__avx2_mac_shape(const llm__mac *m, const int panels, const int half) {
    int i = 0;
    for (; i + 3 <= m->n; i += 3) llm__avx2_mac_rows(m, i, 3, panels, half);
    if (m->n - i == 2) llm__avx2_mac_rows(m, i, 2, panels, half);
    if (m->n - i == 1) llm__avx2_mac_rows(m, i, 1, panels, half);
}

LLM__AVX2 static void llm__avx2_mac(const llm__mac *m) {
    if (m->panels == 2 && m->half) llm__avx2_mac_shape(m, 2, 1);
    else if (m->panels == 2) llm__avx2_mac_shape(m, 2, 0);
    else if (m->half) llm__avx2_mac_shape(m, 1, 1);
    else llm__avx2_mac_shape(m, 1, 0);
}

/* 2^x for x <= 0, exactly 1 for 0; below 2^-126 it stays there. */
LLM__AVX2_INLINE __m256 llm__avx2_exp2(__m256 x) {
    static const float c[6] = {1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1};
    x = _mm256_max_ps(_mm256_set1_ps(-126), x);
    __m256 n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), f = _mm256_sub_ps(x, n), p = _mm256_set1_ps(1.5403530e-4f);
    LLM__UNROLL for (int i = 0; i < 6; i++) p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(c[i]));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23)));
}

LLM__AVX2_INLINE float llm__avx2_top(__m256 v) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

LLM__AVX2 static void llm__avx2_soften(llm__attend *t, int block) {
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int i = 0; i < t->n; i++) {
        float *p = t->p + i * LLM__BLOCK;
        int from, to;
        __m256 v[4], seen[4], top = _mm256_set1_ps(t->m[i]), sum = _mm256_setzero_ps();
        llm__attend_range(t, i, block, &from, &to);
        LLM__UNROLL for (int j = 0; j < 4; j++) {
            __m256i at = _mm256_add_epi32(index, _mm256_set1_epi32(8 * j));
            seen[j] = _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(from), at), _mm256_cmpgt_epi32(_mm256_set1_epi32(to), at)));
            v[j] = _mm256_loadu_ps(p + 8 * j);
            top = _mm256_max_ps(top, _mm256_blendv_ps(top, v[j], seen[j]));
        }
        float old = t->m[i], best = llm__avx2_top(top);
        LLM__UNROLL for (int j = 0; j < 4; j++) {
            v[j] = _mm256_and_ps(llm__avx2_exp2(_mm256_sub_ps(v[j], _mm256_set1_ps(best))), seen[j]);
            sum = _mm256_add_ps(sum, v[j]);
            _mm256_storeu_ps(p + 8 * j, v[j]);
        }
        t->scale[i] = _mm256_cvtss_f32(llm__avx2_exp2(_mm256_set1_ps(old - best)));
        t->l[i] = t->l[i] * t->scale[i] + llm__avx2_total(sum);
        t->m[i] = best;
    }
}
#endif

static const llm__row_kernels *llm__row_kernels_of(llm__isa isa) {
    static const llm__row_kernels scalar = {llm__sum_scalar, llm__dot_scalar, llm__add_scalar, llm__affine_scalar, llm__rotate_scalar, llm__to_half_scalar,
                                            llm__expand_scalar, llm__mac_scalar, llm__soften_scalar, 0};
#if LLM__X86
    static const llm__row_kernels avx2 = {llm__avx2_sum, llm__avx2_dot_rows, llm__avx2_add, llm__avx2_affine, llm__avx2_rotate, llm__avx2_to_half,
                                          llm__avx2_expand, llm__avx2_mac, llm__avx2_soften, 1};
    if (isa == LLM__ISA_AVX2 || isa == LLM__ISA_AVXVNNI || isa == LLM__ISA_AVX512 || isa == LLM__ISA_AVX512VNNI) return &avx2;
#endif
    (void)isa;
    return &scalar;
}

/* dst = norm(src) of one row; dst may be src. w and b may be NULL: 1 and 0. */
static void llm__norm_row(const llm__row_kernels *k, llm_norm_kind kind, float *dst, const float *src, int n, const float *w, const float *b, float eps) {
    if (kind == LLM_NORM_NONE) {
        if (dst != src) memcpy(dst, src, (size_t)n * sizeof *dst);
        return;
    }
    if (kind == LLM_NORM_LAYER) {
        k->affine(dst, src, k->sum(src, n) / (float)n, 1, NULL, NULL, n);
        src = dst;
    }
    k->affine(dst, src, 0, 1 / sqrtf(k->dot(src, src, n) / (float)n + eps), w, b, n);
}

/* ============================================================================
 * >>attention   KV pages, and attention over them.
 * ============================================================================
 * A page holds `page_tokens` tokens of every layer. Inside it each (layer, KV head) has one contiguous part: the keys transposed in groups of 16
 * positions [group][dim][16 positions], so that one vector holds one dimension of 16 keys; the values row by row; then, for the
 * types that need them, a scale and an offset a token. Elements: f32, f16, bf16, fp8 (scaled so that the token's largest value is the type's),
 * int8 and int4 (asymmetric: value = offset + scale * q; a byte of int4 holds dimension i low and i + half high).
 *
 * Positions are taken in blocks of 32 counted from position 0, in order, with the running maximum and sum of the online softmax. A query's
 * result is a function of its own blocks: which other queries share its tile, chunk or step never changes a bit. Blocks that no query of the tile
 * sees are not touched (sliding windows), nor are the pages of groups of 16 positions that none sees; weights of single positions that a
 * query does not see are exactly 0. So the pages before a window may be given back, and what lies in unused positions never matters.
 *
 * A tile is up to 24 (query, head) pairs of one sequence and one KV head: each block of keys and values is loaded once for all heads of
 * the group. Latent attention is the same with one KV head, whose values are the first dimensions of its keys. */

/* Where one layer lies in a page, in bytes. Scales: K scale, K offset, V scale, V offset, page_tokens floats each. */
typedef struct llm__kv_place {
    llm_kv_layer shape;
    int64_t offset, head_bytes, v_offset, scale_offset;
    int k_elements, v_elements; /* stored elements of a token */
} llm__kv_place;

typedef struct llm__kv_cache {
    llm_kv_type type;
    int element_bytes, scaled;
    int n_layers, page_tokens;
    int64_t page_bytes, n_pages;
    llm__kv_place *layer;
    uint8_t **base; /* (ranks) */
} llm__kv_cache;

static void llm__kv_type_set(llm__kv_cache *kv, llm_kv_type type) {
    kv->type = type;
    kv->element_bytes = type == LLM_KV_F32 ? 4 : type == LLM_KV_F16 || type == LLM_KV_BF16 ? 2 : 1;
    kv->scaled = kv->element_bytes == 1;
}

/* Fills in the place of one layer that starts at `offset`. Returns where the next one starts; *ok is cleared when it does not fit. */
static uint64_t llm__kv_place_layer(const llm__kv_cache *kv, const llm_kv_layer *shape, int page_tokens, uint64_t offset, llm__kv_place *p, int *ok) {
    int halve = kv->type == LLM_KV_INT4;
    uint64_t tokens = (uint64_t)page_tokens, size = (uint64_t)kv->element_bytes;
    p->shape = *shape;
    p->k_elements = halve ? (shape->head_dim + 1) / 2 : shape->head_dim;
    p->v_elements = halve ? (shape->v_head_dim + 1) / 2 : shape->v_head_dim;
    p->offset = (int64_t)offset;
    uint64_t at = llm__align_up(llm__mul(tokens * size, (uint64_t)p->k_elements, ok), 64, ok);
    p->v_offset = (int64_t)at;
    at = llm__align_up(llm__add(at, llm__mul(tokens * size, (uint64_t)p->v_elements, ok), ok), 64, ok);
    p->scale_offset = (int64_t)at;
    if (kv->scaled) at = llm__add(at, tokens * 4 * sizeof(float), ok);
    p->head_bytes = (int64_t)llm__align_up(at, 64, ok);
    return llm__add(offset, llm__mul((uint64_t)p->head_bytes, (uint64_t)shape->n_kv_heads, ok), ok);
}

/* The sequence of one rank's layer and head that a tile works on. */
typedef struct llm__kv_view {
    const llm__kv_cache *kv;
    const llm__kv_place *place;
    uint8_t *base;
    const int32_t *pages;
    int head;
} llm__kv_view;

LLM__INLINE uint8_t *llm__kv_part(const llm__kv_view *v, int position) {
    return v->base + v->pages[position / v->kv->page_tokens] * v->kv->page_bytes + v->place->offset + v->head * v->place->head_bytes;
}

/* Turns a row of n values into stored elements at `out`, with the scale and offset that go beside them. */
static void llm__kv_encode(const llm__row_kernels *k, llm_kv_type type, const float *x, int n, uint8_t *out, float *scale, float *offset) {
    float low = x[0], high = x[0];
    *scale = 1;
    *offset = 0;
    if (type == LLM_KV_F32) memcpy(out, x, (size_t)n * 4);
    else if (type == LLM_KV_F16) k->to_half((uint16_t *)(void *)out, x, n);
    else if (type == LLM_KV_BF16) for (int i = 0; i < n; i++) ((uint16_t *)(void *)out)[i] = llm__f32_to_bf16(x[i]);
    if (type == LLM_KV_F32 || type == LLM_KV_F16 || type == LLM_KV_BF16) return;
    for (int i = 1; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    if (type == LLM_KV_FP8_E4M3 || type == LLM_KV_FP8_E5M2) {
        float largest = type == LLM_KV_FP8_E4M3 ? 448.0f : 57344.0f, top = LLM__MAX(high, -low);
        if (top > 0) *scale = top / largest;
        for (int i = 0; i < n; i++) {
            float v = x[i] / *scale;
            v = v > largest ? largest : v > -largest ? v : -largest; /* not a number becomes the smallest */
            out[i] = type == LLM_KV_FP8_E4M3 ? llm__f32_to_e4m3(v) : llm__f32_to_e5m2(v);
        }
        return;
    }
    float levels = type == LLM_KV_INT8 ? 255.0f : 15.0f;
    int half = (n + 1) / 2;
    *offset = low;
    if (high > low) *scale = (high - low) / levels;
    for (int i = 0; i < n; i++) {
        float v = (x[i] - low) / *scale + 0.5f;
        uint8_t q = (uint8_t)(v > levels ? levels : v > 0 ? v : 0);
        if (type == LLM_KV_INT8) out[i] = q;
        else if (i < half) out[i] = q;
        else out[i - half] = (uint8_t)(out[i - half] | q << 4);
    }
}

/* Writes a token's key (and value, unless the layer is latent) of one head. `scratch` holds 4 * (head_dim + 1) bytes. */
static void llm__kv_write_token(const llm__row_kernels *k, const llm__kv_view *view, int position, const float *key, const float *value, uint8_t *scratch) {
    const llm__kv_place *p = view->place;
    int t = position % view->kv->page_tokens, tokens = view->kv->page_tokens, n = p->k_elements, size = view->kv->element_bytes;
    uint8_t *part = llm__kv_part(view, position);
    float *scales = (float *)(void *)(part + p->scale_offset), scale, offset;
    llm__kv_encode(k, view->kv->type, key, p->shape.head_dim, scratch, &scale, &offset);
    if (view->kv->scaled) scales[t] = scale, scales[tokens + t] = offset;
    uint8_t *to = part + ((int64_t)(t / LLM__GROUP) * n * LLM__GROUP + t % LLM__GROUP) * size;
    for (int i = 0; i < n; i++) {
        if (size == 2) memcpy(to + i * LLM__GROUP * 2, scratch + i * 2, 2);
        else if (size == 1) to[i * LLM__GROUP] = scratch[i];
        else memcpy(to + i * LLM__GROUP * 4, scratch + i * 4, 4);
    }
    if (!p->shape.v_head_dim) return;
    llm__kv_encode(k, view->kv->type, value, p->shape.v_head_dim, part + p->v_offset + (int64_t)t * p->v_elements * size, &scale, &offset);
    if (view->kv->scaled) scales[2 * tokens + t] = scale, scales[3 * tokens + t] = offset;
}

/* The group of 16 keys at `position` to f32 (hd, 16). The scratch may take one row more (int4 of an odd head_dim). */
static void llm__kv_load_keys(const llm__row_kernels *k, const llm__kv_view *view, int position, float *out) {
    const llm__kv_place *p = view->place;
    const uint8_t *part = llm__kv_part(view, position);
    int t = position % view->kv->page_tokens, n = p->k_elements;
    k->expand(view->kv->type, part + (int64_t)t * n * view->kv->element_bytes, n * LLM__GROUP, out, out + n * LLM__GROUP);
    if (!view->kv->scaled) return;
    const float *scale = (const float *)(const void *)(part + p->scale_offset) + t, *offset = scale + view->kv->page_tokens;
    for (int d = 0; d < p->shape.head_dim; d++, out += LLM__GROUP)
        for (int i = 0; i < LLM__GROUP; i++) out[i] = out[i] * scale[i] + offset[i];
}

/* Values of the positions [from, to), all of one group, to rows of f32 with stride vdp. */
static void llm__kv_load_values(const llm__row_kernels *k, const llm__kv_view *view, int from, int to, float *out, int vdp) {
    const llm__kv_place *p = view->place;
    const uint8_t *part = llm__kv_part(view, from);
    for (int t = from % view->kv->page_tokens, end = t + to - from; t < end; t++, out += vdp) {
        k->expand(view->kv->type, part + p->v_offset + (int64_t)t * p->v_elements * view->kv->element_bytes, p->v_elements, out, out + p->v_elements);
        if (!view->kv->scaled) continue;
        const float *scale = (const float *)(const void *)(part + p->scale_offset) + 2 * view->kv->page_tokens + t;
        float s = scale[0], offset = scale[view->kv->page_tokens];
        for (int i = 0; i < p->shape.v_head_dim; i++) out[i] = out[i] * s + offset;
    }
}

/* Scores of the block: the groups of 16 keys that [from, to) of the block touches. */
static void llm__attend_scores(const llm__row_kernels *k, llm__attend *t, const llm__kv_view *view, int block, int from, int to, int direct) {
    llm__mac m;
    int first = from / LLM__GROUP, last = (to - 1) / LLM__GROUP;
    for (int g = first; g <= last; g++) {
        int position = block + g * LLM__GROUP;
        float *keys = t->k + g * (t->hd + 1) * LLM__GROUP;
        if (!direct) llm__kv_load_keys(k, view, position, keys);
        m.b[g - first] = direct ? llm__kv_part(view, position) + (int64_t)(position % view->kv->page_tokens) * t->hd * 2 : (const void *)keys;
    }
    m.a = t->q;
    m.lda = t->hd;
    m.ldb = LLM__GROUP;
    m.c = t->p + first * LLM__GROUP;
    m.ldc = LLM__BLOCK;
    m.scale = NULL;
    m.n = t->n;
    m.k = t->hd;
    m.panels = last - first + 1;
    m.half = direct;
    k->mac(&m);
}

/* o = scale * o + weights x values, for the positions [from, to) of the block. */
static void llm__attend_values(const llm__row_kernels *k, llm__attend *t, const llm__kv_view *view, int block, int from, int to, int direct) {
    static const float ones[LLM__QUERIES] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const float *scale = t->scale;
    for (int i = from, end; i < to; i = end, scale = ones) {
        llm__mac m;
        end = LLM__MIN(to, (i / LLM__GROUP + 1) * LLM__GROUP);
        const uint8_t *values = (const uint8_t *)t->v;
        if (direct) values = llm__kv_part(view, block + i) + view->place->v_offset + (int64_t)((block + i) % view->kv->page_tokens) * t->vd * 2;
        else if (view->place->shape.v_head_dim) llm__kv_load_values(k, view, block + i, block + end, t->v, t->vdp);
        else
            for (int d = 0; d < t->vd; d++) /* latent: values are keys */
                for (int j = i; j < end; j++) t->v[(j - i) * t->vdp + d] = t->k[((j / LLM__GROUP) * (t->hd + 1) + d) * LLM__GROUP + j % LLM__GROUP];
        m.a = t->p + i;
        m.lda = LLM__BLOCK;
        m.ldb = m.ldc = t->vdp;
        m.scale = scale;
        m.n = t->n;
        m.k = end - i;
        m.half = direct;
        for (int j = 0; j < t->vdp; j += 2 * LLM__GROUP) {
            m.panels = t->vdp - j > LLM__GROUP ? 2 : 1;
            m.b[0] = values + j * (direct ? 2 : 4);
            m.b[1] = values + (j + LLM__GROUP) * (direct ? 2 : 4);
            m.c = t->o + j;
            k->mac(&m);
        }
    }
}

/* Attention of a tile whose q, at, from, to, m and l are set; leaves o / l in o. */
static void llm__attend_run(const llm__row_kernels *k, llm__attend *t, const llm__kv_view *view) {
    int first = t->from[0], last = t->to[0];
    for (int i = 1; i < t->n; i++) {
        first = LLM__MIN(first, t->from[i]);
        last = LLM__MAX(last, t->to[i]);
    }
    /* few queries read f16 as it lies; many share one conversion to f32. The sums are the same. */
    int direct = k->reads_half && view->kv->type == LLM_KV_F16 && t->n <= 4 && t->vd == t->vdp && view->place->shape.v_head_dim;
    memset(t->o, 0, (size_t)(t->n * t->vdp) * sizeof(float));
    for (int block = first / LLM__BLOCK * LLM__BLOCK; block < last; block += LLM__BLOCK) {
        int from = LLM__MAX(first - block, 0), to = LLM__MIN(last - block, LLM__BLOCK);
        llm__attend_scores(k, t, view, block, from, to, direct);
        llm__attend_bias(t, block);
        k->soften(t, block);
        llm__attend_values(k, t, view, block, from, to, direct);
    }
    for (int i = 0; i < t->n; i++) {
        float r = t->l[i] > 0 ? 1 / t->l[i] : 0;
        for (int d = 0; d < t->vd; d++) t->o[i * t->vdp + d] *= r;
    }
}

/* Floats of scratch that a tile needs, and its arrays laid out in them. */
static size_t llm__attend_floats(int hd, int vd) {
    size_t vdp = ((size_t)vd + 15) & ~(size_t)15, hdp = ((size_t)hd + 15) & ~(size_t)15;
    return LLM__QUERIES * (hdp + vdp + LLM__BLOCK) + 2 * ((size_t)hd + 1) * LLM__GROUP + LLM__BLOCK * vdp + 64;
}

static void llm__attend_place(llm__attend *t, float *scratch, int hd, int vd) {
    memset(t, 0, sizeof *t);
    t->hd = hd;
    t->vd = vd;
    t->vdp = (vd + 15) & ~15;
    t->k = scratch;
    t->v = t->k + 2 * (hd + 1) * LLM__GROUP;
    t->o = t->v + LLM__BLOCK * t->vdp;
    t->p = t->o + LLM__QUERIES * t->vdp;
    t->q = t->p + LLM__QUERIES * LLM__BLOCK;
}

/* How the queries of a step are cut into jobs: by sequence, tile of rows, KV head and some of the head's query heads. */
typedef struct llm__attend_jobs {
    const llm_step *step;
    int rows, heads, head_tiles, n_kv, group; /* of a tile; tiles of a group's heads; KV heads; query heads of each */
    int n;                                    /* jobs in all */
    int seq, base;                            /* cursor: tiles [base, ...) belong to seq; walks downwards */
} llm__attend_jobs;

typedef struct llm__attend_job {
    int seq, row, n_rows, kv_head, head, n_heads; /* rows of the step; head: first query head */
} llm__attend_job;

LLM__INLINE int llm__jobs_tiles(const llm__attend_jobs *j, int seq) {
    return (j->step->seq_begin[seq + 1] - j->step->seq_begin[seq] + j->rows - 1) / j->rows;
}

/* Cuts so that every thread has work. Heads of a group stay together (they share loads) unless that leaves threads idle. */
static void llm__jobs_cut(llm__attend_jobs *j, const llm_step *step, int n_kv, int group, int n_threads) {
    int tiles = 0;
    j->step = step;
    j->n_kv = n_kv;
    j->group = group;
    j->head_tiles = (group + LLM__QUERIES - 1) / LLM__QUERIES;
    j->heads = (group + j->head_tiles - 1) / j->head_tiles;
    j->rows = LLM__QUERIES / j->heads;
    for (int s = 0; s < step->shape.n_seqs; s++) tiles += llm__jobs_tiles(j, s);
    for (;; j->heads = (j->heads + 1) / 2) {
        j->head_tiles = (group + j->heads - 1) / j->heads;
        j->n = tiles * n_kv * j->head_tiles;
        if (j->heads == 1 || j->n >= 2 * n_threads || j->n % n_threads == 0) break;
    }
    j->seq = step->shape.n_seqs - 1;
    j->base = tiles - (j->seq >= 0 ? llm__jobs_tiles(j, j->seq) : 0);
}

/* Job i, counted from the last tile (the longest context) down. A thread asks for ascending i. */
static llm__attend_job llm__jobs_get(llm__attend_jobs *j, int i) {
    llm__attend_job job;
    i = j->n - 1 - i;
    int per_tile = j->n_kv * j->head_tiles, tile = i / per_tile, part = i % per_tile;
    while (tile < j->base) {
        j->seq--;
        j->base -= llm__jobs_tiles(j, j->seq);
    }
    job.seq = j->seq;
    job.row = j->step->seq_begin[j->seq] + (tile - j->base) * j->rows;
    job.n_rows = LLM__MIN(j->rows, j->step->seq_begin[j->seq + 1] - job.row);
    job.kv_head = part / j->head_tiles;
    job.head = part % j->head_tiles * j->heads;
    job.n_heads = LLM__MIN(j->heads, j->group - job.head);
    job.head += job.kv_head * j->group;
    return job;
}

/* Position in the cache of a row of the step. */
LLM__INLINE int llm__row_position(const llm_step *s, int row) {
    int seq = s->seq_of_row[row];
    return s->seq_len[seq] - (s->seq_begin[seq + 1] - row);
}

/* ============================================================================
 * >>backend   The CPU's table of operations.
 * ============================================================================
 * An operation appends a record to its rank's list. end_step runs the lists of all ranks in lockstep on all threads: record i of every rank,
 * then record i + 1. A thread takes its share of each record: most operations split by rows, linear layers by output rows, attention by jobs
 * that threads take one after the other.
 *
 * Barriers stand only where one record reads or overwrites what another thread may have written since the last barrier. This is
 * worked out while recording: every buffer remembers in which interval between barriers it was last written and read, and how that work was split.
 * Two operations that both split by rows need none between them: each thread meets its own rows again.
 * In the same way a buffer remembers in which form its quantised copy is current; a linear layer that needs another one makes it first (by
 * rows), and two linear layers with one input share the copy.
 *
 * All memory is taken at open time: the lists, the copy of the step, scratch for each thread, KV pages. */

enum { LLM__MAX_RECORDS = 8192, LLM__MAX_RANKS = 64 };

typedef enum llm__op_kind {
    LLM__OP_EMBED, LLM__OP_ROPE, LLM__OP_RESIDUAL, LLM__OP_NORM, LLM__OP_LINEAR, LLM__OP_QKV, LLM__OP_ATTENTION, LLM__OP_MLA_WRITE, LLM__OP_MLA, LLM__OP_ROUTE,
    LLM__OP_EXPERTS, LLM__OP_GATE, LLM__OP_GATHER, LLM__OP_ALL_REDUCE, LLM__OP_LOGITS
} llm__op_kind;

/* How an operation is split between threads. Two of the same kind, other than ANY, need no barrier between them. */
typedef enum llm__split { LLM__SPLIT_ANY = 0, LLM__SPLIT_TOKENS, LLM__SPLIT_OUT } llm__split;

typedef struct llm__gather_op {
    llm_buffer *dst;
    const llm_buffer *src;
} llm__gather_op;

typedef struct llm__reduce_op {
    llm_rows rows;
    llm_buffer *buf;
    int32_t n;
} llm__reduce_op;

typedef struct llm__record {
    llm__op_kind kind;
    int barrier;               /* before it */
    int form, act_col, act_cols; /* form > 0: first make this copy of `act`, then a barrier */
    llm_rows act_rows;
    llm_buffer *act;
    int next;                  /* jobs taken so far */
    union {
        llm_embed_op embed;
        llm_rope_op rope;
        llm_residual_op residual;
        llm_norm_op norm;
        llm_linear_op linear;
        llm_qkv_op qkv;
        llm_attention_op attention;
        llm_mla_op mla;
        llm_route_op route;
        llm_experts_op experts;
        llm_gate_op gate;
        llm__gather_op gather;
        llm__reduce_op reduce;
        llm_logits_op logits;
    } op;
} __attribute__((aligned(64))) llm__record;

/* When a buffer, or the KV cache, was last used while recording: the interval between barriers, and the split. */
typedef struct llm__use {
    int interval;
    llm__split split;
} llm__use;

typedef struct llm__cpu_buffer {
    llm_buffer b; /* first */
    llm__use written, read;
    llm__act act;          /* its rounded copy, two planes at most */
    int act_col, act_cols; /* what the copy covers */
    llm_rows act_rows;
    size_t bytes, act_bytes;
} llm__cpu_buffer;

typedef struct llm__rank {
    llm__record *list; /* (LLM__MAX_RECORDS) */
    int n, interval;
    llm__use kv_written, kv_read;
    int64_t vocab;     /* rows of its output layer */
} llm__rank;

struct llm_backend_ctx {
    llm_backend_config cfg;
    llm__isa isa;
    const llm__row_kernels *kernels;
    llm__pool *pool;
    int n_ranks;
    llm__rank *rank;
    llm__kv_cache kv;
    llm__cpu_buffer **buffer;
    size_t n_buffers, buffer_cap;
    llm_weight **weight;
    size_t n_weights, weight_cap;
    char *scratch; /* (threads, scratch_bytes) */
    size_t scratch_bytes;
    void *experts; /* scratch that all threads share */
    size_t experts_bytes;
    float *logits; /* (max_out, logits_stride) */
    int64_t logits_rows, logits_stride;
    size_t logits_bytes;
    llm_step step; /* points into step_memory */
    void *step_memory;
    int32_t *arrays[8];
    float *rope_base;
    size_t memory;
    llm_result failed;
    char why[256];
    char name[64];
};

static void llm__cpu_fail(llm_backend_ctx *ctx, llm_result r, const char *what) {
    if (ctx->failed) return;
    ctx->failed = r;
    snprintf(ctx->why, sizeof ctx->why, "%s", what);
}

static int llm__op_rows(const llm_backend_ctx *ctx, llm_rows rows) { return rows == LLM_ROWS_OUT ? ctx->step.shape.n_out : ctx->step.shape.n_rows; }

static float *llm__row(const llm_buffer *b, int row) { return b->data + row * b->stride; }

static const float *llm__vector(const llm_weight *w) { return w ? w->f32 : NULL; }

/* ---- the operations, each for one thread's share ---- */

/* Angles in double: position times frequency reaches thousands, and f32 would lose the fraction. */
static void llm__run_rope(const llm_backend_ctx *ctx, const llm__exec *e, const llm_rope_op *op) {
    const llm_step *s = &ctx->step;
    int64_t from, to;
    int half = op->rope_dim / 2;
    llm__share(e, s->shape.n_rows, &from, &to);
    for (int row = (int)from; row < to; row++) {
        int seq = s->seq_of_row[row], variant = s->seq_rope[seq];
        float *c = llm__row(op->dst, row), scale = op->scale ? op->scale[variant] : 1;
        double base = s->seq_rope_base[seq];
        for (int i = 0; i < half; i++) {
            double f = op->inv_freq->f32[variant * half + i];
            int section = s->n_position_rows < 3 || i < op->sections[0] ? 0 : i < op->sections[0] + op->sections[1] ? 1 : 2;
            if (base != 1) f *= pow(base, -2.0 * i / op->rope_dim);
            double angle = f * s->positions[section * s->shape.n_rows + row];
            c[i] = (float)cos(angle) * scale;
            c[half + i] = (float)sin(angle) * scale;
        }
    }
}

/* The sum over the ranks of what each has in y, in rank order. */
static const float *llm__sum_ranks(const llm_backend_ctx *ctx, const llm__record *rec, int rank, int row, float *scratch) {
    const llm_residual_op *op = &rec->op.residual;
    size_t index = (size_t)(rec - ctx->rank[rank].list);
    int n = (int)op->x->cols;
    if (ctx->n_ranks == 1) return llm__row(op->y, row);
    memcpy(scratch, llm__row(ctx->rank[0].list[index].op.residual.y, row), (size_t)n * sizeof *scratch);
    for (int r = 1; r < ctx->n_ranks; r++) ctx->kernels->add(scratch, llm__row(ctx->rank[r].list[index].op.residual.y, row), 1, n);
    return scratch;
}

static void llm__run_residual(const llm_backend_ctx *ctx, const llm__exec *e, const llm__record *rec, int rank) {
    const llm_residual_op *op = &rec->op.residual;
    const llm__row_kernels *k = ctx->kernels;
    int64_t from, to;
    int n = (int)op->x->cols;
    float *scratch = (float *)e->scratch;
    llm__share(e, e->n_rows, &from, &to);
    for (int row = (int)from; row < to; row++) {
        float *x = llm__row(op->x, row);
        if (op->y) {
            const float *y = llm__sum_ranks(ctx, rec, rank, row, scratch);
            if (op->post_kind) {
                llm__norm_row(k, op->post_kind, scratch, y, n, llm__vector(op->post_weight), llm__vector(op->post_bias), op->eps);
                y = scratch;
            }
            k->add(x, y, op->scale ? op->scale : 1, n);
        }
        if (!op->kind || !op->h) continue;
        llm__norm_row(k, op->kind, llm__row(op->h, row), x, n, llm__vector(op->weight), llm__vector(op->bias), op->eps);
        if (op->replace) memcpy(x, llm__row(op->h, row), (size_t)n * sizeof *x);
    }
}

static void llm__run_norm(const llm_backend_ctx *ctx, const llm__exec *e, const llm_norm_op *op) {
    int64_t from, to;
    llm__share(e, e->n_rows, &from, &to);
    for (int row = (int)from; row < to; row++)
        llm__norm_row(ctx->kernels, op->kind, llm__row(op->dst, row), llm__row(op->src, row) + op->src_col, op->n, llm__vector(op->weight), llm__vector(op->bias), op->eps);
}

static llm__kv_view llm__view(const llm_backend_ctx *ctx, int rank, int layer, int seq, int head) {
    llm__kv_view v;
    v.kv = &ctx->kv;
    v.place = &ctx->kv.layer[layer];
    v.base = ctx->kv.base[rank];
    v.pages = ctx->step.pages + (size_t)seq * (size_t)ctx->step.page_stride;
    v.head = head;
    return v;
}

/* Norm and rotation of one head of q or k at x; `column` counts from the first head's first value. r: of WHOLE_RMS, the factor of its row. */
static void llm__finish_head(const llm__row_kernels *k, const llm_qkv_op *op, const float *w, float *x, int column, float r, const float *rope) {
    int n = op->head_dim;
    if (op->norm == LLM_QK_NORM_HEAD_RMS) llm__norm_row(k, LLM_NORM_RMS, x, x, n, w, NULL, op->eps);
    else if (op->norm == LLM_QK_NORM_HEAD_LAYER) llm__norm_row(k, LLM_NORM_LAYER, x, x, n, w + column, NULL, op->eps);
    else if (op->norm == LLM_QK_NORM_WHOLE_RMS) k->affine(x, x, 0, r, w + column, NULL, n);
    if (rope) k->rotate(x, rope, op->rope_dim / 2, op->rope_interleaved);
}

static float llm__whole_rms(const llm__row_kernels *k, const float *x, int n, float eps) { return 1 / sqrtf(k->dot(x, x, n) / (float)n + eps); }

/* One row's KV heads [g0, g1) and the query heads that go with them. */
static void llm__qkv_heads(const llm_backend_ctx *ctx, const llm__exec *e, const llm_qkv_op *op, int rank, int row, int g0, int g1) {
    const llm__row_kernels *k = ctx->kernels;
    int group = op->n_heads / op->n_kv_heads, seq = ctx->step.seq_of_row[row], position = ctx->step.positions[row], whole = op->norm == LLM_QK_NORM_WHOLE_RMS;
    float *x = llm__row(op->qkv, row), rq = 0, rk = 0, stretch = 1;
    const float *rope = op->rope ? llm__row(op->rope, row) : NULL, *qw = llm__vector(op->q_norm), *kw = llm__vector(op->k_norm);
    if (whole) {
        rq = llm__whole_rms(k, x + op->whole_q_col, op->whole_q, op->eps);
        rk = llm__whole_rms(k, x + op->whole_k_col, op->whole_k, op->eps);
    }
    if (op->logn_from > 0 && position + 1 > op->logn_from) stretch = (float)(log((double)position + 1) / log((double)op->logn_from));
    for (int h = g0 * group; h < g1 * group; h++) {
        float *q = x + op->q_col + h * op->head_dim;
        llm__finish_head(k, op, qw, q, h * op->head_dim + (whole ? op->q_col - op->whole_q_col : 0), rq, rope);
        if (stretch != 1) k->affine(q, q, 0, stretch, NULL, NULL, op->head_dim);
    }
    for (int g = g0; g < g1; g++) {
        llm__kv_view view = llm__view(ctx, rank, op->layer, seq, g);
        float *key = x + op->k_col + g * op->head_dim;
        llm__finish_head(k, op, kw, key, g * op->head_dim + (whole ? op->k_col - op->whole_k_col : 0), rk, rope);
        llm__kv_write_token(k, &view, llm__row_position(&ctx->step, row), key, x + op->v_col + g * op->v_head_dim, (uint8_t *)e->scratch);
    }
}

static void llm__run_qkv(const llm_backend_ctx *ctx, const llm__exec *e, const llm_qkv_op *op, int rank) {
    int64_t from, to;
    int heads = op->norm == LLM_QK_NORM_WHOLE_RMS ? 1 : op->n_kv_heads; /* a norm over the whole row needs the row untouched */
    llm__share(e, (int64_t)e->n_rows * heads, &from, &to);
    for (int unit = (int)from; unit < to; unit++) {
        int row = unit / heads, g = unit % heads;
        llm__qkv_heads(ctx, e, op, rank, row, g, heads == 1 ? op->n_kv_heads : g + 1);
    }
}

/* What query i of a tile sees, and where its online softmax starts. */
static void llm__attend_query(const llm_step *s, const llm_attention_op *op, llm__attend *t, int i, int row, int head) {
    const float log2e = 1.44269504f;
    int at = llm__row_position(s, row);
    t->at[i] = at;
    t->to[i] = op->not_causal ? s->seq_len[s->seq_of_row[row]] : at + 1;
    if (op->not_causal && op->window) t->to[i] = LLM__MIN(t->to[i], at + op->window);
    t->from[i] = op->window ? LLM__MAX(0, at + 1 - op->window) : 0;
    t->m[i] = op->sinks ? op->sinks->f32[head] * log2e : -1e30f;
    t->l[i] = op->sinks ? 1 : 0;
    t->slope[i] = op->alibi ? op->alibi->f32[head] * log2e : 0;
}

static void llm__run_attention(const llm_backend_ctx *ctx, const llm__exec *e, llm__record *rec, int rank) {
    const llm_attention_op *op = &rec->op.attention;
    const llm__row_kernels *k = ctx->kernels;
    llm__attend t;
    llm__attend_jobs jobs;
    llm__attend_place(&t, (float *)e->scratch, op->head_dim, op->v_head_dim);
    t.softcap = op->softcap;
    t.alibi = op->alibi != NULL;
    float scale = op->softcap ? op->scale : op->scale * 1.44269504f; /* then scores are in units of the base-2 logarithm */
    llm__jobs_cut(&jobs, &ctx->step, op->n_kv_heads, op->n_heads / op->n_kv_heads, e->n_threads);
    for (int i; (i = __atomic_fetch_add(&rec->next, 1, __ATOMIC_RELAXED)) < jobs.n;) {
        llm__attend_job job = llm__jobs_get(&jobs, i);
        llm__kv_view view = llm__view(ctx, rank, op->layer, job.seq, job.kv_head);
        t.n = job.n_rows * job.n_heads;
        for (int q = 0; q < t.n; q++) {
            int row = job.row + q / job.n_heads, head = job.head + q % job.n_heads;
            llm__attend_query(&ctx->step, op, &t, q, row, head);
            k->affine(t.q + q * t.hd, llm__row(op->qkv, row) + op->q_col + head * t.hd, 0, scale, NULL, NULL, t.hd);
        }
        llm__attend_run(k, &t, &view);
        for (int q = 0; q < t.n; q++)
            memcpy(llm__row(op->dst, job.row + q / job.n_heads) + (job.head + q % job.n_heads) * t.vd, t.o + q * t.vdp, (size_t)t.vd * sizeof(float));
    }
}

/* Latent attention, first part: norm of the latent, rotation of the shared key and of every head's query, write to the cache. */
static void llm__run_mla_write(const llm_backend_ctx *ctx, const llm__exec *e, const llm_mla_op *op, int rank) {
    const llm__row_kernels *k = ctx->kernels;
    int64_t from, to;
    int width = op->nope + op->rope_dim;
    llm__share(e, e->n_rows, &from, &to);
    for (int row = (int)from; row < to; row++) {
        float *latent = llm__row(op->kv_a, row), *q = llm__row(op->q, row) + op->nope;
        const float *rope = llm__row(op->rope, row);
        llm__kv_view view = llm__view(ctx, rank, op->layer, ctx->step.seq_of_row[row], 0);
        llm__norm_row(k, LLM_NORM_RMS, latent, latent, op->rank, llm__vector(op->kv_norm), NULL, op->eps);
        k->rotate(latent + op->rank, rope, op->rope_dim / 2, op->rope_interleaved);
        for (int h = 0; h < op->n_heads; h++) k->rotate(q + h * width, rope, op->rope_dim / 2, op->rope_interleaved);
        llm__kv_write_token(k, &view, llm__row_position(&ctx->step, row), latent, NULL, (uint8_t *)e->scratch);
    }
}

/* Second part, absorbed: a head's query is taken into the latent space by its part of kv_b, so that keys and values are the latents themselves; what
 * attention gives there goes through the head's value rows of kv_b: (n_heads, nope + v_dim, rank). */
static void llm__run_mla(const llm_backend_ctx *ctx, const llm__exec *e, llm__record *rec, int rank) {
    const llm_mla_op *op = &rec->op.mla;
    const llm__row_kernels *k = ctx->kernels;
    llm__attend t;
    llm__attend_jobs jobs;
    llm__attend_place(&t, (float *)e->scratch, op->rank + op->rope_dim, op->rank);
    float scale = op->scale * 1.44269504f;
    llm__jobs_cut(&jobs, &ctx->step, 1, op->n_heads, e->n_threads);
    for (int i; (i = __atomic_fetch_add(&rec->next, 1, __ATOMIC_RELAXED)) < jobs.n;) {
        llm__attend_job job = llm__jobs_get(&jobs, i);
        llm__kv_view view = llm__view(ctx, rank, op->layer, job.seq, 0);
        t.n = job.n_rows * job.n_heads;
        for (int j = 0; j < t.n; j++) {
            int row = job.row + j / job.n_heads, head = job.head + j % job.n_heads;
            const float *q = llm__row(op->q, row) + head * (op->nope + op->rope_dim), *up = op->kv_b->f32 + (int64_t)head * (op->nope + op->v_dim) * op->rank;
            float *out = t.q + j * t.hd;
            memset(out, 0, (size_t)op->rank * sizeof *out);
            for (int d = 0; d < op->nope; d++) k->add(out, up + (int64_t)d * op->rank, q[d] * scale, op->rank);
            k->affine(out + op->rank, q + op->nope, 0, scale, NULL, NULL, op->rope_dim);
            t.at[j] = llm__row_position(&ctx->step, row);
            t.to[j] = t.at[j] + 1;
            t.m[j] = -1e30f;
            t.l[j] = 0;
        }
        llm__attend_run(k, &t, &view);
        for (int j = 0; j < t.n; j++) {
            int head = job.head + j % job.n_heads;
            const float *up = op->kv_b->f32 + ((int64_t)head * (op->nope + op->v_dim) + op->nope) * op->rank;
            float *out = llm__row(op->dst, job.row + j / job.n_heads) + head * op->v_dim;
            for (int d = 0; d < op->v_dim; d++) out[d] = k->dot(up + (int64_t)d * op->rank, t.o + j * t.vdp, op->rank);
        }
    }
}

/* The index of the largest of n values that is not yet taken, the lower one of equals. `taken` values are -INFINITY. */
static int llm__arg_max(const float *x, int n) {
    int best = 0;
    while (best + 1 < n && x[best] == -INFINITY) best++;
    for (int i = best + 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Leaves only the experts of the topk_group best groups. */
static void llm__route_groups(const llm_route_op *op, float *choice, float *group) {
    int size = op->n_experts / op->n_group;
    for (int g = 0; g < op->n_group; g++) {
        float *x = choice + g * size, second = -INFINITY;
        int best = llm__arg_max(x, size);
        for (int i = 0; i < size; i++)
            if (i != best && x[i] > second) second = x[i];
        group[g] = op->group_top2 && size > 1 ? x[best] + second : x[best];
    }
    for (int left = op->n_group - op->topk_group; left > 0; left--) { /* drop the worst, of equals the higher */
        int worst = -1;
        for (int g = 0; g < op->n_group; g++)
            if (group[g] < INFINITY && (worst < 0 || group[g] <= group[worst])) worst = g;
        if (worst < 0) return;
        group[worst] = INFINITY;
        for (int i = 0; i < size; i++) choice[worst * size + i] = -INFINITY;
    }
}

static void llm__softmax(float *x, int n) {
    float top = x[0], sum = 0;
    for (int i = 1; i < n; i++) top = LLM__MAX(top, x[i]);
    for (int i = 0; i < n; i++) sum += x[i] = expf(x[i] - top);
    for (int i = 0; i < n; i++) x[i] /= sum;
}

static void llm__route_row(const llm_route_op *op, const float *logits, float *out, float *scratch) {
    float *score = scratch, *choice = scratch + op->n_experts, *weight = out + op->k, sum = 0, scale = op->scale ? op->scale : 1;
    memcpy(score, logits, (size_t)op->n_experts * sizeof *score);
    if (op->score == LLM_ROUTE_SOFTMAX) llm__softmax(score, op->n_experts);
    for (int i = 0; i < op->n_experts; i++) {
        if (op->score == LLM_ROUTE_SIGMOID) score[i] = 1 / (1 + expf(-score[i]));
        choice[i] = score[i] + (op->correction ? op->correction->f32[i] : 0);
        if (!(choice[i] > -3e38f)) choice[i] = -3e38f; /* also what is not a number */
    }
    if (op->n_group > 1 && op->topk_group < op->n_group) llm__route_groups(op, choice, scratch + 2 * op->n_experts);
    for (int i = 0; i < op->k; i++) {
        int best = llm__arg_max(choice, op->n_experts);
        choice[best] = -INFINITY;
        out[i] = (float)best;
        weight[i] = score[best];
    }
    if (op->score == LLM_ROUTE_TOPK_SOFTMAX) llm__softmax(weight, op->k);
    for (int i = 0; i < op->k; i++) sum += weight[i];
    if (op->normalize) scale /= LLM__MAX(sum, LLM__MAX(op->normalize_min, 1e-20f));
    for (int i = 0; i < op->k; i++) weight[i] *= scale;
}

static void llm__run_route(const llm__exec *e, const llm_route_op *op) {
    int64_t from, to;
    llm__share(e, e->n_rows, &from, &to);
    for (int row = (int)from; row < to; row++) llm__route_row(op, llm__row(op->logits, row), llm__row(op->dst, row), (float *)e->scratch);
}

static void llm__run_gate(const llm_backend_ctx *ctx, const llm__exec *e, const llm_gate_op *op) {
    int64_t from, to;
    llm__share(e, e->n_rows, &from, &to);
    for (int row = (int)from; row < to; row++) {
        float *x = llm__row(op->dst, row);
        ctx->kernels->affine(x, x, 0, 1 / (1 + expf(-*llm__row(op->gate, row))), NULL, NULL, op->n);
    }
}

static void llm__run_gather(const llm_backend_ctx *ctx, const llm__exec *e, const llm__gather_op *op) {
    int64_t from, to;
    llm__share(e, e->n_rows, &from, &to);
    for (int row = (int)from; row < to; row++)
        memcpy(llm__row(op->dst, row), llm__row(op->src, ctx->step.out_rows[row]), (size_t)LLM__MIN(op->dst->cols, op->src->cols) * sizeof(float));
}

/* Run once for all ranks: every rank's buffer gets the sum, added up in rank order. */
static void llm__run_all_reduce(const llm_backend_ctx *ctx, const llm__exec *e, const llm__record *rec) {
    size_t index = (size_t)(rec - ctx->rank[0].list), bytes = (size_t)rec->op.reduce.n * sizeof(float);
    int64_t from, to;
    llm__share(e, e->n_rows, &from, &to);
    for (int row = (int)from; row < to; row++) {
        float *sum = llm__row(rec->op.reduce.buf, row);
        for (int r = 1; r < ctx->n_ranks; r++) ctx->kernels->add(sum, llm__row(ctx->rank[r].list[index].op.reduce.buf, row), 1, rec->op.reduce.n);
        for (int r = 1; r < ctx->n_ranks; r++) memcpy(llm__row(ctx->rank[r].list[index].op.reduce.buf, row), sum, bytes);
    }
}

/* ---- running the lists ---- */

static void llm__run_record(const llm_backend_ctx *ctx, llm__exec *e, llm__record *rec, int rank) {
    e->n_rows = ctx->step.shape.n_rows;
    switch (rec->kind) {
    case LLM__OP_EMBED: llm__run_embed(e, &rec->op.embed); break;
    case LLM__OP_ROPE: llm__run_rope(ctx, e, &rec->op.rope); break;
    case LLM__OP_RESIDUAL:
        e->n_rows = llm__op_rows(ctx, rec->op.residual.rows);
        llm__run_residual(ctx, e, rec, rank);
        break;
    case LLM__OP_NORM:
        e->n_rows = llm__op_rows(ctx, rec->op.norm.rows);
        llm__run_norm(ctx, e, &rec->op.norm);
        break;
    case LLM__OP_LINEAR:
        e->n_rows = llm__op_rows(ctx, rec->op.linear.rows);
        llm__run_linear(e, &rec->op.linear);
        break;
    case LLM__OP_QKV: llm__run_qkv(ctx, e, &rec->op.qkv, rank); break;
    case LLM__OP_ATTENTION: llm__run_attention(ctx, e, rec, rank); break;
    case LLM__OP_MLA_WRITE: llm__run_mla_write(ctx, e, &rec->op.mla, rank); break;
    case LLM__OP_MLA: llm__run_mla(ctx, e, rec, rank); break;
    case LLM__OP_ROUTE: llm__run_route(e, &rec->op.route); break;
    case LLM__OP_EXPERTS: {
        llm__exec shared = *e;
        shared.scratch = ctx->experts;
        shared.scratch_bytes = ctx->experts_bytes;
        llm__run_experts(&shared, &rec->op.experts);
        break;
    }
    case LLM__OP_GATE: llm__run_gate(ctx, e, &rec->op.gate); break;
    case LLM__OP_GATHER:
        e->n_rows = ctx->step.shape.n_out;
        llm__run_gather(ctx, e, &rec->op.gather);
        break;
    case LLM__OP_ALL_REDUCE:
        e->n_rows = llm__op_rows(ctx, rec->op.reduce.rows);
        if (rank == 0) llm__run_all_reduce(ctx, e, rec);
        break;
    case LLM__OP_LOGITS:
        e->n_rows = ctx->step.shape.n_out;
        llm__run_logits(e, &rec->op.logits, ctx->logits, ctx->logits_stride);
        break;
    }
}

static void llm__exec_fill(llm_backend_ctx *ctx, int thread, int n_threads, llm__exec *e) {
    memset(e, 0, sizeof *e);
    e->pool = ctx->pool;
    e->thread = thread;
    e->n_threads = n_threads;
    e->isa = ctx->isa;
    e->step = &ctx->step;
    e->scratch = ctx->scratch + (size_t)thread * ctx->scratch_bytes;
    e->scratch_bytes = ctx->scratch_bytes;
}

/* One thread's way through the lists of all ranks. */
static void llm__run_lists(void *arg, int thread, int n_threads) {
    llm_backend_ctx *ctx = (llm_backend_ctx *)arg;
    llm__exec e;
    llm__exec_fill(ctx, thread, n_threads, &e);
    for (int i = 0; i < ctx->rank[0].n; i++) {
        int barrier = 0, form = 0;
        for (int r = 0; r < ctx->n_ranks; r++) {
            barrier |= ctx->rank[r].list[i].barrier;
            form |= ctx->rank[r].list[i].form;
        }
        if (barrier) llm__pool_barrier(ctx->pool);
        for (int r = 0; r < ctx->n_ranks && form; r++) {
            llm__record *rec = &ctx->rank[r].list[i];
            e.n_rows = llm__op_rows(ctx, rec->act_rows);
            if (rec->form) llm__act_make(&e, rec->act, rec->form, rec->act_col, rec->act_cols);
        }
        if (form) llm__pool_barrier(ctx->pool);
        for (int r = 0; r < ctx->n_ranks; r++) llm__run_record(ctx, &e, &ctx->rank[r].list[i], r);
    }
}

/* ---- recording ---- */

static llm__cpu_buffer *llm__own(const llm_buffer *b) { return (llm__cpu_buffer *)(uintptr_t)b; }

/* A new record, or NULL when the list is full or a mistake was made before. */
static llm__record *llm__record_add(llm_backend_ctx *ctx, int rank, llm__op_kind kind) {
    llm__rank *r = &ctx->rank[rank];
    if (r->n >= LLM__MAX_RECORDS) llm__cpu_fail(ctx, LLM_ERR_LIMIT, "too many operations in one step");
    if (ctx->failed) return NULL;
    llm__record *rec = &r->list[r->n++];
    rec->kind = kind;
    rec->barrier = rec->form = rec->next = 0;
    return rec;
}

/* 1 if work split as `split` must wait for what was done in this interval. */
static int llm__conflict(const llm__rank *r, const llm__use *use, llm__split split) {
    return use->interval == r->interval && (split == LLM__SPLIT_ANY || use->split != split);
}

static void llm__mark(const llm__rank *r, llm__use *use, llm__split split) {
    if (use->interval == r->interval && use->split != split) split = LLM__SPLIT_ANY;
    use->interval = r->interval;
    use->split = split;
}

/* Collects what one record uses; llm__uses_end decides about its barrier. */
typedef struct llm__uses {
    llm__rank *rank;
    llm__record *rec;
    llm__split split;
    int n;
    struct {
        llm__use *written, *read;
        llm__cpu_buffer *stale; /* loses its quantised copy */
        int write;
    } use[8];
} llm__uses;

static void llm__uses_begin(llm_backend_ctx *ctx, int rank, llm__record *rec, llm__split split, llm__uses *u) {
    u->rank = &ctx->rank[rank];
    u->rec = rec;
    u->split = split;
    u->n = 0;
}

static void llm__uses_add(llm__uses *u, const llm_buffer *b, int write) {
    if (!b) return;
    llm__cpu_buffer *own = llm__own(b);
    u->use[u->n].written = &own->written;
    u->use[u->n].read = &own->read;
    u->use[u->n].stale = write ? own : NULL;
    u->use[u->n++].write = write;
}

static void llm__uses_add_kv(llm__uses *u, int write) {
    u->use[u->n].written = &u->rank->kv_written;
    u->use[u->n].read = &u->rank->kv_read;
    u->use[u->n].stale = NULL;
    u->use[u->n++].write = write;
}

static void llm__uses_end(llm__uses *u) {
    int barrier = 0;
    for (int i = 0; i < u->n; i++)
        barrier |= llm__conflict(u->rank, u->use[i].written, u->split) || (u->use[i].write && llm__conflict(u->rank, u->use[i].read, u->split));
    u->rec->barrier |= barrier;
    u->rank->interval += barrier;
    for (int i = 0; i < u->n; i++) {
        llm__mark(u->rank, u->use[i].write ? u->use[i].written : u->use[i].read, u->split);
        if (u->use[i].stale) u->use[i].stale->b.form = 0;
    }
}

static llm__split llm__split_of(llm_rows rows) { return rows == LLM_ROWS_OUT ? LLM__SPLIT_OUT : LLM__SPLIT_TOKENS; }

/* A record that reads a, b and writes c, d (any may be NULL). */
static void llm__record_uses(llm_backend_ctx *ctx, int rank, llm__record *rec, llm__split split, const llm_buffer *a, const llm_buffer *b, const llm_buffer *c,
                             const llm_buffer *d) {
    llm__uses u;
    llm__uses_begin(ctx, rank, rec, split, &u);
    llm__uses_add(&u, a, 0);
    llm__uses_add(&u, b, 0);
    llm__uses_add(&u, c, 1);
    llm__uses_add(&u, d, 1);
    llm__uses_end(&u);
}

/* Puts the making of src's quantised copy before the record where the weight needs one that is not there. */
static void llm__record_act(llm_backend_ctx *ctx, int rank, llm__record *rec, llm_rows rows, const llm_buffer *src, int col, const llm_weight *w) {
    llm__cpu_buffer *own = llm__own(src);
    int form = (int)llm__weight_form(w), cols = (int)w->cols;
    if (!form || (own->b.form == form && own->act_col == col && own->act_cols == cols && own->act_rows == rows)) return;
    llm__record_uses(ctx, rank, rec, LLM__SPLIT_ANY, src, NULL, src, NULL); /* overwrites a copy that may still be read */
    ctx->rank[rank].interval++;                                                 /* the barrier after it */
    rec->form = own->b.form = form;
    rec->act = &own->b;
    rec->act_rows = own->act_rows = rows;
    rec->act_col = own->act_col = col;
    rec->act_cols = own->act_cols = cols;
}

static void llm__cpu_embed(llm_backend_ctx *ctx, int rank, const llm_embed_op *op) {
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_EMBED);
    if (!rec) return;
    rec->op.embed = *op;
    llm__record_uses(ctx, rank, rec, LLM__SPLIT_ANY, NULL, NULL, op->dst, NULL);
}

static void llm__cpu_rope(llm_backend_ctx *ctx, int rank, const llm_rope_op *op) {
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_ROPE);
    if (!rec) return;
    for (int s = 0; s < ctx->step.shape.n_seqs; s++)
        if (ctx->step.seq_rope[s] < 0 || ctx->step.seq_rope[s] >= op->n_variants) llm__cpu_fail(ctx, LLM_ERR_ARG, "seq_rope: not a variant of the rope operation");
    rec->op.rope = *op;
    llm__record_uses(ctx, rank, rec, LLM__SPLIT_TOKENS, NULL, NULL, op->dst, NULL);
}

static void llm__cpu_residual(llm_backend_ctx *ctx, int rank, const llm_residual_op *op) {
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_RESIDUAL);
    if (!rec) return;
    rec->op.residual = *op;
    int writes_x = op->y || op->replace;
    llm__record_uses(ctx, rank, rec, llm__split_of(op->rows), op->y, op->x, op->kind ? op->h : NULL, writes_x ? op->x : NULL);
}

static void llm__cpu_norm(llm_backend_ctx *ctx, int rank, const llm_norm_op *op) {
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_NORM);
    if (!rec) return;
    rec->op.norm = *op;
    llm__record_uses(ctx, rank, rec, llm__split_of(op->rows), op->src, NULL, op->dst, NULL);
}

static void llm__cpu_linear(llm_backend_ctx *ctx, int rank, const llm_linear_op *op) {
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_LINEAR);
    if (!rec) return;
    rec->op.linear = *op;
    llm__record_act(ctx, rank, rec, op->rows, op->src, op->src_col, op->weight);
    llm__record_uses(ctx, rank, rec, LLM__SPLIT_ANY, op->src, NULL, op->dst, NULL);
}

static void llm__cpu_qkv(llm_backend_ctx *ctx, int rank, const llm_qkv_op *op) {
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_QKV);
    llm__uses u;
    if (!rec) return;
    if (op->layer < 0 || op->layer >= ctx->kv.n_layers || op->n_kv_heads < 1 || op->n_heads % op->n_kv_heads)
        llm__cpu_fail(ctx, LLM_ERR_ARG, "qkv: layer or heads do not fit the KV cache");
    rec->op.qkv = *op;
    llm__uses_begin(ctx, rank, rec, LLM__SPLIT_ANY, &u);
    llm__uses_add(&u, op->rope, 0);
    llm__uses_add(&u, op->qkv, 1);
    llm__uses_add_kv(&u, 1);
    llm__uses_end(&u);
}

static void llm__cpu_attention(llm_backend_ctx *ctx, int rank, const llm_attention_op *op) {
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_ATTENTION);
    llm__uses u;
    if (!rec) return;
    if (op->layer < 0 || op->layer >= ctx->kv.n_layers || op->n_kv_heads < 1 || op->n_heads % op->n_kv_heads)
        llm__cpu_fail(ctx, LLM_ERR_ARG, "attention: layer or heads do not fit the KV cache");
    rec->op.attention = *op;
    llm__uses_begin(ctx, rank, rec, LLM__SPLIT_ANY, &u);
    llm__uses_add(&u, op->qkv, 0);
    llm__uses_add(&u, op->dst, 1);
    llm__uses_add_kv(&u, 0);
    llm__uses_end(&u);
}

static void llm__cpu_mla(llm_backend_ctx *ctx, int rank, const llm_mla_op *op) {
    llm__record *first = llm__record_add(ctx, rank, LLM__OP_MLA_WRITE), *second = llm__record_add(ctx, rank, LLM__OP_MLA);
    llm__uses u;
    if (!first || !second) return;
    if (op->layer < 0 || op->layer >= ctx->kv.n_layers || ctx->kv.layer[op->layer].shape.head_dim != op->rank + op->rope_dim || ctx->kv.layer[op->layer].shape.v_head_dim)
        llm__cpu_fail(ctx, LLM_ERR_ARG, "mla: the layer does not fit the KV cache");
    first->op.mla = second->op.mla = *op;
    llm__uses_begin(ctx, rank, first, LLM__SPLIT_TOKENS, &u);
    llm__uses_add(&u, op->rope, 0);
    llm__uses_add(&u, op->q, 1);
    llm__uses_add(&u, op->kv_a, 1);
    llm__uses_add_kv(&u, 1);
    llm__uses_end(&u);
    llm__uses_begin(ctx, rank, second, LLM__SPLIT_ANY, &u);
    llm__uses_add(&u, op->q, 0);
    llm__uses_add(&u, op->dst, 1);
    llm__uses_add_kv(&u, 0);
    llm__uses_end(&u);
}

static void llm__cpu_route(llm_backend_ctx *ctx, int rank, const llm_route_op *op) {
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_ROUTE);
    int size = op->n_group > 1 ? op->n_experts / op->n_group : op->n_experts;
    if (!rec) return;
    if (op->k < 1 || op->k > op->n_experts || (op->n_group > 1 && (op->n_experts % op->n_group || op->k > size * op->topk_group)))
        llm__cpu_fail(ctx, LLM_ERR_ARG, "route: more experts to choose than there are");
    rec->op.route = *op;
    llm__record_uses(ctx, rank, rec, LLM__SPLIT_TOKENS, op->logits, NULL, op->dst, NULL);
}

static void llm__cpu_experts(llm_backend_ctx *ctx, int rank, const llm_experts_op *op) {
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_EXPERTS);
    if (!rec) return;
    rec->op.experts = *op;
    llm__record_uses(ctx, rank, rec, LLM__SPLIT_ANY, op->src, op->routes, op->dst, NULL);
}

static void llm__cpu_gate(llm_backend_ctx *ctx, int rank, const llm_gate_op *op) {
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_GATE);
    if (!rec) return;
    rec->op.gate = *op;
    llm__record_uses(ctx, rank, rec, LLM__SPLIT_TOKENS, op->gate, NULL, op->dst, NULL);
}

static void llm__cpu_gather(llm_backend_ctx *ctx, int rank, llm_buffer *dst, const llm_buffer *src) {
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_GATHER);
    if (!rec) return;
    rec->op.gather.dst = dst;
    rec->op.gather.src = src;
    llm__record_uses(ctx, rank, rec, LLM__SPLIT_ANY, src, NULL, dst, NULL); /* reads rows by another split than it writes them */
}

static void llm__cpu_all_reduce(llm_backend_ctx *ctx, int rank, llm_rows rows, llm_buffer *buf, int32_t n) {
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_ALL_REDUCE);
    if (!rec) return;
    rec->op.reduce.rows = rows;
    rec->op.reduce.buf = buf;
    rec->op.reduce.n = n;
    llm__record_uses(ctx, rank, rec, llm__split_of(rows), NULL, NULL, buf, NULL);
}

static void llm__cpu_logits(llm_backend_ctx *ctx, int rank, const llm_logits_op *op) {
    llm__record *rec = llm__record_add(ctx, rank, LLM__OP_LOGITS);
    if (!rec) return;
    if (op->vocab_begin < 0 || (int64_t)op->vocab_begin + op->head->rows > ctx->logits_stride || ctx->step.shape.n_out > ctx->logits_rows)
        llm__cpu_fail(ctx, LLM_ERR_ARG, "logits: more of them than the output weights have rows");
    rec->op.logits = *op;
    llm__record_act(ctx, rank, rec, LLM_ROWS_OUT, op->src, 0, op->head);
    llm__record_uses(ctx, rank, rec, LLM__SPLIT_ANY, op->src, NULL, NULL, NULL);
}

static llm_result llm__cpu_end_step(llm_backend_ctx *ctx) {
    for (int r = 1; r < ctx->n_ranks && !ctx->failed; r++) {
        int same = ctx->rank[r].n == ctx->rank[0].n;
        for (int i = 0; same && i < ctx->rank[0].n; i++) same = ctx->rank[r].list[i].kind == ctx->rank[0].list[i].kind;
        if (!same) llm__cpu_fail(ctx, LLM_ERR_ARG, "the ranks recorded different operations");
    }
    if (!ctx->failed) llm__pool_run(ctx->pool, llm__run_lists, ctx);
    return ctx->failed ? llm__error(ctx->failed, "%s", ctx->why) : LLM_OK;
}

static llm_result llm__cpu_wait(llm_backend_ctx *ctx) { return ctx->failed ? llm__error(ctx->failed, "%s", ctx->why) : LLM_OK; }

/* ---- open time ---- */

static void *llm__cpu_pages(llm_backend_ctx *ctx, size_t bytes) {
    void *p = llm__pages_get(bytes);
    if (p) ctx->memory += bytes;
    return p;
}

static void llm__cpu_close(llm_backend_ctx *ctx) {
    if (!ctx) return;
    size_t threads = ctx->pool ? (size_t)ctx->pool->n : 0;
    llm__pool_close(ctx->pool);
    for (size_t i = 0; i < ctx->n_buffers; i++) {
        llm__pages_free(ctx->buffer[i]->act.q, ctx->buffer[i]->act_bytes);
        llm__pages_free(ctx->buffer[i]->b.data, ctx->buffer[i]->bytes);
        LLM_FREE(ctx->buffer[i]);
    }
    for (size_t i = 0; i < ctx->n_weights; i++) llm__weight_free(ctx->weight[i]);
    for (int r = 0; r < ctx->n_ranks; r++) {
        if (ctx->rank) llm__pages_free(ctx->rank[r].list, LLM__MAX_RECORDS * sizeof(llm__record));
        if (ctx->kv.base) llm__pages_free(ctx->kv.base[r], (size_t)(ctx->kv.page_bytes * ctx->kv.n_pages) + 64);
    }
    llm__pages_free(ctx->scratch, ctx->scratch_bytes * threads);
    llm__pages_free(ctx->experts, ctx->experts_bytes);
    llm__pages_free(ctx->logits, ctx->logits_bytes);
    LLM_FREE(ctx->step_memory);
    LLM_FREE(ctx->kv.layer);
    LLM_FREE(ctx->kv.base);
    LLM_FREE(ctx->buffer);
    LLM_FREE(ctx->weight);
    LLM_FREE(ctx->rank);
    LLM_FREE(ctx);
}

/* Scratch of every thread of at least this size. */
static llm_result llm__cpu_scratch(llm_backend_ctx *ctx, size_t bytes) {
    if (bytes <= ctx->scratch_bytes) return LLM_OK;
    bytes = (bytes + 4095) & ~(size_t)4095;
    char *p = (char *)llm__pages_get(bytes * (size_t)ctx->pool->n);
    if (!p) return llm__nomem();
    llm__pages_free(ctx->scratch, ctx->scratch_bytes * (size_t)ctx->pool->n);
    ctx->memory += (bytes - ctx->scratch_bytes) * (size_t)ctx->pool->n;
    ctx->scratch = p;
    ctx->scratch_bytes = bytes;
    return LLM_OK;
}

/* The arrays of a step, one block of memory. */
static llm_result llm__cpu_step_memory(llm_backend_ctx *ctx) {
    const llm_backend_config *c = &ctx->cfg;
    int ok = 1;
    uint64_t rows = (uint64_t)c->max_rows, seqs = (uint64_t)c->max_seqs;
    uint64_t n[8] = {rows, 3 * rows, rows, seqs + 1, seqs, seqs, llm__mul(seqs, (uint64_t)c->max_pages_per_seq, &ok), (uint64_t)c->max_out}, total = seqs;
    for (int i = 0; i < 8; i++) total = llm__add(total, n[i], &ok);
    ctx->step_memory = ok ? llm__calloc((size_t)total, sizeof(int32_t)) : NULL;
    if (!ctx->step_memory) return llm__nomem();
    int32_t *p = (int32_t *)ctx->step_memory;
    for (int i = 0; i < 8; p += n[i++]) ctx->arrays[i] = p;
    ctx->rope_base = (float *)(void *)p;
    ctx->memory += (size_t)total * sizeof(int32_t);
    return LLM_OK;
}

static llm_result llm__cpu_open_parts(llm_backend_ctx *ctx) {
    int threads = ctx->cfg.n_threads ? ctx->cfg.n_threads : llm__cores();
    llm_result r = llm__isa_find(ctx->cfg.isa, &ctx->isa);
    if (r) return r;
    ctx->kernels = llm__row_kernels_of(ctx->isa);
    ctx->rank = LLM__NEW(llm__rank, ctx->n_ranks);
    ctx->kv.base = LLM__NEW(uint8_t *, ctx->n_ranks);
    ctx->pool = llm__pool_open(threads);
    if (!ctx->rank || !ctx->kv.base || !ctx->pool) return llm__nomem();
    for (int i = 0; i < ctx->n_ranks; i++) {
        ctx->rank[i].list = (llm__record *)llm__cpu_pages(ctx, LLM__MAX_RECORDS * sizeof(llm__record));
        if (!ctx->rank[i].list) return llm__nomem();
    }
    llm_kv_type kv = ctx->cfg.kv_type;
    if (kv == LLM_KV_AUTO) kv = ctx->cfg.compute == LLM_COMPUTE_F32 ? LLM_KV_F32 : LLM_KV_F16;
    llm__kv_type_set(&ctx->kv, kv);
    snprintf(ctx->name, sizeof ctx->name, "%s, %d thread%s", llm__isa_name(ctx->isa), ctx->pool->n, ctx->pool->n == 1 ? "" : "s");
    r = llm__cpu_scratch(ctx, (size_t)1 << 20);
    return r ? r : llm__cpu_step_memory(ctx);
}

static llm_result llm__cpu_open(const llm_backend_config *cfg, llm_backend_ctx **out) {
    *out = NULL;
    if (cfg->max_rows < 1 || cfg->max_out < 0 || cfg->max_seqs < 1 || cfg->max_pages_per_seq < 1)
        return llm__error(LLM_ERR_ARG, "cpu backend: max_rows %d, max_out %d, max_seqs %d, max_pages_per_seq %d: expected at least 1 (max_out: 0)", cfg->max_rows,
                          cfg->max_out, cfg->max_seqs, cfg->max_pages_per_seq);
    if (cfg->n_threads < 0 || cfg->n_threads > 1024 || cfg->n_ranks < 0 || cfg->n_ranks > LLM__MAX_RANKS || cfg->kv_type < LLM_KV_AUTO || cfg->kv_type > LLM_KV_INT4)
        return llm__error(LLM_ERR_ARG, "cpu backend: n_threads %d (0 to 1024), n_ranks %d (0 to %d), kv_type %d: out of range", cfg->n_threads, cfg->n_ranks,
                          LLM__MAX_RANKS, (int)cfg->kv_type);
    llm_backend_ctx *ctx = LLM__NEW(llm_backend_ctx, 1);
    if (!ctx) return llm__nomem();
    ctx->cfg = *cfg;
    ctx->n_ranks = LLM__MAX(1, cfg->n_ranks);
    llm_result r = llm__cpu_open_parts(ctx);
    if (r) llm__cpu_close(ctx);
    else *out = ctx;
    return r;
}

static const char *llm__cpu_describe(llm_backend_ctx *ctx) { return ctx->name; }

static llm_result llm__cpu_buffer_new(llm_backend_ctx *ctx, int rank, int64_t rows, int64_t cols, llm_buffer **out) {
    int ok = 1;
    *out = NULL;
    if (rank < 0 || rank >= ctx->n_ranks || rows < 1 || cols < 1 || cols > INT32_MAX / 4) return llm__error(LLM_ERR_ARG, "buffer: bad rank, rows or columns");
    uint64_t stride = ((uint64_t)cols + 15) & ~(uint64_t)15, bytes = llm__mul(llm__mul(stride, (uint64_t)rows, &ok), sizeof(float), &ok);
    if (!ok || !llm__grow((void **)&ctx->buffer, &ctx->buffer_cap, ctx->n_buffers + 1, sizeof *ctx->buffer)) return llm__nomem();
    llm__cpu_buffer *b = LLM__NEW(llm__cpu_buffer, 1);
    if (!b) return llm__nomem();
    ctx->buffer[ctx->n_buffers++] = b;
    b->b.rows = rows;
    b->b.cols = cols;
    b->b.stride = (int64_t)stride;
    b->b.rank = rank;
    b->bytes = (size_t)bytes;
    b->b.data = (float *)llm__cpu_pages(ctx, b->bytes);
    b->written.interval = b->read.interval = -1;
    size_t blocks = (size_t)(rows * (int64_t)(stride / 16 + 1)); /* two planes of blocks of 32 */
    b->act_bytes = llm__act_place(&b->act, NULL, blocks);
    uint8_t *act = (uint8_t *)llm__pages_get(b->act_bytes); /* takes memory only when it is used */
    if (!b->b.data || !act) return llm__nomem();
    llm__act_place(&b->act, act, blocks);
    b->b.act = &b->act;
    *out = &b->b;
    return llm__cpu_scratch(ctx, (size_t)stride * 4 * sizeof(float));
}

/* Memory that the experts of a layer share: for eight of them a row, and all of them for one row. */
static llm_result llm__cpu_experts_memory(llm_backend_ctx *ctx, const llm_weight_desc *d) {
    const int64_t most = (int64_t)256 << 20;
    int64_t n = d->n_experts, k = LLM__MIN(n, 8), out = d->rows / LLM__MAX(n, 1), wide = LLM__MAX(d->cols, out);
    size_t one = llm__experts_scratch(1, n, n, wide, wide), many = llm__experts_scratch(ctx->cfg.max_rows, k, n, wide, wide);
    size_t bytes = LLM__MAX(one, LLM__MIN(many, (size_t)most));
    if (bytes <= ctx->experts_bytes) return LLM_OK;
    llm__pages_free(ctx->experts, ctx->experts_bytes);
    ctx->experts = llm__pages_get(bytes);
    ctx->experts_bytes = ctx->experts ? bytes : 0;
    return ctx->experts ? LLM_OK : llm__nomem();
}

static llm_result llm__cpu_weight(llm_backend_ctx *ctx, int rank, const llm_weight_desc *desc, llm_weight **out) {
    *out = NULL;
    if (rank < 0 || rank >= ctx->n_ranks) return llm__error(LLM_ERR_ARG, "%s: rank %d of %d", desc->name, rank, ctx->n_ranks);
    if (!llm__grow((void **)&ctx->weight, &ctx->weight_cap, ctx->n_weights + 1, sizeof *ctx->weight)) return llm__nomem();
    llm_result r = llm__weight_new(desc, ctx->cfg.compute, ctx->isa, out);
    if (r) return r;
    ctx->weight[ctx->n_weights++] = *out;
    if (desc->role == LLM_ROLE_EXPERTS || desc->role == LLM_ROLE_EXPERTS_GATE_UP) return llm__cpu_experts_memory(ctx, desc);
    if (desc->role == LLM_ROLE_HEAD) ctx->rank[rank].vocab = LLM__MAX(ctx->rank[rank].vocab, desc->rows);
    return LLM_OK;
}

static void llm__cpu_pack(void *arg, int thread, int n_threads) {
    llm_backend_ctx *ctx = (llm_backend_ctx *)arg;
    for (size_t i = 0; i < ctx->n_weights; i++) llm__weight_pack(ctx->weight[i], thread, n_threads);
}

static llm_result llm__cpu_weights_done(llm_backend_ctx *ctx) {
    int64_t vocab = 0;
    int ok = 1;
    llm__pool_run(ctx->pool, llm__cpu_pack, ctx);
    for (int r = 0; r < ctx->n_ranks; r++) vocab += ctx->rank[r].vocab;
    ctx->logits_stride = (vocab + 15) & ~(int64_t)15;
    ctx->logits_rows = ctx->cfg.max_out;
    ctx->logits_bytes = (size_t)llm__mul(llm__mul((uint64_t)ctx->logits_stride, (uint64_t)ctx->logits_rows, &ok), sizeof(float), &ok);
    if (!ctx->logits_bytes) return ok ? LLM_OK : llm__nomem();
    ctx->logits = (float *)llm__cpu_pages(ctx, ctx->logits_bytes);
    return ctx->logits ? LLM_OK : llm__nomem();
}

/* Lays out a page; `layer` may be NULL, then only the size is wanted. 0: it does not fit. */
static int64_t llm__kv_layout(const llm__kv_cache *kv, int n_layers, const llm_kv_layer *layers, int page_tokens, llm__kv_place *layer) {
    int ok = page_tokens >= LLM__GROUP && page_tokens <= 4096 && page_tokens % LLM__GROUP == 0 && n_layers >= 0;
    uint64_t at = 0;
    for (int i = 0; ok && i < n_layers; i++) {
        llm__kv_place place;
        if (layers[i].n_kv_heads < 1 || layers[i].head_dim < 1 || layers[i].head_dim > 8192 || layers[i].v_head_dim < 0 || layers[i].v_head_dim > 8192) return 0;
        at = llm__kv_place_layer(kv, &layers[i], page_tokens, at, &place, &ok);
        if (layer) layer[i] = place;
    }
    return ok ? (int64_t)at : 0;
}

static int64_t llm__cpu_kv_page_bytes(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens) {
    return llm__kv_layout(&ctx->kv, n_layers, layers, page_tokens, NULL);
}

/* Takes each page of memory now, so that a later shortage cannot hit a running step. */
static void llm__cpu_kv_touch(void *arg, int thread, int n_threads) {
    llm__kv_cache *kv = &((llm_backend_ctx *)arg)->kv;
    int64_t bytes = kv->page_bytes * kv->n_pages, from = bytes / n_threads * thread, to = thread == n_threads - 1 ? bytes : from + bytes / n_threads;
    for (int r = 0; r < ((llm_backend_ctx *)arg)->n_ranks; r++)
        for (int64_t i = from; i < to; i += 4096) ((volatile uint8_t *)kv->base[r])[i] = 0;
}

static llm_result llm__cpu_kv_open(llm_backend_ctx *ctx, int n_layers, const llm_kv_layer *layers, int page_tokens, int64_t n_pages) {
    llm__kv_cache *kv = &ctx->kv;
    int ok = 1;
    if (kv->layer) return llm__error(LLM_ERR_ARG, "kv_open: called twice");
    kv->layer = LLM__NEW(llm__kv_place, n_layers > 0 ? n_layers : 1);
    if (!kv->layer) return llm__nomem();
    kv->page_bytes = llm__kv_layout(kv, n_layers, layers, page_tokens, kv->layer);
    if ((n_layers && !kv->page_bytes) || n_pages < 1 || n_pages > INT32_MAX)
        return llm__error(LLM_ERR_ARG, "kv_open: %d layers, %d tokens a page, %lld pages: expected a multiple of 16 tokens and at least a page", n_layers, page_tokens,
                          (long long)n_pages);
    uint64_t bytes = llm__add(llm__mul((uint64_t)kv->page_bytes, (uint64_t)n_pages, &ok), 64, &ok);
    for (int r = 0; r < ctx->n_ranks; r++) {
        kv->base[r] = ok ? (uint8_t *)llm__cpu_pages(ctx, (size_t)bytes) : NULL;
        if (!kv->base[r]) return llm__error(LLM_ERR_NOMEM, "kv cache: no memory for %lld pages of %lld bytes", (long long)n_pages, (long long)kv->page_bytes);
        kv->n_pages = n_pages;
    }
    kv->n_layers = n_layers;
    kv->page_tokens = page_tokens;
    llm__pool_run(ctx->pool, llm__cpu_kv_touch, ctx);
    for (int i = 0; i < n_layers; i++) {
        int vd = layers[i].v_head_dim ? layers[i].v_head_dim : layers[i].head_dim;
        llm_result r = llm__cpu_scratch(ctx, llm__attend_floats(layers[i].head_dim, vd) * sizeof(float));
        if (r) return r;
    }
    return LLM_OK;
}

static int64_t llm__cpu_memory_used(llm_backend_ctx *ctx) {
    int64_t n = (int64_t)ctx->memory;
    for (size_t i = 0; i < ctx->n_weights; i++) n += (int64_t)ctx->weight[i]->bytes;
    return n;
}

/* ---- the step ---- */

static llm_result llm__step_check(const llm_backend_ctx *ctx, const llm_step *s) {
    const llm_shape *n = &s->shape;
    if (n->n_rows < 0 || n->n_rows > ctx->cfg.max_rows || n->n_seqs < 0 || n->n_seqs > ctx->cfg.max_seqs || n->n_out < 0 || n->n_out > ctx->cfg.max_out)
        return llm__error(LLM_ERR_ARG, "step: %d rows, %d sequences, %d out rows: expected at most %d, %d, %d", n->n_rows, n->n_seqs, n->n_out, ctx->cfg.max_rows,
                          ctx->cfg.max_seqs, ctx->cfg.max_out);
    if (s->seq_begin[0] != 0 || s->seq_begin[n->n_seqs] != n->n_rows) return llm__error(LLM_ERR_ARG, "step: seq_begin does not cover the rows");
    for (int q = 0; q < n->n_seqs; q++) {
        int begin = s->seq_begin[q], end = s->seq_begin[q + 1], pages = 0;
        if (ctx->kv.n_layers) pages = (s->seq_len[q] + ctx->kv.page_tokens - 1) / ctx->kv.page_tokens;
        if (end < begin || s->seq_len[q] < end - begin || pages > ctx->cfg.max_pages_per_seq || (ctx->kv.n_layers && pages > s->page_stride))
            return llm__error(LLM_ERR_ARG, "step: sequence %d has rows %d to %d, length %d, %d pages of at most %d", q, begin, end, s->seq_len[q], pages,
                              LLM__MIN(ctx->cfg.max_pages_per_seq, s->page_stride));
        for (int row = begin; row < end; row++)
            if (s->seq_of_row[row] != q) return llm__error(LLM_ERR_ARG, "step: row %d is of sequence %d, expected %d", row, s->seq_of_row[row], q);
        for (int p = 0; p < pages; p++) {
            int32_t page = s->pages[(size_t)q * (size_t)s->page_stride + (size_t)p];
            int written = (p + 1) * ctx->kv.page_tokens > s->seq_len[q] - (end - begin);
            if (page >= ctx->kv.n_pages || (page < 0 && (written || page != -1)))
                return llm__error(LLM_ERR_ARG, "step: page %d of sequence %d is %d, expected less than %lld", p, q, page, (long long)ctx->kv.n_pages);
        }
    }
    for (int i = 0; i < n->n_out; i++)
        if (s->out_rows[i] < 0 || s->out_rows[i] >= n->n_rows) return llm__error(LLM_ERR_ARG, "step: out row %d of %d rows", s->out_rows[i], n->n_rows);
    return LLM_OK;
}

/* Page tables, each sequence's part that is in use. A page given back (-1) reads as page 0; nothing of it counts. */
static void llm__step_copy_pages(llm_backend_ctx *ctx, const llm_step *from) {
    int32_t *to = ctx->arrays[6];
    for (int s = 0; s < from->shape.n_seqs && ctx->kv.n_layers; s++) {
        int n = (from->seq_len[s] + ctx->kv.page_tokens - 1) / ctx->kv.page_tokens;
        for (int i = 0; i < n; i++) to[(size_t)s * (size_t)ctx->cfg.max_pages_per_seq + (size_t)i] = LLM__MAX(0, from->pages[(size_t)s * (size_t)from->page_stride + (size_t)i]);
    }
    ctx->step.pages = to;
    ctx->step.page_stride = ctx->cfg.max_pages_per_seq;
}

static const int32_t *llm__step_copy(int32_t *to, const int32_t *from, int n) {
    if (from) memcpy(to, from, (size_t)n * sizeof *to);
    else memset(to, 0, (size_t)n * sizeof *to);
    return to;
}

static llm_result llm__cpu_begin_step(llm_backend_ctx *ctx, const llm_step *s) {
    int rows = s->shape.n_rows, seqs = s->shape.n_seqs, position_rows = s->n_position_rows == 3 ? 3 : 1;
    llm_result r = llm__step_check(ctx, s);
    ctx->failed = r;
    if (r) {
        snprintf(ctx->why, sizeof ctx->why, "%.255s", llm_last_error());
        return r;
    }
    ctx->step.shape = s->shape;
    ctx->step.n_position_rows = position_rows;
    ctx->step.tokens = llm__step_copy(ctx->arrays[0], s->tokens, rows);
    ctx->step.positions = llm__step_copy(ctx->arrays[1], s->positions, rows * position_rows);
    ctx->step.seq_of_row = llm__step_copy(ctx->arrays[2], s->seq_of_row, rows);
    ctx->step.seq_begin = llm__step_copy(ctx->arrays[3], s->seq_begin, seqs + 1);
    ctx->step.seq_len = llm__step_copy(ctx->arrays[4], s->seq_len, seqs);
    ctx->step.seq_rope = llm__step_copy(ctx->arrays[5], s->seq_rope, seqs);
    ctx->step.out_rows = llm__step_copy(ctx->arrays[7], s->out_rows, s->shape.n_out);
    for (int i = 0; i < seqs; i++) ctx->rope_base[i] = s->seq_rope_base ? s->seq_rope_base[i] : 1;
    ctx->step.seq_rope_base = ctx->rope_base;
    llm__step_copy_pages(ctx, s);
    for (size_t i = 0; i < ctx->n_buffers; i++) {
        ctx->buffer[i]->written.interval = ctx->buffer[i]->read.interval = -1;
        ctx->buffer[i]->b.form = 0;
    }
    for (int i = 0; i < ctx->n_ranks; i++) {
        ctx->rank[i].n = ctx->rank[i].interval = 0;
        ctx->rank[i].kv_written.interval = ctx->rank[i].kv_read.interval = -1;
    }
    return LLM_OK;
}

static const float *llm__cpu_logits_row(llm_backend_ctx *ctx, int out_row) { return ctx->logits + out_row * ctx->logits_stride; }

static const float *llm__cpu_buffer_row(llm_backend_ctx *ctx, int rank, const llm_buffer *buf, int row) {
    (void)ctx;
    (void)rank;
    return llm__row(buf, row);
}

static int llm__kv_page_ok(const llm_backend_ctx *ctx, int32_t page) { return page >= 0 && page < ctx->kv.n_pages; }

static llm_result llm__cpu_kv_copy(llm_backend_ctx *ctx, const int32_t *from, const int32_t *to, int n) {
    size_t bytes = (size_t)ctx->kv.page_bytes;
    for (int i = 0; i < n; i++) {
        if (!llm__kv_page_ok(ctx, from[i]) || !llm__kv_page_ok(ctx, to[i])) return llm__error(LLM_ERR_ARG, "kv_copy: page %d to %d of %lld", from[i], to[i], (long long)ctx->kv.n_pages);
        for (int r = 0; r < ctx->n_ranks && from[i] != to[i]; r++) memcpy(ctx->kv.base[r] + (size_t)to[i] * bytes, ctx->kv.base[r] + (size_t)from[i] * bytes, bytes);
    }
    return LLM_OK;
}

static uint8_t *llm__kv_page(const llm_backend_ctx *ctx, int rank, int32_t page) {
    return rank >= 0 && rank < ctx->n_ranks && llm__kv_page_ok(ctx, page) ? ctx->kv.base[rank] + (size_t)page * (size_t)ctx->kv.page_bytes : NULL;
}

static llm_result llm__cpu_kv_read(llm_backend_ctx *ctx, int rank, int32_t page, void *host) {
    const uint8_t *at = llm__kv_page(ctx, rank, page);
    if (!at) return llm__error(LLM_ERR_ARG, "kv_read: page %d of rank %d is not there", page, rank);
    memcpy(host, at, (size_t)ctx->kv.page_bytes);
    return LLM_OK;
}

static llm_result llm__cpu_kv_write(llm_backend_ctx *ctx, int rank, int32_t page, const void *host) {
    uint8_t *at = llm__kv_page(ctx, rank, page);
    if (!at) return llm__error(LLM_ERR_ARG, "kv_write: page %d of rank %d is not there", page, rank);
    memcpy(at, host, (size_t)ctx->kv.page_bytes);
    return LLM_OK;
}

typedef struct llm__parallel {
    void (*fn)(void *arg, int i);
    void *arg;
    int n, next;
} llm__parallel;

static void llm__parallel_thread(void *arg, int thread, int n_threads) {
    llm__parallel *p = (llm__parallel *)arg;
    (void)thread;
    (void)n_threads;
    for (int i; (i = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED)) < p->n;) p->fn(p->arg, i);
}

static void llm__cpu_parallel(llm_backend_ctx *ctx, void (*fn)(void *arg, int i), void *arg, int n) {
    llm__parallel p;
    p.fn = fn;
    p.arg = arg;
    p.n = n;
    p.next = 0;
    if (n == 1) fn(arg, 0);
    else llm__pool_run(ctx->pool, llm__parallel_thread, &p);
}

LLM_API const llm_backend *llm_backend_cpu(void) {
    static const llm_backend table = {
        LLM_BACKEND_ABI, sizeof(llm_backend), "cpu", llm__cpu_open, llm__cpu_close, llm__cpu_describe, llm__cpu_buffer_new, llm__cpu_weight, llm__cpu_weights_done,
        llm__cpu_kv_page_bytes, llm__cpu_kv_open, llm__cpu_memory_used, llm__cpu_begin_step, llm__cpu_embed, llm__cpu_rope, llm__cpu_residual, llm__cpu_norm,
        llm__cpu_linear, llm__cpu_qkv, llm__cpu_attention, llm__cpu_mla, llm__cpu_route, llm__cpu_experts, llm__cpu_gate, llm__cpu_gather, llm__cpu_all_reduce,
        llm__cpu_logits, llm__cpu_end_step, llm__cpu_wait, llm__cpu_logits_row, llm__cpu_buffer_row, llm__cpu_kv_copy, llm__cpu_kv_read, llm__cpu_kv_write,
        llm__cpu_parallel};
    return &table;
}
/* ---- section: other kernels, cpu backend (end) ---- */

/* ============================================================================
 * >>model
 * ============================================================================ */
/* ---- section: model (begin) ---- */
/* ---- Facts: one way to ask config.json and GGUF metadata ---- */

#define LLM__MUST INT64_MIN /* as the fallback of a whole number: it must be there */

/* Where values are looked up. After the first failure everything reads as its fallback; `r` keeps the error. */
typedef struct llm__facts {
    const llm_json *json; /* config.json, or NULL: then gguf */
    int node[3], n_nodes; /* objects to look in, in this order: a RoPE object, text_config, the root */
    const llm__gguf *gguf;
    const char *arch;     /* prefix of GGUF keys */
    const char *path;
    llm_result r;
} llm__facts;

/* The next of several names separated by spaces, copied to `word`; NULL at the end. */
static const char *llm__word_next(const char *words, char *word, size_t size) {
    while (*words == ' ') words++;
    size_t n = strcspn(words, " ");
    if (!n || n >= size) return NULL;
    memcpy(word, words, n);
    word[n] = 0;
    return words + n;
}

/* 1 if `word` is one of `words`. */
static int llm__word_in(const char *words, const char *word) {
    char one[64];
    while ((words = llm__word_next(words, one, sizeof one)))
        if (!strcmp(one, word)) return 1;
    return 0;
}

/* The value of the first key that is there and not null; -1. */
static int llm__facts_json(const llm__facts *f, const char *keys) {
    char key[64];
    while (f->json && (keys = llm__word_next(keys, key, sizeof key)))
        for (int i = 0; i < f->n_nodes; i++) {
            int v = llm_json_find(f->json, f->node[i], key);
            if (llm_json_type_of(f->json, v) > LLM_JSON_NULL) return v;
        }
    return -1;
}

static const llm__gguf_kv *llm__facts_gguf(const llm__facts *f, const char *key) {
    char full[192];
    if (!f->gguf || !key) return NULL;
    snprintf(full, sizeof full, "%s.%s", f->arch, key);
    return llm__gguf_find(f->gguf, full);
}

static void llm__facts_bad(llm__facts *f, const char *keys, const char *gguf_key, const char *what) {
    char key[64];
    if (f->r) return;
    if (f->json) llm__word_next(keys, key, sizeof key);
    f->r = f->json ? llm__error(LLM_ERR_FORMAT, "%s: config.json: %s: %s", f->path, key, what)
                   : llm__error(LLM_ERR_FORMAT, "%s: %.64s.%s: %s", f->path, f->arch, gguf_key ? gguf_key : keys, what);
}

/* A number between lo and hi; `whole`: without fraction. NaN as fallback: absent. */
static double llm__fact_any(llm__facts *f, const char *keys, const char *gguf_key, double lo, double hi, int whole) {
    char what[160];
    double v = 0;
    int64_t i = 0;
    int node = llm__facts_json(f, keys), ok;
    const llm__gguf_kv *kv = llm__facts_gguf(f, gguf_key);
    if (f->r || (node < 0 && !kv)) return (double)NAN;
    if (f->json) ok = whole ? llm_json_int(f->json, node, &i) : llm_json_num(f->json, node, &v);
    else ok = kv->type != LLM__GGUF_BOOL && (whole ? llm__gguf_int_at(kv, 0, &i) : llm__gguf_num_at(kv, 0, &v));
    for (uint64_t k = 1; ok && kv && kv->is_array && k < kv->count; k++) { /* one value a layer: all must be equal */
        int64_t other = 0;
        ok = whole && llm__gguf_int_at(kv, k, &other) && other == i;
    }
    if (whole) v = (double)i;
    if (ok && v >= lo && v <= hi) return v;
    if (ok) snprintf(what, sizeof what, "%.17g is outside %.9g to %.9g", v, lo, hi);
    else snprintf(what, sizeof what, "%s expected", whole ? "a whole number" : "a number");
    for (char *p = what; *p; p++)
        if (*p == ',') *p = '.'; /* whatever the host program's locale prints */
    llm__facts_bad(f, keys, gguf_key, what);
    return (double)NAN;
}

static int64_t llm__fact_int(llm__facts *f, const char *keys, const char *gguf_key, int64_t fallback, int64_t lo, int64_t hi) {
    double v = llm__fact_any(f, keys, gguf_key, (double)lo, (double)hi, 1);
    if (v == v) return (int64_t)v;
    if (fallback != LLM__MUST) return fallback;
    llm__facts_bad(f, keys, gguf_key, "missing");
    return lo;
}

static double llm__fact_num(llm__facts *f, const char *keys, const char *gguf_key, double fallback, double lo, double hi) {
    double v = llm__fact_any(f, keys, gguf_key, lo, hi, 0);
    return v == v ? v : fallback;
}

static int llm__fact_bool(llm__facts *f, const char *keys, const char *gguf_key, int fallback) {
    int v = fallback, node = llm__facts_json(f, keys);
    int64_t i;
    const llm__gguf_kv *kv = llm__facts_gguf(f, gguf_key);
    if (kv && kv->type == LLM__GGUF_BOOL && !kv->is_array) return kv->data[0] != 0;
    if (node >= 0 && llm_json_int(f->json, node, &i)) return i != 0;
    if ((node >= 0 && !llm_json_bool(f->json, node, &v)) || kv) llm__facts_bad(f, keys, gguf_key, "true or false expected");
    return v;
}

/* A text, into `out`; the empty text if it is absent. */
static const char *llm__fact_str(llm__facts *f, const char *keys, const char *gguf_key, char *out, size_t size) {
    size_t n = 0;
    int node = llm__facts_json(f, keys);
    const llm__gguf_kv *kv = llm__facts_gguf(f, gguf_key);
    const char *s = node >= 0 ? llm_json_str(f->json, node, &n) : NULL;
    out[0] = 0;
    if (kv && kv->type == LLM__GGUF_STR && !kv->is_array) {
        s = (const char *)kv->data + 8;
        n = (size_t)llm__load_le(kv->data, 8);
    }
    if (s && n < size) {
        memcpy(out, s, n);
        out[n] = 0;
    } else if (node >= 0 || kv) {
        llm__facts_bad(f, keys, gguf_key, "a short text expected");
    }
    return out;
}

/* ---- Families ---- */

/* What neither config.json nor GGUF metadata say, because the code of each family knows it. */
enum {
    LLM__LAYER_NORM = 1,       /* LayerNorm, else RMSNorm */
    LLM__NORM_PLUS1 = 2,       /* a folder stores norm weights minus one (GGUF does not) */
    LLM__PAIRS = 4,            /* RoPE turns pairs (2i, 2i+1) in a folder */
    LLM__PAIRS_GGUF = 8,       /* the same in GGUF, whose q and k rows may be permuted */
    LLM__QKV_BIAS = 16,        /* q, k and v have biases */
    LLM__ALL_BIAS = 32,        /* every projection and norm has one */
    LLM__BIAS_NOT_O = 64,      /* attention_bias means q, k and v only */
    LLM__NO_GATE = 128,        /* MLP: down(act(up x)) */
    LLM__PARALLEL = 256,       /* attention and MLP read the same x */
    LLM__NO_PRE_NORM = 512,    /* blocks read x itself */
    LLM__POST_NORM = 1024,     /* what a block adds is normalised first */
    LLM__QK_HEAD = 2048,       /* q and k are normalised a head */
    LLM__QK_WHOLE = 4096,      /* or over their whole width */
    LLM__TIED = 8192,          /* output = embedding, unless said otherwise */
    LLM__CONV1D = 16384,       /* matrices stand as (in, out) */
    LLM__LEARNED = 32768,      /* a table of positions instead of RoPE */
    LLM__ALIBI = 65536,
    LLM__GROUPED = 1 << 17,    /* the fused q, k, v matrix goes kv head by kv head: its queries, k, v */
    LLM__MLA = 1 << 18,        /* latent attention */
    LLM__SIGMOID = 1 << 19,    /* router scores */
    LLM__NORM_TOPK = 1 << 20,  /* chosen experts' weights are normalised, unless said otherwise */
    LLM__QWEN_WINDOW = 1 << 21, /* sliding_window counts only with use_sliding_window, from max_window_layers on */
    LLM__DIVIDE_LOGITS = 1 << 22, /* GGUF's logit_scale is a divisor */
    LLM__TOPK_SOFTMAX = 1 << 23 /* router: softmax over the chosen */
};
enum { LLM__GPT_BIAS = LLM__LAYER_NORM | LLM__ALL_BIAS | LLM__NO_GATE };

typedef struct llm__family {
    const char *names;   /* model_type of config.json; the first is the family's name */
    const char *gguf;    /* general.architecture; "": none */
    uint32_t flags;
    llm_act act;
    float theta, partial; /* RoPE base and share of the head that it turns, unless said otherwise */
} llm__family;

static const llm__family llm__families[] = {
    {"llama mistral ministral xverse aquila cwm", "llama mistral3 xverse", LLM__PAIRS_GGUF, LLM_ACT_SILU, 1e4f, 1},
    {"mixtral", "", LLM__NORM_TOPK, LLM_ACT_SILU, 1e4f, 1},
    {"qwen", "qwen", LLM__QKV_BIAS, LLM_ACT_SILU, 1e4f, 1},
    {"qwen2 qwen2_vl_text qwen2_5_vl_text qwen2_vl qwen2_5_vl", "qwen2", LLM__QKV_BIAS | LLM__QWEN_WINDOW, LLM_ACT_SILU, 1e4f, 1},
    {"qwen2_moe", "qwen2moe", LLM__QKV_BIAS | LLM__QWEN_WINDOW, LLM_ACT_SILU, 1e4f, 1},
    {"qwen3", "qwen3", LLM__QK_HEAD | LLM__QWEN_WINDOW, LLM_ACT_SILU, 1e4f, 1},
    {"qwen3_moe", "qwen3moe", LLM__QK_HEAD | LLM__QWEN_WINDOW, LLM_ACT_SILU, 1e4f, 1},
    {"gemma", "gemma", LLM__NORM_PLUS1 | LLM__TIED, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"gemma2", "gemma2", LLM__NORM_PLUS1 | LLM__TIED | LLM__POST_NORM, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"gemma3_text gemma3", "gemma3", LLM__NORM_PLUS1 | LLM__TIED | LLM__POST_NORM | LLM__QK_HEAD, LLM_ACT_GELU_TANH, 1e6f, 1},
    {"phi3", "phi3", 0, LLM_ACT_SILU, 1e4f, 1},
    {"phi", "phi2", LLM__GPT_BIAS | LLM__PARALLEL, LLM_ACT_GELU_TANH, 1e4f, 0.5f},
    {"gpt2", "gpt2", LLM__GPT_BIAS | LLM__CONV1D | LLM__LEARNED | LLM__TIED, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"gpt_bigcode", "starcoder", LLM__GPT_BIAS | LLM__LEARNED | LLM__TIED, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"gpt_neox", "gptneox", LLM__GPT_BIAS | LLM__PARALLEL | LLM__GROUPED, LLM_ACT_GELU, 1e4f, 0.25f},
    {"gptj", "gptj", LLM__LAYER_NORM | LLM__NO_GATE | LLM__PARALLEL | LLM__PAIRS | LLM__PAIRS_GGUF, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"opt", "", LLM__GPT_BIAS | LLM__LEARNED | LLM__TIED, LLM_ACT_RELU, 1e4f, 1},
    {"bloom", "bloom", LLM__GPT_BIAS | LLM__ALIBI | LLM__GROUPED | LLM__TIED, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"falcon", "", LLM__LAYER_NORM | LLM__NO_GATE | LLM__PARALLEL | LLM__GROUPED | LLM__TIED, LLM_ACT_GELU, 1e4f, 1},
    {"stablelm", "stablelm", LLM__LAYER_NORM, LLM_ACT_SILU, 1e4f, 0.25f},
    {"starcoder2", "starcoder2", LLM__GPT_BIAS | LLM__TIED, LLM_ACT_GELU_TANH, 1e4f, 1},
    {"nemotron", "nemotron", LLM__LAYER_NORM | LLM__NORM_PLUS1 | LLM__NO_GATE, LLM_ACT_RELU2, 1e4f, 0.5f},
    {"arcee", "arcee", LLM__NO_GATE | LLM__PAIRS_GGUF, LLM_ACT_RELU2, 1e4f, 1},
    {"chatglm", "chatglm", LLM__QKV_BIAS | LLM__PAIRS | LLM__PAIRS_GGUF, LLM_ACT_SILU, 1e4f, 0.5f},
    {"glm", "", LLM__PAIRS | LLM__BIAS_NOT_O, LLM_ACT_SILU, 1e4f, 0.5f},
    {"glm4", "glm4", LLM__PAIRS | LLM__PAIRS_GGUF | LLM__BIAS_NOT_O | LLM__POST_NORM, LLM_ACT_SILU, 1e4f, 0.5f},
    {"glm4_moe", "glm4moe", LLM__BIAS_NOT_O | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 1e4f, 0.5f},
    {"dots1", "dots1", LLM__QK_HEAD | LLM__SIGMOID, LLM_ACT_SILU, 1e4f, 1},
    {"internlm", "", 0, LLM_ACT_SILU, 1e4f, 1},
    {"internlm2", "internlm2", LLM__GROUPED | LLM__PAIRS_GGUF, LLM_ACT_SILU, 1e4f, 1},
    {"internlm3", "", 0, LLM_ACT_SILU, 1e4f, 1},
    {"baichuan", "baichuan", LLM__PAIRS_GGUF, LLM_ACT_SILU, 1e4f, 1},
    {"minicpm", "minicpm", LLM__PAIRS_GGUF | LLM__DIVIDE_LOGITS, LLM_ACT_SILU, 1e4f, 1},
    {"cohere", "command-r", LLM__LAYER_NORM | LLM__PARALLEL | LLM__PAIRS | LLM__PAIRS_GGUF | LLM__TIED, LLM_ACT_SILU, 1e4f, 1},
    {"cohere2", "cohere2", LLM__LAYER_NORM | LLM__PARALLEL | LLM__PAIRS | LLM__PAIRS_GGUF | LLM__TIED, LLM_ACT_SILU, 1e4f, 1},
    {"deepseek_v2", "deepseek2", LLM__MLA | LLM__PAIRS | LLM__PAIRS_GGUF, LLM_ACT_SILU, 1e4f, 1},
    {"deepseek_v3 kimi_k2", "", LLM__MLA | LLM__PAIRS | LLM__PAIRS_GGUF | LLM__SIGMOID | LLM__NORM_TOPK, LLM_ACT_SILU, 1e4f, 1},
    {"ernie4_5", "ernie4_5", LLM__PAIRS | LLM__PAIRS_GGUF | LLM__TIED, LLM_ACT_SILU, 5e5f, 1},
    {"ernie4_5_moe", "ernie4_5-moe", LLM__PAIRS | LLM__PAIRS_GGUF | LLM__TIED | LLM__NORM_TOPK, LLM_ACT_SILU, 5e5f, 1},
    {"granite", "granite", LLM__PAIRS_GGUF | LLM__DIVIDE_LOGITS, LLM_ACT_SILU, 1e4f, 1},
    {"granitemoe granitemoeshared", "granitemoe", LLM__PAIRS_GGUF | LLM__DIVIDE_LOGITS | LLM__TOPK_SOFTMAX, LLM_ACT_SILU, 1e4f, 1},
    {"olmo", "olmo", LLM__LAYER_NORM | LLM__PAIRS_GGUF, LLM_ACT_SILU, 1e4f, 1},
    {"olmo2 olmo3", "olmo2", LLM__NO_PRE_NORM | LLM__POST_NORM | LLM__QK_WHOLE, LLM_ACT_SILU, 5e5f, 1},
    {"olmoe", "olmoe", LLM__QK_WHOLE, LLM_ACT_SILU, 1e4f, 1},
    {"exaone4", "exaone4", LLM__NO_PRE_NORM | LLM__POST_NORM | LLM__QK_HEAD, LLM_ACT_SILU, 1e6f, 1},
    {"seed_oss", "seed_oss", LLM__BIAS_NOT_O, LLM_ACT_SILU, 1e4f, 1},
    {"smollm3", "smollm3", LLM__PAIRS_GGUF | LLM__TIED, LLM_ACT_SILU, 2e6f, 1},
    {"helium", "", LLM__PAIRS | LLM__BIAS_NOT_O, LLM_ACT_SILU, 1e5f, 1},
    {"gpt_oss", "gpt-oss", LLM__QKV_BIAS | LLM__ALL_BIAS | LLM__TOPK_SOFTMAX, LLM_ACT_SWIGLU_OAI, 1.5e5f, 1},
};

/* ---- The architecture: shapes and switches ---- */

enum { LLM__MAX_LAYERS = 512, LLM__MAX_ROPE = 512 };

/* One way to turn q and k. Two variants with longrope: short and long prompts. */
typedef struct llm__rope {
    int32_t n_variants;
    float inv_freq[LLM__MAX_ROPE]; /* (n_variants, rope_dim / 2) */
    float scale[2];                /* of cosines and sines */
} llm__rope;

typedef struct llm__arch_layer {
    int8_t rope;     /* which of arch.rope; -1: no positions here */
    int8_t moe;
    int32_t window;  /* 0: sees everything */
} llm__arch_layer;

typedef struct llm__arch {
    const llm__family *family;
    char name[64];         /* model_type or general.architecture */
    char class_name[64];   /* architectures[0] */
    uint32_t flags;        /* the family's, corrected by the config */
    int gguf;
    int32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, v_head_dim, ff, vocab, max_positions, max_len;
    int32_t position_offset;           /* of the table of learned positions */
    llm_norm_kind norm;
    llm_qk_norm qk_norm;
    float eps, embed_scale, residual_scale, logit_scale, attn_scale, attn_softcap, logit_softcap, clip_qkv;
    llm_act act;
    float act_limit;
    int qkv_bias, o_bias, mlp_bias, norm_bias; /* 1: required; 0: used where the file has one */
    int tied, sinks;
    llm__rope rope[2];                 /* global, local */
    int32_t n_rope, rope_dim, rope_pairs;
    int32_t dynamic;                   /* base grows with the prompt: 1 dynamic NTK, 2 Qwen 1's steps */
    double dynamic_factor, dynamic_from;
    int32_t long_from;                 /* prompts longer than this take RoPE variant 1; 0: none */
    int32_t logn_from;
    int32_t q_rank, kv_rank, nope;     /* latent attention; q_rank 0: plain q */
    int32_t n_experts, n_used, ff_expert, ff_shared, shared_gate;
    llm_route_score score;
    int32_t normalize, n_group, topk_group, group_top2;
    float normalize_min, route_scale;
    llm__arch_layer layer[LLM__MAX_LAYERS];
} llm__arch;

static int llm__arch_is(const llm__arch *a, const char *names) {
    char first[64];
    llm__word_next(a->family->names, first, sizeof first);
    return llm__word_in(names, first);
}

static llm_result llm__arch_unknown(const char *path, const char *name) {
    llm_text t;
    memset(&t, 0, sizeof t);
    for (int i = 0; i < LLM__COUNT(llm__families); i++) {
        char one[64];
        llm__word_next(llm__families[i].names, one, sizeof one);
        if (i) llm_text_str(&t, ", ");
        llm_text_str(&t, one);
    }
    llm_result r = llm__error(LLM_ERR_UNSUPPORTED, "%s: architecture \"%.64s\" is not supported; supported are %s", path, name, t.failed ? "others" : t.data);
    llm_text_free(&t);
    return r;
}

/* Finds the family, and where in config.json its values stand. */
static llm_result llm__arch_family(llm__facts *f, llm__arch *a) {
    char outer[64] = "";
    if (f->json) {
        int inner = llm__facts_json(f, "text_config llm_config language_config"), classes = llm__facts_json(f, "architectures");
        size_t n = 0;
        const char *name = classes >= 0 ? llm_json_str(f->json, llm_json_first(f->json, classes), &n) : NULL;
        if (name) snprintf(a->class_name, sizeof a->class_name, "%.60s", name);
        llm__fact_str(f, "model_type", NULL, outer, sizeof outer);
        if (llm_json_type_of(f->json, inner) == LLM_JSON_OBJECT) {
            f->node[0] = inner;
            f->node[1] = 0;
            f->n_nodes = 2;
        }
        llm__fact_str(f, "model_type", NULL, a->name, sizeof a->name);
        if (!a->name[0]) snprintf(a->name, sizeof a->name, "%s", outer);
    } else {
        snprintf(a->name, sizeof a->name, "%.60s", f->arch);
        snprintf(a->class_name, sizeof a->class_name, "%.60s", f->arch);
    }
    for (int i = 0; !f->r && i < LLM__COUNT(llm__families) && !a->family; i++)
        if (llm__word_in(f->json ? llm__families[i].names : llm__families[i].gguf, a->name)) a->family = &llm__families[i];
    if (f->r) return f->r;
    if (!a->family) return a->name[0] ? llm__arch_unknown(f->path, a->name) : llm__error(LLM_ERR_FORMAT, "%s: config.json: model_type is missing", f->path);
    a->gguf = !f->json;
    a->flags = a->family->flags;
    return LLM_OK;
}

static void llm__arch_shapes(llm__facts *f, llm__arch *a) {
    a->n_layers = (int32_t)llm__fact_int(f, "num_hidden_layers num_layers n_layer", "block_count", LLM__MUST, 1, LLM__MAX_LAYERS);
    if (!f->json) a->n_layers -= (int32_t)llm__fact_int(f, "", "nextn_predict_layers", 0, 0, a->n_layers - 1);
    a->hidden = (int32_t)llm__fact_int(f, "hidden_size n_embd d_model", "embedding_length", LLM__MUST, 1, 1 << 17);
    a->n_heads = (int32_t)llm__fact_int(f, "num_attention_heads n_head n_heads", "attention.head_count", LLM__MUST, 1, 4096);
    int one_kv = f->json && llm__fact_bool(f, "multi_query", NULL, llm__arch_is(a, "gpt_bigcode falcon")) && !llm__fact_bool(f, "new_decoder_architecture", NULL, 0);
    a->n_kv_heads = (int32_t)llm__fact_int(f, "num_key_value_heads multi_query_group_num num_kv_heads n_head_kv", "attention.head_count_kv", a->n_heads, 1, a->n_heads);
    if (one_kv) a->n_kv_heads = 1;
    int64_t even = a->hidden / LLM__MAX(a->n_heads, 1);
    a->head_dim = (int32_t)llm__fact_int(f, "head_dim kv_channels attention_head_dim", "attention.key_length", a->hidden % a->n_heads ? LLM__MUST : even, 1, 4096);
    a->v_head_dim = (int32_t)llm__fact_int(f, "", "attention.value_length", a->head_dim, 1, 4096);
    a->ff = (int32_t)llm__fact_int(f, "intermediate_size ffn_hidden_size ffn_dim n_inner", "feed_forward_length", 4 * (int64_t)a->hidden, 1, 1 << 21);
    if (f->json && llm__arch_is(a, "qwen")) a->ff /= 2; /* gate and up together */
    a->vocab = (int32_t)llm__fact_int(f, "padded_vocab_size vocab_size", "vocab_size", a->gguf ? a->vocab : LLM__MUST, 1, 1 << 24);
    a->max_positions = (int32_t)llm__fact_int(f, "max_position_embeddings n_positions seq_length model_max_length max_seq_len", "context_length", 2048, 1, 1 << 30);
    a->max_len = a->max_positions;
    if (a->flags & LLM__MLA) {
        a->q_rank = (int32_t)llm__fact_int(f, "q_lora_rank", "attention.q_lora_rank", 0, 0, 1 << 16);
        a->kv_rank = (int32_t)llm__fact_int(f, "kv_lora_rank", "attention.kv_lora_rank", LLM__MUST, 1, 1 << 16);
        a->rope_dim = (int32_t)llm__fact_int(f, "qk_rope_head_dim", "rope.dimension_count", LLM__MUST, 2, LLM__MAX_ROPE);
        int64_t key = llm__fact_int(f, "", "attention.key_length_mla", a->head_dim, 1, 4096);
        a->nope = (int32_t)llm__fact_int(f, "qk_nope_head_dim", NULL, key - a->rope_dim, 1, 4096);
        a->v_head_dim = (int32_t)llm__fact_int(f, "v_head_dim", "attention.value_length_mla", a->v_head_dim, 1, 4096);
        a->head_dim = a->nope + a->rope_dim;
        a->n_kv_heads = a->n_heads;
    }
}

static llm_act llm__act_of(llm__facts *f, const char *name) {
    static const struct { const char *names; llm_act act; } table[] = {
        {"silu swish", LLM_ACT_SILU}, {"gelu", LLM_ACT_GELU}, {"gelu_new gelu_pytorch_tanh gelu_fast gelu_python_tanh", LLM_ACT_GELU_TANH},
        {"relu", LLM_ACT_RELU}, {"relu2 relu_squared", LLM_ACT_RELU2},
    };
    for (int i = 0; i < LLM__COUNT(table); i++)
        if (llm__word_in(table[i].names, name)) return table[i].act;
    if (!f->r) f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: hidden_act: \"%.40s\" is not supported", f->path, name);
    return LLM_ACT_NONE;
}

/* Which biases and norms there are. */
static void llm__arch_switches(llm__facts *f, llm__arch *a, int has_inv_freq) {
    char text[64];
    int all = llm__fact_bool(f, "use_bias bias enable_bias add_bias_linear", NULL, (a->flags & LLM__ALL_BIAS) != 0);
    int attention = llm__fact_bool(f, "attention_bias", NULL, -1);
    a->qkv_bias = llm__fact_bool(f, "qkv_bias add_qkv_bias use_qkv_bias", NULL, attention >= 0 ? attention : all || (a->flags & LLM__QKV_BIAS));
    a->o_bias = llm__fact_bool(f, "attention_out_bias", NULL, attention >= 0 ? attention && !(a->flags & LLM__BIAS_NOT_O) : all);
    a->mlp_bias = llm__fact_bool(f, "mlp_bias", NULL, all && !llm__arch_is(a, "internlm internlm2 gpt_oss"));
    a->norm_bias = (a->flags & LLM__LAYER_NORM) && (a->flags & LLM__ALL_BIAS);
    a->norm = a->flags & LLM__LAYER_NORM ? LLM_NORM_LAYER : LLM_NORM_RMS;
    a->qk_norm = a->flags & LLM__QK_HEAD ? LLM_QK_NORM_HEAD_RMS : a->flags & LLM__QK_WHOLE ? LLM_QK_NORM_WHOLE_RMS : LLM_QK_NORM_NONE;
    if (llm__fact_bool(f, "use_qk_norm qk_layernorm", NULL, 0)) a->qk_norm = llm__arch_is(a, "cohere stablelm") ? LLM_QK_NORM_HEAD_LAYER : LLM_QK_NORM_HEAD_RMS;
    if (llm__fact_bool(f, "use_parallel_residual parallel_attn", "use_parallel_residual", (a->flags & LLM__PARALLEL) != 0)) a->flags |= LLM__PARALLEL;
    else a->flags &= ~(uint32_t)LLM__PARALLEL;
    a->tied = llm__fact_bool(f, "tie_word_embeddings", NULL, -1);
    a->sinks = llm__arch_is(a, "gpt_oss");
    a->act = a->family->act;
    llm__fact_str(f, "hidden_activation hidden_act activation_function activation", NULL, text, sizeof text);
    if (text[0] && a->act != LLM_ACT_SWIGLU_OAI && !llm__arch_is(a, "gemma")) a->act = llm__act_of(f, text);
    a->act_limit = (float)llm__fact_num(f, "swiglu_limit", NULL, 7, 1e-3, 1e6);
    if (llm__fact_bool(f, "alibi", NULL, 0)) a->flags |= LLM__ALIBI;
    if (f->json && llm__arch_is(a, "gpt_bigcode") && a->n_kv_heads > 1) a->flags |= LLM__GROUPED;
    if (llm__arch_is(a, "baichuan") && (a->gguf ? a->n_layers == 40 : a->hidden != 4096 && !strcmp(a->class_name, "BaichuanForCausalLM") && !has_inv_freq))
        a->flags |= LLM__ALIBI; /* the 13B models; the 7B ones rotate */
    if (llm__arch_is(a, "opt")) a->position_offset = 2;
    if (!f->r && (!llm__fact_bool(f, "do_layer_norm_before", NULL, 1) || llm__fact_bool(f, "apply_residual_connection_post_layernorm", NULL, 0) ||
                  llm__fact_bool(f, "scale_attn_by_inverse_layer_idx", NULL, 0) || (f->json && llm__fact_int(f, "word_embed_proj_dim", NULL, a->hidden, 1, 1 << 20) != a->hidden)))
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: this variant of %s (norms after the blocks, projected embeddings or attention scaled by layer) is not supported", f->path, a->name);
}

/* Constants that multiply or cap something. */
static void llm__arch_numbers(llm__facts *f, llm__arch *a) {
    const double big = 1e9;
    double eps = llm__fact_num(f, "rms_norm_eps layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_epsilon norm_eps layer_norm_rms_eps",
                               "attention.layer_norm_rms_epsilon", 1e-5, 1e-20, 1);
    a->eps = (float)llm__fact_num(f, "", "attention.layer_norm_epsilon", eps, 1e-20, 1);
    a->embed_scale = (float)llm__fact_num(f, "embedding_multiplier scale_emb", "embedding_scale", llm__arch_is(a, "gemma gemma2 gemma3_text") ? sqrt(a->hidden) : 1, -big, big);
    a->residual_scale = (float)llm__fact_num(f, "residual_multiplier", "residual_scale", 1, -big, big);
    if (llm__arch_is(a, "minicpm") && f->json) a->residual_scale = (float)(llm__fact_num(f, "scale_depth", NULL, sqrt(a->n_layers), 0, big) / sqrt(a->n_layers));
    a->logit_scale = (float)llm__fact_num(f, "logit_scale", "logit_scale", llm__arch_is(a, "cohere cohere2") ? 0.0625 : 1, -big, big);
    double divisor = llm__fact_num(f, "logits_scaling", NULL, 1, 1e-9, big);
    if (llm__arch_is(a, "minicpm") && f->json) divisor = a->hidden / llm__fact_num(f, "dim_model_base", NULL, a->hidden, 1, big);
    if (a->gguf && (a->flags & LLM__DIVIDE_LOGITS) && a->logit_scale > 0) divisor = a->logit_scale, a->logit_scale = 1;
    a->logit_scale = (float)(a->logit_scale / divisor);
    double query = a->head_dim; /* attention scale = 1 / sqrt(query) */
    if (a->gguf && ((llm__arch_is(a, "gemma2") && a->n_layers == 46) || (llm__arch_is(a, "gemma3_text") && a->n_layers == 62))) query = (double)a->hidden / a->n_heads;
    query = llm__fact_num(f, "query_pre_attn_scalar", NULL, query, 1e-6, big);
    a->attn_scale = (float)llm__fact_num(f, "attention_multiplier", "attention.scale", 1 / sqrt(query), -big, big);
    if (!llm__fact_bool(f, "scale_attn_weights", NULL, 1)) a->attn_scale = 1;
    int caps = llm__arch_is(a, "gemma2");
    a->attn_softcap = (float)llm__fact_num(f, "attn_logit_softcapping", "attn_logit_softcapping", caps && a->gguf ? 50 : 0, 0, big);
    a->logit_softcap = (float)llm__fact_num(f, "final_logit_softcapping", "final_logit_softcapping", caps && a->gguf ? 30 : 0, 0, big);
    if (llm__fact_num(f, "clip_qkv", "attention.clamp_kqv", 0, 0, big) > 0 && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: clip_qkv (clamped q, k and v) is not supported", f->path);
    if (llm__fact_bool(f, "use_logn_attn", NULL, 0)) a->logn_from = (int32_t)llm__fact_int(f, "seq_length max_position_embeddings", NULL, a->max_positions, 2, 1 << 30);
}

static void llm__arch_experts(llm__facts *f, llm__arch *a) {
    char method[64], score[64];
    const char *count = "num_local_experts num_experts n_routed_experts moe_num_experts", *used = "num_experts_per_tok moe_k num_experts_per_token moe_topk";
    a->n_experts = (int32_t)llm__fact_int(f, count, "expert_count", 0, 0, 65536);
    if (!a->n_experts) return;
    a->n_used = (int32_t)llm__fact_int(f, used, "expert_used_count", LLM__MUST, 1, LLM__MIN(a->n_experts, 256));
    a->ff_expert = (int32_t)llm__fact_int(f, "moe_intermediate_size intermediate_size", "expert_feed_forward_length", a->ff, 1, 1 << 20);
    int64_t n_shared = llm__fact_int(f, "n_shared_experts moe_num_shared_experts num_shared_experts", "expert_shared_count", 0, 0, 1024);
    a->ff_shared = (int32_t)llm__fact_int(f, "shared_expert_intermediate_size shared_intermediate_size", "expert_shared_feed_forward_length", n_shared * a->ff_expert, 0, 1 << 21);
    a->shared_gate = llm__arch_is(a, "qwen2_moe");
    a->score = a->flags & LLM__SIGMOID ? LLM_ROUTE_SIGMOID : a->flags & LLM__TOPK_SOFTMAX ? LLM_ROUTE_TOPK_SOFTMAX : LLM_ROUTE_SOFTMAX;
    llm__fact_str(f, "scoring_func", NULL, score, sizeof score);
    if (!strcmp(score, "sigmoid")) a->score = LLM_ROUTE_SIGMOID;
    if (a->gguf && llm__fact_int(f, "", "expert_gating_func", 0, 0, 3) == 2) a->score = LLM_ROUTE_SIGMOID;
    int always = llm__arch_is(a, "llama") || (a->gguf && llm__arch_is(a, "qwen3_moe")); /* Mixtral as GGUF is "llama" */
    a->normalize = llm__fact_bool(f, "norm_topk_prob", "expert_weights_norm", always || (a->flags & LLM__NORM_TOPK));
    if (f->json && llm__arch_is(a, "deepseek_v2")) a->normalize = 0; /* its code ignores the key */
    a->normalize_min = (float)llm__fact_num(f, "moe_norm_min", NULL, 0, 0, 1);
    a->route_scale = (float)llm__fact_num(f, "routed_scaling_factor", "expert_weights_scale", 1, -1e6, 1e6);
    if (a->gguf && a->route_scale == 0) a->route_scale = 1;
    a->n_group = (int32_t)llm__fact_int(f, "n_group", "expert_group_count", 1, 0, a->n_experts);
    a->topk_group = (int32_t)llm__fact_int(f, "topk_group", "expert_group_used_count", 1, 0, LLM__MAX(a->n_group, 1));
    llm__fact_str(f, "topk_method", NULL, method, sizeof method);
    if (!strcmp(method, "greedy")) a->n_group = 1;
    a->group_top2 = a->score == LLM_ROUTE_SIGMOID;
    if (!f->r && a->n_group > 1 && (a->n_experts % a->n_group || a->n_experts / a->n_group * a->topk_group < a->n_used || (a->group_top2 && a->n_experts / a->n_group < 2)))
        f->r = llm__error(LLM_ERR_FORMAT, "%s: %d experts in %d groups of which %d are used cannot give %d experts", f->path, a->n_experts, a->n_group, a->topk_group, a->n_used);
}

/* 1 if layer i is a mixture of experts. */
static int llm__arch_is_moe(llm__facts *f, const llm__arch *a, int i) {
    if (!a->n_experts) return 0;
    int64_t first = llm__fact_int(f, "first_k_dense_replace moe_layer_start_index", "leading_dense_block_count", 0, 0, 1 << 20);
    int64_t last = llm__fact_int(f, "moe_layer_end_index", NULL, -1, -1, 1 << 20);
    int64_t every = llm__fact_int(f, "decoder_sparse_step moe_layer_interval", "interleave_moe_layer_step", 1, 0, 1 << 20), each = llm__fact_int(f, "moe_layer_freq", NULL, 1, 1, 1 << 20);
    int dense = llm__facts_json(f, "mlp_only_layers");
    for (int v = dense >= 0 ? llm_json_first(f->json, dense) : -1; v >= 0; v = llm_json_next(f->json, v)) {
        int64_t index;
        if (llm_json_int(f->json, v, &index) && index == i) return 0;
    }
    return i >= first && (last < 0 || i <= last) && every > 0 && (i + 1) % every == 0 && i % each == 0;
}

/* What each layer sees and how it turns q and k: layer_types, or what the family's code does without it. */
static void llm__arch_layers(llm__facts *f, llm__arch *a) {
    int zero_is_none = llm__arch_is(a, "phi3");
    int32_t window = (int32_t)llm__fact_int(f, "sliding_window", "attention.sliding_window", 0, zero_is_none ? 0 : 1, 1 << 30);
    int types = llm__facts_json(f, "layer_types"), type = types >= 0 ? llm_json_first(f->json, types) : -1;
    int no_rope = llm__facts_json(f, "no_rope_layers"), rope = no_rope >= 0 ? llm_json_first(f->json, no_rope) : -1;
    int hybrid = llm__arch_is(a, "cohere2 exaone4") && window, qwen = (a->flags & LLM__QWEN_WINDOW) != 0, smol = llm__arch_is(a, "smollm3");
    int usual = llm__arch_is(a, "gemma2 gpt_oss") ? 2 : llm__arch_is(a, "gemma3_text") ? 6 : hybrid || !strcmp(a->name, "olmo3") || (a->gguf && llm__arch_is(a, "olmo2")) ? 4 : 0;
    int64_t pattern = llm__fact_int(f, "sliding_window_pattern", NULL, usual, 1, 1 << 20);
    int64_t from = qwen ? llm__fact_int(f, "max_window_layers", NULL, 28, 0, 1 << 20) : 0, interval = llm__fact_int(f, "no_rope_layer_interval", NULL, 4, 1, 1 << 20);
    if (!llm__fact_bool(f, "use_sliding_window", NULL, !qwen && !smol)) window = 0;
    for (int i = 0; i < a->n_layers; i++) {
        llm__arch_layer *l = &a->layer[i];
        int64_t uses_rope = !smol || (i + 1) % interval != 0;
        size_t n;
        if (no_rope >= 0 && !llm_json_int(f->json, rope, &uses_rope)) llm__facts_bad(f, "no_rope_layers", NULL, "0 or 1 for each layer expected");
        const char *name = type >= 0 ? llm_json_str(f->json, type, &n) : NULL;
        int slides = smol ? !uses_rope : i >= from && (!pattern || (i + 1) % pattern != 0);
        if (name) slides = !strcmp(name, "sliding_attention");
        if (!f->r && types >= 0 && (!name || !llm__word_in("sliding_attention full_attention", name)))
            f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: layer_types: entry %d is \"%.40s\", sliding_attention or full_attention expected", f->path, i, name ? name : "");
        l->window = slides ? window : 0;
        l->rope = (int8_t)(!uses_rope || (hybrid && !slides) || (a->flags & (LLM__LEARNED | LLM__ALIBI)) ? -1 : slides && window && a->n_rope > 1 ? 1 : 0);
        l->moe = (int8_t)llm__arch_is_moe(f, a, i);
        if (type >= 0) type = llm_json_next(f->json, type);
        if (rope >= 0) rope = llm_json_next(f->json, rope);
    }
}

/* ---- Rotary positions ---- */

/* How far YaRN stretches attention. */
static double llm__yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1; }

/* YaRN (Peng et al. 2023): frequencies that turn often within the original length stay, slow ones are divided by the factor, between them a ramp. */
static void llm__rope_yarn(llm__facts *f, const llm__arch *a, double base, double factor, double original, llm__rope *out) {
    double fast = llm__fact_num(f, "beta_fast", "rope.scaling.yarn_beta_fast", 32, 1e-3, 1e6), slow = llm__fact_num(f, "beta_slow", "rope.scaling.yarn_beta_slow", 1, 1e-3, 1e6);
    double log_mul = llm__fact_num(f, "", "rope.scaling.yarn_log_multiplier", 0, 0, 10); /* GGUF: 0.1 * mscale_all_dim */
    double all = llm__fact_num(f, "mscale_all_dim", NULL, log_mul * 10, 0, 100), mscale = llm__fact_num(f, "mscale", NULL, log_mul * 10, 0, 100);
    double usual = mscale > 0 && all > 0 ? llm__yarn_mscale(factor, mscale) / llm__yarn_mscale(factor, all) : llm__yarn_mscale(factor, 1);
    int truncate = llm__fact_bool(f, "truncate", NULL, !llm__arch_is(a, "gpt_oss")), d = a->rope_dim;
    double low = d * log(original / (fast * 2 * 3.14159265358979323846)) / (2 * log(base)), high = d * log(original / (slow * 2 * 3.14159265358979323846)) / (2 * log(base));
    low = LLM__MAX(truncate ? floor(low) : low, 0);
    high = LLM__MIN(truncate ? ceil(high) : high, d - 1);
    if (low == high) high += 0.001;
    for (int i = 0; i < d / 2; i++) {
        double ramp = LLM__MIN(LLM__MAX((i - low) / (high - low), 0), 1);
        out->inv_freq[i] = (float)(out->inv_freq[i] * (1 - ramp) + out->inv_freq[i] / factor * ramp);
    }
    out->scale[0] = (float)llm__fact_num(f, "attention_factor", NULL, usual, 1e-6, 1e6);
}

/* Llama 3.1: the same idea by wavelength. */
static void llm__rope_llama3(llm__facts *f, const llm__arch *a, double factor, double original, llm__rope *out) {
    double low = llm__fact_num(f, "low_freq_factor", NULL, 1, 1e-6, 1e6), high = llm__fact_num(f, "high_freq_factor", NULL, 4, 1e-6, 1e6);
    for (int i = 0; i < a->rope_dim / 2; i++) {
        double turns = original * out->inv_freq[i] / (2 * 3.14159265358979323846), keep = (turns - low) / LLM__MAX(high - low, 1e-9);
        if (turns < low) keep = 0;
        else if (turns > high) keep = 1;
        out->inv_freq[i] = (float)(out->inv_freq[i] * ((1 - keep) / factor + keep));
    }
}

/* n factors from a JSON array or an F32 tensor of a GGUF file; 1 if they are there. */
static int llm__rope_factors(llm__facts *f, const llm__tensors *tensors, const char *key, const char *tensor, int n, double *out) {
    int list = llm__facts_json(f, key), v = list >= 0 ? llm_json_first(f->json, list) : -1, ok = llm_json_size(f->json, list) == n;
    const llm__tensor *t = tensors && f->gguf ? llm__tensors_find(tensors, tensor) : NULL;
    if (list < 0 && !t) return 0;
    if (t) ok = t->type == LLM_TYPE_F32 && t->shape[0] == n && t->bytes == n * 4;
    for (int i = 0; ok && i < n; i++, v = t ? -1 : llm_json_next(f->json, v)) {
        float x = 0;
        if (t) memcpy(&x, t->data + 4 * i, 4);
        out[i] = x;
        ok = (t || llm_json_num(f->json, v, &out[i])) && out[i] > 1e-6 && out[i] < 1e9;
    }
    if (!ok && !f->r) f->r = llm__error(LLM_ERR_FORMAT, "%s: %s: %d positive numbers expected", f->path, f->json ? key : tensor, n);
    return ok;
}

/* LongRoPE: own factors for every frequency, one set for short prompts and one for long ones. */
static void llm__rope_long(llm__facts *f, llm__arch *a, const llm__tensors *tensors, llm__rope *out) {
    double factors[2][LLM__MAX_ROPE / 2];
    int half = a->rope_dim / 2;
    double original = (double)llm__fact_int(f, "original_max_position_embeddings", "rope.scaling.original_context_length", a->max_positions, 1, 1 << 30);
    int ok = llm__rope_factors(f, tensors, "short_factor", "rope_factors_short.weight", half, factors[0]) &&
             llm__rope_factors(f, tensors, "long_factor", "rope_factors_long.weight", half, factors[1]);
    if (!ok) {
        if (f->json && !f->r) llm__facts_bad(f, "short_factor long_factor", NULL, "missing");
        return;
    }
    double stretch = llm__fact_num(f, "factor", NULL, a->max_positions / original, 1e-3, 1e6);
    double usual = stretch <= 1 || original <= 1 ? 1 : sqrt(1 + log(stretch) / log(original));
    for (int v = 1; v >= 0; v--)
        for (int i = 0; i < half; i++) out->inv_freq[v * half + i] = (float)(out->inv_freq[i] / factors[v][i]);
    out->scale[0] = out->scale[1] = (float)llm__fact_num(f, "attention_factor", "rope.scaling.attn_factor", usual, 1e-6, 1e6);
    out->n_variants = 2;
    a->long_from = (int32_t)original;
}

/* One set of frequencies. Values are looked for in the RoPE object first (f->node[0]). */
static void llm__rope_fill(llm__facts *f, llm__arch *a, const llm__tensors *tensors, double base, const char *forced, llm__rope *out) {
    char type[64];
    double factors[LLM__MAX_ROPE / 2];
    int half = a->rope_dim / 2;
    llm__fact_str(f, "rope_type type", "rope.scaling.type", type, sizeof type);
    if (forced) snprintf(type, sizeof type, "%s", forced);
    base = llm__fact_num(f, "rope_theta rotary_emb_base rope_base", forced ? "rope.freq_base_swa" : "rope.freq_base", base, 1.0001, 1e18);
    if (llm__arch_is(a, "chatglm")) base *= llm__fact_num(f, "rope_ratio", NULL, 1, 1e-3, 1e6);
    for (int i = 0; i < half; i++) out->inv_freq[i] = (float)pow(base, -2.0 * i / a->rope_dim);
    out->n_variants = 1;
    out->scale[0] = out->scale[1] = 1;
    if (!forced && llm__rope_factors(f, tensors, "", "rope_freqs.weight", half, factors)) /* llama3's, worked out by the converter */
        for (int i = 0; i < half; i++) out->inv_freq[i] = (float)(out->inv_freq[i] / factors[i]);
    if (!strcmp(type, "longrope") || !strcmp(type, "su") || (tensors && f->gguf && !forced && llm__tensors_find(tensors, "rope_factors_long.weight"))) {
        llm__rope_long(f, a, tensors, out);
        return;
    }
    if (!type[0] || llm__word_in("default none mrope", type)) return;
    double original = (double)llm__fact_int(f, "original_max_position_embeddings", "rope.scaling.original_context_length", a->max_positions, 1, 1 << 30);
    double factor = llm__fact_num(f, "factor", "rope.scaling.factor", a->max_positions / original, 1e-2, 1e6);
    if (!strcmp(type, "linear")) {
        for (int i = 0; i < half; i++) out->inv_freq[i] = (float)(out->inv_freq[i] / factor);
    } else if (!strcmp(type, "yarn")) {
        llm__rope_yarn(f, a, base, factor, original, out);
    } else if (!strcmp(type, "llama3")) {
        llm__rope_llama3(f, a, factor, original, out);
    } else if (!strcmp(type, "dynamic")) {
        a->dynamic = 1;
        a->dynamic_factor = LLM__MIN(factor, 1000);
        a->dynamic_from = a->max_positions;
    } else if (!f->r) {
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: rope_scaling: type \"%.40s\" is not supported", f->path, type);
    }
}

/* Facts with a RoPE object put before the others. */
static llm__facts llm__facts_in(const llm__facts *f, int object) {
    llm__facts in = *f;
    if (llm_json_type_of(f->json, object) != LLM_JSON_OBJECT) return in;
    for (int i = in.n_nodes++; i > 0; i--) in.node[i] = in.node[i - 1];
    in.node[0] = object;
    return in;
}

/* The sets of frequencies of a model: one, or a global and a local one (Gemma 3, OLMo 3: rope_parameters by layer type, or a base of their own). */
static void llm__arch_rope(llm__facts *f, llm__arch *a, const llm__tensors *tensors) {
    int object = f->json ? llm__facts_json(f, "rope_parameters rope_scaling") : -1;
    int global = llm_json_find(f->json, object, "full_attention"), local = llm_json_find(f->json, object, "sliding_attention");
    int gemma = llm__arch_is(a, "gemma3_text"), olmo = !strcmp(a->name, "olmo3"), is_mla = (a->flags & LLM__MLA) != 0;
    llm__facts in = llm__facts_in(f, global >= 0 ? global : object);
    a->rope_pairs = (a->flags & (a->gguf ? LLM__PAIRS_GGUF : LLM__PAIRS)) != 0;
    if (is_mla) a->rope_pairs = llm__fact_bool(f, "rope_interleave", NULL, a->rope_pairs);
    double partial = llm__fact_num(&in, "partial_rotary_factor rotary_pct rope_pct", NULL, a->family->partial, 1e-3, 1);
    int64_t dim = (int64_t)(a->head_dim * partial);
    if (!is_mla) a->rope_dim = (int32_t)llm__fact_int(f, "rotary_dim", "rope.dimension_count", LLM__MIN(dim, (int64_t)LLM__MAX_ROPE), 2, LLM__MAX_ROPE);
    if (a->flags & (LLM__LEARNED | LLM__ALIBI)) a->rope_dim = 0;
    if (!in.r && (a->rope_dim % 2 || a->rope_dim > a->head_dim))
        in.r = llm__error(LLM_ERR_FORMAT, "%s: RoPE turns %d of %d values of a head, an even number of at most all was expected", f->path, a->rope_dim, a->head_dim);
    if (!in.r && a->rope_dim) {
        llm__rope_fill(&in, a, tensors, a->family->theta, NULL, &a->rope[0]);
        a->n_rope = 1;
    }
    if (!in.r && a->rope_dim && (local >= 0 || gemma || olmo)) {
        llm__facts near = llm__facts_in(f, local);
        double base = llm__fact_num(f, "rope_local_base_freq", NULL, olmo ? llm__fact_num(f, "rope_theta", NULL, a->family->theta, 1.0001, 1e18) : 1e4, 1.0001, 1e18);
        if (local < 0) near.json = NULL;
        llm__rope_fill(&near, a, NULL, base, local >= 0 ? NULL : "default", &a->rope[1]);
        in.r = near.r;
        a->n_rope = 2;
    }
    f->r = in.r;
    double all = llm__fact_num(&in, "mscale_all_dim", NULL, 10 * llm__fact_num(f, "", "rope.scaling.yarn_log_multiplier", 0, 0, 10), 0, 100);
    double factor = llm__fact_num(&in, "factor", "rope.scaling.factor", 1, 1e-2, 1e6);
    if (is_mla && all > 0) a->attn_scale *= (float)(llm__yarn_mscale(factor, all) * llm__yarn_mscale(factor, all));
    if (llm__fact_bool(f, "use_dynamic_ntk", NULL, 0)) {
        a->dynamic = 2;
        a->dynamic_from = (double)llm__fact_int(f, "seq_length", NULL, a->max_positions, 1, 1 << 30);
    }
    if (a->dynamic == 1) a->max_len = (int32_t)LLM__MAX(a->max_positions * LLM__MAX(a->dynamic_factor, 1), 2048); /* it has no end of its own */
}

/* ---- Putting it together ---- */

static llm_result llm__arch_check(const llm__facts *f, const llm__arch *a) {
    if (a->n_heads % a->n_kv_heads)
        return llm__error(LLM_ERR_FORMAT, "%s: %d query heads cannot share %d key heads evenly", f->path, a->n_heads, a->n_kv_heads);
    if (a->hidden < a->n_heads && !a->head_dim) return llm__error(LLM_ERR_FORMAT, "%s: width %d is less than %d heads", f->path, a->hidden, a->n_heads);
    if (a->head_dim < 1 || a->v_head_dim < 1 || a->nope < 0) return llm__error(LLM_ERR_FORMAT, "%s: a head of %d values cannot be", f->path, a->head_dim);
    if (a->gguf && a->rope_dim && a->flags & LLM__MLA && a->nope < 1) return llm__error(LLM_ERR_FORMAT, "%s: latent attention without plain key values", f->path);
    if ((int64_t)a->n_heads * LLM__MAX(a->head_dim, a->v_head_dim) > 1 << 20)
        return llm__error(LLM_ERR_LIMIT, "%s: %d heads of %d values are more than %d", f->path, a->n_heads, a->head_dim, 1 << 20);
    if ((int64_t)a->n_experts * a->ff_expert > INT32_MAX / 2) return llm__error(LLM_ERR_LIMIT, "%s: %d experts of width %d are too many", f->path, a->n_experts, a->ff_expert);
    return LLM_OK;
}

/* Reads the architecture of an opened model. */
static llm_result llm__arch_read(const llm__source *s, int dummy, llm__arch *a) {
    char prefix[64] = "", method[64];
    llm__facts f;
    memset(a, 0, sizeof *a);
    memset(&f, 0, sizeof f);
    f.path = s->path;
    f.json = s->gguf ? NULL : s->config;
    f.gguf = s->gguf;
    f.n_nodes = 1;
    if (s->gguf) {
        llm__str name = llm__gguf_str(s->gguf, "general.architecture");
        if (!name.p || name.n >= sizeof prefix) return llm__error(LLM_ERR_FORMAT, "%s: general.architecture is %s", s->path, name.p ? "too long" : "missing");
        memcpy(prefix, name.p, name.n);
        const llm__tensor *embed = llm__tensors_find(&s->tensors, "token_embd.weight");
        if (embed) a->vocab = (int32_t)LLM__MIN(embed->shape[0], 1 << 25);
    } else if (llm_json_type_of(s->config, s->config ? 0 : -1) != LLM_JSON_OBJECT) {
        return llm__error(LLM_ERR_FORMAT, "%s: config.json: an object expected", s->path);
    }
    f.arch = prefix;
    llm_result r = llm__arch_family(&f, a);
    if (r) return r;
    llm__facts q = llm__facts_in(&f, llm__facts_json(&f, "quantization_config"));
    llm__fact_str(&q, "quant_method", NULL, method, sizeof method);
    if (f.json && q.n_nodes > f.n_nodes && method[0] && !llm__word_in("mxfp4 none", method))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: quantization_config: quant_method \"%.40s\" is not supported, take the unquantised or a GGUF version", s->path, method);
    llm__arch_shapes(&f, a);
    llm__arch_switches(&f, a, llm__tensors_find(&s->tensors, "model.layers.0.self_attn.rotary_emb.inv_freq") != NULL);
    if (!f.r) f.r = llm__arch_check(&f, a);
    if (!f.r) {
        llm__arch_numbers(&f, a);
        llm__arch_rope(&f, a, &s->tensors);
        llm__arch_experts(&f, a);
        llm__arch_layers(&f, a);
    }
    if (a->tied < 0) a->tied = dummy ? (a->flags & LLM__TIED) != 0 : -1;
    return f.r;
}

/* ---- The model object ---- */

struct llm_model {
    llm__source source;
    llm__arch arch;          /* n_layers 0 with vocab_only */
    llm_model_info info;
    int dummy;
    char *path;
    char file_type[32];
};

/* ---- Where weights are called what ---- */

/* The weights of a model, and every name they go by; the first that a file has counts. '#' stands for an expert's number. */
typedef enum llm__slot {
    /* of the whole model */
    LLM__W_EMBED, LLM__W_POSITIONS, LLM__W_EMBED_NORM, LLM__W_OUT_NORM, LLM__W_HEAD,
    /* of a layer */
    LLM__W_ATTN_NORM, LLM__W_QKV, LLM__W_Q, LLM__W_K, LLM__W_V, LLM__W_O, LLM__W_Q_NORM, LLM__W_K_NORM, LLM__W_SINKS, LLM__W_POST_ATTN,
    LLM__W_Q_A, LLM__W_Q_A_NORM, LLM__W_Q_B, LLM__W_KV_A, LLM__W_KV_A_NORM, LLM__W_KV_B, LLM__W_K_B, LLM__W_V_B,
    LLM__W_FFN_NORM, LLM__W_GATE_UP, LLM__W_GATE, LLM__W_UP, LLM__W_DOWN, LLM__W_POST_FFN,
    LLM__W_ROUTER, LLM__W_CORRECTION, LLM__W_E_GATE, LLM__W_E_UP, LLM__W_E_DOWN, LLM__W_E_GATE_UP_ALL, LLM__W_E_GATE_ALL, LLM__W_E_UP_ALL, LLM__W_E_DOWN_ALL,
    LLM__W_S_GATE_UP, LLM__W_S_GATE, LLM__W_S_UP, LLM__W_S_DOWN, LLM__W_S_SCALE,
    LLM__W_SLOTS
} llm__slot;

static const char *llm__slot_names(llm__slot slot) {
    static const char *const names[LLM__W_SLOTS] = {
        "model.embed_tokens model.decoder.embed_tokens wte transformer.wte transformer.word_embeddings transformer.embedding.word_embeddings word_embeddings "
        "model.tok_embeddings gpt_neox.embed_in model.language_model.embed_tokens language_model.model.embed_tokens token_embd",
        "wpe transformer.wpe model.decoder.embed_positions position_embd",
        "transformer.word_embeddings_layernorm word_embeddings_layernorm token_embd_norm",
        "model.norm model.final_layernorm model.decoder.final_layer_norm ln_f transformer.ln_f transformer.encoder.final_layernorm gpt_neox.final_layer_norm "
        "model.language_model.norm language_model.model.norm output_norm",
        "lm_head output transformer.output_layer embed_out language_model.lm_head",
        "input_layernorm attention_norm ln_1 self_attn_layer_norm ln_attn attn_norm",
        "self_attn.qkv_proj self_attn.W_pack attention.wqkv self_attention.query_key_value attention.query_key_value attn.c_attn attn_qkv",
        "self_attn.q_proj attention.wq attn.q_proj attn_q",
        "self_attn.k_proj attention.wk attn.k_proj attn_k",
        "self_attn.v_proj attention.wv attn.v_proj attn_v",
        "self_attn.o_proj self_attn.out_proj self_attn.dense attention.wo self_attention.dense attention.dense attn.c_proj attn.out_proj attn_output",
        "self_attn.q_norm self_attn.q_layernorm attn_q_norm",
        "self_attn.k_norm self_attn.k_layernorm attn_k_norm",
        "self_attn.sinks attn_sinks",
        "post_self_attn_layernorm post_attention_layernorm post_attention_norm",
        "self_attn.q_a_proj attn_q_a", "self_attn.q_a_layernorm attn_q_a_norm", "self_attn.q_b_proj attn_q_b",
        "self_attn.kv_a_proj_with_mqa attn_kv_a_mqa", "self_attn.kv_a_layernorm attn_kv_a_norm", "self_attn.kv_b_proj attn_kv_b", "attn_k_b", "attn_v_b",
        "pre_feedforward_layernorm post_attention_layernorm ffn_norm ln_2 final_layer_norm ln_mlp post_attention_norm",
        "mlp.gate_up_proj mlp.dense_h_to_4h",
        "mlp.gate_proj feed_forward.w1 mlp.w2 ffn_gate",
        "mlp.up_proj feed_forward.w3 mlp.w1 mlp.c_fc mlp.fc1 mlp.fc_in fc1 mlp.dense_h_to_4h ffn_up",
        "mlp.down_proj feed_forward.w2 mlp.c_proj mlp.fc2 mlp.fc_out fc2 mlp.dense_4h_to_h ffn_down",
        "post_feedforward_layernorm post_mlp_layernorm post_ffw_norm",
        "mlp.gate mlp.router block_sparse_moe.gate block_sparse_moe.router.layer ffn_gate_inp",
        "mlp.gate.e_score_correction_bias mlp.moe_statics.e_score_correction_bias exp_probs_b.bias exp_probs_b",
        "mlp.experts.#.gate_proj block_sparse_moe.experts.#.w1",
        "mlp.experts.#.up_proj block_sparse_moe.experts.#.w3",
        "mlp.experts.#.down_proj block_sparse_moe.experts.#.w2",
        "mlp.experts.gate_up_proj block_sparse_moe.input_linear ffn_gate_up_exps", "ffn_gate_exps", "ffn_up_exps",
        "mlp.experts.down_proj block_sparse_moe.output_linear ffn_down_exps",
        "shared_mlp.input_linear",
        "mlp.shared_experts.gate_proj mlp.shared_expert.gate_proj ffn_gate_shexp",
        "mlp.shared_experts.up_proj mlp.shared_expert.up_proj ffn_up_shexp",
        "mlp.shared_experts.down_proj mlp.shared_expert.down_proj shared_mlp.output_linear ffn_down_shexp",
        "mlp.shared_expert_gate ffn_gate_inp_shexp",
    };
    return names[slot];
}

/* How names of layers begin: the first that any tensor of the file has. */
static const char *llm__layer_base(const llm__tensors *t) {
    static const char *const bases[] = {"model.layers.", "blk.", "model.decoder.layers.", "h.", "transformer.h.", "transformer.encoder.layers.", "gpt_neox.layers.",
                                        "model.language_model.layers.", "language_model.model.layers."};
    for (int b = 0; b < LLM__COUNT(bases); b++)
        for (size_t i = 0; i < t->n; i++)
            if (!strncmp(t->item[i].name.p, bases[b], strlen(bases[b]))) return bases[b];
    return bases[0];
}

/* ---- Loading: from tensors to weights of a backend ---- */

/* Weights of one rank are put together here: segments for matrices, values for vectors. Without a backend everything is looked up and checked, and
 * nothing made: so a broken file is refused when the model is opened. After the first failure all calls do nothing. */
typedef struct llm__loader {
    const llm_model *m;
    const llm__arch *a;
    const llm__tensors *tensors;
    const char *base;
    const llm_backend *backend; /* NULL: check only */
    llm_backend_ctx *ctx;
    int rank, n_ranks, layer;   /* layer -1: weights of the whole model */
    llm_segment *segment;
    size_t n, cap;
    llm__arena keep;            /* vectors and unpacked experts, until the backend has packed them */
    llm__map unpacked;          /* tensor name -> index of `made` */
    uint8_t **made;
    size_t n_made, made_cap;
    int64_t n_params;
    llm_result r;
} llm__loader;

static llm_result llm__loader_name(const llm__loader *L, const char *pattern, int expert, const char *suffix, char *out, size_t size) {
    const char *hash = strchr(pattern, '#');
    char layer[32] = "", number[16] = "";
    if (L->layer >= 0) snprintf(layer, sizeof layer, "%d.", L->layer);
    if (hash) snprintf(number, sizeof number, "%d", expert);
    snprintf(out, size, "%s%s%.*s%s%s%s", L->layer < 0 ? "" : L->base, layer, hash ? (int)(hash - pattern) : (int)strlen(pattern), pattern, number, hash ? hash + 1 : "", suffix);
    return LLM_OK;
}

/* The tensor of a slot with this suffix (".weight", ".bias", ""), or NULL. `name` holds 256 bytes: what it is called, or would be. */
static const llm__tensor *llm__loader_find(const llm__loader *L, llm__slot slot, int expert, const char *suffix, char *name) {
    char pattern[64], first[256] = "";
    const char *words = llm__slot_names(slot);
    while ((words = llm__word_next(words, pattern, sizeof pattern))) {
        llm__loader_name(L, pattern, expert, suffix, name, 256);
        const llm__tensor *t = llm__tensors_find(L->tensors, name);
        if (t) return t;
        if (!first[0]) memcpy(first, name, 256);
    }
    memcpy(name, first, 256);
    return NULL;
}

static int llm__loader_has(const llm__loader *L, llm__slot slot, const char *suffix) {
    char name[256];
    return llm__loader_find(L, slot, 0, suffix, name) != NULL;
}

/* A stored matrix of `out` rows and `in` columns (of one expert: the e-th part of a tensor that holds several). */
typedef struct llm__part {
    llm_segment s; /* data, type, transposed, stored_cols, scale; row: where it begins */
    int step;      /* its rows are `step` apart */
} llm__part;

static void llm__loader_missing(llm__loader *L, const char *name) {
    if (!L->r) L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s is missing", L->m->path, name);
}

/* 1 if a tensor has these dimensions (0: none); leading dimensions of size 1 do not matter. Else the error says both shapes. */
static int llm__loader_fits(llm__loader *L, const llm__tensor *t, int64_t d0, int64_t d1, int64_t d2) {
    char found[96] = "", expected[96] = "";
    const int64_t want[3] = {d0, d1, d2};
    int64_t have[3] = {0, 0, 0};
    int n = 0, skip = 0, n_want = 1 + (d1 > 0) + (d2 > 0), e = 0;
    while (skip < t->n_dims - n_want && t->shape[skip] == 1) skip++;
    for (int i = skip; i < t->n_dims && i - skip < 3; i++) have[i - skip] = t->shape[i];
    if (t->n_dims - skip <= 3 && !memcmp(have, want, sizeof want)) return 1;
    for (int i = 0; i < t->n_dims && i < 4; i++) n += snprintf(found + n, sizeof found - (size_t)n, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    for (int i = 0; i < n_want; i++) e += snprintf(expected + e, sizeof expected - (size_t)e, "%s%lld", i ? ", " : "", (long long)want[i]);
    if (!L->r) L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s has shape (%s), (%s) expected", L->m->path, t->name.p, found, expected);
    return 0;
}

/* 1 if a kernel reads this type as a weight. */
static int llm__loader_type(llm__loader *L, const llm__tensor *t) {
    const llm__type_desc *d = llm__type_info(t->type);
    int ok = d && (llm__type_block(t->type) > 1 || llm__word_in("F32 F16 BF16 F8_E4M3 F8_E5M2 F64", d->name)) && llm__type_readable(t->type);
    if (!ok && !L->r) L->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: tensor %s has type %s, which is not read as a weight", L->m->path, t->name.p, d ? d->name : "unknown");
    return ok;
}

/* Finds the matrix of a slot: 1, or 0 if it is absent (an error when `must`). */
static int llm__loader_part(llm__loader *L, llm__slot slot, int expert, int64_t out, int64_t in, int must, llm__part *p) {
    char name[256];
    int conv = L->a->flags & LLM__CONV1D && !L->a->gguf && L->layer >= 0;
    memset(p, 0, sizeof *p);
    p->step = 1;
    p->s.stored_cols = in;
    p->s.type = LLM_TYPE_RANDOM;
    if (L->m->dummy) return must;
    const llm__tensor *t = llm__loader_find(L, slot, expert, ".weight", name);
    if (!t && must) llm__loader_missing(L, name);
    if (!t || L->r || !llm__loader_type(L, t)) return 0;
    if (!llm__loader_fits(L, t, conv ? in : out, conv ? out : in, 0)) return 0;
    p->s.data = t->data;
    p->s.type = t->type;
    p->s.stored_cols = conv ? out : in;
    p->s.transposed = conv;
    if (t->type == LLM_TYPE_F8_E4M3 || t->type == LLM_TYPE_F8_E5M2) { /* one scale a tensor */
        const llm__tensor *scale = llm__loader_find(L, slot, expert, ".weight_scale", name);
        if (scale && scale->type == LLM_TYPE_F32 && scale->bytes == 4) memcpy(&p->s.scale, scale->data, 4);
        else if (!L->r) L->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: tensor %s is fp8 without one scale for the tensor", L->m->path, t->name.p);
    }
    return 1;
}

/* Adds rows [row, row + n) and columns [col, col + n_cols) of a part as a segment. */
static void llm__loader_add(llm__loader *L, const llm__part *p, int64_t row, int64_t n, int64_t col, int64_t n_cols) {
    if (L->r || !n) return;
    if (!llm__grow((void **)&L->segment, &L->cap, L->n + 1, sizeof *L->segment)) {
        L->r = llm__nomem();
        return;
    }
    llm_segment *s = &L->segment[L->n++];
    *s = p->s;
    s->row = p->s.row + row * p->step;
    s->n_rows = n;
    s->row_step = p->step;
    s->col = p->s.col + col;
    s->n_cols = n_cols;
}

/* Hands the collected segments over as one weight. */
static void llm__loader_make(llm__loader *L, llm_role role, llm__slot slot, int32_t n_experts, llm_weight **out) {
    char name[256];
    llm_weight_desc d;
    memset(&d, 0, sizeof d);
    char pattern[64];
    llm__word_next(llm__slot_names(slot), pattern, sizeof pattern);
    llm__loader_name(L, pattern, 0, "", name, sizeof name);
    for (size_t i = 0; i < L->n; i++) d.rows += L->segment[i].n_rows;
    d.name = name;
    d.role = role;
    d.segments = L->segment;
    d.n_segments = (int32_t)L->n;
    d.n_experts = n_experts;
    d.cols = L->n ? L->segment[0].n_cols : 0;
    L->n_params += d.rows * d.cols;
    if (!L->r && L->backend) L->r = L->backend->weight(L->ctx, L->rank, &d, out);
    L->n = 0;
}

/* Room for n values of a vector; NULL after a failure and when only checking. */
static float *llm__loader_floats(llm__loader *L, int64_t n) {
    float *v = L->r || !L->backend ? NULL : (float *)llm__arena_get(&L->keep, (size_t)n * sizeof *v);
    if (!v && !L->r && L->backend) L->r = llm__nomem();
    return v;
}

/* Hands n values over as a vector. */
static void llm__loader_vector(llm__loader *L, const char *name, float *values, int64_t n, llm_weight **out) {
    llm_segment s;
    llm_weight_desc d;
    memset(&s, 0, sizeof s);
    memset(&d, 0, sizeof d);
    s.data = values;
    s.type = LLM_TYPE_F32;
    s.stored_cols = s.n_cols = d.cols = n;
    s.n_rows = s.row_step = d.rows = d.n_segments = 1;
    d.segments = &s;
    d.name = name;
    L->n_params += n;
    if (!L->r && L->backend) L->r = L->backend->weight(L->ctx, L->rank, &d, out);
}

/* Reads values first, first + step, ... (n of them) of a slot's vector, or of a matrix with `rows` rows, of `size` values into dst (NULL: only checks it).
 * 0 if it is absent (an error when `must`). */
static int llm__loader_values(llm__loader *L, llm__slot slot, const char *suffix, int64_t rows, int64_t size, int64_t first, int64_t step, int64_t n, int must, float *dst) {
    char name[256];
    if (L->r) return 0;
    const llm__tensor *t = llm__loader_find(L, slot, 0, suffix, name);
    if (!t && L->m->dummy && must) {
        for (int64_t i = 0; dst && i < n; i++) dst[i] = strcmp(suffix, ".weight") ? 0.0f : 1.0f;
        return 1;
    }
    if (!t && must) llm__loader_missing(L, name);
    if (!t || !llm__loader_type(L, t) || !llm__loader_fits(L, t, rows > 1 ? rows : size, rows > 1 ? size / rows : 0, 0)) return 0;
    float *all = dst ? (float *)LLM_MALLOC((size_t)size * sizeof *all) : NULL;
    if (dst && !all) return L->r = llm__nomem(), 0;
    for (int64_t r = 0; dst && r < rows; r++) llm__dequant_row(t->type, t->data + r * llm__row_bytes(t->type, size / rows), all + r * (size / rows), size / rows);
    for (int64_t i = 0; dst && i < n; i++) dst[i] = all[first + i * step];
    LLM_FREE(all);
    return 1;
}

/* Values [first, first + n) of a slot's vector (or matrix with `rows` rows) of `size` values, as a weight. Absent and not a must: *out stays NULL. */
static void llm__load_vector(llm__loader *L, llm__slot slot, const char *suffix, int64_t rows, int64_t size, int64_t first, int64_t n, int must, llm_weight **out) {
    char name[256];
    if (!llm__loader_find(L, slot, 0, suffix, name) && !must) return;
    float *v = llm__loader_floats(L, n);
    if (!llm__loader_values(L, slot, suffix, rows, size, first, 1, n, must, v)) return;
    if (v && L->a->flags & LLM__NORM_PLUS1 && !L->a->gguf && !L->m->dummy && !strcmp(suffix, ".weight"))
        for (int64_t i = 0; i < n; i++) v[i] += 1;
    llm__loader_vector(L, name, v, n, out);
}

/* Rows of one stored matrix that go into a weight. */
typedef struct llm__rows {
    llm__slot slot;
    int64_t size;     /* rows of the stored matrix */
    int64_t first, n; /* those taken */
} llm__rows;

/* A weight of stacked rows, and the bias that belongs to them: required (1), used where there is one (0), never (-1). */
static void llm__loader_matrix(llm__loader *L, llm_role role, const llm__rows *rows, int n, int64_t in, int64_t col, int64_t n_cols, int bias, llm_weight **w, llm_weight **b) {
    int64_t total = 0, at = 0;
    int any = 0;
    char name[256];
    for (int i = 0; i < n && !L->r; i++) {
        llm__part p;
        llm__loader_part(L, rows[i].slot, 0, rows[i].size, in, 1, &p);
        llm__loader_add(L, &p, rows[i].first, rows[i].n, col, n_cols);
        total += rows[i].n;
        any |= bias > 0 || (bias == 0 && llm__loader_find(L, rows[i].slot, 0, ".bias", name));
    }
    llm__loader_make(L, role, rows[0].slot, 0, w);
    if (!any || bias < 0) return;
    float *v = llm__loader_floats(L, total);
    for (int i = 0; i < n && !L->r; at += rows[i++].n) llm__loader_values(L, rows[i].slot, ".bias", 1, rows[i].size, rows[i].first, 1, rows[i].n, bias, v ? v + at : NULL);
    llm__loader_find(L, rows[0].slot, 0, ".bias", name);
    llm__loader_vector(L, name, v, total, b);
}

static llm__rows llm__rows_of(llm__slot slot, int64_t size, int64_t first, int64_t n) {
    llm__rows r;
    r.slot = slot;
    r.size = size;
    r.first = first;
    r.n = n;
    return r;
}

/* ---- The net: weights and buffers of every rank ---- */

typedef struct llm__net_config {
    const llm_model *model;
    const llm_backend *backend;
    llm_backend_ctx *ctx;
    int n_ranks, max_rows, max_out, page_tokens;
    llm_compute compute;
    llm_progress_fn progress;
    void *progress_user;
} llm__net_config;

/* A norm: weight and bias, either may be NULL. */
typedef struct llm__net_norm {
    llm_weight *w, *b;
} llm__net_norm;

/* A linear layer. */
typedef struct llm__net_linear {
    llm_weight *w, *b;
} llm__net_linear;

/* One layer on one rank. What a family lacks is NULL. */
typedef struct llm__net_layer {
    llm__net_norm attn_norm, post_attn, ffn_norm, post_ffn;
    llm__net_linear qkv, o;
    llm_weight *q_norm, *k_norm, *sinks;
    llm__net_linear q_a, q_b, kv_a;              /* latent attention; without q_a, q_b is the whole q */
    llm_weight *q_a_norm, *kv_a_norm, *kv_b;
    llm__net_linear up, down;                    /* up: gate and up rows, or up alone */
    llm__net_linear router, e_up, e_down, s_up, s_down;
    llm_weight *correction, *s_gate;
} llm__net_layer;

/* Buffers that hold some rows of the residual stream: all tokens, or only those whose logits are wanted. */
typedef struct llm__net_lane {
    llm_rows rows;
    llm_buffer *x, *h, *y, *att; /* residual stream, normalised, what a block adds (rows, hidden); attention's result */
} llm__net_lane;

typedef struct llm__net_rank {
    int32_t n_heads, n_kv_heads, head, kv_head; /* this rank's, and its first ones */
    int32_t ff, ff_expert, ff_shared;           /* this rank's share */
    int32_t vocab_begin, n_vocab;
    int32_t q_width, k_width;                   /* columns of q and k in qkv; with norms over the whole width: of all ranks */
    llm_weight *embed, *positions, *alibi, *inv_freq[2];
    llm__net_norm embed_norm, out_norm;
    llm__net_linear head_w;
    llm__net_layer *layer;                      /* (n_layers) */
    llm__net_lane token, out;
    llm_buffer *rope[2], *qkv, *ff_act, *q_a, *q, *kv_a, *router, *routes, *gate;
} llm__net_rank;

struct llm__net {
    llm__net_config cfg;
    const llm__arch *a;
    llm__net_rank *rank;     /* (n_ranks) */
    llm_kv_layer *kv;        /* (n_layers) */
};
typedef struct llm__net llm__net;

/* Splits n in units: part `rank` of n_ranks gets [*begin, *begin + *count). */
static void llm__net_split(int64_t n, int64_t unit, int rank, int n_ranks, int32_t *begin, int32_t *count) {
    if (n % unit || n / unit < n_ranks) unit = 1;
    int64_t first = n / unit * rank / n_ranks * unit, last = n / unit * (rank + 1) / n_ranks * unit;
    *begin = (int32_t)first;
    *count = (int32_t)(last - first);
}

/* Shares of a rank, and whether the model can be shared so at all. */
static llm_result llm__net_share(const llm__arch *a, int rank, int n, llm__net_rank *R, int32_t *ff0, int32_t *expert0, int32_t *shared0) {
    if (a->n_heads % n) return llm__error(LLM_ERR_ARG, "Total number of attention heads (%d) must be divisible by tensor parallel size (%d).", a->n_heads, n);
    if (a->n_kv_heads % n && n % a->n_kv_heads)
        return llm__error(LLM_ERR_ARG, "%d key heads can be neither divided nor repeated evenly among %d ranks", a->n_kv_heads, n);
    if (a->ff < n || a->vocab < n) return llm__error(LLM_ERR_ARG, "the model is too narrow for %d ranks", n);
    R->n_heads = a->n_heads / n;
    R->head = rank * R->n_heads;
    R->n_kv_heads = LLM__MAX(a->n_kv_heads / n, 1);
    R->kv_head = (int32_t)((int64_t)a->n_kv_heads * rank / n);
    llm__net_split(a->vocab, 64, rank, n, &R->vocab_begin, &R->n_vocab);
    llm__net_split(a->ff, a->ff % 256 ? 32 : 256, rank, n, ff0, &R->ff);
    llm__net_split(a->ff_expert, a->ff_expert % 256 ? 32 : 256, rank, n, expert0, &R->ff_expert);
    llm__net_split(a->ff_shared, a->ff_shared % 256 ? 32 : 256, rank, n, shared0, &R->ff_shared);
    int whole = a->qk_norm == LLM_QK_NORM_WHOLE_RMS;
    R->q_width = (whole ? a->n_heads : R->n_heads) * a->head_dim;
    R->k_width = (whole ? a->n_kv_heads : R->n_kv_heads) * a->head_dim;
    return LLM_OK;
}

/* q, k and v in one matrix: from three stored ones, from one with all q, all k, all v, or from one that goes kv head by kv head. */
static void llm__load_qkv(llm__loader *L, const llm__net_rank *R, llm__net_layer *y) {
    const llm__arch *a = L->a;
    int whole = a->qk_norm == LLM_QK_NORM_WHOLE_RMS, group = a->n_heads / a->n_kv_heads, d = a->head_dim, n = 0;
    int fused = !L->m->dummy && (llm__loader_has(L, LLM__W_QKV, ".weight")), grouped = fused && a->flags & LLM__GROUPED && !a->gguf;
    int64_t q0 = whole ? 0 : (int64_t)R->head * d, k0 = whole ? 0 : (int64_t)R->kv_head * d, v0 = (int64_t)R->kv_head * a->v_head_dim, nv = (int64_t)R->n_kv_heads * a->v_head_dim;
    int64_t q_all = (int64_t)a->n_heads * d, k_all = (int64_t)a->n_kv_heads * d, v_all = (int64_t)a->n_kv_heads * a->v_head_dim, all = q_all + k_all + v_all;
    if (L->r) return;
    llm__rows *rows = LLM__NEW(llm__rows, R->n_heads + 2 * R->n_kv_heads + 3);
    if (!rows) {
        L->r = llm__nomem();
        return;
    }
    if (grouped) {
        int64_t block = (int64_t)(group + 2) * d;
        for (int h = R->head; h < R->head + R->n_heads; h++) rows[n++] = llm__rows_of(LLM__W_QKV, all, h / group * block + h % group * d, d);
        for (int part = 0; part < 2; part++)
            for (int h = R->kv_head; h < R->kv_head + R->n_kv_heads; h++) rows[n++] = llm__rows_of(LLM__W_QKV, all, h * block + (group + part) * d, d);
    } else {
        rows[n++] = llm__rows_of(fused ? LLM__W_QKV : LLM__W_Q, fused ? all : q_all, q0, R->q_width);
        rows[n++] = llm__rows_of(fused ? LLM__W_QKV : LLM__W_K, fused ? all : k_all, (fused ? q_all : 0) + k0, R->k_width);
        rows[n++] = llm__rows_of(fused ? LLM__W_QKV : LLM__W_V, fused ? all : v_all, (fused ? q_all + k_all : 0) + v0, nv);
    }
    llm__loader_matrix(L, LLM_ROLE_LINEAR, rows, n, a->hidden, 0, a->hidden, a->qkv_bias, &y->qkv.w, &y->qkv.b);
    LLM_FREE(rows);
    if (!a->qk_norm) return;
    int64_t qn = (int64_t)R->n_heads * d, kn = (int64_t)R->n_kv_heads * d;
    int by_head = a->qk_norm == LLM_QK_NORM_HEAD_LAYER;
    if (a->qk_norm == LLM_QK_NORM_HEAD_RMS) q_all = k_all = qn = kn = d, q0 = k0 = 0;
    if (whole) qn = q_all, kn = k_all;
    llm__load_vector(L, LLM__W_Q_NORM, ".weight", by_head ? a->n_heads : 1, q_all, q0, qn, 1, &y->q_norm);
    llm__load_vector(L, LLM__W_K_NORM, ".weight", by_head ? a->n_kv_heads : 1, k_all, k0, kn, 1, &y->k_norm);
}

/* Latent attention: q and kv go through narrow layers first. Those are computed on every rank, heads are shared. */
static void llm__load_mla(llm__loader *L, const llm__net_rank *R, llm__net_layer *y) {
    const llm__arch *a = L->a;
    int64_t d = a->head_dim, up = a->nope + a->v_head_dim, q_in = a->q_rank ? a->q_rank : a->hidden;
    llm__rows q_a = llm__rows_of(LLM__W_Q_A, a->q_rank, 0, a->q_rank), kv_a = llm__rows_of(LLM__W_KV_A, a->kv_rank + a->rope_dim, 0, a->kv_rank + a->rope_dim);
    llm__rows q = llm__rows_of(a->q_rank ? LLM__W_Q_B : LLM__W_Q, a->n_heads * d, R->head * d, R->n_heads * d);
    if (a->q_rank) {
        llm__loader_matrix(L, LLM_ROLE_LINEAR, &q_a, 1, a->hidden, 0, a->hidden, 0, &y->q_a.w, &y->q_a.b);
        llm__load_vector(L, LLM__W_Q_A_NORM, ".weight", 1, a->q_rank, 0, a->q_rank, 1, &y->q_a_norm);
    }
    llm__loader_matrix(L, LLM_ROLE_LINEAR, &q, 1, q_in, 0, q_in, 0, &y->q_b.w, &y->q_b.b);
    llm__loader_matrix(L, LLM_ROLE_LINEAR, &kv_a, 1, a->hidden, 0, a->hidden, 0, &y->kv_a.w, &y->kv_a.b);
    llm__load_vector(L, LLM__W_KV_A_NORM, ".weight", 1, a->kv_rank, 0, a->kv_rank, 1, &y->kv_a_norm);
    if (!llm__loader_has(L, LLM__W_K_B, ".weight")) {
        llm__rows kv_b = llm__rows_of(LLM__W_KV_B, a->n_heads * up, R->head * up, R->n_heads * up);
        llm__loader_matrix(L, LLM_ROLE_MLA_UP, &kv_b, 1, a->kv_rank, 0, a->kv_rank, -1, &y->kv_b, NULL);
        return;
    }
    llm__part k, v; /* GGUF: keys stand head by head as (rank, nope), values as (v, rank) */
    llm__loader_part(L, LLM__W_K_B, 0, (int64_t)a->n_heads * a->kv_rank, a->nope, 1, &k);
    llm__loader_part(L, LLM__W_V_B, 0, (int64_t)a->n_heads * a->v_head_dim, a->kv_rank, 1, &v);
    k.s.transposed = 1;
    for (int h = R->head; h < R->head + R->n_heads; h++) {
        llm__loader_add(L, &k, 0, a->nope, (int64_t)h * a->kv_rank, a->kv_rank);
        llm__loader_add(L, &v, (int64_t)h * a->v_head_dim, a->v_head_dim, 0, a->kv_rank);
    }
    llm__loader_make(L, LLM_ROLE_MLA_UP, LLM__W_K_B, 0, &y->kv_b);
}

/* A plain MLP (or the shared expert): gate and up rows [f0, f0 + n) of `ff`, from two matrices or one. */
static void llm__load_mlp(llm__loader *L, int shared, int64_t ff, int64_t f0, int64_t n, int bias, llm__net_linear *up, llm__net_linear *down) {
    const llm__arch *a = L->a;
    llm__slot both = shared ? LLM__W_S_GATE_UP : LLM__W_GATE_UP, s_gate = shared ? LLM__W_S_GATE : LLM__W_GATE, s_up = shared ? LLM__W_S_UP : LLM__W_UP;
    int gated = !(a->flags & LLM__NO_GATE), alone = L->m->dummy || llm__loader_has(L, s_gate, ".weight");
    llm__rows rows[2];
    if (gated && !alone && !llm__loader_has(L, both, ".weight")) both = llm__loader_has(L, s_up, ".weight") ? s_up : s_gate; /* GGUF: ffn_up may hold both */
    rows[0] = gated ? llm__rows_of(alone ? s_gate : both, alone ? ff : 2 * ff, f0, n) : llm__rows_of(s_up, ff, f0, n);
    rows[1] = llm__rows_of(alone ? s_up : both, alone ? ff : 2 * ff, alone ? f0 : ff + f0, n);
    llm__loader_matrix(L, gated ? LLM_ROLE_GATE_UP : LLM_ROLE_LINEAR, rows, 1 + gated, a->hidden, 0, a->hidden, bias, &up->w, &up->b);
    rows[0] = llm__rows_of(shared ? LLM__W_S_DOWN : LLM__W_DOWN, a->hidden, 0, a->hidden);
    llm__loader_matrix(L, LLM_ROLE_LINEAR, rows, 1, ff, f0, n, L->rank ? -1 : bias, &down->w, &down->b);
}

/* gpt-oss as its publisher stores it: 4-bit values and exponents in two tensors. Put together as MXFP4 blocks: an exponent, then bytes that hold element i
 * and i + 16 (stored: 2i and 2i + 1). Every rank takes its rows from the same copy. */
static const uint8_t *llm__load_mxfp4(llm__loader *L, const llm__tensor *blocks, const llm__tensor *scales) {
    int32_t known = llm__map_get(&L->unpacked, blocks->name);
    if (known >= 0) return L->made[known];
    int64_t n = scales->bytes;
    uint8_t *to = (uint8_t *)llm__arena_get(&L->keep, (size_t)n * 17);
    if (!to || !llm__grow((void **)&L->made, &L->made_cap, L->n_made + 1, sizeof *L->made) || llm__map_put(&L->unpacked, blocks->name, (int32_t)L->n_made) < 0) {
        L->r = llm__nomem();
        return NULL;
    }
    L->made[L->n_made++] = to;
    for (int64_t b = 0; b < n; b++) {
        const uint8_t *from = blocks->data + b * 16;
        uint8_t *out = to + b * 17;
        out[0] = scales->data[b];
        for (int i = 0; i < 16; i++) {
            int low = from[i / 2] >> (i % 2 * 4) & 15, high = from[8 + i / 2] >> (i % 2 * 4) & 15;
            out[1 + i] = (uint8_t)(low | high << 4);
        }
    }
    return to;
}

/* A part of all experts in one MXFP4 pair of tensors; 0 if they are absent. */
static int llm__loader_mxfp4(llm__loader *L, llm__slot slot, int64_t out, int64_t in, llm__part *p) {
    char name[256];
    const llm__tensor *blocks = llm__loader_find(L, slot, 0, "_blocks", name), *scales = blocks ? llm__loader_find(L, slot, 0, "_scales", name) : NULL;
    if (!blocks || L->r) return 0;
    int64_t n = L->a->n_experts * out * (in / 32);
    int ok = scales && blocks->type == LLM_TYPE_U8 && scales->type == LLM_TYPE_U8 && blocks->bytes == n * 16 && scales->bytes == n && in % 32 == 0;
    if (!ok) L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s and its _scales: MXFP4 of %d experts of (%lld, %lld) expected", L->m->path, blocks->name.p, L->a->n_experts, (long long)out, (long long)in);
    memset(p, 0, sizeof *p);
    p->step = 1;
    p->s.type = LLM_TYPE_MXFP4;
    p->s.stored_cols = in;
    if (!L->r && L->backend) p->s.data = llm__load_mxfp4(L, blocks, scales);
    return !L->r;
}

/* Rows of expert e out of a tensor that holds all of them, stored as (experts, out, in) or, transposed, (experts, in, out). */
static llm__part llm__part_of_expert(const llm__part *all, int e, int64_t out, int64_t in) {
    llm__part p = *all;
    int64_t row_bytes = llm__row_bytes(all->s.type, all->s.stored_cols);
    if (p.s.data) p.s.data = (const uint8_t *)p.s.data + e * (all->s.transposed ? in : out) * row_bytes;
    return p;
}

/* Gate and up (or down) of all experts in as few tensors as the file has. `both`: gate and up in one. */
static int llm__loader_experts(llm__loader *L, llm__slot slot, int64_t out, int64_t in, llm__part *p) {
    char name[256];
    if (L->m->dummy) return 0;
    if (llm__loader_mxfp4(L, slot, out, in, p)) return 1;
    const llm__tensor *t = llm__loader_find(L, slot, 0, ".weight", name);
    if (!t) t = llm__loader_find(L, slot, 0, "", name);
    if (!t || L->r || !llm__loader_type(L, t)) return 0;
    int across = llm__arch_is(L->a, "gpt_oss") && !L->a->gguf;
    if (!llm__loader_fits(L, t, L->a->n_experts, across ? in : out, across ? out : in)) return 0;
    memset(p, 0, sizeof *p);
    p->step = 1;
    p->s.data = t->data;
    p->s.type = t->type;
    p->s.stored_cols = t->shape[2];
    p->s.transposed = across;
    return 1;
}

/* Biases of experts: gpt-oss's are one vector for all, gate and up interleaved as its matrices are. GGUF has them apart. */
static void llm__load_expert_bias(llm__loader *L, int64_t f0, int64_t n, llm__net_layer *y) {
    const llm__arch *a = L->a;
    char name[256];
    int64_t E = a->n_experts, ff = a->ff_expert, H = a->hidden;
    int apart = llm__loader_find(L, LLM__W_E_GATE_ALL, 0, ".bias", name) != NULL;
    if (!apart && !llm__loader_find(L, LLM__W_E_GATE_UP_ALL, 0, "_bias", name)) return;
    float *up = llm__loader_floats(L, E * 2 * n), *down = L->rank ? NULL : llm__loader_floats(L, E * H);
    for (int64_t e = 0; e < E && !L->r; e++)
        for (int u = 0; u < 2; u++) { /* gate, up */
            float *to = up ? up + (2 * e + u) * n : NULL;
            if (apart) llm__loader_values(L, u ? LLM__W_E_UP_ALL : LLM__W_E_GATE_ALL, ".bias", E, E * ff, e * ff + f0, 1, n, 1, to);
            else llm__loader_values(L, LLM__W_E_GATE_UP_ALL, "_bias", E, E * 2 * ff, e * 2 * ff + 2 * f0 + u, 2, n, 1, to);
        }
    llm__loader_vector(L, "experts' gate and up bias", up, E * 2 * n, &y->e_up.b);
    if (L->rank) return; /* the sum over ranks must have it once */
    llm__loader_values(L, LLM__W_E_DOWN_ALL, apart ? ".bias" : "_bias", E, E * H, 0, 1, E * H, 1, down);
    llm__loader_vector(L, "experts' down bias", down, E * H, &y->e_down.b);
}

/* Routed experts: rank's share [f0, f0 + n) of each. */
static void llm__load_experts(llm__loader *L, int64_t f0, int64_t n, llm__net_layer *y) {
    const llm__arch *a = L->a;
    int64_t ff = a->ff_expert, H = a->hidden;
    llm__part gate, up, down;
    int both = llm__loader_experts(L, LLM__W_E_GATE_UP_ALL, 2 * ff, H, &gate), apart = !both && llm__loader_experts(L, LLM__W_E_GATE_ALL, ff, H, &gate);
    int interleaved = both && llm__arch_is(a, "gpt_oss");
    if (apart && !llm__loader_experts(L, LLM__W_E_UP_ALL, ff, H, &up)) llm__loader_part(L, LLM__W_E_UP_ALL, 0, ff, H, 1, &up);
    if (both) up = gate;
    if (interleaved) gate.step = up.step = 2;
    if (both) up.s.row += interleaved ? 1 : ff;
    for (int e = 0; e < a->n_experts && !L->r; e++) {
        llm__part g, u;
        if (both || apart) {
            g = llm__part_of_expert(&gate, e, both ? 2 * ff : ff, H);
            u = llm__part_of_expert(&up, e, both ? 2 * ff : ff, H);
        } else {
            llm__loader_part(L, LLM__W_E_GATE, e, ff, H, 1, &g);
            llm__loader_part(L, LLM__W_E_UP, e, ff, H, 1, &u);
        }
        llm__loader_add(L, &g, f0, n, 0, H);
        llm__loader_add(L, &u, f0, n, 0, H);
    }
    llm__loader_make(L, LLM_ROLE_EXPERTS_GATE_UP, LLM__W_E_GATE_UP_ALL, a->n_experts, &y->e_up.w);
    both = llm__loader_experts(L, LLM__W_E_DOWN_ALL, H, ff, &down);
    for (int e = 0; e < a->n_experts && !L->r; e++) {
        llm__part d;
        if (both) d = llm__part_of_expert(&down, e, H, ff);
        else llm__loader_part(L, LLM__W_E_DOWN, e, H, ff, 1, &d);
        llm__loader_add(L, &d, 0, H, f0, n);
    }
    llm__loader_make(L, LLM_ROLE_EXPERTS, LLM__W_E_DOWN_ALL, a->n_experts, &y->e_down.w);
    llm__load_expert_bias(L, f0, n, y);
}

static void llm__load_norm(llm__loader *L, llm__slot slot, int must, llm__net_norm *norm) {
    const llm__arch *a = L->a;
    llm__load_vector(L, slot, ".weight", 1, a->hidden, 0, a->hidden, must && !llm__arch_is(a, "olmo"), &norm->w);
    if (a->norm == LLM_NORM_LAYER) llm__load_vector(L, slot, ".bias", 1, a->hidden, 0, a->hidden, must && a->norm_bias, &norm->b);
}

static void llm__load_layer(llm__loader *L, const llm__net_rank *R, const int32_t from[3], llm__net_layer *y) {
    const llm__arch *a = L->a;
    int64_t width = (int64_t)a->n_heads * a->v_head_dim, E = a->n_experts;
    llm__rows o = llm__rows_of(LLM__W_O, a->hidden, 0, a->hidden), router = llm__rows_of(LLM__W_ROUTER, E, 0, E), scale = llm__rows_of(LLM__W_S_SCALE, 1, 0, 1);
    if (!(a->flags & LLM__NO_PRE_NORM)) llm__load_norm(L, LLM__W_ATTN_NORM, 1, &y->attn_norm);
    if (a->flags & LLM__MLA) llm__load_mla(L, R, y);
    else llm__load_qkv(L, R, y);
    llm__loader_matrix(L, LLM_ROLE_LINEAR, &o, 1, width, (int64_t)R->head * a->v_head_dim, (int64_t)R->n_heads * a->v_head_dim, L->rank ? -1 : a->o_bias, &y->o.w, &y->o.b);
    if (a->sinks) llm__load_vector(L, LLM__W_SINKS, a->gguf ? ".weight" : "", 1, a->n_heads, R->head, R->n_heads, 1, &y->sinks);
    if (a->flags & LLM__POST_NORM) llm__load_norm(L, LLM__W_POST_ATTN, 1, &y->post_attn);
    if (!(a->flags & LLM__NO_PRE_NORM)) llm__load_norm(L, LLM__W_FFN_NORM, !(a->flags & LLM__PARALLEL), &y->ffn_norm);
    if (a->flags & LLM__POST_NORM) llm__load_norm(L, LLM__W_POST_FFN, 1, &y->post_ffn);
    if (!a->layer[L->layer].moe) {
        llm__load_mlp(L, 0, a->ff, from[0], R->ff, a->mlp_bias, &y->up, &y->down);
        return;
    }
    llm__loader_matrix(L, LLM_ROLE_LINEAR, &router, 1, a->hidden, 0, a->hidden, 0, &y->router.w, &y->router.b);
    llm__load_vector(L, LLM__W_CORRECTION, "", 1, E, 0, E, L->m->dummy && a->score == LLM_ROUTE_SIGMOID, &y->correction);
    llm__load_experts(L, from[1], R->ff_expert, y);
    if (a->ff_shared) llm__load_mlp(L, 1, a->ff_shared, from[2], R->ff_shared, 0, &y->s_up, &y->s_down);
    if (a->shared_gate) llm__loader_matrix(L, LLM_ROLE_LINEAR, &scale, 1, a->hidden, 0, a->hidden, -1, &y->s_gate, NULL);
}

/* Slopes of ALiBi (Press et al. 2021): powers of 2^(-8/n), then of half that for heads beyond a power of two. */
static void llm__alibi_slopes(int n_heads, float *slope) {
    int n = 1;
    while (2 * n <= n_heads) n *= 2;
    for (int h = 0; h < n_heads; h++) slope[h] = (float)pow(2, h < n ? -8.0 * (h + 1) / n : -4.0 * (2 * (h - n) + 1) / n);
}

/* Weights of the whole model: embedding, positions, final norm, output layer. */
static void llm__load_model(llm__loader *L, llm__net_rank *R) {
    const llm__arch *a = L->a;
    llm__part p;
    int64_t H = a->hidden;
    llm__loader_part(L, LLM__W_EMBED, 0, a->vocab, H, 1, &p);
    llm__loader_add(L, &p, R->vocab_begin, R->n_vocab, 0, H);
    llm__loader_make(L, LLM_ROLE_EMBED, LLM__W_EMBED, 0, &R->embed);
    int tied = a->tied > 0 || (a->tied < 0 && !llm__loader_has(L, LLM__W_HEAD, ".weight"));
    if (tied) L->n_params -= R->n_vocab * H;
    else llm__loader_part(L, LLM__W_HEAD, 0, a->vocab, H, 1, &p);
    llm__loader_add(L, &p, R->vocab_begin, R->n_vocab, 0, H);
    llm__loader_make(L, LLM_ROLE_HEAD, LLM__W_HEAD, 0, &R->head_w.w);
    if (!tied) llm__load_vector(L, LLM__W_HEAD, ".bias", 1, a->vocab, R->vocab_begin, R->n_vocab, 0, &R->head_w.b);
    llm__load_norm(L, LLM__W_OUT_NORM, 1, &R->out_norm);
    llm__load_norm(L, LLM__W_EMBED_NORM, llm__arch_is(a, "bloom"), &R->embed_norm);
    if (a->flags & LLM__LEARNED) {
        llm__loader_part(L, LLM__W_POSITIONS, 0, a->max_positions + a->position_offset, H, 1, &p);
        llm__loader_add(L, &p, 0, a->max_positions + a->position_offset, 0, H);
        llm__loader_make(L, LLM_ROLE_EMBED, LLM__W_POSITIONS, 0, &R->positions);
    }
    for (int i = 0; i < a->n_rope; i++) { /* the local set repeats its frequencies for every variant of the global one */
        int half = a->rope_dim / 2, n = a->rope[0].n_variants;
        float *v = llm__loader_floats(L, n * half);
        for (int k = 0; v && k < n; k++) memcpy(v + k * half, a->rope[i].inv_freq + (a->rope[i].n_variants > 1 ? k * half : 0), (size_t)half * sizeof *v);
        llm__loader_vector(L, "rotary frequencies", v, n * half, &R->inv_freq[i]);
    }
    if (a->flags & LLM__ALIBI) {
        float *all = llm__loader_floats(L, a->n_heads);
        if (all) llm__alibi_slopes(a->n_heads, all);
        llm__loader_vector(L, "ALiBi slopes", all ? all + R->head : NULL, R->n_heads, &R->alibi);
    }
}

/* All weights of one rank. */
static void llm__load_rank(llm__loader *L, llm__net_rank *R, const llm__net_config *cfg) {
    int32_t from[3];
    llm__net_layer unused;
    if (!L->r) L->r = llm__net_share(L->a, L->rank, L->n_ranks, R, &from[0], &from[1], &from[2]);
    L->layer = -1;
    if (!L->r) llm__load_model(L, R);
    for (L->layer = 0; L->layer < L->a->n_layers && !L->r; L->layer++) {
        double done = (L->rank + (double)L->layer / L->a->n_layers) / L->n_ranks;
        memset(&unused, 0, sizeof unused);
        llm__load_layer(L, R, from, R->layer ? &R->layer[L->layer] : &unused);
        if (!L->r && cfg && cfg->progress && cfg->progress(cfg->progress_user, "loading weights", done)) L->r = llm__error(LLM_ERR_CANCELLED, "loading was cancelled");
    }
}

static void llm__loader_begin(llm__loader *L, const llm_model *m) {
    memset(L, 0, sizeof *L);
    L->m = m;
    L->a = &m->arch;
    L->tensors = &m->source.tensors;
    L->base = llm__layer_base(L->tensors);
    L->n_ranks = 1;
}

static void llm__loader_end(llm__loader *L) {
    LLM_FREE(L->segment);
    LLM_FREE(L->made);
    llm__map_free(&L->unpacked);
    llm__arena_free(&L->keep);
}

/* Looks up every weight of a model and checks its shape and type, without a backend. */
static llm_result llm__net_check(const llm_model *m, int64_t *n_params) {
    llm__loader L;
    llm__net_rank R;
    memset(&R, 0, sizeof R);
    llm__loader_begin(&L, m);
    llm__load_rank(&L, &R, NULL);
    *n_params = L.n_params;
    llm__loader_end(&L);
    return L.r;
}

/* ---- Opening a net ---- */

static llm_result llm__net_buffer(llm__net *net, int rank, int64_t rows, int64_t cols, llm_buffer **out) {
    return cols > 0 ? net->cfg.backend->buffer(net->cfg.ctx, rank, rows, cols, out) : LLM_OK;
}

static llm_result llm__net_lane_open(llm__net *net, int rank, int64_t rows, int64_t att, llm__net_lane *lane) {
    int64_t H = net->a->hidden;
    llm_result r = llm__net_buffer(net, rank, rows, H, &lane->x);
    if (!r) r = llm__net_buffer(net, rank, rows, H, &lane->h);
    if (!r) r = llm__net_buffer(net, rank, rows, H, &lane->y);
    return r ? r : llm__net_buffer(net, rank, rows, att, &lane->att);
}

static llm_result llm__net_buffers(llm__net *net, int rank) {
    const llm__arch *a = net->a;
    llm__net_rank *R = &net->rank[rank];
    int64_t rows = LLM__MAX(net->cfg.max_rows, net->cfg.max_out), att = (int64_t)R->n_heads * a->v_head_dim, any_moe = a->n_experts > 0, is_mla = (a->flags & LLM__MLA) != 0;
    const struct { int64_t cols; llm_buffer **to; } plan[] = {
        {a->n_rope > 0 ? a->rope_dim : 0, &R->rope[0]}, {a->n_rope > 1 ? a->rope_dim : 0, &R->rope[1]},
        {is_mla ? 0 : R->q_width + R->k_width + (int64_t)R->n_kv_heads * a->v_head_dim, &R->qkv},
        {LLM__MAX(R->ff, R->ff_shared), &R->ff_act},
        {is_mla ? a->q_rank : 0, &R->q_a}, {is_mla ? (int64_t)R->n_heads * a->head_dim : 0, &R->q}, {is_mla ? a->kv_rank + a->rope_dim : 0, &R->kv_a},
        {any_moe ? a->n_experts : 0, &R->router}, {any_moe ? 2 * a->n_used : 0, &R->routes}, {a->shared_gate, &R->gate},
    };
    R->token.rows = LLM_ROWS_TOKENS;
    R->out.rows = LLM_ROWS_OUT;
    llm_result r = llm__net_lane_open(net, rank, rows, att, &R->token);
    if (!r) r = llm__net_lane_open(net, rank, LLM__MAX(net->cfg.max_out, 1), att, &R->out);
    for (int i = 0; i < LLM__COUNT(plan) && !r; i++) r = llm__net_buffer(net, rank, rows, plan[i].cols, plan[i].to);
    return r;
}

LLM__UNUSED static void llm__net_close(llm__net *net) {
    if (!net) return;
    for (int r = 0; net->rank && r < net->cfg.n_ranks; r++) LLM_FREE(net->rank[r].layer);
    LLM_FREE(net->rank);
    LLM_FREE(net->kv);
    LLM_FREE(net);
}

/* Makes weights and buffers of every rank; the backend frees them when it is closed. Not the KV pages. */
LLM__UNUSED static llm_result llm__net_open(const llm__net_config *cfg, llm__net **out) {
    *out = NULL;
    const llm__arch *a = &cfg->model->arch;
    if (!a->n_layers) return llm__error(LLM_ERR_ARG, "%s: opened with vocab_only: it has no weights", cfg->model->path);
    llm__net *net = LLM__NEW(llm__net, 1);
    if (!net) return llm__nomem();
    net->cfg = *cfg;
    net->cfg.n_ranks = LLM__MAX(cfg->n_ranks, 1);
    net->a = a;
    net->rank = LLM__NEW(llm__net_rank, net->cfg.n_ranks);
    net->kv = LLM__NEW(llm_kv_layer, a->n_layers);
    llm_result r = net->rank && net->kv ? LLM_OK : llm__nomem();
    llm__loader L;
    llm__loader_begin(&L, cfg->model);
    L.backend = cfg->backend;
    L.ctx = cfg->ctx;
    L.n_ranks = net->cfg.n_ranks;
    for (int i = 0; i < net->cfg.n_ranks && !r; i++) {
        net->rank[i].layer = LLM__NEW(llm__net_layer, a->n_layers);
        if (!net->rank[i].layer) L.r = llm__nomem();
        L.rank = i;
        llm__load_rank(&L, &net->rank[i], cfg);
        r = L.r ? L.r : llm__net_buffers(net, i);
    }
    if (!r) r = cfg->backend->weights_done(cfg->ctx);
    llm__loader_end(&L);
    for (int i = 0; i < a->n_layers && !r; i++) {
        int latent = (a->flags & LLM__MLA) != 0;
        net->kv[i].n_kv_heads = latent ? 1 : net->rank[0].n_kv_heads;
        net->kv[i].head_dim = latent ? a->kv_rank + a->rope_dim : a->head_dim;
        net->kv[i].v_head_dim = latent ? 0 : a->v_head_dim;
    }
    if (r) llm__net_close(net);
    else *out = net;
    return r;
}

LLM__UNUSED static int llm__net_kv_layers(const llm__net *net, const llm_kv_layer **layers) {
    *layers = net->kv;
    return net->a->n_layers;
}

LLM__UNUSED static int32_t llm__net_vocab(const llm__net *net) { return net->a->vocab; }

/* seq_rope and seq_rope_base of a request with this prompt: both depend on the prompt's length and stay for the request's life. */
LLM__UNUSED static void llm__net_rope_of(const llm__net *net, int32_t prompt_len, int32_t *variant, float *base) {
    const llm__arch *a = net->a;
    double length = prompt_len / LLM__MAX(a->dynamic_from, 1), grow = 1;
    *variant = a->long_from > 0 && prompt_len > a->long_from;
    if (a->dynamic == 1 && length > 1) grow = a->dynamic_factor * length - (a->dynamic_factor - 1);
    if (a->dynamic == 2 && length > 1) grow = exp2(ceil(log2(length) + 1)) - 1; /* Qwen 1 grows in steps */
    *base = a->rope_dim > 2 && grow > 1 ? (float)pow(grow, a->rope_dim / (a->rope_dim - 2.0)) : 1.0f;
}

/* ---- The forward pass ---- */

/* The pass of one rank: every call below is one operation of the backend's table. */
typedef struct llm__pass {
    const llm__net *net;
    const llm__arch *a;
    const llm_backend *be;
    llm_backend_ctx *ctx;
    int rank;
    const llm__net_rank *R;
    const llm__net_lane *lane;
} llm__pass;

static void llm__pass_linear(const llm__pass *p, llm_rows rows, llm_buffer *dst, const llm_buffer *src, const llm__net_linear *w, llm_act act, int add) {
    llm_linear_op op;
    memset(&op, 0, sizeof op);
    op.rows = rows;
    op.dst = dst;
    op.src = src;
    op.weight = w->w;
    op.bias = w->b;
    op.act = act;
    op.add = add;
    op.limit = p->a->act_limit;
    p->be->linear(p->ctx, p->rank, &op);
}

/* x += post_norm(sum over ranks of y); h = norm(x). Either norm may be NULL: none; y may be NULL: nothing to add. */
static void llm__pass_residual(const llm__pass *p, const llm_buffer *y, const llm__net_norm *post, const llm__net_norm *norm) {
    llm_residual_op op;
    memset(&op, 0, sizeof op);
    op.rows = p->lane->rows;
    op.x = p->lane->x;
    op.h = p->lane->h;
    op.y = y;
    op.scale = p->a->residual_scale;
    op.eps = p->a->eps;
    if (post) {
        op.post_kind = p->a->norm;
        op.post_weight = post->w;
        op.post_bias = post->b;
    }
    if (norm) {
        op.kind = p->a->norm;
        op.weight = norm->w;
        op.bias = norm->b;
    }
    p->be->residual(p->ctx, p->rank, &op);
}

static void llm__pass_norm(const llm__pass *p, llm_buffer *dst, const llm_buffer *src, int32_t n, llm_rows rows, llm_norm_kind kind, const llm__net_norm *norm, float eps) {
    llm_norm_op op;
    memset(&op, 0, sizeof op);
    op.rows = rows;
    op.dst = dst;
    op.src = src;
    op.n = n;
    op.kind = kind;
    op.weight = norm->w;
    op.bias = norm->b;
    op.eps = eps;
    p->be->norm(p->ctx, p->rank, &op);
}

/* Tokens to x, and the cosines and sines of this step's positions. */
static void llm__pass_begin(const llm__pass *p) {
    llm_embed_op embed;
    memset(&embed, 0, sizeof embed);
    embed.dst = p->lane->x;
    embed.table = p->R->embed;
    embed.vocab_begin = p->R->vocab_begin;
    embed.scale = p->a->embed_scale;
    if (p->rank == 0) embed.positions = p->R->positions; /* the sum over ranks must have them once */
    embed.position_offset = p->a->position_offset;
    p->be->embed(p->ctx, p->rank, &embed);
    if (p->net->cfg.n_ranks > 1) p->be->all_reduce(p->ctx, p->rank, LLM_ROWS_TOKENS, p->lane->x, p->a->hidden);
    for (int i = 0; i < p->a->n_rope; i++) {
        llm_rope_op rope;
        memset(&rope, 0, sizeof rope);
        rope.dst = p->R->rope[i];
        rope.inv_freq = p->R->inv_freq[i];
        rope.n_variants = p->a->rope[0].n_variants;
        rope.rope_dim = p->a->rope_dim;
        rope.scale = p->a->rope[i].scale;
        p->be->rope(p->ctx, p->rank, &rope);
    }
    if (p->R->embed_norm.w) llm__pass_norm(p, p->lane->x, p->lane->x, p->a->hidden, LLM_ROWS_TOKENS, p->a->norm, &p->R->embed_norm, p->a->eps);
}

/* att = attention(src). */
static void llm__pass_attention(const llm__pass *p, int i, const llm__net_layer *y, const llm_buffer *src) {
    const llm__arch *a = p->a;
    const llm__net_rank *R = p->R;
    int whole = a->qk_norm == LLM_QK_NORM_WHOLE_RMS;
    llm_qkv_op qkv;
    llm_attention_op att;
    memset(&qkv, 0, sizeof qkv);
    memset(&att, 0, sizeof att);
    llm__pass_linear(p, LLM_ROWS_TOKENS, R->qkv, src, &y->qkv, LLM_ACT_NONE, 0);
    qkv.qkv = R->qkv;
    qkv.q_col = whole ? R->head * a->head_dim : 0;
    qkv.k_col = R->q_width + (whole ? R->kv_head * a->head_dim : 0);
    qkv.v_col = R->q_width + R->k_width;
    qkv.n_heads = att.n_heads = R->n_heads;
    qkv.n_kv_heads = att.n_kv_heads = R->n_kv_heads;
    qkv.head_dim = att.head_dim = a->head_dim;
    qkv.v_head_dim = att.v_head_dim = a->v_head_dim;
    qkv.norm = a->qk_norm;
    qkv.q_norm = y->q_norm;
    qkv.k_norm = y->k_norm;
    qkv.eps = a->eps;
    qkv.whole_q = R->q_width;
    qkv.whole_k_col = R->q_width;
    qkv.whole_k = R->k_width;
    if (a->layer[i].rope >= 0) qkv.rope = R->rope[a->layer[i].rope];
    qkv.rope_dim = a->rope_dim;
    qkv.rope_interleaved = a->rope_pairs;
    qkv.layer = att.layer = i;
    qkv.logn_from = a->logn_from;
    p->be->qkv(p->ctx, p->rank, &qkv);
    att.dst = R->token.att;
    att.qkv = R->qkv;
    att.q_col = qkv.q_col;
    att.scale = a->attn_scale;
    att.softcap = a->attn_softcap;
    att.window = a->layer[i].window;
    att.sinks = y->sinks;
    att.alibi = R->alibi;
    p->be->attention(p->ctx, p->rank, &att);
}

/* att = latent attention(src) (DeepSeek-V2). The norms inside use 1e-6 whatever the config says. */
static void llm__pass_mla(const llm__pass *p, int i, const llm__net_layer *y, const llm_buffer *src) {
    const llm__arch *a = p->a;
    const llm__net_rank *R = p->R;
    const float inner_eps = 1e-6f;
    llm_mla_op op;
    memset(&op, 0, sizeof op);
    if (a->q_rank) {
        llm__net_norm norm;
        norm.w = y->q_a_norm;
        norm.b = NULL;
        llm__pass_linear(p, LLM_ROWS_TOKENS, R->q_a, src, &y->q_a, LLM_ACT_NONE, 0);
        llm__pass_norm(p, R->q_a, R->q_a, a->q_rank, LLM_ROWS_TOKENS, LLM_NORM_RMS, &norm, inner_eps);
    }
    llm__pass_linear(p, LLM_ROWS_TOKENS, R->q, a->q_rank ? R->q_a : src, &y->q_b, LLM_ACT_NONE, 0);
    llm__pass_linear(p, LLM_ROWS_TOKENS, R->kv_a, src, &y->kv_a, LLM_ACT_NONE, 0);
    op.dst = R->token.att;
    op.q = R->q;
    op.kv_a = R->kv_a;
    op.kv_norm = y->kv_a_norm;
    op.kv_b = y->kv_b;
    op.rope = R->rope[0];
    op.eps = inner_eps;
    op.scale = a->attn_scale;
    op.rope_interleaved = a->rope_pairs;
    op.layer = i;
    op.n_heads = R->n_heads;
    op.nope = a->nope;
    op.rope_dim = a->rope_dim;
    op.v_dim = a->v_head_dim;
    op.rank = a->kv_rank;
    p->be->mla(p->ctx, p->rank, &op);
}

/* y (+)= down(act(up src)). */
static void llm__pass_mlp(const llm__pass *p, const llm__net_linear *up, const llm__net_linear *down, const llm_buffer *src, const llm_weight *gate, int add) {
    llm_rows rows = p->lane->rows;
    llm__pass_linear(p, rows, p->R->ff_act, src, up, p->a->act, 0);
    if (gate) { /* the shared expert of Qwen2-MoE counts as much as its gate says */
        llm__net_linear w;
        llm_gate_op op;
        w.w = (llm_weight *)(uintptr_t)gate;
        w.b = NULL;
        op.dst = p->R->ff_act;
        op.gate = p->R->gate;
        op.n = p->R->ff_shared;
        llm__pass_linear(p, rows, p->R->gate, src, &w, LLM_ACT_NONE, 0);
        p->be->gate(p->ctx, p->rank, &op);
    }
    llm__pass_linear(p, rows, p->lane->y, p->R->ff_act, down, LLM_ACT_NONE, add);
}

/* y (+)= the chosen experts of each token, and the shared one. */
static void llm__pass_moe(const llm__pass *p, const llm__net_layer *y, const llm_buffer *src, int add) {
    const llm__arch *a = p->a;
    const llm__net_rank *R = p->R;
    llm_route_op route;
    llm_experts_op experts;
    memset(&route, 0, sizeof route);
    memset(&experts, 0, sizeof experts);
    llm__pass_linear(p, LLM_ROWS_TOKENS, R->router, src, &y->router, LLM_ACT_NONE, 0);
    route.dst = R->routes;
    route.logits = R->router;
    route.n_experts = experts.n_experts = a->n_experts;
    route.k = experts.k = a->n_used;
    route.score = a->score;
    route.correction = y->correction;
    route.n_group = a->n_group;
    route.topk_group = a->topk_group;
    route.group_top2 = a->group_top2;
    route.normalize = a->normalize;
    route.normalize_min = a->normalize_min;
    route.scale = a->route_scale;
    p->be->route(p->ctx, p->rank, &route);
    experts.dst = p->lane->y;
    experts.src = src;
    experts.routes = R->routes;
    experts.gate_up = y->e_up.w;
    experts.gate_up_bias = y->e_up.b;
    experts.down = y->e_down.w;
    experts.down_bias = y->e_down.b;
    experts.act = a->act;
    experts.limit = a->act_limit;
    experts.ff = R->ff_expert;
    experts.add = add;
    p->be->experts(p->ctx, p->rank, &experts);
    if (a->ff_shared) llm__pass_mlp(p, &y->s_up, &y->s_down, src, y->s_gate, 1);
}

/* From here on only the rows whose logits are wanted: of h, and before the last block of x and attention's result too. */
static void llm__pass_narrow(llm__pass *p, int before_mlp, int with_h) {
    const llm__net_lane *from = p->lane, *to = &p->R->out;
    if (before_mlp) p->be->gather(p->ctx, p->rank, to->x, from->x);
    if (before_mlp) p->be->gather(p->ctx, p->rank, to->att, from->att);
    if (with_h) p->be->gather(p->ctx, p->rank, to->h, from->h);
    p->lane = to;
}

static void llm__pass_logits(const llm__pass *p) {
    llm_logits_op op;
    memset(&op, 0, sizeof op);
    op.src = p->lane->h;
    op.head = p->R->head_w.w;
    op.bias = p->R->head_w.b;
    op.vocab_begin = p->R->vocab_begin;
    op.vocab = p->a->vocab;
    op.scale = p->a->logit_scale;
    op.softcap = p->a->logit_softcap;
    p->be->logits(p->ctx, p->rank, &op);
}

/* One step on one rank, top to bottom. Every layer: h = norm(x); x += attention(h); h = norm(x); x += mlp(h). Families differ in where norms stand:
 * before blocks (most), after them as well (Gemma 2), after them only (OLMo 2), or both blocks read the same h (Cohere). A residual operation
 * adds what a block left in y and makes the h of the next block. The last layer's MLP and the head see only the rows whose logits are wanted. */
static void llm__pass_run(llm__pass *p) {
    const llm__arch *a = p->a;
    int parallel = (a->flags & LLM__PARALLEL) != 0, plain = (a->flags & LLM__NO_PRE_NORM) != 0, post = (a->flags & LLM__POST_NORM) != 0;
    p->lane = &p->R->token;
    llm__pass_begin(p);
    if (!plain) llm__pass_residual(p, NULL, NULL, &p->R->layer[0].attn_norm);
    for (int i = 0; i < a->n_layers; i++) {
        const llm__net_layer *y = &p->R->layer[i];
        int last = i == a->n_layers - 1, moe = a->layer[i].moe;
        const llm__net_norm *next = last ? &p->R->out_norm : plain ? NULL : &p->R->layer[i + 1].attn_norm;
        if (a->flags & LLM__MLA) llm__pass_mla(p, i, y, plain ? p->lane->x : p->lane->h);
        else llm__pass_attention(p, i, y, plain ? p->lane->x : p->lane->h);
        if (last && !moe) llm__pass_narrow(p, 1, parallel);
        const llm__net_lane *lane = p->lane;
        llm__pass_linear(p, lane->rows, lane->y, lane->att, &y->o, LLM_ACT_NONE, 0);
        if (parallel && (y->ffn_norm.w || y->ffn_norm.b)) llm__pass_norm(p, lane->h, lane->x, a->hidden, lane->rows, a->norm, &y->ffn_norm, a->eps);
        if (!parallel) llm__pass_residual(p, lane->y, post ? &y->post_attn : NULL, plain ? NULL : &y->ffn_norm);
        const llm_buffer *src = plain ? lane->x : lane->h;
        if (moe) llm__pass_moe(p, y, src, parallel);
        else llm__pass_mlp(p, &y->up, &y->down, src, NULL, parallel);
        llm__pass_residual(p, lane->y, post ? &y->post_ffn : NULL, next);
        if (last && moe) llm__pass_narrow(p, 0, 1);
    }
    llm__pass_logits(p);
}

/* Refuses what would read outside the tables. */
static llm_result llm__net_step_check(const llm__net *net, const llm_step *s) {
    if (s->shape.n_rows < 1 || s->shape.n_rows > net->cfg.max_rows || s->shape.n_out < 0 || s->shape.n_out > net->cfg.max_out)
        return llm__error(LLM_ERR_ARG, "a step of %d rows and %d outputs: at most %d and %d expected", s->shape.n_rows, s->shape.n_out, net->cfg.max_rows, net->cfg.max_out);
    for (int i = 0; i < s->shape.n_rows; i++) {
        if (s->tokens[i] < 0 || s->tokens[i] >= net->a->vocab) return llm__error(LLM_ERR_ARG, "token id %d: 0 to %d expected", s->tokens[i], net->a->vocab - 1);
        if (s->positions[i] < 0 || s->positions[i] >= net->a->max_len)
            return llm__error(LLM_ERR_LIMIT, "position %d: the model has %d", s->positions[i], net->a->max_len);
    }
    return LLM_OK;
}

/* One step on all ranks; the logits of its out rows can be read afterwards. */
LLM__UNUSED static llm_result llm__net_step(llm__net *net, const llm_step *step) {
    const llm_backend *be = net->cfg.backend;
    llm_result r = llm__net_step_check(net, step);
    if (!r) r = be->begin_step(net->cfg.ctx, step);
    if (r) return r;
    for (int i = 0; i < net->cfg.n_ranks; i++) {
        llm__pass p;
        p.net = net;
        p.a = net->a;
        p.be = be;
        p.ctx = net->cfg.ctx;
        p.rank = i;
        p.R = &net->rank[i];
        llm__pass_run(&p);
    }
    r = be->end_step(net->cfg.ctx);
    return r ? r : be->wait(net->cfg.ctx);
}

/* The type that most bytes of the weights have. */
static void llm__model_file_type(llm_model *m) {
    int64_t bytes[LLM_TYPE_RANDOM + 1];
    const llm__tensors *t = &m->source.tensors;
    int32_t best = LLM_TYPE_RANDOM;
    memset(bytes, 0, sizeof bytes);
    for (size_t i = 0; i < t->n; i++)
        if (t->item[i].type >= 0 && t->item[i].type < LLM_TYPE_RANDOM) bytes[t->item[i].type] += t->item[i].bytes;
    for (int32_t type = 0; type < LLM_TYPE_RANDOM; type++)
        if (bytes[type] > bytes[best]) best = type;
    const llm__type_desc *d = llm__type_info(best);
    snprintf(m->file_type, sizeof m->file_type, "%s", d ? d->name : "random");
}

static void llm__model_info_fill(llm_model *m) {
    llm_model_info *o = &m->info;
    const llm__source *s = &m->source;
    const llm__arch *a = &m->arch;
    o->path = m->path;
    o->architecture = a->class_name;
    o->family = a->name;
    o->format = s->gguf ? "gguf" : "safetensors";
    llm__model_file_type(m);
    o->file_type = m->file_type;
    for (size_t i = 0; i < s->tensors.n; i++) {
        const llm__tensor *t = &s->tensors.item[i];
        o->weight_bytes += t->bytes;
        o->n_params += t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
    }
    o->n_layers = a->n_layers;
    o->hidden_size = a->hidden;
    o->n_heads = a->n_heads;
    o->n_kv_heads = a->n_kv_heads;
    o->head_dim = a->head_dim;
    o->vocab_size = a->vocab;
    o->max_position_embeddings = a->max_positions;
    o->max_model_len = a->max_len;
    o->n_experts = a->n_experts;
    o->n_experts_used = a->n_used;
    for (int i = 0; i < a->n_layers; i++) o->sliding_window = LLM__MAX(o->sliding_window, a->layer[i].window);
    o->bos_id = s->bos_id;
    o->eos_id = s->eos_id;
    o->pad_id = s->pad_id;
    o->unk_id = s->unk_id;
    o->stop_ids = s->stop_ids.data;
    o->n_stop_ids = (int32_t)s->stop_ids.len;
    o->n_tensors = (int32_t)s->tensors.n;
    o->tokenizer_kind = s->tokenizer ? s->tokenizer->kind : "none";
    o->chat_template = s->chat_template_text;
}

LLM_API void llm_model_close(llm_model *model) {
    if (!model) return;
    llm__source_close(&model->source);
    LLM_FREE(model->path);
    LLM_FREE(model);
}

LLM_API llm_result llm_model_open(const char *path, const llm_model_config *cfg, llm_model **out) {
    *out = NULL;
    llm_model *m = LLM__NEW(llm_model, 1);
    if (!m) return llm__nomem();
    m->path = llm__strdup(path ? path : "");
    m->dummy = cfg && cfg->dummy_weights;
    int vocab_only = cfg && cfg->vocab_only;
    int64_t checked = 0;
    llm_result r = m->path ? llm__source_open(m->path, cfg, &m->source) : llm__nomem();
    if (!r && !vocab_only) r = llm__arch_read(&m->source, m->dummy, &m->arch);
    if (!r && !vocab_only) r = llm__net_check(m, &checked);

    if (r) {
        llm_model_close(m);
        return r;
    }
    llm__model_info_fill(m);
    if (m->dummy) m->info.n_params = checked;
    *out = m;
    return LLM_OK;
}

LLM_API const llm_model_info *llm_model_get_info(const llm_model *model) { return &model->info; }

LLM__UNUSED static int32_t llm__model_max_len(const llm_model *m) { return m->arch.max_len; }

LLM_API llm_result llm_model_tensor(const llm_model *model, int i, const char **name, const char **type, int64_t shape[4], int *n_dims, int64_t *bytes) {
    if (i < 0 || i >= model->info.n_tensors) return llm__error(LLM_ERR_ARG, "tensor %d: 0 to %d expected", i, model->info.n_tensors - 1);
    const llm__tensor *t = &model->source.tensors.item[i];
    const llm__type_desc *d = llm__type_info(t->type);
    if (name) *name = t->name.p;
    if (type) *type = d ? d->name : "unknown";
    for (int k = 0; shape && k < 4; k++) shape[k] = t->shape[k];
    if (n_dims) *n_dims = t->n_dims;
    if (bytes) *bytes = t->bytes;
    return LLM_OK;
}

static llm_result llm__model_lacks_tokenizer(const llm_model *m) { return llm__error(LLM_ERR_UNSUPPORTED, "%s: the model has no tokenizer", m->path); }

LLM_API llm_result llm_tokenize(const llm_model *model, const char *text, size_t len, int flags, llm_tokens *out) {
    return model->source.tokenizer ? llm__tokenizer_encode(model->source.tokenizer, text, len, flags, out) : llm__model_lacks_tokenizer(model);
}

LLM_API llm_result llm_detokenize(const llm_model *model, const int32_t *ids, size_t n, int flags, llm_text *out) {
    return model->source.tokenizer ? llm__tokenizer_decode(model->source.tokenizer, ids, n, flags, out) : llm__model_lacks_tokenizer(model);
}

LLM_API int32_t llm_vocab_size(const llm_model *model) { return model->source.tokenizer ? model->source.tokenizer->n_vocab : 0; }

LLM_API int32_t llm_token_id(const llm_model *model, const char *token) {
    return model->source.tokenizer ? llm__tokenizer_id(model->source.tokenizer, llm__s(token, strlen(token))) : -1;
}

LLM_API llm_result llm_token_bytes(const llm_model *model, int32_t id, llm_text *out) {
    return model->source.tokenizer ? llm__tokenizer_piece(model->source.tokenizer, id, out) : llm__model_lacks_tokenizer(model);
}

LLM_API int llm_token_is_special(const llm_model *model, int32_t id) {
    return model->source.tokenizer ? llm__tokenizer_is_special(model->source.tokenizer, id) : 0;
}

LLM_API llm_result llm_render(const llm_model *model, const llm_json *context, const llm_render_options *options, llm_text *out) {
    const llm__source *s = &model->source;
    llm_render_options o;
    memset(&o, 0, sizeof o);
    if (options) o = *options;
    if (!s->chat_template) {
        if (s->chat_template_error) return llm__error(LLM_ERR_TEMPLATE, "%s: the chat template cannot be used: %.700s", model->path, s->chat_template_error);
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: the model has no chat template; give one", model->path);
    }
    if (!o.bos_token) o.bos_token = s->bos_token;
    if (!o.eos_token) o.eos_token = s->eos_token;
    return llm_template_render(s->chat_template, context, &o, out);
}
/* ---- section: model (end) ---- */

/* ============================================================================
 * >>sampler   Which token comes next.
 * ============================================================================
 * One row of logits, one sequence's rules, one token. The order is vLLM's: banned tokens, min_tokens, logit_bias, penalties (repetition, frequency,
 * presence); here a greedy request takes the largest; then temperature, min-p, top-k, top-p and the draw. Three things are meant to stay as they are:
 *   - Randomness has no state. The draw at output position p uses one number, a function of (seed, p); choice i of n uses seed + i. So the same seed gives
 *     the same tokens alone, in a batch, after a preemption, and choice i is what a request with n = 1 and seed + i gets.
 *   - The tokens left are drawn in order of id, by one walk over their cumulative weights; filters only remove. Ties go to the lower id.
 *   - Nothing sorts the vocabulary. The k-th value and the value where top-p ends come from a radix select; one pass compacts. llm__ref_pick says the same plainly.
 * Log-probabilities are the raw log-softmax, before any rule, summed in double. Rows that hold NaN or infinity are refused, not sampled. */
/* ---- section: sampler, scheduler, engine, easy (begin) ---- */
/* Kept room of stop strings and bad words: enough for any client, too little to slow a step down. */
enum { LLM__STOPS_MAX = 256, LLM__STOP_BYTES_MAX = 1 << 16, LLM__CHOICES_MAX = 128 };

/* A strong mix of 64 bits (Stafford's variant 13 of the splitmix finaliser). */
static uint64_t llm__mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* A number in [0, 1) that depends on seed and position alone: no state, so no batch, preemption or backend can change it. */
static double llm__uniform(uint64_t seed, uint64_t position) {
    uint64_t key = llm__mix(seed + 0x9E3779B97F4A7C15u);
    return (double)(llm__mix(key ^ llm__mix(position * 0xD1342543DE82EF95u + 0x632BE59BD9B4E019u)) >> 11) * (1.0 / 9007199254740992.0);
}

/* e^x for x <= 0 to 2 units in the last place, by operations that compilers vectorise (Cephes' polynomial); 0 below -87. */
LLM__INLINE float llm__exp_neg(float x) {
    float c = x < -87.0f ? -87.0f : x;
    int32_t n = (int32_t)(c * 1.44269504f - 0.5f);
    float r = c - (float)n * 0.693359375f + (float)n * 2.12194440e-4f, p = 1.9875691500e-4f, scale;
    uint32_t bits = (uint32_t)(n + 127) << 23;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    memcpy(&scale, &bits, 4);
    p = (p * r * r + r + 1.0f) * scale;
    return x < -87.0f ? 0.0f : p;
}

/* The largest value of a row. *bad is set if one is NaN or +infinity, or none is finite. */
static float llm__row_max(const float *x, int32_t n, int *bad) {
    float top[16];
    int32_t wrong[16], i = 0;
    for (int k = 0; k < 16; k++) top[k] = -INFINITY, wrong[k] = 0;
    for (; i + 16 <= n; i += 16)
        for (int k = 0; k < 16; k++) {
            top[k] = x[i + k] > top[k] ? x[i + k] : top[k];
            wrong[k] |= !(x[i + k] <= 3.4028234e38f);
        }
    for (; i < n; i++) {
        top[0] = x[i] > top[0] ? x[i] : top[0];
        wrong[0] |= !(x[i] <= 3.4028234e38f);
    }
    for (int k = 1; k < 16; k++) {
        top[0] = top[k] > top[0] ? top[k] : top[0];
        wrong[0] |= wrong[k];
    }
    *bad = wrong[0] || top[0] < -3.4028234e38f;
    return top[0];
}

/* The sum of m values in the order of four lanes, whoever asks: so equal weights give equal sums everywhere. */
LLM__INLINE double llm__sum_block(const float *w, int m) {
    double lane[4] = {0, 0, 0, 0};
    int k = 0;
    for (; k + 4 <= m; k += 4)
        for (int j = 0; j < 4; j++) lane[j] += (double)w[k + j];
    for (; k < m; k++) lane[k & 3] += (double)w[k];
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

LLM__INLINE double llm__exp_block(const float *LLM__RESTRICT x, float *LLM__RESTRICT w, int m, float max, float scale) {
    for (int k = 0; k < m; k++) w[k] = llm__exp_neg((x[k] - max) * scale);
    return llm__sum_block(w, m);
}

/* w = exp((x - max) * scale), in blocks of a constant size that vectorise. Returns the sum. */
static double llm__exp_row(const float *x, float *w, int32_t n, float max, float scale) {
    double total = 0;
    int32_t i = 0;
    for (; i + 64 <= n; i += 64) total += llm__exp_block(x + i, w + i, 64, max, scale);
    return i < n ? total + llm__exp_block(x + i, w + i, n - i, max, scale) : total;
}

/* Descending order of values; ties: the lower id first. */
LLM__INLINE int llm__before(float a, int32_t a_id, float b, int32_t b_id) { return a > b || (a == b && a_id < b_id); }

/* Restores a heap whose root is the last in llm__before's order. */
static void llm__top_sift(llm_token_logprob *heap, int32_t n, int32_t at) {
    for (int32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && llm__before(heap[child].logprob, heap[child].id, heap[child + 1].logprob, heap[child + 1].id)) child++;
        if (llm__before(heap[child].logprob, heap[child].id, heap[at].logprob, heap[at].id)) return;
        llm_token_logprob t = heap[at];
        heap[at] = heap[child];
        heap[child] = t;
    }
}

/* The k largest of a row, best first, as x - log_sum. Returns how many: the smaller of k and n. */
static int32_t llm__top_logprobs(const float *x, int32_t n, int32_t k, double log_sum, llm_token_logprob *out) {
    k = LLM__MIN(k, n);
    for (int32_t i = 0; i < k; i++) out[i].id = i, out[i].logprob = x[i];
    for (int32_t i = k / 2 - 1; i >= 0; i--) llm__top_sift(out, k, i);
    for (int32_t i = k; k && i < n; i++) {
        if (!(x[i] > out[0].logprob)) continue; /* a later equal has the higher id */
        out[0].id = i, out[0].logprob = x[i];
        llm__top_sift(out, k, 0);
    }
    for (int32_t m = k - 1; m > 0; m--) {
        llm_token_logprob last = out[0];
        out[0] = out[m];
        out[m] = last;
        llm__top_sift(out, m, 0);
    }
    for (int32_t i = 0; i < k; i++) out[i].logprob = (float)((double)out[i].logprob - log_sum);
    return k;
}

/* Working memory of one thread that samples: taken when the engine opens. */
typedef struct llm__scratch {
    float *x;      /* (vocab) processed logits */
    float *w;      /* (vocab) weights, then those of the candidates */
    int32_t *id;   /* (vocab) ids of the candidates, ascending */
    double *mass;  /* (2048) of llm__select */
} llm__scratch;

static int llm__scratch_open(llm__scratch *k, int32_t vocab) {
    k->x = LLM__NEW(float, vocab);
    k->w = LLM__NEW(float, vocab);
    k->id = LLM__NEW(int32_t, vocab);
    k->mass = LLM__NEW(double, 2048);
    return k->x && k->w && k->id && k->mass;
}

static void llm__scratch_close(llm__scratch *k) {
    LLM_FREE(k->x);
    LLM_FREE(k->w);
    LLM_FREE(k->id);
    LLM_FREE(k->mass);
}

/* The value at which a descending sum of the weights (by_mass) or of ones reaches `target`; *above: the sum of what is larger. A radix
 * select: the bits of positive floats order as the floats do, so three histograms of 11, 11 and 10 bits find it without sorting. */
static float llm__select(const float *w, int32_t n, int by_mass, double target, double *mass, double *above) {
    static const int low[3] = {21, 10, 0}, width[3] = {11, 11, 10};
    uint32_t prefix = 0, bits;
    float value;
    *above = 0;
    for (int level = 0; level < 3; level++) {
        uint32_t mask = (1u << width[level]) - 1, at = mask;
        memset(mass, 0, 2048 * sizeof *mass);
        for (int32_t i = 0; i < n; i++) {
            memcpy(&bits, &w[i], 4);
            if (level && bits >> (low[level] + width[level]) != prefix) continue;
            mass[bits >> low[level] & mask] += by_mass ? (double)w[i] : 1.0;
        }
        while (at > 0 && *above + mass[at] < target) *above += mass[at--];
        prefix = prefix << width[level] | at;
    }
    memcpy(&value, &prefix, 4);
    return value;
}

/* Keeps the candidates above `least` and the first `ties` equal to it. */
static int32_t llm__keep(llm__scratch *k, int32_t n, float least, double ties) {
    int32_t m = 0;
    for (int32_t i = 0; i < n; i++) {
        if (k->w[i] < least || (k->w[i] == least && ties < 1)) continue;
        ties -= k->w[i] == least;
        k->w[m] = k->w[i];
        k->id[m++] = k->id[i];
    }
    return m;
}

/* The index whose share of the weights holds u of [0, 1), in order of index. */
static int32_t llm__draw(const float *w, int32_t n, double u) {
    double total = 0, sum = 0, block = 0;
    int32_t i = 0, last = 0;
    for (i = 0; i < n; i += 64) total += llm__sum_block(w + i, LLM__MIN(64, n - i));
    for (i = 0; i < n; i += 64, sum += block) {
        block = llm__sum_block(w + i, LLM__MIN(64, n - i));
        if (sum + block > u * total) break;
    }
    for (; i < n; i++) {
        if (w[i] > 0) last = i;
        sum += (double)w[i];
        if (sum > u * total) return i;
    }
    return last;
}

/* Samples from the weights in k->w (n of them, the largest is 1): min-p, then top-k, then top-p, then the draw. *weight: the token's.
 * The tokens left are drawn in order of id. Same as llm__ref_pick, without its sort. */
static int32_t llm__pick(llm__scratch *k, int32_t n, const llm_sampling *s, double u, float *weight) {
    double above;
    int32_t m = 0;
    float least = s->min_p > 1e-30f ? s->min_p : 1e-30f;
    if (s->min_p <= 0 && s->top_k <= 0 && !(s->top_p > 0 && s->top_p < 1)) {
        int32_t id = llm__draw(k->w, n, u);
        *weight = k->w[id];
        return id;
    }
    for (int32_t i = 0; i < n; i++)
        if (k->w[i] >= least) {
            k->w[m] = k->w[i];
            k->id[m++] = i;
        }
    if (s->top_k > 0 && s->top_k < m) { /* all ties of the k-th stay, as in vLLM */
        least = llm__select(k->w, m, 0, s->top_k, k->mass, &above);
        m = llm__keep(k, m, least, m);
    }
    if (s->top_p > 0 && s->top_p < 1) { /* a token stays if what is before it sums to less than top_p */
        double sum = 0;
        for (int32_t i = 0; i < m; i++) sum += (double)k->w[i];
        least = llm__select(k->w, m, 1, (double)s->top_p * sum, k->mass, &above);
        m = llm__keep(k, m, least, ceil(LLM__MAX(1.0, ((double)s->top_p * sum - above) / (double)least)));
    }
    int32_t i = llm__draw(k->w, m, u);
    *weight = k->w[i];
    return k->id[i];
}

/* The plain twin of llm__pick: puts the tokens in order one after the other. order: (n) ids, working memory. */
LLM__UNUSED static int32_t llm__ref_pick(const float *w, int32_t n, const llm_sampling *s, double u, int32_t *order) {
    int32_t m = n;
    double sum = 0, total = 0, before = 0;
    for (int32_t i = 0; i < n; i++) order[i] = i;
    for (int32_t i = 0; i < n; i++) /* selection sort, best first */
        for (int32_t j = i + 1; j < n; j++)
            if (llm__before(w[order[j]], order[j], w[order[i]], order[i])) {
                int32_t t = order[i];
                order[i] = order[j];
                order[j] = t;
            }
    while (m > 1 && (w[order[m - 1]] <= 0 || w[order[m - 1]] < s->min_p * w[order[0]])) m--;
    if (s->top_k > 0)
        while (m > s->top_k && w[order[m - 1]] < w[order[s->top_k - 1]]) m--;
    for (int32_t i = 0; i < m; i++) sum += (double)w[order[i]];
    int32_t kept = 0;
    for (; kept < m; before += (double)w[order[kept]], kept++)
        if (s->top_p > 0 && s->top_p < 1 && before >= (double)s->top_p * sum) break;
    for (int32_t i = 0; i < kept; i++) total += (double)w[order[i]];
    double at = 0;
    int32_t last = order[0];
    for (int32_t id = 0; id < n; id++) /* the draw runs in order of id */
        for (int32_t i = 0; i < kept; i++)
            if (order[i] == id && w[id] > 0) {
                at += (double)w[id];
                last = id;
                if (at > u * total) return id;
            }
    return last;
}

/* The distinct tokens of a sequence and how often each was generated, for the penalties. A list and an index over it. */
typedef struct llm__history {
    int32_t n;
    uint32_t mask;      /* size of slot - 1; 0: no penalties, nothing is kept */
    int32_t *id, *count; /* (n) count: in the output */
    int32_t *slot;      /* (mask + 1) index + 1, 0 free */
} llm__history;

static void llm__history_add(llm__history *h, int32_t id, int32_t in_output) {
    if (!h->mask) return;
    uint32_t at = (uint32_t)llm__mix((uint64_t)id) & h->mask;
    while (h->slot[at] && h->id[h->slot[at] - 1] != id) at = (at + 1) & h->mask;
    if (!h->slot[at]) {
        h->id[h->n] = id;
        h->count[h->n] = 0;
        h->slot[at] = ++h->n;
    }
    h->count[h->slot[at] - 1] += in_output;
}

/* Everything that changes logits before the choice, for one sequence at one step. */
typedef struct llm__rules {
    const llm_sampling *s;
    const int32_t *eos;          /* (n_eos) of the model */
    int32_t n_eos;
    const int32_t *bad_ids;      /* token sequences that must not appear, one after the other */
    const int32_t *bad_end;      /* (n_bad) end of each in bad_ids */
    int32_t n_bad;
    const llm__history *history; /* NULL: no penalties */
    const int32_t *output;       /* (n_output) generated so far */
    int32_t n_output;
} llm__rules;

static void llm__ban(float *x, int32_t n, int32_t id) {
    if (id >= 0 && id < n) x[id] = -INFINITY;
}

/* 1 if the rules leave every logit as it is. */
static int llm__rules_idle(const llm__rules *r) {
    return !r->n_bad && !r->s->n_logit_bias && r->n_output >= r->s->min_tokens && !(r->history && r->history->mask);
}

/* The last token of a bad word is banned where the output ends in the rest of it. */
static void llm__ban_words(float *x, int32_t n, const llm__rules *r) {
    for (int32_t i = 0, from = 0; i < r->n_bad; from = r->bad_end[i++]) {
        int32_t rest = r->bad_end[i] - from - 1;
        if (rest <= r->n_output && !memcmp(r->output + r->n_output - rest, r->bad_ids + from, (size_t)rest * sizeof *r->bad_ids))
            llm__ban(x, n, r->bad_ids[from + rest]);
    }
}

/* repetition: tokens of prompt or output, once an id; frequency and presence: of the output only; in this order, on raw logits. */
static void llm__penalise(float *x, int32_t n, const llm_sampling *s, const llm__history *h) {
    for (int32_t i = 0; i < h->n; i++) {
        int32_t id = h->id[i];
        if (id < 0 || id >= n) continue;
        float v = x[id] > 0 ? x[id] / s->repetition_penalty : x[id] * s->repetition_penalty;
        v -= s->frequency_penalty * (float)h->count[i];
        x[id] = h->count[i] > 0 ? v - s->presence_penalty : v;
    }
}

static void llm__rules_apply(const llm__rules *r, float *x, int32_t n) {
    const llm_sampling *s = r->s;
    llm__ban_words(x, n, r);
    if (r->n_output < s->min_tokens) {
        for (int32_t i = 0; i < r->n_eos; i++) llm__ban(x, n, r->eos[i]);
        for (int32_t i = 0; i < s->n_stop_token_ids; i++) llm__ban(x, n, s->stop_token_ids[i]);
    }
    for (int32_t i = 0; i < s->n_logit_bias; i++) {
        float bias = LLM__MIN(100.0f, LLM__MAX(-100.0f, s->logit_bias[i].bias));
        if (s->logit_bias[i].id >= 0 && s->logit_bias[i].id < n) x[s->logit_bias[i].id] += bias;
    }
    if (r->history && r->history->mask) llm__penalise(x, n, s, r->history);
}

typedef struct llm__choice {
    int32_t id;       /* -1: the logits were not finite */
    float logprob;    /* raw log-softmax */
    float prob;       /* after the rules and temperature (greedy: temperature 1), before min-p, top-k and top-p */
    double log_sum;   /* of the raw logits: log of the sum of exponentials */
} llm__choice;

/* Chooses the token at output position `position` from one row of logits. */
static llm__choice llm__choose(const float *row, int32_t n, const llm__rules *r, uint64_t seed, int64_t position, llm__scratch *k) {
    llm__choice c;
    int bad, greedy = r->s->temperature < 1e-5f, idle = llm__rules_idle(r);
    float scale = greedy ? 1.0f : 1.0f / r->s->temperature, weight = 1;
    memset(&c, 0, sizeof c);
    c.id = -1;
    const float *x = row;
    float max = llm__row_max(row, n, &bad);
    if (bad) return c;
    double sum = llm__exp_row(row, k->w, n, max, 1.0f);
    c.log_sum = (double)max + log(sum);
    if (!idle) {
        memcpy(k->x, row, (size_t)n * sizeof *row);
        llm__rules_apply(r, k->x, n);
        x = k->x;
        max = llm__row_max(x, n, &bad);
        if (bad) return c;
    }
    if (!idle || scale != 1.0f) sum = llm__exp_row(x, k->w, n, max, scale);
    if (greedy) {
        c.id = 0;
        while (x[c.id] != max) c.id++;
    } else {
        c.id = llm__pick(k, n, r->s, llm__uniform(seed, (uint64_t)position), &weight);
    }
    c.prob = (float)((double)weight / sum);
    c.logprob = (float)((double)row[c.id] - c.log_sum);
    return c;
}

LLM_API int32_t llm_sample(const float *logits, int32_t n, const llm_sampling *s, int64_t seed, int64_t position) {
    llm__scratch k;
    llm__rules r;
    llm_sampling plain = *s;
    memset(&k, 0, sizeof k);
    memset(&r, 0, sizeof r);
    plain.min_tokens = 0; /* needs what only a request knows */
    r.s = &plain;
    int32_t id = -1;
    if (n > 0 && llm__scratch_open(&k, n)) id = llm__choose(logits, n, &r, (uint64_t)seed, position, &k).id;
    llm__scratch_close(&k);
    return id;
}

/* Checks one number of a sampling struct; NaN is in no range. */
static llm_result llm__check_number(const char *name, double value, double low, double high, const char *allowed) {
    char text[40];
    if (value >= low && value <= high) return LLM_OK;
    llm__format_double(value, text);
    size_t n = strlen(text);
    if (n > 2 && !strcmp(text + n - 2, ".0")) text[n - 2] = 0;
    return llm__error(LLM_ERR_ARG, "%s: %s, must be %s", name, text, allowed);
}

static llm_result llm__check_strings(const char *name, const char *const *s, int32_t n) {
    size_t total = 0;
    if (n < 0 || n > LLM__STOPS_MAX || (n && !s)) return llm__error(LLM_ERR_ARG, "%s: %d strings, must be 0 to %d", name, (int)n, LLM__STOPS_MAX);
    for (int32_t i = 0; i < n; i++) {
        if (!s[i] || !*s[i]) return llm__error(LLM_ERR_ARG, "%s: cannot contain an empty string", name);
        total += strlen(s[i]);
    }
    if (total > LLM__STOP_BYTES_MAX) return llm__error(LLM_ERR_ARG, "%s: %zu bytes, must be at most %d", name, total, LLM__STOP_BYTES_MAX);
    return LLM_OK;
}

static llm_result llm__check_ids(const llm_sampling *s, int32_t vocab) {
    if (s->n_stop_token_ids < 0 || (s->n_stop_token_ids && !s->stop_token_ids)) return llm__error(LLM_ERR_ARG, "stop_token_ids: no list given");
    if (s->n_logit_bias < 0 || (s->n_logit_bias && !s->logit_bias)) return llm__error(LLM_ERR_ARG, "logit_bias: no list given");
    for (int32_t i = 0; i < s->n_stop_token_ids; i++)
        if (s->stop_token_ids[i] < 0 || (vocab > 0 && s->stop_token_ids[i] >= vocab))
            return llm__error(LLM_ERR_ARG, "stop_token_ids: %d is no token, ids run from 0 to %d", (int)s->stop_token_ids[i], (int)vocab - 1);
    for (int32_t i = 0; i < s->n_logit_bias; i++) {
        if (s->logit_bias[i].id < 0 || (vocab > 0 && s->logit_bias[i].id >= vocab))
            return llm__error(LLM_ERR_ARG, "logit_bias: %d is no token, ids run from 0 to %d", (int)s->logit_bias[i].id, (int)vocab - 1);
        if (!(s->logit_bias[i].bias >= -1e30f && s->logit_bias[i].bias <= 1e30f)) return llm__error(LLM_ERR_ARG, "logit_bias: the bias of %d must be a number", (int)s->logit_bias[i].id);
    }
    return LLM_OK;
}

static llm_result llm__check_early_stop(const llm_early_stop *e) {
    llm_result r = llm__check_number("early_stop.window_size", e->window_size, 0, INT32_MAX, "above 0");
    return r ? r : llm__check_number("early_stop.threshold", (double)e->threshold, 0, 1, "in [0, 1]");
}

static llm_result llm__check_sampling(const llm_sampling *s, int32_t vocab) {
    int32_t most = s->max_tokens ? s->max_tokens : 256, n = s->n ? s->n : 1;
    llm_result r = llm__check_number("max_tokens", s->max_tokens, -1, INT32_MAX, "at least 1, 0 for 256, or -1 for no limit");
    if (!r) r = llm__check_number("min_tokens", s->min_tokens, 0, most > 0 ? most : INT32_MAX, "at least 0 and at most max_tokens");
    if (!r) r = llm__check_number("temperature", (double)s->temperature, 0, 2, "in [0, 2]");
    if (!r) r = llm__check_number("top_p", (double)s->top_p, 0, 1, "in [0, 1]");
    if (!r) r = llm__check_number("min_p", (double)s->min_p, 0, 1, "in [0, 1]");
    if (!r) r = llm__check_number("top_k", s->top_k, -1, INT32_MAX, "-1 or 0 (off), or at least 1");
    if (!r) r = llm__check_number("repetition_penalty", (double)s->repetition_penalty, 0, 2, "in (0, 2]");
    if (!r) r = llm__check_number("presence_penalty", (double)s->presence_penalty, -2, 2, "in [-2, 2]");
    if (!r) r = llm__check_number("frequency_penalty", (double)s->frequency_penalty, -2, 2, "in [-2, 2]");
    if (!r) r = llm__check_number("n", s->n, 0, LLM__CHOICES_MAX, "at least 1 and at most 128");
    if (!r && s->best_of) r = llm__check_number("best_of", s->best_of, n, LLM__CHOICES_MAX, "at least n and at most 128");
    if (!r) r = llm__check_number("logprobs", s->logprobs, 0, vocab > 0 ? vocab + 1 : INT32_MAX, "at least 0 and at most the vocabulary");
    if (!r) r = llm__check_number("prompt_logprobs", s->prompt_logprobs, 0, vocab > 0 ? vocab + 1 : INT32_MAX, "at least 0 and at most the vocabulary");
    if (!r) r = llm__check_strings("stop", s->stop, s->n_stop);
    if (!r) r = llm__check_strings("bad_words", s->bad_words, s->n_bad_words);
    if (!r) r = llm__check_ids(s, vocab);
    return r ? r : llm__check_early_stop(&s->early_stop);
}

LLM_API llm_result llm_sampling_check(const llm_model *model, const llm_sampling *s) {
    return llm__check_sampling(s, model ? llm_model_get_info(model)->vocab_size : 0);
}

/* Zero means off for these; one form of off makes the rest simple. */
static void llm__sampling_resolve(llm_sampling *s) {
    if (s->repetition_penalty <= 0) s->repetition_penalty = 1;
    if (s->top_k < 0) s->top_k = 0;
    if (s->n <= 0) s->n = 1;
    if (s->best_of < s->n) s->best_of = s->n;
    if (!s->max_tokens) s->max_tokens = 256;
}

/* One value of generation_config.json, if it is there and lies in its range. */
static void llm__config_number(const llm_json *config, const char *name, double low, double high, float *out) {
    double v;
    if (llm_json_num(config, llm_json_find(config, 0, name), &v) && v >= low && v <= high) *out = (float)v;
}

LLM_API void llm_sampling_default(const llm_model *model, llm_sampling *s) {
    memset(s, 0, sizeof *s);
    s->temperature = s->top_p = s->repetition_penalty = 1;
    s->n = 1;
    const llm_json *config = model ? model->source.generation_config : NULL;
    if (!config) return;
    float top_k = 0, most = 0;
    llm__config_number(config, "temperature", 0, 2, &s->temperature);
    llm__config_number(config, "top_p", 0, 1, &s->top_p);
    llm__config_number(config, "min_p", 0, 1, &s->min_p);
    llm__config_number(config, "repetition_penalty", 0.01, 2, &s->repetition_penalty);
    llm__config_number(config, "top_k", 0, 1 << 20, &top_k);
    llm__config_number(config, "max_new_tokens", 1, 1 << 20, &most);
    s->top_k = (int32_t)top_k;
    s->max_tokens = (int32_t)most;
}

/* ============================================================================
 * >>earlystop   Ends an answer that only repeats.
 * ============================================================================
 * A model caught in a loop is sure of itself: every token of the loop gets a probability near 1. So FastDeploy's rule needs no look at the text: an
 * answer ends when the probability of the sampled token was strictly above a threshold for `window_size` tokens in a row. One counter a
 * sequence says the same as a window of values. The counter belongs to the sequence: it starts at 0 with the answer, survives preemption (a
 * recomputed token is not sampled again) and is never seen by the next one. The token that completes the window is replaced by EOS. At temperature 0 the probability is that of
 * temperature 1, or every greedy answer would end after exactly one window. */

static llm_early_stop llm__early_resolve(const llm_early_stop *own, const llm_early_stop *engine) {
    llm_early_stop e = own->enable ? *own : *engine;
    if (!e.window_size) {
        e.window_size = 3000;
        e.threshold = 0.99f;
    }
    return e;
}

/* 1 when this token's probability completes the window. */
static int llm__early_hit(const llm_early_stop *e, int32_t *count, float prob) {
    if (!e->enable) return 0;
    *count = prob > e->threshold ? *count + 1 : 0;
    if (*count < e->window_size) return 0;
    *count = 0;
    return 1;
}

/* ============================================================================
 * >>kv   Who owns which page of the KV cache, and what may be used again.
 * ============================================================================
 * The cache is n pages of a fixed number of tokens; a sequence has a table of pages. This manager never touches the
 * keys and values themselves, it only counts. A page is in one of three states:
 *   used    ref > 0: in the tables of `ref` sequences. With ref > 1 it is full and nobody writes it.
 *   cached  ref = 0, but its content is known by its key: a later prompt that begins in the same way takes it as it is.
 *   free    ref = 0, no key.
 * The key of a full page is a hash of (key of the page before, its tokens), the first one's parent is a hash of the salt, all keyed by a secret drawn
 * at open: 128 bits, and a hit compares the tokens too, so a collision costs a miss and never gives a wrong page. A page found is pinned in the
 * look-up. Cached pages stand in a list in the order they were let go; a sequence lets go of its last page first, so tails are evicted
 * before the beginnings that more prompts share. Every operation takes constant time and no memory. */

typedef struct llm__kv_key {
    uint64_t a, b;
} llm__kv_key;

typedef struct llm__kv {
    int32_t n_pages, page_tokens;
    int32_t n_free, n_cached;
    int32_t no_cache;        /* prefix caching is off */
    int32_t first_free;      /* stack through next */
    int32_t oldest, newest;  /* of the cached, list through prev and next */
    int32_t *ref, *prev, *next; /* (n_pages) */
    llm__kv_key *key;        /* (n_pages) */
    uint8_t *known;          /* (n_pages) stands in the index */
    int32_t *tokens;         /* (n_pages, page_tokens) of known pages */
    int32_t *bucket, *chain; /* (mask + 1) first page, (n_pages) next page of the same bucket; -1 ends */
    uint32_t mask;
    uint64_t secret[2];
    uint64_t released;       /* counts pages that became available: who waits for pages looks here */
} llm__kv;

/* Secret bytes that differ each time. */
static void llm__random_bytes(void *out, size_t n) {
    if (!getentropy(out, n)) return;
    uint64_t x = (uint64_t)(llm__wall_clock() * 1e6) ^ (uint64_t)(uintptr_t)out; /* a system without a source: still different */
    for (size_t i = 0; i < n; i++) ((uint8_t *)out)[i] = (uint8_t)llm__mix(x + i);
}

static void llm__kv_close(llm__kv *kv) {
    LLM_FREE(kv->ref);
    LLM_FREE(kv->prev);
    LLM_FREE(kv->next);
    LLM_FREE(kv->key);
    LLM_FREE(kv->known);
    LLM_FREE(kv->tokens);
    LLM_FREE(kv->bucket);
    LLM_FREE(kv->chain);
    memset(kv, 0, sizeof *kv);
}

/* Every page is free and nothing is known. */
static void llm__kv_reset(llm__kv *kv) {
    kv->n_free = kv->n_pages;
    kv->n_cached = 0;
    kv->first_free = kv->n_pages ? 0 : -1;
    kv->oldest = kv->newest = -1;
    for (int32_t i = 0; i < kv->n_pages; i++) {
        kv->ref[i] = kv->known[i] = 0;
        kv->next[i] = i + 1 < kv->n_pages ? i + 1 : -1;
    }
    for (uint32_t i = 0; i <= kv->mask; i++) kv->bucket[i] = -1;
}

static llm_result llm__kv_open(llm__kv *kv, int32_t n_pages, int32_t page_tokens, int no_cache) {
    memset(kv, 0, sizeof *kv);
    kv->n_pages = n_pages;
    kv->page_tokens = page_tokens;
    kv->no_cache = no_cache;
    for (kv->mask = 15; kv->mask < (uint32_t)n_pages; kv->mask = kv->mask * 2 + 1) {}
    kv->ref = LLM__NEW(int32_t, n_pages);
    kv->prev = LLM__NEW(int32_t, n_pages);
    kv->next = LLM__NEW(int32_t, n_pages);
    kv->key = LLM__NEW(llm__kv_key, n_pages);
    kv->known = LLM__NEW(uint8_t, n_pages);
    kv->tokens = LLM__NEW(int32_t, (size_t)n_pages * (size_t)page_tokens);
    kv->bucket = LLM__NEW(int32_t, kv->mask + 1);
    kv->chain = LLM__NEW(int32_t, n_pages);
    if (!kv->ref || !kv->prev || !kv->next || !kv->key || !kv->known || !kv->tokens || !kv->bucket || !kv->chain) {
        llm__kv_close(kv);
        return llm__nomem();
    }
    llm__random_bytes(kv->secret, sizeof kv->secret);
    llm__kv_reset(kv);
    return LLM_OK;
}

/* Pages that can be had now. */
static int32_t llm__kv_room(const llm__kv *kv) { return kv->n_free + kv->n_cached; }

/* The key of `n` bytes that follow what `parent` stands for. */
static llm__kv_key llm__kv_hash(const llm__kv *kv, llm__kv_key parent, const void *data, size_t n) {
    llm__kv_key k;
    k.a = llm__mix(llm__hash(data, n, kv->secret[0] ^ llm__mix(parent.a)) ^ parent.b);
    k.b = llm__mix(llm__hash(data, n, kv->secret[1] ^ llm__mix(parent.b + 1)) ^ parent.a);
    return k;
}

/* Where a prompt's chain of keys begins. */
static llm__kv_key llm__kv_root(const llm__kv *kv, const char *salt) {
    llm__kv_key none = {0, 0};
    return llm__kv_hash(kv, none, salt ? salt : "", salt ? strlen(salt) + 1 : 0);
}

static void llm__kv_unlink(llm__kv *kv, int32_t page) {
    int32_t before = kv->prev[page], after = kv->next[page];
    if (before >= 0) kv->next[before] = after;
    else kv->oldest = after;
    if (after >= 0) kv->prev[after] = before;
    else kv->newest = before;
    kv->n_cached--;
}

static void llm__kv_forget(llm__kv *kv, int32_t page) {
    int32_t *at = &kv->bucket[kv->key[page].a & kv->mask];
    while (*at != page) at = &kv->chain[*at];
    *at = kv->chain[page];
    kv->known[page] = 0;
}

/* One more owner of a page. */
static void llm__kv_hold(llm__kv *kv, int32_t page) {
    if (!kv->ref[page]++) llm__kv_unlink(kv, page);
}

/* One owner less. */
static void llm__kv_drop(llm__kv *kv, int32_t page) {
    if (--kv->ref[page]) return;
    kv->released++;
    if (kv->known[page]) {
        kv->prev[page] = kv->newest;
        kv->next[page] = -1;
        if (kv->newest >= 0) kv->next[kv->newest] = page;
        else kv->oldest = page;
        kv->newest = page;
        kv->n_cached++;
    } else {
        kv->next[page] = kv->first_free;
        kv->first_free = page;
        kv->n_free++;
    }
}

/* A page with one owner and no content, or -1 when every page is used. */
static int32_t llm__kv_get(llm__kv *kv) {
    int32_t page = kv->first_free;
    if (page >= 0) {
        kv->first_free = kv->next[page];
        kv->n_free--;
    } else {
        page = kv->oldest;
        if (page < 0) return -1;
        llm__kv_unlink(kv, page);
        llm__kv_forget(kv, page);
    }
    kv->ref[page] = 1;
    return page;
}

static int32_t llm__kv_lookup(const llm__kv *kv, llm__kv_key key, const int32_t *tokens) {
    int32_t page = kv->bucket[key.a & kv->mask];
    for (; page >= 0; page = kv->chain[page])
        if (kv->key[page].a == key.a && kv->key[page].b == key.b &&
            !memcmp(kv->tokens + (int64_t)page * kv->page_tokens, tokens, (size_t)kv->page_tokens * sizeof *tokens)) return page;
    return -1;
}

/* The page that holds these tokens after what came before, pinned; or -1. */
static int32_t llm__kv_find(llm__kv *kv, llm__kv_key key, const int32_t *tokens) {
    int32_t page = kv->no_cache ? -1 : llm__kv_lookup(kv, key, tokens);
    if (page >= 0) llm__kv_hold(kv, page);
    return page;
}

/* A used page is full and computed: from now on it can be found. Where an equal page is known already, that one stays. */
static void llm__kv_publish(llm__kv *kv, int32_t page, llm__kv_key key, const int32_t *tokens) {
    if (kv->no_cache || kv->known[page] || llm__kv_lookup(kv, key, tokens) >= 0) return;
    int32_t *bucket = &kv->bucket[key.a & kv->mask];
    memcpy(kv->tokens + (int64_t)page * kv->page_tokens, tokens, (size_t)kv->page_tokens * sizeof *tokens);
    kv->key[page] = key;
    kv->known[page] = 1;
    kv->chain[page] = *bucket;
    *bucket = page;
}

/* Cached pages become free: what was known of them is forgotten. */
static void llm__kv_flush(llm__kv *kv) {
    for (int32_t page; (page = kv->oldest) >= 0;) {
        llm__kv_unlink(kv, page);
        llm__kv_forget(kv, page);
        kv->ref[page] = 1;
        llm__kv_drop(kv, page);
    }
}

/* ============================================================================
 * >>scheduler   Who computes what in the next step.
 * ============================================================================
 * A request is one prompt with n sequences. All that a sequence is for the scheduler is a list of tokens of which the first n_computed have their keys and
 * values in pages. A step feeds k >= 1 of the rest: one for a sequence that decodes, a chunk for a prompt (or for what a preempted sequence
 * must compute again: it is the same thing). When the last token is fed, its logits give the next one. So there are no phases, only a budget of rows:
 *   1. sequences that decode, oldest first; 2. prompts that have begun; 3. new ones, while there is a place, pages and budget.
 * A new sequence takes the pages of all its tokens at once, so only decoding ever runs out of pages. Then the latest sequence gives up its
 * pages and waits again at its old place in the queue: its tokens stay, nothing that was sampled is lost. The first in order never
 * yields, so everything ends. Order is (priority, arrival, choice).
 * Of n > 1 sequences the first computes the prompt; then the others fork: they share its full pages and get a copy of the begun one. Those that find no place then
 * wait like anyone else (and find the prompt in the prefix cache).
 * Planning (llm__plan), computing (a call of the driver) and applying the results (llm__apply) are separate, all bookkeeping is arrays
 * and lists made when things are opened or submitted, and the driver is a small table, so a test can drive millions of steps without a model. */

typedef struct llm__driver { /* what computes */
    void *ctx;
    llm_result (*forward)(void *ctx, const llm_step *step);
    const float *(*logits_row)(void *ctx, int out_row); /* (vocab) */
    llm_result (*kv_copy)(void *ctx, const int32_t *from, const int32_t *to, int n);
    void (*parallel)(void *ctx, void (*fn)(void *arg, int i), void *arg, int n);
    void (*rope_of)(void *ctx, int32_t prompt_len, int32_t *variant, float *base);
    double (*now)(void *ctx); /* seconds, monotonic */
} llm__driver;

typedef struct llm__stop { /* a stop string as an automaton (Knuth, Morris, Pratt) */
    const char *text;
    int32_t len;
    int32_t *border; /* (len) longest proper prefix of text[0..i] that ends there */
} llm__stop;

typedef enum llm__seq_state { LLM__SEQ_HELD = 0, LLM__SEQ_WAITING, LLM__SEQ_RUNNING, LLM__SEQ_DONE } llm__seq_state;

typedef struct llm__seq {
    llm_request *request;
    struct llm__seq *prev, *next; /* waiting list */
    llm__seq_state state;         /* HELD: its prompt is being computed by the request's first */
    int32_t index;
    int32_t *ids;                 /* (n_prompt + max_new) prompt, then output */
    int32_t n_prompt, n_ids, max_new;
    int32_t n_computed;           /* tokens whose keys and values are in pages */
    int32_t n_chunk;              /* rows in the step being planned */
    int32_t n_scored;             /* prompt tokens 1 .. n_scored have their log-probability */
    int32_t *pages, n_pages;
    int32_t n_published;          /* pages known to the prefix cache */
    llm__kv_key key;              /* of the last of them */
    uint64_t blocked;             /* kv.released + 1 when it last found no pages */
    int32_t n_preempted;
    uint64_t seed;
    int32_t early_count;
    llm__history history;
    llm_detok *detok;
    llm_text text;
    size_t *shown;                /* (max_new) bytes of text that may be shown after each token */
    int32_t *stop_state;          /* (n_stop) */
    float *logprobs;              /* (max_new) or NULL */
    llm_token_logprob *top;       /* (max_new, top_stride) or NULL */
    int32_t *top_counts;          /* (max_new) */
    double cum_logprob;
    llm_finish finish;
    const char *stop_reason;
    int32_t stop_id;
    int32_t n_polled, end_polled;
    size_t text_polled;
    void *memory;
} llm__seq;

struct llm_request {
    llm_engine *engine;
    llm_request *prev, *next;     /* all that are not done */
    llm_request *news_next;
    llm_request *inbox_next;
    int in_news, fresh;           /* fresh: counts against max_queue */
    int refs, cancelled, freed;   /* atomic */
    llm_sampling s;               /* resolved; points into the arena */
    llm__arena arena;
    llm__stop *stop;              /* (s.n_stop) */
    int32_t *bad_ids, *bad_end, n_bad;
    int32_t priority, score_only;
    uint64_t arrival;
    double submitted, started, deadline; /* by the driver's clock; deadline 0: none */
    llm__kv_key root;
    int32_t rope;
    float rope_base;
    llm__seq *seq;                /* (n_seqs) */
    int32_t n_seqs, n_done;
    int32_t top_stride, prompt_stride;
    float *prompt_logprobs;       /* (n_prompt) or NULL */
    llm_token_logprob *prompt_top; /* (n_prompt, prompt_stride) */
    int32_t *prompt_counts;       /* (n_prompt) */
    llm_request_metrics metrics;
    char *id;
    char error[256];
    void (*on_news)(void *user, llm_request *request);
    void *user;
    pthread_mutex_t mutex;        /* outputs, against pollers */
    llm_text piece;               /* text of the event polled last */
};

typedef struct llm__entry { /* a sequence in the step */
    llm__seq *seq;
    int32_t out_row;             /* of its last row; -1: not wanted */
} llm__entry;

typedef struct llm__job { /* one row of logits to be used */
    llm__seq *seq;
    int32_t out_row;
    int32_t scored; /* the prompt position whose token is to be scored; -1: sample */
    llm__choice choice;
} llm__job;

struct llm_engine {
    const llm_model *model;      /* NULL: no text */
    llm__driver driver;
    const llm_backend *backend;
    llm_backend_ctx *ctx;
    llm__net *net;
    llm__logger log;
    char describe[160];
    int32_t vocab, max_len, max_seqs, max_rows, max_out, max_pages, max_queue, n_workers;
    int32_t *eos, n_eos, eos_id;
    llm_early_stop early_stop;
    llm__kv kv;
    llm__scratch *scratch;       /* (n_workers) */
    /* scheduling, all of the stepping thread */
    llm_request *live;           /* requests that are not done */
    llm_request *news;
    llm__seq *first_waiting, *last_waiting;
    llm__seq **running;          /* (max_seqs) in order */
    int32_t n_running, n_waiting;
    llm_engine_stats count;
    double next_deadline;        /* 0: none */
    llm__entry *plan;            /* (max_seqs) */
    int32_t n_plan, plan_rows, plan_out;
    llm__job *jobs;              /* (max_out + max_seqs) */
    int32_t n_jobs;
    int next_job;                /* atomic */
    int32_t *tokens, *positions, *seq_of_row; /* (max_rows) */
    int32_t *seq_begin, *seq_len, *seq_rope;  /* (max_seqs + 1) */
    float *seq_base;             /* (max_seqs) */
    int32_t *pages;              /* (max_seqs, max_pages) */
    int32_t *out_rows;           /* (max_out) */
    int32_t *raw_prompt;         /* (max_seqs) of llm_forward */
    /* shared with other threads, under mutex */
    pthread_mutex_t mutex;
    pthread_cond_t arrived;
    llm_request *inbox_first, *inbox_last;
    int32_t n_fresh;
    uint64_t n_arrived;
    int n_cancels;               /* atomic */
    int cancels_seen;
    llm_engine_stats stats;      /* a copy of count, made after each step */
    pthread_mutex_t news_mutex;  /* recursive: held while callbacks run */
};

/* ---- order and lists ---- */

/* 1 if a comes before b. */
static int llm__seq_before(const llm__seq *a, const llm__seq *b) {
    const llm_request *p = a->request, *q = b->request;
    if (p->priority != q->priority) return p->priority < q->priority;
    if (p->arrival != q->arrival) return p->arrival < q->arrival;
    return a->index < b->index;
}

/* Into the waiting list, from its end: the latest to arrive stands there. */
static void llm__queue_put(llm_engine *e, llm__seq *s) {
    llm__seq *before = e->last_waiting;
    while (before && llm__seq_before(s, before)) before = before->prev;
    s->state = LLM__SEQ_WAITING;
    s->prev = before;
    s->next = before ? before->next : e->first_waiting;
    if (s->prev) s->prev->next = s;
    else e->first_waiting = s;
    if (s->next) s->next->prev = s;
    else e->last_waiting = s;
    e->n_waiting++;
}

static void llm__queue_take(llm_engine *e, llm__seq *s) {
    if (s->prev) s->prev->next = s->next;
    else e->first_waiting = s->next;
    if (s->next) s->next->prev = s->prev;
    else e->last_waiting = s->prev;
    s->prev = s->next = NULL;
    e->n_waiting--;
}

static void llm__running_put(llm_engine *e, llm__seq *s) {
    int32_t at = e->n_running++;
    for (; at > 0 && llm__seq_before(s, e->running[at - 1]); at--) e->running[at] = e->running[at - 1];
    e->running[at] = s;
    s->state = LLM__SEQ_RUNNING;
}

static void llm__running_take(llm_engine *e, llm__seq *s) {
    int32_t at = 0;
    while (e->running[at] != s) at++;
    for (e->n_running--; at < e->n_running; at++) e->running[at] = e->running[at + 1];
}

static void llm__note_news(llm_engine *e, llm_request *r) {
    if (r->in_news) return;
    r->in_news = 1;
    r->news_next = e->news;
    e->news = r;
}

/* ---- pages of a sequence ---- */

/* Lets go of all pages, the last first. */
static void llm__seq_release(llm_engine *e, llm__seq *s) {
    while (s->n_pages) llm__kv_drop(&e->kv, s->pages[--s->n_pages]);
    s->n_computed = s->n_published = 0;
    s->key = s->request->root;
}

/* Pages that became full and computed can be found from now on. */
static void llm__seq_publish(llm_engine *e, llm__seq *s) {
    int32_t size = e->kv.page_tokens;
    for (; (s->n_published + 1) * (int64_t)size <= s->n_computed; s->n_published++) {
        const int32_t *tokens = s->ids + (int64_t)s->n_published * size;
        s->key = llm__kv_hash(&e->kv, s->key, tokens, (size_t)size * sizeof *tokens);
        llm__kv_publish(&e->kv, s->pages[s->n_published], s->key, tokens);
    }
}

static int32_t llm__pages_of(const llm_engine *e, int32_t n_tokens) { return (int32_t)(((int64_t)n_tokens + e->kv.page_tokens - 1) / e->kv.page_tokens); }

/* Pages for all tokens of a waiting sequence, known ones first: at least one token is left to compute. 0: not enough now.
 * One page for each sequence that runs stays free, so that a newcomer is not sent away by the next few tokens of the others. */
static int llm__seq_place(llm_engine *e, llm__seq *s) {
    llm__kv *kv = &e->kv;
    int32_t need = llm__pages_of(e, s->n_ids), known = (s->n_ids - 1) / kv->page_tokens;
    if (s->blocked == kv->released + 1) return 0;
    if (s->request->prompt_logprobs && s->n_scored < s->n_prompt - 1) known = 0; /* its rows must be computed */
    while (s->n_pages < known) {
        const int32_t *tokens = s->ids + (int64_t)s->n_pages * kv->page_tokens;
        llm__kv_key key = llm__kv_hash(kv, s->key, tokens, (size_t)kv->page_tokens * sizeof *tokens);
        int32_t page = llm__kv_find(kv, key, tokens);
        if (page < 0) break;
        s->pages[s->n_pages++] = page;
        s->key = key;
    }
    if (llm__kv_room(kv) < need - s->n_pages + e->n_running) {
        llm__seq_release(e, s);
        s->blocked = kv->released + 1;
        return 0;
    }
    s->n_published = s->n_pages;
    s->n_computed = s->n_pages * kv->page_tokens;
    while (s->n_pages < need) s->pages[s->n_pages++] = llm__kv_get(kv);
    return 1;
}

/* Back to the queue; its tokens stay. */
static void llm__preempt(llm_engine *e, llm__seq *s) {
    llm__running_take(e, s);
    llm__seq_release(e, s);
    llm__queue_put(e, s);
    s->n_preempted++;
    s->request->metrics.n_preemptions++;
    e->count.preemptions++;
}

static int llm__frees_a_page(const llm_engine *e, const llm__seq *s) {
    for (int32_t i = s->n_pages - 1; i >= 0; i--)
        if (e->kv.ref[s->pages[i]] == 1) return 1;
    return 0;
}

/* Who gives way to running[at]: the latest after it that would free a page, rather one that did not give way three times already; else itself. */
static llm__seq *llm__victim(const llm_engine *e, int32_t at) {
    llm__seq *found = NULL;
    for (int32_t i = e->n_running - 1; i > at; i--) {
        if (!llm__frees_a_page(e, e->running[i])) continue;
        if (e->running[i]->n_preempted < 3) return e->running[i];
        if (!found) found = e->running[i];
    }
    return found ? found : e->running[at];
}

/* A page for the next token of running[at]. 0: it had to give way itself. */
static int llm__grow_pages(llm_engine *e, int32_t at) {
    llm__seq *s = e->running[at];
    while (s->n_pages < llm__pages_of(e, s->n_ids)) {
        int32_t page = llm__kv_get(&e->kv);
        if (page >= 0) {
            s->pages[s->n_pages++] = page;
            continue;
        }
        llm__seq *victim = llm__victim(e, at);
        llm__preempt(e, victim);
        if (victim == s) return 0;
    }
    return 1;
}

/* ---- planning ---- */

/* Rows of logits that the next n rows of a sequence ask for: one for each prompt token to be scored, one for the next token. */
static int32_t llm__rows_out(const llm__seq *s, int32_t n) {
    int32_t end = s->n_computed + n, last = end == s->n_ids && !s->request->score_only, scored = 0;
    if (s->request->prompt_logprobs) scored = LLM__MIN(end, s->n_prompt - 1) - LLM__MAX(s->n_computed, s->n_scored);
    return LLM__MAX(scored, 0) + last;
}

/* Adds as many of its rows as budget and output rows allow. */
static void llm__plan_rows(llm_engine *e, llm__seq *s) {
    int32_t n = LLM__MIN(s->n_ids - s->n_computed, e->max_rows - e->plan_rows), over;
    while (n > 0 && (over = llm__rows_out(s, n) - (e->max_out - e->plan_out)) > 0) n -= over;
    if (n <= 0) return;
    e->plan[e->n_plan++].seq = s;
    e->plan_rows += n;
    e->plan_out += llm__rows_out(s, n);
    s->n_chunk = n;
}

static void llm__start_request(llm_engine *e, llm__seq *s) {
    llm_request *r = s->request;
    if (!r->fresh) return;
    r->fresh = 0;
    r->started = e->driver.now(e->driver.ctx);
    pthread_mutex_lock(&e->mutex);
    e->n_fresh--;
    pthread_mutex_unlock(&e->mutex);
    pthread_mutex_lock(&r->mutex);
    r->metrics.inference_start_time = r->metrics.arrival_time + (r->started - r->submitted);
    r->metrics.time_in_queue = r->started - r->submitted;
    r->metrics.n_cached_tokens = s->n_computed;
    pthread_mutex_unlock(&r->mutex);
    e->count.cached_tokens += s->n_computed;
}

/* Chooses the rows of the next step. */
static void llm__plan(llm_engine *e) {
    int64_t preempted = e->count.preemptions;
    e->n_plan = e->plan_rows = e->plan_out = 0;
    for (int32_t i = 0; i < e->n_running; i++) e->running[i]->n_chunk = 0;
    for (int32_t i = 0; i < e->n_running; i++) {
        llm__seq *s = e->running[i];
        if (s->n_ids == s->n_prompt || s->n_ids - s->n_computed != 1) continue;
        if (llm__grow_pages(e, i)) llm__plan_rows(e, s);
        else i--; /* the next one stands here now */
    }
    for (int32_t i = 0; i < e->n_running && e->plan_rows < e->max_rows; i++)
        if (!e->running[i]->n_chunk) llm__plan_rows(e, e->running[i]);
    while (e->first_waiting && e->n_running < e->max_seqs && e->plan_rows < e->max_rows && e->plan_out < e->max_out && preempted == e->count.preemptions) {
        llm__seq *s = e->first_waiting;
        if (!llm__seq_place(e, s)) break;
        llm__queue_take(e, s);
        llm__running_put(e, s);
        llm__start_request(e, s);
        llm__plan_rows(e, s);
    }
}

static void llm__add_job(llm_engine *e, llm__seq *s, int32_t out_row, int32_t scored) {
    llm__job *job = &e->jobs[e->n_jobs++];
    memset(job, 0, sizeof *job);
    job->seq = s;
    job->out_row = out_row;
    job->scored = scored;
}

/* The rows of entry i, in the step's arrays from row `row` on. Returns the next row. */
static int32_t llm__fill_entry(llm_engine *e, int32_t i, int32_t row, int32_t *n_out) {
    llm__entry *p = &e->plan[i];
    llm__seq *s = p->seq;
    int32_t end = s->n_computed + s->n_chunk;
    e->seq_begin[i] = row;
    e->seq_len[i] = end;
    e->seq_rope[i] = s->request->rope;
    e->seq_base[i] = s->request->rope_base;
    memcpy(e->pages + (int64_t)i * e->max_pages, s->pages, (size_t)llm__pages_of(e, end) * sizeof *s->pages);
    p->out_row = -1;
    for (int32_t at = s->n_computed; at < end; at++, row++) {
        e->tokens[row] = s->ids[at];
        e->positions[row] = at;
        e->seq_of_row[row] = i;
        int score = s->request->prompt_logprobs && at >= s->n_scored && at < s->n_prompt - 1;
        int last = at + 1 == s->n_ids && !s->request->score_only;
        if (!score && !last) continue;
        llm__add_job(e, s, *n_out, score ? at + 1 : -1);
        if (last) p->out_row = *n_out;
        e->out_rows[(*n_out)++] = row;
    }
    return row;
}

/* Writes the plan as a step descriptor. */
static void llm__fill_step(llm_engine *e, llm_step *step) {
    int32_t row = 0, n_out = 0;
    memset(step, 0, sizeof *step);
    e->n_jobs = 0;
    for (int32_t i = 0; i < e->n_plan; i++) row = llm__fill_entry(e, i, row, &n_out);
    e->seq_begin[e->n_plan] = row;
    step->shape.n_rows = row;
    step->shape.n_seqs = e->n_plan;
    step->shape.n_out = n_out;
    step->tokens = e->tokens;
    step->positions = e->positions;
    step->n_position_rows = 1;
    step->seq_of_row = e->seq_of_row;
    step->seq_begin = e->seq_begin;
    step->seq_len = e->seq_len;
    step->seq_rope = e->seq_rope;
    step->seq_rope_base = e->seq_base;
    step->pages = e->pages;
    step->page_stride = e->max_pages;
    step->out_rows = e->out_rows;
}

/* ---- ends ---- */

static void llm__seq_finish(llm_engine *e, llm__seq *s, llm_finish finish) {
    llm_request *r = s->request;
    if (s->state == LLM__SEQ_DONE) return;
    if (s->state == LLM__SEQ_RUNNING) llm__running_take(e, s);
    if (s->state == LLM__SEQ_WAITING) llm__queue_take(e, s);
    llm__seq_release(e, s);
    pthread_mutex_lock(&r->mutex);
    s->state = LLM__SEQ_DONE;
    s->finish = finish;
    if (++r->n_done == r->n_seqs) r->metrics.finish_time = r->metrics.arrival_time + (e->driver.now(e->driver.ctx) - r->submitted);
    pthread_mutex_unlock(&r->mutex);
    llm__note_news(e, r);
}

/* Ends every sequence of a request that has not ended. */
static void llm__request_end(llm_engine *e, llm_request *r, llm_finish finish, const char *error) {
    if (error) snprintf(r->error, sizeof r->error, "%.250s", error);
    for (int32_t i = 0; i < r->n_seqs; i++) llm__seq_finish(e, &r->seq[i], finish);
}

static void llm__request_destroy(llm_request *r);

static void llm__request_unref(llm_request *r) {
    if (!__atomic_sub_fetch(&r->refs, 1, __ATOMIC_ACQ_REL)) llm__request_destroy(r);
}

/* Tells callers; requests that are done leave the engine. */
static void llm__tell_news(llm_engine *e) {
    while (e->news) {
        llm_request *r = e->news;
        e->news = r->news_next;
        r->in_news = 0;
        pthread_mutex_lock(&e->news_mutex);
        if (r->on_news && !__atomic_load_n(&r->freed, __ATOMIC_ACQUIRE)) r->on_news(r->user, r);
        pthread_mutex_unlock(&e->news_mutex);
        if (r->n_done < r->n_seqs) continue;
        if (r->prev) r->prev->next = r->next;
        else e->live = r->next;
        if (r->next) r->next->prev = r->prev;
        if (r->fresh) {
            pthread_mutex_lock(&e->mutex);
            e->n_fresh--;
            pthread_mutex_unlock(&e->mutex);
        }
        llm__request_unref(r);
    }
}

/* Takes in what was submitted. */
static void llm__take_inbox(llm_engine *e) {
    pthread_mutex_lock(&e->mutex);
    llm_request *r = e->inbox_first;
    e->inbox_first = e->inbox_last = NULL;
    pthread_mutex_unlock(&e->mutex);
    for (llm_request *next; r; r = next) {
        next = r->inbox_next;
        r->prev = NULL;
        r->next = e->live;
        if (e->live) e->live->prev = r;
        e->live = r;
        if (r->deadline > 0 && (e->next_deadline <= 0 || r->deadline < e->next_deadline)) e->next_deadline = r->deadline;
        llm__queue_put(e, &r->seq[0]);
    }
}

/* Ends what was cancelled or is late. Looks only when there is a reason. */
static void llm__sweep(llm_engine *e) {
    int cancels = __atomic_load_n(&e->n_cancels, __ATOMIC_ACQUIRE);
    double now = e->next_deadline > 0 ? e->driver.now(e->driver.ctx) : 0;
    if (cancels == e->cancels_seen && (e->next_deadline <= 0 || now < e->next_deadline)) return;
    e->cancels_seen = cancels;
    e->next_deadline = 0;
    for (llm_request *r = e->live; r; r = r->next) {
        int late = r->deadline > 0 && now >= r->deadline;
        if (late || __atomic_load_n(&r->cancelled, __ATOMIC_ACQUIRE)) llm__request_end(e, r, LLM_FINISH_CANCELLED, NULL);
        else if (r->deadline > 0 && (e->next_deadline <= 0 || r->deadline < e->next_deadline)) e->next_deadline = r->deadline;
    }
}

/* ---- results ---- */

static int llm__has_id(const int32_t *ids, int32_t n, int32_t id) {
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id) return 1;
    return 0;
}

/* Length of the longest prefix of the stop string that ends at the character c. */
static int32_t llm__stop_feed(const llm__stop *p, int32_t state, char c) {
    while (state > 0 && (state == p->len || p->text[state] != c)) state = p->border[state - 1];
    return p->text[state] == c ? state + 1 : 0;
}

/* Looks for stop strings in the text from `from` on, in the order of the list; the first found cuts the text. Returns which, or -1. */
static int32_t llm__find_stop(llm__seq *s, size_t from, int allowed) {
    const llm_request *r = s->request;
    for (int32_t i = 0; i < r->s.n_stop; i++)
        for (size_t at = from; at < s->text.len; at++) {
            s->stop_state[i] = llm__stop_feed(&r->stop[i], s->stop_state[i], s->text.data[at]);
            if (s->stop_state[i] < r->stop[i].len || !allowed) continue;
            s->text.len = at + 1 - (r->s.include_stop_str_in_output ? 0 : (size_t)r->stop[i].len);
            s->text.data[s->text.len] = 0;
            return i;
        }
    return -1;
}

/* Bytes of the text that can be shown: not what may yet become a stop string, and no half code point. */
static size_t llm__showable(const llm__seq *s) {
    const llm_request *r = s->request;
    int32_t held = 0;
    if (s->finish) return s->text.len;
    for (int32_t i = 0; i < r->s.n_stop && !r->s.include_stop_str_in_output; i++) {
        int32_t state = s->stop_state[i];
        if (state == r->stop[i].len) state = r->stop[i].border[state - 1]; /* found, but min_tokens forbade it */
        held = LLM__MAX(held, state);
    }
    size_t n = s->text.len - (size_t)held;
    while (held && n > 0 && ((uint8_t)s->text.data[n] & 0xC0) == 0x80) n--;
    return n;
}

/* Adds a token to the text and decides whether the answer ends: EOS, stop ids, stop strings, length, in this order. */
static llm_finish llm__seq_append(llm_engine *e, llm__seq *s, int32_t id, int early) {
    llm_request *r = s->request;
    int32_t n = s->n_ids - s->n_prompt; /* output tokens, this one included */
    int allowed = n >= r->s.min_tokens, full = n >= s->max_new;
    int eos = early || (allowed && !r->s.ignore_eos && llm__has_id(e->eos, e->n_eos, id));
    int stop = !eos && allowed && llm__has_id(r->s.stop_token_ids, r->s.n_stop_token_ids, id);
    size_t from = s->text.len;
    if (s->detok && (!(eos || stop) || (r->s.include_stop_str_in_output && !early))) llm_detok_push(s->detok, id, &s->text);
    int32_t found = llm__find_stop(s, from, allowed && !eos && !stop);
    if (stop) s->stop_id = id;
    if (early && !full) s->stop_reason = "repetition";
    if (found >= 0) s->stop_reason = r->s.stop[found];
    if (found < 0 && s->detok && (eos || stop || full)) llm_detok_flush(s->detok, &s->text);
    if (early && full) return LLM_FINISH_LENGTH;
    if (eos || stop || found >= 0) return LLM_FINISH_STOP;
    return full ? LLM_FINISH_LENGTH : LLM_FINISH_NONE;
}

/* A sampled token joins its sequence. */
static void llm__seq_accept(llm_engine *e, const llm__job *job) {
    llm__seq *s = job->seq;
    llm_request *r = s->request;
    llm__choice c = job->choice;
    int32_t n = s->n_ids - s->n_prompt;
    int natural = n + 1 >= r->s.min_tokens &&
                  ((!r->s.ignore_eos && llm__has_id(e->eos, e->n_eos, c.id)) || llm__has_id(r->s.stop_token_ids, r->s.n_stop_token_ids, c.id));
    int early = llm__early_hit(&r->s.early_stop, &s->early_count, c.prob) && !natural;
    if (early && e->eos_id >= 0 && e->eos_id < e->vocab) {
        c.id = e->eos_id;
        c.logprob = (float)((double)e->driver.logits_row(e->driver.ctx, job->out_row)[c.id] - c.log_sum);
    }
    pthread_mutex_lock(&r->mutex);
    double now = e->driver.now(e->driver.ctx);
    s->ids[s->n_ids] = c.id;
    if (s->logprobs) s->logprobs[n] = c.logprob;
    s->cum_logprob += (double)c.logprob;
    s->n_ids++;
    llm_finish finish = llm__seq_append(e, s, c.id, early);
    s->finish = finish;
    s->shown[n] = llm__showable(s);
    r->metrics.model_forward_time = now - r->started;
    r->metrics.model_execute_time = now - r->submitted;
    if (r->metrics.first_token_time <= 0) r->metrics.first_token_time = r->metrics.arrival_time + (now - r->submitted);
    pthread_mutex_unlock(&r->mutex);
    llm__history_add(&s->history, c.id, 1);
    e->count.generation_tokens++;
    if (finish) llm__seq_finish(e, s, finish);
    llm__note_news(e, r);
}

/* One row of logits: a token sampled or a prompt token scored. Runs on any thread; writes to its job and rows of its own only. */
static void llm__run_job(llm_engine *e, llm__job *job, llm__scratch *k) {
    llm__seq *s = job->seq;
    llm_request *r = s->request;
    const float *row = e->driver.logits_row(e->driver.ctx, job->out_row);
    int32_t n = s->n_ids - s->n_prompt;
    if (job->scored >= 0) {
        int bad;
        float max = llm__row_max(row, e->vocab, &bad);
        double log_sum = bad ? 0 : (double)max + log(llm__exp_row(row, k->w, e->vocab, max, 1.0f));
        job->choice.id = bad ? -1 : s->ids[job->scored];
        if (bad) return;
        r->prompt_logprobs[job->scored] = (float)((double)row[s->ids[job->scored]] - log_sum);
        r->prompt_counts[job->scored] =
            llm__top_logprobs(row, e->vocab, r->prompt_stride, log_sum, r->prompt_top + (int64_t)job->scored * r->prompt_stride);
        return;
    }
    llm__rules rules;
    memset(&rules, 0, sizeof rules);
    rules.s = &r->s;
    rules.eos = e->eos;
    rules.n_eos = e->n_eos;
    rules.bad_ids = r->bad_ids;
    rules.bad_end = r->bad_end;
    rules.n_bad = r->n_bad;
    rules.history = &s->history;
    rules.output = s->ids + s->n_prompt;
    rules.n_output = n;
    job->choice = llm__choose(row, e->vocab, &rules, s->seed, n, k);
    if (job->choice.id >= 0 && s->top) s->top_counts[n] = llm__top_logprobs(row, e->vocab, r->top_stride, job->choice.log_sum, s->top + (int64_t)n * r->top_stride);
}

static void llm__run_jobs(void *arg, int worker) {
    llm_engine *e = (llm_engine *)arg;
    for (int i; (i = __atomic_fetch_add(&e->next_job, 1, __ATOMIC_RELAXED)) < e->n_jobs;) llm__run_job(e, &e->jobs[i], &e->scratch[worker]);
}

/* Gives a held sequence the computed prompt of the first: full pages shared, the begun one copied. 0: no page for it. */
static int llm__fork_one(llm_engine *e, const llm__seq *first, llm__seq *s) {
    int32_t full = first->n_prompt / e->kv.page_tokens, copy = -1;
    if (e->n_running >= e->max_seqs) return 0;
    if (first->n_prompt % e->kv.page_tokens) {
        copy = llm__kv_get(&e->kv);
        if (copy < 0) return 0;
        if (e->driver.kv_copy(e->driver.ctx, &first->pages[full], &copy, 1)) {
            llm__kv_drop(&e->kv, copy);
            return 0;
        }
    }
    for (s->n_pages = 0; s->n_pages < full; s->n_pages++) {
        s->pages[s->n_pages] = first->pages[s->n_pages];
        llm__kv_hold(&e->kv, s->pages[s->n_pages]);
    }
    if (copy >= 0) s->pages[s->n_pages++] = copy;
    s->n_computed = first->n_computed;
    s->n_published = first->n_published;
    s->key = first->key;
    llm__running_put(e, s);
    return 1;
}

/* The prompt is computed: the other choices go on from it, or wait. */
static void llm__fork(llm_engine *e, const llm__entry *p) {
    llm_request *r = p->seq->request;
    for (int32_t i = 1; i < r->n_seqs; i++) {
        if (r->seq[i].state != LLM__SEQ_HELD) continue;
        if (llm__fork_one(e, p->seq, &r->seq[i])) llm__add_job(e, &r->seq[i], p->out_row, -1);
        else llm__queue_put(e, &r->seq[i]);
    }
}

/* Results of the step: what was computed is booked, prompts fork, rows are sampled in parallel and accepted in order. */
static void llm__apply(llm_engine *e) {
    for (int32_t i = 0; i < e->n_plan; i++) {
        llm__seq *s = e->plan[i].seq;
        if (s->n_ids == s->n_prompt) e->count.prompt_tokens += s->n_chunk;
        s->n_computed += s->n_chunk;
        llm__seq_publish(e, s);
        if (s->index == 0 && s->n_ids == s->n_prompt && s->n_computed == s->n_prompt && s->request->n_seqs > 1) llm__fork(e, &e->plan[i]);
    }
    e->next_job = 0;
    e->driver.parallel(e->driver.ctx, llm__run_jobs, e, LLM__MIN(e->n_workers, LLM__MAX(e->n_jobs, 1)));
    for (int32_t i = 0; i < e->n_jobs; i++) {
        llm__job *job = &e->jobs[i];
        llm__seq *s = job->seq;
        if (s->state == LLM__SEQ_DONE) continue; /* failed in an earlier row */
        if (job->choice.id < 0) llm__request_end(e, s->request, LLM_FINISH_ERROR, "the model's logits are not finite");
        else if (job->scored >= 0) s->n_scored = job->scored;
        else llm__seq_accept(e, job);
    }
    for (int32_t i = 0; i < e->n_plan; i++) {
        llm__seq *s = e->plan[i].seq;
        if (s->request->score_only && s->state == LLM__SEQ_RUNNING && s->n_computed == s->n_ids) llm__seq_finish(e, s, LLM_FINISH_LENGTH);
    }
}

/* ============================================================================
 * >>engine   Threads, backend, model and scheduler together; requests from the outside.
 * ============================================================================
 * llm__engine_new makes a scheduler over any driver; llm_engine_open opens backend and weights and gives it the driver that runs them.
 * One thread steps. Others submit (into an inbox), cancel (a flag), free (a count of two owners: the caller and the engine) and poll (under the
 * request's lock). A request's memory is taken in llm_request_submit, in the caller's thread; what grows later is only text, which gets room for
 * sixteen bytes a token beforehand. So a step allocates nothing. */

typedef struct llm__engine_params {
    llm__driver driver;
    const llm_model *model;      /* NULL: requests give ids and get ids */
    const int32_t *eos;
    int32_t n_eos, eos_id;       /* what ends an answer; the one written where early stop ends it, -1: none */
    int32_t vocab, n_pages, page_tokens, max_len, max_seqs, max_rows, max_out, max_queue, n_workers, no_cache;
    llm_early_stop early_stop;
    llm__logger log;
} llm__engine_params;

/* Frees what llm__engine_new took. */
static void llm__engine_destroy(llm_engine *e) {
    for (int32_t i = 0; e->scratch && i < e->n_workers; i++) llm__scratch_close(&e->scratch[i]);
    llm__kv_close(&e->kv);
    LLM_FREE(e->eos);
    LLM_FREE(e->scratch);
    LLM_FREE(e->running);
    LLM_FREE(e->plan);
    LLM_FREE(e->jobs);
    LLM_FREE(e->tokens);
    LLM_FREE(e->positions);
    LLM_FREE(e->seq_of_row);
    LLM_FREE(e->seq_begin);
    LLM_FREE(e->seq_len);
    LLM_FREE(e->seq_rope);
    LLM_FREE(e->seq_base);
    LLM_FREE(e->pages);
    LLM_FREE(e->out_rows);
    LLM_FREE(e->raw_prompt);
    pthread_mutex_destroy(&e->mutex);
    pthread_mutex_destroy(&e->news_mutex);
    pthread_cond_destroy(&e->arrived);
    LLM_FREE(e);
}

/* The arrays of a step. 0: no memory. */
static int llm__engine_arrays(llm_engine *e, const llm__engine_params *p) {
    int ok = 1;
    e->eos = LLM__NEW(int32_t, p->n_eos);
    e->running = LLM__NEW(llm__seq *, e->max_seqs);
    e->plan = LLM__NEW(llm__entry, e->max_seqs);
    e->jobs = LLM__NEW(llm__job, (size_t)e->max_out + (size_t)e->max_seqs);
    e->tokens = LLM__NEW(int32_t, e->max_rows);
    e->positions = LLM__NEW(int32_t, e->max_rows);
    e->seq_of_row = LLM__NEW(int32_t, e->max_rows);
    e->seq_begin = LLM__NEW(int32_t, e->max_seqs + 1);
    e->seq_len = LLM__NEW(int32_t, e->max_seqs);
    e->seq_rope = LLM__NEW(int32_t, e->max_seqs);
    e->seq_base = LLM__NEW(float, e->max_seqs);
    e->pages = LLM__NEW(int32_t, llm__mul((uint64_t)e->max_seqs, (uint64_t)e->max_pages, &ok));
    e->out_rows = LLM__NEW(int32_t, e->max_out);
    e->raw_prompt = LLM__NEW(int32_t, e->max_seqs);
    e->scratch = LLM__NEW(llm__scratch, e->n_workers);
    for (int32_t i = 0; e->scratch && i < e->n_workers; i++) ok &= llm__scratch_open(&e->scratch[i], e->vocab);
    if (e->eos && p->n_eos) memcpy(e->eos, p->eos, (size_t)p->n_eos * sizeof *p->eos);
    return ok && e->eos && e->running && e->plan && e->jobs && e->tokens && e->positions && e->seq_of_row && e->seq_begin && e->seq_len && e->seq_rope &&
           e->seq_base && e->pages && e->out_rows && e->raw_prompt && e->scratch;
}

static void llm__engine_locks(llm_engine *e) {
    pthread_condattr_t clock;
    pthread_mutexattr_t recursive;
    pthread_mutex_init(&e->mutex, NULL);
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&e->news_mutex, &recursive);
    pthread_mutexattr_destroy(&recursive);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&e->arrived, &clock);
    pthread_condattr_destroy(&clock);
}

/* A scheduler over a driver: no model is needed. */
static llm_result llm__engine_new(const llm__engine_params *p, llm_engine **out) {
    llm_engine *e = LLM__NEW(llm_engine, 1);
    *out = NULL;
    if (!e) return llm__nomem();
    llm__engine_locks(e);
    e->driver = p->driver;
    e->model = p->model;
    e->log = p->log;
    e->n_eos = p->n_eos;
    e->vocab = p->vocab;
    e->max_len = p->max_len;
    e->max_seqs = p->max_seqs;
    e->max_rows = p->max_rows;
    e->max_out = p->max_out;
    e->max_queue = p->max_queue;
    e->n_workers = LLM__MAX(1, p->n_workers);
    e->early_stop = p->early_stop;
    e->max_pages = (int32_t)(((int64_t)p->max_len + p->page_tokens - 1) / p->page_tokens);
    if (!llm__engine_arrays(e, p) || llm__kv_open(&e->kv, p->n_pages, p->page_tokens, p->no_cache)) {
        llm__engine_destroy(e);
        return llm__nomem();
    }
    e->count.total_blocks = e->count.free_blocks = p->n_pages;
    e->count.block_size = p->page_tokens;
    e->count.max_model_len = p->max_len;
    e->count.max_num_seqs = p->max_seqs;
    e->count.backend = e->describe;
    e->eos_id = p->eos_id;
    e->stats = e->count;
    *out = e;
    return LLM_OK;
}

/* ---- the driver that runs a model ---- */

static llm_result llm__drive_forward(void *ctx, const llm_step *step) { return llm__net_step(((llm_engine *)ctx)->net, step); }

static const float *llm__drive_row(void *ctx, int out_row) {
    llm_engine *e = (llm_engine *)ctx;
    return e->backend->logits_row(e->ctx, out_row);
}

static llm_result llm__drive_copy(void *ctx, const int32_t *from, const int32_t *to, int n) {
    llm_engine *e = (llm_engine *)ctx;
    return e->backend->kv_copy(e->ctx, from, to, n);
}

static void llm__drive_parallel(void *ctx, void (*fn)(void *arg, int i), void *arg, int n) {
    llm_engine *e = (llm_engine *)ctx;
    if (e->backend->parallel && n > 1) e->backend->parallel(e->ctx, fn, arg, n);
    else
        for (int i = 0; i < n; i++) fn(arg, i);
}

static void llm__drive_rope(void *ctx, int32_t prompt_len, int32_t *variant, float *base) { llm__net_rope_of(((llm_engine *)ctx)->net, prompt_len, variant, base); }

static double llm__drive_now(void *ctx) {
    (void)ctx;
    return llm__now();
}

LLM_API llm_result llm_backend_load(const char *path, const llm_backend **out) {
    const llm_backend *(*get)(void);
    *out = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return llm__error(LLM_ERR_IO, "%s: %s", path, dlerror());
    void *symbol = dlsym(library, "llm_cuda_backend");
    if (!symbol) {
        dlclose(library);
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: no backend library, it has no function llm_cuda_backend", path);
    }
    memcpy(&get, &symbol, sizeof get); /* C has no cast from data to functions */
    const llm_backend *b = get();
    if (b && b->abi == LLM_BACKEND_ABI && b->struct_size == sizeof *b) {
        *out = b; /* stays loaded: its code runs as long as the process */
        return LLM_OK;
    }
    int abi = b ? (int)b->abi : 0, size = b ? (int)b->struct_size : 0;
    dlclose(library);
    return llm__error(LLM_ERR_UNSUPPORTED, "%s: backend interface %d of %d bytes, this program needs %d of %d: build both from the same source", path, abi, size,
                      LLM_BACKEND_ABI, (int)sizeof(llm_backend));
}

static llm_result llm__engine_backend(const llm_engine_config *cfg, const llm_backend **out) {
    const char *device = cfg->device ? cfg->device : "auto";
    *out = cfg->backend ? cfg->backend : llm_backend_cpu();
    if (strcmp(device, "auto") && strcmp(device, "cpu") && strcmp(device, "cuda")) return llm__error(LLM_ERR_ARG, "device: \"%s\", must be auto, cpu or cuda", device);
    if (!strcmp(device, "cpu")) *out = llm_backend_cpu();
    if (!strcmp(device, "cuda") && !cfg->backend) return llm_backend_load("libllm_cuda.so", out);
    if ((*out)->abi == LLM_BACKEND_ABI && (*out)->struct_size == sizeof(llm_backend)) return LLM_OK;
    return llm__error(LLM_ERR_UNSUPPORTED, "backend: interface %d of %d bytes, this library needs %d of %d", (int)(*out)->abi, (int)(*out)->struct_size, LLM_BACKEND_ABI,
                      (int)sizeof(llm_backend));
}

/* Zero means default; contradictions are refused. */
static llm_result llm__engine_resolve(const llm_model *model, llm_engine_config *c) {
    int32_t own = llm__model_max_len(model);
    if (c->max_model_len < 0) return llm__error(LLM_ERR_ARG, "max_model_len: %d, must be above 0", (int)c->max_model_len);
    if (c->max_model_len > own && own > 0 && !c->allow_long_max_model_len)
        return llm__error(LLM_ERR_ARG, "max_model_len: %d is more than the model's own %d tokens (allow_long_max_model_len lifts this)", (int)c->max_model_len, (int)own);
    if (c->max_num_seqs < 0 || c->max_num_seqs > 65536) return llm__error(LLM_ERR_ARG, "max_num_seqs: %d, must be 1 to 65536", (int)c->max_num_seqs);
    if (!c->max_num_seqs) c->max_num_seqs = 1;
    if (!c->max_num_batched_tokens) c->max_num_batched_tokens = LLM__MAX(512, c->max_num_seqs);
    if (c->max_num_batched_tokens < c->max_num_seqs || c->max_num_batched_tokens > 1 << 20)
        return llm__error(LLM_ERR_ARG, "max_num_batched_tokens (%d) must be greater than or equal to max_num_seqs (%d)", (int)c->max_num_batched_tokens, (int)c->max_num_seqs);
    if (!c->block_size) c->block_size = 32;
    if (c->block_size != 16 && c->block_size != 32 && c->block_size != 64 && c->block_size != 128)
        return llm__error(LLM_ERR_ARG, "block_size: %d, must be 16, 32, 64 or 128", (int)c->block_size);
    if (c->max_queue < 0 || c->kv_cache_memory_bytes < 0 || c->n_threads < 0 || c->n_threads > 4096 || c->tensor_parallel_size < 0)
        return llm__error(LLM_ERR_ARG, "engine: a count or size is negative or too large");
    if (!(c->gpu_memory_utilization >= 0 && c->gpu_memory_utilization <= 1)) return llm__error(LLM_ERR_ARG, "gpu_memory_utilization: must be in (0, 1]");
    if (!c->max_queue) c->max_queue = 1024;
    if (!c->tensor_parallel_size) c->tensor_parallel_size = 1;
    if (!c->n_threads) c->n_threads = llm__cores();
    if (c->gpu_memory_utilization <= 0) c->gpu_memory_utilization = 0.9f;
    return llm__check_early_stop(&c->early_stop);
}

/* How many pages: what all sequences need at most, or what the given memory holds. Without a given max_model_len a short memory shortens it. */
static llm_result llm__engine_pages(const llm__logger *log, int64_t page_bytes, llm_engine_config *c, int32_t *max_len, int64_t *n_pages) {
    int64_t each = ((int64_t)*max_len + c->block_size - 1) / c->block_size, most = each * c->max_num_seqs;
    int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    int64_t given = c->kv_cache_memory_bytes ? c->kv_cache_memory_bytes : memory > 0 ? memory / 2 : INT64_MAX;
    *n_pages = most;
    if (page_bytes > 0 && most > given / page_bytes) *n_pages = given / page_bytes;
    *n_pages = LLM__MIN(*n_pages, (int64_t)1 << 30);
    if (*n_pages >= each) return LLM_OK;
    int64_t fits = *n_pages * c->block_size;
    if (c->max_model_len || fits < 1)
        return llm__error(LLM_ERR_LIMIT, "max_model_len: %d tokens need %lld bytes of KV cache, %lld bytes hold %lld tokens", (int)*max_len, (long long)(each * page_bytes),
                          (long long)given, (long long)fits);
    *max_len = (int32_t)fits;
    llm__log(log, LLM_LOG_WARN, "max_model_len is %d tokens: that is what %lld bytes of KV cache hold", (int)*max_len, (long long)given);
    return LLM_OK;
}

/* Backend and weights. */
static llm_result llm__engine_net(llm_engine *e, const llm_model *model, const llm_engine_config *c, int32_t max_len, int32_t max_out) {
    llm_backend_config b;
    llm__net_config n;
    memset(&b, 0, sizeof b);
    memset(&n, 0, sizeof n);
    b.n_ranks = c->tensor_parallel_size;
    b.n_threads = c->n_threads;
    b.isa = c->isa;
    b.compute = c->dtype;
    b.kv_type = c->kv_cache_dtype;
    b.batch_invariant = c->batch_invariant;
    b.memory_utilization = (double)c->gpu_memory_utilization;
    b.max_rows = c->max_num_batched_tokens;
    b.max_out = max_out;
    b.max_seqs = c->max_num_seqs;
    b.max_pages_per_seq = (max_len + c->block_size - 1) / c->block_size;
    b.log = c->log;
    b.log_user = c->log_user;
    llm_result r = e->backend->open(&b, &e->ctx);
    if (r) return r;
    n.model = model;
    n.backend = e->backend;
    n.ctx = e->ctx;
    n.n_ranks = b.n_ranks;
    n.max_rows = b.max_rows;
    n.max_out = max_out;
    n.page_tokens = c->block_size;
    n.compute = c->dtype;
    n.progress = c->progress;
    n.progress_user = c->progress_user;
    return llm__net_open(&n, &e->net);
}

static void llm__engine_close_net(llm_engine *e) {
    if (e->net) llm__net_close(e->net);
    if (e->ctx) e->backend->close(e->ctx);
}

/* Opens everything into `from`, a holder of backend, context and net, and makes the scheduler over it. */
static llm_result llm__engine_assemble(llm_engine *from, const llm_model *model, llm_engine_config *c, llm_engine **out) {
    const llm_model_info *info = llm_model_get_info(model);
    const llm_kv_layer *layers;
    llm__engine_params p;
    int64_t n_pages;
    memset(&p, 0, sizeof p);
    p.max_len = c->max_model_len ? c->max_model_len : llm__model_max_len(model);
    p.max_out = c->max_num_seqs + 32; /* rows of prompts that are scored find place beside those that decode */
    p.log.fn = c->log;
    p.log.user = c->log_user;
    llm_result r = llm__engine_net(from, model, c, p.max_len, p.max_out);
    if (r) return r;
    int n_layers = llm__net_kv_layers(from->net, &layers);
    int64_t page_bytes = from->backend->kv_page_bytes(from->ctx, n_layers, layers, c->block_size) * c->tensor_parallel_size;
    r = llm__engine_pages(&p.log, page_bytes, c, &p.max_len, &n_pages);
    if (!r) r = from->backend->kv_open(from->ctx, n_layers, layers, c->block_size, n_pages);
    if (r) return r;
    p.driver.forward = llm__drive_forward;
    p.driver.logits_row = llm__drive_row;
    p.driver.kv_copy = llm__drive_copy;
    p.driver.parallel = llm__drive_parallel;
    p.driver.rope_of = llm__drive_rope;
    p.driver.now = llm__drive_now;
    p.model = model;
    p.eos = info->stop_ids;
    p.n_eos = info->n_stop_ids;
    p.eos_id = info->eos_id >= 0 || !info->n_stop_ids ? info->eos_id : info->stop_ids[0];
    p.vocab = llm__net_vocab(from->net);
    p.n_pages = (int32_t)n_pages;
    p.page_tokens = c->block_size;
    p.max_seqs = c->max_num_seqs;
    p.max_rows = c->max_num_batched_tokens;
    p.max_queue = c->max_queue;
    p.n_workers = c->n_threads;
    p.no_cache = c->disable_prefix_caching;
    p.early_stop = c->early_stop;
    r = llm__engine_new(&p, out);
    if (r) return r;
    (*out)->driver.ctx = *out;
    (*out)->backend = from->backend;
    (*out)->ctx = from->ctx;
    (*out)->net = from->net;
    (*out)->count.memory_bytes = from->backend->memory_used(from->ctx);
    snprintf((*out)->describe, sizeof(*out)->describe, "%s: %s", from->backend->name, from->backend->describe(from->ctx));
    (*out)->stats = (*out)->count;
    return LLM_OK;
}

LLM_API llm_result llm_engine_open(const llm_model *model, const llm_engine_config *cfg, llm_engine **out) {
    llm_engine_config c;
    llm_engine *from = LLM__NEW(llm_engine, 1);
    *out = NULL;
    memset(&c, 0, sizeof c);
    if (cfg) c = *cfg;
    llm_result r = from ? llm__engine_resolve(model, &c) : llm__nomem();
    if (!r) r = llm__engine_backend(&c, &from->backend);
    if (!r) r = llm__engine_assemble(from, model, &c, out);
    if (r && from) llm__engine_close_net(from);
    LLM_FREE(from);
    return r;
}

LLM_API void llm_engine_close(llm_engine *e) {
    if (!e) return;
    llm__take_inbox(e);
    for (llm_request *r = e->live; r; r = r->next) llm__request_end(e, r, LLM_FINISH_CANCELLED, NULL);
    llm__tell_news(e);
    llm__engine_close_net(e);
    llm__engine_destroy(e);
}

LLM_API void llm_engine_get_stats(const llm_engine *engine, llm_engine_stats *out) {
    llm_engine *e = (llm_engine *)(uintptr_t)engine; /* the lock is not part of what is const */
    pthread_mutex_lock(&e->mutex);
    *out = e->stats;
    pthread_mutex_unlock(&e->mutex);
}

/* ---- stepping ---- */

/* Computes the plan. A device that fails fails the requests of this step; the engine goes on. */
static llm_result llm__engine_compute(llm_engine *e) {
    llm_step step;
    char why[256];
    llm__fill_step(e, &step);
    double begin = e->driver.now(e->driver.ctx);
    llm_result r = e->driver.forward(e->driver.ctx, &step);
    e->count.model_seconds += e->driver.now(e->driver.ctx) - begin;
    e->count.steps++;
    if (!r) {
        llm__apply(e);
        return LLM_OK;
    }
    snprintf(why, sizeof why, "%.250s", llm_last_error());
    for (int32_t i = 0; i < e->n_plan; i++) llm__request_end(e, e->plan[i].seq->request, LLM_FINISH_ERROR, why);
    return r;
}

static void llm__engine_count(llm_engine *e) {
    e->count.n_running = e->n_running;
    e->count.free_blocks = e->kv.n_free;
    e->count.cached_blocks = e->kv.n_cached;
    pthread_mutex_lock(&e->mutex);
    e->count.n_waiting = e->n_waiting;
    for (const llm_request *r = e->inbox_first; r; r = r->inbox_next) e->count.n_waiting++;
    e->stats = e->count;
    pthread_mutex_unlock(&e->mutex);
}

LLM_API llm_result llm_engine_step(llm_engine *e, int *busy) {
    double begin = e->driver.now(e->driver.ctx);
    llm_result r = LLM_OK;
    llm__take_inbox(e);
    llm__sweep(e);
    llm__plan(e);
    if (e->n_plan) r = llm__engine_compute(e);
    llm__tell_news(e);
    e->count.step_seconds += e->driver.now(e->driver.ctx) - begin;
    llm__engine_count(e);
    if (busy) {
        pthread_mutex_lock(&e->mutex);
        *busy = e->live || e->inbox_first;
        pthread_mutex_unlock(&e->mutex);
    }
    return r;
}

LLM_API void llm_engine_wait(llm_engine *e, double timeout_s) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double s = LLM__MIN(LLM__MAX(timeout_s, 0.0), 1e6), whole = floor(s);
    t.tv_sec += (time_t)whole;
    t.tv_nsec += (long)((s - whole) * 1e9);
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    pthread_mutex_lock(&e->mutex);
    while (!e->inbox_first && __atomic_load_n(&e->n_cancels, __ATOMIC_ACQUIRE) == e->cancels_seen)
        if (pthread_cond_timedwait(&e->arrived, &e->mutex, &t)) break;
    pthread_mutex_unlock(&e->mutex);
}

LLM_API llm_result llm_request_run(llm_engine *e, llm_request *r) {
    for (int done = 0; !done;) {
        llm_result step = llm_engine_step(e, NULL);
        pthread_mutex_lock(&r->mutex);
        done = r->n_done == r->n_seqs;
        pthread_mutex_unlock(&r->mutex);
        if (step && done) return step;
    }
    for (int32_t i = 0; i < r->n_seqs; i++) {
        if (r->seq[i].finish == LLM_FINISH_ERROR) return llm__error(LLM_ERR_BACKEND, "%s", r->error);
        if (r->seq[i].finish == LLM_FINISH_CANCELLED) return llm__error(LLM_ERR_CANCELLED, "the request was cancelled");
    }
    return LLM_OK;
}

/* ---- a request's memory ---- */

static void llm__seq_destroy(llm__seq *s) {
    if (s->detok) llm_detok_free(s->detok);
    llm_text_free(&s->text);
    LLM_FREE(s->memory);
}

static void llm__request_destroy(llm_request *r) {
    for (int32_t i = 0; r->seq && i < r->n_seqs; i++) llm__seq_destroy(&r->seq[i]);
    LLM_FREE(r->seq);
    LLM_FREE(r->prompt_logprobs);
    LLM_FREE(r->prompt_top);
    LLM_FREE(r->prompt_counts);
    llm_text_free(&r->piece);
    llm__arena_free(&r->arena);
    pthread_mutex_destroy(&r->mutex);
    LLM_FREE(r);
}

/* The next `count` elements of a block laid out in two passes: base NULL measures. */
static void *llm__carve(char *base, size_t *at, size_t count, size_t size) {
    void *p = base ? base + *at : NULL;
    *at += (count * size + 15) & ~(size_t)15;
    return p;
}

/* Lays a sequence's arrays out in one block. They are not zeroed: memory that is not used is not touched. Returns the size. */
static size_t llm__seq_layout(llm__seq *s, char *base) {
    const llm_request *r = s->request;
    size_t at = 0, all = (size_t)s->n_prompt + (size_t)s->max_new, max_new = (size_t)s->max_new;
    int penalties = r->s.repetition_penalty != 1 || r->s.presence_penalty != 0 || r->s.frequency_penalty != 0;
    size_t distinct = penalties ? LLM__MIN(all, (size_t)r->engine->vocab) : 0, slots = penalties ? 16 : 0;
    while (slots < 2 * distinct) slots *= 2;
    s->ids = (int32_t *)llm__carve(base, &at, all, sizeof *s->ids);
    s->pages = (int32_t *)llm__carve(base, &at, (size_t)llm__pages_of(r->engine, (int32_t)all), sizeof *s->pages);
    s->shown = (size_t *)llm__carve(base, &at, max_new, sizeof *s->shown);
    s->stop_state = (int32_t *)llm__carve(base, &at, (size_t)r->s.n_stop, sizeof *s->stop_state);
    s->history.id = (int32_t *)llm__carve(base, &at, distinct, sizeof *s->history.id);
    s->history.count = (int32_t *)llm__carve(base, &at, distinct, sizeof *s->history.count);
    s->history.slot = (int32_t *)llm__carve(base, &at, slots, sizeof *s->history.slot);
    s->history.mask = slots ? (uint32_t)slots - 1 : 0;
    if (!r->s.logprobs) return at;
    s->logprobs = (float *)llm__carve(base, &at, max_new, sizeof *s->logprobs);
    s->top_counts = (int32_t *)llm__carve(base, &at, max_new, sizeof *s->top_counts);
    s->top = (llm_token_logprob *)llm__carve(base, &at, max_new * (size_t)r->top_stride, sizeof *s->top);
    return at;
}

/* A sequence of the request, with everything it will need. */
static llm_result llm__seq_open(llm_request *r, int32_t index, const int32_t *prompt, int32_t n_prompt, int32_t max_new) {
    llm__seq *s = &r->seq[index];
    s->request = r;
    s->index = index;
    s->n_prompt = s->n_ids = n_prompt;
    s->max_new = max_new;
    s->stop_id = -1;
    s->key = r->root;
    s->seed = (uint64_t)r->s.seed + (uint64_t)index;
    size_t bytes = llm__seq_layout(s, NULL);
    s->memory = LLM_MALLOC(bytes + 1);
    if (!s->memory) return llm__nomem();
    llm__seq_layout(s, (char *)s->memory);
    memcpy(s->ids, prompt, (size_t)n_prompt * sizeof *prompt);
    memset(s->stop_state, 0, (size_t)r->s.n_stop * sizeof *s->stop_state);
    if (s->history.mask) memset(s->history.slot, 0, ((size_t)s->history.mask + 1) * sizeof *s->history.slot);
    for (int32_t i = 0; i < n_prompt; i++) llm__history_add(&s->history, prompt[i], 0);
    if (!r->engine->model || r->score_only) return LLM_OK;
    s->detok = llm_detok_create(r->engine->model, r->s.skip_special_tokens_off ? LLM_DETOK_KEEP_SPECIAL : 0);
    size_t room = LLM__MIN((size_t)max_new * 16 + 256, (size_t)1 << 20);
    if (!s->detok || !llm__grow((void **)&s->text.data, &s->text.cap, room, 1)) return llm__nomem();
    s->text.data[0] = 0;
    return LLM_OK;
}

/* ---- submission ---- */

/* Copies n bytes into the request's arena. */
static void *llm__keep_copy(llm_request *r, const void *from, size_t n) {
    void *p = llm__arena_get(&r->arena, n + 1);
    if (p && n) memcpy(p, from, n);
    return p;
}

/* The stop strings as automata. */
static llm_result llm__request_stops(llm_request *r) {
    int32_t n = r->s.n_stop;
    const char **list = (const char **)llm__arena_get(&r->arena, (size_t)n * sizeof *list);
    r->stop = (llm__stop *)llm__arena_get(&r->arena, (size_t)n * sizeof *r->stop);
    if (!list || !r->stop) return llm__nomem();
    for (int32_t i = 0; i < n; i++) {
        llm__stop *p = &r->stop[i];
        p->len = (int32_t)strlen(r->s.stop[i]);
        list[i] = p->text = (const char *)llm__keep_copy(r, r->s.stop[i], (size_t)p->len);
        p->border = (int32_t *)llm__arena_get(&r->arena, (size_t)p->len * sizeof *p->border);
        if (!p->text || !p->border) return llm__nomem();
        for (int32_t k = 1; k < p->len; k++) p->border[k] = llm__stop_feed(p, p->border[k - 1], p->text[k]);
    }
    r->s.stop = list;
    return LLM_OK;
}

/* Tokens of the bad words, as in vLLM: each as it is, and behind a space where that changes the first token and not the count. */
static llm_result llm__request_bad_words(llm_request *r, const llm_model *model) {
    llm_tokens all, ends;
    llm_text text;
    memset(&all, 0, sizeof all);
    memset(&ends, 0, sizeof ends);
    memset(&text, 0, sizeof text);
    llm_result result = LLM_OK;
    for (int32_t i = 0; i < 2 * r->s.n_bad_words && !result; i++) {
        size_t from = all.len, before = ends.len > 1 ? (size_t)ends.data[ends.len - 2] : 0;
        const char *word = r->s.bad_words[i / 2];
        text.len = 0;
        if (i & 1) llm_text_str(&text, " ");
        llm_text_str(&text, word + strspn(word, " "));
        result = text.failed ? llm__nomem() : llm_tokenize(model, text.data, text.len, 0, &all);
        if (i & 1 && (from == before || all.len - from != from - before || all.data[from] == all.data[before])) all.len = from;
        if (all.len > from) llm_tokens_add(&ends, (int32_t)all.len);
    }
    r->n_bad = (int32_t)ends.len;
    r->bad_ids = (int32_t *)llm__keep_copy(r, all.data, all.len * sizeof *all.data);
    r->bad_end = (int32_t *)llm__keep_copy(r, ends.data, ends.len * sizeof *ends.data);
    if (all.failed || ends.failed || !r->bad_ids || !r->bad_end) result = llm__nomem();
    llm_tokens_free(&all);
    llm_tokens_free(&ends);
    llm_text_free(&text);
    return result;
}

/* Copies of everything the caller's sampling struct points to. */
static llm_result llm__request_copies(llm_request *r, const llm_request_config *cfg) {
    llm_sampling *s = &r->s;
    char made[32];
    s->stop_token_ids = (const int32_t *)llm__keep_copy(r, s->stop_token_ids, (size_t)s->n_stop_token_ids * sizeof *s->stop_token_ids);
    s->logit_bias = (const llm_logit_bias *)llm__keep_copy(r, s->logit_bias, (size_t)s->n_logit_bias * sizeof *s->logit_bias);
    snprintf(made, sizeof made, "req-%016llx", (unsigned long long)llm__mix((uint64_t)s->seed ^ (uint64_t)(uintptr_t)r));
    const char *id = cfg->id ? cfg->id : made;
    r->id = (char *)llm__keep_copy(r, id, strlen(id));
    if (!s->stop_token_ids || !s->logit_bias || !r->id) return llm__nomem();
    llm_result result = llm__request_stops(r);
    if (!result && s->n_bad_words && !r->engine->model) result = llm__error(LLM_ERR_ARG, "bad_words: need a model with a tokenizer");
    if (!result && s->n_bad_words) result = llm__request_bad_words(r, r->engine->model);
    s->bad_words = NULL;
    return result;
}

/* How many tokens the answer may have. The prompt must leave room for one. */
static llm_result llm__request_limits(llm_request *r, const int32_t *prompt, size_t n, int32_t *max_new) {
    const llm_engine *e = r->engine;
    if (!n) return llm__error(LLM_ERR_ARG, "prompt: it is empty, at least one token is needed");
    if (n + !r->score_only > (size_t)e->max_len)
        return llm__error(LLM_ERR_LIMIT, "prompt: %zu tokens are more than the context of %d tokens holds%s", n, (int)e->max_len, r->score_only ? "" : " with an answer");
    for (size_t i = 0; i < n; i++)
        if (prompt[i] < 0 || prompt[i] >= e->vocab) return llm__error(LLM_ERR_ARG, "prompt_token_ids: %d is no token, ids run from 0 to %d", (int)prompt[i], (int)e->vocab - 1);
    int32_t room = r->score_only ? 0 : e->max_len - (int32_t)n;
    *max_new = r->s.max_tokens < 0 ? room : LLM__MIN(r->s.max_tokens, room);
    return LLM_OK;
}

/* Room for the log-probabilities of the prompt. */
static llm_result llm__request_scores(llm_request *r, size_t n) {
    int ok = 1;
    if (r->score_only && !r->s.prompt_logprobs) r->s.prompt_logprobs = 1;
    if (!r->s.prompt_logprobs) return LLM_OK;
    r->prompt_stride = LLM__MIN(r->s.prompt_logprobs - 1, r->engine->vocab);
    uint64_t bytes = llm__mul(llm__mul(n, (uint64_t)r->prompt_stride, &ok), sizeof *r->prompt_top, &ok);
    r->prompt_logprobs = LLM__NEW(float, n);
    r->prompt_counts = LLM__NEW(int32_t, n);
    r->prompt_top = ok ? (llm_token_logprob *)LLM_MALLOC((size_t)bytes + 1) : NULL;
    return r->prompt_logprobs && r->prompt_counts && r->prompt_top ? LLM_OK : llm__nomem();
}

/* Fills a new request from its config and its prompt's tokens. */
static llm_result llm__request_fill(llm_request *r, const llm_request_config *cfg, const int32_t *prompt, size_t n) {
    llm_engine *e = r->engine;
    int32_t max_new = 0;
    r->s = cfg->sampling;
    r->s.early_stop = llm__early_resolve(&cfg->sampling.early_stop, &e->early_stop);
    llm__sampling_resolve(&r->s);
    if (!r->s.has_seed) llm__random_bytes(&r->s.seed, sizeof r->s.seed), r->s.seed &= INT64_MAX;
    r->score_only = cfg->score_only;
    r->n_seqs = r->score_only ? 1 : r->s.best_of;
    r->priority = cfg->priority;
    r->on_news = cfg->on_news;
    r->user = cfg->user;
    r->root = llm__kv_root(&e->kv, cfg->cache_salt);
    llm_result result = llm__request_limits(r, prompt, n, &max_new);
    if (!result) result = llm__request_copies(r, cfg);
    if (!result) result = llm__request_scores(r, n);
    if (result) return result;
    r->top_stride = r->s.logprobs ? LLM__MIN(r->s.logprobs - 1, e->vocab) : 0;
    r->seq = LLM__NEW(llm__seq, r->n_seqs);
    if (!r->seq) return llm__nomem();
    for (int32_t i = 0; i < r->n_seqs && !result; i++) result = llm__seq_open(r, i, prompt, (int32_t)n, max_new);
    e->driver.rope_of(e->driver.ctx, (int32_t)n, &r->rope, &r->rope_base);
    r->metrics.n_prompt_tokens = (int32_t)n;
    r->metrics.arrival_time = llm__wall_clock();
    r->submitted = e->driver.now(e->driver.ctx);
    if (cfg->deadline_s > 0) r->deadline = r->submitted + cfg->deadline_s;
    return result;
}

/* Into the inbox, unless it is full. */
static llm_result llm__request_enqueue(llm_engine *e, llm_request *r) {
    pthread_mutex_lock(&e->mutex);
    int full = e->n_fresh >= e->max_queue;
    if (!full) {
        r->fresh = 1;
        r->refs = 2;
        r->arrival = e->n_arrived++;
        e->n_fresh++;
        if (e->inbox_last) e->inbox_last->inbox_next = r;
        else e->inbox_first = r;
        e->inbox_last = r;
        pthread_cond_signal(&e->arrived);
    }
    pthread_mutex_unlock(&e->mutex);
    return full ? llm__error(LLM_ERR_BUSY, "the queue is full: %d requests wait", (int)e->max_queue) : LLM_OK;
}

LLM_API llm_result llm_request_submit(llm_engine *e, const llm_request_config *cfg, llm_request **out) {
    llm_tokens tokens;
    memset(&tokens, 0, sizeof tokens);
    *out = NULL;
    llm_result result = llm__check_sampling(&cfg->sampling, e->vocab);
    if (!result && cfg->prompt && !e->model) result = llm__error(LLM_ERR_ARG, "prompt: a text needs a model with a tokenizer");
    if (!result && cfg->prompt) result = llm_tokenize(e->model, cfg->prompt, cfg->prompt_len, cfg->tokenize_flags, &tokens);
    if (!result && tokens.failed) result = llm__nomem();
    llm_request *r = result ? NULL : LLM__NEW(llm_request, 1);
    if (!result && !r) result = llm__nomem();
    if (!result) {
        pthread_mutex_init(&r->mutex, NULL);
        r->engine = e;
        result = llm__request_fill(r, cfg, cfg->prompt ? tokens.data : cfg->prompt_ids, cfg->prompt ? tokens.len : cfg->n_prompt_ids);
        if (!result) result = llm__request_enqueue(e, r);
        if (result) llm__request_destroy(r);
        else *out = r;
    }
    llm_tokens_free(&tokens);
    return result;
}

LLM_API void llm_request_cancel(llm_request *r) {
    llm_engine *e = r->engine;
    pthread_mutex_lock(&r->mutex);
    int done = r->n_done == r->n_seqs;
    pthread_mutex_unlock(&r->mutex);
    if (done || __atomic_exchange_n(&r->cancelled, 1, __ATOMIC_ACQ_REL)) return;
    pthread_mutex_lock(&e->mutex);
    __atomic_add_fetch(&e->n_cancels, 1, __ATOMIC_ACQ_REL);
    pthread_cond_signal(&e->arrived);
    pthread_mutex_unlock(&e->mutex);
}

LLM_API void llm_request_free(llm_request *r) {
    if (!r) return;
    llm_engine *e = r->engine;
    pthread_mutex_lock(&r->mutex);
    int done = r->n_done == r->n_seqs;
    pthread_mutex_unlock(&r->mutex);
    if (!done || __atomic_load_n(&r->refs, __ATOMIC_ACQUIRE) > 1) { /* the engine still has it: no call back from now on */
        pthread_mutex_lock(&e->news_mutex);
        __atomic_store_n(&r->freed, 1, __ATOMIC_RELEASE);
        pthread_mutex_unlock(&e->news_mutex);
        llm_request_cancel(r);
    }
    llm__request_unref(r);
}

/* ---- what came out ---- */

/* Which sequence answer `index` is: with best_of > n those of the highest cumulative log-probability, ties the lower. NULL: not decided. */
static llm__seq *llm__request_answer(const llm_request *r, int32_t index) {
    if (index < 0 || index >= LLM__MIN(r->s.n, r->n_seqs)) return NULL;
    if (r->n_seqs == LLM__MIN(r->s.n, r->n_seqs)) return &r->seq[index];
    if (r->n_done < r->n_seqs) return NULL;
    for (int32_t i = 0; i < r->n_seqs; i++) {
        int32_t better = 0;
        for (int32_t j = 0; j < r->n_seqs; j++) better += llm__before((float)r->seq[j].cum_logprob, j, (float)r->seq[i].cum_logprob, i);
        if (better == index) return &r->seq[i];
    }
    return NULL;
}

static int llm__seq_has_news(const llm__seq *s) { return s && (s->n_polled < s->n_ids - s->n_prompt || (s->finish && !s->end_polled)); }

/* Fills the event from the sequence's next token, or its end. */
static void llm__fill_event(llm_request *r, llm__seq *s, int32_t index, llm_event *event) {
    int32_t n = s->n_ids - s->n_prompt, at = s->n_polled;
    memset(event, 0, sizeof *event);
    event->index = index;
    event->id = event->stop_id = -1;
    if (at < n) {
        event->has_token = 1;
        event->id = s->ids[s->n_prompt + at];
        if (s->logprobs) event->logprob = s->logprobs[at];
        if (s->top) event->top = s->top + (int64_t)at * r->top_stride, event->n_top = s->top_counts[at];
        s->n_polled++;
    }
    if (s->n_polled == n && s->finish) {
        event->finish = s->finish;
        event->stop_reason = s->stop_reason;
        event->stop_id = s->stop_id;
        s->end_polled = 1;
    }
    size_t end = event->finish ? s->text.len : at < n ? s->shown[at] : s->text_polled;
    end = LLM__MAX(end, s->text_polled);
    r->piece.len = 0;
    llm_text_add(&r->piece, s->text.data ? s->text.data + s->text_polled : "", end - s->text_polled);
    s->text_polled = end;
    event->text = r->piece.data ? r->piece.data : "";
    event->text_len = r->piece.len;
}

LLM_API int llm_request_poll(llm_request *r, llm_event *event) {
    int32_t found = -1;
    llm__seq *best = NULL;
    pthread_mutex_lock(&r->mutex);
    for (int32_t i = 0; i < r->s.n; i++) { /* answers take turns */
        llm__seq *s = llm__request_answer(r, i);
        if (llm__seq_has_news(s) && (!best || s->n_polled < best->n_polled)) best = s, found = i;
    }
    if (best) llm__fill_event(r, best, found, event);
    pthread_mutex_unlock(&r->mutex);
    return best != NULL;
}

LLM_API int llm_request_done(const llm_request *request) {
    llm_request *r = (llm_request *)(uintptr_t)request; /* the lock is not part of what is const */
    pthread_mutex_lock(&r->mutex);
    int done = r->n_done == r->n_seqs;
    for (int32_t i = 0; i < r->s.n && done; i++) {
        const llm__seq *s = llm__request_answer(r, i);
        done = !s || s->end_polled;
    }
    pthread_mutex_unlock(&r->mutex);
    return done;
}

LLM_API llm_result llm_request_output(const llm_request *request, int32_t index, llm_output *out) {
    llm_request *r = (llm_request *)(uintptr_t)request;
    memset(out, 0, sizeof *out);
    out->stop_id = -1;
    out->text = "";
    pthread_mutex_lock(&r->mutex);
    const llm__seq *s = llm__request_answer(r, index);
    if (s) {
        out->token_ids = s->ids + s->n_prompt;
        out->n_token_ids = (size_t)(s->n_ids - s->n_prompt);
        if (s->text.data) out->text = s->text.data;
        out->text_len = s->text.len;
        out->finish = s->finish;
        out->stop_reason = s->stop_reason;
        out->stop_id = s->stop_id;
        out->cum_logprob = s->cum_logprob;
        out->logprobs = s->logprobs;
        out->top = s->top;
        out->top_counts = s->top_counts;
        out->top_stride = r->top_stride;
    }
    pthread_mutex_unlock(&r->mutex);
    return s || (index >= 0 && index < r->s.n) ? LLM_OK : llm__error(LLM_ERR_ARG, "index: %d, must be 0 to %d", (int)index, (int)r->s.n - 1);
}

LLM_API void llm_request_get_metrics(const llm_request *request, llm_request_metrics *out) {
    llm_request *r = (llm_request *)(uintptr_t)request;
    pthread_mutex_lock(&r->mutex);
    *out = r->metrics;
    pthread_mutex_unlock(&r->mutex);
}

LLM_API const int32_t *llm_request_prompt(const llm_request *r, size_t *n) {
    *n = (size_t)r->seq[0].n_prompt;
    return r->seq[0].ids;
}

LLM_API const float *llm_request_prompt_logprobs(const llm_request *request, const llm_token_logprob **top, const int32_t **top_counts, int32_t *top_stride) {
    llm_request *r = (llm_request *)(uintptr_t)request;
    pthread_mutex_lock(&r->mutex);
    int there = r->prompt_logprobs && r->seq[0].n_scored >= r->seq[0].n_prompt - 1 && (r->n_done || r->seq[0].n_ids > r->seq[0].n_prompt);
    pthread_mutex_unlock(&r->mutex);
    if (top) *top = there ? r->prompt_top : NULL;
    if (top_counts) *top_counts = there ? r->prompt_counts : NULL;
    if (top_stride) *top_stride = there ? r->prompt_stride : 0;
    return there ? r->prompt_logprobs : NULL;
}

LLM_API const char *llm_request_id(const llm_request *r) { return r->id; }
LLM_API int64_t llm_request_seed(const llm_request *r) { return r->s.seed; }

LLM_API const char *llm_request_error(const llm_request *request) {
    llm_request *r = (llm_request *)(uintptr_t)request;
    pthread_mutex_lock(&r->mutex);
    int failed = r->n_done && r->error[0];
    pthread_mutex_unlock(&r->mutex);
    return failed ? r->error : NULL;
}

LLM_API const char *llm_finish_str(llm_finish f) {
    static const char *const names[] = {"", "stop", "length", "abort", "error"};
    return f >= LLM_FINISH_NONE && f <= LLM_FINISH_ERROR ? names[f] : "";
}

/* ---- the forward pass itself ---- */

/* Rows of several sequences with page tables of their own: sequence i owns the i-th stretch of pages. */
static llm_result llm__raw_step(llm_engine *e, int32_t n, const int32_t *seqs, const int32_t *at, const int32_t *counts, const int32_t *ids, int32_t n_logits, float *logits) {
    llm_step step;
    e->n_plan = 0;
    llm__fill_step(e, &step);
    for (int32_t i = 0, row = 0; i < n; i++) {
        int32_t end = at[i] + counts[i];
        if (!at[i]) e->raw_prompt[seqs[i]] = counts[i];
        e->driver.rope_of(e->driver.ctx, LLM__MAX(e->raw_prompt[seqs[i]], 1), &e->seq_rope[i], &e->seq_base[i]);
        e->seq_len[i] = end;
        for (int32_t k = 0; k < llm__pages_of(e, end); k++) e->pages[(int64_t)i * e->max_pages + k] = seqs[i] * e->max_pages + k;
        for (int32_t k = 0; k < counts[i]; k++, row++) {
            e->tokens[row] = ids[row];
            e->positions[row] = at[i] + k;
            e->seq_of_row[row] = i;
            if (k >= counts[i] - n_logits) e->out_rows[step.shape.n_out++] = row;
        }
        e->seq_begin[i + 1] = step.shape.n_rows = row;
    }
    step.shape.n_seqs = n;
    llm_result r = e->driver.forward(e->driver.ctx, &step);
    for (int32_t i = 0; i < step.shape.n_out && !r; i++)
        memcpy(logits + (int64_t)i * e->vocab, e->driver.logits_row(e->driver.ctx, i), (size_t)e->vocab * sizeof *logits);
    return r;
}

static llm_result llm__raw_check(llm_engine *e, int32_t seq, int32_t position, int32_t n, const int32_t *ids) {
    if (e->live || e->inbox_first) return llm__error(LLM_ERR_ARG, "llm_forward: requests are running on this engine");
    if (seq < 0 || seq >= e->max_seqs || (int64_t)(seq + 1) * e->max_pages > e->kv.n_pages)
        return llm__error(LLM_ERR_ARG, "seq: %d, must be 0 to %d", (int)seq, (int)LLM__MIN((int64_t)e->max_seqs, e->kv.n_pages / e->max_pages) - 1);
    if (position < 0 || n < 1 || n > e->max_len - position) return llm__error(LLM_ERR_LIMIT, "position: %d + %d tokens, the context has %d", (int)position, (int)n, (int)e->max_len);
    for (int32_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= e->vocab) return llm__error(LLM_ERR_ARG, "ids: %d is no token, ids run from 0 to %d", (int)ids[i], (int)e->vocab - 1);
    llm__kv_flush(&e->kv); /* these pages are about to hold something else */
    return LLM_OK;
}

LLM_API llm_result llm_forward(llm_engine *e, int32_t seq, int32_t position, const int32_t *ids, int32_t n, float *logits, int32_t n_logits) {
    llm_result r = llm__raw_check(e, seq, position, n, ids);
    if (!r && (n_logits < 0 || n_logits > n)) r = llm__error(LLM_ERR_ARG, "n_logits: %d, must be 0 to %d", (int)n_logits, (int)n);
    if (!r && !position) e->raw_prompt[seq] = n;
    for (int32_t done = 0; done < n && !r;) {
        int32_t silent = n - n_logits - done; /* tokens still before those whose logits are wanted */
        int32_t count = silent > 0 ? LLM__MIN(silent, e->max_rows) : LLM__MIN(LLM__MIN(n - done, e->max_rows), e->max_out), at = position + done;
        int32_t prompt = e->raw_prompt[seq];
        r = llm__raw_step(e, 1, &seq, &at, &count, ids + done, silent > 0 ? 0 : count, silent > 0 ? NULL : logits - (int64_t)silent * e->vocab);
        e->raw_prompt[seq] = prompt;
        done += count;
    }
    return r;
}

LLM_API llm_result llm_forward_batch(llm_engine *e, int32_t n_seqs, const int32_t *seqs, const int32_t *positions, const int32_t *counts, const int32_t *ids, float *logits) {
    int64_t rows = 0;
    llm_result r = n_seqs < 1 || n_seqs > e->max_seqs ? llm__error(LLM_ERR_ARG, "n_seqs: %d, must be 1 to %d", (int)n_seqs, (int)e->max_seqs) : LLM_OK;
    for (int32_t i = 0; i < n_seqs && !r; rows += counts[i++]) {
        if (counts[i] > e->max_rows - rows) r = llm__error(LLM_ERR_LIMIT, "counts: more rows than max_num_batched_tokens, %d", (int)e->max_rows);
        for (int32_t k = 0; k < i && !r; k++)
            if (seqs[k] == seqs[i]) r = llm__error(LLM_ERR_ARG, "seqs: %d stands there twice", (int)seqs[i]);
        if (!r) r = llm__raw_check(e, seqs[i], positions[i], counts[i], ids + rows);
    }
    return r ? r : llm__raw_step(e, n_seqs, seqs, positions, counts, ids, 1, logits);
}

LLM_API int32_t llm_logits_size(const llm_engine *e) { return e->vocab; }

/* ============================================================================
 * >>easy   Ten lines to a working program.
 * ============================================================================
 * llm_load opens a model and an engine for one sequence. A conversation is a list of messages kept as JSON text; each turn is rendered by the model's
 * own template from the beginning and submitted whole: the prefix cache knows all but the latest words of it. */

struct llm {
    llm_model *model;
    llm_engine *engine;
};

LLM_API llm *llm_load(const char *path, const llm_engine_config *cfg) {
    llm_model_config m;
    llm_engine_config c;
    llm *l = LLM__NEW(llm, 1);
    memset(&m, 0, sizeof m);
    memset(&c, 0, sizeof c);
    if (cfg) c = *cfg;
    m.log = c.log;
    m.log_user = c.log_user;
    m.progress = c.progress;
    m.progress_user = c.progress_user;
    llm_result r = l ? llm_model_open(path, &m, &l->model) : llm__nomem();
    if (!r && !c.max_model_len) c.max_model_len = LLM__MIN(8192, llm__model_max_len(l->model)); /* enough to talk; a long context takes gigabytes */
    if (!r) r = llm_engine_open(l->model, &c, &l->engine);
    if (!r) return l;
    if (l) llm_model_close(l->model);
    LLM_FREE(l);
    return NULL;
}

LLM_API void llm_free(llm *l) {
    if (!l) return;
    llm_engine_close(l->engine);
    llm_model_close(l->model);
    LLM_FREE(l);
}

LLM_API const llm_model *llm_get_model(const llm *l) { return l->model; }
LLM_API llm_engine *llm_get_engine(const llm *l) { return l->engine; }
LLM_API void llm_string_free(char *s) { LLM_FREE(s); }

LLM_API char *llm_generate(llm *l, const char *prompt, const llm_sampling *s) {
    llm_request_config c;
    llm_request *r;
    llm_output out;
    memset(&c, 0, sizeof c);
    c.prompt = prompt;
    c.prompt_len = strlen(prompt);
    c.tokenize_flags = LLM_TOK_ADD_SPECIAL;
    if (s) c.sampling = *s;
    else llm_sampling_default(l->model, &c.sampling);
    if (llm_request_submit(l->engine, &c, &r)) return NULL;
    char *text = NULL;
    if (!llm_request_run(l->engine, r) && !llm_request_output(r, 0, &out)) text = llm__strndup(out.text, out.text_len);
    llm_request_free(r);
    return text;
}

struct llm_chat {
    llm *l;
    llm_sampling sampling;
    llm_text messages;    /* the array's elements: {"role":...},{...} */
    size_t first;         /* length of the system message */
    llm_text answer;      /* so far, while request is there */
    llm_text piece;
    llm_request *request;
};

static void llm__chat_add(llm_text *messages, const char *role, const char *text, size_t len) {
    llm_text_str(messages, messages->len ? ",{\"role\":\"" : "{\"role\":\"");
    llm_text_str(messages, role);
    llm_text_str(messages, "\",\"content\":");
    llm_text_json(messages, text, len);
    llm_text_str(messages, "}");
}

LLM_API llm_chat *llm_chat_new(llm *l, const char *system) {
    llm_chat *c = LLM__NEW(llm_chat, 1);
    if (!c) return NULL;
    c->l = l;
    llm_sampling_default(l->model, &c->sampling);
    c->sampling.max_tokens = -1;
    if (system) llm__chat_add(&c->messages, "system", system, strlen(system));
    c->first = c->messages.len;
    return c;
}

LLM_API llm_sampling *llm_chat_sampling(llm_chat *c) { return &c->sampling; }

/* Forgets messages beyond `len` bytes. */
static void llm__chat_cut(llm_chat *c, size_t len) {
    c->messages.len = len;
    if (c->messages.data) c->messages.data[len] = 0;
    c->messages.failed = 0;
}

LLM_API llm_result llm_chat_stop(llm_chat *c) {
    if (!c->request) return LLM_OK;
    llm_request_free(c->request);
    c->request = NULL;
    llm__chat_add(&c->messages, "assistant", c->answer.data ? c->answer.data : "", c->answer.len);
    return c->messages.failed || c->answer.failed ? llm__nomem() : LLM_OK;
}

LLM_API void llm_chat_reset(llm_chat *c) {
    llm_chat_stop(c);
    llm__chat_cut(c, c->first);
}

LLM_API void llm_chat_free(llm_chat *c) {
    if (!c) return;
    llm_request_free(c->request);
    llm_text_free(&c->messages);
    llm_text_free(&c->answer);
    llm_text_free(&c->piece);
    LLM_FREE(c);
}

/* A plain transcript, for models without a template. */
static void llm__chat_plain(const llm_json *doc, llm_text *out) {
    for (int m = llm_json_first(doc, llm_json_find(doc, 0, "messages")); m >= 0; m = llm_json_next(doc, m)) {
        size_t len;
        const char *role = llm_json_str(doc, llm_json_find(doc, m, "role"), NULL), *text = llm_json_str(doc, llm_json_find(doc, m, "content"), &len);
        if (strcmp(role, "system")) llm_text_str(out, !strcmp(role, "user") ? "User: " : "Assistant: ");
        llm_text_add(out, text, len);
        llm_text_str(out, "\n");
    }
    llm_text_str(out, "Assistant:");
}

/* The whole conversation as a prompt. *plain: it is the transcript. */
static llm_result llm__chat_render(llm_chat *c, llm_text *prompt, int *plain) {
    llm_text context;
    llm_json *doc = NULL;
    memset(&context, 0, sizeof context);
    llm_text_str(&context, "{\"messages\":[");
    llm_text_add(&context, c->messages.data, c->messages.len);
    llm_text_str(&context, "],\"add_generation_prompt\":true}");
    llm_result r = context.failed || c->messages.failed ? llm__nomem() : llm_json_parse(context.data, context.len, NULL, &doc);
    *plain = !llm_model_get_info(c->l->model)->chat_template;
    if (!r && *plain) llm__chat_plain(doc, prompt);
    else if (!r) r = llm_render(c->l->model, doc, NULL, prompt);
    llm_json_free(doc);
    llm_text_free(&context);
    return !r && prompt->failed ? llm__nomem() : r;
}

LLM_API llm_result llm_chat_say(llm_chat *c, const char *user_message) {
    static const char *const turn[] = {"\nUser:"};
    llm_request_config cfg;
    llm_text prompt;
    int plain;
    memset(&cfg, 0, sizeof cfg);
    memset(&prompt, 0, sizeof prompt);
    llm_result r = llm_chat_stop(c);
    size_t before = c->messages.len;
    llm__chat_add(&c->messages, "user", user_message, strlen(user_message));
    if (!r) r = llm__chat_render(c, &prompt, &plain);
    if (!r) {
        cfg.prompt = prompt.data;
        cfg.prompt_len = prompt.len;
        cfg.tokenize_flags = LLM_TOK_PARSE_SPECIAL | (plain ? LLM_TOK_ADD_SPECIAL : 0);
        cfg.sampling = c->sampling;
        if (plain && !cfg.sampling.n_stop) cfg.sampling.stop = turn, cfg.sampling.n_stop = 1;
        cfg.sampling.n = cfg.sampling.best_of = 1;
        r = llm_request_submit(c->l->engine, &cfg, &c->request);
    }
    if (r) llm__chat_cut(c, before);
    c->answer.len = 0;
    llm_text_free(&prompt);
    return r;
}

LLM_API const char *llm_chat_next(llm_chat *c) {
    llm_event event;
    while (c->request) {
        if (!llm_request_poll(c->request, &event)) {
            if (llm_request_done(c->request)) llm_chat_stop(c);
            else llm_engine_step(c->l->engine, NULL);
            continue;
        }
        if (!event.text_len) continue;
        c->piece.len = 0;
        llm_text_add(&c->piece, event.text, event.text_len);
        llm_text_add(&c->answer, event.text, event.text_len);
        return c->piece.failed ? NULL : c->piece.data;
    }
    return NULL;
}
/* ---- section: sampler, scheduler, engine, easy (end) ---- */

#endif /* LLM_IMPLEMENTATION_DONE */
#endif /* LLM_IMPLEMENTATION */

/* MIT licence: see LICENSE. */
