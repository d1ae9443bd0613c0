#include "serve/openai_rank.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/model.h"
#include "api/request.h"
#include "api/tokenizer.h"
#include "api/json.h"
#include "api/openai.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/json.h"
#include "model/loader.h"
#include "engine/scheduler.h"
#include "engine/request.h"
#include "serve/openai.h"
#include "serve/openai_submit.h"
#include "serve/openai_parts.h"

static const char llm__rank_system[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    "Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n";
static const char llm__rank_answer[] = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
static const char llm__rank_instruction[] = "Given a web search query, retrieve relevant passages that answer the query";

/* Cuts the document so that `most` tokens are left: of the ids it ends before the last `behind`, and begins after the system's and those of
 * the question. Its beginning is kept, or as truncation_side has it. */
static llm_result llm__rank_cut(const llm_openai_call *k, llm__str question, size_t system, size_t behind, size_t most, llm_tokens *ids) {
    LLM__SCOPED(llm_tokens_free) llm_tokens alone = LLM__ZERO;
    const llm_result r = llm_tokenize(k->service.model, question.p, question.n, 0, &alone);
    const size_t head = system + alone.len, over = ids->len - most, from = k->cut_end ? ids->len - behind - over : head;
    if (r) return r;
    if (most <= head + behind)
        return llm__error(LLM_ERR_ARG, "truncate_prompt_tokens: %zu, but what stands around a document takes %zu: more was expected", most,
                          head + behind);
    memmove(ids->data + from, ids->data + from + over, (ids->len - from - over) * sizeof *ids->data);
    ids->len -= over;
    return LLM_OK;
}

/* The chat about a document, of `most` tokens; 0: of all. What the user gave never becomes a special token. */
static llm_result llm__rank_chat(const llm_openai_call *k, llm__str query, llm__str document, size_t most, llm_tokens *ids) {
    const llm_model *m = k->service.model;
    LLM__SCOPED(llm_text_free) llm_text t = LLM__ZERO;
    llm_text_format(&t, "<Instruct>: %s\n<Query>: ", k->instruction ? k->instruction : llm__rank_instruction);
    llm__add_str(&t, query);
    llm_text_str(&t, "\n<Document>:");
    const size_t question = t.len;
    llm_text_str(&t, " ");
    llm__add_str(&t, document);
    if (t.failed) return llm__nomem();
    llm_result r = llm_tokenize(m, llm__rank_system, sizeof llm__rank_system - 1, LLM_TOK_PARSE_SPECIAL, ids);
    const size_t system = ids->len;
    if (!r) r = llm_tokenize(m, t.data, t.len, 0, ids);
    const size_t end = ids->len;
    if (!r) r = llm_tokenize(m, llm__rank_answer, sizeof llm__rank_answer - 1, LLM_TOK_PARSE_SPECIAL, ids);
    return r || !most || ids->len <= most ? r : llm__rank_cut(k, llm__s(t.data, question), system, ids->len - end, most, ids);
}

/* The token of "yes" or "no"; -1: it is none of this model. */
static int32_t llm__rank_word(const llm_model *m, const char *word) {
    LLM__SCOPED(llm_tokens_free) llm_tokens ids = LLM__ZERO;
    return llm_tokenize(m, word, strlen(word), 0, &ids) || ids.len != 1 ? -1 : ids.data[0];
}

/* 1 if the model can tell how well a text answers another. */
static int llm__rank_can(llm_openai_call *k) {
    const llm_model *m = k->service.model;
    const int labels = m->pooler.n_labels;
    if (labels == 1) return 1;
    if (labels > 1) return llm__oai_bad(k, "model", ": its classifier has %d labels, a reranker has one", labels);
    if (m->arch.encoder)
        return llm__oai_bad(k, "model", ": it is an encoder without a classifier, which gives vectors: ask /v1/embeddings");
    if (llm__rank_word(m, "yes") >= 0 && llm__rank_word(m, "no") >= 0) return 1;
    return llm__oai_bad(k, "model", ": \"yes\" and \"no\" are no tokens of its own: it is no Qwen3-Reranker, and has no classifier");
}

/* Hands one pair to the engine. */
static int llm__rank_pair(llm_openai_call *k, llm__str query, llm__str document) {
    const llm_openai_service *s = &k->service;
    const size_t room = (size_t)s->engine->p.max_len - !s->model->arch.encoder, asked = (size_t)k->truncate_prompt,
                 most = k->truncate_prompt < 0 ? room : LLM__MIN(asked, room);
    LLM__SCOPED(llm_tokens_free) llm_tokens ids = LLM__ZERO;
    LLM__SCOPED(llm_tokens_free) llm_tokens types = LLM__ZERO;
    llm_request_config c = LLM__ZERO;
    llm_result r = llm__prompt_fits(s->engine, query.n + document.n, k->truncate_prompt ? (size_t)4 << 20 : 0);
    if (!r && s->model->arch.encoder) r = llm_tokenize_pair(s->model, query.p, query.n, document.p, document.n, 0, most, &ids, &types);
    else if (!r) r = llm__rank_chat(k, query, document, most, &ids);
    if (r) return llm__oai_failed(k, r, NULL);
    c.prompt_ids = ids.data;
    c.n_prompt_ids = ids.len;
    if (s->model->arch.n_types > 1) c.prompt_types = types.data;
    if (s->model->arch.encoder) c.pooling = LLM_POOLING_SCORE;
    c.sampling.max_tokens = 1;
    const int32_t words[] = {llm__rank_word(s->model, "yes"), llm__rank_word(s->model, "no")};
    if (!c.pooling) c.sampling.logprob_token_ids = words, c.sampling.n_logprob_token_ids = 2, c.sampling.logprobs = 3;
    c.priority = k->priority;
    c.cache_salt = k->cache_salt;
    c.deadline_s = s->deadline_s;
    c.id = k->info.id;
    c.received = k->received;
    c.user = k;
    if (s->on_news) c.on_news = llm__oai_news;
    r = llm_request_submit(s->engine, &c, &k->request[k->info.n_requests]);
    if (r) return llm__oai_failed(k, r, NULL);
    k->info.n_requests++;
    return 1;
}

/* A text, or a document that is an object with one. */
static llm__str llm__rank_text(const llm_json *d, int v) {
    return llm_json_type_of(d, v) == LLM_JSON_OBJECT ? llm__json_text_at(d, v, "text") : llm__json_text(d, v);
}

/* How many texts a side has: a text is one. 0: an error was kept. */
static int llm__rank_side(llm_openai_call *k, const char *name, int v) {
    const int list = llm_json_type_of(k->body, v) == LLM_JSON_ARRAY, n = list ? llm_json_size(k->body, v) : 1;
    llm__oai_at(k, "%s", name);
    if (!n) return llm__oai_bad(k, NULL, ": at least one text expected");
    if (n > LLM__OAI_INPUTS) return llm__oai_bad(k, NULL, ": at most %d texts, got %d", LLM__OAI_INPUTS, n);
    for (int e = list ? llm_json_first(k->body, v) : v, i = 0; i < n; e = list ? llm_json_next(k->body, e) : e, i++)
        if (!llm__rank_text(k->body, e).p) return llm__oai_bad(k, NULL, "must be a text, or a list of texts");
    return n;
}

LLM__PRIVATE int llm__rank_submit(llm_openai_call *k) {
    const llm_json *d = k->body;
    const int score = k->info.kind == LLM_OPENAI_SCORE, texts = llm__oai_get(d, 0, "texts");
    const char *names[2] = {score ? "text_1" : "query", score ? "text_2" : texts >= 0 ? "texts" : "documents"};
    int side[2], n[2], e[2];
    if (!llm__rank_can(k)) return 0;
    for (int i = 0; i < 2; i++) {
        side[i] = llm__oai_get(d, 0, names[i]);
        if (!(n[i] = llm__rank_side(k, names[i], side[i]))) return 0;
        e[i] = llm_json_type_of(d, side[i]) == LLM_JSON_ARRAY ? llm_json_first(d, side[i]) : side[i];
    }
    if (n[0] > 1 && (!score || n[0] != n[1]))
        return llm__oai_bad(k, names[0], score ? ": %d texts beside %d of text_2: one, or as many, expected" : ": %d texts, one expected",
                            n[0], n[1]);
    k->s.n = k->s.best_of = 1;
    k->n_room = n[1];
    k->request = LLM__NEW(llm_request *, k->n_room);
    k->choice = LLM__NEW(llm__oai_choice, k->n_room);
    k->info.requests = k->request;
    k->info.n_choices = 1;
    if (!k->request || !k->choice) return llm__oai_failed(k, llm__nomem(), NULL);
    for (int i = 0; i < n[1]; i++) {
        if (!llm__oai_awaited(k) || !llm__rank_pair(k, llm__rank_text(d, e[0]), llm__rank_text(d, e[1]))) return 0;
        if (n[0] > 1) e[0] = llm_json_next(d, e[0]);
        if (n[1] > 1) e[1] = llm_json_next(d, e[1]);
    }
    return 1;
}

/* ---- The answer ---- */

typedef struct llm__ranked {
    double score;
    int32_t index;
    int text; /* node of the document */
} llm__ranked;

/* What the model says of a pair: the value of its label, or log(yes / no), through a sigmoid unless that is declined. */
static double llm__rank_score(const llm_openai_call *k, const llm_request *request) {
    const llm_model *m = k->service.model;
    int32_t n = 0;
    llm_output out;
    double x = 0;
    if (m->arch.encoder) {
        const float *label = llm_request_embedding(request, &n);
        x = label ? (double)label[0] : (double)NAN;
        return m->pooler.sigmoid && !k->raw_scores ? 1 / (1 + exp(-x)) : x;
    }
    llm_request_get_output(request, 0, &out);
    if (out.top && out.n_token_ids) x = (double)out.top[0].logprob - (double)out.top[1].logprob;
    return k->raw_scores ? x : 1 / (1 + exp(-x));
}

/* Best first; equal ones stay in their order. */
static int llm__rank_better(const void *a, const void *b) {
    const llm__ranked *x = (const llm__ranked *)a, *y = (const llm__ranked *)b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1) : x->index - y->index;
}

