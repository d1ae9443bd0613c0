#include "engine/adapters.h"
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/engine.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/loader.h"
#include "model/lora.h"
#include "engine/kv.h"
#include "engine/scheduler.h"

LLM__PRIVATE int32_t llm__lora_find(const llm_engine *e, llm__str name, int listed) {
    for (int32_t i = 0; i < e->p.n_loras + LLM__LORA_ASIDE; i++)
        if (e->adapters.slot[i].name && e->adapters.slot[i].listed >= listed && llm__str_eq(name, e->adapters.slot[i].name)) return i;
    return -1;
}

/* Nothing is left of a slot's names and numbers. The caller holds the engine's mutex. */
static void llm__lora_forget(llm__lora *slot) {
    LLM_FREE(slot->name);
    LLM_FREE(slot->path);
    memset(slot, 0, sizeof *slot);
}

/* Empties a slot that nobody can find or uses but the caller, and gives it back. */
static void llm__lora_release(llm_engine *e, int32_t slot) {
    llm__adapter nothing = LLM__ZERO;
    nothing.prefix = nothing.base = "";
    llm__net_adapt(e->net, slot, &nothing);
    LLM__LOCKED(&e->mutex);
    llm__lora_forget(&e->adapters.slot[slot]);
}

LLM__PRIVATE void llm__lora_drop(llm_engine *e, int32_t slot) {
    pthread_mutex_lock(&e->mutex);
    llm__lora *l = &e->adapters.slot[slot];
    int last = l->refs == 1;
    l->refs -= !last;
    pthread_mutex_unlock(&e->mutex);
    if (last) llm__lora_release(e, slot);
}

LLM__PRIVATE llm__kv_key llm__prompt_root(const llm_engine *e, int32_t lora, uint64_t rope, const char *salt) {
    return llm__kv_root(&e->kv, lora >= 0 ? e->adapters.slot[lora].id : 0, rope, salt);
}

LLM__PRIVATE uint64_t llm__rope_number(int32_t variant, float base) { return (uint64_t)variant << 32 | llm__f32_bits(base); }

/* A slot for one more: a free one, or that of an adapter that is set aside; n_loras: all are busy. The caller holds the engine's mutex. */
static int32_t llm__lora_room(llm_engine *e) {
    llm__lora *slots = e->adapters.slot;
    const int32_t n = e->p.n_loras;
    int32_t unused = 0, oldest = n, aside = n;
    while (unused < n && slots[unused].refs) unused++;
    if (unused < n) return unused;
    for (int32_t i = 0; i < n; i++)
        if (i != e->adapters.own && slots[i].listed && slots[i].refs == 1 && (oldest == n || slots[i].used < slots[oldest].used))
            oldest = i;
    if (oldest == n) return n;
    /* a free place has used 0; where there is none, the name used longest ago is forgotten */
    for (int32_t i = n; i < n + LLM__LORA_ASIDE; i++)
        if (slots[i].used < slots[aside].used) aside = i;
    llm__lora_forget(&slots[aside]);
    slots[aside] = slots[oldest];
    slots[aside].refs = slots[aside].n_running = slots[aside].n_waiting = 0;
    memset(&slots[oldest], 0, sizeof slots[oldest]);
    return oldest;
}

/* Takes a slot for a name: with one user, the caller, and not listed, so no request finds it yet. again: the name is one that was set
 * aside. On error nothing was taken. */
static llm_result llm__lora_claim(llm_engine *e, const char *name, const char *path, int again, int32_t *slot) {
    LLM__SCOPED(llm__drop) char *own_name = llm__strdup(name), *own_path = llm__strdup(path);
    if (!own_name || !own_path) return llm__nomem();
    LLM__LOCKED(&e->mutex);
    if (!again && llm__lora_find(e, llm__lit(name), 0) >= 0)
        return llm__error(LLM_ERR_ARG, "The lora adapter '%.200s' has already been loaded.", name);
    *slot = llm__lora_room(e);
    if (*slot == e->p.n_loras) /* a request that only wants to use it may come again */
        return llm__error(again ? LLM_ERR_BUSY : LLM_ERR_LIMIT, "adapter \"%.200s\": %d others are in use, max_cpu_loras allows no more",
                          name, (int)e->p.n_loras);
    llm__lora *taken = &e->adapters.slot[*slot];
    taken->refs = 1;
    taken->name = own_name;
    taken->path = own_path;
    own_name = own_path = NULL;
    return LLM_OK;
}

/* What has been read can be found from now on. again: if it is still set aside, and nobody unloaded it meanwhile; the caller holds it
 * too. */
