#include "serve/openai_choices.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/model.h"
#include "api/request.h"
#include "api/tokenizer.h"
#include "api/chat.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/text.h"
#include "model/pooler.h"
#include "engine/scheduler.h"
#include "serve/openai.h"
#include "serve/openai_parts.h"

LLM__PRIVATE void llm__oai_call_id(const llm__oai_choice *c, int32_t i, char id[32]) {
    snprintf(id, 32, "call_%016llx", (unsigned long long)(c->call_id + (uint64_t)i));
}

LLM__PRIVATE void llm__oai_write_call(const llm__oai_choice *c, int32_t i, const llm_tool_call *call, int stream, int announce, size_t from,
                                      size_t to, llm_text *out) {
    char id[32];
    llm__oai_call_id(c, i, id);
    llm_text_format(out, stream ? "%,{'index':%d," : "%,{", i);
    if (announce) llm_text_format(out, "'id':%q,'type':'function','function':{'name':%Q,", id, call->name.data, call->name.len);
    else llm_text_str(out, "\"function\":{");
    llm_text_format(out, "'arguments':%Q}}", call->arguments.data + from, to - from);
}

/* The text of a choice: `text`, the `message`, or a `delta`, whose empty members are left out:
 *
 *   completion   "text": "4"
 *   whole chat   "message": {"role": "assistant", "content": "4", "reasoning_content": "2 and 2.", "tool_calls": [...], "refusal": null}
 *   a chunk      "delta": {"content": "4"}, {"reasoning_content": "2"}, {"tool_calls": [...]}, or {} at the end
 *
 * Thoughts stand there twice: DeepSeek's word is reasoning_content, that of vLLM today is `reasoning`.
 * A message that only calls has null for a content. A chunk of a token without text says {"content": ""}: it is there to be counted. */
static void llm__oai_payload(const llm_openai_call *k, const llm__oai_piece *p, llm_text *out) {
    const llm__oai_choice *c = &k->choice[p->at];
    int whole = !k->info.stream, thoughts = p->text && c->thoughts.len;
    int content = p->text && (whole || c->content.len || !thoughts) && !(p->calls && !c->content.len);
    if (!llm__oai_chats(k)) {
        llm_text_format(out, "'text':%Q", c->content.data, c->content.len);
        return;
    }
    llm_text_str(out, whole ? "\"message\":{\"role\":\"assistant\"" : "\"delta\":{");
    if (content) llm_text_format(out, "%,'content':%Q", c->content.data, c->content.len);
    else if (whole) llm_text_str(out, ",\"content\":null");
    if (thoughts)
        llm_text_format(out, "%,'reasoning_content':%Q,'reasoning':%Q", c->thoughts.data, c->thoughts.len, c->thoughts.data,
                        c->thoughts.len);
    if (p->calls && (p->calls->len || p->calls->failed)) llm_text_format(out, "%,'tool_calls':[%t]", p->calls);
    llm_text_str(out, whole ? ",\"refusal\":null}" : "}");
}

static void llm__oai_prompt_ids_told(const llm_request *request, llm_text *out) {
    size_t n;
    const int32_t *ids = llm_request_prompt(request, &n);
    llm_text_format(out, ",'prompt_token_ids':%i", ids, n);
}

LLM__PRIVATE void llm__oai_prompt_told(const llm_openai_call *k, llm_text *out) {
    LLM__SCOPED(llm_text_free) llm_text plain = LLM__ZERO;
    if (k->token_ids) llm__oai_prompt_ids_told(k->request[0], out);
    if (!k->prompt_text) return;
    llm_unguard(k->text.data ? k->text.data : "", k->text.len, &plain);
    out->failed |= plain.failed;
    llm_text_format(out, ",'prompt_text':%Q", plain.data, plain.len);
}

