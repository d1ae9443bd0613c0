/* The parts of OpenAI's requests and answers, one by one: fields of a body and what follows from them, errors, log-probabilities, calls of
 * tools, events. Over a tiny checkpoint. (Whole calls: test_openai.c.) */
#include "../test.h"
#include "serve/options.h"
#include "serve/openai.h"
#include "serve/openai_body.h"
#include "serve/openai_choices.h"
#include "serve/openai_fields.h"
#include "serve/openai_messages.h"
#include "serve/openai_parts.h"
#include "serve/openai_stream.h"
#include "serve/openai_submit.h"
#include "serve/openai_tools.h"

static llm_openai_service parts_service;

static llm_openai_call *parts_begin(llm_openai_kind kind, const char *body) {
    return llm_openai_begin(&parts_service, kind, body, strlen(body), NULL);
}

/* A chat of one message with these members besides. */
static llm_openai_call *parts_chat(const char *members) {
    char body[2000];
    snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]%s%s}", *members ? "," : "", members);
    return parts_begin(LLM_OPENAI_CHAT, body);
}

static llm_openai_call *parts_prompt(const char *members) {
    char body[2000];
    snprintf(body, sizeof body, "{\"prompt\":\"a\"%s%s}", *members ? "," : "", members);
    return parts_begin(LLM_OPENAI_COMPLETION, body);
}

static int parts_is(llm_text *t, const char *want) {
    const int ok = t->data && !strcmp(t->data, want);
    if (!ok) printf("  %s\n  %s expected\n", t->data ? t->data : "", want);
    t->len = 0;
    return ok;
}

/* ---- errors ---- */

/* What a result of the library is as HTTP; which field an error is about. */
static void parts_errors(void) {
    static const struct {
        llm_result r;
        int failed, refused;
    } rows[] = {{LLM_ERR_ARG, 400, 400},  {LLM_ERR_LIMIT, 400, 400},   {LLM_ERR_UNSUPPORTED, 400, 400},
                {LLM_ERR_BUSY, 429, 400}, {LLM_ERR_BACKEND, 500, 400}, {LLM_ERR_NOMEM, 503, 503}};
    for (int i = 0; i < LLM__COUNT(rows); i++)
        for (int refused = 0; refused < 2; refused++) {
            llm_openai_call *k = parts_chat("");
            CHECK(!llm_openai_get_info(k)->status || llm_openai_get_info(k)->status == 200);
            CHECK((refused ? llm__oai_refused : llm__oai_failed)(k, rows[i].r, "field") == 0);
            if (!CHECK(k->info.status == (refused ? rows[i].refused : rows[i].failed) && !strcmp(k->param, "field")))
                printf("  %d: %d\n", (int)rows[i].r, k->info.status);
            llm_openai_free(k);
        }
    llm_openai_call *k = parts_chat("");
    CHECK(llm__oai_at(k, "stop[%d]", 3) == 1 && !strcmp(k->param, "stop[3]"));
    CHECK(llm__oai_bad(k, NULL, "must be %d bytes", 4) == 0 && !strcmp(k->message, "stop[3] must be 4 bytes") && k->info.status == 400);
    llm_openai_free(k);
    k = parts_chat("");
    CHECK(!llm__oai_bad(k, "seed", "Nothing of that kind.") && !strcmp(k->message, "Nothing of that kind.") && !strcmp(k->param, "seed"));
    llm_openai_free(k);
    k = parts_chat("");
    CHECK(!llm__oai_bad(k, "seed", ": a number was expected") && !strcmp(k->message, "seed: a number was expected"));
    llm_openai_free(k);
}

/* ---- fields ---- */

static void parts_members(void) {
    llm_openai_call *k = parts_chat("\"user\":\"me\",\"seed\":null,\"nothing\":5");
    const int messages = llm__oai_get(k->body, 0, "messages");
    CHECK(messages > 0 && llm__oai_get(k->body, 0, "seed") == -1 && llm__oai_get(k->body, 0, "absent") == -1);
    CHECK(llm__oai_has(k, "user") && !llm__oai_has(k, "seed") && !llm__oai_has(k, "absent"));
    CHECK(!strcmp(llm__oai_word(k->body, 0, "user"), "me") && !llm__oai_word(k->body, 0, "nothing") &&
          !llm__oai_word(k->body, 0, "absent"));
    CHECK(llm__oai_chats(k) && k->messages == messages && k->chat == k->body);
    llm_openai_free(k);
    k = parts_prompt("");
    CHECK(!llm__oai_chats(k) && k->messages == -1);
    llm_openai_free(k);
}

static void parts_refused(llm_openai_call *k, const char *param, const char *words) {
    if (!CHECK(k->info.status == 400 && !strcmp(k->param, param) && strstr(k->message, words)))
        printf("  %d %s: %s, \"%s\" expected\n", k->info.status, k->param, k->message, words);
    llm_openai_free(k);
}

