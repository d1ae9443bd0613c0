/* Requests and answers of OpenAI's API without a socket: the pattern writer, a call from its body to its last piece, errors. */
#include "../call.h"
#include "base/platform.h"
#include "engine/scheduler.h"
#include "serve/openai.h"

static llm_text openai_out; /* what the latest call wrote */

static void openai_format(void) {
    static const int32_t ids[] = {1, -2, 3};
    llm_text t = {0}, piece = {0};
    llm_text_str(&piece, "[]");
    llm_text_format(&t, "{'a':%d,'b':%l,'c':%f,'d':%q,'e':%q,'f':%Q,'g':%i,'h':%i,'i':%t,'j':%s,'%%'}", 1, (int64_t)1 << 40, 0.5, "x\"y",
                    (const char *)NULL, "a\0b", (size_t)3, ids, (size_t)3, ids, (size_t)0, &piece, "null");
    CHECK(
        t.data &&
        !strcmp(
            t.data,
            "{\"a\":1,\"b\":1099511627776,\"c\":0.5,\"d\":\"x\\\"y\",\"e\":null,\"f\":\"a\\u0000b\",\"g\":[1,-2,3],\"h\":[],\"i\":[],\"j\":null,\"%\"}"));
    CHECK(!piece.data && llm_text_chars("a\xC3\xA9\xE4\xBD\xA0", 6) == 3);
    t.len = 0;
    llm_text_format(&t, "%f %f", (double)INFINITY, -(double)INFINITY);
    CHECK(!strcmp(t.data, "9999 -9999"));
    llm_text_free(&t);
}

static int openai_call(const llm_openai_service *s, llm_openai_kind kind, const char *body, int *pieces) {
    return call_run(s, kind, body, &openai_out, pieces);
}

static int openai_count(const char *what) { return call_count(&openai_out, what); }

static void openai_bad(const llm_openai_service *s) {
    /* clang-format off */
    static const struct { const char *body, *want; } bad[] = {
        {"", "expected"}, {"[]", "JSON object"}, {"{}", "messages"}, {"{\"messages\":[]}", "\"param\":\"messages\""}, {"{\"messages\":[{\"role\":\"x\"}]}", "messages[0].role"},
        {"{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content is missing"}, {"{\"temperature\":3}", "temperature: 3, a number from 0.0 to 2.0 was expected"}, {"{\"n\":\"a\"}", "n must be a whole number"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stop\":[\"\"]}", "\"message\":\"stop: cannot contain an empty string\",\"type\":\"invalid_request_error\",\"param\":\"stop\""}, {"{\"logit_bias\":{\"x\":1}}", "no token id"}, {"{\"stream_options\":{}}", "stream=True"}, {"{\"suffix\":\"x\"}", "is not supported"},
        {"{\"tool_choice\":\"Required\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}", "tool_choice must be none, auto, required"},
        {"{\"model\":1}", "model must be a text"}, {"{\"seed\":1e30}", "seed"}};
    /* clang-format on */
    int pieces;
    for (int i = 0; i < LLM__COUNT(bad); i++) {
        int status = openai_call(s, LLM_OPENAI_CHAT, bad[i].body, &pieces);
        if (!CHECK(status == 400 && pieces == 1 && strstr(openai_out.data, bad[i].want)))
            printf("  %s: %d %s\n", bad[i].body, status, openai_out.data);
    }
    CHECK(openai_call(s, LLM_OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"chat_template\":\"x\"}", &pieces) ==
          403);
}

static void openai_news(void *user, llm_openai_call *k, llm_request *r, const llm_event *e, double gap) {
    (void)user, (void)r;
    if (gap >= 0 && e->has_token && llm_openai_get_info(k)->n_requests) test_passed++;
}

