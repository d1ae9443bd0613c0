/* Every kind of OpenAI call with the n-th allocation failing, for every n: the whole answer, or an error with 503, in a stream an event; the
 * engine and the next call go on. Once more with all allocations from the n-th on failing. */
#include "../test.h"
#include "base/platform.h"

#define SAID "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"temperature\":0,"
#define TOOL \
    "\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,22]}},\"required\":[\"a\"],\"additionalProperties\":false}"

/* clang-format off */
static const struct { llm_openai_kind kind; const char *body; } starved_calls[] = {
    {LLM_OPENAI_CHAT, "{" SAID "\"max_tokens\":4}"},
    {LLM_OPENAI_CHAT, "{" SAID "\"max_tokens\":4,\"n\":2,\"logprobs\":true,\"top_logprobs\":2}"},
    {LLM_OPENAI_CHAT, "{" SAID "\"max_tokens\":90,\"tools\":[{\"type\":\"function\",\"function\":{" TOOL "}}],\"tool_choice\":\"required\",\"parallel_tool_calls\":false}"},
    {LLM_OPENAI_CHAT, "{" SAID "\"max_tokens\":90,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"boolean\"}},\"required\":[\"b\"],\"additionalProperties\":false}}}}"},
    {LLM_OPENAI_CHAT, "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"p1\"}]},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"2\"}],\"temperature\":0,\"max_tokens\":2}"},
    {LLM_OPENAI_COMPLETION, "{\"prompt\":[\"ab\",\"cd\"],\"temperature\":0,\"max_tokens\":3,\"echo\":true,\"logprobs\":2,\"prompt_logprobs\":1,\"return_token_ids\":true,\"stop\":[\"q\",\"zz\"],\"bad_words\":[\"x\"],\"logit_bias\":{\"9\":-5}}"},
    {LLM_OPENAI_COMPLETION, "{\"prompt\":[5,6,7],\"max_tokens\":4,\"use_beam_search\":true,\"best_of\":3,\"n\":2,\"temperature\":0}"},
    {LLM_OPENAI_COMPLETION, "{\"prompt\":[5,6,7],\"max_tokens\":4,\"seed\":3,\"best_of\":3,\"n\":2,\"repetition_penalty\":1.1}"},
    {LLM_OPENAI_GENERATE, "{\"prompt\":\"a\",\"max_tokens\":3,\"temperature\":0,\"ignore_eos\":true}"},
    {LLM_OPENAI_EMBEDDING, "{\"input\":[\"a\",\"b c\"],\"dimensions\":8}"},
    {LLM_OPENAI_EMBEDDING, "{\"input\":\"a\",\"encoding_format\":\"base64\"}"},
    {LLM_OPENAI_RESPONSE, "{\"input\":\"a\",\"temperature\":0,\"max_output_tokens\":3,\"include\":[\"message.output_text.logprobs\"],\"top_logprobs\":1}"},
    {LLM_OPENAI_RESPONSE, "{\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"5\"}],\"temperature\":0,\"max_output_tokens\":90,\"tools\":[{\"type\":\"function\"," TOOL "}],\"tool_choice\":\"required\",\"parallel_tool_calls\":false}"},
    {LLM_OPENAI_TOKENIZE, "{\"prompt\":\"hello, w\\u00f6rld\",\"return_token_strs\":true}"},
    {LLM_OPENAI_TOKENIZE, "{\"content\":\"hello\",\"with_pieces\":true}"},
    {LLM_OPENAI_TOKENIZE, "{" SAID "\"tools\":[]}"},
    {LLM_OPENAI_DETOKENIZE, "{\"tokens\":[5,6,300,301,302]}"},
    {LLM_OPENAI_TEMPLATE, "{" SAID "\"chat_template_kwargs\":{\"k\":[1,2]}}"},
    {LLM_OPENAI_CHAT, "{\"messages\":[]}"},
    {LLM_OPENAI_OLLAMA_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":false,\"logprobs\":true,\"options\":{\"temperature\":0,\"num_predict\":3,\"num_ctx\":5},\"x\":1}"},
    {LLM_OPENAI_OLLAMA_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":false,\"format\":{\"type\":\"boolean\"},\"options\":{\"temperature\":0}}"},
    {LLM_OPENAI_OLLAMA_GENERATE, "{\"prompt\":\"a\",\"system\":\"s\",\"context\":[5,6],\"stream\":false,\"options\":{\"temperature\":0,\"num_predict\":2}}"},
    {LLM_OPENAI_OLLAMA_GENERATE, "{\"keep_alive\":0}"}, {LLM_OPENAI_OLLAMA_EMBED, "{\"input\":[\"a\",\"b\"],\"dimensions\":3}"},
    {LLM_OPENAI_OLLAMA_SHOW, "{\"model\":\"a:latest\"}"},
    {LLM_OPENAI_COMPLETION, "{\"prompt\":\"a\",\"temperature\":12345678901234567890123456789012345678901234567890123456789012345678901234567890}"}};
