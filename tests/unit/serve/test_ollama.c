/* Ollama's bodies and answers: what a body becomes, what is refused and told, and the forms of the answers; calls of tools by a parser that is
 * fed by hand, for no tiny model calls when it is not made to. */
#include "../call.h"
#include "serve/ollama.h"

static llm_text ollama_out;

/* What a body becomes, in ollama_out; "" and the error there where it is refused. k stays for a look at the rest. */
static llm_openai_call *ollama_becomes(const llm_openai_service *s, llm_openai_kind kind, const char *body) {
    llm_openai_call *k = llm_openai_begin(s, kind, body, strlen(body), NULL);
    ollama_out.len = 0;
    if (llm_openai_get_info(k)->status == 200) llm_text_format(&ollama_out, "%j", k->body, 0);
    else llm_openai_next(k, &ollama_out);
    return k;
}

static void ollama_bodies(const llm_openai_service *s) {
    /* clang-format off */
    static const struct { llm_openai_kind kind; const char *body, *want, *ignored; } rows[] = {
        {LLM_OPENAI_OLLAMA_CHAT, "{'model':'x','messages':[{'role':'user','content':'a'}]}", "{'model':'x','messages':[{'role':'user','content':'a'}],'stream':true}", ""},
        {LLM_OPENAI_OLLAMA_CHAT, "{'messages':[{'role':'user','content':'a'}],'stream':false,'options':{'num_predict':7,'repeat_penalty':1.5,'top_k':3,'num_ctx':9,'zzz':1,'seed':-1,'mirostat':0,'tfs_z':1.0,'stop':['q']},'keep_alive':'5m','what':1,'raw':true}",
         "{'messages':[{'role':'user','content':'a'}],'stream':false,'max_tokens':7,'repetition_penalty':1.5,'top_k':3,'stop':['q']}", "options.num_ctx, options.zzz, keep_alive, what, raw"},
        {LLM_OPENAI_OLLAMA_CHAT, "{'messages':[{'role':'user','content':'a'}],'options':{'repeat_last_n':0,'repeat_penalty':1.5,'presence_penalty':1}}", "{'messages':[{'role':'user','content':'a'}],'repetition_penalty':1,'presence_penalty':0,'frequency_penalty':0,'stream':true}", ""},
        {LLM_OPENAI_OLLAMA_CHAT, "{'messages':[{'role':'user','content':'a'}],'options':{'repeat_last_n':64,'repeat_penalty':1}}", "{'messages':[{'role':'user','content':'a'}],'repetition_penalty':1,'stream':true}", "options.repeat_last_n"},
        {LLM_OPENAI_OLLAMA_CHAT, "{'messages':[{'role':'assistant','content':'','thinking':'hm','tool_calls':[{'function':{'name':'f','arguments':{'a':1}}}]},{'role':'tool','content':'5','tool_name':'f'}],'format':'json'}",
         "{'messages':[{'role':'assistant','reasoning_content':'hm','tool_calls':[{'function':{'name':'f','arguments':{'a':1}}}],'content':''},{'role':'tool','name':'f','content':'5'}],'response_format':{'type':'json_object'},'stream':true}", ""},
        {LLM_OPENAI_OLLAMA_GENERATE, "{'prompt':'p','system':'s','format':{'type':'object'},'think':false}",
         "{'response_format':{'type':'json_schema','json_schema':{'name':'format','schema':{'type':'object'}}},'enable_thinking':false,'messages':[{'role':'system','content':'s'},{'role':'user','content':'p'}],'stream':true}", ""},
        {LLM_OPENAI_OLLAMA_GENERATE, "{'prompt':'p','raw':true,'template':'','suffix':'','logprobs':true,'stream':false}", "{'logprobs':0,'stream':false,'prompt':'p','max_tokens':9000000000000000000}", ""},
        {LLM_OPENAI_OLLAMA_GENERATE, "{}", "{'stream':true,'messages':[{'role':'user','content':''}]}", ""},
        {LLM_OPENAI_OLLAMA_EMBED, "{'input':['a','b'],'truncate':true,'options':{'temperature':1}}", "{'input':['a','b']}", "options.temperature"},
        {LLM_OPENAI_OLLAMA_EMBEDDINGS, "{'prompt':'a'}", "{'input':'a','normalize':false}", ""},
        {LLM_OPENAI_OLLAMA_SHOW, "{'name':'small:latest','verbose':true}", "{'model':'small'}", "verbose"},
        {LLM_OPENAI_OLLAMA_SHOW, "{'model':'other:latest'}", "{'model':'other'}", ""},
        {LLM_OPENAI_OLLAMA_CHAT, "{'messages':[{'role':'user','content':'a'}],'Format':'json','keep-alive':'5m','options':{'Top_K':3}}", "{'messages':[{'role':'user','content':'a'}],'stream':true}", "Format, keep-alive, options.Top_K"},
        {LLM_OPENAI_OLLAMA_CHAT, "{'messages':[{'role':'user','content':'a'}],'options':{'repeat_last_n':9,'repeat_penalty':1.1}}", "{'error':'repeat_last_n: 9, but penalties look at the whole text here: -1, or 0 for none, was expected'}", ""},
        {LLM_OPENAI_OLLAMA_CHAT, "{'messages':[{'role':'user','content':'a'}],'options':{'mirostat':2}}", "{'error':'mirostat: this way of sampling is not supported: 0, which is without it, was expected'}", ""},
        {LLM_OPENAI_OLLAMA_CHAT, "{'messages':[{'role':'user','content':'a'}],'think':'high'}", "{'error':'think: this model does not think before it answers'}", ""},
        {LLM_OPENAI_OLLAMA_GENERATE, "{'prompt':'a','raw':true,'system':'s'}", "{'error':'raw: true goes with neither system nor context, as no template is used'}", ""},
        {LLM_OPENAI_OLLAMA_GENERATE, "{'prompt':'a','template':'t'}", "{'error':'template: a request cannot bring a template of its own: the model's is used'}", ""},
        {LLM_OPENAI_OLLAMA_GENERATE, "{'prompt':'a','images':'t'}", "{'error':'images must be a list of pictures in base64'}", ""},
        {LLM_OPENAI_OLLAMA_GENERATE, "{'prompt':'a','suffix':'t'}", "{'error':'suffix: text behind the answer is not supported'}", ""}};
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        char body[800];
        snprintf(body, sizeof body, "%s", rows[i].body);
        for (char *c = body; *c; c++) *c = (char)(*c == '\'' ? '"' : *c);
        llm_openai_call *k = ollama_becomes(s, rows[i].kind, body);
        for (size_t c = 0; c < ollama_out.len; c++) ollama_out.data[c] = (char)(ollama_out.data[c] == '"' ? '\'' : ollama_out.data[c]);
        if (!CHECK(!strcmp(ollama_out.data, rows[i].want) && !strcmp(llm_openai_get_info(k)->ignored, rows[i].ignored)))
            printf("  %s\n  %s\n  %s\n  %s\n", body, ollama_out.data, rows[i].want, llm_openai_get_info(k)->ignored);
        llm_openai_free(k);
    }
}

