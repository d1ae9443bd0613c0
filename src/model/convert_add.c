#include "model/convert_add.h"
#include "api/backend.h"
#include "base/platform.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "cpu/dtypes.h"
#include "model/tensors.h"
#include "model/families.h"
#include "model/arch.h"
#include "model/loader.h"
#include "model/take.h"
#include "model/convert.h"

LLM__PRIVATE void llm__convert_add(llm__converting *g, const char *name, int n_dims, const int64_t *shape, int f32,
                                   const llm__convert_row *row) {
    llm__conversion *c = g->c;
    llm__tensor x = LLM__ZERO;
    if (g->r) return;
    x.type = n_dims < 2 || f32 || row->numbers ? (int32_t)LLM_TYPE_F32 : row->stack[0]->type;
    if (llm__type_block(x.type) > 1 || (x.type != LLM_TYPE_F32 && x.type != LLM_TYPE_F16)) x.type = LLM_TYPE_BF16;
    x.n_dims = n_dims;
    for (int i = 0; i < 4; i++) x.shape[i] = i < n_dims ? shape[i] : 1;
    const llm__str own = {llm__arena_str(&c->memory, llm__lit(name)), strlen(name)};
    if (!own.p || !llm__grow((void **)&c->row, &c->cap, c->tensors.n + 1, sizeof *c->row)) g->r = llm__nomem();
    if (!g->r) g->r = llm__tensors_add(&c->tensors, c->model->path, own, &x);
    if (!g->r) c->row[c->tensors.n - 1] = *row;
}

LLM__PRIVATE const llm__tensor *llm__convert_find(const llm__converting *g, int slot, int expert, int bias) {
    char name[256];
    return g->r ? NULL : llm__loader_find(&g->L, slot, expert, bias, name);
}

LLM__PRIVATE void llm__convert_name(const llm__converting *g, const char *stem, int bias, char out[96]) {
    const int whole = strchr(stem, '.') && strncmp(stem, "cls.", 4) && strncmp(stem, "indexer.", 8);
    const char *end = whole ? "" : bias ? ".bias" : ".weight";
    const int n = (int)strlen(stem) - llm__ends_with(stem, ".");
    if (g->L.layer < 0) snprintf(out, 96, "%s%s", stem, end);
    else snprintf(out, 96, "blk.%d.%.*s%s", g->L.layer, n, stem, end);
}

LLM__PRIVATE const llm__tensor *const *llm__convert_list(llm__converting *g, size_t n) {
    const llm__tensor **list = (const llm__tensor **)llm__arena_get(&g->c->memory, n * sizeof *list);
    if (!list && !g->r) g->r = llm__nomem();
    return list;
}

/* What a slot's values are multiplied by. */
static float llm__convert_times(const llm__arch *a, int slot, int bias) {
    if (a->folded && slot == LLM__W_EMBED) return a->embed_scale;
    if (a->folded && slot == LLM__W_HEAD) return a->logit_scale;
    return a->folded ? llm__fold_by(a, slot, 0, bias) : 1; /* what is not folded has keys of its own, or goes without saying */
}

LLM__PRIVATE int32_t llm__convert_turned(const llm__converting *g, int32_t head) {
    const int32_t dim = g->L.a->rope[0].dim;
    return dim ? LLM__MIN(dim, head) : head;
}

LLM__PRIVATE void llm__convert_slot(llm__converting *g, int slot, const char *stem, int head, int f32) {
    const int plus1 = (g->L.a->flags & LLM__NORM_PLUS1) && strstr(stem, "_norm") != NULL;
    for (int bias = 0; bias < 2; bias++) {
        char name[96];
        const llm__tensor *t = llm__convert_find(g, slot, 0, bias);
        const llm__tensor **list = t ? (const llm__tensor **)(void *)(uintptr_t)llm__convert_list(g, 1) : NULL;
        llm__convert_row row = LLM__ZERO;
        int64_t shape[2];
        if (!list) continue;
        list[0] = t;
        row.stack = list, row.n = 1, row.head = head, row.turn = llm__convert_turned(g, head), row.add = plus1 && !bias ? 1.0f : 0.0f;
        row.parted = head && g->L.a->flags & LLM__PAIRS;
        row.times = llm__convert_times(g->L.a, slot, bias);
        shape[0] = t->n_dims > 1 ? t->shape[t->n_dims - 2] : t->shape[0];
        shape[1] = t->shape[LLM__MAX(t->n_dims, 1) - 1];
        const int vector = t->n_dims < 2 || (shape[0] == 1 && f32);
        if (vector) shape[0] = shape[1];
        llm__convert_name(g, stem, bias, name);
        llm__convert_add(g, name, vector ? 1 : 2, shape, f32, &row);
    }
}
