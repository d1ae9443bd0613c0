#include "model/arch_encoder.h"
#include "api/config.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "model/tensors.h"
#include "model/facts.h"
#include "model/families.h"
#include "model/arch.h"

/* First names of what is as BERT, whose embeddings have kinds. */
#define LLM__BERTS "bert electra ernie megatron-bert roberta roberta-prelayernorm"

/* Words that change what an encoder computes, and the only value of each that is computed here. */
static void llm__encoder_refused(llm__facts *f, const llm__arch *a) {
    static const struct {
        const char *families, *key;
        int expected;
    } flags[] = {
        {LLM__BERTS, "is_decoder", 0},      {LLM__BERTS, "add_cross_attention", 0}, {"nomic_bert", "prenorm", 0},
        {"nomic_bert", "use_rms_norm", 0},  {"nomic_bert", "parallel_block", 0},    {"nomic_bert", "causal", 0},
        {"gte", "logn_attention_scale", 0}, {"gte", "logn_attention_clip1", 0},
    };
    char text[64];
    for (int i = 0; i < LLM__COUNT(flags); i++)
        if (llm__arch_is(a, flags[i].families) && llm__fact_bool(f, flags[i].key, flags[i].expected) != flags[i].expected && !f->r)
            f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: %s: %s is not supported", f->path, flags[i].key,
                              flags[i].expected ? "false" : "true");
    llm__fact_str(f, "position_embedding_type", text);
    const char *places = llm__arch_is(a, "gte") ? "rope" : "absolute";
    if (text[0] && strcmp(text, places) && !(llm__arch_is(a, "nomic_bert") && !strcmp(text, "rotary")) && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: position_embedding_type: \"%.40s\", %s expected", f->path, text, places);
    llm__fact_str(f, "layer_norm_type", text);
    if (text[0] && llm__arch_is(a, "gte") && strcmp(text, "layer_norm") && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: layer_norm_type: \"%.40s\", layer_norm expected", f->path, text);
    if (llm__arch_is(a, "electra") && llm__fact_int(f, "embedding_size", 128, 1, 1 << 20) != a->hidden && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: embedding_size: another than hidden_size (%d) is not supported", f->path,
                          a->hidden);
    if (llm__arch_is(a, "mpnet") && llm__fact_int(f, "relative_attention_num_buckets", 32, 0, 1 << 20) != 32 && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: relative_attention_num_buckets: 32 expected", f->path);
    if (!llm__arch_is(a, "nomic_bert")) return;
    llm__fact_str(f, "activation_function", text);
    if (text[0] && !llm__word_in("swiglu geglu", text) && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: activation_function: \"%.40s\", swiglu or geglu expected", f->path, text);
    if ((llm__fact_int(f, "num_experts", 0, 0, 1 << 20) > 0 || llm__fact_num(f, "rotary_scaling_factor", 0, 0, 1e9) > 0) && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: num_experts and rotary_scaling_factor are not supported", f->path);
}

/* A model that generates is trained to see what is before it; one that says otherwise has changed into something that is not known here. */
static void llm__decoder_refused(llm__facts *f, const llm__arch *a) {
    static const char *const keys[] = {"use_bidirectional_attention", "is_causal"};
    char text[64];
    for (int i = 0; i < LLM__COUNT(keys) && f->json; i++) {
        const int node = llm__facts_find(f, keys[i]).node;
        int on = i;
        if (llm_json_type_of(f->json, node) == LLM_JSON_STRING) /* "vision": pictures alone */
            on = !strcmp(llm__fact_str(f, keys[i], text), "all");
        else on = llm__fact_bool(f, keys[i], i);
        if (on != i && !f->r)
            f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: %s: %s with attention to both sides is not supported", f->path,
                              keys[i], a->name);
    }
    if (f->json && llm__ends_with(a->class_name, "ForSequenceClassification") && !f->r)
        f->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: architectures: %.60s: a classifier over %s is not supported", f->path,
                          a->class_name, a->name);
}

