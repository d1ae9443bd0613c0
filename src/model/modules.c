#include "model/modules.h"
#include "api/config.h"
#include "api/request.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "base/json.h"
#include "base/place.h"
#include "model/tensors.h"
#include "model/source.h"

LLM__PRIVATE int llm__dense_act_of(const char *name) {
    static const struct {
        const char *names;
        llm__dense_act act;
    } table[] = {{"Identity", LLM__DENSE_IDENTITY}, {"Tanh tanh", LLM__DENSE_TANH},  {"ReLU relu", LLM__DENSE_RELU},
                 {"GELU gelu", LLM__DENSE_GELU},    {"Sigmoid", LLM__DENSE_SIGMOID}, {"SiLU silu", LLM__DENSE_SILU}};
    const char *dot = strrchr(name, '.');
    for (int i = 0; i < LLM__COUNT(table); i++)
        if (llm__word_index(table[i].names, llm__lit(dot ? dot + 1 : name)) >= 0) return (int)table[i].act;
    return -1;
}

/* FOLDER/PATH/NAME, whose PATH stands in modules.json: the plain name of a folder, or nothing. NULL: it is none. */
static const char *llm__modules_path(llm__source *s, const char *folder, const char *path, const char *name) {
    const llm__str p = llm__lit(path);
    if (!p.n) return llm__source_path(s, folder, name);
    if (!llm__plain_text(p, 100) || strchr(path, '/') || path[0] == '.') return NULL;
    const char *inner = llm__source_path(s, folder, path);
    return inner ? llm__source_path(s, inner, name) : NULL;
}

/* A JSON object of a module. `must`: it has to be there. */
static llm_result llm__modules_json(llm__source *s, const char *folder, const char *path, const char *name, int must, llm_json **out) {
    const char *file = llm__modules_path(s, folder, path, name);
    *out = NULL;
    if (!file) return llm__error(LLM_ERR_FORMAT, "%s: modules.json: path: \"%.100s\": the plain name of a folder expected", folder, path);
    if (llm__place_kind(&s->place, file) == LLM__PATH_NONE)
        return must ? llm__error(LLM_ERR_IO, "%s: no such file, which modules.json asks for", file) : LLM_OK;
    const llm_result r = llm__place_json(&s->place, file, 1000000, out);
    if (!r && llm_json_type_of(*out, 0) != LLM_JSON_OBJECT) return llm__error(LLM_ERR_FORMAT, "%s: an object expected", file);
    return r;
}

/* Pooling: one mode of those that are known; where the file says nothing, the mean. */
static llm_result llm__modules_pooling(llm__source *s, const char *folder, const char *path, llm__modules *m) {
    static const struct {
        const char *key, *mode;
        llm_pooling pooling;
    } table[] = {{"pooling_mode_cls_token", "cls", LLM_POOLING_FIRST},
                 {"pooling_mode_mean_tokens", "mean", LLM_POOLING_MEAN},
                 {"pooling_mode_lasttoken", "lasttoken", LLM_POOLING_LAST}};
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    llm_result r = llm__modules_json(s, folder, path, "config.json", 1, &doc);
    if (r) return r;
    const char *mode = llm_json_str(doc, llm_json_find(doc, 0, "pooling_mode"), NULL);
    int n = 0, any = mode != NULL;
    for (int v = llm_json_first(doc, 0); v >= 0 && !mode; v = llm_json_next(doc, v)) {
        const char *key = llm_json_key(doc, v, NULL);
        int on = 0, known = -1;
        any |= !strncmp(key, "pooling_mode_", 13);
        if (strncmp(key, "pooling_mode_", 13) || !llm_json_bool(doc, v, &on) || !on) continue;
        for (int i = 0; i < LLM__COUNT(table); i++)
            if (!strcmp(key, table[i].key)) known = i;
        if (known < 0)
            return llm__error(LLM_ERR_UNSUPPORTED, "%s: %.100s: %.60s is not supported: cls, mean or lasttoken expected", folder, path,
                              key);
        m->pooling = table[known].pooling;
        n++;
    }
    for (int i = 0; i < LLM__COUNT(table) && mode; i++)
        if (!strcmp(mode, table[i].mode)) m->pooling = table[i].pooling, n++;
    if (!any) m->pooling = LLM_POOLING_MEAN, n = 1;
    if (n == 1) return LLM_OK;
    return llm__error(LLM_ERR_UNSUPPORTED, "%s: %.100s: %d ways of pooling that are known, one of cls, mean and lasttoken expected", folder,
                      path, n);
}