/* A member has one spelling: others are as unknown as any name, and told. Of two names of one member neither is passed over. */
static void parts_spellings(void) {
    llm_openai_call *k =
        parts_chat("\"temperature\":0,\"Temperature\":1,\"Stop\":[\"END\"],\"response-format\":{\"type\":\"x\"},\"Tools\":[5],"
                   "\"stream_options\":null,\"top-k\":3,\"_n\":4");
    CHECK(k->info.status == 200 && k->s.temperature == 0 && !k->s.n_stop && k->s.top_k != 3 && k->s.max_tokens != 4);
    if (!CHECK(!strcmp(k->info.ignored, "Temperature, Stop, response-format, Tools, top-k, _n"))) printf("  %s\n", k->info.ignored);
    llm_openai_free(k);
    k = parts_chat("\"max_tokens\":4,\"max_new_tokens\":4,\"n_predict\":null,\"stop\":\"a\",\"stop_words\":[\"b\"]");
    CHECK(k->info.status == 200 && k->s.max_tokens == 4 && k->s.n_stop == 2);
    llm_openai_free(k);
    parts_refused(parts_chat("\"max_tokens\":4,\"max_new_tokens\":64"), "max_new_tokens",
                  "max_new_tokens: 64, but max_tokens, another name");
    parts_refused(parts_chat("\"repeat_penalty\":1.5,\"repetition_penalty\":1"), "repetition_penalty", "but repeat_penalty, another name");
    parts_refused(parts_chat("\"structured_outputs\":{\"Regex\":\"a\"}"), "structured_outputs", "Regex is not known");
}

static void parts_lists(void) {
    llm_openai_call *k =
        parts_chat("\"stop\":[\"x\",\"yz\"],\"stop_token_ids\":[5,511],\"logit_bias\":{\"7\":-100,\"8\":2.5},\"bad_words\":[\"w\"]");
    CHECK(k->s.n_stop == 2 && !strcmp(k->s.stop[1], "yz") && k->s.n_stop_token_ids == 2 && k->s.stop_token_ids[1] == 511 &&
          k->s.n_bad_words == 1);
    CHECK(k->s.n_logit_bias == 2 && k->s.logit_bias[0].id == 7 && k->s.logit_bias[0].bias == -100 && k->s.logit_bias[1].bias == 2.5f);
    llm_tokens ids = LLM__ZERO;
    const int list = llm__oai_get(k->body, 0, "stop_token_ids");
    CHECK(llm__oai_ids(k, list, &ids) && llm__oai_ids(k, list, &ids) && ids.len == 4 && ids.data[2] == 5); /* appended */
    CHECK(llm__oai_stops(k) && llm__oai_bias(k) && k->s.n_logit_bias == 2);
    llm_tokens_free(&ids);
    llm_openai_free(k);
    k = parts_chat("\"stop\":\"x\"");
    CHECK(k->s.n_stop == 1 && !strcmp(k->s.stop[0], "x"));
    llm_openai_free(k);
    parts_refused(parts_chat("\"stop_token_ids\":[5,512]"), "stop_token_ids", "512");
    parts_refused(parts_chat("\"stop_token_ids\":[-1]"), "stop_token_ids", "-1");
    parts_refused(parts_chat("\"stop_token_ids\":7"), "stop_token_ids", "list");
    parts_refused(parts_chat("\"logit_bias\":{\"7\":101}"), "logit_bias", "of token 7 must be a number from -100 to 100");
    parts_refused(parts_chat("\"logit_bias\":{\"7\":\"x\"}"), "logit_bias", "number");
    parts_refused(parts_chat("\"logit_bias\":{\"x\":1}"), "logit_bias", "no token id");
    parts_refused(parts_chat("\"logit_bias\":[]"), "logit_bias", "object");
}

/* How long an answer may be: the first that is there. */
static void parts_length(void) {
    static const struct {
        int chat;
        const char *members;
        int32_t max_tokens, service;
    } rows[] = {{1, "", -1, 0},
                {0, "", 16, 0},
                {1, "\"max_tokens\":7", 7, 0},
                {1, "\"max_tokens\":7,\"max_completion_tokens\":7", 7, 0},
                {1, "\"max_completion_tokens\":9", 9, 3},
                {0, "\"max_tokens\":3", 3, 5},
                {0, "", 5, 5},
                {1, "", 5, 5}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        parts_service.max_tokens = rows[i].service;
        llm_openai_call *k = rows[i].chat ? parts_chat(rows[i].members) : parts_prompt(rows[i].members);
        if (!CHECK(k->s.max_tokens == rows[i].max_tokens && !k->failed)) printf("  %s: %d\n", rows[i].members, k->s.max_tokens);
        CHECK(llm__oai_length(k) && k->s.max_tokens == rows[i].max_tokens);
        llm_openai_free(k);
    }
    parts_service.max_tokens = 0;
    parts_refused(parts_prompt("\"max_tokens\":0"), "max_tokens", "0");
    parts_refused(parts_chat("\"max_tokens\":7,\"max_completion_tokens\":9"), "max_tokens", "and max_completion_tokens differ");
    llm_openai_call *k = parts_prompt("\"max_tokens\":0,\"echo\":true");
    CHECK((!k->info.status || k->info.status == 200) && k->s.max_tokens == 1); /* one row is drawn, and not said */
    llm_openai_free(k);
}

