/* ollama: Ollama's answers. */
#include "serve/ollama.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/model.h"
#include "api/sampler.h"
#include "api/request.h"
#include "api/json.h"
#include "api/chat.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/map.h"
#include "base/json.h"
#include "serve/openai.h"
#include "serve/openai_parts.h"
#include "serve/openai_choices.h"

LLM__PRIVATE void llm__ollama_error(const char *message, int line, llm_text *out) {
    llm_text_format(out, line ? "{'error':%q}\n" : "{'error':%q}", message);
}

/* A time as Ollama writes it, in RFC 3339. */
static void llm__ollama_time(double when, llm_text *out) {
    const time_t seconds = (time_t)when;
    struct tm t;
    char text[100];
    if (!gmtime_r(&seconds, &t)) memset(&t, 0, sizeof t);
    snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min,
             t.tm_sec, (int)((when - (double)seconds) * 1e6) % 1000000);
    llm_text_format(out, "%q", text);
}

/* How every line of an answer begins. */
static void llm__ollama_head(const llm_openai_call *k, llm_text *out) {
    llm_text_format(out, "{'model':%q,'created_at':", k->model);
    llm__ollama_time(llm__wall_clock(), out);
}

/* A call: its arguments are an object. One that was cut is told as the text that it was. 0: it is none. */
static int llm__ollama_call(const llm__oai_choice *c, int32_t i, const llm_tool_call *call, llm_text *out) {
    LLM__SCOPED(llm__json_drop) llm_json *arguments = NULL;
    char id[32];
    if (llm_json_parse(call->arguments.data ? call->arguments.data : "", call->arguments.len, NULL, &arguments)) return 0;
    if (llm_json_type_of(arguments, 0) != LLM_JSON_OBJECT) return 0;
    llm__oai_call_id(c, i, id);
    llm_text_format(out, "%,{'id':%q,'function':{'index':%d,'name':%Q,'arguments':%j}}", id, i, call->name.data, call->name.len, arguments,
                    0);
    return 1;
}

/* The calls that are whole and were not told yet, as entries of tool_calls; at the end all that are left, and of those that are none what
 * the model wrote, as text. */
static void llm__ollama_calls(llm__oai_choice *c, int end, llm_text *calls) {
    int32_t n = 0;
    const llm_tool_call *call = c->tools ? llm_tool_parser_calls(c->tools, &n) : NULL;
    for (; c->n_told < n && (end || call[c->n_told].done); c->n_told++) {
        const llm_tool_call *one = &call[c->n_told];
        if (llm__ollama_call(c, c->n_told, one, calls)) continue;
        llm_text_format(&c->content, "{'name':%Q,'arguments':%s", one->name.data, one->name.len,
                        one->arguments.data ? one->arguments.data : "");
    }
}

/* What there is of an answer's text, thoughts and calls, under their names, and then forgets it. */
static void llm__ollama_payload(const llm_openai_call *k, llm__oai_choice *c, const llm_text *calls, llm_text *out) {
    const int chat = k->dialect == LLM_OPENAI_OLLAMA_CHAT;
    llm_text_format(out, chat ? ",'message':{'role':'assistant','content':%Q" : ",'response':%Q", c->content.data, c->content.len);
    if (c->thoughts.len) llm_text_format(out, ",'thinking':%Q", c->thoughts.data, c->thoughts.len);
    if (calls && calls->len) llm_text_format(out, ",'tool_calls':[%s]", calls->data);
    if (chat) llm_text_str(out, "}");
    out->failed |= c->content.failed | (calls && calls->failed);
    c->content.len = c->thoughts.len = 0;
}

static int64_t llm__ollama_ns(double seconds) { return seconds > 0 ? (int64_t)(seconds * 1e9) : 0; }

/* How long it took. What Ollama calls loading is the wait for a place here. */
static void llm__ollama_times(const llm_openai_call *k, int answers, llm_text *out) {
    llm_request_metrics m = LLM__ZERO;
    llm_output o;
    int64_t prompt = 0;
    for (int32_t r = k->info.n_requests - 1; r >= 0; r--) {
        llm_request_get_metrics(k->request[r], &m); /* the first one's stay */
        prompt += m.n_prompt_tokens;
    }
    const double wait = m.inference_start_time - m.arrival_time;
    llm_text_format(out, ",'total_duration':%l,'load_duration':%l,'prompt_eval_count':%l", llm__ollama_ns(llm__now() - k->received),
                    m.inference_start_time > 0 ? llm__ollama_ns(wait) : (int64_t)0, prompt);
    if (!answers || llm_request_get_output(k->request[0], 0, &o)) return;
    llm_text_format(out, ",'prompt_eval_duration':%l,'eval_count':%l,'eval_duration':%l", llm__ollama_ns(m.first_token_time),
                    (int64_t)o.n_token_ids, llm__ollama_ns(m.finish_time - m.inference_start_time - m.first_token_time));
}

