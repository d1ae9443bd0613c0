#include "quant/targets.h"
#include "api/config.h"
#include "api/model.h"
#include "api/quantize.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "model/tensors.h"
#include "model/quant.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/net.h"
#include "quant/codes.h"

static const struct {
    llm__slot slot;
    llm__reads reads;
} llm__qplan_slots[] = {
    {LLM__W_QKV, LLM__READS_ATTENTION},
    {LLM__W_Q, LLM__READS_ATTENTION},
    {LLM__W_K, LLM__READS_ATTENTION},
    {LLM__W_V, LLM__READS_ATTENTION},
    {LLM__W_Q_A, LLM__READS_ATTENTION},
    {LLM__W_KV_A, LLM__READS_ATTENTION},
    {LLM__W_Q_B, LLM__READS_Q},
    {LLM__W_KV_B, LLM__READS_KV},
    {LLM__W_O, LLM__READS_O},
    {LLM__W_GATE_UP, LLM__READS_MLP},
    {LLM__W_GATE, LLM__READS_MLP},
    {LLM__W_UP, LLM__READS_MLP},
    {LLM__W_DOWN, LLM__READS_DOWN},
    {LLM__W_S_GATE_UP, LLM__READS_MLP},
    {LLM__W_S_GATE, LLM__READS_MLP},
    {LLM__W_S_UP, LLM__READS_MLP},
    {LLM__W_S_DOWN, LLM__READS_SHARED_DOWN},
    {LLM__W_E_GATE_UP, LLM__READS_EXPERT},
    {LLM__W_E_GATE, LLM__READS_EXPERT},
    {LLM__W_E_UP, LLM__READS_EXPERT},
    {LLM__W_E_DOWN, LLM__READS_EXPERT_DOWN},
};

LLM__PRIVATE const char *llm__method_name(llm__method m) {
    static const char *const names[] = {"weight_only_int8", "smooth_quant", "awq", "gptq"};
    return names[m];
}

LLM__PRIVATE int llm__qplan_is_float(const llm__tensor *t) {
    return t->type == LLM_TYPE_F32 || t->type == LLM_TYPE_F16 || t->type == LLM_TYPE_BF16;
}

LLM__PRIVATE int32_t llm__qplan_type(const llm__qplan *p, const llm__tensor *t) {
    return llm__qplan_is_float(t) && p->dtype >= 0 && !strstr(t->name.p, "e_score_correction_bias") ? p->dtype : t->type;
}

LLM__PRIVATE llm__rounded llm__qplan_rounded(const llm__qplan *p, const llm__qplan_matrix *m) {
    llm__rounded r = LLM__ZERO;
    r.rows = m->rows;
    r.cols = m->cols;
    r.group = p->group < 0 ? m->cols : p->group;
    r.groups = (m->cols + r.group - 1) / r.group;
    r.bits = p->bits;
    r.affine = p->affine;
    r.scale_type = p->layout == LLM__CODES_AWQ4 || p->layout == LLM__CODES_GPTQ1 ? (int32_t)LLM_TYPE_F16 : llm__qplan_type(p, m->t);
    return r;
}

LLM__PRIVATE void llm__qplan_input(const llm_model *model, int layer, llm__reads reads, char name[256]) {
    static const uint8_t slots[LLM__READS_COUNT] = {LLM__W_Q,    LLM__W_Q_B,    LLM__W_KV_B, LLM__W_O,     LLM__W_UP,
                                                    LLM__W_DOWN, LLM__W_S_DOWN, LLM__W_E_UP, LLM__W_E_DOWN};
    llm__loader L;
    int slot = slots[reads];
    llm__loader_begin(&L, model, 1, 1);
    L.layer = layer;
    if (reads == LLM__READS_ATTENTION && model->arch.flags & LLM__MLA) slot = LLM__W_KV_A;
    else if (reads == LLM__READS_ATTENTION && llm__has(&L, LLM__W_QKV)) slot = LLM__W_QKV;
    if (reads == LLM__READS_MLP && model->arch.layer[layer].moe) slot = LLM__W_ROUTER;
    llm__loader_find(&L, slot, 0, 0, name);
}

