#include "engine/calibrate.h"
#include "api/config.h"
#include "api/text.h"
#include "api/model.h"
#include "api/engine.h"
#include "api/tokenizer.h"
#include "api/raw.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "cpu/linear.h"
#include "model/tensors.h"
#include "model/loader.h"
#include "engine/scheduler.h"

/* While a text is read. */
typedef struct llm__calibrating {
    const llm__calibration_config *cfg;
    llm_engine *engine;
    const llm__tensor **by_address; /* (n) */
    size_t n;
    llm_result r; /* the first failure, its sentence in `why` */
    char why[512];
} llm__calibrating;

static void llm__calibrating_close(llm__calibrating *c) {
    llm_engine_close(c->engine);
    LLM_FREE((void *)c->by_address);
}

/* Where a tensor lies: what segments of it point to, or into. */
static uintptr_t llm__fed_address(const llm__tensor *t) { return t->parts ? (uintptr_t)t->parts : (uintptr_t)t->data; }

static int llm__fed_order(const void *a, const void *b) {
    const uintptr_t x = llm__fed_address(*(const llm__tensor *const *)a), y = llm__fed_address(*(const llm__tensor *const *)b);
    return (x > y) - (x < y);
}

/* The tensor that holds an address; NULL: none does. */
static const llm__tensor *llm__fed_tensor(const llm__calibrating *c, const void *at) {
    size_t low = 0, high = c->n;
    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (llm__fed_address(c->by_address[mid]) <= (uintptr_t)at) low = mid + 1;
        else high = mid;
    }
    const llm__tensor *t = low ? c->by_address[low - 1] : NULL;
    if (t && t->parts) return at == t->parts ? t : NULL;
    return t && (uintptr_t)at < (uintptr_t)t->data + (uintptr_t)t->bytes ? t : NULL;
}

/* The tensors that a weight, or expert e of it (-1: it is of none), was made of. 0: one of its segments is in none. */
static int llm__fed_tensors(const llm__calibrating *c, const llm_weight *w, int32_t e, llm__fed *fed) {
    const int64_t each = w->rows / w->n_groups, first = e < 0 ? 0 : e * each, end = e < 0 ? w->rows : first + each;
    fed->n_tensors = 0;
    for (int i = llm__weight_segment(w, first); i < w->n_segments && w->first_row[i] < end; i++) {
        const llm__tensor *t = llm__fed_tensor(c, w->segment[i].data);
        int known = 0;
        if (!t) return 0;
        if (w->role == LLM_ROLE_MLA_UP && w->segment[i].transposed) continue; /* its columns are of queries */
        for (int k = 0; k < fed->n_tensors; k++) known |= fed->tensor[k] == t;
        if (!known && fed->n_tensors < LLM__FED_MOST) fed->tensor[fed->n_tensors++] = t;
    }
    return 1;
}

static void llm__fed_parallel(void *threads, void (*fn)(void *arg, int i), void *arg, int n) {
    llm_engine *e = (llm_engine *)threads;
    e->backend->parallel(e->ctx, fn, arg, n);
}

/* llm_engine_config.trace. A matrix for each head (values of latent attention in GGUF) has the same input for all. */
static void llm__calibrate_input(void *user, const llm_trace *t) {
    llm__calibrating *c = (llm__calibrating *)user;
    const llm_weight *w = (const llm_weight *)t->multiplied;
    llm__fed fed = LLM__ZERO;
    if (c->r || !w) return;
    if (!llm__fed_tensors(c, w, t->head, &fed)) {
        c->r = LLM_ERR_UNSUPPORTED;
        snprintf(c->why, sizeof c->why, "%s: %s is quantised as folders are: calibration wants a model in F32, F16 or BF16, or a GGUF file",
                 c->cfg->model->path, t->weight ? t->weight : "a weight");
        return;
    }
    if (!fed.n_tensors) return;
    const llm__tensor *first = fed.tensor[0];
    fed.n_experts = first->n_dims > 2 ? (int32_t)first->shape[0] : 1;
    fed.experts_own = t->head >= 0;
    fed.layer = t->layer;
    fed.rows = t->rows, fed.cols = t->cols;
    fed.x = t->values, fed.stride = t->stride;
    fed.parallel = llm__fed_parallel, fed.threads = c->engine;
    const int heads = t->head < 0 ? fed.n_experts : 1;
    for (int h = 0; h < heads && !c->r; h++) {
        fed.expert = t->head < 0 ? h : fed.n_experts > 1 ? t->head : 0;
        c->r = c->cfg->fn(c->cfg->user, &fed);
        if (c->r) snprintf(c->why, sizeof c->why, "%s", llm_last_error());
    }
}

