#include "model/eagle.h"
#include "api/config.h"
#include "api/model.h"
#include "api/json.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/files.h"
#include "base/json.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/source.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/rope.h"
#include "model/loader.h"
#include "model/net.h"

/* ---- EAGLE heads ---- */

/* 1 if a folder is an EAGLE head: its config says so, or it has an fc. */
static int llm__eagle_is(const llm__source *s) {
    const llm_json *c = s->config;
    const char *type = llm_json_str(c, llm_json_find(c, 0, "model_type"), NULL);
    const char *name = llm_json_str(c, llm_json_first(c, llm_json_find(c, 0, "architectures")), NULL);
    if (type && !strcmp(type, "eagle")) return 1;
    if (name && (strstr(name, "agle") || strstr(name, "EAGLE"))) return 1;
    return llm__tensors_find(&s->tensors, "fc.weight") != NULL;
}

LLM__PRIVATE llm_result llm__eagle_alone(const llm__source *s) {
    const llm_json *c = s->config;
    const int of = llm_json_find(c, llm_json_find(c, 0, "speculators_config"), "verifier");
    const char *model = llm_json_str(c, llm_json_find(c, of, "name_or_path"), NULL);
    if (s->gguf || !c || !llm__eagle_is(s)) return LLM_OK;
    return llm__error(LLM_ERR_UNSUPPORTED, "%s: an EAGLE head, which only guesses: it is a speculative_model beside the model%s%.200s",
                      s->path, model ? " " : "", model ? model : "");
}

/* 1 for EAGLE-3, by its config or by the table that says which tokens it knows. */
static int llm__eagle_is_third(const llm__source *s, const llm__arch *a) {
    const char *type = llm_json_str(s->config, llm_json_find(s->config, 0, "speculators_model_type"), NULL);
    return strstr(a->class_name, "agle3") || strstr(a->class_name, "EAGLE3") || (type && !strcmp(type, "eagle3")) ||
           llm__tensors_find(&s->tensors, "d2t") || llm__tensors_find(&s->tensors, "midlayer.hidden_norm.weight");
}

/* A switch of the config itself or of one of its objects; several have been in use. */
static int llm__eagle_flag(const llm_json *c, const char *name, int otherwise) {
    static const char *const objects[] = {"model", "eagle_config", "transformer_layer_config"};
    llm_json_bool(c, llm_json_find(c, 0, name), &otherwise);
    for (int i = 0; i < LLM__COUNT(objects); i++) llm_json_bool(c, llm_json_find(c, llm_json_find(c, 0, objects[i]), name), &otherwise);
    return otherwise;
}

/* Before which of the model's layers EAGLE-3 reads: as its config says, else the third, the middle one and the last but two. */
static llm_result llm__eagle_taps(llm_model *m, const llm__arch *own) {
    static const char name[] = "eagle_aux_hidden_state_layer_ids";
    const llm_json *c = m->source.config;
    llm__arch *a = &m->arch;
    const int top = llm_json_find(c, 0, name), list = top >= 0 ? top : llm_json_find(c, llm_json_find(c, 0, "eagle_config"), name);
    const int32_t half = own->n_layers / 2, third = LLM__MIN(2, own->n_layers - 1), late = LLM__MAX(own->n_layers - 3, 0);
    a->tapped[0] = LLM__MIN(LLM__MIN(half, third), late); /* of a model of a few layers the order is another one */
    a->tapped[2] = LLM__MAX(LLM__MAX(half, third), late);
    a->tapped[1] = half + third + late - a->tapped[0] - a->tapped[2];
    if (llm_json_type_of(c, list) == LLM_JSON_ARRAY) {
        int v = llm_json_first(c, list);
        if (llm_json_size(c, list) != 3)
            return llm__error(LLM_ERR_UNSUPPORTED, "%s: %s: %d layers, 3 expected", m->path, name, (int)llm_json_size(c, list));
        for (int i = 0; i < 3; i++, v = llm_json_next(c, v)) a->tapped[i] = (int32_t)llm__json_whole(c, v, -1);
    }
    if (a->tapped[0] < 0 || a->tapped[1] < a->tapped[0] || a->tapped[2] < a->tapped[1] || a->tapped[2] >= own->n_layers)
        return llm__error(LLM_ERR_FORMAT, "%s: %s: %d, %d, %d, three rising numbers of the model's %d layers expected", m->path, name,
                          a->tapped[0], a->tapped[1], a->tapped[2], own->n_layers);
    a->tap_hidden = own->hidden;
    return LLM_OK;
}

