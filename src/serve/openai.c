#include "serve/openai.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/tokenizer.h"
#include "api/json.h"
#include "api/grammar.h"
#include "api/raw.h"
#include "api/options.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "base/json.h"
#include "chat/reasoning.h"
#include "serve/reports.h"
#include "serve/options.h"

LLM__PRIVATE int llm__oai_chats(const llm_openai_call *k) { return k->info.kind == LLM_OPENAI_CHAT || k->info.kind == LLM_OPENAI_RESPONSE; }
LLM__PRIVATE int llm__oai_is_ollama(const llm_openai_call *k) {
    return k->dialect >= LLM_OPENAI_OLLAMA_SHOW && k->dialect <= LLM_OPENAI_OLLAMA_EMBEDDINGS;
}
LLM__PRIVATE int llm__oai_is_anthropic(const llm_openai_call *k) {
    return k->dialect == LLM_OPENAI_MESSAGES || k->dialect == LLM_OPENAI_COUNT_TOKENS;
}
LLM__PRIVATE int llm__oai_pools(const llm_openai_call *k) {
    return k->info.kind == LLM_OPENAI_EMBEDDING || k->info.kind == LLM_OPENAI_CLASSIFY;
}

LLM__PRIVATE int llm__oai_ended(llm_finish finish) { return finish == LLM_FINISH_STOP || finish == LLM_FINISH_REPETITION; }
LLM__PRIVATE int llm__oai_ranks(const llm_openai_call *k) { return k->info.kind == LLM_OPENAI_RERANK || k->info.kind == LLM_OPENAI_SCORE; }

/* ---- errors
 * OpenAI's clients read {"error": {"message", "type", "param", "code"}} and the status: 400 and 404 are told to the user at once, 408, 409,
 * 429 and everything from 500 on are sent again, twice by default, after a pause. So a mistake that stays one must never be a 5xx, and a
 * full queue must be a 429. `param` is the field that was wrong, in the spelling of the body, and the sentence says its value and what was
 * expected. Only the first error of a body is told.
 *
 *   {"top_k": -3}        400  {"error":{"message":"top_k: -3, a whole number from -1 to 2147483647 was expected",
 *                              "type":"invalid_request_error","param":"top_k","code":null}}
 *   {"model": "gpt-9"}   404  {"error":{"message":"The model `gpt-9` does not exist.","type":"not_found_error",
 *                              "param":"model","code":"model_not_found"}}     where names are strict
 *   a full queue         429  ... "type":"rate_limit_error","param":"messages","code":"queue_full"
 *
 * Readers and checks below return 1, or 0 when they have kept an error; so they chain with && and the first that fails ends the chain. */

LLM__PRIVATE LLM__PRINTF(2, 3) int llm__oai_at(llm_openai_call *k, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(k->param, sizeof k->param, format, args);
    va_end(args);
    return 1;
}

LLM__PRIVATE LLM__PRINTF(3, 4) int llm__oai_bad(llm_openai_call *k, const char *param, const char *format, ...) {
    va_list args;
    if (param) llm__oai_at(k, "%.63s", param);
    int named = k->param[0] && (*format == ':' || (*format >= 'a' && *format <= 'z'));
    int n = named ? snprintf(k->message, sizeof k->message, "%s%s", k->param, *format == ':' ? "" : " ") : 0;
    va_start(args, format);
    vsnprintf(k->message + n, sizeof k->message - (size_t)n, format, args);
    va_end(args);
    k->info.status = 400;
    return 0;
}

LLM__PRIVATE int llm__oai_goes_on(const llm_openai_call *k, const llm_text *out) {
    const int64_t most = k->service.max_answer_bytes;
    if (k->info.stream) return 1; /* its pieces are small */
    return !__atomic_load_n(&k->cancelled, __ATOMIC_RELAXED) && (most <= 0 || (int64_t)out->len <= most);
}

LLM__PRIVATE int llm__oai_awaited(llm_openai_call *k) {
    if (!__atomic_load_n(&k->cancelled, __ATOMIC_RELAXED)) return 1;
    llm__oai_bad(k, "", "the request was cancelled");
    k->info.status = 499;
    return 0;
}

LLM__PRIVATE int llm__oai_blames(llm_openai_call *k, const char *sentence) {
    const size_t n = strcspn(sentence, ":");
    return sentence[n] && llm_options_find(&k->fields, sentence, n) && llm__oai_at(k, "%.*s", (int)n, sentence);
}

