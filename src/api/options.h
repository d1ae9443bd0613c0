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

/* Sources, the stronger last: no weaker one overwrites a stronger. Members of a REQUEST must have JSON's own types: "1" is no number. */
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
 * ones are an error, or go to `unknown` (not NULL) as "a, b". */
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
        LLM_OPT_ENUM(T, m.dummy_weights, group, "load-format", "auto|safetensors|gguf|dummy=1|dummy-fp8=2|dummy-q4=3", \
                     "dummy: random weights from config.json alone"), \
        LLM_OPT_BOOL(T, m.no_mmap, group, "no-mmap", \
                     "read files whole instead of mapping them: they may be changed or cut short while they are used"), \
        LLM_OPT_CHOICE(T, m.quantization, group, "q|quantization", LLM_QUANTIZATIONS, \
                       "what the files must be; of floats what they become while loading (q4_k, nf4, ...)"), \
        LLM_OPT_FLOAT(T, m.rope_scaling_factor, group, "rope-scaling-factor", 0, 1000, \
                      "dynamic NTK: prompts longer than the model's length, by so much at most (0: as the files say)"), \
        LLM_OPT_BOOL(T, m.use_logn_attn, group, "use-logn-attn", "scale queries beyond the model's length by its logarithm"), \
        LLM_OPT_TEXT(T, m.mmproj, group, "mm|mmproj", "FILE", \
                     "of a GGUF model what it sees with: llama.cpp's second file (beside a model of the Hub or of a folder it is found)"), \
        LLM_OPT_BOOL(T, m.language_model_only, group, "language-model-only|no-mmproj", "of a model with vision the text part alone"), \
        LLM_OPT_ENUM(T, m.no_generation_config, group, "generation-config", "auto|vllm=1", \
                     "vllm: sampling defaults are vLLM's, whatever generation_config.json says")

#define LLM_QUANTIZATIONS \
    "None|awq|gptq|gpt|smoothquant|smooth_quant|weight_only_int8|fp8|gguf|compressed-tensors|mxfp4|bitsandbytes|awq_marlin|gptq_marlin|" \
    "fbgemm_fp8|modelopt|ascend|auto-round|wint8|wint4|int8_weight_only|nf4|q8_0|q6_k|q5_k|q5_0|q4_k|q4_1|q4_0|q3_k|q2_k"

