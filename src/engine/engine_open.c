#include "engine/engine_open.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/model.h"
#include "api/engine.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "base/files.h"
#include "base/fields.h"
#include "cpu/isa.h"
#include "cpu/tuning.h"
#include "cpu/kernels.h"
#include "cpu/kv_cache.h"
#include "cpu/backend.h"
#include "cpu/trace.h"
#include "model/loader.h"
#include "model/net.h"
#include "engine/sampler.h"
#include "engine/speculate.h"
#include "engine/scheduler.h"
#include "engine/sight.h"
#include "engine/engine.h"
#include "engine/draft.h"
#include "engine/nodes.h"

/* The layer of the KV cache that holds hidden states: in parts of at most 128 values, each with a scale of its own in types that have
 * them. */
static llm_kv_layer llm__kept_layer(int32_t hidden) {
    llm_kv_layer kept = {1, 1, LLM__MIN(hidden, 128), 0};
    while (hidden % kept.v_head_dim) kept.v_head_dim--;
    kept.n_kv_heads = hidden / kept.v_head_dim;
    return kept;
}

/* A table of another version is refused instead of called: number and size of the interface must be ours. who: for the error. */
static llm_result llm__backend_check(const llm_backend *b, const char *who) {
    int abi = b ? (int)b->abi : 0, size = b ? (int)b->struct_size : 0, own = (int)sizeof *b;
    if (abi == LLM_BACKEND_ABI && size == own) return LLM_OK;
    return llm__error(LLM_ERR_UNSUPPORTED,
                      "%s: backend interface %d of %d bytes, this program needs %d of %d: build both from the same source", who, abi, size,
                      LLM_BACKEND_ABI, own);
}

/* The library exports one function that returns its table. It stays loaded for good: a backend in use cannot be taken away. */
LLM_API llm_result llm_backend_load(const char *path, const llm_backend **out) {
    const llm_backend *(*get)(void);
    *out = NULL;
    void *library;
    llm_result r = llm__library_open(path, &library);
    if (r) return r;
    if (!llm__library_function(library, "llm_cuda_backend", &get)) {
        llm__library_close(library);
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: no backend library, it has no function llm_cuda_backend", path);
    }
    const llm_backend *b = get();
    r = llm__backend_check(b, path);
    if (r) llm__library_close(library);
    else *out = b;
    return r;
}

LLM__PRIVATE llm_result llm__engine_backend(const llm_engine_config *cfg, const llm_backend **out) {
    const char *device = cfg->device ? cfg->device : "auto";
    *out = cfg->backend ? cfg->backend : llm_backend_cpu();
    if (strcmp(device, "auto") && strcmp(device, "cpu") && strcmp(device, "cuda"))
        return llm__error(LLM_ERR_ARG, "device: \"%s\", must be auto, cpu or cuda", device);
    if (!strcmp(device, "cpu")) *out = llm_backend_cpu();
    else if (!cfg->backend && cfg->cuda_library) return llm_backend_load(cfg->cuda_library, out);
    else if (!cfg->backend && !strcmp(device, "cuda")) return llm_backend_load("libllm_cuda.so", out);
    return llm__backend_check(*out, "backend");
}

