#include "model/convert_encoder.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/json.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/modules.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/pooler.h"
#include "model/loader.h"
#include "model/gguf_write.h"
#include "model/convert.h"
#include "model/convert_add.h"

LLM__PRIVATE llm_result llm__convert_encoder_refuse(const llm_model *m) {
    const llm__modules *s = &m->source.modules;
    if (!m->arch.encoder) return LLM_OK;
    if (llm__arch_is(&m->arch, "gemma4_text"))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: %s has no form in GGUF that is known here", m->path, m->arch.name);
    if (s->n_dense > 2 || (s->n_dense && !llm__arch_is(&m->arch, "gemma3_text")))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: modules.json: %d dense modules of %s have no form in GGUF, two of gemma3_text have",
                          m->path, s->n_dense, m->arch.name);
    if (m->pooler.n_labels && llm__arch_is(&m->arch, "distilbert"))
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: a classifier of %s, whose dense layer has relu, which GGUF has no form for", m->path,
                          m->arch.name);
    for (int i = 0; i < s->n_dense; i++)
        if (s->dense[i].bias || s->dense[i].act != LLM__DENSE_IDENTITY)
            return llm__error(LLM_ERR_UNSUPPORTED,
                              "%s: modules.json: dense module %d has a bias or an activation, which GGUF has no form for", m->path, i);
    return LLM_OK;
}

LLM__PRIVATE const char *llm__convert_encoder_arch(const llm_model *m) {
    return m->arch.encoder && llm__arch_is(&m->arch, "gemma3_text") ? "gemma-embedding" : NULL;
}

/* One key under the architecture's name. */
typedef struct llm__pooling_keys {
    const char *arch;
    llm_text *keys;
    uint64_t *n;
} llm__pooling_keys;

static const char *llm__pooling_key(const llm__pooling_keys *k, const char *name, char key[96]) {
    snprintf(key, 96, "%s.%s", k->arch, name);
    ++*k->n;
    return key;
}

static void llm__pooling_int(const llm__pooling_keys *k, const char *name, int64_t v) {
    char key[96];
    llm__gguf_put_int(k->keys, llm__pooling_key(k, name, key), v);
}

static void llm__pooling_bool(const llm__pooling_keys *k, const char *name, int v) {
    char key[96];
    llm__gguf_put_bool(k->keys, llm__pooling_key(k, name, key), v);
}

/* The whole width of windows, and which layers have none: every so many, of ModernBERT from the first on; else a list. */
static void llm__convert_sides(const llm__pooling_keys *k, const llm__arch *a) {
    const int modern = llm__arch_is(a, "modernbert");
    int32_t window = 0, every = 0, regular = 1;
    char key[96];
    for (int i = 0; i < a->n_layers; i++) {
        window = LLM__MAX(window, a->layer[i].window);
        if (!every && !a->layer[i].window && (i || !modern)) every = modern ? i : i + 1;
    }
    if (!window) return;
    llm__pooling_int(k, "attention.sliding_window", 2 * ((int64_t)window - 1));
    if (!every) every = a->n_layers + 1;
    for (int i = 0; i < a->n_layers; i++) regular &= !a->layer[i].window == ((modern ? i : i + 1) % every == 0);
    if (regular) {
        llm__pooling_int(k, "attention.sliding_window_pattern", every);
    } else {
        llm__gguf_put_array(k->keys, llm__pooling_key(k, "attention.sliding_window_pattern", key), LLM__GGUF_BOOL, (uint64_t)a->n_layers);
        for (int i = 0; i < a->n_layers; i++) llm__gguf_put_number(k->keys, a->layer[i].window != 0, 1);
    }
    if (a->n_rope < 2) return;
    llm__gguf_put_float(k->keys, llm__pooling_key(k, "rope.freq_base_swa", key), a->rope[1].base);
}

