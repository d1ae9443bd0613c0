#include "quant/folder_files.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/quantize.h"
#include "api/engine.h"
#include "api/json.h"
#include "api/raw.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "base/json.h"
#include "model/tensors.h"
#include "model/source.h"
#include "engine/scheduler.h"
#include "quant/shards.h"
#include "quant/targets.h"
#include "quant/job.h"

enum { LLM__MEASURED = 16, LLM__SCORED = 64 }; /* samples that are measured; rows of logits at a time */
static const int64_t llm__shard_bytes = 5000000000;

/* FNV-1a. */
static uint64_t llm__folder_hash(uint64_t h, const void *p, size_t n) {
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211u;
    return h;
}

/* What an interrupted folder must have been made of and with. */
static void llm__folder_key(const llm__qjob *j, llm_text *t) {
    const llm_quantize_folder_config *c = j->cfg;
    const llm__tensors *x = &j->model->source.tensors;
    uint64_t h = 14695981039346656037u;
    LLM__SCOPED(llm__drop) char *config = llm__path_join(j->model->path, "config.json");
    for (size_t i = 0; i < x->n; i++) {
        h = llm__folder_hash(h, x->item[i].name.p, x->item[i].name.n);
        h = llm__folder_hash(h, &x->item[i].bytes, 8);
        if (x->item[i].data) h = llm__folder_hash(h, x->item[i].data, (size_t)LLM__MIN(x->item[i].bytes, 64)); /* of each a little */
    }
    for (size_t i = 0; i < j->out.n; i++) h = llm__folder_hash(h, j->out.tensor[i].name, strlen(j->out.tensor[i].name));
    if (j->samples.n) h = llm__folder_hash(h, j->samples.ids, (size_t)j->samples.begin[j->samples.n] * sizeof *j->samples.ids);
    llm_text_format(t, "1 %s %l %l %d %d %d %f ", llm__method_name(j->plan.method), j->plan.group, (int64_t)j->plan.dtype,
                    (int)j->plan.bits, (int)c->desc_act, (int)c->alpha_given, (double)c->alpha);
    llm_text_format(t, "%f %l %l", (double)c->damp, (int64_t)(h >> 1), config ? llm__path_time(config) : (int64_t)0);
}

LLM__PRIVATE void llm__folder_state(llm__qjob *j, int32_t done) {
    LLM__SCOPED(llm_text_free) llm_text key = LLM__ZERO, t = LLM__ZERO;
    if (j->r) return;
    llm__folder_key(j, &key);
    llm_text_format(&t, "{'done': %d, 'key': %q}\n", (int)done, key.data);
    if (key.failed) t.failed = 1;
    llm__out_text(&j->out, "state.json", &t);
    j->r = j->out.r;
}

/* How far an earlier run with the same settings has come; 0: there is none. */
static int32_t llm__folder_earlier(const llm__qjob *j) {
    LLM__SCOPED(llm__drop) char *path = llm__path_join(j->out.part, "state.json");
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    LLM__SCOPED(llm_text_free) llm_text key = LLM__ZERO;
    int64_t done = 0;
    if (!path || llm__path_kind_of(path) != LLM__PATH_FILE || llm__json_file(path, 1 << 16, &doc)) return 0;
    llm__folder_key(j, &key);
    const char *said = llm_json_str(doc, llm_json_find(doc, 0, "key"), NULL);
    llm_json_int(doc, llm_json_find(doc, 0, "done"), &done);
    return said && key.data && !strcmp(said, key.data) && done > 0 && done <= j->model->arch.n_layers + 1 ? (int32_t)done : 0;
}

/* 1 for the names that every folder has. */
static int llm__folder_dots(const char *name) { return !strcmp(name, ".") || !strcmp(name, ".."); }

/* Removes an interrupted folder, its state last: so it is known for one until it is gone. */
static void llm__folder_drop(llm__qjob *j, const llm_text *names) {
    for (const char *name = NULL; (name = llm__folder_next(names, name)) != NULL && !j->r;) {
        LLM__SCOPED(llm__drop) char *path = llm__path_join(j->out.part, name);
        if (path && !llm__folder_dots(name) && strcmp(name, "state.json")) j->r = llm__path_remove(path);
    }
    if (!j->r) j->r = llm__path_remove(j->out.part);
}

