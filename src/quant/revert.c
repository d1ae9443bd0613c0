/* revert: a GGUF file as a Hugging Face folder.
 *
 * What >>convert does, the other way:
 *
 *     TO/config.json               settings, in the words of the family (>>revert_config)
 *     TO/model.safetensors         one type for all: what most matrices are, float16 for quantised ones; or model-00001-of-...
 *     TO/tokenizer.json, tokenizer_config.json, generation_config.json       (>>revert_vocab)
 *
 * Every tensor of the file must have its place in the family (a table of names), else it is refused by its name: none is dropped but those
 * of layers behind the last (multi-token prediction). Rows of q and k go back into their order, norms that are stored minus one lose it,
 * experts become matrices of their own, keys and values of latent attention one kv_b_proj.
 *
 *     blk.3.attn_norm.weight          model.layers.3.input_layernorm.weight
 *     blk.3.attn_q.weight             model.layers.3.self_attn.q_proj.weight
 *     blk.3.ffn_up.weight             model.layers.3.mlp.up_proj.weight; gate_up_proj of Phi-3 and GLM-4, c_fc of StarCoder2
 *     blk.3.ffn_up_exps.weight        model.layers.3.mlp.experts.0.up_proj.weight and so on; block_sparse_moe.experts.0.w3 of Mixtral
 *
 * Rows of a head of 6 values, in GGUF 0 3 1 4 2 5 (the two of a pair side by side), are 0 1 2 3 4 5 in the folder.
 *
 * The type of the folder is that of most matrices. A file of F16 gives the folder that it was made of, to the bit; of quantised weights it
 * gives what they stand for, in float16, which rounds a little (SmolLM2 in Q4_1: log-probabilities change by 0.0007 of their range);
 * float32 holds them as they are. Vectors and routers that the type would change stay float32, as publishers have them.
 *
 * llm_convert_folder, whose functions stand below in this order from the last up,
 *
 *   1. opens the file as a model, so that whatever is wrong with it is told now, and finds the family
 *   2. plans: every tensor of the file finds its name in the table, or is refused; shapes and places are known before there is data
 *      (>>shards)
 *   3. makes TO.part and writes the tensors, some rows at a time: memory holds a megabyte of them
 *   4. adds config.json, tokenizer.json, tokenizer_config.json and generation_config.json
 *   5. opens what was made as anybody would, so that a tensor that is missing or of another shape is told by its name, and lets both cut a
 *      sample of text: what GGUF has no regex or template for is seen there
 *   6. renames TO.part to TO
 *
 * What has no way back: files that see (their second file), families without a row here, quantised folders (>>folder makes those of
 * floats), sentences of general.* about licences and authors.
 *
 * The folder is made as TO.part. It gets its name when it was opened as a model and its tokenizer cut a text as the file's did; else
 * nothing is left of it. */
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
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/quant.h"
#include "model/source.h"
#include "model/facts.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/convert.h"
#include "quant/shards.h"
#include "quant/revert_config.h"
#include "quant/revert_vocab.h"

enum { LLM__REVERT_HEADS = 1, LLM__REVERT_NORM = 2, LLM__REVERT_F32 = 4, LLM__REVERT_ONE = 8, LLM__REVERT_BARE = 16 };

/* Names of GGUF, the families where they stand for what the third column says (none: all others), and what is done with the values: rows of
 * heads, a norm, kept in F32, a matrix of one row, a name without ".weight". '#' is an expert's number. */
