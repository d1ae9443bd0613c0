/* quant: what a folder says about how its weights are quantised.
 *
 * A publisher quantises a folder by one method, which config.json names (quantization_config.quant_method), or a file beside it:
 * quantize_config.json (GPTQ), quant_config.json (AWQ), hf_quant_config.json (NVIDIA's modelopt), quant_model_description.json (Ascend's
 * msModelSlim). It is read once, into a few numbers. Which layers are quantised is asked of the tensors alone: a layer that has the
 * tensors of its method is, and one that has a plain weight is not, whatever lists of layers say; neither do bits and groups need to be
 * asked by layer, for shapes tell them (>>quant_rows). So all that is kept is what shapes cannot tell: how words are packed, and what
 * zero points mean.
 *
 * Sources: the packages that write the formats: AutoAWQ, GPTQModel, compressed-tensors, bitsandbytes, modelopt, msModelSlim, LMDeploy,
 * transformers (BitNet). */
#pragma once
#include "api/config.h"
#include "api/json.h"
#include "base/platform.h"

typedef enum llm__quant_method {
    LLM__QUANT_NONE = 0,
    LLM__QUANT_AWQ,
    LLM__QUANT_GPTQ,
    LLM__QUANT_COMPRESSED, /* compressed-tensors */
    LLM__QUANT_FP8,
    LLM__QUANT_FBGEMM,
    LLM__QUANT_MODELOPT,
    LLM__QUANT_BNB,
    LLM__QUANT_MXFP4, /* gpt-oss */
    LLM__QUANT_ASCEND,
    LLM__QUANT_SMOOTH, /* LMDeploy's smooth_quant */
    LLM__QUANT_BITNET,
    LLM__QUANT_METHODS
} llm__quant_method;

typedef struct llm__quant {
    llm__quant_method method;
    int32_t bits, group; /* of most layers; group -1: whole rows. 0: not said */
    int32_t gemv;        /* AWQ: rows of words along the input */
    int32_t v2;          /* GPTQ: zero points are stored as they are, not less one */
    int32_t divided;     /* BitNet: the weights are divided by their scale, not multiplied with it */
    int32_t integers;    /* 1: codes are integers, 0: some are floats, or it is not said */
    int32_t activations; /* 1: the publisher's runtime rounds activations, too */
    int32_t kv;          /* 1: keys and values have scales */
} llm__quant;

/* What the method is called. */
LLM__PRIVATE const char *llm__quant_name(llm__quant_method method);

/* A name as people write it, with blanks of either kind, in either case, as tables here have it; "" if it is longer than any. */
LLM__PRIVATE void llm__quant_spelling(const char *text, char name[40]);

/* The same of a method as documents and command lines call it; -1: no such name. */
LLM__PRIVATE int llm__quant_named(const char *name);

/* 1 if a name is one for what the files are: the method's, or what documents call all layouts of a kind, weight_only_int8 (8-bit integers,
 * activations as they are) and smooth_quant (8-bit integers, activations rounded). */
LLM__PRIVATE int llm__quant_is_called(const llm__quant *q, const char *name);

/* Where config.json speaks of it: an object, or -1. */
LLM__PRIVATE int llm__quant_node(const llm_json *config);

/* Reads an object `node` of a document: config.json's, or with `file` the whole of the file of that name. */
LLM__PRIVATE llm_result llm__quant_read(const llm_json *doc, int node, const char *file, const char *path, llm__quant *out);
