/* samples: token ids to calibrate with.
 *
 * A file of ids is what AIAK's document calls tokenids_path. Its form is in an appendix that is not public, so what anybody would write is
 * read: a sequence a line, ids with blanks or commas between; a JSON list a line; one JSON list of lists over many lines. Ids are compared
 * with the rows of the model's embedding, for each of them is looked up there.
 *
 * A text is cut into pieces of the length of a sample, behind BOS where the model's tokenizer puts it. Sequences longer than a sample are
 * cut too; of one token alone nothing can be learnt. 128 of 512 tokens is what the public programs take. Where no file is named, the
 * text of >>sample_text is taken. */
#include "api/config.h"
#include "api/text.h"
#include "api/quantize.h"
#include "api/tokenizer.h"
#include "api/json.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/files.h"
#include "base/json.h"
#include "quant/targets.h"
#include "quant/job.h"
#include "quant/inputs.h"
#include "quant/sample_text.h"

enum { LLM__SAMPLES = 128, LLM__SAMPLE_LEN = 512, LLM__SAMPLE_FILE = 1 << 30 };

/* What is read, sequence by sequence. */
typedef struct llm__sampling_file {
    llm__qjob *j;
    const char *path;
    llm_tokens ids; /* of the sequence */
    llm_tokens all; /* of all samples */
    size_t cap;
    int32_t line, most, len;
} llm__sampling_file;

/* The sequence ends: pieces of it become samples, as long as they are wanted. One token alone predicts nothing. */
static void llm__samples_end(llm__sampling_file *f, int32_t bos) {
    llm__samples *s = &f->j->samples;
    for (size_t at = 0; at < f->ids.len && s->n < f->most && !f->j->r;) {
        const size_t lead = bos >= 0, n = LLM__MIN((size_t)f->len - lead, f->ids.len - at);
        if (n + lead >= 2) {
            if (!llm__grow((void **)&s->begin, &f->cap, (size_t)s->n + 2, sizeof *s->begin)) f->j->r = llm__nomem();
            if (f->j->r) return;
            s->begin[s->n] = (int64_t)f->all.len;
            if (lead) llm_tokens_add(&f->all, bos);
            for (size_t i = 0; i < n; i++) llm_tokens_add(&f->all, f->ids.data[at + i]);
            s->begin[++s->n] = (int64_t)f->all.len;
            s->longest = LLM__MAX(s->longest, (int32_t)(n + lead));
        }
        at += n;
    }
    f->ids.len = 0;
    if (f->ids.failed || f->all.failed) f->j->r = llm__nomem();
}

static void llm__samples_id(llm__sampling_file *f, int64_t id) {
    const int32_t vocab = f->j->model->arch.vocab;
    if (!f->j->r && (id < 0 || id >= vocab))
        f->j->r =
            llm__error(LLM_ERR_ARG, "%s: line %d: token id %lld, must be 0 to %d", f->path, (int)f->line, (long long)id, (int)vocab - 1);
    llm_tokens_add(&f->ids, (int32_t)id);
}

/* Lists: a list of ids, or of such lists. */
static void llm__samples_list(llm__sampling_file *f, const llm_json *doc, int node, int depth) {
    for (int v = llm_json_first(doc, node); v >= 0 && !f->j->r; v = llm_json_next(doc, v)) {
        int64_t id;
        if (llm_json_type_of(doc, v) == LLM_JSON_ARRAY && !depth) llm__samples_list(f, doc, v, 1);
        else if (llm_json_int(doc, v, &id)) llm__samples_id(f, id);
        else f->j->r = llm__error(LLM_ERR_ARG, "%s: line %d: a list of token ids expected", f->path, (int)f->line);
    }
    llm__samples_end(f, -1);
}

/* A line of ids with blanks or commas between, or a JSON list. */
static void llm__samples_line(llm__sampling_file *f, const char *p, size_t n) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    size_t at = 0;
    while (at < n && strchr(" \t\r", p[at])) at++;
    if (at < n && p[at] == '[') {
        if (llm_json_parse(p + at, n - at, NULL, &doc))
            f->j->r = llm__error(LLM_ERR_ARG, "%s: line %d: %.200s", f->path, (int)f->line, llm_last_error());
        else llm__samples_list(f, doc, 0, 0);
        return;
    }
    while (at < n && !f->j->r) {
        int64_t id = 0;
        const size_t from = at;
        for (; at < n && p[at] >= '0' && p[at] <= '9' && at < from + 12; at++) id = id * 10 + p[at] - '0';
        if (at == from || (at < n && !strchr(" \t\r,", p[at])))
            f->j->r = llm__error(LLM_ERR_ARG, "%s: line %d, column %zu: a token id expected", f->path, (int)f->line, at + 1);
        llm__samples_id(f, id);
        while (at < n && strchr(" \t\r,", p[at])) at++;
    }
    llm__samples_end(f, -1);
}

