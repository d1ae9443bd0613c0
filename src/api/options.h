/* options: Options by name, for programs on top of this library: from argv, the environment, a JSON file or a request's body.
 *
 * A program writes one table and one struct, the target, with its defaults in it; llm_setup_read puts what was said into it, and the
 * readers below what comes later. They stop at the first error; what came before it is set. Texts are not copied: those of argv and the
 * environment must outlive the target, those of JSON are kept until llm_options_free. One thread for each llm_options. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/hub.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/json.h"
#include "api/openai.h"

typedef enum llm_option_kind {
    LLM_OPTION_TEXT = 0, /* const char *, not empty; high above 0: of low to high bytes */
    LLM_OPTION_INT,      /* int32_t in [low, high]; 32k (1000), 32K (1024), M and G are understood */
    LLM_OPTION_INT64,
    LLM_OPTION_FLOAT,   /* float in [low, high] */
    LLM_OPTION_BOOL,    /* int32_t 0 or 1; --name, --no-name, name=true */
    LLM_OPTION_ENUM,    /* int32_t: words "a|b=2|c=3" */
    LLM_OPTION_LIST,    /* llm_option_list: may be given again; low above 0: takes several words at once; high above 0: at most so many */
    LLM_OPTION_IGNORED, /* accepted with one note: `help` says why it has no meaning; takes a value */
    LLM_OPTION_IGNORED_FLAG,
    LLM_OPTION_REFUSED, /* known, but not to be had: `help` says what it is */
    LLM_OPTION_READ,    /* of JSON: a member that the program reads itself */
    LLM_OPTION_CHOICE   /* const char *, one of the words */
} llm_option_kind;

typedef struct llm_option {
    const char *names; /* all spellings, "m|model": one letter or two take one dash; "-n" is -n in argv and --n is something else */
    llm_option_kind kind;
    int32_t group; /* of the help; below 0: not listed */
    size_t at;     /* offset in the target */
    double low, high;
    /* ENUM and CHOICE: the words; others: name of the value in the help. Of TEXT and LIST "TEXT": it must be UTF-8. Of IGNORED the words
     * that it may be; "N" or "X": a whole number, or any, in the range. */
    const char *words;
    const char *help;
} llm_option;

typedef struct llm_option_list {
    const char **items;
    int32_t n;
} llm_option_list;

/* Sources, the stronger last: no weaker one overwrites a stronger. Members of a REQUEST must have JSON's own types ("1" is no number)
 * and the spelling of the table: "top-k" is another name than "top_k". */
enum { LLM_FROM_NOWHERE = 0, LLM_FROM_FILE, LLM_FROM_ENVIRONMENT, LLM_FROM_USER, LLM_FROM_REQUEST };

typedef struct llm_options {
    const llm_option *table;
    int32_t n;
    void *target;
    unsigned char *given;                       /* (n) source of each, zeroed */
    void (*note)(void *user, const char *line); /* remarks that are no errors; may be NULL */
    void *user;
    llm_option_list owned; /* texts made on the way; freed by llm_options_free with the lists of the target */
    const char *at;        /* of llm_options_json: the latest member's name, good while the document is */
} llm_options;

/* The option of a name without its dashes, '_' and '-' being the same, and case too in names of more than one letter; NULL: unknown. */
LLM_API const llm_option *llm_options_find(const llm_options *o, const char *name, size_t len);
/* Sets one of o->table, unless a stronger source has. `said` is how it was spelled, for messages. LLM_ERR_ARG names option, value and what
 * was expected; LLM_ERR_UNSUPPORTED for a REFUSED one; LLM_ERR_NOMEM. */
LLM_API llm_result llm_options_set(llm_options *o, const llm_option *option, const char *said, const char *value, int source);
/* Sets every known member of an object; null leaves a default. Of a LIST an array's elements, and of {"a": "b"} the text "a=b". Unknown
 * ones are an error, or go to `unknown` (not NULL) as "a, b". Two names of one option with different values are LLM_ERR_ARG, but from the
 * USER, of whom the last counts. */
LLM_API llm_result llm_options_json(llm_options *o, const llm_json *doc, int object, int source, llm_text *unknown);
/* The help of a program, in lines of at most 80 columns: the groups of LLM_OPTIONS_SETUP, then n of its own under their titles. */
LLM_API void llm_options_help(const llm_options *o, const char *const *titles, int n, llm_text *out);
/* Rows of such a help: of a group (-1: of all) those that are among `names` ("p|prompt|json"; NULL: all of them). What is ignored or
 * refused is understood but not advertised. Left column: the first name, and the second when the first is short; right from 35 on. */
LLM_API void llm_options_rows(const llm_options *o, int group, const char *names, llm_text *out);
/* More of a help: what is understood and has no effect, or is refused, with the reasons. */
LLM_API void llm_options_idle(const llm_options *o, llm_text *out);
/* What every name comes to, as JSON: [{"name", "verdict": "works", "ignored" or "refused", "takes", "why"}, ...]. */
LLM_API void llm_options_verdicts(const llm_options *o, llm_text *out);
/* Notes for variables of an environment, "NAME=VALUE" up to a NULL, that are meant for this program or one of its kind (LLM_ARG_, VLLM_,
 * LLAMA_ARG_, LMDEPLOY_, FD_, OLLAMA_) and are no option: a variable that was misspelt, or that another program reads, is silent
 * otherwise, and nobody sees that it did nothing. They are notes and no errors, since such variables are often there for programs beside
 * this one. Only names are told, for a value may be a secret. */
LLM_API void llm_options_strangers(const llm_options *o, const char *const *environment);
/* When all is open: notes for options that were given and have no effect as things are: of a GPU where the CPU computes, of swapping where
 * nothing is swapped, and the like. */
LLM_API void llm_options_report(const llm_options *o, const llm_engine *engine);
/* Appends a sentence of this library, or a note, with the options as the user wrote them: "max_model_len: 9 is ..." becomes "-c: 9 is ...".
 * What a file says ("config.json: ...") keeps the file's names. argv and get: as in llm_setup_read. */
LLM_API void llm_options_sentence(const llm_options *o, int argc, char **argv, char *(*get)(const char *name), const char *sentence,
                                  llm_text *out);
LLM_API int llm_options_given(const llm_options *o, const char *name); /* the source that set it; its value may equal the default */
/* Frees the texts that came from JSON and the items of all lists in the target; the target's texts from JSON are gone then. */
LLM_API void llm_options_free(llm_options *o);