/* Heads that compute otherwise than all that were published until 2026 are refused by their own words. */
static llm_result llm__eagle_variants(const llm_model *m) {
    static const struct {
        const char *name;
        int usual;
    } words[] = {{"use_aux_hidden_state", 1}, {"use_input_layernorm_in_first_layer", 1},
                 {"use_last_layernorm", 1},   {"use_mtp_layernorm", 0},
                 {"parallel_drafting", 0},    {"norm_before_fc", 0}};
    for (int i = 0; i < LLM__COUNT(words); i++)
        if (llm__eagle_flag(m->source.config, words[i].name, words[i].usual) != words[i].usual)
            return llm__error(LLM_ERR_UNSUPPORTED, "%s: an EAGLE-3 head with %s %s is not supported", m->path, words[i].name,
                              words[i].usual ? "false" : "true");
    return LLM_OK;
}

/* What EAGLE-3 has of its own: an output layer of fewer tokens, an embedding, another width. */
static llm_result llm__eagle_third(llm_model *m, const llm__arch *own) {
    llm__arch *a = &m->arch;
    const llm__tensors *t = &m->source.tensors;
    const llm__tensor *head = llm__tensors_find(t, "lm_head.weight"), *embed = llm__tensors_find(t, "embed_tokens.weight");
    if (!embed) embed = llm__tensors_find(t, "model.embed_tokens.weight");
    if (own->n_streams || own->encoder)
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: an EAGLE-3 head of %s is not supported", m->path, own->name);
    if (llm__tensors_find(t, "midlayer.hidden_norm.weight")) a->layer_base = "midlayer.", a->layer_from = -1;
    a->eagle = LLM__EAGLE | LLM__EAGLE_THREE | LLM__EAGLE_RAW | LLM__EAGLE_BEHIND;
    if (!llm__eagle_flag(m->source.config, "norm_before_residual", 0)) a->eagle |= LLM__EAGLE_BEFORE;
    a->own_embed = embed != NULL;
    a->outputs = head && head->shape[0] > 0 ? (int32_t)LLM__MIN(head->shape[0], (int64_t)own->vocab) : 0;
    if ((!a->own_embed || !a->outputs) && a->hidden != own->hidden)
        return llm__error(LLM_ERR_FORMAT, "%s: hidden size %d, the model's %d expected of a head without %s of its own", m->path, a->hidden,
                          own->hidden, a->outputs ? "an embedding" : "an output layer");
    const llm_result r = llm__eagle_variants(m);
    return r ? r : llm__eagle_taps(m, own);
}

/* Of EAGLE and EAGLE-2. lab: without norms. */
static llm_result llm__eagle_first(llm_model *m, const llm__arch *own, int lab) {
    static const char *const skips[2] = {"skip_prenorm", "skip_output_norm"};
    llm__arch *a = &m->arch;
    if (a->hidden != own->hidden)
        return llm__error(LLM_ERR_ARG, "%s: an EAGLE head of hidden size %d: the model's %d expected", m->path, a->hidden, own->hidden);
    a->eagle = LLM__EAGLE;
    for (int i = 0; i < 2 && !lab; i++)
        if (!llm__eagle_flag(m->source.config, skips[i], 0)) a->eagle |= i ? LLM__EAGLE_BEHIND : LLM__EAGLE_BEFORE;
    a->qkv_bias = a->o_bias = a->mlp_bias = 0; /* "bias" is that of fc; all are used where the files have them */
    return LLM_OK;
}

