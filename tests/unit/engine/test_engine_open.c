/* Engines that are refused when they are opened, and what the sentence says; memory that holds less than the model's length. */
#include "../test.h"

static void engine_open_refused(const llm_model *model, const llm_engine_config *c, llm_result expected, const char *says) {
    llm_engine *e = NULL;
    const llm_result r = llm_engine_open(model, c, &e);
    if (!CHECK(r == expected && !e && strstr(llm_last_error(), says))) printf("  %d, \"%s\" expected\n", (int)r, says);
    llm_engine_close(e);
}

TEST_GROUP(engine_open) {
    llm_model *model = NULL;
    llm_engine *e = NULL;
    llm_engine_config c;
    llm_engine_stats stats;
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints") || !CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), NULL, &model))) return;
    memset(&c, 0, sizeof c);
    c.n_threads = 1, c.max_loras = 3, c.max_cpu_loras = 2;
    engine_open_refused(model, &c, LLM_ERR_ARG, "max_cpu_loras (2) must be greater than or equal to max_loras (3)");
    c.max_loras = c.max_cpu_loras = 0;
    c.n_threads = 5000;
    engine_open_refused(model, &c, LLM_ERR_ARG, "n_threads");
    c.n_threads = 1, c.max_num_seqs = 1, c.max_model_len = 256, c.block_size = 16, c.num_gpu_blocks = 2; /* 32 tokens */
    engine_open_refused(model, &c, LLM_ERR_LIMIT, "max_model_len: 256 tokens need");
    c.max_model_len = 0; /* nobody asked for a length: what fits */
    if (CHECK(!llm_engine_open(model, &c, &e))) {
        llm_engine_get_stats(e, &stats);
        CHECK(stats.max_model_len == 32 && stats.total_blocks == 2);
    }
    llm_engine_close(e);
    llm_model_close(model);
}
