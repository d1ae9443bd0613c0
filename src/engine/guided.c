/* guided: grammars of a model. */
#include "api/linkage.h"
#include "api/config.h"
#include "api/model.h"
#include "api/grammar.h"
#include "model/loader.h"
#include "grammar/machine.h"
#include "grammar/grammar.h"

/* The form of an answer belongs to the vocabulary, not to the weights: a grammar knows a tokenizer only. */
LLM_API llm_result llm_grammar_open(const llm_model *model, const llm_grammar_config *cfg, llm_grammar **out) {
    return llm__grammar_open(model ? model->source.tokenizer : NULL, cfg, out);
}