/* Rows of a table for a struct T, by kind. */
/* clang-format off */
#define LLM_OPT_TEXT(T, member, group, names, what, help) {names, LLM_OPTION_TEXT, group, offsetof(T, member), 0, 0, what, help}
#define LLM_OPT_INT(T, member, group, names, low, high, help) {names, LLM_OPTION_INT, group, offsetof(T, member), low, high, "N", help}
#define LLM_OPT_FLOAT(T, member, group, names, low, high, help) {names, LLM_OPTION_FLOAT, group, offsetof(T, member), low, high, "X", help}
#define LLM_OPT_BOOL(T, member, group, names, help) {names, LLM_OPTION_BOOL, group, offsetof(T, member), 0, 0, NULL, help}
#define LLM_OPT_CHOICE(T, member, group, names, words, help) {names, LLM_OPTION_CHOICE, group, offsetof(T, member), 0, 0, words, help}
#define LLM_OPT_ENUM(T, member, group, names, words, help) {names, LLM_OPTION_ENUM, group, offsetof(T, member), 0, 0, words, help}
/* A field that has a row LLM_FIELD_x: kind and range come from there. `in` is the struct of the field in T. */
#define LLM_OPT_FIELD(T, in, field, group, names, help) LLM_OPT_FIELD_ROW(names, group, offsetof(T, in.field), help, LLM_FIELD_##field)
#define LLM_OPT_FIELD_ROW(...) LLM_OPT_FIELD_CUT(__VA_ARGS__)
#define LLM_OPT_FIELD_CUT(names, group, at, help, kind, least, most, otherwise, unit) \
    {names, LLM_OPTION_##kind, group, at, least, most, LLM_OPT_VALUE_##kind(unit), help}
#define LLM_OPT_VALUE_INT(unit) "N"
#define LLM_OPT_VALUE_INT64(unit) "N"
#define LLM_OPT_VALUE_FLOAT(unit) "X"
#define LLM_OPT_VALUE_ENUM(words) words
#define LLM_OPT_NONE(kind, names, why) {names, LLM_OPTION_##kind, -1, 0, 0, 0, NULL, why} /* IGNORED, IGNORED_FLAG, REFUSED */
/* IGNORED, but a value that nobody documents is refused: one of the words, or a number ("N": a whole one, "X"). */
#define LLM_OPT_NONE_OF(names, words, why) {names, LLM_OPTION_IGNORED, -1, 0, 0, 0, words, why}
#define LLM_OPT_NONE_NUMBER(names, n_or_x, low, high, why) {names, LLM_OPTION_IGNORED, -1, 0, low, high, n_or_x, why}
/* clang-format on */

/* Rows for the library's own structs, each member under the names of vLLM, FastDeploy, LMDeploy and llama.cpp: T is the type of the
 * target, the second argument its member. A word that begins with '$' is an environment variable, without a prefix. */
#define LLM_OPTIONS_MODEL(T, m, group) \
    LLM_OPT_TEXT(T, m.tokenizer, group, "tokenizer", "PATH", "tokenizer of another folder or file"), \
        LLM_OPT_TEXT(T, m.chat_template, group, "chat-template|chat-template-file", "FILE", \
                     "chat template: a file, its text, or for models without one a name: chatml, llama-3, ..."), \
        LLM_OPT_ENUM( \
            T, m.dummy_weights, group, "load-format", \
            "auto|safetensors|gguf|dummy=1|dummy-fp8=2|dummy-q4=3|hf|pt|npcache|mistral|bitsandbytes|fastsafetensors|runai_streamer", \
            "dummy: random weights from config.json alone"), \
        LLM_OPT_BOOL(T, m.no_mmap, group, "no-mmap", \
                     "read files whole instead of mapping them: they may be changed or cut short while they are used"), \
        LLM_OPT_CHOICE(T, m.quantization, group, "q|quantization", LLM_QUANTIZATIONS, \
                       "what the files must be; of floats what they become while loading (q4_k, nf4, ...)"), \
        LLM_OPT_TEXT(T, m.hf_overrides, group, "hf-overrides", "JSON", \
                     "over a folder's config.json: {\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, ...}}"), \
        LLM_OPT_FLOAT(T, m.rope_scaling_factor, group, "rope-scaling-factor", 0, 1000, \
                      "dynamic NTK: prompts longer than the model's length, by so much at most (0: as the files say)"), \
        LLM_OPT_BOOL(T, m.use_logn_attn, group, "use-logn-attn", "scale queries beyond the model's length by its logarithm"), \
        LLM_OPT_TEXT(T, m.mmproj, group, "mm|mmproj", "FILE", \
                     "of a GGUF model what it sees with: llama.cpp's second file (beside a model of the Hub or of a folder it is found)"), \
        LLM_OPT_BOOL(T, m.language_model_only, group, "language-model-only|no-mmproj|disable-vision-encoder", \
                     "of a model with vision the text part alone"), \
        LLM_OPT_ENUM(T, m.no_generation_config, group, "generation-config", "auto|vllm=1", \
                     "vllm: sampling defaults are vLLM's, whatever generation_config.json says")

#define LLM_QUANTIZATIONS \
    "None|awq|gptq|gpt|smoothquant|smooth_quant|weight_only_int8|fp8|gguf|compressed-tensors|mxfp4|bitsandbytes|awq_marlin|gptq_marlin|" \
    "fbgemm_fp8|modelopt|ascend|bitnet|auto-round|wint8|wint4|int8_weight_only|nf4|q8_0|q6_k|q5_k|q5_0|q4_k|q4_1|q4_0|q3_k|q2_k"

#define LLM_OPTIONS_ENGINE(T, e, group) \
    LLM_OPT_FIELD(T, e, max_model_len, group, "c|max-model-len|ctx-size|session-len", "context: tokens of prompt and answer"), \
        LLM_OPT_BOOL(T, e.allow_long_max_model_len, group, "allow-long-max-model-len|$VLLM_ALLOW_LONG_MAX_MODEL_LEN", \
                     "let it exceed the model's own length"), \
        LLM_OPT_FIELD(T, e, max_num_seqs, group, "np|max-num-seqs|parallel|n-parallel|max-batch-size", \
                      "sequences that run together (server 64, with a GPU 256; batch 16)"), \
        LLM_OPT_FIELD(T, e, max_num_batched_tokens, group, "max-num-batched-tokens|batch-size|max-prefill-token-num", \
                      "tokens of one step (512)"), \
        LLM_OPT_FIELD(T, e, max_queue, group, "max-queue", "requests that may wait (1024); 0: none, who finds no place gets 429"), \
        LLM_OPT_FIELD(T, e, block_size, group, "block-size|cache-block-seq-len", \
                      "tokens of a KV page (32; of models with recurrent layers 64 to 1024)"), \
        LLM_OPT_FIELD(T, e, kv_cache_memory_bytes, group, "kv-cache-memory-bytes", "memory of the KV cache"), \
        LLM_OPT_BOOL(T, e.kv_cache_prealloc, group, "kv-cache-prealloc", "take that memory at start, not when it is first used"), \
        LLM_OPT_ENUM(T, e.kv_cache_dtype, group, "kv-cache-dtype|ctk|ctv|cache-type-k|cache-type-v", \
                     "auto|fp8=4|fp8_e4m3=4|fp8_e5m2=5|int8=6|int4=7|q8_0=6|q4_0=7|float32=1|f32=1|float16=2|f16=2|bfloat16=3|bf16=3", \
                     "type of the KV cache"), \
        LLM_OPT_FIELD(T, e, n_threads, group, "t|threads", "threads (all cores)"), \
        LLM_OPT_TEXT(T, e.device, group, "device", "NAME", "auto, cpu, cuda"), \
        LLM_OPT_TEXT(T, e.cuda_library, group, "cuda-library|$LLM_CUDA_LIBRARY", "PATH", \
                     "library of the device's backend (libllm_cuda.so beside this program)"), \
        LLM_OPT_BOOL(T, e.enforce_eager, group, "enforce-eager|eager-mode", "GPU: steps are not recorded as graphs"), \
        LLM_OPT_TEXT(T, e.cuda_graph_sizes, group, "cuda-graph-sizes|cudagraph-capture-sizes|$PTA_TORCHAIR_DECODE_GEAR_LIST", "LIST", \
                     "GPU: batch sizes that are recorded as graphs: 2,4,8,16 (1, 2, 4, multiples of 8)"), \
        LLM_OPT_FIELD(T, e, max_seq_len_to_capture, group, "max-seq-len-to-capture", "GPU: steps with longer sequences are not recorded"), \
        LLM_OPT_BOOL(T, e.batch_invariant, group, "batch-invariant|$VLLM_BATCH_INVARIANT", \
                     "GPU: logits do not depend on who else is in the batch (a CPU always)"), \
        LLM_OPT_TEXT(T, e.isa, group, "isa", "NAME", "instruction set: scalar, avx2, avxvnni, avx512, avx512vnni, avx512bf16, amx, neon"), \
        LLM_OPT_TEXT(T, e.tuning, group, "tuning", "LIST", \
                     "what changes times and no answer: auto, measure, ahead=BYTES, near=BYTES (AVX-512), band=N, signs=N (AVX2), " \
                     "bits=0|1 (auto: by the processor)"), \
        LLM_OPT_FIELD(T, e, pipeline_parallel_size, group, "pp|pipeline-parallel-size", \
                      "pieces into which the layers are cut, each on devices of its own"), \
        LLM_OPT_FIELD(T, e, tensor_parallel_size, group, "tp|tensor-parallel-size", "ranks that share every layer"), \
        LLM_OPT_ENUM(T, e.dtype, group, "dtype", "auto|float32=1|float=1|f32=1|bfloat16=2|bf16=2|float16=3|half=3|f16=3", "arithmetic"), \
        LLM_OPT_FIELD(T, e, gpu_memory_utilization, group, "gpu-memory-utilization", "share of a GPU's memory (0.9)"), \
        LLM_OPT_ENUM(T, e.preemption_swap, group, "preemption-mode|eviction-type", "recompute|swap=1|copy=1", \
                     "what becomes of a sequence that must give way"), \
        LLM_OPT_FIELD(T, e, swap_space, group, "swap-space", "GiB of host memory for sequences that give way by swap (4)"), \
        LLM_OPT_FIELD(T, e, num_cpu_blocks, -1, "num-cpu-blocks", NULL), \
        LLM_OPT_FIELD(T, e, num_gpu_blocks, -1, "num-gpu-blocks|num-gpu-blocks-override", NULL), \
        LLM_OPT_FIELD(T, e, cache_max_entry_count, group, "cache-max-entry-count", \
                      "KV cache: share of the memory that is free, or (above 1) so many pages"), \
        LLM_OPT_FIELD(T, e, scheduler_delay_factor, group, "scheduler-delay-factor", \
                      "new prompts wait X prompt steps for others while answers go on (0)"), \
        LLM_OPT_FIELD(T, e, prefill_interval, group, "prefill-interval", "new prompts join every N steps (1)"), \
        LLM_OPT_TEXT(T, e.speculative_model, group, "md|speculative-model|model-draft|spec-draft-model", "NAME", \
                     "guesses tokens ahead: a smaller model, an EAGLE or EAGLE-3 head, [mtp] or [ngram]"), \
        LLM_OPT_FIELD(T, e, num_speculative_tokens, group, "num-speculative-tokens|draft-max|draft|draft-n|spec-draft-n-max", "how many"), \
        LLM_OPT_FIELD(T, e, ngram_prompt_lookup_max, group, "ngram-prompt-lookup-max", "tokens that a lookup compares at most (16)"), \
        LLM_OPT_FIELD(T, e, ngram_prompt_lookup_min, group, "ngram-prompt-lookup-min", "tokens that must be equal (3)"), \
        LLM_OPT_TEXT(T, e.speculative_config, group, "speculative-config|sc", "JSON", \
                     "{\"model\", \"method\", \"num_speculative_tokens\", \"prompt_lookup_max\", \"prompt_lookup_min\"}"), \
        LLM_OPT_BOOL(T, e.eagle_lab_style, -1, "$EAGLE_USE_SAFE_AI_LAB_STYLE", NULL), \
        LLM_OPT_TEXT(T, e.lora, group, "lora", "PATH", "an adapter for all requests: PEFT folder or GGUF file"), \
        LLM_OPT_FIELD(T, e, max_lora_rank, group, "max-lora-rank", "largest rank of an adapter (16)"), \
        LLM_OPT_FIELD(T, e, max_loras, group, "max-loras", "adapters that compute in one step (1)"), \
        LLM_OPT_FIELD(T, e, max_cpu_loras, group, "max-cpu-loras", "adapters that are in memory at once (max-loras)")

#define LLM_OPTIONS_SAMPLING(T, s, group) \
    LLM_OPT_FIELD(T, s, max_tokens, group, "max-tokens|-n|max-new-tokens|request-output-len|max-completion-tokens|n-predict|predict", \
                  "longest answer, also -n; -1: up to the context's end"), \
        LLM_OPT_FIELD(T, s, temperature, group, "temperature|temp", "0: the most likely token, always"), \
        LLM_OPT_FIELD(T, s, top_k, group, "top-k", "of the N most likely; 0 or -1: all"), \
        LLM_OPT_FIELD(T, s, top_p, group, "top-p", "of the fewest that reach this probability"), \
        LLM_OPT_FIELD(T, s, min_p, group, "min-p", "none below this share of the best"), \
        LLM_OPT_FIELD(T, s, min_tokens, group, "min-tokens|min-new-tokens", "no end before"), \
        LLM_OPT_FIELD(T, s, repetition_penalty, group, "repetition-penalty|repeat-penalty", "above 0 to 2; 1: none"), \
        LLM_OPT_FIELD(T, s, presence_penalty, group, "presence-penalty", "-2 to 2"), \
        LLM_OPT_FIELD(T, s, frequency_penalty, group, "frequency-penalty", "-2 to 2"), \
        {"s|seed|random-seed", LLM_OPTION_INT64, group, offsetof(T, s.seed), -9.3e18, 9.3e18, "N", "the same seed gives the same answer"}, \
        LLM_OPT_FIELD(T, s, n, group, "num-answers|n", "answers to one prompt, --n"), \
        LLM_OPT_FIELD(T, s, best_of, group, "best-of", "the likeliest of so many"), \
        LLM_OPT_BOOL(T, s.ignore_eos, group, "ignore-eos", "EOS does not end the answer"), \
        LLM_OPT_BOOL(T, s.include_stop_str_in_output, group, "include-stop-str-in-output", "the text keeps what ended it")

/* What the documents name and has no meaning here, or not yet: each is accepted with one line that says why, or refused with one. */
#define LLM_OPTIONS_FOREIGN \
    LLM_OPT_NONE_OF("distributed-executor-backend", "ray|mp|uni|external_launcher", \
                    "a GPU's ranks are threads, or in the processes that --nnodes, torchrun, mpirun, srun or Ray's workers start"), \
        LLM_OPT_NONE_NUMBER("engine-worker-queue-port", "N", 0, 65535, "one process runs everything here"), \
        LLM_OPT_NONE_NUMBER("kv-cache-ratio", "X", 0, 1, "pages are not parted between prompts and answers"), \
        LLM_OPT_NONE_NUMBER("cpu-offload-gb", "X", 0, 1e6, "all weights are where the model computes"), \
        LLM_OPT_NONE(IGNORED, "n-gpu-layers|ngl|gpu-layers", "all layers are on the device that --device names"), \
        LLM_OPT_NONE_OF("tokenizer-mode", "auto|slow|fast|mistral|custom", "the tokenizer's files decide"), \
        LLM_OPT_NONE(IGNORED, "tokenizer-extension-path|code-revision", "nothing of a model folder is ever executed"), \
        LLM_OPT_NONE(IGNORED_FLAG, "trust-remote-code", "nothing of a model folder is ever executed"), \
        LLM_OPT_NONE(IGNORED_FLAG, "flash-attn|fa", "attention never writes its scores to memory here"), \
        LLM_OPT_NONE(IGNORED_FLAG, \
                     "use-v2-block-manager|disable-async-output-proc|cont-batching|cb|nocb|jinja|speculative-disable-mqa-scorer|" \
                     "disable-logprobs-during-spec-decoding", \
                     "this engine always works that way"), \
        LLM_OPT_NONE(IGNORED_FLAG, \
                     "disable-log-requests|disable-log-stats|metrics|enable-prompt-tokens-details|enable-auto-tool-choice|" \
                     "enable-tokenizer-info-endpoint|no-warmup|enable-logprob|use-tqdm", \
                     "it is always so here"), \
        LLM_OPT_NONE_OF("response-role", "assistant", "answers are the assistant's"), \
        LLM_OPT_NONE_OF("guided-decoding-backend", LLM_GUIDED_BACKENDS, "there is one, built in"), \
        LLM_OPT_NONE_OF("$USE_PFA_HIGH_PRECISION_MODE|$USE_IFA_HIGH_PRECISION_MODE|$USE_PREFIX_HIGH_PRECISION_MODE", "0|1", \
                        "attention always accumulates in float32"), \
        LLM_OPT_NONE_OF("$HCCL_OP_EXPANSION_MODE", "AIV|AI_CPU|HOST|HOST_TS", "no NPU computes here"), \
        LLM_OPT_NONE(IGNORED, "$PYTORCH_NPU_ALLOC_CONF", "all memory is taken at start"), \
        LLM_OPT_NONE_OF("$INFER_MODE", "PTA", "a GPU's steps are recorded as graphs unless --enforce-eager, a CPU has none"), \
        LLM_OPT_NONE_OF("$PTA_TORCHAIR_DECODE_GEAR_ENABLE", "0|1", "graphs are made for the batch sizes that come"), \
        LLM_OPT_NONE_OF("$ENABLE_SPEC_METRIC", "0|1", "the metrics of drafts cost nothing and are always there"), \
        LLM_OPT_NONE(IGNORED_FLAG, "enable-mm", "whether a model sees is known by its files"), \
        LLM_OPT_NONE_NUMBER("speculative-draft-tensor-parallel-size", "N", 1, 64, "a draft model computes on the first rank"), \
        LLM_OPT_NONE_NUMBER("speculative-disable-by-batch-size", "N", 0, 1e9, "drafts are measured, and end where they do not pay"), \
        LLM_OPT_NONE_OF("spec-decoding-acceptance-method", "rejection_sampler|typical_acceptance_sampler", \
                        "drafts never change an answer"), \
        LLM_OPT_NONE_NUMBER("typical-acceptance-sampler-posterior-threshold|typical-acceptance-sampler-posterior-alpha", "X", 0, 1e6, \
                            "drafts never change an answer"), \
        LLM_OPT_NONE(IGNORED, "speculative-model-quantization", "the draft model's files say what it is"), \
        LLM_OPT_NONE_NUMBER("speculative-max-model-len", "N", 1, 2147483647, "drafts end where the draft model's context does"), \
        LLM_OPT_NONE_NUMBER("num-lookahead-slots", "N", 0, 1e6, "pages are found for every draft"), LLM_OPTIONS_RELATED

#define LLM_GUIDED_BACKENDS "auto|outlines|lm-format-enforcer|xgrammar|guidance|llguidance"

/* The same of vLLM's, llama-server's, FastDeploy's and LMDeploy's command lines as they are today. What a name of theirs comes to here:
 *
 *   it has a meaning here        it is among the names of the option that has it (allow-origins, cache-type-k, server-port, ...)
 *   it tunes what is not here    ignored, and a note says why: other kernels, other schedulers, telemetry, pages in a browser
 *   it would change answers      refused, with what to say instead, for a server that goes on without it answers something else
 *   one value is what is so      LLM_OPT_NONE_OF, LLM_OPT_NONE_NUMBER: this value is no error, another one is refused
 *
 * A switch takes no value and a name no bound of its own: what is not understood must not be read as a model's path, so a row says
 * whether a value follows as the others' command lines have it. tests/data/documents/related.txt lists the names, and
 * tests/e2e/test_related.py says every one of them to the programs. */
#define LLM_OPTIONS_RELATED \
    LLM_OPT_NONE(IGNORED_FLAG, \
                 "enable-request-id-headers|exclude-tools-when-tool-choice-none|enable-server-load-tracking|enable-metrics|" \
                 "enable-offline-docs|log-prefix|log-timestamps|mmap|kv-unified|kvu|no-context-shift|ui|webui|" \
                 "models-autoload|warmup|calculate-kv-scales|lm-head-fp32|check-tensors|repack", \
                 "it is always so here"), \
        LLM_OPT_NONE(IGNORED_FLAG, "embedding|embeddings|rerank|reranking", "all routes that a model has are served"), \
        LLM_OPT_NONE_OF("task", "auto|generate|embedding|embed|classify|score|reward|draft", "all routes that a model has are served"), \
        LLM_OPT_NONE_OF("runner", "auto|generate|pooling|draft", "all routes that a model has are served"), \
        LLM_OPT_NONE_OF("convert", "auto|none|embed|classify|reward", "all routes that a model has are served"), \
        LLM_OPT_NONE_OF("model-impl", "auto|vllm|transformers|terratorch|fastdeploy", "there is one implementation"), \
        LLM_OPT_NONE_OF("backend", "turbomind|pytorch", "there is one engine"), \
        LLM_OPT_NONE_NUMBER("async", "N", 0, 1, "there is one engine"), \
        LLM_OPT_NONE_OF("config-format", "auto|hf|mistral", "the model's files say what they are"), \
        LLM_OPT_NONE_OF("logprobs-mode", "raw_logprobs", "log-probabilities are the model's own, before anything bends them"), \
        LLM_OPT_NONE_OF("scheduling-policy", "fcfs|priority", "who comes first is first, unless requests say `priority`"), \
        LLM_OPT_NONE(IGNORED, "scheduler-cls|scheduler-name", "there is one scheduler"), \
        LLM_OPT_NONE(IGNORED_FLAG, "async-scheduling|scheduler-reserve-full-isl|enable-overlap-schedule|multi-step-stream-outputs", \
                     "on a GPU the next step is always planned ahead"), \
        LLM_OPT_NONE(IGNORED, \
                     "max-num-partial-prefills|max-long-partial-prefills|long-prefill-token-threshold|max-prefill-iters|" \
                     "num-tokens-per-iter|ubatch-size|ub|static-decode-blocks", \
                     "--max-num-batched-tokens is what a step takes, answers first"), \
        LLM_OPT_NONE(IGNORED, \
                     "compilation-config|cc|optimization-level|O|graph-optimization-config|kernel-config|attention-config|ac|" \
                     "attention-backend|moe-backend|performance-mode|mamba-backend|additional-config|profiler-config", \
                     "kernels are chosen by the processor; --enforce-eager and --cuda-graph-sizes are for graphs"), \
        LLM_OPT_NONE(IGNORED_FLAG, "O0|O1|O2|O3|use-cudagraph|enable-flashinfer-autotune", \
                     "kernels are chosen by the processor; --enforce-eager and --cuda-graph-sizes are for graphs"), \
        LLM_OPT_NONE(IGNORED, "max-cudagraph-capture-size", "--cuda-graph-sizes says which"), \
        LLM_OPT_NONE_NUMBER("use-warmup|dynamic-load-weight", "N", 0, 0, "a model is ready once it is loaded, and stays as it is"), \
        LLM_OPT_NONE(IGNORED, \
                     "load-strategy|load-choices|safetensors-load-strategy|model-loader-extra-config|ignore-patterns|" \
                     "pt-load-map-location|max-parallel-loading-workers|load-mode|lm", \
                     "files are mapped and packed by all threads; --no-mmap reads them"), \
        LLM_OPT_NONE(IGNORED_FLAG, "use-tqdm-on-load|mlock|direct-io|dio|no-repack|nr", \
                     "files are mapped and packed by all threads; --no-mmap reads them"), \
        LLM_OPT_NONE(IGNORED, "threads-batch|tb|poll|prio|numa|cpu-mask|cpu-range|cpu-strict|threads-draft|td|threads-batch-draft", \
                     "all work is shared by --threads; taskset, numactl and nice say where"), \
        LLM_OPT_NONE(IGNORED, "threads-http|api-server-count|asc|max-concurrent-requests|renderer-num-workers", \
                     "one thread has all connections; --workers, --max-num-seqs and --max-queue have bounds"), \
        LLM_OPT_NONE(IGNORED_FLAG, "disable-frontend-multiprocessing|numa-bind|engine-use-ray|worker-use-ray", \
                     "one process runs everything here"), \
        LLM_OPT_NONE(IGNORED, \
                     "override-neuron-config|tokenizer-pool-size|tokenizer-pool-type|tokenizer-pool-extra-config|" \
                     "cache-queue-port|controller-port|pd-comm-port|rdma-comm-ports|innode-prefill-ports|" \
                     "cache-transfer-protocol|migration-backend|data-parallel-rpc-port|dpp|data-parallel-address|dpa|" \
                     "data-parallel-backend|dpb|worker-cls|worker-extension-cls|distributed-timeout-seconds", \
                     "one process runs everything here"), \
        LLM_OPT_NONE_NUMBER("dp|data-parallel-size|data-parallel-size-local|dpl", "N", 1, 1, \
                            "more of them are more servers behind a router"), \
        LLM_OPT_NONE_NUMBER("decode-context-parallel-size|dcp|prefill-context-parallel-size|pcp|cp", "N", 1, 1, \
                            "one sequence's cache is where its heads are"), \
        LLM_OPT_NONE(IGNORED_FLAG, \
                     "ep|enable-expert-parallel|enable-eplb|enable-dbo|enable-microbatch|disable-sequence-parallel-moe|" \
                     "ray-workers-use-nsight|disable-custom-all-reduce|disable-nccl-for-dp-synchronization", \
                     "ranks share every layer, its experts too, by --tensor-parallel-size"), \
        LLM_OPT_NONE(IGNORED, \
                     "eplb-config|num-redundant-experts|expert-placement-strategy|all2all-backend|communicator|" \
                     "dbo-decode-token-threshold|dbo-prefill-token-threshold", \
                     "ranks share every layer, its experts too, by --tensor-parallel-size"), \
        LLM_OPT_NONE_OF("splitwise-role", "mixed", "one process computes prompts and answers"), \
        LLM_OPT_NONE_OF("role", "Hybrid", "one process computes prompts and answers"), \
        LLM_OPT_NONE(IGNORED, "prefix-caching-hash-algo", "equal pages are found by a keyed hash, and their tokens compared"), \
        LLM_OPT_NONE(IGNORED, "cache-ram|cram|ctx-checkpoints|swa-checkpoints|cache-reuse|slot-prompt-similarity|sps|defrag-thold|dt", \
                     "prompts share the pages of what they begin with; --kv-cache-memory-bytes bounds them"), \
        LLM_OPT_NONE(IGNORED_FLAG, \
                     "swa-full|disable-hybrid-kv-cache-manager|kv-sharing-fast-prefill|disable-cascade-attn|" \
                     "kv-offload|no-kv-offload|nkvo|op-offload|no-op-offload|no-host|cache-idle-slots", \
                     "pages hold what layers look at, and are where the model computes"), \
        LLM_OPT_NONE_OF("mamba-cache-dtype|mamba-ssm-cache-dtype", "auto|float32", "states are kept as float32"), \
        LLM_OPT_NONE(IGNORED, "mamba-block-size|mamba-cache-mode", "--block-size says how far apart states are kept"), \
        LLM_OPT_NONE(IGNORED, \
                     "mm-processor-cache-gb|mm-processor-cache-type|mm-shm-cache-max-object-size-mb|mm-encoder-tp-mode|" \
                     "mm-encoder-attn-backend|vision-max-batch-size|mtmd-batch-max-tokens", \
                     "what was seen stays in a cache of its own"), \
        LLM_OPT_NONE(IGNORED_FLAG, \
                     "disable-mm-preprocessor-cache|skip-mm-profiling|disable-chunked-mm-input|mmproj-offload|" \
                     "no-mmproj-offload|mmproj-auto|enable-multimodal-encoder-data-parallel", \
                     "a picture is seen once, on the device of the model"), \
        LLM_OPT_NONE_OF("lora-dtype", "auto|float32|float16|bfloat16", "an adapter is computed as its files have it"), \
        LLM_OPT_NONE(IGNORED, "lora-extra-vocab-size", "adapters do not add tokens"), \
        LLM_OPT_NONE(IGNORED_FLAG, "fully-sharded-loras|specialize-active-lora", "an adapter is divided as its layer is"), \
        LLM_OPT_NONE(IGNORED, \
                     "draft-min|draft-n-min|spec-draft-n-min|draft-p-min|spec-draft-p-min|spec-draft-p-split|ctx-size-draft|cd|" \
                     "device-draft|devd|gpu-layers-draft|ngld|n-gpu-layers-draft|cache-type-k-draft|ctkd|cache-type-v-draft|" \
                     "ctvd", \
                     "drafts never change an answer; the draft model is where the model is"), \
        LLM_OPT_NONE(IGNORED, \
                     "uvicorn-log-level|disable-access-log-for-endpoints|max-log-len|log-colors|log-config-file|verbosity|log-verbosity", \
                     "--log-level, --log-requests and --log-format say what is told"), \
        LLM_OPT_NONE( \
            IGNORED_FLAG, \
            "disable-uvicorn-access-log|enable-log-outputs|enable-log-deltas|log-error-stack|log-disable|log-verbose|log-jsonl|perf|" \
            "aggregate-engine-logging|enable-logging-iteration-details|cudagraph-metrics|kv-cache-metrics|" \
            "enable-layerwise-nvtx-tracing|fail-on-environ-validation|enable-mfu-metrics", \
            "--log-level, --log-requests and --log-format say what is told"), \
        LLM_OPT_NONE(IGNORED, \
                     "allowed-methods|allowed-headers|allow-methods|allow-headers|cors-methods|cors-headers|" \
                     "h11-max-incomplete-event-size|h11-max-header-count", \
                     "a page that --cors-origins names may send what the server reads"), \
        LLM_OPT_NONE(IGNORED_FLAG, "allow-credentials|cors-credentials", "keys come in a header, which pages may send"), \
        LLM_OPT_NONE(IGNORED, "show-hidden-metrics-for-version|tags|ui-config|webui-config|ui-config-file", \
                     "there is nothing like it here"), \
        LLM_OPT_NONE_OF("fit", "on|off", "what does not fit is told at start"), \
        LLM_OPT_NONE(IGNORED, "fit-target|fit-ctx", "what does not fit is told at start"), \
        LLM_OPT_NONE_NUMBER("embd-normalize", "N", 2, 2, "requests say `normalize`: false where vectors are to keep their length"), \
        LLM_OPT_NONE_NUMBER("sleep-idle-seconds", "N", -1, -1, "a model stays loaded; --max-loaded-models is a limit"), \
        LLM_OPT_NONE_NUMBER("max-waiting-time", "N", -1, -1, "--timeout and --max-queue are limits"), \
        LLM_OPT_NONE_NUMBER("keep", "N", -1, 2147483647, "an answer ends where the context does"), \
        LLM_OPT_NONE_NUMBER("mirostat|dynatemp-range|xtc-probability|dry-multiplier", "X", 0, 0, "this way of sampling is not supported"), \
        LLM_OPT_NONE_NUMBER("typical|typical-p", "X", 1, 1, "this way of sampling is not supported"), \
        LLM_OPT_NONE_NUMBER("top-nsigma|top-n-sigma", "X", -1, -1, "this way of sampling is not supported"), \
        LLM_OPT_NONE_NUMBER("mirostat-lr|mirostat-ent|dynatemp-exp|xtc-threshold|dry-base|dry-allowed-length|dry-penalty-last-n", "X", \
                            -1e9, 1e9, "this way of sampling is off"), \
        LLM_OPTIONS_RELATED_REFUSED

/* What would change answers, or who is let in. */
#define LLM_OPTIONS_RELATED_REFUSED \
    LLM_OPT_NONE(REFUSED, \
                 "ssl-keyfile|ssl-certfile|ssl-ca-certs|ssl-cert-reqs|ssl-ciphers|enable-ssl-refresh|ssl|ssl-key-file|" \
                 "ssl-cert-file", \
                 "TLS (a proxy in front has it)"), \
        LLM_OPT_NONE(REFUSED, "root-path|api-prefix", "a prefix of paths (a proxy in front can take it off)"), \
        LLM_OPT_NONE(REFUSED, \
                     "middleware|logits-processors|logits-processor-pattern|io-processor-plugin|tool-parser-plugin|" \
                     "reasoning-parser-plugin", \
                     "code of one's own"), \
        LLM_OPT_NONE(REFUSED, "tool-server|tools|mcp-servers-config|mcp-servers-json|agent", "tools that the server itself runs"), \
        LLM_OPT_NONE(REFUSED, "trust-request-chat-template", "a template that a request brings (--chat-template)"), \
        LLM_OPT_NONE(REFUSED, "chat-template-content-format", "a form of contents by option (the template is asked what it reads)"), \
        LLM_OPT_NONE(REFUSED, \
                     "structured-outputs-config|guided-decoding-disable-any-whitespace|" \
                     "guided-decoding-disable-additional-properties", \
                     "a form for all requests (each says it in `structured_outputs`)"), \
        LLM_OPT_NONE(IGNORED_FLAG, "guided-decoding-disable-fallback|enable-reasoning", "there is one way, built in"), \
        LLM_OPT_NONE(REFUSED, \
                     "kv-transfer-config|kv-events-config|ec-transfer-config|kv-offloading-size|kv-offloading-backend|" \
                     "offload-backend|weight-transfer-config", \
                     "a cache outside of this process (--context-dir keeps contexts as files)"), \
        LLM_OPT_NONE(REFUSED, \
                     "data-parallel-rank|dpn|data-parallel-start-rank|dpr|data-parallel-hybrid-lb|dph|" \
                     "data-parallel-external-lb|dpe|headless|proxy-url|router", \
                     "a server as a part of another's (a router takes each for itself: README)"), \
        LLM_OPT_NONE(REFUSED, "grpc|tokens-only", "another protocol than HTTP"), \
        LLM_OPT_NONE(REFUSED, "enable-sleep-mode|enable-elastic-ep", "a model that is put to sleep (--max-loaded-models)"), \
        LLM_OPT_NONE(REFUSED, "enable-prompt-embeds|enable-mm-embeds", "vectors in the place of tokens"), \
        LLM_OPT_NONE(REFUSED, "otlp-traces-endpoint|collect-detailed-traces", "OpenTelemetry (/metrics, --log-requests)"), \
        LLM_OPT_NONE(REFUSED, "hf-token|hft", "a token that all users of the machine see (HF_TOKEN in the environment)"), \
        LLM_OPT_NONE(REFUSED, "tokenizer-revision|hf-config-path", "files of another revision (--tokenizer)"), \
        LLM_OPT_NONE(REFUSED, "skip-tokenizer-init", "a model without its tokenizer"), \
        LLM_OPT_NONE( \
            REFUSED, \
            "override-kv|rope-scaling|rope-scale|rope-theta|rope-freq-base|rope-freq-scale|yarn-orig-ctx|" \
            "yarn-ext-factor|yarn-attn-factor|yarn-beta-slow|yarn-beta-fast", \
            "that as an option of its own (--hf-overrides is over a folder's config.json, --rope-scaling-factor is dynamic NTK)"), \
        LLM_OPT_NONE(REFUSED, \
                     "disable-sliding-window|override-attention-dtype|plas-attention-config|dllm-block-length|" \
                     "video-pruning-rate|reasoning-config|mm-encoder-only|default-mm-loras|media-io-kwargs", \
                     "computing other than the model's files say"), \
        LLM_OPT_NONE(REFUSED, \
                     "enable-lora-bias|long-lora-scaling-factors|qlora-adapter-name-or-path|enable-prompt-adapter|" \
                     "prompt-adapters|max-prompt-adapters|max-prompt-adapter-token|lora-scaled|lora-init-without-apply|" \
                     "control-vector|control-vector-scaled|control-vector-layer-range", \
                     "this kind of adapter (--lora, --lora-modules)"), \
        LLM_OPT_NONE(REFUSED, "split-mode|sm|tensor-split|ts|main-gpu|mg", \
                     "another division of a model (--tensor-parallel-size, --pipeline-parallel-size, CUDA_VISIBLE_DEVICES)"), \
        LLM_OPT_NONE(REFUSED, "override-tensor|ot|cpu-moe|cmoe|n-cpu-moe|ncmoe|rpc", "one model on several kinds of devices"), \
        LLM_OPT_NONE(REFUSED, "model-url|mu|mmproj-url|mmu|docker-repo|dr|hf-file|hff|hf-repo-draft|hfd", \
                     "fetching from there (-hf, llm_cli pull)"), \
        LLM_OPT_NONE(REFUSED, "offline", "a switch for the network (-m ORG/NAME never fetches)"), \
        LLM_OPT_NONE(REFUSED, "samplers|sampler-seq|sampling-seq|dry-sequence-breaker|backend-sampling|bs|adaptive-target", \
                     "this way of sampling"), \
        LLM_OPT_NONE(REFUSED, "repeat-last-n", "a penalty that looks at the latest tokens only (here at all)"), \
        LLM_OPT_NONE(REFUSED, "escape", "escapes in prompts (a shell has them: $'a\\nb')"), \
        LLM_OPT_NONE(REFUSED, "disable-metrics", "a server without /metrics"), \
        LLM_OPT_NONE(REFUSED, "context-shift", "an answer beyond the context's end"), \
        LLM_OPT_NONE(REFUSED, "reverse-prompt|sp|special|spm-infill|grammar-file|json-schema-file|jf", \
                     "that for all requests (each says `stop`, `skip_special_tokens`, `grammar` or `json_schema`)"), \
        LLM_OPT_NONE(REFUSED, "props|slots|slot-save-path", "llama-server's slots (/metrics; --context-dir keeps contexts)"), \
        LLM_OPT_NONE(IGNORED_FLAG, "no-slots", "there are none"), \
        LLM_OPT_NONE(REFUSED, "models-preset|no-models-autoload", "models loaded by hand (each is when a request names it)"), \
        LLM_OPT_NONE(REFUSED, "prefill-assistant", "a last message that is always continued (requests say `continue_final_message`)"), \
        LLM_OPT_NONE(IGNORED_FLAG, "no-prefill-assistant", "a last message is continued where a request says `continue_final_message`"), \
        LLM_OPT_NONE(REFUSED, "reuse-port|path", "pages of one's own, or several servers on one port"), \
        LLM_OPT_NONE(REFUSED, "spec-type|lookup-cache-static|lcs|lookup-cache-dynamic|lcd", \
                     "that source of drafts (--speculative-model, --speculative-config)"), \
        LLM_OPT_NONE(REFUSED, "image-min-tokens|image-max-tokens|video-fps", "sizes by option (--mm-processor-kwargs)"), \
        LLM_OPT_NONE(REFUSED, "fingerprint-mode|fingerprint-value", "a fingerprint of one's own"), \
        LLM_OPT_NONE(REFUSED, "reasoning-budget-message", "a word put into thoughts")

/* What belongs to a server, for programs that are none. */
#define LLM_OPTIONS_SERVER \
    LLM_OPT_NONE( \
        IGNORED, \
        "host|server-name|port|server-port|uds|metrics-port|metrics-prefix|api-key|api-keys|api-key-file|cors-origins|allowed-origins|" \
        "allow-origins|allowed-hosts|shutdown-timeout|timeout-graceful-shutdown|timeout|to|drain|log-format|log-file|" \
        "lora-dir|context-dir|max-contexts|max-context-bytes|max-logprobs|sse-ping-interval|workers|" \
        "engine-iteration-timeout|$VLLM_ENGINE_ITERATION_TIMEOUT_S|served-model-name|a|alias|models-dir|max-loaded-models|models-max|" \
        "reasoning|rea|reasoning-effort|reasoning-budget|thinking-token-budget", \
        "it belongs to llm_serve"), \
        LLM_OPT_NONE(REFUSED, "nnodes|node-rank|master-addr|master-port|ips|nodes-timeout", "several processes are llm_serve's"), \
        LLM_OPT_NONE(IGNORED_FLAG, \
                     "log-requests|enable-log-requests|log-prompts|no-ui|no-webui|strict-model-name|disable-fastapi-docs|" \
                     "enable-force-include-usage|return-tokens-as-token-ids|enable-per-request-metrics", \
                     "it belongs to llm_serve")

/* ---- what programs have in common: a model, an engine and a service by options
 *
 *     typedef struct program { llm_setup setup; int32_t port; } program;
 *     static const llm_option table[] = {LLM_OPTIONS_PROGRAM(program, setup), LLM_OPTIONS_SETUP(program, setup), {"port", ...},
 *                                        LLM_OPTIONS_FOREIGN};
 *
 *     llm_setup_init(&p.setup);
 *     llm_setup_read(&p.setup, &o, argc, argv, getenv, &words);
 *     llm_setup_find(&p.setup, getenv);
 *     llm_model_open(p.setup.path.data, &p.setup.files, &model);
 *     llm_engine_open(model, &p.setup.engine, &engine);
 *     llm_setup_service(&p.setup, &o, model, engine, &service);
 *
 * An error is what the user said wrongly if it is LLM_ERR_ARG. */

typedef struct llm_setup {
    const char *model;  /* a file or folder, or ORG/NAME in the Hugging Face cache; NULL: the default one */
    const char *config; /* a JSON file of options */
    const char *reasoning_parser, *tool_parser, *early_stop_config, *visible_devices;
    int32_t enable_early_stop, prefix_caching, pooling, log_level;
    int32_t chat_sampling; /* 1: where nothing was said, llm_sampling_chat; 0: llm_sampling_default, as an API of HTTP wants it */
    llm_model_config files;
    llm_engine_config engine;
    llm_early_stop early_stop;        /* what the two options say */
    llm_sampling sampling;            /* defaults of requests, as far as they were given */
    llm_text path, draft, library;    /* of the model, and of what `engine` names; llm_setup_free frees them */
    const char *model_name;           /* LMDeploy's: what the model is called, and, if it is one, the built-in chat template */
    const char *chat_template_config; /* LMDeploy's JSON {"model_name"} */
    const char *model_format;         /* LMDeploy's: "hf", "llama", "awq", "gptq" */
    const char *download_dir;         /* the Hugging Face cache; NULL: as the environment says */
    llm_option_list lora_modules;     /* NAME=PATH or {"name", "path"}: for llm_setup_adapters */
    int32_t enable_lora, chunked_prefill, quant_policy, num_scheduler_steps;
    int32_t do_preprocess;     /* LMDeploy's: 0: prompts go to the model without the chat template */
    int32_t raw_embeddings;    /* 1: pooler_config says "normalize": false; -1: true; 0: nothing */
    const char *pooler_config; /* vLLM's JSON {"pooling_type", "normalize"} */
    const char *revision;      /* of ORG/NAME in the Hugging Face cache; NULL: main */
    /* Pictures and videos: vLLM's JSON {"image": 4, "video": 1}; parameters of the model's processor, JSON; a folder that requests may
     * name files of. */
    const char *limit_mm_per_prompt, *mm_processor_kwargs, *allowed_local_media_path;
    int32_t interleave_mm_strings;
    int32_t limit_images, limit_videos; /* what limit_mm_per_prompt says, as llm_openai_service has it */
    int32_t unused;                     /* 0 */
    const char *hf_repo;                /* ORG/NAME[:QUANT] instead of `model`: from the cache, or fetched by llm_setup_find */
    llm_pull_fn pull_progress;          /* told while it is fetched; may be NULL */
    void *pull_user;
    llm_option_list models;                /* what `model` may be, in programs that have several; llm_setup_read makes `model` the first */
    llm_option_list allowed_media_domains; /* servers that pictures and videos are fetched from */
    llm_text media_domains;                /* the same, as llm_openai_service has it; llm_setup_free frees it */
    float media_timeout_s;                 /* the same */
    int32_t allow_ffmpeg;                  /* the same */
    llm_text mmproj; /* the file found beside a GGUF model of the Hub or of a folder, which files.mmproj then is; llm_setup_free frees it */
    const char *override_generation_config; /* vLLM's JSON of sampling defaults: {"temperature": 0.6, "max_new_tokens": 100} */
    float kv_cache_gib;                     /* VLLM_CPU_KVCACHE_SPACE: the KV cache's memory in GiB; 0: not said */
    int32_t unused_last;                    /* 0 */
} llm_setup;

enum { LLM_HELP_MODEL, LLM_HELP_ENGINE, LLM_HELP_ANSWERS, LLM_HELP_OWN }; /* groups of the help; the program's own come behind */

/* Rows of a model, an engine and how requests are answered. */
#define LLM_OPTIONS_SETUP(T, setup) \
    LLM_OPTIONS_MODEL(T, setup.files, LLM_HELP_MODEL), \
        LLM_OPT_TEXT(T, setup.reasoning_parser, LLM_HELP_MODEL, "reasoning-parser|reasoning-format", "NAME", \
                     "ernie-45-vl, deepseek-r1, qwen3, none, ... (from the template)"), \
        LLM_OPT_TEXT(T, setup.tool_parser, LLM_HELP_MODEL, "tool-call-parser", "NAME", \
                     "hermes, llama3_json, mistral, deepseek_v3, qwen3_coder, json, ... (from the template)"), \
        LLM_OPT_ENUM(T, setup.pooling, LLM_HELP_MODEL, "pooling", "last=1|mean=2|cls=3", \
                     "an embedding is the state of the last token, of the first (cls), or the mean (as the model says)"), \
        LLM_OPT_TEXT(T, setup.pooler_config, LLM_HELP_MODEL, "pooler-config|override-pooler-config", "JSON", \
                     "the same as {\"pooling_type\": \"CLS\", \"normalize\": true}"), \
        LLM_OPTIONS_ENGINE(T, setup.engine, LLM_HELP_ENGINE), \
        LLM_OPT_TEXT(T, setup.override_generation_config, LLM_HELP_ANSWERS, "override-generation-config", "JSON", \
                     "sampling defaults over the model's own: {\"temperature\": 0.6}; options of their own are stronger"), \
        LLM_OPT_FLOAT(T, setup.kv_cache_gib, LLM_HELP_ENGINE, "$VLLM_CPU_KVCACHE_SPACE", 0, 1e6, "the KV cache's memory in GiB"), \
        LLM_OPT_BOOL(T, setup.prefix_caching, LLM_HELP_ENGINE, "enable-prefix-caching|cache-prompt", \
                     "keep prompts' KV pages for the next request (on)"), \
        LLM_OPT_BOOL(T, setup.chunked_prefill, LLM_HELP_ENGINE, "enable-chunked-prefill", \
                     "long prompts in pieces, beside answers (on); --no-: each in one step, for which the budget must do"), \
        LLM_OPT_ENUM(T, setup.quant_policy, -1, "quant-policy", "0|4=4|8=8", NULL), \
        LLM_OPT_BOOL(T, setup.enable_lora, LLM_HELP_ENGINE, "enable-lora", "adapters by model name"), \
        {"lora-modules|adapters", \
         LLM_OPTION_LIST, \
         LLM_HELP_ENGINE, \
         offsetof(T, setup.lora_modules), \
         1, \
         0, \
         "NAME=PATH ...", \
         "adapters: PEFT folders or GGUF files, or {\"name\", \"path\"}"}, \
        LLM_OPT_INT(T, setup.num_scheduler_steps, LLM_HELP_ANSWERS, "num-scheduler-steps|stream-interval", 1, 1024, \
                    "tokens of a stream's event at most (1)"), \
        LLM_OPT_BOOL(T, setup.do_preprocess, -1, "do-preprocess", NULL), \
        LLM_OPT_TEXT(T, setup.model_name, -1, "model-name", "NAME", NULL), \
        LLM_OPT_TEXT(T, setup.chat_template_config, -1, "chat-template-config", "JSON", NULL), \
        LLM_OPT_CHOICE(T, setup.model_format, -1, "model-format", "hf|llama|awq|gptq", NULL), \
        LLM_OPT_TEXT(T, setup.hf_repo, LLM_HELP_MODEL, "hf|hf-repo|hfr", "NAME", \
                     "ORG/NAME[:QUANT] of the Hugging Face Hub, fetched unless it is in the cache"), \
        LLM_OPT_TEXT(T, setup.download_dir, LLM_HELP_MODEL, "download-dir", "PATH", "the Hugging Face cache (HF_HUB_CACHE, HF_HOME)"), \
        LLM_OPT_TEXT(T, setup.revision, LLM_HELP_MODEL, "revision", "NAME", \
                     "of ORG/NAME in that cache: a branch, a tag, a commit (main)"), \
        LLM_OPT_ENUM(T, setup.log_level, LLM_HELP_MODEL, "log-level|lv|v|$VLLM_LOGGING_LEVEL", \
                     "error|warn=1|warning=1|info=2|debug=3|critical|fatal|trace=3", "what is told on standard error"), \
        LLM_OPT_TEXT(T, setup.limit_mm_per_prompt, LLM_HELP_ANSWERS, "limit-mm-per-prompt", "JSON", \
                     "pictures and videos of a prompt at most: {\"image\": 4, \"video\": 1} (128 each)"), \
        LLM_OPT_TEXT(T, setup.mm_processor_kwargs, LLM_HELP_ANSWERS, "mm-processor-kwargs", "JSON", \
                     "how pictures are prepared where a request does not say: {\"max_pixels\": 401408} (as the model's files say)"), \
        LLM_OPT_TEXT(T, setup.allowed_local_media_path, LLM_HELP_ANSWERS, "allowed-local-media-path|media-path", "PATH", \
                     "folder whose pictures requests may name as file:NAME (none)"), \
        {"allowed-media-domains", \
         LLM_OPTION_LIST, \
         LLM_HELP_ANSWERS, \
         offsetof(T, setup.allowed_media_domains), \
         1, \
         64, \
         "HOST ...", \
         "servers whose pictures and videos requests may name by URL (none)"}, \
        LLM_OPT_FLOAT(T, setup.media_timeout_s, LLM_HELP_ANSWERS, "$VLLM_IMAGE_FETCH_TIMEOUT", 0.1, 3600, \
                      "seconds that fetching one may take, or ffmpeg for a video (5 for a picture, 30 for a video)"), \
        LLM_OPT_BOOL(T, setup.allow_ffmpeg, LLM_HELP_ANSWERS, "allow-ffmpeg", \
                     "an installed ffmpeg decodes videos that are not read here: MP4, WebM, AVI, ..."), \
        LLM_OPT_BOOL(T, setup.interleave_mm_strings, LLM_HELP_ANSWERS, "interleave-mm-strings", \
                     "templates that know texts only: pictures stay among the texts, not before them"), \
        LLM_OPT_BOOL(T, setup.enable_early_stop, LLM_HELP_ANSWERS, "enable-early-stop", "end answers that repeat themselves"), \
        LLM_OPT_TEXT(T, setup.early_stop_config, LLM_HELP_ANSWERS, "early-stop-config", "JSON", \
                     "{\"enable_early_stop\", \"strategy\", \"window_size\", \"threshold\"}")

/* Rows of what a person says to a program only. */
#define LLM_OPTIONS_PROGRAM(T, setup) \
    LLM_OPT_TEXT(T, setup.model, LLM_HELP_MODEL, "m|model", "PATH", "GGUF file, safetensors folder, ORG/NAME in cache"), \
        LLM_OPTIONS_PERSON(T, setup)
/* The same of a program that has several models, in setup.models. */
#define LLM_OPTIONS_PROGRAM_OF_MODELS(T, setup) \
    {"m|model", \
     LLM_OPTION_LIST, \
     LLM_HELP_MODEL, \
     offsetof(T, setup.models), \
     0, \
     0, \
     "PATH", \
     "GGUF file, safetensors folder, ORG/NAME in cache; again for each of several"}, \
        LLM_OPTIONS_PERSON(T, setup)
#define LLM_OPTIONS_PERSON(T, setup) \
    LLM_OPT_TEXT(T, setup.config, LLM_HELP_MODEL, "config", "FILE", \
                 "options by name: a JSON object, or YAML in a file that is called .yaml"), \
        LLM_OPT_TEXT(T, setup.visible_devices, -1, "$ASCEND_RT_VISIBLE_DEVICES", NULL, NULL), \
        LLM_OPTIONS_SAMPLING(T, setup.sampling, LLM_HELP_ANSWERS)

struct llm_openai_service;

LLM_API void llm_setup_init(llm_setup *s); /* the defaults that are not 0 */
/* Everything that was said, in falling strength: argv, the variables LLM_ARG_NAME and LLAMA_ARG_NAME (`get`: getenv), the JSON file that
 * `config` names. Of argv --a b, --a=b, _ for -, a dash that a word processor made long, --no-a are understood, and -- ends options; an
 * unknown name is an error with the nearest one that exists. Other words go to `words`, whose items the caller frees with LLM_FREE. Then
 * what no row of the table can tell is checked: names of parsers and instruction sets, the JSON of early stop and speculation. */
LLM_API llm_result llm_setup_read(llm_setup *s, llm_options *o, int argc, char **argv, char *(*get)(const char *name),
                                  llm_option_list *words);
/* Finds the model, `path`: what hf_repo names, fetched if it is not in the cache (llm_hub_pull), what `model` names, or SmolLM2 in
 * models/ here or beside the program, or the first model there; `model` is that path then. For engine.cuda_library, if nobody named one,
 * the libllm_cuda.so beside the program is taken where there is a device. */
LLM_API llm_result llm_setup_find(llm_setup *s, char *(*get)(const char *name));
/* llm_openai_service_init, and over it what was said. `o` (NULL: no sampling was read) has s in its target. engine as there. */
LLM_API void llm_setup_service(const llm_setup *s, const llm_options *o, const llm_model *model, llm_engine *engine,
                               struct llm_openai_service *out);
/* Loads the adapters of lora_modules under their names, which must not be those of the service's model (NULL: any name will do). */
LLM_API llm_result llm_setup_adapters(const llm_setup *s, llm_engine *engine, const struct llm_openai_service *service);
LLM_API void llm_setup_free(llm_setup *s); /* when the engine is closed */
