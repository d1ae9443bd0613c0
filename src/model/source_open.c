#include "model/source_open.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/json.h"
#include "api/template.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "base/json.h"
#include "base/place.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/decode.h"
#include "tokenizer/build.h"
#include "tokenizer/tokenizer_files.h"
#include "chat/builtin.h"
#include "model/tensors.h"
#include "model/gguf.h"
#include "model/safetensors.h"
#include "model/torch.h"
#include "model/modules.h"
#include "model/source.h"
#include "model/meta.h"
#include "model/gguf_vocab.h"

/* Real lists have one to ten ids. Each is compared with those before it, so a list of millions must not be read. */
enum { LLM__MAX_STOPS = 16384 };

/* A node that should be a token id; -1 if it is none. */
static int32_t llm__json_id(const llm_json *doc, int node) {
    int64_t v;
    return llm_json_int(doc, node, &v) && v >= 0 && v < INT32_MAX ? (int32_t)v : -1;
}

/* The first id under a key of a JSON file that holds an id or a list of them. */
static int32_t llm__json_first_id(const llm_json *doc, const char *key) {
    int node = llm_json_find(doc, 0, key);
    return llm__json_id(doc, llm_json_type_of(doc, node) == LLM_JSON_ARRAY ? llm_json_first(doc, node) : node);
}

/* What a special token is: tokenizer_config.json's text first, then the ids of the other two files, then what the tokenizer itself says.
 * Its text, for templates: tokenizer_config.json decides alone where it is (Qwen: a BOS id, but no BOS in templates). `name`: "bos". */
static llm_result llm__special_find(llm__source *s, const char *name, int32_t own, int32_t *id, const char **text_out) {
    char key[32], id_key[32];
    LLM__SCOPED(llm_text_free) llm_text piece = LLM__ZERO;
    llm_result r = LLM_OK;
    snprintf(key, sizeof key, "%s_token", name);
    snprintf(id_key, sizeof id_key, "%s_token_id", name);
    llm__str text = llm__config_token(s->tokenizer_config, key);
    *id = text.p ? llm__tokenizer_id(s->tokenizer, text) : -1;
    if (*id < 0) *id = llm__json_first_id(s->generation_config, id_key);
    if (*id < 0) *id = llm__json_first_id(s->config, id_key);
    if (*id < 0) *id = own;
    /* no tokenizer_config.json: a GGUF file, or an old folder; then the text is what the id stands for */
    if (!s->tokenizer_config && *id >= 0 && *id < s->tokenizer->n_vocab) {
        r = llm__tokenizer_piece(s->tokenizer, *id, &piece);
        text = llm__s(piece.data, piece.len);
    }
    *text_out = !r && text.p ? llm__arena_str(&s->arena, text) : NULL;
    return !r && text.p && !*text_out ? llm__nomem() : r;
}

/* Adds an id once. */
static void llm__source_stop(llm__source *s, int64_t id) {
    if (id < 0 || id >= INT32_MAX) return;
    for (size_t i = 0; i < s->stop_ids.len; i++)
        if (s->stop_ids.data[i] == id) return;
    llm_tokens_add(&s->stop_ids, (int32_t)id);
}

/* Adds eos_token_id of a JSON file: a number or a list. What is no id there is passed over, as in transformers. */
static llm_result llm__source_stops_of(llm__source *s, const llm_json *doc, const char *file) {
    int node = llm_json_find(doc, 0, "eos_token_id"), n = llm_json_size(doc, node);
    int is_list = llm_json_type_of(doc, node) == LLM_JSON_ARRAY;
    if (n > LLM__MAX_STOPS)
        return llm__error(LLM_ERR_LIMIT, "%s: %s: eos_token_id: %d ids, at most %d expected", s->path, file, n, LLM__MAX_STOPS);
    llm__source_stop(s, llm__json_id(doc, node));
    for (int e = is_list ? llm_json_first(doc, node) : -1; e >= 0; e = llm_json_next(doc, e)) llm__source_stop(s, llm__json_id(doc, e));
    return LLM_OK;
}

