/* openai_at_once: answers that need no steps of the engine.
 *
 * /tokenize and /detokenize understand vLLM's bodies ({"prompt"} or {"messages"}; {"tokens"}) and llama.cpp's ({"content", "add_special",
 * "with_pieces"}), and answer each in its own shape. A server may answer them while all its sequences are busy. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/tokenizer.h"
#include "api/json.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "base/threads.h"
#include "model/tensors.h"
#include "serve/openai.h"
#include "serve/openai_tools.h"
#include "serve/openai_messages.h"
#include "serve/openai_body.h"
#include "serve/openai_submit.h"
#include "serve/openai_rank.h"
#include "serve/openai_parts.h"
#include "serve/ollama.h"

/* What a chat's prompt is made of. */
static int llm__oai_chat_body(llm_openai_call *k) { return llm__oai_tools(k) && llm__oai_tool_choice(k) && llm__oai_messages(k); }

/* The ids of a body's `prompt` or `content`, or of its messages. */
static int llm__oai_body_ids(llm_openai_call *k, llm_tokens *ids) {
    int content = llm__oai_get(k->body, 0, "content"), v = content >= 0 ? content : llm__oai_get(k->body, 0, "prompt");
    if (v < 0 && !llm__oai_has(k, "messages")) return llm__oai_bad(k, "prompt", "One of prompt, content and messages is needed");
    if (v < 0 && !llm__oai_chat_body(k)) return 0;
    llm__oai_at(k, content >= 0 ? "content" : v >= 0 ? "prompt" : "messages");
    return llm__oai_prompt_ids(k, v, v >= 0 && content < 0, ids);
}

/* The answer holds both forms: {"count": 2, "max_model_len": 8192, "tokens": [9906, 1917]}, where with_pieces makes the tokens {"id",
 * "piece"} and return_token_strs adds "token_strs". llama.cpp adds special tokens only when it is told to, vLLM unless it is told not to,
 * and a rendered chat has its own. */
static int llm__oai_tokenize(llm_openai_call *k) {
    int theirs = llm__oai_has(k, "content");
    LLM__SCOPED(llm_tokens_free) llm_tokens ids = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text bytes = LLM__ZERO;
    llm__oai_at(k, theirs ? "content" : "prompt");
    if (llm_json_type_of(k->body, llm__oai_get(k->body, 0, k->param)) == LLM_JSON_ARRAY) return llm__oai_bad(k, NULL, "must be a text");
    if (!llm__oai_body_ids(k, &ids)) return 0;
    k->text.len = 0;
    if (llm__oai_is_anthropic(k)) return llm_text_format(&k->text, "{'input_tokens':%l}", (int64_t)ids.len), 1;
    llm_text_format(&k->text, "{'count':%l,'max_model_len':%d,'tokens':", (int64_t)ids.len,
                    k->service.engine ? k->service.engine->p.max_len : 0);
    if (!theirs || !k->pieces) llm_text_format(&k->text, "%i", ids.data, ids.len);
    if (k->pieces) llm_text_str(&k->text, theirs ? "[" : ",\"token_strs\":[");
    for (size_t i = 0; i < ids.len && k->pieces; i++) {
        if (!llm__oai_awaited(k)) return 0;
        if (!llm__oai_goes_on(k, &k->text)) break;
        llm_text_format(&k->text, theirs ? "%,{'id':%d,'piece':" : "%,", ids.data[i]);
        llm__oai_token(k, ids.data[i], &bytes, &k->text);
        if (theirs) llm_text_str(&k->text, "}");
    }
    llm_text_str(&k->text, k->pieces ? "]}" : "}");
    return 1;
}

/* Whether an answer may be as large as twice the text of these ids: a token of spaces may be a hundred times its number. */
static int llm__oai_ids_fit(llm_openai_call *k, const llm_tokens *ids) {
    LLM__SCOPED(llm_text_free) llm_text bytes = LLM__ZERO;
    const int64_t most = k->service.max_answer_bytes;
    int64_t n = 0;
    for (size_t i = 0; i < ids->len && most > 0 && n <= most; i++) {
        if (!llm__oai_awaited(k)) return 0;
        bytes.len = 0;
        llm_token_bytes(k->service.model, ids->data[i], &bytes);
        n += 2 * (int64_t)bytes.len;
    }
    return most <= 0 || n <= most || llm__oai_bad(k, NULL, ": the answer would be larger than %lld bytes", (long long)most);
}

