#include "quant/inputs.h"
#include "api/config.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "cpu/trace.h"
#include "model/arch.h"
#include "model/net.h"
#include "model/forward.h"
#include "quant/codes.h"
#include "quant/targets.h"
#include "quant/job.h"
#include "quant/gram.h"
#include "quant/methods.h"

enum { LLM__PASS_ROWS = 1024, LLM__PASS_SEQS = 64, LLM__PASS_PAGE = 32 };
static const int64_t llm__recorded_bytes = (int64_t)4 << 30; /* of products at a time; one input's, whatever its size */

/* A pass of all samples through one layer.
 *
 * Arrays of a step are laid out once: what is constant is not written again, but that costs nothing beside the layer. Pages are as fixed as
 * in llm_forward: sequence q of a step has pages q * stride and following, and what an earlier step left there is overwritten, for every
 * sequence begins at position 0. A recorded pass runs operation by operation (>>trace), about as fast as an ordinary one, since rows are
 * many. */
typedef struct llm__layer_pass {
    llm__qjob *j;
    llm_backend_ctx *ctx;
    const llm_backend *backend;
    llm__net *net;
    llm__gram *record; /* (n_record) what is told goes there; NULL: the stream is moved on instead */
    size_t n_record;
    char (*names)[256]; /* (LLM__READS_COUNT) of the weights */
    int32_t rows, stride;
    int32_t *number; /* tokens, three of positions, seq_of_row, seq_begin, seq_len, seq_rope, pages, row_set */
    float *stream, *base;
    const float **given;
    llm_result r;
} llm__layer_pass;

/* llm_trace_fn: rows of an input. */
static void llm__pass_told(void *user, const llm_trace *t) {
    llm__layer_pass *p = (llm__layer_pass *)user;
    for (size_t i = 0; i < p->n_record && t->weight && !p->r; i++) {
        llm__gram *m = &p->record[i];
        if (m->expert != (m->expert < 0 ? -1 : t->head) || strcmp(p->names[m->reads], t->weight)) continue;
        if (m->n != t->cols) p->r = llm__error(LLM_ERR_UNSUPPORTED, "%s: its input has %d columns", t->weight, (int)t->cols);
        else p->r = llm__gram_add(m, p->j->kernels, p->j->pool, t->values, t->stride, t->rows);
    }
}

static void llm__layer_pass_close(llm__layer_pass *p) {
    llm__net_close(p->net);
    if (p->ctx) p->backend->close(p->ctx);
    LLM_FREE(p->number);
    LLM_FREE(p->stream);
    LLM_FREE(p->base);
    LLM_FREE(p->given);
}

/* Memory for steps, and the layer as a net. */
static llm_result llm__layer_pass_open(llm__layer_pass *p) {
    const llm__arch *a = &p->j->model->arch;
    llm_backend_config b = LLM__ZERO;
    llm__net_config n = LLM__ZERO;
    p->rows = LLM__MAX((int32_t)LLM__PASS_ROWS, p->j->samples.longest);
    p->stride = (p->j->samples.longest + LLM__PASS_PAGE - 1) / LLM__PASS_PAGE;
    p->backend = p->record ? llm__trace_backend() : llm_backend_cpu();
    b.n_ranks = 1;
    b.n_threads = p->j->cfg->n_threads;
    b.compute = LLM_COMPUTE_F32;
    b.kv_type = LLM_KV_F32;
    b.max_rows = p->rows;
    b.max_out = 1;
    b.max_seqs = LLM__PASS_SEQS;
    b.max_pages_per_seq = p->stride;
    b.given_cols = a->hidden;
    b.trace = llm__pass_told;
    b.trace_user = p;
    b.trace_inputs = 1;
    n.model = p->j->model;
    n.backend = p->backend;
    n.n_ranks = 1;
    n.max_rows = p->rows;
    n.max_out = 1;
    n.alone = p->j->layer + 1;
    n.indexed = a->index_topk && p->j->samples.longest > a->index_topk;
    if (n.indexed) b.indexed = p->stride * LLM__PASS_PAGE;
    p->number = LLM__NEW(int32_t, 7 * p->rows + 4 * (LLM__PASS_SEQS + 1) + LLM__PASS_SEQS * p->stride);
    p->stream = LLM__NEW(float, (int64_t)p->rows * a->hidden);
    p->base = LLM__NEW(float, LLM__PASS_SEQS);
    p->given = LLM__NEW(const float *, p->rows);
    if (!p->number || !p->stream || !p->base || !p->given) return llm__nomem();
    llm_result r = p->backend->open(&b, &p->ctx);
    n.ctx = p->ctx;
    if (!r) r = llm__net_open(&n, &p->net);
    return r ? r : p->backend->kv_open(p->ctx, p->net->n_kv, p->net->kv, LLM__PASS_PAGE, (int64_t)LLM__PASS_SEQS * p->stride);
}

