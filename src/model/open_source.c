/* ---- Opening and closing ----
 * Everything is checked here, once; what is open can be used without further checks. Opening allocates in proportion to headers and
 * vocabulary: weights stay in the mapped files until a backend packs them. */

/* Frees all of it, also what a failed opening had begun; a zeroed source is fine. */
static void llm__source_close(llm__source *s) {
    llm_template_close(s->chat_template);
    llm__tokenizer_close(s->tokenizer);
    llm_tokens_free(&s->stop_ids);
    if (s->vocab_gguf && s->vocab_gguf != s->gguf) llm__gguf_free(s->vocab_gguf);
    if (s->gguf) llm__gguf_free(s->gguf);
    llm_json_free(s->config);
    llm_json_free(s->generation_config);
    llm_json_free(s->tokenizer_config);
    llm__tensors_free(&s->tensors);
    for (size_t i = 0; i < s->n_files; i++) llm__file_close(&s->files[i]);
    LLM_FREE(s->files);
    llm__arena_free(&s->arena);
    memset(s, 0, sizeof *s);
}

/* Reads tokenizer_config.json of the tokenizer's folder, or what stands for it, unless there is one. */
static llm_result llm__source_tokenizer_config(llm__source *s, const llm_model_config *cfg, const char *name) {
    const char *folder = cfg->tokenizer && llm__path_kind_of(cfg->tokenizer) == LLM__PATH_DIR ? cfg->tokenizer : s->path;
    if (s->tokenizer_config || llm__path_kind_of(folder) != LLM__PATH_DIR) return LLM_OK;
    return llm__folder_json(s, folder, name, (size_t)64 << 20, &s->tokenizer_config);
}

/* The file or folder itself: its settings and tensors. */
static llm_result llm__source_open_path(llm__source *s, const llm_model_config *cfg) {
    llm__file f;
    if (llm__path_kind_of(s->path) == LLM__PATH_DIR) return llm__source_folder(s, s->path, cfg);
    llm_result r = llm__source_file(s, s->path, &f);
    if (r) return r;
    if (llm__is_gguf(&f)) return llm__source_gguf(s, s->path, f);
    if (cfg->vocab_only && !cfg->tokenizer) return LLM_OK; /* a tokenizer file: its own reader looks at it */
    if (llm__ends_with(s->path, ".safetensors"))
        return llm__error(LLM_ERR_FORMAT, "%s: a safetensors file is a part of a model: give its folder, with config.json", s->path);
    return llm__error(LLM_ERR_FORMAT, "%s: no model%s: a GGUF file, or a folder with config.json and safetensors expected", s->path,
                      llm__looks_like(f.data, f.size));
}

/* Opens what a model is made of. cfg may be NULL; path must outlive the source. On error nothing is left open. */
static llm_result llm__source_open(const char *path, const llm_model_config *cfg, llm__source *out) {
    const llm_model_config none = LLM__ZERO;
    memset(out, 0, sizeof *out);
    if (!cfg) cfg = &none;
    if (!path || !*path) return llm__error(LLM_ERR_ARG, "model: a path expected");
    out->path = path;
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
    if (r) llm__source_close(out);
    return r;
}