/* Ends of turn that files often forget to list, if the vocabulary has them as special tokens. */
static void llm__source_usual_stops(llm__source *s) {
    const char *names = LLM__ENDS "<|end_of_turn|> <|EOT|> <|END_OF_TURN_TOKEN|>";
    llm__str name;
    /* gpt-oss and Solar Open end their thoughts with <|end|> and go on to answer; gpt-oss waits behind a call */
    const llm__tokenizer *t = s->tokenizer;
    const int harmony = llm__tokenizer_id(t, llm__lit("<|return|>")) >= 0 && llm__tokenizer_id(t, llm__lit("<|channel|>")) >= 0;
    const int goes_on = harmony || (llm__tokenizer_id(t, llm__lit("<|flush|>")) >= 0 && llm__tokenizer_id(t, llm__lit("<|think|>")) >= 0);
    while (llm__list_next(&names, " ", &name)) {
        int32_t id = llm__tokenizer_id(t, name);
        if (id >= 0 && llm__tokenizer_is_special(t, id) && !(goes_on && llm__str_eq(name, "<|end|>"))) llm__source_stop(s, id);
    }
    if (harmony) llm__source_stop(s, llm__tokenizer_id(t, llm__lit("<|call|>")));
}

/* BOS, EOS, padding and unknown, and then every id that ends an answer, most certain first: EOS, what the JSON files list, end of turn and
 * end of message of a GGUF file, and the usual names. */
static llm_result llm__source_specials(llm__source *s) {
    const llm__tokenizer *t = s->tokenizer;
    const char *unused;
    llm_result r = llm__special_find(s, "bos", t->bos_id, &s->bos_id, &s->bos_token);
    if (!r) r = llm__special_find(s, "eos", t->eos_id, &s->eos_id, &s->eos_token);
    if (!r) r = llm__special_find(s, "pad", t->pad_id, &s->pad_id, &unused);
    if (!r) r = llm__special_find(s, "unk", t->unk_id, &s->unk_id, &unused);
    llm__source_stop(s, s->eos_id);
    if (!r) r = llm__source_stops_of(s, s->generation_config, "generation_config.json");
    if (!r) r = llm__source_stops_of(s, s->config, "config.json");
    if (s->vocab_gguf) llm__source_stop(s, llm__gguf_int(s->vocab_gguf, "tokenizer.ggml.eot_token_id", -1));
    if (s->vocab_gguf) llm__source_stop(s, llm__gguf_int(s->vocab_gguf, "tokenizer.ggml.eom_token_id", -1));
    llm__source_usual_stops(s);
    return !r && s->stop_ids.failed ? llm__nomem() : r;
}

/* The bound is known only when the architecture is. Padded vocabularies make it larger than the tokenizer's. */
LLM__PRIVATE void llm__source_bound(llm__source *s, int32_t vocab) {
    static const char none[] = "%s: %s: %d is no token of this model, ids run from 0 to %d: it is passed over";
    int32_t *const ids[] = {&s->bos_id, &s->pad_id, &s->unk_id};
    static const char *const names[] = {"bos_token_id", "pad_token_id", "unk_token_id"};
    size_t kept = 0, n = s->stop_ids.len;
    for (int i = 0; i < LLM__COUNT(ids); i++) {
        if (*ids[i] < vocab) continue;
        llm__log(&s->log, LLM_LOG_WARN, none, s->path, names[i], (int)*ids[i], (int)vocab - 1);
        *ids[i] = -1;
    }
    for (size_t i = 0; i < n; i++) {
        const int32_t id = s->stop_ids.data[i];
        if (id < vocab) s->stop_ids.data[kept++] = id;
        else if (i == kept) llm__log(&s->log, LLM_LOG_WARN, none, s->path, "eos_token_id", (int)id, (int)vocab - 1); /* the first */
    }
    s->stop_ids.len = kept;
    if (s->eos_id >= vocab) s->eos_id = -1;
}

/* ---- The chat template ----
 * In the order in which Hugging Face looks: chat_template.jinja (others of its kind: additional_chat_templates/NAME.jinja),
 * chat_template.json, tokenizer_config.json; in a GGUF file tokenizer.chat_template and tokenizer.chat_template.NAME. Models have up to
 * three: the usual one, one for tool use, one for retrieval. A template is a program from a stranger: it is parsed here, and run with
 * fuel by the interpreter of >>template. */

/* Keeps a text as the template; .p NULL: there was none. */
static llm_result llm__template_keep(llm__source *s, llm__str text) {
    if (text.p) s->chat_template_text = llm__arena_str(&s->arena, text);
    return text.p && !s->chat_template_text ? llm__nomem() : LLM_OK;
}

/* The template `name` of a JSON file's "chat_template": a string (which is "default"), or a list of {"name", "template"}. .p NULL: none. */
static llm__str llm__template_of(const llm_json *doc, const char *name) {
    int node = llm_json_find(doc, 0, "chat_template"), found = strcmp(name, "default") ? -1 : node;
    if (llm_json_type_of(doc, node) == LLM_JSON_ARRAY) {
        found = -1;
        for (int e = llm_json_first(doc, node); e >= 0 && found < 0; e = llm_json_next(doc, e))
            if (llm__str_eq(llm__json_text_at(doc, e, "name"), name)) found = llm_json_find(doc, e, "template");
    }
    return llm__json_text(doc, found);
}