/* The ids of prompt and answer, for a later request's `context`. */
static void llm__ollama_ids(const llm_openai_call *k, const llm_output *o, llm_text *out) {
    size_t n;
    const int32_t *prompt = llm_request_prompt(k->request[0], &n);
    llm_text_str(out, ",\"context\":[");
    for (size_t i = 0; i < n; i++) llm_text_format(out, "%,%d", prompt[i]);
    for (size_t i = 0; i < o->n_token_ids; i++) llm_text_format(out, "%,%d", o->token_ids[i]);
    llm_text_str(out, "]");
}

/* How the last line ends. */
static void llm__ollama_end(const llm_openai_call *k, llm_text *out) {
    llm_output o;
    llm_request_get_output(k->request[0], 0, &o);
    llm_text_format(out, ",'done':true,'done_reason':%q", llm_finish_str(o.finish));
    if (k->dialect == LLM_OPENAI_OLLAMA_GENERATE && k->info.kind == LLM_OPENAI_CHAT) llm__ollama_ids(k, &o, out);
    llm__ollama_times(k, 1, out);
}

/* Log-probabilities of the tokens that were not told yet, without the one that only ends the answer. */
static void llm__ollama_logprobs_of(const llm_openai_call *k, llm__oai_choice *c, llm_text *out) {
    llm_output o;
    if (!k->want_logprobs) return;
    llm_request_get_output(k->request[0], 0, &o);
    const int32_t told = c->n_tokens - c->n_held, n = k->info.stream ? c->n_held : (int32_t)o.n_token_ids;
    const int last =
        told + n > 0 && told + n == (int32_t)o.n_token_ids && llm__oai_is_end(k, o.finish, o.stop_id, o.token_ids[told + n - 1]);
    const llm_output rows = llm__oai_rows(&o, told, n - last);
    c->n_held = 0;
    if (!rows.n_token_ids) return;
    llm_text_str(out, ",\"logprobs\":[");
    llm__oai_chat_rows(k, &rows, out);
    llm_text_str(out, "]");
}

LLM__PRIVATE void llm__ollama_event(llm_openai_call *k, const llm_event *e, llm_text *out) {
    llm__oai_choice *c = &k->choice[0];
    const int end = e->finish != LLM_FINISH_NONE;
    LLM__SCOPED(llm_text_free) llm_text calls = LLM__ZERO;
    llm__ollama_calls(c, end, &calls);
    if (c->content.len || c->thoughts.len || calls.len) {
        llm__ollama_head(k, out);
        llm__ollama_payload(k, c, &calls, out);
        llm__ollama_logprobs_of(k, c, out);
        llm_text_str(out, ",\"done\":false}\n");
    }
    if (!end) return;
    llm__ollama_head(k, out);
    llm__ollama_payload(k, c, NULL, out);
    llm__ollama_end(k, out);
    llm_text_str(out, "}\n");
}

LLM__PRIVATE void llm__ollama_loaded(llm_openai_call *k, llm_text *out) {
    if (k->dialect == LLM_OPENAI_OLLAMA_EMBEDDINGS) llm_text_str(out, "{\"embedding\":[]}");
    else if (k->dialect == LLM_OPENAI_OLLAMA_EMBED) llm_text_format(out, "{'model':%q,'embeddings':[]}", k->model);
    else {
        llm__ollama_head(k, out);
        llm_text_format(out, ",%s,'done':true,'done_reason':'load'}%s",
                        k->dialect == LLM_OPENAI_OLLAMA_CHAT ? "\"message\":{\"role\":\"assistant\",\"content\":\"\"}"
                                                             : "\"response\":\"\"",
                        k->info.stream ? "\n" : "");
    }
    k->info.stream = 0; /* one piece */
}

/* Vectors: of several texts in a list, of /api/embeddings the one. */
static void llm__ollama_vectors(const llm_openai_call *k, llm_text *out) {
    if (k->dialect == LLM_OPENAI_OLLAMA_EMBEDDINGS) {
        llm_text_str(out, "{\"embedding\":");
        llm__oai_vector(k, 0, out);
        llm_text_str(out, "}");
        return;
    }
    llm_text_format(out, "{'model':%q,'embeddings':[", k->model);
    for (int32_t r = 0; r < k->info.n_requests; r++) {
        llm_text_format(out, "%,");
        llm__oai_vector(k, r, out);
    }
    llm_text_str(out, "]");
    llm__ollama_times(k, 0, out);
    llm_text_str(out, "}");
}

LLM__PRIVATE void llm__ollama_whole(llm_openai_call *k, llm_text *out) {
    llm__oai_choice *c = &k->choice[0];
    LLM__SCOPED(llm_text_free) llm_text calls = LLM__ZERO;
    if (k->info.kind == LLM_OPENAI_EMBEDDING) {
        llm__ollama_vectors(k, out);
        return;
    }
    llm__ollama_calls(c, 1, &calls);
    llm__ollama_head(k, out);
    llm__ollama_payload(k, c, &calls, out);
    llm__ollama_logprobs_of(k, c, out);
    llm__ollama_end(k, out);
    llm_text_str(out, "}");
}

/* ---- what there is */

/* "134.5M", "8.0B". */
static void llm__ollama_size(int64_t n, char out[40]) {
    const int large = n >= 1000000000;
    snprintf(out, 40, "%.*f%s", large ? 1 : 2, (double)n / (large ? 1e9 : 1e6), large ? "B" : "M");
}