/* A dense module: its settings, and its file of tensors. */
static llm_result llm__modules_dense(llm__source *s, const char *folder, const char *path, int weights, llm__modules *m) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    int64_t in = 0, out = 0;
    if (m->n_dense >= LLM__MODULES_DENSE)
        return llm__error(LLM_ERR_LIMIT, "%s: modules.json: at most %d dense modules expected", folder, LLM__MODULES_DENSE);
    llm_result r = llm__modules_json(s, folder, path, "config.json", 1, &doc);
    if (r) return r;
    const int at = m->n_dense++;
    const char *act = llm_json_str(doc, llm_json_find(doc, 0, "activation_function"), NULL);
    m->dense[at].bias = llm__json_flag(doc, 0, "bias", 1);
    m->dense[at].act = act ? llm__dense_act_of(act) : (int)LLM__DENSE_TANH;
    if (m->dense[at].act < 0)
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: %.100s: activation_function: \"%.80s\" is not supported", folder, path, act);
    if (!llm_json_int(doc, llm_json_find(doc, 0, "in_features"), &in) || !llm_json_int(doc, llm_json_find(doc, 0, "out_features"), &out) ||
        in < 1 || out < 1 || in > 1 << 17 || out > 1 << 17)
        return llm__error(LLM_ERR_FORMAT, "%s: %.100s: in_features and out_features: numbers from 1 to %d expected", folder, path, 1 << 17);
    m->dense[at].in = (int32_t)in, m->dense[at].out = (int32_t)out;
    if (!weights) return LLM_OK;
    const char *file = llm__modules_path(s, folder, path, "model.safetensors");
    if (file && llm__place_kind(&s->place, file) == LLM__PATH_NONE) file = llm__modules_path(s, folder, path, "pytorch_model.bin");
    return llm__source_shard(s, file, &m->dense[at].tensors);
}

/* How long a text may be. */
static llm_result llm__modules_transformer(llm__source *s, const char *folder, const char *path, llm__modules *m) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    int64_t n = 0;
    if (*path) return llm__error(LLM_ERR_UNSUPPORTED, "%s: modules.json: the model is in %.100s: give that folder", folder, path);
    llm_result r = llm__modules_json(s, folder, path, "sentence_bert_config.json", 0, &doc);
    if (r || !doc) return r;
    if (llm_json_int(doc, llm_json_find(doc, 0, "max_seq_length"), &n) && (n < 1 || n > 1 << 30))
        return llm__error(LLM_ERR_FORMAT, "%s: sentence_bert_config.json: max_seq_length: %lld, 1 or more expected", folder, (long long)n);
    m->max_len = (int32_t)n;
    if (llm__json_flag(doc, 0, "do_lower_case", 0))
        llm__log(&s->log, LLM_LOG_WARN,
                 "%s: sentence_bert_config.json: do_lower_case has no effect: texts are brought to lower case where tokenizer.json says so",
                 folder);
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__modules_read(llm__source *s, const char *folder, int weights, llm__modules *out) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    const char *list = llm__source_path(s, folder, "modules.json");
    llm_result r = list ? LLM_OK : llm__nomem();
    if (r || llm__place_kind(&s->place, list) == LLM__PATH_NONE) return r;
    r = llm__place_json(&s->place, list, 1000000, &doc);
    if (!r && llm_json_type_of(doc, 0) != LLM_JSON_ARRAY) r = llm__error(LLM_ERR_FORMAT, "%s: a list of modules expected", list);
    out->there = !r;
    for (int v = r ? -1 : llm_json_first(doc, 0), i = 0; v >= 0 && !r; v = llm_json_next(doc, v), i++) {
        const char *type = llm_json_str(doc, llm_json_find(doc, v, "type"), NULL);
        const char *path = llm_json_str(doc, llm_json_find(doc, v, "path"), NULL), *dot = type ? strrchr(type, '.') : NULL;
        const char *name = dot ? dot + 1 : type;
        if (!name || !path) return llm__error(LLM_ERR_FORMAT, "%s: module %d: type and path, two texts, expected", list, i);
        if (!strcmp(name, "Transformer") && !i) r = llm__modules_transformer(s, folder, path, out);
        else if (!strcmp(name, "Pooling") && i && !out->pooling) r = llm__modules_pooling(s, folder, path, out);
        else if (!strcmp(name, "Dense") && out->pooling && !out->normalize) r = llm__modules_dense(s, folder, path, weights, out);
        else if (!strcmp(name, "Normalize") && out->pooling) out->normalize = 1;
        else if (strcmp(name, "Dropout"))
            r = llm__error(LLM_ERR_UNSUPPORTED,
                           "%s: module %d is %.100s: Transformer, Pooling, any Dense and Normalize, in this order, expected", list, i,
                           type);
    }
    if (!r && !out->pooling) r = llm__error(LLM_ERR_UNSUPPORTED, "%s: no Pooling among its modules", list);
    return r;
}

LLM__PRIVATE void llm__modules_free(llm__modules *m) {
    for (int i = 0; i < LLM__MODULES_DENSE; i++) llm__tensors_free(&m->dense[i].tensors);
}