/* Config and shapes of a head for `model`. What it takes from the model it computes as the model does. */
static llm_result llm__eagle_read(llm_model *m, const llm_model *model, int lab) {
    llm__arch *a = &m->arch;
    const llm__arch *own = &model->arch;
    llm_result r = llm__arch_read(&m->source, 0, a);
    if (r) return r;
    if (a->n_layers != 1) return llm__error(LLM_ERR_ARG, "%s: an EAGLE head of %d layers: 1 expected", m->path, a->n_layers);
    if (a->flags & (LLM__PARALLEL | LLM__LEARNED | LLM__ALIBI | LLM__MLA))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: an EAGLE head of the kind %s is not supported", m->path, a->name);
    r = llm__eagle_is_third(&m->source, a) ? llm__eagle_third(m, own) : llm__eagle_first(m, own, lab);
    if (r) return r;
    a->vocab = own->vocab;
    if (!a->own_embed) a->embed_scale = own->embed_scale;
    if (!a->outputs) a->logit_scale = own->logit_scale, a->logit_softcap = own->logit_softcap;
    return llm__net_check(m);
}

LLM__PRIVATE llm_result llm__eagle_open(const char *path, const llm_model *model, int lab, llm_model **out) {
    llm_model_config files = LLM__ZERO;
    *out = NULL;
    if (llm__path_kind_of(path) != LLM__PATH_DIR) return LLM_OK;
    llm_model *m = LLM__NEW(llm_model, 1);
    if (!m) return llm__nomem();
    m->source.path = m->path = llm__strdup(path);
    llm_result r = m->path ? llm__source_folder(&m->source, m->path, &files) : llm__nomem();
    int eagle = !r && llm__eagle_is(&m->source);
    if (eagle) r = llm__eagle_read(m, model, lab);
    if (eagle && !r) *out = m;
    else llm_model_close(m);
    return r;
}

/* The differences are stored, as 64-bit integers; heads that know all tokens may leave them out. */
LLM__PRIVATE llm_result llm__eagle_words(const llm_model *head, int32_t *ids) {
    const llm__arch *a = &head->arch;
    const llm__tensor *t = llm__tensors_find(&head->source.tensors, "d2t");
    const int64_t wide = t && t->type == LLM_TYPE_I64 ? 8 : 4;
    if (t && ((t->type != LLM_TYPE_I64 && t->type != LLM_TYPE_I32) || t->bytes != wide * a->outputs))
        return llm__error(LLM_ERR_FORMAT, "%s: tensor d2t is %s of %lld bytes, an integer for each of %d rows of lm_head expected",
                          head->path, llm__type_name(t->type), (long long)t->bytes, a->outputs);
    if (!t && a->outputs < a->vocab)
        return llm__error(LLM_ERR_FORMAT, "%s: lm_head has %d rows for %d tokens, and d2t, which says whose they are, is missing",
                          head->path, a->outputs, a->vocab);
    for (int32_t i = 0; i < a->outputs; i++) {
        int64_t by = 0;
        int32_t narrow = 0;
        if (t && wide == 8) memcpy(&by, t->data + 8 * (int64_t)i, 8);
        else if (t) memcpy(&narrow, t->data + 4 * (int64_t)i, 4), by = narrow;
        if (by < -i || by >= a->vocab - i)
            return llm__error(LLM_ERR_FORMAT, "%s: d2t: row %d stands for token %lld, 0 to %d expected", head->path, (int)i,
                              (long long)(i + LLM__MAX(LLM__MIN(by, (int64_t)1 << 40), -((int64_t)1 << 40))), (int)a->vocab - 1);
        ids[i] = i + (int32_t)by;
    }
    return LLM_OK;
}

/* ---- The model's own next layer ---- */

/* How families store it. */
typedef struct llm__next_form {
    const char *seen; /* a tensor that tells it, with the layer's number where it has one */
    const char *base; /* how names of the layer begin; NULL: as those of the model's layers */
    int dense;        /* its MLP is that of the first layer, else it is as the last layer is */
    int flags;        /* LLM__EAGLE_* beside those that all have */
} llm__next_form;

