#include "model/meta.h"
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "base/json.h"
#include "base/place.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/source.h"

enum { LLM__META_SHARDS = 64 };

LLM__PRIVATE int llm__meta_is(const llm__source *s, const char *folder) {
    LLM__SCOPED(llm__drop) char *config = llm__path_join(folder, "config.json"), *params = llm__path_join(folder, "params.json");
    return config && params && llm__place_kind(&s->place, config) == LLM__PATH_NONE && llm__place_kind(&s->place, params) == LLM__PATH_FILE;
}

/* The n files of a folder, opened in the order of their numbers into tables of their own. */
static llm_result llm__meta_files(llm__source *s, const char *folder, llm__tensors *shard, int *n) {
    LLM__SCOPED(llm_text_free) llm_text names = LLM__ZERO;
    char wanted[40];
    llm_result r = LLM_OK;
    *n = 0;
    llm__place_names(&s->place, folder, &names);
    for (const char *name = NULL; (name = llm__folder_next(&names, name)) != NULL && !r;) {
        if (!strcmp(name, "consolidated.safetensors")) {
            *n = 1;
            return llm__source_shard(s, llm__source_path(s, folder, name), shard);
        }
        if (strncmp(name, "consolidated.", 13) || !llm__ends_with(name, ".pth")) continue;
        snprintf(wanted, sizeof wanted, "consolidated.%02d.pth", *n);
        if (*n == LLM__META_SHARDS)
            return llm__error(LLM_ERR_LIMIT, "%s: more than %d files consolidated.*.pth", folder, (int)LLM__META_SHARDS);
        if (strcmp(name, wanted)) return llm__error(LLM_ERR_FORMAT, "%s: %s is missing, %.100s is there", folder, wanted, name);
        r = llm__source_shard(s, llm__source_path(s, folder, name), &shard[(*n)++]);
    }
    return r || *n ? r : llm__folder_lacks(s, folder, "consolidated.00.pth");
}

/* How a matrix is cut: 0 along its rows, 1 along its columns, -1: not at all. Embeddings are cut either way: Llama 3's by rows. */
static int llm__meta_cut(const llm__tensor *t, int n, int64_t dim) {
    static const char *const rows[] = {".wq.weight", ".wk.weight", ".wv.weight", ".w1.weight", ".w3.weight"}, *const cols[] = {
                                                                                                                  ".wo.weight",
                                                                                                                  ".w2.weight"};
    if (n == 1 || t->n_dims != 2) return -1;
    if (!strcmp(t->name.p, "output.weight")) return 0;
    if (!strcmp(t->name.p, "tok_embeddings.weight")) return t->shape[1] != dim;
    for (int i = 0; i < LLM__COUNT(rows); i++)
        if (llm__ends_with(t->name.p, rows[i])) return 0;
    for (int i = 0; i < LLM__COUNT(cols); i++)
        if (llm__ends_with(t->name.p, cols[i])) return 1;
    return -1;
}

/* Puts a matrix together of its parts, which other shards have under the same name. What has 16 bits is read from there, when it is
 * needed; other floats, which are seldom, are copied. */