/* A chat with tools: what the template shows, a required call whole and streamed, and what a model without tools in its template is told. */
static void openai_tools(const llm_openai_service *s) {
    static const char tools[] =
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,22]}},\"required\":[\"a\"],\"additionalProperties\":false}}}]";
    static const char call[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}}]}]";
    char body[1200];
    int pieces;
    snprintf(
        body, sizeof body,
        "%s,%s,\"tool_choice\":\"required\",\"parallel_tool_calls\":false,\"max_tokens\":200,\"temperature\":0,\"n\":2,\"stream\":%s,\"return_metrics\":true}",
        call, tools, "false");
    if (!CHECK(openai_call(s, LLM_OPENAI_CHAT, body, &pieces) == 200)) printf("  %s\n", openai_out.data);
    CHECK(openai_count("\"finish_reason\":\"tool_calls\"") == 2 && openai_count("\"content\":null") == 2 &&
          openai_count("\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{") == 2);
    snprintf(
        body, sizeof body,
        "%s,%s,\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}},\"max_tokens\":200,\"temperature\":0,\"n\":2,\"stream\":true,\"return_metrics\":true}",
        call, tools);
    CHECK(openai_call(s, LLM_OPENAI_CHAT, body, &pieces) == 200 && openai_count("\"id\":\"call_") == 2 &&
          openai_count("\"name\":\"f\",\"arguments\":\"\"") == 2 && openai_count("\"finish_reason\":\"tool_calls\"") == 2);
    CHECK(openai_count("\"metrics\":{") == 2);
    snprintf(body, sizeof body, "%s,%s}", call, tools);
    CHECK(openai_call(s, LLM_OPENAI_TEMPLATE, body, &pieces) == 200 && strstr(openai_out.data, "parameters"));
    snprintf(body, sizeof body, "%s,%s,\"tool_choice\":\"none\"}", call, tools);
    CHECK(openai_call(s, LLM_OPENAI_TEMPLATE, body, &pieces) == 200 && !strstr(openai_out.data, "parameters") &&
          strstr(openai_out.data, "{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}"));
    CHECK(openai_call(s, LLM_OPENAI_TEMPLATE, "{\"messages\":[{\"role\":\"developer\",\"content\":\"x\"}]}", &pieces) == 200 &&
          !strstr(openai_out.data, "developer"));
}

/* /v1/responses: a body of items becomes a chat, the answer items again, whole and as events. */
/* How a response ended: cut by its length, by its time, or by itself. */
static void openai_response_ends(const llm_openai_service *s) {
    static const struct {
        llm_finish finish;
        const char *status, *details, *event;
    } rows[] = {{LLM_FINISH_STOP, "completed", "null", "completed"},
                {LLM_FINISH_REPETITION, "completed", "null", "completed"},
                {LLM_FINISH_LENGTH, "incomplete", "{\"reason\":\"max_output_tokens\"}", "incomplete"},
                {LLM_FINISH_CANCELLED, "cancelled", "null", "incomplete"}};
    for (int i = 0; i < 2 * LLM__COUNT(rows); i++) {
        char body[100], want[160];
        const int n = snprintf(body, sizeof body, "{\"input\":\"a\",\"max_output_tokens\":2,\"stream\":%s}", i % 2 ? "true" : "false");
        llm_openai_call *k = llm_openai_begin(s, LLM_OPENAI_RESPONSE, body, (size_t)n, NULL);
        CHECK(llm_openai_submit(k));
        for (int busy = 1; busy;) llm_engine_step(s->engine, &busy);
        k->request[0]->answer[0]->output.finish = rows[i / 2].finish;
        openai_out.len = 0;
        while (llm_openai_next(k, &openai_out)) continue;
        snprintf(want, sizeof want, "\"status\":\"%s\",\"model\":", rows[i / 2].status);
        int ok = openai_count(want) == 1;
        snprintf(want, sizeof want, "\"incomplete_details\":%s,\"output\":[{", rows[i / 2].details);
        ok &= openai_count(want) == 1;
        snprintf(want, sizeof want, "event: response.%s\n", rows[i / 2].event);
        ok &= openai_count(want) == i % 2 && !openai_count("\"reason\"") == (i / 2 != 2);
        if (!CHECK(ok)) printf("  %s: %s\n", rows[i / 2].status, openai_out.data);
        llm_openai_free(k);
    }
}

