/* model: A model: weights, tokenizer and chat template, read-only and shareable between engines and threads. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"

typedef struct llm_model llm_model;

/* Decodes files of pictures. llm.h has a decoder of its own for GIFs alone; llm_picture_reader_stb is stb_image, where one file of the
 * program was compiled with LLM_IMAGE_IMPLEMENTATION. A model is given its reader when it is opened (llm_model_config). */
typedef struct llm_picture_reader {
    const char *name;
    /* How large the picture in n bytes says it is. 0: it cannot be read, and *why says why not. */
    int (*size)(const void *data, size_t n, int32_t *width, int32_t *height, const char **why);
    /* Its pixels, (height, width, channels) bytes: 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha; NULL: it cannot be read. */
    uint8_t *(*read)(const void *data, size_t n, int32_t *width, int32_t *height, int32_t *channels, const char **why);
    void (*release)(uint8_t *pixels);
} llm_picture_reader;

#if !defined(LLM_STATIC) || defined(LLM_IMAGE_IMPLEMENTATION)
LLM_API const llm_picture_reader *llm_picture_reader_stb(void);
#endif

typedef struct llm_model_config {
    const char *tokenizer;          /* path of a folder, tokenizer.json, tokenizer.model, rank file or GGUF; NULL: the model's */
    const char *chat_template;      /* path of a template, or the template itself (has a '{'); NULL: the model's */
    const char *chat_template_name; /* of several templates in one file: "tool_use", ...; NULL: "default" */
    int vocab_only;                 /* tokenizer and template only: no weights, no config.json needed */
    int dummy_weights;              /* random weights from config.json alone (--load-format dummy): 1: bf16, 2: e4m3, 3: Q4_0 */
    int no_mmap;                    /* read files instead of mapping them: they may be changed and cut while they are used */
    llm_log_fn log;                 /* NULL: silent */
    void *log_user;
    const char *builtin_template; /* for a model that brings no chat template: one of llm_template_builtin; NULL: none */
    const char *quantization;     /* the method that the files must have ("awq", "gptq", "gguf", ...); of a folder of floats also what they
                                 become while they are loaded: weight_only_int8, fp8, nf4, mxfp4, q8_0, q4_k, ...; NULL, "None": nothing */
    float rope_scaling_factor;    /* above 1: dynamic NTK as TurboMind has it, in place of what the files say; 0: as they say */
    int use_logn_attn;            /* 1: queries beyond the model's length are scaled by log(position) / log(length); 0: as the files say */
    int language_model_only;      /* 1: of a model with vision the text part alone, else it is refused */
    int no_generation_config;     /* 1: llm_sampling_default is vLLM's, whatever generation_config.json says */
    const llm_picture_reader
        *picture_reader;      /* for files of pictures, NULL: llm_picture_reader_stb() if it is there, else GIFs and pixels only */
    const char *mmproj;       /* of a GGUF model the file with what it sees with, as llama.cpp has it (mmproj-*.gguf); NULL: none */
    const char *hf_overrides; /* JSON object: members that take the place of config.json's, those of an object named *_config one by one;
                                 NULL: none */
} llm_model_config;