/* Makes TO.part anew. What is removed for it is an interrupted folder of other settings, nothing else: the state is its first file. */
static void llm__folder_anew(llm__qjob *j) {
    LLM__SCOPED(llm_text_free) llm_text names = LLM__ZERO;
    LLM__SCOPED(llm__drop) char *state = llm__path_join(j->out.part, "state.json");
    const llm__path_kind kind = llm__path_kind_of(j->out.part);
    int empty = kind == LLM__PATH_DIR;
    llm__folder_names(j->out.part, &names);
    for (const char *name = NULL; (name = llm__folder_next(&names, name)) != NULL;)
        empty &= !strcmp(name, ".next") || llm__folder_dots(name);
    if (!state) j->r = llm__nomem();
    else if (kind != LLM__PATH_NONE && !empty && llm__path_kind_of(state) != LLM__PATH_FILE)
        j->r = llm__error(LLM_ERR_IO, "%s: it is there already, and was not left by quantizing", j->out.part);
    else if (kind != LLM__PATH_NONE) llm__folder_drop(j, &names);
    if (!j->r) j->r = llm__folder_make(j->out.part);
    llm__folder_state(j, 0);
}

LLM__PRIVATE void llm__folder_begin(llm__qjob *j) {
    const int calibrated = j->plan.method != LLM__WEIGHT_ONLY_INT8;
    if (j->r) return;
    j->resumed = llm__folder_earlier(j);
    if (!j->resumed) llm__folder_anew(j);
    if (!j->r) llm__out_open(&j->out, llm__shard_bytes, j->resumed > 0);
    if (!j->r) j->r = j->out.r;
    for (int i = 0; i < 2 && calibrated && !j->r; i++) {
        LLM__SCOPED(llm__drop) char *path = llm__path_join(j->out.part, i ? "states.1" : "states.0");
        if (!path) j->r = llm__nomem();
        else if (!(j->states[i] = fopen(path, j->resumed ? "r+b" : "w+b"))) j->r = llm__error(LLM_ERR_IO, "%s: %s", path, strerror(errno));
    }
}

/* Modules with a matrix that stays as it is, but the embedding: what readers must not look for codes of. */
static void llm__folder_ignored(const llm__qjob *j, const char *lead, const char *end, llm_text *t) {
    const llm__tensors *x = &j->model->source.tensors;
    int head = 0;
    for (size_t i = 0; i < x->n; i++) {
        const llm__str name = x->item[i].name;
        if (j->plan.taken[i] || x->item[i].n_dims != 2 || !llm__ends_with(name.p, ".weight") || strstr(name.p, "embed") ||
            strstr(name.p, "wte"))
            continue;
        LLM__SCOPED(llm_text_free) llm_text one = LLM__ZERO;
        llm_text_str(&one, lead);
        llm_text_add(&one, name.p, name.n - 7);
        llm_text_str(&one, end);
        head |= !strcmp(name.p, "lm_head.weight");
        llm_text_format(t, "%,%q", one.data);
    }
    if (!head && !*lead) llm_text_format(t, "%,%q", "lm_head");
}

/* quantization_config, as the package that owns the format writes it:
 *
 *     awq     quant_method, bits, group_size, zero_point, version, modules_to_not_convert
 *     gptq    quant_method, bits, group_size, desc_act, sym, checkpoint_format: "gptq" says that zero points are stored less one
 *     others  compressed-tensors: format, one group of targets "Linear" with its scheme, and what is ignored, by name
 */