static void openai_responses(const llm_openai_service *s) {
    static const char body[] =
        "{\"instructions\":\"i\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"5\"}],\"max_output_tokens\":%d,\"temperature\":0,%s\"stream\":%s}";
    static const char tools[] =
        "\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,22]}},\"required\":[\"a\"],\"additionalProperties\":false}}],\"tool_choice\":\"required\",\"parallel_tool_calls\":false,";
    char text[1400];
    int pieces;
    snprintf(text, sizeof text, body, 3, "\"ignore_eos\":true,", "false");
    if (!CHECK(openai_call(s, LLM_OPENAI_RESPONSE, text, &pieces) == 200)) printf("  %s\n", openai_out.data);
    CHECK(openai_count("\"object\":\"response\"") == 1 && openai_count("\"status\":\"incomplete\"") == 2 &&
          openai_count("\"type\":\"output_text\"") == 1 && openai_count("\"output_tokens\":3,") == 1 &&
          openai_count("\"input_tokens_details\":{\"cached_tokens\":") == 1 && openai_count(",\"cache_write_tokens\":0}") == 1);
    snprintf(text, sizeof text, body, 90, tools, "false");
    CHECK(openai_call(s, LLM_OPENAI_RESPONSE, text, &pieces) == 200 && openai_count("\"type\":\"function_call\"") == 1 &&
          openai_count("\"status\":\"completed\"") == 2);
    snprintf(text, sizeof text, body, 90, tools, "true");
    CHECK(openai_call(s, LLM_OPENAI_RESPONSE, text, &pieces) == 200 && openai_count("event: response.completed\n") == 1 &&
          openai_count("event: response.output_item.done\n") == 1 && openai_count("\"status\":\"incomplete\"") == 0 &&
          openai_count("event: response.function_call_arguments.delta\n") > 3);
    CHECK(openai_call(s, LLM_OPENAI_RESPONSE, "{\"input\":\"a\",\"temperature\":7,\"stream\":true}", &pieces) == 400 && pieces == 1 &&
          strstr(openai_out.data, "\"param\":\"temperature\""));
    CHECK(openai_call(s, LLM_OPENAI_RESPONSE, "{\"input\":[{\"role\":\"user\"}]}", &pieces) == 400 &&
          strstr(openai_out.data, "input.content is missing"));
    for (int i = 0; i < 2;
         i++) { /* three tokens: each once in its delta, in the text's end, in the part's, the item's and the whole object's */
        snprintf(text, sizeof text, body, 3, "\"ignore_eos\":true,\"include\":[\"x\",\"message.output_text.logprobs\"],\"top_logprobs\":2,",
                 i ? "true" : "false");
        if (!CHECK(openai_call(s, LLM_OPENAI_RESPONSE, text, &pieces) == 200 &&
                   openai_count("\"top_logprobs\":[{\"token\":") == (i ? 15 : 3) && openai_count("\"bytes\":[") == (i ? 45 : 9)))
            printf("  %s\n", openai_out.data);
    }
    CHECK(openai_call(s, LLM_OPENAI_RESPONSE, "{\"input\":\"a\",\"top_logprobs\":2}", &pieces) == 400 &&
          strstr(openai_out.data, "`include` must hold"));
    CHECK(openai_call(s, LLM_OPENAI_RESPONSE, "{\"input\":\"a\",\"n\":2}", &pieces) == 400 && strstr(openai_out.data, "\"param\":\"n\""));
    CHECK(openai_call(s, LLM_OPENAI_TOKENIZE, "{}", &pieces) == 400 && strstr(openai_out.data, "\"One of prompt, content"));
    CHECK(openai_call(s, LLM_OPENAI_EMBEDDING, "{\"input\":[\"a\",\"b c\"],\"dimensions\":4}", &pieces) == 200 &&
          openai_count("\"embedding\":[") == 2);
    CHECK(openai_call(s, LLM_OPENAI_EMBEDDING, "{\"input\":\"a\",\"encoding_format\":\"base64\",\"dimensions\":1}", &pieces) == 200 &&
          openai_count("==\"}") == 1);
}

/* A text that no context holds is refused by its size, before it is tokenized; a call that nobody waits for ends. */
static void openai_sizes(const llm_openai_service *s) {
    llm_text body = {0};
    int pieces;
    const llm_openai_kind kinds[] = {LLM_OPENAI_COMPLETION, LLM_OPENAI_EMBEDDING, LLM_OPENAI_TOKENIZE, LLM_OPENAI_COMPLETION};
    for (int i = 0; i < LLM__COUNT(kinds); i++) {
        body.len = 0;
        llm_text_format(&body, "{'%s':'", i == 1 ? "input" : "prompt");
        for (int k = 0; k < (i < 2 ? 40000 : 5 << 20); k++) llm_text_str(&body, "a");
        llm_text_format(&body, i == 3 ? "','truncate_prompt_tokens':4}" : "'}");
        const double begin = llm_now();
        CHECK(openai_call(s, kinds[i], body.data, &pieces) == 400 && strstr(openai_out.data, "context_length_exceeded") &&
              strstr(openai_out.data, i < 2 ? "40000 bytes of text, at most 32768" : "5242880 bytes of text, at most 4194304"));
        CHECK(llm_now() - begin < 2);
    }
    body.len = 0;
    llm_text_format(&body, "{'prompt':'");
    for (int k = 0; k < 1 << 20; k++) llm_text_str(&body, "ab c");
    llm_text_format(&body, "'}");
    llm_openai_call *k = llm_openai_begin(s, LLM_OPENAI_TOKENIZE, body.data, body.len, NULL);
    const double begin = llm_now();
    llm_openai_cancel(k);
    CHECK(!llm_openai_submit(k) && llm_openai_get_info(k)->status == 499 && llm_now() - begin < 1);
    llm_openai_free(k);
    llm_text_free(&body);
}