/* 1 if packing takes a matrix of these sizes. */
static int llm__qplan_takes(const llm__qplan *p, int64_t rows, int64_t cols) {
    if (p->layout == LLM__CODES_INT8) return 1;
    if (p->layout == LLM__CODES_PACK) return cols % 4 == 0;
    return cols % 32 == 0 && rows * p->bits % 32 == 0;
}

/* Adds the matrix of a slot in the loader's layer, if there is one. */
static llm_result llm__qplan_add(llm__qplan *p, const llm__loader *L, int slot, llm__reads reads, int expert) {
    char name[256];
    const llm__tensor *t = llm__loader_find(L, slot, expert, 0, name);
    const size_t i = t ? (size_t)(t - p->model->source.tensors.item) : 0;
    if (!t || p->taken[i]) return LLM_OK;
    if (reads == LLM__READS_MLP && p->model->arch.flags & LLM__PARALLEL && !llm__has(L, LLM__W_FFN_NORM)) reads = LLM__READS_ATTENTION;
    llm__qplan_matrix m = {t, NULL, t->shape[0], t->shape[1], L->layer, slot, expert, reads, 0};
    if (t->n_dims != 2 || t->parts || !llm__ends_with(t->name.p, ".weight") || !llm__qplan_takes(p, m.rows, m.cols)) {
        for (size_t k = 0; k < p->n_left; k++)
            if (p->left[k].t == t) return LLM_OK;
        if (!llm__grow((void **)&p->left, &p->left_cap, p->n_left + 1, sizeof *p->left)) return llm__nomem();
        p->left[p->n_left++] = m;
        return LLM_OK;
    }
    if (t->type != LLM_TYPE_F32 && t->type != LLM_TYPE_F16 && t->type != LLM_TYPE_BF16)
        return llm__bad(p->model->path, "tensor", t->name, "its type cannot be quantised: F32, F16 or BF16 expected");
    m.stem = llm__arena_str(&p->arena, llm__s(t->name.p, t->name.n - 7));
    if (!m.stem || !llm__grow((void **)&p->matrix, &p->cap, p->n + 1, sizeof *p->matrix)) return llm__nomem();
    p->matrix[p->n++] = m;
    p->taken[i] = 1;
    return LLM_OK;
}

/* All matrices, layer by layer. */
static llm_result llm__qplan_matrices(llm__qplan *p) {
    const llm__arch *a = &p->model->arch;
    llm__loader L;
    llm_result r = LLM_OK;
    llm__loader_begin(&L, p->model, 1, 1);
    if (a->flags & LLM__CONV1D || !strcmp(L.base, "ernie.layers."))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: its matrices stand as (in, out), which no reader of quantised folders takes",
                          p->model->path);
    for (L.layer = 0; L.layer < a->n_layers && !r; L.layer++) {
        p->first[L.layer] = p->n;
        for (int i = 0; i < LLM__COUNT(llm__qplan_slots) && !r; i++) {
            const int slot = llm__qplan_slots[i].slot, n = llm__is_experts(slot) ? a->n_experts * a->n_sets : 1;
            llm__reads reads = llm__qplan_slots[i].reads;
            if (slot == LLM__W_Q && a->flags & LLM__MLA && a->q_rank) continue;
            for (int e = 0; e < n && !r; e++) r = llm__qplan_add(p, &L, slot, reads, llm__is_experts(slot) ? e : -1);
        }
    }
    p->first[a->n_layers] = p->n;
    if (!r && !p->n)
        r = llm__error(LLM_ERR_UNSUPPORTED, "%s: it has no matrix that can be quantised by %s", p->model->path,
                       llm__method_name(p->method));
    return r;
}

