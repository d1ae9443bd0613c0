#include "model/source.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "base/files.h"
#include "base/json.h"
#include "base/place.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/safetensors.h"
#include "model/torch.h"
#include "model/quant.h"
#include "model/modules.h"

LLM__PRIVATE llm_result llm__source_file(llm__source *s, const char *path, llm__file *out) {
    if (!llm__grow((void **)&s->files, &s->files_cap, s->n_files + 1, sizeof *s->files)) return llm__nomem();
    llm_result r = llm__place_file(&s->place, path, 0, s->no_mmap, out);
    if (!r) s->files[s->n_files++] = *out;
    return r;
}

LLM__PRIVATE llm_result llm__source_whole(const llm__source *s) {
    for (size_t i = 0; i < s->n_files; i++)
        if (!llm__file_whole(&s->files[i]))
            return llm__error(LLM_ERR_IO,
                              "%.400s was cut short while it was used (%lld bytes expected): open it again when it is whole, with %s",
                              s->path, (long long)s->files[i].end, "no_mmap (--no-mmap) if its files may change");
    return LLM_OK;
}

LLM__PRIVATE const char *llm__source_path(llm__source *s, const char *folder, const char *name) {
    LLM__SCOPED(llm__drop) char *path = llm__path_join(folder, name);
    return path ? llm__arena_str(&s->arena, llm__lit(path)) : NULL;
}

LLM__PRIVATE int llm__is_gguf(const llm__file *f) { return f->size >= 4 && !memcmp(f->data, "GGUF", 4); }

LLM__PRIVATE llm_result llm__source_keys(llm__source *s, const char *path, const llm__file *f, llm__tensors *tensors, llm__gguf **out) {
    llm__gguf *g = *out = (llm__gguf *)llm__arena_get(&s->arena, sizeof *g);
    llm_result r = g ? llm__gguf_parse(path, f->data, f->size, g, tensors) : llm__nomem();
    if (!r && g->end && f->size > g->end + g->alignment)
        llm__log(&s->log, LLM_LOG_WARN, "%s: %zu bytes after the last tensor are ignored", path, f->size - g->end);
    return r;
}

/* A number about parts: at most 65535; -1 if it is none. */
static int llm__split_number(const llm__gguf *g, const char *key, int absent) {
    int64_t v = llm__gguf_int(g, key, absent);
    return v < 0 || v > 65535 ? -1 : (int)v;
}

/* What a converter kept of generation_config.json, as general.sampling.*, becomes that document again. */
static llm_result llm__gguf_sampling(const llm__gguf *g, llm_json **out) {
    static const char *const names[][2] = {{"general.sampling.temp", "temperature"},
                                           {"general.sampling.top_k", "top_k"},
                                           {"general.sampling.top_p", "top_p"},
                                           {"general.sampling.min_p", "min_p"},
                                           {"general.sampling.penalty_repeat", "repetition_penalty"}};
    LLM__SCOPED(llm_text_free) llm_text t = LLM__ZERO;
    double v;
    for (int i = 0; i < LLM__COUNT(names); i++) {
        const llm__gguf_kv *kv = llm__gguf_find(g, names[i][0]);
        if (kv && llm__gguf_num_at(kv, 0, &v) && isfinite(v)) llm_text_format(&t, t.len ? ",%q:%f" : "{%q:%f", names[i][1], v);
    }
    if (!t.len && !t.failed) return LLM_OK;
    llm_text_str(&t, "}");
    return t.failed ? llm__nomem() : llm_json_parse(t.data, t.len, NULL, out);
}