/* The step of samples [first, first + n): its arrays. */
static void llm__layer_step(llm__layer_pass *p, int32_t first, int32_t n, llm_step *s) {
    const llm__samples *x = &p->j->samples;
    int32_t rows = (int32_t)(x->begin[first + n] - x->begin[first]), *tokens = p->number, *positions = tokens + p->rows,
            *of = positions + 3 * p->rows, *set = of + p->rows, *begin = set + p->rows, *len = begin + LLM__PASS_SEQS + 1,
            *rope = len + LLM__PASS_SEQS + 1, *pages = rope + LLM__PASS_SEQS + 1;
    memset(s, 0, sizeof *s);
    for (int32_t q = 0, row = 0; q < n; q++) {
        begin[q] = row;
        len[q] = (int32_t)(x->begin[first + q + 1] - x->begin[first + q]);
        llm__net_rope_of(p->net, len[q], &rope[q], &p->base[q]);
        for (int32_t k = 0; k < p->stride; k++) pages[q * p->stride + k] = q * p->stride + k;
        for (int32_t k = 0; k < len[q]; k++, row++) {
            tokens[row] = x->ids[x->begin[first] + row];
            for (int d = 0; d < 3; d++) positions[d * rows + row] = k;
            of[row] = q;
            set[row] = 0;
            p->given[row] = p->stream + (int64_t)row * p->j->model->arch.hidden;
        }
    }
    begin[n] = rows;
    s->shape.n_rows = rows;
    s->shape.n_seqs = n;
    s->shape.given = p->j->layer > 0;
    s->tokens = tokens, s->positions = positions, s->seq_of_row = of, s->seq_begin = begin, s->seq_len = len, s->seq_rope = rope;
    s->n_position_rows = p->j->model->arch.position_rows == 3 ? 3 : 1;
    s->seq_rope_base = p->base;
    s->pages = pages;
    s->page_stride = p->stride;
    s->given = s->shape.given ? p->given : NULL;
    s->row_set = p->j->model->arch.n_sets > 1 ? set : NULL;
}

/* The residual stream of samples from `first` on, from or to a file. */
static llm_result llm__layer_stream(const llm__layer_pass *p, int32_t first, int64_t rows, int file, int write) {
    const size_t width = (size_t)p->j->model->arch.hidden * sizeof(float), n = (size_t)rows * width;
    FILE *f = p->j->states[file];
    const int ok = !fseeko(f, (off_t)(p->j->samples.begin[first] * (int64_t)width), SEEK_SET) &&
                   (write ? fwrite(p->stream, 1, n, f) == n : fread(p->stream, 1, n, f) == n);
    return ok ? LLM_OK
              : llm__error(LLM_ERR_IO, "%s: states of layer %d: %s", p->j->out.part, (int)p->j->layer,
                           ferror(f) ? strerror(errno) : "the file is too short");
}

