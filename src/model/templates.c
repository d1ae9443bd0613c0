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
    if (optional && llm__path_kind_of(path) == LLM__PATH_NONE) return LLM_OK;
    int json = llm__ends_with(path, ".json");
    llm_result r = json ? llm__json_file(path, 16000000, &doc) : llm__file_open(path, 16000000, 1, &f);
    return r ? r : llm__template_keep(s, json ? llm__template_of(doc, name) : llm__s((const char *)f.data, f.size));
}

/* The text of the template `name` that the model comes with, if any. The name comes from a client and becomes part of a path: plain text
 * without a slash, and no leading dot. */
static llm_result llm__template_find(llm__source *s, const char *name) {
    char key[160];
    int is_default = !strcmp(name, "default"),
        plain = llm__plain_text(llm__lit(name), 64) && !strchr(name, '/') && name[0] != '.';
    if (!plain) return llm__error(LLM_ERR_ARG, "chat template name \"%.64s\": a plain name expected", name);
    if (s->gguf) {
        snprintf(key, sizeof key, "tokenizer.chat_template%s%.64s", is_default ? "" : ".", is_default ? "" : name);
        return llm__template_keep(s, llm__gguf_str(s->gguf, key));
    }
    if (llm__path_kind_of(s->path) != LLM__PATH_DIR) return LLM_OK;
    snprintf(key, sizeof key, "additional_chat_templates/%.64s.jinja", name);
    llm_result r = llm__template_file(s, llm__source_path(s, s->path, is_default ? "chat_template.jinja" : key), 1, name);
    if (!r && !s->chat_template_text) r = llm__template_file(s, llm__source_path(s, s->path, "chat_template.json"), 1, name);
    if (!r && !s->chat_template_text) r = llm__template_keep(s, llm__template_of(s->tokenizer_config, name));
    return r;
}

/* A template that was asked for must work; the model's own may be broken, and says so only when it is used. */
static llm_result llm__source_template(llm__source *s, const llm_model_config *cfg) {
    const char *name = cfg->chat_template_name ? cfg->chat_template_name : "default", *given = cfg->chat_template;
    llm_result r;
    if (!given) r = llm__template_find(s, name);
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