/* The text of ids, under the names that llama.cpp and vLLM give it. */
static int llm__oai_detokenize(llm_openai_call *k) {
    LLM__SCOPED(llm_text_free) llm_text text = LLM__ZERO;
    LLM__SCOPED(llm_tokens_free) llm_tokens ids = LLM__ZERO;
    int v = llm__oai_get(k->body, 0, "tokens");
    llm__oai_at(k, "tokens");
    if (llm_json_type_of(k->body, v) != LLM_JSON_ARRAY) return llm__oai_bad(k, NULL, "must be a list of token ids");
    if (!llm__oai_ids(k, v, &ids)) return 0;
    if (!llm__oai_ids_fit(k, &ids)) return 0;
    llm_result r = llm_detokenize(k->service.model, ids.data, ids.len, LLM_DETOK_KEEP_SPECIAL, &text);
    llm_text_format(&k->text, "{'content':%Q,'prompt':%Q}", text.data, text.len, text.data, text.len);
    return r ? llm__oai_failed(k, r, NULL) : 1;
}

/* The rendered chat as it will be tokenized, to be looked at. */
static int llm__oai_template(llm_openai_call *k) {
    LLM__SCOPED(llm_text_free) llm_text text = LLM__ZERO;
    if (!llm__oai_chat_body(k) || !llm__oai_at(k, "messages") || !llm__oai_render(k)) return 0;
    llm_unguard(k->text.data, k->text.len, &text);
    k->text.len = 0;
    k->text.failed |= text.failed;
    llm_text_format(&k->text, "{'prompt':%Q}", text.data, text.len);
    return 1;
}

/* A field that names a file or folder inside `dir`, as the path there. Only a plain name, and nothing that leads elsewhere: no link. */
static int llm__oai_inside(llm_openai_call *k, const char *param, const char *dir, const char *flag, llm_text *path) {
    size_t n = 0;
    const char *name = llm_json_str(k->body, llm__oai_get(k->body, 0, param), &n);
    llm__oai_at(k, "%s", param);
    if (!dir) llm__oai_bad(k, NULL, "This server was started without %s, the folder that %s is looked for in", flag, param);
    else if (!name) return llm__oai_bad(k, NULL, "is missing, or no text");
    else if (*name == '.' || strchr(name, '/') || !llm__plain_text(llm__s(name, n), 255))
        llm__oai_bad(k, NULL, "must be a plain name inside %s: without '/', and not beginning with '.'", flag);
    else {
        llm_text_format(path, "%s/%s", dir, name);
        if (path->failed) return llm__oai_failed(k, llm__nomem(), "");
        if (!llm__path_is_link(path->data)) return 1;
        llm__oai_bad(k, NULL, ": a link is not followed");
    }
    k->info.status = 403;
    return 0;
}

/* An error of a file in `dir` as a client may see it: where the folder is does not concern him. */
static int llm__oai_inside_failed(llm_openai_call *k, llm_result r, const char *param, const char *dir) {
    const size_t n = strlen(dir);
    llm__oai_refused(k, r, param);
    for (char *at = k->message; (at = strstr(at, dir)) != NULL && n;)
        if (at[n] == '/') memmove(at, at + n + 1, strlen(at + n + 1) + 1);
        else at += n;
    return 0;
}

/* Adapters at run time: vLLM's two routes, but only for what lies in one folder. {"lora_name", "lora_path"}: done here, in a worker's
 * thread, while the engine steps on. */
static int llm__oai_adapters(llm_openai_call *k) {
    const llm_openai_service *s = &k->service;
    int load = k->info.kind == LLM_OPENAI_LORA_LOAD;
    LLM__SCOPED(llm_text_free) llm_text path = LLM__ZERO;
    size_t n = 0;
    const char *name = llm_json_str(k->body, llm__oai_get(k->body, 0, "lora_name"), &n);
    if (s->lora_dir && (!name || strlen(name) != n)) return llm__oai_bad(k, "lora_name", "is missing, or no text");
    if ((load || !s->lora_dir) && !llm__oai_inside(k, "lora_path", s->lora_dir, "--lora-dir", &path)) return 0;
    if (load && llm__oai_is_base(s, llm__s(name, n))) return llm__oai_bad(k, "lora_name", "'%.64s' is the base model's", name);
    llm_result r = load ? llm_lora_load(s->engine, name, path.data) : llm_lora_unload(s->engine, name);
    if (r) return llm__oai_inside_failed(k, r, load && r != LLM_ERR_ARG ? "lora_path" : "lora_name", load ? s->lora_dir : "");
    llm_text_format(&k->text, "Success: LoRA adapter %'%s%' %s successfully.", name, load ? "added" : "removed");
    return 1;
}