#define LLM_OPTIONS_ENGINE(T, e, group) \
    LLM_OPT_FIELD(T, e, max_model_len, group, "c|max-model-len|ctx-size|session-len", "context: tokens of prompt and answer"), \
        LLM_OPT_BOOL(T, e.allow_long_max_model_len, group, "allow-long-max-model-len|$VLLM_ALLOW_LONG_MAX_MODEL_LEN", \
                     "let it exceed the model's own length"), \
        LLM_OPT_FIELD(T, e, max_num_seqs, group, "np|max-num-seqs|parallel|max-batch-size", \
                      "sequences that run together (server 64, with a GPU 256; batch 16)"), \
        LLM_OPT_FIELD(T, e, max_num_batched_tokens, group, "max-num-batched-tokens|batch-size|max-prefill-token-num", \
                      "tokens of one step (512)"), \
        LLM_OPT_FIELD(T, e, max_queue, group, "max-queue", "requests that may wait (1024); 0: none, who finds no place gets 429"), \
        LLM_OPT_FIELD(T, e, block_size, group, "block-size", "tokens of a KV page (32; of models with recurrent layers 64 to 1024)"), \
        LLM_OPT_FIELD(T, e, kv_cache_memory_bytes, group, "kv-cache-memory-bytes", "memory of the KV cache"), \
        LLM_OPT_BOOL(T, e.kv_cache_prealloc, group, "kv-cache-prealloc", "take that memory at start, not when it is first used"), \
        LLM_OPT_ENUM(T, e.kv_cache_dtype, group, "kv-cache-dtype|ctk|ctv", \
                     "auto|fp8=4|fp8_e4m3=4|fp8_e5m2=5|int8=6|int4=7|q8_0=6|q4_0=7|float32=1|f32=1|float16=2|f16=2|bfloat16=3|bf16=3", \
                     "type of the KV cache"), \
        LLM_OPT_FIELD(T, e, n_threads, group, "t|threads", "threads (all cores)"), \
        LLM_OPT_TEXT(T, e.device, group, "device", "NAME", "auto, cpu, cuda"), \
        LLM_OPT_TEXT(T, e.cuda_library, group, "cuda-library|$LLM_CUDA_LIBRARY", "PATH", \
                     "library of the device's backend (libllm_cuda.so beside this program)"), \
        LLM_OPT_BOOL(T, e.enforce_eager, group, "enforce-eager", "GPU: steps are not recorded as graphs"), \
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
        LLM_OPT_TEXT(T, e.speculative_model, group, "md|speculative-model|model-draft", "NAME", \
                     "guesses tokens ahead: a smaller model, an EAGLE or EAGLE-3 head, [mtp] or [ngram]"), \
        LLM_OPT_FIELD(T, e, num_speculative_tokens, group, "num-speculative-tokens|draft-max|spec-draft-n-max", "how many"), \
        LLM_OPT_FIELD(T, e, ngram_prompt_lookup_max, group, "ngram-prompt-lookup-max", "tokens that a lookup compares at most (16)"), \
        LLM_OPT_FIELD(T, e, ngram_prompt_lookup_min, group, "ngram-prompt-lookup-min", "tokens that must be equal (3)"), \
        LLM_OPT_TEXT(T, e.speculative_config, group, "speculative-config", "JSON", \
                     "{\"model\", \"method\", \"num_speculative_tokens\", \"prompt_lookup_max\", \"prompt_lookup_min\"}"), \
        LLM_OPT_BOOL(T, e.eagle_lab_style, -1, "$EAGLE_USE_SAFE_AI_LAB_STYLE", NULL), \
        LLM_OPT_TEXT(T, e.lora, group, "lora", "PATH", "an adapter for all requests: PEFT folder or GGUF file"), \
        LLM_OPT_FIELD(T, e, max_lora_rank, group, "max-lora-rank", "largest rank of an adapter (16)"), \
        LLM_OPT_FIELD(T, e, max_loras, group, "max-loras", "adapters that compute in one step (1)"), \
        LLM_OPT_FIELD(T, e, max_cpu_loras, group, "max-cpu-loras", "adapters that are in memory at once (max-loras)")

