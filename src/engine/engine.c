#include "engine/engine.h"
#include "api/config.h"
#include "api/model.h"
#include "api/engine.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/threads.h"
#include "model/source.h"
#include "model/net.h"
#include "model/forward.h"
#include "engine/sampler.h"
#include "engine/kv.h"
#include "engine/scheduler.h"
#include "engine/sight.h"

LLM__PRIVATE void llm__engine_destroy(llm_engine *e) {
    if (!e) return;
    llm__sight_close(e);
    llm__net_close(e->net);
    llm__net_close(e->drafter.net);
    if (e->ctx) e->backend->close(e->ctx);
    llm_model_close(e->drafter.model);
    pthread_mutex_destroy(&e->mutex);
    pthread_mutex_destroy(&e->adapters.reading);
    pthread_mutex_destroy(&e->keeping);
    pthread_mutex_destroy(&e->news_mutex);
    pthread_cond_destroy(&e->inbox.arrived);
    pthread_cond_destroy(&e->turn.changed);
    for (int32_t i = 0; e->adapters.slot && i < e->p.n_loras + LLM__LORA_ASIDE; i++) {
        LLM_FREE(e->adapters.slot[i].name);
        LLM_FREE(e->adapters.slot[i].path);
    }
    llm__arena_free(&e->arena);
    LLM_FREE(e->swap.memory);
    LLM_FREE(e);
}

/* n integers that live as long as the engine. */
static int32_t *llm__engine_numbers(llm_engine *e, size_t n) { return (int32_t *)llm__arena_get(&e->arena, n * sizeof(int32_t)); }

/* The arrays of a step, and of two steps what must be known until they are applied. 0: no memory. */
static int llm__engine_arrays(llm_engine *e) {
    size_t seqs = (size_t)e->p.c.max_num_seqs, rows = (size_t)e->p.c.max_num_batched_tokens, out = (size_t)e->p.max_out;
    llm__arena *a = &e->arena;
    e->running.seq = (llm__seq **)llm__arena_get(a, seqs * sizeof *e->running.seq);
    e->drafting = (llm__seq **)llm__arena_get(a, seqs * sizeof *e->drafting);
    e->step.tokens = llm__engine_numbers(e, rows);
    e->step.positions = llm__engine_numbers(e, 3 * rows);
    e->step.spans = llm__engine_numbers(e, 2 * rows);
    e->step.row_set = llm__engine_numbers(e, rows);
    e->step.given = (const float **)llm__arena_get(a, rows * sizeof *e->step.given);
    e->step.seq_of_row = llm__engine_numbers(e, rows);
    e->step.token_from = llm__engine_numbers(e, rows);
    e->step.seq_begin = llm__engine_numbers(e, seqs + 1);
    e->step.seq_len = llm__engine_numbers(e, seqs);
    e->step.seq_rope = llm__engine_numbers(e, seqs);
    e->step.seq_lora = llm__engine_numbers(e, seqs);
    e->step.seq_keep = llm__engine_numbers(e, seqs);
    e->step.raw_prompt = llm__engine_numbers(e, seqs);
    e->step.raw_len = llm__engine_numbers(e, seqs);
    e->step.seq_rope_base = (float *)llm__arena_get(a, seqs * sizeof *e->step.seq_rope_base);
    e->step.pages = llm__engine_numbers(e, seqs * (size_t)e->max_pages);
    e->step.out_rows = llm__engine_numbers(e, out);
    e->step.draws = (llm_draw *)llm__arena_get(a, out * sizeof *e->step.draws);
    e->step.masks = (uint32_t *)llm__arena_get(a, (e->p.lag ? out : 1) * (((size_t)e->p.vocab + 31) / 32) * sizeof *e->step.masks);
    e->drafter.job = (llm__job *)llm__arena_get(a, seqs * sizeof *e->drafter.job);
    e->swap.free = llm__engine_numbers(e, (size_t)e->p.n_swap);
    e->scratch = (llm__scratch *)llm__arena_get(a, (size_t)e->p.c.n_threads * sizeof *e->scratch);
    e->flights.size = LLM__MAX(2, e->p.lag + 1);
    for (int i = 0; i < e->flights.size; i++) {
        e->flights.ring[i].entry = (llm__entry *)llm__arena_get(a, seqs * sizeof *e->flights.ring[i].entry);
        e->flights.ring[i].jobs = (llm__job *)llm__arena_get(a, (out + seqs) * sizeof *e->flights.ring[i].jobs);
    }
    if (a->failed) return 0;
    while (e->swap.n_free < e->p.n_swap) e->swap.free[e->swap.n_free] = e->swap.n_free, e->swap.n_free++;
    for (int32_t i = 0; i < e->p.c.n_threads; i++)
        if (!llm__scratch_open(&e->scratch[i], e->p.vocab, e->p.kernels, a)) return 0;
    return 1;
}

