/* Request bodies as a client may send them: read, checked, rendered and tokenized, or refused with an error object. The first byte chooses the
 * kind of call. Without an engine nothing is generated. Needs the tokenizer of a tiny checkpoint. */
#include "../unit/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static llm_openai_service service;
    static llm_model *model;
    static int tried;
    llm_text out;
    memset(&out, 0, sizeof out);
    if (!tried++) {
        llm_model_config c;
        memset(&c, 0, sizeof c);
        c.vocab_only = 1;
        if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints") || llm_model_open(TEST_CHECKPOINT("llama"), &c, &model)) exit(1);
        llm_openai_service_init(&service, model, NULL);
    }
    static const llm_openai_kind kinds[] = {LLM_OPENAI_CHAT,         LLM_OPENAI_COMPLETION,       LLM_OPENAI_GENERATE,
                                            LLM_OPENAI_EMBEDDING,    LLM_OPENAI_RESPONSE,         LLM_OPENAI_TOKENIZE,
                                            LLM_OPENAI_OLLAMA_SHOW,  LLM_OPENAI_OLLAMA_CHAT,      LLM_OPENAI_OLLAMA_GENERATE,
                                            LLM_OPENAI_OLLAMA_EMBED, LLM_OPENAI_OLLAMA_EMBEDDINGS};
    if (!size) return 0;
    llm_openai_call *k = llm_openai_begin(&service, kinds[data[0] % 11], (const char *)data + 1, size - 1, NULL);
    if (!k) return 0;
    llm_openai_submit(k);
    if (!llm_openai_next(k, &out) || !llm_openai_get_info(k)->done) __builtin_trap(); /* an answer or an error, always */
    llm_json *doc = NULL;
    if (llm_json_parse(out.data, out.len, NULL, &doc)) __builtin_trap(); /* which is JSON */
    llm_json_free(doc);
    llm_text_free(&out);
    llm_openai_free(k);
    return 0;
}