/* clang-format off */
LLM__PRIVATE const llm__field llm__engine_fields[LLM__ENGINE_FIELDS] = {
    LLM__FIELD(llm_engine_config, max_model_len),
    LLM__FIELD(llm_engine_config, max_num_seqs),
    LLM__FIELD(llm_engine_config, max_num_batched_tokens),
    LLM__FIELD(llm_engine_config, block_size),
    LLM__FIELD(llm_engine_config, max_queue),
    LLM__FIELD(llm_engine_config, kv_cache_memory_bytes),
    LLM__FIELD(llm_engine_config, n_threads),
    LLM__FIELD(llm_engine_config, tensor_parallel_size),
    LLM__FIELD(llm_engine_config, pipeline_parallel_size),
    LLM__FIELD(llm_engine_config, dtype),
    LLM__FIELD(llm_engine_config, kv_cache_dtype),
    LLM__FIELD(llm_engine_config, num_gpu_blocks),
    LLM__FIELD(llm_engine_config, cache_max_entry_count),
    LLM__FIELD(llm_engine_config, num_cpu_blocks),
    LLM__FIELD(llm_engine_config, swap_space),
    LLM__FIELD(llm_engine_config, scheduler_delay_factor),
    LLM__FIELD(llm_engine_config, prefill_interval),
    LLM__FIELD(llm_engine_config, gpu_memory_utilization),
    LLM__FIELD(llm_engine_config, num_speculative_tokens),
    LLM__FIELD(llm_engine_config, ngram_prompt_lookup_max),
    LLM__FIELD(llm_engine_config, ngram_prompt_lookup_min),
    LLM__FIELD(llm_engine_config, max_loras),
    LLM__FIELD(llm_engine_config, max_cpu_loras),
    LLM__FIELD(llm_engine_config, max_lora_rank),
    LLM__FIELD(llm_engine_config, max_seq_len_to_capture),
    LLM__FIELD(llm_engine_config, step_timeout),
    LLM__FIELD(llm_engine_config, mm_processor_cache_bytes)};
/* clang-format on */

/* Defaults that depend on other fields. What is left then has a default of its own. whole: tokens that a step must be able to take. */
static void llm__engine_defaults(llm_engine_config *c, int32_t whole) {
    if (!c->max_num_batched_tokens) c->max_num_batched_tokens = LLM__MAX(LLM__MAX(512, c->max_num_seqs), whole);
    if (!c->ngram_prompt_lookup_max) c->ngram_prompt_lookup_max = LLM__MAX(16, c->ngram_prompt_lookup_min);
    if (!c->ngram_prompt_lookup_min) c->ngram_prompt_lookup_min = LLM__MIN(3, c->ngram_prompt_lookup_max);
    if (!c->max_loras && c->lora) c->max_loras = 1;
    if (!c->max_cpu_loras) c->max_cpu_loras = c->max_loras;
    if (!c->max_lora_rank && c->lora) c->max_lora_rank = 256;
    if (!c->n_threads) c->n_threads = llm__cores();
    llm__fields_default(llm__engine_fields, LLM__ENGINE_FIELDS, c);
}