static const struct {
    const char *gguf, *families, *hf;
    int how;
} llm__revert_names[] = {
    {"token_embd", "", "model.embed_tokens", 0},
    {"output_norm", "", "model.norm", LLM__REVERT_NORM},
    {"output", "", "lm_head", 0},
    {"attn_norm", "", "input_layernorm", LLM__REVERT_NORM},
    {"attn_qkv", "", "self_attn.qkv_proj", 0},
    {"attn_q", "", "self_attn.q_proj", LLM__REVERT_HEADS},
    {"attn_k", "", "self_attn.k_proj", LLM__REVERT_HEADS},
    {"attn_v", "", "self_attn.v_proj", 0},
    {"attn_output", "", "self_attn.o_proj", 0},
    {"attn_q_norm", "", "self_attn.q_norm", LLM__REVERT_NORM},
    {"attn_k_norm", "", "self_attn.k_norm", LLM__REVERT_NORM},
    {"attn_q_a", "", "self_attn.q_a_proj", 0},
    {"attn_q_a_norm", "", "self_attn.q_a_layernorm", LLM__REVERT_NORM},
    {"attn_q_b", "", "self_attn.q_b_proj", 0},
    {"attn_kv_a_mqa", "", "self_attn.kv_a_proj_with_mqa", 0},
    {"attn_kv_a_norm", "", "self_attn.kv_a_layernorm", LLM__REVERT_NORM},
    {"post_attention_norm", "glm4", "post_self_attn_layernorm", LLM__REVERT_NORM},
    {"post_attention_norm", "", "post_attention_layernorm", LLM__REVERT_NORM},
    {"ffn_norm", "gemma2 gemma3_text", "pre_feedforward_layernorm", LLM__REVERT_NORM},
    {"ffn_norm", "", "post_attention_layernorm", LLM__REVERT_NORM},
    {"post_ffw_norm", "glm4", "post_mlp_layernorm", LLM__REVERT_NORM},
    {"post_ffw_norm", "", "post_feedforward_layernorm", LLM__REVERT_NORM},
    {"ffn_gate", "", "mlp.gate_proj", 0},
    {"ffn_up", "phi3 glm4", "mlp.gate_up_proj", 0},
    {"ffn_up", "starcoder2", "mlp.c_fc", 0},
    {"ffn_up", "", "mlp.up_proj", 0},
    {"ffn_down", "starcoder2", "mlp.c_proj", 0},
    {"ffn_down", "", "mlp.down_proj", 0},
    {"ffn_gate_inp", "mixtral", "block_sparse_moe.gate", 0},
    {"ffn_gate_inp", "", "mlp.gate", 0},
    {"exp_probs_b", "ernie4_5_moe", "mlp.moe_statics.e_score_correction_bias", LLM__REVERT_F32 | LLM__REVERT_ONE | LLM__REVERT_BARE},
    {"exp_probs_b", "", "mlp.gate.e_score_correction_bias", LLM__REVERT_F32 | LLM__REVERT_BARE},
    {"ffn_gate_exps", "mixtral", "block_sparse_moe.experts.#.w1", 0},
    {"ffn_up_exps", "mixtral", "block_sparse_moe.experts.#.w3", 0},
    {"ffn_down_exps", "mixtral", "block_sparse_moe.experts.#.w2", 0},
    {"ffn_gate_exps", "", "mlp.experts.#.gate_proj", 0},
    {"ffn_up_exps", "", "mlp.experts.#.up_proj", 0},
    {"ffn_down_exps", "", "mlp.experts.#.down_proj", 0},
    {"ffn_gate_shexp", "qwen2_moe", "mlp.shared_expert.gate_proj", 0},
    {"ffn_up_shexp", "qwen2_moe", "mlp.shared_expert.up_proj", 0},
    {"ffn_down_shexp", "qwen2_moe", "mlp.shared_expert.down_proj", 0},
    {"ffn_gate_shexp", "", "mlp.shared_experts.gate_proj", 0},
    {"ffn_up_shexp", "", "mlp.shared_experts.up_proj", 0},
    {"ffn_down_shexp", "", "mlp.shared_experts.down_proj", 0},
    {"ffn_gate_inp_shexp", "", "mlp.shared_expert_gate", LLM__REVERT_ONE},
};

/* Where a tensor's rows come from. */
typedef struct llm__revert_from {
    const llm__tensor *t, *values; /* values: of kv_b, whose keys are t */
    int64_t rows, cols;
    int64_t first;  /* row of t, counted through all its matrices */
    int32_t head;   /* not 0: heads of so many rows, whose neighbours become halves */
    int32_t across; /* 1: a vector in that order */
    float sub;
    int32_t nope, v, rank; /* of kv_b */
} llm__revert_from;

/* A folder that is being made. After the first failure all calls do nothing. */
typedef struct llm__revert {
    const llm_quantize_config *cfg;
    llm_model *model;
    const char *to, *type; /* type: model_type */
    int32_t dtype;         /* llm_type of all tensors */
    llm__out out;
    llm__revert_from *from; /* (out.n) */
    size_t cap;
    llm_result r;
} llm__revert;

