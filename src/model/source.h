/* source: the files a model is opened from.
 *
 * A GGUF file has all of it in one: keys general.*, ARCHITECTURE.* (shapes), tokenizer.ggml.* (the vocabulary), tokenizer.chat_template,
 * then the tensors. A folder has a file for each:
 *   config.json                        shapes and switches; read by >>model
 *   generation_config.json             ids that end an answer, and how the publisher wants it sampled; may be absent
 *   model.safetensors                  the tensors, or shards of them with model.safetensors.index.json
 *   pytorch_model.bin                  the same in older folders, by torch.save, with pytorch_model.bin.index.json
 *   params.json, consolidated.*.pth    in place of both as Meta publishes models: see >>meta
 *   modules.json                       of a model of embeddings what stands behind it: see >>modules
 *   quantize_config.json and its like  how the tensors are quantised, where config.json is silent: see >>quant
 *   tokenizer.json, tokenizer.model, *.tiktoken    one of them; read by >>tokenizer
 *   tokenizer_config.json              names of special tokens, and in many models the chat template
 *   chat_template.jinja                the template where it is not there
 * Opened in this order: settings and tensors, tokenizer_config.json, the tokenizer, special ids and stop ids (they need the tokenizer), the
 * chat template. The source owns all of it; close takes it down whole, after a failed opening too. Paths, texts and the keys of GGUF files
 * lie in its arena. */
#pragma once
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/json.h"
#include "api/template.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/files.h"
#include "base/place.h"
#include "tokenizer/tokenizer.h"
#include "chat/template.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/quant.h"
#include "model/modules.h"

typedef struct llm__source {
    const char *path;
    llm__place place;                                        /* files that are given; only while it is being opened */
    llm__gguf *gguf;                                         /* keys of the (first) file; NULL: a folder */
    llm_json *config, *generation_config, *tokenizer_config; /* of a folder; NULL: absent. Roots are objects */
    llm__quant quant;                                        /* of a folder */
    llm__modules modules;                                    /* the same: what stands behind the model */
    llm__tensors tensors;                                    /* of all parts and shards; empty with vocab_only or dummy_weights */
    llm__tensors mmproj;                                     /* of a second GGUF file, with what the model sees; mostly empty */
    llm__tokenizer *tokenizer;   /* without any token only with dummy_weights in a folder without tokenizer files */
    llm_template *chat_template; /* NULL: none, or chat_template_error says why not */
    char *chat_template_text, *chat_template_error;
    const char *bos_token, *eos_token;      /* their texts, for templates; NULL: none */
    int32_t bos_id, eos_id, pad_id, unk_id; /* -1: none */
    llm_tokens stop_ids;                    /* every id that ends an answer, eos_id first */
    llm__file *files;                       /* stay open as long as the source */
    size_t n_files, files_cap;
    llm__gguf *vocab_gguf; /* the GGUF of the vocabulary: gguf, one of its own, or NULL */
    llm__arena arena;
    llm__logger log;
    int no_mmap;
    int torch; /* a file of tensors is not in safetensors */
} llm__source;

/* Opens a file that stays open as long as the source: tensors, keys and vocabularies point into it. */
LLM__PRIVATE llm_result llm__source_file(llm__source *s, const char *path, llm__file *out);

/* An error if one of the files that are mapped was cut short since: reading it would end the process. */
LLM__PRIVATE llm_result llm__source_whole(const llm__source *s);

/* folder/name in the arena; NULL: no memory. */
LLM__PRIVATE const char *llm__source_path(llm__source *s, const char *folder, const char *name);

/* A file is known by its first bytes, not by its name. */
LLM__PRIVATE int llm__is_gguf(const llm__file *f);

/* Reads an open GGUF file: its tensors into `tensors`, its keys into *out, which llm__gguf_free must empty even after errors. */
LLM__PRIVATE llm_result llm__source_keys(llm__source *s, const char *path, const llm__file *f, llm__tensors *tensors, llm__gguf **out);

/* A GGUF file and, if it is split, its other parts; each says which part of how many it is. The first has the keys; the others are opened
 * by the names that follow from its own, so nothing in a file can make us open another. */
LLM__PRIVATE llm_result llm__source_gguf(llm__source *s, const char *path, llm__file f);

/* Reads a JSON file of a folder whose root is an object. Absent: LLM_OK and NULL. */
LLM__PRIVATE llm_result llm__folder_json(llm__source *s, const char *folder, const char *name, size_t limit, llm_json **out);

/* Says that a folder lacks a file, and what stands there instead. */
LLM__PRIVATE llm_result llm__folder_lacks(const llm__source *s, const char *folder, const char *lacks);

/* One shard, of torch.save unless its name ends in .safetensors: all its tensors go into the table. path NULL: no memory for it. */
LLM__PRIVATE llm_result llm__source_shard(llm__source *s, const char *path, llm__tensors *tensors);

/* The weights of a folder: STEM.safetensors, or else the shards of its index; of "model" also pytorch_model.bin, or its shards. */
LLM__PRIVATE llm_result llm__source_weights(llm__source *s, const char *folder, const char *stem);

/* A Hugging Face folder. */
LLM__PRIVATE llm_result llm__source_folder(llm__source *s, const char *path, const llm_model_config *cfg);