/* Which tensors belong to which layer, by their names. */
static llm_result llm__qplan_layers(llm__qplan *p) {
    const llm__tensors *t = &p->model->source.tensors;
    const char *base = llm__layer_base(t, 0);
    p->taken = LLM__NEW(uint8_t, t->n);
    p->layer_of = LLM__NEW(int32_t, t->n);
    if (!p->taken || !p->layer_of) return llm__nomem();
    for (size_t i = 0; i < t->n; i++) {
        const char *name = t->item[i].name.p;
        const long layer = strncmp(name, base, strlen(base)) ? -1 : strtol(name + strlen(base), NULL, 10);
        p->layer_of[i] = layer >= 0 && layer < p->model->arch.n_layers ? (int32_t)layer : -1;
    }
    return LLM_OK;
}

/* 1 if a group divides the columns of all matrices, on every rank. */
static int llm__qplan_divides(const llm__qplan *p, int64_t group, int64_t tp, const llm__qplan_matrix **bad) {
    for (size_t i = 0; i < p->n; i++) {
        const llm__qplan_matrix *m = &p->matrix[i];
        const int cut = m->reads == LLM__READS_O || m->reads == LLM__READS_DOWN || m->reads == LLM__READS_SHARED_DOWN ||
                        m->reads == LLM__READS_EXPERT_DOWN;
        *bad = m;
        if (m->cols % ((cut ? tp : 1) * group)) return 0;
    }
    return 1;
}

/* Columns that share a scale. */
static llm_result llm__qplan_group(llm__qplan *p, const llm_quantize_folder_config *cfg) {
    const int64_t said = cfg->group_size, tp = LLM__MAX(cfg->tensor_parallel_size, 1);
    const llm__qplan_matrix *bad = NULL;
    p->group = -1;
    if (p->layout == LLM__CODES_PACK || p->layout == LLM__CODES_INT8) {
        if (said) return llm__error(LLM_ERR_ARG, "group_size: %d, but %s has a scale a row", (int)said, llm__method_name(p->method));
        return LLM_OK;
    }
    if (said == -1) return LLM_OK;
    if (said && said != 32 && said != 64 && said != 128)
        return llm__error(LLM_ERR_ARG, "group_size: %d, must be 32, 64, 128 or -1", (int)said);
    for (p->group = said ? said : 128; !llm__qplan_divides(p, p->group, tp, &bad); p->group /= 2)
        if (said || p->group == 32)
            return llm__error(LLM_ERR_ARG, "group_size: %d does not divide the %lld columns of %s.weight on %d ranks", (int)p->group,
                              (long long)bad->cols, bad->stem, (int)tp);
    return LLM_OK;
}

/* What vLLM asks of a model that is cut into ranks. */
static llm_result llm__qplan_ranks(const llm_model *m, int tp) {
    const llm__arch *a = &m->arch;
    if (tp < 0 || tp > 1024) return llm__error(LLM_ERR_ARG, "tensor_parallel_size: %d, must be 1 to 1024", tp);
    if (tp < 2) return LLM_OK;
    if (a->n_heads % tp)
        return llm__error(LLM_ERR_ARG, "Total number of attention heads (%d) must be divisible by tensor parallel size (%d).",
                          (int)a->n_heads, tp);
    if (a->n_kv_heads % tp && tp % a->n_kv_heads)
        return llm__error(LLM_ERR_ARG, "%d key heads can be neither divided nor repeated evenly among %d ranks", (int)a->n_kv_heads, tp);
    return LLM_OK;
}

/* The method and what follows from it: layout, bits, zero points, and which options have a meaning. What has none is refused here, so that
 * nothing is accepted and then ignored:
 *
 *     bits                     gptq
 *     desc_act, damp           gptq
 *     group_size               gptq, awq
 *     alpha                    smooth_quant
 */