LLM__PRIVATE void llm__oai_write_choice(const llm_openai_call *k, const llm__oai_piece *p, llm_text *out) {
    const llm__oai_choice *c = &k->choice[p->at];
    const llm_request *request = k->request[p->at / k->info.n_choices];
    const llm_output *end = p->end;
    int chat = llm__oai_chats(k), whole = !k->info.stream, rows = k->want_logprobs && (p->echo || p->rows);
    llm_text_format(out, "%,{'index':%d,", p->at);
    llm__oai_payload(k, p, out);
    llm_text_str(out, rows ? ",\"logprobs\":" : ",\"logprobs\":null");
    if (rows && chat) {
        llm_text_str(out, "{\"content\":[");
        llm__oai_chat_rows(k, p->rows, out);
        llm_text_str(out, "],\"refusal\":null}");
    }
    if (rows && !chat) llm__oai_lists(k, p->echo, p->rows, &k->choice[p->at].offset, out);
    llm_text_format(out, ",'finish_reason':%q",
                    !end                                          ? NULL
                    : p->called && end->finish == LLM_FINISH_STOP ? "tool_calls"
                                                                  : llm_finish_str(end->finish));
    if (end && (end->stop_reason || end->stop_id < 0)) llm_text_format(out, ",'stop_reason':%q", end->stop_reason);
    else if (end) llm_text_format(out, ",'stop_reason':%d", end->stop_id);
    if (end) llm_text_format(out, ",'sentence_length':%l,'cum_log_probs':%f", c->chars, end->cum_logprob);
    if (k->token_ids && (whole || (p->first && !chat))) llm__oai_prompt_ids_told(request, out);
    if (k->token_ids && p->ids) llm_text_format(out, ",'token_ids':%i", p->ids->token_ids, p->ids->n_token_ids);
    if (end && whole && !chat && k->prompt_logprobs >= 0) llm__oai_prompt_logprobs(k, request, out);
    llm_text_str(out, "}");
}

/* Choice `at` of a whole answer; of /generate its text alone. */
static void llm__oai_whole_choice(const llm_openai_call *k, int32_t at, llm_text *out) {
    int chat = llm__oai_chats(k);
    const llm_request *request = k->request[at / k->info.n_choices];
    const llm__oai_choice *c = &k->choice[at];
    llm__oai_piece p = LLM__ZERO;
    LLM__SCOPED(llm_text_free) llm_text calls = LLM__ZERO;
    llm_output o, rows, echo = llm__oai_prompt_rows(request);
    llm_request_get_output(request, at % k->info.n_choices, &o);
    rows = o;
    if (chat && o.n_token_ids && llm__oai_is_end(k, o.finish, o.stop_id, o.token_ids[o.n_token_ids - 1])) rows.n_token_ids--;
    p.at = at;
    p.text = 1;
    p.echo = !chat && k->echo ? &echo : NULL;
    p.rows = &rows;
    p.end = p.ids = &o;
    const llm_tool_call *call = c->tools ? llm_tool_parser_calls(c->tools, &p.called) : NULL;
    for (int32_t i = 0; i < p.called; i++) llm__oai_write_call(c, i, &call[i], 0, 1, 0, call[i].arguments.len, &calls);
    if (p.called) p.calls = &calls;
    if (k->info.kind == LLM_OPENAI_GENERATE) llm_text_format(out, "%,%Q", c->content.data, c->content.len);
    else llm__oai_write_choice(k, &p, out);
}

/* ---- embeddings
 * One vector a prompt, scaled to length 1 unless that was declined; `dimensions` keeps the first of its numbers, which is meant for models
 * that were trained so (Kusupati et al. 2022, "Matryoshka"). base64 is what OpenAI's own clients ask for: a third of the bytes, and no
 * rounding in between. */

/* RFC 4648 with padding: three bytes a group of four digits. Only the last piece may have a length that is no multiple of three. */
static void llm__oai_base64(const unsigned char *bytes, size_t n, llm_text *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t group = (uint32_t)bytes[i] << 16 | (i + 1 < n ? (uint32_t)bytes[i + 1] << 8 : 0) | (i + 2 < n ? bytes[i + 2] : 0u);
        char four[4];
        for (int k = 0; k < 4; k++) four[k] = i + (size_t)k <= n ? digits[group >> (18 - 6 * k) & 63] : '=';
        llm_text_add(out, four, 4);
    }
}

