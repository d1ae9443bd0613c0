#include "model/lora.h"
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "base/files.h"
#include "base/json.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/safetensors.h"
#include "model/torch.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/net.h"

LLM__PRIVATE void llm__adapter_close(llm__adapter *d) {
    llm__file_close(&d->file);
    llm__gguf_free(&d->keys);
    llm__tensors_free(&d->tensors);
    llm_json_free(d->config);
    LLM_FREE(d->used);
}

/* What a PEFT adapter may ask for that is more than two factors a matrix: there, and not null, false or empty. */
static llm_result llm__adapter_extras(const llm__adapter *d) {
    static const char *const extras[] = {"modules_to_save", "use_dora", "lora_bias", "trainable_token_indices", "layer_replication"};
    for (int i = 0; i < LLM__COUNT(extras); i++) {
        int node = llm_json_find(d->config, 0, extras[i]);
        llm_json_type type = llm_json_type_of(d->config, node);
        int on = type == LLM_JSON_ARRAY || type == LLM_JSON_OBJECT ? llm_json_size(d->config, node) > 0 : type > LLM_JSON_NULL;
        llm_json_bool(d->config, node, &on);
        if (on)
            return llm__error(LLM_ERR_UNSUPPORTED, "%s: adapter_config.json: %s is not supported, only factors A and B of matrices",
                              d->path, extras[i]);
    }
    const char *bias = llm_json_str(d->config, llm_json_find(d->config, 0, "bias"), NULL);
    if (bias && strcmp(bias, "none"))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: adapter_config.json: bias \"%.40s\" is not supported, \"none\" expected", d->path,
                          bias);
    return LLM_OK;
}

/* adapter_config.json: the kind, rank and scale. */
static llm_result llm__adapter_config(llm__adapter *d) {
    const llm_json *c = d->config;
    int64_t r;
    const char *kind = llm_json_str(c, llm_json_find(c, 0, "peft_type"), NULL);
    if (!kind || strcmp(kind, "LORA"))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: adapter_config.json: peft_type is \"%.40s\", \"LORA\" expected", d->path,
                          kind ? kind : "");
    if (!llm_json_int(c, llm_json_find(c, 0, "r"), &r) || r < 1 || r > 1 << 20)
        return llm__error(LLM_ERR_FORMAT, "%s: adapter_config.json: r: a whole number from 1 on expected", d->path);
    if (!llm_json_num(c, llm_json_find(c, 0, "lora_alpha"), &d->alpha) || fabs(d->alpha) > 1e6)
        return llm__error(LLM_ERR_FORMAT, "%s: adapter_config.json: lora_alpha: a number expected", d->path);
    llm_json_bool(c, llm_json_find(c, 0, "use_rslora"), &d->root);
    if (!llm_json_size(c, llm_json_find(c, 0, "rank_pattern"))) d->rank = (int32_t)r;
    if (r > d->max_rank)
        return llm__error(LLM_ERR_LIMIT, "%s: LoRA rank %d is greater than max_lora_rank %d.", d->path, (int)r, d->max_rank);
    return llm__adapter_extras(d);
}

/* A PEFT folder. */
static llm_result llm__adapter_peft(llm__adapter *d, const char *folder) {
    LLM__SCOPED(llm__drop) char *config = llm__path_join(folder, "adapter_config.json");
    LLM__SCOPED(llm__drop)
    char *safe = llm__path_join(folder, "adapter_model.safetensors"), *torch = llm__path_join(folder, "adapter_model.bin");
    LLM__SCOPED(llm_text_free) llm_text text = LLM__ZERO;
    llm_result r = config && safe && torch ? llm__json_file(config, 1 << 20, &d->config) : llm__nomem();
    if (!r) r = llm__adapter_config(d);
    const int old = !r && llm__path_kind_of(safe) == LLM__PATH_NONE && llm__path_kind_of(torch) != LLM__PATH_NONE;
    if (!r) r = llm__file_open(old ? torch : safe, 0, 1, &d->file);
    if (!r && old) r = llm__torch_parse(torch, d->file.data, d->file.size, &d->tensors.names, &d->tensors);
    else if (!r) r = llm__safetensors_parse(safe, d->file.data, d->file.size, &d->tensors);
    llm_json_write(d->config, 0, &text);
    d->content = llm__hash(text.data, text.len, 1);
    return r || !text.failed ? r : llm__nomem();
}