/* A row of the answer in the words of whom it is for: 0 /v1/score, 1 /v1/rerank, 2 the same of text-embeddings-inference. */
static void llm__rank_row(const llm_openai_call *k, const llm__ranked *row, int form, llm_text *out) {
    const llm__str text = llm__rank_text(k->body, row->text);
    const int shown = k->return_documents < 0 ? form == 1 : k->return_documents;
    static const char *const rows[] = {"%,{'object':'score','index':%d,'score':%f", "%,{'index':%d,'relevance_score':%f",
                                       "%,{'index':%d,'score':%f"};
    llm_text_format(out, rows[form], (int)row->index, row->score);
    if (shown && form) llm_text_format(out, form == 1 ? ",'document':{'text':%Q}" : ",'text':%Q", text.p, text.n);
    llm_text_str(out, "}");
}

LLM__PRIVATE void llm__rank_whole(llm_openai_call *k, llm_text *out) {
    const llm_json *d = k->body;
    const int texts = llm__oai_get(d, 0, "texts"), form = k->info.kind == LLM_OPENAI_SCORE ? 0 : texts >= 0 ? 2 : 1;
    const int side = form == 0 ? llm__oai_get(d, 0, "text_2") : form == 2 ? texts : llm__oai_get(d, 0, "documents");
    const int32_t n = k->info.n_requests;
    llm__ranked *row = LLM__NEW(llm__ranked, n);
    out->failed |= !row;
    for (int32_t i = 0, v = llm_json_type_of(d, side) == LLM_JSON_ARRAY ? llm_json_first(d, side) : side; i < n && row; i++) {
        const llm__ranked one = {llm__rank_score(k, k->request[i]), i, v};
        row[i] = one;
        v = llm_json_type_of(d, side) == LLM_JSON_ARRAY ? llm_json_next(d, v) : v;
    }
    if (form && row) qsort(row, (size_t)n, sizeof *row, llm__rank_better);
    if (form == 0) llm_text_format(out, "{'id':%q,'object':'list','created':%l,'model':%q,'data':[", k->info.id, k->created, k->model);
    else if (form == 1) llm_text_format(out, "{'id':%q,'model':%q,'results':[", k->info.id, k->model);
    else llm_text_str(out, "[");
    for (int32_t i = 0; i < n && row && (!k->top_n || i < k->top_n || !form) && llm__oai_goes_on(k, out); i++)
        llm__rank_row(k, &row[i], form, out);
    llm_text_str(out, "]");
    if (form < 2) llm__oai_usage(k, out), llm_text_str(out, "}");
    LLM_FREE(row);
}