static void llm__revert_close(llm__revert *v) {
    llm__out_close(&v->out);
    LLM_FREE(v->from);
    llm_model_close(v->model);
}

/* Row `row` of a tensor of the folder: cols values. */
static void llm__revert_values(const llm__revert_from *f, int64_t row, float *out) {
    const int64_t each = f->nope + f->v, half = f->head / 2;
    if (f->values) {
        const int64_t head = row / each, at = row % each;
        if (at >= f->nope) llm__tensor_values(f->values, head * f->v + at - f->nope, f->cols, 0, f->cols, out);
        for (int64_t i = 0; at < f->nope && i < f->cols; i++) llm__tensor_values(f->t, head * f->rank + i, f->nope, at, 1, out + i);
        return;
    }
    int64_t from = row;
    if (f->head && !f->across)
        from = row / f->head * f->head + (row % f->head < half ? 2 * (row % f->head) : 2 * (row % f->head - half) + 1);
    llm__tensor_values(f->t, f->first + from, f->cols, 0, f->cols, out);
    for (int64_t i = 0; f->across && i < f->cols; i++) {
        const int64_t at = i % f->head;
        llm__tensor_values(f->t, 0, f->cols, i - at + (at < half ? 2 * at : 2 * (at - half) + 1), 1, out + i);
    }
    for (int64_t i = 0; f->sub != 0 && i < f->cols; i++) out[i] -= f->sub;
}

/* A row in the type of the folder; 0: a value is too large for it. */
static int llm__revert_row_put(int32_t type, const float *x, int64_t n, uint8_t *to) {
    int ok = 1;
    for (int64_t i = 0; i < n; i++) {
        const uint16_t half = type == LLM_TYPE_F16 ? llm__f32_to_f16(x[i]) : llm__f32_to_bf16(x[i]);
        if (type == LLM_TYPE_F32) memcpy(to + 4 * i, x + i, 4);
        else memcpy(to + 2 * i, &half, 2);
        if (type == LLM_TYPE_F16 && (half & 0x7C00) == 0x7C00 && fabsf(x[i]) < INFINITY) ok = 0;
    }
    return ok;
}

/* Vectors and routers are F32 in GGUF: they stay so where the folder's type would change a value. */
static int llm__revert_exact(llm__revert *v, const llm__revert_from *f) {
    LLM__SCOPED(llm__drop) float *x = LLM__NEW(float, f->cols);
    if (!x) v->r = llm__nomem();
    for (int64_t row = 0; row < f->rows && !v->r; row++) {
        llm__revert_values(f, row, x);
        for (int64_t i = 0; i < f->cols; i++) {
            const float back = v->dtype == LLM_TYPE_F16 ? llm__f16_to_f32(llm__f32_to_f16(x[i])) : llm__bf16_to_f32(llm__f32_to_bf16(x[i]));
            if (v->dtype != LLM_TYPE_F32 && back != x[i]) return LLM__REVERT_F32;
        }
    }
    return 0;
}

/* Adds a tensor of the folder: rows of t, from `first` on. n_dims 1: a vector of cols values. */
static void llm__revert_add(llm__revert *v, const char *name, int how, int n_dims, const llm__revert_from *from) {
    const int64_t shape[2] = {n_dims > 1 ? from->rows : from->cols, from->cols};
    if (v->r) return;
    if (!llm__grow((void **)&v->from, &v->cap, v->out.n + 1, sizeof *v->from)) v->r = llm__nomem();
    if (v->r) return;
    v->from[v->out.n] = *from;
    llm__out_add(&v->out, name, "", how & LLM__REVERT_F32 ? (int32_t)LLM_TYPE_F32 : v->dtype, n_dims, shape);
    v->r = v->out.r;
}

/* "blk.3.ffn_up.weight": the layer (-1: none), "ffn_up", and whether it is a bias. 0: it is no such name. */
static int llm__revert_parse(const char *name, int *layer, char stem[64], int *bias) {
    int at = 0;
    *layer = -1;
    if (!strncmp(name, "blk.", 4) && (sscanf(name, "blk.%d.%n", layer, &at) != 1 || !at || *layer < 0)) return 0;
    const char *dot = strrchr(name + at, '.');
    const size_t n = dot ? (size_t)(dot - name) - (size_t)at : 0;
    if (!n || n > 63) return 0;
    memcpy(stem, name + at, n);
    stem[n] = 0;
    *bias = !strcmp(dot, ".bias");
    return *bias || !strcmp(dot, ".weight");
}