LLM__PRIVATE void llm__convert_encoder_keys(const llm_model *m, const char *arch, llm_text *keys, uint64_t *n_keys) {
    static const int types[] = {0, 3, 1, 2}; /* of LLM_POOLING_* */
    const llm__pooling_keys k = {arch, keys, n_keys};
    const llm__pooler *p = &m->pooler;
    char key[96];
    if (!m->arch.encoder) return;
    llm__pooling_bool(&k, "attention.causal", 0);
    llm__pooling_int(&k, "pooling_type", p->n_labels ? 4 : types[p->kind]);
    if (!p->normalize) llm__pooling_bool(&k, "embedding_normalize", 0);
    for (int i = 0; i < m->source.modules.n_dense; i++) {
        llm__pooling_int(&k, i ? "dense_3_feat_in" : "dense_2_feat_in", p->dense[i].in);
        llm__pooling_int(&k, i ? "dense_3_feat_out" : "dense_2_feat_out", p->dense[i].out);
    }
    if (p->n_labels) {
        llm__pooling_int(&k, "classifier.pooling_type", types[p->class_kind]);
        llm__pooling_bool(&k, "classifier.sigmoid", p->sigmoid);
        llm__gguf_put_array(keys, llm__pooling_key(&k, "classifier.output_labels", key), LLM__GGUF_STR, (uint64_t)p->n_labels);
        for (int32_t i = 0; i < p->n_labels; i++) {
            char made[24];
            llm__gguf_put_text(keys, llm__pooler_label(m, i, made));
        }
        if (p->several) llm__pooling_bool(&k, "classifier.multi_label", 1);
    }
    if (llm__arch_is(&m->arch, "modernbert"))
        llm__gguf_put_str(keys, llm__pooling_key(&k, "hidden_activation", key),
                          llm__lit(m->arch.act == LLM_ACT_SILU        ? "silu"
                                   : m->arch.act == LLM_ACT_GELU_TANH ? "gelu_pytorch_tanh"
                                                                      : "gelu"));
    llm__convert_sides(&k, &m->arch);
}

LLM__PRIVATE void llm__convert_frame(const llm_model *m, llm_text *keys, uint64_t *n_keys) {
    static const char *const names[] = {"bos", "cls", "eos", "seperator"};
    const llm__tokenizer *t = m->source.tokenizer;
    char key[64];
    if (t->before.len != 1 || t->after.len != 1) return;
    for (int i = 0; i < LLM__COUNT(names); i++) {
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", names[i]);
        llm__gguf_put_int(keys, key, i < 2 ? t->before.data[0] : t->after.data[0]);
    }
    llm__gguf_put_bool(keys, "tokenizer.ggml.add_bos_token", 1);
    llm__gguf_put_bool(keys, "tokenizer.ggml.add_eos_token", 1);
    /* RoBERTa has two ends between two texts */
    llm__gguf_put_bool(keys, "tokenizer.ggml.add_sep_token", t->n_pair > 3 && t->pair[2].what >= 0 && t->pair[3].what >= 0);
    llm__gguf_put_int(keys, "tokenizer.ggml.token_type_count", LLM__MAX(m->arch.n_types, 1));
    *n_keys += LLM__COUNT(names) + 4;
}

/* The normalizer's charsmap, if it has one, and what becomes of spaces. */
static llm_result llm__convert_charsmap(const llm_model *m, const llm_json *d, llm_text *keys, uint64_t *n_keys) {
    LLM__SCOPED(llm_text_free) llm_text bytes = LLM__ZERO;
    const int norm = llm_json_find(d, 0, "normalizer");
    llm__str map = llm__json_text_at(d, norm, "precompiled_charsmap");
    for (int v = llm_json_first(d, llm_json_find(d, norm, "normalizers")); v >= 0 && !map.p; v = llm_json_next(d, v))
        map = llm__json_text_at(d, v, "precompiled_charsmap");
    llm__gguf_put_bool(keys, "tokenizer.ggml.add_space_prefix", 1);
    llm__gguf_put_bool(keys, "tokenizer.ggml.remove_extra_whitespaces", 1);
    *n_keys += 2;
    if (!map.p) return LLM_OK;
    if (!llm__base64(map, &bytes)) return llm__error(LLM_ERR_FORMAT, "%s: tokenizer.json: precompiled_charsmap: base64 expected", m->path);
    llm__gguf_put_array(keys, "tokenizer.ggml.precompiled_charsmap", LLM__GGUF_U8, bytes.len);
    llm_text_add(keys, bytes.data, bytes.len);
    ++*n_keys;
    return bytes.failed ? llm__nomem() : LLM_OK;
}

/* What a token is in GGUF. */
static int llm__piece_type(const llm__tokenizer *t, int32_t id) {
    const llm__token *token = &t->token[id];
    if (!(token->type & LLM__TOKEN_KNOWN)) return LLM__VOCAB_UNUSED;
    if (id == t->unk_id && t->model == LLM__TOK_UNIGRAM) return LLM__VOCAB_UNKNOWN;
    return token->type & LLM__TOKEN_SPECIAL ? LLM__VOCAB_CONTROL : token->type & LLM__TOKEN_ADDED ? LLM__VOCAB_USER : LLM__VOCAB_NORMAL;
}

