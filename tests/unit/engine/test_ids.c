/* Ids that a model's files name and that have no row of logits: nothing is looked up with them. Random weights on files of the test's own. */
#include "../test.h"
#include "base/files.h"

static const char ids_dir[] = "build/dev/ids";
static int ids_warned;

static void ids_log(void *user, int level, const char *message) {
    (void)user;
    ids_warned += level == LLM_LOG_WARN && strstr(message, "is no token of this model") != NULL;
}

static void ids_put(const char *name, const char *text) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", ids_dir, name);
    FILE *f = fopen(path, "we");
    if (!CHECK(f)) return;
    fputs(text, f);
    fclose(f);
}

/* A small model of `vocab` rows with the tokenizer of a tiny checkpoint, which has 500 tokens. */
static llm_result ids_open(int vocab, const char *more, const char *generation, llm_model **model) {
    char config[600], from[4200], to[200];
    llm_model_config c = {0};
    llm__folder_make("build/dev");
    llm__folder_make(ids_dir);
    snprintf(config, sizeof config,
             "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":32,\"intermediate_size\":32,"
             "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":2,\"max_position_embeddings\":256,"
             "\"vocab_size\":%d%s}",
             vocab, more);
    ids_put("config.json", config);
    ids_put("generation_config.json", generation);
    snprintf(to, sizeof to, "%s/tokenizer.json", ids_dir);
    unlink(to);
    if (!realpath(TEST_CHECKPOINT("llama") "/tokenizer.json", from) || symlink(from, to)) return LLM_ERR_IO;
    ids_warned = 0;
    c.dummy_weights = 1;
    c.log = ids_log;
    return llm_model_open(ids_dir, &c, model);
}

/* One answer with everything that looks ids up; returns how many tokens it has, -1: it failed. */
static int ids_answer(llm_engine *e, llm_sampling *s, llm_finish *finish) {
    static const int32_t prompt[] = {5, 6, 7, 8};
    llm_request_config c = {0};
    llm_request *r = NULL;
    llm_output o;
    c.prompt_ids = prompt;
    c.n_prompt_ids = LLM__COUNT(prompt);
    c.sampling = *s;
    if (llm_request_submit(e, &c, &r)) return -1;
    int n = llm_request_run(e, r) || llm_request_get_output(r, 0, &o) ? -1 : (int)o.n_token_ids;
    *finish = n < 0 ? LLM_FINISH_ERROR : o.finish;
    llm_request_free(r);
    return n;
}

/* Files whose ids are outside, by a little and by much: the model opens with a line for each, the ids are none, and answers come. */
static void ids_outside(void) {
    static const struct {
        const char *config, *generation;
        int warned, stops;
    } rows[] = {{"", "{\"eos_token_id\": [1000000]}", 1, 1}, /* <|im_end|> is found by its name */
                {"", "{\"eos_token_id\": [1, 512, 3, 513, 2147483646]}", 1, 2},
                {",\"eos_token_id\":600,\"bos_token_id\":700,\"pad_token_id\":512,\"unk_token_id\":2147483646", "{}", 4, 1},
                {"", "{\"eos_token_id\": -1, \"bos_token_id\": 1e300, \"pad_token_id\": 9223372036854775807}", 0, 1},
                {"", "{\"eos_token_id\": 511}", 0, 2}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_model *model = NULL;
        llm_engine *e = NULL;
        llm_engine_config c = {0};
        llm_sampling s = {0};
        llm_finish finish;
        if (!CHECK(!ids_open(512, rows[i].config, rows[i].generation, &model))) continue;
        const llm_model_info *info = llm_model_get_info(model);
        if (!CHECK(ids_warned == rows[i].warned && info->n_stop_ids == rows[i].stops))
            printf("  row %d: %d lines, %d stops\n", i, ids_warned, info->n_stop_ids);
        CHECK(info->eos_id < 512 && info->bos_id < 512 && info->pad_id < 512 && info->unk_id < 512);
        for (int k = 0; k < info->n_stop_ids; k++) CHECK(info->stop_ids[k] >= 0 && info->stop_ids[k] < 512);
        c.n_threads = 1;
        c.max_num_seqs = 8;
        if (!CHECK(!llm_engine_open(model, &c, &e))) {
            llm_model_close(model);
            continue;
        }
        s.max_tokens = 12;
        s.logprobs = 3;
        s.min_tokens = 6;
        s.temperature = 1;
        s.early_stop.enable = 1, s.early_stop.window_size = 2, s.early_stop.threshold = 1e-9f;
        CHECK(ids_answer(e, &s, &finish) > 0);
        memset(&s, 0, sizeof s);
        s.use_beam_search = 1, s.best_of = 3, s.n = 2, s.max_tokens = 8;
        CHECK(ids_answer(e, &s, &finish) > 0);
        llm_engine_close(e);
        llm_model_close(model);
    }
}

/* A tokenizer with more tokens than the model has rows: its further ids are refused in a prompt, and a grammar that demands text which only
 * they spell fails its own request and none beside it. */
static void ids_few_rows(void) {
    llm_model *model = NULL;
    llm_engine *e = NULL;
    llm_engine_config c = {0};
    llm_sampling plain = {0}, guided = {0};
    llm_grammar_config form;
    llm_finish finish = LLM_FINISH_NONE;
    memset(&form, 0, sizeof form);
    if (!CHECK(!ids_open(60, "", "{}", &model))) return;
    c.n_threads = 1;
    c.max_num_seqs = 8;
    if (CHECK(!llm_engine_open(model, &c, &e))) {
        static const int32_t high[] = {60};
        llm_request_config bad = {0};
        llm_request *r = NULL, *beside = NULL;
        llm_output o;
        bad.prompt_ids = high, bad.n_prompt_ids = 1;
        CHECK(llm_request_submit(e, &bad, &r) == LLM_ERR_ARG);
        form.kind = LLM_GRAMMAR_REGEX;
        form.text = "zzzzzzzzzzzz|\xC3\xA9\xC3\xA9"; /* letters of the byte alphabet far behind the 60th token */
        form.len = strlen(form.text);
        CHECK(!llm_grammar_open(model, &form, &guided.grammar));
        plain.max_tokens = guided.max_tokens = 20;
        bad.prompt_ids = (const int32_t[]){9, 10}, bad.n_prompt_ids = 2, bad.sampling = plain;
        CHECK(!llm_request_submit(e, &bad, &beside));
        int n = ids_answer(e, &guided, &finish);
        CHECK(n <= 0 && finish == LLM_FINISH_ERROR);
        CHECK(!llm_request_run(e, beside) && !llm_request_get_output(beside, 0, &o) && o.n_token_ids > 0 && o.finish != LLM_FINISH_ERROR);
        llm_request_free(beside);
        llm_grammar_close(guided.grammar);
    }
    llm_engine_close(e);
    llm_model_close(model);
}

TEST_GROUP(ids) {
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints")) return;
    ids_outside();
    ids_few_rows();
}