/* A tensor of the file by the table. */
static void llm__revert_tensor(llm__revert *v, const llm__tensor *t, const char *stem, int layer, int bias) {
    const llm__arch *a = &v->model->arch;
    const int pairs = (a->flags & LLM__PAIRS_GGUF) && !(a->flags & (LLM__PAIRS | LLM__MLA));
    int row = 0;
    while (row < LLM__COUNT(llm__revert_names) &&
           (strcmp(llm__revert_names[row].gguf, stem) ||
            (*llm__revert_names[row].families && !llm__word_in(llm__revert_names[row].families, v->type))))
        row++;
    if (row == LLM__COUNT(llm__revert_names)) {
        v->r = llm__bad(v->model->path, "tensor", t->name, "it has no place in a folder of %s that is known here", v->type);
        return;
    }
    const char *hf = llm__revert_names[row].hf, *number = strchr(hf, '#');
    const int matrices = t->n_dims > 2 ? (int)t->shape[0] : 1;
    int how = llm__revert_names[row].how;
    llm__revert_from from = LLM__ZERO;
    from.t = t;
    from.cols = t->shape[LLM__MAX(t->n_dims, 1) - 1];
    from.rows = t->n_dims > 1 ? t->shape[t->n_dims - 2] : 1;
    if (how & LLM__REVERT_HEADS && pairs) from.head = a->head_dim, from.across = t->n_dims < 2;
    if (how & LLM__REVERT_NORM && !bias && a->flags & LLM__NORM_PLUS1) from.sub = 1;
    if (t->type == LLM_TYPE_F32 && (t->n_dims < 2 || !strcmp(stem, "ffn_gate_inp"))) how |= llm__revert_exact(v, &from);
    for (int m = 0; m < matrices && !v->r; m++) {
        char name[160], lead[32] = "";
        if (layer >= 0) snprintf(lead, sizeof lead, "model.layers.%d.", layer);
        if (number) snprintf(name, sizeof name, "%s%.*s%d%s.weight", lead, (int)(number - hf), hf, m, number + 1);
        else snprintf(name, sizeof name, "%s%s%s", lead, hf, how & LLM__REVERT_BARE ? "" : bias ? ".bias" : ".weight");
        from.first = m * from.rows;
        llm__revert_add(v, name, how, how & LLM__REVERT_ONE || t->n_dims > 1 ? 2 : 1, &from);
    }
    if (!number && matrices > 1 && !v->r) v->r = llm__bad(v->model->path, "tensor", t->name, "a matrix was expected");
}

/* kv_b of latent attention, from keys (heads, rank, nope) and values (heads, v, rank). */
static void llm__revert_kv_b(llm__revert *v, const llm__tensor *keys, int layer) {
    const llm__arch *a = &v->model->arch;
    char name[96];
    llm__revert_from from = LLM__ZERO;
    snprintf(name, sizeof name, "blk.%d.attn_v_b.weight", layer);
    from.t = keys, from.values = llm__tensors_find(&v->model->source.tensors, name);
    from.nope = a->nope, from.v = a->v_head_dim, from.rank = a->kv_rank;
    from.rows = (int64_t)a->n_heads * (a->nope + a->v_head_dim), from.cols = a->kv_rank;
    if (!from.values) v->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s is missing", v->model->path, name);
    snprintf(name, sizeof name, "model.layers.%d.self_attn.kv_b_proj.weight", layer);
    llm__revert_add(v, name, 0, 2, &from);
}

/* All tensors of the folder, told before any is made. */
static void llm__revert_plan(llm__revert *v) {
    static const char elsewhere[] = "rope_freqs rope_factors_short rope_factors_long attn_v_b attn_rot_embd";
    const llm__tensors *t = &v->model->source.tensors;
    const llm__arch *a = &v->model->arch;
    for (size_t i = 0; i < t->n && !v->r; i++) {
        const llm__tensor *x = &t->item[i];
        char stem[64];
        int layer, bias = 0;
        if (!llm__revert_parse(x->name.p, &layer, stem, &bias))
            v->r = llm__bad(v->model->path, "tensor", x->name, "it has no place in a folder of %s that is known here", v->type);
        else if (layer >= a->n_layers || llm__word_in(elsewhere, stem)) continue;
        else if (!strcmp(stem, "attn_k_b")) llm__revert_kv_b(v, x, layer);
        else if (!llm__type_readable(x->type))
            v->r = llm__bad(v->model->path, "tensor", x->name, "type %s is not read here", llm__type_name(x->type));
        else llm__revert_tensor(v, x, stem, layer, bias);
    }
}