/* A template file: its text, or with .json its "chat_template". It may be absent when `optional`: LLM_OK and nothing kept. */
static llm_result llm__template_file(llm__source *s, const char *path, int optional, const char *name) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    LLM__SCOPED(llm__file_close) llm__file f = LLM__ZERO;
    if (!path) return llm__nomem();
    if (optional && llm__place_kind(&s->place, path) == LLM__PATH_NONE) return LLM_OK;
    int json = llm__ends_with(path, ".json");
    llm_result r = json ? llm__place_json(&s->place, path, 16000000, &doc) : llm__place_file(&s->place, path, 16000000, 1, &f);
    return r ? r : llm__template_keep(s, json ? llm__template_of(doc, name) : llm__s((const char *)f.data, f.size));
}

/* The text of the template `name` that the model comes with, if any. The name comes from a client and becomes part of a path: plain text
 * without a slash, and no leading dot. */
static llm_result llm__template_find(llm__source *s, const char *name) {
    char key[160];
    int is_default = !strcmp(name, "default"), plain = llm__plain_text(llm__lit(name), 64) && !strchr(name, '/') && name[0] != '.';
    if (!plain) return llm__error(LLM_ERR_ARG, "chat template name \"%.64s\": a plain name expected", name);
    if (s->gguf) {
        snprintf(key, sizeof key, "tokenizer.chat_template%s%.64s", is_default ? "" : ".", is_default ? "" : name);
        return llm__template_keep(s, llm__gguf_str(s->gguf, key));
    }
    if (llm__place_kind(&s->place, s->path) != LLM__PATH_DIR) return LLM_OK;
    snprintf(key, sizeof key, "additional_chat_templates/%.64s.jinja", name);
    llm_result r = llm__template_file(s, llm__source_path(s, s->path, is_default ? "chat_template.jinja" : key), 1, name);
    if (!r && !s->chat_template_text) r = llm__template_file(s, llm__source_path(s, s->path, "chat_template.json"), 1, name);
    if (!r && !s->chat_template_text) r = llm__template_keep(s, llm__template_of(s->tokenizer_config, name));
    return r;
}

/* The model's own template, else the built-in one of that name (NULL: none). A name that was chosen in vain is told. */
static llm_result llm__template_own(llm__source *s, const char *name, const llm__builtin *b) {
    llm_result r = llm__template_find(s, name);
    if (r || !b) return r;
    if (s->chat_template_text)
        llm__log(&s->log, LLM_LOG_WARN, "%s brings a chat template of its own; the built-in one named %s is not used", s->path, b->name);
    return s->chat_template_text ? LLM_OK : llm__template_keep(s, llm__lit(b->text));
}

/* A template that was asked for must work; the model's own may be broken, and says so only when it is used. */
static llm_result llm__source_template(llm__source *s, const llm_model_config *cfg) {
    const char *name = cfg->chat_template_name ? cfg->chat_template_name : "default", *given = cfg->chat_template;
    const char *wanted = given && llm__path_kind_of(given) == LLM__PATH_NONE ? given : given ? NULL : cfg->builtin_template;
    const llm__builtin *builtin = wanted ? llm__builtin_find(wanted) : NULL;
    llm_result r;
    if (wanted == given && given && !builtin && !strpbrk(given, "{/.")) {
        LLM__SCOPED(llm_text_free) llm_text names = LLM__ZERO;
        llm__builtin_names(&names);
        return llm__error(LLM_ERR_IO, "chat_template: %.100s, a file, the text of a template, or one of %s was expected", given,
                          names.data);
    }
    if (builtin) given = NULL;
    if (!given) r = llm__template_own(s, name, builtin);
    else if (strchr(given, '{')) r = llm__template_keep(s, llm__lit(given));
    else r = llm__template_file(s, given, 0, name);
    if (!r && !s->chat_template_text && (given || cfg->chat_template_name))
        r = llm__error(LLM_ERR_ARG, "%s: it has no chat template named \"%.64s\"", given ? given : s->path, name);
    if (r || !s->chat_template_text) return r;
    /* parsed once, here; a template that cannot be parsed is not a reason to refuse the weights */
    r = llm_template_open(s->chat_template_text, strlen(s->chat_template_text), &s->chat_template);
    if (!r || r == LLM_ERR_NOMEM || given) return r;
    s->chat_template_error = llm__arena_str(&s->arena, llm__s(llm_last_error(), strlen(llm_last_error())));
    llm__log(&s->log, LLM_LOG_WARN, "%s: the chat template cannot be used: %s", s->path, llm_last_error());
    return s->chat_template_error ? LLM_OK : llm__nomem();
}

