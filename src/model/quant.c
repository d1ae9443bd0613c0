#include "model/quant.h"
#include "api/config.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"

/* In the order of llm__quant_method: names that files and command lines have, the method's own first. */
static const char *const llm__quant_names[LLM__QUANT_METHODS] = {
    "none",
    "awq awq_marlin",
    "gptq gpt gptq_marlin auto_round intel/auto_round",
    "compressed_tensors",
    "fp8",
    "fbgemm_fp8",
    "modelopt modelopt_fp4",
    "bitsandbytes bnb",
    "mxfp4",
    "ascend",
    "smooth_quant smoothquant",
    "bitnet",
};

LLM__PRIVATE const char *llm__quant_name(llm__quant_method method) {
    static const char *const names[LLM__QUANT_METHODS] = {"none",  "awq",        "gptq",         "compressed-tensors",
                                                          "fp8",   "fbgemm_fp8", "modelopt",     "bitsandbytes",
                                                          "mxfp4", "ascend",     "smooth_quant", "bitnet"};
    return names[method];
}

LLM__PRIVATE void llm__quant_spelling(const char *text, char name[40]) {
    size_t n = 0;
    for (; text[n] && n < 39; n++) name[n] = text[n] == '-' ? '_' : (char)(text[n] >= 'A' && text[n] <= 'Z' ? text[n] + 32 : text[n]);
    name[text[n] ? 0 : n] = 0;
}

LLM__PRIVATE int llm__quant_named(const char *text) {
    char name[40];
    llm__quant_spelling(text, name);
    for (int i = 0; i < LLM__QUANT_METHODS; i++)
        if (llm__word_index(llm__quant_names[i], llm__lit(name)) >= 0) return i;
    return -1;
}

LLM__PRIVATE int llm__quant_is_called(const llm__quant *q, const char *name) {
    const int method = llm__quant_named(name), int8 = q->bits == 8 && q->integers;
    char word[40];
    llm__quant_spelling(name, word);
    if (method == (int)q->method) return 1;
    if (method == LLM__QUANT_SMOOTH) return int8 && q->activations;
    return int8 && !q->activations && llm__word_index("weight_only_int8 wint8 int8_weight_only", llm__lit(word)) >= 0;
}

LLM__PRIVATE int llm__quant_node(const llm_json *config) {
    static const char *const keys[] = {"quantization_config", "compression_config"};
    const int text = llm_json_find(config, 0, "text_config");
    for (int i = 0; i < 2 * LLM__COUNT(keys); i++) {
        const int node = llm_json_find(config, i % 2 ? text : 0, keys[i / 2]);
        if (llm_json_type_of(config, node) == LLM_JSON_OBJECT) return node;
    }
    return -1;
}

/* What is read, for messages. */
typedef struct llm__quant_facts {
    const llm_json *doc;
    int node;
    const char *path, *file;
} llm__quant_facts;

static llm_result llm__quant_refuse(const llm__quant_facts *f, const char *key, const char *found, const char *expected) {
    return llm__error(LLM_ERR_UNSUPPORTED, "%s: %s: %s \"%.40s\" is not supported, %s", f->path, f->file, key, found, expected);
}

/* A number of the config. 0: it is not there; *bad: it is no number of the range. */
static int32_t llm__quant_number(const llm__quant_facts *f, const char *key, int64_t lo, int64_t hi, const char **bad) {
    const int node = llm_json_find(f->doc, f->node, key);
    int64_t n = 0;
    if (llm_json_type_of(f->doc, node) <= LLM_JSON_NULL) return 0;
    if (llm_json_int(f->doc, node, &n) && n >= lo && n <= hi && n) return (int32_t)n;
    *bad = key;
    return 0;
}

/* Bits and groups, by either of their names. */
static llm_result llm__quant_sizes(const llm__quant_facts *f, llm__quant *out) {
    const char *bad = NULL;
    out->bits = llm__quant_number(f, "bits", 1, 16, &bad);
    if (!out->bits) out->bits = llm__quant_number(f, "w_bit", 1, 16, &bad);
    out->group = llm__quant_number(f, "group_size", -1, 1 << 20, &bad);
    if (!out->group) out->group = llm__quant_number(f, "q_group_size", -1, 1 << 20, &bad);
    if (!bad) return LLM_OK;
    return llm__error(LLM_ERR_FORMAT, "%s: %s: %s: a whole number expected, %s", f->path, f->file, bad,
                      bad[0] == 'b' || bad[0] == 'w' ? "2, 3, 4 or 8" : "from 1 on, or -1 for whole rows");
}

