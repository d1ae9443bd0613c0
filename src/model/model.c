#include "model/model.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/tokenizer.h"
#include "api/json.h"
#include "api/template.h"
#include "api/chat.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/place.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/subword.h"
#include "tokenizer/decode.h"
#include "chat/template.h"
#include "chat/render.h"
#include "chat/reasoning.h"
#include "chat/tools.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/quant.h"
#include "model/source.h"
#include "model/source_open.h"
#include "model/arch.h"
#include "model/rope.h"
#include "model/pooler.h"
#include "model/loader.h"
#include "model/requant.h"
#include "model/net.h"
#include "model/eagle.h"

/* How the files are quantised, in words. */
static void llm__model_quantization(llm_model *m) {
    const llm__quant *q = &m->source.quant;
    char bits[24] = "", group[32] = "";
    if (q->bits) snprintf(bits, sizeof bits, ", %d bits", (int)q->bits);
    if (q->group > 0) snprintf(group, sizeof group, ", groups of %d", (int)q->group);
    if (m->requant) snprintf(m->quantization, sizeof m->quantization, "none, quantised while loading: %s", llm__requant_name(m->requant));
    else snprintf(m->quantization, sizeof m->quantization, "%s%s%s", m->source.gguf ? "gguf" : llm__quant_name(q->method), bits, group);
}

/* What llm_model_get_info tells. Strings belong to the model. The file's type is the one that most bytes of its
 * tensors have. */
static void llm__model_info_fill(llm_model *m) {
    llm_model_info *o = &m->info;
    const llm__source *s = &m->source;
    const llm__arch *a = &m->arch;
    int64_t most = 0;
    o->path = m->path;
    o->architecture = a->class_name;
    o->family = a->name;
    o->format = s->gguf ? "gguf" : s->torch ? "pytorch" : "safetensors";
    o->file_type = "random";
    for (size_t i = 0; i < s->tensors.n; i++) o->weight_bytes += s->tensors.item[i].bytes;
    const llm__type_desc *d;
    for (int k = 0; (d = llm__type_at(k)) != NULL; k++) {
        int64_t of_type = 0;
        for (size_t i = 0; i < s->tensors.n; i++) of_type += s->tensors.item[i].type == d->type ? s->tensors.item[i].bytes : 0;
        if (of_type > most) most = of_type, o->file_type = d->name;
    }
    o->quantization = m->quantization;
    o->bits_per_weight = o->n_params ? 8.0 * (double)o->weight_bytes / (double)o->n_params : 0;
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
    for (int i = 0; i < a->n_layers; i++) {
        o->sliding_window = LLM__MAX(o->sliding_window, a->layer[i].window);
        o->n_states += a->layer[i].mixer > LLM__MIX_NONE;
    }
    o->encoder = a->encoder;
    o->embedding_size = m->pooler.size;
    o->n_labels = m->pooler.n_labels;
    o->n_token_types = a->n_types;
    o->raw_embeddings = a->n_layers && !m->pooler.normalize;
    o->bos_id = s->bos_id;
    o->eos_id = s->eos_id;
    o->pad_id = s->pad_id;
    o->unk_id = s->unk_id;
    o->stop_ids = s->stop_ids.data;
    o->n_stop_ids = (int32_t)s->stop_ids.len;
    o->n_tensors = (int32_t)s->tensors.n;
    o->tokenizer_kind = s->tokenizer->kind;
    o->chat_template = s->chat_template_text;
}

LLM_API void llm_model_close(llm_model *model) {
    if (!model) return;
    llm__source_close(&model->source);
    LLM_FREE(model->path);
    LLM_FREE(model);
}

LLM__PRIVATE void llm__model_senses(llm_model *m, const llm_model_config *cfg) {
    static const char *const senses[] = {"vision_config", "mm_vision_tower", "vision_tower", "audio_config"};
    if (m->source.gguf || m->vision || m->blind || (cfg && (cfg->language_model_only || cfg->vocab_only))) return;
    for (int i = 0; i < LLM__COUNT(senses); i++)
        if (!m->blind && llm_json_type_of(m->source.config, llm_json_find(m->source.config, 0, senses[i])) > LLM_JSON_NULL) {
            m->blind = 1;
            llm__log(&m->source.log, LLM_LOG_WARN, "%s: config.json: %s: this part is not read, the model answers texts alone", m->path,
                     senses[i]);
        }
}

