/* folder: quantised folders, from opening to the new name.
 *
 * The reading path of this layer. llm_quantize_folder
 *
 *   1. opens the source as a model, so that whatever is wrong with it is told now
 *   2. plans: which matrices become codes, by which layout, in groups of how many columns (>>targets)
 *   3. reads what to calibrate with (>>samples)
 *   4. makes TO.part with the headers of all files, so places are known before there is data (>>shards)
 *   5. layer by layer: records what its matrices are multiplied with (>>inputs, >>gram), lets the method change or round them
 *      (>>methods, >>awq, >>gptq), packs them (>>codes) and writes them to their places, flushed to the disk before the state says so
 *   6. adds config.json, the tokenizer's files and whatever else stands beside the weights (>>folder_files)
 *   7. opens what was made as anybody would, and lets both read the samples: the perplexities of the report
 *   8. renames TO.part to TO
 *
 * TO.part holds, besides the files that stay,
 *
 *   state.json    how many layers are done, and a key of all that the result depends on: an earlier run with the same key is gone on with
 *   states.0, .1  the residual stream of all samples in front of an even and of an odd layer: one is read, the other written. After a
 *                 crash the one in front of the layer that was being done is whole, for only its twin was being written
 *   .next         a small file on its way to its name
 *
 * It is made in an order, and removed in one, in which it can always be told from a folder of somebody else's: state.json is its first file
 * and its last. Nothing is ever written under the name TO, and what stands there is refused, not replaced. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/quantize.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/files.h"
#include "base/threads.h"
#include "cpu/dtypes.h"
#include "cpu/isa.h"
#include "cpu/kernels.h"
#include "model/tensors.h"
#include "quant/codes.h"
#include "quant/shards.h"
#include "quant/targets.h"
#include "quant/job.h"
#include "quant/inputs.h"
#include "quant/folder_files.h"

enum { LLM__COPY_SOME = 1 << 20 };

static void llm__qjob_close(llm__qjob *j) {
    llm__qjob_forget(j);
    LLM_FREE(j->patch);
    LLM_FREE(j->copied);
    LLM_FREE(j->samples.ids);
    LLM_FREE(j->samples.begin);
    for (int i = 0; i < 2; i++)
        if (j->states[i]) fclose(j->states[i]);
    llm__out_close(&j->out);
    llm__qplan_close(&j->plan);
    llm__pool_close(j->pool);
    llm_model_close(j->model);
}

/* What the new folder will hold: what belongs to no layer, then layer by layer. */
static void llm__folder_tensors(llm__qjob *j) {
    const llm__tensors *t = &j->model->source.tensors;
    const int32_t n_layers = j->model->arch.n_layers;
    j->copied = LLM__NEW(size_t, t->n);
    if (!j->copied) j->r = llm__nomem();
    for (int32_t layer = -1; layer < n_layers && !j->r; layer++) {
        for (size_t i = 0; i < t->n; i++)
            if (j->plan.layer_of[i] == layer && !j->plan.taken[i])
                j->copied[i] = llm__out_add(&j->out, t->item[i].name.p, "", llm__qplan_type(&j->plan, &t->item[i]), t->item[i].n_dims,
                                            t->item[i].shape);
        for (size_t i = layer < 0 ? j->plan.n : j->plan.first[layer]; layer >= 0 && i < j->plan.first[layer + 1]; i++) {
            llm__qplan_matrix *m = &j->plan.matrix[i];
            const llm__rounded shape = llm__qplan_rounded(&j->plan, m);
            llm__code_tensor tensors[4];
            const int n = llm__code_tensors(j->plan.layout, &shape, tensors);
            m->out = j->out.n;
            for (int k = 0; k < n; k++)
                llm__out_add(&j->out, m->stem, tensors[k].end, tensors[k].type, tensors[k].n_dims, tensors[k].shape);
        }
    }
    if (!j->r) j->r = j->out.r;
}

/* Elements [at, at + n) of a tensor that stays, as it is or as its patch has it. */
static void llm__folder_floats(const llm__tensor *t, const float *value, int64_t cols, int64_t at, int64_t n, float *x) {
    for (int64_t i = 0, some; i < n; i += some) {
        some = LLM__MIN(cols - (at + i) % cols, n - i);
        if (value) memcpy(x + i, value + at + i, (size_t)some * sizeof *x);
        else llm__tensor_values(t, (at + i) / cols, cols, (at + i) % cols, some, x + i);
    }
}