/* F32, F16 or BF16: what is asked for, or what most of the matrices are; of quantised ones F16, which holds their scales. */
static void llm__revert_dtype(llm__revert *v) {
    static const char *const names[3] = {"f32", "f16", "bf16"};
    static const int32_t types[3] = {LLM_TYPE_F32, LLM_TYPE_F16, LLM_TYPE_BF16};
    const llm__tensors *t = &v->model->source.tensors;
    const char *asked = v->cfg->type && strcmp(v->cfg->type, "auto") ? v->cfg->type : NULL;
    int64_t bytes[3] = {0, 0, 0};
    char name[40] = "";
    int best = 1;
    for (size_t i = 0; i < t->n; i++)
        for (int k = 0; k < 3; k++) bytes[k] += t->item[i].n_dims > 1 && t->item[i].type == types[k] ? t->item[i].bytes : 0;
    for (int k = 0; k < 3 && !asked; k++) best = bytes[k] > bytes[best] ? k : best;
    if (asked) llm__quant_spelling(asked, name);
    for (int k = 0; k < 3 && asked; k++)
        if (!strcmp(names[k], name)) best = k, asked = NULL;
    if (asked) v->r = llm__error(LLM_ERR_ARG, "type: %.40s, one of auto, f32, f16, bf16 expected for a folder", asked);
    v->dtype = types[best];
}

static const char *llm__revert_dtype_name(const llm__revert *v) {
    return v->dtype == LLM_TYPE_F32 ? "float32" : v->dtype == LLM_TYPE_F16 ? "float16" : "bfloat16";
}

/* The data of one tensor. */
static void llm__revert_data(llm__revert *v, size_t i) {
    const llm__revert_from *f = &v->from[i];
    const int32_t type = v->out.tensor[i].type;
    const int64_t bytes = llm__row_bytes(type, f->cols), some = LLM__MAX((int64_t)1, (1 << 20) / LLM__MAX(bytes, (int64_t)1));
    LLM__SCOPED(llm__drop) float *x = LLM__NEW(float, f->cols);
    LLM__SCOPED(llm__drop) uint8_t *to = LLM__NEW(uint8_t, bytes * some);
    if (!x || !to) v->r = llm__nomem();
    for (int64_t row = 0; row < f->rows && !v->r; row += some) {
        const int64_t n = LLM__MIN(some, f->rows - row);
        for (int64_t k = 0; k < n && !v->r; k++) {
            llm__revert_values(f, row + k, x);
            if (!llm__revert_row_put(type, x, f->cols, to + k * bytes))
                v->r = llm__bad(v->model->path, "tensor", f->t->name, "a value is too large for f16; bf16 holds it");
        }
        llm__out_put(&v->out, i, row * bytes, to, (size_t)(n * bytes));
        if (!v->r) v->r = v->out.r;
    }
    if (f->t->bytes > 1 << 16 && f->t->data) llm__file_rest(f->t->data, (size_t)f->t->bytes);
}

static void llm__revert_tell(llm__revert *v, double done) {
    const llm_quantize_config *c = v->cfg;
    if (!v->r && c->progress && c->progress(c->progress_user, "converting", done))
        v->r = llm__error(LLM_ERR_CANCELLED, "%s: converting was cancelled", v->to);
}