static llm_result llm__quant_awq(const llm__quant_facts *f, llm__quant *out) {
    llm__str version = llm__json_text_at(f->doc, f->node, "version");
    char name[16] = "gemm";
    for (size_t i = 0; version.p && i < sizeof name - 1 && (i == 0 || name[i - 1]); i++) /* AutoAWQ has both cases */
        name[i] = i < version.n ? (char)(version.p[i] >= 'A' && version.p[i] <= 'Z' ? version.p[i] + 32 : version.p[i]) : 0;
    out->gemv = !strcmp(name, "gemv");
    if (!out->gemv && strcmp(name, "gemm")) return llm__quant_refuse(f, "version", name, "gemm or gemv expected");
    if (!out->bits || out->bits == 4) return LLM_OK;
    return llm__error(LLM_ERR_UNSUPPORTED, "%s: %s: AWQ of %d bits is not supported, 4 expected", f->path, f->file, (int)out->bits);
}

static llm_result llm__quant_gptq(const llm__quant_facts *f, llm__quant *out) {
    const char *format = llm_json_str(f->doc, llm_json_find(f->doc, f->node, "checkpoint_format"), NULL),
               *packing = llm_json_str(f->doc, llm_json_find(f->doc, f->node, "packing_format"), NULL);
    if (llm__json_flag(f->doc, f->node, "is_marlin_format", 0)) format = "marlin";
    if (packing && !strcmp(packing, "auto_round:auto_awq")) {
        out->method = LLM__QUANT_AWQ;
        return LLM_OK;
    }
    if (packing && strcmp(packing, "auto_round:auto_gptq"))
        return llm__quant_refuse(f, "packing_format", packing, "auto_round:auto_gptq or auto_round:auto_awq expected");
    out->v2 = format && !strcmp(format, "gptq_v2");
    if (format && !out->v2 && strcmp(format, "gptq")) return llm__quant_refuse(f, "checkpoint_format", format, "gptq or gptq_v2 expected");
    if (out->bits <= 4 ? out->bits != 1 : out->bits == 8) return LLM_OK;
    return llm__error(LLM_ERR_UNSUPPORTED, "%s: %s: GPTQ of %d bits is not supported, 2, 3, 4 or 8 expected", f->path, f->file,
                      (int)out->bits);
}

/* Layouts that compressed-tensors has besides are refused: 2:4 sparsity, rotations of the inputs. */
static llm_result llm__quant_compressed(const llm__quant_facts *f, llm__quant *out) {
    static const char formats[] = "pack-quantized int-quantized float-quantized naive-quantized nvfp4-pack-quantized mxfp4-pack-quantized "
                                  "mixed-precision dense fakequant";
    const llm_json *d = f->doc;
    const int sparse = llm_json_find(d, f->node, "sparsity_config"), groups = llm_json_find(d, f->node, "config_groups");
    const char *format = llm_json_str(d, llm_json_find(d, f->node, "format"), NULL),
               *sparsity = llm_json_str(d, llm_json_find(d, sparse, "format"), NULL);
    if (format && llm__word_index(formats, llm__lit(format)) < 0)
        return llm__quant_refuse(f, "format", format, "one without sparsity expected");
    if (sparsity && strcmp(sparsity, "dense")) return llm__quant_refuse(f, "sparsity_config.format", sparsity, "dense expected");
    if (llm_json_size(d, llm_json_find(d, llm_json_find(d, f->node, "transform_config"), "config_groups")))
        return llm__quant_refuse(f, "transform_config", "config_groups", "a version without rotations expected");
    for (int g = llm_json_first(d, groups); g >= 0; g = llm_json_next(d, g)) {
        const llm__quant_facts of = {d, llm_json_find(d, g, "weights"), f->path, f->file};
        const char *bad = NULL;
        const int32_t bits = llm__quant_number(&of, "num_bits", 1, 8, &bad),
                      group = llm__quant_number(&of, "group_size", -1, 1 << 20, &bad);
        if (bad)
            return llm__error(LLM_ERR_FORMAT, "%s: %s: config_groups: weights.%s is no whole number of its range", f->path, f->file, bad);
        const char *type = llm_json_str(d, llm_json_find(d, of.node, "type"), NULL);
        if (!out->bits) out->bits = bits, out->group = group, out->integers = type && !strcmp(type, "int");
        out->activations |= llm_json_type_of(d, llm_json_find(d, g, "input_activations")) == LLM_JSON_OBJECT;
    }
    out->kv = llm_json_type_of(d, llm_json_find(d, f->node, "kv_cache_scheme")) == LLM_JSON_OBJECT;
    return LLM_OK;
}

