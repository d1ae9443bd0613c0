#include "serve/reports.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/model.h"
#include "api/engine.h"
#include "api/options.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/text.h"
#include "engine/scheduler.h"

/* What an option may need beside it. */
enum {
    LLM__WITH_SWAP = 1,
    LLM__WITH_GPU = 2,
    LLM__WITH_CPU = 4,
    LLM__WITH_DRAFTS = 8,
    LLM__WITH_LOOKUP = 16,
    LLM__WITH_ADAPTERS = 32,
    LLM__WITH_SHARE = 64, /* the KV cache is what is left of a share of the memory */
    LLM__WITH_EYES = 128, /* a model that sees */
    LLM__WITH_DOMAINS = 256
};

static const struct {
    const char *names; /* of options */
    int needs;
    const char *why; /* it has no effect without */
} llm__report_needs[] = {
    {"swap-space|num-cpu-blocks", LLM__WITH_SWAP, "nothing is swapped, as --preemption-mode is recompute"},
    {"gpu-memory-utilization", LLM__WITH_GPU, "the CPU computes"},
    {"gpu-memory-utilization", LLM__WITH_SHARE, "the KV cache has a size of its own"},
    {"enforce-eager|max-seq-len-to-capture|cuda-graph-sizes", LLM__WITH_GPU, "the CPU computes, and records no graphs"},
    {"batch-invariant", LLM__WITH_GPU, "the CPU computes, and always does so"},
    {"cuda-library", LLM__WITH_GPU, "the CPU computes"},
    {"kv-cache-prealloc", LLM__WITH_CPU, "a GPU's memory is always taken at start"},
    {"$EAGLE_USE_SAFE_AI_LAB_STYLE", LLM__WITH_DRAFTS, "there is no draft model"},
    {"ngram-prompt-lookup-max|ngram-prompt-lookup-min", LLM__WITH_LOOKUP, "drafts do not come from a lookup"},
    {"enable-lora|max-lora-rank|max-loras|max-cpu-loras", LLM__WITH_ADAPTERS, "there are no adapters"},
    {"limit-mm-per-prompt|mm-processor-kwargs|allowed-local-media-path|allowed-media-domains|interleave-mm-strings|allow-ffmpeg",
     LLM__WITH_EYES, "the model sees no pictures"},
    {"$VLLM_IMAGE_FETCH_TIMEOUT", LLM__WITH_DOMAINS,
     "nothing is fetched without --allowed-media-domains or decoded without --allow-ffmpeg"},
};

LLM__PRIVATE void llm__report_name(llm_text *list, llm__str name) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    enum { MOST = 900, LONG = 63 };
    if (list->len > MOST) {
        if (!llm__ends_with(list->data, ", and more")) llm_text_str(list, ", and more");
        return;
    }
    if (list->len) llm_text_str(list, ", ");
    for (size_t i = 0; i < name.n && i < LONG; i++) {
        const char c = name.p[i] && strchr(plain, name.p[i]) ? name.p[i] : '?';
        llm_text_add(list, &c, 1);
    }
    if (name.n > LONG) llm_text_str(list, "...");
}

LLM__PRIVATE void llm__report_note(const llm_options *o, const char *said, const char *what, const char *why) {
    char line[600];
    if (!o || !o->note) return;
    snprintf(line, sizeof line, "%s%s%s", said, what, why);
    o->note(o->user, line);
}

/* Was the option of that name given? */
static int llm__report_given(const llm_options *o, llm__str name) {
    const llm_option *p = llm_options_find(o, name.p, name.n);
    return p && o->given[p - o->table];
}

/* What there is of that. */
static int llm__report_state(const llm_options *o, const llm_engine *e) {
    static const char *const adapters[] = {"lora", "lora-modules", "lora-dir"};
    const llm_engine_config *c = &e->p.c;
    const int gpu = e->backend != llm_backend_cpu(), sized = c->kv_cache_memory_bytes || c->num_gpu_blocks || c->cache_max_entry_count > 0;
    int have = gpu ? LLM__WITH_GPU : LLM__WITH_CPU;
    if (c->preemption_swap) have |= LLM__WITH_SWAP;
    if (c->speculative_model) have |= strcmp(c->speculative_model, "[ngram]") ? LLM__WITH_DRAFTS : LLM__WITH_LOOKUP;
    if (!gpu || !sized) have |= LLM__WITH_SHARE;
    if (e->p.model->vision) have |= LLM__WITH_EYES;
    if (llm__report_given(o, llm__lit("allowed-media-domains")) || llm__report_given(o, llm__lit("allow-ffmpeg")))
        have |= LLM__WITH_DOMAINS;
    for (int i = 0; i < LLM__COUNT(adapters); i++)
        if (llm__report_given(o, llm__lit(adapters[i]))) have |= LLM__WITH_ADAPTERS;
    return have;
}

/* --dtype float16 or bfloat16: what is computed in the file's own type is at least as exact. */
static void llm__report_dtype(const llm_options *o, const llm_engine *e) {
    const llm_model_info *info = llm_model_get_info(e->p.model);
    const char *wanted = e->p.c.dtype == LLM_COMPUTE_F16 ? "F16" : e->p.c.dtype == LLM_COMPUTE_BF16 ? "BF16" : NULL;
    char line[200];
    if (!wanted || !strcmp(info->file_type, wanted) || !strcmp(info->file_type, "F32") || !llm__report_given(o, llm__lit("dtype"))) return;
    snprintf(line, sizeof line, "weights are computed with as %.20s, which the file has, activations and sums as float32", info->file_type);
    llm__report_note(o, "dtype", ": ", line);
}

LLM_API void llm_options_report(const llm_options *o, const llm_engine *engine) {
    const int have = llm__report_state(o, engine);
    for (int i = 0; i < LLM__COUNT(llm__report_needs); i++) {
        llm__str name;
        if (have & llm__report_needs[i].needs) continue;
        for (const char *names = llm__report_needs[i].names; llm__list_next(&names, "|", &name);) {
            char said[64];
            snprintf(said, sizeof said, "%.*s", (int)name.n, name.p + (*name.p == '$'));
            for (char *c = said; *c; c++) *c = (char)(*c == '-' ? '_' : *c);
            if (llm__report_given(o, name)) llm__report_note(o, said, " has no effect: ", llm__report_needs[i].why);
        }
    }
    llm__report_dtype(o, engine);
}

LLM_API void llm_options_verdicts(const llm_options *o, llm_text *out) {
    static const char *const verdict[] = {"works", "ignored", "refused"};
    llm_text_str(out, "[");
    for (int32_t i = 0; i < o->n; i++) {
        const llm_option *p = &o->table[i];
        llm__str name;
        const int what = p->kind == LLM_OPTION_REFUSED ? 2 : p->kind == LLM_OPTION_IGNORED || p->kind == LLM_OPTION_IGNORED_FLAG ? 1 : 0;
        char only[24]; /* of a range of one number this number */
        snprintf(only, sizeof only, "%.0f", p->low);
        for (const char *names = p->names; llm__list_next(&names, "|", &name);)
            llm_text_format(out, "%,{'name':%Q,'verdict':%q,'takes':%q,'why':%q}", name.p, name.n, verdict[what],
                            p->kind == LLM_OPTION_BOOL || p->kind == LLM_OPTION_IGNORED_FLAG      ? "switch"
                            : what == 1 && p->words && p->low == p->high && strlen(p->words) == 1 ? only
                            : p->words                                                            ? p->words
                                                                                                  : "value",
                            p->help);
    }
    llm_text_str(out, "]");
}