/* Layers behind the last guess further tokens (multi-token prediction). They are read where an engine drafts with them. */
static void llm__model_ahead(const llm_model *m) {
    char key[96];
    int64_t n = 0;
    snprintf(key, sizeof key, "%.60s.nextn_predict_layers", m->arch.name);
    if (m->source.gguf) n = llm__gguf_int(m->source.gguf, key, 0);
    else {
        const llm_json *c = m->source.config;
        const int text = llm_json_find(c, 0, "text_config");
        if (llm_json_int(c, llm_json_find(c, 0, "num_nextn_predict_layers"), &n))
            llm_json_int(c, llm_json_find(c, text < 0 ? 0 : text, "mtp_num_hidden_layers"), &n);
    }
    if (n > 0)
        llm__log(&m->source.log, LLM_LOG_INFO, "%s: layers that predict further tokens (%d) are left out%s", m->path,
                 (int)LLM__MIN(n, 1 << 20),
                 llm__next_has(m) ? ", unless drafts are asked of the first (--speculative-model \"[mtp]\")" : "");
}

/* `quantization` says what the files say too, so one that they contradict is a mistake: another model was meant. Of files that are not
 * quantised it says what they become while they are loaded. */
static llm_result llm__model_quantized(llm_model *m, const char *wanted) {
    const llm__quant *q = &m->source.quant;
    const char *method = m->source.gguf ? "gguf" : llm__quant_name(q->method);
    if (!wanted || llm__alias_among("none", llm__lit(wanted), NULL) || llm__alias_among(wanted, llm__lit(method), NULL)) return LLM_OK;
    if (!m->source.gguf && llm__quant_is_called(q, wanted)) return LLM_OK;
    if (!m->source.gguf && q->method == LLM__QUANT_NONE) m->requant = llm__requant_named(wanted);
    if (m->requant) return LLM_OK;
    const int made = llm__quant_named(wanted), calibrated = made == LLM__QUANT_AWQ || made == LLM__QUANT_GPTQ || made == LLM__QUANT_SMOOTH;
    return llm__error(LLM_ERR_ARG, "quantization: %.40s, but the method of %s is %.40s%s", wanted, m->path, method,
                      calibrated && !m->source.gguf && q->method == LLM__QUANT_NONE
                          ? ": this one takes a calibration, llm_cli quantize makes such a folder"
                          : "");
}

/* Files, tokenizer and template first; then the architecture; then every weight is looked up, so that what is opened
 * can run. The path is copied: the source and all messages point to the copy. */
LLM__PRIVATE llm_result llm__model_open(const char *path, const llm__place *place, const llm_model_config *cfg, llm_model **out) {
    *out = NULL;
    if (cfg && (cfg->dummy_weights < 0 || cfg->dummy_weights > 3))
        return llm__error(LLM_ERR_ARG, "dummy_weights %d: 0 to 3 expected", cfg->dummy_weights);
    llm_model *m = LLM__NEW(llm_model, 1);
    if (!m) return llm__nomem();
    m->path = llm__strdup(path ? path : "");
    m->dummy = cfg ? cfg->dummy_weights : 0;
    m->plain_sampling = cfg && cfg->no_generation_config;
    int vocab_only = cfg && cfg->vocab_only;
    llm_result r = m->path ? llm__source_open(m->path, place, cfg, &m->source) : llm__nomem();
    if (!r && !vocab_only && cfg && !m->dummy) r = llm__model_quantized(m, cfg->quantization);
    if (!r && !vocab_only) r = llm__eagle_alone(&m->source);
    if (!r && !vocab_only) r = llm__arch_read(&m->source, m->dummy, &m->arch);
    if (!r && !vocab_only) llm__source_bound(&m->source, m->arch.vocab);
    if (!r && !vocab_only && cfg) r = llm__rope_override(&m->arch, (double)cfg->rope_scaling_factor, cfg->use_logn_attn, m->path);
    if (!r && !vocab_only) r = llm__net_check(m);
    if (!r && !vocab_only) r = llm__pooler_open(m);
    if (r) {
        llm_model_close(m);
        return r;
    }
    if (!vocab_only) llm__model_ahead(m);
    llm__model_quantization(m);
    llm__model_info_fill(m);
    *out = m;
    return LLM_OK;
}

/* Filled in once, above. */
LLM_API const llm_model_info *llm_model_get_info(const llm_model *model) { return &model->info; }