static llm_result llm__quant_modelopt(const llm__quant_facts *f, llm__quant *out) {
    const llm_json *d = f->doc;
    const int inner = llm_json_find(d, f->node, "quantization"), node = inner >= 0 ? inner : f->node;
    const char *algo = llm_json_str(d, llm_json_find(d, node, "quant_algo"), NULL);
    out->kv = llm_json_type_of(d, llm_json_find(d, node, "kv_cache_quant_algo")) == LLM_JSON_STRING;
    out->activations = algo && strncmp(algo, "W4A16", 5);
    if (!algo || llm__word_index("FP8 NVFP4 W4A16_NVFP4 FP8_PER_CHANNEL_PER_TOKEN MIXED_PRECISION", llm__lit(algo)) >= 0) return LLM_OK;
    return llm__quant_refuse(f, "quant_algo", algo, "FP8 or NVFP4 expected");
}

/* Weights of -1, 0 and 1, packed; of some folders they are still numbers, which their runtime rounds ("online"). */
static llm_result llm__quant_bitnet(const llm__quant_facts *f, llm__quant *out) {
    const char *mode = llm_json_str(f->doc, llm_json_find(f->doc, f->node, "quantization_mode"), NULL),
               *made = llm_json_str(f->doc, llm_json_find(f->doc, f->node, "linear_class"), NULL);
    const int multiplied = made && !strcmp(made, "autobitlinear");
    if (made && !multiplied && strcmp(made, "bitlinear"))
        return llm__quant_refuse(f, "linear_class", made, "bitlinear or autobitlinear expected");
    if (mode && strcmp(mode, "offline"))
        return llm__quant_refuse(f, "quantization_mode", mode, "offline expected: weights that are packed");
    if (llm__json_flag(f->doc, f->node, "use_rms_norm", 0))
        return llm__quant_refuse(f, "use_rms_norm", "true", "a model without norms of its own in each matrix expected");
    out->divided = !multiplied;
    out->bits = 2;
    out->integers = out->activations = 1;
    return LLM_OK;
}

/* The method that a whole file stands for; of config.json's object the method that it names. */
static int llm__quant_method_of(const llm__quant_facts *f, int own) {
    const char *name = llm_json_str(f->doc, llm_json_find(f->doc, f->node, "quant_method"), NULL);
    if (name) return llm__quant_named(name);
    if (own && !strcmp(f->file, "quantize_config.json")) return LLM__QUANT_GPTQ;
    if (own && !strcmp(f->file, "quant_config.json")) return LLM__QUANT_AWQ;
    if (own && !strcmp(f->file, "hf_quant_config.json")) return LLM__QUANT_MODELOPT;
    return own ? LLM__QUANT_ASCEND : LLM__QUANT_NONE;
}

LLM__PRIVATE llm_result llm__quant_read(const llm_json *doc, int node, const char *file, const char *path, llm__quant *out) {
    const llm__quant_facts f = {doc, node, path, file ? file : "config.json: quantization_config"};
    const char *name = llm_json_str(doc, llm_json_find(doc, node, "quant_method"), NULL);
    const int method = llm__quant_method_of(&f, file != NULL);
    memset(out, 0, sizeof *out);
    if (method < 0)
        return llm__quant_refuse(&f, "quant_method", name ? name : "", "take the unquantised version, or one in GGUF, AWQ, GPTQ or fp8");
    out->method = (llm__quant_method)method;
    llm_result r = llm__quant_sizes(&f, out);
    if (r) return r;
    switch (out->method) {
    case LLM__QUANT_AWQ: return llm__quant_awq(&f, out);
    case LLM__QUANT_GPTQ: out->integers = 1; return llm__quant_gptq(&f, out);
    case LLM__QUANT_COMPRESSED: return llm__quant_compressed(&f, out);
    case LLM__QUANT_MODELOPT: return llm__quant_modelopt(&f, out);
    case LLM__QUANT_BITNET: return llm__quant_bitnet(&f, out);
    case LLM__QUANT_FP8:
    case LLM__QUANT_FBGEMM:
    case LLM__QUANT_SMOOTH: {
        const char *type = llm_json_str(doc, llm_json_find(doc, node, "quant_dtype"), NULL);
        out->bits = 8;
        out->activations = 1;
        out->integers = out->method == LLM__QUANT_SMOOTH && (!type || !strcmp(type, "int8"));
        return LLM_OK;
    }
    case LLM__QUANT_BNB: {
        const int int8 = llm__json_flag(doc, node, "load_in_8bit", 0);
        out->bits = int8 ? 8 : 4;
        out->integers = int8;
        return LLM_OK;
    }
    case LLM__QUANT_ASCEND: {
        const char *type = llm_json_str(doc, llm_json_find(doc, node, "model_quant_type"), NULL);
        out->activations = type && !strstr(type, "A16");
        out->bits = 8;
        out->integers = 1;
        if (!type || llm__word_index("FLOAT W8A8 W8A8_DYNAMIC W8A16 W8A8_MIX", llm__lit(type)) >= 0) return LLM_OK;
        return llm__quant_refuse(&f, "model_quant_type", type, "W8A8, W8A8_DYNAMIC or W8A16 expected");
    }
    default: return LLM_OK;
    }
}