/* n values in the type that they get; 0: one is too large for it. */
static int llm__folder_convert(const float *x, int64_t n, int32_t type, uint8_t *to) {
    int ok = 1;
    for (int64_t i = 0; i < n; i++) {
        const uint16_t half = type == LLM_TYPE_F16 ? llm__f32_to_f16(x[i]) : llm__f32_to_bf16(x[i]);
        if (type == LLM_TYPE_F32) memcpy(to + 4 * i, &x[i], 4);
        else memcpy(to + 2 * i, &half, 2);
        if (type == LLM_TYPE_F16 && (half & 0x7C00) == 0x7C00) ok = 0;
    }
    return ok;
}

/* A tensor that stays: as it is, or in another type of floats, or with changed values. */
static void llm__folder_copy(llm__qjob *j, size_t i) {
    const llm__tensor *t = &j->model->source.tensors.item[i];
    const llm__out_tensor *o = &j->out.tensor[j->copied[i]];
    const int64_t n = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3], cols = t->shape[LLM__MAX(t->n_dims, 1) - 1];
    const float *value = NULL;
    for (size_t k = 0; k < j->n_patches; k++)
        if (j->patch[k].t == t) value = j->patch[k].value;
    const int same = o->type == t->type && !value && !t->parts, floats = !same || llm__qplan_is_float(t);
    LLM__SCOPED(llm__drop) float *x = floats ? LLM__NEW(float, 2 * LLM__COPY_SOME) : NULL;
    uint8_t *some = x ? (uint8_t *)(x + LLM__COPY_SOME) : NULL;
    if (floats && !x) j->r = llm__nomem();
    for (int64_t at = 0; at < n && !j->r; at += LLM__COPY_SOME) {
        const int64_t count = LLM__MIN((int64_t)LLM__COPY_SOME, n - at), from = llm__row_bytes(o->type, at);
        const size_t bytes = (size_t)llm__row_bytes(o->type, count);
        if (floats) llm__folder_floats(t, value, cols, at, count, x);
        for (int64_t k = 0; k < count && floats && !j->r; k++)
            if (!isfinite(x[k]))
                j->r = llm__bad(j->model->path, "tensor", t->name, "element %lld is no finite number", (long long)(at + k));
        if (!same && !j->r && !llm__folder_convert(x, count, o->type, some))
            j->r = llm__bad(j->model->path, "tensor", t->name, "a value is too large for fp16; -t bf16 holds it");
        if (!j->r) llm__out_put(&j->out, j->copied[i], from, same ? t->data + from : some, bytes);
        if (same && bytes > 1 << 16) llm__file_rest(t->data + from, bytes);
        if (!j->r) j->r = j->out.r;
    }
}

/* The rows that threads round. */
typedef struct llm__rounding {
    const llm__rounded *m;
    const float *w;
} llm__rounding;

static void llm__folder_round(void *arg, int pass, int part, int n_parts) {
    const llm__rounding *x = (const llm__rounding *)arg;
    (void)pass;
    llm__round_rows(x->m, x->w, x->m->rows * part / n_parts, x->m->rows * (part + 1) / n_parts);
}

/* Packs and writes a rounded matrix. */
static void llm__folder_put(llm__qjob *j, const llm__qplan_matrix *m, const llm__rounded *rounded) {
    llm__code_tensor tensors[4];
    const int n = llm__code_tensors(j->plan.layout, rounded, tensors);
    for (int k = 0; k < n && !j->r; k++) {
        const size_t bytes = (size_t)j->out.tensor[m->out + (size_t)k].bytes;
        LLM__SCOPED(llm__drop) uint8_t *packed = LLM__NEW(uint8_t, bytes);
        if (!packed) j->r = llm__nomem();
        if (j->r) return;
        llm__code_pack(j->plan.layout, rounded, k, j->pool, packed);
        llm__out_put(&j->out, m->out + (size_t)k, 0, packed, bytes);
        j->r = j->out.r;
    }
}

/* A matrix by rounding to nearest, or as its method has rounded it. */
static void llm__folder_matrix(llm__qjob *j, const llm__qplan_matrix *m, const llm__rounded *made) {
    llm__rounded own = LLM__ZERO;
    const float *w = made ? NULL : llm__qjob_values(j, m->t);
    if (j->r) return;
    if (!made) {
        own = llm__qplan_rounded(&j->plan, m);
        j->r = llm__rounded_open(&own, 0);
        llm__rounding x = {&own, w};
        if (!j->r) llm__pool_run(j->pool, llm__folder_round, &x, 1);
    }
    llm__folder_put(j, m, made ? made : &own);
    llm__rounded_close(&own);
}