/* info NULL: nothing is known of it yet. */
static void llm__ollama_details(const llm_model_info *info, llm_text *out) {
    static const llm_model_info none = LLM__ZERO;
    char size[40] = "";
    if (info) llm__ollama_size(info->n_params, size);
    else info = &none;
    const char *family = info->family ? info->family : "";
    llm_text_format(out,
                    ",'details':{'parent_model':'','format':%q,'family':%q,'families':[%q],'parameter_size':%q,'quantization_level':%q}",
                    info->format ? info->format : "", family, family, size, info->file_type ? info->file_type : "");
}

/* name with the tag that every name has there; 64 hexadecimal digits that stay the same, loaded or not, where Ollama has those of a
 * manifest. */
LLM_API void llm_ollama_card(const llm_model *model, const char *name, double modified, int32_t max_model_len, llm_text *out) {
    const llm_model_info *info = model ? llm_model_get_info(model) : NULL;
    const char *slash = strrchr(name, '/'), *tag = strchr(slash ? slash : name, ':') ? "" : ":latest";
    char digest[80];
    for (uint64_t i = 0; i < 4; i++) snprintf(digest + 16 * i, 20, "%016llx", (unsigned long long)llm__hash(name, strlen(name), i + 1));
    LLM__SCOPED(llm_text_free) llm_text full = LLM__ZERO;
    llm_text_str(&full, name);
    llm_text_str(&full, tag);
    out->failed |= full.failed;
    llm_text_format(out, "%,{'name':%q,'model':%q,'modified_at':", full.data, full.data);
    llm__ollama_time(modified, out);
    llm_text_format(out, ",'size':%l,'digest':%q", info ? info->weight_bytes : (int64_t)0, digest);
    llm__ollama_details(info, out);
    if (max_model_len > 0) {
        llm_text_str(out, ",\"expires_at\":");
        llm__ollama_time(llm__wall_clock() + 365.0 * 86400, out); /* it stays as long as the server */
        llm_text_format(out, ",'size_vram':0,'context_length':%d", max_model_len);
    }
    llm_text_str(out, "}");
}

/* The sampling that holds where a request says nothing, as lines. */
static void llm__ollama_parameters(const llm_sampling *s, llm_text *out) {
    const struct {
        const char *name;
        double value;
    } rows[] = {{"temperature", (double)s->temperature},
                {"top_p", s->top_p > 0 ? (double)s->top_p : 1.0},
                {"top_k", s->top_k > 0 ? (double)s->top_k : 0.0},
                {"min_p", (double)s->min_p},
                {"repeat_penalty", s->repetition_penalty > 0 ? (double)s->repetition_penalty : 1.0}};
    for (int i = 0; i < LLM__COUNT(rows); i++) {
        char line[80];
        snprintf(line, sizeof line, "%s%-30s %g", i ? "\n" : "", rows[i].name, rows[i].value);
        llm_text_str(out, line);
    }
}

LLM__PRIVATE void llm__ollama_show(const llm_openai_call *k, llm_text *out) {
    const llm_openai_service *s = &k->service;
    const llm_model_info *info = llm_model_get_info(s->model);
    const char *a = info->family;
    llm_sampling how = s->defaults;
    LLM__SCOPED(llm_text_free) llm_text parameters = LLM__ZERO;
    llm__ollama_defaults(s, &how);
    llm__ollama_parameters(&how, &parameters);
    llm_text_format(out, "{'modelfile':%q,'parameters':%q,'template':%q", "# the model is given to the server at its start\n",
                    parameters.data ? parameters.data : "", info->chat_template ? info->chat_template : "");
    llm__ollama_details(info, out);
    llm_text_format(out,
                    ",'model_info':{'general.architecture':%q,'general.parameter_count':%l,'%s.context_length':%d,'%s.embedding_length':%d,"
                    "'%s.block_count':%d,'%s.attention.head_count':%d,'%s.attention.head_count_kv':%d,'%s.vocab_size':%d,",
                    a, info->n_params, a, info->max_position_embeddings, a, info->hidden_size, a, info->n_layers, a, info->n_heads, a,
                    info->n_kv_heads, a, info->vocab_size);
    llm_text_format(out, "'tokenizer.ggml.model':%q,'tokenizer.ggml.bos_token_id':%d,'tokenizer.ggml.eos_token_id':%d},'capabilities':[",
                    info->tokenizer_kind, info->bos_id, info->eos_id);
    llm_text_str(out, "\"completion\"");
    if (info->chat_template && (s->caps.tools || s->caps.system_role)) llm_text_str(out, ",\"tools\"");
    if (s->model->vision) llm_text_str(out, ",\"vision\"");
    if (s->reasoning != LLM_REASONING_NONE || s->caps.thinking_switch) llm_text_str(out, ",\"thinking\"");
    llm_text_str(out, "],\"modified_at\":");
    llm__ollama_time((double)k->created, out);
    llm_text_str(out, "}");
    out->failed |= parameters.failed;
}
