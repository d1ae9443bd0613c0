#include "tokenizer/tokenizer_files.h"
#include "api/config.h"
#include "api/text.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "base/index.h"
#include "base/files.h"
#include "base/json.h"
#include "base/place.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/encode.h"
#include "tokenizer/subword.h"
#include "tokenizer/decode.h"
#include "tokenizer/build.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/tiktoken.h"

LLM__PRIVATE llm__str llm__config_token(const llm_json *d, const char *key) {
    int node = llm_json_find(d, 0, key);
    return llm_json_type_of(d, node) == LLM_JSON_OBJECT ? llm__json_text_at(d, node, "content") : llm__json_text(d, node);
}

/* Its id. */
static int32_t llm__config_id(const llm__tokenizer *t, const llm_json *d, const char *key, int32_t otherwise) {
    llm__str s = llm__config_token(d, key);
    int32_t id = s.p ? llm__tokenizer_id(t, s) : -1;
    return id >= 0 ? id : otherwise;
}

/* Takes from tokenizer_config.json which tokens are BOS, EOS, padding; ids of added tokens must be those of the tokenizer's own file. A
 * file other than tokenizer.json has no way to say (framed) which tokens are added, and whether BOS is: there the configuration does. */
static void llm__tok_config(llm__tokenizer *t, const llm_json *d, int framed) {
    for (int v = llm_json_first(d, llm_json_find(d, 0, "added_tokens_decoder")); v >= 0 && !t->result; v = llm_json_next(d, v)) {
        int64_t id = -1;
        llm__str key = llm__json_key(d, v), text = llm__json_text_at(d, v, "content");
        int32_t known = text.p ? llm__tokenizer_id(t, text) : -1;
        if (!key.p || !llm__parse_int(key.p, key.n, &id)) id = -1;
        if (framed && (id < 0 || !text.n)) LLM__TOK_BAD(t, "tokenizer_config.json: added_tokens_decoder: ids and contents expected");
        if (id >= 0 && known >= 0 && known != id)
            LLM__TOK_BAD(t, "tokenizer_config.json: added_tokens_decoder: \"%.*s\" is %lld, but %d in the tokenizer", llm__shown(text),
                         text.p, (long long)id, (int)known);
        /* What the file has under this id with another text is left as it is. */
        if (framed && !t->result && (known >= 0 || id >= t->n_vocab || !t->token[id].type))
            llm__tok_enter_added(t, text, id, llm__json_added_flags(d, v));
    }
    t->bos_id = llm__config_id(t, d, "bos_token", t->bos_id);
    t->eos_id = llm__config_id(t, d, "eos_token", t->eos_id);
    t->pad_id = llm__config_id(t, d, "pad_token", t->pad_id);
    t->unk_id = t->unk_id >= 0 ? t->unk_id : llm__config_id(t, d, "unk_token", -1);
    if (framed && llm__json_flag(d, 0, "add_bos_token", t->model == LLM__TOK_BPE) && t->bos_id >= 0)
        llm__frame_add(t, &t->before, 0, t->bos_id, "");
    if (framed && llm__json_flag(d, 0, "add_eos_token", 0) && t->eos_id >= 0) llm__frame_add(t, &t->after, t->after.len, t->eos_id, "");
}

LLM__PRIVATE void llm__tok_finish(llm__tokenizer *t) {
    char s[8];
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        t->byte_id[b] = llm__tok_find(t, llm__s(s, (size_t)snprintf(s, sizeof s, "<0x%02X>", b)));
        if (t->plain_bytes && t->byte_id[b] < 0) t->byte_id[b] = llm__tok_find(t, llm__s(&byte, 1));
    }
    LLM__SCOPED(llm__encode_close) llm__encode e;
    LLM__SCOPED(llm_text_free) llm_text normal = LLM__ZERO;
    llm__encode_open(&e, t, t->n_added * LLM__TOK_MAX_ADDED);
    e.steps = t->normalizers.n;
    e.normalized = &normal;
    for (size_t i = 0; i < t->n_added && !t->result && !e.result; i++) {
        llm__added *a = &t->added[i];
        llm__str text = a->text;
        /* The text is put through the normalizers as the prompt will be (all but the first step, which looks for added tokens). */
        if ((a->flags & LLM__ADDED_NORMALIZED) && t->normalizers.n > 1) {
            normal.len = 0;
            llm__encode_feed(&e, 1, text, 1);
            if (normal.failed) llm__encode_fail(&e, LLM_ERR_NOMEM);
            text = t->token[a->id].text = llm__tok_keep(t, llm__text_str(&normal)); /* it decodes to what it was found as */
        }
        llm__index_add(a->flags & (LLM__ADDED_NORMALIZED | LLM__ADDED_PIECE) ? &t->late : &t->early, text, (int32_t)i, &t->result);
    }
    if (!t->result) t->result = e.result;
    llm__index_build(&t->early);
    llm__index_build(&t->late);
}

