#include "model/pooler.h"
#include "api/config.h"
#include "api/model.h"
#include "api/request.h"
#include "api/json.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/modules.h"
#include "model/source.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/net.h"

/* The values of a tensor (rows, cols) as f32, in memory of the model; cols 0: a vector. NULL: an error. */
static const float *llm__pooler_values(llm__loader *L, const llm__tensor *t, const char *name, int64_t rows, int64_t cols) {
    const int64_t want[2] = {rows, cols}, n = LLM__MAX(cols, 1), each = cols ? cols : rows;
    if (L->r) return NULL;
    if (!t) return L->r = llm__error(LLM_ERR_FORMAT, "%s: tensor %s is missing", L->path, name), (const float *)NULL;
    if (!llm__loader_type(L, t) || !llm__loader_fits(L, t, want, cols ? 2 : 1)) return NULL;
    if (!t->data || t->type == LLM_TYPE_I8 || each % llm__type_block(t->type))
        return L->r =
                   llm__error(LLM_ERR_UNSUPPORTED, "%s: tensor %s: its type %s is not read here", L->path, name, llm__type_name(t->type)),
               (const float *)NULL;
    float *to = (float *)llm__arena_get((llm__arena *)(uintptr_t)&L->m->source.arena, sizeof(float) * (size_t)(rows * n));
    if (!to) return L->r = llm__nomem(), (const float *)NULL;
    for (int64_t i = 0; i < (cols ? rows : 1); i++)
        llm__dequant_columns(t->type, t->data + i * llm__row_bytes(t->type, each), 0, each, to + i * each);
    return to;
}

/* The same of a slot of the model's own tensors, or of the bias that belongs to it. must 0: NULL where there is none. */
static const float *llm__pooler_slot(llm__loader *L, int slot, int bias, int must, int64_t rows, int64_t cols) {
    char name[256];
    const llm__tensor *t = llm__loader_find(L, slot, 0, bias, name);
    return t || must ? llm__pooler_values(L, t, name, rows, cols) : NULL;
}

/* A dense layer of a slot: its rows are asked of the tensor, if they are not given. */
static void llm__pooler_dense(llm__loader *L, int slot, int32_t in, int32_t out, llm__dense_act act, llm__dense *d) {
    char name[256];
    const llm__tensor *t = llm__loader_find(L, slot, 0, 0, name);
    d->in = in;
    d->out = out ? out : t ? (int32_t)LLM__MIN(t->shape[0], 1 << 17) : 1;
    d->act = act;
    d->w = llm__pooler_slot(L, slot, 0, 1, d->out, in);
    d->b = llm__pooler_slot(L, slot, 1, 0, d->out, 0);
}

/* What stands behind pooling in the files: dense modules, of GGUF tensors of the model's own, and EmbeddingGemma 2's projection of each
 * state, which is the same behind a mean of them. */
static void llm__pooler_modules(llm__loader *L, llm__pooler *p) {
    const llm__modules *m = &L->m->source.modules;
    static const int slots[2] = {LLM__W_DENSE2, LLM__W_DENSE3};
    p->size = L->a->hidden;
    if (llm__has(L, LLM__W_PROJECTION)) llm__pooler_dense(L, LLM__W_PROJECTION, p->size, 0, LLM__DENSE_IDENTITY, &p->dense[p->n_dense++]);
    for (int i = 0; i < 2 && L->a->gguf && llm__has(L, slots[i]); i++) {
        if (p->n_dense) p->size = p->dense[p->n_dense - 1].out;
        llm__pooler_dense(L, slots[i], p->size, 0, LLM__DENSE_IDENTITY, &p->dense[p->n_dense++]);
    }
    for (int i = 0; i < m->n_dense && !L->r; i++) {
        llm__dense *d = &p->dense[p->n_dense];
        if (p->n_dense) p->size = p->dense[p->n_dense - 1].out;
        if (m->dense[i].in != p->size)
            L->r = llm__error(LLM_ERR_FORMAT, "%s: dense module %d: in_features is %d, %d expected", L->path, i, m->dense[i].in, p->size);
        d->in = m->dense[i].in, d->out = m->dense[i].out, d->act = (llm__dense_act)m->dense[i].act;
        d->w = llm__pooler_values(L, llm__tensors_find(&m->dense[i].tensors, "linear.weight"), "linear.weight", d->out, d->in);
        if (m->dense[i].bias)
            d->b = llm__pooler_values(L, llm__tensors_find(&m->dense[i].tensors, "linear.bias"), "linear.bias", d->out, 0);
        p->n_dense++;
    }
    if (p->n_dense) p->size = p->dense[p->n_dense - 1].out;
}