#define LLM_OPTIONS_SAMPLING(T, s, group) \
    LLM_OPT_FIELD(T, s, max_tokens, group, "max-tokens|-n|max-new-tokens|request-output-len|max-completion-tokens|n-predict", \
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
                     "use-v2-block-manager|disable-async-output-proc|cont-batching|cb|jinja|speculative-disable-mqa-scorer|" \
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
        LLM_OPT_NONE_NUMBER("num-lookahead-slots", "N", 0, 1e6, "pages are found for every draft")

#define LLM_GUIDED_BACKENDS "auto|outlines|lm-format-enforcer|xgrammar|guidance|llguidance"

/* What belongs to a server, for programs that are none. */
#define LLM_OPTIONS_SERVER \
    LLM_OPT_NONE( \
        IGNORED, \
        "host|port|uds|metrics-port|api-key|api-key-file|cors-origins|allowed-origins|allowed-hosts|shutdown-timeout|timeout|to|" \
        "drain|log-format|log-file|lora-dir|context-dir|max-contexts|max-context-bytes|max-logprobs|sse-ping-interval|workers|" \
        "engine-iteration-timeout|$VLLM_ENGINE_ITERATION_TIMEOUT_S|served-model-name|a|alias|models-dir|max-loaded-models|models-max", \
        "it belongs to llm_serve"), \
        LLM_OPT_NONE(REFUSED, "nnodes|node-rank|master-addr|master-port|ips|nodes-timeout", "several processes are llm_serve's"), \
        LLM_OPT_NONE(IGNORED_FLAG, "log-requests|enable-log-requests|log-prompts|no-ui|no-webui|strict-model-name", \
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
} llm_setup;

enum { LLM_HELP_MODEL, LLM_HELP_ENGINE, LLM_HELP_ANSWERS, LLM_HELP_OWN }; /* groups of the help; the program's own come behind */

/* Rows of a model, an engine and how requests are answered. */
#define LLM_OPTIONS_SETUP(T, setup) \
    LLM_OPTIONS_MODEL(T, setup.files, LLM_HELP_MODEL), \
        LLM_OPT_TEXT(T, setup.reasoning_parser, LLM_HELP_MODEL, "reasoning-parser", "NAME", \
                     "ernie-45-vl, deepseek-r1, qwen3, none, ... (from the template)"), \
        LLM_OPT_TEXT(T, setup.tool_parser, LLM_HELP_MODEL, "tool-call-parser", "NAME", \
                     "hermes, llama3_json, mistral, deepseek_v3, qwen3_coder, json, ... (from the template)"), \
        LLM_OPT_ENUM(T, setup.pooling, LLM_HELP_MODEL, "pooling", "last=1|mean=2|cls=3", \
                     "an embedding is the state of the last token, of the first (cls), or the mean (as the model says)"), \
        LLM_OPT_TEXT(T, setup.pooler_config, LLM_HELP_MODEL, "pooler-config|override-pooler-config", "JSON", \
                     "the same as {\"pooling_type\": \"CLS\", \"normalize\": true}"), \
        LLM_OPTIONS_ENGINE(T, setup.engine, LLM_HELP_ENGINE), \
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
        LLM_OPT_INT(T, setup.num_scheduler_steps, LLM_HELP_ANSWERS, "num-scheduler-steps", 1, 1024, \
                    "tokens of a stream's event at most (1)"), \
        LLM_OPT_BOOL(T, setup.do_preprocess, -1, "do-preprocess", NULL), \
        LLM_OPT_TEXT(T, setup.model_name, -1, "model-name", "NAME", NULL), \
        LLM_OPT_TEXT(T, setup.chat_template_config, -1, "chat-template-config", "JSON", NULL), \
        LLM_OPT_CHOICE(T, setup.model_format, -1, "model-format", "hf|llama|awq|gptq", NULL), \
        LLM_OPT_TEXT(T, setup.hf_repo, LLM_HELP_MODEL, "hf|hf-repo", "NAME", \
                     "ORG/NAME[:QUANT] of the Hugging Face Hub, fetched unless it is in the cache"), \
        LLM_OPT_TEXT(T, setup.download_dir, LLM_HELP_MODEL, "download-dir", "PATH", "the Hugging Face cache (HF_HUB_CACHE, HF_HOME)"), \
        LLM_OPT_TEXT(T, setup.revision, LLM_HELP_MODEL, "revision", "NAME", \
                     "of ORG/NAME in that cache: a branch, a tag, a commit (main)"), \
        LLM_OPT_ENUM(T, setup.log_level, LLM_HELP_MODEL, "log-level|lv|v", "error|warn=1|warning=1|info=2|debug=3", \
                     "what is told on standard error"), \
        LLM_OPT_TEXT(T, setup.limit_mm_per_prompt, LLM_HELP_ANSWERS, "limit-mm-per-prompt", "JSON", \
                     "pictures and videos of a prompt at most: {\"image\": 4, \"video\": 1} (128 each)"), \
        LLM_OPT_TEXT(T, setup.mm_processor_kwargs, LLM_HELP_ANSWERS, "mm-processor-kwargs", "JSON", \
                     "how pictures are prepared where a request does not say: {\"max_pixels\": 401408} (as the model's files say)"), \
        LLM_OPT_TEXT(T, setup.allowed_local_media_path, LLM_HELP_ANSWERS, "allowed-local-media-path", "PATH", \
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
    LLM_OPT_TEXT(T, setup.config, LLM_HELP_MODEL, "config", "FILE", "JSON object of options by name"), \
        LLM_OPT_TEXT(T, setup.visible_devices, -1, "$ASCEND_RT_VISIBLE_DEVICES", NULL, NULL), \
        LLM_OPTIONS_SAMPLING(T, setup.sampling, LLM_HELP_ANSWERS)

struct llm_openai_service;

LLM_API void llm_setup_init(llm_setup *s); /* the defaults that are not 0 */
/* Everything that was said, in falling strength: argv, the variables LLM_ARG_NAME (`get`: getenv), the JSON file that `config` names. Of
 * argv --a b, --a=b, _ for -, a dash that a word processor made long, --no-a are understood, and -- ends options; an unknown name is an
 * error with the nearest one that exists. Other words go to `words`, whose items the caller frees with LLM_FREE. Then what no row of the
 * table can tell is checked: names of parsers and instruction sets, the JSON of early stop and speculation. */
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
