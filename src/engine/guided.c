/* The form of an answer belongs to the vocabulary, not to the weights: a grammar knows a tokenizer only. */
LLM_API llm_result llm_grammar_open(const llm_model *model, const llm_grammar_config *cfg, llm_grammar **out) {
    return llm__grammar_open(model ? model->source.tokenizer : NULL, cfg, out);
}

