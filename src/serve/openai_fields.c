#include "serve/openai_fields.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/tokenizer.h"
#include "api/json.h"
#include "api/chat.h"
#include "api/options.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/subword.h"
#include "chat/reasoning.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "serve/reports.h"
#include "serve/options.h"
#include "serve/openai.h"

/* logprob_token_ids: of these tokens and not of the likeliest. Their number may stand where that of the likeliest does, as in vLLM. */
static int llm__oai_logprob_ids(llm_openai_call *k) {
    const int v = llm__oai_get(k->body, 0, "logprob_token_ids"), n = v >= 0 ? llm_json_size(k->body, v) : 0;
    if (v < 0) return 1;
    llm__oai_at(k, "logprob_token_ids");
    if (llm_json_type_of(k->body, v) != LLM_JSON_ARRAY || n < 1 || n > LLM__LOGPROB_IDS_MAX)
        return llm__oai_bad(k, NULL, "must be a list of 1 to %d token ids", LLM__LOGPROB_IDS_MAX);
    if (!k->want_logprobs) return llm__oai_bad(k, NULL, "needs `logprobs`: no log-probabilities were asked for");
    if (k->shown && k->shown != n)
        return llm__oai_bad(k, NULL, ": %d ids, and the %d likeliest were asked for; it is one or the other", n, (int)k->shown);
    if (!llm__oai_ids(k, v, &k->logprob_ids)) return 0;
    int32_t *id = k->logprob_ids.data, kept = 0;
    for (int i = 0, at; i < n; i++) { /* one that stands twice is told once: in a completion it is a key */
        for (at = 0; at < kept && id[at] != id[i];) at++;
        if (at == kept) id[kept++] = id[i];
    }
    k->s.logprob_token_ids = id;
    k->shown = k->s.n_logprob_token_ids = kept;
    k->s.logprobs = kept + 1;
    return 1;
}

LLM__PRIVATE int llm__oai_logprobs(llm_openai_call *k) {
    const llm_json *d = k->body;
    int v = llm__oai_get(d, 0, "logprobs"), top = llm__oai_chats(k) ? llm__oai_get(d, 0, "top_logprobs") : v,
        most = k->service.max_logprobs;
    int response = k->info.kind == LLM_OPENAI_RESPONSE;
    int64_t n = 0;
    if (!llm__oai_chats(k)) k->want_logprobs = v >= 0;
    else if (response && v >= 0)
        return llm__oai_bad(k, "logprobs", ": a response has them where `include` holds \"message.output_text.logprobs\"");
    else if (v >= 0 && !llm_json_bool(d, v, &k->want_logprobs)) return llm__oai_bad(k, "logprobs", "must be true or false");
    llm__oai_at(k, llm__oai_chats(k) ? "top_logprobs" : "logprobs");
    if (top >= 0 && !llm_json_int(d, top, &n)) return llm__oai_bad(k, NULL, "must be a whole number");
    if (response && n && !k->want_logprobs) return llm__oai_bad(k, NULL, ": `include` must hold \"message.output_text.logprobs\" too");
    if (!response && top >= 0 && !k->want_logprobs)
        return llm__oai_bad(k, NULL, "When using `top_logprobs`, `logprobs` must be set to true.");
    if (n < 0 || n > most) return llm__oai_bad(k, NULL, ": %lld, a whole number from 0 to %d was expected", (long long)n, most);
    if (k->prompt_logprobs >= 0 && k->info.stream)
        return llm__oai_bad(k, "prompt_logprobs", "`prompt_logprobs` are not available when `stream=True`.");
    k->shown = (int32_t)n;
    if (k->want_logprobs) k->s.logprobs = (int32_t)n + 1;
    k->s.prompt_logprobs = LLM__MAX(k->prompt_logprobs + 1, k->echo ? k->s.logprobs : 0);
    return llm__oai_logprob_ids(k);
}