/* A prompt is cut from its front to what was asked for, -1: to what the context holds, beside the answer where that fits; never to nothing. */
static void openai_truncated(const llm_openai_service *s) {
    const int room = s->engine->p.max_len;
    const struct {
        int sent;
        const char *fields;
        int status, kept;
    } rows[] = {
        {room + 9, "\"max_tokens\":3", 400, 0},
        {room + 9, "\"max_tokens\":3,\"truncate_prompt_tokens\":7", 200, 7},
        {room + 9, "\"max_tokens\":3,\"truncate_prompt_tokens\":-1", 200, room - 3},
        {room + 9, "\"max_tokens\":100000,\"truncate_prompt_tokens\":-1", 200, room - 1},
        {room, "\"max_tokens\":3,\"truncate_prompt_tokens\":-1", 200, room - 3},
        {room - 1, "\"max_tokens\":3,\"truncate_prompt_tokens\":-1", 200, room - 1}, /* as without it */
        {4, "\"max_tokens\":100000,\"truncate_prompt_tokens\":-1", 200, 4},
        {room + 9, "\"max_tokens\":3,\"truncate_prompt_tokens\":null", 400, 0},
        {4, "\"max_tokens\":3,\"truncate_prompt_tokens\":0", 400, 0},
    };
    llm_text body = {0};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        char want[64];
        int pieces;
        body.len = 0;
        llm_text_str(&body, "{\"temperature\":0,\"prompt\":[5");
        for (int k = 1; k < rows[i].sent; k++) llm_text_format(&body, ",%d", 5 + k % 50);
        llm_text_format(&body, "],%s}", rows[i].fields);
        snprintf(want, sizeof want, "\"prompt_tokens\":%d,", rows[i].kept);
        if (!CHECK(openai_call(s, LLM_OPENAI_COMPLETION, body.data, &pieces) == rows[i].status &&
                   (rows[i].status != 200 || strstr(openai_out.data, want))))
            printf("  row %d: %s\n", i, openai_out.data);
    }
    CHECK(strstr(openai_out.data, "must be -1, or 1 or more, got 0"));
    llm_text_free(&body);
}

/* A whole answer larger than it may be is an error instead, of each kind; streams have no such bound. One for which nobody waits any more is
 * dropped where it is, and llm_openai_fail says why; and what answers may keep until the last has ended is bounded before they begin. */