static const llm__next_form llm__next_forms[] = {
    {"%s%d.eh_proj.weight", NULL, 0, LLM__EAGLE_BEHIND | LLM__EAGLE_RAW},
    {"%s%d.nextn.eh_proj.weight", NULL, 0, LLM__EAGLE_BEHIND | LLM__EAGLE_RAW},
    {"model.mtp_layers.0.input_proj.weight", "model.mtp_layers.", 0, LLM__EAGLE_BEHIND | LLM__EAGLE_ACROSS},
    {"model.mtp_linear_proj.0.weight", "model.mtp_block.", 1, 0},
    {"ernie.mtp_linear_proj.0.weight", "ernie.mtp_block.", 1, 0},
    {"mtp.fc.weight", "mtp.layers.", 0, LLM__EAGLE_BEHIND},
};

/* The form of the one that stands behind `n_layers` layers; NULL: there is none. */
static const llm__next_form *llm__next_find(const llm__tensors *t, int32_t n_layers) {
    const char *base = llm__layer_base(t, 0);
    for (int i = 0; i < LLM__COUNT(llm__next_forms); i++) {
        char name[256];
        if (llm__next_forms[i].base) snprintf(name, sizeof name, "%s", llm__next_forms[i].seen);
        else if (strstr(llm__next_forms[i].seen, "nextn")) snprintf(name, sizeof name, "%s%d.nextn.eh_proj.weight", base, (int)n_layers);
        else snprintf(name, sizeof name, "%s%d.eh_proj.weight", base, (int)n_layers);
        if (llm__tensors_find(t, name)) return &llm__next_forms[i];
    }
    return NULL;
}

LLM__PRIVATE int llm__next_has(const llm_model *m) { return llm__next_find(&m->source.tensors, m->arch.n_layers) != NULL; }

/* The model's architecture with one layer. */
static llm_result llm__next_read(llm_model *m, const llm_model *model) {
    llm__arch *a = &m->arch;
    *a = model->arch;
    const llm__next_form *form = llm__next_find(&m->source.tensors, a->n_layers);
    if (!form) return llm__error(LLM_ERR_UNSUPPORTED, "%s has no layer that predicts further tokens (mtp)", m->path);
    if (a->per_layer || a->n_streams || a->flags & (LLM__PARALLEL | LLM__LEARNED | LLM__ALIBI))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: the next layer of %s is not supported (mtp)", m->path, a->name);
    int32_t like = form->dense ? 0 : a->n_layers - 1; /* of a model with recurrent layers it attends */
    while (like > 0 && a->layer[like].mixer != LLM__MIX_ATTENTION) like--;
    a->layer[0] = a->layer[like];
    a->recurrent = 0;
    a->layer[0].kv_of = a->layer[0].kv_shared = 0;
    a->layer_base = form->base;
    a->layer_from = form->base ? 0 : a->n_layers;
    a->n_layers = 1;
    a->eagle = LLM__EAGLE | LLM__EAGLE_NEXT | LLM__EAGLE_BEFORE | form->flags;
    m->dummy = model->dummy;
    m->requant = model->requant;
    return llm__net_check(m);
}

LLM__PRIVATE llm_result llm__next_open(const char *path, const llm_model *model, llm_model **out) {
    llm_model_config files = LLM__ZERO;
    *out = NULL;
    llm_model *m = LLM__NEW(llm_model, 1);
    if (!m) return llm__nomem();
    m->source.path = m->path = llm__strdup(path ? path : model->path);
    llm_result r = m->path ? LLM_OK : llm__nomem();
    if (!r && llm__path_kind_of(m->path) == LLM__PATH_DIR) r = llm__source_folder(&m->source, m->path, &files);
    else if (!r) {
        llm__file f;
        r = llm__source_file(&m->source, m->path, &f);
        if (!r && !llm__is_gguf(&f)) r = llm__error(LLM_ERR_FORMAT, "%s: a GGUF file or a folder expected (mtp)", m->path);
        if (!r) r = llm__source_gguf(&m->source, m->path, f);
    }
    if (!r) r = llm__next_read(m, model);
    if (!r) *out = m;
    else llm_model_close(m);
    return r;
}