LLM__PRIVATE llm_result llm__source_gguf(llm__source *s, const char *path, llm__file f) {
    char ending[40];
    llm_result r = llm__source_keys(s, path, &f, &s->tensors, &s->gguf);
    if (!r) r = llm__gguf_sampling(s->gguf, &s->generation_config);
    if (r) return r;
    int count = llm__split_number(s->gguf, "split.count", 1), no = llm__split_number(s->gguf, "split.no", 0);
    if (count < 0 || no < 0 || no >= LLM__MAX(1, count)) return llm__error(LLM_ERR_FORMAT, "%s: split.no and split.count do not fit", path);
    if (count < 2) return LLM_OK;
    if (no) return llm__error(LLM_ERR_FORMAT, "%s: part %d of %d: open the first", path, no + 1, count);
    size_t len = strlen(path), n = (size_t)snprintf(ending, sizeof ending, "-00001-of-%05d.gguf", count);
    if (!llm__ends_with(path, ending))
        return llm__error(LLM_ERR_FORMAT, "%s: part 1 of %d: a name ending in %s expected", path, count, ending);
    for (int i = 1; i < count && !r; i++) {
        LLM__SCOPED(llm__gguf_free) llm__gguf part = LLM__ZERO;
        char *name = llm__arena_str(&s->arena, llm__s(path, len));
        snprintf(ending, sizeof ending, "-%05d-of-%05d.gguf", i + 1, count);
        if (name) memcpy(name + len - n, ending, n);
        r = name ? llm__source_file(s, name, &f) : llm__nomem();
        if (!r) r = llm__gguf_parse(name, f.data, f.size, &part, &s->tensors);
        int own = llm__split_number(&part, "split.no", -1), of = llm__split_number(&part, "split.count", -1);
        if (!r && (own != i || of != count))
            r = llm__error(LLM_ERR_FORMAT, "%s: says it is part %d of %d, part %d of %d expected", name, own + 1, of, i + 1, count);
    }
    int64_t total = llm__gguf_int(s->gguf, "split.tensors.count", -1);
    if (r || total < 0 || (size_t)total == s->tensors.n) return r;
    return llm__error(LLM_ERR_FORMAT, "%s: split.tensors.count is %lld, the parts have %zu", path, (long long)total, s->tensors.n);
}

LLM__PRIVATE llm_result llm__folder_json(llm__source *s, const char *folder, const char *name, size_t limit, llm_json **out) {
    const char *path = llm__source_path(s, folder, name);
    *out = NULL;
    if (!path) return llm__nomem();
    if (llm__place_kind(&s->place, path) == LLM__PATH_NONE) return LLM_OK;
    llm_result r = llm__place_json(&s->place, path, limit, out);
    if (!r && llm_json_type_of(*out, 0) != LLM_JSON_OBJECT) r = llm__error(LLM_ERR_FORMAT, "%s: an object expected", path);
    return r;
}

LLM__PRIVATE llm_result llm__folder_lacks(const llm__source *s, const char *folder, const char *lacks) {
    static const struct {
        const char *ending, *advice;
    } kinds[] = {
        {".gguf", ": give the path of that file"},
        {".bin", ": pytorch_model.bin, or shards and pytorch_model.bin.index.json, beside config.json expected"},
        {".pth", ": consolidated.00.pth and so on beside params.json expected"},
        {".pdparams", ", a Paddle file: take a folder with safetensors"},
        {".safetensors", ": config.json beside model.safetensors, or beside shards and model.safetensors.index.json, expected"},
    };
    LLM__SCOPED(llm_text_free) llm_text names = LLM__ZERO;
    int best = LLM__COUNT(kinds);
    const char *found = NULL;
    llm__place_names(&s->place, folder, &names);
    for (const char *name = NULL; (name = llm__folder_next(&names, name)) != NULL;)
        for (int i = 0; i < best; i++)
            if (llm__ends_with(name, kinds[i].ending)) found = name, best = i;
    if (best == LLM__COUNT(kinds))
        return llm__error(LLM_ERR_IO, "%s: no %s there: a GGUF file, or a folder with config.json and safetensors expected", folder, lacks);
    return llm__error(LLM_ERR_IO, "%s: no %s there, but %.200s%s", folder, lacks, found, kinds[best].advice);
}

LLM__PRIVATE llm_result llm__source_shard(llm__source *s, const char *path, llm__tensors *tensors) {
    llm__file f;
    llm_result r = path ? llm__source_file(s, path, &f) : llm__nomem();
    if (r) return r;
    if (llm__ends_with(path, ".safetensors")) return llm__safetensors_parse(path, f.data, f.size, tensors);
    s->torch = 1;
    return llm__torch_parse(path, f.data, f.size, &s->arena, tensors);
}