static void openai_bounds(llm_openai_service s) {
    static const struct {
        llm_openai_kind kind;
        const char *body;
    } rows[] = {
        {LLM_OPENAI_COMPLETION, "{\"prompt\":[5,6],\"max_tokens\":20,\"ignore_eos\":true,\"temperature\":0,\"n\":3,\"logprobs\":5}"},
        {LLM_OPENAI_COMPLETION, "{\"prompt\":[5,6,7,8,9,10,11,12],\"max_tokens\":1,\"temperature\":0,\"echo\":true,\"prompt_logprobs\":9}"},
        {LLM_OPENAI_CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":20,\"temperature\":0,\"ignore_eos\":true,\"logprobs\":true,\"top_logprobs\":5}"},
        {LLM_OPENAI_RESPONSE,
         "{\"input\":\"a\",\"max_output_tokens\":20,\"temperature\":0,\"ignore_eos\":true,\"include\":[\"message.output_text.logprobs\"],\"top_logprobs\":5}"},
        {LLM_OPENAI_EMBEDDING, "{\"input\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\"]}"},
        {LLM_OPENAI_TOKENIZE,
         "{\"prompt\":\"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\",\"return_token_strs\":true}"},
        {LLM_OPENAI_DETOKENIZE, "{\"tokens\":[300,301,302,303,304,305,306,307,308,309,310,311,312,313,314,315,316,317,318,319,320]}"},
    };
    int pieces;
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        s.max_answer_bytes = 0;
        if (!CHECK(openai_call(&s, rows[i].kind, rows[i].body, &pieces) == 200)) printf("  %s\n", openai_out.data);
        s.max_answer_bytes = (int64_t)openai_out.len; /* (ids and times have other lengths from call to call: some bytes more) */
        s.max_answer_bytes += 60;
        CHECK(openai_call(&s, rows[i].kind, rows[i].body, &pieces) == 200 && pieces == 1);
        s.max_answer_bytes = rows[i].kind == LLM_OPENAI_DETOKENIZE ? 20 : s.max_answer_bytes / 2;
        if (!CHECK(openai_call(&s, rows[i].kind, rows[i].body, &pieces) == 400 && pieces == 1 && strstr(openai_out.data, "larger than")))
            printf("  %d: %s\n", i, openai_out.data);
    }
    s.max_answer_bytes = 50;
    CHECK(openai_call(&s, LLM_OPENAI_COMPLETION, "{\"prompt\":[5,6],\"max_tokens\":9,\"ignore_eos\":true,\"stream\":true}", &pieces) ==
              200 &&
          pieces > 9);
    s.max_answer_bytes = 0;
    for (int i = 0; i < 4; i++) {
        llm_openai_call *k = llm_openai_begin(&s, rows[i].kind, rows[i].body, strlen(rows[i].body), NULL);
        CHECK(llm_openai_submit(k) == 1);
        for (int busy = 1; busy;) llm_engine_step(s.engine, &busy);
        llm_openai_cancel(k);
        openai_out.len = 0;
        CHECK(!llm_openai_next(k, &openai_out) && !openai_out.len && !llm_openai_get_info(k)->done);
        llm_openai_fail(k, 503, "it took too long");
        CHECK(llm_openai_next(k, &openai_out) == 1 && llm_openai_get_info(k)->done && llm_openai_get_info(k)->status == 503 &&
              openai_count("it took too long") == 1 && openai_count("choices") == 0);
        llm_openai_free(k);
    }
    static const char *const large[] = {"{\"prompt\":[5,6],\"n\":128,\"max_tokens\":200000,\"logprobs\":20}",
                                        "{\"prompt\":[[5],[6],[7]],\"n\":128,\"max_tokens\":60000,\"logprobs\":2}",
                                        "{\"prompt\":[5,6],\"use_beam_search\":true,\"best_of\":32,\"max_tokens\":200000,\"logprobs\":5}"};
    const int32_t room = s.engine->p.max_len;
    s.engine->p.max_len = 262144; /* as of a model with a longer context: nothing of it is taken before this is asked */
    for (int i = 0; i < LLM__COUNT(large); i++)
        if (!CHECK(openai_call(&s, LLM_OPENAI_COMPLETION, large[i], &pieces) == 400 &&
                   strstr(openai_out.data, "\"param\":\"max_tokens\"") && strstr(openai_out.data, "are more than 33554432 values")))
            printf("  %s\n", openai_out.data);
    s.engine->p.max_len = room;
}

/* What a program sets for all requests counts where the body says nothing: lists too, and a struct of zeros is greedy. */
static void openai_defaults(llm_openai_service s) {
    const llm_logit_bias bias = {300, 100};
    llm_text piece = {0};
    int pieces;
    if (!CHECK(!llm_token_bytes(s.model, bias.id, &piece))) return;
    const char *const stop[] = {piece.data + (piece.data[0] == ' ')};
    memset(&s.defaults, 0, sizeof s.defaults);
    s.defaults.logit_bias = &bias;
    s.defaults.n_logit_bias = 1;
    CHECK(openai_call(&s, LLM_OPENAI_COMPLETION, "{\"prompt\":[5,6],\"max_tokens\":2,\"return_token_ids\":true}", &pieces) == 200 &&
          openai_count("\"token_ids\":[300,300]") == 1);
    s.defaults.stop = stop;
    s.defaults.n_stop = 1;
    CHECK(openai_call(&s, LLM_OPENAI_COMPLETION, "{\"prompt\":[5,6],\"max_tokens\":2}", &pieces) == 200 &&
          openai_count("\"finish_reason\":\"stop\"") == 1);
    CHECK(openai_call(&s, LLM_OPENAI_COMPLETION, "{\"prompt\":[5,6],\"max_tokens\":2,\"stop\":[]}", &pieces) == 200 &&
          openai_count("\"finish_reason\":\"length\"") == 1);
    llm_text_free(&piece);
}