/* clang-format on */

static llm_text starved_good, starved_out;

/* Takes out what differs from call to call: ids, which are long hexadecimal numbers, times and how long something took. */
static void starved_plain(llm_text *t) {
    char *to = t->data;
    for (const char *p = t->data; p && *p;) {
        const size_t hex = strspn(p, "0123456789abcdef");
        const int time = !strncmp(p, "\"created", 8) || !strncmp(p, "_duration", 9) || !strncmp(p, "\"modified_at", 12);
        const char *value = time ? strchr(p, ':') : NULL;
        if (value) p = value + 1 + strspn(value + 1, "0123456789-.:\"TZ");
        else if (hex >= 12) p += hex;
        else
            for (size_t i = 0; i < (hex ? hex : 1); i++) *to++ = *p++;
    }
    t->len = t->data ? (size_t)(to - t->data) : 0;
    if (t->data) *to = 0;
}

/* One call from begin to end, in `out`. Returns its status; 0: there was no memory for the call itself, -1: it has no end. */
static int starved_call(const llm_openai_service *s, int i, const char *body, llm_text *out) {
    llm_openai_call *k = llm_openai_begin(s, starved_calls[i].kind, body, strlen(body), NULL);
    if (!k) return 0;
    const llm_openai_info *info = llm_openai_get_info(k);
    llm_openai_submit(k);
    for (int turn = 0; !info->done && turn < 2000; turn++) {
        llm_engine_step(s->engine, NULL);
        while (llm_openai_next(k, out)) continue;
    }
    const int status = info->done ? info->status : -1;
    llm_openai_free(k);
    return status;
}

/* Is every event before `end` one of the good answer's? Of several choices one may stop earlier, so that the others' come sooner. */
static int starved_events(const char *got, const char *end) {
    while (got < end) {
        const char *next = strstr(got, "\n\n");
        char event[2000];
        if (!next || next - got >= (long)sizeof event) return 0;
        snprintf(event, sizeof event, "%.*s", (int)(next - got), got);
        if (!strstr(starved_good.data, event)) return 0;
        got = next + 2;
    }
    return 1;
}

/* Is this what a call may give that found too little memory? Of a stream: whole events of the good one, and an error behind them. */
static int starved_fits(int status, int wanted, int stream) {
    const char *got = starved_out.data ? starved_out.data : "", *error = strstr(got, "\"error\":{");
    if (status == 0) return !starved_out.len;
    if (starved_out.failed) return test_fail_on && (status == 503 || stream);
    if (status == wanted && !strcmp(got, starved_good.data)) return 1;
    if (status == 503 && !strncmp(got, "{\"error\":\"", 10)) return strstr(got, "out of memory\"}") != NULL; /* Ollama's */
    if (status == 503)
        return !strncmp(got, "{\"error\":{\"message\":\"", 21) && strstr(got, "out of memory\",\"type\":\"overloaded_error\"");
    if (!stream || status != 200 || !error || !strstr(error, "out of memory")) return 0;
    while (error > got && strncmp(error, "\n\n", 2)) error--; /* where its event begins */
    return starved_events(got, error > got ? error + 2 : got);
}

/* One row, with its body made a stream or not; from each `step`-th allocation on. */
static void starved_row(const llm_openai_service *s, int i, int stream, int on, long step) {
    char body[1200];
    long total = 0;
    int wrong = 0;
    snprintf(body, sizeof body, "%s%s", starved_calls[i].body, stream ? ",\"stream\":true}" : "");
    if (stream) memmove(strrchr(starved_calls[i].body, '}') - starved_calls[i].body + body, ",\"stream\":true}", 16);
    for (int k = 0; k < 2; k++) { /* the second knows what the first left: masks, buffers */
        starved_good.len = 0;
        test_allocations = test_fail_at = 0;
        const int status = starved_call(s, i, body, &starved_good);
        total = test_allocations;
        starved_plain(&starved_good);
        for (long n = 1; k && n <= total; n += step) {
            llm_text_free(&starved_out);
            test_allocations = 0, test_fail_at = n, test_fail_on = on;
            const int got = starved_call(s, i, body, &starved_out);
            test_fail_at = test_fail_on = 0;
            if (!starved_out.failed) starved_plain(&starved_out);
            test_fail_on = on;
            const int fits = starved_fits(got, status, stream);
            test_fail_on = 0;
            if (!CHECK(fits) && wrong++ < 3)
                printf("  %s: allocation %ld of %ld%s: %d %.300s\n", body, n, total, on ? " and all behind it" : "", got,
                       starved_out.data ? starved_out.data : "");
        }
    }
    llm_text_free(&starved_out);
    starved_call(s, i, body, &starved_out);
    starved_plain(&starved_out);
    CHECK(!strcmp(starved_out.data, starved_good.data)); /* nothing is left of the failures */
}