/* Switches and numbers of log-probabilities, as openai_fields.h has them. */
static void parts_logprobs(void) {
    static const struct {
        int chat;
        const char *members;
        int32_t logprobs, shown;
    } rows[] = {{1, "\"logprobs\":true,\"top_logprobs\":3", 4, 3},
                {1, "\"logprobs\":true", 1, 0},
                {1, "\"logprobs\":false", 0, 0},
                {1, "", 0, 0},
                {0, "\"logprobs\":3", 4, 3},
                {0, "\"logprobs\":0", 1, 0},
                {0, "", 0, 0}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_openai_call *k = rows[i].chat ? parts_chat(rows[i].members) : parts_prompt(rows[i].members);
        if (!CHECK(k->s.logprobs == rows[i].logprobs && (!k->s.logprobs || k->shown == rows[i].shown)))
            printf("  %s: %d %d\n", rows[i].members, k->s.logprobs, k->shown);
        k->s.logprobs = 0;
        CHECK(llm__oai_logprobs(k) && k->s.logprobs == rows[i].logprobs);
        llm_openai_free(k);
    }
    llm_openai_call *k = parts_prompt("\"logprobs\":2,\"echo\":true");
    CHECK(k->s.prompt_logprobs == 3 && k->s.logprobs == 3);
    llm_openai_free(k);
    parts_refused(parts_chat("\"logprobs\":true,\"top_logprobs\":21"), "top_logprobs", "21");
    parts_refused(parts_chat("\"top_logprobs\":2"), "top_logprobs", "logprobs");
    parts_refused(parts_prompt("\"logprobs\":21"), "logprobs", "21");
    k = parts_chat("\"logprobs\":true,\"logprob_token_ids\":[5,9]");
    CHECK(k->s.logprobs == 3 && k->shown == 2 && k->s.n_logprob_token_ids == 2 && k->s.logprob_token_ids[1] == 9);
    llm_openai_free(k);
    k = parts_prompt("\"logprobs\":0,\"logprob_token_ids\":[5,9,5,5,7]");
    CHECK(k->s.logprobs == 4 && k->shown == 3 && k->s.n_logprob_token_ids == 3 && k->s.logprob_token_ids[2] == 7);
    llm_openai_free(k);
    parts_refused(parts_chat("\"logprobs\":true,\"top_logprobs\":3,\"logprob_token_ids\":[5,9]"), "logprob_token_ids", "likeliest");
}