/* Whether the folder may take another file of n tokens, or one in the place of that of the same name. Its size is taken for that of whole
 * pages of all of them. */
static int llm__oai_quota(llm_openai_call *k, const char *path, size_t n) {
    const llm_openai_service *s = &k->service;
    const int64_t page = s->engine->kv.page_tokens, pages = (int64_t)n / page;
    int64_t files = 1, bytes = 256 + pages * (page * 4 + s->engine->page_bytes * s->engine->n_ranks);
    LLM__SCOPED(llm_text_free) llm_text names = LLM__ZERO, other = LLM__ZERO;
    llm__folder_names(s->context_dir, &names);
    for (const char *name = NULL; (name = llm__folder_next(&names, name)) != NULL && !other.failed;) {
        other.len = 0;
        llm_text_format(&other, "%s/%s", s->context_dir, name);
        const int64_t size = other.failed || !strcmp(other.data, path) ? -1 : llm__path_bytes(other.data);
        if (size >= 0) files++, bytes += size;
    }
    if (names.failed || other.failed) return llm__oai_failed(k, llm__nomem(), "");
    if ((!s->max_contexts || files <= s->max_contexts) && (!s->max_context_bytes || bytes <= s->max_context_bytes)) return 1;
    llm__oai_bad(k, "name", ": the folder of kept contexts would hold %lld files and %lld MiB; its quota is %lld and %lld MiB",
                 (long long)files, (long long)bytes >> 20, (long long)s->max_contexts, (long long)s->max_context_bytes >> 20);
    k->code = "insufficient_quota";
    k->info.status = 403;
    return 0;
}

/* Kept contexts: {"name"} in a folder; to save, the body of a chat or a completion too, whose prompt was asked before. Done here, in a
 * worker's thread, in turns with the engine's steps. The answer tells how many tokens the file holds. */
static int llm__oai_contexts(llm_openai_call *k) {
    const llm_openai_service *s = &k->service;
    int save = k->info.kind == LLM_OPENAI_CONTEXT_SAVE;
    LLM__SCOPED(llm_text_free) llm_text path = LLM__ZERO;
    LLM__SCOPED(llm_tokens_free) llm_tokens ids = LLM__ZERO;
    int64_t kept = 0;
    if (!llm__oai_inside(k, "name", s->context_dir, "--context-dir", &path) || (save && !llm__oai_body_ids(k, &ids))) return 0;
    LLM__LOCKED(&s->engine->keeping); /* what the quota leaves is written before others look */
    if (save && !llm__oai_quota(k, path.data, ids.len)) return 0;
    llm_result r = save ? llm_context_save(s->engine, path.data, ids.data, ids.len, k->lora, k->cache_salt, &kept)
                        : llm_context_load(s->engine, path.data, k->lora, k->cache_salt, &ids);
    if (r) llm__oai_inside_failed(k, r, "name", s->context_dir);
    if (r == LLM_ERR_IO) k->info.status = save ? 500 : 404;
    k->text.len = 0;
    llm_text_format(&k->text, "{'object':'context','name':%q,'model':%q,'tokens':%l}", llm__oai_word(k->body, 0, "name"), k->model,
                    save ? kept : (int64_t)ids.len);
    return !r;
}

LLM_API int llm_openai_submit(llm_openai_call *k) {
    const int kind = k->info.kind;
    if (k->info.status != 200) return 0;
    if (k->idle) return llm__ollama_loaded(k, &k->text), 1;
    if (!k->service.engine && (kind < LLM_OPENAI_TOKENIZE || kind > LLM_OPENAI_TEMPLATE) && kind != LLM_OPENAI_OLLAMA_SHOW)
        return llm__oai_failed(k, llm__error(LLM_ERR_UNSUPPORTED, "there is no engine to answer"), "");
    switch (kind) {
    case LLM_OPENAI_TOKENIZE: return llm__oai_tokenize(k);
    case LLM_OPENAI_DETOKENIZE: return llm__oai_detokenize(k);
    case LLM_OPENAI_TEMPLATE: return llm__oai_template(k);
    case LLM_OPENAI_LORA_LOAD:
    case LLM_OPENAI_LORA_UNLOAD: return llm__oai_adapters(k);
    case LLM_OPENAI_CONTEXT_SAVE:
    case LLM_OPENAI_CONTEXT_LOAD: return llm__oai_contexts(k);
    case LLM_OPENAI_OLLAMA_SHOW: return llm__ollama_show(k, &k->text), 1;
    case LLM_OPENAI_RERANK:
    case LLM_OPENAI_SCORE: return llm__rank_submit(k);
    default: return llm__oai_submit_all(k);
    }
}
