/* quantize: Files of smaller weights. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"

typedef struct llm_quantize_config {
    const char *type;                         /* a mixture by its name: "q4_k_m", "q8_0", ...; NULL: q4_k_m */
    int32_t n_threads;                        /* 0: all cores this process may use */
    int allow_requantize;                     /* 1: matrices that are quantised already may become others, which loses twice */
    int pure;                                 /* 1: one type for all matrices, none of the mixture's exceptions */
    int keep_output;                          /* 1: the output layer stays as it is */
    const char *output_type, *embedding_type; /* of the output layer and the embedding; NULL: the mixture's */
    int (*progress)(void *user, const char *what,
                    double done); /* done: 0 to 1; a value other than 0 ends it: LLM_ERR_CANCELLED. NULL: none */
    void *progress_user;
} llm_quantize_config;

/* Writes the GGUF file `to` with the weights of the GGUF file `path` in smaller types. It is written under another name (to.part) and gets
 * its own when it is whole and was read again; until then, and after errors, what stood there stays. cfg may be NULL. report gets, as JSON,
 * {"type", "n_params", "bytes_before", "bytes_after", "bits_per_weight", "n_tensors", "n_changed"}; NULL: it is not wanted. */
LLM_API llm_result llm_quantize(const char *path, const char *to, const llm_quantize_config *cfg, llm_text *report);