/* What the body says over the service's defaults; a beam search is neutral; early stop over the service's. */
static void parts_sampling(void) {
    const llm_sampling before = parts_service.defaults;
    parts_service.defaults.temperature = 0.5f, parts_service.defaults.top_k = 9, parts_service.defaults.min_p = 0.25f;
    llm_openai_call *k = parts_chat("\"temperature\":0,\"seed\":3,\"n\":2");
    CHECK(k->s.temperature == 0 && k->s.top_k == 9 && k->s.min_p == 0.25f && k->s.has_seed && k->s.seed == 3 && k->s.n == 2);
    CHECK(llm__oai_sampling(k) && k->s.temperature == 0 && k->s.top_k == 9);
    llm_openai_free(k);
    k = parts_chat("\"use_beam_search\":true,\"best_of\":3");
    CHECK(!k->failed && k->s.use_beam_search && k->s.temperature == 0 && k->s.top_k <= 0 && k->s.min_p == 0 && k->s.best_of == 3);
    llm_openai_free(k);
    parts_refused(parts_chat("\"use_beam_search\":true,\"best_of\":3,\"top_k\":5"), "use_beam_search", "top_k");
    parts_service.defaults = before;
    k = parts_chat("\"enable_early_stop\":true,\"early_stop_config\":{\"window_size\":50,\"threshold\":0.5}");
    CHECK(k->s.early_stop.enable && k->s.early_stop.window_size == 50 && k->s.early_stop.threshold == 0.5f && llm__oai_early_stop(k));
    llm_openai_free(k);
    parts_refused(parts_chat("\"enable_early_stop\":true,\"early_stop_config\":{\"window_size\":-1}"), "early_stop_config", "window_size");
    k = parts_chat("\"repetition_detection\":{\"max_pattern_size\":20,\"min_pattern_size\":3,\"min_count\":4}");
    CHECK(k->s.repetition_detection.max_pattern_size == 20 && k->s.repetition_detection.min_pattern_size == 3 &&
          k->s.repetition_detection.min_count == 4 && llm__oai_repetition(k) && !k->ignored.len);
    llm_openai_free(k);
    parts_refused(parts_chat("\"repetition_detection\":{\"max_pattern_size\":-1,\"min_count\":4}"), "repetition_detection",
                  "max_pattern_size");
    parts_refused(parts_chat("\"repetition_detection\":{\"max_pattern_size\":4}"), "repetition_detection", "min_count");
    parts_refused(parts_chat("\"repetition_detection\":{\"max_pattern_size\":4,\"min_pattern_size\":5,\"min_count\":2}"),
                  "repetition_detection", "at most");
    parts_refused(parts_chat("\"repetition_detection\":{\"mode\":\"occurrence\"}"), "repetition_detection", "mode");
    parts_refused(parts_chat("\"repetition_detection\":5"), "repetition_detection", "5");
    k = parts_chat("\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    CHECK(k->include_usage && !k->continuous_usage && k->info.stream && llm__oai_stream_options(k));
    llm_openai_free(k);
    parts_refused(parts_chat("\"stream_options\":{\"include_usage\":true}"), "stream_options", "stream=True");
}

/* One form, whichever way it is asked for. */
static void parts_forms(void) {
    static const struct {
        const char *members;
        int kind;
        const char *text, *name;
    } rows[] = {{"", 0, "", NULL},
                {"\"response_format\":{\"type\":\"text\"}", 0, "", NULL},
                {"\"response_format\":{\"type\":\"json_object\"}", LLM_GRAMMAR_JSON_OBJECT, NULL, "response_format"},
                {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{\"type\":\"null\"}}}",
                 LLM_GRAMMAR_JSON_SCHEMA, "{\"type\":\"null\"}", "response_format"},
                {"\"guided_regex\":\"[0-9]+\"", LLM_GRAMMAR_REGEX, "[0-9]+", "guided_regex"},
                {"\"structured_outputs\":{\"regex\":\"a|b\"}", LLM_GRAMMAR_REGEX, "a|b", NULL},
                {"\"guided_json\":{\"type\":\"null\"}", LLM_GRAMMAR_JSON_SCHEMA, "{\"type\":\"null\"}", "guided_json"},
                {"\"guided_json_object\":false", 0, "", NULL},
                {"\"guided_grammar\":\"root ::= \\\"a\\\"\"", LLM_GRAMMAR_GBNF, "root ::= \"a\"", "guided_grammar"}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_openai_call *k = parts_chat(rows[i].members);
        if (!CHECK(!k->failed && (int)k->form.kind == rows[i].kind &&
                   (!rows[i].kind || !rows[i].text || !strcmp(k->form_text.data, rows[i].text))))
            printf("  %s: kind %d, %s\n", rows[i].members, (int)k->form.kind, k->message);
        if (rows[i].name) CHECK(k->form_name && strstr(k->form_name, rows[i].name));
        if (!rows[i].kind) CHECK(llm__oai_forms(k, 0) && llm__oai_structured(k) && llm__oai_format(k) && !k->form.kind);
        llm_openai_free(k);
    }
    parts_refused(parts_chat("\"guided_regex\":\"a\",\"guided_json\":{}"), "guided_regex", "");
    parts_refused(parts_chat("\"response_format\":{\"type\":\"xml\"}"), "response_format", "the type must be text, json_object");
    parts_refused(parts_chat("\"structured_outputs\":{}"), "structured_outputs", "");
}

/* ---- what stands in answers ---- */

static void parts_tokens(void) {
    llm_text bytes = LLM__ZERO, out = LLM__ZERO;
    llm_openai_call *k = parts_prompt("");
    char want[64];
    int whole = 0, half = 0;
    for (int32_t id = 0; id < 512; id++) {
        llm_text plain = LLM__ZERO, quoted = LLM__ZERO;
        llm_token_bytes(parts_service.model, id, &plain);
        out.len = 0;
        llm__oai_token(k, id, &bytes, &out);
        CHECK(bytes.len == plain.len && (!plain.len || !memcmp(bytes.data, plain.data, plain.len)));
        if (llm__utf8_valid(plain.data, plain.len) == plain.len) {
            llm_text_format(&quoted, "%Q", plain.data, plain.len);
            CHECK(!strcmp(out.data, quoted.data)), whole++;
        } else if (plain.len == 1) {
            snprintf(want, sizeof want, "\"bytes:\\\\x%02X\"", (unsigned char)plain.data[0]);
            CHECK(!strcmp(out.data, want)), half++;
        }
        llm_text_free(&plain), llm_text_free(&quoted);
    }
    CHECK(whole > 200 && half > 50);
    k->as_ids = 1, out.len = 0;
    llm__oai_token(k, 77, &bytes, &out);
    CHECK(parts_is(&out, "\"token_id:77\""));
    llm_text_free(&bytes), llm_text_free(&out);
    llm_openai_free(k);
}

/* Two tokens behind an echoed prompt of two, with alternatives; the same as a chat's objects. */
static void parts_rows(void) {
    static const int32_t prompt[2] = {40, 41}, said[2] = {42, 43}, counts[2] = {2, 1};
    static const float prompt_logprobs[2] = {0, -1.5f}, logprobs[2] = {-0.5f, -INFINITY};
    static const llm_token_logprob top[4] = {{44, -0.25f}, {42, -0.5f}, {45, -0.125f}, {0, 0}};
    llm_openai_call *k = parts_prompt("\"logprobs\":2");
    llm_text out = LLM__ZERO;
    llm_output echo = LLM__ZERO, o = LLM__ZERO;
    char t[6][24], want[1000];
    k->as_ids = 1;
    for (int i = 0; i < 6; i++) snprintf(t[i], sizeof t[i], "token_id:%d", 40 + i);
    echo.token_ids = prompt, echo.n_token_ids = 2, echo.logprobs = prompt_logprobs;
    o.token_ids = said, o.n_token_ids = 2, o.logprobs = logprobs, o.top = top, o.top_counts = counts, o.top_stride = 2;
    int64_t chars = 0;
    llm__oai_lists(k, &echo, &o, &chars, &out);
    int at[4] = {0};
    for (int i = 1; i < 4; i++) {
        llm_text bytes = LLM__ZERO;
        llm_token_bytes(parts_service.model, 39 + i, &bytes);
        at[i] = at[i - 1] + (int)llm_text_chars(bytes.data, bytes.len);
        llm_text_free(&bytes);
    }
    snprintf(want, sizeof want,
             "{\"tokens\":[\"%s\",\"%s\",\"%s\",\"%s\"],\"token_logprobs\":[null,-1.5,-0.5,-9999],\"top_logprobs\":[null,{\"%s\":-1.5},"
             "{\"%s\":-0.25,\"%s\":-0.5},{\"%s\":-0.125,\"%s\":-9999}],\"text_offset\":[0,%d,%d,%d]}",
             t[0], t[1], t[2], t[3], t[1], t[4], t[2], t[5], t[3], at[1], at[2], at[3]);
    CHECK(parts_is(&out, want));
    o.n_token_ids = 1;
    llm__oai_chat_rows(k, &o, &out);
    CHECK(!strncmp(out.data, "{\"token\":\"token_id:42\",\"logprob\":-0.5,\"bytes\":[", 46) &&
          strstr(out.data, "\"top_logprobs\":[{\"token\":\"token_id:44\",\"logprob\":-0.25,") &&
          strstr(out.data, "{\"token\":\"token_id:42\",\"logprob\":-0.5,"));
    llm_event e = LLM__ZERO;
    e.id = 43, e.logprob = -2, e.top = top, e.n_top = 2;
    const llm_output row = llm__oai_event_rows(&e);
    CHECK(row.n_token_ids == 1 && row.token_ids[0] == 43 && row.logprobs[0] == -2 && row.top == top && row.top_counts[0] == 2);
    CHECK(llm__oai_is_end(k, LLM_FINISH_STOP, 43, 43) && !llm__oai_is_end(k, LLM_FINISH_LENGTH, 43, 43) &&
          !llm__oai_is_end(k, LLM_FINISH_STOP, -1, 43) && llm__oai_is_end(k, LLM_FINISH_STOP, -1, 1));
    out.len = 0, k->created = 5, k->model = "m\"", snprintf(k->id, sizeof k->id, "cmpl-1"),
    snprintf(k->service.fingerprint, sizeof k->service.fingerprint, "fp");
    llm__oai_head(k, "text_completion", &out);
    CHECK(parts_is(
        &out,
        "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":5,\"model\":\"m\\\"\",\"system_fingerprint\":\"fp\",\"choices\":["));
    llm_text_free(&out);
    llm_openai_free(k);
}

/* How a choice of a call that has run says that it ended. */
static void parts_choice(const llm_openai_call *k) {
    static const struct {
        llm_finish finish;
        const char *reason;
        int32_t id;
        const char *want;
    } rows[] = {{LLM_FINISH_STOP, "\n", -1, "\"finish_reason\":\"stop\",\"stop_reason\":\"\\n\""},
                {LLM_FINISH_STOP, NULL, 9, "\"finish_reason\":\"stop\",\"stop_reason\":9"},
                {LLM_FINISH_STOP, NULL, -1, "\"finish_reason\":\"stop\",\"stop_reason\":null"},
                {LLM_FINISH_LENGTH, NULL, -1, "\"finish_reason\":\"length\",\"stop_reason\":null"}};
    llm_text out = LLM__ZERO;
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_output end = LLM__ZERO;
        llm__oai_piece p = LLM__ZERO;
        end.finish = rows[i].finish, end.stop_reason = rows[i].reason, end.stop_id = rows[i].id;
        p.at = 3, p.end = &end, out.len = 0;
        llm__oai_write_choice(k, &p, &out);
        if (!CHECK(strstr(out.data, "\"index\":3") && strstr(out.data, rows[i].want))) printf("  %s\n", out.data);
    }
    llm_text_free(&out);
}

/* A call that runs to its end: what it used, its times, its prompt's log-probabilities. */
static void parts_run(void) {
    llm_text out = LLM__ZERO;
    llm_request_metrics m;
    llm_openai_call *k = parts_begin(
        LLM_OPENAI_COMPLETION, "{\"prompt\":[[5,6,7],[8]],\"max_tokens\":3,\"n\":2,\"seed\":1,\"ignore_eos\":true,\"prompt_logprobs\":1}");
    llm_openai_submit(k);
    CHECK(k->info.n_requests == 2 && k->info.n_choices == 2);
    while (!k->info.done) {
        llm_engine_step(parts_service.engine, NULL);
        while (llm_openai_next(k, &out)) {}
    }
    CHECK(k->info.status == 200 && strstr(out.data, "\"prompt_logprobs\":[null,{\""));
    out.len = 0;
    llm__oai_usage(k, &out);
    CHECK(parts_is(
        &out,
        ",\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":12,\"total_tokens\":16,\"prompt_tokens_details\":{\"cached_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":0}}"));
    llm__oai_metrics(k, k->request[0], &out);
    llm_request_get_metrics(k->request[0], &m);
    CHECK(strstr(out.data, ",\"metrics\":{\"arrival_time\":1") && m.finish_time >= m.inference_start_time &&
          m.inference_start_time >= m.arrival_time && m.first_token_time > 0 && m.first_token_time <= m.model_forward_time);
    const llm_output rows = llm__oai_prompt_rows(k->request[0]);
    CHECK(rows.n_token_ids == 3 && rows.token_ids[2] == 7 && rows.logprobs && rows.logprobs[1] < 0);
    out.len = 0;
    llm__oai_prompt_logprobs(k, k->request[0], &out);
    CHECK(!strncmp(out.data, ",\"prompt_logprobs\":[null,{", 26) && strstr(out.data, "\"6\":{\"logprob\":") &&
          strstr(out.data, "\"decoded_token\":") && strstr(out.data, ",\"rank\":"));
    CHECK(!llm__oai_failure(k));
    parts_choice(k);
    llm_openai_free(k);
    llm_text_free(&out);
}

/* Calls of tools: ids count on; whole, announced, and in pieces, as openai_choices.h has them. */
static void parts_calls(void) {
    llm__oai_choice c;
    memset(&c, 0, sizeof c);
    llm_text out = LLM__ZERO;
    char id[32], next[32], want[400];
    llm_tool_call call = LLM__ZERO;
    llm_text_str(&call.name, "weather"), llm_text_str(&call.arguments, "{\"city\": \"Rome\"}");
    c.call_id = 0x9c;
    llm__oai_call_id(&c, 0, id), llm__oai_call_id(&c, 1, next);
    CHECK(!strncmp(id, "call_", 5) && !strncmp(next, "call_", 5) && strcmp(id, next) != 0);
    llm__oai_write_call(&c, 0, &call, 0, 1, 0, 16, &out);
    snprintf(want, sizeof want,
             "{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"weather\",\"arguments\":\"{\\\"city\\\": \\\"Rome\\\"}\"}}",
             id);
    CHECK(parts_is(&out, want));
    llm__oai_write_call(&c, 1, &call, 1, 1, 0, 0, &out);
    snprintf(want, sizeof want, "{\"index\":1,\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"weather\",\"arguments\":\"\"}}",
             next);
    CHECK(parts_is(&out, want));
    llm__oai_write_call(&c, 0, &call, 1, 0, 9, 15, &out);
    CHECK(parts_is(&out, "{\"index\":0,\"function\":{\"arguments\":\"\\\"Rome\\\"\"}}"));
    llm_text_free(&out), llm_text_free(&call.name), llm_text_free(&call.arguments);
}

/* News of calls while an answer comes: each is announced once, then its arguments byte after byte, then the next. */
static void parts_news(void) {
    static const char answer[] =
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
    llm__oai_choice c;
    memset(&c, 0, sizeof c);
    llm_text content = LLM__ZERO, told[2] = {LLM__ZERO, LLM__ZERO};
    char names[8] = "";
    c.tools = llm_tool_parser_create(llm_tools_named("hermes"), 1, NULL, -1, 0);
    if (!CHECK(c.tools != NULL)) return;
    for (size_t i = 0; i <= sizeof answer - 1; i++) {
        const llm_tool_call *call;
        int fresh;
        size_t from;
        if (i < sizeof answer - 1) llm_tool_parser_push(c.tools, answer + i, 1, &content);
        else llm_tool_parser_end(c.tools, &content);
        while ((call = llm__oai_call_news(&c, &fresh, &from)) != NULL) {
            if (fresh) strncat(names, call->name.data, 1), CHECK(from == 0 && c.told == 0);
            else llm_text_add(&told[c.n_told - 1], call->arguments.data + from, c.told - from);
        }
    }
    CHECK(!strcmp(names, "fg") && parts_is(&told[0], "{\"a\": 1}") && parts_is(&told[1], "{}"));
    llm_tool_parser_free(c.tools);
    llm_text_free(&content), llm_text_free(&told[0]), llm_text_free(&told[1]);
}

/* ---- prompts, names ---- */

static void parts_prompts(void) {
    llm_tokens ids = LLM__ZERO, plain = LLM__ZERO;
    llm_openai_call *k = parts_begin(LLM_OPENAI_COMPLETION, "{\"prompt\":[\"ab\",\"c\"],\"x\":[3,4,5]}");
    const int list = llm__oai_get(k->body, 0, "prompt"), numbers = llm__oai_get(k->body, 0, "x");
    CHECK(llm__oai_prompt_ids(k, llm_json_first(k->body, list), 0, &ids) && !llm_tokenize(parts_service.model, "ab", 2, 0, &plain) &&
          ids.len == plain.len && !memcmp(ids.data, plain.data, ids.len * sizeof *ids.data));
    ids.len = 0;
    CHECK(llm__oai_prompt_ids(k, numbers, 1, &ids) && ids.len == 3 && ids.data[0] == 3); /* ids are taken as they are */
    CHECK(llm__oai_submit_all(k) && k->info.n_requests == 2);
    llm_openai_free(k);
    llm_engine_step(parts_service.engine, NULL);
    k = parts_chat("\"chat_template_kwargs\":{\"extra\":1}");
    CHECK(llm__oai_render(k) && k->text.len > 0 && strchr(k->text.data, 'a'));
    CHECK(llm__oai_messages(k) && llm__oai_tools(k) && k->tools == -1 && llm__oai_tool_choice(k) && llm__oai_tool_form(k) && !k->form.kind);
    llm_openai_free(k);
    k = parts_begin(LLM_OPENAI_RESPONSE, "{\"input\":\"a\",\"include\":[\"message.output_text.logprobs\"]}");
    CHECK(!k->failed && k->s.logprobs > 0 && llm__oai_response_fields(k) && llm__oai_chats(k));
    llm_openai_free(k);
    llm_tokens_free(&ids), llm_tokens_free(&plain);
}

static void parts_names(void) {
    static const char *const served[] = {"first", "second"};
    llm_openai_service s = parts_service;
    CHECK(llm__oai_is_base(&s, llm__lit("")) && llm__oai_is_base(&s, llm__lit("default")) && llm__oai_is_base(&s, llm__lit("null")) &&
          !llm__oai_is_base(&s, llm__lit("first")));
    s.names = served, s.n_names = 2;
    CHECK(llm__oai_is_base(&s, llm__lit("first")) && llm__oai_is_base(&s, llm__lit("second")) && !llm__oai_is_base(&s, llm__lit("third")) &&
          llm_openai_knows_model(&s, "second", 6));
    CHECK(!llm_openai_knows_model(&s, "third", 5));
    for (int strict = 0; strict < 2; strict++) { /* one model and no adapter: any name will do, unless names are strict */
        static const char body[] = "{\"model\":\"third\",\"prompt\":\"a\"}";
        s.strict_names = strict;
        llm_openai_call *k = llm_openai_begin(&s, LLM_OPENAI_COMPLETION, body, sizeof body - 1, NULL);
        CHECK(k->info.status == (strict ? 404 : 200) && !strcmp(k->model, "first"));
        llm_openai_free(k);
    }
}

/* ---- nothing taken in vain: every name in every kind of call ---- */

/* A value that the row takes, as far as a row can say. */
static void parts_value(const llm_option *p, llm_text *out) {
    const double low = p->low > 0 ? p->low : 1;
    if (p->kind == LLM_OPTION_BOOL) llm_text_str(out, "true");
    else if (p->kind == LLM_OPTION_LIST) llm_text_str(out, "[\"a\"]");
    else if (p->kind == LLM_OPTION_INT || p->kind == LLM_OPTION_INT64) llm_text_format(out, "%d", (int)low);
    else if (p->kind == LLM_OPTION_FLOAT) llm_text_str(out, "1");
    else if (p->words) llm_text_format(out, "%Q", p->words, strcspn(p->words, "|="));
    else if (p->kind == LLM_OPTION_TEXT || p->kind == LLM_OPTION_READ || p->kind == LLM_OPTION_IGNORED) llm_text_str(out, "\"a\"");
    else llm_text_str(out, "1");
}

/* One of a comma and blank apart. */
static int parts_listed(const char *list, llm__str name) {
    for (const char *at = list; *at;) {
        const size_t n = strcspn(at, ",");
        if (n == name.n && !memcmp(at, name.p, n)) return 1;
        at += n;
        at += strspn(at, ", ");
    }
    return 0;
}

/* Where a name has no effect it is listed, or the body is refused with that name; where it has one it is not listed. */
static void parts_vain(void) {
    static const char *const bodies[] = {"'messages':[{'role':'user','content':'a'}]",
                                         "'prompt':'a'",
                                         "'prompt':'a'",
                                         "'input':'a'",
                                         "'input':'a'",
                                         "'prompt':'a'",
                                         "'tokens':[5]",
                                         "'messages':[{'role':'user','content':'a'}]",
                                         "'lora_name':'a','lora_path':'b'",
                                         "'lora_name':'a'",
                                         "'name':'a','prompt':'a'",
                                         "'name':'a'",
                                         "'query':'a','documents':['a']",
                                         "'text_1':'a','text_2':'b'",
                                         "'input':'a'"};
    static const int behind[] = {LLM_OPENAI_RERANK, LLM_OPENAI_SCORE, LLM_OPENAI_CLASSIFY}; /* the last bodies */
    int32_t all = 0;
    const llm_options fields = {llm__oai_fields, LLM__COUNT(llm__oai_fields), NULL, NULL, NULL, NULL, {NULL, 0}, NULL};
    for (int b = 0; b < LLM__COUNT(bodies); b++) all |= 1 << (b > LLM_OPENAI_CONTEXT_LOAD ? behind[b - LLM_OPENAI_CONTEXT_LOAD - 1] : b);
    CHECK(all == LLM__OAI_ALL);
    parts_service.reasoning = LLM_REASONING_THINK; /* a bound on thoughts has no effect where there are none */
    for (int b = 0; b < LLM__COUNT(bodies); b++)
        for (int i = 0; i < LLM__COUNT(llm__oai_fields); i++) {
            const llm_option *p = &llm__oai_fields[i];
            const int kind = b > LLM_OPENAI_CONTEXT_LOAD ? behind[b - LLM_OPENAI_CONTEXT_LOAD - 1] : b;
            const int vain = p->kind == LLM_OPTION_IGNORED || !(p->group & 1 << kind);
            llm__str name;
            for (const char *names = p->names; llm__list_next(&names, "|", &name);) {
                llm_text body = LLM__ZERO;
                char member[80], said[64];
                snprintf(said, sizeof said, "%.*s", (int)name.n, name.p);
                for (char *c = said; *c; c++) *c = (char)(*c == '-' ? '_' : *c);
                name.p = said;
                if (llm__options_member(&fields, name, LLM_FROM_REQUEST) != p) continue; /* best-of, which is best_of */
                snprintf(member, sizeof member, "'%s':", said);
                if (strstr(bodies[b], member)) continue; /* a name twice is an error of its own */
                llm_text_format(&body, "{");
                for (const char *c = bodies[b]; *c; c++) llm_text_add(&body, *c == '\'' ? "\"" : c, 1);
                llm_text_format(&body, ",%Q:", name.p, name.n);
                parts_value(p, &body);
                llm_text_str(&body, "}");
                llm_openai_call *k = parts_begin((llm_openai_kind)kind, body.data);
                const int bad = k->info.status >= 400;
                const int ok = p->kind == LLM_OPTION_REFUSED ? bad && strstr(k->message, said) != NULL
                               : bad                         ? !vain || strstr(k->message, said) || !strcmp(k->param, said)
                                                             : parts_listed(k->info.ignored, name) == vain ||
                                           (!vain && (i == 0 || strstr("store|truncation_side|prompt_token_ids", said)));
                if (!CHECK(ok)) printf("  kind %d, %s: %d %s; %s\n", kind, body.data, k->info.status, k->message, k->info.ignored);
                llm_openai_free(k);
                llm_text_free(&body);
            }
        }
    parts_service.reasoning = LLM_REASONING_NONE;
}

/* ---- what a template makes of messages ---- */

/* Another template for the same model, while it is not NULL. */
static void parts_template(const char *text) {
    static llm_openai_service before;
    static llm_model *model;
    llm_model_config c = LLM__ZERO;
    if (!text) {
        llm_model_close(model);
        parts_service = before;
        return;
    }
    before = parts_service;
    c.chat_template = text;
    c.vocab_only = 1;
    if (CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), &c, &model))) llm_openai_service_init(&parts_service, model, parts_service.engine);
}