/* A file of ids: one list of lists over many lines, or lines. */
static void llm__samples_ids(llm__sampling_file *f, const llm__file *file) {
    LLM__SCOPED(llm__json_drop) llm_json *doc = NULL;
    const char *p = (const char *)file->data, *end = p + file->size;
    f->line = 1;
    if (file->size && *p == '[' && !llm_json_parse(p, file->size, NULL, &doc)) {
        llm__samples_list(f, doc, 0, 0);
        return;
    }
    for (; p < end && !f->j->r && f->j->samples.n < f->most; f->line++) {
        const char *stop = (const char *)memchr(p, '\n', (size_t)(end - p));
        const size_t n = stop ? (size_t)(stop - p) : (size_t)(end - p);
        llm__samples_line(f, p, n);
        p += n + 1;
    }
}

/* A text, in pieces of the length of a sample, each behind BOS where the model wants it. */
static void llm__samples_text(llm__sampling_file *f, const char *text, size_t len) {
    LLM__SCOPED(llm_tokens_free) llm_tokens lead = LLM__ZERO;
    const size_t most = (size_t)f->most * (size_t)f->len * 16; /* bytes: no text has more in a token on the average */
    const size_t n = llm__utf8_valid(text, LLM__MIN(len, most));
    if (n + 4 < LLM__MIN(len, most)) f->j->r = llm__error(LLM_ERR_ARG, "%s: byte %zu: no UTF-8", f->path, n);
    if (!f->j->r) f->j->r = llm_tokenize(f->j->model, "a", 1, LLM_TOK_ADD_SPECIAL, &lead);
    if (!f->j->r) f->j->r = llm_tokenize(f->j->model, text, n, 0, &f->ids);
    const int32_t bos = f->j->model->source.bos_id;
    if (!f->j->r) llm__samples_end(f, lead.len && lead.data[0] == bos ? bos : -1);
}

/* The text that is taken where none is named. */
static void llm__samples_own(llm__sampling_file *f) {
    LLM__SCOPED(llm_text_free) llm_text text = LLM__ZERO;
    for (int i = 0; i < LLM__COUNT(llm__sample_text); i++) {
        llm_text_str(&text, i ? "\n\n" : "");
        llm_text_str(&text, llm__sample_text[i]);
    }
    if (text.failed) f->j->r = llm__nomem();
    else llm__samples_text(f, text.data, text.len);
}

LLM__PRIVATE void llm__samples_read(llm__qjob *j) {
    const llm_quantize_folder_config *c = j->cfg;
    const int own = !c->token_ids && !c->text;
    LLM__SCOPED(llm__file_close) llm__file file = LLM__ZERO;
    llm__sampling_file f = LLM__ZERO;
    if (c->token_ids && c->text) j->r = llm__error(LLM_ERR_ARG, "token_ids and text: only one of them can be calibrated with");
    if (!j->r && (c->n_samples < 0 || c->n_samples > 1 << 20))
        j->r = llm__error(LLM_ERR_ARG, "n_samples: %d, must be 0 to 1048576", (int)c->n_samples);
    if (!j->r && (c->sample_len < 0 || c->sample_len == 1 || c->sample_len > j->model->arch.max_len))
        j->r = llm__error(LLM_ERR_ARG, "sample_len: %d, must be 2 to %d, which the model can read", (int)c->sample_len,
                          (int)j->model->arch.max_len);
    if (j->r || (own && j->plan.method == LLM__WEIGHT_ONLY_INT8)) return;
    f.j = j;
    f.path = c->token_ids ? c->token_ids : own ? "the built-in text" : c->text;
    f.most = c->n_samples ? c->n_samples : LLM__SAMPLES;
    f.len = LLM__MIN(c->sample_len ? c->sample_len : LLM__SAMPLE_LEN, j->model->arch.max_len);
    if (own) llm__samples_own(&f);
    else j->r = llm__file_open(f.path, LLM__SAMPLE_FILE, 1, &file);
    if (!j->r && c->token_ids) llm__samples_ids(&f, &file);
    else if (!j->r && !own) llm__samples_text(&f, (const char *)file.data, file.size);
    if (!j->r && !j->samples.n) j->r = llm__error(LLM_ERR_ARG, "%s: no sequence of two tokens or more to calibrate with", f.path);
    llm_tokens_free(&f.ids);
    j->samples.ids = f.all.data;
    if (j->r) llm_tokens_free(&f.all), j->samples.ids = NULL;
}
