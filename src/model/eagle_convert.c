/* eagle_convert: the folder of an EAGLE head from SafeAILab's layout to vLLM's. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/source.h"
#include "model/source_open.h"

/* The config.json and the tensors of a folder, or of one file in it. */
static llm_result llm__eagle_files(llm__source *s, const char *folder, const char *file) {
    s->path = folder;
    llm_result r = llm__folder_json(s, folder, "config.json", 16000000, &s->config);
    if (!r && file &&
        (strchr(file, '/') || !(llm__ends_with(file, ".safetensors") || llm__ends_with(file, ".bin") || llm__ends_with(file, ".pth"))))
        return llm__error(LLM_ERR_UNSUPPORTED, "%.200s: the plain name of a .safetensors or .bin file expected", file);
    return r ? r : file ? llm__source_shard(s, llm__source_path(s, folder, file), &s->tensors) : llm__source_weights(s, folder, "model");
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

/* The header of the new file: a length of 8 bytes, then an object that says where each tensor lies. Names get "model." in front, but for
 * fc's and the output layer's. *output: a matrix that goes last, as lm_head.weight, or NULL; set to NULL if the head has its own. */
static llm_result llm__eagle_header(const llm__tensors *from, const llm__tensor **output, llm_text *header) {
    LLM__SCOPED(llm_text_free) llm_text own = LLM__ZERO;
    int64_t end = 0;
    llm_text_add(header, "12345678{", 9); /* the first 8 bytes become its length */
    for (size_t i = 0; i < from->n && !own.failed; i++) {
        const char *name = from->item[i].name.p;
        int as_it_is = !strncmp(name, "fc.", 3) || !strncmp(name, "lm_head.", 8) || !strncmp(name, "model.", 6);
        if (!strcmp(name, "lm_head.weight")) *output = NULL;
        own.len = 0;
        llm_text_format(&own, as_it_is ? "%s" : "model.%s", name);
        if (!own.failed) llm__eagle_entry(header, own.data, &from->item[i], &end);
    }
    if (*output) llm__eagle_entry(header, "lm_head.weight", *output, &end);
    llm_text_str(header, "}");
    while (!header->failed && header->len % 8) llm_text_str(header, " ");
    for (int i = 0; i < 8 && !header->failed; i++) header->data[i] = (char)((uint64_t)(header->len - 8) >> 8 * i);
    return header->failed || own.failed ? llm__nomem() : LLM_OK;
}

/* The output layer of the model that a head belongs to: where it is tied, the embedding. */
static llm_result llm__eagle_output(llm__source *model, const char *base, const char *base_file, const llm__tensor **output) {
    llm_result r = llm__eagle_files(model, base, base_file);
    if (r) return r;
    *output = llm__tensors_find(&model->tensors, "lm_head.weight");
    if (!*output) *output = llm__tensors_find(&model->tensors, "model.embed_tokens.weight");
    return *output ? LLM_OK : llm__error(LLM_ERR_FORMAT, "%s: tensor lm_head.weight is missing", base);
}

/* The config becomes an object of a new one. Both files are made whole in memory or mapped before anything is written. */
LLM_API llm_result llm_convert_eagle(const char *head, const char *head_file, const char *base, const char *base_file, const char *to) {
    LLM__SCOPED(llm__source_close) llm__source from = LLM__ZERO, model = LLM__ZERO;
    LLM__SCOPED(llm__file_close) llm__file old = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text header = LLM__ZERO, config = LLM__ZERO;
    const llm__tensor *output = NULL;
    llm_result r = llm__eagle_files(&from, head, head_file);
    if (!r && !from.config) r = llm__folder_lacks(&from, head, "config.json");
    if (!r && !llm__tensors_find(&from.tensors, "fc.weight"))
        r = llm__error(LLM_ERR_FORMAT, "%s: no EAGLE head, tensor fc.weight is missing", head);
    if (!r && llm_json_find(from.config, 0, "model") >= 0) r = llm__error(LLM_ERR_FORMAT, "%s: it is in vLLM's layout already", head);
    if (!r && (llm__tensors_find(&from.tensors, "d2t") || llm__tensors_find(&from.tensors, "midlayer.hidden_norm.weight")))
        r = llm__error(LLM_ERR_UNSUPPORTED, "%s: an EAGLE-3 head, which is read as it is", head);
    if (!r && base) r = llm__eagle_output(&model, base, base_file, &output);
    if (!r) r = llm__file_open(llm__source_path(&from, head, "config.json"), 16000000, 1, &old);
    if (!r) r = llm__eagle_header(&from.tensors, &output, &header);
    const char *bias = llm__tensors_find(&from.tensors, "fc.bias") ? "true" : "false";
    llm_text_format(&config, "{'architectures': ['EAGLEModel'], 'model_type': 'eagle', 'bias': %s, 'eagle_fc_bias': %s, 'model': ", bias,
                    bias);
    llm_text_add(&config, (const char *)old.data, old.size);
    llm_text_str(&config, "}\n");
    if (!r && config.failed) r = llm__nomem();
    if (!r) r = llm__folder_make(to);
    if (!r) r = llm__eagle_write(to, "model.safetensors", &header, &from.tensors, output);
    return r ? r : llm__eagle_write(to, "config.json", &config, NULL, NULL);
}