/* The small files. */
static void llm__revert_texts(llm__revert *v) {
    static const char *const names[4] = {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"};
    const llm__source *s = &v->model->source;
    for (int i = 0; i < 4 && !v->r; i++) {
        LLM__SCOPED(llm_text_free) llm_text t = LLM__ZERO;
        if (i == 0) v->r = llm__revert_config(v->model, llm__revert_dtype_name(v), &t);
        if (i == 1) v->r = llm__revert_tokenizer(v->model, &t);
        if (i == 2) llm__revert_tokenizer_config(v->model, &t);
        if (i == 3) {
            llm_text_str(&t, "{");
            if (s->bos_id >= 0) llm_text_format(&t, "'bos_token_id': %d, ", (int)s->bos_id);
            llm_text_format(&t, "'eos_token_id': %i}\n", s->stop_ids.data, s->stop_ids.len);
        }
        if (!v->r) llm__out_text(&v->out, names[i], &t);
        if (!v->r) v->r = v->out.r;
    }
}

/* The folder is a model, and cuts a text as the file does. */
static void llm__revert_check(llm__revert *v) {
    llm_model *made = NULL;
    if (v->r) return;
    v->r = llm_model_open(v->out.part, NULL, &made);
    llm_model_close(made);
    if (v->r) v->r = llm__error(v->r, "%s: what was written cannot be used: %s", v->to, llm_last_error());
    else v->r = llm__convert_check(v->model, v->out.part, "in a folder");
}

/* Everything into TO.part. */
static void llm__revert_write(llm__revert *v) {
    int64_t done = 0;
    llm__out_open(&v->out, 5000000000, 0);
    v->r = v->out.r;
    llm__revert_tell(v, 0);
    for (size_t i = 0; i < v->out.n && !v->r; i++) {
        llm__revert_data(v, i);
        done += v->out.tensor[i].bytes;
        llm__revert_tell(v, (double)done / (double)LLM__MAX(v->out.bytes, (int64_t)1));
    }
    if (!v->r) llm__out_sync(&v->out), llm__out_index(&v->out), v->r = v->out.r;
    llm__revert_texts(v);
    if (!v->r) v->r = llm__source_whole(&v->model->source);
    llm__revert_check(v);
}

/* Whether the model is one that can be. */
static void llm__revert_open(llm__revert *v, const char *path) {
    llm_model_config cfg = LLM__ZERO;
    cfg.language_model_only = 1;
    if (llm__path_kind_of(v->to) != LLM__PATH_NONE)
        v->r = llm__error(LLM_ERR_ARG, "%s: it is there already, the name of a new folder expected", v->to);
    else if (llm__path_kind_of(v->out.part) != LLM__PATH_NONE)
        v->r = llm__error(LLM_ERR_ARG, "%s: it is there already, and not made by this call", v->out.part);
    if (!v->r) v->r = llm_model_open(path, &cfg, &v->model);
    if (!v->r && !v->model->source.gguf) v->r = llm__error(LLM_ERR_ARG, "%s: a folder already", path);
    if (!v->r) v->type = llm__revert_family(v->model);
    if (!v->r && !v->type)
        v->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: %s is not converted to a folder in this version", path, v->model->arch.name);
    if (!v->r) llm__revert_dtype(v);
    if (!v->r) llm__revert_plan(v);
}

LLM_API llm_result llm_convert_folder(const char *path, const char *to, const llm_quantize_config *cfg, llm_text *report) {
    static const llm_quantize_config usual = LLM__ZERO;
    LLM__SCOPED(llm__revert_close) llm__revert v = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text part = LLM__ZERO;
    if (!path || !*path || !to || !*to) return llm__error(LLM_ERR_ARG, "convert: a GGUF file and the name of a new folder expected");
    llm_text_format(&part, "%s.part", to);
    if (part.failed) return llm__nomem();
    v.cfg = cfg ? cfg : &usual;
    v.to = to;
    v.out.part = part.data;
    llm__revert_open(&v, path);
    if (v.r) return v.r;
    v.r = llm__folder_make(part.data);
    if (v.r) return v.r;
    llm__revert_write(&v);
    if (!v.r && rename(part.data, to)) v.r = llm__error(LLM_ERR_IO, "%s: %s", to, strerror(errno));
    if (v.r) (void)llm__path_remove(part.data);
    if (v.r || !report) return v.r;
    llm_text_format(report, "{'model_type': %q, 'dtype': %q, 'n_tensors': %l, 'bytes_before': %l, 'bytes_after': %l}", v.type,
                    llm__revert_dtype_name(&v), (int64_t)v.out.n, v.model->info.weight_bytes, v.out.bytes);
    return report->failed ? llm__nomem() : LLM_OK;
}