/* In the order of the files. */
LLM_API llm_result llm_model_tensor(const llm_model *model, int i, const char **name, const char **type, int64_t shape[4], int *n_dims,
                                    int64_t *bytes) {
    if (i < 0 || i >= model->info.n_tensors) return llm__error(LLM_ERR_ARG, "tensor %d: 0 to %d expected", i, model->info.n_tensors - 1);
    const llm__tensor *t = &model->source.tensors.item[i];
    if (name) *name = t->name.p;
    if (type) *type = llm__type_name(t->type);
    for (int k = 0; shape && k < 4; k++) shape[k] = t->shape[k];
    if (n_dims) *n_dims = t->n_dims;
    if (bytes) *bytes = t->bytes;
    return LLM_OK;
}

/* The functions below are the public side of >>tokenizer. With dummy weights a folder may lack one: then there are ids only. */
LLM_API llm_result llm_tokenize(const llm_model *model, const char *text, size_t len, int flags, llm_tokens *out) {
    llm_result r = llm__tokenizer_encode(model->source.tokenizer, text, len, flags, out);
    return r == LLM_ERR_UNSUPPORTED ? llm__error(r, "%s: the model has no tokenizer", model->path) : r;
}

LLM_API llm_result llm_tokenize_pair(const llm_model *model, const char *a, size_t a_len, const char *b, size_t b_len, int flags,
                                     size_t most, llm_tokens *ids, llm_tokens *types) {
    return llm__tokenizer_pair(model->source.tokenizer, llm__s(a, a_len), llm__s(b, b_len), flags, most, ids, types);
}

LLM_API llm_result llm_detokenize(const llm_model *model, const int32_t *ids, size_t n, int flags, llm_text *out) {
    return llm__tokenizer_decode(model->source.tokenizer, ids, n, flags, 0, out);
}

LLM_API int32_t llm_vocab_size(const llm_model *model) { return model->source.tokenizer->n_vocab; }

LLM_API int32_t llm_token_id(const llm_model *model, const char *token) {
    return llm__tokenizer_id(model->source.tokenizer, llm__lit(token));
}

LLM_API llm_result llm_token_bytes(const llm_model *model, int32_t id, llm_text *out) {
    return llm__tokenizer_piece(model->source.tokenizer, id, out);
}

LLM_API int llm_token_is_special(const llm_model *model, int32_t id) { return llm__tokenizer_is_special(model->source.tokenizer, id); }

LLM_API llm_result llm_guard(const llm_model *model, const char *text, size_t len, llm_text *out) {
    llm__guard(model->source.tokenizer, llm__s(text, len), out);
    return out->failed ? llm__nomem() : LLM_OK;
}

LLM_API void llm_unguard(const char *text, size_t len, llm_text *out) { llm__unguard(llm__s(text, len), out); }

LLM_API llm_detok *llm_detok_create(const llm_model *model, int flags) { return llm__detok_open(model->source.tokenizer, flags); }

LLM_API llm_result llm_template_render(const llm_template *t, const llm_json *context, const llm_render_options *options, llm_text *out) {
    return llm__template_render(t, context, options, options && options->guard ? options->guard->source.tokenizer : NULL, out);
}

/* A template that could not be parsed is told here, not at opening: the model can still complete texts. BOS and EOS
 * texts are the model's unless the caller has his own. */
LLM_API llm_result llm_render(const llm_model *model, const llm_json *context, const llm_render_options *options, llm_text *out) {
    const llm__source *s = &model->source;
    llm_render_options o = LLM__ZERO;
    if (options) o = *options;
    if (!s->chat_template) {
        const char *slash = strrchr(model->path, '/'), *name = slash && slash[1] ? slash + 1 : model->path; /* clients see no folders */
        if (s->chat_template_error)
            return llm__error(LLM_ERR_TEMPLATE, "%s: the chat template cannot be used: %.700s", name, s->chat_template_error);
        if (model->arch.encoder)
            return llm__error(LLM_ERR_UNSUPPORTED, "%s is an encoder, which gives vectors of texts and no answers", name);
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: the model has no chat template; --chat-template gives it one", name);
    }
    if (!o.bos_token) o.bos_token = s->bos_token;
    if (!o.eos_token) o.eos_token = s->eos_token;
    return llm_template_render(s->chat_template, context, &o, out);
}

LLM_API int llm_tools_are_special(const llm_model *model, int format) { return llm__tools_are_special(model->source.tokenizer, format); }