LLM__PRIVATE void llm__oai_vector(const llm_openai_call *k, int32_t r, llm_text *out) {
    int32_t n;
    const float *x = llm_request_embedding(k->request[r], &n);
    double sum = 0;
    if (k->dimensions) n = (int32_t)LLM__MIN(k->dimensions, n);
    for (int32_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    double scale = k->normalize && sum > 0 ? 1 / sqrt(sum) : 1;
    llm_text_str(out, k->base64 ? "\"" : "[");
    for (int32_t i = 0; i < n; i += 48) { /* a multiple of three bytes at a time, so that base64 needs no padding in between */
        float piece[48];
        int32_t many = LLM__MIN(48, n - i);
        for (int32_t c = 0; c < many; c++) piece[c] = (float)((double)x[i + c] * scale);
        if (k->base64) llm__oai_base64((const unsigned char *)piece, (size_t)many * sizeof *piece, out);
        for (int32_t c = 0; c < many && !k->base64; c++) llm_text_format(out, "%,%f", (double)piece[c]);
    }
    llm_text_str(out, k->base64 ? "\"" : "]");
}

/* What a classifier says of text r, as vLLM writes it: {"index": 0, "label": "POSITIVE", "probs": [0.1, 0.9], "num_classes": 2}. The
 * values of its labels are made probabilities, unless that is declined: of labels that exclude each other by a softmax, else by a sigmoid
 * each. */
static void llm__oai_classes(const llm_openai_call *k, int32_t r, llm_text *out) {
    const llm_model *m = k->service.model;
    int32_t n = 0, best = 0;
    const float *x = llm_request_embedding(k->request[r], &n);
    const int each = n == 1 || m->pooler.several;
    char made[24];
    double sum = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    for (int32_t i = 0; i < n; i++) sum += exp((double)x[i] - (double)x[best]);
    const llm__str label = llm__pooler_label(m, best, made);
    llm_text_format(out, "%,{'index':%d,'label':%Q,'probs':[", r, label.p, label.n);
    for (int32_t i = 0; i < n; i++) {
        const double v = (double)x[i], odds = each ? 1 / (1 + exp(-v)) : exp(v - (double)x[best]) / sum;
        llm_text_format(out, "%,%f", k->raw_scores || !m->pooler.sigmoid ? v : odds);
    }
    llm_text_format(out, "],'num_classes':%d}", n);
}

LLM__PRIVATE void llm__oai_whole(const llm_openai_call *k, llm_text *out) {
    int generate = k->info.kind == LLM_OPENAI_GENERATE, pools = llm__oai_pools(k);
    if (generate) llm_text_str(out, "{\"text\":[");
    else llm__oai_head(k, llm__oai_kinds[k->info.kind].object, out);
    for (int32_t r = 0; r < k->info.n_requests && llm__oai_goes_on(k, out); r++) {
        if (k->info.kind == LLM_OPENAI_CLASSIFY) llm__oai_classes(k, r, out);
        else if (pools)
            llm_text_format(out, "%,{'object':'embedding','index':%d,'embedding':", r), llm__oai_vector(k, r, out), llm_text_str(out, "}");
        for (int32_t i = 0; i < k->info.n_choices && !pools && llm__oai_goes_on(k, out); i++)
            llm__oai_whole_choice(k, r * k->info.n_choices + i, out);
    }
    llm_text_str(out, "]");
    if (!generate) llm__oai_usage(k, out);
    if (llm__oai_chats(k)) llm__oai_prompt_told(k, out);
    if (llm__oai_chats(k) && k->prompt_logprobs >= 0) llm__oai_prompt_logprobs(k, k->request[0], out);
    if (k->metrics && !generate && !pools) llm__oai_metrics(k, k->request[0], out);
    llm_text_str(out, "}");
}