static llm_result llm__meta_join(llm__source *s, const llm__tensors *shard, int n, const llm__tensor *first, int by_cols) {
    llm__tensor x = *first;
    llm__tensor_parts *p = (llm__tensor_parts *)llm__arena_get(&s->arena, sizeof *p);
    if (p) p->data = (const uint8_t **)llm__arena_get(&s->arena, (size_t)n * sizeof *p->data);
    if (!p || !p->data) return llm__nomem();
    for (int i = 0; i < n; i++) {
        const llm__tensor *t = llm__tensors_find(&shard[i], first->name.p);
        if (!t || t->type != first->type || t->n_dims != 2 || t->shape[0] != first->shape[0] || t->shape[1] != first->shape[1])
            return llm__error(LLM_ERR_FORMAT, "%s: tensor %s: consolidated.%02d.pth has not the same shape and type as the first", s->path,
                              first->name.p, i);
        p->data[i] = t->data;
    }
    if (llm__word_index("F32 F16 BF16", llm__lit(llm__type_name(x.type))) < 0)
        return llm__bad(s->path, "tensor", x.name, "parts of type %s, F32, F16 or BF16 expected", llm__type_name(x.type));
    if (LLM__MIN(x.shape[0], x.shape[1]) < 1 || LLM__MAX(x.shape[0], x.shape[1]) > INT32_MAX)
        return llm__bad(s->path, "tensor", x.name, "parts of %lld x %lld, sides of 1 to %d expected", (long long)x.shape[0],
                        (long long)x.shape[1], INT32_MAX);
    x.shape[by_cols] *= n;
    p->n = n, p->type = x.type, p->by_cols = by_cols, p->rows = x.shape[0], p->cols = x.shape[1];
    llm_result r = llm__tensors_add(&s->tensors, s->path, first->name, &x);
    if (r) return r;
    llm__tensor *t = &s->tensors.item[s->tensors.n - 1];
    t->data = NULL;
    t->parts = p;
    if (x.type != LLM_TYPE_F32) return LLM_OK;
    uint8_t *whole = (uint8_t *)llm__arena_take(&s->arena, (size_t)t->bytes);
    if (!whole) return llm__nomem();
    llm__parts_read(p, 0, 1, p->rows, 0, p->cols, whole);
    t->data = whole;
    t->parts = NULL;
    return LLM_OK;
}

/* All tensors of the shards: matrices put together, the rest from the first. */
static llm_result llm__meta_tensors(llm__source *s, const llm__tensors *shard, int n, int64_t dim) {
    llm_result r = LLM_OK;
    for (size_t i = 0; i < shard->n && !r; i++) {
        llm__tensor x = shard->item[i];
        const int cut = llm__meta_cut(&x, n, dim);
        if (cut >= 0) {
            r = llm__meta_join(s, shard, n, &x, cut);
            continue;
        }
        r = llm__tensors_add(&s->tensors, s->path, x.name, &x);
        if (!r) s->tensors.item[s->tensors.n - 1].data = x.data;
    }
    return r;
}

/* A number of params.json, or else `otherwise`. */
static double llm__meta_number(const llm_json *params, const char *key, double otherwise) {
    double v = 0;
    return llm_json_num(params, llm_json_find(params, 0, key), &v) && isfinite(v) && fabs(v) < 1e15 ? v : otherwise;
}

/* Width of the MLP, where no tensor tells: 2/3 of 4 dim, by a factor, up to a multiple. */
static int64_t llm__meta_width(const llm_json *params, double dim) {
    const double multiple = LLM__MAX(llm__meta_number(params, "multiple_of", 256), 1);
    const double width = floor(floor(2 * 4 * dim / 3) * llm__meta_number(params, "ffn_dim_multiplier", 1));
    return (int64_t)LLM__MIN(ceil(width / multiple) * multiple, 1e9);
}

/* Rows of a matrix, or else `otherwise`. */
static int64_t llm__meta_rows(const llm__source *s, const char *name, int64_t otherwise) {
    const llm__tensor *t = llm__tensors_find(&s->tensors, name);
    return t && t->n_dims == 2 ? t->shape[0] : otherwise;
}

/* How long texts may be, which params.json does not say: 2048 of Llama 1 (by its epsilon), 4096 of 2, 8192 of 3, 128 k of 3.1. */
static double llm__meta_length(const llm_json *params, int scaled, double theta) {
    const double usual = scaled                                              ? 131072
                         : theta >= 1e6                                      ? 32768
                         : theta >= 5e5                                      ? 8192
                         : llm__meta_number(params, "norm_eps", 1e-5) < 5e-6 ? 2048
                                                                             : 4096;
    return llm__meta_number(params, "max_seq_len", usual);
}

/* What config.json would say. Shapes are taken from the tensors where they tell. Llama 3.2's two text models, known by their widths, have
 * their positions scaled by 32, 3.1's by 8: the code that came with them says so, their files do not. */
