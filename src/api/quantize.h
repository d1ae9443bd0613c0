/* quantize: Files of smaller weights. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"

typedef struct llm_quantize_config {
    const char *type;                         /* a mixture by its name: "q4_k_m", "q8_0", "f16", ...; "auto": F32, F16 or BF16, as most
                                                  matrices are; NULL: q4_k_m */
    int32_t n_threads;                        /* 0: all cores this process may use */
    int allow_requantize;                     /* 1: matrices that are quantised already may become others, which loses twice */
    int pure;                                 /* 1: one type for all matrices, none of the mixture's exceptions */
    int keep_output;                          /* 1: the output layer stays as it is */
    const char *output_type, *embedding_type; /* of the output layer and the embedding; NULL: the mixture's */
    int (*progress)(void *user, const char *what,
                    double done); /* done: 0 to 1; a value other than 0 ends it: LLM_ERR_CANCELLED. NULL: none */
    void *progress_user;
    const char *imatrix;          /* llm_quantize: an importance matrix of llama.cpp's (GGUF or .dat); NULL: none */
    int32_t calibration_tokens;   /* of a chunk of text that is read at a time; 0: 512 */
    int32_t calibration_chunks;   /* chunks at most; 0: the whole text */
    const char *calibration_name; /* what the text is called in files; NULL: "text" */
} llm_quantize_config;

/* Writes the GGUF file `to` with the weights of `path`, a GGUF file or a Hugging Face folder, in other types; names, rows and settings of
 * a folder become those that llama.cpp has (>>convert): LLM_ERR_UNSUPPORTED where it has none. The file is written under another name
 * (to.part) and gets its own when it is whole and was read again; until then, and after errors, what stood there stays. cfg may be NULL.
 * report gets, as JSON, {"type", "n_params", "bytes_before", "bytes_after", "bits_per_weight", "n_tensors", "n_changed", "n_unweighted"};
 * NULL: it is not wanted. With an importance matrix errors in columns of large inputs count more; n_unweighted matrices have no entry in
 * it. One that was made of another model is refused: LLM_ERR_FORMAT. */
LLM_API llm_result llm_quantize(const char *path, const char *to, const llm_quantize_config *cfg, llm_text *report);

/* Writes the Hugging Face folder `to`, which must not be there, with the model of the GGUF file `path`: config.json, safetensors,
 * tokenizer.json and what belongs to them, as transformers reads them; the other way of llm_quantize of a folder, for the same families:
 * LLM_ERR_UNSUPPORTED for others. Of cfg (may be NULL) the type ("auto": as most matrices are, f16 for quantised ones; "f32", "f16",
 * "bf16") and the progress count. It is written as to.part, opened and compared, and gets its name then, or nothing is left of it.
 * report gets, as JSON, {"model_type", "dtype", "n_tensors", "bytes_before", "bytes_after"}; NULL: it is not wanted. */
LLM_API llm_result llm_convert_folder(const char *path, const char *to, const llm_quantize_config *cfg, llm_text *report);

/* Makes an importance matrix for llm_quantize, or for llama-quantize: reads a text of len bytes in chunks of calibration_tokens and writes
 * the file `to`, whole or not at all. Of cfg (may be NULL) the calibration, threads and progress count. The model as it will be quantised,
 * best unquantised; some 50,000 tokens of varied text are enough. report gets, as JSON, {"n_entries", "n_tokens", "n_chunks", "chunk",
 * "n_unmet"}: the last are experts that no token came to. NULL: it is not wanted. */
LLM_API llm_result llm_imatrix(const llm_model *model, const char *text, size_t len, const char *to, const llm_quantize_config *cfg,
                               llm_text *report);

/* What a folder's weights become. */
typedef struct llm_quantize_folder_config {
    const char *method;            /* "weight_only_int8", "smooth_quant", "awq" or "gptq" */
    const char *dtype;             /* of what is not quantised: "fp16", "bf16"; NULL: as the files have it */
    const char *token_ids, *text;  /* files to calibrate with: ids, a line a sequence (blanks or commas between, or JSON lists), or a text;
                                      both NULL: a built-in text of some 3,000 tokens */
    int32_t n_samples, sample_len; /* at most so many sequences of at most so many tokens are taken of it; 0: 128 of 512 */
    int32_t group_size;            /* awq and gptq: columns that share a scale, -1: whole rows; 0: 128, or the largest below that fits */
    int32_t bits;                  /* gptq: 2, 3, 4 or 8; 0: 4 */
    int32_t desc_act;              /* gptq: 1: groups are of columns in the order of what they weigh */
    float damp;                    /* gptq: share of the mean that the diagonal gets; 0: 0.05 */
    float alpha;                   /* smooth_quant: how much of the activations' difficulty goes to the weights */
    int32_t alpha_given;           /* 0: 0.8, of GLM 0.75 */
    int32_t tensor_parallel_size;  /* that the folder will be served with: refused where it could not be; 0: 1 */
    int32_t n_threads;             /* 0: all cores this process may use */
    llm_progress_fn progress;      /* NULL: none */
    void *progress_user;
} llm_quantize_folder_config;

/* Writes the folder `to` with the weights of the Hugging Face folder `path` quantised, as vLLM and transformers read them:
 *   weight_only_int8    compressed-tensors, pack-quantized: 8 bits, a scale a row
 *   smooth_quant        compressed-tensors, int-quantized: the same with activations by token (W8A8); norms take part of the scales
 *   awq                 AutoAWQ's gemm: 4 bits in groups with zero points
 *   gptq                GPTQ: `bits` in groups, symmetric
 * The last three are calibrated, by the model's own forward pass. It is written as to.part, layer by layer. That folder stays when it ends
 * early, and the same call goes on with it; when it is whole and was opened and measured it gets its name, which must be free. report gets,
 * as JSON, {"method", "group_size", "n_matrices", "n_left", "bytes_before", "bytes_after", "perplexity_before", "perplexity_after",
 * "n_tokens", "resumed_at", "seconds"}; perplexities only where there is something to calibrate with; NULL: it is not wanted. */
LLM_API llm_result llm_quantize_folder(const char *path, const char *to, const llm_quantize_folder_config *cfg, llm_text *report);