LLM__PRIVATE llm_result llm__tok_load(llm__tokenizer *t, llm__str s, const char *name, const llm_json *config) {
    size_t first = 0;
    LLM__SCOPED(llm__json_drop) llm_json *d = NULL;
    while (first < s.n && s.p[first] && strchr(" \t\r\n", s.p[first])) first++;
    int json = first < s.n && s.p[first] == '{', ranks = 0;
    for (size_t i = 0; i < s.n && i < 400 && !json && !ranks; i++) { /* base64, a space, digits */
        ranks = s.p[i] == ' ' && i && i + 1 < s.n && s.p[i + 1] >= '0' && s.p[i + 1] <= '9';
        if (llm__base64_digit(s.p[i]) < 0 && s.p[i] != '=') break;
    }
    if (json) {
        t->result = llm_json_parse(s.p, s.n, NULL, &d);
        if (!t->result) llm__tok_load_json(t, d);
    } else if (ranks) {
        llm__tok_load_ranks(t, s, name, config && llm_json_size(config, llm_json_find(config, 0, "added_tokens_decoder")) > 0);
    } else {
        llm__tok_load_spm(t, s);
    }
    if (config && !t->result) llm__tok_config(t, config, !json);
    if (!t->result) llm__tok_finish(t);
    return t->result;
}

/* The file of a folder to take: tokenizer.json, tokenizer.model, or a rank file, in this order; the first name if there is none, for the
 * error. NULL: no memory. */
static char *llm__tok_find_file(const llm__place *place, const char *folder) {
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "tiktoken.model", ".tiktoken"};
    LLM__SCOPED(llm_text_free) llm_text in_folder = LLM__ZERO;
    const char *found = names[0];
    int best = LLM__COUNT(names);
    llm__place_names(place, folder, &in_folder);
    for (const char *name = NULL; (name = llm__folder_next(&in_folder, name)) != NULL;)
        for (int i = 0; i < best; i++) {
            size_t n = strlen(name), end = strlen(names[i]);
            if (n < end || strcmp(name + n - end, names[i]) || (n > end && *names[i] != '.')) continue;
            found = name;
            best = i;
        }
    return llm__path_join(folder, found);
}

LLM__PRIVATE llm_result llm__tok_load_path(llm__tokenizer *t, const llm__place *place, const char *path, const llm_json *config) {
    int is_folder = llm__place_kind(place, path) == LLM__PATH_DIR;
    LLM__SCOPED(llm__drop) char *file = is_folder ? llm__tok_find_file(place, path) : llm__strdup(path);
    const char *slash = strrchr(path, '/');
    LLM__SCOPED(llm_text_free) llm_text beside = LLM__ZERO;
    LLM__SCOPED(llm__json_drop) llm_json *own = NULL;
    LLM__SCOPED(llm__file_close) llm__file f = LLM__ZERO;
    llm_text_add(&beside, path, slash ? (size_t)(slash + 1 - path) : 0);
    llm_text_str(&beside, "tokenizer_config.json");
    t->result = file && !beside.failed ? LLM_OK : llm__nomem();
    if (!t->result && !is_folder && llm__place_kind(place, beside.data) == LLM__PATH_FILE)
        t->result = llm__place_json(place, beside.data, (size_t)64 << 20, &own);
    if (!t->result) t->result = llm__place_file(place, file, (size_t)256 << 20, 0, &f);
    if (t->result) return t->result;
    slash = strrchr(file, '/');
    llm__tok_load(t, llm__s((const char *)f.data, f.size), slash ? slash + 1 : file, is_folder ? config : own);
    return t->result ? llm__error(t->result, "%s: %s", file, llm_last_error()) : LLM_OK;
}