static llm_result llm__meta_config(llm__source *s, const llm_json *params) {
    LLM__SCOPED(llm_text_free) llm_text t = LLM__ZERO;
    const double dim = llm__meta_number(params, "dim", -1), heads = llm__meta_number(params, "n_heads", -1),
                 theta = llm__meta_number(params, "rope_theta", 1e4);
    const int moe = llm_json_find(params, 0, "moe"), scaled = llm__json_flag(params, 0, "use_scaled_rope", 0);
    const double window = llm__meta_number(params, "sliding_window", 0),
                 width = llm__meta_number(params, "hidden_dim", (double)llm__meta_width(params, dim));
    double experts = 0, used = 2;
    llm_json_num(params, llm_json_find(params, moe, "num_experts"), &experts);
    llm_json_num(params, llm_json_find(params, moe, "num_experts_per_tok"), &used);
    llm_text_format(&t,
                    "{'model_type': '%s', 'architectures': ['LlamaForCausalLM'], 'hidden_size': %f, 'num_hidden_layers': %f, "
                    "'num_attention_heads': %f, ",
                    moe >= 0 ? "mixtral_meta" : "llama_meta", dim, llm__meta_number(params, "n_layers", -1), heads);
    llm_text_format(&t, "'num_key_value_heads': %f, 'rms_norm_eps': %f, 'rope_theta': %f, 'max_position_embeddings': %f, ",
                    llm__meta_number(params, "n_kv_heads", heads), llm__meta_number(params, "norm_eps", 1e-5), theta,
                    llm__meta_length(params, scaled, theta));
    llm_text_format(&t, "'intermediate_size': %l, 'vocab_size': %l, 'tie_word_embeddings': %s",
                    llm__meta_rows(s, "layers.0.feed_forward.w1.weight", (int64_t)width),
                    llm__meta_rows(s, "tok_embeddings.weight", (int64_t)llm__meta_number(params, "vocab_size", -1)),
                    llm__tensors_find(&s->tensors, "output.weight") || !s->tensors.n ? "false" : "true");
    if (llm_json_find(params, 0, "head_dim") >= 0) llm_text_format(&t, ", 'head_dim': %f", llm__meta_number(params, "head_dim", -1));
    if (window > 0) llm_text_format(&t, ", 'sliding_window': %f", window);
    if (moe >= 0) llm_text_format(&t, ", 'num_local_experts': %f, 'num_experts_per_tok': %f", experts, used);
    if (scaled)
        llm_text_format(&t,
                        ", 'rope_scaling': {'rope_type': 'llama3', 'factor': %f, 'low_freq_factor': 1, 'high_freq_factor': 4, "
                        "'original_max_position_embeddings': 8192}",
                        llm__meta_number(params, "rope_scaling_factor", dim == 2048 || dim == 3072 ? 32 : 8));
    llm_text_str(&t, "}");
    return t.failed ? llm__nomem() : llm_json_parse(t.data, t.len, NULL, &s->config);
}

LLM__PRIVATE llm_result llm__meta_open(llm__source *s, const char *folder, int quick) {
    llm__tensors shard[LLM__META_SHARDS];
    LLM__SCOPED(llm__json_drop) llm_json *params = NULL;
    int n = 0;
    memset(shard, 0, sizeof shard);
    llm_result r = llm__folder_json(s, folder, "params.json", 1 << 20, &params);
    if (!r && llm__meta_number(params, "dim", -1) < 1)
        r = llm__error(LLM_ERR_FORMAT, "%s: params.json: dim: a number from 1 on expected", folder);
    if (!r && !quick) r = llm__meta_files(s, folder, shard, &n);
    if (!r && !quick) r = llm__meta_tensors(s, shard, n, (int64_t)llm__meta_number(params, "dim", 0));
    if (!r) r = llm__meta_config(s, params);
    for (int i = 0; i < LLM__META_SHARDS; i++) llm__tensors_free(&shard[i]);
    return r;
}