/* A text of an encoder is computed in one step, as a whole, and nothing of it serves another. */
static llm_result llm__resolve_encoder(const llm_model *model, llm_engine_config *c) {
    const char *refused = c->speculative_model ? "speculative_model" : c->max_loras || c->lora ? "max_loras" : NULL;
    if (!model->arch.encoder) return LLM_OK;
    if (refused)
        return llm__error(LLM_ERR_UNSUPPORTED, "%s: %s is an encoder, which gives vectors: it has no %s", refused, model->path,
                          c->speculative_model ? "drafts" : "adapters");
    c->disable_chunked_prefill = c->disable_prefix_caching = 1;
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__engine_resolve(const llm_model *model, llm_engine_config *c) {
    int32_t own = model->arch.max_len;
    llm_result r = llm__fields_check(llm__engine_fields, LLM__ENGINE_FIELDS, c);
    if (!r && c->speculative_model)
        r = llm__check_number("num_speculative_tokens", c->num_speculative_tokens, 1, LLM_SPECULATIVE_MAX, "given with speculative_model");
    if (r) return r;
    if (c->max_model_len > own && own > 0 && !c->allow_long_max_model_len)
        return llm__error(LLM_ERR_ARG, "max_model_len: %d is more than the model's own %d tokens (allow_long_max_model_len lifts this)",
                          (int)c->max_model_len, (int)own);
    r = llm__resolve_encoder(model, c);
    if (r) return r;
    if (!c->block_size) c->block_size = llm__state_page(&model->arch);
    const int32_t longest = c->max_model_len ? c->max_model_len : own, whole = c->disable_chunked_prefill ? longest : 0;
    llm__engine_defaults(c, LLM__MIN(whole, 1048576));
    if (c->max_num_batched_tokens < whole)
        return llm__error(LLM_ERR_ARG,
                          "max_num_batched_tokens (%d) is smaller than max_model_len (%d): without enable_chunked_prefill a "
                          "prompt is computed in one step",
                          (int)c->max_num_batched_tokens, (int)longest);
    if (c->cache_max_entry_count > 1 && floorf(c->cache_max_entry_count) != c->cache_max_entry_count)
        return llm__error(LLM_ERR_ARG, "cache_max_entry_count: %g, must be a share of at most 1 or a whole number of pages",
                          (double)c->cache_max_entry_count);
    if (c->max_num_batched_tokens < c->max_num_seqs)
        return llm__error(LLM_ERR_ARG, "max_num_batched_tokens (%d) must be greater than or equal to max_num_seqs (%d)",
                          (int)c->max_num_batched_tokens, (int)c->max_num_seqs);
    if (c->trace && c->tensor_parallel_size * c->pipeline_parallel_size > 1)
        return llm__error(LLM_ERR_UNSUPPORTED, "trace: tensor_parallel_size %d and pipeline_parallel_size %d, it is for one rank",
                          (int)c->tensor_parallel_size, (int)c->pipeline_parallel_size);
    if (c->ngram_prompt_lookup_min > c->ngram_prompt_lookup_max)
        return llm__error(LLM_ERR_ARG, "ngram_prompt_lookup_min: %d, must be at most ngram_prompt_lookup_max (%d)",
                          (int)c->ngram_prompt_lookup_min, (int)c->ngram_prompt_lookup_max);
    if (c->max_cpu_loras < c->max_loras)
        return llm__error(LLM_ERR_ARG, "max_cpu_loras (%d) must be greater than or equal to max_loras (%d)", (int)c->max_cpu_loras,
                          (int)c->max_loras);
    if (c->disable_chunked_prefill) c->max_num_batched_tokens += c->max_num_seqs; /* the longest prompt fits beside all that decode */
    return llm__check_early_stop(&c->early_stop);
}

/* Bytes of everything on a CPU but KV pages: what the backend has, logits, for which there is memory once the weights are packed, and the
 * scheduler's own. */
static int64_t llm__engine_bytes(const llm_engine *e) {
    const int64_t logits = e->p.encoder ? 0 : (int64_t)e->p.max_out * ((e->p.vocab + 15) & ~15) * (int64_t)sizeof(float);
    return e->backend->memory_used(e->ctx) + logits + (int64_t)e->arena.total + llm__sight_memory(e);
}

/* Bytes that pages may take on a CPU: as configured, else at most half of the machine's memory, and no more than is free beside weights and
 * buffers. */
static int64_t llm__engine_room(const llm_engine *e, const llm_engine_config *c) {
    const int64_t memory = llm__memory_all(), half = memory > 0 ? memory / 2 : INT64_MAX, vacant = llm_memory_free();
    const int64_t left = vacant < 0 ? half : e->p.dry ? LLM__MAX(vacant - llm__engine_bytes(e), 0) : vacant;
    if (c->cache_max_entry_count > 0 && c->cache_max_entry_count <= 1) return (int64_t)((double)left * (double)c->cache_max_entry_count);
    if (c->kv_cache_memory_bytes) return c->kv_cache_memory_bytes;
    return e->p.dry ? LLM__MIN(half, left) : half;
}

/* The same on a device that has memory of its own. */
static llm_result llm__engine_device_room(const llm_engine *e, const llm_engine_config *c, int64_t least, int64_t *given) {
    const int shared = c->cache_max_entry_count > 0 && c->cache_max_entry_count <= 1;
    const int64_t memory = e->backend->kv_memory(e->ctx, shared) * e->n_ranks;
    *given = shared ? (int64_t)((double)memory * (double)c->cache_max_entry_count) : memory;
    if (shared) return LLM_OK;
    if (c->kv_cache_memory_bytes) *given = LLM__MIN(memory, c->kv_cache_memory_bytes);
    if (*given >= least) return LLM_OK;
    return llm__error(LLM_ERR_NOMEM, /* as vLLM says it */
                      "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine "
                      "(%g).",
                      (double)c->gpu_memory_utilization);
}

/* How many pages. One of 32 tokens of SmolLM2-135M (30 layers of 3 KV heads of 64 numbers, keys and values in f16) has 737,280 bytes.
 *
 * What all sequences need at most, or what the given memory holds; without a given size what llm__engine_room says. A number of pages, or a
 * share of the free memory, is taken as it is. A single sequence of max_model_len must fit, or it could never end (the scheduler relies on
 * it): a short memory shortens max_model_len, or is refused where the caller has given it. */
static llm_result llm__engine_pages(llm_engine *e, const llm_engine_config *c, const llm__logger *log) {
    int64_t page_bytes = e->page_bytes * e->n_ranks, each = ((int64_t)e->p.max_len + c->block_size - 1) / c->block_size;
    int64_t n = each * c->max_num_seqs, given = 0;
    const double share = (double)c->cache_max_entry_count;
    const int64_t blocks = c->num_gpu_blocks ? c->num_gpu_blocks : share > 1 ? (int64_t)share : 0;
    llm_result r = LLM_OK;
    if (!e->backend->kv_memory) given = llm__engine_room(e, c);
    else r = llm__engine_device_room(e, c, blocks ? 0 : page_bytes, &given);
    if (r) return r;
    if (share > 0 && share <= 1) n = INT64_MAX;
    if (blocks) given = blocks * page_bytes, n = blocks;
    if (page_bytes > 0) n = LLM__MIN(n, given / page_bytes);
    if (e->p.planned_pages) n = e->p.planned_pages;
    e->p.n_pages = (int32_t)LLM__MIN(n, (int64_t)1 << 30);
    if (e->p.n_pages >= each) return LLM_OK;
    int64_t fits = (int64_t)e->p.n_pages * c->block_size;
    if (c->max_model_len || fits < 1)
        return llm__error(LLM_ERR_LIMIT, "max_model_len: %d tokens need %lld bytes of KV cache, %lld bytes hold %lld tokens",
                          (int)e->p.max_len, (long long)(each * page_bytes), (long long)given, (long long)fits);
    e->p.max_len = (int32_t)fits;
    if (!e->p.dry)
        llm__log(log, LLM_LOG_WARN, "max_model_len is %d tokens: that is what %lld bytes of KV cache hold", (int)fits,
                 (long long)(n * page_bytes));
    return LLM_OK;
}

/* Host memory for sequences that give way, touched now, so that it is there when needed. */
static llm_result llm__engine_swap(llm_engine *e, const llm_engine_config *c) {
    double bytes = (double)c->swap_space * (1 << 30), page = (double)e->page_bytes * e->n_ranks;
    if (!c->preemption_swap) return LLM_OK;
    e->p.n_swap = (int32_t)LLM__MIN(c->num_cpu_blocks ? c->num_cpu_blocks : bytes / page, (double)e->p.n_pages);
    if (e->p.dry) return LLM_OK;
    e->swap.memory = (uint8_t *)llm__calloc((size_t)e->p.n_swap * (size_t)e->n_ranks, (size_t)e->page_bytes);
    if (e->swap.memory) memset(e->swap.memory, 1, (size_t)e->p.n_swap * (size_t)page); /* zeros would not be touched */
    if (e->swap.memory && e->backend->pin) e->backend->pin(e->ctx, e->swap.memory, (size_t)e->p.n_swap * (size_t)page);
    return e->swap.memory ? LLM_OK : llm__nomem();
}

/* The numbers of cuda_graph_sizes, ascending, into the engine's arena. */
static llm_result llm__engine_graphs(llm_engine *e, const char *list, llm_backend_config *b) {
    int32_t *sizes = list ? (int32_t *)llm__arena_get(&e->arena, strlen(list) * sizeof *sizes) : NULL;
    int64_t size;
    llm__str word;
    if (!list) return LLM_OK;
    if (!sizes) return llm__nomem();
    while (llm__list_next(&list, ",", &word)) {
        if (!llm__parse_int(word.p, word.n, &size) || size < 1 || size > 65536)
            return llm__error(LLM_ERR_ARG, "cuda_graph_sizes: %.*s, numbers from 1 to 65536 as in 2,4,8 were expected",
                              (int)LLM__MIN(word.n, (size_t)40), word.p);
        int32_t at = b->n_graph_sizes++;
        for (; at > 0 && sizes[at - 1] > (int32_t)size; at--) sizes[at] = sizes[at - 1];
        sizes[at] = (int32_t)size;
    }
    b->graph_sizes = sizes;
    return LLM_OK;
}

/* Whether the backend has what layers of the model have besides plain attention: states, several streams, scores that change by distance,
 * the indexer that long contexts ask. */
static llm_result llm__engine_layers(const llm_engine *e) {
    const char *backend = e->backend->name, *name = e->p.model->arch.name;
    if (e->p.recurrent && !e->backend->recur)
        return llm__error(LLM_ERR_UNSUPPORTED, "backend %s: it has no recurrent layers, which %s has", backend, name);
    if (e->p.model->arch.n_streams && !e->backend->streams)
        return llm__error(LLM_ERR_UNSUPPORTED, "backend %s: it has no streams beside the residual (AltUp), which %s has", backend, name);
    if (e->p.model->arch.reach && !e->backend->distances)
        return llm__error(LLM_ERR_UNSUPPORTED, "backend %s: it adds nothing to scores by distance, which %s asks for", backend, name);
    if (e->p.indexed && !e->backend->index)
        return llm__error(LLM_ERR_UNSUPPORTED, "max_model_len: %d: beyond %d positions %s asks an indexer, which backend %s has not",
                          (int)e->p.max_len, (int)e->p.model->arch.index_topk, name, backend);
    return LLM_OK;
}

/* Opens the backend with the sizes of the largest step, then the weights on it (minutes for large models; the
 * progress callback may stop it). */
static llm_result llm__engine_net(llm_engine *e, const llm_engine_config *c) {
    llm_backend_config b = LLM__ZERO;
    llm__net_config n = LLM__ZERO;
    b.n_ranks = c->tensor_parallel_size * c->pipeline_parallel_size;
    b.n_stages = n.n_stages = c->pipeline_parallel_size;
    b.n_threads = c->n_threads;
    b.isa = c->isa;
    b.tuning = c->tuning;
    b.compute = c->dtype;
    b.kv_type = c->kv_cache_dtype;
    b.batch_invariant = c->batch_invariant;
    b.memory_utilization = (double)c->gpu_memory_utilization;
    b.max_rows = c->max_num_batched_tokens;
    b.max_out = e->p.max_out;
    b.max_seqs = c->max_num_seqs;
    b.max_pages_per_seq = (e->p.max_len + c->block_size - 1) / c->block_size;
    b.log = c->log;
    b.log_user = c->log_user;
    b.error = llm_backend_error;
    b.device_draws = e->p.lag > 0;
    b.n_flight = LLM__MAX(2, e->p.lag + 1);
    b.enforce_eager = c->enforce_eager;
    b.kv_prealloc = c->kv_cache_prealloc;
    b.max_seq_len_to_capture = c->max_seq_len_to_capture;
    b.step_timeout = (double)c->step_timeout;
    b.spent = c->spent;
    b.given_cols = e->p.model->vision ? e->p.model->arch.hidden * (1 + e->p.model->arch.n_deepstack) : 0;
    if (e->p.model->arch.n_types) b.given_cols = e->p.model->arch.hidden;
    b.trace = c->trace;
    b.trace_user = c->trace_user;
    b.trace_inputs = c->trace_inputs != 0;
    if (e->p.indexed) b.indexed = b.max_pages_per_seq * c->block_size;
    if (c->trace && !e->p.dry) e->backend = llm__trace_backend();
    llm_result r = llm__engine_graphs(e, c->cuda_graph_sizes, &b);
    if (!r && c->nodes && !e->p.dry) r = llm__nodes_wrap(c->nodes, e->backend, e->p.model, &b, &e->backend);
    if (!r && c->max_loras && !e->backend->lora)
        r = llm__error(LLM_ERR_UNSUPPORTED, "backend %s%s: it has no adapters (LoRA)", e->backend->name,
                       c->nodes ? " of several processes" : "");
    if (!r) r = llm__engine_layers(e);
    if (!r) r = e->backend->open(&b, &e->ctx);
    if (r) return r;
    n.n_loras = e->p.n_loras;
    n.max_lora_rank = c->max_lora_rank;
    n.whole = c->trace && c->trace_inputs;
    n.rounded_kv = e->kv_type >= LLM_KV_FP8_E4M3;
    n.model = e->p.model;
    n.backend = e->backend;
    n.ctx = e->ctx;
    n.n_ranks = b.n_ranks;
    n.dry = e->p.dry;
    n.indexed = e->p.indexed;
    n.max_rows = b.max_rows;
    n.max_out = b.max_out;
    n.progress = c->progress;
    n.progress_user = c->progress_user;
    r = llm__net_open(&n, &e->net);
    if (!r) r = llm__sight_open(e, &b);
    return r ? r : llm__drafter_open(e, c, n);
}

/* What the scheduler must know of the model and of the config. eos_id is what early stop writes: the model's EOS, else
 * the first id that ends an answer. */
static void llm__engine_limits(llm_engine *e, const llm_model *model, const llm_engine_config *c) {
    const llm_model_info *info = llm_model_get_info(model);
    llm__engine_params *p = &e->p;
    llm__isa isa;
    p->driver = llm__model_driver();
    p->model = model;
    p->hidden = info->hidden_size;
    p->eos = info->stop_ids;
    p->n_eos = info->n_stop_ids;
    p->eos_id = info->eos_id >= 0 || !info->n_stop_ids ? info->eos_id : info->stop_ids[0];
    p->max_len = c->max_model_len ? c->max_model_len : model->arch.max_len;
    if (!c->max_model_len && model->arch.index_topk && !e->backend->index) p->max_len = LLM__MIN(p->max_len, model->arch.index_topk);
    p->indexed = model->arch.index_topk && p->max_len > model->arch.index_topk;
    p->max_out = c->max_num_seqs + 32; /* rows of prompts that are scored find place beside those that decode */
    p->encoder = model->arch.encoder;
    p->pooler = &model->pooler;
    if (p->encoder) p->max_out = LLM__MAX(p->max_out, c->max_num_batched_tokens);       /* a mean is over all rows of a step */
    if (model->arch.both_ways) p->max_out += LLM__MIN(c->max_num_batched_tokens, 1024); /* and those of a whole picture */
    if (!llm__isa_find(c->isa, &isa)) p->kernels = llm__kernels_of(isa);
    e->kv_type = c->kv_cache_dtype || e->backend != llm_backend_cpu() ? c->kv_cache_dtype : llm__kv_auto(isa, c->dtype);
    p->n_loras = c->max_loras ? c->max_cpu_loras : 0;
    p->n_draft = c->speculative_model ? c->num_speculative_tokens : 0;
    p->recurrent = model->arch.recurrent;
    p->n_jump = LLM__JUMP_MAX;
    /* a draft model is waited for: no step may be in flight meanwhile */
    p->lag = e->backend->drawn != NULL && (!c->speculative_model || !strcmp(c->speculative_model, "[ngram]"));
    if (p->encoder) p->lag = 0;
    if (p->lag) p->lag = LLM__MIN(LLM__MAX(c->pipeline_parallel_size, 2), LLM_FLIGHT_MAX) - 1;
    e->n_ranks = c->tensor_parallel_size * c->pipeline_parallel_size;
}

LLM__PRIVATE llm_result llm__engine_device(llm_engine *e, const llm_engine_config *c) {
    llm_backend_config b = LLM__ZERO;
    llm_backend_ctx *ctx;
    const llm__logger log = {c->log, c->log_user};
    if (c->backend || !c->cuda_library || (c->device && strcmp(c->device, "auto"))) return LLM_OK;
    b.max_rows = b.max_seqs = b.max_pages_per_seq = 1;
    b.error = llm_backend_error;
    if (e->backend->open(&b, &ctx) == LLM_OK) {
        e->backend->close(ctx);
        return LLM_OK;
    }
    llm__log(&log, LLM_LOG_WARN, "%s; the CPU computes", llm_last_error());
    e->backend = llm_backend_cpu();
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__engine_assemble(llm_engine *e, const llm_model *model, const llm_engine_config *c) {
    const llm__logger log = {c->log, c->log_user};
#ifndef __OPTIMIZE__
    if (!e->p.dry && e->backend == llm_backend_cpu())
        llm__log(&log, LLM_LOG_WARN, "llm.h was compiled without optimisation, which makes it many times slower: -O2 was expected");
#endif
    llm__engine_limits(e, model, c);
    llm_result r = llm__engine_net(e, c);
    if (r) return r;
    int n_layers = e->net->n_kv, n_draft = e->drafter.net ? e->drafter.net->n_kv : 0, n = n_layers + n_draft;
    llm_kv_layer *layers = (llm_kv_layer *)llm__arena_get(&e->arena, (size_t)(n + 1) * sizeof *layers);
    if (!layers) return llm__nomem();
    for (int i = 0; i < n; i++) layers[i] = i < n_layers ? e->net->kv[i] : e->drafter.net->kv[i - n_layers];
    if (e->net->cfg.kept_layer) layers[n++] = llm__kept_layer(e->drafter.net->a->hidden);
    e->p.vocab = e->net->a->vocab;
    e->page_bytes = e->backend->kv_page_bytes(e->ctx, n, layers, c->block_size);
    r = llm__engine_pages(e, c, &log);
    if (!r && !e->p.dry) r = e->backend->kv_open(e->ctx, n, layers, c->block_size, e->p.n_pages);
    if (!r) r = llm__engine_swap(e, c);
    if (r) return r;
    e->count.memory_bytes = e->backend->memory_used(e->ctx) + llm__sight_memory(e);
    snprintf(e->describe, sizeof e->describe, "%s: %s", e->backend->name, e->backend->describe(e->ctx));
    const int64_t room = e->p.dry ? llm_memory_free() : -1; /* of pages that would take more, no books are opened either */
    return room >= 0 && e->p.n_pages * e->page_bytes * e->n_ranks > room ? LLM_OK : llm__engine_init(e);
}

/* Bytes of the model's files that are in memory because they are not mapped. */
static int64_t llm__model_bytes(const llm_model *m) {
    int64_t n = 0;
    for (size_t i = 0; i < m->source.n_files; i++)
        if (!m->source.files[i].mapped && !m->source.files[i].borrowed) n += (int64_t)m->source.files[i].size;
    return n;
}

LLM__PRIVATE llm_result llm__engine_plan(const llm_model *model, const llm_engine_config *c, llm_estimate *out, int32_t *n_pages) {
    llm_engine *e = llm__engine_alloc();
    memset(out, 0, sizeof *out);
    if (!e) return llm__nomem();
    e->p.c = *c;
    e->p.c.kv_cache_prealloc = 0;
    e->p.c.progress = NULL;
    e->p.dry = 1;
    e->backend = llm_backend_cpu();
    llm_result r = llm__engine_assemble(e, model, &e->p.c);
    if (r && (!e->page_bytes || r == LLM_ERR_NOMEM)) { /* it has not come to counting, or not to its end */
        llm__engine_destroy(e);
        return r;
    }
    const int64_t each = (e->p.max_len + c->block_size - 1) / c->block_size, page = e->page_bytes * e->n_ranks;
    const int64_t unpacked = LLM__MAX(e->net->unpacked, e->drafter.net ? e->drafter.net->unpacked : 0);
    *n_pages = e->p.n_pages;
    out->weight_bytes = e->net->weight_bytes + (e->drafter.net ? e->drafter.net->weight_bytes : 0);
    out->weight_bytes += llm__sight_weights(e);
    out->kv_bytes = (r ? LLM__MAX(each, e->p.n_pages) : e->p.n_pages) * page;
    out->buffer_bytes = llm__engine_bytes(e) - out->weight_bytes + e->p.n_swap * page;
    out->available_bytes = llm_memory_free();
    out->max_model_len = e->p.max_len;
    const int64_t need = out->weight_bytes + out->kv_bytes + out->buffer_bytes + unpacked;
    out->peak_bytes = need + llm__model_bytes(model) + (e->drafter.model ? llm__model_bytes(e->drafter.model) : 0);
    if (out->available_bytes >= 0 && need > out->available_bytes)
        r = llm__error(
            LLM_ERR_NOMEM, "engine: %lld bytes are needed (weights %lld, KV cache %lld for %d tokens, buffers %lld), %lld are free",
            (long long)need, (long long)(out->weight_bytes + unpacked), (long long)out->kv_bytes,
            (int)(out->kv_bytes / LLM__MAX(page, 1)) * c->block_size, (long long)out->buffer_bytes, (long long)out->available_bytes);
    out->fits = !r;
    llm__engine_destroy(e);
    return r;
}

/* What the CPU backend would choose for this processor; it has taken the configuration, so nothing fails. */
static llm_result llm__estimate_choice(const llm_engine_config *c, llm_estimate *out) {
    const llm__chip here = llm__chip_here();
    const char *why = NULL;
    llm__tuning tuning;
    llm__isa isa;
    llm_result r = llm__isa_find(c->isa, &isa);
    if (!r) r = llm__tuning_of(c->tuning, &here, &tuning, &why);
    if (r) return r;
    out->isa = llm__isa_name(isa);
    llm__tuning_words(&tuning, why ? why : "ahead is measured while weights are loaded", out->tuning, sizeof out->tuning);
    return LLM_OK;
}

LLM_API llm_result llm_model_estimate(const llm_model *model, const llm_engine_config *cfg, llm_estimate *out) {
    llm_engine_config c = LLM__ZERO;
    const llm_backend *b;
    int32_t n_pages;
    memset(out, 0, sizeof *out);
    if (cfg) c = *cfg;
    llm_result r = llm__engine_resolve(model, &c);
    if (!r && c.device && !strcmp(c.device, "cuda")) r = llm__error(LLM_ERR_UNSUPPORTED, "estimate: of device cuda; it is for the CPU");
    if (!r) r = llm__engine_backend(&c, &b);
    if (!r && b != llm_backend_cpu()) r = llm__error(LLM_ERR_UNSUPPORTED, "estimate: of backend %s; it is for the CPU", b->name);
    if (!r) r = llm__engine_plan(model, &c, out, &n_pages);
    return out->kv_bytes ? llm__estimate_choice(&c, out) : r;
}