/* What belongs to a layer, or to none (-1). */
static void llm__folder_layer(llm__qjob *j, int32_t layer) {
    LLM__SCOPED(llm__rounded_list_close) llm__rounded_list rounded = LLM__ZERO;
    j->layer = layer;
    llm__qjob_tell(j, "quantizing", 0);
    if (layer >= 0 && j->plan.method != LLM__WEIGHT_ONLY_INT8 && !j->r) llm__calibrated_layer(j, &rounded);
    for (size_t i = layer < 0 ? j->plan.n : j->plan.first[layer]; layer >= 0 && i < j->plan.first[layer + 1] && !j->r; i++) {
        llm__folder_matrix(j, &j->plan.matrix[i], rounded.n ? &rounded.item[i - j->plan.first[layer]] : NULL);
        if (!rounded.n) llm__qjob_forget(j);
    }
    for (size_t i = 0; i < j->model->source.tensors.n && !j->r; i++)
        if (j->plan.layer_of[i] == layer && !j->plan.taken[i]) llm__folder_copy(j, i);
    llm__qjob_forget(j);
    if (!j->r) llm__out_sync(&j->out);
    if (!j->r) j->r = j->out.r;
    j->told += 1;
}

/* Bytes of the source's tensors. */
static int64_t llm__folder_bytes(const llm__qjob *j) {
    int64_t n = 0;
    for (size_t i = 0; i < j->model->source.tensors.n; i++) n += j->model->source.tensors.item[i].bytes;
    return n;
}

/* Opens the source, and checks everything that can be checked before anything is written. */
static void llm__folder_open(llm__qjob *j, const char *path) {
    llm_model_config config = LLM__ZERO;
    llm__isa isa;
    config.language_model_only = 1;
    if (!path || !*path || !j->to || !*j->to) j->r = llm__error(LLM_ERR_ARG, "quantize: a folder and the name of a new one expected");
    else if (llm__path_kind_of(j->to) != LLM__PATH_NONE)
        j->r = llm__error(LLM_ERR_ARG, "%s: it is there already, the name of a new folder expected", j->to);
    if (!j->r) j->r = llm_model_open(path, &config, &j->model);
    if (!j->r) j->r = llm__qplan_open(&j->plan, j->model, j->cfg);
    if (!j->r) j->r = llm__isa_find(NULL, &isa);
    if (!j->r) j->kernels = llm__kernels_of(isa);
    j->pool = j->r ? NULL : llm__pool_open(j->cfg->n_threads > 0 ? j->cfg->n_threads : llm__cores());
    if (!j->r && !j->pool) j->r = llm__nomem();
    if (!j->r) llm__samples_read(j);
}

LLM_API llm_result llm_quantize_folder(const char *path, const char *to, const llm_quantize_folder_config *cfg, llm_text *report) {
    static const llm_quantize_folder_config usual = LLM__ZERO;
    LLM__SCOPED(llm__qjob_close) llm__qjob j = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text part = LLM__ZERO;
    llm__measured measured = LLM__ZERO;
    const double begin = llm_now();
    j.cfg = cfg ? cfg : &usual;
    j.to = to;
    llm__folder_open(&j, path);
    llm_text_format(&part, "%s.part", to ? to : "");
    if (!j.r && part.failed) j.r = llm__nomem();
    if (j.r) return j.r;
    j.out.part = part.data;
    llm__folder_tensors(&j);
    const int32_t n_layers = j.model->arch.n_layers;
    j.all = n_layers + 1;
    llm__folder_begin(&j);
    j.told = j.resumed;
    for (int32_t i = j.resumed; i <= n_layers && !j.r; i++) {
        llm__folder_layer(&j, i - 1);
        llm__folder_state(&j, i + 1);
    }
    llm__folder_finish(&j);
    llm__folder_measure(&j, &measured);
    llm__folder_name(&j);
    if (j.r || !report) return j.r;
    llm_text_format(report, "{'method': %q, 'bits': %d, 'group_size': %l, 'n_matrices': %l, 'n_left': %l, ",
                    llm__method_name(j.plan.method), (int)j.plan.bits, j.plan.group, (int64_t)j.plan.n, (int64_t)j.plan.n_left);
    llm_text_format(report, "'bytes_before': %l, 'bytes_after': %l, 'resumed_at': %d, 'seconds': %f", llm__folder_bytes(&j), j.out.bytes,
                    (int)j.resumed, llm_now() - begin);
    if (measured.n)
        llm_text_format(report, ", 'n_tokens': %l, 'perplexity_before': %f, 'perplexity_after': %f", measured.n, measured.before,
                        measured.after);
    llm_text_str(report, "}");
    return report->failed ? llm__nomem() : LLM_OK;
}