LLM__PRIVATE llm_engine *llm__engine_alloc(void) {
    pthread_mutexattr_t recursive;
    llm_engine *e = LLM__NEW(llm_engine, 1);
    if (!e) return NULL;
    pthread_mutex_init(&e->mutex, NULL);
    pthread_mutex_init(&e->adapters.reading, NULL);
    pthread_mutex_init(&e->keeping, NULL);
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&e->news_mutex, &recursive);
    pthread_mutexattr_destroy(&recursive);
    pthread_cond_init(&e->turn.changed, NULL);
    llm__timed_open(&e->inbox.arrived);
    return e;
}

LLM__PRIVATE llm_result llm__engine_init(llm_engine *e) {
    const llm__engine_params *p = &e->p;
    e->p.c.n_threads = LLM__MAX(1, p->c.n_threads);
    e->adapters.own = -1;
    e->adapters.slot = (llm__lora *)llm__arena_get(&e->arena, ((size_t)p->n_loras + LLM__LORA_ASIDE) * sizeof *e->adapters.slot);
    if (!e->adapters.slot) return llm__nomem();
    e->max_pages = (int32_t)(((int64_t)p->max_len + p->c.block_size - 1) / p->c.block_size);
    if (!llm__engine_arrays(e) || llm__kv_open(&e->kv, p->n_pages, p->c.block_size, p->c.disable_prefix_caching, &e->arena))
        return llm__nomem();
    e->count.total_blocks = e->count.free_blocks = p->n_pages;
    e->count.block_size = p->c.block_size;
    e->count.max_model_len = p->max_len;
    e->count.max_num_seqs = p->c.max_num_seqs;
    e->count.backend = e->describe;
    e->stats = e->count;
    return LLM_OK;
}

LLM__PRIVATE void llm__turn_take(llm_engine *e) {
    LLM__LOCKED(&e->mutex);
    uint64_t own = e->turn.next++;
    while (e->turn.now != own) pthread_cond_wait(&e->turn.changed, &e->mutex);
}

LLM__PRIVATE void llm__turn_give(llm_engine *e) {
    LLM__LOCKED(&e->mutex);
    e->turn.now++;
    if (e->turn.now != e->turn.next) pthread_cond_broadcast(&e->turn.changed);
}

/* ---- the driver that runs a model ----
 * The CPU computes while the engine lets it (work, wait), so it is used with lag 0, and the engine samples on the backend's threads. A
 * backend that draws tokens itself is used with lag 1, or as many as keep all stages of its pipeline busy.
 * Only the stepping thread calls these functions. */

/* Enqueues the step on all ranks. */
/* The CPU reads rows of the embedding where they stand in the model's files; devices have copied all. */
static llm_result llm__drive_forward(llm_engine *e, const llm_step *step) {
    const int reads = e->backend == llm_backend_cpu();
    llm_result r = reads ? llm__source_whole(&e->net->cfg.model->source) : LLM_OK;
    if (!r && reads && e->drafter.model) r = llm__source_whole(&e->drafter.model->source);
    return r ? r : llm__net_begin(e->net, step);
}

/* Rotary scaling of a request: its prompt's length decides, see llm__net_rope_of. */
static void llm__drive_rope(llm_engine *e, int32_t prompt_len, int32_t *variant, float *base) {
    llm__net_rope_of(e->net, prompt_len, variant, base);
}

/* Seconds of a clock that never jumps; the simulation in the tests has one of its own. */
static double llm__drive_now(LLM__UNUSED llm_engine *e) { return llm__now(); }

/* The function that drafts is put in by llm__drafter_open. */
LLM__PRIVATE llm__driver llm__model_driver(void) {
    static const llm__driver driver = {.forward = llm__drive_forward, .rope_of = llm__drive_rope, .now = llm__drive_now};
    return driver;
}