/* The template opens thoughts, or an answer that goes on has; nobody else. */
static void parts_thoughts(void) {
    static const char text[] =
        "{% for t in tools or [] %}{{ t.function.description }}{% endfor %}{% for d in documents or [] %}{{ d.text }}{% endfor %}"
        "{% for m in messages %}{{ m.role }}:{{ m.content | trim }};{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% if enable_thinking %}<think>{% endif %}{% endif %}";
    static const struct {
        const char *members;
        int open;
    } rows[] = {
        {"'messages':[{'role':'user','content':'a'}]", 0},
        {"'messages':[{'role':'user','content':'a'}],'enable_thinking':true", 1},
        {"'messages':[{'role':'user','content':' say <think>'}]", 0},
        {"'messages':[{'role':'user','content':'say \\u003cthink>'}]", 0},
        {"'messages':[{'role':'user','content':'</think>'}],'enable_thinking':true", 1},
        {"'messages':[{'role':'user','content':[{'type':'text','text':'<think>'}]}]", 0},
        {"'messages':[{'role':'user','content':'a'},{'role':'assistant','content':'','tool_calls':[{'id':'1','type':'function','function':{'name':'f','arguments':'{}'}}]},"
         "{'role':'tool','tool_call_id':'1','content':'<think>'}]",
         0},
        {"'messages':[{'role':'user','content':'a'}],'documents':[{'text':'<think>'}]", 0},
        {"'messages':[{'role':'user','content':'a'}],'tools':[{'type':'function','function':{'name':'f','description':'<think>'}}]", 0},
        {"'messages':[{'role':'assistant','content':'<think>hm'},{'role':'user','content':'a'}]", 0},
        {"'messages':[{'role':'user','content':'</think>'},{'role':'assistant','content':'<think>hm'}],'continue_final_message':true,'add_generation_prompt':false",
         1},
        {"'messages':[{'role':'user','content':'<think>'},{'role':'assistant','content':'<think>hm</think>So'}],'continue_final_message':true,'add_generation_prompt':false",
         0},
        {"'messages':[{'role':'user','content':'<think>'},{'role':'assistant','content':'So'}],'continue_final_message':true,'add_generation_prompt':false",
         0},
        {"'messages':[{'role':'user','content':'a'},{'role':'assistant','content':'<think>hm'}],'add_generation_prompt':false", 1}};
    parts_template(text);
    parts_service.reasoning = LLM_REASONING_THINK;
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_text body = LLM__ZERO;
        for (const char *c = rows[i].members; *c; c++) llm_text_add(&body, *c == '\'' ? "\"" : c, 1);
        llm_text whole = LLM__ZERO;
        llm_text_str(&whole, "{"), llm_text_add(&whole, body.data, body.len), llm_text_str(&whole, "}");
        llm_openai_call *k = parts_begin(LLM_OPENAI_CHAT, whole.data);
        if (!CHECK(!k->failed && llm__oai_render(k) && k->reasoning.kind == LLM_REASONING_THINK && k->reasoning.thinking == rows[i].open))
            printf("  %s: %s %s\n", rows[i].members, k->message, k->text.data ? k->text.data : "");
        CHECK(!strstr(rows[i].members, "say") || strstr(k->text.data, "say <think>;")); /* what was said is what the model reads */
        llm_openai_free(k);
        llm_text_free(&body), llm_text_free(&whole);
    }
    parts_template(NULL);
}