LLM__PRIVATE int llm__oai_failed(llm_openai_call *k, llm_result r, const char *param) {
    if (r == LLM_ERR_ARG && !param) llm__oai_blames(k, llm_last_error());
    llm__oai_bad(k, param, "%s", llm_last_error());
    if (r == LLM_ERR_LIMIT) k->code = "context_length_exceeded";
    if (r == LLM_ERR_BUSY) k->info.status = 429, k->code = "queue_full";
    if (r == LLM_ERR_NOMEM) k->info.status = 503;
    if (r == LLM_ERR_BACKEND || r == LLM_ERR_IO) k->info.status = 500;
    if (r == LLM_ERR_UNSUPPORTED && !k->param[0]) k->info.status = 501; /* no field of the body can help */
    return 0;
}

LLM__PRIVATE int llm__oai_refused(llm_openai_call *k, llm_result r, const char *param) {
    return llm__oai_failed(k, r == LLM_ERR_NOMEM ? r : LLM_ERR_ARG, param);
}

LLM__PRIVATE int llm__oai_replaced(llm_openai_call *k, const llm_text *body) {
    static const llm_json_limits limits = {64, 4 << 20, 1};
    llm_json *read = NULL;
    const llm_result r = body->failed ? llm__nomem() : llm_json_parse(body->data, body->len, &limits, &read);
    k->param[0] = 0;
    if (r) return llm__oai_refused(k, r, "");
    llm_json_free(k->body);
    k->body = read;
    return 1;
}

/* Writes the object of an error, without looking at the call: the server uses it for its own errors (a path that is none, a body too large)
 * too. The types are OpenAI's where it has one for the status; any other 4xx is invalid_request_error, any other 5xx server_error. */
LLM_API void llm_openai_error(llm_text *out, int status, const char *message, const char *param, const char *code) {
    static const struct {
        int status;
        const char *type;
    } types[] = {{401, "authentication_error"},
                 {403, "permission_error"},
                 {404, "not_found_error"},
                 {429, "rate_limit_error"},
                 {503, "overloaded_error"}};
    const char *type = status >= 500 ? "server_error" : "invalid_request_error";
    for (int i = 0; i < LLM__COUNT(types); i++)
        if (types[i].status == status) type = types[i].type;
    llm_text_format(out, "{'error':{'message':%q,'type':%q,'param':%q,'code':%q}}", message, type, param, code);
}

/* ---- reading fields Every parameter that some client of vLLM, OpenAI, FastDeploy or LMDeploy sends is a row of one table,
 * llm__oai_fields. Its rows are options like those of a command line (>>options): names, type, place in the call, range; those of sampling
 * are the very same. So one reader takes them all, and JSON's own types are asked for. Three kinds of rows set nothing here:
 *
 *   READ       a list or an object, or what depends on others: a function below reads it
 *   IGNORED    without meaning for us (`service_tier`)
 *   REFUSED    would change what the answer must be (`suffix`): an error
 *
 * A name has one spelling. One that is in no row, one that is ignored, and one that has no effect in this kind of call (the row's group)
 * go to the list of what was ignored; the server tells it in the header x-llm-ignored (>>reports). Of {"top_k": 40, "stop": "END",
 * "seed": null} the reader copies 40 to asked.top_k, makes stop a list of one, and takes seed, which is null, for not there. Fields that
 * are objects, or depend on others, have a function each, called one after the other when the plain ones are read (llm__oai_read):
 * stream_options asks for `stream`, tool_choice for `tools`. Ranges of numbers are checked here with the name that the client used; what
 * is left to check of the sampling parameters llm_sampling_check does, as for everyone. */

typedef char llm__oai_has_room[LLM__COUNT(llm__oai_fields) <= LLM__OAI_FIELDS ? 1 : -1]; /* for llm_openai_call.given */

LLM__PRIVATE void llm__oai_reports(llm_openai_call *k) {
    for (int v = llm_json_first(k->body, 0); v >= 0; v = llm_json_next(k->body, v)) {
        const llm__str key = llm__json_key(k->body, v);
        const llm_option *p = llm_json_type_of(k->body, v) == LLM_JSON_NULL ? NULL : llm__options_member(&k->fields, key, LLM_FROM_REQUEST);
        if (p && (p->kind == LLM_OPTION_IGNORED || !(p->group & 1 << k->info.kind))) llm__report_name(&k->ignored, key);
    }
}

