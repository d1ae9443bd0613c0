#include "model/convert_vocab.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/tokenizer.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/map.h"
#include "base/files.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "cpu/dtypes.h"
#include "model/gguf.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/gguf_write.h"
#include "model/convert_encoder.h"

/* The words of a model by their ids. */
typedef struct llm__wording {
    const llm_model *m;
    llm_json *doc;
    int32_t n;      /* rows of the embedding */
    llm__str *text; /* (n) .p NULL: none */
    uint8_t *type;  /* (n) LLM__VOCAB_* */
    float *score;   /* (n) */
    llm__map ids;
    int spm;
} llm__wording;

static void llm__wording_free(llm__wording *w) {
    llm_json_free(w->doc);
    LLM_FREE(w->text);
    LLM_FREE(w->type);
    LLM_FREE(w->score);
    llm__map_free(&w->ids);
}

static llm_result llm__wording_refuse(const llm__wording *w, const char *what) {
    return llm__error(LLM_ERR_UNSUPPORTED, "%s: tokenizer.json: %s, which has no form in GGUF that is known here", w->m->path, what);
}

/* A word and its id; ids behind the embedding's rows have no meaning to the model. */
static void llm__wording_set(llm__wording *w, llm__str text, int64_t id, int type) {
    if (!text.p || id < 0 || id >= w->n) return;
    w->text[id] = text;
    w->type[id] = (uint8_t)type;
}

/* <0x0A> and the like. */
static int llm__wording_is_byte(llm__str s) { return s.n == 6 && !memcmp(s.p, "<0x", 3) && s.p[5] == '>'; }

/* The vocabulary, then the added tokens, whose types win. */
static llm_result llm__wording_read(llm__wording *w) {
    const llm_json *d = w->doc;
    const int model = llm_json_find(d, 0, "model"), vocab = llm_json_find(d, model, "vocab");
    const llm__str kind = llm__json_text_at(d, model, "type"), unk = llm__json_text_at(d, model, "unk_token");
    if ((kind.p && !llm__str_eq(kind, "BPE")) || llm_json_type_of(d, vocab) != LLM_JSON_OBJECT)
        return llm__wording_refuse(w, "its model is not BPE");
    w->spm = llm__json_flag(d, model, "byte_fallback", 0);
    w->n = w->m->arch.vocab;
    w->text = LLM__NEW(llm__str, w->n);
    w->type = LLM__NEW(uint8_t, w->n);
    w->score = LLM__NEW(float, w->n);
    if (!w->text || !w->type || !w->score) return llm__nomem();
    for (int v = llm_json_first(d, vocab); v >= 0; v = llm_json_next(d, v)) {
        const llm__str text = llm__json_key(d, v);
        const int type = w->spm && llm__wording_is_byte(text) ? LLM__VOCAB_BYTE
                         : llm__str_same(text, unk) && unk.n  ? LLM__VOCAB_UNKNOWN
                                                              : LLM__VOCAB_NORMAL;
        llm__wording_set(w, text, llm__json_whole(d, v, -1), type);
    }
    for (int v = llm_json_first(d, llm_json_find(d, 0, "added_tokens")); v >= 0; v = llm_json_next(d, v)) {
        const llm__str text = llm__json_text_at(d, v, "content");
        const int special = llm__json_flag(d, v, "special", 0);
        llm__wording_set(w, text, llm__json_whole(d, llm_json_find(d, v, "id"), -1),
                         llm__str_same(text, unk) && unk.n && w->spm ? LLM__VOCAB_UNKNOWN
                         : special                                   ? LLM__VOCAB_CONTROL
                                                                     : LLM__VOCAB_USER);
    }
    return LLM_OK;
}

/* The two parts of a merge: "a b", or a list of two. 0: it is neither. */
static int llm__wording_merge(const llm_json *d, int node, llm__str part[2]) {
    const llm__str s = llm__json_text(d, node);
    if (!s.p) {
        const int first = llm_json_first(d, node);
        part[0] = llm__json_text(d, first), part[1] = llm__json_text(d, llm_json_next(d, first));
        return llm_json_size(d, node) == 2 && part[0].p && part[1].p;
    }
    const char *space = s.n > 1 ? (const char *)memchr(s.p + 1, ' ', s.n - 1) : NULL;
    if (!space) return 0;
    part[0] = llm__s(s.p, (size_t)(space - s.p)), part[1] = llm__str_from(s, part[0].n + 1);
    return 1;
}