LLM__PRIVATE void llm__arch_encoder_shapes(llm__facts *f, llm__arch *a, const llm__tensors *tensors) {
    const int gemma3 = llm__arch_is(a, "gemma3_text");
    a->encoder = (a->flags & LLM__BOTH_WAYS) || llm__word_in("gemma-embedding embedding_gemma2_text embedding_gemma2", a->name);
    if (gemma3 && f->json) a->encoder = llm__fact_bool(f, "use_bidirectional_attention", 0);
    if (!a->encoder) {
        if (!llm__arch_is(a, "gemma4_text")) llm__decoder_refused(f, a);
        return;
    }
    if (f->json) llm__encoder_refused(f, a);
    if (llm__arch_is(a, LLM__BERTS " nomic_bert gte")) { /* GGUF tells by the tensor */
        const llm__tensor *types = llm__tensors_find(tensors, "token_types.weight");
        const int none = llm__arch_is(a, "gte nomic_bert"); /* there may be none */
        if (f->json) a->n_types = llm__fact_int(f, "type_vocab_size", llm__arch_is(a, "gte") ? 1 : 2, !none, 1 << 16);
        else if (types) a->n_types = types->n_dims < 2 ? 1 : (int32_t)LLM__MIN(types->shape[0], 1 << 16);
    }
    const int mpnet = llm__arch_is(a, "mpnet"); /* whose number for padding is fixed, whatever its config.json says */
    if (f->json && llm__arch_is(a, "roberta roberta-prelayernorm mpnet")) { /* their tables of positions begin behind that of padding */
        a->position_offset = mpnet ? 2 : llm__fact_int(f, "pad_token_id", 1, 0, 1 << 16) + 1;
        a->max_positions -= a->position_offset;
        if (a->max_positions < 1 && !f->r)
            f->r = llm__error(LLM_ERR_FORMAT, "%s: config.json: max_position_embeddings: more than pad_token_id + 1 expected", f->path);
        a->max_positions = LLM__MAX(a->max_positions, 1);
        a->max_len = a->max_positions;
    }
    if (mpnet) a->reach = 91; /* see llm__distance_bucket */
    a->max_len = LLM__MIN(a->max_len, llm__fact_int(f, "max_trained_positions", a->max_len, 1, 1 << 30));
}

/* ModernBERT: every so many layers one, from the first on, sees everything; the others have a window and a RoPE base of their own. */
static void llm__encoder_modern(llm__facts *f, llm__arch *a) {
    const int32_t wide = llm__fact_int(f, "local_attention .attention.sliding_window", 128, 0, 1 << 30);
    const llm__fact each = llm__facts_find(f, ".attention.sliding_window_pattern"); /* of GGUF: read with the layers, if it is a list */
    const int listed = llm__fact_list(f, "layer_types") >= 0 || (each.kv && each.kv->is_array);
    const int32_t every =
        listed ? 1 : llm__fact_int(f, "global_attn_every_n_layers .attention.sliding_window_pattern", 3, 1, LLM__MAX_LAYERS);
    for (int i = 0; i < a->n_layers; i++) {
        llm__arch_layer *l = &a->layer[i];
        const int slides = listed ? l->slides : i % every != 0;
        l->window = slides ? wide / 2 + 1 : 0;
        l->rope = slides && a->n_rope > 1;
        l->bare = i == 0;
    }
}

LLM__PRIVATE void llm__arch_encoder(llm__facts *f, llm__arch *a) {
    if (!a->encoder) return;
    if (llm__arch_is(a, "modernbert")) llm__encoder_modern(f, a);
    for (int i = 0; i < a->n_layers; i++) {
        llm__arch_layer *l = &a->layer[i];
        if (l->window && llm__arch_is(a, "gemma3_text")) l->window = l->window / 2 + 1;
        if (l->window && llm__arch_is(a, "gemma4_text")) l->window++;
    }
}