static void llm__folder_quantization(const llm__qjob *j, llm_text *t) {
    const llm__qplan *p = &j->plan;
    const int smooth = p->method == LLM__SMOOTH_QUANT;
    if (p->method == LLM__AWQ) {
        llm_text_format(t, "{'quant_method': 'awq', 'bits': 4, 'group_size': %l, 'zero_point': true, 'version': 'gemm', ", p->group);
        llm_text_str(t, "\"modules_to_not_convert\": [");
        llm__folder_ignored(j, "", "", t);
        llm_text_str(t, "]}");
    } else if (p->method == LLM__GPTQ) {
        llm_text_format(t, "{'quant_method': 'gptq', 'bits': %d, 'group_size': %l, 'desc_act': %b, 'sym': true, 'lm_head': false, ",
                        (int)p->bits, p->group, j->cfg->desc_act);
        llm_text_format(t, "'damp_percent': %f, 'true_sequential': false, 'static_groups': %b, 'checkpoint_format': 'gptq', ",
                        j->cfg->damp > 0 ? (double)j->cfg->damp : 0.05, !j->cfg->desc_act);
        llm_text_format(t, "'pack_dtype': 'int32', 'quantizer': 'llm.h:%s'}", LLM_VERSION_STRING);
    } else {
        llm_text_format(t, "{'quant_method': 'compressed-tensors', 'format': '%s', 'quantization_status': 'compressed', ",
                        smooth ? "int-quantized" : "pack-quantized");
        llm_text_str(t, "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 8, \"type\": \"int\", ");
        llm_text_str(t, "\"strategy\": \"channel\", \"group_size\": null, \"symmetric\": true, \"dynamic\": false, \"actorder\": null, ");
        llm_text_str(t, "\"block_structure\": null, \"observer\": \"minmax\"}, \"output_activations\": null, \"input_activations\": ");
        llm_text_str(t, !smooth ? "null"
                                : "{\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"token\", \"symmetric\": true, \"dynamic\": true}");
        llm_text_str(t, "}}, \"ignore\": [");
        llm__folder_ignored(j, "", "", t);
        llm_text_str(t, "], \"kv_cache_scheme\": null, \"global_compression_ratio\": null}");
    }
}

/* config.json: the source's with a member more. */
static void llm__folder_config(llm__qjob *j) {
    LLM__SCOPED(llm_text_free) llm_text t = LLM__ZERO, quantization = LLM__ZERO;
    const llm_json *doc = j->model->source.config;
    const char *dtype = j->plan.dtype < 0 ? NULL : j->plan.dtype == LLM_TYPE_F16 ? "float16" : "bfloat16";
    llm__folder_quantization(j, &quantization);
    llm_text_str(&t, "{");
    for (int v = llm_json_first(doc, 0); v >= 0; v = llm_json_next(doc, v)) {
        const llm__str key = llm__json_key(doc, v);
        if (llm__str_eq(key, "quantization_config")) continue;
        if (dtype && (llm__str_eq(key, "torch_dtype") || llm__str_eq(key, "dtype"))) llm_text_format(&t, "%,\n  %q: %q", key.p, dtype);
        else llm_text_format(&t, "%,\n  %q: %j", key.p, doc, v);
    }
    llm_text_format(&t, "%,\n  'quantization_config': %s\n}\n", quantization.data ? quantization.data : "");
    if (quantization.failed) t.failed = 1;
    llm__out_text(&j->out, "config.json", &t);
    if (j->plan.method != LLM__GPTQ) return;
    llm_text_str(&quantization, "\n");
    llm__out_text(&j->out, "quantize_config.json", &quantization);
}

/* A file of the source, byte for byte. */
static void llm__folder_carry(llm__qjob *j, const char *name) {
    LLM__SCOPED(llm__drop) char *from = llm__path_join(j->model->path, name), *to = llm__path_join(j->out.part, name);
    LLM__SCOPED(llm__file_close) llm__file f = LLM__ZERO;
    if (!from || !to) j->r = llm__nomem();
    if (j->r || llm__path_kind_of(from) != LLM__PATH_FILE) return;
    j->r = llm__file_open(from, 0, 0, &f);
    FILE *out = j->r ? NULL : fopen(to, "wb");
    int ok = out && fwrite(f.data, 1, f.size, out) == f.size && !fflush(out) && !fsync(fileno(out));
    if (out && fclose(out)) ok = 0;
    if (!j->r && !ok) j->r = llm__error(LLM_ERR_IO, "%s: %s", to, strerror(errno));
}

LLM__PRIVATE void llm__folder_finish(llm__qjob *j) {
    static const char *const others[] = {".safetensors", ".index.json", ".bin",     ".pth",  ".pt",
                                         ".gguf",        ".h5",         ".msgpack", ".onnx", ".ckpt"};
    LLM__SCOPED(llm_text_free) llm_text names = LLM__ZERO;
    if (j->r) return;
    llm__qjob_tell(j, "writing", 0);
    if (!j->r) llm__folder_names(j->model->path, &names);
    for (const char *name = NULL; (name = llm__folder_next(&names, name)) != NULL && !j->r;) {
        int other = name[0] == '.' || !strcmp(name, "config.json") || !strcmp(name, "state.json");
        for (int i = 0; i < LLM__COUNT(others); i++) other |= llm__ends_with(name, others[i]);
        if (!other) llm__folder_carry(j, name);
    }
    if (!j->r) llm__folder_config(j);
    if (!j->r) llm__out_index(&j->out);
    if (!j->r) j->r = j->out.r;
    if (!j->r) j->r = llm__source_whole(&j->model->source);
}