static llm_result llm__qplan_method(llm__qplan *p, const llm_quantize_folder_config *cfg) {
    static const llm__code_layout layouts[] = {LLM__CODES_PACK, LLM__CODES_INT8, LLM__CODES_AWQ4, LLM__CODES_GPTQ1};
    static const char *const dtypes[] = {"fp16 float16 half", "bf16 bfloat16"};
    int method = cfg->method ? 0 : 4, dtype = -1;
    for (; method < 4 && strcmp(llm__method_name((llm__method)method), cfg->method);) method++;
    if (cfg->method && !strcmp(cfg->method, "gpt")) method = LLM__GPTQ; /* as a document has it */
    if (method == 4)
        return llm__error(LLM_ERR_ARG, "quant_type: %.40s, one of weight_only_int8 smooth_quant awq gptq expected",
                          cfg->method ? cfg->method : "");
    for (int i = 0; i < 2 && cfg->dtype; i++)
        if (llm__word_index(dtypes[i], llm__lit(cfg->dtype)) >= 0) dtype = i;
    if (cfg->dtype && dtype < 0) return llm__error(LLM_ERR_ARG, "t: %.40s, must be fp16 or bf16", cfg->dtype);
    p->method = (llm__method)method;
    p->layout = layouts[method];
    p->affine = method == LLM__AWQ;
    p->dtype = dtype < 0 ? -1 : dtype ? (int32_t)LLM_TYPE_BF16 : (int32_t)LLM_TYPE_F16;
    p->bits = method < LLM__AWQ ? 8 : 4;
    if (cfg->bits && method == LLM__GPTQ) p->bits = cfg->bits;
    if ((cfg->bits && cfg->bits != p->bits) || (method == LLM__GPTQ && p->bits != 2 && p->bits != 3 && p->bits != 4 && p->bits != 8))
        return llm__error(LLM_ERR_ARG, "bits: %d, must be %s for %s", (int)cfg->bits,
                          method == LLM__GPTQ ? "2, 3, 4 or 8"
                          : method < LLM__AWQ ? "8"
                                              : "4",
                          llm__method_name(p->method));
    if ((cfg->desc_act || cfg->damp != 0) && method != LLM__GPTQ)
        return llm__error(LLM_ERR_ARG, "%s: it is for gptq, not for %s", cfg->desc_act ? "desc_act" : "damp", llm__method_name(p->method));
    if (!(cfg->damp >= 0 && cfg->damp < 1)) return llm__error(LLM_ERR_ARG, "damp: %g, must be 0 to 1", (double)cfg->damp);
    if (cfg->alpha_given && method != LLM__SMOOTH_QUANT)
        return llm__error(LLM_ERR_ARG, "sq: it is for smooth_quant, not for %s", llm__method_name(p->method));
    if (cfg->alpha_given && !(cfg->alpha >= 0 && cfg->alpha <= 1))
        return llm__error(LLM_ERR_ARG, "sq: %g, must be 0 to 1", (double)cfg->alpha);
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__qplan_open(llm__qplan *p, llm_model *model, const llm_quantize_folder_config *cfg) {
    p->model = model;
    llm_result r = llm__qplan_method(p, cfg);
    if (!r && model->source.gguf) r = llm__error(LLM_ERR_UNSUPPORTED, "%s: a GGUF file, a folder of safetensors expected", model->path);
    if (!r && model->source.quant.method)
        r = llm__error(LLM_ERR_UNSUPPORTED, "%s: its weights are quantised already (%s)", model->path,
                       llm__quant_name(model->source.quant.method));
    if (!r) r = llm__qplan_ranks(model, cfg->tensor_parallel_size);
    if (!r) r = llm__qplan_layers(p);
    if (!r) r = llm__qplan_matrices(p);
    return r ? r : llm__qplan_group(p, cfg);
}

LLM__PRIVATE void llm__qplan_close(llm__qplan *p) {
    LLM_FREE(p->matrix);
    LLM_FREE(p->left);
    LLM_FREE(p->taken);
    LLM_FREE(p->layer_of);
    llm__arena_free(&p->arena);
    memset(p, 0, sizeof *p);
}