LLM__PRIVATE void llm__oai_reports_in(llm_openai_call *k, const char *name, const char *known) {
    for (int v = llm_json_first(k->body, llm__oai_get(k->body, 0, name)); v >= 0; v = llm_json_next(k->body, v)) {
        const llm__str key = llm__json_key(k->body, v);
        char said[64];
        if (llm_json_type_of(k->body, v) == LLM_JSON_NULL || llm__alias_member(known, key)) continue;
        snprintf(said, sizeof said, "%s.%.40s", name, key.p);
        llm__report_name(&k->ignored, llm__lit(said));
    }
}

LLM__PRIVATE int llm__oai_get(const llm_json *d, int object, const char *name) {
    int v = llm_json_find(d, object, name);
    return llm_json_type_of(d, v) == LLM_JSON_NULL ? -1 : v;
}

LLM__PRIVATE int llm__oai_has(const llm_openai_call *k, const char *name) { return llm__oai_get(k->body, 0, name) >= 0; }

LLM__PRIVATE const char *llm__oai_word(const llm_json *d, int object, const char *name) {
    return llm_json_str(d, llm_json_find(d, object, name), NULL);
}

LLM__PRIVATE int llm__oai_ids(llm_openai_call *k, int list, llm_tokens *ids) {
    const llm_openai_service *s = &k->service;
    int32_t vocab = s->engine ? llm_logits_size(s->engine) : llm_vocab_size(s->model);
    for (int e = llm_json_first(k->body, list); e >= 0; e = llm_json_next(k->body, e)) {
        int64_t id;
        if (!llm_json_int(k->body, e, &id)) return llm__oai_bad(k, NULL, "must hold whole numbers, the ids of tokens");
        if (id < 0 || id >= vocab)
            return llm__oai_bad(
                k, NULL, ": token id %lld is out of vocabulary (0 to %d); a client that tokenizes itself must use this model's tokenizer",
                (long long)id, vocab - 1);
        llm_tokens_add(ids, (int32_t)id);
    }
    return ids->failed ? llm__oai_failed(k, llm__nomem(), NULL) : 1;
}

LLM__PRIVATE int llm__oai_stops(llm_openai_call *k) {
    const llm_option_list *const lists[] = {&k->stop, &k->bad_words};
    int v = llm__oai_get(k->body, 0, "stop_token_ids"), only = llm__oai_get(k->body, 0, "allowed_token_ids");
    for (int i = 0; i < 2; i++)
        for (int32_t j = 0; j < lists[i]->n; j++)
            if (strlen(lists[i]->items[j]) > LLM__OAI_STOP_LEN)
                return llm__oai_bad(k, i ? "bad_words" : "stop", ": an entry is longer than %d bytes", LLM__OAI_STOP_LEN);
    if (llm__oai_has(k, "stop") || llm__oai_has(k, "stop_words")) k->s.stop = k->stop.items, k->s.n_stop = k->stop.n;
    if (llm__oai_has(k, "bad_words")) k->s.bad_words = k->bad_words.items, k->s.n_bad_words = k->bad_words.n;
    if (only >= 0) {
        llm__oai_at(k, "allowed_token_ids");
        if (llm_json_type_of(k->body, only) != LLM_JSON_ARRAY || !llm_json_size(k->body, only))
            return llm__oai_bad(k, NULL, "must be a list of token ids, with one at least");
        if (!llm__oai_ids(k, only, &k->only_ids)) return 0;
        k->s.allowed_token_ids = k->only_ids.data;
        k->s.n_allowed_token_ids = (int64_t)k->only_ids.len;
    }
    if (v < 0) return 1;
    llm__oai_at(k, "stop_token_ids");
    if (llm_json_type_of(k->body, v) != LLM_JSON_ARRAY || llm_json_size(k->body, v) > LLM__OAI_STOPS)
        return llm__oai_bad(k, NULL, "must be a list of at most %d token ids", LLM__OAI_STOPS);
    if (!llm__oai_ids(k, v, &k->stop_ids)) return 0;
    k->s.stop_token_ids = k->stop_ids.data;
    k->s.n_stop_token_ids = (int32_t)k->stop_ids.len;
    return 1;
}

