/* What a chat template writes for calls that a model has made, its parser reads back as those calls, one byte at a time: a model writes in the
 * form that its template taught it. Every template in build/data/chat_templates that knows tools. */
#include "../test.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/files.h"
#include "chat/tools.h"
#include <dirent.h>

/* clang-format off */
static const char spoken_tools[] = "[{'type':'function','function':{'name':'get_weather','description':'Weather.','parameters':{'type':'object','properties':{"
    "'city':{'type':'string','description':'c'},'days':{'type':'integer','description':'d'},'note':{'type':'string','description':'n'}},'required':['city']}}}]";
static const char *const spoken_calls[2] = {
    "{'id':'call00001','type':'function','function':{'name':'get_weather','arguments':'{\\\"city\\\": \\\"Rome, <b>Italy</b>\\\", \\\"days\\\": 3, \\\"note\\\": \\\"a \\\\\\\"b\\\\\\\"\\\\nc\\\"}'}}",
    "{'id':'call00002','type':'function','function':{'name':'get_weather','arguments':'{\\\"city\\\": \\\"Oslo\\\", \\\"days\\\": 1}'}}"};
static const struct { const char *city, *note; int64_t days; } spoken_want[2] = {{"Rome, <b>Italy</b>", "a \"b\"\nc", 3}, {"Oslo", NULL, 1}};
/* How many calls of an answer a template writes, where it is not any number: in Granite 3.3's and in that of a model whose calls are not known here
 * none, and two refuse such a conversation. */
static const struct { const char *name; int most; } spoken_most[] = {
    {"ibm-granite-granite-3.3-2B-Instruct", 0}, {"Kimi-K2-Instruct", 0}, {"meetkai-functionary-medium-v3.2", 0},
    {"meta-llama-Llama-3.2-3B-Instruct", 1}, {"GigaChat3.1-10B-A1.8B", 1}};
/* clang-format on */

/* A conversation as the template writes it: a question, and n calls for an answer, or the place for one. */
static int spoken_render(const llm_template *t, int n, llm_text *out) {
    LLM__SCOPED(llm_text_free) llm_text json = LLM__ZERO;
    llm_render_options options = LLM__ZERO;
    llm_json *doc = NULL;
    options.as_chat = 1, options.bos_token = "<s>", options.eos_token = "</s>";
    llm_text_str(&json, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi?\"}");
    if (n) llm_text_str(&json, ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[");
    for (int i = 0; i < n; i++) llm_text_format(&json, "%,"), llm_text_format(&json, spoken_calls[i]);
    llm_text_str(&json, n ? "]}],\"tools\":" : "],\"tools\":");
    llm_text_format(&json, spoken_tools);
    llm_text_format(&json, ",'add_generation_prompt':%b}", !n);
    if (!CHECK(!llm_json_parse(json.data, json.len, NULL, &doc))) return 0;
    const llm_result r = llm_template_render(t, doc, &options, out);
    llm_json_free(doc);
    return !r;
}

/* Where the answer begins: behind what both texts have, but not within a tag. */
static size_t spoken_begin(const llm_text *asked, const llm_text *said) {
    size_t at = 0, tag;
    while (at < asked->len && at < said->len && asked->data[at] == said->data[at]) at++;
    for (tag = at; tag && at - tag < 24 && !strchr("<>\n", said->data[tag - 1]);) tag--;
    return tag && said->data[tag - 1] == '<' ? tag - 1 : at;
}

static int spoken_right(const llm_tool_call *c, int i) {
    llm_json *d = NULL;
    int64_t days = 0;
    if (!c->done || strcmp(c->name.data, "get_weather") || llm_json_parse(c->arguments.data, c->arguments.len, NULL, &d)) return 0;
    const char *city = llm_json_str(d, llm_json_find(d, 0, "city"), NULL), *note = llm_json_str(d, llm_json_find(d, 0, "note"), NULL);
    int ok =
        city && !strcmp(city, spoken_want[i].city) && llm_json_int(d, llm_json_find(d, 0, "days"), &days) && days == spoken_want[i].days;
    ok &= spoken_want[i].note ? note && !strcmp(note, spoken_want[i].note) : !note;
    llm_json_free(d);
    return ok;
}

static void spoken_template(const char *name, const char *source, size_t len, const llm_json *tools) {
    LLM__SCOPED(llm_text_free) llm_text asked = LLM__ZERO;
    llm_template *t = NULL;
    llm_template_caps caps;
    int most = 2;
    if (!CHECK(!llm_template_open(source, len, &t))) return;
    for (int i = 0; i < LLM__COUNT(spoken_most); i++)
        if (!strncmp(name, spoken_most[i].name, strlen(spoken_most[i].name))) most = spoken_most[i].most;
    llm_template_get_caps(t, &caps);
    for (int n = 1; caps.tools && n <= most; n++) {
        LLM__SCOPED(llm_text_free) llm_text said = LLM__ZERO;
        LLM__SCOPED(llm_text_free) llm_text content = LLM__ZERO;
        int32_t found;
        asked.len = 0;
        if (!CHECK(spoken_render(t, 0, &asked) && spoken_render(t, n, &said))) break;
        llm_tool_parser *p = llm_tool_parser_create(llm_tools_detect(source), 0, tools, 0, 0);
        for (size_t at = spoken_begin(&asked, &said); at < said.len; at++) llm_tool_parser_push(p, said.data + at, 1, &content);
        llm_tool_parser_end(p, &content);
        const llm_tool_call *call = llm_tool_parser_calls(p, &found);
        int ok = found == n;
        for (int i = 0; i < n && ok; i++) ok = spoken_right(&call[i], i);
        if (!CHECK(ok)) printf("  %s, %d calls: %d read of %s\n", name, n, (int)found, said.data + spoken_begin(&asked, &said));
        llm_tool_parser_free(p);
    }
    llm_template_close(t);
}

TEST_GROUP(spoken) {
    static const char folder[] = "build/data/chat_templates/templates";
    LLM__SCOPED(llm_text_free) llm_text json = LLM__ZERO;
    llm_json *tools = NULL;
    DIR *d = opendir(folder);
    int n = 0;
    llm_text_format(&json, spoken_tools);
    if (!CHECK(d && !llm_json_parse(json.data, json.len, NULL, &tools))) return;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[512];
        llm__file f;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (!strstr(e->d_name, ".jinja") || !CHECK(!llm__file_open(path, 0, 0, &f))) continue;
        char *source = llm__strndup((const char *)f.data, f.size);
        spoken_template(e->d_name, source, f.size, tools);
        LLM_FREE(source);
        llm__file_close(&f);
        n++;
    }
    CHECK(n > 30);
    closedir(d);
    llm_json_free(tools);
}