/* The sum of the negative log-probabilities of a sample's tokens. */
static llm_result llm__folder_score(const llm__qjob *j, llm_engine *e, const int32_t *ids, int32_t n, float *logits, double *sum) {
    const int32_t vocab = llm_logits_size(e);
    float *w = logits + (int64_t)LLM__SCORED * vocab;
    int bad = 0;
    for (int32_t at = 0, some; at < n; at += some) {
        some = LLM__MIN((int32_t)LLM__SCORED, n - at);
        llm_result r = llm_forward(e, 0, at, ids + at, some, logits, some);
        for (int32_t i = 0; i < some && at + i + 1 < n && !r; i++) {
            const float *row = logits + (int64_t)i * vocab, max = j->kernels->top(row, vocab, &bad);
            *sum += log(j->kernels->weigh(row, w, vocab, max, 1)) + (double)max - (double)row[ids[at + i + 1]];
        }
        if (r) return r;
    }
    return bad || !(fabs(*sum) < 1e300) ? llm__error(LLM_ERR_FORMAT, "its logits are no finite numbers") : LLM_OK;
}

/* The perplexity of the samples by a model. */
static llm_result llm__folder_perplexity(llm__qjob *j, const llm_model *model, int64_t *n, double *out) {
    llm_engine_config c = LLM__ZERO;
    llm_engine *e = NULL;
    double sum = 0;
    *n = 0;
    c.max_num_seqs = 1;
    c.max_model_len = j->samples.longest;
    c.n_threads = j->cfg->n_threads;
    llm_result r = llm_engine_open(model, &c, &e);
    float *logits = r ? NULL : LLM__NEW(float, (int64_t)llm_logits_size(e) * (LLM__SCORED + 1));
    if (!r && !logits) r = llm__nomem();
    for (int32_t i = 0; i < LLM__MIN(j->samples.n, (int32_t)LLM__MEASURED) && !r; i++) {
        const int64_t at = j->samples.begin[i], len = j->samples.begin[i + 1] - at;
        r = llm__folder_score(j, e, j->samples.ids + at, (int32_t)len, logits, &sum);
        *n += len - 1;
        llm__qjob_tell(j, "measuring", 0);
        if (!r) r = j->r;
    }
    LLM_FREE(logits);
    llm_engine_close(e);
    *out = *n > 0 ? exp(sum / (double)*n) : 0;
    return r;
}

LLM__PRIVATE void llm__folder_measure(llm__qjob *j, llm__measured *out) {
    llm_model_config config = LLM__ZERO;
    llm_model *made = NULL;
    config.language_model_only = 1;
    if (j->r) return;
    llm__out_sync(&j->out);
    j->r = j->out.r;
    if (!j->r) j->r = llm_model_open(j->out.part, &config, &made);
    if (!j->r && j->samples.n) {
        j->r = llm__folder_perplexity(j, j->model, &out->n, &out->before);
        if (!j->r) j->r = llm__folder_perplexity(j, made, &out->n, &out->after);
    }
    llm_model_close(made);
    if (j->r && j->r != LLM_ERR_CANCELLED)
        j->r = llm__error(j->r, "%s: what was written cannot be used: %s", j->out.part, llm_last_error());
}

LLM__PRIVATE void llm__folder_name(llm__qjob *j) {
    static const char *const own[] = {"states.0", "states.1", "state.json"};
    for (int i = 0; i < LLM__COUNT(own) && !j->r; i++) {
        if (i == 2 && rename(j->out.part, j->to)) j->r = llm__error(LLM_ERR_IO, "%s: %s", j->to, strerror(errno));
        LLM__SCOPED(llm__drop) char *path = j->r ? NULL : llm__path_join(i == 2 ? j->to : j->out.part, own[i]);
        if (!path && !j->r) j->r = llm__nomem();
        if (!j->r && llm__path_kind_of(path) != LLM__PATH_NONE) j->r = llm__path_remove(path);
    }
}