/* The tags of thoughts as tokens, by which a bound knows them. */
static int llm__oai_tags(llm_openai_call *k) {
    const llm__tokenizer *t = k->service.model->source.tokenizer;
    const char *const tag[2] = {llm__reasoning_opening(k->service.reasoning), llm__reasoning_closing(k->service.reasoning)};
    for (int i = 0; i < 2; i++) {
        const llm_result r = llm__tokenizer_encode(t, tag[i], strlen(tag[i]), LLM_TOK_PARSE_SPECIAL, &k->tags);
        if (r || k->tags.failed) return llm__oai_failed(k, r ? r : llm__nomem(), NULL);
        if (!i) k->s.n_think_open = (int32_t)k->tags.len;
    }
    k->s.n_think_close = (int32_t)k->tags.len - k->s.n_think_open;
    k->s.think_open = k->tags.data;
    k->s.think_close = k->tags.data + k->s.n_think_open;
    return 1;
}

/* How long the model may think: what the request says, else the service. Where it does not think, that is told to have no effect. */
static int llm__oai_thinking_budget(llm_openai_call *k) {
    const int thinks = llm__oai_chats(k) && k->service.reasoning != LLM_REASONING_NONE, said = k->thinking_budget > -2;
    const char *names = LLM__OAI_BUDGETS;
    for (llm__str name; !thinks && said && llm__oai_chats(k) && llm__list_next(&names, "|", &name);)
        if (llm__json_member(k->body, 0, name) >= 0) llm__report_name(&k->ignored, name);
    if (k->s.use_beam_search && said && k->thinking_budget >= 0)
        return llm__oai_bad(k, "thinking_token_budget", ": a beam search has no bound on thoughts");
    if (thinks) k->s.thinking_tokens = said ? k->thinking_budget + 1 : k->s.use_beam_search ? 0 : k->service.thinking_tokens;
    return !k->s.thinking_tokens || llm__oai_tags(k);
}

LLM__PRIVATE int llm__oai_sampling(llm_openai_call *k) {
    const llm_json *d = k->body;
    llm_sampling *s = &k->s;
    int early = llm__oai_get(d, 0, "early_stopping"), b = 0;
    const char *never = llm_json_str(d, early, NULL);
    if (llm__oai_has(k, "top_p") && k->asked.top_p <= 0) return llm__oai_bad(k, "top_p", "must be in (0, 1], got 0");
    if (k->asked.use_beam_search) {
        s->temperature = s->min_p = s->presence_penalty = s->frequency_penalty = 0;
        s->top_p = s->repetition_penalty = 1;
        s->top_k = -1;
    }
    if (k->info.kind == LLM_OPENAI_RESPONSE) s->best_of = 1;
    llm__options_sampling(&k->fields, offsetof(llm_openai_call, asked), sizeof k->asked, s);
    if (k->info.kind == LLM_OPENAI_RESPONSE) s->n = 1;
    s->skip_special_tokens_off = !k->skip_special;
    if (k->info.stream && s->best_of > LLM__MAX(s->n, 1)) return llm__oai_bad(k, "best_of", "must equal n when stream is true");
    if (s->use_beam_search && k->info.stream)
        return llm__oai_bad(k, "stream", ": a beam search has no answer before its end, it cannot be streamed");
    if (s->use_beam_search && !s->best_of) s->best_of = s->n;
    if (!s->use_beam_search && llm__oai_has(k, "length_penalty") && (s->length_penalty < 1 || s->length_penalty > 1))
        return llm__oai_bad(k, "length_penalty", "is for beam search only");
    if (early >= 0 && !llm_json_bool(d, early, &b) && !(never && !strcmp(never, "never")))
        return llm__oai_bad(k, "early_stopping", "must be true, false or \"never\"");
    if ((b || never) && !s->use_beam_search) return llm__oai_bad(k, "early_stopping", "is for beam search only");
    s->early_stopping = never ? 2 : b;
    return llm__oai_thinking_budget(k);
}

LLM__PRIVATE int llm__oai_last_n(llm_openai_call *k) {
    const llm_sampling *s = &k->s;
    const int v = llm__oai_get(k->body, 0, "repeat_last_n");
    const int penalises = s->presence_penalty < 0 || s->presence_penalty > 0 || s->frequency_penalty < 0 || s->frequency_penalty > 0 ||
                          (s->repetition_penalty > 0 && (s->repetition_penalty < 1 || s->repetition_penalty > 1));
    int64_t n = -1;
    if (v < 0) return 1;
    if (!llm_json_int(k->body, v, &n) || n < -1) return llm__oai_bad(k, "repeat_last_n", "must be a whole number, at least -1");
    if (n >= 0 && penalises && (!k->service.engine || n < k->service.engine->p.max_len))
        return llm__oai_bad(k, "repeat_last_n", ": %lld, but penalties look at the whole text here: -1 was expected", (long long)n);
    llm__report_name(&k->ignored, llm__lit("repeat_last_n"));
    return 1;
}