LLM__PRIVATE int llm__oai_bias(llm_openai_call *k) {
    const llm_json *d = k->body;
    int v = llm__oai_get(d, 0, "logit_bias");
    int32_t n = 0, vocab = k->service.engine ? llm_logits_size(k->service.engine) : llm_vocab_size(k->service.model);
    llm__oai_at(k, "logit_bias");
    if (v >= 0 && llm_json_type_of(d, v) != LLM_JSON_OBJECT) return llm__oai_bad(k, NULL, "must be an object of token ids and numbers");
    if (llm_json_size(d, v) > LLM__OAI_BIASES)
        return llm__oai_bad(k, NULL, ": at most %d entries, got %d", LLM__OAI_BIASES, llm_json_size(d, v));
    for (int e = llm_json_first(d, v); e >= 0; e = llm_json_next(d, e)) {
        llm__str key = llm__json_key(d, e);
        int64_t id;
        double x;
        if (!llm__parse_int(key.p, key.n, &id) || id < 0) return llm__oai_bad(k, NULL, ": the key %.32s is no token id", key.p);
        if (id >= vocab) return llm__oai_bad(k, NULL, ": token id %lld is out of vocabulary (0 to %d)", (long long)id, vocab - 1);
        if (!llm_json_num(d, e, &x) || x < -100 || x > 100)
            return llm__oai_bad(k, NULL, "of token %lld must be a number from -100 to 100", (long long)id);
        k->bias[n].id = (int32_t)id;
        k->bias[n++].bias = (float)x;
    }
    if (v >= 0) k->s.logit_bias = k->bias, k->s.n_logit_bias = n;
    return 1;
}

LLM__PRIVATE int llm__oai_stream_options(llm_openai_call *k) {
    static const char *const flag[] = {"include_usage", "continuous_usage_stats"};
    int *const to[] = {&k->include_usage, &k->continuous_usage}, v = llm__oai_get(k->body, 0, "stream_options");
    llm__oai_reports_in(k, "stream_options", k->info.kind == LLM_OPENAI_RESPONSE ? "" : "include_usage|continuous_usage_stats");
    if (k->info.stream && k->service.force_usage) k->include_usage = 1;
    if (v < 0 || k->info.kind == LLM_OPENAI_RESPONSE) return 1;
    llm__oai_at(k, "stream_options");
    if (!k->info.stream) return llm__oai_bad(k, NULL, "Stream options can only be defined when `stream=True`.");
    if (llm_json_type_of(k->body, v) != LLM_JSON_OBJECT) return llm__oai_bad(k, NULL, "must be an object");
    for (int i = 0; i < 2; i++) {
        int u = llm__oai_get(k->body, v, flag[i]);
        if (u >= 0 && !llm_json_bool(k->body, u, to[i])) return llm__oai_bad(k, NULL, ": %s must be true or false", flag[i]);
    }
    k->include_usage |= k->service.force_usage;
    return 1;
}

/* The form that an answer must have, from a value, of member `key` of field `name` or the field itself: a list or object as JSON, a text as
 * it is. Only one may be given, for an answer is held to one grammar. The text is only kept here: it is compiled in submit
 * (llm__oai_compile), since that may take a while. */
static int llm__oai_form(llm_openai_call *k, const char *name, const char *key, llm_grammar_kind kind, int v) {
    const llm__str s = llm__json_text(k->body, v);
    if (k->form.kind) return llm__oai_bad(k, name, "You can only use one kind of guided decoding: %s is given beside %s", key, k->form_key);
    if (!s.p && (kind == LLM_GRAMMAR_REGEX || kind == LLM_GRAMMAR_GBNF)) return llm__oai_bad(k, name, "must be a text");
    k->form.kind = kind;
    k->form_name = name;
    k->form_key = key;
    if (s.p) llm__add_str(&k->form_text, s);
    else llm_text_format(&k->form_text, "%j", k->body, v);
    return 1;
}