/* The shards that an index names. Its names come from strangers: plain names of files in the same folder, which end as its own. */
static llm_result llm__source_shards(llm__source *s, const char *folder, const llm_json *index, const char *name_of, const char *ending) {
    int map = llm_json_find(index, 0, "weight_map"), is_map = llm_json_type_of(index, map) == LLM_JSON_OBJECT;
    LLM__SCOPED(llm__map_free) llm__map seen = LLM__ZERO;
    seen.seed = llm__seed(s);
    for (int v = is_map ? llm_json_first(index, map) : -1; v >= 0; v = llm_json_next(index, v)) {
        llm__str name = llm__json_text(index, v);
        if (!name.p || !llm__plain_text(name, 255) || name.p[0] == '.' || strchr(name.p, '/') || !llm__ends_with(name.p, ending))
            return llm__error(LLM_ERR_FORMAT, "%s: weight_map: \"%.100s\": the plain name of a %s file expected", folder,
                              name.p ? name.p : "", ending);
        /* thousands of tensors name a few shards: each is opened once */
        int put = llm__map_put(&seen, name, 0);
        llm_result r = put < 0 ? llm__nomem() : put ? llm__source_shard(s, llm__source_path(s, folder, name.p), &s->tensors) : LLM_OK;
        if (r) return r;
    }
    if (seen.len) return LLM_OK;
    return llm__error(LLM_ERR_FORMAT, "%s: %s: weight_map: an object of shard names expected", folder, name_of);
}

LLM__PRIVATE llm_result llm__source_weights(llm__source *s, const char *folder, const char *stem) {
    char name[128], lacks[128];
    snprintf(lacks, sizeof lacks, "%.90s.safetensors", stem);
    for (int torch = 0; torch <= !strcmp(stem, "model"); torch++) {
        LLM__SCOPED(llm__json_drop) llm_json *index = NULL;
        snprintf(name, sizeof name, torch ? "pytorch_%.90s.bin" : "%.90s.safetensors", stem);
        const char *single = llm__source_path(s, folder, name);
        if (!single || llm__place_kind(&s->place, single) != LLM__PATH_NONE) return llm__source_shard(s, single, &s->tensors);
        snprintf(name, sizeof name, torch ? "pytorch_%.90s.bin.index.json" : "%.90s.safetensors.index.json", stem);
        llm_result r = llm__folder_json(s, folder, name, 100000000, &index);
        if (!r && index) r = llm__source_shards(s, folder, index, name, torch ? ".bin" : ".safetensors");
        if (r || index) return r;
    }
    return llm__folder_lacks(s, folder, lacks);
}

/* Ascend's files are called by what is in them: quant_model_weight_w8a8.safetensors; newer ones quant_model_weights.safetensors. */
static llm_result llm__source_ascend(llm__source *s, const char *folder, const llm_json *description) {
    char stem[80] = "quant_model_weight_";
    const char *type = llm_json_str(description, llm_json_find(description, 0, "model_quant_type"), NULL);
    LLM__SCOPED(llm_text_free) llm_text names = LLM__ZERO;
    size_t n = strlen(stem);
    for (; type && *type && n < sizeof stem - 1; type++) stem[n++] = (char)(*type >= 'A' && *type <= 'Z' ? *type + 32 : *type);
    stem[n] = 0;
    llm__place_names(&s->place, folder, &names);
    for (const char *name = NULL; (name = llm__folder_next(&names, name)) != NULL;)
        if (!strncmp(name, "quant_model_weights.safetensors", 31)) return llm__source_weights(s, folder, "quant_model_weights");
        else if (!strncmp(name, "model.safetensors", 17)) return llm__source_weights(s, folder, "model");
    return llm__source_weights(s, folder, stem);
}

/* How the folder is quantised, and with `weights` these. A file of a method beside config.json counts where that is silent. */
static llm_result llm__source_quantised(llm__source *s, const char *folder, int weights) {
    static const char *const files[] = {"quantize_config.json",
                                        "quant_config.json",
                                        "hf_quant_config.json",
                                        "quant_model_description.json",
                                        "quant_model_description_w8a8.json",
                                        "quant_model_description_w8a8_dynamic.json",
                                        "quant_model_description_w8a16.json"};
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    const int node = llm__quant_node(s->config);
    llm_result r = node >= 0 ? llm__quant_read(s->config, node, NULL, s->path, &s->quant) : LLM_OK;
    for (int i = 0; i < LLM__COUNT(files) && !r && !doc && s->quant.method == LLM__QUANT_NONE; i++) {
        r = llm__folder_json(s, folder, files[i], 100000000, &doc);
        if (!r && doc) r = llm__quant_read(doc, 0, files[i], s->path, &s->quant);
    }
    if (r || !weights) return r;
    if (s->quant.activations)
        llm__log(&s->log, LLM_LOG_INFO, "%s: only its weights are quantised here: activations keep their precision, which loses less",
                 s->path);
    if (s->quant.kv)
        llm__log(&s->log, LLM_LOG_INFO,
                 "%s: its scales of keys and values are not needed: the cache has the type that --kv-cache-dtype says", s->path);
    return s->quant.method == LLM__QUANT_ASCEND ? llm__source_ascend(s, folder, doc) : llm__source_weights(s, folder, "model");
}