/* ---- Opening and closing ----
 * Everything is checked here, once; what is open can be used without further checks. Opening allocates in proportion to headers and
 * vocabulary: weights stay in the mapped files until a backend packs them. */

LLM__PRIVATE void llm__source_close(llm__source *s) {
    llm_template_close(s->chat_template);
    llm__tokenizer_close(s->tokenizer);
    llm_tokens_free(&s->stop_ids);
    if (s->vocab_gguf && s->vocab_gguf != s->gguf) llm__gguf_free(s->vocab_gguf);
    if (s->gguf) llm__gguf_free(s->gguf);
    llm_json_free(s->config);
    llm_json_free(s->generation_config);
    llm_json_free(s->tokenizer_config);
    llm__tensors_free(&s->tensors);
    llm__tensors_free(&s->mmproj);
    llm__modules_free(&s->modules);
    for (size_t i = 0; i < s->n_files; i++) llm__file_close(&s->files[i]);
    LLM_FREE(s->files);
    llm__arena_free(&s->arena);
    memset(s, 0, sizeof *s);
}

/* Reads tokenizer_config.json of the tokenizer's folder, or what stands for it, unless there is one. */
static llm_result llm__source_tokenizer_config(llm__source *s, const llm_model_config *cfg, const char *name) {
    const char *folder = cfg->tokenizer && llm__place_kind(&s->place, cfg->tokenizer) == LLM__PATH_DIR ? cfg->tokenizer : s->path;
    if (s->tokenizer_config || llm__place_kind(&s->place, folder) != LLM__PATH_DIR) return LLM_OK;
    return llm__folder_json(s, folder, name, (size_t)64 << 20, &s->tokenizer_config);
}

/* The file or folder itself: its settings and tensors. */
static llm_result llm__source_open_path(llm__source *s, const llm_model_config *cfg) {
    llm__file f;
    const int folder = llm__place_kind(&s->place, s->path) == LLM__PATH_DIR;
    if (folder && !cfg->vocab_only && llm__meta_is(s, s->path)) return llm__meta_open(s, s->path, cfg->dummy_weights != 0);
    if (folder) return llm__source_folder(s, s->path, cfg);
    if (cfg->hf_overrides) return llm__error(LLM_ERR_ARG, "hf_overrides: %s has no config.json, a folder was expected", s->path);
    llm_result r = llm__source_file(s, s->path, &f);
    if (r) return r;
    if (llm__is_gguf(&f)) return llm__source_gguf(s, s->path, f);
    if (cfg->vocab_only && !cfg->tokenizer) return LLM_OK; /* a tokenizer file: its own reader looks at it */
    if (llm__ends_with(s->path, ".safetensors") || llm__torch_is(f.data, f.size))
        return llm__error(LLM_ERR_FORMAT, "%s: a %s is a part of a model: give its folder, with config.json", s->path,
                          llm__torch_is(f.data, f.size) ? "file of torch.save" : "safetensors file");
    return llm__error(LLM_ERR_FORMAT, "%s: no model%s: a GGUF file, or a folder with config.json and safetensors expected", s->path,
                      llm__looks_like(f.data, f.size));
}

LLM__PRIVATE llm_result llm__source_open(const char *path, const llm__place *place, const llm_model_config *cfg, llm__source *out) {
    const llm_model_config none = LLM__ZERO;
    memset(out, 0, sizeof *out);
    if (!cfg) cfg = &none;
    if (!path || !*path) return llm__error(LLM_ERR_ARG, "model: a path expected");
    out->path = path;
    if (place) out->place = *place;
    out->no_mmap = cfg->no_mmap;
    out->log.fn = cfg->log;
    out->log.user = cfg->log_user;
    llm_result r = llm__source_open_path(out, cfg);
    if (!r && !out->tensors.n && !cfg->vocab_only && !cfg->dummy_weights)
        r = llm__error(LLM_ERR_FORMAT, "%s: it holds no tensors, only a vocabulary or less", path);
    if (!r) r = llm__source_tokenizer_config(out, cfg, "tokenizer_config.json");
    if (!r) r = llm__source_tokenizer(out, cfg);
    if (!r) r = llm__source_tokenizer_config(out, cfg, "special_tokens_map.json"); /* older folders: it says the same of special tokens */
    if (!r) r = llm__source_specials(out);
    if (!r) r = llm__source_template(out, cfg);
    memset(&out->place, 0, sizeof out->place);
    if (r) llm__source_close(out);
    return r;
}
