/* engine: Threads, backend, KV pages and scheduler for one model. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/sampler.h"
#include "api/nodes.h"
#include "api/backend.h"

struct llm_backend; /* >>api-backend: for who writes one */
struct llm_spent;

typedef struct llm_engine llm_engine;

typedef struct llm_engine_config {
    int32_t n_threads;                 /* 0: all cores this process may use */
    const char *isa;                   /* NULL: the best; a name of llm_isa_list */
    const char *device;                /* NULL or "auto", "cpu", "cuda" */
    const struct llm_backend *backend; /* NULL: the CPU table */
    int32_t tensor_parallel_size;      /* 0: 1; on a CPU: ranks in this process */
    int32_t pipeline_parallel_size;    /* the layers in so many pieces, one after the other, each on ranks of its own; 0: 1 */
    llm_compute dtype;                 /* AUTO: the file's formats at full speed */
    llm_kv_type kv_cache_dtype;
    int64_t kv_cache_memory_bytes; /* 0: what max_num_seqs sequences of max_model_len need */
    int32_t max_model_len;         /* tokens of prompt and answer together; 0: the model's */
    int32_t allow_long_max_model_len;
    int32_t max_num_seqs;           /* sequences that run together; 0: 1 */
    int32_t max_num_batched_tokens; /* rows of one step; 0: 512 */
    int32_t block_size; /* tokens of a KV page: 16, 32, 64 ... 1024; 0: 32, with recurrent layers as many as are worth a state */
    int32_t max_queue;  /* waiting requests; 0: 1024; -1: none may wait: what cannot run at once is LLM_ERR_BUSY */
    int32_t disable_prefix_caching;
    float gpu_memory_utilization; /* 0: 0.9 */
    int32_t batch_invariant;      /* GPU; a CPU always is */
    llm_early_stop early_stop;    /* of every request that has none of its own */
    llm_log_fn log;
    void *log_user;
    llm_progress_fn progress;
    void *progress_user;
    int32_t num_gpu_blocks;        /* KV pages, instead of kv_cache_memory_bytes; 0: none given */
    int32_t preemption_swap;       /* a sequence that gives way: 0: its pages are computed again; 1: they go to host memory and come back */
    float swap_space;              /* GiB of host memory for that; 0: 4; never more than the KV cache */
    int32_t num_cpu_blocks;        /* the same as a number of pages; 0: as swap_space says */
    float scheduler_delay_factor;  /* while others decode, new prompts gather for so many times the last prompt step's duration */
    int32_t prefill_interval;      /* while others decode, new prompts join in every so manieth step; 0 or 1: in each */
    const char *speculative_model; /* guesses tokens ahead, and nothing that is said changes: path of a smaller model with the same tokens,
                                      or of an EAGLE or EAGLE-3 head of the model; "[mtp]": the layer behind the model's last that predicts
                                      further tokens, or that of the files at a path behind it; "[ngram]": prompt lookup; NULL: nothing */
    int32_t num_speculative_tokens;  /* drafted and checked together, 1 to LLM_SPECULATIVE_MAX */
    int32_t ngram_prompt_lookup_max; /* tokens compared at most; 0: 16 */
    int32_t ngram_prompt_lookup_min; /* tokens that must be equal; 0: 3, or the most */
    const char *speculative_config;  /* vLLM's JSON, for programs with an llm_setup */
    int32_t eagle_lab_style;         /* 1: an EAGLE head computes without norms at its ends, whatever its files have (SafeAILab's style) */
    int32_t max_loras;               /* different adapters that compute in one step; 0: none */
    int32_t max_cpu_loras;           /* adapters that are in memory at once; 0: max_loras */
    int32_t max_lora_rank;           /* largest r of an adapter; 0: 16, where `lora` is given 256 */
    const char *lora;                /* an adapter for every request that names none, loaded at once under its path; NULL: none */
    const char
        *cuda_library; /* what device cuda, and auto, open: libllm_cuda.so; NULL: for cuda the one that the system finds, for auto none */
    int32_t enforce_eager;           /* GPU: steps are not recorded as graphs */
    int32_t max_seq_len_to_capture;  /* GPU: steps with longer sequences neither; 0: no limit */
    float step_timeout;              /* GPU: seconds after which a step counts as lost; 0: 300 */
    struct llm_spent *spent;         /* CPU: NULL, or (LLM_SPENT_KINDS) to which every step adds what its operations took */
    int32_t kv_cache_prealloc;       /* CPU: 1: takes the KV cache's memory at once, so that no step finds it short; 0: when used */
    const char *cuda_graph_sizes;    /* GPU: "2,4,8": sequences of the steps that are recorded, smaller ones filled up to the next; larger
                                       ones are not recorded. NULL: 1, 2, 4 and multiples of 8 */
    float cache_max_entry_count;     /* LMDeploy's: the KV cache's share of the memory that is free beside the weights; above 1: so many
                                       pages; instead of kv_cache_memory_bytes. 0: not given */
    int32_t disable_chunked_prefill; /* 1: a prompt is computed in one step, so max_num_batched_tokens must reach max_model_len */
    llm_trace_fn trace; /* CPU with one rank: told of what every operation gives, for learning and looking inside; NULL: nobody */
    void *trace_user;
    int64_t mm_processor_cache_bytes; /* for pictures of requests and what towers made of them; 0: 1 GiB */
    int64_t trace_inputs; /* with trace: 1: told of the inputs of linear layers, and of nothing else: for calibration. Of all rows, in the
                             last layer too */
    struct llm_nodes *nodes; /* ranks are in several processes, and this is one of them: see llm_nodes_open. NULL: all are here */
    const char *tuning;      /* CPU: what changes times and no answer: "ahead=4096,band=8", "measure"; NULL or "auto": as is known of this
                           processor, or measured for at most 20 ms while the weights are loaded. In llm_engine_stats.backend: what, why */
} llm_engine_config;