/* A vocabulary, a grammar and its first mask, for which memory is out once: afterwards they are made as ever. */
static void starved_masks(const char *path, long step) {
    const llm_grammar_config form = {LLM_GRAMMAR_REGEX, "[a-z]{3,9}(x|yz)*", 17, NULL, NULL};
    uint32_t good[16], words[16];
    int32_t n_good = 0, n_words = 0;
    long total = 0;
    for (long n = 0; n <= total; n += n ? step : 1) {
        llm_model *m = NULL;
        llm_matcher *matcher = NULL;
        llm_grammar *g = NULL;
        if (!CHECK(!llm_model_open(path, NULL, &m) && llm_vocab_size(m) <= 512)) return;
        for (int turn = 0; turn < 2; turn++) { /* in the first memory is out at some point */
            test_allocations = 0, test_fail_at = turn ? 0 : n;
            llm_result r = llm_grammar_open(m, &form, &g);
            if (!r && !(matcher = llm_matcher_open(g))) r = LLM_ERR_NOMEM;
            if (!r) r = llm_matcher_mask(matcher, words, &n_words);
            test_fail_at = 0;
            if (!n && !turn) total = test_allocations, n_good = n_words, memcpy(good, words, sizeof good);
            const int same = !r && n_words == n_good && !memcmp(good, words, ((size_t)llm_vocab_size(m) + 31) / 32 * 4);
            if (!CHECK(same || (!turn && r == LLM_ERR_NOMEM)))
                printf("  mask: allocation %ld of %ld, turn %d: %d, %d of %d\n", n, total, turn, (int)r, n_words, n_good);
            llm_matcher_close(matcher);
            llm_grammar_close(g);
            g = NULL, matcher = NULL;
        }
        llm_model_close(m);
    }
}

TEST_GROUP(starved) {
    static const char path[] = TEST_CHECKPOINT("llama");
    const int few = TEST_BRIEF && test_argc < 1; /* under sanitizers a part of them, unless something is said behind "--" */
    llm_engine_config c;
    llm_openai_service s;
    memset(&c, 0, sizeof c);
    c.max_model_len = 512;
    c.max_num_seqs = 16;
    c.n_threads = 1;
    c.disable_prefix_caching = 1;
    llm *l = test_made(path, "checkpoints") ? llm_load(path, &c) : NULL;
    if (!CHECK(l)) return;
    llm_openai_service_init(&s, llm_get_model(l), llm_get_engine(l));
    starved_masks(path, few ? 97 : 7);
    for (int i = 0; i < LLM__COUNT(starved_calls); i++) {
        const int kind = starved_calls[i].kind, can_stream = (kind <= LLM_OPENAI_GENERATE || kind == LLM_OPENAI_RESPONSE) &&
                                                             !strstr(starved_calls[i].body, "best_of") &&
                                                             !strstr(starved_calls[i].body, "prompt_logprobs");
        for (int stream = 0; stream <= can_stream; stream++) {
            starved_row(&s, i, stream, 0, few ? 7 : 1);
            starved_row(&s, i, stream, 1, few ? 13 : 3);
        }
    }
    long total = 0;
    for (long n = 0; n <= total; n++) { /* a service that could not look at the template; 0: it could */
        test_allocations = 0, test_fail_at = n;
        llm_openai_service_init(&s, llm_get_model(l), llm_get_engine(l));
        if (!n) total = test_allocations;
        test_fail_at = 0;
        llm_text_free(&starved_out);
        if (!CHECK(s.starved == (n > 0) && starved_call(&s, 0, starved_calls[0].body, &starved_out) == (n ? 503 : 200)))
            printf("  service: allocation %ld of %ld: %d\n", n, total, s.starved);
    }
    llm_free(l);
    llm_text_free(&starved_good);
    llm_text_free(&starved_out);
}
