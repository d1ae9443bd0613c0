/* Anthropic's bodies and answers: what a body becomes, what is refused and told, and the forms of answers and streams; calls of tools by a
 * parser that is fed by hand, for no tiny model calls when it is not made to. */
#include "../call.h"
#include "engine/scheduler.h"
#include "serve/anthropic.h"

static llm_text anthropic_out;

static void anthropic_bodies(const llm_openai_service *s) {
    /* clang-format off */
    static const struct { const char *body, *want, *ignored; } rows[] = {
        {"{'model':'x','max_tokens':5,'messages':[{'role':'user','content':'a'}]}", "{'model':'x','max_tokens':5,'messages':[{'role':'user','content':'a'}]}", ""},
        {"{'system':[{'type':'text','text':'r','cache_control':{'type':'ephemeral'}},{'type':'text','text':'s'}],'messages':[{'role':'user','content':[{'type':'text','text':'a'}]}],'stop_sequences':['q'],'top_k':3,'metadata':{'user_id':'u'},'service_tier':'auto'}",
         "{'messages':[{'role':'system','content':'r\\ns'},{'role':'user','content':[{'type':'text','text':'a'}]}],'stop':['q'],'top_k':3,'user':'u'}", "service_tier"},
        {"{'messages':[{'role':'user','content':'w'},{'role':'assistant','content':[{'type':'thinking','thinking':'hm','signature':'x'},{'type':'text','text':'I look.'},{'type':'tool_use','id':'t1','name':'f','input':{'a':1}}]},{'role':'user','content':[{'type':'tool_result','tool_use_id':'t1','content':[{'type':'text','text':'7'}]},{'type':'text','text':'And?'}]}],'tools':[{'name':'f','description':'d','input_schema':{'type':'object'}}],'tool_choice':{'type':'any','disable_parallel_tool_use':true},'max_tokens':9}",
         "{'messages':[{'role':'user','content':'w'},{'role':'assistant','content':'I look.','reasoning_content':'hm','tool_calls':[{'id':'t1','type':'function','function':{'name':'f','arguments':{'a':1}}}]},{'role':'tool','tool_call_id':'t1','content':[{'type':'text','text':'7'}]},{'role':'user','content':[{'type':'text','text':'And?'}]}],'tools':[{'type':'function','function':{'name':'f','description':'d','parameters':{'type':'object'}}}],'tool_choice':'required','parallel_tool_calls':false,'max_tokens':9}", ""},
        {"{'messages':[{'role':'assistant','content':[{'type':'tool_use','id':'t1','name':'f'}]},{'role':'user','content':[{'type':'tool_result','tool_use_id':'t1'}]}],'thinking':{'type':'enabled','budget_tokens':2000},'output_config':{'format':{'type':'json_schema','schema':{'type':'object'}},'effort':'low'}}",
         "{'messages':[{'role':'assistant','content':null,'tool_calls':[{'id':'t1','type':'function','function':{'name':'f','arguments':{}}}]},{'role':'tool','tool_call_id':'t1','content':''}],'enable_thinking':true,'response_format':{'type':'json_schema','json_schema':{'name':'output','schema':{'type':'object'}}},'reasoning_effort':'low'}", "thinking.budget_tokens"},
        {"{'messages':[]}", "{'type':'error','error':{'type':'invalid_request_error','message':'messages must be a list with at least one message'}}", ""},
        {"{'messages':[{'role':'system','content':'a'}]}", "{'type':'error','error':{'type':'invalid_request_error','message':'messages[0].role must be user or assistant'}}", ""},
        {"{'messages':[{'role':'user','content':[{'type':'document'}]}]}", "{'type':'error','error':{'type':'invalid_request_error','message':'messages[0].content: blocks of type text and image are known here, \\'document\\' is not'}}", ""},
        {"{'messages':[{'role':'user','content':'a'}],'tools':[{'type':'web_search_20250305','name':'web_search'}]}", "{'type':'error','error':{'type':'invalid_request_error','message':'tools[0]: tools of type \\'web_search_20250305\\' run at Anthropic, not here'}}", ""},
        {"{'messages':[{'role':'user','content':'a'}],'tool_choice':{'type':'x'}}", "{'type':'error','error':{'type':'invalid_request_error','message':'tool_choice must be an object whose type is auto, any, none, or tool with a name'}}", ""},
        {"{'messages':[{'role':'user','content':'a'}],'mcp_servers':[]}", "{'type':'error','error':{'type':'invalid_request_error','message':'mcp_servers: the server itself calls no tools'}}", ""},
        {"{'messages':[{'role':'user','content':'a'}],'temperature':9}", "{'type':'error','error':{'type':'invalid_request_error','message':'temperature: 9, a number from 0.0 to 2.0 was expected'}}", ""}};
    /* clang-format on */
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        char body[1200];
        snprintf(body, sizeof body, "%s", rows[i].body);
        for (char *c = body; *c; c++) *c = (char)(*c == '\'' ? '"' : *c);
        llm_openai_call *k = llm_openai_begin(s, LLM_OPENAI_MESSAGES, body, strlen(body), NULL);
        anthropic_out.len = 0;
        if (llm_openai_get_info(k)->status == 200) llm_text_format(&anthropic_out, "%j", k->body, 0);
        else llm_openai_next(k, &anthropic_out);
        for (size_t c = 0; c < anthropic_out.len; c++)
            anthropic_out.data[c] = (char)(anthropic_out.data[c] == '"' ? '\'' : anthropic_out.data[c]);
        if (!CHECK(!strcmp(anthropic_out.data, rows[i].want) && !strcmp(llm_openai_get_info(k)->ignored, rows[i].ignored)))
            printf("  %s\n  %s\n  %s\n  %s\n", body, anthropic_out.data, rows[i].want, llm_openai_get_info(k)->ignored);
        llm_openai_free(k);
    }
}