enum { LLM_SPECULATIVE_MAX = 32 };

/* What the numbers of the struct may be, said once: the engine's check, its defaults and the ranges of options (>>api-options) are made of
 * these rows. LLM_FIELD_x: kind (of llm_option_kind), least, most, default, unit and special values. 0 stands for the default, also where
 * it is below the least; a default that depends on other things is 0 in its row. Of an ENUM the values stand in the place of the unit. */
/* clang-format off */
#define LLM_FIELD_n_threads               INT, 1, 4096, 0, "0: all cores"
#define LLM_FIELD_tensor_parallel_size    INT, 1, 64, 1, "ranks"
#define LLM_FIELD_pipeline_parallel_size  INT, 1, 64, 1, "pieces"
#define LLM_FIELD_dtype                   INT, 0, LLM_COMPUTE_F16, 0, "an llm_compute"
#define LLM_FIELD_kv_cache_dtype          INT, 0, LLM_KV_INT4, 0, "an llm_kv_type"
#define LLM_FIELD_kv_cache_memory_bytes   INT64, 1, 9e18, 0, "bytes; 0: what all sequences need"
#define LLM_FIELD_max_model_len           INT, 1, 2147483647, 0, "tokens; 0: the model's"
#define LLM_FIELD_max_num_seqs            INT, 1, 65536, 1, "sequences"
#define LLM_FIELD_max_num_batched_tokens  INT, 1, 1048576, 512, "tokens"
#define LLM_FIELD_block_size              ENUM, 0, 0, 32, "16=16|32=32|64=64|128=128|256=256|512=512|1024=1024"
#define LLM_FIELD_max_queue               INT, -1, 2147483647, 1024, "requests; -1: none may wait"
#define LLM_FIELD_cache_max_entry_count   FLOAT, 1e-3, 4194304, 0, "share of free memory, above 1 pages"
#define LLM_FIELD_gpu_memory_utilization  FLOAT, 0.01, 1, 0.9, "of a GPU's memory"
#define LLM_FIELD_num_gpu_blocks          INT, 0, 2147483647, 0, "pages"
#define LLM_FIELD_swap_space              FLOAT, 0, 65536, 4, "GiB"
#define LLM_FIELD_num_cpu_blocks          INT, 0, 2147483647, 0, "pages"
#define LLM_FIELD_scheduler_delay_factor  FLOAT, 0, 1e6, 0, "prompt steps"
#define LLM_FIELD_prefill_interval        INT, 0, 2147483647, 0, "steps"
#define LLM_FIELD_num_speculative_tokens  INT, 1, LLM_SPECULATIVE_MAX, 0, "tokens"
#define LLM_FIELD_ngram_prompt_lookup_max INT, 1, 1024, 16, "tokens"
#define LLM_FIELD_ngram_prompt_lookup_min INT, 1, 1024, 3, "tokens"
#define LLM_FIELD_max_loras               INT, 1, 4096, 0, "adapters; 0: none"
#define LLM_FIELD_max_cpu_loras           INT, 1, 4096, 0, "adapters; 0: max_loras"
#define LLM_FIELD_max_lora_rank           ENUM, 0, 0, 16, "1=1|8=8|16=16|32=32|64=64|128=128|256=256|320=320|512=512"
#define LLM_FIELD_max_seq_len_to_capture  INT, 1, 2147483647, 0, "tokens; 0: no limit"
#define LLM_FIELD_step_timeout            FLOAT, 0, 1e9, 300, "seconds"
#define LLM_FIELD_mm_processor_cache_bytes INT64, 1, 9e18, 1073741824, "bytes"
/* clang-format on */

