/* ---- Special tokens and what ends an answer ----
 * Files disagree, and each is right about something: an answer ends at every id that any of them calls an end. Forgetting one makes a model
 * talk to itself; the reverse fault is not known, but for gpt-oss. Ids from JSON files are not compared with the vocabulary: an id that no
 * logit has can never be sampled, and padded vocabularies have ids without a token. */

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
    /* gpt-oss ends its thinking with <|end|> and goes on to answer */
    const llm__tokenizer *t = s->tokenizer;
    int harmony = llm__tokenizer_id(t, llm__lit("<|return|>")) >= 0 && llm__tokenizer_id(t, llm__lit("<|channel|>")) >= 0;
    while (llm__list_next(&names, " ", &name)) {
        int32_t id = llm__tokenizer_id(t, name);
        if (id >= 0 && llm__tokenizer_is_special(t, id) && !(harmony && llm__str_eq(name, "<|end|>"))) llm__source_stop(s, id);
    }
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