/* Pictures become parts with a URI. */
static void anthropic_pictures(const llm_openai_service *s) {
    static const char body[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":"
        "\"image/gif\",\"data\":\"aGk=\"}},{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"http://x/y\"}}]}]}";
    llm_openai_call *k = (llm_openai_call *)calloc(1, sizeof *k);
    if (!CHECK(k)) return;
    k->service = *s;
    k->dialect = LLM_OPENAI_MESSAGES;
    CHECK(!llm_json_parse(body, sizeof body - 1, NULL, &k->body) && llm__anthropic_body(k));
    anthropic_out.len = 0;
    llm_text_format(&anthropic_out, "%j", k->body, 0);
    CHECK(strstr(anthropic_out.data, "\"url\":\"data:image/gif;base64,aGk=\"") && strstr(anthropic_out.data, "\"url\":\"http://x/y\""));
    llm_json_free(k->body);
    free(k);
}

static int anthropic_call(const llm_openai_service *s, llm_openai_kind kind, const char *body) {
    return call_run(s, kind, body, &anthropic_out, NULL);
}

static int anthropic_count(const char *what) { return call_count(&anthropic_out, what); }

static void anthropic_answers(const llm_openai_service *s) {
    static const char ask[] = "\"messages\":[{\"role\":\"user\",\"content\":\"abc\"}],\"temperature\":0";
    char body[400];
    snprintf(body, sizeof body, "{%s,\"max_tokens\":4}", ask);
    CHECK(anthropic_call(s, LLM_OPENAI_MESSAGES, body) == 200 && anthropic_count("{\"id\":\"msg_") == 1 &&
          anthropic_count("\"type\":\"text\"") == 1 &&
          anthropic_count("\"stop_reason\":\"max_tokens\",\"stop_sequence\":null,\"usage\":{\"input_tokens\":") == 1 &&
          anthropic_count("\"output_tokens\":4}}") == 1 && !anthropic_count("event:"));
    snprintf(body, sizeof body, "{%s,\"max_tokens\":4,\"stream\":true}", ask);
    CHECK(anthropic_call(s, LLM_OPENAI_MESSAGES, body) == 200 &&
          !strncmp(anthropic_out.data, "event: message_start\ndata: {\"type\":\"message_start\",", 51));
    static const char *const events[] = {"message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"};
    for (int i = 0; i < LLM__COUNT(events); i++) {
        char line[60];
        snprintf(line, sizeof line, "event: %s\ndata: {\"type\":\"%s\"", events[i], events[i]);
        CHECK(anthropic_count(line) == 1);
    }
    CHECK(anthropic_count("event: content_block_delta\n") > 0 && !anthropic_count("[DONE]") &&
          anthropic_count("\"delta\":{\"type\":\"text_delta\",\"text\":\"") > 0);
    snprintf(body, sizeof body, "{%s}", ask);
    CHECK(anthropic_call(s, LLM_OPENAI_COUNT_TOKENS, body) == 200 && !strncmp(anthropic_out.data, "{\"input_tokens\":", 16));
    CHECK(anthropic_call(s, LLM_OPENAI_COUNT_TOKENS, "{\"messages\":1}") == 400 && anthropic_count("\"type\":\"error\"") == 1);
    anthropic_out.len = 0;
    llm_anthropic_error(&anthropic_out, 503, "x");
    CHECK(!strcmp(anthropic_out.data, "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}"));
    CHECK(llm__anthropic_kind(LLM_OPENAI_MESSAGES) == LLM_OPENAI_CHAT && llm__anthropic_kind(LLM_OPENAI_SCORE) == LLM_OPENAI_SCORE &&
          llm__anthropic_names(0) && !llm__anthropic_names(1000));
}

/* Text, a call in pieces, and one that was cut, which is told as the text that it was: blocks that grow, and the answer that is made of them. */
static void anthropic_calls(const llm_openai_service *s) {
    static const char body[] =
        "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"name\":\"f\"}],\"stream\":true}";
    static const char *const said[] = {"well <tool_call>\n{\"name\": \"f\", \"argu", "ments\": {\"a\":\n1}}\n</tool_call>",
                                       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": \"Ro"};
    llm_openai_call *k = llm_openai_begin(s, LLM_OPENAI_MESSAGES, body, sizeof body - 1, NULL);
    if (!CHECK(llm_openai_get_info(k)->status == 200 && llm_openai_submit(k))) return;
    for (int busy = 1; busy;) llm_engine_step(s->engine, &busy);
    llm_finish *finish = &k->request[0]->answer[0]->output.finish; /* the text above is not the model's, and so is the end */
    llm__oai_choice *c = &k->choice[0];
    llm_tool_parser_free(c->tools);
    c->tools = llm_tool_parser_create(llm_tools_named("hermes"), 0, k->body, k->tools, 0);
    anthropic_out.len = 0;
    llm__anthropic_begin(k, &anthropic_out);
    llm__anthropic_begin(k, &anthropic_out);
    CHECK(anthropic_count("event: message_start") == 1);
    for (int i = 0; i < LLM__COUNT(said); i++) {
        llm_tool_parser_push(c->tools, said[i], strlen(said[i]), &c->content);
        if (i == 2) llm_tool_parser_end(c->tools, &c->content);
        llm__anthropic_grow(k, &anthropic_out);
    }
    CHECK(anthropic_count("\"content_block\":{\"type\":\"tool_use\",\"id\":\"call_") == 1 &&
          anthropic_count("\"name\":\"f\",\"input\":{}}") == 1 &&
          anthropic_count("\"type\":\"input_json_delta\",\"partial_json\":\"") >= 1);
    *finish = LLM_FINISH_STOP;
    llm__anthropic_end(k, NULL, &anthropic_out);
    CHECK(anthropic_count("event: content_block_stop") == 3 && anthropic_count("\"stop_reason\":\"tool_use\"") == 1);
    static const char *const reason[] = {"",           "tool_use", "max_tokens",
                                         "max_tokens", "",         "end_turn"}; /* a call that was cut is no tool_use */
    for (int i = 0; i < LLM__COUNT(reason); i++) {
        char want[60];
        if (!*reason[i]) continue;
        *finish = (llm_finish)i;
        anthropic_out.len = 0;
        llm__anthropic_whole(k, &anthropic_out);
        snprintf(want, sizeof want, "\"stop_reason\":\"%s\"", reason[i]);
        if (!CHECK(anthropic_count(want) == 1)) printf("  %s: %s\n", llm_finish_str(*finish), anthropic_out.data);
    }
    anthropic_out.len = 0;
    llm__anthropic_whole(k, &anthropic_out);
    CHECK(anthropic_count("{\"type\":\"text\",\"text\":\"well") == 1 && anthropic_count("\"name\":\"f\",\"input\":{\"a\":1}}") == 1 &&
          anthropic_count("\\\"b\\\": \\\"Ro\"}]") == 1);
    anthropic_out.len = 0;
    llm__anthropic_end(k, "lost", &anthropic_out);
    CHECK(!strncmp(anthropic_out.data, "event: error\ndata: {\"type\":\"error\",", 35));
    llm_openai_free(k);
}

TEST_GROUP(anthropic) {
    static const char path[] = TEST_CHECKPOINT("llama");
    llm_engine_config c;
    llm_openai_service s;
    memset(&c, 0, sizeof c);
    c.max_model_len = 512;
    c.max_num_seqs = 4;
    llm *l = test_made(path, "checkpoints") ? llm_load(path, &c) : NULL;
    if (!CHECK(l)) return;
    llm_openai_service_init(&s, llm_get_model(l), llm_get_engine(l));
    anthropic_answers(&s);
    anthropic_calls(&s);
    anthropic_pictures(&s);
    anthropic_bodies(&s);
    llm_free(l);
    llm_text_free(&anthropic_out);
}