static llm_result llm__lora_list(llm_engine *e, const char *name, uint64_t content, int again, int32_t slot) {
    LLM__LOCKED(&e->mutex);
    int32_t aside = again ? llm__lora_find(e, llm__lit(name), 1) : -1;
    if (again && aside < 0) return llm__error(LLM_ERR_ARG, "lora: no adapter \"%.200s\" is loaded", name);
    if (again) llm__lora_forget(&e->adapters.slot[aside]);
    llm__lora *l = &e->adapters.slot[slot];
    l->refs += again;
    l->listed = 1;
    l->id = ++e->adapters.n_loaded;
    l->used = ++e->adapters.n_uses;
    l->content = content;
    return LLM_OK;
}

/* Files are read and packed in the caller's thread, into a slot that no row of any step has. */
static llm_result llm__lora_read(llm_engine *e, const char *name, const char *path, int again, int32_t *slot) {
    llm__adapter d;
    llm_result r = llm__lora_claim(e, name, path, again, slot);
    if (r) return r;
    r = llm__adapter_open(path, &e->p.model->arch, e->net->cfg.max_lora_rank, &d);
    if (!r) r = llm__net_adapt(e->net, *slot, &d);
    uint64_t content = d.content;
    llm__adapter_close(&d);
    if (!r) r = llm__lora_list(e, name, content, again, *slot);
    if (r) llm__lora_release(e, *slot);
    return r;
}

LLM_API llm_result llm_lora_load(llm_engine *e, const char *name, const char *path) {
    int32_t slot;
    if (!e->p.n_loras) return llm__error(LLM_ERR_UNSUPPORTED, "adapters: the engine was opened without max_loras");
    if (!llm__plain_text(llm__s(name, strlen(name)), 255))
        return llm__error(LLM_ERR_ARG, "lora: a name of 1 to 255 bytes of text expected");
    return llm__lora_read(e, name, path, 0, &slot);
}

/* The adapter that a request names, or the engine's own (*slot -1: none), with a hold on it; of one that is set aside only the path. */
static llm_result llm__lora_named(llm_engine *e, const char *name, int32_t *slot, char **path) {
    LLM__LOCKED(&e->mutex);
    *slot = name ? llm__lora_find(e, llm__lit(name), 1) : e->adapters.own;
    if (*slot < 0) return name ? llm__error(LLM_ERR_ARG, "lora: no adapter \"%.200s\" is loaded", name) : LLM_OK;
    llm__lora *l = &e->adapters.slot[*slot];
    l->used = ++e->adapters.n_uses;
    if (*slot >= e->p.n_loras) return (*path = llm__strdup(l->path)) == NULL ? llm__nomem() : LLM_OK;
    l->refs++;
    return LLM_OK;
}

LLM__PRIVATE llm_result llm__lora_hold(llm_engine *e, const char *name, int32_t *slot) {
    LLM__SCOPED(llm__drop) char *path = NULL;
    if (!name) return llm__lora_named(e, name, slot, &path);
    LLM__LOCKED(&e->adapters.reading);
    llm_result r = llm__lora_named(e, name, slot, &path);
    if (path) r = llm__lora_read(e, name, path, 1, slot);
    if (r) *slot = -1;
    return r;
}

/* Requests that use it go on with it: only the list's hold on the slot is given up. The engine's own adapter stays. */
LLM_API llm_result llm_lora_unload(llm_engine *e, const char *name) {
    pthread_mutex_lock(&e->mutex);
    int32_t slot = llm__lora_find(e, llm__lit(name), 1);
    int own = slot >= 0 && slot == e->adapters.own, aside = slot >= e->p.n_loras;
    if (aside) llm__lora_forget(&e->adapters.slot[slot]);
    else if (slot >= 0 && !own) {
        LLM_FREE(e->adapters.slot[slot].name);
        e->adapters.slot[slot].name = NULL;
        e->adapters.slot[slot].listed = 0;
    }
    pthread_mutex_unlock(&e->mutex);
    if (slot < 0) return llm__error(LLM_ERR_ARG, "The lora adapter '%.200s' cannot be found.", name);
    if (own) return llm__error(LLM_ERR_ARG, "The lora adapter '%.200s' is that of all requests and stays.", name);
    if (!aside) llm__lora_drop(e, slot);
    return LLM_OK;
}

/* The i-th in the order of loading is the one that is listed and has i others before it. */
LLM_API int llm_lora_get(llm_engine *e, int32_t i, llm_text *name, llm_text *path, int32_t counts[2]) {
    const int32_t n = e->p.n_loras + LLM__LORA_ASIDE;
    LLM__LOCKED(&e->mutex);
    for (int32_t k = 0; k < n; k++) {
        const llm__lora *l = &e->adapters.slot[k];
        int32_t before = 0;
        for (int32_t j = 0; j < n && l->listed; j++) before += e->adapters.slot[j].listed && e->adapters.slot[j].id < l->id;
        if (!l->listed || before != i) continue;
        if (name) llm_text_str(name, l->name);
        if (path) llm_text_str(path, l->path);
        if (counts) counts[0] = l->n_running, counts[1] = l->n_waiting;
        return 1;
    }
    return 0;
}