/* Pictures become parts before the text, as data URIs. */
static void ollama_pictures(const llm_openai_service *s) {
    static const char body[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":[\"aGk=\",\"data:image/gif;base64,aGk=\"]}]}";
    llm_openai_call *k = (llm_openai_call *)calloc(1, sizeof *k);
    if (!CHECK(k)) return;
    k->service = *s;
    k->dialect = LLM_OPENAI_OLLAMA_CHAT;
    CHECK(!llm_json_parse(body, sizeof body - 1, NULL, &k->body) && llm__ollama_body(k));
    ollama_out.len = 0;
    llm_text_format(&ollama_out, "%j", k->body, llm_json_find(k->body, 0, "messages"));
    CHECK(!strcmp(ollama_out.data,
                  "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/*;base64,aGk=\"}},"
                  "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/gif;base64,aGk=\"}},{\"type\":\"text\",\"text\":\"a\"}]}]"));
    llm_json_free(k->body);
    llm_text_free(&k->ignored);
    free(k);
}

/* A service without a model: none has the name, whatever else stands in the body. */
static void ollama_nobody(void) {
    static const llm_openai_service nobody = {0};
    static const struct {
        llm_openai_kind kind;
        const char *body, *want;
    } rows[] = {
        {LLM_OPENAI_OLLAMA_GENERATE, "{\"model\":\"nope:latest\",\"prompt\":\"x\",\"context\":[]}",
         "{\"error\":\"model 'nope' not found\"}"},
        {LLM_OPENAI_OLLAMA_SHOW, "{\"name\":\"nope\"}", "{\"error\":\"model 'nope' not found\"}"},
        {LLM_OPENAI_OLLAMA_CHAT, "{\"model\":\"nope\",\"messages\":5,\"format\":5}", "{\"error\":\"model 'nope' not found\"}"},
        {LLM_OPENAI_CHAT, "{\"model\":\"nope\",\"logit_bias\":{\"5\":1}}", "\"The model `nope` does not exist.\""},
        {LLM_OPENAI_EMBEDDING, "{\"adapter_name\":\"nope\",\"input\":\"a\"}", "\"param\":\"adapter_name\""},
        {LLM_OPENAI_RERANK, "{\"model\":\"a\\u0000b\"}", "\"The model does not exist.\""},
        {LLM_OPENAI_MESSAGES, "{\"model\":\"nope\"}", "\"type\":\"not_found_error\",\"message\":\"The model `nope` does not exist.\""}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        llm_openai_call *k = llm_openai_begin(&nobody, rows[i].kind, rows[i].body, strlen(rows[i].body), NULL);
        ollama_out.len = 0;
        CHECK(llm_openai_get_info(k)->status == 404 && !llm_openai_submit(k));
        llm_openai_next(k, &ollama_out);
        if (!CHECK(strstr(ollama_out.data, rows[i].want))) printf("  %s\n", ollama_out.data);
        llm_openai_free(k);
    }
}

static int ollama_call(const llm_openai_service *s, llm_openai_kind kind, const char *body) {
    return call_run(s, kind, body, &ollama_out, NULL);
}

static int ollama_count(const char *what) { return call_count(&ollama_out, what); }

/* Whole answers, streams, logprobs, context, vectors, and that a text of any length is embedded. */
static void ollama_answers(const llm_openai_service *s) {
    static const char chat[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"logprobs\":true,\"options\":{\"temperature\":0,\"num_predict\":4,\"logit_bias\":1}%s}";
    char body[400];
    snprintf(body, sizeof body, chat, ",\"stream\":false");
    CHECK(ollama_call(s, LLM_OPENAI_OLLAMA_CHAT, body) == 200 && ollama_count("\"done\":true,\"done_reason\":\"length\"") == 1 &&
          ollama_count("\"message\":{\"role\":\"assistant\",\"content\":\"") == 1 && ollama_count("\"eval_count\":4,") == 1 &&
          ollama_count("\"token\":") == 4);
    snprintf(body, sizeof body, chat, "");
    CHECK(ollama_call(s, LLM_OPENAI_OLLAMA_CHAT, body) == 200 && ollama_count("\"done\":true") == 1 &&
          ollama_count("\"total_duration\":") == 1);
    CHECK(ollama_count("\"token\":") == 4 && ollama_count("}\n") == ollama_count("\"model\":") && ollama_count("data:") == 0);
    CHECK(ollama_call(s, LLM_OPENAI_OLLAMA_GENERATE,
                      "{\"prompt\":\"a\",\"context\":[5,6,7],\"options\":{\"num_predict\":2},\"stream\":false}") == 200 &&
          ollama_count("\"context\":[5,6,7,") == 1 && ollama_count("\"response\":\"") == 1);
    CHECK(ollama_call(s, LLM_OPENAI_OLLAMA_GENERATE, "{\"prompt\":\"a\",\"raw\":true,\"options\":{\"num_predict\":2},\"stream\":false}") ==
              200 &&
          !ollama_count("context") && ollama_count("\"eval_count\":2") == 1);
    CHECK(ollama_call(s, LLM_OPENAI_OLLAMA_GENERATE, "{}") == 200 &&
          ollama_count("\"response\":\"\",\"done\":true,\"done_reason\":\"load\"}\n") == 1);
    CHECK(ollama_call(s, LLM_OPENAI_OLLAMA_CHAT, "{\"messages\":[],\"stream\":false}") == 200 &&
          ollama_count("\"done_reason\":\"load\"}") == 1);
    CHECK(ollama_call(s, LLM_OPENAI_OLLAMA_EMBED, "{\"input\":[\"a\",\"b\"],\"dimensions\":2}") == 200 &&
          ollama_count("\"embeddings\":[[") == 1 && ollama_count("\"prompt_eval_count\":") == 1);
    CHECK(ollama_call(s, LLM_OPENAI_OLLAMA_EMBED, "{\"input\":\"\"}") == 200 && ollama_count("\"embeddings\":[]") == 1);
    CHECK(ollama_call(s, LLM_OPENAI_OLLAMA_EMBEDDINGS, "{\"prompt\":\"\"}") == 200 && ollama_count("{\"embedding\":[]}") == 1);
    llm_text long_body = {0};
    llm_text_str(&long_body, "{\"input\":\"");
    for (int i = 0; i < 1000; i++) llm_text_str(&long_body, "a b ");
    llm_text_str(&long_body, "\"}");
    CHECK(ollama_call(s, LLM_OPENAI_OLLAMA_EMBED, long_body.data) == 200 && ollama_count("\"prompt_eval_count\":511") == 1);
    long_body.len -= 1;
    llm_text_str(&long_body, ",\"truncate\":false}");
    CHECK(ollama_call(s, LLM_OPENAI_OLLAMA_EMBED, long_body.data) == 400 && ollama_count("{\"error\":\"prompt: ") == 1);
    llm_text_free(&long_body);
    CHECK(ollama_call(s, LLM_OPENAI_OLLAMA_SHOW, "{}") == 200 && ollama_count("\"capabilities\":[\"completion\"") == 1 &&
          ollama_count(".context_length\":") == 1);
    ollama_out.len = 0;
    llm_text_str(&ollama_out, "[");
    llm_ollama_card(s->model, "org/a", 0, 0, &ollama_out);
    llm_ollama_card(s->model, "a:8b", 1e9, 77, &ollama_out);
    const char *loaded = strstr(ollama_out.data, "\"digest\":");
    llm_ollama_card(NULL, "org/a", 0, 0, &ollama_out);
    const char *not_loaded = strstr(loaded + 1, "\"name\":\"org/a:latest\"");
    CHECK(not_loaded && strstr(not_loaded, "\"size\":0,") && strstr(not_loaded, "\"family\":\"\"") &&
          !strncmp(strstr(ollama_out.data, "\"digest\":"), strstr(not_loaded, "\"digest\":"), 75));
    CHECK(ollama_count("\"name\":\"org/a:latest\",\"model\":\"org/a:latest\",\"modified_at\":\"1970-01-01T00:00:00.000000Z\"") == 2 &&
          ollama_count("\"name\":\"a:8b\"") == 1 && ollama_count("\"modified_at\":\"2001-09-09T01:46:40.000000Z\"") == 1 &&
          ollama_count("\"context_length\":77}") == 1);
}

/* A stream's calls: each when it is whole, its arguments an object; of one that was cut what there is, as text. */
static void ollama_calls(const llm_openai_service *s) {
    static const char body[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}";
    static const char *const said[] = {"well <tool_call>\n{\"name\": \"f\", \"argu", "ments\": {\"a\":\n1}}\n</tool_call>",
                                       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": \"Ro"};
    llm_openai_call *k = llm_openai_begin(s, LLM_OPENAI_OLLAMA_CHAT, body, sizeof body - 1, NULL);
    if (!CHECK(llm_openai_get_info(k)->status == 200 && llm_openai_submit(k))) return;
    llm__oai_choice *c = &k->choice[0];
    llm_event e;
    memset(&e, 0, sizeof e);
    llm_tool_parser_free(c->tools);
    c->tools = llm_tool_parser_create(llm_tools_named("hermes"), 0, k->body, k->tools, 0);
    for (int i = 0; i < LLM__COUNT(said); i++) {
        ollama_out.len = 0;
        llm_tool_parser_push(c->tools, said[i], strlen(said[i]), &c->content);
        if (i == 2) llm_tool_parser_end(c->tools, &c->content), e.finish = LLM_FINISH_LENGTH;
        llm__ollama_event(k, &e, &ollama_out);
        if (i == 0) CHECK(ollama_count("\"content\":\"well") == 1 && !ollama_count("tool_calls"));
        if (i == 1)
            CHECK(ollama_count("\"tool_calls\":[{\"id\":\"call_") == 1 &&
                  ollama_count("\"function\":{\"index\":0,\"name\":\"f\",\"arguments\":{\"a\":1}}") == 1);
        if (i == 2 && !CHECK(ollama_count("Ro") == 1 && !ollama_count("tool_calls") && ollama_count("\"done\":true") == 1))
            printf("  %s\n", ollama_out.data);
    }
    llm_openai_free(k);
}

TEST_GROUP(ollama) {
    static const char path[] = TEST_CHECKPOINT("llama");
    static const char *const names[] = {"small"};
    llm_engine_config c;
    llm_openai_service s;
    memset(&c, 0, sizeof c);
    c.max_model_len = 512;
    c.max_num_seqs = 4;
    llm *l = test_made(path, "checkpoints") ? llm_load(path, &c) : NULL;
    if (!CHECK(l)) return;
    llm_openai_service_init(&s, llm_get_model(l), llm_get_engine(l));
    ollama_answers(&s);
    ollama_calls(&s);
    ollama_pictures(&s);
    s.names = names, s.n_names = 1;
    ollama_bodies(&s);
    ollama_nobody();
    s.strict_names = 1;
    llm_openai_call *k = ollama_becomes(&s, LLM_OPENAI_OLLAMA_SHOW, "{\"model\":\"other\"}");
    CHECK(llm_openai_get_info(k)->status == 404 && strstr(ollama_out.data, "{\"error\":\"model 'other' not found\"}"));
    llm_openai_free(k);
    llm_free(l);
    llm_text_free(&ollama_out);
}