LLM__PRIVATE int llm__oai_forms(llm_openai_call *k, int object) {
    static const struct {
        const char *name, *inner; /* NULL: it does not exist there */
        llm_grammar_kind kind;
    } forms[] = {{"guided_json", "json", LLM_GRAMMAR_JSON_SCHEMA},
                 {"guided_regex", "regex", LLM_GRAMMAR_REGEX},
                 {"guided_choice", "choice", LLM_GRAMMAR_CHOICE},
                 {"guided_grammar", "grammar", LLM_GRAMMAR_GBNF},
                 {"guided_json_object", "json_object", LLM_GRAMMAR_JSON_OBJECT},
                 {"structural_tag", "structural_tag", LLM_GRAMMAR_STRUCTURAL_TAG},
                 {"json_schema", "json_schema", LLM_GRAMMAR_JSON_SCHEMA},
                 {"grammar", NULL, LLM_GRAMMAR_GBNF},
                 {"regex", NULL, LLM_GRAMMAR_REGEX}};
    for (int i = 0; i < LLM__COUNT(forms); i++) {
        const char *key = object ? forms[i].inner : forms[i].name, *name = object ? "structured_outputs" : key;
        int v = key ? llm__oai_get(k->body, object, key) : -1, on = 1;
        if (v >= 0 && forms[i].kind == LLM_GRAMMAR_JSON_OBJECT && !llm_json_bool(k->body, v, &on))
            return llm__oai_bad(k, name, "%s must be true or false", key);
        if (v >= 0 && on && !llm__oai_form(k, name, key, forms[i].kind, v)) return 0;
    }
    return 1;
}

LLM__PRIVATE int llm__oai_structured(llm_openai_call *k) {
    static const char known[] =
        "json|regex|choice|grammar|json_object|structural_tag|json_schema|whitespace_pattern|disable_any_whitespace|"
        "disable_fallback|disable_additional_properties";
    int v = llm__oai_get(k->body, 0, "structured_outputs"), no_space = 0;
    if (v < 0) return 1;
    if (llm_json_type_of(k->body, v) != LLM_JSON_OBJECT) return llm__oai_bad(k, "structured_outputs", "must be an object");
    for (int m = llm_json_first(k->body, v); m >= 0; m = llm_json_next(k->body, m)) {
        llm__str key = llm__json_key(k->body, m);
        if (!llm__alias_member(known, key)) return llm__oai_bad(k, "structured_outputs", ": %.64s is not known", key.p);
    }
    if (llm__oai_word(k->body, v, "whitespace_pattern")) k->form.space = llm__oai_word(k->body, v, "whitespace_pattern");
    if (llm_json_bool(k->body, llm_json_find(k->body, v, "disable_any_whitespace"), &no_space) && no_space) k->form.space = "";
    if (!llm__oai_forms(k, v)) return 0;
    return k->form.kind ||
           llm__oai_bad(k, "structured_outputs", ": one of json, regex, choice, grammar, json_object or structural_tag expected");
}

LLM__PRIVATE int llm__oai_format(llm_openai_call *k) {
    const llm_json *d = k->body;
    int response = k->info.kind == LLM_OPENAI_RESPONSE, text = llm__oai_get(d, 0, "text");
    int inside = response ? llm__oai_get(d, text, "format") : -1, v = inside >= 0 ? inside : llm__oai_get(d, 0, "response_format");
    const char *name = inside >= 0 ? "text.format" : "response_format", *type = llm__oai_word(d, v, "type");
    int schema = llm_json_find(d, llm_json_find(d, v, "json_schema"), "schema"), regex = llm_json_find(d, v, "regex_schema");
    if (response && text >= 0 && llm_json_type_of(d, text) != LLM_JSON_OBJECT) return llm__oai_bad(k, "text", "must be an object");
    if (v < 0 || (type && !strcmp(type, "text"))) return 1;
    if (schema < 0) schema = llm_json_find(d, v, "schema");
    if (type && !strcmp(type, "json_object"))
        return llm__oai_form(k, name, name, schema >= 0 ? LLM_GRAMMAR_JSON_SCHEMA : LLM_GRAMMAR_JSON_OBJECT, schema >= 0 ? schema : v);
    if (type && !strcmp(type, "structural_tag")) return llm__oai_form(k, name, name, LLM_GRAMMAR_STRUCTURAL_TAG, v);
    if (type && !strcmp(type, "regex_schema") && regex >= 0) return llm__oai_form(k, name, name, LLM_GRAMMAR_REGEX, regex);
    if (!type || strcmp(type, "json_schema"))
        return llm__oai_bad(k, name, ": the type must be text, json_object, json_schema, structural_tag or regex_schema");
    return schema >= 0 ? llm__oai_form(k, name, name, LLM_GRAMMAR_JSON_SCHEMA, schema)
                       : llm__oai_bad(k, name, ": %sschema is missing", response ? "" : "json_schema.");
}