/* A list of no calls is none, and a call without arguments has an empty object for them, with templates that know tools and others. */
static void parts_no_calls(void) {
    static const struct {
        const char *text, *message, *want;
    } rows[] = {
        {"{% for m in messages %}{{ m.content }}{% endfor %}", "\"content\":[{\"type\":\"text\",\"text\":\"a\"}],\"tool_calls\":[]", "a"},
        {"{% for m in messages %}{{ m.content }}{% endfor %}",
         "\"content\":\"a\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]",
         "a\n{\"name\": \"f\", \"arguments\": {}}"},
        {"{% for m in messages %}{{ m.content }}{{ m.tool_calls is defined }}{% endfor %}{{ tools }}",
         "\"content\":\"a\",\"tool_calls\":[]", "aFalseNone"},
        {"{% for m in messages %}{{ m.content }}{{ m.tool_calls is defined }}{% endfor %}{{ tools }}",
         "\"content\":\"a\",\"tool_calls\":null", "aFalseNone"},
        {"{% for m in messages %}{{ m.tool_calls[0].function.arguments }}{% endfor %}{{ tools }}",
         "\"content\":\"a\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]",
         "{}None"}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        char body[500];
        snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"assistant\",%s}]}", rows[i].message);
        parts_template(rows[i].text);
        llm_openai_call *k = parts_begin(LLM_OPENAI_CHAT, body);
        CHECK(!k->failed && llm__oai_render(k));
        CHECK(parts_is(&k->text, rows[i].want));
        llm_openai_free(k);
        parts_template(NULL);
    }
}

TEST_GROUP(openai_parts) {
    llm_model *m = NULL;
    llm_engine *e = NULL;
    llm_engine_config c = LLM__ZERO;
    c.n_threads = 1, c.max_num_seqs = 4, c.max_model_len = 256, c.disable_prefix_caching = 1;
    if (!test_made(TEST_CHECKPOINT("llama"), "checkpoints") || !CHECK(!llm_model_open(TEST_CHECKPOINT("llama"), NULL, &m)) ||
        !CHECK(!llm_engine_open(m, &c, &e)))
        return;
    llm_openai_service_init(&parts_service, m, e);
    parts_errors();
    parts_members();
    parts_spellings();
    parts_lists();
    parts_length();
    parts_logprobs();
    parts_sampling();
    parts_forms();
    parts_tokens();
    parts_rows();
    parts_run();
    parts_calls();
    parts_news();
    parts_prompts();
    parts_names();
    parts_vain();
    parts_thoughts();
    parts_no_calls();
    llm_engine_close(e);
    llm_model_close(m);
}