/* An engine for chunks of one sequence, and the tensors in the order of their places. */
static llm_result llm__calibrate_open(llm__calibrating *c) {
    const llm__calibration_config *cfg = c->cfg;
    const llm__tensors *t = &cfg->model->source.tensors;
    llm_engine_config e = LLM__ZERO;
    c->by_address = LLM__NEW(const llm__tensor *, t->n + 1);
    if (!c->by_address) return llm__nomem();
    for (size_t i = 0; i < t->n; i++) c->by_address[i] = &t->item[i];
    c->n = t->n;
    qsort((void *)c->by_address, c->n, sizeof *c->by_address, llm__fed_order);
    e.n_threads = cfg->n_threads;
    e.max_model_len = cfg->chunk;
    e.max_num_batched_tokens = LLM__MIN(cfg->chunk, 512);
    e.disable_prefix_caching = 1;
    e.device = "cpu";
    e.trace = llm__calibrate_input;
    e.trace_user = c;
    e.trace_inputs = 1;
    return llm_engine_open(cfg->model, &e, &c->engine);
}

LLM__PRIVATE llm_result llm__calibrate(const llm__calibration_config *cfg) {
    LLM__SCOPED(llm__calibrating_close) llm__calibrating c = LLM__ZERO;
    float none = 0;
    c.cfg = cfg;
    if (cfg->chunk < 1 || cfg->n < cfg->chunk)
        return llm__error(LLM_ERR_ARG, "calibration: a text of %d tokens or more expected", cfg->chunk);
    const int64_t chunks = cfg->n / cfg->chunk;
    llm_result r = llm__calibrate_open(&c);
    for (int64_t i = 0; i < chunks && !r; i++) {
        if (cfg->progress && cfg->progress(cfg->progress_user, cfg->doing, (double)i / (double)chunks))
            return llm__error(LLM_ERR_CANCELLED, "%s was cancelled", cfg->doing);
        r = llm_forward(c.engine, 0, 0, cfg->ids + i * cfg->chunk, cfg->chunk, &none, 0);
        if (c.r) r = llm__error(c.r, "%s", c.why);
    }
    if (!r && cfg->progress) cfg->progress(cfg->progress_user, cfg->doing, 1);
    return r;
}

LLM__PRIVATE llm_result llm__calibration_ids(const llm_model *model, const char *text, size_t len, int32_t n_chunks, int32_t *chunk,
                                             llm_tokens *out) {
    LLM__SCOPED(llm_tokens_free) llm_tokens bare = LLM__ZERO;
    const int32_t bos = llm_model_get_info(model)->bos_id, most = llm_model_get_info(model)->max_model_len;
    if (*chunk < 1) *chunk = 512;
    if (most > 0) *chunk = LLM__MIN(*chunk, most);
    llm_result r = llm_tokenize(model, text, len, LLM_TOK_ADD_SPECIAL, out);
    if (!r) r = llm_tokenize(model, "a", 1, LLM_TOK_ADD_SPECIAL, &bare);
    if (r) return r;
    if (!out->len) return llm__error(LLM_ERR_ARG, "calibration: the text is empty");
    *chunk = (int32_t)LLM__MIN((size_t)*chunk, out->len);
    size_t n = out->len / (size_t)*chunk;
    if (n_chunks > 0) n = LLM__MIN(n, (size_t)n_chunks);
    out->len = n * (size_t)*chunk;
    for (size_t i = 0; i < n && bos >= 0 && bare.len && bare.data[0] == bos; i++) out->data[i * (size_t)*chunk] = bos;
    return LLM_OK;
}