/* Scores of SentencePiece's words: minus the place of the first merge that makes them. */
static llm_result llm__wording_scores(llm__wording *w) {
    const llm_json *d = w->doc;
    LLM__SCOPED(llm_text_free) llm_text both = LLM__ZERO;
    int64_t rank = 0;
    for (int32_t i = 0; i < w->n; i++) {
        w->score[i] = w->type[i] == LLM__VOCAB_NORMAL ? -1e9f : 0;
        if (w->text[i].p && llm__map_put(&w->ids, w->text[i], i) < 0) return llm__nomem();
    }
    for (int v = llm_json_first(d, llm_json_find(d, llm_json_find(d, 0, "model"), "merges")); v >= 0; v = llm_json_next(d, v), rank++) {
        llm__str part[2];
        if (!llm__wording_merge(d, v, part)) return llm__wording_refuse(w, "a merge is no pair");
        both.len = 0;
        llm__add_str(&both, part[0]);
        llm__add_str(&both, part[1]);
        const int32_t id = both.failed ? -1 : llm__map_get(&w->ids, llm__text_str(&both));
        if (id >= 0 && w->score[id] <= -1e9f) w->score[id] = (float)-rank;
    }
    return both.failed ? llm__nomem() : LLM_OK;
}

/* All regexes, and names of steps, of how text is cut, one a line. */
static void llm__wording_cuts(const llm_json *d, int node, int depth, llm_text *out) {
    const llm__str type = llm__json_text_at(d, node, "type");
    const int steps = llm_json_find(d, node, "pretokenizers"), pattern = llm_json_find(d, node, "pattern");
    if (depth > 4) return;
    for (int v = llm_json_first(d, steps); v >= 0; v = llm_json_next(d, v)) llm__wording_cuts(d, v, depth + 1, out);
    if (steps >= 0) return;
    llm__add_str(out, llm__str_eq(type, "ByteLevel") && llm__json_flag(d, node, "use_regex", 1) ? llm__lit("GPT2") : type);
    llm_text_str(out, " ");
    llm__add_str(out, llm__json_text_at(d, pattern, "Regex"));
    llm_text_str(out, "\n");
}

/* The name of a way to cut; NULL: none is known. */
static const char *llm__wording_pre(const llm__wording *w) {
    static const char numbers[] = "\\p{N}{1,3}", words[] = "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+", cased[] = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+";
    static const char marks[] = "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+"; /* Qwen3.5's */
    LLM__SCOPED(llm_text_free) llm_text cuts = LLM__ZERO;
    const int whole = llm__json_flag(w->doc, llm_json_find(w->doc, 0, "model"), "ignore_merges", 0);
    llm__wording_cuts(w->doc, llm_json_find(w->doc, 0, "pre_tokenizer"), 0, &cuts);
    if (cuts.failed || !cuts.len) return NULL;
    const char *s = cuts.data;
    if (!strcmp(s, "GPT2 \n")) return "gpt-2";
    if (!strcmp(s, "Digits \nGPT2 \n")) return "smollm";
    if (strstr(s, cased)) return strstr(s, numbers) ? "gpt-4o" : whole ? "tekken" : NULL;
    if (strstr(s, "Split \\p{N}{1,3}\n") && strstr(s, "\xe4\xb8\x80-\xe9\xbe\xa5")) return "deepseek-v3";
    if (strstr(s, "\\s?\\p{L}+")) return "deepseek-coder";
    if (strstr(s, "\xce\x86\xce\x88-\xce\x8a")) return "deepseek-llm";
    if (strstr(s, marks) && !strstr(s, numbers)) return "qwen35";
    if (!strstr(s, words)) return NULL;
    if (llm__arch_is(&w->m->arch, "glm4 glm4_moe chatglm")) return "glm4";
    return !strstr(s, numbers) ? "qwen2" : whole ? "llama-bpe" : "smaug-bpe";
}

/* 1 if a blank is put before a text. */
static int llm__wording_prefix(const llm_json *d) {
    const int pre = llm_json_find(d, 0, "pre_tokenizer"), norm = llm_json_find(d, 0, "normalizer");
    int prefix = llm__str_eq(llm__json_text_at(d, norm, "type"), "Prepend");
    for (int v = llm_json_first(d, llm_json_find(d, norm, "normalizers")); v >= 0; v = llm_json_next(d, v))
        prefix |= llm__str_eq(llm__json_text_at(d, v, "type"), "Prepend");
    if (llm__str_eq(llm__json_text_at(d, pre, "type"), "Metaspace")) {
        const llm__str scheme = llm__json_text_at(d, pre, "prepend_scheme");
        prefix |= scheme.p ? !llm__str_eq(scheme, "never") : llm__json_flag(d, pre, "add_prefix_space", 1);
    }
    return prefix;
}