/* A GGUF adapter, made for the model's architecture. */
static llm_result llm__adapter_gguf(llm__adapter *d, const llm__arch *a) {
    llm_result r = llm__file_open(d->path, 0, 1, &d->file);
    if (!r) r = llm__gguf_parse(d->path, d->file.data, d->file.size, &d->keys, &d->tensors);
    if (r) return r;
    llm__str type = llm__gguf_str(&d->keys, "general.type"), kind = llm__gguf_str(&d->keys, "adapter.type"),
             made_for = llm__gguf_str(&d->keys, "general.architecture");
    if (!llm__str_eq(type, "adapter") || !llm__str_eq(kind, "lora"))
        return llm__error(LLM_ERR_FORMAT, "%s: not an adapter: general.type \"adapter\" and adapter.type \"lora\" expected", d->path);
    if (llm__word_index(a->family->gguf, made_for) < 0)
        return llm__error(LLM_ERR_FORMAT, "%s: general.architecture is \"%.*s\", the model's is \"%s\"", d->path,
                          (int)LLM__MIN(made_for.n, (size_t)64), made_for.p ? made_for.p : "", a->family->gguf);
    if (!llm__gguf_num_at(llm__gguf_find(&d->keys, "adapter.lora.alpha"), 0, &d->alpha) || !(fabs(d->alpha) <= 1e6))
        return llm__error(LLM_ERR_FORMAT, "%s: adapter.lora.alpha: a number expected", d->path);
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__adapter_open(const char *path, const llm__arch *a, int32_t max_rank, llm__adapter *d) {
    int folder = llm__path_kind_of(path) == LLM__PATH_DIR;
    memset(d, 0, sizeof *d);
    d->path = path;
    d->max_rank = max_rank;
    d->gguf = !folder;
    d->prefix = folder ? "base_model.model." : "";
    llm_result r = folder ? llm__adapter_peft(d, path) : llm__adapter_gguf(d, a);
    if (r) return r;
    size_t n = strlen(d->prefix);
    for (size_t i = 0; i < d->tensors.n; i++)
        if (strncmp(d->tensors.item[i].name.p, d->prefix, n))
            return llm__error(LLM_ERR_FORMAT, "%s: tensor %s: a name that begins with %s was expected", path, d->tensors.item[i].name.p,
                              d->prefix);
    d->base = llm__layer_base(&d->tensors, n);
    d->content = llm__hash(d->file.data, d->file.size, d->content);
    d->used = LLM__NEW(uint8_t, d->tensors.n);
    return d->used ? LLM_OK : llm__nomem();
}

/* Where PEFT adapts embeddings or the output layer, it saves the matrix itself beside the factors, as NAME.base_layer.weight. 1: it is the
 * model's own, but for roundings, so it says nothing; a quantised model's is believed. */
static int llm__adapter_copy(const llm__loader *L, const llm__tensor *t) {
    char name[256];
    float x[256], y[256];
    if (!llm__ends_with(t->name.p, ".base_layer.weight")) return 0;
    const llm__tensor *own = strstr(t->name.p, ".lm_head.") ? llm__loader_find(L, LLM__W_HEAD, 0, 0, name) : NULL;
    if (!own) own = llm__loader_find(L, LLM__W_EMBED, 0, 0, name); /* perhaps tied */
    if (!own || t->n_dims != 2 || own->shape[0] != t->shape[0] || own->shape[1] != t->shape[1]) return 0;
    if (llm__type_block(t->type) != 1 || llm__type_block(own->type) != 1 || own->parts) return llm__type_block(t->type) == 1;
    for (int64_t at = 0, n = t->shape[0] * t->shape[1]; at < n; at += LLM__COUNT(x)) {
        int m = (int)LLM__MIN(n - at, (int64_t)LLM__COUNT(x));
        llm__dequant_columns(t->type, t->data, at, m, x);
        llm__dequant_columns(own->type, own->data, at, m, y);
        for (int i = 0; i < m; i++)
            if (!(fabsf(x[i] - y[i]) <= 1e-4f + 0.01f * fabsf(y[i]))) return 0;
    }
    return 1;
}

LLM__PRIVATE llm_result llm__net_adapt(const llm__net *net, int slot, llm__adapter *d) {
    llm__loader L;
    size_t n = 0, odd = 0;
    if (d->path && net->a->folded)
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: %s, whose multipliers are in its weights, takes no adapters", d->path, net->a->name);
    if (d->path && !d->gguf && llm__arch_is(net->a, "falcon_h1")) /* of GGUF they are in an adapter's, too */
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: %s has multipliers in its weights: an adapter in GGUF expected", d->path, net->a->name);
    llm__loader_begin(&L, net->cfg.model, net->cfg.n_ranks, net->n_group);
    L.path = d->path;
    L.backend = net->cfg.backend;
    L.ctx = net->cfg.ctx;
    L.adapter = d;
    L.slot = slot;
    for (L.rank = 0; L.rank < L.n_ranks && !L.r; L.rank++) {
        llm__net_rank rank = net->rank[L.rank]; /* the walk writes down the shares again */
        llm__load_rank(&L, &rank, NULL);
    }
    llm__loader_end(&L);
    L.layer = -1;
    for (size_t i = 0; i < d->tensors.n; i++) n += d->used[i];
    for (size_t i = d->tensors.n; i-- > 0;) {
        if (n && !d->used[i] && !L.r && llm__adapter_copy(&L, &d->tensors.item[i])) d->used[i] = 1, n++;
        if (!d->used[i]) odd = i;
    }
    if (L.r || n == d->tensors.n) return L.r ? L.r : d->path && !n ? llm__error(LLM_ERR_FORMAT, "%s: it has no tensors", d->path) : LLM_OK;
    if (!n)
        return llm__error(LLM_ERR_FORMAT, "%s: none of its %zu tensors belongs to this model; the first is %s", d->path, d->tensors.n,
                          d->tensors.item[0].name.p);
    const char *name = d->tensors.item[odd].name.p, *why = "belongs to no layer of this model that an adapter can change";
    if (llm__ends_with(name, ".base_layer.weight")) why = "is not the model's own matrix: the adapter was trained on another model";
    return llm__error(LLM_ERR_UNSUPPORTED, "%s: tensor %s %s", d->path, name, why);
}