LLM__PRIVATE llm_result llm__convert_pieces(const llm_model *m, const llm_json *d, llm_text *keys, uint64_t *n_keys) {
    const llm__tokenizer *t = m->source.tokenizer;
    const int unigram = t->model == LLM__TOK_UNIGRAM;
    const int32_t n = m->arch.vocab;
    if (t->model != LLM__TOK_WORDPIECE && !unigram)
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: tokenizer.json: its model %s has no form in GGUF that is known here", m->path, t->kind);
    llm__gguf_put_str(keys, "tokenizer.ggml.model", llm__lit(unigram ? "t5" : "bert"));
    llm__gguf_put_str(keys, "tokenizer.ggml.pre", llm__lit("default"));
    llm__gguf_put_array(keys, "tokenizer.ggml.tokens", LLM__GGUF_STR, (uint64_t)n);
    for (int32_t i = 0; i < n; i++) {
        LLM__SCOPED(llm_text_free) llm_text word = LLM__ZERO;
        const int type = i < t->n_vocab ? llm__piece_type(t, i) : LLM__VOCAB_UNUSED;
        const llm__str text = type == LLM__VOCAB_UNUSED ? llm__nothing : t->token[i].text;
        const int goes_on = !unigram && t->prefix.n && llm__starts(text, t->prefix);
        if (type == LLM__VOCAB_UNUSED) llm_text_format(&word, "[PAD%d]", (int)i);
        else if (!unigram && type == LLM__VOCAB_NORMAL && !goes_on) llm__add_str(&word, llm__spm_mark);
        llm__add_str(&word, goes_on && type == LLM__VOCAB_NORMAL ? llm__str_from(text, t->prefix.n) : text);
        llm__gguf_put_text(keys, llm__text_str(&word));
        keys->failed |= word.failed;
    }
    llm__gguf_put_array(keys, "tokenizer.ggml.token_type", LLM__GGUF_I32, (uint64_t)n);
    for (int32_t i = 0; i < n; i++) llm__gguf_put_number(keys, (uint64_t)(i < t->n_vocab ? llm__piece_type(t, i) : LLM__VOCAB_UNUSED), 4);
    if (unigram) {
        llm__gguf_put_array(keys, "tokenizer.ggml.scores", LLM__GGUF_F32, (uint64_t)n);
        for (int32_t i = 0; i < n; i++) llm__gguf_put_number(keys, llm__f32_bits(i < t->n_vocab ? t->token[i].score : 0), 4);
    }
    llm__gguf_put_int(keys, "tokenizer.ggml.unknown_token_id", t->unk_id);
    *n_keys += 5 + (uint64_t)unigram;
    if (m->source.pad_id >= 0) llm__gguf_put_int(keys, "tokenizer.ggml.padding_token_id", m->source.pad_id), ++*n_keys;
    llm__convert_frame(m, keys, n_keys);
    return unigram ? llm__convert_charsmap(m, d, keys, n_keys) : keys->failed ? llm__nomem() : LLM_OK;
}

LLM__PRIVATE void llm__convert_encoder_tensors(llm__converting *g) {
    const llm__arch *a = g->L.a;
    const llm__modules *m = &g->c->model->source.modules;
    const llm__tensor *positions = llm__convert_find(g, LLM__W_POSITIONS, 0, 0);
    llm__convert_slot(g, LLM__W_EMBED_NORM, "token_embd_norm", 0, 1);
    if (a->n_types) llm__convert_slot(g, LLM__W_TYPES, "token_types", 0, 1);
    if (g->c->model->pooler.n_labels) {
        llm__convert_slot(g, LLM__W_CLASS_DENSE, "cls", 0, 0);
        llm__convert_slot(g, LLM__W_CLASS_NORM, "cls.norm", 0, 1);
        llm__convert_slot(g, LLM__W_CLASS, "cls.output", 0, 0);
    }
    for (int i = -1; i < m->n_dense; i++) { /* the table of positions, then dense modules */
        const llm__tensor *t =
            i < 0 ? a->flags & LLM__LEARNED ? positions : NULL : llm__tensors_find(&m->dense[i].tensors, "linear.weight");
        const llm__tensor **list = t ? (const llm__tensor **)(void *)(uintptr_t)llm__convert_list(g, 1) : NULL;
        const int64_t shape[2] = {i < 0 ? a->max_positions : m->dense[LLM__MAX(i, 0)].out, t ? t->shape[1] : 0};
        llm__convert_row row = LLM__ZERO;
        if (!list) continue;
        list[0] = t;
        row.stack = list, row.n = 1, row.first = i < 0 ? a->position_offset : 0;
        llm__convert_add(g, i < 0 ? "position_embd.weight" : i ? "dense_3.weight" : "dense_2.weight", 2, shape, i < 0, &row);
    }
}
