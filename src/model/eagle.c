#include "model/eagle.h"
#include "api/config.h"
#include "api/model.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/files.h"
#include "model/tensors.h"
#include "model/source.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/rope.h"
#include "model/loader.h"
#include "model/net.h"

/* 1 if a folder is an EAGLE head: its config says so, or it has an fc. */
static int llm__eagle_is(const llm__source *s) {
    const llm_json *c = s->config;
    const char *type = llm_json_str(c, llm_json_find(c, 0, "model_type"), NULL);
    const char *name = llm_json_str(c, llm_json_first(c, llm_json_find(c, 0, "architectures")), NULL);
    if (type && !strcmp(type, "eagle")) return 1;
    if (name && (strstr(name, "agle") || strstr(name, "EAGLE"))) return 1;
    return llm__tensors_find(&s->tensors, "fc.weight") != NULL;
}

/* Config and shapes of a head for `model`. lab: without norms. What it takes from the model it computes as the model does. */
static llm_result llm__eagle_read(llm_model *m, const llm_model *model, int lab) {
    static const char *const skips[2] = {"skip_prenorm", "skip_output_norm"};
    const llm_json *c = m->source.config;
    llm__arch *a = &m->arch;
    const llm__arch *own = &model->arch;
    llm_result r = llm__arch_read(&m->source, 0, a);
    if (r) return r;
    if (strstr(a->class_name, "agle3") || strstr(a->class_name, "EAGLE3") || llm__tensors_find(&m->source.tensors, "d2t"))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: an EAGLE-3 head: heads of EAGLE and EAGLE-2 are supported", m->path);
    if (a->n_layers != 1 || a->hidden != own->hidden)
        return llm__error(LLM_ERR_ARG, "%s: an EAGLE head of %d layers and hidden size %d: 1 and the model's %d expected", m->path,
                          a->n_layers, a->hidden, own->hidden);
    if (a->flags & (LLM__PARALLEL | LLM__LEARNED | LLM__ALIBI))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: an EAGLE head of the kind %s is not supported", m->path, a->name);
    a->eagle = LLM__EAGLE;
    for (int i = 0; i < 2 && !lab; i++) {
        int skip = 0;
        llm_json_bool(c, llm_json_find(c, 0, skips[i]), &skip);
        llm_json_bool(c, llm_json_find(c, llm_json_find(c, 0, "model"), skips[i]), &skip);
        if (!skip) a->eagle |= i ? LLM__EAGLE_BEHIND : LLM__EAGLE_BEFORE;
    }
    a->vocab = own->vocab;
    a->embed_scale = own->embed_scale;
    a->logit_scale = own->logit_scale;
    a->logit_softcap = own->logit_softcap;
    a->qkv_bias = a->o_bias = a->mlp_bias = 0; /* "bias" is that of fc; all are used where the files have them */
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