/* What an engine takes, in bytes. */
typedef struct llm_estimate {
    int64_t weight_bytes;    /* of the model, its tower, and a draft model, as the engine keeps them */
    int64_t kv_bytes;        /* of the KV cache; it is taken page by page as it is used, unless kv_cache_prealloc is set */
    int64_t buffer_bytes;    /* activations, logits, tables of the scheduler, swap space */
    int64_t peak_bytes;      /* all of it, and what else there is for a while or since the model was opened: weights that are unpacked while
                                they are loaded, files that are read and not mapped */
    int64_t available_bytes; /* llm_memory_free(); -1: unknown */
    int32_t max_model_len;   /* tokens of a sequence at most */
    int32_t fits;            /* 1: it can be opened now */
    const char *isa;         /* "avx2": instructions it would use */
    char tuning[96];         /* as in llm_engine_stats.backend: "ahead=8192,near=0,band=4,signs=16,bits=1 (AMD Zen 3)" */
} llm_estimate;

/* What llm_engine_open would take with this configuration (cfg may be NULL), on the CPU, without reading a weight: milliseconds. Where it
 * does not fit, the figures are those of what was asked for, and llm_last_error() is the sentence that llm_engine_open would fail with.
 * Adapters, and pictures that are kept (mm_processor_cache_bytes), are not counted. LLM_ERR_ARG: the configuration is wrong anyway;
 * LLM_ERR_UNSUPPORTED: for a device. Any thread. */
LLM_API llm_result llm_model_estimate(const llm_model *model, const llm_engine_config *cfg, llm_estimate *out);

/* Packs the weights, takes all memory. cfg may be NULL. The model must outlive the engine. On error *out is NULL: LLM_ERR_NOMEM where
 * weights, KV cache and buffers are more than the memory that is free, with both numbers, before anything is read. */
LLM_API llm_result llm_engine_open(const llm_model *model, const llm_engine_config *cfg, llm_engine **out);
LLM_API void llm_engine_close(llm_engine *engine); /* cancels what runs; free its requests first */

typedef struct llm_engine_stats {
    int32_t n_running, n_waiting;
    int64_t total_blocks, free_blocks, cached_blocks; /* KV pages: all, unused, unused but kept for the prefix cache */
    int32_t block_size, max_model_len, max_num_seqs;
    int64_t memory_bytes; /* weights, KV and buffers of the backend */
    int64_t prompt_tokens, generation_tokens, cached_tokens, steps, preemptions;
    double step_seconds, model_seconds;                 /* in llm_engine_step; of these in the forward pass */
    const char *backend;                                /* "cpu: avx2, 2 threads; ahead=8192,near=0,band=4,signs=16,bits=1 (AMD Zen 3)" */
    int64_t drafts, draft_tokens, accepted_tokens;      /* speculation, and jumps of grammars: checks, tokens guessed, of these right */
    int64_t accepted_per_position[LLM_SPECULATIVE_MAX]; /* first, second ... token of a draft that was right */
    int64_t media_queries, media_hits, media_bytes;     /* pictures that requests brought, of these known already; bytes that are kept */
    double tower_seconds;                               /* in towers */
    int64_t queued, queued_bytes;                       /* requests that have not begun, and what they take: as it is now */
} llm_engine_stats;

LLM_API void llm_engine_get_stats(const llm_engine *engine, llm_engine_stats *out);

/* Adapters (LoRA), for an engine opened with max_loras: a PEFT folder or a GGUF adapter, under a name by which requests ask for it. All
 * of it is checked; on error nothing has changed. Where max_cpu_loras are in memory, the one that was named longest ago and is not in use
 * makes room; its files are read again when a request names it. LLM_ERR_ARG: the name is taken, LLM_ERR_LIMIT: all are in use. Any
 * thread, while steps run. What runs with an adapter that is unloaded goes on with it to its end. */
LLM_API llm_result llm_lora_load(llm_engine *engine, const char *name, const char *path);
LLM_API llm_result llm_lora_unload(llm_engine *engine, const char *name); /* LLM_ERR_ARG: no such name */
/* Of the i-th that is loaded, in the order of loading: appends name and path (either may be NULL), and tells how many sequences with it ran
 * and waited after the latest step (counts[0], [1]; NULL too). 0: there are not so many. Any thread. */
LLM_API int llm_lora_get(llm_engine *engine, int32_t i, llm_text *name, llm_text *path, int32_t counts[2]);
