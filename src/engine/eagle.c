#include "engine/eagle.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "api/model.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/files.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/source.h"
#include "model/source_open.h"
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

/* Tensors of a folder, or of one file in it, and with `config` its config.json. */
static llm_result llm__eagle_files(llm__source *s, const char *folder, const char *file) {
    s->path = folder;
    llm_result r = llm__folder_json(s, folder, "config.json", 16000000, &s->config);
    if (!r && file && (strchr(file, '/') || !llm__ends_with(file, ".safetensors")))
        return llm__error(LLM_ERR_UNSUPPORTED, "%.200s: the plain name of a .safetensors file expected (pickles are never read)", file);
    return r ? r : file ? llm__source_safetensors(s, llm__source_path(s, folder, file)) : llm__source_weights(s, folder);
}

/* One tensor of a file being made: its entry in the header. *end: of the data before it, moved on. */
static void llm__eagle_entry(llm_text *header, const char *name, const llm__tensor *t, int64_t *end) {
    llm_text_format(header, "%s%q: {'dtype': '%s', 'shape': [", header->len > 9 ? ", " : "", name, llm__type_info(t->type)->name);
    for (int i = 0; i < t->n_dims; i++) llm_text_format(header, "%s%l", i ? ", " : "", (int64_t)t->shape[i]);
    llm_text_format(header, "], 'data_offsets': [%l, %l]}", *end, *end + t->bytes);
    *end += t->bytes;
}

/* Writes a file whole and then gives it its name: what stood there before, and may be mapped, is replaced at once. */
static llm_result llm__eagle_write(const char *folder, const char *name, const llm_text *text, const llm__tensors *tensors,
                                   const llm__tensor *last) {
    LLM__SCOPED(llm__drop) char *path = llm__path_join(folder, name), *part = llm__path_join(folder, ".part");
    FILE *f = path && part ? fopen(part, "wb") : NULL;
    int ok = f && fwrite(text->data, text->len, 1, f) == 1;
    for (size_t i = 0; ok && tensors && i < tensors->n; i++)
        ok = !tensors->item[i].bytes || fwrite(tensors->item[i].data, (size_t)tensors->item[i].bytes, 1, f) == 1;
    if (ok && last) ok = fwrite(last->data, (size_t)last->bytes, 1, f) == 1;
    if (f && fclose(f)) ok = 0;
    ok = ok && !rename(part, path);
    llm_result r = ok ? LLM_OK : llm__error(LLM_ERR_IO, "%s/%s: %s", folder, name, strerror(errno));
    if (f && !ok) remove(part);
    return r;
}

/* Names are put behind "model." but for fc's and the output layer's; the config becomes an object of a new one. Both files are made whole
 * in memory or mapped before anything is written. */
LLM_API llm_result llm_convert_eagle(const char *head, const char *head_file, const char *base, const char *base_file, const char *to) {
    LLM__SCOPED(llm__source_close) llm__source from = LLM__ZERO, model = LLM__ZERO;
    LLM__SCOPED(llm__file_close) llm__file old = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text header = LLM__ZERO, config = LLM__ZERO, own = LLM__ZERO;
    const llm__tensor *output = NULL, *fc = NULL;
    int64_t end = 0;
    llm_result r = llm__eagle_files(&from, head, head_file);
    if (!r && !from.config) r = llm__folder_lacks(head, "config.json");
    if (!r) fc = llm__tensors_find(&from.tensors, "fc.weight");
    if (!r && (!fc || llm_json_find(from.config, 0, "model") >= 0))
        r = llm__error(LLM_ERR_FORMAT, "%s: %s", head,
                       fc ? "it is in vLLM's layout already" : "no EAGLE head, tensor fc.weight is missing");
    if (!r && base) r = llm__eagle_files(&model, base, base_file);
    if (!r && base && !(output = llm__tensors_find(&model.tensors, "lm_head.weight")) && /* tied */
        !(output = llm__tensors_find(&model.tensors, "model.embed_tokens.weight")))
        r = llm__error(LLM_ERR_FORMAT, "%s: tensor lm_head.weight is missing", base);
    if (!r) r = llm__file_open(llm__source_path(&from, head, "config.json"), 16000000, 1, &old);
    llm_text_add(&header, "12345678{", 9); /* the first 8 bytes become its length */
    for (size_t i = 0; !r && i < from.tensors.n; i++) {
        const char *name = from.tensors.item[i].name.p;
        int whole = !strncmp(name, "fc.", 3) || !strncmp(name, "lm_head.", 8) || !strncmp(name, "model.", 6);
        if (!strcmp(name, "lm_head.weight")) output = NULL; /* it has one */
        own.len = 0;
        llm_text_format(&own, whole ? "%s" : "model.%s", name);
        if (own.failed) break;
        llm__eagle_entry(&header, own.data, &from.tensors.item[i], &end);
    }
    if (output) llm__eagle_entry(&header, "lm_head.weight", output, &end);
    llm_text_str(&header, "}");
    while (!header.failed && header.len % 8) llm_text_str(&header, " ");
    for (int i = 0; i < 8 && !header.failed; i++) header.data[i] = (char)((uint64_t)(header.len - 8) >> 8 * i);
    const char *bias = llm__tensors_find(&from.tensors, "fc.bias") ? "true" : "false";
    llm_text_format(&config, "{'architectures': ['EAGLEModel'], 'model_type': 'eagle', 'bias': %s, 'eagle_fc_bias': %s, 'model': ", bias,
                    bias);
    llm_text_add(&config, (const char *)old.data, old.size);
    llm_text_str(&config, "}\n");
    if (!r && (header.failed || config.failed || own.failed)) r = llm__nomem();
    if (!r) r = llm__folder_make(to);
    if (!r) r = llm__eagle_write(to, "model.safetensors", &header, &from.tensors, output);
    return r ? r : llm__eagle_write(to, "config.json", &config, NULL, NULL);
}