/* The value of a text in config.json, in one of its objects; "": none. */
static const char *llm__pooler_word(const llm_model *m, const char *object, const char *key) {
    const llm_json *d = m->source.config;
    const char *word = llm_json_str(d, llm_json_find(d, object ? llm_json_find(d, 0, object) : 0, key), NULL);
    return word ? word : "";
}

/* A number, or true and false, under the architecture's name in a GGUF file. */
static int64_t llm__pooler_gguf(const llm_model *m, const char *name, int64_t otherwise) {
    char key[128];
    double v = (double)otherwise;
    snprintf(key, sizeof key, "%.60s.%s", m->arch.name, name);
    const llm__gguf_kv *kv = llm__gguf_find(m->source.gguf, key);
    if (kv && !kv->is_array && kv->type == LLM__GGUF_BOOL) return kv->data[0] != 0;
    return kv && llm__gguf_num_at(kv, 0, &v) ? (int64_t)v : otherwise;
}

LLM__PRIVATE llm__str llm__pooler_label(const llm_model *m, int32_t label, char made[24]) {
    char key[128];
    llm__str name = llm__nothing;
    snprintf(key, sizeof key, "%d", (int)label);
    if (m->source.config) name = llm__json_text_at(m->source.config, llm_json_find(m->source.config, 0, "id2label"), key);
    snprintf(key, sizeof key, "%.60s.classifier.output_labels", m->arch.name);
    const llm__gguf_kv *kv = m->source.gguf ? llm__gguf_find(m->source.gguf, key) : NULL;
    if (kv && kv->is_array && kv->type == LLM__GGUF_STR && (uint64_t)label < kv->count) {
        const uint8_t *at = kv->data;
        for (int32_t i = 0; i <= label; i++) name = llm__gguf_string(&at);
    }
    return name.n ? name : llm__s(made, (size_t)snprintf(made, 24, "LABEL_%d", (int)label));
}

/* What becomes of the label's value: a sigmoid, unless the files say that it stays as it is. */
static void llm__pooler_activation(llm__loader *L, llm__pooler *p) {
    const char *name = llm__pooler_word(L->m, "sentence_transformers", "activation_fn");
    if (!*name) name = llm__pooler_word(L->m, NULL, "sbert_ce_default_activation_function");
    const int act = *name ? llm__dense_act_of(name) : (int)LLM__DENSE_SIGMOID;
    if (act != LLM__DENSE_IDENTITY && act != LLM__DENSE_SIGMOID && !L->r)
        L->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: config.json: activation_fn: \"%.80s\": Sigmoid or Identity expected", L->path, name);
    p->sigmoid = act == LLM__DENSE_SIGMOID;
    if (!*name && !strcmp(llm__pooler_word(L->m, NULL, "problem_type"), "regression")) p->sigmoid = 0;
    if (L->a->gguf) p->sigmoid = llm__pooler_gguf(L->m, "classifier.sigmoid", 1) != 0;
    p->several = L->a->gguf ? llm__pooler_gguf(L->m, "classifier.multi_label", 0) != 0
                            : !strcmp(llm__pooler_word(L->m, NULL, "problem_type"), "multi_label_classification");
}

/* The layers of a classifier, if the model has one. */
static void llm__pooler_class(llm__loader *L, llm__pooler *p) {
    const llm__arch *a = L->a;
    const int modern = llm__arch_is(a, "modernbert"), rank = a->gguf && llm__has(L, LLM__W_CLASS);
    const char *pooling = llm__pooler_word(L->m, NULL, "classifier_pooling"), *act = llm__pooler_word(L->m, NULL, "classifier_activation");
    int64_t read = 0;
    const int own = *act ? llm__dense_act_of(act) : (int)LLM__DENSE_GELU;
    if (!rank && !llm__ends_with(a->class_name, "ForSequenceClassification")) return;
    if (llm__arch_is(a, "nomic_bert gemma3_text gemma4_text") && !L->r)
        L->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: a classifier over %s is not supported", L->path, a->name);
    if (modern && (own < 0 || (*pooling && llm__word_index("cls mean", llm__lit(pooling)) < 0)) && !L->r)
        L->r = llm__error(LLM_ERR_UNSUPPORTED,
                          "%s: config.json: classifier_pooling \"%.40s\", classifier_activation \"%.40s\" are not supported", L->path,
                          pooling, act);
    p->class_kind = modern && (a->gguf || !strcmp(pooling, "mean")) ? LLM_POOLING_MEAN : LLM_POOLING_FIRST;
    if (a->gguf && (read = llm__pooler_gguf(L->m, "classifier.pooling_type", 0)) > 0)
        p->class_kind = read == 1 ? LLM_POOLING_MEAN : LLM_POOLING_FIRST;
    if (!a->gguf || llm__has(L, LLM__W_CLASS_DENSE)) {
        llm__dense *d = &p->classes[p->n_class++];
        llm__pooler_dense(L, LLM__W_CLASS_DENSE, a->hidden, a->hidden,
                          modern                          ? (llm__dense_act)own
                          : llm__arch_is(a, "electra")    ? LLM__DENSE_GELU
                          : llm__arch_is(a, "distilbert") ? LLM__DENSE_RELU
                                                          : LLM__DENSE_TANH,
                          d);
        if (modern) d->norm = llm__pooler_slot(L, LLM__W_CLASS_NORM, 0, 1, a->hidden, 0), d->eps = a->eps;
        if (modern) d->norm_b = llm__pooler_slot(L, LLM__W_CLASS_NORM, 1, 0, a->hidden, 0);
    }
    llm__pooler_dense(L, LLM__W_CLASS, a->hidden, 0, LLM__DENSE_IDENTITY, &p->classes[p->n_class]);
    p->n_labels = p->classes[p->n_class++].out;
    llm__pooler_activation(L, p);
}