/* The members of object `base` with those of `over` in their place, whose name ends in _config one by one:
 *
 *   base                                              over                                result
 *   {"a": 1, "text_config": {"b": 2, "c": 3}}         {"a": 5, "text_config": {"c": 7}}   {"a": 5, "text_config": {"b": 2, "c": 7}}
 *   {"rope_parameters": {"type": "yarn", "x": 1}}     {"rope_parameters": {"type": "l"}}  {"rope_parameters": {"type": "l"}}
 *
 * So a part of a model can be changed without saying the whole part again, while scaling of one kind keeps nothing of another's. */
static void llm__source_merged(const llm_json *d, int base, const llm_json *o, int over, llm_text *out) {
    llm_text_str(out, "{");
    for (int v = llm_json_first(d, base); v >= 0; v = llm_json_next(d, v)) {
        const llm__str key = llm__json_key(d, v);
        const int w = llm_json_find(o, over, key.p),
                  both = llm_json_type_of(d, v) == LLM_JSON_OBJECT && llm_json_type_of(o, w) == LLM_JSON_OBJECT;
        llm_text_format(out, "%,%Q:", key.p, key.n);
        if (both && llm__ends_with(key.p, "_config")) llm__source_merged(d, v, o, w, out);
        else llm_text_format(out, "%j", w >= 0 ? o : d, w >= 0 ? w : v);
    }
    for (int w = llm_json_first(o, over); w >= 0; w = llm_json_next(o, w)) {
        const llm__str key = llm__json_key(o, w);
        if (llm_json_find(d, base, key.p) < 0) llm_text_format(out, "%,%Q:%j", key.p, key.n, o, w);
    }
    llm_text_str(out, "}");
}

/* What the caller says over config.json. Rotary scaling has two names, of which the files' one counts. */
static llm_result llm__source_override(llm__source *s, const char *json) {
    LLM__SCOPED(llm__json_drop) llm_json *over = NULL;
    LLM__SCOPED(llm_text_free) llm_text out = LLM__ZERO;
    llm_json *merged = NULL;
    llm_result r = llm_json_parse(json, strlen(json), NULL, &over);
    if (r == LLM_ERR_NOMEM) return r;
    if (r || llm_json_type_of(over, 0) != LLM_JSON_OBJECT)
        return llm__error(LLM_ERR_ARG, "hf_overrides: %.60s, a JSON object was expected", json);
    if (llm_json_find(over, 0, "rope_scaling") >= 0 &&
        llm_json_type_of(s->config, llm_json_find(s->config, 0, "rope_parameters")) == LLM_JSON_OBJECT)
        return llm__error(LLM_ERR_ARG, "hf_overrides: rope_scaling: config.json says rope_parameters instead, which was expected");
    llm__source_merged(s->config, 0, over, 0, &out);
    r = out.failed ? llm__nomem() : llm_json_parse(out.data, out.len, NULL, &merged);
    if (r) return llm__error(r == LLM_ERR_NOMEM ? r : LLM_ERR_ARG, "hf_overrides: %s", llm_last_error());
    llm_json_free(s->config);
    s->config = merged;
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__source_folder(llm__source *s, const char *path, const llm_model_config *cfg) {
    llm_result r = llm__folder_json(s, path, "config.json", 16000000, &s->config);
    if (!r && !s->config && !cfg->vocab_only) r = llm__folder_lacks(s, path, "config.json");
    if (!r && s->config && cfg->hf_overrides) r = llm__source_override(s, cfg->hf_overrides);
    if (!r) r = llm__folder_json(s, path, "generation_config.json", 16000000, &s->generation_config);
    if (!r && !cfg->vocab_only) r = llm__source_quantised(s, path, !cfg->dummy_weights);
    return r || cfg->vocab_only ? r : llm__modules_read(s, path, !cfg->dummy_weights, &s->modules);
}