LLM__PRIVATE int llm__oai_length(llm_openai_call *k) {
    int64_t n = k->max_completion_tokens, wide = k->service.max_tokens ? k->service.max_tokens : llm__oai_chats(k) ? -1 : 16;
    if (n >= 0 && k->max_tokens >= 0 && n != k->max_tokens) return llm__oai_bad(k, "max_tokens", "and max_completion_tokens differ");
    k->max_tokens = n = n >= 0 ? n : k->max_tokens >= 0 ? k->max_tokens : wide;
    if (n == 0 && !k->echo)
        return llm__oai_bad(k, k->info.kind == LLM_OPENAI_RESPONSE ? "max_output_tokens" : "max_tokens", "must be at least 1, got 0.");
    k->s.max_tokens = n > INT32_MAX ? -1 : n == 0 ? 1 : (int32_t)n; /* 0: score_only, see llm__oai_submit_ids */
    return 1;
}

LLM__PRIVATE int llm__oai_early_stop(llm_openai_call *k) {
    int v = llm__oai_get(k->body, 0, "early_stop_config"), said = llm__oai_has(k, "enable_early_stop"), flag = said && k->early_stop;
    const char *text = llm_json_str(k->body, v, NULL);
    llm_early_stop *e = &k->s.early_stop;
    LLM__SCOPED(llm_text_free) llm_text json = LLM__ZERO;
    if (text) llm_text_str(&json, text);
    else if (v >= 0) llm_text_format(&json, "%j", k->body, v);
    if (said) e->enable = flag;
    llm_result r = json.failed ? llm__nomem() : v >= 0 ? llm__early_stop_parse(NULL, json.data ? json.data : "", flag, e) : LLM_OK;
    if (r) return llm__oai_refused(k, r, "early_stop_config");
    if (k->s.use_beam_search && e->enable > 0 && (said || v >= 0))
        return llm__oai_bad(k, said ? "enable_early_stop" : "early_stop_config", ": early stop cannot be used with a beam search");
    if (v >= 0 && e->enable <= 0) llm__report_name(&k->ignored, llm__lit("early_stop_config")); /* it switches nothing on */
    const llm_engine *engine = k->service.engine;
    if (k->s.use_beam_search && (e->enable > 0 || (!e->enable && engine && engine->p.c.early_stop.enable)))
        llm__report_name(&k->ignored, llm__lit("enable_early_stop")); /* the server's */
    if (k->s.use_beam_search || ((said || v >= 0) && e->enable <= 0)) e->enable = -1;
    return 1;
}

LLM__PRIVATE int llm__oai_repetition(llm_openai_call *k) {
    static const llm_option table[] = {LLM_OPT_FIELD(llm_sampling, repetition_detection, max_pattern_size, 0, "max_pattern_size", NULL),
                                       LLM_OPT_FIELD(llm_sampling, repetition_detection, min_pattern_size, 0, "min_pattern_size", NULL),
                                       LLM_OPT_FIELD(llm_sampling, repetition_detection, min_count, 0, "min_count", NULL)};
    unsigned char given[LLM__COUNT(table)];
    int v = llm__oai_get(k->body, 0, "repetition_detection");
    LLM__SCOPED(llm_text_free) llm_text json = LLM__ZERO;
    LLM__SCOPED(llm_options_free) llm_options o = LLM__ZERO;
    if (v < 0) return 1;
    llm_text_format(&json, "%j", k->body, v);
    llm_result r = json.failed ? llm__nomem()
                               : llm__options_inner(&o, table, LLM__COUNT(table), &k->s, given, NULL, "repetition_detection", json.data,
                                                    LLM_FROM_REQUEST);
    if (r) return llm__oai_refused(k, r, "repetition_detection");
    if (!k->s.repetition_detection.max_pattern_size)
        llm__report_name(&k->ignored, llm__lit("repetition_detection")); /* it looks for nothing */
    return 1;
}
