#include "serve/openai_parts.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/request.h"
#include "api/tokenizer.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/text.h"
#include "engine/scheduler.h"
#include "serve/openai.h"

static double llm__oai_shown(float logprob) { return logprob >= -9999 ? (double)logprob : -9999.0; }

LLM__PRIVATE llm_output llm__oai_prompt_rows(const llm_request *request) {
    llm_output o = LLM__ZERO;
    o.token_ids = llm_request_prompt(request, &o.n_token_ids);
    o.logprobs = llm_request_prompt_logprobs(request, &o.top, &o.top_counts, &o.top_stride);
    return o;
}

LLM__PRIVATE llm_output llm__oai_rows(const llm_output *answer, int32_t from, int32_t n) {
    llm_output o = LLM__ZERO;
    o.token_ids = answer->token_ids + from;
    o.n_token_ids = n > 0 ? (size_t)n : 0;
    o.top_stride = answer->top_stride;
    if (answer->logprobs) o.logprobs = answer->logprobs + from;
    if (answer->top) o.top = answer->top + (int64_t)from * answer->top_stride, o.top_counts = answer->top_counts + from;
    return o;
}

LLM__PRIVATE llm_output llm__oai_event_rows(const llm_event *e) {
    llm_output o = LLM__ZERO;
    o.token_ids = &e->id;
    o.n_token_ids = 1;
    o.logprobs = &e->logprob;
    o.top = e->top;
    o.top_counts = &e->n_top;
    return o;
}

/* Alternative j to the token at place i, of `shown`: the likeliest first, and with `own` the token itself behind them if it is not among
 * them, so up to N + 1. 0: there are no more. */
static int llm__oai_alternative(const llm_output *o, size_t i, int32_t shown, int own, int j, llm_token_logprob *out) {
    const llm_token_logprob *top = o->top ? o->top + i * (size_t)o->top_stride : NULL;
    int width = top ? LLM__MIN(o->top_counts[i], shown) : 0, seen = 0;
    for (int c = 0; c < width; c++) seen |= top[c].id == o->token_ids[i];
    out->id = o->token_ids[i];
    out->logprob = o->logprobs[i];
    if (j < width) *out = top[j];
    return j < width || (j == width && own && !seen);
}

LLM__PRIVATE void llm__oai_token(const llm_openai_call *k, int32_t id, llm_text *bytes, llm_text *out) {
    bytes->len = 0;
    if (llm_token_bytes(k->service.model, id, bytes) == LLM_ERR_NOMEM) out->failed = 1;
    int whole = llm__utf8_valid(bytes->data, bytes->len) == bytes->len;
    if (k->as_ids) llm_text_format(out, "'token_id:%d'", id);
    else llm_text_format(out, whole ? "%Q" : "'bytes:", bytes->data, bytes->len);
    whole |= k->as_ids;
    for (size_t i = 0; i < bytes->len && !whole; i++) {
        char hex[8];
        snprintf(hex, sizeof hex, "\\\\x%02X", (unsigned char)bytes->data[i]);
        llm_text_str(out, hex);
    }
    if (!whole) llm_text_str(out, "\"");
}

LLM__PRIVATE void llm__oai_lists(const llm_openai_call *k, const llm_output *echo, const llm_output *rows, int64_t *chars, llm_text *out) {
    LLM__SCOPED(llm_text_free) llm_text bytes = LLM__ZERO;
    llm_text likely = LLM__ZERO, logprobs = LLM__ZERO, offsets = LLM__ZERO;
    llm_text_str(out, "{\"tokens\":[");
    for (int part = 0; part < 2; part++) {
        const llm_output *o = part ? rows : echo;
        for (size_t i = 0; o && i < o->n_token_ids && llm__oai_goes_on(k, &likely); i++) {
            llm_token_logprob a;
            int none = !o->logprobs || (!part && !i);
            llm_text_format(&offsets, offsets.len ? ",%l" : "%l", *chars);
            llm_text_format(out, "%,");
            llm__oai_token(k, o->token_ids[i], &bytes, out);
            const int hidden = k->skip_special && llm_token_is_special(k->service.model, o->token_ids[i]);
            *chars += hidden ? 0 : llm_text_chars(bytes.data, bytes.len);
            if (logprobs.len) llm_text_str(&logprobs, ","), llm_text_str(&likely, ",");
            llm_text_format(&logprobs, none ? "null" : "%f", none ? 0.0 : llm__oai_shown(o->logprobs[i]));
            llm_text_str(&likely, none ? "null" : "{");
            for (int j = 0; !none && llm__oai_alternative(o, i, k->shown, 1, j, &a); j++) {
                llm_text_format(&likely, "%,");
                llm__oai_token(k, a.id, &bytes, &likely);
                llm_text_format(&likely, ":%f", llm__oai_shown(a.logprob));
            }
            if (!none) llm_text_str(&likely, "}");
        }
    }
    llm_text_format(out, "],'token_logprobs':[%t],'top_logprobs':[%t],'text_offset':[%t]}", &logprobs, &likely, &offsets);
}

