/* openai_schema: what a body may have, as a JSON schema: made of the rows that read it, so that it says what is read. */
#include "api/linkage.h"
#include "api/text.h"
#include "api/options.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/text.h"
#include "chat/reasoning.h"
#include "serve/openai.h"
#include "serve/ollama.h"
#include "serve/anthropic.h"

/* Members that a function reads, and not a row: their schemas by name, with ' for ". */
static const struct {
    const char *names, *schema;
} llm__schema_read[] = {
    {"model|name|adapter_name|lora_name|lora_path|system|template|cache_salt|previous_response_id|instructions|guided_regex|"
     "guided_grammar|grammar|regex|suffix|chat_template",
     "{'type':['string','null']}"},
    {"raw|truncate|guided_json_object|enable_thinking", "{'type':['boolean','null']}"},
    {"messages",
     "{'type':'array','items':{'type':'object','required':['role'],'properties':{'role':{'enum':['system','developer','user',"
     "'assistant','tool','function']},'content':{'type':['string','array','null']},'images':{'type':'array','items':{'type':'string',"
     "'contentEncoding':'base64'}},'tool_calls':{'type':['array','null']}}}}"},
    {"query", "{'type':'string'}"},
    {"texts", "{'type':['array','null'],'items':{'type':'string'}}"},
    {"text_1|text_2", "{'type':['string','array'],'items':{'type':'string'}}"},
    {"prompt|input", "{'type':['string','array'],'items':{'type':['string','integer','array','object']}}"},
    {"content", "{'type':'string'}"},
    {"images", "{'type':['array','null'],'items':{'type':'string','contentEncoding':'base64'}}"},
    {"modalities", "{'type':['array','null'],'items':{'enum':['text']}}"},
    {"thinking", "{'type':['object','null'],'properties':{'type':{'enum':['enabled','disabled']}}}"},
    {"tokens|stop_token_ids|allowed_token_ids|logprob_token_ids|prompt_token_ids|context",
     "{'type':['array','null'],'items':{'type':'integer'}}"},
    {"tools", "{'type':['array','null'],'items':{'type':'object','required':['type'],'properties':{'type':{'const':'function'},'function':{"
              "'type':'object','required':['name'],'properties':{'name':{'type':'string'},'description':{'type':'string'},'parameters':{"
              "'type':'object'},'strict':{'type':['boolean','null']}}}}}}"},
    {"tool_choice", "{'type':['string','object','null']}"},
    {"response_format|text|reasoning|metadata|stream_options|chat_template_kwargs|structured_outputs|multimodal_data|multi_modal_data|"
     "mm_processor_kwargs|options|conversation",
     "{'type':['object','null']}"},
    {"logit_bias", "{'type':['object','null'],'additionalProperties':{'type':'number','minimum':-100,'maximum':100}}"},
    {"early_stop_config|guided_json|json_schema|structural_tag", "{'type':['object','string','boolean','null']}"},
    {"repetition_detection",
     "{'type':['object','null'],'properties':{'max_pattern_size':{'type':'integer','minimum':0},'min_pattern_size':{"
     "'type':'integer','minimum':0},'min_count':{'type':'integer','minimum':2}}}"},
    {"guided_choice", "{'type':['array','null'],'items':{'type':'string'}}"},
    {"include|documents", "{'type':['array','null']}"},
    {"logprobs", "{'type':['boolean','integer','null']}"},
    {"top_logprobs", "{'type':['integer','null'],'minimum':0}"},
    {"early_stopping", "{'type':['boolean','string','null']}"},
    {"reasoning_effort", "{'type':['string','null']}"},
    {"format", "{'type':['string','object','null'],'description':'\\\"json\\\", or a JSON schema'}"},
    {"think", "{'type':['boolean','string','null']}"},
    {"keep_alive", "{'type':['string','number','null'],'description':'has no effect: the model stays loaded'}"},
    {"num_predict", "{'type':['integer','null'],'minimum':-2}"},
    {"repeat_last_n", "{'type':['integer','null'],'minimum':-1}"},
    {"mirostat", "{'enum':[0,null]}"},
    {"typical_p|tfs_z", "{'enum':[1,null]}"},
};

/* The words of an ENUM or CHOICE, "a|b=2", as a list. */
static void llm__schema_words(const char *words, llm_text *out) {
    llm__str w;
    llm_text_str(out, "{\"enum\":[");
    while (llm__list_next(&words, "|", &w)) llm_text_format(out, "%,%Q", w.p, llm__str_until(w, "="));
    llm_text_str(out, ",null]");
}

/* The schema of a row, without its closing brace. */
static void llm__schema_row(const llm_option *p, llm_text *out) {
    const int bounded = p->high > p->low, whole = p->kind == LLM_OPTION_INT || p->kind == LLM_OPTION_INT64;
    switch (p->kind) {
    case LLM_OPTION_BOOL: llm_text_str(out, "{\"type\":[\"boolean\",\"null\"]"); break;
    case LLM_OPTION_INT:
    case LLM_OPTION_INT64:
    case LLM_OPTION_FLOAT:
        llm_text_format(out, "{'type':[%q,'null']", whole ? "integer" : "number");
        if (bounded && p->low > -9e18) llm_text_format(out, ",'minimum':%f", p->low);
        if (bounded && p->high < 9e18) llm_text_format(out, ",'maximum':%f", p->high);
        break;
    case LLM_OPTION_TEXT:
        llm_text_str(out, "{\"type\":[\"string\",\"null\"]");
        if (p->high > 0) llm_text_format(out, ",'minLength':%d,'maxLength':%d", (int)p->low, (int)p->high);
        break;
    case LLM_OPTION_LIST:
        llm_text_str(out, "{\"type\":[\"array\",\"string\",\"null\"],\"items\":{\"type\":\"string\"}");
        if (p->high > 0) llm_text_format(out, ",'maxItems':%d", (int)p->high);
        break;
    case LLM_OPTION_ENUM:
    case LLM_OPTION_CHOICE: llm__schema_words(p->words, out); break;
    default: llm_text_str(out, "{"); break;
    }
}