/* The lists. */
static void llm__wording_lists(const llm__wording *w, llm_text *keys, uint64_t *n_keys) {
    const llm_json *d = w->doc;
    const int merges = llm_json_find(d, llm_json_find(d, 0, "model"), "merges");
    llm__gguf_put_array(keys, "tokenizer.ggml.tokens", LLM__GGUF_STR, (uint64_t)w->n);
    for (int32_t i = 0; i < w->n; i++) {
        char name[24];
        llm__gguf_put_text(keys, w->text[i].p ? w->text[i] : llm__s(name, (size_t)snprintf(name, sizeof name, "[PAD%d]", (int)i)));
    }
    llm__gguf_put_array(keys, "tokenizer.ggml.token_type", LLM__GGUF_I32, (uint64_t)w->n);
    for (int32_t i = 0; i < w->n; i++) llm__gguf_put_number(keys, (uint64_t)(w->text[i].p ? w->type[i] : (uint8_t)LLM__VOCAB_UNUSED), 4);
    *n_keys += 3;
    if (w->spm) {
        llm__gguf_put_array(keys, "tokenizer.ggml.scores", LLM__GGUF_F32, (uint64_t)w->n);
        for (int32_t i = 0; i < w->n; i++) llm__gguf_put_number(keys, llm__f32_bits(w->score[i]), 4);
        return;
    }
    llm__gguf_put_array(keys, "tokenizer.ggml.merges", LLM__GGUF_STR, (uint64_t)llm_json_size(d, merges));
    for (int v = llm_json_first(d, merges); v >= 0; v = llm_json_next(d, v)) {
        llm__str part[2] = {{"", 0}, {"", 0}};
        llm__wording_merge(d, v, part);
        llm__gguf_put_number(keys, part[0].n + 1 + part[1].n, 8);
        llm__add_str(keys, part[0]);
        llm_text_str(keys, " ");
        llm__add_str(keys, part[1]);
    }
}

/* Ids with a task, and whether texts are framed by them. */
static llm_result llm__wording_special(const llm__wording *w, llm_text *keys, uint64_t *n_keys) {
    const llm_model *m = w->m;
    LLM__SCOPED(llm_tokens_free) llm_tokens ids = LLM__ZERO, bare = LLM__ZERO;
    const int32_t id[4] = {m->arch.encoder ? -1 : m->source.bos_id, m->arch.encoder ? -1 : m->source.eos_id, m->source.pad_id,
                           m->source.unk_id};
    static const char *const names[4] = {"bos", "eos", "padding", "unknown"};
    char key[64];
    for (int i = 0; i < 4; i++) {
        if (id[i] < 0 || id[i] >= w->n) continue;
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", names[i]);
        llm__gguf_put_int(keys, key, id[i]);
        ++*n_keys;
    }
    if (m->arch.encoder) {
        llm__convert_frame(m, keys, n_keys);
        return LLM_OK;
    }
    for (size_t i = 0; i < m->source.stop_ids.len; i++) /* a turn's end beside the text's */
        if (m->source.stop_ids.data[i] != m->source.eos_id && m->source.stop_ids.data[i] < w->n) {
            llm__gguf_put_int(keys, "tokenizer.ggml.eot_token_id", m->source.stop_ids.data[i]);
            ++*n_keys;
            break;
        }
    llm_result r = llm_tokenize(m, "a", 1, LLM_TOK_ADD_SPECIAL, &ids);
    if (!r) r = llm_tokenize(m, "a", 1, 0, &bare);
    if (r) return r;
    llm__gguf_put_bool(keys, "tokenizer.ggml.add_bos_token", ids.len > bare.len && ids.data[0] == m->source.bos_id);
    llm__gguf_put_bool(keys, "tokenizer.ggml.add_eos_token", ids.len > bare.len && ids.data[ids.len - 1] == m->source.eos_id);
    *n_keys += 2;
    if (m->source.chat_template_text) llm__gguf_put_str(keys, "tokenizer.chat_template", llm__lit(m->source.chat_template_text)), ++*n_keys;
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__convert_vocab(const llm_model *m, llm_text *keys, uint64_t *n_keys) {
    LLM__SCOPED(llm__wording_free) llm__wording w = LLM__ZERO;
    LLM__SCOPED(llm__drop) char *path = llm__path_join(m->path, "tokenizer.json");
    w.m = m;
    if (!path) return llm__nomem();
    if (llm__path_kind_of(path) != LLM__PATH_FILE)
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: no tokenizer.json: its words are not converted in this version", m->path);
    llm_result r = llm__json_file(path, 200000000, &w.doc);
    if (!r && m->source.tokenizer->model != LLM__TOK_BPE) return llm__convert_pieces(m, w.doc, keys, n_keys);
    if (!r) r = llm__wording_read(&w);
    if (!r && w.spm) r = llm__wording_scores(&w);
    if (r) return r;
    const char *pre = w.spm ? "default" : llm__wording_pre(&w);
    if (!pre) return llm__wording_refuse(&w, "how it cuts text is a regex");
    llm__gguf_put_str(keys, "tokenizer.ggml.model", llm__lit(w.spm ? "llama" : "gpt2"));
    llm__gguf_put_str(keys, "tokenizer.ggml.pre", llm__lit(pre));
    if (w.spm) llm__gguf_put_bool(keys, "tokenizer.ggml.add_space_prefix", llm__wording_prefix(w.doc)), ++*n_keys;
    *n_keys += 2;
    llm__wording_lists(&w, keys, n_keys);
    r = llm__wording_special(&w, keys, n_keys);
    return r ? r : keys->failed ? llm__nomem() : LLM_OK;
}