/* How an embedding is pooled: as modules.json or GGUF says, else as the family's first models are. */
static void llm__pooler_kind(llm__loader *L, llm__pooler *p) {
    static const llm_pooling types[] = {LLM_POOLING_NONE, LLM_POOLING_MEAN, LLM_POOLING_FIRST, LLM_POOLING_LAST};
    const llm__source *s = &L->m->source;
    const int64_t type = s->gguf ? llm__pooler_gguf(L->m, "pooling_type", 0) : 0;
    p->normalize = s->gguf ? llm__pooler_gguf(L->m, "embedding_normalize", 1) != 0 : !s->modules.there || s->modules.normalize;
    p->kind = s->modules.pooling;
    if (type > 0 && type < LLM__COUNT(types)) p->kind = types[type];
    if (p->kind) return;
    p->kind = !L->a->encoder ? LLM_POOLING_LAST : llm__arch_is(L->a, "gemma3_text gemma4_text") ? LLM_POOLING_MEAN : LLM_POOLING_FIRST;
}

/* Embeddings of kinds of tokens. To each ERNIE adds that of the first kind of task. */
static const float *llm__pooler_types(llm__loader *L) {
    const int32_t n = L->a->n_types, D = L->a->hidden;
    const float *types = llm__pooler_slot(L, LLM__W_TYPES, 0, 1, n, D);
    char name[256];
    const llm_json *d = L->m->source.config;
    if (!types || !llm__arch_is(L->a, "ernie") || !llm__json_flag(d, 0, "use_task_id", 0)) return types;
    const llm__tensor *t = llm__loader_find(L, LLM__W_TASKS, 0, 0, name);
    const float *tasks = llm__pooler_values(L, t, name, t ? t->shape[0] : 1, D);
    float *sum = tasks ? (float *)llm__arena_get((llm__arena *)(uintptr_t)&L->m->source.arena, sizeof *sum * (size_t)n * (size_t)D) : NULL;
    if (tasks && !sum && !L->r) L->r = llm__nomem();
    for (int64_t i = 0; sum && i < (int64_t)n * D; i++) sum[i] = types[i] + tasks[i % D];
    return sum;
}

LLM__PRIVATE llm_result llm__pooler_open(llm_model *m) {
    llm__pooler *p = &m->pooler;
    llm__loader L;
    llm__loader_begin(&L, m, 1, 1);
    L.layer = -1;
    llm__pooler_kind(&L, p);
    p->size = m->arch.hidden;
    if (!m->dummy) llm__pooler_modules(&L, p);
    if (!m->dummy && m->arch.encoder) llm__pooler_class(&L, p);
    if (m->arch.n_types && m->dummy) {
        p->types = (const float *)llm__arena_get(&m->source.arena, sizeof(float) * (size_t)m->arch.n_types * (size_t)m->arch.hidden);
        if (!p->types && !L.r) L.r = llm__nomem();
    } else if (m->arch.n_types) p->types = llm__pooler_types(&L);
    p->wide = m->arch.hidden;
    for (int i = 0; i < p->n_dense; i++) p->wide = LLM__MAX(p->wide, p->dense[i].out);
    for (int i = 0; i < p->n_class; i++) p->wide = LLM__MAX(p->wide, p->classes[i].out);
    if (m->source.modules.max_len) m->arch.max_len = LLM__MIN(m->arch.max_len, m->source.modules.max_len);
    llm__loader_end(&L);
    return L.r;
}