static void openai_calls(llm *l) {
    static const char *const names[] = {"tiny", "small"};
    llm_openai_service s;
    int pieces;
    llm_openai_service_init(&s, llm_get_model(l), llm_get_engine(l));
    openai_bad(&s);
    openai_tools(&s);
    openai_responses(&s);
    openai_response_ends(&s);
    openai_defaults(s);
    openai_bounds(s);
    openai_sizes(&s);
    openai_truncated(&s);
    CHECK(openai_call(
              &s, LLM_OPENAI_COMPLETION,
              "{\"prompt\":[5,6,7],\"max_tokens\":3,\"temperature\":0,\"ignore_eos\":true,\"echo\":true,\"logprobs\":1,\"model\":\"m\"}",
              &pieces) == 200);
    CHECK(pieces == 1 && strstr(openai_out.data, "\"model\":\"m\"") && strstr(openai_out.data, "\"token_logprobs\":[null,") &&
          strstr(openai_out.data, "\"completion_tokens\":3"));
    CHECK(
        openai_call(
            &s, LLM_OPENAI_CHAT,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":3,\"temperature\":0,\"ignore_eos\":true,\"stream\":true,"
            "\"stream_options\":{\"include_usage\":true}}",
            &pieces) == 200);
    CHECK(openai_count("data: ") == 7 && openai_count("\"role\"") == 1 && openai_count("\"usage\":null") == 5 &&
          strstr(openai_out.data, "data: [DONE]\n\n")); /* role, 3, end, usage, done */
    s.names = names, s.n_names = 2, s.strict_names = 1, s.on_event = openai_news;
    int before = test_passed;
    CHECK(openai_call(&s, LLM_OPENAI_GENERATE, "{\"prompt\":\"a\",\"max_tokens\":2,\"model\":\"small\",\"ignore_eos\":true}", &pieces) ==
              200 &&
          strstr(openai_out.data, "{\"text\":[\""));
    CHECK(test_passed >= before + 2);
    CHECK(openai_call(&s, LLM_OPENAI_GENERATE, "{\"prompt\":\"a\",\"model\":\"other\"}", &pieces) == 404 &&
          strstr(openai_out.data, "model_not_found"));
    CHECK(openai_call(&s, LLM_OPENAI_TOKENIZE, "{\"content\":\"ab\",\"with_pieces\":true}", &pieces) == 200 &&
          strstr(openai_out.data, "\"piece\":"));
    CHECK(openai_call(&s, LLM_OPENAI_DETOKENIZE, "{\"tokens\":[5,6]}", &pieces) == 200 && strstr(openai_out.data, "\"prompt\":"));
    CHECK(openai_call(&s, LLM_OPENAI_DETOKENIZE, "{\"tokens\":[-5]}", &pieces) == 400);
    CHECK(openai_call(
              &s, LLM_OPENAI_TEMPLATE,
              "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"p1\"},{\"type\":\"text\",\"text\":\"p2\"}]}]}",
              &pieces) == 200);
    CHECK(strstr(openai_out.data, "p1") && strstr(openai_out.data, "p2"));
    static const char body[] = "{\"prompt\":\"a\",\"stream\":true}";
    llm_openai_call *k = llm_openai_begin(&s, LLM_OPENAI_COMPLETION, body, sizeof body - 1, NULL);
    CHECK(llm_openai_submit(k));
    llm_openai_fail(k, 500, "too slow");
    openai_out.len = 0;
    CHECK(llm_openai_next(k, &openai_out) && llm_openai_get_info(k)->done && !llm_openai_next(k, &openai_out) &&
          strstr(openai_out.data, "too slow") && openai_count("data: ") == 2);
    llm_openai_free(k);
}

TEST_GROUP(openai) {
    static const char path[] = TEST_CHECKPOINT("llama");
    llm_engine_config c;
    memset(&c, 0, sizeof c);
    c.max_model_len = 512;
    c.max_num_seqs = 4;
    openai_format();
    llm *l = test_made(path, "checkpoints") ? llm_load(path, &c) : NULL;
    if (CHECK(l)) openai_calls(l);
    llm_free(l);
    llm_text_free(&openai_out);
}