/* All samples through the layer: recorded, or moved on. from, share: for telling how far it is. */
static void llm__layer_run(llm__qjob *j, llm__gram *record, size_t n_record, char (*names)[256], double from, double share) {
    llm__layer_pass pass = LLM__ZERO, *p = &pass;
    const llm__samples *x = &j->samples;
    p->j = j;
    p->record = record;
    p->n_record = n_record;
    p->names = names;
    if (!j->r) j->r = llm__layer_pass_open(p);
    for (int32_t first = 0, n; first < x->n && !j->r; first += n) {
        llm_step step;
        for (n = 1; first + n < x->n && n < LLM__PASS_SEQS && x->begin[first + n + 1] - x->begin[first] <= p->rows;) n++;
        llm__layer_step(p, first, n, &step);
        const int32_t rows = step.shape.n_rows;
        if (j->layer > 0) j->r = llm__layer_stream(p, first, rows, j->layer % 2, 0);
        if (!j->r) j->r = llm__net_step(p->net, &step);
        if (!j->r) j->r = p->r;
        if (!j->r && !record) j->r = p->backend->buffer_rows(p->ctx, 0, p->net->rank[0].token.x, 0, rows, p->stream);
        if (!j->r && !record) j->r = llm__layer_stream(p, first, rows, (j->layer + 1) % 2, 1);
        llm__qjob_tell(j, record ? "calibrating" : "quantizing", from + share * (double)(first + n) / (double)x->n);
    }
    if (!j->r && !record && (fflush(j->states[(j->layer + 1) % 2]) || fsync(fileno(j->states[(j->layer + 1) % 2]))))
        j->r = llm__error(LLM_ERR_IO, "%s: %s", j->out.part, strerror(errno));
    llm__layer_pass_close(p);
}

/* The inputs that the method wants of this layer: one for each that a matrix reads, of experts one for each expert. */
static size_t llm__layer_inputs(llm__qjob *j, llm__gram *list, size_t most) {
    const llm__qplan *plan = &j->plan;
    size_t n = 0;
    for (size_t i = plan->first[j->layer]; i < plan->first[j->layer + 1]; i++) {
        const llm__qplan_matrix *m = &plan->matrix[i];
        llm__gram x = LLM__ZERO;
        size_t k = 0;
        x.reads = m->reads;
        x.expert = m->expert;
        if (plan->method != LLM__GPTQ && m->reads == LLM__READS_EXPERT) x.reads = LLM__READS_MLP, x.expert = -1;
        if (plan->method == LLM__SMOOTH_QUANT && !llm__reads_norm(x.reads)) continue;
        x.n = m->cols;
        while (k < n && (list[k].reads != x.reads || list[k].expert != x.expert)) k++;
        if (k == n && n < most) list[n++] = x;
    }
    return n;
}

LLM__PRIVATE void llm__calibrated_layer(llm__qjob *j, llm__rounded_list *rounded) {
    const llm__qplan *plan = &j->plan;
    const size_t first = plan->first[j->layer], n = plan->first[j->layer + 1] - first;
    LLM__SCOPED(llm__drop) llm__gram *input = LLM__NEW(llm__gram, n + 1);
    char names[LLM__READS_COUNT][256];
    const int products = plan->method != LLM__SMOOTH_QUANT, last = j->layer == j->model->arch.n_layers - 1;
    rounded->item = LLM__NEW(llm__rounded, n + 1);
    if (!input || !rounded->item) j->r = llm__nomem();
    if (j->r) return;
    rounded->n = n;
    for (int i = 0; i < LLM__READS_COUNT; i++) llm__qplan_input(j->model, j->layer, (llm__reads)i, names[i]);
    const size_t n_inputs = llm__layer_inputs(j, input, n);
    for (size_t at = 0, some; at < n_inputs && !j->r; at += some) {
        int64_t bytes = 0;
        for (some = 0; at + some < n_inputs && !j->r; some++) {
            bytes += 4 * input[at + some].n * input[at + some].n * products;
            if (some && bytes > llm__recorded_bytes) break;
            j->r = llm__gram_open(&input[at + some], input[at + some].n, products);
        }
        const double share = 0.35 / (double)n_inputs;
        llm__layer_run(j, input + at, some, names, share * (double)at, share * (double)some);
        for (size_t i = at; i < at + some; i++) {
            if (!j->r) llm__method_input(j, &input[i], rounded);
            llm__gram_close(&input[i]);
            llm__qjob_tell(j, "quantizing", 0.35 + 0.4 * (double)(i + 1) / (double)n_inputs);
        }
    }
    if (!j->r) llm__method_round(j, rounded);
    llm__qjob_apply(j, 1);
    if (!last) llm__layer_run(j, NULL, 0, names, 0.8, 0.2);
    llm__qjob_apply(j, 0);
}