/* The schema of a member by its name, with what its row says beside it. */
static void llm__schema_member(llm__str name, llm_text *out) {
    const llm_options fields = {llm__oai_fields, LLM__COUNT(llm__oai_fields), NULL, NULL, NULL, NULL, {NULL, 0}, NULL};
    const llm_option *p = llm_options_find(&fields, name.p, name.n);
    for (int i = 0; i < LLM__COUNT(llm__schema_read); i++)
        if (llm__alias_among(llm__schema_read[i].names, name, NULL)) {
            llm_text_format(out, llm__schema_read[i].schema);
            return;
        }
    if (!p) {
        llm_text_str(out, "{}");
        return;
    }
    const char *say = p->kind == LLM_OPTION_IGNORED ? "has no effect: " : p->kind == LLM_OPTION_REFUSED ? "refused: " : "";
    llm__schema_row(p, out);
    if (p->help) {
        LLM__SCOPED(llm_text_free) llm_text help = LLM__ZERO;
        llm_text_format(&help, "%s%s", say, p->help);
        llm_text_format(out, "%,'description':%Q", help.data, help.len);
    }
    if (p->kind == LLM_OPTION_IGNORED) llm_text_str(out, ",\"deprecated\":true");
    llm_text_str(out, "}");
}

/* Adds the names "a|b" that are not there yet, of a row (NULL: of none) those by which it is found; a letter and a variable are no names of
 * members, but for n. */
static void llm__schema_names(const char *names, const llm_option *row, llm_text *known, llm_text *out) {
    const llm_options fields = {llm__oai_fields, LLM__COUNT(llm__oai_fields), NULL, NULL, NULL, NULL, {NULL, 0}, NULL};
    llm__str w;
    while (llm__list_next(&names, "|", &w)) {
        LLM__SCOPED(llm_text_free) llm_text name = LLM__ZERO;
        if (*w.p == '-' || *w.p == '$' || (w.n == 1 && *w.p != 'n') || (row && llm_options_find(&fields, w.p, w.n) != row)) continue;
        for (size_t i = 0; i < w.n; i++) llm_text_add(&name, w.p[i] == '-' ? "_" : w.p + i, 1);
        if (known->data && llm__alias_among(known->data, llm__text_str(&name), NULL)) continue;
        llm_text_format(known, known->len ? "|%s" : "%s", name.data ? name.data : "");
        llm_text_format(out, "%,%Q:", name.data, name.len);
        llm__schema_member(llm__text_str(&name), out);
        out->failed |= name.failed | known->failed;
    }
}

/* The properties of an Ollama body, or of its options. */
static void llm__schema_ollama(llm_openai_kind kind, int options, llm_text *out) {
    LLM__SCOPED(llm_text_free) llm_text known = LLM__ZERO;
    const char *names;
    for (int i = 0; (names = llm__ollama_names(kind, options, i)) != NULL; i++) {
        const int own = !options && llm__str_eq(llm__lit(names), "options");
        if (!own) llm__schema_names(names, NULL, &known, out);
        else {
            llm_text_format(out, "%,'options':{'type':['object','null'],'properties':{");
            llm__schema_ollama(kind, 1, out);
            llm_text_str(out, "}}");
        }
    }
}

/* The properties of a body of Anthropic's. */
static void llm__schema_anthropic(llm_text *out) {
    LLM__SCOPED(llm_text_free) llm_text known = LLM__ZERO;
    const char *names;
    for (int i = 0; (names = llm__anthropic_names(i)) != NULL; i++) llm__schema_names(names, NULL, &known, out);
}

LLM_API void llm_openai_schema(llm_openai_kind kind, llm_text *out) {
    const int ollama = kind >= LLM_OPENAI_OLLAMA_SHOW && kind <= LLM_OPENAI_OLLAMA_EMBEDDINGS,
              anthropic = kind == LLM_OPENAI_MESSAGES || kind == LLM_OPENAI_COUNT_TOKENS;
    const char *prompt = anthropic ? "messages"
                         : ollama  ? NULL
                                   : llm__oai_kinds[kind].prompt,
               *needed = kind == LLM_OPENAI_TOKENIZE ? NULL : prompt;
    LLM__SCOPED(llm_text_free) llm_text known = LLM__ZERO;
    if (kind == LLM_OPENAI_CONTEXT_SAVE || kind == LLM_OPENAI_CONTEXT_LOAD) needed = "name";
    if (kind == LLM_OPENAI_LORA_LOAD || kind == LLM_OPENAI_LORA_UNLOAD) needed = "lora_name";
    llm_text_str(out, "{\"type\":\"object\"");
    if (needed) llm_text_format(out, ",'required':[%q]", needed);
    llm_text_str(out, ",\"properties\":{");
    if (ollama) llm__schema_ollama(kind, 0, out);
    if (anthropic) llm__schema_anthropic(out);
    for (int i = 0; i < LLM__COUNT(llm__oai_fields) && !ollama && !anthropic; i++) {
        const llm_option *p = &llm__oai_fields[i];
        if (p->group >= 0 && p->group & 1 << kind) llm__schema_names(p->names, p, &known, out);
    }
    llm_text_str(out, "}}");
}