typedef struct llm_model_info {
    const char *path, *architecture, *family, *format; /* format: "gguf", "safetensors" or "pytorch" */
    const char *file_type;                             /* what most weight bytes are: "Q4_1", "BF16", ... */
    int64_t n_params, weight_bytes;
    int32_t n_layers, hidden_size, n_heads, n_kv_heads, head_dim, vocab_size, max_position_embeddings;
    int32_t n_experts, n_experts_used, sliding_window;
    int32_t bos_id, eos_id, pad_id, unk_id; /* -1: none */
    const int32_t *stop_ids;                /* every id that ends an answer: eos ids of generation_config.json, end of turn */
    int32_t n_stop_ids;
    int32_t n_tensors;
    const char *tokenizer_kind; /* "BPE", "Unigram", "WordPiece", "SPM" */
    const char *chat_template;  /* its text; NULL: none */
    int32_t max_model_len;      /* longest sequence; above max_position_embeddings where rotary scaling stretches it */
    int64_t step_bytes;         /* of the weights that a step of one token reads: no untied embedding, of the experts those used */
    int32_t vision;             /* 1: pictures and videos may stand in a prompt */
    const char *quantization;   /* the method of a quantised folder and what it says of it, "gptq, 4 bits, groups of 128"; "none"; "gguf" */
    double bits_per_weight;     /* of the files' tensors, scales and all; 0: random weights */
    int32_t n_states;           /* layers that keep a state instead of keys and values; their sequences cannot go back (llm_forward) */
    int32_t encoder;            /* 1: it gives vectors of texts (llm_request_config.pooling) and no answers */
    int32_t embedding_size;     /* numbers of an embedding */
    int32_t n_labels;           /* of an encoder's classifier; 1: a reranker (LLM_POOLING_SCORE); 0: it has none */
    int32_t n_token_types;      /* kinds of tokens (BERT: 2, of the first and of the second text); 0: all are alike */
    int32_t raw_embeddings;     /* 1: its files say that embeddings are not brought to length 1 */
} llm_model_info;

/* Opens a GGUF file (the first of split files) or a Hugging Face folder. Every header, setting and tensor shape is checked here, so what
 * opens can run; weights are mapped, not read. cfg may be NULL. Any thread. On error *out is NULL: LLM_ERR_IO (no such file, not a regular
 * one), LLM_ERR_FORMAT (which file, which field, what was expected), LLM_ERR_UNSUPPORTED (a family, type or variant that is not in this
 * version). */
LLM_API llm_result llm_model_open(const char *path, const llm_model_config *cfg, llm_model **out);
LLM_API void llm_model_close(llm_model *model);                           /* NULL is fine; close its engines first */
LLM_API const llm_model_info *llm_model_get_info(const llm_model *model); /* lives as long as the model; cannot fail */

/* A file of a model that the program has in its own way: in memory, behind a reader, or open already. */
typedef struct llm_file {
    const char *name; /* as it is called in the model's folder: "config.json", "model.safetensors"; of a single GGUF file any */
    const void *data; /* `size` bytes in memory, which stay as they are until llm_model_close; NULL: they are read */
    int64_t size;     /* bytes; of a descriptor 0: up to its end */
    /* Copies up to n bytes from `offset` on and returns how many, 0 where the file ends, below 0 on failure. Called while the model is
     * being opened; what was read stays in memory until llm_model_close. NULL: the descriptor. */
    int64_t (*read)(void *user, int64_t offset, void *to, size_t n);
    void *user;
    int64_t offset; /* where the file begins behind the descriptor: an asset inside an archive */
    int32_t has_fd; /* 1: `fd` says where */
    int32_t fd;     /* of a regular file, which is mapped (read with no_mmap); it may be closed when the model is open */
} llm_file;

/* The same for a model whose files are given: one GGUF file, the parts of a split one, or the files of a Hugging Face folder, of which
 * those are looked for that a folder may have (tokenizer.json, generation_config.json, ...). The list may go when this returns.
 * llm_model_info.path is "<given>/NAME". LLM_ERR_IO too where a reader fails. */
LLM_API llm_result llm_model_open_files(const llm_file *files, int32_t n, const llm_model_config *cfg, llm_model **out);

/* One tensor of the file, for listings: i < info->n_tensors. shape is row-major (outermost first), 1 beyond n_dims. Any pointer may be
 * NULL; texts live as long as the model. */
LLM_API llm_result llm_model_tensor(const llm_model *model, int i, const char **name, const char **type, int64_t shape[4], int *n_dims,
                                    int64_t *bytes);

/* An EAGLE head's folder in SafeAILab's layout becomes one in vLLM's: config.json and model.safetensors in the folder `to`, made if it is
 * not there; `to` may be `head`. base: the model's folder, whose output layer vLLM 0.6 wants beside the head; NULL: without. The names of
 * the files that hold the tensors may be given, plain names of .safetensors files in these folders; NULL: as usual. */
LLM_API llm_result llm_convert_eagle(const char *head, const char *head_file, const char *base, const char *base_file, const char *to);