/* One entry of a chat's logprobs, without its closing brace: top_logprobs follows in an entry of the list, nothing in an alternative. */
static void llm__oai_chat_token(const llm_openai_call *k, int32_t id, float logprob, llm_text *out) {
    LLM__SCOPED(llm_text_free) llm_text bytes = LLM__ZERO;
    llm_text_format(out, "%,{'token':");
    llm__oai_token(k, id, &bytes, out);
    llm_text_format(out, ",'logprob':%f,'bytes':[", llm__oai_shown(logprob));
    for (size_t i = 0; i < bytes.len; i++) llm_text_format(out, "%,%d", (unsigned char)bytes.data[i]);
    llm_text_str(out, "]");
}

LLM__PRIVATE void llm__oai_chat_rows(const llm_openai_call *k, const llm_output *o, llm_text *out) {
    llm_token_logprob a;
    for (size_t i = 0; i < o->n_token_ids && o->logprobs && llm__oai_goes_on(k, out); i++) {
        llm__oai_chat_token(k, o->token_ids[i], o->logprobs[i], out);
        llm_text_str(out, ",\"top_logprobs\":[");
        for (int j = 0; llm__oai_alternative(o, i, k->shown, 0, j, &a); j++) {
            llm__oai_chat_token(k, a.id, a.logprob, out);
            llm_text_str(out, "}");
        }
        llm_text_str(out, "]}");
    }
}

LLM__PRIVATE void llm__oai_prompt_logprobs(const llm_openai_call *k, const llm_request *request, llm_text *out) {
    LLM__SCOPED(llm_text_free) llm_text bytes = LLM__ZERO;
    llm_output o = llm__oai_prompt_rows(request);
    const int32_t *ranks = llm_request_prompt_ranks(request);
    llm_token_logprob a;
    llm_text_str(out, ",\"prompt_logprobs\":[null");
    for (size_t i = 1; o.logprobs && i < o.n_token_ids && llm__oai_goes_on(k, out); i++) {
        llm_text_str(out, ",{");
        for (int j = 0; llm__oai_alternative(&o, i, k->prompt_logprobs, 1, j, &a); j++) {
            const int rank = a.id == o.token_ids[i] ? ranks[i] : j + 1;
            llm_text_format(out, "%,'%d':{'logprob':%f,'rank':%d,'decoded_token':", a.id, llm__oai_shown(a.logprob), rank);
            llm__oai_token(k, a.id, &bytes, out);
            llm_text_str(out, "}");
        }
        llm_text_str(out, "}");
    }
    llm_text_str(out, "]");
}

LLM__PRIVATE void llm__oai_usage(const llm_openai_call *k, llm_text *out) {
    int64_t prompt = 0, completion = 0, cached = 0, reasoning = 0;
    int response = k->info.kind == LLM_OPENAI_RESPONSE;
    const char *in = response ? "input" : "prompt", *said = response ? "output" : "completion";
    for (int32_t r = 0; r < k->info.n_requests; r++) {
        llm_request_metrics m;
        llm_output o;
        llm_request_get_metrics(k->request[r], &m);
        prompt += m.n_prompt_tokens;
        cached += m.n_cached_tokens;
        for (int32_t i = 0; i < k->info.n_choices; i++) {
            if (!llm_request_get_output(k->request[r], i, &o)) completion += (int64_t)o.n_token_ids;
            reasoning += k->choice[r * k->info.n_choices + i].n_reasoning;
        }
    }
    if (llm__oai_pools(k) || llm__oai_ranks(k)) llm_text_format(out, ",'usage':{'prompt_tokens':%l,'total_tokens':%l}", prompt, prompt);
    else
        llm_text_format(out,
                        ",'usage':{'%s_tokens':%l,'%s_tokens':%l,'total_tokens':%l,'%s_tokens_details':{'cached_tokens':%l%s},"
                        "'%s_tokens_details':{'reasoning_tokens':%l}}",
                        in, prompt, said, completion, prompt + completion, in, cached, response ? ",\"cache_write_tokens\":0" : "", said,
                        reasoning);
}

LLM__PRIVATE void llm__oai_metrics(const llm_openai_call *k, const llm_request *request, llm_text *out) {
    llm_request_metrics m;
    llm_request_get_metrics(request, &m);
    llm_text_format(
        out,
        ",'metrics':{'arrival_time':%f,'request_start_time':%f,'inference_start_time':%f,'first_token_time':%f,'finish_time':%f,"
        "'time_in_queue':%f,'preprocess_cost_time':%f,'model_forward_time':%f,'model_execute_time':%f}",
        k->info.stream ? llm__wall_clock() : m.arrival_time, m.arrival_time, m.inference_start_time, m.first_token_time, m.finish_time,
        m.time_in_queue, m.preprocess_cost_time, m.model_forward_time, m.model_execute_time);
}

LLM__PRIVATE void llm__oai_head(const llm_openai_call *k, const char *object, llm_text *out) {
    llm_text_format(out, "{'id':%q,'object':%q,'created':%l,'model':%q,", k->info.id, object, k->created, k->model);
    if (llm__oai_pools(k)) llm_text_str(out, "\"data\":[");
    else llm_text_format(out, "'system_fingerprint':%q,'choices':[", k->service.fingerprint);
}

LLM__PRIVATE int llm__oai_is_end(const llm_openai_call *k, llm_finish finish, int32_t stop_id, int32_t id) {
    return finish == LLM_FINISH_STOP && (stop_id >= 0 || llm_token_is_special(k->service.model, id));
}
