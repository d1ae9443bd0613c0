#include "model/convert_gemma3n.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "model/tensors.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/convert.h"
#include "model/convert_add.h"

/* Adds the stored tensors list (n) as one of `n_dims`. */
static void llm__gemma3n_add(llm__converting *g, const char *stem, const llm__tensor *const *list, int32_t n, int n_dims,
                             const int64_t *shape, int f32, const int32_t *rows) {
    const llm__convert_row row = {.stack = list, .n = n, .rows = rows};
    char name[96];
    llm__convert_name(g, stem, 0, name);
    llm__convert_add(g, name, n_dims, shape, f32, &row);
}

LLM__PRIVATE void llm__convert_own_values(llm__converting *g) {
    const llm__arch *a = g->L.a;
    const int64_t shape[2] = {a->vocab, (int64_t)a->n_layers * a->per_layer};
    const llm__tensor **list = (const llm__tensor **)(void *)(uintptr_t)llm__convert_list(g, 1);
    int32_t *rows = (int32_t *)llm__arena_get(&g->c->memory, sizeof(int32_t) * (size_t)a->vocab);
    if (!rows && !g->r) g->r = llm__nomem();
    if (g->r || !list) return;
    for (int32_t i = 0; i < a->vocab; i++) rows[i] = i < a->per_layer_rows ? i : 0;
    *list = llm__convert_find(g, LLM__W_PL_EMBED, 0, 0);
    if (*list) llm__gemma3n_add(g, "per_layer_token_embd", list, 1, 2, shape, 0, rows);
}

LLM__PRIVATE void llm__convert_streams(llm__converting *g) {
    const llm__arch *a = g->L.a;
    const int32_t n = a->n_streams - 1;
    const int64_t shape[3] = {n, a->hidden, a->hidden};
    for (int out = 0; out < 2 && n > 0; out++) {
        const llm__tensor **list = (const llm__tensor **)(void *)(uintptr_t)llm__convert_list(g, (size_t)n);
        for (int32_t i = 0; i < n && list; i++) list[i] = llm__convert_find(g, out ? LLM__W_ALTUP_OUT : LLM__W_ALTUP_IN, i, 0);
        if (list && !g->r) llm__gemma3n_add(g, out ? "altup_unembd_proj" : "altup_proj", list, n, 3, shape, 0, NULL);
    }
}

/* Keys and values of a layer that reads another one's are that one's. */
static void llm__gemma3n_shared(llm__converting *g) {
    const int layer = g->L.layer, from = g->L.a->layer[layer].kv_of;
    static const struct {
        int slot;
        const char *stem;
    } table[] = {{LLM__W_K, "attn_k"}, {LLM__W_V, "attn_v"}, {LLM__W_K_NORM, "attn_k_norm"}};
    for (int i = 0; i < LLM__COUNT(table) && from != layer; i++) {
        const llm__tensor **list = (const llm__tensor **)(void *)(uintptr_t)llm__convert_list(g, 1);
        if (!list || llm__has(&g->L, table[i].slot)) continue;
        g->L.layer = from;
        *list = llm__convert_find(g, table[i].slot, 0, 0);
        g->L.layer = layer;
        if (*list) llm__gemma3n_add(g, table[i].stem, list, 1, (*list)->n_dims, (*list)->shape, 0, NULL);
    }
}

/* Ones for what no stream is multiplied by. */
static void llm__gemma3n_ones(llm__converting *g) {
    const int64_t n = g->L.a->hidden;
    float *ones = (float *)llm__arena_get(&g->c->memory, sizeof(float) * (size_t)n);
    if (!ones && !g->r) g->r = llm__nomem();
    if (g->r) return;
    for (int64_t i = 0; i < n; i++) ones[i] = 1;
    const llm__convert_row row = {.numbers = ones};
    char name[96];
    llm__convert_name(g, "altup_correct_scale", 0, name);
    llm__convert_add(g, name, 1, &n, 1, &row);
}

LLM__PRIVATE void llm__convert_gemma3n(llm__converting *g) {
    static const struct {
        int slot;
        const char *stem;
        int f32;
    } table[] = {{LLM__W_LAUREL_L, "laurel_l", 0},
                 {LLM__W_LAUREL_R, "laurel_r", 0},
                 {LLM__W_LAUREL_NORM, "laurel_post_norm", 1},
                 {LLM__W_ALTUP_ROUTER, "altup_router", 0},
                 {LLM__W_ALTUP_NORM, "altup_router_norm", 1},
                 {LLM__W_ALTUP_PREDICT, "altup_predict_coef", 1},
                 {LLM__W_ALTUP_CORRECT, "altup_correct_coef", 1}};
    if (!g->L.a->n_streams) return;
    for (int i = 0; i < LLM__COUNT(table); i++) llm__convert_slot(g, table[i].slot, table[i].stem, 0, table[i].f32);
    if (g->L.a->stream_scale) llm__convert_slot(g, LLM__W_ALTUP_SCALE, "altup_correct_scale", 0, 1);
    else llm__gemma3n_ones(g);
    llm__gemma3n_shared(g);
}
